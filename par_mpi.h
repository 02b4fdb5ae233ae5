// par_mpi.h - the collectives of an MPI program, run by the kit: the program is not edited.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_MPI_IMPLEMENTATION)
#define PAR_MPI_IMPLEMENTATION
#endif
#if defined(PAR_MPI_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE // for dladdr, which names call sites; before the first system header
#endif
#if defined(PAR_H) && !defined(PAR_MPI)
#error "par.h was included without PAR_MPI: include par_mpi.h first, or compile with -DPAR_MPI"
#endif
#if !defined(PAR_MPI)
#define PAR_MPI
#endif
// clang-format on

#include "par.h"
#if PAR_VERSION != 900
#error "par_mpi.h is version 0.9.0, and par.h is of another version: take all headers from one version"
#endif

#ifndef PAR_MPI_H
#define PAR_MPI_H
/*
WHAT
    An MPI program in C, C++ or Fortran keeps its calls, and the kit runs its collectives. Ranks of a node use
    shared memory, nodes exchange messages of the same MPI. MPI allows another function to replace
    MPI_Allreduce and to find the original as PMPI_Allreduce (the profiling interface). This header has such
    functions. Sums are added in rank order, whatever the MPI, its version or its settings.

USE
    A binary, without compiling it:   make build/libpar_mpi_mpich.so build/libpar_mpi_openmpi.so
                                      LD_PRELOAD=$PWD/build/libpar_mpi_mpich.so mpiexec -n 4 ./prog
                                      (Open MPI: mpiexec -x LD_PRELOAD=$PWD/build/libpar_mpi_openmpi.so ...)
                                      any other MPI, by its compiler: make build/libpar_mpi.so MPICC=cc
    A program that you link:          one more source file, compiled by mpicc (linked with -pthread -lm -ldl):
                                      #define PAR_IMPLEMENTATION
                                      #include "par_mpi.h"
    All ranks of a job need it: the ranks of a collective must agree on who runs it.

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par_mpi.h"
    #include <stdio.h>

    int main(int argc, char **argv) {
        double x, sum;
        int rank;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        x = rank + 1;
        MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); // the kit runs it
        if (rank == 0) printf("sum %g\n", sum);                          // with mpiexec -n 3 it prints: sum 6
        return MPI_Finalize();
    }

TABLE OF CONTENTS
    The API is two functions, for programs that go further: the kit's comm of a communicator, the table of
    calls. The implementation follows; search for ">>name":
    >>tables        MPI's predefined types and operations
    >>process       what is kept for the process; types; call sites; errors
    >>launch        do all ranks have these functions?
    >>comms         the kit's comm of a communicator, from its first collective until it is freed
    >>arrays        arrays of any datatype as consecutive bytes
    >>moves         collectives that move data
    >>reductions    collectives that reduce, natively or by MPI_Reduce_local
    >>samples       the time that MPI would have taken; the table
    >>nonblocking   collectives that are begun, and end in MPI's waits and tests
    >>interface     the functions that replace MPI's
    >>fortran       entry points for Fortran

CONFIG
    PAR_IMPLEMENTATION (or PAR_MPI_IMPLEMENTATION)   emit the functions, MPI_Allreduce and others among them
    PAR_API, PAR_MALLOC, PAR_ASSERT ... as in par.h; MPI's functions are visible whatever PAR_API says

ENVIRONMENT (besides par.h's)
    PAR_MPI_PRINT=1     at MPI_Finalize rank 0 of MPI_COMM_WORLD prints a table of its collectives: how many
                        the kit ran, how many MPI, their bytes and seconds, and the time saved. For that, a
                        few calls of each size run once more on other memory, by MPI and by the kit
    PAR_MPI_MPMD=1      all programs of a job that starts several have these functions (see LIMITS)
    PAR_TIMEOUT=s       a collective that waits so long fails and names who is missing, and where. Unset: it
                        waits forever, as MPI does

MODEL
    Taken: Allreduce, Reduce, Reduce_scatter, Reduce_scatter_block, Allgather(v), Bcast, Gather(v),
    Scatter(v), Alltoall(v) and Barrier on communicators of two ranks or more, and with MPI 4 their forms
    with large counts (_c). Those that move data take any datatype. Reductions take every predefined type with
    every operation that MPI allows for it.
    Nonblocking forms (Iallreduce ...) are taken if all ranks of the communicator are on one node, for
    operations that the kit has, after the communicator's first blocking collective, which opens its comm.
    MPI_COMM_WORLD's is open from MPI_Init on. The request is MPI's (a generalized request), so every wait
    and test takes it. A thread of the kit, which calls nothing of MPI, makes progress while the rank computes
    or is in another call of MPI. A process has one, made in MPI_Init; it sleeps while no call is in flight.
    Where a rank cannot have it, all ranks leave nonblocking collectives to MPI.
    Left to MPI: operations of the program, Scan, Exscan, Alltoallw, neighborhood collectives,
    intercommunicators, communicators of sessions and with spawned processes, persistent forms, files,
    one-sided calls.
    Agreement: the communicator, the function, and for reductions the operation and the type decide whether
    the kit runs a call. MPI requires them to be the same on all ranks. The bytes of a block decide how.
    MPI_IN_PLACE, counts that only the root has, displacements, and datatypes of another layout concern a
    rank's own memory alone: it packs what is not consecutive.
    Loose calls: the sizes of a blocking call, or the names of its types, may differ between ranks. If nothing
    else differs, MPI runs the call, and forgives some of that. A line on stderr says so once, with the call
    sites. It is an error with PAR_TIMEOUT, and in a nonblocking call. It is always an error if the function,
    the root or the operation differ in a call that the kit runs.
    Small calls: MPI lets the root of a small broadcast or scatter go on at once, and in a gather all others.
    The kit counts these, the v forms and Open MPI's MPI_Reduce. After four small ones in a row MPI runs the
    next 16 of that kind on the communicator, later up to 256; then the kit runs one again, to see. Each rank
    needs a processor of its own for that. MPI_Reduce is left only where the order does not change the bits:
    integers, logical values, bytes, and sums and products of two ranks' floats. With PAR_TIMEOUT the kit
    runs all.
    Order: kit and MPI exchange messages apart from each other. So the kit may run collectives while a
    nonblocking one of MPI is outstanding.
    Progress: a rank that waits in the kit lets MPI make progress, so a large MPI_Isend and its receiver go
    on. A rank that never waits lets MPI do so every 32 calls. MPI_Iprobe, MPI_Improbe, MPI_Win_test and the
    tests of requests first let MPI take what has arrived: they find what was sent before the last collective.
    Comms: MPI_Init opens one world, with one descriptor and one piece of shared memory for all communicators.
    A communicator's comm is opened at its first collective, by two small collectives of MPI, and is an
    attribute of it. MPI_Comm_free and MPI_Comm_disconnect close it and wait for nobody: ranks free their
    communicators in any order, also while requests are in flight. A copy by MPI_Comm_dup has its own comm.
    Where the world cannot be opened (no shared memory, ranks of several users), all communicators are MPI's.
    Where a comm cannot (the shared memory or the numbers of comms are used up, see par.h), its ranks leave
    that communicator to MPI. A line on stderr says why.
    Memory: the world takes address space for 256 communicators of all ranks of the node, 256 KiB a rank in
    each, and for par_alloc. It takes no more than the machine has memory, and less under ulimit -v.
    PAR_ARENA=bytes sets it.
    Sums: ((x0 + x1) + x2) + ... in rank order, for every size and algorithm. What the kit has no dtype or
    operation for (long double, complex numbers, 2-byte integers, logical and bitwise operations, MPI_MINLOC)
    it exchanges, and applies MPI_Reduce_local in rank order. MPI_MIN and MPI_MAX give NaN where any input is
    NaN.
    Threads: as MPI_Init_thread has promised. With MPI_THREAD_MULTIPLE threads take turns in the kit; one that
    waits lets the others have theirs.
    Errors go to the communicator's error handler; the error's string is par_last_error's text. In C, waits
    and tests for several requests return MPI_ERR_IN_STATUS; a status has the error.
    Call sites are return addresses, "prog+0x1234": addr2line -e prog 0x1234 names the line.
    Processors: mpiexec binds ranks, the kit does not.

LIMITS
    Those of par.h: Linux, 64 bits, one architecture, one user per node. An element of a datatype whose data
    are not consecutive has at most 2^30 bytes.
    Several programs in a job: MPI runs all collectives, because some programs may lack these functions, and a
    line on stderr says so. PAR_MPI_MPMD=1 says that all have them. The kit sees such a job in three cases:
    several contexts of Open MPI's mpiexec; a heterogeneous job of Slurm; a rank of the same node that lacks
    what this one has by LD_PRELOAD. Each node looks for itself, and MPICH's mpiexec tells nothing of other
    nodes: use -genv, which holds for all.
    Nonblocking: reductions by other operations stay MPI's, and so do all nonblocking collectives between
    nodes, where only a rank in the kit could send MPI's messages. All of them stay MPI's if a tool's MPI_Wait
    is found before this header's. A collective that a tool wraps, and is found first, is MPI's, too.
    Cost: a communicator's first collective takes two more of MPI and some 30 KiB. Its first large call takes
    each rank's stage of 256 KiB (PAR_STAGE). A program that makes a communicator for each call gains nothing.
    A program whose MPI_Init is not seen (a tool's is found first) keeps MPI's collectives.
    Fortran under MPICH: call sites are within MPICH's own library.
    A library in LD_PRELOAD for another MPI says so, and the program runs without it. A program that loads its
    MPI later, as Python does, ends.
    Static linking: a program with a static MPI cannot be preloaded; link the header. A static MPICH has
    mpi_f08's waits in one piece, which does not link beside this header's; C, mpif.h and use mpi do. Under
    Open MPI waits of Fortran programs need its shared libraries.
*/

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// The comm that runs the collectives of a communicator, for calls of par.h's own; opens it if that was not
// done. Collective over mpi in this case. It belongs to the communicator: do not close it. par_alloc has what
// communicators leave of the shared memory, at least 256 MiB (PAR_ARENA=bytes asks for more). Where threads
// call MPI at a time, calls on it take no turns: use it while no other thread is in MPI. Errors: UNSUPPORTED
// (MPI is not initialized, the communicator is left to MPI, or has one rank); *comm is NULL then.
par_result par_mpi_comm(MPI_Comm mpi, par_comm **comm);

// This process' collectives so far, by function: calls and bytes of the kit, calls left to MPI; with
// PAR_MPI_PRINT=1 seconds and what was saved, too. Not collective.
void par_mpi_print(FILE *file);

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_MPI_H

// Stop here if you only use it. -----------------------------------------------------------------------------

#if defined(PAR_MPI_IMPLEMENTATION) && !defined(PAR_MPI_IMPLEMENTED)
#define PAR_MPI_IMPLEMENTED

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

#define PAR__PMPI_INLINE static inline __attribute__((always_inline))
#ifndef PAR__PMPI_NOTE_TURN
#define PAR__PMPI_NOTE_TURN(begins) (void)(begins) // tests look at it
#endif

// >>tables --------------------------------------------------------------------------------------------------
//
// MPI's predefined types by families, and the families that each operation takes (MPI 4.0, section 6.9.2). A
// family decides, with the size, on the kit's dtype.

enum {
    PAR__PMPI_OPAQUE = 0, // no operation takes it
    PAR__PMPI_SIGNED = 1,
    PAR__PMPI_UNSIGNED = 2,
    PAR__PMPI_INTEGER = 4, // of Fortran, and MPI's own: signed, and no truth value
    PAR__PMPI_FLOAT = 8,
    PAR__PMPI_COMPLEX = 16,
    PAR__PMPI_LOGICAL = 32,
    PAR__PMPI_BYTES = 64,
    PAR__PMPI_PAIR = 128,
    PAR__PMPI_C_INTEGERS = PAR__PMPI_SIGNED | PAR__PMPI_UNSIGNED,
    PAR__PMPI_INTEGERS = PAR__PMPI_C_INTEGERS | PAR__PMPI_INTEGER,
    PAR__PMPI_NUMBERS = PAR__PMPI_INTEGERS | PAR__PMPI_FLOAT
};

// clang-format off
#define PAR__PMPI_TYPES(X)                                                                                   \
    X(MPI_SIGNED_CHAR, SIGNED) X(MPI_SHORT, SIGNED) X(MPI_INT, SIGNED) X(MPI_LONG, SIGNED)                   \
    X(MPI_LONG_LONG_INT, SIGNED) X(MPI_INT8_T, SIGNED) X(MPI_INT16_T, SIGNED) X(MPI_INT32_T, SIGNED)         \
    X(MPI_INT64_T, SIGNED)                                                                                   \
    X(MPI_UNSIGNED_CHAR, UNSIGNED) X(MPI_UNSIGNED_SHORT, UNSIGNED) X(MPI_UNSIGNED, UNSIGNED)                 \
    X(MPI_UNSIGNED_LONG, UNSIGNED) X(MPI_UNSIGNED_LONG_LONG, UNSIGNED) X(MPI_UINT8_T, UNSIGNED)              \
    X(MPI_UINT16_T, UNSIGNED) X(MPI_UINT32_T, UNSIGNED) X(MPI_UINT64_T, UNSIGNED)                            \
    X(MPI_INTEGER, INTEGER) X(MPI_INTEGER1, INTEGER) X(MPI_INTEGER2, INTEGER) X(MPI_INTEGER4, INTEGER)       \
    X(MPI_INTEGER8, INTEGER) X(MPI_AINT, INTEGER) X(MPI_OFFSET, INTEGER)                                     \
    X(MPI_COUNT, INTEGER)                                                                                    \
    X(MPI_FLOAT, FLOAT) X(MPI_DOUBLE, FLOAT) X(MPI_LONG_DOUBLE, FLOAT) X(MPI_REAL, FLOAT)                    \
    X(MPI_DOUBLE_PRECISION, FLOAT) X(MPI_REAL4, FLOAT) X(MPI_REAL8, FLOAT) X(MPI_REAL16, FLOAT)              \
    X(MPI_COMPLEX, COMPLEX) X(MPI_DOUBLE_COMPLEX, COMPLEX) X(MPI_COMPLEX8, COMPLEX)                          \
    X(MPI_COMPLEX16, COMPLEX) X(MPI_COMPLEX32, COMPLEX) X(MPI_C_FLOAT_COMPLEX, COMPLEX)                      \
    X(MPI_C_DOUBLE_COMPLEX, COMPLEX) X(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX) X(MPI_CXX_FLOAT_COMPLEX, COMPLEX) \
    X(MPI_CXX_DOUBLE_COMPLEX, COMPLEX) X(MPI_CXX_LONG_DOUBLE_COMPLEX, COMPLEX)                               \
    X(MPI_LOGICAL, LOGICAL) X(MPI_C_BOOL, LOGICAL) X(MPI_CXX_BOOL, LOGICAL)                                  \
    X(MPI_BYTE, BYTES) X(MPI_CHAR, OPAQUE) X(MPI_WCHAR, OPAQUE) X(MPI_CHARACTER, OPAQUE)                     \
    X(MPI_PACKED, OPAQUE)                                                                                    \
    X(MPI_2INT, PAIR) X(MPI_SHORT_INT, PAIR) X(MPI_LONG_INT, PAIR) X(MPI_FLOAT_INT, PAIR)                    \
    X(MPI_DOUBLE_INT, PAIR) X(MPI_LONG_DOUBLE_INT, PAIR) X(MPI_2INTEGER, PAIR) X(MPI_2REAL, PAIR)            \
    X(MPI_2DOUBLE_PRECISION, PAIR)

// X(operation, the kit's for types that it has, or NONE, families)
#define PAR__PMPI_OPS(X)                                                                                     \
    X(MPI_SUM,    PAR_SUM,  PAR__PMPI_NUMBERS | PAR__PMPI_COMPLEX)                                           \
    X(MPI_PROD,   PAR_PROD, PAR__PMPI_NUMBERS | PAR__PMPI_COMPLEX)                                           \
    X(MPI_MAX,    PAR_MAX,  PAR__PMPI_NUMBERS)                                                               \
    X(MPI_MIN,    PAR_MIN,  PAR__PMPI_NUMBERS)                                                               \
    X(MPI_LAND,   PAR__PMPI_NONE, PAR__PMPI_C_INTEGERS | PAR__PMPI_LOGICAL)                                  \
    X(MPI_LOR,    PAR__PMPI_NONE, PAR__PMPI_C_INTEGERS | PAR__PMPI_LOGICAL)                                  \
    X(MPI_LXOR,   PAR__PMPI_NONE, PAR__PMPI_C_INTEGERS | PAR__PMPI_LOGICAL)                                  \
    X(MPI_BAND,   PAR__PMPI_NONE, PAR__PMPI_INTEGERS | PAR__PMPI_BYTES)                                      \
    X(MPI_BOR,    PAR__PMPI_NONE, PAR__PMPI_INTEGERS | PAR__PMPI_BYTES)                                      \
    X(MPI_BXOR,   PAR__PMPI_NONE, PAR__PMPI_INTEGERS | PAR__PMPI_BYTES)                                      \
    X(MPI_MINLOC, PAR__PMPI_NONE, PAR__PMPI_PAIR)                                                            \
    X(MPI_MAXLOC, PAR__PMPI_NONE, PAR__PMPI_PAIR)
// clang-format on
enum { PAR__PMPI_NONE = PAR_OP_COUNT };
enum { PAR__PMPI_NO_DTYPE = PAR_DTYPE_COUNT };

typedef struct par__pmpi_type {
    size_t bytes, extent; // of an element: its data; the distance to the next one
    int consecutive;      // the data are in memory as MPI_Pack orders them, without gaps, from the address on
    int family;
    int dtype; // the kit's, or PAR__PMPI_NO_DTYPE
} par__pmpi_type;

// The kit's dtype of a predefined type.
static int par__pmpi_dtype(int family, size_t bytes) {
    static const struct {
        int families;
        size_t bytes;
        par_dtype dtype;
    } rows[] = {{PAR__PMPI_FLOAT, 8, PAR_F64},    {PAR__PMPI_FLOAT, 4, PAR_F32},
                {PAR__PMPI_UNSIGNED, 8, PAR_U64}, {PAR__PMPI_SIGNED | PAR__PMPI_INTEGER, 8, PAR_I64},
                {PAR__PMPI_UNSIGNED, 4, PAR_U32}, {PAR__PMPI_SIGNED | PAR__PMPI_INTEGER, 4, PAR_I32},
                {PAR__PMPI_UNSIGNED, 1, PAR_U8},  {PAR__PMPI_SIGNED | PAR__PMPI_INTEGER, 1, PAR_I8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((rows[i].families & family) && rows[i].bytes == bytes) return (int)rows[i].dtype;
    return PAR__PMPI_NO_DTYPE;
}

typedef struct par__pmpi_op {
    MPI_Op mpi;
    par_op op;
    int families;
} par__pmpi_op;
static const par__pmpi_op *par__pmpi_op_of(MPI_Op op) { // NULL: not in the table
    static const par__pmpi_op rows[] = {
#define PAR__X(mpi, op, families) {mpi, (par_op)op, families},
        PAR__PMPI_OPS(PAR__X)
#undef PAR__X
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].mpi == op) return &rows[i];
    return NULL;
}

// >>process -------------------------------------------------------------------------------------------------
//
// MPI's functions have no argument that could hold the state of this header, so the process has one: the
// world, the keys of its attributes, the table of predefined types, the texts of call sites, and a list of
// open comms.

enum {
    PAR__PMPI_TYPE_SLOTS = 256,
    PAR__PMPI_SITES = 1024,
    PAR__PMPI_SITE_BYTES = 96,
    PAR__PMPI_LINE_BYTES = 1280,
    PAR__PMPI_SIZES = 48
};

typedef struct par__pmpi_size { // the calls of one kind, of 2^i bytes and more
    uint64_t calls, samples;
    double kit_s, mpi_s; // of the samples
} par__pmpi_size;
typedef struct par__pmpi_row { // the calls of one kind; threads may lose one
    uint64_t calls, bytes, left;
    double seconds;
    par__pmpi_size sizes[PAR__PMPI_SIZES];
} par__pmpi_row;
#define PAR__PMPI_ADD(counter, n)                                                                            \
    __atomic_store_n(&(counter), __atomic_load_n(&(counter), __ATOMIC_RELAXED) + (n), __ATOMIC_RELAXED)

typedef struct par__pmpi_memory { // of a call while it runs
    size_t *counts;               // 4 arrays, of an element per rank: what a v form gives the kit
    char *temp[2];                // for what is packed
    size_t temp_bytes[2];
} par__pmpi_memory;
enum {                        // which calls of the kit's are MPI's
    PAR__PMPI_LEAVES_NOTHING, // the user asks for errors
    PAR__PMPI_LEAVES_LOOSE,   // those whose sizes and types alone differ
    PAR__PMPI_LEAVES_SMALL    // and broadcasts, gathers and scatters of few bytes
};
typedef struct par__pmpi_look { // of one kind
    int small, turns;           // small calls in a row; so many calls are MPI's next
} par__pmpi_look;
typedef struct par__pmpi_comm { // of a communicator: its attribute
    MPI_Comm mpi;               // MPI_COMM_NULL: it was freed
    par_comm *comm;             // NULL: its collectives are MPI's
    int rank, size;
    int users;               // the communicator, and nonblocking calls that have not ended
    par__pmpi_memory memory; // of blocking calls
    par__pmpi_look looks[PAR_KIND_COUNT];
    uint32_t (*calls)[PAR__PMPI_SIZES]; // of each kind, by size, where calls are measured
    struct par__pmpi_comm *next;
} par__pmpi_comm;

typedef struct par__pmpi_site {
    const void *address;
    int forgiven; // that MPI runs a call of it was said
    char text[PAR__PMPI_SITE_BYTES];
} par__pmpi_site;
typedef struct par__pmpi_freed { // a communicator that this thread is freeing
    MPI_Comm mpi;
    const void *address; // of the caller
    const struct par__pmpi_freed *outer;
} par__pmpi_freed;

static struct par__pmpi_process {
    int ready, finalizing, error_class;
    par_comm *world; // NULL: all collectives are MPI's
    MPI_Group group; // of MPI_COMM_WORLD
    int threads;     // may call at a time
    // all ranks agree on these
    int print;
    int leaves;      // PAR__PMPI_LEAVES_NOTHING ...
    int nonblocking; // the kit runs them, too
    int comm_key, type_key, self_key;
    int said_why_left;
    MPI_Request never; // a generalized request that does not end: a test of it lets MPI make progress
    int behind;        // calls of the kit since MPI could take what has arrived for it
    struct {
        MPI_Datatype mpi;
        par__pmpi_type type;
        int used;
    } types[PAR__PMPI_TYPE_SLOTS];          // a hash table
    par__pmpi_site *sites[PAR__PMPI_SITES]; // another
    par__pmpi_comm *comms;                  // open
    unsigned closed;                        // communicators that were freed
    struct par__pmpi_begun *begun;          // nonblocking collectives that have not ended
    par__pmpi_row rows[PAR_KIND_COUNT];
} par__pmpi;
static pthread_mutex_t par__pmpi_lock = PTHREAD_MUTEX_INITIALIZER; // of its lists and tables

// What a thread knows: MPI's own look-up of an attribute takes as long as half a small call.
#if defined(__GLIBC__) // there also in a library that a running program loads
#define PAR__PMPI_THREAD static __thread __attribute__((tls_model("initial-exec")))
#else
#define PAR__PMPI_THREAD static __thread
#endif
enum { PAR__PMPI_FOUND = 8 };
PAR__PMPI_THREAD struct {
    const void *caller; // of Fortran's entry point, which calls C's
    const par__pmpi_freed *freed;
    struct {
        MPI_Comm mpi;
        par__pmpi_comm *comm; // NULL: nothing
        unsigned closed;      // valid until another communicator is freed: its handle may be used again
    } found[PAR__PMPI_FOUND];
} par__pmpi_thread;

// Threads take turns in the kit, but not while they are in MPI, which may wait for other threads.
PAR__PMPI_INLINE void par__pmpi_enter(void) {
    if (!par__pmpi.threads) return;
    par__begin_turn(par__pmpi.world);
    PAR__PMPI_NOTE_TURN(1);
}
PAR__PMPI_INLINE void par__pmpi_leave(void) {
    if (!par__pmpi.threads) return;
    PAR__PMPI_NOTE_TURN(0);
    par__end_turn(par__pmpi.world);
}

static int par__pmpi_query(void *begun, MPI_Status *status) {
    (void)begun;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}
static int par__pmpi_cancel(void *begun, int complete) { return (void)begun, (void)complete, MPI_SUCCESS; }
static int par__pmpi_free_nothing(void *nothing) { return (void)nothing, MPI_SUCCESS; }

// MPI makes progress when it is called. A rank that finds the others waiting in each call of the kit would
// call nothing of MPI: so every few calls do. And what another rank sent before a call of the kit must be
// found by this rank's next question, as after a call of MPI, whose messages come behind it: MPICH's
// MPI_Win_test looks before it takes messages, and answers no.
enum { PAR__PMPI_QUIET = 32, PAR__PMPI_LOOKS = 4 };
static void par__pmpi_progress(int looks) {
    int ended; // MPI_Iprobe finds messages that are there, and MPICH's, on MPI_COMM_SELF, makes no progress
    __atomic_store_n(&par__pmpi.behind, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < looks; i++) PMPI_Request_get_status(par__pmpi.never, &ended, MPI_STATUS_IGNORE);
}
static void par__pmpi_count_quiet(void) { // at the end of a call of the kit; threads may lose one
    const int behind = __atomic_load_n(&par__pmpi.behind, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&par__pmpi.behind, behind, __ATOMIC_RELAXED);
    if (behind >= PAR__PMPI_QUIET) par__pmpi_progress(1);
}
static void par__pmpi_catch_up(void) { // before a question to MPI
    if (__atomic_load_n(&par__pmpi.behind, __ATOMIC_RELAXED)) par__pmpi_progress(PAR__PMPI_LOOKS);
}

// A call site by its return address: "prog+0x1234", as addr2line takes it.
static const char *par__pmpi_describe_site(const void *address, char *text, size_t bytes) {
    Dl_info info;
    const uintptr_t at = (uintptr_t)address - 1; // within the call
    if (!dladdr(address, &info) || !info.dli_fname || !info.dli_fbase) {
        snprintf(text, bytes, "0x%zx", (size_t)at);
        return text;
    }
    const char *name = strrchr(info.dli_fname, '/');
    const int fixed = ((const Elf64_Ehdr *)info.dli_fbase)->e_type == ET_EXEC; // its addresses are absolute
    snprintf(text, bytes, "%s+0x%zx", name ? name + 1 : info.dli_fname,
             (size_t)(at - (fixed ? 0 : (uintptr_t)info.dli_fbase)));
    return text;
}
static par__pmpi_site *par__pmpi_site_of(const void *address) { // NULL: of many places
    const size_t first = ((uintptr_t)address >> 2) * 0x9e3779b1u % PAR__PMPI_SITES;
    for (size_t i = first, looks = 0; looks < 16; i = (i + 1) % PAR__PMPI_SITES, looks++) {
        par__pmpi_site *site = __atomic_load_n(&par__pmpi.sites[i], __ATOMIC_ACQUIRE);
        if (site && site->address == address) return site;
        if (site) continue;
        site = (par__pmpi_site *)PAR_MALLOC(sizeof *site);
        if (!site) break;
        site->address = address;
        site->forgiven = 0;
        par__pmpi_describe_site(address, site->text, sizeof site->text);
        par__pmpi_site *none = NULL;
        if (__atomic_compare_exchange_n(&par__pmpi.sites[i], &none, site, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return site;
        PAR_FREE(site); // another thread was faster
    }
    return (par__pmpi_site *)NULL;
}

// MPI's code of an error of the kit.
static int par__pmpi_code(par_result result, const char *text) {
    char line[MPI_MAX_ERROR_STRING];
    int code = MPI_ERR_OTHER;
    pthread_mutex_lock(&par__pmpi_lock);
    if (!par__pmpi.error_class) PMPI_Add_error_class(&par__pmpi.error_class);
    PMPI_Add_error_code(par__pmpi.error_class, &code);
    pthread_mutex_unlock(&par__pmpi_lock);
    snprintf(line, sizeof line, "%s: %s", par_result_name(result),
             text && *text ? text : par_result_text(result));
    PMPI_Add_error_string(code, line);
    return code;
}
// Give it to the communicator's error handler, which may call MPI, or not return: no lock is held here.
static int par__pmpi_raise(const par__pmpi_comm *s, int error) {
    const MPI_Comm mpi = __atomic_load_n(&s->mpi, __ATOMIC_RELAXED);
    if (error) PMPI_Comm_call_errhandler(mpi == MPI_COMM_NULL ? MPI_COMM_WORLD : mpi, error);
    return error;
}

PAR__PMPI_INLINE size_t par__pmpi_type_slot(MPI_Datatype type) {
    return (size_t)((uint64_t)(uintptr_t)type * 0x9e3779b97f4a7c15u >> 40) % PAR__PMPI_TYPE_SLOTS;
}
PAR__PMPI_INLINE const par__pmpi_type *par__pmpi_predefined(MPI_Datatype type) {
    for (size_t i = par__pmpi_type_slot(type); par__pmpi.types[i].used; i = (i + 1) % PAR__PMPI_TYPE_SLOTS)
        if (par__pmpi.types[i].mpi == type) return &par__pmpi.types[i].type;
    return NULL;
}
static void par__pmpi_measure_type(MPI_Datatype mpi, par__pmpi_type *type) {
    MPI_Count bytes = 0, at = 0, extent = 0, true_at = 0, true_extent = 0;
    PMPI_Type_size_x(mpi, &bytes);
    PMPI_Type_get_extent_x(mpi, &at, &extent);
    PMPI_Type_get_true_extent_x(mpi, &true_at, &true_extent);
    type->bytes = (size_t)bytes;
    type->extent = (size_t)extent;
    type->consecutive = !bytes || (!at && !true_at && extent == bytes && true_extent == bytes);
}
static void par__pmpi_add_type(MPI_Datatype mpi, int family) {
    if (mpi == MPI_DATATYPE_NULL || par__pmpi_predefined(mpi)) return; // Fortran's are not in every MPI
    size_t i = par__pmpi_type_slot(mpi);
    while (par__pmpi.types[i].used) i = (i + 1) % PAR__PMPI_TYPE_SLOTS;
    par__pmpi_type *type = &par__pmpi.types[i].type;
    par__pmpi_measure_type(mpi, type);
    type->family = family;
    type->dtype = par__pmpi_dtype(family, type->bytes);
    par__pmpi.types[i].mpi = mpi;
    par__pmpi.types[i].used = 1;
}

// Does MPI_Pack leave the bytes of a type without gaps in their order? It packs numbers that say where each
// byte was: in pass p, digit p of its position to the base 256.
static int par__pmpi_packs_in_order(MPI_Datatype mpi, size_t bytes) {
    const size_t limit = (size_t)64 << 20; // packing a larger one is right, too
    unsigned char *memory = bytes > limit ? NULL : (unsigned char *)PAR_MALLOC(2 * bytes),
                  *packed = memory + bytes;
    int in_order = memory != NULL;
    for (size_t digit = 0; in_order && (digit == 0 || (bytes - 1) >> (8 * digit)); digit++) {
        int position = 0;
        for (size_t i = 0; i < bytes; i++) memory[i] = (unsigned char)(i >> (8 * digit));
        in_order = PMPI_Pack(memory, 1, mpi, packed, (int)bytes, &position, MPI_COMM_SELF) == MPI_SUCCESS &&
                   (size_t)position == bytes && memcmp(memory, packed, bytes) == 0;
    }
    PAR_FREE(memory);
    return in_order;
}
// A derived type; *type is filled in. Its description is kept as the type's attribute.
static const par__pmpi_type *par__pmpi_derived(MPI_Datatype mpi, par__pmpi_type *type) {
    int found = 0, integers, addresses, types, combiner = MPI_COMBINER_NAMED;
    void *value = NULL;
    if (PMPI_Type_get_attr(mpi, par__pmpi.type_key, &value, &found) != MPI_SUCCESS) return NULL;
    if (found) return (const par__pmpi_type *)value;
    par__pmpi_measure_type(mpi, type);
    if (type->consecutive && type->bytes) type->consecutive = par__pmpi_packs_in_order(mpi, type->bytes);
    PMPI_Type_get_envelope(mpi, &integers, &addresses, &types, &combiner);
    type->family = combiner == MPI_COMBINER_F90_INTEGER   ? PAR__PMPI_INTEGER
                   : combiner == MPI_COMBINER_F90_REAL    ? PAR__PMPI_FLOAT
                   : combiner == MPI_COMBINER_F90_COMPLEX ? PAR__PMPI_COMPLEX
                                                          : PAR__PMPI_OPAQUE;
    type->dtype = par__pmpi_dtype(type->family, type->bytes);
    par__pmpi_type *kept = (par__pmpi_type *)PAR_MALLOC(sizeof *kept);
    if (!kept) return type;
    *kept = *type;
    if (PMPI_Type_set_attr(mpi, par__pmpi.type_key, kept) == MPI_SUCCESS) return kept;
    PAR_FREE(kept);
    return type;
}
// NULL: no type
PAR__PMPI_INLINE const par__pmpi_type *par__pmpi_type_of(MPI_Datatype mpi, par__pmpi_type *memory) {
    const par__pmpi_type *type = mpi == MPI_DATATYPE_NULL ? NULL : par__pmpi_predefined(mpi);
    return type || mpi == MPI_DATATYPE_NULL ? type : par__pmpi_derived(mpi, memory);
}
static int par__pmpi_forget_type(MPI_Datatype mpi, int key, void *type, void *extra) {
    (void)mpi;
    (void)key;
    (void)extra;
    PAR_FREE(type);
    return MPI_SUCCESS;
}

// >>launch --------------------------------------------------------------------------------------------------
//
// A rank without these functions calls MPI's own, which is no partner for the kit: the others would wait for
// it, or take its messages for theirs. Nothing can be asked of it, so each rank looks at what all ranks that
// have these functions see: what the launcher tells of the programs that it has started, and under Hydra,
// which tells nothing, the processes beside this one.

static const par__setting par__pmpi_settings[] = {
    {"PAR_MPI_PRINT", PAR__SETTING_SWITCH, 0, 1, 0, ""},
    {"PAR_MPI_MPMD", PAR__SETTING_SWITCH, 0, 1, 0, ""},
};
enum { PAR__PMPI_SETTING_PRINT, PAR__PMPI_SETTING_MPMD };
static int par__pmpi_switch(int setting) {
    double on = 0;
    char why[256];
    if (par__setting_read(&par__pmpi_settings[setting], &on, why, sizeof why)) PAR_LOG(why);
    return on > 0;
}

// A library for one MPI may be preloaded into a program of another one, whose handles have another size: no
// function of this header can then pass a call on. It is seen by a function or variable that mpi.h refers to,
// so that it is part of the MPI's ABI: Open MPI's, or that of MPICH, which Intel's, Cray's and others have.
#if defined(OPEN_MPI)
#define PAR__PMPI_FAMILY     "Open MPI"
#define PAR__PMPI_OTHER      "MPICH, or an MPI like it"
#define PAR__PMPI_OTHER_MARK "MPIR_Dup_fn"
#define PAR__PMPI_OTHER_FILE "libpar_mpi_mpich.so"
#else
#define PAR__PMPI_FAMILY     "MPICH, and MPIs like it"
#define PAR__PMPI_OTHER      "Open MPI"
#define PAR__PMPI_OTHER_MARK "ompi_mpi_comm_world"
#define PAR__PMPI_OTHER_FILE "libpar_mpi_openmpi.so"
#endif

static const char *par__pmpi_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
// The next name in a list like LD_PRELOAD's; *at goes behind it. 0: there is none.
static size_t par__pmpi_next_name(const char **at, const char **name) {
    *name = *at + strspn(*at, ": ");
    const size_t bytes = strcspn(*name, ": ");
    *at = *name + bytes;
    return bytes;
}
static int par__pmpi_is_file(const char *path, size_t bytes, const char *name) {
    const size_t length = strlen(name);
    return bytes >= length && !memcmp(path + bytes - length, name, length) &&
           (bytes == length || path[bytes - length - 1] == '/');
}
// The file's name of this library, if LD_PRELOAD has brought it here; NULL: it is a part of the program.
static const char *par__pmpi_preloaded(void) {
    Dl_info own;
    const char *preload = getenv("LD_PRELOAD");
    if (!preload || !dladdr((const void *)par__pmpi_settings, &own) || !own.dli_fname) return NULL;
    const char *name = par__pmpi_base_name(own.dli_fname), *one;
    for (size_t bytes; (bytes = par__pmpi_next_name(&preload, &one)) > 0;)
        if (par__pmpi_is_file(one, bytes, name)) return name;
    return NULL;
}
static void par__pmpi_say_other(const char *library, const char *then) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    char line[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) && atoi(getenv(names[i]))) return; // rank 0 says it
    snprintf(line, sizeof line,
             "%s in LD_PRELOAD is for " PAR__PMPI_FAMILY ", but the program has " PAR__PMPI_OTHER
             ": preload " PAR__PMPI_OTHER_FILE
             ", or a library that make build/libpar_mpi.so MPICC=... made with the program's mpicc. %s",
             library, then);
    PAR_LOG(line);
}
#if defined(__GLIBC__) // which gives a library's constructors the arguments of main
// Before main: the program is run again without this library, unless the loader was told to run it (then
// /proc/self/exe is the loader).
__attribute__((constructor)) static void par__pmpi_check_program(int argc, char **argv) {
    const char *library = par__pmpi_preloaded(), *at = getenv("LD_PRELOAD"), *one;
    char path[4096];
    (void)argc;
    if (!library || !dlsym(RTLD_DEFAULT, PAR__PMPI_OTHER_MARK)) return;
    char *rest = (char *)PAR_MALLOC(strlen(at) + 1); // the other libraries that are preloaded
    const ssize_t n = getauxval(AT_BASE) ? readlink("/proc/self/exe", path, sizeof path - 1) : 0;
    par__pmpi_say_other(library, "Now it runs without.");
    if (rest) *rest = 0;
    for (size_t bytes; rest && (bytes = par__pmpi_next_name(&at, &one)) > 0;) {
        if (par__pmpi_is_file(one, bytes, library)) continue;
        if (*rest) strcat(rest, ":");
        strncat(rest, one, bytes);
    }
    if (rest && n > 0 && !(*rest ? setenv("LD_PRELOAD", rest, 1) : unsetenv("LD_PRELOAD"))) {
        path[n] = 0;
        execv(path, argv);
    }
    PAR_LOG("The program cannot be run again: unset LD_PRELOAD");
    _exit(1);
}
#endif
// A program that has loaded its MPI later, as Python does: it can only end.
static void par__pmpi_check_caller(const void *caller) {
    const char *library = par__pmpi_preloaded();
    Dl_info info;
    if (!library || !dladdr(caller, &info) || !info.dli_fname) return;
    void *handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    const int other = handle && dlsym(handle, PAR__PMPI_OTHER_MARK);
    if (handle) dlclose(handle);
    if (!other) return;
    par__pmpi_say_other(library, "The program ends here.");
    _exit(1);
}

// Does a line that begins with these words have this one in it? Lines of /proc end with `end`.
static int par__pmpi_mentions(long pid, const char *file, int end, const char *begin, const char *word) {
    char path[64], *line = NULL;
    size_t room = 0;
    int found = 0;
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
    FILE *f = fopen(path, "re");
    while (f && !found && getdelim(&line, &room, end, f) > 0)
        found = !strncmp(line, begin, strlen(begin)) && strstr(line, word);
    free(line);
    if (f) fclose(f);
    return found;
}
static FILE *par__pmpi_children(long pid) { // a list of numbers
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", pid, pid);
    return fopen(path, "re");
}
static long par__pmpi_parent(long pid) { // 0: unknown
    char path[64];
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%*d (%*[^)]) %*c %ld", &parent) != 1) parent = 0;
    if (f) fclose(f);
    return parent;
}
enum { PAR__PMPI_WRAPPERS = 4 }; // at most so many processes, as timeout or a shell, are around a rank

// A process, or one within it, that has MPI but not this library. 0: none.
static long par__pmpi_lacking(long pid, const char *library, int depth) {
    long child, lacking = 0;
    if (par__pmpi_mentions(pid, "environ", 0, "LD_PRELOAD=", library)) return 0;
    if (par__pmpi_mentions(pid, "maps", '\n', "", "/libmpi")) return pid;
    FILE *f = depth ? par__pmpi_children(pid) : NULL;
    while (f && !lacking && fscanf(f, "%ld", &child) == 1)
        lacking = par__pmpi_lacking(child, library, depth - 1);
    if (f) fclose(f);
    return lacking;
}
typedef struct par__pmpi_beside { // of the processes that the launcher has started on this machine
    long lacks;                   // a rank without this library; 0: none, or unknown
    int first;                    // none before this one has it
} par__pmpi_beside;
static int par__pmpi_is_launcher(long pid) { // that starts ranks of one job
    static const char *const names[] = {"hydra",   "mpiexec", "mpirun",     "orted",
                                        "prterun", "prted",   "slurmstepd", "palsd"};
    int is = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is |= par__pmpi_mentions(pid, "comm", '\n', names[i], "");
    return is;
}
static int par__pmpi_is_first_here(void) { // of the ranks of this machine, as the launcher says
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return !atoi(getenv(names[i]));
    return 1;
}
static par__pmpi_beside par__pmpi_look_beside(void) {
    par__pmpi_beside seen = {0, 1};
    const char *library = par__pmpi_preloaded();
    long pid, mine = (long)getpid(), launcher = (long)getppid();
    if (!library) return seen.first = par__pmpi_is_first_here(), seen;
    for (int i = 0; launcher && !par__pmpi_is_launcher(launcher); i++) {
        mine = launcher;
        launcher = i < PAR__PMPI_WRAPPERS ? par__pmpi_parent(launcher) : 0;
    }
    FILE *f = launcher ? par__pmpi_children(launcher) : NULL;
    for (int before = 1; f && fscanf(f, "%ld", &pid) == 1;) {
        const long lacking = pid == mine ? 0 : par__pmpi_lacking(pid, library, PAR__PMPI_WRAPPERS);
        if (lacking) seen.lacks = lacking;
        if (pid == mine) before = 0;
        if (before && par__pmpi_mentions(pid, "environ", 0, "LD_PRELOAD=", library)) seen.first = 0;
    }
    if (f) fclose(f);
    return seen;
}
// After MPI's initialization: is all to be left to MPI, because some ranks may be without these functions?
// One rank of a node says so.
static int par__pmpi_is_mpmd(void) {
    static const char *const programs[] = {"OMPI_NUM_APP_CTX", "SLURM_HET_SIZE", "SLURM_PACK_SIZE"};
    char why[128] = "", line[384];
    int size = 1;
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1 || par__pmpi_switch(PAR__PMPI_SETTING_MPMD)) return 0;
    const par__pmpi_beside seen = par__pmpi_look_beside();
    if (seen.lacks) snprintf(why, sizeof why, "rank of process %ld is without it", seen.lacks);
    for (size_t i = 0; i < sizeof programs / sizeof *programs && !*why; i++) {
        const char *count = getenv(programs[i]);
        if (count && atoi(count) > 1)
            snprintf(why, sizeof why, "job has several programs (%s is %d), of which some may be without it",
                     programs[i], atoi(count));
    }
    if (!*why) return 0;
    snprintf(
        line, sizeof line,
        "par_mpi.h leaves all collectives to MPI: the %s; give it to all ranks (mpiexec -genv LD_PRELOAD "
        "..., or -x LD_PRELOAD=... in each context) and set PAR_MPI_MPMD=1",
        why);
    if (seen.first) PAR_LOG(line);
    return 1;
}

// >>comms ---------------------------------------------------------------------------------------------------
//
//     MPI_Init           opens the world, which has the node's shared memory and one progress thread
//     first collective   PMPI_Comm_get_attr finds nothing --> a comm of ranks of the world, on all ranks of
//                        the communicator (par__open_mpi_part), PMPI_Comm_set_attr
//     each one           PMPI_Comm_get_attr finds the comm
//     MPI_Comm_free      closes the comm, which waits for nobody, then calls what the program wants to be
//                        called: collectives that this makes on the communicator are MPI's on all ranks
//     MPI_Finalize       MPI deletes MPI_COMM_SELF's attributes first: par__pmpi_finalize closes all comms
//                        and the world

static int par__pmpi_make_memory(par__pmpi_memory *m, int size) { // 0: no memory
    memset(m, 0, sizeof *m);
    m->counts = (size_t *)PAR_MALLOC(4 * sizeof *m->counts * (size_t)size);
    return m->counts != NULL;
}
static void par__pmpi_free_memory(par__pmpi_memory *m) {
    PAR_FREE(m->counts);
    for (int i = 0; i < 2; i++) PAR_FREE(m->temp[i]);
}
static void par__pmpi_drop(par__pmpi_comm *s) { // by one of its users
    if (!s || __atomic_sub_fetch(&s->users, 1, __ATOMIC_ACQ_REL)) return;
    par__pmpi_free_memory(&s->memory);
    PAR_FREE(s->calls);
    PAR_FREE(s);
}
static int par__pmpi_close(MPI_Comm mpi, int key, void *attribute, void *extra) {
    par__pmpi_comm *s = (par__pmpi_comm *)attribute;
    (void)mpi;
    (void)key;
    (void)extra;
    if (!s) return MPI_SUCCESS;
    __atomic_add_fetch(&par__pmpi.closed, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&par__pmpi_lock);
    for (par__pmpi_comm **link = &par__pmpi.comms; *link; link = &(*link)->next)
        if (*link == s) {
            *link = s->next;
            break;
        }
    pthread_mutex_unlock(&par__pmpi_lock);
    if (s->comm && s->comm != par__pmpi.world) {
        const par__pmpi_freed *f = par__pmpi_thread.freed;
        const par__pmpi_site *site = f ? par__pmpi_site_of(f->address) : NULL;
        par__pmpi_enter();
        (par_close)(par__at_site(s->comm, site ? site->text : "the end of its communicator"));
        par__pmpi_leave();
    }
    __atomic_store_n(&s->mpi, MPI_COMM_NULL, __ATOMIC_RELAXED);
    par__pmpi_drop(s);
    return MPI_SUCCESS;
}
static int par__pmpi_finalize(MPI_Comm self, int key, void *attribute, void *extra) {
    int rank;
    (void)self;
    (void)key;
    (void)attribute;
    (void)extra;
    __atomic_store_n(&par__pmpi.finalizing, 1, __ATOMIC_RELEASE);
    while (par__pmpi.comms) PMPI_Comm_delete_attr(par__pmpi.comms->mpi, par__pmpi.comm_key);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (par__pmpi.print && !rank) par_mpi_print(stderr);
    par_close(par__pmpi.world);
    PMPI_Group_free(&par__pmpi.group);
    par__pmpi.behind = 0;
    PMPI_Grequest_complete(par__pmpi.never);
    PMPI_Wait(&par__pmpi.never, MPI_STATUS_IGNORE);
    return MPI_SUCCESS;
}

// What is known of a communicator; its first user is the communicator. NULL: no memory.
static par__pmpi_comm *par__pmpi_new_comm(MPI_Comm mpi) {
    par__pmpi_comm *s = (par__pmpi_comm *)PAR_MALLOC(sizeof *s);
    if (!s) return NULL;
    memset(s, 0, sizeof *s);
    s->mpi = mpi;
    s->users = 1;
    PMPI_Comm_rank(mpi, &s->rank);
    PMPI_Comm_size(mpi, &s->size);
    int there = par__pmpi_make_memory(&s->memory, s->size);
    if (there && par__pmpi.print) {
        s->calls = (uint32_t(*)[PAR__PMPI_SIZES])PAR_MALLOC(PAR_KIND_COUNT * sizeof *s->calls);
        if (s->calls) memset(s->calls, 0, PAR_KIND_COUNT * sizeof *s->calls);
        there = s->calls != NULL;
    }
    if (there) return s;
    par__pmpi_drop(s);
    return (par__pmpi_comm *)NULL;
}
// The ranks of MPI_COMM_WORLD that a communicator has. NULL: out of memory; *foreign: it has others, which
// were spawned.
static int *par__pmpi_world_ranks(MPI_Comm mpi, int size, int *foreign) {
    int *ranks = (int *)PAR_MALLOC(2 * sizeof *ranks * (size_t)size), *own = ranks + size;
    MPI_Group group = MPI_GROUP_NULL, common = MPI_GROUP_NULL;
    int shared = 0;
    PMPI_Comm_group(mpi, &group);
    PMPI_Group_intersection(group, par__pmpi.group, &common);
    PMPI_Group_size(common, &shared);
    *foreign = shared < size;
    for (int i = 0; ranks && i < size; i++) own[i] = i;
    if (ranks) PMPI_Group_translate_ranks(group, size, own, par__pmpi.group, ranks);
    PMPI_Group_free(&common);
    PMPI_Group_free(&group);
    return ranks;
}
// The first collective of an intracommunicator of several ranks, all of which are here. s: NULL where memory
// is out. All have a comm then, or none.
static void par__pmpi_open_kit(MPI_Comm mpi, int size, par__pmpi_comm *s) {
    char line[256];
    int foreign = 0;
    int *ranks = par__pmpi_world_ranks(mpi, size, &foreign);
    const char *why = "";
    par_comm *comm = foreign ? NULL : par__open_mpi_part(par__pmpi.world, mpi, s ? ranks : NULL, size, &why);
    PAR_FREE(ranks);
    if (s) s->comm = comm;
    if (comm || foreign || !s || s->rank ||
        __atomic_exchange_n(&par__pmpi.said_why_left, 1, __ATOMIC_RELAXED))
        return;
    snprintf(line, sizeof line, "par_mpi.h leaves a communicator of %d ranks to MPI, and maybe others: %s",
             size, why);
    PAR_LOG(line);
}
// The communicator has s from now on; NULL: it was out of memory here, and is MPI's on all ranks.
static void par__pmpi_keep_comm(MPI_Comm mpi, par__pmpi_comm *s) {
    PMPI_Comm_set_attr(mpi, par__pmpi.comm_key, s);
    if (!s || !s->comm) return;
    pthread_mutex_lock(&par__pmpi_lock);
    s->next = par__pmpi.comms;
    par__pmpi.comms = s;
    pthread_mutex_unlock(&par__pmpi_lock);
}
// NULL: its collectives are MPI's, which are counted nowhere.
static par__pmpi_comm *par__pmpi_open(MPI_Comm mpi) {
    int inter = 0, size = 0;
    for (const par__pmpi_freed *f = par__pmpi_thread.freed; f; f = f->outer)
        if (f->mpi == mpi) return NULL;
    if (PMPI_Comm_test_inter(mpi, &inter) != MPI_SUCCESS) return NULL;
    PMPI_Comm_size(mpi, &size);
    par__pmpi_comm *s = par__pmpi_new_comm(mpi);
    if (par__pmpi.world && !inter && size > 1) par__pmpi_open_kit(mpi, size, s);
    return par__pmpi_keep_comm(mpi, s), s;
}
// open: at a blocking collective, which may wait for all ranks. NULL: none, and nothing can be counted.
static par__pmpi_comm *par__pmpi_find(MPI_Comm mpi, int open) {
    void *value = NULL;
    int found = 0;
    if (mpi == MPI_COMM_NULL || __atomic_load_n(&par__pmpi.finalizing, __ATOMIC_ACQUIRE)) return NULL;
    if (!__atomic_load_n(&par__pmpi.ready, __ATOMIC_ACQUIRE)) return NULL;
    if (PMPI_Comm_get_attr(mpi, par__pmpi.comm_key, &value, &found) != MPI_SUCCESS) return NULL;
    return found ? (par__pmpi_comm *)value : open ? par__pmpi_open(mpi) : NULL;
}
// Close a communicator's comm before MPI frees it, and calls the program's functions.
static void par__pmpi_begin_free(par__pmpi_freed *f, const MPI_Comm *mpi, const void *address) {
    void *value;
    int found = 0;
    f->mpi = mpi ? *mpi : MPI_COMM_NULL;
    f->address = par__pmpi_thread.caller ? par__pmpi_thread.caller : address;
    par__pmpi_thread.caller = NULL;
    f->outer = par__pmpi_thread.freed;
    par__pmpi_thread.freed = f;
    if (f->mpi == MPI_COMM_NULL || f->mpi == MPI_COMM_WORLD ||
        !__atomic_load_n(&par__pmpi.ready, __ATOMIC_ACQUIRE))
        return;
    if (PMPI_Comm_get_attr(f->mpi, par__pmpi.comm_key, &value, &found) == MPI_SUCCESS && found)
        PMPI_Comm_delete_attr(f->mpi, par__pmpi.comm_key);
}
static void par__pmpi_end_free(const par__pmpi_freed *f) { par__pmpi_thread.freed = f->outer; }

// Does the user ask for errors instead of hangs? Then no call is MPI's. Has each rank a processor of those
// where the ranks may run? Then small calls in which not all ranks wait for all are MPI's. A launcher that
// binds ranks gives each processors of its own.
static int par__pmpi_may_leave(void) {
    const char *timeout = getenv("PAR_TIMEOUT");
    int here = par__launched_here(), own = 0, sum = 0;
    cpu_set_t cpus; // of this rank, then of all
    if (!here) PMPI_Comm_size(MPI_COMM_WORLD, &here);
    CPU_ZERO(&cpus);
    if (!sched_getaffinity(0, sizeof cpus, &cpus)) own = CPU_COUNT(&cpus);
    PMPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(MPI_IN_PLACE, &cpus, (int)sizeof cpus, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    const int all = CPU_COUNT(&cpus);
    if (timeout && *timeout) return PAR__PMPI_LEAVES_NOTHING;
    return all && (all >= here || all == sum) ? PAR__PMPI_LEAVES_SMALL : PAR__PMPI_LEAVES_LOOSE;
}
// Is another library's function, which is a tool's, found before this header's or MPI's? A tool's MPI_Wait
// does not know the kit's requests.
static int par__pmpi_finds_tool(const char *name, uintptr_t own, const char *original) {
    const void *first = dlsym(RTLD_DEFAULT, name), *mpis = dlsym(RTLD_DEFAULT, original);
    Dl_info of_first, of_mpi;
    if (!first || (uintptr_t)first == own || !mpis || !dladdr(first, &of_first) || !dladdr(mpis, &of_mpi))
        return 0;
    return of_first.dli_fbase != of_mpi.dli_fbase;
}
static int par__pmpi_is_traced(void) {
#define PAR__TOOL(name) par__pmpi_finds_tool("MPI_" #name, (uintptr_t)&MPI_##name, "PMPI_" #name)
    return PAR__TOOL(Wait) || PAR__TOOL(Waitall) || PAR__TOOL(Waitany) || PAR__TOOL(Waitsome) ||
           PAR__TOOL(Test) || PAR__TOOL(Testall) || PAR__TOOL(Testany) || PAR__TOOL(Testsome);
#undef PAR__TOOL
}
static void par__pmpi_make_keys(void) {
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, par__pmpi_close, &par__pmpi.comm_key, NULL);
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, par__pmpi_finalize, &par__pmpi.self_key, NULL);
    PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, par__pmpi_forget_type, &par__pmpi.type_key, NULL);
    PMPI_Grequest_start(par__pmpi_query, par__pmpi_free_nothing, par__pmpi_cancel, NULL, &par__pmpi.never);
    PMPI_Comm_set_attr(MPI_COMM_SELF, par__pmpi.self_key, NULL);
#define PAR__X(mpi, family) par__pmpi_add_type(mpi, PAR__PMPI_##family);
    PAR__PMPI_TYPES(PAR__X)
#undef PAR__X
}
// Open the world. All ranks have one, or none.
static void par__pmpi_open_world(int threads) {
    const char *timeout = getenv("PAR_TIMEOUT");
    int size;
    par_desc d;
    memset(&d, 0, sizeof d);
    d.keep_cpus = 1;
    if (!timeout || !*timeout) d.timeout_s = 1e9;
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > 1) par__open_mpi_program(&d, threads, &par__pmpi.world);
    par__pmpi.threads = par__pmpi.world && threads;
}
// What all ranks agree on, and the comm of MPI_COMM_WORLD.
static void par__pmpi_agree(int threads) {
    par__pmpi_open_world(threads);
    par__pmpi_comm *s = par__pmpi_new_comm(MPI_COMM_WORLD);
    int agreed[4] = {par__pmpi.print, par__pmpi_may_leave(), 0, s != NULL};
    if (par__pmpi.world) agreed[2] = par__has_progress(par__pmpi.world) && !par__pmpi_is_traced();
    PMPI_Allreduce(MPI_IN_PLACE, agreed, 4, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    par__pmpi.print = agreed[0];
    par__pmpi.leaves = agreed[1];
    par__pmpi.nonblocking = agreed[2];
    if (agreed[3]) s->comm = par__pmpi.world;
    par__pmpi_keep_comm(MPI_COMM_WORLD, s);
}
// MPI_Init has ended, on all ranks. The ranks of a job that is MPI's are asked nothing.
static void par__pmpi_start(void) {
    int level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    par__pmpi.print = par__pmpi_switch(PAR__PMPI_SETTING_PRINT);
    PMPI_Comm_group(MPI_COMM_WORLD, &par__pmpi.group);
    par__pmpi_make_keys();
    if (!par__pmpi_is_mpmd()) par__pmpi_agree(level == MPI_THREAD_MULTIPLE);
    __atomic_store_n(&par__pmpi.ready, 1, __ATOMIC_RELEASE);
}
PAR__PMPI_INLINE size_t par__pmpi_found_slot(MPI_Comm mpi) {
    return (size_t)((uint64_t)(uintptr_t)mpi * 0x9e3779b97f4a7c15u >> 32) % PAR__PMPI_FOUND;
}
PAR__PMPI_INLINE par__pmpi_comm *par__pmpi_known(MPI_Comm mpi) { // NULL: this thread must look for it
    const size_t i = par__pmpi_found_slot(mpi);
    const unsigned closed = __atomic_load_n(&par__pmpi.closed, __ATOMIC_ACQUIRE);
    if (par__pmpi_thread.found[i].mpi != mpi || par__pmpi_thread.found[i].closed != closed) return NULL;
    return par__pmpi_thread.found[i].comm;
}
static par__pmpi_comm *par__pmpi_comm_of(MPI_Comm mpi, int open) {
    const size_t i = par__pmpi_found_slot(mpi);
    const unsigned closed = __atomic_load_n(&par__pmpi.closed, __ATOMIC_ACQUIRE);
    par__pmpi_comm *s = par__pmpi_known(mpi);
    if (s) return s;
    s = par__pmpi_find(mpi, open);
    par__pmpi_thread.found[i].mpi = mpi;
    par__pmpi_thread.found[i].comm = s;
    par__pmpi_thread.found[i].closed = closed;
    return s;
}
par_result par_mpi_comm(MPI_Comm mpi, par_comm **comm) {
    const par__pmpi_comm *s = par__pmpi_comm_of(mpi, 1);
    *comm = s ? s->comm : NULL;
    return *comm ? PAR_OK : PAR_ERR_UNSUPPORTED;
}

// >>arrays --------------------------------------------------------------------------------------------------
//
// One side of a call, send or recv, is one block or a block for each rank, of any datatype. The kit gets it
// as consecutive bytes: the array itself where it is like that, else memory of the comm, into which the
// blocks are packed before the call or from which they are unpacked after it. (MPI_Pack of one architecture
// leaves the bytes of a type as they are, in the order of its type map.)

typedef struct par__pmpi_side { // as the program describes it
    MPI_Datatype type;
    MPI_Count count;
    const void *counts,
        *displs; // of int, or with `large` of MPI_Count and MPI_Aint; NULL: count elements each
    int large;
} par__pmpi_side;

typedef struct par__pmpi_call {
    par_kind kind;
    const void *send;
    void *recv;
    par__pmpi_side out, in; // of send and of recv; of a reduction `out` alone
    MPI_Op op;
    int root;
    MPI_Comm mpi;
    const void *address; // of the caller
    par__pmpi_memory *memory;
    par_request *request; // of a nonblocking call
    int error;            // what MPI's function returns
} par__pmpi_call;

typedef struct par__pmpi_layout { // of one side, in bytes
    const par__pmpi_type *type;
    par__pmpi_type memory; // of a derived type
    int blocks;
    int direct; // the array is as the kit wants it, from byte `at` on
    MPI_Aint at;
    size_t bytes;   // of all blocks
    size_t block;   // of each, without counts
    size_t *counts; // per block; NULL: all have `block`
    size_t *displs; // where the kit finds them; NULL: one after the other
} par__pmpi_layout;

// Field by field: what compilers make of memset takes 30 cycles before it begins.
PAR__PMPI_INLINE void par__pmpi_clear_call(par_call *c, par_kind kind, int root) {
    c->send = NULL;
    c->recv = NULL;
    c->count = 0;
    c->send_counts = c->send_displs = c->recv_counts = c->recv_displs = NULL;
    c->kind = kind;
    c->dtype = PAR_U8;
    c->op = PAR_SUM;
    c->root = root;
    c->tag = 0;
    c->site = NULL;
}
PAR__PMPI_INLINE void par__pmpi_clear_layout(par__pmpi_layout *l) {
    l->type = NULL;
    l->blocks = l->direct = 0;
    l->at = 0;
    l->bytes = l->block = 0;
    l->counts = l->displs = NULL;
}
PAR__PMPI_INLINE par__pmpi_side par__pmpi_some(MPI_Count count, MPI_Datatype type) {
    const par__pmpi_side side = {type, count, NULL, NULL, 0};
    return side;
}
PAR__PMPI_INLINE par__pmpi_side par__pmpi_many(const void *counts, const void *displs, int large,
                                               MPI_Datatype type) {
    const par__pmpi_side side = {type, 0, counts, displs, large};
    return side;
}
static MPI_Count par__pmpi_count(const par__pmpi_side *side, int i) {
    if (!side->counts) return side->count;
    return side->large ? ((const MPI_Count *)side->counts)[i] : ((const int *)side->counts)[i];
}
static MPI_Aint par__pmpi_displ(const par__pmpi_side *side, int i) { // in elements
    if (!side->displs) return (MPI_Aint)side->count * i;             // of a side without counts
    return side->large ? ((const MPI_Aint *)side->displs)[i] : ((const int *)side->displs)[i];
}

// spread: the kit may find the blocks anywhere; 0: they must follow each other.
static void par__pmpi_lay_out(par__pmpi_layout *l, const par__pmpi_side *side, int blocks, int spread,
                              size_t *sizes) {
    const size_t e = l->type->bytes;
    MPI_Aint low = 0;
    int some = 0, packed = 1;
    l->blocks = blocks;
    l->block = (size_t)side->count * e;
    l->bytes = (size_t)blocks * l->block;
    l->direct = l->type->consecutive;
    if (!side->counts) return;
    l->counts = sizes;
    l->bytes = 0;
    for (int i = 0; i < blocks; i++) {
        const MPI_Aint at = par__pmpi_displ(side, i) * (MPI_Aint)l->type->extent;
        l->counts[i] = (size_t)par__pmpi_count(side, i) * e;
        if (l->counts[i] && (!some || at < low)) low = at;
        some |= l->counts[i] != 0;
    }
    for (int i = 0; i < blocks; i++) {
        const MPI_Aint at = par__pmpi_displ(side, i) * (MPI_Aint)l->type->extent - low;
        sizes[blocks + i] = l->counts[i] ? (size_t)at : 0;
        packed &= !l->counts[i] || (size_t)at == l->bytes;
        l->bytes += l->counts[i];
    }
    l->direct &= packed || spread;
    l->displs = l->direct && !packed ? sizes + blocks : NULL;
    l->at = low;
}

// Pack count elements of the program's array, or unpack them into it. They have so many bytes when packed.
static int par__pmpi_convert(MPI_Datatype type, int packs, const void *from, void *to, size_t count,
                             size_t bytes) {
    MPI_Datatype moved = MPI_DATATYPE_NULL;
    int position = 0, one = 1;
    const void *array = packs ? from : to;
    if (!array) { // MPI_BOTTOM, which MPICH's MPI_Pack refuses: the type then tells the way from `one`
        MPI_Aint back;
        PMPI_Get_address(&one, &back);
        back = -back;
        PMPI_Type_create_hindexed(1, &one, &back, type, &moved);
        PMPI_Type_commit(&moved);
        type = moved;
        if (packs)
            from = &one;
        else
            to = &one;
    }
    const int error = packs ? PMPI_Pack(from, (int)count, type, to, (int)bytes, &position, MPI_COMM_SELF)
                            : PMPI_Unpack(from, (int)bytes, &position, to, (int)count, type, MPI_COMM_SELF);
    if (moved != MPI_DATATYPE_NULL) PMPI_Type_free(&moved);
    return error;
}
// The same for block i.
static int par__pmpi_convert_block(const par__pmpi_layout *l, const par__pmpi_side *side, int i, int packs,
                                   const void *array_or_bytes, void *bytes_or_array) {
    const MPI_Aint at = par__pmpi_displ(side, i) * (MPI_Aint)l->type->extent;
    const size_t e = l->type->bytes, most = ((size_t)1 << 30) / (e ? e : 1);
    const char *from = (const char *)array_or_bytes + (packs ? at : 0);
    char *to = (char *)bytes_or_array + (packs ? 0 : at);
    size_t left = (size_t)par__pmpi_count(side, i), some;
    if (!left || !e) return MPI_SUCCESS;
    if (l->type->consecutive) return memcpy(to, from, left * e), MPI_SUCCESS;
    if (!most) return MPI_ERR_TYPE;
    for (; left; left -= some) {
        some = left < most ? left : most;
        const int error = par__pmpi_convert(side->type, packs, from, to, some, some * e);
        if (error) return error;
        from += some * (packs ? l->type->extent : e);
        to += some * (packs ? e : l->type->extent);
    }
    return MPI_SUCCESS;
}
static size_t par__pmpi_block_bytes(const par__pmpi_layout *l, int i) {
    return l->counts ? l->counts[i] : l->block;
}
static size_t par__pmpi_block_at(const par__pmpi_layout *l, int i) { // in what the kit gets
    size_t at = 0;
    if (!l->counts) return (size_t)i * l->block;
    if (l->displs) return l->displs[i];
    for (int j = 0; j < i; j++) at += l->counts[j];
    return at;
}
static int par__pmpi_pack_all(const par__pmpi_layout *l, const par__pmpi_side *side, const void *array,
                              char *to) {
    int error = MPI_SUCCESS;
    for (int i = 0; i < l->blocks && !error; i++) {
        error = par__pmpi_convert_block(l, side, i, 1, array, to);
        to += par__pmpi_block_bytes(l, i);
    }
    return error;
}

static char *par__pmpi_temp(const par__pmpi_call *k, int which, size_t bytes) { // NULL: out of memory
    par__pmpi_memory *m = k->memory;
    if (m->temp[which] && bytes <= m->temp_bytes[which]) return m->temp[which];
    PAR_FREE(m->temp[which]);
    m->temp_bytes[which] = bytes + bytes / 2 + 64;
    return m->temp[which] = (char *)PAR_MALLOC(m->temp_bytes[which]);
}

// >>moves ---------------------------------------------------------------------------------------------------
//
// From the row of a kind in PAR_KINDS follows which arrays this rank has and how many blocks; the rest is the
// same for all kinds:
//     send   in place? the own block of recv (all_to_all: a copy of recv)   else the array, or packed
//     recv   in place? memory that nobody reads (scatter at the root)   else the array, or memory to unpack
// A broadcast is in place at the root.
//
// MPI lets a program be loose: a broadcast with a larger count on other ranks, a root of a gather that has
// room for more than comes, MPI_LONG here and MPI_UNSIGNED_LONG there. The kit finds the difference on all
// ranks before data move, and all know whether the sizes and types are all that differs. Then MPI runs this
// call, and the first rank that differs says so, once for each call site. With PAR_TIMEOUT, which asks for
// errors, it is an error.
//
// In a small broadcast or scatter MPI lets the root go on at once, in a gather the others; the kit compares
// all ranks' calls first, which takes longer, and longer still where ranks have counts of their own. Whether
// a call is small only its ranks know, each of its own part. But all know how large the last one was that the
// kit ran, because they saw each other's calls:
//     kit     small small small small           small           large large
//     MPI                             (16 any)        (32 any)
// After four small calls of a kind in a row MPI has the next ones, whatever their size; then one is the kit's
// again, to see; where it is small, MPI has twice as many. Open MPI gets reductions, too, whose result does
// not depend on the order.

enum { PAR__PMPI_SMALL_ROW = 4, PAR__PMPI_TURNS = 16, PAR__PMPI_DOUBLINGS = 4 };
// Up to which size of a block, in bytes, MPI is faster. 0: it never is.
PAR__PMPI_INLINE size_t par__pmpi_small_bytes(par_kind kind) {
#if defined(OPEN_MPI)
    switch (kind) {
    case PAR_KIND_BROADCAST:
    case PAR_KIND_GATHER:
    case PAR_KIND_SCATTER:
    case PAR_KIND_REDUCE:
    case PAR_KIND_ALL_GATHERV: return 256;
    case PAR_KIND_GATHERV:
    case PAR_KIND_SCATTERV: return 8192;
    case PAR_KIND_ALL_TO_ALLV: return 1024;
    default: return 0;
    }
#else
    switch (kind) {
    case PAR_KIND_BROADCAST:
    case PAR_KIND_GATHER:
    case PAR_KIND_SCATTER:
    case PAR_KIND_GATHERV:
    case PAR_KIND_SCATTERV: return 8192;
    case PAR_KIND_ALL_TO_ALLV: return 2048;
    default: return 0;
    }
#endif
}

// Does a reduction have the same bits in any order? Sums and products of two floats have.
static int par__pmpi_one_result(const par__pmpi_comm *s, MPI_Op op, const par__pmpi_type *type) {
    if (type->family & (PAR__PMPI_INTEGERS | PAR__PMPI_LOGICAL | PAR__PMPI_BYTES)) return 1;
    return type->family == PAR__PMPI_FLOAT && s->size == 2 && (op == MPI_SUM || op == MPI_PROD);
}

typedef struct par__pmpi_move {
    par__pmpi_layout out, in;
    int sends, recvs, send_in_place, recv_in_place; // of this rank
    par_call call;
    char *unpacked; // where the kit puts what is unpacked afterwards; NULL: nothing
} par__pmpi_move;

static int par__pmpi_has(par_side side, int root_here) {
    return side && (!(side & PAR_SIDE_ROOT) || root_here);
}

// The sides of this rank. 0: MPI runs it, because an argument is wrong.
static int par__pmpi_prepare(const par__pmpi_comm *s, const par__pmpi_call *k, par__pmpi_move *m) {
    const par_kind_traits *t = par_kind_traits_of(k->kind);
    const int rooted = (t->takes & PAR_TAKES_ROOT) != 0, root_here = s->rank == k->root;
    par__pmpi_clear_layout(&m->out);
    par__pmpi_clear_layout(&m->in);
    par__pmpi_clear_call(&m->call, k->kind, k->root);
    m->unpacked = NULL;
    if (rooted && (k->root < 0 || k->root >= s->size)) return 0;
    m->sends = par__pmpi_has(t->send, root_here);
    m->recvs = par__pmpi_has(t->recv, root_here);
    m->send_in_place = m->sends && k->send == MPI_IN_PLACE;
    m->recv_in_place = m->recvs && k->recv == MPI_IN_PLACE;
    for (int side = 0; side < 2; side++) {
        const par__pmpi_side *a = side ? &k->in : &k->out;
        par__pmpi_layout *l = side ? &m->in : &m->out;
        const int used = side ? m->recvs && !m->recv_in_place : m->sends && !m->send_in_place;
        const int blocks = (side ? t->recv : t->send) & PAR_SIDE_ALL ? s->size : 1;
        if (!used) continue;
        l->type = par__pmpi_type_of(a->type, &l->memory);
        if (!l->type) return 0;
        for (int i = 0; i < (a->counts ? blocks : 1); i++)
            if (par__pmpi_count(a, i) < 0) return 0;
        par__pmpi_lay_out(l, a, blocks, t->counts != PAR_COUNTS_SAME,
                          k->memory->counts + (side ? 2 : 0) * s->size);
    }
    return 1;
}

// Is it MPI's turn? All ranks give the same answer. Inline: where the kind is known, little of it is left.
PAR__PMPI_INLINE int par__pmpi_leaves(par__pmpi_comm *s, const par__pmpi_call *k) {
    par__pmpi_type memory;
    if (!par__pmpi_small_bytes(k->kind) || !s->looks[k->kind].turns) return 0;
    if (k->kind == PAR_KIND_REDUCE) {
        const par__pmpi_type *type = par__pmpi_type_of(k->out.type, &memory);
        if (!type || !par__pmpi_one_result(s, k->op, type)) return 0;
    }
    s->looks[k->kind].turns--;
    return 1;
}
// After a call of the kit's: its largest block, in bytes.
static void par__pmpi_count_small(par__pmpi_comm *s, par_kind kind, uint64_t largest) {
    par__pmpi_look *row = &s->looks[kind];
    if (par__pmpi.leaves != PAR__PMPI_LEAVES_SMALL) return;
    row->small = largest <= par__pmpi_small_bytes(kind) ? row->small + 1 : 0;
    const int looks = row->small - PAR__PMPI_SMALL_ROW;
    if (looks < 0) return;
    row->turns = PAR__PMPI_TURNS << looks;
    if (looks == PAR__PMPI_DOUBLINGS) row->small--;
}
static void par__pmpi_learn(par__pmpi_comm *s, const par__pmpi_call *k, const par_call *call) {
    if (!par__pmpi_small_bytes(k->kind)) return;
    uint64_t largest = k->kind == PAR_KIND_ALL_GATHERV ? 0 : par__largest_block_seen(s->comm);
    for (int r = 0; k->kind == PAR_KIND_ALL_GATHERV && r < s->size; r++)
        if (largest < call->recv_counts[r]) largest = call->recv_counts[r];
    par__pmpi_count_small(s, k->kind, largest);
}

// Has this rank's block for itself one size as a part of send, another one as a part of recv?
static int par__pmpi_has_two_sizes(const par__pmpi_comm *s, const par__pmpi_move *m) {
    if (!m->sends || !m->recvs || m->send_in_place || m->recv_in_place) return 0;
    return par__pmpi_block_bytes(&m->out, m->out.blocks == 1 ? 0 : s->rank) !=
           par__pmpi_block_bytes(&m->in, m->in.blocks == 1 ? 0 : s->rank);
}
// Is MPI to run a call that has failed with this result, because only sizes and types differ? All ranks give
// the same answer.
static int par__pmpi_forgives(const par__pmpi_comm *s, const par__pmpi_call *k, par_result result) {
    char line[PAR__PMPI_LINE_BYTES];
    if ((result != PAR_ERR_MISMATCH && result != PAR_ERR_ARGUMENT) ||
        par__pmpi.leaves == PAR__PMPI_LEAVES_NOTHING)
        return 0;
    const int first = par__differs_in_size_alone(s->comm);
    if (first - 1 != s->rank) return first;
    par__pmpi_site *site = par__pmpi_site_of(k->address);
    if (!site || __atomic_exchange_n(&site->forgiven, 1, __ATOMIC_RELAXED)) return first;
    snprintf(line, sizeof line,
             "MPI runs a call that the kit does not, because its sizes or types differ: %s",
             par_last_error(s->comm));
    PAR_LOG(line);
    return first;
}

// Give the call its recv. An MPI error.
static int par__pmpi_place_recv(par__pmpi_comm *s, const par__pmpi_call *k, par__pmpi_move *m) {
    const par__pmpi_layout *l = &m->in;
    if (!m->recvs) return MPI_SUCCESS;
    if (m->recv_in_place) { // scatter at the root
        m->call.count = par__pmpi_block_bytes(&m->out, s->rank);
        m->call.recv = par__pmpi_temp(k, 1, m->call.count);
        return m->call.recv ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    }
    m->call.count = l->block;
    m->call.recv_counts = l->counts;
    m->call.recv_displs = l->displs;
    m->call.recv = (char *)k->recv + l->at;
    if (l->direct) return MPI_SUCCESS;
    m->call.recv = m->unpacked = par__pmpi_temp(k, 1, l->bytes);
    return m->unpacked ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}
// Give the call its send, after its recv.
static int par__pmpi_place_send(par__pmpi_comm *s, const par__pmpi_call *k, par__pmpi_move *m) {
    const par__pmpi_layout *l = m->send_in_place ? &m->in : &m->out;
    const int to_all = k->kind == PAR_KIND_ALL_TO_ALL || k->kind == PAR_KIND_ALL_TO_ALLV;
    char *packed = NULL;
    if (!m->sends) return MPI_SUCCESS;
    if (m->send_in_place && !to_all) { // the own block of recv
        const int own = l->blocks == 1 ? 0 : s->rank;
        const size_t at = par__pmpi_block_at(l, own);
        m->call.send = (char *)m->call.recv + at;
        m->call.count = par__pmpi_block_bytes(l, own);
        return m->unpacked ? par__pmpi_convert_block(l, &k->in, own, 1, k->recv, m->unpacked + at)
                           : MPI_SUCCESS;
    }
    if (!l->counts) m->call.count = l->block;
    m->call.send_counts = l->counts;
    m->call.send_displs = m->send_in_place ? NULL : l->displs;
    m->call.send = (const char *)k->send + l->at;
    if (l->direct && !m->send_in_place) return MPI_SUCCESS;
    m->call.send = packed = par__pmpi_temp(k, 0, l->bytes);
    if (!packed) return MPI_ERR_NO_MEM;
    return par__pmpi_pack_all(l, m->send_in_place ? &k->in : &k->out, m->send_in_place ? k->recv : k->send,
                              packed);
}

// MPI's code of what the kit returned; in the same turn.
static int par__pmpi_end(par_result result) {
    par__pmpi_count_quiet();
    return result ? par__pmpi_code(result, par_last_error(par__pmpi.world)) : MPI_SUCCESS;
}
enum { PAR__PMPI_IS_MPIS = -1 }; // no error of MPI: it is to run the call
static int par__pmpi_issue(const par__pmpi_comm *s, const par__pmpi_call *k, par_call *call) {
    const par__pmpi_site *site = par__pmpi_site_of(k->address);
    call->site = site ? site->text : "(one of many places)";
    par__pmpi_enter();
    const par_result r = k->request || !par__pmpi.threads ? (par_begin)(s->comm, call, k->request)
                                                          : par__run_in_turn(s->comm, call);
    const int forgiven = r && !k->request && par__pmpi_forgives(s, k, r),
              error = forgiven ? PAR__PMPI_IS_MPIS : par__pmpi_end(r);
    par__pmpi_leave();
    return error;
}

static void par__pmpi_sample(par__pmpi_comm *s, const par__pmpi_call *k, const par_call *call);

// Describe a call to the kit. Wrong: k->error.
static void par__pmpi_describe_move(par__pmpi_comm *s, par__pmpi_call *k, par__pmpi_move *m) {
    k->error = par__pmpi_place_recv(s, k, m);
    if (!k->error) k->error = par__pmpi_place_send(s, k, m);
    if (!par__pmpi_has_two_sizes(s, m)) return;
    m->call.count = (size_t)PAR__TWO_SIZES;
    if (m->in.counts) m->in.counts[s->rank] = (size_t)PAR__TWO_SIZES;
}
static void par__pmpi_unpack_all(par__pmpi_call *k, const par__pmpi_move *m) {
    const char *from = m->unpacked;
    for (int i = 0; from && i < m->in.blocks && !k->error; i++) {
        k->error = par__pmpi_convert_block(&m->in, &k->in, i, 0, from, k->recv);
        from += par__pmpi_block_bytes(&m->in, i);
    }
}
static void par__pmpi_run_move(par__pmpi_comm *s, par__pmpi_call *k, par__pmpi_move *m) {
    par__pmpi_describe_move(s, k, m);
    if (k->error) return;
    k->error = par__pmpi_issue(s, k, &m->call);
    if (!k->error) par__pmpi_learn(s, k, &m->call);
    par__pmpi_unpack_all(k, m);
    if (par__pmpi.print && !k->error) par__pmpi_sample(s, k, &m->call);
}

// >>reductions ----------------------------------------------------------------------------------------------
//
// What the kit has no dtype or operation for is exchanged as bytes and reduced in rank order, four ranks:
//     few bytes    all_gather or gather     every rank (or the root) has a b c d:  ((a.b).c).d
//     many         all_to_all               rank r has slice r of a b c d:         ((a.b).c).d
//                  all_gather or gather of the slices
// so every rank gets the same bits, and the same as with other numbers of bytes.

typedef struct par__pmpi_fold { // an operation of MPI on elements of one type
    MPI_Datatype type;
    MPI_Op op;
    size_t e; // bytes from one element to the next
} par__pmpi_fold;

// Reduce `blocks` consecutive blocks of count elements; returns where the result is: in the last block.
static const char *par__pmpi_fold_blocks(const par__pmpi_fold *f, char *blocks, int block_count,
                                         size_t count) {
    for (int i = 1; i < block_count; i++) {
        char *a = blocks + (size_t)(i - 1) * count * f->e, *b = a + count * f->e; // b = a op b
        for (size_t at = 0, some; at < count; at += some) {
            some = count - at < INT_MAX ? count - at : INT_MAX;
            PMPI_Reduce_local(a + at * f->e, b + at * f->e, (int)some, f->type, f->op);
        }
    }
    return blocks + (size_t)(block_count - 1) * count * f->e;
}

enum { PAR__PMPI_FEW_BYTES = 4096 }; // a rank's array, of which every rank reduces all

static int par__pmpi_fold_few(par__pmpi_comm *s, const par__pmpi_call *k, const par__pmpi_fold *f,
                              const void *send, size_t count) {
    const int receives = k->kind == PAR_KIND_ALL_REDUCE || s->rank == k->root;
    par_call c;
    memset(&c, 0, sizeof c);
    c.kind = k->kind == PAR_KIND_ALL_REDUCE ? PAR_KIND_ALL_GATHER : PAR_KIND_GATHER;
    c.dtype = PAR_U8;
    c.root = k->root;
    c.send = send;
    c.count = count * f->e;
    c.recv = receives ? par__pmpi_temp(k, 0, c.count * (size_t)s->size) : NULL;
    if (receives && !c.recv) return MPI_ERR_NO_MEM;
    const int r = par__pmpi_issue(s, k, &c);
    if (r || !receives) return r;
    if (c.count) memcpy(k->recv, par__pmpi_fold_blocks(f, (char *)c.recv, s->size, count), c.count);
    return MPI_SUCCESS;
}
// Slice i has elements[i] elements; *slice is where the reduced own one is.
static int par__pmpi_fold_slices(par__pmpi_comm *s, const par__pmpi_call *k, const par__pmpi_fold *f,
                                 const void *send, const size_t *elements, const char **slice) {
    const int n = s->size;
    size_t *counts = k->memory->counts, *own = counts + n;
    par_call c;
    const size_t mine = elements[s->rank];
    for (int i = 0; i < n; i++) {
        counts[i] = elements[i] * f->e;
        own[i] = mine * f->e;
    }
    memset(&c, 0, sizeof c);
    c.kind = PAR_KIND_ALL_TO_ALLV;
    c.dtype = PAR_U8;
    c.send = send;
    c.send_counts = counts;
    c.recv_counts = own;
    c.recv = par__pmpi_temp(k, 0, mine * f->e * (size_t)n + 1);
    if (!c.recv) return MPI_ERR_NO_MEM;
    const int r = par__pmpi_issue(s, k, &c);
    if (!r) *slice = par__pmpi_fold_blocks(f, (char *)c.recv, n, mine);
    return r;
}
static int par__pmpi_fold_many(par__pmpi_comm *s, const par__pmpi_call *k, const par__pmpi_fold *f,
                               const void *send, const size_t *elements) {
    const char *slice = NULL;
    par_call c;
    int r = par__pmpi_fold_slices(s, k, f, send, elements, &slice);
    if (r) return r;
    if (k->kind == PAR_KIND_REDUCE_SCATTER || k->kind == PAR_KIND_REDUCE_SCATTERV) {
        if (elements[s->rank]) memcpy(k->recv, slice, elements[s->rank] * f->e);
        return MPI_SUCCESS;
    }
    memset(&c, 0, sizeof c);
    c.kind = k->kind == PAR_KIND_ALL_REDUCE ? PAR_KIND_ALL_GATHERV : PAR_KIND_GATHERV;
    c.dtype = PAR_U8;
    c.root = k->root;
    c.send = slice;
    c.recv = k->recv;
    c.count = k->memory->counts[s->rank];
    c.recv_counts = k->kind == PAR_KIND_ALL_REDUCE || s->rank == k->root ? k->memory->counts : NULL;
    return par__pmpi_issue(s, k, &c);
}

typedef struct par__pmpi_reduction {
    const par__pmpi_type *type;
    par__pmpi_type memory;
    const par__pmpi_op *op;
    int native; // the kit has dtype and operation
} par__pmpi_reduction;

// 0: MPI runs it, because it must (operations of the program), or because an argument is wrong.
static int par__pmpi_prepare_reduction(const par__pmpi_comm *s, const par__pmpi_call *k,
                                       par__pmpi_reduction *m) {
    const int rooted = k->kind == PAR_KIND_REDUCE;
    if (rooted && (k->root < 0 || k->root >= s->size)) return 0;
    m->op = par__pmpi_op_of(k->op);
    m->type = m->op ? par__pmpi_type_of(k->out.type, &m->memory) : NULL;
    if (!m->type || !(m->op->families & m->type->family)) return 0;
    for (int i = 0; i < (k->out.counts ? s->size : 1); i++)
        if (par__pmpi_count(&k->out, i) < 0) return 0;
    m->native = m->op->op != (par_op)PAR__PMPI_NONE && m->type->dtype != PAR__PMPI_NO_DTYPE;
    return 1;
}

// A reduction by the kit's own operation. Its elements per rank are the third array of counts.
static int par__pmpi_describe_reduction(const par__pmpi_comm *s, const par__pmpi_call *k,
                                        const par__pmpi_reduction *m, par_call *c) {
    const int scatters = k->kind == PAR_KIND_REDUCE_SCATTER || k->kind == PAR_KIND_REDUCE_SCATTERV;
    const int in_place = k->send == MPI_IN_PLACE && (k->kind != PAR_KIND_REDUCE || s->rank == k->root);
    const size_t n = (size_t)s->size, count = (size_t)k->out.count;
    size_t *elements = k->memory->counts + 2 * n;
    int same = 1;
    for (size_t i = 0; i < n && (scatters || !m->native); i++) {
        elements[i] = k->out.counts ? (size_t)par__pmpi_count(&k->out, (int)i)
                      : scatters    ? count
                                    : count / n + (i < count % n);
        same &= elements[i] == elements[0];
    }
    par__pmpi_clear_call(c, k->kind, k->root);
    c->dtype = (par_dtype)m->type->dtype;
    c->op = m->op->op;
    c->send = in_place ? k->recv : k->send;
    c->recv = k->recv;
    c->count = count;
    if (k->out.counts && same) { // all ranks know all counts; this form takes less for few bytes
        c->kind = PAR_KIND_REDUCE_SCATTER;
        c->count = elements[0];
    } else if (k->out.counts) {
        c->recv_counts = elements;
    }
    if (!m->native || !scatters || !in_place) return MPI_SUCCESS;
    c->recv = par__pmpi_temp(k, 1, elements[s->rank] * m->type->extent); // MPI's: at the beginning of recv
    return c->recv ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}
static void par__pmpi_end_reduction(const par__pmpi_comm *s, const par__pmpi_call *k,
                                    const par__pmpi_reduction *m, const par_call *c) {
    const size_t *elements = k->memory->counts + 2 * (size_t)s->size;
    if (c->recv == k->recv || !elements[s->rank]) return;
    memcpy(k->recv, c->recv, elements[s->rank] * m->type->extent);
}
static int par__pmpi_reduce(par__pmpi_comm *s, par__pmpi_call *k, const par__pmpi_reduction *m) {
    par_call c;
    int r = par__pmpi_describe_reduction(s, k, m, &c);
    if (r) return r;
    if (!m->native) {
        const par__pmpi_fold f = {k->out.type, k->op, m->type->extent};
        const int scatters = k->kind == PAR_KIND_REDUCE_SCATTER || k->kind == PAR_KIND_REDUCE_SCATTERV;
        const int few = !scatters && c.count * f.e <= PAR__PMPI_FEW_BYTES;
        return few ? par__pmpi_fold_few(s, k, &f, c.send, c.count)
                   : par__pmpi_fold_many(s, k, &f, c.send, k->memory->counts + 2 * (size_t)s->size);
    }
    r = par__pmpi_issue(s, k, &c);
    if (!r) par__pmpi_end_reduction(s, k, m, &c);
    if (!r && par__pmpi.print) par__pmpi_sample(s, k, &c);
    return r;
}

// >>samples -------------------------------------------------------------------------------------------------
//
// With PAR_MPI_PRINT=1 a few calls of each kind and size are run twice more, on other memory, by MPI and by
// the kit, and timed. All ranks count the calls of a communicator alike, so they agree on which. A call's own
// time would be no measure: it includes the wait for ranks that come late.

static int par__pmpi_size_class(size_t bytes) {
    int i = 0;
    while (i < PAR__PMPI_SIZES - 1 && bytes >> (i + 1)) i++;
    return i;
}
// Run a call by MPI: the same number of bytes, or the same reduction.
static void par__pmpi_run_by_mpi(const par__pmpi_call *k, const par_call *c, void *send, void *recv) {
    const MPI_Comm mpi = k->mpi;
    const MPI_Datatype byte = MPI_BYTE, type = k->out.type;
    const int n = (int)c->count, root = k->root;
    switch (k->kind) {
    case PAR_KIND_BARRIER: PMPI_Barrier(mpi); break;
    case PAR_KIND_ALL_REDUCE: PMPI_Allreduce(send, recv, n, type, k->op, mpi); break;
    case PAR_KIND_REDUCE: PMPI_Reduce(send, recv, n, type, k->op, root, mpi); break;
    case PAR_KIND_REDUCE_SCATTER: PMPI_Reduce_scatter_block(send, recv, n, type, k->op, mpi); break;
    case PAR_KIND_ALL_GATHER: PMPI_Allgather(send, n, byte, recv, n, byte, mpi); break;
    case PAR_KIND_BROADCAST: PMPI_Bcast(recv, n, byte, root, mpi); break;
    case PAR_KIND_GATHER: PMPI_Gather(send, n, byte, recv, n, byte, root, mpi); break;
    case PAR_KIND_SCATTER: PMPI_Scatter(send, n, byte, recv, n, byte, root, mpi); break;
    case PAR_KIND_ALL_TO_ALL: PMPI_Alltoall(send, n, byte, recv, n, byte, mpi); break;
    default: break;
    }
}
static void par__pmpi_sample(par__pmpi_comm *s, const par__pmpi_call *k, const par_call *call) {
    const size_t e = par_dtype_bytes(call->dtype);
    const int class_of_size = par__pmpi_size_class(call->count * e);
    par__pmpi_size *size = &par__pmpi.rows[k->kind].sizes[class_of_size];
    const uint32_t calls = ++s->calls[k->kind][class_of_size];
    size_t send, recv;
    PAR__PMPI_ADD(size->calls, 1);
    if (par_kind_traits_of(k->kind)->counts || call->count > INT_MAX) return; // ranks may differ in counts
    if (calls != 4 && calls != 16 && calls % 128) return;
    par_call_spans(s->comm, call, &send, &recv);
    char *a = (char *)PAR_MALLOC((send + recv) * e + 1), *b = a + send * e;
    int here = a != NULL;
    if (here) memset(a, 0, (send + recv) * e);
    PMPI_Allreduce(MPI_IN_PLACE, &here, 1, MPI_INT, MPI_MIN, k->mpi);
    if (here) {
        par_call c = *call;
        c.send = a;
        c.recv = b;
        PMPI_Barrier(k->mpi);
        const double begun = PMPI_Wtime();
        par__pmpi_run_by_mpi(k, &c, a, b);
        const double between = PMPI_Wtime();
        PMPI_Barrier(k->mpi);
        const double again = PMPI_Wtime();
        par__pmpi_enter();
        par__run_in_turn(s->comm, &c);
        par__pmpi_leave();
        size->kit_s += PMPI_Wtime() - again;
        size->mpi_s += between - begun;
        size->samples++;
    }
    PAR_FREE(a);
}

void par_mpi_print(FILE *file) {
    fprintf(file,
            "collectives of this rank  by the kit        bytes    seconds     by MPI      saved  MPI/kit\n");
    for (int kind = 0; kind < PAR_KIND_COUNT; kind++) {
        const par__pmpi_row row = par__pmpi.rows[kind];
        double saved = 0, kit = 0, mpi = 0;
        if (!row.calls && !row.left) continue;
        for (int i = 0; i < PAR__PMPI_SIZES; i++) {
            const par__pmpi_size *size = &row.sizes[i];
            if (!size->samples) continue;
            const double each = (double)size->calls / (double)size->samples;
            kit += each * size->kit_s;
            mpi += each * size->mpi_s;
        }
        saved = mpi - kit;
        fprintf(file, "%-24s %11llu %12llu %10.4f %10llu", par_kind_name((par_kind)kind),
                (unsigned long long)row.calls, (unsigned long long)row.bytes, row.seconds,
                (unsigned long long)row.left);
        if (kit > 0)
            fprintf(file, " %8.4f s %8.2f\n", saved, mpi / kit);
        else
            fprintf(file, " %10s %8s\n", "-", "-");
    }
}

// >>nonblocking ---------------------------------------------------------------------------------------------
//
//     MPI_Iallreduce   par_begin, and a generalized request of MPI that stands for it
//     meanwhile        a thread of the kit makes progress: the rank may be in any other call of MPI
//     MPI_Wait ...     par_wait, what is to be unpacked, PMPI_Grequest_complete; then PMPI_Wait
// The thread calls the kit alone, and on a node that is enough. A communicator is opened by blocking
// collectives only, because that waits for the other ranks.

typedef struct par__pmpi_begun {
    par__pmpi_call call;
    par__pmpi_memory memory;
    par__pmpi_move move;           // of a reduction its call alone
    par__pmpi_reduction reduction; // op NULL: none
    par_request kit;
    MPI_Request mpi;
    MPI_Datatype unpacked; // copies for what is unpacked at the end: the program may free its own
    MPI_Count *counts;
    par__pmpi_comm *comm;
    struct par__pmpi_begun *next;
} par__pmpi_begun;

enum { PAR__PMPI_YIELDS = 200 }; // looks at requests before a thread sleeps between them

static int par__pmpi_free_begun(void *begun) {
    par__pmpi_begun *b = (par__pmpi_begun *)begun;
    par__pmpi_drop(b->comm);
    if (b->unpacked != MPI_DATATYPE_NULL) PMPI_Type_free(&b->unpacked);
    par__pmpi_free_memory(&b->memory);
    PAR_FREE(b->counts);
    PAR_FREE(b);
    return MPI_SUCCESS;
}

// The program's arrays have the results; then MPI's request is complete.
static int par__pmpi_end_begun(par__pmpi_begun *b, int error) {
    const par__pmpi_comm *s = b->comm;
    par__pmpi_call *k = &b->call;
    k->error = error;
    if (!k->error && b->reduction.op) par__pmpi_end_reduction(s, k, &b->reduction, &b->move.call);
    if (!k->error && !b->reduction.op) par__pmpi_unpack_all(k, &b->move);
    pthread_mutex_lock(&par__pmpi_lock);
    par__pmpi_begun **link = &par__pmpi.begun;
    while (*link != b) link = &(*link)->next;
    __atomic_store_n(link, b->next, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&par__pmpi_lock);
    error = k->error;
    if (b->unpacked != MPI_DATATYPE_NULL) PMPI_Type_free(&b->unpacked); // MPICH's waits call free with a lock
    PMPI_Grequest_complete(b->mpi);
    return par__pmpi_raise(s, error);
}
// Between two looks at requests: MPI goes on, and so may other threads and ranks.
static void par__pmpi_pause(unsigned *looks) {
    par__pmpi_progress(1);
    if (++*looks < PAR__PMPI_YIELDS)
        sched_yield();
    else
        usleep(50);
}
static int par__pmpi_step_begun(par__pmpi_begun *b, int wait, int *error) { // 1: it ended
    unsigned looks = 0;
    int done = 0;
    if (wait && !par__pmpi.threads)
        return *error = par__pmpi_end_begun(b, par__pmpi_end(par_wait(&b->kit))), 1;
    for (;; par__pmpi_pause(&looks)) { // other threads may call meanwhile
        par__pmpi_enter();
        const par_result r = par_test(&b->kit, &done);
        const int code = done ? par__pmpi_end(r) : MPI_SUCCESS;
        par__pmpi_leave();
        if (done) *error = par__pmpi_end_begun(b, code);
        if (done || !wait) return done;
    }
}

// Keep what the end needs: MPI lets a program free its types meanwhile, and some change their counts.
static void par__pmpi_count_left(par_kind kind) { PAR__PMPI_ADD(par__pmpi.rows[kind].left, 1); }
static int par__pmpi_keep(par__pmpi_begun *b) {
    par__pmpi_side *in = &b->call.in;
    par__pmpi_layout *l = &b->move.in;
    if (!b->move.unpacked) return MPI_SUCCESS;
    const size_t n = in->counts ? (size_t)l->blocks : 0;
    b->counts = (MPI_Count *)PAR_MALLOC((2 * n + 1) * sizeof *b->counts);
    if (!b->counts) return MPI_ERR_NO_MEM;
    MPI_Aint *displs = (MPI_Aint *)(void *)(b->counts + n); // of 8 bytes, both
    for (size_t i = 0; i < n; i++) {
        b->counts[i] = par__pmpi_count(in, (int)i);
        displs[i] = par__pmpi_displ(in, (int)i);
    }
    if (n) *in = par__pmpi_many(b->counts, displs, 1, in->type);
    if (par__pmpi_predefined(in->type)) return MPI_SUCCESS; // nobody frees it
    PMPI_Type_dup(in->type, &b->unpacked);
    in->type = b->unpacked;
    l->memory = *l->type;
    l->type = &l->memory;
    return MPI_SUCCESS;
}
static int par__pmpi_begin_on(par__pmpi_comm *s, par__pmpi_begun *b) { // 0: MPI is to run it
    par__pmpi_call *k = &b->call;
    par_call *c = &b->move.call;
    const int reduces = (par_kind_traits_of(k->kind)->takes & PAR_TAKES_OP) != 0;
    if (par__pmpi_leaves(s, k)) return par__pmpi_count_left(k->kind), 0;
    if (!(reduces ? par__pmpi_prepare_reduction(s, k, &b->reduction) && b->reduction.native
                  : par__pmpi_prepare(s, k, &b->move)))
        return par__pmpi_count_left(k->kind), 0;
    par__pmpi_enter();
    par__use_progress(s->comm);
    par__pmpi_leave();
    if (reduces)
        k->error = par__pmpi_describe_reduction(s, k, &b->reduction, c);
    else
        par__pmpi_describe_move(s, k, &b->move);
    if (!k->error) k->error = par__pmpi_keep(b);
    if (!k->error) k->error = par__pmpi_issue(s, k, c);
    PAR__PMPI_ADD(par__pmpi.rows[k->kind].calls, 1);
    PAR__PMPI_ADD(par__pmpi.rows[k->kind].bytes, c->count * par_dtype_bytes(c->dtype));
    return 1;
}
static int par__pmpi_begin(par__pmpi_call *k, MPI_Request *request, const void *address) {
    k->address = par__pmpi_thread.caller ? par__pmpi_thread.caller : address;
    par__pmpi_thread.caller = NULL;
    par__pmpi_comm *s = par__pmpi_comm_of(k->mpi, 0);
    if (!par__pmpi.nonblocking || !s || !s->comm || par_node_count(s->comm) > 1) return 0;
    *request = MPI_REQUEST_NULL;
    par__pmpi_begun *b = (par__pmpi_begun *)PAR_MALLOC(sizeof *b);
    if (!b) return k->error = par__pmpi_raise(s, MPI_ERR_NO_MEM), 1;
    memset(b, 0, sizeof *b);
    b->call = *k;
    b->call.memory = &b->memory;
    b->call.request = &b->kit;
    b->comm = s;
    b->unpacked = MPI_DATATYPE_NULL;
    if (!par__pmpi_make_memory(&b->memory, s->size))
        return PAR_FREE(b), k->error = par__pmpi_raise(s, MPI_ERR_NO_MEM), 1;
    __atomic_add_fetch(&s->users, 1, __ATOMIC_RELAXED);
    const int begun = par__pmpi_begin_on(s, b);
    k->error = b->call.error;
    if (!begun || k->error) return par__pmpi_free_begun(b), par__pmpi_raise(s, k->error), begun;
    PMPI_Grequest_start(par__pmpi_query, par__pmpi_free_begun, par__pmpi_cancel, b, &b->mpi);
    *request = b->mpi;
    pthread_mutex_lock(&par__pmpi_lock);
    b->next = par__pmpi.begun;
    __atomic_store_n(&par__pmpi.begun, b, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&par__pmpi_lock);
    return 1;
}

// What became of those of a call's requests that are the kit's.
typedef struct par__pmpi_settled {
    int left;  // how many have not ended
    int error; // the first
    int *each; // of each request; NULL: none failed, or out of memory
} par__pmpi_settled;

// Let those of the requests that are the kit's go on, or wait for them.
static par__pmpi_settled par__pmpi_settle(int n, const MPI_Request *requests, int wait) {
    par__pmpi_settled settled = {0, MPI_SUCCESS, NULL};
    if (!wait) par__pmpi_catch_up();
    for (int i = 0; i < n && __atomic_load_n(&par__pmpi.begun, __ATOMIC_ACQUIRE); i++) {
        int error = MPI_SUCCESS;
        pthread_mutex_lock(&par__pmpi_lock);
        par__pmpi_begun *b = par__pmpi.begun;
        while (b && b->mpi != requests[i]) b = b->next;
        pthread_mutex_unlock(&par__pmpi_lock);
        if (b && !par__pmpi_step_begun(b, wait, &error)) settled.left++;
        if (error && !settled.error) {
            settled.error = error;
            settled.each = (int *)PAR_MALLOC((size_t)n * sizeof *settled.each);
            if (settled.each) memset(settled.each, 0, (size_t)n * sizeof *settled.each); // MPI_SUCCESS is 0
        }
        if (error && settled.each) settled.each[i] = error;
    }
    return settled;
}
// What a call for several requests returns, of which MPI's own returned `result`: the errors are in the
// statuses. Status j is of request indices[j], or of request j; others: what the requests have that are not
// the kit's.
static int par__pmpi_in_statuses(par__pmpi_settled *settled, int result, int count, const int *indices,
                                 MPI_Status *statuses, int others) {
    const int *each = settled->each, error = settled->error;
    if (!error) return result;
    for (int j = 0; each && statuses != MPI_STATUSES_IGNORE && j < count; j++) {
        const int own = each[indices ? indices[j] : j];
        if (own || !result) statuses[j].MPI_ERROR = own ? own : others;
    }
    PAR_FREE(settled->each);
    return each ? MPI_ERR_IN_STATUS : error;
}
static int par__pmpi_first_error(par__pmpi_settled *settled, int result) { // of a call for one request
    PAR_FREE(settled->each);
    return settled->error ? settled->error : result;
}

// >>interface -----------------------------------------------------------------------------------------------
//
// Each function of MPI describes its call; what the kit does not take goes to the next function of its name,
// a tool's or MPI's.

static uintptr_t par__pmpi_next(uintptr_t *slot, const char *name, uintptr_t original) {
    uintptr_t next = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (next) return next;
    next = (uintptr_t)dlsym(RTLD_NEXT, name);
    if (!next) next = original;
    __atomic_store_n(slot, next, __ATOMIC_RELAXED);
    return next;
}
#define PAR__PMPI_TEXT(name) #name
// name: MPI's, in a function that has a static `slot`
#define PAR__PMPI_NEXT(name, original)                                                                       \
    ((__typeof__(&original))par__pmpi_next(&slot, PAR__PMPI_TEXT(name), (uintptr_t)&original))

static int par__pmpi_run_on(par__pmpi_comm *s, par__pmpi_call *k) { // 1: done; k->error is the result
    const int reduces = (par_kind_traits_of(k->kind)->takes & PAR_TAKES_OP) != 0;
    par__pmpi_row *row = &par__pmpi.rows[k->kind];
    par__pmpi_move move;
    par__pmpi_reduction reduction;
    uint64_t bytes = 0;
    if (par__pmpi_leaves(s, k)) return par__pmpi_count_left(k->kind), 0;
    if (!(reduces ? par__pmpi_prepare_reduction(s, k, &reduction) : par__pmpi_prepare(s, k, &move)))
        return par__pmpi_count_left(k->kind), 0;
    const double begun = par__pmpi.print ? PMPI_Wtime() : 0;
    if (reduces) {
        k->error = par__pmpi_reduce(s, k, &reduction);
        if (!k->error) par__pmpi_count_small(s, k->kind, (uint64_t)k->out.count * reduction.type->bytes);
        for (int i = 0; i < (k->out.counts ? s->size : 1); i++)
            bytes += (uint64_t)par__pmpi_count(&k->out, i) * reduction.type->bytes;
    } else {
        par__pmpi_run_move(s, k, &move);
        bytes = move.out.bytes > move.in.bytes ? move.out.bytes : move.in.bytes;
    }
    if (k->error == PAR__PMPI_IS_MPIS) return k->error = MPI_SUCCESS, par__pmpi_count_left(k->kind), 0;
    PAR__PMPI_ADD(row->calls, 1);
    PAR__PMPI_ADD(row->bytes, bytes);
    if (par__pmpi.print) row->seconds += PMPI_Wtime() - begun;
    return 1;
}
static int par__pmpi_run(par__pmpi_call *k, const void *address) { // 0: MPI is to run it
    k->address = par__pmpi_thread.caller ? par__pmpi_thread.caller : address;
    par__pmpi_thread.caller = NULL;
    par__pmpi_comm *s = par__pmpi_comm_of(k->mpi, 1);
    if (s && !s->comm) par__pmpi_count_left(k->kind);
    if (!s || !s->comm) return 0;
    k->memory = &s->memory;
    const int done = par__pmpi_run_on(s, k);
    par__pmpi_raise(s, k->error);
    return done;
}

// A call that is MPI's, of a communicator that this thread knows, is not described.
PAR__PMPI_INLINE int par__pmpi_left_at_once(par__pmpi_call k) {
    par__pmpi_comm *s = par__pmpi_small_bytes(k.kind) ? par__pmpi_known(k.mpi) : NULL;
    if (!s || !s->comm || !par__pmpi_leaves(s, &k)) return 0;
    par__pmpi_thread.caller = NULL;
    PAR__PMPI_ADD(par__pmpi.rows[k.kind].left, 1);
    return 1;
}
PAR__PMPI_INLINE par__pmpi_call par__pmpi_reducing(par_kind kind, const void *send, void *recv,
                                                   par__pmpi_side side, MPI_Op op, int root, MPI_Comm comm) {
    const par__pmpi_call k = {kind, send, recv, side, side, op, root, comm, NULL, NULL, NULL, MPI_SUCCESS};
    return k;
}
PAR__PMPI_INLINE par__pmpi_call par__pmpi_moving(par_kind kind, const void *send, par__pmpi_side out,
                                                 void *recv, par__pmpi_side in, int root, MPI_Comm comm) {
    par__pmpi_call k = par__pmpi_reducing(kind, send, recv, out, MPI_OP_NULL, root, comm);
    k.in = in;
    return k;
}

// clang-format off
// X(name, its original's, its nonblocking form's, that one's original's, parameters, arguments, description)
// N: the type of counts; D: of displacements; large: not int
#define PAR__PMPI_CALLS(X, suffix, N, D, large)                                                              \
    X(MPI_Allreduce##suffix, PMPI_Allreduce##suffix, MPI_Iallreduce##suffix, PMPI_Iallreduce##suffix,        \
      (const void *send, void *recv, N count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),                  \
      (send, recv, count, type, op, comm),                                                                   \
      par__pmpi_reducing(PAR_KIND_ALL_REDUCE, send, recv, par__pmpi_some(count, type), op, 0, comm))         \
    X(MPI_Reduce##suffix, PMPI_Reduce##suffix, MPI_Ireduce##suffix, PMPI_Ireduce##suffix,                    \
      (const void *send, void *recv, N count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm),        \
      (send, recv, count, type, op, root, comm),                                                             \
      par__pmpi_reducing(PAR_KIND_REDUCE, send, recv, par__pmpi_some(count, type), op, root, comm))          \
    X(MPI_Reduce_scatter_block##suffix, PMPI_Reduce_scatter_block##suffix,                                   \
      MPI_Ireduce_scatter_block##suffix, PMPI_Ireduce_scatter_block##suffix,                                 \
      (const void *send, void *recv, N count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),                  \
      (send, recv, count, type, op, comm),                                                                   \
      par__pmpi_reducing(PAR_KIND_REDUCE_SCATTER, send, recv, par__pmpi_some(count, type), op, 0, comm))     \
    X(MPI_Reduce_scatter##suffix, PMPI_Reduce_scatter##suffix,                                               \
      MPI_Ireduce_scatter##suffix, PMPI_Ireduce_scatter##suffix,                                             \
      (const void *send, void *recv, const N counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm),         \
      (send, recv, counts, type, op, comm),                                                                  \
      par__pmpi_reducing(PAR_KIND_REDUCE_SCATTERV, send, recv, par__pmpi_many(counts, NULL, large, type), op,\
                        0, comm))                                                                            \
    X(MPI_Bcast##suffix, PMPI_Bcast##suffix, MPI_Ibcast##suffix, PMPI_Ibcast##suffix,                        \
      (void *buffer, N count, MPI_Datatype type, int root, MPI_Comm comm),                                   \
      (buffer, count, type, root, comm),                                                                     \
      par__pmpi_moving(PAR_KIND_BROADCAST, MPI_IN_PLACE, par__pmpi_some(count, type), buffer,                \
                      par__pmpi_some(count, type), root, comm))                                              \
    X(MPI_Allgather##suffix, PMPI_Allgather##suffix, MPI_Iallgather##suffix, PMPI_Iallgather##suffix,        \
      (const void *send, N send_count, MPI_Datatype send_type, void *recv, N recv_count,                     \
       MPI_Datatype recv_type, MPI_Comm comm),                                                               \
      (send, send_count, send_type, recv, recv_count, recv_type, comm),                                      \
      par__pmpi_moving(PAR_KIND_ALL_GATHER, send, par__pmpi_some(send_count, send_type), recv,               \
                      par__pmpi_some(recv_count, recv_type), 0, comm))                                       \
    X(MPI_Allgatherv##suffix, PMPI_Allgatherv##suffix, MPI_Iallgatherv##suffix, PMPI_Iallgatherv##suffix,    \
      (const void *send, N send_count, MPI_Datatype send_type, void *recv, const N recv_counts[],            \
       const D recv_displs[], MPI_Datatype recv_type, MPI_Comm comm),                                        \
      (send, send_count, send_type, recv, recv_counts, recv_displs, recv_type, comm),                        \
      par__pmpi_moving(PAR_KIND_ALL_GATHERV, send, par__pmpi_some(send_count, send_type), recv,              \
                      par__pmpi_many(recv_counts, recv_displs, large, recv_type), 0, comm))                  \
    X(MPI_Gather##suffix, PMPI_Gather##suffix, MPI_Igather##suffix, PMPI_Igather##suffix,                    \
      (const void *send, N send_count, MPI_Datatype send_type, void *recv, N recv_count,                     \
       MPI_Datatype recv_type, int root, MPI_Comm comm),                                                     \
      (send, send_count, send_type, recv, recv_count, recv_type, root, comm),                                \
      par__pmpi_moving(PAR_KIND_GATHER, send, par__pmpi_some(send_count, send_type), recv,                   \
                      par__pmpi_some(recv_count, recv_type), root, comm))                                    \
    X(MPI_Gatherv##suffix, PMPI_Gatherv##suffix, MPI_Igatherv##suffix, PMPI_Igatherv##suffix,                \
      (const void *send, N send_count, MPI_Datatype send_type, void *recv, const N recv_counts[],            \
       const D recv_displs[], MPI_Datatype recv_type, int root, MPI_Comm comm),                              \
      (send, send_count, send_type, recv, recv_counts, recv_displs, recv_type, root, comm),                  \
      par__pmpi_moving(PAR_KIND_GATHERV, send, par__pmpi_some(send_count, send_type), recv,                  \
                      par__pmpi_many(recv_counts, recv_displs, large, recv_type), root, comm))               \
    X(MPI_Scatter##suffix, PMPI_Scatter##suffix, MPI_Iscatter##suffix, PMPI_Iscatter##suffix,                \
      (const void *send, N send_count, MPI_Datatype send_type, void *recv, N recv_count,                     \
       MPI_Datatype recv_type, int root, MPI_Comm comm),                                                     \
      (send, send_count, send_type, recv, recv_count, recv_type, root, comm),                                \
      par__pmpi_moving(PAR_KIND_SCATTER, send, par__pmpi_some(send_count, send_type), recv,                  \
                      par__pmpi_some(recv_count, recv_type), root, comm))                                    \
    X(MPI_Scatterv##suffix, PMPI_Scatterv##suffix, MPI_Iscatterv##suffix, PMPI_Iscatterv##suffix,            \
      (const void *send, const N send_counts[], const D send_displs[], MPI_Datatype send_type, void *recv,   \
       N recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm),                                       \
      (send, send_counts, send_displs, send_type, recv, recv_count, recv_type, root, comm),                  \
      par__pmpi_moving(PAR_KIND_SCATTERV, send, par__pmpi_many(send_counts, send_displs, large, send_type),  \
                      recv, par__pmpi_some(recv_count, recv_type), root, comm))                              \
    X(MPI_Alltoall##suffix, PMPI_Alltoall##suffix, MPI_Ialltoall##suffix, PMPI_Ialltoall##suffix,            \
      (const void *send, N send_count, MPI_Datatype send_type, void *recv, N recv_count,                     \
       MPI_Datatype recv_type, MPI_Comm comm),                                                               \
      (send, send_count, send_type, recv, recv_count, recv_type, comm),                                      \
      par__pmpi_moving(PAR_KIND_ALL_TO_ALL, send, par__pmpi_some(send_count, send_type), recv,               \
                      par__pmpi_some(recv_count, recv_type), 0, comm))                                       \
    X(MPI_Alltoallv##suffix, PMPI_Alltoallv##suffix, MPI_Ialltoallv##suffix, PMPI_Ialltoallv##suffix,        \
      (const void *send, const N send_counts[], const D send_displs[], MPI_Datatype send_type, void *recv,   \
       const N recv_counts[], const D recv_displs[], MPI_Datatype recv_type, MPI_Comm comm),                 \
      (send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm),          \
      par__pmpi_moving(PAR_KIND_ALL_TO_ALLV,                                                                 \
                      send, par__pmpi_many(send_counts, send_displs, large, send_type),                      \
                      recv, par__pmpi_many(recv_counts, recv_displs, large, recv_type), 0, comm))
// clang-format on

#define PAR__PMPI_VISIBLE           __attribute__((visibility("default"))) // also with -fvisibility=hidden
#define PAR__PMPI_REQUEST_TOO(...)  (__VA_ARGS__, MPI_Request * request)
#define PAR__PMPI_WITH_REQUEST(...) (__VA_ARGS__, request)
#define PAR__X(name, original, nonblocking, nonblocking_original, parameters, arguments, description)        \
    PAR__PMPI_VISIBLE int name parameters {                                                                  \
        static uintptr_t slot;                                                                               \
        if (par__pmpi_left_at_once(description)) return PAR__PMPI_NEXT(name, original) arguments;            \
        par__pmpi_call k = description;                                                                      \
        return par__pmpi_run(&k, __builtin_return_address(0)) ? k.error                                      \
                                                              : PAR__PMPI_NEXT(name, original) arguments;    \
    }                                                                                                        \
    PAR__PMPI_VISIBLE int nonblocking PAR__PMPI_REQUEST_TOO parameters {                                     \
        static uintptr_t slot;                                                                               \
        par__pmpi_call k = description;                                                                      \
        return par__pmpi_begin(&k, request, __builtin_return_address(0))                                     \
                   ? k.error                                                                                 \
                   : PAR__PMPI_NEXT(nonblocking, nonblocking_original) PAR__PMPI_WITH_REQUEST arguments;     \
    }
PAR__PMPI_CALLS(PAR__X, , int, int, 0)
#if MPI_VERSION >= 4
PAR__PMPI_CALLS(PAR__X, _c, MPI_Count, MPI_Aint, 1)
#endif
#undef PAR__X

PAR__PMPI_INLINE par__pmpi_call par__pmpi_barrier(MPI_Comm comm) {
    const par__pmpi_side none = par__pmpi_some(0, MPI_BYTE);
    return par__pmpi_moving(PAR_KIND_BARRIER, NULL, none, NULL, none, 0, comm);
}
PAR__PMPI_VISIBLE int MPI_Barrier(MPI_Comm comm) {
    static uintptr_t slot;
    par__pmpi_call k = par__pmpi_barrier(comm);
    return par__pmpi_run(&k, __builtin_return_address(0)) ? k.error
                                                          : PAR__PMPI_NEXT(MPI_Barrier, PMPI_Barrier)(comm);
}
PAR__PMPI_VISIBLE int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
    static uintptr_t slot;
    par__pmpi_call k = par__pmpi_barrier(comm);
    return par__pmpi_begin(&k, request, __builtin_return_address(0))
               ? k.error
               : PAR__PMPI_NEXT(MPI_Ibarrier, PMPI_Ibarrier)(comm, request);
}

// MPI's waits and tests. Those for any of several requests wait by testing where some are the kit's.
// clang-format off
// X(name, parameters, arguments, requests, how many, wait for them, what it returns)
#define PAR__PMPI_WAITS(X)                                                                                   \
    X(Wait, (MPI_Request *q, MPI_Status *status), (q, status), q, 1, 1,                                      \
      par__pmpi_first_error(&settled, result))                                                               \
    X(Waitall, (int n, MPI_Request *q, MPI_Status *statuses), (n, q, statuses), q, n, 1,                     \
      par__pmpi_in_statuses(&settled, result, n, NULL, statuses, MPI_SUCCESS))                               \
    X(Test, (MPI_Request *q, int *flag, MPI_Status *status), (q, flag, status), q, 1, 0,                     \
      par__pmpi_first_error(&settled, result))                                                               \
    X(Testall, (int n, MPI_Request *q, int *flag, MPI_Status *statuses), (n, q, flag, statuses), q, n, 0,    \
      par__pmpi_in_statuses(&settled, result, n, NULL, statuses, *flag ? MPI_SUCCESS : MPI_ERR_PENDING))     \
    X(Testany, (int n, MPI_Request *q, int *index, int *flag, MPI_Status *status),                           \
      (n, q, index, flag, status), q, n, 0, par__pmpi_first_error(&settled, result))                         \
    X(Testsome, (int n, MPI_Request *q, int *count, int *indices, MPI_Status *statuses),                     \
      (n, q, count, indices, statuses), q, n, 0,                                                             \
      par__pmpi_in_statuses(&settled, result, *count, indices, statuses, MPI_SUCCESS))                       \
    X(Request_get_status, (MPI_Request q, int *flag, MPI_Status *status), (q, flag, status), &q, 1, 0,       \
      par__pmpi_first_error(&settled, result))
// clang-format on
#define PAR__X(name, parameters, arguments, requests, n, wait, returned)                                     \
    PAR__PMPI_VISIBLE int MPI_##name parameters {                                                            \
        static uintptr_t slot;                                                                               \
        par__pmpi_settled settled = par__pmpi_settle(n, requests, wait);                                     \
        const int result = PAR__PMPI_NEXT(MPI_##name, PMPI_##name) arguments;                                \
        return returned;                                                                                     \
    }
PAR__PMPI_WAITS(PAR__X)
#undef PAR__X
PAR__PMPI_VISIBLE int MPI_Waitany(int n, MPI_Request *q, int *index, MPI_Status *status) {
    static uintptr_t slot;
    unsigned looks = 0;
    for (int flag = 0;; par__pmpi_pause(&looks)) {
        par__pmpi_settled settled = par__pmpi_settle(n, q, 0);
        const int left = settled.left,
                  result = left ? PMPI_Testany(n, q, index, &flag, status)
                                : PAR__PMPI_NEXT(MPI_Waitany, PMPI_Waitany)(n, q, index, status);
        const int error = par__pmpi_first_error(&settled, result);
        if (!left || flag || error) return error;
    }
}
PAR__PMPI_VISIBLE int MPI_Waitsome(int n, MPI_Request *q, int *count, int *indices, MPI_Status *statuses) {
    static uintptr_t slot;
    unsigned looks = 0;
    for (;; par__pmpi_pause(&looks)) {
        par__pmpi_settled settled = par__pmpi_settle(n, q, 0);
        const int left = settled.left,
                  result = left ? PMPI_Testsome(n, q, count, indices, statuses)
                                : PAR__PMPI_NEXT(MPI_Waitsome, PMPI_Waitsome)(n, q, count, indices, statuses);
        const int error = par__pmpi_in_statuses(&settled, result, *count, indices, statuses, MPI_SUCCESS);
        if (!left || *count || error) return error;
    }
}

// MPI's other questions.
#define PAR__PMPI_QUESTIONS(X)                                                                               \
    X(Iprobe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status),                           \
      (source, tag, comm, flag, status))                                                                     \
    X(Improbe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status),    \
      (source, tag, comm, flag, message, status))                                                            \
    X(Win_test, (MPI_Win window, int *flag), (window, flag))
#define PAR__X(name, parameters, arguments)                                                                  \
    PAR__PMPI_VISIBLE int MPI_##name parameters {                                                            \
        static uintptr_t slot;                                                                               \
        par__pmpi_catch_up();                                                                                \
        return PAR__PMPI_NEXT(MPI_##name, PMPI_##name) arguments;                                            \
    }
PAR__PMPI_QUESTIONS(PAR__X)
#undef PAR__X

PAR__PMPI_VISIBLE int MPI_Init(int *argc, char ***argv) {
    static uintptr_t slot;
    par__pmpi_check_caller(__builtin_return_address(0));
    const int error = PAR__PMPI_NEXT(MPI_Init, PMPI_Init)(argc, argv);
    if (!error) par__pmpi_start();
    return error;
}
PAR__PMPI_VISIBLE int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    static uintptr_t slot;
    par__pmpi_check_caller(__builtin_return_address(0));
    const int error = PAR__PMPI_NEXT(MPI_Init_thread, PMPI_Init_thread)(argc, argv, required, provided);
    if (!error) par__pmpi_start();
    return error;
}
// What frees a communicator: X(C's name, its original's, Fortran's, in capitals)
#define PAR__PMPI_FREES(X)                                                                                   \
    X(MPI_Comm_free, PMPI_Comm_free, comm_free, COMM_FREE)                                                   \
    X(MPI_Comm_disconnect, PMPI_Comm_disconnect, comm_disconnect, COMM_DISCONNECT)
#define PAR__X(c_name, original, name, NAME)                                                                 \
    PAR__PMPI_VISIBLE int c_name(MPI_Comm *comm) {                                                           \
        par__pmpi_freed freed;                                                                               \
        static uintptr_t slot;                                                                               \
        par__pmpi_begin_free(&freed, comm, __builtin_return_address(0));                                     \
        const int error = PAR__PMPI_NEXT(c_name, original)(comm);                                            \
        return par__pmpi_end_free(&freed), error;                                                            \
    }
PAR__PMPI_FREES(PAR__X)
#undef PAR__X

// >>fortran -------------------------------------------------------------------------------------------------
//
// MPICH's Fortran libraries call MPI_Allreduce, but for mpi_f08 PMPI_Barrier. Open MPI's call PMPI_Allreduce,
// past the functions above. So its entry points are replaced, too: mpi_allreduce_ with its other spellings
// for mpif.h and use mpi, and ompi_allreduce_f, which use mpi_f08 calls. MPI_IN_PLACE and MPI_BOTTOM are
// variables there.

#if defined(OPEN_MPI)
PAR__API_END
extern int mpi_fortran_in_place_ __attribute__((weak));
extern int mpi_fortran_bottom_ __attribute__((weak));
PAR__API_BEGIN

static void *par__pmpi_buffer(void *fortran) {
    if (fortran == (void *)&mpi_fortran_in_place_) return MPI_IN_PLACE;
    return fortran == (void *)&mpi_fortran_bottom_ ? MPI_BOTTOM : fortran;
}
#define PAR__PMPI_TYPE(t) PMPI_Type_f2c(*(t))
#define PAR__PMPI_COMM(c) PMPI_Comm_f2c(*(c))
#define PAR__PMPI_OP(o)   PMPI_Op_f2c(*(o))
#define PAR__PMPI_AT(b)   par__pmpi_buffer(b)
// clang-format off
// X(C's name, its nonblocking form's, Fortran's, in capitals, parameters, arguments)
#define PAR__PMPI_FORTRAN(X)                                                                                 \
    X(MPI_Barrier, MPI_Ibarrier, barrier, BARRIER, (MPI_Fint *c), (PAR__PMPI_COMM(c)))                       \
    X(MPI_Allreduce, MPI_Iallreduce, allreduce, ALLREDUCE,                                                   \
      (char *s, char *r, MPI_Fint *n, MPI_Fint *t, MPI_Fint *o, MPI_Fint *c),                                \
      (PAR__PMPI_AT(s), PAR__PMPI_AT(r), *n, PAR__PMPI_TYPE(t), PAR__PMPI_OP(o), PAR__PMPI_COMM(c)))         \
    X(MPI_Reduce, MPI_Ireduce, reduce, REDUCE,                                                               \
      (char *s, char *r, MPI_Fint *n, MPI_Fint *t, MPI_Fint *o, MPI_Fint *root, MPI_Fint *c),                \
      (PAR__PMPI_AT(s), PAR__PMPI_AT(r), *n, PAR__PMPI_TYPE(t), PAR__PMPI_OP(o), *root, PAR__PMPI_COMM(c)))  \
    X(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, reduce_scatter_block, REDUCE_SCATTER_BLOCK,       \
      (char *s, char *r, MPI_Fint *n, MPI_Fint *t, MPI_Fint *o, MPI_Fint *c),                                \
      (PAR__PMPI_AT(s), PAR__PMPI_AT(r), *n, PAR__PMPI_TYPE(t), PAR__PMPI_OP(o), PAR__PMPI_COMM(c)))         \
    X(MPI_Reduce_scatter, MPI_Ireduce_scatter, reduce_scatter, REDUCE_SCATTER,                               \
      (char *s, char *r, MPI_Fint *n, MPI_Fint *t, MPI_Fint *o, MPI_Fint *c),                                \
      (PAR__PMPI_AT(s), PAR__PMPI_AT(r), n, PAR__PMPI_TYPE(t), PAR__PMPI_OP(o), PAR__PMPI_COMM(c)))          \
    X(MPI_Bcast, MPI_Ibcast, bcast, BCAST,                                                                   \
      (char *s, MPI_Fint *n, MPI_Fint *t, MPI_Fint *root, MPI_Fint *c),                                      \
      (PAR__PMPI_AT(s), *n, PAR__PMPI_TYPE(t), *root, PAR__PMPI_COMM(c)))                                    \
    X(MPI_Allgather, MPI_Iallgather, allgather, ALLGATHER,                                                   \
      (char *s, MPI_Fint *n, MPI_Fint *t, char *r, MPI_Fint *m, MPI_Fint *u, MPI_Fint *c),                   \
      (PAR__PMPI_AT(s), *n, PAR__PMPI_TYPE(t), PAR__PMPI_AT(r), *m, PAR__PMPI_TYPE(u), PAR__PMPI_COMM(c)))   \
    X(MPI_Allgatherv, MPI_Iallgatherv, allgatherv, ALLGATHERV,                                               \
      (char *s, MPI_Fint *n, MPI_Fint *t, char *r, MPI_Fint *m, MPI_Fint *d, MPI_Fint *u, MPI_Fint *c),      \
      (PAR__PMPI_AT(s), *n, PAR__PMPI_TYPE(t), PAR__PMPI_AT(r), m, d, PAR__PMPI_TYPE(u), PAR__PMPI_COMM(c))) \
    X(MPI_Gather, MPI_Igather, gather, GATHER,                                                               \
      (char *s, MPI_Fint *n, MPI_Fint *t, char *r, MPI_Fint *m, MPI_Fint *u, MPI_Fint *root, MPI_Fint *c),   \
      (PAR__PMPI_AT(s), *n, PAR__PMPI_TYPE(t), PAR__PMPI_AT(r), *m, PAR__PMPI_TYPE(u), *root,                \
       PAR__PMPI_COMM(c)))                                                                                   \
    X(MPI_Gatherv, MPI_Igatherv, gatherv, GATHERV,                                                           \
      (char *s, MPI_Fint *n, MPI_Fint *t, char *r, MPI_Fint *m, MPI_Fint *d, MPI_Fint *u, MPI_Fint *root,    \
       MPI_Fint *c),                                                                                         \
      (PAR__PMPI_AT(s), *n, PAR__PMPI_TYPE(t), PAR__PMPI_AT(r), m, d, PAR__PMPI_TYPE(u), *root,              \
       PAR__PMPI_COMM(c)))                                                                                   \
    X(MPI_Scatter, MPI_Iscatter, scatter, SCATTER,                                                           \
      (char *s, MPI_Fint *n, MPI_Fint *t, char *r, MPI_Fint *m, MPI_Fint *u, MPI_Fint *root, MPI_Fint *c),   \
      (PAR__PMPI_AT(s), *n, PAR__PMPI_TYPE(t), PAR__PMPI_AT(r), *m, PAR__PMPI_TYPE(u), *root,                \
       PAR__PMPI_COMM(c)))                                                                                   \
    X(MPI_Scatterv, MPI_Iscatterv, scatterv, SCATTERV,                                                       \
      (char *s, MPI_Fint *n, MPI_Fint *d, MPI_Fint *t, char *r, MPI_Fint *m, MPI_Fint *u, MPI_Fint *root,    \
       MPI_Fint *c),                                                                                         \
      (PAR__PMPI_AT(s), n, d, PAR__PMPI_TYPE(t), PAR__PMPI_AT(r), *m, PAR__PMPI_TYPE(u), *root,              \
       PAR__PMPI_COMM(c)))                                                                                   \
    X(MPI_Alltoall, MPI_Ialltoall, alltoall, ALLTOALL,                                                       \
      (char *s, MPI_Fint *n, MPI_Fint *t, char *r, MPI_Fint *m, MPI_Fint *u, MPI_Fint *c),                   \
      (PAR__PMPI_AT(s), *n, PAR__PMPI_TYPE(t), PAR__PMPI_AT(r), *m, PAR__PMPI_TYPE(u), PAR__PMPI_COMM(c)))   \
    X(MPI_Alltoallv, MPI_Ialltoallv, alltoallv, ALLTOALLV,                                                   \
      (char *s, MPI_Fint *n, MPI_Fint *d, MPI_Fint *t, char *r, MPI_Fint *m, MPI_Fint *e, MPI_Fint *u,       \
       MPI_Fint *c),                                                                                         \
      (PAR__PMPI_AT(s), n, d, PAR__PMPI_TYPE(t), PAR__PMPI_AT(r), m, e, PAR__PMPI_TYPE(u), PAR__PMPI_COMM(c)))
// clang-format on

// Fortran's integers are C's int where this compiles: MPI_Fint * is passed as int *.
#define PAR__PMPI_ENTRY(name, original, parameters)                                                          \
    PAR__PMPI_VISIBLE void name parameters __attribute__((alias("ompi_" #original "_f")));
#define PAR__PMPI_ENTRIES(name, NAME, parameters)                                                            \
    PAR__PMPI_ENTRY(mpi_##name, name, parameters)                                                            \
    PAR__PMPI_ENTRY(mpi_##name##_, name, parameters)                                                         \
    PAR__PMPI_ENTRY(mpi_##name##__, name, parameters)                                                        \
    PAR__PMPI_ENTRY(MPI_##NAME, name, parameters)
#define PAR__PMPI_ERROR_TOO(...)   (__VA_ARGS__, MPI_Fint * error)
#define PAR__PMPI_BOTH_TOO(...)    (__VA_ARGS__, MPI_Fint * fortran, MPI_Fint * error)
#define PAR__PMPI_WITH_HANDLE(...) (__VA_ARGS__, &request)
#define PAR__X(c_name, nonblocking, name, NAME, parameters, arguments)                                       \
    PAR__PMPI_VISIBLE void ompi_##name##_f PAR__PMPI_ERROR_TOO parameters;                                   \
    void ompi_##name##_f PAR__PMPI_ERROR_TOO parameters {                                                    \
        par__pmpi_thread.caller = __builtin_return_address(0);                                               \
        const int result = c_name arguments;                                                                 \
        if (error) *error = result;                                                                          \
    }                                                                                                        \
    PAR__PMPI_ENTRIES(name, NAME, PAR__PMPI_ERROR_TOO parameters)                                            \
    PAR__PMPI_VISIBLE void ompi_i##name##_f PAR__PMPI_BOTH_TOO parameters;                                   \
    void ompi_i##name##_f PAR__PMPI_BOTH_TOO parameters {                                                    \
        MPI_Request request = MPI_REQUEST_NULL;                                                              \
        par__pmpi_thread.caller = __builtin_return_address(0);                                               \
        const int result = nonblocking PAR__PMPI_WITH_HANDLE arguments;                                      \
        *fortran = PMPI_Request_c2f(request);                                                                \
        if (error) *error = result;                                                                          \
    }                                                                                                        \
    PAR__PMPI_ENTRIES(i##name, I##NAME, PAR__PMPI_BOTH_TOO parameters)
PAR__PMPI_FORTRAN(PAR__X)
#undef PAR__X
#define PAR__PMPI_FORTRAN_NAME(name) ompi_##name##_f
#elif defined(MPICH_VERSION)
PAR__PMPI_VISIBLE void mpi_barrier_f08_(const MPI_Fint *comm, MPI_Fint *error);
void mpi_barrier_f08_(const MPI_Fint *comm, MPI_Fint *error) {
    par__pmpi_thread.caller = __builtin_return_address(0);
    const int result = MPI_Barrier(PMPI_Comm_f2c(*comm));
    if (error) *error = result;
}
PAR__PMPI_VISIBLE void mpi_ibarrier_f08_(const MPI_Fint *comm, MPI_Fint *fortran, MPI_Fint *error);
void mpi_ibarrier_f08_(const MPI_Fint *comm, MPI_Fint *fortran, MPI_Fint *error) {
    MPI_Request request = MPI_REQUEST_NULL;
    par__pmpi_thread.caller = __builtin_return_address(0);
    const int result = MPI_Ibarrier(PMPI_Comm_f2c(*comm), &request);
    *fortran = PMPI_Request_c2f(request);
    if (error) *error = result;
}
#define PAR__PMPI_FORTRAN_NAME(name) mpi_##name##_f08_
#define PAR__PMPI_ENTRIES(name, NAME, parameters)
#endif

#if defined(OPEN_MPI) || defined(MPICH_VERSION)
// MPI_Init, and what frees a communicator.
PAR__PMPI_VISIBLE void PAR__PMPI_FORTRAN_NAME(init)(MPI_Fint *error);
void PAR__PMPI_FORTRAN_NAME(init)(MPI_Fint *error) {
    const int result = MPI_Init(NULL, NULL);
    if (error) *error = result;
}
PAR__PMPI_ENTRIES(init, INIT, (MPI_Fint * error))
PAR__PMPI_VISIBLE void PAR__PMPI_FORTRAN_NAME(init_thread)(MPI_Fint *required, MPI_Fint *provided,
                                                           MPI_Fint *error);
void PAR__PMPI_FORTRAN_NAME(init_thread)(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error) {
    const int result = MPI_Init_thread(NULL, NULL, *required, provided);
    if (error) *error = result;
}
PAR__PMPI_ENTRIES(init_thread, INIT_THREAD, (MPI_Fint * required, MPI_Fint *provided, MPI_Fint *error))
#define PAR__X(c_name, original, name, NAME)                                                                 \
    PAR__PMPI_VISIBLE void PAR__PMPI_FORTRAN_NAME(name)(MPI_Fint * comm, MPI_Fint * error);                  \
    void PAR__PMPI_FORTRAN_NAME(name)(MPI_Fint * comm, MPI_Fint * error) {                                   \
        MPI_Comm mpi = PMPI_Comm_f2c(*comm);                                                                 \
        par__pmpi_thread.caller = __builtin_return_address(0);                                               \
        const int result = c_name(&mpi);                                                                     \
        *comm = PMPI_Comm_c2f(mpi);                                                                          \
        if (error) *error = result;                                                                          \
    }                                                                                                        \
    PAR__PMPI_ENTRIES(name, NAME, (MPI_Fint * comm, MPI_Fint * error))
PAR__PMPI_FREES(PAR__X)
#undef PAR__X
static int par__pmpi_settle_fortran(MPI_Fint n, const MPI_Fint *requests, int wait, int *left) {
    int first = MPI_SUCCESS;
    *left = 0;
    if (!wait) par__pmpi_catch_up();
    for (MPI_Fint i = 0; i < n && __atomic_load_n(&par__pmpi.begun, __ATOMIC_ACQUIRE); i++) {
        const MPI_Request q = PMPI_Request_f2c(requests[i]);
        par__pmpi_settled one = par__pmpi_settle(1, &q, wait);
        *left += one.left;
        const int error = par__pmpi_first_error(&one, MPI_SUCCESS);
        if (!first) first = error;
    }
    return first;
}
// The library's own function, whose name is taken here.
#define PAR__PMPI_LIBRARYS(symbol, name)                                                                     \
    ((void(*) PAR__PMPI_##name)(uintptr_t)dlsym(RTLD_NEXT, PAR__PMPI_TEXT(symbol)))
// Parameters of Fortran's waits and tests.
// clang-format off
#define PAR__PMPI_wait (MPI_Fint *q, MPI_Fint *status, MPI_Fint *error)
#define PAR__PMPI_test (MPI_Fint *q, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *error)
#define PAR__PMPI_request_get_status PAR__PMPI_test
#define PAR__PMPI_waitall (MPI_Fint *n, MPI_Fint *q, MPI_Fint *statuses, MPI_Fint *error)
#define PAR__PMPI_testall (MPI_Fint *n, MPI_Fint *q, MPI_Fint *flag, MPI_Fint *statuses, MPI_Fint *error)
#define PAR__PMPI_waitany (MPI_Fint *n, MPI_Fint *q, MPI_Fint *index, MPI_Fint *status, MPI_Fint *error)
#define PAR__PMPI_testany                                                                                    \
    (MPI_Fint *n, MPI_Fint *q, MPI_Fint *index, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *error)
#define PAR__PMPI_testsome                                                                                   \
    (MPI_Fint *n, MPI_Fint *q, MPI_Fint *count, MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *error)
#define PAR__PMPI_waitsome PAR__PMPI_testsome
// X(Fortran's name, in capitals, arguments, how many requests; wait for them)
#define PAR__PMPI_FORTRAN_WAITS(X)                                                                           \
    X(wait, WAIT, (q, status, error), 1, 1)                                                                  \
    X(waitall, WAITALL, (n, q, statuses, error), *n, 1)                                                      \
    X(test, TEST, (q, flag, status, error), 1, 0)                                                            \
    X(testall, TESTALL, (n, q, flag, statuses, error), *n, 0)                                                \
    X(testany, TESTANY, (n, q, index, flag, status, error), *n, 0)                                           \
    X(testsome, TESTSOME, (n, q, count, indices, statuses, error), *n, 0)                                    \
    X(request_get_status, REQUEST_GET_STATUS, (q, flag, status, error), 1, 0)
// clang-format on
#define PAR__PMPI_SETTLED(symbol, name, arguments, n, wait)                                                  \
    PAR__PMPI_VISIBLE void symbol PAR__PMPI_##name;                                                          \
    void symbol PAR__PMPI_##name {                                                                           \
        int left;                                                                                            \
        const int failed = par__pmpi_settle_fortran(n, q, wait, &left);                                      \
        PAR__PMPI_LIBRARYS(symbol, name) arguments;                                                          \
        if (failed && error) *error = failed;                                                                \
    }
#define PAR__X(name, NAME, arguments, n, wait) PAR__PMPI_SETTLED(mpi_##name##_f08_, name, arguments, n, wait)
PAR__PMPI_FORTRAN_WAITS(PAR__X)
#undef PAR__X
// Questions of Fortran's; what follows the first is passed on.
#define PAR__PMPI_iprobe                                                                                     \
    (MPI_Fint * source, MPI_Fint * tag, MPI_Fint * comm, MPI_Fint * flag, MPI_Fint * status, MPI_Fint * error)
#define PAR__PMPI_improbe                                                                                    \
    (MPI_Fint * source, MPI_Fint * tag, MPI_Fint * comm, MPI_Fint * flag, MPI_Fint * message,                \
     MPI_Fint * status, MPI_Fint * error)
#define PAR__PMPI_win_test (MPI_Fint * window, MPI_Fint * flag, MPI_Fint * error)
#define PAR__PMPI_FORTRAN_QUESTIONS(X)                                                                       \
    X(iprobe, IPROBE, (source, tag, comm, flag, status, error))                                              \
    X(improbe, IMPROBE, (source, tag, comm, flag, message, status, error))                                   \
    X(win_test, WIN_TEST, (window, flag, error))
#define PAR__PMPI_ASKED(symbol, name, arguments)                                                             \
    PAR__PMPI_VISIBLE void symbol PAR__PMPI_##name;                                                          \
    void symbol PAR__PMPI_##name {                                                                           \
        par__pmpi_catch_up();                                                                                \
        PAR__PMPI_LIBRARYS(symbol, name) arguments;                                                          \
    }
#define PAR__X(name, NAME, arguments) PAR__PMPI_ASKED(mpi_##name##_f08_, name, arguments)
PAR__PMPI_FORTRAN_QUESTIONS(PAR__X)
#undef PAR__X
#if defined(OPEN_MPI)
#define PAR__X(name, NAME, arguments)                                                                        \
    PAR__PMPI_ASKED(ompi_##name##_f, name, arguments)                                                        \
    PAR__PMPI_ENTRIES(name, NAME, PAR__PMPI_##name)
PAR__PMPI_FORTRAN_QUESTIONS(PAR__X)
#undef PAR__X
#define PAR__X(name, NAME, arguments, n, wait)                                                               \
    PAR__PMPI_SETTLED(ompi_##name##_f, name, arguments, n, wait)                                             \
    PAR__PMPI_ENTRIES(name, NAME, PAR__PMPI_##name)
PAR__PMPI_FORTRAN_WAITS(PAR__X)
#undef PAR__X
#endif
PAR__PMPI_VISIBLE void PAR__PMPI_FORTRAN_NAME(waitany) PAR__PMPI_waitany;
void PAR__PMPI_FORTRAN_NAME(waitany) PAR__PMPI_waitany {
    void(*const tests) PAR__PMPI_testany = PAR__PMPI_LIBRARYS(PAR__PMPI_FORTRAN_NAME(testany), testany);
    void(*const waits) PAR__PMPI_waitany = PAR__PMPI_LIBRARYS(PAR__PMPI_FORTRAN_NAME(waitany), waitany);
    unsigned looks = 0;
    MPI_Fint flag = 0;
    for (int left;; par__pmpi_pause(&looks)) {
        const int failed = par__pmpi_settle_fortran(*n, q, 0, &left);
        left ? tests(n, q, index, &flag, status, error) : waits(n, q, index, status, error);
        if (failed && error) *error = failed;
        if (!left || flag) return;
    }
}
PAR__PMPI_ENTRIES(waitany, WAITANY, PAR__PMPI_waitany)
PAR__PMPI_VISIBLE void PAR__PMPI_FORTRAN_NAME(waitsome) PAR__PMPI_waitsome;
void PAR__PMPI_FORTRAN_NAME(waitsome) PAR__PMPI_waitsome {
    void(*const tests) PAR__PMPI_testsome = PAR__PMPI_LIBRARYS(PAR__PMPI_FORTRAN_NAME(testsome), testsome);
    void(*const waits) PAR__PMPI_waitsome = PAR__PMPI_LIBRARYS(PAR__PMPI_FORTRAN_NAME(waitsome), waitsome);
    unsigned looks = 0;
    for (int left;; par__pmpi_pause(&looks)) {
        const int failed = par__pmpi_settle_fortran(*n, q, 0, &left);
        (left ? tests : waits)(n, q, count, indices, statuses, error);
        if (failed && error) *error = failed;
        if (!left || *count) return;
    }
}
PAR__PMPI_ENTRIES(waitsome, WAITSOME, PAR__PMPI_waitsome)
#endif

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_MPI_IMPLEMENTATION

// Public domain where that is possible: anyone may use, change and give this away for any purpose, without
// conditions. Elsewhere, and if you prefer, under MIT-0:
//
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction, including
// without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is furnished to do so.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
// LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
// EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
// IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE
// USE OR OTHER DEALINGS IN THE SOFTWARE.

// par.h - ranks, comms, shared memory, collectives and their diagnosis for C and C++ programs.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_H_IMPLEMENTATION)
#define PAR_H_IMPLEMENTATION
#endif
#if defined(PAR_H_IMPLEMENTATION) || defined(PAR_ZERO_IMPLEMENTATION) || defined(PAR_MATH_IMPLEMENTATION)
#if !defined(_DEFAULT_SOURCE) && !defined(_GNU_SOURCE)
#define _DEFAULT_SOURCE // for -std=c11: what Linux adds to C; before the first system header
#endif
#endif
// clang-format on

#ifndef PAR_H
#define PAR_H
/*
WHAT
    One program runs as n ranks that add, gather and exchange arrays. Ranks are processes or threads of one
    machine, or processes that a launcher starts on several machines. There is no daemon and no library to
    install. Ranks of one machine share memory: a collective is a few loads and stores. Between machines MPI
    or TCP transports the bytes. A wrong program gets an error that names the rank and the line of code.

USE
    In one C or C++ file:      #define PAR_IMPLEMENTATION
                               #include "par.h"
    In all others:             #include "par.h"
    Give the implementation a file of its own, which compiles in 15 s at -O2.
    Compile:                   cc -O2 prog.c -pthread -lm         (mpicc -DPAR_MPI for ranks on many machines)
    Run:                       PAR_RANKS=4 ./prog                 (or mpiexec -n 4 ./prog, srun, torchrun)

STEP BY STEP (you have a program that runs as one process)
    1. Call par_open early in main. From there on every rank runs your program; par_rank and par_size say
       which part of the work is its own.
    2. Where all ranks need a result, call par_all_reduce, par_all_gather or par_broadcast. All ranks make the
       same calls in the same order.
    3. Let rank 0 alone print and write files. End with par_close.
    4. Where computation can hide a call, use its _begin form and par_wait. Allocate by par_alloc what is
       large and exchanged often.

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par.h"
    #include <stdio.h>

    int main(void) {
        par_comm *world;
        if (par_open(NULL, &world) != PAR_OK) return 1;         // from here on PAR_RANKS ranks run
        float x[4] = {1, 2, 3, (float)par_rank(world)};
        if (par_all_reduce(x, x, 4, PAR_F32, PAR_SUM, world) != PAR_OK) {
            fprintf(stderr, "%s\n", par_last_error(world));
            return 1;
        }
        if (par_rank(world) == 0) printf("%d ranks: %g %g %g %g\n", par_size(world), x[0], x[1], x[2], x[3]);
        // with PAR_RANKS=3 it prints: 3 ranks: 3 6 9 3
        return par_close(world) != PAR_OK;
    }

TABLE OF CONTENTS
    The API comes first, grouped by noun. The implementation follows; search for ">>name":
    >>platform      atomics, futex, clock, processors
    >>types         sizes and names of types and operators; half-precision conversion
    >>settings      environment variables; escaping of texts for JSON and error messages
    >>kernels       element-wise reduction and casts, one copy per instruction set
    >>shards        which part of a tensor a rank has
    >>device        the CPU as a par_device
    >>structs       every private structure
    >>errors        error texts, the flight recorder, call sites
    >>arena         the shared memory of a node and its allocator
    >>topology      nodes, their leaders, segments of consecutive ranks
    >>comm          creation and release of communicators
    >>net           the transport between nodes: its table of functions, MPI
    >>secret        HMAC-SHA-256; PAR_SECRET
    >>handshake     authentication of new TCP connections
    >>tcp           the transport between nodes over TCP: protocol, frames, structures
    >>tcp_sockets   addresses and sockets; errors of connections
    >>tcp_messages  queues of messages; credit; what follows from a frame
    >>tcp_connections   reading, writing, connecting, accepting
    >>tcp_notices   which rank left, died or failed; who is to blame
    >>tcp_lines     the same in an elastic world: control connections, deaths, revocations
    >>tcp_votes     the same: votes of ranks on several nodes
    >>tcp_requests  sending and receiving; closing
    >>channel       messages between two ranks: a ring in shared memory, or >>net
    >>geometry      the arrays of a call: blocks, spans, volume; whether its arguments are valid
    >>program       the actions that algorithms emit, and their interpreter
    >>eager         algorithms: the data are sent with the arrival record
    >>oneshot       algorithm: every rank reads what it needs from every rank
    >>twoshot       algorithm: every rank reduces one slice, then all exchange slices
    >>chain         algorithm: partial sums travel in rank order; ring and two levels
    >>fold          algorithm: partial results of nodes in a tree; integers, min, max, tree sums
    >>spread        algorithm: broadcast and all-gather between nodes; ring, tree, two levels
    >>halving       algorithm: recursive halving
    >>pairwise      algorithm: a message for each pair
    >>bruck         algorithm: all_to_all between nodes; two levels, Bruck
    >>select        which algorithm for which call; PAR_ALGO, PAR_TUNE
    >>buckets       calls of a group that are packed into a bucket
    >>arrival       records of calls: published, compared, gathered from other nodes
    >>queues        operations: which run, which wait; completion
    >>exchange      a neighbor exchange: what goes to one rank goes as one message
    >>stepping      the states of an operation; its pieces; the progress thread
    >>waiting       a wait: deadline, ranks that died, sleeping
    >>backends      calls that run on a device
    >>small         small collectives on one node
    >>issue         a call from begin to end; requests; groups
    >>world         options; a rank's world and its memory
    >>binding       which processors a rank runs on: cores and NUMA nodes
    >>fork          ranks of this machine: fork, or the program run again
    >>threads       ranks that are threads
    >>launcher      torchrun's, mpiexec's and srun's variables
    >>nodes         ranks of several machines: same settings, who shares memory, the arena
    >>mpi           ranks of an MPI program
    >>rendezvous    ranks find each other over TCP
    >>tcp_open      all-gather while the world opens; addresses; a world over TCP
    >>tcp_join      processes that come later to an elastic world
    >>launch        par_open: which of these
    >>calls         the public functions of collectives and messages
    >>memory        symmetric memory; signals
    >>split         comms of some ranks of another
    >>elastic       comms after a death: revoked, agreed on, shrunk, grown
    >>neighbors     neighbor exchanges: opened, checked, begun
    >>close         the end of a comm, and of the world
    >>mesh          named axes
    >>mpi_program   one world for the communicators of a program (par_mpi.h); turns of its threads
    >>clocks        offsets between the ranks' clocks
    >>trace         ledger, model, recorder, trace

CONFIG (define before the implementation)
    PAR_IMPLEMENTATION              emit the functions of every par header
    PAR_H_IMPLEMENTATION            emit the functions of this one
    PAR_MALLOC(n) PAR_REALLOC(p,n) PAR_FREE(p)    all or none; default: the C library
    PAR_ASSERT(c)                   default: assert
    PAR_API                         hidden or default: the functions' visibility in a shared library
    PAR_LOG(text)                   default: one line on stderr
    PAR_MPI                         compile the MPI launcher and transport (mpicc)

ENVIRONMENT (the same on all ranks; what cannot be parsed is an error, an empty value counts as unset)
    PAR_RANKS=n         ranks to start on this machine
    RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT     torchrun sets them: the ranks rendezvous over TCP at rank
                        0's host. So do ranks of srun (set MASTER_ADDR where names of nodes do not resolve),
                        and ranks of mpiexec with MASTER_ADDR (port 29500). The innermost launcher counts.
    PAR_PORT=n          rendezvous at this port instead of MASTER_PORT, where torchrun's agent listens
    PAR_JOB=name        over TCP only ranks with this name join; unset: the launcher's name of the run.
                        Without a name rank 0 keeps its port and refuses other runs while its world is open
    PAR_JOIN=host:port  be one of the ranks that par_grow adds to the job whose par_join_at says that
    PAR_SECRET=text     over TCP only ranks with the same secret join; 16 bytes or more (not empty)
    PAR_SECRET_FILE=path    a file with the secret; only its owner may have access (chmod 600)
    PAR_NODE_RANKS=k    treat every k consecutive ranks as a node
    PAR_TIMEOUT=s       seconds until a wait fails (600)
    PAR_ALGO=op:name    force an algorithm; separate several by commas; see par_algorithms_print
    PAR_TUNE=file       choose algorithms by a table that bench_coll --tune printed
    PAR_STAGE=bytes     staging memory per rank and comm for collectives on ordinary memory (262144)
    PAR_ARENA=bytes     address space for a node's shared memory (4 times the machine's memory, or half of
                        what ulimit -v and -f allow)
    PAR_CMA=0           never copy from a peer's ordinary memory (process_vm_readv); always stage it
    PAR_PROGRESS=1      a progress thread in each rank (takes part of a processor)
    PAR_BIND=0|core|numa    where a machine's ranks run: anywhere; each on a share of the cores; on the NUMA
                        nodes of that share. Unset: core, unless a launcher, taskset or OMP_PROC_BIND has
                        chosen. Threads of a rank run on its share. Ranks that outnumber processors are free
    PAR_GEMM=name       who computes matrix products: oneDNN, OpenBLAS, MKL, BLIS, CBLAS (whichever is linked)
                        or built-in; unset: the fastest. See par_math.h; of bf16: par_tp_gemm_select
    PAR_ISA=name        use at most this instruction set of x86 processors: base, avx2, avx512, avx512_bf16
    PAR_TRACE=file      a trace for Perfetto (ui.perfetto.dev), written when the world closes
    PAR_LEDGER=1        print calls, bytes and seconds when a comm closes

MODEL
    Calls: all ranks of a comm make the same collective calls in the same order. Before data move, a call
    compares the arrival records of all ranks, and the counts at both ends of each block. Where they differ,
    or an argument is wrong, all ranks get an error and the comm goes on. Of a message the receiver compares,
    and gets the error. Calls on one comm run in the order of their issue; comms are independent.
    Threads: one thread at a time may use the comms of a rank. Waits spin, yield, then sleep. A rank closes a
    comm without waiting, except for the world; calls in flight go on.
    Memory: you own every buffer, and leave it unchanged until the call or its par_wait returns. par_alloc
    gives symmetric memory, which all ranks of a node can address: collectives on it are zero-copy (of threads
    all memory is like that). Other memory is staged through small shared buffers; large arrays with one
    reader are copied by process_vm_readv where the system allows it.
    Sums: ((x0 + x1) + x2) + ... in rank order (TREE_SUM adds pairs), for every size, algorithm and
    transport, but NCCL's own on GPUs. Narrow floats (f16, bf16, f8) are added in f32 and rounded once. So
    par_all_reduce equals par_reduce_scatter and then par_all_gather to the bit.
    In place: send and recv are the same block, as each function says; else they do not overlap.
    Errors: a function that can fail returns a par_result; par_last_error(comm) describes the error. Errors,
    flight recorder, ledger and trace name the line of your program, and a layer where it made the call:
    "train.c:73 in layers.3.attn.qkv".
    After PAR_ERR_TIMEOUT, PEER_DIED, ABORTED or REVOKED a comm only repeats its error: close it, or shrink
    it. Until par_shrink returns a late rank may write to the recv arrays of a collective that failed.

DOES NOT
    Derived datatypes, own operators, message tags, one-sided calls: keep MPI for these, and adopt its
    communicator (par_open_mpi). There is no par_probe: a receiver knows sender and size, or the size is sent
    first. Only an elastic world (par_desc) goes on after a death; no MPI is.

LIMITS
    Linux, 64 bits, little endian, glibc or musl; gcc 9 or clang 11 and newer. All ranks of a node belong to
    one user.
    Start: par_open forks the other ranks, which run from that call on with copies of all that main did
    before. Rank 0 is the process that called par_open (not of an elastic world): the others end when it ends,
    and its par_close waits for them. A program that has threads already is started again for each rank, from
    the beginning of main (par_desc.run_again overrides that). The thread of par_open outlives the world.
    Blocks: a node's shared memory has 65536. Each comm takes two, each par_alloc one. Beyond them par_split
    and par_alloc fail on all ranks.
    Elastic worlds: par_grow can add as many ranks as there were, at least 64; 16384 comms can be revoked.
    Comms: each has a number that is never used again, from the share of its parent's rank 0. The ranks share
    429 million, over MPI a fifth of MPI_TAG_UB (6553 or more). Beyond them par_split fails on all ranks.
    Scale: tested with 1024 ranks on 128 pretended nodes. A comm costs a rank some 8 KiB, rings for the ranks
    that it has messages with, and a stage where memory is ordinary; a call in flight 58 bytes for each rank,
    on a node's first rank address space for 16 KiB of each node (4 MiB at most) more (docs/collectives.md).
    Deaths: over MPI a rank notices a death or a par_abort on another node only through mpiexec or its
    deadline. Over TCP ranks that wait in calls pass both on in a tree from rank 0; a rank's death ends all
    waits of those below it (of one rank in eight) between nodes. TCP joins 131072 ranks (>>tcp).
    Ports: over TCP rank 0 listens at MASTER_ADDR's address on its host, every other rank at its host's own
    end of a connection to rank 0. Where MASTER_ADDR does not resolve on rank 0's host, or resolves to a
    loopback address and is not localhost, rank 0 listens at every address and logs that. MASTER_ADDR=0.0.0.0
    on rank 0 asks for it.
    Security: without PAR_SECRET anybody who reaches those ports and knows the protocol can take a rank's
    place; with it nobody without the secret can. Nothing is encrypted: use a private network.
*/
#if !defined(__LP64__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "par.h is for 64-bit little-endian machines (x86-64, aarch64, riscv64, ppc64le), and this is none"
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#if defined(PAR_MPI)
#include <mpi.h>
#endif

#define PAR__PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(PAR_API) // between the two, which stand behind a header's includes, lies all of it
#define PAR__VISIBILITY(kind) PAR__PRAGMA(GCC visibility push(kind))
#define PAR__API_BEGIN        PAR__VISIBILITY(PAR_API)
#define PAR__API_END          _Pragma("GCC visibility pop")
#else
#define PAR__API_BEGIN
#define PAR__API_END
#endif
PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// ---- version ----------------------------------------------------------------------------------------------

// The version of all headers of the kit; headers of different versions do not compile together. Before 1.0 a
// new minor version may change the API, a new patch does not. PAR_VERSION is one number to compare.
#define PAR_VERSION_MAJOR 0
#define PAR_VERSION_MINOR 9
#define PAR_VERSION_PATCH 0
#define PAR_VERSION       (10000 * PAR_VERSION_MAJOR + 100 * PAR_VERSION_MINOR + PAR_VERSION_PATCH)

// ---- results ----------------------------------------------------------------------------------------------

// What every fallible call returns.
#define PAR_RESULTS(X)                                                                                       \
    X(PAR_OK, "success")                                                                                     \
    X(PAR_ERR_ARGUMENT, "an argument is not valid")                                                          \
    X(PAR_ERR_MEMORY, "out of memory")                                                                       \
    X(PAR_ERR_SYSTEM, "a system call failed")                                                                \
    X(PAR_ERR_MPI, "an MPI call failed")                                                                     \
    X(PAR_ERR_UNSUPPORTED, "not supported by this build")                                                    \
    X(PAR_ERR_MISMATCH, "ranks made different calls")                                                        \
    X(PAR_ERR_TIMEOUT, "a rank did not arrive before the deadline")                                          \
    X(PAR_ERR_PEER_DIED, "a rank ended before making this call")                                             \
    X(PAR_ERR_ABORTED, "a rank called par_abort")                                                            \
    X(PAR_ERR_REVOKED, "a rank called par_revoke")                                                           \
    X(PAR_ERR_FILE, "a file is missing or damaged, does not fit, or cannot be written")                      \
    X(PAR_ERR_LOST, "no rank that is left has these states")

typedef enum par_result {
#define PAR__X(name, text) name,
    PAR_RESULTS(PAR__X)
#undef PAR__X
        PAR_RESULT_COUNT
} par_result;

typedef struct par_comm par_comm; // a group of ranks, seen by one of them

const char *par_result_name(par_result result); // "PAR_OK", ...
const char *par_result_text(par_result result); // "success", ...
// The text of the last error on this rank: who, where, and what to do. "" if there was none. Valid until the
// next call on any comm of this rank.
const char *par_last_error(const par_comm *comm);
// Set that text and return `result`. For layers and programs that report errors of their own.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
par_result
par_fail(par_comm *comm, par_result result, const char *format, ...);

// ---- types ------------------------------------------------------------------------------------------------

// clang-format off
// The dtypes and their traits. X(constant, name, C type that holds one, C type that adds (integers: unsigned,
// so that sums wrap), family, accumulator, largest finite value, MPI's, NCCL's and CUDA's type, name in
// safetensors files). The families: FLOAT and the integers SIGNED and UNSIGNED are types of C; a NARROW float
// is only stored and sent: it is widened to its accumulator f32, and rounded once at the end. f16 is IEEE
// binary16, bf16 the upper half of an f32. The f8 types are those of the OCP 8-bit Floating Point
// Specification 1.0, with so many bits of exponent and mantissa; E4M3 has no infinities. A number beyond the
// largest finite one becomes that one, as infinity does (the specification's saturating mode, CUDA's
// __NV_SATFINITE); NaN stays NaN. MPI_DATATYPE_NULL: MPI has no such type. ncclUint8 for a float: NCCL moves
// its bytes and adds none.
#define PAR_DTYPES(X)                                                                                        \
    X(PAR_F64,  f64,  double,   double,   FLOAT,    PAR_F64, 1.7976931348623157e308,                         \
      MPI_DOUBLE,        ncclFloat64,  CUDA_R_64F,  "F64")                                                   \
    X(PAR_F32,  f32,  float,    float,    FLOAT,    PAR_F32, 3.4028234663852886e38,                          \
      MPI_FLOAT,         ncclFloat32,  CUDA_R_32F,  "F32")                                                   \
    X(PAR_F16,  f16,  uint16_t, float,    NARROW,   PAR_F32, 65504.0,                                        \
      MPI_DATATYPE_NULL, ncclFloat16,  CUDA_R_16F,  "F16")                                                   \
    X(PAR_BF16, bf16, uint16_t, float,    NARROW,   PAR_F32, 3.3895313892515355e38,                          \
      MPI_DATATYPE_NULL, ncclBfloat16, CUDA_R_16BF, "BF16")                                                  \
    X(PAR_F8_E4M3, f8_e4m3, uint8_t, float,  NARROW,   PAR_F32, 448.0,                                       \
      MPI_DATATYPE_NULL, ncclUint8,    CUDA_R_8F_E4M3, "F8_E4M3")                                            \
    X(PAR_F8_E5M2, f8_e5m2, uint8_t, float,  NARROW,   PAR_F32, 57344.0,                                     \
      MPI_DATATYPE_NULL, ncclUint8,    CUDA_R_8F_E5M2, "F8_E5M2")                                            \
    X(PAR_I8,   i8,   int8_t,   uint8_t,  SIGNED,   PAR_I8,  INT8_MAX,                                       \
      MPI_INT8_T,        ncclInt8,     CUDA_R_8I,   "I8")                                                    \
    X(PAR_U8,   u8,   uint8_t,  uint8_t,  UNSIGNED, PAR_U8,  UINT8_MAX,                                      \
      MPI_UINT8_T,       ncclUint8,    CUDA_R_8U,   "U8")                                                    \
    X(PAR_I32,  i32,  int32_t,  uint32_t, SIGNED,   PAR_I32, INT32_MAX,                                      \
      MPI_INT32_T,       ncclInt32,    CUDA_R_32I,  "I32")                                                   \
    X(PAR_U32,  u32,  uint32_t, uint32_t, UNSIGNED, PAR_U32, UINT32_MAX,                                     \
      MPI_UINT32_T,      ncclUint32,   CUDA_R_32U,  "U32")                                                   \
    X(PAR_I64,  i64,  int64_t,  uint64_t, SIGNED,   PAR_I64, INT64_MAX,                                      \
      MPI_INT64_T,       ncclInt64,    CUDA_R_64I,  "I64")                                                   \
    X(PAR_U64,  u64,  uint64_t, uint64_t, UNSIGNED, PAR_U64, UINT64_MAX,                                     \
      MPI_UINT64_T,      ncclUint64,   CUDA_R_64U,  "U64")
// clang-format on

typedef enum par_dtype {
#define PAR__X(constant, ...) constant,
    PAR_DTYPES(PAR__X)
#undef PAR__X
        PAR_DTYPE_COUNT
} par_dtype;

// The C types by the names of what they hold: par_f64, par_f32, par_f16, par_bf16, par_f8_e4m3, ...
#define PAR__X(constant, name, type, ...) typedef type par_##name;
PAR_DTYPES(PAR__X)
#undef PAR__X

typedef struct par_dtype_traits {
    const char *name; // "f64", ...
    size_t bytes;
    int is_float, is_signed; // floats are signed
    par_dtype accumulator;   // in which sums run; other than the type itself where that is only stored
    double max;              // the largest finite value
    const char *safetensors; // the name in safetensors files
} par_dtype_traits;
const par_dtype_traits *par_dtype_traits_of(par_dtype dtype); // of what is no dtype: 0 bytes, no float

// Integers wrap around. AVG divides the sum (integers truncate). MIN and MAX of floats give NaN where any
// input is NaN. TREE_SUM adds pairs of neighbors, then pairs of pairs: ((x0 + x1) + (x2 + x3)) + x4. So 2^k
// ranks that each add 2^j numbers in this way get the same bits as one rank that adds all 2^(k+j).
#define PAR_OPS(X)                                                                                           \
    X(PAR_SUM, "sum")                                                                                        \
    X(PAR_AVG, "avg")                                                                                        \
    X(PAR_PROD, "prod")                                                                                      \
    X(PAR_MIN, "min")                                                                                        \
    X(PAR_MAX, "max")                                                                                        \
    X(PAR_SCALED_SUM, "scaled_sum")                                                                          \
    X(PAR_TREE_SUM, "tree_sum")

enum {
#define PAR__X(name, text) name,
    PAR_OPS(PAR__X)
#undef PAR__X
        PAR_OP_COUNT
};
typedef uint64_t par_op; // one of the above, or par_scaled_sum(factor)

// The sum multiplied by factor, once, after the last addition and before rounding. Float types only. The
// factor keeps 45 significant bits; powers of two are exact.
par_op par_scaled_sum(double factor); // PAR_SCALED_SUM itself, which has no factor, is no operator
double par_op_factor(par_op op);      // the factor of a scaled sum

size_t par_dtype_bytes(par_dtype dtype);                    // 8, 4, 2, ...; 0 if invalid
const char *par_dtype_name(par_dtype dtype);                // "f64", ...
const char *par_op_name(par_op op);                         // "sum", ...
par_result par_dtype_parse(const char *name, par_dtype *d); // Error: ARGUMENT (no such name)
par_result par_op_parse(const char *name, par_op *op);      // likewise; "scaled_sum" has factor 0.5

// The end of an error message about an unknown name: "; did you mean NAME?", or "" where no name is near.
typedef struct par_suggestion {
    char text[96];
} par_suggestion;
// Of `count` names (a char * every `stride` bytes, the first at `names`) the one with the smallest edit
// distance to `name`. It is near if at most a quarter of the letters differ, or one of three. Letters that
// are missing at its end do not count, nor do case, dashes and underscores; "=..." ends a name. The first
// letters of a name's words stand for it: lr for learning_rate. (Damerau 1964; Levenshtein 1966.)
par_suggestion par_suggest(const char *name, const void *names, size_t count, size_t stride);

// Convert count elements from src to dst, rounding to nearest even. Floats to integers truncate and saturate;
// NaN gives 0. In place where dst == src and the types have the same size.
par_result par_cast(void *dst, par_dtype dst_type, const void *src, par_dtype src_type, size_t count);
float par_f16_to_f32(par_f16 half);
par_f16 par_f32_to_f16(float value);
float par_bf16_to_f32(par_bf16 half);
par_bf16 par_f32_to_bf16(float value);

// ---- ranks ------------------------------------------------------------------------------------------------

typedef struct par_desc {
    int rank_count;   // ranks to start here; 0: PAR_RANKS, else 1. Under a launcher: 0 or its count
    int node_ranks;   // treat this many ranks as a node; 0: PAR_NODE_RANKS, else the real nodes
    int run_again;    // 1: start the program again for each rank; -1: always fork; 0: fork unless the program
                      // already has threads (qemu-user runs one that is safe to fork: -1)
    double timeout_s; // deadline of every wait; 0: PAR_TIMEOUT, else 600
    size_t arena_bytes; // address space for shared memory per node; 0: PAR_ARENA, else 4 times the machine's
                        // memory, or half of what ulimit -v and -f allow
    size_t stage_bytes; // staging per rank and comm for ordinary memory; 0: PAR_STAGE, else 256 KiB
    const char *trace;  // as PAR_TRACE
    int progress;       // 1: start a progress thread in each rank; 0: PAR_PROGRESS
    int keep_cpus;      // 1: ranks stay on the processors where they may run now; 0: PAR_BIND
    int elastic;        // 1: where ranks die, the others can go on. See par_shrink
} par_desc;

// Become par_size(*comm) ranks. Under mpiexec (built with PAR_MPI) those are mpiexec's processes; par_open
// calls MPI_Init if nobody has. Under torchrun, srun, or another launcher that gives each process a rank (see
// ENVIRONMENT) those are the launcher's processes, joined over TCP: rank 0 listens and the others connect,
// and all retry until the deadline, because the port may be taken, or a run of another name (PAR_JOB) may use
// it. A second process with the same rank is refused; the text says where both run. Otherwise, and where a
// launcher started a single process, par_open starts the other ranks on this machine; each returns from its
// own par_open. desc may be NULL.
// Errors: ARGUMENT (a variable cannot be parsed; a member of desc is out of range: rank_count is 0 to 1024;
// the launcher started another number of ranks; launchers disagree; two processes have one rank; ranks have
// different settings or secrets; this process is a rank that an earlier par_open has started, and rank 0 has
// not closed that world), TIMEOUT (a rank did not join), SYSTEM, MEMORY, MPI (also where the launcher
// belongs to another MPI), UNSUPPORTED (the launcher gives no address to rendezvous at). On an error *comm is
// NULL and its text goes to PAR_LOG.
par_result par_open(const par_desc *desc, par_comm **comm);

// What par_open would use for desc (or NULL): zeros become the environment's values or the defaults;
// rank_count stays 0 where nothing sets it. Error: ARGUMENT (a variable cannot be parsed, or a member of desc
// is out of range); its text goes to PAR_LOG.
par_result par_defaults(const par_desc *desc, par_desc *out);

// The number of processes that a launcher started, and in *rank which one this is (rank may be NULL); 0
// without a launcher. A program may call it before par_open, to choose rank_count or to let one process print
// errors. par_open reports what is wrong with a launcher's variables.
int par_launched(int *rank);

#if defined(PAR_MPI)
// Adopt a communicator of an MPI program; collective over it. It is duplicated. The program still calls
// MPI_Finalize, after par_close. Errors: those of par_open; MPI where mpiexec or srun started several
// processes but MPI_COMM_WORLD has one, because the launcher belongs to another MPI.
par_result par_open_mpi(const par_desc *desc, MPI_Comm mpi, par_comm **comm);
par_result par_open_mpi_f(const par_desc *desc, MPI_Fint mpi, par_comm **comm); // Fortran's number of it
#endif

// Run fn on threads, each a rank with its own comm, and wait for them: for debuggers, sanitizers, and several
// GPUs in one process. desc: as for par_open; where neither its rank_count nor PAR_RANKS says how many, it is
// one thread. fn returns 0 for success; par_run_threads closes its comm. Returns the first error, or
// PAR_ERR_ABORTED where fn returned non-zero.
typedef int (*par_thread_fn)(par_comm *comm, void *user);
par_result par_run_threads(const par_desc *desc, par_thread_fn fn, void *user);

// Close a comm. Like MPI_Comm_free this waits for nobody: each rank closes its comms in its own order. What
// was begun on the comm goes on, and its requests can be waited for. A rank that waits on it for a rank of
// its node that has closed it gets MISMATCH at once; for one of another node, TIMEOUT at the deadline. What
// par_alloc gave on the comm is freed when all ranks of the node have closed it. Two kinds of comms are
// closed together by all their ranks: those with a device backend, and the world, last. When the world
// closes, collectives that were begun end first. A message that its peer never received or sent is an error
// (ARGUMENT). The rank 0 that started the others waits for them to exit, and returns PAR_ERR_PEER_DIED if one
// failed. NULL is PAR_OK.
par_result par_close(par_comm *comm);

// Make the waits and later calls of every rank of this node (over TCP: of all nodes) return PAR_ERR_ABORTED
// with this text. Returns at once. Over MPI, ranks of other nodes notice at their deadline, or mpiexec ends
// them when this program exits with an error.
par_result par_abort(par_comm *comm, const char *text);

int par_rank(const par_comm *comm);                  // 0 .. size-1
int par_size(const par_comm *comm);                  // number of ranks
int par_world_rank(const par_comm *comm, int rank);  // the world's number of a rank of comm; -1: no such rank
int par_node_count(const par_comm *comm);            // nodes this comm spans (PAR_NODE_RANKS counts)
int par_node_of(const par_comm *comm, int rank);     // 0 .. node_count-1; -1: no such rank
const char *par_launch_method(const par_comm *comm); // "single", "fork", "exec", "threads", "mpi", or "tcp"
void par_set_timeout(par_comm *comm,
                     double seconds);     // for all later waits of this rank, on all its comms
double par_timeout(const par_comm *comm); // the present deadline in seconds
double par_seconds(const par_comm *comm); // monotonic time since this rank opened the world
// To compare times of ranks: par_seconds(comm) + *offset is what par_seconds gives at the same moment on
// comm's rank 0. Exact between ranks of one machine, which read one clock. Between machines, and where a
// container has a clock of its own, it comes from the shortest of 32 round trips to rank 0; *error (or NULL)
// is half of that round trip and bounds the error of the offset. Collective over comm. Errors: MEMORY, those
// of a message. (Cristian 1989.)
par_result par_clock_offset(par_comm *comm, double *offset, double *error);

// ---- splits -----------------------------------------------------------------------------------------------

// Ranks with the same color form a new comm, ordered by key, then by rank (as MPI_Comm_split). color < 0:
// this rank gets none, and *out is NULL. Collective over comm. In an elastic world, where a rank dies
// meanwhile, all others succeed, or none does. Errors: MEMORY (also where the comms of LIMITS are used up),
// those of a collective.
par_result par_split(par_comm *comm, int color, int key, par_comm **out);

// A grid of ranks with named axes, outermost first: par_mesh_open(world, "pp=2 dp=-1 tp=2", &mesh). The last
// axis varies fastest, so that its neighbors share a node. One axis may be -1: it gets the ranks that remain.
// "" means "dp=-1". Errors: ARGUMENT where the product is not the number of ranks, or the text cannot be
// parsed.
typedef struct par_mesh par_mesh;
par_result par_mesh_open(par_comm *world, const char *axes, par_mesh **mesh);
// The comm of the ranks that differ from this one only in the named axes: "tp", or several: "dp,cp". Its
// first use is collective over the mesh; later uses return the same comm, which the mesh owns. Unknown axis:
// ARGUMENT.
par_result par_mesh_comm(par_mesh *mesh, const char *axes, par_comm **comm);
int par_mesh_size(const par_mesh *mesh, const char *axis);  // ranks along the axis; 1: no such axis
int par_mesh_index(const par_mesh *mesh, const char *axis); // this rank's index on it; 0: no such axis
par_result par_mesh_close(par_mesh *mesh);

// ---- faults -----------------------------------------------------------------------------------------------

// In an elastic world (par_desc.elastic) a job goes on without ranks that die. Where par_open starts the
// ranks, the process that calls it is none of them: it ends when all have ended, with the status of those
// that closed the world (0 if all did with 0, and one did). Ranks that a launcher has started meet over TCP,
// and it must let the others run when one dies. On a rank's death every call that needs it fails on the
// others with PAR_ERR_PEER_DIED, within 100 ms; so does one that needs a rank that did not come before the
// deadline, which is killed then (PAR_ERR_TIMEOUT). The program goes on like this:
//     par_revoke(world)            ranks in calls on other comms come back, too
//     par_shrink(world, &smaller)  a comm of the survivors; then close the old ones as ever
// A rank of another node that says nothing until the deadline counts as dead if it and the others that are
// silent are the fewer; where as many, if the first rank of comm is not among them. Else this side ends: it
// gets PAR_ERR_ABORTED, as does a rank that wakes up after the others have gone on.
// All return UNSUPPORTED in another world (over MPI, of threads), ARGUMENT in a group. (ULFM, Bland et al.
// 2013.)

// End all calls on comm, and on comms that were split from it, on all ranks: those that wait, and later ones,
// return PAR_ERR_REVOKED. Any rank may call it, at any time; it returns at once. Error: MEMORY (LIMITS).
par_result par_revoke(par_comm *comm);
// The bits that all ranks of comm have set in *value: of those that live, and of those that died after they
// had answered. Also on a comm that is broken or revoked. All survivors call it, and get the same value and
// result: PAR_ERR_PEER_DIED where a rank had died before it answered. Other errors leave *value as it is:
// MISMATCH (some called par_shrink), TIMEOUT, ABORTED, MEMORY.
par_result par_agree(par_comm *comm, uint64_t *value);
// A comm of the ranks of comm that live, in the same order; all of them call it. It revokes comm, and ends
// the calls that this rank has begun on it, or on what was split from it: when it returns no rank writes to
// the arrays of such a call any more. The new comm of the world takes its place: closing it closes the world.
// Errors: ARGUMENT (no rank has died, and nobody has revoked comm: that is par_split), MISMATCH (some called
// par_agree), TIMEOUT, ABORTED, MEMORY (of the calling rank alone: it must end; the others go on when it
// has). The new comm has no device: see par_cuda_reopen.
par_result par_shrink(par_comm *comm, par_comm **out);
// A comm of the ranks of comm, then `count` new ones, which return from their own par_open with it. The
// supervisor starts them; over TCP they are processes that wait (par_join_at). comm stays open. What the new
// comm of the world is for closing, par_shrink says. Collective over comm. Errors: UNSUPPORTED (over TCP comm
// is not the world), ARGUMENT, SYSTEM (a process could not be started, or too few wait; the places of LIMITS
// are used up), MEMORY, TIMEOUT (a new rank did not call par_open), those of a collective.
par_result par_grow(par_comm *comm, int count, par_comm **out);
// Over TCP: "host:port", for PAR_JOIN of processes that shall be new ranks: they wait in par_open until
// par_grow adds them. Of rank 0 of the world, or of what par_shrink or par_grow made of it; "" else. The text
// is valid until the next call.
const char *par_join_at(par_comm *comm);
// A rank's number in the comm that was shrunk or grown; -1: a new rank, or comm is another one.
int par_rank_before(const par_comm *comm, int rank);

// ---- memory -----------------------------------------------------------------------------------------------

// Symmetric memory: every rank of comm gets `bytes` zeroed bytes (aligned to 64; large blocks to 2 MiB) that
// all ranks of its node can address. Collective; all ranks pass the same size. NULL and par_last_error where
// there is not enough memory (never a later SIGBUS), and where a collective fails; in an elastic world on all
// ranks that live, or on none. bytes == 0 gives a pointer that may be freed.
void *par_alloc(par_comm *comm, size_t bytes);
// Free symmetric memory; collective over the comm of par_alloc, which must be open. memory is the pointer
// that par_alloc returned. NULL is PAR_OK. Errors: ARGUMENT (another pointer, or freed before), those of a
// barrier.
par_result par_free(par_comm *comm, void *memory);
// The address in rank's block that corresponds to `mine` in this rank's block; NULL if rank is on another
// node, or `mine` is not from par_alloc on this comm.
void *par_peer(par_comm *comm, const void *mine, int rank);

// ---- requests ---------------------------------------------------------------------------------------------

// Every call below has a _begin form with one more argument, which returns at once; par_wait ends the call.
// All ranks issue calls in the same order. A zeroed request is complete. Errors besides the call's: ARGUMENT
// (a copy of the request was waited for before; the call's group has not ended, or has and its comm is
// closed).
typedef struct par_request {
    struct par__operation *operation;
    uint64_t ticket;
} par_request;

par_result par_wait(par_request *request);                 // returns the call's result and zeroes the request
par_result par_test(par_request *request, int *done);      // makes progress; *done = 1: as par_wait
par_result par_wait_all(par_request *requests, int count); // waits for all, returns the first error

// ---- groups of calls --------------------------------------------------------------------------------------

// Between the two, calls on comm return at once and run together: consecutive small all_reduces (or
// broadcasts) of one dtype and op (or root) are coalesced into one, bit for bit as they would be alone;
// receives match their sends in any order. Arrays stay unchanged until par_group_end returns, or its request
// has been waited for. The request of a _begin form within a group is complete when the group is, and need
// not be waited for. Every rank makes the same calls in the same order. Errors: ARGUMENT (a group within a
// group, an end without a begin, NULL), MEMORY, and the first error of the calls. Where a rank's calls
// differ, or one has a wrong argument, all ranks get an error, none makes the collectives that are left in
// its group, and the comm goes on. (Coalescing: NCCL's groups; Horovod's tensor fusion, Sergeev and Del Balso
// 2018.)
par_result par_group_begin(par_comm *comm);
par_result par_group_end(par_comm *comm);
par_result par_group_end_begin(par_comm *comm, par_request *request);

// ---- calls ------------------------------------------------------------------------------------------------

// clang-format off
// Bits. Which blocks of an array a call reads or writes on one side, send or recv: none; one block, of count
// elements (of recv_counts[rank] where all ranks pass the same counts); a block of every rank; or one of
// these two at the root only.
typedef enum par_side { PAR_SIDE_NONE, PAR_SIDE_BLOCK, PAR_SIDE_ALL,
                        PAR_SIDE_ROOT = 4, PAR_SIDE_ROOT_BLOCK, PAR_SIDE_ROOT_ALL } par_side;
// Who passes counts: nobody; all ranks the same recv_counts; the root, for its blocks; every rank, for both
// sides. A side that has counts and a block of every rank may have displs, too.
typedef enum par_counts { PAR_COUNTS_NONE, PAR_COUNTS_SAME, PAR_COUNTS_ROOT, PAR_COUNTS_OWN } par_counts;
// Bits: the arguments besides arrays; and where calls may run other than by algorithms of their own, with the
// arrival records where they are small (EAGER), and on device backends (DEVICE; staging runs every kind).
typedef enum par_takes { PAR_TAKES_NONE, PAR_TAKES_OP, PAR_TAKES_ROOT, PAR_TAKES_OP_ROOT,
                         PAR_TAKES_PEER, PAR_TAKES_NEIGHBORS = 8 } par_takes;
typedef enum par_runs { PAR_RUNS_OWN, PAR_RUNS_EAGER, PAR_RUNS_DEVICE, PAR_RUNS_EAGER_DEVICE } par_runs;

// The kinds of calls and their traits. X(constant, name, send, recv, counts, takes, runs). From its row
// follow the arguments that a call needs, the elements that its arrays span, what it sends (par__volume), and
// its in-place rule: a rank's own block is the same memory on both sides (all_to_all has no such form). A
// neighbor exchange has a block for each neighbor instead of each rank. Collectives stand before SEND.
#define PAR_KINDS(X)                                                                                         \
    X(PAR_KIND_BARRIER,         "barrier",         NONE,       NONE,       NONE, NONE,        EAGER)         \
    X(PAR_KIND_ALL_REDUCE,      "all_reduce",      BLOCK,      BLOCK,      NONE, OP,          EAGER_DEVICE)  \
    X(PAR_KIND_REDUCE_SCATTER,  "reduce_scatter",  ALL,        BLOCK,      NONE, OP,          EAGER_DEVICE)  \
    X(PAR_KIND_REDUCE_SCATTERV, "reduce_scatterv", ALL,        BLOCK,      SAME, OP,          DEVICE)        \
    X(PAR_KIND_ALL_GATHER,      "all_gather",      BLOCK,      ALL,        NONE, NONE,        EAGER_DEVICE)  \
    X(PAR_KIND_ALL_GATHERV,     "all_gatherv",     BLOCK,      ALL,        SAME, NONE,        EAGER_DEVICE)  \
    X(PAR_KIND_BROADCAST,       "broadcast",       ROOT_BLOCK, BLOCK,      NONE, ROOT,        EAGER_DEVICE)  \
    X(PAR_KIND_REDUCE,          "reduce",          BLOCK,      ROOT_BLOCK, NONE, OP_ROOT,     EAGER_DEVICE)  \
    X(PAR_KIND_GATHER,          "gather",          BLOCK,      ROOT_ALL,   NONE, ROOT,        EAGER_DEVICE)  \
    X(PAR_KIND_GATHERV,         "gatherv",         BLOCK,      ROOT_ALL,   ROOT, ROOT,        DEVICE)        \
    X(PAR_KIND_SCATTER,         "scatter",         ROOT_ALL,   BLOCK,      NONE, ROOT,        EAGER_DEVICE)  \
    X(PAR_KIND_SCATTERV,        "scatterv",        ROOT_ALL,   BLOCK,      ROOT, ROOT,        DEVICE)        \
    X(PAR_KIND_ALL_TO_ALL,      "all_to_all",      ALL,        ALL,        NONE, NONE,        EAGER_DEVICE)  \
    X(PAR_KIND_ALL_TO_ALLV,     "all_to_allv",     ALL,        ALL,        OWN,  NONE,        DEVICE)        \
    X(PAR_KIND_SEND,            "send",            BLOCK,      NONE,       NONE, PEER,        DEVICE)        \
    X(PAR_KIND_RECV,            "recv",            NONE,       BLOCK,      NONE, PEER,        DEVICE)        \
    X(PAR_KIND_NEIGHBOR_EXCHANGE, "neighbor_exchange", ALL,    ALL,        OWN,  NEIGHBORS,   OWN)
// clang-format on

typedef enum par_kind {
#define PAR__X(kind, name, send, recv, counts, takes, runs) kind,
    PAR_KINDS(PAR__X)
#undef PAR__X
        PAR_KIND_COUNT
} par_kind;
typedef struct par_kind_traits { // a row of PAR_KINDS
    const char *name;
    par_side send, recv;
    par_counts counts;
    par_takes takes;
    par_runs runs;
} par_kind_traits;
const char *par_kind_name(par_kind kind);                 // "all_reduce", ...
const par_kind_traits *par_kind_traits_of(par_kind kind); // an invalid kind has nothing

// A call is described by its kind and arguments. Each function below fills in one and passes it on. Members
// that the kind does not need are zero.
typedef struct par_call {
    const void *send;
    void *recv;
    size_t count; // of a block; ignored where all blocks have counts
    const size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
    par_kind kind;
    par_dtype dtype;
    par_op op;
    int root;         // or the peer
    int tag;          // of a collective without a root; 0: par_tag's
    const char *site; // for errors; NULL: the place of the call
} par_call;
// Begin a call; request NULL: wait for it here. The description may go at once; arrays and counts stay until
// the call has ended. Errors: as the function of that kind; ARGUMENT also where the kind does not exist, or
// does not take the counts or displs.
par_result par_begin(par_comm *comm, const par_call *call, par_request *request);
// The elements that this rank's send and recv span in a call, gaps between displs included. Of a neighbor
// exchange: comm is par_neighbors_comm's. counts have an entry for each block; NULL: each has count elements.
void par_call_spans(const par_comm *comm, const par_call *call, size_t *send_count, size_t *recv_count);

// ---- collectives ------------------------------------------------------------------------------------------
// count is in elements and may be 0 or beyond 2^31. n = par_size(comm), S = the bytes of the whole array.
// Errors of all collectives: ARGUMENT (on the rank whose argument is wrong; MISMATCH on the others),
// MISMATCH, MEMORY, TIMEOUT, PEER_DIED, ABORTED, MPI.

// recv[i] = op over all ranks of send[i]; count elements each. In place: recv == send.
// Zero-copy two-shot: 2S loads and stores per rank, the minimum (Rabenseifner 2004, in shared memory).
par_result par_all_reduce(const void *send, void *recv, size_t count, par_dtype dtype, par_op op,
                          par_comm *comm);

// Rank r gets block r of the reduction: send has n*count elements, recv count. In place: recv == send +
// rank*count.
par_result par_reduce_scatter(const void *send, void *recv, size_t count, par_dtype dtype, par_op op,
                              par_comm *comm);
// Block r has recv_counts[r] elements, and blocks are packed; all ranks pass the same counts. In place: recv
// == send + start of the own block.
par_result par_reduce_scatterv(const void *send, void *recv, const size_t *recv_counts, par_dtype dtype,
                               par_op op, par_comm *comm);

// recv gets n*count elements: block r is rank r's send of count elements. In place: send == recv +
// rank*count.
par_result par_all_gather(const void *send, void *recv, size_t count, par_dtype dtype, par_comm *comm);
// Block r has recv_counts[r] elements and starts at recv_displs[r] (NULL: packed); all ranks pass the same
// counts and displs.
par_result par_all_gatherv(const void *send, void *recv, const size_t *recv_counts, const size_t *recv_displs,
                           par_dtype dtype, par_comm *comm);

// recv on every rank = the root's send. Only the root reads send. In place: recv == send at the root.
par_result par_broadcast(const void *send, void *recv, size_t count, par_dtype dtype, int root,
                         par_comm *comm);

// As all_reduce, but only the root's recv is written (the others may pass NULL). In place at the root: recv
// == send.
par_result par_reduce(const void *send, void *recv, size_t count, par_dtype dtype, par_op op, int root,
                      par_comm *comm);

// The root's recv gets n*count elements, block r from rank r. In place at the root: send == recv +
// root*count.
par_result par_gather(const void *send, void *recv, size_t count, par_dtype dtype, int root, par_comm *comm);
// Rank r sends count elements; at the root, block r has recv_counts[r] elements and starts at recv_displs[r]
// (NULL: packed).
par_result par_gatherv(const void *send, size_t count, void *recv, const size_t *recv_counts,
                       const size_t *recv_displs, par_dtype dtype, int root, par_comm *comm);

// Rank r's recv gets block r (count elements) of the root's send. In place at the root: recv == send +
// root*count.
par_result par_scatter(const void *send, void *recv, size_t count, par_dtype dtype, int root, par_comm *comm);
// At the root, block r has send_counts[r] elements and starts at send_displs[r] (NULL: packed); rank r
// receives count elements.
par_result par_scatterv(const void *send, const size_t *send_counts, const size_t *send_displs, void *recv,
                        size_t count, par_dtype dtype, int root, par_comm *comm);

// Block r of this rank's send goes to block `rank` of rank r's recv; n*count elements each. Not in place.
par_result par_all_to_all(const void *send, void *recv, size_t count, par_dtype dtype, par_comm *comm);
// This rank's send_counts[r] equals rank r's recv_counts[rank]; where not, all ranks get MISMATCH, as for
// gatherv and scatterv, and nothing is sent. NULL displs: packed. Not in place.
par_result par_all_to_allv(const void *send, const size_t *send_counts, const size_t *send_displs, void *recv,
                           const size_t *recv_counts, const size_t *recv_displs, par_dtype dtype,
                           par_comm *comm);

// Returns after every rank has called it.
par_result par_barrier(par_comm *comm);

// Tag the next collective without a root on comm, also within a group; all ranks must pass the same tag. For
// layers whose calls look alike but must not be confused. 0: no tag.
void par_tag(par_comm *comm, int tag);

// ---- point-to-point ---------------------------------------------------------------------------------------
// Messages of one sender, receiver and comm arrive in the order in which they were issued: a lane for each
// pair and direction. There are no tags. Many exchanges between the same two ranks take a lane each: of two
// parts of a program that do not know of each other's messages each splits the comm, and the blocks of a halo
// are one call (see neighbors). If count or dtype differ at the two ends, the receiver gets
// MISMATCH with both call sites. A send may return before its receive was called; do not rely on that. peer
// may be the rank itself (with begin and wait).

par_result par_send(const void *send, size_t count, par_dtype dtype, int peer, par_comm *comm);
par_result par_recv(void *recv, size_t count, par_dtype dtype, int peer, par_comm *comm);
// Send and receive at once: send_count elements to dest, recv_count from source. The buffers do not overlap.
par_result par_sendrecv(const void *send, size_t send_count, int dest, void *recv, size_t recv_count,
                        int source, par_dtype dtype, par_comm *comm);

// ---- begin/wait forms of all the above --------------------------------------------------------------------

par_result par_all_reduce_begin(const void *send, void *recv, size_t count, par_dtype dtype, par_op op,
                                par_comm *comm, par_request *request);
par_result par_reduce_scatter_begin(const void *send, void *recv, size_t count, par_dtype dtype, par_op op,
                                    par_comm *comm, par_request *request);
par_result par_reduce_scatterv_begin(const void *send, void *recv, const size_t *recv_counts, par_dtype dtype,
                                     par_op op, par_comm *comm, par_request *request);
par_result par_all_gather_begin(const void *send, void *recv, size_t count, par_dtype dtype, par_comm *comm,
                                par_request *request);
par_result par_all_gatherv_begin(const void *send, void *recv, const size_t *recv_counts,
                                 const size_t *recv_displs, par_dtype dtype, par_comm *comm,
                                 par_request *request);
par_result par_broadcast_begin(const void *send, void *recv, size_t count, par_dtype dtype, int root,
                               par_comm *comm, par_request *request);
par_result par_reduce_begin(const void *send, void *recv, size_t count, par_dtype dtype, par_op op, int root,
                            par_comm *comm, par_request *request);
par_result par_gather_begin(const void *send, void *recv, size_t count, par_dtype dtype, int root,
                            par_comm *comm, par_request *request);
par_result par_gatherv_begin(const void *send, size_t count, void *recv, const size_t *recv_counts,
                             const size_t *recv_displs, par_dtype dtype, int root, par_comm *comm,
                             par_request *request);
par_result par_scatter_begin(const void *send, void *recv, size_t count, par_dtype dtype, int root,
                             par_comm *comm, par_request *request);
par_result par_scatterv_begin(const void *send, const size_t *send_counts, const size_t *send_displs,
                              void *recv, size_t count, par_dtype dtype, int root, par_comm *comm,
                              par_request *request);
par_result par_all_to_all_begin(const void *send, void *recv, size_t count, par_dtype dtype, par_comm *comm,
                                par_request *request);
par_result par_all_to_allv_begin(const void *send, const size_t *send_counts, const size_t *send_displs,
                                 void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                 par_dtype dtype, par_comm *comm, par_request *request);
par_result par_barrier_begin(par_comm *comm, par_request *request);
par_result par_send_begin(const void *send, size_t count, par_dtype dtype, int peer, par_comm *comm,
                          par_request *request);
par_result par_recv_begin(void *recv, size_t count, par_dtype dtype, int peer, par_comm *comm,
                          par_request *request);

// ---- neighbors --------------------------------------------------------------------------------------------
// The exchange of a halo: all sends to a rank's neighbors and all receives from them are one call. What
// goes to one rank goes as one message, however many blocks it has. On a node, blocks in memory of
// par_alloc are copied once, by their receiver (zero-copy), from 4 KiB for a peer on; so are large blocks
// of ordinary memory. Messages of an exchange do not mix with those of par_send. (MPI 3.0, neighborhood
// collectives.)

typedef struct par_neighbors par_neighbors;
// Block i of send will go to rank peers[i], block i of recv come from rank sources[i], for i < degree.
// sources NULL: the same as peers. -1: no neighbor there, the block is skipped. A rank may be there several
// times, and be this rank itself: the k-th block that A sends to B becomes the k-th block that B receives
// from A. So on a grid list the directions in sources in the opposite order: peers = {left, right} and
// sources = {right, left} are right on a ring of any size, periodic ones of 1 and 2 ranks too. Collective
// over comm. Errors: ARGUMENT (a rank is not in comm), MISMATCH (A sends B another number of blocks than B
// receives from A), MEMORY, those of a collective.
par_result par_neighbors_open(par_comm *comm, int degree, const int *peers, const int *sources,
                              par_neighbors **neighbors);
// Exchange: send_counts[i] elements from send_displs[i] on (NULL: blocks are packed) go to peers[i];
// recv_counts[i] come from sources[i] to recv_displs[i]. All ranks of the comm take part, in the same order;
// send and recv do not overlap. Errors: ARGUMENT, MISMATCH (on the receiver, with both call sites, where the
// counts or the dtype differ at the two ends; later exchanges work), UNSUPPORTED (memory of a device: use
// par_send_begin and par_recv_begin), those of messages.
par_result par_neighbor_exchange(const void *send, const size_t *send_counts, const size_t *send_displs,
                                 void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                 par_dtype dtype, par_neighbors *neighbors);
par_result par_neighbor_exchange_begin(const void *send, const size_t *send_counts, const size_t *send_displs,
                                       void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                       par_dtype dtype, par_neighbors *neighbors, par_request *request);
// Their own comm, for par_at and par_last_error in other languages than C. Do not close it. NULL has none.
par_comm *par_neighbors_comm(const par_neighbors *neighbors);
int par_neighbors_degree(const par_neighbors *neighbors); // 0: NULL
// Waits for nobody, as par_close does. NULL is PAR_OK.
par_result par_neighbors_close(par_neighbors *neighbors);

// ---- signals ----------------------------------------------------------------------------------------------
// A rank of a node tells another that its memory of par_alloc has something new, while that one does not take
// part: par_peer gives the address of another rank's block for loads and stores, and a signal says when they
// are done. A word is an address in this rank's own block; what is accessed is what corresponds to it in the
// block of `rank`, which may be this rank itself. What was written before a signal is there for who has
// waited for it. Errors: ARGUMENT (no memory of par_alloc on this comm, a word not aligned to 8 bytes, no
// such rank), UNSUPPORTED (a rank of another node: send it a message). (OpenSHMEM 1.5, signaling operations.)

// Add value to a word of rank, after all that this rank has written, and wake the rank if it waits.
par_result par_signal(uint64_t *word, uint64_t value, int rank, par_comm *comm);
// Wait until this rank's own word is at least `value`. Waits as a collective does: also TIMEOUT, PEER_DIED (a
// rank of the comm has gone), ABORTED, and begun calls make progress.
par_result par_wait_signal(const uint64_t *word, uint64_t value, par_comm *comm);

// ---- diagnosis --------------------------------------------------------------------------------------------

// What this rank has done on a comm, per kind of call. sent_* is the volume of the direct algorithm, which is
// the minimum: all_reduce S - own slice + (n-1) own slices (2(n-1)/n S where n divides the count),
// reduce_scatter S - own block, all_gather (n-1) own blocks, broadcast S at the root, and so on. It does not
// depend on the algorithm that ran; net_* counts what this rank passed to the transport between nodes (MPI,
// TCP, or shared memory between nodes of PAR_NODE_RANKS).
typedef struct par_ledger {
    uint64_t calls;
    uint64_t sent_count; // elements
    uint64_t sent_bytes;
    uint64_t net_messages;
    uint64_t net_bytes;
    double seconds;           // from its arrival to its completion; 0 for a message that ends at once
    double predicted_seconds; // of the model; 0 before par_calibrate
} par_ledger;
par_ledger par_ledger_get(const par_comm *comm, par_kind kind);
void par_ledger_reset(par_comm *comm);
void par_ledger_print(const par_comm *comm, FILE *file);

// The alpha-beta model: seconds = alpha + beta x bytes, with an alpha and a beta for each kind of call and
// each range of sizes (one pair would be wrong by multiples, because of caches). par_calibrate measures them
// on ordinary memory (collective; takes a second or two). par_predict gives the seconds for an array of S
// bytes, 0 before par_calibrate. (Hockney 1994; the ranges after Culler's LogGP parameters by size.)
par_result par_calibrate(par_comm *comm);
double par_predict(const par_comm *comm, par_kind kind, size_t bytes);

// Print the algorithms in order of preference, and which one each size takes on this comm.
void par_algorithms_print(par_comm *comm, FILE *file);
// The algorithm of the last completed call on this comm ("inline", "twoshot", ...).
const char *par_last_algorithm(const par_comm *comm);
// The name of algorithm number `index` (0, 1, ...) for this kind of call; NULL after the last. For tests and
// tuners.
const char *par_algorithm_name(const par_comm *comm, par_kind kind, int index);
// Force an algorithm from now on, as PAR_ALGO does; "" restores the table's choice. All ranks pass the same
// text. Error: ARGUMENT if the name is unknown; the text suggests the nearest one.
par_result par_force_algorithm(par_comm *comm, const char *op_and_name);

// For programs that wait on their own: PAR_OK, or the error of this comm: a rank died (PEER_DIED), failed
// (with its error) or called par_abort (ABORTED). Returns at once, without communication; not collective.
par_result par_alive(par_comm *comm);

// Print the last calls of every rank of this node, dead ranks included, newest last; of more than 16 ranks
// only where the last call differs from the rank's before. An error that ends a comm prints it, too.
void par_recorder_print(const par_comm *comm, FILE *file);

// The next call on comm is made by this line of the program: for other languages than C, whose calls no macro
// records. file stays as long as the world (a literal). Returns comm.
par_comm *par_at(par_comm *comm, const char *file, int line);

// Add the program's own spans to the trace; they may nest, up to 32 of them. They cost nothing without a
// trace. Errors: ARGUMENT (an end without a begin; a span within 32 others, which is left out).
par_result par_trace_begin(par_comm *comm, const char *name); // name must live until the world closes
par_result par_trace_end(par_comm *comm);

// ---- devices ----------------------------------------------------------------------------------------------

// The operations of a device that holds a layer's arrays. par.h has the CPU; par_cuda.cuh adds a GPU. A
// stream is an ordered queue of work; NULL is the device's default stream. On the CPU all work is done when
// the call returns.
typedef struct par_device par_device;
struct par_device {
    const char *name;
    void *state;
    par_result (*alloc)(par_device *device, size_t bytes, void **memory); // zeroed, aligned to 64
    par_result (*free)(par_device *device, void *memory);
    par_result (*alloc_host)(par_device *device, size_t bytes, void **memory); // page-locked
    par_result (*free_host)(par_device *device, void *memory);
    // Memory for the calls of comm, zeroed, of the same size on all its ranks. Both are collective over comm.
    // NULL: alloc and free are as good.
    par_result (*alloc_symmetric)(par_device *device, par_comm *comm, size_t bytes, void **memory);
    par_result (*free_symmetric)(par_device *device, par_comm *comm, void *memory);
    // In the stream's order. Where the host's memory is not page-locked, the host waits for the stream first.
    par_result (*copy)(par_device *device, void *dst, const void *src, size_t bytes, void *stream);
    par_result (*fill)(par_device *device, void *dst, int byte, size_t bytes, void *stream);
    par_result (*cast)(par_device *device, void *dst, par_dtype dst_type, const void *src, par_dtype src_type,
                       size_t count, void *stream);
    // dst[i] = sources[0][i] op sources[1][i] op ..., in this order; half types in f32. dst may be
    // sources[0].
    par_result (*reduce)(par_device *device, void *dst, const void *const *sources, int source_count,
                         size_t count, par_dtype dtype, par_op op, void *stream);
    par_result (*stream_open)(par_device *device, void **stream);
    par_result (*stream_close)(par_device *device, void *stream);
    par_result (*stream_sync)(par_device *device, void *stream);                // the host waits
    par_result (*event_record)(par_device *device, void *stream, void **event); // *event NULL: create it
    par_result (*event_wait)(par_device *device, void *stream, void *event);    // the stream waits
    par_result (*event_sync)(par_device *device, void *event);                  // the host waits
    par_result (*event_free)(par_device *device, void *event);
};
par_device *par_cpu(void); // constant; the same for all ranks of a process

// ---- device backends --------------------------------------------------------------------------------------

// A device backend runs a comm's calls on memory that the CPU cannot access; par_cuda.cuh has backends for
// GPUs. A comm with a backend asks it for each call whether it supports the memory. Supported calls are
// offloaded: they are enqueued on the device, and the blocking forms, and par_wait, return when work that the
// caller enqueues next will see the result. Arguments are checked, and calls are recorded and counted, as for
// all other calls.
typedef struct par_device_backend par_device_backend;
struct par_device_backend {
    const char *name;
    int (*supports)(par_device_backend *backend, const void *memory);
    // In one order on all ranks; returns soon. call stays until end; *state is the backend's, NULL at first.
    par_result (*begin)(par_device_backend *backend, const par_call *call, void **state);
    int (*done)(par_device_backend *backend, void *state); // 1: end would not wait
    par_result (*end)(par_device_backend *backend, void *state);
    void (*progress)(par_device_backend *backend); // called by every wait of this rank
    // Called after its comm was split; attaches a backend to part, which is NULL where color < 0. Collective
    // over its comm.
    par_result (*split)(par_device_backend *backend, int color, int key, par_comm *part);
    // NULL, or its comm was revoked, and shrinks: the calls on it end. When it returns this rank's device
    // writes no memory of another rank for them. An error is par_shrink's.
    par_result (*stop)(par_device_backend *backend);
    par_result (*can_close)(par_device_backend *backend); // NULL, or an error: its comm is not closed
    void (*close)(par_device_backend *backend);           // its comm is being closed
    par_device_backend *next;
};
// A comm has at most one backend, which is closed with the comm. Comms split from it later get backends, too.
// Error: ARGUMENT (comm has a backend already).
par_result par_attach_backend(par_comm *comm, par_device_backend *backend);
par_device_backend *par_backend_of(const par_comm *comm); // or NULL
// As par_split, but the new comm has no backend: for a backend's own messages in host memory.
par_result par_split_host(par_comm *comm, int color, int key, par_comm **out);
// Close a comm of a backend or a layer, which frees afterwards what its messages and the other ranks used;
// collective over it. When it returns all ranks have come, and what had not ended is dropped. NULL is PAR_OK.
par_result par_close_together(par_comm *comm);

// ---- shards -----------------------------------------------------------------------------------------------

// Some consecutive elements of a rank's part of a tensor, and where they are in the whole tensor: from
// element `offset` on, in rows of `width` elements that begin `stride` elements apart (width 0: without
// gaps).
typedef struct par_run {
    size_t count; // elements
    size_t offset, width, stride;
    int replicas, replica_id; // ranks that have this run (0: 1), and the number of this rank among them
} par_run;
// A rank's part of a tensor that is split over ranks: an array of `shape`, row-major, whose elements are
// those of the runs, one run after the other. par_tp.h describes its parameters so, and par_zero.h takes them
// so.
enum { PAR_MAX_RUNS = 8 };
typedef struct par_shard {
    int dims;                         // 1 to 4
    size_t shape[4], global_shape[4]; // of this part; of the whole tensor
    int run_count;
    par_run runs[PAR_MAX_RUNS];
} par_shard;
// A tensor that is whole on this rank.
par_shard par_shard_whole(const size_t *shape, int dims);
// Says that `copies` sets of ranks have the same part, as the first and the last stage of a pipeline have a
// tied weight, and that this rank is in group number `copy`, from 0 on. Copied elements count once in a norm,
// and copy 0 is saved.
void par_shard_replicate(par_shard *shard, int copies, int copy);
// The number in the whole tensor of element `local` of the part, and how many elements from it on are
// consecutive in both. *replica_id: as the run's. All may be NULL. Returns 0 if there is no such element.
size_t par_shard_find(const par_shard *shard, size_t local, size_t *global, int *replica_id);
// Consecutive elements of a rank's part whose gradient is a partial sum on each rank of `comm`: it is
// complete when it is summed over them, by op.
typedef struct par_partial_sum {
    par_comm *comm; // NULL: there is none
    par_op op;
    size_t first, count;
} par_partial_sum;
enum { PAR_MAX_SUMS = 4 };
// A parameter as a layer describes it to who keeps, updates and saves it: par_tp_describe fills it in,
// par_zero_tensor_of takes it.
typedef struct par_parameter {
    const char *name; // "layers.3.attn.qkv.weight"; not copied
    par_shard shard;  // this rank's part
    void **data;      // where the layer looks for this part and its gradient
    float **grad;
    float deviation, value; // initially: normal numbers of this deviation; 0: each element is `value`
    uint64_t stream;        // of these random numbers
    int frozen;             // 1: not trained, no gradient
    int group;              // of hyperparameters
    int no_decay;           // 1: no weight decay, as of norms and biases
    int use_adamw;          // 1: no matrix for Muon, as of embeddings and heads
    par_dtype dtype;        // of data, f32 or bf16; 0: not told. A gradient is f32
    par_partial_sum sums[PAR_MAX_SUMS]; // which its gradient needs before that over data-parallel ranks
    int *owned; // who completes these sums itself, as par_zero_commit, sets it to 1; NULL: nobody asks
} par_parameter;

// ---- files ------------------------------------------------------------------------------------------------

// Internal to the kit; programs have par_files.h. Open a file for reading. Returns its descriptor, which the
// caller closes, and its size; or -1, and what is wrong in `why`. Only regular files are accepted: a FIFO
// would block until it has a writer, a device may never end.
int par__open_read(const char *path, size_t *bytes, char *why, size_t why_bytes);
// Move a new descriptor to a number of at least 3, closed on exec. 0 to 2 are stdin, stdout and stderr: where
// a program was started without one of them, its output must not get into a file, a socket or shared memory.
// Returns -1, with errno set, if fd is -1 or no number is free (then fd is closed).
int par__safe_fd(int fd);
FILE *par__fopen_write(const char *path); // fopen(path, "w") with a safe descriptor; NULL: see errno
// Create a file for writing, with a safe descriptor. A file of that name is unlinked first: it could be a
// symbolic link through which another file would be overwritten. -1: see errno.
int par__open_replace(const char *path);
// Between the two calls this thread prints decimal points, as files of numbers need,
// whatever the program's locale is. par__restore_locale takes what par__set_c_locale returned (NULL: out of
// memory, the locale is unchanged).
void *par__set_c_locale(void);
void par__restore_locale(void *before);
void par__log_line(const char *text); // the default of PAR_LOG

// Escape the first character of `text`, which has at least 1 byte, for a JSON
// string; a byte that is not UTF-8 becomes U+FFFD. Returns the number of bytes of text that it used.
size_t par__json_escape(const char *text, size_t bytes, char json[8]);

// ---- settings ---------------------------------------------------------------------------------------------
// Environment variables, internal to the kit: each header has a table of those that it reads (par.h: see
// ENVIRONMENT). An empty variable counts as unset; one that cannot be parsed is an error.

typedef enum par__setting_kind {
    PAR__SETTING_INTEGER,
    PAR__SETTING_SECONDS,
    PAR__SETTING_SWITCH,
    PAR__SETTING_CHOICE,
    PAR__SETTING_WORDS, // one to `max` words of the list, separated by commas
    PAR__SETTING_TEXT
} par__setting_kind;
typedef struct par__setting {
    const char *name;
    par__setting_kind kind;
    double min, max, default_value; // of numbers; a text has at most `max` bytes
    const char *accepts;            // for errors: what the value is; of a choice: the words, "peer|staging"
} par__setting;
// *value is the number, the index of the word, or 1 for a text; where the variable is unset or wrong, the
// default. An error's text goes to `why`.
par_result par__setting_read(const par__setting *setting, double *value, char *why, size_t why_bytes);
// Make a text safe to print: '?' for each byte that is not UTF-8 and for each control character that is not
// in `keep`. For texts from peers, files and unknown senders keep is "".
void par__sanitize(char *text, const char *keep);
// Log each PAR_ variable whose name is almost one of these.
void par__settings_warn_misspelled(const par__setting *settings, size_t count);

// ---- call sites -------------------------------------------------------------------------------------------
// Each call records its call site, for errors and the flight recorder. The macros below add the site,
// PAR_SITE ("file:line"), as a first argument and pass on all others as they are written. &par_all_reduce and
// (par_all_reduce)(...) are still the function. Names with par__ are internal to the kit.

par_comm *par__at_site(par_comm *comm, const char *site); // site NULL: par__in_layer
par_mesh *par__mesh_at_site(par_mesh *mesh, const char *site);
// For layers, whose calls are attributed to the place where the program called the layer: a macro of the
// layer's function enters `site`. The layer's name (NULL: none; it is copied) then holds until the next
// entry. A layer that calls back into the program saves both and restores them afterwards.
typedef struct par__caller {
    const char *site;
    char name[52]; // a longer name keeps its end
} par__caller;
void par__enter_layer(par_comm *comm, const char *site); // NULL comm: does nothing
void par__set_layer_name(par_comm *comm, const char *name);
par_comm *par__in_layer(par_comm *comm);                         // the next call on comm comes from the layer
par_comm *par__in_named_layer(par_comm *comm, const char *name); // ... with this name
par__caller par__save_caller(const par_comm *comm);
void par__restore_caller(par_comm *comm, const par__caller *caller);
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
par_result
par__fail_in_layer(par_comm *comm, par_result result, const char *format,
                   ...); // par_fail with the call site

// For device backends: step the calls of all comms of comm's world while it waits for a device; the first of
// all attached backends, which `next` links.
void par__step_calls(par_comm *comm);
par_device_backend *par__first_backend(const par_comm *comm);
// Can the world of comm lose ranks and go on? What a rank that waits for its device asks besides par_alive:
// PAR_OK, or REVOKED.
int par__is_elastic(const par_comm *comm);
par_result par__ask_revoked(const par_comm *comm);
// How many ranks the launcher has started on this machine, on all communicators. 0: it does not say.
int par__launched_here(void);
#if defined(PAR_MPI)
// For par_mpi.h, which runs the collectives of many communicators by comms of one world.
// par__open_mpi_program opens it on MPI_COMM_WORLD; collective. threads: several use it, one at a time. A
// thread begins its turn before other calls of the kit; par__run_in_turn gives turns to others while it
// waits. par__open_mpi_part makes a comm of ranks[0 .. n-1] of the world, which are those of mpi in their
// order; collective over mpi. NULL, on all of them: *why says why. par__use_progress: calls that do not wait
// go on by the progress thread, if they need no transport. par__has_progress: there is one, if idle.
par_result par__open_mpi_program(const par_desc *desc, int threads, par_comm **world);
void par__begin_turn(par_comm *world);
void par__end_turn(par_comm *world);
par_result par__run_in_turn(par_comm *comm, const par_call *call);
par_comm *par__open_mpi_part(par_comm *world, MPI_Comm mpi, const int *ranks, int n, const char **why);
int par__has_progress(const par_comm *comm);
void par__use_progress(par_comm *comm);
#endif
// For par_mpi.h, whose program may give two sizes for one block, which MPI forgives: a count, or one of
// recv_counts, that says so. The call is an error on all ranks, and no data move.
enum { PAR__TWO_SIZES = -1 };
// For par_mpi.h, after a collective that has ended, before this rank's next one (then a faster rank may write
// what is read here): did the ranks make the same call but for counts and dtypes? All get the same answer:
// the first rank that differs from rank 0, or has a mistake of its own, + 1. 0: the call itself differs.
int par__differs_in_size_alone(const par_comm *comm);
// The same, after a collective that has succeeded whose ranks do not all give the counts of all: the bytes of
// the largest block that a rank sends, or has as a part of the root's.
uint64_t par__largest_block_seen(const par_comm *comm);

// A random number from the kernel that nobody can guess. 0, or errno.
int par__getrandom_u64(uint64_t *number);
// The process table that this process is in: this boot of the kernel, and the pid namespace. Processes that
// have the same can ask the kernel for each other.
void par__process_table(char *text, size_t bytes);
// When a process of this table began, in the kernel's clock ticks: no two that ever have the same pid begin
// at the same time. 0: it does not run; 1: it does, but the kernel does not say since when.
uint64_t par__process_start(int pid);

// The processor's instruction set, limited by PAR_ISA. 0: base, 1: avx2, 2: avx512, 3: avx512 and others but
// for AMX, 4: all.
int par__isa(void);
const char *par__setting_text(const char *name);            // of an environment variable; NULL: unset
void par__add_f32(float *sum, const float *x, size_t n);    // sum += x
void par__stop_library_threads(void) __attribute__((weak)); // par_math.h's, which may not be there
const char *par__op_error(par_op op, par_dtype dtype);      // why it cannot reduce this type; NULL: it can
// What a rank tells the others of its call, for them to compare.
typedef struct par__call_record {
    uint32_t sequence;
    uint8_t kind, dtype, op, flags;
    int32_t root; // or the tag
    uint16_t site, op_hash;
    uint64_t count; // of counts that all ranks give, their hash; of all_to_allv the largest that is sent
} par__call_record;
// Sets kind, dtype, op, root and count.
void par__record_call(const par_comm *comm, const par_call *call, par__call_record *record);
int par__is_same_call(const par__call_record *a, const par__call_record *b);
const char *par__describe_call(const par__call_record *record, char *text, size_t bytes);
#define PAR__STRINGIFY_VALUE(x)   #x
#define PAR__STRINGIFY(x)         PAR__STRINGIFY_VALUE(x)
#define PAR_SITE                  __FILE__ ":" PAR__STRINGIFY(__LINE__)
#define PAR__WITH_SITE(name, ...) par__##name##_at(PAR_SITE, __VA_ARGS__)

par_neighbors *par__neighbors_at_site(par_neighbors *neighbors, const char *site);
// par__..._at, which the macros below call: the function's parameters, and what it is called with. BOTH: the
// blocking form, and that with a request.
#define PAR__UNWRAP(...) __VA_ARGS__
#define PAR__SITED(type, name, parameters, arguments)                                                        \
    static inline type par__##name##_at(const char *site, PAR__UNWRAP parameters) {                          \
        return par_##name arguments;                                                                         \
    }
#define PAR__SITED_BOTH(name, parameters, arguments)                                                         \
    PAR__SITED(par_result, name, parameters, arguments)                                                      \
    PAR__SITED(par_result, name##_begin, (PAR__UNWRAP parameters, par_request * request),                    \
               (PAR__UNWRAP arguments, request))
// clang-format off
// Calls that block, or with _begin leave a request: name, kind, parameters; what is called where the call
// site is known; the members of the par_call: send, its counts and displs, count, recv, its counts and
// displs, dtype, op, root.
#define PAR_CALLS(X)                                                                                         \
    X(all_reduce, ALL_REDUCE, (const void *send, void *recv, size_t count, par_dtype dtype, par_op op,       \
      par_comm *comm), (send, recv, count, dtype, op, par__at_site(comm, site)),                             \
      send, NULL, NULL, count, recv, NULL, NULL, dtype, op, 0)                                               \
    X(reduce_scatter, REDUCE_SCATTER, (const void *send, void *recv, size_t count, par_dtype dtype,          \
      par_op op, par_comm *comm), (send, recv, count, dtype, op, par__at_site(comm, site)),                  \
      send, NULL, NULL, count, recv, NULL, NULL, dtype, op, 0)                                               \
    X(reduce_scatterv, REDUCE_SCATTERV, (const void *send, void *recv, const size_t *recv_counts,            \
      par_dtype dtype, par_op op, par_comm *comm),                                                           \
      (send, recv, recv_counts, dtype, op, par__at_site(comm, site)),                                        \
      send, NULL, NULL, 0, recv, recv_counts, NULL, dtype, op, 0)                                            \
    X(all_gather, ALL_GATHER, (const void *send, void *recv, size_t count, par_dtype dtype, par_comm *comm), \
      (send, recv, count, dtype, par__at_site(comm, site)),                                                  \
      send, NULL, NULL, count, recv, NULL, NULL, dtype, PAR_SUM, 0)                                          \
    X(all_gatherv, ALL_GATHERV, (const void *send, void *recv, const size_t *recv_counts,                    \
      const size_t *recv_displs, par_dtype dtype, par_comm *comm),                                           \
      (send, recv, recv_counts, recv_displs, dtype, par__at_site(comm, site)),                               \
      send, NULL, NULL, 0, recv, recv_counts, recv_displs, dtype, PAR_SUM, 0)                                \
    X(broadcast, BROADCAST, (const void *send, void *recv, size_t count, par_dtype dtype, int root,          \
      par_comm *comm), (send, recv, count, dtype, root, par__at_site(comm, site)),                           \
      send, NULL, NULL, count, recv, NULL, NULL, dtype, PAR_SUM, root)                                       \
    X(reduce, REDUCE, (const void *send, void *recv, size_t count, par_dtype dtype, par_op op, int root,     \
      par_comm *comm), (send, recv, count, dtype, op, root, par__at_site(comm, site)),                       \
      send, NULL, NULL, count, recv, NULL, NULL, dtype, op, root)                                            \
    X(gather, GATHER, (const void *send, void *recv, size_t count, par_dtype dtype, int root,                \
      par_comm *comm), (send, recv, count, dtype, root, par__at_site(comm, site)),                           \
      send, NULL, NULL, count, recv, NULL, NULL, dtype, PAR_SUM, root)                                       \
    X(gatherv, GATHERV, (const void *send, size_t count, void *recv, const size_t *recv_counts,              \
      const size_t *recv_displs, par_dtype dtype, int root, par_comm *comm),                                 \
      (send, count, recv, recv_counts, recv_displs, dtype, root, par__at_site(comm, site)),                  \
      send, NULL, NULL, count, recv, recv_counts, recv_displs, dtype, PAR_SUM, root)                         \
    X(scatter, SCATTER, (const void *send, void *recv, size_t count, par_dtype dtype, int root,              \
      par_comm *comm), (send, recv, count, dtype, root, par__at_site(comm, site)),                           \
      send, NULL, NULL, count, recv, NULL, NULL, dtype, PAR_SUM, root)                                       \
    X(scatterv, SCATTERV, (const void *send, const size_t *send_counts, const size_t *send_displs,           \
      void *recv, size_t count, par_dtype dtype, int root, par_comm *comm),                                  \
      (send, send_counts, send_displs, recv, count, dtype, root, par__at_site(comm, site)),                  \
      send, send_counts, send_displs, count, recv, NULL, NULL, dtype, PAR_SUM, root)                         \
    X(all_to_all, ALL_TO_ALL, (const void *send, void *recv, size_t count, par_dtype dtype, par_comm *comm), \
      (send, recv, count, dtype, par__at_site(comm, site)),                                                  \
      send, NULL, NULL, count, recv, NULL, NULL, dtype, PAR_SUM, 0)                                          \
    X(all_to_allv, ALL_TO_ALLV, (const void *send, const size_t *send_counts, const size_t *send_displs,     \
      void *recv, const size_t *recv_counts, const size_t *recv_displs, par_dtype dtype, par_comm *comm),    \
      (send, send_counts, send_displs, recv, recv_counts, recv_displs, dtype, par__at_site(comm, site)),     \
      send, send_counts, send_displs, 0, recv, recv_counts, recv_displs, dtype, PAR_SUM, 0)                  \
    X(barrier, BARRIER, (par_comm *comm), (par__at_site(comm, site)),                                        \
      NULL, NULL, NULL, 0, NULL, NULL, NULL, PAR_U8, PAR_SUM, 0)                                             \
    X(send, SEND, (const void *send, size_t count, par_dtype dtype, int peer, par_comm *comm),               \
      (send, count, dtype, peer, par__at_site(comm, site)),                                                  \
      send, NULL, NULL, count, NULL, NULL, NULL, dtype, PAR_SUM, peer)                                       \
    X(recv, RECV, (void *recv, size_t count, par_dtype dtype, int peer, par_comm *comm),                     \
      (recv, count, dtype, peer, par__at_site(comm, site)),                                                  \
      NULL, NULL, NULL, count, recv, NULL, NULL, dtype, PAR_SUM, peer)
PAR__SITED(void *, alloc, (par_comm *comm, size_t bytes), (par__at_site(comm, site), bytes))
PAR__SITED(par_result, split, (par_comm *comm, int color, int key, par_comm **out),
    (par__at_site(comm, site), color, key, out))
PAR__SITED(par_result, close, (par_comm *comm), (par__at_site(comm, site)))
PAR__SITED(par_result, mesh_close, (par_mesh *mesh), (par__mesh_at_site(mesh, site)))
PAR__SITED(par_result, free, (par_comm *comm, void *memory), (par__at_site(comm, site), memory))
PAR__SITED(par_result, mesh_comm, (par_mesh *mesh, const char *axes, par_comm **comm),
    (par__mesh_at_site(mesh, site), axes, comm))
PAR__SITED(par_result, begin, (par_comm *comm, const par_call *call, par_request *request),
    (par__at_site(comm, site), call, request))
PAR__SITED(par_result, sendrecv, (const void *send, size_t send_count, int dest, void *recv,
    size_t recv_count, int source, par_dtype dtype, par_comm *comm),
    (send, send_count, dest, recv, recv_count, source, dtype, par__at_site(comm, site)))
PAR__SITED(par_result, wait_signal, (const uint64_t *word, uint64_t value, par_comm *comm),
    (word, value, par__at_site(comm, site)))
PAR__SITED(par_result, neighbors_open, (par_comm *comm, int degree, const int *peers, const int *sources,
    par_neighbors **neighbors), (par__at_site(comm, site), degree, peers, sources, neighbors))
PAR__SITED(par_result, neighbors_close, (par_neighbors *neighbors), (par__neighbors_at_site(neighbors, site)))
PAR__SITED(par_result, clock_offset, (par_comm *comm, double *offset, double *error),
    (par__at_site(comm, site), offset, error))
#define PAR__X(name, kind, parameters, arguments, ...) PAR__SITED_BOTH(name, parameters, arguments)
PAR_CALLS(PAR__X)
#undef PAR__X
PAR__SITED_BOTH(neighbor_exchange, (const void *send, const size_t *send_counts, const size_t *send_displs,
    void *recv, const size_t *recv_counts, const size_t *recv_displs, par_dtype dtype,
    par_neighbors *neighbors), (send, send_counts, send_displs, recv, recv_counts, recv_displs, dtype,
    par__neighbors_at_site(neighbors, site)))
// clang-format on
#undef PAR__SITED_BOTH
#undef PAR__SITED
#undef PAR__UNWRAP

#define par_alloc(...)                   PAR__WITH_SITE(alloc, __VA_ARGS__)
#define par_split(...)                   PAR__WITH_SITE(split, __VA_ARGS__)
#define par_close(...)                   PAR__WITH_SITE(close, __VA_ARGS__)
#define par_mesh_close(...)              PAR__WITH_SITE(mesh_close, __VA_ARGS__)
#define par_free(...)                    PAR__WITH_SITE(free, __VA_ARGS__)
#define par_mesh_comm(...)               PAR__WITH_SITE(mesh_comm, __VA_ARGS__)
#define par_begin(...)                   PAR__WITH_SITE(begin, __VA_ARGS__)
#define par_all_reduce(...)              PAR__WITH_SITE(all_reduce, __VA_ARGS__)
#define par_all_reduce_begin(...)        PAR__WITH_SITE(all_reduce_begin, __VA_ARGS__)
#define par_reduce_scatter(...)          PAR__WITH_SITE(reduce_scatter, __VA_ARGS__)
#define par_reduce_scatter_begin(...)    PAR__WITH_SITE(reduce_scatter_begin, __VA_ARGS__)
#define par_reduce_scatterv(...)         PAR__WITH_SITE(reduce_scatterv, __VA_ARGS__)
#define par_reduce_scatterv_begin(...)   PAR__WITH_SITE(reduce_scatterv_begin, __VA_ARGS__)
#define par_all_gather(...)              PAR__WITH_SITE(all_gather, __VA_ARGS__)
#define par_all_gather_begin(...)        PAR__WITH_SITE(all_gather_begin, __VA_ARGS__)
#define par_all_gatherv(...)             PAR__WITH_SITE(all_gatherv, __VA_ARGS__)
#define par_all_gatherv_begin(...)       PAR__WITH_SITE(all_gatherv_begin, __VA_ARGS__)
#define par_broadcast(...)               PAR__WITH_SITE(broadcast, __VA_ARGS__)
#define par_broadcast_begin(...)         PAR__WITH_SITE(broadcast_begin, __VA_ARGS__)
#define par_reduce(...)                  PAR__WITH_SITE(reduce, __VA_ARGS__)
#define par_reduce_begin(...)            PAR__WITH_SITE(reduce_begin, __VA_ARGS__)
#define par_gather(...)                  PAR__WITH_SITE(gather, __VA_ARGS__)
#define par_gather_begin(...)            PAR__WITH_SITE(gather_begin, __VA_ARGS__)
#define par_gatherv(...)                 PAR__WITH_SITE(gatherv, __VA_ARGS__)
#define par_gatherv_begin(...)           PAR__WITH_SITE(gatherv_begin, __VA_ARGS__)
#define par_scatter(...)                 PAR__WITH_SITE(scatter, __VA_ARGS__)
#define par_scatter_begin(...)           PAR__WITH_SITE(scatter_begin, __VA_ARGS__)
#define par_scatterv(...)                PAR__WITH_SITE(scatterv, __VA_ARGS__)
#define par_scatterv_begin(...)          PAR__WITH_SITE(scatterv_begin, __VA_ARGS__)
#define par_all_to_all(...)              PAR__WITH_SITE(all_to_all, __VA_ARGS__)
#define par_all_to_all_begin(...)        PAR__WITH_SITE(all_to_all_begin, __VA_ARGS__)
#define par_all_to_allv(...)             PAR__WITH_SITE(all_to_allv, __VA_ARGS__)
#define par_all_to_allv_begin(...)       PAR__WITH_SITE(all_to_allv_begin, __VA_ARGS__)
#define par_barrier(...)                 PAR__WITH_SITE(barrier, __VA_ARGS__)
#define par_barrier_begin(...)           PAR__WITH_SITE(barrier_begin, __VA_ARGS__)
#define par_send(...)                    PAR__WITH_SITE(send, __VA_ARGS__)
#define par_send_begin(...)              PAR__WITH_SITE(send_begin, __VA_ARGS__)
#define par_recv(...)                    PAR__WITH_SITE(recv, __VA_ARGS__)
#define par_recv_begin(...)              PAR__WITH_SITE(recv_begin, __VA_ARGS__)
#define par_sendrecv(...)                PAR__WITH_SITE(sendrecv, __VA_ARGS__)
#define par_clock_offset(...)            PAR__WITH_SITE(clock_offset, __VA_ARGS__)
#define par_wait_signal(...)             PAR__WITH_SITE(wait_signal, __VA_ARGS__)
#define par_neighbors_open(...)          PAR__WITH_SITE(neighbors_open, __VA_ARGS__)
#define par_neighbors_close(...)         PAR__WITH_SITE(neighbors_close, __VA_ARGS__)
#define par_neighbor_exchange(...)       PAR__WITH_SITE(neighbor_exchange, __VA_ARGS__)
#define par_neighbor_exchange_begin(...) PAR__WITH_SITE(neighbor_exchange_begin, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_H

// Stop here if you only use it. -----------------------------------------------------------------------------

// Shared by the implementations of all headers of the kit: hooks, loops that are compiled once for each
// instruction set, so that nobody needs -march, and formulas. X(name, attributes of its functions)
#if PAR_VERSION != 900
#error "this par.h is version 0.9.0, and a par.h of another version came before it: take all from one version"
#endif
#if !defined(PAR__X86) && (defined(PAR_H_IMPLEMENTATION) || defined(PAR_ZERO_IMPLEMENTATION) ||              \
                           defined(PAR_PIPE_IMPLEMENTATION) || defined(PAR_TP_IMPLEMENTATION) ||             \
                           defined(PAR_PLAN_IMPLEMENTATION) || defined(PAR_MPI_IMPLEMENTATION) ||            \
                           defined(PAR_MATH_IMPLEMENTATION) || defined(PAR_CUDA_IMPLEMENTATION))
#if defined(__x86_64__)
#define PAR__X86 1
#else
#define PAR__X86 0
#endif
#if !defined(PAR_MALLOC) && !defined(PAR_REALLOC) && !defined(PAR_FREE)
#include <stdlib.h>
#define PAR_MALLOC(n)     malloc(n)
#define PAR_REALLOC(p, n) realloc(p, n)
#define PAR_FREE(p)       free(p)
#elif !defined(PAR_MALLOC) || !defined(PAR_REALLOC) || !defined(PAR_FREE)
#error "define all of PAR_MALLOC, PAR_REALLOC and PAR_FREE, or none"
#endif
#if !defined(PAR_ASSERT)
#include <assert.h>
#define PAR_ASSERT(c) assert(c)
#endif
#if !defined(PAR_LOG)
#define PAR_LOG(text) par__log_line(text)
#endif
#define PAR__MIN(a, b)   ((a) < (b) ? (a) : (b))
#define PAR__MAX(a, b)   ((a) > (b) ? (a) : (b))
#define PAR__LOAD(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define PAR__STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#if PAR__X86 && !defined(__CUDACC__)
#define PAR__ISAS(X)                                                                                         \
    X(base, )                                                                                                \
    X(avx2, PAR__TARGET_avx2)                                                                                \
    X(avx512, PAR__TARGET_avx512)
#define PAR__TARGET_avx2   __attribute__((target("avx2,fma,f16c")))
#define PAR__TARGET_avx512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c" PAR__WIDE)))
#if defined(__clang__) || __GNUC__ < 10
#define PAR__WIDE "" // clang and gcc 9 cannot name a width here and take 256 bits
#else
#define PAR__WIDE ",prefer-vector-width=512"
#endif
#else
#define PAR__ISAS(X) X(base, )
#endif
#if defined(__CUDACC__)
#define PAR__IVDEP
#define PAR__ROLLED
#elif defined(__clang__) // not in NVCC's host code either
#define PAR__IVDEP _Pragma("clang loop vectorize(assume_safety)")
#define PAR__ROLLED
#else
#define PAR__ROLLED _Pragma("GCC unroll 1") // before a loop that -O3 would unroll instead of vectorizing it
#define PAR__IVDEP  _Pragma("GCC ivdep")
#endif
// From PAR__EXACT_BEGIN to PAR__EXACT_END each operation is rounded by itself. A compiler that fuses a
// product with a sum, where the processor can, gives other bits than for another processor. Loops of layers,
// which are compiled once per instruction set, may be fused; a canonical table of them (PAR__LOOP_EXACT) is
// not. clang decides where it reads a formula, for all tables: where the base instruction set can fuse, it
// fuses none of what stands between PAR__FORMULAS_BEGIN and PAR__FORMULAS_END. In both regions gcc vectorizes
// loops by -O2 alone: before gcc 12 it is told to; it need not care for exceptions that the program does not
// raise, for which it would leave loops with a comparison scalar; nor does it compute in vectors, beside a
// formula, what that makes of the ends of a clamped range (no-thread-jumps).
#if defined(__CUDACC__) || (PAR__X86 && !defined(__FMA__) && !defined(__FMA4__))
#define PAR__BASE_FUSES 0 // can the base instruction set?
#else
#define PAR__BASE_FUSES 1
#endif
#define PAR__LOOP_OPTIONS     "no-trapping-math", "no-thread-jumps", "tree-loop-vectorize"
#define PAR__OPTIMIZE_BY(...) _Pragma("GCC push_options") PAR__PRAGMA(GCC optimize(__VA_ARGS__))
// All in one pragma: of two gcc may forget the second.
#define PAR__OPTIMIZE(...) PAR__OPTIMIZE_BY(__VA_ARGS__)
#if defined(__clang__) && !defined(__CUDACC__)
#define PAR__EXACT
#define PAR__EXACT_BEGIN _Pragma("STDC FP_CONTRACT OFF")
#define PAR__EXACT_END   _Pragma("STDC FP_CONTRACT DEFAULT")
#elif !defined(__CUDACC__)
#define PAR__EXACT       __attribute__((optimize("fp-contract=off")))
#define PAR__EXACT_BEGIN PAR__OPTIMIZE(PAR__LOOP_OPTIONS, "fp-contract=off")
#define PAR__EXACT_END   _Pragma("GCC pop_options")
#else
#define PAR__EXACT
#define PAR__EXACT_BEGIN
#define PAR__EXACT_END
#endif
#if defined(__clang__) && PAR__BASE_FUSES
#define PAR__FORMULAS_BEGIN PAR__EXACT_BEGIN
#define PAR__FORMULAS_END   PAR__EXACT_END
#elif !defined(__clang__) && !defined(__CUDACC__)
#define PAR__FORMULAS_BEGIN PAR__OPTIMIZE(PAR__LOOP_OPTIONS)
#define PAR__FORMULAS_END   _Pragma("GCC pop_options")
#else
#define PAR__FORMULAS_BEGIN
#define PAR__FORMULAS_END
#endif
#define PAR__STRIP       64 // elements of an inner loop
#define PAR__INLINE_LOOP static inline __attribute__((always_inline))
PAR__INLINE_LOOP size_t par__round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }
// Elements first ... first + lanes - 1 of a loop. A sum adds element i to lane `lane`.
#define PAR__LANES(i, first, lanes, ...)                                                                     \
    PAR__IVDEP for (size_t lane = 0; lane < (lanes); lane++) {                                               \
        const size_t i = (first) + lane;                                                                     \
        __VA_ARGS__;                                                                                         \
    }
// Each element i of n: PAR__STRIP at a time, then 16, then one.
#define PAR__VECTOR(i, n, ...)                                                                               \
    do {                                                                                                     \
        const size_t i##_n = (n);                                                                            \
        size_t i##_0 = 0;                                                                                    \
        for (; i##_0 + PAR__STRIP <= i##_n; i##_0 += PAR__STRIP)                                             \
            PAR__LANES(i, i##_0, PAR__STRIP, __VA_ARGS__)                                                    \
        for (; i##_0 + 16 <= i##_n; i##_0 += 16) PAR__LANES(i, i##_0, 16, __VA_ARGS__)                       \
        for (size_t i = i##_0; i < i##_n; i++) {                                                             \
            const size_t lane = i & 15u;                                                                     \
            __VA_ARGS__;                                                                                     \
            (void)lane;                                                                                      \
        }                                                                                                    \
    } while (0)
// The table for this processor: name_base, name_avx2 or name_avx512; PAR_ISA limits it.
#if PAR__X86 && !defined(__CUDACC__)
#define PAR__PICK(name) (par__isa() >= 2 ? &name##_avx512 : par__isa() == 1 ? &name##_avx2 : &name##_base)
#else
#define PAR__PICK(name) (&name##_base)
#endif
// The table that fuses nothing.
#if PAR__BASE_FUSES
#define PAR__PICK_EXACT(name) (&name##_exact)
#else
#define PAR__PICK_EXACT(name) (&name##_base)
#endif
// A table of loops for each instruction set. LIST(X, P) has a row X(P, result, name, parameters, arguments)
// for each inline function P##name; PAR__LOOP_TABLES defines the type P##loops and the tables P##loops_base,
// ...
#define PAR__MEMBER(P, result, name, parameters, arguments) result(*name) parameters;
// ISO C lets a function of void return no value, not even one of void.
#define PAR__RETURN_void
#define PAR__RETURN_float    return
#define PAR__RETURN_double   return
#define PAR__RETURN_uint64_t return
#define PAR__CLONE(I, TARGET, LANES, P, result, name, parameters, arguments)                                 \
    TARGET static result P##name##_##I parameters {                                                          \
        enum { PAR__ISA_LANES = LANES }; /* for the arguments: floats of a vector */                         \
        PAR__RETURN_##result P##name arguments;                                                              \
    }
#define PAR__CLONE_avx512(...) PAR__CLONE(avx512, PAR__TARGET_avx512, 16, __VA_ARGS__)
#define PAR__CLONE_exact(...)  PAR__CLONE(exact, PAR__EXACT, 4, __VA_ARGS__)
// Where the base has these instructions, by -march=native, say, it has the same code.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define PAR__CLONE_base(...) PAR__CLONE(base, , 8, __VA_ARGS__)
#define PAR__CLONE_avx2(...)
#define PAR__CLONED_avx2(P, result, name, parameters, arguments) P##name##_base,
#else
#define PAR__CLONE_base(...) PAR__CLONE(base, , 4, __VA_ARGS__)
#define PAR__CLONE_avx2(...) PAR__CLONE(avx2, PAR__TARGET_avx2, 8, __VA_ARGS__)

#define PAR__CLONED_avx2(P, result, name, parameters, arguments) P##name##_avx2,
#endif
#define PAR__CLONED_exact(P, result, name, parameters, arguments)  P##name##_exact,
#define PAR__CLONED_base(P, result, name, parameters, arguments)   P##name##_base,
#define PAR__CLONED_avx512(P, result, name, parameters, arguments) P##name##_avx512,
#define PAR__LOOP_TABLE(I, P, LIST)                                                                          \
    LIST(PAR__CLONE_##I, P)                                                                                  \
    static const P##loops P##loops_##I = {LIST(PAR__CLONED_##I, P)};
#define PAR__LOOP_TABLES(P, LIST)                                                                            \
    typedef struct P##loops {                                                                                \
        LIST(PAR__MEMBER, P)                                                                                 \
    } P##loops;                                                                                              \
    PAR__LOOP_EVERY(P, LIST)
#if PAR__X86 && !defined(__CUDACC__)
#define PAR__LOOP_EVERY(P, LIST)                                                                             \
    PAR__LOOP_TABLE(base, P, LIST) PAR__LOOP_TABLE(avx2, P, LIST) PAR__LOOP_TABLE(avx512, P, LIST)
#else
#define PAR__LOOP_EVERY(P, LIST) PAR__LOOP_TABLE(base, P, LIST)
#endif

#if PAR__BASE_FUSES
#define PAR__LOOP_EXACT(P, LIST) PAR__LOOP_TABLE(exact, P, LIST)
#else
#define PAR__LOOP_EXACT(P, LIST)
#endif

// A thread of the kit's own, as by pthread_create. The program's signals go to the program's threads.
#include <pthread.h>
PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif
int par__create_thread(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *user);
#ifdef __cplusplus
}
#endif
PAR__API_END

// Formulas that the CPU's loops and a device's kernels share.
#include <math.h>
#include <string.h>
#if PAR__X86 && !defined(__CUDACC__)
#pragma GCC diagnostic push
#if !defined(__clang__) // g++ 12 takes some of its own for uninitialized
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif
#if defined(__CUDACC__)
#define PAR__HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define PAR__HOST_DEVICE PAR__INLINE_LOOP
#endif
// A device has functions and instructions of its own, but where it is to have the CPU's bits.
#if defined(__CUDA_ARCH__) && !defined(PAR_CUDA_CANONICAL)
#define PAR__OF_DEVICE 1
#else
#define PAR__OF_DEVICE 0
#endif
PAR__HOST_DEVICE float par__bits_to_f32(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
PAR__HOST_DEVICE uint32_t par__f32_to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

// Functions of doubles, to a few units in the last place. C libraries differ in these bits; here each
// function is one sequence of operations, the same with every compiler and on every processor. A device has
// its own.
PAR__EXACT_BEGIN
PAR__HOST_DEVICE double par__bits_to_f64(uint64_t bits) {
    double f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
PAR__HOST_DEVICE uint64_t par__f64_to_bits(double f) {
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
PAR__HOST_DEVICE double par__u32_to_f64(uint64_t x) { // x < 2^32, by instructions that every processor has
    return par__bits_to_f64(x | 0x4330000000000000u) - 0x1p52;
}
// A product that is rounded before it is added: nvcc would fuse both, and a device have other bits.
#if defined(__CUDA_ARCH__)
#define PAR__TIMES(x, y) __dmul_rn(x, y)
#else
#define PAR__TIMES(x, y) ((x) * (y))
#endif
// log(u) for finite u from 2^-64 on. u = 2^e m with m in [sqrt(1/2), sqrt(2)), and
// log(m) = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1)/(m + 1).
PAR__HOST_DEVICE double par__log_finite(double u) {
    const uint64_t bits = par__f64_to_bits(u), e = (bits - 0x3FE6A09E667F3BCDu + ((uint64_t)64 << 52)) >> 52;
    const double m = par__bits_to_f64(bits - ((e - 64) << 52)), power = par__u32_to_f64(e) - 64;
    const double s = (m - 1) / (m + 1), z = s * s;
    double p = 2.0 / 21;
    p = PAR__TIMES(p, z) + 2.0 / 19;
    p = PAR__TIMES(p, z) + 2.0 / 17;
    p = PAR__TIMES(p, z) + 2.0 / 15;
    p = PAR__TIMES(p, z) + 2.0 / 13;
    p = PAR__TIMES(p, z) + 2.0 / 11;
    p = PAR__TIMES(p, z) + 2.0 / 9;
    p = PAR__TIMES(p, z) + 2.0 / 7;
    p = PAR__TIMES(p, z) + 2.0 / 5;
    p = PAR__TIMES(p, z) + 2.0 / 3;
    return PAR__TIMES(power, 0x1.62e42fefa3800p-1) +
           (PAR__TIMES(2, s) +
            (PAR__TIMES(s * z, p) + PAR__TIMES(power, 0x1.ef35793c76730p-45))); // times log(2)
}
PAR__HOST_DEVICE double par__log(double x) { // x is 0, infinite, NaN, or at least 2^-64
#if PAR__OF_DEVICE
    return log(x);
#else
    return x > 0 && x < INFINITY ? par__log_finite(x) : x == 0 ? -INFINITY : x;
#endif
}
// e^x, where x below -708 counts as -708, and above 709 as 709. x = n log(2) + r; e^r by its series.
PAR__HOST_DEVICE double par__exp(double x) {
#if PAR__OF_DEVICE
    return exp(x);
#else
    x = x < -708 ? -708 : x > 709 ? 709 : x;
    const double shifted = x * 0x1.71547652b82fep+0 + 0x1.8p52, n = shifted - 0x1.8p52; // an integer
    const double r = (x - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;
    double p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    return (1 + (r + r * r * p)) * par__bits_to_f64((par__f64_to_bits(shifted) + 1023) << 52);
#endif
}
PAR__HOST_DEVICE double par__pow(double x, double y) { // x > 0
#if PAR__OF_DEVICE
    return pow(x, y);
#else
    return par__exp(y * par__log(x));
#endif
}
PAR__HOST_DEVICE double par__power(double x, uint64_t n) { // x^n by squares
    double y = 1;
    for (; n; n >>= 1, x *= x)
        if (n & 1) y *= x;
    return y;
}
// sqrt(x) for x > 0, by Newton's method for 1/sqrt(x); compilers do not vectorize sqrt, which sets errno.
PAR__HOST_DEVICE double par__sqrt(double x) {
    double y = par__bits_to_f64(0x5FE6EB50C7B537AAu - (par__f64_to_bits(x) >> 1));
    y = y * (1.5 - PAR__TIMES(0.5 * x * y, y));
    y = y * (1.5 - PAR__TIMES(0.5 * x * y, y));
    y = y * (1.5 - PAR__TIMES(0.5 * x * y, y));
    y = y * (1.5 - PAR__TIMES(0.5 * x * y, y));
    return x * y;
}
// cos(x + (quarter - k) pi/2) by the series about k pi/2, the multiple of pi/2 that is nearest to x; |k| is
// at most 2^20.
PAR__HOST_DEVICE double par__cos_about(double x, double k, uint64_t quarter) {
    const uint64_t odd = 0 - (quarter & 1);
    const double r = ((x - PAR__TIMES(k, 0x1.921fb544p+0)) - PAR__TIMES(k, 0x1.0b4611a6p-34)) -
                     PAR__TIMES(k, 0x1.3198a2e037073p-69),
                 z = r * r;
    double c = -1.0 / 6402373705728000, s = 1.0 / 355687428096000;
    c = PAR__TIMES(c, z) + 1.0 / 20922789888000;
    s = PAR__TIMES(s, z) - 1.0 / 1307674368000;
    c = PAR__TIMES(c, z) - 1.0 / 87178291200;
    s = PAR__TIMES(s, z) + 1.0 / 6227020800;
    c = PAR__TIMES(c, z) + 1.0 / 479001600;
    s = PAR__TIMES(s, z) - 1.0 / 39916800;
    c = PAR__TIMES(c, z) - 1.0 / 3628800;
    s = PAR__TIMES(s, z) + 1.0 / 362880;
    c = PAR__TIMES(c, z) + 1.0 / 40320;
    s = PAR__TIMES(s, z) - 1.0 / 5040;
    c = PAR__TIMES(c, z) - 1.0 / 720;
    s = PAR__TIMES(s, z) + 1.0 / 120;
    c = PAR__TIMES(c, z) + 1.0 / 24;
    s = PAR__TIMES(s, z) - 1.0 / 6;
    c = PAR__TIMES(c, z) - 0.5;
    const uint64_t bits =
        (par__f64_to_bits(r + PAR__TIMES(r * z, s)) & odd) | (par__f64_to_bits(1 + PAR__TIMES(z, c)) & ~odd);
    return par__bits_to_f64(bits ^ ((quarter + 1) & 2) << 62);
}
// cos(x + quarters pi/2) for |x| up to 2^20
PAR__HOST_DEVICE double par__cos_turned(double x, uint64_t quarters) {
    const double shifted = x * 0x1.45f306dc9c883p-1 + 0x1.8p52; // its last bits are those of the integer k
    return par__cos_about(x, shifted - 0x1.8p52, par__f64_to_bits(shifted) + quarters);
}
PAR__HOST_DEVICE double par__cos(double x) {
#if PAR__OF_DEVICE
    return cos(x);
#else
    return par__cos_turned(x, 0);
#endif
}
PAR__HOST_DEVICE double par__sin(double x) {
#if PAR__OF_DEVICE
    return sin(x);
#else
    return par__cos_turned(x, 3);
#endif
}
PAR__EXACT_END

PAR__FORMULAS_BEGIN
PAR__HOST_DEVICE float par__bf16_widen(par_bf16 h) { return par__bits_to_f32((uint32_t)h << 16); }
PAR__HOST_DEVICE par_bf16 par__bf16_narrow(float f) {
    uint32_t b = par__f32_to_bits(f);
    uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
    uint32_t nan = (b >> 16) | 0x40u; // stays a NaN
    return (uint16_t)((b & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// Without branches, so that loops over it vectorize. Widening shifts the bits into place; a float
// multiplication by 2^112 adjusts the exponent's bias, which also converts subnormals correctly. Infinities
// and NaNs are corrected at the end.
PAR__HOST_DEVICE float par__f16_widen(par_f16 h) {
    uint32_t magnitude = ((uint32_t)h & 0x7fffu) << 13;
    uint32_t bits = par__f32_to_bits(par__bits_to_f32(magnitude) * 5.192296858534828e33f);
    bits = magnitude >= 0x0f800000u ? (magnitude | 0x7f800000u) : bits;
    return par__bits_to_f32(bits | ((uint32_t)h & 0x8000u) << 16);
}
// Narrowing: normal results are rounded by adding half of the last place kept; for subnormal results the
// addition of 0.5 aligns and rounds the bits. Everything from 65520 up becomes infinity.
PAR__HOST_DEVICE par_f16 par__f16_narrow(float f) {
    uint32_t b = par__f32_to_bits(f), sign = (b >> 16) & 0x8000u, magnitude = b & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t tiny = par__f32_to_bits(par__bits_to_f32(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t out = magnitude < 0x38800000u ? tiny : normal;
    out = PAR__MIN(out, 0x7c00u) | (magnitude > 0x7f800000u ? 0x200u : 0);
    return (par_f16)(out | sign);
}

// Floats of 8 bits with `mantissa` bits of mantissa and this bias of the exponent, without branches. Widening
// shifts the bits of a normal number and rebases its exponent; a subnormal one is read as if its hidden bit
// were 1, which a subtraction takes away. Codes from `special` on are no finite numbers: they get f32's
// largest exponent.
PAR__HOST_DEVICE float par__f8_widen(uint8_t x, uint32_t mantissa, uint32_t bias, uint32_t special) {
    const uint32_t code = x & 0x7fu, magnitude = code << (23 - mantissa);
    const uint32_t rebase = (127 - bias) << 23, least = (128 - bias) << 23; // the least normal number
    const uint32_t tiny = par__f32_to_bits(par__bits_to_f32(magnitude + least) - par__bits_to_f32(least));
    uint32_t bits = code >> mantissa ? magnitude + rebase : tiny;
    bits = code >= special ? magnitude | 0x7f800000u : bits;
    return par__bits_to_f32(bits | ((uint32_t)x & 0x80u) << 24);
}
// Narrowing rounds as par__f16_narrow does; the number that is added for subnormal results is the f32 whose
// last place is the least subnormal number. What is beyond the largest finite number becomes that.
PAR__HOST_DEVICE uint8_t par__f8_narrow(float f, uint32_t mantissa, uint32_t bias, uint32_t special,
                                        uint32_t nan) {
    const uint32_t b = par__f32_to_bits(f), magnitude = b & 0x7fffffffu, shift = 23 - mantissa;
    const uint32_t rebase = (127 - bias) << 23, align = (151 - bias - mantissa) << 23;
    const uint32_t half = (1u << (shift - 1)) - 1;
    const uint32_t normal = (magnitude - rebase + half + ((magnitude >> shift) & 1u)) >> shift;
    const uint32_t tiny = par__f32_to_bits(par__bits_to_f32(magnitude) + par__bits_to_f32(align)) - align;
    uint32_t code = magnitude < rebase + (1u << 23) ? tiny : normal;
    code = code >= special ? special - 1 : code;
    code = magnitude > 0x7f800000u ? nan : code;
    return (uint8_t)(code | (b >> 24 & 0x80u));
}
PAR__HOST_DEVICE float par__f8_e4m3_widen(par_f8_e4m3 x) { return par__f8_widen(x, 3, 7, 0x7f); }
PAR__HOST_DEVICE par_f8_e4m3 par__f8_e4m3_narrow(float f) { return par__f8_narrow(f, 3, 7, 0x7f, 0x7f); }
PAR__HOST_DEVICE float par__f8_e5m2_widen(par_f8_e5m2 x) { return par__f8_widen(x, 2, 15, 0x7c); }
PAR__HOST_DEVICE par_f8_e5m2 par__f8_e5m2_narrow(float f) { return par__f8_narrow(f, 2, 15, 0x7c, 0x7e); }
PAR__FORMULAS_END

// A double must not be rounded twice on its way to a narrow float: round to f32 toward odd first, then to the
// narrow type.
PAR__HOST_DEVICE float par__f32_round_to_odd(double x) {
    float f = (float)x;
    uint32_t bits = par__f32_to_bits(f);
    if ((double)f == x || x != x || (bits & 0x7fffffffu) == 0x7f800000u) return f;
    if ((bits & 1u) == 0) bits = fabs((double)f) < fabs(x) ? bits + 1 : bits - 1;
    return par__bits_to_f32(bits);
}

// What depends on a dtype's family. ROUND converts a double: to integers it truncates and saturates, and NaN
// gives 0.
#define PAR__IS_FLOAT_FLOAT                   1
#define PAR__IS_FLOAT_NARROW                  1
#define PAR__IS_FLOAT_SIGNED                  0
#define PAR__IS_FLOAT_UNSIGNED                0
#define PAR__IS_SIGNED_FLOAT                  1
#define PAR__IS_SIGNED_NARROW                 1
#define PAR__IS_SIGNED_SIGNED                 1
#define PAR__IS_SIGNED_UNSIGNED               0
#define PAR__WIDEN_FLOAT(name, x)             (x)
#define PAR__WIDEN_NARROW(name, x)            par__##name##_widen(x)
#define PAR__WIDEN_SIGNED(name, x)            (x)
#define PAR__WIDEN_UNSIGNED(name, x)          (x)
#define PAR__ROUND_FLOAT(name, type, max, x)  (type)(x)
#define PAR__ROUND_NARROW(name, type, max, x) par__##name##_narrow(par__f32_round_to_odd(x))
#define PAR__ROUND_SIGNED(name, type, max, x)                                                                \
    (x) != (x)                  ? (type)0                                                                    \
    : (x) <= -1 - (double)(max) ? (type)(-1 - (max))                                                         \
    : (x) >= (double)(max)      ? (type)(max)                                                                \
                                : (type)(x)
#define PAR__ROUND_UNSIGNED(name, type, max, x)                                                              \
    (x) >= (double)(max) ? (type)(max) : (x) > 0 ? (type)(x) : (type)0

PAR__HOST_DEVICE int par__is_float(par_dtype d) {
#define PAR__X(constant, name, type, sums, family, ...) | (unsigned)PAR__IS_FLOAT_##family << constant
    return (unsigned)d < PAR_DTYPE_COUNT && (0u PAR_DTYPES(PAR__X)) >> d & 1u;
#undef PAR__X
}
// Loads and stores of one element as the widest type of its family.
PAR__HOST_DEVICE double par__get_f64(const void *p, par_dtype d, size_t i) {
#define PAR__X(constant, name, type, sums, family, ...)                                                      \
    case constant: return (double)PAR__WIDEN_##family(name, ((const type *)p)[i]);
    switch (d) {
        PAR_DTYPES(PAR__X)
    default: return 0;
    }
#undef PAR__X
}
PAR__HOST_DEVICE void par__put_f64(void *p, par_dtype d, size_t i, double x) {
#define PAR__X(constant, name, type, sums, family, accumulator, max, ...)                                    \
    case constant: ((type *)p)[i] = PAR__ROUND_##family(name, type, max, x); break;
    switch (d) {
        PAR_DTYPES(PAR__X)
    default: break;
    }
#undef PAR__X
}
PAR__HOST_DEVICE uint64_t par__get_u64(const void *p, par_dtype d, size_t i) { // integers, sign-extended
#define PAR__X(constant, name, type, ...)                                                                    \
    case constant: return (uint64_t)(int64_t)((const type *)p)[i];
    switch (d) {
        PAR_DTYPES(PAR__X)
    default: return 0;
    }
#undef PAR__X
}
PAR__HOST_DEVICE void par__put_u64(void *p, par_dtype d, size_t i, uint64_t x) { // integers, wrapping
#define PAR__X(constant, name, type, ...)                                                                    \
    case constant: ((type *)p)[i] = (type)x; break;
    switch (d) {
        PAR_DTYPES(PAR__X)
    default: break;
    }
#undef PAR__X
}
PAR__HOST_DEVICE void par__cast_one(void *dst, par_dtype dt, const void *src, par_dtype st, size_t i) {
    if (par__is_float(dt) || par__is_float(st))
        par__put_f64(dst, dt, i, par__get_f64(src, st, i));
    else
        par__put_u64(dst, dt, i, par__get_u64(src, st, i));
}

#endif

#if defined(PAR_H_IMPLEMENTATION) && !defined(PAR_H_IMPLEMENTED)
#define PAR_H_IMPLEMENTED
// Within the implementation the macros of functions that record call sites are these functions.
#pragma push_macro("PAR__WITH_SITE")
#undef PAR__WITH_SITE
#define PAR__WITH_SITE(name, ...) par_##name(__VA_ARGS__)
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__GLIBC__) && !defined(__USE_MISC)
#error "with -std=c11, include par.h before the system's headers, or compile with -D_DEFAULT_SOURCE"
#endif
#define PAR__SET_PTRACER 0x59616d61 // PR_SET_PTRACER, which musl lacks

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// >>platform ------------------------------------------------------------------------------------------------

// The kernel's, whose headers not every C library brings along.
enum { PAR__FUTEX_WAIT = 0, PAR__FUTEX_WAKE = 1, PAR__FALLOC_KEEP_SIZE = 1, PAR__FALLOC_PUNCH_HOLE = 2 };

static void par__cpu_relax(void) {
#if PAR__X86
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// A full barrier: all ranks see the stores before it before any load after it is done.
static void par__fence(void) {
#if PAR__X86
    __asm__ volatile("lock; orl $0, (%%rsp)" ::
                         : "memory", "cc"); // cheaper than mfence; sanitizers know no fence
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

int par__create_thread(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *user) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, how, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

// Prefetch a cache line for writing, so that the store need not wait for the peers that have read it.
static void par__prefetch_for_write(void *cache_line) {
#if PAR__X86
    __asm__ volatile("prefetchw %0" ::"m"(*(char *)cache_line));
#else
    __builtin_prefetch(cache_line, 1);
#endif
}

// A clock that takes some 10 ns: ticks of unknown length, converted to seconds by comparison with the
// system's clock.
static uint64_t par__ticks(void) {
#if PAR__X86
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static double par__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct par__timestamp { // the same moment on both clocks
    double seconds;
    uint64_t ticks;
} par__timestamp;

// Of eight readings, the one that took the least time: this rank may lose its processor between the two
// clocks.
static par__timestamp par__read_clocks(void) {
    par__timestamp best;
    uint64_t min = UINT64_MAX;
    memset(&best, 0, sizeof best);
    for (int i = 0; i < 8; i++) {
        const uint64_t before = par__ticks();
        const double seconds = par__now();
        const uint64_t took = par__ticks() - before;
        if (took < min) {
            min = took;
            best.seconds = seconds;
            best.ticks = before + took / 2;
        }
    }
    return best;
}

typedef struct par__process_info {
    int runs;      // it is there, and no zombie
    uint64_t born; // in ticks since the machine's start: another process with its number has another one
} par__process_info;
static par__process_info par__process(int pid) {
    par__process_info p = {0, 0};
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    const char *at = strrchr(text, ')'); // the name before it may have blanks
    char state = 0;
    unsigned long long born = 0;
    if (at &&
        sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &state, &born) == 2)
        p.runs = state != 'Z' && state != 'X';
    p.born = born;
    return p;
}

static void par__futex_wait(uint32_t *word, uint32_t seen, long nanoseconds) {
    struct timespec t;
    t.tv_sec = 0;
    t.tv_nsec = nanoseconds;
    syscall(SYS_futex, word, PAR__FUTEX_WAIT, seen, &t, NULL, 0);
}

static void par__futex_wake(uint32_t *word) {
    syscall(SYS_futex, word, PAR__FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int par__safe_fd(int fd) {
    if (fd < 0 || (fd > 2 && !fcntl(fd, F_SETFD, FD_CLOEXEC))) return fd;
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3), e = own < 0 && errno == EINVAL ? EMFILE : errno;
    close(fd);
    return errno = e, own;
}
FILE *par__fopen_write(const char *path) {
    const int fd = par__safe_fd(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd >= 0 && !f) {
        close(fd);
        errno = ENOMEM;
    }
    return f;
}

typedef struct par__errno_text {
    char text[128];
} par__errno_text;
static par__errno_text par__strerror(int e) { // strerror, and the limit that was reached
    par__errno_text r;
    struct rlimit l;
    snprintf(r.text, sizeof r.text, "%s", strerror(e));
    if (e == ENFILE) snprintf(r.text, sizeof r.text, "%s (sysctl fs.file-max)", strerror(e));
    if (e == EMFILE && !getrlimit(RLIMIT_NOFILE, &l))
        snprintf(r.text, sizeof r.text, "%s (the limit is %llu: ulimit -n)", strerror(e),
                 (unsigned long long)l.rlim_cur);
    return r;
}
// Raise the soft limit of descriptors so that `max` more can be opened, and `min` at least. The limit is
// raised by max where max is more than half of it, up to the hard limit, so that the program can still open
// as many as before; processes that this one starts inherit it. It is not raised further, because select()
// works only with small numbers. 0: the hard limit is too low.
static int par__raise_fd_limit(size_t min, size_t max) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) || max <= l.rlim_cur / 2) return 1;
    l.rlim_cur = l.rlim_max - l.rlim_cur < max ? l.rlim_max : l.rlim_cur + max;
    return setrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur > min;
}

int par__open_replace(const char *path) {
    unlink(path);
    return par__safe_fd(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}
void *par__set_c_locale(void) {
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return plain ? (void *)uselocale(plain) : NULL;
}
void par__restore_locale(void *before) {
    if (before) freelocale(uselocale((locale_t)before));
}

// System calls and constants that the C library declares only with _GNU_SOURCE.
static int par__memfd_create(const char *name) {
    return par__safe_fd((int)syscall(SYS_memfd_create, name, 3u /* close on exec, may be sealed */));
}
enum { PAR__F_ADD_SEALS = 1033, PAR__F_GET_SEALS = 1034, PAR__F_SEAL_SIZE = 7 }; // shrink, grow, seal
static uint32_t par__peer_uid(int fd) { // of a Unix socket's other end, from the kernel; -1: unknown
    struct {
        int32_t pid;
        uint32_t user, group;
    } peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) ? UINT32_MAX : peer.user;
}
static int par__fallocate(int fd, int mode, uint64_t at, uint64_t bytes) {
    return (int)syscall(SYS_fallocate, fd, mode, (off_t)at, (off_t)bytes);
}
// The one cast of const for the system: an iovec has none, though memory that is sent is not written.
static struct iovec par__iovec(const void *memory, size_t bytes) {
    struct iovec part;
    part.iov_base = (void *)(uintptr_t)memory;
    part.iov_len = bytes;
    return part;
}
void par__log_line(const char *text) { // in one write, and with little stack: fprintf takes 8 KiB
    const struct iovec parts[3] = {par__iovec("par: ", 5), par__iovec(text, strlen(text)),
                                   par__iovec("\n", 1)};
    if (writev(2, parts, 3) < 0) return; // there is nobody to tell
}
// Cross memory attach: copy between `local` and an address in another process; put 1: to it. 0, or errno.
static int par__cma_copy(int pid, struct iovec local, uintptr_t remote, int put) {
    const size_t max = (size_t)1 << 30;
    for (size_t at = 0; at < local.iov_len;) {
        struct iovec l, r;
        l.iov_base = (char *)local.iov_base + at;
        r.iov_base = (void *)(remote + at);
        l.iov_len = r.iov_len = PAR__MIN(local.iov_len - at, max);
        const long n =
            syscall(put ? SYS_process_vm_writev : SYS_process_vm_readv, pid, &l, 1ul, &r, 1ul, 0ul);
        if (n <= 0) return n < 0 ? errno : EFAULT;
        at += (size_t)n;
    }
    return 0;
}
int par__getrandom_u64(uint64_t *number) {
    for (size_t at = 0; at < sizeof *number;) {
        const long n = syscall(SYS_getrandom, (char *)number + at, sizeof *number - at, 0u);
        if (n < 0 && errno != EINTR) return errno;
        if (n > 0) at += (size_t)n;
    }
    return 0;
}
enum { PAR__CPU_MAX = 8192 };
typedef struct par__cpu_set { // processors, a bit each, as the kernel has them
    uint64_t word[PAR__CPU_MAX / 64];
} par__cpu_set;
static int par__cpu_in(const par__cpu_set *s, int cpu) { return (int)(s->word[cpu / 64] >> cpu % 64 & 1u); }
static void par__cpu_add(par__cpu_set *s, int cpu) { s->word[cpu / 64] |= (uint64_t)1 << cpu % 64; }
static int par__cpu_count(const par__cpu_set *s) {
    int n = 0;
    for (int i = 0; i < PAR__CPU_MAX / 64; i++) n += __builtin_popcountll(s->word[i]);
    return n;
}
static int par__get_cpus(int thread,
                         par__cpu_set *s) { // where it may run; 0: this thread. Returns 0 if unknown
    memset(s, 0, sizeof *s);
    return syscall(SYS_sched_getaffinity, thread, sizeof *s, s) > 0;
}
static int par__set_cpus(const par__cpu_set *s) { // of this thread
    return syscall(SYS_sched_setaffinity, 0, sizeof *s, s) == 0;
}
static int par__available_cpus(void) { // processors that this thread may run on
    par__cpu_set mine;
    const int n = par__get_cpus(0, &mine) ? par__cpu_count(&mine) : 0;
    return n > 0 ? n : PAR__MAX(1, (int)sysconf(_SC_NPROCESSORS_ONLN));
}

static int par__thread_count(void) { // of this process; 1 if unknown
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    int threads = 1;
    if (!f) return 1;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "Threads: %d", &threads) == 1) break;
    fclose(f);
    return threads;
}

int par__open_read(const char *path, size_t *bytes, char *why, size_t why_bytes) {
    struct stat st;
    const int fd = par__safe_fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    const char *what = "is not a regular file";
    *bytes = 0;
    if (fd < 0 || fstat(fd, &st)) {
        snprintf(why, why_bytes, "cannot open %s: %s", path, strerror(errno));
    } else if (S_ISREG(st.st_mode)) {
        return *bytes = (size_t)st.st_size, fd;
    } else {
        if (S_ISFIFO(st.st_mode)) what = "is a FIFO, not a regular file";
        if (S_ISDIR(st.st_mode)) what = "is a directory, not a regular file";
        snprintf(why, why_bytes, "cannot read %s: it %s", path, what);
    }
    if (fd >= 0) close(fd);
    return -1;
}

static void *par__zalloc(size_t bytes) {
    void *p = PAR_MALLOC(bytes ? bytes : 1);
    if (p) memset(p, 0, bytes);
    return p;
}

// >>types ---------------------------------------------------------------------------------------------------

#define PAR__X(constant, name, type, sums, family, accumulator, max, mpi, nccl, cuda, safetensors)           \
    {#name,         sizeof(type), PAR__IS_FLOAT_##family, PAR__IS_SIGNED_##family, accumulator,              \
     (double)(max), safetensors},
static const par_dtype_traits par__dtypes[] = {
    PAR_DTYPES(PAR__X) // and of what is none:
    {"(no par_dtype)", 0, 0, 0, PAR_DTYPE_COUNT, 0, "(no par_dtype)"}};
#undef PAR__X
#define PAR__X(name, text) text,
static const char *const par__op_names[] = {PAR_OPS(PAR__X)};
static const char *const par__result_texts[] = {PAR_RESULTS(PAR__X)};
#undef PAR__X
#define PAR__X(name, text) #name,
static const char *const par__result_names[] = {PAR_RESULTS(PAR__X)};
#undef PAR__X
#define PAR__X(kind, name, send, recv, counts, takes, runs)                                                  \
    {name, PAR_SIDE_##send, PAR_SIDE_##recv, PAR_COUNTS_##counts, PAR_TAKES_##takes, PAR_RUNS_##runs},
static const par_kind_traits par__kinds[] = {
    PAR_KINDS(PAR__X) // and of an invalid kind:
    {"(no par_kind)", PAR_SIDE_NONE, PAR_SIDE_NONE, PAR_COUNTS_NONE, PAR_TAKES_NONE, PAR_RUNS_EAGER}};
#undef PAR__X

const char *par_result_name(par_result r) {
    return (unsigned)r < PAR_RESULT_COUNT ? par__result_names[r] : "(no par_result)";
}
const char *par_result_text(par_result r) {
    return (unsigned)r < PAR_RESULT_COUNT ? par__result_texts[r] : "(no par_result)";
}
const par_kind_traits *par_kind_traits_of(par_kind k) {
    return &par__kinds[(unsigned)k < PAR_KIND_COUNT ? k : PAR_KIND_COUNT];
}
const char *par_kind_name(par_kind k) { return par_kind_traits_of(k)->name; }
static int par__takes_root(par_kind k) { return (par__kinds[k].takes & PAR_TAKES_ROOT) != 0; }
static int par__takes_op(par_kind k) { return (par__kinds[k].takes & PAR_TAKES_OP) != 0; }
static int par__is_all_reduce(par_kind k) { // or like it: all ranks get the reduction of whole arrays
    return par__kinds[k].takes == PAR_TAKES_OP && par__kinds[k].send == par__kinds[k].recv;
}
static int par__is_message(par_kind k) { return par__kinds[k].takes == PAR_TAKES_PEER; }
static int par__is_exchange(par_kind k) { return par__kinds[k].takes == PAR_TAKES_NEIGHBORS; }
static int par__takes_tag(par_kind k) { return !(par__kinds[k].takes & (PAR_TAKES_ROOT | PAR_TAKES_PEER)); }
static int par__root_or_tag(const par_call *k) { return k->root | k->tag; } // par__complete_call clears one
const par_dtype_traits *par_dtype_traits_of(par_dtype d) {
    return &par__dtypes[(unsigned)d < PAR_DTYPE_COUNT ? d : PAR_DTYPE_COUNT];
}
size_t par_dtype_bytes(par_dtype d) { return par_dtype_traits_of(d)->bytes; }
const char *par_dtype_name(par_dtype d) { return par_dtype_traits_of(d)->name; }

// An operator's number is in its low 8 bits; a scaled sum has the upper 56 bits of its factor above them.
static unsigned par__op_code(par_op op) { return (unsigned)(op & 255u); }
const char *par__op_error(par_op op, par_dtype dtype) {
    const unsigned code = par__op_code(op);
    if ((unsigned)dtype >= PAR_DTYPE_COUNT) return "no such dtype";
    if (op == PAR_SCALED_SUM) return "PAR_SCALED_SUM has no factor: pass par_scaled_sum(factor)";
    if (code >= PAR_OP_COUNT || (code != PAR_SCALED_SUM && op >= PAR_OP_COUNT)) return "no such op";
    return code == PAR_SCALED_SUM && !par__is_float(dtype) ? "a scaled sum needs a float type" : NULL;
}
const char *par_op_name(par_op op) {
    return par__op_code(op) < PAR_OP_COUNT ? par__op_names[par__op_code(op)] : "(no par_op)";
}
par_op par_scaled_sum(double factor) {
    uint64_t bits;
    if (factor == 0) factor = -0.0; // PAR_SCALED_SUM itself has the bits of 0
    memcpy(&bits, &factor, sizeof bits);
    return (bits & ~(uint64_t)255) | PAR_SCALED_SUM;
}
double par_op_factor(par_op op) {
    uint64_t bits = op & ~(uint64_t)255;
    double factor;
    memcpy(&factor, &bits, sizeof factor);
    return factor == 0 ? 0 : factor;
}

par_result par_dtype_parse(const char *name, par_dtype *d) {
    for (int i = 0; i < PAR_DTYPE_COUNT; i++)
        if (!strcmp(name, par__dtypes[i].name)) return *d = (par_dtype)i, PAR_OK;
    return PAR_ERR_ARGUMENT;
}
par_result par_op_parse(const char *name, par_op *op) {
    for (int i = 0; i < PAR_OP_COUNT; i++)
        if (!strcmp(name, par__op_names[i])) {
            *op = i == PAR_SCALED_SUM ? par_scaled_sum(0.5) : (par_op)i;
            return PAR_OK;
        }
    return PAR_ERR_ARGUMENT;
}

enum { PAR__NAME_MAX = 64 }; // letters of a name that par_suggest compares

static int par__normalize_name(const char *name, char plain[PAR__NAME_MAX]) { // returns its length
    int n = 0;
    for (; *name && *name != '=' && n < PAR__NAME_MAX; name++)
        if (!strchr("-_ ", *name)) plain[n++] = (char)(*name | (*name >= 'A' && *name <= 'Z' ? 32 : 0));
    return n;
}

// The edit distance of two names: 4 for each letter that is missing, added, replaced, or swapped with its
// neighbor; 1 for each letter that is missing at the end, so that the first letters of a long name match it.
// INT_MAX: too many letters of a differ.
static int par__edit_distance(const char *a, int m, const char *b, int n) {
    int d[PAR__NAME_MAX + 1][PAR__NAME_MAX + 1], best = INT_MAX;
    for (int i = 0; i <= m; i++)
        for (int j = 0; j <= n; j++) {
            int min = i && j ? d[i - 1][j - 1] + 4 * (a[i - 1] != b[j - 1]) : i || j ? INT_MAX : 0;
            if (i) min = PAR__MIN(min, d[i - 1][j] + 4);
            if (j) min = PAR__MIN(min, d[i][j - 1] + 4);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                min = PAR__MIN(min, d[i - 2][j - 2] + 4);
            d[i][j] = min;
        }
    const int shorter = PAR__MIN(m, n), most = PAR__MAX(shorter, 4);
    for (int i = 0; i < m; i++)
        if (d[i][n] + m - i <= shorter) best = PAR__MIN(best, d[i][n] + m - i);
    for (int j = 0; j <= n; j++)
        if (m > 2 ? d[m][j] <= most : d[m][j] + n - j <= m) best = PAR__MIN(best, d[m][j] + n - j);
    return best;
}
static int par__are_initials(const char *initials, const char *name) { // of the words in name, two or more
    int words = 0, between = 1;
    for (; *name && *name != '='; between = strchr("-_ ", *name++) != NULL)
        if (between && !strchr("-_ ", *name) && initials[words++] != *name) return 0;
    return words > 1 && !initials[words];
}

par_suggestion par_suggest(const char *name, const void *names, size_t count, size_t stride) {
    char plain[PAR__NAME_MAX + 1], other[PAR__NAME_MAX];
    const int letters = par__normalize_name(name, plain);
    const char *nearest = NULL;
    par_suggestion s;
    int min = INT_MAX;
    plain[letters] = 0;
    for (size_t i = 0; i < count; i++) {
        const char *const candidate = *(const char *const *)((const char *)names + i * stride);
        const int n = par__normalize_name(candidate, other);
        const int distance =
            par__are_initials(plain, candidate) ? 1 : par__edit_distance(plain, letters, other, n);
        if (distance < min) {
            min = distance;
            nearest = candidate;
        }
    }
    snprintf(s.text, sizeof s.text, nearest ? "; did you mean %.70s?" : "%s", nearest ? nearest : "");
    return s;
}

float par_f16_to_f32(par_f16 h) { return par__f16_widen(h); }
par_f16 par_f32_to_f16(float f) { return par__f16_narrow(f); }
float par_bf16_to_f32(par_bf16 h) { return par__bf16_widen(h); }
par_bf16 par_f32_to_bf16(float f) { return par__bf16_narrow(f); }

// >>settings ------------------------------------------------------------------------------------------------

// The length of the UTF-8 character at s, which has n bytes; 0: it is not UTF-8 (RFC 3629).
static size_t par__utf8_bytes(const unsigned char *s, size_t n) {
    const unsigned c = s[0];
    const size_t length = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    const unsigned min = c == 0xE0   ? 0xA0
                         : c == 0xF0 ? 0x90
                                     : 0,
                   max = c == 0xED   ? 0x9F
                         : c == 0xF4 ? 0x8F
                                     : 0xFF;
    return length > 2 && (s[1] < min || s[1] > max) ? 0 : length;
}
size_t par__json_escape(const char *text, size_t bytes, char json[8]) {
    const unsigned char *s = (const unsigned char *)text;
    const size_t length = par__utf8_bytes(s, bytes);
    if (!length)
        snprintf(json, 8, "\\ufffd");
    else if (s[0] < 32 || s[0] == 127)
        snprintf(json, 8, "\\u%04x", s[0]);
    else
        snprintf(json, 8, "%s%.*s", s[0] == '"' || s[0] == '\\' ? "\\" : "", (int)length, text);
    return length ? length : 1;
}
// Escape a text for a JSON string: as many whole characters as fit.
static void par__json_escape_text(char *to, size_t capacity, const char *text) {
    char json[8];
    size_t at = 0;
    for (size_t n = strlen(text), used; n; text += used, n -= used) {
        used = par__json_escape(text, n, json);
        const size_t length = strlen(json);
        if (at + length >= capacity) break;
        memcpy(to + at, json, length);
        at += length;
    }
    to[at] = 0;
}
void par__sanitize(char *text, const char *keep) {
    unsigned char *s = (unsigned char *)text;
    for (size_t n = strlen(text), length; n; s += length, n -= length) {
        length = par__utf8_bytes(s, n);
        const int control = length == 1   ? (s[0] < 32 || s[0] == 127) && !strchr(keep, s[0])
                            : length == 2 ? s[0] == 0xC2 && s[1] < 0xA0
                                          : 0;
        if (length && !control) continue;
        if (!length) length = 1;
        memset(s, '?', length);
    }
}

// All variables that par.h reads. Those that begin with PAR_ are checked when a world opens; those of a
// launcher where that launcher counts. The secret is checked by par__load_secret; here it may have any
// length, because errors show the value that they reject.
static const par__setting par__settings[] = {
    {"PAR_RANKS", PAR__SETTING_INTEGER, 1, 1024, 0, "ranks to start on this machine"},
    {"PAR_NODE_RANKS", PAR__SETTING_INTEGER, 1, INT_MAX, 0, "ranks that make a node"},
    {"PAR_TIMEOUT", PAR__SETTING_SECONDS, 0, 1e9, 600, "until a wait fails"},
    {"PAR_ALGO", PAR__SETTING_TEXT, 0, 4096, 0, "operation:algorithm, several separated by commas"},
    {"PAR_TUNE", PAR__SETTING_TEXT, 0, 4096, 0, "the name of a file"},
    {"PAR_STAGE", PAR__SETTING_INTEGER, 8192, INT_MAX, 262144, "bytes, without a unit"},
    {"PAR_ARENA", PAR__SETTING_INTEGER, 1 << 20, 9007199254740992.0, 0, "bytes, without a unit"},
    {"PAR_CMA", PAR__SETTING_SWITCH, 0, 1, 1, ""},
    {"PAR_PROGRESS", PAR__SETTING_SWITCH, 0, 1, 0, ""},
    {"PAR_BIND", PAR__SETTING_CHOICE, 0, 0, -1, "0|core|numa"},
    {"PAR_GEMM", PAR__SETTING_WORDS, 0, 2, -1,
     "oneDNN|OpenBLAS|MKL|BLIS|CBLAS|built-in|canonical|tile|library|widen|widen-built-in"},
    {"PAR_ISA", PAR__SETTING_CHOICE, 0, 0, -1, "base|avx2|avx512|avx512_bf16"},
    {"PAR_TRACE", PAR__SETTING_TEXT, 0, 4096, 0, "the name of a file"},
    {"PAR_LEDGER", PAR__SETTING_SWITCH, 0, 1, 0, ""},
    {"PAR_PORT", PAR__SETTING_INTEGER, 1, 65535, 0, "a port"},
    {"PAR_JOIN", PAR__SETTING_TEXT, 0, 300, 0, "host:port of a job's first rank"},
    {"PAR_JOB", PAR__SETTING_TEXT, 0, 255, 0, "the name of this run, the same for its ranks"},
    {"PAR_SECRET", PAR__SETTING_TEXT, 0, INT_MAX, 0, "a secret"},
    {"PAR_SECRET_FILE", PAR__SETTING_TEXT, 0, 4096, 0, "the name of a file"},
    {"PAR__BOOT", PAR__SETTING_TEXT, 0, 255, 0, "what rank 0 passes to the ranks that it starts"},
    {"MASTER_PORT", PAR__SETTING_INTEGER, 1, 65535, 0, "a port"},
    {"MASTER_ADDR", PAR__SETTING_TEXT, 0, 255, 0, "the host of rank 0"},
    {"RANK", PAR__SETTING_INTEGER, 0, INT_MAX, 0, "the rank of this process"},
    {"WORLD_SIZE", PAR__SETTING_INTEGER, 1, INT_MAX, 0, "the number of ranks"},
    {"LOCAL_RANK", PAR__SETTING_INTEGER, 0, INT_MAX, 0, "the rank of this process on its node"},
    {"LOCAL_WORLD_SIZE", PAR__SETTING_INTEGER, 1, INT_MAX, 0, "the number of ranks on this node"},
    {"TORCHELASTIC_RUN_ID", PAR__SETTING_TEXT, 0, 4096, 0, "the name of the run"},
    {"TORCHELASTIC_USE_AGENT_STORE", PAR__SETTING_TEXT, 0, 255, 0, "True or False"},
    {"OMPI_COMM_WORLD_RANK", PAR__SETTING_INTEGER, 0, INT_MAX, 0, "the rank of this process"},
    {"OMPI_COMM_WORLD_SIZE", PAR__SETTING_INTEGER, 1, INT_MAX, 0, "the number of ranks"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", PAR__SETTING_INTEGER, 1, INT_MAX, 0, "the number of ranks on this node"},
    {"PMIX_NAMESPACE", PAR__SETTING_TEXT, 0, 4096, 0, "the name of the run"},
    {"PMI_RANK", PAR__SETTING_INTEGER, 0, INT_MAX, 0, "the rank of this process"},
    {"PMI_SIZE", PAR__SETTING_INTEGER, 1, INT_MAX, 0, "the number of ranks"},
    {"MPI_LOCALNRANKS", PAR__SETTING_INTEGER, 1, INT_MAX, 0, "the number of ranks on this node"},
    {"SLURM_JOB_ID", PAR__SETTING_TEXT, 0, 255, 0, "the number of the job"},
    {"SLURM_STEP_ID", PAR__SETTING_TEXT, 0, 255, 0, "the number of the step"},
    {"SLURM_PROCID", PAR__SETTING_INTEGER, 0, INT_MAX, 0, "the rank of this process"},
    {"SLURM_STEP_NUM_TASKS", PAR__SETTING_INTEGER, 1, INT_MAX, 0, "the number of ranks"},
    {"SLURM_TASK_PID", PAR__SETTING_INTEGER, 1, INT_MAX, 0, "the number of a process"},
    {"SLURM_STEP_NODELIST", PAR__SETTING_TEXT, 0, 1 << 20, 0, "names of hosts, such as node[003-010,17]"},
    {"SLURMD_NODENAME", PAR__SETTING_TEXT, 0, 255, 0, "the name of this host"}};
enum { PAR__SETTING_COUNT = sizeof par__settings / sizeof par__settings[0] };

static int par__parse_decimal(const char *s, double *value) { // digits, point, exponent, in any locale
    double x = 0, power = 0;
    int digits = 0, scale = 0, down = 0;
    for (; *s >= '0' && *s <= '9'; s++, digits++) x = x * 10 + (*s - '0');
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++, digits++, scale--) x = x * 10 + (*s - '0');
    if (digits && (*s | 32) == 'e') {
        down = *++s == '-';
        s += *s == '-' || *s == '+';
        if (!*s) return 0;
        for (; *s >= '0' && *s <= '9' && power < 1e6; s++) power = power * 10 + (*s - '0');
    }
    power = (down ? -power : power) + scale;
    *value = x == 0 ? 0 : power < 0 ? x / pow(10, -power) : x * pow(10, power);
    return digits && !*s && isfinite(*value);
}
static int par__parse_integer(const char *text, double max, double *value) { // 1: an integer from 0 to max
    return !text[strspn(text, "0123456789")] && par__parse_decimal(text, value) && *value <= max;
}
// The word ends at its end, or at a comma. Case does not count. -1: none of them.
static int par__choice_index(const char *words, const char *word) {
    for (int i = 0;; i++) {
        const size_t n = strcspn(words, "|");
        if (n && strcspn(word, ",") == n && !strncasecmp(words, word, n)) return i;
        if (!words[n]) return -1;
        words += n + 1;
    }
}
// 1: the text is a valid value.
static int par__setting_parse(const par__setting *s, const char *text, double *value) {
    switch (s->kind) {
    case PAR__SETTING_TEXT: return *value = 1, strlen(text) <= (size_t)s->max;
    case PAR__SETTING_CHOICE:
        return *value = par__choice_index(s->accepts, text), *value >= 0 && !strchr(text, ',');
    case PAR__SETTING_WORDS: // the value tells one list of words from another
        *value = 0;
        for (int n = 0;; n++, text++) {
            const int word = n < (int)s->max ? par__choice_index(s->accepts, text) : -1;
            if (word < 0) return 0;
            *value = *value * 64 + word + 1;
            text += strcspn(text, ",");
            if (!*text) return 1;
        }
    case PAR__SETTING_SECONDS: return par__parse_decimal(text, value) && *value > s->min && *value <= s->max;
    default: return par__parse_integer(text, s->max, value) && *value >= s->min;
    }
}
static void par__setting_expected(const par__setting *s, char *text, size_t capacity) {
    switch (s->kind) {
    case PAR__SETTING_INTEGER:
        snprintf(text, capacity, "a whole number from %.0f to %.0f: %s", s->min, s->max, s->accepts);
        break;
    case PAR__SETTING_SECONDS:
        snprintf(text, capacity, "a number of seconds without a unit, more than %g and at most %g: %s",
                 s->min, s->max, s->accepts);
        break;
    case PAR__SETTING_SWITCH: snprintf(text, capacity, "0 or 1"); break;
    case PAR__SETTING_CHOICE:
    case PAR__SETTING_WORDS:
        snprintf(text, capacity, "%s%s",
                 s->kind == PAR__SETTING_WORDS ? "one or two, with a comma, of " : "one of ", s->accepts);
        for (char *p = text; (p = strchr(p, '|')) != NULL;) *p = ' ';
        break;
    case PAR__SETTING_TEXT: snprintf(text, capacity, "at most %.0f bytes: %s", s->max, s->accepts); break;
    }
}
par_result par__setting_read(const par__setting *s, double *value, char *why, size_t why_bytes) {
    char shown[64], accepts[256];
    const char *text = getenv(s->name);
    *value = s->default_value;
    if (!text || !*text || par__setting_parse(s, text, value)) return PAR_OK;
    *value = s->default_value;
    par__setting_expected(s, accepts, sizeof accepts);
    snprintf(shown, sizeof shown, "%s", text);
    if (strlen(text) >= sizeof shown) memcpy(shown + sizeof shown - 4, "...", 4);
    par__sanitize(shown, "");
    snprintf(why, why_bytes, "%s=%s: it takes %s", s->name, shown, accepts);
    return PAR_ERR_ARGUMENT;
}
static const par__setting *par__setting_find(const char *name) {
    for (int i = 0; i < PAR__SETTING_COUNT; i++)
        if (!strcmp(par__settings[i].name, name)) return &par__settings[i];
    return PAR_ASSERT(0 && "a variable that is in no table"), &par__settings[0];
}
static double par__setting_number(const char *name) { // the default where it is unset or wrong
    char why[512];
    double value;
    return par__setting_read(par__setting_find(name), &value, why, sizeof why), value;
}
const char *par__setting_text(const char *name) {
    const char *text = getenv(par__setting_find(name)->name);
    return text && *text ? text : NULL;
}
static par_result par__settings_check(char *why, size_t capacity) { // all PAR_ variables
    double value;
    for (int i = 0; i < PAR__SETTING_COUNT; i++)
        if (!strncmp(par__settings[i].name, "PAR_", 4) &&
            par__setting_read(&par__settings[i], &value, why, capacity))
            return PAR_ERR_ARGUMENT;
    return PAR_OK;
}

PAR__API_END // what others define is visible
    extern char **environ;
PAR__API_BEGIN
void par__settings_warn_misspelled(const par__setting *settings, size_t count) {
    char plain[PAR__NAME_MAX], other[PAR__NAME_MAX], text[256];
    for (char **e = environ; e && *e; e++) {
        const size_t length = strcspn(*e, "=");
        const par__setting *near = NULL;
        if (strncmp(*e, "PAR_", 4) || length > PAR__NAME_MAX) continue;
        const int letters = par__normalize_name(*e, plain);
        for (size_t i = 0; i < count; i++) {
            const char *name = settings[i].name;
            if (strlen(name) == length && !strncmp(name, *e, length)) {
                near = NULL;
                break;
            }
            if (!strncmp(name, "PAR_", 4) && letters > 5 &&
                par__edit_distance(plain, letters, other, par__normalize_name(name, other)) <= 4)
                near = &settings[i]; // one letter differs, or some are missing at the end
        }
        if (!near) continue;
        snprintf(text, sizeof text, "%.*s is set, but it is no setting; did you mean %s?", (int)length, *e,
                 near->name);
        par__sanitize(text, "");
        PAR_LOG(text);
    }
}

// >>kernels -------------------------------------------------------------------------------------------------
//
// Reduction of n sources in rank order, in blocks that stay in the first-level cache:
//     sources[0] block op sources[1] block -> sum;  sum op= sources[2] block;  ...  last step -> dst
// Narrow floats are widened when they are loaded and rounded once when they are stored. Each loop is compiled
// once per instruction set, and the processor's is chosen at run time, so that nobody needs -march. The inner
// loops have a fixed length because that is what gcc -O2 vectorizes.

// d[i] = expression of x = a[i] and y = b[i]. d may be a.
#define PAR__BINARY_LOOP(TARGET, name, T, expression)                                                        \
    TARGET static void name(void *dst, const void *va, const void *vb, size_t n) {                           \
        T *d = (T *)dst;                                                                                     \
        const T *a = (const T *)va, *b = (const T *)vb;                                                      \
        size_t i = 0;                                                                                        \
        for (; i + PAR__STRIP <= n; i += PAR__STRIP) {                                                       \
            PAR__IVDEP for (size_t j = 0; j < PAR__STRIP; j++) {                                             \
                const T x = a[i + j], y = b[i + j];                                                          \
                d[i + j] = (T)(expression);                                                                  \
            }                                                                                                \
        }                                                                                                    \
        for (; i < n; i++) {                                                                                 \
            const T x = a[i], y = b[i];                                                                      \
            d[i] = (T)(expression);                                                                          \
        }                                                                                                    \
    }
#define PAR__UNARY_LOOP(TARGET, name, D, S, expression)                                                      \
    TARGET static void name(void *dst, const void *src, size_t n) {                                          \
        D *d = (D *)dst;                                                                                     \
        const S *s = (const S *)src;                                                                         \
        size_t i = 0;                                                                                        \
        for (; i + PAR__STRIP <= n; i += PAR__STRIP) {                                                       \
            PAR__IVDEP for (size_t j = 0; j < PAR__STRIP; j++) {                                             \
                const S x = s[i + j];                                                                        \
                d[i + j] = (D)(expression);                                                                  \
            }                                                                                                \
        }                                                                                                    \
        for (; i < n; i++) {                                                                                 \
            const S x = s[i];                                                                                \
            d[i] = (D)(expression);                                                                          \
        }                                                                                                    \
    }

// Integer sums and products wrap: they are computed in the unsigned type, which is wide enough not to be
// promoted to int.
#define PAR__BINARY_LOOPS(I, TARGET, type, T, U)                                                             \
    PAR__BINARY_LOOP(TARGET, par__sum_##type##_##I, U, x + y)                                                \
    PAR__BINARY_LOOP(TARGET, par__prod_##type##_##I, U, x *y)                                                \
    PAR__BINARY_LOOP(TARGET, par__min_##type##_##I, T, (x < y || x != x) ? x : y)                            \
    PAR__BINARY_LOOP(TARGET, par__max_##type##_##I, T, (x > y || x != x) ? x : y)
// The step after the last addition: AVG's division, a scaled sum's factor.
#define PAR__AVERAGE(I, TARGET, name, type, divisor)                                                         \
    TARGET static void par__average_##name##_##I(void *acc, size_t n, int ranks) {                           \
        type *x = (type *)acc;                                                                               \
        PAR__VECTOR(i, n, x[i] = (type)(x[i] / (divisor)ranks));                                             \
    }
#define PAR__SCALE(I, TARGET, name, type)                                                                    \
    TARGET static void par__scale_##name##_##I(void *acc, size_t n, double factor) {                         \
        type *x = (type *)acc;                                                                               \
        PAR__VECTOR(i, n, x[i] *= (type)factor);                                                             \
    }
// The loops of a dtype, by its family.
#define PAR__LOOPS_FLOAT(I, TARGET, name, type, sums)                                                        \
    PAR__BINARY_LOOPS(I, TARGET, name, type, sums)                                                           \
    PAR__AVERAGE(I, TARGET, name, type, type)                                                                \
    PAR__SCALE(I, TARGET, name, type)
#define PAR__LOOPS_SIGNED(I, TARGET, name, type, sums)                                                       \
    PAR__BINARY_LOOPS(I, TARGET, name, type, sums)                                                           \
    PAR__AVERAGE(I, TARGET, name, type, int)
#define PAR__LOOPS_UNSIGNED(I, TARGET, name, type, sums)                                                     \
    PAR__BINARY_LOOPS(I, TARGET, name, type, sums)                                                           \
    PAR__AVERAGE(I, TARGET, name, type, unsigned)
#define PAR__LOOPS_NARROW(I, TARGET, name, type, sums)                                                       \
    PAR__UNARY_LOOP(TARGET, par__##name##_widen_##I, sums, type, par__##name##_widen(x))                     \
    PAR__UNARY_LOOP(TARGET, par__##name##_narrow_##I, type, sums, par__##name##_narrow(x))
#define PAR__LOOPS_base(constant, name, type, sums, family, ...) PAR__LOOPS_##family(base, , name, type, sums)
#define PAR__LOOPS_avx2(constant, name, type, sums, family, ...)                                             \
    PAR__LOOPS_##family(avx2, PAR__TARGET_avx2, name, type, sums)
#define PAR__LOOPS_avx512(constant, name, type, sums, family, ...)                                           \
    PAR__LOOPS_##family(avx512, PAR__TARGET_avx512, name, type, sums)
#define PAR__KERNELS(I, TARGET) PAR_DTYPES(PAR__LOOPS_##I)
// nvcc expands macros before its host's compiler, which then sees integers compared with themselves.
#if defined(__CUDACC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtautological-compare"
#endif
PAR__FORMULAS_BEGIN
PAR__ISAS(PAR__KERNELS)
PAR__FORMULAS_END
#if defined(__CUDACC__)
#pragma GCC diagnostic pop
#endif

// Whether string moves (rep movsb), which C libraries and the system use from about 2 KiB on, are slow here:
// to an address 1 to 31 bytes behind its source, counted within pages, they take 4 to 15 times as long on
// AMD's Zen 3. A stage begins with a page, and a large block of malloc 16 bytes behind its begin.
static int par__moves_slowly(uintptr_t dst, uintptr_t src, size_t bytes) {
    return bytes >= 2048 && (dst - src) % 4096 - 1 < 31;
}

// Copy src to d and, unless it is NULL, to d2 at once: two streams of stores keep more cache lines in flight
// than one after the other. nontemporal: write past the caches, without reading first what is overwritten;
// this needs whole aligned cache lines. Without either it moves vectors where string moves are slow, the last
// ones first: a load would wait for the store before it, which is in the same place of a page.
#define PAR__COPY2(I, TARGET, V, load, store, stream_store)                                                  \
    TARGET static void par__copy2_##I(void *d, void *d2, const void *src, size_t bytes, int nontemporal) {   \
        char *a = (char *)d, *b = (char *)(d2 ? d2 : d);                                                     \
        const char *x = (const char *)src;                                                                   \
        size_t i = 0;                                                                                        \
        if (nontemporal && ((uintptr_t)a | (uintptr_t)b) % 64 == 0) {                                        \
            for (; i + 64 <= bytes; i += 64) {                                                               \
                V line[64 / sizeof(V)];                                                                      \
                for (size_t k = 0; k < 64 / sizeof(V); k++) line[k] = load((const V *)(x + i) + k);          \
                for (size_t k = 0; k < 64 / sizeof(V); k++) stream_store((V *)(a + i) + k, line[k]);         \
                for (size_t k = 0; k < 64 / sizeof(V) && d2; k++) stream_store((V *)(b + i) + k, line[k]);   \
            }                                                                                                \
            _mm_sfence();                                                                                    \
        } else if (d2) {                                                                                     \
            for (; i + sizeof(V) <= bytes; i += sizeof(V)) {                                                 \
                const V v = load((const V *)(x + i));                                                        \
                store((V *)(a + i), v);                                                                      \
                store((V *)(b + i), v);                                                                      \
            }                                                                                                \
        } else if (par__moves_slowly((uintptr_t)d, (uintptr_t)src, bytes)) {                                 \
            for (; bytes >= sizeof(V); bytes -= sizeof(V))                                                   \
                store((V *)(a + bytes) - 1, load((const V *)(x + bytes) - 1));                               \
        }                                                                                                    \
        memcpy(a + i, x + i, bytes - i);                                                                     \
        if (d2) memcpy(b + i, x + i, bytes - i);                                                             \
    }
// d and, unless it is NULL, d2 = a + b with nontemporal stores, a cache line at a time: lines that are
// written at once leave the processor sooner than runs of lines from a buffer.
#define PAR__STREAM_SUM(I, TARGET, type, T, V, load, stream_store)                                           \
    TARGET static void par__stream_sum_##type##_##I(void *d, void *d2, const void *va, const void *vb,       \
                                                    size_t n) {                                              \
        typedef T vector __attribute__((vector_size(sizeof(V))));                                            \
        enum { LINE = 64 / sizeof(T), PARTS = 64 / sizeof(V) };                                              \
        T *x = (T *)d, *y = (T *)d2;                                                                         \
        const T *a = (const T *)va, *b = (const T *)vb;                                                      \
        size_t i = 0;                                                                                        \
        for (; i + LINE <= n; i += LINE) {                                                                   \
            V line[PARTS];                                                                                   \
            for (int k = 0; k < PARTS; k++)                                                                  \
                line[k] = (V)((vector)load((const V *)(a + i) + k) + (vector)load((const V *)(b + i) + k));  \
            for (int k = 0; k < PARTS; k++) stream_store((V *)(x + i) + k, line[k]);                         \
            for (int k = 0; k < PARTS && y; k++) stream_store((V *)(y + i) + k, line[k]);                    \
        }                                                                                                    \
        _mm_sfence();                                                                                        \
        for (; i < n; i++) {                                                                                 \
            const T sum = a[i] + b[i];                                                                       \
            x[i] = sum;                                                                                      \
            if (y) y[i] = sum;                                                                               \
        }                                                                                                    \
    }
#if PAR__X86 && !defined(__CUDACC__)
#define PAR__STREAM_KERNELS(I, TARGET, V, load, store, stream_store)                                         \
    PAR__COPY2(I, TARGET, V, load, store, stream_store)                                                      \
    PAR__STREAM_SUM(I, TARGET, f64, double, V, load, stream_store)                                           \
    PAR__STREAM_SUM(I, TARGET, f32, float, V, load, stream_store)
#define PAR__TARGET(...) __attribute__((target(__VA_ARGS__)))
PAR__STREAM_KERNELS(base, , __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128)
PAR__STREAM_KERNELS(avx2, PAR__TARGET("avx2"), __m256i, _mm256_loadu_si256, _mm256_storeu_si256,
                    _mm256_stream_si256)
PAR__STREAM_KERNELS(avx512, PAR__TARGET("avx512f" PAR__WIDE), __m512i, _mm512_loadu_si512,
                    _mm512_storeu_si512, _mm512_stream_si512)
#else
static void par__copy2_base(void *d, void *d2, const void *src, size_t bytes, int nontemporal) {
    (void)nontemporal;
    memcpy(d, src, bytes);
    if (d2) memcpy(d2, src, bytes);
}
#define par__stream_sum_f64_base NULL
#define par__stream_sum_f32_base NULL
#endif

typedef void (*par__binary_loop)(void *, const void *, const void *, size_t);
typedef void (*par__unary_loop)(void *, const void *, size_t);

// Of a dtype that is its own accumulator, widen and narrow are NULL; of another, all else is.
typedef struct par__dtype_kernels {
    par__binary_loop op[4]; // sum, prod, min, max
    void (*average)(void *, size_t, int ranks);
    void (*scale)(void *, size_t, double factor);                           // NULL: an integer
    void (*stream_sum)(void *, void *, const void *, const void *, size_t); // may be NULL
    par__unary_loop widen, narrow;                                          // to the accumulator, and back
} par__dtype_kernels;
typedef struct par__kernels {
    par__dtype_kernels of[PAR_DTYPE_COUNT];
    void (*copy2)(void *, void *, const void *, size_t, int nontemporal);
} par__kernels;

#define PAR__OP_LOOPS(I, name)                                                                               \
    {par__sum_##name##_##I, par__prod_##name##_##I, par__min_##name##_##I, par__max_##name##_##I},           \
        par__average_##name##_##I
#define PAR__ROW_FLOAT(I, name)                                                                              \
    {PAR__OP_LOOPS(I, name), par__scale_##name##_##I, par__stream_sum_##name##_##I, NULL, NULL},
#define PAR__ROW_SIGNED(I, name)   {PAR__OP_LOOPS(I, name), NULL, NULL, NULL, NULL},
#define PAR__ROW_UNSIGNED(I, name) {PAR__OP_LOOPS(I, name), NULL, NULL, NULL, NULL},
#define PAR__ROW_NARROW(I, name)                                                                             \
    {{NULL, NULL, NULL, NULL}, NULL, NULL, NULL, par__##name##_widen_##I, par__##name##_narrow_##I},
#define PAR__ROW_base(constant, name, type, sums, family, ...)   PAR__ROW_##family(base, name)
#define PAR__ROW_avx2(constant, name, type, sums, family, ...)   PAR__ROW_##family(avx2, name)
#define PAR__ROW_avx512(constant, name, type, sums, family, ...) PAR__ROW_##family(avx512, name)
#define PAR__KERNEL_TABLE(I, TARGET)                                                                         \
    static const par__kernels par__kernels_##I = {{PAR_DTYPES(PAR__ROW_##I)}, par__copy2_##I};
PAR__ISAS(PAR__KERNEL_TABLE)

int par__isa(void) {
    static uint32_t known; // 1 + the level; the same whoever finds it out
    uint32_t level = PAR__LOAD(&known);
    if (level) return (int)level - 1;
#if PAR__X86 && !defined(__CUDACC__)
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const int avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512vl");
    const int asked = (int)par__setting_number("PAR_ISA"), most = avx512 ? 4 : avx2;
    level = 1 + (uint32_t)(asked < 0 ? most : PAR__MIN(asked, most));
#else
    level = 1;
#endif
    PAR__STORE(&known, level);
    return (int)level - 1;
}
static const par__kernels *par__pick_kernels(void) { return PAR__PICK(par__kernels); }
void par__add_f32(float *sum, const float *x, size_t n) {
    par__pick_kernels()->of[PAR_F32].op[0](sum, sum, x, n);
}

static void par__copy(const par__kernels *k, void *dst, const void *src, size_t bytes) {
    const uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
    const int overlap = to - from < bytes || from - to < bytes;
    if (overlap || !par__moves_slowly(to, from, bytes))
        memmove(dst, src, bytes);
    else
        k->copy2(dst, NULL, src, bytes, 0);
}

static par_dtype par__accumulator(par_dtype d) { return par__dtypes[d].accumulator; }

static void par__finalize(const par__kernels *k, void *acc, size_t n, par_dtype type, par_op op, int ranks) {
    if (par__op_code(op) == PAR_AVG) k->of[type].average(acc, n, ranks);
    if (par__op_code(op) == PAR_SCALED_SUM) k->of[type].scale(acc, n, par_op_factor(op));
}

static const unsigned char par__op_row[] = {0, 0, 1, 2, 3, 0, 0}; // operator -> row of par__dtype_kernels.op
#define PAR__REDUCE_BLOCK 2048 // elements at a time; 16 KiB of the widest type

// out[] = the sum of all sources by PAR_TREE_SUM, like a binary counter: level i holds a sum of 2^i sources.
// At the end the remaining levels are added, the smallest first. wide: out[] are in the accumulator's type.
static void par__reduce_tree(const par__kernels *k, void *const *out, int out_count,
                             const void *const *sources, int source_count, size_t count, par_dtype dtype,
                             int wide) {
    enum { LEVELS = 31, BYTES = 12 * 512 * 8 }; // of an int's sources; of all levels
    const par_dtype acc_type = par__accumulator(dtype);
    const size_t bytes = par__dtypes[dtype].bytes, out_bytes = par__dtypes[wide ? acc_type : dtype].bytes;
    const par__unary_loop widen = k->of[dtype].widen, narrow = wide ? NULL : k->of[dtype].narrow;
    const par__binary_loop add = k->of[acc_type].op[0];
    double memory[BYTES / 8];
    char *level[LEVELS];
    int levels = 1;
    while (source_count >> levels) levels++;
    const size_t most = PAR__MIN((size_t)BYTES / 8 / (size_t)levels, (size_t)512); // elements of any type
    for (int i = 0; i < levels; i++) level[i] = (char *)(memory + (size_t)i * most);
    for (size_t at = 0; at < count; at += most) {
        const size_t n = PAR__MIN(count - at, most);
        int used = 0;
        for (int s = 0; s < source_count; s++) {
            const void *x = (const char *)sources[s] + at * bytes;
            if (widen)
                widen(level[used], x, n);
            else
                memcpy(level[used], x, n * bytes);
            used++;
            for (int pairs = s + 1; pairs % 2 == 0; pairs /= 2, used--)
                add(level[used - 2], level[used - 2], level[used - 1], n);
        }
        for (; used > 1; used--) add(level[used - 2], level[used - 2], level[used - 1], n);
        for (int o = 0; o < out_count; o++)
            if (narrow)
                narrow((char *)out[o] + at * bytes, level[0], n);
            else
                memcpy((char *)out[o] + at * out_bytes, level[0], n * out_bytes);
    }
}

// out[] = (partial op) sources[0] op sources[1] ... over count elements of dtype. partial: an array in the
// accumulator's type to start with, or NULL; without sources it is the sum. ranks > 0: finalize for so many
// ranks and store dtype; 0: store the accumulator's type. Each block is written to all out_count
// destinations, past the caches if `nontemporal`.
static void par__reduce_sources(const par__kernels *k, void *const *out, int out_count, const void *partial,
                                const void *const *sources, int source_count, size_t count, par_dtype dtype,
                                par_op op, int ranks, int nontemporal) {
    if (par__op_code(op) == PAR_TREE_SUM && !partial) {
        par__reduce_tree(k, out, out_count, sources, source_count, count, dtype, !ranks);
        return;
    }
    const par_dtype acc_type = par__accumulator(dtype);
    PAR_ASSERT(par__op_code(op) != PAR_TREE_SUM || !source_count || !par__is_float(dtype)); // par__fits_chain
    const size_t bytes = par__dtypes[dtype].bytes, acc_bytes = par__dtypes[acc_type].bytes;
    const par__binary_loop apply = k->of[acc_type].op[par__op_row[par__op_code(op)]];
    const par__unary_loop widen = k->of[dtype].widen, narrow = k->of[dtype].narrow;
    for (int o = 0; o < out_count; o++) nontemporal &= (uintptr_t)out[o] % 64 == 0;
    const int straight = out_count == 1 && !widen && !nontemporal;
    const int stream_sums = nontemporal && par__op_code(op) == PAR_SUM && k->of[dtype].stream_sum;
    float wide[PAR__REDUCE_BLOCK] __attribute__((aligned(64)));
    // Not in out[0], which may be a source that is not read yet.
    double sum[PAR__REDUCE_BLOCK] __attribute__((aligned(64)));
    for (size_t at = 0; at < count; at += PAR__REDUCE_BLOCK) {
        const size_t n = PAR__MIN(count - at, (size_t)PAR__REDUCE_BLOCK), e = ranks ? bytes : acc_bytes;
        char *to_last = straight ? (char *)out[0] + at * e : (char *)sum;
        const void *have = partial ? (const char *)partial + at * acc_bytes : NULL;
        for (int s = 0; s < source_count; s++) {
            const void *x = (const char *)sources[s] + at * bytes;
            void *to = s + 1 < source_count ? (void *)sum : (void *)to_last;
            if (widen) {
                void *widened = have ? (void *)wide : (void *)sum;
                widen(widened, x, n);
                x = widened;
            }
            for (int o = 0; o < out_count && have && stream_sums && s + 1 == source_count; o += 2)
                k->of[dtype].stream_sum((char *)out[o] + at * e,
                                        o + 1 < out_count ? (char *)out[o + 1] + at * e : NULL, have, x, n);
            if (have && (!stream_sums || s + 1 < source_count)) apply(to, have, x, n);
            have = have ? to : x;
        }
        if (stream_sums && (partial || source_count > 1)) continue;
        if (have != to_last) memmove(to_last, have, n * acc_bytes);
        if (ranks) par__finalize(k, to_last, n, acc_type, op, ranks);
        if (narrow && ranks) {
            narrow(wide, sum, n);
            to_last = (char *)wide;
        }
        for (int o = 0; o < out_count && !straight; o += 2)
            k->copy2((char *)out[o] + at * e, o + 1 < out_count ? (char *)out[o + 1] + at * e : NULL, to_last,
                     n * e, nontemporal);
    }
}

// The same into one array that is none of the sources, in as few steps as there are for few elements.
static void par__reduce_apart(const par__kernels *k, void *out, const void *const *sources, int source_count,
                              size_t count, par_dtype dtype, par_op op) {
    const par__dtype_kernels *of = &k->of[dtype];
    if (of->widen || source_count < 2 || count > PAR__REDUCE_BLOCK || par__op_code(op) == PAR_TREE_SUM) {
        par__reduce_sources(k, &out, 1, NULL, sources, source_count, count, dtype, op, source_count, 0);
        return;
    }
    const par__binary_loop apply = of->op[par__op_row[par__op_code(op)]];
    apply(out, sources[0], sources[1], count);
    for (int s = 2; s < source_count; s++) apply(out, out, sources[s], count);
    par__finalize(k, out, count, dtype, op, source_count);
}

// par__cast_one for a block, in two loops over one type each: to the widest type of the family, and from it.
enum { PAR__CAST_BLOCK = 512 };
#define PAR__CAST_LOOPS(X)                                                                                   \
    switch (d) {                                                                                             \
        PAR_DTYPES(X)                                                                                        \
    default: break;                                                                                          \
    }
static void par__cast_get_f64(double *wide, const void *p, par_dtype d, size_t n) {
#define PAR__X(constant, name, type, sums, family, ...)                                                      \
    case constant:                                                                                           \
        for (size_t i = 0; i < n; i++) wide[i] = (double)PAR__WIDEN_##family(name, ((const type *)p)[i]);    \
        break;
    PAR__CAST_LOOPS(PAR__X)
#undef PAR__X
}
static void par__cast_put_f64(void *p, par_dtype d, const double *wide, size_t n) {
#define PAR__X(constant, name, type, sums, family, accumulator, max, ...)                                    \
    case constant:                                                                                           \
        for (size_t i = 0; i < n; i++) ((type *)p)[i] = PAR__ROUND_##family(name, type, max, wide[i]);       \
        break;
    PAR__CAST_LOOPS(PAR__X)
#undef PAR__X
}
static void par__cast_get_u64(uint64_t *wide, const void *p, par_dtype d, size_t n) {
#define PAR__X(constant, name, type, ...)                                                                    \
    case constant:                                                                                           \
        for (size_t i = 0; i < n; i++) wide[i] = (uint64_t)(int64_t)((const type *)p)[i];                    \
        break;
    PAR__CAST_LOOPS(PAR__X)
#undef PAR__X
}
static void par__cast_put_u64(void *p, par_dtype d, const uint64_t *wide, size_t n) {
#define PAR__X(constant, name, type, ...)                                                                    \
    case constant:                                                                                           \
        for (size_t i = 0; i < n; i++) ((type *)p)[i] = (type)wide[i];                                       \
        break;
    PAR__CAST_LOOPS(PAR__X)
#undef PAR__X
}
static void par__cast_blocks(void *dst, par_dtype dt, const void *src, par_dtype st, size_t count) {
    double wide[PAR__CAST_BLOCK];
    uint64_t wide_integers[PAR__CAST_BLOCK];
    for (size_t at = 0; at < count; at += PAR__CAST_BLOCK) {
        const size_t n = PAR__MIN(count - at, (size_t)PAR__CAST_BLOCK);
        const void *from = (const char *)src + at * par__dtypes[st].bytes;
        void *to = (char *)dst + at * par__dtypes[dt].bytes;
        if (par__is_float(dt) || par__is_float(st)) {
            par__cast_get_f64(wide, from, st, n);
            par__cast_put_f64(to, dt, wide, n);
        } else {
            par__cast_get_u64(wide_integers, from, st, n);
            par__cast_put_u64(to, dt, wide_integers, n);
        }
    }
}

par_result par_cast(void *dst, par_dtype dt, const void *src, par_dtype st, size_t count) {
    const par__kernels *k = par__pick_kernels();
    if (!par_dtype_bytes(dt) || !par_dtype_bytes(st) || (count && (!dst || !src))) return PAR_ERR_ARGUMENT;
    if (dt == st) {
        if (dst != src && count) par__copy(k, dst, src, count * par__dtypes[dt].bytes);
    } else if (k->of[st].widen && dt == par__accumulator(st)) {
        k->of[st].widen(dst, src, count);
    } else if (k->of[dt].narrow && st == par__accumulator(dt)) {
        k->of[dt].narrow(dst, src, count);
    } else {
        par__cast_blocks(dst, dt, src, st, count);
    }
    return PAR_OK;
}

// >>shards --------------------------------------------------------------------------------------------------

par_shard par_shard_whole(const size_t *shape, int dims) {
    par_shard s;
    memset(&s, 0, sizeof s);
    s.dims = dims;
    s.run_count = 1;
    s.runs[0].count = 1;
    s.runs[0].replicas = 1;
    for (int i = 0; i < dims && i < 4; i++) {
        s.shape[i] = s.global_shape[i] = shape[i];
        s.runs[0].count *= shape[i];
    }
    return s;
}
void par_shard_replicate(par_shard *s, int copies, int copy) {
    for (int i = 0; i < s->run_count; i++) {
        par_run *r = &s->runs[i];
        const int replicas = PAR__MAX(r->replicas, 1);
        r->replica_id += copy * replicas;
        r->replicas = copies * replicas;
    }
}
size_t par_shard_find(const par_shard *s, size_t local, size_t *global, int *replica_id) {
    if (global) *global = 0;
    if (replica_id) *replica_id = 0;
    for (int i = 0; i < s->run_count; local -= s->runs[i++].count) {
        const par_run *r = &s->runs[i];
        if (local >= r->count) continue;
        if (replica_id) *replica_id = r->replica_id;
        if (global)
            *global = r->offset + (r->width ? local / r->width * r->stride + local % r->width : local);
        return r->width ? r->width - local % r->width : r->count - local;
    }
    return 0;
}

// >>device --------------------------------------------------------------------------------------------------

// Large blocks are mapped: the system zeroes each page when it is first written to, and takes huge pages if
// it has them. The 64 bytes before the memory say how to free it.
enum { PAR__CPU_MAPPED = 4 << 20, PAR__HUGE_PAGE = 2 << 20, PAR__CPU_HEADER = 64 };
typedef struct par__cpu_header {
    void *base;
    size_t bytes; // of the mapping; 0: posix_memalign's
} par__cpu_header;
static par_result par__cpu_alloc(par_device *device, size_t bytes, void **memory) {
    par__cpu_header h = {NULL, 0};
    char *p = NULL;
    (void)device;
    if (!memory) return PAR_ERR_ARGUMENT;
    *memory = NULL;
    if (bytes > SIZE_MAX / 2) return PAR_ERR_MEMORY;
    if (bytes >= PAR__CPU_MAPPED) {
        h.bytes = par__round_up(bytes + PAR__CPU_HEADER, 4096) + PAR__HUGE_PAGE;
        h.base = mmap(NULL, h.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (h.base == MAP_FAILED) return PAR_ERR_MEMORY;
        const uintptr_t at = (uintptr_t)h.base;
        p = (char *)h.base + (par__round_up(at, PAR__HUGE_PAGE) - at);
        madvise(p, h.bytes - PAR__HUGE_PAGE, MADV_HUGEPAGE);
    } else {
        if (posix_memalign(&h.base, 64, bytes + PAR__CPU_HEADER)) return PAR_ERR_MEMORY;
        p = (char *)memset(h.base, 0, bytes + PAR__CPU_HEADER);
    }
    memcpy(p, &h, sizeof h);
    return *memory = p + PAR__CPU_HEADER, PAR_OK;
}
static par_result par__cpu_free(par_device *device, void *memory) {
    par__cpu_header h;
    (void)device;
    if (!memory) return PAR_OK;
    memcpy(&h, (char *)memory - PAR__CPU_HEADER, sizeof h);
    if (h.bytes)
        munmap(h.base, h.bytes);
    else
        free(h.base);
    return PAR_OK;
}
static par_result par__cpu_alloc_symmetric(par_device *device, par_comm *comm, size_t bytes, void **memory) {
    (void)device;
    *memory = par_alloc(comm, bytes);
    return *memory ? PAR_OK : PAR_ERR_MEMORY;
}
static par_result par__cpu_free_symmetric(par_device *device, par_comm *comm, void *memory) {
    (void)device;
    return par_free(comm, memory);
}
static par_result par__cpu_copy(par_device *device, void *dst, const void *src, size_t bytes, void *stream) {
    (void)device;
    (void)stream;
    if (bytes) memmove(dst, src, bytes);
    return PAR_OK;
}
static par_result par__cpu_fill(par_device *device, void *dst, int byte, size_t bytes, void *stream) {
    (void)device;
    (void)stream;
    if (bytes) memset(dst, byte, bytes);
    return PAR_OK;
}
static par_result par__cpu_cast(par_device *device, void *dst, par_dtype dt, const void *src, par_dtype st,
                                size_t count, void *stream) {
    (void)device;
    (void)stream;
    return par_cast(dst, dt, src, st, count);
}
static par_result par__cpu_reduce(par_device *device, void *dst, const void *const *sources, int source_count,
                                  size_t count, par_dtype dtype, par_op op, void *stream) {
    (void)device;
    (void)stream;
    if (source_count < 1 || par__op_error(op, dtype)) return PAR_ERR_ARGUMENT;
    par__reduce_sources(par__pick_kernels(), &dst, 1, NULL, sources, source_count, count, dtype, op,
                        source_count, 0);
    return PAR_OK;
}
static par_result par__cpu_stream_open(par_device *device, void **stream) {
    (void)device;
    *stream = NULL;
    return PAR_OK;
}
static par_result par__cpu_stream_noop(par_device *device, void *stream) {
    (void)device;
    (void)stream;
    return PAR_OK;
}
static par_result par__cpu_event_record(par_device *device, void *stream, void **event) {
    (void)device;
    (void)stream;
    *event = NULL;
    return PAR_OK;
}
static par_result par__cpu_event_wait(par_device *device, void *stream, void *event) {
    (void)device;
    (void)stream;
    (void)event;
    return PAR_OK;
}

par_device *par_cpu(void) {
    static par_device cpu = {"cpu",
                             NULL,
                             par__cpu_alloc,
                             par__cpu_free,
                             par__cpu_alloc,
                             par__cpu_free,
                             par__cpu_alloc_symmetric,
                             par__cpu_free_symmetric,
                             par__cpu_copy,
                             par__cpu_fill,
                             par__cpu_cast,
                             par__cpu_reduce,
                             par__cpu_stream_open,
                             par__cpu_stream_noop,
                             par__cpu_stream_noop,
                             par__cpu_event_record,
                             par__cpu_event_wait,
                             par__cpu_stream_noop,
                             par__cpu_stream_noop};
    return &cpu; // never written
}

// >>structs -------------------------------------------------------------------------------------------------
//
// Shared by the ranks of a node, in one memfd (the arena): its allocator, a control block per rank, and per
// comm a board with three cache lines per rank, and message rings, one per pair of ranks and lane. Private to
// a rank: its world, comms and operations.

enum {
    PAR__SITE_MAX = 16384, // call sites, with layers' names, that a rank can record; a power of two
    PAR__SITE_BYTES = 96,
    PAR__SITE_IN_LAYER = 0x8000,     // in a call site's number: it has a layer's name
    PAR__RECORD_MAX = 64,            // calls in the flight recorder
    PAR__INLINE_BYTES = 40,          // bytes of user data within the arrival record
    PAR__EXTENT_MAX = 65536,         // blocks in the arena's allocator; see LIMITS
    PAR__PREFETCH_BYTES = 512,       // of a peer's small data, asked for before it has arrived
    PAR__SHORT_MESSAGE_BYTES = 4096, // messages up to this size are always copied through the ring
    PAR__RING_CELLS = 32,            // cells of a message ring
    PAR__CHUNK_BYTES = 32768,        // at least so much one of a message's ends copies at a time
    PAR__CELL_BYTES = 40,            // bytes of user data within a cell
    PAR__WINDOW = 32,                // sends, or receives, of a track that are in flight at a time
    PAR__PHASES = 4,                 // phases that a piece of a collective may publish
    PAR__TRACKS = 4,                 // pieces of a collective in flight at a time, between nodes
    PAR__FOLD_RADIX = 8,             // so many nodes exchange their digests in one step
    PAR__ATTACHED_BYTES = 4096,      // attached to a digest at most: sums, what a root sends
    PAR__ATTACHED_MAX = 4 << 20,     // of all ranks' data
    PAR__VERDICT_BYTES = 56,         // bytes of user data within a verdict
    PAR__OPEN_SPANS = 32,            // of the trace, that the program has begun
    PAR__REVOKED_MAX = 16384,        // comms that can be revoked; see LIMITS
    PAR__ERROR_BYTES = 1024
};
enum { PAR__RANK_STARTING, PAR__RANK_RUNNING, PAR__RANK_CLOSED, PAR__RANK_DEAD }; // par__rank_control.state
enum { PAR__AWAKE, PAR__DROWSY, PAR__ASLEEP }; // par__rank_control.sleeping
// The lower half of a latch: what it says, or PAR__WRITING and the arena rank that is writing its text. Where
// that rank dies meanwhile, another one takes its place. The upper half is an epoch: the number of the comm
// that par_open, par_shrink or par_grow made, with all that were split from it. A new epoch begins with new
// latches.
enum { PAR__ABORTED = 1, PAR__WRITING = 1 << 16 };
enum { // flags of an arrival: how peers can access this rank's arrays, and what else they must know
    PAR__SEND_SHARED = 1,   // peers can read send
    PAR__RECV_SHARED = 2,   // peers can write recv
    PAR__SEND_CMA = 4,      // peers can copy from send (par__cma_copy)
    PAR__RECV_CMA = 8,      // peers can copy to recv
    PAR__IN_PLACE = 16,     // send and recv overlap
    PAR__INPUT_STAGED = 32, // the input that others need is in this rank's stage
    PAR__NO_MEMORY = 64,
    PAR__INVALID_CALL = 128
};

typedef struct par__record { // one call in the flight recorder
    uint64_t sequence, count, start_ticks, end_ticks;
    uint32_t comm;
    int32_t root;
    uint16_t site;
    uint8_t kind, dtype, op, result;
    uint8_t padding[2];
} par__record;

typedef struct par__rank_control {
    uint32_t state __attribute__((aligned(64)));
    uint32_t had_error; // an error ended one of its comms, of this epoch (+ 1): its exit is a consequence
    int32_t pid;
    int32_t world_rank;
    uint32_t admitted;  // by those that have started it: PAR__ADMITTED, PAR__REFUSED; a futex
    uint64_t newcomers; // of a rank that the supervisor shall start: where its par__newcomers are; else 0
    uint64_t born, checked_at; // when its process began, by the kernel; when it last checked a wait, in ns
    uint64_t probe_address;    // of its par__world.cma_probe, in its own memory
    uint64_t boot_board;       // the world's board on this rank's node
    uint64_t withdrawn[2];     // see par__withdraw
    uint32_t stepping;
    uint32_t doorbell __attribute__((aligned(64))); // a futex: a sleeping rank waits for it to change
    uint32_t sleeping;                              // PAR__AWAKE ...
    uint64_t record_count __attribute__((aligned(64)));
    uint64_t records[PAR__RECORD_MAX][sizeof(par__record) / 8]; // peers may read them meanwhile
} par__rank_control;

typedef struct par__extent { // a block that is in use
    uint64_t at, bytes;
    uint64_t users; // the par__rings of the ranks that use it; odd: 1 + 2 * the arena rank that took it
} par__extent;
typedef struct par__extents {
    uint64_t count;
    par__extent extent[PAR__EXTENT_MAX]; // sorted by address
} par__extents;

typedef struct par__arena { // the first bytes of the shared memory
    uint64_t magic, bytes;
    uint64_t key; // a random number that only ranks of this arena know
    uint64_t boot_rings;
    int32_t rank_count;
    uint32_t started, gone;        // ranks that have registered; that died or closed their worlds
    uint32_t cma_arrivals, no_cma; // see par__probe_cma
    uint32_t scan_next;            // see par__scan_ranks
    uint64_t scanned_at;           // nanoseconds
    uint32_t first_count;          // ranks that par_open starts; the rest of rank_count is for par_grow,
    uint32_t reserved;             // which has taken so many, those included
    uint64_t alarms;               // the lower half: PAR__ABORTED; the upper: entries of `revoked`
    char abort_text[PAR__ERROR_BYTES];
    uint32_t left_behind; // the abort is of this side alone: the ranks of other nodes must not hear of it
    uint64_t
        first_dead; // the world's first rank that died on its own, as far as known here, + 1: of an epoch
    uint64_t first_error; // the par_result that first ended a comm, + 1: of an epoch
    char first_error_text[PAR__ERROR_BYTES];
    uint64_t revoked[PAR__REVOKED_MAX];             // see par__comm_key; 0: not used yet
    uint32_t sleepers __attribute__((aligned(64))); // ranks that are drowsy or asleep
    uint32_t lock __attribute__((aligned(64)));     // of the extents: its owner's arena rank + 1; 0: free
    uint32_t table;             // the table of extents that counts; the other one is being written, or is old
    par__extents tables[2];     // see par__arena_take
    par__rank_control ranks[1]; // rank_count of them
} par__arena;
#define PAR__CMA_BYTES          ((size_t)16384) // to or from one peer: CMA from this size (messages: 4 times)
#define PAR__NONTEMPORAL_BYTES  ((size_t)24 << 20) // all ranks' arrays: nontemporal from this size on
#define PAR__EAGER_BYTES        ((size_t)32768)    // data sent with the arrival: of ordinary memory
#define PAR__EAGER_SHARED_BYTES ((size_t)4096)     // of symmetric memory
#define PAR__LINK_BYTES         ((size_t)32768) // between nodes pass in the time that a message's start takes
#define PAR__OVERLAP_BYTES      ((size_t)10240) // the same of many messages at a time, whose starts overlap
#define PAR__MAGIC              0x3172612e72617021u

typedef struct par__arrival { // exactly one cache line
    par__call_record call;
    union {
        struct {
            uint64_t send, recv; // addresses in the arena (ranks as threads: pointers)
            uint64_t counts;     // see par__hash_own_counts
        } address;
        unsigned char data[PAR__INLINE_BYTES];
    } u;
} par__arrival;

typedef struct par__arrivals {
    par__arrival arrival[2]; // even and odd calls: a faster rank fills one while slower ranks read the other
    uint32_t phase[PAR__TRACKS]; // the phase that the current call has reached, on each track
    uint32_t closed;             // 0: its rank has not closed the comm; see par__mark_closed
    uint32_t begun;              // then: the collectives that it had begun
    uint32_t unused[10];
} par__arrivals;

typedef struct par__digest { // of the arrivals of some ranks; exactly one cache line
    par__call_record call;   // of the first of them,
    int32_t rank;            // which is this one; < 0: of no ranks
    int32_t odd;             // the first of them that made another call, or cannot make it; < 0: none
    uint8_t all, any;        // flags that all of them have; that one of them has
    uint8_t kinds_differ;    // their calls differ in more than counts and dtypes
    uint8_t padding[13];
    uint64_t counts;  // the sum of what par__hash_own_counts returned
    uint64_t largest; // bytes of the largest block
} par__digest;
typedef struct par__verdict_line { // what the leader of a node has found in the arrivals of all nodes
    par__digest digest;
    uint32_t sequence; // of the call; written last
    uint32_t padding;
    unsigned char data[PAR__VERDICT_BYTES];
} par__verdict_line;
typedef struct par__report { // an arrival that an error text names, of any node
    int32_t rank;            // < 0: none
    int32_t padding;
    par__call_record call;
    char site[PAR__SITE_BYTES];
} par__report;
typedef struct par__board {                                     // of a comm, on one node
    uint32_t closed;                                            // ranks that have closed the comm
    par__report reports[2];                                     // of the last call that failed, between nodes
    par__verdict_line verdicts[2] __attribute__((aligned(64))); // of even and odd calls, between nodes
    par__arrivals arrivals[1] __attribute__((aligned(64)));     // one per rank of the node
} par__board;

typedef enum par__place { // of the bytes of a message
    PAR__IN_RING,         // in its cells, or the payload that follows them
    PAR__IN_ARENA,        // where the receiver can address them
    PAR__IN_SENDER        // in the sender's private memory
} par__place;
typedef struct par__cell { // a message, or the next piece of one; exactly one cache line
    uint32_t ticket;       // written last: the cell's number, from 1; it wraps around
    uint16_t site;         // of the send, in its rank's table
    uint8_t dtype, place;
    uint64_t count, bytes; // of the whole message
    union {
        struct {
            uint64_t from;             // where the sender has the bytes
            uint64_t to;               // of a shared copy: where the receiver wants them
            uint64_t claimed, helped;  // bytes that one of them copies; that the sender has copied
            uint32_t to_place, failed; // the par__place of `to`, written after it; a part could not be copied
        } copy;
        unsigned char data[PAR__CELL_BYTES];
    } u;
} par__cell;

typedef struct par__ring { // of an ordered pair of ranks and a lane; ring_lines cache lines of payload follow
    uint32_t head __attribute__((aligned(64))); // cells filled; only the sender uses this line
    uint32_t head_line;                         // lines of payload filled
    uint64_t seen_tail;
    uint64_t tail __attribute__((aligned(64))); // cells, and << 32 lines, drained; written by the receiver
    par__cell cells[PAR__RING_CELLS] __attribute__((aligned(64)));
} par__ring;

enum { PAR__VOTED = 1, PAR__VOTED_ABSENT = 2 }; // of par__vote.state, and in what call:
enum {
    PAR__AGREES = 1 << 4,
    PAR__SHRINKS = 2 << 4,
    PAR__GROWS = 3 << 4,
    PAR__KEEPS = 4 << 4,
    PAR__ENDS = 5 << 4
};
typedef struct par__vote {
    uint64_t state; // the number of the vote << 8, its kind << 4, PAR__VOTED or PAR__VOTED_ABSENT
    uint64_t value[2];
} par__vote;
typedef struct par__user { // a rank that uses the shared memory of a comm
    int32_t index;         // of its control block
    uint32_t released;     // 1: it does not access it any more
    par__vote votes[2];    // odd and even ones, see >>elastic
} par__user;
typedef struct par__rings { // of the ranks of a comm that share an arena
    uint64_t at;            // where the rings are; 0: no message has been sent
    uint32_t user_count, closing;
    par__user user[1]; // user_count of them; then a byte for each ring, 1: its memory is committed
} par__rings;

typedef struct par__message_header { // precedes the bytes of a message between nodes
    uint64_t bytes, count, address;
    uint64_t hash;         // of the counts of the blocks in it; 0: one block
    uint32_t dtype, place; // between nodes address and place are 0
    char site[PAR__SITE_BYTES];
} par__message_header;

typedef struct par__net par__net;
typedef struct par__tcp par__tcp;
typedef struct par__rendezvous par__rendezvous;
typedef struct par__net_request { // bytes in flight between nodes, see >>net
    int active, sending, peer;
    size_t bytes;
    struct par__tcp_message *message;
#if defined(PAR_MPI)
    MPI_Request mpi;
#endif
} par__net_request;

typedef struct par__block { // of an exchange
    char *memory;
    size_t bytes;
} par__block;
typedef enum par__transfer_state {
    PAR__TRANSFER_NEW,
    PAR__TRANSFER_HEADER,  // between nodes: a receive waits for the message's header
    PAR__TRANSFER_PIECES,  // the bytes pass, piece by piece
    PAR__TRANSFER_OFFERED, // a send whose receiver copies them, and says when it has
    PAR__TRANSFER_ENDED
} par__transfer_state;
typedef enum par__sharing { PAR__SHARING_OPEN, PAR__SHARING_NONE, PAR__SHARING_BOTH } par__sharing;
typedef struct par__transfer { // a message in flight
    int sending, peer, lane, mismatched;
    par__transfer_state state;
    uint64_t hash; // as par__message_header.hash
    char *memory;
    size_t bytes, done;
    const par__block *blocks; // of a bundle on this node, instead of memory; NULL: none
    size_t block_count;
    size_t block, at; // where in the blocks `done` ends
    size_t least;     // a receive: fewer bytes than that are a mismatch
    uint32_t ticket;
    par__net_request request, first_request; // between nodes
    char *first;                             // a user's message: its header and first bytes
    size_t chunk;                            // bytes in flight
    int chunks;                              // issued so far
    par__sharing sharing;                    // a receive: does the sender copy a part?
    size_t pulled;                           // bytes that the receiver has copied then
    par__message_header header;              // of what this rank receives
} par__transfer;

typedef struct
    par__bundle { // the blocks between this rank and one other, in one direction; its own: to itself
    int peer, sending;
    size_t first, count; // blocks
    size_t bytes;        // of all of them
    uint64_t hash;       // of their counts
    char *packed;        // between nodes
} par__bundle;
typedef struct par__exchange { // of an operation
    par__bundle *bundles;      // sends, then receives
    size_t bundle_count;
    par__block *blocks;
    uint64_t *addresses;  // as many as blocks
    struct iovec *copies; // twice as many
    char *packed;
    size_t bundle_capacity, block_capacity, packed_capacity;
} par__exchange;

typedef enum par__verb {
    PAR__WAIT_ALL,
    PAR__WAIT,
    PAR__PUBLISH,
    PAR__COPY,
    PAR__PULL,
    PAR__PUT,
    PAR__REDUCE,
    PAR__SEND,
    PAR__RECV,
    PAR__JOIN,
    PAR__COMPARE,
    PAR__COMBINE,
    PAR__TRANSPOSE
} par__verb;

typedef struct par__action { // one step of an algorithm: see >>program
    par__verb verb;
    int rank, first, last; // peer; or the range of sources; of a transpose: rows, columns
    int lane;              // of a message
    uint32_t phase;
    int finalize, push, keep; // reduce: last step; result to all ranks' output; (also) to recv
    int left;                 // combine: src is the left operand
    int stream;               // copy: past the caches
    char *dst;
    const char *src;
    size_t bytes, offset, count; // of a transpose: of a block, between two columns of dst
    size_t least;                // of a receive: bytes that come at least
} par__action;

typedef struct par__algorithm_row par__algorithm_row;

typedef struct par__two_ways { // of collectives of one kind and size, on the comm's rank 0: see >>select
    uint32_t calls;
    float seconds[2]; // of a call with ordinary memory copied by the system, and staged; 0: not known yet
} par__two_ways;
enum { PAR__SIZE_CLASSES = 16 }; // powers of two from PAR__CMA_BYTES on

typedef struct par__track { // a piece in flight
    int index, running;
    uint32_t phase; // the last one published before this piece
    uint32_t half;  // which half of its part of the stages
    par__action *actions;
    size_t action_count, action_capacity, at;
    par__transfer *transfers;
    size_t transfer_count, transfer_capacity;
    size_t ended[2]; // so many of the first have ended, as far as receives, or sends, are among them
} par__track;

typedef struct par__operation {  // first what every call needs, so that a message touches few cache lines
    struct par__operation *next; // in the world's list of active operations, or in its queue
    par_comm *comm;
    par_call call;
    int state;   // PAR__QUEUED ...
    int invalid; // an argument is wrong: the other ranks must learn that before the call ends
    par_result result;
    uint64_t ticket;               // identifies this use of the structure; 0: none
    struct par__call_queue *queue; // in which it runs or waits
    uint32_t sequence;             // in its queue, from 1; of collectives: the call's number on this comm
    uint64_t start_ticks;
    double wait_start; // when a wait for it was first checked; 0: not yet
    uint16_t site;
    uint64_t record;
    uint64_t volume; // elements, for the ledger
    uint64_t net_messages, net_bytes;
    const par__algorithm_row *algorithm;
    const par_device_backend *backend; // that runs the call; NULL: not offloaded
    int kept; // it belongs to a comm's small calls, or to a par_neighbors with its tables
    struct {  // a call of a group
        struct par__operation *head; // of its group: the first operation, which completes last
        int pending;                 // a head: operations of its group not yet completed
        int detached;                // nobody waits for it: it is recycled when it completes
        par_result result;           // a head: the first error of its group
        uint64_t number;             // a head: its group's; else 0
        struct par__operation *next; // in par_comm.groups
    } group;
    struct {           // calls of a group that share an operation
        uint16_t hash; // of their counts; 0: a single call
        size_t count, capacity;
        par_call *calls;
        char *memory;
    } bucket;
    void *offload_state; // the backend's
    // a collective while it runs
    int eager;              // how the data were sent with the arrival: PAR__EAGER_NONE, ...
    int distance;           // between nodes that exchange digests now
    int reports;            // reports are exchanged
    par__two_ways *ways;    // that this call's seconds are counted in; NULL: none
    int way;                // 1: staged
    uint64_t data_ticks;    // when all ranks had arrived
    unsigned arrival_flags; // the flags of this rank's arrival
    size_t piece, block, offset;
    int more_pieces, final_piece; // the algorithm has further pieces; the final piece was emitted
    int track_count;
    par__track tracks[PAR__TRACKS], *track; // piece i runs on track i % track_count; the current one
    par__action discard;                    // written when memory is out; never read
    struct {                                // the ranks' arrays
        int send_addressable, recv_addressable, all_staged; // true of all ranks, so the same on all
        int nontemporal, stream_recv; // write past the caches: all ranks' arrays; this rank's ordinary one
        const char **inputs, **input; // per track and rank, and of the current track: byte 0 of the input
        char **output;                // per rank: the address of byte 0 of its output array
        unsigned char *cma;           // per rank: which of the two need CMA (PAR__SEND_CMA, PAR__RECV_CMA)
        unsigned char *flags;         // per rank: of its arrival, read once with its addresses
        const void **sources;         // scratch for par__reduce_sources: an address for each rank
        void **destinations;
        int capacity; // ranks
    } arrays;
    char *scratch;
    size_t scratch_bytes;
    par__exchange exchange; // a neighbor exchange
    // not used by most calls
    struct par__world *world;         // which outlives the comm
    struct par__operation *next_made; // in par__world.operations
} par__operation;
enum { PAR__EAGER_NONE, PAR__EAGER_INLINE, PAR__EAGER_SMALL, PAR__EAGER_STAGE, PAR__EAGER_ATTACHED };
enum { PAR__QUEUED, PAR__ARRIVING, PAR__GATHERING, PAR__RUNNING, PAR__WAITING_FOR_GROUP, PAR__DONE };
enum { PAR__GROUPED = PAR__DONE + 1 }; // it only stands for the calls of groups, in their requests

typedef struct par__segment { // consecutive ranks of one node
    int node, first, last;
} par__segment;
typedef struct par__layout { // the nodes of a comm's ranks, see >>topology
    int size, node_count, my_node, segment_count;
    int per_node;               // rank r is on node r / per_node; 0: the tables say where
    int *node_of, *local_index; // per rank
    int *start, *members;       // node j: members[start[j]] .. members[start[j + 1] - 1], ascending
    par__segment *segments;
} par__layout;
typedef struct par__numbers {  // a number for each rank: a progression, or a table
    int from, to, first, step; // ranks from .. to - 1 have first, first + step, ...; the others -1
    int *table;                // NULL: that is so
} par__numbers;

typedef struct par__call_queue { // calls that execute in the order in which they were issued
    uint32_t issued;
    par__ring *ring;         // of messages, where there is one and it was used
    par__operation *running; // the first call, the only one in the world's list; NULL: none
    par__operation *waiting; // the last of the others, a circular list; NULL: none
} par__call_queue;

typedef struct par__symmetric_block {
    struct par__symmetric_block *next;
    char *base;
    size_t stride;
} par__symmetric_block;

typedef struct par__tune_row { // a row of PAR_TUNE's file
    int ranks, nodes, algorithm;
    size_t bytes; // of calls, at most
} par__tune_row;

enum { PAR__MODEL_POINTS = 7 };
typedef struct par__model { // measured seconds of each kind at some sizes; linear between them
    double seconds[PAR_KIND_COUNT][PAR__MODEL_POINTS];
} par__model;

typedef struct par__layer_stats { // the calls of layers from one call site
    uint64_t calls, sent_bytes, ticks;
} par__layer_stats;

typedef struct par__plan { // of small calls on one node that are alike: what they need besides their data
    par_call call;         // one that is valid
    par__call_record record;
    const par__algorithm_row *algorithm;
    uint32_t forced_count; // par__world's when this was made; calls from then on
    int eager;             // how the data are sent with the arrival; NONE: the arrivals decide that
    uint64_t volume;       // as par__operation.volume
    size_t own_bytes;      // that this rank sends
    char *data[2];         // of rank 0: where even and odd calls, or halves of stages, have what is sent
    size_t stride;         // from one rank's to the next one's
    size_t from;           // this rank's part of what another sends begins there
    size_t prefetched;     // bytes of it, asked for before they have arrived
} par__plan;
enum { PAR__PLANS = 16 }; // of a comm, a power of two

struct par_neighbors {
    par_comm *comm, *own; // the program's; its own, whose messages mix with no others
    int degree;
    int *send_place, *recv_place; // per block: its number in par__exchange.blocks; -1: no neighbor
    size_t block_count;           // of both sides
    par__bundle *bundles;         // sends, then receives: peer, sending, first, count
    size_t bundle_count;
    par__operation *kept; // of the last exchange that no other was in flight beside; NULL: none yet
    size_t *kept_sizes;   // its counts and displs, for send and recv: degree each
};

typedef struct par__world par__world;
struct par_comm {
    par__world *world;
    par_comm *next; // in the world's list
    int closed;     // by the program; its operations go on, see par__release_closed
    int rank, size;
    uint32_t id, epoch; // epoch: the number of the comm that par_open, par_shrink or par_grow made,
    uint64_t *lineage;  // from which it was split, and the comms between: par__comm_key. NULL: none, or the
    int lineage_count;  // world is not elastic
    uint32_t votes;     // on this comm; of the last one, where it has several nodes, what was decided:
    const par__vote *cast; // per rank
    int *before;           // see par_rank_before; NULL: no comm of par_shrink or par_grow
    uint64_t alarms;       // of the arena, that do not concern this comm
    par__numbers world_ranks;
    par__numbers arena_indices; // their control blocks; -1: not in this arena
    par__layout nodes, flat;    // the nodes; every rank as a node of its own
    par__board *board;
    uint64_t rings_offset;          // in the arena
    int ring_count;                 // ranks that share the rings
    par__numbers ring_indices;      // of them; -1: reached by >>net
    char *stages;                   // of the ranks of this node, stage_bytes each
    size_t stage_bytes, half_bytes; // a track has two halves of a stage; one node: one track has all
    uint32_t ring_lines;            // of payload in a ring, a power of two
    size_t piece_bytes;             // of a message, at most so many in a cell or the payload at a time
    par__rings *rings;
    char *first_ring;                // where they are; NULL: not known yet
    int stage_committed, lane_count; // lanes of a pair's rings: user messages, then one per track
    uint32_t sequence, phase[PAR__TRACKS], half;
    uint32_t offload_count, offloads; // calls that were offloaded; those of them that have not ended
    par__call_queue collectives;
    par__call_queue **messages; // of PAR__QUEUES each: sends to, and receives from, each rank; NULL: none yet
    par_neighbors *neighbors;   // whose own comm it is
    par_device_backend *backend;
    int splitting_host;             // par_split attaches no backend, see par_split_host
    par__operation *group_offloads; // issued in the present group
    par__plan *plans;               // PAR__PLANS, see >>small; NULL: none yet
    par__operation *small;          // of its small calls, one at a time; NULL: none yet
    par__operation *grouping;       // in the requests of calls in groups, with the group's number
    uint64_t group;                 // the number of the last group
    par__operation *groups;         // heads of those that have ended, and were not waited for
    int in_group;                   // between par_group_begin and par_group_end; the calls so far:
    par_call *grouped;
    size_t grouped_count, grouped_capacity;
    int group_invalid;                  // the group has a collective with a wrong argument:
    par_call invalid_call;              // the first one
    par_result broken;                  // the error that ended this comm, and
    char broken_text[PAR__ERROR_BYTES]; // its text
    int tag;                            // of the next call
    const char *site;
    const char *last_algorithm;
    par__model *model; // NULL before par_calibrate
    par_ledger ledger[PAR_KIND_COUNT];
    par__two_ways *ways; // of rank 0: for each kind and class of sizes; NULL: not used yet, or out of memory
    par__layer_stats *layer_stats; // the ledger per call site with a layer's name
    size_t layer_stats_count;
    par__symmetric_block *blocks;
    char name[32];
};

typedef struct par__event { // of the trace
    const char *name;
    uint64_t start_ticks, end_ticks, bytes;
    uint32_t comm;
    uint16_t tid, site;
} par__event;

struct par__world {
    const char *launch_method;
    int rank, size, node_ranks;
    int places; // numbers that ranks may have; more than `size` in an elastic world
    int arena_rank;
    char *base; // of the arena
    size_t arena_bytes;
    uint64_t committed_bytes; // of it, by this rank
    int no_block;             // the last par__arena_alloc failed because all blocks were in use
    int fd;
    uint64_t fd_device,
        fd_inode; // of the arena: the program may have closed fd, and opened a file of its own
    par__arena *arena;
    int local_count; // ranks that share the arena
    int *pids;       // of these ranks; NULL: out of memory
    par__rank_control *control;
    const par__kernels *kernels;
    par_comm *comms, *closed; // open; closed, with operations that go on
    par__operation *active, **active_end, *idle_operations;
    par__operation *operations; // all that were made; they stay until the world closes
    void *idle_first; // buffers for the first bytes of messages between nodes; each begins with the next
    par_device_backend *backends; // of all comms
    int in_backend_progress;      // a backend's progress function is running
    uint64_t tickets;
    int progress_wanted, progress_made; // the thread was asked for; is there, maybe idle
    int has_progress_thread;            // it is running, under the lock
    int progress_on_node;               // it steps no calls between nodes: the transport is not for threads
    uint32_t progress_needed;           // it may begin
    uint32_t progress_stop;             // asks the thread to end
    uint32_t progress_work;             // a futex that the idle thread waits on
    pthread_t progress_thread;
    pthread_mutex_t lock;
    int elastic;
    par_comm *whole;             // the comm whose close is that of the world
    uint32_t epoch;              // of it
    uint32_t next_id, tag_count; // comms that this rank has numbered; the transport's: 1 + PAR__TRACKS a comm
    unsigned spin_limit;
    size_t cma_bytes, nontemporal_bytes;   // thresholds: PAR__CMA_BYTES, PAR__NONTEMPORAL_BYTES
    size_t kind_cma_bytes[PAR_KIND_COUNT]; // of an operation; 0: cma_bytes
    par__tune_row *tune_rows;
    size_t tune_row_count;
    int cma;            // ranks of this machine can copy from each other's private memory
    uint64_t cma_probe; // a word for the others to test that with
    double timeout_s, opened_at;
    par__timestamp opened;
    double last_check;

    signed char forced[PAR_KIND_COUNT]; // index into the algorithms, + 1
    uint32_t forced_count;              // how often they changed
    size_t stage_bytes;
    struct {
        const char *pointer;
        int line; // of a file; 0: the text has it
        uint16_t index;
    } site_cache[64];
    char (*sites)[PAR__SITE_BYTES];   // call sites of this rank; peers read a copy in the arena
    size_t site_count, site_capacity; // used; committed in the arena
    uint16_t *site_hash;              // from a text to its number; its size is a power of two; 0: free
    size_t site_hash_size;
    par__caller caller; // of the layer that is running
    const char *trace_path;
    par__event *events;
    size_t event_count, event_capacity;
    const char *open_spans[PAR__OPEN_SPANS];
    uint64_t open_span_start[PAR__OPEN_SPANS];
    int open_span_count;
    int *children; // pids, in the rank 0 that started them
    int child_count;
    int print_ledger;
    char error[PAR__ERROR_BYTES];
    int keep_cpus;                  // never bind this rank
    int bound;                      // par__bind_rank has changed where this thread may run
    par__cpu_set cpus, cpus_before; // since then, and before it
    char binding[192];              // where this rank runs, or why it is not bound
    const par__net *net;            // between nodes; NULL: all ranks are on one node
    par__tcp *tcp;
    double polled_at;    // when net was last polled
    uint32_t poll_round; // counts par__progress_operations
#if defined(PAR_MPI)
    MPI_Comm mpi;
    int finalize_mpi;
    int takes_turns;              // threads do; their numbers:
    uint32_t next_turn, now_turn; // of the next one to come; of the one that it is
#endif
};

static int par__number_of(const par__numbers *x, int r) {
    if (x->table) return x->table[r];
    return r < x->from || r >= x->to ? -1 : x->first + (r - x->from) * x->step;
}
static int par__world_rank(const par_comm *c, int r) { return par__number_of(&c->world_ranks, r); }
static int par__arena_index(const par_comm *c, int r) { return par__number_of(&c->arena_indices, r); }
static int par__ring_index(const par_comm *c, int r) { return par__number_of(&c->ring_indices, r); }
static int par__node_of(const par__layout *l, int r) { return l->per_node ? r / l->per_node : l->node_of[r]; }
static int par__local_index(const par__layout *l, int r) {
    return l->per_node ? r % l->per_node : l->local_index[r];
}
static par__arrivals *par__arrivals_of(const par_comm *c, int r) { // a rank of this node
    return &c->board->arrivals[par__local_index(&c->nodes, r)];
}
static par__arrival *par__arrival_of(const par_comm *c, int r, uint32_t sequence) {
    return &par__arrivals_of(c, r)->arrival[sequence & 1u];
}

// >>errors --------------------------------------------------------------------------------------------------

static double par__ticks_to_seconds(const par__world *w, uint64_t ticks) { // a duration
    const double seconds = par__now() - w->opened.seconds;
    const uint64_t passed = par__ticks() - w->opened.ticks;
    return passed ? (double)ticks * seconds / (double)passed : 0;
}

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static par_result
par__set_error(par__world *w, par_result result, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(w->error, sizeof w->error, format, args);
    va_end(args);
    par__sanitize(w->error, "\n\t");
    return result;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static par_result
par__log_error(par_result result, const char *format, ...) { // where no comm keeps the text
    char text[PAR__ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    par__sanitize(text, "\n\t");
    PAR_LOG(text);
    return result;
}

const char *par_last_error(const par_comm *comm) { return comm ? comm->world->error : ""; }

par_result par_fail(par_comm *comm, par_result result, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(comm->world->error, sizeof comm->world->error, format, args);
    va_end(args);
    par__sanitize(comm->world->error, "\n\t");
    return result;
}

par_comm *par__at_site(par_comm *comm, const char *site) {
    if (!site) return par__in_layer(comm);
    if (comm) comm->site = site;
    return comm;
}

static uint64_t par__site_hash(const char *text) { // of PAR__SITE_BYTES bytes
    uint64_t hash = 0, word;
    for (size_t i = 0; i < PAR__SITE_BYTES; i += sizeof word) {
        memcpy(&word, text + i, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}
static void par__site_hash_insert(par__world *w, uint16_t number) {
    size_t i = (size_t)par__site_hash(w->sites[number & (PAR__SITE_MAX - 1)]) & (w->site_hash_size - 1);
    while (w->site_hash[i]) i = (i + 1) & (w->site_hash_size - 1);
    w->site_hash[i] = number;
}
static int par__arena_commit(par__world *w, uint64_t at, uint64_t bytes);
static size_t par__arena_sites(int ranks); // their offset in the arena
// A call site of the rank with this arena index, in the arena, where all ranks can read and write it.
static char *par__shared_site(const par__world *w, int index, uint16_t place) {
    return w->base + par__arena_sites(w->local_count) +
           ((size_t)index * PAR__SITE_MAX + (place & (PAR__SITE_MAX - 1u))) * PAR__SITE_BYTES;
}

// Make space for one more call site; the last ones are for sites without a layer's name. 0: the table is
// full, or memory is out.
static int par__site_table_grow(par__world *w, int named) {
    const size_t step = 16384, size = 2 * w->site_hash_size;
    if (w->site_count >= (size_t)(named ? PAR__SITE_MAX - PAR__SITE_MAX / 16 : PAR__SITE_MAX)) return 0;
    if (w->site_count == w->site_capacity) {
        const size_t first = (size_t)(par__shared_site(w, w->arena_rank, 0) - w->base);
        const size_t there = first + w->site_capacity * PAR__SITE_BYTES + step;
        if (!par__arena_commit(w, there - step, step)) return 0;
        w->site_capacity = (there / 4096 * 4096 - first) / PAR__SITE_BYTES;
        w->site_capacity = PAR__MIN(w->site_capacity, (size_t)PAR__SITE_MAX);
    }
    if (2 * (w->site_count + 1) < w->site_hash_size) return 1;
    uint16_t *old = w->site_hash, *table = (uint16_t *)par__zalloc(size * sizeof *table);
    if (!table) return 0;
    w->site_hash = table;
    w->site_hash_size = size;
    for (size_t i = 0; i < size / 2; i++)
        if (old[i]) par__site_hash_insert(w, old[i]);
    PAR_FREE(old);
    return 1;
}

// The number of the call site "site in name" in this rank's table. 0, "(one of many places)": the table is
// full.
static uint16_t par__intern_site(par__world *w, const char *site, const char *name) {
    char text[PAR__SITE_BYTES];
    const size_t named = strlen(name), capacity = sizeof text - 1 - (named ? named + 4 : 0),
                 all = strlen(site), length = PAR__MIN(all, capacity);
    memset(text, 0, sizeof text);
    memcpy(text, site + (all - length), length); // a long path keeps its end
    if (named) {
        memcpy(text + length, " in ", 4);
        memcpy(text + length + 4, name, named);
    }
    size_t i = (size_t)par__site_hash(text) & (w->site_hash_size - 1);
    for (; w->site_hash[i]; i = (i + 1) & (w->site_hash_size - 1))
        if (!memcmp(w->sites[w->site_hash[i] & (PAR__SITE_MAX - 1)], text, sizeof text))
            return w->site_hash[i];
    if (!par__site_table_grow(w, named > 0)) return 0;
    const uint16_t number = (uint16_t)(w->site_count++ | (named ? (size_t)PAR__SITE_IN_LAYER : 0));
    memcpy(w->sites[number & (PAR__SITE_MAX - 1)], text, sizeof text);
    memcpy(par__shared_site(w, w->arena_rank, number), text, sizeof text);
    par__site_hash_insert(w, number);
    return number;
}

static uint16_t par__new_site_index(par__world *w, const char *site, size_t hash) {
    const uintptr_t at = (uintptr_t)site - (uintptr_t)w->sites;
    const int interned = at < sizeof *w->sites * PAR__SITE_MAX, named = interned && strstr(site, " in ");
    w->site_cache[hash].pointer = site;
    w->site_cache[hash].line = 0;
    w->site_cache[hash].index =
        interned ? (uint16_t)(at / sizeof *w->sites | (named ? (size_t)PAR__SITE_IN_LAYER : 0))
                 : par__intern_site(w, site, "");
    return w->site_cache[hash].index;
}
// The number of a call site, which is a literal of the program or a text that is interned already.
static inline uint16_t par__site_index(par__world *w, const char *site) {
    const size_t hash = ((uintptr_t)site >> 2 ^ (uintptr_t)site >> 8) & 63u;
    if (w->site_cache[hash].pointer == site && !w->site_cache[hash].line) return w->site_cache[hash].index;
    return par__new_site_index(w, site, hash);
}
par_comm *par_at(par_comm *comm, const char *file, int line) {
    par__world *w = comm ? comm->world : NULL;
    if (!comm) return comm;
    const size_t hash = ((uintptr_t)file >> 2 ^ (uintptr_t)file >> 8 ^ (uintptr_t)line) & 63u;
    if (w->site_cache[hash].pointer != file || w->site_cache[hash].line != line || !line) {
        char site[PAR__SITE_BYTES];
        const size_t length = strlen(file), keep = sizeof site - 16; // a long path keeps its end
        snprintf(site, sizeof site, "%s:%d", file + (length > keep ? length - keep : 0), line);
        w->site_cache[hash].pointer = file;
        w->site_cache[hash].line = line;
        w->site_cache[hash].index = par__intern_site(w, site, "");
    }
    comm->site = w->sites[w->site_cache[hash].index];
    return comm;
}

void par__enter_layer(par_comm *comm, const char *site) {
    if (comm) {
        comm->world->caller.site = site;
        comm->world->caller.name[0] = 0;
    }
}
void par__set_layer_name(par_comm *comm, const char *name) {
    par__caller *k = &comm->world->caller;
    size_t length = name ? strlen(name) : 0, skip = length < sizeof k->name ? 0 : length - sizeof k->name + 1;
    while (skip < length && skip && ((unsigned char)name[skip] & 0xc0) == 0x80) skip++; // at a character
    if (length) memcpy(k->name, name + skip, length - skip);
    k->name[length - skip] = 0;
}
par__caller par__save_caller(const par_comm *comm) { return comm->world->caller; }
void par__restore_caller(par_comm *comm, const par__caller *caller) { comm->world->caller = *caller; }

par_comm *par__in_layer(par_comm *comm) {
    par__world *w = comm ? comm->world : NULL;
    if (!comm) return comm;
    comm->site = w->caller.site;
    if (!w->caller.name[0]) return comm;
    const uint16_t number = par__intern_site(w, w->caller.site ? w->caller.site : "?", w->caller.name);
    if (number) comm->site = w->sites[number & (PAR__SITE_MAX - 1)];
    return comm;
}
par_comm *par__in_named_layer(par_comm *comm, const char *name) {
    const par__caller caller = comm->world->caller;
    par__set_layer_name(comm, name);
    par__in_layer(comm);
    comm->world->caller = caller;
    return comm;
}

par_result par__fail_in_layer(par_comm *comm, par_result result, const char *format, ...) {
    par__world *w = comm->world;
    va_list args;
    va_start(args, format);
    vsnprintf(w->error, sizeof w->error, format, args);
    va_end(args);
    const size_t length = strlen(w->error);
    if (w->caller.site)
        snprintf(w->error + length, sizeof w->error - length, " (called at %s%s%s)", w->caller.site,
                 w->caller.name[0] ? " in " : "", w->caller.name);
    par__sanitize(w->error, "\n\t");
    return result;
}

// A copy of a text that other ranks may write: as many bytes as its owner agreed to, safe to print.
typedef struct par__shared_text {
    char at[PAR__ERROR_BYTES];
} par__shared_text;
static par__shared_text par__copy_shared_text(const char *shared, size_t bytes) {
    par__shared_text t;
    bytes = PAR__MIN(bytes, sizeof t.at) - 1;
    memcpy(t.at, shared, bytes);
    t.at[bytes] = 0;
    par__sanitize(t.at, "\n");
    return t;
}
static par__shared_text par__abort_text(const par__world *w) {
    return par__copy_shared_text(w->arena->abort_text, PAR__ERROR_BYTES);
}
static par__shared_text par__shared_site_text(const par__world *w, int index, uint16_t place) {
    return par__copy_shared_text(par__shared_site(w, index, place), PAR__SITE_BYTES);
}
// The error for a value in shared memory that no rank of this run can have written.
static par_result par__memory_corrupt(par__world *w, const char *what, uint64_t value) {
    return par__set_error(w, PAR_ERR_SYSTEM,
                          "the shared memory of rank %d holds %s %llu (0x%llx), which is impossible: "
                          "something wrote into it",
                          w->rank, what, (unsigned long long)value, (unsigned long long)value);
}
static const char *par__op_site(const par__operation *op) {
    return op->comm->world->sites[op->site & (PAR__SITE_MAX - 1)];
}
static par_result par__no_memory(par__operation *op) { // the operation fails
    return op->result = par__set_error(op->comm->world, PAR_ERR_MEMORY, "no memory for par_%s at %s",
                                       par_kind_name(op->call.kind), par__op_site(op));
}
// The call site of a rank of this arena.
static const char *par__site_at(const par_comm *c, int rank, uint16_t site) {
    return par__shared_site(c->world, par__arena_index(c, rank), site);
}
static par__shared_text par__site_text(const par_comm *c, int rank, uint16_t site) {
    return par__copy_shared_text(par__site_at(c, rank, site), PAR__SITE_BYTES);
}

static par__record par__get_record(const par__rank_control *c, uint64_t index) {
    par__record r;
    uint64_t words[sizeof r / 8];
    for (size_t i = 0; i < sizeof words / 8; i++)
        words[i] = __atomic_load_n(&c->records[index % PAR__RECORD_MAX][i], __ATOMIC_RELAXED);
    memcpy(&r, words, sizeof r);
    return r;
}

static void par__print_record(const par__world *w, int index, const par__record *r, FILE *file) {
    const uint64_t end = r->end_ticks ? r->end_ticks : par__ticks();
    fprintf(
        file,
        "  #%-6llu %-15s count=%-10llu %-4s %-4s root=%-3d comm=%-4u %s%s %.6f s, issued %.6f s ago, %s\n",
        (unsigned long long)r->sequence, par_kind_name((par_kind)r->kind), (unsigned long long)r->count,
        par_dtype_name((par_dtype)r->dtype), par_op_name(r->op), r->root, r->comm,
        r->end_ticks ? "ended: " : "RUNNING", r->end_ticks ? par_result_name((par_result)r->result) : "",
        par__ticks_to_seconds(w, end - r->start_ticks),
        par__ticks_to_seconds(w, par__ticks() - r->start_ticks), par__shared_site_text(w, index, r->site).at);
}

// Is the last call of two ranks of this node the same, and are both in it or out of it?
static int par__same_last_call(const par__world *w, int i, int j) {
    const par__rank_control *a = &w->arena->ranks[i], *b = &w->arena->ranks[j];
    const uint64_t n = PAR__LOAD(&a->record_count), m = PAR__LOAD(&b->record_count);
    if (PAR__LOAD(&a->state) != PAR__LOAD(&b->state) || !n || !m) return 0;
    const par__record x = par__get_record(a, n - 1), y = par__get_record(b, m - 1);
    return x.sequence == y.sequence && x.comm == y.comm && x.kind == y.kind && x.count == y.count &&
           x.root == y.root && !x.end_ticks == !y.end_ticks &&
           !strcmp(par__shared_site_text(w, i, x.site).at, par__shared_site_text(w, j, y.site).at);
}
// Of many ranks, those whose last call is that of the rank before are one line.
void par_recorder_print(const par_comm *comm, FILE *file) {
    enum { MANY = 16 };
    const par__world *w = comm->world;
    static const char *const states[] = {"not started", "running", "closed", "DEAD"};
    for (int i = 0, alike; i < w->local_count; i += 1 + alike) {
        const par__rank_control *c = &w->arena->ranks[i];
        const uint64_t n = PAR__LOAD(&c->record_count);
        fprintf(file, "par: flight recorder of rank %d (pid %d, %s), %llu calls:\n", c->world_rank, c->pid,
                states[PAR__LOAD(&c->state) & 3u], (unsigned long long)n);
        for (uint64_t j = n > 8 ? n - 8 : 0; j < n; j++) {
            const par__record r = par__get_record(c, j);
            par__print_record(w, i, &r, file);
        }
        alike = 0;
        while (w->local_count > MANY && i + alike + 1 < w->local_count &&
               par__same_last_call(w, i, i + alike + 1))
            alike++;
        if (alike)
            fprintf(file, "par: the last call of %d more, to rank %d, is the same\n", alike,
                    w->arena->ranks[i + alike].world_rank);
    }
}

static const char *par__last_seen(const par__world *w, int index, char *text, size_t bytes) {
    const par__rank_control *c = &w->arena->ranks[index];
    const uint64_t n = PAR__LOAD(&c->record_count);
    if (!n) {
        snprintf(text, bytes, "it has made no call yet");
        return text;
    }
    const par__record r = par__get_record(c, n - 1);
    snprintf(text, bytes, "last seen %s par_%s at %.95s, %.1f s ago", r.end_ticks ? "ending" : "in",
             par_kind_name((par_kind)r.kind), par__shared_site_text(w, index, r.site).at,
             par__ticks_to_seconds(w, par__ticks() - (r.end_ticks ? r.end_ticks : r.start_ticks)));
    return text;
}

// Write a call to the flight recorder: the words of a par__record, assembled in registers because every call
// does this. ended 0: it is running.
static inline void par__write_record(const par_comm *c, const par_call *k, uint32_t sequence, uint16_t site,
                                     uint64_t start, uint64_t ended) {
    par__rank_control *control = c->world->control;
    const uint64_t n = control->record_count;
    uint64_t *to = control->records[n % PAR__RECORD_MAX];
    __atomic_store_n(&to[0], (uint64_t)sequence, __ATOMIC_RELAXED);
    __atomic_store_n(&to[1], (uint64_t)k->count, __ATOMIC_RELAXED);
    __atomic_store_n(&to[2], start, __ATOMIC_RELAXED);
    __atomic_store_n(&to[3], ended, __ATOMIC_RELAXED);
    __atomic_store_n(&to[4], c->id | (uint64_t)(uint32_t)par__root_or_tag(k) << 32, __ATOMIC_RELAXED);
    __atomic_store_n(
        &to[5], site | (uint64_t)k->kind << 16 | (uint64_t)k->dtype << 24 | (uint64_t)(k->op & 255u) << 32,
        __ATOMIC_RELAXED);
    PAR__STORE(&control->record_count, n + 1);
}
// The call has ended: write the words that have changed, unless the record was overwritten.
static void par__end_record(const par__operation *op, uint64_t ended) {
    par__rank_control *control = op->comm->world->control;
    uint64_t *to = control->records[op->record % PAR__RECORD_MAX];
    if (op->record + PAR__RECORD_MAX <= control->record_count) return;
    __atomic_store_n(&to[3], ended, __ATOMIC_RELAXED);
    if (op->result)
        __atomic_store_n(&to[5], (to[5] & 0xffffffffffu) | (uint64_t)op->result << 40, __ATOMIC_RELAXED);
}

// >>arena ---------------------------------------------------------------------------------------------------
//
// One sparse memfd per node, mapped once and as a whole, so that a byte has the same offset for every rank.
// Allocated blocks are committed by fallocate at once (which fails then, instead of a later SIGBUS), and
// freed blocks are punched out. The size is sealed. The memfd has no name: a process that maps it has
// inherited the descriptor, has received it from the node's leader (>>nodes), or opened it in /proc/PID/fd.
// For that the kernel requires the same as for reading a process by ptrace: the same user, or root;
// process_vm_readv requires more. Processes of one user are not protected from each other.

static size_t par__arena_sites(int ranks) { // the bytes before the ranks' call sites
    return par__round_up(sizeof(par__arena) + (size_t)ranks * sizeof(par__rank_control), 4096);
}
static int par__ranks_are_threads(const par__world *w) {
    return w->launch_method[0] == 't' && w->launch_method[1] == 'h';
}

static size_t par__arena_header(int ranks) {
    return par__arena_sites(ranks) + (size_t)ranks * PAR__SITE_MAX * PAR__SITE_BYTES;
}

static void par__set_arena_fd(par__world *w, int fd) {
    struct stat st;
    memset(&st, 0, sizeof st);
    fstat(fd, &st);
    w->fd = fd;
    w->fd_device = (uint64_t)st.st_dev;
    w->fd_inode = (uint64_t)st.st_ino;
}
enum { PAR__MADV_POPULATE_WRITE = 23 }; // of Linux 5.14
// Is the arena's descriptor still the arena's? Daemons close all descriptors from 3 on. 0: what has this
// number now is the program's; that is logged once.
static int par__owns_arena_fd(par__world *w) {
    struct stat st;
    if (w->fd < 0) return 0;
    if (!fstat(w->fd, &st) && (uint64_t)st.st_dev == w->fd_device && (uint64_t)st.st_ino == w->fd_inode)
        return 1;
    par__log_error(PAR_OK,
                   "rank %d's program has closed descriptor %d, which par.h keeps for shared memory: close "
                   "those that you have opened, not all from 3 on",
                   w->rank, w->fd);
    w->fd = -1;
    return 0;
}
static void par__count_committed(par__world *w, uint64_t bytes) { // by either of a rank's threads
    __atomic_add_fetch(&w->committed_bytes, bytes, __ATOMIC_RELAXED);
}
static int par__arena_commit(par__world *w, uint64_t at, uint64_t bytes) {
    const uint64_t first = at / 4096 * 4096, last = par__round_up(at + bytes, 4096);
    int r;
    if (!par__owns_arena_fd(w)) { // errno says why not
        errno = EBADF;
        return w->base && !madvise(w->base + first, (size_t)(last - first), PAR__MADV_POPULATE_WRITE);
    }
    do r = par__fallocate(w->fd, 0, first, last - first);
    while (r && errno == EINTR);
    if (!r) par__count_committed(w, last - first);
    return r == 0;
}

// The same, and map it in this process, which zeroes each page once and in huge pages where the system has
// them for shared memory. Where it cannot, the block is only committed.
static int par__arena_touch(par__world *w, uint64_t at, uint64_t bytes) {
    const uint64_t first = at / 4096 * 4096, last = par__round_up(at + bytes, 4096);
    int r;
    do r = madvise(w->base + first, last - first, PAR__MADV_POPULATE_WRITE);
    while (r && (errno == EINTR || errno == EAGAIN));
    if (!r) par__count_committed(w, last - first);
    const int unknown = errno == EINVAL || errno == ENOSYS || errno == EPERM; // the last in a container
    return r == 0 || (unknown && par__arena_commit(w, at, bytes));
}

// Is this a block that the allocator may have given to ranks?
static int par__arena_contains(const par__world *w, uint64_t at, uint64_t bytes) {
    return at % 64 == 0 && at >= par__arena_header(w->local_count) && at <= w->arena_bytes &&
           bytes <= w->arena_bytes - at;
}

// The kernel tells whether a rank is alive: its process holds a lock on one byte of the memfd, at its arena
// index, and loses the lock when it ends. Nothing that is written to the memory can change that. 1: done.
static int par__liveness_lock(par__world *w, int command, int type, int index, struct flock *l) {
    memset(l, 0, sizeof *l);
    l->l_type = (short)type;
    l->l_whence = SEEK_SET;
    l->l_start = index;
    l->l_len = 1;
    return par__owns_arena_fd(w) && fcntl(w->fd, command, l) == 0;
}
static void par__set_gone(const par__world *w, par__rank_control *c, uint32_t state) {
    uint32_t before = PAR__LOAD(&c->state);
    if (before >= PAR__RANK_CLOSED ||
        !__atomic_compare_exchange_n(&c->state, &before, state, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    if (state == PAR__RANK_DEAD && PAR__LOAD(&c->sleeping) != PAR__AWAKE)
        __atomic_sub_fetch(&w->arena->sleepers, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&w->arena->gone, 1, __ATOMIC_SEQ_CST);
}
static int par__peer_dead(par__world *w, int index) { // or has closed its world
    par__rank_control *c = &w->arena->ranks[index];
    const uint32_t state = PAR__LOAD(&c->state);
    struct flock l;
    if (state == PAR__RANK_DEAD || state == PAR__RANK_CLOSED) return 1;
    if (state != PAR__RANK_RUNNING || index == w->arena_rank || par__ranks_are_threads(w)) return 0;
    if (!par__liveness_lock(w, F_GETLK, F_WRLCK, index, &l) || l.l_type != F_UNLCK) return 0;
    par__set_gone(w, c, PAR__RANK_DEAD);
    return 1;
}

// What par__peer_dead asks of the kernel takes longer the more ranks there are. So the ranks that wait ask in
// turn: one of them every few milliseconds, about some ranks, and the others read what it has found.
enum { PAR__SCAN_RANKS = 64, PAR__SCAN_NS = 4000000 };
static void par__scan_ranks(par__world *w) {
    par__arena *a = w->arena;
    const uint32_t n = (uint32_t)w->local_count;
    const uint64_t now = (uint64_t)(par__now() * 1e9);
    uint64_t before = PAR__LOAD(&a->scanned_at);
    if (now - before < PAR__SCAN_NS ||
        !__atomic_compare_exchange_n(&a->scanned_at, &before, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    const uint32_t first = __atomic_fetch_add(&a->scan_next, PAR__SCAN_RANKS, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < n && i < PAR__SCAN_RANKS; i++) par__peer_dead(w, (int)((first + i) % n));
}
// What is known of a rank of this node without asking the kernel.
static int par__known_dead(const par__world *w, int index) {
    const uint32_t state = PAR__LOAD(&w->arena->ranks[index].state);
    return state == PAR__RANK_DEAD || state == PAR__RANK_CLOSED;
}

// The lock of the extents. If its owner dies, the next rank takes it. 0: the memory is corrupt, or the
// deadline has passed; that is logged.
static int par__arena_lock(par__world *w) {
    uint32_t *lock = &w->arena->lock;
    const double until = par__now() + w->timeout_s;
    for (unsigned i = 1;; i++) {
        uint32_t owner = 0;
        const uint32_t mine = (uint32_t)w->arena_rank + 1;
        if (__atomic_compare_exchange_n(lock, &owner, mine, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return 1;
        if (owner > (uint32_t)w->local_count) {
            par__memory_corrupt(w, "a lock of rank", owner);
            PAR_LOG(w->error);
            return 0;
        }
        if (i % 64 == 0 && par__peer_dead(w, (int)owner - 1) &&
            __atomic_compare_exchange_n(lock, &owner, mine, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return 1;
        if (i % 64 == 0 && par__now() > until) {
            par__log_error(PAR_ERR_TIMEOUT, "rank %d waited %g s for the lock of its shared memory", w->rank,
                           w->timeout_s);
            return 0;
        }
        if (i < 64)
            sched_yield();
        else
            usleep(100);
    }
}
static void par__arena_unlock(par__world *w) { PAR__STORE(&w->arena->lock, 0u); }

// The table of extents that counts, and the other one. A change is written to that one, which one store then
// makes the one that counts: a rank that dies meanwhile has changed nothing.
static par__extents *par__extents_of(par__arena *a, uint32_t other) {
    return &a->tables[(PAR__LOAD(&a->table) + other) & 1u];
}
static void par__switch_extents(par__arena *a) { PAR__STORE(&a->table, PAR__LOAD(&a->table) + 1); }
enum { PAR__EXTENT_STEP = 512 };                             // so many are committed at a time
static int par__commit_extents(par__world *w, size_t from) { // in both tables. 0: no memory
    int committed = 1;
    for (int i = 0; i < 2 && committed; i++)
        committed = par__arena_commit(
            w, offsetof(par__arena, tables) + (size_t)i * sizeof(par__extents) + from * sizeof(par__extent),
            (PAR__EXTENT_STEP + 1) * sizeof(par__extent)); // and the count before them
    return committed;
}
static int par__extents_valid(par__world *w) { // 0: not sorted, or outside the arena; that is logged
    const par__extents *now = par__extents_of(w->arena, 0);
    const uint64_t n = now->count;
    uint64_t end = par__arena_header(w->local_count);
    int valid = n <= PAR__EXTENT_MAX;
    if (!valid) par__memory_corrupt(w, "a number of blocks of", n);
    for (uint64_t i = 0; i < n && valid; i++) {
        const par__extent x = now->extent[i];
        valid = par__arena_contains(w, x.at, x.bytes) && x.at >= end;
        end = x.at + x.bytes;
        if (!valid) par__memory_corrupt(w, "a block at", x.at);
    }
    if (!valid) PAR_LOG(w->error);
    return valid;
}

// First fit. 0: no free range. The block has no memory before par__arena_commit, which zeroes it.
// users: as par__extent.users; 0: this rank, until par__arena_set_users. *no_block: there is memory, but all
// blocks are in use.
static uint64_t par__arena_take(par__world *w, size_t bytes, size_t align, uint64_t users, int *no_block) {
    par__arena *a = w->arena;
    uint64_t at = 0, found = 0;
    size_t i;
    *no_block = 0;
    bytes = par__round_up(bytes ? bytes : 1, 4096); // whole pages, so that freeing can punch them out
    align = PAR__MAX(align, (size_t)4096);
    if (!par__arena_lock(w)) return 0;
    const par__extent *now = par__extents_of(a, 0)->extent;
    par__extent *then = par__extents_of(a, 1)->extent;
    const size_t n = par__extents_valid(w) ? (size_t)par__extents_of(a, 0)->count : PAR__EXTENT_MAX + 1;
    *no_block = n == PAR__EXTENT_MAX;
    at = par__round_up(par__arena_header(w->local_count), align);
    for (i = 0; i < n && n <= PAR__EXTENT_MAX; i++) {
        if (now[i].at >= at && now[i].at - at >= bytes) break;
        at = par__round_up(PAR__MAX(at, now[i].at + now[i].bytes), align);
    }
    const int fits = n < PAR__EXTENT_MAX && at <= w->arena_bytes && w->arena_bytes - at >= bytes;
    if (fits && (n % PAR__EXTENT_STEP || !n || par__commit_extents(w, n))) {
        memcpy(then, now, i * sizeof *then);
        memcpy(then + i + 1, now + i, (n - i) * sizeof *then);
        then[i].at = found = at;
        then[i].bytes = bytes;
        then[i].users = users ? users : 1 + 2 * (uint64_t)w->arena_rank;
        par__extents_of(a, 1)->count = n + 1;
        par__switch_extents(a);
    }
    par__arena_unlock(w);
    return found;
}
static uint64_t par__arena_alloc(par__world *w, size_t bytes, size_t align,
                                 uint64_t users) { // the program's thread
    return par__arena_take(w, bytes, align, users, &w->no_block);
}
static void par__arena_set_users(par__world *w, uint64_t at, uint64_t users) {
    if (!par__arena_lock(w)) return;
    par__extents *now = par__extents_of(w->arena, 0);
    for (size_t i = 0; i < now->count && i < PAR__EXTENT_MAX; i++)
        if (now->extent[i].at == at) PAR__STORE(&now->extent[i].users, users);
    par__arena_unlock(w);
}

// Why the last par__arena_alloc of a rank failed, for the others to say.
enum {
    PAR__NO_MEMORY_LEFT = 1,
    PAR__NO_BLOCK_LEFT,
    PAR__NO_ID_LEFT,
    PAR__NO_PLACE_LEFT,
    PAR__NOT_STARTED,
    PAR__NOBODY_WAITS
};
static int par__why_no_block(const par__world *w) {
    return w->no_block ? PAR__NO_BLOCK_LEFT : PAR__NO_MEMORY_LEFT;
}
static const char *par__no_block_text(int why) {
    return why == PAR__NO_BLOCK_LEFT
               ? "all 65536 blocks of the node's shared memory are in use: close comms, or free memory"
               : "out of memory";
}

// Give the memory of a block back. 0: it would not be zeroed for its next use.
static int par__punch_out(par__world *w, const par__extent *x) {
    if (!par__owns_arena_fd(w)) return !madvise(w->base + x->at, (size_t)x->bytes, MADV_REMOVE);
    par__fallocate(w->fd, PAR__FALLOC_PUNCH_HOLE | PAR__FALLOC_KEEP_SIZE, x->at, x->bytes);
    return 1;
}
// Free the blocks of which `is_unused` is true, given x. Each gives its memory back first: where a rank dies
// before it has switched the tables, the block is in use, is zero, and so has no users.
typedef int (*par__extent_test)(const par__world *w, const par__extent *extent, uint64_t x);
static void par__arena_free_if(par__world *w, par__extent_test is_unused, uint64_t x) {
    par__arena *a = w->arena;
    size_t kept = 0;
    if (!par__arena_lock(w)) return;
    const size_t n = par__extents_valid(w) ? (size_t)par__extents_of(a, 0)->count : 0;
    const par__extent *now = par__extents_of(a, 0)->extent;
    par__extents *then = par__extents_of(a, 1);
    for (size_t i = 0; i < n; i++)
        if (!is_unused(w, &now[i], x) || !par__punch_out(w, &now[i])) then->extent[kept++] = now[i];
    then->count = kept;
    if (kept < n) par__switch_extents(a);
    par__arena_unlock(w);
}
static int par__is_at(const par__world *w, const par__extent *extent, uint64_t at) {
    return (void)w, extent->at == at;
}
static void par__arena_free(par__world *w, uint64_t at) {
    if (at) par__arena_free_if(w, par__is_at, at);
}

static par_result par__arena_map(par__world *w, int fd, size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        return par__log_error(PAR_ERR_MEMORY,
                              "cannot map %zu bytes of address space (%s); is there a ulimit -v? "
                              "PAR_ARENA (or par_desc.arena_bytes) asks for less",
                              bytes, strerror(errno));
    madvise(p, bytes, MADV_HUGEPAGE); // where the system allows it for shared memory
    par__set_arena_fd(w, fd);
    w->base = (char *)p;
    w->arena_bytes = bytes;
    w->arena = (par__arena *)p;
    return PAR_OK;
}

// Map the memory that another process has created, if it is what that process described. On success the world
// owns the descriptor.
static par_result par__arena_adopt(par__world *w, int fd, size_t bytes, int ranks, uint64_t key) {
    struct stat st;
    const char *why = NULL;
    memset(&st, 0, sizeof st);
    if (fd < 3 || fstat(fd, &st) || fcntl(fd, PAR__F_GET_SEALS) != PAR__F_SEAL_SIZE)
        why = "is no shared memory of this kit";
    else if (st.st_size < (off_t)par__arena_header(ranks) || (bytes && st.st_size != (off_t)bytes))
        why = "is of another size";
    w->local_count = ranks;
    if (!why && par__arena_map(w, fd, (size_t)st.st_size)) return PAR_ERR_MEMORY;
    if (!why && (w->arena->magic != PAR__MAGIC || w->arena->bytes != (uint64_t)st.st_size ||
                 w->arena->rank_count != ranks || w->arena->key != key))
        why = "belongs to other ranks";
    return why ? par__log_error(PAR_ERR_SYSTEM, "descriptor %d (%lld bytes) %s", fd, (long long)st.st_size,
                                why)
               : PAR_OK;
}

// The address space that an arena may take of so much. Where the process may not have it all, half of what
// there is: the program has the rest.
static size_t par__arena_fitting(size_t wanted) {
    const size_t least = (size_t)1 << 20;
    size_t bytes = wanted;
    struct rlimit l;
    if (!getrlimit(RLIMIT_FSIZE, &l) && bytes > l.rlim_cur / 2) bytes = (size_t)l.rlim_cur / 2;
    for (size_t fits = bytes; fits > least; fits /= 2) {
        void *p = mmap(NULL, fits, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        munmap(p, fits);
        bytes = fits == bytes ? bytes : fits / 2;
        break;
    }
    return bytes == wanted ? bytes : PAR__MAX(bytes, least);
}
static size_t par__arena_default_bytes(const par__world *w) { // where nobody asks for a size
    const size_t wanted = 4 * (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = par__arena_fitting(wanted);
    if (bytes != wanted)
        par__log_error(
            PAR_OK,
            "rank %d takes %zu bytes of address space for shared memory instead of %zu, as ulimit -v or "
            "-f allows; PAR_ARENA takes another number",
            w->rank, bytes, wanted);
    return bytes;
}
static par_result par__arena_create(par__world *w, size_t bytes, int first, int ranks) {
    uint64_t key = 0;
    const int fd = par__memfd_create("par"), unknown = par__getrandom_u64(&key);
    if (!bytes) bytes = par__arena_default_bytes(w);
    const size_t sites = par__arena_sites(ranks), site_bytes = par__arena_header(ranks) - sites;
    bytes = par__round_up(PAR__MAX(bytes, sites + (1u << 20)), 4096) + site_bytes;
    if (fd < 0 || unknown) {
        const int e = unknown ? unknown : errno;
        if (fd >= 0) close(fd);
        return par__log_error(PAR_ERR_SYSTEM, "cannot make shared memory: %s", par__strerror(e).text);
    }
    struct rlimit l; // beyond it ftruncate raises SIGXFSZ, which ends the program silently
    const int beyond = !getrlimit(RLIMIT_FSIZE, &l) && bytes > l.rlim_cur;
    if (beyond || ftruncate(fd, (off_t)bytes) || fcntl(fd, PAR__F_ADD_SEALS, PAR__F_SEAL_SIZE)) {
        const int e = beyond ? EFBIG : errno;
        close(fd);
        return par__log_error(PAR_ERR_SYSTEM,
                              "cannot make shared memory of %zu bytes: %s; is there a ulimit -f? "
                              "PAR_ARENA (or par_desc.arena_bytes) asks for less",
                              bytes, strerror(e));
    }
    par__set_arena_fd(w, fd);
    int committed = par__arena_commit(w, 0, offsetof(par__arena, tables)) && par__commit_extents(w, 0) &&
                    par__arena_commit(w, offsetof(par__arena, ranks), sites - offsetof(par__arena, ranks));
    for (int i = 0; i < ranks; i++) // the first page of each rank; par__site_table_grow commits more
        committed = committed && par__arena_commit(w, sites + (size_t)i * (site_bytes / (size_t)ranks), 4096);
    if (!committed) {
        close(fd);
        return par__log_error(PAR_ERR_MEMORY, "no memory for %d ranks: %s", ranks, strerror(errno));
    }
    const par_result r = par__arena_map(w, fd, bytes);
    if (r) return close(fd), r;
    w->arena->magic = PAR__MAGIC;
    w->arena->bytes = bytes;
    w->arena->key = key;
    w->arena->rank_count = w->local_count = ranks;
    w->arena->first_count = w->arena->reserved = (uint32_t)first;
    return PAR_OK;
}

// The offset (+ 1) at which peers can address a user's array: it is in the arena, or ranks are threads. 0:
// they cannot.
static int par__shared_offset(const par__world *w, const void *p, size_t bytes, uint64_t *at) {
    const char *c = (const char *)p;
    *at = 0;
    if (!bytes) return 1;
    if (c >= w->base && c < w->base + w->arena_bytes) return *at = (uint64_t)(c - w->base) + 1, 1;
    if (par__ranks_are_threads(w)) return *at = (uint64_t)((uintptr_t)c - (uintptr_t)w->base) + 1, 1;
    return 0;
}
static char *par__peer_pointer(const par__world *w, uint64_t at) {
    return (char *)((uintptr_t)w->base + (uintptr_t)(at - 1));
}

// Counts this rank, and wakes the ranks that wait for `target` ranks.
static void par__count_rank(uint32_t *count, uint32_t target) {
    if (__atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST) == target) par__futex_wake(count);
}
static void par__register_rank(par__world *w) { // from here on the rank counts as alive
    par__rank_control *c = &w->arena->ranks[w->arena_rank];
    w->control = c;
    w->site_capacity = 4096 / PAR__SITE_BYTES;
    w->site_count = 1;
    memset(w->sites[0], 0, PAR__SITE_BYTES);
    snprintf(w->sites[0], PAR__SITE_BYTES, "(one of many places)");
    memcpy(par__shared_site(w, w->arena_rank, 0), w->sites[0], PAR__SITE_BYTES);
    c->pid = (int32_t)getpid();
    c->born = par__process(c->pid).born;
    w->pids = (int *)par__zalloc(sizeof(int) * (size_t)w->local_count);
    if (!w->pids) w->cma = 0; // par__probe_cma tells the others
    for (int i = 0; i < w->local_count && w->pids; i++)
        if (i == w->arena_rank || par__ranks_are_threads(w)) w->pids[i] = c->pid; // others: par__probe_cma
    c->world_rank = w->rank;
    w->cma_probe = PAR__MAGIC + (uint64_t)w->rank;
    c->probe_address = (uint64_t)(uintptr_t)&w->cma_probe;
    struct flock l;
    if (!par__ranks_are_threads(w) && !par__liveness_lock(w, F_SETLK, F_WRLCK, w->arena_rank, &l) &&
        w->local_count > 1)
        par__log_error(PAR_OK,
                       "rank %d cannot lock its byte of shared memory, so others will think that it died: %s",
                       w->rank, strerror(errno));
    PAR__STORE(&c->state, (uint32_t)PAR__RANK_RUNNING);
    par__count_rank(&w->arena->started, w->arena->first_count);
}

// Wake the sleeping ranks of a comm (peer < 0), or one rank, after storing what they wait for. A rank is
// drowsy while it yields its processor and looks for work, several times; only then does it sleep. While
// nobody is, there is no fence: it would wait until the store has reached the peers, and a store that is on
// its way when a rank turns drowsy has arrived long before it sleeps. (If it had not, the sleep would end by
// itself.)
static void par__wake_sleepers(const par_comm *c, int peer) {
    par__arena *a = c->world->arena;
    par__fence();
    for (int r = peer < 0 ? 0 : peer; r < (peer < 0 ? c->size : peer + 1); r++) {
        if (par__arena_index(c, r) < 0) continue;
        par__rank_control *k = &a->ranks[par__arena_index(c, r)];
        if (__atomic_load_n(&k->sleeping, __ATOMIC_SEQ_CST) == PAR__ASLEEP) {
            __atomic_add_fetch(&k->doorbell, 1, __ATOMIC_SEQ_CST);
            par__futex_wake(&k->doorbell);
        }
    }
}
static inline void par__ring_doorbells(const par_comm *c, int peer) {
    if (__atomic_load_n(&c->world->arena->sleepers, __ATOMIC_RELAXED)) par__wake_sleepers(c, peer);
}
static void par__set_sleeping(par__world *w, uint32_t level) {
    uint32_t *mine = &w->control->sleeping, *sleepers = &w->arena->sleepers;
    const uint32_t before = __atomic_load_n(mine, __ATOMIC_RELAXED);
    if (before == level) return; // a rank that dies in between leaves a sleeper too many, never one too few
    if (before == PAR__AWAKE) __atomic_add_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(mine, level, __ATOMIC_SEQ_CST);
    if (level == PAR__AWAKE) __atomic_sub_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
}

// Is a text of a latch being written by a rank that lives?
static int par__is_being_written(const par__world *w, uint32_t latch) {
    const uint32_t writer = latch - PAR__WRITING;
    return latch >= PAR__WRITING && writer < (uint32_t)w->local_count && !par__known_dead(w, (int)writer);
}
// What a latch says in this epoch; 0: nothing.
static uint32_t par__latched(const uint64_t *latch, uint32_t epoch) {
    const uint64_t seen = PAR__LOAD(latch);
    return seen >> 32 == epoch ? (uint32_t)seen : 0;
}
// Be the one that writes it. 0: another rank has written it, or does.
static int par__begin_latch(const par__world *w, uint64_t *latch, uint32_t epoch) {
    const uint64_t mine = (uint64_t)epoch << 32 | (uint32_t)(PAR__WRITING + w->arena_rank);
    uint64_t seen = PAR__LOAD(latch);
    do {
        const uint32_t said = seen >> 32 == epoch ? (uint32_t)seen : 0;
        if (said && (said < PAR__WRITING || par__is_being_written(w, said))) return 0;
    } while (!__atomic_compare_exchange_n(latch, &seen, mine, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return 1;
}
static void par__end_latch(uint64_t *latch, uint32_t epoch, uint32_t said) {
    PAR__STORE(latch, (uint64_t)epoch << 32 | said);
}
// Store the first error that ends a comm on this node, or that another node reported, for all ranks to read.
// 1: it is the first.
static int par__set_first_error(par__world *w, uint32_t epoch, par_result result, const char *text) {
    if (!par__begin_latch(w, &w->arena->first_error, epoch)) return 0;
    snprintf(w->arena->first_error_text, sizeof w->arena->first_error_text, "%s", text);
    par__end_latch(&w->arena->first_error, epoch, (uint32_t)result + 1);
    return 1;
}
static void par__set_first_dead(par__world *w, uint32_t epoch, int world_rank) {
    if (par__begin_latch(w, &w->arena->first_dead, epoch))
        par__end_latch(&w->arena->first_dead, epoch, (uint32_t)world_rank + 1);
}
static int par__is_aborted(const par__arena *a) { return (uint32_t)PAR__LOAD(&a->alarms) == PAR__ABORTED; }
static void par__ring_all(par__world *w) {
    for (int i = 0; i < w->local_count; i++) {
        __atomic_add_fetch(&w->arena->ranks[i].doorbell, 1, __ATOMIC_SEQ_CST);
        par__futex_wake(&w->arena->ranks[i].doorbell);
    }
}
// Abort the ranks of this node.
static void par__abort_node(par__world *w, const char *text) {
    par__arena *a = w->arena;
    const uint32_t mine = (uint32_t)(PAR__WRITING + w->arena_rank);
    uint64_t seen = PAR__LOAD(&a->alarms);
    while (!(uint32_t)seen || ((uint32_t)seen != PAR__ABORTED && !par__is_being_written(w, (uint32_t)seen)))
        if (__atomic_compare_exchange_n(&a->alarms, &seen, seen >> 32 << 32 | mine, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            snprintf(a->abort_text, sizeof a->abort_text, "%s", text);
            seen = __atomic_sub_fetch(&a->alarms, mine - PAR__ABORTED, __ATOMIC_SEQ_CST);
        }
    par__ring_all(w);
}

// >>topology ------------------------------------------------------------------------------------------------
//
// A layout groups the ranks of a comm into nodes. On each node a leader exchanges messages with the other
// nodes; successive pieces have different leaders, so that all cores of a node share its link. A segment is a
// maximal run of consecutive ranks on one node: a sum in rank order visits the segments one after the other.
//     ranks   0 1 2 3 4 5   on nodes   A A B B A A   ->   segments  A:0-1  B:2-3  A:4-5

// Node j has ranks j * per_node ... of `size`.
static void par__set_layout(par__layout *l, int size, int rank, int per_node) {
    l->size = size;
    l->per_node = per_node;
    l->my_node = rank / per_node;
    l->node_count = l->segment_count = (size + per_node - 1) / per_node;
}
// node_of: numbered by first rank. 0: no memory.
static int par__make_layout(par__layout *l, const int *node_of, int size, int rank) {
    int per_node = 1, segments = 1, nodes = 0;
    while (per_node < size && node_of[per_node] == 0) per_node++;
    par__set_layout(l, size, rank, per_node);
    int regular = 1;
    for (int r = 0; r < size; r++) regular &= node_of[r] == r / per_node;
    if (regular) return 1;
    for (int r = 1; r < size; r++) segments += node_of[r] != node_of[r - 1];
    const size_t ints = 4 * (size_t)size + 1, tail = sizeof(par__segment) * (size_t)segments;
    l->node_of = (int *)par__zalloc(sizeof(int) * ints + tail);
    if (!l->node_of) return 0;
    l->local_index = l->node_of + size;
    l->members = l->local_index + size;
    l->start = l->members + size; // as many nodes as ranks at most
    l->segments = (par__segment *)(void *)(l->node_of + ints);
    l->per_node = l->segment_count = 0;
    for (int r = 0; r < size; r++) {
        l->node_of[r] = node_of[r];
        l->local_index[r] = l->start[node_of[r]]++; // so far the nodes' sizes
        nodes = PAR__MAX(nodes, node_of[r] + 1);
        if (!r || node_of[r] != node_of[r - 1]) {
            l->segments[l->segment_count].node = node_of[r];
            l->segments[l->segment_count++].first = r;
        }
        l->segments[l->segment_count - 1].last = r;
    }
    l->node_count = nodes;
    l->my_node = node_of[rank];
    for (int j = 0, at = 0; j <= nodes; j++) {
        const int node_size = l->start[j];
        l->start[j] = at;
        at += node_size;
    }
    for (int r = 0; r < size; r++) l->members[l->start[node_of[r]] + l->local_index[r]] = r;
    return 1;
}
static int par__node_size(const par__layout *l, int node) {
    return l->per_node ? PAR__MIN(l->per_node, l->size - node * l->per_node)
                       : l->start[node + 1] - l->start[node];
}
static int par__node_start(const par__layout *l, int node) { // ranks of the nodes before it
    return l->per_node ? PAR__MIN(node * l->per_node, l->size) : l->start[node];
}
// The ranks of `count` nodes from this one on; after the last node comes node 0.
static int par__ranks_from(const par__layout *l, int node, int count) {
    const int end = node + count, wraps = end > l->node_count;
    return par__node_start(l, wraps ? l->node_count : end) - par__node_start(l, node) +
           (wraps ? par__node_start(l, end - l->node_count) : 0);
}
static int par__node_rank(const par__layout *l, int node, int i) { // the node's i-th rank
    return l->per_node ? node * l->per_node + i : l->members[l->start[node] + i];
}
static par__segment par__segment_at(const par__layout *l, int i) {
    par__segment s;
    if (!l->per_node) return l->segments[i];
    s.node = i;
    s.first = i * l->per_node;
    s.last = PAR__MIN(s.first + l->per_node, l->size) - 1;
    return s;
}
static int par__nodes_in_order(const par__layout *l) { // node j, numbered by first rank, is segment j
    return l->segment_count == l->node_count;
}
static int par__node_leader(const par__layout *l, int node, size_t piece) {
    return par__node_rank(l, node, (int)(piece % (size_t)par__node_size(l, node)));
}

// >>comm ----------------------------------------------------------------------------------------------------

static size_t par__board_bytes(int node_ranks, size_t stage_bytes) {
    const size_t lines = sizeof(par__board) + (size_t)node_ranks * sizeof(par__arrivals);
    return par__round_up(lines, 4096) + (size_t)node_ranks * stage_bytes;
}
// Cache lines of payload in a ring: 256 KiB for up to 8 ranks, 4 KiB for many. The longer it is until a line
// is used again, the cheaper: the receiver's caches have let it go.
static uint32_t par__ring_lines(int ranks) {
    uint32_t lines = 4096;
    while (lines > 64 && lines * (uint32_t)ranks > 32768) lines /= 2;
    return lines;
}
// The rings of a comm: a table of which are committed, and the rings with their payload. These take no
// address space before the first message, and no memory before their own first one. Tracks need lanes of
// their own where messages between nodes (of PAR_NODE_RANKS) go through rings.
static int par__ring_lanes(int nodes) { return nodes > 1 ? 1 + PAR__TRACKS : 2; }
static size_t par__ring_table_bytes(int ranks, int lanes) {
    return par__round_up(sizeof(par__rings) + (size_t)ranks * sizeof(par__user) +
                             (size_t)lanes * (size_t)ranks * (size_t)ranks,
                         4096);
}
static size_t par__ring_stride(int ranks) {
    return par__round_up(sizeof(par__ring) + (size_t)64 * par__ring_lines(ranks), 4096);
}
static size_t par__rings_bytes(int ranks, int lanes) {
    return (size_t)lanes * (size_t)ranks * (size_t)ranks * par__ring_stride(ranks);
}

// The shared parts of a comm: the board of one node, and the rings of the ranks that share an arena.
static size_t par__stage_bytes(const par__world *w, int nodes) { // a part for each track
    return w->stage_bytes * (nodes > 1 ? PAR__TRACKS : 1);
}
static uint64_t par__alloc_board(par__world *w, int locals, int nodes, uint64_t rings) {
    const uint64_t at =
        par__arena_alloc(w, par__board_bytes(locals, par__stage_bytes(w, nodes)), 4096, rings);
    if (at && !par__arena_commit(w, at, par__board_bytes(locals, 0)))
        return par__arena_free(w, at), (uint64_t)0;
    return at;
}
// From here on the blocks with these rings belong to the ranks that use them. c: of this comm; NULL: all
// ranks. In an elastic world a comm's block is the allocating rank's, until par__finish_part: where that rank
// dies before, it is an orphan.
static void par__set_users(par__world *w, uint64_t block, uint64_t rings_at, int ranks, const par_comm *c) {
    par__rings *rings = (par__rings *)(void *)(w->base + rings_at);
    for (int r = 0, i = 0; i < ranks; r++)
        if (!c || par__arena_index(c, r) >= 0) rings->user[i++].index = c ? par__arena_index(c, r) : r;
    rings->user_count = (uint32_t)ranks;
    if (!c || !w->elastic) par__arena_set_users(w, block, rings_at);
}
static uint64_t par__alloc_rings(par__world *w, int ranks, int nodes) {
    const int lanes = par__ring_lanes(nodes);
    const uint64_t at = par__arena_alloc(w, par__ring_table_bytes(ranks, lanes), 4096, 0);
    if (at && !par__arena_commit(w, at, par__ring_table_bytes(ranks, lanes))) {
        par__arena_free(w, at);
        return 0;
    }
    if (at) par__set_users(w, at, at, ranks, NULL);
    return at;
}
// The same of a comm in one block: the boards of the nodes of this arena, then the table of the rings.
//     | board of node 0 | stages | board of node 1 | stages | rings |
static size_t par__board_place(const par_comm *c, int node) { // from the block's begin; node_count: the rings
    size_t at = 0;
    for (int j = 0; j < node; j++)
        if (par__arena_index(c, par__node_rank(&c->nodes, j, 0)) >= 0)
            at += par__board_bytes(par__node_size(&c->nodes, j), c->stage_bytes);
    return at;
}
static int par__commit_block(const par_comm *c, uint64_t at) { // the stages: see par__commit_stage
    par__world *w = c->world;
    const int nodes = c->nodes.node_count;
    int done = par__arena_commit(w, at + par__board_place(c, nodes),
                                 par__ring_table_bytes(c->ring_count, c->lane_count));
    for (int j = 0; j < nodes && done; j++)
        if (par__arena_index(c, par__node_rank(&c->nodes, j, 0)) >= 0)
            done = par__arena_commit(w, at + par__board_place(c, j),
                                     par__board_bytes(par__node_size(&c->nodes, j), 0));
    return done;
}
static uint64_t par__alloc_block(const par_comm *c) { // 0: no memory
    par__world *w = c->world;
    const size_t rings = par__board_place(c, c->nodes.node_count);
    const uint64_t at =
        par__arena_alloc(w, rings + par__ring_table_bytes(c->ring_count, c->lane_count), 4096, 0);
    if (at && !par__commit_block(c, at)) return par__arena_free(w, at), (uint64_t)0;
    if (at) par__set_users(w, at, at + rings, c->ring_count, c);
    return at;
}
// Does no rank use the memory of these rings any more? Of those that died, or closed their worlds, none does.
static int par__have_no_users(const par__world *w, uint64_t rings_at) {
    const par__rings *rings = (const par__rings *)(const void *)(w->base + rings_at);
    if (!par__arena_contains(w, rings_at, sizeof *rings)) return 0;
    const uint32_t n = PAR__LOAD(&rings->user_count);
    for (uint32_t i = 0; i < n && n <= (uint32_t)w->local_count; i++) {
        const int index = rings->user[i].index;
        if (PAR__LOAD(&rings->user[i].released) || index < 0 || index >= w->local_count) continue;
        if (!par__known_dead(w, index)) return 0;
    }
    return n <= (uint32_t)w->local_count;
}
static int par__is_released(const par__world *w, const par__extent *extent, uint64_t rings) {
    return extent->users == rings && par__have_no_users(w, rings);
}

// What the progress thread uses, too, is used by who has locked the world.
static void par__lock_world(par__world *w) {
    if (w->has_progress_thread) pthread_mutex_lock(&w->lock);
}
static void par__unlock_world(par__world *w) {
    if (w->has_progress_thread) pthread_mutex_unlock(&w->lock);
}

static void par__free_operation(par__operation *op) {
    for (int i = 0; i < PAR__TRACKS && op; i++) {
        PAR_FREE(op->tracks[i].actions);
        PAR_FREE(op->tracks[i].transfers);
    }
    if (!op) return;
    PAR_FREE((void *)op->arrays.inputs);
    PAR_FREE(op->arrays.output);
    PAR_FREE(op->arrays.cma);
    PAR_FREE((void *)op->arrays.sources);
    PAR_FREE(op->arrays.destinations);
    PAR_FREE(op->scratch);
    PAR_FREE(op->bucket.calls);
    PAR_FREE(op->bucket.memory);
    PAR_FREE(op->exchange.bundles);
    PAR_FREE(op->exchange.blocks);
    PAR_FREE(op->exchange.addresses);
    PAR_FREE(op->exchange.copies);
    PAR_FREE(op->exchange.packed);
    PAR_FREE(op);
}
// Operations stay until the world closes: a copy of a request may name one that is not its call's any more,
// and the program may never wait for one that has ended. NULL: no memory.
static par__operation *par__make_operation(par__world *w) {
    par__operation *op = (par__operation *)par__zalloc(sizeof *op);
    if (!op) return op;
    op->next_made = w->operations;
    return w->operations = op;
}
// For calls of a comm, one at a time: it is not recycled.
static par__operation *par__make_kept_operation(par_comm *c) {
    par__operation *op = par__make_operation(c->world);
    if (!op) return op;
    op->comm = c;
    op->world = c->world;
    op->kept = 1;
    return op;
}
// A request, or a copy of it, may look meanwhile for the call that an operation is in; 0: none.
static void par__set_ticket(par__operation *op, uint64_t ticket) { PAR__STORE(&op->ticket, ticket); }
static int par__has_ticket(const par__operation *op, uint64_t ticket) {
    return PAR__LOAD(&op->ticket) == ticket;
}
static void par__keep_operation(par__world *w, par__operation *op) {
    PAR__STORE(&op->state, (int)PAR__DONE);
    op->kept = 0;
    par__set_ticket(op, 0);
    op->next = w->idle_operations;
    w->idle_operations = op;
}
static void par__free_neighbors(par_neighbors *n) {
    if (!n) return;
    PAR_FREE(n->send_place);
    PAR_FREE(n->recv_place);
    PAR_FREE(n->bundles);
    PAR_FREE(n->kept_sizes);
    PAR_FREE(n);
}
enum { PAR__QUEUES = 64 };
static int par__queue_pages(int size) { return (2 * size + PAR__QUEUES - 1) / PAR__QUEUES; }
static void par__free_comm(par_comm *c) {
    par__lock_world(c->world);
    if (c->neighbors && c->neighbors->kept) par__keep_operation(c->world, c->neighbors->kept);
    if (c->small) par__keep_operation(c->world, c->small);
    if (c->grouping) par__keep_operation(c->world, c->grouping);
    par__unlock_world(c->world);
    par__free_neighbors(c->neighbors);
    PAR_FREE(c->world_ranks.table);
    PAR_FREE(c->arena_indices.table);
    PAR_FREE(c->ring_indices.table);
    for (int i = 0; i < par__queue_pages(c->size) && c->messages; i++) PAR_FREE(c->messages[i]);
    PAR_FREE((void *)c->messages);
    PAR_FREE(c->model);
    PAR_FREE(c->grouped);
    PAR_FREE(c->layer_stats);
    PAR_FREE(c->plans);
    PAR_FREE(c->ways);
    PAR_FREE(c->lineage);
    PAR_FREE(c->before);
    PAR_FREE(c->nodes.node_of);
    while (c->blocks) {
        par__symmetric_block *b = c->blocks;
        c->blocks = b->next;
        PAR_FREE(b);
    }
    PAR_FREE(c);
}

static void par__set_comm_id(par_comm *c, uint32_t id) {
    c->id = id;
    snprintf(c->name, sizeof c->name, id ? "%u" : "world", id);
}
// values: of each rank, -1: none. 0: no memory.
static int par__make_numbers(par__numbers *x, const int *values, int size) {
    int from = 0, to = size, regular = 1;
    while (from < size && values[from] < 0) from++;
    while (to > from && values[to - 1] < 0) to--;
    x->from = from;
    x->to = to;
    x->first = from < size ? values[from] : 0;
    x->step = to - from > 1 ? values[from + 1] - values[from] : 1;
    for (int r = from; r < to; r++) regular &= values[r] == par__number_of(x, r);
    if (regular) return 1;
    x->table = (int *)PAR_MALLOC(sizeof(int) * (size_t)size);
    if (x->table) memcpy(x->table, values, sizeof(int) * (size_t)size);
    return x->table != NULL;
}
// The private part of a comm. world_rank, node_of (numbered by first rank) and arena_index have `size`
// entries and are copied.
static par_comm *par__make_comm(par__world *w, uint32_t id, int rank, int size, const int *world_rank,
                                const int *node_of, const int *arena_index) {
    par_comm *c = (par_comm *)par__zalloc(sizeof *c);
    int *ring_index = (int *)PAR_MALLOC(sizeof(int) * (size_t)size);
    if (!c || !ring_index) {
        PAR_FREE(ring_index);
        PAR_FREE(c);
        return NULL;
    }
    c->world = w;
    c->id = id;
    c->rank = rank;
    c->size = size;
    for (int r = 0; r < size; r++) ring_index[r] = arena_index[r] >= 0 ? c->ring_count++ : -1;
    par__set_layout(&c->flat, size, rank, 1);
    c->messages = (par__call_queue **)par__zalloc(sizeof(void *) * (size_t)par__queue_pages(size));
    const int made = c->messages && par__make_numbers(&c->world_ranks, world_rank, size) &&
                     par__make_numbers(&c->arena_indices, arena_index, size) &&
                     par__make_numbers(&c->ring_indices, ring_index, size) &&
                     par__make_layout(&c->nodes, node_of, size, rank);
    PAR_FREE(ring_index);
    if (!made) {
        par__free_comm(c);
        return (par_comm *)NULL;
    }
    c->stage_bytes = par__stage_bytes(w, c->nodes.node_count);
    c->half_bytes = c->stage_bytes / (c->nodes.node_count > 1 ? 2 * PAR__TRACKS : 2) / 64 * 64;
    c->lane_count = par__ring_lanes(c->nodes.node_count);
    c->ring_lines = par__ring_lines(c->ring_count);
    c->piece_bytes = PAR__MIN((size_t)c->ring_lines * 64 / 4, (size_t)16384);
    c->last_algorithm = "none";
    par__set_comm_id(c, id);
    return c;
}

// The same of a comm that has grown: its first `old` ranks were there. NULL: out of memory, or this rank is
// none of it.
static par_comm *par__make_larger(par__world *w, uint64_t id, int size, int old, const int *world_rank,
                                  const int *node_of, const int *arena_index) {
    int me = 0;
    while (me < size && world_rank[me] != w->rank) me++;
    par_comm *c = me < size ? par__make_comm(w, 0, me, size, world_rank, node_of, arena_index) : NULL;
    if (!c) return NULL;
    c->epoch = (uint32_t)id;
    c->before = (int *)PAR_MALLOC(sizeof *c->before * (size_t)size);
    if (!c->before) return par__free_comm(c), (par_comm *)NULL;
    for (int r = 0; r < size; r++) c->before[r] = r < old ? r : -1;
    return c;
}

// Can the board and the rings be at these offsets, which another rank has sent? 0: no, with an error text.
static int par__comm_offsets_valid(par_comm *c, uint64_t board_at, uint64_t rings_at) {
    par__world *w = c->world;
    const size_t board = par__board_bytes(par__node_size(&c->nodes, c->nodes.my_node), c->stage_bytes);
    if (!par__arena_contains(w, board_at, board)) return par__memory_corrupt(w, "a board at", board_at), 0;
    if (par__arena_contains(w, rings_at, par__ring_table_bytes(c->ring_count, c->lane_count))) return 1;
    return par__memory_corrupt(w, "message rings at", rings_at), 0;
}
static void par__set_whole(par_comm *c) { // the world, and what par_shrink or par_grow makes of it
    c->world->whole = c;
    c->world->epoch = c->epoch;
}
static void par__map_comm(par_comm *c, uint64_t board_at, uint64_t rings_at) {
    c->rings_offset = rings_at;
    c->board = (par__board *)(c->world->base + board_at);
    c->stages = (char *)c->board + par__board_bytes(par__node_size(&c->nodes, c->nodes.my_node), 0);
    c->rings = (par__rings *)(c->world->base + rings_at);
    c->next = c->world->comms;
    c->world->comms = c;
    if (!c->world->whole) par__set_whole(c);
}

static char *par__stage_of(const par_comm *c, int rank) { // of a rank of this node
    return c->stages + (size_t)par__local_index(&c->nodes, rank) * c->stage_bytes;
}
static int par__commit_stage(par_comm *c) {
    if (!c->stage_committed)
        c->stage_committed = par__arena_commit(
            c->world, (uint64_t)(par__stage_of(c, c->rank) - c->world->base), c->stage_bytes);
    return c->stage_committed;
}

// Wait until *count reaches target: yield a few times, then sleep, because ranks that start or end may be far
// more than processors. 0: a rank died, or the deadline passed.
static int par__wait_for_count(const par_comm *c, uint32_t *count, uint32_t target) {
    par__world *w = c->world;
    const double until = par__now() + w->timeout_s;
    const unsigned yields = w->spin_limit > 1 ? 200 : 4;
    for (unsigned i = 0;; i++) {
        const uint32_t seen = PAR__LOAD(count);
        if (seen >= target) return 1;
        if (i < yields) {
            sched_yield();
            continue;
        }
        par__futex_wait(count, seen, 20000000);
        par__scan_ranks(w);
        for (int r = 0; r < c->size && PAR__LOAD(&w->arena->gone); r++)
            if (par__arena_index(c, r) >= 0 && par__known_dead(w, par__arena_index(c, r)) &&
                PAR__LOAD(count) < target)
                return 0;
        if (par__now() > until) return 0;
    }
}

static int par__is_local(const par_comm *c, int r) { return par__node_of(&c->nodes, r) == c->nodes.my_node; }

// >>net -----------------------------------------------------------------------------------------------------
//
// The transport of messages between nodes, MPI or TCP, behind one table of functions. Messages of a pair of
// ranks with the same tag arrive in the order in which they were issued; messages of different tags do not
// wait for each other. A message's memory must not change until `test` says that it is done.

enum { // notices to the ranks of other nodes
    PAR__NOTICE_ABORT = 1,
    PAR__NOTICE_ERROR, // an error ended one of its comms
    PAR__NOTICE_LEFT,  // it closed its world, or ended after an error
    PAR__NOTICE_DIED,
    PAR__NOTICE_CLOSING, // it closes its world and waits for all to do so
    PAR__NOTICE_CLOSED,  // all have closed the world
    PAR__NOTICE_LOST,    // it has no connection to that rank
    PAR__NOTICE_ALIVE,   // that rank is alive
    PAR__NOTICE_CUT,     // with that rank the way to rank 0 has ended
    PAR__NOTICE_COUNT
};

#define PAR__NET_CHUNK_BYTES ((size_t)1 << 30) // the longest message; MPI counts bytes as int
#define PAR__NET_TAG_COUNT   0x80000000u       // tags of a transport, at most

struct par__net {
    par_result (*send)(par__world *w, int peer, int tag, void *memory, size_t bytes, par__net_request *q);
    par_result (*recv)(par__world *w, int peer, int tag, void *memory, size_t bytes, par__net_request *q);
    // *done = 1: q is free again; for a receive *received is the number of bytes that were sent; those beyond
    // the expected number are lost.
    par_result (*test)(par__world *w, par__net_request *q, int *done, size_t *received);
    int (*cancel)(par__world *w, par__net_request *q); // 0: its memory may still be accessed
    // Gather a block of every rank on all ranks. It blocks; only while a world opens.
    par_result (*all_gather)(par__world *w, const void *mine, size_t bytes, void *all);
    void (*poll)(par__world *w); // called now and then in long waits
    int (*rank_state)(const par__world *w,
                      int rank);             // PAR__RANK_RUNNING, _CLOSED or _DEAD, as far as known
    int (*all_running)(const par__world *w); // 1: as far as known no rank is anything else
    void (*notify)(par__world *w, int kind, par_result result, const char *text); // all others
    void (*close)(par__world *w, int broken); // broken: do not wait for the others
};

#if defined(PAR_MPI)
static par_result par__mpi_error(par__world *w, int code, const char *call) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return PAR_OK;
    MPI_Error_string(code, text, &length);
    return par__set_error(w, PAR_ERR_MPI, "%s: %s", call, text);
}
static par_result par__mpi_send(par__world *w, int peer, int tag, void *memory, size_t bytes,
                                par__net_request *q) {
    q->active = 1;
    q->bytes = bytes;
    return par__mpi_error(w, MPI_Isend(memory, (int)bytes, MPI_BYTE, peer, tag, w->mpi, &q->mpi),
                          "MPI_Isend");
}
static par_result par__mpi_recv(par__world *w, int peer, int tag, void *memory, size_t bytes,
                                par__net_request *q) {
    q->active = 1;
    q->bytes = bytes;
    return par__mpi_error(w, MPI_Irecv(memory, (int)bytes, MPI_BYTE, peer, tag, w->mpi, &q->mpi),
                          "MPI_Irecv");
}
static par_result par__mpi_test(par__world *w, par__net_request *q, int *done, size_t *received) {
    MPI_Status status;
    int kind = MPI_SUCCESS, got = 0;
    const int code = PMPI_Test(&q->mpi, done, &status);
    if (code == MPI_SUCCESS && !*done) return PAR_OK;
    q->active = 0;
    *done = 1;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
    MPI_Get_count(&status, MPI_BYTE, &got);
    *received = (size_t)PAR__MAX(got, 0);
    return kind == MPI_ERR_TRUNCATE && *received > q->bytes ? PAR_OK : par__mpi_error(w, code, "MPI_Test");
}
static int par__mpi_cancel(par__world *w, par__net_request *q) {
    (void)w;
    q->active = 0;
    MPI_Cancel(&q->mpi);
    MPI_Request_free(&q->mpi);
    return 0;
}
static par_result par__mpi_all_gather(par__world *w, const void *mine, size_t bytes, void *all) {
    return par__mpi_error(w, PMPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, w->mpi),
                          "MPI_Allgather");
}
// A rank that waits here may also be part of an MPI call of the program that others have not finished: many
// MPIs make progress only when they are called, by PMPI's names: par_mpi.h's MPI_Iprobe would ask twice.
static void par__mpi_poll(par__world *w) {
    int arrived;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, w->mpi, &arrived, MPI_STATUS_IGNORE);
}
static int par__mpi_rank_state(const par__world *w, int rank) {
    return (void)w, (void)rank, PAR__RANK_RUNNING;
}
static int par__mpi_all_running(const par__world *w) { return (void)w, 1; }
static void par__mpi_notify(par__world *w, int kind, par_result result, const char *text) {
    (void)w;
    (void)kind;
    (void)result;
    (void)text;
}
static void par__mpi_close(par__world *w, int broken) {
    (void)broken;
    MPI_Comm_free(&w->mpi);
    if (w->finalize_mpi) MPI_Finalize();
}
static const par__net par__net_mpi = {
    par__mpi_send, par__mpi_recv,       par__mpi_test,        par__mpi_cancel, par__mpi_all_gather,
    par__mpi_poll, par__mpi_rank_state, par__mpi_all_running, par__mpi_notify, par__mpi_close};
#endif

static void par__set_broken(par_comm *c, par_result result) {
    c->broken = result;
    memcpy(c->broken_text, c->world->error, sizeof c->broken_text);
}
// What ended a comm is the error of all its later calls.
static par_result par__repeat_error(par_comm *c) {
    if (c->broken) memcpy(c->world->error, c->broken_text, sizeof c->world->error);
    return c->broken;
}
// An error after which nobody knows how far the others came: the comm ends here. The first rank of a node to
// which this happens prints everybody's last calls.
static par_result par__break_comm(par_comm *c, par_result result) {
    par__world *w = c->world;
    if (c->broken) return result;
    par__set_broken(c, result);
    if (result == PAR_ERR_REVOKED) return result; // the cause was told before
    PAR__STORE(&w->control->had_error, c->epoch + 1);
    const int first = par__set_first_error(w, c->epoch, result, w->error);
    if (first || !w->elastic) PAR_LOG(w->error);
    if (first && result != PAR_ERR_ABORTED && !w->elastic) par_recorder_print(c, stderr);
    if (w->net) w->net->notify(w, PAR__NOTICE_ERROR, result, w->error);
    return result;
}

// >>secret --------------------------------------------------------------------------------------------------
//
// HMAC-SHA-256 (FIPS 180-4, RFC 2104), and the secret that the ranks of a TCP world may share.

enum { PAR__MAC_BYTES = 32 };
typedef struct par__sha256 {
    uint32_t h[8];
    uint64_t bytes; // hashed so far; `block` has those of the last partial block
    unsigned char block[64];
} par__sha256;

static uint32_t par__rotate_right(uint32_t x, int n) { return x >> n | x << (32 - n); }
static void par__sha256_block(par__sha256 *s) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        const unsigned char *p = s->block + 4 * i;
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (par__rotate_right(a, 7) ^ par__rotate_right(a, 18) ^ a >> 3) + w[i - 7] +
               (par__rotate_right(b, 17) ^ par__rotate_right(b, 19) ^ b >> 10);
    }
    memcpy(v, s->h, sizeof v);
    for (unsigned i = 0; i < 64; i++) { // the eight words stay; the first one is elsewhere in each round
        const unsigned first = 64 - i;
        const uint32_t a = v[first & 7], b = v[(first + 1) & 7], c = v[(first + 2) & 7],
                       e = v[(first + 4) & 7];
        const uint32_t t = v[(first + 7) & 7] +
                           (par__rotate_right(e, 6) ^ par__rotate_right(e, 11) ^ par__rotate_right(e, 25)) +
                           ((e & v[(first + 5) & 7]) ^ (~e & v[(first + 6) & 7])) + k[i] + w[i];
        const uint32_t u = (par__rotate_right(a, 2) ^ par__rotate_right(a, 13) ^ par__rotate_right(a, 22)) +
                           ((a & b) ^ (a & c) ^ (b & c));
        v[(first + 3) & 7] += t;
        v[(first + 7) & 7] = t + u;
    }
    for (int i = 0; i < 8; i++) s->h[i] += v[i];
}
static void par__sha256_begin(par__sha256 *s) {
    static const uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(s, 0, sizeof *s);
    memcpy(s->h, h, sizeof h);
}
static void par__sha256_add(par__sha256 *s, const void *memory, size_t bytes) {
    for (size_t at = 0, n; at < bytes; at += n) {
        const size_t have = s->bytes % 64;
        n = PAR__MIN(64 - have, bytes - at);
        memcpy(s->block + have, (const char *)memory + at, n);
        s->bytes += n;
        if (have + n == 64) par__sha256_block(s);
    }
}
static void par__sha256_end(par__sha256 *s, unsigned char *hash) {
    const uint64_t bits = s->bytes * 8;
    const unsigned char one = 0x80, zero = 0;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    par__sha256_add(s, &one, 1);
    while (s->bytes % 64 != 56) par__sha256_add(s, &zero, 1);
    par__sha256_add(s, length, sizeof length);
    for (int i = 0; i < PAR__MAC_BYTES; i++) hash[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}
static void par__sha256_of(const void *memory, size_t bytes, unsigned char *hash) {
    par__sha256 s;
    par__sha256_begin(&s);
    par__sha256_add(&s, memory, bytes);
    par__sha256_end(&s, hash);
}
// The HMAC of several pieces of memory, one after the other.
static void par__hmac(const void *key, size_t key_bytes, const struct iovec *parts, int count,
                      unsigned char *mac) {
    unsigned char pad[64], inner[PAR__MAC_BYTES];
    par__sha256 s;
    memset(pad, 0, sizeof pad);
    if (key_bytes > sizeof pad)
        par__sha256_of(key, key_bytes, pad);
    else if (key_bytes)
        memcpy(pad, key, key_bytes);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36;
    par__sha256_begin(&s);
    par__sha256_add(&s, pad, sizeof pad);
    for (int i = 0; i < count; i++) par__sha256_add(&s, parts[i].iov_base, parts[i].iov_len);
    par__sha256_end(&s, inner);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5c;
    par__sha256_begin(&s);
    par__sha256_add(&s, pad, sizeof pad);
    par__sha256_add(&s, inner, sizeof inner);
    par__sha256_end(&s, mac);
}
// Derive a key from another one, in place, for the purpose that `label` names.
static void par__derive_key(unsigned char *key, const char *label, const void *memory, size_t bytes) {
    const struct iovec parts[2] = {par__iovec(label, strlen(label) + 1), par__iovec(memory, bytes)};
    par__hmac(key, PAR__MAC_BYTES, parts, 2, key);
}
static int par__mac_equal(const unsigned char *a,
                          const unsigned char *b) { // in constant time
    unsigned different = 0;
    for (int i = 0; i < PAR__MAC_BYTES; i++) different |= (unsigned)(a[i] ^ b[i]);
    return different == 0;
}

// Read the secret from a file: as many bytes as there are or fit. -1: the file cannot be used, which has been
// logged.
static int par__read_secret_file(const char *path, unsigned char *secret, size_t capacity) {
    char why[512];
    size_t bytes, at = 0;
    struct stat st;
    const int fd = par__open_read(path, &bytes, why, sizeof why);
    if (fd < 0) return par__log_error(PAR_ERR_SYSTEM, "PAR_SECRET_FILE: %s", why), -1;
    const int known = fstat(fd, &st) == 0, own = known && st.st_uid == geteuid() && !(st.st_mode & 077);
    ssize_t n = 0;
    while (own && at < capacity && (n = read(fd, secret + at, capacity - at)) > 0) at += (size_t)n;
    if (n < 0) par__log_error(PAR_ERR_SYSTEM, "PAR_SECRET_FILE: cannot read %s: %s", path, strerror(errno));
    close(fd);
    if (!own) {
        par__log_error(PAR_ERR_SYSTEM,
                       "PAR_SECRET_FILE: %s has mode %04o and belongs to user %d: it must be readable by its "
                       "owner alone (chmod 600), who must be the user of this process, %d",
                       path, known ? (unsigned)st.st_mode & 07777u : 0u, known ? (int)st.st_uid : -1,
                       (int)geteuid());
        return -1;
    }
    if (n < 0) return -1;
    while (at && (secret[at - 1] == '\n' || secret[at - 1] == '\r')) at--;
    return (int)at;
}
// The key from PAR_SECRET or PAR_SECRET_FILE, with *there = 1; without a secret, a key that everybody knows.
static par_result par__load_secret(unsigned char *key, int *there) {
    enum { MIN_BYTES = 16, MAX_BYTES = 4096 };
    const char *text = getenv("PAR_SECRET"), *path = getenv("PAR_SECRET_FILE");
    const char *name = path ? "PAR_SECRET_FILE" : "PAR_SECRET";
    unsigned char secret[MAX_BYTES + 1];
    int n = 0;
    *there = text || path;
    if (text && path)
        return par__log_error(PAR_ERR_ARGUMENT,
                              "PAR_SECRET and PAR_SECRET_FILE are both set: unset one of them");
    if (path && (n = par__read_secret_file(path, secret, sizeof secret)) < 0) return PAR_ERR_SYSTEM;
    if (text) memcpy(secret, text, (size_t)(n = (int)PAR__MIN(strlen(text), sizeof secret)));
    const struct iovec part = par__iovec("par.h meets", 11);
    par__hmac(secret, (size_t)n, &part, 1, key);
    explicit_bzero(secret, sizeof secret);
    if (*there && (n < MIN_BYTES || n > MAX_BYTES))
        return par__log_error(
            PAR_ERR_ARGUMENT,
            "%s must have %d to %d bytes, the same for all ranks, but has %s%d (openssl rand -hex 32 "
            "makes a good one)",
            name, MIN_BYTES, MAX_BYTES, n > MAX_BYTES ? "more than " : "", PAR__MIN(n, (int)MAX_BYTES));
    return PAR_OK;
}

// >>handshake -----------------------------------------------------------------------------------------------
//
// Authenticate the other end of a new connection. Both ends prove that they know one key, by its MAC of all
// that both have sent. Each end sends a nonce, so that nobody can replay earlier traffic. The rendezvous uses
// the key from PAR_SECRET; later connections use a key that rank 0 creates for this run.
//     connects    HELLO ...............  PROOF ................
//     accepts     ............  HELLO .........  VERDICT, PROOF
// Nothing here blocks: it reads what has arrived, and each answer fits into any socket's buffer.

enum {
    PAR__AWAIT_HELLO,
    PAR__AWAIT_PROOF,
    PAR__AWAIT_VERDICT,
    PAR__HANDSHAKE_DONE,
    PAR__HANDSHAKE_FAILED
}; // par__handshake.state
// par__hello.purpose: the rendezvous, the tree, messages, a line; to join later
enum { PAR__TO_MEET, PAR__TO_STAY, PAR__TO_SEND, PAR__TO_TELL, PAR__TO_JOIN };
enum { PAR__PLACE_BYTES = 104, PAR__ANY_RANK = -2 };
typedef struct par__hello {
    uint64_t magic, job;
    int32_t rank, to, size, secret; // to: the rank that accepts; secret: 1: PAR_SECRET is set
    int32_t purpose, reserved;
    uint64_t nonce[2];
    uint64_t program;             // a hash of the program's name and arguments
    char place[PAR__PLACE_BYTES]; // where it runs, for errors
} par__hello;
typedef struct par__verdict {
    int32_t result, count; // count: of a subtree's blocks, while the world opens
    char text[440];
    unsigned char proof[PAR__MAC_BYTES];
} par__verdict;
typedef struct par__identity {         // what a rank sends and proves
    uint64_t job;                      // the same for all ranks of this run
    int32_t rank, size, secret, named; // named: no other run has this job
    int32_t places;                    // numbers that ranks may have; more than `size` in an elastic world
    uint64_t program;
    char place[PAR__PLACE_BYTES];
    unsigned char key[PAR__MAC_BYTES];
} par__identity;
typedef struct par__handshake { // a connection whose other end is not yet authenticated
    int fd, state;
    int initiator;                // 1: this end has connected
    int permanent;                // PAR__HANDSHAKE_FAILED: a retry will fail, too
    int at_door, local;           // it came to the rendezvous: to the port, to the host's Unix socket
    double deadline;              // its deadline
    par__hello hello[2];          // of the connecting end, of the accepting end
    size_t received, reply_bytes; // of the next part; bytes to be sent
    unsigned char in[sizeof(par__verdict)], reply[sizeof(par__hello)];
    char why[448]; // of PAR__HANDSHAKE_FAILED
} par__handshake;

static void par__handshake_proof(const par__identity *self, const par__handshake *p, char who,
                                 const void *more, size_t bytes, unsigned char *proof) {
    const struct iovec parts[3] = {par__iovec(&who, 1), par__iovec(p->hello, sizeof p->hello),
                                   par__iovec(more, bytes)};
    par__hmac(self->key, sizeof self->key, parts, 3, proof);
}

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static void
par__handshake_fail(par__handshake *p, int final, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->why, sizeof p->why, format, args);
    va_end(args);
    p->state = PAR__HANDSHAKE_FAILED;
    p->permanent = final;
}
// Begin on a new connection. to: the rank that this end has connected to, or PAR__ANY_RANK; -1: this end has
// accepted. 0, or errno.
static int par__handshake_begin(const par__identity *self, par__handshake *p, int fd, int to, int purpose) {
    memset(p, 0, sizeof *p);
    p->fd = fd;
    p->initiator = to != -1;
    par__hello *h = &p->hello[!p->initiator];
    int e = par__getrandom_u64(&h->nonce[0]);
    if (!e) e = par__getrandom_u64(&h->nonce[1]);
    if (e) return e;
    h->magic = PAR__MAGIC;
    h->job = self->job;
    h->rank = self->rank;
    h->to = to;
    h->size = self->size;
    h->secret = self->secret;
    h->program = self->program;
    h->purpose = purpose;
    memcpy(h->place, self->place, sizeof h->place);
    if (p->initiator) memcpy(p->reply, h, p->reply_bytes = sizeof *h);
    return 0;
}
#define PAR__SAME_RANK                                                                                       \
    "two processes were given the same rank, %d: one at %s, one at %s. Are these two runs? Give each a "     \
    "PAR_JOB, or a MASTER_PORT"
static void par__place_text(const par__hello *h, char *text) { // safe to print
    snprintf(text, PAR__PLACE_BYTES, "%.*s", (int)sizeof h->place - 1, h->place);
    par__sanitize(text, "");
}
static size_t par__handshake_wanted(const par__handshake *p) { // bytes of the next part
    if (p->state == PAR__AWAIT_HELLO) return sizeof(par__hello);
    return p->state == PAR__AWAIT_PROOF ? (size_t)PAR__MAC_BYTES : sizeof(par__verdict);
}
static void par__handshake_on_hello(const par__identity *self, par__handshake *p) {
    const par__hello *mine = &p->hello[!p->initiator], *h = &p->hello[p->initiator];
    char place[PAR__PLACE_BYTES];
    memcpy(&p->hello[p->initiator], p->in, sizeof *h);
    par__place_text(h, place);
    p->state = p->initiator ? PAR__AWAIT_VERDICT : PAR__AWAIT_PROOF;
    if (!p->initiator) { // the connecting end gets it in any case, and finds the same error
        p->hello[1].to = h->rank;
        memcpy(p->reply, mine, p->reply_bytes = sizeof *mine);
    }
    const int joins = p->hello[0].purpose == PAR__TO_JOIN; // it knows no more than the secret
    if (h->job != self->job && !joins)
        par__handshake_fail(p, 0, "rank %d there is of another job (PAR_JOB, or a launcher's name of it)",
                            (int)mine->to);
    else if (h->size != self->size && !joins) // a world that comes later at this port would be another run's
        par__handshake_fail(p, 1, "rank %d there was given another number of ranks, %d (it is at %s)",
                            (int)mine->to, (int)h->size, place);
    else if (h->rank == self->rank && h->to == self->rank)
        par__handshake_fail(p, 1, PAR__SAME_RANK, (int)self->rank, self->place, place);
    else if (!joins &&
             (h->rank < 0 || h->rank >= (p->at_door ? self->size : PAR__MAX(self->size, self->places)) ||
              h->rank == self->rank || (h->to != self->rank && !(p->local && h->to == PAR__ANY_RANK)) ||
              (h->rank != mine->to && mine->to != PAR__ANY_RANK)))
        par__handshake_fail(p, 0, "another rank than %d answers there", (int)mine->to);
    else if (!p->initiator && (h->purpose == PAR__TO_MEET || joins) != p->at_door)
        par__handshake_fail(p, 0, "rank %d comes to another port than it should", (int)h->rank);
    else if (h->secret != self->secret)
        par__handshake_fail(
            p, 1,
            "rank %d has PAR_SECRET (or PAR_SECRET_FILE), but rank %d has none: give all ranks "
            "the same",
            (int)(self->secret ? self->rank : h->rank), (int)(self->secret ? h->rank : self->rank));
    else if (p->initiator) {
        par__handshake_proof(self, p, 'c', NULL, 0, p->reply);
        p->reply_bytes = PAR__MAC_BYTES;
    }
}
static void par__handshake_on_proof(const par__identity *self, par__handshake *p) {
    const int other = p->hello[p->initiator].rank;
    unsigned char proof[PAR__MAC_BYTES];
    par__verdict v;
    memset(&v, 0, sizeof v);
    if (p->initiator)
        memcpy(&v, p->in, sizeof v);
    else
        memcpy(v.proof, p->in, sizeof proof);
    par__handshake_proof(self, p, p->initiator ? 'a' : 'c', &v,
                         p->initiator ? offsetof(par__verdict, proof) : 0, proof);
    p->state = PAR__HANDSHAKE_DONE;
    if (par__mac_equal(proof, v.proof)) {
        if (!v.result) return;
        snprintf(p->why, sizeof p->why, "%.*s", (int)sizeof v.text, v.text);
        par__sanitize(p->why, "");
        p->state = PAR__HANDSHAKE_FAILED;
        p->permanent = 1;
    } else if (p->initiator && !(v.result && self->secret)) {
        par__handshake_fail(p, 0, "what answers there cannot prove that it is rank %d", other);
    } else if (p->hello[0].purpose == PAR__TO_JOIN) {
        par__handshake_fail(p, 1,
                            "a process that joins needs the PAR_SECRET (or PAR_SECRET_FILE) of the job");
    } else {
        par__handshake_fail(
            p, 1,
            "ranks %d and %d have different secrets in PAR_SECRET (or PAR_SECRET_FILE): give all "
            "ranks the same",
            PAR__MIN((int)self->rank, other), PAR__MAX((int)self->rank, other));
    }
}
// n more bytes were received, in p->in behind the first p->received.
static void par__handshake_received(const par__identity *self, par__handshake *p, size_t n) {
    const uint64_t magic = PAR__MAGIC;
    char text[40];
    p->received += n;
    if (p->state == PAR__AWAIT_HELLO && memcmp(p->in, &magic, PAR__MIN(p->received, sizeof magic))) {
        snprintf(text, sizeof text, "%.*s", (int)p->received, (const char *)p->in);
        par__sanitize(text, "");
        par__handshake_fail(p, 0, "what answers there is no rank %d, but says \"%s\"",
                            (int)p->hello[!p->initiator].to, text);
        return;
    }
    if (p->received < par__handshake_wanted(p)) return;
    p->received = 0;
    if (p->state == PAR__AWAIT_HELLO)
        par__handshake_on_hello(self, p);
    else
        par__handshake_on_proof(self, p);
}
// Send and receive what is possible now.
static void par__handshake_progress(const par__identity *self, par__handshake *p) {
    for (;;) {
        const size_t bytes = p->reply_bytes;
        p->reply_bytes = 0;
        if (bytes && send(p->fd, p->reply, bytes, MSG_NOSIGNAL) != (ssize_t)bytes &&
            p->state < PAR__HANDSHAKE_DONE) {
            par__handshake_fail(p, 0, "%s", strerror(errno));
            return;
        }
        if (p->state >= PAR__HANDSHAKE_DONE) return;
        const ssize_t n = recv(p->fd, p->in + p->received, par__handshake_wanted(p) - p->received, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            par__handshake_fail(p, 0, "%s", n ? strerror(errno) : "what answers there hung up");
            return;
        }
        par__handshake_received(self, p, (size_t)n);
    }
}
// The accepting end's last part; an error closes the connection. 1: it was sent, and it is no error.
static int par__handshake_end(const par__identity *self, par__handshake *p, par_result result,
                              const char *text) {
    par__verdict v;
    memset(&v, 0, sizeof v);
    v.result = (int32_t)result;
    snprintf(v.text, sizeof v.text, "%s", text);
    par__handshake_proof(self, p, 'a', &v, offsetof(par__verdict, proof), v.proof);
    const int said = send(p->fd, &v, sizeof v, MSG_NOSIGNAL) == (ssize_t)sizeof v;
    if (said && !result) return 1;
    for (int i = 0; i < 16 && recv(p->fd, p->in, sizeof p->in, 0) > 0; i++) {
    } // unread bytes would reset the connection and lose what was sent
    close(p->fd);
    p->fd = -1;
    return 0;
}

// >>tcp -----------------------------------------------------------------------------------------------------
//
// The ranks form a tree with rank 0 as its root: a rank has a control connection to its parent and to each of
// its children (edges), over which the world opens and closes, and which report who left, died or aborted.
// Ranks of one host are consecutive in it; a group of k has a k-nomial tree of radix 8, so that a rank has at
// most 14 children for each factor of 64, and one in eight has any:
//     first ranks of hosts   0 <- 1 .. 7, 8, 16, .. 56, 64 ..      8 <- 9 .. 15      16 <- 17 .. 23
//     ranks of a host        the same tree, its root is the first of them
// Messages between two ranks use a connection of their own, which the first message opens, so that data carry
// the acknowledgments of the other direction's. They are frames, each with a tag. A short message is sent
// with its frame, and is kept where no receive waits for it yet. A long one uses a rendezvous:
//     sender      RTS (tag, bytes)  ........  DATA (tag, bytes) + the bytes, from the sender's memory ...
//     receiver    ........  CTS (tag), once there is a receive for it  ........  ... to the receiver's
// So a message never waits for another one with a different tag, and only the system copies a long one on its
// way. A receiver keeps at most PAR__TCP_CREDIT_BYTES of short messages that no receive has taken: it reports
// (CREDIT) how much was taken, and a sender without credit sends an RTS, as for a long message. A pair's
// connections make progress whenever one of its messages is tested. No input is trusted: a frame that does
// not fit what was agreed before closes the connection, and is an error.
//     memory of a rank: 29 bytes for each rank of the world (rank 0: 133), 1.2 KiB for each edge, 0.6 KiB for
//     each rank with which it exchanges messages, 4 KiB more if it has received one

enum {
    PAR__TCP_SHORT_BYTES = 65536,
    PAR__TCP_CREDIT_BYTES = 4 << 20,
    PAR__TCP_MESSAGE_OVERHEAD = 64, // credit that a message costs beside its bytes
    PAR__TCP_RTS_MAX = 4096,        // a rank has at most one in flight for each lane of its comms
    PAR__TCP_BUFFER_BYTES = 4096,
    PAR__TCP_EXTRA_PENDING = 64,
    PAR__TCP_LISTENER_MAX = 8,
    PAR__TCP_RADIX = 8,
    PAR__JOINERS = 64, // processes that wait to join
    PAR__TCP_RANK_MAX = 1 << 17
};
#define PAR__TCP_HANDSHAKE_SECONDS 30.0 // seconds that a pending accept has for its next part
#define PAR__TCP_FRAMES(X)         X(SHORT) X(RTS) X(CTS) X(DATA) X(CREDIT)
enum {
#define PAR__X(name) PAR__TCP_##name,
    PAR__TCP_FRAMES(PAR__X)
#undef PAR__X
        PAR__TCP_FRAME_COUNT
};
typedef struct par__frame { // precedes what is sent
    uint64_t session;       // of par__tcp
    uint32_t kind, tag;
    uint64_t bytes;
    uint64_t reserved; // 0: behind 32 bytes a payload is copied faster than behind 24
} par__frame;
typedef struct par__notice { // between neighbors in the tree; text_bytes bytes follow
    uint64_t session;
    int32_t kind, rank, result;
    int32_t asker; // of LOST and ALIVE
    uint32_t text_bytes, reserved;
} par__notice;
typedef struct par__address { // where a rank listens, and its place in the tree
    unsigned char ip[16];
    uint32_t scope;
    uint16_t family;
    in_port_t port;
    int32_t parent;
} par__address;
typedef struct par__word { // on a connection of the rendezvous, see >>rendezvous
    int32_t kind, rank;    // of whom it tells
    int32_t parent, children, count, reserved;
    par__address address, zero;
    uint64_t seed[4], program, host; // host: a hash of its host and, by PAR_NODE_RANKS, its node
    char text[440];
    unsigned char proof[PAR__MAC_BYTES];
} par__word;
typedef struct par__edge { // a control connection
    int fd, rank;
    uint64_t inode; // of the socket: the program may close it, and open files of its own
    unsigned char key[PAR__MAC_BYTES];
    uint64_t sent, received;   // what was sent and received with this key
    int joined, local;         // while ranks meet: it has said where it listens; by the host's Unix socket
    int ready;                 // poll has found something to read
    int closing;               // a child: it and all below close the world; the parent: all have closed it
    int told;                  // an error's text has been sent
    int lost_rank, lost_asker; // the rank that was asked for, + 1; by whom
    char *io;                  // of an all-gather: memory, and bytes still to be moved
    size_t left;
    char *out; // still to be sent
    size_t out_bytes, out_capacity;
    size_t have; // bytes of `in`
    union {
        par__word record;
        struct {
            par__notice head;
            char text[PAR__ERROR_BYTES];
        } notice;
    } in;
} par__edge;
typedef struct par__dial { // a connection that this rank makes, until the other end is authenticated
    int fd, connecting;
    par__handshake *handshake;
    double retry_at, retry_until; // when to retry; when to give up
    char why[120];                // of EPROTO
} par__dial;
typedef struct par__tcp_message {       // a message
    struct par__tcp_message *next;      // in its list
    struct par__tcp_message *next_send; // in the send queue
    struct par__tcp_message *receive;   // the receive that waits for the rest of it
    uint32_t tag;
    int done, owned; // owned: freed on completion, since no request refers to it
    char *memory;    // NULL: canceled; its bytes are discarded
    size_t bytes, received;
    par__frame frame; // the next frame to send, its payload, and the bytes sent of both
    size_t payload, written;
} par__tcp_message;
typedef struct par__connection { // of messages between this rank and another
    int rank;
    int out, in;           // connections, mostly the same; -1: none yet; -2: no more
    par__dial dial;        // becomes `out`
    int error;             // errno of the first of the two that failed
    double error_at;       // when; 0: none has failed
    double alive_asked_at; // when it was asked whether that rank is alive
    int alive;             // the answer
    char fault[192];       // what was wrong with its data; "": nothing
    size_t credit_used;    // bytes of short messages that the receiver has not yet reported
    size_t credit_owed;    // bytes taken by receives, not yet reported
    size_t unexpected_bytes,
        unexpected_rts;                  // in `unexpected`: bytes of short ones; RTS
    uint32_t poll_round;                 // par__world.poll_round of its last progress
    par__tcp_message *send_queue;        // frames to send, in this order
    par__tcp_message *rts_sent;          // sends without a CTS yet
    par__tcp_message *posted, *cts_sent; // receives: without a frame yet; after their CTS
    par__tcp_message *unexpected;        // messages without a receive yet
    par__tcp_message *reading;           // the message that is being read
    size_t reading_left;                 // its bytes still to be read
    par__frame frame;
    size_t buffer_start, buffer_end; // of the buffer
    char *buffer;
    uint64_t out_inode; // of this socket: the program may close it, and open files of its own
} par__connection;
typedef struct par__memo {        // on a line; `bytes` bytes follow
    uint64_t session, key, state; // key: of a comm, or an entry of par__arena.revoked; state: of a vote
    int32_t kind, rank;           // rank: of the world; whom it tells of
    int32_t from, size, ballot;   // of a vote: who says it, of how many; see >>tcp_votes
    int32_t promised, reserved;
    uint32_t bytes;
} par__memo;
typedef struct par__line { // a control connection of an elastic world, see >>tcp_lines
    par__edge edge;
    par__dial dial;    // becomes edge.fd
    int mine, greeted; // this rank makes it; has told all that it knew then
    char *in;          // what is being read
    size_t in_capacity;
} par__line;
typedef struct par__joiner { // a process that waits at the door, see >>tcp_join
    int fd;
    unsigned char key[PAR__MAC_BYTES];
} par__joiner;
typedef struct par__decision { // of one vote of a comm that has several nodes, see >>tcp_votes
    struct par__decision *next;
    const par_comm *comm; // NULL: this rank has closed it
    uint64_t key, state;
    int size, me, leader, proposed, asked_again, decided; // me: this rank
    int *world;                                           // per rank: its number in the world
    int promised, accepted; // the highest ballot that it has heard of, and of which `table` is; -1: none
    int ballot;             // this rank's, if it leads: the remainder by `size` is `me`
    double since;
    par__vote *cast, *table; // per rank: what has come here; what was proposed, or decided
    unsigned char *heard;    // per rank: PAR__HEARD_ACCEPT ...
    unsigned char *counted;  // per rank: it votes
} par__decision;
// What is known of a rank, beside its state (the lowest two bits).
enum {
    PAR__TCP_STATE = 3,
    PAR__TCP_HAD_ERROR = 4,
    PAR__TCP_COMPLAINED = 8,
    PAR__TCP_SILENT = 16,
    PAR__TCP_ENDED = 32
};
struct par__tcp {
    struct par__tcp *next;   // of this process: see par__tcp_after_fork
    par__connection **table; // of the ranks with messages, by a hash of the rank
    size_t table_size, table_count;
    unsigned char *states; // of every rank: its state; PAR__TCP_HAD_ERROR: it has reported an error, its
                           // exit is a consequence; PAR__TCP_COMPLAINED: a false claim to it was logged;
                           // PAR__TCP_SILENT: it may have gone on without this rank, see >>tcp_lines;
                           // PAR__TCP_ENDED: and its process has ended since
    par__address *book;    // of every rank
    struct sockaddr_storage zero; // where this rank has reached rank 0
    par__edge *edges;             // another rank than 0: the first one is to its parent
    int edge_count;
    par__line **lines;                        // instead, once an elastic world is open
    int line_count, line_capacity, lines_due; // due: some may be missing
    uint32_t gone_seen, abort_told;           // of the arena: what this rank has told on its lines
    uint64_t revoked_told;
    double lines_polled; // when
    par__decision *decisions;
    par__joiner joiners[PAR__JOINERS];
    int joiner_count, inviting;  // the first of them are invited
    int next_place;              // the number of the next new rank
    char join_at[288];           // the address of a door that is not that of the rendezvous
    int cut;                     // the way to rank 0 has ended
    int gone;                    // the state of a rank has changed
    par__rendezvous *rendezvous; // until all ranks have met
    par__identity self, door;    // door: during the rendezvous, and for ranks that come later
    uint64_t session;            // a random number of this run, in all frames and notices
    int listeners[PAR__TCP_LISTENER_MAX], listener_count;
    int doors[PAR__TCP_LISTENER_MAX], door_count; // rank 0: at the port of the rendezvous, see PAR_JOB
    int local;                        // a Unix socket, where ranks of this host join this one; -1: none
    char (*places)[PAR__PLACE_BYTES]; // rank 0: where each rank runs
    void (*on_door)(par__tcp *t, par__handshake *p); // called when a handshake of the rendezvous has ended
    int programs_differ;                             // logged
    int two_runs; // rank 0, before all have met: nobody can tell whose ranks are whose; `why` says it
    par__handshake *pending; // pending accepts: of all ranks and PAR__TCP_EXTRA_PENDING more at most
    int pending_count, pending_capacity;
    void (*on_handshake)(par__tcp *t, par__handshake *p); // called when a handshake is done or failed
    int fds_exhausted;   // no descriptor is left for accept: retry now and then
    int accept_error;    // errno of a failed accept
    char why[448];       // why a connection could not be made
    uint32_t poll_round; // par__world.poll_round of the last accept
    struct pollfd *polls;
    int poll_capacity;
    char *sink; // PAR__TCP_SHORT_BYTES bytes, for data to be discarded
    char host[256];
    char port[16];
    struct { // of this rank, while the world opened: a test compares them with formulas
        uint64_t handshakes, words, blocks, block_bytes;
    } counts;
};
// A rank's part of the rendezvous.
struct par__rendezvous {
    par__edge up;    // to rank 0, or to the rank that leads this host; -1: none
    par__edge *down; // who has joined this one
    int down_count, down_capacity;
    int led; // a rank that led this host has gone: join another way
    int where_known;
    par__address own, zero; // this host's address, and rank 0's as this host reaches it
    int assigned, parent, children, accepted;
    int ready, said_ready; // ranks below that have their edges
    int over;              // all have
    par_result result;     // why not
    char text[512];
    par__dial dial;      // to the parent
    unsigned char *here; // rank 0: PAR__ABSENT, PAR__HERE, PAR__GONE
    int *via;            // rank 0: by which of `down` each rank has joined
    uint64_t *host;      // rank 0: of each rank
};

// >>tcp_sockets ---------------------------------------------------------------------------------------------

// No waiting; small messages at once; a host that vanished is missed after half a minute.
static void par__tcp_configure(int fd) {
    static const int options[][3] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                                     {SOL_SOCKET, SO_KEEPALIVE, 1},
                                     {IPPROTO_TCP, TCP_KEEPIDLE, 10},
                                     {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                                     {IPPROTO_TCP, TCP_KEEPCNT, 4}};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        setsockopt(fd, options[i][0], options[i][1], &options[i][2], sizeof(int));
}
static int par__tcp_poll_fd(int fd, short events, double until) { // 0: not before then
    struct pollfd p;
    p.fd = fd;
    p.events = events;
    p.revents = 0;
    const double left = until - par__now();
    return poll(&p, 1, left > 0 ? (int)PAR__MIN(left * 1000 + 1, 1000.0) : 0) > 0;
}
// getaddrinfo has no deadline, and a name server may be silent: so a name is looked up by a thread. If the
// deadline passes, the thread goes on alone, with memory that nobody else has any more.
typedef struct par__lookup {
    char host[256], port[16];
    struct addrinfo *found;
    int failed, error; // getaddrinfo's result; errno
    uint32_t ended;    // 1: the three members above are set
    int holders;       // the thread and the caller; the last one frees it
} par__lookup;
static void par__lookup_release(par__lookup *l) {
    if (__atomic_sub_fetch(&l->holders, 1, __ATOMIC_ACQ_REL)) return;
    if (l->found) freeaddrinfo(l->found);
    PAR_FREE(l);
}
static int par__getaddrinfo(const char *host, const char *port, int flags, struct addrinfo **found) {
    struct addrinfo hints;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    *found = NULL;
    return getaddrinfo(host, port, &hints, found);
}
static void *par__lookup_main(void *user) {
    par__lookup *l = (par__lookup *)user;
    l->failed = par__getaddrinfo(l->host, l->port, 0, &l->found);
    l->error = errno;
    PAR__STORE(&l->ended, 1u);
    par__futex_wake(&l->ended);
    par__lookup_release(l);
    return NULL;
}
// Start the thread. NULL, with errno: it cannot be started.
static par__lookup *par__lookup_begin(const char *host, const char *port) {
    enum { STACK_BYTES = 1 << 20 }; // not `ulimit -s`, which may be too little for getaddrinfo
    par__lookup *l = (par__lookup *)par__zalloc(sizeof *l);
    pthread_attr_t how;
    pthread_t thread;
    if (!l) return errno = ENOMEM, l;
    snprintf(l->host, sizeof l->host, "%s", host);
    snprintf(l->port, sizeof l->port, "%s", port);
    l->holders = 2;
    pthread_attr_init(&how);
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&how, STACK_BYTES);
    errno = par__create_thread(&thread, &how, par__lookup_main, l);
    pthread_attr_destroy(&how);
    if (!errno) return l;
    PAR_FREE(l);
    return NULL;
}
// Find the addresses of a host, or (NULL) those to listen at; freeaddrinfo. Returns NULL, or why there are
// none, with errno (0: the name is unknown).
static const char *par__tcp_resolve(const char *host, const char *port, double until,
                                    struct addrinfo **found) {
    int failed = par__getaddrinfo(host, port, host ? AI_NUMERICHOST : AI_PASSIVE, found), error = errno;
    if (host && failed == EAI_NONAME) { // a name
        par__lookup *l = par__lookup_begin(host, port);
        if (!l) return strerror(errno);
        while (!PAR__LOAD(&l->ended) && par__now() < until) par__futex_wait(&l->ended, 0, 100000000);
        const int ended = PAR__LOAD(&l->ended) != 0;
        if (ended) {
            *found = l->found;
            l->found = NULL;
            failed = l->failed;
            error = l->error;
        }
        par__lookup_release(l);
        if (!ended)
            return errno = ETIMEDOUT,
                   "no name server has told what this name means: use the host's numeric address";
    }
    errno = failed == EAI_SYSTEM ? error : 0;
    return !failed ? NULL : errno ? strerror(errno) : gai_strerror(failed);
}
static in_port_t *par__port_of(struct sockaddr_storage *a) {
    return a->ss_family == AF_INET ? &((struct sockaddr_in *)a)->sin_port
                                   : &((struct sockaddr_in6 *)a)->sin6_port;
}
static socklen_t par__address_bytes(const struct sockaddr_storage *a) {
    return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}
static int par__is_loopback(const struct sockaddr_storage *a) {
    if (a->ss_family == AF_INET) return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}
static void par__tcp_forget(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}
static void par__tcp_leave_port(par__tcp *t) { // of the rendezvous
    while (t->door_count) close(t->doors[--t->door_count]);
}
static void par__tcp_stop_listening(par__tcp *t) {
    while (t->listener_count) close(t->listeners[--t->listener_count]);
    while (t->pending_count) close(t->pending[--t->pending_count].fd);
}
static void par__pack_address(const struct sockaddr_storage *from, par__address *to) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    to->family = from->ss_family;
    to->port = from->ss_family == AF_INET ? four->sin_port : six->sin6_port;
    memset(to->ip, 0, sizeof to->ip);
    to->scope = from->ss_family == AF_INET ? 0 : six->sin6_scope_id;
    if (from->ss_family == AF_INET)
        memcpy(to->ip, &four->sin_addr, sizeof four->sin_addr);
    else
        memcpy(to->ip, &six->sin6_addr, sizeof six->sin6_addr);
}
static void par__unpack_address(const par__address *from, struct sockaddr_storage *to) {
    struct sockaddr_in *four = (struct sockaddr_in *)to;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
    memset(to, 0, sizeof *to);
    to->ss_family = from->family;
    *par__port_of(to) = from->port;
    if (from->family == AF_INET) {
        memcpy(&four->sin_addr, from->ip, sizeof four->sin_addr);
    } else {
        memcpy(&six->sin6_addr, from->ip, sizeof six->sin6_addr);
        six->sin6_scope_id = from->scope;
    }
}
// Where this rank reaches another one. Rank 0 and the ranks of its host, which may listen at a loopback
// address, are at the address at which this rank has reached rank 0.
static void par__tcp_reach(const par__tcp *t, int rank, const par__address *book,
                           struct sockaddr_storage *to) {
    par__unpack_address(book, to);
    if (!t->self.rank || (rank && !par__is_loopback(to))) return;
    *to = t->zero;
    *par__port_of(to) = book->port;
}
static int par__tcp_is_self(int fd) { // a port of the system's choice may meet itself
    struct sockaddr_storage a, b;
    socklen_t na = sizeof a, nb = sizeof b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    return !getsockname(fd, (struct sockaddr *)&a, &na) && !getpeername(fd, (struct sockaddr *)&b, &nb) &&
           na == nb && !memcmp(&a, &b, na);
}
// Once. -1: *why says what hinders.
static int par__tcp_connect_to(const char *host, const char *port, double until, const char **why) {
    struct addrinfo *found;
    int fd = -1, e = EHOSTUNREACH;
    const char *unknown = par__tcp_resolve(host, port, until, &found);
    if (unknown) return *why = unknown, -1;
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        socklen_t bytes = sizeof e;
        fd = par__safe_fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        e = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
        if (e == EINPROGRESS) {
            const double patience = PAR__MIN(until, par__now() + 5);
            while (!par__tcp_poll_fd(fd, POLLOUT, patience) && par__now() < patience) {
            }
            e = ETIMEDOUT;
            if (par__tcp_poll_fd(fd, POLLOUT, 0)) getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &bytes);
        }
        if (!e && fd >= 0 && par__tcp_is_self(fd)) e = ECONNREFUSED;
        if (e && fd >= 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (fd < 0) return *why = strerror(e), errno = e, -1;
    par__tcp_configure(fd);
    return fd;
}

static uint64_t par__socket_inode(int fd) { // 0: it is no socket
    struct stat st;
    return fd >= 0 && !fstat(fd, &st) && S_ISSOCK(st.st_mode) ? (uint64_t)st.st_ino : 0;
}
static void par__tcp_disconnect(par__connection *v, int *fd, int error) {
    const int both = *fd >= 0 && v->in == v->out;
    if (*fd >= 0) close(*fd);
    if (v->error_at == 0) {
        v->error = error ? error : ECONNRESET;
        v->error_at = par__now();
    }
    *fd = -2;
    if (both) v->in = v->out = -2;
}

// What a rank has sent is wrong: the connection ends, and who waits for a message of that rank hears why.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static void
par__tcp_protocol_error(par__world *w, par__connection *v, const char *format, ...) {
    char what[128];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!v->fault[0]) snprintf(v->fault, sizeof v->fault, "rank %d sent rank %d %s", v->rank, w->rank, what);
    par__tcp_disconnect(v, &v->in, EPROTO);
}
// Whether errno e says that no descriptor is left, here for a connection to or from a rank.
static int par__tcp_out_of_descriptors(par__world *w, par__connection *v, int e, const char *way) {
    if (e != EMFILE && e != ENFILE) return 0;
    if (!v->fault[0])
        snprintf(v->fault, sizeof v->fault,
                 "rank %d has no descriptor left for a connection %s rank %d: %.100s", w->rank, way, v->rank,
                 par__strerror(e).text);
    return 1;
}

// What this rank still has to say on a control connection, as far as it is taken now.
static void par__edge_flush(par__edge *e) {
    while (e->fd >= 0 && e->out_bytes) {
        const ssize_t n = send(e->fd, e->out, e->out_bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) break; // it is gone: what it has said before is still to be read
        memmove(e->out, e->out + n, e->out_bytes -= (size_t)n);
    }
    PAR_FREE(e->out);
    e->out = NULL;
    e->out_bytes = e->out_capacity = 0;
}
static void par__edge_say(par__edge *e, const void *head, size_t head_bytes, const char *text, size_t bytes) {
    const size_t need = e->out_bytes + head_bytes + bytes;
    if (e->fd < 0 || (e->inode && par__socket_inode(e->fd) != e->inode)) return;
    if (need > e->out_capacity) {
        char *out = (char *)PAR_REALLOC(e->out, 2 * need);
        if (!out) {
            shutdown(e->fd, SHUT_RDWR); // half of it would be misread
            return;
        }
        e->out = out;
        e->out_capacity = 2 * need;
    }
    memcpy(e->out + e->out_bytes, head, head_bytes);
    if (bytes) memcpy(e->out + e->out_bytes + head_bytes, text, bytes);
    e->out_bytes = need;
    par__edge_flush(e);
}
// Read on until e->in has `want` bytes. 1: it has; 0: not yet; -1: nothing comes any more.
static int par__edge_read(par__edge *e, size_t want) {
    while (e->have < want) {
        const ssize_t n = recv(e->fd, (char *)&e->in + e->have, want - e->have, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        if (n <= 0) return -1;
        e->have += (size_t)n;
    }
    return 1;
}
// Wait until the other end's system has all that was said. Else what is on its way would be lost if the close
// that follows is a reset, because something has come that nobody has read.
static void par__edge_settle(par__edge *e, double until) {
    for (int left = 1; e->fd >= 0 && left && par__now() < until;) {
        par__edge_flush(e);
        if (ioctl(e->fd, TIOCOUTQ, &left) || (!left && !e->out_bytes)) return;
        left = 1;
        if (recv(e->fd, &e->in, sizeof e->in, MSG_DONTWAIT) == 0) return;
        usleep(200);
    }
}
static void par__edge_close(par__edge *e) {
    for (int i = 0; e->fd >= 0 && i < 1024 && recv(e->fd, &e->in, sizeof e->in, 0) > 0; i++) {
    } // what is closed unread resets the line, and could take along what was told last
    par__tcp_forget(&e->fd);
    PAR_FREE(e->out);
    e->out = NULL;
    e->out_bytes = e->out_capacity = 0;
}

// The connection for messages to and from a rank. NULL: there is none yet; or no memory for one.
static par__connection *par__tcp_find(const par__tcp *t, int rank) {
    for (size_t i = (size_t)rank * 0x9E3779B1u; t->table_size; i++) {
        par__connection *v = t->table[i & (t->table_size - 1)];
        if (!v || v->rank == rank) return v;
    }
    return NULL;
}
static void par__tcp_enter(par__tcp *t, par__connection *v) {
    size_t i = (size_t)v->rank * 0x9E3779B1u;
    while (t->table[i & (t->table_size - 1)]) i++;
    t->table[i & (t->table_size - 1)] = v;
}
static par__connection *par__tcp_connection(par__tcp *t, int rank) {
    par__connection *v = par__tcp_find(t, rank);
    if (v) return v;
    if (2 * t->table_count >= t->table_size) {
        par__connection **old = t->table;
        const size_t old_size = t->table_size, size = PAR__MAX(2 * old_size, (size_t)8);
        par__connection **table = (par__connection **)par__zalloc(size * sizeof(par__connection *));
        if (!table) return NULL;
        t->table = table;
        t->table_size = size;
        for (size_t i = 0; i < old_size; i++)
            if (old[i]) par__tcp_enter(t, old[i]);
        PAR_FREE(old);
    }
    v = (par__connection *)par__zalloc(sizeof *v);
    if (!v) return NULL;
    v->rank = rank;
    v->out = v->in = v->dial.fd = -1;
    t->table_count++;
    par__tcp_enter(t, v);
    return v;
}

// >>tcp_messages --------------------------------------------------------------------------------------------
//
// What a receiver keeps of messages whose receive has not been called, and what it does with each frame.

static void par__tcp_append(par__tcp_message **list, par__tcp_message *p) {
    while (*list) list = &(*list)->next;
    *list = p;
    p->next = NULL;
}
static par__tcp_message *par__tcp_take_tag(par__tcp_message **list,
                                           uint32_t tag) { // the first of that tag, or NULL
    while (*list && (*list)->tag != tag) list = &(*list)->next;
    par__tcp_message *p = *list;
    if (p) *list = p->next;
    return p;
}
static void par__tcp_queue_frame(par__connection *v, par__tcp_message *p, uint32_t kind, size_t bytes,
                                 size_t payload) {
    par__tcp_message **end = &v->send_queue; // par__tcp_write adds the session
    p->frame.kind = kind;
    p->frame.tag = p->tag;
    p->frame.bytes = bytes;
    p->payload = payload;
    p->written = 0;
    p->next_send = NULL;
    while (*end) end = &(*end)->next_send;
    *end = p;
}
static void par__tcp_return_credit(par__connection *v, size_t bytes) { // by a receive: of a short message
    v->credit_owed += bytes + PAR__TCP_MESSAGE_OVERHEAD;
    if (v->credit_owed < PAR__TCP_CREDIT_BYTES / 4) return;
    par__tcp_message *p = (par__tcp_message *)par__zalloc(sizeof *p);
    if (!p) return; // said with the next one
    p->owned = 1;
    par__tcp_queue_frame(v, p, PAR__TCP_CREDIT, v->credit_owed, 0);
    v->credit_owed = 0;
}
static void par__tcp_complete(par__tcp_message *p) { // one that was dropped goes with its end
    p->done = 1;
    if (p->owned) {
        PAR_FREE(p->memory);
        PAR_FREE(p);
    }
}
static void par__tcp_send_cts(par__connection *v, par__tcp_message *p,
                              size_t bytes) { // a receive that was asked for
    p->received = bytes;
    if (bytes > p->bytes) p->memory = NULL; // the caller hears of it; the bytes are lost
    par__tcp_append(&v->cts_sent, p);
    par__tcp_queue_frame(v, p, PAR__TCP_CTS, 0, 0);
}
static void par__tcp_deliver(par__tcp_message *p,
                             par__tcp_message *from) { // what had come before its receive
    p->received = from->received;
    if (p->memory && p->received) memcpy(p->memory, from->memory, PAR__MIN(p->received, p->bytes));
    par__tcp_complete(p);
    par__tcp_complete(from);
}

static int par__tcp_unexpected(par__world *w,
                               par__connection *v) { // keep it until its receive comes. 0: a fault
    const par__frame *f = &v->frame;
    const int rts = f->kind == PAR__TCP_RTS;
    if (rts ? ++v->unexpected_rts > PAR__TCP_RTS_MAX
            : (v->unexpected_bytes += (size_t)f->bytes + PAR__TCP_MESSAGE_OVERHEAD) > PAR__TCP_CREDIT_BYTES) {
        par__tcp_protocol_error(w, v, "more messages than were agreed before any of them was received");
        return 0;
    }
    par__tcp_message *p = (par__tcp_message *)par__zalloc(sizeof *p);
    if (p && !rts) p->memory = (char *)PAR_MALLOC((size_t)f->bytes + 1);
    if (!p || (!rts && !p->memory)) {
        PAR_FREE(p);
        par__tcp_protocol_error(w, v, "a message for which there is no memory");
        return 0;
    }
    p->owned = 1;
    p->tag = f->tag;
    p->received = (size_t)f->bytes;
    p->bytes = rts ? 0 : (size_t)f->bytes;
    par__tcp_append(&v->unexpected, p);
    if (!rts) v->reading = p;
    return 1;
}
// Take the message of that tag whose frame (RTS, CTS) has been sent, so that the far end can answer it; or
// NULL.
static par__tcp_message *par__tcp_take_answered(par__tcp_message **list, uint32_t tag) {
    par__tcp_message *p = *list;
    while (p && p->tag != tag) p = p->next;
    return p && p->written == sizeof p->frame ? par__tcp_take_tag(list, tag) : NULL;
}
// A frame has been read: where its bytes go.
static int par__tcp_on_frame(par__world *w, par__connection *v) { // 0: it is not what was agreed
    static const char *const names[] = {
#define PAR__X(name) #name,
        PAR__TCP_FRAMES(PAR__X)
#undef PAR__X
    };
    const par__frame *f = &v->frame;
    const unsigned long long bytes = f->bytes;
    par__tcp_message *p = NULL;
    v->reading = NULL;
    v->reading_left = 0;
    if (f->session != w->tcp->session) {
        par__tcp_protocol_error(w, v, "a frame of another session, not of this run");
        return 0;
    }
    if (f->kind >= PAR__TCP_FRAME_COUNT || f->tag >= PAR__NET_TAG_COUNT) {
        par__tcp_protocol_error(w, v, "a frame of kind %u with tag %u, which is none", f->kind, f->tag);
        return 0;
    }
    const size_t max[] = {PAR__TCP_SHORT_BYTES, PAR__NET_CHUNK_BYTES, 0, PAR__NET_CHUNK_BYTES,
                          v->credit_used};
    if (f->bytes > max[f->kind]) {
        par__tcp_protocol_error(w, v, "a frame of kind %s with %llu bytes, where at most %zu are allowed",
                                names[f->kind], bytes, max[f->kind]);
        return 0;
    }
    switch (f->kind) {
    case PAR__TCP_SHORT:
    case PAR__TCP_RTS:
        p = par__tcp_take_tag(&v->posted, f->tag);
        if (!p && !par__tcp_unexpected(w, v)) return 0;
        if (p && f->kind == PAR__TCP_RTS) return par__tcp_send_cts(v, p, (size_t)f->bytes), 1;
        if (!p) break;
        if (f->bytes > p->bytes) p->memory = NULL; // the caller hears of it; the bytes are lost
        p->received = (size_t)f->bytes;
        v->reading = p;
        par__tcp_return_credit(v, (size_t)f->bytes);
        break;
    case PAR__TCP_CREDIT: v->credit_used -= (size_t)f->bytes; return 1;
    default:
        p = par__tcp_take_answered(f->kind == PAR__TCP_CTS ? &v->rts_sent : &v->cts_sent, f->tag);
        if (!p) {
            par__tcp_protocol_error(w, v, "a frame of kind %s with tag %u that nothing asked for",
                                    names[f->kind], f->tag);
            return 0;
        }
        if (f->kind == PAR__TCP_CTS) return par__tcp_queue_frame(v, p, PAR__TCP_DATA, p->bytes, p->bytes), 1;
        v->reading = p;
        if (f->bytes != p->received) {
            par__tcp_protocol_error(w, v, "a frame of kind DATA with %llu bytes, where %zu were agreed",
                                    bytes, p->received);
            return 0;
        }
    }
    v->reading_left = v->reading ? (size_t)f->bytes : 0;
    return 1;
}
static void par__tcp_on_message(par__connection *v) { // all bytes of a message
    par__tcp_message *p = v->reading;
    v->reading = NULL;
    if (p->owned && p->receive) {
        par__tcp_message *receive = p->receive;
        par__tcp_deliver(receive, p);
    } else {
        p->done = 1;
        if (p->owned && !p->memory) par__tcp_complete(p); // dropped
    }
}

// >>tcp_connections -----------------------------------------------------------------------------------------

// Read what a rank has sent: frames by way of a small buffer, long messages straight to where they belong.
static void par__tcp_read(par__world *w, par__connection *v) {
    for (;;) {
        const size_t n = PAR__MIN(v->reading_left, v->buffer_end - v->buffer_start);
        if (v->reading && v->reading_left && !n) { // the buffer is empty: the rest goes straight there
            par__tcp_message *p = v->reading;
            const size_t at = (size_t)v->frame.bytes - v->reading_left;
            const ssize_t got = p->memory ? recv(v->in, p->memory + at, v->reading_left, 0)
                                          : recv(v->in, w->tcp->sink,
                                                 PAR__MIN(v->reading_left, (size_t)PAR__TCP_SHORT_BYTES), 0);
            if (got <= 0) {
                if (got == 0 || (errno != EAGAIN && errno != EINTR)) par__tcp_disconnect(v, &v->in, 0);
                return;
            }
            v->reading_left -= (size_t)got;
        } else if (v->reading && v->reading_left) {
            if (v->reading->memory)
                memcpy(v->reading->memory + (v->frame.bytes - v->reading_left), v->buffer + v->buffer_start,
                       n);
            v->buffer_start += n;
            v->reading_left -= n;
        } else if (v->reading) {
            par__tcp_on_message(v);
        } else if (v->buffer_end - v->buffer_start >= sizeof v->frame) {
            memcpy(&v->frame, v->buffer + v->buffer_start, sizeof v->frame);
            v->buffer_start += sizeof v->frame;
            if (!par__tcp_on_frame(w, v)) return;
        } else {
            memmove(v->buffer, v->buffer + v->buffer_start, v->buffer_end - v->buffer_start);
            v->buffer_end -= v->buffer_start;
            v->buffer_start = 0;
            const ssize_t got =
                recv(v->in, v->buffer + v->buffer_end, PAR__TCP_BUFFER_BYTES - v->buffer_end, 0);
            if (got <= 0) {
                if (got == 0 || (errno != EAGAIN && errno != EINTR)) par__tcp_disconnect(v, &v->in, 0);
                return;
            }
            v->buffer_end += (size_t)got;
        }
    }
}

// Make a connection to a rank: begin, or go on. 1: d->fd is it; 0: not yet; -1, with errno: there will be
// none.
static int par__tcp_dial(par__world *w, par__dial *d, int rank, const par__address *book, int purpose) {
    const par__identity *self = &w->tcp->self;
    const double now = par__now();
    struct sockaddr_storage to;
    int e = 0;
    socklen_t bytes = sizeof e;
    if (d->fd < 0) {
        if (now < d->retry_at) return 0;
        if (d->retry_until == 0) d->retry_until = now + w->timeout_s;
        par__tcp_reach(w->tcp, rank, book, &to);
        d->fd = par__safe_fd(socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (d->fd < 0) return -1;
        par__tcp_configure(d->fd);
        d->connecting = 1;
        if (connect(d->fd, (struct sockaddr *)&to, par__address_bytes(&to)) && errno != EINPROGRESS)
            return -1;
    }
    if (d->connecting == 1) {
        if (!par__tcp_poll_fd(d->fd, POLLOUT, 0)) return 0;
        getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &e, &bytes);
        if (!d->handshake) d->handshake = (par__handshake *)PAR_MALLOC(sizeof *d->handshake);
        if (!e) e = d->handshake ? par__handshake_begin(self, d->handshake, d->fd, rank, purpose) : ENOMEM;
        if (e) return errno = e, -1;
        d->connecting = 2;
    }
    par__handshake_progress(self, d->handshake);
    if (d->handshake->state == PAR__HANDSHAKE_DONE) return w->tcp->counts.handshakes++, d->connecting = 0, 1;
    if (d->handshake->state != PAR__HANDSHAKE_FAILED) return 0;
    if (d->handshake->permanent || now > d->retry_until) {
        snprintf(d->why, sizeof d->why, "%.100s", d->handshake->why);
        return errno = EPROTO, -1;
    }
    par__tcp_forget(&d->fd); // that end had too many callers, say
    d->connecting = 0;
    d->retry_at = now + 0.01;
    return 0;
}
static void par__tcp_end_dial(par__dial *d, int *fd) { // where the connection goes; NULL: closed
    if (fd)
        *fd = d->fd;
    else if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
    PAR_FREE(d->handshake);
    d->handshake = NULL;
}
static int par__tcp_has_buffer(par__connection *v) {
    if (!v->buffer) v->buffer = (char *)PAR_MALLOC(PAR__TCP_BUFFER_BYTES);
    return v->buffer != NULL;
}
static void par__tcp_progress_connect(par__world *w, par__connection *v) { // begin, or go on
    const int room = par__tcp_has_buffer(v);
    const int done = room ? par__tcp_dial(w, &v->dial, v->rank, &w->tcp->book[v->rank], PAR__TO_SEND) : -1;
    const int e = room ? errno : ENOMEM;
    if (!done) return;
    par__tcp_end_dial(&v->dial, &v->out);
    v->out_inode = par__socket_inode(v->out);
    if (done > 0) {
        v->in = v->out;
        return;
    }
    if (!par__tcp_out_of_descriptors(w, v, e, "to") && e == EPROTO && !v->fault[0])
        snprintf(v->fault, sizeof v->fault, "rank %d has no connection to rank %d: %s", w->rank, v->rank,
                 v->dial.why);
    par__tcp_disconnect(v, &v->out, e);
}
static void par__tcp_write(par__world *w, par__connection *v) {
    if (v->send_queue && v->out == -1) par__tcp_progress_connect(w, v);
    if (v->send_queue && v->out >= 0 && v->out_inode && par__socket_inode(v->out) != v->out_inode) {
        snprintf(v->fault, sizeof v->fault,
                 "rank %d's program has closed its connection to rank %d, descriptor %d", w->rank, v->rank,
                 v->out);
        if (v->in == v->out) v->in = -2;
        v->out = -1; // it is the program's
        par__tcp_disconnect(v, &v->out, EBADF);
    }
    while (v->send_queue && v->out >= 0) {
        par__tcp_message *p = v->send_queue;
        p->frame.session = w->tcp->session;
        struct iovec io[2];
        struct msghdr m;
        const size_t head = sizeof p->frame, at = PAR__MAX(p->written, head) - head;
        memset(&m, 0, sizeof m);
        io[0].iov_base = (char *)&p->frame + PAR__MIN(p->written, head);
        io[0].iov_len = head - PAR__MIN(p->written, head);
        io[1].iov_base = p->memory ? p->memory + at : w->tcp->sink;
        io[1].iov_len = p->memory ? p->payload - at : PAR__MIN(p->payload - at, (size_t)PAR__TCP_SHORT_BYTES);
        m.msg_iov = io;
        m.msg_iovlen = p->payload ? 2 : 1;
        const ssize_t n = sendmsg(v->out, &m, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) {
            par__tcp_disconnect(v, &v->out, errno);
            return;
        }
        p->written += (size_t)n;
        if (p->written < head + p->payload) continue;
        v->send_queue = p->next_send;
        if (p->frame.kind != PAR__TCP_RTS && p->frame.kind != PAR__TCP_CTS) par__tcp_complete(p);
    }
}

static void par__accept_line(par__tcp *t, par__handshake *p);
// A connection has been proved to be that of a child in the tree.
static void par__tcp_accept_child(par__tcp *t, par__handshake *p) {
    par__rendezvous *m = t->rendezvous;
    if (!m || m->accepted == m->children) {
        par__handshake_end(&t->self, p, PAR_ERR_ARGUMENT, "it has all its children");
    } else if (par__handshake_end(&t->self, p, PAR_OK, "")) {
        par__edge *e = &t->edges[t->edge_count - m->children + m->accepted++];
        e->fd = p->fd;
        e->rank = p->hello[0].rank;
        par__handshake_proof(&t->self, p, 'l', NULL, 0, e->key);
        p->fd = -1;
    }
}
// The same; or that of a rank that wants to send to this one. Where both dial, the higher rank takes the
// lower one's connection, and the lower one closes what has come: the other is about to find its call.
static void par__tcp_accept_sender(par__tcp *t, par__handshake *p) {
    if (p->state == PAR__HANDSHAKE_FAILED) return;
    t->counts.handshakes++;
    if (p->hello[0].purpose == PAR__TO_STAY) {
        par__tcp_accept_child(t, p);
        return;
    }
    if (p->hello[0].purpose == PAR__TO_TELL) {
        par__accept_line(t, p);
        return;
    }
    par__connection *v = par__tcp_connection(t, p->hello[0].rank);
    if (v && v->in != -1) {
        par__handshake_end(&t->self, p, PAR_ERR_ARGUMENT, "there is a connection already");
        return;
    }
    if (!v || (v->dial.fd >= 0 && t->self.rank < v->rank) || !par__tcp_has_buffer(v) ||
        !par__handshake_end(&t->self, p, PAR_OK, ""))
        return;
    v->in = p->fd;
    p->fd = -1;
    if (v->out != -1) return; // it could not be made
    par__tcp_end_dial(&v->dial, NULL);
    v->out = v->in;
    v->out_inode = par__socket_inode(v->out);
}
// Room for one more pending accept. 0: there is none, by memory or by what is allowed.
static int par__tcp_room(par__tcp *t) {
    const int most = t->self.size + PAR__TCP_EXTRA_PENDING;
    if (t->pending_count < t->pending_capacity) return 1;
    const int more = PAR__MIN(PAR__MAX(2 * t->pending_capacity, 8), most);
    par__handshake *p = more > t->pending_capacity
                            ? (par__handshake *)PAR_REALLOC(t->pending, sizeof *t->pending * (size_t)more)
                            : NULL;
    if (!p) return 0;
    t->pending = p;
    t->pending_capacity = more;
    return 1;
}
// Take what has connected. Where there is no room the connection that has been there longest has to go.
static void par__tcp_accept_pending(par__world *w, int listener, int at_door) {
    par__tcp *t = w->tcp;
    const int local = at_door && listener == t->local;
    for (int i = 0; i < w->size + PAR__TCP_EXTRA_PENDING; i++) {
        const int fd = par__safe_fd(accept(listener, NULL, NULL)), e = fd < 0 ? errno : 0;
        const int none = e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM;
        par__handshake *p = t->pending;
        if (e == ECONNABORTED || e == EINTR) continue;
        t->accept_error = none && !t->pending_count ? e : 0;
        if ((e && !none) || t->accept_error) return;
        if (none || !par__tcp_room(t)) {
            for (int k = 1; k < t->pending_count; k++)
                if (t->pending[k].deadline < p->deadline) p = &t->pending[k];
            // The oldest may be a rank that had no time to answer: two could send each other away for ever.
            if (none && par__now() < p->deadline - PAR__TCP_HANDSHAKE_SECONDS + 1) {
                t->fds_exhausted = 1;
                return;
            }
            if (t->pending_count) {
                close(p->fd);
                *p = t->pending[--t->pending_count];
            }
        }
        if (e) continue;
        par__tcp_configure(fd);
        p = &t->pending[t->pending_count];
        if (t->pending_count == t->pending_capacity || (local && par__peer_uid(fd) != (uint32_t)geteuid()) ||
            par__handshake_begin(at_door ? &t->door : &t->self, p, fd, -1, PAR__TO_MEET)) {
            close(fd);
        } else {
            p->at_door = at_door;
            p->local = local;
            p->deadline = par__now() + PAR__TCP_HANDSHAKE_SECONDS;
            t->pending_count++;
        }
    }
}
static void par__tcp_poll_also(par__tcp *t, int *n, int fd, int events) {
    t->polls[*n].fd = fd;
    t->polls[*n].events = (short)events;
    t->polls[(*n)++].revents = 0;
}
static int par__tcp_poll_room(par__tcp *t, int most) { // 0: no memory
    if (most <= t->poll_capacity) return 1;
    struct pollfd *polls = (struct pollfd *)PAR_REALLOC(t->polls, 2 * (size_t)most * sizeof *polls);
    if (!polls) return t->accept_error = ENOMEM, 0;
    t->polls = polls;
    t->poll_capacity = 2 * most;
    return 1;
}
// Wait for those that knock, for pending accepts, and for what the rendezvous waits for. Returns how many
// listeners are before them in t->polls; -1: no memory.
static int par__tcp_poll_all(par__tcp *t, int own, int ms) {
    par__rendezvous *m = t->rendezvous;
    int n = 0, most = own + t->door_count + 3 + t->pending_count + (m ? m->down_count : 0);
    if (!par__tcp_poll_room(t, most)) return -1;
    for (int i = 0; i < own; i++) par__tcp_poll_also(t, &n, t->fds_exhausted ? -1 : t->listeners[i], POLLIN);
    for (int i = 0; i < t->door_count; i++)
        par__tcp_poll_also(t, &n, t->fds_exhausted ? -1 : t->doors[i], POLLIN);
    par__tcp_poll_also(t, &n, t->fds_exhausted ? -1 : t->local, POLLIN);
    const int listeners = n;
    for (int i = 0; i < t->pending_count; i++) par__tcp_poll_also(t, &n, t->pending[i].fd, POLLIN);
    const int edges = n;
    for (int i = -1; m && i < m->down_count; i++) {
        const par__edge *e = i < 0 ? &m->up : &m->down[i];
        par__tcp_poll_also(t, &n, e->fd, e->out_bytes ? POLLIN | POLLOUT : POLLIN);
    }
    if (m) par__tcp_poll_also(t, &n, m->dial.fd, m->dial.connecting == 1 ? POLLOUT : POLLIN);
    poll(t->polls, (nfds_t)n, ms);
    for (int i = -1; m && i < m->down_count; i++)
        (i < 0 ? &m->up : &m->down[i])->ready = t->polls[edges + 1 + i].revents;
    return listeners;
}
// All connections that others have made, and new ones: what is possible now, or at the latest then.
static void par__tcp_poll_listeners(par__world *w, double until) {
    par__tcp *t = w->tcp;
    const double left = until - par__now(), max = t->fds_exhausted ? 10 : 1000; // milliseconds
    const int own = t->rendezvous && !t->rendezvous->assigned ? 0 : t->listener_count,
              full = t->fds_exhausted,
              listeners = par__tcp_poll_all(t, own, left > 0 ? (int)PAR__MIN(left * 1000 + 1, max) : 0);
    const double now = par__now();
    if (listeners < 0) return;
    for (int i = t->pending_count - 1; i >= 0; i--) {
        par__handshake *p = &t->pending[i];
        const int state = p->state;
        if (t->polls[listeners + i].revents) par__handshake_progress(p->at_door ? &t->door : &t->self, p);
        if (p->state != state) p->deadline = now + PAR__TCP_HANDSHAKE_SECONDS;
        if (p->state >= PAR__HANDSHAKE_DONE && p->at_door)
            t->on_door(t, p);
        else if (p->state >= PAR__HANDSHAKE_DONE)
            t->on_handshake(t, p);
        else if (now < p->deadline)
            continue;
        if (p->fd >= 0) close(p->fd);
        *p = t->pending[--t->pending_count];
    }
    t->fds_exhausted = 0;
    for (int i = 0; i < listeners; i++)
        if (full || t->polls[i].revents) {
            const int door = i - own, fd = door < 0               ? t->listeners[i]
                                           : door < t->door_count ? t->doors[door]
                                                                  : t->local;
            if (fd >= 0) par__tcp_accept_pending(w, fd, door >= 0);
        }
    if (!t->pending_count) {
        PAR_FREE(t->pending);
        t->pending = NULL;
        t->pending_capacity = 0;
    }
}

static void par__tcp_progress(par__world *w, par__connection *v) {
    if (v->poll_round == w->poll_round) return; // all that is tested in one round looks once
    v->poll_round = w->poll_round;
    par__tcp *t = w->tcp;
    if (v->in == -1 && t->poll_round != w->poll_round) {
        t->poll_round = w->poll_round;
        par__tcp_poll_listeners(w, 0);
    }
    if (v->in == -1 && t->accept_error && par__tcp_out_of_descriptors(w, v, t->accept_error, "from")) {
        par__tcp_disconnect(v, &v->in, t->accept_error);
        return;
    }
    if (v->in >= 0) par__tcp_read(w, v);
    par__tcp_write(w, v);
}

// >>tcp_notices ---------------------------------------------------------------------------------------------
//
// Who died and who gave up goes through the tree: a rank that hears of it tells all its neighbors but the one
// that it has it from, while it waits in a call. So a rank that computes delays what is told through it; its
// own collectives cannot complete before, and seven ranks of eight pass on nothing. The first cause goes
// before its consequences, and the text of one error alone over each edge.
//     a rank dies              its edges end; its parent tells DIED, its children tell CUT to those below
//     a rank has an error      it tells ERROR, then LEFT, then closes its connections
//     a connection ends        that alone is no error while the way to rank 0 stands: the rank waits for one
//                              of the notices above. If none comes it sends LOST towards that rank. That
//                              rank's parent looks for notices of it first and then answers ALIVE: only then
//                              did the connection itself fail
//     the edge to the parent   nobody above can be asked any more: the parent died, unless it told a cause
//     ends (CUT: of one above) before. All waits for ranks of other nodes end, with that cause

static int par__tcp_state(const par__tcp *t, int rank) { return t->states[rank] & PAR__TCP_STATE; }
static void par__tcp_set_state(par__tcp *t, int rank, int state) {
    t->states[rank] = (unsigned char)((t->states[rank] & ~PAR__TCP_STATE) | state);
    PAR__STORE(&t->gone, 1);
}
static void par__tcp_set_alive(par__tcp *t, int rank) { // this rank has asked for it
    par__connection *v = par__tcp_find(t, rank);
    if (v) v->alive = 1;
}
// Is rank r below rank `top` in the tree, or the same?
static int par__tcp_is_below(const par__tcp *t, int r, int top) {
    while (r != top && r) r = t->book[r].parent;
    return r == top;
}
static par__edge *par__tcp_edge_to(const par__tcp *t, int rank) { // a neighbor; NULL: it is none
    for (int i = 0; i < t->edge_count; i++)
        if (t->edges[i].rank == rank) return &t->edges[i];
    return NULL;
}
static par__edge *par__tcp_edge_towards(const par__tcp *t, int rank) { // another rank than this one
    if (!par__tcp_is_below(t, rank, t->self.rank)) return &t->edges[0];
    while (t->book[rank].parent != t->self.rank) rank = t->book[rank].parent;
    return par__tcp_edge_to(t, rank);
}
static void par__tcp_send_notice(const par__tcp *t, par__edge *e, const par__notice *n, const char *text) {
    par__notice head = *n;
    if (n->kind == PAR__NOTICE_ERROR && e->told++) text = ""; // the first one is the cause
    head.session = t->session;
    head.text_bytes = (uint32_t)PAR__MIN(strlen(text), sizeof e->in.notice.text - 1);
    par__edge_say(e, &head, sizeof head, text, head.text_bytes);
}
static par__notice par__tcp_notice(int kind, int rank, par_result result) {
    par__notice n;
    memset(&n, 0, sizeof n);
    n.kind = kind;
    n.rank = rank;
    n.result = (int32_t)result;
    return n;
}
static void par__tcp_tell(par__tcp *t, const par__edge *but, const par__notice *n, const char *text) {
    for (int i = n->kind == PAR__NOTICE_CUT && t->self.rank ? 1 : 0; i < t->edge_count; i++)
        if (&t->edges[i] != but) par__tcp_send_notice(t, &t->edges[i], n, text);
}
static void par__tcp_notify(par__world *w, int kind, par_result result, const char *text) {
    const par__notice n = par__tcp_notice(kind, w->rank, result);
    par__tcp_tell(w->tcp, NULL, &n, text);
}

// What is wrong with a notice that a neighbor has sent; NULL: nothing.
static const char *par__tcp_check_notice(const par__world *w, const par__edge *e, const par__notice *n) {
    enum { ITSELF = 1, BEYOND = 2, HERE = 4 }; // whom it tells of: the neighbor, ranks behind it, those here
    static const unsigned char from_child[] = {
        0, ITSELF | BEYOND, ITSELF | BEYOND, ITSELF | BEYOND, BEYOND, ITSELF, 0, HERE, BEYOND, 0};
    static const unsigned char from_parent[] = {
        0,    ITSELF | BEYOND, ITSELF | BEYOND, ITSELF | BEYOND, BEYOND, 0, BEYOND | ITSELF,
        HERE, ITSELF | BEYOND, ITSELF | BEYOND};
    const par__tcp *t = w->tcp;
    const int up = w->rank && e == t->edges;
    if (n->session != t->session) return "of another session, not of this run";
    if (n->kind <= 0 || n->kind >= PAR__NOTICE_COUNT) return "of a kind that is none";
    if (n->rank < 0 || n->rank >= w->size || n->asker < 0 || n->asker >= w->size)
        return "about a rank that is none";
    if (n->result < 0 || n->result >= PAR_RESULT_COUNT || (n->kind == PAR__NOTICE_ERROR && !n->result))
        return "with a result that is none";
    if (n->text_bytes >= sizeof e->in.notice.text) return "with a text that does not end";
    if (e->closing) return "after it had closed its world";
    const int beyond = par__tcp_is_below(t, n->rank, up ? w->rank : e->rank) != up;
    const unsigned of = n->rank == e->rank ? ITSELF : beyond ? BEYOND : HERE;
    const int wrong_end =
        (n->kind == PAR__NOTICE_CLOSED && n->rank) || // rank 0 says it, and each passes it on
        ((n->kind == PAR__NOTICE_LOST || n->kind == PAR__NOTICE_ALIVE) &&
         par__tcp_is_below(t, n->asker, up ? w->rank : e->rank) != (up == (n->kind == PAR__NOTICE_ALIVE))) ||
        (up && n->kind == PAR__NOTICE_LOST && n->rank == w->rank);
    return (up ? from_parent : from_child)[n->kind] & of && !wrong_end ? NULL : "that it may not tell";
}
static void par__tcp_on_death(par__world *w, int rank) {
    if (par__tcp_state(w->tcp, rank) == PAR__RANK_RUNNING) par__tcp_set_state(w->tcp, rank, PAR__RANK_DEAD);
    if (w->tcp->states[rank] & PAR__TCP_HAD_ERROR) return; // of an error that it has told
    par__set_first_dead(w, w->epoch, rank);
}
// The way to rank 0 has ended at rank `gone`, which has died unless it has told a cause.
static void par__tcp_on_cut(par__world *w, int gone, const char *text) {
    par__tcp *t = w->tcp;
    const par__notice n = par__tcp_notice(PAR__NOTICE_CUT, gone, PAR_OK);
    if (par__tcp_state(t, gone) == PAR__RANK_RUNNING) par__tcp_on_death(w, gone);
    par__set_first_error(w, w->epoch, PAR_ERR_PEER_DIED, text); // of all that ends from here on
    t->cut = 1;
    par__tcp_tell(t, NULL, &n, text);
}
// A rank sends what no rank would: this one hears it no longer, and all are told why.
static void par__tcp_reject_notice(par__world *w, par__edge *e, const char *what) {
    par__tcp *t = w->tcp;
    char text[192];
    snprintf(text, sizeof text, "rank %d sent rank %d a notice %s", e->rank, w->rank, what);
    par__tcp_forget(&e->fd);
    t->states[e->rank] |= PAR__TCP_HAD_ERROR;
    par__tcp_set_state(t, e->rank, PAR__RANK_CLOSED);
    par__set_first_error(w, w->epoch, PAR_ERR_SYSTEM, text);
    par__notice n = par__tcp_notice(PAR__NOTICE_ERROR, e->rank, PAR_ERR_SYSTEM);
    par__tcp_tell(t, e, &n, text);
    n = par__tcp_notice(PAR__NOTICE_LEFT, e->rank, PAR_OK);
    par__tcp_tell(t, e, &n, "");
    if (w->rank && e == t->edges) par__tcp_on_cut(w, e->rank, text);
}

// A rank passes on what a neighbor says to all others.
static void par__tcp_on_notice(par__world *w, par__edge *e, const par__notice *n, const char *text) {
    par__tcp *t = w->tcp;
    switch (n->kind) {
    case PAR__NOTICE_CLOSING:
    case PAR__NOTICE_CLOSED: e->closing = 1; return;
    case PAR__NOTICE_LOST:
        e->lost_rank = n->rank + 1;
        e->lost_asker = n->asker;
        return;
    case PAR__NOTICE_ALIVE:
        if (n->asker != w->rank)
            par__tcp_send_notice(t, par__tcp_edge_towards(t, n->asker), n, "");
        else
            par__tcp_set_alive(t, n->rank);
        return;
    case PAR__NOTICE_CUT: par__tcp_on_cut(w, n->rank, text); return;
    case PAR__NOTICE_ABORT: par__abort_node(w, text); break;
    case PAR__NOTICE_ERROR:
        if (*text) par__set_first_error(w, w->epoch, (par_result)n->result, text);
        t->states[n->rank] |= PAR__TCP_HAD_ERROR;
        break;
    case PAR__NOTICE_LEFT: par__tcp_set_state(t, n->rank, PAR__RANK_CLOSED); break;
    default: par__tcp_on_death(w, n->rank); break;
    }
    par__tcp_tell(t, e, n, text);
}
static void par__tcp_on_edge_end(par__world *w, par__edge *e) {
    par__tcp *t = w->tcp;
    char text[96];
    const int known = par__tcp_state(t, e->rank) != PAR__RANK_RUNNING;
    const par__notice n = par__tcp_notice(PAR__NOTICE_DIED, e->rank, PAR_OK);
    par__tcp_forget(&e->fd);
    if (e->closing) return;
    snprintf(text, sizeof text, "rank %d died (rank %d lost its line to it)", e->rank, w->rank);
    if (w->rank && e == t->edges)
        par__tcp_on_cut(w, e->rank, text);
    else if (!known)
        par__tcp_on_notice(w, e, &n, "");
}
static void par__tcp_read_notices(par__world *w, par__edge *e) {
    const par__notice *n = &e->in.notice.head;
    while (e->fd >= 0) {
        int got = par__edge_read(e, sizeof *n);
        const char *wrong = got > 0 ? par__tcp_check_notice(w, e, n) : NULL;
        if (wrong) {
            par__tcp_reject_notice(w, e, wrong);
            return;
        }
        if (got > 0) got = par__edge_read(e, sizeof *n + n->text_bytes);
        if (!got) return;
        if (got < 0) {
            par__tcp_on_edge_end(w, e);
            return;
        }
        e->in.notice.text[n->text_bytes] = 0;
        par__sanitize(e->in.notice.text, "\n\t");
        e->have = 0;
        par__tcp_on_notice(w, e, n, e->in.notice.text);
    }
}
// Somebody has lost its connection to a rank: that rank's parent knows whether it is alive.
static void par__tcp_on_lost(par__world *w, int rank, int asker) {
    par__tcp *t = w->tcp;
    par__edge *of = par__tcp_edge_to(t, rank),
              *to = asker == w->rank ? NULL : par__tcp_edge_towards(t, asker);
    par__notice n = par__tcp_notice(PAR__NOTICE_LOST, rank, PAR_OK);
    n.asker = asker;
    if (of) par__tcp_read_notices(w, of); // what it has said, or that it died, is older
    if (rank != w->rank && !of) {
        if (par__tcp_state(t, rank) == PAR__RANK_RUNNING)
            par__tcp_send_notice(t, par__tcp_edge_towards(t, rank), &n, "");
        return;
    }
    if (rank != w->rank && (of->fd < 0 || par__tcp_state(t, rank) != PAR__RANK_RUNNING)) return;
    n.kind = PAR__NOTICE_ALIVE;
    if (to)
        par__tcp_send_notice(t, to, &n, "");
    else
        par__tcp_set_alive(t, rank);
}
static void par__tcp_poll(par__world *w) {
    par__tcp *t = w->tcp;
    par__tcp_poll_listeners(w, 0); // whoever calls cannot go on before
    for (int i = 0; i < t->edge_count; i++) {
        par__edge *e = &t->edges[i];
        if (e->lost_rank) par__tcp_on_lost(w, e->lost_rank - 1, e->lost_asker);
        e->lost_rank = 0;
    }
    for (int i = 0; i < t->edge_count; i++) {
        par__tcp_read_notices(w, &t->edges[i]);
        if (t->edges[i].out_bytes) par__edge_flush(&t->edges[i]);
    }
}
static int par__tcp_rank_state(const par__world *w, int rank) {
    const par__tcp *t = w->tcp;
    const int state = par__tcp_state(t, rank);
    if (state != PAR__RANK_RUNNING) return t->states[rank] & PAR__TCP_HAD_ERROR ? PAR__RANK_CLOSED : state;
    if (!t->cut) return PAR__RANK_RUNNING;
    // Who would tell, now that the way to rank 0 has ended? All ends with it.
    const par__connection *v = par__tcp_find(t, rank);
    return par__latched(&w->arena->first_error, w->epoch) ? PAR__RANK_CLOSED
           : v && (v->in == -2 || v->out == -2)           ? PAR__RANK_DEAD
                                                          : PAR__RANK_RUNNING;
}
static int par__tcp_all_running(const par__world *w) { return !PAR__LOAD(&w->tcp->gone); }
// Whether a rank lives that this one has lost its connection to. 0: it does not, or that is not known yet.
static int par__has_line(par__world *w, int rank);
static int par__tcp_is_alive(par__world *w, par__connection *v) {
    const double now = par__now();
    if (w->elastic && !par__has_line(w, v->rank)) return 0;
    if (now - v->error_at < 2 || par__tcp_state(w->tcp, v->rank) != PAR__RANK_RUNNING) return 0;
    if (w->elastic) return 1;
    if (!v->alive && now - v->alive_asked_at > 1) {
        v->alive_asked_at = now;
        par__tcp_on_lost(w, v->rank, w->rank);
    }
    return v->alive;
}

// >>tcp_lines -----------------------------------------------------------------------------------------------
//
// The tree of an elastic world would be cut where a rank dies. So once it is open a rank keeps lines, control
// connections, to the ranks that are 1, 2, 4, 8 ... behind it, and others come to it:
//     rank 0 -> 1, 2, 4       rank 1 -> 2, 3, 5       rank 2 -> 3, 4, 6   ...   rank 7 -> 0, 1, 3
// A line that ends says that the rank behind it has died. Who sees that tells all its lines, and who hears of
// it for the first time does the same: so with deaths, revocations and par_abort. In place of one that has
// gone a rank connects to the next one that lives, and at a line's beginning both ends tell all that they
// know. As those that live always have a ring, all of them hear of everything. A host that has become silent
// ends no line by a reset: it is not dead for that, see >>tcp_votes. It, or this rank where it has not looked
// for longer than the deadline, may have been left behind by the others. So who is not there any more when
// one hears again may have ended well, without this rank: that, too, is no death.

enum { // par__memo.kind
    PAR__TELL_DIED = 1,
    PAR__TELL_LEFT,    // it has closed its world
    PAR__TELL_REVOKED, // key: the entry
    PAR__TELL_ABORT,   // the bytes: why
    PAR__TELL_PING,    // is it there still? After a silence
    PAR__TELL_PONG,
    PAR__TELL_VOTE,    // to the leader: a rank's vote, and the table of `ballot` if it has accepted one
    PAR__TELL_ASK,     // from the leader: has that rank voted?
    PAR__TELL_BUSY,    // it has not, but lives, and waits in some call
    PAR__TELL_PROPOSE, // from the leader: the table, of its ballot
    PAR__TELL_ACCEPT,
    PAR__TELL_DECIDED,  // the table
    PAR__TELL_MINORITY, // from the leader: this side ends; the bytes: why
    PAR__TELL_COUNT
};
enum { PAR__BALLOT_MAX = 1 << 30 };
static par__memo par__new_memo(const par__tcp *t, int kind, int rank) {
    par__memo m;
    memset(&m, 0, sizeof m);
    m.session = t->session;
    m.kind = kind;
    m.rank = rank;
    return m;
}
static void par__free_line(par__line *l) {
    par__edge_close(&l->edge);
    par__tcp_end_dial(&l->dial, NULL);
    PAR_FREE(l->in);
    PAR_FREE(l);
}
static par__line *par__new_line(par__tcp *t, int rank) { // NULL: no memory
    if (t->line_count == t->line_capacity) {
        const int more = 2 * t->line_capacity + 16;
        par__line **lines = (par__line **)PAR_REALLOC(t->lines, sizeof *lines * (size_t)more);
        if (!lines) return NULL;
        t->lines = lines;
        t->line_capacity = more;
    }
    par__line *l = (par__line *)par__zalloc(sizeof *l);
    if (!l) return NULL;
    l->edge.fd = l->dial.fd = -1;
    l->edge.rank = rank;
    return t->lines[t->line_count++] = l;
}
static void par__accept_line(par__tcp *t, par__handshake *p) {
    par__line *l = par__new_line(t, p->hello[0].rank);
    if (!l || !par__handshake_end(&t->self, p, PAR_OK, "")) return; // without its socket it is swept
    l->edge.fd = p->fd;
    l->edge.inode = par__socket_inode(p->fd);
    p->fd = -1;
}
// A line to a rank: one that stands, or one that this rank makes. NULL: no memory.
static par__line *par__line_to(par__world *w, int rank) {
    par__tcp *t = w->tcp;
    par__line *made = NULL;
    for (int i = 0; i < t->line_count; i++) {
        par__line *l = t->lines[i];
        if (l->edge.rank == rank && l->edge.fd >= 0) return l;
        if (l->edge.rank == rank && l->mine) made = l;
    }
    if (!made && (made = par__new_line(t, rank)) != NULL) made->mine = 1;
    return made;
}
static int par__has_line(par__world *w, int rank) {
    const par__line *l = par__line_to(w, rank);
    return l && l->edge.fd >= 0;
}
// A memo and its bytes, in two parts. What no memory is left for is lost: a vote then ends at its deadline.
static void par__line_say(par__line *l, const par__memo *memo, const void *a, size_t a_bytes, const void *b,
                          size_t b_bytes) {
    par__edge *e = &l->edge;
    par__memo m = *memo;
    const size_t need = e->out_bytes + sizeof m + a_bytes + b_bytes;
    if (e->fd >= 0 && par__socket_inode(e->fd) != e->inode) return; // it is the program's
    if (need > e->out_capacity) {
        char *out = (char *)PAR_REALLOC(e->out, 2 * need);
        if (!out) return;
        e->out = out;
        e->out_capacity = 2 * need;
    }
    m.bytes = (uint32_t)(a_bytes + b_bytes);
    char *at = e->out + e->out_bytes;
    memcpy(at, &m, sizeof m);
    if (a_bytes) memcpy(at + sizeof m, a, a_bytes);
    if (b_bytes) memcpy(at + sizeof m + a_bytes, b, b_bytes);
    e->out_bytes = need;
    if (e->fd >= 0) par__edge_flush(e);
}
static void par__tell_all(par__world *w, const par__memo *m, const char *text) {
    for (int i = 0; i < w->tcp->line_count; i++)
        par__line_say(w->tcp->lines[i], m, text, text ? strlen(text) : 0, NULL, 0);
}
// All that this rank knows, at a line's beginning.
static void par__greet(par__world *w, par__line *l) {
    par__tcp *t = w->tcp;
    const uint64_t alarms = PAR__LOAD(&w->arena->alarms);
    const par__memo ping = par__new_memo(t, PAR__TELL_PING, w->rank);
    if (t->states[l->edge.rank] & PAR__TCP_SILENT) par__line_say(l, &ping, NULL, 0, NULL, 0);
    for (int r = 0; r < w->places && t->gone; r++) {
        const int state = par__tcp_state(t, r);
        const par__memo m = par__new_memo(t, state == PAR__RANK_DEAD ? PAR__TELL_DIED : PAR__TELL_LEFT, r);
        if (state > PAR__RANK_RUNNING && r != l->edge.rank) par__line_say(l, &m, NULL, 0, NULL, 0);
    }
    for (uint64_t i = 0; i < alarms >> 32; i++) {
        par__memo m = par__new_memo(t, PAR__TELL_REVOKED, w->rank);
        m.key = PAR__LOAD(&w->arena->revoked[i]);
        if (m.key) par__line_say(l, &m, NULL, 0, NULL, 0);
    }
    if ((uint32_t)alarms == PAR__ABORTED && !PAR__LOAD(&w->arena->left_behind)) {
        const par__shared_text text = par__abort_text(w);
        const par__memo m = par__new_memo(t, PAR__TELL_ABORT, w->rank);
        par__line_say(l, &m, text.at, strlen(text.at), NULL, 0);
    }
    l->greeted = 1;
}

static int par__kill_rank(const par__rank_control *k);
static int par__peer_dead(par__world *w, int index);
// The others go on without a rank. If it is of this node, and may still write to its memory, it ends: another
// rank of the node kills it. The last one only hears of it.
static void par__end_excluded(par__world *w, int rank) {
    int others = 0, own = -1;
    char text[160];
    for (int i = 0; i < w->local_count; i++) {
        const par__rank_control *k = &w->arena->ranks[i];
        if (PAR__LOAD(&k->state) != PAR__RANK_RUNNING) continue;
        if (k->world_rank == rank && rank != w->rank) own = i;
        others += par__tcp_state(w->tcp, k->world_rank) == PAR__RANK_RUNNING;
    }
    snprintf(text, sizeof text, "the other ranks have heard nothing of rank %d, and go on without it", rank);
    if (own >= 0 && !par__peer_dead(w, own)) {
        par__log_error(PAR_OK, "%s: rank %d %s (pid %d)", text, w->rank,
                       par__kill_rank(&w->arena->ranks[own]) ? "has killed it" : "cannot kill it",
                       w->arena->ranks[own].pid);
        par__peer_dead(w, own);
    }
    if (others || par__tcp_state(w->tcp, w->rank) == PAR__RANK_RUNNING) return;
    PAR__STORE(&w->arena->left_behind, 1u);
    par__abort_node(w, text);
}
// A rank has died, or closed its world.
static void par__on_gone(par__world *w, int rank, int state) {
    par__tcp *t = w->tcp;
    if (par__tcp_state(t, rank) != PAR__RANK_RUNNING || (rank == w->rank && state != PAR__RANK_DEAD)) return;
    par__tcp_set_state(t, rank, state);
    const par__memo m = par__new_memo(t, state == PAR__RANK_DEAD ? PAR__TELL_DIED : PAR__TELL_LEFT, rank);
    par__tell_all(w, &m, NULL);
    t->lines_due = 1;
    if (state != PAR__RANK_DEAD) return;
    par__set_first_dead(w, w->epoch, rank);
    par__end_excluded(w, rank);
}
// Does an error of a connection say that the other process has gone? Else its host may only be silent.
static int par__is_end_of_process(int error) {
    return error == 0 || error == ECONNREFUSED || error == ECONNRESET || error == EPIPE || error == EPROTO;
}
static void par__on_line_end(par__world *w, par__line *l, int error) {
    par__edge_close(&l->edge);
    l->edge.have = 0;
    l->greeted = 0;
    l->dial.retry_at = par__now() + 0.2;
    w->tcp->lines_due = 1;
    if (!par__is_end_of_process(error))
        w->tcp->states[l->edge.rank] |= PAR__TCP_SILENT;
    else if (w->tcp->states[l->edge.rank] & PAR__TCP_SILENT)
        w->tcp->states[l->edge.rank] |= PAR__TCP_ENDED;
    else
        par__on_gone(w, l->edge.rank, PAR__RANK_DEAD);
}

static int par__enter_revoked(par__world *w, uint64_t entry);
static void par__step_vote(par__world *w, par__decision *d);
static void par__hear_vote(par__world *w, par__line *l, const par__memo *m, const char *bytes);
// Is it a memo that a rank of this run sends?
static int par__is_memo(const par__world *w, const par__memo *m) {
    const size_t table = sizeof(par__vote) * (size_t)m->size;
    const size_t most[PAR__TELL_COUNT] = {
        0, 0,     0, 0,     PAR__ERROR_BYTES - 1, 0, 0, sizeof(par__vote) + table, 0,
        0, table, 0, table, PAR__ERROR_BYTES - 1};
    if (m->session != w->tcp->session || m->kind <= 0 || m->kind >= PAR__TELL_COUNT || m->rank < 0 ||
        m->rank >= w->places || m->size < 0 || m->size > w->places || m->bytes > most[m->kind] ||
        (m->kind == PAR__TELL_REVOKED && !m->key))
        return 0;
    if (m->kind < PAR__TELL_VOTE) return 1;
    const size_t least = m->kind == PAR__TELL_MINORITY                ? m->bytes
                         : m->kind == PAR__TELL_VOTE && m->ballot < 0 ? sizeof(par__vote)
                                                                      : most[m->kind];
    const int leads = m->kind == PAR__TELL_ASK || m->kind == PAR__TELL_PROPOSE;
    return m->from >= 0 && m->from < m->size && m->state >> 8 && m->bytes == least && m->ballot >= -1 &&
           m->ballot <= m->promised && m->promised <= PAR__BALLOT_MAX &&
           (!leads || (m->ballot >= 0 && m->ballot % m->size == m->from));
}
static void par__hear(par__world *w, par__line *l, const par__memo *m, char *bytes) {
    const par__memo pong = par__new_memo(w->tcp, PAR__TELL_PONG, w->rank);
    bytes[m->bytes] = 0;
    w->tcp->states[l->edge.rank] &= (unsigned char)~(PAR__TCP_SILENT | PAR__TCP_ENDED);
    switch (m->kind) {
    case PAR__TELL_PONG: break;
    case PAR__TELL_PING: par__line_say(l, &pong, NULL, 0, NULL, 0); break;
    case PAR__TELL_DIED: par__on_gone(w, m->rank, PAR__RANK_DEAD); break;
    case PAR__TELL_LEFT: par__on_gone(w, m->rank, PAR__RANK_CLOSED); break;
    case PAR__TELL_REVOKED: par__enter_revoked(w, m->key); break;
    case PAR__TELL_ABORT:
    case PAR__TELL_MINORITY:
        par__sanitize(bytes, "\n\t");
        if (m->kind == PAR__TELL_MINORITY) PAR__STORE(&w->arena->left_behind, 1u);
        par__abort_node(w, bytes);
        break;
    default: par__hear_vote(w, l, m, bytes);
    }
}
// Read on until l->in has `want` bytes, and room for a zero. 1: it has; 0: not yet; -1: nothing comes any
// more, with errno (0: the other end has closed it).
static int par__line_fill(par__line *l, size_t want) {
    if (want >= l->in_capacity) {
        char *in = (char *)PAR_REALLOC(l->in, 2 * want);
        if (!in) return errno = ENOMEM, -1;
        l->in = in;
        l->in_capacity = 2 * want;
    }
    while (l->edge.have < want) {
        const ssize_t n = recv(l->edge.fd, l->in + l->edge.have, want - l->edge.have, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        if (n == 0) errno = 0;
        if (n <= 0) return -1;
        l->edge.have += (size_t)n;
    }
    return 1;
}
static void par__line_read(par__world *w, par__line *l) {
    par__memo m;
    while (l->edge.fd >= 0) {
        int got = par__line_fill(l, sizeof m);
        if (got > 0) {
            memcpy(&m, l->in, sizeof m);
            if (!par__is_memo(w, &m)) {
                par__log_error(PAR_OK,
                               "rank %d sent rank %d what no rank sends, so rank %d hears it no longer",
                               l->edge.rank, w->rank, w->rank);
                par__on_line_end(w, l, EPROTO);
                return;
            }
            got = par__line_fill(l, sizeof m + m.bytes);
        }
        if (got < 0) par__on_line_end(w, l, errno);
        if (got <= 0) return;
        l->edge.have = 0;
        if (par__tcp_state(w->tcp, l->edge.rank) != PAR__RANK_DEAD) par__hear(w, l, &m, l->in + sizeof m);
    }
}
// Go on making a line.
static void par__line_dial(par__world *w, par__line *l) {
    const int rank = l->edge.rank, done = par__tcp_dial(w, &l->dial, rank, &w->tcp->book[rank], PAR__TO_TELL),
              e = errno;
    if (!done) return;
    par__tcp_end_dial(&l->dial, done > 0 ? &l->edge.fd : NULL);
    l->dial.connecting = 0;
    l->dial.retry_until = 0;
    if (done < 0) {
        par__on_line_end(w, l, e);
        return;
    }
    l->edge.inode = par__socket_inode(l->edge.fd);
    par__edge_flush(&l->edge);
}

// What has happened on this node since this rank told of it last.
static void par__tell_changes(par__world *w) {
    par__tcp *t = w->tcp;
    par__arena *a = w->arena;
    const uint32_t gone = PAR__LOAD(&a->gone);
    const uint64_t alarms = PAR__LOAD(&a->alarms);
    for (int i = 0; i < w->local_count && gone != t->gone_seen; i++) {
        const uint32_t state = PAR__LOAD(&a->ranks[i].state);
        if (state >= PAR__RANK_CLOSED) par__on_gone(w, a->ranks[i].world_rank, (int)state);
    }
    t->gone_seen = gone;
    for (; t->revoked_told < alarms >> 32; t->revoked_told++) {
        par__memo m = par__new_memo(t, PAR__TELL_REVOKED, w->rank);
        m.key = PAR__LOAD(&a->revoked[t->revoked_told]);
        if (m.key) par__tell_all(w, &m, NULL);
    }
    if ((uint32_t)alarms != PAR__ABORTED || t->abort_told || PAR__LOAD(&a->left_behind)) return;
    const par__memo m = par__new_memo(t, PAR__TELL_ABORT, w->rank);
    t->abort_told = 1;
    par__tell_all(w, &m, par__abort_text(w).at);
}
static void par__lines_poll(par__world *w) {
    par__tcp *t = w->tcp;
    const double now = par__now();
    if (now - t->lines_polled > w->timeout_s) {
        const par__memo ping = par__new_memo(t, PAR__TELL_PING, w->rank);
        for (int r = 0; r < w->places; r++) t->states[r] |= PAR__TCP_SILENT;
        par__tell_all(w, &ping, NULL);
    }
    t->lines_polled = now;
    par__tcp_poll_listeners(w, 0);
    par__tell_changes(w);
    for (par__decision *d = t->decisions; d; d = d->next) par__step_vote(w, d);
    for (int64_t step = 1; step < w->places && t->lines_due; step *= 2)
        for (int64_t d = step; d < w->places; d++) {
            const int r = (int)((w->rank + d) % w->places);
            if (par__tcp_state(t, r) != PAR__RANK_RUNNING) continue;
            par__line_to(w, r);
            break;
        }
    t->lines_due = 0;
    for (int i = 0; i < t->line_count; i++) { // there may be more of them meanwhile
        par__line *l = t->lines[i];
        if (l->edge.fd < 0 && l->mine && par__tcp_state(t, l->edge.rank) == PAR__RANK_RUNNING)
            par__line_dial(w, l);
        if (l->edge.fd >= 0 && !l->greeted) par__greet(w, l);
        par__line_read(w, l);
        if (l->edge.fd >= 0 && l->edge.out_bytes) par__edge_flush(&l->edge);
    }
    for (int i = t->line_count - 1; i >= 0; i--) {
        par__line *l = t->lines[i];
        if (l->edge.fd >= 0 || (l->mine && par__tcp_state(t, l->edge.rank) == PAR__RANK_RUNNING)) continue;
        par__free_line(l);
        t->lines[i] = t->lines[--t->line_count];
    }
}
static int par__lines_rank_state(const par__world *w, int rank) { return par__tcp_state(w->tcp, rank); }
static void par__lines_notify(par__world *w, int kind, par_result result, const char *text) {
    (void)result;
    (void)text;
    if (kind == PAR__NOTICE_ABORT) par__lines_poll(w); // who meets an error revokes, or leaves
}

// >>tcp_votes -----------------------------------------------------------------------------------------------
//
// A vote of a comm whose ranks are on several nodes: all survivors must get the same table of votes. The
// first rank of the comm that has not gone leads. If it dies the next one does, whose ballot is higher:
//     rank r     VOTE ............................ ACCEPT, unless a higher ballot was heard of .......
//     leader     all are here, or have gone: PROPOSE the table ....... all have accepted: DECIDED ....
// A rank that votes tells the table that it has accepted before. A new leader proposes the one of the highest
// ballot, if there is one: what a leader that died has decided was accepted by all (Lamport, Paxos Made
// Simple, 2001; the leaders need no majority, because who dies stays dead). Who has heard of a higher ballot
// refuses by its VOTE, which tells that one: the leader, if it still is, takes a ballot that is higher yet.
// Decisions are kept for those that have not heard of them.
// A process whose connection was reset, or refused, is dead. One that says nothing until the deadline counts
// as dead only in a vote of the world, and for a majority of those that are not known dead, or half of them
// and the first one. So of two sides that do not hear each other one goes on at most; the other one ends, and
// says so.

// Of this rank's ballot; nothing: a leader's silence.
enum { PAR__HEARD_ACCEPT = 1, PAR__HEARD_BUSY = 2, PAR__HEARD_NOTHING = 4, PAR__HEARD_VOTE = 8 };
enum { PAR__DECISIONS = 64 }; // of comms that are closed

static void par__free_decision(par__decision *d) {
    PAR_FREE(d->cast);
    PAR_FREE(d);
}
// Those of a comm (NULL: of all) that are older than a vote (0: any); and the oldest ones of closed comms.
static void par__free_decisions(par__tcp *t, const uint64_t *key, uint64_t before) {
    int closed = 0;
    for (par__decision **link = &t->decisions; *link;) {
        par__decision *d = *link;
        closed += !d->comm;
        if (key && (d->comm || closed <= PAR__DECISIONS) && (d->key != *key || d->state >> 8 >= before)) {
            link = &d->next;
            continue;
        }
        *link = d->next;
        par__free_decision(d);
    }
}
static par__decision *par__find_decision(const par__tcp *t, uint64_t key, uint64_t state) {
    par__decision *d = t->decisions;
    while (d && (d->key != key || d->state >> 8 != state >> 8)) d = d->next;
    return d;
}
static uint64_t par__comm_key(const par_comm *c);
static par__decision *par__new_decision(const par_comm *c, uint64_t state, const unsigned char *counted) {
    par__tcp *t = c->world->tcp;
    const size_t size = (size_t)c->size;
    par__decision *d = (par__decision *)par__zalloc(sizeof *d);
    if (d) d->cast = (par__vote *)par__zalloc((2 * sizeof *d->cast + sizeof *d->world + 2) * size);
    if (!d || !d->cast) return PAR_FREE(d), (par__decision *)NULL;
    d->table = d->cast + size;
    d->world = (int *)(d->table + size);
    d->heard = (unsigned char *)(d->world + size);
    d->counted = d->heard + size;
    d->comm = c;
    d->key = par__comm_key(c);
    d->state = state;
    d->size = c->size;
    d->me = c->rank;
    d->leader = d->promised = d->accepted = d->ballot = -1;
    for (int r = 0; r < c->size; r++) {
        d->world[r] = par__world_rank(c, r);
        d->counted[r] = counted ? counted[r] : 1;
    }
    d->next = t->decisions;
    return t->decisions = d;
}
static size_t par__table_bytes(const par__decision *d) { return sizeof *d->table * (size_t)d->size; }
static par__memo par__vote_memo(const par__world *w, const par__decision *d, int kind, int from) {
    par__memo m = par__new_memo(w->tcp, kind, w->rank);
    m.key = d->key;
    m.state = d->state;
    m.size = d->size;
    m.from = from;
    m.ballot = kind == PAR__TELL_ASK || kind == PAR__TELL_PROPOSE ? d->ballot : -1;
    m.promised = d->promised;
    return m;
}
static int par__is_out(const par__world *w, const par__decision *d, int r) { // it does not vote, or has gone
    return r != d->me && (!d->counted[r] || par__tcp_state(w->tcp, d->world[r]) != PAR__RANK_RUNNING);
}
static void par__say_vote(par__world *w, par__decision *d, par__line *l) { // this rank's
    par__memo m = par__vote_memo(w, d, PAR__TELL_VOTE, d->me);
    m.ballot = d->accepted;
    if (l)
        par__line_say(l, &m, &d->cast[d->me], sizeof *d->cast, d->table,
                      d->accepted < 0 ? 0 : par__table_bytes(d));
}
// Has a rank, which is not out, yet to answer the leader?
static int par__owes_answer(const par__decision *d, int r) {
    return r != d->me && !(d->heard[r] & (d->proposed ? PAR__HEARD_ACCEPT : PAR__HEARD_VOTE));
}
// The leader, to all that are not out, with the table or some other bytes. That this side ends it tells those
// alone that have answered.
static void par__lead(par__world *w, par__decision *d, int kind, const void *bytes, size_t count) {
    const par__memo m = par__vote_memo(w, d, kind, d->me);
    for (int r = 0; r < d->size; r++) {
        if (r == d->me || par__is_out(w, d, r)) continue;
        if (kind == PAR__TELL_MINORITY && par__owes_answer(d, r)) continue;
        par__line *l = par__line_to(w, d->world[r]);
        if (l) par__line_say(l, &m, bytes, count, NULL, 0);
    }
}
static void par__decide(par__world *w, par__decision *d) {
    PAR__STORE(&d->decided, 1);
    if (d->leader == d->me) par__lead(w, d, PAR__TELL_DECIDED, d->table, par__table_bytes(d));
}
// To the leader, or from it: what begins a vote, or what a line that was cut may have lost.
static void par__ask(par__world *w, par__decision *d) {
    if (d->leader != d->me)
        par__say_vote(w, d, par__line_to(w, d->world[d->leader]));
    else if (d->proposed)
        par__lead(w, d, PAR__TELL_PROPOSE, d->table, par__table_bytes(d));
    else
        par__lead(w, d, PAR__TELL_ASK, NULL, 0);
}
// Begin to lead, or again: by a ballot that is higher than all that this rank has heard of.
static void par__raise_ballot(par__world *w, par__decision *d) {
    const int64_t least = (int64_t)d->promised + 1,
                  ballot = least + (d->me - least % d->size + d->size) % d->size;
    if (ballot > PAR__BALLOT_MAX) return; // a rank's lie
    for (int r = 0; r < d->size; r++) d->heard[r] &= (unsigned char)~(PAR__HEARD_ACCEPT | PAR__HEARD_VOTE);
    d->ballot = d->promised = (int)ballot;
    d->proposed = 0;
    par__ask(w, d);
}
// Go on with a vote as far as it goes.
static void par__step_vote(par__world *w, par__decision *d) {
    int leader = 0;
    if (d->decided) return;
    while (leader != d->me && (par__is_out(w, d, leader) || (d->heard[leader] & PAR__HEARD_NOTHING)))
        leader++;
    if (leader != d->leader) {
        d->leader = leader;
        d->since = par__now();
        d->asked_again = 0;
        if (leader != d->me) {
            d->promised = PAR__MAX(d->promised, leader); // its first one
            par__ask(w, d);
        } else {
            par__raise_ballot(w, d);
        }
    }
    if (leader != d->me) return;
    for (int r = 0; r < d->size; r++)
        if (!par__is_out(w, d, r) && par__owes_answer(d, r)) return;
    if (d->proposed) {
        par__decide(w, d);
        return;
    }
    for (int r = 0; r < d->size && d->accepted < 0; r++) {
        d->table[r] = d->cast[r];
        if (!d->table[r].state) d->table[r].state = (d->state & ~(uint64_t)15) | PAR__VOTED_ABSENT;
    }
    d->accepted = d->ballot;
    d->proposed = 1;
    par__ask(w, d);
    par__step_vote(w, d); // it may be alone
}
// A vote, for the leader: it counts in the ballot of which that rank has heard.
static void par__hear_cast(par__world *w, par__decision *d, par__line *l, const par__memo *m,
                           const char *bytes) {
    const par__memo ask = par__vote_memo(w, d, PAR__TELL_ASK, d->me);
    if (d->leader != d->me) return;
    if (m->promised > d->ballot) {
        d->promised = PAR__MAX(d->promised, m->promised);
        par__raise_ballot(w, d);
    } else if (m->promised < d->ballot) {
        par__line_say(l, &ask, NULL, 0, NULL, 0);
    } else if (!d->proposed) {
        memcpy(&d->cast[m->from], bytes, sizeof *d->cast);
        d->heard[m->from] |= PAR__HEARD_VOTE;
        if (m->ballot > d->accepted) {
            memcpy(d->table, bytes + sizeof *d->cast, par__table_bytes(d));
            d->accepted = m->ballot;
        }
        par__step_vote(w, d);
    }
}
static int par__are_votes(const char *bytes, size_t count, uint64_t state) { // of this number
    par__vote v;
    for (size_t i = 0; i < count / sizeof v; i++) {
        memcpy(&v, bytes + i * sizeof v, sizeof v);
        if (v.state >> 8 != state >> 8) return 0;
    }
    return 1;
}
// Where this rank has yet to vote it keeps nothing: it asks, or says its own, once it does.
static void par__hear_vote(par__world *w, par__line *l, const par__memo *m, const char *bytes) {
    const int begins = m->kind == PAR__TELL_VOTE || m->kind == PAR__TELL_ASK || m->kind == PAR__TELL_PROPOSE;
    par__decision *d = par__find_decision(w->tcp, m->key, m->state);
    par__memo answer = *m;
    answer.kind = PAR__TELL_BUSY;
    if (!d && begins) par__line_say(l, &answer, NULL, 0, NULL, 0);
    if (!d || d->size != m->size || !par__are_votes(bytes, m->bytes, m->state) ||
        (m->kind != PAR__TELL_BUSY && d->world[m->from] != l->edge.rank))
        return;
    answer = par__vote_memo(w, d, PAR__TELL_ACCEPT, d->me);
    if (d->decided) {
        answer.kind = PAR__TELL_DECIDED;
        if (begins) par__line_say(l, &answer, d->table, par__table_bytes(d), NULL, 0);
        return;
    }
    if (m->kind == PAR__TELL_ASK || m->kind == PAR__TELL_PROPOSE) {
        d->heard[m->from] &= (unsigned char)~PAR__HEARD_NOTHING;
        if (m->kind == PAR__TELL_ASK || m->ballot < d->promised) {
            d->promised = PAR__MAX(d->promised, m->ballot);
            par__say_vote(w, d, l);
            return;
        }
    }
    switch (m->kind) {
    case PAR__TELL_BUSY:
        for (int r = 0; r < d->size; r++)
            if (d->world[r] == l->edge.rank) d->heard[r] |= PAR__HEARD_BUSY;
        return;
    case PAR__TELL_PROPOSE:
        memcpy(d->table, bytes, par__table_bytes(d));
        d->promised = d->accepted = answer.ballot = answer.promised = m->ballot;
        par__line_say(l, &answer, NULL, 0, NULL, 0);
        return;
    case PAR__TELL_ACCEPT:
        if (d->proposed && m->ballot == d->ballot) d->heard[m->from] |= PAR__HEARD_ACCEPT;
        par__step_vote(w, d);
        return;
    case PAR__TELL_DECIDED:
        memcpy(d->table, bytes, par__table_bytes(d));
        par__decide(w, d);
        return;
    default: par__hear_cast(w, d, l, m, bytes);
    }
}

// The leader, at the deadline: those that say nothing are dead, if the others are enough.
static par_result par__judge_silence(par__world *w, par__decision *d) {
    int present = 0, silent = 0, first = 0; // first: the first rank of both is present
    char text[256];
    for (int r = 0; r < d->size; r++) {
        const int owes = par__owes_answer(d, r);
        if (par__is_out(w, d, r)) continue;
        if (owes && (d->heard[r] & PAR__HEARD_BUSY))
            return par__set_error(
                w, PAR_ERR_TIMEOUT,
                "rank %d waited %g s for rank %d of comm %s to vote, which waits in another "
                "call: make the same calls on all",
                d->me, w->timeout_s, r, d->comm->name);
        if (!present && !silent) first = !owes;
        present += !owes;
        silent += owes;
    }
    if (d->comm != w->whole)
        return par__set_error(w, PAR_ERR_TIMEOUT,
                              "rank %d has heard nothing of %d ranks of comm %s in %g s: call par_shrink on "
                              "the world, whose ranks decide together who counts as dead",
                              d->me, silent, d->comm->name, w->timeout_s);
    if (present > silent || (present == silent && first)) {
        for (int r = 0; r < d->size; r++)
            if (!par__is_out(w, d, r) && par__owes_answer(d, r)) {
                par__log_error(PAR_OK,
                               "rank %d has heard nothing of rank %d of comm %s in %g s: it counts as dead",
                               d->me, r, d->comm->name, w->timeout_s);
                par__on_gone(w, d->world[r], PAR__RANK_DEAD);
            }
        d->since = par__now();
        par__step_vote(w, d);
        return PAR_OK;
    }
    snprintf(text, sizeof text,
             "rank %d and %d others hear nothing of %d ranks, which may go on without them: so they end",
             w->rank, present - 1, silent);
    par__lead(w, d, PAR__TELL_MINORITY, text, strlen(text));
    PAR__STORE(&w->arena->left_behind, 1u);
    par__abort_node(w, text);
    return par__set_error(w, PAR_ERR_ABORTED, "%s", text);
}
// Have all ended that this rank still waits for? Then it need not wait for the deadline.
static int par__all_have_ended(const par__world *w, const par__decision *d) {
    int all = 1;
    for (int r = 0; r < d->size; r++)
        if (d->leader != d->me ? r == d->leader : !par__is_out(w, d, r) && par__owes_answer(d, r))
            all &= (w->tcp->states[d->world[r]] & PAR__TCP_ENDED) != 0;
    return all;
}
static par_result par__check_late(par__world *w, par__decision *d) {
    const double waited = par__now() - d->since;
    if (d->decided) return PAR_OK;
    if (waited > w->timeout_s / 2 && !d->asked_again++) {
        for (int r = 0; r < d->size; r++) d->heard[r] &= (unsigned char)~PAR__HEARD_BUSY;
        par__ask(w, d);
    }
    if (waited < w->timeout_s && !par__all_have_ended(w, d)) return PAR_OK;
    if (d->leader == d->me) return par__judge_silence(w, d);
    if (d->heard[d->leader] & PAR__HEARD_BUSY)
        return par__set_error(
            w, PAR_ERR_TIMEOUT,
            "rank %d waited %g s for rank %d of comm %s to vote, which waits in another call: "
            "make the same calls on all",
            d->me, w->timeout_s, d->leader, d->comm->name);
    d->heard[d->leader] |= PAR__HEARD_NOTHING;
    par__step_vote(w, d);
    return PAR_OK;
}
static int par__has_decision(void *decision) { return PAR__LOAD(&((par__decision *)decision)->decided); }
static par_result par__check_decision(void *decision) {
    par__decision *d = (par__decision *)decision;
    par__world *w = d->comm->world;
    if (par__is_aborted(w->arena)) return par__set_error(w, PAR_ERR_ABORTED, "%s", par__abort_text(w).at);
    par__lock_world(w);
    par__step_vote(w, d);
    const par_result r = par__check_late(w, d);
    par__unlock_world(w);
    return r;
}
// This rank's vote; who of the comm is waited for. On return c->cast is what was decided. counted NULL: all
// are; this rank does not wait for it, but leads it, where it is its turn, while it waits elsewhere.
static par_result par__wait_until(par__world *w, int (*is_ready)(void *), par_result (*check)(void *),
                                  void *x, long sleep_ns);
static long par__sleep_ns(const par__world *w);
static par_result par__vote_by_lines(par_comm *c, uint64_t state, const uint64_t value[2],
                                     const unsigned char *counted) {
    par__world *w = c->world;
    const uint64_t key = par__comm_key(c);
    par__lock_world(w);
    par__free_decisions(w->tcp, &key, (state >> 8) - 1);
    par__decision *d = par__new_decision(c, state, counted);
    if (d) {
        d->cast[d->me].state = state;
        memcpy(d->cast[d->me].value, value, sizeof d->cast->value);
        par__step_vote(w, d);
    }
    par__unlock_world(w);
    if (!d) return par__set_error(w, PAR_ERR_MEMORY, "no memory for a vote: this rank must end");
    if (!counted) return PAR_OK;
    const par_result r = par__wait_until(w, par__has_decision, par__check_decision, d, par__sleep_ns(w));
    if (!r) c->cast = d->table;
    return r;
}
static void par__forget_votes(const par_comm *c) { // it closes
    for (par__decision *d = c->world->tcp ? c->world->tcp->decisions : NULL; d; d = d->next)
        if (d->comm == c) d->comm = NULL;
}

static void par__tcp_free(par__world *w);
// Leave the world.
static void par__lines_close(par__world *w, int broken) {
    par__tcp *t = w->tcp;
    const par__memo left = par__new_memo(t, PAR__TELL_LEFT, w->rank);
    const double until = par__now() + 1;
    (void)broken; // who goes on hears that this rank does not
    par__lines_poll(w);
    par__tell_all(w, &left, NULL);
    for (int i = 0; i < t->line_count; i++) par__edge_settle(&t->lines[i]->edge, until);
    par__tcp_free(w);
}

// >>tcp_requests --------------------------------------------------------------------------------------------

static par__tcp_message *par__tcp_new_message(par__world *w, const par__connection *v, int tag, void *memory,
                                              size_t bytes, par__net_request *q) {
    par__tcp_message *p = v ? (par__tcp_message *)par__zalloc(sizeof *p) : NULL;
    if (!p) return par__set_error(w, PAR_ERR_MEMORY, "no memory for a message"), p;
    p->tag = (uint32_t)tag;
    p->memory = (char *)memory;
    p->bytes = bytes;
    if (!memory) p->memory = w->tcp->sink; // of no bytes
    q->active = 1;
    q->message = p;
    return p;
}
static par_result par__tcp_send(par__world *w, int peer, int tag, void *memory, size_t bytes,
                                par__net_request *q) {
    par__connection *v = par__tcp_connection(w->tcp, peer);
    par__tcp_message *p = par__tcp_new_message(w, v, tag, memory, bytes, q);
    if (!p) return PAR_ERR_MEMORY;
    q->sending = 1;
    q->peer = peer;
    if (bytes <= PAR__TCP_SHORT_BYTES &&
        v->credit_used + bytes + PAR__TCP_MESSAGE_OVERHEAD <= PAR__TCP_CREDIT_BYTES) {
        par__tcp_queue_frame(v, p, PAR__TCP_SHORT, bytes, bytes);
        v->credit_used += bytes + PAR__TCP_MESSAGE_OVERHEAD;
    } else {
        par__tcp_append(&v->rts_sent, p);
        par__tcp_queue_frame(v, p, PAR__TCP_RTS, bytes, 0);
    }
    par__tcp_write(w, v);
    return PAR_OK;
}
static par_result par__tcp_recv(par__world *w, int peer, int tag, void *memory, size_t bytes,
                                par__net_request *q) {
    par__connection *v = par__tcp_connection(w->tcp, peer);
    par__tcp_message *p = par__tcp_new_message(w, v, tag, memory, bytes, q), *arrived;
    if (!p) return PAR_ERR_MEMORY;
    q->sending = 0;
    q->peer = peer;
    arrived = par__tcp_take_tag(&v->unexpected, p->tag);
    if (!arrived) return par__tcp_append(&v->posted, p), PAR_OK;
    if (arrived->memory) {
        v->unexpected_bytes -= arrived->received + PAR__TCP_MESSAGE_OVERHEAD;
        par__tcp_return_credit(v, arrived->received);
        if (arrived->done)
            par__tcp_deliver(p, arrived);
        else
            arrived->receive = p;
    } else {
        v->unexpected_rts--;
        par__tcp_send_cts(v, p, arrived->received);
        PAR_FREE(arrived);
    }
    par__tcp_write(w, v);
    return PAR_OK;
}

static par_result par__tcp_test(par__world *w, par__net_request *q, int *done, size_t *received) {
    par__tcp_message *p = q->message;
    par__connection *v = par__tcp_find(w->tcp, q->peer);
    if (!p->done) par__tcp_progress(w, v);
    *done = p->done;
    *received = p->received;
    if (p->done) return PAR_FREE(p), q->active = 0, PAR_OK;
    if (v->fault[0]) return par__set_error(w, PAR_ERR_SYSTEM, "%s", v->fault);
    const int lost = v->in == -2 || (v->out == -2 && (v->send_queue || q->sending));
    if (!lost || !par__tcp_is_alive(w, v)) return PAR_OK;
    return par__set_error(
        w, PAR_ERR_SYSTEM,
        "rank %d has no connection to rank %d: %s (the hosts must reach each other on ports of the "
        "system's choice, net.ipv4.ip_local_port_range; ulimit -n bounds how many there are)",
        w->rank, q->peer, strerror(v->error));
}
static int par__tcp_cancel(par__world *w, par__net_request *q) {
    par__tcp_message **link = &par__tcp_find(w->tcp, q->peer)->posted;
    while (*link && *link != q->message) link = &(*link)->next;
    q->active = 0;
    if (q->message->done || *link) {
        if (*link) *link = q->message->next;
        PAR_FREE(q->message);
    } else {
        q->message->memory = NULL;
        q->message->owned = 1;
    }
    return 1;
}

static void par__tcp_free_messages(par__tcp_message *p) {
    while (p) {
        par__tcp_message *next = p->next;
        if (p->owned) PAR_FREE(p->memory);
        PAR_FREE(p);
        p = next;
    }
}
static void par__tcp_free_connection(par__connection *v) {
    par__tcp_message *p = v->reading;
    if (p && p->receive) {
        p->next = p->receive;
        p->receive->next = NULL;
    } // in no list
    if (p && (p->receive || !p->owned || !p->memory)) {
        if (!p->receive) p->next = NULL;
        par__tcp_free_messages(p);
    }
    while (v->send_queue) {
        p = v->send_queue;
        v->send_queue = p->next_send;
        if (p->frame.kind == PAR__TCP_RTS || p->frame.kind == PAR__TCP_CTS) continue; // in a list below
        p->next = NULL;
        par__tcp_free_messages(p);
    }
    par__tcp_free_messages(v->rts_sent);
    par__tcp_free_messages(v->posted);
    par__tcp_free_messages(v->cts_sent);
    par__tcp_free_messages(v->unexpected);
    PAR_FREE(v->buffer);
    if (v->in >= 0) close(v->in);
    if (v->out >= 0 && v->out != v->in) close(v->out);
    par__tcp_end_dial(&v->dial, NULL);
    PAR_FREE(v);
}
// A process that a rank forks (a loader of data) inherits its sockets. While it runs they would stay open, so
// that nobody saw the rank end, and its port were taken: so the child closes them at once. Fork is of the
// whole process, and so is the list of its worlds.
static par__tcp *par__tcp_worlds;
static pthread_mutex_t par__tcp_worlds_lock = PTHREAD_MUTEX_INITIALIZER;
static void par__tcp_before_fork(void) { pthread_mutex_lock(&par__tcp_worlds_lock); }
static void par__tcp_forked(void) { pthread_mutex_unlock(&par__tcp_worlds_lock); }
static void par__tcp_after_fork(void) { // in the child
    for (par__tcp *t = par__tcp_worlds; t; t = t->next) {
        for (size_t i = 0; i < t->table_size; i++) {
            if (!t->table[i]) continue;
            par__tcp_forget(&t->table[i]->dial.fd);
            if (t->table[i]->in != t->table[i]->out) par__tcp_forget(&t->table[i]->in);
            par__tcp_forget(&t->table[i]->out);
        }
        for (int i = 0; i < t->edge_count; i++) par__tcp_forget(&t->edges[i].fd);
        for (int i = 0; i < t->line_count; i++) {
            par__tcp_forget(&t->lines[i]->edge.fd);
            par__tcp_forget(&t->lines[i]->dial.fd);
        }
        while (t->joiner_count) close(t->joiners[--t->joiner_count].fd);
        for (int i = 0; t->rendezvous && i < t->rendezvous->down_count; i++)
            par__tcp_forget(&t->rendezvous->down[i].fd);
        if (t->rendezvous) par__tcp_forget(&t->rendezvous->up.fd);
        par__tcp_forget(&t->local);
        par__tcp_leave_port(t);
        par__tcp_stop_listening(t);
    }
    par__tcp_worlds = NULL;
    par__tcp_forked();
}
static void par__tcp_list(par__tcp *t) {
    static int registered; // under the lock
    pthread_mutex_lock(&par__tcp_worlds_lock);
    if (!registered) registered = !pthread_atfork(par__tcp_before_fork, par__tcp_forked, par__tcp_after_fork);
    t->next = par__tcp_worlds;
    par__tcp_worlds = t;
    pthread_mutex_unlock(&par__tcp_worlds_lock);
}
static void par__tcp_unlist(par__tcp *t) {
    pthread_mutex_lock(&par__tcp_worlds_lock);
    for (par__tcp **link = &par__tcp_worlds; *link; link = &(*link)->next)
        if (*link == t) {
            *link = t->next;
            break;
        }
    pthread_mutex_unlock(&par__tcp_worlds_lock);
}
static void par__tcp_end_rendezvous(par__tcp *t) {
    par__rendezvous *m = t->rendezvous;
    t->rendezvous = NULL;
    par__tcp_forget(&t->local);
    if (!m) return;
    par__edge_close(&m->up);
    for (int i = 0; i < m->down_count; i++) par__edge_close(&m->down[i]);
    par__tcp_end_dial(&m->dial, NULL);
    PAR_FREE(m->down);
    PAR_FREE(m->here);
    PAR_FREE(m->via);
    PAR_FREE(m->host);
    explicit_bzero(m, sizeof *m);
    PAR_FREE(m);
}
static void par__tcp_free(par__world *w) {
    par__tcp *t = w->tcp;
    if (!t) return;
    par__tcp_unlist(t);
    par__tcp_end_rendezvous(t);
    for (size_t i = 0; i < t->table_size; i++)
        if (t->table[i]) par__tcp_free_connection(t->table[i]);
    for (int i = 0; i < t->edge_count; i++) par__edge_close(&t->edges[i]);
    for (int i = 0; i < t->line_count; i++) par__free_line(t->lines[i]);
    par__free_decisions(t, NULL, 0);
    while (t->joiner_count) close(t->joiners[--t->joiner_count].fd);
    PAR_FREE(t->lines);
    par__tcp_leave_port(t);
    par__tcp_stop_listening(t);
    explicit_bzero(&t->self, sizeof t->self);
    explicit_bzero(&t->door, sizeof t->door);
    PAR_FREE(t->pending);
    PAR_FREE(t->polls);
    PAR_FREE(t->table);
    PAR_FREE(t->states);
    PAR_FREE(t->book);
    PAR_FREE(t->edges);
    PAR_FREE(t->places);
    PAR_FREE(t->sink);
    PAR_FREE(t);
    w->tcp = NULL;
}
// Wait until these neighbors have closed the world, or are gone. Until then nobody's leaving is an error.
static void par__tcp_await_closing(par__world *w, int first, int end, double until) {
    const par__edge *edges = w->tcp->edges;
    for (int waiting = 1; waiting && par__now() < until;) {
        par__tcp_poll(w);
        waiting = 0;
        for (int i = first; i < end; i++) waiting |= !edges[i].closing && edges[i].fd >= 0;
        if (waiting) par__futex_wait(&w->control->doorbell, PAR__LOAD(&w->control->doorbell), 50000);
    }
}
// Rank 0 lets all go when all have come: CLOSING goes up, CLOSED comes down.
static void par__tcp_close(par__world *w, int broken) {
    par__tcp *t = w->tcp;
    const double until = par__now() + w->timeout_s;
    const int children = w->rank ? 1 : 0;
    const par__notice closing = par__tcp_notice(PAR__NOTICE_CLOSING, w->rank, PAR_OK),
                      closed = par__tcp_notice(PAR__NOTICE_CLOSED, 0, PAR_OK),
                      left = par__tcp_notice(PAR__NOTICE_LEFT, w->rank, PAR_OK);
    if (!broken) par__tcp_await_closing(w, children, t->edge_count, until);
    if (!broken && w->rank && t->edge_count) {
        par__tcp_send_notice(t, &t->edges[0], &closing, "");
        par__tcp_await_closing(w, 0, 1, until);
    }
    for (int i = broken ? 0 : children; i < t->edge_count; i++)
        par__tcp_send_notice(t, &t->edges[i], broken ? &left : &closed, "");
    for (int i = 0; i < t->edge_count; i++)
        if (broken || t->edges[i].out_bytes) par__edge_settle(&t->edges[i], par__now() + 1);
    par__tcp_free(w);
}

// >>channel -------------------------------------------------------------------------------------------------
//
// A message between ranks of a node goes through a ring, one for each ordered pair of ranks and lane; >>net
// takes it where the two share no memory. A cell of the ring is one cache line: it describes the message, and
// has its bytes if they are few. More bytes are copied through the payload behind the cells, in pieces of a
// cell each (two copies, which overlap). If the receiver can address the sender's block, or the system can
// copy from it, the cell gives the address (one copy):
//     sender      fill 1 | fill 2 | fill 3 | ...             head counts filled cells
//     receiver        drain 1 | drain 2 | ...                tail counts drained cells and lines of payload
// Both ends copy a long message: each claims half of what nobody has claimed, again and again. So a sender
// that has nothing else to do copies as much as the receiver, and its part from its own caches:
//     receiver    says where to | 1/2 ................. |     claimed counts the bytes that have an owner
//     sender                      1/4 ...... | 1/8 . | 1/8 .  helped those that the sender has copied
// A cell is full when its ticket is the number that the receiver expects next. So a small message takes one
// cache line from core to core; the sender looks at tail only when the ring seems full.
// Lanes are separate rings and tags: one for user messages, one for each track of a collective.

// Find where the rings are, which the first sender has told the others. make: be the first, if nobody was.
// 0: there are none.
static int par__find_rings(par_comm *c, int make) {
    par__world *w = c->world;
    const size_t bytes = par__rings_bytes(c->ring_count, c->lane_count);
    uint64_t at = PAR__LOAD(&c->rings->at);
    int no_block;
    const uint64_t made =
        at || c->first_ring || !make ? 0 : par__arena_take(w, bytes, 4096, c->rings_offset, &no_block);
    if (made && __atomic_compare_exchange_n(&c->rings->at, &at, made, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        at = made;
    else if (made)
        par__arena_free(w, made);
    if (!c->first_ring && at && par__arena_contains(w, at, bytes)) c->first_ring = w->base + at;
    return c->first_ring != NULL;
}
static par__ring *par__ring_of(const par_comm *c, int from, int to, int lane, uint8_t **committed) {
    const size_t n = (size_t)c->ring_count;
    const size_t i =
        ((size_t)lane * n + (size_t)par__ring_index(c, from)) * n + (size_t)par__ring_index(c, to);
    *committed = (uint8_t *)&c->rings->user[n] + i;
    return (par__ring *)(c->first_ring + i * par__ring_stride(c->ring_count));
}
static uint32_t par__payload_lines(size_t bytes) { // that a piece takes
    return bytes <= PAR__CELL_BYTES ? 0 : (uint32_t)((bytes + 63) / 64);
}
static size_t par__piece_bytes(const par_comm *c, size_t left) { // of the next piece
    return PAR__MIN(left, c->piece_bytes);
}

// The sender's next cell, where the ring has room for a piece of so many bytes. NULL: it has none.
static inline par__cell *par__free_cell(const par_comm *c, par__ring *ring, size_t bytes) {
    const uint32_t lines = par__payload_lines(bytes);
    for (int look = 0; look < 2; look++) {
        const uint32_t cells = ring->head - (uint32_t)ring->seen_tail,
                       held = ring->head_line - (uint32_t)(ring->seen_tail >> 32);
        if (cells < PAR__RING_CELLS && held + lines <= c->ring_lines)
            return &ring->cells[ring->head % PAR__RING_CELLS];
        ring->seen_tail = PAR__LOAD(&ring->tail);
    }
    return NULL;
}
// Copy a piece to its cell or the payload, which is a circle: a piece may have two parts there.
static void par__write_payload(const par_comm *c, par__ring *ring, const char *from, size_t bytes) {
    char *payload = (char *)(ring + 1);
    const size_t at = (size_t)(ring->head_line & (c->ring_lines - 1)) * 64,
                 first = PAR__MIN(bytes, (size_t)c->ring_lines * 64 - at);
    par__copy(c->world->kernels, payload + at, from, first);
    if (bytes > first) par__copy(c->world->kernels, payload, from + first, bytes - first);
    ring->head_line += par__payload_lines(bytes);
}
static void par__read_payload(const par_comm *c, const par__ring *ring, char *to, size_t bytes) {
    const char *payload = (const char *)(ring + 1);
    const size_t at = (size_t)((ring->tail >> 32) & (c->ring_lines - 1)) * 64,
                 first = PAR__MIN(bytes, (size_t)c->ring_lines * 64 - at);
    par__copy(c->world->kernels, to, payload + at, first);
    if (bytes > first) par__copy(c->world->kernels, to + first, payload, bytes - first);
}
static inline void par__write_piece(const par_comm *c, par__ring *ring, par__cell *cell, const char *from,
                                    size_t bytes) {
    if (bytes > PAR__CELL_BYTES)
        par__write_payload(c, ring, from, bytes);
    else if (bytes)
        memcpy(cell->u.data, from, bytes);
}
static inline void par__read_piece(const par_comm *c, const par__ring *ring, const par__cell *cell, char *to,
                                   size_t bytes) {
    if (bytes > PAR__CELL_BYTES)
        par__read_payload(c, ring, to, bytes);
    else if (bytes)
        memcpy(to, cell->u.data, bytes);
}
// The bytes of a cell's piece from `at` on; *room: how many are consecutive. line: where its payload begins.
static char *par__piece_at(const par_comm *c, par__ring *ring, par__cell *cell, uint32_t line, size_t bytes,
                           size_t at, size_t *room) {
    const size_t all = (size_t)c->ring_lines * 64, from = ((size_t)line * 64 + at) & (all - 1);
    *room = bytes <= PAR__CELL_BYTES ? bytes - at : all - from;
    return bytes <= PAR__CELL_BYTES ? (char *)cell->u.data + at : (char *)(ring + 1) + from;
}
// Copy the next bytes of a bundle's blocks to (sending) or from a piece.
static void par__pass_blocks(const par_comm *c, par__transfer *x, par__ring *ring, par__cell *cell,
                             size_t bytes) {
    const uint32_t line = x->sending ? ring->head_line : (uint32_t)(ring->tail >> 32);
    for (size_t at = 0, n; at < bytes && x->block < x->block_count; at += n) {
        const par__block *b = &x->blocks[x->block];
        size_t room;
        char *piece = par__piece_at(c, ring, cell, line, bytes, at, &room), *memory = b->memory + x->at;
        n = PAR__MIN(PAR__MIN(b->bytes - x->at, bytes - at), room);
        if (n == 8)
            memcpy(x->sending ? piece : memory, x->sending ? memory : piece, 8); // inline
        else if (n)
            par__copy(c->world->kernels, x->sending ? piece : memory, x->sending ? memory : piece, n);
        x->at += n;
        if (x->at < b->bytes) continue;
        x->block++;
        x->at = 0;
    }
    if (x->sending) ring->head_line += par__payload_lines(bytes);
}
// Tell the receiver that the cell is full. A later cell is fetched meanwhile: the receiver has read it in the
// last round, so that storing to it takes as long as fetching it.
static void par__publish_cell(par_comm *c, par__ring *ring, par__cell *cell, int peer) {
    PAR__STORE(&cell->ticket, ++ring->head);
    par__prefetch_for_write(&ring->cells[(ring->head + 3) % PAR__RING_CELLS]);
    par__ring_doorbells(c, peer);
}
// The receiver has read a cell and its piece: the sender may overwrite them. It is woken when its memory may
// change (whole), or another quarter of the ring is free.
static void par__drain_cell(par_comm *c, par__ring *ring, size_t bytes, int peer, int whole) {
    const uint64_t before = ring->tail, lines = (before >> 32) + par__payload_lines(bytes);
    const uint64_t after = lines << 32 | (uint32_t)(before + 1);
    const uint64_t quarter = (uint64_t)c->ring_lines / 4 << 32 | PAR__RING_CELLS / 4;
    PAR__STORE(&ring->tail, after);
    if (whole || ((before ^ after) & quarter)) par__ring_doorbells(c, peer);
}
// The receiver's next cell; its ticket tells whether it is full.
static par__cell *par__expected_cell(par__ring *ring, uint32_t *ticket) {
    par__cell *cell = &ring->cells[(uint32_t)ring->tail % PAR__RING_CELLS];
    *ticket = PAR__LOAD(&cell->ticket);
    return cell;
}
static int par__is_ticket_old(const par__ring *ring, uint32_t ticket) { // the sender has not filled the cell
    return ticket == (uint32_t)ring->tail + 1 - PAR__RING_CELLS;
}
// Receive a message whose cell has it whole, and that is what the call expects. 1: done; 0: no message is
// here; -1: it needs a transfer.
static inline int par__take_message(par_comm *c, const par_call *k, par__ring *ring) {
    const size_t bytes = k->count * par__dtypes[k->dtype].bytes;
    uint32_t ticket;
    const par__cell *cell = par__expected_cell(ring, &ticket);
    if (ticket != (uint32_t)ring->tail + 1) return par__is_ticket_old(ring, ticket) ? 0 : -1;
    if (cell->place != PAR__IN_RING || cell->count != k->count || cell->dtype != (uint8_t)k->dtype ||
        bytes > c->piece_bytes)
        return -1;
    par__read_piece(c, ring, cell, (char *)k->recv, bytes);
    par__drain_cell(c, ring, bytes, k->root, 0);
    return 1;
}

// The system copies messages of ordinary memory from this size on: two copies that overlap, in caches, are
// faster for longer than where ranks meet for a collective.
static size_t par__message_cma_bytes(const par__world *w) { return PAR__MIN(w->cma_bytes, SIZE_MAX / 4) * 4; }

// Where the receiver finds the bytes of a message.
static par__place par__message_place(const par_comm *c, const void *memory, size_t bytes, int peer,
                                     uint64_t *address) {
    *address = 0;
    if (bytes <= PAR__SHORT_MESSAGE_BYTES) return PAR__IN_RING;
    if (par__shared_offset(c->world, memory, bytes, address)) return PAR__IN_ARENA;
    if (!c->world->cma || bytes < par__message_cma_bytes(c->world) || !par__is_local(c, peer))
        return PAR__IN_RING;
    *address = (uint64_t)(uintptr_t)memory;
    return PAR__IN_SENDER;
}

// Send a message that its cell, and a piece of the payload, can have whole. 1: done; 0: there is no room, or
// the receiver copies it.
static inline int par__put_message(par_comm *c, const par_call *k, par__ring *ring, uint16_t site) {
    const size_t bytes = k->count * par__dtypes[k->dtype].bytes;
    uint64_t address;
    if (bytes > c->piece_bytes || par__message_place(c, k->send, bytes, k->root, &address) != PAR__IN_RING)
        return 0;
    par__cell *cell = par__free_cell(c, ring, bytes);
    if (!cell) return 0;
    cell->site = site;
    cell->dtype = (uint8_t)k->dtype;
    cell->place = PAR__IN_RING;
    cell->count = k->count;
    cell->bytes = bytes;
    par__write_piece(c, ring, cell, (const char *)k->send, bytes);
    par__publish_cell(c, ring, cell, k->root);
    return 1;
}

static par_result par__peer_lost(const par_comm *c, int rank, const char *waiting);

// par__cma_copy, in two steps where reading would be slow for the system: through memory that begins in a
// cache line where the peer's does. (Writing is left slow: the system reports an array that is shorter than
// its call says, and a read of it here would end the process.) 0, or errno.
static int par__copy_across(const par__kernels *k, int pid, struct iovec mine, uintptr_t theirs, int put) {
    enum { PIECE = 8192 };
    char memory[PIECE + 64], *const to = (char *)mine.iov_base;
    char *const through = memory + (theirs - (uintptr_t)memory) % 64;
    if (put || !par__moves_slowly((uintptr_t)to, theirs, mine.iov_len))
        return par__cma_copy(pid, mine, theirs, put);
    for (size_t at = 0, n; at < mine.iov_len; at += n) {
        n = PAR__MIN(mine.iov_len - at, (size_t)PIECE);
        const int e = par__cma_copy(pid, par__iovec(through, n), theirs + at, 0);
        if (e) return e;
        par__copy(k, to + at, through, n);
    }
    return 0;
}

// Copy between this rank's memory and that of `rank`, which this process cannot address.
static void par__run_cma(par__operation *op, int rank, struct iovec mine, uintptr_t theirs, int put) {
    const par_comm *c = op->comm;
    const int pid = c->world->pids ? c->world->pids[par__arena_index(c, rank)] : 0;
    char waiting[128];
    const int e = op->result || !mine.iov_len ? 0
                  : pid                       ? par__copy_across(c->world->kernels, pid, mine, theirs, put)
                                              : EPERM;
    if (!e) return;
    snprintf(waiting, sizeof waiting, "in par_%s at %s", par_kind_name(op->call.kind), par__op_site(op));
    if (e == ESRCH)
        op->result = par__peer_lost(c, rank, waiting);
    else
        op->result = par__set_error(
            c->world, PAR_ERR_SYSTEM,
            "rank %d cannot %s %zu bytes at address %p of rank %d in par_%s at %s: %s; is that rank's %s "
            "buffer as long as its call says? (PAR_CMA=0 avoids such copies)",
            c->rank, put ? "write" : "read", mine.iov_len, (void *)theirs, rank, par_kind_name(op->call.kind),
            par__op_site(op), strerror(e), put ? "recv" : "send");
}

// Claim a part of a message: where it begins and its bytes. 0: all have an owner.
static size_t par__claim(par__cell *cell, size_t bytes, size_t *at) {
    uint64_t claimed = PAR__LOAD(&cell->u.copy.claimed), n;
    do {
        if (claimed >= bytes) return 0;
        n = PAR__MIN(bytes - claimed,
                     PAR__MAX((bytes - claimed) / 2 / 4096 * 4096, (uint64_t)PAR__CHUNK_BYTES));
    } while (!__atomic_compare_exchange_n(&cell->u.copy.claimed, &claimed, claimed + n, 0, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE));
    *at = claimed;
    return n;
}
// Copy between this rank's memory and a peer's, which is in the arena or in the peer. 0: it cannot.
static int par__copy_part(const par_comm *c, int peer, uint32_t place, char *mine, uint64_t theirs, size_t at,
                          size_t bytes, int put) {
    const int pid = c->world->pids ? c->world->pids[par__arena_index(c, peer)] : 0;
    if (place == PAR__IN_ARENA) {
        char *there = par__peer_pointer(c->world, theirs) + at;
        par__copy(c->world->kernels, put ? there : mine + at, put ? mine + at : there, bytes);
        return 1;
    }
    return pid && !par__copy_across(c->world->kernels, pid, par__iovec(mine + at, bytes),
                                    (uintptr_t)theirs + at, put);
}

static uint64_t par__transfer_count(const par__operation *op, const par__transfer *x) { // elements
    return x->bytes / par__dtypes[op->call.dtype].bytes;
}
static void par__fill_message(const par__operation *op, const par__transfer *x, par__message_header *m) {
    m->bytes = x->bytes;
    m->count = par__transfer_count(op, x);
    m->dtype = (uint32_t)op->call.dtype;
    m->place = PAR__IN_RING;
    m->address = 0;
    m->hash = x->hash;
    memcpy(m->site, par__op_site(op), PAR__SITE_BYTES);
}

// Both ends know the size; the receiver finds a mismatch when the message arrives. It drains the message all
// the same. site: of the send; other ranks may write it.
static par_result par__check_message(par__operation *op, par__transfer *x, const char *site) {
    const par_comm *c = op->comm;
    const par__message_header *m = &x->header;
    const int differs = m->bytes < x->least || m->bytes > x->bytes ||
                        (!x->lane && (m->count != par__transfer_count(op, x) ||
                                      m->dtype != (uint32_t)op->call.dtype || m->hash != x->hash));
    if (!differs) x->bytes = (size_t)m->bytes;
    if (!differs) return PAR_OK;
    x->mismatched = 1;
    return par__set_error(
        c->world, PAR_ERR_MISMATCH,
        "rank %d sent %llu %s (%llu bytes) at %s, but rank %d receives %llu %s (%llu bytes%s) at %s, in "
        "par_%s on comm %s: make the two ends agree",
        x->peer, (unsigned long long)m->count, par_dtype_name((par_dtype)m->dtype),
        (unsigned long long)m->bytes, par__copy_shared_text(site, PAR__SITE_BYTES).at, c->rank,
        (unsigned long long)par__transfer_count(op, x), par_dtype_name(op->call.dtype),
        (unsigned long long)x->bytes, m->bytes == x->bytes ? ", in other blocks" : "", par__op_site(op),
        par_kind_name(op->call.kind), c->name);
}
// The queue of messages to, or from, a rank. NULL: no memory, with an error text.
static inline par__call_queue *par__message_queue(par_comm *c, par_kind kind, int peer) {
    const int i = 2 * peer + (kind == PAR_KIND_RECV);
    par__call_queue **page = &c->messages[i / PAR__QUEUES];
    if (!*page) *page = (par__call_queue *)par__zalloc(PAR__QUEUES * sizeof **page);
    if (!*page) par__set_error(c->world, PAR_ERR_MEMORY, "no memory for messages with rank %d", peer);
    return *page ? *page + i % PAR__QUEUES : NULL;
}
// The committed ring of a message that this rank sends. NULL: there is no memory.
static par__ring *par__ring_to(par_comm *c, int peer, int lane) {
    par__call_queue *queue = lane ? NULL : par__message_queue(c, PAR_KIND_SEND, peer);
    uint8_t *committed;
    if (queue && queue->ring) return queue->ring;
    if (!par__find_rings(c, 1)) return NULL;
    par__ring *ring = par__ring_of(c, c->rank, peer, lane, &committed);
    if (!*committed) {
        if (!par__arena_commit(c->world, (uint64_t)((char *)ring - c->world->base),
                               par__ring_stride(c->ring_count)))
            return NULL;
        for (uint32_t i = 0; i < PAR__RING_CELLS; i++) // as in a ring that has passed 2^32 cells
            ring->cells[i].ticket = i + 1 - PAR__RING_CELLS;
        PAR__STORE(committed, (uint8_t)1);
    }
    if (queue) queue->ring = ring;
    return ring;
}
// The same of a message that this rank receives. NULL: the sender has not used it yet.
static par__ring *par__ring_from(par_comm *c, int peer, int lane) {
    par__call_queue *queue = lane ? NULL : par__message_queue(c, PAR_KIND_RECV, peer);
    uint8_t *committed;
    if (queue && queue->ring) return queue->ring;
    if (!par__find_rings(c, 0)) return NULL;
    par__ring *ring = par__ring_of(c, peer, c->rank, lane, &committed);
    if (!PAR__LOAD(committed)) return NULL;
    if (queue) queue->ring = ring;
    return ring;
}

static par_result par__no_ring(par_comm *c, int peer) {
    return par__break_comm(c, par__set_error(c->world, PAR_ERR_MEMORY,
                                             "no shared memory for messages from rank %d to rank %d", c->rank,
                                             peer));
}
// Can the bytes of a message be at the address in its header?
static int par__address_valid(const par__world *w, const par__message_header *m) {
    if (m->place != PAR__IN_ARENA) return m->place == PAR__IN_RING || (m->place == PAR__IN_SENDER && w->cma);
    return par__ranks_are_threads(w) ||
           (m->address && m->address <= w->arena_bytes + 1 && m->bytes <= w->arena_bytes + 1 - m->address);
}
// A rank that hears of an error may free its arrays, which others may be about to access. (A process that
// accesses another's memory gets an error.) So ranks that are threads say while they step a call; and before
// an error ends a call, its rank says that its arrays have gone: those of messages that have not ended, and
// of collectives from one on (comm + 1, sequence; of the last two comms that had an error). Then it waits
// until nobody steps. What would access them now waits for its own error.
static int par__has_withdrawn(const par_comm *c, int r, const uint32_t *collective) {
    const uint64_t *said = c->world->arena->ranks[par__arena_index(c, r)].withdrawn;
    int has = 0;
    for (int i = 0; i < 2; i++) {
        const uint64_t x = __atomic_load_n(&said[i], __ATOMIC_SEQ_CST);
        has |= x >> 32 == (uint64_t)c->id + 1 && (!collective || (int32_t)(*collective - (uint32_t)x) >= 0);
    }
    return has;
}
static int par__is_withdrawn(const par_comm *c, int r) { // may a message of rank r be gone?
    return par__ranks_are_threads(c->world) && par__has_withdrawn(c, r, NULL);
}
static int par__arrays_withdrawn(const par__operation *op) { // of a collective, on this node
    const par_comm *c = op->comm;
    const par__layout *l = &c->nodes;
    int any = 0;
    if (!par__ranks_are_threads(c->world) ||
        !__atomic_load_n(&c->world->arena->first_error, __ATOMIC_SEQ_CST))
        return 0;
    for (int i = 0; i < par__node_size(l, l->my_node); i++)
        any |= par__has_withdrawn(c, par__node_rank(l, l->my_node, i), &op->sequence);
    return any;
}
static void par__withdraw(const par__operation *op) {
    const par_comm *c = op->comm;
    const par__world *w = c->world;
    par__rank_control *mine = w->control;
    const par__operation *running =
        par__is_message(op->call.kind) || par__is_exchange(op->call.kind) ? c->collectives.running : op;
    if (!c->broken || !par__ranks_are_threads(w) || par__has_withdrawn(c, c->rank, NULL)) return;
    __atomic_store_n(&mine->withdrawn[1], mine->withdrawn[0], __ATOMIC_SEQ_CST);
    __atomic_store_n(&mine->withdrawn[0],
                     ((uint64_t)c->id + 1) << 32 | (running ? running->sequence : c->collectives.issued + 1),
                     __ATOMIC_SEQ_CST);
    __atomic_store_n(&mine->stepping, 0u, __ATOMIC_SEQ_CST); // but it does not access any more
    for (int i = 0; i < w->local_count; i++)
        while (__atomic_load_n(&w->arena->ranks[i].stepping, __ATOMIC_SEQ_CST)) sched_yield();
}

// The sender copies a part of a long message to where its receiver wants it. 1: it did. Where it cannot, the
// receiver copies all, and finds out why.
static int par__push_part(par__operation *op, par__transfer *x, par__cell *cell) {
    par_comm *c = op->comm;
    par__message_header to;
    size_t at, n;
    to.place = PAR__LOAD(&cell->u.copy.to_place);
    if (!to.place || (n = par__claim(cell, x->bytes, &at)) == 0) return 0;
    to.address = cell->u.copy.to;
    to.bytes = x->bytes;
    if (!par__address_valid(c->world, &to) ||
        !par__copy_part(c, x->peer, to.place, x->memory, to.address, at, n, 1))
        PAR__STORE(&cell->u.copy.failed, 1u);
    __atomic_add_fetch(&cell->u.copy.helped, n, __ATOMIC_ACQ_REL);
    par__ring_doorbells(c, x->peer);
    return 1;
}
// Where the receiver finds a bundle's blocks; then op->exchange.addresses has their addresses.
static par__place par__bundle_place(par__operation *op, const par__transfer *x) {
    const par_comm *c = op->comm;
    uint64_t *addresses = op->exchange.addresses;
    const size_t listed = 8 * x->block_count;
    int shared = 1;
    if (x->bytes <= PAR__SHORT_MESSAGE_BYTES || listed > par__piece_bytes(c, listed)) return PAR__IN_RING;
    for (size_t i = 0; i < x->block_count && shared; i++)
        shared = par__shared_offset(c->world, x->blocks[i].memory, x->blocks[i].bytes, &addresses[i]);
    if (shared) return PAR__IN_ARENA;
    // The system pins the pages of each block, and both directions copy at a time: later than for a message.
    if (!c->world->cma || x->bytes / 8 < c->world->cma_bytes || !par__is_local(c, x->peer))
        return PAR__IN_RING;
    for (size_t i = 0; i < x->block_count; i++) addresses[i] = (uint64_t)(uintptr_t)x->blocks[i].memory;
    return PAR__IN_SENDER;
}
static par_result par__ring_send(par__operation *op, par__transfer *x, int *moved) {
    par_comm *c = op->comm;
    par__ring *ring = par__ring_to(c, x->peer, x->lane);
    par__cell *cell;
    if (!ring) {
        x->state = PAR__TRANSFER_ENDED; // its comm cannot go on
        return par__no_ring(c, x->peer);
    }
    while (x->state == PAR__TRANSFER_NEW || x->state == PAR__TRANSFER_PIECES) {
        uint64_t address = 0;
        const par__place place = x->state == PAR__TRANSFER_PIECES ? PAR__IN_RING
                                 : x->blocks                      ? par__bundle_place(op, x)
                                             : par__message_place(c, x->memory, x->bytes, x->peer, &address);
        const size_t n = place == PAR__IN_RING ? par__piece_bytes(c, x->bytes - x->done) : 8 * x->block_count;
        if ((cell = par__free_cell(c, ring, n)) == NULL) break;
        cell->site = op->site;
        cell->dtype = (uint8_t)op->call.dtype;
        cell->place = (uint8_t)place;
        cell->count = x->blocks ? x->hash : par__transfer_count(op, x);
        cell->bytes = x->bytes;
        if (place != PAR__IN_RING && !x->blocks) {
            memset(&cell->u.copy, 0, sizeof cell->u.copy);
            cell->u.copy.from = address;
        } else if (place != PAR__IN_RING)
            par__write_piece(c, ring, cell, (const char *)op->exchange.addresses, n);
        else if (x->blocks)
            par__pass_blocks(c, x, ring, cell, n);
        else
            par__write_piece(c, ring, cell, x->memory + x->done, n);
        x->done += n;
        x->ticket = ring->head + 1;
        x->state = place != PAR__IN_RING ? PAR__TRANSFER_OFFERED
                   : x->done < x->bytes  ? PAR__TRANSFER_PIECES
                                         : PAR__TRANSFER_ENDED;
        par__publish_cell(c, ring, cell, x->peer);
        *moved = 1;
    }
    if (x->state == PAR__TRANSFER_OFFERED && (int32_t)((uint32_t)PAR__LOAD(&ring->tail) - x->ticket) >= 0) {
        x->state = PAR__TRANSFER_ENDED;
        *moved = 1;
    } else if (x->state == PAR__TRANSFER_OFFERED && !x->blocks && !par__is_withdrawn(c, x->peer))
        *moved |= par__push_part(op, x, &ring->cells[(x->ticket - 1) % PAR__RING_CELLS]);
    return PAR_OK;
}

static par_result par__ring_corrupt(par__operation *op, par__transfer *x, const char *what, uint64_t value) {
    x->state = PAR__TRANSFER_ENDED; // what follows cannot be trusted
    return par__break_comm(op->comm, par__memory_corrupt(op->comm->world, what, value));
}

// Read the first cell of a message.
static par_result par__open_message(par__operation *op, par__transfer *x, const par__cell *cell) {
    const par_comm *c = op->comm;
    par__message_header *m = &x->header;
    m->bytes = cell->bytes;
    m->count =
        x->blocks ? cell->bytes / PAR__MAX(par_dtype_bytes((par_dtype)cell->dtype), (size_t)1) : cell->count;
    m->dtype = cell->dtype;
    m->place = cell->place;
    m->address = x->blocks ? 1 : cell->u.copy.from; // a bundle has a list of them
    m->hash = x->blocks ? cell->count : x->hash;
    const int listed = m->place == PAR__IN_RING || 8 * x->block_count <= c->piece_bytes; // they fit the ring
    if (!par__address_valid(c->world, m) || !listed)
        return par__ring_corrupt(op, x, "the address of a message as", m->address);
    x->state = PAR__TRANSFER_PIECES;
    return par__check_message(op, x, par__site_at(c, x->peer, cell->site));
}

// Copy a message from where its sender has it. 1: it is here, or op->result says why it is not; 0: the sender
// still copies a part.
static int par__pull_message(par__operation *op, par__transfer *x, par__cell *cell, int *moved) {
    const par_comm *c = op->comm;
    const par__message_header *m = &x->header;
    size_t at, n;
    if (x->sharing == PAR__SHARING_OPEN) {
        // Where this rank has other operations, the sender may have its own to copy: then few system calls.
        const size_t least = (c->world->active->next ? 16 : 2) * (size_t)PAR__CHUNK_BYTES;
        uint64_t to;
        const par__place place = par__message_place(c, x->memory, x->bytes, x->peer, &to);
        x->sharing = x->bytes >= least && place != PAR__IN_RING ? PAR__SHARING_BOTH : PAR__SHARING_NONE;
        cell->u.copy.to = to;
        if (x->sharing == PAR__SHARING_BOTH) PAR__STORE(&cell->u.copy.to_place, (uint32_t)place);
    }
    if (x->sharing == PAR__SHARING_BOTH) {
        for (; (n = par__claim(cell, x->bytes, &at)) != 0; x->pulled += n, *moved = 1)
            if (!par__copy_part(c, x->peer, m->place, x->memory, m->address, at, n, 0))
                PAR__STORE(&cell->u.copy.failed, 1u);
        if (x->pulled + PAR__LOAD(&cell->u.copy.helped) < x->bytes) return 0;
        if (!PAR__LOAD(&cell->u.copy.failed)) return 1;
    }
    if (m->place == PAR__IN_SENDER)
        par__run_cma(op, x->peer, par__iovec(x->memory, x->bytes), (uintptr_t)m->address, 0);
    else if (x->bytes)
        par__copy(c->world->kernels, x->memory, par__peer_pointer(c->world, m->address), x->bytes);
    return 1;
}

// Copy the blocks of a bundle from where its sender has them: their addresses are in the piece.
static int par__pull_blocks(par__operation *op, par__transfer *x, par__ring *ring, par__cell *cell) {
    par_comm *c = op->comm;
    par__world *w = c->world;
    uint64_t *addresses = op->exchange.addresses;
    struct iovec *mine = op->exchange.copies, *theirs = mine + x->block_count;
    const uint32_t place = x->header.place;
    par__message_header m;
    int slow = x->block_count > 1024; // else one system call for all; what it does not copy, block by block
    par__read_piece(c, ring, cell, (char *)addresses, 8 * x->block_count);
    for (size_t i = 0; i < x->block_count; i++) {
        const par__block *b = &x->blocks[i];
        m.place = place;
        m.bytes = b->bytes;
        m.address = b->bytes ? addresses[i] : 1;
        if (!par__address_valid(w, &m)) {
            op->result = par__ring_corrupt(op, x, "the address of a block as", m.address);
            return 1;
        }
        mine[i] = par__iovec(b->memory, b->bytes);
        theirs[i] = par__iovec((char *)m.address, b->bytes);
        slow |= par__moves_slowly((uintptr_t)b->memory, m.address, b->bytes);
        if (b->bytes && place == PAR__IN_ARENA)
            par__copy(w->kernels, b->memory, par__peer_pointer(w, m.address), b->bytes);
    }
    const int pid = w->pids ? w->pids[par__arena_index(c, x->peer)] : 0;
    if (place == PAR__IN_ARENA || (pid && !slow &&
                                   syscall(SYS_process_vm_readv, pid, mine, x->block_count, theirs,
                                           x->block_count, 0ul) == (long)x->bytes))
        return 1;
    for (size_t i = 0; i < x->block_count && !op->result; i++)
        par__run_cma(op, x->peer, mine[i], (uintptr_t)theirs[i].iov_base, 0);
    return 1;
}

static par_result par__ring_recv(par__operation *op, par__transfer *x, int *moved) {
    par_comm *c = op->comm;
    par__ring *ring = par__ring_from(c, x->peer, x->lane);
    par_result result = PAR_OK;
    while (ring && x->state != PAR__TRANSFER_ENDED) {
        uint32_t ticket;
        par__cell *cell = par__expected_cell(ring, &ticket);
        if (par__is_ticket_old(ring, ticket)) break;
        if (ticket != (uint32_t)ring->tail + 1)
            return par__ring_corrupt(op, x, "a message's number as", ticket);
        if (x->state == PAR__TRANSFER_NEW) result = par__open_message(op, x, cell);
        if (x->state == PAR__TRANSFER_ENDED) return result;
        const size_t left = (size_t)x->header.bytes - x->done, listed = 8 * x->block_count;
        const int in_ring = x->header.place == PAR__IN_RING;
        const size_t n = in_ring ? par__piece_bytes(c, left) : left;
        if (!in_ring && par__is_withdrawn(c, x->peer)) break;
        if (!x->mismatched && in_ring && x->blocks)
            par__pass_blocks(c, x, ring, cell, n);
        else if (!x->mismatched && in_ring)
            par__read_piece(c, ring, cell, x->memory + x->done, n);
        else if (!x->mismatched &&
                 !(x->blocks ? par__pull_blocks(op, x, ring, cell) : par__pull_message(op, x, cell, moved)))
            break;
        x->done += n;
        if (n == left) x->state = PAR__TRANSFER_ENDED;
        par__drain_cell(c, ring, in_ring ? n : listed, x->peer, !in_ring);
        *moved = 1;
        if (result) return result;
    }
    return PAR_OK;
}

// The same between nodes: a user message starts with its header and its first bytes; then the rest follows in
// chunks.

static uint32_t par__comm_ids(const par__world *w) { // a comm's id is less, so that no two share a tag
    return w->tag_count / (1 + PAR__TRACKS);
}
static int par__net_tag(const par_comm *c, int lane) { return (int)c->id * (1 + PAR__TRACKS) + lane; }

static par_result par__net_issue(par__operation *op, par__transfer *x, void *memory, size_t bytes,
                                 par__net_request *q) {
    const par_comm *c = op->comm;
    return (x->sending ? c->world->net->send : c->world->net->recv)(
        c->world, par__world_rank(c, x->peer), par__net_tag(c, x->lane), memory, bytes, q);
}

// Both ends of a message within a collective know its size; only its bytes are sent.
static par_result par__check_chunk(par__operation *op, const par__transfer *x, size_t received) {
    const par_comm *c = op->comm;
    if (received == x->chunk || (received >= x->least && received < x->chunk)) return PAR_OK;
    return par__set_error(
        c->world, PAR_ERR_MISMATCH,
        "rank %d sent %zu bytes, but rank %d receives %zu at %s, in par_%s on comm %s: make the two ends' "
        "counts agree",
        x->peer, received, c->rank, x->chunk, par__op_site(op), par_kind_name(op->call.kind), c->name);
}

// The buffers for headers and first bytes are kept, so that messages that come again allocate nothing.
static int par__alloc_first(par__world *w, par__transfer *x) { // 0: no memory
    x->first = (char *)w->idle_first;
    if (x->first)
        memcpy(&w->idle_first, x->first, sizeof w->idle_first);
    else
        x->first = (char *)PAR_MALLOC(sizeof(par__message_header) + PAR__SHORT_MESSAGE_BYTES);
    return x->first != NULL;
}
static void par__free_first(par__world *w, par__transfer *x) {
    if (x->first) {
        memcpy(x->first, &w->idle_first, sizeof w->idle_first);
        w->idle_first = x->first;
    }
    x->first = NULL;
}

static par_result par__net_chunk(par__operation *op, par__transfer *x, size_t total, int *moved) {
    par__world *w = op->comm->world;
    int done = 1;
    size_t received = 0;
    if (x->request.active) {
        par_result r = w->net->test(w, &x->request, &done, &received);
        if (!r && done && x->lane && !x->sending) r = par__check_chunk(op, x, received);
        if (r || !done) return r;
        *moved = 1;
    }
    if (x->done == total && (x->chunks || !x->lane)) {
        if (x->first_request.active) {
            const par_result r = w->net->test(w, &x->first_request, &done, &received);
            if (r) return r;
        }
        if (done) {
            if (x->mismatched) PAR_FREE(x->memory);
            par__free_first(w, x);
            x->state = PAR__TRANSFER_ENDED;
            *moved = 1;
        }
        return PAR_OK;
    }
    char *at = x->memory + (x->mismatched ? 0 : x->done); // a mismatched message drains into one chunk
    x->chunk = PAR__MIN(PAR__NET_CHUNK_BYTES, total - x->done);
    x->done += x->chunk;
    x->chunks++;
    *moved = 1;
    return par__net_issue(op, x, at, x->chunk, &x->request);
}

static par_result par__net_start(par__operation *op, par__transfer *x) {
    const size_t first = PAR__MIN(x->bytes, (size_t)PAR__SHORT_MESSAGE_BYTES);
    if (x->lane) return x->state = PAR__TRANSFER_PIECES, x->header.bytes = x->bytes, PAR_OK;
    if (!par__alloc_first(op->comm->world, x))
        return par__set_error(op->comm->world, PAR_ERR_MEMORY, "no memory for a message");
    x->state = x->sending ? PAR__TRANSFER_PIECES : PAR__TRANSFER_HEADER;
    if (!x->sending)
        return par__net_issue(op, x, x->first, sizeof(par__message_header) + PAR__SHORT_MESSAGE_BYTES,
                              &x->first_request);
    par__fill_message(op, x, (par__message_header *)x->first);
    if (first) memcpy(x->first + sizeof(par__message_header), x->memory, first);
    x->done = first;
    return par__net_issue(op, x, x->first, sizeof(par__message_header) + first, &x->first_request);
}

// Parse the header of a user message, of which `received` bytes have arrived with its first bytes. 0: no rank
// sends such a header.
static int par__parse_header(const par__transfer *x, par__message_header *m, size_t received) {
    if (received < sizeof *m) return 0;
    memcpy(m, x->first, sizeof *m);
    const size_t e = par_dtype_bytes((par_dtype)m->dtype);
    if (!e || m->count > SIZE_MAX / 8 / e || m->bytes != m->count * e || m->place || m->address ||
        !memchr(m->site, 0, sizeof m->site))
        return 0;
    par__sanitize(m->site, "");
    return received == sizeof *m + PAR__MIN((size_t)m->bytes, (size_t)PAR__SHORT_MESSAGE_BYTES);
}

static par_result par__net_progress(par__operation *op, par__transfer *x, int *moved) {
    par__world *w = op->comm->world;
    par_result r = PAR_OK;
    int done = 0;
    size_t received = 0;
    if (x->state == PAR__TRANSFER_NEW) {
        r = par__net_start(op, x);
        *moved = 1;
    }
    if (r || x->state == PAR__TRANSFER_ENDED) return r;
    if (x->state == PAR__TRANSFER_PIECES)
        return par__net_chunk(op, x, x->sending ? x->bytes : (size_t)x->header.bytes, moved);
    r = w->net->test(w, &x->first_request, &done, &received);
    if (r || !done) return r;
    if (!par__parse_header(x, &x->header, received))
        return par__set_error(w, PAR_ERR_SYSTEM,
                              "rank %d sent rank %d a message of %zu bytes without a valid header", x->peer,
                              op->comm->rank, received);
    r = par__check_message(op, x, x->header.site);
    const size_t first = PAR__MIN((size_t)x->header.bytes, (size_t)PAR__SHORT_MESSAGE_BYTES);
    if (x->mismatched) {
        x->memory = (char *)PAR_MALLOC(PAR__MIN(PAR__NET_CHUNK_BYTES, (size_t)x->header.bytes + 1));
        if (!x->memory) return par__set_error(w, PAR_ERR_MEMORY, "no memory to drain a message");
    } else if (first) {
        memcpy(x->memory, x->first + sizeof(par__message_header), first);
    }
    x->done = first;
    x->state = PAR__TRANSFER_PIECES;
    *moved = 1;
    return r;
}

static void par__net_cancel(par__world *w, par__transfer *x) { // of an operation that failed
    int touched = 0;
    if (x->state == PAR__TRANSFER_NEW || x->state == PAR__TRANSFER_ENDED) return;
    if (x->request.active) touched |= !w->net->cancel(w, &x->request);
    if (x->first_request.active) touched |= !w->net->cancel(w, &x->first_request);
    if (touched) x->first = NULL;
    par__free_first(w, x);
    x->state = PAR__TRANSFER_ENDED;
}

// A mismatched message is drained. After any other error neither the message nor its comm can go on.
static par_result par__net_step(par__operation *op, par__transfer *x, int *moved) {
    const par_result r = par__net_progress(op, x, moved);
    if (!r || r == PAR_ERR_MISMATCH) return r;
    par__net_cancel(op->comm->world, x);
    return par__break_comm(op->comm, r);
}

static par_result par__transfer_step(par__operation *op, par__transfer *x, int *moved) {
    if (par__ring_index(op->comm, x->peer) < 0) return par__net_step(op, x, moved);
    return x->sending ? par__ring_send(op, x, moved) : par__ring_recv(op, x, moved);
}

// The one cast of const for messages: what sends and what receives is one structure.
static par__transfer *par__add_transfer(par__operation *op, par__track *t, int sending, int peer,
                                        const void *memory, size_t bytes, int lane) {
    par_comm *c = op->comm;
    if (!t->transfer_count) t->ended[0] = t->ended[1] = 0;
    if (t->transfer_count == t->transfer_capacity) {
        const size_t capacity = 2 * t->transfer_capacity + 4;
        par__transfer *p = (par__transfer *)PAR_REALLOC(t->transfers, capacity * sizeof *p);
        if (!p) return NULL;
        t->transfers = p;
        t->transfer_capacity = capacity;
    }
    par__transfer *x = &t->transfers[t->transfer_count++];
    memset(x, 0, offsetof(par__transfer, header));
    x->sending = sending;
    x->peer = peer;
    x->lane = lane;
    x->bytes = x->least = bytes;
    x->memory = (char *)(uintptr_t)memory;
    if (sending && par__node_of(&c->nodes, peer) != c->nodes.my_node) {
        op->net_messages++;
        op->net_bytes += bytes;
    }
    return x;
}

// Step the transfers of one direction that can run: those with the same peer run one after the other, and at
// most PAR__WINDOW at a time, so that n of them cost n steps. Nobody waits for ever behind a window, because
// some order of all messages is that of each rank's sends and of each rank's receives: the first one that has
// not ended is in both its windows. (Rank r sends to r + 1, r + 2 ..., and receives from r - 1, r - 2 ...)
// 1: all have ended.
static int par__step_direction(par__operation *op, par__track *t, int sending, int *moved) {
    int open = 0, ended = 1;
    size_t i = t->ended[sending];
    for (; i < t->transfer_count && open < PAR__WINDOW; i++) {
        par__transfer *x = &t->transfers[i];
        const int over = x->sending != sending || x->state == PAR__TRANSFER_ENDED;
        if (over && !open) t->ended[sending] = i + 1;
        if (over) continue;
        int ready = 1;
        for (size_t j = t->ended[sending]; ready && j < i && x->state == PAR__TRANSFER_NEW; j++)
            ready = t->transfers[j].state == PAR__TRANSFER_ENDED || t->transfers[j].sending != sending ||
                    t->transfers[j].peer != x->peer;
        open++;
        const par_result r = ready ? par__transfer_step(op, x, moved) : PAR_OK;
        if (r && !op->result) op->result = r;
        ended &= x->state == PAR__TRANSFER_ENDED;
    }
    return ended && i >= t->transfer_count;
}
// Sends come first, because a receive may copy for a long time while the peer waits for this rank's send.
static int par__step_transfers(par__operation *op, par__track *t, int *moved) {
    const int sent = par__step_direction(op, t, 1, moved);
    return par__step_direction(op, t, 0, moved) && sent;
}

// >>geometry ------------------------------------------------------------------------------------------------
//
// The arrays of a call: how many elements a rank's arrays have, where its blocks are, whether the counts are
// possible. Four ranks, count 2, the arrays of rank 1:
//     all_gather       send [ab]           recv [..ab....]     a block, and one block for each rank
//     reduce_scatter   send [abcdefgh]     recv [cd]
//     all_reduce       send [ab]           recv [ab]           slices of it are multiples of a cache line
// The v forms have a count and a displacement for each block.

static size_t par__element_bytes(const par__operation *op) { return par__dtypes[op->call.dtype].bytes; }

static size_t par__call_bytes(const par__operation *op) { return op->call.count * par__element_bytes(op); }

static size_t par__block_count(const par_call *k, int r) { // elements of block r
    return k->recv_counts ? k->recv_counts[r] : k->send_counts ? k->send_counts[r] : k->count;
}
static size_t par__block_displ(const par_call *k, const size_t *counts, const size_t *displs, int r) {
    size_t at = 0;
    if (displs) return displs[r];
    if (!counts) return (size_t)r * k->count;
    for (int i = 0; i < r; i++) at += counts[i];
    return at;
}
static size_t par__send_displ(const par_call *k, int r) {
    return par__block_displ(k, k->send_counts, k->send_displs, r);
}
static size_t par__recv_displ(const par_call *k, int r) {
    return par__block_displ(k, k->recv_counts, k->recv_displs, r);
}
// Blocks whose place is negative are skipped, as those without a neighbor; places NULL: none is.
static size_t par__elements_spanned(const size_t *counts, const size_t *displs, const int *places, int n,
                                    size_t count) {
    size_t max = 0, at = 0;
    if (!counts) return (size_t)n * count;
    for (int r = 0; r < n; r++) {
        at = displs ? displs[r] : at;
        if (counts[r] && !(places && places[r] < 0)) max = PAR__MAX(max, at + counts[r]);
        at += counts[r];
    }
    return max;
}

// The elements that a rank's array spans on one side of a call, as far as this rank knows. An exchange has a
// block for each neighbor, other calls one for each rank.
static size_t par__side_span(const par_comm *c, const par_call *k, int rank, int recv) {
    const par_kind_traits *t = &par__kinds[k->kind];
    const par_side side = recv ? t->recv : t->send;
    const int same = t->counts == PAR_COUNTS_SAME;
    const size_t *counts = recv || same ? k->recv_counts : k->send_counts;
    const par_neighbors *n = par__is_exchange(k->kind) ? c->neighbors : NULL;
    const int *places = !n ? NULL : recv ? n->recv_place : n->send_place;
    if (!side || ((side & PAR_SIDE_ROOT) && rank != k->root)) return 0;
    if (side & PAR_SIDE_BLOCK) return !same ? k->count : counts ? counts[rank] : 0;
    return par__elements_spanned(counts, recv ? k->recv_displs : k->send_displs, places,
                                 n ? n->degree : c->size, k->count);
}
static void par__spans_of(const par_comm *c, const par_call *k, int rank, size_t *send, size_t *recv) {
    *send = par__side_span(c, k, rank, 0);
    *recv = par__side_span(c, k, rank, 1);
}
void par_call_spans(const par_comm *c, const par_call *k, size_t *send, size_t *recv) {
    par__spans_of(c, k, c->rank, send, recv);
}

// The elements that a rank's arrays span, as far as this rank may access them. Where only the root has counts
// it copies; where every rank has its own the arrays are never shared.
static void par__spans_shared(const par__operation *op, int rank, size_t *send, size_t *recv) {
    const par_kind_traits *t = &par__kinds[op->call.kind];
    par__spans_of(op->comm, &op->call, rank, send, recv);
    if (t->counts == PAR_COUNTS_OWN) *send = *recv = 0;
    if (t->counts != PAR_COUNTS_ROOT) return;
    const size_t block = op->comm->rank == op->call.root ? par__block_count(&op->call, rank) : 0;
    *send = t->recv == PAR_SIDE_ROOT_ALL ? block : 0;
    *recv = t->send == PAR_SIDE_ROOT_ALL ? block : 0;
}

// The bytes of the whole array, S: n blocks of the call's count, or the count itself.
static size_t par__array_bytes(const par_comm *c, const par_call *k) {
    size_t send, recv;
    par_call_spans(c, k, &send, &recv);
    return PAR__MAX(send, recv) * par__dtypes[k->dtype].bytes;
}

static void par__slice(size_t count, int n, int r, size_t e, size_t *first,
                       size_t *length) { // in whole cache lines
    const size_t unit = PAR__MAX((size_t)64 / e, (size_t)1), units = (count + unit - 1) / unit;
    const size_t a = units / (size_t)n * (size_t)r + PAR__MIN((size_t)r, units % (size_t)n);
    const size_t b = a + units / (size_t)n + ((size_t)r < units % (size_t)n);
    *first = PAR__MIN(a * unit, count);
    *length = PAR__MIN(b * unit, count) - *first;
}

// The elements that this rank sends in the direct algorithm, for the ledger.
static size_t par__volume(const par__operation *op) {
    const par_call *k = &op->call;
    const par_kind_traits *t = &par__kinds[k->kind];
    const int n = op->comm->size, me = op->comm->rank, root = me == k->root;
    const size_t others = (size_t)n - 1;
    size_t first, slice, sum = 0;
    if (par__is_message(k->kind)) return t->send ? k->count : 0;
    for (size_t i = 0; i < op->exchange.bundle_count && par__is_exchange(k->kind); i++)
        sum += op->exchange.bundles[i].sending && op->exchange.bundles[i].peer != me
                   ? op->exchange.bundles[i].bytes / par__element_bytes(op)
                   : 0;
    if (par__is_exchange(k->kind)) return sum;
    if (par__is_all_reduce(k->kind)) {
        slice = k->count / (size_t)n + ((size_t)me < k->count % (size_t)n);
        return k->count - slice + others * slice;
    }
    if (t->takes == PAR_TAKES_OP_ROOT) { // reduce
        par__slice(k->count, n, me, par__element_bytes(op), &first, &slice);
        return root ? k->count - slice : k->count;
    }
    if (t->send == PAR_SIDE_NONE || ((t->send & PAR_SIDE_ROOT) && !root)) return 0;
    if (t->send & PAR_SIDE_ALL) { // the others' blocks
        const size_t *counts = t->counts == PAR_COUNTS_SAME ? k->recv_counts : k->send_counts;
        for (int r = 0; r < n && counts; r++) sum += r == me ? 0 : counts[r];
        return counts ? sum : others * k->count;
    }
    if (t->recv == PAR_SIDE_ALL) return others * par__block_count(&op->call, me);
    return t->recv == PAR_SIDE_ROOT_ALL && root ? 0 : k->count;
}

static uint64_t par__hash_sizes(const size_t *x, int n, uint64_t h) {
    for (int i = 0; x && i < n; i++) {
        h = (h ^ x[i]) * 0x100000001b3u;
        h ^= h >> 29;
    }
    return h;
}

// The largest count, or displacement, that can be true: the sum over all ranks, in bytes, is a size_t.
static size_t par__count_max(const par_comm *c) { return SIZE_MAX / 16 / (size_t)c->size; }
static int par__has_counts(const par_call *k) {
    return k->send_counts || k->send_displs || k->recv_counts || k->recv_displs;
}
// What is wrong with the counts and displs of a call; NULL: nothing.
static const char *par__counts_error(const par_comm *c, const par_call *k) {
    const par_kind_traits *t = &par__kinds[k->kind];
    if (!t->counts && !par__has_counts(k)) return NULL;
    const int root = t->counts == PAR_COUNTS_ROOT, gather = t->recv == PAR_SIDE_ROOT_ALL;
    const int send = t->counts == PAR_COUNTS_OWN || (root && !gather), recv = t->counts && (!root || gather);
    const int displs = recv && t->recv != PAR_SIDE_BLOCK;
    if ((!send && (k->send_counts || k->send_displs)) || (!recv && k->recv_counts) ||
        (!displs && k->recv_displs))
        return "it does not take these counts or displs";
    if (root && c->rank != k->root) return NULL;
    if (send && !k->send_counts) return root ? "the root needs send_counts" : "counts is NULL";
    if (recv && !k->recv_counts) return root ? "the root needs recv_counts" : "counts is NULL";
    if (t->counts == PAR_COUNTS_OWN && k->send_counts[c->rank] != k->recv_counts[c->rank])
        return "send_counts and recv_counts differ for the own block";
    const size_t *const sizes[] = {k->send_counts, k->send_displs, k->recv_counts, k->recv_displs};
    for (int i = 0; i < 4; i++) // a negative int is huge as a size_t
        for (int r = 0; sizes[i] && r < c->size; r++)
            if (sizes[i][r] > par__count_max(c)) return "one of its counts or displs is too large to be true";
    return NULL;
}

// A message whose description is right, which most are; of any other call par__validate_call finds out.
static inline int par__is_valid_message(const par_comm *c, const par_call *k) {
    const void *memory = k->kind == PAR_KIND_SEND ? k->send : k->recv;
    return (k->kind == PAR_KIND_SEND || k->kind == PAR_KIND_RECV) && (unsigned)k->dtype < PAR_DTYPE_COUNT &&
           (unsigned)k->root < (unsigned)c->size && k->count >> 40 == 0 && (memory || !k->count) &&
           !par__has_counts(k);
}
static int par__validate_call(const par_comm *c, const par_call *k) {
    const par_kind_traits *t = par_kind_traits_of(k->kind);
    const char *why = NULL;
    size_t send = 0, recv = 0;
    if ((unsigned)k->kind >= PAR_KIND_COUNT)
        why = "no such kind";
    else if (par__is_exchange(k->kind))
        why = "call par_neighbor_exchange for it";
    else
        why = par__op_error(k->op, k->dtype);
    if (!why && !par__takes_tag(k->kind) && (k->root < 0 || k->root >= c->size))
        why =
            par__is_message(k->kind) ? "peer is not a rank of this comm" : "root is not a rank of this comm";
    if (!why && k->count == (size_t)PAR__TWO_SIZES)
        why = "the own block has another size where it is sent than where it is received";
    if (!why) why = par__counts_error(c, k);
    if (!why && k->count > par__count_max(c)) why = "count is too large to be true";
    if (!why && (!k->send || !k->recv) &&
        !(par__is_message(k->kind) && (t->send ? k->send != NULL : k->recv != NULL))) {
        par_call_spans(c, k, &send, &recv);
        if (send && !k->send)
            why = "send is NULL";
        else if (recv && !k->recv)
            why = "recv is NULL";
    }
    if (why)
        par__set_error(c->world, PAR_ERR_ARGUMENT,
                       "par_%s at %s: %s (count=%zu, dtype=%s, root=%d, %d ranks)", t->name, k->site, why,
                       k->count == (size_t)PAR__TWO_SIZES ? 0 : k->count, par_dtype_name(k->dtype),
                       par__root_or_tag(k), c->size);
    return !why;
}

// Fill in what a call leaves to its comm or its counts, and clear what its kind does not use.
static void par__complete_call(par_comm *c, par_call *k) {
    const par_kind_traits *t = &par__kinds[(unsigned)k->kind < PAR_KIND_COUNT ? k->kind : PAR_KIND_COUNT];
    if (!k->site) k->site = c->site ? c->site : "?";
    c->site = NULL;
    if (t->takes == PAR_TAKES_PEER) {
        k->op = PAR_SUM;
        k->tag = 0;
        return;
    }
    if (!(t->takes & PAR_TAKES_OP)) k->op = PAR_SUM;
    if (!t->send && !t->recv) {
        k->dtype = PAR_U8;
        k->count = 0;
    }
    if (t->counts && t->counts != PAR_COUNTS_ROOT) {
        k->count = 0; // or the largest block
        for (int r = 0; r < c->size && t->counts == PAR_COUNTS_SAME && k->recv_counts; r++)
            k->count = PAR__MAX(k->count, k->recv_counts[r]);
    }
    if (t->takes & PAR_TAKES_ROOT) {
        k->tag = 0;
        return;
    }
    if (!k->tag) k->tag = c->tag;
    k->root = c->tag = 0;
}

// >>program -------------------------------------------------------------------------------------------------
//
// An algorithm is a function that emits the actions of one piece of the array. The interpreter runs them,
// returns when an action must wait, and resumes there later. So every algorithm works blocking and
// nonblocking without knowing which. Between nodes several pieces are in flight, each on a track with its own
// phases, stage and messages:
//     track 0   piece 0 ...... piece 4 ......
//     track 1     piece 1 ...... piece 5 ......
//     track 2       piece 2 ...... piece 6 ......
//     WAIT_ALL, WAIT    until all ranks of this node, or one of them, have published a phase
//     PUBLISH           a phase: peers may now read what this rank wrote, and overwrite what it read
//     COPY, PULL, PUT   bytes from src to dst: within this rank, from another rank, to another rank
//     REDUCE            (partial sum at src) op input[first] op ... -> dst, one rank's output, or all outputs
//     SEND, RECV, JOIN  issue a message; JOIN waits for all that were issued
//     COMPARE           the counts of this rank's blocks with those of their senders (>>arrival)
//     COMBINE           dst op src -> dst, partial results in the accumulator's type
//     TRANSPOSE         rows of blocks at src to columns at dst
// A piece may use the phases track->phase + 1 ... + PAR__PHASES, and the half of each rank's stage that
// par__stage_half returns. A half may be overwritten because its last readers have published their next piece
// (or arrived at the next call) since then, and every piece that stages waits until all ranks on the node
// have done so.

static par__action *par__emit(par__operation *op, par__verb verb) {
    par__track *t = op->track;
    if (t->action_count == t->action_capacity) {
        const size_t capacity = 2 * t->action_capacity + 16;
        par__action *p = (par__action *)PAR_REALLOC(t->actions, capacity * sizeof *p);
        if (!p) return par__no_memory(op), &op->discard;
        t->actions = p;
        t->action_capacity = capacity;
    }
    par__action *a = &t->actions[t->action_count++];
    a->verb = verb;
    return a;
}
static void par__emit_wait_all(par__operation *op, int phase) {
    par__emit(op, PAR__WAIT_ALL)->phase = op->track->phase + (uint32_t)phase;
}
static void par__emit_publish(par__operation *op, int phase) {
    par__emit(op, PAR__PUBLISH)->phase = op->track->phase + (uint32_t)phase;
}
static void par__emit_wait(par__operation *op, int rank, int phase) {
    par__action *a = par__emit(op, PAR__WAIT);
    a->rank = rank;
    a->phase = op->track->phase + (uint32_t)phase;
}
static void par__emit_copy_by(par__operation *op, void *dst, const void *src, size_t bytes, int stream) {
    if (!bytes || dst == src) return;
    par__action *a = par__emit(op, PAR__COPY);
    a->dst = (char *)dst;
    a->src = (const char *)src;
    a->bytes = bytes;
    a->stream = stream;
}
static void par__emit_copy(par__operation *op, void *dst, const void *src, size_t bytes) {
    par__emit_copy_by(op, dst, src, bytes, op->arrays.nontemporal);
}
// The same from a stage to this rank's result.
static void par__emit_unstage(par__operation *op, void *dst, const void *src, size_t bytes) {
    par__emit_copy_by(op, dst, src, bytes, op->arrays.nontemporal | op->arrays.stream_recv);
}
// The same from or to an address in rank's memory, as in input[] and output[], whether this process can
// address it or not. (An address of another process may be equal to one of this process.)
static void par__emit_cma(par__operation *op, par__verb verb, int rank, void *dst, const void *src,
                          size_t bytes) {
    if (!(op->arrays.cma[rank] & (verb == PAR__PULL ? PAR__SEND_CMA : PAR__RECV_CMA))) {
        par__emit_copy(op, dst, src, bytes);
        return;
    }
    par__action *a = par__emit(op, verb);
    a->rank = rank;
    a->dst = (char *)dst;
    a->src = (const char *)src;
    a->bytes = bytes;
}
static void par__emit_pull(par__operation *op, int rank, void *dst, const void *src, size_t bytes) {
    par__emit_cma(op, PAR__PULL, rank, dst, src, bytes);
}
static void par__emit_put(par__operation *op, int rank, void *dst, const void *src, size_t bytes) {
    par__emit_cma(op, PAR__PUT, rank, dst, src, bytes);
}
static par__action *par__emit_message(par__operation *op, par__verb verb, int peer, const void *memory,
                                      size_t bytes) {
    if (!bytes) return &op->discard; // both ends know that
    par__action *a = par__emit(op, verb);
    a->rank = peer;
    a->src = (const char *)memory; // of a receive: to be written
    a->bytes = a->least = bytes;
    a->lane = 1 + op->track->index;
    return a;
}
static void par__emit_join(par__operation *op) { par__emit(op, PAR__JOIN); }
// Reduce ranks first..last over `count` elements at byte `offset` of the array. finalize: apply AVG's
// division and round.
static par__action *par__emit_reduce(par__operation *op, int first, int last, size_t offset, size_t count,
                                     const void *partial, void *dst, int finalize) {
    par__action *a = par__emit(op, PAR__REDUCE);
    a->first = first;
    a->last = last;
    a->offset = offset;
    a->count = count;
    a->finalize = finalize;
    a->src = (const char *)partial;
    a->dst = (char *)dst;
    a->rank = -1;
    a->push = a->keep = 0;
    return a;
}

// The bytes of a slot where a half of a stage has so many: whole cache lines. Rows between nodes fit where
// there are slots, or find other memory.
static int par__has_slots(const par__operation *op, size_t slots) {
    return slots <= op->comm->half_bytes / 64;
}
static size_t par__slot_bytes(const par__operation *op, size_t slots) {
    PAR_ASSERT(par__has_slots(op, slots));
    return op->comm->half_bytes / slots / 64 * 64;
}
static char *par__stage_half(const par__operation *op, int rank) {
    const par__track *t = op->track;
    return par__stage_of(op->comm, rank) + ((unsigned)t->index * 2 + (t->half & 1u)) * op->comm->half_bytes;
}

// Sources that this process cannot address are copied to its stage, and results are copied from there, one
// block at a time, which begins in its slot where it begins in a cache line of the array (par__moves_slowly).
static void par__run_reduce(par__operation *op, const par__action *a) {
    par_comm *c = op->comm;
    const size_t e = par__element_bytes(op), wide = par__dtypes[par__accumulator(op->call.dtype)].bytes;
    void **out = op->arrays.destinations;
    int cma_sources = 0, any_cma = 0;
    for (int r = 0; r < c->size && c->nodes.node_count == 1; r++) any_cma |= op->arrays.cma[r];
    for (int r = a->first; r <= a->last; r++) cma_sources += (op->arrays.cma[r] & PAR__SEND_CMA) != 0;
    const size_t slot = par__slot_bytes(op, (size_t)cma_sources + 1);
    const size_t skew = slot < 4096 ? 0 : 63;
    const size_t capacity = any_cma ? (slot - skew) / e : a->count;
    for (size_t at = 0; at < a->count; at += capacity) {
        const size_t count = PAR__MIN(capacity, a->count - at), offset = a->offset + at * e;
        char *half = par__stage_half(op, c->rank), *next = half;
        int outs = 0;
        for (int r = a->first; r <= a->last; r++) {
            const char *x = op->arrays.input[r] + offset;
            op->arrays.sources[r - a->first] = x;
            if (!(op->arrays.cma[r] & PAR__SEND_CMA)) continue;
            char *to = (next += slot) + ((uintptr_t)x & skew);
            op->arrays.sources[r - a->first] = to;
            par__run_cma(op, r, par__iovec(to, count * e), (uintptr_t)x, 0);
        }
        for (int i = 0; i < c->size && (a->push || a->rank >= 0); i++) {
            const int r = (c->rank + i) % c->size, writes = a->push || r == a->rank;
            if (writes && !(op->arrays.cma[r] & PAR__RECV_CMA)) out[outs++] = op->arrays.output[r] + offset;
        }
        if (a->dst) out[outs++] = a->dst + at * (a->finalize ? e : wide);
        if (a->keep) out[outs++] = (char *)op->call.recv + offset;
        if (!outs) out[outs++] = half + ((uintptr_t)(op->arrays.output[a->rank] + offset) & skew);
        if (op->result) return;
        par__reduce_sources(c->world->kernels, out, outs, a->src ? a->src + at * wide : NULL,
                            op->arrays.sources, a->last - a->first + 1, count, op->call.dtype, op->call.op,
                            a->finalize ? c->size : 0, op->arrays.nontemporal);
        for (int r = 0; r < c->size && any_cma; r++)
            if ((a->push || r == a->rank) && (op->arrays.cma[r] & PAR__RECV_CMA))
                par__run_cma(op, r, par__iovec(out[0], count * e), (uintptr_t)(op->arrays.output[r] + offset),
                             1);
    }
}

static void par__run_combine(const par__operation *op, const par__action *a) {
    const par__dtype_kernels *k = &op->comm->world->kernels->of[par__accumulator(op->call.dtype)];
    k->op[par__op_row[par__op_code(op->call.op)]](a->dst, a->left ? a->src : a->dst,
                                                  a->left ? a->dst : a->src, a->count);
}
static void par__run_transpose(const par__action *a) {
    const char *from = a->src;
    for (int r = 0; r < a->first; r++)
        for (int i = 0; i < a->last; i++, from += a->bytes)
            memcpy(a->dst + (size_t)i * a->offset + (size_t)r * a->bytes, from, a->bytes);
}
static void par__compare_counts(par__operation *op);
static void par__stream_copy(const par__kernels *k, char *to, const char *from, size_t bytes) {
    const size_t first = PAR__MIN(bytes, (64 - (uintptr_t)to % 64) % 64); // up to a cache line's begin
    memcpy(to, from, first);
    k->copy2(to + first, NULL, from + first, bytes - first, 1);
}
static int par__phase_reached(const par__operation *op, int rank, uint32_t phase) {
    return (int32_t)(PAR__LOAD(&par__arrivals_of(op->comm, rank)->phase[op->track->index]) - phase) >= 0;
}

// Run what can run now on the current track. 1: nothing is left, or op->result has an error. *moved = 1: an
// action was done.
static int par__run_actions(par__operation *op, int *moved) {
    par_comm *c = op->comm;
    par__track *t = op->track;
    const par__layout *l = &c->nodes;
    par__transfer *x;
    int blocked = 0, wake_due = 0; // wake_due: a phase was published and sleepers are not yet woken
    while (t->at < t->action_count && !blocked) {
        const par__action *a = &t->actions[t->at];
        if (wake_due && a->verb != PAR__WAIT_ALL && a->verb != PAR__WAIT) {
            par__ring_doorbells(c, -1);
            wake_due = 0;
        }
        switch (a->verb) {
        case PAR__WAIT_ALL:
            for (int i = 0, n = par__node_size(l, l->my_node); i < n && !blocked; i++)
                blocked = !par__phase_reached(op, par__node_rank(l, l->my_node, i), a->phase);
            break;
        case PAR__WAIT: blocked = !par__phase_reached(op, a->rank, a->phase); break;
        case PAR__PUBLISH:
            PAR__STORE(&par__arrivals_of(c, c->rank)->phase[t->index], a->phase);
            wake_due = 1;
            break;
        case PAR__COPY:
            if (a->stream)
                par__stream_copy(c->world->kernels, a->dst, a->src, a->bytes);
            else
                par__copy(c->world->kernels, a->dst, a->src, a->bytes);
            break;
        case PAR__PULL: par__run_cma(op, a->rank, par__iovec(a->dst, a->bytes), (uintptr_t)a->src, 0); break;
        case PAR__PUT: par__run_cma(op, a->rank, par__iovec(a->src, a->bytes), (uintptr_t)a->dst, 1); break;
        case PAR__REDUCE: par__run_reduce(op, a); break;
        case PAR__SEND:
        case PAR__RECV:
            x = par__add_transfer(op, t, a->verb == PAR__SEND, a->rank, a->src, a->bytes, a->lane);
            if (!x) par__no_memory(op);
            if (x) x->least = a->least;
            break;
        case PAR__JOIN:
            blocked = !par__step_transfers(op, t, moved);
            if (!blocked) t->transfer_count = 0;
            break;
        case PAR__COMPARE: par__compare_counts(op); break;
        case PAR__COMBINE: par__run_combine(op, a); break;
        case PAR__TRANSPOSE: par__run_transpose(a); break;
        }
        if (op->result) return 1;
        if (!blocked) {
            t->at++;
            *moved = 1;
        }
    }
    if (wake_due) par__ring_doorbells(c, -1);
    if (blocked && t->transfer_count) par__step_transfers(op, t, moved);
    return !blocked;
}

static char *par__get_scratch(par__operation *op, size_t bytes) {
    if (bytes > op->scratch_bytes) {
        PAR_FREE(op->scratch);
        op->scratch = (char *)PAR_MALLOC(bytes);
        op->scratch_bytes = op->scratch ? bytes : 0;
        if (!op->scratch) par__no_memory(op);
    }
    return op->scratch;
}

// Where each block begins, NULL: at its number times the count. (par__recv_displ adds all counts before it.)
static const size_t *par__all_displs(par__operation *op) {
    const par_call *k = &op->call;
    if (k->recv_displs || !k->recv_counts) return k->recv_displs;
    size_t *displs = (size_t *)(void *)par__get_scratch(op, sizeof(size_t) * (size_t)op->comm->size), at = 0;
    for (int r = 0; r < op->comm->size && displs; at += k->recv_counts[r++]) displs[r] = at;
    return displs;
}

// >>eager ---------------------------------------------------------------------------------------------------
//
//     rank 0   [call x0]-.
//     rank 1   [call x1]-+-> every rank sends its data with its arrival: a rank that has seen all
//     rank 2   [call x2]-+   arrivals has all data, and copies, or adds in rank order, what it needs
//     rank 3   [call x3]-'
// inline: the data are in the arrival record itself. eager: the data are in the rank's stage, if all ranks
// sent them so; the limit is higher for ordinary memory than for symmetric memory, which others could read in
// place. Below both limits (SMALL) the flags of the arrivals do not matter. 1 step, no further
// synchronization: the half that holds the data is not written again before all ranks have arrived at the
// next call. Between nodes small data are attached to digests (>>arrival), and the leader of a node writes
// what its ranks need into its verdict, or its stage.

static size_t par__eager_blocks(const par__operation *op) { // of `count` elements, in what a rank sends
    return par__kinds[op->call.kind].send & PAR_SIDE_ALL ? (size_t)op->comm->size : 1;
}
// The bytes of the input that other ranks need; SIZE_MAX: this kind of call is never eager.
static size_t par__eager_bytes(const par__operation *op) {
    const par_kind_traits *t = &par__kinds[op->call.kind];
    if (!(t->runs & PAR_RUNS_EAGER)) return SIZE_MAX;
    return op->call.count * par__element_bytes(op) * par__eager_blocks(op);
}

static int par__has_input(const par__operation *op) { // that other ranks need
    return !(par__kinds[op->call.kind].send & PAR_SIDE_ROOT) || op->comm->rank == op->call.root;
}

static size_t par__eager_own_bytes(const par__operation *op) { // that this rank sends
    if (!op->call.count || !par__has_input(op)) return 0;
    return par__kinds[op->call.kind].counts
               ? par__block_count(&op->call, op->comm->rank) * par__element_bytes(op)
               : par__eager_bytes(op);
}
// What is attached to digests: nothing; what the root sends; what each rank sends, node after node;
// or sums of integers, in any order.
typedef enum par__attaching {
    PAR__ATTACH_NOTHING,
    PAR__ATTACH_ROOT,
    PAR__ATTACH_ALL,
    PAR__ATTACH_SUM
} par__attaching;
typedef struct par__payload {
    par__attaching how;
    size_t slot, bytes; // of a rank's data, or of a sum; of all that a leader has at the end
    size_t needed;      // bytes of it, or of the result, that the ranks of a node need then
} par__payload;
static par__payload par__payload_if_attached(const par__operation *op) {
    const par_kind_traits *t = &par__kinds[op->call.kind];
    const size_t slot = par__eager_bytes(op);
    par__payload p;
    p.how = !slot ? PAR__ATTACH_NOTHING : t->send & PAR_SIDE_ROOT ? PAR__ATTACH_ROOT : PAR__ATTACH_ALL;
    p.slot = p.bytes = p.needed = slot;
    if (p.how == PAR__ATTACH_ALL && (t->takes & PAR_TAKES_OP) && !par__is_float(op->call.dtype) &&
        slot <= PAR__ATTACHED_BYTES) {
        p.how = PAR__ATTACH_SUM;
        p.bytes = 2 * slot;
    }
    if (p.how == PAR__ATTACH_ALL) p.bytes = slot * (size_t)op->comm->size;
    if (p.how == PAR__ATTACH_ALL && !(t->takes & PAR_TAKES_OP)) p.needed = p.bytes;
    return p;
}
// Values of all ranks are attached up to so many bytes in all. Then each node receives them in log(k) steps,
// where a chain of k nodes takes k: a message takes as long as PAR__LINK_BYTES of a longer one, and to add as
// many takes as long again. What the ranks of a node need fits a half of a stage.
static size_t par__attached_max(const par_comm *c) {
    return PAR__MIN((size_t)PAR__ATTACHED_MAX, PAR__LINK_BYTES / 2 * (size_t)c->nodes.node_count);
}
static int par__is_attached(const par__operation *op) {
    const size_t half = op->comm->half_bytes;
    if (par__eager_bytes(op) > half) return 0; // or never
    const par__payload p = par__payload_if_attached(op);
    return p.how == PAR__ATTACH_ALL ? p.bytes <= par__attached_max(op->comm) && p.needed <= half
                                    : p.slot <= PAR__ATTACHED_BYTES;
}
static par__payload par__payload_of(const par__operation *op) {
    par__payload none;
    memset(&none, 0, sizeof none);
    return op->eager ? par__payload_if_attached(op) : none;
}
// Where a rank's attached data are until its leader takes them, and what its node needs afterwards: no
// algorithm that ends without waiting for all ranks of the node uses these halves.
static char *par__attached_half(const par__operation *op, int rank) {
    return par__stage_of(op->comm, rank) + (2 + (op->sequence & 1u)) * op->comm->half_bytes;
}
static par__verdict_line *par__verdict_of(const par_comm *c, uint32_t sequence) {
    return &c->board->verdicts[sequence & 1u];
}
static void par__send_eager(par__operation *op,
                            par__arrival *arrival) { // to where peers expect the data
    par_comm *c = op->comm;
    const size_t bytes = par__eager_own_bytes(op);
    char *to = (char *)arrival->u.data;
    if (op->eager == PAR__EAGER_ATTACHED) {
        to = par__attached_half(op, c->rank);
    } else if (op->eager != PAR__EAGER_INLINE) {
        op->track->half = c->half + 1;
        to = par__stage_half(op, c->rank);
    }
    if (bytes) par__copy(c->world->kernels, to, op->call.send, bytes);
}

// The sum, or the blocks, of what all ranks have sent: sources[r] is where rank r's is.
static void par__take_eager(const par_comm *c, const par_call *k, const void *const *sources) {
    const par_kind_traits *t = &par__kinds[k->kind];
    const par__kernels *kernels = c->world->kernels;
    const size_t e = par__dtypes[k->dtype].bytes;
    const int root = c->rank == k->root;
    if (!k->count || ((t->recv & PAR_SIDE_ROOT) && !root)) return;
    if (t->takes & PAR_TAKES_OP) {
        par__reduce_apart(kernels, k->recv, sources, c->size, k->count, k->dtype, k->op);
    } else if (t->send & PAR_SIDE_ROOT) {
        if (!root || k->recv != k->send) par__copy(kernels, k->recv, sources[k->root], k->count * e);
    } else {
        for (int r = 0; r < c->size; r++)
            if (par__block_count(k, r))
                par__copy(kernels, (char *)k->recv + par__recv_displ(k, r) * e, sources[r],
                          par__block_count(k, r) * e);
    }
}
static size_t par__eager_from(const par_comm *c, const par_call *k) { // where this rank's block of it begins
    return par__kinds[k->kind].send & PAR_SIDE_ALL ? (size_t)c->rank * k->count * par__dtypes[k->dtype].bytes
                                                   : 0;
}
static void par__receive_eager(par__operation *op) {
    par_comm *c = op->comm;
    if (op->eager != PAR__EAGER_INLINE) op->track->half = ++c->half;
    for (int r = 0; r < c->size; r++)
        op->arrays.sources[r] =
            par__eager_from(c, &op->call) + (op->eager == PAR__EAGER_INLINE
                                                 ? (const char *)par__arrival_of(c, r, op->sequence)->u.data
                                                 : par__stage_half(op, r));
    par__take_eager(c, &op->call, op->arrays.sources);
}

// >>oneshot -------------------------------------------------------------------------------------------------
//
//     rank 0   [x0] publish --- wait for all --- read own part of x0, x1, x2, x3
//     rank 1   [x1] publish --- wait for all --- read own part of x0, x1, x2, x3
//     rank 2   [x2] publish --- wait for all --- read own part of x0, x1, x2, x3
//     rank 3   [x3] publish --- wait for all --- read own part of x0, x1, x2, x3
//
// If all arrays are addressable, ranks read the peers' own buffers, in one piece; otherwise pieces pass
// through the stages. all_reduce: every rank adds everything: (n+3)S bytes, for small S. The others: each
// byte is read once, by the rank that needs it. No input is overwritten before all ranks have published that
// they have read it.

static void par__set_input(par__operation *op, int r, const char *at) {
    op->arrays.input[r] = at;
    op->arrays.cma[r] &= (unsigned char)~PAR__SEND_CMA;
}
// Point input[] at the peers' stages, where byte `at` of their arrays is `skip` bytes in.
static void par__inputs_from_stages(par__operation *op, size_t at, size_t skip) {
    const par_comm *c = op->comm;
    const par__layout *l = &c->nodes;
    for (int i = 0; i < par__node_size(l, l->my_node); i++) {
        const int r = par__node_rank(l, l->my_node, i);
        if (r != c->rank && !(op->arrays.flags[r] & PAR__SEND_SHARED))
            par__set_input(op, r, (const char *)((uintptr_t)par__stage_half(op, r) + skip - at));
    }
}
static int par__must_stage(const par__operation *op) { // peers cannot read the input in place
    return !(op->arrays.flags[op->comm->rank] & PAR__SEND_SHARED);
}
static const char *par__input_at(const par__operation *op, size_t byte) {
    return (const char *)op->call.send + byte;
}
static char *par__output_at(const par__operation *op, size_t byte) { return (char *)op->call.recv + byte; }

// Whole arrays (all_reduce): all inputs are staged even if addressable, because results overwrite inputs in
// place.
static void par__emit_oneshot_all_reduce(par__operation *op) {
    par_comm *c = op->comm;
    const size_t e = par__element_bytes(op), capacity = op->comm->half_bytes / e, at = op->offset;
    const size_t n = PAR__MIN(capacity, op->call.count - at);
    for (int r = 0; r < c->size; r++)
        par__set_input(op, r, (const char *)((uintptr_t)par__stage_half(op, r) - at * e));
    par__emit_copy(op, par__stage_half(op, c->rank), par__input_at(op, at * e), n * e);
    par__emit_publish(op, 1);
    par__emit_wait_all(op, 1);
    par__emit_reduce(op, 0, c->size - 1, at * e, n, NULL, par__output_at(op, at * e), 1);
    op->offset += n;
    op->more_pieces = op->offset < op->call.count;
}

static size_t par__largest_block(const par__operation *op) { // elements of the largest block
    size_t max = 0;
    if (!par__kinds[op->call.kind].counts) return op->call.count;
    for (int r = 0; r < op->comm->size; r++) max = PAR__MAX(max, par__block_count(&op->call, r));
    return max;
}

static void par__emit_oneshot_reduce_scatter(par__operation *op) {
    par_comm *c = op->comm;
    const size_t e = par__element_bytes(op),
                 slot = op->arrays.send_addressable ? SIZE_MAX : par__slot_bytes(op, (size_t)c->size);
    const size_t max = par__largest_block(op), at = op->offset,
                 capacity = op->arrays.send_addressable ? max : slot / e;
    const size_t mine = par__block_count(&op->call, c->rank),
                 n = mine > at ? PAR__MIN(capacity, mine - at) : 0;
    const size_t me_at = (par__recv_displ(&op->call, c->rank) + at) * e;
    if (!op->arrays.send_addressable) {
        for (int b = 0; b < c->size && par__must_stage(op); b++) {
            const size_t count = par__block_count(&op->call, b),
                         m = count > at ? PAR__MIN(capacity, count - at) : 0;
            if (b != c->rank)
                par__emit_copy(op, par__stage_half(op, c->rank) + (size_t)b * slot,
                               par__input_at(op, (par__recv_displ(&op->call, b) + at) * e), m * e);
        }
        par__emit_publish(op, 1);
        par__emit_wait_all(op, 1);
        par__inputs_from_stages(op, me_at, (size_t)c->rank * slot);
    }
    if (n) par__emit_reduce(op, 0, c->size - 1, me_at, n, NULL, par__output_at(op, at * e), 1);
    op->offset += capacity;
    op->more_pieces = op->offset < max;
    if (!op->more_pieces) {
        par__emit_publish(op, 2);
        par__emit_wait_all(op, 2);
    }
}

static void par__emit_oneshot_all_gather(par__operation *op) {
    par_comm *c = op->comm;
    const size_t e = par__element_bytes(op), max = par__largest_block(op), at = op->offset;
    const size_t capacity = op->arrays.send_addressable ? max : op->comm->half_bytes / e;
    for (int i = 0; i < c->size; i++) {
        const int r = (c->rank + i) % c->size; // own block first; then different peers
        const size_t count = par__block_count(&op->call, r),
                     m = count > at ? PAR__MIN(capacity, count - at) : 0;
        char *to = par__output_at(op, (par__recv_displ(&op->call, r) + at) * e);
        if (i == 0 && !op->arrays.send_addressable) {
            if (par__must_stage(op))
                par__emit_copy(op, par__stage_half(op, r), par__input_at(op, at * e), m * e);
            par__emit_publish(op, 1);
        }
        if (i == 1 && !op->arrays.send_addressable) {
            par__emit_wait_all(op, 1);
            par__inputs_from_stages(op, at * e, 0);
        }
        if (i == 0)
            par__emit_copy(op, to, par__input_at(op, at * e), m * e);
        else
            par__emit_pull(op, r, to, op->arrays.input[r] + at * e, m * e);
    }
    op->offset += capacity;
    op->more_pieces = op->offset < max;
    if (!op->more_pieces) {
        par__emit_publish(op, 2);
        par__emit_wait_all(op, 2);
    }
}

// The bytes of a reader's or a writer's block that the root copies: 1/n of it where all can address what is
// needed and the root has no copy of its own to make; else none.
static size_t par__root_share(const par__operation *op, int addressable, size_t bytes) {
    if (!addressable || !(op->arrays.flags[op->call.root] & PAR__IN_PLACE)) return 0;
    return bytes / (size_t)op->comm->size / 64 * 64;
}

// Addressable: readers copy from the root, which writes its share. Staged: the root fills one half while the
// others read the other.
static void par__emit_oneshot_broadcast(par__operation *op) {
    par_comm *c = op->comm;
    const int n = c->size, root = op->call.root;
    const unsigned flags = op->arrays.flags[root];
    const int direct = (flags & (PAR__SEND_SHARED | PAR__SEND_CMA)) != 0;
    const size_t e = par__element_bytes(op), at = op->offset, rest = op->call.count - at;
    const size_t count = direct ? rest : PAR__MIN(rest, op->comm->half_bytes / e);
    const size_t share = par__root_share(op, direct && op->arrays.recv_addressable, count * e);
    const size_t read = count * e - share;
    if (c->rank != root) {
        if (!direct) {
            par__inputs_from_stages(op, at * e, 0);
            par__emit_wait(op, root, 1);
        }
        par__emit_pull(op, root, par__output_at(op, at * e), op->arrays.input[root] + at * e, read);
    } else if (!direct) {
        if (op->piece >= 2) par__emit_wait_all(op, 2 - 2 * PAR__PHASES); // all have read this half
        par__emit_copy(op, par__stage_half(op, root), par__input_at(op, at * e), count * e);
        par__emit_publish(op, 1);
        par__emit_copy(op, par__output_at(op, at * e), par__input_at(op, at * e), count * e);
    } else {
        par__emit_copy(op, op->call.recv, op->call.send, read);
        for (int i = 1; i < n && share; i++) {
            const int r = (root + i) % n;
            par__emit_put(op, r, op->arrays.output[r] + read, par__input_at(op, read), share);
        }
    }
    op->offset += count;
    op->more_pieces = op->offset < op->call.count;
    par__emit_publish(op, 2);
    if (!op->more_pieces) par__emit_wait_all(op, 2);
}

// gather: every rank writes its block to the root; scatter: every rank reads its block from the root. The
// root copies its share of each.
static void par__emit_oneshot_rooted(par__operation *op) {
    const par_call *k = &op->call;
    const int n = op->comm->size, me = op->comm->rank, root = k->root, gather = k->kind == PAR_KIND_GATHER;
    const size_t block = par__call_bytes(op), mine = (size_t)me * block;
    const size_t share =
        par__root_share(op, gather ? op->arrays.send_addressable : op->arrays.recv_addressable, block);
    const size_t rest = block - share;
    if (me != root && gather) par__emit_put(op, root, op->arrays.output[root] + mine, k->send, rest);
    if (me != root && !gather) par__emit_pull(op, root, k->recv, op->arrays.input[root] + mine, rest);
    if (me == root && gather) par__emit_copy(op, par__output_at(op, mine), k->send, block);
    if (me == root && !gather) par__emit_copy(op, k->recv, par__input_at(op, mine), block);
    for (int i = 1; i < n && me == root && share; i++) {
        const int r = (root + i) % n;
        const size_t at = (size_t)r * block + rest;
        if (gather)
            par__emit_pull(op, r, par__output_at(op, at), op->arrays.input[r] + rest, share);
        else
            par__emit_put(op, r, op->arrays.output[r] + rest, par__input_at(op, at), share);
    }
    par__emit_publish(op, 1);
    par__emit_wait_all(op, 1);
}

// all_to_all: every rank reads. gatherv and scatterv: the root, which alone knows where the blocks are, reads
// or writes.
static void par__emit_oneshot_blocks(par__operation *op) {
    const par_kind kind = op->call.kind;
    const int n = op->comm->size, me = op->comm->rank, acts = !par__takes_root(kind) || me == op->call.root;
    const size_t e = par__element_bytes(op), block = par__call_bytes(op);
    for (int i = 0; i < n && acts; i++) {
        const int r = (me + i) % n;
        const size_t bytes = par__block_count(&op->call, r) * e;
        if (kind == PAR_KIND_SCATTERV)
            par__emit_put(op, r, op->arrays.output[r], par__input_at(op, par__send_displ(&op->call, r) * e),
                          bytes);
        else
            par__emit_pull(op, r, par__output_at(op, par__recv_displ(&op->call, r) * e),
                           op->arrays.input[r] + (kind == PAR_KIND_GATHERV ? 0 : (size_t)me * block), bytes);
    }
    par__emit_publish(op, 1);
    par__emit_wait_all(op, 1);
}

// >>twoshot -------------------------------------------------------------------------------------------------
//
//     slice        0    1    2    3
//     rank 0      [+]   .    .    .   -->  0 1 2 3     each rank reduces its slice over all ranks, then all
//     rank 1       .   [+]   .    .   -->  0 1 2 3     exchange slices; 2 synchronizations for each piece
//     rank 2       .    .   [+]   .   -->  0 1 2 3     addressable: n slices read, n written: 2S bytes
//     rank 3       .    .    .   [+]  -->  0 1 2 3     staged: (5 - 2/n)S bytes, in pieces that stay in cache
//
// Only its owner writes a slice; others read it only before that (input) or afterwards (result).

static void par__emit_twoshot(par__operation *op) { // all_reduce; reduce: only the root gets the result
    par_comm *c = op->comm;
    const int rooted = par__takes_root(op->call.kind), receives = !rooted || c->rank == op->call.root;
    const int push = rooted ? op->arrays.output[op->call.root] != NULL : op->arrays.recv_addressable;
    const int zero_copy = op->arrays.send_addressable && push;
    const size_t e = par__element_bytes(op), at = op->offset;
    const size_t n = PAR__MIN(op->call.count - at, zero_copy ? SIZE_MAX : op->comm->half_bytes / e);
    size_t first, length;
    par__slice(n, c->size, c->rank, e, &first, &length);
    const size_t mine = (at + first) * e, end = first + length;
    char *stage = par__stage_half(op, c->rank);
    if (!zero_copy) {
        if (par__must_stage(op)) { // nobody else reads the own slice
            par__emit_copy(op, stage, par__input_at(op, at * e), first * e);
            par__emit_copy(op, stage + end * e, par__input_at(op, (at + end) * e), (n - end) * e);
        }
        par__emit_publish(op, 1);
        par__emit_wait_all(op, 1);
        par__inputs_from_stages(op, at * e, 0);
    }
    if (length) {
        par__action *a = par__emit_reduce(op, 0, c->size - 1, mine, length, NULL, stage + first * e, 1);
        if (push) {
            a->dst = NULL;
            a->push = !rooted;
            a->rank = rooted ? op->call.root : -1;
        }
        a->keep = !push && receives && !op->arrays.stream_recv;
    }
    par__emit_publish(op, 2);
    if (!push && receives && op->arrays.stream_recv)
        par__emit_unstage(op, par__output_at(op, mine), stage + first * e, length * e);
    par__emit_wait_all(op, 2);
    for (int i = 1; i < c->size && !push && receives; i++) {
        const int r = (c->rank + i) % c->size;
        par__slice(n, c->size, r, e, &first, &length);
        par__emit_unstage(op, par__output_at(op, (at + first) * e), par__stage_half(op, r) + first * e,
                          length * e);
    }
    op->offset += n;
    op->more_pieces = op->offset < op->call.count;
}

// >>chain ---------------------------------------------------------------------------------------------------
//
// A sum across nodes in rank order, whatever ranks the nodes have: the partial sum visits the segments of
// consecutive ranks in turn, in the accumulator's type; the last segment's node sends the result to the nodes
// whose ranks need it.
//     segment 0 (ranks 0 1)    s = x0 + x1  --.
//     segment 1 (ranks 2 3)                   '->  s + x2 + x3  --.
//     segment 2 (ranks 4 5)                                       '->  s + x4 + x5  -->  all, or the owners
// two_level: the layout's nodes; successive pieces have different leaders. ring: every rank counts as a node.
// The result of few pieces goes down a binomial tree. That of many comes back from node to node, while the
// sums of later pieces go on: two pieces later for each node that it passes, since a sum and a result need a
// step each between two nodes.
//     segment 0    x0             s(p)   -->            <--  r(p - 4)
//     segment 1    x1      s(p) + x1     -->            <--  r(p - 2)
//     segment 2    x2      s(p) + x1 + x2 = r(p)  -->  segment 1
// reduce, reduce_scatter: the last node sends each node its part of a piece in one message, as many pieces
// later. P pieces of k nodes take P (k-1) messages for the sum, and P for reduce's result, or at most
// P + k - 2 for the blocks of reduce_scatter.
// Where each link joins two nodes, as in a line of k nodes, it transports S bytes in each direction: the time
// of S bytes, for any k. At a switch a node's one link transports S for the sum and S for the result. A ring
// of partial blocks would send less there from three nodes on, 2(k-1)/k S, the minimum, but would add each
// block in another order; pairwise sends as little, where every rank is a node.

typedef struct par__chain {
    const par__layout *layout;
    size_t at, count;               // elements of the array that are summed
    size_t result_at, result_count; // elements of the result: the same ones, or those of a piece before
    size_t piece, result_piece;     // they choose the leaders
    int many, two_way;              // pieces; results come back while sums go on
    const size_t *displs;           // where blocks begin; NULL: at their number times the count
} par__chain;

static int par__log2_up(int n) { // steps of a tree, or of doubling, over n
    int steps = 0;
    while (((size_t)1 << steps) < (size_t)n) steps++;
    return steps;
}
// Children and parent of node `me` in the tree, or line, from `root` over n nodes.
static int par__tree_parent(int n, int root, int me, int line) {
    const int q = (me - root + n) % n;
    if (q == 0) return -1;
    return ((line ? q - 1 : q & (q - 1)) + root) % n;
}
static int par__tree_child(int n, int root, int me, int line, int index) { // -1 after the last
    const int q = (me - root + n) % n;
    if (line) return index == 0 && q + 1 < n ? (q + 1 + root) % n : -1;
    int step = 1;
    while (step < n) step *= 2; // largest first
    for (step /= 2; step >= 1; step /= 2)
        if ((q & (2 * step - 1)) == 0 && q + step < n && index-- == 0) return (q + step + root) % n;
    return -1;
}

// Elements of the result that ranks first..last get, of reduce_scatter their blocks: from element *from on.
static size_t par__chain_share(const par__operation *op, const par__chain *ch, int first, int last,
                               size_t *from) {
    const par_call *k = &op->call;
    size_t at = ch->result_at, end = at + ch->result_count;
    if (par__kinds[k->kind].send == PAR_SIDE_ALL) {
        at = PAR__MAX(at, ch->displs ? ch->displs[first] : (size_t)first * k->count);
        end = PAR__MIN(end,
                       (ch->displs ? ch->displs[last] : (size_t)last * k->count) + par__block_count(k, last));
    } else if (par__takes_root(k->kind) && (k->root < first || k->root > last)) {
        end = at;
    }
    *from = at;
    return end > at ? end - at : 0;
}
// How many pieces later a result comes to a node; two for each that it could pass, but never more than are in
// flight, for which it waits.
static size_t par__chain_lag(const par__operation *op, const par__chain *ch, int node) {
    return ch->two_way ? PAR__MIN(2, (size_t)op->track_count) * (size_t)(ch->layout->node_count - 1 - node)
                       : 0;
}
// The leader of `node` that has the result of this piece. The lane of a result is that of its piece,
// whichever track it has come to.
static int par__chain_holder(const par__operation *op, const par__chain *ch, int node) {
    return par__node_leader(ch->layout, node, ch->result_piece + par__chain_lag(op, ch, node));
}
static void par__emit_result(par__operation *op, const par__chain *ch, par__verb verb, int node,
                             const char *memory, size_t count) {
    par__emit_message(op, verb, par__chain_holder(op, ch, node), memory, count * par__element_bytes(op))
        ->lane = 1 + (int)(ch->result_piece % (size_t)op->track_count);
}
// reduce, reduce_scatter: the last node sends each other node what its ranks get, a message for each segment.
static void par__emit_shares(par__operation *op, const par__chain *ch, const char *result) {
    const par__layout *l = ch->layout;
    const int last = par__segment_at(l, l->segment_count - 1).node, sends = l->my_node == last;
    for (int s = 0; s < l->segment_count; s++) {
        const par__segment g = par__segment_at(l, s);
        size_t from, count;
        if (g.node == last || !(sends || g.node == l->my_node)) continue;
        count = par__chain_share(op, ch, g.first, g.last, &from);
        par__emit_result(op, ch, sends ? PAR__SEND : PAR__RECV, sends ? g.node : last,
                         result + (from - ch->result_at) * par__element_bytes(op), count);
    }
}

static void par__emit_chain_leader(par__operation *op, const par__chain *ch, char *acc, char *result) {
    const par__layout *l = ch->layout;
    const par_dtype wide_type = par__accumulator(op->call.dtype);
    const size_t e = par__element_bytes(op), wide = ch->count * par__dtypes[wide_type].bytes;
    const int last = par__segment_at(l, l->segment_count - 1).node;
    for (int s = 0; s < l->segment_count; s++) {
        if (par__segment_at(l, s).node != l->my_node) continue;
        const int final = s == l->segment_count - 1, first = par__segment_at(l, s).first,
                  lone = first == par__segment_at(l, s).last;
        const void *sum = acc;
        if (s > 0) {
            par__emit_message(op, PAR__RECV, par__node_leader(l, par__segment_at(l, s - 1).node, ch->piece),
                              acc, wide);
            par__emit_join(op);
        }
        if (s == 0 && !final && lone && wide_type == op->call.dtype && op->arrays.input[first])
            sum = op->arrays.input[first] + ch->at * e; // the input of a single rank is its sum
        else
            par__emit_reduce(op, first, par__segment_at(l, s).last, ch->at * e, ch->count, s ? acc : NULL,
                             final ? result : acc, final);
        if (!final) {
            par__emit_message(op, PAR__SEND, par__node_leader(l, par__segment_at(l, s + 1).node, ch->piece),
                              sum, wide);
            par__emit_join(op);
        }
    }
    if (par__is_all_reduce(op->call.kind)) { // broadcast the result over the nodes
        const int parent = par__tree_parent(l->node_count, last, l->my_node, ch->many);
        if (parent >= 0) par__emit_result(op, ch, PAR__RECV, parent, result, ch->count);
        par__emit_join(op);
        for (int i = 0, child; (child = par__tree_child(l->node_count, last, l->my_node, ch->many, i)) >= 0;
             i++)
            par__emit_result(op, ch, PAR__SEND, child, result, ch->count);
    } else {
        par__emit_shares(op, ch, result);
    }
    par__emit_join(op);
}

// A leader's part of a piece whose sum goes on while the result of an earlier piece comes. It posts both
// receives before it sends, so a send waits only until its receiver has reached the same piece, or a later
// one on another track.
static void par__emit_two_way_leader(par__operation *op, const par__chain *ch, char *acc, char *result) {
    const par__layout *l = ch->layout;
    const par_dtype wide_type = par__accumulator(op->call.dtype);
    const size_t e = par__element_bytes(op), wide = ch->count * par__dtypes[wide_type].bytes;
    const int s = l->my_node, last = l->segment_count - 1, first = par__segment_at(l, s).first;
    const int all = par__is_all_reduce(op->call.kind);
    const void *sum = acc;
    if (s > 0) par__emit_message(op, PAR__RECV, par__node_leader(l, s - 1, ch->piece), acc, wide);
    if (s < last && all) par__emit_result(op, ch, PAR__RECV, s + 1, result, ch->result_count);
    if (s < last && !all) par__emit_shares(op, ch, result);
    par__emit_join(op);
    if (s == 0 && first == par__segment_at(l, s).last && wide_type == op->call.dtype &&
        op->arrays.input[first])
        sum = op->arrays.input[first] + ch->at * e;
    else if (ch->count)
        par__emit_reduce(op, first, par__segment_at(l, s).last, ch->at * e, ch->count, s ? acc : NULL,
                         s == last ? result : acc, s == last);
    if (s < last) par__emit_message(op, PAR__SEND, par__node_leader(l, s + 1, ch->piece), sum, wide);
    if (s > 0 && all) par__emit_result(op, ch, PAR__SEND, s - 1, result, ch->result_count);
    if (s == last && !all) par__emit_shares(op, ch, result);
    par__emit_join(op);
}

// A half of a stage holds [own input | accumulator | result]: the accumulator has as many parts as its type
// is times as wide as an element, the others have one.
static size_t par__chain_accumulator_parts(const par__operation *op) {
    return par__dtypes[par__accumulator(op->call.dtype)].bytes / par__element_bytes(op);
}
static size_t par__chain_part(const par__operation *op) { // bytes
    return par__slot_bytes(op, 2 + par__chain_accumulator_parts(op));
}

static void par__emit_chain(par__operation *op, const par__chain *ch) {
    par_comm *c = op->comm;
    const par__layout *l = ch->layout;
    const size_t e = par__element_bytes(op), part = par__chain_part(op);
    const int leader = par__node_leader(l, l->my_node, ch->piece), alone = par__node_size(l, l->my_node) == 1;
    const int blocks = par__kinds[op->call.kind].send == PAR_SIDE_ALL;
    size_t from;
    const size_t share = par__chain_share(op, ch, c->rank, c->rank, &from);
    const size_t own = !blocks ? 0 : ch->displs ? ch->displs[c->rank] : (size_t)c->rank * op->call.count;
    char *half = par__stage_half(op, c->rank), *into = par__output_at(op, share ? (from - own) * e : 0);
    char *result = par__stage_half(op, leader) + (1 + par__chain_accumulator_parts(op)) * part;
    if (alone && share && share == ch->result_count) result = into;
    if (!alone) {
        if (par__must_stage(op) && leader != c->rank)
            par__emit_copy(op, half, par__input_at(op, ch->at * e), ch->count * e);
        par__emit_publish(op, 1);
    }
    if (leader == c->rank) {
        if (!alone) par__emit_wait_all(op, 1);
        (ch->two_way ? par__emit_two_way_leader : par__emit_chain_leader)(op, ch, half + part, result);
    }
    if (!alone) {
        if (leader == c->rank) par__emit_publish(op, 2);
        par__emit_wait(op, leader, 2);
    }
    if (share) par__emit_copy(op, into, result + (from - ch->result_at) * e, share * e);
}

// Choose the elements whose result comes in this piece: those of the piece `lag` before it. Are there
// further pieces? All ranks have as many, even if some have nothing to do, because ranks of a node that count
// as nodes of their own (ring) have their phases in common.
static int par__chain_result(par__operation *op, par__chain *ch, size_t length, size_t capacity) {
    const size_t lag = par__chain_lag(op, ch, ch->layout->my_node), at = (ch->piece - lag) * capacity;
    ch->result_piece = ch->piece - lag;
    ch->result_at = ch->piece >= lag && at < length ? at : 0;
    ch->result_count = ch->piece >= lag && at < length ? PAR__MIN(capacity, length - at) : 0;
    return ch->piece + 1 < (length + capacity - 1) / capacity + par__chain_lag(op, ch, 0);
}
// Elements of a piece. A piece of p bytes costs a node of m ranks a message, which takes as long as
// PAR__LINK_BYTES, p bytes on the link, and m p bytes that are added. 2k pieces' time passes until the first
// result is back from k nodes: (2k + S/p) (PAR__LINK_BYTES + (1 + m) p) is the least for the p below. So many
// pieces as there are tracks need not wait for a result of another.
static size_t par__chain_capacity(const par__operation *op, const par__layout *l, size_t length) {
    const size_t e = par__element_bytes(op), most = par__chain_part(op) / e;
    const double k = l->node_count, adds = 1 + (double)l->size / k, start = (double)PAR__LINK_BYTES;
    const double bytes = (double)length * (double)e, tracks = op->track_count, few = bytes / tracks;
    const double best = PAR__MAX(sqrt(bytes * start / (2 * k * adds)), 256);
    const int waits = l->node_count == 2 || !par__nodes_in_order(l); // results hold up what follows
    const int all = par__is_all_reduce(op->call.kind);
    if (waits && all) return most;
    if (!all && !waits && few > best &&
        (k + tracks) * (start + adds * few) < (2 * k + bytes / best) * (start + adds * best))
        return PAR__MIN(most, ((size_t)few + 64) / e);
    return PAR__MIN(most, PAR__MAX((size_t)best / 64 * 64, (size_t)256) / e);
}
// The pieces of the array in order, for reduce_scatter, too: a piece has many small blocks, or a part of one.
static void par__emit_chain_piece(par__operation *op, const par__layout *layout, int ring) {
    par_comm *c = op->comm;
    const size_t e = par__element_bytes(op);
    const int blocks = par__kinds[op->call.kind].send == PAR_SIDE_ALL; // reduce_scatter
    const size_t length = blocks ? par__recv_displ(&op->call, c->size) : op->call.count;
    const size_t capacity = par__chain_capacity(op, layout, length);
    const size_t pieces = (length + capacity - 1) / capacity;
    par__chain ch;
    memset(&ch, 0, sizeof ch);
    ch.layout = layout;
    ch.piece = ch.result_piece = op->piece;
    ch.many = ring || pieces > 2; // keep all links busy; few: fewest steps
    ch.at = ch.result_at = op->offset;
    ch.count = ch.result_count = PAR__MIN(capacity, length - op->offset);
    ch.two_way = pieces > (size_t)op->track_count && layout->node_count > 2 && par__nodes_in_order(layout);
    ch.displs = blocks ? par__all_displs(op) : NULL;
    const int more =
        ch.two_way ? par__chain_result(op, &ch, length, capacity) : op->offset + ch.count < length;
    if (layout == &c->nodes) par__inputs_from_stages(op, ch.at * e, 0);
    op->arrays.input[c->rank] = (const char *)op->call.send;
    if (!op->result) par__emit_chain(op, &ch);
    op->offset += ch.count;
    op->more_pieces = more;
}
static void par__emit_two_level_sum(par__operation *op) { par__emit_chain_piece(op, &op->comm->nodes, 0); }
static void par__emit_ring_sum(par__operation *op) { par__emit_chain_piece(op, &op->comm->flat, 1); }

// >>fold ----------------------------------------------------------------------------------------------------
//
// What has the same bits in any grouping, or in the tree's: integers, minima and maxima, tree sums. A leader
// reduces its node's ranks; then leaders exchange partial results at distance 1, 2, 4 ...:
//     node 0    0    01    0123
//     node 1    1    01    0123        log2(k) steps of S bytes each way for k nodes, k a power of two
//     node 2    2    23    0123
//     node 3    3    23    0123
// Large S: they exchange halves of what they hold, and give the results back in reverse (Rabenseifner 2004):
//     node 0    0    01 [ab]    0123 [a]    [ab]    [abcd]
//     node 1    1    01 [cd]    0123 [c]    [cd]    [abcd]        2 log2(k) steps, 2 (k-1)/k S bytes
// A message costs alpha + bytes * beta: whole S takes log2(k) (alpha + S beta), halves 2 log2(k) alpha +
// 2 (k-1)/k S beta. (The chain: (k + pieces) (alpha + piece beta) and as many bytes as halves, so it is never
// faster at a switch; in a line of nodes it is.) Other k, p the power of two below: of the first 2(k-p) nodes
// each odd one sends to the one before it, which takes its place and sends it the result.
// A partial result is always that of consecutive nodes, and what comes from lower ones is the left operand.
// reduce, reduce_scatter: the same; a rank copies what is its own. Pieces have different leaders.

typedef struct par__fold {
    const par__layout *layout;
    size_t piece, count; // chooses the leaders; elements
    size_t wide;         // bytes of an element of a partial result
    int powers, extra;   // nodes that exchange; nodes that one of these stands for, too
    int halves;
    char *acc, *other; // this leader's partial result; one that it has received
} par__fold;

static int par__fold_peer(const par__fold *f, int place) { // the leader in that place of the exchange
    const int node = place < f->extra ? 2 * place : place + f->extra;
    return par__node_leader(f->layout, node, f->piece);
}
static void par__emit_combine(par__operation *op, const par__fold *f, size_t first, size_t count, int left) {
    if (!count) return;
    par__action *a = par__emit(op, PAR__COMBINE);
    a->dst = f->acc + first * f->wide;
    a->src = f->other + first * f->wide;
    a->count = count;
    a->left = left;
}
static void par__emit_fold_steps(par__operation *op, const par__fold *f, int place) {
    size_t firsts[32], counts[32], first = 0, count = f->count; // held before each step; now
    int step = 0;
    for (int d = 1; d < f->powers; d *= 2, step++) {
        const int peer = par__fold_peer(f, place ^ d), upper = (place & d) != 0;
        const size_t half = f->halves ? count / 2 : 0, rest = count - half;
        firsts[step] = first;
        counts[step] = count;
        const size_t give = f->halves && !upper ? first + half : first;
        const size_t keep = f->halves && upper ? first + half : first;
        const size_t given = f->halves ? (upper ? half : rest) : count;
        const size_t kept = f->halves ? (upper ? rest : half) : count;
        par__emit_message(op, PAR__SEND, peer, f->acc + give * f->wide, given * f->wide);
        par__emit_message(op, PAR__RECV, peer, f->other + keep * f->wide, kept * f->wide);
        par__emit_join(op);
        par__emit_combine(op, f, keep, kept, upper);
        first = keep;
        count = kept;
    }
    for (int d = f->powers / 2; d >= 1 && f->halves; d /= 2) {
        const int peer = par__fold_peer(f, place ^ d);
        step--;
        const size_t theirs = first > firsts[step] ? firsts[step] : first + count;
        par__emit_message(op, PAR__SEND, peer, f->acc + first * f->wide, count * f->wide);
        par__emit_message(op, PAR__RECV, peer, f->acc + theirs * f->wide, (counts[step] - count) * f->wide);
        par__emit_join(op);
        first = firsts[step];
        count = counts[step];
    }
}
// at: the piece's first byte in the arrays.
static void par__emit_fold_leader(par__operation *op, const par__fold *f, size_t at) {
    const par__layout *l = f->layout;
    const int me = l->my_node, paired = me < 2 * f->extra, odd = paired && me % 2;
    const size_t bytes = f->count * f->wide;
    const void *partial = NULL;
    for (int s = l->per_node ? me : 0; s < l->segment_count; s++) {
        const par__segment g = par__segment_at(l, s);
        if (g.node == me) par__emit_reduce(op, g.first, g.last, at, f->count, partial, f->acc, 0);
        if (g.node == me) partial = f->acc;
        if (l->per_node) break;
    }
    const int twin = paired ? par__node_leader(l, odd ? me - 1 : me + 1, f->piece) : -1;
    if (paired) par__emit_message(op, odd ? PAR__SEND : PAR__RECV, twin, odd ? f->acc : f->other, bytes);
    par__emit_join(op);
    if (paired && !odd) par__emit_combine(op, f, 0, f->count, 0);
    if (!odd) par__emit_fold_steps(op, f, paired ? me / 2 : me - f->extra);
    if (paired) par__emit_message(op, odd ? PAR__RECV : PAR__SEND, twin, f->acc, bytes);
    par__emit_join(op);
}

static par__fold par__fold_of(const par__operation *op, size_t total) { // total: elements of the array
    par__fold f;
    memset(&f, 0, sizeof f);
    f.layout = &op->comm->nodes;
    f.piece = op->piece;
    f.wide = par__dtypes[par__accumulator(op->call.dtype)].bytes;
    for (f.powers = 1; 2 * f.powers <= f.layout->node_count;) f.powers *= 2;
    const int steps = par__log2_up(f.powers);
    f.extra = f.layout->node_count - f.powers;
    const double saved = steps - 2.0 * (f.powers - 1) / f.powers; // of the array's bytes, by halves
    f.halves = (double)total * (double)f.wide * saved > (double)PAR__LINK_BYTES * steps;
    return f;
}
static void par__emit_fold(par__operation *op) {
    par_comm *c = op->comm;
    const par_call *k = &op->call;
    const int blocks = par__kinds[k->kind].send == PAR_SIDE_ALL; // reduce_scatter
    const int receives = !par__takes_root(k->kind) || c->rank == k->root;
    const size_t e = par__element_bytes(op), wide_parts = par__chain_accumulator_parts(op),
                 part = par__slot_bytes(op, 1 + 2 * wide_parts), at = op->offset;
    const size_t total = blocks ? par__recv_displ(k, c->size) : k->count,
                 own = blocks ? par__recv_displ(k, c->rank) : 0,
                 own_end = own + (blocks     ? par__block_count(k, c->rank)
                                  : receives ? total
                                             : 0);
    par__fold f = par__fold_of(op, total);
    const int leader = par__node_leader(f.layout, f.layout->my_node, f.piece),
              alone = par__node_size(f.layout, f.layout->my_node) == 1;
    const int wide = f.wide != e || par__op_code(k->op) == PAR_AVG; // a last step is left
    char *result = par__stage_half(op, leader) + part * (1 + (wide ? wide_parts : 0));
    f.count = PAR__MIN(part / e, total - at);
    f.acc = par__stage_half(op, c->rank) + part;
    f.other = f.acc + part * wide_parts;
    par__inputs_from_stages(op, at * e, 0);
    op->arrays.input[c->rank] = (const char *)k->send;
    if (!alone) {
        if (par__must_stage(op) && leader != c->rank)
            par__emit_copy(op, par__stage_half(op, c->rank), par__input_at(op, at * e), f.count * e);
        par__emit_publish(op, 1);
    }
    if (leader == c->rank) {
        if (!alone) par__emit_wait_all(op, 1);
        par__emit_fold_leader(op, &f, at * e);
        if (wide) par__emit_reduce(op, 1, 0, 0, f.count, f.acc, result, 1);
        if (!alone) par__emit_publish(op, 2);
    }
    if (!alone) par__emit_wait(op, leader, 2);
    const size_t first = PAR__MAX(at, own), end = PAR__MIN(at + f.count, own_end);
    if (first < end)
        par__emit_copy(op, par__output_at(op, (first - own) * e), result + (first - at) * e,
                       (end - first) * e);
    op->offset += f.count;
    op->more_pieces = op->offset < total;
}

// >>spread --------------------------------------------------------------------------------------------------
//
// broadcast, tree (two_level: of nodes; within a node through the stage), n = 8, root 0:
//     0 -> 4     0 -> 2, 4 -> 6     0 -> 1, 2 -> 3, 4 -> 5, 6 -> 7       log2(n) steps of S bytes, in pieces
// The root's link transports each piece log2(n) times. Many pieces pass from each node to the next instead:
//     0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7       n - 1 + pieces steps of one piece
// all_gather, ring: in step s rank r passes block r-s on to r+1:            n-1 steps, (n-1)/n S bytes

// Is a line of n nodes faster than a tree, for so many bytes in pieces?
static int par__prefers_line(int n, size_t bytes, size_t piece) {
    const double pieces = ceil((double)bytes / (double)piece), start = (double)PAR__LINK_BYTES;
    return (n - 1 + pieces) * (start + (double)piece) < par__log2_up(n) * (start + pieces * (double)piece);
}
static void par__emit_tree_on(par__operation *op, const par__layout *l) {
    par_comm *c = op->comm;
    const size_t e = par__element_bytes(op), at = op->offset;
    const size_t n = PAR__MIN(op->call.count - at, op->comm->half_bytes / e), bytes = n * e;
    const int root = op->call.root, root_node = par__node_of(l, root),
              alone = par__node_size(l, l->my_node) == 1,
              line = par__prefers_line(l->node_count, par__call_bytes(op), op->comm->half_bytes / e * e);
    const int leader = l->my_node == root_node ? root : par__node_leader(l, l->my_node, op->piece);
    const int parent = par__tree_parent(l->node_count, root_node, l->my_node, line);
    char *recv = par__output_at(op, at * e), *stage = par__stage_half(op, leader);
    const char *have = c->rank == root ? par__input_at(op, at * e) : alone ? recv : stage;
    if (leader == c->rank) {
        if (!alone && op->piece >= 2 * (size_t)op->track_count)
            par__emit_wait_all(op, 2 - 2 * PAR__PHASES); // all have read this half
        if (parent >= 0) {
            const int from = parent == root_node ? root : par__node_leader(l, parent, op->piece);
            par__emit_message(op, PAR__RECV, from, have, bytes);
            par__emit_join(op);
        }
        for (int i = 0, child; (child = par__tree_child(l->node_count, root_node, l->my_node, line, i)) >= 0;
             i++)
            par__emit_message(op, PAR__SEND, par__node_leader(l, child, op->piece), have, bytes);
        if (!alone && c->rank == root) par__emit_copy(op, stage, have, bytes);
        if (!alone) par__emit_publish(op, 1);
        par__emit_copy(op, recv, have, bytes);
        par__emit_join(op);
    } else {
        par__emit_wait(op, leader, 1);
        par__emit_copy(op, recv, stage, bytes);
    }
    op->offset += n;
    op->more_pieces = op->offset < op->call.count;
    if (!alone) par__emit_publish(op, 2);
    if (!alone && !op->more_pieces) par__emit_wait_all(op, 2);
}
static void par__emit_two_level_broadcast(par__operation *op) { par__emit_tree_on(op, &op->comm->nodes); }
static void par__emit_tree(par__operation *op) { par__emit_tree_on(op, &op->comm->flat); }

static void par__emit_ring_all_gather(par__operation *op) {
    par_comm *c = op->comm;
    const int n = c->size, right = (c->rank + 1) % n, left = (c->rank + n - 1) % n;
    const size_t e = par__element_bytes(op);
    par__emit_copy(op, par__output_at(op, par__recv_displ(&op->call, c->rank) * e), op->call.send,
                   par__block_count(&op->call, c->rank) * e);
    for (int s = 0; s < n - 1; s++) {
        const int out = (c->rank - s + n) % n, in = (c->rank - s - 1 + n) % n;
        par__emit_message(op, PAR__SEND, right, par__output_at(op, par__recv_displ(&op->call, out) * e),
                          par__block_count(&op->call, out) * e);
        par__emit_message(op, PAR__RECV, left, par__output_at(op, par__recv_displ(&op->call, in) * e),
                          par__block_count(&op->call, in) * e);
        par__emit_join(op);
    }
}

// all_gather between nodes: column i has the ranks with local number i, one of each node; where a node has
// fewer ranks, rank i % its size takes part, without a block. In the stage of who takes part the column's
// blocks stand from the own node's on, so that a message has all that it passes on. Four nodes of one column:
//     node 0    0 | 0 1 | 0 1 2 3        step 1: one block from the next node,
//     node 1    1 | 1 2 | 1 2 3 0        step 2: two from the one after that (Bruck et al. 1997)
//     node 2    2 | 2 3 | 2 3 0 1
//     node 3    3 | 3 0 | 3 0 1 2        then all ranks of a node copy all columns
// With k nodes of m ranks: ceil(log2 k) messages and (k-1)/k S/m bytes a rank.

typedef struct par__columns {
    size_t at, capacity; // elements of each block in this piece: at most capacity from `at` on
    size_t column;       // bytes of a column in a stage
    int count;           // columns
} par__columns;

static size_t par__column_bytes(const par__operation *op, const par__columns *x, int column, int node) {
    const par__layout *l = &op->comm->nodes;
    if (column >= par__node_size(l, node)) return 0;
    const size_t block = par__block_count(&op->call, par__node_rank(l, node, column));
    return (block > x->at ? PAR__MIN(x->capacity, block - x->at) : 0) * par__element_bytes(op);
}
static int par__largest_node(const par__layout *l, int *smallest) { // the ranks of either
    int largest = *smallest = par__node_size(l, 0);
    for (int j = l->per_node ? l->node_count - 1 : 1; j < l->node_count; j++) {
        largest = PAR__MAX(largest, par__node_size(l, j));
        *smallest = PAR__MIN(*smallest, par__node_size(l, j));
    }
    return largest;
}
static size_t par__column_slots(const par__layout *l) { // that a stage needs
    int smallest;
    const int largest = par__largest_node(l, &smallest);
    return (size_t)l->node_count * (size_t)((largest + smallest - 1) / smallest);
}
static void par__emit_column_doubling(par__operation *op, const par__columns *x, int column, char *to) {
    const par__layout *l = &op->comm->nodes;
    const int k = l->node_count, me = l->my_node;
    size_t held = par__column_bytes(op, x, column, me); // bytes of the blocks of nodes me ... me + d - 1
    for (int d = 1; d < k; d *= 2) {
        const int blocks = PAR__MIN(d, k - d);
        size_t out = 0, in = 0;
        for (int q = 0; q < blocks; q++) {
            out += par__column_bytes(op, x, column, (me + q) % k);
            in += par__column_bytes(op, x, column, (me + d + q) % k);
        }
        par__emit_message(op, PAR__SEND, par__node_leader(l, (me - d + k) % k, (size_t)column), to, out);
        par__emit_message(op, PAR__RECV, par__node_leader(l, (me + d) % k, (size_t)column), to + held, in);
        par__emit_join(op);
        held += in;
    }
}
static void par__emit_copy_columns(par__operation *op, const par__columns *x) {
    const par__layout *l = &op->comm->nodes;
    const int k = l->node_count, me = l->my_node, m = par__node_size(l, me);
    const size_t *displs = par__all_displs(op), e = par__element_bytes(op);
    for (int i = 0; i < x->count && !op->result; i++) {
        const int holder = par__node_rank(l, me, i % m);
        const char *from = par__stage_half(op, holder) + (size_t)(i / m) * x->column;
        if (i < m) par__emit_wait(op, holder, 1);
        for (int q = 0; q < k; q++) {
            const int node = (me + q) % k;
            const size_t bytes = par__column_bytes(op, x, i, node);
            if (!bytes) continue;
            const int r = par__node_rank(l, node, i);
            const size_t to = (displs ? displs[r] : (size_t)r * op->call.count) + x->at;
            par__emit_copy(op, par__output_at(op, to * e), from, bytes);
            from += bytes;
        }
    }
}
static void par__emit_two_level_all_gather(par__operation *op) {
    const par_comm *c = op->comm;
    const par__layout *l = &c->nodes;
    const size_t e = par__element_bytes(op), slot = par__slot_bytes(op, par__column_slots(l));
    const int index = par__local_index(l, c->rank), m = par__node_size(l, l->my_node);
    int smallest;
    par__columns x;
    x.at = op->offset;
    x.capacity = slot / e;
    x.column = slot * (size_t)l->node_count;
    x.count = par__largest_node(l, &smallest);
    char *half = par__stage_half(op, c->rank);
    // All have finished with this half: each has published a piece since then.
    par__emit_copy(op, half, par__input_at(op, x.at * e), par__column_bytes(op, &x, index, l->my_node));
    for (int i = index; i < x.count; i += m)
        par__emit_column_doubling(op, &x, i, half + (size_t)(i / m) * x.column);
    par__emit_publish(op, 1);
    par__emit_copy_columns(op, &x);
    op->offset += x.capacity;
    op->more_pieces = op->offset < par__largest_block(op);
}

// gather and scatter of small blocks, tree, four nodes of two ranks, root 0: what a leader passes on goes as
// one message; scatter runs backwards.
//     1 -> 0, 3 -> 2, 5 -> 4, 7 -> 6     2 -> 0: 2 3, 6 -> 4: 6 7     4 -> 0: 4 5 6 7
// log2(k) messages to the root from k nodes, and one from each rank of its node. The root's link transports
// the same bytes as for a message from each rank.

typedef struct par__rooted { // a call on one node leader
    const par__layout *layout;
    int root_node, gather;
    size_t block;
    char *blocks; // of the nodes below this one in the tree, from its own on; of each node its ranks in order
} par__rooted;

static int par__rooted_leader(const par__operation *op, int root_node, int node) {
    return node == root_node ? op->call.root : par__node_leader(&op->comm->nodes, node, 0);
}
static size_t par__rooted_bytes(const par__rooted *x, int first,
                                int nodes) { // of so many, in the tree's order
    size_t ranks = 0;
    for (int i = 0; i < nodes; i++)
        ranks += (size_t)par__node_size(x->layout, (first + i) % x->layout->node_count);
    return ranks * x->block;
}
// The nodes below the one that is q nodes on from the root, and itself.
static int par__tree_span(int n, int q) { return q ? PAR__MIN(q & -q, n - q) : n; }
static void par__emit_rooted_tree(par__operation *op, const par__rooted *x, int up) {
    const par__layout *l = x->layout;
    const int k = l->node_count, me = l->my_node, parent = par__tree_parent(k, x->root_node, me, 0);
    const int mine = par__tree_span(k, (me - x->root_node + k) % k);
    const par__verb verb = up == x->gather ? PAR__SEND : PAR__RECV;
    if (up && parent >= 0)
        par__emit_message(op, verb, par__rooted_leader(op, x->root_node, parent), x->blocks,
                          par__rooted_bytes(x, me, mine));
    for (int i = 0, child; !up && (child = par__tree_child(k, x->root_node, me, 0, i)) >= 0; i++)
        par__emit_message(op, verb, par__rooted_leader(op, x->root_node, child),
                          x->blocks + par__rooted_bytes(x, me, (child - me + k) % k),
                          par__rooted_bytes(x, child, par__tree_span(k, (child - x->root_node + k) % k)));
    for (int i = 0; !up && i < par__node_size(l, me); i++)
        if (par__node_rank(l, me, i) != op->comm->rank)
            par__emit_message(op, verb, par__node_rank(l, me, i), x->blocks + (size_t)i * x->block, x->block);
    par__emit_join(op);
}
// Between blocks, in the tree's order, and the root's array, in that of the ranks.
static void par__emit_rooted_copies(par__operation *op, const par__rooted *x) {
    const par__layout *l = x->layout;
    char *at = x->blocks;
    for (int q = 0; q < l->node_count; q++) {
        const int node = (x->root_node + q) % l->node_count;
        for (int i = 0; i < par__node_size(l, node); i++, at += x->block) {
            const size_t place = (size_t)par__node_rank(l, node, i) * x->block;
            if (x->gather)
                par__emit_copy(op, par__output_at(op, place), at, x->block);
            else
                par__emit_copy(op, at, par__input_at(op, place), x->block);
        }
    }
}
static void par__emit_rooted(par__operation *op) {
    const par__layout *l = &op->comm->nodes;
    const par_call *k = &op->call;
    const int me = l->my_node, root = op->comm->rank == k->root;
    par__rooted x;
    x.layout = l;
    x.root_node = par__node_of(l, k->root);
    x.gather = k->kind == PAR_KIND_GATHER;
    x.block = par__call_bytes(op);
    const int leader = par__rooted_leader(op, x.root_node, me);
    if (leader != op->comm->rank) {
        par__emit_message(op, x.gather ? PAR__SEND : PAR__RECV, leader, x.gather ? k->send : k->recv,
                          x.block);
        par__emit_join(op);
        return;
    }
    const int below = par__tree_span(l->node_count, (me - x.root_node + l->node_count) % l->node_count);
    x.blocks = par__get_scratch(op, par__rooted_bytes(&x, me, below) + 1);
    if (!x.blocks) return;
    char *own = x.blocks + (size_t)par__local_index(l, op->comm->rank) * x.block;
    if (root && !x.gather) par__emit_rooted_copies(op, &x);
    if (x.gather) par__emit_copy(op, own, k->send, x.block);
    par__emit_rooted_tree(op, &x, !x.gather);
    par__emit_rooted_tree(op, &x, x.gather);
    if (!x.gather) par__emit_copy(op, k->recv, own, x.block);
    if (root && x.gather) par__emit_rooted_copies(op, &x);
}

// >>halving -------------------------------------------------------------------------------------------------
//
// Recursive halving for reduce_scatter, n a power of two, in rank order: ranks exchange inputs, not sums. In
// each step a rank sends its partner the other half of the blocks that it still holds, of every input that it
// holds:
//     n = 4   rank 0 holds x0[0..3]
//     step 1 (partner 2)   gives x0[2..3], gets x2[0..1]          holds 2 contributions of 2 blocks
//     step 2 (partner 1)   gives x0[1] x2[1], gets x1[0] x3[0]    holds 4 of 1 block: adds them in rank order
// log2(n) steps of S/2 bytes.

static void par__emit_halving(par__operation *op) {
    par_comm *c = op->comm;
    const int n = c->size, me = c->rank;
    const size_t e = par__element_bytes(op), bytes = par__round_up(op->call.count * e * (size_t)n, 64);
    char *rows = par__get_scratch(op, bytes * (size_t)n); // row q: the held part of rank q's input
    int low = 0, high = n;                                // the blocks still held
    if (!rows) return;
    for (int q = 0; q < n; q++) par__set_input(op, q, rows + (size_t)q * bytes);
    par__emit_copy(op, rows + (size_t)me * bytes, op->call.send, op->call.count * e * (size_t)n);
    for (int d = n / 2; d >= 1; d /= 2) {
        const int partner = me ^ d, middle = (low + high) / 2, upper = (me & d) != 0;
        const size_t give = (size_t)(upper ? low : middle) * op->call.count * e;
        const size_t keep = (size_t)(upper ? middle : low) * op->call.count * e;
        const size_t half = (size_t)d * op->call.count * e;
        for (int q = 0; q < n; q++) { // held: q that agree with me in the bits not yet exchanged
            if ((q & (2 * d - 1)) == (me & (2 * d - 1)))
                par__emit_message(op, PAR__SEND, partner, op->arrays.input[q] + give, half);
            if ((q & (2 * d - 1)) == (partner & (2 * d - 1)))
                par__emit_message(op, PAR__RECV, partner, op->arrays.input[q] + keep, half);
        }
        par__emit_join(op);
        if (upper)
            low = middle;
        else
            high = middle;
    }
    if (op->call.count)
        par__emit_reduce(op, 0, n - 1, (size_t)me * op->call.count * e, op->call.count, NULL, op->call.recv,
                         1);
}

// >>pairwise ------------------------------------------------------------------------------------------------
//
// A message for each pair of ranks, all in flight at once; rank r begins with r + 1, so that the messages do
// not all go to one receiver first. gather, scatter, all_to_all, all_gather: the block itself.
// reduce_scatter, and all_reduce by slices, where every rank is a node (reduce: the root has all slices):
//     rank r   sends x_r[q] to each q;  adds x_0[r] + x_1[r] + ... side by side in its stage;
//              (all_reduce:) sends the sum to each q
// (n-1)/n S bytes out and in, all_reduce twice that: the minimum, and in rank order.

static void par__emit_pairwise(par__operation *op) {
    par_comm *c = op->comm;
    const par_call *k = &op->call;
    const size_t e = par__element_bytes(op);
    const par_kind_traits *t = &par__kinds[k->kind];
    const int gather = t->recv == PAR_SIDE_ROOT_ALL, scatter = t->send == PAR_SIDE_ROOT_ALL;
    const int spread = t->send == PAR_SIDE_BLOCK && t->recv == PAR_SIDE_ALL;
    const int rooted = gather || scatter, root = c->rank == k->root, one = gather || spread; // block is sent
    const size_t mine = spread ? par__block_count(&op->call, c->rank) : k->count;
    for (int i = 1; i < c->size; i++) {
        const int to = (c->rank + i) % c->size, from = (c->rank - i + c->size) % c->size;
        const size_t out = k->send_counts ? (root || !rooted ? k->send_counts[to] : 0) : k->count;
        const size_t in = k->recv_counts ? (root || !rooted ? k->recv_counts[from] : 0) : k->count;
        if (!rooted || (gather ? from != c->rank && root : !root && from == k->root))
            par__emit_message(op, PAR__RECV, from,
                              par__output_at(op, (scatter ? 0 : par__recv_displ(&op->call, from)) * e),
                              (scatter ? k->count : in) * e);
        if (!rooted || (scatter ? root : !root && to == k->root))
            par__emit_message(op, PAR__SEND, to,
                              par__input_at(op, (one ? 0 : par__send_displ(&op->call, to)) * e),
                              (one ? mine : out) * e);
    }
    if (!rooted || root) { // the own block
        const size_t in = k->recv_counts ? k->recv_counts[c->rank] : k->count;
        par__emit_copy(op, par__output_at(op, scatter ? 0 : par__recv_displ(&op->call, c->rank) * e),
                       par__input_at(op, one ? 0 : par__send_displ(&op->call, c->rank) * e),
                       (scatter ? k->count : in) * e);
    }
    par__emit_join(op);
}

typedef struct par__pairwise_part { // a piece of rank r's slice or block
    size_t at, bytes;               // in the input array
} par__pairwise_part;

static par__pairwise_part par__pairwise_part_of(const par__operation *op, int r, size_t capacity) {
    const size_t e = par__element_bytes(op);
    size_t first = 0, length = par__block_count(&op->call, r);
    par__pairwise_part p;
    if (par__is_all_reduce(op->call.kind))
        par__slice(op->call.count, op->comm->size, r, e, &first, &length);
    else if (par__takes_root(op->call.kind))
        length = r == op->call.root ? op->call.count : 0;
    else
        first = par__recv_displ(&op->call, r);
    p.at = (first + op->offset) * e;
    p.bytes = length > op->offset ? PAR__MIN(capacity, length - op->offset) * e : 0;
    return p;
}

// A slot for each rank, which no other rank reads: in the stage, or where that has too few, in scratch.
static char *par__pairwise_slots(par__operation *op, size_t slot) {
    const size_t track = slot * (size_t)op->comm->size;
    if (par__has_slots(op, (size_t)op->comm->size)) return par__stage_half(op, op->comm->rank);
    char *scratch = par__get_scratch(op, track * (size_t)op->track_count);
    return scratch ? scratch + track * (size_t)op->track->index : NULL;
}
static void par__emit_pairwise_sum(par__operation *op) {
    par_comm *c = op->comm;
    const int n = c->size, me = c->rank, all = par__is_all_reduce(op->call.kind);
    const size_t e = par__element_bytes(op),
                 slot = par__has_slots(op, (size_t)n) ? par__slot_bytes(op, (size_t)n) : 64,
                 capacity = slot / e;
    const par__pairwise_part mine = par__pairwise_part_of(op, me, capacity);
    char *half = par__pairwise_slots(op, slot), *sum = par__output_at(op, all ? mine.at : op->offset * e);
    size_t first, max = par__largest_block(op);
    if (!half) return;
    for (int i = 1; i < n; i++) {
        const int to = (me + i) % n, from = (me - i + n) % n;
        const par__pairwise_part out = par__pairwise_part_of(op, to, capacity);
        par__emit_message(op, PAR__RECV, from, half + (size_t)from * slot, mine.bytes);
        par__emit_message(op, PAR__SEND, to, par__input_at(op, out.at), out.bytes);
    }
    par__emit_join(op);
    for (int r = 0; r < n; r++)
        par__set_input(op, r,
                       r == me ? (const char *)op->call.send
                               : (const char *)((uintptr_t)half + (size_t)r * slot - mine.at));
    if (mine.bytes) par__emit_reduce(op, 0, n - 1, mine.at, mine.bytes / e, NULL, sum, 1);
    for (int i = 1; i < n && all; i++) {
        const int to = (me + i) % n, from = (me - i + n) % n;
        const par__pairwise_part in = par__pairwise_part_of(op, from, capacity);
        par__emit_message(op, PAR__RECV, from, par__output_at(op, in.at), in.bytes);
        par__emit_message(op, PAR__SEND, to, sum, mine.bytes);
    }
    par__emit_join(op);
    if (all) par__slice(op->call.count, n, 0, e, &first, &max);
    op->offset += capacity;
    op->more_pieces = op->offset < max;
}

// >>bruck ---------------------------------------------------------------------------------------------------
//
// all_to_all between nodes of equally many ranks: rank i of a node collects what all ranks of its node send
// to the ranks i of the nodes, and exchanges that with them. Two nodes of two ranks, x_rq from r to q:
//     rank 0  x_00 x_01 x_02 x_03          x_00 x_10   x_02 x_12          x_00 x_10 x_20 x_30
//     rank 1  x_10 x_11 x_12 x_13   node   x_01 x_11   x_03 x_13  column  x_01 x_11 x_21 x_31
//     rank 2  x_20 x_21 x_22 x_23   --->   x_22 x_32   x_20 x_30   --->   x_02 x_12 x_22 x_32
//     rank 3  x_30 x_31 x_32 x_33          x_23 x_33   x_21 x_31          x_03 x_13 x_23 x_33
// two_level: k nodes of m ranks exchange k-1 messages of m blocks a rank, in place of (k-1)m of one.
// bruck (Bruck et al. 1997): what goes q nodes on stands in place q, and passes on by 1, 2, 4 ... nodes, one
// message for each bit of q: after all steps it is there.
//     k = 4, step 1: places 1 3 to the next node; step 2: places 2 3 to the one after that
// The m ranks of a node share its link, on which A bytes pass in a message's start, A' where starts overlap:
// bruck takes log2(k) (A + k/2 m^2 b), two_level (k-1) (A' + m^2 b), pairwise (k-1)m (A' + mb).

static void par__emit_transpose(par__operation *op, char *dst, const char *src, int rows, int columns,
                                size_t block, size_t stride) {
    if (!rows || !block) return;
    par__action *a = par__emit(op, PAR__TRANSPOSE);
    a->dst = dst;
    a->src = src;
    a->first = rows;
    a->last = columns;
    a->bytes = block;
    a->offset = stride;
}
// From send to place: for q nodes on, the block of each rank of this node. spare: as long as place.
static void par__emit_collect(par__operation *op, char *place, char *spare) {
    const par__layout *l = &op->comm->nodes;
    const int k = l->node_count, m = l->per_node, me = l->my_node, index = op->comm->rank % m;
    const size_t b = par__call_bytes(op), rest = (size_t)(k - me), line = (size_t)k * b;
    const char *send = (const char *)op->call.send;
    // For each rank of this node what goes to its column; the own node first.
    par__emit_transpose(op, place, send + (size_t)me * (size_t)m * b, k - me, m, b, line);
    par__emit_transpose(op, place + rest * b, send, me, m, b, line);
    for (int s = 1; s < m; s++) {
        const int to = (index + s) % m, from = (index - s + m) % m;
        par__emit_message(op, PAR__RECV, me * m + from, spare + (size_t)from * line, line);
        par__emit_message(op, PAR__SEND, me * m + to, place + (size_t)to * line, line);
    }
    par__emit_copy(op, spare + (size_t)index * line, place + (size_t)index * line, line);
    par__emit_join(op);
    par__emit_transpose(op, place, spare, m, k, b, (size_t)m * b);
}
static void par__emit_bruck_steps(par__operation *op, char *place, char *spare) {
    const par__layout *l = &op->comm->nodes;
    const int k = l->node_count, m = l->per_node, me = l->my_node, index = op->comm->rank % m;
    const size_t row = (size_t)m * par__call_bytes(op);
    for (int d = 1; d < k; d *= 2) {
        char *in = spare + (size_t)(k / 2) * row;
        size_t bytes = 0;
        for (int q = d; q < k; q += 2 * d) {
            const size_t run = (size_t)PAR__MIN(d, k - q) * row;
            par__emit_copy(op, spare + bytes, place + (size_t)q * row, run);
            bytes += run;
        }
        par__emit_message(op, PAR__RECV, (me - d + k) % k * m + index, in, bytes);
        par__emit_message(op, PAR__SEND, (me + d) % k * m + index, spare, bytes);
        par__emit_join(op);
        for (int q = d; q < k; q += 2 * d) {
            const size_t run = (size_t)PAR__MIN(d, k - q) * row;
            par__emit_copy(op, place + (size_t)q * row, in, run);
            in += run;
        }
    }
}
static void par__emit_by_columns(par__operation *op, int bruck) {
    const par__layout *l = &op->comm->nodes;
    const int k = l->node_count, m = l->per_node, me = l->my_node, index = op->comm->rank % m;
    const size_t row = (size_t)m * par__call_bytes(op), all = (size_t)k * row;
    char *place = par__get_scratch(op, 2 * all + 1), *spare = place + all;
    if (!place) return;
    par__emit_collect(op, place, spare);
    if (bruck) par__emit_bruck_steps(op, place, spare);
    for (int q = 0; q < k; q++) {
        const int to = (me + q) % k, from = (me - q + k) % k;
        char *recv = par__output_at(op, (size_t)from * row);
        if (bruck || !q) {
            par__emit_copy(op, recv, place + (size_t)q * row, row);
        } else {
            par__emit_message(op, PAR__RECV, from * m + index, recv, row);
            par__emit_message(op, PAR__SEND, to * m + index, place + (size_t)q * row, row);
        }
    }
    par__emit_join(op);
}
static void par__emit_bruck(par__operation *op) { par__emit_by_columns(op, 1); }
static void par__emit_two_level_all_to_all(par__operation *op) { par__emit_by_columns(op, 0); }

// >>select --------------------------------------------------------------------------------------------------
//
// A call takes the first row that fits. A forced or tuned row is taken where it fits; otherwise the call goes
// on down the table. A row may only depend on what all ranks know alike: the call, the comm, and the flags in
// the arrivals.

struct par__algorithm_row {
    par_kind kind;
    const char *name;
    int (*fits)(const par__operation *op, int forced);
    void (*emit)(par__operation *op); // NULL: the data are sent with the arrival
    const char *when;
};

static int par__one_node(const par__operation *op) { return op->comm->nodes.node_count == 1; }

static int par__fits_inline(const par__operation *op, int forced) {
    return (void)forced, op->eager == PAR__EAGER_INLINE;
}
static int par__fits_eager(const par__operation *op, int forced) {
    return (void)forced, op->arrays.all_staged;
}
static int par__fits_node(const par__operation *op, int forced) { return (void)forced, par__one_node(op); }
static int par__root_flags(const par__operation *op) {
    return op->eager == PAR__EAGER_INLINE ? 0 : op->arrays.flags[op->call.root];
}
static int par__fits_gather(const par__operation *op, int forced) {
    return (void)forced, par__one_node(op) && (par__root_flags(op) & (PAR__RECV_SHARED | PAR__RECV_CMA));
}
static int par__fits_scatter(const par__operation *op, int forced) {
    return (void)forced, par__one_node(op) && (par__root_flags(op) & (PAR__SEND_SHARED | PAR__SEND_CMA));
}
static int par__fits_reading(const par__operation *op, int forced) {
    return (void)forced, par__one_node(op) && op->arrays.send_addressable;
}
static int par__fits_writing(const par__operation *op, int forced) {
    return (void)forced, par__one_node(op) && op->arrays.recv_addressable;
}
static int par__fits_always(const par__operation *op, int forced) { return (void)op, (void)forced, 1; }
static int par__fits_forced(const par__operation *op, int forced) { return (void)op, forced; }
static int par__is_tree_sum(const par__operation *op) { return par__op_code(op->call.op) == PAR_TREE_SUM; }
static int par__fits_tree(const par__operation *op, int forced) { return (void)forced, par__is_tree_sum(op); }
static int par__fits_chain(const par__operation *op, int forced) { // partial sums travel from rank to rank
    return (void)forced, !par__is_tree_sum(op);
}
// Has it the same bits in the order of >>fold? Minima too depend on the order of ranks: of -0 and 0, of NaNs.
static int par__fits_fold(const par__operation *op, int forced) {
    const par__layout *l = &op->comm->nodes;
    const unsigned code = par__op_code(op->call.op);
    const int m = l->per_node, k = l->node_count;
    if (k == 1) return 0;
    if (!par__is_float(op->call.dtype)) return 1;
    if (code == PAR_TREE_SUM) return m && !(m & (m - 1)) && !(k & (k - 1));
    return (void)forced, par__nodes_in_order(l) && (code == PAR_MIN || code == PAR_MAX);
}
static int par__fits_node_tree(const par__operation *op, int forced) { // else each rank sends to the root
    return !par__one_node(op) && (forced || par__call_bytes(op) < PAR__OVERLAP_BYTES);
}
// Where each rank is a node, blocks go straight from array to array unless they are many and small.
static int par__fits_columns(const par__operation *op, int forced) {
    const par__layout *l = &op->comm->nodes;
    const size_t steps = (size_t)par__log2_up(l->node_count), others = (size_t)l->node_count - 1;
    return par__has_slots(op, par__column_slots(l)) &&
           (forced || l->node_count < l->size ||
            (steps * PAR__LINK_BYTES < others * PAR__OVERLAP_BYTES &&
             par__largest_block(op) * par__element_bytes(op) < PAR__OVERLAP_BYTES));
}
static int par__has_equal_nodes(const par__layout *l) { // several, of consecutive ranks
    return l->node_count > 1 && l->per_node && l->size % l->per_node == 0;
}
static int par__fits_bruck(const par__operation *op, int forced) {
    const par__layout *l = &op->comm->nodes;
    const double k = l->node_count, steps = par__log2_up(l->node_count), m = l->per_node,
                 bytes = m * m * (double)par__call_bytes(op); // from one node to another
    if (!par__has_equal_nodes(l)) return 0;
    return forced ||
           steps * ((double)PAR__LINK_BYTES + k / 2 * bytes) < (k - 1) * ((double)PAR__OVERLAP_BYTES + bytes);
}
static int par__fits_equal_nodes(const par__operation *op, int forced) {
    const par__layout *l = &op->comm->nodes;
    return par__has_equal_nodes(l) &&
           (forced || (l->per_node > 1 && par__call_bytes(op) < PAR__OVERLAP_BYTES));
}
static int par__fits_forced_chain(const par__operation *op, int forced) {
    return forced && !par__is_tree_sum(op);
}
static int par__fits_forced_node(const par__operation *op, int forced) { return forced && par__one_node(op); }
static int par__fits_rank_nodes(const par__operation *op, int forced) { // every rank is a node
    return forced || op->comm->nodes.node_count == op->comm->size || par__is_tree_sum(op);
}
static int par__fits_halving(const par__operation *op, int forced) {
    const size_t n = (size_t)op->comm->size;
    return forced && (n & (n - 1)) == 0 && par__call_bytes(op) * n * n <= (size_t)1 << 28;
}

// clang-format off
#define PAR__R(kind, name, fits, emit, when) {PAR_KIND_##kind, #name, par__fits_##fits, emit, when}
static const par__algorithm_row par__algorithms[] = {
    PAR__R(BARRIER,         inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(ALL_REDUCE,      inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(ALL_REDUCE,      eager,     eager,        NULL,                         "small"),
    PAR__R(ALL_REDUCE,      oneshot,   forced_node,  par__emit_oneshot_all_reduce, "when forced, one node"),
    PAR__R(ALL_REDUCE,      twoshot,   node,         par__emit_twoshot,            "one node"),
    PAR__R(ALL_REDUCE,      fold,      fold,         par__emit_fold,               "nodes; exact, any order"),
    PAR__R(ALL_REDUCE,      pairwise,  rank_nodes,   par__emit_pairwise_sum,       "rank = node"),
    PAR__R(ALL_REDUCE,      two_level, chain,        par__emit_two_level_sum,      "several nodes"),
    PAR__R(ALL_REDUCE,      ring,      forced_chain, par__emit_ring_sum,           "when forced"),
    PAR__R(REDUCE_SCATTER,  inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(REDUCE_SCATTER,  eager,     eager,        NULL,                         "small"),
    PAR__R(REDUCE_SCATTER,  oneshot,   node,         par__emit_oneshot_reduce_scatter, "one node"),
    PAR__R(REDUCE_SCATTER,  fold,      fold,         par__emit_fold,               "nodes; exact, any order"),
    PAR__R(REDUCE_SCATTER,  pairwise,  rank_nodes,   par__emit_pairwise_sum,       "rank = node"),
    PAR__R(REDUCE_SCATTER,  two_level, chain,        par__emit_two_level_sum,      "several nodes"),
    PAR__R(REDUCE_SCATTER,  ring,      forced_chain, par__emit_ring_sum,           "when forced"),
    PAR__R(REDUCE_SCATTER,  halving,   halving,      par__emit_halving,            "when forced, n = 2^k"),
    PAR__R(REDUCE_SCATTERV, oneshot,   node,         par__emit_oneshot_reduce_scatter, "one node"),
    PAR__R(REDUCE_SCATTERV, fold,      fold,         par__emit_fold,               "nodes; exact, any order"),
    PAR__R(REDUCE_SCATTERV, pairwise,  rank_nodes,   par__emit_pairwise_sum,       "rank = node"),
    PAR__R(REDUCE_SCATTERV, two_level, chain,        par__emit_two_level_sum,      "several nodes"),
    PAR__R(REDUCE_SCATTERV, ring,      forced_chain, par__emit_ring_sum,           "when forced"),
    PAR__R(ALL_GATHER,      inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(ALL_GATHER,      eager,     eager,        NULL,                         "small"),
    PAR__R(ALL_GATHER,      oneshot,   node,         par__emit_oneshot_all_gather, "one node"),
    PAR__R(ALL_GATHER,      two_level, columns,      par__emit_two_level_all_gather, "several nodes"),
    PAR__R(ALL_GATHER,      pairwise,  always,       par__emit_pairwise,           "otherwise"),
    PAR__R(ALL_GATHER,      ring,      forced,       par__emit_ring_all_gather,    "when forced"),
    PAR__R(ALL_GATHERV,     inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(ALL_GATHERV,     eager,     eager,        NULL,                         "small"),
    PAR__R(ALL_GATHERV,     oneshot,   node,         par__emit_oneshot_all_gather, "one node"),
    PAR__R(ALL_GATHERV,     two_level, columns,      par__emit_two_level_all_gather, "several nodes"),
    PAR__R(ALL_GATHERV,     pairwise,  always,       par__emit_pairwise,           "otherwise"),
    PAR__R(ALL_GATHERV,     ring,      forced,       par__emit_ring_all_gather,    "when forced"),
    PAR__R(BROADCAST,       inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(BROADCAST,       eager,     eager,        NULL,                         "small"),
    PAR__R(BROADCAST,       oneshot,   node,         par__emit_oneshot_broadcast,  "one node"),
    PAR__R(BROADCAST,       two_level, always,       par__emit_two_level_broadcast, "several nodes"),
    PAR__R(BROADCAST,       tree,      forced,       par__emit_tree,               "when forced"),
    PAR__R(REDUCE,          inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(REDUCE,          eager,     eager,        NULL,                         "small"),
    PAR__R(REDUCE,          twoshot,   node,         par__emit_twoshot,            "one node"),
    PAR__R(REDUCE,          fold,      fold,         par__emit_fold,               "nodes; exact, any order"),
    PAR__R(REDUCE,          pairwise,  tree,         par__emit_pairwise_sum,       "tree_sum, several nodes"),
    PAR__R(REDUCE,          two_level, chain,        par__emit_two_level_sum,      "several nodes"),
    PAR__R(REDUCE,          ring,      forced_chain, par__emit_ring_sum,           "when forced"),
    PAR__R(GATHER,          inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(GATHER,          eager,     eager,        NULL,                         "small"),
    PAR__R(GATHER,          oneshot,   gather,       par__emit_oneshot_rooted,     "one node, addressable"),
    PAR__R(GATHER,          tree,      node_tree,    par__emit_rooted,             "several nodes, < 10 KiB"),
    PAR__R(GATHER,          pairwise,  always,       par__emit_pairwise,           "otherwise"),
    PAR__R(GATHERV,         oneshot,   reading,      par__emit_oneshot_blocks,     "one node, addressable"),
    PAR__R(GATHERV,         pairwise,  always,       par__emit_pairwise,           "otherwise"),
    PAR__R(SCATTER,         inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(SCATTER,         eager,     eager,        NULL,                         "small"),
    PAR__R(SCATTER,         oneshot,   scatter,      par__emit_oneshot_rooted,     "one node, addressable"),
    PAR__R(SCATTER,         tree,      node_tree,    par__emit_rooted,             "several nodes, < 10 KiB"),
    PAR__R(SCATTER,         pairwise,  always,       par__emit_pairwise,           "otherwise"),
    PAR__R(SCATTERV,        oneshot,   writing,      par__emit_oneshot_blocks,     "one node, addressable"),
    PAR__R(SCATTERV,        pairwise,  always,       par__emit_pairwise,           "otherwise"),
    PAR__R(ALL_TO_ALL,      inline,    inline,       NULL,                         "fits the arrivals"),
    PAR__R(ALL_TO_ALL,      eager,     eager,        NULL,                         "small"),
    PAR__R(ALL_TO_ALL,      oneshot,   reading,      par__emit_oneshot_blocks,     "one node, addressable"),
    PAR__R(ALL_TO_ALL,      bruck,     bruck,        par__emit_bruck,              "many equal nodes; small"),
    PAR__R(ALL_TO_ALL,      two_level, equal_nodes,  par__emit_two_level_all_to_all, "equal nodes; < 10 KiB"),
    PAR__R(ALL_TO_ALL,      pairwise,  always,       par__emit_pairwise,           "otherwise"),
    PAR__R(ALL_TO_ALLV,     pairwise,  always,       par__emit_pairwise,           "always"),
};
#undef PAR__R
// clang-format on
enum { PAR__ALGORITHM_COUNT = (int)(sizeof par__algorithms / sizeof par__algorithms[0]) };

// The row that is forced or tuned for this call; NULL: the table decides. (Data that fit an arrival are sent
// inline.)
static const par__algorithm_row *par__requested_algorithm(const par__operation *op) {
    const par__world *w = op->comm->world;
    const int forced = w->forced[op->call.kind] - 1;
    if (forced >= 0) return &par__algorithms[forced];
    if (par__eager_bytes(op) <= PAR__INLINE_BYTES) return NULL;
    for (size_t i = 0; i < w->tune_row_count; i++) {
        const par__tune_row *t = &w->tune_rows[i];
        if (par__algorithms[t->algorithm].kind == op->call.kind && t->ranks == op->comm->size &&
            t->nodes == op->comm->nodes.node_count && t->bytes >= par__call_bytes(op))
            return &par__algorithms[t->algorithm];
    }
    return NULL;
}

static int par__is_decided(const par__operation *op) { // before the arrivals, whose flags do not matter
    return op->eager != PAR__EAGER_NONE && op->eager != PAR__EAGER_STAGE;
}
static const par__algorithm_row *par__choose_algorithm(const par__operation *op) {
    const par__algorithm_row *requested = par__is_decided(op) ? NULL : par__requested_algorithm(op);
    if (requested && requested->fits(op, 1)) return requested;
    for (int i = 0; i < PAR__ALGORITHM_COUNT; i++)
        if (par__algorithms[i].kind == op->call.kind && par__algorithms[i].fits(op, 0))
            return &par__algorithms[i];
    return NULL;
}

static int par__is_beyond_caches(const par__operation *op) {
    return par__call_bytes(op) * (size_t)op->comm->size >= op->comm->world->nontemporal_bytes;
}
// Should ordinary memory be copied by the system (CMA)? It is worth a system call from some size on, where
// each byte has one reader. What several ranks read is better staged: copied once, by its owner, and read
// from the caches. So is a large sum out of place, because a rank can write its result past the caches, and
// the system cannot. So is a sum for the root up to 128 times the size: half of it passes the system twice.
// From `times` the threshold on, in bytes to or from a peer. (cma_bytes 1: always, for tests.)
static int par__may_use_cma(const par__operation *op, size_t times) {
    const par_comm *c = op->comm;
    const size_t own = c->world->kind_cma_bytes[op->call.kind];
    const size_t least = PAR__MIN(own ? own : c->world->cma_bytes, SIZE_MAX / times) * times;
    const par_kind_traits *t = &par__kinds[op->call.kind];
    const int sum = (t->takes & PAR_TAKES_OP) && t->send == PAR_SIDE_BLOCK;
    const int one_reader = c->size == 2 || t->send == PAR_SIDE_ROOT_ALL || t->recv == PAR_SIDE_ROOT_ALL ||
                           (t->send == PAR_SIDE_ALL && t->recv == PAR_SIDE_ALL);
    const size_t bytes = par__call_bytes(op) / (sum ? (size_t)c->size : 1);
    const int streams =
        par__is_all_reduce(op->call.kind) && op->call.send != op->call.recv && par__is_beyond_caches(op);
    if (!c->world->cma || c->nodes.node_count > 1) return 0;
    if (c->world->cma_bytes == 1) return bytes >= least;
    return (sum && par__takes_root(op->call.kind) ? bytes / 128 : bytes) >= least && one_reader && !streams;
}

// Whether the system's copy is faster depends on the machine: staged data pass a cache that cores share at
// twice its speed, and distant ones' at half, and in a virtual machine that changes by the minute. So rank 0
// of a comm times its calls, of each kind and size, from when all have arrived: the first six are staged
// and copied by turns, later ones go the faster way, and every 64th the other. It has data staged by
// withholding the addresses of its arrays: then all ranks stage. A threshold of PAR_TUNE decides instead.
static int par__next_way(par__two_ways *x) { // 1: staged
    const uint32_t call = x->calls++;
    const int faster = x->seconds[1] < x->seconds[0];
    return call < 6 ? (int)(call & 1) : call % 64 ? faster : !faster;
}
// The least seconds count, and rise slowly, so that an interrupted call decides nothing.
static void par__count_way(par__two_ways *x, int way, double seconds) {
    const double before = x->seconds[way];
    x->seconds[way] =
        (float)(before <= 0 || seconds < before ? seconds
                                                : PAR__MIN(seconds, before * 2) / 8 + before * 7 / 8);
}
static int par__prefers_stages(par__operation *op) {
    par_comm *c = op->comm;
    const par__world *w = c->world;
    const size_t bytes = par__call_bytes(op) / PAR__CMA_BYTES;
    size_t at = 0;
    if (c->rank || w->kind_cma_bytes[op->call.kind] || w->cma_bytes != PAR__CMA_BYTES) return 0;
    if (!c->ways)
        c->ways = (par__two_ways *)par__zalloc((size_t)PAR_KIND_COUNT * PAR__SIZE_CLASSES * sizeof *c->ways);
    if (!c->ways) return 0;
    while (at < PAR__SIZE_CLASSES - 1 && bytes >> at > 1) at++;
    op->ways = &c->ways[(size_t)op->call.kind * PAR__SIZE_CLASSES + at];
    return op->way = par__next_way(op->ways);
}

// Before the arrival: are the data sent with it? shared: peers can read the input in place.
static int par__sends_inline(const par__operation *op) {
    const par__algorithm_row *requested = par__requested_algorithm(op);
    if (!par__one_node(op) && !par__is_attached(op)) return 0;
    return par__eager_bytes(op) <= PAR__INLINE_BYTES && (!requested || requested->fits == par__fits_inline);
}
static int par__sends_staged(const par__operation *op, int shared) {
    const par__algorithm_row *requested = par__requested_algorithm(op);
    const size_t bytes = par__eager_bytes(op), n = (size_t)op->comm->size;
    const int all_add = par__is_all_reduce(op->call.kind),
              root_adds = par__takes_op(op->call.kind) && !shared && par__takes_root(op->call.kind);
    const size_t work = all_add ? bytes * n / 2 : root_adds ? bytes / 4 : bytes;
    if (!par__one_node(op) || bytes > op->comm->half_bytes) return 0;
    // With the arrival staged data need no other step, so that the system's copy wins from twice the size on.
    if (!requested && !shared && par__may_use_cma(op, 2)) return 0;
    return requested ? requested->fits == par__fits_eager
                     : work <= (shared ? PAR__EAGER_SHARED_BYTES : PAR__EAGER_BYTES);
}
static int par__sends_attached(const par__operation *op) {
    const par__algorithm_row *requested = par__requested_algorithm(op);
    return !par__one_node(op) && par__is_attached(op) && (!requested || requested->fits == par__fits_eager);
}

// ---- PAR_ALGO and PAR_TUNE

// Returns the index of an algorithm in par__algorithms, or -1.
static int par__find_algorithm(const char *kind, const char *name) {
    for (int i = 0; i < PAR__ALGORITHM_COUNT; i++)
        if (!strcmp(kind, par__kinds[par__algorithms[i].kind].name) && !strcmp(name, par__algorithms[i].name))
            return i;
    return -1;
}

// Report that an operation or its algorithm does not exist, and suggest the nearest name. `where` is the
// setting or the line of a file that has it.
static void par__unknown_algorithm(par__world *w, const char *where, const char *kind, const char *name) {
    const char *kinds[PAR__ALGORITHM_COUNT], *names[PAR__ALGORITHM_COUNT];
    size_t count = 0;
    for (int i = 0; i < PAR__ALGORITHM_COUNT; i++) {
        kinds[i] = par__kinds[par__algorithms[i].kind].name;
        if (!strcmp(kind, kinds[i])) names[count++] = par__algorithms[i].name;
    }
    if (count)
        par__set_error(w, PAR_ERR_ARGUMENT,
                       "%s: %s has no algorithm \"%s\"%s (par_algorithms_print lists them)", where, kind,
                       name, par_suggest(name, names, count, sizeof *names).text);
    else
        par__set_error(w, PAR_ERR_ARGUMENT,
                       "%s: no operation \"%s\" has algorithms%s (par_algorithms_print lists them)", where,
                       kind, par_suggest(kind, kinds, PAR__ALGORITHM_COUNT, sizeof *kinds).text);
}

static par_result par__apply_force(par__world *w, const char *where, const char *text) {
    char item[64];
    w->forced_count++;
    while (text && *text) {
        const size_t n = strcspn(text, ",");
        char *name;
        snprintf(item, sizeof item, "%.*s", (int)PAR__MIN(n, sizeof item - 1), text);
        text += n + (text[n] == ',');
        name = strchr(item, ':');
        if (!name)
            return par__set_error(w, PAR_ERR_ARGUMENT,
                                  "%s: \"%s\" is not operation:algorithm, such as all_reduce:ring", where,
                                  item);
        *name++ = 0;
        const int row = par__find_algorithm(item, name);
        if (row < 0) return par__unknown_algorithm(w, where, item, name), PAR_ERR_ARGUMENT;
        w->forced[par__algorithms[row].kind] = (signed char)(row + 1);
    }
    return PAR_OK;
}

// Returns the next word of *line and advances *line past it; "" at the end of the line.
static const char *par__next_word(char **line) {
    char *word = *line + strspn(*line, " \t\r");
    *line = word + strcspn(word, " \t\r");
    if (**line) *(*line)++ = 0;
    return word;
}
// 1: an integer; from 2^53 on, where a double no longer counts one by one, it means any size.
static int par__parse_bytes(const char *text, size_t *bytes) {
    double value;
    if (!par__parse_integer(text, 18446744073709551616.0, &value)) return 0;
    *bytes = value < 9007199254740992.0 ? (size_t)value : SIZE_MAX;
    return 1;
}
// "set name n": a threshold. That of cma_bytes may be one operation's.
static par_result par__set_threshold(par__world *w, const char *where, const char *name, size_t bytes,
                                     const char *kind) {
    static const char *const set[] = {"cma_bytes", "stream_bytes"};
    if (*kind) {
        for (int i = 0; i < PAR__ALGORITHM_COUNT; i++)
            if (!strcmp(kind, par__kinds[par__algorithms[i].kind].name))
                return w->kind_cma_bytes[par__algorithms[i].kind] = PAR__MAX(bytes, (size_t)2), PAR_OK;
        return par__unknown_algorithm(w, where, kind, ""), PAR_ERR_ARGUMENT;
    }
    if (!strcmp(name, set[0]))
        w->cma_bytes = bytes;
    else if (!strcmp(name, set[1]))
        w->nontemporal_bytes = bytes;
    else
        return par__set_error(w, PAR_ERR_ARGUMENT, "%s: there is no \"%.64s\" to set, but %s and %s", where,
                              name, set[0], set[1]);
    return PAR_OK;
}
// Parse one line of the tuning table. A row "operation ranks nodes bytes algorithm" is for calls of at most
// `bytes` bytes, by the count argument of par_<operation>. "set cma_bytes n", "set cma_bytes n operation" and
// "set stream_bytes n" set a threshold. A # begins a comment.
static par_result par__parse_tune_row(par__world *w, const char *where, char *line) {
    const char *word[6];
    double ranks = 0, nodes = 0;
    size_t bytes = 0;
    par__tune_row t;
    line[strcspn(line, "#")] = 0;
    for (int i = 0; i < 6; i++) word[i] = par__next_word(&line);
    if (!*word[0]) return PAR_OK;
    if (!strcmp(word[0], "set") && *word[2] && par__parse_bytes(word[2], &bytes) &&
        !*word[strcmp(word[1], "cma_bytes") ? 3 : 4])
        return par__set_threshold(w, where, word[1], bytes, word[3]);
    if (!*word[4] || *word[5] || !par__parse_integer(word[1], INT_MAX, &ranks) || ranks < 1 ||
        !par__parse_integer(word[2], INT_MAX, &nodes) || nodes < 1 || !par__parse_bytes(word[3], &bytes))
        return par__set_error(
            w, PAR_ERR_ARGUMENT,
            "%s is not a row \"operation ranks nodes bytes algorithm\"; bench_coll --tune writes "
            "such a file",
            where);
    t.algorithm = par__find_algorithm(word[0], word[4]);
    if (t.algorithm < 0) return par__unknown_algorithm(w, where, word[0], word[4]), PAR_ERR_ARGUMENT;
    t.ranks = (int)ranks;
    t.nodes = (int)nodes;
    t.bytes = bytes;
    par__tune_row *more = (par__tune_row *)PAR_REALLOC(w->tune_rows, (w->tune_row_count + 1) * sizeof t);
    if (!more) return par__set_error(w, PAR_ERR_MEMORY, "%s: no memory for the table", where);
    w->tune_rows = more;
    more[w->tune_row_count++] = t;
    return PAR_OK;
}
static par_result par__load_tune_file(par__world *w, const char *path) {
    char line[256], where[512], why[512];
    size_t size;
    par_result r = PAR_OK;
    if (!path || !*path) return PAR_OK;
    const int fd = par__open_read(path, &size, why, sizeof why);
    if (fd < 0) return par__set_error(w, PAR_ERR_SYSTEM, "PAR_TUNE: %s", why);
    FILE *f = fdopen(fd, "r");
    if (!f) return close(fd), par__set_error(w, PAR_ERR_MEMORY, "PAR_TUNE: out of memory");
    for (int row = 1, c; !r && (c = fgetc(f)) != EOF; row++) {
        size_t n = 0;
        for (; c != EOF && c != '\n' && c && n < sizeof line - 1; c = fgetc(f)) line[n++] = (char)c;
        line[n] = 0;
        snprintf(where, sizeof where, "PAR_TUNE: %s:%d", path, row);
        if (c != EOF && c != '\n')
            r = par__set_error(w, PAR_ERR_ARGUMENT, "%s is not a line of text of at most %zu characters",
                               where, sizeof line - 1);
        else
            r = par__parse_tune_row(w, where, line);
    }
    if (!r && ferror(f)) r = par__set_error(w, PAR_ERR_SYSTEM, "PAR_TUNE: cannot read %s", path);
    return fclose(f), r;
}

static uint64_t par__tune_rows_hash(const par__world *w) {
    size_t h[4] = {w->cma_bytes, w->nontemporal_bytes, 0, 0};
    uint64_t hash =
        par__hash_sizes(w->kind_cma_bytes, PAR_KIND_COUNT, par__hash_sizes(h, 2, 0xcbf29ce484222325u));
    for (size_t i = 0; i < w->tune_row_count; i++) {
        const par__tune_row *t = &w->tune_rows[i];
        h[0] = (size_t)t->algorithm;
        h[1] = (size_t)t->ranks;
        h[2] = (size_t)t->nodes;
        h[3] = t->bytes;
        hash = par__hash_sizes(h, 4, hash);
    }
    return hash;
}

// >>buckets -------------------------------------------------------------------------------------------------
//
// The calls of a group are kept until the group ends. Neighbors that differ in their arrays alone are packed
// into one bucket and become one operation:
//     calls       a = 2 elements, b = 1, c = 3     same kind, dtype, op, root and tag
//     bucket      [a a b c c c]                    one arrival with a hash of the counts; unpacked at the end

#define PAR__COALESCE_BYTES ((size_t)65536)   // calls of up to so many bytes are coalesced
#define PAR__BUCKET_BYTES   ((size_t)1 << 20) // up to so many bytes

// Keep a call that is made within a group until the group ends. Where an argument is wrong, the others learn
// it from the first collective of their groups, whatever calls they have coalesced.
static par_result par__add_to_group(par_comm *c, const par_call *call) {
    if (!par__validate_call(c, call)) {
        if ((unsigned)call->kind < PAR_KIND_COUNT && par__is_message(call->kind)) return PAR_ERR_ARGUMENT;
        if (!c->group_invalid) c->invalid_call = *call;
        c->group_invalid = 1;
        return PAR_ERR_ARGUMENT;
    }
    if (c->grouped_count == c->grouped_capacity) {
        const size_t capacity = 2 * c->grouped_capacity + 16;
        par_call *calls = (par_call *)PAR_REALLOC(c->grouped, capacity * sizeof *calls);
        if (!calls) return par__set_error(c->world, PAR_ERR_MEMORY, "no memory for a group of calls");
        c->grouped = calls;
        c->grouped_capacity = capacity;
    }
    c->grouped[c->grouped_count++] = *call;
    return PAR_OK;
}

// The number of calls, from `first` on, that can share a bucket.
static size_t par__count_coalescible(const par_comm *c, size_t first) {
    const par_call *a = &c->grouped[first];
    const par_kind_traits *t = &par__kinds[a->kind];
    const size_t e = par__dtypes[a->dtype].bytes;
    size_t n = 0, bytes = 0;
    if (t->recv != PAR_SIDE_BLOCK || (t->send != PAR_SIDE_BLOCK && t->send != PAR_SIDE_ROOT_BLOCK)) return 1;
    for (; first + n < c->grouped_count; n++) {
        const par_call *b = &c->grouped[first + n];
        if (b->kind != a->kind || b->dtype != a->dtype || b->op != a->op || b->root != a->root ||
            b->tag != a->tag || b->count > PAR__COALESCE_BYTES / e ||
            bytes + b->count * e > PAR__BUCKET_BYTES)
            break;
        bytes += b->count * e;
    }
    return PAR__MAX(n, (size_t)1);
}

// One operation for n > 1 calls, whose data are packed in a bucket. Its arrival has a hash of the counts, so
// that other counts with the same sum are a mismatch.
static int par__fill_bucket(par__operation *op, const par_call *calls, size_t n) { // 0: no memory
    par_call *all = &op->call;
    const size_t e = par__dtypes[calls->dtype].bytes;
    const int reads = par__has_input(op);
    uint64_t hash = 0xcbf29ce484222325u;
    if (op->bucket.capacity < n) {
        PAR_FREE(op->bucket.calls);
        op->bucket.calls = (par_call *)PAR_MALLOC(n * sizeof *calls);
        op->bucket.capacity = op->bucket.calls ? n : 0;
    }
    if (!op->bucket.memory) op->bucket.memory = (char *)PAR_MALLOC(PAR__BUCKET_BYTES);
    if (!op->bucket.calls || !op->bucket.memory) return 0;
    all->count = 0;
    for (size_t i = 0; i < n; i++) {
        const par_call *k = &calls[i];
        if (k->count && reads)
            par__copy(op->comm->world->kernels, op->bucket.memory + all->count * e, k->send, k->count * e);
        all->count += k->count;
        hash = par__hash_sizes(&k->count, 1, hash);
        op->bucket.calls[i] = *k;
    }
    all->send = all->recv = op->bucket.memory;
    op->bucket.hash = (uint16_t)(hash >> 48 | 1);
    op->bucket.count = n;
    return 1;
}

// Copy the results of a bucket to the arrays of its calls.
static void par__unpack_bucket(par__operation *op) {
    const size_t e = par__element_bytes(op);
    const char *from = op->bucket.memory;
    for (size_t i = 0; i < op->bucket.count; i++) {
        const par_call *k = &op->bucket.calls[i];
        if (op->result == PAR_OK && k->count)
            par__copy(op->comm->world->kernels, k->recv, from, k->count * e);
        from += k->count * e;
    }
    op->bucket.count = 0;
}

// >>arrival -------------------------------------------------------------------------------------------------
//
// Every rank publishes a record of its call on its node's board. Before any data move, all records are
// compared, so that all ranks find the same difference:
//     rank 0    publish ---.                   .--- compare all with rank 0's, resolve addresses
//     rank 1    publish ---+-- board of the ---+---     the same difference on every rank
//     rank 2    publish ---'   node            '---
// A record says how peers can access the rank's arrays: in place (shared memory, CMA), staged, or with the
// data inline.
//
// Between nodes the leader of each node (its first rank) makes a digest of its ranks' records: the first
// record, the first rank that differs, the flags of all, a sum of hashes of counts. The leaders fold the
// digests of all k nodes by dissemination (Bruck 1997): in the step of distance d node m gets the digests of
// nodes m + d, m + 2d ... m + 7d, each of d nodes. A second digest, of k mod d nodes, makes the last step
// right for any k: nothing is folded twice.
//     k = 11   d = 1   node 0 <- 1 2 3 ... 7                 8 nodes; and the first 3 of them: 0 1 2
//              d = 8   node 0 <- 8, its digest of 3 nodes    8 + 3
// 7 messages for each digit of k to the base 8 (fewer in the last step), 64 or 128 bytes each. Then the
// leader writes its verdict on the board of its node. Small data are attached (>>eager). Where ranks differ,
// or one has no memory, the reports of two ranks, for the error text, go the same way.

// Allocate the tables of addresses of the ranks' arrays. 0: out of memory.
static inline int par__alloc_addresses(par__operation *op) {
    par_comm *c = op->comm;
    if (op->arrays.capacity < c->size) {
        PAR_FREE((void *)op->arrays.inputs);
        PAR_FREE(op->arrays.output);
        PAR_FREE(op->arrays.cma);
        PAR_FREE((void *)op->arrays.sources);
        PAR_FREE(op->arrays.destinations);
        op->arrays.cma = (unsigned char *)par__zalloc(2 * (size_t)c->size);
        op->arrays.inputs = (const char **)par__zalloc(sizeof(char *) * (size_t)c->size * PAR__TRACKS);
        op->arrays.output = (char **)par__zalloc(sizeof(char *) * (size_t)c->size);
        op->arrays.sources = (const void **)par__zalloc(sizeof(char *) * (size_t)c->size);
        op->arrays.destinations =
            (void **)par__zalloc(sizeof(char *) * ((size_t)c->size + 2)); // recv, a->dst
        op->arrays.capacity = c->size;
        if (!op->arrays.inputs || !op->arrays.output || !op->arrays.cma || !op->arrays.sources ||
            !op->arrays.destinations)
            return op->arrays.capacity = 0, 0;
    }
    op->arrays.flags = op->arrays.cma + op->arrays.capacity;
    return 1;
}

// The address at which this process can access a peer's array: shared memory, the peer's own address for CMA,
// or NULL. 0: no array of so many bytes can be at that address.
static int par__resolve_address(const par__world *w, unsigned shared, unsigned cma, uint64_t address,
                                size_t bytes, char **where) {
    *where = NULL;
    if (cma && bytes) return *where = (char *)address, 1; // the kernel checks it
    if (!shared || !bytes) return 1;
    if (!par__ranks_are_threads(w) &&
        (!address || address > w->arena_bytes + 1 || bytes > w->arena_bytes + 1 - address))
        return 0;
    return *where = par__peer_pointer(w, address), 1;
}
static par_result par__resolve_addresses(par__operation *op) {
    par_comm *c = op->comm;
    const unsigned send_flags = PAR__SEND_SHARED | PAR__SEND_CMA,
                   recv_flags = PAR__RECV_SHARED | PAR__RECV_CMA;
    const size_t e = par__element_bytes(op);
    const int nodes = c->nodes.node_count, my_node = c->nodes.my_node;
    int disjoint = 1;    // all arrays are addressable, and none is both read and written
    unsigned hidden = 0; // the system copies for all ranks, or for none: par__prefers_stages
    op->arrays.send_addressable = op->arrays.recv_addressable = nodes == 1;
    op->arrays.all_staged = nodes == 1;
    if (nodes > 1) {
        const par__digest *d = &par__verdict_of(c, op->sequence)->digest;
        disjoint = (~d->all & (PAR__SEND_SHARED | PAR__RECV_SHARED)) == 0 && !(d->any & PAR__IN_PLACE);
        memset((void *)op->arrays.input, 0, sizeof *op->arrays.input * (size_t)c->size);
        memset(op->arrays.output, 0, sizeof *op->arrays.output * (size_t)c->size);
        memset(op->arrays.cma, 0, 2 * (size_t)op->arrays.capacity);
    }
    for (int i = 0; i < par__node_size(&c->nodes, my_node); i++) {
        const int r = par__node_rank(&c->nodes, my_node, i);
        const par__arrival *s = par__arrival_of(c, r, op->sequence);
        const unsigned flags = r == c->rank ? op->arrival_flags : PAR__LOAD(&s->call.flags);
        op->arrays.flags[r] = (unsigned char)flags;
        if (!(flags & send_flags) || !(flags & recv_flags)) hidden = PAR__SEND_CMA | PAR__RECV_CMA;
    }
    for (int i = 0; i < par__node_size(&c->nodes, my_node); i++) {
        const int r = par__node_rank(&c->nodes, my_node, i);
        const par__arrival *s = par__arrival_of(c, r, op->sequence);
        const unsigned flags = op->arrays.flags[r] &= (unsigned char)~hidden;
        const uint64_t send_at = s->u.address.send, recv_at = s->u.address.recv;
        size_t send, recv;
        char *from;
        par__spans_shared(op, r, &send, &recv);
        op->arrays.all_staged &= (flags & PAR__INPUT_STAGED) != 0;
        op->arrays.send_addressable &= (flags & send_flags) != 0;
        op->arrays.recv_addressable &= (flags & recv_flags) != 0;
        disjoint &= (flags & (PAR__SEND_SHARED | PAR__RECV_SHARED | PAR__IN_PLACE)) ==
                    (PAR__SEND_SHARED | PAR__RECV_SHARED);
        op->arrays.input[r] = NULL;
        op->arrays.output[r] = r == c->rank && (flags & recv_flags) && recv ? (char *)op->call.recv : NULL;
        op->arrays.cma[r] = 0;
        if (r == c->rank) continue;
        op->arrays.cma[r] = (unsigned char)(flags & (PAR__SEND_CMA | PAR__RECV_CMA));
        if (!par__resolve_address(c->world, flags & PAR__SEND_SHARED, flags & PAR__SEND_CMA, send_at,
                                  send * e, &from))
            return par__memory_corrupt(c->world, "the address of a rank's data as", send_at);
        op->arrays.input[r] = from;
        if (!par__resolve_address(c->world, flags & PAR__RECV_SHARED, flags & PAR__RECV_CMA, recv_at,
                                  recv * e, &op->arrays.output[r]))
            return par__memory_corrupt(c->world, "the address of a rank's result as", recv_at);
    }
    op->arrays.input[c->rank] = (const char *)op->call.send;
    for (int i = 1; i < op->track_count; i++)
        memcpy((void *)(op->arrays.inputs + i * c->size), (const void *)op->arrays.inputs,
               sizeof(char *) * (size_t)c->size);
    if (op->arrays.recv_addressable) op->arrays.output[c->rank] = (char *)op->call.recv;
    op->arrays.nontemporal = disjoint && par__is_beyond_caches(op);
    op->arrays.stream_recv = !(op->arrival_flags & PAR__IN_PLACE) && par__is_beyond_caches(op);
    return PAR_OK;
}

void par__record_call(const par_comm *c, const par_call *k, par__call_record *s) {
    const int takes_op = par__takes_op(k->kind);
    s->kind = (uint8_t)k->kind;
    s->dtype = (uint8_t)k->dtype;
    s->root = par__root_or_tag(k);
    s->op = takes_op ? (uint8_t)par__op_code(k->op) : 0;
    s->op_hash = takes_op ? (uint16_t)(k->op >> 8 ^ k->op >> 24 ^ k->op >> 40 ^ k->op >> 52) : 0;
    s->count = k->count;
    for (int r = 0; par__kinds[k->kind].counts == PAR_COUNTS_OWN && k->send_counts && r < c->size; r++)
        s->count = PAR__MAX(s->count, (uint64_t)k->send_counts[r]);
    if (par__kinds[k->kind].counts == PAR_COUNTS_SAME)
        s->count = par__hash_sizes(k->recv_displs, c->size,
                                   par__hash_sizes(k->recv_counts, c->size, 0xcbf29ce484222325u));
}
int par__is_same_call(const par__call_record *a, const par__call_record *b) {
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->op_hash == b->op_hash &&
           a->root == b->root &&
           (a->count == b->count || par_kind_traits_of((par_kind)a->kind)->counts >= PAR_COUNTS_ROOT);
}
static int par__is_same_kind(const par__call_record *a, const par__call_record *b) { // but for its sizes
    return a->kind == b->kind && a->root == b->root && a->op == b->op && a->op_hash == b->op_hash;
}
const char *par__describe_call(const par__call_record *s, char *text, size_t bytes) {
    char count[40] = "", root[32] = "";
    const par_kind k = (par_kind)s->kind;
    const par_kind_traits *t = par_kind_traits_of(k);
    const char *invalid = s->flags & PAR__INVALID_CALL ? " with an invalid argument" : "";
    if ((t->takes & PAR_TAKES_ROOT) || s->root)
        snprintf(root, sizeof root, t->takes & PAR_TAKES_ROOT ? ", root=%d" : ", tag=%d", s->root);
    if (t->counts == PAR_COUNTS_SAME)
        snprintf(count, sizeof count, "counts[] #%08x", (unsigned)(s->count ^ s->count >> 32));
    else
        snprintf(count, sizeof count, "count=%llu", (unsigned long long)s->count);
    if (k == PAR_KIND_BARRIER)
        snprintf(text, bytes, "par_barrier(%s)%s", root[0] ? root + 2 : "", invalid);
    else
        snprintf(text, bytes, "par_%s(%s, %s, op=%s%s)%s%s", par_kind_name(k), count,
                 par_dtype_name((par_dtype)s->dtype), par_op_name(s->op), root,
                 s->op_hash && s->op != PAR_SCALED_SUM ? " for a group of calls" : "", invalid);
    return text;
}

// ---- digests

static par__digest par__digest_of_rank(const par_comm *c, int r, uint32_t sequence) {
    const par__arrival *s = par__arrival_of(c, r, sequence);
    const int bad = PAR__NO_MEMORY | PAR__INVALID_CALL;
    par__digest d;
    memset(&d, 0, sizeof d);
    d.call = s->call;
    d.rank = r;
    d.odd = d.call.flags & bad ? r : -1;
    d.all = d.any = d.call.flags;
    d.largest = d.call.count * par_dtype_bytes((par_dtype)d.call.dtype);
    if (par_kind_traits_of((par_kind)d.call.kind)->counts >= PAR_COUNTS_ROOT) d.counts = s->u.address.counts;
    return d;
}
static void par__fold_digest(par__digest *to, const par__digest *x) { // of other ranks
    const par__digest a = *to;
    if (x->rank < 0) return;
    if (a.rank < 0 || x->rank < a.rank) *to = *x;
    if (a.rank < 0) return;
    const par__digest *low = x->rank < a.rank ? x : &a, *high = low == x ? &a : x;
    const int other = par__is_same_call(&low->call, &high->call) ? high->odd : high->rank;
    to->odd = low->odd < 0 ? other : other < 0 ? low->odd : PAR__MIN(low->odd, other);
    to->all = a.all & x->all;
    to->any = a.any | x->any;
    to->kinds_differ = a.kinds_differ || x->kinds_differ || !par__is_same_kind(&a.call, &x->call);
    to->counts = a.counts + x->counts;
    to->largest = PAR__MAX(a.largest, x->largest);
}
static par__digest par__digest_of_node(const par_comm *c, uint32_t sequence) {
    const par__layout *l = &c->nodes;
    par__digest d = par__digest_of_rank(c, par__node_rank(l, l->my_node, 0), sequence);
    for (int i = 1; i < par__node_size(l, l->my_node); i++) {
        const par__digest x = par__digest_of_rank(c, par__node_rank(l, l->my_node, i), sequence);
        par__fold_digest(&d, &x);
    }
    return d;
}
// Of all ranks, after all have arrived.
static par__digest par__digest_of_all(const par_comm *c, uint32_t sequence) {
    return c->nodes.node_count > 1 ? par__verdict_of(c, sequence)->digest : par__digest_of_node(c, sequence);
}
// The arrival of a rank that an error text names: of this node, or one of the reports.
static par__report par__report_of(const par_comm *c, int r, uint32_t sequence) {
    par__report x;
    memset(&x, 0, sizeof x);
    x.rank = r;
    if (par__is_local(c, r)) {
        x.call = par__arrival_of(c, r, sequence)->call;
        const par__shared_text site = par__site_text(c, r, x.call.site);
        memcpy(x.site, site.at, sizeof x.site - 1);
        return x;
    }
    for (int i = 0; i < 2; i++)
        if (c->board->reports[i].rank == r) x = c->board->reports[i];
    x.site[sizeof x.site - 1] = 0;
    par__sanitize(x.site, "");
    return x;
}
static int par__compared_with(int odd) { return odd ? 0 : 1; } // the rank beside it in the text

// Did all ranks make the same call?
static int par__first_odd(const par__operation *op) { // < 0: they did
    const par_comm *c = op->comm;
    if (c->nodes.node_count > 1) return par__verdict_of(c, op->sequence)->digest.odd;
    const par__call_record *a = &par__arrival_of(c, 0, op->sequence)->call;
    for (int r = 0; r < c->size; r++) {
        const par__call_record *b = &par__arrival_of(c, r, op->sequence)->call;
        if ((b->flags & (PAR__NO_MEMORY | PAR__INVALID_CALL)) || !par__is_same_call(a, b)) return r;
    }
    return -1;
}
static par_result par__compare_arrivals(par__operation *op) {
    par_comm *c = op->comm;
    const int r = par__first_odd(op), other = PAR__MIN(par__compared_with(r), c->size - 1);
    char one[160], two[160];
    if (r < 0) return PAR_OK;
    if (r >= c->size) return par__memory_corrupt(c->world, "the number of a rank,", (uint64_t)r);
    const par__report b = par__report_of(c, r, op->sequence), a = par__report_of(c, other, op->sequence);
    if (b.call.flags & PAR__NO_MEMORY)
        return par__set_error(c->world, PAR_ERR_MEMORY,
                              "rank %d has no shared memory left for staging (%zu bytes) in %s", r,
                              c->stage_bytes, par__describe_call(&b.call, one, sizeof one));
    return par__set_error(
        c->world, PAR_ERR_MISMATCH,
        "rank %d called %s at %s, but rank %d called %s at %s (call %u on comm %s): all ranks must make the "
        "same calls in the same order",
        r, par__describe_call(&b.call, one, sizeof one), b.site, other,
        par__describe_call(&a.call, two, sizeof two), a.site, op->sequence, c->name);
}

int par__differs_in_size_alone(const par_comm *c) {
    const uint32_t call = c->collectives.issued;
    if (c->broken || PAR__LOAD(&par__arrival_of(c, c->rank, call)->call.sequence) != call) return 0;
    if (c->nodes.node_count > 1 && PAR__LOAD(&par__verdict_of(c, call)->sequence) != call) return 0;
    const par__digest d = par__digest_of_all(c, call);
    return d.kinds_differ ? 0 : d.odd < 0 ? 1 : d.odd + 1; // 1: counts that each rank has of its own
}
uint64_t par__largest_block_seen(const par_comm *c) {
    return par__digest_of_all(c, c->collectives.issued).largest;
}

// Where ranks have counts of their own (gatherv, scatterv, all_to_allv), each block has a count at both ends.
// A rank adds a hash of each count that it sends, and subtracts the same of each that it receives: over all
// ranks the sum is 0 where all ends agree, so that all ranks know before data move:
//     rank 0    h(0,1,5) - h(1,0,7)                       send 5 to rank 1, receive 7 from it
//     rank 1    h(1,0,7) - h(0,1,5)                       send 7 to rank 0, receive 5 from it
// Where it is not 0 no data move. Each rank tells its count to each receiver, and the receiver what it found
// to all ranks (PAR__COMPARE is between the two), so that all report the same difference.
enum { PAR__NO_BLOCK = -1 }; // as a count: the call has no block from this rank to that one
static int par__has_own_counts(const par__operation *op) { // what others pass there is not read
    return par__kinds[op->call.kind].counts == PAR_COUNTS_OWN || op->comm->rank == op->call.root;
}
static size_t par__sent_count(const par__operation *op, int to) {
    const par_call *k = &op->call;
    if (par__kinds[k->kind].recv == PAR_SIDE_ROOT_ALL)
        return to == k->root ? k->count : (size_t)PAR__NO_BLOCK;
    return par__has_own_counts(op) ? k->send_counts[to] : (size_t)PAR__NO_BLOCK;
}
static size_t par__received_count(const par__operation *op, int from) {
    const par_call *k = &op->call;
    if (par__kinds[k->kind].send == PAR_SIDE_ROOT_ALL)
        return from == k->root ? k->count : (size_t)PAR__NO_BLOCK;
    return par__has_own_counts(op) ? k->recv_counts[from] : (size_t)PAR__NO_BLOCK;
}
static uint64_t par__block_hash(int from, int to, size_t count) {
    uint64_t h = ((uint64_t)(uint32_t)from << 32 | (uint32_t)to) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29 ^ count) * 0xbf58476d1ce4e5b9u;
    return count == (size_t)PAR__NO_BLOCK ? 0 : h ^ h >> 32;
}
static uint64_t par__hash_own_counts(const par__operation *op) {
    const int me = op->comm->rank;
    uint64_t sum = 0;
    for (int r = 0; r < op->comm->size; r++)
        sum += par__block_hash(me, r, par__sent_count(op, r)) -
               par__block_hash(r, me, par__received_count(op, r));
    return sum;
}
static int par__counts_agree(const par__operation *op) {
    if (par__kinds[op->call.kind].counts < PAR_COUNTS_ROOT) return 1;
    return par__digest_of_all(op->comm, op->sequence).counts == 0;
}

typedef struct par__told_count { // what a rank sends to another, and where
    uint64_t count;
    char site[PAR__SITE_BYTES];
} par__told_count;
typedef struct par__difference {   // the first one that a receiver has found; from 0: none
    uint64_t from, sent, received; // from: the sender + 1
    char sent_at[PAR__SITE_BYTES], received_at[PAR__SITE_BYTES];
} par__difference;
// The counts that this rank sends, those that the others send to it, and what all receivers have found.
static par__told_count *par__difference_buffer(par__operation *op) { // NULL: no memory
    const size_t n = (size_t)op->comm->size;
    return (par__told_count *)par__get_scratch(op,
                                               n * (2 * sizeof(par__told_count) + sizeof(par__difference)));
}
static par__difference *par__differences(par__operation *op) {
    return (par__difference *)(par__difference_buffer(op) + 2 * op->comm->size);
}
static void par__compare_counts(par__operation *op) {
    const par_comm *c = op->comm;
    const par__told_count *theirs = par__difference_buffer(op) + c->size;
    par__difference *mine = &par__differences(op)[c->rank];
    memset(mine, 0, sizeof *mine);
    snprintf(mine->received_at, sizeof mine->received_at, "%s", par__op_site(op));
    for (int r = 0; r < c->size && !mine->from; r++) {
        mine->sent = r == c->rank ? par__sent_count(op, r) : theirs[r].count;
        mine->received = par__received_count(op, r);
        mine->from = mine->sent == mine->received ? 0 : (uint64_t)r + 1;
        memcpy(mine->sent_at, r == c->rank ? mine->received_at : theirs[r].site, sizeof mine->sent_at);
    }
}
static void par__emit_differences(par__operation *op) {
    const par_comm *c = op->comm;
    const int n = c->size, me = c->rank;
    par__told_count *sent = par__difference_buffer(op);
    if (!sent) return;
    par__difference *found = par__differences(op);
    for (int i = 1; i < n; i++) {
        const int to = (me + i) % n, from = (me - i + n) % n;
        sent[to].count = par__sent_count(op, to);
        snprintf(sent[to].site, sizeof sent[to].site, "%s", par__op_site(op));
        par__emit_message(op, PAR__RECV, from, sent + n + from, sizeof *sent);
        par__emit_message(op, PAR__SEND, to, sent + to, sizeof *sent);
    }
    par__emit_join(op);
    par__emit(op, PAR__COMPARE);
    for (int i = 1; i < n; i++) {
        const int to = (me + i) % n, from = (me - i + n) % n;
        par__emit_message(op, PAR__RECV, from, found + from, sizeof *found);
        par__emit_message(op, PAR__SEND, to, found + me, sizeof *found);
    }
    par__emit_join(op);
}
static const par__algorithm_row par__finding_differences = {PAR_KIND_ALL_TO_ALLV, "differences",
                                                            par__fits_always, par__emit_differences, ""};
static const char *par__describe_count(const par__operation *op, uint64_t count, char *text, size_t bytes) {
    if (count == (uint64_t)PAR__NO_BLOCK)
        snprintf(text, bytes, "nothing");
    else
        snprintf(text, bytes, "%llu %s (%llu bytes)", (unsigned long long)count,
                 par_dtype_name(op->call.dtype), (unsigned long long)count * par__element_bytes(op));
    return text;
}
static par_result par__report_difference(par__operation *op) {
    const par_comm *c = op->comm;
    par__difference *found = par__differences(op);
    char sent[64], received[64];
    int to = 0;
    while (to < c->size - 1 && !found[to].from) to++;
    par__difference *x = &found[to];
    x->sent_at[sizeof x->sent_at - 1] = x->received_at[sizeof x->received_at - 1] = 0;
    par__sanitize(x->sent_at, "");
    par__sanitize(x->received_at, "");
    const int from = (int)PAR__MIN(found[to].from, (uint64_t)c->size) - 1;
    if (from < 0)
        return par__set_error(c->world, PAR_ERR_MISMATCH, "the counts of par_%s at %s differ between ranks",
                              par_kind_name(op->call.kind), par__op_site(op));
    return par__set_error(
        c->world, PAR_ERR_MISMATCH,
        "rank %d sends %s to rank %d at %s, but rank %d receives %s from it at %s, in par_%s (call %u on "
        "comm %s): make the counts of the two ends agree; no data have moved",
        from, par__describe_count(op, x->sent, sent, sizeof sent), to, x->sent_at, to,
        par__describe_count(op, x->received, received, sizeof received), x->received_at,
        par_kind_name(op->call.kind), op->sequence, c->name);
}

// Put how peers can access this rank's arrays into its arrival, as flags and addresses; small data go to the
// stage at once.
static unsigned par__advertise_arrays(par__operation *op, par__arrival *s) {
    par_comm *c = op->comm;
    const par_call *k = &op->call;
    const size_t e = par__element_bytes(op);
    const int alone = c->size == 1; // a rank can always address itself
    const char *out = (const char *)k->send, *in = (const char *)k->recv;
    size_t send, recv;
    if (!par__commit_stage(c)) return PAR__NO_MEMORY;
    if (par__kinds[k->kind].counts >= PAR_COUNTS_ROOT) s->u.address.counts = par__hash_own_counts(op);
    if (par__kinds[k->kind].counts == PAR_COUNTS_OWN) return 0;
    par_call_spans(c, k, &send, &recv);
    unsigned flags =
        (par__shared_offset(c->world, out, send * e, &s->u.address.send) || alone ? PAR__SEND_SHARED : 0) |
        (par__shared_offset(c->world, in, recv * e, &s->u.address.recv) || alone ? PAR__RECV_SHARED : 0);
    const unsigned ordinary = ~flags & (PAR__SEND_SHARED | PAR__RECV_SHARED);
    if (ordinary && par__may_use_cma(op, 1) && !par__prefers_stages(op)) {
        if (ordinary & PAR__SEND_SHARED) {
            flags |= PAR__SEND_CMA;
            s->u.address.send = (uint64_t)(uintptr_t)out;
        }
        if (ordinary & PAR__RECV_SHARED) {
            flags |= PAR__RECV_CMA;
            s->u.address.recv = (uint64_t)(uintptr_t)in;
        }
    }
    if (send && recv && in < out + send * e && out < in + recv * e) flags |= PAR__IN_PLACE;
    if (!par__sends_staged(op, (flags & PAR__SEND_SHARED) && par__has_input(op))) return flags;
    op->eager = PAR__EAGER_STAGE;
    par__send_eager(op, s);
    return flags | PAR__INPUT_STAGED;
}

// Does a call whose data are attached need this rank's stage?
static int par__attaches_by_stage(const par__operation *op) {
    const par_comm *c = op->comm;
    if (par__local_index(&c->nodes, c->rank)) return op->eager == PAR__EAGER_ATTACHED;
    return par__node_size(&c->nodes, c->nodes.my_node) > 1 && par__payload_of(op).needed > PAR__VERDICT_BYTES;
}
static void par__publish_arrival(par__operation *op) {
    par_comm *c = op->comm;
    const par_call *k = &op->call;
    par__arrival *s = par__arrival_of(c, c->rank, op->sequence);
    unsigned flags = op->invalid ? PAR__INVALID_CALL : 0; // then nothing else in the arrival counts
    op->ways = NULL;
    par__record_call(c, k, &s->call);
    s->call.site = op->site;
    s->call.op_hash ^= op->bucket.hash;
    op->eager = flags                      ? PAR__EAGER_NONE
                : par__sends_inline(op)    ? PAR__EAGER_INLINE
                : par__sends_attached(op)  ? PAR__EAGER_ATTACHED
                : par__sends_staged(op, 1) ? PAR__EAGER_SMALL
                                           : PAR__EAGER_NONE;
    if (op->eager == PAR__EAGER_SMALL) flags = par__commit_stage(c) ? PAR__INPUT_STAGED : PAR__NO_MEMORY;
    if (op->eager && c->nodes.node_count > 1 && par__attaches_by_stage(op) && !par__commit_stage(c))
        flags = PAR__NO_MEMORY;
    const int taken = c->nodes.node_count > 1 && par__local_index(&c->nodes, c->rank) == 0; // from send
    if (op->eager && flags != PAR__NO_MEMORY && !taken) par__send_eager(op, s);
    if (!op->eager && !flags) flags = par__advertise_arrays(op, s);
    op->arrival_flags = flags;
    s->call.flags = (uint8_t)flags;
    PAR__STORE(&s->call.sequence, op->sequence);
}

// ---- digests between nodes

// On a leader: the digests of (nodes mod distance) nodes, its own first, and of `distance` nodes; then what
// is attached, or two reports; then rooms for what comes.
typedef struct par__gathering {
    par__digest rest, all;
    char payload[64];
} par__gathering;
static size_t par__payload_room(const par__operation *op) {
    return par__round_up(PAR__MAX(par__payload_of(op).bytes, 2 * sizeof(par__report)), 64);
}
static size_t par__attached_room(const par_comm *c, int ranks) { // for what they may attach to a message
    const size_t each = par__attached_max(c) / (size_t)c->size;
    return par__round_up(PAR__MAX(each * (size_t)ranks, (size_t)2 * PAR__ATTACHED_BYTES), 64);
}
static par__gathering *par__gathering_of(par__operation *op) { // NULL: no memory
    const size_t others = (PAR__FOLD_RADIX - 1) * (sizeof(par__gathering) + par__attached_room(op->comm, 1));
    return (par__gathering *)par__get_scratch(op, sizeof(par__gathering) + par__payload_room(op) +
                                                      par__attached_max(op->comm) + others);
}

static par__gathering *par__gathered(const par__operation *op) { // once par__gathering_of has made it
    return (par__gathering *)(void *)op->scratch;
}

// One message of a step.
typedef struct par__hop {
    int from, to, held; // nodes: the sender, the receiver; of how many the message from there tells
    char *room;         // for it
    size_t bytes;       // of the room
} par__hop;
// *far: nodes from here to the sender; 0 begins a step. 0: the step has no further message.
static int par__next_hop(par__operation *op, par__hop *h, int *far) {
    const par_comm *c = op->comm;
    const int k = c->nodes.node_count, me = c->nodes.my_node, d = op->distance;
    h->room = *far ? h->room + h->bytes : par__gathered(op)->payload + par__payload_room(op);
    *far += d;
    if (*far >= k || *far >= d * PAR__FOLD_RADIX) return 0;
    h->from = (me + *far) % k;
    h->to = (me - *far + k) % k;
    h->held = PAR__MIN(d, k - *far);
    h->bytes = 2 * sizeof(par__digest) + par__attached_room(c, par__ranks_from(&c->nodes, h->from, h->held));
    return 1;
}
static int par__root_distance(const par__operation *op) { // nodes from this one on to the root's
    const par__layout *l = &op->comm->nodes;
    return (par__node_of(l, op->call.root) - l->my_node + l->node_count) % l->node_count;
}
static size_t par__sent_payload(const par__operation *op, int nodes) { // bytes, of so many nodes
    const par__layout *l = &op->comm->nodes;
    const par__payload p = par__payload_of(op);
    if (p.how == PAR__ATTACH_NOTHING) return 0;
    if (p.how == PAR__ATTACH_ALL) return p.slot * (size_t)par__ranks_from(l, l->my_node, nodes);
    if (p.how == PAR__ATTACH_ROOT) return par__root_distance(op) < nodes ? p.slot : 0;
    return op->distance > 1 ? 2 * p.slot : p.slot;
}
static void par__emit_gathering(par__operation *op) { // a step
    const par__layout *l = &op->comm->nodes;
    par__gathering *g = par__gathering_of(op);
    const size_t least = op->reports        ? 2 * sizeof(par__report)
                         : op->distance > 1 ? 2 * sizeof(par__digest)
                                            : sizeof(par__digest);
    const char *first = op->reports        ? g->payload
                        : op->distance > 1 ? (const char *)&g->rest
                                           : (const char *)&g->all;
    par__hop h;
    op->track->action_count = op->track->at = 0;
    for (int far = 0; par__next_hop(op, &h, &far);) {
        const size_t data = op->reports ? 0 : par__sent_payload(op, h.held);
        par__emit_message(op, PAR__SEND, par__node_rank(l, h.to, 0), first, least + data);
        par__emit_message(op, PAR__RECV, par__node_rank(l, h.from, 0), h.room,
                          op->reports ? least : h.bytes - 2 * sizeof(par__digest) + least)
            ->least = least;
    }
    par__emit_join(op);
}

// Where a leader puts what the ranks of its node need; one that is alone keeps it.
static char *par__attached_result(const par__operation *op) {
    const par_comm *c = op->comm;
    const par__layout *l = &c->nodes;
    if (par__node_size(l, l->my_node) == 1) return par__gathered(op)->payload + par__payload_room(op);
    return par__payload_of(op).needed <= PAR__VERDICT_BYTES
               ? (char *)par__verdict_of(c, op->sequence)->data
               : par__attached_half(op, par__node_rank(l, l->my_node, 0));
}
static const char *par__attached_by(const par__operation *op, int rank) { // a rank of this node
    if (rank == op->comm->rank) return (const char *)op->call.send;
    return op->eager == PAR__EAGER_INLINE
               ? (const char *)par__arrival_of(op->comm, rank, op->sequence)->u.data
               : par__attached_half(op, rank);
}
static size_t par__attached_slot(const par__operation *op, const par__payload *p, int rank) {
    return par__kinds[op->call.kind].counts ? par__block_count(&op->call, rank) * par__element_bytes(op)
                                            : p->slot;
}
// Take the data of this node's ranks, which all make the same call.
static void par__collect_payload(par__operation *op, char *to) {
    const par_comm *c = op->comm;
    const par__layout *l = &c->nodes;
    const par__payload p = par__payload_of(op);
    const int n = par__node_size(l, l->my_node), root = op->call.root;
    void *out = to;
    if (p.how == PAR__ATTACH_NOTHING) return;
    if (p.how == PAR__ATTACH_ROOT) {
        if (par__is_local(c, root)) memcpy(to, par__attached_by(op, root), p.slot);
        return;
    }
    for (int i = 0; i < n; i++) {
        const int r = par__node_rank(l, l->my_node, i);
        op->arrays.sources[i] = par__attached_by(op, r);
        if (p.how == PAR__ATTACH_ALL)
            memcpy(to + (size_t)i * p.slot, op->arrays.sources[i], par__attached_slot(op, &p, r));
    }
    if (p.how == PAR__ATTACH_SUM)
        par__reduce_sources(c->world->kernels, &out, 1, NULL, op->arrays.sources, n,
                            op->call.count * par__eager_blocks(op), op->call.dtype, op->call.op, 0, 0);
}
static void par__begin_gathering(par__operation *op) {
    par_comm *c = op->comm;
    par__gathering *g = par__gathering_of(op);
    if (!g) return;
    g->all = par__digest_of_node(c, op->sequence);
    memset(&g->rest, 0, sizeof g->rest);
    g->rest.rank = g->rest.odd = -1;
    op->distance = 1;
    op->reports = 0;
    const par__payload p = par__payload_of(op);
    if (p.how == PAR__ATTACH_SUM) memset(g->payload + p.slot, 0, p.slot); // of no ranks yet, but sent
    if (g->all.odd < 0) par__collect_payload(op, g->payload);
    par__emit_gathering(op);
}

// Fold a digest and the sum attached to it into others, of other nodes.
static void par__fold_into(par__operation *op, par__digest *to, char *sum, const par__digest *x,
                           const char *terms) {
    const par__payload p = par__payload_of(op);
    const void *source = terms;
    void *out = sum;
    if (p.how == PAR__ATTACH_SUM && x->rank >= 0 && x->odd < 0 &&
        par__is_same_call(&x->call, &par__arrival_of(op->comm, op->comm->rank, op->sequence)->call))
        par__reduce_sources(op->comm->world->kernels, &out, 1, to->rank < 0 ? NULL : sum, &source, 1,
                            op->call.count * par__eager_blocks(op), op->call.dtype, op->call.op, 0, 0);
    par__fold_digest(to, x);
}
// Keep what is attached to a message, but sums.
static void par__keep_payload(par__operation *op, char *payload, const par__hop *h, int far,
                              const char *data) {
    const par__layout *l = &op->comm->nodes;
    const par__payload p = par__payload_of(op);
    if (p.how == PAR__ATTACH_ALL)
        memcpy(payload + p.slot * (size_t)par__ranks_from(l, l->my_node, far), data,
               p.slot * (size_t)par__ranks_from(l, h->from, h->held));
    if (p.how == PAR__ATTACH_ROOT && par__root_distance(op) >= far && par__root_distance(op) < far + h->held)
        memcpy(payload, data, p.slot);
}
static int par__digest_valid(par__operation *op, const par__digest *x) {
    const int n = op->comm->size;
    if (x->rank < n && x->odd < n) return 1;
    op->result = par__set_error(op->comm->world, PAR_ERR_SYSTEM,
                                "another node sent a digest of rank %d, but comm %s has ranks 0 to %d",
                                x->rank, op->comm->name, n - 1);
    return 0;
}
// Fold what has come in a step. A digit of the number of nodes, to the base 8, says how many of the messages
// belong to the digest `rest` of the next step, and in the last step to the result.
static void par__fold_step(par__operation *op) {
    const par__payload p = par__payload_of(op);
    par__gathering *g = par__gathered(op);
    const int k = op->comm->nodes.node_count, d = op->distance, last = d * PAR__FOLD_RADIX >= k;
    const int digit = last ? k / d : k / d % PAR__FOLD_RADIX;
    char sum[PAR__ATTACHED_BYTES] __attribute__((aligned(64)));
    par__digest rest = digit ? g->all : g->rest;
    par__hop h;
    if (p.how == PAR__ATTACH_SUM) memcpy(sum, digit ? g->payload : g->payload + p.slot, p.slot);
    for (int far = 0; par__next_hop(op, &h, &far);) {
        const par__digest *x = (const par__digest *)(void *)h.room; // [rest] all
        const par__digest *all = d > 1 ? x + 1 : x;
        const char *data = (const char *)(all + 1);
        if (!par__digest_valid(op, all) || (d > 1 && !par__digest_valid(op, x))) return;
        if (far / d < digit) par__fold_into(op, &rest, sum, all, data);
        if (far / d == digit && d > 1) par__fold_into(op, &rest, sum, x, data + p.slot);
        if (!last) par__fold_into(op, &g->all, g->payload, all, data);
        par__keep_payload(op, g->payload, &h, far, data);
    }
    if (last)
        g->all = rest;
    else
        g->rest = rest;
    if (p.how == PAR__ATTACH_SUM) memcpy(last ? g->payload : g->payload + p.slot, sum, p.slot);
}

// Reports of the two ranks that an error text names.
static void par__begin_reports(par__operation *op) {
    par_comm *c = op->comm;
    par__gathering *g = par__gathered(op);
    par__report *mine = (par__report *)(void *)g->payload;
    const int named[2] = {g->all.odd, par__compared_with(g->all.odd)};
    for (int i = 0; i < 2; i++) {
        memset(&mine[i], 0, sizeof mine[i]);
        if (par__is_local(c, named[i]))
            mine[i] = par__report_of(c, named[i], op->sequence);
        else
            mine[i].rank = -1;
    }
    op->reports = op->distance = 1;
    par__emit_gathering(op);
}
static void par__take_reports(par__operation *op) {
    par__report *mine = (par__report *)(void *)par__gathered(op)->payload;
    par__hop h;
    for (int far = 0; par__next_hop(op, &h, &far);)
        for (int i = 0; i < 2; i++)
            if (mine[i].rank < 0) mine[i] = ((const par__report *)(void *)h.room)[i];
}

// The sources of data that stand node after node, this one's first.
static void par__find_attached(par__operation *op, const char *at) {
    const par__layout *l = &op->comm->nodes;
    const size_t slot = par__payload_of(op).slot;
    for (int q = 0; q < l->node_count; q++) {
        const int j = (l->my_node + q) % l->node_count;
        for (int i = 0; i < par__node_size(l, j); i++, at += slot)
            op->arrays.sources[par__node_rank(l, j, i)] = at;
    }
}
// par__receive_eager, from the leader of this node.
static void par__receive_attached(par__operation *op) {
    const par_comm *c = op->comm;
    const par_call *k = &op->call;
    const par__payload p = par__payload_of(op);
    const char *at = par__attached_result(op);
    if (!k->count || ((par__kinds[k->kind].recv & PAR_SIDE_ROOT) && c->rank != k->root)) return;
    if (p.how == PAR__ATTACH_ROOT || (par__kinds[k->kind].takes & PAR_TAKES_OP)) {
        at += par__eager_from(c, k);
        if (p.how != PAR__ATTACH_ROOT || c->rank != k->root || k->recv != k->send)
            par__copy(c->world->kernels, k->recv, at, k->count * par__element_bytes(op));
        return;
    }
    par__find_attached(op, at + par__eager_from(c, k));
    par__take_eager(c, k, op->arrays.sources);
}
static void par__write_verdict(par__operation *op) {
    par_comm *c = op->comm;
    par__gathering *g = par__gathered(op);
    const par__payload p = par__payload_of(op);
    par__verdict_line *v = par__verdict_of(c, op->sequence);
    void *to = par__attached_result(op);
    const void *sum = g->payload;
    const size_t count = op->call.count * par__eager_blocks(op);
    v->digest = g->all;
    if (op->reports) {
        memcpy(c->board->reports, g->payload, sizeof c->board->reports);
    } else if (p.how == PAR__ATTACH_SUM) {
        par__reduce_sources(c->world->kernels, &to, 1, NULL, &sum, 1, count, op->call.dtype, op->call.op,
                            c->size, 0);
    } else if (p.how == PAR__ATTACH_ALL && (par__kinds[op->call.kind].takes & PAR_TAKES_OP)) {
        par__find_attached(op, g->payload);
        par__reduce_apart(c->world->kernels, to, op->arrays.sources, c->size, count, op->call.dtype,
                          op->call.op);
    } else if (p.how != PAR__ATTACH_NOTHING) {
        memcpy(to, g->payload, p.needed);
    }
    PAR__STORE(&v->sequence, op->sequence);
    par__ring_doorbells(c, -1);
}
static int par__step_gathering(par__operation *op, int *moved) { // 1: the verdict is written, or an error
    while (par__run_actions(op, moved)) {
        if (op->result) return 1;
        if (op->reports)
            par__take_reports(op);
        else
            par__fold_step(op);
        if (op->result) return 1;
        op->distance *= PAR__FOLD_RADIX;
        if (op->distance < op->comm->nodes.node_count) {
            par__emit_gathering(op);
        } else if (!op->reports && par__gathered(op)->all.odd >= 0) {
            par__begin_reports(op);
        } else {
            par__write_verdict(op);
            return 1;
        }
        if (op->result) return 1;
    }
    return 0;
}

// Ask for what rank r sends by its stage while its arrival is looked for: both travel at a time.
static void par__prefetch_small(const par__operation *op, int r) {
    if (op->eager != PAR__EAGER_SMALL || r == op->comm->rank) return;
    const size_t bytes = PAR__MIN(par__call_bytes(op), (size_t)PAR__PREFETCH_BYTES);
    const char *data = par__stage_half(op, r);
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(data + i);
}
// How often a call looks for the others before it lets other calls go on.
static unsigned par__first_looks(const par__world *w) { return w->spin_limit / 16 + 1; }
static int par__step_arriving(par__operation *op) { // 1: all arrivals are here, or the leader's verdict
    par_comm *c = op->comm;
    const par__layout *l = &c->nodes;
    const int here = par__node_size(l, l->my_node);
    unsigned looks = c->world->active->next ? 1 : par__first_looks(c->world); // no other operation: spin
    if (l->node_count > 1 && par__local_index(l, c->rank)) {
        const uint32_t *verdict = &par__verdict_of(c, op->sequence)->sequence;
        while (PAR__LOAD(verdict) != op->sequence) {
            if (--looks == 0) return 0;
            par__cpu_relax();
        }
        return 1;
    }
    for (; op->block < (size_t)here; op->block++) {
        const int r = par__node_rank(l, l->my_node, (int)op->block);
        par__prefetch_small(op, r);
        while (PAR__LOAD(&par__arrival_of(c, r, op->sequence)->call.sequence) != op->sequence) {
            if (--looks == 0) return 0;
            par__cpu_relax();
            par__prefetch_small(op, r);
        }
    }
    return 1;
}

// The same for a small call that is not an operation yet. data: of rank 0, as in par__plan. 1: all ranks make
// the same call; else one is late, or differs, which the operation finds out.
static int par__all_arrived(const par_comm *c, const par__plan *plan, const char *data, int waits) {
    unsigned looks = waits ? par__first_looks(c->world) : 1;
    data += plan->from;
    for (int r = 0; r < c->size; r++, data += plan->stride) {
        const par__call_record *x = &c->board->arrivals[r].arrival[c->sequence & 1u].call;
        int here;
        do { // ask for its data meanwhile: both travel at a time
            for (size_t i = 0; i < plan->prefetched && r != c->rank; i += 64) __builtin_prefetch(data + i);
            here = PAR__LOAD(&x->sequence) == c->sequence;
            if (!here) par__cpu_relax();
        } while (!here && --looks);
        if (!here || x->flags != plan->record.flags || !par__is_same_call(&plan->record, x)) return 0;
    }
    return 1;
}

// >>queues --------------------------------------------------------------------------------------------------
//
// A call in flight is an operation. A comm's calls execute in queues: its collectives, its sends to each
// rank, its receives from each rank. Only the first call of a queue runs; when it ends the next one starts:
//     comm    collectives          running --> waiting --> waiting
//             sends to rank 1      running
//             receives from 2      running --> waiting
//     world   active operations    the running ones of all queues

// The operation of a call from now on.
static par__operation *par__use_operation(par__operation *op, par_comm *c, const par_call *k, uint16_t site) {
    op->next = NULL;
    op->comm = c;
    op->world = c->world;
    op->call = *k;
    op->site = site;
    op->backend = NULL;
    op->invalid = 0;
    op->group.head = NULL;
    op->group.pending = op->group.detached = 0;
    op->group.number = 0;
    op->track_count = 0; // of its last use: what is canceled before it starts has none
    op->bucket.count = 0;
    op->bucket.hash = 0;
    par__set_ticket(op, ++c->world->tickets);
    op->net_messages = op->net_bytes = 0;
    op->wait_start = 0;
    op->start_ticks = 0;
    op->state = PAR__QUEUED;
    op->result = op->group.result = PAR_OK;
    op->algorithm = NULL;
    return op;
}
// An idle operation. The caller holds the world's lock. NULL: no memory, with an error text.
static par__operation *par__new_operation(par_comm *c, const par_call *k, uint16_t site) {
    par__world *w = c->world;
    par__operation *op = w->idle_operations;
    if (op)
        w->idle_operations = op->next;
    else
        op = par__make_operation(w);
    if (op) return par__use_operation(op, c, k, site);
    par__set_error(w, PAR_ERR_MEMORY, "no memory for an operation");
    return NULL;
}

static void par__recycle_operation(par__operation *op) {
    par__world *w = op->world;
    par__set_ticket(op, 0);
    if (op->kept) return;
    op->next = w->idle_operations;
    w->idle_operations = op;
}

// The thread that waits may be another one than the thread that steps the operation.
static void par__set_op_state(par__operation *op, int state) { PAR__STORE(&op->state, state); }
static int par__op_state(const par__operation *op) { return PAR__LOAD(&op->state); }

// Put the call into the flight recorder, while its arrival is on its way to the peers.
static void par__record_volume(par__operation *op, uint64_t volume) {
    op->start_ticks = par__ticks();
    op->record = op->comm->world->control->record_count;
    par__write_record(op->comm, &op->call, op->sequence, op->site, op->start_ticks, 0);
    op->volume = volume;
}
static void par__record_begin(par__operation *op) { par__record_volume(op, par__volume(op)); }

static void par__push_trace_event(par__world *w, const char *name, uint64_t start_ticks, uint64_t end_ticks,
                                  uint64_t bytes, uint32_t comm, uint16_t tid, uint16_t site) {
    if (w->event_count == w->event_capacity) {
        const size_t capacity = 2 * w->event_capacity + 1024;
        par__event *p = (par__event *)PAR_REALLOC(w->events, capacity * sizeof *p);
        if (!p) return; // a trace with a hole is better than none
        w->events = p;
        w->event_capacity = capacity;
    }
    par__event *v = &w->events[w->event_count++];
    v->name = name;
    v->start_ticks = start_ticks;
    v->end_ticks = end_ticks;
    v->bytes = bytes;
    v->comm = comm;
    v->tid = tid;
    v->site = site;
}

// Count a call in the ledger of its layer's call site. If memory is out, it is not counted there.
static void par__count_layer_call(par_comm *c, uint16_t site, par_result result, uint64_t bytes,
                                  uint64_t ticks) {
    const size_t i = site & (PAR__SITE_MAX - 1);
    if (i >= c->layer_stats_count) {
        const size_t count = PAR__MAX(2 * c->layer_stats_count, i + 64);
        par__layer_stats *more = (par__layer_stats *)PAR_REALLOC(c->layer_stats, count * sizeof *more);
        if (!more) return;
        memset(more + c->layer_stats_count, 0, (count - c->layer_stats_count) * sizeof *more);
        c->layer_stats = more;
        c->layer_stats_count = count;
    }
    c->layer_stats[i].calls++;
    if (result) return;
    c->layer_stats[i].sent_bytes += bytes;
    c->layer_stats[i].ticks += ticks;
}
// The same in what few programs ask for: the model, the ledger of layers, the trace.
static void par__count_details(par_comm *c, const par_call *k, uint16_t site, par_result result,
                               uint64_t volume, uint64_t start, uint64_t now) {
    par__world *w = c->world;
    const size_t e = par__dtypes[k->dtype].bytes;
    if (c->model && !result)
        c->ledger[k->kind].predicted_seconds += par_predict(c, k->kind, par__array_bytes(c, k));
    if (site & PAR__SITE_IN_LAYER) par__count_layer_call(c, site, result, volume * e, now - start);
    if (w->trace_path)
        par__push_trace_event(w, par_kind_name(k->kind), start, now, k->count * e, c->id, 1, site);
}
// Count a call that has ended, of `volume` elements sent.
static inline void par__count_call(par_comm *c, const par_call *k, uint16_t site, par_result result,
                                   uint64_t volume, uint64_t start, uint64_t now) {
    par_ledger *row = &c->ledger[k->kind];
    row->calls++;
    if (result == PAR_OK) {
        row->sent_count += volume;
        row->sent_bytes += volume * par__dtypes[k->dtype].bytes;
        row->seconds += (double)(int64_t)(now - start); // in ticks; par_ledger_get converts them
    }
    if (c->model || (site & PAR__SITE_IN_LAYER) || c->world->trace_path)
        par__count_details(c, k, site, result, volume, start, now);
}

// A call that has ended without an operation. start 0: now, with one reading of the clock.
static inline void par__ended_at_once(par_comm *c, const par_call *k, uint16_t site, uint32_t sequence,
                                      uint64_t volume, uint64_t start) {
    const uint64_t now = par__ticks();
    if (!start) start = now;
    par__write_record(c, k, sequence, site, start, now);
    par__count_call(c, k, site, PAR_OK, volume, start, now);
}

// Enter the end of a call into the recorder and the ledger, and let who waits for it know.
static void par__end_operation(par__operation *op) {
    const uint64_t now = par__ticks();
    if (op->group.head) {
        op->group.head->group.pending--;
        if (!op->group.head->group.result) op->group.head->group.result = op->result;
    }
    par__end_record(op, now);
    par__count_call(op->comm, &op->call, op->site, op->result, op->volume, op->start_ticks, now);
    par__set_op_state(op, op->group.pending ? PAR__WAITING_FOR_GROUP : PAR__DONE);
}
static void par__complete(par__operation *op) {
    par_comm *c = op->comm;
    par_ledger *row = &c->ledger[op->call.kind];
    if (op->bucket.count) par__unpack_bucket(op);
    if (op->result == PAR_OK && op->algorithm) c->last_algorithm = op->algorithm->name;
    row->net_messages += op->net_messages;
    row->net_bytes += op->net_bytes;
    par__end_operation(op);
}

static void par__activate_operation(par__operation *op) {
    par__world *w = op->comm->world;
    op->next = NULL;
    *w->active_end = op;
    w->active_end = &op->next;
}

static void par__enqueue(par__operation *op, par__call_queue *queue) {
    op->queue = queue;
    op->sequence = ++queue->issued;
    if (!queue->running) {
        queue->running = op;
        par__activate_operation(op);
        return;
    }
    if (!queue->running->start_ticks) par__record_begin(queue->running); // in the order of calls
    par__record_begin(op);
    op->next = queue->waiting ? queue->waiting->next : op;
    if (queue->waiting) queue->waiting->next = op;
    queue->waiting = op;
}

static par__operation *par__queue_pop(par__call_queue *queue) { // NULL: the queue is empty
    par__operation *last = queue->waiting, *first = last ? last->next : NULL;
    if (first) last->next = first->next;
    if (first == last) queue->waiting = NULL;
    return first;
}

// An operation is complete, or has failed: the next one of its queue can run.
static void par__dequeue(par__operation *op) {
    par__call_queue *queue = op->queue;
    if (queue->running != op) return;
    queue->running = par__queue_pop(queue);
    if (queue->running) par__activate_operation(queue->running);
}

// A comm that is broken or closes: move the waiting calls of its queues to the world's list, where they fail.
static void par__flush_queues(par_comm *c) {
    par__operation *op;
    while ((op = par__queue_pop(&c->collectives)) != NULL) par__activate_operation(op);
    for (int i = 0; i < PAR__QUEUES * par__queue_pages(c->size); i++)
        while (c->messages[i / PAR__QUEUES] &&
               (op = par__queue_pop(c->messages[i / PAR__QUEUES] + i % PAR__QUEUES)) != NULL)
            par__activate_operation(op);
}

// A receive ends early: its sender may have claimed a part of the message, which it still writes to the
// memory of the receive. So wait until it has, or has died; where it has been stopped, until a deadline.
static void par__await_help(const par__operation *op) {
    const par__call_queue *queue = op->queue;
    if (op->call.kind != PAR_KIND_RECV || op->state != PAR__RUNNING || !queue->ring) return;
    par__world *w = op->world;
    const par__transfer *x = op->tracks[0].transfers;
    const par__cell *cell = &queue->ring->cells[(uint32_t)queue->ring->tail % PAR__RING_CELLS];
    if (x->state != PAR__TRANSFER_PIECES || x->sharing != PAR__SHARING_BOTH) return;
    const double until = par__now() + w->timeout_s;
    while (x->pulled + PAR__LOAD(&cell->u.copy.helped) < x->bytes) {
        if (par__peer_dead(w, par__arena_index(op->comm, x->peer))) return;
        if (par__now() > until) {
            const size_t length = strlen(w->error);
            snprintf(w->error + length, sizeof w->error - length,
                     "; rank %d may still write to recv, %zu bytes at %p: do not use it again", x->peer,
                     x->bytes, (void *)x->memory);
            return;
        }
        usleep(200);
    }
}
// An operation ends before its messages between nodes: nothing may write to its memory from here on.
static void par__cancel_transfers(const par__operation *op) {
    const int message = par__is_message(op->call.kind);
    for (int t = 0; t < (message ? op->state == PAR__RUNNING : op->track_count); t++)
        for (size_t i = 0; i < op->tracks[t].transfer_count; i++) {
            par__transfer *x = &op->tracks[t].transfers[i];
            if (par__ring_index(op->comm, x->peer) < 0) par__net_cancel(op->comm->world, x);
        }
}
static int par__complete_with_error(par__operation *op, par_result result) {
    op->result = result;
    par__withdraw(op);
    par__await_help(op);
    par__dequeue(op);
    par__cancel_transfers(op);
    par__complete(op);
    return 1;
}
// A collective fails on all ranks, and its comm goes on. What its group still has ends with it, because a
// mistake may have left the ranks with different numbers of calls: the next call has the next number on all.
static int par__fail_collective(par__operation *op, par_result result) {
    par__call_queue *queue = op->queue;
    const par__operation *head = op->group.head ? op->group.head : op;
    uint32_t dropped = 0;
    while (queue->waiting && queue->waiting->next->group.head == head) {
        par__operation *rest = par__queue_pop(queue);
        rest->result = result;
        par__complete(rest);
        par__recycle_operation(rest);
        dropped++;
    }
    queue->issued -= dropped;
    par__operation *last = queue->waiting, *x = last;
    while (dropped && last) {
        x->sequence -= dropped;
        if ((x = x->next) == last) break;
    }
    return par__complete_with_error(op, result);
}

// >>exchange ------------------------------------------------------------------------------------------------
//
// What a rank sends to one peer in a neighbor exchange is one message, a bundle of blocks. Its cell has a
// hash of their counts where another message's has its count; then come their bytes, or, where the receiver
// can copy them itself, their addresses:
//     rank 0   blocks 0, 2, 3 are for rank 1   [0 2 3] -> ring -> rank 1's blocks 5, 0, 1
//              block 1 is for rank 2           [1]     -> ring -> rank 2's block 4
//              blocks 4, 5 are for rank 0      copied
// So it is a transfer, as any message. Between nodes it is packed, and a message with a header. Steps: 1;
// bytes: each once, twice where they pass through the ring.

static void par__set_block(par__block *x, const void *array, size_t at, size_t bytes) {
    x->memory = (char *)((uintptr_t)array + at);
    x->bytes = bytes;
}
// Make the tables of an operation for its call. 0: no memory.
static int par__plan_exchange(par__operation *op) {
    const par_neighbors *n = op->comm->neighbors;
    const par_call *k = &op->call;
    par__exchange *y = &op->exchange;
    const size_t e = par__element_bytes(op);
    size_t at[2] = {0, 0}, packed = 0;
    if (y->bundle_capacity < n->bundle_count || y->block_capacity < n->block_count) {
        PAR_FREE(y->bundles);
        PAR_FREE(y->blocks);
        PAR_FREE(y->addresses);
        PAR_FREE(y->copies);
        y->bundle_capacity = y->block_capacity = y->bundle_count = 0;
        y->bundles = (par__bundle *)par__zalloc(n->bundle_count * sizeof *y->bundles);
        y->blocks = (par__block *)par__zalloc(n->block_count * sizeof *y->blocks);
        y->addresses = (uint64_t *)par__zalloc(n->block_count * sizeof *y->addresses);
        y->copies = (struct iovec *)par__zalloc(2 * n->block_count * sizeof *y->copies);
        if (!y->bundles || !y->blocks || !y->addresses || !y->copies) return 0;
        y->bundle_capacity = n->bundle_count;
        y->block_capacity = n->block_count;
    }
    for (int i = 0; i < n->degree; i++) {
        const size_t send = k->send_displs ? k->send_displs[i] : at[0],
                     recv = k->recv_displs ? k->recv_displs[i] : at[1];
        at[0] += k->send_counts[i];
        at[1] += k->recv_counts[i];
        if (n->send_place[i] >= 0)
            par__set_block(&y->blocks[n->send_place[i]], k->send, send * e, k->send_counts[i] * e);
        if (n->recv_place[i] >= 0)
            par__set_block(&y->blocks[n->recv_place[i]], k->recv, recv * e, k->recv_counts[i] * e);
    }
    if (n->bundle_count) memcpy(y->bundles, n->bundles, n->bundle_count * sizeof *y->bundles);
    y->bundle_count = n->bundle_count;
    op->tracks[0].transfer_count = 0;
    for (size_t i = 0; i < y->bundle_count; i++) {
        par__bundle *b = &y->bundles[i];
        b->hash = 0xcbf29ce484222325u;
        for (size_t j = b->first; j < b->first + b->count; j++) {
            b->bytes += y->blocks[j].bytes;
            b->hash = par__hash_sizes(&y->blocks[j].bytes, 1, b->hash);
        }
        if (par__ring_index(op->comm, b->peer) < 0) packed += b->bytes;
    }
    if (packed <= y->packed_capacity) return 1;
    PAR_FREE(y->packed);
    y->packed = (char *)PAR_MALLOC(packed);
    y->packed_capacity = y->packed ? packed : 0;
    return y->packed != NULL;
}
// Copy a bundle's blocks to (write) or from its packed message.
static void par__pack_bundle(const par__operation *op, const par__bundle *b, int write) {
    char *at = b->packed;
    for (size_t i = b->first; i < b->first + b->count; i++) {
        const par__block *x = &op->exchange.blocks[i];
        if (x->bytes) memcpy(write ? at : x->memory, write ? x->memory : at, x->bytes);
        at += x->bytes;
    }
}
// What is sent to the rank itself: block by block.
static void par__copy_own_blocks(const par__exchange *x, int rank) {
    const par__bundle *from = x->bundles, *to = x->bundles, *end = x->bundles + x->bundle_count;
    while (from < end && (from->peer != rank || !from->sending)) from++;
    while (to < end && (to->peer != rank || to->sending)) to++;
    for (size_t i = 0; from < end && i < from->count; i++)
        if (x->blocks[from->first + i].bytes)
            memcpy(x->blocks[to->first + i].memory, x->blocks[from->first + i].memory,
                   x->blocks[from->first + i].bytes);
}
// The transfers of an exchange, one for each bundle.
static void par__add_bundles(par__operation *op) {
    const par_comm *c = op->comm;
    par__exchange *x = &op->exchange;
    char *packed = x->packed;
    for (size_t i = 0; i < x->bundle_count; i++) {
        par__bundle *b = &x->bundles[i];
        const int remote = par__ring_index(c, b->peer) < 0;
        if (b->peer == c->rank) continue;
        if (remote) {
            b->packed = packed;
            packed += b->bytes;
            if (b->sending) par__pack_bundle(op, b, 1);
        }
        par__transfer *t = par__add_transfer(op, op->track, b->sending, b->peer, b->packed, b->bytes, 0);
        if (!t) {
            par__no_memory(op);
            return;
        }
        t->hash = b->hash;
        t->blocks = remote ? NULL : x->blocks + b->first;
        t->block_count = remote ? 0 : b->count;
    }
}
static void par__start_exchange(par__operation *op) {
    par__track *t = op->track = &op->tracks[0];
    op->track_count = 1;
    par__copy_own_blocks(&op->exchange, op->comm->rank);
    if (op->comm->nodes.node_count > 1) t->transfer_count = 0;
    t->ended[0] = t->ended[1] = 0;
    for (size_t i = 0; i < t->transfer_count; i++) { // of the same tables: once more
        par__transfer *x = &t->transfers[i];
        x->state = PAR__TRANSFER_NEW;
        x->done = x->block = x->at = 0;
        x->mismatched = 0;
    }
    if (!t->transfer_count) par__add_bundles(op);
    par__set_op_state(op, PAR__RUNNING);
}
static int par__step_exchange(par__operation *op) { // 1: something moved
    par_comm *c = op->comm;
    unsigned looks = c->world->active->next ? 1 : par__first_looks(c->world);
    int moved = 0;
    if (!op->start_ticks) par__record_begin(op);
    if (c->broken) return par__complete_with_error(op, par__repeat_error(c));
    if (op->state == PAR__QUEUED) {
        par__start_exchange(op);
        moved = 1;
    }
    while (!op->result || op->result == PAR_ERR_MISMATCH) {
        if (par__step_transfers(op, op->track, &moved)) break;
        if (--looks == 0) return moved;
        par__cpu_relax();
    }
    if (op->result && op->result != PAR_ERR_MISMATCH)
        return par__complete_with_error(op, par__break_comm(c, op->result));
    for (size_t i = 0; i < op->exchange.bundle_count && !op->result; i++) {
        const par__bundle *b = &op->exchange.bundles[i];
        if (!b->sending && par__ring_index(c, b->peer) < 0) par__pack_bundle(op, b, 0);
    }
    par__dequeue(op);
    par__complete(op);
    return 1;
}
static int par__exchange_waits(const par__operation *op, int rank) { // for what comes from it, or goes there
    const int running = op->state == PAR__RUNNING;
    for (size_t i = 0; i < op->exchange.bundle_count && !running; i++)
        if (op->exchange.bundles[i].peer == rank) return 1;
    for (size_t i = 0; running && i < op->track->transfer_count; i++)
        if (op->track->transfers[i].peer == rank && op->track->transfers[i].state != PAR__TRANSFER_ENDED)
            return 1;
    return 0;
}

// >>stepping ------------------------------------------------------------------------------------------------
//
// The life of a collective: QUEUED -> (first in its queue) publish the arrival -> ARRIVING -> (all arrivals
// are here; across nodes GATHERING arrivals first) compare them, choose the algorithm -> RUNNING piece after
// piece -> DONE. Of a message: QUEUED -> RUNNING -> DONE. Every wait steps all active operations, on all
// comms; so does the progress thread, if there is one.

static void par__use_track(par__operation *op, int i) {
    op->track = &op->tracks[i];
    op->arrays.input = op->arrays.inputs + i * op->comm->size;
}

static void par__begin_tracks(par__operation *op) {
    par_comm *c = op->comm;
    op->track_count = c->nodes.node_count > 1 ? PAR__TRACKS : 1;
    for (int i = 0; i < op->track_count; i++) {
        par__track *t = &op->tracks[i];
        t->index = i;
        t->running = 0;
        t->phase = c->phase[i];
        t->action_count = t->at = t->transfer_count = 0;
    }
    op->block = op->piece = op->offset = 0;
    op->more_pieces = 1;
    op->final_piece = 0;
    par__use_track(op, 0);
}

static void par__emit_next_piece(par__operation *op) {
    par__track *t = op->track;
    t->action_count = t->at = 0;
    t->running = 1;
    t->half = op->track_count > 1 ? (uint32_t)(op->piece / (size_t)op->track_count) : ++op->comm->half;
    op->more_pieces = 0;
    op->algorithm->emit(op);
    op->piece++;
}

// The final piece: all ranks of the node have finished all tracks, so arrays that peers have read may change
// again.
static void par__emit_final_piece(par__operation *op) {
    par__use_track(op, 0);
    op->track->action_count = op->track->at = 0;
    op->track->running = 1;
    par__emit_publish(op, 1);
    par__emit_wait_all(op, 1);
    op->final_piece = 1;
}

static int par__step_pieces(par__operation *op,
                            int *moved) { // 1: all are complete, or an error
    for (;;) {
        int running = 0, ended = 0;
        for (int i = 0; i < op->track_count; i++) {
            par__track *t = &op->tracks[i];
            par__use_track(op, i);
            if (!t->running && op->more_pieces && op->piece % (size_t)op->track_count == (size_t)i)
                par__emit_next_piece(op);
            if (op->result) return 1;
            if (!t->running) continue;
            if (par__run_actions(op, moved)) {
                t->running = 0;
                t->phase += PAR__PHASES;
                ended = 1;
            }
            if (op->result) return 1;
            running |= t->running;
        }
        if (ended && op->more_pieces) continue; // its track takes another piece
        if (running) return 0;
        if (op->final_piece || op->track_count == 1 || op->piece < 2) return 1;
        par__emit_final_piece(op);
    }
}

// Keep the last phase of a track for the next call. Phases are compared by their difference, and not all
// algorithms publish them: so that a published one is never 2^31 behind, each rank publishes now and then.
static void par__keep_phase(par_comm *c, int track, uint32_t phase) {
    if ((c->phase[track] ^ phase) >> 29) PAR__STORE(&par__arrivals_of(c, c->rank)->phase[track], phase);
    c->phase[track] = phase;
}
static int par__step_collective(par__operation *op) { // 1: something moved
    par_comm *c = op->comm;
    int moved = 0, arrived = 0;
    par_result r;
    if (op->state == PAR__QUEUED) {
        if (c->broken && !op->start_ticks) par__record_begin(op);
        if (c->broken) return par__complete_with_error(op, par__repeat_error(c));
        c->sequence = op->sequence;
        if (!par__alloc_addresses(op))
            return par__complete_with_error(op, par__break_comm(c, par__no_memory(op)));
        par__begin_tracks(op);
        par__publish_arrival(op);
        if (!op->start_ticks) par__record_begin(op);
        arrived = par__step_arriving(op); // first: the fence in par__ring_doorbells would delay it
        par__ring_doorbells(c, -1);
        par__set_op_state(op, PAR__ARRIVING);
        moved = 1;
    }
    if (op->state == PAR__ARRIVING) {
        if (!arrived && !par__step_arriving(op)) return moved;
        par__prefetch_for_write(par__arrival_of(c, c->rank, ~op->sequence)); // nobody reads it any more
        moved = 1;
        if (c->nodes.node_count > 1 && par__local_index(&c->nodes, c->rank) == 0) {
            par__begin_gathering(op);
            par__set_op_state(op, PAR__GATHERING);
        }
    }
    if (op->state == PAR__GATHERING && !op->result && !par__step_gathering(op, &moved)) return moved;
    if (op->state < PAR__RUNNING) {
        if (op->result) return par__complete_with_error(op, par__break_comm(c, op->result));
        if (op->invalid) return par__fail_collective(op, PAR_ERR_ARGUMENT); // the others get MISMATCH
        if ((r = par__compare_arrivals(op)) != PAR_OK) return par__fail_collective(op, r);
        par__set_op_state(op, PAR__RUNNING);
        op->block = 0;
        op->arrays.all_staged = par__is_decided(op) && op->eager != PAR__EAGER_INLINE;
        const int agree = par__counts_agree(op);
        if (agree && !par__is_decided(op) && (r = par__resolve_addresses(op)) != PAR_OK)
            return par__complete_with_error(op, par__break_comm(c, r));
        if (!agree) op->algorithm = &par__finding_differences;
        if (!op->algorithm) op->algorithm = par__choose_algorithm(op); // else a plan has
        if (op->ways) op->data_ticks = par__ticks();
        if (!op->algorithm->emit) (c->nodes.node_count > 1 ? par__receive_attached : par__receive_eager)(op);
    }
    if (op->algorithm->emit && (par__arrays_withdrawn(op) || !par__step_pieces(op, &moved))) return moved;
    if (op->result) return par__complete_with_error(op, par__break_comm(c, op->result));
    for (int i = 0; i < op->track_count; i++) par__keep_phase(c, i, op->tracks[i].phase);
    if (op->algorithm == &par__finding_differences)
        return par__fail_collective(op, par__report_difference(op));
    par__dequeue(op);
    if (op->ways)
        par__count_way(op->ways, op->way, par__ticks_to_seconds(c->world, par__ticks() - op->data_ticks));
    par__complete(op);
    return 1;
}

static int par__add_message(par__operation *op) { // the transfer of a message; 0: nothing is to be done
    const int sending = op->call.kind == PAR_KIND_SEND;
    const void *memory = sending ? op->call.send : op->call.recv;
    op->track = &op->tracks[0];
    op->track->transfer_count = 0;
    if (op->comm->broken)
        op->result = par__repeat_error(op->comm);
    else if (!par__add_transfer(op, op->track, sending, op->call.root, memory, par__call_bytes(op), 0))
        par__no_memory(op);
    par__set_op_state(op, PAR__RUNNING);
    return op->result == PAR_OK;
}
static int par__step_message(par__operation *op) {
    par_comm *c = op->comm;
    par__ring *ring = op->call.kind == PAR_KIND_RECV && !c->broken ? op->queue->ring : NULL;
    int moved = 0, ended = 0;
    if (!op->start_ticks) par__record_begin(op);
    if (op->state == PAR__QUEUED && ring) { // most receives end here, without a transfer
        const int taken = par__take_message(c, &op->call, ring);
        if (!taken) return 0;
        if (taken > 0) {
            par__dequeue(op);
            par__end_operation(op);
            return 1;
        }
    }
    if (op->state == PAR__QUEUED) {
        ended = !par__add_message(op);
        moved = 1;
    }
    ended = ended || par__step_transfers(op, op->track, &moved);
    if (!ended && op->track->transfers->state == PAR__TRANSFER_OFFERED)
        par__dequeue(op);     // its address is with the receiver: the next send can follow
    if (!ended) return moved; // a mismatched message is drained before it fails
    par__dequeue(op);
    par__complete(op);
    return 1;
}

static int par__step_operation(par__operation *op) { // 1: something moved
    uint32_t *stepping = par__ranks_are_threads(op->world) ? &op->world->control->stepping : NULL;
    if (stepping) __atomic_store_n(stepping, 1u, __ATOMIC_SEQ_CST);
    const int moved = par__is_exchange(op->call.kind)  ? par__step_exchange(op)
                      : par__is_message(op->call.kind) ? par__step_message(op)
                                                       : par__step_collective(op);
    if (stepping) PAR__STORE(stepping, 0u);
    return moved;
}

// on_node: but those that the transport takes part in. 1: something moved
static int par__progress_operations(par__world *w, int on_node) {
    int moved = 0;
    par__lock_world(w);
    w->poll_round++;
    par__operation **link = &w->active;
    while (*link) {
        par__operation *op = *link;
        if (on_node && op->comm->ring_count < op->comm->size) {
            link = &op->next;
            continue;
        }
        if (op->state == PAR__WAITING_FOR_GROUP) {
            if (!op->group.pending) {
                par__set_op_state(op, PAR__DONE);
                moved = 1;
            }
        } else if (op->state != PAR__DONE)
            moved |= par__step_operation(op);
        if (op->state != PAR__DONE) {
            link = &op->next;
            continue;
        }
        *link = op->next;
        op->next = NULL;
        if (op->group.detached) par__recycle_operation(op);
    }
    w->active_end = link;
    par__unlock_world(w);
    return moved;
}
// Step the operations and the device backends; a backend may wait for operations, but not for another
// backend.
static int par__progress(par__world *w) {
    const int moved = par__progress_operations(w, 0);
    if (w->in_backend_progress) return moved;
    w->in_backend_progress = 1;
    for (par_device_backend *x = w->backends; x; x = x->next)
        if (x->progress) x->progress(x);
    return w->in_backend_progress = 0, moved;
}
// A call has ended at once: what was begun before goes on. The list is the progress thread's, too.
static inline void par__progress_others(par__world *w) {
    if (w->has_progress_thread || w->active) par__progress(w);
}
void par__step_calls(par_comm *comm) { par__progress(comm->world); }
par_device_backend *par__first_backend(const par_comm *comm) { return comm->world->backends; }
int par__is_elastic(const par_comm *comm) { return comm->world->elastic; }

static void par__wake_progress(par__world *w) {
    __atomic_add_fetch(&w->progress_work, 1, __ATOMIC_SEQ_CST);
    par__futex_wake(&w->progress_work);
}

// The progress thread: steps the active operations every few microseconds, and sleeps while there are none.
// A thread that was made before anybody needs it waits until then; nobody locks the world before.
static void *par__progress_main(void *p) {
    par__world *w = (par__world *)p;
    prctl(PR_SET_NAME, "par progress", 0, 0, 0); // debuggers and top show it
    while (!PAR__LOAD(&w->progress_stop)) {
        const uint32_t work = PAR__LOAD(&w->progress_work);
        if (!PAR__LOAD(&w->progress_needed)) {
            par__futex_wait(&w->progress_work, work, 999999999);
            continue;
        }
        const int moved = par__progress_operations(w, w->progress_on_node);
        par__lock_world(w);
        const par__operation *op = w->active;
        while (op && w->progress_on_node && op->comm->ring_count < op->comm->size) op = op->next;
        par__unlock_world(w);
        if (!op)
            par__futex_wait(&w->progress_work, work, 100000000);
        else if (!moved)
            par__futex_wait(&w->progress_work, work, 20000);
    }
    return NULL;
}
enum { PAR__PROGRESS_STACK = 512 << 10 }; // where the system allows so little: see PAR__STACK_BYTES
static int par__make_progress_thread(par__world *w) { // errno of what failed; 0: it is there
    pthread_attr_t small;
    pthread_mutex_init(&w->lock, NULL);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, PAR__PROGRESS_STACK);
    int e = par__create_thread(&w->progress_thread, &small, par__progress_main, w);
    if (e == EINVAL) e = par__create_thread(&w->progress_thread, NULL, par__progress_main, w);
    pthread_attr_destroy(&small);
    w->progress_made = !e;
    if (e) pthread_mutex_destroy(&w->lock);
    return e;
}
static void par__need_progress(par__world *w) {
    if (!w->progress_made || w->has_progress_thread) return;
    w->has_progress_thread = 1;
    PAR__STORE(&w->progress_needed, 1u);
    par__wake_progress(w);
}
static par_result par__start_progress(par__world *w) {
    if (!w->progress_wanted) return PAR_OK;
    const int e = par__make_progress_thread(w);
    if (e) return par__log_error(PAR_ERR_SYSTEM, "cannot start the progress thread: %s", strerror(e));
    return par__need_progress(w), PAR_OK;
}

static void par__stop_progress(par__world *w) {
    if (!w->progress_made) return;
    PAR__STORE(&w->progress_stop, 1u);
    par__wake_progress(w);
    pthread_join(w->progress_thread, NULL);
    w->has_progress_thread = w->progress_made = 0;
    pthread_mutex_destroy(&w->lock);
}

// >>waiting -------------------------------------------------------------------------------------------------
//
// A wait steps all operations until its own is done:
//     spin --> yield --> check (every 5 ms) --> sleep until a peer rings the doorbell --> spin ...
// The check ends the wait with an error, after which the comm is broken: par_abort, a rank that has gone
// (first those that died on their own), the deadline.

// Does a collective whose ranks have arrived wait for this rank: for its phase, or for a message from or to
// it?
static int par__actions_wait(const par__operation *op, int rank) {
    const par_comm *c = op->comm;
    for (int i = 0; i < op->track_count; i++) {
        const par__track *t = &op->tracks[i];
        if (t->at >= t->action_count || !(t->running || op->state == PAR__GATHERING)) continue;
        const par__action *a = &t->actions[t->at];
        const int named =
            a->verb == PAR__WAIT_ALL ? par__is_local(c, rank) : a->verb == PAR__WAIT && a->rank == rank;
        if (named && (int32_t)(PAR__LOAD(&par__arrivals_of(c, rank)->phase[t->index]) - a->phase) < 0)
            return 1;
        for (size_t k = 0; k < t->transfer_count; k++)
            if (t->transfers[k].peer == rank && t->transfers[k].state != PAR__TRANSFER_ENDED) return 1;
    }
    return 0;
}
static int par__waits_for(const par__operation *op, int rank) {
    const par_comm *c = op->comm;
    if (par__is_exchange(op->call.kind)) return par__exchange_waits(op, rank);
    if (par__is_message(op->call.kind)) return rank == op->call.root;
    if (op->state == PAR__RUNNING || op->state == PAR__GATHERING) return par__actions_wait(op, rank);
    if (par__is_local(c, rank))
        return rank != c->rank &&
               PAR__LOAD(&par__arrival_of(c, rank, op->sequence)->call.sequence) != op->sequence;
    for (int i = 0; i < par__node_size(&c->nodes, c->nodes.my_node); i++) { // then for another node
        const int r = par__node_rank(&c->nodes, c->nodes.my_node, i);
        if (PAR__LOAD(&par__arrival_of(c, r, op->sequence)->call.sequence) != op->sequence) return 0;
    }
    return 1;
}
// Describe the ranks that an operation waits for, for the error text of a deadline.
static void par__describe_missing(const par__operation *op, char *text, size_t bytes) {
    const par_comm *c = op->comm;
    const par__world *w = c->world;
    char seen[160];
    size_t at = 0;
    text[0] = 0;
    for (int r = 0; r < c->size && at + 300 < bytes; r++) {
        if (!par__waits_for(op, r)) continue;
        if (par__arena_index(c, r) >= 0)
            par__last_seen(w, par__arena_index(c, r), seen, sizeof seen);
        else
            snprintf(seen, sizeof seen, "on another node");
        at += (size_t)snprintf(text + at, bytes - at, "%srank %d (%s)", at ? ", " : "", r, seen);
    }
    if (!at) snprintf(text, bytes, "a rank that arrived but made no further progress");
}

static void par__poll_net(par__world *w, double now) {
    if (!w->net || now - w->polled_at < 0.0005) return;
    w->polled_at = now;
    par__lock_world(w);
    w->net->poll(w);
    par__unlock_world(w);
}

static int par__remote_state(par__world *w, int world_rank) {
    par__lock_world(w);
    const int state = w->net->rank_state(w, world_rank);
    par__unlock_world(w);
    return state;
}
// Has a rank said what first ended a comm of this epoch, or does it say so now?
static int par__has_first_error(const par_comm *c) {
    const uint32_t said = par__latched(&c->world->arena->first_error, c->epoch);
    return said && (said < PAR__WRITING || par__is_being_written(c->world, said));
}
// Will rank r of a comm never answer again? 2: it died on its own; 1: it failed (*had_error) or closed its
// world; 0: no. ask: of a rank of this node, the kernel; 0: what par__scan_ranks has found.
static int par__rank_gone(const par_comm *c, int r, int ask, int *had_error) {
    par__world *w = c->world;
    const int i = par__arena_index(c, r),
              remote = i < 0 ? par__remote_state(w, par__world_rank(c, r)) : PAR__RANK_RUNNING;
    if (i < 0 ? remote == PAR__RANK_RUNNING : ask ? !par__peer_dead(w, i) : !par__known_dead(w, i)) return 0;
    const par__rank_control *k = i >= 0 ? &w->arena->ranks[i] : NULL;
    const int told = k ? PAR__LOAD(&k->had_error) == c->epoch + 1 : remote == PAR__RANK_CLOSED;
    *had_error = told && par__has_first_error(c);
    if (*had_error || (k ? PAR__LOAD(&k->state) : (uint32_t)remote) != PAR__RANK_DEAD) return 1;
    par__set_first_dead(w, c->epoch, par__world_rank(c, r));
    return 2;
}
// Does a rank's process still run whose lock is gone? It may just have died: then it runs for a moment.
static int par__process_runs(const par__rank_control *k) {
    for (int i = 0; i < 50; i++) {
        const par__process_info p = par__process(k->pid);
        if (!p.runs || p.born != k->born) return 0;
        usleep(2000);
    }
    return 1;
}
// The error that a waiter reports when rank r has gone.
static par_result par__rank_gone_error(const par_comm *c, int r, int how, int had_error,
                                       const char *waiting) {
    par__world *w = c->world;
    const int i = par__arena_index(c, r);
    const int first = (int)par__latched(&w->arena->first_dead, c->epoch) - 1, named = par__world_rank(c, r);
    const char *ended = how == 2 ? "died" : "closed its comm or ended";
    char where[64] = "on another node", seen[160] = "", before[64] = "", of[32] = "";
    if (had_error) {
        const uint32_t cause = par__latched(&w->arena->first_error, c->epoch);
        if (!cause || cause >= PAR__WRITING) return PAR_OK; // it is being written: check again soon
        if (cause > PAR_RESULT_COUNT) return par__memory_corrupt(w, "an error's number", cause);
        return par__set_error(w, (par_result)(cause - 1), "%s",
                              par__copy_shared_text(w->arena->first_error_text, PAR__ERROR_BYTES).at);
    }
    if (i >= 0) {
        snprintf(where, sizeof where, "pid %d", w->arena->ranks[i].pid);
        par__last_seen(w, i, seen, sizeof seen);
    }
    if (i >= 0 && how == 2 && !par__ranks_are_threads(w) && par__process_runs(&w->arena->ranks[i]))
        ended = "has closed descriptors that par.h keeps, or runs another program,";
    if (c->id) snprintf(of, sizeof of, ", rank %d of the world", named);
    if (how == 2 && first >= 0 && first != named)
        snprintf(before, sizeof before, "rank %d%s died first; ", first, c->id ? " of the world" : "");
    return par__set_error(w, PAR_ERR_PEER_DIED, "%srank %d (%s%s) %s while rank %d waits %s%s%s", before, r,
                          where, of, ended, c->rank, waiting, i >= 0 ? "; " : "", seen);
}
// The same for a rank of this node whose process has ended; the kernel releases its lock a moment after its
// memory.
static par_result par__peer_lost(const par_comm *c, int r, const char *waiting) {
    par_result result = PAR_OK;
    int had_error = 0;
    for (int i = 0; !result && i < 1000; i++) {
        const int how = par__rank_gone(c, r, 1, &had_error);
        if (how) result = par__rank_gone_error(c, r, how, had_error, waiting);
        if (!result) usleep(1000);
    }
    return result ? result : par__rank_gone_error(c, r, 1, 0, waiting);
}

// A rank that closes a comm says on the board how many collectives it had begun, and its call site (+ 1); and
// PAR__CLOSED_ENDED, when all that it had begun has ended. So a rank that waits for what cannot come hears of
// it: for a collective that another rank of its node had not begun; for a message when all has ended there.
enum { PAR__CLOSED_ENDED = 1 << 30 };
static void par__mark_closed(par_comm *c, const char *site) {
    par__arrivals *mine = par__arrivals_of(c, c->rank);
    const uint32_t number = par__site_index(c->world, site ? site : "?");
    par__lock_world(c->world);
    PAR__STORE(&mine->begun, c->collectives.issued);
    par__unlock_world(c->world);
    PAR__STORE(&mine->closed, number + 1);
    __atomic_add_fetch(&c->board->closed, 1, __ATOMIC_SEQ_CST);
}
// One that has closed it after an error hands that error on.
static par_result par__closed_error(const par_comm *c, int r, const char *waiting) {
    const par__arena *a = c->world->arena;
    if (PAR__LOAD(&a->ranks[par__arena_index(c, r)].had_error) == c->epoch + 1 && par__has_first_error(c))
        return par__rank_gone_error(c, r, 1, 1, waiting);
    const uint16_t site = (uint16_t)((PAR__LOAD(&par__arrivals_of(c, r)->closed) & 0x1ffffu) - 1);
    return par__set_error(c->world, PAR_ERR_MISMATCH,
                          "rank %d waits %s on comm %s for rank %d, which has closed the comm at %s: close a "
                          "comm after the last call on it",
                          c->rank, waiting, c->name, r, par__site_text(c, r, site).at);
}
// The rank of this node, if there is one, that will never do its part in an operation. -1: there is none.
static int par__absent_rank(const par__operation *op) {
    const par_comm *c = op->comm;
    const int one_sided = par__is_message(op->call.kind) || par__is_exchange(op->call.kind);
    for (int r = 0; r < c->size && op->state < PAR__WAITING_FOR_GROUP; r++) {
        const uint32_t closed =
            r == c->rank || !par__is_local(c, r) ? 0 : PAR__LOAD(&par__arrivals_of(c, r)->closed);
        const uint32_t begun = closed ? PAR__LOAD(&par__arrivals_of(c, r)->begun) : 0;
        if (closed && (one_sided ? (closed & PAR__CLOSED_ENDED) && par__waits_for(op, r)
                                 : (int32_t)(op->sequence - begun) > 0))
            return r;
    }
    return -1;
}
// The same for an operation that is waited for, and for the calls of its group; *of: for which of them.
static int par__find_absent(const par__operation *op, const par__operation **of) {
    par__lock_world(op->world);
    int r = par__absent_rank(*of = op);
    if (op->state == PAR__WAITING_FOR_GROUP)
        for (const par__operation *x = op->world->active; x && r < 0; x = x->next)
            if (x->group.head == op) r = par__absent_rank(*of = x);
    par__unlock_world(op->world);
    return r;
}
static par_result par__check_closed(par__operation *op) {
    const par__operation *of;
    char waiting[160];
    if (!PAR__LOAD(&op->comm->board->closed) || par__find_absent(op, &of) < 0) return PAR_OK;
    while (par__progress(op->world)) { // what it had sent is here
    }
    const int r = par__op_state(op) == PAR__DONE ? -1 : par__find_absent(op, &of);
    if (r < 0) return PAR_OK;
    snprintf(waiting, sizeof waiting, "in par_%s at %s (call %u)", par_kind_name(of->call.kind),
             par__op_site(of), of->sequence);
    return par__closed_error(op->comm, r, waiting);
}

par_result par_alive(par_comm *c) {
    par__world *w = c->world;
    int had_error;
    par__poll_net(w, par__now());
    if (par__is_aborted(w->arena)) return par__set_error(w, PAR_ERR_ABORTED, "%s", par__abort_text(w).at);
    for (int pass = 2; pass > 0; pass--)
        for (int r = 0; r < c->size; r++) {
            const int how = r == c->rank ? 0 : par__rank_gone(c, r, 1, &had_error);
            if (how >= pass) return par__rank_gone_error(c, r, how, had_error, "for it");
        }
    return PAR_OK;
}

// End the process of a rank, which may still write to what others use: by a descriptor of that process, so
// that it can be no other that has got its number. 0: it still runs.
static int par__kill_rank(const par__rank_control *k) {
    enum { PIDFD_SEND_SIGNAL = 424, PIDFD_OPEN = 434 }; // system calls of Linux 5.3
    const int fd = (int)syscall(PIDFD_OPEN, k->pid, 0);
    const par__process_info p = par__process(k->pid);
    const int same = p.runs && p.born == k->born;
    if (same && fd >= 0)
        syscall(PIDFD_SEND_SIGNAL, fd, SIGKILL, NULL, 0);
    else if (same)
        kill(k->pid, SIGKILL);
    if (fd >= 0) close(fd);
    return !same || !par__process_runs(k);
}
// A rank has not come before the deadline: the others go on without it, so it must not go on. One that waits
// itself is not the one to blame.
static void par__condemn(const par_comm *c, int r, const char *waiting) {
    par__world *w = c->world;
    const int i = par__arena_index(c, r);
    const par__rank_control *k = i < 0 ? NULL : &w->arena->ranks[i];
    if (!k || par__peer_dead(w, i) ||
        par__now() - 1e-9 * (double)PAR__LOAD(&k->checked_at) < w->timeout_s / 2)
        return;
    const int ended = par__kill_rank(k);
    par__log_error(PAR_OK, "rank %d waited %g s %s for rank %d of the world (pid %d), %s", w->rank,
                   w->timeout_s, waiting, k->world_rank, k->pid,
                   ended ? "so it has killed it" : "which cannot be killed");
    par__peer_dead(w, i);
}

// What a comm is called in the table of those that were revoked: its number, and its first rank's, because
// the comms of one par_split have one number. An entry is the key, then the rank (+ 1) that has revoked it.
enum { PAR__KEY_ID_BITS = 29, PAR__KEY_BITS = 46 };
static uint64_t par__comm_key(const par_comm *c) {
    return c->id | (uint64_t)par__world_rank(c, 0) << PAR__KEY_ID_BITS;
}
static uint64_t par__entry_key(uint64_t entry) { return entry & (((uint64_t)1 << PAR__KEY_BITS) - 1); }
// Where a rank has revoked this comm, or one from which it was split, the error that says so.
static par_result par__find_revoked(const par_comm *c, const char *site) {
    const par__arena *a = c->world->arena;
    const uint64_t now = PAR__LOAD(&a->alarms) >> 32;
    for (uint64_t i = c->alarms >> 32; i < now && i < PAR__REVOKED_MAX; i++) {
        const uint64_t entry = PAR__LOAD(&a->revoked[i]);
        const uint64_t key = par__entry_key(entry), id = key & ((1u << PAR__KEY_ID_BITS) - 1);
        int concerned = key == par__comm_key(c);
        for (int k = 0; k < c->lineage_count; k++) concerned |= c->lineage[k] == key;
        char name[16], of[64] = "", at[128] = "";
        if (!entry || !concerned) continue;
        snprintf(name, sizeof name, "%u", (unsigned)id);
        if (key != par__comm_key(c)) snprintf(of, sizeof of, ", from which comm %s was split", c->name);
        if (site) snprintf(at, sizeof at, ", found at %.96s", site);
        return par__set_error(
            c->world, PAR_ERR_REVOKED,
            "rank %d of the world has revoked comm %s%s%s: call par_shrink on it, or close it",
            (int)(entry >> PAR__KEY_BITS) - 1, id ? name : "world", of, at);
    }
    return PAR_OK;
}
par_result par__ask_revoked(const par_comm *c) {
    return PAR__LOAD(&c->world->arena->alarms) == c->alarms ? PAR_OK : par__find_revoked(c, c->site);
}
// A rank has called par_abort or par_revoke since the last call. Does it concern this comm?
static par_result par__check_alarms(par_comm *c) {
    par__world *w = c->world;
    const uint64_t now = PAR__LOAD(&w->arena->alarms);
    par_result r = PAR_OK;
    if ((uint32_t)now == PAR__ABORTED) r = par__set_error(w, PAR_ERR_ABORTED, "%s", par__abort_text(w).at);
    if (!r) r = par__find_revoked(c, c->site);
    if (!r && !(uint32_t)now) c->alarms = now;
    return r ? par__break_comm(c, r) : PAR_OK;
}
static par_result par__check_comm(par_comm *c) { // may it make a call?
    if (c->broken) return par__repeat_error(c);
    return PAR__LOAD(&c->world->arena->alarms) == c->alarms ? PAR_OK : par__check_alarms(c);
}

// Check whether a wait must end with an error; called every few milliseconds.
static par_result par__check_wait(par__operation *op) {
    par_comm *c = op->comm;
    par__world *w = c->world;
    char who[PAR__ERROR_BYTES / 2], waiting[128];
    int had_error;
    const int message = par__is_message(op->call.kind);
    const char *site = par__op_site(op);
    if (par__is_aborted(w->arena))
        return par__set_error(w, PAR_ERR_ABORTED, "par_%s at %s: %s", par_kind_name(op->call.kind), site,
                              par__abort_text(w).at);
    const par_result revoked =
        PAR__LOAD(&w->arena->alarms) == c->alarms ? PAR_OK : par__find_revoked(c, site);
    if (revoked) return revoked;
    snprintf(waiting, sizeof waiting, "in par_%s at %s", par_kind_name(op->call.kind), site);
    par__scan_ranks(w);
    const int all_there = !message && (!w->net || w->net->all_running(w)) && !PAR__LOAD(&w->arena->gone);
    for (int pass = all_there ? 0 : 2; pass > 0; pass--) // first those that died on their own
        for (int r = 0; r < c->size; r++) {
            if (r == c->rank || (message && r != op->call.root)) continue;
            const int how = par__rank_gone(c, r, message, &had_error);
            if (how < pass) continue;
            par__progress(w); // it may have done its part before
            if (par__op_state(op) == PAR__DONE) return PAR_OK;
            const par_result gone = par__rank_gone_error(c, r, how, had_error, waiting);
            if (gone) return gone;
        }
    const par_result closed = par__check_closed(op);
    if (closed || par__op_state(op) == PAR__DONE) return closed;
    if (w->fd < 0 && w->local_count > 1) // nobody would see that a rank of this node dies
        return par__set_error(
            w, PAR_ERR_SYSTEM,
            "rank %d's program has closed a descriptor that par.h keeps (a loop over all from "
            "3 on?), found %s",
            c->rank, waiting);
    const double now = par__now();
    if (op->wait_start == 0) op->wait_start = now;
    const double waited = now - op->wait_start;
    if (waited < w->timeout_s) return PAR_OK;
    par__lock_world(w);
    par__describe_missing(op, who, sizeof who);
    for (int r = 0; r < c->size && w->elastic; r++)
        if (r != c->rank && par__waits_for(op, r)) par__condemn(c, r, waiting);
    const par_result late = par__set_error(
        w, PAR_ERR_TIMEOUT, "rank %d waited %.1f s in par_%s at %s (call %u on comm %s) for %s", c->rank,
        waited, par_kind_name(op->call.kind), site, op->sequence, c->name, who);
    par__unlock_world(w);
    return late;
}

// Complete an operation that cannot go on with an error, and break its comm.
static void par__abandon_operation(par__operation *op, par_result r) {
    par__world *w = op->comm->world;
    par__operation **link = &w->active;
    par__break_comm(op->comm, r);
    par__flush_queues(op->comm);
    while (*link != op) link = &(*link)->next;
    *link = op->next;
    for (link = &w->active; *link; link = &(*link)->next)
        if ((*link)->group.head == op) (*link)->group.head = NULL;
    w->active_end = link;
    op->group.pending = 0;
    if (op->state == PAR__WAITING_FOR_GROUP) {
        op->group.result = r;
        par__set_op_state(op, PAR__DONE);
        return;
    }
    par__complete_with_error(op, r);
}

// How often a wait looks before it sleeps. Where ranks outnumber processors, yielding often costs more than
// being woken; but ranks of other nodes cannot wake it.
static unsigned par__looks_awake(const par__world *w) { return w->spin_limit + (w->net ? 64 : 16); }
// Progress until `is_ready` of x: look for a while, then yield, then sleep until a peer rings the doorbell,
// or for sleep_ns. Every 5 ms `check` of x says whether the wait makes sense still: its error ends it.
static inline par_result par__wait_until(par__world *w, int (*is_ready)(void *), par_result (*check)(void *),
                                         void *x, long sleep_ns) {
    par_result r = PAR_OK;
    for (unsigned idle = 0; !is_ready(x);) {
        if (par__progress(w)) {
            idle = 0;
            par__set_sleeping(w, PAR__AWAKE);
            continue;
        }
        if (++idle < w->spin_limit) {
            par__cpu_relax();
            continue;
        }
        par__set_sleeping(w, PAR__DROWSY);
        if (idle < par__looks_awake(w)) {
            sched_yield();
            if (w->net) par__poll_net(w, par__now()); // on a busy machine each yield is long
            continue;
        }
        const double now = par__now();
        if (now - w->last_check > 0.005) {
            w->last_check = now;
            PAR__STORE(&w->control->checked_at, (uint64_t)(now * 1e9));
            if ((r = check(x)) != PAR_OK) break;
        }
        par__poll_net(w, now);
        const uint32_t bell = __atomic_load_n(&w->control->doorbell, __ATOMIC_SEQ_CST);
        par__set_sleeping(w, PAR__ASLEEP);
        par__fence();
        if (!is_ready(x) && !par__progress(w))
            par__futex_wait(&w->control->doorbell, bell, sleep_ns);
        else
            idle = 0;
        par__set_sleeping(w, PAR__DROWSY);
    }
    par__set_sleeping(w, PAR__AWAKE);
    return r;
}

static int par__is_done(void *op) { return par__op_state((par__operation *)op) == PAR__DONE; }
static par_result par__check_operation(void *x) {
    par__operation *op = (par__operation *)x;
    const par_result r = par__check_wait(op);
    par__lock_world(op->comm->world);
    const int over = r && op->state != PAR__DONE;
    if (over) par__abandon_operation(op, r);
    par__unlock_world(op->comm->world);
    return over ? r : PAR_OK;
}
// Many ranks look rarer; ranks of other nodes cannot ring the doorbell.
static long par__sleep_ns(const par__world *w) {
    const long checks_ns = PAR__MAX(10000000, PAR__MIN(w->local_count, 500) * 100000L);
    return w->local_count < w->size ? 50000 : w->net ? 1000000 : checks_ns;
}
static par_result par__wait_for(par__operation *op) {
    par__world *w = op->world;
    par__wait_until(w, par__is_done, par__check_operation, op, par__sleep_ns(w));
    return op->result;
}

// >>backends ------------------------------------------------------------------------------------------------
//
// A device backend takes the calls on memory that it supports. Such a call has an operation, for the flight
// recorder and the ledger, but no place in a queue: the backend runs it from begin to end.

par_result par_attach_backend(par_comm *c, par_device_backend *backend) {
    if (c->backend)
        return par__set_error(c->world, PAR_ERR_ARGUMENT, "comm %s has a device backend already, %s", c->name,
                              c->backend->name);
    c->backend = backend;
    backend->next = c->world->backends;
    c->world->backends = backend;
    return PAR_OK;
}
static void par__detach_backend(par_comm *c) {
    par_device_backend *x = c->backend;
    if (!x) return;
    for (par_device_backend **link = &c->world->backends; *link; link = &(*link)->next)
        if (*link == x) {
            *link = x->next;
            break;
        }
    c->backend = NULL;
    x->close(x);
}
par_device_backend *par_backend_of(const par_comm *c) { return c->backend; }

static int par__is_offloaded(const par_comm *c, const par_call *k) { // c has a backend
    const void *memory = k->send ? k->send : k->recv;
    return memory && c->backend->supports(c->backend, memory);
}
// An offloaded call has an operation that is not in the world's list: the backend runs it from
// par__offload_begin to par__offload_end. NULL: *r says why.
static par__operation *par__offload_operation(par_comm *c, const par_call *k, uint16_t site, par_result *r) {
    const int valid = par__validate_call(c, k);
    par__operation *op = valid ? par__new_operation(c, k, site) : NULL;
    if (!op) return *r = valid ? PAR_ERR_MEMORY : PAR_ERR_ARGUMENT, op;
    op->sequence = ++c->offload_count;
    op->backend = c->backend;
    op->offload_state = NULL;
    c->offloads++;
    par__record_begin(op);
    return op;
}
// Without the lock. In a group it ends with the group: NULL.
static par__operation *par__offload_begin(par__operation *op) {
    par_comm *c = op->comm;
    op->result = c->backend->begin(c->backend, &op->call, &op->offload_state);
    if (!c->in_group) return op;
    op->next = c->group_offloads;
    c->group_offloads = op;
    return NULL;
}
static par_result par__offload_end(par__operation *op) {
    par_comm *c = op->comm;
    if (!op->result && c->backend) op->result = c->backend->end(c->backend, op->offload_state);
    if (!c->backend)
        op->result = par__set_error(c->world, PAR_ERR_ARGUMENT,
                                    "comm %s was closed before its par_%s at %s on memory of a device had "
                                    "been waited for: wait first",
                                    c->name, par_kind_name(op->call.kind), par__op_site(op));
    const par_result r = op->result;
    c->offloads--;
    par__lock_world(c->world);
    if (r == PAR_ERR_TIMEOUT || r == PAR_ERR_PEER_DIED || r == PAR_ERR_ABORTED) par__set_broken(c, r);
    par__complete(op);
    if (c->backend) c->last_algorithm = c->backend->name;
    par__recycle_operation(op);
    par__unlock_world(c->world);
    return r;
}

static par_result par__offload_group_end(par_comm *c) {
    par_result first = PAR_OK;
    while (c->group_offloads) {
        par__operation *op = c->group_offloads;
        c->group_offloads = op->next;
        const par_result r = par__offload_end(op);
        if (!first) first = r;
    }
    return first;
}

// >>small ---------------------------------------------------------------------------------------------------
//
// A small collective on one node becomes an operation in a queue only if it waits:
//     fill the arrival --> look for the others' --> all are there, and alike: done
//                                               --> else: an operation that waits for arrivals
// What its kind, count and types decide is its plan, which calls like it share: that it is valid, its record,
// how its data are sent.

static int par__is_like(const par_call *a, const par_call *b) { // a has no counts
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->count == b->count &&
           a->root == b->root && a->tag == b->tag && !a->send == !b->send && !a->recv == !b->recv &&
           !b->send_counts && !b->send_displs && !b->recv_counts && !b->recv_displs;
}
// How the data of a call on one node are sent with its arrival, if its kind and size alone decide that.
static int par__plan_eager(par__operation *op) {
    if (par__sends_inline(op)) return PAR__EAGER_INLINE;
    return par__sends_staged(op, 1) && par__commit_stage(op->comm) ? PAR__EAGER_SMALL : PAR__EAGER_NONE;
}
static void par__plan_data(const par_comm *c, par__plan *plan) {
    const int staged = plan->eager == PAR__EAGER_SMALL;
    for (int i = 0; i < 2; i++)
        plan->data[i] =
            staged ? c->stages + (size_t)i * c->half_bytes : (char *)c->board->arrivals[0].arrival[i].u.data;
    plan->stride = staged ? c->stage_bytes : sizeof *c->board->arrivals;
    plan->from = par__eager_from(c, &plan->call);
    plan->prefetched =
        staged ? PAR__MIN(plan->call.count * par__dtypes[plan->call.dtype].bytes, (size_t)PAR__PREFETCH_BYTES)
               : 0;
}
// NULL: the call is not valid, or the comm's operation of small calls, which is used to ask, is in use. A
// call that cannot be small gets a plan that says so.
static const par__plan *par__make_plan(par_comm *c, const par_call *k, par__plan *plan) {
    par__operation *op = c->small;
    if (op->ticket || !par__validate_call(c, k)) return NULL;
    op->call = *k;
    plan->call = *k;
    plan->forced_count = c->world->forced_count;
    plan->eager = op->eager = par__plan_eager(op);
    if (!plan->eager) return plan;
    op->arrays.all_staged = plan->eager == PAR__EAGER_SMALL;
    plan->algorithm = par__choose_algorithm(op);
    plan->volume = par__volume(op);
    plan->own_bytes = par__eager_own_bytes(op);
    par__plan_data(c, plan);
    par__record_call(c, k, &plan->record);
    plan->record.flags = op->arrays.all_staged ? PAR__INPUT_STAGED : 0;
    return plan;
}
// What a comm needs for small calls. 0: its calls are never small, or there is no memory.
static int par__alloc_plans(par_comm *c) {
    if (c->plans) return 1;
    if (c->nodes.node_count > 1) return 0;
    if (!c->small) c->small = par__make_kept_operation(c);
    if (!c->small || !par__alloc_addresses(c->small)) return 0;
    c->plans = (par__plan *)par__zalloc(PAR__PLANS * sizeof *c->plans);
    return c->plans != NULL;
}
// The plan of a collective, made where the call is new; NULL: it has none.
static const par__plan *par__find_plan(par_comm *c, const par_call *k) {
    const uint64_t key =
        k->count << 8 ^ k->op << 6 ^ (uint64_t)k->kind << 4 ^ (uint64_t)k->dtype ^ (uint64_t)k->root << 5;
    if (k->count > PAR__EAGER_SHARED_BYTES || (!c->plans && !par__alloc_plans(c))) return NULL;
    par__plan *plan = &c->plans[key * 0x9E3779B97F4A7C15u >> 60];
    if (par__is_like(&plan->call, k) && plan->call.site && plan->forced_count == c->world->forced_count)
        return plan;
    if ((unsigned)k->kind >= PAR_KIND_COUNT || !(par__kinds[k->kind].runs & PAR_RUNS_EAGER) ||
        par__has_counts(k))
        return NULL;
    return par__make_plan(c, k, plan);
}

// A small call goes on: it waits for others; or it has ended, and its request keeps it, so that the program's
// order alone decides which operations are used.
static par__operation *par__continue_small(par_comm *c, const par_call *k, uint16_t site,
                                           const par__plan *plan, int ended) {
    par__operation *op = par__use_operation(c->small, c, k, site);
    op->queue = &c->collectives;
    op->sequence = c->sequence;
    if (ended) return par__set_op_state(op, PAR__DONE), op;
    op->eager = plan->eager;
    op->ways = NULL;
    op->algorithm = plan->algorithm;
    op->arrival_flags = plan->record.flags;
    par__begin_tracks(op);
    op->track->half = c->half + 1;
    par__record_volume(op, plan->volume);
    par__set_op_state(op, PAR__ARRIVING);
    op->queue->running = op;
    par__activate_operation(op);
    return op;
}
// Start a small call while no other call of this rank is in flight. The operation by which it goes on; NULL:
// it has ended.
static par__operation *par__start_small(par_comm *c, const par_call *k, uint16_t site, const par__plan *plan,
                                        int waits) {
    const uint32_t sequence = c->sequence = ++c->collectives.issued;
    const int staged = plan->eager == PAR__EAGER_SMALL;
    par__arrival *mine = &c->board->arrivals[c->rank].arrival[sequence & 1u];
    char *data = plan->data[(staged ? c->half + 1 : sequence) & 1u];
    char *own = data + (size_t)c->rank * plan->stride;
    const void **sources = c->small->arrays.sources;
    par__prefetch_for_write(mine); // peers that wait for it have its line, and those of their last data
    for (size_t i = 0; i < plan->prefetched; i += 64) par__prefetch_for_write(own + i);
    memcpy((char *)&mine->call + sizeof sequence, (const char *)&plan->record + sizeof sequence,
           sizeof mine->call - sizeof sequence);
    mine->call.site = site;
    if (plan->own_bytes) par__copy(c->world->kernels, own, k->send, plan->own_bytes);
    PAR__STORE(&mine->call.sequence, sequence);
    const uint64_t start = par__ticks();
    const int arrived = par__all_arrived(c, plan, data, waits);
    par__ring_doorbells(c, -1);
    if (!arrived) return par__continue_small(c, k, site, plan, 0);
    par__prefetch_for_write(&c->board->arrivals[c->rank].arrival[~sequence & 1u]); // nobody reads it any more
    c->half += (uint32_t)staged;
    for (int r = 0; r < c->size; r++) sources[r] = data + (size_t)r * plan->stride + plan->from;
    par__take_eager(c, k, sources);
    c->last_algorithm = plan->algorithm->name;
    par__ended_at_once(c, k, site, sequence, plan->volume, start);
    return waits ? NULL : par__continue_small(c, k, site, plan, 1);
}

// >>issue ---------------------------------------------------------------------------------------------------
//
// A call from begin to end:
//     par__start_call   complete its description, lock the world
//       par__begin_call   in a group? keep it until the group ends
//                         offloaded? an operation, which the device backend runs
//                         can it end at once? a message that is here or has room, a small collective
//                         else an operation in a queue; its arguments are checked
//     par__run          wait here, or leave it to a request, for par_wait or par_test

// Put a call, or n > 1 calls of a group that share a bucket, into its queue. op: its operation; NULL: there
// was no memory. valid: that is known; else its arguments are checked. The caller holds the world's lock.
static par_result par__issue(par__operation *op, const par_call *calls, size_t n, int valid) {
    if (!op) return PAR_ERR_MEMORY;
    par_comm *c = op->comm;
    if (n > 1 && !par__fill_bucket(op, calls, n)) {
        par__recycle_operation(op);
        return par__set_error(c->world, PAR_ERR_MEMORY, "no memory for a group of calls");
    }
    op->invalid = !valid && !par__validate_call(c, calls);
    if (op->invalid) {
        op->call.dtype = PAR_U8;
        op->call.op = PAR_SUM;
        op->call.count = 0;
    } // safe to use
    if ((unsigned)calls->kind >= PAR_KIND_COUNT || par__is_exchange(calls->kind))
        op->call.kind = PAR_KIND_BARRIER;
    const int message = par__is_message(op->call.kind);
    if (op->invalid && message) {
        par__recycle_operation(op);
        return PAR_ERR_ARGUMENT;
    }
    par__call_queue *queue = message ? par__message_queue(c, op->call.kind, op->call.root) : &c->collectives;
    if (!queue) {
        par__recycle_operation(op);
        return PAR_ERR_MEMORY;
    }
    par__enqueue(op, queue);
    return PAR_OK;
}

// What has ended may be of a comm that was closed and is gone, but for the head of a group.
static par_result par__release_operation(par__operation *op) {
    par__world *w = op->world;
    const par_result r = op->group.result ? op->group.result : op->result;
    par__operation **link = op->group.number ? &op->comm->groups : NULL;
    par__lock_world(w);
    while (link && *link && *link != op) link = &(*link)->group.next;
    if (link && *link) *link = op->group.next;
    par__recycle_operation(op);
    par__unlock_world(w);
    return r;
}

// Start a message that was just issued. A receive on this node waits until the rank waits: it may copy for a
// long time, while peers wait for this rank's next sends.
static void par__start_message(par__operation *op) {
    const int receives_here = op->call.kind == PAR_KIND_RECV && par__ring_index(op->comm, op->call.root) >= 0;
    if (!par__is_message(op->call.kind)) return;
    if (op->queue->running == op && !receives_here)
        par__step_message(op);
    else if (!op->start_ticks)
        par__record_begin(op);
}

// A collective of one rank: it copies nothing, or little, so that it may count as no time at all. 1: it has
// ended; 0: it needs an operation, which also reports what is wrong.
static int par__copy_at_once(par_comm *c, const par_call *k, uint16_t site) {
    if ((unsigned)k->kind >= PAR_KIND_COUNT || (unsigned)k->dtype >= PAR_DTYPE_COUNT ||
        k->count > SIZE_MAX / 16)
        return 0;
    const size_t bytes = k->recv == k->send ? 0 : k->count * par__dtypes[k->dtype].bytes;
    if (par__has_counts(k) || c->collectives.running || par__kinds[k->kind].counts ||
        k->op == PAR_SCALED_SUM || k->op >= PAR_OP_COUNT || (!par__takes_tag(k->kind) && k->root) ||
        c->world->forced[k->kind] || (k->count && (!k->send || !k->recv)) || bytes > PAR__SHORT_MESSAGE_BYTES)
        return 0;
    if (bytes) memmove(k->recv, k->send, bytes);
    par__ended_at_once(c, k, site, ++c->collectives.issued, 0, 0);
    return 1;
}

// The operation of a message; NULL: it has ended, or *r says what is wrong.
static par__operation *par__begin_message(par_comm *c, const par_call *k, uint16_t site, int waits,
                                          par_result *r) {
    const int valid = par__is_valid_message(c, k), sends = k->kind == PAR_KIND_SEND;
    par__call_queue *queue =
        valid && par__is_local(c, k->root) ? par__message_queue(c, k->kind, k->root) : NULL;
    if (queue && queue->ring && !queue->running &&
        (sends ? par__put_message(c, k, queue->ring, site) : par__take_message(c, k, queue->ring) > 0)) {
        par__ended_at_once(c, k, site, ++queue->issued, sends ? k->count : 0, 0);
        return NULL;
    }
    par__operation *op = par__new_operation(c, k, site);
    *r = par__issue(op, k, 1, valid);
    if (!*r && !waits) par__start_message(op);
    return *r ? NULL : op;
}
// The same of a collective.
static par__operation *par__begin_collective(par_comm *c, const par_call *k, uint16_t site, int waits,
                                             par_result *r) {
    const par__plan *plan = par__find_plan(c, k);
    const int small = plan && plan->eager && !c->small->ticket;
    if (small && !c->collectives.running && !c->world->active)
        return par__start_small(c, k, site, plan, waits);
    par__operation *op = small ? par__use_operation(c->small, c, k, site) : par__new_operation(c, k, site);
    *r = par__issue(op, k, 1, plan != NULL);
    return *r ? NULL : op;
}
static par__operation *par__begin_exchange(par_neighbors *n, const par_call *k, uint16_t site, par_result *r);
// Begin any call; waits: the caller waits for its end. Its operation; NULL: it has ended, or waits for the
// end of its group, or *r says what is wrong. The caller holds the world's lock.
static par__operation *par__begin_call(par_comm *c, const par_call *k, int waits, par_result *r) {
    const int offloaded = c->backend && par__is_offloaded(c, k);
    const int exchange = c->neighbors && k->kind == PAR_KIND_NEIGHBOR_EXCHANGE;
    *r = c->in_group && !offloaded && !exchange ? par__add_to_group(c, k) : par__check_comm(c);
    if (*r || (c->in_group && !offloaded && !exchange)) return NULL;
    const uint16_t site = par__site_index(c->world, k->site);
    if (offloaded) return par__offload_operation(c, k, site, r);
    if (exchange) return par__begin_exchange(c->neighbors, k, site, r);
    if (k->kind == PAR_KIND_SEND || k->kind == PAR_KIND_RECV) return par__begin_message(c, k, site, waits, r);
    if (c->size == 1 && par__copy_at_once(c, k, site)) return NULL;
    return par__begin_collective(c, k, site, waits, r);
}
static par__operation *par__start_call(par_comm *c, par_call *k, int waits, par_result *r) {
    par__complete_call(c, k);
    par__lock_world(c->world);
    par__operation *op = par__begin_call(c, k, waits, r);
    par__unlock_world(c->world);
    return op && op->backend ? par__offload_begin(op) : op;
}
static par_result par__end_call(par__operation *op) {
    if (op->backend) return par__offload_end(op);
    if (par__op_state(op) != PAR__DONE) par__wait_for(op);
    return par__release_operation(op);
}

static inline void par__set_request(par_request *request, par__operation *op) { // NULL: it has ended
    request->operation = op;
    request->ticket = op ? op->ticket : 0;
}
// The operation of a request is not its call's own: the call is a group's, which *op tells of if it is on its
// way; or has been waited for.
static par_result par__foreign_request(par_request *request, const char *what, par__operation **op) {
    const par__operation *of = request->operation;
    const par_comm *c = of->comm;
    const int grouped = par__op_state(of) == PAR__GROUPED;
    *op = NULL;
    if (grouped && c->in_group && request->ticket == c->group)
        return par__set_error(of->world, PAR_ERR_ARGUMENT,
                              "%s: the call has not been issued, because its group has not ended: call "
                              "par_group_end first",
                              what);
    if (grouped)
        for (*op = c->groups; *op && (*op)->group.number != request->ticket;) *op = (*op)->group.next;
    if (!*op) request->operation = NULL;
    if (grouped && (*op || !c->closed)) return PAR_OK;
    return par__set_error(of->world, PAR_ERR_ARGUMENT,
                          "%s: this call has been waited for before, by a copy of its request, or its comm "
                          "has been closed: wait once for each call",
                          what);
}
// Step all calls, and have the progress thread do so.
static void par__go_on(par__world *w) {
    par__progress(w);
    if (w->has_progress_thread) par__wake_progress(w);
}
static par_result par__no_comm(par_kind kind) {
    return par__log_error(PAR_ERR_ARGUMENT, "par_%s: comm is NULL", par_kind_name(kind));
}
static par_result par__run(par_comm *c, par_call *k, par_request *request) { // NULL: wait for it here
    par_result r;
    if (!c) return par__no_comm(k->kind);
    par__operation *op = par__start_call(c, k, !request, &r);
    if (!request && op) return par__end_call(op);
    if (!request) return par__progress_others(c->world), r;
    par__set_request(request, op);
    if (!op && c->in_group && !r) {
        request->operation = c->grouping;
        request->ticket = c->group;
    }
    if (!op || op->backend || (op->kept && par__op_state(op) == PAR__DONE)) return r;
    if (!par__is_message(k->kind) || par__ring_index(c, k->root) < 0 || par__op_state(op) == PAR__DONE)
        par__go_on(c->world); // publish the arrival now; take what is done off the list
    else if (c->world->has_progress_thread)
        par__wake_progress(c->world);
    return PAR_OK;
}

static void par__release_closed(par__world *w);
par_result par_wait(par_request *request) {
    par__operation *op = request->operation;
    if (!op) return PAR_OK;
    par__world *w = op->world;
    if (par__has_ticket(op, request->ticket)) {
        request->operation = NULL;
        const par_result ended = par__end_call(op);
        if (w->closed) par__release_closed(w);
        return ended;
    }
    const par_result r = par__foreign_request(request, "par_wait", &op);
    if (r || !op) return r;
    request->operation = NULL;
    if (par__op_state(op) != PAR__DONE) par__wait_for(op); // the group's own request still stands
    return op->group.result ? op->group.result : op->result;
}

par_result par_test(par_request *request, int *done) {
    par__operation *op = request->operation;
    *done = 1;
    if (!op) return PAR_OK;
    if (!par__has_ticket(op, request->ticket)) {
        const par_result r = par__foreign_request(request, "par_test", &op);
        if (r || !op) return r;
    }
    par__world *w = op->world;
    par__progress(w);
    if (op->backend) {
        par_device_backend *x = op->comm->backend; // NULL: the comm was closed
        *done = op->result || !x || x->done(x, op->offload_state);
        return *done ? par_wait(request) : PAR_OK;
    }
    if (par__op_state(op) == PAR__DONE) return par_wait(request);
    if (par__now() - w->last_check < 0.005) return *done = 0, PAR_OK;
    w->last_check = par__now();
    if (par__check_wait(op)) return par_wait(request);
    return *done = 0, PAR_OK;
}

par_result par_wait_all(par_request *requests, int count) {
    par_result first = PAR_OK;
    for (int i = 0; i < count; i++) {
        const par_result r = par_wait(&requests[i]);
        if (!first) first = r;
    }
    return first;
}

par_result par_group_begin(par_comm *comm) {
    if (comm->in_group)
        return par__set_error(comm->world, PAR_ERR_ARGUMENT, "par_group_begin within a group");
    if (!comm->grouping && (comm->grouping = par__make_operation(comm->world)) == NULL)
        return par__set_error(comm->world, PAR_ERR_MEMORY, "par_group_begin: out of memory");
    comm->grouping->comm = comm;
    comm->grouping->world = comm->world;
    comm->grouping->state = PAR__GROUPED;
    comm->group++;
    comm->in_group = 1;
    comm->grouped_count = 0;
    comm->group_invalid = 0;
    return PAR_OK;
}
// Issue a call of a group, or n > 1 that share a bucket. The request is the first one's, which waits for the
// others.
static par_result par__issue_grouped(par_comm *c, const par_call *call, size_t n, par_request *request) {
    par__operation *head = request->operation, *op;
    par_result result = par__check_comm(c);
    if (result) return result;
    op = par__new_operation(c, call, par__site_index(c->world, call->site));
    result = par__issue(op, call, n, 0);
    if (result) return result;
    if (head) {
        op->group.head = head;
        op->group.detached = 1;
        head->group.pending++;
    } else {
        op->group.pending = 1;
        op->group.number = c->group;
        op->group.next = c->groups;
        c->groups = op;
        par__set_request(request, op);
    }
    par__start_message(op);
    return PAR_OK;
}

par_result par_group_end_begin(par_comm *comm, par_request *request) {
    par_comm *c = comm;
    par_result result = PAR_OK;
    if (!request) return par__set_error(c->world, PAR_ERR_ARGUMENT, "par_group_end_begin: request is NULL");
    par__set_request(request, NULL);
    if (!c->in_group)
        return par__set_error(c->world, PAR_ERR_ARGUMENT, "par_group_end without par_group_begin");
    c->in_group = 0;
    result = par__offload_group_end(c);
    par__lock_world(c->world);
    if (c->group_invalid && !result) result = par__issue_grouped(c, &c->invalid_call, 1, request);
    for (size_t i = 0, n; i < c->grouped_count && !result; i += n) {
        n = par__count_coalescible(c, i);
        if (!c->group_invalid || par__is_message(c->grouped[i].kind))
            result = par__issue_grouped(c, &c->grouped[i], n, request);
    }
    if (request->operation) request->operation->group.pending--;
    par__unlock_world(c->world);
    par__go_on(c->world);
    return result;
}

par_result par_group_end(par_comm *comm) {
    par_request request;
    const par_result issued = par_group_end_begin(comm, &request), ended = par_wait(&request);
    return issued ? issued : ended;
}

// >>world ---------------------------------------------------------------------------------------------------
//
// The options of par_open, from par_desc and the environment, and what every rank has before its first comm,
// however it starts.

// The options of par_open, and the first error in them. Ranks that a launcher started report it after the
// rendezvous: if one ended before, the others would wait for it until their deadline.
typedef struct par__open_request {
    par_desc desc; // zeros are replaced by the environment's values or the defaults
    par_result result;
    char why[512];
} par__open_request;
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static void
par__reject_open(par__open_request *s, par_result result, const char *format, ...) {
    va_list args;
    if (s->result || !result) return; // keep the first error
    va_start(args, format);
    vsnprintf(s->why, sizeof s->why, format, args);
    va_end(args);
    s->result = result;
}
static par_result par__open_rejected(const par__open_request *s) {
    return s->result ? par__log_error(s->result, "%s", s->why) : PAR_OK;
}
enum { PAR__STACK_BYTES = 128 * 1024 }; // par__reduce_sources takes 57 KiB
static void par__check_desc(const par_desc *in, par__open_request *s) {
    par_desc *d = &s->desc;
    memset(s, 0, sizeof *s);
    if (in) *d = *in;
    s->result = par__settings_check(s->why, sizeof s->why);
    struct rlimit l;
    if (!getrlimit(RLIMIT_STACK, &l) && l.rlim_cur < PAR__STACK_BYTES)
        par__reject_open(s, PAR_ERR_SYSTEM, "the stack is limited to %llu KiB, but ranks need %d (ulimit -s)",
                         (unsigned long long)l.rlim_cur / 1024, PAR__STACK_BYTES / 1024);
    if (!d->rank_count) d->rank_count = (int)par__setting_number("PAR_RANKS");
    if (!d->node_ranks) d->node_ranks = (int)par__setting_number("PAR_NODE_RANKS");
    if (d->timeout_s == 0) d->timeout_s = par__setting_number("PAR_TIMEOUT");
    if (!d->progress) d->progress = par__setting_number("PAR_PROGRESS") > 0;
    if (!d->trace) d->trace = par__setting_text("PAR_TRACE");
    if (d->trace && !*d->trace) d->trace = NULL;
    if (!d->stage_bytes) d->stage_bytes = (size_t)par__setting_number("PAR_STAGE");
    if (!d->arena_bytes) d->arena_bytes = (size_t)par__setting_number("PAR_ARENA");
    d->stage_bytes = par__round_up(PAR__MAX(d->stage_bytes, (size_t)8192), 4096);
    if (d->rank_count < 0 || d->rank_count > 1024) {
        par__reject_open(s, PAR_ERR_ARGUMENT, "rank_count is %d; it takes a number from 1 to 1024",
                         d->rank_count);
        d->rank_count = 0;
    }
    if (d->node_ranks < 0) {
        par__reject_open(s, PAR_ERR_ARGUMENT, "node_ranks is %d; it takes 1 or more", d->node_ranks);
        d->node_ranks = 0;
    }
    if (!(d->timeout_s > 0)) {
        par__reject_open(s, PAR_ERR_ARGUMENT, "timeout_s is %g; it takes more than 0", d->timeout_s);
        d->timeout_s = 600;
    }
}
par_result par_defaults(const par_desc *desc, par_desc *out) {
    par__open_request s;
    if (!out) return par__log_error(PAR_ERR_ARGUMENT, "par_defaults: out is NULL");
    par__check_desc(desc, &s);
    return *out = s.desc, par__open_rejected(&s);
}

// How often a wait looks before it yields: once where ranks outnumber processors, those of a world, or all
// that the launcher has started here, which may be in other communicators.
static unsigned par__spin_limit(int ranks) {
    const int launched = par__launched_here(), all = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return ranks > par__available_cpus() || launched > all ? 1 : 2000;
}
// A half of a stage has two slots of 64 bytes for each rank of the largest node at least, so that there are
// enough for algorithms within a node. Between nodes par__has_slots tells.
static void par__fit_stages(par__world *w, const par_desc *d, int node_ranks) {
    w->stage_bytes = PAR__MAX(d->stage_bytes, par__round_up(256 * (size_t)node_ranks, 4096));
}
// An elastic world has room for ranks that par_grow adds; each takes a place for ever.
static int par__arena_ranks(const par_desc *d, int size) {
    return d->elastic ? size + PAR__MAX(size, 64) : size;
}
static par__world *par__new_world(const par_desc *d, const char *method, int rank, int size) {
    par__world *w = (par__world *)par__zalloc(sizeof *w);
    if (!w) return par__log_error(PAR_ERR_MEMORY, "out of memory for a rank"), (par__world *)NULL;
    w->site_hash_size = 256;
    w->site_hash = (uint16_t *)par__zalloc(w->site_hash_size * sizeof *w->site_hash);
    if (!w->site_hash) {
        PAR_FREE(w);
        par__log_error(PAR_ERR_MEMORY, "out of memory for a rank");
        return (par__world *)NULL;
    }
    // The system commits its pages only as they are written.
    w->sites = (char(*)[PAR__SITE_BYTES])PAR_MALLOC(sizeof *w->sites * PAR__SITE_MAX);
    if (!w->sites) {
        PAR_FREE(w->site_hash);
        PAR_FREE(w);
        par__log_error(PAR_ERR_MEMORY, "out of memory for a rank");
        return (par__world *)NULL;
    }
    w->launch_method = method;
    w->rank = rank;
    w->size = size;
    w->places = par__arena_ranks(d, size);
    w->active_end = &w->active;
    w->timeout_s = d->timeout_s;
    w->keep_cpus = d->keep_cpus;
    w->node_ranks = d->node_ranks ? PAR__MIN(d->node_ranks, size) : size;
    par__fit_stages(w, d, w->node_ranks);
    w->kernels = par__pick_kernels();
    w->fd = -1;
    w->tag_count = PAR__NET_TAG_COUNT;
    // Round down to a multiple of 2^-20 s, so that differences from it and between ranks are exact.
    w->opened = par__read_clocks();
    w->opened_at = floor(w->opened.seconds * 1048576) / 1048576;
    w->trace_path = d->trace;
    w->print_ledger = par__setting_number("PAR_LEDGER") > 0;
    w->spin_limit = par__spin_limit(size);
    w->cma = par__setting_number("PAR_CMA") > 0;
    w->progress_wanted = d->progress;
    w->elastic = d->elastic;
    w->cma_bytes = PAR__CMA_BYTES;
    w->nontemporal_bytes = PAR__NONTEMPORAL_BYTES;
    return w;
}
static void par__read_algorithm_settings(par__world *w, par__open_request *s) { // PAR_ALGO and PAR_TUNE
    par_result r = par__apply_force(w, "PAR_ALGO", par__setting_text("PAR_ALGO"));
    if (!r) r = par__load_tune_file(w, par__setting_text("PAR_TUNE"));
    par__reject_open(s, r, "%s", w->error);
}

static void par__free_world(par__world *w, int unmap) {
    while (w->operations) {
        par__operation *op = w->operations;
        w->operations = op->next_made;
        par__free_operation(op);
    }
    while (w->idle_first) {
        void *buffer = w->idle_first;
        memcpy(&w->idle_first, buffer, sizeof w->idle_first);
        PAR_FREE(buffer);
    }
    par__cpu_set now; // restore where this thread may run, unless somebody has changed that since
    if (w->bound && par__get_cpus(0, &now) && !memcmp(&now, &w->cpus, sizeof now))
        par__set_cpus(&w->cpus_before);
    if (unmap && w->base) munmap(w->base, w->arena_bytes);
    if (unmap && w->fd >= 0 && par__owns_arena_fd(w)) close(w->fd);
    PAR_FREE(w->events);
    PAR_FREE(w->tune_rows);
    PAR_FREE(w->site_hash);
    PAR_FREE(w->sites);
    PAR_FREE(w->pids);
    PAR_FREE(w->children);
    PAR_FREE(w);
}

// Allocate what ranks of one machine share from the start: a board for each (pretended) node, and the rings.
static par_result par__create_world_memory(par__world *w) {
    const int nodes = (w->size + w->node_ranks - 1) / w->node_ranks;
    const uint64_t rings = w->arena->boot_rings = par__alloc_rings(w, w->size, nodes);
    for (int r = 0; r < w->size; r++) {
        const int first = r / w->node_ranks * w->node_ranks,
                  locals = PAR__MIN(w->node_ranks, w->size - first);
        uint64_t *board = &w->arena->ranks[r].boot_board;
        *board = r == first ? par__alloc_board(w, locals, nodes, rings) : w->arena->ranks[first].boot_board;
        if (!*board || !rings)
            return par__log_error(PAR_ERR_MEMORY,
                                  "no shared memory for %d ranks in %zu bytes; PAR_ARENA asks for more",
                                  w->size, w->arena_bytes);
    }
    return PAR_OK;
}

// Make the world comm of a rank whose machine holds all ranks.
static par_result par__create_world_comm(par__world *w, par_comm **out) {
    int *ints = (int *)PAR_MALLOC(sizeof(int) * 2 * (size_t)w->size);
    if (!ints) return par__log_error(PAR_ERR_MEMORY, "out of memory");
    for (int r = 0; r < w->size; r++) {
        ints[r] = r;
        ints[w->size + r] = r / w->node_ranks;
    }
    par_comm *c = par__make_comm(w, 0, w->rank, w->size, ints, ints + w->size, ints);
    PAR_FREE(ints);
    if (!c) return par__log_error(PAR_ERR_MEMORY, "out of memory");
    const uint64_t board = w->arena->ranks[w->rank].boot_board, rings = w->arena->boot_rings;
    if (!par__comm_offsets_valid(c, board, rings)) {
        par__free_comm(c);
        PAR_LOG(w->error);
        return PAR_ERR_SYSTEM;
    }
    par__map_comm(c, board, rings);
    par__register_rank(w);
    *out = c;
    return PAR_OK;
}

// Check that rank 0 will be able to write the trace when the world closes. An existing file is not changed;
// a file that this check makes is removed.
static par_result par__check_trace_path(const char *path) {
    struct stat st;
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) return close(fd), unlink(path), PAR_OK;
    const int there = path && errno == EEXIST && !stat(path, &st);
    const int special = there && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode); // opening a FIFO would block
    if (!path || (special && !access(path, W_OK))) return PAR_OK;
    if (there && !special) fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0) return close(fd), PAR_OK;
    return par__log_error(PAR_ERR_SYSTEM, "cannot write the trace to %s: %s (PAR_TRACE, or par_desc.trace)",
                          path, strerror(errno));
}

// Find out whether the ranks of this machine may copy from each other's ordinary memory (process_vm_readv,
// "cross memory attach"), which containers and hardened systems forbid. Every rank tries it on its neighbor;
// if it fails for one, no rank does it. Collective over the node.
static void par__probe_cma(par_comm *c) {
    par__world *w = c->world;
    par__arena *a = w->arena;
    const uint32_t n = a->first_count;
    const par__rank_control *next = &a->ranks[((uint32_t)w->arena_rank + 1) % n];
    uint64_t word = 0;
    if (n == 1 || par__ranks_are_threads(w)) return;
    if (w->cma) prctl(PAR__SET_PTRACER, (unsigned long)-1, 0, 0, 0); // else Yama may forbid it
    par__count_rank(&a->cma_arrivals, n);
    if (!par__wait_for_count(c, &a->cma_arrivals, n)) {
        w->cma = 0;
        return;
    }
    for (uint32_t i = 0; i < n && w->pids; i++) w->pids[i] = a->ranks[i].pid;
    if (!w->cma ||
        par__cma_copy(next->pid, par__iovec(&word, sizeof word), (uintptr_t)next->probe_address, 0) ||
        word != PAR__MAGIC + (uint64_t)next->world_rank)
        PAR__STORE(&a->no_cma, 1u);
    par__count_rank(&a->cma_arrivals, 2 * n);
    par__wait_for_count(c, &a->cma_arrivals, 2 * n);
    w->cma = !PAR__LOAD(&a->no_cma);
}

// >>binding -------------------------------------------------------------------------------------------------
//
// Which processors a rank runs on. The ranks that may run on the same processors of a machine get shares of
// them that do not overlap: whole cores while there are enough, then single processors; within a NUMA node
// unless there are more nodes than ranks. A share and not one processor, because the threads that a rank
// starts (OpenMP's) run on its share, too. PAR_BIND=numa: the nodes that the share is on.
//     node 0   cores {0 8} {1 9} {2 10} {3 11}     4 ranks    {0 8 1 9} {2 10 3 11} {4 12 5 13} {6 14 7 15}
//     node 1   cores {4 12} {5 13} {6 14} {7 15}   10 ranks   {0} {1} {2} {3} {8}   {4} {5} {6} {7} {12}
// Ranks stay where they are if somebody has bound them (a launcher, taskset, the program's own threads), or
// if they outnumber the processors. Cores and nodes are read from /sys.

typedef struct par__machine { // the processors that ranks share
    par__cpu_set allowed;
    int whole_nodes, whole_cores; // PAR_BIND=numa; there are enough cores for the ranks
    int cpu_count, core_count, node_count, unit_count;
    // Of each processor: the first one of its core, how many of its core come before it, its node from 0; -1:
    // not allowed.
    int16_t core[PAR__CPU_MAX], level[PAR__CPU_MAX], node[PAR__CPU_MAX];
    uint64_t unit[PAR__CPU_MAX]; // cores or processors, ordered by par__order_cpus
    char text[16384], why[128];  // of a file; what is wrong
} par__machine;

// Parse a list of the kernel's, such as 0-3,8,10-11. 0: it is none, or a number is too large.
static int par__parse_cpu_list(const char *text, par__cpu_set *set) {
    const char *const begin = text;
    memset(set, 0, sizeof *set);
    for (int first = -1, n = -1;; text++) {
        if (*text >= '0' && *text <= '9') {
            n = PAR__MAX(n, 0) * 10 + (*text - '0');
            if (n >= PAR__CPU_MAX) return 0;
        } else if (*text == '-' && n >= 0 && first < 0) {
            first = n;
            n = -1;
        } else if (*text == ',' || *text == '\n' || !*text) {
            const int empty = text == begin && *text != ',';
            if (n < first || (n < 0 && !empty)) return 0;
            for (int i = first < 0 ? n : first; i <= n && n >= 0; i++) par__cpu_add(set, i);
            first = n = -1;
            if (*text != ',') return !*text || !text[1];
        } else
            return 0;
    }
}
static int par__read_cpu_file(par__machine *m, const char *root, const char *name) { // into m->text
    char path[512];
    size_t size, at = 0;
    ssize_t n = 1;
    if (snprintf(path, sizeof path, "%s/%s", root, name) >= (int)sizeof path) path[0] = 0;
    const int fd = par__open_read(path, &size, m->why, sizeof m->why);
    if (fd < 0) return 0;
    while (n > 0 && at < sizeof m->text - 1) {
        n = read(fd, m->text + at, sizeof m->text - 1 - at);
        at += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    m->text[at] = 0;
    if (n || strlen(m->text) != at) snprintf(m->why, sizeof m->why, "%.90s cannot be read", path);
    return !n && strlen(m->text) == at;
}
static int par__cpu_file_absent(const char *root, const char *name) {
    char path[512];
    return snprintf(path, sizeof path, "%s/%s", root, name) < (int)sizeof path && access(path, F_OK) &&
           errno == ENOENT;
}
static int par__read_cpu_list(par__machine *m, const char *root, const char *name, par__cpu_set *set) {
    if (!par__read_cpu_file(m, root, name)) return 0;
    if (par__parse_cpu_list(m->text, set)) return 1;
    snprintf(m->why, sizeof m->why, "%.40s/%.60s is no list of processors", root, name);
    return 0;
}

static int par__read_cores(par__machine *m, const char *root) {
    par__cpu_set set;
    char name[64];
    const int smt = !par__read_cpu_file(m, root, "cpu/smt/active") || m->text[0] != '0';
    for (int c = 0; c < PAR__CPU_MAX; c++) {
        if (!par__cpu_in(&m->allowed, c) || m->core[c] >= 0) continue;
        memset(&set, 0, sizeof set);
        par__cpu_add(&set, c);
        snprintf(name, sizeof name, "cpu/cpu%d/topology/core_cpus_list", c);
        if (smt && !par__read_cpu_list(m, root, name, &set)) {
            snprintf(name, sizeof name, "cpu/cpu%d/topology/thread_siblings_list", c); // before Linux 5.3
            if (!par__read_cpu_list(m, root, name, &set)) return 0;
        }
        if (!par__cpu_in(&set, c)) return snprintf(m->why, sizeof m->why, "%s lacks %d", name, c), 0;
        m->core_count++;
        for (int i = c, level = 0; i < PAR__CPU_MAX; i++) {
            if (!par__cpu_in(&set, i) || !par__cpu_in(&m->allowed, i) || m->core[i] >= 0) continue;
            m->core[i] = (int16_t)c;
            m->level[i] = (int16_t)level++;
        }
    }
    return 1;
}
static int par__read_nodes(par__machine *m, const char *root) {
    par__cpu_set nodes, set;
    char name[64];
    int known = 0;
    snprintf(name, sizeof name, "node/online");
    if (par__cpu_file_absent(root, name)) { // a kernel without NUMA
        for (int c = 0; c < PAR__CPU_MAX; c++) m->node[c] = par__cpu_in(&m->allowed, c) ? 0 : -1;
        return m->node_count = 1;
    }
    if (!par__read_cpu_list(m, root, name, &nodes)) return 0;
    for (int k = 0; k < PAR__CPU_MAX; k++) {
        int some = 0;
        if (!par__cpu_in(&nodes, k)) continue;
        snprintf(name, sizeof name, "node/node%d/cpulist", k);
        if (!par__read_cpu_list(m, root, name, &set)) return 0;
        for (int c = 0; c < PAR__CPU_MAX; c++) {
            if (!par__cpu_in(&set, c) || !par__cpu_in(&m->allowed, c) || m->node[c] >= 0) continue;
            m->node[c] = (int16_t)m->node_count;
            some = 1;
            known++;
        }
        m->node_count += some;
    }
    if (known == m->cpu_count) return 1;
    return snprintf(m->why, sizeof m->why, "%.60s/node: a processor is on no node", root), 0;
}
// Read which cores and NUMA nodes m->allowed are on, from `root`: /sys/devices/system. Processors that are
// offline are no longer allowed. 0: it cannot be read; m->why.
static int par__read_machine(par__machine *m, const char *root) {
    par__cpu_set online;
    if (!par__read_cpu_list(m, root, "cpu/online", &online)) return 0;
    for (int i = 0; i < PAR__CPU_MAX / 64; i++) m->allowed.word[i] &= online.word[i];
    m->cpu_count = par__cpu_count(&m->allowed);
    m->core_count = m->node_count = 0;
    for (int c = 0; c < PAR__CPU_MAX; c++) m->core[c] = m->level[c] = m->node[c] = -1;
    return par__read_cores(m, root) && par__read_nodes(m, root);
}

static int par__compare_u64(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
// Order the units that `count` ranks share, cores or processors: by nodes, within a node first those of
// different cores.
static void par__order_cpus(par__machine *m, int count) {
    m->whole_cores = count <= m->core_count;
    m->unit_count = 0;
    for (int c = 0; c < PAR__CPU_MAX; c++)
        if (m->core[c] >= 0 && (!m->whole_cores || m->level[c] == 0))
            m->unit[m->unit_count++] = (uint64_t)m->node[c] << 32 | (uint64_t)m->level[c] << 16 | (uint64_t)c;
    qsort(m->unit, (size_t)m->unit_count, sizeof m->unit[0], par__compare_u64);
}
static int par__binding_part(const par__machine *m, int cpu) { // what is bound to as a whole
    return m->whole_nodes ? m->node[cpu] : m->whole_cores ? m->core[cpu] : cpu;
}
// The share of rank `index` of `count`, after par__order_cpus. 0: the ranks outnumber the processors. A node
// gets ranks in proportion to its units, rounded so that their sum is `count`; they get equal numbers of its
// units.
static int par__choose_cpus(const par__machine *m, int index, int count, par__cpu_set *share) {
    const int units = m->unit_count;
    par__cpu_set chosen;
    memset(share, 0, sizeof *share);
    memset(&chosen, 0, sizeof chosen);
    if (index < 0 || index >= count || count > units) return 0;
    int n = units / count, at = (int)((int64_t)index * units / count); // fewer ranks than nodes
    for (int from = 0, end, before = 0; count >= m->node_count && from < units; from = end) {
        for (end = from; end < units && m->unit[end] >> 32 == m->unit[from] >> 32;) end++;
        const int until = (int)((2 * (int64_t)count * end + units) / (2 * (int64_t)units));
        if (index >= before && index < until) {
            n = (end - from) / (until - before);
            at = from + (index - before) * n;
        }
        before = until;
    }
    for (int i = at; i < at + n; i++) par__cpu_add(&chosen, par__binding_part(m, (int)(m->unit[i] & 0xFFFF)));
    for (int c = 0; c < PAR__CPU_MAX; c++)
        if (m->core[c] >= 0 && par__cpu_in(&chosen, par__binding_part(m, c))) par__cpu_add(share, c);
    return 1;
}

// Has somebody bound this process, or one of its threads? `all`: what the system allows it, its cpuset.
static int par__threads_bound(const par__machine *m, const par__cpu_set *all, const par__cpu_set *isolated) {
    par__cpu_set other;
    int bound = 0;
    for (int i = 0; i < PAR__CPU_MAX / 64; i++)
        bound |= (all->word[i] & ~isolated->word[i] & ~m->allowed.word[i]) != 0;
    DIR *d = bound ? NULL : opendir("/proc/self/task");
    for (struct dirent *e; d && !bound && (e = readdir(d)) != NULL;) {
        const int thread = atoi(e->d_name);
        bound = thread > 0 && par__get_cpus(thread, &other) && memcmp(&other, &m->allowed, sizeof other);
    }
    if (d) closedir(d);
    return bound;
}
static int par__is_bound(par__machine *m, const char *root) {
    par__cpu_set every, all, isolated;
    memset(&every, 0xFF, sizeof every);
    const int known = par__set_cpus(&every) && par__get_cpus(0, &all);
    if (!par__set_cpus(&m->allowed) || !known) return 1; // not even this rank may do that
    if (!par__read_cpu_list(m, root, "cpu/isolated", &isolated)) memset(&isolated, 0, sizeof isolated);
    return par__threads_bound(m, &all, &isolated);
}

static void par__print_cpu_list(const par__cpu_set *set, char *text, size_t bytes) { // as far as it fits
    size_t at = 0;
    text[0] = 0;
    for (int c = 0, end; c < PAR__CPU_MAX && at + 12 < bytes; c = end + 1) {
        for (end = c; end < PAR__CPU_MAX && par__cpu_in(set, end);) end++;
        if (end == c) continue;
        at += (size_t)snprintf(text + at, bytes - at, at ? ",%d" : "%d", c);
        if (end > c + 1) at += (size_t)snprintf(text + at, bytes - at, "-%d", end - 1);
    }
}

// The processors that this rank shares with others, `count` ranks in all. NULL: they are not bound;
// w->binding says why, and rank `index` 0 logs it where binding was asked for. alike: no rank of this machine
// may run on others.
static par__machine *par__plan_binding(par__world *w, int index, int count, int alike) {
    enum { UNSET = -1, NEVER, CORE, NUMA };
    const int policy = w->keep_cpus ? NEVER : (int)par__setting_number("PAR_BIND"),
              need = count * (w->progress_wanted ? 2 : 1);
    const char *root = "/sys/devices/system", *why = NULL;
    snprintf(w->binding, sizeof w->binding, "not bound: %s",
             policy         ? "no other rank runs on its processors"
             : w->keep_cpus ? "par_desc.keep_cpus"
                            : "PAR_BIND=0");
    if (policy == NEVER || count < 2) return NULL;
    par__machine *m = (par__machine *)PAR_MALLOC(sizeof *m);
    if (!m) {
        why = "out of memory";
    } else if (!par__get_cpus(0, &m->allowed)) {
        why = "sched_getaffinity fails";
    } else if (need > par__cpu_count(&m->allowed)) {
        why = w->progress_wanted
                  ? "there are not two processors for each rank (its progress thread needs one)"
                  : "there are more ranks than processors";
    } else if (policy == UNSET && (!alike || par__is_bound(m, root))) {
        why = "something else has chosen the processors";
    } else if (!par__read_machine(m, root)) {
        why = m->why;
    } else {
        m->whole_nodes = policy == NUMA;
        par__order_cpus(m, count);
        return m;
    }
    snprintf(w->binding, sizeof w->binding, "not bound: %s", why);
    if (policy != UNSET && index == 0)
        par__log_error(PAR_OK, "PAR_BIND=%s, but ranks are %s", getenv("PAR_BIND"), w->binding);
    PAR_FREE(m);
    return NULL;
}
// Let this thread run on the share of rank `index` of `count`. m: NULL, or what par__plan_binding returned.
static void par__bind_rank(par__world *w, const par__machine *m, int index, int count) {
    char list[128];
    if (!m || !par__get_cpus(0, &w->cpus_before) || !par__choose_cpus(m, index, count, &w->cpus)) return;
    w->bound = par__set_cpus(&w->cpus);
    par__print_cpu_list(&w->cpus, list, sizeof list);
    snprintf(w->binding, sizeof w->binding,
             w->bound ? "bound to processors %s" : "not bound: sched_setaffinity refuses %s", list);
}

// >>fork ----------------------------------------------------------------------------------------------------
//
// Ranks of this machine: rank 0 is the process that called par_open. The others are forked from it, or are
// the program run again (exec) where it has threads already:
//     rank 0    make the arena --- fork, fork, fork --- wait until all are open ... par_close waits for them
//     rank 1                        '-> map the arena   (exec: by the descriptor that PAR__BOOT names)

static par_result par__child_status(int rank, int pid, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return PAR_OK;
    if (status == -1)
        return par__log_error(PAR_ERR_PEER_DIED, "rank %d (pid %d) ended without closing its world", rank,
                              pid);
    if (WIFSIGNALED(status))
        return par__log_error(PAR_ERR_PEER_DIED, "rank %d (pid %d) was killed by signal %d (%s)", rank, pid,
                              WTERMSIG(status), strsignal(WTERMSIG(status)));
    return par__log_error(PAR_ERR_PEER_DIED, "rank %d (pid %d) exited with status %d", rank, pid,
                          WEXITSTATUS(status));
}

// Has child i ended? Then *status is its wait status. Where the program ignores SIGCHLD or waits for all
// children itself, the status is lost, and *status is 0 if the rank has closed its world, else -1.
static int par__child_ended(const par__world *w, int i, int *status) {
    const int pid = (int)waitpid(w->children[i], status, WNOHANG);
    if (pid < 0) *status = PAR__LOAD(&w->arena->ranks[i + 1].state) == PAR__RANK_CLOSED ? 0 : -1;
    return pid != 0;
}

static void par__kill_children(par__world *w) {
    for (int i = 0; i < w->child_count; i++)
        if (w->children[i] > 0) {
            kill(w->children[i], SIGKILL);
            waitpid(w->children[i], NULL, 0);
        }
    w->child_count = 0;
}

// Who this process is among ranks that par_open has started on this machine. Such a rank opens no more of
// them, or each would start all others again. Processes are global, and so is this.
static struct {
    int pid, rank, size; // pid: of the process that it tells of; 0, or another one: this is no such rank
} par__local_rank;
static void par__set_local_rank(int rank, int size) {
    par__local_rank.pid = size > 1 ? (int)getpid() : 0;
    par__local_rank.rank = rank;
    par__local_rank.size = size;
}
static par_result par__check_second_open(void) {
    if (par__local_rank.pid != (int)getpid()) return PAR_OK;
    return par__log_error(
        PAR_ERR_ARGUMENT,
        "par_open: this process is rank %d of %d already, which an earlier par_open has started; "
        "split that world (par_split)%s",
        par__local_rank.rank, par__local_rank.size, par__local_rank.rank ? "" : ", or close it first");
}
static par_result par__join_grown(par__world *w, par_comm **out);
// Turn this child process into a rank. It ends when its parent does.
static par_result par__enter_child(par__world *w, int rank, int parent, par_comm **out) {
    w->rank = w->arena_rank = rank;
    par__set_local_rank(rank, w->size);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); // the parent died before the prctl
    return rank < (int)w->arena->first_count ? par__create_world_comm(w, out) : par__join_grown(w, out);
}

// All bytes of a file whose length the system does not tell, and a zero; the caller frees them. NULL: it
// cannot be read, or memory is out.
static char *par__read_whole(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "re");
    char *text = NULL, *more = NULL;
    size_t capacity = 4096;
    *bytes = 0;
    while (f && (more = (char *)PAR_REALLOC(text, capacity *= 2)) != NULL) {
        text = more;
        *bytes += fread(text + *bytes, 1, capacity - 1 - *bytes, f);
        text[*bytes] = 0;
        if (*bytes + 1 < capacity) break;
    }
    const int whole = more && !ferror(f);
    if (f) fclose(f);
    if (!whole) PAR_FREE(text);
    return whole ? text : NULL;
}
// An array of the texts, of which each ends with a zero, and NULL. NULL: memory is out.
static char **par__split_texts(char *text, size_t bytes) {
    size_t n = 0;
    for (size_t i = 0; i < bytes; i += strlen(text + i) + 1) n++;
    char **texts = (char **)par__zalloc((n + 1) * sizeof *texts);
    n = 0;
    for (size_t i = 0; texts && i < bytes; i += strlen(text + i) + 1) texts[n++] = text + i;
    return texts;
}

// Run this program again as another rank: with all of its arguments, and an environment of its own, as
// threads of the program may read this one. signals: those that it blocks; NULL: as this process. Returns the
// child's pid, or -1 and errno.
static int par__spawn_again(const par__world *w, int rank, const sigset_t *signals) {
    char boot[128];
    size_t bytes = 0, variables = 0;
    int pid = -1, e = ENOMEM;
    snprintf(boot, sizeof boot, "PAR__BOOT=%d %d %d %d %d %d %llx", w->fd, rank, w->size, w->local_count,
             w->node_ranks, (int)getpid(), (unsigned long long)w->arena->key);
    while (environ && environ[variables]) variables++;
    char *text = par__read_whole("/proc/self/cmdline", &bytes);
    char **argv = text ? par__split_texts(text, bytes) : NULL;
    char **set = (char **)PAR_MALLOC((variables + 2) * sizeof *set);
    if (set) {
        set[0] = boot; // the first of a name counts
        if (variables) memcpy(set + 1, environ, variables * sizeof *set);
        set[variables + 1] = NULL;
    }
    if (!text) e = errno;
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    if (signals) posix_spawnattr_setsigmask(&how, signals);
    posix_spawnattr_setflags(&how, signals ? POSIX_SPAWN_SETSIGMASK : 0);
    if (argv && set) e = posix_spawn(&pid, "/proc/self/exe", NULL, &how, argv, set);
    posix_spawnattr_destroy(&how);
    PAR_FREE(text);
    PAR_FREE(argv);
    PAR_FREE(set);
    errno = e;
    return e ? -1 : pid;
}

// Wait until all children have opened their worlds. Rank 0 has.
static par_result par__wait_for_children(par__world *w) {
    uint32_t *started = &w->arena->started, seen;
    const double until = par__now() + PAR__MIN(w->timeout_s, 60.0);
    while ((seen = PAR__LOAD(started)) < (uint32_t)w->size) {
        par__futex_wait(started, seen, 20000000);
        const int late = par__now() > until;
        for (int i = 0; i < w->child_count; i++) {
            int status;
            const int ended = par__child_ended(w, i, &status);
            if (ended) {
                par__child_status(i + 1, w->children[i], status);
                w->children[i] = 0;
            }
            if (ended || (late && PAR__LOAD(&w->arena->ranks[i + 1].state) == PAR__RANK_STARTING))
                return par__log_error(PAR_ERR_PEER_DIED, "rank %d did not start%s", i + 1,
                                      ended ? "" : ": does every rank call par_open?");
        }
    }
    return PAR_OK;
}

// The process that opens an elastic world is no rank of it. It starts all ranks, which end when it does, and
// waits until all have ended. Then it ends, and says how the job went:
//     supervisor   fork rank 0, 1, 2 -- rank 1 dies: says so -- ranks 0 and 2 end -- exits with their status
// Signals that ask a process to end are for the ranks: it passes them on.
typedef struct par__supervisor {
    par__world *w;
    par__machine *machine;
    sigset_t waited, before;
    int again, status, ended_well;
    int pids[1]; // per rank; 0: not started, or it has ended
} par__supervisor;

static void par__end_of_rank(par__supervisor *s, int rank, int status) {
    const par__rank_control *k = &s->w->arena->ranks[rank];
    const int closed = PAR__LOAD(&k->state) == PAR__RANK_CLOSED;
    s->pids[rank] = 0;
    par__set_gone(s->w, &s->w->arena->ranks[rank], PAR__RANK_DEAD); // also one that has not begun
    s->ended_well += closed && !status;
    if (status) par__child_status(rank, k->pid, status);
    if (closed && status && !s->status)
        s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
static int par__reap_ranks(par__supervisor *s) { // how many are left
    int left = 0;
    for (int i = 0; i < s->w->local_count; i++) {
        int status = 0;
        const int pid = s->pids[i] ? (int)waitpid(s->pids[i], &status, WNOHANG) : 0;
        if (pid < 0) status = PAR__LOAD(&s->w->arena->ranks[i].state) == PAR__RANK_CLOSED ? 0 : -1;
        if (pid) par__end_of_rank(s, i, status);
        left += s->pids[i] != 0;
    }
    return left;
}
// 1: this is the new process, which is the rank.
static int par__start_rank(par__supervisor *s, int rank) {
    const int pid = s->again ? par__spawn_again(s->w, rank, &s->before) : (int)fork();
    if (pid > 0) s->pids[rank] = pid;
    if (pid < 0) {
        par__log_error(PAR_ERR_SYSTEM, "cannot start rank %d: %s", rank, strerror(errno));
        par__set_gone(s->w, &s->w->arena->ranks[rank], PAR__RANK_DEAD);
    }
    if (pid) return 0;
    sigprocmask(SIG_SETMASK, &s->before, NULL);
    par__bind_rank(s->w, s->machine, rank % s->w->size, s->w->size);
    return 1;
}
static void par__pass_signal(const par__supervisor *s, const siginfo_t *info) {
    if (info->si_code > 0) return; // the kernel has sent it to all of them
    for (int i = 0; i < s->w->local_count; i++)
        if (s->pids[i]) kill(s->pids[i], info->si_signo);
}
// Returns in each rank, with its number; the supervisor itself ends here.
static int par__supervise(par__supervisor *s) {
    const par__world *w = s->w;
    const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    const struct timespec t = {0, 20000000};
    siginfo_t info;
    sigemptyset(&s->waited);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaddset(&s->waited, signals[i]);
    sigprocmask(SIG_BLOCK, &s->waited, &s->before);
    for (int i = 0; i < w->size; i++)
        if (par__start_rank(s, i)) return i;
    while (par__reap_ranks(s)) {
        for (int i = w->size; i < w->local_count; i++)
            if (PAR__LOAD(&w->arena->ranks[i].newcomers) && !s->pids[i] &&
                PAR__LOAD(&w->arena->ranks[i].state) == PAR__RANK_STARTING && par__start_rank(s, i))
                return i;
        const int got = sigtimedwait(&s->waited, &info, &t);
        if (got > 0 && got != SIGCHLD) par__pass_signal(s, &info);
    }
    fflush(NULL);
    _exit(s->status ? s->status : !s->ended_well);
}

// The same in an elastic world, in each rank.
static par_result par__open_elastic(par__world *w, par__machine *machine, int again, int parent,
                                    par_comm **out) {
    par__supervisor *s = (par__supervisor *)par__zalloc(sizeof *s + sizeof(int) * (size_t)w->local_count);
    PAR_FREE(w->children);
    w->children = NULL;
    if (!s) {
        PAR_FREE(machine);
        par__free_world(w, 1);
        return par__log_error(PAR_ERR_MEMORY, "out of memory");
    }
    s->w = w;
    s->machine = machine;
    s->again = again;
    const int rank = par__supervise(s);
    PAR_FREE(machine);
    PAR_FREE(s);
    return par__enter_child(w, rank, parent, out);
}
// Start all ranks on this machine.
static par_result par__open_local(par__open_request *start, par_comm **out) {
    const par_desc *d = &start->desc;
    if (par__stop_library_threads) par__stop_library_threads();
    const int size = PAR__MAX(d->rank_count, 1),
              again = d->run_again ? d->run_again > 0 : par__thread_count() > 1;
    par__world *w = par__new_world(d, size == 1 ? "single" : again ? "exec" : "fork", 0, size);
    const int parent = (int)getpid();
    if (!w) return PAR_ERR_MEMORY;
    par__read_algorithm_settings(w, start);
    par_result r = par__open_rejected(start);
    if (!r) r = par__check_trace_path(w->trace_path);
    if (!r) r = par__arena_create(w, d->arena_bytes, size, par__arena_ranks(d, size));
    if (r) return par__free_world(w, 0), r;
    r = par__create_world_memory(w);
    w->children = (int *)par__zalloc(sizeof(int) * (size_t)size);
    if (!r && !w->children) r = par__log_error(PAR_ERR_MEMORY, "out of memory");
    par__machine *machine = r ? NULL : par__plan_binding(w, 0, size, 1);
    fflush(NULL); // else each child would print what is buffered, too
    if (again && !r) fcntl(w->fd, F_SETFD, 0);
    if (d->elastic && !r) return par__open_elastic(w, machine, again, parent, out);
    for (int i = 1; i < size && !r; i++) {
        const int pid = again ? par__spawn_again(w, i, NULL) : (int)fork();
        if (pid == 0) {
            PAR_FREE(w->children);
            w->children = NULL;
            w->child_count = 0;
            par__bind_rank(w, machine, i, size);
            PAR_FREE(machine);
            return par__enter_child(w, i, parent, out);
        }
        if (pid < 0)
            r = par__log_error(PAR_ERR_SYSTEM, "cannot start rank %d of %d: %s", i, size, strerror(errno));
        else
            w->children[w->child_count++] = pid;
    }
    if (again) fcntl(w->fd, F_SETFD, FD_CLOEXEC);
    par__bind_rank(w, machine, 0, size); // now: processes that it starts inherit it
    PAR_FREE(machine);
    if (!r) r = par__create_world_comm(w, out);
    if (!r) r = par__wait_for_children(w);
    if (!r && size > 1) par__set_local_rank(0, size);
    if (r) {
        par__kill_children(w);
        par__free_world(w, 1);
    }
    return r;
}

// Open the world in a process that rank 0 started by par__spawn_again.
static par_result par__open_child(par__open_request *start, const char *boot, par_comm **out) {
    int fd, rank, size, all, node_ranks, parent, end = 0;
    unsigned long long key;
    par_desc here = start->desc;
    const int read =
        sscanf(boot, "%d %d %d %d %d %d %llx%n", &fd, &rank, &size, &all, &node_ranks, &parent, &key, &end);
    const char *why = NULL;
    if (read != 7 || boot[end])
        why = "is not of the form that rank 0 writes";
    else if (size < 1 || size > 1024 || all != par__arena_ranks(&here, size) || rank < !here.elastic ||
             rank >= all || node_ranks < 1 || node_ranks > size)
        why = "has impossible numbers of ranks";
    else if (parent != (int)getppid())
        why = "was written by a process that is not the parent of this one, or no longer is";
    if (why)
        return par__log_error(
            PAR_ERR_ARGUMENT,
            "PAR__BOOT=\"%.128s\" %s; only rank 0 sets this variable, for the ranks that it "
            "starts: unset it",
            boot, why);
    here.node_ranks = node_ranks;
    par__world *w = par__new_world(&here, "exec", rank, size);
    if (!w) return PAR_ERR_MEMORY;
    par__read_algorithm_settings(w, start);
    par_result r = par__open_rejected(start);
    if (r) return par__free_world(w, 0), r;
    r = par__arena_adopt(w, fd, 0, all, (uint64_t)key);
    if (r) {
        par__free_world(w, 1);
        return par__log_error(
            r, "rank %d cannot map the shared memory of rank 0 that PAR__BOOT=\"%.128s\" names", rank, boot);
    }
    char *text = getenv("PAR__BOOT");
    if (text) *text = 0; // for programs that this one starts; threads may read the environment
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    par__machine *machine = par__plan_binding(w, rank % size, size, 1);
    par__bind_rank(w, machine, rank % size, size);
    PAR_FREE(machine);
    return par__enter_child(w, rank, parent, out);
}

// >>threads -------------------------------------------------------------------------------------------------
//
// Ranks that are threads of this process. They share its memory, so every address is addressable.

typedef struct par__thread {
    pthread_t thread;
    par_comm *comm;
    par_thread_fn fn;
    void *user;
    const par__machine *machine; // that the threads share; NULL: they are not bound
    par_result result;
} par__thread;

static void *par__thread_main(void *p) {
    par__thread *t = (par__thread *)p;
    par__bind_rank(t->comm->world, t->machine, t->comm->rank, t->comm->size);
    const int r = par__start_progress(t->comm->world) || t->fn(t->comm, t->user);
    if (r) par_abort(t->comm, "a rank's thread function failed");
    t->result = par_close(t->comm);
    if (r && !t->result) t->result = PAR_ERR_ABORTED;
    return NULL;
}

// Make the world of one thread. Rank 0's exists already, and the caller keeps it on failure.
static par_result par__make_thread(par__open_request *s, par__world *first, int rank, par__thread *t) {
    par__world *w = rank ? par__new_world(&s->desc, "threads", rank, first->size) : first;
    if (!w) return PAR_ERR_MEMORY;
    if (rank) par__read_algorithm_settings(w, s);
    par_result r = par__open_rejected(s);
    w->arena_rank = rank;
    w->local_count = first->size;
    par__set_arena_fd(w, first->fd);
    w->base = first->base;
    w->arena = first->arena;
    w->arena_bytes = first->arena_bytes;
    if (!r) r = par__create_world_comm(w, &t->comm);
    if (r && rank) par__free_world(w, 0);
    return r;
}

// Start the threads, unless result is an error already; wait for them, and close what did not start.
static par_result par__join_threads(par__thread *t, int count, par_result result) {
    par__world *first = result ? NULL : t[0].comm->world;
    par__machine *machine = first ? par__plan_binding(first, 0, count, 1) : NULL;
    int started = 0;
    for (int i = 0; i < count && first; i++) {
        t[i].machine = machine;
        if (i) memcpy(t[i].comm->world->binding, first->binding, sizeof first->binding);
    }
    for (; started < count && !result; started++)
        if (pthread_create(&t[started].thread, NULL, par__thread_main, &t[started])) {
            result = par__log_error(PAR_ERR_SYSTEM, "cannot start thread %d of %d", started, count);
            __atomic_fetch_or(&first->arena->alarms, PAR__ABORTED, __ATOMIC_SEQ_CST);
            break;
        }
    for (int i = 0; i < started; i++) {
        pthread_join(t[i].thread, NULL);
        if (t[i].result && !result) result = t[i].result;
    }
    for (int i = started; i < count; i++)
        if (t[i].comm) {
            par__set_broken(t[i].comm, PAR_ERR_ABORTED);
            par_close(t[i].comm);
        }
    PAR_FREE(machine);
    return result;
}
par_result par_run_threads(const par_desc *desc, par_thread_fn fn, void *user) {
    par__open_request start;
    if (!fn) return par__log_error(PAR_ERR_ARGUMENT, "par_run_threads: fn is NULL");
    par__check_desc(desc, &start);
    if (start.desc.elastic)
        par__reject_open(&start, PAR_ERR_UNSUPPORTED,
                         "an elastic world (par_desc.elastic) needs ranks that are processes: "
                         "a thread does not die alone");
    par__settings_warn_misspelled(par__settings, PAR__SETTING_COUNT);
    par_result r = par__open_rejected(&start);
    if (r) return r;
    const int rank_count = PAR__MAX(start.desc.rank_count, 1);
    par__thread *t = (par__thread *)par__zalloc(sizeof *t * (size_t)rank_count);
    par__world *first = par__new_world(&start.desc, "threads", 0, rank_count);
    if (!first) return PAR_FREE(t), PAR_ERR_MEMORY;
    if (!t) {
        par__free_world(first, 0);
        return par__log_error(PAR_ERR_MEMORY, "out of memory for %d threads", rank_count);
    }
    par__read_algorithm_settings(first, &start);
    r = par__open_rejected(&start);
    if (!r) r = par__check_trace_path(first->trace_path);
    if (!r) r = par__arena_create(first, start.desc.arena_bytes, rank_count, rank_count);
    if (!r) r = par__create_world_memory(first);
    int made = 0;
    while (made < rank_count && !r) {
        r = par__make_thread(&start, first, made, &t[made]);
        if (!r) {
            t[made].fn = fn;
            t[made].user = user;
            made++;
        }
    }
    char *base = first->base;
    const size_t bytes = first->arena_bytes;
    const int fd = first->fd;
    if (!made) par__free_world(first, 0);
    r = par__join_threads(t, made, r);
    if (base) munmap(base, bytes);
    if (fd >= 0) close(fd);
    PAR_FREE(t);
    return r;
}

// >>launcher ------------------------------------------------------------------------------------------------
//
// What torchrun, mpiexec and srun tell a process by variables: its rank, the number of ranks, rank 0's host.

// The variables by which a launcher tells a process its rank and the number of ranks; and one that, together
// with Slurm's job, only the ranks of one run have in common. Where one launcher started another, the inner
// one counts: it is the first in this table, unless par__srun_is_inner says otherwise.
enum { PAR__TORCHRUN, PAR__OPENMPI, PAR__PMI, PAR__SRUN, PAR__LAUNCHER_COUNT };
static const struct par__launcher {
    const char *name, *rank, *size, *run_id;
    const char *extra;      // NULL, or another variable that must be a number
    const char *local_size; // of this node, or NULL
} par__launchers[PAR__LAUNCHER_COUNT] = {
    {"torchrun", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI's mpiexec", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", NULL,
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "SLURM_JOB_ID", NULL, "MPI_LOCALNRANKS"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_TASK_PID", NULL}};

typedef struct par__launch {  // what launchers' variables say about this process
    int launcher, rank, size; // the innermost launcher's row and numbers; -1, 0, 0: none
    char problem[512];        // an error in the variables, or ""
    uint64_t job;             // a hash, the same on all ranks of a run
    int named;                // only this run has it
    char host[256], port[16];
} par__launch;

// Did another process start with this variable, and with the value that it has here?
static int par__process_has_variable(int pid, const char *name) {
    char path[48], want[96];
    int same = 1, found = 0, c;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    snprintf(want, sizeof want, "%s=%s", name, getenv(name));
    FILE *f = fopen(path, "r");
    for (size_t at = 0; f && !found && (c = fgetc(f)) != EOF; at = c ? at + 1 : 0) {
        same = (same || !at) && c == want[at];
        found = same && !c;
    }
    if (f) fclose(f);
    return found;
}
// Is srun the inner one of itself and launcher l? Then the process that srun started (SLURM_TASK_PID) had l's
// variables from the start. If l is the inner one, only the processes that l started have them.
static int par__srun_is_inner(const struct par__launcher *l) {
    const int pid = (int)par__setting_number("SLURM_TASK_PID");
    return pid > 0 && par__process_has_variable(pid, "SLURM_TASK_PID") &&
           par__process_has_variable(pid, l->rank) && par__process_has_variable(pid, l->size);
}

int par__launched_here(void) {
    int ranks = 0;
    for (int i = 0; i < PAR__LAUNCHER_COUNT && !ranks; i++)
        if (par__launchers[i].local_size) ranks = (int)par__setting_number(par__launchers[i].local_size);
    return ranks;
}
static int par__launcher_is_set(int i) {
    return par__setting_text(par__launchers[i].rank) && par__setting_text(par__launchers[i].size);
}
// Read launcher i's rank and size. If one is not a number, both are 0, and `problem` says why.
static void par__launcher_numbers(int i, int *rank, int *size, char *problem, size_t capacity) {
    const struct par__launcher *l = &par__launchers[i];
    double value[3];
    par_result r = par__setting_read(par__setting_find(l->rank), &value[0], problem, capacity);
    if (!r) r = par__setting_read(par__setting_find(l->size), &value[1], problem, capacity);
    if (!r && l->extra) r = par__setting_read(par__setting_find(l->extra), &value[2], problem, capacity);
    *rank = r ? 0 : (int)value[0];
    *size = r ? 0 : (int)value[1];
}
static void par__describe_launchers(char *text, size_t bytes) { // "RANK=0 WORLD_SIZE=2 (torchrun), ..."
    size_t at = 0;
    for (int i = 0; i < PAR__LAUNCHER_COUNT; i++) {
        const struct par__launcher *l = &par__launchers[i];
        if (!par__launcher_is_set(i)) continue;
        at += (size_t)snprintf(text + at, bytes - at, "%s%s=%.20s %s=%.20s (%s)", at ? ", " : "", l->rank,
                               getenv(l->rank), l->size, getenv(l->size), l->name);
    }
}
static void par__find_launch(par__launch *l) {
    int clash = 0;
    char said[384];
    memset(l, 0, sizeof *l);
    l->launcher = -1;
    for (int i = 0; i < PAR__LAUNCHER_COUNT; i++) {
        if (!par__launcher_is_set(i)) continue;
        int rank, size;
        par__launcher_numbers(i, &rank, &size, l->problem, sizeof l->problem);
        const int inner = l->launcher;
        if (inner >= 0 && rank == l->rank && size == l->size) continue;
        const int found = inner >= 0 && i == PAR__SRUN && par__srun_is_inner(&par__launchers[inner]);
        if (inner < 0 || (found && inner != PAR__TORCHRUN)) {
            l->launcher = i;
            l->rank = rank;
            l->size = size;
        } else if (found || (inner == PAR__TORCHRUN ? !par__setting_text("LOCAL_RANK") : i != PAR__SRUN))
            clash = 1; // RANK set by hand, or two kinds of mpiexec
    }
    if (l->launcher < 0 || l->problem[0]) return;
    par__describe_launchers(said, sizeof said);
    par__sanitize(said, "");
    if (clash)
        snprintf(l->problem, sizeof l->problem, "launchers disagree: %s; unset the variables of all but one",
                 said);
    else if (l->rank >= l->size)
        snprintf(l->problem, sizeof l->problem, "the launcher says rank %d of %d, but ranks count from 0: %s",
                 l->rank, l->size, said);
}
int par_launched(int *rank) {
    par__launch l;
    par__find_launch(&l);
    if (rank) *rank = PAR__MAX(l.rank, 0);
    return l.launcher < 0 ? 0 : PAR__MAX(l.size, 1);
}
static par_result par__check_count(const par_desc *given, par__open_request *s, const char *who, int size) {
    const int here = given && given->rank_count;
    if (!s->desc.rank_count || s->desc.rank_count == size) return PAR_OK;
    par__reject_open(s, PAR_ERR_ARGUMENT, "%s is %d, but %s started %d process%s: %s, or start as many",
                     here ? "rank_count" : "PAR_RANKS", s->desc.rank_count, who, size, size == 1 ? "" : "es",
                     here ? "leave it at 0" : "unset it");
    return PAR_ERR_ARGUMENT;
}

static uint64_t par__hash_text(const char *text, uint64_t h) { // NULL: as ""
    for (const char *c = text ? text : "";; c++) {
        const size_t letter = (unsigned char)*c;
        h = par__hash_sizes(&letter, 1, h);
        if (!letter) return h;
    }
}

// The first host of a Slurm node list: "gpu[003-010,17],cpu1" -> "gpu003". Returns 0 if it is not one.
static int par__first_host(const char *list, char *host, size_t bytes) {
    static const char plain[] = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
    size_t at = 0;
    for (const char *p = list; *p && *p != ',';) {
        const int set = *p == '[';
        const char *from = set ? p + 1 : p;
        const size_t n = set ? strspn(from, "0123456789") : strspn(from, plain);
        if (!n || at + n >= bytes) return 0;
        memcpy(host + at, from, n);
        at += n;
        p = from + n;
        if (set) {
            p += strspn(p, "0123456789,-");
            if (*p++ != ']') return 0;
        }
    }
    return host[at] = 0, at > 0;
}
// Find the host, the port and the job for the rendezvous. Under srun the port follows from job and step, and
// is below the ephemeral ports (net.ipv4.ip_local_port_range). If two steps get the same port by chance, one
// waits until the other has opened.
static par_result par__find_rendezvous(par__launch *l) {
    static const char *const ports[] = {"MASTER_PORT", "PAR_PORT"};
    const char *host = par__setting_text("MASTER_ADDR"), *nodes = par__setting_text("SLURM_STEP_NODELIST"),
               *node = par__setting_text("SLURMD_NODENAME"),
               *agent = par__setting_text("TORCHELASTIC_USE_AGENT_STORE"),
               *name = par__setting_text("PAR_JOB");
    const char *const words[] = {par__setting_text("SLURM_JOB_ID"),
                                 par__setting_text(par__launchers[l->launcher].run_id)};
    char why[512];
    double value;
    l->job = 0xcbf29ce484222325u;
    for (size_t i = 0; i < 2 && !name; i++) l->job = par__hash_text(words[i], l->job);
    if (name) l->job = par__hash_text(name, ~l->job);
    // Slurm's job may have several mpiexecs; "none" is torchrun's default.
    l->named = name || (words[1] && l->launcher != PAR__PMI && strcmp(words[1], "none"));
    int port = l->launcher == PAR__SRUN ? 20000 + (int)(l->job % 12000) : 29500;
    for (int i = 0; i < 2; i++) {
        if (!par__setting_text(ports[i])) continue;
        const int next = i == 0 && agent && !strcmp(agent, "True"); // torchrun's agent may listen there
        if (par__setting_read(par__setting_find(ports[i]), &value, why, sizeof why))
            return par__log_error(PAR_ERR_ARGUMENT, "%s", why);
        port = (int)value + next;
        if (port > 65535)
            return par__log_error(
                PAR_ERR_ARGUMENT,
                "%s=65535: torchrun's agent has it, and there is no next port: choose a lower one", ports[i]);
    }
    snprintf(l->port, sizeof l->port, "%d", port);
    if (par__setting_read(par__setting_find("MASTER_ADDR"), &value, why, sizeof why))
        return par__log_error(PAR_ERR_ARGUMENT, "%s", why);
    const char *colon = host ? strchr(host, ':') : NULL; // an address of IPv6 has several
    if (host && (strpbrk(host, "/[] ") || (colon && !strchr(colon + 1, ':'))))
        return par__log_error(
            PAR_ERR_ARGUMENT,
            "MASTER_ADDR=%.128s: it takes the name of a host, or an address such as 10.0.0.7 or "
            "fe80::7, alone; MASTER_PORT (or PAR_PORT) is for the port",
            host);
    if (host)
        snprintf(l->host, sizeof l->host, "%s", host);
    else if (l->launcher == PAR__SRUN && nodes && !par__first_host(nodes, l->host, sizeof l->host))
        return par__log_error(
            PAR_ERR_ARGUMENT,
            "SLURM_STEP_NODELIST=%.128s: it takes names of hosts, such as node[003-010,17]; or "
            "export MASTER_ADDR (the host of rank 0)",
            nodes);
    if (!l->host[0])
        return par__log_error(
            PAR_ERR_UNSUPPORTED,
            "%s started %d processes: export MASTER_ADDR (the host of rank 0) for them to meet over "
            "TCP, or build with mpicc -DPAR_MPI, or run this program alone with PAR_RANKS=%d",
            par__launchers[l->launcher].name, l->size, l->size);
    if (l->rank == 0 && !host && node && strcmp(node, l->host))
        return par__log_error(PAR_ERR_UNSUPPORTED,
                              "rank 0 runs on %.64s, but the other ranks look for it on %s, the first of "
                              "SLURM_STEP_NODELIST=%.128s: export MASTER_ADDR=%.64s",
                              node, l->host, nodes, node);
    return PAR_OK;
}

// >>nodes ---------------------------------------------------------------------------------------------------
//
// Ranks that a launcher started on one or several machines reach each other by w->net (MPI or TCP). They
// compare their settings, find out which of them share a machine, and share an arena there:
//     all ranks      all-gather settings, then hosts
//     node leader    make the arena .... hand its descriptor to the others of its node
//     all ranks      all-gather results: all open, or none

// The settings that all ranks must have in common: most decide on algorithms, and all ranks write the trace.
#define PAR__COMMON_SETTINGS(X)                                                                              \
    X(PAR__COMMON_NODES, "PAR_NODE_RANKS (or node_ranks)")                                                   \
    X(PAR__COMMON_STAGE, "PAR_STAGE (or stage_bytes)")                                                       \
    X(PAR__COMMON_ALGO, "PAR_ALGO")                                                                          \
    X(PAR__COMMON_TUNE, "PAR_TUNE")                                                                          \
    X(PAR__COMMON_GEMM, "PAR_GEMM")                                                                          \
    X(PAR__COMMON_ELASTIC, "par_desc.elastic")                                                               \
    X(PAR__COMMON_TRACE, "PAR_TRACE (or trace)")
enum {
#define PAR__X(name, text) name,
    PAR__COMMON_SETTINGS(PAR__X)
#undef PAR__X
        PAR__COMMON_COUNT
};
typedef struct par__common_settings { // gathered from all ranks before anything else
    int32_t result;                   // not PAR_OK: this rank cannot open, for this reason
    char why[252];
    uint64_t hash[PAR__COMMON_COUNT];
    char value[PAR__COMMON_COUNT][56]; // shortened, for error texts
} par__common_settings;

static const char *const par__common_names[] = {
#define PAR__X(name, text) text,
    PAR__COMMON_SETTINGS(PAR__X)
#undef PAR__X
};
static void par__set_common(par__common_settings *t, int which, const char *text, uint64_t hash) {
    t->hash[which] = hash;
    snprintf(t->value[which], sizeof t->value[which], "%s", text && *text ? text : "not set");
}
static par__common_settings par__own_common_settings(const par__world *w, const par__open_request *s) {
    const uint64_t basis = 0xcbf29ce484222325u;
    const char *tune = par__setting_text("PAR_TUNE"), *gemm = par__setting_text("PAR_GEMM");
    char text[56];
    par__common_settings t;
    memset(&t, 0, sizeof t);
    t.result = (int32_t)s->result;
    snprintf(t.why, sizeof t.why, "%.*s", (int)sizeof t.why - 1, s->why);
    snprintf(text, sizeof text, "%d", s->desc.node_ranks);
    par__set_common(&t, PAR__COMMON_NODES, s->desc.node_ranks ? text : NULL, (uint64_t)s->desc.node_ranks);
    snprintf(text, sizeof text, "%zu", w->stage_bytes);
    par__set_common(&t, PAR__COMMON_STAGE, text, w->stage_bytes);
    uint64_t hash = basis;
    for (int k = 0; k < PAR_KIND_COUNT; k++) {
        const size_t forced = (size_t)w->forced[k];
        hash = par__hash_sizes(&forced, 1, hash);
    }
    par__set_common(&t, PAR__COMMON_ALGO, par__setting_text("PAR_ALGO"), hash);
    if (tune) // the end of its name, and a hash of its content
        snprintf(text, sizeof text, "%s (%zu rows, content %08x)",
                 tune + (strlen(tune) > 20 ? strlen(tune) - 20 : 0), w->tune_row_count,
                 (unsigned)par__tune_rows_hash(w));
    par__set_common(&t, PAR__COMMON_TUNE, tune ? text : NULL, par__tune_rows_hash(w));
    const double word = par__setting_number("PAR_GEMM");
    par__set_common(&t, PAR__COMMON_GEMM, gemm, (uint64_t)(word + 1));
    par__set_common(&t, PAR__COMMON_ELASTIC, w->elastic ? "1" : NULL, (uint64_t)w->elastic);
    par__set_common(&t, PAR__COMMON_TRACE, w->trace_path, par__hash_text(w->trace_path, basis));
    return t;
}
static par_result par__compare_common_settings(const par__world *w, const par__open_request *s,
                                               par__common_settings *all) {
    if (s->result) return par__open_rejected(s);
    for (int r = 0; r < w->size; r++) {
        all[r].why[sizeof all[r].why - 1] = 0;
        if ((unsigned)all[r].result < PAR_RESULT_COUNT && all[r].result == PAR_OK) continue;
        par__sanitize(all[r].why, "");
        const int known = (unsigned)all[r].result < PAR_RESULT_COUNT;
        return par__log_error(known ? (par_result)all[r].result : PAR_ERR_ARGUMENT,
                              "rank %d ends because of rank %d: %s", w->rank, r, all[r].why);
    }
    for (int r = 1; r < w->size; r++)
        for (int i = 0; i < PAR__COMMON_COUNT; i++) {
            if (all[r].hash[i] == all[0].hash[i]) continue;
            char *one = all[r].value[i], *other = all[0].value[i];
            one[sizeof all[r].value[i] - 1] = other[sizeof all[0].value[i] - 1] = 0;
            par__sanitize(one, "");
            par__sanitize(other, "");
            return par__log_error(PAR_ERR_ARGUMENT,
                                  "%s differs between ranks: %s on rank %d, %s on rank 0; give "
                                  "all ranks the same",
                                  par__common_names[i], one, r, other);
        }
    return PAR_OK;
}
// Check that every rank's options are valid and that all ranks have the same settings. Collective.
static par_result par__check_common_settings(par__world *w, const par__open_request *s) {
    par__common_settings mine = par__own_common_settings(w, s),
                         *all = (par__common_settings *)PAR_MALLOC(sizeof mine * (size_t)w->size);
    if (!all) return par__log_error(PAR_ERR_MEMORY, "out of memory for %d ranks", w->size);
    uint64_t *brief = (uint64_t *)all;
    const uint64_t own = par__hash_sizes((const size_t *)mine.hash, PAR__COMMON_COUNT, (uint64_t)mine.result);
    par_result r = w->net->all_gather(w, &own, sizeof own, brief);
    int differ = mine.result != PAR_OK;
    for (int i = 0; i < w->size && !r; i++) differ |= brief[i] != own;
    if (!r && differ) r = w->net->all_gather(w, &mine, sizeof mine, all); // of all ranks, or of none
    if (!r && differ) r = par__compare_common_settings(w, s, all);
    PAR_FREE(all);
    return r;
}

static int par__send_fd(int to, int fd) {
    char byte = 0, control[CMSG_SPACE(sizeof(int))];
    struct iovec io;
    struct msghdr m;
    memset(&m, 0, sizeof m);
    memset(control, 0, sizeof control);
    io.iov_base = &byte;
    io.iov_len = 1;
    m.msg_iov = &io;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}
static int par__recv_fd(int from) { // the descriptor; or -1, with errno
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec io;
    struct msghdr m;
    int fd = -1;
    memset(&m, 0, sizeof m);
    io.iov_base = &byte;
    io.iov_len = 1;
    m.msg_iov = &io;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = CMSG_LEN(sizeof(int));
    const ssize_t n = recvmsg(from, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n <= 0) return errno = n ? errno : ECONNRESET, -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(sizeof(int)))
        return errno = m.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO, -1; // truncated: no free descriptor
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return par__safe_fd(fd);
}

typedef struct par__rank_info {   // gathered from all ranks
    uint64_t host[2];             // hashes of its host: the same on ranks that can share memory
    uint64_t board, rings, bytes; // of a node leader: offsets in its arena, and its size
    uint64_t key;                 // of a node leader: par__arena.key, which only the ranks of this run know
    char socket[32];              // of a node leader: abstract name of the socket that hands out its arena
    uint64_t cpus;                // a hash of the processors that it may run on
    uint32_t uid, reserved;
} par__rank_info;

// The random number of this boot of the kernel. Returns 0 if the system does not tell it.
static int par__boot_id(char *text, size_t bytes) {
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    const int found = f && fgets(text, (int)bytes, f);
    if (f) fclose(f);
    if (found) text[strcspn(text, "\n")] = 0;
    return found && *text;
}

void par__process_table(char *text, size_t bytes) {
    char boot[64] = "", at[24] = "";
    if (!par__boot_id(boot, sizeof boot)) gethostname(boot, sizeof boot - 1);
    if (readlink("/proc/self/ns/pid", at, sizeof at - 1) < 0) at[0] = 0;
    snprintf(text, bytes, "%s %s", boot, at);
}
uint64_t par__process_start(int pid) {
    char path[32], line[1024];
    unsigned long long start = 0;
    char state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return !kill(pid, 0) || errno == EPERM; // /proc is not there, or hides it; or no descriptor
    line[fread(line, 1, sizeof line - 1, f)] = 0;
    fclose(f);
    const char *rest = strrchr(line, ')'); // the program's name may have any characters
    const int read = rest ? sscanf(rest,
                                   ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                                   "%*d %llu",
                                   &state, &start)
                          : 0;
    return read == 2 && state != 'Z' && state != 'X' ? (uint64_t)start : 0;
}
// Ranks can share memory if they run under one kernel, in one pid namespace and one network namespace.
static void par__host_id(uint64_t *hash) {
    static const char *const spaces[] = {"/proc/self/ns/pid", "/proc/self/ns/net"};
    char boot[64] = "", at[2][24] = {"", ""};
    if (!par__boot_id(boot, sizeof boot)) gethostname(boot, sizeof boot - 1);
    for (int i = 0; i < 2; i++)
        if (readlink(spaces[i], at[i], sizeof at[i] - 1) < 0) at[i][0] = 0;
    hash[0] = par__hash_text(boot, par__hash_text(at[0], par__hash_text(at[1], 0xcbf29ce484222325u)));
    hash[1] = par__hash_text(boot, par__hash_text(at[0], par__hash_text(at[1], ~hash[0])));
}

// The node leader hands the arena's descriptor to the other ranks of its node. It uses a socket in the
// abstract namespace, which leaves no file behind:
//     node leader   listen .... accept, answer those who send the key ....  until all ranks have it
//     rank r        connect (again, until it succeeds), send the key ....  receive the descriptor
// Every user can connect to the socket. The kernel tells each end the other's user, and the key was gathered
// before. A process of another user is disconnected at once; one that sends nothing, or not the key, delays
// nobody.
enum { PAR__PENDING_FD_MAX = 64 };

static int par__local_socket(void) {
    return par__safe_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}
static socklen_t par__local_address(const par__rank_info *leader, struct sockaddr_un *a) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    memcpy(a->sun_path + 1, leader->socket, strnlen(leader->socket, sizeof leader->socket));
    return (socklen_t)sizeof *a;
}
// Accept the connections that wait at s, into p. Returns 0 or errno.
static int par__accept_local(int s, struct pollfd *p, int *pending) {
    for (int i = 0; i < PAR__PENDING_FD_MAX; i++) { // no more at a time: another user may connect without end
        const int fd = par__safe_fd(accept(s, NULL, NULL));
        int count = *pending;
        if (fd < 0)
            return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ? errno : 0;
        if (par__peer_uid(fd) != (uint32_t)geteuid()) {
            close(fd);
            continue;
        }
        if (count == PAR__PENDING_FD_MAX) {
            close(p[0].fd);
            memmove(p, p + 1, (size_t)--count * sizeof *p);
        }
        p[count].fd = fd;
        p[count].events = POLLIN;
        p[count].revents = 0;
        *pending = count + 1;
    }
    return 0;
}
static par_result par__send_arena_fd(par__world *w, int s, uint64_t key, int others) {
    struct pollfd p[PAR__PENDING_FD_MAX + 1]; // the last one: s
    const double until = par__now() + w->timeout_s;
    int count = 0, given = 0, e = 0;
    while (given < others && !e) {
        const double left = until - par__now();
        p[count].fd = s;
        p[count].events = POLLIN;
        p[count].revents = 0;
        if (left <= 0) e = ETIMEDOUT;
        poll(p, (nfds_t)count + 1, left > 0 ? (int)PAR__MIN(left * 1000 + 1, 1000.0) : 0);
        for (int i = count; i-- > 0;) {
            uint64_t shown = ~key;
            if (!p[i].revents) continue;
            if (recv(p[i].fd, &shown, sizeof shown, MSG_DONTWAIT) == (ssize_t)sizeof shown && shown == key)
                given += par__send_fd(p[i].fd, w->fd);
            close(p[i].fd);
            memmove(p + i, p + i + 1, (size_t)(--count - i) * sizeof *p);
        }
        const int full = par__accept_local(s, p, &count);
        if (full) e = full;
    }
    while (count) close(p[--count].fd);
    if (given == others) return PAR_OK;
    if (e == ETIMEDOUT)
        return par__log_error(
            PAR_ERR_TIMEOUT,
            "rank %d waited %g s for %d more ranks of this machine to take its shared memory", w->rank,
            w->timeout_s, others - given);
    return par__log_error(PAR_ERR_SYSTEM,
                          "rank %d cannot pass shared memory to the ranks of this machine: %s", w->rank,
                          par__strerror(e).text);
}
// Try once to get the arena's descriptor. Returns it, or -1 with errno.
static int par__request_fd(int s, const par__rank_info *leader, double until) {
    struct sockaddr_un a;
    const socklen_t bytes = par__local_address(leader, &a);
    if (connect(s, (struct sockaddr *)&a, bytes)) return -1;
    if (par__peer_uid(s) != (uint32_t)geteuid()) return errno = EPERM, -1;
    if (send(s, &leader->key, sizeof leader->key, MSG_NOSIGNAL) < 0) return -1;
    while (!par__tcp_poll_fd(s, POLLIN, until))
        if (par__now() > until) return errno = ETIMEDOUT, -1;
    return par__recv_fd(s);
}
static par_result par__receive_arena(par__world *w, int *s, const par__rank_info *leader, int rank,
                                     int locals) {
    const double until = par__now() + w->timeout_s;
    int fd = -1, e = 0;
    for (useconds_t pause = 1000; *s >= 0 && (fd = par__request_fd(*s, leader, until)) < 0;
         pause = PAR__MIN(2 * pause, 50000u)) {
        e = errno; // queue full, or disconnected: try again. Refused: the leader has gone, which listened
        if (e == EPERM || e == EMFILE || e == ECONNREFUSED || par__now() > until) break;
        usleep(pause);
        close(*s);
        *s = par__local_socket();
        if (*s < 0) e = errno;
    }
    if (fd < 0)
        return par__log_error(PAR_ERR_SYSTEM,
                              "rank %d cannot get the shared memory of this machine from rank %d: %s",
                              w->rank, rank,
                              e == EPERM          ? "another user has its socket"
                              : e == ECONNREFUSED ? "it has died, or could not hand it out"
                                                  : par__strerror(e).text);
    const par_result r = par__arena_adopt(w, fd, (size_t)leader->bytes, locals, leader->key);
    if (r && w->fd != fd) close(fd);
    return r;
}

static int par__same_host(const par__rank_info *a, const par__rank_info *b) {
    return a->host[0] == b->host[0] && a->host[1] == b->host[1];
}
// Gather whether all ranks are well. Returns this rank's error, or else the first error of another rank.
static par_result par__gather_results(par__world *w, par_result result, int32_t *all) {
    const int32_t mine = (int32_t)result;
    const par_result r = w->net->all_gather(w, &mine, sizeof mine, all);
    if (result || r) return result ? result : r;
    for (int i = 0; i < w->size; i++)
        if (all[i])
            return par__log_error((unsigned)all[i] < PAR_RESULT_COUNT ? (par_result)all[i] : PAR_ERR_SYSTEM,
                                  "rank %d could not open (%s), so rank %d does not open", i,
                                  par_result_text((par_result)all[i]), w->rank);
    return PAR_OK;
}

// Find every rank's node and its index in that node's arena. Returns the rank of this node's leader.
static int par__find_nodes(par__world *w, const par__rank_info *all, int node_ranks, int *node_of, int *arena,
                           int *nodes, int *locals, int *largest) {
    int leader = w->rank, *sizes = arena; // at first
    *nodes = *locals = *largest = 0;
    memset(sizes, 0, sizeof(int) * (size_t)w->size);
    for (int r = 0; r < w->size; r++) {
        int q = 0;
        while (!par__same_host(&all[q], &all[r]) || (node_ranks && q / node_ranks != r / node_ranks)) q++;
        node_of[r] = q == r ? (*nodes)++ : node_of[q];
        if (r == w->rank) leader = q;
        sizes[node_of[r]]++;
        *largest = PAR__MAX(*largest, sizes[node_of[r]]);
    }
    for (int r = 0; r < w->size; r++) {
        arena[r] = node_of[r] == node_of[w->rank] ? (*locals)++ : -1;
        if (r == w->rank) w->arena_rank = arena[r];
    }
    return leader;
}

// Count the ranks that share this one's processors, those of this machine that may run on the same ones, and
// bind this rank to its share.
static void par__share_cpus(par__world *w, const par__rank_info *all) {
    int index = 0, alike = 1;
    w->node_ranks = 0;
    for (int r = 0; r < w->size; r++) {
        const int same = all[r].cpus == all[w->rank].cpus;
        if (!par__same_host(&all[r], &all[w->rank])) continue;
        alike &= same;
        index += same && r < w->rank;
        w->node_ranks += same;
    }
    w->spin_limit = par__spin_limit(w->node_ranks);
    par__machine *machine = par__plan_binding(w, index, w->node_ranks, alike);
    par__bind_rank(w, machine, index, w->node_ranks);
    PAR_FREE(machine);
}
// Check that the ranks of this machine belong to one user.
static par_result par__compare_users(const par__world *w, const par__rank_info *all) {
    const par__rank_info *mine = &all[w->rank];
    for (int i = 0; i < w->size; i++)
        if (all[i].uid != mine->uid && par__same_host(&all[i], mine))
            return par__log_error(
                PAR_ERR_ARGUMENT,
                "ranks %d and %d run on one machine as two users, %u and %u, and cannot share memory: "
                "start all as one user",
                w->rank, i, mine->uid, all[i].uid);
    return PAR_OK;
}
// On a node leader: make the node's arena; if the node has other ranks, listen for them at socket s.
static par_result par__create_node_memory(par__world *w, const par_desc *d, int locals, int nodes,
                                          par__rank_info *mine, int s) {
    struct sockaddr_un a;
    const par_result r = par__arena_create(w, d->arena_bytes, locals, locals);
    if (r) return r;
    mine->rings = par__alloc_rings(w, locals, nodes);
    mine->board = par__alloc_board(w, locals, nodes, mine->rings);
    mine->bytes = w->arena_bytes;
    mine->key = w->arena->key;
    if (!mine->board || !mine->rings)
        return par__log_error(PAR_ERR_MEMORY, "no shared memory for %d ranks", locals);
    snprintf(mine->socket, sizeof mine->socket, "par.%d.%016llx", (int)getpid(),
             (unsigned long long)par__ticks());
    const socklen_t bytes = par__local_address(mine, &a);
    if (locals > 1 && (bind(s, (struct sockaddr *)&a, bytes) || listen(s, locals + PAR__PENDING_FD_MAX)))
        return par__log_error(PAR_ERR_SYSTEM, "rank %d cannot listen at a local socket: %s", w->rank,
                              strerror(errno));
    return PAR_OK;
}

static par_result par__join_nodes(par__world *w, const par_desc *d, par__rank_info *all, int *ints,
                                  par_comm **out) {
    par__rank_info mine;
    int *world = ints, *node_of = ints + w->size, *arena = ints + 2 * w->size, nodes, locals, largest, s = -1;
    memset(&mine, 0, sizeof mine);
    par__host_id(mine.host);
    mine.uid = (uint32_t)geteuid();
    par__cpu_set cpus;
    par__get_cpus(0, &cpus);
    mine.cpus = par__hash_sizes((const size_t *)cpus.word, PAR__CPU_MAX / 64, 0xcbf29ce484222325u);
    par_result r = w->rank ? PAR_OK : par__check_trace_path(w->trace_path);
    r = par__gather_results(w, r, (int32_t *)all);
    if (!r) r = w->net->all_gather(w, &mine, sizeof mine, all);
    if (!r) r = par__compare_users(w, all);
    if (r) return r;
    for (int i = 0; i < w->size; i++) world[i] = i;
    const int leader = par__find_nodes(w, all, d->node_ranks, node_of, arena, &nodes, &locals, &largest);
    par__fit_stages(w, d, largest);
    par__share_cpus(w, all);
    if (locals > 1 && (s = par__local_socket()) < 0)
        r = par__log_error(PAR_ERR_SYSTEM, "rank %d cannot make a local socket: %s", w->rank,
                           par__strerror(errno).text);
    if (!r && w->rank == leader) r = par__create_node_memory(w, d, locals, nodes, &mine, s);
    r = par__gather_results(w, r, (int32_t *)all);
    if (!r) r = w->net->all_gather(w, &mine, sizeof mine, all);
    if (!r && w->rank != leader) r = par__receive_arena(w, &s, &all[leader], leader, locals);
    if (!r && w->rank == leader && locals > 1) r = par__send_arena_fd(w, s, mine.key, locals - 1);
    if (s >= 0) close(s);
    par_comm *c = r ? NULL : par__make_comm(w, 0, w->rank, w->size, world, node_of, arena);
    if (!r && !c) r = par__log_error(PAR_ERR_MEMORY, "out of memory");
    if (c && !par__comm_offsets_valid(c, all[leader].board, all[leader].rings)) {
        r = PAR_ERR_SYSTEM;
        PAR_LOG(w->error);
        par__free_comm(c);
        c = NULL;
    }
    if (c) {
        w->arena->boot_rings = all[leader].rings;
        w->arena->ranks[w->arena_rank].boot_board = all[leader].board;
        par__map_comm(c, all[leader].board, all[leader].rings);
        par__register_rank(w);
    }
    // After this every rank's control block is filled in.
    const par_result everybody = par__gather_results(w, r, (int32_t *)all);
    if (everybody && c) {
        w->comms = NULL;
        par__free_comm(c);
        c = NULL;
    }
    *out = c;
    return everybody;
}

// Open a world whose ranks reach each other by w->net. On failure w is freed.
static par_result par__open_net(par__world *w, const par__open_request *s, par_comm **out) {
    par__rank_info *all = (par__rank_info *)PAR_MALLOC(sizeof *all * (size_t)w->size);
    int *ints = (int *)PAR_MALLOC(sizeof *ints * 3 * (size_t)w->size);
    par_result r =
        !all || !ints ? par__log_error(PAR_ERR_MEMORY, "out of memory") : par__check_common_settings(w, s);
    if (!r) r = par__join_nodes(w, &s->desc, all, ints, out);
    PAR_FREE(all);
    PAR_FREE(ints);
    if (r) {
        w->net->close(w, 1);
        par__free_world(w, 1);
        return r;
    }
    par__probe_cma(*out);
    return PAR_OK;
}

// >>mpi -----------------------------------------------------------------------------------------------------
//
// Ranks of an MPI program, or of mpiexec and srun where the kit is built with PAR_MPI.

#if defined(PAR_MPI)
// Report that a launcher started several processes, but this MPI knows only this one.
static par_result par__wrong_launcher(const par__launch *l) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    if (l->problem[0]) return par__log_error(PAR_ERR_ARGUMENT, "%s", l->problem);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n,")] = 0;
    for (char *tab = version; (tab = strchr(tab, '\t')) != NULL;) *tab = ' ';
    const struct par__launcher *who = &par__launchers[l->launcher];
    return par__log_error(
        PAR_ERR_MPI,
        "%s started %d processes (%s=%d, %s=%d), but MPI_COMM_WORLD has this one alone (%s): start "
        "the program by the mpiexec of its own MPI, or by srun --mpi=TYPE with a type that this MPI "
        "knows (srun --mpi=list), or build it without PAR_MPI, to meet over TCP",
        who->name, l->size, who->rank, l->rank, who->size, l->size, version);
}
static par_result par__open_mpi_world(par__open_request *s, MPI_Comm mpi, par_comm **comm) {
    int rank, size, provided, known = 0;
    void *most = NULL;
    if (s->desc.elastic)
        return par__log_error(PAR_ERR_UNSUPPORTED,
                              "an elastic world (par_desc.elastic) cannot be opened over MPI, which ends "
                              "all ranks where one dies: build without PAR_MPI, to meet over TCP");
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &size);
    par__world *w = par__new_world(&s->desc, "mpi", rank, size);
    int bad = !w;
    PMPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, mpi); // not one that par_mpi.h would run
    if (bad && w) par__free_world(w, 0);
    if (bad) return PAR_ERR_MEMORY;
    MPI_Comm_dup(mpi, &w->mpi);
    MPI_Comm_set_errhandler(w->mpi, MPI_ERRORS_RETURN);
    if (PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &known) == MPI_SUCCESS && known)
        w->tag_count = (uint32_t) * (const int *)most + 1; // the same on all ranks, at least 32768
    w->net = &par__net_mpi;
    par__read_algorithm_settings(w, s);
    const par_result r = par__open_net(w, s, comm);
    if (r || !w->progress_wanted) return r;
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE) {
        par_close(*comm);
        *comm = NULL;
        return par__log_error(PAR_ERR_UNSUPPORTED,
                              "a progress thread needs MPI_Init_thread with MPI_THREAD_MULTIPLE");
    }
    return par__start_progress(w);
}
par_result par_open_mpi(const par_desc *desc, MPI_Comm mpi, par_comm **comm) {
    par__open_request s;
    par__launch l;
    int size;
    *comm = NULL;
    par__find_launch(&l);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1 && l.size > 1 && l.launcher > PAR__TORCHRUN) return par__wrong_launcher(&l);
    par__check_desc(desc, &s);
    return par__open_mpi_world(&s, mpi, comm);
}
par_result par_open_mpi_f(const par_desc *desc, MPI_Fint mpi, par_comm **comm) {
    return par_open_mpi(desc, MPI_Comm_f2c(mpi), comm);
}

static par_result par__open_launched(const par_desc *given, par__open_request *s, const par__launch *l,
                                     par_comm **comm) {
    const char *who = l->launcher < 0 ? "MPI" : par__launchers[l->launcher].name;
    int initialized, size, provided;
    par_result r;
    MPI_Initialized(&initialized);
    if (!initialized)
        MPI_Init_thread(NULL, NULL, s->desc.progress ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1 && (l->size > 1 || l->problem[0])) {
        r = par__wrong_launcher(l);
    } else {
        par__check_count(given, s, who, size);
        r = par__open_mpi_world(s, MPI_COMM_WORLD, comm);
    }
    if (!initialized && r) MPI_Finalize();
    if (!r) (*comm)->world->finalize_mpi = !initialized;
    return r;
}
#endif

// >>rendezvous ----------------------------------------------------------------------------------------------
//
// Rank 0 listens at an address that all ranks know. The ranks of a host meet at a Unix socket, and the one
// that has bound it leads them: it alone connects to rank 0, speaks for the others, and passes on what they
// are told. Who does not get on there (it is another user's, say) goes to rank 0 itself. When all have come
// rank 0 plans the tree of >>tcp, and keeps these connections, one for each host, until all ranks have made
// those of the tree.
//     rank 0      ........ WHERE  ....  wait for all .... ASSIGN  .... wait for all .... GO
//     leader      connect, JOIN   ....  pass on JOIN, ASSIGN ....... READY (its ranks) ..  pass on GO
//     rank r      connect to its leader ... WHERE, JOIN .... ASSIGN, connect to its parent, READY .... GO
// Rank 0 alone judges who has which rank: the first process that says JOIN, unless it has gone (DROP) when
// another one comes while ranks are missing. A process whose leader has gone says JOIN again by another way.
// REFUSE ends one rank, FAIL all. Every hop proves itself by PAR_SECRET's key; the tree's connections use the
// key of this run, whose seed comes with ASSIGN.

// ---- where ranks listen

// Listen at one address. If its port is 0, the system chooses one and *at gets it. Returns 0 or errno.
static int par__tcp_listen(par__tcp *t, struct sockaddr_storage *at, int backlog) {
    const int one = 1, fd = par__safe_fd(socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t bytes = sizeof *at;
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (at->ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)at, par__address_bytes(at)) || listen(fd, backlog) ||
        getsockname(fd, (struct sockaddr *)at, &bytes)) {
        const int e = errno;
        return close(fd), e;
    }
    par__tcp_configure(fd);
    t->listeners[t->listener_count++] = fd;
    return 0;
}
// Listen at those of the found addresses that this host has, all at one port. Returns 0 or errno.
static int par__tcp_listen_all(par__tcp *t, const struct addrinfo *found, int backlog, in_port_t *port) {
    for (const struct addrinfo *a = found; a && t->listener_count < PAR__TCP_LISTENER_MAX; a = a->ai_next) {
        struct sockaddr_storage at;
        const struct addrinfo *same = found; // one address may be listed twice
        while (same != a &&
               (same->ai_addrlen != a->ai_addrlen || memcmp(same->ai_addr, a->ai_addr, a->ai_addrlen)))
            same = same->ai_next;
        if (same != a || (a->ai_family != AF_INET && a->ai_family != AF_INET6)) continue;
        memset(&at, 0, sizeof at);
        memcpy(&at, a->ai_addr, a->ai_addrlen);
        if (t->listener_count) *par__port_of(&at) = *port;
        const int e = par__tcp_listen(t, &at, backlog);
        if (e == EADDRNOTAVAIL || e == EAFNOSUPPORT) continue;
        if (e) return par__tcp_stop_listening(t), e;
        *port = *par__port_of(&at);
    }
    return 0;
}
// Does this host's name resolve to loopback addresses only, though it is not localhost? A host's own
// /etc/hosts may say so (Debian's has 127.0.1.1), while other hosts resolve the name to its real address.
static int par__tcp_loopback_only(const char *host, const struct addrinfo *found) {
    struct sockaddr_storage at;
    if (strstr(host, "localhost") || strspn(host, "0123456789.") == strlen(host) || strchr(host, ':'))
        return 0;
    for (; found; found = found->ai_next) {
        memset(&at, 0, sizeof at);
        memcpy(&at, found->ai_addr, found->ai_addrlen);
        if (!par__is_loopback(&at)) return 0;
    }
    return 1;
}
// Listen at t->host. If this host does not have that address, listen at every address of this host, and let
// *why say the reason. Returns 0 or errno; ETIMEDOUT: *why says what was waited for.
static int par__tcp_listen_host(par__tcp *t, const char *port, int backlog, double until, in_port_t *chosen,
                                const char **why) {
    struct addrinfo *found;
    *why = par__tcp_resolve(t->host, port, until, &found);
    int e = *why && errno == ETIMEDOUT ? ETIMEDOUT : 0;
    if (!*why && par__tcp_loopback_only(t->host, found)) *why = "here this name means a loopback address";
    if (!*why) e = par__tcp_listen_all(t, found, backlog, chosen);
    if (found) freeaddrinfo(found);
    if (!e && !t->listener_count) {
        if (!*why) *why = "this host does not have that address";
        const char *none = par__tcp_resolve(NULL, port, until, &found);
        if (!none) e = par__tcp_listen_all(t, found, backlog, chosen);
        if (found) freeaddrinfo(found);
        if (!e && !t->listener_count) e = EADDRNOTAVAIL;
    }
    return e;
}

// ---- records on the connections of the rendezvous

enum { PAR__ABSENT, PAR__HERE, PAR__GONE }; // par__rendezvous.here
enum {                                      // par__word.kind
    PAR__MEET_WHERE = 1,                    // down: this host's address, and rank 0's as this host reaches it
    PAR__MEET_JOIN,                         // up: a rank and where it listens
    PAR__MEET_REFUSE,                       // down: it may not join
    PAR__MEET_DROP,                         // up: it has gone
    PAR__MEET_ASSIGN,                       // down: its parent, and the seed of this run's key
    PAR__MEET_READY,                        // up: so many ranks have their edges
    PAR__MEET_FAIL,                         // down: nobody opens
    PAR__MEET_GO                            // down: all have their edges
};
static par__word par__new_word(int kind, int rank, const char *text) {
    par__word r;
    memset(&r, 0, sizeof r);
    r.kind = kind;
    r.rank = rank;
    snprintf(r.text, sizeof r.text, "%s", text);
    return r;
}
// The MAC of a block on a control connection while the world opens: by the connection's key, over the block's
// number, who sends it, its head and its content.
static void par__edge_mac(const par__edge *e, uint64_t number, int from, const void *head, size_t bytes,
                          const unsigned char *digest, unsigned char *proof) {
    const struct iovec parts[4] = {par__iovec(&number, sizeof number), par__iovec(&from, sizeof from),
                                   par__iovec(head, bytes), par__iovec(digest, digest ? PAR__MAC_BYTES : 0)};
    par__hmac(e->key, sizeof e->key, parts, 4, proof);
}
static void par__word_send(par__tcp *t, par__edge *e, par__word *r) {
    if (e->fd < 0) return;
    par__edge_mac(e, e->sent++, t->self.rank, r, offsetof(par__word, proof), NULL, r->proof);
    t->counts.words++;
    par__edge_say(e, r, sizeof *r, NULL, 0);
}
// 1: a record has come; 0: none yet; -1: none will, with errno.
static int par__word_read(par__edge *e, par__word *r) {
    unsigned char proof[PAR__MAC_BYTES];
    errno = ECONNRESET;
    const int got = par__edge_read(e, sizeof *r);
    if (got <= 0) return got;
    memcpy(r, &e->in.record, sizeof *r);
    e->have = 0;
    par__edge_mac(e, e->received++, e->rank, r, offsetof(par__word, proof), NULL, proof);
    if (!par__mac_equal(proof, r->proof)) return errno = EBADMSG, -1; // altered on its way
    r->text[sizeof r->text - 1] = 0;
    par__sanitize(r->text, "");
    return 1;
}
static void par__tcp_tell_down(par__tcp *t, par__word *r) {
    for (int i = 0; i < t->rendezvous->down_count; i++) par__word_send(t, &t->rendezvous->down[i], r);
}
// Nobody opens.
static par_result par__tcp_fail(par__tcp *t, par_result result, const char *text) {
    par__word r = par__new_word(PAR__MEET_FAIL, t->self.rank, text);
    r.count = (int32_t)result;
    par__tcp_tell_down(t, &r);
    t->rendezvous->result = result;
    snprintf(t->rendezvous->text, sizeof t->rendezvous->text, "%s", text);
    return result;
}

// ---- rank 0 accepts the leaders of hosts, and a leader the ranks of its host

// Rank 0: warn of the first rank that runs another program, or has other arguments.
static void par__tcp_compare_programs(par__tcp *t, const par__word *r, const char *place) {
    if (r->program != t->self.program && !t->self.named && !t->programs_differ++)
        par__log_error(PAR_OK,
                       "rank %d runs at %s, but rank 0 at %s: is that one run? PAR_JOB tells runs apart",
                       (int)r->rank, place, t->self.place);
}
// Rank 0: log what was wrong with a claim to a rank, once. Without names, and before all have met, ranks that
// have joined may be those of the other run (`mixed`).
static void par__tcp_complain(par__tcp *t, int rank, int fd, const char *text, int mixed) {
    char host[64] = "", port[16] = "";
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    if (!(t->states[rank] & PAR__TCP_COMPLAINED)) {
        if (!getpeername(fd, (struct sockaddr *)&at, &bytes) && at.ss_family != AF_UNIX)
            getnameinfo((struct sockaddr *)&at, bytes, host, sizeof host, port, sizeof port,
                        NI_NUMERICHOST | NI_NUMERICSERV);
        par__log_error(PAR_OK, "rank 0: a process at %s port %s: %s", *host ? host : "this host",
                       *port ? port : "-", text);
    }
    t->states[rank] |= PAR__TCP_COMPLAINED;
    if (!t->rendezvous || t->self.named || !mixed) return;
    t->two_runs = 1;
    snprintf(t->why, sizeof t->why, "%s", text);
}
static void par__tcp_say_where(par__tcp *t, par__edge *e) {
    par__word r = par__new_word(PAR__MEET_WHERE, t->self.rank, "");
    r.address = t->rendezvous->own;
    r.zero = t->rendezvous->zero;
    par__word_send(t, e, &r);
}
// Who has proved at the door that it is a rank of this run joins. The connection may speak for other ranks.
static par__edge *par__tcp_add_down(par__tcp *t, par__handshake *p) {
    par__rendezvous *m = t->rendezvous;
    if (m->down_count == m->down_capacity) {
        const int more = 2 * m->down_capacity + 8;
        par__edge *down = (par__edge *)PAR_REALLOC(m->down, sizeof *down * (size_t)more);
        if (!down) return NULL;
        m->down = down;
        m->down_capacity = more;
    }
    if (!par__handshake_end(&t->door, p, PAR_OK, "")) return NULL;
    par__edge *e = &m->down[m->down_count++];
    memset(e, 0, sizeof *e);
    e->fd = p->fd;
    e->rank = p->hello[0].rank;
    e->local = p->local;
    p->fd = -1;
    par__handshake_proof(&t->door, p, 'l', NULL, 0, e->key);
    t->counts.handshakes++;
    if (m->where_known && p->local) par__tcp_say_where(t, e);
    return e;
}
static void par__tcp_on_join_door(par__tcp *t, par__handshake *p);
// A leader accepts ranks of its host. Who is refused goes to rank 0 itself, which alone judges.
static void par__tcp_on_host_door(par__tcp *t, par__handshake *p) {
    int taken = 0;
    if (p->hello[0].purpose == PAR__TO_JOIN) {
        par__tcp_on_join_door(t, p);
        return;
    }
    if (p->state != PAR__HANDSHAKE_DONE || !t->rendezvous) return;
    for (int i = 0; i < t->rendezvous->down_count; i++)
        taken |= t->rendezvous->down[i].fd >= 0 && t->rendezvous->down[i].rank == p->hello[0].rank;
    if (taken)
        par__handshake_end(&t->door, p, PAR_ERR_ARGUMENT, "it has joined");
    else
        par__tcp_add_down(t, p);
}
static void par__tcp_on_root_door(par__tcp *t, par__handshake *p) {
    const int rank = p->hello[0].rank, proved = p->state == PAR__HANDSHAKE_DONE;
    char text[sizeof p->why], place[PAR__PLACE_BYTES];
    if (p->hello[0].purpose == PAR__TO_JOIN) {
        par__tcp_on_join_door(t, p);
        return;
    }
    if (proved && t->rendezvous) {
        par__tcp_add_down(t, p);
        return;
    }
    if (!proved && !p->permanent) return;
    snprintf(text, sizeof text, "%s", p->why);
    par__place_text(&p->hello[0], place);
    if (proved) snprintf(text, sizeof text, PAR__SAME_RANK, rank, t->places[rank], place);
    par__tcp_complain(t, rank < 0 || rank >= t->self.size ? 0 : rank, p->fd, text,
                      !rank && !t->self.secret && p->hello[0].size == t->self.size);
    par__handshake_end(&t->door, p, PAR_ERR_ARGUMENT, text);
}
// Rank 0: a rank says where it listens. It has its place unless another process has it.
static void par__tcp_on_join(par__tcp *t, int by, const par__word *r) {
    par__rendezvous *m = t->rendezvous;
    char text[440], place[PAR__PLACE_BYTES];
    snprintf(place, sizeof place, "%.*s", (int)sizeof place - 1, r->text);
    if (m->here[r->rank] == PAR__HERE && strcmp(t->places[r->rank], place)) {
        snprintf(text, sizeof text, PAR__SAME_RANK, (int)r->rank, t->places[r->rank], place);
        par__word no = par__new_word(PAR__MEET_REFUSE, r->rank, text);
        par__word_send(t, &m->down[by], &no);
        par__tcp_complain(t, r->rank, m->down[by].fd, text, 1);
        return;
    }
    par__tcp_compare_programs(t, r, place);
    memcpy(t->places[r->rank], place, sizeof place);
    m->here[r->rank] = PAR__HERE;
    m->via[r->rank] = by;
    m->host[r->rank] = r->host;
    t->book[r->rank] = r->address;
}
static void par__tcp_on_down_end(par__tcp *t, int by) {
    par__rendezvous *m = t->rendezvous;
    par__edge *e = &m->down[by];
    par__word gone = par__new_word(PAR__MEET_DROP, e->rank, "");
    for (int r = 1; m->here && r < t->self.size; r++)
        if (m->via[r] == by && m->here[r] == PAR__HERE) m->here[r] = PAR__GONE;
    if (!m->here && e->joined) par__word_send(t, &m->up, &gone);
    e->joined = 0;
    par__edge_close(e);
}
// What one of those that have joined says: a rank of this host of itself; to rank 0, of those that it leads.
static void par__tcp_hear_down(par__tcp *t, int by) {
    par__rendezvous *m = t->rendezvous;
    par__edge *e = &m->down[by];
    par__word r;
    int got;
    while (e->fd >= 0 && (got = par__word_read(e, &r)) != 0) {
        const int known = r.rank > 0 && r.rank < t->self.size, own = r.rank == e->rank;
        if (got > 0 && r.kind == PAR__MEET_READY) {
            m->ready += m->here ? r.count : 1;
        } else if (got > 0 && r.kind == PAR__MEET_JOIN && m->here && known && !m->assigned) {
            par__tcp_on_join(t, by, &r);
        } else if (got > 0 && r.kind == PAR__MEET_DROP && m->here && known) {
            if (m->via[r.rank] == by && m->here[r.rank] == PAR__HERE) m->here[r.rank] = PAR__GONE;
        } else if (got > 0 && r.kind == PAR__MEET_JOIN && !m->here && own && m->up.fd >= 0) {
            e->joined = 1;
            par__word_send(t, &m->up, &r);
        } else {
            par__tcp_on_down_end(t, by);
        }
    }
}
// Rank 0: returns how many ranks are missing, and lists them in `text`: "1, 2, 5 and 9 others".
static int par__tcp_missing_ranks(const par__world *w, char *text, size_t bytes) {
    int shown = 0, missing = 0;
    size_t at = 0;
    text[0] = 0;
    for (int r = 1; r < w->size; r++) {
        if (w->tcp->rendezvous->here[r] != PAR__ABSENT || missing++ >= 8) continue;
        at += (size_t)snprintf(text + at, bytes - at, "%s%d", shown++ ? ", " : "", r);
    }
    if (missing > shown) snprintf(text + at, bytes - at, " and %d others", missing - shown);
    return missing;
}
static int par__tcp_report_due(double *said) { // is it time for another log line about a wait?
    const double now = par__now();
    if (now - *said <= 10) return 0;
    *said = now;
    return 1;
}

// ---- the tree

// The parent of the i-th of some ranks in a tree of radix PAR__TCP_RADIX: i without its lowest digit.
static int par__tcp_parent_index(int i) {
    int unit = 1;
    while (i / unit % PAR__TCP_RADIX == 0) unit *= PAR__TCP_RADIX;
    return i - i / unit % PAR__TCP_RADIX * unit;
}
// Rank 0: plan the tree: those of one host follow each other.
static int par__tcp_plan(par__tcp *t, int *children) { // 0: no memory
    const uint64_t *host = t->rendezvous->host;
    const int n = t->self.size;
    int groups = 0, size = 1;
    while (size < 2 * n) size *= 2;
    int *slot =
        (int *)par__zalloc(sizeof(int) * ((size_t)size + 4 * (size_t)n + 1)); // a rank of each host, + 1
    if (!slot) return 0;
    int *group = slot + size, *index = group + n, *member = index + n, *start = member + n;
    for (int r = 0; r < n; r++) {
        int i = (int)(host[r] & (unsigned)(size - 1));
        while (slot[i] && host[slot[i] - 1] != host[r]) i = (i + 1) & (size - 1);
        group[r] = slot[i] ? group[slot[i] - 1] : groups++;
        if (!slot[i]) slot[i] = r + 1;
        index[r] = start[group[r] + 1]++;
    }
    for (int g = 0; g < groups; g++) start[g + 1] += start[g];
    for (int r = 0; r < n; r++) member[start[group[r]] + index[r]] = r;
    for (int r = 1; r < n; r++) {
        const int parent = index[r] ? member[start[group[r]] + par__tcp_parent_index(index[r])]
                                    : member[start[par__tcp_parent_index(group[r])]];
        t->book[r].parent = parent;
        children[parent]++;
    }
    PAR_FREE(slot);
    return 1;
}
// This rank's place in the tree, and the key of this run.
static par_result par__tcp_take_place(par__tcp *t, const par__word *r) {
    par__rendezvous *m = t->rendezvous;
    const int up = t->self.rank != 0;
    unsigned char session[PAR__MAC_BYTES];
    if (m->assigned || r->children < 0 || r->children >= t->self.size || r->parent < 0 ||
        r->parent >= t->self.size)
        return PAR_ERR_SYSTEM;
    t->edges = (par__edge *)par__zalloc(sizeof *t->edges * ((size_t)(r->children + up) + 1));
    if (!t->edges || !par__tcp_poll_room(t, r->children + up)) return PAR_ERR_MEMORY;
    t->edge_count = r->children + up;
    for (int i = 0; i < t->edge_count; i++) t->edges[i].fd = t->edges[i].rank = -1;
    par__derive_key(t->self.key, "par.h connects", r->seed, sizeof r->seed);
    memcpy(session, t->self.key, sizeof session);
    par__derive_key(session, "par.h sends", NULL, 0);
    memcpy(&t->session, session, sizeof t->session);
    if (up) t->book[r->parent] = r->address;
    t->book[t->self.rank].parent = m->parent = r->parent;
    m->children = r->children;
    m->assigned = 1;
    return PAR_OK;
}
static par_result par__tcp_assign(par__world *w) { // rank 0
    par__tcp *t = w->tcp;
    par__word r = par__new_word(PAR__MEET_ASSIGN, 0, "");
    int *children = (int *)par__zalloc(sizeof(int) * (size_t)w->size), e = 0;
    if (!children || !par__tcp_plan(t, children)) {
        PAR_FREE(children);
        return par__log_error(PAR_ERR_MEMORY, "out of memory for %d ranks", w->size);
    }
    for (size_t i = 0; !e && i < sizeof r.seed / sizeof *r.seed; i++) e = par__getrandom_u64(&r.seed[i]);
    if (e) {
        PAR_FREE(children);
        return par__log_error(PAR_ERR_SYSTEM, "no random number: %s", strerror(e));
    }
    r.children = children[0];
    par_result result = par__tcp_take_place(t, &r);
    for (int i = 1; i < w->size && !result; i++) {
        r.rank = i;
        r.parent = t->book[i].parent;
        r.children = children[i];
        r.address = t->book[r.parent];
        par__word_send(t, &t->rendezvous->down[t->rendezvous->via[i]], &r);
    }
    PAR_FREE(children);
    return result;
}
// Connect to the parent, wait for the children, and for those below that have joined by this rank.
static void par__tcp_progress_edges(par__world *w) {
    par__tcp *t = w->tcp;
    par__rendezvous *m = t->rendezvous;
    int joined = 0;
    if (!m->assigned || m->said_ready || m->result) return;
    if (w->rank && t->edges[0].fd < 0) {
        par__edge *e = &t->edges[0];
        const int done = par__tcp_dial(w, &m->dial, m->parent, &t->book[m->parent], PAR__TO_STAY);
        if (done > 0) {
            e->rank = m->parent;
            par__handshake_proof(&t->self, m->dial.handshake, 'l', NULL, 0, e->key);
            par__tcp_end_dial(&m->dial, &e->fd);
        } else if (done < 0) {
            m->result = PAR_ERR_SYSTEM;
            snprintf(m->text, sizeof m->text, "it cannot connect to rank %d: %s", m->parent,
                     errno == EPROTO ? m->dial.why : par__strerror(errno).text);
            return;
        }
    }
    for (int i = 0; i < m->down_count; i++) joined += m->down[i].joined;
    if (m->accepted < m->children || (w->rank && t->edges[0].fd < 0)) return;
    if (w->rank ? m->ready < joined : m->ready < w->size - 1) return;
    par__word r = par__new_word(w->rank ? PAR__MEET_READY : PAR__MEET_GO, w->rank, "");
    r.count = joined + 1;
    m->said_ready = 1;
    if (w->rank) {
        par__word_send(t, &m->up, &r);
    } else {
        par__tcp_tell_down(t, &r);
        m->over = 1;
    }
}
static void par__tcp_hear_up(par__world *w);
// What can be done now, or at the latest then.
static void par__tcp_meet_round(par__world *w, double until) {
    par__tcp *t = w->tcp;
    par__rendezvous *m = t->rendezvous;
    const int dials = m->assigned && w->rank && t->edges[0].fd < 0 && m->dial.fd < 0; // again, soon
    par__tcp_poll_listeners(w, dials ? PAR__MIN(until, par__now() + 0.005) : until);
    if (m->up.fd >= 0 && m->up.ready) {
        par__edge_flush(&m->up);
        par__tcp_hear_up(w);
    }
    for (int i = 0; i < m->down_count && !m->result && !m->over; i++) {
        if (m->down[i].fd < 0 || !m->down[i].ready) continue;
        par__edge_flush(&m->down[i]);
        par__tcp_hear_down(t, i);
    }
    par__tcp_progress_edges(w);
}

// ---- rank 0

// Wait until every rank has joined, then until each has its edges.
static par_result par__tcp_lead_all(par__world *w, double start) {
    par__tcp *t = w->tcp;
    par__rendezvous *m = t->rendezvous;
    const double until = start + w->timeout_s;
    double said = start;
    char text[200], why[400];
    while (!m->over) {
        const int missing = par__tcp_missing_ranks(w, text, sizeof text);
        if (t->accept_error) {
            snprintf(why, sizeof why, "rank 0 cannot accept connections (ranks %s of %d are not here): %s",
                     missing ? text : "none", w->size, par__strerror(t->accept_error).text);
            PAR_LOG(why);
            return par__tcp_fail(t, PAR_ERR_SYSTEM, why);
        }
        if (t->two_runs) {
            par__tcp_fail(t, PAR_ERR_ARGUMENT, t->why);
            return par__log_error(PAR_ERR_ARGUMENT, "rank 0 opens no world: %s", t->why);
        }
        const char *gone = missing ? NULL : (const char *)memchr(m->here, PAR__GONE, (size_t)w->size);
        if (gone) {
            int rank = (int)(gone - (const char *)m->here);
            if (m->down[m->via[rank]].fd < 0) rank = m->down[m->via[rank]].rank; // it led them
            snprintf(text, sizeof text, "rank %d did not open its world: its connection has ended", rank);
            PAR_LOG(text);
            return par__tcp_fail(t, PAR_ERR_PEER_DIED, text);
        }
        par_result r = missing || m->assigned ? PAR_OK : par__tcp_assign(w);
        if (r) return par__tcp_fail(t, r, "rank 0 cannot plan the connections");
        if (par__now() > until) {
            if (!missing) snprintf(text, sizeof text, "all ranks to connect to each other");
            snprintf(why, sizeof why, missing ? "rank 0 waited for ranks %s" : "rank 0 waited for %s", text);
            par__tcp_fail(t, PAR_ERR_TIMEOUT, why);
            return par__log_error(PAR_ERR_TIMEOUT,
                                  missing
                                      ? "rank 0 waited %g s at %s:%s for ranks %s of %d; do they run, and "
                                        "can they reach this port?"
                                      : "rank 0 waited %g s at %s:%s for %s of %d",
                                  w->timeout_s, t->host, t->port, text, w->size);
        }
        if (missing && par__tcp_report_due(&said))
            par__log_error(PAR_OK, "rank 0 waits at %s:%s for ranks %s of %d (%.0f s)", t->host, t->port,
                           text, w->size, said - start);
        par__tcp_meet_round(w, PAR__MIN(until, par__now() + 1));
    }
    return PAR_OK;
}

// ---- another rank

// Prove to the other end of a connection which rank this is, and see who that is. 1: both have.
static int par__tcp_prove(const par__identity *self, par__handshake *p, int fd, int to, double until) {
    const int e = par__handshake_begin(self, p, fd, to, PAR__TO_MEET);
    if (e) par__handshake_fail(p, 1, "no random number: %s", strerror(e));
    while (p->state < PAR__HANDSHAKE_DONE && par__now() < until) {
        par__handshake_progress(self, p);
        if (p->state < PAR__HANDSHAKE_DONE) par__tcp_poll_fd(fd, POLLIN, until);
    }
    return p->state == PAR__HANDSHAKE_DONE;
}
static void par__tcp_set_up(par__tcp *t, par__handshake *p) {
    par__edge *up = &t->rendezvous->up;
    memset(up, 0, sizeof *up);
    up->fd = p->fd;
    up->rank = p->hello[1].rank;
    par__handshake_proof(&t->door, p, 'l', NULL, 0, up->key);
    t->counts.handshakes++;
}
// Try once to connect to rank 0 and to prove that it is rank 0. 0: t->why has the reason why not; *final:
// trying again will not help.
static int par__tcp_try_join(par__world *w, double until, int *final) {
    par__tcp *t = w->tcp;
    par__handshake p;
    const char *why = t->why;
    const int fd = par__tcp_connect_to(t->host, t->port, until, &why);
    // What the deadline has cut off says less than the try before it.
    const int cut = fd < 0 && errno == ETIMEDOUT && par__now() >= until && t->why[0];
    if (why != t->why && !cut) snprintf(t->why, sizeof t->why, "%s", why);
    *final = fd < 0 && (errno == EMFILE || errno == ENFILE);
    if (*final) snprintf(t->why, sizeof t->why, "%s", par__strerror(errno).text);
    if (fd < 0) return 0;
    // Another program may listen there and never answer.
    if (par__tcp_prove(&t->door, &p, fd, 0, PAR__MIN(until, par__now() + 5)))
        return par__tcp_set_up(t, &p), 1;
    *final = p.state == PAR__HANDSHAKE_FAILED && p.permanent;
    // When the deadline has ended the handshake, the reason of the try before says more.
    if (p.state == PAR__HANDSHAKE_FAILED || par__now() < until || !t->why[0])
        snprintf(t->why, sizeof t->why, "%s",
                 p.state == PAR__HANDSHAKE_FAILED
                     ? p.why
                     : "a program there accepts connections but does not answer");
    close(fd);
    return 0;
}
// Rank 0: listen at the port of the rendezvous, and wait while another job uses it. Who listens there is
// asked now and then: a rank 0 of this job, or of none where this one has no name, is there by mistake.
static par_result par__tcp_listen_root(par__world *w, double start) {
    par__tcp *t = w->tcp;
    const double until = start + w->timeout_s;
    const int backlog = PAR__MIN(w->size + PAR__TCP_EXTRA_PENDING, 4096);
    double said = start, ask = start;
    const char *why;
    in_port_t port;
    int e = 0, final = 0;
    while (!final && (e = par__tcp_listen_host(t, t->port, backlog, until, &port, &why)) == EADDRINUSE &&
           par__now() <= until) {
        if (par__now() >= ask) {
            if (par__tcp_try_join(w, PAR__MIN(until, par__now() + 1), &final))
                par__edge_close(&t->rendezvous->up);
            ask = par__now() + 0.5;
        }
        if (par__tcp_report_due(&said))
            par__log_error(PAR_OK,
                           "rank 0 cannot listen on port %s yet: %s (%.0f s); PAR_PORT chooses another",
                           t->port, strerror(e), said - start);
        usleep(20000);
    }
    if (final) return par__log_error(PAR_ERR_ARGUMENT, "rank 0 cannot use port %s: %s", t->port, t->why);
    if (!e && why)
        par__log_error(PAR_OK, "rank 0 listens on port %s of every address: MASTER_ADDR is %s, and %s",
                       t->port, t->host, why);
    if (e == ETIMEDOUT)
        return par__log_error(PAR_ERR_TIMEOUT, "rank 0 waited %g s for the address of MASTER_ADDR, %s: %s",
                              w->timeout_s, t->host, why);
    const int taken = e == EADDRINUSE || e == EACCES;
    if (e)
        return par__log_error(
            PAR_ERR_SYSTEM, "rank 0 cannot listen on port %s: %s%s", t->port, par__strerror(e).text,
            taken ? "; set MASTER_PORT or PAR_PORT to a free one, the same for all ranks" : "");
    return PAR_OK;
}
// The address of a Unix socket in the abstract namespace, which leaves no file behind: ranks of one run, user
// and node meet there. Who sees another name of the run, port or host leads a group of its own.
static uint64_t par__tcp_host(const par__world *w) { // the same on ranks of one host, and node
    uint64_t hash[2];
    par__host_id(hash);
    return (hash[0] ^ (uint64_t)(w->rank / w->node_ranks)) * 0x9E3779B97F4A7C15u >> 1;
}
static socklen_t par__tcp_local_address(const par__world *w, struct sockaddr_un *a) {
    const par__tcp *t = w->tcp;
    uint64_t run = par__hash_text(t->host, par__hash_text(t->port, t->self.job));
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    const int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "par.meet.%u.%d.%d.%016llx",
                           (unsigned)geteuid(), w->size, w->rank / w->node_ranks, (unsigned long long)run);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}
// Join the rank that leads this host, or lead it. 1: it has joined; 0: it leads, or nobody there is of this
// run, and it goes to rank 0 itself; -1: no descriptor is left.
static int par__tcp_join_host(par__world *w, double until) {
    par__tcp *t = w->tcp;
    par__handshake p;
    struct sockaddr_un a;
    const socklen_t bytes = par__tcp_local_address(w, &a);
    for (int tries = 0; tries < 200 && par__now() < until; tries++) {
        const int fd = par__safe_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (fd < 0) return -1;
        // Rank 0 joins nobody.
        const int e =
            !w->rank || connect(fd, (struct sockaddr *)&a, bytes) ? w->rank ? errno : ECONNREFUSED : 0;
        if (!e && par__peer_uid(fd) == (uint32_t)geteuid() &&
            par__tcp_prove(&t->door, &p, fd, PAR__ANY_RANK,
                           PAR__MIN(until, par__now() + PAR__MIN(10, w->timeout_s / 4)))) {
            par__tcp_set_up(t, &p);
            return 1;
        }
        if (e == ECONNREFUSED && !bind(fd, (struct sockaddr *)&a, bytes) &&
            !listen(fd, PAR__MIN(w->size + PAR__TCP_EXTRA_PENDING, 4096))) {
            t->local = fd;
            return 0;
        }
        close(fd);
        if (!e || !w->rank) return 0;
        usleep(5000); // it has just been bound, or many wait there
    }
    return 0;
}
// Connect to rank 0, and try again until the deadline.
static par_result par__tcp_join_root(par__world *w, double start) {
    par__tcp *t = w->tcp;
    const double until = start + w->timeout_s;
    double said = start;
    int final;
    for (double pause = 0.005; !par__tcp_try_join(w, until, &final); pause = PAR__MIN(2 * pause, 0.2)) {
        if (final)
            return par__log_error(PAR_ERR_ARGUMENT, "rank %d does not join rank 0 at %s:%s: %s", w->rank,
                                  t->host, t->port, t->why);
        if (par__now() > until)
            return par__log_error(PAR_ERR_TIMEOUT,
                                  "rank %d tried for %g s to reach rank 0 at %s:%s (%s); does it run, and is "
                                  "MASTER_ADDR its host?",
                                  w->rank, w->timeout_s, t->host, t->port, t->why);
        if (par__tcp_report_due(&said))
            par__log_error(PAR_OK, "rank %d cannot reach rank 0 at %s:%s yet: %s (%.0f s)", w->rank, t->host,
                           t->port, t->why, said - start);
        const double next = par__now() + pause;
        do par__tcp_meet_round(w, next); // others of this host may join
        while (par__now() < next);
    }
    return PAR_OK;
}
// Listen for the other ranks' connections, and say where. Rank 0, and ranks that reached it by a loopback
// address and so are on its host, listen at MASTER_ADDR; ranks of other hosts know them by the address at
// which they reached rank 0. Every other rank listens at its host's own end of a connection to rank 0.
static par_result par__tcp_listen_own(par__world *w) {
    par__tcp *t = w->tcp;
    par__rendezvous *m = t->rendezvous;
    par__address *mine = &t->book[w->rank];
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    in_port_t port = 0;
    const char *why = "";
    const int backlog = PAR__MIN(w->size + PAR__TCP_EXTRA_PENDING, 1024);
    int e = 0;
    if (w->rank) par__unpack_address(&m->zero, &t->zero);
    const int there = w->rank == 0 || par__is_loopback(&t->zero);
    par__unpack_address(&m->own, &at);
    *par__port_of(&at) = 0;
    if (!there && !t->listener_count) e = par__tcp_listen(t, &at, backlog);
    for (int tries = 16; !e && !t->listener_count; tries--) {
        e = par__tcp_listen_host(t, "0", backlog, par__now() + w->timeout_s, &port, &why);
        if (e == EADDRINUSE && tries) e = 0; // it was free at one address, but not at another
    }
    if (!e && getsockname(t->listeners[0], (struct sockaddr *)&at, &bytes)) e = errno;
    if (e)
        return par__log_error(PAR_ERR_SYSTEM, "rank %d cannot listen: %s", w->rank,
                              e == ETIMEDOUT ? why : par__strerror(e).text);
    port = *par__port_of(&at);
    *mine = w->rank && there ? m->zero : m->own;
    mine->port = port;
    if (!w->rank) return PAR_OK;
    par__word r = par__new_word(PAR__MEET_JOIN, w->rank, t->self.place);
    r.address = *mine;
    r.program = t->self.program;
    r.host = par__tcp_host(w);
    par__word_send(t, &m->up, &r);
    m->where_known = 1;
    for (int i = 0; i < m->down_count; i++) par__tcp_say_where(t, &m->down[i]);
    return PAR_OK;
}
// What rank 0 says, or the rank that leads this host: to this rank, or to one that it leads.
static void par__tcp_on_up(par__world *w, par__word *r) {
    par__tcp *t = w->tcp;
    par__rendezvous *m = t->rendezvous;
    if (r->kind == PAR__MEET_FAIL || r->kind == PAR__MEET_GO) {
        m->result = r->kind == PAR__MEET_GO                       ? PAR_OK
                    : r->count > 0 && r->count < PAR_RESULT_COUNT ? (par_result)r->count
                                                                  : PAR_ERR_SYSTEM;
        m->over = r->kind == PAR__MEET_GO;
        snprintf(m->text, sizeof m->text, "%s", r->text);
        par__tcp_tell_down(t, r);
    } else if (r->kind == PAR__MEET_WHERE && !m->where_known) {
        m->own = r->address;
        m->zero = r->zero;
        m->result = par__tcp_listen_own(w);
    } else if (r->rank != w->rank) {
        for (int i = 0; i < m->down_count; i++)
            if (m->down[i].fd >= 0 && m->down[i].rank == r->rank) par__word_send(t, &m->down[i], r);
    } else if (r->kind == PAR__MEET_REFUSE) {
        m->result = par__log_error(PAR_ERR_ARGUMENT, "rank %d does not join rank 0 at %s:%s: %s", w->rank,
                                   t->host, t->port, r->text);
    } else if (r->kind == PAR__MEET_ASSIGN) {
        m->result = par__tcp_take_place(t, r);
        snprintf(m->text, sizeof m->text, "no place in the tree: %s", par_result_text(m->result));
    }
}
static void par__tcp_hear_up(par__world *w) {
    par__rendezvous *m = w->tcp->rendezvous;
    par__word r;
    int got;
    while (!m->result && !m->over && !m->led && (got = par__word_read(&m->up, &r)) != 0) {
        if (got > 0) {
            par__tcp_on_up(w, &r);
        } else if (m->up.rank && !m->assigned) {
            m->led = 1;
        } else {
            char text[160];
            snprintf(text, sizeof text, "rank %d lost its connection to rank %d while the world opened: %s",
                     w->rank, m->up.rank,
                     errno == EBADMSG ? "data were altered on their way" : strerror(errno));
            par__tcp_fail(w->tcp, PAR_ERR_PEER_DIED, text);
        }
    }
}
// Another rank than 0: join, by the host's leader or as it, until all have their edges.
static par_result par__tcp_join(par__world *w, double start) {
    par__tcp *t = w->tcp;
    par__rendezvous *m = t->rendezvous;
    const double until = start + w->timeout_s;
    struct sockaddr_storage own, zero;
    while (!m->over && !m->result) {
        if (m->up.fd < 0) {
            m->led = m->where_known = 0;
            const int joined = par__tcp_join_host(w, until);
            par_result r = joined >= 0 ? PAR_OK
                                       : par__log_error(PAR_ERR_SYSTEM, "rank %d cannot make a socket: %s",
                                                        w->rank, par__strerror(errno).text);
            if (!joined) r = par__tcp_join_root(w, start);
            socklen_t own_bytes = sizeof own, zero_bytes = sizeof zero;
            if (!r && !joined) {
                if (getsockname(m->up.fd, (struct sockaddr *)&own, &own_bytes) ||
                    getpeername(m->up.fd, (struct sockaddr *)&zero, &zero_bytes))
                    return par__log_error(PAR_ERR_SYSTEM, "rank %d: %s", w->rank, strerror(errno));
                par__pack_address(&own, &m->own);
                par__pack_address(&zero, &m->zero);
                r = par__tcp_listen_own(w);
            }
            if (r) return r;
        }
        if (par__now() > until)
            return par__log_error(PAR_ERR_TIMEOUT,
                                  "rank %d waited %g s for all ranks to open their worlds (it joined by "
                                  "rank %d)",
                                  w->rank, w->timeout_s, m->up.rank);
        par__tcp_meet_round(w, PAR__MIN(until, par__now() + 1));
        if (m->led) par__edge_close(&m->up);
        if (t->accept_error) par__tcp_forget(&t->local); // those that it cannot accept go to rank 0
    }
    if (m->result && m->text[0]) par__log_error(m->result, "rank %d: %s", w->rank, m->text);
    return m->result;
}

// >>tcp_open ------------------------------------------------------------------------------------------------
//
// All-gather over the tree, while the world opens; with it ranks exchange the addresses at which they listen.
// Then a world over TCP opens.
//     up      each rank sends its parent the blocks of all below it: 2 (n - 1) messages in all, of which
//     down    rank 0 sends all blocks; each rank passes them on       rank 0 sends one to each child

// Move e->left bytes at e->io, on all edges at once. -1: all are there; or the first edge that failed, with
// errno; edge_count: the parent has something to say. Sending does not fail: who is gone has said why.
static int par__tcp_control_io(par__world *w, int events, int listen_up, double until) {
    par__tcp *t = w->tcp;
    for (;;) {
        int left = 0, first = -1;
        for (int i = 0; i < t->edge_count; i++) {
            par__edge *e = &t->edges[i];
            if (e->left && e->fd < 0) return errno = ECONNRESET, i;
            t->polls[i].fd = e->left || (!i && listen_up) ? e->fd : -1;
            t->polls[i].events = (short)(!i && listen_up ? POLLIN : events);
            t->polls[i].revents = 0;
            left += e->left != 0;
            if (e->left && first < 0) first = i;
        }
        const double patience = until - par__now();
        if (!left) return -1;
        if (patience < 0) return errno = ETIMEDOUT, first;
        poll(t->polls, (nfds_t)t->edge_count, (int)PAR__MIN(patience * 1000 + 1, 1000.0));
        if (listen_up && t->polls[0].revents) return t->edge_count;
        for (int i = 0; i < t->edge_count; i++) {
            par__edge *e = &t->edges[i];
            if (!e->left || !t->polls[i].revents) continue;
            const ssize_t n = events == POLLOUT ? send(e->fd, e->io, e->left, MSG_NOSIGNAL)
                                                : recv(e->fd, e->io, e->left, 0);
            if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (n <= 0 && events != POLLOUT) return errno = n ? errno : ECONNRESET, i;
            e->left = n <= 0 ? 0 : e->left - (size_t)n;
            e->io += PAR__MAX(n, (ssize_t)0);
        }
    }
}
static void par__tcp_move(par__edge *e, void *memory, size_t bytes) {
    e->io = (char *)memory;
    e->left = bytes;
}
// Send a block on some edges: its head, and unless that says an error its bytes. Its MAC is of the edge.
static void par__tcp_send_block(par__world *w, int first, int end, const par__verdict *head,
                                par__verdict *heads, void *memory, size_t bytes, double until) {
    par__tcp *t = w->tcp;
    unsigned char digest[PAR__MAC_BYTES];
    if (first < end && !head->result) par__sha256_of(memory, bytes, digest);
    for (int i = first; i < end; i++) {
        heads[i] = *head;
        par__edge_mac(&t->edges[i], t->edges[i].sent++, w->rank, head, offsetof(par__verdict, proof),
                      head->result ? NULL : digest, heads[i].proof);
        par__tcp_move(&t->edges[i], &heads[i], sizeof *heads);
        t->counts.blocks++;
        t->counts.block_bytes += sizeof *heads + (head->result ? 0 : bytes);
    }
    par__tcp_control_io(w, POLLOUT, 0, until);
    for (int i = first; i < end && !head->result; i++) par__tcp_move(&t->edges[i], memory, bytes);
    par__tcp_control_io(w, POLLOUT, 0, until);
}
static int par__tcp_block_valid(par__edge *e, const par__verdict *head, const void *memory, size_t bytes) {
    unsigned char digest[PAR__MAC_BYTES], proof[PAR__MAC_BYTES];
    if (!head->result) par__sha256_of(memory, bytes, digest);
    par__edge_mac(e, e->received++, e->rank, head, offsetof(par__verdict, proof),
                  head->result ? NULL : digest, proof);
    return par__mac_equal(proof, head->proof);
}
static void par__tcp_block_error(par__verdict *v, par_result result, const char *text) {
    memset(v, 0, sizeof *v);
    v->result = (int32_t)result;
    snprintf(v->text, sizeof v->text, "%s", text);
}
// Receive the blocks of all below this rank, each behind its rank, in *entries: v->count of them with this
// rank's own. v->result: why not. Returns 0 if the parent has something to say first.
static int par__tcp_gather_below(par__world *w, size_t bytes, char **entries, par__verdict *v,
                                 par__verdict *heads, double until) {
    par__tcp *t = w->tcp;
    const int first = w->rank ? 1 : 0;
    const size_t stride = sizeof(int32_t) + bytes;
    char text[200];
    for (int i = first; i < t->edge_count; i++) par__tcp_move(&t->edges[i], &heads[i], sizeof *heads);
    int failed = par__tcp_control_io(w, POLLIN, first, until);
    size_t count = 1;
    for (int i = first; i < t->edge_count && failed < 0; i++) {
        const int errors = heads[i].result != 0;
        if (errors || heads[i].count < 0 || heads[i].count > w->size) heads[i].count = 0;
        count += (size_t)heads[i].count;
        if (errors && !v->result) { // the error's MAC says who has said it
            heads[i].text[sizeof heads[i].text - 1] = 0;
            par__sanitize(heads[i].text, "");
            par__tcp_block_error(v, (par_result)heads[i].result, heads[i].text);
        }
    }
    char *all = failed < 0 && !v->result ? (char *)PAR_REALLOC(*entries, count * stride) : NULL;
    if (all) *entries = all;
    if (failed < 0 && !v->result && !all) par__tcp_block_error(v, PAR_ERR_MEMORY, "out of memory");
    char *at = *entries + stride;
    for (int i = first; i < t->edge_count && all; at += (size_t)heads[i++].count * stride)
        par__tcp_move(&t->edges[i], at, (size_t)heads[i].count * stride);
    if (all) failed = par__tcp_control_io(w, POLLIN, first, until);
    for (int i = 0; i < t->edge_count; i++) t->edges[i].left = 0;
    if (failed == t->edge_count) return 0;
    if (failed >= 0) {
        snprintf(text, sizeof text, "rank %d did not open its world: %s", t->edges[failed].rank,
                 strerror(errno));
        par__tcp_block_error(v, errno == ETIMEDOUT ? PAR_ERR_TIMEOUT : PAR_ERR_PEER_DIED, text);
        if (w->rank) PAR_LOG(text);
    }
    at = *entries + stride;
    for (int i = first; i < t->edge_count && failed < 0 && all; at += (size_t)heads[i++].count * stride) {
        if (par__tcp_block_valid(&t->edges[i], &heads[i], at, (size_t)heads[i].count * stride)) continue;
        snprintf(text, sizeof text, "rank %d's data were altered on their way while the world opened",
                 t->edges[i].rank);
        par__tcp_block_error(v, PAR_ERR_SYSTEM, text);
    }
    v->count = v->result ? 0 : (int32_t)count;
    return 1;
}
// Rank 0: the blocks in the order of their ranks.
static void par__tcp_sort_blocks(par__world *w, const char *entries, size_t bytes, char *all,
                                 par__verdict *v) {
    const size_t stride = sizeof(int32_t) + bytes;
    int32_t rank;
    uint64_t sum = 0;
    for (int i = 0; i < v->count; i++) {
        memcpy(&rank, entries + (size_t)i * stride, sizeof rank);
        if (rank < 0 || rank >= w->size) break;
        memcpy(all + (size_t)rank * bytes, entries + (size_t)i * stride + sizeof rank, bytes);
        sum += (uint64_t)rank;
    }
    if (!v->result && (v->count != w->size || sum != (uint64_t)w->size * (uint64_t)(w->size - 1) / 2))
        par__tcp_block_error(v, PAR_ERR_SYSTEM, "a rank was missing while the world opened");
}
// Another rank: receive all blocks from the parent.
static void par__tcp_receive_all(par__world *w, char *all, size_t bytes, par__verdict *v, double until) {
    par__tcp *t = w->tcp;
    par__edge *up = &t->edges[0];
    char text[200] = "";
    memset(v, 0, sizeof *v);
    par__tcp_move(up, v, sizeof *v);
    int failed = par__tcp_control_io(w, POLLIN, 0, until);
    if (failed < 0 && !v->result) {
        par__tcp_move(up, all, bytes);
        failed = par__tcp_control_io(w, POLLIN, 0, until);
    }
    up->left = 0;
    if (failed >= 0)
        snprintf(text, sizeof text, "rank %d lost its connection to rank %d while the world opened: %s",
                 w->rank, up->rank, strerror(errno));
    const par_result lost = failed < 0 ? PAR_OK : errno == ETIMEDOUT ? PAR_ERR_TIMEOUT : PAR_ERR_PEER_DIED;
    if (failed < 0 && !par__tcp_block_valid(up, v, all, bytes)) {
        snprintf(text, sizeof text,
                 "rank %d's data were altered on their way to rank %d while the world opened", up->rank,
                 w->rank);
        par__tcp_block_error(v, PAR_ERR_SYSTEM, text);
    }
    if (lost) par__tcp_block_error(v, lost, text);
    v->text[sizeof v->text - 1] = 0;
    par__sanitize(v->text, "");
    if (v->result < 0 || v->result >= PAR_RESULT_COUNT) v->result = PAR_ERR_SYSTEM;
}
static par_result par__tcp_all_gather(par__world *w, const void *mine, size_t bytes, void *all) {
    par__tcp *t = w->tcp;
    const double until = par__now() + w->timeout_s;
    const int32_t rank = w->rank;
    const int up = w->rank != 0;
    const size_t stride = sizeof rank + bytes, total = bytes * (size_t)w->size;
    char *entries = (char *)PAR_MALLOC(stride);
    par__verdict v, *heads = (par__verdict *)PAR_MALLOC(sizeof *heads * ((size_t)t->edge_count + 1));
    memset(&v, 0, sizeof v);
    if (!entries || !heads) {
        PAR_FREE(entries);
        PAR_FREE(heads);
        return par__log_error(PAR_ERR_MEMORY, "out of memory for %d ranks", w->size);
    }
    memcpy(entries, &rank, sizeof rank);
    memcpy(entries + sizeof rank, mine, bytes);
    const int first = par__tcp_gather_below(w, bytes, &entries, &v, heads, until);
    if (!up) par__tcp_sort_blocks(w, entries, bytes, (char *)all, &v);
    if (up && first) par__tcp_send_block(w, 0, 1, &v, heads, entries, (size_t)v.count * stride, until);
    PAR_FREE(entries);
    if (up) par__tcp_receive_all(w, (char *)all, total, &v, until);
    par__tcp_send_block(w, up, t->edge_count, &v, heads, all, total, until);
    PAR_FREE(heads);
    if (!v.result) return PAR_OK;
    return par__log_error((par_result)v.result, "rank %d: %s", w->rank, v.text);
}

// Every rank gets the address and the place of each.
static par_result par__tcp_gather_book(par__world *w) {
    par__tcp *t = w->tcp;
    const par__address mine = t->book[w->rank];
    par_result r = par__tcp_all_gather(w, &mine, sizeof mine, t->book);
    for (int i = 0; i < w->size && !r; i++) {
        const int family = t->book[i].family;
        if (family != AF_INET && family != AF_INET6)
            r = par__log_error(PAR_ERR_SYSTEM,
                               "rank %d sent rank %d an address of family %d, neither IPv4 nor IPv6", i,
                               w->rank, family);
        int steps = 0, at = i;
        while (at > 0 && at < w->size && steps++ < 64) at = t->book[at].parent;
        if (!r && at) r = par__log_error(PAR_ERR_SYSTEM, "rank %d has no way to rank 0", i);
    }
    for (int i = 0; i < t->edge_count && !r; i++) {
        par__edge *e = &t->edges[i];
        e->inode = par__socket_inode(e->fd);
        if ((i || !w->rank) && t->book[e->rank].parent != w->rank)
            r = par__log_error(PAR_ERR_SYSTEM, "rank %d is no child of rank %d", e->rank, w->rank);
    }
    return r;
}

static const par__net par__net_tcp = {
    par__tcp_send, par__tcp_recv,       par__tcp_test,        par__tcp_cancel, par__tcp_all_gather,
    par__tcp_poll, par__tcp_rank_state, par__tcp_all_running, par__tcp_notify, par__tcp_close};
static const par__net par__net_lines = { // of an elastic world, once it is open
    par__tcp_send,   par__tcp_recv,         par__tcp_test,        par__tcp_cancel,   par__tcp_all_gather,
    par__lines_poll, par__lines_rank_state, par__tcp_all_running, par__lines_notify, par__lines_close};
static void par__start_lines(par__world *w) {
    w->net = &par__net_lines;
    w->tcp->lines_due = 1;
    w->tcp->lines_polled = par__now();
}

// What runs here: "host, pid 77: prog --steps 9". The other end gets it before it has proved anything: where
// there is a secret, it is not told the program.
static void par__describe_place(par__identity *self) {
    char host[24] = "", all[4096] = "";
    FILE *f = fopen("/proc/self/cmdline", "r");
    const size_t n = f ? fread(all, 1, sizeof all - 1, f) : 0;
    if (f) fclose(f);
    const char *slash = strrchr(all, '/'), *name = slash ? slash + 1 : all; // of the first argument
    self->program = 0xcbf29ce484222325u;
    for (const char *x = name; x < all + n; x += strlen(x) + 1)
        self->program = par__hash_text(x, self->program);
    for (size_t i = 0; i + 1 < n; i++) all[i] = all[i] ? all[i] : ' ';
    gethostname(host, sizeof host - 1);
    if (self->secret) name = "PAR_SECRET hides what";
    const int fits = snprintf(self->place, sizeof self->place, "%s, pid %d: %s", host, (int)getpid(), name) <
                     (int)sizeof self->place;
    if (!fits) memcpy(self->place + sizeof self->place - 4, "...", 4);
    par__sanitize(self->place, "");
}
static par_result par__tcp_allocate(par__world *w) {
    par__tcp *t = (par__tcp *)par__zalloc(sizeof *t);
    const size_t n = (size_t)w->places;
    if (!t) return par__log_error(PAR_ERR_MEMORY, "out of memory");
    w->tcp = t;
    t->local = -1;
    t->rendezvous = (par__rendezvous *)par__zalloc(sizeof *t->rendezvous);
    t->book = (par__address *)par__zalloc(n * sizeof *t->book);
    t->states = (unsigned char *)PAR_MALLOC(n);
    t->sink = (char *)par__zalloc(PAR__TCP_SHORT_BYTES);
    if (t->rendezvous) t->rendezvous->up.fd = t->rendezvous->dial.fd = -1;
    if (!t->rendezvous || !t->book || !t->states || !t->sink)
        return par__log_error(PAR_ERR_MEMORY, "out of memory");
    memset(t->states, PAR__RANK_STARTING, n);
    memset(t->states, PAR__RANK_RUNNING, (size_t)w->size);
    t->next_place = w->size;
    if (w->rank) return PAR_OK;
    t->places = (char(*)[PAR__PLACE_BYTES])par__zalloc(n * sizeof *t->places);
    t->rendezvous->here = (unsigned char *)par__zalloc(n);
    t->rendezvous->via = (int *)par__zalloc(n * sizeof(int));
    t->rendezvous->host = (uint64_t *)par__zalloc(n * sizeof(uint64_t));
    if (!t->places || !t->rendezvous->here || !t->rendezvous->via || !t->rendezvous->host)
        return par__log_error(PAR_ERR_MEMORY, "out of memory");
    return PAR_OK;
}
// Rank 0 listens at the port, and at its host's socket.
static par_result par__tcp_open_doors(par__world *w, double start) {
    par__tcp *t = w->tcp;
    par__rendezvous *m = t->rendezvous;
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    par_result r = par__tcp_listen_root(w, start);
    if (r) return r;
    t->on_door = par__tcp_on_root_door;
    memcpy(t->doors, t->listeners, sizeof t->doors);
    t->door_count = t->listener_count;
    t->listener_count = 0;
    if (getsockname(t->doors[0], (struct sockaddr *)&at, &bytes))
        return par__log_error(PAR_ERR_SYSTEM, "rank 0: %s", strerror(errno));
    if (at.ss_family == AF_INET && !((struct sockaddr_in *)&at)->sin_addr.s_addr)
        ((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (at.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)&at)->sin6_addr))
        ((struct sockaddr_in6 *)&at)->sin6_addr = in6addr_loopback;
    par__pack_address(&at, &m->own);
    m->zero = m->own;
    m->here[0] = PAR__HERE;
    m->host[0] = par__tcp_host(w);
    r = par__tcp_listen_own(w);
    m->where_known = 1;
    if (!r) par__tcp_join_host(w, start + w->timeout_s);
    return r;
}
static par_result par__tcp_rendezvous(par__world *w, const par__launch *l) {
    par_result r = par__tcp_allocate(w);
    par__tcp *t = w->tcp;
    if (r) return r;
    snprintf(t->host, sizeof t->host, "%s", l->host);
    snprintf(t->port, sizeof t->port, "%s", l->port);
    t->self.job = l->job;
    t->self.named = l->named;
    t->self.rank = w->rank;
    t->self.size = w->size;
    t->self.places = w->places;
    t->on_handshake = par__tcp_accept_sender;
    t->on_door = par__tcp_on_host_door;
    par__tcp_list(t);
    r = par__load_secret(t->self.key, &t->self.secret);
    if (r) return r;
    par__describe_place(&t->self);
    t->door = t->self;
    const double start = par__now();
    if (!w->rank) r = par__tcp_open_doors(w, start);
    if (!r) r = w->rank ? par__tcp_join(w, start) : par__tcp_lead_all(w, start);
    par__tcp_end_rendezvous(t);
    while (t->pending_count)
        close(t->pending[--t->pending_count].fd); // strangers, who may have every descriptor
    // Without a name rank 0 keeps the port: ranks of another run would meet there with some of this one's.
    if (w->rank || t->self.named) par__tcp_leave_port(t);
    return r ? r : par__tcp_gather_book(w);
}
// Not inlined: par_open needs little stack, to say that there is too little of it.
__attribute__((noinline)) static par_result par__open_tcp(par__open_request *s, const par__launch *l,
                                                          par_comm **comm) {
    if (l->size > PAR__TCP_RANK_MAX)
        return par__log_error(PAR_ERR_ARGUMENT, "%s started %d processes, but TCP joins %d ranks at most",
                              par__launchers[l->launcher].name, l->size, (int)PAR__TCP_RANK_MAX);
    par__world *w = par__new_world(&s->desc, "tcp", l->rank, l->size);
    if (!w) return PAR_ERR_MEMORY;
    w->net = &par__net_tcp;
    par__read_algorithm_settings(w, s);
    // Edges, and what a world opens; at most: rank 0 accepts every rank, messages go to and come from each.
    const size_t controls = 16, all = 3 * (size_t)l->size + controls + PAR__TCP_EXTRA_PENDING;
    par_result r =
        par__raise_fd_limit(controls, all)
            ? par__tcp_rendezvous(w, l)
            : par__log_error(PAR_ERR_SYSTEM, "rank %d of %d needs %zu descriptors to join the others: %s",
                             l->rank, l->size, controls, par__strerror(EMFILE).text);
    if (r) return par__tcp_free(w), par__free_world(w, 0), r;
    r = par__open_net(w, s, comm);
    if (!r && w->elastic) par__start_lines(w);
    return r ? r : par__start_progress(w);
}

// >>tcp_join ------------------------------------------------------------------------------------------------
//
// Processes that come later to an elastic world over TCP, and wait until it grows. Its first rank has a door,
// whose address PAR_JOIN names:
//     new process    connect ........ wait ................ memory, its own port ... READY ........ a rank
//     first rank     ...... par_grow: INVITE (the run, who is where, the new comm) ... broadcast, vote, GO
// The others learn of it by par_grow alone. Each new rank is a node of its own.

typedef struct par__reply { // READY, from a process that joins
    int32_t result, reserved;
    par__address address; // where it listens
    char text[248];
    unsigned char proof[PAR__MAC_BYTES];
} par__reply;
typedef struct par__go { // from the first rank
    int32_t result, reserved;
    par__address address[PAR__JOINERS]; // where those that join together listen
    unsigned char proof[PAR__MAC_BYTES];
} par__go;
typedef struct par__guests {               // that join together; broadcast
    uint64_t id;                           // of the new comm
    int32_t first, count, failed, invited; // the first one's number; why there are none
    par__address address[1];               // of each
} par__guests;
typedef struct par__seat { // of a rank of the new comm
    int32_t world_rank, node;
} par__seat;
typedef struct par__invitation { // then all places' addresses, the comm's seats, all places' states, a proof
    uint64_t magic, bytes, job, session, id, stage_bytes;
    int32_t world_size, rank, comm_size, count, named, reserved; // count: ranks of the comm that are new
    unsigned char key[PAR__MAC_BYTES];
    par__common_settings common;
} par__invitation;
static size_t par__invitation_bytes(size_t places, size_t comm_size) {
    return sizeof(par__invitation) + places * (sizeof(par__address) + 1) + comm_size * sizeof(par__seat) +
           PAR__MAC_BYTES;
}
static const par__seat *par__seats(const par__invitation *v, int places) {
    return (const par__seat *)(const void *)((const char *)(v + 1) + (size_t)places * sizeof(par__address));
}
static par__seat par__seat_of(const par_comm *before, int first, int r) { // each new rank is a node
    const int more = r - before->size;
    par__seat seat;
    seat.world_rank = more < 0 ? par__world_rank(before, r) : first + more;
    seat.node = more < 0 ? par__node_of(&before->nodes, r) : before->nodes.node_count + more;
    return seat;
}
// The new comm of n ranks, on each of them. before: the one that grows, or NULL on a new rank; `old` ranks.
// NULL: memory is out, or the seats are wrong.
static par_comm *par__make_joined(par__world *w, const par__seat *seats, int n, int old, uint64_t id,
                                  const par_comm *before) {
    int *ints = (int *)PAR_MALLOC(sizeof *ints * 3 * (size_t)n), valid = ints != NULL;
    int *world = ints, *node = ints + n, *arena = ints + 2 * n;
    for (int r = 0; r < n && valid; r++) {
        valid = seats[r].world_rank >= 0 && seats[r].world_rank < w->places && seats[r].node >= 0 &&
                seats[r].node < n;
        world[r] = seats[r].world_rank;
        node[r] = seats[r].node;
        arena[r] = before && r < old ? par__arena_index(before, r) : world[r] == w->rank ? w->arena_rank : -1;
    }
    par_comm *c = valid ? par__make_larger(w, id, n, old, world, node, arena) : NULL;
    PAR_FREE(ints);
    return c;
}
static void par__join_proof(const unsigned char *key, char who, const void *bytes, size_t count,
                            unsigned char *proof) {
    const struct iovec parts[2] = {par__iovec(&who, 1), par__iovec(bytes, count)};
    par__hmac(key, PAR__MAC_BYTES, parts, 2, proof);
}
// Send or receive all of it before the deadline. 0, or errno (ECONNRESET: the other end has gone).
static int par__move_all(int fd, void *bytes, size_t count, int sending, double until) {
    char *at = (char *)bytes;
    while (count) {
        const ssize_t n = sending ? send(fd, at, count, MSG_NOSIGNAL) : recv(fd, at, count, 0);
        if (n == 0) return ECONNRESET;
        if (n < 0 && errno != EAGAIN && errno != EINTR) return errno;
        if (n > 0) {
            at += n;
            count -= (size_t)n;
        }
        if (n < 0 && par__now() > until) return ETIMEDOUT;
        if (n < 0) par__tcp_poll_fd(fd, sending ? POLLOUT : POLLIN, until);
    }
    return 0;
}

// ---- the first rank

static uint64_t par__next_comm_id(par__world *w);
static par_result par__finish_part(par_comm *c, uint64_t block, uint64_t id);
static void par__end_joiner(par__tcp *t, int i) {
    close(t->joiners[i].fd);
    t->joiners[i] = t->joiners[--t->joiner_count];
}
static void par__forget_gone_joiners(par__tcp *t) { // one that waits says nothing
    char byte;
    for (int i = t->joiner_count - 1; i >= t->inviting; i--)
        if (recv(t->joiners[i].fd, &byte, 1, MSG_PEEK) >= 0 || (errno != EAGAIN && errno != EINTR))
            par__end_joiner(t, i);
}
// A process has proved that it knows the secret, and waits.
static void par__tcp_on_join_door(par__tcp *t, par__handshake *p) {
    if (p->state != PAR__HANDSHAKE_DONE || t->rendezvous) return; // it tries again
    if (t->joiner_count == PAR__JOINERS) par__forget_gone_joiners(t);
    const int room = t->joiner_count < PAR__JOINERS && t->self.places > t->self.size;
    if (!par__handshake_end(&t->door, p, room ? PAR_OK : PAR_ERR_ARGUMENT,
                            room ? "" : "that job is not elastic, or too many processes wait there"))
        return;
    par__joiner *j = &t->joiners[t->joiner_count++];
    j->fd = p->fd;
    par__handshake_proof(&t->door, p, 'l', NULL, 0, j->key);
    p->fd = -1;
}
// Open a door at this rank's own address, unless it has that of the rendezvous still. 0: it cannot.
static int par__open_join_door(par__world *w, struct sockaddr_storage *at) {
    par__tcp *t = w->tcp;
    const int listeners = t->listener_count;
    socklen_t bytes = sizeof *at;
    par__unpack_address(&t->book[w->rank], at);
    *par__port_of(at) = 0;
    if (!t->door_count && !par__tcp_listen(t, at, PAR__JOINERS)) {
        t->doors[t->door_count++] = t->listeners[listeners];
        t->host[0] = 0; // not where the ranks have met
    }
    t->listener_count = listeners;
    return t->door_count && !getsockname(t->doors[0], (struct sockaddr *)at, &bytes);
}
const char *par_join_at(par_comm *comm) {
    par__world *w = comm->world;
    par__tcp *t = w->net && w->elastic ? w->tcp : NULL;
    struct sockaddr_storage at;
    char host[sizeof t->host], port[sizeof t->port];
    if (!t || comm->rank || comm != w->whole) return "";
    par__lock_world(w);
    t->join_at[0] = 0;
    int found = par__open_join_door(w, &at);
    if (found && t->host[0] && !w->rank) {
        memcpy(host, t->host, sizeof host);
        memcpy(port, t->port, sizeof port);
    } else if (found) {
        found = !getnameinfo((struct sockaddr *)&at, par__address_bytes(&at), host, sizeof host, port,
                             sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    }
    if (found) snprintf(t->join_at, sizeof t->join_at, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    par__unlock_world(w);
    return t->join_at;
}
// Send the i-th of those that wait what it needs to be that rank, and hear where it listens. 0, or why not.
static uint64_t par__invite(par_comm *c, int i, par__guests *x, int number, double until) {
    par__world *w = c->world;
    par__tcp *t = w->tcp;
    const size_t places = (size_t)w->places, n = (size_t)(c->size + x->count),
                 bytes = par__invitation_bytes(places, n);
    par__invitation *v = (par__invitation *)par__zalloc(bytes);
    unsigned char proof[PAR__MAC_BYTES];
    par__reply ready;
    if (!v) return PAR__NO_MEMORY_LEFT;
    par__open_request s;
    memset(&s, 0, sizeof s);
    v->magic = PAR__MAGIC;
    v->bytes = bytes;
    v->job = t->self.job;
    v->session = t->session;
    v->id = x->id;
    v->stage_bytes = w->stage_bytes;
    v->world_size = w->size;
    v->rank = x->first + number;
    v->comm_size = (int32_t)n;
    v->count = x->count;
    v->named = t->self.named;
    memcpy(v->key, t->self.key, sizeof v->key);
    v->common = par__own_common_settings(w, &s);
    char *at = (char *)(v + 1);
    memcpy(at, t->book, places * sizeof *t->book);
    at += places * sizeof *t->book;
    for (int r = 0; r < (int)n; r++, at += sizeof(par__seat)) {
        const par__seat seat = par__seat_of(c, x->first, r);
        memcpy(at, &seat, sizeof seat);
    }
    memcpy(at, t->states, places);
    at += places;
    par__join_proof(t->joiners[i].key, 'i', v, bytes - PAR__MAC_BYTES, (unsigned char *)at);
    int e = par__move_all(t->joiners[i].fd, v, bytes, 1, until);
    explicit_bzero(v, bytes);
    PAR_FREE(v);
    if (!e) e = par__move_all(t->joiners[i].fd, &ready, sizeof ready, 0, until);
    if (e) return PAR__NOT_STARTED;
    par__join_proof(t->joiners[i].key, 'r', &ready, offsetof(par__reply, proof), proof);
    ready.text[sizeof ready.text - 1] = 0;
    par__sanitize(ready.text, "");
    const int family = ready.address.family;
    if (!par__mac_equal(proof, ready.proof)) return PAR__NOT_STARTED;
    if (ready.result)
        par__log_error(PAR_OK, "a process cannot join as rank %d: %s", x->first + number, ready.text);
    x->address[number] = ready.address;
    return ready.result || (family != AF_INET && family != AF_INET6) ? (uint64_t)PAR__NOT_STARTED : 0;
}
// Rank 0: who joins, or x->failed.
static void par__invite_all(par_comm *c, par__guests *x) {
    par__world *w = c->world;
    par__tcp *t = w->tcp;
    const double until = par__now() + PAR__MIN(w->timeout_s / 4, 60.0); // the other ranks wait for this one
    par__forget_gone_joiners(t);
    x->first = t->next_place;
    x->id = par__next_comm_id(w);
    x->failed = x->first + x->count > w->places ? PAR__NO_PLACE_LEFT
                : t->joiner_count < x->count    ? PAR__NOBODY_WAITS
                : x->id                         ? 0
                                                : PAR__NO_ID_LEFT;
    for (; x->invited < x->count && !x->failed; x->invited++)
        x->failed = (int32_t)par__invite(c, x->invited, x, x->invited, until);
    t->inviting = x->invited;
}
// Rank 0 tells those that it has invited whether they are in, and then where each of them listens.
static void par__end_invitations(par__world *w, const par__guests *x, par_result result) {
    par__tcp *t = w->tcp;
    par__go go;
    memset(&go, 0, sizeof go);
    go.result = (int32_t)result;
    for (int k = 0; k < x->invited; k++) go.address[k] = x->address[k];
    for (int i = x->invited - 1; i >= 0; i--) {
        par__join_proof(t->joiners[i].key, 'g', &go, offsetof(par__go, proof), go.proof);
        par__move_all(t->joiners[i].fd, &go, sizeof go, 1, par__now() + 1);
        par__end_joiner(t, i);
    }
    t->inviting = 0;
}
// They are ranks now.
static void par__admit_guests(par__world *w, const par__guests *x) {
    par__tcp *t = w->tcp;
    par__lock_world(w);
    for (int i = 0; i < x->count; i++) {
        t->book[x->first + i] = x->address[i];
        t->states[x->first + i] = PAR__RANK_RUNNING;
    }
    t->lines_due = 1;
    par__unlock_world(w);
}

// ---- the new process

// Connect to where PAR_JOIN says, and prove the secret. Returns the descriptor; after an error text -1, or -2
// where that is no address.
static int par__knock(par__tcp *t, const char *where, double until, unsigned char *key) {
    char host[256], port[16];
    const char *colon = strrchr(where, ':'), *why = "it does not answer";
    par__handshake *p = (par__handshake *)par__zalloc(sizeof *p);
    int fd = -1;
    const size_t skip = where[0] == '[';
    const size_t n = colon ? (size_t)(colon - where) - (skip && colon[-1] == ']' ? 2 : 0) : 0;
    if (!p || !n || n >= sizeof host || strlen(colon + 1) - 1 >= sizeof port - 1) {
        PAR_FREE(p);
        par__log_error(PAR_ERR_ARGUMENT, "PAR_JOIN=%.128s: it takes host:port, as par_join_at says it",
                       where);
        return -2;
    }
    snprintf(host, sizeof host, "%.*s", (int)n, where + skip);
    snprintf(port, sizeof port, "%s", colon + 1);
    for (useconds_t pause = 10000; fd < 0; usleep(pause)) {
        fd = par__tcp_connect_to(host, port, until, &why);
        if (fd >= 0 && !par__handshake_begin(&t->door, p, fd, PAR__ANY_RANK, PAR__TO_JOIN))
            while (p->state < PAR__HANDSHAKE_DONE && par__now() < until) {
                par__handshake_progress(&t->door, p);
                if (p->state < PAR__HANDSHAKE_DONE) par__tcp_poll_fd(fd, POLLIN, until);
            }
        if (fd >= 0 && p->state == PAR__HANDSHAKE_DONE) break;
        if (fd >= 0) close(fd), fd = -1, why = p->why;
        if (p->permanent || par__now() > until) break;
        pause = PAR__MIN(2 * pause, 200000u);
    }
    if (fd < 0) par__log_error(PAR_ERR_TIMEOUT, "PAR_JOIN=%.128s: cannot join there: %.300s", where, why);
    if (fd >= 0) par__handshake_proof(&t->door, p, 'l', NULL, 0, key);
    PAR_FREE(p);
    return fd;
}
// Are an invitation's seats of ranks that live, each another one; the new ranks, of which this one is, last?
static int par__are_seats(const par__invitation *v, int places) {
    const par__seat *seat = par__seats(v, places);
    const unsigned char *states = (const unsigned char *)(seat + v->comm_size);
    const int old = v->comm_size - v->count, first = seat[old].world_rank;
    if (first < v->world_size || v->rank < first || v->rank - first >= v->count) return 0;
    for (int i = 0, last = -1; i < v->comm_size; last = seat[i++].world_rank) {
        const int r = seat[i].world_rank, expected = i < old ? r : first + i - old;
        if (r <= last || r >= places || r != expected || seat[i].node < 0 || seat[i].node >= v->comm_size ||
            (i < old && (states[r] & PAR__TCP_STATE) < PAR__RANK_RUNNING))
            return 0;
    }
    return 1;
}
// Wait for the invitation, for as long as that takes. NULL: none comes; the error has been printed.
static par__invitation *par__await_invitation(int fd, const unsigned char *key, const par_desc *d) {
    par__invitation head, *v = NULL;
    unsigned char proof[PAR__MAC_BYTES];
    int e = par__move_all(fd, &head, sizeof head, 0, 1e18);
    const int places = !e && head.world_size > 0 && head.world_size <= PAR__TCP_RANK_MAX
                           ? par__arena_ranks(d, head.world_size)
                           : 0;
    int sane = places && head.magic == PAR__MAGIC && head.count > 0 && head.count <= PAR__JOINERS &&
               head.comm_size > head.count && head.comm_size <= places && head.stage_bytes >= 8192 &&
               head.stage_bytes % 4096 == 0 && head.stage_bytes >> 40 == 0 &&
               head.bytes == par__invitation_bytes((size_t)places, (size_t)head.comm_size);
    if (sane) v = (par__invitation *)PAR_MALLOC(head.bytes);
    if (v) {
        const size_t rest = head.bytes - sizeof head, signed_bytes = head.bytes - PAR__MAC_BYTES;
        memcpy(v, &head, sizeof head);
        e = par__move_all(fd, v + 1, rest, 0, par__now() + 60);
        par__join_proof(key, 'i', v, signed_bytes, proof);
        if (e || !par__mac_equal(proof, (const unsigned char *)v + signed_bytes) ||
            !(sane = par__are_seats(v, places)))
            PAR_FREE(v), v = NULL;
    }
    if (!v)
        par__log_error(e ? PAR_ERR_PEER_DIED : PAR_ERR_SYSTEM, "PAR_JOIN: %s",
                       e      ? "the job that this process waited for has ended, or its first rank has: ask "
                                "par_join_at there for the new address"
                       : sane ? "what came was altered on its way, or memory is out"
                              : "what answers there sent what no rank sends");
    return v;
}
// This process as a rank of the run, which it knows by the invitation.
static par_result par__become_rank(par__world *w, const par__invitation *v, int fd) {
    par__tcp *t = w->tcp;
    const size_t places = (size_t)w->places;
    const par__seat *seats = par__seats(v, w->places);
    const unsigned char *states = (const unsigned char *)(seats + v->comm_size);
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    t->self.job = v->job;
    t->self.named = v->named;
    t->self.rank = w->rank;
    t->self.size = w->size;
    t->self.places = w->places;
    t->session = v->session;
    par__describe_place(&t->self);
    t->door = t->self;
    if (par__load_secret(t->door.key, &t->door.secret)) return PAR_ERR_ARGUMENT;
    t->self.secret = t->door.secret;
    memcpy(t->self.key, v->key, sizeof v->key);
    t->next_place = seats[v->comm_size - 1].world_rank + 1; // of those that join together, the last one's
    memcpy(t->book, v + 1, places * sizeof *t->book);
    for (size_t i = 0; i < places; i++) {
        t->states[i] = states[i] & PAR__TCP_STATE;
        t->gone |= t->states[i] > PAR__RANK_RUNNING;
    }
    w->stage_bytes = (size_t)v->stage_bytes;
    if (getpeername(fd, (struct sockaddr *)&t->zero, &bytes))
        return par__log_error(PAR_ERR_SYSTEM, "getpeername");
    bytes = sizeof own;
    int e = getsockname(fd, (struct sockaddr *)&own, &bytes) ? errno : 0;
    *par__port_of(&own) = 0;
    if (!e) e = par__tcp_listen(t, &own, PAR__MIN(w->size + PAR__TCP_EXTRA_PENDING, 1024));
    bytes = sizeof own;
    if (!e && getsockname(t->listeners[0], (struct sockaddr *)&own, &bytes)) e = errno;
    if (e) return par__log_error(PAR_ERR_SYSTEM, "this process cannot listen: %s", par__strerror(e).text);
    par__pack_address(&own, &t->book[w->rank]);
    t->states[w->rank] = PAR__RANK_RUNNING;
    return par__arena_create(w, 0, 1, 1);
}
// What differs between this process's settings and those of the run; NULL: nothing that matters.
static const char *par__differing_setting(const par__common_settings *a, const par__common_settings *b) {
    for (int i = 0; i < PAR__COMMON_COUNT; i++) // a node's size and its stages are those of the run
        if (i != PAR__COMMON_NODES && i != PAR__COMMON_STAGE && a->hash[i] != b->hash[i])
            return par__common_names[i];
    return NULL;
}
// Answer the invitation, and wait to hear that all others are in, too. r: this process cannot be, and why.
static par_result par__accept_invitation(par__tcp *t, const par__invitation *v, int fd,
                                         const unsigned char *key, par_result r, const char *why) {
    unsigned char proof[PAR__MAC_BYTES];
    par__reply ready;
    par__go go;
    memset(&ready, 0, sizeof ready);
    ready.result = (int32_t)r;
    if (!r) ready.address = t->book[v->rank];
    snprintf(ready.text, sizeof ready.text, "%s", why);
    par__join_proof(key, 'r', &ready, offsetof(par__reply, proof), ready.proof);
    int e = par__move_all(fd, &ready, sizeof ready, 1, par__now() + 60);
    if (r) return r;
    if (!e) e = par__move_all(fd, &go, sizeof go, 0, 1e18);
    if (!e) par__join_proof(key, 'g', &go, offsetof(par__go, proof), proof);
    if (e || !par__mac_equal(proof, go.proof) || go.result)
        return par__log_error(PAR_ERR_PEER_DIED,
                              "PAR_JOIN: the par_grow that has invited this process has failed");
    const par__seat *fresh = par__seats(v, t->self.places) + v->comm_size - v->count;
    for (int k = 0; k < v->count; k++) {
        const int other = fresh[k].world_rank, family = go.address[k].family;
        if (family != AF_INET && family != AF_INET6)
            return par__log_error(PAR_ERR_SYSTEM, "PAR_JOIN: what came is no address");
        t->book[other] = go.address[k];
        t->states[other] = PAR__RANK_RUNNING;
    }
    return PAR_OK;
}
// The comm in which this process becomes a rank of a world. NULL: *r and *why say what hinders.
static par_comm *par__join_comm(par__world *w, par__open_request *s, const par__invitation *v, int fd,
                                par_result *r, const char **why, uint64_t *block) {
    const par__common_settings own = par__own_common_settings(w, s);
    const char *differs = par__differing_setting(&own, &v->common);
    *why = "see what it says itself";
    *r = par__open_rejected(s);
    if (!*r && differs)
        *r = par__log_error(PAR_ERR_ARGUMENT, "PAR_JOIN: %s differs from that of the run", *why = differs);
    if (!*r) *r = par__tcp_allocate(w);
    if (*r) return NULL;
    par__tcp_end_rendezvous(w->tcp);
    w->tcp->on_handshake = par__tcp_accept_sender;
    w->tcp->on_door = par__tcp_on_join_door;
    par__tcp_list(w->tcp);
    *r = par__become_rank(w, v, fd);
    par_comm *c = *r ? NULL
                     : par__make_joined(w, par__seats(v, w->places), v->comm_size, v->comm_size - v->count,
                                        v->id, NULL);
    *block = c ? par__alloc_block(c) : 0;
    if (!*r && !*block)
        *r = par__log_error(PAR_ERR_MEMORY, "PAR_JOIN: memory is out, or the invitation is wrong");
    return c;
}
// In a process that PAR_JOIN has sent: wait until the job grows, and be a rank of it.
__attribute__((noinline)) static par_result par__open_joined(par__open_request *s, const char *where,
                                                             par_comm **out) {
    par__tcp *door = (par__tcp *)par__zalloc(sizeof *door);
    unsigned char key[PAR__MAC_BYTES];
    par_result r = !door ? par__log_error(PAR_ERR_MEMORY, "out of memory")
                         : par__load_secret(door->door.key, &door->door.secret);
    if (!r && !s->desc.elastic)
        r = par__log_error(PAR_ERR_ARGUMENT,
                           "PAR_JOIN is set, but this program does not set par_desc.elastic");
    if (!r) door->door.rank = PAR__ANY_RANK;
    if (!r) par__describe_place(&door->door);
    const int fd = r ? -1 : par__knock(door, where, par__now() + s->desc.timeout_s, key);
    if (!r && fd < 0) r = fd == -2 ? PAR_ERR_ARGUMENT : PAR_ERR_TIMEOUT;
    if (door) explicit_bzero(&door->door, sizeof door->door);
    PAR_FREE(door);
    if (!r) par__log_error(PAR_OK, "this process waits at %.128s to be a rank of that job", where);
    par__invitation *v = r ? NULL : par__await_invitation(fd, key, &s->desc);
    if (!r && !v) r = PAR_ERR_PEER_DIED;
    par__world *w = r ? NULL : par__new_world(&s->desc, "tcp", v->rank, v->world_size);
    if (!r && !w) r = PAR_ERR_MEMORY;
    if (r) return fd >= 0 ? close(fd) : 0, PAR_FREE(v), r;
    w->net = &par__net_lines;
    par__read_algorithm_settings(w, s);
    const char *why;
    uint64_t block = 0;
    par_comm *c = par__join_comm(w, s, v, fd, &r, &why, &block);
    r = par__accept_invitation(w->tcp, v, fd, key, r, why);
    if (!r && (r = par__finish_part(c, block, v->id)) != PAR_OK) c = NULL;
    close(fd);
    explicit_bzero(v->key, sizeof v->key);
    PAR_FREE(v);
    if (r) {
        if (c) par__free_comm(c);
        par__tcp_free(w);
        par__free_world(w, 1);
        return r;
    }
    par__register_rank(w);
    par__start_lines(w);
    *out = c;
    return PAR_OK;
}

// >>launch --------------------------------------------------------------------------------------------------
//
// par_open decides how the ranks start: by its options, the launchers' variables, and MPI's state.

// Warn of variables whose names are almost those of settings, and of a rank without a size or the reverse.
static void par__warn_settings(const par__launch *l) {
    const struct par__launcher *torchrun = &par__launchers[PAR__TORCHRUN];
    const int has_rank = par__setting_text(torchrun->rank) != NULL,
              has_size = par__setting_text(torchrun->size) != NULL;
    if (l->rank == 0) par__settings_warn_misspelled(par__settings, PAR__SETTING_COUNT);
    if (l->launcher < 0 && has_rank != has_size)
        par__log_error(PAR_OK, "%s is set, but not %s: this process is not taken as started by a launcher",
                       has_rank ? torchrun->rank : torchrun->size,
                       has_rank ? torchrun->size : torchrun->rank);
}
par_result par_open(const par_desc *desc, par_comm **comm) {
    par__open_request start;
    par__launch launch;
    const char *boot = par__setting_text("PAR__BOOT");
    if (!comm) return par__log_error(PAR_ERR_ARGUMENT, "par_open: comm is NULL");
    *comm = NULL;
    par__check_desc(desc, &start);
    par__find_launch(&launch);
    if (!boot) par__warn_settings(&launch);
    par_result r;
    const char *join = boot ? NULL : par__setting_text("PAR_JOIN");
    if (join) {
        r = par__open_joined(&start, join, comm);
        return r ? r : par__start_progress((*comm)->world);
    }
#if defined(PAR_MPI)
    // Where a launcher started one process, MPI has nothing to connect: PAR_RANKS counts.
    const int several = launch.size > 1 || start.desc.rank_count <= 1 || launch.problem[0];
    int initialized;
    MPI_Initialized(&initialized);
    if (!boot && (initialized || (launch.launcher > PAR__TORCHRUN && several)))
        return par__open_launched(desc, &start, &launch, comm);
#endif
    if (!boot && launch.problem[0]) return par__log_error(PAR_ERR_ARGUMENT, "%s", launch.problem);
    if (!boot && launch.size > 1) {
        // If rank_count contradicts the launcher, the launcher did not mean this program: end before the
        // rendezvous.
        r = par__check_count(desc, &start, par__launchers[launch.launcher].name, launch.size);
        if (r) return par__open_rejected(&start);
        r = par__find_rendezvous(&launch);
        return r ? r : par__open_tcp(&start, &launch, comm);
    }
    r = par__open_rejected(&start);
    if (!r && !boot) r = par__check_second_open();
    if (!r) r = boot ? par__open_child(&start, boot, comm) : par__open_local(&start, comm);
    if (!r) {
        if ((*comm)->id == 0) par__probe_cma(*comm); // else par__join_grown has
        r = par__start_progress((*comm)->world);
    }
    return r;
}

// >>calls ---------------------------------------------------------------------------------------------------
// Each public function describes its call and runs it; a request of NULL stands for the blocking form.

par_result par_begin(par_comm *comm, const par_call *call, par_request *request) {
    par_call k = *call;
    return par__run(comm, &k, request);
}
static par_result par__call(par_comm *comm, par_request *request, par_kind kind, const void *send,
                            const size_t *send_counts, const size_t *send_displs, size_t count, void *recv,
                            const size_t *recv_counts, const size_t *recv_displs, par_dtype dtype, par_op op,
                            int root) {
    par_call k; // every member is set, without memset: every call does this
    k.kind = kind;
    k.send = send;
    k.recv = recv;
    k.count = count;
    k.dtype = dtype;
    k.op = op;
    k.root = root;
    k.send_counts = send_counts;
    k.send_displs = send_displs;
    k.recv_counts = recv_counts;
    k.recv_displs = recv_displs;
    k.tag = 0;
    k.site = NULL;
    return par__run(comm, &k, request);
}
#define PAR__UNWRAP(...) __VA_ARGS__
#define PAR__X(name, kind, parameters, arguments, ...)                                                       \
    par_result par_##name parameters { return par__call(comm, NULL, PAR_KIND_##kind, __VA_ARGS__); }         \
    par_result par_##name##_begin(PAR__UNWRAP parameters, par_request *request) {                            \
        return par__call(comm, request, PAR_KIND_##kind, __VA_ARGS__);                                       \
    }
PAR_CALLS(PAR__X)
#undef PAR__X
#undef PAR__UNWRAP

par_result par_sendrecv(const void *send, size_t send_count, int dest, void *recv, size_t recv_count,
                        int source, par_dtype dtype, par_comm *comm) {
    par_request sent;
    const char *site = comm->site;
    par_result r = par_send_begin(send, send_count, dtype, dest, comm, &sent);
    comm->site = site;
    if (r) return r;
    r = par_recv(recv, recv_count, dtype, source, comm);
    // Where the receive did not even start, the peer may never get to the end of the send.
    if (r == PAR_ERR_ARGUMENT && sent.operation) return par__break_comm(comm, r);
    const par_result ended = par_wait(&sent);
    return r ? r : ended;
}

int par_rank(const par_comm *comm) { return comm->rank; }
int par_size(const par_comm *comm) { return comm->size; }
static int par__is_rank(const par_comm *c, int rank, const char *call) {
    if (rank >= 0 && rank < c->size) return 1;
    par__set_error(c->world, PAR_ERR_ARGUMENT, "%s: there is no rank %d in comm %s, which has %d ranks", call,
                   rank, c->name, c->size);
    return 0;
}
int par_world_rank(const par_comm *comm, int rank) {
    return par__is_rank(comm, rank, "par_world_rank") ? par__world_rank(comm, rank) : -1;
}
int par_node_count(const par_comm *comm) { return comm->nodes.node_count; }
int par_node_of(const par_comm *comm, int rank) {
    return par__is_rank(comm, rank, "par_node_of") ? par__node_of(&comm->nodes, rank) : -1;
}
const char *par_launch_method(const par_comm *comm) { return comm->world->launch_method; }
void par_tag(par_comm *comm, int tag) { comm->tag = tag; }
void par_set_timeout(par_comm *comm, double seconds) {
    par__lock_world(comm->world);
    comm->world->timeout_s = seconds > 0 ? seconds : 600;
    par__unlock_world(comm->world);
}
double par_timeout(const par_comm *comm) { return comm->world->timeout_s; }
double par_seconds(const par_comm *comm) { return par__now() - comm->world->opened_at; }

par_result par_abort(par_comm *comm, const char *text) {
    par__world *w = comm->world;
    char all[sizeof w->arena->abort_text];
    snprintf(all, sizeof all, "rank %d called par_abort: %s", w->rank, text ? text : "");
    par__abort_node(w, all);
    par__lock_world(w);
    if (w->net) w->net->notify(w, PAR__NOTICE_ABORT, PAR_ERR_ABORTED, all);
    par__unlock_world(w);
    return PAR_OK;
}

// >>memory --------------------------------------------------------------------------------------------------
//
// A block of par_alloc has a part for each rank of the node, in the arena:
//     [ rank 0 ..... ][ rank 1 ..... ][ rank 2 ..... ]    par_peer adds whole parts
// Its node's leader takes it; each rank commits its part.

static int par__is_node_leader(const par_comm *c) { return par__local_index(&c->nodes, c->rank) == 0; }

// Gather `bytes` bytes of every rank on all ranks.
static par_result par__all_gather_bytes(par_comm *c, const void *mine, size_t bytes, void *all) {
    if (c->in_group)
        return par__set_error(c->world, PAR_ERR_ARGUMENT,
                              "this call cannot be part of a group: call par_group_end first");
    const char *site = c->site;
    const par_result r = par_all_gather(mine, all, bytes, PAR_U8, c);
    c->site = site; // a public call may call this several times
    return r;
}

static void par__no_shared_memory(par_comm *c, size_t bytes, int why) {
    par__set_error(c->world, PAR_ERR_MEMORY,
                   "par_alloc at %s: cannot allocate %zu bytes of shared memory for each of %d ranks: %s",
                   c->site ? c->site : "?", bytes, par__node_size(&c->nodes, c->nodes.my_node),
                   par__no_block_text(why));
}
static par_result par__vote_to_keep(par_comm *c, const char *call, par_result r, uint64_t *block);
// Commit and map this rank's part of a block: the memory comes from the NUMA node of whoever commits it.
// 0: a rank cannot. Collective. *block: where this rank has allocated it, or 0.
static int par__commit_together(par_comm *c, uint64_t at, size_t stride, size_t bytes, uint64_t *block) {
    const char *site = c->site;
    int short_of = !par__arena_touch(c->world, at, stride);
    par_result r = par_all_reduce(&short_of, &short_of, 1, PAR_I32, PAR_MAX, c);
    c->site = site;
    r = par__vote_to_keep(c, "par_alloc", r, block);
    if (!r && short_of) par__no_shared_memory(c, bytes, PAR__NO_MEMORY_LEFT);
    return !r && !short_of;
}
void *par_alloc(par_comm *c, size_t bytes) {
    const int locals = par__node_size(&c->nodes, c->nodes.my_node), large = bytes >= (size_t)4 << 20;
    const size_t align = large ? (size_t)2 << 20 : 64;
    const size_t stride = par__round_up(PAR__MAX(bytes, (size_t)1), align);
    const int leader = par__node_rank(&c->nodes, c->nodes.my_node, 0);
    par__symmetric_block *b = (par__symmetric_block *)par__zalloc(sizeof *b);
    // A node leader's offset of its node's memory, or why it has none; the bytes asked for, or UINT64_MAX
    uint64_t mine[2] = {0, b ? bytes : UINT64_MAX};
    uint64_t *all = (uint64_t *)PAR_MALLOC(sizeof mine * (size_t)c->size);
    const int fits = bytes < SIZE_MAX / 4 && stride <= SIZE_MAX / 4 / (size_t)locals;
    int failed = 0, why = 0;
    c->world->no_block = 0;
    if (par__is_node_leader(c) && fits && all && b)
        mine[0] = par__arena_alloc(c->world, (size_t)locals * stride, large ? align : 4096, c->rings_offset);
    if (!mine[0]) mine[0] = (uint64_t)par__why_no_block(c->world);
    if (!all)
        par__set_error(c->world, PAR_ERR_MEMORY, "par_alloc at %s: out of memory", c->site ? c->site : "?");
    if (!all || par__all_gather_bytes(c, mine, sizeof mine, all)) {
        if (!c->broken) par__arena_free(c->world, mine[0]); // else others may have it, until c is closed
        PAR_FREE(all);
        PAR_FREE(b);
        return (void *)NULL;
    }
    for (int r = 0; r < c->size; r++) {
        if (par__local_index(&c->nodes, r) == 0 && all[2 * r] < 4096 && !failed) why = (int)all[2 * r];
        failed |= why || all[2 * r + 1] == UINT64_MAX;
        if (all[2 * r + 1] == bytes || failed) continue;
        par__set_error(
            c->world, PAR_ERR_MISMATCH,
            "par_alloc at %s: rank %d asks for %llu bytes, rank %d for %zu: all ranks must ask for the "
            "same",
            c->site ? c->site : "?", r, (unsigned long long)all[2 * r + 1], c->rank, bytes);
        failed = 2;
        break;
    }
    if (failed == 1) par__no_shared_memory(c, bytes, why);
    const uint64_t at = all[2 * leader], own = (uint64_t)par__local_index(&c->nodes, c->rank) * stride;
    PAR_FREE(all);
    if (!failed && !par__arena_contains(c->world, at, (uint64_t)locals * stride)) {
        par__memory_corrupt(c->world, "a block at", at);
        failed = 1;
    }
    if (!failed) failed = !par__commit_together(c, at + own, stride, bytes, &mine[0]);
    if (failed) {
        if (!c->broken) par__arena_free(c->world, mine[0]); // else others may have it, until c is closed
        PAR_FREE(b);
        return (void *)NULL;
    }
    b->base = c->world->base + at;
    b->stride = stride;
    b->next = c->blocks;
    c->blocks = b;
    return b->base + (size_t)par__local_index(&c->nodes, c->rank) * stride;
}

static par__symmetric_block **par__find_symmetric_block(par_comm *c, const void *mine) {
    for (par__symmetric_block **b = &c->blocks; *b; b = &(*b)->next) {
        const char *own = (*b)->base + (size_t)par__local_index(&c->nodes, c->rank) * (*b)->stride;
        if ((const char *)mine >= own && (const char *)mine < own + (*b)->stride) return b;
    }
    return NULL;
}

par_result par_free(par_comm *c, void *memory) {
    if (!memory) return PAR_OK;
    par__symmetric_block **link = par__find_symmetric_block(c, memory), *b = link ? *link : NULL;
    if (!b)
        return par__set_error(c->world, PAR_ERR_ARGUMENT,
                              "par_free at %s: %p is not from par_alloc on comm %s, or was freed before",
                              c->site ? c->site : "?", memory, c->name);
    const char *own = b->base + (size_t)par__local_index(&c->nodes, c->rank) * b->stride;
    if ((const char *)memory != own)
        return par__set_error(
            c->world, PAR_ERR_ARGUMENT,
            "par_free at %s: %p is %td bytes into a block: pass the pointer that par_alloc returned",
            c->site ? c->site : "?", memory, (const char *)memory - own);
    if (c->in_group)
        return par__set_error(c->world, PAR_ERR_ARGUMENT,
                              "par_free within a group: call par_group_end first");
    const par_result r = par_barrier(c);
    if (!r && par__is_node_leader(c)) par__arena_free(c->world, (uint64_t)(b->base - c->world->base));
    *link = b->next;
    PAR_FREE(b);
    return r;
}

void *par_peer(par_comm *c, const void *mine, int rank) {
    par__symmetric_block **b = par__find_symmetric_block(c, mine);
    if (!b || rank < 0 || rank >= c->size || !par__is_local(c, rank)) return NULL;
    const ptrdiff_t distance = par__local_index(&c->nodes, rank) - par__local_index(&c->nodes, c->rank);
    return (*b)->base + ((const char *)mine - (*b)->base) + distance * (ptrdiff_t)(*b)->stride;
}

// ---- signals

// The word of rank's block that corresponds to `mine`.
static par_result par__remote_word(par_comm *c, const char *call, const uint64_t *mine, int rank,
                                   uint64_t **word) {
    par__symmetric_block **link = par__find_symmetric_block(c, mine), *b = link ? *link : NULL;
    if (!par__is_rank(c, rank, call)) return PAR_ERR_ARGUMENT;
    if (!b)
        return par__set_error(c->world, PAR_ERR_ARGUMENT,
                              "%s: the word at %p is not in this rank's memory of par_alloc on comm %s", call,
                              (const void *)mine, c->name);
    if (!par__is_local(c, rank))
        return par__set_error(c->world, PAR_ERR_UNSUPPORTED,
                              "%s: rank %d is on another node than rank %d: send it a message", call, rank,
                              c->rank);
    if ((uintptr_t)mine % sizeof *mine)
        return par__set_error(c->world, PAR_ERR_ARGUMENT, "%s: the word at %p is not aligned to 8 bytes",
                              call, (const void *)mine);
    *word = (uint64_t *)par_peer(c, mine, rank);
    return PAR_OK;
}
par_result par_signal(uint64_t *word, uint64_t value, int rank, par_comm *comm) {
    uint64_t *at;
    const par_result r = par__remote_word(comm, "par_signal", word, rank, &at);
    if (r) return r;
    __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
    par__ring_doorbells(comm, rank);
    return PAR_OK;
}

typedef struct par__word_wait { // until a word is at least `value`
    par_comm *comm;
    uint64_t *word, value;
    const char *site;
    double start; // when it was first checked; 0: not yet
} par__word_wait;
static int par__word_ready(void *wait) {
    const par__word_wait *x = (const par__word_wait *)wait;
    return PAR__LOAD(x->word) >= x->value;
}
static par_result par__check_word(void *wait) { // as par__check_wait
    par__word_wait *x = (par__word_wait *)wait;
    par_comm *c = x->comm;
    par__world *w = c->world;
    char waiting[128];
    int had_error;
    const par_result alarm = par__check_comm(c);
    if (alarm) return alarm;
    snprintf(waiting, sizeof waiting, "in par_wait_signal at %s", x->site);
    par__scan_ranks(w);
    for (int pass = w->net || PAR__LOAD(&w->arena->gone) ? 2 : 0; pass > 0; pass--)
        for (int r = 0; r < c->size; r++) {
            const int how = r == c->rank ? 0 : par__rank_gone(c, r, 0, &had_error);
            if (how < pass) continue;
            if (par__word_ready(x)) return PAR_OK; // it may have done its part before
            const par_result gone = par__rank_gone_error(c, r, how, had_error, waiting);
            if (gone) return gone;
        }
    int r = c->rank ? 0 : 1; // another rank, if all others of the node, which alone can write, have closed
    while (r < c->size && (r == c->rank || !par__is_local(c, r))) r++;
    if (r < c->size && (int)PAR__LOAD(&c->board->closed) == par__node_size(&c->nodes, c->nodes.my_node) - 1)
        return par__word_ready(x) ? PAR_OK : par__closed_error(c, r, waiting);
    const double now = par__now();
    if (x->start == 0) x->start = now;
    if (now - x->start < w->timeout_s) return PAR_OK;
    return par__set_error(
        w, PAR_ERR_TIMEOUT,
        "rank %d waited %.1f s in par_wait_signal at %s on comm %s: the word is %llu, it waits for %llu",
        c->rank, now - x->start, x->site, c->name, (unsigned long long)PAR__LOAD(x->word),
        (unsigned long long)x->value);
}
par_result par_wait_signal(const uint64_t *word, uint64_t value, par_comm *comm) {
    par__word_wait x;
    memset(&x, 0, sizeof x);
    par_result r = par__remote_word(comm, "par_wait_signal", word, comm->rank, &x.word);
    if (r) return r;
    r = par__check_comm(comm);
    x.comm = comm;
    x.value = value;
    x.site = comm->site ? comm->site : "?";
    comm->site = NULL;
    if (!r) r = par__wait_until(comm->world, par__word_ready, par__check_word, &x, 1000000);
    return r ? par__break_comm(comm, r) : PAR_OK;
}

// >>split ---------------------------------------------------------------------------------------------------

typedef struct par__member {
    int32_t color, key, rank;
} par__member;

static int par__compare_members(const void *a, const void *b) {
    const par__member *x = (const par__member *)a, *y = (const par__member *)b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

// A new comm of some ranks of a comm, in two steps, between which its ranks tell each other their parts:
//     all ranks      par__begin_part    the private part of the comm; leaders: its shared memory
//     all ranks      gather the parts
//     all ranks      par__end_part      or, where one has failed, par__drop_part
typedef struct par__part {
    uint64_t block;  // where this rank has allocated it for those of its arena; 0: not this rank
    uint64_t failed; // why this rank cannot take part; 0: it can
    uint64_t id;     // a number for the comm that no other comm of this world has
} par__part;

// The first of the ranks of c that share this rank's arena: it allocates the block.
static int par__rings_owner(const par_comm *c) {
    int r = 0;
    while (par__ring_index(c, r) < 0) r++;
    return r;
}
// A number that no other rank gives to a comm: each rank counts in steps of as many ranks as there can be.
static uint64_t par__next_comm_id(par__world *w) {
    const uint64_t step = (uint64_t)w->places;
    const uint64_t id = (uint64_t)w->next_id * step + (uint64_t)w->rank + 1;
    if (id >= par__comm_ids(w)) return 0;
    w->next_id++;
    return id;
}
// Which comms' revocation is that of c, too: those of which its parent is a part, and, if `split`, the
// parent.
static int par__set_lineage(par_comm *c, const par_comm *parent, int split) { // 0: out of memory
    const size_t n = (size_t)(parent->lineage_count + split);
    c->lineage = n ? (uint64_t *)PAR_MALLOC(n * sizeof *c->lineage) : NULL;
    if (n && !c->lineage) return 0;
    if (parent->lineage_count)
        memcpy(c->lineage, parent->lineage, (size_t)parent->lineage_count * sizeof *c->lineage);
    if (split) c->lineage[n - 1] = par__comm_key(parent);
    c->lineage_count = (int)n;
    return 1;
}
// The private part of a comm of ranks[0 .. n-1] of the parent. NULL: out of memory.
static par_comm *par__make_part_comm(const par_comm *parent, const int *ranks, int n) {
    int *ints = (int *)PAR_MALLOC(sizeof(int) * 4 * (size_t)n), nodes = 0, me = 0;
    if (!ints) return NULL;
    int *world = ints, *node_of = ints + n, *arena = ints + 2 * n, *old = ints + 3 * n; // parent's node
    for (int i = 0; i < n; i++) {
        const int node = par__node_of(&parent->nodes, ranks[i]);
        int j = 0;
        while (j < nodes && old[j] != node) j++;
        if (j == nodes) old[nodes++] = node;
        world[i] = par__world_rank(parent, ranks[i]);
        arena[i] = par__arena_index(parent, ranks[i]);
        node_of[i] = j;
        if (ranks[i] == parent->rank) me = i;
    }
    par_comm *c = par__make_comm(parent->world, 0, me, n, world, node_of, arena);
    PAR_FREE(ints);
    if (c) c->epoch = parent->epoch;
    if (c && parent->world->elastic && !par__set_lineage(c, parent, 1))
        return par__free_comm(c), (par_comm *)NULL;
    return c;
}
// ranks: of the parent, of whom this rank is one. *mine: this rank's part. NULL: it has failed.
static par_comm *par__begin_part(const par_comm *parent, const int *ranks, int n, par__part *mine) {
    par__world *w = parent->world;
    if (w->closed) par__release_closed(w);
    par_comm *c = par__make_part_comm(parent, ranks, n);
    if (!c) mine->failed = PAR__NO_MEMORY_LEFT;
    if (!c || par__rings_owner(c) != c->rank) return c;
    mine->block = par__alloc_block(c);
    if (!mine->block) mine->failed = (uint64_t)par__why_no_block(w);
    return c;
}
static void par__drop_part(par_comm *c, const par__part *mine) {
    if (!c) return;
    par__arena_free(c->world, mine->block);
    par__free_comm(c);
}
// The rest of a comm whose block and number are known. An error: c is freed.
static par_result par__finish_part(par_comm *c, uint64_t block, uint64_t id) {
    const uint64_t board = block + par__board_place(c, c->nodes.my_node),
                   rings = block + par__board_place(c, c->nodes.node_count);
    const int numbered = id && id < par__comm_ids(c->world);
    if (!numbered) par__memory_corrupt(c->world, "the number of a comm", id);
    if (!numbered || !par__comm_offsets_valid(c, board, rings)) return par__free_comm(c), PAR_ERR_SYSTEM;
    if (c->world->elastic) par__arena_set_users(c->world, block, rings); // each rank: any may die
    par__set_comm_id(c, (uint32_t)id);
    par__map_comm(c, board, rings);
    return PAR_OK;
}
// parts[i]: of rank i of the parent, which has rank r of the new comm at places[r]; places NULL: of the new
// comm.
static par_result par__end_part(par_comm *c, const par__part *parts, const int *places, uint64_t id) {
    const int owner = par__rings_owner(c);
    return par__finish_part(c, parts[places ? places[owner] : owner].block, id);
}
static const char *par__part_failure(uint64_t why) {
    if (why == PAR__NO_ID_LEFT)
        return "the numbers that comms of this world can have are used up: split once, and keep the comms";
    if (why == PAR__NO_PLACE_LEFT) return "the job has used up its places for new ranks (LIMITS)";
    if (why == PAR__NOBODY_WAITS)
        return "fewer processes wait than are to be added: start them with PAR_JOIN, as par_join_at says";
    return why == PAR__NOT_STARTED ? "a new rank did not start" : par__no_block_text((int)why);
}

// The ranks of this rank's color, in their order in the new comm.
static par_result par__gather_members(par_comm *comm, int color, int key, par__member *all, int *ranks,
                                      int *n) {
    par__member mine;
    mine.color = color;
    mine.key = key;
    mine.rank = comm->rank;
    par_result r = par__all_gather_bytes(comm, &mine, sizeof mine, all);
    for (int i = 0; i < comm->size && !r; i++) {
        if (all[i].rank != i) r = par__memory_corrupt(comm->world, "the rank", (uint64_t)all[i].rank);
        if (color >= 0 && all[i].color == color) all[(*n)++] = all[i];
    }
    if (*n) qsort(all, (size_t)*n, sizeof *all, par__compare_members);
    for (int i = 0; i < *n; i++) ranks[i] = all[i].rank;
    return r;
}
// Gather the parts of all colors. An error: one has failed, and c is freed.
static par_result par__agree_on_parts(par_comm *comm, par_comm *c, par__part *mine, par__part *parts) {
    par_result r = par__all_gather_bytes(comm, mine, sizeof *mine, parts);
    uint64_t failed = 0;
    for (int i = 0; i < comm->size && !r && !failed; i++) failed = parts[i].failed;
    if (failed)
        r = par__set_error(comm->world, PAR_ERR_MEMORY, "par_split at %s: no memory for the new comms: %s",
                           comm->site ? comm->site : "?", par__part_failure(failed));
    r = par__vote_to_keep(comm, "par_split", r, &mine->block);
    if (r) par__drop_part(c, mine);
    return r;
}
par_result par_split(par_comm *comm, int color, int key, par_comm **out) {
    par__world *w = comm->world;
    const size_t each = sizeof(par__member) + sizeof(par__part) + sizeof(int);
    par__part mine, *parts = (par__part *)PAR_MALLOC(each * (size_t)comm->size);
    par__member *all = (par__member *)(void *)(parts + comm->size);
    int *ranks = (int *)(void *)(all + comm->size), n = 0;
    *out = NULL;
    if (!parts) return par__set_error(w, PAR_ERR_MEMORY, "par_split: out of memory");
    memset(&mine, 0, sizeof mine);
    par_result r = par__gather_members(comm, color, key, all, ranks, &n);
    par_comm *c = r || color < 0 ? NULL : par__begin_part(comm, ranks, n, &mine);
    if (!r && !comm->rank && !mine.failed && (mine.id = par__next_comm_id(w)) == 0)
        mine.failed = PAR__NO_ID_LEFT; // the comms of all colors have one number
    if (!r) r = par__agree_on_parts(comm, c, &mine, parts);
    if (!r && c) r = par__end_part(c, parts, ranks, parts[0].id);
    if (!r) *out = c;
    PAR_FREE(parts);
    if (!r && comm->backend && !comm->splitting_host) {
        const par__caller caller = w->caller;
        par__enter_layer(comm, comm->site); // the call site of the backend's own messages
        r = comm->backend->split(comm->backend, color, key, c);
        w->caller = caller;
    }
    return r;
}

// Split off a comm that has no backend, for a backend's own messages.
par_result par_split_host(par_comm *comm, int color, int key, par_comm **out) {
    comm->splitting_host = 1;
    const par_result r = par_split(comm, color, key, out);
    return comm->splitting_host = 0, r;
}

// >>elastic -------------------------------------------------------------------------------------------------
//
// How the survivors of a death go on. They vote: each writes a value and the number of the vote into its
// slot; who finds a rank dead that has not voted writes, by the same compare-and-swap, that it is absent:
//     rank 0    voted 5      rank 1    voted 7      rank 2    absent      rank 3    voted 5
// A slot changes once in a vote. So when all slots have changed every survivor reads the same, and who dies
// after it has voted counts. A rank has two slots: nobody begins vote v + 2 before all have read those of v.
//     par_shrink   vote: who is there --> the first of them allocates a comm of them --> vote: where it is
//     par_grow     rank 0 says where the comm is, and who is in it --> new ranks join --> vote: it is there
//     par_split, par_alloc: all that they do --> vote: it has worked here
// Where the first one dies before it has voted, the next one allocates. What the dead had allocated and no
// rank has learned of is freed then, and what only the dead used.

typedef struct par__ballot {
    par_comm *comm;
    uint64_t state;               // of who has voted
    const unsigned char *counted; // per rank: its vote is waited for
    double since;
} par__ballot;

static par__vote *par__vote_of(const par__ballot *b, int r) {
    return &b->comm->rings->user[r].votes[(b->state >> 8) & 1u];
}
static int par__vote_is_cast(const par__ballot *b, int r) {
    return PAR__LOAD(&par__vote_of(b, r)->state) >> 8 == b->state >> 8;
}
static int par__votes_are_cast(void *ballot) {
    const par__ballot *b = (const par__ballot *)ballot;
    for (int r = 0; r < b->comm->size; r++)
        if (b->counted[r] && !par__vote_is_cast(b, r)) return 0;
    return 1;
}
// Cast a vote. 0: another one was cast before.
static int par__cast_vote(const par__ballot *b, int r, uint64_t state) {
    par__vote *v = par__vote_of(b, r);
    uint64_t seen = PAR__LOAD(&v->state);
    if (seen >> 8 == state >> 8) return 0;
    return __atomic_compare_exchange_n(&v->state, &seen, state, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static par_result par__check_votes(void *ballot) {
    par__ballot *b = (par__ballot *)ballot;
    par_comm *c = b->comm;
    par__world *w = c->world;
    const double now = par__now();
    int missing = -1;
    if (b->since == 0) b->since = now;
    const int late = now - b->since > w->timeout_s;
    if (par__is_aborted(w->arena)) return par__set_error(w, PAR_ERR_ABORTED, "%s", par__abort_text(w).at);
    for (int r = 0; r < c->size; r++) {
        if (!b->counted[r] || par__vote_is_cast(b, r)) continue;
        const int i = par__arena_index(c, r);
        if (late) par__condemn(c, r, "for its vote");
        const int left = PAR__LOAD(&c->rings->user[r].released) != 0; // it has closed the comm
        if (left || (par__peer_dead(w, i) && par__kill_rank(&w->arena->ranks[i])))
            par__cast_vote(b, r, (b->state & ~(uint64_t)15) | PAR__VOTED_ABSENT);
        else
            missing = r;
    }
    return !late || missing < 0
               ? PAR_OK
               : par__set_error(w, PAR_ERR_TIMEOUT, "rank %d waited %g s for rank %d of comm %s to vote",
                                c->rank, w->timeout_s, missing, c->name);
}
// All ranks are on this node.
static par_result par__vote_in_slots(par_comm *c, uint64_t state, const uint64_t value[2],
                                     const unsigned char *counted) {
    par__ballot b;
    memset(&b, 0, sizeof b);
    b.comm = c;
    b.counted = counted;
    b.state = state;
    par__vote *mine = par__vote_of(&b, c->rank);
    if (!par__vote_is_cast(&b, c->rank)) memcpy(mine->value, value, sizeof mine->value);
    if (!par__cast_vote(&b, c->rank, b.state))
        return par__set_error(c->world, PAR_ERR_PEER_DIED,
                              "the other ranks of comm %s took rank %d for dead, and have gone on without it",
                              c->name, c->rank);
    par__wake_sleepers(c, -1);
    if (!counted) return PAR_OK;
    par_result r = PAR__LOAD(&c->world->arena->gone) ? par__check_votes(&b) : PAR_OK; // of ranks known dead
    return r ? r : par__wait_until(c->world, par__votes_are_cast, par__check_votes, &b, 1000000);
}
static const par__vote *par__last_vote(const par_comm *c, int r) {
    return c->cast ? &c->cast[r] : &c->rings->user[r].votes[c->votes & 1u];
}
static const uint64_t *par__vote_value(const par_comm *c, int r) { return par__last_vote(c, r)->value; }
// Vote in a call of this kind. counted: per rank, whether it can be there; on return, whether it was; NULL:
// this rank does not ask how the others vote. Collective over the survivors. Errors: MISMATCH on all of them
// (they are in different calls), TIMEOUT, ABORTED.
static par_result par__hold_vote(par_comm *c, int kind, const uint64_t value[2], unsigned char *counted) {
    const uint64_t state = (uint64_t)++c->votes << 8 | (uint64_t)kind | PAR__VOTED;
    int differ = 0, keeps = 0;
    const par_result r = c->ring_count == c->size ? par__vote_in_slots(c, state, value, counted)
                                                  : par__vote_by_lines(c, state, value, counted);
    for (int q = 0; q < c->size && !r && counted; q++) {
        const uint64_t cast = PAR__LOAD(&par__last_vote(c, q)->state);
        if (counted[q]) differ |= (int)((cast ^ state) & 0xf0);
        if (counted[q]) keeps |= (cast & 0xf0) == PAR__KEEPS || (cast & 0xf0) == PAR__GROWS;
        counted[q] &= (cast & 15) == PAR__VOTED;
    }
    if (keeps && kind != PAR__KEEPS && kind != PAR__GROWS)
        return par__hold_vote(c, kind, value, counted); // they come by the next
    if (differ)
        return par__set_error(
            c->world, PAR_ERR_MISMATCH,
            "some ranks of comm %s called par_agree, some par_shrink: make the same calls on all", c->name);
    return r;
}

// The end of a call that makes something for all ranks of c, behind two collectives: in an elastic world all
// survivors have it, or none. r: of the last collective here. *block: 0 on return where this rank must not
// free it, because others may have it.
// A rank that has met a death votes, and waits for nobody: who has met none waits for its vote, and then all
// ranks had come to the last collective, so each votes or dies. None who waits is waited for elsewhere. Where
// all have met one, some of them before this call, numbers of votes differ by one: par__hold_vote lets those
// in other calls vote again. A comm that is broken here is not voted on so a second time; and all ranks had
// come to the first collective, so they have read the vote before: slots stay valid until all have read them.
static par_result par__vote_to_keep(par_comm *c, const char *call, par_result r, uint64_t *block) {
    par__world *w = c->world;
    uint64_t mine[2] = {(uint64_t)r, 0};
    if (!w->elastic || (r && !c->broken)) return r; // an error of all ranks
    unsigned char *counted = r ? NULL : (unsigned char *)PAR_MALLOC((size_t)c->size);
    if (!r && !counted) {
        r = par__break_comm(c, par__set_error(w, PAR_ERR_MEMORY, "%s: out of memory", call));
        mine[0] = (uint64_t)r;
    }
    if (r) {
        par__hold_vote(c, PAR__KEEPS, mine, NULL);
        return par__repeat_error(c);
    }
    memset(counted, 1, (size_t)c->size);
    r = par__hold_vote(c, PAR__KEEPS, mine, counted);
    if (r) *block = 0;
    for (int q = 0; q < c->size && !r; q++) {
        const uint64_t said = counted[q] ? par__vote_value(c, q)[0] : (uint64_t)PAR_ERR_PEER_DIED;
        if (said)
            r = par__set_error(
                w, said < PAR_RESULT_COUNT ? (par_result)said : PAR_ERR_SYSTEM,
                "%s at %s: it has failed on rank %d of comm %s, so no rank has what it makes: %s", call,
                c->site ? c->site : "?", q, c->name, par_result_text((par_result)said));
    }
    PAR_FREE(counted);
    return r;
}

// May this rank make such a call on a comm?
static par_result par__check_elastic(par_comm *c, const char *call) {
    par__world *w = c->world;
    if (!w->elastic)
        return par__set_error(w, PAR_ERR_UNSUPPORTED,
                              "%s: the world is not elastic: set par_desc.elastic for par_open", call);
    if (c->in_group) return par__set_error(w, PAR_ERR_ARGUMENT, "%s: call par_group_end first", call);
    return PAR_OK;
}

// Enter a comm among the revoked ones of this node. 0: there is no room.
static int par__enter_revoked(par__world *w, uint64_t entry) {
    par__arena *a = w->arena;
    uint64_t i = 0, seen = 0;
    for (; i < PAR__REVOKED_MAX; i++) {
        seen = PAR__LOAD(&a->revoked[i]);
        if (!seen &&
            __atomic_compare_exchange_n(&a->revoked[i], &seen, entry, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            break;
        if (seen && par__entry_key(seen) == par__entry_key(entry)) break; // another rank has
    }
    if (i == PAR__REVOKED_MAX) return 0;
    uint64_t alarms = PAR__LOAD(&a->alarms);
    while (alarms >> 32 <= i &&
           !__atomic_compare_exchange_n(&a->alarms, &alarms, (i + 1) << 32 | (uint32_t)alarms, 0,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    par__ring_all(w);
    return 1;
}
par_result par_revoke(par_comm *comm) {
    par_comm *c = comm;
    par__world *w = c->world;
    const par_result r = par__check_elastic(c, "par_revoke");
    if (r) return r;
    if (!par__enter_revoked(w, par__comm_key(c) | (uint64_t)(w->rank + 1) << PAR__KEY_BITS))
        return par__set_error(w, PAR_ERR_MEMORY,
                              "par_revoke: %d comms of this job have been revoked, and no more can be",
                              (int)PAR__REVOKED_MAX);
    w->polled_at = 0;
    par__poll_net(w, par__now()); // tells the other nodes
    return PAR_OK;
}

par_result par_agree(par_comm *comm, uint64_t *value) {
    par_result r = par__check_elastic(comm, "par_agree");
    uint64_t mine[2] = {*value, 0}, all = UINT64_MAX;
    int absent = -1;
    unsigned char *counted = r ? NULL : (unsigned char *)PAR_MALLOC((size_t)comm->size);
    if (!r && !counted) r = par__set_error(comm->world, PAR_ERR_MEMORY, "par_agree: out of memory");
    if (counted) memset(counted, 1, (size_t)comm->size);
    if (!r) r = par__hold_vote(comm, PAR__AGREES, mine, counted);
    for (int q = 0; q < comm->size && !r; q++)
        if (counted[q])
            all &= par__vote_value(comm, q)[0];
        else if (absent < 0)
            absent = q;
    PAR_FREE(counted);
    if (r) return r;
    *value = all;
    return absent < 0 ? PAR_OK
                      : par__set_error(comm->world, PAR_ERR_PEER_DIED,
                                       "rank %d of comm %s died before it agreed: call par_shrink", absent,
                                       comm->name);
}

// Nobody has died or revoked it, as far as this rank can find.
static int par__is_healthy(par_comm *c) {
    for (int r = 0; r < c->size; r++) {
        const int i = par__arena_index(c, r);
        if (i < 0 ? par__remote_state(c->world, par__world_rank(c, r)) != PAR__RANK_RUNNING
                  : par__peer_dead(c->world, i))
            return 0;
    }
    return !c->broken && !par__find_revoked(c, NULL);
}
static int par__is_of(const par_comm *c, const par_comm *comm) { // c is comm, or was split from it
    int is = c == comm;
    for (int i = 0; i < c->lineage_count; i++) is |= c->lineage[i] == par__comm_key(comm);
    return is;
}
// End what this rank has begun on a comm, or on those split from it: its calls fail, and write no memory of
// another rank from here on. Error: a device's.
static par_result par__end_calls(par_comm *comm) {
    par__world *w = comm->world;
    par_result r = PAR_OK;
    for (par_comm *c = w->comms; c && !r; c = c->next)
        if (c->backend && c->backend->stop && par__is_of(c, comm)) r = c->backend->stop(c->backend);
    par__lock_world(w);
    for (par__operation *op = w->active, *next; op; op = next) {
        par_comm *c = op->comm;
        next = op->next;
        if (!par__is_of(c, comm) || op->state == PAR__DONE) continue;
        if (!c->broken) par__find_revoked(c, par__op_site(op));
        par__abandon_operation(op, c->broken ? c->broken : PAR_ERR_REVOKED);
        next = w->active;
    }
    par__unlock_world(w);
    return r;
}

// Of an extent: the rank that has allocated it has died, and no other knows of it; or its users have gone.
static int par__is_orphan(const par__world *w, const par__extent *extent, uint64_t unused) {
    (void)unused;
    const uint64_t owner = extent->users >> 1;
    if (extent->users & 1u) return owner < (uint64_t)w->local_count && par__known_dead(w, (int)owner);
    return extent->users && par__have_no_users(w, extent->users);
}

// The arena of a rank of a comm, counted from 0. Where nodes are pretended, all may have one.
static int par__arena_of(const par_comm *c, int r) {
    return c->ring_count == c->size ? 0 : par__node_of(&c->nodes, r);
}
// In each arena the first survivor allocates the comm, and they vote on where it is, and on its number; until
// in each of them one has voted that could allocate.
static par_result par__place_shrunk(par_comm *comm, par_comm *c, const int *ranks, unsigned char *counted,
                                    uint64_t *block, uint64_t *id) {
    par__world *w = comm->world;
    const size_t arenas = (size_t)c->nodes.node_count;
    const int own = par__arena_of(c, c->rank);
    uint64_t *at = (uint64_t *)par__zalloc(2 * sizeof *at * arenas), *turn = at + arenas;
    uint64_t mine[2] = {0, 0}, failed = 0, held = 0;
    par_result r = at ? PAR_OK : par__set_error(w, PAR_ERR_MEMORY, "par_shrink: out of memory");
    for (int missing = 1; missing && !r;) {
        memset(turn, 0, sizeof *turn * arenas); // whose it is in each, + 1
        for (int i = c->size; i-- > 0;)
            if (counted[ranks[i]]) turn[par__arena_of(c, i)] = (uint64_t)i + 1;
        mine[0] = mine[1] = 0;
        if (!at[own] && turn[own] == (uint64_t)c->rank + 1) {
            if (comm == w->whole) par__arena_free_if(w, par__is_orphan, 0);
            mine[0] = held = par__alloc_block(c);
            mine[1] = par__next_comm_id(w);
            if (!held) mine[0] = (uint64_t)par__why_no_block(w);
            if (held && !mine[1]) mine[0] = PAR__NO_ID_LEFT;
        }
        r = par__hold_vote(comm, PAR__SHRINKS, mine, counted);
        missing = 0;
        for (int i = 0; i < c->size && !r; i++) {
            const uint64_t *said = par__vote_value(comm, ranks[i]);
            uint64_t *here = &at[par__arena_of(c, i)];
            if (!counted[ranks[i]]) continue;
            if (said[0] && !*here) *here = said[0];
            if (said[0] && said[0] < 4096) failed = said[0];
            if (!*id) *id = said[1];
        }
        for (int i = 0; i < c->size && !r; i++) missing |= counted[ranks[i]] && !at[par__arena_of(c, i)];
    }
    *block = r ? 0 : at[own];
    PAR_FREE(at);
    if (failed && !r)
        r = par__set_error(w, PAR_ERR_MEMORY, "par_shrink: no memory for the new comm: %s",
                           par__part_failure(failed));
    if (failed) par__arena_free(w, held);
    return r;
}
// counted: who has survived. ranks: the same, in order; `n` of them.
static par_result par__make_shrunk(par_comm *comm, const int *ranks, int n, unsigned char *counted,
                                   par_comm **out) {
    par__world *w = comm->world;
    par_comm *c = par__make_part_comm(comm, ranks, n);
    int *before = (int *)PAR_MALLOC(sizeof(int) * (size_t)n);
    uint64_t block = 0, id = 0;
    if (!c || !before) { // the others wait for a vote, and must not get one: this rank is as good as dead
        PAR_FREE(before);
        if (c) par__free_comm(c);
        return par__set_error(w, PAR_ERR_MEMORY, "par_shrink: out of memory: this rank must end");
    }
    memcpy(before, ranks, sizeof(int) * (size_t)n);
    c->before = before;
    if (c->lineage_count) c->lineage_count--; // what is revoked is no ancestor
    par_result r = par__place_shrunk(comm, c, ranks, counted, &block, &id);
    if (r) return par__free_comm(c), r;
    c->epoch = (uint32_t)id;
    r = par__finish_part(c, block, id);
    if (r) return r;
    if (comm == w->whole) par__set_whole(c);
    *out = c;
    return PAR_OK;
}
par_result par_shrink(par_comm *comm, par_comm **out) {
    par_result r = par__check_elastic(comm, "par_shrink");
    const uint64_t nothing[2] = {0, 0};
    int n = 0;
    *out = NULL;
    if (!r && par__is_healthy(comm))
        r = par__set_error(
            comm->world, PAR_ERR_ARGUMENT,
            "par_shrink: no rank of comm %s has died, and nobody has revoked it: use par_split", comm->name);
    if (!r) r = par_revoke(comm);
    if (r) return r;
    const size_t size = (size_t)comm->size;
    int *ranks = (int *)PAR_MALLOC(size * (sizeof *ranks + 1));
    unsigned char *counted = (unsigned char *)(ranks + size);
    if (!ranks)
        return par__set_error(comm->world, PAR_ERR_MEMORY, "par_shrink: out of memory: this rank must end");
    memset(counted, 1, size);
    r = par__end_calls(comm);
    if (!r) r = par__hold_vote(comm, PAR__SHRINKS, nothing, counted);
    for (int q = 0; q < comm->size && !r; q++)
        if (counted[q]) ranks[n++] = q;
    if (!r) r = par__make_shrunk(comm, ranks, n, counted, out);
    PAR_FREE(ranks);
    return r;
}

typedef struct par__newcomers { // the comm that new ranks join
    uint64_t block, id;
    int32_t size, count;   // of all ranks; of the new ones, which are the last
    int32_t first, failed; // the first one's number in the world, and in the arena; why there are none
    int32_t world_rank[1]; // of the others
} par__newcomers;
static size_t par__newcomers_bytes(int size) {
    return sizeof(par__newcomers) + sizeof(int32_t) * (size_t)size;
}

// The comm, as each of its ranks makes it: those before in their order, then the new ones. On a pretended
// node are the ranks whose numbers in the world would be there at the start.
static par_comm *par__make_grown(par__world *w, const par__newcomers *x) {
    const int old = x->size - x->count;
    int *ints = (int *)PAR_MALLOC(sizeof(int) * 3 * (size_t)x->size), nodes = 0;
    if (!ints) return NULL;
    int *world = ints, *node_of = ints + x->size, *node = ints + 2 * x->size;
    for (int r = 0; r < x->size; r++) {
        int j = 0;
        world[r] = r < old ? x->world_rank[r] : x->first + r - old;
        const int on = w->node_ranks < w->size ? world[r] / w->node_ranks : 0;
        while (j < nodes && node[j] != on) j++;
        if (j == nodes) node[nodes++] = on;
        node_of[r] = j;
    }
    par_comm *c = par__make_larger(w, x->id, x->size, old, world, node_of, world);
    PAR_FREE(ints);
    return c;
}
static void par__set_pids(const par_comm *c) {
    const par__world *w = c->world;
    for (int r = 0; r < c->size && w->pids; r++)
        w->pids[par__arena_index(c, r)] = w->arena->ranks[par__arena_index(c, r)].pid;
}
enum { PAR__ADMITTED = 1, PAR__REFUSED };
// Wait until one of the `old` first ranks of a comm says that this new one is in.
static void par__release_shared(par_comm *c);
static par_result par__await_admission(par_comm *c, int old) {
    par__world *w = c->world;
    const double until = par__now() + w->timeout_s;
    uint32_t how;
    while ((how = PAR__LOAD(&w->control->admitted)) == 0 && par__now() < until) {
        int alive = 0;
        par__futex_wait(&w->control->admitted, 0, 20000000);
        for (int r = 0; r < old; r++) alive += !par__peer_dead(w, par__arena_index(c, r));
        if (!alive && !PAR__LOAD(&w->control->admitted)) break;
    }
    if (how == PAR__ADMITTED) return PAR_OK;
    par__release_shared(c);
    return par__log_error(PAR_ERR_PEER_DIED, "rank %d was started by a par_grow that has failed", w->rank);
}
// In a new rank: the comm that it was started for.
static par_result par__join_grown(par__world *w, par_comm **out) {
    const uint64_t at = PAR__LOAD(&w->arena->ranks[w->rank].newcomers);
    const par__newcomers *x = (const par__newcomers *)(const void *)(w->base + at);
    int size = par__arena_contains(w, at, sizeof *x) ? PAR__LOAD(&x->size) : 0;
    if (size < 1 || size > w->local_count || !par__arena_contains(w, at, par__newcomers_bytes(size)))
        size = 0;
    par__newcomers *mine = size ? (par__newcomers *)PAR_MALLOC(par__newcomers_bytes(size)) : NULL;
    if (mine) memcpy(mine, x, par__newcomers_bytes(size));
    const int valid = mine && mine->size == size && mine->count > 0 && mine->count < size &&
                      mine->first > 0 && mine->first + mine->count <= w->local_count;
    par_comm *c = valid ? par__make_grown(w, mine) : NULL;
    const uint64_t block = mine ? mine->block : 0, id = mine ? mine->id : 0;
    const int old = valid ? mine->size - mine->count : 0;
    PAR_FREE(mine);
    if (!c || par__finish_part(c, block, id))
        return par__log_error(PAR_ERR_SYSTEM,
                              "rank %d found nothing in shared memory that it could join: the ranks "
                              "that have started it may be gone",
                              w->rank);
    par__register_rank(w);
    if (w->cma) prctl(PAR__SET_PTRACER, (unsigned long)-1, 0, 0, 0);
    w->cma = w->cma && !PAR__LOAD(&w->arena->no_cma);
    *out = c;
    const par_result r = par__await_admission(c, old);
    if (!r) par__set_pids(c); // now that all new ranks are there
    return r;
}

// Rank 0 of a comm takes places for `count` new ranks, allocates the comm, and says in shared memory what
// they need. *x: what the others need. The block with the description for the supervisor, or 0.
static uint64_t par__prepare_newcomers(const par_comm *comm, int count, par__newcomers *x) {
    par__world *w = comm->world;
    const size_t bytes = par__newcomers_bytes(comm->size + count);
    x->size = comm->size + count;
    x->count = count;
    x->first = (int32_t)__atomic_fetch_add(&w->arena->reserved, (uint32_t)count, __ATOMIC_SEQ_CST);
    for (int r = 0; r < x->size; r++) x->world_rank[r] = r < comm->size ? par__world_rank(comm, r) : 0;
    x->id = par__next_comm_id(w);
    x->failed = x->first + count > w->local_count || x->first < 0 ? PAR__NO_PLACE_LEFT
                : x->id                                           ? 0
                                                                  : PAR__NO_ID_LEFT;
    par_comm *c = x->failed ? NULL : par__make_grown(w, x);
    x->block = c ? par__alloc_block(c) : 0;
    const uint64_t at = x->block ? par__arena_alloc(w, bytes, 4096, 0) : 0;
    if (c) par__free_comm(c);
    if (!at || !par__arena_commit(w, at, bytes)) {
        if (!x->failed) x->failed = PAR__NO_MEMORY_LEFT;
        par__arena_free(w, at);
        par__arena_free(w, x->block);
        return 0;
    }
    memcpy(w->base + at, x, bytes);
    for (int i = 0; i < count; i++) PAR__STORE(&w->arena->ranks[x->first + i].newcomers, at);
    return at;
}
typedef struct par__arrivals_wait { // of new ranks
    par__world *world;
    int first, count;
    double since;
} par__arrivals_wait;
static int par__newcomers_are_there(void *wait) { // or will never be
    const par__arrivals_wait *x = (const par__arrivals_wait *)wait;
    for (int i = x->first; i < x->first + x->count; i++)
        if (PAR__LOAD(&x->world->arena->ranks[i].state) == PAR__RANK_STARTING) return 0;
    return 1;
}
static par_result par__check_newcomers(void *wait) {
    par__arrivals_wait *x = (par__arrivals_wait *)wait;
    const double now = par__now();
    if (x->since == 0) x->since = now;
    par__scan_ranks(x->world);
    return now - x->since < x->world->timeout_s
               ? PAR_OK
               : par__set_error(x->world, PAR_ERR_TIMEOUT,
                                "par_grow: ranks from %d on did not call par_open in %g s", x->first,
                                x->world->timeout_s);
}
// Tell the new ranks whether they are in.
static void par__admit(par__world *w, const par__newcomers *x, uint32_t how) {
    for (int i = 0; i < x->count && x->first > 0 && !x->failed; i++) { // else none was started
        PAR__STORE(&w->arena->ranks[x->first + i].admitted, how);
        par__futex_wake(&w->arena->ranks[x->first + i].admitted);
    }
}
// All survivors of comm learn alike whether the comm is there. *block: what failed on this rank, or where it
// has allocated the comm for its arena, or 0; then where it is in this rank's.
static par_result par__vote_to_grow(par_comm *comm, uint64_t *block) {
    const uint64_t mine[2] = {*block, 0};
    unsigned char *counted = (unsigned char *)PAR_MALLOC((size_t)comm->size);
    if (!counted)
        return par__set_error(comm->world, PAR_ERR_MEMORY, "par_grow: out of memory: this rank must end");
    memset(counted, 1, (size_t)comm->size);
    par_result r = par__hold_vote(comm, PAR__GROWS, mine, counted);
    for (int q = 0; q < comm->size && !r; q++) {
        const uint64_t said = counted[q] ? par__vote_value(comm, q)[0] : 0;
        if (!counted[q])
            r = par__set_error(comm->world, PAR_ERR_PEER_DIED, "par_grow: rank %d of comm %s has died", q,
                               comm->name);
        else if (said >= 4096)
            *block = par__ring_index(comm, q) >= 0 ? said : *block;
        else if (said)
            r = par__set_error(comm->world, said == PAR__NO_MEMORY_LEFT ? PAR_ERR_MEMORY : PAR_ERR_SYSTEM,
                               "par_grow on comm %s: %s", comm->name, par__part_failure(said));
    }
    PAR_FREE(counted);
    return r;
}
// Over TCP: processes that wait join.
static par_result par__grow_by_lines(par_comm *comm, int count, par_comm **out) {
    par__world *w = comm->world;
    if (comm != w->whole)
        return par__set_error(w, PAR_ERR_UNSUPPORTED,
                              "par_grow: over TCP only the world can grow, or what has come of it");
    const size_t bytes = sizeof(par__guests) + sizeof(par__address) * (size_t)count,
                 seats = sizeof(par__seat) * (size_t)(comm->size + count);
    par__guests *x = (par__guests *)par__zalloc(par__round_up(bytes, 8) + seats);
    if (!x) return par__set_error(w, PAR_ERR_MEMORY, "par_grow: out of memory: this rank must end");
    par__seat *seat = (par__seat *)(void *)((char *)x + par__round_up(bytes, 8));
    x->count = count;
    par__lock_world(w);
    if (!comm->rank) par__invite_all(comm, x);
    par__unlock_world(w);
    par_result r = par_broadcast(x, x, bytes, PAR_U8, 0, comm);
    uint64_t block = r ? (uint64_t)PAR__NOT_STARTED : (uint64_t)x->failed, mine = 0;
    for (int i = 0; i < comm->size + count; i++) seat[i] = par__seat_of(comm, x->first, i);
    par_comm *c = block ? NULL : par__make_joined(w, seat, comm->size + count, comm->size, x->id, comm);
    if (!c && !block) block = PAR__NO_MEMORY_LEFT;
    if (c && par__rings_owner(c) == c->rank && (mine = block = par__alloc_block(c)) == 0)
        block = (uint64_t)par__why_no_block(w);
    const par_result voted = par__vote_to_grow(comm, &block);
    if (!r) r = voted;
    if (!comm->rank) par__end_invitations(w, x, r);
    w->tcp->next_place = PAR__MAX(w->tcp->next_place, x->first + (x->failed ? 0 : count));
    if (r) {
        par__arena_free(w, mine);
        if (c) par__free_comm(c);
    } else if ((r = par__finish_part(c, block, x->id)) == PAR_OK) {
        par__admit_guests(w, x);
        par__set_whole(c);
        *out = c;
    }
    PAR_FREE(x);
    return r;
}
par_result par_grow(par_comm *comm, int count, par_comm **out) {
    par_result r = par__check_elastic(comm, "par_grow");
    par__world *w = comm->world;
    *out = NULL;
    if (!r && (count < 1 || count > w->places))
        r = par__set_error(w, PAR_ERR_ARGUMENT, "par_grow: count is %d; it takes 1 to %d", count, w->places);
    if (r) return r;
    if (w->net) return par__grow_by_lines(comm, count, out);
    const size_t bytes = par__newcomers_bytes(comm->size + count);
    par__newcomers *x = (par__newcomers *)par__zalloc(bytes);
    if (!x) return par__set_error(w, PAR_ERR_MEMORY, "par_grow: out of memory: this rank must end");
    const uint64_t at = comm->rank ? 0 : par__prepare_newcomers(comm, count, x);
    r = par_broadcast(x, x, bytes, PAR_U8, 0, comm); // where the counts differ it says so
    par__arrivals_wait wait = {w, x->first, count, 0};
    par_comm *c = r || x->failed ? NULL : par__make_grown(w, x);
    int why = r ? PAR__NOT_STARTED : x->failed ? x->failed : c ? 0 : PAR__NO_MEMORY_LEFT;
    if (c && (r = par__finish_part(c, x->block, x->id)) != PAR_OK) {
        c = NULL;
        why = PAR__NO_MEMORY_LEFT;
    }
    if (c && par__wait_until(w, par__newcomers_are_there, par__check_newcomers, &wait, 1000000))
        why = PAR__NOT_STARTED;
    for (int i = 0; i < count && c && !why; i++)
        if (par__known_dead(w, x->first + i)) why = PAR__NOT_STARTED;
    uint64_t failed = (uint64_t)why;
    const par_result voted = par__vote_to_grow(comm, &failed);
    if (!r) r = voted;
    par__admit(w, x, r ? PAR__REFUSED : PAR__ADMITTED);
    par__arena_free(w, at);
    PAR_FREE(x);
    if (r) return par_close(c), r;
    par__set_pids(c);
    if (comm == w->whole) par__set_whole(c);
    *out = c;
    return PAR_OK;
}
int par_rank_before(const par_comm *comm, int rank) {
    return comm->before && rank >= 0 && rank < comm->size ? comm->before[rank] : -1;
}

// >>neighbors -----------------------------------------------------------------------------------------------

par_comm *par_neighbors_comm(const par_neighbors *neighbors) {
    return neighbors ? neighbors->own : (par_comm *)NULL;
}
int par_neighbors_degree(const par_neighbors *neighbors) { return neighbors ? neighbors->degree : 0; }
par_neighbors *par__neighbors_at_site(par_neighbors *neighbors, const char *site) {
    if (neighbors) par__at_site(neighbors->own, site);
    return neighbors;
}

// Count the blocks with each rank: edges[2 r] that this rank sends it, edges[2 r + 1] that it receives.
static par_result par__count_edges(par_comm *c, int degree, const int *peers, const int *sources,
                                   int *edges) {
    const char *site = c->site ? c->site : "?";
    if (degree < 0 || (degree && !peers))
        return par__set_error(c->world, PAR_ERR_ARGUMENT, "par_neighbors_open at %s: degree is %d, peers %s",
                              site, degree, peers ? "is not NULL" : "is NULL");
    for (int i = 0; i < 2 * degree; i++) {
        const int r = i < degree ? peers[i] : sources[i - degree];
        if (r < -1 || r >= c->size)
            return par__set_error(
                c->world, PAR_ERR_ARGUMENT,
                "par_neighbors_open at %s: neighbor %d is rank %d, but comm %s has %d ranks "
                "(-1: no neighbor)",
                site, i % degree, r, c->name, c->size);
        if (r >= 0) edges[2 * r + (i >= degree)]++;
    }
    return PAR_OK;
}
// Sort the blocks by their ranks, those that follow this one first. NULL: no memory.
static par_neighbors *par__make_neighbors(par_comm *c, int degree, const int *peers, const int *sources,
                                          const int *edges) {
    par_neighbors *n = (par_neighbors *)par__zalloc(sizeof *n);
    if (!n) return n;
    for (int i = 0; i < 2 * c->size; i++) n->bundle_count += edges[i] > 0;
    n->comm = c;
    n->degree = degree;
    n->send_place = (int *)par__zalloc((size_t)degree * sizeof(int));
    n->recv_place = (int *)par__zalloc((size_t)degree * sizeof(int));
    n->bundles = (par__bundle *)par__zalloc(n->bundle_count * sizeof *n->bundles);
    if (!n->send_place || !n->recv_place || !n->bundles) {
        par__free_neighbors(n);
        return (par_neighbors *)NULL;
    }
    par__bundle *b = n->bundles;
    for (int side = 0; side < 2; side++) {
        const int *list = side ? sources : peers;
        int *place = side ? n->recv_place : n->send_place;
        for (int i = 0; i < degree; i++) place[i] = -1;
        for (int i = 1; i <= c->size; i++) {
            const int r = (side ? c->rank - i + c->size : c->rank + i) % c->size; // see PAR__WINDOW
            if (!edges[2 * r + side]) continue;
            b->peer = r;
            b->sending = !side;
            b->first = n->block_count;
            b->count = (size_t)edges[2 * r + side];
            b++;
            for (int j = 0; j < degree; j++)
                if (list[j] == r) place[j] = (int)n->block_count++;
        }
    }
    return n;
}
// Does each rank send this one as many blocks as this one receives from it, and the other way round? sites:
// where each rank opens its neighbors; NULL: an error has no text yet.
static par_result par__compare_edges(par_comm *c, const int *mine, const int *theirs,
                                     char (*sites)[PAR__SITE_BYTES]) {
    for (int r = 0; r < c->size; r++)
        for (int sends = 0; sends < 2; sends++) {
            const int here = mine[2 * r + !sends], there = theirs[2 * r + sends];
            if (here == there || there < 0) continue; // < 0: that rank reports an error of its own
            if (!sites) return PAR_ERR_MISMATCH;
            return par__set_error(
                c->world, PAR_ERR_MISMATCH,
                "rank %d %s %d blocks %s rank %d at %s, but rank %d %s %d %s it at %s, in par_neighbors_open "
                "on comm %s: list as many neighbors at both ends",
                c->rank, sends ? "sends" : "receives", here, sends ? "to" : "from", r,
                c->site ? c->site : "?", r, sends ? "receives" : "sends", there, sends ? "from" : "to",
                sites[r], c->name);
        }
    return PAR_OK;
}
// The error of a rank that finds a difference. All ranks call this.
static par_result par__report_edges(par_comm *c, const int *mine, const int *theirs, par_result found) {
    const char *site = c->site;
    char(*sites)[PAR__SITE_BYTES] =
        (char(*)[PAR__SITE_BYTES])par__zalloc((size_t)(c->size + 1) * sizeof *sites);
    if (!sites) return par__set_error(c->world, PAR_ERR_MEMORY, "par_neighbors_open: out of memory");
    snprintf(sites[c->size], sizeof *sites, "%s", site ? site : "?");
    par_result r = par__all_gather_bytes(c, sites[c->size], sizeof *sites, sites);
    c->site = site;
    for (int i = 0; i < c->size && !r; i++) {
        sites[i][sizeof *sites - 1] = 0;
        par__sanitize(sites[i], "");
    }
    if (!r) r = found == PAR_ERR_MISMATCH ? par__compare_edges(c, mine, theirs, sites) : PAR_OK;
    PAR_FREE(sites);
    return r;
}
par_result par_neighbors_open(par_comm *comm, int degree, const int *peers, const int *sources,
                              par_neighbors **neighbors) {
    par_comm *c = comm;
    const char *site = c->site;
    const size_t ints = 2 * (size_t)c->size;
    int *edges = (int *)par__zalloc(2 * ints * sizeof *edges), failed;
    par_neighbors *n = NULL;
    *neighbors = NULL;
    if (!edges || c->in_group) {
        PAR_FREE(edges);
        return par__set_error(c->world, edges ? PAR_ERR_ARGUMENT : PAR_ERR_MEMORY,
                              "par_neighbors_open at %s: %s", site ? site : "?",
                              edges ? "call par_group_end first" : "out of memory");
    }
    if (!sources) sources = peers;
    par_result r = par__count_edges(c, degree, peers, sources, edges);
    if (!r && (n = par__make_neighbors(c, degree, peers, sources, edges)) == NULL)
        r = par__set_error(c->world, PAR_ERR_MEMORY, "par_neighbors_open at %s: out of memory",
                           site ? site : "?");
    for (size_t i = 0; i < ints && r; i++) edges[i] = -1; // the others must learn that
    par_result told = par_all_to_all(edges, edges + ints, 2, PAR_I32, c);
    c->site = site;
    if (!r && !told) r = par__compare_edges(c, edges, edges + ints, NULL);
    failed = r != PAR_OK ? c->rank + 1 : 0;
    if (!told) told = par_all_reduce(&failed, &failed, 1, PAR_I32, PAR_MAX, c);
    c->site = site;
    if (!told && failed && (told = par__report_edges(c, edges, edges + ints, r)) == PAR_ERR_MISMATCH)
        r = told;
    if (!r) r = told;
    if (!r && failed)
        r = par__set_error(
            c->world, PAR_ERR_MISMATCH,
            "par_neighbors_open at %s: rank %d cannot open its neighbors; its own error says why",
            site ? site : "?", failed - 1);
    if (!r) r = par_split_host(c, 0, c->rank, &n->own);
    PAR_FREE(edges);
    if (r) return par__free_neighbors(n), r;
    n->own->neighbors = n;
    return *neighbors = n, PAR_OK;
}

// Is a description of an exchange valid?
static par_result par__check_exchange(const par_neighbors *n, const par_call *k) {
    const par_comm *c = n->own;
    const char *why = NULL;
    const size_t most = SIZE_MAX / 16 / (size_t)(n->degree + 1);
    par_device_backend *backend = n->comm->backend;
    if ((unsigned)k->dtype >= PAR_DTYPE_COUNT)
        why = "no such dtype";
    else if (n->degree && (!k->send_counts || !k->recv_counts))
        why = "counts is NULL";
    for (int i = 0; i < n->degree && !why; i++) {
        const size_t send = k->send_counts[i], recv = k->recv_counts[i];
        if (send > most || recv > most || (k->send_displs && k->send_displs[i] > most) ||
            (k->recv_displs && k->recv_displs[i] > most))
            why = "a count or a displacement is too large to be true";
        else if (!k->send && send && n->send_place[i] >= 0)
            why = "send is NULL";
        else if (!k->recv && recv && n->recv_place[i] >= 0)
            why = "recv is NULL";
    }
    if (why)
        return par__set_error(c->world, PAR_ERR_ARGUMENT, "par_neighbor_exchange at %s: %s (%d neighbors)",
                              k->site, why, n->degree);
    if (!backend || (!(k->send && backend->supports(backend, k->send)) &&
                     !(k->recv && backend->supports(backend, k->recv))))
        return PAR_OK;
    return par__set_error(c->world, PAR_ERR_UNSUPPORTED,
                          "par_neighbor_exchange at %s: the arrays are memory of a device (%s): use "
                          "par_send_begin and par_recv_begin between par_group_begin and par_group_end",
                          k->site, backend->name);
}
// Make the tables of an exchange.
static par_result par__plan_checked(par__operation *op) {
    const par_comm *c = op->comm;
    const par__bundle *own[2] = {NULL, NULL};
    if (!par__plan_exchange(op))
        return par__set_error(c->world, PAR_ERR_MEMORY, "no memory for par_neighbor_exchange at %s",
                              op->call.site);
    for (size_t i = 0; i < op->exchange.bundle_count; i++)
        if (op->exchange.bundles[i].peer == c->rank)
            own[op->exchange.bundles[i].sending] = &op->exchange.bundles[i];
    if (!own[0] || !own[1] || own[0]->hash == own[1]->hash) return PAR_OK;
    return par__set_error(c->world, PAR_ERR_ARGUMENT,
                          "par_neighbor_exchange at %s: rank %d sends itself other counts than it receives",
                          op->call.site, c->rank);
}
// Is an exchange like the last one, with the same tables? Else: keep what it is like.
static int par__is_last_exchange(par_neighbors *n, const par_call *k) {
    const size_t *given[4] = {k->send_counts, k->send_displs, k->recv_counts, k->recv_displs};
    const size_t bytes = sizeof **given * (size_t)n->degree;
    const par_call *last = &n->kept->call;
    int same = n->kept->exchange.bundle_count && last->send == k->send && last->recv == k->recv &&
               last->dtype == k->dtype && k->send_counts && k->recv_counts &&
               !last->send_displs == !k->send_displs && !last->recv_displs == !k->recv_displs;
    for (int i = 0; i < 4; i++) {
        size_t *kept = n->kept_sizes + i * n->degree;
        if (!given[i] || !bytes || (same && !memcmp(kept, given[i], bytes))) continue;
        memcpy(kept, given[i], bytes);
        same = 0;
    }
    if (!same) n->kept->exchange.bundle_count = 0; // its tables are not of these sizes
    return same;
}
// The operation of an exchange: the one that its neighbors keep, with its tables, unless it is in flight.
// NULL: *r says what is wrong.
static par__operation *par__begin_exchange(par_neighbors *n, const par_call *k, uint16_t site,
                                           par_result *r) {
    par_comm *c = n->own;
    if (!n->kept) n->kept = par__make_kept_operation(c);
    if (!n->kept_sizes) n->kept_sizes = (size_t *)par__zalloc(4 * sizeof(size_t) * ((size_t)n->degree + 1));
    const int idle = n->kept_sizes && n->kept && par__has_ticket(n->kept, 0);
    const int planned = idle && par__is_last_exchange(n, k);
    *r = planned && !n->comm->backend ? PAR_OK : par__check_exchange(n, k);
    if (*r) return NULL;
    // This rank's messages to itself, which its comm has none of: its collectives count arrivals.
    par__call_queue *queue = par__message_queue(c, PAR_KIND_SEND, c->rank);
    par__operation *op = !queue ? NULL
                         : idle ? par__use_operation(n->kept, c, k, site)
                                : par__new_operation(c, k, site);
    if (!op) return *r = PAR_ERR_MEMORY, op;
    if (!planned) *r = par__plan_checked(op);
    if (*r) {
        op->exchange.bundle_count = 0;
        par__recycle_operation(op);
        return NULL;
    }
    if (op->exchange.bundle_count) // for the flight recorder
        op->call.count = op->exchange.bundles[0].bytes / par__element_bytes(op);
    par__enqueue(op, queue);
    return op;
}
static par_call par__describe_exchange(const void *send, const size_t *send_counts, const size_t *send_displs,
                                       void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                       par_dtype dtype) {
    par_call k;
    memset(&k, 0, sizeof k);
    k.kind = PAR_KIND_NEIGHBOR_EXCHANGE;
    k.send = send;
    k.send_counts = send_counts;
    k.send_displs = send_displs;
    k.recv = recv;
    k.recv_counts = recv_counts;
    k.recv_displs = recv_displs;
    k.dtype = dtype;
    return k;
}
par_result par_neighbor_exchange(const void *send, const size_t *send_counts, const size_t *send_displs,
                                 void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                 par_dtype dtype, par_neighbors *neighbors) {
    par_call k =
        par__describe_exchange(send, send_counts, send_displs, recv, recv_counts, recv_displs, dtype);
    return par__run(neighbors->own, &k, NULL);
}
par_result par_neighbor_exchange_begin(const void *send, const size_t *send_counts, const size_t *send_displs,
                                       void *recv, const size_t *recv_counts, const size_t *recv_displs,
                                       par_dtype dtype, par_neighbors *neighbors, par_request *request) {
    par_call k =
        par__describe_exchange(send, send_counts, send_displs, recv, recv_counts, recv_displs, dtype);
    return par__run(neighbors->own, &k, request);
}
par_result par_neighbors_close(par_neighbors *neighbors) { // its comm frees it
    return neighbors ? par_close(neighbors->own) : PAR_OK;
}

// >>close ---------------------------------------------------------------------------------------------------

// This rank does not access the shared memory of a comm any more: its board, its rings, and what par_alloc
// gave on it. The last rank of the arena that uses it frees it.
static void par__release_shared(par_comm *c) {
    par__world *w = c->world;
    PAR__STORE(&c->rings->user[par__ring_index(c, c->rank)].released, 1u);
    par__fence();
    if (par__have_no_users(w, c->rings_offset)) par__arena_free_if(w, par__is_released, c->rings_offset);
}

static par_result par__close_world(par__world *w, int broken) {
    const double until = par__now() + w->timeout_s;
    par_result result = PAR_OK;
    if (w->child_count) par__set_local_rank(0, 0); // rank 0 may open another world
    par__set_gone(w, w->control, PAR__RANK_CLOSED);
    for (int i = 0; i < w->child_count; i++) {
        int status = 0, ended = 0;
        while (w->children[i] > 0 && !(ended = par__child_ended(w, i, &status)) && par__now() < until)
            usleep(500);
        if (!ended && w->children[i] > 0) {
            result = par__log_error(
                PAR_ERR_TIMEOUT, "rank %d (pid %d) did not end before the deadline, so rank 0 has killed it",
                i + 1, w->children[i]);
            kill(w->children[i], SIGKILL);
            waitpid(w->children[i], &status, 0);
        } else if (w->children[i] > 0) {
            const par_result r = par__child_status(i + 1, w->children[i], status);
            if (r) result = r;
        }
    }
    if (w->net) w->net->close(w, broken);
    par__free_world(w, !par__ranks_are_threads(w));
    return result;
}

static par_result par__write_trace(par_comm *c);

// Free the operations of a comm that have not ended: of one that is broken, or whose world closes. report: a
// message that its peer never received or sent is an error.
static par_result par__drop_operations(par_comm *c, int report) {
    par__world *w = c->world;
    int forgotten = 0;
    par__lock_world(w);
    par__flush_queues(c);
    par__operation **link = &w->active;
    while (*link) {
        par__operation *op = *link;
        if (op->comm != c) {
            link = &op->next;
            continue;
        }
        *link = op->next;
        par__await_help(op);
        par__cancel_transfers(op);
        par__recycle_operation(op);
        forgotten++;
    }
    w->active_end = link;
    par__unlock_world(w);
    if (!forgotten || !report || c->broken) return PAR_OK;
    return par__log_error(
        PAR_ERR_ARGUMENT,
        "rank %d closes comm %s, but the peers of %d sends and receives on it never made the "
        "matching call",
        c->rank, c->name, forgotten);
}

// For PAR_LEDGER: print the ledger of the world, and of every comm that made calls.
static void par__print_final_ledger(const par_comm *c) {
    uint64_t calls = c == c->world->whole;
    for (int k = 0; k < PAR_KIND_COUNT && c->size > 1; k++) calls += c->ledger[k].calls;
    if (c->world->print_ledger && calls) par_ledger_print(c, stderr);
}

// Closing a comm that is not the world waits for nobody. What was begun on it goes on, in the waits of this
// rank, and the comm is in the world's list of closed ones until nothing of it runs, or may be waited for:
//     par_close --> closed --> all ended, and waited for --> released: the last rank frees the block
// Only the program's thread looks for that, between calls: no loop over operations has the comm then.
static int par__is_idle(const par_comm *c) {
    const par__operation *kept = c->neighbors ? c->neighbors->kept : NULL;
    par__lock_world(c->world);
    const par__operation *op = c->world->active;
    while (op && op->comm != c) op = op->next;
    const int started = (kept && !par__has_ticket(kept, 0)) || (c->small && !par__has_ticket(c->small, 0));
    par__unlock_world(c->world);
    return !op && !started && !c->groups && !c->offloads;
}
static void par__release_closed(par__world *w) {
    for (par_comm **link = &w->closed; *link && !w->in_backend_progress;) {
        par_comm *c = *link;
        if (!par__is_idle(c)) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        __atomic_or_fetch(&par__arrivals_of(c, c->rank)->closed, PAR__CLOSED_ENDED, __ATOMIC_SEQ_CST);
        par__release_shared(c);
        if (!c->broken) par__print_final_ledger(c);
        par__free_comm(c);
    }
}
static void par__unlink_comm(par_comm *c) {
    par__forget_votes(c);
    par_comm **link = &c->world->comms;
    while (*link && *link != c) link = &(*link)->next;
    if (*link) *link = c->next;
}
static void par__close_part(par_comm *c) { // a comm that is not the world
    par__world *w = c->world;
    par__unlink_comm(c);
    par__mark_closed(c, c->site);
    c->closed = 1;
    c->next = w->closed;
    w->closed = c;
    if (c->broken) par__drop_operations(c, 0); // they would never end
    par__release_closed(w);
}

// A collective that was begun, and not waited for, on a comm that can go on; NULL: there is none.
static par__operation *par__begun_collective(par__world *w) {
    par__lock_world(w);
    par__operation *op = w->active;
    while (op && (par__is_message(op->call.kind) || op->comm->broken || op->state >= PAR__WAITING_FOR_GROUP))
        op = op->next;
    par__unlock_world(w);
    return op;
}
static int par__collectives_ended(void *world) { return !par__begun_collective((par__world *)world); }
static par_result par__check_collectives(void *world) {
    par__operation *op = par__begun_collective((par__world *)world);
    return op ? par__check_operation(op) : PAR_OK;
}
// Over lines nobody's leaving may look like a death to those that have yet to pass the barrier.
static void par__agree_to_end(par_comm *c) {
    const uint64_t nothing[2] = {0, 0};
    unsigned char *counted = (unsigned char *)PAR_MALLOC((size_t)c->size);
    if (counted) memset(counted, 1, (size_t)c->size);
    if (counted) par__hold_vote(c, PAR__ENDS, nothing, counted); // the job is done, whatever comes
    PAR_FREE(counted);
}
// All ranks close the world: collectives that were begun end first, on whichever comm; then all ranks know
// that no rank will make a call.
static par_result par__meet_at_end(par_comm *c) {
    par__world *w = c->world;
    par_result first = PAR_OK, r;
    while ((r = par__wait_until(w, par__collectives_ended, par__check_collectives, w, 1000000)) != PAR_OK)
        if (!first) first = r;
    r = par_barrier(c);
    if (r && !c->broken) PAR_LOG(w->error); // nobody can ask for it
    if (r) return first ? first : r;
    while (par__progress(w)) {
    }
    // stay until every rank of the node knows that all have reached the barrier
    par__count_rank(&c->rings->closing, (uint32_t)c->ring_count);
    par__wait_for_count(c, &c->rings->closing, (uint32_t)c->ring_count);
    if (c->ring_count < c->size && w->elastic) par__agree_to_end(c);
    return first;
}
static par_result par__close_whole(par_comm *c) { // the world
    par__world *w = c->world;
    const char *site = c->site;
    par_result r = PAR_OK;
    if (w->tcp) par__tcp_leave_port(w->tcp); // before the others can end: they may run again
    if (!c->broken) par__print_final_ledger(c);
    if (w->trace_path && !c->broken) r = par__write_trace(c);
    for (par_comm *rest = w->comms; rest; rest = rest->next) // who waits on one hears of it
        if (rest != c) par__mark_closed(rest, site);
    const par_result met = c->broken ? PAR_OK : par__meet_at_end(c);
    const int fault = met == PAR_ERR_PEER_DIED || met == PAR_ERR_REVOKED; // the others may go on
    if (!r && !(w->elastic && fault)) r = met;
    par__stop_progress(w);
    par__release_closed(w);
    par__unlink_comm(c);
    const int broken = c->broken != PAR_OK;
    for (par_comm *rest = c, *next; rest; rest = next) { // the world; what runs still; what was not closed
        const par_result forgot = par__drop_operations(rest, !broken);
        if (!r) r = forgot;
        if (rest != c) par__print_final_ledger(rest);
        par__free_comm(rest);
        par_comm **list = w->closed ? &w->closed : &w->comms;
        next = *list;
        if (next) *list = next->next;
    }
    const par_result closed = par__close_world(w, broken);
    return r ? r : closed;
}

par_result par_close(par_comm *c) {
    if (!c) return PAR_OK;
    const par_result r = c->backend && c->backend->can_close ? c->backend->can_close(c->backend) : PAR_OK;
    if (r) return r;
    c->in_group = 0;
    par__detach_backend(c);
    if (c == c->world->whole) return par__close_whole(c);
    par__close_part(c);
    return PAR_OK;
}
par_result par_close_together(par_comm *comm) {
    par_comm *c = comm;
    if (!c) return PAR_OK;
    const par_result r = c->broken ? PAR_OK : par_barrier(c), forgot = par__drop_operations(c, !r);
    const par_result closed = par_close(c);
    return r ? r : forgot ? forgot : closed;
}

// >>mesh ----------------------------------------------------------------------------------------------------
//
// The ranks of a comm as a grid with named axes, the last axis varying fastest. "dp=2 tp=2":
//
//              tp 0  1
//     dp 0        0  1         "tp" gives the comms {0, 1} and {2, 3}, "dp" {0, 2} and {1, 3}.
//        1        2  3
//
// A comm contains the ranks whose indices on all other axes are the same. It is split off when first asked
// for.

enum { PAR__AXES = 8 };
struct par_mesh {
    par_comm *world;
    int axis_count, size[PAR__AXES], index[PAR__AXES];
    char name[PAR__AXES][16];
    const char *site;
    par_comm *comms[1 << PAR__AXES]; // by the set of axes, a bit each; NULL: not made yet
};

static int par__find_axis(const par_mesh *m, const char *name, size_t length) {
    for (int i = 0; i < m->axis_count; i++)
        if (strlen(m->name[i]) == length && !memcmp(m->name[i], name, length)) return i;
    return -1;
}

par_result par_mesh_open(par_comm *world, const char *axes, par_mesh **out) {
    par_mesh *m = (par_mesh *)par__zalloc(sizeof *m);
    const char *text = axes && *axes ? axes : "dp=-1";
    int open = -1, used = 0;
    long long product = 1, ranks = 0;
    *out = NULL;
    if (!m) return par__set_error(world->world, PAR_ERR_MEMORY, "par_mesh_open: out of memory");
    m->world = world;
    for (; *text; text += used) {
        const int i = m->axis_count;
        used = 0;
        if (i == PAR__AXES || sscanf(text, " %15[a-zA-Z0-9_]=%lld%n", m->name[i], &ranks, &used) < 2 ||
            (ranks < 1 && ranks != -1) || ranks > INT_MAX || (ranks == -1 && open >= 0) ||
            par__find_axis(m, m->name[i], strlen(m->name[i])) >= 0 || product > world->size) {
            PAR_FREE(m);
            return par__set_error(
                world->world, PAR_ERR_ARGUMENT,
                "par_mesh_open: cannot use \"%s\"; write axes like \"pp=2 dp=-1 tp=2\", each "
                "once, at most one -1",
                axes);
        }
        m->size[i] = (int)ranks;
        if (ranks == -1)
            open = i;
        else
            product *= ranks; // at most the number of ranks before, so that it does not wrap
        m->axis_count++;
        used += (int)strspn(text + used, " ,");
    }
    if (open >= 0) {
        m->size[open] = product <= world->size ? world->size / (int)product : 0;
        product *= m->size[open];
    }
    if (product != world->size) {
        PAR_FREE(m);
        return par__set_error(world->world, PAR_ERR_ARGUMENT,
                              "par_mesh_open: \"%s\" needs %lld ranks, but there are %d", axes, product,
                              world->size);
    }
    for (int i = m->axis_count - 1, rest = world->rank; i >= 0; i--) {
        m->index[i] = rest % m->size[i];
        rest /= m->size[i];
    }
    *out = m;
    return PAR_OK;
}

int par_mesh_size(const par_mesh *m, const char *axis) {
    const int i = par__find_axis(m, axis, strlen(axis));
    return i < 0 ? 1 : m->size[i];
}
int par_mesh_index(const par_mesh *m, const char *axis) {
    const int i = par__find_axis(m, axis, strlen(axis));
    return i < 0 ? 0 : m->index[i];
}

par_mesh *par__mesh_at_site(par_mesh *m, const char *site) {
    if (m) m->site = site;
    return m;
}
par_result par_mesh_comm(par_mesh *m, const char *axes, par_comm **comm) {
    unsigned set = 0;
    int color = 0;
    *comm = NULL;
    for (const char *text = axes; *text;) {
        const size_t n = strcspn(text, " ,");
        const int i = par__find_axis(m, text, n);
        if (i < 0)
            return par__set_error(m->world->world, PAR_ERR_ARGUMENT,
                                  "par_mesh_comm: the mesh has no axis \"%.*s\"", (int)n, text);
        set |= 1u << i;
        text += n;
        text += strspn(text, " ,");
    }
    if (!m->comms[set]) {
        for (int i = 0; i < m->axis_count; i++)
            if (!(set & 1u << i)) color = color * m->size[i] + m->index[i];
        m->world->site = m->site;
        const par_result r = par_split(m->world, color, m->world->rank, &m->comms[set]);
        if (r) return r;
        snprintf(m->comms[set]->name, sizeof m->comms[set]->name, "%.20s #%u", axes, m->comms[set]->id);
    }
    *comm = m->comms[set];
    return PAR_OK;
}

par_result par_mesh_close(par_mesh *m) {
    par_result first = PAR_OK;
    if (!m) return PAR_OK;
    for (int i = 0; i < 1 << PAR__AXES; i++) {
        if (m->comms[i]) m->comms[i]->site = m->site;
        const par_result r = par_close(m->comms[i]);
        if (!first) first = r;
    }
    PAR_FREE(m);
    return first;
}

// >>mpi_program ---------------------------------------------------------------------------------------------
//
// What par_mpi.h needs: one world for the communicators of a program, whose threads use it in turn.
//
#if defined(PAR_MPI)
// Threads take turns in the order in which they come. One that waits in the kit lets the others have theirs:
// what it waits for may depend on them.
//     thread 1   begin a turn, call, wait .............. end it, yield, begin one, wait ... done
//     thread 2                    begin a turn: ring the doorbell, sleep,  call, done, end it
void par__begin_turn(par_comm *world) {
    par__world *w = world->world;
    if (!w->takes_turns) return;
    const uint32_t mine = __atomic_fetch_add(&w->next_turn, 1, __ATOMIC_SEQ_CST);
    for (uint32_t now; (now = __atomic_load_n(&w->now_turn, __ATOMIC_SEQ_CST)) != mine;) {
        __atomic_add_fetch(&w->control->doorbell, 1, __ATOMIC_SEQ_CST);
        par__futex_wake(&w->control->doorbell);
        par__futex_wait(&w->now_turn, now, 1000000);
    }
}
static int par__others_want_turn(const par__world *w) {
    return __atomic_load_n(&w->next_turn, __ATOMIC_SEQ_CST) - w->now_turn > 1;
}
void par__end_turn(par_comm *world) {
    par__world *w = world->world;
    if (!w->takes_turns) return;
    const uint32_t now = __atomic_add_fetch(&w->now_turn, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&w->next_turn, __ATOMIC_SEQ_CST) != now) par__futex_wake(&w->now_turn);
}
static int par__is_done_or_wanted(void *op) {
    return par__is_done(op) || par__others_want_turn(((par__operation *)op)->comm->world);
}
enum { PAR__TURN_YIELDS = 200 }; // while nothing moves in several threads; then they sleep between turns
par_result par__run_in_turn(par_comm *c, const par_call *call) {
    par__world *w = c->world;
    par_call k = *call;
    par_result r;
    if (!w->takes_turns) return par_begin(c, call, NULL);
    par__operation *op = par__start_call(c, &k, 1, &r);
    if (!op) return par__progress_others(w), r;
    for (unsigned looks = 0; !par__is_done(op); looks++) {
        par__wait_until(w, par__is_done_or_wanted, par__check_operation, op, par__sleep_ns(w));
        if (par__is_done(op)) break;
        par__end_turn(c);
        if (looks < PAR__TURN_YIELDS)
            sched_yield();
        else
            usleep(50);
        par__begin_turn(c);
        if (par__progress(w)) looks = 0;
        if (par__now() - w->last_check <= 0.005) continue;
        w->last_check = par__now();
        par__check_operation(op);
    }
    return par__end_call(op);
}
int par__has_progress(const par_comm *comm) { return comm->world->progress_made; }
void par__use_progress(par_comm *comm) { par__need_progress(comm->world); }

enum { PAR__PART_COUNT = 256, PAR__PART_ALLOC = 256 << 20 };
// Address space for a world of so many ranks on this node, so many comms of all of them, and par_alloc; but
// not above the memory of the machine.
static size_t par__mpi_arena_bytes(int ranks, int nodes, size_t stage_bytes) {
    const size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    const int lanes = par__ring_lanes(nodes);
    const size_t board = par__board_bytes(ranks, stage_bytes * (nodes > 1 ? PAR__TRACKS : 1)),
                 part = board + par__ring_table_bytes(ranks, lanes),
                 world = part + par__rings_bytes(ranks, lanes),
                 wanted = world + PAR__PART_COUNT * part + PAR__PART_ALLOC;
    return par__arena_fitting(PAR__MAX(2 * world, PAR__MIN(wanted, memory)));
}
par_result par__open_mpi_program(const par_desc *desc, int threads, par_comm **world) {
    par__open_request s;
    par_desc d = *desc;
    int size, here = par__launched_here();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!here || here > size) here = size;
    par__check_desc(desc, &s); // par_open_mpi says what is wrong, to all ranks
    if (!s.desc.arena_bytes)
        d.arena_bytes =
            par__mpi_arena_bytes(here, here < size || s.desc.node_ranks ? 2 : 1, s.desc.stage_bytes);
    const par_result r = par_open_mpi(&d, MPI_COMM_WORLD, world);
    if (r) return r;
    par__world *w = (*world)->world;
    w->takes_turns = threads;
    if (w->progress_made) return PAR_OK; // the user asked for it, and MPI is for threads
    w->progress_on_node = 1;
    par__make_progress_thread(w);
    return PAR_OK;
}
par_comm *par__open_mpi_part(par_comm *world, MPI_Comm mpi, const int *ranks, int n, const char **why) {
    par__part mine, *parts = (par__part *)PAR_MALLOC(sizeof *parts * (size_t)n);
    memset(&mine, 0, sizeof mine);
    par__begin_turn(world);
    par_comm *c = ranks && parts ? par__begin_part(world, ranks, n, &mine) : NULL;
    if (!c) mine.failed = PAR__NO_MEMORY_LEFT;
    if (c && !c->rank && (mine.id = par__next_comm_id(world->world)) == 0) mine.failed = PAR__NO_ID_LEFT;
    par__end_turn(world);
    int failed = (int)mine.failed, any = 0, error;
    *why = "its ranks cannot agree, because a collective of MPI has failed";
    error = PMPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, mpi);
    if (!error && !any)
        error = PMPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, parts, (int)sizeof mine, MPI_BYTE, mpi);
    par__begin_turn(world);
    if (any)
        *why = any == PAR__NO_MEMORY_LEFT ? "the shared memory is used up; PAR_ARENA=bytes asks for more"
                                          : par__part_failure((uint64_t)any);
    if (any || error) par__drop_part(c, &mine);
    if (!any && !error && par__end_part(c, parts, NULL, parts[0].id)) error = 1;
    par__end_turn(world);
    PAR_FREE(parts);
    return any || error ? NULL : c;
}
#endif

// >>clocks --------------------------------------------------------------------------------------------------
//
// Ranks of one machine read the same clock: their offset is the difference between the times at which they
// opened their worlds. On every other machine the first rank measures its offset from rank 0 of the comm:
//
//     rank 0                .--- remote ---.
//                          /                \             offset = remote - (sent + received) / 2
//     other rank   --- sent                  received ---
//
// Rank 0 reads its clock between `sent` and `received`, so the error is at most (received - sent) / 2. The
// shortest of PAR__ROUND_TRIPS round trips counts (Cristian, "Probabilistic clock synchronization", 1989).
// Cost: as many round trips of 8 bytes for each machine, one machine after the other.

enum { PAR__ROUND_TRIPS = 32 };
typedef struct par__round_trip { // sent, received: by this rank's clock; remote: by the other's
    double sent, remote, received;
} par__round_trip;

static double par__best_offset(const par__round_trip *trips, int count, double *error) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (trips[i].received - trips[i].sent < trips[best].received - trips[best].sent) best = i;
    const par__round_trip *t = &trips[best];
    *error = (t->received - t->sent) / 2;
    return t->remote - t->sent - *error;
}
static par_result par__measure_offset(par_comm *c, int peer, double *offset, double *error) {
    par__round_trip trips[PAR__ROUND_TRIPS];
    const char *site = c->site;
    for (int i = 0; i < PAR__ROUND_TRIPS; i++) {
        par__round_trip *t = &trips[i];
        t->sent = par_seconds(c);
        c->site = site;
        par_result r = par_send(&t->sent, 1, PAR_F64, peer, c);
        c->site = site;
        if (!r) r = par_recv(&t->remote, 1, PAR_F64, peer, c);
        if (r) return r;
        t->received = par_seconds(c);
    }
    c->site = site;
    *offset = par__best_offset(trips, PAR__ROUND_TRIPS, error);
    return PAR_OK;
}
static par_result par__answer_offset(par_comm *c, int peer) {
    const char *site = c->site;
    double time;
    for (int i = 0; i < PAR__ROUND_TRIPS; i++) {
        c->site = site;
        par_result r = par_recv(&time, 1, PAR_F64, peer, c);
        time = par_seconds(c);
        c->site = site;
        if (!r) r = par_send(&time, 1, PAR_F64, peer, c);
        if (r) return r;
    }
    c->site = site;
    return PAR_OK;
}

typedef struct par__clock_info { // gathered from all ranks
    char name[104];              // the same on ranks that read one clock
    double opened_at, offset, error;
} par__clock_info;

// Name the clock by the kernel and by the time namespace, which can shift it. Ranks that par_open started on
// this machine share both.
static void par__clock_name(const par_comm *c, char *name, size_t bytes) {
    char boot[64] = "", shift[24] = "";
    if (!c->world->net) return;
    if (readlink("/proc/self/ns/time", shift, sizeof shift - 1) < 0) shift[0] = 0;
    if (par__boot_id(boot, sizeof boot))
        snprintf(name, bytes, "%s %s", boot, shift);
    else
        snprintf(name, bytes, "rank %d", c->world->rank); // unknown, so it counts as this rank's own
}
static int par__first_with_clock(const par__clock_info *all, int rank) {
    int first = 0;
    while (strcmp(all[first].name, all[rank].name)) first++;
    return first;
}
static par_result par__measure_clocks(par_comm *c, par__clock_info *mine, par__clock_info *all) {
    int asked = 0;
    const int leader = par__first_with_clock(all, c->rank);
    par_result r = PAR_OK;
    for (int q = 1; q < c->size && !r; q++) {
        if (par__first_with_clock(all, q) != q) continue;
        asked = 1;
        if (c->rank == 0) r = par__answer_offset(c, q);
        if (c->rank == q) r = par__measure_offset(c, 0, &mine->offset, &mine->error);
    }
    if (asked && !r) r = par__all_gather_bytes(c, mine, sizeof *mine, all);
    mine->offset = all[leader].offset + (mine->opened_at - all[leader].opened_at);
    mine->error = all[leader].error;
    return r;
}
par_result par_clock_offset(par_comm *comm, double *offset, double *error) {
    par__clock_info mine, *all = (par__clock_info *)PAR_MALLOC(sizeof mine * (size_t)comm->size);
    *offset = 0;
    if (error) *error = 0;
    if (!all) return par__set_error(comm->world, PAR_ERR_MEMORY, "par_clock_offset: out of memory");
    memset(&mine, 0, sizeof mine);
    mine.opened_at = comm->world->opened_at;
    par__clock_name(comm, mine.name, sizeof mine.name);
    par_result r = par__all_gather_bytes(comm, &mine, sizeof mine, all);
    for (int i = 0; i < comm->size; i++) all[i].name[sizeof all[i].name - 1] = 0;
    if (!r) r = par__measure_clocks(comm, &mine, all);
    PAR_FREE(all);
    comm->site = NULL;
    if (r) return r;
    *offset = mine.offset;
    if (error) *error = mine.error;
    return PAR_OK;
}

// >>trace ---------------------------------------------------------------------------------------------------
//
// The ledger counts calls, bytes and time, by kind and by layer. The model predicts times from those that
// par_calibrate measured: between two sizes, alpha + beta * bytes. The trace has the format of Chrome's trace
// events: rank 0 gathers all ranks' events, moved to one clock (>>clocks), and writes them when the world
// closes.

par_ledger par_ledger_get(const par_comm *comm, par_kind kind) {
    par_ledger row;
    memset(&row, 0, sizeof row);
    if ((unsigned)kind >= PAR_KIND_COUNT) return row;
    par__lock_world(comm->world);
    row = comm->ledger[kind];
    par__unlock_world(comm->world);
    row.seconds = par__ticks_to_seconds(comm->world, (uint64_t)row.seconds);
    return row;
}
void par_ledger_reset(par_comm *comm) {
    par__lock_world(comm->world);
    memset(comm->ledger, 0, sizeof comm->ledger);
    if (comm->layer_stats) memset(comm->layer_stats, 0, comm->layer_stats_count * sizeof *comm->layer_stats);
    par__unlock_world(comm->world);
}

// The call sites of layers, by decreasing time, then number: returns the one after `last`, or -1. `last` = -1
// gives the first.
static long par__next_layer_stats(const par_comm *c, long last) {
    long best = -1;
    for (long i = 0; i < (long)c->layer_stats_count; i++) {
        const uint64_t t = c->layer_stats[i].ticks;
        if (!c->layer_stats[i].calls || i == last) continue;
        if (last >= 0 && (t > c->layer_stats[last].ticks || (t == c->layer_stats[last].ticks && i < last)))
            continue;
        if (best < 0 || t > c->layer_stats[best].ticks) best = i;
    }
    return best;
}

void par_ledger_print(const par_comm *comm, FILE *file) {
    enum { LAYERS = 24 };
    char text[4096 + LAYERS * 192];
    size_t at = 0;
    at += (size_t)snprintf(text, sizeof text,
                           "par: rank %d of %d, comm %s\n  %-15s %10s %16s %12s %16s %12s %12s\n", comm->rank,
                           comm->size, comm->name, "operation", "calls", "sent bytes", "net msgs",
                           "net bytes", "seconds", "predicted");
    for (int k = 0; k < PAR_KIND_COUNT; k++) {
        const par_ledger row = par_ledger_get(comm, (par_kind)k);
        if (!row.calls) continue;
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "  %-15s %10llu %16llu %12llu %16llu %12.6f %12.6f\n",
                               par_kind_name((par_kind)k), (unsigned long long)row.calls,
                               (unsigned long long)row.sent_bytes, (unsigned long long)row.net_messages,
                               (unsigned long long)row.net_bytes, row.seconds, row.predicted_seconds);
    }
    par__lock_world(comm->world);
    const long first = par__next_layer_stats(comm, -1);
    int rows = 0;
    for (long i = first; i >= 0; i = par__next_layer_stats(comm, i), rows++) {
        const par__layer_stats *x = &comm->layer_stats[i];
        if (rows >= LAYERS) continue; // count it, do not print it
        at += (size_t)snprintf(text + at, sizeof text - at, "%s  %-15s %10llu %16llu %12s %16s %12.6f %s\n",
                               i == first ? "  of these, from layers:\n" : "", "",
                               (unsigned long long)x->calls, (unsigned long long)x->sent_bytes, "", "",
                               par__ticks_to_seconds(comm->world, x->ticks), comm->world->sites[i]);
    }
    par__unlock_world(comm->world);
    if (rows > LAYERS)
        snprintf(text + at, sizeof text - at, "  ... and from %d more call sites\n", rows - LAYERS);
    par__sanitize(text, "\n");
    fputs(text, file); // in one piece, because other ranks print, too
    fflush(file);
}

static const size_t par__model_bytes[PAR__MODEL_POINTS] = {64,      4096,     65536,   262144,
                                                           2097152, 16777216, 67108864};

// The kind whose measured times the model uses for calls of this kind.
static par_kind par__model_kind(par_kind kind) {
    const par_kind_traits *t = &par__kinds[kind], *like = par__kinds;
    if (par__is_message(kind) || par__is_exchange(kind)) return PAR_KIND_SEND;
    while (like->counts || like->send != t->send || like->recv != t->recv || like->takes != t->takes) like++;
    return (par_kind)(like - par__kinds);
}

double par_predict(const par_comm *comm, par_kind kind, size_t bytes) {
    if (!comm->model || (unsigned)kind >= PAR_KIND_COUNT) return 0;
    const double *t = comm->model->seconds[par__model_kind(kind)];
    int i = 1;
    while (i < PAR__MODEL_POINTS - 1 && bytes > par__model_bytes[i]) i++;
    const double from = (double)par__model_bytes[i - 1], to = (double)par__model_bytes[i];
    const double beta = PAR__MAX(0.0, (t[i] - t[i - 1]) / (to - from)), alpha = t[i] - beta * to;
    return PAR__MAX(alpha + beta * (double)bytes, 0.0);
}

// Make one call of `bytes` bytes, as par_predict counts them. A send goes to the next rank of a ring.
static par_result par__model_call(par_comm *c, par_kind kind, void *x, void *y, size_t bytes) {
    const par_kind_traits *t = &par__kinds[kind];
    const int n = c->size, in_place = t->send == PAR_SIDE_ROOT_BLOCK;
    const int blocks = (t->send & PAR_SIDE_ALL) || (t->recv & PAR_SIDE_ALL);
    const size_t all = bytes / 4;
    if (par__is_message(kind))
        return par_sendrecv(x, all, (c->rank + 1) % n, y, all, (c->rank + n - 1) % n, PAR_F32, c);
    return par__call(c, NULL, kind, in_place ? y : x, NULL, NULL, blocks ? all / (size_t)n : all, y, NULL,
                     NULL, PAR_F32, PAR_SUM, 0);
}

static int par__compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The median over several calls of the slowest rank's time. Every rank writes its arrays before each call, as
// a program does.
static par_result par__measure(par_comm *c, par_kind kind, void *x, void *y, size_t bytes, double *median) {
    enum { REPEAT = 15 };
    const int n = bytes > (size_t)32 << 20 ? 3 : bytes > (size_t)1 << 20 ? 7 : REPEAT;
    double t[REPEAT];
    par_result r = PAR_OK;
    for (int i = 0; i < n && !r; i++) {
        memset(y, i, bytes);
        memset(x, i, bytes);
        r = par_barrier(c);
        const double start = par__now();
        if (!r) r = par__model_call(c, kind, x, y, bytes);
        t[i] = par__now() - start;
    }
    if (!r) r = par_all_reduce(t, t, (size_t)n, PAR_F64, PAR_MAX, c);
    if (r) return r;
    qsort(t, (size_t)n, sizeof t[0], par__compare_doubles);
    *median = t[n / 2];
    return PAR_OK;
}

par_result par_calibrate(par_comm *comm) {
    const size_t max = par__model_bytes[PAR__MODEL_POINTS - 1];
    char *x = (char *)par__zalloc(max), *y = (char *)par__zalloc(max);
    par__model *model = (par__model *)par__zalloc(sizeof *model);
    par_result r = x && y && model
                       ? PAR_OK
                       : par__set_error(comm->world, PAR_ERR_MEMORY, "par_calibrate: out of memory");
    for (int k = 0; k < PAR_KIND_COUNT && !r; k++)
        for (int i = 0; i < PAR__MODEL_POINTS && !r; i++)
            if (par__model_kind((par_kind)k) == (par_kind)k)
                r = par__measure(comm, (par_kind)k, x, y, par__model_bytes[i], &model->seconds[k][i]);
    PAR_FREE(x);
    PAR_FREE(y);
    if (r) return PAR_FREE(model), r;
    par__lock_world(comm->world);
    PAR_FREE(comm->model);
    comm->model = model;
    par__unlock_world(comm->world);
    return PAR_OK;
}

const char *par_last_algorithm(const par_comm *comm) {
    par__lock_world(comm->world);
    const char *name = comm->last_algorithm;
    par__unlock_world(comm->world);
    return name;
}

const char *par_algorithm_name(const par_comm *comm, par_kind kind, int index) {
    (void)comm;
    for (int i = 0; i < PAR__ALGORITHM_COUNT; i++)
        if (par__algorithms[i].kind == kind && index-- == 0) return par__algorithms[i].name;
    return NULL;
}

par_result par_force_algorithm(par_comm *comm, const char *op_and_name) {
    par__lock_world(comm->world);
    memset(comm->world->forced, 0, sizeof comm->world->forced);
    const par_result r = par__apply_force(comm->world, "par_force_algorithm", op_and_name);
    par__unlock_world(comm->world);
    return r;
}

// The algorithm that an all_reduce of so many bytes of f32 would take, with ordinary memory.
static const char *par__all_reduce_algorithm(par_comm *comm, size_t bytes) {
    par__operation op;
    memset(&op, 0, sizeof op);
    op.comm = comm;
    op.call.kind = PAR_KIND_ALL_REDUCE;
    op.call.count = bytes / 4;
    op.call.dtype = PAR_F32;
    op.eager = par__sends_inline(&op) ? PAR__EAGER_INLINE : PAR__EAGER_NONE;
    op.arrays.all_staged = par__sends_staged(&op, 0) || par__sends_attached(&op);
    return par__choose_algorithm(&op)->name;
}
void par_algorithms_print(par_comm *comm, FILE *file) {
    fprintf(file, "par: %d ranks on %d nodes; each call uses the first algorithm that fits\n", comm->size,
            comm->nodes.node_count);
    for (int i = 0; i < PAR__ALGORITHM_COUNT; i++)
        fprintf(file, "  %-16s %-10s %s%s\n", par_kind_name(par__algorithms[i].kind), par__algorithms[i].name,
                par__algorithms[i].when,
                comm->world->forced[par__algorithms[i].kind] == i + 1 ? "   <- forced" : "");
    for (size_t i = 0; i < comm->world->tune_row_count; i++) {
        const par__tune_row *t = &comm->world->tune_rows[i];
        fprintf(file, "  tuned: %s, %d ranks, %d nodes, up to %zu bytes: %s\n",
                par_kind_name(par__algorithms[t->algorithm].kind), t->ranks, t->nodes, t->bytes,
                par__algorithms[t->algorithm].name);
    }
    for (int k = 0; k < PAR_KIND_COUNT; k++)
        if (comm->world->kind_cma_bytes[k])
            fprintf(file, "  tuned: %s copies ordinary memory by process_vm_readv from %zu bytes\n",
                    par_kind_name((par_kind)k), comm->world->kind_cma_bytes[k]);
    fprintf(
        file,
        "  process_vm_readv copies ordinary memory from %zu bytes (%s), messages from %zu; what all ranks "
        "write is written past the caches from %zu\n",
        comm->world->cma_bytes,
        comm->world->cma ? "where one rank reads them and it is the faster way" : "not allowed here",
        par__message_cma_bytes(comm->world), comm->world->nontemporal_bytes);
    fprintf(file, "  rank %d is %s\n", comm->rank, comm->world->binding);
    fprintf(file, "  all_reduce, f32, ordinary memory:");
    for (size_t bytes = 8; bytes <= (size_t)64 << 20; bytes *= 16)
        fprintf(file, " %zu:%s", bytes, par__all_reduce_algorithm(comm, bytes));
    fprintf(file, "\n");
}

par_result par_trace_begin(par_comm *comm, const char *name) {
    par__world *w = comm->world;
    if (!w->trace_path) return PAR_OK;
    const int i = w->open_span_count++;
    if (i >= PAR__OPEN_SPANS)
        return par__set_error(w, PAR_ERR_ARGUMENT, "par_trace_begin: \"%s\" is within %d other spans", name,
                              PAR__OPEN_SPANS);
    w->open_spans[i] = name;
    w->open_span_start[i] = par__ticks();
    return PAR_OK;
}
par_result par_trace_end(par_comm *comm) {
    par__world *w = comm->world;
    if (!w->trace_path) return PAR_OK;
    if (w->open_span_count == 0)
        return par__set_error(w, PAR_ERR_ARGUMENT, "par_trace_end without par_trace_begin");
    const int i = --w->open_span_count;
    if (i >= PAR__OPEN_SPANS) return PAR_OK;
    par__lock_world(w); // the progress thread pushes the events of calls
    par__push_trace_event(w, w->open_spans[i], w->open_span_start[i], par__ticks(), 0, 0, 0, 0);
    par__unlock_world(w);
    return PAR_OK;
}

// This rank's events as JSON, with their times `shift` seconds later than its clock said.
static char *par__trace_text(par_comm *c, double shift, size_t *bytes) {
    enum { EVENT = 512 }; // bytes of an event, at most
    par__world *w = c->world;
    const par__timestamp now = par__read_clocks();
    const double tick = now.ticks > w->opened.ticks
                            ? (now.seconds - w->opened.seconds) / (double)(now.ticks - w->opened.ticks)
                            : 0;
    char *text = (char *)PAR_MALLOC(256 + w->event_count * EVENT);
    size_t at = 0;
    if (!text) return NULL;
    shift += w->opened.seconds - w->opened_at;
    at += (size_t)sprintf(
        text, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}},\n",
        c->rank, c->rank);
    for (size_t i = 0; i < w->event_count; i++) {
        const par__event *v = &w->events[i];
        const double start = shift + tick * (double)(v->start_ticks - w->opened.ticks);
        const double lasted = tick * (double)(v->end_ticks - v->start_ticks);
        char name[81], site[2 * PAR__SITE_BYTES];
        par__json_escape_text(name, sizeof name, v->name);
        par__json_escape_text(site, sizeof site, v->tid ? w->sites[v->site & (PAR__SITE_MAX - 1)] : "");
        at += (size_t)snprintf(text + at, EVENT,
                               "{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%u,"
                               "\"args\":{\"bytes\":%llu,\"comm\":%u%s%s%s}},\n",
                               name, start * 1e6, lasted * 1e6, c->rank, v->tid, (unsigned long long)v->bytes,
                               v->comm, site[0] ? ",\"at\":\"" : "", site, site[0] ? "\"" : "");
    }
    *bytes = at;
    return text;
}

static par_result par__write_trace(par_comm *c) {
    const char *path = c->world->trace_path;
    double offset, first;
    size_t bytes = 0, *counts = (size_t *)par__zalloc(sizeof(size_t) * (size_t)c->size), total = 0;
    char *all = NULL;
    par__lock_world(c->world);
    c->world->trace_path = NULL; // the calls that follow are not traced
    par__unlock_world(c->world);
    par_result r = par_clock_offset(c, &offset, NULL);
    if (!r) r = par_all_reduce(&offset, &first, 1, PAR_F64, PAR_MIN, c); // the first to open its world
    void *points = par__set_c_locale();
    char *text = r ? NULL : par__trace_text(c, offset - first, &bytes);
    par__restore_locale(points);
    if (!r) r = par__all_gather_bytes(c, &bytes, sizeof bytes, counts);
    for (int i = 0; i < c->size && !r; i++) {
        if (counts[i] > SIZE_MAX / 8 / (size_t)c->size)
            r = par__memory_corrupt(c->world, "a trace's length of", counts[i]);
        total += counts[i];
    }
    if (c->rank == 0) all = (char *)PAR_MALLOC(total + 1);
    if (!r) r = par_gatherv(text, bytes, all, counts, NULL, PAR_U8, 0, c);
    if (!r && c->rank == 0) {
        FILE *f = par__fopen_write(path);
        int ok = f && fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n") > 0;
        total -= PAR__MIN(total, (size_t)2); // the last comma and newline
        ok = ok && fwrite(all, 1, total, f) == total && fprintf(f, "]}\n") > 0;
        if (f && fclose(f)) ok = 0;
        if (!ok)
            r = par__log_error(PAR_ERR_SYSTEM, "cannot write the trace to %s: %s", path, strerror(errno));
    }
    PAR_FREE(text);
    PAR_FREE(all);
    PAR_FREE(counts);
    return r;
}

#ifdef __cplusplus
}
#endif
PAR__API_END
#pragma pop_macro("PAR__WITH_SITE")
#endif // PAR_H_IMPLEMENTATION

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

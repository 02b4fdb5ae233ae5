// An MPI program like any other: it knows nothing of the kit. Run with par_mpi.h preloaded it compares every
// collective with MPI's own (PMPI_), on random arguments that all ranks draw from one seed. What MPI lets
// each rank choose for itself (datatype with the same signature, displacements) it draws from a seed of its
// own.
#define _GNU_SOURCE // for sets of processors
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(c, ...)                                                                                        \
    do {                                                                                                     \
        if (!(c)) {                                                                                          \
            printf("rank %d: %s:%d: CHECK(%s): ", world_rank, __FILE__, __LINE__, #c);                       \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
            fflush(stdout);                                                                                  \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                    \
        }                                                                                                    \
    } while (0)

static int world_rank, world_size;
void par_mpi_print(FILE *file) __attribute__((weak)); // there: par_mpi.h is preloaded
int par_mpi_comm(MPI_Comm mpi, void **comm) __attribute__((weak));

typedef struct random_state {
    uint64_t x;
} random_state;
static random_state all_ranks, own; // the same on all ranks of the world; of this one
static unsigned draw(random_state *r, unsigned below) {
    r->x = r->x * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(r->x >> 33) % below;
}

// ---- types and operations ---------------------------------------------------------------------------------

enum {
    SIGNED = 1,
    UNSIGNED = 2,
    FORTRAN = 4,
    FLOATING = 8,
    COMPLEX = 16,
    LOGICAL = 32,
    BYTES = 64,
    PAIR = 128
};
typedef enum number { INTEGER, F32, F64, LONG_DOUBLE, NOTHING } number; // how a part of an element is stored
typedef struct type_row {
    const char *name;
    MPI_Datatype mpi;
    int family;
    number first, second; // the parts of an element
    int first_bytes, second_at, second_bytes;
} type_row;
#define ROW(t, family, first, bytes, second, at, bytes2)                                                     \
    { #t, t, family, first, second, bytes, at, bytes2 }
#define ONE(t, family, first, bytes) ROW(t, family, first, bytes, NOTHING, 0, 0)
static type_row types[64];
static int type_count;
static void make_types(void) {
    const int i = sizeof(int), l = sizeof(long);
    const type_row rows[] = {ONE(MPI_SIGNED_CHAR, SIGNED, INTEGER, 1),
                             ONE(MPI_SHORT, SIGNED, INTEGER, 2),
                             ONE(MPI_INT, SIGNED, INTEGER, i),
                             ONE(MPI_LONG, SIGNED, INTEGER, l),
                             ONE(MPI_LONG_LONG, SIGNED, INTEGER, 8),
                             ONE(MPI_INT8_T, SIGNED, INTEGER, 1),
                             ONE(MPI_INT16_T, SIGNED, INTEGER, 2),
                             ONE(MPI_INT32_T, SIGNED, INTEGER, 4),
                             ONE(MPI_INT64_T, SIGNED, INTEGER, 8),
                             ONE(MPI_UNSIGNED_CHAR, UNSIGNED, INTEGER, 1),
                             ONE(MPI_UNSIGNED_SHORT, UNSIGNED, INTEGER, 2),
                             ONE(MPI_UNSIGNED, UNSIGNED, INTEGER, i),
                             ONE(MPI_UNSIGNED_LONG, UNSIGNED, INTEGER, l),
                             ONE(MPI_UNSIGNED_LONG_LONG, UNSIGNED, INTEGER, 8),
                             ONE(MPI_UINT8_T, UNSIGNED, INTEGER, 1),
                             ONE(MPI_UINT16_T, UNSIGNED, INTEGER, 2),
                             ONE(MPI_UINT32_T, UNSIGNED, INTEGER, 4),
                             ONE(MPI_UINT64_T, UNSIGNED, INTEGER, 8),
                             ONE(MPI_INTEGER, FORTRAN, INTEGER, 4),
                             ONE(MPI_INTEGER1, FORTRAN, INTEGER, 1),
                             ONE(MPI_INTEGER2, FORTRAN, INTEGER, 2),
                             ONE(MPI_INTEGER4, FORTRAN, INTEGER, 4),
                             ONE(MPI_INTEGER8, FORTRAN, INTEGER, 8),
                             ONE(MPI_AINT, FORTRAN, INTEGER, 8),
                             ONE(MPI_OFFSET, FORTRAN, INTEGER, 8),
                             ONE(MPI_COUNT, FORTRAN, INTEGER, 8),
                             ONE(MPI_FLOAT, FLOATING, F32, 4),
                             ONE(MPI_DOUBLE, FLOATING, F64, 8),
                             ONE(MPI_LONG_DOUBLE, FLOATING, LONG_DOUBLE, 10),
                             ONE(MPI_REAL, FLOATING, F32, 4),
                             ONE(MPI_DOUBLE_PRECISION, FLOATING, F64, 8),
                             ONE(MPI_REAL4, FLOATING, F32, 4),
                             ONE(MPI_REAL8, FLOATING, F64, 8),
                             ROW(MPI_C_FLOAT_COMPLEX, COMPLEX, F32, 4, F32, 4, 4),
                             ROW(MPI_C_DOUBLE_COMPLEX, COMPLEX, F64, 8, F64, 8, 8),
                             ROW(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX, LONG_DOUBLE, 10, LONG_DOUBLE, 16, 10),
                             ROW(MPI_COMPLEX, COMPLEX, F32, 4, F32, 4, 4),
                             ROW(MPI_DOUBLE_COMPLEX, COMPLEX, F64, 8, F64, 8, 8),
                             ROW(MPI_COMPLEX8, COMPLEX, F32, 4, F32, 4, 4),
                             ROW(MPI_COMPLEX16, COMPLEX, F64, 8, F64, 8, 8),
                             ONE(MPI_LOGICAL, LOGICAL, INTEGER, 4),
                             ONE(MPI_C_BOOL, LOGICAL, INTEGER, 1),
                             ONE(MPI_CXX_BOOL, LOGICAL, INTEGER, 1),
                             ONE(MPI_BYTE, BYTES, INTEGER, 1),
                             ONE(MPI_CHAR, 0, INTEGER, 1),
                             ONE(MPI_WCHAR, 0, INTEGER, 4),
                             ROW(MPI_2INT, PAIR, INTEGER, 4, INTEGER, 4, 4),
                             ROW(MPI_SHORT_INT, PAIR, INTEGER, 2, INTEGER, 4, 4),
                             ROW(MPI_LONG_INT, PAIR, INTEGER, 8, INTEGER, 8, 4),
                             ROW(MPI_FLOAT_INT, PAIR, F32, 4, INTEGER, 4, 4),
                             ROW(MPI_DOUBLE_INT, PAIR, F64, 8, INTEGER, 8, 4),
                             ROW(MPI_LONG_DOUBLE_INT, PAIR, LONG_DOUBLE, 10, INTEGER, 16, 4),
                             ROW(MPI_2INTEGER, PAIR, INTEGER, 4, INTEGER, 4, 4),
                             ROW(MPI_2REAL, PAIR, F32, 4, F32, 4, 4),
                             ROW(MPI_2DOUBLE_PRECISION, PAIR, F64, 8, F64, 8, 8)};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        if (rows[r].mpi != MPI_DATATYPE_NULL) types[type_count++] = rows[r]; // not every MPI has Fortran's
}
typedef struct op_row {
    const char *name;
    MPI_Op mpi;
    int families;
} op_row;
static op_row ops[12];
static void make_ops(void) {
    const int c = SIGNED | UNSIGNED, integers = c | FORTRAN, numbers = integers | FLOATING;
    const op_row rows[] = {{"sum", MPI_SUM, numbers | COMPLEX}, {"prod", MPI_PROD, numbers | COMPLEX},
                           {"max", MPI_MAX, numbers},           {"min", MPI_MIN, numbers},
                           {"land", MPI_LAND, c | LOGICAL},     {"lor", MPI_LOR, c | LOGICAL},
                           {"lxor", MPI_LXOR, c | LOGICAL},     {"band", MPI_BAND, integers | BYTES},
                           {"bor", MPI_BOR, integers | BYTES},  {"bxor", MPI_BXOR, integers | BYTES},
                           {"minloc", MPI_MINLOC, PAIR},        {"maxloc", MPI_MAXLOC, PAIR}};
    memcpy(ops, rows, sizeof rows);
}

static void put(char *at, number n, int bytes, int value) { // little endian
    const float f = (float)value;
    const double d = value;
    const long double l = value;
    const int64_t i = value;
    const void *const from[] = {&i, &f, &d, &l};
    if (n != NOTHING) memcpy(at, from[n], (size_t)bytes);
}
// Elements whose sums and products are exact; between them, bytes that nobody may change.
static void fill(char *at, const type_row *t, size_t extent, size_t count) {
    // Open MPI 4.1 takes MPI_AINT, MPI_OFFSET and MPI_COUNT for unsigned
    const int unsigned_here =
        t->family & (UNSIGNED | LOGICAL | BYTES) || (t->family == FORTRAN && t->first_bytes == 8);
    for (size_t i = 0; i < count; i++, at += extent) {
        const int small = (int)draw(&own, 5) - (unsigned_here ? 0 : 2);
        put(at, t->first, t->first_bytes, t->family & LOGICAL ? small & 1 : small);
        put(at + t->second_at, t->second, t->second_bytes, (int)draw(&own, 4));
    }
}
static int same_part(const char *a, const char *b, number n, int bytes) { // 0 and -0 are the same
    float f[2];
    double d[2];
    long double l[2];
    if (n == NOTHING || !memcmp(a, b, (size_t)bytes)) return 1;
    memcpy(&f[0], a, sizeof *f);
    memcpy(&f[1], b, sizeof *f);
    if (n == F32) return f[0] == f[1];
    if (n == INTEGER) return 0;
    memcpy(&d[0], a, sizeof *d);
    memcpy(&d[1], b, sizeof *d);
    if (n == F64) return d[0] == d[1];
    memcpy(&l[0], a, sizeof *l);
    memcpy(&l[1], b, sizeof *l);
    return l[0] == l[1];
}
static int same(const char *a, const char *b, const type_row *t, size_t extent, size_t count) {
    for (size_t i = 0; i < count; i++, a += extent, b += extent)
        if (!same_part(a, b, t->first, t->first_bytes) ||
            !same_part(a + t->second_at, b + t->second_at, t->second, t->second_bytes))
            return 0;
    return 1;
}

// ---- communicators ----------------------------------------------------------------------------------------

enum { COMMS = 6 };
static MPI_Comm comms[COMMS];
static void make_comm(int i) {
    MPI_Group world, group;
    int range[1][3] = {{world_size - 1, 0, -1}};
    switch (i) {
    case 0: comms[i] = MPI_COMM_WORLD; break;
    case 1: MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]); break;
    case 2: MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &comms[i]); break;
    case 3: MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0, 0, &comms[i]); break;
    case 4: comms[i] = MPI_COMM_SELF; break;
    default:
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_range_incl(world, 1, range, &group);
        MPI_Comm_create(MPI_COMM_WORLD, group, &comms[i]);
        MPI_Group_free(&world);
        MPI_Group_free(&group);
    }
}
static void remake_comm(int i) {
    if (i == 0 || i == 4) return;
    if (draw(&all_ranks, 2))
        MPI_Comm_free(&comms[i]);
    else
        MPI_Comm_disconnect(&comms[i]);
    make_comm(i);
}

// ---- reductions -------------------------------------------------------------------------------------------

enum { ALL_REDUCE, REDUCE, REDUCE_SCATTER_BLOCK, REDUCE_SCATTER, REDUCTIONS };
static size_t any_count(random_state *r) {
    static const unsigned below[] = {1, 2, 6, 40, 700, 5000};
    const unsigned b = below[draw(r, 6)];
    return draw(r, b) + (b == 2);
}
enum { BLOCKING, ORIGINAL, NONBLOCKING };
// Wait for a nonblocking call in one of MPI's ways, each rank in its own; beside it a message that does not
// come for a while, and a request that is null.
static void wait_somehow(MPI_Request *q) {
    int out = 0, in, flag = 0, index = -1, indices[3], count = 0;
    MPI_Request all[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, *q};
    MPI_Status status, statuses[3];
    const int way = (int)draw(&own, 8), message = way >= 4;
    if (message) MPI_Irecv(&in, 1, MPI_INT, 0, 77, MPI_COMM_SELF, &all[1]);
    switch (way) {
    case 0: MPI_Wait(&all[2], &status); break;
    case 1: MPI_Waitall(3, all, statuses); break;
    case 2:
        for (; !flag; sched_yield()) MPI_Test(&all[2], &flag, MPI_STATUS_IGNORE);
        break;
    case 3:
        for (; !flag; sched_yield()) MPI_Testall(3, all, &flag, statuses);
        break;
    case 4: MPI_Waitany(3, all, &index, &status); break;
    case 5:
        for (; !flag; sched_yield()) MPI_Testany(3, all, &index, &flag, MPI_STATUS_IGNORE);
        break;
    case 6: MPI_Waitsome(3, all, &count, indices, statuses); break;
    default:
        for (; !flag; sched_yield()) MPI_Request_get_status(all[2], &flag, &status);
        MPI_Testsome(3, all, &count, indices, statuses);
    }
    if (message)
        CHECK(way < 6 ? index == 2 : count == 1 && indices[0] == 2, "way %d: %d, %d", way, index, count);
    CHECK(all[2] == MPI_REQUEST_NULL, "way %d leaves the request", way);
    if (message) MPI_Send(&out, 1, MPI_INT, 0, 77, MPI_COMM_SELF);
    MPI_Waitall(3, all, statuses);
    *q = MPI_REQUEST_NULL;
}
static void reduce(int kind, const void *send, void *recv, const int *counts, MPI_Datatype t, MPI_Op op,
                   int root, MPI_Comm c, int how) {
    MPI_Request q;
    if (how == NONBLOCKING) {
        switch (kind) {
        case ALL_REDUCE: MPI_Iallreduce(send, recv, *counts, t, op, c, &q); break;
        case REDUCE: MPI_Ireduce(send, recv, *counts, t, op, root, c, &q); break;
        case REDUCE_SCATTER_BLOCK: MPI_Ireduce_scatter_block(send, recv, *counts, t, op, c, &q); break;
        default: MPI_Ireduce_scatter(send, recv, counts, t, op, c, &q); break;
        }
        wait_somehow(&q);
        return;
    }
    switch (2 * kind + how) {
    case 2 * ALL_REDUCE: MPI_Allreduce(send, recv, *counts, t, op, c); break;
    case 2 * ALL_REDUCE + 1: PMPI_Allreduce(send, recv, *counts, t, op, c); break;
    case 2 * REDUCE: MPI_Reduce(send, recv, *counts, t, op, root, c); break;
    case 2 * REDUCE + 1: PMPI_Reduce(send, recv, *counts, t, op, root, c); break;
    case 2 * REDUCE_SCATTER_BLOCK: MPI_Reduce_scatter_block(send, recv, *counts, t, op, c); break;
    case 2 * REDUCE_SCATTER_BLOCK + 1: PMPI_Reduce_scatter_block(send, recv, *counts, t, op, c); break;
    case 2 * REDUCE_SCATTER: MPI_Reduce_scatter(send, recv, counts, t, op, c); break;
    default: PMPI_Reduce_scatter(send, recv, counts, t, op, c); break;
    }
}
static void compare_reduction(int kind, const type_row *t, const op_row *op, MPI_Comm c, size_t count) {
    int rank, size, counts[64], scatters = kind >= REDUCE_SCATTER_BLOCK;
    MPI_Aint low, extent;
    size_t sent = 0;
    MPI_Comm_rank(c, &rank);
    MPI_Comm_size(c, &size);
    MPI_Type_get_extent(t->mpi, &low, &extent);
    const int root = (int)draw(&all_ranks, (unsigned)size), in_place = (int)draw(&all_ranks, 2);
    const int differ = kind == REDUCE_SCATTER && draw(&all_ranks, 4);
    for (int i = 0; i < size; i++) {
        counts[i] = (int)(differ ? draw(&all_ranks, (unsigned)count + 1) : count);
        sent += (size_t)counts[i];
    }
    if (!scatters) sent = count;
    const size_t got = scatters ? (size_t)counts[rank] : kind == REDUCE && rank != root ? 0 : count;
    const size_t bytes = sent * (size_t)extent + 64;
    char *send = malloc(bytes), *a = malloc(bytes), *b = malloc(bytes);
    memset(send, 7, bytes);
    fill(send, t, (size_t)extent, sent);
    memset(a, 9, bytes);
    const int here = in_place && (kind != REDUCE || rank == root);
    if (here) memcpy(a, send, bytes);
    memcpy(b, a, bytes);
    reduce(kind, send, a, counts, t->mpi, op->mpi, root, c,
           ORIGINAL); // MPICH 4.0.2 fails in place at some roots
    if (!par_mpi_print) memcpy(b, send, bytes);
    const int nonblocking = draw(&all_ranks, 3) ? BLOCKING : NONBLOCKING;
    reduce(kind, here && par_mpi_print ? MPI_IN_PLACE : send, b, counts, t->mpi, op->mpi, root, c,
           nonblocking);
    CHECK(same(a, b, t, (size_t)extent, got), "reduction %d, %s, %s, %zu elements, %d ranks, in place %d",
          kind, t->name, op->name, count, size, in_place);
    CHECK(!memcmp(b + got * (size_t)extent, a + got * (size_t)extent, 64) || (scatters && here),
          "reduction %d, %s: bytes behind the result", kind, t->name);
    free(send);
    free(a);
    free(b);
}

// ---- moves ------------------------------------------------------------------------------------------------

// An array of `blocks` blocks of counts[i] elements of t, with a datatype and displacements of the rank's own
// choice.
typedef struct array {
    MPI_Datatype mpi;
    int derived, unit, counts[64], displs[64]; // in units of `unit` elements
    int shifted[64];                           // the same displacements from `at`, some of them negative
    size_t bytes;
    MPI_Aint extent;
    char *memory, *at;
} array;
enum { UNIT = 3 };
static MPI_Datatype some_type(const type_row *t, int *unit) { // of *unit elements of t
    MPI_Datatype made, resized;
    MPI_Aint low, extent;
    const int displs[UNIT] = {4, 0, 2}, ones[UNIT] = {1, 1, 1};
    MPI_Type_get_extent(t->mpi, &low, &extent);
    *unit = UNIT;
    switch (t->family == PAIR ? 5
                              : draw(&own, 6)) { // MPICH 4.0.2 fails with types made of MPI_LONG_DOUBLE_INT
    case 0: MPI_Type_contiguous(UNIT, t->mpi, &made); break;
    case 1: MPI_Type_vector(UNIT, 1, 2, t->mpi, &made); break;
    case 2: MPI_Type_indexed(UNIT, ones, displs, t->mpi, &made); break; // not in the order of memory
    case 3: {
        const int backward[UNIT] = {2, 1, 0};
        MPI_Type_create_indexed_block(UNIT, 1, backward, t->mpi, &made);
        break;
    }
    case 4:
        MPI_Type_contiguous(UNIT, t->mpi, &resized);
        MPI_Type_create_resized(resized, 0, 5 * extent, &made);
        MPI_Type_free(&resized);
        break;
    default: *unit = 1; return t->mpi;
    }
    MPI_Type_commit(&made);
    return made;
}
static array make_array(const type_row *t, int blocks, const int *units,
                        int spread) { // spread: 2: from a shifted address
    array a;
    MPI_Aint low, extent, true_low, true_extent;
    int at = 0, order[64];
    memset(&a, 0, sizeof a);
    a.mpi = some_type(t, &a.unit);
    a.derived = a.unit != 1;
    MPI_Type_get_extent(a.mpi, &low, &extent);
    a.extent = extent;
    MPI_Type_get_true_extent(a.mpi, &true_low, &true_extent);
    for (int i = 0; i < blocks; i++) order[i] = i;
    for (int i = blocks - 1; i > 0 && spread; i--) { // a random order, with gaps
        const int j = (int)draw(&own, (unsigned)i + 1), other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
    const int gap = spread && draw(&own, 2) ? 2 : 0, shift = spread == 2 && draw(&own, 2) ? 5 : 0;
    for (int i = 0; i < blocks; i++) {
        const int b = order[i];
        a.counts[b] = units[b] * UNIT / a.unit;
        a.displs[b] = at;
        a.shifted[b] = at - shift;
        at += a.counts[b] + gap;
    }
    a.bytes = 64 + (size_t)(at + 1) * (size_t)extent + (size_t)(true_low + true_extent) + 64;
    a.memory = malloc(a.bytes);
    a.at = a.memory + shift * extent;
    return a;
}
static void free_array(array *a) {
    if (a->derived) MPI_Type_free(&a->mpi);
    free(a->memory);
}

typedef enum move_kind {
    BCAST,
    ALLGATHER,
    ALLGATHERV,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLTOALL,
    ALLTOALLV,
    MOVES
} move_kind;
static void move(int kind, const array *s, const void *send, const array *r, void *recv, int root, MPI_Comm c,
                 int how) {
    const int *sd = s->shifted, *rd = r->shifted;
    MPI_Request q = MPI_REQUEST_NULL;
#define CALL(name, nonblocking, ...)                                                                         \
    if (how == ORIGINAL)                                                                                     \
        PMPI_##name(__VA_ARGS__);                                                                            \
    else if (how == BLOCKING)                                                                                \
        MPI_##name(__VA_ARGS__);                                                                             \
    else                                                                                                     \
        MPI_I##nonblocking(__VA_ARGS__, &q);                                                                 \
    break
    switch (kind) {
    case BCAST: CALL(Bcast, bcast, recv, r->counts[0], r->mpi, root, c);
    case ALLGATHER: CALL(Allgather, allgather, send, s->counts[0], s->mpi, recv, r->counts[0], r->mpi, c);
    case ALLGATHERV: CALL(Allgatherv, allgatherv, send, s->counts[0], s->mpi, recv, r->counts, rd, r->mpi, c);
    case GATHER: CALL(Gather, gather, send, s->counts[0], s->mpi, recv, r->counts[0], r->mpi, root, c);
    case GATHERV: CALL(Gatherv, gatherv, send, s->counts[0], s->mpi, recv, r->counts, rd, r->mpi, root, c);
    case SCATTER: CALL(Scatter, scatter, send, s->counts[0], s->mpi, recv, r->counts[0], r->mpi, root, c);
    case SCATTERV: CALL(Scatterv, scatterv, send, s->counts, sd, s->mpi, recv, r->counts[0], r->mpi, root, c);
    case ALLTOALL: CALL(Alltoall, alltoall, send, s->counts[0], s->mpi, recv, r->counts[0], r->mpi, c);
    default: CALL(Alltoallv, alltoallv, send, s->counts, sd, s->mpi, recv, r->counts, rd, r->mpi, c);
    }
    if (how == NONBLOCKING) wait_somehow(&q);
}
// The same blocks as bytes, one after the other.
static array packed_array(const array *a, int blocks) {
    array p;
    int e, at = 0, position = 0;
    memset(&p, 0, sizeof p);
    p.mpi = MPI_BYTE;
    MPI_Type_size(a->mpi, &e);
    p.at = p.memory = malloc(a->bytes);
    for (int i = 0; i < blocks; i++) {
        const char *from = a->memory + (MPI_Aint)a->displs[i] * a->extent;
        p.counts[i] = a->counts[i] * e;
        p.shifted[i] = at;
        MPI_Pack((void *)(uintptr_t)from, a->counts[i], a->mpi, p.memory, (int)a->bytes, &position,
                 MPI_COMM_WORLD);
        at += p.counts[i];
    }
    return p;
}
// What recv has to be afterwards. MPI's own function gets bytes, and MPI_IN_PLACE never: where ranks pass
// types of one signature and different layout, Open MPI 4.1 lets some take another algorithm than others and
// hangs, and MPICH 4.0.2 reports truncated messages.
static void expect_move(int kind, const array *s, int out, array *r, int in, int in_place, int rank, int root,
                        MPI_Comm c) {
    const int scatters = kind == SCATTER || kind == SCATTERV;
    array a = packed_array(s, out), b = packed_array(r, in);
    if (in_place && kind >= ALLTOALL) {
        memcpy(a.counts, b.counts, sizeof a.counts);
        memcpy(a.shifted, b.shifted, sizeof a.shifted);
        free(a.memory);
        a.memory = a.at = malloc(r->bytes);
        memcpy(a.memory, b.memory, r->bytes);
    } else if (in_place && !scatters) {
        memcpy(a.memory, b.memory + b.shifted[rank], (size_t)b.counts[rank]);
        a.counts[0] = b.counts[rank];
    }
    move(kind, &a, a.memory, &b, b.memory, root, c, ORIGINAL);
    for (int i = 0, position = 0; i < in && !(in_place && scatters); i++)
        MPI_Unpack(b.memory, (int)r->bytes, &position, r->memory + (MPI_Aint)r->displs[i] * r->extent,
                   r->counts[i], r->mpi, MPI_COMM_WORLD);
    free(a.memory);
    free(b.memory);
}
static void compare_move(int kind, const type_row *t, MPI_Comm c, size_t count) {
    int rank, size, units[64][64]; // [from][to], of UNIT elements
    int out[64], in[64];
    MPI_Comm_rank(c, &rank);
    MPI_Comm_size(c, &size);
    const int own_counts = kind == ALLTOALLV,
              counts = own_counts || kind == ALLGATHERV || kind == GATHERV || kind == SCATTERV;
    const int root = (int)draw(&all_ranks, (unsigned)size), in_place = (int)draw(&all_ranks, 3) == 0;
    const int n = (int)(count / UNIT);
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) units[i][j] = counts ? (int)draw(&all_ranks, (unsigned)n + 1) : n;
    for (int i = 0; i < size && own_counts && in_place; i++) // then both directions have one count
        for (int j = 0; j < i; j++) units[i][j] = units[j][i];
    for (int i = 0; i < size; i++) {
        const int rooted = kind == SCATTERV ? i : rank;
        out[i] = own_counts ? units[rank][i] : units[0][kind == SCATTERV || kind == SCATTER ? i : rooted];
        in[i] = own_counts ? units[i][rank] : units[0][i];
    }
    const int scatters = kind == SCATTER || kind == SCATTERV,
              all_out = scatters || kind == ALLTOALL || own_counts;
    const int all_in = !scatters && kind != BCAST;
    if (scatters) in[0] = units[0][rank];
    if (kind == BCAST) in[0] = n;
    if (!all_out) out[0] = units[0][rank];
    const int spread = counts + (counts && size > 1);
    array s = make_array(t, all_out ? size : 1, out, all_out ? spread : 0);
    array r = make_array(t, all_in ? size : 1, in, all_in ? spread : 0);
    MPI_Aint low, extent;
    MPI_Type_get_extent(t->mpi, &low, &extent);
    memset(s.memory, 3, s.bytes);
    fill(s.memory, t, (size_t)extent, (s.bytes - 64) / (size_t)extent);
    memset(r.memory, 5, r.bytes);
    fill(r.memory, t, (size_t)extent, (r.bytes - 64) / (size_t)extent);
    char *before = malloc(r.bytes), *expected = malloc(r.bytes);
    memcpy(before, r.memory, r.bytes);
    const int here = in_place && (kind == ALLGATHER || kind == ALLGATHERV || kind >= ALLTOALL ||
                                  (kind != BCAST && rank == root));
    const void *in_place_send = here && !scatters ? MPI_IN_PLACE : NULL;
    void *in_place_recv = here && scatters ? MPI_IN_PLACE : NULL;
    expect_move(kind, &s, all_out ? size : 1, &r, all_in ? size : 1, here, rank, root, c);
    memcpy(expected, r.memory, r.bytes);
    memcpy(r.memory, before, r.bytes);
    move(kind, &s, in_place_send ? in_place_send : s.at, &r, in_place_recv ? in_place_recv : r.at, root, c,
         draw(&all_ranks, 3) ? BLOCKING : NONBLOCKING);
    const size_t elements = (r.bytes - 64) / (size_t)extent;
    CHECK(same(r.memory, expected, t, (size_t)extent, elements) &&
              !memcmp(r.memory + elements * (size_t)extent, expected + elements * (size_t)extent, 64),
          "move %d of %s, %zu elements, %d ranks, root %d, in place %d", kind, t->name, count, size, root,
          in_place);
    free_array(&s);
    free_array(&r);
    free(before);
    free(expected);
}

// ---- with other calls of MPI ------------------------------------------------------------------------------

static void ring_around(MPI_Comm c) { // messages, and a nonblocking collective of MPI, around one of the kit
    const size_t bytes = draw(&all_ranks, 8) ? 100 : 400000;
    int rank, size, one = 1, ranks = 0, mine, sum = 0;
    MPI_Request requests[3];
    MPI_Comm_rank(c, &rank);
    MPI_Comm_size(c, &size);
    char *out = malloc(bytes), *in = malloc(bytes);
    memset(out, rank + 1, bytes);
    mine = rank;
    MPI_Isend(out, (int)bytes, MPI_CHAR, (rank + 1) % size, 5, c, &requests[0]);
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, c, &requests[1]);
    MPI_Allreduce(&one, &ranks, 1, MPI_INT, MPI_SUM, c);
    MPI_Irecv(in, (int)bytes, MPI_CHAR, (rank + size - 1) % size, 5, c, &requests[2]);
    MPI_Barrier(c);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    CHECK(ranks == size && sum == size * (size - 1) / 2 && in[bytes - 1] == (rank + size - 1) % size + 1,
          "ring");
    free(out);
    free(in);
}
static void product_of_successors(void *in, void *inout, int *count, MPI_Datatype *type) { // less one
    const int *a = in;
    int *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++) b[i] = (1 + a[i]) * (1 + b[i]) - 1; // no operation of MPI's own is this
}
static void left_to_mpi(void) { // what the kit does not take
    MPI_Op op;
    MPI_Comm inter;
    MPI_Request q;
    int x = world_rank, sum = 0, expected = world_size * (world_size - 1) / 2;
    int next = world_rank + 1, product = 1;
    for (int i = 0; i < world_size; i++) product *= i + 2;
    MPI_Op_create(product_of_successors, 1, &op);
    MPI_Allreduce(&next, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Op_free(&op);
    CHECK(sum == product - 1, "user's operation: %d", sum);
    MPI_Scan(&x, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_rank * (world_rank + 1) / 2, "scan");
    if (world_size < 2) return;
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, world_rank == 0 ? 1 : 0, 3, &inter);
    MPI_Allreduce(&x, &sum, 1, MPI_INT, MPI_SUM, inter); // gives the sum of the other side
    CHECK(sum == (world_rank ? 0 : expected), "intercommunicator");
    MPI_Iallreduce(&x, &sum, 1, MPI_INT, MPI_MAX, inter, &q);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    CHECK(sum == (world_rank ? 0 : world_size - 1), "intercommunicator, nonblocking");
    x = world_rank ? 0 : 5;
    MPI_Bcast(&x, 1, MPI_INT, world_rank ? 0 : MPI_ROOT, inter);
    CHECK(x == 5, "intercommunicator, broadcast: %d", x);
    x = world_rank;
    MPI_Gather(&x, 1, MPI_INT, &sum, 1, MPI_INT,
               world_rank == 1 ? MPI_ROOT
               : world_rank    ? MPI_PROC_NULL
                               : 0,
               inter);
    CHECK(world_rank != 1 || sum == 0, "intercommunicator, gather: %d", sum);
    MPI_Barrier(inter);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}
// Unsigned numbers with their highest bit are the largest. Not compared with MPI: MPICH 4.0.2 takes them for
// negative, Open MPI 4.1.4 those of 8 bytes.
static void largest_unsigned(void) {
    static const struct {
        MPI_Datatype mpi;
        size_t bytes;
    } rows[] = {{MPI_UNSIGNED_CHAR, 1}, {MPI_UINT8_T, 1},       {MPI_UNSIGNED, 4},          {MPI_UINT32_T, 4},
                {MPI_UINT64_T, 8},      {MPI_UNSIGNED_LONG, 8}, {MPI_UNSIGNED_LONG_LONG, 8}};
    for (size_t i = 0; par_mpi_print && i < sizeof rows / sizeof *rows; i++) {
        const uint64_t top = (uint64_t)1 << (8 * rows[i].bytes - 1), rank = (uint64_t)world_rank;
        uint64_t most = world_rank ? top + rank : 1, least = most; // 1, and what signed numbers have below 0
        MPI_Allreduce(MPI_IN_PLACE, &most, 1, rows[i].mpi, MPI_MAX, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, &least, 1, rows[i].mpi, MPI_MIN, MPI_COMM_WORLD);
        CHECK(least == 1 && most == (world_size > 1 ? top + (uint64_t)world_size - 1 : 1),
              "unsigned, row %zu: %llx to %llx", i, (unsigned long long)least, (unsigned long long)most);
    }
}
static void types_of_fortran(void) { // by what they must hold
    const long long sum = (long long)world_size * (world_size - 1) / 2;
    MPI_Datatype integer, real, complex_type;
    int32_t i = -world_rank, most = 0;
    double x = world_rank, z[2] = {world_rank, -world_rank};
    MPI_Type_create_f90_integer(9, &integer);
    MPI_Type_create_f90_real(15, 300, &real);
    MPI_Type_create_f90_complex(15, 300, &complex_type);
    MPI_Allreduce(&i, &most, 1, integer, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &i, 1, integer, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, real, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, z, 1, complex_type, MPI_SUM, MPI_COMM_WORLD);
    CHECK(i == -sum && most == 1 - world_size && x == (double)sum && z[0] == x && z[1] == -x,
          "%d, %d, %g, %g, %g", i, most, x, z[0], z[1]);
}
static void from_bottom(void) { // an array by its address in its type
    int x[3] = {world_rank, 7, world_rank + 1}, all[64 * 2];
    const int one[2] = {1, 1};
    MPI_Aint at[2];
    MPI_Datatype absolute;
    MPI_Get_address(&x[0], &at[0]);
    MPI_Get_address(&x[2], &at[1]);
    MPI_Type_create_hindexed(2, one, at, MPI_INT, &absolute);
    MPI_Type_commit(&absolute);
    MPI_Allgather(MPI_BOTTOM, 1, absolute, all, 2, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++) CHECK(all[2 * i] == i && all[2 * i + 1] == i + 1, "sent by %d", i);
    MPI_Bcast(MPI_BOTTOM, 1, absolute, world_size - 1, MPI_COMM_WORLD);
    CHECK(x[0] == world_size - 1 && x[1] == 7 && x[2] == world_size, "received: %d %d %d", x[0], x[1], x[2]);
    MPI_Type_free(&absolute);
}
#if MPI_VERSION >= 4
static void large_counts(void) { // MPI 4's forms, whose counts and displacements are not of int
    MPI_Count counts[64], one = 1;
    MPI_Aint places[64];
    MPI_Request q;
    int mine[64], all[128], sum = 0;
    for (int i = 0; i < world_size; i++) {
        counts[i] = 1;
        places[i] = 2 * (world_size - 1 - i);
        mine[i] = world_rank * 100 + i;
    }
    memset(all, -1, sizeof all);
    MPI_Allreduce_c(&world_rank, &sum, one, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size * (world_size - 1) / 2, "MPI_Allreduce_c");
    MPI_Allgatherv_c(&world_rank, one, MPI_INT, all, counts, places, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++)
        CHECK(all[places[i]] == i && all[places[i] + 1] == -1, "MPI_Allgatherv_c");
    MPI_Ireduce_scatter_c(mine, all, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    CHECK(all[0] == sum * 100 + world_size * world_rank, "MPI_Ireduce_scatter_c");
    for (int i = 0; i < world_size; i++) places[i] /= 2;
    MPI_Alltoallv_c(mine, counts, places, MPI_INT, all, counts, places, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++)
        CHECK(all[places[i]] == i * 100 + places[world_rank], "MPI_Alltoallv_c");
}
#else
static void large_counts(void) {}
#endif
#if defined(OPEN_MPI)               // Debian's MPICH checks no arguments
static void errors_are_mpis(void) { // with MPI's own text, from each rank for itself
    int x = 0, y = 0, code, class;
    MPI_Comm c;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN);
    for (int reduces = 0; reduces < 2; reduces++) {
        code = reduces ? MPI_Reduce(&x, &y, 1, MPI_INT, MPI_SUM, world_size, c)
                       : MPI_Bcast(&x, 1, MPI_INT, world_size, c);
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_ROOT, "root: class %d, reduces %d", class, reduces);
    }
    code = MPI_Allreduce(&x, &y, -1, MPI_INT, MPI_SUM, c);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_COUNT, "count: class %d", class);
    code = MPI_Allreduce(&x, &y, 1, MPI_FLOAT, MPI_BAND, c);
    CHECK(code != MPI_SUCCESS, "operation and type");
    MPI_Comm_free(&c);
}

#else
static void errors_are_mpis(void) {}
#endif

// ---- programs ---------------------------------------------------------------------------------------------

// Rank 1 takes a large message before the collective, rank 0 is in the collective meanwhile, or waits for it:
// the message arrives only if a rank that waits in the kit lets MPI go on.
static void progress(void) {
    const int n = 8 << 20;
    char *x = calloc((size_t)n, 1);
    MPI_Barrier(MPI_COMM_WORLD); // the comm is open from here on
    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        int one = 1, sum = 0;
        MPI_Request q = MPI_REQUEST_NULL, reduced = MPI_REQUEST_NULL;
        if (world_rank == 0) MPI_Isend(x, n, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &q);
        if (world_rank == 1) MPI_Recv(x, n, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (nonblocking)
            MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &reduced);
        else
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Wait(&reduced, MPI_STATUS_IGNORE);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        CHECK(sum == world_size, "progress, nonblocking %d", nonblocking);
    }
    free(x);
}
// A rank that never waits in a collective, because the other ranks come first, still sends its large message.
static void progress_unasked(void) {
    const int n = 1 << 17;
    char *x = calloc((size_t)n, 1);
    MPI_Request q = MPI_REQUEST_NULL;
    if (world_rank == 0) MPI_Isend(x, n, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &q);
    if (world_rank == 1) MPI_Irecv(x, n, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &q);
    for (int here = world_rank != 1, all = 0; !all;) {
        if (world_rank == 1 && !here) MPI_Test(&q, &here, MPI_STATUS_IGNORE);
        if (world_rank == 0) usleep(4000); // comes last
        MPI_Allreduce(&here, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    }
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    free(x);
}
// What was sent before a barrier is found by one question after it.
static void arrived(void) {
    int x = 0, found = 0, window[1];
    MPI_Win w;
    MPI_Group world, other;
    const int peer = 1 - world_rank;
    MPI_Comm c;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Comm_group(c, &world);
    MPI_Group_incl(world, 1, &peer, &other);
    MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN); // not every setting of Open MPI has windows
    const int windows = MPI_Win_create(window, sizeof window, 1, MPI_INFO_NULL, c, &w) == MPI_SUCCESS;
    for (int i = 0; i < 20; i++) {
        if (world_rank == 0) {
            if (windows) MPI_Win_start(other, 0, w);
            MPI_Barrier(c);
            if (windows) MPI_Win_complete(w);
            MPI_Send(&x, 1, MPI_INT, 1, 4, c);
            MPI_Barrier(c);
        } else {
            if (windows) MPI_Win_post(other, 0, w);
            MPI_Barrier(c);
            MPI_Barrier(c);
            found = 1;
            if (windows) MPI_Win_test(w, &found);
            CHECK(found, "MPI_Win_test after a barrier");
            MPI_Iprobe(0, 4, c, &found, MPI_STATUS_IGNORE);
            CHECK(found, "MPI_Iprobe after a barrier");
            MPI_Recv(&x, 1, MPI_INT, 0, 4, c, MPI_STATUS_IGNORE);
        }
    }
    if (windows) MPI_Win_free(&w);
    MPI_Group_free(&other);
    MPI_Group_free(&world);
    MPI_Comm_free(&c);
}
// The threads of this process that the kit has made, and the signals that all of them block.
static int threads_of_kit(unsigned long long *blocked) {
    char path[64], line[256];
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    *blocked = ~0ull;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        unsigned long long own = 0;
        int is_kits = 0;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/status", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (f && fgets(line, sizeof line, f)) {
            if (!strcmp(line, "Name:\tpar progress\n")) is_kits = 1;
            if (!strncmp(line, "SigBlk:", 7)) own = strtoull(line + 7, NULL, 16);
        }
        if (f) fclose(f);
        if (is_kits) n++, *blocked &= own;
    }
    if (dir) closedir(dir);
    return n;
}
static int by_mpi; // MPI runs what is nonblocking
static void look_at_thread(void) {
    unsigned long long blocked;
    const int n = threads_of_kit(&blocked);
    CHECK(by_mpi ? n <= 1 : n == 1, "%d threads", n);
    CHECK(blocked >> (SIGUSR1 - 1) & 1, "a thread takes the program's signals");
}
// Rank 1 waits for a nonblocking sum before it sends what rank 0 receives: rank 0 takes part in the sum while
// it is in MPI_Recv. Types and the communicator are freed before the end. Several are in flight at a time.
static void nonblocking(void) {
    enum { N = 1 << 20, FLIGHT = 8 };
    double *x = malloc(N * sizeof *x), *sum = malloc(N * sizeof *sum);
    int parts[FLIGHT], all[FLIGHT], letter = 0, pairs[4] = {world_rank, 7, world_rank + 1, 7}, *got;
    int counts[64], displs[64];
    MPI_Request q[FLIGHT + 1];
    MPI_Datatype spread, gap, other;
    MPI_Comm c, other_comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Comm_dup(MPI_COMM_WORLD, &other_comm);
    MPI_Barrier(c); // opens the kit's comm
    MPI_Barrier(other_comm);
    for (int i = 0; i < N; i++) x[i] = world_rank + i;
    MPI_Iallreduce(x, sum, N, MPI_DOUBLE, MPI_SUM, c, q);
    look_at_thread();
    if (world_rank == 0) MPI_Recv(&letter, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(q, MPI_STATUS_IGNORE);
    if (world_rank == 1) MPI_Send(&letter, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++)
        CHECK(sum[i] == (double)world_size * i + world_size * (world_size - 1) / 2, "element %d", i);
    got = calloc((size_t)world_size * 4, sizeof *got);
    for (int i = 0; i < world_size; i++) { // a gap after each rank's one
        counts[i] = 1;
        displs[i] = 2 * i;
    }
    MPI_Iallgatherv(&world_rank, 1, MPI_INT, got, counts, displs, MPI_INT, c, q);
    memset(counts, 77, sizeof counts); // as mpi4py, which frees them
    memset(displs, 77, sizeof displs);
    MPI_Wait(q, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2 * world_size; i++) CHECK(got[i] == (i % 2 ? 0 : i / 2), "gaps: %d: %d", i, got[i]);
    MPI_Type_vector(2, 1, 2, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    MPI_Type_create_resized(MPI_INT, 0, 8, &gap);
    MPI_Type_commit(&gap);
    MPI_Iallgather(pairs, 1, spread, got, 2, gap, c, &q[0]);
    for (int i = 0; i < FLIGHT; i++) {
        parts[i] = world_rank * i;
        MPI_Iallreduce(&parts[i], &all[i], 1, MPI_INT, MPI_SUM, c, &q[i + 1]);
    }
    MPI_Type_free(&spread);
    MPI_Type_free(&gap);
    MPI_Type_contiguous(3, MPI_INT, &other); // where the freed one was
    MPI_Waitall(FLIGHT, q, MPI_STATUSES_IGNORE);
    MPI_Type_free(&other);
    if (world_rank) MPI_Ibarrier(other_comm, q);         // rank 0 comes later
    if (by_mpi) MPI_Wait(&q[FLIGHT], MPI_STATUS_IGNORE); // Open MPI's own do not bear what follows
    MPI_Comm_free(&c);
    MPI_Wait(&q[FLIGHT], MPI_STATUS_IGNORE);
    if (!world_rank) MPI_Ibarrier(other_comm, q);
    MPI_Wait(q, MPI_STATUS_IGNORE);
    MPI_Comm_free(&other_comm);
    for (int i = 0; i < 2 * world_size; i++)
        CHECK(got[2 * i] == i / 2 + i % 2 && !got[2 * i + 1], "%d: %d", i, got[2 * i]);
    for (int i = 0; i < FLIGHT; i++)
        CHECK(all[i] == i * world_size * (world_size - 1) / 2, "in flight %d: %d", i, all[i]);
    free(got);
    free(sum);
    free(x);
}
// A nonblocking call on a communicator that had no collective yet waits for nobody.
static void nonblocking_first(void) {
    int x = 0;
    MPI_Request q;
    MPI_Comm c;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    if (world_rank == 1) MPI_Recv(&x, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Ibarrier(c, &q);
    if (world_rank == 0) MPI_Send(&x, 1, MPI_INT, 1, 8, MPI_COMM_WORLD);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    MPI_Comm_free(&c);
}
// Moves of blocks of n numbers, as numbers or as one element of another type, and a sum. Two ranks.
enum { SMALL = 64, LARGE = 4100 };
static void moves(int n) {
    static int x[LARGE], all[2 * LARGE], from[2 * LARGE];
    int one_each[2] = {1, 1}, places[2] = {0, 1}, counts[2] = {n, n}, at[2] = {0, n};
    MPI_Datatype block;
    const int root = world_rank == 0;
    MPI_Type_contiguous(n, MPI_INT, &block);
    MPI_Type_commit(&block);
    const MPI_Datatype there = root ? block : MPI_DATATYPE_NULL; // what the root alone knows
    for (int i = 0; i < n; i++) x[i] = root ? i : -1;
    MPI_Bcast(x, root ? n : 1, root ? MPI_INT : block, 0, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(x[i] == i, "broadcast of %d: %d", n, x[i]);
    for (int i = 0; i < n; i++) all[i] = x[i] += 100 * world_rank;
    MPI_Gather(root ? MPI_IN_PLACE : (void *)x, n, MPI_INT, all, root, there, 0, MPI_COMM_WORLD);
    for (int i = 0; root && i < 2 * n; i++) CHECK(all[i] == i % n + 100 * (i / n), "gather of %d", n);
    MPI_Scatter(all, root, there, root ? MPI_IN_PLACE : (void *)x, n, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(x[i] == i + 100 * world_rank, "scatter of %d", n);
    int *const ones = root ? one_each : NULL, *const where = root ? places : NULL;
    for (int i = 0; i < n; i++) x[i] = -1;
    MPI_Scatterv(root ? all : NULL, ones, where, there, x, n, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(x[i] == i + 100 * world_rank, "scatterv of %d", n);
    memset(all, -1, sizeof all);
    MPI_Gatherv(x, n, MPI_INT, root ? all : NULL, ones, where, there, 0, MPI_COMM_WORLD);
    for (int i = 0; root && i < 2 * n; i++) CHECK(all[i] == i % n + 100 * (i / n), "gatherv of %d", n);
    memset(all, -1, sizeof all);
    MPI_Allgatherv(x, n, MPI_INT, all, one_each, places, block, MPI_COMM_WORLD);
    for (int i = 0; i < 2 * n; i++) CHECK(all[i] == i % n + 100 * (i / n), "allgatherv of %d", n);
    for (int i = 0; i < 2 * n; i++) from[i] = i + 10000 * world_rank;
    MPI_Alltoallv(from, counts, at, MPI_INT, all, one_each, places, block, MPI_COMM_WORLD);
    for (int i = 0; i < 2 * n; i++)
        CHECK(all[i] == i % n + n * world_rank + 10000 * (i / n), "alltoallv of %d: %d", n, all[i]);
    for (int i = 0; i < n; i++) x[i] = i + world_rank;
    MPI_Reduce(x, all, n, MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD);
    for (int i = 0; !root && i < n; i++) CHECK(all[i] == 2 * i + 1, "sum of %d", n);
    MPI_Type_free(&block);
}
// The kit has 4 calls of a kind that MPI takes when they are small, MPI 16, the kit 1, MPI 32, the kit 8 that
// are large, and all where they are large now and then.
static void small_moves(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 21; i++) moves(SMALL);
    double least = world_rank, all_least = -1; // not all MPIs have the same one of a NaN: never MPI's
    MPI_Reduce(&least, &all_least, 1, MPI_DOUBLE, MPI_MIN, 1, MPI_COMM_WORLD);
    CHECK(all_least == (world_rank ? 0 : -1), "minimum %g", all_least);
    for (int i = 0; i < 40; i++) moves(LARGE);
    for (int i = 0; i < 20; i++) moves(i % 2 ? LARGE : SMALL);
}
// Each rank has a processor of its own, whatever machine this is: a launcher has bound it there.
static int bound = -1;
int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *cpus) { // this one is found before the system's
    if (bound < 0) return syscall(SYS_sched_getaffinity, pid, bytes, cpus) < 0 ? -1 : 0;
    CPU_ZERO_S(bytes, cpus);
    CPU_SET_S(bound, bytes, cpus);
    return 0;
}
// Reductions that Open MPI may have, and those that it may not, because three ranks' order changes the bits.
// Two ranks that are bound have processors enough, though the machine has more ranks.
static void small_sums(void) {
    int n = world_rank + 1, sum = 0, root = world_rank == 2, part = 0;
    double x = n, y[2] = {0, 0};
    MPI_Comm c;
    for (int i = 0; i < 5; i++) MPI_Reduce(&n, &sum, 1, MPI_INT, MPI_SUM, 2, MPI_COMM_WORLD);
    MPI_Reduce(&x, &y[0], 1, MPI_DOUBLE, MPI_SUM, 2, MPI_COMM_WORLD);
    MPI_Reduce(&x, &y[1], 1, MPI_DOUBLE, MPI_PROD, 2, MPI_COMM_WORLD);
    CHECK(!root || (sum == 6 && y[0] == 6 && y[1] == 6), "sums %d, %g, product %g", sum, y[0], y[1]);
    MPI_Comm_split(MPI_COMM_WORLD, root, 0, &c);
    MPI_Barrier(c);
    for (int i = 0; i < 5; i++) MPI_Reduce(&n, &part, 1, MPI_INT, MPI_SUM, 0, c);
    CHECK(world_rank == 1 || part == 3, "sum of a part: %d", part);
    MPI_Comm_free(&c);
#if defined(OPEN_MPI) // it forgives this: whose call is small does not depend on one rank's own count
    int word[100] = {0};
    for (int i = 0; i < 20; i++) {
        word[0] = world_rank ? 0 : i;
        MPI_Bcast(word, world_rank ? 100 : 60, MPI_INT, 0, MPI_COMM_WORLD);
        CHECK(word[0] == i, "word %d: %d", i, word[0]);
    }
#endif
}
static void fuzz(unsigned seed, int calls) {
    all_ranks.x = seed;
    own.x = seed + 1000003u * (unsigned)(world_rank + 1);
    for (int i = 0; i < COMMS; i++) make_comm(i);
    for (int t = 0, k = 0; t < type_count; t++) // each operation on each type once
        for (int o = 0; o < 12; o++)
            if (ops[o].families & types[t].family)
                compare_reduction(k++ % REDUCTIONS, &types[t], &ops[o], comms[0],
                                  any_count(&all_ranks) % 1200);
    for (int i = 0; i < calls; i++) {
        const int which = (int)draw(&all_ranks, COMMS);
        const type_row *t = &types[draw(&all_ranks, (unsigned)type_count)];
        const op_row *op = &ops[draw(&all_ranks, 12)];
        const int kind = (int)draw(&all_ranks, REDUCTIONS + MOVES + 2);
        const size_t count = any_count(&all_ranks);
        random_state before = all_ranks;
        if (kind < REDUCTIONS && (op->families & t->family))
            compare_reduction(kind, t, op, comms[which], count);
        else if (kind < REDUCTIONS + MOVES)
            compare_move(kind < REDUCTIONS ? kind : kind - REDUCTIONS, t, comms[which], count);
        else if (kind == REDUCTIONS + MOVES)
            ring_around(comms[which]);
        else
            remake_comm(which);
        if (which == 2 || which == 3 || which == 4)
            all_ranks = before; // ranks of other colors drew other roots
        if (which == 2 || which == 3 || which == 4) draw(&all_ranks, 2);
    }
    void *kit = &kit;
    for (int i = 0; i < 2 && par_mpi_comm; i++) { // the kit's comm, if there is one
        const int code = par_mpi_comm(i ? MPI_COMM_SELF : MPI_COMM_WORLD, &kit), none = i || world_size == 1;
        CHECK(none ? code && !kit : !code && kit, "par_mpi_comm gives %d and %p", code, kit);
    }
    largest_unsigned();
    types_of_fortran();
    from_bottom();
    large_counts();
    left_to_mpi();
    errors_are_mpis();
    if (world_size > 1) progress();
    for (int i = 0; i < COMMS; i += 2) // the others stay for MPI_Finalize
        if (i && i != 4) MPI_Comm_free(&comms[i]);
}

static void hash_bytes(uint64_t *hash, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) *hash = (*hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
}
// Sums whose rounding depends on the order are made in rank order, whatever the type and how many there are;
// rank 0 prints their bits.
static double rounds(random_state *r) { return 1.0 / (1 + draw(r, 100000)); }
static void bits(void) {
    uint64_t hash = 14695981039346656037u;
    for (int n = 1; n < 300000; n = n * 7 + 1) {
        double *x = malloc(sizeof *x * (size_t)n);
        float *y = malloc(sizeof *y * (size_t)n), *z = malloc(2 * sizeof *z * (size_t)n);
        long double *l = malloc(sizeof *l * (size_t)n);
        random_state rank[64];
        for (int r = 0; r < world_size; r++) rank[r].x = (uint64_t)n + 77u * (unsigned)r;
        random_state mine = rank[world_rank];
        for (int i = 0; i < n; i++) {
            x[i] = rounds(&mine);
            y[i] = z[2 * i] = (float)x[i];
            z[2 * i + 1] = -y[i];
            l[i] = 1 / (long double)x[i] / 7;
        }
        MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, y, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, z, n, MPI_C_FLOAT_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, l, n, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) {
            double sum = rounds(&rank[0]);
            float narrow = (float)sum;
            long double wide = 1 / (long double)sum / 7;
            for (int r = 1; r < world_size; r++) {
                const double next = rounds(&rank[r]);
                sum += next;
                narrow += (float)next;
                wide += 1 / (long double)next / 7;
            }
            CHECK(x[i] == sum && y[i] == narrow && z[2 * i] == narrow && z[2 * i + 1] == -narrow &&
                      l[i] == wide,
                  "element %d of %d is not added in rank order", i, n);
            hash_bytes(&hash, &x[i], sizeof *x);
            hash_bytes(&hash, &y[i], sizeof *y);
            hash_bytes(&hash, &z[2 * i], 2 * sizeof *z);
            hash_bytes(&hash, &l[i], 10);
        }
        free(x);
        free(y);
        free(z);
        free(l);
    }
    if (!world_rank) printf("bits %016llx\n", (unsigned long long)hash);
}

enum { THREADS = 11 };
static pthread_barrier_t all_threads;
static void *thread_main(void *p) { // each thread has a communicator of its own
    const MPI_Comm *c = p;
    int all[128] = {0};
    MPI_Datatype gap;
    MPI_Type_create_resized(MPI_INT, 0, 8, &gap);
    MPI_Type_commit(&gap);
    pthread_barrier_wait(&all_threads);
    for (int i = 0; i < 11; i++) {
        int one = 1, sum = 0;
        MPI_Request q;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, *c);
        CHECK(sum == world_size, "threads");
        if (i % 10) continue;
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, *c, &q);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        CHECK(sum == world_size, "threads, nonblocking");
        MPI_Iallgather(&one, 1, MPI_INT, all, 1, gap, *c, &q);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        CHECK(all[0] == 1 && all[1] == 0 && all[2] == 1, "threads, with gaps");
    }
    MPI_Type_free(&gap);
    return NULL;
}
enum { SHARED = 8, ROUNDS = 50 };
static MPI_Request shared[SHARED];
static void *wait_for_half(void *p) {
    const int half = *(const int *)p;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&all_threads); // they are begun
        for (int i = half; i < SHARED; i += 2) MPI_Wait(&shared[i], MPI_STATUS_IGNORE);
        pthread_barrier_wait(&all_threads);
    }
    return NULL;
}
// Two threads wait for calls on one communicator, each for its own.
static void threads_on_one(void) {
    static int part[SHARED][500], sum[SHARED][500];
    int halves[2] = {0, 1};
    pthread_t thread[2];
    MPI_Comm c;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Barrier(c);
    pthread_barrier_init(&all_threads, NULL, 3);
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, wait_for_half, &halves[i]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SHARED; i++) {
            for (int j = 0; j < 500; j++) part[i][j] = round + i + j;
            MPI_Iallreduce(part[i], sum[i], 500, MPI_INT, MPI_SUM, c, &shared[i]);
        }
        pthread_barrier_wait(&all_threads);
        pthread_barrier_wait(&all_threads);
        for (int i = 0; i < SHARED * 500; i++)
            CHECK(sum[i / 500][i % 500] == world_size * (round + i / 500 + i % 500), "one comm: %d", i);
    }
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&all_threads);
    MPI_Comm_free(&c);
}
// They open their comms in any order, on each rank in another one; MPI_Finalize closes most of them.
static void threads(int provided) {
    pthread_t thread[THREADS];
    MPI_Comm c[THREADS];
    if (provided < MPI_THREAD_MULTIPLE) return;
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &c[i]);
    pthread_barrier_init(&all_threads, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        const int which = world_rank % 2 ? THREADS - 1 - i : i;
        pthread_create(&thread[which], NULL, thread_main, &c[which]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) MPI_Comm_free(&c[i]);
    pthread_barrier_destroy(&all_threads);
    threads_on_one();
}

// ---- communicators come and go

// Each rank frees its communicators in an order of its own, and before a message that others wait for before
// they free theirs, also with a request on its way.
static void frees(void) {
    enum { N = 1 << 16 };
    static double x[N], sum[N];
    MPI_Comm a, b, c;
    MPI_Request q = MPI_REQUEST_NULL;
    int token = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_dup(MPI_COMM_WORLD, &b);
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Barrier(a);
    MPI_Barrier(b);
    MPI_Barrier(c);
    MPI_Comm_free(world_rank % 2 ? &b : &a);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(world_rank % 2 ? &a : &b);
    for (int i = 0; i < N; i++) x[i] = i;
    if (world_rank) MPI_Recv(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Iallreduce(x, sum, N, MPI_DOUBLE, MPI_SUM, c, &q);
    MPI_Comm_free(&c);
    for (int r = 1; !world_rank && r < world_size; r++) MPI_Send(&token, 1, MPI_INT, r, 1, MPI_COMM_WORLD);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    CHECK(sum[N - 1] == (double)world_size * (N - 1), "sum %g", sum[N - 1]);
}
// What is called while a communicator is freed calls collectives on it. Rank 0 sets its attribute before the
// first collective, the others after it.
static int delete_calls;
static int on_delete(MPI_Comm c, int key, void *value, void *extra) {
    int one = 1, sum = 0;
    (void)key, (void)value, (void)extra;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, c);
    CHECK(sum == world_size, "sum %d while the communicator is freed", sum);
    MPI_Barrier(MPI_COMM_WORLD);
    delete_calls++;
    return MPI_SUCCESS;
}
static void delete_callbacks(void) {
    int key, one = 1, sum = 0;
    MPI_Comm c;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &key, NULL);
    for (int used = 0; used < 2; used++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &c);
        if (!world_rank) MPI_Comm_set_attr(c, key, NULL);
        if (used) MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, c);
        if (world_rank) MPI_Comm_set_attr(c, key, NULL);
        MPI_Comm_free(&c);
    }
    CHECK(delete_calls == 2, "%d calls", delete_calls);
    MPI_Comm_free_keyval(&key);
}
// Rank 1 has freed a communicator; the others call a collective on it, and go on after the error.
static void used_after_free(void) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0, error = MPI_SUCCESS;
    MPI_Comm c;
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN);
    for (int i = 0; i < 4; i++) MPI_Barrier(c);
    for (int i = 0; i < 2 && world_rank != 1; i++) error = MPI_Barrier(c);
    if (world_rank != 1) MPI_Error_string(error, text, &length);
    CHECK(world_rank == 1 || (error && strstr(text, "has closed the comm at mpi_shim_")), "%s", text);
    MPI_Comm_free(&c);
    MPI_Barrier(MPI_COMM_WORLD);
}
// Many communicators at a time, each used by both forms of a sum. They share descriptors and a thread.
static int open_descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}
static void many(int n) {
    MPI_Comm *c = malloc((size_t)n * sizeof *c);
    const int before = open_descriptors();
    if (!c) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < n; i++) {
        int x = i, sum[2] = {0, 0};
        MPI_Request q;
        MPI_Comm_split(MPI_COMM_WORLD, 0, i % 2 ? -world_rank : world_rank, &c[i]);
        MPI_Allreduce(&x, &sum[0], 1, MPI_INT, MPI_SUM, c[i]);
        MPI_Iallreduce(&x, &sum[1], 1, MPI_INT, MPI_MAX, c[i], &q);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        CHECK(sum[0] == i * world_size && sum[1] == i, "communicator %d: %d, %d", i, sum[0], sum[1]);
    }
    CHECK(open_descriptors() <= before + 8, "%d descriptors, then %d", before, open_descriptors());
    look_at_thread();
    for (int i = 0; i < n; i++) MPI_Comm_free(&c[i]);
    free(c);
}
// The kit cannot have a thread: this function is found before the system's.
static int no_threads;
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *argument) {
    typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    Dl_info from;
    if (no_threads && dladdr(__builtin_return_address(0), &from) && strstr(from.dli_fname, "libpar_mpi"))
        return EAGAIN;
    return ((create *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run, argument);
}
// Threads make, use and free communicators of their own. MPICH's comm_create_group_threads2 does so.
static MPI_Group everybody;
static void *make_and_free(void *p) {
    const int tag = *(const int *)p;
    int half[1][3] = {{0, (world_size - 1) / 2, 1}};
    for (int i = 0; i < 30; i++) {
        MPI_Comm c;
        MPI_Group some;
        MPI_Group_range_incl(everybody, 1, half, &some);
        if (world_rank <= half[0][1]) {
            MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, &c);
            MPI_Barrier(c);
            MPI_Comm_free(&c);
        }
        MPI_Group_free(&some);
        MPI_Comm_create_group(MPI_COMM_WORLD, everybody, tag, &c);
        MPI_Barrier(c);
        MPI_Comm_free(&c);
    }
    return NULL;
}
static void threads_that_free(int provided) {
    pthread_t thread[THREADS];
    int tags[THREADS];
    if (provided < MPI_THREAD_MULTIPLE) return;
    MPI_Comm_group(MPI_COMM_WORLD, &everybody);
    for (int i = 0; i < THREADS; i++) tags[i] = i;
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, make_and_free, &tags[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    MPI_Group_free(&everybody);
}

// Calls that MPI forgives: sizes and names of types differ. Each is made twice at one place, and gives what
// MPI's own function does; the comm goes on.
enum { LESS = 1800, MORE = 2000, LOOSE_RANKS = 4, LOOSE_CALLS = 11 };
#if defined(OPEN_MPI)
enum { REFUSED = 1 << 8 | 1 << 9 }; // calls that this MPI does not forgive
#else
enum { REFUSED = 1 << 0 };
#endif
static void make_loose(int which, int own, int *in, int *out) {
    const MPI_Comm c = MPI_COMM_WORLD;
    const int root = world_rank == 0;
    int less[LOOSE_RANKS], more[LOOSE_RANKS], at[LOOSE_RANKS];
    for (int i = 0; i < world_size; i++) {
        less[i] = LESS;
        more[i] = MORE;
        at[i] = MORE * i;
    }
    memcpy(out, in, sizeof *in * MORE); // what a broadcast sends
#define EITHER(name, ...) (own ? P##name(__VA_ARGS__) : name(__VA_ARGS__))
    switch (which) {
    case 0: EITHER(MPI_Bcast, out, root ? LESS : MORE, MPI_INT, 0, c); break;
    case 1: EITHER(MPI_Gather, in, LESS, MPI_INT, out, MORE, MPI_INT, 0, c); break;
    case 2: EITHER(MPI_Allreduce, in, out, LESS, root ? MPI_INT : MPI_UNSIGNED, MPI_SUM, c); break;
    case 3: EITHER(MPI_Allgatherv, in, LESS, MPI_INT, out, more, at, MPI_INT, c); break;
    case 4: EITHER(MPI_Gatherv, in, LESS, MPI_INT, out, more, at, MPI_INT, 0, c); break;
    case 5: EITHER(MPI_Scatter, in, LESS, MPI_INT, out, MORE, MPI_INT, 0, c); break;
    case 6: EITHER(MPI_Scatterv, in, less, at, MPI_INT, out, MORE, MPI_INT, 0, c); break;
    case 7: EITHER(MPI_Allgather, in, LESS, MPI_INT, out, MORE, MPI_INT, c); break;
    case 8: EITHER(MPI_Alltoall, in, LESS, MPI_INT, out, MORE, MPI_INT, c); break;
    case 9: EITHER(MPI_Alltoallv, in, less, at, MPI_INT, out, more, at, MPI_INT, c); break;
    default:
        less[0] = root ? LESS : MORE; // one rank's block, which the others expect to be larger
        EITHER(MPI_Allgatherv, in, less[world_rank], MPI_INT, out, less, at, MPI_INT, c);
    }
#undef EITHER
}
static void loose(void) {
    static int in[LOOSE_RANKS * MORE], out[2][LOOSE_RANKS * MORE];
    for (int i = 0; i < LOOSE_RANKS * MORE; i++) in[i] = 1000 * world_rank + i;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int which = 0; which < LOOSE_CALLS; which++)
        for (int again = 0; again < 2 && !(REFUSED >> which & 1); again++) {
            int one = 1, sum = 0;
            for (int own = 0; own < 2; own++) {
                for (int i = 0; i < LOOSE_RANKS * MORE; i++) out[own][i] = -1;
                make_loose(which, own, in, out[own]);
            }
            CHECK(!memcmp(out[0], out[1], sizeof out[0]), "loose call %d differs from MPI's", which);
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            CHECK(sum == world_size, "after loose call %d: %d", which, sum);
        }
}

// What one program of several does; another one may not have the kit.
static void one_of_several(void) {
    int x = world_rank + 1, sum = -1, word = world_rank ? 0 : 7;
    MPI_Request q;
    MPI_Allreduce(&x, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size * (world_size + 1) / 2, "sum %d", sum);
    MPI_Bcast(&word, 1, MPI_INT, 0, MPI_COMM_WORLD);
    CHECK(word == 7, "word %d", word);
    MPI_Ibarrier(MPI_COMM_WORLD, &q);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
}

static int handled, handled_code;
static MPI_Comm handled_on;
static void handle(MPI_Comm *c, int *code, ...) {
    handled++;
    handled_on = *c;
    handled_code = *code;
}
// An error that the program's handler gets, and its call, as a code with a text. mismatch: 1: of counts;
// 2: of operations.
static void hang(int mismatch) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int x[2] = {0, 0}, y[2], length, code = MPI_SUCCESS;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mismatch || world_rank == 0)
        code = MPI_Allreduce(x, y, mismatch == 1 ? 1 + world_rank : 1, MPI_INT,
                             mismatch == 2 && world_rank ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD);
    CHECK(handled == (code != MPI_SUCCESS) &&
              (!code || (handled_on == MPI_COMM_WORLD && handled_code == code)),
          "the handler was called %d times with %d, the call returned %d", handled, handled_code, code);
    MPI_Errhandler_free(&handler);
    if (!mismatch && world_rank == 0)
        for (int i = 1; i < world_size; i++) MPI_Send(x, 1, MPI_INT, i, 0, MPI_COMM_WORLD);
    else if (!mismatch)
        MPI_Recv(x, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (code) MPI_Error_string(code, text, &length);
    if (!world_rank) printf("error: %s\n", text);
}

// What must be packed does not fit into memory: the handler gets MPI's code, and the communicator goes on.
static void out_of_memory(void) {
    const int n = 64 << 20;
    const size_t bytes = (size_t)n * 8;
    int one = 1, sum = 0;
    struct rlimit all, few;
    MPI_Errhandler handler;
    MPI_Datatype gap;
    MPI_Request q = MPI_REQUEST_NULL;
    void *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(x != MAP_FAILED, "no address space");
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Type_create_resized(MPI_INT, 0, 8, &gap);
    MPI_Type_commit(&gap);
    MPI_Barrier(MPI_COMM_WORLD);
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%lu", &pages) == 1, "no /proc/self/statm");
    if (statm) fclose(statm);
    getrlimit(RLIMIT_AS, &all);
    few = all;
    few.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + bytes / 4; // packed it has bytes / 2
    setrlimit(RLIMIT_AS, &few);
    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        const int code = nonblocking ? MPI_Ibcast(x, n, gap, 0, MPI_COMM_WORLD, &q)
                                     : MPI_Bcast(x, n, gap, 0, MPI_COMM_WORLD);
        CHECK(code == MPI_ERR_NO_MEM && handled == 1 + nonblocking && handled_on == MPI_COMM_WORLD &&
                  handled_code == code,
              "out of memory: %d, the handler was called %d times with %d", code, handled, handled_code);
    }
    setrlimit(RLIMIT_AS, &all);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size && handled == 2, "after it: %d, %d errors", sum, handled);
    MPI_Type_free(&gap);
    MPI_Errhandler_free(&handler);
    munmap(x, bytes);
}

// One of three requests fails: which one is in the statuses, each of MPI's calls for several.
static void in_status(void) {
    static const char *const calls[] = {"Waitall", "Testall", "Waitsome", "Testsome"};
    char text[MPI_MAX_ERROR_STRING] = "";
    int x = 0, y, length, indices[3], count, code = MPI_SUCCESS;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(handle, &handler);
    for (int call = 0; call < 4; call += getenv("SOAK") ? 1 : 3) {
        MPI_Comm c;
        MPI_Request q[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        MPI_Status statuses[3];
        MPI_Comm_dup(MPI_COMM_WORLD, &c);
        MPI_Comm_set_errhandler(c, handler);
        MPI_Barrier(c);
        handled = 0;
        if (world_rank == 0) {
            MPI_Isend(&x, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &q[0]);
            MPI_Iallreduce(&x, &y, 1, MPI_INT, MPI_SUM, c, &q[1]);
            MPI_Irecv(&y, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &q[2]);
            for (int flag = code = count = 0; !flag && !code;) {
                for (int j = 0; j < 3; j++) statuses[j].MPI_ERROR = -1;
                if (call == 0) code = MPI_Waitall(3, q, statuses);
                if (call == 1) code = MPI_Testall(3, q, &flag, statuses);
                if (call == 2) code = MPI_Waitsome(3, q, &count, indices, statuses);
                if (call == 3) code = MPI_Testsome(3, q, &count, indices, statuses);
            }
            CHECK(code == MPI_ERR_IN_STATUS, "%s returns %d", calls[call], code);
            for (int j = 0; j < (call < 2 ? 3 : count); j++) {
                const int failed = (call < 2 ? j : indices[j]) == 1, error = statuses[j].MPI_ERROR;
                CHECK(error == (failed ? handled_code : MPI_SUCCESS), "%s: status %d has %d", calls[call], j,
                      error);
                if (failed) MPI_Error_string(error, text, &length);
            }
            CHECK(*text, "%s: no status has the error", calls[call]);
            CHECK(handled == 1 && handled_on == c && handled_code, "%s: the handler", calls[call]);
            if (call < 3) MPI_Send(&x, 1, MPI_INT, 1, 6, MPI_COMM_WORLD);
        } else if (call < 3) {
            MPI_Recv(&x, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    if (world_rank == 0) MPI_Send(&x, 1, MPI_INT, 1, 6, MPI_COMM_WORLD);
    if (world_rank == 1) MPI_Recv(&x, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Errhandler_free(&handler);
    if (!world_rank) printf("error: %s\n", text);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "fuzz";
    const unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    const char *of_mpich = getenv("PMI_RANK"), *rank = of_mpich ? of_mpich : getenv("OMPI_COMM_WORLD_RANK");
    int provided;
    by_mpi = !strcmp(what, "nonblocking") && argc > 2;
    no_threads = by_mpi && !strcmp(argv[2], "no_thread");
    if (!strcmp(what, "small_sums") && rank) bound = atoi(rank);
    MPI_Init_thread(&argc, &argv, strstr(what, "threads") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    make_types();
    make_ops();
    if (!strncmp(what, "fuzz", 4)) fuzz(seed, argc > 3 ? atoi(argv[3]) : 300);
    if (!strcmp(what, "bits")) bits();
    if (!strcmp(what, "small")) small_moves();
    if (!strcmp(what, "small_sums")) small_sums();
    if (!strncmp(what, "progress", 8)) {
        progress();
        progress_unasked();
        arrived();
    }
    if (!strcmp(what, "threads")) threads(provided);
    if (!strcmp(what, "threads")) threads_that_free(provided);
    if (!strncmp(what, "frees", 5)) frees();
    if (!strncmp(what, "frees", 5)) delete_callbacks();
    if (!strcmp(what, "used_after_free")) used_after_free();
    if (!strcmp(what, "many")) many((int)seed);
    if (!strcmp(what, "nonblocking")) nonblocking_first();
    if (!strcmp(what, "nonblocking")) nonblocking();
    if (!strcmp(what, "loose")) loose();
    if (!strcmp(what, "several")) one_of_several();
    if (!strcmp(what, "hang")) hang(0);
    if (!strcmp(what, "mismatch")) hang(1);
    if (!strcmp(what, "other_op")) hang(2);
    if (!strncmp(what, "in_status", 9)) in_status();
    if (!strncmp(what, "memory", 6)) out_of_memory();
    MPI_Finalize();
    if (!world_rank) printf("done\n");
    return 0;
}

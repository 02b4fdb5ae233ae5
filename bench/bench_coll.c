// bench_coll.c - time of the collectives by size, with nccl-tests' columns and flags.
//
//     build/bench_coll --ranks 2 --op all_reduce -b 8 -e 64M           processes of this machine
//     mpiexec -n 2 build/bench_coll_mpi --op all --vs mpi              the MPI call on the same buffers,
//     alternating
//
// time: median over iterations of the slowest rank's time; p99 beside it. The data changes every iteration
// and every result is compared with exact integers; NaN canaries lie around the output. Roofline: in the same
// run all ranks do a += b on shared pages; eta = the least bytes the operation must load and store, per
// second, over that.
#define PAR_IMPLEMENTATION
#include "par.h"

#include "../examples/options.h"

#include <ctype.h>

typedef struct settings {
    size_t begin, end;
    int factor, iterations, warmup, inner, check, root, ranks, json, algorithms, in_place;
    const char *op, *dtype, *redop, *memory, *vs;
} settings;

typedef struct kind_info {
    const char *name;
    par_kind kind;
    int per_rank_blocks; // bytes S are n blocks of count
    int vs_mpi;
} kind_info;
static const kind_info kinds[] = {
    {"all_reduce", PAR_KIND_ALL_REDUCE, 0, 1}, {"reduce_scatter", PAR_KIND_REDUCE_SCATTER, 1, 1},
    {"all_gather", PAR_KIND_ALL_GATHER, 1, 1}, {"broadcast", PAR_KIND_BROADCAST, 0, 1},
    {"reduce", PAR_KIND_REDUCE, 0, 1},         {"gather", PAR_KIND_GATHER, 1, 1},
    {"scatter", PAR_KIND_SCATTER, 1, 1},       {"all_to_all", PAR_KIND_ALL_TO_ALL, 1, 1},
    {"sendrecv", PAR_KIND_SEND, 0, 1},         {"barrier", PAR_KIND_BARRIER, 0, 1},
};
enum { KINDS = (int)(sizeof kinds / sizeof kinds[0]), CANARY = 256 };

typedef struct bench {
    settings o;
    par_comm *world;
    int rank, n;
    par_dtype dtype;
    par_op redop;
    size_t e;
    unsigned char *send, *recv; // room bytes each, with canaries
    size_t room;
    float *pattern;           // 0 1 2 ... 7 0 1 ...
    double *times, *vs_times; // per iteration
    double roofline;          // bytes per second, all ranks together
} bench;

static void die(bench *b, const char *text) {
    fprintf(stderr, "bench_coll: rank %d: %s\n", b->rank, text);
    exit(1);
}
static void need(bench *b, par_result r) {
    if (r != PAR_OK) die(b, par_last_error(b->world));
}

// ---- data: element i of rank r in iteration t is (i + 3r + t) mod 8
// -------------------------------------------

static float base_value(const bench *b, size_t i, int r, int t) {
    const float v = (float)((i + 3 * (size_t)r + (size_t)t) & 7u);
    return (b->redop & 255) == PAR_PROD ? (v == 0 ? 2.0f : 1.0f) : v;
}
static void fill(bench *b, void *dst, size_t count, int r, int t) {
    if ((b->redop & 255) != PAR_PROD) {
        par_cast(dst, b->dtype, b->pattern + ((size_t)(3 * r + t) & 7u), PAR_F32, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const float v = base_value(b, i, r, t);
        par_cast((char *)dst + i * b->e, b->dtype, &v, PAR_F32, 1);
    }
}
static void expected_sum(const bench *b, size_t i, int t, void *want) {
    const unsigned code = (unsigned)(b->redop & 255);
    double acc = (double)base_value(b, i, 0, t);
    for (int r = 1; r < b->n; r++) {
        const double v = (double)base_value(b, i, r, t);
        acc = code == PAR_PROD  ? acc * v
              : code == PAR_MIN ? fmin(acc, v)
              : code == PAR_MAX ? fmax(acc, v)
                                : acc + v;
    }
    if (code == PAR_SCALED_SUM) acc *= 0.5;
    if (code == PAR_AVG) {
        const float f = (float)acc / (float)b->n;
        if (b->dtype == PAR_F64)
            acc /= b->n;
        else
            acc = (double)f;
    }
    par_cast(want, b->dtype, &acc, PAR_F64, 1);
}
static size_t check_canary(const bench *b, size_t used) { // bytes touched beyond the result
    size_t wrong = 0;
    for (size_t i = 0; i < CANARY; i++) wrong += b->recv[used + i] != 0xFF;
    return wrong;
}
static size_t check(const bench *b, const kind_info *k, size_t count, int t) {
    const unsigned char *recv = b->recv;
    const int root = b->o.root, me = b->rank,
              sums = k->kind == PAR_KIND_ALL_REDUCE || k->kind == PAR_KIND_REDUCE ||
                     k->kind == PAR_KIND_REDUCE_SCATTER;
    const int gathers = k->kind == PAR_KIND_ALL_GATHER || k->kind == PAR_KIND_GATHER,
              all = k->kind == PAR_KIND_ALL_TO_ALL;
    const size_t total = gathers || all ? count * (size_t)b->n : count;
    size_t wrong = 0;
    if (k->kind == PAR_KIND_BARRIER ||
        ((k->kind == PAR_KIND_REDUCE || k->kind == PAR_KIND_GATHER) && me != root))
        return 0;
    unsigned char want[8][8];
    for (int r = 0; r < (gathers || all ? b->n : 1); r++) // a block at a time: 8 different values in it
        for (size_t i = 0; i < (gathers || all ? count : total); i++) {
            const size_t skip = k->kind == PAR_KIND_REDUCE_SCATTER || k->kind == PAR_KIND_SCATTER || all
                                    ? (size_t)me * count
                                    : 0;
            const int from = gathers || all ? r : k->kind == PAR_KIND_SEND ? (me + b->n - 1) % b->n : root;
            if (i < 8) {
                const float v = base_value(b, skip + i, from, t);
                if (sums)
                    expected_sum(b, skip + i, t, want[i]);
                else
                    par_cast(want[i], b->dtype, &v, PAR_F32, 1);
            }
            wrong += memcmp(recv + ((size_t)r * count + i) * b->e, want[i & 7], b->e) != 0;
        }
    return wrong + check_canary(b, total * b->e);
}

// ---- the operations
// -------------------------------------------------------------------------------------------

static par_result run_par(bench *b, const kind_info *k, const void *send, void *recv, size_t c) {
    const int right = (b->rank + 1) % b->n, left = (b->rank + b->n - 1) % b->n, root = b->o.root;
    switch (k->kind) {
    case PAR_KIND_ALL_REDUCE: return par_all_reduce(send, recv, c, b->dtype, b->redop, b->world);
    case PAR_KIND_REDUCE_SCATTER: return par_reduce_scatter(send, recv, c, b->dtype, b->redop, b->world);
    case PAR_KIND_ALL_GATHER: return par_all_gather(send, recv, c, b->dtype, b->world);
    case PAR_KIND_BROADCAST: return par_broadcast(send, recv, c, b->dtype, root, b->world);
    case PAR_KIND_REDUCE: return par_reduce(send, recv, c, b->dtype, b->redop, root, b->world);
    case PAR_KIND_GATHER: return par_gather(send, recv, c, b->dtype, root, b->world);
    case PAR_KIND_SCATTER: return par_scatter(send, recv, c, b->dtype, root, b->world);
    case PAR_KIND_ALL_TO_ALL: return par_all_to_all(send, recv, c, b->dtype, b->world);
    case PAR_KIND_SEND: return par_sendrecv(send, c, right, recv, c, left, b->dtype, b->world);
    default: return par_barrier(b->world);
    }
}

#if defined(PAR_MPI)
static MPI_Datatype mpi_type(par_dtype d) { // MPI_DATATYPE_NULL: MPI has none
    switch (d) {
    case PAR_F64: return MPI_DOUBLE;
    case PAR_F32: return MPI_FLOAT;
    case PAR_I8: return MPI_INT8_T;
    case PAR_U8: return MPI_UINT8_T;
    case PAR_I32: return MPI_INT32_T;
    case PAR_U32: return MPI_UINT32_T;
    case PAR_I64: return MPI_INT64_T;
    case PAR_U64: return MPI_UINT64_T;
    default: return MPI_DATATYPE_NULL;
    }
}
static void run_mpi(bench *b, const kind_info *k, const void *send, void *recv, size_t c) {
    const unsigned code = (unsigned)(b->redop & 255);
    const MPI_Datatype t = mpi_type(b->dtype);
    const MPI_Op op = code == PAR_PROD  ? MPI_PROD
                      : code == PAR_MIN ? MPI_MIN
                      : code == PAR_MAX ? MPI_MAX
                                        : MPI_SUM;
    const int n = (int)c, right = (b->rank + 1) % b->n, left = (b->rank + b->n - 1) % b->n, root = b->o.root;
    switch (k->kind) {
    case PAR_KIND_ALL_REDUCE: MPI_Allreduce(send, recv, n, t, op, MPI_COMM_WORLD); break;
    case PAR_KIND_REDUCE_SCATTER: MPI_Reduce_scatter_block(send, recv, n, t, op, MPI_COMM_WORLD); break;
    case PAR_KIND_ALL_GATHER: MPI_Allgather(send, n, t, recv, n, t, MPI_COMM_WORLD); break;
    case PAR_KIND_BROADCAST:
        MPI_Bcast(b->rank == root ? (void *)(uintptr_t)send : recv, n, t, root, MPI_COMM_WORLD);
        break;
    case PAR_KIND_REDUCE: MPI_Reduce(send, recv, n, t, op, root, MPI_COMM_WORLD); break;
    case PAR_KIND_GATHER: MPI_Gather(send, n, t, recv, n, t, root, MPI_COMM_WORLD); break;
    case PAR_KIND_SCATTER: MPI_Scatter(send, n, t, recv, n, t, root, MPI_COMM_WORLD); break;
    case PAR_KIND_ALL_TO_ALL: MPI_Alltoall(send, n, t, recv, n, t, MPI_COMM_WORLD); break;
    case PAR_KIND_SEND:
        MPI_Sendrecv(send, n, t, right, 0, recv, n, t, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    default: MPI_Barrier(MPI_COMM_WORLD); break;
    }
}
#endif

// ---- measuring
// ------------------------------------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
typedef struct timing {
    double median, p99;
} timing;
static timing summarise(bench *b, double *times, int n) {
    timing t;
    need(b, par_all_reduce(times, times, (size_t)n, PAR_F64, PAR_MAX, b->world));
    qsort(times, (size_t)n, sizeof *times, by_value);
    t.median = times[n / 2];
    t.p99 = times[PAR__MIN(n - 1, n * 99 / 100)];
    return t;
}

typedef struct row {
    timing ours, vs, in_place;
    size_t wrong;
} row;

static int starts_in_place(const bench *b, const kind_info *k, size_t block, unsigned char **send,
                           unsigned char **recv) {
    const size_t mine = (size_t)b->rank * block;
    *send = b->send, *recv = b->send;
    switch (k->kind) {
    case PAR_KIND_ALL_REDUCE:
    case PAR_KIND_BROADCAST:
    case PAR_KIND_REDUCE: return 1;
    case PAR_KIND_REDUCE_SCATTER:
    case PAR_KIND_SCATTER: *recv = b->send + mine; return 1;
    case PAR_KIND_ALL_GATHER:
    case PAR_KIND_GATHER: *send = b->send + mine; return 1;
    default: return 0;
    }
}

static double once(bench *b, const kind_info *k, const void *send, void *recv, size_t count) {
    need(b, par_barrier(b->world));
    const double t0 = par_seconds(b->world);
    for (int m = 0; m < b->o.inner; m++) need(b, run_par(b, k, send, recv, count));
    return (par_seconds(b->world) - t0) / b->o.inner;
}

static row measure(bench *b, const kind_info *k, size_t count, int iterations) {
    const int blocks = k->per_rank_blocks, vs = b->o.vs != NULL,
              in_send = blocks && k->kind != PAR_KIND_ALL_GATHER && k->kind != PAR_KIND_GATHER;
    const size_t send_count = in_send ? count * (size_t)b->n : count, block = count * b->e;
    const size_t touched = block * (size_t)(blocks ? b->n : 1) + CANARY; // at most, of recv
    unsigned char *send, *recv;
    row r;
    memset(&r, 0, sizeof r);
    for (int i = -b->o.warmup; i < iterations; i++) {
        fill(b, b->send, send_count, b->rank, i + b->o.warmup);
        if (b->o.check) memset(b->recv, 0xFF, touched);
        const double t = once(b, k, b->send, b->recv, count);
        if (i >= 0) b->times[i] = t;
        if (b->o.check) r.wrong += check(b, k, count, i + b->o.warmup);
#if defined(PAR_MPI)
        if (vs) { // begin with the same caches as ours
            fill(b, b->send, send_count, b->rank, i + b->o.warmup);
            if (b->o.check) memset(b->recv, 0xFF, touched);
            need(b, par_barrier(b->world));
            const double t0 = par_seconds(b->world);
            for (int m = 0; m < b->o.inner; m++) run_mpi(b, k, b->send, b->recv, count);
            if (i >= 0) b->vs_times[i] = (par_seconds(b->world) - t0) / b->o.inner;
        }
#endif
    }
    r.ours = summarise(b, b->times, iterations);
    if (vs) r.vs = summarise(b, b->vs_times, iterations);
    if (b->o.in_place && starts_in_place(b, k, block, &send, &recv)) {
        for (int i = -b->o.warmup; i < iterations; i++) {
            const double t = once(b, k, send, recv, count);
            if (i >= 0) b->times[i] = t;
        }
        r.in_place = summarise(b, b->times, iterations);
    }
    uint64_t wrong = r.wrong;
    need(b, par_all_reduce(&wrong, &wrong, 1, PAR_U64, PAR_SUM, b->world));
    r.wrong = (size_t)wrong;
    return r;
}

static double measure_roofline(bench *b) { // a += b in place on shared pages: 3 bytes moved per byte of a
    const size_t bytes = PAR__MIN(PAR__MAX(b->room, (size_t)1 << 20), (size_t)64 << 20), n = bytes / 4;
    float *x = (float *)par_alloc(b->world, bytes), *y = (float *)par_alloc(b->world, bytes);
    double best = 0;
    if (!x || !y) die(b, par_last_error(b->world));
    for (size_t i = 0; i < n; i++) x[i] = y[i] = 1;
    for (int i = 0; i < 7; i++) {
        const void *sources[2] = {x, y};
        need(b, par_barrier(b->world));
        const double t0 = par_seconds(b->world);
        par_cpu()->reduce(par_cpu(), x, sources, 2, n, PAR_F32, PAR_SUM, NULL);
        double t = par_seconds(b->world) - t0;
        need(b, par_all_reduce(&t, &t, 1, PAR_F64, PAR_MAX, b->world));
        best = fmax(best, 3.0 * (double)(n * 4) * b->n / t);
    }
    need(b, par_free(b->world, y));
    need(b, par_free(b->world, x));
    return best;
}

// Bytes the machine must load and store at least, over S; and busbw over algbw (as nccl-tests has it).
static double least_bytes(const bench *b, par_kind k) {
    const double n = b->n;
    switch (k) {
    case PAR_KIND_ALL_REDUCE:
    case PAR_KIND_SEND:
    case PAR_KIND_ALL_TO_ALL: return 2 * n;
    case PAR_KIND_GATHER:
    case PAR_KIND_SCATTER: return 2;
    default: return n + 1;
    }
}
static double bus_factor(const bench *b, par_kind k) {
    const double n = b->n;
    switch (k) {
    case PAR_KIND_ALL_REDUCE: return 2 * (n - 1) / n;
    case PAR_KIND_BROADCAST:
    case PAR_KIND_REDUCE:
    case PAR_KIND_SEND:
    case PAR_KIND_BARRIER: return 1;
    default: return (n - 1) / n;
    }
}

static void print_row(const bench *b, const kind_info *k, size_t bytes, size_t count, const row *r) {
    const double alg = r->ours.median > 0 ? (double)bytes / r->ours.median * 1e-9 : 0,
                 bus = alg * bus_factor(b, k->kind);
    const double eta = b->roofline > 0 ? alg * 1e9 * least_bytes(b, k->kind) / b->roofline : 0;
    const int sums =
        k->kind == PAR_KIND_ALL_REDUCE || k->kind == PAR_KIND_REDUCE || k->kind == PAR_KIND_REDUCE_SCATTER;
    const int rooted = k->kind == PAR_KIND_BROADCAST || k->kind == PAR_KIND_REDUCE ||
                       k->kind == PAR_KIND_GATHER || k->kind == PAR_KIND_SCATTER;
    const char *redop = sums ? par_op_name(b->redop) : "none";
    if (b->o.json) {
        printf("{\"op\":\"%s\",\"bytes\":%zu,\"count\":%zu,\"dtype\":\"%s\",\"redop\":\"%s\",\"ranks\":%d,"
               "\"nodes\":%d,"
               "\"memory\":\"%s\",\"algorithm\":\"%s\",\"time_us\":%.4f,\"p99_us\":%.4f,\"algbw\":%.5g,"
               "\"busbw\":%.5g,"
               "\"wrong\":%zu,\"eta\":%.4f",
               k->name, bytes, count, par_dtype_name(b->dtype), redop, b->n, par_node_count(b->world),
               b->o.memory, par_last_algorithm(b->world), r->ours.median * 1e6, r->ours.p99 * 1e6, alg, bus,
               r->wrong, eta);
        if (r->in_place.median > 0) printf(",\"in_place_time_us\":%.4f", r->in_place.median * 1e6);
        if (b->o.vs)
            printf(",\"vs\":\"%s\",\"vs_time_us\":%.4f,\"vs_p99_us\":%.4f,\"ratio\":%.4f", b->o.vs,
                   r->vs.median * 1e6, r->vs.p99 * 1e6, r->vs.median / r->ours.median);
        printf("}\n");
    } else {
        printf("%12zu %10zu %6s %6s %5d %10.2f %10.2f %8.3f %8.3f %6zu %5.2f", bytes, count,
               par_dtype_name(b->dtype), redop, rooted ? b->o.root : -1, r->ours.median * 1e6,
               r->ours.p99 * 1e6, alg, bus, r->wrong, eta);
        if (r->in_place.median > 0)
            printf(" %10.2f %8.3f", r->in_place.median * 1e6, (double)bytes / r->in_place.median * 1e-9);
        else
            printf(" %10s %8s", "-", "-");
        if (b->o.vs) printf(" %10.2f %6.2f", r->vs.median * 1e6, r->vs.median / r->ours.median);
        printf("\n");
    }
    fflush(stdout);
}

static void print_head(const bench *b, const kind_info *k) {
    if (b->o.json) return;
    printf("# %s, %d ranks on %d nodes (%s), %s memory; roofline of a += b: %.2f GB/s\n", k->name, b->n,
           par_node_count(b->world), par_backend(b->world), b->o.memory, b->roofline * 1e-9);
    printf("#%11s %10s %6s %6s %5s %10s %10s %8s %8s %6s %5s %10s %8s%s\n", "size", "count", "type", "redop",
           "root", "time", "p99", "algbw", "busbw", "#wrong", "eta", "in-place", "algbw",
           b->o.vs ? "        MPI  ratio" : "");
    printf("#%11s %10s %6s %6s %5s %10s %10s %8s %8s %6s %5s %10s %8s%s\n", "(B)", "(elem)", "", "", "",
           "(us)", "(us)", "(GB/s)", "(GB/s)", "", "", "(us)", "(GB/s)", b->o.vs ? "       (us)" : "");
}

static size_t run_kind(bench *b, const kind_info *k) { // the number of wrong elements
    const size_t unit = b->e * (k->per_rank_blocks ? (size_t)b->n : 1);
    size_t wrong = 0;
    if (b->rank == 0) print_head(b, k);
    for (size_t bytes = k->kind == PAR_KIND_BARRIER ? b->o.end : b->o.begin; bytes <= b->o.end;
         bytes = bytes ? bytes * (size_t)b->o.factor : 1) {
        const size_t count = k->kind == PAR_KIND_BARRIER ? 0 : bytes / unit;
        const double gigabytes = (double)bytes * b->n * 1e-9; // fewer iterations of large ones
        const int iterations = b->o.iterations > 0
                                   ? b->o.iterations
                                   : PAR__MAX(9, PAR__MIN(2000, (int)(1.5 / (gigabytes + 5e-4))));
        const row r = measure(b, k, count, iterations);
        if (b->rank == 0) print_row(b, k, k->kind == PAR_KIND_BARRIER ? 0 : count * unit, count, &r);
        wrong += r.wrong;
        if (k->kind == PAR_KIND_BARRIER || bytes > SIZE_MAX / (size_t)b->o.factor) break;
    }
    return wrong;
}

static const char *check_settings(bench *b) {
    settings *o = &b->o;
    int known = !strcmp(o->op, "all");
    for (int i = 0; i < KINDS; i++) known |= !strcmp(o->op, kinds[i].name);
    if (!known)
        return "no such --op; all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, "
               "all_to_all, sendrecv, barrier or all";
    if (!strcmp(o->dtype, "float")) o->dtype = "f32";
    if (!strcmp(o->dtype, "double")) o->dtype = "f64";
    if (!strcmp(o->dtype, "half")) o->dtype = "f16";
    if (!strcmp(o->dtype, "bfloat16")) o->dtype = "bf16";
    if (!par_dtype_parse(o->dtype, &b->dtype))
        return "no such type for -d; f64 f32 f16 bf16 i8 u8 i32 u32 i64 u64";
    if (!par_op_parse(o->redop, &b->redop))
        return "no such operation for -o; sum avg prod min max scaled_sum";
    if ((b->redop & 255) == PAR_SCALED_SUM && b->dtype >= PAR_I8) return "a scaled sum needs a float type";
    if (strcmp(o->memory, "symmetric") && strcmp(o->memory, "private"))
        return "--memory is symmetric or private";
    if (o->factor < 2) return "-f must be 2 or more";
    if (o->end < o->begin) return "-e must not be less than -b";
    if (o->warmup < 0 || o->inner < 1 || o->iterations < 0)
        return "-w must not be negative, -m must be 1 or more, -n must not be negative";
    if (o->ranks < 0 || o->ranks > 1024) return "--ranks must be from 1 to 1024";
    if (o->vs && strcmp(o->vs, "mpi")) return "--vs knows mpi";
#if defined(PAR_MPI)
    if (o->vs && mpi_type(b->dtype) == MPI_DATATYPE_NULL) return "MPI has no such type to compare with";
    if (o->vs && ((b->redop & 255) == PAR_AVG || (b->redop & 255) == PAR_SCALED_SUM))
        return "MPI has no such operation to compare with";
    if (o->vs && o->end > (size_t)INT_MAX) return "MPI cannot count that far; a smaller -e";
#else
    if (o->vs) return "--vs mpi needs bench_coll_mpi";
#endif
    b->e = par_dtype_bytes(b->dtype);
    return NULL;
}

static int run(bench *b) {
    const int iterations = PAR__MAX(b->o.iterations, 2000);
    size_t wrong = 0;
    b->rank = par_rank(b->world), b->n = par_size(b->world);
    if (b->o.root < 0 || b->o.root >= b->n) {
        if (b->rank == 0) fprintf(stderr, "bench_coll: -r must be a rank\n");
        return 2;
    }
    b->room = b->o.end + 64 * (size_t)b->n + CANARY;
    b->times = (double *)calloc((size_t)iterations, sizeof(double)),
    b->vs_times = (double *)calloc((size_t)iterations, sizeof(double));
    const size_t pattern = b->o.end / b->e + 64;
    b->pattern = (float *)malloc(pattern * sizeof(float));
    if (!strcmp(b->o.memory, "symmetric")) {
        b->send = (unsigned char *)par_alloc(b->world, b->room),
        b->recv = (unsigned char *)par_alloc(b->world, b->room);
    } else {
        b->send = (unsigned char *)malloc(b->room), b->recv = (unsigned char *)malloc(b->room);
    }
    if (!b->times || !b->vs_times || !b->pattern || !b->send || !b->recv)
        die(b, "out of memory; a smaller -e");
    for (size_t i = 0; i < pattern; i++) b->pattern[i] = (float)(i & 7);
    memset(b->send, 0, b->room), memset(b->recv, 0, b->room);
    b->roofline = measure_roofline(b);
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(b->o.op, "all") || !strcmp(b->o.op, kinds[i].name)) wrong += run_kind(b, &kinds[i]);
    if (b->rank == 0 && wrong) fprintf(stderr, "bench_coll: %zu wrong results\n", wrong);
    if (!strcmp(b->o.memory, "symmetric")) {
        need(b, par_free(b->world, b->recv));
        need(b, par_free(b->world, b->send));
    } else {
        free(b->send), free(b->recv);
    }
    free(b->times), free(b->vs_times), free(b->pattern);
    return b->rank == 0 && wrong != 0;
}

int main(int argc, char **argv) {
    bench b;
    memset(&b, 0, sizeof b);
    settings *o = &b.o;
    o->begin = 8, o->end = (size_t)64 << 20, o->factor = 8, o->warmup = 5, o->inner = 1, o->check = 1,
    o->in_place = 1;
    o->op = "all_reduce", o->dtype = "f32", o->redop = "sum", o->memory = "private";
    const option options[] = {
        {"-b", OPTION_SIZE, &o->begin, "smallest size in bytes (K, M, G)"},
        {"-e", OPTION_SIZE, &o->end, "largest size"},
        {"-f", OPTION_INT, &o->factor, "factor between sizes"},
        {"-n", OPTION_INT, &o->iterations, "iterations; 0: by size"},
        {"-i", OPTION_INT, &o->in_place, "also in place: 0 or 1"},
        {"-w", OPTION_INT, &o->warmup, "iterations that do not count"},
        {"-m", OPTION_INT, &o->inner, "operations in one iteration"},
        {"-c", OPTION_INT, &o->check, "check results: 0 or 1"},
        {"-d", OPTION_TEXT, &o->dtype, "type"},
        {"-o", OPTION_TEXT, &o->redop, "reduction"},
        {"-r", OPTION_INT, &o->root, "root"},
        {"--op", OPTION_TEXT, &o->op, "collective, or all"},
        {"--memory", OPTION_TEXT, &o->memory, "symmetric (par_alloc) or private"},
        {"--ranks", OPTION_INT, &o->ranks, "ranks on this machine; 0: PAR_RANKS or 2"},
        {"--vs", OPTION_TEXT, &o->vs, "mpi: the MPI call on the same buffers, alternating"},
        {"--json", OPTION_FLAG, &o->json, "one JSON object a row"},
        {"--algorithms", OPTION_FLAG, &o->algorithms, "print the algorithms and what would be chosen"},
    };
    const int parsed = options_parse(argc, argv, options, sizeof options / sizeof options[0],
                                     "bench_coll: time the collectives");
    if (parsed) return parsed == 1 ? 0 : 2;
    const char *why = check_settings(&b);
    if (why) return fprintf(stderr, "bench_coll: %s\n", why), 2;
    par_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.rank_count = o->ranks ? o->ranks : getenv("PAR_RANKS") ? 0 : 2;
#if defined(PAR_MPI)
    if (!o->ranks && par__launcher_size() > 0) desc.rank_count = 0; // mpiexec's number
#endif
    if (par_open(&desc, &b.world)) return 1;
    int failed = 0;
    if (o->algorithms) {
        if (par_rank(b.world) == 0) par_print_algorithms(b.world, stdout);
    } else
        failed = run(&b);
    const par_result closed = par_close(b.world);
    return failed ? failed : closed != PAR_OK;
}

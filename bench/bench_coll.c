// bench_coll.c - time of the collectives by size, with nccl-tests' columns and options, and OSU's -m MIN:MAX.
//
//     build/bench_coll --ranks 2 --op all_reduce -b 8 -e 64M           processes of this machine
//     mpiexec -n 2 build/bench_coll_mpi --op all --vs mpi              MPI on the same buffers, in turn
//     build/bench_coll_cuda --ranks 4 -e 256M                          device memory; ranks are threads
//     build/bench_coll --simulate --ranks 16384 --node 8               a stated network; no rank runs
//
// time: the median over iterations of the slowest rank's time; p99: the 99th percentile. The data change in
// every iteration, every result is compared with exact integers, and NaN canaries surround the output.
// roofline: in the same run all ranks compute a += b on shared pages, as many as the largest call has. eta:
// the bytes that the operation must load and store at least, per second, divided by the roofline.
#define PAR_IMPLEMENTATION
#include "par.h"
#if defined(BENCH_CUDA)
#include "par_math.h" // of the layers, which are linked
#include "par_cuda.cuh"
#endif

#include "../examples/options.h"
#include "../examples/median.h"

#include <ctype.h>

typedef struct settings {
    size_t begin, end, step;
    int factor, iterations, warmup, inner, check, root, ranks, json, algorithms, in_place, cold, tune, model,
        overlap, diagnosis, start, seconds, simulate, node, radix;
    double latency, hop, processor, link, memory_latency, memory_link, oversubscription;
    const char *op, *dtype, *redop, *memory, *vs, *device, *m, *network, *pattern;
} settings;

typedef struct kind_info {
    const char *name;
    par_kind kind;
    int in_place;              // whether the benchmark times it in place, too
    double fixed, per_rank;    // bytes to load and store at least / size: fixed + per_rank n
    double through, exchanged; // busbw / algbw, as in nccl-tests: through + exchanged (n - 1) / n
    int neighbors;             // of a rank; it sends a message to each. 0: a collective
    int exchange;              // they are one neighbor exchange
    int one_way;               // even ranks send, and odd ones receive
} kind_info;
static const kind_info kinds[] = {
    {"all_reduce", PAR_KIND_ALL_REDUCE, 1, 0, 2, 0, 2, 0, 0, 0},
    {"reduce_scatter", PAR_KIND_REDUCE_SCATTER, 1, 1, 1, 0, 1, 0, 0, 0},
    {"all_gather", PAR_KIND_ALL_GATHER, 1, 1, 1, 0, 1, 0, 0, 0},
    {"broadcast", PAR_KIND_BROADCAST, 1, 1, 1, 1, 0, 0, 0, 0},
    {"reduce", PAR_KIND_REDUCE, 1, 1, 1, 1, 0, 0, 0, 0},
    {"gather", PAR_KIND_GATHER, 1, 2, 0, 0, 1, 0, 0, 0},
    {"scatter", PAR_KIND_SCATTER, 1, 2, 0, 0, 1, 0, 0, 0},
    {"all_to_all", PAR_KIND_ALL_TO_ALL, 0, 0, 2, 0, 1, 0, 0, 0},
    {"sendrecv", PAR_KIND_SEND, 0, 0, 2, 1, 0, 1, 0, 0},
    {"one_way", PAR_KIND_SEND, 0, 0, 1, 1, 0, 1, 0, 1},
    {"halo_6", PAR_KIND_SEND, 0, 0, 2, 1, 0, 6, 0, 0},
    {"halo_26", PAR_KIND_SEND, 0, 0, 2, 1, 0, 26, 0, 0},
    {"halo_exchange_6", PAR_KIND_SEND, 0, 0, 2, 1, 0, 6, 1, 0},
    {"halo_exchange_26", PAR_KIND_SEND, 0, 0, 2, 1, 0, 26, 1, 0},
    {"barrier", PAR_KIND_BARRIER, 0, 1, 1, 1, 0, 0, 0, 0},
};
enum { KINDS = (int)(sizeof kinds / sizeof kinds[0]), CANARY = 256, MAX_NEIGHBORS = 26 };

typedef struct bench {
    settings o;
    par_comm *world;
    int rank, n;
    par_dtype dtype;
    par_op redop;
    size_t element_bytes;
    unsigned char *send, *recv; // buffer_bytes each, with canaries
    size_t buffer_bytes;
    float *pattern;           // 0 1 2 ... 7 0 1 ...
    double *times, *vs_times; // per iteration
    double roofline[2];       // bytes per second, all ranks together; of calls in place
    const char *algorithm;    // of the last timed call
    par_neighbors *neighbors; // of a neighbor exchange, and the elements for each
    size_t counts[MAX_NEIGHBORS];
    int vs_calls;      // --vs calls
    size_t used_bytes; // bytes of send and recv that the current call may use
    int failed;
    char why[256]; // what is wrong with the settings
#if defined(BENCH_CUDA)
    par_cuda *cuda;               // NULL: arrays are the host's
    unsigned char *device_arrays; // device copies of send, then of recv; NULL without a device
#endif
} bench;

static void die(bench *b, const char *text) {
    fprintf(stderr, "bench_coll: rank %d: %s\n", b->rank, text);
    exit(1);
}
static void must(bench *b, par_result r) {
    if (r != PAR_OK) die(b, par_last_error(b->world));
}

static int reduces(const kind_info *k) { return (par_kind_traits_of(k->kind)->takes & PAR_TAKES_OP) != 0; }
static int scatters(const kind_info *k) { return (par_kind_traits_of(k->kind)->send & PAR_SIDE_ALL) != 0; }
static int gathers(const kind_info *k) { return (par_kind_traits_of(k->kind)->recv & PAR_SIDE_ALL) != 0; }
static int is_chosen(const bench *b, const kind_info *k) { // by --op; halo: for 6 and for 26 neighbors
    const size_t n = strlen(b->o.op);
    return !strcmp(b->o.op, "all") || !strcmp(b->o.op, k->name) ||
           (!strncmp(b->o.op, k->name, n) && k->name[n] == '_' && k->neighbors > 1);
}
static int has_algorithms(const kind_info *k) {
    return k->kind != PAR_KIND_BARRIER && k->kind != PAR_KIND_SEND;
}
static size_t blocks(const bench *b,
                     const kind_info *k) { // of count elements, in the array that the size is of
    return scatters(k) || gathers(k) ? (size_t)b->n : (size_t)MAX(k->neighbors, 1);
}
// The ranks at distance 1, 2, ..., n - 1, 1, ... are neighbors: message i goes to the one on the right, and
// comes from the one on the left.
static int neighbor(const bench *b, int i, int right) {
    const int distance = b->n > 1 ? 1 + i % (b->n - 1) : 0;
    return (b->rank + (right ? distance : b->n - distance)) % b->n;
}

static int one_way_peer(const bench *b) { return b->rank ^ 1; } // of an odd number of ranks the last has none
static int received(const bench *b, const kind_info *k) { return !k->one_way || b->rank % 2; }

// ---- data: element i of rank r in iteration t is (i + 3r + t) mod 8 ---------------------------------------

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
        par_cast((char *)dst + i * b->element_bytes, b->dtype, &v, PAR_F32, 1);
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
// The number of wrong elements of the result, plus the bytes that were written from `end` on, where the
// array's canary is.
static size_t check(const bench *b, const kind_info *k, size_t count, int t, unsigned char *result,
                    unsigned char *end) {
    const int me = b->rank, results = gathers(k) ? b->n : MAX(k->neighbors, 1);
    const size_t e = b->element_bytes;
    size_t wrong = 0;
    if (k->kind == PAR_KIND_BARRIER || !received(b, k) ||
        (par_kind_traits_of(k->kind)->recv & PAR_SIDE_ROOT && me != b->o.root))
        return 0;
#if defined(BENCH_TEST) // so that tests see that this is seen: the first byte, the last, and one behind it
    if (getenv("BENCH_WRONG")) result[0] ^= 1, result[(size_t)results * count * e - 1] ^= 1, *end ^= 1;
#endif
    unsigned char want[8][8];
    for (int r = 0; r < results; r++) { // each block has 8 different values
        const int from = gathers(k)     ? r
                         : k->one_way   ? one_way_peer(b)
                         : k->neighbors ? neighbor(b, r, 0)
                                        : b->o.root;
        const size_t skip = (size_t)(scatters(k) ? me : k->neighbors ? r : 0) * count;
        for (size_t i = 0; i < count; i++) {
            if (i < 8) {
                const float v = base_value(b, skip + i, from, t);
                if (reduces(k))
                    expected_sum(b, skip + i, t, want[i]);
                else
                    par_cast(want[i], b->dtype, &v, PAR_F32, 1);
            }
            wrong += memcmp(result + ((size_t)r * count + i) * e, want[i & 7], e) != 0;
        }
    }
    for (size_t i = 0; i < CANARY; i++) wrong += end[i] != 0xFF;
    return wrong;
}

// ---- the operations ---------------------------------------------------------------------------------------

// Exchange messages with all neighbors: all are begun before one wait.
static par_result run_halo(bench *b, const kind_info *k, const char *send, char *recv, size_t c) {
    par_request requests[2 * MAX_NEIGHBORS];
    par_result r = PAR_OK;
    int begun = 0;
    for (int i = 0; i < 2 * k->neighbors && !r; i++) {
        const int sends = i >= k->neighbors, which = i % k->neighbors, peer = neighbor(b, which, sends);
        const size_t at = (size_t)which * c * b->element_bytes;
        r = sends ? par_send_begin(send + at, c, b->dtype, peer, b->world, &requests[i])
                  : par_recv_begin(recv + at, c, b->dtype, peer, b->world, &requests[i]);
        begun += !r;
    }
    const par_result ended = par_wait_all(requests, begun);
    return r ? r : ended;
}

static void open_neighbors(bench *b, const kind_info *k, size_t c) { // where the kind is their exchange
    int to[MAX_NEIGHBORS], from[MAX_NEIGHBORS];
    if (!k->exchange) return;
    for (int i = 0; i < k->neighbors; i++)
        to[i] = neighbor(b, i, 1), from[i] = neighbor(b, i, 0), b->counts[i] = c;
    must(b, par_neighbors_open(b->world, k->neighbors, to, from, &b->neighbors));
}
static void close_neighbors(bench *b) {
    must(b, par_neighbors_close(b->neighbors));
    b->neighbors = NULL;
}

// apart: the messages of an exchange, by calls.
static par_result run_par(bench *b, const kind_info *k, const void *send, void *recv, size_t c, int apart) {
    const int right = neighbor(b, 0, 1), left = neighbor(b, 0, 0), root = b->o.root, peer = one_way_peer(b);
    if (b->neighbors && !apart)
        return par_neighbor_exchange(send, b->counts, NULL, recv, b->counts, NULL, b->dtype, b->neighbors);
    if (k->neighbors > 1) return run_halo(b, k, (const char *)send, (char *)recv, c);
    if (k->one_way && peer >= b->n) return PAR_OK;
    if (k->one_way)
        return b->rank % 2 ? par_recv(recv, c, b->dtype, peer, b->world)
                           : par_send(send, c, b->dtype, peer, b->world);
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
#define X(constant, name, type, sums, family, accumulator, max, mpi, ...) mpi,
    static const MPI_Datatype types[] = {PAR_DTYPES(X)};
#undef X
    return types[d];
}
static const char *name_of_mpi(char *text) { // "MPICH 4.0.2", "Open MPI 4.1.4"
    int length = 0, numbers = 0;
    MPI_Get_library_version(text, &length);
    char *p = strstr(text, "Version:");
    if (!strncmp(text, "MPICH", 5) && p) {
        p += strcspn(p, "0123456789");
        numbers = (int)strspn(p, "0123456789.");
        memmove(text + 6, p, (size_t)numbers);
        return text[5] = ' ', text[6 + numbers] = 0, text;
    }
    if ((p = strstr(text, "Open MPI v")) != NULL) {
        numbers = (int)strspn(p + 10, "0123456789.");
        memmove(text, "Open MPI ", 9);
        memmove(text + 9, p + 10, (size_t)numbers);
        return text[9 + numbers] = 0, text;
    }
    return text[strcspn(text, ",\n\"")] = 0, text;
}
static void run_mpi_halo(bench *b, const kind_info *k, char *send, char *recv, int n, MPI_Datatype t) {
    MPI_Request requests[2 * MAX_NEIGHBORS];
    MPI_Status statuses[2 * MAX_NEIGHBORS];
    for (int i = 0; i < k->neighbors; i++)
        MPI_Irecv(recv + (size_t)i * (size_t)n * b->element_bytes, n, t, neighbor(b, i, 0), 0, MPI_COMM_WORLD,
                  &requests[i]);
    for (int i = 0; i < k->neighbors; i++)
        MPI_Isend(send + (size_t)i * (size_t)n * b->element_bytes, n, t, neighbor(b, i, 1), 0, MPI_COMM_WORLD,
                  &requests[k->neighbors + i]);
    MPI_Waitall(2 * k->neighbors, requests, statuses);
}
static void run_mpi(bench *b, const kind_info *k, void *send, void *recv, size_t c, int in_place) {
    const unsigned code = (unsigned)(b->redop & 255);
    const MPI_Datatype t = mpi_type(b->dtype);
    const MPI_Op op = code == PAR_PROD  ? MPI_PROD
                      : code == PAR_MIN ? MPI_MIN
                      : code == PAR_MAX ? MPI_MAX
                                        : MPI_SUM;
    const int n = (int)c, right = neighbor(b, 0, 1), left = neighbor(b, 0, 0), root = b->o.root;
    const int at_root = in_place && b->rank == root, peer = one_way_peer(b);
    const void *out = in_place ? MPI_IN_PLACE : send, *root_out = at_root ? MPI_IN_PLACE : send;
    if (k->neighbors > 1) {
        run_mpi_halo(b, k, (char *)send, (char *)recv, n, t);
        return;
    }
    if (k->one_way) {
        if (peer < b->n && b->rank % 2)
            MPI_Recv(recv, n, t, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else if (peer < b->n)
            MPI_Send(send, n, t, peer, 0, MPI_COMM_WORLD);
        return;
    }
    switch (k->kind) {
    case PAR_KIND_ALL_REDUCE: MPI_Allreduce(out, recv, n, t, op, MPI_COMM_WORLD); break;
    case PAR_KIND_REDUCE_SCATTER: // in place, MPI reads the whole array and writes to its first block
        MPI_Reduce_scatter_block(out, in_place ? send : recv, n, t, op, MPI_COMM_WORLD);
        break;
    case PAR_KIND_ALL_GATHER:
        MPI_Allgather(out, n, t, in_place ? b->send : recv, n, t, MPI_COMM_WORLD);
        break;
    case PAR_KIND_BROADCAST: MPI_Bcast(recv, n, t, root, MPI_COMM_WORLD); break;
    case PAR_KIND_REDUCE: MPI_Reduce(root_out, recv, n, t, op, root, MPI_COMM_WORLD); break;
    case PAR_KIND_GATHER:
        MPI_Gather(root_out, n, t, in_place ? b->send : recv, n, t, root, MPI_COMM_WORLD);
        break;
    case PAR_KIND_SCATTER:
        MPI_Scatter(in_place ? b->send : send, n, t, at_root ? MPI_IN_PLACE : recv, n, t, root,
                    MPI_COMM_WORLD);
        break;
    case PAR_KIND_ALL_TO_ALL: MPI_Alltoall(send, n, t, recv, n, t, MPI_COMM_WORLD); break;
    case PAR_KIND_SEND:
        MPI_Sendrecv(send, n, t, right, 0, recv, n, t, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    default: MPI_Barrier(MPI_COMM_WORLD); break;
    }
}
#endif

// ---- measuring --------------------------------------------------------------------------------------------

typedef struct timing {
    double median, p99;
} timing;
static timing summarize(bench *b, double *times, int n) {
    timing t;
    must(b, par_all_reduce(times, times, (size_t)n, PAR_F64, PAR_MAX, b->world));
    t.median = median(times, n); // sorts them
    t.p99 = times[MIN(n - 1, n * 99 / 100)];
    return t;
}

typedef struct row {
    timing ours, vs, in_place, vs_in_place;
    size_t wrong;
    double net_bytes; // sent between nodes by one call, all ranks together
} row;

static void flush(void *memory, size_t bytes) { // out of all caches
#if defined(__x86_64__)
    for (size_t at = 0; at < bytes; at += 64) __builtin_ia32_clflush((char *)memory + at);
    __builtin_ia32_mfence();
#else
    (void)memory, (void)bytes;
#endif
}
// Flush the arrays, so that the next operation finds them only in memory.
static void make_cold(const bench *b) {
    if (!b->o.cold) return;
    flush(b->send, b->buffer_bytes);
    flush(b->recv, b->buffer_bytes);
}

#if defined(BENCH_CUDA)
static void *timed_array(const bench *b, void *p) { // the device's copy of an address in send or recv
    const unsigned char *at = (const unsigned char *)p;
    const int sent = at >= b->send && at < b->send + b->buffer_bytes;
    return b->cuda
               ? b->device_arrays + (sent ? (size_t)(at - b->send) : b->buffer_bytes + (size_t)(at - b->recv))
               : p;
}
static void finish(bench *b) {
    if (b->cuda) must(b, par_cuda_sync(b->cuda));
}
static void copy_arrays(bench *b, int to_device) { // between the host's arrays and the device's
    if (!b->cuda) return;
    par_device *d = par_cuda_device(b->cuda);
    for (int i = 0; i < 2; i++) {
        void *host = i ? b->recv : b->send, *there = timed_array(b, host);
        must(b, d->copy(d, to_device ? there : host, to_device ? host : there, b->used_bytes, NULL));
    }
    finish(b);
}
static void open_device(bench *b) {
    par_cuda_desc d;
    memset(&d, 0, sizeof d);
    d.comm = b->world;
    if (!strcmp(b->o.device, "cpu")) return;
    must(b, par_cuda_open(&d, &b->cuda));
    must(b, par_cuda_alloc(b->cuda, PAR_CUDA_DEVICE, 2 * b->buffer_bytes, (void **)&b->device_arrays));
    b->o.memory = par_cuda_backend_name(b->cuda);
}
static void close_device(bench *b) {
    if (b->cuda) par_cuda_free(b->cuda, PAR_CUDA_DEVICE, b->device_arrays), par_cuda_close(b->cuda);
}
#else
static void *timed_array(const bench *b, void *p) { return (void)b, p; }
static void copy_arrays(bench *b, int to_device) { (void)b, (void)to_device; }
static void finish(bench *b) { (void)b; }
static void open_device(bench *b) { (void)b; }
static void close_device(bench *b) { (void)b; }
#endif

// Time one call, or the mean of `inner` calls; all ranks start together.
static double time_once(bench *b, const kind_info *k, void *send, void *recv, size_t count, int mpi,
                        int in_place) {
    void *out = timed_array(b, send), *in = timed_array(b, recv);
    copy_arrays(b, 1);
    make_cold(b);
    must(b, par_barrier(b->world));
    const double t0 = par_seconds(b->world);
    for (int m = 0; m < b->o.inner; m++) {
#if defined(PAR_MPI)
        if (mpi && !b->vs_calls)
            run_mpi(b, k, send, recv, count, in_place);
        else
#endif
            must(b, run_par(b, k, out, in, count, mpi));
    }
    finish(b);
    (void)mpi, (void)in_place;
    const double t = (par_seconds(b->world) - t0) / b->o.inner;
    if (!mpi)
        b->algorithm = k->kind != PAR_KIND_SEND ? par_last_algorithm(b->world)
                       : k->exchange            ? "exchange"
                                                : "message";
    must(b,
         par_barrier(b->world)); // do not take the processor from slower ranks
    copy_arrays(b, 0);
    return t;
}

// Iterations that fit into --seconds if each takes as long as the last one, which began at `start`. At least
// three, and the same number on all ranks.
static int fitting_iterations(bench *b, double start, int wanted) {
    double t = par_seconds(b->world) - start;
    must(b, par_all_reduce(&t, &t, 1, PAR_F64, PAR_MAX, b->world));
    return b->o.seconds <= 0 || t * wanted <= b->o.seconds ? wanted : MAX(3, (int)(b->o.seconds / t));
}

// The kit's call and MPI's, or an exchange's messages, alternate, each as often the first of two, and start
// with the same data and caches. After the second warm-up it is known whether the iterations take too long;
// then there are fewer, and no more warm-ups. The root's broadcast is in place, because MPI has no other. In
// place, both arrays are b->send, or one is this rank's block of it. Returns how many calls of the kit it
// made.
static int measure_calls(bench *b, const kind_info *k, size_t count, int iterations, int in_place, row *r) {
    const int vs = b->o.vs != NULL, broadcast_root = k->kind == PAR_KIND_BROADCAST && b->rank == b->o.root;
    const size_t block = count * b->element_bytes, bytes = block * blocks(b, k),
                 mine = (size_t)b->rank * block,
                 send_count = gathers(k) && !scatters(k) ? count : count * blocks(b, k);
    unsigned char *array = in_place ? b->send : b->recv, *recv = array, *send = b->send;
    if (in_place && scatters(k)) recv += mine;
    if (in_place && gathers(k)) send += mine;
    if (!in_place && broadcast_root) send = b->recv;
    unsigned char *end = in_place || gathers(k) || k->neighbors ? array + bytes : array + block;
    // Further reductions in place would reduce the result of the one before.
    const int checks = b->o.check && (b->o.inner == 1 || !in_place || !reduces(k));
    open_neighbors(b, k, count);
    b->used_bytes = bytes + CANARY;
    int calls = 0;
    for (int i = -b->o.warmup; i < iterations; i++, calls += b->o.inner) {
        const double start = par_seconds(b->world);
        for (int turn = 0; turn <= vs; turn++) {
            const int mpi = vs && turn != (i & 1);
            memset(array, 0xFF, b->used_bytes);
            fill(b, send, send_count, b->rank, i + b->o.warmup);
            const double t = time_once(b, k, send, recv, count, mpi, in_place);
            if (i >= 0) (mpi ? b->vs_times : b->times)[i] = t;
            const size_t wrong = checks ? check(b, k, count, i + b->o.warmup, recv, end) : 0;
            if (!mpi) r->wrong += wrong; // both are checked, so that as much time passes before each of them
        }
        if (i != 1 - b->o.warmup || i >= 0) continue;
        const int fitting = fitting_iterations(b, start, iterations);
        if (fitting < iterations) iterations = fitting, i = -1;
    }
    close_neighbors(b);
    timing *ours = in_place ? &r->in_place : &r->ours, *theirs = in_place ? &r->vs_in_place : &r->vs;
    *ours = summarize(b, b->times, iterations);
    if (vs) *theirs = summarize(b, b->vs_times, iterations);
    return calls;
}
static row measure(bench *b, const kind_info *k, size_t count, int iterations) {
    row r;
    memset(&r, 0, sizeof r);
    const uint64_t net = par_ledger_get(b->world, k->kind).net_bytes;
    const int calls = measure_calls(b, k, count, iterations, 0, &r);
    r.net_bytes = (double)(par_ledger_get(b->world, k->kind).net_bytes - net) / (double)calls;
    must(b, par_all_reduce(&r.net_bytes, &r.net_bytes, 1, PAR_F64, PAR_SUM, b->world));
    if (b->o.in_place && k->in_place) measure_calls(b, k, count, iterations, 1, &r);
    uint64_t wrong = r.wrong;
    must(b, par_all_reduce(&wrong, &wrong, 1, PAR_U64, PAR_SUM, b->world));
    r.wrong = (size_t)wrong;
    return r;
}

// Bytes per second of x += y by all ranks at once, on n floats each: 3 bytes move per byte of x.
static double sum_rate(bench *b, par_device *d, void *x, void *y, size_t n) {
    const void *sources[2] = {x, y};
    double best = 0;
    for (int i = 0; i < 7; i++) {
        if (b->o.cold) flush(x, n * 4), flush(y, n * 4);
        must(b, par_barrier(b->world));
        const double t0 = par_seconds(b->world);
        must(b, d->reduce(d, x, sources, 2, n, PAR_F32, PAR_SUM, NULL));
        finish(b);
        double t = par_seconds(b->world) - t0;
        must(b, par_all_reduce(&t, &t, 1, PAR_F64, PAR_MAX, b->world));
        best = fmax(best, 3.0 * (double)(n * 4) * b->n / t);
    }
    return best;
}
// On shared pages, or in the device's memory. In place a call has half as many.
static double measure_roofline(bench *b, int in_place) {
#if defined(BENCH_CUDA)
    const size_t half = b->buffer_bytes / 16 * 4;
    if (b->cuda)
        return sum_rate(b, par_cuda_device(b->cuda), b->device_arrays, b->device_arrays + half * 4, half);
#endif
    const size_t bytes = MIN(MAX(b->buffer_bytes, (size_t)1 << 20), (size_t)64 << 20) >> in_place,
                 n = bytes / 4;
    float *x = (float *)par_alloc(b->world, bytes), *y = (float *)par_alloc(b->world, bytes);
    if (!x || !y) die(b, par_last_error(b->world));
    for (size_t i = 0; i < n; i++) x[i] = y[i] = 1;
    const double best = sum_rate(b, par_cpu(), x, y, n);
    must(b, par_free(b->world, y));
    must(b, par_free(b->world, x));
    return best;
}

static void print_row(const bench *b, const kind_info *k, size_t bytes, size_t count, const row *r) {
    const double alg = r->ours.median > 0 ? (double)bytes / r->ours.median * 1e-9 : 0,
                 bus = alg * (k->through + k->exchanged * (b->n - 1) / b->n);
    const double moved = (double)bytes * (k->fixed + k->per_rank * b->n), // at least
        eta = r->ours.median > 0 ? moved / r->ours.median / b->roofline[0] : 0;
    const int rooted = (par_kind_traits_of(k->kind)->takes & PAR_TAKES_ROOT) != 0;
    const char *redop = reduces(k) ? par_op_name(b->redop) : "none";
    if (b->o.json) {
        json_line j = json_begin(stdout);
        json_add(&j, "op:%s bytes:%zu count:%zu dtype:%s redop:%s ranks:%d nodes:%d backend:%s", k->name,
                 bytes, count, par_dtype_name(b->dtype), redop, b->n, par_node_count(b->world),
                 par_launch_method(b->world));
        json_add(&j,
                 "memory:%s caches:%s algorithm:%s time_us:%.4f p99_us:%.4f algbw:%.5g busbw:%.5g wrong:%zu "
                 "eta:%.4f",
                 b->o.memory, b->o.cold ? "cold" : "warm", b->algorithm, r->ours.median * 1e6,
                 r->ours.p99 * 1e6, alg, bus, r->wrong, eta);
        if (par_node_count(b->world) > 1) json_add(&j, "net_bytes:%.0f", r->net_bytes);
        if (r->in_place.median > 0)
            json_add(&j, "in_place_time_us:%.4f in_place_eta:%.4f", r->in_place.median * 1e6,
                     moved / r->in_place.median / b->roofline[1]);
        if (b->o.vs)
            json_add(&j, "vs:%s vs_time_us:%.4f vs_p99_us:%.4f ratio:%.4f", b->o.vs, r->vs.median * 1e6,
                     r->vs.p99 * 1e6, r->vs.median / r->ours.median);
        if (b->o.vs && r->in_place.median > 0)
            json_add(&j, "vs_in_place_time_us:%.4f in_place_ratio:%.4f", r->vs_in_place.median * 1e6,
                     r->vs_in_place.median / r->in_place.median);
        json_end(&j);
    } else {
        printf("%12zu %10zu %8s %10s %5d %10.2f %10.2f %8.3f %8.3f %6zu %5.2f", bytes, count,
               par_dtype_name(b->dtype), redop, rooted ? b->o.root : -1, r->ours.median * 1e6,
               r->ours.p99 * 1e6, alg, bus, r->wrong, eta);
        if (r->in_place.median > 0)
            printf(" %10.2f %8.3f", r->in_place.median * 1e6, (double)bytes / r->in_place.median * 1e-9);
        else
            printf(" %10s %8s", "-", "-");
        if (b->o.vs) printf(" %10.2f %6.2f", r->vs.median * 1e6, r->vs.median / r->ours.median);
        if (b->o.vs && r->in_place.median > 0)
            printf(" %10.2f %6.2f", r->vs_in_place.median * 1e6, r->vs_in_place.median / r->in_place.median);
        printf("\n");
    }
    fflush(stdout);
}

static void print_head(const bench *b, const kind_info *k) {
    if (b->o.json) return;
    printf("# %s, %d ranks on %d nodes (%s), %s memory; roofline of a += b: %.2f GB/s\n", k->name, b->n,
           par_node_count(b->world), par_launch_method(b->world), b->o.memory, b->roofline[0] * 1e-9);
    printf("#%11s %10s %8s %10s %5s %10s %10s %8s %8s %6s %5s %10s %8s%s\n", "size", "count", "type", "redop",
           "root", "time", "p99", "algbw", "busbw", "#wrong", "eta", "in-place", "algbw",
           b->vs_calls ? "      calls  ratio   in-place  ratio"
           : b->o.vs   ? "        MPI  ratio   in-place  ratio"
                       : "");
    printf("#%11s %10s %8s %10s %5s %10s %10s %8s %8s %6s %5s %10s %8s%s\n", "(B)", "(elem)", "", "", "",
           "(us)", "(us)", "(GB/s)", "(GB/s)", "", "", "(us)", "(GB/s)",
           b->o.vs ? "       (us)              (us)" : "");
}

static size_t next_size(const bench *b, size_t bytes) { // SIZE_MAX: there is none
    const size_t step = b->o.step, factor = (size_t)b->o.factor;
    if (step) return bytes > SIZE_MAX - step ? SIZE_MAX : bytes + step;
    return !bytes ? 1 : bytes > SIZE_MAX / factor ? SIZE_MAX : bytes * factor;
}
// What the benchmark cannot do with b->dtype and b->redop, or NULL.
static const char *type_problem(const bench *b) {
    const int scaled = (b->redop & 255) == PAR_SCALED_SUM;
    if (scaled && !par_dtype_traits_of(b->dtype)->is_float) return "a scaled sum needs a float type";
#if defined(PAR_MPI)
    if (!b->o.vs || b->vs_calls) return NULL;
    if (mpi_type(b->dtype) == MPI_DATATYPE_NULL) return "MPI has no such type to compare with";
    if ((b->redop & 255) == PAR_AVG || scaled) return "MPI has no such operation to compare with";
#endif
    return NULL;
}
static size_t run_sizes(bench *b, const kind_info *k) {
    const size_t unit = b->element_bytes * blocks(b, k);
    size_t wrong = 0;
    const size_t begin = k->neighbors ? MAX(b->o.begin, unit) : b->o.begin; // an element in each message
    for (size_t bytes = k->kind == PAR_KIND_BARRIER ? b->o.end : begin; bytes <= b->o.end;
         bytes = next_size(b, bytes)) {
        const size_t count = k->kind == PAR_KIND_BARRIER ? 0 : bytes / unit;
        const double gigabytes = (double)bytes * b->n * 1e-9; // large sizes take fewer iterations
        const int iterations =
            b->o.iterations > 0 ? b->o.iterations : MAX(9, MIN(2000, (int)(1.5 / (gigabytes + 5e-4))));
        const row r = measure(b, k, count, iterations);
        if (b->rank == 0) print_row(b, k, k->kind == PAR_KIND_BARRIER ? 0 : count * unit, count, &r);
        wrong += r.wrong;
        if (k->kind == PAR_KIND_BARRIER) break;
    }
    return wrong;
}
// With -d all and -o all for every type and reduction that the benchmark can time.
static size_t run_kind(bench *b, const kind_info *k) { // returns the number of wrong elements
    const par_dtype dtype = b->dtype;
    const par_op redop = b->redop;
    const int types = !strcmp(b->o.dtype, "all") && k->kind != PAR_KIND_BARRIER ? PAR_DTYPE_COUNT : 1,
              operations = !strcmp(b->o.redop, "all") && reduces(k) ? PAR_OP_COUNT : 1;
    size_t wrong = 0;
    if (b->rank == 0) print_head(b, k);
    for (int type = 0; type < types; type++)
        for (int i = 0; i < operations; i++) {
            if (types > 1) b->dtype = (par_dtype)type;
            if (operations > 1) must(b, par_op_parse(par_op_name(i), &b->redop));
            b->element_bytes = par_dtype_bytes(b->dtype);
            if (!type_problem(b)) wrong += run_sizes(b, k);
        }
    b->dtype = dtype, b->redop = redop, b->element_bytes = par_dtype_bytes(dtype);
    return wrong;
}

#include "simulate.h"

// ---- --tune, --model, --overlap, --diagnosis --------------------------------------------------------------

// Time calls of `bytes` bytes without checks, with new data in each.
static timing time_of(bench *b, const kind_info *k, size_t bytes, int iterations) {
    const size_t unit = b->element_bytes * blocks(b, k);
    const settings saved = b->o;
    b->o.check = b->o.in_place = 0, b->o.vs = NULL;
    const row r = measure(b, k, bytes / unit, iterations);
    b->o = saved;
    return r.ours;
}

static int default_iterations(size_t bytes) { return bytes > (size_t)1 << 20 ? 9 : bytes > 65536 ? 25 : 101; }

// The fastest algorithm for calls of `bytes` bytes, or NULL. "inline" is left out: it wins wherever it fits.
static const char *fastest_algorithm(bench *b, const kind_info *k, size_t bytes) {
    const char *best = NULL, *algorithm;
    double best_seconds = 0;
    for (int a = 0; (algorithm = par_algorithm_name(b->world, k->kind, a)) != NULL; a++) {
        char name[64];
        if (!strcmp(algorithm, "inline")) continue;
        snprintf(name, sizeof name, "%s:%s", k->name, algorithm);
        must(b, par_force_algorithm(b->world, name));
        const double seconds = time_of(b, k, bytes, default_iterations(bytes)).median;
        const int used = !strcmp(b->algorithm, algorithm);
        if (used && (!best || seconds < best_seconds)) best = algorithm, best_seconds = seconds;
    }
    must(b, par_force_algorithm(b->world, ""));
    return best;
}
static void tune_kind(bench *b, const kind_info *k) {
    const char *best = NULL; // of the sizes up to `last`
    size_t last = 0;
    for (size_t bytes = 64; bytes <= b->o.end; last = bytes, bytes *= 4) {
        const char *fastest = fastest_algorithm(b, k, bytes);
        if (b->rank == 0 && best && fastest && strcmp(fastest, best))
            printf("%s %d %d %zu %s\n", k->name, b->n, par_node_count(b->world), last / blocks(b, k), best);
        if (fastest) best = fastest;
    }
    if (b->rank == 0 && best)
        printf("%s %d %d %zu %s\n", k->name, b->n, par_node_count(b->world), SIZE_MAX, best);
    fflush(stdout);
}
// The logarithm of how many times longer calls, of `size` bytes for each peer, take with *threshold below
// their size than with it above. Both are timed in turn, since the machine's speed changes meanwhile.
static double threshold_loss(bench *b, const kind_info *k, size_t *threshold, size_t size) {
    enum { ROUNDS = 5 };
    const size_t saved = *threshold;
    const size_t bytes = size * (reduces(k) || scatters(k) || gathers(k) ? (size_t)b->n : 1);
    double seconds[2][ROUNDS];
#if defined(BENCH_TEST) // so that tests know the answer: it pays from this size on, and seems to at 4096
    const char *from = getenv("BENCH_THRESHOLD");
    if (from) return size >= (size_t)atof(from) || size == 4096 ? -0.1 : 0.2;
#endif
    for (int turn = 0; turn < 2 * ROUNDS; turn++) {
        const int with = (turn ^ turn >> 1) & 1;
        *threshold = with ? 2 : SIZE_MAX; // cma_bytes 1 is for tests
        seconds[with][turn / 2] = time_of(b, k, bytes, MAX(3, default_iterations(bytes) / ROUNDS)).median;
    }
    *threshold = saved;
    return log(median(seconds[1], ROUNDS) / median(seconds[0], ROUNDS));
}
// The size from which on it costs the least to be above *threshold; 0: there is none. All ranks have measured
// the same, so that they agree.
static size_t threshold_size(bench *b, const kind_info *k, size_t *threshold, size_t from, size_t to) {
    double sum = 0, least = 0;
    size_t best = 0, size = from;
    while (size * 2 <= to) size *= 2;
    for (; size >= from && size <= to; size /= 2) {
        sum += threshold_loss(b, k, threshold, size);
        if (sum < least) least = sum, best = size;
    }
    return best;
}
// --tune: measure from which sizes process_vm_readv is faster than staging for an operation, or non-temporal
// stores than cached ones; then every algorithm at every size. Print that, and the fastest ones as a table,
// for PAR_TUNE.
static void tune(bench *b) {
    par__world *w = b->world->world;
    const int symmetric = !strcmp(b->o.memory, "symmetric"), one_node = par_node_count(b->world) == 1;
    const size_t n = (size_t)b->n;
    if (b->rank == 0)
        printf("# %d ranks on %d nodes; use with PAR_TUNE=this file\n", b->n, par_node_count(b->world));
    if (symmetric) {
        const size_t least = ((size_t)1 << 20) / n;
        const size_t size = threshold_size(b, &kinds[0], &w->nontemporal_bytes, least, b->o.end / n);
        w->nontemporal_bytes = size ? size * n * n : (size_t)1 << 40; // of all ranks' arrays
        if (b->rank == 0) printf("set stream_bytes %zu\n", w->nontemporal_bytes);
    }
    for (int i = 0; i < KINDS; i++) {
        const kind_info *k = &kinds[i];
        size_t *const cma_bytes = &w->kind_cma_bytes[k->kind];
        if (!has_algorithms(k)) continue;
        if (w->cma && one_node && !symmetric && k->kind != PAR_KIND_REDUCE) { // which is staged for longer
            const size_t size = threshold_size(b, k, cma_bytes, 4096, MIN((size_t)4 << 20, b->o.end / n));
            *cma_bytes = size ? size : (size_t)1 << 30;
            if (b->rank == 0) printf("set cma_bytes %zu %s\n", *cma_bytes, k->name);
        }
        tune_kind(b, k);
    }
}

// --model: compare predicted and measured times, also at sizes between those that the model was fitted at.
static int model(bench *b) {
    int misses = 0, rows = 0;
    if (b->rank == 0 && !b->o.json)
        printf("# %d ranks: predicted and measured\n#%15s %10s %12s %12s %8s\n", b->n, "operation", "bytes",
               "predicted us", "measured us", "error");
    for (int i = 0; i < KINDS; i++)
        for (size_t bytes = 65536; bytes <= b->o.end; bytes *= 4) {
            const kind_info *k = &kinds[i];
            if (k->kind == PAR_KIND_BARRIER || k->neighbors > 1 || k->one_way || !is_chosen(b, k)) continue;
            must(b, par_calibrate(b->world)); // the machine's speed changes within seconds
            const double measured = time_of(b, k, bytes, 3 * default_iterations(bytes)).median;
            double predicted = par_predict(b->world, k->kind, bytes);
            must(b, par_broadcast(&predicted, &predicted, 1, PAR_F64, 0, b->world));
            const double error = predicted / measured - 1;
            misses += fabs(error) > 0.25, rows++;
            if (b->rank == 0 && b->o.json)
                json_print("mode:%s op:%s bytes:%zu ranks:%d predicted_us:%.3f time_us:%.3f error:%.4f",
                           "model", k->name, bytes, b->n, predicted * 1e6, measured * 1e6, error);
            else if (b->rank == 0)
                printf("%16s %10zu %12.2f %12.2f %7.1f%%\n", k->name, bytes, predicted * 1e6, measured * 1e6,
                       error * 100);
            fflush(stdout);
        }
    if (b->rank == 0 && !b->o.json) printf("# %d of %d within 25%%\n", rows - misses, rows);
    return misses;
}

static void compute(volatile float *x, long rounds) { // arithmetic without memory traffic
    float a = x[0];
    for (long i = 0; i < rounds; i++) a = a * 0.999f + 0.5f;
    x[0] = a;
}

// --overlap: time the call alone, as much computation alone, and both together, with a par_test after each of
// 64 parts of the computation. Overlap 1: the computation hides the whole call; 0: it hides nothing.
static void overlap(bench *b) {
    volatile float x[1] = {1};
    const long probe = 10000000;
    double t0 = par_seconds(b->world);
    compute(x, probe);
    double per_round = (par_seconds(b->world) - t0) / (double)probe;
    must(b, par_all_reduce(&per_round, &per_round, 1, PAR_F64, PAR_MAX, b->world));
    if (b->rank == 0 && !b->o.json)
        printf("# all_reduce issued, computation beside it, then the wait; %d ranks on %d nodes, %s "
               "memory\n#%11s %12s "
               "%12s %12s "
               "%8s\n",
               b->n, par_node_count(b->world), b->o.memory, "bytes", "call us", "compute us", "both us",
               "overlap");
    for (size_t bytes = b->o.begin; bytes <= b->o.end; bytes = next_size(b, bytes)) {
        const int iterations = default_iterations(bytes);
        double *t[3] = {b->times, b->vs_times, (double *)calloc((size_t)iterations, sizeof(double))}, m[3];
        const double alone = time_of(b, &kinds[0], bytes, iterations).median;
        const long part = MAX(1L, (long)(alone / per_round / 64));
        for (int i = 0; i < iterations && t[2]; i++)
            for (int mode = 0; mode < 3; mode++) { // alternate: call, computation, both
                par_request request = {NULL, 0};
                int done;
                fill(b, b->send, bytes / b->element_bytes, b->rank, i);
                must(b, par_barrier(b->world));
                t0 = par_seconds(b->world);
                if (mode != 1)
                    must(b, par_all_reduce_begin(b->send, b->recv, bytes / b->element_bytes, b->dtype,
                                                 b->redop, b->world, &request));
                for (int p = 0; mode && p < 64; p++) {
                    compute(x, part);
                    if (mode == 2) must(b, par_test(&request, &done));
                }
                must(b, par_wait(&request));
                t[mode][i] = par_seconds(b->world) - t0;
            }
        for (int mode = 0; mode < 3; mode++) m[mode] = summarize(b, t[mode], iterations).median;
        const double share = (m[0] + m[1] - m[2]) / fmin(m[0], m[1]);
        if (b->rank == 0 && b->o.json)
            json_print(
                "mode:%s bytes:%zu ranks:%d nodes:%d memory:%s time_us:%.3f compute_us:%.3f both_us:%.3f "
                "overlap:%.4f",
                "overlap", bytes, b->n, par_node_count(b->world), b->o.memory, m[0] * 1e6, m[1] * 1e6,
                m[2] * 1e6, share);
        else if (b->rank == 0)
            printf("%12zu %12.2f %12.2f %12.2f %8.2f\n", bytes, m[0] * 1e6, m[1] * 1e6, m[2] * 1e6, share);
        free(t[2]);
        if (!bytes) break;
    }
}

// The cost of summing in rank order: the sum of a two-shot all_reduce on symmetric memory in rank order,
// against one in which each rank starts with its own data, which is in its caches. Returns the ratio of
// medians - 1.
static double order_cost(bench *b) {
    enum { BYTES = 1 << 22, REPEAT = 101 };
    par_comm *c = b->world;
    const size_t count = BYTES / 4, each = count / (size_t)b->n;
    float *x = (float *)par_alloc(c, BYTES), *y = (float *)par_alloc(c, BYTES);
    double median[2],
        *t[2] = {(double *)calloc(REPEAT, sizeof(double)), (double *)calloc(REPEAT, sizeof(double))};
    if (!x || !y || !t[0] || !t[1]) die(b, "out of memory");
    for (int i = 0; i < 2 * REPEAT; i++) { // alternate the orders
        const void *in[1024];
        void *out[1024];
        for (int r = 0; r < b->n; r++) {
            const int from = i % 2 ? (b->rank + r) % b->n : r, to = (b->rank + r) % b->n;
            in[r] = (float *)par_peer(c, x, from) + each * (size_t)b->rank;
            out[r] = (float *)par_peer(c, y, to) + each * (size_t)b->rank;
        }
        for (size_t j = 0; j < count; j++) x[j] = y[j] = (float)i;
        must(b, par_barrier(c));
        const double t0 = par_seconds(c);
        par__reduce_sources(c->world->kernels, out, b->n, NULL, in, b->n, each, PAR_F32, PAR_SUM, b->n, 0);
        must(b, par_barrier(c));
        t[i % 2][i / 2] = par_seconds(c) - t0;
    }
    for (int k = 0; k < 2; k++) median[k] = summarize(b, t[k], REPEAT).median, free(t[k]);
    must(b, par_free(c, y));
    must(b, par_free(c, x));
    return median[0] / median[1] - 1;
}

// --diagnosis: the cost of the checks in each call, the latency of a cache line between two ranks, the memory
// that the kit uses, and the cost of waiting.
enum { DIAGNOSIS_CALLS = 200000 };
static double recorder_seconds(par_comm *c, par__operation *op) { // of a call
    const double t0 = par_seconds(c);
    for (int i = 0; i < DIAGNOSIS_CALLS; i++) {
        op->record = c->world->control->record_count;
        op->start_ticks = par__ticks();
        par__write_record(c, &op->call, op->sequence, op->site, op->start_ticks, 0);
        par__end_record(op, par__ticks());
    }
    return (par_seconds(c) - t0) / DIAGNOSIS_CALLS;
}
static double compare_seconds(bench *b, par__operation *op) { // of a call
    const double t0 = par_seconds(b->world);
    int same = 0;
    for (int i = 0; i < DIAGNOSIS_CALLS; i++) {
        same += par__compare_arrivals(op) == PAR_OK;
        __asm__ volatile("" ::: "memory");
    }
    if (same != DIAGNOSIS_CALLS) die(b, "the arrivals differ");
    return (par_seconds(b->world) - t0) / DIAGNOSIS_CALLS;
}
static void measure_hop(bench *b, double *hop, double *barrier) { // seconds; zeros if there are not two ranks
    par_comm *c = b->world;
    uint32_t *word = (uint32_t *)par_alloc(c, 4096), *ping = (uint32_t *)par_peer(c, word, 0);
    uint32_t *pong = (uint32_t *)par_peer(c, word, b->n > 1);
    *hop = *barrier = 0;
    must(b, par_barrier(c));
    if (ping && pong && b->n == 2) {
        double t0 = par_seconds(c);
        for (uint32_t i = 1; i <= DIAGNOSIS_CALLS; i++) {
            if (b->rank)
                while (PAR__LOAD(ping) != i) par__cpu_relax();
            PAR__STORE(b->rank ? pong : ping, i);
            if (!b->rank)
                while (PAR__LOAD(pong) != i) par__cpu_relax();
        }
        *hop = (par_seconds(c) - t0) / DIAGNOSIS_CALLS / 2;
        t0 = par_seconds(c);
        for (int i = 0; i < DIAGNOSIS_CALLS; i++) must(b, par_barrier(c));
        *barrier = (par_seconds(c) - t0) / DIAGNOSIS_CALLS;
    }
    must(b, par_free(c, word));
}
// Seconds of an all_reduce of a comm of one rank, or of a message from this rank to itself (begin and wait of
// both ends); vs: of MPI's call on MPI_COMM_SELF.
typedef enum alone { ALONE_SMALL, ALONE_IN_PLACE, ALONE_MESSAGE, ALONE_KINDS } alone;
static double alone_once(bench *b, par_comm *self, alone what, int vs) {
    const int n = what == ALONE_IN_PLACE ? (int)MIN(b->buffer_bytes / 4, (size_t)524288) : 2;
    float *x = (float *)(void *)b->send, *y = what == ALONE_IN_PLACE ? x : (float *)(void *)b->recv;
    const double t0 = par_seconds(self);
    for (int i = 0; i < DIAGNOSIS_CALLS; i++) {
        par_request q[2];
#if defined(PAR_MPI)
        MPI_Request m[2];
        MPI_Status statuses[2];
        if (vs && what == ALONE_MESSAGE) {
            MPI_Isend(x, n, MPI_FLOAT, 0, 0, MPI_COMM_SELF, &m[0]);
            MPI_Irecv(y, n, MPI_FLOAT, 0, 0, MPI_COMM_SELF, &m[1]);
            MPI_Waitall(2, m, statuses);
        } else if (vs)
            MPI_Allreduce(x == y ? MPI_IN_PLACE : x, y, n, MPI_FLOAT, MPI_SUM, MPI_COMM_SELF);
        if (vs) continue;
#endif
        if (what != ALONE_MESSAGE) {
            must(b, par_all_reduce(x, y, (size_t)n, PAR_F32, PAR_SUM, self));
            continue;
        }
        must(b, par_send_begin(x, (size_t)n, PAR_F32, 0, self, &q[0]));
        must(b, par_recv_begin(y, (size_t)n, PAR_F32, 0, self, &q[1]));
        must(b, par_wait_all(q, 2));
    }
    (void)vs;
    return (par_seconds(self) - t0) / DIAGNOSIS_CALLS;
}
static void measure_alone(bench *b, double seconds[2][ALONE_KINDS]) { // of ours, and of MPI's or 0
    par_comm *self;
    memset(seconds, 0, 2 * sizeof *seconds);
    must(b, par_split(b->world, b->rank, 0, &self));
    for (int what = 0; what < ALONE_KINDS; what++)
        for (int vs = 0; vs <= (b->o.vs != NULL); vs++)
            seconds[vs][what] = alone_once(b, self, (alone)what, vs);
    must(b, par_close(self));
}
// Messages of ordinary memory in both directions, over the bare system call that copies as much: what is left
// to gain. 0: ranks do not copy so.
static double copy_cost(bench *b) {
    enum { BYTES = 1 << 22, REPEAT = 25 };
    par_comm *c = b->world;
    const int left = neighbor(b, 0, 0), right = neighbor(b, 0, 1);
    double median[2] = {0, 1}, *t[2] = {b->times, b->vs_times};
    char *x = (char *)malloc(BYTES), *y = (char *)malloc(BYTES);
    uint64_t mine[2] = {(uint64_t)(uintptr_t)x, (uint64_t)getpid()}, from[2];
    int able = x && y && c->world->cma && c->size > 1 && c->nodes.node_count == 1;
    must(b, par_all_reduce(&able, &able, 1, PAR_I32, PAR_MIN, c));
    if (able) must(b, par_sendrecv(mine, 2, right, from, 2, left, PAR_U64, c));
    for (int i = 0; i < 2 * REPEAT && able; i++) {
        memset(x, i, BYTES);
        memset(y, -1, BYTES);
        must(b, par_barrier(c));
        const double t0 = par_seconds(c);
        if (i % 2) {
            if (par__cma_copy((int)from[1], par__iovec(y, BYTES), (uintptr_t)from[0], 0)) die(b, "no copy");
        } else {
            must(b, par_sendrecv(x, BYTES, right, y, BYTES, left, PAR_U8, c));
        }
        t[i % 2][i / 2] = par_seconds(c) - t0;
        must(b, par_barrier(c));
    }
    for (int k = 0; k < 2 && able; k++) median[k] = summarize(b, t[k], REPEAT).median;
    free(x);
    free(y);
    return able ? median[0] / median[1] : 0;
}
static double measure_waiting(bench *b) { // processor seconds of a rank that waits for a second
    struct timespec cpu0, cpu1;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu0);
    if (b->rank == 0) usleep(1000000);
    must(b, par_barrier(b->world));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu1);
    double idle = (double)(cpu1.tv_sec - cpu0.tv_sec) + 1e-9 * (double)(cpu1.tv_nsec - cpu0.tv_nsec);
    must(b, par_all_reduce(&idle, &idle, 1, PAR_F64, PAR_MAX, b->world));
    return idle;
}
static void diagnosis(bench *b) {
    par_comm *c = b->world;
    par_request begun;
    float one = 1;
    double hop, barrier, alone[2][ALONE_KINDS];
    must(b, par_all_reduce_begin(&one, &one, 1, PAR_F32, PAR_SUM, c, &begun));
    par__operation *op = begun.operation; // it stays, and its arrivals do; NULL: one rank
    must(b, par_wait(&begun));
    const double recorder = op ? recorder_seconds(c, op) : 0, compare = op ? compare_seconds(b, op) : 0;
    measure_hop(b, &hop, &barrier);
    // Memory of one rank; 4096: the page of its call sites.
    const size_t control = sizeof(par__rank_control) + 4096 + sizeof(par__arrivals) + PAR__SITE_BYTES +
                           par__ring_table_bytes(c->ring_count, c->lane_count) / (size_t)c->ring_count;
    measure_alone(b, alone);
    const double idle = measure_waiting(b), order = par_node_count(c) == 1 ? order_cost(b) : 0;
    const double copy = copy_cost(b);
    if (b->rank) return;
    if (!b->o.json)
        for (int vs = 0; vs <= (b->o.vs != NULL); vs++)
            printf(
                "%s on a comm of one rank: all_reduce of 8 bytes %.0f ns, of 2 MiB in place %.0f ns; begin "
                "and wait of a send and a receive of 8 bytes %.0f ns\n",
                vs ? b->o.vs : "a call", alone[vs][ALONE_SMALL] * 1e9, alone[vs][ALONE_IN_PLACE] * 1e9,
                alone[vs][ALONE_MESSAGE] * 1e9);
    if (b->o.json)
        json_print(
            "mode:%s order_cost:%.4f ranks:%d recorder_ns:%.2f compare_ns:%.2f hop_ns:%.1f barrier_ns:%.1f "
            "control_bytes:%zu stage_bytes:%zu idle_share:%.4f alone_ns:%.1f alone_in_place_ns:%.1f "
            "alone_message_ns:%.1f message_vs_copy:%.4f",
            "diagnosis", order, b->n, recorder * 1e9, compare * 1e9, hop * 1e9, barrier * 1e9, control,
            c->stage_bytes, idle, alone[0][ALONE_SMALL] * 1e9, alone[0][ALONE_IN_PLACE] * 1e9,
            alone[0][ALONE_MESSAGE] * 1e9, copy);
    else
        printf("flight recorder %.1f ns a call (both its clock readings), mismatch check %.1f ns\n"
               "one-way cache-line hop %.0f ns, barrier %.0f ns\n"
               "memory of the kit per rank: control %zu bytes, staging %zu bytes\n"
               "waiting for a rank that is a second late: %.1f%% of a core\n"
               "a sum in rank order against one that starts with the rank's own data, 4 MiB: %+.1f%%\n"
               "messages of 4 MiB in both directions, over process_vm_readv alone: %.2f\n",
               recorder * 1e9, compare * 1e9, hop * 1e9, barrier * 1e9, control, c->stage_bytes, idle * 100,
               order * 100, copy);
}

// Open and close a world of so many ranks, in processes of their own. Rank 0's seconds of both; 0: it failed.
static int time_start(int ranks, double seconds[2]) {
    int ends[2], status = 1;
    par_desc desc;
    par_comm *world;
    memset(&desc, 0, sizeof desc);
    desc.rank_count = ranks;
    if (pipe(ends)) return 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const double begun = par__now();
        if (par_open(&desc, &world)) _exit(1);
        const double opened = par__now();
        const int rank = par_rank(world), bad = par_close(world) != PAR_OK;
        const double t[2] = {opened - begun, par__now() - opened};
        _exit(bad || (!rank && write(ends[1], t, sizeof t) != sizeof t));
    }
    close(ends[1]);
    const int read_all = child > 0 && read(ends[0], seconds, 2 * sizeof *seconds) == 2 * sizeof *seconds;
    close(ends[0]);
    return child > 0 && waitpid(child, &status, 0) == child && !status && read_all;
}
static int starts(bench *b) {
    static const int ranks[] = {2, 128, 1000}, rounds[] = {31, 7, 1};
    for (int k = 0; k < 3 && ranks[k] <= b->o.start; k++) {
        double t[2], open[31], end[31];
        for (int i = 0; i < rounds[k]; i++) {
            if (!time_start(ranks[k], t))
                return fprintf(stderr, "bench_coll: %d ranks: no start\n", ranks[k]);
            open[i] = t[0], end[i] = t[1];
        }
        const double open_s = median(open, rounds[k]), end_s = median(end, rounds[k]);
        if (b->o.json)
            json_print("mode:%s ranks:%d open_us:%.1f close_us:%.1f", "start", ranks[k], open_s * 1e6,
                       end_s * 1e6);
        else
            printf("%d ranks open a world in %.2f ms and close it in %.2f ms\n", ranks[k], open_s * 1e3,
                   end_s * 1e3);
    }
    return 0;
}

static void print_algorithms(bench *b) {
    par__world *w = b->world->world;
    if (!b->o.json) {
        par_algorithms_print(b->world, stdout);
        return;
    }
    for (int i = 0; i < PAR__ALGORITHM_COUNT; i++) {
        const par__algorithm_row *a = &par__algorithms[i];
        json_print("mode:%s op:%s algorithm:%s when:%s forced:%d", "algorithms", par_kind_name(a->kind),
                   a->name, a->when, w->forced[a->kind] == i + 1);
    }
    for (size_t i = 0; i < w->tune_row_count; i++) {
        const par__algorithm_row *a = &par__algorithms[w->tune_rows[i].algorithm];
        json_print("mode:%s op:%s algorithm:%s ranks:%d nodes:%d up_to_bytes:%zu", "tuned",
                   par_kind_name(a->kind), a->name, w->tune_rows[i].ranks, w->tune_rows[i].nodes,
                   w->tune_rows[i].bytes);
    }
    for (int k = 0; k < PAR_KIND_COUNT; k++)
        if (w->kind_cma_bytes[k])
            json_print("mode:%s op:%s cma_bytes:%zu", "tuned", par_kind_name((par_kind)k),
                       w->kind_cma_bytes[k]);
    json_print("mode:%s cma:%d cma_bytes:%zu stream_bytes:%zu", "thresholds", w->cma, w->cma_bytes,
               w->nontemporal_bytes);
    for (size_t bytes = 8; bytes <= (size_t)64 << 20; bytes *= 16)
        json_print("mode:%s op:%s bytes:%zu algorithm:%s", "chosen", "all_reduce", bytes,
                   par__all_reduce_algorithm(b->world, bytes));
}

// Report an unknown value. `names`: the valid ones, as text; `from`: the same, as par_suggest takes them.
static const char *unknown(bench *b, const char *option, const char *value, const char *names,
                           const void *from, size_t count, size_t stride) {
    snprintf(b->why, sizeof b->why, "no such %s: \"%.60s\"%s (there are: %s)", option, value,
             par_suggest(value, from, count, stride).text, names);
    return b->why;
}
// nccl-tests' name of a type or reduction as this kit's.
static const char *own_name(const char *name) {
    static const char *const names[][2] = {
        {"int8", "i8"},          {"uint8", "u8"},      {"int32", "i32"},      {"uint32", "u32"},
        {"int64", "i64"},        {"uint64", "u64"},    {"half", "f16"},       {"float", "f32"},
        {"double", "f64"},       {"bfloat16", "bf16"}, {"f8e4m3", "f8_e4m3"}, {"f8e5m2", "f8_e5m2"},
        {"mulsum", "scaled_sum"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i][0])) return names[i][1];
    return name;
}
// -m 4: operations in one iteration (nccl-tests); -m 4:1024: the sizes (OSU).
static const char *read_m(settings *o) {
    char first[32];
    const option inner = {"-m", OPTION_INT, &o->inner, "", 1, INFINITY},
                 begin = {"-m", OPTION_SIZE, &o->begin, "", 0, INFINITY},
                 end = {"-m", OPTION_SIZE, &o->end, "", 0, INFINITY};
    const char *colon = strchr(o->m, ':');
    snprintf(first, sizeof first, "%.*s", colon ? (int)(colon - o->m) : 31, o->m);
    if (!colon) return option_set(&inner, o->m) ? NULL : "-m: a number from 1, or sizes MIN:MAX";
    return option_set(&begin, first) && option_set(&end, colon + 1) ? NULL
                                                                    : "-m MIN:MAX: sizes, as 4:1024 or 1K:1M";
}

#define X2(constant, text)      text,
#define X4(constant, name, ...) #name,
#define L2(constant, text)      text " "
#define L4(constant, name, ...) #name " "
static const char *check_types(bench *b) { // -d and -o
    static const char *const types[] = {PAR_DTYPES(X4)}, *const operations[] = {PAR_OPS(X2)};
    settings *o = &b->o;
    const int all_types = !strcmp(o->dtype, "all"), all_operations = !strcmp(o->redop, "all");
    if ((all_types || all_operations) && (o->tune || o->model || o->overlap || o->diagnosis))
        return "--tune, --model, --overlap and --diagnosis take one type (-d) and one reduction (-o)";
    if (par_dtype_parse(all_types ? "f32" : own_name(o->dtype), &b->dtype))
        return unknown(b, "type for -d", o->dtype, PAR_DTYPES(L4) "all", types, PAR_DTYPE_COUNT,
                       sizeof *types);
    if (par_op_parse(all_operations ? "sum" : own_name(o->redop), &b->redop))
        return unknown(b, "operation for -o", o->redop, PAR_OPS(L2) "all", operations, PAR_OP_COUNT,
                       sizeof *operations);
    b->element_bytes = par_dtype_bytes(b->dtype);
    return type_problem(b);
}
static const char *check_simulation(bench *b) {
    const settings *o = &b->o;
    network n = sim_network(o);
    if (o->vs && strcmp(o->vs, "ledger")) return "--vs of --simulate is ledger";
    if (o->vs && o->ranks > 1024) return "--vs ledger runs the ranks: at most 1024";
    if (o->pattern && !sim_pattern(o->pattern))
        return unknown(b, "pattern", o->pattern, "pair binomial ring doubling double_tree", patterns,
                       PATTERNS, sizeof patterns[0]);
    if (o->pattern && (o->vs || n.ranks % n.node_ranks))
        return "--pattern takes no --vs, and as many ranks on each node";
    if (!sim_has(o->op)) return "--simulate has collectives alone: not messages";
    if (n.kind == NET_KINDS)
        return unknown(b, "network", o->network, "fat_tree dragonfly rails", net_names, NET_KINDS,
                       sizeof net_names[0]);
    if (o->root >= n.ranks) return "-r must be a rank";
    if (!strcmp(o->dtype, "all") || !strcmp(o->redop, "all"))
        return "--simulate takes one type (-d) and one reduction (-o)";
    if (!net_describe(&n)) return "a dragonfly of such a --radix has not so many nodes";
    return check_types(b);
}
static const char *check_settings(bench *b) {
    settings *o = &b->o;
    int known = 0;
    par_op redop;
    const char *why = read_m(o);
    if (why) return why;
    for (int i = 0; i < KINDS; i++) known |= is_chosen(b, &kinds[i]);
    known |= o->simulate && sim_has(o->op);
    if (!known && !par_op_parse(own_name(o->op), &redop))
        return "--op is the collective, such as all_reduce; give the reduction by -o";
    if (!known)
        return unknown(b, "--op", o->op,
                       "all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all "
                       "sendrecv one_way "
                       "halo halo_6 halo_26 halo_exchange_6 halo_exchange_26 barrier all",
                       kinds, KINDS, sizeof kinds[0]);
    if (o->end < o->begin) return "-e must not be less than -b";
    if (o->simulate) return check_simulation(b);
    if (o->ranks > 1024) return "--ranks takes at most 1024, and more with --simulate";
    if (strcmp(o->memory, "symmetric") && strcmp(o->memory, "private"))
        return "--memory is symmetric or private";
    const int cuda = !strcmp(o->device, "cuda");
    if (!cuda && strcmp(o->device, "cpu")) return "--device is cpu or cuda";
    if (cuda && (o->vs || o->cold || o->tune || o->model || o->overlap || o->diagnosis || o->algorithms))
        return "--vs, --cold, --tune, --model, --overlap, --diagnosis and --algorithms need --device cpu";
#if !defined(BENCH_CUDA)
    if (cuda) return "--device cuda needs build/bench_coll_cuda (make cuda)";
#endif
    if ((double)o->warmup + o->iterations > 1e8 / o->inner)
        return "-w + -n iterations of -m operations are more than 100 million in one measurement";
    if (o->vs && strcmp(o->vs, "mpi") && strcmp(o->vs, "calls")) return "--vs must be mpi or calls";
    b->vs_calls = o->vs && !strcmp(o->vs, "calls");
    if ((why = check_types(b)) != NULL || b->vs_calls) return why;
#if defined(PAR_MPI)
    if (o->vs && o->end > (size_t)INT_MAX) return "MPI counts at most 2147483647 elements: use a smaller -e";
#else
    if (o->vs) return "--vs mpi needs bench_coll_mpi";
#endif
    return NULL;
}
#undef X2
#undef X4
#undef L2
#undef L4

static int run(bench *b) {
    const int iterations = MAX(b->o.iterations, 2000);
    size_t wrong = 0;
    b->rank = par_rank(b->world), b->n = par_size(b->world);
    if (b->o.root < 0 || b->o.root >= b->n) {
        if (b->rank == 0) fprintf(stderr, "bench_coll: -r must be a rank\n");
        return 2;
    }
    b->buffer_bytes = b->o.end + 64 * (size_t)b->n + CANARY;
    b->times = (double *)calloc((size_t)iterations, sizeof(double));
    b->vs_times = (double *)calloc((size_t)iterations, sizeof(double));
    const size_t pattern = b->o.end / (strcmp(b->o.dtype, "all") ? b->element_bytes : 1) + 64;
    b->pattern = (float *)malloc(pattern * sizeof(float));
    if (!strcmp(b->o.memory, "symmetric")) {
        b->send = (unsigned char *)par_alloc(b->world, b->buffer_bytes);
        b->recv = (unsigned char *)par_alloc(b->world, b->buffer_bytes);
    } else {
        b->send = (unsigned char *)malloc(b->buffer_bytes);
        b->recv = (unsigned char *)malloc(b->buffer_bytes);
    }
    if (!b->times || !b->vs_times || !b->pattern || !b->send || !b->recv)
        die(b, "out of memory: use a smaller -e");
    for (size_t i = 0; i < pattern; i++) b->pattern[i] = (float)(i & 7);
    memset(b->send, 0, b->buffer_bytes), memset(b->recv, 0, b->buffer_bytes);
    open_device(b);
    for (int in_place = 0; in_place < 2; in_place++) b->roofline[in_place] = measure_roofline(b, in_place);
    int failed = 0;
    if (b->o.tune) tune(b);
    if (b->o.model) failed = model(b);
    if (b->o.overlap) overlap(b);
    if (b->o.diagnosis) diagnosis(b);
    for (int i = 0; i < KINDS && !b->o.tune && !b->o.model && !b->o.overlap && !b->o.diagnosis; i++)
        if (is_chosen(b, &kinds[i]) &&
            !(strcmp(b->o.device, "cpu") && (kinds[i].one_way || kinds[i].exchange)))
            wrong += run_kind(b, &kinds[i]); // these are not for memory of devices
    if (b->rank == 0 && wrong) fprintf(stderr, "bench_coll: %zu wrong results\n", wrong);
    if (!strcmp(b->o.memory, "symmetric")) {
        must(b, par_free(b->world, b->recv));
        must(b, par_free(b->world, b->send));
    } else {
        free(b->send), free(b->recv);
    }
    close_device(b);
    free(b->times), free(b->vs_times), free(b->pattern);
    return b->rank == 0 && (wrong != 0 || failed > 0);
}

#if defined(BENCH_CUDA)
static int run_thread(par_comm *world, void *user) { // reports rank 0's outcome
    bench b = *(const bench *)user;
    b.world = world;
    const int failed = run(&b);
    if (b.rank == 0) ((bench *)user)->failed = failed;
    return 0;
}
#endif

#define NETWORK_OPTIONS                                                                                      \
    " --pattern --node --network --radix --oversubscription --latency_us --hop_us --processor_us --link_gb " \
    "--memory_us --memory_gb "
static const option_answer answers[] = {
    {"--tune", " --ranks -e -d -o -r --memory --device --seconds -w -m --cold "},
    {"--model", " --op --ranks -e -d -o -r --memory --device --seconds -w -m --cold --json "},
    {"--overlap", " --ranks -b -e -f -i -d -o --memory --device --seconds -w -m --cold --json "},
    {"--diagnosis", " --ranks --memory --device --vs --start --json "},
    {"--algorithms", " --ranks --device --json "},
    {"--simulate", " --op --ranks -b -e -f -i -d -o -r --vs --json" NETWORK_OPTIONS},
};
static int refuse_unused(const option *options, size_t count) { // 0, or 2: an error
    const size_t n = sizeof answers / sizeof answers[0];
    if (options_unused("bench_coll", options, count, answers, n)) return 2;
    if (option_named(options, count, "--start")->given &&
        !*(int *)option_named(options, count, "--diagnosis")->value)
        return fprintf(stderr, "bench_coll: --start is of --diagnosis: give both\n"), 2;
    for (size_t k = 0; k < count; k++) {
        char name[64];
        snprintf(name, sizeof name, " %s ", options[k].name);
        if (options[k].given && strstr(NETWORK_OPTIONS, name) &&
            !*(int *)option_named(options, count, "--simulate")->value)
            return fprintf(stderr, "bench_coll:%sis of --simulate: give both\n", name), 2;
    }
    return 0;
}
// Options that say the same in two ways.
static int refuse_pairs(const option *options, size_t count) { // 0, or 2: an error
    static const char *const pairs[][3] = {
        {"sizes are multiplied or stepped", "-f", "-i"},
        {"MIN:MAX of -m is -b MIN -e MAX", "-m", "-b"},
        {"MIN:MAX of -m is -b MIN -e MAX", "-m", "-e"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const option *one = option_named(options, count, pairs[i][1]),
                     *other = option_named(options, count, pairs[i][2]);
        if (!one->given || !other->given) continue;
        if (one->type == OPTION_TEXT && !strchr(*(const char **)one->value, ':')) continue; // -m 4
        fprintf(stderr, "bench_coll: give %s or %s, not both: %s\n", pairs[i][1], pairs[i][2], pairs[i][0]);
        return 2;
    }
    return 0;
}

// The options of --simulate; returns how many.
static size_t network_options(settings *o, option *to) {
    o->node = 8, o->network = "fat_tree", o->radix = 64, o->oversubscription = 1;
    o->latency = 1.5, o->hop = 0.1, o->processor = 0.3, o->link = 25, o->memory_latency = 0.3,
    o->memory_link = 10;
    const option options[] = {
        {"the network of --simulate", OPTION_TITLE, NULL, NULL},
        {"--pattern", OPTION_TEXT, &o->pattern,
         "messages instead of a collective: pair, binomial, ring, doubling, double_tree"},
        {"--node", OPTION_INT, &o->node, "ranks of a node", 1, 1024},
        {"--network", OPTION_TEXT, &o->network, "fat_tree, dragonfly or rails (see bench/network.h)"},
        {"--radix", OPTION_INT, &o->radix, "ports of a switch", 4, 1024},
        {"--oversubscription", OPTION_REAL, &o->oversubscription, "of a fat tree above its first switches", 1,
         1024},
        {"--latency_us", OPTION_REAL, &o->latency, "of a message between nodes", 0, 1e6},
        {"--hop_us", OPTION_REAL, &o->hop, "more for each link between switches", 0, 1e6},
        {"--processor_us", OPTION_REAL, &o->processor, "of the sender, and of the receiver, for a message", 0,
         1e6},
        {"--link_gb", OPTION_REAL, &o->link, "GB/s of a link in each direction", 1e-6, 1e6},
        {"--memory_us", OPTION_REAL, &o->memory_latency, "until a rank of the node sees a write", 0, 1e6},
        {"--memory_gb", OPTION_REAL, &o->memory_link, "GB/s that a rank copies or adds in memory", 1e-6, 1e6},
    };
    memcpy(to, options, sizeof options);
    return sizeof options / sizeof options[0];
}
// As options_parse.
static int parse_settings(int argc, char **argv, settings *o) {
    o->begin = 8, o->end = (size_t)64 << 20, o->factor = 8, o->m = "1";
    o->warmup = 5, o->inner = 1, o->check = 1, o->in_place = 1;
    o->op = "all_reduce", o->dtype = "f32", o->redop = "sum", o->memory = "private";
    o->device = "cpu", o->start = 1000, o->seconds = 20;
#if defined(BENCH_CUDA)
    o->device = "cuda";
#endif
    option options[] = {
        {"what is timed", OPTION_TITLE, NULL, NULL},
        {"--op", OPTION_TEXT, &o->op, "collective, or all"},
        {"--ranks, -g, --ngpus", OPTION_INT, &o->ranks, "ranks on this machine; 0: PAR_RANKS or 2", 0,
         131072},
        {"-b, --minbytes", OPTION_SIZE, &o->begin, "smallest size in bytes (K, M, G)", 0, INFINITY},
        {"-e, --maxbytes", OPTION_SIZE, &o->end, "largest size", 0, INFINITY},
        {"-f, --stepfactor", OPTION_INT, &o->factor, "factor between sizes", 2, INFINITY},
        {"-i, --stepbytes", OPTION_SIZE, &o->step, "bytes between sizes, instead of -f", 0, INFINITY},
        {"-d, --datatype", OPTION_TEXT, &o->dtype, "type, or all"},
        {"-o, --redop", OPTION_TEXT, &o->redop, "reduction, or all"},
        {"-r, --root", OPTION_INT, &o->root, "root", 0, INFINITY},
        {"--in_place", OPTION_FLAG, &o->in_place, "in place, too"},
        {"--memory", OPTION_TEXT, &o->memory, "symmetric (par_alloc) or private"},
        {"--device", OPTION_TEXT, &o->device, "cpu, or cuda (build/bench_coll_cuda): whose memory"},
        {"how", OPTION_TITLE, NULL, NULL},
        {"-n, --iters", OPTION_INT, &o->iterations, "iterations at most; 0: by size", 0, INFINITY},
        {"--seconds", OPTION_INT, &o->seconds,
         "about so long for a row, out of place and in place each; then fewer iterations (at least 3); 0: "
         "all",
         0, INFINITY},
        {"-w, --warmup_iters", OPTION_INT, &o->warmup, "warm-up iterations, not timed", 0, INFINITY},
        {"-m, --agg_iters", OPTION_TEXT, &o->m, "operations in one iteration; MIN:MAX: sizes, as -b and -e"},
        {"-c, --check", OPTION_INT, &o->check, "check results, unless 0 (reductions in place: with -m 1)", 0,
         INFINITY},
        {"--vs", OPTION_TEXT, &o->vs,
         "mpi: the MPI call on the same buffers, alternating; calls: a neighbor exchange's messages, by "
         "calls; ledger, with --simulate: are the counts those of real ranks (threads), by each algorithm?"},
        {"--cold", OPTION_FLAG, &o->cold, "flush all caches before each iteration (x86)"},
        {"other answers", OPTION_TITLE, NULL, NULL},
        {"--tune", OPTION_FLAG, &o->tune,
         "measure every algorithm and when the system copies; print the table that PAR_TUNE reads"},
        {"--model", OPTION_FLAG, &o->model,
         "compare the model's predictions with measurements; fails beyond 25%"},
        {"--overlap", OPTION_FLAG, &o->overlap, "the share of an all_reduce that computation hides"},
        {"--diagnosis", OPTION_FLAG, &o->diagnosis,
         "cost of the checks, a cache line's hop, memory, idle waiting"},
        {"--start", OPTION_INT, &o->start,
         "with --diagnosis: time how 2, 128, 1000 ranks start and end, but no more ranks than this", 0,
         INFINITY},
        {"--algorithms", OPTION_FLAG, &o->algorithms, "print the algorithms and what would be chosen"},
        {"--simulate", OPTION_FLAG, &o->simulate, "no ranks run: messages, steps and time over a network"},
        {"--json", OPTION_FLAG, &o->json, "one JSON object a row"},
    };
    enum { COUNT = sizeof options / sizeof options[0] };
    option all[COUNT + 16];
    memcpy(all, options, sizeof options);
    const size_t count = COUNT + network_options(o, all + COUNT);
    const int parsed = options_parse(argc, argv, all, count, "bench_coll: time the collectives");
    if (parsed) return parsed;
    return refuse_unused(all, count) || refuse_pairs(all, count) ? 2 : 0;
}

int main(int argc, char **argv) {
    bench b;
    memset(&b, 0, sizeof b);
    settings *o = &b.o;
    const int parsed = parse_settings(argc, argv, o);
    if (parsed) return parsed == 1 ? 0 : 2;
    const char *why = check_settings(&b);
    if (!options_fit("bench_coll", (double)o->end, "-e")) return 2;
    if (why) return fprintf(stderr, "bench_coll: %s\n", why), 2;
    par_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.rank_count = o->ranks;
    if (o->simulate) {
        const int bad = simulate(&b);
        return output_failed("bench_coll") || bad;
    }
    const int launched = par_launched(NULL);
    if (launched < 2 && par_defaults(&desc, &desc)) return 1;
#if defined(PAR_MPI)
    if (!launched && (!desc.rank_count || (o->vs && !b.vs_calls)))
        return fprintf(stderr, "bench_coll: no ranks of MPI here: start it by mpiexec -n 2 %s%s\n", argv[0],
                       o->vs ? "" : ", or give --ranks"),
               2;
#endif
    if (!launched && !desc.rank_count) desc.rank_count = 2;
#if defined(BENCH_CUDA)
    // Processes that share a GPU use it one at a time; threads use it at once.
    if (!strcmp(o->device, "cuda") && launched < 2) {
        if (!desc.rank_count) desc.rank_count = 1; // started by a launcher
        const int bad = par_run_threads(&desc, run_thread, &b) != PAR_OK || b.failed;
        return output_failed("bench_coll") || bad;
    }
#endif
    if (o->diagnosis && !launched && starts(&b)) return 1;
    if (par_open(&desc, &b.world)) return 1;
#if defined(PAR_MPI)
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "MPI";
    if (o->vs && !b.vs_calls) o->vs = name_of_mpi(version);
#endif
    int failed = 0;
    if (o->algorithms) {
        if (par_rank(b.world) == 0) print_algorithms(&b);
    } else
        failed = run(&b);
    const par_result closed = par_close(b.world);
    if (output_failed("bench_coll") && !failed) failed = 1;
    return failed ? failed : closed != PAR_OK;
}

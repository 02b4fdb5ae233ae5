// test_cuda.cu - par_cuda.cuh against the CPU. Under nvcc on a GPU, or by g++ with tests/cuda_emu.
#define PAR_IMPLEMENTATION
#include "kit.h"
#include "par_zero.h"
#include "par_pipe.h"
#include "par_tp.h"
#include "par_cuda.cuh"
#include "test.h"
#include "../examples/gpt/model.h"
#include <initializer_list>

#if defined(CUDA_EMU)
#define SEED(n)    emu_seed((uint64_t)(n), (emu_order)((n) % 3))
#define BECOME(sm) emu_capability(sm)
enum { EMULATED = 1 };
#else
#define BECOME(sm) (void)(sm)
#define SEED(n)    (void)(n)
enum { EMULATED = 0 };
#endif

// ---- arrays in both places

static int same_bits; // 1: canonical kernels are tested, which have the CPU's bits
static par_cuda *open_cuda(par_comm *w, par_cuda_backend backend) {
    par_cuda *cuda = NULL;
    par_cuda_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.comm = w, desc.backend = backend, desc.check = 1, desc.exact = getenv("PAR_CUDA_TEST_EXACT") != NULL;
    desc.canonical = same_bits;
    CHECK_OK(w, par_cuda_open(&desc, &cuda));
    if (!cuda) exit(1);
    return cuda;
}
// Has this program the CPU's bits? One that was compiled without them refuses desc.canonical.
static int has_canonical(par_comm *w) {
#if defined(CUDA_EMU) || defined(PAR_CUDA_CANONICAL)
    const par_result expected = PAR_OK;
#else
    const par_result expected = PAR_ERR_UNSUPPORTED;
#endif
    par_cuda *cuda = NULL;
    par_cuda_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.canonical = 1;
    const par_result r = par_cuda_open(&desc, &cuda);
    CHECK(w, r == expected && !r == (cuda != NULL));
    if (cuda) par_cuda_close(cuda);
    return !r;
}
static void *on_device(par_comm *w, par_cuda *cuda, size_t bytes) { // of 0xFF: as if nobody had written to it
    void *p = NULL;
    CHECK_OK(w, par_cuda_alloc(cuda, PAR_CUDA_DEVICE, bytes, &p));
    cudaMemsetAsync(p, 0xFF, bytes, par_cuda_stream(cuda));
    return p;
}
static void *zeros_on_device(par_comm *w, par_cuda *cuda, size_t bytes) {
    void *p = on_device(w, cuda, bytes);
    cudaMemsetAsync(p, 0, bytes, par_cuda_stream(cuda));
    return p;
}
// Waits before, because the host's array is not page-locked, and after, because it must stay until the stream
// has read it.
static void upload(par_cuda *cuda, void *device, const void *host, size_t bytes) {
    par_cuda_sync(cuda);
    cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, par_cuda_stream(cuda));
    par_cuda_sync(cuda);
}
static void download(par_cuda *cuda, void *host, const void *device, size_t bytes) {
    par_cuda_sync(cuda);
    cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, par_cuda_stream(cuda));
    par_cuda_sync(cuda);
}
// The same bits; but a NaN equals each other NaN, because GPUs make one of their own (PTX ISA, "cvt").
static int same_values(par_dtype d, const void *a, const void *b, size_t n) {
    const size_t e = par_dtype_bytes(d);
    for (size_t at = 0; is_float(d) && at < n * e; at += e) {
        const char *p = (const char *)a + at, *q = (const char *)b + at;
        double x, y;
        if (!memcmp(p, q, e)) continue;
        par_cast(&x, PAR_F64, p, d, 1), par_cast(&y, PAR_F64, q, d, 1);
        if (!isnan(x) || !isnan(y)) return 0;
    }
    return is_float(d) || !memcmp(a, b, n * e);
}
static void fill_values(par_dtype d, void *p, size_t n, uint64_t stream) {
    for (size_t i = 0; i < n; i++) {
        const double u = (double)par_uniform(5, stream, i);
        const double x =
            is_float(d) ? 4 * u - 2 : (double)(int)(100 * u) - (d == PAR_I8 || d == PAR_I32 ? 50 : 0);
        par_cast((char *)p + i * par_dtype_bytes(d), d, &x, PAR_F64, 1);
    }
}

// ---- the device

static void device(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_device *d = par_cuda_device(cuda);
    void *p, *event = NULL, *stream;
    char back[1000];
    CHECK_OK(w, d->alloc(d, 1000, &p));
    download(cuda, back, p, 1000);
    for (int i = 0; i < 1000; i++)
        if (back[i]) CHECK(w, !"zeroed");
    CHECK_OK(w, d->stream_open(d, &stream));
    CHECK_OK(w, d->fill(d, p, 7, 1000, stream));
    CHECK_OK(w, d->event_record(d, stream, &event));
    CHECK_OK(w, d->event_wait(d, NULL, event));
    CHECK_OK(w, d->event_sync(d, event));
    CHECK_OK(w, d->copy(d, back, p, 1000, NULL));
    CHECK_OK(w, d->stream_sync(d, NULL));
    CHECK(w, back[0] == 7 && back[999] == 7);
    CHECK_OK(w, d->event_free(d, event));
    CHECK_OK(w, d->stream_close(d, stream));
    CHECK_OK(w, d->free(d, p));
    CHECK_OK(w, par_cuda_alloc(cuda, PAR_CUDA_HOST, 100, &p));
    ((char *)p)[99] = 1;
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_HOST, p));
    CHECK_OK(w, par_cuda_alloc(cuda, PAR_CUDA_STREAM, 100, &p));
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_STREAM, p));
    par_cuda_close(cuda);
}

static const size_t odd_sizes[] = {0, 1, 2, 7, 8, 9, 31, 64, 255, 1000, 4097};
enum { ODD_SIZES = sizeof odd_sizes / sizeof odd_sizes[0], MAX_ELEMENTS = 4200 };

static void casts(par_comm *w) {
    static const double edges[] = {
        0,    -0.0,     1,         -1,    0.5,       65504, 65520,        65519.99,     1e-8,         6e-8,
        3e38, 1e39,     -1e300,    127.5, 255.9,     256,   2147483647.0, 4294967295.0, 4294967296.0, 1.8e19,
        NAN,  INFINITY, -INFINITY, 0.1,   1.00390625};
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_device *d = par_cuda_device(cuda);
    static char from[MAX_ELEMENTS * 8 + 64], to[MAX_ELEMENTS * 8 + 64], want[MAX_ELEMENTS * 8 + 64];
    char *a = (char *)on_device(w, cuda, sizeof from), *b = (char *)on_device(w, cuda, sizeof from);
    for (int s = 0; s < PAR_DTYPE_COUNT; s++)
        for (int t = 0; t < PAR_DTYPE_COUNT; t++)
            for (size_t k = 0; k < ODD_SIZES; k += is_float((par_dtype)s) && is_float((par_dtype)t) ? 1 : 5) {
                const size_t n = odd_sizes[k], se = par_dtype_bytes((par_dtype)s),
                             te = par_dtype_bytes((par_dtype)t);
                const size_t shift = k % 2 * 8; // the address is no multiple of 16
                fill_values((par_dtype)s, from, n, 1);
                for (size_t i = 0; i < n && i < sizeof edges / sizeof edges[0]; i++)
                    par_cast(from + i * se, (par_dtype)s, &edges[i], PAR_F64, 1);
                memset(want, 0xFF, sizeof want);
                par_cast(want + shift, (par_dtype)t, from, (par_dtype)s, n);
                upload(cuda, a + shift, from, n * se);
                CHECK_OK(w, d->fill(d, b, 0xFF, sizeof from, NULL));
                CHECK_OK(w, d->cast(d, b + shift, (par_dtype)t, a + shift, (par_dtype)s, n, NULL));
                download(cuda, to, b, sizeof to);
                const size_t end = shift + n * te;
                CHECK(w, same_values((par_dtype)t, to + shift, want + shift, n) && "cast as par_cast does");
                CHECK(w, !memcmp(to, want, shift) && !memcmp(to + end, want + end, 32) && "nothing beside");
            }
    CHECK_OK(w, d->free(d, a));
    CHECK_OK(w, d->free(d, b));
    par_cuda_close(cuda);
}

static void reduces(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_device *d = par_cuda_device(cuda), *cpu = par_cpu();
    enum { SOURCES = 9, BUFFER_BYTES = 1100 * 8 };
    static char host[SOURCES][BUFFER_BYTES], want[BUFFER_BYTES], got[BUFFER_BYTES];
    char *in[SOURCES], *out = (char *)on_device(w, cuda, BUFFER_BYTES);
    for (int i = 0; i < SOURCES; i++) in[i] = (char *)on_device(w, cuda, BUFFER_BYTES);
    for (int t = 0; t < PAR_DTYPE_COUNT; t++)
        for (int o = 0; o < PAR_OP_COUNT; o++) {
            const par_op op = o == PAR_SCALED_SUM ? par_scaled_sum(0.3) : (par_op)o;
            if (o == PAR_SCALED_SUM && !is_float((par_dtype)t)) continue;
            for (size_t k = 0; k < ODD_SIZES - 1; k += 2) {
                const size_t n = odd_sizes[k], e = par_dtype_bytes((par_dtype)t), shift = k % 4 * 4;
                const int sources = 1 + (int)(k + (size_t)o) % SOURCES;
                const void *from[SOURCES], *device[SOURCES];
                SEED(k);
                for (int i = 0; i < sources; i++) {
                    fill_values((par_dtype)t, host[i], n, (uint64_t)(10 + i));
                    from[i] = host[i], device[i] = in[i] + shift;
                    upload(cuda, in[i] + shift, host[i], n * e);
                }
                CHECK_OK(w, cpu->reduce(cpu, want, from, sources, n, (par_dtype)t, op, NULL));
                CHECK_OK(w, d->reduce(d, out + shift, device, sources, n, (par_dtype)t, op, NULL));
                download(cuda, got, out + shift, n * e);
                CHECK(w, same_values((par_dtype)t, got, want, n) && "the same bits as on the CPU");
                CHECK_OK(w,
                         d->reduce(d, in[0] + shift, device, sources, n, (par_dtype)t, op, NULL)); // in place
                download(cuda, got, in[0] + shift, n * e);
                CHECK(w, same_values((par_dtype)t, got, want, n) && "in place");
            }
        }
    for (int i = 0; i < SOURCES; i++) CHECK_OK(w, d->free(d, in[i]));
    CHECK_OK(w, d->free(d, out));
    par_cuda_close(cuda);
}

#if defined(CUDA_EMU)
// c = a b, n x n each; stream NULL: the compute stream.
static par_result square_product(par_cuda *cuda, size_t n, const float *a, const float *b, float *c,
                                 void *stream) {
    const par__cuda_gemm_desc p = {0, 0, n, n, n, n, n, n, 1, 0, PAR_F32, PAR_F32, NULL};
    return par__cuda_gemm(cuda, &p, a, b, c, stream ? (cudaStream_t)stream : par_cuda_stream(cuda));
}
#endif
static void gemm(par_comm *w) {
    static const size_t sizes[] = {1, 2, 5, 16, 17, 31, 64, 65, 97, 130};
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_device *d = par_cuda_device(cuda);
    double worst = 0;
    for (size_t s = 0; s < (EMULATED ? 30 : 200); s++) {
        const size_t m = sizes[par_random(1, 1, s) % 10], n = sizes[par_random(1, 2, s) % 10],
                     k = sizes[par_random(1, 3, s) % 10];
        const int ta = (int)(s & 1), tb = (int)(s >> 1 & 1);
        const size_t lda = ((ta ? m : k) + s % 3 * 8 + 7) / 8 * 8, ldb = ((tb ? k : n) + 7) / 8 * 8,
                     ldc = (n + s % 4 * 8 + 7) / 8 * 8;
        const size_t na = lda * (ta ? k : m), nb = ldb * (tb ? n : k), nc = ldc * m;
        const float alpha = s % 5 ? 1 : 0.5f, beta = s % 3 == 0 ? 0 : s % 3 == 1 ? 1 : 0.25f;
        float *a = (float *)malloc(4 * na), *b = (float *)malloc(4 * nb), *c = (float *)malloc(4 * nc),
              *got = (float *)malloc(4 * nc);
        fill_values(PAR_F32, a, na, s), fill_values(PAR_F32, b, nb, s + 1),
            fill_values(PAR_F32, c, nc, s + 2);
        float *da = (float *)on_device(w, cuda, 4 * na), *db = (float *)on_device(w, cuda, 4 * nb),
              *dc = (float *)on_device(w, cuda, 4 * nc);
        upload(cuda, da, a, 4 * na), upload(cuda, db, b, 4 * nb), upload(cuda, dc, c, 4 * nc);
        CHECK_OK(w, par_gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc));
        par__cuda_gemm_desc plain = {ta, tb, m, n, k, lda, ldb, ldc, alpha, beta, PAR_F32, PAR_F32, NULL};
        SEED(s);
        if (s & 4)
            CHECK_OK(w, par__cuda_gemm(cuda, &plain, da, db, dc, par_cuda_stream(cuda)));
        else // without a library
            CHECK_OK(w, par__cuda_plain_gemm(cuda, &plain, da, db, dc, par_cuda_stream(cuda)));
        download(cuda, got, dc, 4 * nc);
        for (size_t i = 0; i < nc; i++) worst = test_larger(worst, fabs((double)c[i] - (double)got[i]));
        free(a), free(b), free(c), free(got);
        d->free(d, da), d->free(d, db), d->free(d, dc);
    }
    CHECK(w, worst < 1e-4);
    par_cuda_close(cuda);
}

// ---- every collective, with the same call on the host beside it

typedef struct trial {
    par_kind kind;
    par_dtype dtype;
    par_op op;
    size_t count;
    int in_place, root;
} trial;
typedef struct
    trial_arrays { // elements: of my arrays; where, in the longer one, the shorter one lies in place
    size_t send, recv, offset, counts[16], displs[16], to[16], to_at[16], from[16], from_at[16];
    int send_is_part, in_place;
} trial_arrays;
static void trial_arrays_of(par_comm *w, const trial *t, trial_arrays *p) {
    const int n = par_size(w), me = par_rank(w), root = me == t->root;
    const size_t c = t->count, all = (size_t)n * c;
    size_t packed = 0, gapped = 0, packed_at = 0;
    memset(p, 0, sizeof *p);
    for (int i = 0; i < n; i++) {
        p->counts[i] = c ? (c + (size_t)i * 3) % (c + 1) : 0, p->displs[i] = gapped;
        if (i == me) packed_at = packed;
        packed += p->counts[i], gapped += p->counts[i] + 1;
        p->to[i] = c ? (c + (size_t)(me + 2 * i)) % (c + 1) : 0,
        p->from[i] = c ? (c + (size_t)(i + 2 * me)) % (c + 1) : 0;
    }
    p->send = p->recv = c;
    p->in_place = t->in_place;
    switch (t->kind) {
    case PAR_KIND_REDUCE_SCATTER: p->send = all, p->offset = (size_t)me * c; break;
    case PAR_KIND_REDUCE_SCATTERV: p->send = packed, p->recv = p->counts[me], p->offset = packed_at; break;
    case PAR_KIND_ALL_GATHER: p->recv = all, p->offset = (size_t)me * c, p->send_is_part = 1; break;
    case PAR_KIND_ALL_GATHERV:
        p->send = p->counts[me], p->recv = gapped, p->offset = p->displs[me], p->send_is_part = 1;
        break;
    case PAR_KIND_GATHER: p->recv = root ? all : 0, p->offset = (size_t)me * c, p->send_is_part = 1; break;
    case PAR_KIND_GATHERV:
        p->send = p->counts[me], p->recv = root ? gapped : 0, p->offset = p->displs[me], p->send_is_part = 1;
        break;
    case PAR_KIND_SCATTER: p->send = root ? all : 0, p->offset = (size_t)me * c; break;
    case PAR_KIND_SCATTERV:
        p->send = root ? gapped : 0, p->recv = p->counts[me], p->offset = p->displs[me];
        break;
    case PAR_KIND_ALL_TO_ALL: p->send = p->recv = all, p->in_place = 0; break;
    case PAR_KIND_ALL_TO_ALLV:
        p->send = p->recv = 0, p->in_place = 0;
        for (int i = 0; i < n; i++)
            p->to_at[i] = p->send, p->from_at[i] = p->recv, p->send += p->to[i], p->recv += p->from[i];
        break;
    case PAR_KIND_BROADCAST: p->send = root ? c : 0; break;
    case PAR_KIND_REDUCE: p->recv = root ? c : 0; break;
    default: break;
    }
    const int rooted = t->kind >= PAR_KIND_BROADCAST && t->kind <= PAR_KIND_SCATTERV;
    if (rooted && !root) p->in_place = 0;
}
static par_result call(par_comm *w, const trial *t, const trial_arrays *p, const void *send, void *recv,
                       par_request *q) {
    const par_kind_traits *x = par_kind_traits_of(t->kind);
    const int root = par_rank(w) == t->root, rooted = x->counts == PAR_COUNTS_ROOT;
    par_call k;
    memset(&k, 0, sizeof k);
    k.kind = t->kind, k.dtype = t->dtype, k.op = t->op, k.root = t->root;
    k.count = rooted ? p->counts[par_rank(w)] : t->count;
    k.send = (x->send & PAR_SIDE_ROOT) && !root ? NULL : send;
    k.recv = (x->recv & PAR_SIDE_ROOT) && !root ? NULL : recv;
    if (rooted && root && (x->send & PAR_SIDE_ALL)) k.send_counts = p->counts, k.send_displs = p->displs;
    if ((rooted && root && !k.send_counts) || x->counts == PAR_COUNTS_SAME) k.recv_counts = p->counts;
    if (k.recv_counts && (x->recv & PAR_SIDE_ALL)) k.recv_displs = p->displs;
    if (x->counts == PAR_COUNTS_OWN) k.send_counts = p->to, k.send_displs = p->to_at;
    if (x->counts == PAR_COUNTS_OWN) k.recv_counts = p->from, k.recv_displs = p->from_at;
    return par_begin(w, &k, q);
}
enum { BUFFER_BYTES = 70000 };
static void run_trial(par_comm *w, par_cuda *cuda, const trial *t, uint64_t stream, char *ds, char *dr,
                      int same_bits) {
    trial_arrays p;
    alignas(16) static thread_local char send[BUFFER_BYTES], recv[BUFFER_BYTES], got[BUFFER_BYTES];
    const size_t e = par_dtype_bytes(t->dtype);
    par_request q[2];
    trial_arrays_of(w, t, &p);
    const size_t sent = p.send * e, received = p.recv * e, at = p.offset * e;
    if (sent > BUFFER_BYTES || received > BUFFER_BYTES) exit(9);
    memset(recv, 0xFF, BUFFER_BYTES);
    fill_values(t->dtype, send, p.send, stream * 100 + (uint64_t)par_rank(w));
    // In place the part lies within the whole: of send for scattering calls, of recv for gathering ones.
    char *hs = send, *hr = recv, *s = ds, *r = dr;
    if (p.in_place && p.send_is_part) memcpy(recv + at, send, sent), hs = recv + at, s = dr + at;
    if (p.in_place && !p.send_is_part) hr = send + at, r = ds + at;
    cudaMemsetAsync(dr, 0xFF, BUFFER_BYTES, par_cuda_stream(cuda));
    upload(cuda, s, hs, sent);
    CHECK_OK(w, call(w, t, &p, hs, hr, &q[0]));
    CHECK_OK(w, call(w, t, &p, s, r, &q[1]));
    CHECK_OK(w, par_wait(&q[1]));
    CHECK(w, !cudaHostRegister(got, sizeof got, 0));
    cudaMemcpyAsync(got, r, received, cudaMemcpyDeviceToHost,
                    par_cuda_stream(cuda)); // the call follows in the stream, without a sync before it
    CHECK_OK(w, par_wait(&q[0]));
    CHECK_OK(w, par_cuda_sync(cuda));
    CHECK(w, !cudaHostUnregister(got));
    size_t wrong = 0;
    if (same_bits || (is_float(t->dtype) && e == 1)) { // NCCL adds no 8-bit floats; the kit's kernels do
        wrong = memcmp(got, hr, received) != 0;
    } else {
        for (size_t i = 0; i < p.recv; i++) {
            double x, y;
            par_cast(&x, PAR_F64, got + i * e, t->dtype, 1), par_cast(&y, PAR_F64, hr + i * e, t->dtype, 1);
            const int same =
                !memcmp(got + i * e, hr + i * e, e); // gaps between parts keep their bytes, of a NaN
            wrong += !same && !(fabs(x - y) <= 0.05 * (1 + fabs(y)));
        }
    }
    if (wrong) {
        fprintf(stderr, "%s %s %s count %zu in place %d root %d\n", par_kind_name(t->kind),
                par_dtype_name(t->dtype), par_op_name(t->op), t->count, p.in_place, t->root);
        size_t i = 0;
        while (i < received && got[i] == hr[i]) i++;
        fprintf(stderr, "rank %d of %d: first difference at byte %zu of %zu\n", par_rank(w), par_size(w), i,
                received);
    }
    CHECK(w, !wrong);
}
static void sweep(par_comm *w, par_cuda_backend backend, int trials, int same_bits) {
    par_cuda *cuda = open_cuda(w, backend);
    char *ds = (char *)on_device(w, cuda, BUFFER_BYTES), *dr = (char *)on_device(w, cuda, BUFFER_BYTES);
    for (int i = 0; i < trials; i++) {
        static const size_t counts[] = {0, 1, 3, 16, 33, 100, 257, 1000};
        trial t;
        const uint64_t r = par_random(77, 1, (uint64_t)i);
        t.kind = (par_kind)(1 + r % PAR_KIND_ALL_TO_ALLV);
        t.dtype = (par_dtype)((r >> 8 & 255) % PAR_DTYPE_COUNT);
        t.op = (r >> 16 & 255) % PAR_OP_COUNT, t.count = counts[(r >> 24 & 255) % 8],
        t.in_place = (int)(r >> 32 & 1);
        if (t.op == PAR_SCALED_SUM) t.op = is_float(t.dtype) ? par_scaled_sum(0.25) : (par_op)PAR_SUM;
        if (!same_bits && t.op == PAR_PROD) t.op = PAR_SUM;
        t.root = (int)((r >> 33) % (uint64_t)par_size(w));
        if (par_rank(w) == 0) SEED(i);
        run_trial(w, cuda, &t, (uint64_t)i, ds, dr, same_bits);
    }
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, ds));
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, dr));
    par_cuda_close(cuda);
}
static void collectives(par_comm *w) {
    sweep(w, par_node_count(w) == 1 ? PAR_CUDA_PEER : PAR_CUDA_STAGING, 150, 1);
}
static void collectives_staged(par_comm *w) { sweep(w, PAR_CUDA_STAGING, 60, 1); }

#if defined(PAR_CUDA_NCCL)
static int nccl_here(par_comm *w) { // emulated: threads; on a machine: a GPU for each rank
    int devices = 0;
    CHECK(w, cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0);
    return EMULATED ? !strcmp(par_launch_method(w), "threads") || par_size(w) == 1 : devices >= par_size(w);
}
static void collectives_nccl(par_comm *w) {
    if (nccl_here(w)) sweep(w, PAR_CUDA_NCCL_BACKEND, 150, 0);
}
static void exact_nccl(par_comm *w) { // the bits of the CPU
    if (!nccl_here(w)) return;
    setenv("PAR_CUDA_TEST_EXACT", "1", 1);
    sweep(w, PAR_CUDA_NCCL_BACKEND, 100, 1);
}
#endif
// Memory that a window is opened on, with the world and with halves of it; any backend supports it.
static void windows(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    const size_t n = 5000;
    float *host = (float *)malloc(n * 4);
    void *x, *all, *half_window, *mine = host;
    par_comm *half;
    CHECK_OK(w, par_cuda_alloc(cuda, PAR_CUDA_SYMMETRIC, n * 4, &x));
    CHECK_OK(w, par_cuda_window_open(w, x, n * 4, &all));
    if (!strcmp(par_cuda_backend_name(cuda), "nccl") && all)
        CHECK(w, par_cuda_window_open(w, (char *)x + 256, 4, &half_window) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_all_reduce(x, x, n, PAR_F32, PAR_SUM, w)); // a comm is split while a call is in flight
    CHECK_OK(w, par_split(w, par_rank(w) % 2, 0, &half));
    CHECK_OK(w, par_cuda_window_open(half, x, n * 2, &half_window));
    CHECK(w, (all != NULL) == !strcmp(par_cuda_backend_name(cuda), "nccl") || par_size(w) == 1);
    for (size_t i = 0; i < n; i++) host[i] = (float)((int)i % 7 + par_rank(w));
    upload(cuda, x, host, n * 4);
    CHECK_OK(w, par_all_reduce(x, x, n, PAR_F32, PAR_SUM, w));
    CHECK_OK(w, par_all_reduce(x, x, n / 2, PAR_F32, PAR_MAX, half));
    download(cuda, mine, x, n * 4);
    int wrong = 0;
    for (size_t i = 0; i < n; i++)
        wrong += host[i] != (float)((int)i % 7 * par_size(w) + par_size(w) * (par_size(w) - 1) / 2);
    CHECK(w, wrong == 0);
    CHECK_OK(w, par_cuda_window_close(half, half_window));
    CHECK_OK(w, par_close(half));
    CHECK_OK(w, par_cuda_window_close(w, all));
    CHECK_OK(w, par_cuda_window_close(w, NULL));
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_SYMMETRIC, x));
    par_comm *plain;
    CHECK_OK(w, par_split_host(w, 0, 0, &plain));
    CHECK(w, par_cuda_window_open(plain, host, 64, &all) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_close(plain));
    free(host);
    CHECK_OK(w, par_cuda_close(cuda));
}
static void messages(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    const int n = par_size(w), me = par_rank(w), right = (me + 1) % n, left = (me + n - 1) % n;
    enum { COUNT = 1000, TIMES = 5 };
    float host[COUNT], *d[2 * TIMES];
    for (int i = 0; i < 2 * TIMES; i++) d[i] = (float *)on_device(w, cuda, sizeof host);
    for (int i = 0; i < TIMES; i++) {
        for (int j = 0; j < COUNT; j++) host[j] = (float)(me * 10000 + i * 1000 + j);
        upload(cuda, d[i], host, sizeof host);
    }
    par_request q[2 * TIMES];
    for (int i = 0; i < TIMES; i++) { // sends and receives in another order on every other rank
        if (me % 2) CHECK_OK(w, par_send_begin(d[i], COUNT, PAR_F32, right, w, &q[i]));
        CHECK_OK(w, par_recv_begin(d[TIMES + i], COUNT, PAR_F32, left, w, &q[TIMES + i]));
        if (me % 2 == 0) CHECK_OK(w, par_send_begin(d[i], COUNT, PAR_F32, right, w, &q[i]));
    }
    for (int i = 2 * TIMES - 1; i >= 0; i--) CHECK_OK(w, par_wait(&q[i]));
    for (int i = 0; i < TIMES; i++) {
        cudaMemsetAsync(d[i], 0, sizeof host, par_cuda_stream(cuda)); // a sent array may be written again
        download(cuda, host, d[TIMES + i], sizeof host);
        CHECK(w, host[0] == (float)(left * 10000 + i * 1000) && host[COUNT - 1] == host[0] + COUNT - 1);
    }
    if (n > 1 && strcmp(par_cuda_backend_name(cuda), "nccl")) { // the two ends disagree
        const par_result r = me == 0   ? par_send(d[0], 10, PAR_F32, 1, w)
                             : me == 1 ? par_recv(d[0], 11, PAR_F32, 0, w)
                                       : PAR_OK;
        CHECK(w, me != 1 || (r == PAR_ERR_MISMATCH && strstr(par_last_error(w), "10")));
    }
    CHECK_OK(w, par_barrier(w));
    for (int i = 0; i < 2 * TIMES; i++) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, d[i]));
    par_cuda_close(cuda);
}

#include "cuda_pipelines.h"

static void splits(par_comm *w) { // comms of comms, several calls under way on each, groups
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_comm *half;
    const int me = par_rank(w);
    CHECK_OK(w, par_split(w, me % 2, 0, &half));
    enum { COUNT = 500, CALLS = 6 };
    float host[COUNT], *d[CALLS];
    par_request q[CALLS];
    for (int i = 0; i < CALLS; i++) {
        for (int j = 0; j < COUNT; j++) host[j] = (float)(1 + i + j);
        d[i] = (float *)on_device(w, cuda, sizeof host);
        upload(cuda, d[i], host, sizeof host);
    }
    for (int i = 0; i < CALLS; i++)
        CHECK_OK(w, par_all_reduce_begin(d[i], d[i], COUNT, PAR_F32, PAR_SUM, i % 2 ? half : w, &q[i]));
    int sum = 1;
    CHECK_OK(w, par_all_reduce(&sum, &sum, 1, PAR_I32, PAR_SUM, w)); // calls on the host's memory still work
    CHECK(w, sum == par_size(w));
    for (int i = 0; i < CALLS; i++) CHECK_OK(w, par_wait(&q[(i + me) % CALLS])); // each rank in another order
    for (int i = 0; i < CALLS; i++) {
        download(cuda, host, d[i], sizeof host);
        CHECK(w, host[3] == (float)((4 + i) * par_size(i % 2 ? half : w)));
    }
    par_ledger_reset(w);
    CHECK_OK(w, par_group_begin(w));
    for (int i = 0; i < CALLS; i++)
        CHECK_OK(w, par_broadcast(d[i], d[i], COUNT, PAR_F32, i % par_size(w), w));
    CHECK_OK(w, par_group_end(w));
    const par_ledger l = par_ledger_get(w, PAR_KIND_BROADCAST);
    CHECK(w, l.calls == CALLS);
    for (int i = 0; i < CALLS; i++) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, d[i]));
    CHECK_OK(w, par_close(half));
    par_cuda_close(cuda);
}

static void mismatch(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    float *d = (float *)zeros_on_device(w, cuda, 4000);
    const size_t count = par_rank(w) == 1 ? 99 : 100;
    CHECK(w, par_all_reduce(d, d, count, PAR_F32, PAR_SUM, w) == PAR_ERR_MISMATCH);
    CHECK(w, strstr(par_last_error(w), "rank 1 called par_all_reduce(count=99, f32, op=sum) at ") &&
                 strstr(par_last_error(w), "test_cuda.cu"));
    CHECK(w, (par_rank(w) == 1 ? par_broadcast(d, d, 10, PAR_F32, 0, w)
                               : par_all_reduce(d, d, 10, PAR_F32, PAR_SUM, w)) == PAR_ERR_MISMATCH);
    CHECK(w, par_all_reduce(d, d, 10, PAR_DTYPE_COUNT, PAR_SUM, w) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_all_reduce(d, d, 10, PAR_F32, PAR_SUM, w)); // the comm still works
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, d));
    par_cuda_close(cuda);
}

static void never_arrives(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    float *d = (float *)zeros_on_device(w, cuda, 4000);
    par_set_timeout(w, 0.5);
    if (par_rank(w) != 1) {
        CHECK(w, par_all_reduce(d, d, 10, PAR_F32, PAR_SUM, w) == PAR_ERR_TIMEOUT);
        CHECK(w, strstr(par_last_error(w), "rank ") != NULL);
        CHECK(w, par_all_reduce(d, d, 10, PAR_F32, PAR_SUM, w) == PAR_ERR_TIMEOUT);
        test_arrive(&test_shared->words);
    } else { // rank 1 ends when the others have given up
        test_wait_for(&test_shared->words, par_size(w) - 1);
    }
    par_set_timeout(w, 20); // for the end: the others may be slow
    par_cuda_free(cuda, PAR_CUDA_DEVICE, d);
    par_cuda_close(cuda);
}
static void aborted(par_comm *w) { // a rank that waits for its device gets the error
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    float *d = (float *)zeros_on_device(w, cuda, 4000);
    CHECK_OK(w, par_cuda_sync(cuda));
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_alive(w));
    if (par_rank(w) == 0) {
        test_wait_for(&test_shared->words, par_size(w) - 1);
        CHECK_OK(w, par_abort(w, "enough"));
    } else {
        test_arrive(&test_shared->words);
        par_result r = par_all_reduce(d, d, 10, PAR_F32, PAR_SUM, w);
        if (!r) r = par_cuda_sync(cuda);
        CHECK(w, r == PAR_ERR_ABORTED && strstr(par_last_error(w), "enough"));
    }
    CHECK(w, par_alive(w) == PAR_ERR_ABORTED);
    par_cuda_free(cuda, PAR_CUDA_DEVICE, d);
    par_cuda_close(cuda);
}

// ---- par_zero.h's kernels, and whole steps with them

enum { HOST, DEVICE, PLACES };
typedef struct pair { // the same array in both places
    par_cuda *cuda;
    par_dtype dtype;
    size_t bytes;
    char *at[PLACES], *back; // back: what the device has, copied to the host
} pair;
static void pair_upload(const pair *p) { upload(p->cuda, p->at[DEVICE], p->at[HOST], p->bytes); }
static pair pair_open(par_comm *w, par_cuda *cuda, par_dtype d, size_t n, uint64_t stream) { // 0: zeros
    pair p = {cuda, d, n * par_dtype_bytes(d), {NULL, NULL}, NULL};
    p.at[HOST] = (char *)calloc(1, p.bytes + 64), p.back = (char *)calloc(1, p.bytes + 64);
    p.at[DEVICE] = (char *)on_device(w, cuda, p.bytes + 64);
    if (stream) fill_values(d, p.at[HOST], n, stream);
    upload(cuda, p.at[DEVICE], p.at[HOST], p.bytes + 64);
    return p;
}
static void close_pairs(std::initializer_list<pair *> list) {
    for (pair *p : list) {
        free(p->at[HOST]), free(p->back);
        par_cuda_free(p->cuda, PAR_CUDA_DEVICE, p->at[DEVICE]);
    }
}
static float *floats(const pair &x, int place) { return (float *)(void *)x.at[place]; }
static double *doubles(const pair &x, int place) { return (double *)(void *)x.at[place]; }
static int32_t *ints(const pair &x, int place) { return (int32_t *)(void *)x.at[place]; }
// The largest difference, in parts of 1 + the number.
static double pair_difference(pair *p) {
    const size_t e = par_dtype_bytes(p->dtype);
    double worst = 0;
    download(p->cuda, p->back, p->at[DEVICE], p->bytes);
    for (size_t i = 0; i < p->bytes / e; i++) {
        double x, y;
        par_cast(&x, PAR_F64, p->at[HOST] + i * e, p->dtype, 1);
        par_cast(&y, PAR_F64, p->back + i * e, p->dtype, 1);
        worst = test_larger(worst, x == y || (x != x && y != y) ? 0 : fabs(x - y) / (1 + fabs(x)));
    }
    return worst;
}
#define CLOSE(pair, limit)                                                                                   \
    do {                                                                                                     \
        const double close_d = pair_difference(&pair);                                                       \
        const double close_limit = same_bits ? 0 : (limit);                                                  \
        if (!(close_d <= close_limit)) fprintf(stderr, "%s differs by %g\n", #pair, close_d);                \
        CHECK(w, close_d <= close_limit);                                                                    \
    } while (0)
// Make a call on the host's arrays, then on the device's: `at` is HOST, then DEVICE.
#define BOTH(call)                                                                                           \
    for (int at = 0; at < PLACES; at++) CHECK_OK(w, call)

// 16-bit copies of the weights: none, in f16, in bf16 beside an average of the weights, rounded randomly.
enum { NO_COPY, F16_COPY, BF16_COPY, RANDOM_COPY, COPIES };
static void zero_update_of(par_comm *w, par_cuda *cuda, par_zero_optimizer o, par_dtype grad, int copy,
                           size_t n) {
    const par_zero_kernels *k[PLACES] = {par_zero_cpu(), par_cuda_zero(cuda)};
    const par_dtype copied = copy == F16_COPY ? PAR_F16 : PAR_BF16;
    const double sums[2] = {1, 2};
    par_zero_update a;
    memset(&a, 0, sizeof a);
    a.optimizer = o, a.hyper.lr = 0.01f, a.hyper.epsilon = 1e-8f, a.hyper.weight_decay = 0.1f;
    a.hyper.beta1 = 0.9f, a.hyper.beta2 = 0.99f, a.hyper.momentum = 0.9f, a.hyper.nesterov = copy % 2;
    a.bias_correction1 = 2, a.bias_correction2 = 3, a.scale = 0.5f, a.trust_ratio = 1.5f;
    a.ema = copy == BF16_COPY ? 0.9f : 0, a.seed = copy == RANDOM_COPY ? 7 : 0, a.stream = 3, a.first = 64;
    pair x = pair_open(w, cuda, PAR_F32, n, 1), g = pair_open(w, cuda, grad, n, 2);
    pair m = pair_open(w, cuda, PAR_F32, n, 3), v = pair_open(w, cuda, PAR_F32, n, 4);
    pair ema = pair_open(w, cuda, PAR_F32, n, 5), s = pair_open(w, cuda, copied, n, 0);
    pair sum = pair_open(w, cuda, PAR_F64, 2, 0);
    for (size_t i = 0; i < n; i++) floats(v, HOST)[i] = fabsf(floats(v, HOST)[i]);
    pair_upload(&v);
    BOTH(k[at]->update(k[at], &a, n, floats(x, at), copy ? s.at[at] : NULL, copied, g.at[at], grad,
                       floats(m, at), floats(v, at), copy == BF16_COPY ? floats(ema, at) : NULL));
    CLOSE(x, 1e-5);
    CLOSE(m, 1e-6);
    CLOSE(v, 1e-6);
    CLOSE(ema, 1e-5);
    CLOSE(s, 0.01);
    memcpy(sum.at[HOST], sums, sizeof sums);
    pair_upload(&sum);
    BOTH(k[at]->lamb_norms(k[at], &a, n, floats(x, at), g.at[at], grad, floats(m, at), floats(v, at),
                           doubles(sum, at), NULL));
    CLOSE(sum, 1e-4);
    BOTH(k[at]->square_sum(k[at], g.at[at], grad, n, 0.5, doubles(sum, at)));
    CLOSE(sum, 1e-4);
    BOTH(k[at]->momentum(k[at], &a, n, g.at[at], grad, floats(m, at), floats(x, at)));
    CLOSE(x, 1e-5);
    BOTH(k[at]->scale(k[at], n, floats(v, at), floats(x, at), 2, doubles(sum, at)));
    CLOSE(v, 1e-5);
    close_pairs({&x, &g, &m, &v, &ema, &s, &sum});
}
// States of 8 bits have at most a neighboring code on the device, because moments may differ by a rounding.
static void zero_states_of(par_comm *w, par_cuda *cuda, par_zero_optimizer o, par_dtype type) {
    enum { N = 256 * 11 };
    const par_zero_kernels *k[PLACES] = {par_zero_cpu(), par_cuda_zero(cuda)};
    const size_t bytes = type == PAR_U8 ? N / 256 * 260 : N * 2;
    par_zero_update a;
    memset(&a, 0, sizeof a);
    a.optimizer = o, a.hyper.lr = 0.01f, a.hyper.epsilon = 1e-8f, a.hyper.beta1 = 0.9f;
    a.hyper.beta2 = 0.99f, a.hyper.momentum = 0.9f, a.scale = a.trust_ratio = 1;
    a.bias_correction1 = a.bias_correction2 = 2, a.stream = 3, a.first = 512;
    a.state_dtype = type, a.state_seed = 9;
    pair x = pair_open(w, cuda, PAR_F32, N, 1), g = pair_open(w, cuda, PAR_F32, N, 2);
    pair out = pair_open(w, cuda, PAR_F32, N, 0);
    pair m = pair_open(w, cuda, PAR_U8, bytes, 0), v = pair_open(w, cuda, PAR_U8, bytes, 0);
    for (int step = 0; step < 3; step++) {
        BOTH(k[at]->update(k[at], &a, N, floats(x, at), NULL, PAR_F32, g.at[at], PAR_F32, m.at[at], v.at[at],
                           NULL));
        BOTH(k[at]->momentum(k[at], &a, N, g.at[at], PAR_F32, m.at[at], floats(out, at)));
    }
    const size_t shape[2] = {11, 256};
    const par_shard all = par_shard_whole(shape, 2);
    a.shard = &all, a.first = 0; // each element by the number that it has in the tensor
    if (type == PAR_BF16) BOTH(k[at]->momentum(k[at], &a, N, g.at[at], PAR_F32, m.at[at], floats(out, at)));
    CLOSE(x, 1e-3);
    CLOSE(out, 0.02);
    const pair *moments[2] = {&m, &v};
    for (const pair *p : moments) {
        int far = 0, differ = 0;
        download(cuda, p->back, p->at[DEVICE], bytes);
        for (size_t i = 0; i < bytes; i++) {
            const int d = (int)(uint8_t)p->back[i] - (int)(uint8_t)p->at[HOST][i];
            differ += d != 0;
            far += abs(d) > 1 && (type == PAR_U8 ? i % 260 > 3 : d != 255 && d != -255);
        }
        CHECK(w, !far && differ < (int)bytes / 50);
    }
    close_pairs({&x, &g, &out, &m, &v});
}
static void zero_update(par_comm *w) {
    static const size_t sizes[] = {32, 96, 1024, 3232};
    static const par_dtype types[] = {PAR_F32, PAR_BF16, PAR_F16};
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++)
        for (int grad = 0; grad < 3; grad++)
            for (int copy = 0; copy < COPIES; copy++) {
                SEED(o * 12 + grad * 4 + copy);
                zero_update_of(w, cuda, (par_zero_optimizer)o, types[grad], copy,
                               sizes[(o + grad + copy) % 4]);
            }
    static const par_zero_optimizer narrow[] = {PAR_ZERO_ADAMW, PAR_ZERO_LION, PAR_ZERO_LAMB, PAR_ZERO_MUON};
    for (par_zero_optimizer o : narrow) {
        zero_states_of(w, cuda, o, PAR_BF16);
        zero_states_of(w, cuda, o, PAR_U8);
    }
    par_cuda_close(cuda);
}
static void zero_packs(par_comm *w) {
    enum { RANKS = 5, N = 32 * 420 }; // more than a pass of all blocks
    static const int codes[] = {PAR_ZERO_INT4, PAR_ZERO_INT8, PAR_ZERO_E4M3, PAR_ZERO_E5M2};
    static const par_dtype types[] = {PAR_F32, PAR_BF16, PAR_F16};
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    const par_zero_kernels *k[PLACES] = {par_zero_cpu(), par_cuda_zero(cuda)};
    for (int code : codes)
        for (int t = 0; t < 3; t++) {
            const par_dtype d = types[t];
            const size_t packed = RANKS * N / 32 * (size_t)(code == PAR_ZERO_INT4 ? 18 : 34);
            SEED(t);
            pair x = pair_open(w, cuda, d, RANKS * N, 9), p = pair_open(w, cuda, PAR_U8, packed, 0);
            pair y = pair_open(w, cuda, d, RANKS * N, 0);
            memset(x.at[HOST] + 32 * par_dtype_bytes(d), 0, 32 * par_dtype_bytes(d));
            pair_upload(&x);
            BOTH(k[at]->quantize(k[at], code, RANKS * N, x.at[at], d, p.at[at]));
            CLOSE(p, 0.0);
            BOTH(k[at]->dequantize(k[at], code, RANKS * N, p.at[at], y.at[at], d));
            CLOSE(y, 0.0);
            for (int pairs = 0; pairs < 2; pairs++) {
                BOTH(k[at]->sum_quantized(k[at], code, RANKS - pairs, pairs, N, p.at[at], y.at[at], d));
                CLOSE(y, 0.0);
            }
            close_pairs({&x, &p, &y});
        }
    par_cuda_close(cuda);
}

// The same steps twice: on the CPU, and on the device.
typedef struct zero_case {
    int stage, optimizer, microbatches, canonical, quantize, accumulate_unsharded, ema, random;
    par_dtype param, grad;
    const char *offload;
    float clip, loss_scale;
    par_dtype state;        // 0: f32
    par_comm *parts = NULL; // ranks that have parts of each tensor, some rows each; NULL: all have whole ones
    int buddies = 0;
} zero_case;
static void start_values(void *user, size_t first, size_t n, float *values) {
    for (size_t i = 0; i < n; i++) values[i] = par_uniform(5, *(const uint64_t *)user, first + i) - 0.5f;
}
static par_shard rows_of(par_comm *parts, const size_t *shape) { // each rank has as many rows as this one
    const size_t all[2] = {shape[0] * (size_t)par_size(parts), shape[1]};
    par_shard s = par_shard_whole(all, 2);
    s.shape[0] = shape[0];
    s.runs[0].count = shape[0] * shape[1];
    s.runs[0].offset = s.runs[0].count * (size_t)par_rank(parts);
    return s;
}
static par_zero *open_zero(par_comm *w, const zero_case *l, const par_zero_kernels *kernels, int *tensors) {
    par_zero_desc d;
    par_zero *z = NULL;
    memset(&d, 0, sizeof d);
    d.comm = w, d.stage = l->stage, d.optimizer = (par_zero_optimizer)l->optimizer, d.hyper[0].lr = 0.01f;
    d.microbatches = l->microbatches, d.canonical_shards = l->canonical ? l->microbatches * par_size(w) : 0;
    d.param_dtype = l->param, d.grad_dtype = l->grad, d.clip = l->clip, d.ema = l->ema ? 0.9f : 0;
    d.loss_scale = l->loss_scale, d.loss_scale_window = 2, d.accumulate_unsharded = l->accumulate_unsharded;
    d.state_dtype = l->state, d.stochastic_rounding = l->random, d.seed = 3, d.offload_states = l->offload,
    d.kernels = kernels, d.model_parallel_comm = d.tensor_parallel_comm = l->parts;
    d.hyper[0].momentum = 0.9f;
    if (l->quantize) d.quantize_gradients = l->quantize, d.quantize_parameters = l->stage == 3 ? 8 : 0;
    d.buddies = l->buddies;
    CHECK_OK(w, par_zero_open(&d, &z));
    if (!z) exit(3);
    for (int u = 0; u < 2; u++) {
        char name[32];
        snprintf(name, sizeof name, "unit %d", u);
        par_zero_add_unit(z, name);
        for (int t = 0; t < 3; t++) {
            par_zero_tensor x;
            memset(&x, 0, sizeof x);
            snprintf(name, sizeof name, "t%d.%d", u, t);
            x.name = name, x.dims = 2, x.frozen = u && t == 2;
            x.shape[0] = (size_t)(5 + 8 * t), x.shape[1] = (size_t)(9 + u);
            const par_shard part = l->parts ? rows_of(l->parts, x.shape) : par_shard_whole(x.shape, 2);
            x.shard = l->parts ? &part : NULL;
            tensors[u * 3 + t] = par_zero_add_tensor(z, &x);
        }
    }
    CHECK_OK(w, par_zero_commit(z));
    for (int t = 0; t < 6; t++) {
        uint64_t stream = (uint64_t)(t + 1);
        CHECK_OK(w, par_zero_fill(z, tensors[t], PAR_ZERO_VALUE, start_values, &stream));
    }
    return z;
}
static size_t count_of(int t) { return (size_t)(5 + 8 * (t % 3)) * (size_t)(9 + t / 3); }
// The gradients of microbatch m: the weights, plus random numbers that step, microbatch, tensor and element
// determine.
static void one_microbatch(par_comm *w, par_zero *z, par_cuda *cuda, const int *tensors, const zero_case *l,
                           int step, int m, float bad) {
    const size_t pe = par_dtype_bytes(l->param), ge = par_dtype_bytes(l->grad);
    par_device *d = cuda ? par_cuda_device(cuda) : par_cpu();
    for (int u = 0; u < 2; u++) {
        CHECK_OK(w, par_zero_forward_begin(z, u));
        CHECK_OK(w, par_zero_forward_end(z, u));
    }
    const float scale = par_zero_loss_scale(z);
    for (int u = 1; u >= 0; u--) {
        CHECK_OK(w, par_zero_backward_begin(z, u));
        for (int t = 3 * u; t < 3 * u + 3; t++) {
            const size_t n = count_of(t);
            char weights[4 * 512], grads[4 * 512];
            float x[512], y[512];
            void *data = par_zero_data(z, tensors[t]), *grad = par_zero_grad(z, tensors[t]);
            CHECK(w, data != NULL);
            if (!grad) continue;
            CHECK_OK(w, d->copy(d, weights, data, n * pe, NULL));
            CHECK_OK(w, d->copy(d, grads, grad, n * ge, NULL));
            CHECK_OK(w, d->stream_sync(d, NULL));
            par_cast(x, PAR_F32, weights, l->param, n);
            par_cast(y, PAR_F32, grads, l->grad, n);
            const uint64_t stream = (uint64_t)(step * 1000 + t),
                           first = par_zero_global_microbatch(z, m) * 1000;
            for (size_t i = 0; i < n; i++)
                y[i] += scale * (x[i] + bad + par_uniform(11, stream, first + i) - 0.5f);
            par_cast(grads, l->grad, y, PAR_F32, n);
            CHECK_OK(w, d->copy(d, grad, grads, n * ge, NULL));
            CHECK_OK(w, d->stream_sync(d, NULL));
        }
        CHECK_OK(w, par_zero_backward_end(z, u));
    }
}
static double zero_difference(par_comm *w, par_zero **z, int tensors[PLACES][6], par_zero_field field) {
    double worst = 0;
    for (int t = 0; t < 6; t++) {
        float x[PLACES][512];
        BOTH(par_zero_read(z[at], tensors[at][t], field, x[at]));
        for (size_t i = 0; i < count_of(t); i++)
            worst = test_larger(worst, fabs((double)x[HOST][i] - (double)x[DEVICE][i]));
    }
    return worst;
}
// The device's checkpoint loads into the CPU's context, and into its own.
static void zero_checkpoint(par_comm *w, par_zero **z, int tensors[PLACES][6]) {
    char dir[600], remove[700];
    int pid = (int)getpid();
    par_zero_checkpoint files;
    memset(&files, 0, sizeof files);
    CHECK_OK(w, par_broadcast(&pid, &pid, 1, PAR_I32, 0, w));
    snprintf(dir, sizeof dir, "%s/par_cuda_test_%d", test_dir, pid);
    files.dir = dir;
    CHECK_OK(w, par_zero_save(z[DEVICE], &files));
    CHECK_OK(w, par_zero_load(z[HOST], &files));
    CHECK(w, zero_difference(w, z, tensors, PAR_ZERO_MOMENT1) == 0);
    CHECK_OK(w, par_zero_load(z[DEVICE], &files));
    CHECK(w, par_zero_steps(z[DEVICE]) == par_zero_steps(z[HOST]));
    CHECK_OK(w, par_barrier(w));
    snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
    if (par_rank(w) == 0) CHECK(w, !system(remove));
}
static void zero_trains(par_comm *w, const zero_case *l, par_cuda *cuda) {
    int tensors[PLACES][6];
    par_zero *z[PLACES] = {open_zero(w, l, NULL, tensors[HOST]),
                           open_zero(w, l, par_cuda_zero(cuda), tensors[DEVICE])};
    par_zero_plan plan, got = par_zero_allocated(z[DEVICE]);
    CHECK_OK(w, par_zero_plan_of(z[DEVICE], &plan));
    CHECK(w, got.parameter_bytes == plan.parameter_bytes && got.state_bytes == plan.state_bytes &&
                 got.host_bytes == plan.host_bytes && got.buffer_bytes == plan.buffer_bytes &&
                 got.gradient_bytes == plan.gradient_bytes);
    for (int step = 0; step < 4; step++) { // step 1 has another learning rate, step 2 overflows
        const int overflows = step == 2 && l->loss_scale > 0;
        const float lr_factor = step == 1 ? 0.5f : 1.0f;
        par_zero_report r[PLACES];
        if (par_rank(w) == 0) SEED(step + l->stage);
        for (int at = 0; at < PLACES; at++) {
            const int kept =
                at == DEVICE && step == 1; // the factor is in the device's memory: -1 asks for it
            for (int m = 0; m < l->microbatches; m++)
                one_microbatch(w, z[at], at ? cuda : NULL, tensors[at], l, step, m, overflows ? INFINITY : 0);
            if (kept) CHECK_OK(w, par_zero_set_lr_factor(z[DEVICE], lr_factor));
            CHECK_OK(w, par_zero_step(z[at], kept ? -1.0f : lr_factor, &r[at]));
        }
        CHECK(w, r[0].skipped == overflows && r[1].skipped == overflows && r[0].step == r[1].step);
        CHECK(w, r[0].loss_scale == r[1].loss_scale);
        if (!overflows && !(fabs(r[0].grad_norm - r[1].grad_norm) <= 2e-2 * r[0].grad_norm))
            fprintf(stderr, "norms %g %g\n", r[0].grad_norm, r[1].grad_norm);
        CHECK(w, overflows || fabs(r[0].grad_norm - r[1].grad_norm) <= 2e-2 * r[0].grad_norm);
    }
    const int narrow = l->param != PAR_F32 || l->grad != PAR_F32 || l->quantize || l->state;
    const double limit = same_bits ? 0 : narrow ? 4e-2 : 2e-4;
    double worst = zero_difference(w, z, tensors, PAR_ZERO_VALUE);
    if (l->ema) worst = test_larger(worst, zero_difference(w, z, tensors, PAR_ZERO_EMA));
    if (same_bits) worst = test_larger(worst, zero_difference(w, z, tensors, PAR_ZERO_MOMENT1));
    if (!(worst <= limit))
        fprintf(stderr, "stage %d optimizer %d: weights differ by %g\n", l->stage, l->optimizer, worst);
    CHECK(w, worst <= limit);
    if (l->stage == 1 || l->stage == 3) zero_checkpoint(w, z, tensors);
    BOTH(par_zero_close(z[at]));
}
static void zero_stages(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    static const zero_case cases[] = {
        {0, PAR_ZERO_ADAMW, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0.5f, 0, PAR_F32},
        {1, PAR_ZERO_ADAMW, 2, 0, 0, 0, 1, 0, PAR_BF16, PAR_F32, NULL, 0, 8, PAR_F32},
        {2, PAR_ZERO_LION, 2, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32},
        {3, PAR_ZERO_ADAMW, 2, 0, 0, 0, 0, 1, PAR_BF16, PAR_BF16, NULL, 1, 4, PAR_F32},
        {3, PAR_ZERO_SGD, 1, 0, 0, 1, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32},
        {3, PAR_ZERO_ADAMW, 1, 0, 8, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32},
        {2, PAR_ZERO_ADAMW, 1, 0, 4, 0, 0, 0, PAR_F16, PAR_F32, NULL, 0, 2, PAR_F32},
        {1, PAR_ZERO_LAMB, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32},
        {3, PAR_ZERO_MUON, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32},
        {3, PAR_ZERO_ADAMW, 1, 0, 0, 0, 1, 0, PAR_F32, PAR_F32, "host", 0, 0, PAR_F32},
        {0, PAR_ZERO_MUON, 2, 0, 0, 0, 0, 0, PAR_BF16, PAR_F32, "host", 0, 0, PAR_F32},
        {1, PAR_ZERO_LION, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_BF16},
        {3, PAR_ZERO_ADAMW, 1, 0, 0, 0, 1, 0, PAR_BF16, PAR_F32, "host", 0, 0, PAR_U8},
        {3, PAR_ZERO_MUON, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_U8},
    };
    for (const zero_case &l : cases) zero_trains(w, &l, cuda);
    if ((par_size(w) & (par_size(w) - 1)) == 0) {
        zero_case l = cases[0];
        l.canonical = 1, l.microbatches = 2;
        zero_trains(w, &l, cuda);
        l.stage = 2, l.quantize = 8;
        zero_trains(w, &l, cuda);
    }
    par_cuda_close(cuda);
}
// The last rank dies: its shard comes from the device memory of its buddy. On the CPU it becomes a spare.
static void buddies(par_comm *w) {
    static const zero_case cases[] = {
        {1, PAR_ZERO_ADAMW, 2, 0, 0, 0, 1, 0, PAR_BF16, PAR_F32, NULL, 0.5f, 8, PAR_F32},
        {2, PAR_ZERO_LAMB, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32},
        {3, PAR_ZERO_MUON, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_U8},
        {3, PAR_ZERO_ADAMW, 1, 0, 8, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_U8},
        {0, PAR_ZERO_MUON, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_BF16},
    };
    par_comm *left;
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    const int dead = par_rank(w) == par_size(w) - 1;
    CHECK_OK(w, par_split(w, dead ? -1 : 0, 0, &left));
    for (zero_case l : cases) {
        int tensors[PLACES][6];
        par_zero_comms now;
        l.buddies = 1;
        par_zero *z[PLACES] = {open_zero(w, &l, NULL, tensors[HOST]),
                               open_zero(w, &l, par_cuda_zero(cuda), tensors[DEVICE])};
        par_zero_plan plan, got = par_zero_allocated(z[DEVICE]);
        CHECK_OK(w, par_zero_plan_of(z[DEVICE], &plan));
        CHECK(w, got.buddy_bytes == plan.buddy_bytes && got.buffer_bytes == plan.buffer_bytes);
        CHECK(w, (got.buddy_bytes > 0) == (l.stage > 0 && par_size(w) > 1) || l.optimizer == PAR_ZERO_MUON);
        for (int step = 0; step < 4; step++) {
            memset(&now, 0, sizeof now);
            now.comm = left;
            if (step == 2) CHECK_OK(w, par_zero_recover(z[HOST], w, &now));
            if (step == 2 && left) CHECK_OK(w, par_zero_recover(z[DEVICE], left, &now));
            if (step >= 2 && dead) continue;
            for (int at = 0; at < PLACES; at++) {
                for (int m = 0; m < l.microbatches; m++)
                    one_microbatch(w, z[at], at ? cuda : NULL, tensors[at], &l, step, m, 0);
                CHECK_OK(w, par_zero_step(z[at], 1, NULL));
            }
        }
        const double limit = l.param != PAR_F32 || l.quantize || l.state != PAR_F32 ? 4e-2 : 2e-4;
        if (left) {
            const double worst = zero_difference(w, z, tensors, PAR_ZERO_VALUE);
            if (!(worst <= limit)) fprintf(stderr, "stage %d: weights differ by %g\n", l.stage, worst);
            CHECK(w, worst <= limit);
        }
        BOTH(par_zero_close(z[at]));
    }
    CHECK_OK(w, par_close(left));
    par_cuda_close(cuda);
}
// Tensors of which the ranks of w have parts, each rank with a comm of its own.
template <size_t N> static void trains_parts(par_comm *w, const zero_case (&cases)[N]) {
    par_comm *alone;
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    for (zero_case l : cases) {
        l.parts = w;
        zero_trains(alone, &l, cuda);
    }
    CHECK_OK(w, par_close(alone));
    par_cuda_close(cuda);
}
// LAMB and Muon of them.
static void split_updates(par_comm *w) {
    static const zero_case cases[] = {
        {0, PAR_ZERO_LAMB, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32},
        {2, PAR_ZERO_MUON, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32},
    };
    trains_parts(w, cases);
}
// Gradients that are partial sums on the ranks of a layer are completed in the device's memory; a comm that
// does not carry it is refused.
static void partial_sums(par_comm *w) {
    enum { N = 40, FIRST = 8, COUNT = 20 };
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_comm *alone, *host;
    const int n = par_size(w), me = par_rank(w);
    CHECK_OK(w, par_split(w, me, 0, &alone));
    CHECK_OK(w, par_split_host(w, 0, me, &host));
    for (int stage = 0; stage < 5; stage++) {
        par_zero_desc d;
        par_zero_tensor t;
        par_zero *z = NULL;
        memset(&d, 0, sizeof d), memset(&t, 0, sizeof t);
        d.comm = alone, d.model_parallel_comm = w, d.stage = stage % 4, d.microbatches = 2, d.hyper[0].lr = 1;
        d.canonical_shards = stage == 4 ? 2 : 0, d.kernels = par_cuda_zero(cuda);
        t.name = "w", t.dims = 1, t.shape[0] = N;
        t.sums[1].comm = host, t.sums[1].first = FIRST, t.sums[1].count = COUNT, t.sums[1].op = PAR_SUM;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "u") == 0 && par_zero_add_tensor(z, &t) == -1);
        CHECK(w, strstr(par_last_error(w), "the comm of its sums must carry the device's memory") != NULL);
        CHECK_OK(w, par_zero_close(z));
        t.sums[1].comm = w;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "u") == 0 && par_zero_add_tensor(z, &t) == 0);
        CHECK_OK(w, par_zero_commit(z));
        float x[N];
        for (int k = 0; k < 2; k++) {
            SEED(stage + k);
            CHECK_OK(w, par_zero_backward_begin(z, 0));
            download(cuda, x, par_zero_grad(z, 0), sizeof x);
            for (int i = 0; i < N; i++) x[i] += (float)(i + 3 * me + k);
            upload(cuda, par_zero_grad(z, 0), x, sizeof x);
            CHECK_OK(w, par_zero_backward_end(z, 0));
        }
        CHECK_OK(w, par_zero_read(z, 0, PAR_ZERO_GRADIENT, x));
        for (int i = 0; i < N; i++) {
            const int summed = i >= FIRST && i < FIRST + COUNT;
            CHECK(w, x[i] == (float)(summed ? n * (2 * i + 1) + 3 * n * (n - 1) : 2 * i + 1 + 6 * me));
        }
        CHECK_OK(w, par_zero_step(z, 1, NULL));
        CHECK_OK(w, par_zero_close(z));
    }
    CHECK_OK(w, par_close(alone));
    CHECK_OK(w, par_close(host));
    par_cuda_close(cuda);
}
// The CPU's bits: narrow moments of tensors of which ranks have parts that end within a block, before and
// after a skipped step.
static void canonical_moments(par_comm *w) {
    static const zero_case cases[] = {
        {0, PAR_ZERO_ADAMW, 2, 1, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0.5f, 8, PAR_U8},
        {2, PAR_ZERO_LAMB, 2, 1, 0, 0, 0, 0, PAR_BF16, PAR_F32, NULL, 0, 8, PAR_U8},
        {2, PAR_ZERO_LION, 2, 1, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 8, PAR_BF16},
    };
    if (!has_canonical(w)) return;
    same_bits = 1;
    trains_parts(w, cases);
    same_bits = 0;
}
// A graph captures a step once, and replays it with other learning rates.
static void graph(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    static const zero_case l = {0, PAR_ZERO_ADAMW, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 1, 2, PAR_F32};
    int tensors[2][6];
    par_zero *z[2];
    cudaStream_t stream = par_cuda_stream(cuda);
    void *scratch = par__cuda_scratch(cuda, 3, 1000);
    cudaGraph_t made;
    cudaGraphExec_t exec;
    z[0] = open_zero(w, &l, NULL, tensors[0]), z[1] = open_zero(w, &l, par_cuda_zero(cuda), tensors[1]);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < 2; i++) {
            if (i && step > 1) continue; // played
            if (i && step == 1)
                CHECK(w, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
            par_device *d = i ? par_cuda_device(cuda) : par_cpu();
            for (int u = 1; u >= 0; u--) {
                CHECK_OK(w, par_zero_backward_begin(z[i], u));
                for (int t = 3 * u; t < 3 * u + 3; t++)
                    if (par_zero_grad(z[i], tensors[i][t])) // the gradient: the weights themselves
                        CHECK_OK(w, d->copy(d, par_zero_grad(z[i], tensors[i][t]),
                                            par_zero_data(z[i], tensors[i][t]), count_of(t) * 4, NULL));
                CHECK_OK(w, par_zero_backward_end(z[i], u));
            }
            CHECK_OK(w, par_zero_step(z[i], i && step ? -1.0f : 1.0f / (float)(step + 1), NULL));
            if (i && step == 1) CHECK(w, !cudaMemsetAsync(par__cuda_scratch(cuda, 3, 100), 1, 1000, stream));
            if (i && step == 1) {
                CHECK(w, cudaStreamEndCapture(stream, &made) == cudaSuccess);
                CHECK(w, cudaGraphInstantiate(&exec, made, 0) == cudaSuccess);
            }
        }
        if (step == 0) continue;
        CHECK_OK(w, par_zero_set_lr_factor(z[1], 1.0f / (float)(step + 1)));
        CHECK(w, cudaGraphLaunch(exec, stream) == cudaSuccess);
        CHECK(w, par__cuda_scratch(cuda, 3, 2000) != scratch && cuda->kept->memory == scratch); // it uses it
    }
    CHECK(w, par_zero_steps(z[0]) == par_zero_steps(z[1]) && par_zero_steps(z[1]) == 5);
    CHECK(w, zero_difference(w, z, tensors, PAR_ZERO_VALUE) < 1e-5);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(made);
    BOTH(par_zero_close(z[at]));
    par_cuda_close(cuda);
}
static void zero_mistakes(par_comm *w) {
    par_zero_desc d;
    par_zero *z;
    par_comm *bare;
    par_cuda *cuda;
    CHECK_OK(w, par_split(w, 0, 0, &bare)); // a comm from before knows no device
    cuda = open_cuda(w, PAR_CUDA_AUTO);
    memset(&d, 0, sizeof d);
    d.comm = bare, d.kernels = par_cuda_zero(cuda);
    CHECK(w, par_zero_open(&d, &z) == PAR_ERR_ARGUMENT && strstr(par_last_error(w), "par_cuda_open"));
    d.comm = w, d.offload_states = test_offload;
    CHECK(w, par_zero_open(&d, &z) == PAR_ERR_ARGUMENT && strstr(par_last_error(w), "host"));
    CHECK_OK(w, par_close(bare));
    par_cuda_close(cuda);
}

// Initial values: a device draws the CPU's bits itself; what the host computes comes in large copies. Counted
// are the device's copies, here of three tensors, of which one has some columns of each row.
static int copies_so_far;
static par_result (*copy_uncounted)(par_device *d, void *to, const void *from, size_t bytes, void *stream);
static par_result copy_counted(par_device *d, void *to, const void *from, size_t bytes, void *stream) {
    return copies_so_far++, copy_uncounted(d, to, from, bytes, stream);
}
static par_zero *open_initial(par_comm *w, const par_zero_kernels *kernels, const zero_case *l) {
    par_zero_desc d;
    par_zero *z = NULL;
    memset(&d, 0, sizeof d);
    d.comm = w, d.stage = l->stage, d.hyper[0].lr = 0.01f, d.param_dtype = l->param, d.seed = 3;
    d.ema = l->ema ? 0.9f : 0, d.offload_states = l->offload, d.kernels = kernels;
    CHECK_OK(w, par_zero_open(&d, &z));
    if (!z) exit(3);
    par_zero_add_unit(z, "unit");
    for (int t = 0; t < 3; t++) {
        static const char *const names[3] = {"whole", "columns", "ones"};
        const size_t whole[2] = {300, t == 1 ? 40u : 10u};
        par_zero_tensor x;
        memset(&x, 0, sizeof x);
        x.name = names[t], x.dims = 2, x.shape[0] = 300, x.shape[1] = 10;
        par_shard part = par_shard_whole(whole, 2);
        part.shape[1] = 10;
        if (t == 1) part.runs[0].count = 3000, part.runs[0].offset = 20, part.runs[0].width = 10;
        if (t == 1) part.runs[0].stride = 40, x.shard = &part;
        x.stream = (uint64_t)(t + 5), x.deviation = t < 2 ? 0.37f : 0, x.value = 1.001f;
        x.frozen = t == 2 && l->random;
        par_zero_add_tensor(z, &x);
    }
    CHECK_OK(w, par_zero_commit(z));
    return z;
}
static void initial_values_of(par_comm *w, par_cuda *cuda, const zero_case *l) {
    par_device *d = par_cuda_device(cuda);
    par_zero *z[PLACES] = {open_initial(w, NULL, l), open_initial(w, par_cuda_zero(cuda), l)};
    copy_uncounted = d->copy, d->copy = copy_counted;
    for (int filled = 0; filled < 2; filled++) {
        static float values[PLACES][3000];
        copies_so_far = 0;
        for (int t = 0; t < 3 && filled; t++) {
            uint64_t stream = (uint64_t)(t + 1);
            BOTH(par_zero_fill(z[at], t, PAR_ZERO_VALUE, start_values, &stream));
        }
        if (!filled) BOTH(par_zero_init_all(z[at]));
        const int most = filled ? 3 * 3 : 0; // of each tensor parameters, master weights and averages
        if (!l->offload && copies_so_far > most)
            fprintf(stderr, "%d copies, not %d at most\n", copies_so_far, most);
        CHECK(w, l->offload || copies_so_far <= most);
        for (int t = 0; t < 3; t++)
            for (int field = 0; field < (l->ema ? 2 : 1); field++) {
                BOTH(par_zero_read(z[at], t, field ? PAR_ZERO_EMA : PAR_ZERO_VALUE, values[at]));
                CHECK(w, !memcmp(values[HOST], values[DEVICE], sizeof values[HOST]));
                CHECK(w, field || (t == 2 && !filled) == (values[HOST][0] == values[HOST][1]));
            }
    }
    d->copy = copy_uncounted;
    BOTH(par_zero_close(z[at]));
}
static void initial_values(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    for (int i = 0; i < 6; i++) {
        zero_case l = {};
        l.stage = i % 4, l.param = i % 3 == 0 ? PAR_F32 : i % 3 == 1 ? PAR_BF16 : PAR_F16;
        l.ema = i % 2, l.random = i / 2 % 2, l.offload = i == 5 ? "host" : NULL;
        initial_values_of(w, cuda, &l);
    }
    par_cuda_close(cuda);
}

// ---- par_tp.h's kernels, and a whole model with them

static par_tp *open_tp_pieces(par_comm *tp, par_comm *cp, int sequence, int ulysses, int bf16,
                              const par_tp_kernels *kernels, int pieces) {
    par_tp_desc d;
    par_tp *t = NULL;
    memset(&d, 0, sizeof d);
    d.tp = tp, d.cp = cp, d.sequence_parallel = sequence, d.ulysses = ulysses,
    d.dtype = bf16 ? PAR_BF16 : PAR_F32, d.seed = 9, d.kernels = kernels, d.row_pieces = pieces;
    d.canonical_leaves = same_bits ? 4 : 0;
    CHECK_OK(tp, par_tp_open(&d, &t));
    if (!t) exit(4);
    return t;
}
static par_tp *open_tp(par_comm *tp, par_comm *cp, int sequence, int ulysses, int bf16,
                       const par_tp_kernels *kernels) {
    return open_tp_pieces(tp, cp, sequence, ulysses, bf16, kernels, 0);
}
// Sums in bf16 (par_tp_desc.sum_dtype) of small integers, whose sums are exact in f32: the CPU's bits, by
// every backend in any order.
static void narrow_sums(par_comm *w) {
    enum { IN = 16, OUT = 24, ROWS = 6 }; // of a rank
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    const size_t n = (size_t)par_size(w), in = n * ROWS * IN, out = n * ROWS * OUT;
    for (int variant = 0; variant < 8; variant++) {
        pair x = pair_open(w, cuda, PAR_BF16, in, 0), y = pair_open(w, cuda, PAR_BF16, out, 0),
             weight = pair_open(w, cuda, PAR_BF16, IN * OUT, 0);
        const int sequence = variant & 1, row_parallel = variant >> 2;
        for (size_t i = 0; i < in + IN * OUT; i++) {
            const float u = par_uniform(3, (uint64_t)par_rank(w), i);
            ((par_bf16 *)(i < in ? x : weight).at[HOST])[i < in ? i : i - in] =
                par_f32_to_bf16((float)(int)(61 * u) - 30);
        }
        pair_upload(&x), pair_upload(&weight);
        for (int at = 0; at < PLACES; at++) {
            par_tp_matrix from = {x.at[at], n * ROWS, IN, PAR_TP_HIDDEN},
                          to = {y.at[at], 0, 0, PAR_TP_HIDDEN};
            par_tp_desc d;
            par_tp_linear f;
            par_tp *tp;
            memset(&d, 0, sizeof d), memset(&f, 0, sizeof f);
            d.tp = w, d.dtype = d.sum_dtype = PAR_BF16, d.sequence_parallel = sequence;
            d.row_pieces = variant & 2, d.kernels = at == DEVICE ? par_cuda_tp(cuda) : par_tp_cpu();
            f.row_parallel = row_parallel;
            f.in = row_parallel ? IN * n : (size_t)OUT, f.out = row_parallel ? (size_t)OUT : IN * n;
            CHECK_OK(w, par_tp_open(&d, &tp));
            CHECK_OK(w, par_tp_linear_open(tp, &f));
            f.weight.data = weight.at[at];
            CHECK_OK(w, row_parallel ? par_tp_linear_forward(tp, &f, &from, NULL, &to)
                                     : par_tp_linear_backward_input(tp, &f, &from, &to));
            CHECK(w, to.rows == ROWS * (sequence ? 1 : n));
            CHECK_OK(w, par_cuda_sync(cuda));
            CHECK_OK(w, par_tp_close(tp));
        }
        CLOSE(y, 0);
        close_pairs({&x, &y, &weight});
    }
    par_cuda_close(cuda);
}
static void tp_rows_of(par_comm *w, par_cuda *cuda, par_dtype d, par_tp **tp, size_t rows, size_t cols,
                       int i) {
    const par_tp_kernels *k[PLACES] = {par_tp_cpu(), par_cuda_tp(cuda)};
    const int bf16 = d == PAR_BF16, rms = i / 4 % 2, biased = i % 3 != 0;
    const double eps = bf16 ? 0.02 : 2e-5;
    const size_t n = rows * cols, e = par_dtype_bytes(d);
    pair x = pair_open(w, cuda, d, n, 1), y = pair_open(w, cuda, d, n, 2), z = pair_open(w, cuda, d, n, 3);
    pair out = pair_open(w, cuda, d, 2 * n, 0), bias = pair_open(w, cuda, d, cols, 4);
    pair sums = pair_open(w, cuda, d, n, 0);
    pair sum = pair_open(w, cuda, PAR_F32, cols, 5), other = pair_open(w, cuda, PAR_F32, cols, 6);
    pair stats = pair_open(w, cuda, PAR_F32, rows * 4, 7), squares = pair_open(w, cuda, PAR_F64, 1, 0);
    BOTH(k[at]->sum_rows(tp[at], floats(sum, at), x.at[at], cols, rows, cols));
    CLOSE(sum, 1e-5);
    BOTH(k[at]->norm_forward(tp[at], out.at[at], floats(stats, at), x.at[at], z.at[at], sums.at[at],
                             bias.at[at], NULL, rows, cols, rms, 1e-5f));
    CLOSE(out, eps);
    CLOSE(sums, eps);
    BOTH(k[at]->norm_forward(tp[at], out.at[at], floats(stats, at), x.at[at], NULL, NULL, bias.at[at],
                             biased ? bias.at[at] : NULL, rows, cols, rms, 1e-5f));
    CLOSE(out, eps);
    CLOSE(stats, 1e-4);
    pair_upload(&stats);
    BOTH(k[at]->norm_backward(tp[at], out.at[at], floats(sum, at), biased ? floats(other, at) : NULL,
                              y.at[at], x.at[at], NULL, bias.at[at], floats(stats, at), rows, cols, rms));
    CLOSE(out, eps * 4);
    BOTH(k[at]->norm_backward(tp[at], sums.at[at], floats(sum, at), NULL, y.at[at], x.at[at], sums.at[at],
                              bias.at[at], floats(stats, at), rows, cols, rms));
    CLOSE(sums, eps * 4);
    CLOSE(sum, 1e-3);
    CLOSE(other, 1e-4);
    for (int what = 0; what < PAR_TP_ELEMENTWISE_COUNT; what++) {
        const int two = what == PAR_TP_SWIGLU_BACKWARD; // outputs, side by side
        BOTH(k[at]->elementwise(tp[at], (par_tp_elementwise)what, rows, cols, out.at[at],
                                two ? out.at[at] + cols * e : NULL, two ? 2 * cols : cols, x.at[at], cols,
                                y.at[at], two ? z.at[at] : NULL, cols));
        CLOSE(out, eps);
    }
    if (cols % 8 == 0) { // a library multiplies; one row: with a bias that is not aligned
        const size_t depth = PAR__MIN(rows, cols), shift = rows == 1 ? e : 0;
        BOTH(k[at]->gemm(tp[at], 0, 0, rows, cols, depth, x.at[at], cols, y.at[at], cols, 0, out.at[at], d,
                         cols, bias.at[at] + shift));
        CLOSE(out, bf16 ? 0.02 : 1e-4);
    }
    BOTH(k[at]->add_bias(tp[at], x.at[at], cols, bias.at[at], rows, cols));
    CLOSE(x, eps);
    pair_upload(&x);
    BOTH(k[at]->row_dots(tp[at], floats(stats, at), x.at[at], y.at[at], rows, cols));
    CLOSE(stats, 1e-4);
    BOTH(k[at]->init(tp[at], out.at[at], 3, 100, 2 * n, i % 2 ? 0.5f : 0, 7));
    CLOSE(out, 0.0); // the same bits
    *doubles(squares, HOST) = 3;
    pair_upload(&squares);
    if (!same_bits) BOTH(k[at]->square_sum(tp[at], floats(sum, at), cols, doubles(squares, at)));
    CLOSE(squares, 1e-3);
    BOTH(k[at]->set(tp[at], floats(sum, at), cols, 2.5f));
    CLOSE(sum, 0.0);
    close_pairs({&x, &y, &z, &out, &bias, &sum, &sums, &other, &stats, &squares});
}
static void tp_rows(par_comm *w) {
    static const size_t row_counts[] = {1, 3, 8, 67}, col_counts[] = {2, 8, 24, 37, 130, 520};
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, bf16, NULL),
                              open_tp(w, NULL, 0, 0, bf16, par_cuda_tp(cuda))};
        for (int i = 0; i < 24; i++) {
            SEED(i);
            tp_rows_of(w, cuda, bf16 ? PAR_BF16 : PAR_F32, tp, row_counts[i % 4], col_counts[i % 6], i);
        }
        // a block for a row; more than it keeps: alone at its address, then of a kernel for aligned rows
        static const size_t more[4][2] = {{3, 1032}, {2, 8204}, {150, 20}, {2, 12296}};
        for (int i = 0; i < 4; i += i == 0 && bf16 ? 2 : 1) { // LayerNorm of f32, RMSNorm of bf16
            SEED(i);
            tp_rows_of(w, cuda, bf16 ? PAR_BF16 : PAR_F32, tp, more[i][0], more[i][1], i + 1 + 4 * bf16);
        }
        BOTH(par_tp_close(tp[at]));
    }
    par_cuda_close(cuda);
}
typedef struct loss_case {
    size_t rows, vocabulary, features;
    float label_smoothing, z_loss;
    size_t max_shared_bytes; // 0: the device's; 128: a row does not fit, the kernel reads it twice
} loss_case;
static void tp_losses_of(par_comm *w, par_cuda *cuda, par_dtype d, par_tp **tp, const loss_case *l,
                         const pair &ids) {
    const size_t rows = l->rows, values = rows * par_tp_ld(PAR_TP_VOCABULARY, l->vocabulary);
    par_tp_loss loss;
    memset(&loss, 0, sizeof loss);
    loss.vocabulary = l->vocabulary, loss.label_smoothing = l->label_smoothing, loss.z_loss = l->z_loss;
    loss.ignore_index = 5;
    pair logits = pair_open(w, cuda, d, values, 1), lse = pair_open(w, cuda, PAR_F32, rows, 0);
    pair each = pair_open(w, cuda, PAR_F32, rows, 0), sum = pair_open(w, cuda, PAR_F64, 1, 0);
    pair count = pair_open(w, cuda, PAR_U64, 1, 0), in_one_call = pair_open(w, cuda, d, values, 1);
    par_tp_matrix x[PLACES], y = {in_one_call.at[DEVICE], rows, l->vocabulary, PAR_TP_VOCABULARY};
    for (int at = 0; at < PLACES; at++) x[at] = y, x[at].data = logits.at[at];
    BOTH(par_tp_loss_forward(tp[at], &loss, &x[at], ints(ids, at), floats(lse, at), floats(each, at),
                             doubles(sum, at), (size_t *)(void *)count.at[at]));
    CLOSE(lse, 1e-5);
    CLOSE(each, 1e-4);
    CLOSE(sum, 1e-4);
    CLOSE(count, 0.0);
    CHECK_OK(w, par_tp_loss_forward_backward(tp[DEVICE], &loss, &y, ints(ids, DEVICE), floats(lse, DEVICE),
                                             floats(each, DEVICE), doubles(sum, DEVICE),
                                             (size_t *)(void *)count.at[DEVICE], 0.5f, &y));
    CLOSE(lse, 1e-5);
    CLOSE(each, 1e-4);
    CLOSE(sum, 1e-4);
    BOTH(par_tp_loss_backward(tp[at], &loss, &x[at], ints(ids, at), floats(lse, at), 0.5f, &x[at]));
    CLOSE(logits, d == PAR_BF16 ? 0.01 : 1e-5);
    download(cuda, in_one_call.back, in_one_call.at[DEVICE], in_one_call.bytes);
    CHECK(w, !memcmp(logits.back, in_one_call.back, logits.bytes)); // the same bits
    close_pairs({&logits, &lse, &each, &sum, &count, &in_one_call});
}
// The head and its loss in chunks of rows: on the device as on the CPU.
static void tp_heads_of(par_comm *w, par_cuda *cuda, par_dtype d, par_tp **tp, const loss_case *l,
                        const pair &ids) {
    const size_t n = l->vocabulary * l->features, rows = l->rows, h = l->features;
    pair x = pair_open(w, cuda, d, rows * h, 5), weight = pair_open(w, cuda, d, n, 6);
    pair grad = pair_open(w, cuda, PAR_F32, n, 7), dx = pair_open(w, cuda, d, rows * h, 0);
    pair each = pair_open(w, cuda, PAR_F32, rows, 0), sum = pair_open(w, cuda, PAR_F64, 1, 0);
    pair count = pair_open(w, cuda, PAR_U64, 1, 0);
    par_tp_loss loss;
    memset(&loss, 0, sizeof loss);
    loss.vocabulary = l->vocabulary, loss.label_smoothing = l->label_smoothing, loss.z_loss = l->z_loss;
    loss.ignore_index = 5;
    par_tp_linear head[PLACES];
    memset(head, 0, sizeof head);
    for (int at = 0; at < PLACES; at++) {
        const par_tp_matrix in = {x.at[at], rows, h, PAR_TP_REPLICATED};
        par_tp_matrix out = {dx.at[at], 0, 0, PAR_TP_REPLICATED};
        head[at].in = h, head[at].out = l->vocabulary, head[at].vocab_parallel = 1;
        CHECK_OK(w, par_tp_linear_open(tp[at], &head[at]));
        head[at].weight.data = weight.at[at], head[at].weight.grad = floats(grad, at);
        CHECK_OK(w, par_tp_head_forward_backward(
                        tp[at], &head[at], &loss, &in, ints(ids, at), same_bits ? 0 : rows / 3 + 1,
                        floats(each, at), doubles(sum, at), (size_t *)(void *)count.at[at], 0.5f, &out));
    }
    const double eps = d == PAR_BF16 ? 0.02 : 1e-5;
    CLOSE(each, eps);
    CLOSE(sum, eps);
    CLOSE(count, 0.0);
    CLOSE(dx, eps);
    CLOSE(grad, eps);
    close_pairs({&x, &weight, &grad, &dx, &each, &sum, &count});
}
static void tp_embeddings_of(par_comm *w, par_cuda *cuda, par_dtype d, par_tp **tp, const loss_case *l,
                             const pair &ids) {
    const size_t n = l->vocabulary * l->features, sequence = l->rows / 3, h = l->features;
    const par_tp_tokens tokens = {3, sequence, 0, 0, NULL};
    const double eps = d == PAR_BF16 ? 0.02 : 1e-5;
    pair table = pair_open(w, cuda, d, n, 3), grad = pair_open(w, cuda, PAR_F32, n, 4);
    pair positions = pair_open(w, cuda, d, sequence * h, 5), y = pair_open(w, cuda, d, l->rows * h, 0);
    pair positions_grad = pair_open(w, cuda, PAR_F32, sequence * h, 6);
    par_tp_embedding e[PLACES];
    memset(e, 0, sizeof e);
    for (int at = 0; at < PLACES; at++) {
        par_tp_matrix out = {y.at[at], 0, 0, PAR_TP_REPLICATED};
        e[at].vocabulary = l->vocabulary, e[at].features = h, e[at].max_positions = sequence;
        CHECK_OK(w, par_tp_embedding_open(tp[at], &e[at]));
        e[at].weight.data = table.at[at], e[at].weight.grad = floats(grad, at);
        e[at].position_weight.data = positions.at[at];
        e[at].position_weight.grad = floats(positions_grad, at);
        CHECK_OK(w, par_tp_embedding_forward(tp[at], &e[at], &tokens, ints(ids, at), &out));
        CHECK_OK(w, par_tp_embedding_backward(tp[at], &e[at], &tokens, ints(ids, at), &out));
    }
    CLOSE(y, d == PAR_BF16 ? 0.01 : 0.0);
    CLOSE(grad, eps);
    CLOSE(positions_grad, eps);
    close_pairs({&table, &grad, &positions, &y, &positions_grad});
}
// A run of an id that has more pieces than a warp loads at a time, and ids that another rank has.
static void tp_long_runs(par_comm *w, par_cuda *cuda, par_dtype d, par_tp **tp) {
    enum { ROWS = 700, COLS = 40, FIRST = 10, COUNT = 50 };
    pair ids = pair_open(w, cuda, PAR_I32, ROWS, 0), dy = pair_open(w, cuda, d, ROWS * COLS, 1);
    pair grad = pair_open(w, cuda, PAR_F32, COUNT * COLS, 2);
    for (int r = 0; r < ROWS; r++) ints(ids, HOST)[r] = r % 8 ? 13 : r % 90;
    pair_upload(&ids);
    BOTH(par_tp_kernels_of(tp[at])->embed_backward(tp[at], floats(grad, at), ints(ids, at), ROWS, dy.at[at],
                                                   FIRST, COUNT, COLS));
    CLOSE(grad, 1e-4);
    close_pairs({&ids, &dy, &grad});
}
// And embeddings, with many rows of one id; f32 and bf16 in turn; the first ones of the cases.
static void tp_losses_to(par_comm *w, par_cuda *cuda, int count) {
    static const loss_case cases[] = {{24, 1000, 8, 0, 0, 0},      {24, 67, 24, 0.1f, 0, 0},
                                      {24, 67, 24, 0, 0.01f, 0},   {24, 1000, 8, 0, 0, 0},
                                      {300, 67, 24, 0, 0, 0},      {300, 67, 24, 0.1f, 0, 0},
                                      {300, 1000, 8, 0, 0.01f, 0}, {300, 67, 24, 0, 0, 128}};
    for (int i = 0; i < count; i++) {
        const loss_case *l = &cases[i];
        const int bf16 = i % 2;
        if (l->max_shared_bytes) cuda->max_shared_bytes = l->max_shared_bytes;
        SEED(i);
        par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, bf16, NULL),
                              open_tp(w, NULL, 0, 0, bf16, par_cuda_tp(cuda))};
        pair ids = pair_open(w, cuda, PAR_I32, l->rows, 0);
        for (size_t r = 0; r < l->rows; r++)
            ints(ids, HOST)[r] = r % 5 == 0    ? 3
                                 : r % 11 == 0 ? 5 // ignored
                                               : (int32_t)(par_random(1, 2, r) % l->vocabulary);
        pair_upload(&ids);
        tp_losses_of(w, cuda, bf16 ? PAR_BF16 : PAR_F32, tp, l, ids);
        tp_heads_of(w, cuda, bf16 ? PAR_BF16 : PAR_F32, tp, l, ids);
        tp_embeddings_of(w, cuda, bf16 ? PAR_BF16 : PAR_F32, tp, l, ids);
        if (i < 2) tp_long_runs(w, cuda, bf16 ? PAR_BF16 : PAR_F32, tp);
        close_pairs({&ids});
        BOTH(par_tp_close(tp[at]));
    }
}

// Numbers of random bits: NaNs, infinities and the smallest ones, too. Others: PAR_TEST_SEED; more:
// PAR_TEST_COUNT.
static void fill_bits(void *p, size_t bytes, uint64_t seed, uint64_t stream) {
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)p)[i] = (unsigned char)par_random(seed, stream, i);
}
static void random_casts(par_comm *w, par_cuda *cuda, uint64_t seed) {
    enum { N = 1000 };
    par_device *d = par_cuda_device(cuda);
    static char from[N * 8], got[N * 8], want[N * 8];
    char *a = (char *)on_device(w, cuda, sizeof from), *b = (char *)on_device(w, cuda, sizeof from);
    for (int s = 0; s < PAR_DTYPE_COUNT; s++)
        for (int t = 0; t < PAR_DTYPE_COUNT; t++) {
            fill_bits(from, sizeof from, seed, (uint64_t)(s * PAR_DTYPE_COUNT + t));
            upload(cuda, a, from, sizeof from);
            par_cast(want, (par_dtype)t, from, (par_dtype)s, N);
            CHECK_OK(w, d->cast(d, b, (par_dtype)t, a, (par_dtype)s, N, NULL));
            download(cuda, got, b, sizeof got);
            if (!same_values((par_dtype)t, got, want, N))
                fprintf(stderr, "seed %d: %s to %s\n", (int)seed, par_dtype_name((par_dtype)s),
                        par_dtype_name((par_dtype)t));
            CHECK(w, same_values((par_dtype)t, got, want, N) && "cast as par_cast does");
        }
    CHECK_OK(w, d->free(d, a));
    CHECK_OK(w, d->free(d, b));
}
static void random_elements(par_comm *w, par_cuda *cuda, int bf16, uint64_t seed) {
    enum { ROWS = 9, COLS = 56, N = ROWS * COLS };
    const par_dtype d = bf16 ? PAR_BF16 : PAR_F32;
    const par_tp_kernels *k[PLACES] = {par_tp_cpu(), par_cuda_tp(cuda)};
    par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, bf16, NULL), open_tp(w, NULL, 0, 0, bf16, k[DEVICE])};
    pair in[3], out = pair_open(w, cuda, d, 2 * N, 0);
    for (int i = 0; i < 3; i++) {
        in[i] = pair_open(w, cuda, d, N, 0);
        for (size_t n = 0; n < N; n++) { // of all sizes that a sum of products does not overflow
            const double u = par_uniform(seed, (uint64_t)(2 * i + 1), n),
                         v = par_uniform(seed, (uint64_t)(2 * i + 2), n);
            const double x = ldexp(2 * u - 1, (int)(50 * v) - 40);
            par_cast(in[i].at[HOST] + n * par_dtype_bytes(d), d, &x, PAR_F64, 1);
        }
        pair_upload(&in[i]);
    }
    for (int what = 0; what < PAR_TP_ELEMENTWISE_COUNT; what++) {
        const int two = what == PAR_TP_SWIGLU_BACKWARD; // outputs, side by side
        BOTH(k[at]->elementwise(tp[at], (par_tp_elementwise)what, ROWS, COLS, out.at[at],
                                two ? out.at[at] + COLS * par_dtype_bytes(d) : NULL, two ? 2 * COLS : COLS,
                                in[0].at[at], COLS, in[1].at[at], two ? in[2].at[at] : NULL, COLS));
        CLOSE(out, bf16 ? 0.01 : 1e-5);
    }
    close_pairs({&in[0], &in[1], &in[2], &out});
    BOTH(par_tp_close(tp[at]));
}
static void random_numbers(par_comm *w) {
    const char *seed_text = getenv("PAR_TEST_SEED"), *count_text = getenv("PAR_TEST_COUNT");
    const uint64_t first = seed_text ? strtoull(seed_text, NULL, 10) : 1;
    const uint64_t count = count_text ? strtoull(count_text, NULL, 10) : 1;
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    for (uint64_t seed = first; seed < first + count; seed++) {
        SEED(seed % 3);
        random_casts(w, cuda, seed);
        for (int bf16 = 0; bf16 < 2; bf16++) random_elements(w, cuda, bf16, seed);
    }
    par_cuda_close(cuda);
}
static void tp_losses(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    tp_losses_to(w, cuda, 8);
    par_cuda_close(cuda);
}
#if defined(PAR_CUDA_CUBLASLT)
// Products with GELU in one kernel: what the CPU's product and its next kernel give.
static void fused_of(par_comm *w, par_cuda *cuda, par_dtype d, par_tp **tp, size_t m, size_t n, size_t k) {
    const par_tp_kernels *host = par_tp_cpu(), *device = par_cuda_tp(cuda);
    const double eps = d == PAR_BF16 ? 0.02 : 5e-5; // cuBLASLt's GELU of f32 differs by 1.4e-5 on H200
    pair a = pair_open(w, cuda, d, m * k, 1), b = pair_open(w, cuda, d, n * k, 2);
    pair c = pair_open(w, cuda, d, m * n, 0), other = pair_open(w, cuda, d, m * n, 3);
    pair bias = pair_open(w, cuda, d, n, 4);
    for (int i = 0; i < 3; i++) { // the second time without a bias
        const int gelu = i < 2, has_bias = i == 0;
        const par_tp_fused what = gelu ? PAR_TP_FUSED_GELU : PAR_TP_FUSED_GELU_BACKWARD;
        const size_t ldb = gelu ? k : n;
        int handled = 0;
        CHECK_OK(w, host->gemm(tp[HOST], 0, gelu, m, n, k, a.at[HOST], k, b.at[HOST], ldb, 0, c.at[HOST], d,
                               n, has_bias ? bias.at[HOST] : NULL));
        CHECK_OK(w, host->elementwise(tp[HOST], gelu ? PAR_TP_GELU : PAR_TP_GELU_BACKWARD, m, n,
                                      gelu ? other.at[HOST] : c.at[HOST], NULL, n, c.at[HOST], n,
                                      gelu ? NULL : other.at[HOST], NULL, n));
        CHECK_OK(w, device->gemm_fused(tp[DEVICE], what, m, n, k, a.at[DEVICE], k, b.at[DEVICE], ldb,
                                       c.at[DEVICE], n, has_bias ? bias.at[DEVICE] : NULL, other.at[DEVICE],
                                       &handled));
        CHECK(w, handled || !EMULATED);
        if (!handled) continue;
        CLOSE(c, eps);
        CLOSE(other, eps);
    }
    close_pairs({&a, &b, &c, &other, &bias});
}
static int has_whole_rows(const par__cuda_gemm_key *k) { // or is what is left over
    const int k_in_rows = !k->trans_a || k->trans_b;
    return (k->n % 8 == 0 && (k->k % 8 == 0 || !k_in_rows)) || k->n < 8 || k->k < 8;
}
// Several products of one matrix as one kernel: what the CPU makes of each, and nothing between them.
static void block_products(par_comm *w) {
    enum { BLOCKS = 3, ROWS = 5, LD = 24, A_STEP = 9 * LD, C_STEP = 7 * LD, BIAS = 40 };
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    const par_tp_kernels *k[PLACES] = {par_tp_cpu(), par_cuda_tp(cuda)};
    par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, 1, NULL), open_tp(w, NULL, 0, 0, 1, par_cuda_tp(cuda))};
    pair a = pair_open(w, cuda, PAR_BF16, BLOCKS * A_STEP, 1), b = pair_open(w, cuda, PAR_BF16, LD * LD, 2);
    pair bias = pair_open(w, cuda, PAR_BF16, BIAS, 3), c = pair_open(w, cuda, PAR_BF16, BLOCKS * C_STEP, 4);
    pair wide = pair_open(w, cuda, PAR_F32, BLOCKS * C_STEP, 5);
    for (int i = 0; i < 12; i++) { // rows of B or columns; sizes that are no multiple of 8; a bias anywhere
        const size_t n = i % 2 ? LD : 19, depth = i / 2 % 2 ? 16 : 13, at_bias = i / 4 == 2 ? 2 : 0;
        const int tb = i / 2 % 2;
        for (size_t j = 0; j < BLOCKS; j++) {
            const char *x = a.at[HOST] + j * A_STEP * 2;
            CHECK_OK(w, k[HOST]->gemm(tp[HOST], 0, tb, ROWS, n, depth, x, LD, b.at[HOST], LD, 0,
                                      c.at[HOST] + j * C_STEP * 2, PAR_BF16, LD,
                                      i / 4 ? bias.at[HOST] + at_bias : NULL));
            CHECK_OK(w, k[HOST]->gemm(tp[HOST], 0, tb, ROWS, n, depth, x, LD, b.at[HOST], LD, 0,
                                      wide.at[HOST] + j * C_STEP * 4, PAR_F32, LD, NULL));
        }
        CHECK_OK(w, k[DEVICE]->gemm_blocks(tp[DEVICE], tb, BLOCKS, ROWS, n, depth, a.at[DEVICE], A_STEP, LD,
                                           b.at[DEVICE], LD, c.at[DEVICE], C_STEP, PAR_BF16, LD,
                                           i / 4 ? bias.at[DEVICE] + at_bias : NULL));
        CHECK_OK(w, k[DEVICE]->gemm_blocks(tp[DEVICE], tb, BLOCKS, ROWS, n, depth, a.at[DEVICE], A_STEP, LD,
                                           b.at[DEVICE], LD, wide.at[DEVICE], C_STEP, PAR_F32, LD, NULL));
        CLOSE(c, 0.02);
        CLOSE(wide, 1e-5);
    }
    close_pairs({&a, &b, &bias, &c, &wide});
    BOTH(par_tp_close(tp[at]));
    par_cuda_close(cuda);
}
// Products whose rows are no multiple of 8 numbers are two: what is left over, and the rest.
static void split_products(par_comm *w) {
    enum { M = 21, LD = 80 };
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    const par_tp_kernels *k[PLACES] = {par_tp_cpu(), par_cuda_tp(cuda)};
    par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, 1, NULL), open_tp(w, NULL, 0, 0, 1, par_cuda_tp(cuda))};
    pair a = pair_open(w, cuda, PAR_BF16, LD * LD, 1), b = pair_open(w, cuda, PAR_BF16, LD * LD, 2);
    pair bias = pair_open(w, cuda, PAR_BF16, LD, 3);
    pair c = pair_open(w, cuda, PAR_BF16, M * LD, 4), wide = pair_open(w, cuda, PAR_F32, M * LD, 5);
    cuda->split_from = 0;
    for (size_t i = 0; i < 128; i++) { // then of arrays that cuBLASLt does not count
        static const size_t sizes[] = {5, 16, 67, 73};
        static const float betas[] = {0, 1, 0.5f};
        const size_t n = sizes[i % 4], depth = sizes[i / 4 % 4];
        const int ta = (int)(i / 16 % 2), tb = (int)(i / 32 % 2);
        const bool twice = depth % 8 && depth > 8 && (!ta || tb); // C is rounded
        SEED(i);
        if (i == 64) cuda->most_elements = 100;
#if defined(CUDA_EMU)
        emu_narrow_counts(i < 64 ? LD * LD : 100);
#endif
        pair_upload(&c), pair_upload(&wide);
        BOTH(k[at]->gemm(tp[at], ta, tb, M, n, depth, a.at[at], LD, b.at[at], LD, betas[i % 3], c.at[at],
                         PAR_BF16, LD, i % 3 ? NULL : bias.at[at]));
        // a number of bf16 beside it: 1/128; on H200 cuBLASLt rounds before it adds 1 C
        CLOSE(c, twice ? 0.06 : i % 3 == 1 ? 0.02 : 0.008);
        BOTH(k[at]->gemm(tp[at], ta, tb, M, n, depth, a.at[at], LD, b.at[at], LD, betas[i / 3 % 3],
                         wide.at[at], PAR_F32, LD, NULL));
        CLOSE(wide, 1e-5);
    }
#if defined(CUDA_EMU)
    emu_narrow_counts(0x7FFFFFFF);
#endif
    for (int i = 0; i < PAR__CUDA_MAX_PLANS; i++) CHECK(w, has_whole_rows(&cuda->plans[i].key));
    close_pairs({&a, &b, &bias, &c, &wide});
    BOTH(par_tp_close(tp[at]));
    par_cuda_close(cuda);
}
static void fused_products(par_comm *w) {
    BECOME(90);
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, bf16, NULL),
                              open_tp(w, NULL, 0, 0, bf16, par_cuda_tp(cuda))};
        fused_of(w, cuda, bf16 ? PAR_BF16 : PAR_F32, tp, 5, 24, 16);
        fused_of(w, cuda, bf16 ? PAR_BF16 : PAR_F32, tp, 40, 8, 72);
        BOTH(par_tp_close(tp[at]));
    }
    par_cuda_close(cuda);
    BECOME(0);
}
// Operands in codes: those of the CPU, to the bit, with their scales; products of them; layers by a recipe.
enum { CODE_ROWS = 140, CODE_COLS = 176 };
static par_tp_operand operand_at(par_tp_recipe recipe, int weights, int place, const pair &memory,
                                 size_t rows, size_t cols) {
    const par__tp_recipe *r = par__tp_recipe_of(recipe);
    par_tp_operand q;
    memset(&q, 0, sizeof q);
    q.code = weights == 2 ? r->gradients : r->code, q.scale = r->scale, q.block_cols = r->cols;
    q.block_rows = weights == 1 ? r->weight_rows : r->rows;
    q.hadamard = weights != 1 && r->flags & PAR_TP_HADAMARD, q.random = weights == 2 && q.code == PAR_TP_E2M1;
    q.rows = rows, q.cols = cols, q.ld = 256;
    q.amax = floats(memory, place), q.scales = memory.at[place] + 1024, q.codes = memory.at[place] + 16384;
    return q;
}
static int same_bytes(const pair &p, size_t from, size_t bytes) {
    return !memcmp(p.at[HOST] + from, p.back + from, bytes);
}
static void operands_of(par_comm *w, par_cuda *cuda, par_tp **tp, par_tp_recipe recipe, int weights,
                        int transposed, const pair &x, size_t rows, const pair &memory) {
    par_tp_operand q[PLACES];
    const size_t x_ld = transposed ? CODE_ROWS + 20 : CODE_COLS;
    for (int at = 0; at < PLACES; at++) {
        q[at] = operand_at(recipe, weights, at, memory, rows, CODE_COLS);
        CHECK_OK(w, par_tp_kernels_of(tp[at])->quantize(tp[at], &q[at], x.at[at], x_ld, transposed));
    }
    download(cuda, memory.back, memory.at[DEVICE], memory.bytes);
    const size_t bytes = rows * q[0].ld / (q[0].code == PAR_TP_E2M1 ? 2 : 1);
    const int codes = same_bytes(memory, 16384, bytes);
    const int scales = same_bytes(memory, 1024, par__tp_scale_bytes(&q[0]));
    if (!codes || !scales)
        fprintf(stderr, "%s %d %d: codes %d, scales %d\n", par_tp_recipe_name(recipe), weights, transposed,
                codes, scales);
    CHECK(w, codes && scales);
}
static void code_layers(par_comm *w, par_cuda *cuda, par_tp **tp, par_tp_recipe recipe, int bf16) {
    enum { R = 24, F = 48 };
    const par_dtype d = bf16 ? PAR_BF16 : PAR_F32;
    par_tp_linear f[PLACES];
    par_tp_matrix y[PLACES], dx[PLACES], x[PLACES], dy[PLACES];
    pair mx = pair_open(w, cuda, d, R * F, 1), mw = pair_open(w, cuda, d, F * F, 2);
    pair mb = pair_open(w, cuda, d, F, 7), mdy = pair_open(w, cuda, d, R * F, 3);
    pair my = pair_open(w, cuda, d, R * F, 0), mdx = pair_open(w, cuda, d, R * F, 0);
    pair mdw = pair_open(w, cuda, PAR_F32, F * F, 4);
    memset(f, 0, sizeof f);
    for (int at = 0; at < PLACES; at++) {
        const par_tp_matrix tokens = {mx.at[at], R, F, PAR_TP_REPLICATED};
        x[at] = y[at] = dx[at] = dy[at] = tokens, dy[at].data = mdy.at[at], dy[at].layout = PAR_TP_HIDDEN;
        y[at].data = my.at[at], dx[at].data = mdx.at[at];
        f[at].in = f[at].out = F, f[at].recipe = recipe, f[at].has_bias = f[at].bias.frozen = 1;
        CHECK_OK(w, par_tp_linear_open(tp[at], &f[at]));
        f[at].weight.data = mw.at[at], f[at].weight.grad = floats(mdw, at), f[at].bias.data = mb.at[at];
    }
    for (int step = 0; step < 2; step++) {
        BOTH(par_tp_linear_forward(tp[at], &f[at], &x[at], NULL, &y[at]));
        const double limit = EMULATED ? 1e-5 : 0.01; // Hopper adds products of codes with fewer bits than f32
        CLOSE(my, bf16 ? 0.01 : limit);
        BOTH(par_tp_linear_backward(tp[at], &f[at], &dy[at], &x[at], &dx[at]));
        CLOSE(mdx, bf16 ? 0.01 : limit);
        CLOSE(mdw, limit);
        BOTH(par_tp_update_scales(tp[at]));
    }
    close_pairs({&mx, &mw, &mb, &mdy, &my, &mdx, &mdw});
}
static void low_precision(par_comm *w) { // products only where the device has them
    static const int first[PAR_TP_RECIPE_COUNT] = {80, 89, 89, 90, 90, 100, 100},
                     last[PAR_TP_RECIPE_COUNT] = {999, 999, 999, 90, 90, 999, 999};
    int major = 0, minor = 0;
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    pair memory = pair_open(w, cuda, PAR_U8, 65536, 0);
    for (int r = 1; r < PAR_TP_RECIPE_COUNT; r++) {
        const int bf16 = r % 2;
        SEED(r);
        BECOME(first[r]);
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->ordinal);
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->ordinal);
        const int sm = 10 * major + minor;
        par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, bf16, NULL),
                              open_tp(w, NULL, 0, 0, bf16, par_cuda_tp(cuda))};
        pair x = pair_open(w, cuda, bf16 ? PAR_BF16 : PAR_F32, (CODE_ROWS + 20) * CODE_COLS, 5);
        for (int k = 0; k < 3; k++) // x, weights, gradients
            operands_of(w, cuda, tp, (par_tp_recipe)r, k, k > 0, x, CODE_ROWS, memory);
        if (sm >= first[r] && sm <= last[r]) code_layers(w, cuda, tp, (par_tp_recipe)r, bf16);
        close_pairs({&x});
        BOTH(par_tp_close(tp[at]));
    }
    BECOME(0);
    close_pairs({&memory});
    par_cuda_close(cuda);
}
#endif

// One warp: c (16 x 32) = a (16 x 64) b^T (32 x 64) of bf16, and d (16 x 64) = c, rounded, times b.
static __global__ void tile_products(const par__cuda_bf16 *a, const par__cuda_bf16 *b, float *c, float *d) {
    PAR__CUDA_SHARED(unsigned char, memory);
    const uint32_t left = par__cuda_shared_address(memory), right = left + 16 * 128;
    const int lane = (int)threadIdx.x;
    float s[1][4][4], out[1][8][4];
    par__cuda_begin_tile<16, 64, 32>(left, a, 64, 16, 64, true);
    par__cuda_begin_tile<32, 64, 32>(right, b, 64, 32, 64, true);
    par__cuda_copies_end();
    __syncthreads();
    for (int i = 0; i < 32; i++) out[0][i / 4][i % 4] = 0;
    par__cuda_rows_by_rows<64, 1, 32>(s, left + par__cuda_left_address<64>(),
                                      right + par__cuda_right_address<64>());
    par__cuda_add_weighted_rows<64, 1, 32, 64>(out, s, right + par__cuda_left_address<64>());
    for (int i = 0; i < 16; i++)
        c[(lane / 4 + i % 4 / 2 * 8) * 32 + i / 4 * 8 + lane % 4 * 2 + i % 2] = s[0][i / 4][i % 4];
    for (int h = 0; h < 2; h++)
        par__cuda_sum_fragment<64>(d + (lane / 4 + 8 * h) * 64, true, true, true, 64, out[0], h, 1);
}
#if defined(CUDA_EMU) || defined(TEST_PTX)
// What ldmatrix and cp.async need: addresses that are multiples of 16, whole warps, waits for copies; what
// barriers and shuffles need: one place of the kernel for all threads, and lanes that are there.
#if defined(TEST_PTX)
__global__ // else nvcc would leave it out
#else
static __global__
#endif
    void
    matrix_faults(int fault, const uint4 *x) {
    PAR__CUDA_SHARED(unsigned char, memory);
    const uint32_t tile = par__cuda_shared_address(memory);
    uint32_t r[4];
    par__cuda_begin_tile<16, 64, 32>(tile, (const par__cuda_bf16 *)x, 64, 16, 64, fault != 1);
    if (fault != 2) par__cuda_copies_end();
    __syncthreads();
    if (fault == 3 && threadIdx.x == 5) __syncwarp();
    if (fault == 4) par__cuda_copy_async(tile + 8, x, true);
    const uint32_t at = par__cuda_left_address<64>() + (fault == 5 ? 2 : fault == 6 ? 2048 : 0);
    par__cuda_ldmatrix_x4(r, tile + at);
    if (fault == 7) par__cuda_ldmatrix_x4(r, tile + threadIdx.x % 8 * 128); // all in the same banks
    if (fault == 8) r[0] = threadIdx.x < 16 ? __shfl_xor_sync(~0u, r[0], 1) : __shfl_xor_sync(~0u, r[0], 2);
    if (fault == 9 && threadIdx.x == 31) return;
    if (fault == 9) r[0] = __shfl_down_sync(~0u, r[0], 1);
    if (fault == 10 && threadIdx.x % 2) __syncthreads();
    if (fault == 10 && threadIdx.x % 2 == 0) __syncthreads();
}
#endif
static void tensor_cores(par_comm *w) {
    enum { M = 16, N = 32, K = 64 };
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    static float a[M * K], b[N * K], c[M * N], d[M * K];
    for (int i = 0; i < M * K; i++) a[i] = (float)(int)(par_random(1, 1, (uint64_t)i) % 9) - 4; // exact
    for (int i = 0; i < N * K; i++) b[i] = (float)(int)(par_random(1, 2, (uint64_t)i) % 9) - 4;
    for (int seed = 0; seed < 3; seed++) {
        SEED(seed);
        par__cuda_bf16 *da = (par__cuda_bf16 *)on_device(w, cuda, M * K * 2),
                       *db = (par__cuda_bf16 *)on_device(w, cuda, N * K * 2);
        float *dc = (float *)on_device(w, cuda, sizeof c), *dd = (float *)on_device(w, cuda, sizeof d);
        uint16_t narrow[N * K];
        par_cast(narrow, PAR_BF16, a, PAR_F32, M * K);
        upload(cuda, da, narrow, M * K * 2);
        par_cast(narrow, PAR_BF16, b, PAR_F32, N * K);
        upload(cuda, db, narrow, N * K * 2);
        memset(d, 0, sizeof d);
        upload(cuda, dd, d, sizeof d);
        CHECK_OK(w, par__cuda_launch(cuda, tile_products, 1, 32, (M + N) * K * 2, par_cuda_stream(cuda), da,
                                     db, dc, dd));
        download(cuda, c, dc, sizeof c);
        download(cuda, d, dd, sizeof d);
        int wrong = 0;
        for (int i = 0; i < M; i++) {
            float rounded[N];
            for (int j = 0; j < N; j++) {
                float sum = 0;
                for (int k = 0; k < K; k++) sum += a[i * K + k] * b[j * K + k];
                wrong += c[i * N + j] != sum;
                par_cast(narrow, PAR_BF16, &sum, PAR_F32, 1);
                par_cast(&rounded[j], PAR_F32, narrow, PAR_BF16, 1);
            }
            for (int k = 0; k < K; k++) {
                float sum = 0;
                for (int j = 0; j < N; j++) sum += rounded[j] * b[j * K + k];
                wrong += d[i * K + k] != sum;
            }
        }
        CHECK(w, wrong == 0);
        for (void *p : {(void *)da, (void *)db, (void *)dc, (void *)dd})
            CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, p));
    }
    par_cuda_close(cuda);
}
// A prompt, then one and two tokens, against the cache; x is read as so many tokens of each sequence.
static void cached_steps(par_comm *w, par_cuda *cuda, par_tp **tp, par_tp_attention a, par_tp_tokens t,
                         pair *x, pair *y) {
    const par_dtype d = x->dtype;
    const double eps = d == PAR_BF16 ? 0.03 : 2e-5;
    const size_t counts[] = {t.sequence - 3, 1, 2}, cols = (a.heads + 2 * a.kv_heads) * a.dim;
    const size_t capacity = t.sequence + 3;
    pair memory = pair_open(w, cuda, d, t.batch * capacity * 2 * a.kv_heads * a.dim, 0);
    par_tp_kv_cache cache[PLACES];
    par_tp_rotary rotary;
    memset(&rotary, 0, sizeof rotary);
    for (int at = 0; at < PLACES; at++) cache[at] = {memory.at[at], t.batch, capacity, 0};
    a.dropout = 0;
    CHECK(w, par_tp_kv_cache_bytes(tp[DEVICE], &a, t.batch, capacity) == memory.bytes);
    t.position = 0;
    for (int i = 0; i < 3; i++) {
        t.sequence = counts[i];
        par_tp_matrix in[PLACES], out[PLACES];
        for (int at = 0; at < PLACES; at++) {
            in[at] = {x->at[at], t.batch * t.sequence, cols, PAR_TP_HIDDEN};
            out[at] = {y->at[at], 0, 0, PAR_TP_HIDDEN};
        }
        if (a.dim % 2 == 0) {
            BOTH(par_tp_rope(tp[at], &t, a.heads + a.kv_heads, a.dim, &rotary, 0, &in[at]));
            CLOSE((*x), eps);
            pair_upload(x);
        }
        BOTH(par_tp_attention_cached(tp[at], &a, &t, &cache[at], &in[at], &out[at]));
        CLOSE((*y), eps);
        t.position += t.sequence;
    }
    close_pairs({&memory});
}
typedef struct attention_case {
    size_t heads, kv_heads, dim, sequence, batch;
    float dropout;
    size_t window, document; // tokens of a document; 0: of a sequence
} attention_case;
// Documents of so many tokens, of which the first of a sequence are cut by its number.
static void map_documents(par_comm *w, par_tp *tp, const attention_case *c, par_tp_tokens *t, pair *map) {
    const size_t all = c->batch * c->sequence;
    size_t *offsets = (size_t *)calloc(all + 1, sizeof *offsets), count = 0;
    for (size_t i = 1; i < all; i++)
        if (i % c->sequence == 0 || (i % c->sequence + i / c->sequence + 1) % c->document == 0)
            offsets[++count] = i;
    offsets[++count] = all;
    CHECK_OK(w, par_tp_documents_map(tp, t, offsets, count, (uint32_t *)map->at[HOST]));
    pair_upload(map);
    for (int at = 0; at < PLACES; at++) t[at].documents = (const uint32_t *)map->at[at];
    free(offsets);
}
static void tp_attention_of(par_comm *w, par_cuda *cuda, const attention_case *c, int bf16,
                            const par_tp_kernels *kernels) {
    const par_dtype d = bf16 ? PAR_BF16 : PAR_F32;
    const size_t rows = c->batch * c->sequence, h = c->heads * c->dim;
    const size_t cols = (c->heads + 2 * c->kv_heads) * c->dim;
    const par_tp_attention a = {c->heads, c->kv_heads, c->dim, c->dropout, 0, NULL, c->window};
    const par_tp_tokens t = {c->batch, c->sequence, 3, 0, NULL};
    par_tp_tokens parts[PLACES] = {t, t}; // t with documents
    par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, bf16, NULL), open_tp(w, NULL, 0, 0, bf16, kernels)};
    par_tp_rotary rotary;
    memset(&rotary, 0, sizeof rotary);
    pair x = pair_open(w, cuda, d, rows * cols, 1), y = pair_open(w, cuda, d, rows * h, 0);
    pair dy = pair_open(w, cuda, d, rows * h, 2), dx = pair_open(w, cuda, d, rows * cols, 0);
    pair lse = pair_open(w, cuda, PAR_F32, rows * c->heads, 0),
         map = pair_open(w, cuda, PAR_I32, 2 * rows, 0);
    par_tp_matrix mx[PLACES], my[PLACES], mdy[PLACES], mdx[PLACES];
    for (int at = 0; at < PLACES; at++) {
        mx[at] = {x.at[at], rows, cols, PAR_TP_HIDDEN}, my[at] = {y.at[at], rows, h, PAR_TP_HIDDEN};
        mdx[at] = {dx.at[at], rows, cols, PAR_TP_HIDDEN}, mdy[at] = {dy.at[at], rows, h, PAR_TP_HIDDEN};
    }
    if (c->dim % 2 == 0) {
        BOTH(par_tp_rope(tp[at], &t, c->heads + c->kv_heads, c->dim, &rotary, 0, &mx[at]));
        CLOSE(x, bf16 ? 0.02 : 1e-5);
        pair_upload(&x);
    }
    if (c->document) map_documents(w, tp[HOST], c, parts, &map);
    BOTH(par_tp_attention_forward(tp[at], &a, &parts[at], 4, &mx[at], floats(lse, at), &my[at]));
    CLOSE(y, bf16 ? 0.03 : 2e-5);
    CLOSE(lse, bf16 ? 0.01 : 2e-5);
    BOTH(par_tp_attention_backward(tp[at], &a, &parts[at], 4, &mdy[at], &mx[at], &my[at], floats(lse, at),
                                   &mdx[at]));
    CLOSE(dx, bf16 ? 0.08 : 1e-4);
    char *first = (char *)malloc(dx.bytes);
    memcpy(first, dx.back, dx.bytes);
    CHECK_OK(w, par_tp_attention_backward(tp[DEVICE], &a, &parts[DEVICE], 4, &mdy[DEVICE], &mx[DEVICE],
                                          &my[DEVICE], floats(lse, DEVICE), &mdx[DEVICE]));
    download(cuda, dx.back, dx.at[DEVICE], dx.bytes);
    CHECK(w, !memcmp(first, dx.back, dx.bytes)); // the same bits again
    free(first);
#if PAR__CUDA_DNN
    // both plans; on sm_80 not for wide heads
    if (kernels == par_cuda_tp(cuda) && bf16 && c->dropout == 0 && !c->document &&
        !cuda->desc.own_attention && !same_bits)
        CHECK(w, cuda->dnn_plans && cuda->dnn_plans->shape.backward &&
                     (c->dim > 128 ? !EMULATED || !cuda->dnn_plans->plan : cuda->dnn_plans->plan != NULL));
#endif
    for (int at = 0; at < PLACES; at++) mdx[at].layout = PAR_TP_REPLICATED;
    BOTH(par_tp_dropout(tp[at], &t, 6, 0.3f, &mdx[at], &mdx[at]));
    CLOSE(dx, bf16 ? 0.1 : 2e-4);
    if (!same_bits) cached_steps(w, cuda, tp, a, t, &x, &y);
    close_pairs({&x, &y, &dy, &dx, &lse, &map});
    BOTH(par_tp_close(tp[at]));
}
// Attention to three thirds of the tokens, as blocks of a ring: rows of x have q of 2 heads, k, and v.
enum { RING_HEADS = 2, RING_DIM = 24 };
enum { RING_H = RING_HEADS * RING_DIM, RING_COLS = RING_H + 2 * RING_DIM };
// Queries of a third, of so many tokens, and keys of another one; or `whole` sequences.
static par_tp_attention_block ring_block(const pair *x, int at, size_t window, size_t query, size_t key,
                                         size_t third, int whole) {
    const size_t e = par_dtype_bytes(x->dtype);
    par_tp_attention_block m;
    memset(&m, 0, sizeof m);
    m.batch = m.kv_heads = 1, m.heads = m.total_heads = RING_HEADS, m.dim = RING_DIM;
    m.q = x->at[at], m.k = x->at[at] + RING_H * e, m.v = x->at[at] + (RING_H + RING_DIM) * e;
    m.q_ld = m.kv_ld = RING_COLS, m.q_stride = m.kv_stride = m.sequence = 3 * third;
    m.kv_head_stride = RING_DIM;
    m.q_count = m.kv_count = whole ? 3 * third : third, m.q_row = m.q_position = query * third;
    m.kv_row = m.kv_position = key * third, m.window = window, m.scale = 0.7f;
    return m;
}
// Queries of a third of the tokens against the keys of each third, as a ring brings them, from the first to
// the last or back: the state before the first keys is not read, and the last ones, also where the window
// hides all of them, give the output.
static void ring_blocks_of(par_comm *w, par_cuda *cuda, int bf16, size_t window, int back, size_t third) {
    const size_t rows = 3 * third;
    const par_dtype d = bf16 ? PAR_BF16 : PAR_F32;
    par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, bf16, NULL),
                          open_tp(w, NULL, 0, 0, bf16, par_cuda_tp(cuda))};
    pair x = pair_open(w, cuda, d, rows * RING_COLS, 1), y = pair_open(w, cuda, d, rows * RING_H, 2);
    pair most = pair_open(w, cuda, PAR_F32, rows * RING_HEADS, 3),
         sum = pair_open(w, cuda, PAR_F32, rows * RING_HEADS, 4);
    pair acc = pair_open(w, cuda, PAR_F32, rows * RING_H, 5);
    for (int i = 0; i < 3; i++) {
        par_tp_attention_block m[PLACES];
        for (int at = 0; at < PLACES; at++) {
            m[at] = ring_block(&x, at, window, 2, (size_t)(back ? 2 - i : i), third, 0);
            m[at].row_max = floats(most, at), m[at].row_sum = floats(sum, at), m[at].acc = floats(acc, at);
            m[at].acc_ld = RING_H, m[at].first = i == 0, m[at].y = i == 2 ? y.at[at] : NULL;
        }
        BOTH((at ? par_cuda_tp(cuda) : par_tp_cpu())->attention_block_forward(tp[at], &m[at]));
    }
    CLOSE(y, bf16 ? 0.03 : 2e-5);
    CLOSE(most, bf16 ? 0.01 : 2e-5);
    close_pairs({&x, &y, &most, &sum, &acc});
    BOTH(par_tp_close(tp[at]));
}
// Backward of the last two thirds of the queries and of all keys: sums that the first block of a query, or of
// a key, does not read, and that the last one writes to dx, also where the window hides all of a pair.
static void ring_gradients_of(par_comm *w, par_cuda *cuda, int bf16, size_t window, int back, size_t third) {
    const size_t rows = 3 * third;
    const par_dtype d = bf16 ? PAR_BF16 : PAR_F32;
    par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, bf16, NULL),
                          open_tp(w, NULL, 0, 0, bf16, par_cuda_tp(cuda))};
    pair x = pair_open(w, cuda, d, rows * RING_COLS, 1), dy = pair_open(w, cuda, d, rows * RING_H, 2);
    pair lse = pair_open(w, cuda, PAR_F32, rows * RING_HEADS, 3),
         dot = pair_open(w, cuda, PAR_F32, rows * RING_HEADS, 4);
    pair dq = pair_open(w, cuda, PAR_F32, rows * RING_H, 5),
         dkv = pair_open(w, cuda, PAR_F32, rows * 2 * RING_DIM, 6);
    pair dx = pair_open(w, cuda, d, rows * RING_COLS, 7);
    int met[2][3] = {{0, 0, 0}, {0, 0, 0}}; // of queries, of keys
    par_tp_attention_block whole = ring_block(&x, HOST, window, 0, 0, third, 1);
    whole.row_max = floats(lse, HOST), whole.row_sum = floats(dot, HOST), whole.acc = floats(dq, HOST);
    whole.acc_ld = RING_H, whole.first = 1, whole.y = dx.at[HOST];
    CHECK_OK(w, par_tp_cpu()->attention_block_forward(tp[HOST], &whole));
    CHECK_OK(w, par_tp_cpu()->row_dots(tp[HOST], floats(dot, HOST), dy.at[HOST], whole.y, rows * RING_HEADS,
                                       RING_DIM));
    pair_upload(&lse), pair_upload(&dot), pair_upload(&dx);
    for (int i = 0; i < 6; i++) {
        const size_t q = back ? 2 - i / 3 : 1 + i / 3, k = back ? 2 - i % 3 : i % 3;
        if (k > q) continue;
        const int first = met[0][q]++ == 0, first_queries = met[1][k]++ == 0;
        par_tp_attention_block m[PLACES];
        for (int at = 0; at < PLACES; at++) {
            m[at] = ring_block(&x, at, window, q, k, third, 0);
            m[at].dy = dy.at[at], m[at].dy_ld = RING_H, m[at].lse = floats(lse, at);
            m[at].dot = floats(dot, at), m[at].dq = floats(dq, at), m[at].dq_ld = RING_H;
            m[at].dk = floats(dkv, at), m[at].dv = m[at].dk + RING_DIM, m[at].dkv_ld = 2 * RING_DIM;
            m[at].first = first, m[at].first_queries = first_queries;
            m[at].dx_q = met[0][q] == (int)q + 1 ? dx.at[at] : NULL;
            m[at].dx_kv = met[1][k] == (k == 2 ? 1 : 2) ? dx.at[at] : NULL;
        }
        BOTH((at ? par_cuda_tp(cuda) : par_tp_cpu())->attention_block_backward(tp[at], &m[at]));
    }
    CLOSE(dx, bf16 ? 0.1 : 2e-4);
    close_pairs({&x, &dy, &lse, &dot, &dq, &dkv, &dx});
    BOTH(par_tp_close(tp[at]));
}
static void ring_blocks(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    for (int i = 0; i < 10; i++) { // the last two: blocks of threads see nothing, and write what there is
        const size_t third = i < 8 ? 16 : 130;
        const int bf16 = i % 2 || i == 8, back = i < 8 ? i / 4 : i % 2;
        SEED(i);
        ring_blocks_of(w, cuda, bf16, i / 2 % 2 || i > 7 ? 10 : 0, back, third);
        ring_gradients_of(w, cuda, bf16, i / 2 % 2 || i > 7 ? 10 : 0, back, third);
    }
    par_cuda_close(cuda);
}
// Canonical products of several blocks of k, of all forms.
static void canonical_products(par_comm *w, par_cuda *cuda, par_tp **tp, par_dtype d) {
    enum { M = 5, N = 9, K = 1300 };
    const par_tp_kernels *k[PLACES] = {par_tp_cpu(), par_cuda_tp(cuda)};
    pair a = pair_open(w, cuda, d, M * K, 1), b = pair_open(w, cuda, d, N * K, 2);
    pair bias = pair_open(w, cuda, d, N, 3), c = pair_open(w, cuda, PAR_F32, M * N, 4);
    pair narrow = pair_open(w, cuda, d, M * N, 5);
    for (int form = 0; form < 4; form++)
        for (size_t depth = form + 1; depth <= K; depth += 433) {
            const int ta = form & 1, tb = form >> 1;
            const float beta = form == 1 ? 0 : form == 2 ? 1 : 0.3f;
            const size_t lda = ta ? (size_t)M : depth, ldb = tb ? depth : (size_t)N;
            BOTH(k[at]->gemm(tp[at], ta, tb, M, N, depth, a.at[at], lda, b.at[at], ldb, beta, c.at[at],
                             PAR_F32, N, NULL));
            CLOSE(c, 0);
            BOTH(k[at]->gemm(tp[at], ta, tb, M, N, depth, a.at[at], lda, b.at[at], ldb, 0, narrow.at[at], d,
                             N, bias.at[at]));
            CLOSE(narrow, 0);
        }
    close_pairs({&a, &b, &bias, &c, &narrow});
}
static void canonical_kernels(par_comm *w) {
    static const attention_case cases[] = {{4, 2, 8, 70, 1, 0, 0, 45},
                                           {1, 1, 24, 200, 1, 0.2f, 30, 0},
                                           {2, 2, 16, 40, 2, 0, 0, 0},
                                           {3, 3, 5, 17, 2, 0.5f, 0, 6}};
    static const size_t shapes[][2] = {{3, 8}, {8, 24}, {67, 37}, {1, 130}, {150, 20}, {3, 1032}};
    if (!has_canonical(w)) return;
    same_bits = 1;
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const par_dtype d = bf16 ? PAR_BF16 : PAR_F32;
        par_tp *tp[PLACES] = {open_tp(w, NULL, 0, 0, bf16, NULL),
                              open_tp(w, NULL, 0, 0, bf16, par_cuda_tp(cuda))};
        for (int i = 0; i < 6; i++) {
            SEED(i);
            tp_rows_of(w, cuda, d, tp, shapes[i][0], shapes[i][1], i);
        }
        canonical_products(w, cuda, tp, d);
        BOTH(par_tp_close(tp[at]));
        for (int i = 0; i < 4; i++) { // whole, and block by block
            par_tp_kernels blocks = *par_cuda_tp(cuda);
            if (i % 2) blocks.attention_fused_forward = NULL, blocks.attention_fused_backward = NULL;
            tp_attention_of(w, cuda, &cases[i], bf16, &blocks);
        }
    }
    tp_losses_to(w, cuda, 4);
    par_cuda_close(cuda);
    same_bits = 0;
}
static const attention_case attention_cases[] = {
    {2, 2, 16, 40, 2, 0, 0, 0}, {4, 2, 8, 70, 1, 0, 0, 45}, {1, 1, 24, 200, 1, 0.2f, 30, 0},
    {1, 1, 64, 64, 2, 0, 0, 0}, {1, 1, 136, 9, 1, 0, 0, 0}, {3, 3, 5, 17, 2, 0.5f, 0, 6}};
static void tp_attention(par_comm *w) { // by the library where it is; f32 by kernels
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    for (int i = 0; i < 12; i++) {
        SEED(i);
        tp_attention_of(w, cuda, &attention_cases[i / 2], i % 2, par_cuda_tp(cuda));
    }
    par_cuda_close(cuda);
}
static void own_attention(par_comm *w) { // bf16 by this file's kernels: block by block, and whole
    static const attention_case wide[] = {{1, 1, 80, 33, 1, 0, 0, 20}, {2, 1, 256, 70, 1, 0.1f, 20, 0}};
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_tp_kernels blocks = *par_cuda_tp(cuda);
    blocks.attention_fused_forward = NULL, blocks.attention_fused_backward = NULL;
    cuda->desc.own_attention = 1;
    for (int i = 0; i < 6; i++) {
        SEED(i);
        tp_attention_of(w, cuda, &attention_cases[i], 1, &blocks);
    }
    for (int i = 0; i < 9; i++) {
        SEED(i);
        tp_attention_of(w, cuda, i < 5 ? &attention_cases[i] : &wide[i % 2], 1,
                        i < 7 ? par_cuda_tp(cuda) : &blocks);
    }
    const attention_case several = {2, 1, 24, 300, 1, 0, 200, 110}; // tiles that see no key of another
    tp_attention_of(w, cuda, &several, 1, par_cuda_tp(cuda));
    tp_attention_of(w, cuda, &several, 1, &blocks);
#if defined(CUDA_EMU)
    uint64_t reads, cycles;
    emu_bank_cycles(&reads, &cycles);
    CHECK(w, reads > 1000 && cycles == reads); // no bank has two rows of a read
#endif
    par_cuda_close(cuda);
}

// A GPT of this rank's parts, forward and backward, in one place or the other.
typedef struct run {
    gpt_model model;
    gpt_buffers buffers;
    par_tp *tp;
    void *memory[4]; // weights, gradients, ids and targets, losses
    double loss;
    float *grads;
} run;
static void run_model(par_comm *w, par_cuda *cuda, const gpt_config *g, par_comm *tp, par_comm *cp,
                      int sequence, int ulysses, int bf16, float dropout, run *r) {
    const size_t s = (size_t)g->block_size, B = 2;
    par_device *d = cuda ? par_cuda_device(cuda) : par_cpu();
    memset(r, 0, sizeof *r);
    r->tp = open_tp(tp, cp, sequence, ulysses, bf16, cuda ? par_cuda_tp(cuda) : NULL);
    CHECK_OK(w, gpt_open(&r->model, g, r->tp, sequence));
    par_tp_tokens tokens = {B, s, 0, 0, NULL};
    const size_t rows = par_tp_rows(r->tp, &tokens), n = r->model.count, per = s / (size_t)par_size(cp);
    int32_t *ids = (int32_t *)calloc(2 * rows, sizeof *ids);
    for (size_t i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++)
            ids[(size_t)j * rows + i] =
                (int32_t)(par_random(4, (uint64_t)j, i / per * s + par_tp_position(r->tp, s, i % per)) %
                          (uint64_t)g->vocab_size);
    r->model.head_in_chunks = cuda != NULL; // on the CPU all rows; canonical sums are over all, too
    r->model.chunk_rows = same_bits ? 0 : rows / 3 + 1;
    CHECK(w, gpt_buffers_open(&r->model, &r->buffers, rows));
    CHECK_OK(w, d->alloc(d, n * par_tp_element_bytes(r->tp), &r->memory[0]));
    CHECK_OK(w, d->alloc(d, n * sizeof(float), &r->memory[1]));
    CHECK_OK(w, d->alloc(d, 2 * rows * sizeof *ids, &r->memory[2]));
    CHECK_OK(w, d->alloc(d, 64, &r->memory[3]));
    CHECK_OK(w, d->copy(d, r->memory[2], ids, 2 * rows * sizeof *ids, NULL));
    CHECK_OK(w, d->stream_sync(d, NULL));
    gpt_set_memory(&r->model, r->memory[0], (float *)r->memory[1]);
    CHECK_OK(w, gpt_init_weights(&r->model));
    gpt_dropout drop = {dropout, 1};
    const int32_t *x = (const int32_t *)r->memory[2], *y = x + rows;
    double *loss = (double *)r->memory[3];
    const gpt_targets targets = {y, loss, (size_t *)(loss + 1), 1.0f / (float)rows, 0};
    r->buffers.targets = targets;
    CHECK_OK(w, gpt_forward(&r->model, &r->buffers, &tokens, x, &drop));
    if (!cuda) {
        CHECK_OK(w, par_tp_loss_forward(r->tp, &r->model.loss, &r->buffers.logits, y, r->buffers.lse, NULL,
                                        loss, (size_t *)(loss + 1)));
        CHECK_OK(w, par_tp_loss_backward(r->tp, &r->model.loss, &r->buffers.logits, y, r->buffers.lse,
                                         1.0f / (float)rows, &r->buffers.logits));
    }
    CHECK_OK(w, gpt_backward(&r->model, &r->buffers, &tokens, x, &drop));
    par_tp_parameter *all[200];
    for (int i = 0; i < r->model.tensor_count; i++) all[i] = r->model.tensors[i].p;
    CHECK_OK(w, par_tp_finalize_gradients(r->tp, all, (size_t)r->model.tensor_count));
    r->grads = (float *)calloc(n + 1, sizeof(float));
    CHECK_OK(w, d->copy(d, r->grads, r->memory[1], n * sizeof(float), NULL));
    CHECK_OK(w, d->copy(d, &r->loss, loss, sizeof r->loss, NULL));
    CHECK_OK(w, d->stream_sync(d, NULL));
    free(ids);
}
static void run_close(par_comm *w, par_cuda *cuda, run *r) {
    par_device *d = cuda ? par_cuda_device(cuda) : par_cpu();
    gpt_buffers_close(&r->model, &r->buffers);
    for (int i = 0; i < 4; i++) d->free(d, r->memory[i]);
    CHECK_OK(w, par_tp_close(r->tp));
    gpt_close(&r->model), free(r->grads);
}
static void models(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    cuda->max_shared_bytes = 16 << 10; // small tiles
    const int n = par_size(w);
    for (int i = 0; i<6; i += n> 2 ? 3 : 1) {
        const int t = n % 2 == 0 && i % 2   ? 2
                      : i % 3 == 0 && n < 4 ? n
                                            : 1,
                  c = n / t, bf16 = i == 2 || i == 5, llama = i % 2;
        if (4 % t || t * c != n) continue;
        gpt_config g;
        memset(&g, 0, sizeof g);
        g.n_layer = 1, g.n_head = 4, g.n_embd = bf16 ? 32 : 16, g.block_size = 3 * 2 * c, g.vocab_size = 29,
        g.bias = !llama, g.llama = llama, g.n_kv_head = llama ? 2 : 0;
        const int sequence = t > 1 && i % 2, ulysses = c == 2 && i == 3 && t == 1;
        par_comm *tp, *cp;
        run a, b;
        CHECK_OK(w, par_split(w, par_rank(w) / t, 0, &tp));
        CHECK_OK(w, par_split(w, par_rank(w) % t, 0, &cp));
        if (par_rank(w) == 0) SEED(i + n);
        cuda->fuses = i == 0 || i == 2;
        const float dropout = i == 2 || i == 4 ? 0.2f : 0;
        run_model(w, NULL, &g, tp, cp, sequence, ulysses, bf16, dropout, &a);
        run_model(w, cuda, &g, tp, cp, sequence, ulysses, bf16, dropout, &b);
        double worst = 0, max_value = 0;
        for (size_t k = 0; k < a.model.count; k++) {
            worst = test_larger(worst, fabs((double)a.grads[k] - (double)b.grads[k]));
            max_value = fmax(max_value, fabs((double)a.grads[k]));
        }
        if (!(fabs(a.loss - b.loss) <= (bf16 ? 2e-2 : 1e-5) * a.loss) ||
            !(worst <= (bf16 ? 4e-2 : 1e-4) * max_value))
            fprintf(stderr, "model %d, t %d, c %d: loss %g %g, gradients differ by %g of %g\n", i, t, c,
                    a.loss, b.loss, worst, max_value);
        CHECK(w, fabs(a.loss - b.loss) <= (bf16 ? 2e-2 : 1e-5) * a.loss);
        CHECK(w, worst <= (bf16 ? 4e-2 : 1e-4) * max_value && max_value > 0);
        run_close(w, NULL, &a), run_close(w, cuda, &b);
        CHECK_OK(w, par_close(tp));
        CHECK_OK(w, par_close(cp));
    }
    par_cuda_close(cuda);
}

#if defined(CUDA_EMU)
// ---- streams in 100 random orders, threads of a block in three: the same bits

static void seeds(par_comm *w) {
    if (par_size(w) != 2 || test_node_ranks) {
        CHECK_OK(w, par_barrier(w));
        return;
    }
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    cuda->max_shared_bytes = 16 << 10; // small tiles
    static const zero_case l = {3, PAR_ZERO_ADAMW, 2,       0,      8,    0, 0,
                                1, PAR_BF16,       PAR_F32, "host", 0.5f, 4, PAR_F32};
    static thread_local float first[6][512], now[6][512];
    gpt_config g;
    par_comm *alone;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    memset(&g, 0, sizeof g);
    g.n_layer = 1, g.n_head = 2, g.n_embd = 8, g.block_size = 4, g.vocab_size = 13, g.llama = 1;
    run one;
    for (int seed = 0; seed < (getenv("SOAK") ? 100 : 20); seed++) {
        int tensors[6], differ = 0;
        run again;
        CHECK_OK(w, par_barrier(w));
        if (par_rank(w) == 0) SEED(seed);
        run_model(w, cuda, &g, w, alone, 1, 0, 0, 0.1f, seed ? &again : &one);
        for (size_t i = 0; seed && i < one.model.count; i++) differ += one.grads[i] != again.grads[i];
        CHECK(w, !seed || one.loss == again.loss);
        if (seed) run_close(w, cuda, &again);
        if (seed % 4 == 0) { // the slower half
            par_zero *z = open_zero(w, &l, par_cuda_zero(cuda), tensors);
            for (int step = 0; step < 2; step++) {
                for (int m = 0; m < l.microbatches; m++) one_microbatch(w, z, cuda, tensors, &l, step, m, 0);
                CHECK_OK(w, par_zero_step(z, 1, NULL));
            }
            for (int t = 0; t < 6; t++)
                CHECK_OK(w, par_zero_read(z, tensors[t], PAR_ZERO_VALUE, seed ? now[t] : first[t]));
            for (int t = 0; t < 6 && seed; t++) differ += memcmp(now[t], first[t], count_of(t) * 4) != 0;
            CHECK_OK(w, par_zero_close(z));
        }
        CHECK(w, !differ && "the same bits in every order");
    }
    run_close(w, cuda, &one);
    CHECK_OK(w, par_close(alone));
    par_cuda_close(cuda);
}

// ---- the emulation finds planted faults

// Thread i reads what the opposite thread wrote. Waiting for the lanes of its own warp is not enough.
enum { NO_WAIT, WAIT_FOR_WARP, WAIT_FOR_BLOCK, WAITS };
static __global__ void reversed(float *x, int wait) {
    PAR__CUDA_SHARED(float, s);
    s[threadIdx.x] = x[threadIdx.x];
    if (wait == WAIT_FOR_WARP) __syncwarp();
    if (wait == WAIT_FOR_BLOCK) __syncthreads();
    x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
static __global__ void plus_one(float *x, const float *y, size_t n) {
    for (size_t i = threadIdx.x; i < n; i += blockDim.x) x[i] = y[i] + 1;
}
#if defined(PAR_CUDA_NCCL) && NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
static void nccl_refuses(par_comm *w, cudaStream_t stream, void *x) { // sums of 8-bit floats, as below sm_90
    ncclUniqueId id;
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    CHECK(w, !ncclGetUniqueId(&id) && ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
    CHECK(w, ncclAllReduce(x, x, 4, ncclFloat8e4m3, ncclSum, comm, stream) == ncclInvalidArgument);
    CHECK(w, ncclReduceScatter(x, x, 4, ncclFloat8e5m2, ncclMax, comm, stream) == ncclInvalidArgument);
    CHECK(w, ncclAllReduce(x, x, 4, ncclBfloat16, ncclSum, comm, stream) == ncclSuccess);
    CHECK(w, ncclAllGather(x, x, 4, ncclFloat8e4m3, comm, stream) == ncclSuccess);
    cudaStreamSynchronize(stream);
    ncclCommDestroy(comm);
}
#endif
static void instrument(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    cudaStream_t a = par_cuda_stream(cuda), b;
    cudaEvent_t event;
    enum { N = 128 };
    float host[N], *x = (float *)on_device(w, cuda, sizeof host),
                   *y = (float *)on_device(w, cuda, sizeof host);
    int caught[WAITS] = {0, 0, 0}, late[2] = {0, 0};
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    for (int how = 0; how < WAITS; how++)
        for (int order = 0; order < 3; order++) {
            for (int i = 0; i < N; i++) host[i] = (float)i;
            upload(cuda, x, host, sizeof host);
            emu_seed(1, (emu_order)order);
            CHECK_OK(w, par__cuda_launch(cuda, reversed, 1, N, N * sizeof(float), a, x, how));
            download(cuda, host, x, sizeof host);
            for (int i = 0; i < N; i++) caught[how] += host[i] != (float)(N - 1 - i);
        }
    CHECK(w, caught[NO_WAIT] > 0 && caught[WAIT_FOR_WARP] > 0 && "a missing barrier shows");
    CHECK(w, caught[WAIT_FOR_BLOCK] == 0 && "a correct kernel is right");
    for (int wait = 0; wait < 2; wait++)
        for (int seed = 0; seed < 100; seed++) {
            emu_seed((uint64_t)seed, EMU_FORWARD);
            cudaMemsetAsync(x, 0, sizeof host, a);
            par_cuda_sync(cuda);
            par__cuda_launch(cuda, plus_one, 1, 32, 0, a, x, x, (size_t)N); // x = 1
            cudaEventRecord(event, a);
            if (wait) cudaStreamWaitEvent(b, event, 0);
            par__cuda_launch(cuda, plus_one, 1, 32, 0, b, y, x, (size_t)N); // y = 2
            cudaStreamSynchronize(b);
            download(cuda, host, y, sizeof host);
            late[wait] += host[5] != 2;
        }
    if (late[1] || late[0] < 11 || late[0] > 99) fprintf(stderr, "late %d %d of 100\n", late[0], late[1]);
    CHECK(w, late[0] > 10 && late[0] < 100 && late[1] == 0 &&
                 "a missing event shows in some order, none when it is there");
#if defined(PAR_CUDA_NCCL) && NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    nccl_refuses(w, a, x);
#endif
    emu_fail_launches(1);
    CHECK(w, par__cuda_launch(cuda, plus_one, 1, 32, 0, a, x, x, (size_t)N) == PAR_ERR_SYSTEM);
    par_cuda_free(cuda, PAR_CUDA_DEVICE, x), par_cuda_free(cuda, PAR_CUDA_DEVICE, y);
    cudaEventDestroy(event), cudaStreamDestroy(b);
    par_cuda_close(cuda);
}
static void host_touches_device(par_comm *w) { // ends a process, as the real thing does
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    volatile char *p = (volatile char *)on_device(w, cuda, 100);
    par_cuda_sync(cuda);
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        close(2);
        p[3] = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(w, status != 0);
    par_cuda_free(cuda, PAR_CUDA_DEVICE, (void *)(uintptr_t)p);
    par_cuda_close(cuda);
}
#endif

#include "cuda_faults.h"
#if defined(CUDA_EMU)
#include "cuda_rules.h"
#include "cuda_overlap.h"
#endif

const test tests[] = {
    {"device", device, TEST_SERIAL, 1, 60},
    {"casts", casts, TEST_SERIAL, 1, 60},
    {"reduces", reduces, TEST_SERIAL, 1, 120},
    {"random_numbers", random_numbers, TEST_SERIAL, 1, 120},
    {"gemm", gemm, TEST_SERIAL, 1, 120},
    {"collectives", collectives, TEST_ANY, 1, 120},
    {"collectives_staged", collectives_staged, TEST_ANY, 2, 120},
#if defined(PAR_CUDA_NCCL)
    {"collectives_nccl", collectives_nccl, TEST_ANY, 1, 120},
    {"exact_nccl", exact_nccl, TEST_ANY, 1, 120},
#endif
    {"windows", windows, TEST_ANY, 1, 60},
    {"messages", messages, TEST_ANY, 1, 60},
    {"pipelines", pipelines, TEST_ANY | TEST_POWERS | TEST_SMALL, 2, 120},
#if defined(PAR_CUDA_NCCL)
    {"begun_messages", begun_messages, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 2, 60},
#endif
    {"splits", splits, TEST_ANY, 1, 60},
    {"mismatch", mismatch, TEST_ANY, 2, 60},
    {"zero_update", zero_update, TEST_SERIAL, 1, 120},
    {"zero_packs", zero_packs, TEST_SERIAL, 1, 60},
    {"zero_stages", zero_stages, TEST_RANKS, 1, 120},
    {"split_updates", split_updates, TEST_RANKS | TEST_SMALL, 2, 60},
    {"partial_sums", partial_sums, TEST_ANY, 1, 60},
    {"graph", graph, TEST_SERIAL, 1, 60},
    {"buddies", buddies, TEST_RANKS, 2, 60},
    {"zero_mistakes", zero_mistakes, TEST_ANY, 1, 60},
    {"initial_values", initial_values, TEST_SERIAL, 1, 60},
    {"tp_rows", tp_rows, TEST_SERIAL, 1, 120},
    {"tp_losses", tp_losses, TEST_SERIAL, 1, 120},
#if defined(PAR_CUDA_CUBLASLT)
    {"split_products", split_products, TEST_SERIAL, 1, 60},
    {"block_products", block_products, TEST_SERIAL, 1, 60},
    {"fused_products", fused_products, TEST_SERIAL, 1, 60},
    {"low_precision", low_precision, TEST_SERIAL, 1, 120},
#endif
    {"tensor_cores", tensor_cores, TEST_SERIAL, 1, 60},
    {"tp_attention", tp_attention, TEST_SERIAL, 1, 120},
    {"own_attention", own_attention, TEST_SERIAL, 1, 120},
    {"ring_blocks", ring_blocks, TEST_SERIAL, 1, 60},
    {"canonical_kernels", canonical_kernels, TEST_SERIAL, 1, 120},
    {"canonical_moments", canonical_moments, TEST_RANKS | TEST_POWERS | TEST_SMALL, 2, 60},
    {"narrow_sums", narrow_sums, TEST_ANY, 1, 60},
    {"models", models, TEST_ANY, 1, 120},
    {"never_arrives", never_arrives, TEST_FAULT, 2, 60},
    {"aborted", aborted, TEST_FAULT, 2, 60},
    {"deaths", deaths, TEST_SERIAL, 1, 120},
#if defined(PAR_CUDA_NCCL)
    {"revoked_nccl", revoked_nccl, TEST_SERIAL, 1, 60},
#endif
#if defined(CUDA_EMU)
    {"death_points", death_points, TEST_SERIAL, 1, 120},
    {"calls_in_order", calls_in_order, TEST_SERIAL, 1, 60},
    {"mappings", mappings, TEST_ALONE | TEST_RANKS, 2, 60},
    {"contexts", contexts, TEST_ALONE | TEST_RANKS, 2, 60},
    {"dies_before_event", dies_before_event, TEST_KILL | TEST_RANKS, 2, 60},
    {"entry_points", entry_points, TEST_SERIAL, 1, 60},
    {"devices", devices, TEST_ANY | TEST_RANKS, 2, 60},
    {"device_rules", device_rules, TEST_SERIAL, 1, 60},
#if defined(PAR_CUDA_CUBLASLT)
    {"products", products, TEST_SERIAL, 1, 60},
    {"epilogue_rules", epilogue_rules, TEST_SERIAL, 1, 60},
    {"tuning", tuning, TEST_ANY | TEST_RANKS | TEST_POWERS | TEST_SMALL, 1, 60},
    {"code_rules", code_rules, TEST_SERIAL, 1, 60},
#endif
#if PAR__CUDA_DNN
    {"cudnn_rules", cudnn_rules, TEST_SERIAL, 1, 60},
#endif
    {"broken_captures", broken_captures, TEST_SERIAL, 1, 60},
    {"captured_kit", captured_kit, TEST_ANY | TEST_RANKS, 1, 60},
    {"launch_limits", launch_limits, TEST_SERIAL, 1, 60},
    {"matrix_rules", matrix_rules, TEST_SERIAL, 1, 60},
    {"many_heads", many_heads, TEST_SERIAL, 1, 60},
    {"capture_rules", capture_rules, TEST_SERIAL, 1, 60},
    {"graph_keeps_scratch", graph_keeps_scratch, TEST_SERIAL, 1, 60},
#if defined(PAR_CUDA_NCCL)
    {"nccl_rules", nccl_rules, TEST_SERIAL, 1, 60},
    {"first_messages", first_messages, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"communicators", communicators, TEST_FAULT | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"captured_nccl", captured_nccl, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 1, 60},
    {"graphs_at_close", graphs_at_close, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"goes_on_nccl", goes_on_nccl, TEST_FAULT | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"copies_have_deadlines", copies_have_deadlines, TEST_FAULT | TEST_LAUNCHES | TEST_RANKS, 2, 60},
#endif
    {"separate_streams", separate_streams, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"attention_over_cp", attention_over_cp, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 2, 60},
#if defined(PAR_CUDA_NCCL)
    {"limited_ctas", limited_ctas, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 2, 60},
#if PAR__CUDA_WINDOWS
    {"window_rules", window_rules, TEST_SERIAL, 1, 60},
    {"aborts_in_windows", aborts_in_windows, TEST_FAULT | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"windows_cannot_abort", windows_cannot_abort, TEST_FAULT | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"engines_cannot_abort", engines_cannot_abort, TEST_FAULT | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"elastic_windows", elastic_windows, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"layers_in_windows", layers_in_windows, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 2, 60},
#endif
#endif
    {"rows_beside_products", rows_beside_products, TEST_ANY | TEST_LAUNCHES | TEST_RANKS, 2, 60},
    {"seeds", seeds, TEST_ANY, 2, 200},
    {"instrument", instrument, TEST_SERIAL, 1, 60},
    {"host_touches_device", host_touches_device, TEST_SERIAL, 1, 60},
#endif
};
const int test_count = (int)(sizeof tests / sizeof tests[0]);

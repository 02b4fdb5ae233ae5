// bench_cuda.cu - a GPU's kernels and collectives against what its memory can do, both in one run.
//
//     build/bench_cuda               a table
//     build/bench_cuda --json        one JSON object a line
//     build/bench_cuda --only rows   rows, product, attention or all_reduce alone
//
// Each figure is a median of rounds; in each round a copy from device to device is timed just before. A ratio
// is the bytes that the work must move (its floor), by its time, over what the copy moved by its time. Arrays
// hold random numbers: zeros need less power, and with them products are faster.
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_tp.h"
#include "par_zero.h"
#include "par_cuda.cuh"
#include "../examples/options.h"
#include "../examples/median.h"

#if !defined(BENCH_ROUNDS)
#define BENCH_ROUNDS 9 // the emulation, whose times mean nothing, has one
#endif
enum { ROUNDS = BENCH_ROUNDS };
typedef struct bench {
    size_t bytes; // of the largest array
    int json;
    const char *only; // a part, or ""
    par_comm *world;
    par_cuda *cuda;
    cudaEvent_t start, end;
    char *from, *to;  // of the copy
    uint16_t *random; // numbers from -1 to 1 as bf16; two of them are an f32 that is one, too
} bench;
enum { RANDOM_COUNT = 1 << 19 };

static void must(const bench *b, par_result r) {
    if (r == PAR_OK) return;
    fprintf(stderr, "bench_cuda: %s\n", par_last_error(b->world));
    exit(1);
}
static void must_cuda(const bench *b, cudaError_t e) {
    if (e) must(b, par_fail(b->world, PAR_ERR_SYSTEM, "CUDA: %s", cudaGetErrorString(e)));
}
static void *array(const bench *b, size_t bytes) {
    void *p;
    must(b, par_cuda_alloc(b->cuda, PAR_CUDA_DEVICE, bytes, &p));
    return p;
}
static void randomize(const bench *b, void *array, size_t bytes) {
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < 2 * RANDOM_COUNT ? bytes - at : 2 * RANDOM_COUNT;
        must_cuda(b, cudaMemcpy((char *)array + at, b->random, n, cudaMemcpyHostToDevice));
    }
}
static void *random_array(const bench *b, size_t bytes) {
    void *p = array(b, bytes);
    randomize(b, p, bytes);
    return p;
}
typedef void (*work_fn)(bench *b, void *user);
static double timed(bench *b, work_fn fn, void *user) { // seconds
    float ms = 0;
    must_cuda(b, cudaEventRecord(b->start, par_cuda_stream(b->cuda)));
    fn(b, user);
    must_cuda(b, cudaEventRecord(b->end, par_cuda_stream(b->cuda)));
    must_cuda(b, cudaEventSynchronize(b->end));
    must_cuda(b, cudaEventElapsedTime(&ms, b->start, b->end));
    return (double)ms / 1e3;
}
static void copy_array(bench *b, void *user) {
    (void)user;
    must_cuda(b,
              cudaMemcpyAsync(b->to, b->from, b->bytes, cudaMemcpyDeviceToDevice, par_cuda_stream(b->cuda)));
}
static void report(const bench *b, const char *name, const char *unit, double value, double ratio,
                   double target) {
    if (b->json)
        json_print("bench:%s value:%.5g unit:%s ratio:%.4g target:%.4g", name, value, unit, ratio, target);
    else
        printf("%-34s %10.1f %-8s ratio %6.3f   target %.2f%s\n", name, value, unit, ratio, target,
               ratio < target ? "  below" : "");
    fflush(stdout);
}
// floor: bytes that the work must move.
static void against_copy(bench *b, const char *name, double floor_bytes, double target, work_fn fn,
                         void *user) {
    double work[ROUNDS], copy[ROUNDS];
    fn(b, user); // the first time is slower
    for (int i = 0; i < ROUNDS; i++) {
        copy[i] = timed(b, copy_array, NULL) / (2 * (double)b->bytes);
        work[i] = timed(b, fn, user) / floor_bytes;
    }
    const double ratio = median_ratio(copy, work, ROUNDS);
    report(b, name, "GB/s", 1e-9 / median(work, ROUNDS), ratio, target);
}

// ---- par_zero.h's

typedef struct states {
    size_t n;
    float *w, *m, *v;
    void *stored, *g;
    double *sum;
} states;
static void adamw(bench *b, void *user) {
    const states *s = (const states *)user;
    par_zero_update a;
    memset(&a, 0, sizeof a);
    a.optimizer = PAR_ZERO_ADAMW, a.hyper.lr = 1e-3f, a.hyper.beta1 = 0.9f, a.hyper.beta2 = 0.95f,
    a.hyper.epsilon = 1e-8f;
    a.bias_correction1 = a.bias_correction2 = a.scale = 1;
    const par_zero_kernels *k = par_cuda_zero(b->cuda);
    must(b, k->update(k, &a, s->n, s->w, s->stored, PAR_BF16, s->g, PAR_BF16, s->m, s->v, NULL));
}
static void norm(bench *b, void *user) {
    const states *s = (const states *)user;
    const par_zero_kernels *k = par_cuda_zero(b->cuda);
    must(b, k->square_sum(k, s->g, PAR_BF16, s->n, 1, s->sum));
}
static void cast(bench *b, void *user) {
    const states *s = (const states *)user;
    par_device *d = par_cuda_device(b->cuda);
    must(b, d->cast(d, s->stored, PAR_BF16, s->w, PAR_F32, s->n, NULL));
}
static void bench_zero(bench *b) {
    states s;
    s.n = b->bytes / 4 / 32 * 32;
    s.w = (float *)random_array(b, s.n * 4), s.m = (float *)random_array(b, s.n * 4);
    s.v = (float *)array(b, s.n * 4), s.sum = (double *)array(b, 64); // squares: the first update writes them
    s.stored = array(b, s.n * 2), s.g = random_array(b, s.n * 2);
    against_copy(b, "AdamW (bf16 g; f32 w, m, v; bf16)", 28.0 * (double)s.n, 0.85, adamw, &s);
    against_copy(b, "global norm (bf16)", 2.0 * (double)s.n, 0.8, norm, &s);
    against_copy(b, "cast f32 to bf16", 6.0 * (double)s.n, 0.8, cast, &s);
    void *all[] = {s.w, s.m, s.v, s.stored, s.g, s.sum};
    for (int i = 0; i < 6; i++) par_cuda_free(b->cuda, PAR_CUDA_DEVICE, all[i]);
}

// ---- par_tp.h's

typedef struct rows {
    par_tp *tp;
    size_t rows, cols;
    void *x, *y, *z, *w;
    float *stats, *dw;
    int32_t *ids;
    int back;
    par_tp_attention attention;
    par_tp_tokens tokens;
} rows;
static void elementwise(bench *b, void *user, par_tp_elementwise what) {
    const rows *r = (const rows *)user;
    char *more[3] = {(char *)r->x, (char *)r->y, (char *)r->z}; // behind the half of each array that is used
    for (int i = 0; i < 3; i++) more[i] += r->rows / 2 * r->cols * 2;
    const int halves = what == PAR_TP_SWIGLU_BACKWARD; // five arrays
    must(b, par_cuda_tp(b->cuda)->elementwise(r->tp, what, halves ? r->rows / 2 : r->rows, r->cols,
                                              halves ? more[0] : r->z, more[1], r->cols, r->x, r->cols, r->y,
                                              r->z, r->cols));
}
static void gelu(bench *b, void *user) { elementwise(b, user, PAR_TP_GELU); }
static void gelu_backward(bench *b, void *user) { elementwise(b, user, PAR_TP_GELU_BACKWARD); }
static void swiglu(bench *b, void *user) { elementwise(b, user, PAR_TP_SWIGLU); }
static void swiglu_backward(bench *b, void *user) { elementwise(b, user, PAR_TP_SWIGLU_BACKWARD); }
static void add(bench *b, void *user) { elementwise(b, user, PAR_TP_ADD); }
static void add_bias(bench *b, void *user) {
    const rows *r = (const rows *)user;
    must(b, par_cuda_tp(b->cuda)->add_bias(r->tp, r->x, r->cols, r->w, r->rows, r->cols));
}
static void sum_rows(bench *b, void *user) {
    const rows *r = (const rows *)user;
    must(b, par_cuda_tp(b->cuda)->sum_rows(r->tp, r->dw, r->x, r->cols, r->rows, r->cols));
}
static void norm_of(bench *b, void *user, int rms, int back) {
    const rows *r = (const rows *)user;
    const par_tp_kernels *k = par_cuda_tp(b->cuda);
    must(b, back ? k->norm_backward(r->tp, r->z, r->dw, NULL, r->y, r->x, NULL, r->w, r->stats, r->rows,
                                    r->cols, rms)
                 : k->norm_forward(r->tp, r->z, r->stats, r->x, NULL, NULL, r->w, NULL, r->rows, r->cols, rms,
                                   1e-5f));
}
static void layer_norm_backward_sum(bench *b, void *user) { // as a residual branch ends: z += the gradient
    const rows *r = (const rows *)user;
    must(b, par_cuda_tp(b->cuda)->norm_backward(r->tp, r->z, r->dw, NULL, r->y, r->x, r->z, r->w, r->stats,
                                                r->rows, r->cols, 0));
}
static void layer_norm(bench *b, void *user) { norm_of(b, user, 0, 0); }
static void layer_norm_backward(bench *b, void *user) { norm_of(b, user, 0, 1); }
static void rms_norm(bench *b, void *user) { norm_of(b, user, 1, 0); }
static void rms_norm_backward(bench *b, void *user) { norm_of(b, user, 1, 1); }
static void dropout(bench *b, void *user) {
    const rows *r = (const rows *)user;
    par_tp_matrix x = {r->x, r->rows, r->cols, PAR_TP_REPLICATED},
                  z = {r->z, r->rows, r->cols, PAR_TP_REPLICATED};
    must(b, par_tp_dropout(r->tp, &r->tokens, 1, 0.1f, &x, &z));
}
static void rope(bench *b, void *user) {
    const rows *r = (const rows *)user;
    const par_tp_rotary rotary = {0, 0, 0, 0, 0};
    par_tp_matrix x = {r->x, r->rows, r->cols, PAR_TP_REPLICATED};
    must(b, par_tp_rope(r->tp, &r->tokens, r->cols / 64, 64, &rotary, 0, &x));
}
enum { TABLE_ROWS = 64 }; // of the embedding: it stays in the cache, and so only y or dy is in the floor
static void embed(bench *b, void *user) {
    const rows *r = (const rows *)user;
    must(b, par_cuda_tp(b->cuda)->embed(r->tp, r->y, r->ids, r->rows, r->w, 0, TABLE_ROWS, r->cols));
}
static void embed_backward(bench *b, void *user) {
    const rows *r = (const rows *)user;
    must(b,
         par_cuda_tp(b->cuda)->embed_backward(r->tp, r->dw, r->ids, r->rows, r->y, 0, TABLE_ROWS, r->cols));
}
static const struct {
    const char *name;
    double bytes; // the floor of an element, bf16
    work_fn fn;
} row_kernels[] = {
    {"GELU forward", 4, gelu},
    {"GELU backward", 6, gelu_backward},
    {"SwiGLU forward", 6, swiglu},
    {"SwiGLU backward", 5, swiglu_backward}, // 10, of half of the rows
    {"add", 6, add},
    {"add a bias", 4, add_bias},
    {"sum of rows", 2, sum_rows},
    {"LayerNorm forward", 4, layer_norm},
    {"LayerNorm backward", 6, layer_norm_backward},
    {"LayerNorm backward and sum", 8, layer_norm_backward_sum},
    {"RMSNorm forward", 4, rms_norm},
    {"RMSNorm backward", 6, rms_norm_backward},
    {"dropout", 4, dropout},
    {"RoPE", 4, rope},
    {"embedding forward", 2, embed},
    {"embedding backward", 2, embed_backward},
};
static void bench_rows(bench *b, rows *r, size_t bytes) { // widths of GPT-2 124M and of a 7B model
    for (size_t cols = 768; cols <= 4096; cols += 4096 - 768) {
        r->cols = cols, r->rows = bytes / 2 / cols & ~(size_t)15;
        if (!r->rows) continue; // small sizes, in a rehearsal
        r->tokens.sequence = r->rows % 1024 ? 16 : 1024, r->tokens.batch = r->rows / r->tokens.sequence;
        for (size_t i = 0; i < sizeof row_kernels / sizeof row_kernels[0]; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s, %zu columns", row_kernels[i].name, cols);
            against_copy(b, name, row_kernels[i].bytes * (double)r->rows * (double)cols, 0.8,
                         row_kernels[i].fn, r);
        }
    }
}
static void entropy(bench *b, void *user) { // loss and gradient, in place
    const rows *r = (const rows *)user;
    par_tp_loss loss;
    memset(&loss, 0, sizeof loss);
    loss.vocabulary = r->cols, loss.ignore_index = -1;
    par_tp_matrix m = {r->x, r->rows, r->cols, PAR_TP_VOCABULARY};
    double *sum = (double *)(void *)r->dw;
    must(b, par_tp_loss_forward_backward(r->tp, &loss, &m, r->ids, r->stats, NULL, sum,
                                         (size_t *)(void *)(sum + 1), 1e-6f, &m));
}
static void run_attention(bench *b, void *user) {
    const rows *r = (const rows *)user;
    const size_t c = r->attention.heads * r->attention.dim;
    par_tp_matrix x = {r->x, r->rows, 3 * c, PAR_TP_HIDDEN}, y = {r->y, r->rows, c, PAR_TP_HIDDEN},
                  dx = {r->z, r->rows, 3 * c, PAR_TP_HIDDEN};
    if (!r->back)
        must(b, par_tp_attention_forward(r->tp, &r->attention, &r->tokens, 0, &x, r->stats, &y));
    else
        must(b, par_tp_attention_backward(r->tp, &r->attention, &r->tokens, 0, &y, &x, &y, r->stats, &dx));
}
static void product(bench *b, void *user) {
    const rows *r = (const rows *)user;
    must(b, par_cuda_tp(b->cuda)->gemm(r->tp, 0, 1, r->rows, r->rows, r->rows, r->x, r->rows, r->y, r->rows,
                                       0, r->z, PAR_BF16, r->rows, NULL));
}
static double rate(bench *b, const char *name, double operations, work_fn fn,
                   void *user) { // TFLOP/s
    double t[ROUNDS];
    fn(b, user);
    for (int i = 0; i < ROUNDS; i++) t[i] = timed(b, fn, user);
    const double value = operations / median(t, ROUNDS) / 1e12;
    report(b, name, "TFLOP/s", value, 1, 0);
    return value;
}
static void bench_attention(bench *b, rows *r, double peak) { // own kernels and a library's take turns
    static const char *const names[2][2] = {{"attention forward, causal, dim 64", "attention forward, cuDNN"},
                                            {"attention backward", "attention backward, cuDNN"}};
    const double work =
        2.0 * 2 * (double)r->rows * (double)r->tokens.sequence / 2 * 1024; // half of the scores
    enum { SAMPLE = 1 << 16 }; // bytes of the last tokens' results: two kernels' differ in their last bits
    static char sample[2][SAMPLE];
    par_cuda *own;
    par_cuda_desc c;
    par_tp_desc d;
    rows both[2] = {*r, *r};
#if defined(PAR_CUDA_CUDNN)
    const int variants = 2;
#else
    const int variants = 1;
#endif
    memset(&c, 0, sizeof c);
    memset(&d, 0, sizeof d);
    c.stream = par_cuda_stream(b->cuda), c.own_attention = 1;
    must(b, par_cuda_open(&c, &own));
    d.tp = b->world, d.dtype = PAR_BF16, d.kernels = par_cuda_tp(own);
    must(b, par_tp_open(&d, &both[0].tp));
    for (int back = 0; back < 2; back++) {
        double t[2][ROUNDS];
        for (int i = -1; i < ROUNDS; i++) // the first: to warm up
            for (int v = 0; v < variants; v++) {
                both[v].back = back;
                t[v][i < 0 ? 0 : i] = timed(b, run_attention, &both[v]);
                const char *end = (const char *)(back ? r->z : r->y) + r->rows * 1024 * (back ? 6 : 2);
                if (i < 0) must_cuda(b, cudaMemcpy(sample[v], end - SAMPLE, SAMPLE, cudaMemcpyDeviceToHost));
            }
        const int fell_back = variants == 2 && !memcmp(sample[0], sample[1], SAMPLE);
        if (fell_back && b->json)
            json_print("bench:%s skipped:%s", names[back][1], "cuDNN has no plan for it");
        if (fell_back && !b->json) printf("%-34s cuDNN has no plan for it\n", names[back][1]);
        for (int v = 0; v < variants - fell_back; v++) {
            const double value = (back ? 2.5 : 1) * work / median(t[v], ROUNDS) / 1e12;
            report(b, names[back][v], "TFLOP/s", value, value / peak, 0);
        }
    }
    must(b, par_tp_close(both[0].tp));
    must(b, par_cuda_close(own));
}
// The head of GPT-2 and its loss, forward and backward: logits of all rows, and of some at a time.
typedef struct head_bench {
    par_tp *tp;
    par_tp_linear layer;
    par_tp_loss loss;
    par_tp_matrix x, dx;
    const int32_t *ids;
    size_t chunk_rows;
    double *sum;
} head_bench;
static void run_head(bench *b, void *user) {
    head_bench *h = (head_bench *)user;
    must(b, par_tp_head_forward_backward(h->tp, &h->layer, &h->loss, &h->x, h->ids, h->chunk_rows, NULL,
                                         h->sum, (size_t *)(void *)(h->sum + 1), 1e-6f, &h->dx));
}
static void bench_head(bench *b, const rows *r, double peak) {
    const int large = b->bytes >= (size_t)1 << 30;
    const size_t in = large ? 768 : 64, n = large ? 65536 : 128;
    head_bench h;
    memset(&h, 0, sizeof h);
    h.tp = r->tp, h.ids = r->ids, h.sum = (double *)(void *)r->dw, h.loss.ignore_index = -1;
    h.layer.in = in, h.layer.out = h.loss.vocabulary = large ? 50257 : 500, h.layer.vocab_parallel = 1;
    must(b, par_tp_linear_open(h.tp, &h.layer));
    const size_t grad_bytes = h.layer.out * in * sizeof(float);
    h.layer.weight.data = r->y, h.layer.weight.grad = (float *)array(b, grad_bytes);
    must_cuda(b, cudaMemset(h.layer.weight.grad, 0, grad_bytes));
    const par_tp_matrix x = {r->x, n, in, PAR_TP_REPLICATED};
    h.x = h.dx = x, h.dx.data = r->z;
    for (size_t chunk = n; chunk >= n / 8; chunk = chunk == n ? n / 4 : chunk / 2) {
        char name[64];
        double t[ROUNDS];
        h.chunk_rows = chunk;
        for (int i = -1; i < ROUNDS; i++) t[i < 0 ? 0 : i] = timed(b, run_head, &h);
        const double value = 6.0 * (double)n * (double)in * (double)h.layer.out / median(t, ROUNDS) / 1e12;
        snprintf(name, sizeof name, "head and loss, %zu rows at a time", chunk);
        report(b, name, "TFLOP/s", value, value / peak, 0);
    }
    par_cuda_free(b->cuda, PAR_CUDA_DEVICE, h.layer.weight.grad);
}
static int wanted(const bench *b, const char *part) { return !*b->only || !strcmp(b->only, part); }
static void bench_tp(bench *b) {
    rows r;
    par_tp_desc d;
    const size_t bytes = b->bytes / 2;
    memset(&r, 0, sizeof r), memset(&d, 0, sizeof d);
    d.tp = b->world, d.dtype = PAR_BF16, d.kernels = par_cuda_tp(b->cuda);
    must(b, par_tp_open(&d, &r.tp));
    r.x = random_array(b, bytes), r.y = random_array(b, bytes), r.z = random_array(b, bytes);
    r.w = random_array(b, 1 << 20), r.dw = (float *)array(b, 2 << 20);
    r.ids = (int32_t *)array(b, bytes / 16), r.stats = (float *)array(b, bytes / 16);
    int32_t *ids = (int32_t *)malloc(bytes / 16);
    for (size_t i = 0; ids && i < bytes / 64; i++) ids[i] = (int32_t)(i * 37 % TABLE_ROWS);
    if (ids) must_cuda(b, cudaMemcpy(r.ids, ids, bytes / 16, cudaMemcpyHostToDevice));
    free(ids);
    if (wanted(b, "rows")) {
        bench_rows(b, &r, bytes);
        r.cols = bytes >= 64 * par_tp_ld(PAR_TP_VOCABULARY, 50257) ? 50257 : 500; // GPT-2's vocabulary
        r.rows = bytes / 2 / par_tp_ld(PAR_TP_VOCABULARY, r.cols);
        if (r.rows > bytes / 64) r.rows = bytes / 64;
        against_copy(b, "cross entropy, both ways", 4 * (double)r.rows * (double)r.cols, 0.8, entropy, &r);
    }
    size_t edge = 8192;
    double peak = 0;
    while (edge * edge * 2 > bytes) edge /= 2;
    r.rows = edge;
    randomize(b, r.x, bytes), randomize(b, r.y, bytes); // the kernels of rows have written there
    if (wanted(b, "product") || wanted(b, "attention"))
        peak = rate(b, "matrix product, bf16", 2 * pow((double)edge, 3), product, &r);
    if (wanted(b, "product")) bench_head(b, &r, peak);
    r.attention.heads = 16, r.attention.dim = 64, r.tokens.sequence = edge / 4, r.tokens.batch = 1;
    while (r.tokens.batch * 2 * r.tokens.sequence * 3 * 1024 * 2 <= bytes && r.tokens.batch < 8)
        r.tokens.batch *= 2;
    r.rows = r.tokens.batch * r.tokens.sequence;
    if (wanted(b, "attention") && r.rows * 3 * 1024 * 2 <= bytes && r.rows * 16 * 4 <= bytes / 16)
        bench_attention(b, &r, peak);
    void *all[] = {r.x, r.y, r.z, r.w, r.dw, r.ids, r.stats};
    must(b, par_tp_close(r.tp));
    for (int i = 0; i < 7; i++) par_cuda_free(b->cuda, PAR_CUDA_DEVICE, all[i]);
}

// ---- all_reduce of n ranks on one GPU: 2 n S bytes through its memory

typedef struct together {
    size_t bytes; // of all ranks' arrays
    double seconds[64];
} together;
static int reduce_rank(par_comm *w, void *user) {
    together *t = (together *)user;
    par_cuda *cuda;
    par_cuda_desc d;
    const size_t n = t->bytes / (size_t)par_size(w) / 4;
    void *x, *y;
    memset(&d, 0, sizeof d);
    d.comm = w, d.device = 1, d.backend = PAR_CUDA_PEER;
    if (par_cuda_open(&d, &cuda) || par_cuda_alloc(cuda, PAR_CUDA_DEVICE, n * 4, &x) ||
        par_cuda_alloc(cuda, PAR_CUDA_DEVICE, n * 4, &y))
        return 1;
    for (int i = -1; i < ROUNDS; i++) {
        if (par_cuda_sync(cuda) || par_barrier(w)) return 1;
        const double start = par_seconds(w);
        if (par_all_reduce(x, y, n, PAR_F32, PAR_SUM, w) || par_cuda_sync(cuda) || par_barrier(w)) return 1;
        if (par_rank(w) == 0 && i >= 0) t->seconds[i] = par_seconds(w) - start;
    }
    par_cuda_free(cuda, PAR_CUDA_DEVICE, x), par_cuda_free(cuda, PAR_CUDA_DEVICE, y), par_cuda_close(cuda);
    return 0;
}
static void bench_all_reduce(bench *b, int n) {
    together t;
    double copy[ROUNDS], work[ROUNDS];
    char name[64];
    t.bytes = b->bytes;
    for (int i = 0; i < ROUNDS; i++) copy[i] = timed(b, copy_array, NULL) / (2 * (double)b->bytes);
    par_desc desc = {};
    desc.rank_count = n;
    must(b, par_run_threads(&desc, reduce_rank, &t));
    for (int i = 0; i < ROUNDS; i++) work[i] = t.seconds[i] / (2 * (double)t.bytes);
    snprintf(name, sizeof name, "all_reduce, %d ranks on one GPU", n);
    report(b, name, "GB/s", 1e-9 / median(work, ROUNDS), median(copy, ROUNDS) / median(work, ROUNDS), 0.8);
}

int main(int argc, char **argv) {
    bench b;
    memset(&b, 0, sizeof b);
    b.bytes = (size_t)1 << 30, b.only = "";
    option options[] = {{"--bytes", OPTION_SIZE, &b.bytes, "of the largest array", 1 << 18, INFINITY},
                        {"--only", OPTION_TEXT, &b.only, "rows, product, attention or all_reduce"},
                        {"--json", OPTION_FLAG, &b.json, "one JSON object a line"}};
    const int parsed = options_parse(argc, argv, options, 3,
                                     "bench_cuda: a GPU's kernels against a copy, all_reduce on one GPU");
    if (parsed) return parsed == 1 ? 0 : 2;
    if (!wanted(&b, "rows") && !wanted(&b, "product") && !wanted(&b, "attention") &&
        !wanted(&b, "all_reduce"))
        return fprintf(stderr, "bench_cuda: --only %s: it is rows, product, attention or all_reduce\n",
                       b.only),
               2;
    par_cuda_desc d;
    par_desc one;
    memset(&d, 0, sizeof d), memset(&one, 0, sizeof one);
    one.rank_count = 1;
    if (par_open(&one, &b.world)) return 1;
    d.comm = b.world;
    must(&b, par_cuda_open(&d, &b.cuda));
    struct cudaDeviceProp properties;
    must_cuda(&b, cudaGetDeviceProperties(&properties, 0));
    if (b.json)
        json_print("gpu:%s bytes:%zu", properties.name, b.bytes);
    else
        printf("%s, arrays of up to %zu bytes\n", properties.name, b.bytes);
    must_cuda(&b, cudaEventCreate(&b.start));
    must_cuda(&b, cudaEventCreate(&b.end));
    b.random = (uint16_t *)malloc(2 * RANDOM_COUNT);
    if (!b.random) must(&b, par_fail(b.world, PAR_ERR_MEMORY, "no memory"));
    for (size_t i = 0; i < RANDOM_COUNT; i++) {
        const double x = 2 * par_uniform(1, 2, i) - 1;
        par_cast(b.random + i, PAR_BF16, &x, PAR_F64, 1);
    }
    b.from = (char *)random_array(&b, b.bytes), b.to = (char *)array(&b, b.bytes);
    double t[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) t[i < 0 ? 0 : i] = timed(&b, copy_array, NULL);
    report(&b, "copy, device to device", "GB/s", 2e-9 * (double)b.bytes / median(t, ROUNDS), 1, 1);
    if (wanted(&b, "rows")) bench_zero(&b);
    bench_tp(&b);
    for (int n = 2; n <= 8 && wanted(&b, "all_reduce"); n *= 2) bench_all_reduce(&b, n);
    par_cuda_free(b.cuda, PAR_CUDA_DEVICE, b.from), par_cuda_free(b.cuda, PAR_CUDA_DEVICE, b.to);
    cudaEventDestroy(b.start), cudaEventDestroy(b.end), free(b.random);
    par_cuda_close(b.cuda);
    const int bad = par_close(b.world) != PAR_OK;
    return output_failed("bench_cuda") || bad;
}

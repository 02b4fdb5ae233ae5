// bench_tp.c - what par_tp.h's layers cost: time, bytes kept, bytes sent, each beside its prediction; the
// share of the matrix product library's own speed that a transformer block and a whole training step reach.
//
//     build/bench_tp                        a block as wide as GPT-2 small's; 1 rank, then 2
//     build/bench_tp --n_embd 1024 --n_head 16 --sequence 1024 --json
//
// One thread a rank. Rank 0 alone measures what is said of one rank, while the others sleep. Times are
// medians. Model FLOPs as published (Narayanan et al. 2021): 72 B s h^2 (1 + s/6h) a layer, forward and
// backward, of which causal attention needs half of the second term.
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_tp.h"
#include "par_zero.h"

#include "../examples/options.h"
#include "../examples/median.h"
#include <time.h>
#include "../examples/gpt/model.h"

typedef struct settings {
    int n_embd, n_head, sequence, batch, iterations, json, llama, sampling, attention;
} settings;

typedef struct bench {
    settings o;
    par_comm *world, *self;
    double gemm, copy; // floating point operations, and bytes, a second, of one rank
} bench;

static void must_alloc(int ok) {
    if (!ok) exit(fprintf(stderr, "bench_tp: out of memory\n") != 0);
}
static void must(const bench *b, par_result r) {
    if (r == PAR_OK) return;
    fprintf(stderr, "bench_tp: rank %d: %s\n", par_rank(b->world), par_last_error(b->world));
    exit(1);
}

// Processor time, by which what one rank computes alone is compared: other programs count less.
static double cpu_seconds(void) { return (double)clock() / (double)CLOCKS_PER_SEC; }
// Median seconds of fn(user), the ranks of comm starting together; the slowest of them counts.
static double time_of(bench *b, par_comm *comm, void (*fn)(void *), void *user) {
    double *t = (double *)calloc((size_t)b->o.iterations, sizeof *t);
    must_alloc(t != NULL);
    for (int i = -2; i < b->o.iterations; i++) {
        must(b, par_barrier(comm));
        const double start = par_seconds(comm);
        fn(user);
        if (i >= 0) t[i] = par_seconds(comm) - start;
    }
    must(b, par_all_reduce(t, t, (size_t)b->o.iterations, PAR_F64, PAR_MAX, comm));
    const double seconds = median(t, b->o.iterations);
    return free(t), seconds;
}

// ---- what the machine can do ------------------------------------------------------------------------------

static void select_gemm(bench *b) { // the library or kernels that multiply, and the speed of all candidates
    const size_t rows = (size_t)(b->o.batch * b->o.sequence), C = (size_t)b->o.n_embd;
    const par_gemm_shape shapes[] = {
        {0, 1, rows, 4 * C, C, 1}, {0, 0, rows, C, 4 * C, 1}, {1, 0, 4 * C, C, rows, 1}};
    must(b, par_gemm_select(shapes, 3, b->world));
    const par_gemm_report r = par_gemm_get();
    if (par_rank(b->world)) return;
    for (int i = 0; i < r.count; i++)
        if (b->o.json)
            json_print("gemm:%s race_gflops:%?.1f chosen:%b note:%s", r.name[i],
                       r.flops[i] > 0 ? r.flops[i] * 1e-9 : (double)NAN, i == r.chosen, r.note[i]);
        else if (r.flops[i] > 0 || i == r.chosen)
            printf("# %-10s %s %6.1f GFLOP/s in the race%s%s\n", r.name[i], i == r.chosen ? "*" : " ",
                   r.flops[i] * 1e-9, *r.note[i] ? ": " : "", r.note[i]);
}
static void measure_machine(bench *b) {
    const size_t rows = (size_t)b->o.batch * (size_t)b->o.sequence, C = (size_t)b->o.n_embd;
    const size_t shapes[][3] = {
        {rows, 3 * C, C}, {rows, 4 * C, C}, {rows, C, 4 * C}, {1024, 1024, 1024}, {512, 512, 512}};
    const size_t count = MAX(rows * 4 * C, (size_t)4 << 20);
    float *x = (float *)malloc(count * 4), *y = (float *)malloc(count * 4), *z = (float *)malloc(count * 4);
    must_alloc(x && y && z);
    for (size_t i = 0; i < count; i++) x[i] = y[i] = 0.5f, z[i] = 0;
    for (size_t s = 0; s < 5; s++)
        for (int i = 0; i < 6; i++) {
            const size_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
            const double start = par_seconds(b->world);
            must(b, par_gemm(0, 1, m, n, k, 1, x, k, y, k, 0, z, n));
            b->gemm =
                fmax(b->gemm, 2.0 * (double)m * (double)n * (double)k / (par_seconds(b->world) - start));
        }
    for (int i = 0; i < 6; i++) {
        const double start = par_seconds(b->world);
        memcpy(z, x, count * 4);
        b->copy = fmax(b->copy, 8.0 * (double)count / (par_seconds(b->world) - start));
    }
    free(x), free(y), free(z);
}
// The canonical products of a linear layer, alternating with those of the chosen library.
static void measure_canonical(bench *b) {
    const size_t rows = (size_t)b->o.sequence, C = (size_t)b->o.n_embd, F = 4 * C;
    const struct {
        const char *what;
        int ta, tb;
        size_t m, n, k;
    } forms[] = {{"forward", 0, 1, rows, F, C}, {"input", 0, 0, rows, C, F}, {"weight", 1, 0, F, C, rows}};
    const size_t count = MAX(rows, C) * F;
    float *x = (float *)malloc(count * 4), *y = (float *)malloc(count * 4), *z = (float *)malloc(count * 4);
    must_alloc(x && y && z);
    for (size_t i = 0; i < count; i++) x[i] = y[i] = 0.5f, z[i] = 0;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        const size_t m = forms[f].m, n = forms[f].n, k = forms[f].k;
        const size_t lda = forms[f].ta ? m : k, ldb = forms[f].tb ? k : n;
        double speed[2] = {0, 0}; // of the library, and canonical
        for (int i = 0; i < 2 * b->o.iterations; i++) {
            const double start = par_seconds(b->world);
            must(b, i & 1 ? par_gemm_canonical(forms[f].ta, forms[f].tb, m, n, k, 1, x, lda, y, ldb, 0, z, n)
                          : par_gemm(forms[f].ta, forms[f].tb, m, n, k, 1, x, lda, y, ldb, 0, z, n));
            speed[i & 1] = fmax(speed[i & 1],
                                2e-9 * (double)m * (double)n * (double)k / (par_seconds(b->world) - start));
        }
        if (b->o.json)
            json_print("canonical:%s m:%zu n:%zu k:%zu gflops:%.1f library_gflops:%.1f vs_library:%.4f",
                       forms[f].what, m, n, k, speed[1], speed[0], speed[1] / speed[0]);
        else
            printf("# canonical product, %-7s %zu x %zu x %zu: %.1f GFLOP/s, %.2f of %s\n", forms[f].what, m,
                   n, k, speed[1], speed[1] / speed[0], par_gemm_name());
    }
    free(x), free(y), free(z);
}

// ---- one block, split as the context says -----------------------------------------------------------------

typedef struct block {
    bench *b;
    par_tp *tp;
    gpt_model m;
    gpt_buffers buffers;
    par_tp_tokens tokens;
    par_comm *data; // gradients are summed over it; NULL: one rank
    float *w, *d;
    int step; // which layer is measured
} block;

static void open_block(block *k, bench *b, par_comm *tp_comm, int sequence, int batch, int pieces) {
    const gpt_config g = {.n_layer = 1,
                          .n_head = b->o.n_head,
                          .n_embd = b->o.n_embd,
                          .block_size = b->o.sequence,
                          .vocab_size = 64,
                          .bias = !b->o.llama,
                          .llama = b->o.llama};
    par_tp_desc d;
    memset(k, 0, sizeof *k);
    memset(&d, 0, sizeof d);
    d.tp = tp_comm, d.sequence_parallel = sequence, d.seed = 1, d.row_pieces = pieces;
    k->b = b;
    must(b, par_tp_open(&d, &k->tp));
    must(b, gpt_open(&k->m, &g, k->tp, sequence));
    k->w = (float *)calloc(k->m.count, 4), k->d = (float *)par_alloc(tp_comm, k->m.count * 4);
    k->tokens.batch = (size_t)batch, k->tokens.sequence = (size_t)b->o.sequence;
    must_alloc(k->w && k->d && gpt_buffers_open(&k->m, &k->buffers, (size_t)batch * (size_t)b->o.sequence));
    gpt_set_memory(&k->m, k->w, k->d);
    must(b, gpt_init_weights(&k->m));
    // tokens must differ; which they are does not matter
    float *x = (float *)k->buffers.layers[0].x.data, *dx = (float *)k->buffers.dx.data;
    const size_t rows = (size_t)batch * (size_t)b->o.sequence / (sequence ? (size_t)k->m.t : 1),
                 n = rows * (size_t)b->o.n_embd;
    for (size_t i = 0; i < n; i++) x[i] = par_uniform(1, 1, i) - 0.5f, dx[i] = par_uniform(1, 2, i) - 0.5f;
    par_tp_matrix *both[2] = {&k->buffers.layers[0].x, &k->buffers.dx};
    for (int i = 0; i < 2; i++) {
        both[i]->rows = rows, both[i]->cols = (size_t)b->o.n_embd;
        both[i]->layout = sequence ? PAR_TP_SEQUENCE : PAR_TP_REPLICATED;
    }
}
static void close_block(block *k) {
    par_comm *comm = par_tp_comm(k->tp);
    must(k->b, par_tp_close(k->tp));
    must(k->b, par_free(comm, k->d));
    gpt_buffers_close(&k->m, &k->buffers), gpt_close(&k->m), free(k->w);
}
static void run_block(void *user) { // forward and backward; with other ranks' batches: sum the gradients
    block *k = (block *)user;
    par_request request = {NULL, 0};
    must(k->b, gpt_layer_forward(&k->m, &k->buffers.layers[0], &k->tokens, NULL, 0, &k->buffers.x));
    must(k->b, gpt_layer_backward(&k->m, &k->buffers.layers[0], &k->buffers, &k->tokens, NULL, 0));
    if (k->data) {
        must(k->b, par_all_reduce_begin(k->d, k->d, k->m.count, PAR_F32, PAR_SUM, k->data, &request));
        must(k->b, par_wait(&request));
    }
}

// ---- its layers, one by one -------------------------------------------------------------------------------

typedef struct step {
    const char *name;
    par_result (*forward)(block *k), (*backward)(block *k);
} step;
#define STEP(id, forward, backward)                                                                          \
    static par_result forward_##id(block *k) {                                                               \
        par_tp_block *l = &k->m.layers[0];                                                                   \
        par_tp_block_saved *s = &k->buffers.layers[0].saved;                                                 \
        par_tp_matrix *x = &k->buffers.layers[0].x;                                                          \
        gpt_buffers *b = &k->buffers;                                                                        \
        return (void)l, (void)s, (void)x, (void)b, forward;                                                  \
    }                                                                                                        \
    static par_result backward_##id(block *k) {                                                              \
        par_tp_block *l = &k->m.layers[0];                                                                   \
        par_tp_block_saved *s = &k->buffers.layers[0].saved;                                                 \
        par_tp_matrix *x = &k->buffers.layers[0].x;                                                          \
        gpt_buffers *b = &k->buffers;                                                                        \
        return (void)l, (void)s, (void)x, (void)b, backward;                                                 \
    }
// Each layer runs on what those before it left in the buffers.
STEP(norm, par_tp_norm_forward(k->tp, &l->norm1, x, s->stats1, &s->norm1),
     par_tp_norm_backward(k->tp, &l->norm1, &s->norm1, x, s->stats1, &b->dy))
STEP(qkv, par_tp_linear_forward(k->tp, &l->qkv, &s->norm1, NULL, &s->qkv),
     par_tp_linear_backward(k->tp, &l->qkv, &s->qkv, &s->norm1, &b->dy))
STEP(attention,
     par_tp_attention_forward(k->tp, &k->m.layers[0].attention, &k->tokens, 0, &s->qkv, s->lse, &s->att),
     par_tp_attention_backward(k->tp, &k->m.layers[0].attention, &k->tokens, 0, &s->att, &s->qkv, &s->att,
                               s->lse, &s->dup))
STEP(proj, par_tp_linear_forward(k->tp, &l->proj, &s->att, NULL, &s->mid),
     par_tp_linear_backward(k->tp, &l->proj, &s->mid, &s->att, &s->wide))
STEP(up, par_tp_linear_forward(k->tp, &l->up, &s->norm1, NULL, &s->up),
     par_tp_linear_backward(k->tp, &l->up, &s->up, &s->norm1, &b->dy))
STEP(gelu, par_tp_gelu_forward(k->tp, &s->up, &s->act), par_tp_gelu_backward(k->tp, &s->act, &s->up, &s->dup))
STEP(swiglu, par_tp_swiglu_forward(k->tp, &s->up, &s->act),
     par_tp_swiglu_backward(k->tp, &s->act, &s->up, &s->dup))
STEP(down, par_tp_linear_forward(k->tp, &l->down, &s->act, NULL, &b->x),
     par_tp_linear_backward(k->tp, &l->down, &b->x, &s->act, &s->wide))
static const step steps[] = {{"norm", forward_norm, backward_norm},
                             {"qkv (column)", forward_qkv, backward_qkv},
                             {"attention", forward_attention, backward_attention},
                             {"projection (row)", forward_proj, backward_proj},
                             {"up (column)", forward_up, backward_up},
                             {"gelu", forward_gelu, backward_gelu},
                             {"swiglu", forward_swiglu, backward_swiglu},
                             {"down (row)", forward_down, backward_down}};
enum { STEPS = (int)(sizeof steps / sizeof steps[0]) };
static void run_forward(void *user) {
    block *k = (block *)user;
    must(k->b, steps[k->step].forward(k));
}
static void run_backward(void *user) {
    block *k = (block *)user;
    must(k->b, steps[k->step].backward(k));
}

typedef struct cost { // of a step, forward: predicted
    double flops, bytes;
    size_t kept, sent; // bytes; elements over tp, forward and backward
} cost;
static cost cost_of(const block *k, int i) {
    const par_tp_block *l = &k->m.layers[0];
    const size_t rows = par_tp_rows(k->tp, &k->tokens), C = (size_t)k->m.config.n_embd, t = (size_t)k->m.t;
    const par_tp_linear *linear = i == 1 ? &l->qkv : i == 3 ? &l->proj : i == 4 ? &l->up : &l->down;
    const size_t n = rows * C * (t - 1) / t, s = k->tokens.sequence;
    const double r = (double)rows, own = r / (k->m.sequence_parallel ? (double)t : 1),
                 up = (double)l->up.weight.local_rows;
    cost c = {0, 0, 0, 0};
    switch (i) {
    case 0: c.bytes = 2 * own * (double)C * 4, c.kept = par_tp_norm_save_bytes(k->tp, &l->norm1, rows); break;
    case 2: // scores and values: half of s x s, being causal
        c.flops = 2 * r * (double)s * (double)C / (double)t;
        c.kept = par_tp_attention_save_bytes(k->tp, &k->m.layers[0].attention, rows);
        break;
    case 5: c.bytes = 2 * r * up * 4, c.kept = rows * l->up.weight.local_rows * 4; break;
    case 6: c.bytes = 1.5 * r * up * 4, c.kept = rows * l->up.weight.local_rows * 4; break;
    default:
        c.flops = 2 * r * (double)linear->weight.local_rows * (double)linear->weight.local_cols;
        c.kept = par_tp_linear_save_bytes(k->tp, linear, rows, 0);
        // row: a sum forward (and with sequence parallelism a gather backward); column: the same the other
        // way round, and the gather for the weights once more
        c.sent = k->m.sequence_parallel ? (linear->row_parallel ? 2 * n : 3 * n) : 2 * n;
    }
    return c;
}
static size_t kept_in(const par_tp_matrix *m) { return m->rows * m->cols * sizeof(float); }
static size_t kept_of(const block *k, int i) { // what backward reads, as forward left it
    const par_tp_block_saved *s = &k->buffers.layers[0].saved;
    const par_tp_matrix *x = &k->buffers.layers[0].x;
    const size_t heads = (size_t)(k->m.config.n_head / k->m.t);
    switch (i) {
    case 0: return kept_in(x) + x->rows * (k->m.config.llama ? 1 : 2) * sizeof(float);
    case 2: return kept_in(&s->qkv) + kept_in(&s->att) + s->qkv.rows * heads * sizeof(float);
    case 3: return kept_in(&s->att);
    case 5:
    case 6: return kept_in(&s->up);
    case 7: return kept_in(&s->act);
    default: return kept_in(&s->norm1);
    }
}
// Of a whole block, with no matrix counted twice.
static size_t kept_predicted(const block *k) {
    size_t sum = 2 * cost_of(k, 0).kept; // two norms
    for (int i = 1; i < STEPS; i++)
        if (i != 3 && i != (k->m.config.llama ? 5 : 6)) sum += cost_of(k, i).kept; // 3: attention's output
    return sum;
}
static size_t kept_by(const block *k) {
    const par_tp_block_saved *s = &k->buffers.layers[0].saved;
    return 2 * kept_of(k, 0) + kept_of(k, 2) + kept_in(&s->norm1) + kept_in(&s->norm2) + kept_in(&s->up) +
           kept_in(&s->act);
}
static uint64_t sent_over(const block *k) {
    uint64_t sum = 0;
    for (int i = 0; i < PAR_KIND_COUNT; i++)
        sum += par_ledger_get(par_tp_comm(k->tp), (par_kind)i).sent_count;
    return sum;
}
static uint64_t count_sent(block *k, void (*fn)(void *)) { // elements, in one run when all scratch is there
    fn(k);
    const uint64_t before = sent_over(k);
    fn(k);
    return sent_over(k) - before;
}

static void print_steps(block *k) {
    bench *b = k->b;
    par_comm *comm = par_tp_comm(k->tp);
    const int root = par_rank(b->world) == 0, llama = k->m.config.llama;
    if (root && !b->o.json)
        printf("# %d rank%s%s\n#%18s %11s %11s %11s %11s %12s %12s %12s %12s\n", k->m.t,
               k->m.t > 1 ? "s" : "", k->m.sequence_parallel ? ", sequence parallelism" : "", "layer",
               "forward us", "predicted", "backward us", "predicted", "kept bytes", "predicted", "sent",
               "predicted");
    for (int i = 0; i < STEPS; i++) {
        if (i == (llama ? 5 : 6)) continue;
        const cost c = cost_of(k, i);
        const double predicted = c.flops / b->gemm + c.bytes / b->copy;
        k->step = i;
        const double forward = time_of(b, comm, run_forward, k), backward = time_of(b, comm, run_backward, k);
        const uint64_t sent = count_sent(k, run_forward) + count_sent(k, run_backward);
        const double back = i == 2                       ? 2.5
                            : i == 0 || i == 5 || i == 6 ? 1.5
                                                         : 2; // scores once more; one more read
        if (root && b->o.json)
            json_print(
                "layer:%s ranks:%d sequence_parallel:%d forward_us:%.2f forward_predicted_us:%.2f "
                "backward_us:%.2f backward_predicted_us:%.2f kept_bytes:%zu kept_predicted:%zu sent:%llu "
                "sent_predicted:%zu",
                steps[i].name, k->m.t, k->m.sequence_parallel, forward * 1e6, predicted * 1e6, backward * 1e6,
                predicted * back * 1e6, kept_of(k, i), c.kept, (unsigned long long)sent, c.sent);
        else if (root)
            printf("%19s %11.1f %11.1f %11.1f %11.1f %12zu %12zu %12llu %12zu\n", steps[i].name,
                   forward * 1e6, predicted * 1e6, backward * 1e6, predicted * back * 1e6, kept_of(k, i),
                   c.kept, (unsigned long long)sent, c.sent);
        fflush(stdout);
    }
}

static double block_flops(const bench *b, double batch) {
    const double s = b->o.sequence, h = b->o.n_embd;
    return 72 * batch * s * h * h * (1 + s / (6 * h));
}
static double measure_block(bench *b, par_comm *tp_comm, par_comm *data, int sequence, int batch,
                            int details) {
    block k;
    open_block(&k, b, tp_comm, sequence, batch, 0);
    k.data = data;
    const double seconds = time_of(b, data ? data : tp_comm, run_block, &k);
    const uint64_t sent = count_sent(&k, run_block);
    const size_t kept = kept_by(&k), kept_expected = kept_predicted(&k);
    const size_t n =
        (size_t)batch * (size_t)b->o.sequence * (size_t)b->o.n_embd * (size_t)(k.m.t - 1) / (size_t)k.m.t;
    const double flops = block_flops(b, batch) / k.m.t;
    if (details) print_steps(&k);
    if (par_rank(b->world) == 0 && b->o.json)
        json_print("layer:%s ranks:%d data_ranks:%d sequence_parallel:%d time_us:%.2f predicted_us:%.2f "
                   "kept_bytes:%zu kept_predicted:%zu sent:%llu sent_predicted:%zu mfu:%.4f",
                   "block", k.m.t, data ? par_size(data) : 1, sequence, seconds * 1e6, flops / b->gemm * 1e6,
                   kept, kept_expected, (unsigned long long)sent, (sequence ? 10 : 8) * n,
                   flops / seconds / b->gemm);
    else if (par_rank(b->world) == 0)
        printf("%19s %11.1f us of %.1f by its FLOPs alone: mfu %.3f; kept %zu bytes of %zu predicted; "
               "sent %llu of %zu\n",
               data ? "block, 2 batches" : "block", seconds * 1e6, flops / b->gemm * 1e6,
               flops / seconds / b->gemm, kept, kept_expected, (unsigned long long)sent,
               (sequence ? 10 : 8) * n);
    fflush(stdout);
    close_block(&k);
    return seconds;
}

// Forward of a block with tokens split, and with its rows in pieces: two contexts by turns.
typedef struct forwards {
    block k[2];
    double seconds[2][100];
    int i;
} forwards;
static void run_forwards(void *user) {
    forwards *f = (forwards *)user;
    for (int p = 0; p < 2; p++) {
        block *k = &f->k[p];
        must(k->b, par_barrier(k->b->world));
        const double start = par_seconds(k->b->world);
        must(k->b, gpt_layer_forward(&k->m, &k->buffers.layers[0], &k->tokens, NULL, 0, &k->buffers.x));
        if (f->i < 100) f->seconds[p][f->i] = par_seconds(k->b->world) - start;
    }
    f->i++;
}
static double measure_pieces(bench *b) { // how much faster
    forwards *f = (forwards *)calloc(1, sizeof *f);
    const int pieces = 4;
    must_alloc(f != NULL);
    for (int p = 0; p < 2; p++) open_block(&f->k[p], b, b->world, 1, b->o.batch, p ? pieces : 1);
    time_of(b, b->world, run_forwards, f);
    const int count = f->i < 100 ? f->i : 100;
    double t[2];
    for (int p = 0; p < 2; p++) t[p] = median(f->seconds[p] + 2, count - 2); // without the first two
    must(b, par_all_reduce(t, t, 2, PAR_F64, PAR_MAX, b->world));
    if (par_rank(b->world) == 0 && b->o.json)
        json_print("layer:%s ranks:%d sequence_parallel:%d pieces:%d time_us:%.2f whole_us:%.2f",
                   "block, forward in pieces", par_size(b->world), 1, pieces, t[1] * 1e6, t[0] * 1e6);
    else if (par_rank(b->world) == 0)
        printf("%19s %11.1f us in %d pieces of rows, %.1f whole: %.2f times as fast\n", "block, forward",
               t[1] * 1e6, pieces, t[0] * 1e6, t[0] / t[1]);
    for (int p = 0; p < 2; p++) close_block(&f->k[p]);
    return free(f), t[0] / t[1];
}

// ---- a whole training step at nanoGPT's setting for a CPU -------------------------------------------------

typedef struct training {
    bench *b;
    gpt_model m;
    gpt_buffers buffers;
    par_tp_tokens tokens;
    float *w, *d, *m1, *m2; // one allocation, w
    uint16_t *half;         // w in bf16, which the layers use; NULL: they use w
    int32_t ids[12 * 64], targets[12 * 64];
    int number;
} training;
static void run_training(void *user) {
    training *t = (training *)user;
    const par_zero_hyper a = {1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f, 0, 0};
    par_tp *tp = t->m.tp;
    double loss;
    size_t target_count;
    memset(t->d, 0, t->m.count * 4);
    must(t->b, gpt_forward(&t->m, &t->buffers, &t->tokens, t->ids, NULL));
    must(t->b, par_tp_loss_forward_backward(tp, &t->m.loss, &t->buffers.logits, t->targets, t->buffers.lse,
                                            NULL, &loss, &target_count, 1.0f / 768, &t->buffers.logits));
    must(t->b, gpt_backward(&t->m, &t->buffers, &t->tokens, t->ids, NULL));
    must(t->b, gpt_update(&t->m, &a, ++t->number, t->w, t->d, t->m1, t->m2));
    if (t->half) must(t->b, par_cast(t->half, PAR_BF16, t->w, PAR_F32, t->m.count));
}
static double training_flops(void) {
    const double h = 128, s = 64, V = 256;
    return 72 * 12 * 4 * s * h * h * (1 + s / (6 * h) + V / (12 * h * 4));
}
static training *open_training(bench *b, par_dtype dtype) {
    const gpt_config g = {
        .n_layer = 4, .n_head = 4, .n_embd = 128, .block_size = 64, .vocab_size = 256, .bias = 1};
    training *t = (training *)calloc(1, sizeof *t);
    par_tp_desc d;
    par_tp *tp;
    must_alloc(t != NULL);
    memset(&d, 0, sizeof d);
    d.tp = b->self, d.seed = 1, d.dtype = dtype;
    must(b, par_tp_open(&d, &tp));
    t->b = b;
    must(b, gpt_open(&t->m, &g, tp, 0));
    t->w = (float *)calloc(4 * t->m.count, sizeof *t->w);
    if (dtype == PAR_BF16) t->half = (uint16_t *)calloc(t->m.count, sizeof *t->half);
    must_alloc(t->w && (t->half || dtype == PAR_F32) && gpt_buffers_open(&t->m, &t->buffers, 12 * 64));
    t->d = t->w + t->m.count, t->m1 = t->d + t->m.count, t->m2 = t->m1 + t->m.count;
    gpt_set_memory(&t->m, t->half ? (void *)t->half : (void *)t->w, t->d);
    must(b, gpt_init_weights(&t->m));
    if (t->half) must(b, par_cast(t->w, PAR_F32, t->half, PAR_BF16, t->m.count));
    t->tokens.batch = 12, t->tokens.sequence = 64;
    for (int i = 0; i < 12 * 64; i++) t->ids[i] = t->targets[i] = (i * 7 + i / 64) % 256;
    return t;
}
static void close_training(training *t) {
    par_tp *tp = t->m.tp;
    gpt_buffers_close(&t->m, &t->buffers), gpt_close(&t->m), free(t->w), free(t->half);
    must(t->b, par_tp_close(tp));
    free(t);
}
// Median seconds of a step in f32, and in bf16; the two alternate.
static void measure_training(bench *b, double seconds[2]) {
    static const par_dtype dtypes[2] = {PAR_F32, PAR_BF16};
    const double flops = training_flops();
    training *t[2];
    double *times = (double *)calloc(2 * (size_t)b->o.iterations, sizeof *times);
    must_alloc(times != NULL);
    for (int k = 0; k < 2; k++) t[k] = open_training(b, dtypes[k]);
    for (int i = -2; i < b->o.iterations; i++)
        for (int k = 0; k < 2; k++) {
            const double start = cpu_seconds();
            run_training(t[k]);
            if (i >= 0) times[k * b->o.iterations + i] = cpu_seconds() - start;
        }
    for (int k = 0; k < 2; k++) {
        const double s = seconds[k] = median(times + k * b->o.iterations, b->o.iterations);
        const char *name = par_dtype_name(dtypes[k]);
        if (!b->o.json)
            printf("training step, 4 layers, n_embd 128, block 64, batch 12, %s: %.1f us, %.0f tokens/s, mfu "
                   "%.3f\n",
                   name, s * 1e6, 768 / s, flops / s / b->gemm);
        else
            json_print("layer:%s dtype:%s ranks:%d time_us:%.2f predicted_us:%.2f mfu:%.4f", "training step",
                       name, 1, s * 1e6, flops / b->gemm * 1e6, flops / s / b->gemm);
        close_training(t[k]);
    }
    free(times);
}

// ---- attention beside products of the same type -----------------------------------------------------------

typedef struct attention_run {
    par_tp *tp;
    par_tp_attention heads;
    par_tp_tokens tokens;
    par_tp_arena arena;
    par_tp_matrix x, y, dy, dx, product; // product: of the layer `up`, rows x 4 n_embd
    void *weight;
    float *lse;
} attention_run;
static void attention_memory(bench *b, attention_run *r) {
    const size_t rows = r->tokens.batch * r->tokens.sequence, C = (size_t)b->o.n_embd;
    r->arena.used = 0;
    must(b, par_tp_alloc(r->tp, &r->arena, rows, 3 * C, PAR_TP_HIDDEN, &r->x));
    must(b, par_tp_alloc(r->tp, &r->arena, rows, C, PAR_TP_HIDDEN, &r->y));
    must(b, par_tp_alloc(r->tp, &r->arena, rows, C, PAR_TP_HIDDEN, &r->dy));
    must(b, par_tp_alloc(r->tp, &r->arena, rows, 3 * C, PAR_TP_HIDDEN, &r->dx));
    must(b, par_tp_alloc(r->tp, &r->arena, rows, 4 * C, PAR_TP_HIDDEN, &r->product));
    must(b, par_tp_alloc_floats(r->tp, &r->arena, rows * (size_t)b->o.n_head, &r->lse));
}
static void attention_part(bench *b, attention_run *r, int part) { // a product, forward, backward
    const size_t rows = r->x.rows, C = (size_t)b->o.n_embd;
    if (part == 0)
        must(b, par_tp_kernels_of(r->tp)->gemm(r->tp, 0, 1, rows, 4 * C, C, r->y.data, C, r->weight, C, 0,
                                               r->product.data, par_tp_dtype(r->tp), 4 * C, NULL));
    else if (part == 1)
        must(b, par_tp_attention_forward(r->tp, &r->heads, &r->tokens, 0, &r->x, r->lse, &r->y));
    else
        must(b, par_tp_attention_backward(r->tp, &r->heads, &r->tokens, 0, &r->dy, &r->x, &r->y, r->lse,
                                          &r->dx));
}
// The speed of attention, whose causal half is not counted, and as a share of a product's; they alternate.
static void measure_attention(bench *b, size_t sequence, par_dtype dtype) {
    const size_t C = (size_t)b->o.n_embd, rows = (size_t)b->o.batch * (size_t)b->o.sequence;
    attention_run r;
    par_tp_desc d;
    double flops[3], speed[3], *times = (double *)calloc(3 * (size_t)b->o.iterations, sizeof *times);
    memset(&r, 0, sizeof r), memset(&d, 0, sizeof d);
    d.tp = b->self, d.seed = 1, d.dtype = dtype;
    must(b, par_tp_open(&d, &r.tp));
    r.heads.heads = (size_t)b->o.n_head, r.heads.dim = C / r.heads.heads;
    r.tokens.sequence = sequence, r.tokens.batch = MAX(rows / sequence, (size_t)1);
    attention_memory(b, &r); // counts
    r.arena.bytes = r.arena.used, r.arena.data = malloc(r.arena.bytes), r.weight = calloc(4 * C * C, 4);
    must_alloc(times && r.arena.data && r.weight);
    attention_memory(b, &r);
    par_tp_matrix *inputs[2] = {&r.x, &r.dy};
    for (int k = 0; k < 2; k++) {
        const size_t n = inputs[k]->rows * inputs[k]->cols;
        for (size_t i = 0; i < n; i++) ((float *)r.dx.data)[i % 4096] = 2 * par_uniform(1, 1, i) - 1;
        for (size_t i = 0; i < n; i += 4096)
            must(b, par_cast((char *)inputs[k]->data + i * par_tp_element_bytes(r.tp), dtype, r.dx.data,
                             PAR_F32, n - i < 4096 ? n - i : 4096));
    }
    flops[0] = 8 * (double)r.x.rows * (double)C * (double)C;
    flops[1] = 2 * (double)r.x.rows * (double)sequence * (double)C, flops[2] = 2.5 * flops[1];
    attention_part(b, &r, 1); // y and lse
    for (int i = -1; i < b->o.iterations; i++)
        for (int k = 0; k < 3; k++) {
            const double start = cpu_seconds();
            attention_part(b, &r, k);
            if (i >= 0) times[k * b->o.iterations + i] = cpu_seconds() - start;
        }
    for (int k = 0; k < 3; k++) speed[k] = flops[k] / median(times + k * b->o.iterations, b->o.iterations);
    const char *name = par_dtype_name(dtype);
    if (b->o.json)
        json_print("layer:%s sequence:%zu dtype:%s gemm_gflops:%.1f forward_gflops:%.1f backward_gflops:%.1f "
                   "forward_share:%.3f backward_share:%.3f",
                   "attention alone", sequence, name, speed[0] * 1e-9, speed[1] * 1e-9, speed[2] * 1e-9,
                   speed[1] / speed[0], speed[2] / speed[0]);
    else
        printf(
            "attention, %4zu tokens, %4s: forward %.1f, backward %.1f GFLOP/s: %.2f and %.2f of a product's "
            "%.1f\n",
            sequence, name, speed[1] * 1e-9, speed[2] * 1e-9, speed[1] / speed[0], speed[2] / speed[0],
            speed[0] * 1e-9);
    fflush(stdout);
    must(b, par_tp_close(r.tp));
    free(times), free(r.arena.data), free(r.weight);
}
static void measure_attentions(bench *b) {
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (size_t sequence = 512; sequence <= 2048; sequence *= 4)
            measure_attention(b, sequence, bf16 ? PAR_BF16 : PAR_F32);
}

// ---- recipes of low precision -----------------------------------------------------------------------------

// Bytes of a number of an operand in codes, and of its part of a scale, by the recipe's row.
static const struct {
    par_tp_code code;
    par_tp_scale scale;
    size_t rows, cols; // of a block that shares a scale; 0: all
} recipe_rows[] = {
#define X(constant, name, code, gradients, scale, rows, cols, ...) {code, scale, rows, cols},
    PAR_TP_RECIPES(X)
#undef X
};
static double code_bytes(int recipe, size_t rows, size_t cols) {
    const size_t block_rows = recipe_rows[recipe].rows, block_cols = recipe_rows[recipe].cols;
    const double block = (double)((block_rows ? block_rows : rows) * (block_cols ? block_cols : cols));
    if (!recipe) return 2;
    return (recipe_rows[recipe].code == PAR_TP_E2M1 ? 0.5 : 1) +
           (recipe_rows[recipe].scale >= PAR_TP_SCALE_E8M0 ? 1 : 4) / block;
}
// A layer of n_embd x n_embd, of bf16 and by each recipe, which alternate. A processor computes with codes to
// the bit, not fast: what is of use is how far results are from bf16's, and the bytes.
static void measure_recipes(bench *b) {
    const size_t C = (size_t)b->o.n_embd, rows = MAX((size_t)16, MIN((size_t)64, (size_t)b->o.sequence));
    double *times = (double *)calloc(PAR_TP_RECIPE_COUNT * (size_t)b->o.iterations, sizeof *times);
    par_bf16 *x = (par_bf16 *)calloc(rows * C, 2), *w = (par_bf16 *)calloc(C * C, 2);
    par_bf16 *y = (par_bf16 *)calloc(PAR_TP_RECIPE_COUNT * rows * C, 2);
    float *grad = (float *)calloc(C * C, 4), at[3], one;
    par_tp_linear layers[PAR_TP_RECIPE_COUNT];
    par_tp_matrix in, out, dx;
    par_tp_desc d;
    par_tp *tp;
    memset(&d, 0, sizeof d), memset(layers, 0, sizeof layers), memset(&in, 0, sizeof in);
    d.tp = b->self, d.seed = 1, d.dtype = PAR_BF16;
    must_alloc(times && x && w && y && grad);
    must(b, par_tp_open(&d, &tp));
    for (size_t i = 0; i < C * C; i++) {
        one = par_normal(1, 1, i) / sqrtf((float)C), must(b, par_cast(w + i, PAR_BF16, &one, PAR_F32, 1));
        one = par_normal(1, 2, i);
        if (i < rows * C) must(b, par_cast(x + i, PAR_BF16, &one, PAR_F32, 1));
    }
    in.data = x, in.rows = rows, in.cols = C, in.layout = PAR_TP_REPLICATED, out = dx = in;
    dx.data = calloc(rows * C, 2);
    must_alloc(dx.data != NULL);
    for (int i = -1; i < b->o.iterations; i++)
        for (int r = 0; r < PAR_TP_RECIPE_COUNT; r++) {
            par_tp_linear *l = &layers[r];
            l->in = l->out = C, l->recipe = (par_tp_recipe)r;
            if (i < 0) must(b, par_tp_linear_open(tp, l)), l->weight.data = w, l->weight.grad = grad;
            out.data = y + (size_t)r * rows * C;
            const double start = cpu_seconds();
            must(b, par_tp_linear_forward(tp, l, &in, NULL, &out));
            must(b, par_tp_linear_backward(tp, l, &out, &in, &dx));
            if (i >= 0) times[r * b->o.iterations + i] = cpu_seconds() - start;
        }
    for (int r = 0; r < PAR_TP_RECIPE_COUNT; r++) {
        double off = 0, whole = 0;
        const double bytes = code_bytes(r, rows, C);
        const double slower = median(times + r * b->o.iterations, b->o.iterations) /
                              median(times, b->o.iterations); // sorts, so that bf16's is found again
        for (size_t i = 0; i < rows * C; i++) {
            must(b, par_cast(at, PAR_F32, y + i, PAR_BF16, 1));
            must(b, par_cast(at + 1, PAR_F32, y + (size_t)r * rows * C + i, PAR_BF16, 1));
            off += pow((double)at[1] - (double)at[0], 2), whole += pow((double)at[0], 2);
        }
        const char *name = r ? par_tp_recipe_name((par_tp_recipe)r) : "bf16";
        if (b->o.json)
            json_print("layer:%s recipe:%s number_bytes:%.4f off:%.5f times_bf16:%.2f", "product by a recipe",
                       name, bytes, sqrt(off / whole), slower);
        else
            printf("product, %-8s %.4f bytes a number, off by %.5f of bf16's; here it takes %.2f times as "
                   "long\n",
                   name, bytes, sqrt(off / whole), slower);
    }
    fflush(stdout);
    must(b, par_tp_close(tp));
    free(times), free(x), free(w), free(y), free(grad), free(dx.data);
}

// ---- sampling: a token at a time, beside reading the weights once for each --------------------------------

// Read memory once and nothing else: what a token takes at least when weights are not in the caches. Eight
// parts at a time, as processors fetch them faster than one.
static void read_bytes(const char *memory, size_t bytes) {
    typedef uint64_t words __attribute__((vector_size(16), may_alias, aligned(8)));
    const size_t part = bytes / 8 / 64 * 64;
    words sum[4] = {{0}};
    for (size_t at = 0; at < part; at += 64)
        for (size_t k = 0; k < 8; k++)
            for (size_t i = 0; i < 4; i++)
                sum[i] ^= *(const words *)(const void *)(memory + k * part + at + 16 * i);
    for (int i = 1; i < 4; i++) sum[0] ^= sum[i];
    __asm__ volatile("" : : "x"(sum[0]));
}
typedef struct sampling {
    gpt_model m;
    gpt_buffers buffers;
    par_tp *tp;
    par_tp_tokens tokens;
    par_tp_kv_cache *cache; // of each layer
    char *weights, *keys;   // of the model; of all caches
    size_t weight_bytes, cache_bytes;
} sampling;
static void open_sampling(bench *b, par_comm *comm, par_dtype dtype, sampling *s) {
    const gpt_config g = {.n_layer = 4,
                          .n_head = b->o.n_head,
                          .n_embd = b->o.n_embd,
                          .block_size = b->o.sequence,
                          .vocab_size = 16 * b->o.n_embd,
                          .bias = 1};
    par_tp_desc d;
    memset(s, 0, sizeof *s), memset(&d, 0, sizeof d);
    d.tp = comm, d.seed = 1, d.dtype = dtype;
    must(b, par_tp_open(&d, &s->tp));
    must(b, gpt_open(&s->m, &g, s->tp, 0));
    const size_t e = par_tp_element_bytes(s->tp), n = (size_t)b->o.sequence, layers = (size_t)g.n_layer;
    s->weight_bytes = s->m.count * e, s->weights = (char *)calloc(s->m.count, e);
    s->cache_bytes = par_tp_kv_cache_bytes(s->tp, &s->m.layers[0].attention, 1, n);
    s->cache = (par_tp_kv_cache *)calloc(layers, sizeof *s->cache);
    s->keys = (char *)calloc(layers, s->cache_bytes);
    must_alloc(s->weights && s->cache && s->keys);
    gpt_set_memory(&s->m, s->weights, NULL);
    must(b, gpt_init_weights(&s->m));
    memset(s->keys, 0, layers * s->cache_bytes); // touched
    for (size_t l = 0; l < layers; l++) {
        s->cache[l].data = s->keys + l * s->cache_bytes;
        s->cache[l].batch = 1, s->cache[l].capacity = n, s->cache[l].count = n - 1;
    }
    s->m.cache = s->cache, s->m.recompute = PAR_TP_RECOMPUTE_FULL, s->m.last_token_only = 1;
    s->tokens.batch = s->tokens.sequence = 1, s->tokens.position = n - 1;
    must_alloc(gpt_buffers_open(&s->m, &s->buffers, 1));
    s->weight_bytes -= (size_t)b->o.sequence * (size_t)b->o.n_embd * e; // positions: one row is read
}
static void close_sampling(bench *b, sampling *s) {
    gpt_buffers_close(&s->m, &s->buffers), gpt_close(&s->m);
    free(s->weights), free(s->keys), free(s->cache);
    must(b, par_tp_close(s->tp));
}
// 0: a token; 1: its attention alone, one query to all keys of a layer; 2, 3: reading the weights, the keys.
static void sampling_part(bench *b, sampling *s, int part, int layer) {
    static const int32_t id[1] = {1};
    gpt_activations *a = &s->buffers.layers[0];
    if (part == 0)
        must(b, gpt_forward(&s->m, &s->buffers, &s->tokens, id, NULL));
    else if (part == 1)
        must(b, par_tp_attention_cached(s->tp, &s->m.layers[0].attention, &s->tokens, &s->cache[layer],
                                        &a->saved.qkv, &a->saved.att));
    else if (part == 2)
        read_bytes(s->weights, s->weight_bytes);
    else
        read_bytes((const char *)s->cache[layer].data, s->cache_bytes);
}
static void measure_sampling(bench *b, par_comm *comm, par_dtype dtype) {
    enum { PARTS = 4 };
    const int n = b->o.iterations;
    double *times = (double *)calloc(PARTS * (size_t)n, sizeof *times), t[PARTS];
    sampling s;
    must_alloc(times != NULL);
    open_sampling(b, comm, dtype, &s);
    for (int i = -2; i < n; i++)
        for (int k = 0; k < PARTS; k++) {
            must(b, par_barrier(comm));
            const double start = par_seconds(comm);
            sampling_part(b, &s, k, (i + 2) % s.m.config.n_layer);
            if (i >= 0) times[k * n + i] = par_seconds(comm) - start;
        }
    must(b, par_all_reduce(times, times, PARTS * (size_t)n, PAR_F64, PAR_MAX, comm));
    for (int k = 0; k < PARTS; k++) t[k] = median(times + k * n, n);
    const char *name = par_dtype_name(dtype);
    if (par_rank(b->world) == 0 && b->o.json)
        for (int k = 0; k < 2; k++)
            json_print("layer:%s dtype:%s ranks:%d bytes:%zu time_us:%.2f read_us:%.2f share:%.4f",
                       k ? "attention, one query" : "sampling", name, s.m.t,
                       k ? s.cache_bytes : s.weight_bytes, t[k] * 1e6, t[k + 2] * 1e6, t[k + 2] / t[k]);
    else if (par_rank(b->world) == 0)
        printf(
            "sampling, 4 layers, %d tokens before, %4s, %d rank%s: %.1f tokens/s, %.2f of reading %.1f MB of "
            "weights once for each; one query's attention %.1f us, %.2f of reading its keys and values\n",
            b->o.sequence - 1, name, s.m.t, s.m.t > 1 ? "s" : "", 1 / t[0], t[2] / t[0],
            (double)s.weight_bytes * 1e-6, t[1] * 1e6, t[3] / t[1]);
    fflush(stdout);
    close_sampling(b, &s);
    free(times);
}

static int parse_settings(int argc, char **argv, settings *o) { // as options_parse
    o->n_embd = 768, o->n_head = 12, o->sequence = 512, o->batch = 4, o->iterations = 7;
    option options[] = {
        {"--n_embd", OPTION_INT, &o->n_embd, "features", 2, INFINITY},
        {"--n_head", OPTION_INT, &o->n_head, "heads", 2, INFINITY},
        {"--sequence", OPTION_INT, &o->sequence, "tokens of a sequence", 1, INFINITY},
        {"--batch", OPTION_INT, &o->batch, "sequences; even", 2, INFINITY},
        {"--sampling", OPTION_FLAG, &o->sampling, "only the tokens a second of sampling"},
        {"--attention", OPTION_FLAG, &o->attention, "only attention beside products"},
        {"--llama", OPTION_FLAG, &o->llama, "a block of Llama's instead of GPT-2's"},
        {"-n", OPTION_INT, &o->iterations, "measurements of each", 1, INFINITY},
        {"--json", OPTION_FLAG, &o->json, "one JSON object a line; the last is the summary"},
    };
    const int parsed = options_parse(argc, argv, options, sizeof options / sizeof options[0],
                                     "bench_tp: time the layers of par_tp.h, on 1 rank and on 2");
    if (parsed) return parsed;
    if (o->n_embd % o->n_head || o->n_head % 2 || o->batch % 2 || o->n_embd / o->n_head % 2)
        return fprintf(stderr,
                       "bench_tp: n_head and batch must be even, n_embd an even multiple of n_head\n"),
               2;
    const double rows = (double)o->batch * o->sequence;
    if (!options_fit("bench_tp", rows * fmax(16.0 * o->n_embd, o->n_head), "batch x sequence x 16 n_embd") ||
        !options_fit("bench_tp", 16.0 * o->n_embd * o->n_embd, "16 n_embd x n_embd"))
        return 2;
    return 0;
}
// One rank first, while the other sleeps: the block, and a small training step.
static double measure_one_rank(bench *b, double *mfu, double *small_mfu,
                               double *bf16_speedup) { // the block's seconds
    double training[2];
    measure_machine(b);
    if (!b->o.json)
        printf("# %s: %.1f GFLOP/s at best; copying: %.1f GB/s; one thread a rank\n", par_gemm_name(),
               b->gemm * 1e-9, b->copy * 1e-9);
    measure_canonical(b);
    const double block = measure_block(b, b->self, NULL, 0, b->o.batch, 1);
    measure_machine(b); // again, for the best of several times: the machine may have been busy
    measure_training(b, training);
    measure_attentions(b);
    if (b->o.n_embd % 16 == 0) measure_recipes(b); // others have no codes
    for (int bf16 = 0; bf16 < 2; bf16++) measure_sampling(b, b->self, bf16 ? PAR_BF16 : PAR_F32);
    measure_machine(b);
    *mfu = block_flops(b, b->o.batch) / block / b->gemm;
    *small_mfu = training_flops() / training[0] / b->gemm;
    *bf16_speedup = training[0] / training[1];
    return block;
}
static void measure(bench *b) {
    const settings *o = &b->o;
    const int root = par_rank(b->world) == 0;
    double mfu = 0, small = 0, bf16 = 0, machine[2];
    for (int ranks = 1; ranks <= 2 && o->sampling; ranks++)
        for (int half = 0; half < 2 && (root || ranks == 2); half++)
            measure_sampling(b, ranks == 1 ? b->self : b->world, half ? PAR_BF16 : PAR_F32);
    if (o->attention && root) measure_attentions(b);
    if (o->sampling || o->attention) return;
    const double one = root ? measure_one_rank(b, &mfu, &small, &bf16) : 0;
    machine[0] = b->gemm, machine[1] = b->copy;
    must(b, par_broadcast(machine, machine, 2, PAR_F64, 0, b->world));
    b->gemm = machine[0], b->copy = machine[1];
    const double tp2 = measure_block(b, b->world, NULL, 0, o->batch, 1);
    const double sp2 = measure_block(b, b->world, NULL, 1, o->batch, 1);
    for (int bf16 = 0; bf16 < 2; bf16++) measure_sampling(b, b->world, bf16 ? PAR_BF16 : PAR_F32);
    const double pieces = measure_pieces(b);
    const double dp2 = measure_block(b, b->self, b->world, 0, o->batch / 2, 0);
    if (root && o->json)
        json_print("summary:%b mfu:%.4f mfu_small:%.4f bf16_speedup:%.4f tp2_speedup:%.4f sp2_speedup:%.4f "
                   "pieces_speedup:%.4f dp2_speedup:%.4f gemm:%s "
                   "gemm_gflops:%.1f n_embd:%d n_head:%d sequence:%d batch:%d",
                   1, mfu, small, bf16, one / tp2, one / sp2, pieces, one / dp2, par_gemm_name(),
                   b->gemm * 1e-9, o->n_embd, o->n_head, o->sequence, o->batch);
    else if (root)
        printf("mfu %.3f, of a small training step %.3f, which is %.2f times as fast in bf16; 2 ranks: tp "
               "%.2f, with sequence parallelism %.2f, "
               "dp %.2f times one\n",
               mfu, small, bf16, one / tp2, one / sp2, one / dp2);
}

int main(int argc, char **argv) {
    bench b;
    memset(&b, 0, sizeof b);
    const int parsed = parse_settings(argc, argv, &b.o);
    if (parsed) return parsed == 1 ? 0 : 2;
    par_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.rank_count = par_launched(NULL) ? 0 : 2;
    if (par_open(&desc, &b.world)) return 1;
    must(&b, par_split(b.world, par_rank(b.world), 0, &b.self));
    select_gemm(&b);
    measure(&b);
    must(&b, par_close(b.self));
    const int bad = par_close(b.world) != PAR_OK;
    return output_failed("bench_tp") || bad;
}

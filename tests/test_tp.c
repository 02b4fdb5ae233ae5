// test_tp.c - par_tp.h: every layer, forward against a serial reference in double, backward against central
// differences of that reference, for every way to make the ranks t x c.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // registers of a signal's context
#endif
#include "kit.h"
#define PAR_TP_IMPLEMENTATION
#include "par_tp.h"
#include "test.h"
#include "published_bytes.h"

// ---- data and references ----------------------------------------------------------------------------------

enum { IN = 13 }; // inputs a reference may have: activations and parameters
typedef struct problem {
    double *in[IN];
    size_t n[IN], outs;
    double *out, *weight; // the loss is the sum of out x weight: so weight is the gradient of out
    double *grad[IN];
    void (*f)(struct problem *p);
    const void *user;
} problem;

static double value(uint64_t stream, size_t i) { // in (-1, 1), exact in bf16
    const float x = 2.0f * par_uniform(11, stream, i) - 1.0f;
    return (double)par_bf16_to_f32(par_f32_to_bf16(x));
}
static double *numbers(uint64_t stream, size_t n) {
    double *x = (double *)calloc(n + 1, sizeof *x);
    for (size_t i = 0; i < n && stream; i++) x[i] = value(stream, i);
    return x;
}
static void add_input(problem *p, int k, size_t n) {
    p->in[k] = numbers((uint64_t)k + 1, n), p->grad[k] = numbers(0, n), p->n[k] = n;
}
static double problem_loss(problem *p) {
    double sum = 0;
    p->f(p);
    for (size_t i = 0; i < p->outs; i++) sum += p->out[i] * p->weight[i];
    return sum;
}
// Gradients depend on the problem alone, not on the layout: each is computed once, and found by its outputs.
typedef struct known {
    struct known *next;
    void (*f)(problem *p);
    double *out, *grad[IN];
    size_t outs, n[IN];
} known;
static int recall(const known *k, problem *p) {
    for (; k; k = k->next)
        if (k->f == p->f && k->outs == p->outs && !memcmp(k->n, p->n, sizeof p->n) &&
            !memcmp(k->out, p->out, p->outs * sizeof(double))) {
            for (int i = 0; i < IN; i++)
                if (p->n[i]) memcpy(p->grad[i], k->grad[i], p->n[i] * sizeof(double));
            return 1;
        }
    return 0;
}
static double *copy_of(const double *x, size_t n) {
    double *y = numbers(0, n);
    if (n) memcpy(y, x, n * sizeof *y);
    return y;
}
static void remember(known **list, const problem *p) {
    known *k = (known *)calloc(1, sizeof *k);
    k->next = *list, k->f = p->f, k->outs = p->outs, k->out = copy_of(p->out, p->outs), *list = k;
    for (int i = 0; i < IN; i++) k->n[i] = p->n[i], k->grad[i] = copy_of(p->grad[i], p->n[i]);
}
static void forget_known(known *k) {
    while (k) {
        known *next = k->next;
        for (int i = 0; i < IN; i++) free(k->grad[i]);
        free(k->out), free(k), k = next;
    }
}
// Compute outputs and gradients; the ranks of w share the work on the gradients.
static void solve(par_comm *w, known **list, problem *p, size_t outs, void (*f)(problem *),
                  const void *user) {
    const double step = 1e-4;
    p->outs = outs, p->f = f, p->user = user;
    p->out = numbers(0, outs), p->weight = numbers(99, outs);
    p->f(p);
    if (recall(*list, p)) return;
    for (int k = 0; k < IN; k++) {
        for (size_t i = (size_t)par_rank(w); i < p->n[k]; i += (size_t)par_size(w)) {
            const double x = p->in[k][i];
            p->in[k][i] = x + step;
            const double up = problem_loss(p);
            p->in[k][i] = x - step;
            p->grad[k][i] = (up - problem_loss(p)) / (2 * step);
            p->in[k][i] = x;
        }
        if (p->n[k]) CHECK_OK(w, par_all_reduce(p->grad[k], p->grad[k], p->n[k], PAR_F64, PAR_SUM, w));
    }
    p->f(p);
    remember(list, p);
}
static void problem_close(problem *p) {
    for (int k = 0; k < IN; k++) free(p->in[k]), free(p->grad[k]);
    free(p->out), free(p->weight);
}

// ---- contexts and what a rank has of a matrix -------------------------------------------------------------

typedef struct layout {
    par_comm *world, *tp_comm, *cp_comm;
    par_tp *tp;
    known **solved;
    int t, c, ulysses, bf16;
    par_tp_tokens tokens; // of the test at hand
    double tolerance;
} layout;

static layout open_layout(par_comm *w, int t, int sequence, int ulysses, int bf16) {
    layout l;
    par_tp_desc d;
    memset(&l, 0, sizeof l);
    memset(&d, 0, sizeof d);
    l.world = w, l.t = t, l.c = par_size(w) / t, l.ulysses = ulysses, l.bf16 = bf16,
    l.tolerance = bf16 ? 2e-2 : 2e-5;
    CHECK_OK(w, par_split(w, par_rank(w) / t, par_rank(w), &l.tp_comm));
    CHECK_OK(w, par_split(w, par_rank(w) % t, par_rank(w), &l.cp_comm));
    d.tp = l.tp_comm, d.cp = l.c > 1 ? l.cp_comm : NULL;
    d.sequence_parallel = sequence, d.ulysses = ulysses, d.dtype = bf16 ? PAR_BF16 : PAR_F32, d.seed = 5;
    CHECK_OK(w, par_tp_open(&d, &l.tp));
    return l;
}
static void close_layout(layout *l) {
    CHECK_OK(l->world, par_tp_close(l->tp));
    CHECK_OK(l->world, par_close(l->cp_comm));
    CHECK_OK(l->world, par_close(l->tp_comm));
}
static void put(const layout *l, void *x, size_t i, double v) {
    if (l->bf16)
        ((uint16_t *)x)[i] = par_f32_to_bf16((float)v);
    else
        ((float *)x)[i] = (float)v;
}
static double get(const layout *l, const void *x, size_t i) {
    return l->bf16 ? (double)par_bf16_to_f32(((const uint16_t *)x)[i]) : (double)((const float *)x)[i];
}

// The row of the whole matrix, which has sequence after sequence, that is row r of this rank's.
static size_t whole_row(const layout *l, par_tp_layout kind, size_t r) {
    if (kind == PAR_TP_SEQUENCE)
        r += par_tp_rows(l->tp, &l->tokens) / (size_t)l->t * (size_t)par_rank(l->tp_comm);
    const size_t per = l->tokens.sequence / (size_t)l->c;
    return r / per * l->tokens.sequence + par_tp_position(l->tp, l->tokens.sequence, r % per);
}
// The column of the whole matrix that is column j here, where columns are split as the rows of a parameter.
static size_t whole_col(const layout *l, const par_tp_parameter *p, size_t j) {
    size_t first, global, count;
    int replicas;
    for (int i = 0; p && par_tp_shard(l->tp, p, i, &first, &global, &count, &replicas); i++)
        if (j >= first && j < first + count) return global + j - first;
    return j;
}
static par_tp_layout tokens_of(int sequence) { return sequence ? PAR_TP_SEQUENCE : PAR_TP_REPLICATED; }

// The number of ranks that have column j of such a matrix.
static int replicas_of(const layout *l, const par_tp_parameter *p, size_t j) {
    size_t first, global, count;
    int replicas;
    for (int i = 0; p && par_tp_shard(l->tp, p, i, &first, &global, &count, &replicas); i++)
        if (j >= first && j < first + count) return replicas;
    return 1;
}

// This rank's part of a whole matrix. The columns are split as the rows of `split`; NULL: all columns.
static par_tp_matrix part_of(const layout *l, const double *whole, size_t cols, par_tp_layout kind,
                             const par_tp_parameter *split) {
    par_tp_matrix m;
    m.rows = par_tp_rows(l->tp, &l->tokens) / (kind == PAR_TP_SEQUENCE ? (size_t)l->t : 1);
    m.cols = split ? split->local_rows : cols;
    m.layout = kind;
    const size_t ld = par_tp_ld(kind, m.cols);
    m.data = malloc(m.rows * ld * sizeof(float) + 8);
    memset(m.data, 0xFF, m.rows * ld * sizeof(float)); // between the rows: not numbers
    for (size_t r = 0; r < m.rows && whole; r++)
        for (size_t j = 0; j < m.cols; j++)
            put(l, m.data, r * ld + j, whole[whole_row(l, kind, r) * cols + whole_col(l, split, j)]);
    return m;
}
static par_tp_matrix alloc_output(const layout *l, size_t cols) { // an output of any layout
    par_tp_matrix m;
    memset(&m, 0, sizeof m);
    const size_t bytes = par_tp_rows(l->tp, &l->tokens) * par_tp_ld(PAR_TP_VOCABULARY, cols) * sizeof(float);
    m.data = malloc(bytes + 8);
    memset(m.data, 0xFF, bytes + 8);
    return m;
}
static double larger(double error, double other) { // NaN is the largest
    return isnan(error) || other <= error ? error : other;
}
static void compare(const layout *l, const char *what, double error, double max_value) {
    char why[1300];
    __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
    if (error <= l->tolerance * (max_value > 1 ? max_value : 1)) return;
    snprintf(why, sizeof why, "%s: off by %g of %g (t=%d c=%d %s): %s", what, error, max_value, l->t, l->c,
             l->bf16 ? "bf16" : "f32", par_last_error(l->tp_comm));
    test_fail(__FILE__, __LINE__, par_rank(l->world), "close", why);
}
static void expect(const layout *l, const char *what, const par_tp_matrix *m, const double *whole,
                   size_t cols, par_tp_layout kind, const par_tp_parameter *split) {
    double error = 0, max_value = 0;
    CHECK(l->world, m->layout == kind && m->cols == (split ? split->local_rows : cols));
    for (size_t r = 0; r < m->rows; r++)
        for (size_t j = 0; j < m->cols; j++) {
            const double want = whole[whole_row(l, kind, r) * cols + whole_col(l, split, j)];
            const double got = get(l, m->data, r * par_tp_ld(kind, m->cols) + j);
            error = larger(error, fabs(got - want));
            if (fabs(want) > max_value) max_value = fabs(want);
        }
    compare(l, what, error, max_value);
}

static void open_parameter(const layout *l, par_tp_parameter *p, const double *whole) { // memory and values
    const size_t n = p->local_rows * p->local_cols;
    p->data = malloc(n * sizeof(float) + 8), p->grad = (float *)calloc(n + 2, sizeof(float));
    for (size_t i = 0; i < p->local_rows; i++)
        for (size_t j = 0; j < p->local_cols; j++) {
            const size_t row = p->split == PAR_TP_SPLIT_COLS ? i : whole_col(l, p, i);
            const size_t col = p->split == PAR_TP_SPLIT_COLS ? whole_col(l, p, j) : j;
            put(l, p->data, i * p->local_cols + j, whole[row * p->cols + col]);
        }
}
static void expect_grad(const layout *l, const char *what, const par_tp_parameter *p, const double *whole) {
    double error = 0, max_value = 0;
    for (size_t i = 0; i < p->local_rows; i++)
        for (size_t j = 0; j < p->local_cols; j++) {
            const size_t row = p->split == PAR_TP_SPLIT_COLS ? i : whole_col(l, p, i);
            const size_t col = p->split == PAR_TP_SPLIT_COLS ? whole_col(l, p, j) : j;
            const double want = whole[row * p->cols + col], got = (double)p->grad[i * p->local_cols + j];
            error = larger(error, fabs(got - want));
            if (fabs(want) > max_value) max_value = fabs(want);
        }
    compare(l, what, error, max_value);
}
static void close_parameter(par_tp_parameter *p) {
    free(p->data), free(p->grad), p->data = NULL, p->grad = NULL;
}
// Sum the gradients of a layer's parameters over all tokens, as a caller does over cp.
static void finish(const layout *l, par_tp_parameter *const *p, size_t count) {
    CHECK_OK(l->world, par_tp_finalize_gradients(l->tp, p, count));
    for (size_t i = 0; i < count && l->c > 1; i++)
        CHECK_OK(l->world, par_all_reduce(p[i]->grad, p[i]->grad, p[i]->local_rows * p[i]->local_cols,
                                          PAR_F32, PAR_SUM, l->cp_comm));
}

// That 48 features do not divide by t, or 24 tokens by 2c, is an error.
static void expect_refusal(layout *l) {
    par_tp_linear f;
    float x[48 * 6] = {0};
    const par_tp_tokens tokens = {1, 24, 0, 0, NULL};
    const par_tp_rotary rotary = {100, 0, 0, 0, 0};
    par_tp_matrix m = {x, par_tp_rows(l->tp, &tokens), 2, PAR_TP_HIDDEN};
    const char *text = 48 % l->t ? "features do not divide by" : "sequences of 24 tokens do not divide by";
    memset(&f, 0, sizeof f);
    f.in = 6, f.out = 48;
    const par_result r =
        48 % l->t ? par_tp_linear_open(l->tp, &f) : par_tp_rope(l->tp, &tokens, 1, 2, &rotary, 0, &m);
    CHECK(l->world, r == PAR_ERR_ARGUMENT && strstr(par_last_error(l->tp_comm), text));
}

typedef void (*with_layout)(layout *l, int sequence);
// Call fn for every t x c = n, with and without sequence parallelism, by a ring and by Ulysses.
static void each_layout(par_comm *w, with_layout fn, int max_c, int bf16_too) {
    known *solved = NULL;
    for (int t = 1; t <= par_size(w); t++)
        for (int variant = 0; variant < 4; variant++)
            for (int bf16 = 0; bf16 <= bf16_too; bf16++) {
                const int sequence = variant & 1, ulysses = variant >> 1;
                if (par_size(w) % t || par_size(w) / t > max_c || (ulysses && t == par_size(w))) continue;
                layout l = open_layout(w, t, sequence, ulysses, bf16);
                l.solved = &solved;
                if (48 % t || (l.c > 1 && 48 % (2 * l.c)))
                    expect_refusal(&l);
                else
                    fn(&l, sequence);
                close_layout(&l);
            }
    forget_known(solved);
}

// ---- linear -----------------------------------------------------------------------------------------------

typedef struct shape {
    size_t rows, in, out;
} shape;
static void ref_linear(problem *p) { // x, w, b
    const shape *s = (const shape *)p->user;
    for (size_t r = 0; r < s->rows; r++)
        for (size_t o = 0; o < s->out; o++) {
            double sum = p->n[2] ? p->in[2][o] : 0;
            for (size_t i = 0; i < s->in; i++) sum += p->in[0][r * s->in + i] * p->in[1][o * s->in + i];
            p->out[r * s->out + o] = sum;
        }
}
// Open a linear layer with its reference: s->rows inputs, and a bias where f has one.
static void open_linear(layout *l, const shape *s, par_tp_linear *f, problem *p) {
    memset(p, 0, sizeof *p);
    l->tokens.batch = 2, l->tokens.sequence = s->rows / 2;
    f->in = s->in, f->out = s->out;
    add_input(p, 0, s->rows * s->in);
    add_input(p, 1, s->out * s->in);
    if (f->has_bias) add_input(p, 2, s->out);
    solve(l->world, l->solved, p, s->rows * s->out, ref_linear, s);
    CHECK_OK(l->world, par_tp_linear_open(l->tp, f));
    open_parameter(l, &f->weight, p->in[1]);
    if (f->has_bias) open_parameter(l, &f->bias, p->in[2]);
}
static void expect_linear_grads(layout *l, const char *what, par_tp_linear *f, const problem *p) {
    par_tp_parameter *parameters[2] = {&f->weight, &f->bias};
    double norm, want = 0;
    finish(l, parameters, f->has_bias ? 2 : 1);
    expect_grad(l, what, &f->weight, p->grad[1]);
    if (f->has_bias) expect_grad(l, what, &f->bias, p->grad[2]);
    CHECK_OK(l->world, par_tp_global_norm(l->tp, parameters, f->has_bias ? 2 : 1, &norm));
    for (int k = 1; k < 3; k++)
        for (size_t i = 0; i < p->n[k]; i++) want += p->grad[k][i] * p->grad[k][i];
    compare(l, "norm", fabs(norm - sqrt(want)), sqrt(want));
}
static void close_linear(par_tp_linear *f, problem *p) {
    close_parameter(&f->weight);
    if (f->has_bias) close_parameter(&f->bias);
    problem_close(p);
}
// All outputs; fused segments of units; fewer key-value heads than ranks; a vocabulary of any size.
typedef struct column_case {
    size_t out;
    par_tp_segment segments[3];
    int segment_count, gather, vocabulary, bias;
    int keep_input; // with sequence parallelism: the gathered input is kept for backward
    int halves;     // backward in two halves
} column_case;
static void column_of(layout *l, int sequence, const column_case *k) {
    const shape s = {48, 6, k->out};
    problem p;
    par_tp_linear f;
    memset(&f, 0, sizeof f);
    f.gather_output = k->gather, f.vocab_parallel = k->vocabulary;
    f.has_bias = k->bias, f.segment_count = k->segment_count;
    memcpy(f.segments, k->segments, sizeof k->segments);
    open_linear(l, &s, &f, &p);
    const par_tp_layout out = f.gather_output    ? PAR_TP_REPLICATED
                              : f.vocab_parallel ? PAR_TP_VOCABULARY
                                                 : PAR_TP_HIDDEN;
    const par_tp_layout in = tokens_of(sequence);
    const par_tp_parameter *split = f.gather_output ? NULL : &f.weight;
    par_tp_matrix x = part_of(l, p.in[0], s.in, in, NULL), y = alloc_output(l, s.out);
    par_tp_matrix dy = part_of(l, p.weight, s.out, out, split), dx = alloc_output(l, s.in);
    par_tp_matrix gathered = alloc_output(l, s.in), *kept = sequence && k->keep_input ? &gathered : NULL;
    const size_t ld = par_tp_ld(out, dy.cols);
    for (size_t i = 0; i < dy.rows * ld; i++) // ranks that have the same column each use a part of it
        put(l, dy.data, i, get(l, dy.data, i) / replicas_of(l, split, i % ld));
    CHECK_OK(l->world, par_tp_linear_forward(l->tp, &f, &x, kept, &y));
    expect(l, "column y", &y, p.out, s.out, out, split);
    if (k->halves) {
        CHECK_OK(l->world, par_tp_linear_backward_input(l->tp, &f, &dy, &dx));
        CHECK_OK(l->world, par_tp_linear_backward_weight(l->tp, &f, &dy, kept ? kept : &x));
    } else {
        CHECK_OK(l->world, par_tp_linear_backward(l->tp, &f, &dy, kept ? kept : &x, &dx));
    }
    expect(l, "column dx", &dx, p.grad[0], s.in, in, NULL);
    expect_linear_grads(l, "column dw or db", &f, &p);
    if (f.gather_output) { // the gradient of a gathered output may be a partial sum: 1/t of it each
        for (size_t i = 0; i < dy.rows * dy.cols; i++) put(l, dy.data, i, get(l, dy.data, i) / l->t);
        dy.layout = PAR_TP_PARTIAL;
        CHECK_OK(l->world, par_tp_linear_backward_input(l->tp, &f, &dy, &dx));
        expect(l, "column dx of a partial dy", &dx, p.grad[0], s.in, in, NULL);
    }
    free(x.data), free(y.data), free(dy.data), free(dx.data), free(gathered.data);
    close_linear(&f, &p);
}
static void column(layout *l, int sequence) {
    static const column_case cases[] = {{48, {{0, 0}, {0, 0}, {0, 0}}, 0, 0, 0, 1, 0, 0},
                                        {48, {{0, 0}, {0, 0}, {0, 0}}, 0, 1, 0, 0, 1, 0},
                                        {96, {{48, 2}, {24, 1}, {24, 0}}, 3, 0, 0, 1, 0, 1},
                                        {96, {{48, 2}, {24, 1}, {24, 0}}, 3, 1, 0, 1, 1, 0},
                                        {32, {{24, 1}, {4, 4}, {4, 4}}, 3, 0, 0, 1, 0, 0},
                                        {29, {{0, 0}, {0, 0}, {0, 0}}, 0, 0, 1, 0, 1, 0},
                                        {29, {{0, 0}, {0, 0}, {0, 0}}, 0, 1, 1, 1, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) column_of(l, sequence, &cases[i]);
}
static void row_of(layout *l, int sequence, int halves) {
    const shape s = {48, 48, 10};
    const par_tp_layout out = tokens_of(sequence);
    problem p;
    par_tp_linear f;
    memset(&f, 0, sizeof f);
    f.row_parallel = 1, f.has_bias = 1;
    open_linear(l, &s, &f, &p);
    par_tp_parameter inputs = f.weight; // rows split as the layer splits its inputs
    inputs.local_rows = f.weight.local_cols;
    par_tp_matrix x = part_of(l, p.in[0], s.in, PAR_TP_HIDDEN, &inputs), y = alloc_output(l, s.out);
    par_tp_matrix dy = part_of(l, p.weight, s.out, out, NULL), dx = alloc_output(l, s.in);
    par_tp_matrix gathered = alloc_output(l, s.out);
    CHECK_OK(l->world, par_tp_linear_forward(l->tp, &f, &x, NULL, &y));
    expect(l, "row y", &y, p.out, s.out, out, NULL);
    if (halves) {
        const par_tp_matrix *whole = sequence ? &gathered : &dy;
        if (sequence) CHECK_OK(l->world, par_tp_all_gather_rows(l->tp, &dy, &gathered));
        CHECK_OK(l->world, par_tp_linear_backward_input(l->tp, &f, whole, &dx));
        CHECK_OK(l->world, par_tp_linear_backward_weight(l->tp, &f, whole, &x));
    } else {
        CHECK_OK(l->world, par_tp_linear_backward(l->tp, &f, &dy, &x, &dx));
    }
    expect(l, "row dx", &dx, p.grad[0], s.in, PAR_TP_HIDDEN, &inputs);
    expect_linear_grads(l, "row dw or db", &f, &p);
    free(x.data), free(y.data), free(dy.data), free(dx.data), free(gathered.data);
    close_linear(&f, &p);
}
static void row(layout *l, int sequence) {
    for (int halves = 0; halves < 2; halves++) row_of(l, sequence, halves);
}
// Rows in pieces: so many calls, and the bits of rows that are not split.
enum { SPLIT_ROWS = 48, SPLIT_BYTES = SPLIT_ROWS * 64 * 4 }; // of an output's memory
static void run_in_pieces(layout *l, int sequence, par_tp_linear *f, const par_tp_matrix *x,
                          const par_tp_matrix *dy, int pieces, par_tp_matrix out[3]) {
    const int most = SPLIT_ROWS / (sequence ? l->t : 1) / 2, calls = pieces < most ? pieces : most;
    const par_kind kind = !f->row_parallel ? PAR_KIND_ALL_GATHER
                          : sequence       ? PAR_KIND_REDUCE_SCATTER
                                           : PAR_KIND_ALL_REDUCE;
    l->tp->desc.row_pieces = pieces;
    memset(f->weight.grad, 0, f->weight.local_rows * f->weight.local_cols * sizeof(float));
    CHECK_OK(l->world, par_tp_linear_forward(l->tp, f, x, NULL, &out[0])); // makes scratch memory
    par_ledger_reset(l->tp_comm);
    CHECK_OK(l->world, par_tp_linear_forward(l->tp, f, x, NULL, &out[0]));
    if (l->t > 1 && (sequence || f->row_parallel))
        CHECK(l->world, par_ledger_get(l->tp_comm, kind).calls == (uint64_t)calls);
    CHECK_OK(l->world, par_tp_linear_backward(l->tp, f, dy, x, &out[1]));
    CHECK_OK(l->world, par_tp_linear_backward_input(l->tp, f, dy, &out[2]));
}
static void split_linear_of(layout *l, int sequence, int row_parallel) {
    static const int pieces[] = {1, 2, 3, 8};
    static const shape column_shape = {SPLIT_ROWS, 6, 48}, row_shape = {SPLIT_ROWS, 48, 10};
    const shape *s = row_parallel ? &row_shape : &column_shape;
    const par_tp_layout in = row_parallel ? PAR_TP_HIDDEN : tokens_of(sequence),
                        out = row_parallel ? tokens_of(sequence) : PAR_TP_HIDDEN;
    problem p;
    par_tp_linear f;
    par_tp_matrix m[2][3];
    float grad[48 * 10];
    memset(&f, 0, sizeof f);
    f.row_parallel = row_parallel, f.has_bias = 1;
    open_linear(l, s, &f, &p);
    const size_t grad_bytes = f.weight.local_rows * f.weight.local_cols * sizeof(float);
    par_tp_parameter split = f.weight;
    if (row_parallel) split.local_rows = f.weight.local_cols;
    par_tp_matrix x = part_of(l, p.in[0], s->in, in, row_parallel ? &split : NULL);
    par_tp_matrix dy = part_of(l, p.weight, s->out, out, row_parallel ? NULL : &split);
    for (int i = 0; i < 6; i++) m[i / 3][i % 3] = alloc_output(l, 48);
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
        run_in_pieces(l, sequence, &f, &x, &dy, pieces[k], m[k > 0]);
        if (!k) memcpy(grad, f.weight.grad, grad_bytes);
        CHECK(l->world, !memcmp(grad, f.weight.grad, grad_bytes));
        for (int i = 0; i < 3; i++) CHECK(l->world, !memcmp(m[0][i].data, m[k > 0][i].data, SPLIT_BYTES));
    }
    expect(l, "y in pieces", &m[1][0], p.out, s->out, out, row_parallel ? NULL : &split);
    expect(l, "dx in pieces", &m[1][2], p.grad[0], s->in, in, row_parallel ? &split : NULL);
    for (int i = 0; i < 6; i++) free(m[i / 3][i % 3].data);
    free(x.data), free(dy.data), close_linear(&f, &p);
}
static void split_linear(layout *l, int sequence) {
    for (int row_parallel = 0; row_parallel < 2; row_parallel++) split_linear_of(l, sequence, row_parallel);
}
static void row_pieces(par_comm *w) { each_layout(w, split_linear, 1, 1); }
// Sums that travel in bf16. Products of small integers are exact in f32, so each bit of such a sum is known:
// of the ranks' partial sums, each rounded, added in f32, and rounded once. It is as near to the exact sum as
// par_tp_desc.sum_dtype says, and has half of the bytes.
enum { NARROW_IN = 40, NARROW_OUT = 6, NARROW_ROWS = 4 }; // of a rank
static float small_number(uint64_t stream, size_t i) { return floorf(31 * par_uniform(3, stream, i)) - 15; }
static void narrow_sum(par_comm *w, par_tp_desc *d, int row_parallel) {
    const size_t t = (size_t)par_size(w), rows = NARROW_ROWS * t, n = rows * NARROW_OUT;
    const int sequence = d->sequence_parallel;
    const uint64_t me = 10 * (uint64_t)par_rank(w);
    const par_kind kind = sequence ? PAR_KIND_REDUCE_SCATTER : PAR_KIND_ALL_REDUCE;
    par_bf16 *memory = (par_bf16 *)calloc(rows * NARROW_IN + NARROW_IN * NARROW_OUT + 2 * n, 2);
    par_bf16 *x = memory, *weight = x + rows * NARROW_IN, *y = weight + NARROW_IN * NARROW_OUT;
    float *mine = (float *)calloc((t + 1) * n, sizeof *mine), *all = mine + n;
    par_tp *tp;
    par_tp_linear f;
    uint64_t bytes[2];
    memset(&f, 0, sizeof f);
    f.row_parallel = row_parallel;
    f.in = row_parallel ? NARROW_IN * t : NARROW_OUT, f.out = row_parallel ? NARROW_OUT : NARROW_IN * t;
    for (size_t i = 0; i < rows * NARROW_IN; i++) x[i] = par_f32_to_bf16(small_number(me + 1, i));
    for (size_t i = 0; i < NARROW_IN * NARROW_OUT; i++) weight[i] = par_f32_to_bf16(small_number(me + 2, i));
    for (size_t i = 0; i < n * NARROW_IN; i++) { // row r, inner k, column j: partial sums
        const size_t j = i % NARROW_OUT, k = i / NARROW_OUT % NARROW_IN, r = i / NARROW_OUT / NARROW_IN;
        mine[r * NARROW_OUT + j] +=
            par_bf16_to_f32(x[r * NARROW_IN + k]) *
            par_bf16_to_f32(weight[row_parallel ? j * NARROW_IN + k : k * NARROW_OUT + j]);
    }
    CHECK_OK(w, par_all_gather(mine, all, n, PAR_F32, w));
    for (int narrow = 0; narrow < 2; narrow++) {
        par_tp_matrix from = {x, rows, NARROW_IN, PAR_TP_HIDDEN}, to = {y, 0, 0, PAR_TP_HIDDEN};
        d->sum_dtype = narrow ? PAR_BF16 : (par_dtype)0;
        CHECK_OK(w, par_tp_open(d, &tp));
        CHECK_OK(w, par_tp_linear_open(tp, &f));
        f.weight.data = weight;
        par_ledger_reset(w);
        CHECK_OK(w, row_parallel ? par_tp_linear_forward(tp, &f, &from, NULL, &to)
                                 : par_tp_linear_backward_input(tp, &f, &from, &to));
        bytes[narrow] = par_ledger_get(w, kind).sent_bytes;
        const size_t first = sequence ? (size_t)par_rank(w) * NARROW_ROWS * NARROW_OUT : 0;
        int wrong = to.rows != rows / (sequence ? t : 1), far = 0, rounds = 0;
        for (size_t i = 0; i < to.rows * NARROW_OUT; i++) {
            float sum = 0, exact = 0, sizes = 0;
            for (size_t r = 0; r < t; r++) {
                const float x_r = all[r * n + first + i];
                sum += narrow && t > 1 ? par_bf16_to_f32(par_f32_to_bf16(x_r)) : x_r;
                exact += x_r, sizes += fabsf(x_r);
            }
            wrong += y[i] != par_f32_to_bf16(sum);
            far += fabsf(par_bf16_to_f32(y[i]) - exact) > (sizes * (float)narrow + fabsf(exact)) / 256;
            rounds += sum != exact;
        }
        CHECK(w, !wrong && !far && (rounds > 0) == (narrow && t > 1));
        CHECK_OK(w, par_tp_close(tp));
    }
    CHECK(w, bytes[0] == 2 * bytes[1] && !bytes[0] == (t == 1));
    free(memory), free(mine);
}
static void narrow_sums(par_comm *w) {
    for (int variant = 0; variant < 8; variant++) { // in pieces, too
        par_tp_desc d;
        memset(&d, 0, sizeof d);
        d.tp = w, d.dtype = PAR_BF16, d.sequence_parallel = variant & 1, d.row_pieces = variant & 2;
        narrow_sum(w, &d, variant >> 2);
    }
}
static void linear_column(par_comm *w) { each_layout(w, column, 2, 1); }
static void linear_row(par_comm *w) { each_layout(w, row, 2, 1); }

// ---- layers that need no other rank -----------------------------------------------------------------------

typedef struct norm_sizes {
    long columns; // negative for a root mean square norm
    double epsilon;
} norm_sizes;
static void ref_norm(problem *p) { // x, w, b
    const norm_sizes *sizes = (const norm_sizes *)p->user;
    const long n = sizes->columns;
    const size_t h = (size_t)labs(n);
    for (size_t r = 0; r < p->n[0] / h; r++) {
        const double *x = p->in[0] + r * h;
        double mean = 0, square = 0;
        for (size_t i = 0; i < h && n > 0; i++) mean += x[i] / (double)h;
        for (size_t i = 0; i < h; i++) square += (x[i] - mean) * (x[i] - mean) / (double)h;
        for (size_t i = 0; i < h; i++)
            p->out[r * h + i] =
                (x[i] - mean) / sqrt(square + sizes->epsilon) * p->in[1][i] + (p->n[2] ? p->in[2][i] : 0);
    }
}
enum { FEATURES = 38 }; // of norms: vectors of 16, and a rest
// The bits of an addition and a norm, one after the other.
static void add_norm(layout *l, par_tp_norm *f, const par_tp_matrix *x, const par_tp_matrix *dy) {
    float stats[2 * 48], again[2 * 48];
    par_tp_matrix m[8];
    for (int i = 0; i < 8; i++) m[i] = alloc_output(l, FEATURES);
    memset(again, 0, sizeof again), memset(stats, 0, sizeof stats);
    CHECK_OK(l->world, par_tp_add(l->tp, x, dy, &m[0]));
    CHECK_OK(l->world, par_tp_norm_forward(l->tp, f, &m[0], stats, &m[1]));
    CHECK_OK(l->world, par_tp_norm_backward(l->tp, f, dy, &m[0], stats, &m[2]));
    CHECK_OK(l->world, par_tp_add(l->tp, x, &m[2], &m[3]));
    CHECK_OK(l->world, par_tp_add_norm_forward(l->tp, f, x, dy, again, &m[4], &m[5]));
    CHECK_OK(l->world, par_tp_norm_backward_add(l->tp, f, dy, &m[4], again, x, &m[7]));
    const size_t bytes = x->rows * FEATURES * par_tp_element_bytes(l->tp);
    CHECK(l->world, !memcmp(stats, again, sizeof stats));
    for (int i = 0; i < 4; i++) CHECK(l->world, i == 2 || !memcmp(m[i].data, m[4 + i].data, bytes));
    for (int i = 0; i < 8; i++) free(m[i].data);
}
static void norm(layout *l, int sequence) {
    l->tokens.batch = 1, l->tokens.sequence = 48;
    for (int kind = 0; kind < 3; kind++) { // with a bias, without, root mean square
        const float epsilons[] = {0, 0.25f, 0.5f};
        const norm_sizes h = {kind == 2 ? -FEATURES : FEATURES, kind ? (double)epsilons[kind] : 1e-5};
        problem p;
        par_tp_norm f;
        memset(&p, 0, sizeof p);
        memset(&f, 0, sizeof f);
        f.features = FEATURES, f.rms = kind == 2, f.has_bias = kind == 0, f.epsilon = epsilons[kind];
        add_input(&p, 0, 48 * FEATURES), add_input(&p, 1, FEATURES);
        if (f.has_bias) add_input(&p, 2, FEATURES);
        solve(l->world, l->solved, &p, 48 * FEATURES, ref_norm, &h);
        CHECK_OK(l->world, par_tp_norm_open(l->tp, &f));
        open_parameter(l, &f.weight, p.in[1]);
        if (f.has_bias) open_parameter(l, &f.bias, p.in[2]);
        float stats[2 * 48];
        par_tp_matrix x = part_of(l, p.in[0], FEATURES, tokens_of(sequence), NULL),
                      y = alloc_output(l, FEATURES);
        par_tp_matrix dy = part_of(l, p.weight, FEATURES, tokens_of(sequence), NULL),
                      dx = alloc_output(l, FEATURES);
        CHECK_OK(l->world, par_tp_norm_forward(l->tp, &f, &x, stats, &y));
        CHECK_OK(l->world, par_tp_norm_backward(l->tp, &f, &dy, &x, stats, &dx));
        expect(l, "norm y", &y, p.out, FEATURES, tokens_of(sequence), NULL);
        expect(l, "norm dx", &dx, p.grad[0], FEATURES, tokens_of(sequence), NULL);
        par_tp_parameter *all_of[2] = {&f.weight, &f.bias};
        finish(l, all_of, f.has_bias ? 2 : 1);
        expect_grad(l, "norm dw", &f.weight, p.grad[1]);
        if (f.has_bias) expect_grad(l, "norm db", &f.bias, p.grad[2]);
        add_norm(l, &f, &x, &dy);
        CHECK_OK(l->world, par_tp_norm_backward(l->tp, &f, &dy, &x, stats, &dy)); // in place
        expect(l, "norm dx in place", &dy, p.grad[0], FEATURES, tokens_of(sequence), NULL);
        if (f.has_bias) close_parameter(&f.bias);
        close_parameter(&f.weight), free(x.data), free(y.data), free(dy.data), free(dx.data),
            problem_close(&p);
    }
}
static void norms(par_comm *w) { each_layout(w, norm, 2, 1); }

static void ref_gelu(problem *p) {
    for (size_t i = 0; i < p->outs; i++) {
        const double x = 3 * p->in[0][i];
        p->out[i] = x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    }
}
static void ref_swiglu(problem *p) { // rows of [gate; up], 2 x 35
    for (size_t i = 0; i < p->outs; i++) {
        const double gate = p->in[0][i / 35 * 70 + i % 35], up = p->in[0][i / 35 * 70 + 35 + i % 35];
        p->out[i] = gate / (1 + exp(-gate)) * up;
    }
}
static void activation(layout *l, int sequence) {
    problem p;
    (void)sequence;
    l->tokens.batch = 1, l->tokens.sequence = 48;
    memset(&p, 0, sizeof p);
    add_input(&p, 0, 48 * 35);
    solve(l->world, l->solved, &p, 48 * 35, ref_gelu, NULL);
    par_tp_matrix x = part_of(l, p.in[0], 35, PAR_TP_HIDDEN, NULL), y = alloc_output(l, 35);
    par_tp_matrix dy = part_of(l, p.weight, 35, PAR_TP_HIDDEN, NULL), dx = alloc_output(l, 35);
    for (size_t i = 0; i < x.rows * x.cols; i++) put(l, x.data, i, 3 * get(l, x.data, i));
    CHECK_OK(l->world, par_tp_gelu_forward(l->tp, &x, &y));
    CHECK_OK(l->world, par_tp_gelu_backward(l->tp, &dy, &x, &dx));
    for (size_t i = 0; i < x.rows * x.cols; i++) put(l, dx.data, i, 3 * get(l, dx.data, i));
    expect(l, "gelu y", &y, p.out, 35, PAR_TP_HIDDEN, NULL);
    expect(l, "gelu dx", &dx, p.grad[0], 35, PAR_TP_HIDDEN, NULL);
    CHECK_OK(l->world, par_tp_add(l->tp, &x, &y, &y));
    for (size_t i = 0; i < p.outs; i++) p.out[i] += 3 * p.in[0][i];
    expect(l, "add", &y, p.out, 35, PAR_TP_HIDDEN, NULL);
    free(x.data), free(y.data), free(dy.data), free(dx.data), problem_close(&p);

    memset(&p, 0, sizeof p);
    add_input(&p, 0, 48 * 70);
    solve(l->world, l->solved, &p, 48 * 35, ref_swiglu, NULL);
    x = part_of(l, p.in[0], 70, PAR_TP_HIDDEN, NULL), y = alloc_output(l, 35);
    dy = part_of(l, p.weight, 35, PAR_TP_HIDDEN, NULL), dx = alloc_output(l, 70);
    CHECK_OK(l->world, par_tp_swiglu_forward(l->tp, &x, &y));
    CHECK_OK(l->world, par_tp_swiglu_backward(l->tp, &dy, &x, &dx));
    expect(l, "swiglu y", &y, p.out, 35, PAR_TP_HIDDEN, NULL);
    expect(l, "swiglu dx", &dx, p.grad[0], 70, PAR_TP_HIDDEN, NULL);
    free(x.data), free(y.data), free(dy.data), free(dx.data), problem_close(&p);
}
static void activations(par_comm *w) { each_layout(w, activation, 2, 1); }

static int dropped(uint64_t stream, uint64_t element, float p) { // as the manual says: 32 bits of Philox
    const uint32_t key[2] = {5, 0};
    const uint32_t counter[4] = {(uint32_t)(element / 4), (uint32_t)(element / 4 >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    uint32_t bits[4];
    par_philox(counter, key, bits);
    return (double)bits[element % 4] < (double)p * 4294967296.0;
}
static void check_dropout(layout *l, int sequence) {
    const size_t h = 321, rows = 48; // rows begin within Philox blocks, and end behind 80 of them
    double *x = numbers(1, rows * h), *want = numbers(0, rows * h);
    size_t zeros = 0;
    l->tokens.batch = 1, l->tokens.sequence = 48, l->tokens.first_sequence = 3;
    for (size_t i = 0; i < rows * h; i++) {
        const int zero = dropped(17, 3 * rows * h + i, 0.25f);
        want[i] = zero ? 0 : x[i] / 0.75;
        zeros += (size_t)zero;
    }
    CHECK(l->world, zeros > rows * h / 8 && zeros < rows * h / 2);
    par_tp_matrix a = part_of(l, x, h, tokens_of(sequence), NULL), b = alloc_output(l, h);
    CHECK_OK(l->world, par_tp_dropout(l->tp, &l->tokens, 17, 0.25f, &a, &b));
    expect(l, "dropout", &b, want, h, tokens_of(sequence), NULL);
    CHECK_OK(l->world, par_tp_dropout(l->tp, &l->tokens, 17, 0.25f, &a, &a));
    expect(l, "dropout in place", &a, want, h, tokens_of(sequence), NULL);
    free(a.data), free(b.data), free(x), free(want);
}
static void dropouts(par_comm *w) { each_layout(w, check_dropout, 4, 1); }

// 2 sequences of 24 tokens, 3 heads of 6, then 4 columns that are not rotated. Of a head's three frequencies
// scaling leaves the first, divides a part of the second and all of the third by 8: worked out by hand.
static void ref_rope(problem *p) {
    const int scaled = *(const int *)p->user;
    for (size_t r = 0; r < 48; r++)
        for (size_t j = 0; j < 22; j++) {
            const size_t i = j % 6 % 3, first = r * 22 + j / 6 * 6 + i;
            const double unscaled = pow(100, -2.0 * (double)i / 6);
            const double part = 64 * unscaled / 6.283185307179586 / 3 - 1.0 / 3;
            const double f = !scaled || i == 0 ? unscaled
                             : i == 1          ? part * unscaled + (1 - part) * unscaled / 8
                                               : unscaled / 8;
            const double angle = (double)(r % 24) * f, u = p->in[0][first];
            const double v = j < 18 ? p->in[0][first + 3] : 0;
            p->out[r * 22 + j] = j >= 18     ? p->in[0][r * 22 + j]
                                 : j % 6 < 3 ? u * cos(angle) - v * sin(angle)
                                             : v * cos(angle) + u * sin(angle);
        }
}
static void check_rope(layout *l, int sequence) {
    static const par_tp_rotary kinds[2] = {{100, 0, 0, 0, 0}, {100, 8, 1, 4, 64}};
    (void)sequence;
    l->tokens.batch = 2, l->tokens.sequence = 24;
    for (int scaled = 0; scaled < 2; scaled++) {
        problem p;
        memset(&p, 0, sizeof p);
        add_input(&p, 0, 48 * 22);
        solve(l->world, l->solved, &p, 48 * 22, ref_rope, &scaled);
        par_tp_matrix x = part_of(l, p.in[0], 22, PAR_TP_HIDDEN, NULL),
                      d = part_of(l, p.weight, 22, PAR_TP_HIDDEN, NULL);
        CHECK_OK(l->world, par_tp_rope(l->tp, &l->tokens, 3, 6, &kinds[scaled], 0, &x));
        CHECK_OK(l->world, par_tp_rope(l->tp, &l->tokens, 3, 6, &kinds[scaled], 1, &d));
        expect(l, "rope", &x, p.out, 22, PAR_TP_HIDDEN, NULL);
        expect(l, "rope back", &d, p.grad[0], 22, PAR_TP_HIDDEN, NULL);
        free(x.data), free(d.data), problem_close(&p);
    }
}
static void rope(par_comm *w) { each_layout(w, check_rope, 4, 1); }

// ---- embedding and loss -----------------------------------------------------------------------------------

static int32_t id_of(size_t token) { return (int32_t)(token * 7 % 29); }
static void ref_embedding(problem *p) { // table 29 x 6, positions 24 x 6, 2 sequences of 24
    for (size_t r = 0; r < 48; r++)
        for (size_t j = 0; j < 6; j++)
            p->out[r * 6 + j] = p->in[0][(size_t)id_of(r) * 6 + j] + p->in[1][r % 24 * 6 + j];
}
static void check_embedding(layout *l, int sequence) {
    problem p;
    par_tp_embedding f;
    int32_t ids[48];
    memset(&p, 0, sizeof p);
    memset(&f, 0, sizeof f);
    l->tokens.batch = 2, l->tokens.sequence = 24;
    f.vocabulary = 29, f.features = 6, f.max_positions = 24;
    add_input(&p, 0, 29 * 6), add_input(&p, 1, 24 * 6);
    solve(l->world, l->solved, &p, 48 * 6, ref_embedding, NULL);
    CHECK_OK(l->world, par_tp_embedding_open(l->tp, &f));
    open_parameter(l, &f.weight, p.in[0]), open_parameter(l, &f.position_weight, p.in[1]);
    for (size_t r = 0; r < par_tp_rows(l->tp, &l->tokens); r++)
        ids[r] = id_of(whole_row(l, PAR_TP_HIDDEN, r));
    par_tp_matrix y = alloc_output(l, 6), dy = part_of(l, p.weight, 6, tokens_of(sequence), NULL);
    CHECK_OK(l->world, par_tp_embedding_forward(l->tp, &f, &l->tokens, ids, &y));
    expect(l, "embedding", &y, p.out, 6, tokens_of(sequence), NULL);
    CHECK_OK(l->world, par_tp_embedding_backward(l->tp, &f, &l->tokens, ids, &dy));
    par_tp_parameter *all_of[2] = {&f.weight, &f.position_weight};
    finish(l, all_of, 2);
    expect_grad(l, "embedding dw", &f.weight, p.grad[0]),
        expect_grad(l, "positions", &f.position_weight, p.grad[1]);
    ids[0] = 29;
    CHECK(l->world, par_tp_embedding_forward(l->tp, &f, &l->tokens, ids, &y) == PAR_ERR_ARGUMENT &&
                        strstr(par_last_error(l->tp_comm), "ids[0] is 29, but the vocabulary has 29"));
    close_parameter(&f.weight), close_parameter(&f.position_weight), free(y.data), free(dy.data),
        problem_close(&p);
}
static void embeddings(par_comm *w) { each_layout(w, check_embedding, 4, 1); }

static int32_t target_of(size_t token) {
    return token % 7 == 3 ? 11 : token % 7 == 5 ? -1 : (int32_t)(token * 5 % 29);
}
static void ref_loss(problem *p) { // logits 48 x 29 -> losses of 48 rows; 11 is ignored, and what is negative
    const par_tp_loss *f = (const par_tp_loss *)p->user;
    for (size_t r = 0; r < 48; r++) {
        const double *x = p->in[0] + r * 29;
        double sum = 0, total = 0, e = (double)f->label_smoothing;
        for (size_t j = 0; j < 29; j++) sum += exp(x[j]), total += x[j];
        const double lse = log(sum);
        const int32_t target = target_of(r);
        p->out[r] = target < 0 || target == 11 ? 0
                                               : (1 - e) * (lse - x[target]) + e * (lse - total / 29) +
                                                     (double)f->z_loss * lse * lse;
    }
}
static void check_loss(layout *l, int sequence) {
    (void)sequence;
    l->tokens.batch = 2, l->tokens.sequence = 24;
    for (int kind = 0; kind < 2; kind++) {
        problem p;
        par_tp_loss f;
        par_tp_linear head; // only to know its shape
        int32_t targets[48];
        float lse[48], losses[48];
        double sum, want = 0;
        size_t target_count, rows, expected = 0;
        memset(&p, 0, sizeof p);
        memset(&head, 0, sizeof head);
        memset(&f, 0, sizeof f);
        f.vocabulary = 29, f.ignore_index = 11, f.label_smoothing = kind ? 0.125f : 0,
        f.z_loss = kind ? 0.25f : 0;
        head.in = 1, head.out = 29, head.vocab_parallel = 1;
        CHECK_OK(l->world, par_tp_linear_open(l->tp, &head));
        add_input(&p, 0, 48 * 29);
        solve(l->world, l->solved, &p, 48, ref_loss, &f);
        for (size_t i = 0; i < 48 * 29; i++) p.grad[0][i] /= p.weight[i / 29]; // of the sum of the losses
        rows = par_tp_rows(l->tp, &l->tokens);
        for (size_t r = 0; r < rows; r++) {
            const size_t token = whole_row(l, PAR_TP_HIDDEN, r);
            targets[r] = target_of(token), want += p.out[token];
            expected += targets[r] >= 0 && targets[r] != 11;
        }
        par_tp_matrix x = part_of(l, p.in[0], 29, PAR_TP_VOCABULARY, &head.weight), y = x;
        const size_t bytes = rows * par_tp_ld(x.layout, x.cols) * par_dtype_bytes(par_tp_dtype(l->tp));
        par_tp_matrix logits = part_of(l, p.in[0], 29, PAR_TP_VOCABULARY, &head.weight);
        float both_lse[48], both_losses[48];
        double both_sum;
        y.data = malloc(bytes), memcpy(y.data, x.data, bytes);
        CHECK_OK(l->world, par_tp_loss_forward_backward(l->tp, &f, &y, targets, both_lse, both_losses,
                                                        &both_sum, &target_count, 1.0f, &y));
        CHECK(l->world, target_count == expected);
        CHECK_OK(l->world, par_tp_loss_forward(l->tp, &f, &x, targets, lse, losses, &sum, &target_count));
        CHECK(l->world, target_count == expected);
        compare(l, "loss", fabs(sum - want), fabs(want));
        for (size_t r = 0; r < rows; r++)
            compare(l, "row's loss", fabs((double)losses[r] - p.out[whole_row(l, PAR_TP_HIDDEN, r)]), 1);
        CHECK_OK(l->world, par_tp_loss_backward(l->tp, &f, &x, targets, lse, 1.0f, &x));
        CHECK(l->world, !memcmp(x.data, y.data, bytes) && !memcmp(lse, both_lse, rows * sizeof *lse));
        CHECK(l->world, both_sum == sum && !memcmp(losses, both_losses, rows * sizeof *losses));
        expect(l, "dlogits", &x, p.grad[0], 29, PAR_TP_VOCABULARY, &head.weight);
        par_tp_matrix whole = part_of(l, p.in[0], 29, PAR_TP_REPLICATED, NULL);
        float row[29];
        CHECK_OK(l->world, par_tp_logits_gather(l->tp, &f, &logits, 3, row));
        for (size_t i = 0; i < 29; i++) CHECK(l->world, row[i] == (float)get(l, whole.data, 3 * 29 + i));
        CHECK(l->world, par_tp_logits_gather(l->tp, &f, &logits, rows, row) == PAR_ERR_ARGUMENT &&
                            strstr(par_last_error(l->tp_comm), "there is no row"));
        const par_result r =
            par_tp_loss_forward(l->tp, &f, &whole, targets, lse, losses, &sum, &target_count);
        CHECK(l->world, r == PAR_ERR_ARGUMENT && strstr(par_last_error(l->tp_comm), "logits is replicated") &&
                            strstr(par_last_error(l->tp_comm), "must be split by vocabulary"));
        free(x.data), free(y.data), free(whole.data), free(logits.data), problem_close(&p);
    }
}
static void losses(par_comm *w) { each_layout(w, check_loss, 4, 1); }

// The head and its loss, by calls for all rows or in chunks.
enum { HEAD_IN = 16 };
typedef struct head_run {
    double sum;
    size_t target_count, grad_count;
    float losses[48], *grads[2];
    par_tp_matrix dx;
} head_run;
static head_run head_run_open(layout *l, par_tp_linear *head) {
    head_run r;
    memset(&r, 0, sizeof r);
    r.dx = alloc_output(l, HEAD_IN);
    r.grad_count = head->weight.local_rows * HEAD_IN;
    r.grads[0] = head->weight.grad = (float *)calloc(r.grad_count + 1, sizeof(float));
    r.grads[1] = head->bias.grad = (float *)calloc(head->weight.local_rows + 1, sizeof(float));
    return r;
}
static void head_run_close(head_run *r) { free(r->dx.data), free(r->grads[0]), free(r->grads[1]); }
static head_run head_of_all_rows(layout *l, par_tp_linear *head, const par_tp_loss *f, const par_tp_matrix *x,
                                 const int32_t *targets) {
    head_run r = head_run_open(l, head);
    float lse[48];
    const size_t rows = par_tp_rows(l->tp, &l->tokens), ld = par_tp_ld(PAR_TP_VOCABULARY, 29);
    par_tp_matrix logits = {malloc(rows * ld * sizeof(float)), rows, 29, PAR_TP_VOCABULARY};
    CHECK_OK(l->world, par_tp_linear_forward(l->tp, head, x, NULL, &logits));
    CHECK_OK(l->world, par_tp_loss_forward_backward(l->tp, f, &logits, targets, lse, r.losses, &r.sum,
                                                    &r.target_count, 0.5f, &logits));
    CHECK_OK(l->world, par_tp_linear_backward(l->tp, head, &logits, x, &r.dx));
    free(logits.data);
    return r;
}
static void head_in_chunks(layout *l, par_tp_linear *head, const par_tp_loss *f, const par_tp_matrix *x,
                           const int32_t *targets, size_t chunk_rows, const head_run *want) {
    const size_t e = par_dtype_bytes(par_tp_dtype(l->tp)), rows = par_tp_rows(l->tp, &l->tokens);
    head_run r = head_run_open(l, head);
    double sum = 0;
    size_t target_count = 0;
    CHECK_OK(l->world, par_tp_head_forward_backward(l->tp, head, f, x, targets, chunk_rows, r.losses, &r.sum,
                                                    &r.target_count, 0.5f, &r.dx));
    CHECK(l->world, r.sum == want->sum && r.target_count == want->target_count);
    CHECK(l->world, !memcmp(r.losses, want->losses, rows * sizeof *r.losses));
    CHECK(l->world, r.dx.rows == want->dx.rows && r.dx.layout == want->dx.layout &&
                        !memcmp(r.dx.data, want->dx.data, r.dx.rows * r.dx.cols * e));
    if (!chunk_rows || chunk_rows >= rows) // the same products
        CHECK(l->world, !memcmp(r.grads[0], want->grads[0], r.grad_count * sizeof(float)) &&
                            !memcmp(r.grads[1], want->grads[1], head->weight.local_rows * sizeof(float)));
    for (size_t i = 0; i < r.grad_count; i++)
        compare(l, "head dw", fabs((double)r.grads[0][i] - (double)want->grads[0][i]), 1e-3);
    for (size_t i = 0; i < head->weight.local_rows; i++)
        compare(l, "head db", fabs((double)r.grads[1][i] - (double)want->grads[1][i]), 1e-3);
    memset(r.losses, 0, sizeof r.losses);
    CHECK_OK(l->world,
             par_tp_head_forward(l->tp, head, f, x, targets, chunk_rows, r.losses, &sum, &target_count));
    CHECK(l->world, sum == want->sum && target_count == want->target_count &&
                        !memcmp(r.losses, want->losses, rows * sizeof *r.losses));
    CHECK_OK(l->world, par_tp_head_forward_backward(l->tp, head, f, x, targets, chunk_rows, NULL, &sum,
                                                    &target_count, 0.5f, NULL)); // adds, as without dx
    for (size_t i = 0; i < r.grad_count; i++)
        compare(l, "head dw, added", fabs((double)r.grads[0][i] - 2 * (double)want->grads[0][i]), 1e-3);
    head_run_close(&r);
}
// Logits of 48 rows in f32 take 12288 bytes; for chunks of 7 the context has 1792, for one of 48 all.
static void check_head(layout *l, int sequence) {
    par_tp_linear head;
    par_tp_loss f;
    int32_t targets[48];
    double values[48 * HEAD_IN], weights[29 * (HEAD_IN + 1)];
    l->tokens.batch = 2, l->tokens.sequence = 24;
    memset(&head, 0, sizeof head);
    memset(&f, 0, sizeof f);
    head.in = HEAD_IN, head.out = f.vocabulary = 29, head.vocab_parallel = head.has_bias = 1;
    head.name = "head", f.ignore_index = 11, f.label_smoothing = 0.125f, f.z_loss = 0.25f;
    const size_t rows = par_tp_rows(l->tp, &l->tokens), e = par_dtype_bytes(par_tp_dtype(l->tp));
    for (size_t i = 0; i < 48 * HEAD_IN; i++) values[i] = sin(0.3 * (double)i);
    for (size_t i = 0; i < 29 * (HEAD_IN + 1); i++) weights[i] = cos(0.7 * (double)i);
    for (size_t r = 0; r < rows; r++) targets[r] = target_of(whole_row(l, PAR_TP_HIDDEN, r));
    CHECK_OK(l->world, par_tp_linear_open(l->tp, &head));
    open_parameter(l, &head.weight, weights), open_parameter(l, &head.bias, weights + 29 * HEAD_IN);
    float *const own[2] = {head.weight.grad, head.bias.grad};
    par_tp_matrix x = part_of(l, values, HEAD_IN, tokens_of(sequence), NULL);
    head_run want = head_of_all_rows(l, &head, &f, &x, targets);
    static const size_t chunks[] = {7, 1, 24, 0, 1000};
    size_t most = 0;
    for (int i = 0; i < 5; i++) {
        const size_t parts =
            chunks[i] && chunks[i] < rows ? PAR__MIN((rows + chunks[i] - 1) / chunks[i], rows / 2) : 1;
        head_in_chunks(l, &head, &f, &x, targets, chunks[i], &want);
        most = PAR__MAX(most, (rows + parts - 1) / parts);
        CHECK(l->world,
              l->tp->scratch[PAR__TP_LOGITS].bytes == most * 64 * e &&
                  par_tp_head_bytes(l->tp, &head, rows, chunks[i]) >= (rows + parts - 1) / parts * 64 * e);
    }
    head_run_close(&want);
    head.weight.grad = own[0], head.bias.grad = own[1];
    close_parameter(&head.weight), close_parameter(&head.bias), free(x.data);
}
static void heads_in_chunks(par_comm *w) { each_layout(w, check_head, 4, 1); }

// ---- attention --------------------------------------------------------------------------------------------

typedef struct heads {
    size_t heads, kv, dim, sequence, batch;
    float dropout;
    size_t window;
    size_t document; // tokens of a document, but for the first and the last of a sequence; 0: whole sequences
} heads;
static size_t first_key(const heads *a, size_t b, size_t i) { // that token i of sequence b sees
    const size_t document = a->document ? i - PAR__MIN(i, (i + b + 1) % a->document) : 0;
    return a->window && i >= a->window ? PAR__MAX(document, i - a->window + 1) : document;
}
static void ref_attention(problem *p) { // x: rows of [q; k; v]
    const heads *a = (const heads *)p->user;
    const size_t w = (a->heads + 2 * a->kv) * a->dim, s = a->sequence;
    double *score = (double *)malloc(s * sizeof *score);
    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->heads; h++)
            for (size_t i = 0; i < s; i++) {
                const double *q = p->in[0] + (b * s + i) * w + h * a->dim;
                const size_t k_at = (a->heads + h / (a->heads / a->kv)) * a->dim,
                             v_at = k_at + a->kv * a->dim;
                double sum = 0, *y = p->out + (b * s + i) * a->heads * a->dim + h * a->dim;
                const size_t first = first_key(a, b, i);
                for (size_t j = first; j <= i; j++) {
                    const double *k = p->in[0] + (b * s + j) * w + k_at;
                    double dot = 0;
                    for (size_t d = 0; d < a->dim; d++) dot += q[d] * k[d];
                    sum += score[j] = exp(dot / sqrt((double)a->dim));
                }
                for (size_t d = 0; d < a->dim; d++) y[d] = 0;
                for (size_t j = first; j <= i; j++) {
                    const uint64_t element = (((2 + b) * a->heads + h) * s + i) * s + j;
                    const double keep =
                        a->dropout > 0 ? (dropped(23, element, a->dropout) ? 0 : 1 / (1 - (double)a->dropout))
                                       : 1;
                    for (size_t d = 0; d < a->dim; d++)
                        y[d] += keep * score[j] / sum * p->in[0][(b * s + j) * w + v_at + d];
                }
            }
    free(score);
}
// Sets l->tokens.documents, which the caller frees.
static void map_documents(layout *l, const heads *a) {
    const size_t all = a->batch * a->sequence;
    size_t *offsets = (size_t *)calloc(all + 1, sizeof *offsets), count = 0;
    uint32_t *map = (uint32_t *)malloc(2 * all * sizeof *map);
    for (size_t i = 1; i < all; i++)
        if (i % a->sequence == 0 || (i % a->sequence + i / a->sequence + 1) % a->document == 0)
            offsets[++count] = i;
    offsets[++count] = all;
    CHECK_OK(l->world, par_tp_documents_map(l->tp, &l->tokens, offsets, count, map));
    l->tokens.documents = map;
    free(offsets);
}
// Attention with its input, and two products for the shapes of what goes in and comes out.
static void open_attention(layout *l, const heads *a, problem *p, par_tp_attention *f, par_tp_linear *qkv,
                           par_tp_linear *q) {
    const size_t w = (a->heads + 2 * a->kv) * a->dim, n = a->batch * a->sequence * w;
    memset(p, 0, sizeof *p);
    memset(f, 0, sizeof *f);
    memset(qkv, 0, sizeof *qkv);
    memset(q, 0, sizeof *q);
    f->heads = a->heads, f->kv_heads = a->kv, f->dim = a->dim, f->window = a->window;
    l->tokens.batch = a->batch, l->tokens.sequence = a->sequence, l->tokens.first_sequence = 2;
    l->tokens.documents = NULL;
    if (a->document) map_documents(l, a);
    qkv->in = 1, qkv->out = w, qkv->segment_count = 3, q->in = 1, q->out = a->heads * a->dim;
    par_tp_attention_segments(f, qkv->segments);
    CHECK_OK(l->world, par_tp_linear_open(l->tp, qkv));
    CHECK_OK(l->world, par_tp_linear_open(l->tp, q));
    add_input(p, 0, n);
    for (size_t i = 0; i < n; i++) p->in[0][i] *= 2;
}
static void check_attention_of(layout *l, const heads *a) {
    const size_t w = (a->heads + 2 * a->kv) * a->dim, rows = a->batch * a->sequence;
    problem p;
    par_tp_attention f;
    par_tp_linear qkv, q;
    open_attention(l, a, &p, &f, &qkv, &q);
    f.dropout = a->dropout;
    solve(l->world, l->solved, &p, rows * a->heads * a->dim, ref_attention, a);
    float *lse = (float *)malloc(rows * a->heads * sizeof *lse);
    par_tp_matrix x = part_of(l, p.in[0], w, PAR_TP_HIDDEN, &qkv.weight),
                  y = alloc_output(l, a->heads * a->dim);
    par_tp_matrix dy = part_of(l, p.weight, a->heads * a->dim, PAR_TP_HIDDEN, &q.weight),
                  dx = alloc_output(l, w);
    CHECK_OK(l->world, par_tp_attention_forward(l->tp, &f, &l->tokens, 23, &x, lse, &y));
    expect(l, "attention y", &y, p.out, a->heads * a->dim, PAR_TP_HIDDEN, &q.weight);
    CHECK_OK(l->world, par_tp_attention_backward(l->tp, &f, &l->tokens, 23, &dy, &x, &y, lse, &dx));
    // Where several ranks have a key-value head, each has the gradient of its own queries: add them up.
    const size_t kv_ranks = (size_t)l->t > a->kv ? (size_t)l->t / a->kv : 1;
    if (kv_ranks > 1) {
        par_comm *share;
        float *all = (float *)malloc(dx.rows * dx.cols * sizeof *all);
        const size_t first = a->heads / (size_t)l->t * a->dim;
        CHECK_OK(l->world, par_split(l->tp_comm, par_rank(l->tp_comm) / (int)kv_ranks, 0, &share));
        for (size_t i = 0; i < dx.rows * dx.cols; i++)
            all[i] = i % dx.cols >= first ? (float)get(l, dx.data, i) : 0;
        CHECK_OK(l->world, par_all_reduce(all, all, dx.rows * dx.cols, PAR_F32, PAR_SUM, share));
        for (size_t i = 0; i < dx.rows * dx.cols; i++)
            if (i % dx.cols >= first) put(l, dx.data, i, (double)all[i]);
        CHECK_OK(l->world, par_close(share));
        free(all);
    }
    expect(l, "attention dx", &dx, p.grad[0], w, PAR_TP_HIDDEN, &qkv.weight);
    free(lse), free(x.data), free(y.data), free(dy.data), free(dx.data), problem_close(&p);
    free((void *)(uintptr_t)l->tokens.documents);
}
static void check_attention(layout *l, int sequence) {
    const heads kinds[] = {{8, 8, 3, 16, 2, 0, 0, 0},     {8, 2, 4, 16, 1, 0.25f, 0, 0},
                           {8, 1, 2, 16, 1, 0, 0, 5},     {6, 6, 2, 24, 1, 0.125f, 0, 0},
                           {8, 2, 2, 16, 1, 0.25f, 3, 0}, {6, 6, 2, 24, 1, 0, 7, 10}};
    if (sequence) return; // it makes no difference here
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const heads *a = &kinds[k];
        const size_t t = (size_t)l->t, c = (size_t)l->c, kv = a->kv >= t ? a->kv / t : 1;
        if (a->heads % t || (a->kv % t && t % a->kv) || a->sequence % (2 * c)) continue;
        if (l->ulysses && (a->heads / t % c || kv % c)) continue;
        check_attention_of(l, a);
    }
}
static void attention(par_comm *w) { each_layout(w, check_attention, 8, 1); }

// Keys and values are where par_tp_kv_cache says, and nothing is written elsewhere.
static void check_cache(layout *l, const heads *a, const par_tp_kv_cache *cache, const par_tp_matrix *x,
                        size_t kv) {
    const size_t e = par_tp_element_bytes(l->tp), row = a->dim * e, x_row = x->cols * e, parts = kv / row;
    const unsigned char *at = (const unsigned char *)cache->data;
    for (size_t b = 0; b < a->batch; b++)
        for (size_t part = 0; part < parts; part++)
            for (size_t i = 0; i < cache->capacity; i++, at += row) {
                const char *from = (const char *)x->data + (b * a->sequence + i) * x_row + x_row - kv;
                if (i < a->sequence) CHECK(l->world, !memcmp(at, from + part * row, row));
                for (size_t j = 0; i >= a->sequence && j < row; j++) CHECK(l->world, at[j] == 0xFF);
            }
    for (size_t i = 0; i < 64; i++) CHECK(l->world, at[i] == 0xFF);
}
// A prompt, then one to three tokens at a time, with one step back: the same as attention of whole sequences.
static void check_cached_of(layout *l, const heads *a) {
    const size_t w = (a->heads + 2 * a->kv) * a->dim, s = a->sequence, rows = a->batch * s;
    problem p;
    par_tp_attention f;
    par_tp_linear qkv, q;
    par_tp_kv_cache cache;
    memset(&cache, 0, sizeof cache);
    open_attention(l, a, &p, &f, &qkv, &q);
    p.out = numbers(0, rows * a->heads * a->dim), p.user = a;
    ref_attention(&p);
    par_tp_matrix x = part_of(l, p.in[0], w, PAR_TP_HIDDEN, &qkv.weight),
                  y = alloc_output(l, a->heads * a->dim);
    par_tp_matrix some = alloc_output(l, w), out = alloc_output(l, a->heads * a->dim);
    const size_t capacity = s + 3, e = par_tp_element_bytes(l->tp);
    const size_t bytes = par_tp_kv_cache_bytes(l->tp, &f, a->batch, capacity);
    const size_t x_row = x.cols * e, y_row = q.weight.local_rows * e, kv = x_row - y_row;
    CHECK(l->world, bytes == a->batch * capacity * kv); // keys and values of this rank's heads
    cache.data = malloc(bytes + 64), cache.batch = a->batch, cache.capacity = capacity;
    memset(cache.data, 0xFF, bytes + 64); // not numbers
    int back = 0;
    for (size_t at = 0, n; at < s; at += n) {
        if (at > s / 2 && !back++) at -= 2;
        n = at == 0 ? 7 : at % 5 == 0 ? PAR__MIN((size_t)3, s - at) : 1;
        l->tokens.sequence = n, l->tokens.position = at;
        some.rows = a->batch * n, some.cols = x.cols, some.layout = PAR_TP_HIDDEN;
        for (size_t b = 0; b < a->batch; b++)
            memcpy((char *)some.data + b * n * x_row, (char *)x.data + (b * s + at) * x_row, n * x_row);
        CHECK_OK(l->world, par_tp_attention_cached(l->tp, &f, &l->tokens, &cache, &some, &out));
        CHECK(l->world, cache.count == at + n && out.rows == some.rows && out.cols * e == y_row);
        for (size_t b = 0; b < a->batch; b++)
            memcpy((char *)y.data + (b * s + at) * y_row, (char *)out.data + b * n * y_row, n * y_row);
    }
    l->tokens.sequence = s, l->tokens.position = 0;
    y.rows = rows, y.cols = q.weight.local_rows, y.layout = PAR_TP_HIDDEN;
    expect(l, "cached y", &y, p.out, a->heads * a->dim, PAR_TP_HIDDEN, &q.weight);
    check_cache(l, a, &cache, &x, kv);
    free(x.data), free(y.data), free(some.data), free(out.data), free(cache.data), problem_close(&p);
}
static void check_cached(layout *l, int sequence) {
    const heads kinds[] = {{8, 8, 3, 16, 2, 0, 0, 0},  {8, 2, 4, 16, 3, 0, 0, 0},   {8, 1, 2, 16, 1, 0, 0, 0},
                           {6, 6, 50, 24, 1, 0, 0, 0}, {1, 1, 4, 2200, 2, 0, 0, 0}, {2, 1, 4, 40, 2, 0, 5, 0},
                           {4, 2, 72, 24, 2, 0, 0, 0}};
    (void)sequence; // it makes no difference here
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const heads *a = &kinds[k];
        const size_t t = (size_t)l->t;
        if (a->heads % t || (a->kv % t && t % a->kv)) continue;
        check_cached_of(l, a);
    }
}
static void attention_cached(par_comm *w) { each_layout(w, check_cached, 1, 1); }

// Longer than the kernel's blocks, and no multiple of them: all ranks' parts against one rank's result.
static void attention_long(par_comm *w) {
    const size_t s = 16 * 24, heads_count = 4, dim = 8, cols = 3 * heads_count * dim, n = s * cols;
    const int c = par_size(w);
    float *whole[4], *mine[4], *lse = (float *)malloc(s * heads_count * sizeof *lse);
    par_tp_attention f;
    par_tp_tokens tokens;
    memset(&f, 0, sizeof f);
    memset(&tokens, 0, sizeof tokens);
    f.heads = heads_count, f.dim = dim, tokens.batch = 1, tokens.sequence = s;
    if (s % (2 * (size_t)c)) tokens.sequence = 2 * (size_t)c * 27;
    for (int i = 0; i < 4; i++) whole[i] = (float *)calloc(n, 4), mine[i] = (float *)calloc(n, 4);
    for (int round = 0; round < 2; round++) { // one rank, then all
        par_comm *self;
        CHECK_OK(w, par_split(w, par_rank(w), 0, &self));
        par_tp_desc d;
        par_tp *tp;
        memset(&d, 0, sizeof d);
        d.tp = self, d.cp = round ? w : NULL, d.seed = 5;
        CHECK_OK(w, par_tp_open(&d, &tp));
        const size_t rows = par_tp_rows(tp, &tokens), qcols = heads_count * dim;
        float **m = round ? mine : whole;
        for (size_t r = 0; r < rows; r++) {
            const size_t at = par_tp_position(tp, tokens.sequence, r);
            for (size_t j = 0; j < cols; j++) m[0][r * cols + j] = (float)(3 * value(1, at * cols + j));
            for (size_t j = 0; j < qcols; j++) m[2][r * qcols + j] = (float)value(2, at * qcols + j);
        }
        par_tp_matrix x = {m[0], rows, cols, PAR_TP_HIDDEN}, y = {m[1], 0, 0, PAR_TP_HIDDEN};
        par_tp_matrix dy = {m[2], rows, qcols, PAR_TP_HIDDEN}, dx = {m[3], 0, 0, PAR_TP_HIDDEN};
        CHECK_OK(w, par_tp_attention_forward(tp, &f, &tokens, 1, &x, lse, &y));
        CHECK_OK(w, par_tp_attention_backward(tp, &f, &tokens, 1, &dy, &x, &y, lse, &dx));
        double error = 0;
        for (size_t r = 0; r < rows && round; r++) {
            const size_t at = par_tp_position(tp, tokens.sequence, r);
            for (size_t j = 0; j < qcols; j++)
                error = test_larger(error,
                                    fabs((double)mine[1][r * qcols + j] - (double)whole[1][at * qcols + j]));
            for (size_t j = 0; j < cols; j++)
                error =
                    test_larger(error, fabs((double)mine[3][r * cols + j] - (double)whole[3][at * cols + j]));
        }
        CHECK(w, error < 2e-5);
        CHECK_OK(w, par_tp_close(tp));
        CHECK_OK(w, par_close(self));
    }
    for (int i = 0; i < 4; i++) free(whole[i]), free(mine[i]);
    free(lse);
}

// Each instruction set's kernels, forward and backward, against formulas in double: sequences of no whole
// block or strip, heads of odd size.
static void attention_reference(const heads *a, const double *x, const double *dy, double *y, double *dx) {
    const size_t w = (a->heads + 2 * a->kv) * a->dim, s = a->sequence, d = a->dim, cols = a->heads * d;
    const double scale = 1 / sqrt((double)d);
    double *e = (double *)malloc(2 * s * sizeof *e), *keep = e + s;
    for (size_t n = 0; n < a->batch * a->heads * s; n++) {
        const size_t i = n % s, h = n / s % a->heads, b = n / s / a->heads, row = b * s + i;
        const size_t k_at = (a->heads + h / (a->heads / a->kv)) * d, v_at = k_at + a->kv * d;
        const double *q = x + row * w + h * d, *g = dy + row * cols + h * d;
        double sum = 0, mean = 0, *out = y + row * cols + h * d;
        const size_t first = first_key(a, b, i);
        for (size_t j = first; j <= i; j++) {
            const double *k = x + (b * s + j) * w + k_at;
            double dot = 0;
            for (size_t f = 0; f < d; f++) dot += q[f] * k[f];
            sum += e[j] = exp(dot * scale);
            keep[j] = a->dropout > 0 && dropped(23, (((2 + b) * a->heads + h) * s + i) * s + j, a->dropout)
                          ? 0
                          : 1 / (1 - (double)a->dropout);
        }
        for (size_t f = 0; f < d; f++) out[f] = 0;
        for (size_t j = first; j <= i; j++)
            for (size_t f = 0; f < d; f++) out[f] += keep[j] * e[j] / sum * x[(b * s + j) * w + v_at + f];
        for (size_t f = 0; f < d; f++) mean += out[f] * g[f];
        for (size_t j = first; j <= i; j++) {
            const size_t key = (b * s + j) * w;
            double dp = 0;
            for (size_t f = 0; f < d; f++) dp += g[f] * x[key + v_at + f];
            const double p = e[j] / sum, ds = p * (keep[j] * dp - mean) * scale;
            for (size_t f = 0; f < d; f++) {
                dx[row * w + h * d + f] += ds * x[key + k_at + f];
                dx[key + k_at + f] += ds * q[f];
                dx[key + v_at + f] += keep[j] * p * g[f];
            }
        }
    }
    free(e);
}
static void spoil_scores(par_tp *tp) { // what scratch memory has from before must not count: NaNs
    void *memory = tp->scratch[PAR__TP_SCORES].memory;
    if (memory && !tp->dot) memset(memory, 0xff, tp->scratch[PAR__TP_SCORES].bytes);
}
static void attention_kernel(layout *l, const heads *a, const char *isa) {
    const size_t w = (a->heads + 2 * a->kv) * a->dim, rows = a->batch * a->sequence, cols = a->heads * a->dim;
    problem p;
    par_tp_attention f;
    par_tp_linear qkv, q;
    open_attention(l, a, &p, &f, &qkv, &q);
    f.dropout = a->dropout;
    double *g = numbers(3, rows * cols), *y = numbers(0, rows * cols), *dx = numbers(0, rows * w);
    for (size_t i = 0; i < rows * w; i++) dx[i] = 0;
    attention_reference(a, p.in[0], g, y, dx);
    float *lse = (float *)malloc(rows * a->heads * sizeof *lse);
    par_tp_matrix mx = part_of(l, p.in[0], w, PAR_TP_HIDDEN, &qkv.weight), my = alloc_output(l, cols);
    par_tp_matrix mg = part_of(l, g, cols, PAR_TP_HIDDEN, &q.weight), mdx = alloc_output(l, w);
    spoil_scores(l->tp);
    CHECK_OK(l->world, par_tp_attention_forward(l->tp, &f, &l->tokens, 23, &mx, lse, &my));
    expect(l, isa, &my, y, cols, PAR_TP_HIDDEN, &q.weight);
    spoil_scores(l->tp);
    CHECK_OK(l->world, par_tp_attention_backward(l->tp, &f, &l->tokens, 23, &mg, &mx, &my, lse, &mdx));
    expect(l, isa, &mdx, dx, w, PAR_TP_HIDDEN, &qkv.weight);
    free(lse), free(mx.data), free(my.data), free(mg.data), free(mdx.data), free(g), free(y), free(dx);
    free((void *)(uintptr_t)l->tokens.documents), problem_close(&p);
}
typedef struct isa {
    const char *name;
    const par__tp_loops *loops;
    const par__gemm_tile *tile;
} isa;
static int isas_of(isa list[3]) { // those of this processor
    int n = 0;
    list[n].name = "base", list[n].loops = &par__tp_loops_base, list[n++].tile = test_gemm_tile(0);
#if PAR__X86
    const isa avx2 = {"avx2", &par__tp_loops_avx2, test_gemm_tile(1)};
    const isa avx512 = {"avx512", &par__tp_loops_avx512, test_gemm_tile(2)};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) list[n++] = avx2;
    if (PAR__PICK(par__tp_loops) == avx512.loops) list[n++] = avx512;
#endif
    return n;
}
static void attention_kernels(par_comm *w) {
    const heads cases[] = {{2, 1, 7, 131, 1, 0, 0, 0},
                           {2, 2, 33, 70, 2, 0.25f, 0, 30},
                           {1, 1, 64, 257, 1, 0, 0, 140},
                           {1, 1, 1, 1, 3, 0, 0, 0},
                           {2, 1, 16, 300, 1, 0.25f, 70, 0}};
    isa list[3];
    const int n = isas_of(list);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        layout l = open_layout(w, 1, 0, 0, bf16);
        const par__tp_dot *dot = l.tp->dot;
        for (int i = 0; i < 5 * n; i++) {
            l.tp->loops = list[i / 5].loops, l.tp->tile = list[i / 5].tile;
            l.tp->dot = NULL;
            attention_kernel(&l, &cases[i % 5], list[i / 5].name);
            l.tp->dot = dot;
            if (dot) attention_kernel(&l, &cases[i % 5], dot->name);
        }
        close_layout(&l);
    }
}
// Documents of one sequence, beside each other and each alone: the same bits where each begins a block of the
// kernels' queries and keys, else the same but for rounding; so with RoPE, whose positions begin at 0 in each
// document alone.
static void documents_apart(par_comm *w, int bf16, size_t window, const size_t *offsets, size_t count,
                            int rope, double tolerance) {
    const par_tp_rotary rotary = {100, 0, 0, 0, 0};
    const size_t s = offsets[count], cols = 64, h = 32, e = bf16 ? 2 : 4; // of 2 heads of 16 that share keys
    layout l = open_layout(w, 1, 0, 0, bf16);
    par_tp_attention f;
    memset(&f, 0, sizeof f);
    f.heads = 2, f.kv_heads = 1, f.dim = 16, f.window = window;
    char *x = (char *)malloc(s * cols * e), *dy = (char *)malloc(s * h * e);
    char *dx[2], *y[2];
    float *lse[2];
    uint32_t *map = (uint32_t *)malloc(2 * s * sizeof *map);
    for (int i = 0; i < 2; i++) {
        dx[i] = (char *)malloc(s * cols * e), y[i] = (char *)malloc(s * h * e);
        lse[i] = (float *)malloc(s * 2 * sizeof(float));
    }
    for (size_t i = 0; i < s * cols; i++) put(&l, x, i, 2 * value(1, i));
    for (size_t i = 0; i < s * h; i++) put(&l, dy, i, value(2, i));
    l.tokens.batch = 1;
    for (size_t d = 0; d <= count; d++) { // all, then each
        const size_t first = d ? offsets[d - 1] : 0, n = d ? offsets[d] - first : s;
        if (!n) continue;
        l.tokens.sequence = n;
        if (!d) CHECK_OK(w, par_tp_documents_map(l.tp, &l.tokens, offsets, count, map));
        l.tokens.documents = d ? NULL : map;
        par_tp_matrix mx = {x + first * cols * e, n, cols, PAR_TP_HIDDEN},
                      my = {y[d > 0] + first * h * e, n, h, PAR_TP_HIDDEN};
        par_tp_matrix mdy = {dy + first * h * e, n, h, PAR_TP_HIDDEN},
                      mdx = {dx[d > 0] + first * cols * e, n, cols, PAR_TP_HIDDEN};
        float *stats = lse[d > 0] + first * 2;
        if (rope) CHECK_OK(w, par_tp_rope(l.tp, &l.tokens, 3, 16, &rotary, 0, &mx)); // queries and keys
        CHECK_OK(w, par_tp_attention_forward(l.tp, &f, &l.tokens, 1, &mx, stats, &my));
        CHECK_OK(w, par_tp_attention_backward(l.tp, &f, &l.tokens, 1, &mdy, &mx, &my, stats, &mdx));
        if (rope) CHECK_OK(w, par_tp_rope(l.tp, &l.tokens, 3, 16, &rotary, 1, &mdx));
        if (rope) CHECK_OK(w, par_tp_rope(l.tp, &l.tokens, 3, 16, &rotary, 1, &mx)); // as it was
    }
    double error = 0;
    for (size_t i = 0; i < s * cols; i++)
        error = test_larger(error, fabs(get(&l, dx[0], i) - get(&l, dx[1], i)));
    for (size_t i = 0; i < s * h; i++) error = test_larger(error, fabs(get(&l, y[0], i) - get(&l, y[1], i)));
    for (size_t i = 0; i < s * 2; i++)
        error = test_larger(error, fabs((double)lse[0][i] - (double)lse[1][i]));
    CHECK(w, error <= tolerance);
    for (int i = 0; i < 2; i++) free(dx[i]), free(y[i]), free(lse[i]);
    free(x), free(dy), free(map), close_layout(&l);
}
static void documents(par_comm *w) {
    const size_t blocks[] = {0, 128, 384, 512}, any[] = {0, 1, 100, 100, 333, 400};
    for (int i = 0; i < 4; i++) {
        documents_apart(w, i % 2, i < 2 ? 0 : 70, blocks, 3, 0, 0);
        documents_apart(w, i % 2, i < 2 ? 0 : 70, any, 5, 0, i % 2 ? 2e-2 : 1e-5);
    }
    documents_apart(w, 0, 0, any, 5, 1, 2e-5);
}
// e^x of every instruction set's loops is less than 2 units in the last place wrong. SOAK: for each float.
static void exponential(par_comm *w) {
    enum { N = 1024 };
    const uint32_t most = 0x42AE0000; // 87
    const uint32_t step = getenv("SOAK") ? 1 : 1009;
    float x[N], y[N];
    double worst = 0;
    isa list[3];
    const int count = isas_of(list);
    for (int negative = 0; negative < 2; negative++)
        for (uint64_t bits = 0; bits <= most; bits += (uint64_t)N * step) {
            double e[N];
            for (uint32_t i = 0; i < N; i++) {
                const uint64_t at = PAR__MIN(bits + (uint64_t)i * step, (uint64_t)most);
                x[i] = par__bits_to_f32((uint32_t)at | (negative ? 0x80000000u : 0));
                e[i] = exp((double)x[i]);
            }
            for (int k = 0; k < count; k++) {
                list[k].loops->logit_gradients(y, x, 0, 1, 0, N);
                for (int i = 0; i < N; i++) {
                    const double unit = (double)(nextafterf((float)e[i], INFINITY) - (float)e[i]);
                    worst = test_larger(worst, fabs((double)y[i] - e[i]) / unit);
                }
            }
        }
    CHECK(w, worst < 2);
}

// ---- what else is promised --------------------------------------------------------------------------------

static void sent(layout *l, int sequence) { // the exact number of elements that a column and a row layer send
    const size_t rows = 48, h = 24, t = (size_t)l->t, n = rows * h * (t - 1) / t;
    l->tokens.batch = 1, l->tokens.sequence = rows * (size_t)l->c;
    for (int keep = 0; keep < 2; keep++) {
        par_tp_linear up, down;
        memset(&up, 0, sizeof up);
        memset(&down, 0, sizeof down);
        up.in = h, up.out = 4 * h, down.in = 4 * h, down.out = h, down.row_parallel = 1,
        up.has_bias = down.has_bias = 1;
        CHECK_OK(l->world, par_tp_linear_open(l->tp, &up));
        CHECK_OK(l->world, par_tp_linear_open(l->tp, &down));
        double *zeros = numbers(0, 4 * h * h);
        open_parameter(l, &up.weight, zeros), open_parameter(l, &up.bias, zeros),
            open_parameter(l, &down.weight, zeros), open_parameter(l, &down.bias, zeros);
        par_tp_matrix x = alloc_output(l, h), y = alloc_output(l, 4 * h), z = alloc_output(l, h),
                      all = alloc_output(l, h);
        x.rows = sequence ? rows / t : rows, x.cols = h, x.layout = tokens_of(sequence);
        memset(x.data, 0, rows * h * 4);
        for (int warm = 0; warm < 2; warm++) { // the first time makes scratch memory, and asks about it
            par_ledger_reset(l->tp_comm);
            CHECK_OK(l->world, par_tp_linear_forward(l->tp, &up, &x, keep ? &all : NULL, &y));
            CHECK_OK(l->world, par_tp_linear_forward(l->tp, &down, &y, NULL, &z));
            CHECK_OK(l->world, par_tp_linear_backward(l->tp, &down, &z, &y, &y));
            CHECK_OK(l->world, par_tp_linear_backward(l->tp, &up, &y, keep && sequence ? &all : &x, &z));
        }
        uint64_t total = 0;
        for (int k = 0; k < PAR_KIND_COUNT; k++) total += par_ledger_get(l->tp_comm, (par_kind)k).sent_count;
        // half of a layer's 8n; sequence parallelism: 8n if the gathered input is kept, else 10n
        CHECK(l->world, total == (sequence && !keep ? 5 * n : 4 * n));
        free(zeros), close_parameter(&up.weight), close_parameter(&up.bias), close_parameter(&down.weight),
            close_parameter(&down.bias);
        free(x.data), free(y.data), free(z.data), free(all.data);
    }
}
static uint64_t sent_over(par_comm *comm) {
    uint64_t total = 0;
    for (int k = 0; k < PAR_KIND_COUNT; k++) total += par_ledger_get(comm, (par_kind)k).sent_count;
    par_ledger_reset(comm);
    return total;
}
// What attention sends over cp: a ring's keys and values, in backward those and their gradients; by Ulysses
// queries, keys and values, then the output, in backward that of both, gradients of the first, and products.
static void attention_sends(layout *l, int sequence) {
    const size_t rows = 48, c = (size_t)l->c, d = 4, hops = c - 1, n = rows * c * d; // a rank has c heads
    par_tp_attention a;
    float lse[48 * 8];
    if (sequence) return; // the same
    memset(&a, 0, sizeof a);
    a.heads = c * (size_t)l->t, a.dim = d;
    l->tokens.batch = 1, l->tokens.sequence = rows * c;
    par_tp_matrix x = alloc_output(l, 3 * c * d), y = alloc_output(l, c * d), dx = alloc_output(l, 3 * c * d);
    x.rows = rows, x.cols = 3 * c * d, x.layout = PAR_TP_HIDDEN, memset(x.data, 0, rows * x.cols * 4);
    for (int warm = 0; warm < 2; warm++) { // the first time makes scratch memory, and asks about it
        sent_over(l->cp_comm);
        CHECK_OK(l->world, par_tp_attention_forward(l->tp, &a, &l->tokens, 0, &x, lse, &y));
        const uint64_t forward = sent_over(l->cp_comm);
        CHECK_OK(l->world, par_tp_attention_backward(l->tp, &a, &l->tokens, 0, &y, &x, &y, lse, &dx));
        const uint64_t backward = sent_over(l->cp_comm);
        const size_t ulysses = 4 * n * hops / c;
        CHECK(l->world, !warm || forward == (l->ulysses ? ulysses : 2 * n * hops));
        CHECK(l->world, !warm || backward == (l->ulysses ? 7 * n * hops / c + rows * hops : 4 * n * hops));
    }
    free(x.data), free(y.data), free(dx.data);
}
static void ledger(par_comm *w) {
    each_layout(w, sent, 1, 1);
    each_layout(w, attention_sends, 8, 0);
}

// Which calls are in flight while a product is computed, by kind: begun before it and not yet waited for.
typedef struct watched {
    par_tp_kernels kernels; // first: a context's table points here
    const struct par__operation *operations[8];
    int count;
    unsigned beside_dgrad, beside_wgrad;
} watched;
static par_result watched_gemm(par_tp *tp, int trans_a, int trans_b, size_t m, size_t n, size_t k,
                               const void *a, size_t lda, const void *b, size_t ldb, float beta, void *c,
                               par_dtype type, size_t ldc, const void *bias) {
    watched *watch = (watched *)(uintptr_t)tp->kernels;
    unsigned *beside = trans_a ? &watch->beside_wgrad : &watch->beside_dgrad;
    for (int i = 0; i < watch->count; i++)
        if (test_kind_of(watch->operations[i]) >= 0) *beside |= 1u << test_kind_of(watch->operations[i]);
    return par_tp_cpu()->gemm(tp, trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, type, ldc, bias);
}
static void watch(watched *watch, par_tp *tp) {
    memset(watch, 0, sizeof *watch);
    watch->kernels = *par_tp_cpu(), watch->kernels.gemm = watched_gemm;
    while (watch->count < 8 && test_idle_operation(par_tp_comm(tp), watch->count)) {
        watch->operations[watch->count] = test_idle_operation(par_tp_comm(tp), watch->count);
        watch->count++;
    }
    tp->kernels = &watch->kernels;
}
static void overlap(par_comm *w) {
    for (int sequence = 0; sequence < 2; sequence++) {
        layout l = open_layout(w, par_size(w), sequence, 0, 0);
        watched seen;
        par_tp_linear f;
        memset(&f, 0, sizeof f);
        l.tokens.batch = 1, l.tokens.sequence = 840; // divides by up to 8 ranks
        f.in = 24, f.out = 840;
        CHECK_OK(w, par_tp_linear_open(l.tp, &f));
        double *zeros = numbers(0, 840 * 840);
        open_parameter(&l, &f.weight, zeros);
        par_tp_matrix x = part_of(&l, zeros, 24, tokens_of(sequence), NULL), dx = alloc_output(&l, 24);
        par_tp_matrix dy = part_of(&l, zeros, 840, PAR_TP_HIDDEN, &f.weight);
        CHECK_OK(w, par_tp_linear_backward(l.tp, &f, &dy, &x, &dx)); // makes scratch memory and operations
        const unsigned sum = 1u << (sequence ? PAR_KIND_REDUCE_SCATTER : PAR_KIND_ALL_REDUCE);
        watch(&seen, l.tp);
        CHECK_OK(w, par_tp_linear_backward(l.tp, &f, &dy, &x, &dx));
        CHECK(w, seen.beside_dgrad == (sequence ? 1u << PAR_KIND_ALL_GATHER : 0));
        CHECK(w, seen.beside_wgrad == sum);
        watch(&seen, l.tp), l.tp->desc.row_pieces = 3;
        CHECK_OK(w, par_tp_linear_backward_input(l.tp, &f, &dy, &dx));
        CHECK(w, seen.beside_dgrad == sum && !seen.beside_wgrad);
        close_parameter(&f.weight), free(zeros), free(x.data), free(dx.data), free(dy.data);
        close_layout(&l);
    }
}

static void published(par_comm *w) { // 175 billion parameters, MiB per layer (facts: arXiv 2205.05198)
    const published_shape whole = {2048, 1, 12288, 96, 1, 0}, split = {2048, 1, 12288, 96, 8, 0},
                          sp = {2048, 1, 12288, 96, 8, 1};
    const double mib = 1048576;
    CHECK(w, published_save_bytes(&whole, PAR_TP_RECOMPUTE_NONE) == 2736 * mib);
    CHECK(w, published_save_bytes(&split, PAR_TP_RECOMPUTE_NONE) == 552 * mib);
    CHECK(w, published_save_bytes(&sp, PAR_TP_RECOMPUTE_NONE) == 342 * mib);
    CHECK(w, published_save_bytes(&split, PAR_TP_RECOMPUTE_SELECTIVE) == 312 * mib);
    CHECK(w, published_save_bytes(&sp, PAR_TP_RECOMPUTE_SELECTIVE) == 102 * mib);
    CHECK(w, published_save_bytes(&whole, PAR_TP_RECOMPUTE_FULL) == 48 * mib);
}

// Layers keep what is published for selective recomputation (scores are never kept), without the masks of
// dropout, and with statistics of 4 bytes each: 2 numbers a token of each norm, 1 a token of each head.
static void own_bytes(par_comm *w) {
    for (int sequence = 0; sequence < 2; sequence++) {
        layout l = open_layout(w, par_size(w), sequence, 0, 1);
        const size_t s = 48, b = 2, h = 96, a = 48, R = s * b, t = (size_t)l.t;
        const published_shape shape = {48, 2, 96, 48, l.t, sequence};
        const size_t tokens = sequence ? R / t : R, stats = 4 * (2 * 2 * tokens + R * a / t);
        par_tp_norm norm;
        par_tp_linear qkv, up, down;
        par_tp_attention attention;
        memset(&norm, 0, sizeof norm), memset(&qkv, 0, sizeof qkv), memset(&up, 0, sizeof up);
        memset(&down, 0, sizeof down), memset(&attention, 0, sizeof attention);
        norm.features = qkv.in = up.in = down.out = h, qkv.out = 3 * h, up.out = down.in = 4 * h,
        down.row_parallel = 1;
        attention.heads = a, attention.dim = 2, qkv.segment_count = 3;
        par_tp_attention_segments(&attention, qkv.segments);
        if (48 % l.t == 0) {
            CHECK_OK(w, par_tp_norm_open(l.tp, &norm));
            CHECK_OK(w, par_tp_linear_open(l.tp, &qkv));
            CHECK_OK(w, par_tp_linear_open(l.tp, &up));
            CHECK_OK(w, par_tp_linear_open(l.tp, &down));
            const size_t own =
                2 * par_tp_norm_save_bytes(l.tp, &norm, R) + par_tp_linear_save_bytes(l.tp, &qkv, R, 0) +
                par_tp_attention_save_bytes(l.tp, &attention, R) + // the projection's input, too
                par_tp_linear_save_bytes(l.tp, &up, R, 0) +
                par_tp_linear_save_bytes(l.tp, &down, R, 0) * 2; // before and after GELU
            const double masks = 2 * (double)(tokens * h);
            CHECK(w,
                  (double)(own - stats) == published_save_bytes(&shape, PAR_TP_RECOMPUTE_SELECTIVE) - masks);
            const double scores = 5 * (double)(a * s * s * b / t);
            CHECK(w, (double)(own - stats) ==
                         published_save_bytes(&shape, PAR_TP_RECOMPUTE_NONE) - masks - scores);
            CHECK(w, published_save_bytes(&shape, PAR_TP_RECOMPUTE_FULL) == 2 * (double)(R * h)); // its input
        }
        close_layout(&l);
    }
}

static void take_some(par_comm *w, par_tp *tp, par_tp_arena *arena, par_tp_matrix *x, float **stats) {
    arena->used = 0;
    CHECK_OK(w, par_tp_alloc(tp, arena, 3, 5, PAR_TP_REPLICATED, &x[0]));
    CHECK_OK(w, par_tp_alloc_floats(tp, arena, 17, stats));
    CHECK_OK(w, par_tp_alloc(tp, arena, 2, 65, PAR_TP_VOCABULARY, &x[1])); // rows of 128
}
static void arenas(par_comm *w) { // without memory an arena counts; a full one is an error
    for (int bf16 = 0; bf16 < 2; bf16++) {
        layout l = open_layout(w, par_size(w), 0, 0, bf16);
        par_tp_arena arena = {NULL, 0, 0};
        par_tp_matrix x[2];
        float *stats;
        char site[64], memory[4096];
        take_some(w, l.tp, &arena, x, &stats);
        CHECK(w,
              arena.used == (bf16 ? 64 + 128 + 512 : 64 + 128 + 1024) && !x[0].data && !x[1].data && !stats);
        arena.data = memory, arena.bytes = arena.used;
        take_some(w, l.tp, &arena, x, &stats);
        CHECK(w, x[0].data == memory && (char *)stats == memory + 64 && x[1].data == memory + 192);
        CHECK(w, x[0].rows == 3 && x[0].cols == 5 && x[0].layout == PAR_TP_REPLICATED);
        CHECK(w, x[1].rows == 2 && x[1].cols == 65 && x[1].layout == PAR_TP_VOCABULARY);
        CHECK(w, par_tp_alloc(l.tp, &arena, 1, 1, PAR_TP_HIDDEN, x) == PAR_ERR_ARGUMENT && !x[0].data);
        snprintf(site, sizeof site, "tests/test_tp.c:%d", __LINE__ - 1);
        CHECK(w, strstr(par_last_error(w), "the arena is full: it has") && strstr(par_last_error(w), site));
        CHECK(w, par_tp_alloc_floats(l.tp, &arena, 0, &stats) == PAR_ERR_ARGUMENT && !stats); // from then on
        close_layout(&l);
    }
}

static void check_init(layout *l, int sequence) { // initial values are those of one rank
    par_tp_linear f[2];
    par_tp_embedding e;
    memset(f, 0, sizeof f);
    memset(&e, 0, sizeof e);
    f[0].in = 6, f[0].out = 96, f[0].segment_count = 3;
    f[0].segments[0].count = 48, f[0].segments[0].unit = 2, f[0].segments[1].count = 24;
    f[0].segments[2].count = 24, f[0].segments[2].unit = 24;
    f[1].in = 48, f[1].out = 6, f[1].row_parallel = 1;
    e.vocabulary = 29, e.features = 4;
    par_tp_parameter *p[3] = {&f[0].weight, &f[1].weight, &e.weight};
    CHECK_OK(l->world, par_tp_linear_open(l->tp, &f[0]));
    CHECK_OK(l->world, par_tp_linear_open(l->tp, &f[1]));
    CHECK_OK(l->world, par_tp_embedding_open(l->tp, &e));
    for (int k = 0; k < 3; k++) {
        double *whole = numbers(0, p[k]->rows * p[k]->cols);
        const par_shard shard = par_tp_parameter_shard(l->tp, p[k]); // says the same of each element
        const size_t local = p[k]->local_rows * p[k]->local_cols;
        size_t found = 0, at;
        open_parameter(l, p[k], whole);
        CHECK_OK(l->world, par_tp_init(l->tp, p[k], 7 + (uint64_t)k, 0.5f));
        for (size_t i = 0; i < p[k]->rows * p[k]->cols; i++)
            whole[i] = (double)(0.5f * par_normal(5, 7 + (uint64_t)k, i));
        for (size_t i = 0; i < p[k]->local_rows * p[k]->local_cols; i++)
            p[k]->grad[i] = (float)get(l, p[k]->data, i);
        for (size_t n; (n = par_shard_find(&shard, found, &at, NULL)) > 0; found += n)
            for (size_t i = 0; i < n && found + i < local; i++)
                CHECK(l->world, l->bf16 || p[k]->grad[found + i] == (float)whole[at + i]);
        CHECK(l->world,
              found == local && shard.global_shape[0] * shard.global_shape[1] == p[k]->rows * p[k]->cols);
        expect_grad(l, "initial values", p[k], whole);
        close_parameter(p[k]), free(whole);
    }
    (void)sequence;
}
static void initial_values(par_comm *w) { each_layout(w, check_init, 1, 1); }

// Operands of every call, as they should be; a mistake is a change to them. A call writes y alone.
typedef struct operands {
    par_tp *tp;
    par_tp_linear fc, proj, head;
    par_tp_norm norm;
    par_tp_embedding embedding;
    par_tp_attention attention;
    par_tp_loss loss;
    par_tp_rotary rotary;
    par_tp_kv_cache cache;
    par_tp_tokens batch_tokens, next_tokens, *tokens;
    par_tp_parameter *parameter;
    par_tp_matrix matrices[8], *x, *h, *half, *logits, *qkv, *new_qkv, *dy, *y;
    float probability, *stats, *lse;
    int32_t *ids;
    size_t offsets_of[4], *offsets;
    uint32_t map_of[16], *map;
    double *sum;
    size_t *target_count;
} operands;
#define LAYER_CALLS(X)                                                                                       \
    X(documents_map, par_tp_documents_map(o->tp, o->tokens, o->offsets, 3, o->map))                          \
    X(init, par_tp_init(o->tp, o->parameter, 1, 1))                                                          \
    X(fill, par_tp_fill(o->tp, &o->fc.bias, 1))                                                              \
    X(linear_open, par_tp_linear_open(o->tp, &o->fc))                                                        \
    X(linear_forward, par_tp_linear_forward(o->tp, &o->fc, o->x, NULL, o->y))                                \
    X(linear_backward, par_tp_linear_backward(o->tp, &o->fc, o->h, o->x, o->y))                              \
    X(linear_backward_input, par_tp_linear_backward_input(o->tp, &o->fc, o->h, o->y))                        \
    X(linear_backward_weight, par_tp_linear_backward_weight(o->tp, &o->fc, o->h, o->x))                      \
    X(row_parallel_backward, par_tp_linear_backward(o->tp, &o->proj, o->x, o->h, o->y))                      \
    X(norm_forward, par_tp_norm_forward(o->tp, &o->norm, o->x, o->stats, o->y))                              \
    X(norm_backward, par_tp_norm_backward(o->tp, &o->norm, o->x, o->x, o->stats, o->y))                      \
    X(add_norm_forward, par_tp_add_norm_forward(o->tp, &o->norm, o->x, o->x, o->stats, o->dy, o->y))         \
    X(norm_backward_add, par_tp_norm_backward_add(o->tp, &o->norm, o->x, o->x, o->stats, o->x, o->y))        \
    X(finalize_gradients, par_tp_finalize_gradients(o->tp, &o->parameter, 1))                                \
    X(global_norm, par_tp_global_norm(o->tp, &o->parameter, 1, o->sum))                                      \
    X(gelu_forward, par_tp_gelu_forward(o->tp, o->h, o->y))                                                  \
    X(swiglu_forward, par_tp_swiglu_forward(o->tp, o->h, o->y))                                              \
    X(swiglu_backward, par_tp_swiglu_backward(o->tp, o->half, o->h, o->y))                                   \
    X(add, par_tp_add(o->tp, o->x, o->x, o->y))                                                              \
    X(dropout, par_tp_dropout(o->tp, o->tokens, 1, o->probability, o->x, o->y))                              \
    X(rope, par_tp_rope(o->tp, o->tokens, 1, 2, &o->rotary, 0, o->h))                                        \
    X(embedding_forward, par_tp_embedding_forward(o->tp, &o->embedding, o->tokens, o->ids, o->y))            \
    X(embedding_backward, par_tp_embedding_backward(o->tp, &o->embedding, o->tokens, o->ids, o->x))          \
    X(loss_forward,                                                                                          \
      par_tp_loss_forward(o->tp, &o->loss, o->logits, o->ids, o->lse, NULL, o->sum, o->target_count))        \
    X(loss_backward, par_tp_loss_backward(o->tp, &o->loss, o->logits, o->ids, o->lse, 1, o->y))              \
    X(loss_forward_backward, par_tp_loss_forward_backward(o->tp, &o->loss, o->logits, o->ids, o->lse, NULL,  \
                                                          o->sum, o->target_count, 1, o->y))                 \
    X(head_forward,                                                                                          \
      par_tp_head_forward(o->tp, &o->head, &o->loss, o->x, o->ids, 3, NULL, o->sum, o->target_count))        \
    X(head_forward_backward, par_tp_head_forward_backward(o->tp, &o->head, &o->loss, o->x, o->ids, 3, NULL,  \
                                                          o->sum, o->target_count, 1, o->y))                 \
    X(attention_forward, par_tp_attention_forward(o->tp, &o->attention, o->tokens, 1, o->qkv, o->lse, o->y)) \
    X(attention_backward,                                                                                    \
      par_tp_attention_backward(o->tp, &o->attention, o->tokens, 1, o->dy, o->qkv, o->dy, o->lse, o->y))     \
    X(attention_cached,                                                                                      \
      par_tp_attention_cached(o->tp, &o->attention, &o->next_tokens, &o->cache, o->new_qkv, o->y))
#define X(name, call)                                                                                        \
    static par_result call_##name(operands *o) { return call; }
LAYER_CALLS(X)
#undef X

static void open_operands(par_comm *w, par_tp *tp, operands *o) {
    static float values[9][4096], floats[2][256]; // values of the parameters, then of each matrix
    static const struct {
        size_t rows, cols;
        par_tp_layout layout;
    } shapes[8] = {{8, 8, PAR_TP_REPLICATED}, {8, 8, PAR_TP_HIDDEN}, {8, 4, PAR_TP_HIDDEN},
                   {8, 8, PAR_TP_VOCABULARY}, {8, 6, PAR_TP_HIDDEN}, {4, 6, PAR_TP_HIDDEN},
                   {8, 2, PAR_TP_HIDDEN},     {0, 0, PAR_TP_HIDDEN}};
    static int32_t ids[8];
    static double sum;
    static size_t target_count;
    const size_t n = (size_t)par_size(w);
    par_tp_matrix **const matrices[8] = {&o->x,   &o->h,       &o->half, &o->logits,
                                         &o->qkv, &o->new_qkv, &o->dy,   &o->y};
    memset(o, 0, sizeof *o);
    memset(ids, 0, sizeof ids);
    o->tp = tp;
    for (int i = 0; i < 8; i++) {
        const par_tp_matrix m = {values[i + 1], shapes[i].rows, shapes[i].cols, shapes[i].layout};
        o->matrices[i] = m, *matrices[i] = &o->matrices[i];
    }
    o->fc.in = 8, o->fc.out = 8 * n, o->fc.has_bias = 1, o->fc.name = "fc";
    o->proj.in = 8 * n, o->proj.out = 8, o->proj.row_parallel = 1;
    o->head.in = 8, o->head.out = 8 * n, o->head.vocab_parallel = 1, o->head.name = "head";
    o->norm.features = 8, o->norm.has_bias = 1;
    o->embedding.vocabulary = 8 * n, o->embedding.features = 8, o->embedding.max_positions = 8;
    o->attention.heads = n, o->attention.dim = 2, o->loss.vocabulary = 8 * n, o->rotary.base = 100;
    o->fc.weight.frozen = o->fc.bias.frozen = o->proj.weight.frozen = 1; // there are no gradients
    o->head.weight.frozen = 1;
    o->norm.weight.frozen = o->norm.bias.frozen = 1;
    o->embedding.weight.frozen = o->embedding.position_weight.frozen = 1;
    CHECK_OK(w, par_tp_linear_open(tp, &o->fc));
    CHECK_OK(w, par_tp_linear_open(tp, &o->proj));
    CHECK_OK(w, par_tp_linear_open(tp, &o->head));
    CHECK_OK(w, par_tp_norm_open(tp, &o->norm));
    CHECK_OK(w, par_tp_embedding_open(tp, &o->embedding));
    o->fc.weight.data = o->fc.bias.data = o->proj.weight.data = o->head.weight.data = values[0];
    o->norm.weight.data = o->norm.bias.data = values[0];
    o->embedding.weight.data = o->embedding.position_weight.data = values[0];
    o->cache.data = values[0], o->cache.batch = 2, o->cache.capacity = 5;
    o->next_tokens.batch = o->next_tokens.sequence = 2;
    o->batch_tokens.batch = 1, o->batch_tokens.sequence = 8, o->tokens = &o->batch_tokens;
    o->parameter = &o->fc.weight, o->probability = 0.5f;
    o->offsets = o->offsets_of, o->map = o->map_of;
    o->offsets[1] = 3, o->offsets[2] = 5, o->offsets[3] = 8;
    o->stats = floats[0], o->lse = floats[1], o->ids = ids, o->sum = &sum, o->target_count = &target_count;
}
// X(call, mistake, a part of the error's text)
#define MISTAKES(X)                                                                                          \
    X(linear_backward, o.fc.weight.frozen = 0, "fc.weight: grad is NULL")                                    \
    X(linear_backward, o.fc.bias.frozen = 0, "fc.bias: grad is NULL")                                        \
    X(linear_backward_weight, o.fc.weight.frozen = 0, "fc.weight: grad is NULL")                             \
    X(row_parallel_backward, o.proj.weight.frozen = 0, "weight: grad is NULL")                               \
    X(norm_backward, o.norm.weight.frozen = 0, "weight: grad is NULL")                                       \
    X(norm_backward_add, o.norm.bias.frozen = 0, "bias: grad is NULL")                                       \
    X(embedding_backward, o.embedding.weight.frozen = 0, "weight: grad is NULL")                             \
    X(embedding_backward, o.embedding.position_weight.frozen = 0, "position: grad is NULL")                  \
    X(finalize_gradients, o.fc.weight.frozen = 0, "fc.weight: grad is NULL")                                 \
    X(finalize_gradients, o.fc.weight.owned = 1, "fc.weight belongs to a par_zero")                          \
    X(global_norm, o.fc.weight.frozen = 0, "fc.weight: grad is NULL")                                        \
    X(global_norm, o.fc.weight.owned = 1, "fc.weight belongs to a par_zero")                                 \
    X(documents_map, o.tokens = NULL, "tokens is NULL")                                                      \
    X(documents_map, o.offsets = NULL, "offsets is NULL")                                                    \
    X(documents_map, o.map = NULL, "map is NULL")                                                            \
    X(documents_map, o.offsets[0] = 1, "offsets go from 1 to 8, but must go from 0 to 8")                    \
    X(documents_map, o.offsets[3] = 9, "offsets go from 0 to 9, but must go from 0 to 8")                    \
    X(documents_map, o.offsets[2] = 2, "document 1 goes from token 3 to 2 of 8: offsets must not fall")      \
    X(documents_map, o.offsets[1] = 9, "document 0 goes from token 0 to 9 of 8: offsets must not fall")      \
    X(documents_map, o.tokens->batch = 2;                                                                    \
      o.tokens->sequence = 4,                                                                                \
      "document 1, from token 3 to 5, is of two sequences of 4 tokens: cut it there")                        \
    X(documents_map, o.tokens->batch = (size_t)1 << 29, "4294967296 tokens, but at most 2^32 - 1")           \
    X(init, o.parameter = NULL, "open the layer first")                                                      \
    X(init, o.fc.weight.data = NULL, "data is NULL")                                                         \
    X(fill, o.fc.bias.data = NULL, "data is NULL")                                                           \
    X(linear_forward, memset(&o.fc, 0, sizeof o.fc), "weight has no shape: open the layer first")            \
    X(linear_forward, o.fc.weight.data = NULL, "weight.data is NULL, but this rank has 8 x 8")               \
    X(linear_forward, o.fc.bias.data = NULL, "bias.data is NULL")                                            \
    X(linear_forward, o.x = NULL, "has no data")                                                             \
    X(linear_forward, o.y->data = NULL, "y.data is NULL")                                                    \
    X(linear_forward, o.x->layout = PAR_TP_PARTIAL,                                                          \
      "x is a partial sum, but must be replicated: reduce it first")                                         \
    X(linear_forward, o.x->layout = PAR_TP_SEQUENCE, "has no sequence parallelism")                          \
    X(linear_forward, o.x->cols = 7, "x has 7 columns on this rank, but must have 8")                        \
    X(linear_backward, o.fc.weight.data = NULL, "weight.data is NULL")                                       \
    X(linear_backward, o.fc.weight.data = NULL, " in fc)")                                                   \
    X(linear_backward, o.y->data = NULL, "dx.data is NULL")                                                  \
    X(linear_backward, o.h = NULL, "has no data")                                                            \
    X(linear_backward_input, o.h = NULL, "has no data")                                                      \
    X(linear_backward_weight, o.h = NULL, "has no data")                                                     \
    X(row_parallel_backward, o.x = NULL, "has no data")                                                      \
    X(norm_forward, o.norm.weight.data = NULL, "weight.data is NULL")                                        \
    X(norm_forward, o.norm.bias.data = NULL, "bias.data is NULL")                                            \
    X(norm_forward, o.stats = NULL, "stats is NULL")                                                         \
    X(norm_forward, o.y->data = NULL, "y.data is NULL")                                                      \
    X(norm_forward, o.x->layout = PAR_TP_HIDDEN, "x is split by features, but must be replicated")           \
    X(norm_backward, o.stats = NULL, "stats is NULL")                                                        \
    X(add_norm_forward, o.dy->data = NULL, "sum.data is NULL")                                               \
    X(norm_backward_add, o.x->layout = PAR_TP_HIDDEN, "x is split by features, but must be replicated")      \
    X(norm_backward, o.y->data = NULL, "dx.data is NULL")                                                    \
    X(gelu_forward, o.h->data = NULL, "x has no data")                                                       \
    X(gelu_forward, o.y->data = NULL, "y.data is NULL")                                                      \
    X(swiglu_forward, o.h = NULL, "has no data")                                                             \
    X(swiglu_forward, o.y->data = NULL, "y.data is NULL")                                                    \
    X(swiglu_backward, o.half = NULL, "has no data")                                                         \
    X(add, o.y->data = NULL, "result.data is NULL")                                                          \
    X(dropout, o.y->data = NULL, "y.data is NULL")                                                           \
    X(dropout, o.x->layout = PAR_TP_HIDDEN, "x is split by features")                                        \
    X(dropout, o.x->rows = 9, "but the matrix has 9")                                                        \
    X(dropout, o.probability = 1.5f, "must be in [0, 1)")                                                    \
    X(dropout, o.tokens->position = 2, "dropout is for whole sequences")                                     \
    X(embedding_forward, o.embedding.weight.data = NULL, "weight.data is NULL")                              \
    X(embedding_forward, o.embedding.position_weight.data = NULL, "position_weight.data is NULL")            \
    X(embedding_forward, o.ids = NULL, "ids is NULL")                                                        \
    X(embedding_forward, o.tokens = NULL, "tokens is NULL")                                                  \
    X(embedding_forward, o.y->data = NULL, "y.data is NULL")                                                 \
    X(embedding_backward, o.ids = NULL, "ids is NULL")                                                       \
    X(loss_forward, o.logits = NULL, "has no data")                                                          \
    X(loss_forward, o.ids = NULL, "targets is NULL")                                                         \
    X(loss_forward, o.lse = NULL, "lse is NULL")                                                             \
    X(loss_forward, o.sum = NULL, "sum is NULL")                                                             \
    X(loss_forward, o.target_count = NULL, "target_count is NULL")                                           \
    X(loss_backward, o.lse = NULL, "lse is NULL")                                                            \
    X(loss_backward, o.y->data = NULL, "dlogits.data is NULL")                                               \
    X(loss_forward_backward, o.lse = NULL, "lse is NULL")                                                    \
    X(head_forward, o.ids = NULL, "targets is NULL")                                                         \
    X(head_forward, o.sum = NULL, "sum is NULL")                                                             \
    X(head_forward, o.target_count = NULL, "target_count is NULL")                                           \
    X(head_forward, o.x = NULL, "x has no data")                                                             \
    X(head_forward, o.x->layout = PAR_TP_HIDDEN, "x is split by features, but must be replicated")           \
    X(head_forward, o.ids[7] = 999, "targets[7] is 999, but the vocabulary has")                             \
    X(head_forward, o.head.weight.data = NULL, "weight.data is NULL")                                        \
    X(head_forward, o.head.vocab_parallel = 0, "the head must be column-parallel with vocab_parallel")       \
    X(head_forward, o.loss.vocabulary++, "as wide as the loss's vocabulary of")                              \
    X(head_forward, o.head.recipe = PAR_TP_CURRENT, "the recipe current takes scales from all rows")         \
    X(head_forward_backward, o.head.weight.frozen = 0, "head.weight: grad is NULL")                          \
    X(head_forward_backward, o.y->data = NULL, "dx.data is NULL")                                            \
    X(head_forward_backward, o.y->data = o.x->data, "dx must not be x")                                      \
    X(attention_forward, o.lse = NULL, "lse is NULL")                                                        \
    X(attention_forward, o.y->data = NULL, "y.data is NULL")                                                 \
    X(attention_forward, o.tokens->position = 2, "are in no cache")                                          \
    X(attention_forward, o.attention.heads *= 6; o.attention.kv_heads = 4 * n, "key-value heads")            \
    X(attention_backward, o.lse = NULL, "lse is NULL")                                                       \
    X(attention_backward, o.y->data = NULL, "dx.data is NULL")                                               \
    X(attention_cached, o.cache.data = NULL, "the cache has no data: give it par_tp_kv_cache_bytes")         \
    X(attention_cached, o.cache.batch = 3, "2 sequences, but the cache is of 3")                             \
    X(attention_cached, o.next_tokens.position = 1, "position 1 on, but the cache has only 0 before")        \
    X(attention_cached, o.cache.count = o.next_tokens.position = 4,                                          \
      "2 tokens from position 4 on do not fit the cache's 5")                                                \
    X(attention_cached, o.cache.count = o.next_tokens.position = 4;                                          \
      o.cache.capacity = 3, "2 tokens from position 4 on do not fit the cache's 3")                          \
    X(attention_cached, o.new_qkv->layout = PAR_TP_REPLICATED,                                               \
      "x is replicated, but must be split by features")                                                      \
    X(attention_cached, o.next_tokens.documents = o.map, "a cache is of sequences of one document")          \
    X(attention_cached, o.attention.dropout = 0.5f, "dropout is 0.5, but must be 0")
// These need several ranks. `ring` is a context whose ranks split sequences.
#define MISTAKES_OF_SEVERAL_RANKS(X)                                                                         \
    X(linear_open, o.fc.out++, "features do not divide by")                                                  \
    X(attention_forward, o.attention.heads++, "do not divide over")                                          \
    X(rope, o.tp = ring; o.tokens->sequence = 8 * n; o.tokens->position = 2, "with cp NULL")                 \
    X(attention_cached, o.tp = ring; o.attention.heads = 1;                                                  \
      o.next_tokens.sequence = 2 * n, "a cache is of one context-parallel rank")

static void expect_error(par_comm *w, par_result r, const char *call, const char *text) {
    char why[1300];
    __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
    if (r == PAR_ERR_ARGUMENT && strstr(par_last_error(w), text)) return;
    snprintf(why, sizeof why, "not \"%s\", but %s: %s", text, par_result_name(r), par_last_error(w));
    test_fail(__FILE__, __LINE__, par_rank(w), call, why);
}
static void bad_operands(par_comm *w, par_tp *tp, par_tp *ring) {
    const size_t n = (size_t)par_size(w);
    operands o;
#define X(name, call)                                                                                        \
    open_operands(w, tp, &o);                                                                                \
    CHECK_OK(w, call_##name(&o));
    LAYER_CALLS(X)
#undef X
#define X(name, mistake, text)                                                                               \
    open_operands(w, tp, &o);                                                                                \
    mistake;                                                                                                 \
    expect_error(w, call_##name(&o), #name ", " #mistake, text);
    MISTAKES(X)
    if (n > 1) {
        MISTAKES_OF_SEVERAL_RANKS(X)
    }
#undef X
    open_operands(w, tp, &o);
    o.cache.count = 4, o.next_tokens.position = 2; // generation goes back
    CHECK_OK(w, call_attention_cached(&o));
    CHECK(w, o.cache.count == 4);
}
static void bad_descs(par_comm *w) {
    par_tp_desc d;
    par_tp *tp;
    memset(&d, 0, sizeof d);
    CHECK(w, par_tp_open(&d, &tp) == PAR_ERR_ARGUMENT && !tp);
    d.tp = w, d.sequence_parallel = par_rank(w) == 0; // ranks that disagree
    if (par_size(w) > 1) CHECK(w, par_tp_open(&d, &tp) == PAR_ERR_MISMATCH && !tp);
    d.sequence_parallel = 0, d.dtype = PAR_F8_E4M3;
    expect_error(w, par_tp_open(&d, &tp), "open", "desc.dtype is f8_e4m3: layers compute on f32 or bf16");
    d.dtype = PAR_DTYPE_COUNT;
    expect_error(w, par_tp_open(&d, &tp), "open", "desc.dtype is (no par_dtype)");
    d.dtype = PAR_F32, d.row_pieces = 9;
    expect_error(w, par_tp_open(&d, &tp), "open", "row_pieces is 9, but must be 0 (by size) to 8");
    d.row_pieces = 0, d.sum_dtype = PAR_BF16;
    expect_error(w, par_tp_open(&d, &tp), "open", "desc.sum_dtype is bf16, and dtype f32: sums travel in");
    d.dtype = PAR_BF16, d.sum_dtype = PAR_F16;
    expect_error(w, par_tp_open(&d, &tp), "open", "desc.sum_dtype is f16, and dtype bf16: sums travel in");
    d.sum_dtype = PAR_BF16, d.canonical_leaves = 64;
    if (64 % par_size(w) == 0)
        expect_error(w, par_tp_open(&d, &tp), "open", "sum_dtype bf16 rounds what each rank has");
    d.canonical_leaves = 0, d.sum_dtype = par_rank(w) == 0 ? PAR_BF16 : PAR_F32; // ranks that disagree
    if (par_size(w) > 1) CHECK(w, par_tp_open(&d, &tp) == PAR_ERR_MISMATCH && !tp);
    CHECK(w, !tp);
}
static void mistakes(par_comm *w) { // each is the same error on all ranks, which says what is wrong
    layout l = open_layout(w, par_size(w), 0, 0, 0);
    par_comm *self;
    par_tp_desc d;
    par_tp *ring;
    memset(&d, 0, sizeof d);
    CHECK_OK(w, par_split(w, par_rank(w), 0, &self));
    d.tp = self, d.cp = w;
    CHECK_OK(w, par_tp_open(&d, &ring));
    CHECK(w, !par_tp_scratch(l.tp, 36, 1) && strstr(par_last_error(w), "no slot 36, only 0 to 35"));
    CHECK(w, !par_tp_scratch(l.tp, -1, 1) && strstr(par_last_error(w), "no slot -1"));
    bad_operands(w, l.tp, ring);
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_tp_close(ring));
    CHECK_OK(w, par_close(self));
    close_layout(&l);
    bad_descs(w);
}

// ---- low precision ----------------------------------------------------------------------------------------

enum { LOW_ROWS = 40, LOW = 64 }; // rows; features of input and output
typedef struct low_case {         // numbers of a linear layer without bias, and what it makes of them
    double *x, *w, *dy, *y, *dx, *dw;
} low_case;
static low_case open_low(void) {
    low_case k = {numbers(1, LOW_ROWS * LOW), numbers(2, LOW * LOW),      numbers(3, LOW_ROWS * LOW),
                  numbers(0, LOW_ROWS * LOW), numbers(0, LOW_ROWS * LOW), numbers(0, LOW * LOW)};
    for (size_t r = 0; r < LOW_ROWS; r++)
        for (size_t o = 0; o < LOW; o++)
            for (size_t i = 0; i < LOW; i++) {
                k.y[r * LOW + o] += k.x[r * LOW + i] * k.w[o * LOW + i];
                k.dx[r * LOW + i] += k.dy[r * LOW + o] * k.w[o * LOW + i];
                k.dw[o * LOW + i] += k.dy[r * LOW + o] * k.x[r * LOW + i];
            }
    return k;
}
static void close_low(low_case *k) {
    free(k->x), free(k->w), free(k->dy), free(k->y), free(k->dx), free(k->dw);
}
// A layer by a recipe is as close to exact sums as its codes are, on any number of ranks; the halves of
// backward have its bits.
static void low_layer(layout *l, const low_case *k, par_tp_recipe recipe, int row, int sequence) {
    par_tp_linear f;
    float grad[LOW * LOW];
    memset(&f, 0, sizeof f);
    f.in = f.out = LOW, f.row_parallel = row, f.recipe = recipe;
    l->tokens.batch = 1, l->tokens.sequence = LOW_ROWS;
    l->tolerance = recipe == PAR_TP_NVFP4 ? 0.3 : 0.08; // of the largest
    CHECK_OK(l->world, par_tp_linear_open(l->tp, &f));
    open_parameter(l, &f.weight, k->w);
    par_tp_parameter part = f.weight;
    if (row) part.local_rows = f.weight.local_cols;
    const par_tp_layout in = row ? PAR_TP_HIDDEN : tokens_of(sequence),
                        out = row ? tokens_of(sequence) : PAR_TP_HIDDEN;
    par_tp_matrix x = part_of(l, k->x, LOW, in, row ? &part : NULL), y = alloc_output(l, LOW);
    par_tp_matrix dy = part_of(l, k->dy, LOW, out, row ? NULL : &part), dx = alloc_output(l, LOW);
    par_tp_matrix again = alloc_output(l, LOW);
    for (int step = 0; step < 3; step++) { // the first has no history
        memset(f.weight.grad, 0, f.weight.local_rows * f.weight.local_cols * sizeof(float));
        float history[3 * PAR__TP_HISTORY] = {0}, *now = f.scaled ? f.scaled->history : NULL;
        if (now) memcpy(history, now, sizeof history);
        CHECK_OK(l->world, par_tp_linear_forward(l->tp, &f, &x, NULL, &y));
        CHECK(l->world, !now || !memcmp(history, now, sizeof history)); // as evaluation leaves it
        expect(l, "low y", &y, k->y, LOW, out, row ? NULL : &part);
        CHECK_OK(l->world, par_tp_linear_backward(l->tp, &f, &dy, &x, &dx));
        expect(l, "low dx", &dx, k->dx, LOW, in, row ? &part : NULL);
        expect_grad(l, "low dw", &f.weight, k->dw);
        memcpy(grad, f.weight.grad, f.weight.local_rows * f.weight.local_cols * sizeof(float));
        memset(f.weight.grad, 0, f.weight.local_rows * f.weight.local_cols * sizeof(float));
        CHECK_OK(l->world, par_tp_linear_backward_weight(l->tp, &f, &dy, &x));
        CHECK_OK(l->world, par_tp_linear_backward_input(l->tp, &f, &dy, &again));
        CHECK(l->world, !memcmp(grad, f.weight.grad, f.weight.local_rows * f.weight.local_cols * 4));
        for (int role = 0; now && role < 3; role++) CHECK(l->world, now[role * PAR__TP_HISTORY + 1] > 0);
        CHECK(l->world, !memcmp(dx.data, again.data, dx.rows * dx.cols * par_tp_element_bytes(l->tp)));
        CHECK_OK(l->world, par_tp_update_scales(l->tp));
    }
    free(x.data), free(y.data), free(dy.data), free(dx.data), free(again.data), close_parameter(&f.weight);
}
static void low_precision(par_comm *w) {
    low_case k = open_low();
    for (int t = 1; t <= 4; t *= 2)
        for (int sequence = 0; sequence < 2 && par_size(w) == t; sequence++) {
            layout l = open_layout(w, t, sequence, 0, sequence);
            for (int r = 0; r < PAR_TP_RECIPE_COUNT; r++)
                low_layer(&l, &k, (par_tp_recipe)r, (r + sequence) % 2, sequence);
            close_layout(&l);
        }
    close_low(&k);
}

// What one operand is, as numbers: by the codes and scales in memory.
static par_tp_operand low_operand(par_tp *tp, par_tp_recipe recipe, size_t rows, size_t cols) {
    const par__tp_recipe *r = par__tp_recipe_of(recipe);
    par_tp_operand q;
    memset(&q, 0, sizeof q);
    q.code = r->code, q.scale = r->scale, q.block_rows = r->rows, q.block_cols = r->cols;
    q.rows = rows, q.cols = cols, q.ld = (cols + 127) / 128 * 128;
    q.amax = (float *)calloc(2, 4), q.codes = malloc(rows * q.ld), q.scales = malloc(par__tp_scale_bytes(&q));
    return (void)tp, q;
}
static void close_operand(par_tp_operand *q) { free(q->amax), free(q->codes), free(q->scales); }

static void amax_history(par_comm *w) {
    float x[16], history[PAR__TP_HISTORY] = {0};
    layout l = open_layout(w, 1, 0, 0, 0);
    par_tp_operand q = low_operand(l.tp, PAR_TP_DELAYED, 1, 16);
    q.history = history, q.observed = 1;
    for (int step = 0; step < 40; step++) {
        const float old = history[0];
        for (int i = 0; i < 16; i++) x[i] = (float)(step == 7 ? 100 : 1 + step % 3);
        for (int microbatch = 0; microbatch < 2; microbatch++)
            CHECK_OK(w, l.tp->kernels->quantize(l.tp, &q, x, 16, 0));
        CHECK(w, *(float *)q.scales == 1 / (448 / (step ? old : x[0])));
        CHECK(w, par_f32_to_bf16(x[0]) && history[1] == x[0]);
        CHECK_OK(w, l.tp->kernels->roll_amax(l.tp, history, 1));
        float most = 0;
        for (int s = PAR__MAX(0, step - PAR_TP_AMAX_STEPS + 1); s <= step; s++)
            most = fmaxf(most, (float)(s == 7 ? 100 : 1 + s % 3));
        CHECK(w, history[0] == most && history[1] == 0);
    }
    close_operand(&q), close_layout(&l);
}
// E2M1 at random is right on average, and never off by more than a step; the rotation keeps products.
static void rounding_at_random(par_comm *w) {
    static const float steps[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    size_t wrong = 0;
    for (int k = 0; k < 60; k++) {
        const float x = (float)(k - 30) * 0.23f, size = fminf(fabsf(x), 6);
        double sum = 0;
        for (uint32_t i = 0; i < 4096; i++) {
            const float got = par__tp_e2m1_widen(par__tp_e2m1_narrow_random(x, i << 20 | 0x7ffff));
            int low = 0;
            while (low < 6 && steps[low + 1] <= size) low++;
            wrong += fabsf(got) != steps[low] && fabsf(got) != steps[low + 1];
            wrong += got != 0 && (got < 0) != (x < 0);
            sum += (double)got;
        }
        wrong += fabs(fabs(sum) / 4096 - (double)size) > 1e-3;
    }
    CHECK(w, !wrong);
    CHECK(w, par__tp_e2m1_narrow_random(NAN, 0) == 7 && par__tp_e2m1_narrow_random(-9, 0) == 15);
    float a[16], b[16], before = 0, after = 0;
    for (int i = 0; i < 16; i++) a[i] = (float)(i * 7 % 5 - 2), b[i] = (float)(i * 3 % 7 - 3);
    for (int i = 0; i < 16; i++) before += a[i] * b[i];
    par__tp_hadamard(a), par__tp_hadamard(b);
    for (int i = 0; i < 16; i++) after += a[i] * b[i];
    CHECK(w, before == after && a[0] != -2);
}
static void low_mistakes(par_comm *w) {
    par_tp_kernels plain = *par_tp_cpu();
    par_tp_linear f;
    par_tp_desc d;
    par_tp *tp;
    memset(&f, 0, sizeof f), memset(&d, 0, sizeof d);
    d.tp = w, f.in = 16, f.out = 40 * (size_t)par_size(w), f.recipe = PAR_TP_MXFP8;
    CHECK_OK(w, par_tp_open(&d, &tp));
    expect_error(w, par_tp_linear_open(tp, &f), "open",
                 "has 40 x 16 of the weight, but the recipe mxfp8 wants");
    f.recipe = PAR_TP_RECIPE_COUNT;
    expect_error(w, par_tp_linear_open(tp, &f), "open", "recipe is 7, but there are 7");
    CHECK_OK(w, par_tp_close(tp));
    plain.name = "plain", plain.quantize = NULL, d.kernels = &plain, f.recipe = PAR_TP_BLOCKS;
    CHECK_OK(w, par_tp_open(&d, &tp));
    CHECK(w, par_tp_linear_open(tp, &f) == PAR_ERR_UNSUPPORTED);
    CHECK(w,
          strstr(par_last_error(w), "the kernels \"plain\" multiply no codes: leave out the recipe blocks"));
    CHECK_OK(w, par_tp_close(tp));
    par_tp_recipe r = PAR_TP_NO_RECIPE;
    CHECK(w, !par_tp_recipe_parse("nvfp4", &r) && r == PAR_TP_NVFP4 &&
                 par_tp_recipe_parse("fp8", &r) == PAR_ERR_ARGUMENT);
    CHECK(w, !strcmp(par_tp_recipe_name(PAR_TP_CURRENT), "current"));
}

static int printed(par_comm *w, void (*print)(const par_comm *, FILE *), const char *text) {
    char all[32768];
    FILE *f = fdopen(test_memory_file(), "w+");
    print(w, f), rewind(f);
    all[fread(all, 1, sizeof all - 1, f)] = 0;
    fclose(f);
    return strstr(all, text) != NULL;
}
// Errors, recorder and ledger say where the program called the layer, and the layer's name.
static void call_sites(par_comm *w) {
    const int n = par_size(w), odd = par_rank(w) == n - 1;
    char buffer[3][4096] = {{0}}, site[128], longer[200], name[64];
    par_tp_desc d;
    par_tp *tp;
    par_tp_linear f;
    par_tp_matrix x, y;
    memset(&d, 0, sizeof d), memset(&f, 0, sizeof f);
    d.tp = w;
    CHECK_OK(w, par_tp_open(&d, &tp));
    f.in = (size_t)n, f.out = 4, f.row_parallel = 1, f.name = "layers.3.attn.proj";
    CHECK_OK(w, par_tp_linear_open(tp, &f));
    f.weight.data = buffer[0];
    x.data = buffer[1], x.rows = 8, x.cols = 1, x.layout = PAR_TP_HIDDEN;
    y.data = buffer[2];
    CHECK_OK(w, par_tp_linear_forward(tp, &f, &x, NULL, &y));
    snprintf(site, sizeof site, "tests/test_tp.c:%d in layers.3.attn.proj", __LINE__ - 1);
    CHECK(w, printed(w, par_ledger_print, site) && printed(w, par_recorder_print, site));
    CHECK(w, !printed(w, par_ledger_print, "par_tp.h:") && !printed(w, par_recorder_print, "par_tp.h:"));
    x.rows = odd ? 7 : 8;
    CHECK(w, par_tp_linear_forward(tp, &f, &x, NULL, &y) == PAR_ERR_MISMATCH);
    snprintf(site, sizeof site, "tests/test_tp.c:%d in layers.3.attn.proj", __LINE__ - 1);
    CHECK(w, strstr(par_last_error(w), site) && !strstr(par_last_error(w), "par_tp.h"));
    x.rows = 8, x.cols = 2;
    CHECK(w, par_tp_linear_forward(tp, &f, &x, NULL, &y) == PAR_ERR_ARGUMENT);
    snprintf(site, sizeof site, "(called at tests/test_tp.c:%d in layers.3.attn.proj)", __LINE__ - 1);
    CHECK(w, strstr(par_last_error(w), site) != NULL);
    x.cols = 1;
    CHECK_OK(w, par_barrier(w)); // the program's own is again its own
    snprintf(site, sizeof site, "tests/test_tp.c:%d\n", __LINE__ - 1);
    CHECK(w, printed(w, par_recorder_print, site));
    memset(longer, 'x', sizeof longer), memcpy(longer + sizeof longer - 9, ".the.end", 9); // its end is told
    f.name = longer, x.rows = odd ? 7 : 8;
    CHECK(w, par_tp_linear_forward(tp, &f, &x, NULL, &y) == PAR_ERR_MISMATCH);
    snprintf(site, sizeof site, "tests/test_tp.c:%d in xxx", __LINE__ - 1);
    CHECK(w, strstr(par_last_error(w), site) && strstr(par_last_error(w), "xxx.the.end"));
    // There are more call sites than the table has rows: the last have no names, and nothing else changes.
    par_result (*forward)(par_tp *, const par_tp_linear *, const par_tp_matrix *, par_tp_matrix *,
                          par_tp_matrix *) = par_tp_linear_forward; // the function, too
    x.rows = 1;
    const int many = n == 2 && par_node_count(w) == 1 ? test_site_max() + 100 : 3000;
    for (int i = 0; i < many; i++) {
        snprintf(name, sizeof name, "layers.%d", i), f.name = name;
        if ((i % 2 ? par_tp_linear_forward(tp, &f, &x, NULL, &y) : forward(tp, &f, &x, NULL, &y)) != PAR_OK)
            CHECK(w, 0);
    }
    f.name = "layers.2999", x.rows = odd ? 7 : 8;
    CHECK(w, par_tp_linear_forward(tp, &f, &x, NULL, &y) == PAR_ERR_MISMATCH);
    snprintf(site, sizeof site, "tests/test_tp.c:%d%s", __LINE__ - 1,
             many < test_site_max() ? " in layers.2999" : " ");
    CHECK(w, strstr(par_last_error(w), site) && !strstr(par_last_error(w), "one of many"));
    CHECK_OK(w, par_tp_close(tp));
}

// ---- transformer block ------------------------------------------------------------------------------------

enum { BLOCK_FEATURES = 8, BLOCK_HIDDEN = 12, BLOCK_SEQUENCE = 8, BLOCK_BATCH = 2 };
enum { BLOCK_ROWS = BLOCK_BATCH * BLOCK_SEQUENCE, BLOCK_STREAM = 23 }; // of ref_attention's dropout
typedef struct block_form { // GPT-2's with biases and dropout, Llama's without
    int llama;
    heads heads;
} block_form;
static const block_form block_forms[2] = {{0, {4, 4, 2, BLOCK_SEQUENCE, BLOCK_BATCH, 0.25f, 0, 3}},
                                          {1, {4, 2, 2, BLOCK_SEQUENCE, BLOCK_BATCH, 0, 0, 0}}};

// Another reference's outputs for inputs x, w and b, which the caller frees.
static double *outputs_of(void (*f)(problem *), const void *user, double *x, size_t n, double *w, double *b,
                          size_t outs) {
    problem p;
    memset(&p, 0, sizeof p);
    p.in[0] = x, p.n[0] = n, p.in[1] = w, p.in[2] = b, p.n[2] = b ? 1 : 0;
    p.outs = outs, p.out = numbers(0, outs), p.user = user;
    f(&p);
    return p.out;
}
static void ref_block_rope(double *x, size_t heads, size_t row) { // heads of 2 features turn by position
    for (size_t r = 0; r < BLOCK_ROWS; r++)
        for (size_t h = 0; h < heads; h++) {
            double *pair = x + r * row + 2 * h, first = pair[0], a = (double)(r % BLOCK_SEQUENCE);
            pair[0] = first * cos(a) - pair[1] * sin(a), pair[1] = pair[1] * cos(a) + first * sin(a);
        }
}
static void ref_block_sum(double *y, const double *x, float dropout, uint64_t stream) { // y = x + dropout(y)
    for (size_t i = 0; i < BLOCK_ROWS * BLOCK_FEATURES; i++) { // from the step's sequence 2 on
        const uint64_t element = 2 * BLOCK_SEQUENCE * BLOCK_FEATURES + i;
        y[i] = x[i] + (dropout > 0 && dropped(stream, element, dropout) ? 0 : y[i] / (1 - (double)dropout));
    }
}
static double *ref_block_activate(int llama, const double *up) {
    double *y = numbers(0, BLOCK_ROWS * BLOCK_HIDDEN);
    for (size_t i = 0; i < BLOCK_ROWS * BLOCK_HIDDEN; i++) {
        const size_t gate = i / BLOCK_HIDDEN * 2 * BLOCK_HIDDEN + i % BLOCK_HIDDEN;
        const double x = up[llama ? gate : i];
        y[i] = llama ? x / (1 + exp(-x)) * up[gate + BLOCK_HIDDEN]
                     : x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    }
    return y;
}
#define BLOCK_EPSILON 0.03125f
static void ref_block(problem *p) { // x, then the block's parameters
    const block_form *f = (const block_form *)p->user;
    const size_t C = BLOCK_FEATURES, n = BLOCK_ROWS * C, qkv_cols = (4 + 2 * f->heads.kv) * 2,
                 up_cols = (f->llama ? 2 : 1) * BLOCK_HIDDEN;
    const shape qkv = {BLOCK_ROWS, C, qkv_cols}, proj = {BLOCK_ROWS, C, C}, up = {BLOCK_ROWS, C, up_cols},
                down = {BLOCK_ROWS, BLOCK_HIDDEN, C};
    const norm_sizes norm = {f->llama ? -(long)C : (long)C, BLOCK_EPSILON};
    double **in = p->in, *a[8];
    a[0] = outputs_of(ref_norm, &norm, in[0], n, in[1], in[2], n);
    a[1] = outputs_of(ref_linear, &qkv, a[0], n, in[3], in[4], BLOCK_ROWS * qkv_cols);
    if (f->llama) ref_block_rope(a[1], 4 + f->heads.kv, qkv_cols);
    a[2] = outputs_of(ref_attention, &f->heads, a[1], BLOCK_ROWS * qkv_cols, NULL, NULL, n);
    a[3] = outputs_of(ref_linear, &proj, a[2], n, in[5], in[6], n);
    ref_block_sum(a[3], in[0], f->heads.dropout, BLOCK_STREAM + 1);
    a[4] = outputs_of(ref_norm, &norm, a[3], n, in[7], in[8], n);
    a[5] = outputs_of(ref_linear, &up, a[4], n, in[9], in[10], BLOCK_ROWS * up_cols);
    a[6] = ref_block_activate(f->llama, a[5]);
    a[7] = outputs_of(ref_linear, &down, a[6], BLOCK_ROWS * BLOCK_HIDDEN, in[11], in[12], n);
    ref_block_sum(a[7], a[3], f->heads.dropout, BLOCK_STREAM + 2);
    memcpy(p->out, a[7], n * sizeof *p->out);
    for (int i = 0; i < 8; i++) free(a[i]);
}

static void soil(par_tp_arena *a) { // nothing that was there may count
    if (a->bytes) memset(a->data, 0xFF, a->bytes);
}

typedef struct block_run { // a block with what its calls need
    par_tp_block block;
    par_tp_block_saved saved;
    par_tp_parameter *parameters[PAR_TP_BLOCK_PARAMETERS]; // those that it has
    int numbers[PAR_TP_BLOCK_PARAMETERS], count;
    par_tp_arena arenas[4];
    par_tp_matrix x, y, dy, dx;
} block_run;
static void open_block(layout *l, const block_form *f, problem *p, block_run *b) {
    memset(b, 0, sizeof *b);
    b->block.features = BLOCK_FEATURES, b->block.hidden = BLOCK_HIDDEN;
    b->block.attention.heads = f->heads.heads, b->block.attention.kv_heads = f->heads.kv;
    b->block.rms = b->block.gated = b->block.rope = f->llama, b->block.has_bias = !f->llama;
    b->block.dropout = b->block.attention.dropout = f->heads.dropout, b->block.epsilon = BLOCK_EPSILON;
    strcpy(b->block.name, "layers.3");
    CHECK_OK(l->world, par_tp_block_open(l->tp, &b->block));
    memset(p, 0, sizeof *p);
    add_input(p, 0, BLOCK_ROWS * BLOCK_FEATURES);
    par_tp_parameter *all[PAR_TP_BLOCK_PARAMETERS];
    par_tp_block_parameters(&b->block, all);
    for (int i = 0; i < PAR_TP_BLOCK_PARAMETERS; i++) {
        CHECK(l->world, !!all[i] == !(f->llama && i % 2));
        if (!all[i]) continue;
        add_input(p, i + 1, all[i]->rows * all[i]->cols);
        b->parameters[b->count] = all[i], b->numbers[b->count++] = i + 1;
    }
    solve(l->world, l->solved, p, BLOCK_ROWS * BLOCK_FEATURES, ref_block, f);
    for (int i = 0; i < b->count; i++) open_parameter(l, b->parameters[i], p->in[b->numbers[i]]);
}
static void close_block(block_run *b) {
    for (int i = 0; i < b->count; i++) close_parameter(b->parameters[i]);
    free(b->x.data), free(b->y.data), free(b->dy.data), free(b->dx.data);
}
// Forward and backward with new memory for everything that is kept, which does not begin as zeros.
static void run_block(layout *l, block_run *b, par_tp_recompute recompute, int halves) {
    par_tp_arena *a = b->arenas;
    const par_tp_block_memory memory = {&a[0], &a[1], halves ? &a[2] : NULL, &a[3], recompute};
    const size_t rows = par_tp_rows(l->tp, &l->tokens);
    par_comm *w = l->world;
    for (int i = 0; i < b->count; i++)
        memset(b->parameters[i]->grad, 0, b->parameters[i]->local_rows * b->parameters[i]->local_cols * 4);
    memset(a, 0, sizeof b->arenas);
    CHECK_OK(w, par_tp_block_alloc(l->tp, &b->block, rows, &memory, &b->saved));
    for (int i = 0; i < 4; i++) {
        const size_t counted = a[i].used;
        CHECK_OK(w, par_tp_arena_open(l->tp, &a[i]));
        CHECK(w, a[i].bytes == counted && a[i].used == 0 && !a[i].data == !counted);
        soil(&a[i]);
    }
    CHECK_OK(w, par_tp_block_alloc(l->tp, &b->block, rows, &memory, &b->saved));
    CHECK(w, (a[1].bytes > 0) == (recompute != PAR_TP_RECOMPUTE_FULL) && (a[2].bytes > 0) == halves);
    CHECK_OK(w, par_tp_block_forward(l->tp, &b->block, &l->tokens, BLOCK_STREAM, &b->x, &b->saved, &b->y));
    soil(&a[3]); // another call's
    if (halves) {
        CHECK_OK(w, par_tp_block_backward_input(l->tp, &b->block, &l->tokens, BLOCK_STREAM, &b->dy, &b->x,
                                                &b->saved, &b->dx));
        soil(&a[0]);
        soil(&a[3]);
        CHECK_OK(w, par_tp_block_backward_weight(l->tp, &b->block, &b->saved));
    } else {
        CHECK_OK(w, par_tp_block_backward(l->tp, &b->block, &l->tokens, BLOCK_STREAM, &b->dy, &b->x,
                                          &b->saved, &b->dx));
        expect_error(w, par_tp_block_backward_weight(l->tp, &b->block, &b->saved), "block_backward_weight",
                     "set par_tp_block_memory.between");
    }
    for (int i = 0; i < 4; i++) par_tp_arena_close(l->tp, &a[i]);
    CHECK(w, !a[0].data && !a[0].bytes);
    finish(l, b->parameters, (size_t)b->count);
}
// A block with a cache gives what it gives without.
static void check_block_cached(layout *l, block_run *b) {
    par_tp_arena arena = {NULL, 0, 0};
    const par_tp_block_memory memory = {&arena, NULL, NULL, NULL, PAR_TP_RECOMPUTE_NONE};
    par_tp_kv_cache cache;
    par_tp_matrix y = alloc_output(l, BLOCK_FEATURES);
    memset(&cache, 0, sizeof cache);
    cache.batch = BLOCK_BATCH, cache.capacity = BLOCK_SEQUENCE;
    cache.data = malloc(par_tp_kv_cache_bytes(l->tp, &b->block.attention, cache.batch, cache.capacity) + 8);
    CHECK_OK(l->world, par_tp_block_alloc(l->tp, &b->block, BLOCK_ROWS, &memory, &b->saved));
    arena.bytes = arena.used, arena.data = malloc(arena.bytes), arena.used = 0;
    CHECK_OK(l->world, par_tp_block_alloc(l->tp, &b->block, BLOCK_ROWS, &memory, &b->saved));
    CHECK_OK(l->world, par_tp_block_cached(l->tp, &b->block, &l->tokens, &cache, &b->x, &b->saved, &y));
    CHECK(l->world, cache.count == BLOCK_SEQUENCE && y.rows == b->y.rows && y.cols == b->y.cols &&
                        !memcmp(y.data, b->y.data, y.rows * y.cols * sizeof(float)));
    free(cache.data), free(arena.data), free(y.data);
}
static void check_block_form(layout *l, int sequence, const block_form *f) {
    const size_t C = BLOCK_FEATURES, local = par_tp_rows(l->tp, &l->tokens) / (sequence ? (size_t)l->t : 1);
    problem p;
    block_run b;
    float *grads[PAR_TP_BLOCK_PARAMETERS], *dx = (float *)malloc(local * C * sizeof *dx);
    open_block(l, f, &p, &b);
    l->tokens.documents = NULL;
    if (f->heads.document) map_documents(l, &f->heads);
    b.x = part_of(l, p.in[0], C, tokens_of(sequence), NULL), b.y = alloc_output(l, C);
    b.dy = part_of(l, p.weight, C, tokens_of(sequence), NULL), b.dx = alloc_output(l, C);
    run_block(l, &b, PAR_TP_RECOMPUTE_NONE, 0);
    expect(l, "block y", &b.y, p.out, C, tokens_of(sequence), NULL);
    expect(l, "block dx", &b.dx, p.grad[0], C, tokens_of(sequence), NULL);
    memcpy(dx, b.dx.data, local * C * sizeof *dx);
    for (int i = 0; i < b.count; i++) {
        const size_t bytes = b.parameters[i]->local_rows * b.parameters[i]->local_cols * sizeof(float);
        expect_grad(l, b.parameters[i]->name, b.parameters[i], p.grad[b.numbers[i]]);
        grads[i] = (float *)malloc(bytes), memcpy(grads[i], b.parameters[i]->grad, bytes);
    }
    if (!sequence && l->c == 1 && f->heads.dropout == 0) check_block_cached(l, &b);
    for (int variant = 1; variant < 6; variant++) { // recomputed, in halves, in pieces: the same bits
        l->tp->desc.row_pieces = variant;
        run_block(l, &b, (par_tp_recompute)(variant / 2), variant % 2);
        CHECK(l->world, !memcmp(dx, b.dx.data, local * C * sizeof *dx));
        for (int i = 0; i < b.count; i++)
            CHECK(l->world,
                  !memcmp(grads[i], b.parameters[i]->grad,
                          b.parameters[i]->local_rows * b.parameters[i]->local_cols * sizeof(float)));
    }
    l->tp->desc.row_pieces = 0;
    for (int i = 0; i < b.count; i++) free(grads[i]);
    free(dx), free((void *)(uintptr_t)l->tokens.documents), close_block(&b), problem_close(&p);
}
static void check_block(layout *l, int sequence) {
    l->tokens.batch = BLOCK_BATCH, l->tokens.sequence = BLOCK_SEQUENCE, l->tokens.first_sequence = 2;
    for (int i = 0; i < 2; i++) {
        const heads *a = &block_forms[i].heads;
        const size_t t = (size_t)l->t, c = (size_t)l->c, kv = a->kv >= t ? a->kv / t : 1;
        if (a->heads % t || (a->kv % t && t % a->kv) || a->sequence % (2 * c)) continue;
        if (l->ulysses && (a->heads / t % c || kv % c)) continue;
        check_block_form(l, sequence, &block_forms[i]);
    }
}
static void blocks(par_comm *w) { each_layout(w, check_block, 4, 0); }

// ---- canonical sums: the bits of one rank -----------------------------------------------------------------

enum { BITS_BATCH = 2, BITS_TOKENS = 16, BITS_WORDS = 29, BITS_PARAMETERS = PAR_TP_BLOCK_PARAMETERS + 5 };
typedef struct bits_model { // an embedding, a block, a norm, a head and a loss
    par_tp_embedding embedding;
    par_tp_block block;
    par_tp_norm norm;
    par_tp_linear head;
    par_tp_loss loss;
    par_tp_parameter *list[BITS_PARAMETERS]; // NULL: not there
} bits_model;
static void bits_open(par_comm *w, par_tp *tp, int llama, bits_model *m) {
    memset(m, 0, sizeof *m);
    m->embedding.vocabulary = m->head.out = m->loss.vocabulary = BITS_WORDS;
    m->embedding.features = m->block.features = m->norm.features = m->head.in = 48;
    m->embedding.max_positions = BITS_TOKENS, m->head.vocab_parallel = 1, m->loss.ignore_index = 3;
    m->loss.label_smoothing = 0.1f, m->loss.z_loss = 0.01f;
    m->block.attention.heads = 8, m->block.hidden = 104, m->block.dropout = m->block.attention.dropout = 0.1f;
    m->block.gated = m->block.rms = m->block.rope = llama;
    m->block.has_bias = m->norm.has_bias = !llama, m->norm.rms = llama;
    CHECK_OK(w, par_tp_embedding_open(tp, &m->embedding));
    CHECK_OK(w, par_tp_block_open(tp, &m->block));
    CHECK_OK(w, par_tp_norm_open(tp, &m->norm));
    CHECK_OK(w, par_tp_linear_open(tp, &m->head));
    par_tp_block_parameters(&m->block, m->list);
    par_tp_parameter *const others[5] = {&m->embedding.weight, &m->embedding.position_weight, &m->norm.weight,
                                         llama ? NULL : &m->norm.bias, &m->head.weight};
    memcpy(m->list + PAR_TP_BLOCK_PARAMETERS, others, sizeof others);
    for (int i = 0; i < BITS_PARAMETERS; i++) {
        par_tp_parameter *p = m->list[i];
        if (!p) continue;
        p->data = calloc(p->local_rows * p->local_cols + 1, sizeof(float));
        p->grad = (float *)calloc(p->local_rows * p->local_cols + 1, sizeof(float));
        CHECK_OK(w, par_tp_init(tp, p, (uint64_t)i + 1, 0.3f));
    }
}
// Forward and backward of a microbatch; *sum receives its loss.
// The head and its loss by one call, or by those for all rows.
static void bits_head(par_comm *w, par_tp *tp, bits_model *m, const par_tp_matrix *z, const int32_t *targets,
                      int by_one, par_tp_matrix *logits, double *sum, par_tp_matrix *dz) {
    float lse[BITS_BATCH * BITS_TOKENS];
    size_t counted;
    if (by_one) {
        CHECK(w, par_tp_head_forward_backward(tp, &m->head, &m->loss, z, targets, 3, NULL, sum, &counted,
                                              0.1f, dz) == PAR_ERR_ARGUMENT &&
                     strstr(par_last_error(tp->desc.tp), "set chunk_rows to 0"));
        CHECK_OK(w, par_tp_head_forward_backward(tp, &m->head, &m->loss, z, targets, 0, NULL, sum, &counted,
                                                 0.1f, dz));
        return;
    }
    CHECK_OK(w, par_tp_linear_forward(tp, &m->head, z, NULL, logits));
    CHECK_OK(w, par_tp_loss_forward_backward(tp, &m->loss, logits, targets, lse, NULL, sum, &counted, 0.1f,
                                             logits));
    CHECK_OK(w, par_tp_linear_backward(tp, &m->head, logits, z, dz));
}
static void bits_run(par_comm *w, par_tp *tp, bits_model *m, int by_one, double *sum) {
    const par_tp_tokens tokens = {BITS_BATCH, BITS_TOKENS, 5, 0, NULL};
    const int sequence = tp->desc.sequence_parallel;
    const size_t rows = par_tp_rows(tp, &tokens), own = sequence ? rows / (size_t)tp->t : rows;
    const par_tp_layout layout = sequence ? PAR_TP_SEQUENCE : PAR_TP_REPLICATED;
    int32_t ids[2][BITS_BATCH * BITS_TOKENS];
    float *stats;
    par_tp_matrix x, y, z, logits, dz;
    par_tp_arena arena = {malloc(1 << 21), 1 << 21, 0};
    const par_tp_block_memory memory = {&arena, NULL, NULL, NULL, PAR_TP_RECOMPUTE_NONE};
    par_tp_block_saved saved;
    par_tp_matrix *const all[4] = {&x, &y, &z, &dz};
    for (size_t i = 0; i < 2 * rows; i++) {
        const size_t row = i % rows, each = rows / BITS_BATCH;
        const size_t at = row / each * BITS_TOKENS + par_tp_position(tp, BITS_TOKENS, row % each);
        ids[i / rows][row] = (int32_t)(par_random(1, 2 + i / rows, at) % BITS_WORDS);
    }
    for (int i = 0; i < 4; i++) CHECK_OK(w, par_tp_alloc(tp, &arena, own, 48, layout, all[i]));
    CHECK_OK(w, par_tp_alloc(tp, &arena, rows, m->head.weight.local_rows, PAR_TP_VOCABULARY, &logits));
    CHECK_OK(w, par_tp_alloc_floats(tp, &arena, 2 * own, &stats));
    CHECK_OK(w, par_tp_block_alloc(tp, &m->block, rows, &memory, &saved));
    CHECK_OK(w, par_tp_embedding_forward(tp, &m->embedding, &tokens, ids[0], &x));
    CHECK_OK(w, par_tp_block_forward(tp, &m->block, &tokens, 8, &x, &saved, &y));
    CHECK_OK(w, par_tp_norm_forward(tp, &m->norm, &y, stats, &z));
    bits_head(w, tp, m, &z, ids[1], by_one, &logits, sum, &dz);
    CHECK_OK(w, par_tp_norm_backward(tp, &m->norm, &dz, &y, stats, &dz));
    CHECK_OK(w, par_tp_block_backward(tp, &m->block, &tokens, 8, &dz, &x, &saved, &dz));
    CHECK_OK(w, par_tp_embedding_backward(tp, &m->embedding, &tokens, ids[0], &dz));
    free(arena.data);
}
// The loss of a row of BITS_LOGITS, a block each: `one` is the first of them, or the last, and the target.
enum { BITS_LOGITS = 16 };
static double bits_loss(par_comm *w, par_tp *tp, float one, float others, int last, float smoothing,
                        float *lse) {
    const size_t own = BITS_LOGITS / (size_t)tp->t, first = own * (size_t)tp->tp_rank;
    const int32_t target = last ? BITS_LOGITS - 1 : 0;
    float logits[BITS_LOGITS];
    par_tp_matrix x;
    par_tp_loss f;
    double sum = NAN;
    size_t count;
    memset(&f, 0, sizeof f);
    memset(&x, 0, sizeof x);
    f.vocabulary = BITS_LOGITS, f.ignore_index = -1, f.label_smoothing = smoothing;
    x.data = logits, x.rows = 1, x.cols = own, x.layout = PAR_TP_VOCABULARY;
    for (size_t i = 0; i < own; i++) logits[i] = (int32_t)(first + i) == target ? one : others;
    CHECK_OK(w, par_tp_loss_forward(tp, &f, &x, &target, lse, NULL, &sum, &count));
    return sum;
}
// Blocks of the vocabulary are added in f64 from the first to the last, which f32 results seldom show: beside
// 1 each e^-37 is nothing, all of them first are 6 x 2^-52; beside -2^60 each 50 is nothing, all are 768.
static void bits_of_loss(par_comm *w, par_tp *tp) {
    float lse;
    CHECK(w, bits_loss(w, tp, 0, -37, 0, 0, &lse) == 0 && lse == 0);
    CHECK(w, bits_loss(w, tp, 0, -37, 1, 0, &lse) > 0 && lse == 0x1.8p-50f);
    CHECK(w, bits_loss(w, tp, -0x1p60f, 50, 0, 1, &lse) == 0x1p56 + 48);
    CHECK(w, bits_loss(w, tp, -0x1p60f, 50, 1, 1, &lse) == 0x1p56);
}
// Loss and gradients of one rank (comm[0]), and of t x c ranks: every element's bits are the same.
static void canonical_of(par_comm *w, par_comm *const comm[3], int sequence, int bf16, int llama) {
    const int c = par_size(comm[2]);
    par_tp_desc d;
    par_tp *tp[2];
    bits_model m[2];
    double sum[2];
    memset(&d, 0, sizeof d);
    d.canonical_leaves = 16, d.canonical_batch = BITS_BATCH, d.seed = 7, d.dtype = bf16 ? PAR_BF16 : PAR_F32;
    for (int i = 0; i < 2; i++) {
        d.tp = comm[i], d.cp = i ? comm[2] : NULL, d.sequence_parallel = i ? sequence : 0;
        CHECK_OK(w, par_tp_open(&d, &tp[i]));
        bits_open(w, tp[i], llama, &m[i]);
        bits_run(w, tp[i], &m[i], i, &sum[i]);
        if (!bf16) bits_of_loss(w, tp[i]);
        par_tp_parameter *there[BITS_PARAMETERS];
        size_t count = 0;
        for (int k = 0; k < BITS_PARAMETERS; k++)
            if (m[i].list[k]) there[count++] = m[i].list[k];
        CHECK_OK(w, par_tp_finalize_gradients(tp[i], there, count));
        for (size_t k = 0; i && k < count; k++)
            CHECK_OK(w,
                     par_all_reduce(there[k]->grad, there[k]->grad,
                                    there[k]->local_rows * there[k]->local_cols, PAR_F32, PAR_SUM, comm[2]));
    }
    CHECK(w, (c > 1 || !memcmp(&sum[0], &sum[1], sizeof *sum)) && isfinite(sum[0]));
    for (int k = 0; k < BITS_PARAMETERS; k++) {
        const par_tp_parameter *p = m[1].list[k];
        if (!p) continue;
        const par_shard s = par_tp_parameter_shard(tp[1], p);
        size_t same = 0, n = p->local_rows * p->local_cols, at, zeros = 0;
        for (size_t i = 0; i < n; i++) {
            par_shard_find(&s, i, &at, NULL);
            same += !memcmp(&p->grad[i], &m[0].list[k]->grad[at], sizeof(float));
        }
        for (size_t i = 0; i < p->rows * p->cols; i++) zeros += m[0].list[k]->grad[i] == 0;
        if (same != n) fprintf(stderr, "%s: %zu of %zu are the same\n", p->name, same, n);
        CHECK(w, same == n && zeros < p->rows * p->cols);
    }
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < BITS_PARAMETERS; k++)
            if (m[i].list[k]) free(m[i].list[k]->data), free(m[i].list[k]->grad);
        CHECK_OK(w, par_tp_close(tp[i]));
    }
}
static void canonical(par_comm *w) {
    const int n = par_size(w), r = par_rank(w);
    for (int t = 1; t <= n; t *= 2) {
        par_comm *comm[3];
        CHECK_OK(w, par_split(w, r, 0, &comm[0]));
        CHECK_OK(w, par_split(w, r / t, r, &comm[1]));
        CHECK_OK(w, par_split(w, r % t, r, &comm[2]));
        for (int i = 0; i < 8; i++) // with cp GPT-2's in f32 with sequence parallelism, and Llama's in bf16
            if (t == n || i == 1 || i == 6) canonical_of(w, comm, i & 1, i >> 1 & 1, i >> 2);
        for (int i = 0; i < 3; i++) CHECK_OK(w, par_close(comm[i]));
    }
}

// Names and initial values of the parameters, and what a block cannot be.
static void block_parameters(par_comm *w) {
    layout l = open_layout(w, 1, 0, 0, 0);
    par_tp_block b;
    memset(&b, 0, sizeof b);
    expect_error(w, par_tp_block_open(l.tp, &b), "block_open", "0 features and 0 heads: neither may be 0");
    b.features = 9, b.attention.heads = 2;
    expect_error(w, par_tp_block_open(l.tp, &b), "block_open", "9 features do not divide by 2 heads");
    b.features = 8, b.has_bias = 1, b.depth = 8;
    CHECK_OK(w, par_tp_block_open(l.tp, &b));
    CHECK(w, b.hidden == 32 && b.attention.dim == 4 && !strcmp(b.proj.name, "attn.proj"));
    strcpy(b.name, "layers.0");
    b.deviation = 2; // a quarter of it for 8 blocks
    CHECK_OK(w, par_tp_block_open(l.tp, &b));
    static const struct {
        const char *name;
        float deviation, value;
    } want[PAR_TP_BLOCK_PARAMETERS] = {
        {"layers.0.ln1.weight", 0, 1},        {"layers.0.ln1.bias", 0, 0},
        {"layers.0.attn.qkv.weight", 2, 0},   {"layers.0.attn.qkv.bias", 0, 0},
        {"layers.0.attn.proj.weight", .5, 0}, {"layers.0.attn.proj.bias", 0, 0},
        {"layers.0.ln2.weight", 0, 1},        {"layers.0.ln2.bias", 0, 0},
        {"layers.0.mlp.up.weight", 2, 0},     {"layers.0.mlp.up.bias", 0, 0},
        {"layers.0.mlp.down.weight", .5, 0},  {"layers.0.mlp.down.bias", 0, 0},
    };
    par_tp_parameter *list[PAR_TP_BLOCK_PARAMETERS];
    par_tp_block_parameters(&b, list);
    par_parameter described[PAR_TP_BLOCK_PARAMETERS];
    list[3] = NULL;
    CHECK(w, par_tp_describe(l.tp, list, PAR_TP_BLOCK_PARAMETERS, 7, described) == 11);
    for (int i = 0, n = 0; i < PAR_TP_BLOCK_PARAMETERS; i++) {
        const par_parameter *d = &described[n];
        n += i != 3;
        if (i == 3) continue;
        CHECK(w, !strcmp(d->name, want[i].name) && d->deviation == want[i].deviation &&
                     d->value == want[i].value && d->data == &list[i]->data && d->grad == &list[i]->grad &&
                     d->stream == 7 + (uint64_t)i && d->shard.global_shape[0] == list[i]->rows);
    }
    par_tp_embedding e;
    memset(&e, 0, sizeof e);
    e.vocabulary = 5, e.features = e.max_positions = 3, e.name = "e";
    CHECK_OK(w, par_tp_embedding_open(l.tp, &e));
    par_tp_linear head;
    memset(&head, 0, sizeof head);
    head.in = 3, head.out = 5, head.vocab_parallel = 1;
    CHECK_OK(w, par_tp_linear_open(l.tp, &head));
    list[0] = &e.weight, list[1] = &e.position_weight,
    list[2] = &head.weight; // the others are matrices for Muon
    CHECK(w, par_tp_describe(l.tp, list, PAR_TP_BLOCK_PARAMETERS, 0, described) == 11);
    for (int i = 0; i < 11; i++) {
        CHECK(w, described[i].use_adamw == (i < 3) && !described[i].group && described[i].dtype == PAR_F32);
        CHECK(w, described[i].no_decay == (described[i].shard.dims == 1));
    }
    CHECK(w,
          !described[1].no_decay && described[4].no_decay && described[5].no_decay && !described[9].no_decay);
    CHECK(w, !strcmp(e.weight.name, "e.weight") && !strcmp(e.position_weight.name, "e.position") &&
                 e.weight.deviation == 0.02f);
    close_layout(&l);
}

// What a layer says of its gradients: which elements are to be summed over which ranks. It agrees with what
// par_tp_finalize_gradients does.
static void expect_sum(par_comm *w, const par_parameter *p, int i, int ranks, size_t first, size_t count) {
    const par_partial_sum *s = &p->sums[i];
    CHECK(w, ranks ? s->comm && par_size(s->comm) == ranks && s->first == first && s->count == count &&
                         s->op == PAR_SUM
                   : !s->comm && !s->count);
}
// The same layers in other comms of the same ranks: sums are over those that take the places of the old ones.
static void check_other_comms(par_comm *w, par_tp *tp, par_tp_parameter **list, const par_parameter *p) {
    const int n = par_size(w);
    par_comm *again, *alone;
    par_parameter now[2];
    CHECK_OK(w, par_split(w, 0, 0, &again));
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    CHECK(w, par_tp_set_comms(tp, NULL, NULL) == PAR_ERR_ARGUMENT);
    if (n > 1) CHECK(w, par_tp_set_comms(tp, alone, NULL) == PAR_ERR_ARGUMENT);
    CHECK(w, par_tp_set_comms(tp, w, again) == (n > 1 ? PAR_ERR_ARGUMENT : PAR_OK));
    CHECK_OK(w, par_tp_set_comms(tp, again, NULL));
    CHECK(w, par_tp_comm(tp) == again && !par_tp_comm_after(tp, alone));
    CHECK(w, par_tp_comm_after(tp, w) == again && par_tp_comm_after(tp, again) == again);
    CHECK(w, par_tp_describe(tp, list, 2, 0, now) == 2);
    for (int i = 0; i < 2 * PAR_MAX_SUMS; i++) {
        const par_partial_sum *old = &p[i / PAR_MAX_SUMS].sums[i % PAR_MAX_SUMS],
                              *is = &now[i / PAR_MAX_SUMS].sums[i % PAR_MAX_SUMS];
        if (!old->comm) continue;
        CHECK(w, par_tp_comm_after(tp, old->comm) == is->comm && is->comm != old->comm);
        CHECK(w, par_tp_comm_after(tp, is->comm) == is->comm);
        CHECK(w, par_size(is->comm) == (i % PAR_MAX_SUMS == 1 ? n / 2 : n) && is->count == old->count);
    }
}
static void partial_sums(par_comm *w) {
    const int n = par_size(w);
    for (int sequence = 0; sequence < 2; sequence++) {
        par_tp_desc d;
        par_tp *tp;
        par_tp_norm norm;
        par_tp_linear qkv;
        par_parameter p[2];
        memset(&d, 0, sizeof d), memset(&norm, 0, sizeof norm), memset(&qkv, 0, sizeof qkv);
        d.tp = w, d.sequence_parallel = sequence, norm.features = 6;
        qkv.in = 3, qkv.out = 4 * 2 + 2 * 2 + 2, qkv.segment_count = 3; // 4 heads of 2, 2 of k, 1 of v
        for (int i = 0; i < 3; i++) qkv.segments[i].count = (size_t)(8 >> i), qkv.segments[i].unit = 2;
        qkv.weight.frozen = 1, norm.weight.owned = 1;
        CHECK_OK(w, par_tp_open(&d, &tp));
        CHECK_OK(w, par_tp_norm_open(tp, &norm));
        CHECK_OK(w, par_tp_linear_open(tp, &qkv));
        par_tp_parameter *list[2] = {&norm.weight, &qkv.weight};
        CHECK(w, par_tp_describe(tp, list, 2, 0, p) == 2);
        CHECK(w, !p[0].frozen && p[1].frozen && p[0].owned == &norm.weight.owned && !norm.weight.owned);
        expect_sum(w, &p[0], 0, sequence ? n : 0, 0, 6);
        const size_t q = (size_t)(8 / n), k = n > 2 ? 2 : 4 / (size_t)n, v = 2; // rows of each
        expect_sum(w, &p[1], 0, 0, 0, 0);
        expect_sum(w, &p[1], 1, n > 2 ? n / 2 : 0, q * 3, k * 3);
        expect_sum(w, &p[1], 2, n, (q + k) * 3, v * 3);
        float grad[6 + 42], *g = grad + 6;
        for (int i = 0; i < 48; i++) grad[i] = 1;
        norm.weight.grad = grad, qkv.weight.grad = g;
        CHECK_OK(w, par_tp_finalize_gradients(tp, list, 2));
        for (size_t i = 0; i < (q + k + v) * 3; i++)
            CHECK(w, g[i] == (float)(i < q * 3 ? 1 : i >= (q + k) * 3 ? n : n > 2 ? n / 2 : 1));
        CHECK(w, grad[5] == (float)(sequence ? n : 1));
        const int last = par_rank(w) == n - 1;
        double l2;
        if (last) norm.weight.grad = NULL; // all ranks hear of it, and go on
        CHECK(w, par_tp_finalize_gradients(tp, list, 2) == PAR_ERR_ARGUMENT);
        CHECK(w, strstr(par_last_error(w), last ? "grad is NULL" : "failed on another rank"));
        CHECK(w, par_tp_global_norm(tp, list, 2, &l2) == PAR_ERR_ARGUMENT);
        norm.weight.grad = grad;
        CHECK_OK(w, par_tp_global_norm(tp, list, 2, &l2));
        check_other_comms(w, tp, list, p);
        for (int i = 0; i < 48; i++) grad[i] = 1;
        CHECK_OK(w, par_tp_finalize_gradients(tp, list, 2));
        CHECK(w, g[(q + k) * 3] == (float)n && grad[5] == (float)(sequence ? n : 1));
        CHECK_OK(w, par_tp_close(tp));
    }
}

// ---- kernels that fail ------------------------------------------------------------------------------------

static int failing_in; // calls of a kernel until one fails
static par_result failing(par_tp *tp) {
    return --failing_in ? PAR_OK : par_fail(par_tp_comm(tp), PAR_ERR_SYSTEM, "a kernel failed");
}
#define FAILING(name, parameters, arguments)                                                                 \
    static par_result failing_##name parameters {                                                            \
        const par_result r = failing(tp);                                                                    \
        return r ? r : par_tp_cpu()->name arguments;                                                         \
    }
FAILING(gemm,
        (par_tp * tp, int ta, int tb, size_t m, size_t n, size_t k, const void *a, size_t lda, const void *b,
         size_t ldb, float beta, void *c, par_dtype type, size_t ldc, const void *bias),
        (tp, ta, tb, m, n, k, a, lda, b, ldb, beta, c, type, ldc, bias))
FAILING(cast, (par_tp * tp, void *to, par_dtype to_type, const void *from, par_dtype type, size_t n),
        (tp, to, to_type, from, type, n))
FAILING(copy, (par_tp * tp, void *to, size_t to_ld, const void *from, size_t ld, size_t rows, size_t bytes),
        (tp, to, to_ld, from, ld, rows, bytes))
FAILING(add_bias, (par_tp * tp, void *y, size_t ld, const void *bias, size_t rows, size_t cols),
        (tp, y, ld, bias, rows, cols))
FAILING(sum_rows, (par_tp * tp, float *sum, const void *x, size_t ld, size_t rows, size_t cols),
        (tp, sum, x, ld, rows, cols))
FAILING(embed_backward,
        (par_tp * tp, float *grad, const int32_t *ids, size_t rows, const void *dy, size_t first,
         size_t count, size_t cols),
        (tp, grad, ids, rows, dy, first, count, cols))
FAILING(positions_backward,
        (par_tp * tp, float *grad, const void *dy, size_t rows, size_t cols, const par_tp_row_map *map),
        (tp, grad, dy, rows, cols, map))
FAILING(attention_block_forward, (par_tp * tp, const par_tp_attention_block *m), (tp, m))
FAILING(attention_block_backward, (par_tp * tp, const par_tp_attention_block *m), (tp, m))
FAILING(set, (par_tp * tp, float *x, size_t n, float value), (tp, x, n, value))

enum { FAIL_COLUMN, FAIL_GATHERING, FAIL_ROW, FAIL_EMBEDDING, FAIL_RING, FAIL_LAYERS };
typedef struct fault { // a layer of one kind, with matrices that are large enough for all
    int kind;
    par_tp *tp;
    par_tp_linear linear;
    par_tp_embedding table;
    par_tp_attention heads;
    par_tp_tokens tokens;
    float *data[4], lse[64];
    int32_t ids[8];
} fault;

static par_result fault_run(fault *f) { // forward, then backward
    enum { ROWS = 8, WIDTH = 8 };
    const int column = f->kind == FAIL_COLUMN || f->kind == FAIL_GATHERING;
    const size_t t = (size_t)par_size(par_tp_comm(f->tp));
    const size_t own = f->kind == FAIL_RING ? par_tp_rows(f->tp, &f->tokens) : ROWS / t;
    par_tp_matrix x = {f->data[0], own, WIDTH, PAR_TP_SEQUENCE}, y = {f->data[1], 0, 0, PAR_TP_HIDDEN};
    par_tp_matrix dy = {f->data[2], own, WIDTH, PAR_TP_SEQUENCE}, dx = {f->data[3], 0, 0, PAR_TP_HIDDEN};
    par_result r;
    if (f->kind == FAIL_EMBEDDING)
        return par_tp_embedding_backward(f->tp, &f->table, &f->tokens, f->ids, &dy);
    if (f->kind == FAIL_RING) {
        x.cols = 3 * WIDTH, x.layout = dy.layout = PAR_TP_HIDDEN;
        r = par_tp_attention_forward(f->tp, &f->heads, &f->tokens, 1, &x, f->lse, &y);
        return r ? r : par_tp_attention_backward(f->tp, &f->heads, &f->tokens, 1, &dy, &x, &y, f->lse, &dx);
    }
    if (!column) x.rows = ROWS, x.cols = WIDTH / t, x.layout = PAR_TP_HIDDEN;
    r = par_tp_linear_forward(f->tp, &f->linear, &x, NULL, &y);
    if (column) dy.rows = ROWS, dy.cols = y.cols, dy.layout = y.layout;
    return r ? r : par_tp_linear_backward(f->tp, &f->linear, &dy, &x, &dx);
}
static par_tp_parameter fault_parameter(par_tp_parameter p) {
    p.data = calloc(64, 4), p.grad = (float *)calloc(64, 4);
    return p;
}
static void fault_open(par_comm *w, par_comm *self, fault *f, int kind, par_tp_kernels *kernels) {
    par_tp_desc d;
    memset(f, 0, sizeof *f);
    memset(&d, 0, sizeof d);
    f->kind = kind, d.kernels = kernels, d.dtype = PAR_BF16;
    d.tp = kind == FAIL_RING ? self : w, d.cp = kind == FAIL_RING ? w : NULL,
    d.sequence_parallel = kind != FAIL_RING;
    CHECK_OK(w, par_tp_open(&d, &f->tp));
    for (int i = 0; i < 4; i++) f->data[i] = (float *)calloc(512, 4);
    f->tokens.batch = 1, f->tokens.sequence = kind == FAIL_RING ? 16 : 8; // two of a rank of eight
    f->heads.heads = 2, f->heads.dim = 4;
    f->table.vocabulary = f->table.features = f->table.max_positions = 8;
    f->linear.in = f->linear.out = 8, f->linear.has_bias = 1;
    f->linear.row_parallel = kind == FAIL_ROW, f->linear.gather_output = kind == FAIL_GATHERING;
    CHECK_OK(w, par_tp_linear_open(f->tp, &f->linear));
    CHECK_OK(w, par_tp_embedding_open(f->tp, &f->table));
    f->linear.weight = fault_parameter(f->linear.weight), f->linear.bias = fault_parameter(f->linear.bias);
    f->table.weight = fault_parameter(f->table.weight),
    f->table.position_weight = fault_parameter(f->table.position_weight);
}
static void fault_close(par_comm *w, fault *f) {
    par_tp_parameter *all[] = {&f->linear.weight, &f->linear.bias, &f->table.weight,
                               &f->table.position_weight};
    for (int i = 0; i < 4; i++) free(f->data[i]), free(all[i]->data), free(all[i]->grad);
    CHECK_OK(w, par_tp_close(f->tp));
}
static int idle_operations(const par_comm *w) {
    int count = 0;
    while (test_idle_operation(w, count)) count++;
    return count;
}

// Whichever call of a kernel fails: the layer returns the error, no call stays in flight, the next one works.
static void kernels_fail(par_comm *w) {
    par_tp_kernels kernels = *par_tp_cpu();
    par_comm *self;
    kernels.gemm = failing_gemm, kernels.cast = failing_cast, kernels.copy = failing_copy;
    kernels.add_bias = failing_add_bias, kernels.sum_rows = failing_sum_rows, kernels.set = failing_set;
    kernels.embed_backward = failing_embed_backward;
    kernels.positions_backward = failing_positions_backward;
    kernels.attention_block_forward = failing_attention_block_forward,
    kernels.attention_block_backward = failing_attention_block_backward;
    kernels.attention_fused_forward = NULL, kernels.attention_fused_backward = NULL;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &self));
    for (int kind = 0; kind < FAIL_LAYERS; kind++) {
        fault f;
        fault_open(w, self, &f, kind, &kernels);
        failing_in = 0;
        CHECK_OK(w, fault_run(&f));
        const int idle = idle_operations(w), calls = -failing_in;
        CHECK(w, calls >= 2);
        for (int k = 1; k <= calls; k++) {
            failing_in = k;
            CHECK(w, fault_run(&f) == PAR_ERR_SYSTEM && strstr(par_last_error(w), "a kernel failed"));
            CHECK(w, idle_operations(w) == idle && !test_is_active(w));
        }
        failing_in = 0;
        CHECK_OK(w, fault_run(&f));
        fault_close(w, &f);
    }
    CHECK_OK(w, par_close(self));
}

// ---- products of bf16 -------------------------------------------------------------------------------------

typedef struct bf16_case {
    size_t m, n, k;
    par_dtype c_type;
    float beta;
    int bias;
} bf16_case;
static uint16_t *bf16_values(uint64_t stream, size_t n) {
    uint16_t *x = (uint16_t *)malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = par_f32_to_bf16((float)value(stream, i));
    return x;
}
static double bf16_at(const uint16_t *x, size_t i) { return (double)par_bf16_to_f32(x[i]); }

// All forms of a product, with leading dimensions beyond the columns. In f32 each addition may err by 2^-24
// of the sum of all magnitudes; a bf16 result is rounded by up to 2^-8 of itself once more.
static void bf16_product(par_comm *w, par_tp *tp, const bf16_case *t, int ta, int tb) {
    const size_t m = t->m, n = t->n, k = t->k, lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 5, ldc = n + 1;
    uint16_t *a = bf16_values(1, lda * (ta ? k : m)), *b = bf16_values(2, ldb * (tb ? n : k));
    uint16_t *bias = bf16_values(3, n), *narrow = bf16_values(4, ldc * m);
    float *wide = (float *)malloc(ldc * m * sizeof *wide);
    const int f32 = t->c_type == PAR_F32;
    double worst = 0;
    for (size_t i = 0; i < ldc * m; i++) wide[i] = par_bf16_to_f32(narrow[i]);
    CHECK_OK(w, par_tp_kernels_of(tp)->gemm(tp, ta, tb, m, n, k, a, lda, b, ldb, t->beta,
                                            f32 ? (void *)wide : (void *)narrow, t->c_type, ldc,
                                            t->bias ? bias : NULL));
    uint16_t *before = bf16_values(4, ldc * m);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < ldc; j++) {
            const double old = bf16_at(before, i * ldc + j);
            const double y = f32 ? (double)wide[i * ldc + j] : bf16_at(narrow, i * ldc + j);
            double sum = (double)t->beta * old + (t->bias && j < n ? bf16_at(bias, j) : 0), all = fabs(sum);
            for (size_t p = 0; p < k && j < n; p++) {
                const double x =
                    bf16_at(a, ta ? p * lda + i : i * lda + p) * bf16_at(b, tb ? j * ldb + p : p * ldb + j);
                sum += x, all += fabs(x);
            }
            if (j == n) sum = old, all = 0; // between the rows nothing is written
            const double allowed =
                (double)(k + 3) * all * ldexp(1, -24) + (f32 || j == n ? 0 : fabs(sum) * ldexp(1.01, -8));
            worst = fmax(worst, fabs(y - sum) - allowed);
        }
    char why[200];
    snprintf(why, sizeof why, "%zu x %zu x %zu, %d %d, into %s, by %s: %g beyond the bound", m, n, k, ta, tb,
             par_dtype_name(t->c_type), tp->dot ? tp->dot->name : "f32", worst);
    if (!(worst <= 0)) test_fail(__FILE__, __LINE__, par_rank(w), "bf16_product", why);
    __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
    free(a), free(b), free(bias), free(narrow), free(before), free(wide);
}
// avx512_bf16: two fma for each pair of k, the odd one first.
static float avx512_pair(float s, float x0, float y0, float x1, float y1) {
    return fmaf(x0, y0, fmaf(x1, y1, s));
}
// x + y cut towards zero; its last bit is 1 if that was inexact.
static float sum_to_odd(float x, float y) {
    const double sum = (double)x + y, back = sum - x, error = (x - (sum - back)) + (y - back);
    float cut = (float)sum;
    uint32_t bits;
    const double left = (sum - (double)cut) + error;
    if (left == 0) return cut;
    if ((left > 0) != (cut > 0)) cut = nextafterf(cut, 0);
    memcpy(&bits, &cut, sizeof bits);
    bits |= 1;
    memcpy(&cut, &bits, sizeof cut);
    return cut;
}
static float bfmmla_pair(float s, float x0, float y0, float x1, float y1) {
    return sum_to_odd(s, sum_to_odd(x0 * y0, x1 * y1));
}
// Each instruction's own rounding; denormal operands count as zero.
static void bf16_rounding(par_comm *w, par_tp *tp,
                          float (*pair)(float s, float x0, float y0, float x1, float y1)) {
    enum { M = 9, N = 33, K = 51 };
    uint16_t *a = bf16_values(5, M * K), *b = bf16_values(6, N * K);
    float c[M * N];
    int differ = 0;
    a[0] = 0x0001, b[0] = 0x7f00, a[K + 1] = 0x807f; // denormal; times 2^127 it would count
    CHECK_OK(w, par_tp_kernels_of(tp)->gemm(tp, 0, 1, M, N, K, a, K, b, K, 0, c, PAR_F32, N, NULL));
    a[0] = a[K + 1] = 0;
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            float s = 0;
            for (size_t p = 0; p < K; p += 2) {
                const float x1 = p + 1 < K ? (float)bf16_at(a, i * K + p + 1) : 0,
                            y1 = p + 1 < K ? (float)bf16_at(b, j * K + p + 1) : 0;
                s = pair(s, (float)bf16_at(a, i * K + p), (float)bf16_at(b, j * K + p), x1, y1);
            }
            differ += s != c[i * N + j];
        }
    CHECK(w, !differ);
    free(a), free(b);
}
static void bf16_products(par_comm *w) {
    static const bf16_case cases[] = {
        {45, 71, 37, PAR_F32, 0, 0}, {8, 32, 64, PAR_BF16, 0, 1},     {7, 33, 2, PAR_BF16, 1, 0},
        {1, 5, 1, PAR_F32, 1, 0},    {5, 3, 4100, PAR_BF16, 0, 1},    {41, 64, 520, PAR_BF16, 0, 0},
        {5, 3, 4100, PAR_F32, 1, 0}, {520, 40, 600, PAR_F32, 0.5, 0}, {2, 2, 0, PAR_BF16, 0, 1},
        {1, 21, 100, PAR_F32, 0, 0}, {1, 8, 64, PAR_BF16, 0, 1}};
    layout l = open_layout(w, 1, 0, 0, 1);
    const par__tp_dot *dot = l.tp->dot;
    const int product = l.tp->product;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int form = 0; form < 4; form++) {
            bf16_product(w, l.tp, &cases[i], form & 1, form >> 1);
            l.tp->dot = NULL;
            for (int how = PAR__BF16_LIBRARY; how < PAR__BF16_COUNT && cases[i].m < 100; how++) {
                l.tp->product = how; // without a library's own product it is widened
                bf16_product(w, l.tp, &cases[i], form & 1, form >> 1);
            }
            l.tp->dot = dot, l.tp->product = product;
        }
    if (dot && !strcmp(dot->name, "avx512_bf16")) bf16_rounding(w, l.tp, avx512_pair);
    if (dot && !strcmp(dot->name, "bfmmla")) bf16_rounding(w, l.tp, bfmmla_pair);
    close_layout(&l);
}

// Tile instructions for a processor that has none: each is an illegal instruction, and this handler of its
// signal does what it would have done. Rows of a tile are 64 bytes, as the kernel under test configures them.
#if PAR__X86 && defined(__linux__)
#define HAVE_TILES
#include <signal.h>
#include <ucontext.h>
static struct {
    uint8_t config[64];
    float t[8][16][16];
    int count;
} tiles;
static uint64_t tile_register(const ucontext_t *u, int number) {
    static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)u->uc_mcontext.gregs[order[number]];
}
static float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? 0 : x; }
static void tile_multiply(float (*c)[16], float (*a)[16], float (*b)[16]) {
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float sums[2] = {0, 0};
            for (int k = 0; k < 16; k++)
                for (int odd = 0; odd < 2; odd++) {
                    const float x = par_bf16_to_f32(((const uint16_t *)a[m])[2 * k + odd]);
                    const float y = par_bf16_to_f32(((const uint16_t *)b[k])[2 * n + odd]);
                    sums[odd] = flushed(fmaf(flushed(x), flushed(y), sums[odd]));
                }
            c[m][n] = flushed(c[m][n] + flushed(sums[0] + sums[1]));
        }
}
// The address of a memory operand, and the bytes of its description from the ModRM byte on; stride: of rows.
static char *tile_memory(const ucontext_t *u, const uint8_t *code, int *length, int64_t *stride) {
    const int b = code[1] & 0x20 ? 0 : 8, x = code[1] & 0x40 ? 0 : 8, mod = code[4] >> 6, rm = code[4] & 7;
    uint64_t at;
    int8_t short_offset;
    int32_t offset = 0;
    *length = rm == 4 ? 2 : 1, *stride = 0;
    at = tile_register(u, (rm == 4 ? code[5] & 7 : rm) + b);
    if (rm == 4 && ((code[5] >> 3 & 7) + x) != 4)
        *stride = (int64_t)(tile_register(u, (code[5] >> 3 & 7) + x) << (code[5] >> 6));
    if (mod == 1) memcpy(&short_offset, code + 4 + *length, 1), offset = short_offset, *length += 1;
    if (mod == 2) memcpy(&offset, code + 4 + *length, 4), *length += 4;
    return (char *)(uintptr_t)(at + (uint64_t)(int64_t)offset);
}
static void tile_instruction(int signal_number, siginfo_t *info, void *context) {
    ucontext_t *u = (ucontext_t *)context;
    const uint8_t *code = (const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP];
    const int prefix = code[2] & 3, t = code[4] >> 3 & 7, registers = code[4] >> 6 == 3;
    int length = 1;
    int64_t stride = 0;
    (void)signal_number, (void)info;
    if (code[0] != 0xC4 || (code[1] & 0x1F) != 2) abort();
    char *memory = registers ? NULL : tile_memory(u, code, &length, &stride);
    tiles.count++;
    if (code[3] == 0x49 && !registers && prefix == 0)
        memcpy(tiles.config, memory, 64); // ldtilecfg
    else if (code[3] == 0x49 && registers && prefix == 3)
        memset(tiles.t[t], 0, sizeof tiles.t[t]); // tilezero
    else if (code[3] == 0x49 && registers && prefix == 0)
        memset(tiles.config, 0, 64);         // tilerelease
    else if (code[3] == 0x4B && prefix == 3) // tileloadd
        for (int r = 0; r < 16; r++) memcpy(tiles.t[t][r], memory + r * stride, 64);
    else if (code[3] == 0x4B && prefix == 2) // tilestored
        for (int r = 0; r < 16; r++) memcpy(memory + r * stride, tiles.t[t][r], 64);
    else if (code[3] == 0x5C && registers && prefix == 2) // tdpbf16ps
        tile_multiply(tiles.t[t], tiles.t[code[4] & 7], tiles.t[15 - (code[2] >> 3 & 15)]);
    else
        abort();
    if (code[3] != 0x49)
        for (int i = 0; i < 8; i++)
            if (tiles.config[0] != 1 || tiles.config[16 + 2 * i] != 64 || tiles.config[48 + i] != 16) abort();
    u->uc_mcontext.gregs[REG_RIP] += 4 + length;
}
static void bf16_tiles(par_comm *w) {
    static const bf16_case cases[] = {{33, 35, 65, PAR_F32, 0.5, 0}, {32, 64, 64, PAR_BF16, 0, 1}};
    layout l = open_layout(w, 1, 0, 0, 1);
    struct sigaction emulated, before;
    memset(&emulated, 0, sizeof emulated);
    emulated.sa_sigaction = tile_instruction, emulated.sa_flags = SA_SIGINFO | SA_NODEFER;
    CHECK(w, sigaction(SIGILL, &emulated, &before) == 0);
    const par__tp_dot *dot = l.tp->dot;
    l.tp->dot = &par__tp_dots[0];
    for (int i = 0; i < 8; i++) bf16_product(w, l.tp, &cases[i / 4], i & 1, i >> 1 & 1);
    const heads attention_case = {2, 1, 33, 40, 1, 0, 0, 0};
    attention_kernel(&l, &attention_case, "amx_bf16");
    CHECK(w, !strcmp(l.tp->dot->name, "amx_bf16") && (tiles.count > 100 || dot == l.tp->dot));
    l.tp->dot = dot;
    CHECK(w, sigaction(SIGILL, &before, NULL) == 0);
    close_layout(&l);
}
#endif

const test tests[] = {
    {"bf16_products", bf16_products, TEST_SERIAL, 1, 60},
#ifdef HAVE_TILES
    {"bf16_tiles", bf16_tiles, TEST_SERIAL, 1, 60},
#endif
    {"linear_column", linear_column, TEST_ANY | TEST_SMALL, 1, 120},
    {"linear_row", linear_row, TEST_ANY | TEST_SMALL, 1, 120},
    {"row_pieces", row_pieces, TEST_ALONE, 2, 60},
    {"narrow_sums", narrow_sums, TEST_ANY | TEST_SMALL, 1, 60},
    {"low_precision", low_precision, TEST_ALONE | TEST_POWERS | TEST_SMALL, 1, 60},
    {"amax_history", amax_history, TEST_SERIAL, 1, 60},
    {"rounding_at_random", rounding_at_random, TEST_SERIAL, 1, 60},
    {"low_mistakes", low_mistakes, TEST_ALONE, 1, 60},
    {"norms", norms, TEST_ALONE, 1, 60},
    {"activations", activations, TEST_ALONE, 1, 60},
    {"dropouts", dropouts, TEST_ALONE, 1, 60},
    {"rope", rope, TEST_ALONE, 1, 60},
    {"embeddings", embeddings, TEST_ALONE, 1, 60},
    {"losses", losses, TEST_ALONE, 1, 60},
    {"heads_in_chunks", heads_in_chunks, TEST_ALONE, 1, 60},
    {"attention", attention, TEST_ALONE, 1, 120},
    {"attention_cached", attention_cached, TEST_ALONE, 1, 120},
    {"attention_long", attention_long, TEST_ALONE, 1, 60},
    {"attention_kernels", attention_kernels, TEST_SERIAL, 1, 60},
    {"documents", documents, TEST_SERIAL, 1, 60},
    {"exponential", exponential, TEST_SERIAL, 1, 300},
    {"blocks", blocks, TEST_ALONE, 1, 120},
    {"canonical", canonical, TEST_ALONE | TEST_POWERS, 2, 60},
    {"block_parameters", block_parameters, TEST_SERIAL, 1, 60},
    {"partial_sums", partial_sums, TEST_ALONE | TEST_POWERS | TEST_SMALL, 2, 60},
    {"ledger", ledger, TEST_ALONE, 1, 60},
    {"overlap", overlap, TEST_ALONE, 2, 60},
    {"own_bytes", own_bytes, TEST_ALONE, 1, 60},
    {"arenas", arenas, TEST_ALONE, 1, 60},
    {"published", published, TEST_SERIAL, 1, 60},
    {"initial_values", initial_values, TEST_ALONE, 1, 60},
    {"mistakes", mistakes, TEST_ALONE, 1, 60},
    {"kernels_fail", kernels_fail, TEST_ALONE | TEST_POWERS | TEST_SMALL, 2, 60},
    {"call_sites", call_sites, TEST_ANY | TEST_LAUNCHES | TEST_NODES, 2, 60},
};
const int test_count = (int)(sizeof tests / sizeof tests[0]);

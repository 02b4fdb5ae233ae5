// test_zero.c - par_zero.h: every stage, optimizer and precision against a serial reference in double; the
// same bits on any number of ranks; bytes and elements against the plan.
#define _DEFAULT_SOURCE
#include <stdlib.h>
static long allocations; // by the kit's own hooks: a step makes none
#define PAR_MALLOC(n)     (__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED), malloc(n))
#define PAR_REALLOC(p, n) (__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED), realloc(p, n))
#define PAR_FREE(p)       free(p)
#define PAR_ZERO_WINDOW   1024 // small, so that units have several
#define PAR_IMPLEMENTATION
#include "par_zero.h"
#include "test.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

// ---- a model: its gradients depend on the microbatch and on the weights -----------------------------------

enum { TENSORS = 10, UNITS = 4, STEPS = 20, MOST = 4096 };
static const struct {
    size_t shape[2];
    int unit, group, frozen, plain;
} shapes[TENSORS] = {{{13, 7}, 0, 0, 0, 1},  {{31, 1}, 0, 1, 0, 0}, {{64, 48}, 1, 0, 0, 0},
                     {{0, 1}, 1, 0, 0, 0},   {{1, 1}, 1, 1, 0, 0},  {{5, 9}, 1, 0, 1, 0},
                     {{24, 40}, 1, 0, 0, 0}, {{17, 1}, 2, 1, 0, 0}, {{33, 1}, 3, 0, 1, 0},
                     {{2, 200}, 3, 0, 0, 0}}; // unit 2 is not used
static size_t count_of(int t) { return shapes[t].shape[0] * shapes[t].shape[1]; }
static float start(int t, size_t i) { return par_normal(1, (uint64_t)t, i) * 0.3f; }
static float slope(int t, uint64_t batch, uint64_t step, size_t i) {
    return (par_uniform(2 + step, (uint64_t)t * 1000 + batch, i) - 0.5f) * 0.3f;
}
static void give_start(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = start(*(const int *)user, first + i);
}

static int says(par_comm *w, const char *text) { return strstr(par_last_error(w), text) != NULL; }

typedef struct run {
    par_zero_desc desc;
    par_zero *z;
    par_zero_report report;
    par_zero_plan plan, real;
    int nested; // recompute within backward
    int all;    // unit 2 is used, too
} run;
static void open_run(par_comm *w, run *r) {
    static const char *const names[UNITS] = {"embedding", "first", "spare", "second"};
    CHECK_OK(w, par_zero_open(&r->desc, &r->z));
    for (int t = 0, unit = -1; t < TENSORS; t++) {
        char name[32];
        par_zero_tensor d;
        memset(&d, 0, sizeof d);
        snprintf(name, sizeof name, "t%d", t);
        d.name = name, d.dims = shapes[t].shape[1] == 1 ? 1 : 2;
        d.shape[0] = shapes[t].shape[0], d.shape[1] = shapes[t].shape[1];
        d.group = shapes[t].group, d.frozen = shapes[t].frozen, d.plain = shapes[t].plain;
        if (shapes[t].unit != unit) {
            unit = shapes[t].unit;
            CHECK(w, par_zero_unit(r->z, names[unit]) == unit);
        }
        CHECK(w, par_zero_add(r->z, &d) == t);
    }
    CHECK_OK(w, par_zero_commit(r->z));
    for (int t = 0; t < TENSORS; t++) CHECK_OK(w, par_zero_fill(r->z, t, PAR_ZERO_VALUE, give_start, &t));
}
static float as_float(const void *x, par_dtype type, size_t i) {
    float f;
    par_cast(&f, PAR_F32, (const char *)x + i * par_dtype_bytes(type), type, 1);
    return f;
}
static void unit_backward(par_comm *w, run *r, int unit, uint64_t batch) {
    const par_dtype type = r->desc.param_dtype ? r->desc.param_dtype : PAR_F32;
    const par_dtype grad_type = r->desc.grad_dtype ? r->desc.grad_dtype : PAR_F32;
    const float scale = par_zero_loss_scale(r->z);
    CHECK_OK(w, par_zero_backward_begin(r->z, unit));
    if (r->nested) CHECK_OK(w, par_zero_forward_begin(r->z, unit));
    for (int t = 0; t < TENSORS; t++) {
        if (shapes[t].unit != unit) continue;
        const void *x = par_zero_data(r->z, t);
        void *g = par_zero_grad(r->z, t);
        CHECK(w, x && (g != NULL) == !shapes[t].frozen);
        for (size_t i = 0; i < count_of(t) && g; i++) {
            const float add =
                scale * (slope(t, batch, par_zero_steps(r->z), i) + 0.05f * as_float(x, type, i));
            const float sum = as_float(g, grad_type, i) + add;
            par_cast((char *)g + i * par_dtype_bytes(grad_type), grad_type, &sum, PAR_F32, 1);
        }
    }
    if (r->nested) CHECK_OK(w, par_zero_forward_end(r->z, unit));
    CHECK_OK(w, par_zero_backward_end(r->z, unit));
}
static void one_step(par_comm *w, run *r, float lr_factor) {
    const int m = r->desc.micro_steps ? r->desc.micro_steps : 1;
    for (int j = 0; j < m; j++) {
        for (int u = 0; u < UNITS; u++) {
            if (u == 2 && !r->all) continue;
            CHECK_OK(w, par_zero_forward_begin(r->z, u));
            for (int t = 0; t < TENSORS; t++) {
                const int here = shapes[t].unit == u, sharded = r->desc.stage == 3;
                CHECK(w, (par_zero_data(r->z, t) != NULL) == (here || !sharded));
            }
            CHECK_OK(w, par_zero_forward_end(r->z, u));
        }
        for (int u = UNITS - 1; u >= 0; u--)
            if (u != 2 || r->all) unit_backward(w, r, u, par_zero_microbatch(r->z, j));
    }
    CHECK_OK(w, par_zero_step(r->z, lr_factor, &r->report));
}

// ---- the reference ----------------------------------------------------------------------------------------

typedef struct reference {
    double *w[TENSORS], *m[TENSORS], *v[TENSORS], *ema[TENSORS], *g[TENSORS];
    double norm;
    int step;
} reference;
static double *zeros(size_t n) { return (double *)calloc(n + 1, sizeof(double)); }
static void open_reference(reference *f) {
    memset(f, 0, sizeof *f);
    for (int t = 0; t < TENSORS; t++) {
        double **all[5] = {&f->w[t], &f->m[t], &f->v[t], &f->ema[t], &f->g[t]};
        for (int k = 0; k < 5; k++) *all[k] = zeros(count_of(t));
        for (size_t i = 0; i < count_of(t); i++) f->ema[t][i] = f->w[t][i] = (double)start(t, i);
    }
}
static void close_reference(reference *f) {
    for (int t = 0; t < TENSORS; t++)
        free(f->w[t]), free(f->m[t]), free(f->v[t]), free(f->ema[t]), free(f->g[t]);
}
// U S V^T -> about U V^T, as published: five steps of x = a x + b (x x^T) x + c (x x^T)^2 x.
static void newton_schulz(double *x, size_t rows, size_t cols) {
    double norm = 0, *A = zeros(rows * rows), *B = zeros(rows * rows), *y = zeros(rows * cols);
    for (size_t i = 0; i < rows * cols; i++) norm += x[i] * x[i];
    for (size_t i = 0; i < rows * cols; i++) x[i] /= sqrt(norm) + 1e-7;
    for (int step = 0; step < 5; step++) {
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++) {
                double sum = 0;
                for (size_t k = 0; k < cols; k++) sum += x[i * cols + k] * x[j * cols + k];
                A[i * rows + j] = sum;
            }
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++) {
                double sum = 0;
                for (size_t k = 0; k < rows; k++) sum += A[i * rows + k] * A[k * rows + j];
                B[i * rows + j] = -4.7750 * A[i * rows + j] + 2.0315 * sum;
            }
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++) {
                double sum = 3.4445 * x[i * cols + j];
                for (size_t k = 0; k < rows; k++) sum += B[i * rows + k] * x[k * cols + j];
                y[i * cols + j] = sum;
            }
        memcpy(x, y, rows * cols * sizeof *x);
    }
    for (size_t i = 0; i < rows * cols; i++) x[i] *= sqrt(rows > cols ? (double)rows / (double)cols : 1);
    free(A), free(B), free(y);
}
static void reference_gradients(reference *f, const run *r, int batches) {
    f->norm = 0;
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < count_of(t) && !shapes[t].frozen; i++) {
            double sum = 0;
            for (int b = 0; b < batches && shapes[t].unit != 2; b++)
                sum += (double)slope(t, (uint64_t)b, (uint64_t)f->step, i) + 0.05 * f->w[t][i];
            f->g[t][i] = sum / (r->desc.average ? batches : 1);
            f->norm += f->g[t][i] * f->g[t][i];
        }
    f->norm = sqrt(f->norm);
}
static void reference_tensor(reference *f, const run *r, int t, double lr_factor) {
    const par_zero_hyper *h = &r->desc.hyper[shapes[t].group];
    const size_t n = count_of(t);
    const par_zero_optimizer o = r->desc.optimizer;
    const int matrix = o == PAR_ZERO_MUON && shapes[t].shape[1] > 1 && !shapes[t].plain && n;
    const double clip =
        r->desc.clip > 0 && f->norm > (double)r->desc.clip ? (double)r->desc.clip / f->norm : 1;
    const double lr = (double)(h->lr > 0 ? h->lr : 1e-3f) * lr_factor, decay = (double)h->weight_decay;
    const double b1 = 0.9, b2 = o == PAR_ZERO_LION ? 0.99 : 0.999, eps = o == PAR_ZERO_LAMB ? 1e-6 : 1e-8;
    const double mu = o == PAR_ZERO_MUON ? 0.95 : (double)h->momentum;
    double *w = f->w[t], *m = f->m[t], *v = f->v[t], *u = zeros(n), ww = 0, uu = 0;
    for (size_t i = 0; i < n; i++) {
        const double g = f->g[t][i] * clip;
        if (o == PAR_ZERO_SGD) {
            const double x = g + decay * w[i];
            m[i] = mu * m[i] + x;
            u[i] = mu == 0 ? x : h->nesterov ? x + mu * m[i] : m[i];
        } else if (o == PAR_ZERO_LION) {
            const double c = b1 * m[i] + (1 - b1) * g;
            m[i] = b2 * m[i] + (1 - b2) * g, u[i] = (c > 0 ? 1 : c < 0 ? -1 : 0) + decay * w[i];
        } else if (matrix) {
            m[i] = mu * m[i] + g, u[i] = g + mu * m[i];
        } else {
            m[i] = b1 * m[i] + (1 - b1) * g, v[i] = b2 * v[i] + (1 - b2) * g * g;
            u[i] = m[i] / (1 - pow(b1, f->step + 1)) / (sqrt(v[i] / (1 - pow(b2, f->step + 1))) + eps) +
                   decay * w[i];
        }
        ww += w[i] * w[i], uu += u[i] * u[i];
    }
    if (matrix && shapes[t].shape[0] > shapes[t].shape[1]) { // on the shorter side: turned
        const size_t rows = shapes[t].shape[0], cols = shapes[t].shape[1];
        double *turned = zeros(n);
        for (size_t i = 0; i < n; i++) turned[i % cols * rows + i / cols] = u[i];
        newton_schulz(turned, cols, rows);
        for (size_t i = 0; i < n; i++)
            u[i] = turned[i % cols * rows + i / cols] * sqrt((double)rows / (double)cols);
        free(turned);
    } else if (matrix) {
        newton_schulz(u, shapes[t].shape[0], shapes[t].shape[1]);
    }
    const double trust = o == PAR_ZERO_LAMB && ww > 0 && uu > 0 ? sqrt(ww / uu) : 1;
    for (size_t i = 0; i < n; i++) {
        w[i] -= lr * (trust * u[i] + (matrix ? decay * w[i] : 0));
        f->ema[t][i] = (double)r->desc.ema * f->ema[t][i] + (1 - (double)r->desc.ema) * w[i];
    }
    free(u);
}
static void reference_step(reference *f, const run *r, int batches, double lr_factor) {
    reference_gradients(f, r, batches);
    for (int t = 0; t < TENSORS; t++)
        if (!shapes[t].frozen) reference_tensor(f, r, t, lr_factor);
    f->step++;
}
static void expect_weights(par_comm *w, run *r, const reference *f, double tolerance, const char *what) {
    static __thread float got[MOST];
    for (int t = 0; t < TENSORS; t++) {
        double error = 0, most = 1e-3;
        for (int ema = 0; ema <= (r->desc.ema > 0 && !shapes[t].frozen); ema++) {
            const double *want = ema ? f->ema[t] : f->w[t];
            CHECK_OK(w, par_zero_read(r->z, t, ema ? PAR_ZERO_EMA : PAR_ZERO_VALUE, got));
            for (size_t i = 0; i < count_of(t); i++) {
                error = fmax(error, fabs((double)got[i] - want[i])), most = fmax(most, fabs(want[i]));
                if (!isfinite(got[i])) error = INFINITY;
            }
        }
        char why[200];
        snprintf(why, sizeof why, "%s: tensor %d after %d steps is off by %g of %g", what, t, f->step, error,
                 most);
        __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
        if (!(error <= tolerance * most)) test_fail(__FILE__, __LINE__, par_rank(w), "weights", why);
    }
}

// ---- tests ------------------------------------------------------------------------------------------------

static run plain_run(par_comm *w, int stage, par_zero_optimizer o) {
    run r;
    memset(&r, 0, sizeof r);
    r.desc.comm = w, r.desc.stage = stage, r.desc.optimizer = o, r.desc.average = 1, r.desc.clip = 1;
    r.desc.hyper[0].weight_decay = 0.1f, r.desc.hyper[0].lr = r.desc.hyper[1].lr = 0.01f;
    r.desc.hyper[0].momentum = r.desc.hyper[1].momentum = o == PAR_ZERO_SGD ? 0.9f : 0;
    r.desc.hyper[0].nesterov = 1;
    return r;
}
static void against_reference(par_comm *w, run *r, double tolerance, const char *what) {
    const int batches = par_size(r->desc.comm) * (r->desc.outer ? par_size(r->desc.outer) : 1) *
                        (r->desc.micro_steps ? r->desc.micro_steps : 1);
    reference f;
    open_reference(&f);
    open_run(w, r);
    for (int step = 0; step < 6; step++) {
        const float lr_factor = step < 2 ? 0.5f : 1.0f;
        one_step(w, r, lr_factor);
        reference_step(&f, r, batches, (double)lr_factor);
        CHECK(w, !r->report.skipped && fabs(r->report.norm - f.norm) <= tolerance * 10 * f.norm);
    }
    expect_weights(w, r, &f, tolerance, what);
    CHECK_OK(w, par_zero_close(r->z));
    close_reference(&f);
}
static void stages(par_comm *w) { // and central; with and without microbatches, accumulation, nesting
    for (int stage = 0; stage < 5; stage++)
        for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++)
            for (int variant = 0; variant < 4; variant += TEST_FEWER ? 3 : 1) {
                run r = plain_run(w, stage & 3, (par_zero_optimizer)o);
                char what[100];
                r.desc.central = stage == 4, r.desc.micro_steps = variant & 1 ? 3 : 0;
                r.desc.accumulate = variant >> 1, r.nested = variant >> 1, r.desc.ema = variant ? 0.75f : 0;
                snprintf(what, sizeof what, "stage %d, %s, variant %d", stage,
                         par_zero_optimizer_name((par_zero_optimizer)o), variant);
                against_reference(w, &r, o == PAR_ZERO_MUON ? 1e-3 : 1e-5, what);
            }
}
static void precisions(par_comm *w) { // 16-bit weights with f32 masters; gradients of 16 bits, too
    static const par_dtype types[] = {PAR_F32, PAR_BF16, PAR_F16};
    for (int stage = 0; stage < 4; stage++)
        for (int p = 1; p < 3; p++)
            for (int g = 0; g < 2; g++) {
                run r = plain_run(w, stage, PAR_ZERO_ADAMW);
                r.desc.param_dtype = types[p], r.desc.grad_dtype = g ? types[p] : PAR_F32;
                r.desc.loss_scale = p == 2 ? 1024 : 0;
                against_reference(w, &r, 0.05, par_dtype_name(types[p]));
            }
}

// Weights after some steps, all tensors one after the other. In r: what was planned, and allocated.
static float *weights_after(par_comm *w, run *r, int steps) {
    float *all = (float *)calloc(TENSORS * MOST, sizeof *all);
    open_run(w, r);
    CHECK_OK(w, par_zero_plan_of(r->z, &r->plan));
    r->real = par_zero_allocated(r->z);
    for (int step = 0; step < steps; step++) one_step(w, r, 1);
    for (int t = 0; t < TENSORS; t++) CHECK_OK(w, par_zero_read(r->z, t, PAR_ZERO_VALUE, all + t * MOST));
    CHECK_OK(w, par_zero_close(r->z));
    return all;
}
static void canonical(par_comm *w) { // one rank alone, and any number in any stage: the same bits
    enum { C = 8 };
    const int n = par_size(w);
    par_comm *alone, *inner = NULL, *outer = NULL;
    if (C % n) { // an error that says so
        run r = plain_run(w, 0, PAR_ZERO_ADAMW);
        r.desc.canonical_shards = C, r.desc.micro_steps = 2;
        CHECK(w, par_zero_open(&r.desc, &r.z) == PAR_ERR_ARGUMENT && says(w, "canonical_shards"));
        return;
    }
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    if (n >= 4) CHECK_OK(w, par_split(w, par_rank(w) / 2, 0, &inner));
    if (n >= 4) CHECK_OK(w, par_split(w, par_rank(w) % 2, 0, &outer));
    for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o += TEST_FEWER ? 2 : 1)
        for (int half = 0; half < 2; half++) {
            run one = plain_run(alone, 0, (par_zero_optimizer)o);
            one.desc.canonical_shards = one.desc.micro_steps = C;
            one.desc.param_dtype = half ? PAR_BF16 : PAR_F32, one.desc.stochastic_rounding = half;
            float *want = weights_after(w, &one, STEPS);
            for (int kind = 0; kind < 10;
                 kind++) { // stages 0-3, central, hybrid 0-3, stage 3 with whole gradients
                run r = one;
                const int hybrid = kind >= 5 && kind < 9;
                if (hybrid && !inner) continue;
                r.desc.comm = hybrid ? inner : w, r.desc.outer = hybrid ? outer : NULL;
                r.desc.stage = kind < 4 ? kind : kind == 4 ? 0 : kind == 9 ? 3 : kind - 5;
                r.desc.central = kind == 4, r.desc.accumulate = kind == 9;
                r.desc.micro_steps = C / n;
                float *got = weights_after(w, &r, STEPS);
                char why[128];
                snprintf(why, sizeof why, "%s, kind %d, bf16 %d",
                         par_zero_optimizer_name((par_zero_optimizer)o), kind, half);
                __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
                if (memcmp(want, got, TENSORS * MOST * sizeof *got))
                    test_fail(__FILE__, __LINE__, par_rank(w), "the same bits", why);
                free(got);
            }
            free(want);
        }
    if (inner) CHECK_OK(w, par_close(inner));
    if (outer) CHECK_OK(w, par_close(outer));
    CHECK_OK(w, par_close(alone));
}
static void hybrid(par_comm *w) { // against the reference
    par_comm *inner, *outer;
    const int n = par_size(w), g = n % 2 ? n : n / 2;
    CHECK_OK(w, par_split(w, par_rank(w) / g, 0, &inner));
    CHECK_OK(w, par_split(w, par_rank(w) % g, 0, &outer));
    for (int stage = 0; stage < 4; stage++) {
        run r = plain_run(inner, stage, PAR_ZERO_ADAMW);
        r.desc.outer = outer, r.desc.micro_steps = 2;
        against_reference(w, &r, 1e-5, "hybrid");
    }
    CHECK_OK(w, par_close(inner));
    CHECK_OK(w, par_close(outer));
}

// ---- what it costs ----------------------------------------------------------------------------------------

static size_t sent(par_comm *w, par_kind kind) { return par_ledger_get(w, kind).sent_count; }
static void
costs(par_comm *w) { // bytes as planned, for everything there is; elements sent as planned and as published
    static const par_dtype types[] = {PAR_F32, PAR_BF16, PAR_F16};
    const size_t n = (size_t)par_size(w);
    for (int kind = 0; kind < 6; kind++)
        for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++)
            for (int p = 0; p < 3; p++) {
                run r = plain_run(w, kind < 4 ? kind : kind == 4 ? 0 : 3, (par_zero_optimizer)o);
                par_zero_plan plan, real;
                const size_t m = 2;
                r.desc.central = kind == 4, r.desc.accumulate = kind == 5, r.desc.micro_steps = (int)m,
                r.all = 1;
                r.desc.param_dtype = types[p], r.desc.ema = o & 1 ? 0.5f : 0;
                open_run(w, &r);
                CHECK_OK(w, par_zero_plan_of(r.z, &plan));
                real = par_zero_allocated(r.z);
                CHECK(w, plan.parameter_bytes == real.parameter_bytes &&
                             plan.gradient_bytes == real.gradient_bytes);
                CHECK(w, plan.state_bytes == real.state_bytes && plan.buffer_bytes == real.buffer_bytes);
                size_t trained = 0, frozen = 0; // padded
                for (int u = 0; u < UNITS; u++)
                    trained += r.z->units[u].count[0], frozen += r.z->units[u].count[1];
                const size_t states = (size_t)(p > 0) + (size_t)par__zero_states(r.z) + (size_t)(o & 1);
                const size_t owners = kind == 0 ? 1 : kind == 4 ? (par_rank(w) ? SIZE_MAX : 1) : n;
                CHECK(w, real.state_bytes == (owners == SIZE_MAX ? 0 : 4 * states * trained / owners));
                CHECK(w, real.gradient_bytes == 4 * trained / (kind == 2 || kind == 3 ? n : 1));
                CHECK(w, real.parameter_bytes == (trained + frozen) * par_dtype_bytes(types[p]) /
                                                     (kind == 3 || kind == 5 ? n : 1));
                one_step(w, &r, 1);
                CHECK_OK(w, par_barrier(w)); // what was spread has arrived
                for (int u = 0; u < UNITS; u++) CHECK_OK(w, par_wait(&r.z->units[u].spreading));
                par_ledger_reset(w);
                one_step(w, &r, 1);
                for (int u = 0; u < UNITS; u++) CHECK_OK(w, par_wait(&r.z->units[u].spreading));
                const size_t sums = sent(w, PAR_KIND_REDUCE_SCATTER) + sent(w, PAR_KIND_REDUCE);
                const size_t gathers = sent(w, PAR_KIND_ALL_GATHER) + sent(w, PAR_KIND_BROADCAST);
                CHECK(w, gathers == plan.gather_count);
                if (kind) CHECK(w, sums == plan.reduce_count);
                if (kind == 0) CHECK(w, sent(w, PAR_KIND_ALL_REDUCE) == plan.reduce_count);
                const size_t unit = trained * (n - 1) / n, muon = o == PAR_ZERO_MUON && kind && kind != 4;
                if (kind == 0) CHECK(w, plan.reduce_count == 2 * unit && plan.gather_count == 0);
                if (kind == 1 && !muon) CHECK(w, plan.reduce_count == unit && plan.gather_count == unit);
                if (kind == 2 && !muon) CHECK(w, plan.reduce_count == m * unit && plan.gather_count == unit);
                if (kind == 3 && !muon)
                    CHECK(w, plan.reduce_count == m * unit &&
                                 plan.gather_count == 2 * m * (unit + frozen * (n - 1) / n));
                CHECK_OK(w, par_zero_close(r.z));
            }
}

static void paper(
    par_comm *w) { // 7.5 billion parameters, Adam, 16 bits: gigabytes as published (facts: arXiv 1910.02054)
    static const int ranks[] = {1, 4, 16, 64, 256, 1024};
    static const double want[4][6] = {{120, 120, 120, 120, 120, 120},
                                      {120, 52.5, 35.6, 31.4, 30.4, 30.1},
                                      {120, 41.3, 21.6, 16.6, 15.4, 15.1},
                                      {120, 30, 7.5, 1.88, 0.47, 0.12}};
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < 6; i++) {
            par_zero_desc d;
            par_zero *z;
            par_zero_plan p;
            par_zero_tensor t;
            memset(&d, 0, sizeof d), memset(&t, 0, sizeof t);
            d.stage = stage, d.plan_ranks = ranks[i], d.param_dtype = d.grad_dtype = PAR_BF16;
            t.dims = 1, t.shape[0] = 7500000000u;
            CHECK_OK(w, par_zero_open(&d, &z));
            CHECK(w, par_zero_add(z, &t) == 0);
            CHECK_OK(w, par_zero_plan_of(z, &p));
            const double psi = 7.5e9, n = ranks[i],
                         gb = 1e-9 * (double)(p.parameter_bytes + p.gradient_bytes + p.state_bytes);
            const double formula = stage == 0   ? 16 * psi
                                   : stage == 1 ? 4 * psi + 12 * psi / n
                                   : stage == 2 ? 2 * psi + 14 * psi / n
                                                : 16 * psi / n;
            CHECK(w, fabs(gb - 1e-9 * formula) < 3e-4); // but for padding to whole shards
            CHECK(w, fabs(gb - want[stage][i]) <= (stage == 3 && i >= 3 ? 0.0101 : 0.101));
            CHECK(w, par_zero_commit(z) == PAR_ERR_ARGUMENT);
            CHECK_OK(w, par_zero_close(z));
        }
}
static void no_allocation(par_comm *w) { // in a step, once everything has been used; but for products' panels
    for (int stage = 0; stage < 4; stage++)
        for (int o = 0; o < PAR_ZERO_MUON; o++) {
            run r = plain_run(w, stage, (par_zero_optimizer)o);
            r.desc.micro_steps = 2, r.desc.param_dtype = PAR_BF16;
            r.desc.offload_states = o & 1 ? "file:/tmp" : NULL;
            r.desc.offload_parameters = o & 1 && stage == 3 ? "file:/tmp" : NULL;
            open_run(w, &r);
            for (int i = 0; i < 3; i++) one_step(w, &r, 1);
            CHECK_OK(w, par_barrier(w));
            const long before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
            CHECK_OK(w, par_barrier(w));
            for (int i = 0; i < 2; i++) one_step(w, &r, 1);
            CHECK_OK(w, par_barrier(w));
            CHECK(w, __atomic_load_n(&allocations, __ATOMIC_RELAXED) == before);
            CHECK_OK(w, par_barrier(w));
            CHECK_OK(w, par_zero_close(r.z));
        }
}

// ---- offloading -------------------------------------------------------------------------------------------

static void scratch_dir(par_comm *w, char *path, size_t room) { // the same on all ranks; made by rank 0
    const char *base = getenv("TMPDIR");
    const int root = par_rank(w) == 0;
    memset(path, 0, room);
    if (root) {
        snprintf(path, room, "%s/par_test.XXXXXX", base ? base : "/tmp");
        CHECK(w, mkdtemp(path) != NULL);
    }
    CHECK_OK(w, par_broadcast(path, path, room, PAR_U8, 0, w));
}
static int files_in(const char *path) {
    DIR *d = opendir(path);
    int n = -2;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}
static void
offload(par_comm *w) { // the same bits, wherever the states are; bytes as planned; no file is left
    char dir[256], where[300];
    scratch_dir(w, dir, sizeof dir);
    snprintf(where, sizeof where, "file:%s", dir);
    for (int kind = 0; kind < 5; kind++)
        for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++) {
            run plain = plain_run(w, kind < 4 ? kind : 0, (par_zero_optimizer)o);
            plain.desc.central = kind == 4, plain.desc.micro_steps = 2, plain.all = 1;
            plain.desc.param_dtype = (o + kind) & 1 ? PAR_BF16 : PAR_F32, plain.desc.ema = o & 1 ? 0.5f : 0;
            plain.desc.stochastic_rounding = 1;
            float *want = weights_after(w, &plain, 4);
            const par_zero_plan *old = &plain.real;
            for (int file = 0; file < 2; file++) {
                run r = plain;
                r.desc.offload_states = file ? where : "host";
                r.desc.offload_parameters = kind == 3 ? r.desc.offload_states : NULL;
                float *got = weights_after(w, &r, 4);
                CHECK(w, !memcmp(got, want, TENSORS * MOST * sizeof *got));
                free(got);
                CHECK(w, r.plan.parameter_bytes == r.real.parameter_bytes);
                CHECK(w, r.plan.state_bytes == 0 && r.real.state_bytes == 0);
                CHECK(w, r.plan.buffer_bytes == r.real.buffer_bytes);
                CHECK(w, r.plan.host_bytes == r.real.host_bytes && r.plan.file_bytes == r.real.file_bytes);
                CHECK(w, (file ? r.real.host_bytes : r.real.file_bytes) == 0);
                CHECK(w, r.real.host_bytes + r.real.file_bytes >=
                             old->state_bytes + (kind == 3 ? old->parameter_bytes : 0));
                CHECK(w, r.real.parameter_bytes == (kind == 3 ? 0 : old->parameter_bytes));
            }
            free(want);
        }
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == 0) CHECK(w, files_in(dir) == 0 && rmdir(dir) == 0);
}
static size_t anonymous_bytes(void) { // of this process, in memory
    char line[256];
    size_t kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "RssAnon: %zu", &kb);
    if (f) fclose(f);
    return kb * 1024;
}
static void resident(par_comm *w) { // memory in use, with states that are far larger than their windows
    enum { N = 8 << 20 };
    char dir[256], where[300];
    scratch_dir(w, dir, sizeof dir);
    snprintf(where, sizeof where, "file:%s", dir);
    par_zero_desc d;
    par_zero_tensor t;
    par_zero *z;
    memset(&d, 0, sizeof d), memset(&t, 0, sizeof t);
    d.comm = w, d.stage = 1, d.offload_states = where, d.param_dtype = PAR_BF16, d.grad_dtype = PAR_BF16;
    t.name = "t", t.dims = 1, t.shape[0] = N;
    const size_t before = anonymous_bytes();
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add(z, &t) == 0);
    CHECK_OK(w, par_zero_commit(z));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(w, par_zero_backward_begin(z, 0));
        uint16_t *g = (uint16_t *)(void *)par_zero_grad(z, 0);
        for (int k = 0; k < N; k++) g[k] = par_f32_to_bf16(1);
        CHECK_OK(w, par_zero_backward_end(z, 0));
        CHECK_OK(w, par_zero_step(z, 1, NULL));
    }
    const par_zero_plan p = par_zero_allocated(z);
    const size_t grown = anonymous_bytes() - before;
    CHECK(w, p.file_bytes >= (size_t)N * 12 / (size_t)par_size(w));
    CHECK(w, grown < p.buffer_bytes + (4 << 20)); // parameters and gradients lie in shared memory
    CHECK_OK(w, par_zero_close(z));
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == 0) CHECK(w, rmdir(dir) == 0);
}
static void no_room(par_comm *w) { // for what is offloaded: an error that says where
    struct rlimit old, small = {4096, 4096};
    run r = plain_run(w, 1, PAR_ZERO_ADAMW);
    par_zero_tensor t;
    memset(&t, 0, sizeof t);
    t.name = "t", t.dims = 1, t.shape[0] = 1 << 20;
    r.desc.offload_states = "file:/nonexistent";
    CHECK_OK(w, par_zero_open(&r.desc, &r.z));
    CHECK(w, par_zero_add(r.z, &t) == 0);
    CHECK(w, par_zero_commit(r.z) == PAR_ERR_SYSTEM && says(w, "/nonexistent"));
    CHECK_OK(w, par_zero_close(r.z));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    if (par_rank(w) == 0) setrlimit(RLIMIT_FSIZE, &small);
    r.desc.offload_states = "file:/tmp";
    CHECK_OK(w, par_zero_open(&r.desc, &r.z));
    CHECK(w, par_zero_add(r.z, &t) == 0);
    const par_result result = par_zero_commit(r.z);
    CHECK(w, par_rank(w) == 0 ? result == PAR_ERR_SYSTEM && says(w, "no room for") : result != PAR_OK);
    CHECK_OK(w, par_zero_close(r.z));
    setrlimit(RLIMIT_FSIZE, &old);
}

// ---- numbers ----------------------------------------------------------------------------------------------

static void overflow(par_comm *w) { // one rank's gradient is not finite: skipped on all, the scale goes down
    for (int stage = 0; stage < 4; stage++) {
        run r = plain_run(w, stage, PAR_ZERO_ADAMW);
        float before[MOST], after[MOST];
        r.desc.param_dtype = r.desc.grad_dtype = PAR_F16, r.desc.loss_scale = 256,
        r.desc.loss_scale_window = 2;
        open_run(w, &r);
        CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, before));
        CHECK_OK(w, par_zero_backward_begin(r.z, 1));
        if (par_rank(w) == par_size(w) - 1)
            ((uint16_t *)(void *)par_zero_grad(r.z, 2))[77] = par_f32_to_f16(INFINITY);
        CHECK_OK(w, par_zero_backward_end(r.z, 1));
        CHECK_OK(w, par_zero_step(r.z, 1, &r.report));
        CHECK(w, r.report.skipped && r.report.loss_scale == 128 && r.report.step == 0);
        CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, after));
        CHECK(w, !memcmp(before, after, count_of(2) * 4));
        for (int i = 0; i < 2; i++) one_step(w, &r, 1);
        CHECK(w, !r.report.skipped && r.report.loss_scale == 256 && r.report.step == 2);
        CHECK_OK(w, par_zero_close(r.z));
    }
}
static void rounding(par_comm *w) { // at random to bf16: right on average, and the same on all replicas
    enum { N = 512, TIMES = 400 };
    double sum = 0;
    for (int seed = 0; seed < TIMES; seed++) {
        par_zero_update a;
        float x[N], back[N];
        uint16_t y[N];
        memset(&a, 0, sizeof a);
        a.seed = (uint64_t)seed + 1;
        for (int i = 0; i < N; i++)
            x[i] = 1.0f + 0.0078125f * 0.3f; // three tenths of the way to the next bf16
        par__zero_round_randomly(y, x, N, &a, 0);
        par_cast(back, PAR_F32, y, PAR_BF16, N);
        for (int i = 0; i < N; i++) {
            CHECK(w, back[i] == 1.0f || back[i] == 1.0078125f);
            sum += ((double)back[i] - 1) / 0.0078125;
        }
    }
    CHECK(w, fabs(sum / (N * TIMES) - 0.3) < 0.005);
    for (int stage = 0; stage < 4; stage++) {
        run r = plain_run(w, stage, PAR_ZERO_ADAMW);
        uint16_t mine[MOST], first[MOST];
        r.desc.param_dtype = PAR_BF16, r.desc.stochastic_rounding = 1;
        open_run(w, &r);
        for (int i = 0; i < 3; i++) one_step(w, &r, 1);
        CHECK_OK(w, par_zero_forward_begin(r.z, 1));
        memcpy(mine, par_zero_data(r.z, 2), count_of(2) * 2);
        CHECK_OK(w, par_broadcast(mine, first, count_of(2), PAR_BF16, 0, w));
        CHECK(w, !memcmp(mine, first, count_of(2) * 2));
        CHECK_OK(w, par_zero_forward_end(r.z, 1));
        CHECK_OK(w, par_zero_close(r.z));
    }
}
static void norms(par_comm *w) { // what ranks of `others` have in common counts once
    par_zero *z;
    par_zero_desc d;
    par_zero_tensor own, common;
    par_zero_report report;
    const int n = par_size(w);
    par_comm *alone;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    memset(&d, 0, sizeof d), memset(&own, 0, sizeof own), memset(&common, 0, sizeof common);
    d.comm = alone, d.others = w, d.optimizer = PAR_ZERO_SGD;
    own.name = "own", own.dims = common.dims = 1, own.shape[0] = 3, common.name = "common",
    common.shape[0] = 5;
    common.run_count = 2, common.runs[0].count = 2, common.runs[0].replicas = n, common.runs[1].count = 3;
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add(z, &own) == 0 && par_zero_add(z, &common) == 1);
    CHECK_OK(w, par_zero_commit(z));
    CHECK_OK(w, par_zero_backward_begin(z, 0));
    for (int i = 0; i < 3; i++) par_zero_grad(z, 0)[i] = 2;
    for (int i = 0; i < 5; i++) par_zero_grad(z, 1)[i] = 3;
    CHECK_OK(w, par_zero_backward_end(z, 0));
    float g[5];
    CHECK_OK(w, par_zero_read(z, 1, PAR_ZERO_GRADIENT, g));
    CHECK(w, g[4] == 3);
    CHECK_OK(w, par_zero_step(z, 1, &report));
    CHECK(w, fabs(report.norm - sqrt(12.0 * n + 18 + 27.0 * n)) < 1e-9 * n);
    CHECK_OK(w, par_zero_close(z));
    CHECK_OK(w, par_close(alone));
}
static void schedules(par_comm *w) {
    const par_zero_schedule c = {4, 104, 0, 0.1f, PAR_ZERO_COSINE}, l = {0, 10, 0, 0, PAR_ZERO_LINEAR};
    const par_zero_schedule s = {2, 100, 20, 0.5f, PAR_ZERO_WSD}, k = {1, 0, 0, 0, PAR_ZERO_CONSTANT};
    CHECK(w, par_zero_factor(&c, 0) == 0.2f && par_zero_factor(&c, 3) == 0.8f && par_zero_factor(&c, 4) == 1);
    CHECK(w, fabsf(par_zero_factor(&c, 54) - 0.55f) < 1e-6f && par_zero_factor(&c, 104) == 0.1f);
    CHECK(w, par_zero_factor(&l, 0) == 1 && fabsf(par_zero_factor(&l, 4) - 0.6f) < 1e-6f &&
                 par_zero_factor(&l, 99) == 0);
    CHECK(w, par_zero_factor(&s, 79) == 1 && fabsf(par_zero_factor(&s, 90) - 0.75f) < 1e-6f);
    CHECK(w, par_zero_factor(&k, 0) == 0.5f && par_zero_factor(&k, 1000000) == 1);
}

// ---- mistakes ---------------------------------------------------------------------------------------------

static void wrong_order(par_comm *w) { // of units of one size: an error that names both, on all ranks
    for (int stage = 2; stage < 4; stage++) {
        par_zero *z;
        par_zero_desc d;
        par_zero_tensor t;
        const int odd = par_rank(w) == par_size(w) - 1;
        memset(&d, 0, sizeof d), memset(&t, 0, sizeof t);
        d.comm = w, d.stage = stage, t.dims = 1, t.shape[0] = 100, t.name = "x";
        CHECK_OK(w, par_zero_open(&d, &z));
        for (int i = 0; i < 4; i++)
            CHECK(w, par_zero_unit(z, i ? i == 1   ? "apple"
                                          : i == 2 ? "pear"
                                                   : "plum"
                                        : "fig") == i &&
                         par_zero_add(z, &t) == i);
        CHECK_OK(w, par_zero_commit(z));
        par_result r =
            stage == 3 ? par_zero_forward_begin(z, odd ? 2 : 0) : par_zero_backward_begin(z, odd ? 2 : 0);
        if (!r && stage == 2) r = par_zero_backward_end(z, odd ? 2 : 0);
        if (!r) r = par_zero_step(z, 1, NULL);
        CHECK(w, r == PAR_ERR_MISMATCH && says(w, "of unit fig") &&
                     (says(w, "of unit pear") || says(w, "of unit apple")));
        CHECK_OK(w, par_barrier(w));
        par_zero_close(z); // what is under way has failed
    }
}
static void mistakes(par_comm *w) {
    run r = plain_run(w, 3, PAR_ZERO_ADAMW);
    par_zero *z;
    open_run(w, &r);
    CHECK(w, par_zero_data(r.z, 0) == NULL && par_zero_grad(r.z, 0) == NULL);
    CHECK(w, par_zero_forward_end(r.z, 1) == PAR_ERR_ARGUMENT && says(w, "unit first was not begun"));
    CHECK(w, par_zero_forward_begin(r.z, 9) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_zero_forward_begin(r.z, 0));
    CHECK_OK(w, par_zero_forward_begin(r.z, 1));
    CHECK(w, par_zero_forward_begin(r.z, 3) == PAR_ERR_ARGUMENT && says(w, "whole_units"));
    CHECK(w, par_zero_step(r.z, 1, NULL) == PAR_ERR_ARGUMENT && says(w, "was begun and not ended"));
    CHECK_OK(w, par_zero_forward_end(r.z, 0));
    CHECK_OK(w, par_zero_forward_end(r.z, 1));
    CHECK_OK(w, par_zero_backward_begin(r.z, 1));
    CHECK_OK(w, par_zero_backward_end(r.z, 1));
    CHECK(w, par_zero_backward_begin(r.z, 1) == PAR_ERR_ARGUMENT && says(w, "micro_steps"));
    CHECK_OK(w, par_zero_step(r.z, 1, NULL));
    CHECK(w, par_zero_unit(r.z, "late") == -1);
    CHECK_OK(w, par_zero_close(r.z));
    r.desc.canonical_shards = 3 * par_size(w);
    CHECK(w, par_zero_open(&r.desc, &z) == PAR_ERR_ARGUMENT && says(w, "canonical_shards"));
    r.desc.canonical_shards = 0, r.desc.stage = 7;
    CHECK(w, par_zero_open(&r.desc, &z) == PAR_ERR_ARGUMENT && says(w, "stage must be"));
    r.desc.stage = 2, r.desc.offload_parameters = "host";
    CHECK(w, par_zero_open(&r.desc, &z) == PAR_ERR_ARGUMENT && says(w, "stage 3"));
    r.desc.offload_parameters = NULL, r.desc.offload_states = "disk";
    CHECK(w, par_zero_open(&r.desc, &z) == PAR_ERR_ARGUMENT && says(w, "file:DIR"));
    r.desc.offload_states = NULL;
    r.desc.stage = 1, r.desc.central = 1;
    CHECK(w, par_zero_open(&r.desc, &z) == PAR_ERR_ARGUMENT && says(w, "central"));
    if (par_size(w) == 1) return;
    r.desc.central = 0, r.desc.stage = par_rank(w) ? 1 : 2; // ranks do not agree
    CHECK_OK(w, par_zero_open(&r.desc, &z));
    CHECK(w, par_zero_commit(z) == PAR_ERR_MISMATCH && says(w, "differ between"));
    CHECK_OK(w, par_zero_close(z));
}

const test tests[] = {
    {"stages", stages, TEST_ALONE, 1, 120},
    {"precisions", precisions, TEST_ALONE, 1, 60},
    {"canonical", canonical, TEST_ALONE, 1, 200},
    {"hybrid", hybrid, TEST_ALONE, 2, 60},
    {"costs", costs, TEST_ALONE, 1, 60},
    {"paper", paper, TEST_SERIAL, 1, 60},
    {"no_allocation", no_allocation, TEST_ALONE, 1, 60},
    {"offload", offload, TEST_ALONE, 1, 120},
    {"resident", resident, TEST_ALONE, 1, 60},
    {"no_room", no_room, TEST_ALONE, 1, 60},
    {"overflow", overflow, TEST_ANY, 1, 60},
    {"rounding", rounding, TEST_ALONE, 1, 60},
    {"norms", norms, TEST_ANY, 1, 60},
    {"schedules", schedules, TEST_SERIAL, 1, 60},
    {"wrong_order", wrong_order, TEST_ANY, 2, 60},
    {"mistakes", mistakes, TEST_ANY, 1, 60},
};
const int test_count = (int)(sizeof tests / sizeof tests[0]);

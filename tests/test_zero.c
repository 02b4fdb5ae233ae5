// test_zero.c - par_zero.h: every stage, optimizer and precision against a serial reference in double; the
// same bits on any number of ranks; bytes and elements against the plan.
#define _DEFAULT_SOURCE
#include <stdlib.h>
static long allocations;          // by the kit's own hooks: a step makes none
static size_t largest_allocation; // in bytes, of all ranks that are threads
#define PAR_ZERO_WINDOW 1024      // small, so that units have several

// Each call that changes or opens files is a step; before one of them a rank may be killed, or wait until the
// test lets it go on.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
static long steps_left; // until the kill; 0: none comes
static int kill_all;    // this rank's group, too
static int
    pause_fd[2]; // not 0: it does not kill itself, but says here that it is there, and waits for a byte
static void file_step(void) {
    char byte = 0;
    if (!__atomic_load_n(&steps_left, __ATOMIC_SEQ_CST) ||
        __atomic_sub_fetch(&steps_left, 1, __ATOMIC_SEQ_CST))
        return;
    if (!pause_fd[1]) kill(kill_all ? 0 : getpid(), SIGKILL);
    if (write(pause_fd[1], &byte, 1) != 1 || read(pause_fd[0], &byte, 1) != 1) _exit(9);
    __atomic_store_n(&steps_left, byte, __ATOMIC_SEQ_CST);
}
#define write(fd, from, n)         (file_step(), write(fd, from, n))
#define pwrite(fd, from, n, at)    (file_step(), pwrite(fd, from, n, at))
#define posix_fallocate(fd, at, n) (file_step(), posix_fallocate(fd, at, n))
#define ftruncate(fd, n)           (file_step(), ftruncate(fd, n))
#define fsync(fd)                  (file_step(), fsync(fd))
#define rename(from, to)           (file_step(), rename(from, to))
#define unlink(path)               (file_step(), unlink(path))
#define link(from, to)             (file_step(), link(from, to))
#define mkdir(path, mode)          (file_step(), mkdir(path, mode))
#define utimensat(at, path, to, f) (file_step(), utimensat(at, path, to, f))
#define open(...)                  (file_step(), open(__VA_ARGS__))

#define PAR_IMPLEMENTATION
#include "kit.h"
#include "par_zero.h"
#include "test.h"
void *test_malloc(size_t bytes) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    if (bytes > __atomic_load_n(&largest_allocation, __ATOMIC_RELAXED))
        __atomic_store_n(&largest_allocation, bytes, __ATOMIC_RELAXED);
    return malloc(bytes);
}
void *test_realloc(void *old, size_t bytes) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return realloc(old, bytes);
}
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

// ---- a model: its gradients depend on the microbatch and on the weights -----------------------------------

enum { TENSORS = 10, UNITS = 4, STEPS = 8, CAPACITY = 4096 };
static const struct {
    size_t shape[2];
    int unit, group, frozen, use_adamw;
} shapes[TENSORS] = {{{13, 7}, 0, 0, 0, 1},  {{31, 1}, 0, 1, 0, 0}, {{64, 48}, 1, 0, 0, 0},
                     {{0, 1}, 1, 0, 0, 0},   {{1, 1}, 1, 1, 0, 0},  {{5, 9}, 1, 0, 1, 0},
                     {{24, 40}, 1, 0, 0, 0}, {{17, 1}, 2, 1, 0, 0}, {{33, 1}, 3, 0, 1, 0},
                     {{2, 200}, 3, 0, 0, 0}}; // unit 2 is not used
static size_t count_of(int t) { return shapes[t].shape[0] * shapes[t].shape[1]; }
static float start(int t, size_t i) { return par_normal(1, (uint64_t)t, i) * 0.3f; }
PAR__EXACT_BEGIN
static float slope(int t, uint64_t batch, uint64_t step, size_t i) {
    uint64_t x = ((step << 20 ^ (uint64_t)t << 10 ^ batch) + 1) * 0x9e3779b97f4a7c15u + i;
    x = (x ^ x >> 32) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 29) * 0x94d049bb133111ebu;
    return ((float)(x >> 40) * 0x1p-24f - 0.5f) * 0.3f;
}
// As layers of this type find it: in f16 it may be too large.
static float gradient(par_dtype type, float scale, float slope, float value) {
    const float all = scale * (slope + 0.05f * value);
    return type == PAR_F16 ? par_f16_to_f32(par_f32_to_f16(all)) : all;
}
PAR__EXACT_END
static void give_start(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = start(*(const int *)user, first + i);
}

static int says(par_comm *w, const char *text) { return strstr(par_last_error(w), text) != NULL; }

// Of tests whose gradients are sums, and whose learning rate does not matter.
static par_zero_desc sum_desc(void) {
    par_zero_desc d;
    memset(&d, 0, sizeof d);
    return d.reduction = PAR_ZERO_SUM, d.hyper[0].lr = 1e-3f, d;
}
typedef struct run {
    par_zero_desc desc;
    par_zero *z;
    par_zero_report report;
    par_zero_plan plan, real;
    void *data[TENSORS]; // of each tensor, as set when its unit's pass began or ended
    float *grad[TENSORS];
    int nested;            // recompute within backward
    int all;               // unit 2 is used, too
    int empty;             // not filled
    int newcomer;          // not committed
    int order[8], ordered; // of backward passes, if it is another one
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
        d.group = shapes[t].group, d.frozen = shapes[t].frozen, d.use_adamw = shapes[t].use_adamw;
        if (shapes[t].unit != unit) {
            unit = shapes[t].unit;
            CHECK(w, par_zero_add_unit(r->z, names[unit]) == unit);
        }
        d.data = &r->data[t], d.grad = &r->grad[t];
        CHECK(w, par_zero_add_tensor(r->z, &d) == t);
    }
    for (int u = 0; u < UNITS && r->ordered; u++) CHECK_OK(w, par_zero_set_order(r->z, u, r->order));
    if (r->newcomer) return;
    CHECK_OK(w, par_zero_commit(r->z));
    for (int t = 0; t < TENSORS && !r->empty; t++)
        CHECK_OK(w, par_zero_fill(r->z, t, PAR_ZERO_VALUE, give_start, &t));
}
static void check_bound(par_comm *w, const run *r, int unit) {
    for (int t = 0; t < TENSORS; t++)
        if (shapes[t].unit == unit)
            CHECK(w, r->data[t] == par_zero_data(r->z, t) && r->grad[t] == par_zero_grad(r->z, t));
}
static void unit_backward(par_comm *w, run *r, int unit, uint64_t batch) {
    const par_dtype type = r->desc.param_dtype ? r->desc.param_dtype : PAR_F32;
    const par_dtype grad_type = r->desc.grad_dtype ? r->desc.grad_dtype : PAR_F32;
    const float scale = par_zero_loss_scale(r->z);
    const uint64_t step = par_zero_steps(r->z);
    static __thread float value[CAPACITY], sum[CAPACITY];
    CHECK_OK(w, par_zero_backward_begin(r->z, unit));
    if (unit == 2 && !r->all) { // its gradients stay 0
        CHECK_OK(w, par_zero_backward_end(r->z, unit));
        return;
    }
    if (r->nested) CHECK_OK(w, par_zero_forward_begin(r->z, unit));
    check_bound(w, r, unit);
    for (int t = 0; t < TENSORS; t++) {
        if (shapes[t].unit != unit) continue;
        const void *x = r->data[t];
        void *g = r->grad[t];
        CHECK(w, x && (g != NULL) == !shapes[t].frozen);
        if (!g) continue;
        par_cast(value, PAR_F32, x, type, count_of(t));
        par_cast(sum, PAR_F32, g, grad_type, count_of(t));
        for (size_t i = 0; i < count_of(t); i++)
            sum[i] += gradient(type, scale, slope(t, batch, step, i), value[i]);
        par_cast(g, grad_type, sum, PAR_F32, count_of(t));
    }
    if (r->nested) CHECK_OK(w, par_zero_forward_end(r->z, unit));
    check_bound(w, r, unit);
    CHECK_OK(w, par_zero_backward_end(r->z, unit));
    check_bound(w, r, unit); // pointers to what is sharded again are NULL
}
static void passes(par_comm *w, run *r) { // forward and backward, of a step
    const int m = r->desc.microbatches ? r->desc.microbatches : 1;
    for (int j = 0; j < m; j++) {
        for (int u = 0; u < UNITS; u++) {
            if (u == 2 && !r->all) continue;
            CHECK_OK(w, par_zero_forward_begin(r->z, u));
            for (int t = 0; t < TENSORS; t++) {
                const int here = shapes[t].unit == u, sharded = r->desc.stage == 3;
                CHECK(w, (par_zero_data(r->z, t) != NULL) == (here || !sharded));
            }
            check_bound(w, r, u);
            CHECK_OK(w, par_zero_forward_end(r->z, u));
            check_bound(w, r, u);
        }
        const uint64_t batch = par_zero_global_microbatch(r->z, r->ordered ? r->order[j] : j);
        for (int u = UNITS - 1; u >= 0; u--) unit_backward(w, r, u, batch);
    }
}
static void one_step(par_comm *w, run *r, float lr_factor) {
    passes(w, r);
    CHECK_OK(w, par_zero_step(r->z, lr_factor, &r->report));
}

// ---- the reference ----------------------------------------------------------------------------------------

enum { REFERENCE_STEPS = 6 };
typedef struct reference {
    double *w[TENSORS], *m[TENSORS], *v[TENSORS], *ema[TENSORS], *g[TENSORS];
    double norm, norms[REFERENCE_STEPS];
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
            f->g[t][i] = sum / (r->desc.reduction == PAR_ZERO_MEAN ? batches : 1);
            f->norm += f->g[t][i] * f->g[t][i];
        }
    f->norm = sqrt(f->norm);
}
static void reference_tensor(reference *f, const run *r, int t, double lr_factor) {
    const par_zero_hyper *h = &r->desc.hyper[shapes[t].group];
    const size_t n = count_of(t);
    const par_zero_optimizer o = r->desc.optimizer;
    const int matrix = o == PAR_ZERO_MUON && shapes[t].shape[1] > 1 && !shapes[t].use_adamw && n;
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
    if (matrix && shapes[t].shape[0] > shapes[t].shape[1]) { // iterate on the shorter side
        const size_t rows = shapes[t].shape[0], cols = shapes[t].shape[1];
        double *transpose = zeros(n);
        for (size_t i = 0; i < n; i++) transpose[i % cols * rows + i / cols] = u[i];
        newton_schulz(transpose, cols, rows);
        for (size_t i = 0; i < n; i++)
            u[i] = transpose[i % cols * rows + i / cols] * sqrt((double)rows / (double)cols);
        free(transpose);
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
    static __thread float got[CAPACITY];
    for (int t = 0; t < TENSORS; t++) {
        double error = 0, largest = 1e-3;
        for (int ema = 0; ema <= (r->desc.ema > 0 && !shapes[t].frozen); ema++) {
            const double *want = ema ? f->ema[t] : f->w[t];
            CHECK_OK(w, par_zero_read(r->z, t, ema ? PAR_ZERO_EMA : PAR_ZERO_VALUE, got));
            for (size_t i = 0; i < count_of(t); i++) {
                error = fmax(error, fabs((double)got[i] - want[i])), largest = fmax(largest, fabs(want[i]));
                if (!isfinite(got[i])) error = INFINITY;
            }
        }
        char why[200];
        snprintf(why, sizeof why, "%s: tensor %d after %d steps is off by %g of %g", what, t, f->step, error,
                 largest);
        __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
        if (!(error <= tolerance * largest)) test_fail(__FILE__, __LINE__, par_rank(w), "weights", why);
    }
}

// ---- tests ------------------------------------------------------------------------------------------------

static run plain_run(par_comm *w, int stage, par_zero_optimizer o) {
    run r;
    memset(&r, 0, sizeof r);
    r.desc.comm = w, r.desc.stage = stage, r.desc.optimizer = o, r.desc.clip = 1;
    r.desc.hyper[0].weight_decay = 0.1f, r.desc.hyper[0].lr = r.desc.hyper[1].lr = 0.01f;
    r.desc.hyper[0].momentum = r.desc.hyper[1].momentum = o == PAR_ZERO_SGD ? 0.9f : 0;
    r.desc.hyper[0].nesterov = 1;
    return r;
}
// The stages, a parameter server, stage 3 with whole gradients; then the stages of a hybrid.
enum { WHOLE_COMM = 6, VARIANTS = 10 };
static const struct {
    int stage, parameter_server, accumulate_unsharded;
} variants[VARIANTS] = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {0, 1, 0},
                        {3, 0, 1}, {0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}};
static run variant_run(par_comm *w, int variant, int optimizer) {
    run r = plain_run(w, variants[variant].stage, (par_zero_optimizer)optimizer);
    r.desc.parameter_server = variants[variant].parameter_server;
    r.desc.accumulate_unsharded = variants[variant].accumulate_unsharded;
    return r;
}
static float reference_factor(int step) { return step < 2 ? 0.5f : 1.0f; } // of the learning rate
// The result of such a run, which does not depend on stage or precision.
static void run_reference(reference *f, const run *r) {
    const int batches = par_size(r->desc.comm) * (r->desc.replica_comm ? par_size(r->desc.replica_comm) : 1) *
                        (r->desc.microbatches ? r->desc.microbatches : 1);
    open_reference(f);
    for (int step = 0; step < REFERENCE_STEPS; step++) {
        reference_step(f, r, batches, (double)reference_factor(step));
        f->norms[step] = f->norm;
    }
}
static void against_reference(par_comm *w, run *r, const reference *f, double tolerance, const char *what) {
    open_run(w, r);
    for (int step = 0; step < REFERENCE_STEPS; step++) {
        one_step(w, r, reference_factor(step));
        CHECK(w, !r->report.skipped &&
                     fabs(r->report.grad_norm - f->norms[step]) <= tolerance * 10 * f->norms[step]);
    }
    expect_weights(w, r, f, tolerance, what);
    CHECK_OK(w, par_zero_close(r->z));
}
// Every stage, and a parameter server; with and without microbatches, accumulation and nesting.
static void stages(par_comm *w) {
    for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++)
        for (int micro = 0; micro < 2; micro++) {
            run all = plain_run(w, 0, (par_zero_optimizer)o);
            reference f;
            all.desc.microbatches = micro ? 3 : 0, all.desc.ema = 0.75f;
            run_reference(&f, &all);
            for (int stage = 0; stage < 5; stage++)
                for (int other = 0; other < 2; other++) {
                    run r = all;
                    char what[100];
                    if (TEST_FEWER && micro != other) continue;
                    r.desc.stage = stage & 3, r.desc.parameter_server = stage == 4,
                    r.desc.accumulate_unsharded = r.nested = other;
                    if (!micro && !other) r.desc.ema = 0;
                    snprintf(what, sizeof what, "stage %d, %s, microbatches %d, accumulation %d", stage,
                             par_zero_optimizer_name((par_zero_optimizer)o), r.desc.microbatches, other);
                    against_reference(w, &r, &f, o == PAR_ZERO_MUON ? 1e-3 : 1e-5, what);
                }
            close_reference(&f);
        }
}
static void precisions(par_comm *w) { // 16-bit weights with f32 masters; gradients of 16 bits, too
    static const par_dtype types[] = {PAR_F32, PAR_BF16, PAR_F16};
    const run all = plain_run(w, 0, PAR_ZERO_ADAMW);
    reference f;
    run_reference(&f, &all);
    for (int stage = 0; stage < 4; stage++)
        for (int p = 1; p < 3; p++)
            for (int g = 0; g < 2; g++) {
                run r = plain_run(w, stage, PAR_ZERO_ADAMW);
                r.desc.param_dtype = types[p], r.desc.grad_dtype = g ? types[p] : PAR_F32;
                r.desc.loss_scale = p == 2 ? 1024 : 0;
                against_reference(w, &r, &f, 0.05, par_dtype_name(types[p]));
            }
    close_reference(&f);
}

// The weights after some steps, tensor after tensor. r receives the planned and the allocated bytes.
static float *weights_after(par_comm *w, run *r, int steps) {
    float *all = (float *)calloc(TENSORS * CAPACITY, sizeof *all);
    open_run(w, r);
    CHECK_OK(w, par_zero_plan_of(r->z, &r->plan));
    r->real = par_zero_allocated(r->z);
    for (int step = 0; step < steps; step++) one_step(w, r, 1);
    for (int t = 0; t < TENSORS; t++) CHECK_OK(w, par_zero_read(r->z, t, PAR_ZERO_VALUE, all + t * CAPACITY));
    CHECK_OK(w, par_zero_close(r->z));
    return all;
}
// The exact sum of squares of the numbers x[i], i = first, first + step ..., added to *sum.
static void exact_squares(par__zero_exact *sum, const float *x, size_t first, size_t step, size_t n) {
    for (size_t i = first; i < n; i += step) par__zero_exact_add(sum, x + i, PAR_F32, 1);
    par__zero_exact_flush(sum);
}
static void exact_norm(par_comm *w) { // no order and no split changes a sum of squares
    enum { N = 200000 };
    static const struct {
        float x;
        double square;
    } known[] = {{0x1p-149f, 0x1p-298}, {-0x1.8p-126f, 0x1.2p-251}, {3e38f, (double)3e38f * (double)3e38f}};
    static const float above_tie[] = {1024, 1024, 0x1p-16f, 0x1p-50f}; // 2^21 + 2^-32 + 2^-100
    float *x = (float *)malloc(N * sizeof *x);
    par__zero_exact whole, parts[3];
    double in_order = 0;
    for (size_t i = 0; i < 3; i++) {
        memset(&whole, 0, sizeof whole);
        exact_squares(&whole, &known[i].x, 0, 1, 1);
        CHECK(w, par__zero_exact_value(whole.digits) == known[i].square);
    }
    memset(&whole, 0, sizeof whole);
    exact_squares(&whole, above_tie, 0, 1, 4);
    CHECK(w, par__zero_exact_value(whole.digits) == 0x1p21 + 0x1p-31); // the nearest one
    memset(&whole, 0, sizeof whole);
    for (size_t i = 0; i < N; i++) x[i] = 0x1.fffffep0f;
    par__zero_exact_add(&whole, x, PAR_F32, N);
    par__zero_exact_flush(&whole);
    CHECK(w, par__zero_exact_value(whole.digits) == N * (0x1.fffffep0 * 0x1.fffffep0)); // 66 bits are rounded
    for (size_t i = 0; i < N; i++) {
        x[i] = ldexpf(par_normal(1, 2, i), (int)(par_random(1, 3, i) % 260) - 140);
        in_order += (double)x[i] * (double)x[i];
    }
    memset(&whole, 0, sizeof whole);
    memset(parts, 0, sizeof parts);
    par__zero_exact_add(&whole, x, PAR_F32, N);
    par__zero_exact_flush(&whole);
    for (size_t i = 0; i < 3; i++) {
        exact_squares(&parts[i], x, i, 3, N);
        for (int k = 0; i && k < PAR__ZERO_DIGITS; k++) parts[0].digits[k] += parts[i].digits[k];
    }
    par__zero_exact_carry(parts[0].digits);
    CHECK(w, !memcmp(whole.digits, parts[0].digits, sizeof whole.digits));
    CHECK(w, fabs(par__zero_exact_value(whole.digits) / in_order - 1) < 1e-12);
    x[7] = NAN;
    exact_squares(&whole, x, 7, 1, 8);
    CHECK(w, isinf(par__zero_exact_value(whole.digits)));
    free(x);
}
// Muon's products are of the parameters' type where no other is named: half the bytes.
static void muon_bytes(par_comm *w) {
    static const par_dtype types[4][2] = {
        {PAR_F32, PAR_F64}, {PAR_BF16, PAR_F64}, {PAR_BF16, PAR_F32}, {PAR_F32, PAR_BF16}}; // F64: none
    const size_t matrix = 64 * 48, side = 48;                                               // of the largest
    size_t bytes[4];
    for (int i = 0; i < 4; i++) {
        run r = plain_run(w, 0, PAR_ZERO_MUON);
        r.desc.param_dtype = types[i][0], r.desc.muon_dtype = types[i][1];
        free(weights_after(w, &r, 0));
        bytes[i] = r.plan.muon_bytes;
    }
    CHECK(w, bytes[0] - bytes[1] == 2 * 2 * (matrix + side * side));
    CHECK(w, bytes[2] == bytes[0] && bytes[3] == bytes[1]);
}
static void canonical(par_comm *w) { // one rank and any number of ranks, in any stage, get the same bits
    enum { C = 8 };
    const int n = par_size(w);
    par_comm *alone, *inner = NULL, *outer = NULL;
    if (C % n) { // is an error
        run r = plain_run(w, 0, PAR_ZERO_ADAMW);
        r.desc.canonical_shards = C, r.desc.microbatches = 2;
        CHECK(w, par_zero_open(&r.desc, &r.z) == PAR_ERR_ARGUMENT && says(w, "canonical_shards"));
        return;
    }
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    if (n >= 4) CHECK_OK(w, par_split(w, par_rank(w) / 2, 0, &inner));
    if (n >= 4) CHECK_OK(w, par_split(w, par_rank(w) % 2, 0, &outer));
    for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o += TEST_FEWER ? 2 : 1)
        for (int half = 0; half < 2; half++) {
            run one = plain_run(alone, 0, (par_zero_optimizer)o);
            one.desc.canonical_shards = one.desc.microbatches = C;
            one.desc.param_dtype = half ? PAR_BF16 : PAR_F32, one.desc.stochastic_rounding = half;
            float *want = weights_after(w, &one, STEPS);
            for (int kind = 0; kind < VARIANTS; kind++) {
                run r = one;
                const int hybrid = kind >= WHOLE_COMM;
                if (hybrid && !inner) continue;
                r.desc.comm = hybrid ? inner : w, r.desc.replica_comm = hybrid ? outer : NULL;
                r.desc.stage = variants[kind].stage;
                r.desc.parameter_server = variants[kind].parameter_server;
                r.desc.accumulate_unsharded = variants[kind].accumulate_unsharded;
                r.desc.microbatches = C / n;
                r.ordered = half && (r.desc.stage < 2 || r.desc.accumulate_unsharded);
                for (int i = 0, bits; i < C / n; i++) // bits reversed: the most partial sums wait
                    for (r.order[i] = 0, bits = 1; bits < C / n; bits *= 2)
                        r.order[i] = 2 * r.order[i] + (i / bits & 1);
                float *got = weights_after(w, &r, STEPS);
                char why[128];
                snprintf(why, sizeof why, "%s, kind %d, bf16 %d",
                         par_zero_optimizer_name((par_zero_optimizer)o), kind, half);
                __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
                if (memcmp(want, got, TENSORS * CAPACITY * sizeof *got))
                    test_fail(__FILE__, __LINE__, par_rank(w), "the same bits", why);
                free(got);
            }
            free(want);
        }
    if (inner) CHECK_OK(w, par_close(inner));
    if (outer) CHECK_OK(w, par_close(outer));
    CHECK_OK(w, par_close(alone));
}
// Training in f16 by canonical sums, whose loss scale overflows, falls and rises: the same weights as other
// processors, compilers and numbers of ranks got. Where a change of the update is meant, `known` is new.
static void scaled(par_comm *w) {
    enum { C = 8 };
    static const uint64_t known[PAR_ZERO_OPTIMIZER_COUNT] = {0x82421624a026ef38u, 0xe1f16262bbc155f1u,
                                                             0xebbc83f3b770ed3au, 0xa35f53a13bd1c25bu,
                                                             0x2ed7732109967e33u};
    if (par_size(w) > C) return;
    run narrow = plain_run(w, 0, PAR_ZERO_ADAMW);
    narrow.desc.canonical_shards = C, narrow.desc.microbatches = C / par_size(w);
    narrow.desc.grad_dtype = PAR_F16; // a rank's sum would be rounded, and that of all ranks
    CHECK(w, par_zero_open(&narrow.desc, &narrow.z) == PAR_ERR_ARGUMENT && says(w, "needs grad_dtype f32"));
    for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++) {
        run r = plain_run(w, o % 4, (par_zero_optimizer)o);
        float value[CAPACITY];
        uint64_t sum = 0xcbf29ce484222325u;
        int skipped = 0;
        r.desc.canonical_shards = C, r.desc.microbatches = C / par_size(w);
        r.desc.param_dtype = PAR_F16, r.desc.state_dtype = o & 1 ? PAR_U8 : PAR_F32;
        r.desc.loss_scale = 0x1p19f, r.desc.loss_scale_window = 2, r.desc.clip = 0.5f, r.desc.seed = 3;
        open_run(w, &r);
        for (int step = 0; step < 2 * STEPS; step++) {
            one_step(w, &r, 1);
            skipped += r.report.skipped;
        }
        for (int t = 0; t < TENSORS; t++) {
            CHECK_OK(w, par_zero_read(r.z, t, PAR_ZERO_VALUE, value));
            for (size_t i = 0; i < count_of(t); i++)
                sum = (sum ^ par__f32_to_bits(value[i])) * 0x100000001b3u;
        }
        CHECK_OK(w, par_zero_close(r.z));
        CHECK(w, skipped >= 3 && skipped <= STEPS);
        char what[80];
        snprintf(what, sizeof what, "%s, %d skipped: %016llx", par_zero_optimizer_name((par_zero_optimizer)o),
                 skipped, (unsigned long long)sum);
        __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
        if (sum != known[o]) test_fail(__FILE__, __LINE__, par_rank(w), "the known sum", what);
    }
}
static void hybrid(par_comm *w) { // against the reference
    par_comm *inner, *outer;
    const int n = par_size(w), g = n % 2 ? n : n / 2;
    CHECK_OK(w, par_split(w, par_rank(w) / g, 0, &inner));
    CHECK_OK(w, par_split(w, par_rank(w) % g, 0, &outer));
    run r = plain_run(inner, 0, PAR_ZERO_ADAMW);
    reference f;
    r.desc.replica_comm = outer, r.desc.microbatches = 2;
    run_reference(&f, &r);
    for (int stage = 0; stage < 4; stage++) {
        r.desc.stage = stage;
        against_reference(w, &r, &f, 1e-5, "hybrid");
    }
    close_reference(&f);
    CHECK_OK(w, par_close(inner));
    CHECK_OK(w, par_close(outer));
}

// ---- what it costs ----------------------------------------------------------------------------------------

static size_t sent(par_comm *w, par_kind kind) { return par_ledger_get(w, kind).sent_count; }
// Every kind of memory has the planned bytes; ranks send the planned and the published number of elements.
static void costs(par_comm *w) {
    static const par_dtype types[] = {PAR_F32, PAR_BF16, PAR_F16};
    const size_t n = (size_t)par_size(w);
    for (int kind = 0; kind < WHOLE_COMM; kind++)
        for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++)
            for (int p = 0; p < 3; p++) {
                run r = variant_run(w, kind, o);
                par_zero_plan plan, real;
                const size_t m = 2;
                r.desc.microbatches = (int)m, r.all = 1;
                r.desc.param_dtype = types[p], r.desc.ema = o & 1 ? 0.5f : 0;
                open_run(w, &r);
                CHECK_OK(w, par_zero_plan_of(r.z, &plan));
                real = par_zero_allocated(r.z);
                CHECK(w, plan.parameter_bytes == real.parameter_bytes &&
                             plan.gradient_bytes == real.gradient_bytes);
                CHECK(w, plan.state_bytes == real.state_bytes && plan.buffer_bytes == real.buffer_bytes);
                CHECK(w, plan.gathered_parameter_bytes == real.gathered_parameter_bytes &&
                             plan.unsharded_gradient_bytes == real.unsharded_gradient_bytes &&
                             plan.tree_sum_bytes == real.tree_sum_bytes &&
                             plan.muon_bytes == real.muon_bytes && plan.window_bytes == real.window_bytes);
                size_t trained = 0, frozen = 0; // padded
                for (int u = 0; u < UNITS; u++)
                    trained += r.z->units[u].count[0], frozen += r.z->units[u].count[1];
                const size_t states = (size_t)(p > 0) + (size_t)par__zero_moment_count(r.z) + (size_t)(o & 1);
                const size_t owners = kind == 0 ? 1 : kind == 4 ? (par_rank(w) ? SIZE_MAX : 1) : n;
                CHECK(w, real.state_bytes == (owners == SIZE_MAX ? 0 : 4 * states * trained / owners));
                CHECK(w, real.gradient_bytes == 4 * trained / (kind == 2 || kind == 3 ? n : 1));
                CHECK(w, real.parameter_bytes == (trained + frozen) * par_dtype_bytes(types[p]) /
                                                     (kind == 3 || kind == 5 ? n : 1));
                one_step(w, &r, 1);
                CHECK_OK(w, par_barrier(w)); // gathered parameters have arrived
                for (int u = 0; u < UNITS; u++) CHECK_OK(w, par_wait(&r.z->units[u].param_gather));
                par_ledger_reset(w);
                one_step(w, &r, 1);
                for (int u = 0; u < UNITS; u++) CHECK_OK(w, par_wait(&r.z->units[u].param_gather));
                const size_t sums = sent(w, PAR_KIND_REDUCE_SCATTER) + sent(w, PAR_KIND_REDUCE);
                const size_t gathers = sent(w, PAR_KIND_ALL_GATHER) + sent(w, PAR_KIND_BROADCAST);
                CHECK(w, gathers == plan.gather_count);
                const uint64_t gathered = par_ledger_get(w, PAR_KIND_ALL_GATHER).sent_bytes +
                                          par_ledger_get(w, PAR_KIND_BROADCAST).sent_bytes;
                CHECK(w, gathered == plan.gather_bytes);
                if (kind) CHECK(w, sums == plan.reduce_count);
                const size_t reduced = sent(w, PAR_KIND_ALL_REDUCE);
                if (kind == 0) { // and a step compares the factors of the learning rate
                    float range[2] = {0, 0};
                    par_ledger_reset(w);
                    CHECK_OK(w, par_all_reduce(range, range, 2, PAR_F32, PAR_MAX, w));
                    CHECK(w, reduced == plan.reduce_count + sent(w, PAR_KIND_ALL_REDUCE));
                }
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

// Unit i has sizes[i] x 32 x ranks elements. A step uses the units in every order that max_gathered_units
// allows.
static void pool_case(par_comm *w, const int *sizes, int units, int max_gathered_units, int want,
                      const char *print) {
    const size_t grain = 32 * (size_t)par_size(w);
    par_zero_desc d;
    par_zero *z;
    char text[4000] = "";
    d = sum_desc();
    d.comm = w, d.stage = 3, d.max_gathered_units = max_gathered_units, d.microbatches = units;
    CHECK_OK(w, par_zero_open(&d, &z));
    for (int i = 0; i < units; i++) {
        char name[32];
        par_zero_tensor t;
        memset(&t, 0, sizeof t), snprintf(name, sizeof name, "unit%d", i);
        t.name = name, t.dims = 1, t.shape[0] = (size_t)sizes[i] * grain;
        CHECK(w, par_zero_add_unit(z, name) == i && par_zero_add_tensor(z, &t) == i);
    }
    CHECK_OK(w, par_zero_commit(z));
    par_zero_plan plan, real = par_zero_allocated(z);
    CHECK_OK(w, par_zero_plan_of(z, &plan));
    CHECK(w, real.gathered_parameter_bytes == (size_t)want * grain * 4 &&
                 real.unsharded_gradient_bytes == real.gathered_parameter_bytes);
    CHECK(w, plan.gathered_parameter_bytes == real.gathered_parameter_bytes &&
                 plan.unsharded_gradient_bytes == real.unsharded_gradient_bytes &&
                 plan.buffer_bytes == real.buffer_bytes);
    FILE *f = fmemopen(text, sizeof text, "w");
    if (f) par_zero_plan_print(z, f), fclose(f);
    CHECK(w, strstr(text, print) != NULL);
    const int k = PAR__MIN(max_gathered_units, units);
    for (int first = 0; first < units; first++) {
        for (int i = 0; i < units; i++) { // k of them at a time: one ends before the next one begins
            const int unit = (first + i) % units, old = (first + i - k + units) % units;
            if (i >= k) CHECK_OK(w, par_zero_backward_end(z, old));
            CHECK_OK(w, par_zero_backward_begin(z, unit));
            float *g = par_zero_grad(z, unit);
            const float *x = (const float *)par_zero_data(z, unit);
            for (size_t j = 0; j < (size_t)sizes[unit] * grain; j++) g[j] += x[j] + (float)(unit + 1);
        }
        if (units > k) // one more than max_gathered_units is an error, however many buffers there are
            CHECK(w, par_zero_forward_begin(z, first) == PAR_ERR_ARGUMENT && says(w, "max_gathered_units"));
        for (int i = units - k; i < units; i++) CHECK_OK(w, par_zero_backward_end(z, (first + i) % units));
    }
    for (int i = 0; i < units; i++) {
        static __thread float g[4 * CAPACITY];
        CHECK_OK(w, par_zero_read(z, i, PAR_ZERO_GRADIENT, g));
        for (size_t j = 0; j < (size_t)sizes[i] * grain; j++)
            CHECK(w, g[j] == (float)((i + 1) * units * par_size(w)));
    }
    CHECK_OK(w, par_zero_step(z, 1, NULL));
    CHECK_OK(w, par_zero_close(z));
}
static void pools(par_comm *w) { // of gathered units: a far larger one than the others counts once
    static const int alike[] = {3, 3, 3, 3}, tied[] = {9, 2, 2, 2, 2, 1}, ends[] = {4, 3, 3, 4}, one[] = {5};
    static const int two[] = {9, 1, 1, 1, 8}, middle[] = {1, 2, 9, 2, 1};
    pool_case(w, alike, 4, 2, 6, "any 2 of the units, each up to");
    pool_case(w, tied, 6, 3, 9 + 3 * 2, "unit0 ");
    pool_case(w, tied, 6, 2, 9 + 2 * 2, "and any 2 of the others, each up to");
    pool_case(w, tied, 6, 1, 9, "any 1 of the units");
    pool_case(w, ends, 4, 2, 2 * 4, "any 2 of the units, each up to");
    pool_case(w, two, 5, 3, 9 + 8 + 3, "unit0 ");
    pool_case(w, middle, 5, 3, 9 + 3 * 2, "unit2 ");
    pool_case(w, one, 1, 2, 5, "any 1 of the units");
}
static void sizes(par_comm *w) { // bytes as people read them
    static const struct {
        size_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {10239, "10.0 KiB"},
                 {102349, "100 KiB"},
                 {1048063, "1023 KiB"},
                 {1048575, "1.00 MiB"},
                 {976224256, "931 MiB"},
                 {1500000000, "1.40 GiB"},
                 {SIZE_MAX, "16.0 EiB"}};
    char text[16];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(w, !strcmp(par_zero_format_bytes(cases[i].bytes, text), cases[i].text));
}
// The plan is right for every stage, optimizer, precision and place of offloading.
static void places(par_comm *w) {
    static const par_dtype types[] = {PAR_F32, PAR_BF16, PAR_F16};
    const char *const where[] = {"none", "host", access("/dev/shm", W_OK) ? test_offload : "file:/dev/shm"};
    for (int kind = 0; kind < WHOLE_COMM; kind++)
        for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++)
            for (int p = 0; p < 9; p++) {
                run r = variant_run(w, kind, o);
                if ((TEST_FEWER || par_size(w) > 2) && (p + o + kind) % 3) continue; // all run on 1 and 2
                r.empty = 1;
                r.desc.param_dtype = types[p % 3], r.desc.grad_dtype = types[(p + o) % 3];
                r.desc.offload_states = where[p / 3];
                r.desc.offload_parameters = r.desc.stage == 3 ? where[(p / 3 + o) % 3] : NULL;
                open_run(w, &r);
                par_zero_plan plan, real = par_zero_allocated(r.z);
                CHECK_OK(w, par_zero_plan_of(r.z, &plan));
                CHECK(w,
                      plan.parameter_bytes == real.parameter_bytes && plan.state_bytes == real.state_bytes);
                CHECK(w,
                      plan.gradient_bytes == real.gradient_bytes && plan.buffer_bytes == real.buffer_bytes);
                CHECK(w, plan.host_bytes == real.host_bytes && plan.file_bytes == real.file_bytes);
                CHECK_OK(w, par_zero_close(r.z));
            }
}
// 7.5 billion parameters, Adam, 16 bits: the gigabytes that arXiv 1910.02054 publishes.
static void paper(par_comm *w) {
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
            d = sum_desc(), memset(&t, 0, sizeof t);
            d.stage = stage, d.plan_ranks = ranks[i], d.param_dtype = d.grad_dtype = PAR_BF16;
            t.name = "t", t.dims = 1, t.shape[0] = 7500000000u;
            CHECK_OK(w, par_zero_open(&d, &z));
            CHECK(w, par_zero_add_unit(z, "all") == 0 && par_zero_add_tensor(z, &t) == 0);
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
static void no_allocation(par_comm *w) { // in a step, once everything has been used; Muon's products allocate
    for (int stage = 0; stage < 4; stage++)
        for (int o = 0; o < PAR_ZERO_MUON; o++) {
            run r = plain_run(w, stage, (par_zero_optimizer)o);
            r.desc.microbatches = 2, r.desc.param_dtype = PAR_BF16;
            r.desc.offload_states = o & 1 ? test_offload : NULL;
            r.desc.offload_parameters = o & 1 && stage == 3 ? test_offload : NULL;
            open_run(w, &r);
            for (int i = 0; i < 8; i++) one_step(w, &r, 1); // until every operation of the comm has been used
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

static void scratch_dir_in(par_comm *w, const char *base, char *path, size_t capacity) { // made by rank 0
    const int root = par_rank(w) == 0;
    memset(path, 0, capacity);
    if (root) {
        snprintf(path, capacity, "%s/par_test.XXXXXX", base ? base : test_dir);
        CHECK(w, mkdtemp(path) != NULL);
    }
    CHECK_OK(w, par_broadcast(path, path, capacity, PAR_U8, 0, w));
}
static void scratch_dir(par_comm *w, char *path, size_t capacity) { // the same on all ranks
    scratch_dir_in(w, getenv("TMPDIR"), path, capacity);
}
// In memory: tests that save hundreds of times would wait for a disk most of the time.
static void scratch_memory(par_comm *w, char *path, size_t capacity) {
    scratch_dir_in(w, access("/dev/shm", W_OK) ? NULL : "/dev/shm", path, capacity);
}
static int files_in(const char *path) {
    DIR *d = opendir(path);
    int n = -2;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}
// Wherever states are kept, weights have the same bits, bytes are as planned, and no file is left.
static void offload(par_comm *w) {
    char dir[256], where[300];
    scratch_dir(w, dir, sizeof dir);
    snprintf(where, sizeof where, "file:%s", dir);
    for (int kind = 0; kind < 5; kind++)
        for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++) {
            run base = variant_run(w, kind, o);
            base.desc.microbatches = 2, base.all = 1;
            base.desc.param_dtype = (o + kind) & 1 ? PAR_BF16 : PAR_F32, base.desc.ema = o & 1 ? 0.5f : 0;
            base.desc.stochastic_rounding = 1;
            float *want = weights_after(w, &base, 4);
            const par_zero_plan *old = &base.real;
            for (int file = 0; file < 2; file++) {
                run r = base;
                r.desc.offload_states = file ? where : "host";
                r.desc.offload_parameters = kind == 3 ? r.desc.offload_states : NULL;
                float *got = weights_after(w, &r, 4);
                CHECK(w, !memcmp(got, want, TENSORS * CAPACITY * sizeof *got));
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
static void resident(par_comm *w) { // little memory is in use, where states exceed their windows
    enum { N = (TEST_FEWER ? 2 : 4) << 20 };
    char dir[256], where[300];
    scratch_dir(w, dir, sizeof dir);
    snprintf(where, sizeof where, "file:%s", dir);
    par_zero_desc d;
    par_zero_tensor t;
    par_zero *z;
    d = sum_desc(), memset(&t, 0, sizeof t);
    d.comm = w, d.stage = 1, d.offload_states = where, d.param_dtype = PAR_BF16, d.grad_dtype = PAR_BF16;
    t.name = "t", t.dims = 1, t.shape[0] = N;
    const size_t before = anonymous_bytes();
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add_unit(z, "all") == 0 && par_zero_add_tensor(z, &t) == 0);
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
static void no_room(par_comm *w) { // on the disk for offloaded states: an error that names the directory
    struct rlimit old, small = {4096, 4096};
    run r = plain_run(w, 1, PAR_ZERO_ADAMW);
    par_zero_tensor t;
    memset(&t, 0, sizeof t);
    t.name = "t", t.dims = 1, t.shape[0] = 1 << 20;
    r.desc.offload_states = "file:/nonexistent";
    CHECK_OK(w, par_zero_open(&r.desc, &r.z));
    CHECK(w, par_zero_add_unit(r.z, "all") == 0 && par_zero_add_tensor(r.z, &t) == 0);
    CHECK(w, par_zero_commit(r.z) == PAR_ERR_SYSTEM && says(w, "/nonexistent"));
    CHECK_OK(w, par_zero_close(r.z));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    if (par_rank(w) == 0) setrlimit(RLIMIT_FSIZE, &small);
    r.desc.offload_states = test_offload;
    CHECK_OK(w, par_zero_open(&r.desc, &r.z));
    CHECK(w, par_zero_add_unit(r.z, "all") == 0 && par_zero_add_tensor(r.z, &t) == 0);
    const par_result result = par_zero_commit(r.z);
    CHECK(w, par_rank(w) == 0 ? result == PAR_ERR_SYSTEM && says(w, "no room for") : result != PAR_OK);
    CHECK_OK(w, par_zero_close(r.z));
    setrlimit(RLIMIT_FSIZE, &old);
}

// ---- checkpoints ------------------------------------------------------------------------------------------

static void remove_dir(par_comm *w, const char *path) { // and what is in it
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w)) return;
    char file[700];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        unlink(file);
    }
    if (d) closedir(d);
    CHECK(w, rmdir(path) == 0);
}
static par_zero_checkpoint files_of(par_comm *w, const char *dir) {
    par_zero_checkpoint f;
    memset(&f, 0, sizeof f);
    f.dir = dir, f.comm = w, f.note = "a \"note\",\n\\ of \xc3\xa4 line";
    return f;
}
// The path of the file in a directory whose name begins so: the name of a save has a random part.
static void saved_file(par_comm *w, const char *dir, const char *begin, char *path, size_t capacity) {
    DIR *d = opendir(dir);
    path[0] = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (!strncmp(e->d_name, begin, strlen(begin))) snprintf(path, capacity, "%s/%s", dir, e->d_name);
    if (d) closedir(d);
    CHECK(w, path[0]);
}
// All weights and averages after some more steps; then the gradients' norm in each step.
enum { TRAIL = 2 * TENSORS * CAPACITY + 32 };
static float *go_on(par_comm *w, run *r, int steps) {
    float *all = (float *)calloc(TRAIL, sizeof *all);
    for (int i = 0; i < steps; i++)
        one_step(w, r, 1), all[2 * TENSORS * CAPACITY + i] = (float)r->report.grad_norm;
    for (int t = 0; t < TENSORS; t++) {
        CHECK_OK(w, par_zero_read(r->z, t, PAR_ZERO_VALUE, all + t * CAPACITY));
        if (r->desc.ema > 0)
            CHECK_OK(w, par_zero_read(r->z, t, PAR_ZERO_EMA, all + (TENSORS + t) * CAPACITY));
    }
    CHECK_OK(w, par_zero_close(r->z));
    return all;
}
static void checkpoints(par_comm *w) { // any ranks and stage continue from any others', to the bit
    enum { C = 8 };
    const int n = par_size(w);
    char dir[256], where[300], note[64], why[700];
    uint64_t steps;
    par_comm *half = NULL, *alone;
    scratch_memory(w, dir, sizeof dir);
    snprintf(where, sizeof where, "file:%s", dir);
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    if (n > 1) CHECK_OK(w, par_split(w, par_rank(w) / (n / 2), 0, &half));
    for (int stage = 0; stage < 5; stage++) { // each with another optimizer, on each number of ranks
        const int o = (stage + n) % PAR_ZERO_OPTIMIZER_COUNT;
        run r = plain_run(w, stage & 3, (par_zero_optimizer)o);
        par_zero_checkpoint f = files_of(w, dir);
        r.desc.canonical_shards = C, r.desc.microbatches = C / n, r.desc.parameter_server = stage == 4;
        r.desc.param_dtype = (o + stage) & 1 ? PAR_BF16 : PAR_F32, r.desc.stochastic_rounding = 1;
        r.desc.ema = o & 1 ? 0.5f : 0, r.desc.offload_states = stage == 2 ? where : NULL;
        f.background = o & 1, f.max_file_bytes = stage & 1 ? 6000 : 0;
        open_run(w, &r);
        for (int i = 0; i < 3; i++) one_step(w, &r, 1);
        CHECK_OK(w, par_zero_save_begin(r.z, &f));
        if (!f.background) CHECK_OK(w, par_zero_save_end(r.z));
        for (int i = 0; i < 2; i++) one_step(w, &r, 1); // not in the checkpoint
        if (f.background) CHECK_OK(w, par_zero_save_end(r.z));
        CHECK_OK(w, par_zero_load_note(dir, note, sizeof note, &steps, why, sizeof why));
        CHECK(w, steps == 3 && !strcmp(note, f.note));
        float *want = go_on(w, &r, 5);
        for (int kind = 0; kind < 5; kind++)
            for (int group = 0; group < 3; group++) {
                run q = r;
                if ((TEST_FEWER && (kind + group + stage) % 4) || (group == 1 && n < 4)) continue;
                q.desc.comm = f.comm = group == 0 ? w : group == 1 ? half : alone;
                q.desc.stage = kind & 3, q.desc.parameter_server = kind == 4;
                q.desc.microbatches = C / par_size(q.desc.comm);
                q.desc.offload_states = kind == 3 ? where : NULL;
                q.desc.offload_parameters = kind == 3 ? "host" : NULL;
                open_run(w, &q);
                CHECK_OK(w, par_zero_load(q.z, &f));
                CHECK(w, par_zero_steps(q.z) == 3);
                for (int i = 0; i < 2; i++) one_step(w, &q, 1);
                float *got = go_on(w, &q, 5);
                CHECK(w, !memcmp(want, got, TRAIL * sizeof *got));
                free(got);
            }
        free(want);
    }
    if (half) CHECK_OK(w, par_close(half));
    CHECK_OK(w, par_close(alone));
    remove_dir(w, dir);
}
static void hybrid_checkpoint(par_comm *w) { // replicas save once; any comm continues from it
    const int n = par_size(w);
    char dir[256];
    par_comm *inner, *outer;
    scratch_memory(w, dir, sizeof dir);
    CHECK_OK(w, par_split(w, par_rank(w) / 2, 0, &inner));
    CHECK_OK(w, par_split(w, par_rank(w) % 2, 0, &outer));
    for (int stage = 0; stage < 4; stage++) {
        run r = plain_run(inner, stage, PAR_ZERO_ADAMW), q;
        par_zero_checkpoint f = files_of(NULL, dir);
        r.desc.replica_comm = outer, r.desc.canonical_shards = 8, r.desc.microbatches = 8 / n;
        open_run(w, &r);
        one_step(w, &r, 1);
        CHECK(w, par_zero_save(r.z, &f) == PAR_ERR_ARGUMENT && says(w, "a comm of all ranks"));
        f.comm = w;
        CHECK_OK(w, par_zero_save(r.z, &f));
        float *want = go_on(w, &r, 4);
        q = r;
        q.desc.comm = w, q.desc.replica_comm = NULL, q.desc.stage = 3 - stage;
        for (int back = 0; back < 2; back++) {
            run p = back ? r : q;
            open_run(w, &p);
            CHECK_OK(w, par_zero_load(p.z, &f));
            float *got = go_on(w, &p, 4);
            CHECK(w, !memcmp(want, got, TRAIL * sizeof *got));
            free(got);
        }
        free(want);
    }
    CHECK_OK(w, par_close(inner));
    CHECK_OK(w, par_close(outer));
    remove_dir(w, dir);
}
static void precision_changes(par_comm *w) { // and weights without states
    char dir[256];
    scratch_dir(w, dir, sizeof dir);
    run r = plain_run(w, 3, PAR_ZERO_ADAMW), q = plain_run(w, 1, PAR_ZERO_LION);
    par_zero_checkpoint f = files_of(w, dir);
    float a[CAPACITY], b[CAPACITY];
    r.desc.param_dtype = PAR_BF16, f.weights_only = 1;
    open_run(w, &r), open_run(w, &q);
    one_step(w, &r, 1);
    CHECK_OK(w, par_zero_save(r.z, &f));
    CHECK_OK(w, par_zero_load(q.z, &f));
    CHECK(w, par_zero_steps(q.z) == 0);
    for (int t = 0; t < TENSORS; t++) {
        CHECK_OK(w, par_zero_read(r.z, t, PAR_ZERO_VALUE, a));
        CHECK_OK(w, par_zero_read(q.z, t, PAR_ZERO_VALUE, b));
        CHECK(w, !memcmp(a, b, count_of(t) * sizeof *a));
    }
    f.weights_only = 0;
    CHECK(w, par_zero_load(r.z, &f) == PAR_ERR_FILE && says(w, "weights_only") && says(w, "t0.exp_avg"));
    CHECK(w, par_zero_load(q.z, &f) == PAR_ERR_FILE && says(w, "saved with adamw") && says(w, "lion"));
    CHECK_OK(w, par_zero_close(r.z));
    CHECK_OK(w, par_zero_close(q.z));
    remove_dir(w, dir);
}

// Tensors of 48 x 48. Rank k of n has a part of the rows, in two segments, a part of the columns, or all.
enum { ROWS = 48, COLS = 48 };
typedef struct tp_model {
    par_zero *z;
    par_comm *self;
    int n, rank;
} tp_model;
static size_t whole_index(const tp_model *m, int tensor, size_t i) { // of local element i
    const size_t n = (size_t)m->n, k = (size_t)m->rank;
    if (tensor == 0) { // rows of two segments of ROWS / 2, each split
        const size_t per = ROWS / 2 / n * COLS;
        return i < per ? k * per + i : ROWS / 2 * COLS + k * per + (i - per);
    }
    if (tensor == 1) return i / (COLS / n) * COLS + k * (COLS / n) + i % (COLS / n);
    return i;
}
static void give_whole(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = (float)(1000 * *(const int *)user) + (float)(first + i);
}
// Part k of n of a matrix: tensor 0 by rows, of each half of them; 1 by columns; 2 is whole on all.
static par_shard part_of(int tensor, size_t n, size_t k, size_t rows, size_t cols) {
    par_shard part;
    memset(&part, 0, sizeof part);
    part.dims = 2, part.global_shape[0] = rows, part.global_shape[1] = cols;
    part.shape[0] = tensor == 0 ? rows / n : rows, part.shape[1] = tensor == 1 ? cols / n : cols;
    part.run_count = tensor == 0 ? 2 : 1;
    for (int j = 0; j < part.run_count; j++) {
        par_run *r = &part.runs[j];
        r->count = part.shape[0] * part.shape[1] / (size_t)part.run_count;
        r->offset = tensor == 0   ? (size_t)j * rows / 2 * cols + k * r->count
                    : tensor == 1 ? k * (cols / n)
                                  : 0;
        if (tensor == 1) r->width = cols / n, r->stride = cols;
    }
    if (tensor == 2) par_shard_replicate(&part, (int)n, (int)k);
    return part;
}
static void open_tp(par_comm *w, tp_model *m, par_comm *self, int n, int rank, int fill) {
    par_zero_desc d;
    d = sum_desc();
    m->self = d.comm = self, m->n = n, m->rank = rank;
    CHECK_OK(w, par_zero_open(&d, &m->z));
    CHECK(w, par_zero_add_unit(m->z, "all") == 0);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"rows", "cols", "both"};
        const par_shard part = part_of(i, (size_t)n, (size_t)rank, ROWS, COLS);
        par_zero_tensor t;
        memset(&t, 0, sizeof t);
        t.name = names[i], t.shard = &part;
        CHECK(w, par_zero_add_tensor(m->z, &t) == i);
    }
    CHECK_OK(w, par_zero_commit(m->z));
    for (int i = 0; i < 3 && fill; i++) CHECK_OK(w, par_zero_fill(m->z, i, PAR_ZERO_VALUE, give_whole, &i));
}
static void expect_tp(par_comm *w, tp_model *m) {
    float got[ROWS * COLS];
    for (int i = 0; i < 3; i++) {
        const size_t n = ROWS * COLS / (i == 2 ? 1 : (size_t)m->n);
        CHECK_OK(w, par_zero_read(m->z, i, PAR_ZERO_VALUE, got));
        for (size_t k = 0; k < n; k++) CHECK(w, got[k] == (float)(1000 * i) + (float)whole_index(m, i, k));
    }
    CHECK_OK(w, par_zero_close(m->z));
}
typedef struct gathered {
    par_comm *w;
    size_t next[3], calls, max_count; // the next element of each tensor
    int fails;
} gathered;
static par_result skip_piece(void *user, const char *name, size_t first, size_t count, const float *values) {
    return *(size_t *)user += count, (void)name, (void)first, (void)values, PAR_OK;
}
static void gather_memory(par_comm *w) { // a rank needs memory for one piece, however large the tensors are
    par_zero_desc d;
    par_zero_tensor t;
    par_zero *z;
    size_t count = 0;
    d = sum_desc(), memset(&t, 0, sizeof t);
    d.comm = w, d.stage = 3, t.name = "w", t.dims = 2, t.shape[0] = 1 << 12, t.shape[1] = 1 << 7;
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add_unit(z, "unit") == 0 && par_zero_add_tensor(z, &t) == 0);
    CHECK_OK(w, par_zero_commit(z));
    CHECK_OK(w, par_barrier(w));
    __atomic_store_n(&largest_allocation, 0, __ATOMIC_RELAXED);
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_zero_gather(z, w, PAR_ZERO_VALUE, 1 << 14, skip_piece, &count));
    CHECK(w, count == (par_rank(w) ? 0 : (size_t)1 << 19));
    CHECK(w, __atomic_load_n(&largest_allocation, __ATOMIC_RELAXED) <= (size_t)1 << 18); // of 2 MiB
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_zero_close(z));
}
static par_result take_piece(void *user, const char *name, size_t first, size_t count, const float *values) {
    gathered *g = (gathered *)user;
    const size_t i = !strcmp(name, "rows") ? 0 : !strcmp(name, "cols") ? 1 : 2;
    CHECK(g->w, first == g->next[i] && count && count <= PAR__MAX(g->max_count, (size_t)COLS));
    for (size_t k = 0; k < count; k++) CHECK(g->w, values[k] == (float)(1000 * i + first + k));
    g->next[i] += count, g->calls++;
    return g->fails ? par_fail(g->w, PAR_ERR_FILE, "the disk is full") : PAR_OK;
}
static void gather_tp(par_comm *w, tp_model *m) { // whole tensors arrive on rank 0, in pieces
    const size_t max_counts[] = {1, 100, 0}, calls[] = {3 * ROWS, 3 * ROWS / 2, 3};
    for (int i = 0; i < 3; i++) {
        gathered g = {w, {0, 0, 0}, 0, max_counts[i] ? max_counts[i] : ROWS * COLS, 0};
        CHECK_OK(w, par_zero_gather(m->z, w, PAR_ZERO_VALUE, max_counts[i], take_piece, &g));
        CHECK(w, g.calls == (par_rank(w) ? 0 : calls[i]));
        for (int k = 0; k < 3 && !par_rank(w); k++) CHECK(w, g.next[k] == ROWS * COLS);
    }
    gathered g = {w, {0, 0, 0}, 0, ROWS * COLS, 1};
    CHECK(w, par_zero_gather(m->z, w, PAR_ZERO_VALUE, 0, take_piece, &g) == PAR_ERR_FILE &&
                 says(w, "the disk is full") && g.calls == (par_rank(w) == 0));
    CHECK(w, par_zero_gather(m->z, w, PAR_ZERO_GRADIENT, 0, take_piece, &g) == PAR_ERR_ARGUMENT);
}
static void tensor_parallel(par_comm *w) { // parts of tensors become whole ones, and parts for another number
    const int n = par_size(w);
    char dir[256], path[600];
    par_comm *self;
    tp_model m;
    par_zero_checkpoint f;
    par_safetensors s;
    scratch_dir(w, dir, sizeof dir);
    CHECK_OK(w, par_split(w, par_rank(w), 0, &self));
    f = files_of(w, dir);
    open_tp(w, &m, self, n, par_rank(w), 1);
    gather_tp(w, &m);
    CHECK_OK(w, par_zero_save(m.z, &f));
    CHECK_OK(w, par_zero_close(m.z));
    saved_file(w, dir, "model-s000001-", path, sizeof path);
    CHECK(w, !par_safetensors_open(path, &s) && s.count == 3);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"rows", "cols", "both"};
        const par_file_tensor *a = par_safetensors_find(&s, names[i]);
        CHECK(w, a && a->dims == 2 && a->shape[0] == ROWS && a->shape[1] == COLS && !strcmp(a->dtype, "F32"));
        for (size_t k = 0; k < ROWS * COLS && a; k++)
            CHECK(w, ((const float *)a->data)[k] == (float)(1000 * i) + (float)k);
    }
    par_safetensors_close(&s);
    open_tp(w, &m, self, n, par_rank(w), 0);
    CHECK_OK(w, par_zero_load(m.z, &f));
    expect_tp(w, &m);
    f.comm = self; // each rank alone, for another number of parts
    for (int parts = 1; parts < 5; parts++) {
        const int part = par_rank(w) % parts;
        open_tp(w, &m, self, parts, part, 0);
        CHECK_OK(w, par_zero_load(m.z, &f));
        expect_tp(w, &m);
    }
    CHECK_OK(w, par_close(self));
    remove_dir(w, dir);
}
// Writing in pieces gives the same file as writing whole tensors; its parts become a tensor again.
enum { PARTS_M = 5, PARTS_N = 1030, PARTS = PARTS_N * PARTS_M };
static int same_file(const char *a, const char *b) {
    static const size_t capacity = 100000;
    char *text[2] = {(char *)calloc(2, capacity), NULL};
    size_t bytes[2];
    text[1] = text[0] + capacity;
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(i ? b : a, "rb");
        bytes[i] = f ? fread(text[i], 1, capacity, f) : 0;
        if (f) fclose(f);
    }
    const int same = bytes[0] > 2 * PARTS && bytes[0] == bytes[1] && !memcmp(text[0], text[1], bytes[0]);
    return free(text[0]), same;
}
static void write_whole(par_comm *w, const char *path, const par_file_tensor *list, size_t count) {
    static __thread par_safetensors_writer out;
    CHECK(w, !par_safetensors_create(path, list, count, &out));
    for (size_t i = 0; i < count; i++)
        CHECK(w, !par_safetensors_put(&out, i, 0, list[i].count, list[i].data));
    CHECK(w, !par_safetensors_end(&out, 1));
}
static void write_parts(par_comm *w, const char *dir, const float *whole, const float *transposed) {
    char path[3][600];
    par_file_tensor list[3];
    par_safetensors_writer out;
    memset(list, 0, sizeof list);
    for (int i = 0; i < 3; i++) { // two parts of N x M, which are M x N in the file, and the whole
        snprintf(list[i].name, sizeof list[i].name, "part%d", i);
        list[i].dims = 2, list[i].dtype = "F32", list[i].data = i < 2 ? transposed + i * PARTS : whole;
        list[i].shape[0] = i < 2 ? PARTS_M : 2 * PARTS_N, list[i].shape[1] = i < 2 ? PARTS_N : PARTS_M;
        list[i].count = list[i].shape[0] * list[i].shape[1], list[i].bytes = list[i].count * sizeof(float);
        snprintf(path[i], sizeof path[i], "%s/%d", dir, i);
    }
    write_whole(w, path[0], list, 3);
    for (size_t piece = 1; piece < 3 * PARTS; piece = piece * 70 + 1) {
        CHECK(w, !par_safetensors_create(path[1], list, 3, &out));
        for (size_t at = 0, n; at < 2 * PARTS; at += n) {
            n = PAR__MIN(piece, 2 * PARTS - at);
            const size_t here = at < PARTS ? PAR__MIN(n, PARTS - at) : 0; // elements of part 0
            CHECK(w, !par_zero_safetensors_put(&out, 2, 0, at, n, whole + at));
            CHECK(w, !par_zero_safetensors_put(&out, 0, 1, at, here, whole + at));
            const size_t next = at + here; // of part 1
            if (n > here)
                CHECK(w, !par_zero_safetensors_put(&out, 1, 1, next - PARTS, n - here, whole + next));
        }
        CHECK(w, !par_safetensors_end(&out, 1) && same_file(path[0], path[1]));
    }
    for (int wrong = 0; wrong < 3; wrong++) { // beyond a tensor; there is none; not floats
        list[0].dtype = wrong == 2 ? "I32" : "F32";
        CHECK(w, !par_safetensors_create(path[2], list, 2, &out) &&
                     par_zero_safetensors_put(&out, wrong == 1 ? 2 : 0, 0, wrong == 0, PARTS, whole) ==
                         PAR_ERR_FILE &&
                     par_safetensors_end(&out, 1) == EINVAL && files_in(dir) == 2);
    }
    list[0].dtype = "BF16", list[0].bytes = list[0].count * 2; // rounded; not kept
    CHECK(w, !par_safetensors_create(path[2], list, 1, &out) &&
                 !par_zero_safetensors_put(&out, 0, 0, 0, PARTS, whole));
    CHECK(w, !par_safetensors_end(&out, 0) && files_in(dir) == 2);
    snprintf(path[2], sizeof path[2], "%s/none/file", dir);
    CHECK(w, par_safetensors_create(path[2], list, 1, &out) == ENOENT &&
                 par_zero_safetensors_put(&out, 0, 0, 0, PARTS, whole) == PAR_ERR_FILE &&
                 par_safetensors_end(&out, 1) == ENOENT && strstr(out.why, "No such file"));
}
static void parts_of_files(par_comm *w) {
    char dir[256], path[600];
    par_safetensors in;
    float *whole = (float *)calloc(6 * PARTS, sizeof *whole), *transposed = whole + 2 * PARTS,
          *got = whole + 4 * PARTS;
    scratch_memory(w, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/0", dir);
    for (int i = 0; i < 2 * PARTS; i++) {
        whole[i] = (float)i + 0.25f;
        transposed[i / PARTS * PARTS + i % PARTS_M * PARTS_N + i % PARTS / PARTS_M] = whole[i];
    }
    if (par_rank(w) == 0) write_parts(w, dir, whole, transposed);
    CHECK_OK(w, par_barrier(w));
    CHECK(w, !par_safetensors_open(path, &in));
    for (int stage = 0; stage < 4; stage += 3) {
        par_zero_desc d;
        par_zero_tensor t;
        par_zero *z;
        par_zero_part parts[2] = {{par_safetensors_find(&in, "part0"), 0, 1},
                                  {par_safetensors_find(&in, "part1"), PARTS, 1}};
        d = sum_desc(), memset(&t, 0, sizeof t);
        d.comm = w, d.stage = stage, t.name = "w", t.dims = 2, t.shape[0] = 2 * PARTS_N;
        t.shape[1] = PARTS_M;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "unit") == 0 && par_zero_add_tensor(z, &t) == 0);
        CHECK_OK(w, par_zero_commit(z));
        CHECK_OK(w, par_zero_import(z, 0, parts, 2));
        CHECK_OK(w, par_zero_read(z, 0, PAR_ZERO_VALUE, got));
        CHECK(w, !memcmp(got, whole, 2 * PARTS * sizeof *got));
        CHECK(w, par_zero_import(z, 0, parts, 1) == PAR_ERR_ARGUMENT &&
                     says(w, "the parts of tensor w have 5150 elements, and it has 10300"));
        parts[1].first--;
        CHECK(w, par_zero_import(z, 0, parts, 2) == PAR_ERR_ARGUMENT && says(w, "must at 5150"));
        CHECK_OK(w, par_zero_close(z));
    }
    par_safetensors_close(&in);
    free(whole);
    remove_dir(w, dir);
}
// 8-bit floats in files become tensors, and are written again.
static void floats_of_8_bits(par_comm *w) {
    static const uint8_t codes[2][4] = {{0x38, 0xfe, 0x01, 0x00}, {0x3c, 0xfb, 0x01, 0x00}};
    static const float values[2][4] = {{1, -448, 0.001953125f, 0}, {1, -57344, 0.0000152587890625f, 0}};
    par_file_tensor list[2];
    char dir[256], path[600], text[512] = "";
    memset(list, 0, sizeof list);
    scratch_memory(w, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/8", dir);
    for (int i = 0; i < 2; i++) {
        snprintf(list[i].name, sizeof list[i].name, "%d", i);
        list[i].dtype = i ? "F8_E5M2" : "F8_E4M3", list[i].dims = 1, list[i].data = codes[i];
        list[i].shape[0] = list[i].count = list[i].bytes = 4;
    }
    write_whole(w, path, list, 2);
    FILE *file = fopen(path, "rb");
    CHECK(w, file && fread(text, 1, sizeof text - 1, file) > 8);
    fclose(file);
    CHECK(w, strstr(text + 8, "\"0\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}") &&
                 strstr(text + 8, "\"F8_E5M2\""));
    for (int i = 0; i < 2; i++) {
        par_safetensors in;
        par_zero_desc d;
        par_zero_tensor t;
        par_zero *z;
        float got[4];
        CHECK(w, !par_safetensors_open(path, &in));
        par_zero_part part = {par_safetensors_find(&in, list[i].name), 0, 0};
        CHECK(w, part.file && !strcmp(part.file->dtype, list[i].dtype));
        d = sum_desc(), memset(&t, 0, sizeof t);
        d.comm = w, d.stage = 3, t.name = "w", t.dims = 1, t.shape[0] = 4;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "unit") == 0 && par_zero_add_tensor(z, &t) == 0);
        CHECK_OK(w, par_zero_commit(z));
        CHECK_OK(w, par_zero_import(z, 0, &part, 1));
        CHECK_OK(w, par_zero_read(z, 0, PAR_ZERO_VALUE, got));
        CHECK(w, !memcmp(got, values[i], sizeof got));
        CHECK_OK(w, par_zero_close(z));
        par_safetensors_close(&in);
    }
    remove_dir(w, dir);
}
static void open_stage(par_comm *w, par_zero **z, par_comm *self, int stage, size_t rows, int copy) {
    par_zero_desc d;
    par_zero_tensor t;
    char name[32];
    d = sum_desc(), memset(&t, 0, sizeof t);
    d.comm = self;
    CHECK_OK(w, par_zero_open(&d, z));
    CHECK(w, par_zero_add_unit(*z, "all") == 0);
    for (int i = 0; i < 3; i++) { // the last one is on all ranks
        snprintf(name, sizeof name, i == 2 ? "tied" : "stage%d.%d", stage, i);
        t.name = name, t.dims = 2, t.shape[0] = i == 2 ? rows : 3, t.shape[1] = 5;
        par_shard part = par_shard_whole(t.shape, 2);
        par_shard_replicate(&part, copy + 1, copy);
        t.shard = i == 2 ? &part : NULL;
        CHECK(w, par_zero_add_tensor(*z, &t) == i);
    }
    CHECK_OK(w, par_zero_commit(*z));
}
static void give_number(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = *(const float *)user + (float)(first + i);
}
static void pipeline(par_comm *w) { // ranks have different tensors, and one of them in common
    const int n = par_size(w), other = n - 1 - par_rank(w);
    char dir[256];
    par_comm *self;
    par_zero *z;
    float got[15];
    scratch_dir(w, dir, sizeof dir);
    CHECK_OK(w, par_split(w, par_rank(w), 0, &self));
    par_zero_checkpoint f = files_of(w, dir);
    open_stage(w, &z, self, par_rank(w), 3, par_rank(w));
    for (int i = 0; i < 3; i++) {
        float value = i == 2 ? 7 : (float)(100 * par_rank(w) + 20 * i);
        CHECK_OK(w, par_zero_fill(z, i, PAR_ZERO_VALUE, give_number, &value));
    }
    CHECK_OK(w, par_zero_save(z, &f));
    CHECK_OK(w, par_zero_close(z));
    open_stage(w, &z, self, other, 3, 0);
    const par_result r = par_zero_load(z, &f);
    CHECK(w, r == PAR_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(w, par_zero_read(z, i, PAR_ZERO_VALUE, got));
        for (int k = 0; k < 15; k++)
            CHECK(w, got[k] == (i == 2 ? 7 : (float)(100 * other + 20 * i)) + (float)k);
    }
    CHECK_OK(w, par_zero_close(z));
    if (n > 1) {
        open_stage(w, &z, self, par_rank(w), par_rank(w) ? 3 : 4, 0);
        CHECK(w, par_zero_save(z, &f) == PAR_ERR_MISMATCH && says(w, "tensor tied is not the same"));
        CHECK_OK(w, par_zero_close(z));
        open_stage(w, &z, self, par_rank(w), 3, 0); // every rank says that it has the first copy
        CHECK(w, par_zero_save(z, &f) == PAR_ERR_ARGUMENT && says(w, "tensor tied was saved"));
        CHECK_OK(w, par_zero_close(z));
        open_stage(w, &z, self, 0, 3, 0); // the other ranks' tensors are too many
        CHECK(w, par_zero_load(z, &f) == PAR_ERR_FILE && says(w, "stage1.0 is not one of the model's"));
        CHECK_OK(w, par_zero_close(z));
    }
    CHECK_OK(w, par_close(self));
    remove_dir(w, dir);
}

// ---- damaged files ----------------------------------------------------------------------------------------

static void put_file(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    if (f) fwrite(bytes, 1, n, f), fclose(f);
}
static char *get_file(const char *path, size_t *n) {
    char why[256];
    return par_file_read(path, n, why, sizeof why);
}
static void headers(par_comm *w) { // what is wrong with a safetensors file is an error that names the tensor
    static const struct {
        const char *header, *says;
        size_t bytes;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", NULL, 8},
        {"{\"__metadata__\":{\"x\":\"\\u00e9\\ud83d\\ude00\"},\"\\u00e9\\/"
         "\":{\"shape\":[],\"dtype\":\"F64\",\"data_offsets\":[0,8]}} ",
         NULL, 8},
        {"{}", NULL, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"b\":{\"dtype\":\"BOOL\","
         "\"shape\":[1,1,1,1,1,8],\"data_offsets\":[0,8]}}",
         NULL, 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "tensor a: its data lie beyond",
         7},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "more data", 9},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "tensor a: its shape", 8},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", "tensor a: its dtype", 8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,8]}}",
         "tensor a: its shape", 8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,8],\"data_offsets\":[0,8]}}", "8 dimensions",
         8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,18446744073709551616]}}", "damaged", 8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"U8\",\"shape\":["
         "4],\"data_offsets\":[4,8]}}",
         "a stands there twice", 8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":["
         "5],\"data_offsets\":[3,8]}}",
         "tensor b does not begin", 8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", "tensor a does not begin", 8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"shape\":[8],\"data_offsets\":[0,8]}}", "damaged", 8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8]}}", "damaged", 8},
        {"{\"a\\u0000\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", "damaged", 8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}", "damaged", 8},
        {"[[[[[[[[[[", "damaged", 8},
        {"", "damaged", 8},
    };
    char dir[256], path[300], file[1024];
    scratch_dir(w, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/x", dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        par_safetensors s;
        const uint64_t n = strlen(cases[i].header);
        memset(file, 0, sizeof file);
        memcpy(file, &n, 8), memcpy(file + 8, cases[i].header, n);
        put_file(path, file, 8 + n + cases[i].bytes);
        const int r = par_safetensors_open(path, &s);
        const int right = cases[i].says ? r == EINVAL && strstr(s.why, cases[i].says) : !r;
        if (!right) fprintf(stderr, "%s gives \"%s\"\n", cases[i].header, s.why);
        CHECK(w, right);
        if (!r) par_safetensors_close(&s);
    }
    CHECK_OK(w, par_barrier(w));
    remove_dir(w, dir);
}
static void fifos(par_comm *w) { // opening a FIFO would block: it is an error at once
    char dir[256], path[300], note[64], why[512];
    uint64_t steps;
    par_safetensors s;
    scratch_dir(w, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    CHECK(w, par_rank(w) > 0 || mkfifo(path, 0600) == 0);
    CHECK_OK(w, par_barrier(w));
    CHECK(w, par_zero_load_note(dir, note, sizeof note, &steps, why, sizeof why) == PAR_ERR_FILE &&
                 strstr(why, "is a FIFO"));
    CHECK(w, par_safetensors_open(path, &s) == EINVAL && strstr(s.why, "is a FIFO"));
    CHECK(w, par_safetensors_open(dir, &s) == EINVAL && strstr(s.why, "is a directory"));
    CHECK_OK(w, par_barrier(w));
    remove_dir(w, dir);
}
// Every file in turn, cut off or with another byte, is an error that names it.
static void damage(par_comm *w) {
    char dir[256], path[600];
    scratch_memory(w, dir, sizeof dir);
    run r = plain_run(w, 2, PAR_ZERO_ADAMW);
    par_zero_checkpoint f = files_of(w, dir);
    f.max_file_bytes = 8000;
    open_run(w, &r);
    one_step(w, &r, 1);
    CHECK_OK(w, par_zero_save(r.z, &f));
    DIR *d = opendir(dir);
    int files = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        size_t n = 0;
        if (e->d_name[0] == '.' || strstr(e->d_name, "index") || !strcmp(e->d_name, "lock.json")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        char *good = get_file(path, &n);
        for (int how = 0; how < 11 && good; how++) { // shorter; one bit; of a header, what no tensor needs
            size_t at = how ? (size_t)how * (n - 1) / 9 : n;
            const char *const format =
                strstr(e->d_name, ".safetensors") ? strstr(good + 8, "\"format\"") : NULL;
            if (how == 10 && !format) continue; // the manifest
            if (how == 10) at = (size_t)(format + 10 - good);
            char *bad = (char *)malloc(n);
            memcpy(bad, good, n);
            if (how) bad[at] ^= (char)(1 << how % 8);
            CHECK_OK(w, par_barrier(w));
            if (par_rank(w) == 0) put_file(path, bad, how ? n : n - 1);
            CHECK_OK(w, par_barrier(w));
            const par_result result = par_zero_load(r.z, &f);
            CHECK(w, result == PAR_ERR_FILE && says(w, dir));
            CHECK(w, how < 10 || says(w, "is not the file that was saved"));
            free(bad);
        }
        CHECK_OK(w, par_barrier(w));
        if (par_rank(w) == 0) put_file(path, good, n);
        CHECK_OK(w, par_barrier(w));
        free(good), files++;
    }
    if (d) closedir(d);
    CHECK(w, files >= 8);
    CHECK_OK(w, par_zero_load(r.z, &f));
    CHECK_OK(w, par_zero_close(r.z));
    remove_dir(w, dir);
}
static void strict(par_comm *w) { // a tensor too many, too few, or of another shape
    static const char *const want[] = {"tensor c is missing", "tensor b is not one of the model's",
                                       "tensor b has another shape: 3 x 4 instead of 4 x 3"};
    char dir[256];
    scratch_dir(w, dir, sizeof dir);
    par_zero_checkpoint f = files_of(w, dir);
    for (int kind = -1; kind < 3; kind++) {
        par_zero_desc d;
        par_zero *z;
        d = sum_desc();
        d.comm = w, d.stage = 3;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "all") == 0);
        for (int i = 0; i < 3; i++) {
            par_zero_tensor t;
            memset(&t, 0, sizeof t);
            t.name = i == 0 ? "a" : i == 1 ? "b" : "c";
            t.dims = 2, t.shape[0] = kind == 2 && i ? 4 : 3, t.shape[1] = kind == 2 && i ? 3 : 4;
            if ((i == 2 && kind != 0) || (i == 1 && kind == 1)) continue;
            CHECK(w, par_zero_add_tensor(z, &t) >= 0);
        }
        CHECK_OK(w, par_zero_commit(z));
        if (kind == -1) CHECK_OK(w, par_zero_save(z, &f));
        if (kind >= 0) CHECK(w, par_zero_load(z, &f) != PAR_OK && says(w, want[kind]));
        CHECK_OK(w, par_zero_close(z));
    }
    run r = plain_run(w, 0, PAR_ZERO_SGD);
    open_run(w, &r);
    f.dir = "/nonexistent/x";
    CHECK(w, par_zero_save(r.z, &f) == PAR_ERR_FILE && says(w, "cannot make the directory /nonexistent/x"));
    CHECK(w, par_zero_load(r.z, &f) == PAR_ERR_FILE && says(w, "cannot open /nonexistent/x/manifest.json"));
    CHECK(w, par_zero_save_end(r.z) == PAR_ERR_ARGUMENT && says(w, "no save was begun"));
    CHECK_OK(w, par_zero_close(r.z));
    remove_dir(w, dir);
}
// Models that lack tensors or states of a checkpoint, or have more: refused, or loaded as asked.
enum { LENIENT = 60 };
typedef struct lenient_model {
    int tensors;      // a, b, c: so many
    unsigned frozen;  // bits
    float ema, scale; // scale: of the loss
} lenient_model;
static par_zero *lenient_open(par_comm *w, const lenient_model *m, int stage, int steps) {
    static const char *const names[3] = {"a", "b", "c"};
    par_zero *z;
    par_zero_desc d = sum_desc();
    d.comm = w, d.stage = stage, d.ema = m->ema, d.loss_scale = m->scale, d.loss_scale_window = 2, d.seed = 5;
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add_unit(z, "all") == 0);
    for (int i = 0; i < m->tensors; i++) {
        par_zero_tensor t;
        memset(&t, 0, sizeof t);
        t.name = names[i], t.dims = 1, t.shape[0] = LENIENT, t.deviation = 1, t.frozen = m->frozen >> i & 1;
        t.stream = (uint64_t)(i + 10 * m->tensors);
        CHECK(w, par_zero_add_tensor(z, &t) == i);
    }
    CHECK_OK(w, par_zero_commit(z));
    CHECK_OK(w, par_zero_init_all(z));
    for (int s = 0; s < steps; s++) {
        CHECK_OK(w, par_zero_backward_begin(z, 0));
        for (int i = 0; i < m->tensors; i++)
            for (int k = 0; k < LENIENT && par_zero_grad(z, i); k++)
                par_zero_grad(z, i)[k] += par_zero_loss_scale(z) * (float)(k - 30 + s);
        CHECK_OK(w, par_zero_backward_end(z, 0));
        CHECK_OK(w, par_zero_step(z, 1, NULL));
    }
    return z;
}
static void same_field(par_comm *w, par_zero *z, par_zero *saved, int tensor, par_zero_field what,
                       int zeros) {
    float x[LENIENT], y[LENIENT] = {0};
    CHECK_OK(w, par_zero_read(z, tensor, what, x));
    if (!zeros) CHECK_OK(w, par_zero_read(saved, tensor, what == PAR_ZERO_EMA ? PAR_ZERO_VALUE : what, y));
    CHECK(w, !memcmp(x, y, sizeof x));
}
static void lenient(par_comm *w) {
    static const struct {
        lenient_model saved, loaded;
        int extra, missing; // what must be allowed
        const char *strict; // the error else
    } rows[] = {
        {{2, 0, 0, 0},
         {2, 1, 0, 0},
         1,
         0,
         "tensor a.exp_avg is not one of the model's (allow_extra"}, // freezes a
        {{2, 1, 0, 0},
         {2, 0, 0, 0},
         0,
         1,
         "tensor a.exp_avg is missing (weights alone load with weights_only; "},
        {{2, 0, 0, 0}, {2, 0, .5f, 0}, 0, 1, "tensor a.ema is missing"},
        {{2, 0, .5f, 0}, {2, 0, 0, 0}, 1, 0, "tensor a.ema is not one of the model's"},
        {{2, 0, 0, 0}, {3, 3, 0, 0}, 1, 1, "tensor c is missing (allow_missing"}, // adapters on a frozen base
        {{3, 0, 0, 0}, {2, 0, 0, 0}, 1, 0, "tensor c is not one of the model's"}};
    char dir[256];
    scratch_dir(w, dir, sizeof dir);
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        par_zero_checkpoint f = files_of(w, dir);
        const int row = (int)i / 2, stage = i % 2 ? 3 : 1, loaded = rows[row].loaded.tensors;
        par_zero *saved = lenient_open(w, &rows[row].saved, stage, 3);
        float before[LENIENT], after[LENIENT];
        CHECK_OK(w, par_zero_save(saved, &f));
        par_zero *z = lenient_open(w, &rows[row].loaded, 3 - stage, 1); // with moments of its own
        CHECK_OK(w, par_zero_read(z, loaded - 1, PAR_ZERO_VALUE, before));
        CHECK(w, par_zero_load(z, &f) == PAR_ERR_FILE && says(w, rows[row].strict));
        f.allow_extra = !rows[row].extra, f.allow_missing = !rows[row].missing; // the other one does not help
        if (!(rows[row].extra && rows[row].missing)) CHECK(w, par_zero_load(z, &f) == PAR_ERR_FILE);
        f.allow_extra = rows[row].extra, f.allow_missing = rows[row].missing;
        CHECK_OK(w, par_zero_load(z, &f));
        CHECK(w, par_zero_steps(z) == 3);
        for (int t = 0; t < 2; t++) {
            same_field(w, z, saved, t, PAR_ZERO_VALUE, 0);
            if (rows[row].loaded.ema > 0) same_field(w, z, saved, t, PAR_ZERO_EMA, 0);
            for (int k = 0; k < 2 && !(rows[row].loaded.frozen >> t & 1); k++)
                same_field(w, z, saved, t, k ? PAR_ZERO_MOMENT2 : PAR_ZERO_MOMENT1,
                           (int)(rows[row].saved.frozen >> t & 1));
        }
        if (loaded == 3) {
            CHECK_OK(w, par_zero_read(z, 2, PAR_ZERO_VALUE, after));
            CHECK(w, !memcmp(before, after, sizeof after));
            same_field(w, z, saved, 2, PAR_ZERO_MOMENT1, 1);
            same_field(w, z, saved, 2, PAR_ZERO_MOMENT2, 1);
        }
        CHECK_OK(w, par_zero_close(z));
        CHECK_OK(w, par_zero_close(saved));
    }
    remove_dir(w, dir);
}
// The scale of the loss, and the steps since it changed, are a checkpoint's if both runs have one.
static void loaded_scales(par_comm *w) {
    static const float scales[2] = {0, 65536};
    char dir[256];
    scratch_dir(w, dir, sizeof dir);
    const lenient_model least = {1, 0, 0, 1}, other = {1, 0, 0, 65536}; // a scale of 1 is one, too
    par_zero *first = lenient_open(w, &least, 1, 0), *next = lenient_open(w, &other, 1, 0);
    const par_zero_checkpoint of_first = files_of(w, dir);
    CHECK_OK(w, par_zero_save(first, &of_first));
    CHECK_OK(w, par_zero_load(next, &of_first));
    CHECK(w, par_zero_loss_scale(next) == 1);
    CHECK_OK(w, par_zero_close(first));
    CHECK_OK(w, par_zero_close(next));
    for (int i = 0; i < 4; i++) {
        const par_zero_checkpoint f = files_of(w, dir);
        const lenient_model from = {1, 0, 0, scales[i / 2]}, to = {1, 0, 0, scales[i % 2]};
        par_zero *saved = lenient_open(w, &from, 1, 3), *z;
        CHECK(w, par_zero_loss_scale(saved) == (i / 2 ? 131072 : 1)); // it doubles after two steps
        CHECK_OK(w, par_zero_save(saved, &f));
        z = lenient_open(w, &to, 2, 0);
        CHECK_OK(w, par_zero_load(z, &f));
        CHECK(w, par_zero_loss_scale(z) == (i % 2 == 0 ? 1 : i / 2 ? 131072 : 65536));
        const par_zero_control now = par__zero_control_get(z);
        CHECK(w, now.good_steps == (i == 3) && now.bad_steps == 0 && now.step == 3);
        CHECK_OK(w, par_zero_close(z));
        CHECK_OK(w, par_zero_close(saved));
    }
    remove_dir(w, dir);
}
// A file that grows too large is an error of the thread that writes it, and a signal where it does not block
// it: the program's handler must run in no thread of the kit.
static pthread_t called_by;
static volatile sig_atomic_t in_foreign_thread;
static void too_large(int signal) {
    (void)signal;
    in_foreign_thread |= !pthread_equal(called_by, pthread_self());
}
static void full(par_comm *w) { // a full disk is an error on all ranks, and the previous checkpoint loads
    struct rlimit old, small;
    char dir[256];
    scratch_dir(w, dir, sizeof dir);
    par_zero_checkpoint f = files_of(w, dir);
    run r = plain_run(w, 1, PAR_ZERO_ADAMW);
    float want[CAPACITY], got[CAPACITY];
    open_run(w, &r);
    one_step(w, &r, 1);
    CHECK_OK(w, par_zero_save(r.z, &f));
    CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, want));
    const int files = files_in(dir);
    called_by = pthread_self();
    signal(SIGXFSZ, too_large);
    getrlimit(RLIMIT_FSIZE, &old);
    for (int who = 0; who < 2; who++) // rank 0 cannot make the files; another rank cannot write into them
        for (f.background = 0; f.background < 2; f.background++) {
            one_step(w, &r, 1);
            small = old, small.rlim_cur = 4000;
            if (par_rank(w) == (who ? par_size(w) - 1 : 0)) setrlimit(RLIMIT_FSIZE, &small);
            CHECK_OK(w, par_barrier(w));
            const par_result result = par_zero_save(r.z, &f);
            CHECK(w, result == PAR_ERR_FILE && says(w, "the previous checkpoint is untouched"));
            setrlimit(RLIMIT_FSIZE, &old);
            CHECK_OK(w, par_barrier(w));
            CHECK(w, files_in(dir) == files);
            CHECK_OK(w, par_barrier(w));
        }
    CHECK(w, !in_foreign_thread);
    CHECK_OK(w, par_zero_load(r.z, &f));
    CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, got));
    CHECK(w, !memcmp(want, got, count_of(2) * 4) && par_zero_steps(r.z) == 1);
    char index[400]; // the index alone fails: the manifest is there, and the new checkpoint is complete
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", dir);
    one_step(w, &r, 1);
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == 0) CHECK(w, !unlink(index) && !mkdir(index, 0777));
    CHECK_OK(w, par_barrier(w));
    f.background = 0;
    CHECK(w, par_zero_save(r.z, &f) == PAR_ERR_FILE && says(w, "cannot rename") && says(w, "index"));
    one_step(w, &r, 1);
    CHECK_OK(w, par_zero_load(r.z, &f));
    CHECK(w, par_zero_steps(r.z) == 2);
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == 0) CHECK(w, !rmdir(index));
    CHECK_OK(w, par_zero_save(r.z, &f));
    CHECK(w, files_in(dir) == files);
    CHECK_OK(w, par_barrier(w)); // all have counted the lock
    CHECK_OK(w, par_zero_close(r.z));
    remove_dir(w, dir);
}
// A checkpoint whose elements all say its number of steps.
static void give_steps(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++)
        values[i] = (float)*(const uint64_t *)user + 0.001f * (float)(first + i);
}
static void open_counted(par_comm *w, run *r, int stage) {
    *r = plain_run(w, stage, PAR_ZERO_ADAMW);
    open_run(w, r);
}
static void set_counted(run *r, uint64_t steps) {
    par_zero_set_steps(r->z, steps);
    for (int t = 0; t < TENSORS; t++) {
        par_zero_fill(r->z, t, PAR_ZERO_VALUE, give_steps, &steps);
        par_zero_fill(r->z, t, PAR_ZERO_MOMENT2, give_steps, &steps);
    }
}
// Loads such a checkpoint. The number of its steps; -1: it cannot be loaded, or is of several saves.
static long counted_steps(par_comm *w, const char *dir) {
    float got[CAPACITY];
    const par_zero_checkpoint f = files_of(w, dir);
    run r;
    open_counted(w, &r, 0);
    long steps = par_zero_load(r.z, &f) ? -1 : (long)par_zero_steps(r.z);
    for (int t = 0; t < TENSORS && steps >= 0; t++)
        for (int what = 0; what < 2; what++) {
            int wrong = 0;
            if (what && shapes[t].frozen) continue;
            CHECK_OK(w, par_zero_read(r.z, t, what ? PAR_ZERO_MOMENT2 : PAR_ZERO_VALUE, got));
            for (size_t k = 0; k < count_of(t); k++) wrong += got[k] != (float)steps + 0.001f * (float)k;
            if (wrong) steps = -1;
        }
    CHECK_OK(w, par_zero_close(r.z));
    return steps;
}
// A rank kills itself, or all, right before the `steps_left`th system call of its saves.
static void save_for_ever(const char *dir, int stage, int who, long step, int all) {
    par_comm *w;
    run r;
    setenv("PAR_RANKS", "2", 1);
    if (par_open(NULL, &w)) _exit(1);
    open_counted(w, &r, stage);
    par_zero_checkpoint f = files_of(w, dir);
    f.background = stage & 1, f.max_file_bytes = 9000;
    if (par_zero_load(r.z, &f)) par_zero_set_steps(r.z, 0); // the first one
    if (par_rank(w) == who) kill_all = all, steps_left = step;
    for (;;) {
        set_counted(&r, par_zero_steps(r.z) + 1);
        if (par_zero_save(r.z, &f)) _exit(1);
    }
}
// A rank, or both, is killed before a system call of a save (rank 0 makes 59, rank 1 28) or of a later one:
// the last checkpoint or the one before it loads completely.
static void kills(par_comm *w) {
    enum { KILLS = TEST_FEWER ? 30 : 100 };
    char dir[256], byte;
    long least = 0, saves = 0;
    scratch_memory(w, dir, sizeof dir);
    for (int i = 0; i < KILLS; i++) {
        int ends[2];
        CHECK(w, pipe(ends) == 0);
        fflush(NULL);
        const pid_t child = test_fork();
        if (child == 0) {
            setpgid(0, 0);
            const int quiet = open("/dev/null", O_WRONLY);
            dup2(quiet, 2);
            save_for_ever(dir, i % 4, i / 2 % 2, 1 + i * 37 % 120, i % 2);
        }
        close(ends[1]); // the ranks hold the other copies: the read ends when all ranks have ended
        CHECK(w, read(ends[0], &byte, 1) == 0);
        close(ends[0]), waitpid(child, NULL, 0);
        const long steps = counted_steps(w, dir);
        CHECK(w, steps >= least || (least == 0 && says(w, "cannot open")));
        if (steps >= 0) saves += steps > least, least = steps;
    }
    CHECK(w, saves > KILLS / 4);
    remove_dir(w, dir);
}

// Another process that saves such a checkpoint once. It waits before its step number `pause` (0: nowhere).
typedef struct writer {
    pid_t pid;
    int to, from;
} writer;
enum { SAVED, REFUSED, LOST, FAILED }; // how it ends; LOST: another run has taken its lock
static int write_counted(const char *dir, uint64_t steps, int take_over, long pause) {
    par_comm *w;
    run r;
    setenv("PAR_RANKS", "1", 1);
    if (par_open(NULL, &w)) return FAILED;
    open_counted(w, &r, 1);
    set_counted(&r, steps);
    par_zero_checkpoint f = files_of(w, dir);
    f.take_over = take_over, steps_left = pause;
    const par_result result = par_zero_save(r.z, &f);
    const int refused = says(w, "another run saves into")       ? REFUSED
                        : says(w, "another run has taken over") ? LOST
                                                                : FAILED;
    const par_result closed = par_zero_close(r.z);
    return closed || par_close(w) ? FAILED : !result ? SAVED : refused;
}
static writer start_writer(par_comm *w, const char *dir, uint64_t steps, int take_over, long pause) {
    int to[2], from[2];
    CHECK(w, pipe(to) == 0 && pipe(from) == 0);
    fflush(NULL);
    const pid_t child = test_fork();
    if (child == 0) {
        const int quiet = open("/dev/null", O_WRONLY);
        dup2(quiet, 2);
        close(to[1]), close(from[0]);
        pause_fd[0] = to[0], pause_fd[1] = from[1];
        _exit(write_counted(dir, steps, take_over, pause));
    }
    close(to[0]), close(from[1]);
    const writer a = {child, to[1], from[0]};
    return a;
}
static int pauses(const writer *a) { // waits until it does; 0: it has ended before
    char byte;
    return read(a->from, &byte, 1) == 1;
}
static int end_writer(writer *a, int kills) { // how it ends; -1: it was killed
    int status;
    if (kills) kill(a->pid, SIGKILL);
    close(a->to), a->to = -1;
    waitpid(a->pid, &status, 0);
    close(a->from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
static void go_on_writing(const writer *a, char steps) { // 0: to its end
    const char byte = steps;
    if (a->to >= 0 && (write)(a->to, &byte, 1) != 1) perror("a writer");
}
static void put_text(par_comm *w, const char *path, const char *text) { // NULL: the file is deleted
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == 0) unlink(path);
    if (par_rank(w) == 0 && text) put_file(path, text, strlen(text));
    CHECK_OK(w, par_barrier(w));
}
// A lock whose number `key` is another one, or whose text `key` begins with another letter.
static void other_lock(const char *text, const char *key, char *other, size_t capacity) {
    char quoted[40];
    snprintf(other, capacity, "%s", text);
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    char *at = strstr(other, quoted);
    if (!at) return;
    at += strlen(quoted), at += *at == '"';
    *at = *at == '7' ? '8' : '7';
}
// A lock is given up with the directory, whichever rank has made it.
static void two_directories(par_comm *w) {
    char dirs[2][256], path[300];
    par_comm *turned;
    run r;
    scratch_memory(w, dirs[0], sizeof dirs[0]), scratch_memory(w, dirs[1], sizeof dirs[1]);
    CHECK_OK(w, par_split(w, 0, -par_rank(w), &turned));
    open_counted(w, &r, 1);
    for (int i = 0; i < 4; i++) {
        par_zero_checkpoint f = files_of(w, dirs[i % 2]);
        if (i % 2) f.comm = turned;
        CHECK_OK(w, par_zero_save(r.z, &f));
        CHECK_OK(w, par_barrier(w));
        for (int k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%s/lock.json", dirs[k]);
            CHECK(w, !access(path, F_OK) == (k == i % 2));
        }
        CHECK_OK(w, par_barrier(w));
    }
    CHECK_OK(w, par_zero_close(r.z));
    CHECK_OK(w, par_close(turned));
    remove_dir(w, dirs[0]), remove_dir(w, dirs[1]);
}
// Whose lock lets a run save: none's, its own, one that has ended. All ranks hear who has another one.
static void locks(par_comm *w) {
    static const struct {
        const char *key, *text, *says; // a member that is another one, or the whole text; NULL: it may save
    } rows[] = {{"start", NULL, NULL}, // another process has the number
                {"inode", NULL, NULL}, // the directory was copied
                {"table", NULL, "its last save, or its start, is"},
                {"dir", NULL, "(as "},
                {"", "", "is no lock of this kit"},
                {"", "{}", "is no lock of this kit"},
                {"", "{\"id\":1,\"pid\":99999999999,\"table\":\"x\"}", "is no lock of this kit"},
                {"", "{\"id\":7,\"pid\":8,\"table\":\"x\",\"host\":\"a\\nb\",\"new\":[1]}",
                 "process 8 on a?b, since"}};
    char dir[256], path[300], other[4096], *mine;
    size_t bytes = 0;
    run first, second;
    scratch_memory(w, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/lock.json", dir);
    open_counted(w, &first, 1), open_counted(w, &second, 2);
    par_zero_checkpoint f = files_of(w, dir), over = f;
    over.take_over = 1;
    CHECK_OK(w, par_zero_lock(first.z, &f));
    CHECK_OK(w, par_barrier(w));
    mine = get_file(path, &bytes);
    mine[bytes - 1] = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].text) snprintf(other, sizeof other, "%s", rows[i].text);
        if (!rows[i].text) other_lock(mine, rows[i].key, other, sizeof other);
        put_text(w, path, other);
        const par_result result = par_zero_save(second.z, &f);
        CHECK(w, rows[i].says ? result == PAR_ERR_FILE && says(w, rows[i].says) && says(w, dir)
                              : result == PAR_OK);
        if (rows[i].says) CHECK_OK(w, par_zero_save(second.z, &over));
        CHECK_OK(w, par_zero_unlock(second.z));
        CHECK_OK(w, par_barrier(w));
        CHECK(w, access(path, F_OK) != 0);
    }
    put_text(w, path, NULL); // a link leads nowhere, or to a lock: neither is followed, nor written through
    if (par_rank(w) == 0) CHECK(w, symlink("elsewhere", path) == 0);
    CHECK_OK(w, par_barrier(w));
    CHECK(w, par_zero_lock(second.z, &f) == PAR_ERR_FILE && says(w, "is no lock of this kit"));
    CHECK_OK(w, par_zero_lock(second.z, &over));
    CHECK(w, par_zero_save(first.z, &f) == PAR_ERR_FILE && says(w, "another run has taken over"));
    CHECK(w, par_zero_save(first.z, &over) == PAR_ERR_FILE && says(w, "This run saves there no more"));
    CHECK_OK(w, par_zero_save(second.z, &f));
    put_text(w, path, NULL); // somebody deletes the lock: nobody has saved meanwhile
    CHECK_OK(w, par_zero_save(second.z, &f));
    CHECK_OK(w, par_zero_close(second.z));
    CHECK_OK(w, par_barrier(w));
    CHECK(w, par_zero_save(first.z, &f) == PAR_ERR_FILE && says(w, "and has saved there"));
    CHECK_OK(w, par_zero_load(first.z, &f)); // takes no lock
    CHECK(w, access(path, F_OK) != 0);
    CHECK_OK(w, par_zero_close(first.z));
    CHECK(w, files_in(dir) == 4);
    free(mine);
    remove_dir(w, dir);
}
// Two processes find the lock of one that was killed. Each is stopped before each of its first steps. Whoever
// gets the lock keeps it: the other is refused at once, and nobody finds later that it has lost the lock.
static void two_find_a_stale_lock(par_comm *w) {
    enum { FIRST_STEPS = 20, HOLDS = 30 }; // after so many steps a process has the lock
    char dir[256], path[300], *stale;
    int refused = 0;
    uint64_t now = 0;
    size_t bytes = 0;
    scratch_memory(w, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/lock.json", dir);
    writer killed = start_writer(w, dir, ++now, 0, HOLDS);
    CHECK(w, pauses(&killed) && end_writer(&killed, 1) == -1);
    stale = get_file(path, &bytes);
    for (long i = 1; i <= FIRST_STEPS; i++)
        for (long j = 1; j <= HOLDS; j += j < FIRST_STEPS ? 1 : HOLDS - FIRST_STEPS) {
            put_file(path, stale, bytes);
            writer a = start_writer(w, dir, ++now, 0, i);
            CHECK(w, pauses(&a));
            writer b = start_writer(w, dir, ++now, 0, j);
            const int other_waits = pauses(&b);
            go_on_writing(&a, HOLDS);
            const int waits = pauses(&a);
            if (other_waits) go_on_writing(&b, 0);
            const int second = end_writer(&b, 0);
            if (waits) go_on_writing(&a, 0);
            const int first = end_writer(&a, 0);
            CHECK(w, first == (waits ? SAVED : REFUSED) && second == (waits ? REFUSED : SAVED));
            refused += first == REFUSED;
        }
    CHECK(w, refused > FIRST_STEPS);
    free(stale);
    remove_dir(w, dir);
}
// Two processes save into a directory. One is stopped before each of its steps, and then killed, or goes on
// after the other has saved, or was refused. The checkpoint is always whole, and of the last who may save.
static void two_writers(par_comm *w) {
    enum { STRIDE = TEST_FEWER ? 5 : 1 };
    char dir[256];
    long now = 1, at = 1, refused = 0, revoked = 0;
    scratch_memory(w, dir, sizeof dir);
    writer a = start_writer(w, dir, 1, 0, 0), b;
    CHECK(w, !pauses(&a) && end_writer(&a, 0) == SAVED && counted_steps(w, dir) == 1);
    const int files = files_in(dir);
    for (int how = 0, last = 0; !last; how = (how + 1) % 3, at += how ? 0 : STRIDE) {
        const long first = ++now, second = ++now;
        a = start_writer(w, dir, (uint64_t)first, 0, at);
        last = !pauses(&a);
        if (how == 2 && !last) CHECK(w, end_writer(&a, 1) == -1);
        b = start_writer(w, dir, (uint64_t)second, how == 1, 0);
        CHECK(w, !pauses(&b));
        const int result = end_writer(&b, 0);
        long found = counted_steps(w, dir);
        CHECK(w, result == SAVED ? found == second : how == 0 && result == REFUSED && found >= 0);
        if (how == 2 && !last) CHECK(w, files_in(dir) == files); // nothing is left of who was killed
        refused += result == REFUSED;
        if (how < 2 || last) {
            if (!last) go_on_writing(&a, 0);
            const int other = end_writer(&a, 0); // it has not had the lock yet, or it has lost it
            found = counted_steps(w, dir);
            CHECK(w, other == SAVED ? found == first || found == second : result == SAVED && found == second);
            revoked += other != SAVED;
        }
    }
    CHECK(w, at > 20 && refused > 20 / STRIDE && revoked > 10 / STRIDE);
    for (long i = 1; i < at; i += 7) // both are stopped somewhere; the first goes on before the second
        for (long j = 1 + i % 5; j < at; j += TEST_FEWER ? 31 : 11) {
            a = start_writer(w, dir, (uint64_t)++now, 0, i);
            const int waits = pauses(&a);
            b = start_writer(w, dir, (uint64_t)++now, 1, j);
            const int other_waits = pauses(&b);
            if (waits) go_on_writing(&a, 0);
            end_writer(&a, 0);
            CHECK(w, counted_steps(w, dir) > 0);
            if (other_waits && j % 2) go_on_writing(&b, 0);
            end_writer(&b, j % 2 == 0);
            CHECK(w, counted_steps(w, dir) > 0);
        }
    remove_dir(w, dir);
}

// ---- quantized messages -----------------------------------------------------------------------------------

static const int codes[4] = {PAR_ZERO_INT4, PAR_ZERO_INT8, PAR_ZERO_E4M3, PAR_ZERO_E5M2};
static void blocks(par_comm *w) { // of each code: errors within half a step, all instruction sets alike
    enum { N = 2048 + 96 };
    float x[N], y[N];
    uint8_t packed[N * 34 / 32], again[N * 34 / 32];
    for (int c = 0; c < 4; c++)
        for (int size = -30; size <= 30; size += 10) {
            const int code = codes[c], bits = c ? 8 : 4;
            double squares = 0, errors = 0;
            const par_zero_kernels *k = par_zero_cpu();
            for (int i = 0; i < N; i++) x[i] = ldexpf(par_normal(3, (uint64_t)bits, (uint64_t)i), size);
            for (int i = 64; i < 96; i++) x[i] = 0;
            CHECK_OK(w, k->quantize(k, code, N, x, PAR_F32, packed));
            CHECK_OK(w, k->dequantize(k, code, N, packed, y, PAR_F32));
            for (int b = 0; b < N; b += 32) {
                float largest = 0;
                for (int i = b; i < b + 32; i++) largest = fmaxf(largest, fabsf(x[i]));
                const float top = largest * (1 + 1.0f / 128); // the scale is rounded up
                for (int i = b; i < b + 32; i++) { // half a step: of the whole block, or of a float's size
                    const float size_of = fmaxf(fabsf(x[i]), top / 16384);
                    const float half = c < 2 ? top / (float)(c ? 254 : 14) : size_of / (c == 2 ? 16 : 8);
                    CHECK(w, fabsf(x[i] - y[i]) <= half * 1.0002f);
                }
            }
            for (int i = 0; i < N; i++)
                squares += (double)x[i] * (double)x[i],
                    errors += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
            // int: errors are uniform within a step, which is about 2 deviations / the largest code: 0.5%
            // and 9%. Floats: in parts of the number itself.
            const double error = sqrt(errors / squares), max_error[4] = {0.11, 0.006, 0.03, 0.06};
            CHECK(w, error < max_error[c] && error > max_error[c] / 3);
            par__zero_quantize_base(code, x, again, N / 32);
            CHECK(w, !memcmp(packed, again, (size_t)N / 32 * (size_t)(2 + 4 * bits)));
        }
    static const float top[4] = {7, 127, 448, 57344}, least[4] = {1, 1, 0x1p-9f, 0x1p-16f};
    for (int c = 0; c < 4; c++) { // scale 1: the whole range of a code is used, to its ends
        memset(x, 0, sizeof x), x[0] = -top[c], x[1] = least[c];
        CHECK_OK(w, par_zero_cpu()->quantize(par_zero_cpu(), codes[c], 32, x, PAR_F32, packed));
        CHECK_OK(w, par_zero_cpu()->dequantize(par_zero_cpu(), codes[c], 32, packed, y, PAR_F32));
        CHECK(w, !memcmp(x, y, 32 * sizeof *x));
    }
    for (int i = 0; i < N; i++) x[i] = par_normal(3, 8, (uint64_t)i);
    const uint32_t odd = 0xFFFFFFFFu; // NaN, too
    x[40] = NAN, x[70] = -INFINITY, memcpy(&x[100], &odd, sizeof odd);
    for (int c = 0; c < 4; c++) {
        CHECK_OK(w, par_zero_cpu()->quantize(par_zero_cpu(), codes[c], N, x, PAR_F32, packed));
        CHECK_OK(w, par_zero_cpu()->dequantize(par_zero_cpu(), codes[c], N, packed, y, PAR_F32));
        CHECK(w, isnan(y[40]) && !isfinite(y[70]) && !isfinite(y[100]) && isfinite(y[0]) && isfinite(y[130]));
    }
}
// The same bits on any number of ranks, close to exact messages, with the planned bytes.
static void quantized(par_comm *w) {
    enum { C = 8 };
    const int n = par_size(w);
    par_comm *alone;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    for (int stage = 2; stage < 4; stage++)
        for (int c = 0; c < 4; c++) {
            const int bits = c ? 8 : 4;
            run exact = plain_run(alone, stage, PAR_ZERO_SGD), one, r;
            exact.desc.canonical_shards = exact.desc.microbatches = C, exact.desc.clip = 0, exact.all = 1;
            one = exact;
            one.desc.quantize_gradients = codes[c];
            one.desc.quantize_parameters = stage < 3 ? 0 : c ? codes[c] : PAR_ZERO_INT8;
            r = one;
            r.desc.comm = w, r.desc.microbatches = C / n;
            float *best = weights_after(w, &exact, 5), *want = weights_after(w, &one, 5);
            float *got = weights_after(w, &r, 5), *initial = weights_after(w, &exact, 0);
            CHECK(w, !memcmp(want, got, TENSORS * CAPACITY * sizeof *got));
            const double bound[4] = {0.15, 0.01, 0.05, 0.1};
            double moved = 0, error = 0;
            for (int i = 0; i < TENSORS * CAPACITY; i++) {
                const double x = (double)(best[i] - initial[i]), e = (double)(got[i] - best[i]);
                moved += x * x, error += e * e;
            }
            CHECK(w, error > 0 && sqrt(error / moved) < bound[c]); // in parts of the weights' way
            CHECK(w, r.plan.buffer_bytes == r.real.buffer_bytes);
            free(best), free(want), free(got), free(initial);
            open_run(w, &r);
            one_step(w, &r, 1);
            for (int u = 0; u < UNITS; u++) CHECK_OK(w, par_wait(&r.z->units[u].param_gather));
            CHECK_OK(w, par_barrier(w));
            par_ledger_reset(w);
            one_step(w, &r, 1);
            for (int u = 0; u < UNITS; u++) CHECK_OK(w, par_wait(&r.z->units[u].param_gather));
            CHECK(w, par_ledger_get(w, PAR_KIND_ALL_TO_ALL).sent_bytes == r.plan.reduce_bytes);
            CHECK(w, par_ledger_get(w, PAR_KIND_ALL_GATHER).sent_bytes == r.plan.gather_bytes);
            CHECK(w, r.plan.reduce_bytes == r.plan.reduce_count / 32 * (bits == 8 ? 34 : 18));
            CHECK_OK(w, par_barrier(w));
            CHECK_OK(w, par_zero_close(r.z));
        }
    CHECK_OK(w, par_close(alone));
}

// ---- tensors in parts: the bits of whole ones -------------------------------------------------------------

// Tensors of 24 x 60, which are neither whole blocks of 256 nor whole Philox blocks of 8 on a rank, and of
// which data-parallel ranks share some.
enum { PART_ROWS = 24, PART_COLS = 60, PART_COUNT = 3, PART_BATCHES = 4 };
typedef struct parts {
    par_zero_desc desc;
    par_zero *z;
    par_shard shard[PART_COUNT];
    int calls;    // of step_parts; the gradient of one element overflows in the second
    int newcomer; // not committed
} parts;
static par_result open_parts(par_comm *w, parts *p, par_comm *comm, par_comm *tp) {
    static const char *const names[PART_COUNT] = {"rows", "cols", "both"};
    p->desc.comm = comm, p->desc.model_parallel_comm = p->desc.tensor_parallel_comm = tp;
    p->desc.canonical_shards = PART_BATCHES, p->desc.microbatches = PART_BATCHES / par_size(comm);
    CHECK_OK(w, par_zero_open(&p->desc, &p->z));
    for (int i = 0; i < PART_COUNT; i++) {
        par_zero_tensor t;
        memset(&t, 0, sizeof t);
        p->shard[i] =
            part_of(i, tp ? (size_t)par_size(tp) : 1, tp ? (size_t)par_rank(tp) : 0, PART_ROWS, PART_COLS);
        t.name = names[i], t.shard = &p->shard[i], t.use_adamw = i == 2;
        if (i != 1) par_zero_add_unit(p->z, names[i]);
        par_zero_add_tensor(p->z, &t); // par_zero_commit has its error
    }
    if (p->newcomer) return PAR_OK;
    const par_result r = par_zero_commit(p->z);
    for (int i = 0; i < PART_COUNT && !r; i++)
        CHECK_OK(w, par_zero_fill(p->z, i, PAR_ZERO_VALUE, give_start, &i));
    return r;
}
static void step_parts(par_comm *w, parts *p) {
    float value[PART_ROWS * PART_COLS];
    par_zero_report report;
    const int overflows = ++p->calls == 2;
    for (int j = 0; j < p->desc.microbatches; j++)
        for (int unit = 1; unit >= 0; unit--) {
            const uint64_t batch = par_zero_global_microbatch(p->z, j), step = par_zero_steps(p->z);
            CHECK_OK(w, par_zero_backward_begin(p->z, unit));
            for (int t = unit ? 2 : 0; t < (unit ? 3 : 2); t++) {
                const size_t n = p->shard[t].shape[0] * p->shard[t].shape[1];
                float *g = par_zero_grad(p->z, t);
                par_cast(value, PAR_F32, par_zero_data(p->z, t), p->desc.param_dtype, n);
                for (size_t i = 0, whole; i < n; i++) {
                    par_shard_find(&p->shard[t], i, &whole, NULL);
                    g[i] += par_zero_loss_scale(p->z) * (slope(t, batch, step, whole) + 0.05f * value[i]);
                    if (overflows && batch == 2 && t == 1 && whole == 37) g[i] = INFINITY;
                }
            }
            CHECK_OK(w, par_zero_backward_end(p->z, unit));
        }
    CHECK_OK(w, par_zero_step(p->z, 1, &report));
    CHECK(w, report.skipped == overflows && report.grad_norm > (double)p->desc.clip);
    CHECK(w, report.loss_scale == (p->calls < 2 ? 64 : p->calls < 4 ? 32 : 64) || p->calls > 4);
}
static void same_parts(par_comm *w, const parts *one, const parts *p, const char *what) {
    float want[PART_ROWS * PART_COLS], got[PART_ROWS * PART_COLS];
    for (int t = 0; t < PART_COUNT; t++)
        for (int field = PAR_ZERO_VALUE; field <= PAR_ZERO_EMA; field++) {
            const size_t n = p->shard[t].shape[0] * p->shard[t].shape[1];
            size_t wrong = 0;
            if (field == PAR_ZERO_GRADIENT) continue;
            CHECK_OK(w, par_zero_read(one->z, t, (par_zero_field)field, want));
            CHECK_OK(w, par_zero_read(p->z, t, (par_zero_field)field, got));
            for (size_t i = 0, whole; i < n; i++) {
                par_shard_find(&p->shard[t], i, &whole, NULL);
                wrong += memcmp(&want[whole], &got[i], sizeof *got) != 0;
            }
            __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
            if (wrong) test_fail(__FILE__, __LINE__, par_rank(w), "the same bits", what);
        }
}
// Steps on a grid of n / t x t ranks, a checkpoint of it, and steps from there on it and on one rank.
static void grid_of_parts(par_comm *w, const par_zero_desc *desc, int t, par_comm *alone, const char *what) {
    par_comm *comm, *tp;
    parts one, p, q;
    par_zero_plan plan;
    char dir[256];
    memset(&p, 0, sizeof p);
    p.desc = *desc, one = q = p;
    CHECK_OK(w, par_split(w, par_rank(w) % t, 0, &comm));
    CHECK_OK(w, par_split(w, par_rank(w) / t, 0, &tp));
    CHECK_OK(w, open_parts(w, &one, alone, NULL));
    CHECK_OK(w, open_parts(w, &p, comm, tp));
    for (int i = 0; i < 3; i++) step_parts(w, &one), step_parts(w, &p);
    same_parts(w, &one, &p, what);
    CHECK_OK(w, par_zero_plan_of(p.z, &plan));
    CHECK(w, plan.state_bytes == par_zero_allocated(p.z).state_bytes);
    CHECK(w, plan.buffer_bytes == par_zero_allocated(p.z).buffer_bytes);
    scratch_memory(w, dir, sizeof dir);
    par_zero_checkpoint files = files_of(w, dir);
    CHECK_OK(w, par_zero_save(p.z, &files));
    CHECK_OK(w, par_zero_close(p.z));
    CHECK_OK(w, open_parts(w, &p, comm, tp));
    CHECK_OK(w, par_zero_load(p.z, &files));
    CHECK_OK(w, open_parts(w, &q, alone, NULL));
    files.comm = alone;
    CHECK_OK(w, par_zero_load(q.z, &files));
    step_parts(w, &one), step_parts(w, &p), step_parts(w, &q);
    same_parts(w, &one, &p, what);
    same_parts(w, &one, &q, what);
    parts *const all[] = {&one, &p, &q};
    for (int i = 0; i < 3; i++) CHECK_OK(w, par_zero_close(all[i]->z));
    CHECK_OK(w, par_close(tp));
    CHECK_OK(w, par_close(comm));
    remove_dir(w, dir);
}
static void canonical_parts(par_comm *w) {
    static const struct {
        par_zero_optimizer optimizer;
        par_dtype state, param;
        int stage;
    } cases[] = {{PAR_ZERO_ADAMW, PAR_U8, PAR_BF16, 2},   {PAR_ZERO_MUON, PAR_U8, PAR_F32, 3},
                 {PAR_ZERO_ADAMW, PAR_BF16, PAR_BF16, 1}, {PAR_ZERO_LAMB, PAR_BF16, PAR_F32, 2},
                 {PAR_ZERO_MUON, PAR_BF16, PAR_BF16, 0},  {PAR_ZERO_LION, PAR_U8, PAR_F32, 0},
                 {PAR_ZERO_LAMB, PAR_U8, PAR_BF16, 3},    {PAR_ZERO_SGD, PAR_U8, PAR_F32, 1}};
    par_comm *alone;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int t = 2; t <= par_size(w); t *= 2) {
            char what[80];
            par_zero_desc d;
            d = sum_desc();
            d.optimizer = cases[c].optimizer, d.state_dtype = cases[c].state, d.param_dtype = cases[c].param;
            d.stage = cases[c].stage, d.parameter_server = c == 5, d.stochastic_rounding = 1;
            d.hyper[0].lr = 0.01f, d.hyper[0].weight_decay = 0.1f, d.hyper[0].momentum = 0.9f;
            d.clip = 0.5f, d.loss_scale = 64, d.loss_scale_window = 2, d.ema = 0.5f, d.seed = 3;
            snprintf(what, sizeof what, "%s, %s moments, tp %d", par_zero_optimizer_name(d.optimizer),
                     par_dtype_name(d.state_dtype), t);
            grid_of_parts(w, &d, t, alone, what);
        }
    for (int i = 0; i < 2; i++) { // nobody has the other parts; the others have the same part
        const par_shard half = part_of(1, 2, 0, PART_ROWS, PART_COLS);
        par_zero_tensor t;
        par_zero_desc d;
        par_zero *z;
        d = sum_desc(), memset(&t, 0, sizeof t);
        d.comm = alone, d.canonical_shards = 1, d.optimizer = PAR_ZERO_LAMB;
        d.tensor_parallel_comm = i ? w : NULL, t.name = "half", t.shard = &half;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "unit") == 0 && (par_zero_add_tensor(z, &t) == 0) == i);
        CHECK(w, par_zero_commit(z) == (i ? PAR_ERR_MISMATCH : PAR_ERR_ARGUMENT));
        CHECK(w, says(alone, i ? "each of its 1440 elements once" : "set tensor_parallel_comm"));
        CHECK_OK(w, par_zero_close(z));
    }
    CHECK_OK(w, par_close(alone));
}

// LAMB and Muon without canonical_shards: the updates of whole tensors but for rounding, however tensor
// parallelism splits them. Tensors of one unit: matrices split by rows and by columns, more of them than
// ranks, one of which all ranks have the last two rows, and one that is whole on each.
enum { SPLIT_TENSORS = 6, SPLIT_COLS = 24, SPLIT_MOST = 64 * SPLIT_COLS };
static par_shard split_shard(int tensor, size_t t, size_t r, size_t uneven, size_t *shape) {
    shape[0] = tensor == 4   ? 4 * t + 2
               : tensor == 5 ? 6
                             : 8 * t + (tensor ? 0 : uneven),
    shape[1] = SPLIT_COLS * (tensor == 3 ? t : 1);
    par_shard s = par_shard_whole(shape, 2);
    if (tensor == 3 || tensor == 5) s.runs[0].replicas = (int)t, s.runs[0].replica_id = (int)r;
    if (tensor == 3) { // by columns
        s.shape[1] = SPLIT_COLS, s.runs[0].replicas = 1, s.runs[0].replica_id = 0;
        s.runs[0].count = shape[0] * SPLIT_COLS, s.runs[0].offset = r * SPLIT_COLS;
        s.runs[0].width = SPLIT_COLS, s.runs[0].stride = shape[1];
    } else if (tensor != 5) {
        const size_t own = tensor == 4 ? 4 : 8;
        s.shape[0] = own + (tensor == 4 ? 2 : 0), s.runs[0].count = own * SPLIT_COLS;
        s.runs[0].offset = own * SPLIT_COLS * r;
        if (tensor == 0 && uneven) { // the first rank has more rows
            s.shape[0] += r ? 0 : uneven, s.runs[0].count += r ? 0 : uneven * SPLIT_COLS;
            s.runs[0].offset += r ? uneven * SPLIT_COLS : 0;
        }
        if (tensor == 4) {
            s.run_count = 2, s.runs[1].count = 2 * SPLIT_COLS, s.runs[1].offset = 4 * t * SPLIT_COLS;
            s.runs[1].replicas = (int)t, s.runs[1].replica_id = (int)r;
        }
    }
    return s;
}
static void split_start(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = par_normal(2, *(const uint64_t *)user, first + i);
}
typedef struct split_run {
    par_zero *z;
    par_shard shard[SPLIT_TENSORS];
} split_run;
static split_run split_open(par_comm *w, const par_zero_desc *desc, par_comm *comm, par_comm *tp, size_t t) {
    split_run r;
    par_zero_desc d = *desc;
    d.comm = comm, d.model_parallel_comm = d.tensor_parallel_comm = tp;
    CHECK_OK(w, par_zero_open(&d, &r.z));
    CHECK(w, par_zero_add_unit(r.z, "u") == 0);
    for (int i = 0; i < SPLIT_TENSORS; i++) {
        char name[16];
        size_t shape[2];
        par_zero_tensor x;
        const par_shard part = split_shard(i, t, tp ? (size_t)par_rank(tp) : 0, d.seed, shape);
        memset(&x, 0, sizeof x), snprintf(name, sizeof name, "t%d", i);
        r.shard[i] = tp ? part : par_shard_whole(shape, 2);
        x.name = name, x.shard = &r.shard[i], x.no_decay = i == 1;
        CHECK(w, par_zero_add_tensor(r.z, &x) == i);
    }
    CHECK_OK(w, par_zero_commit(r.z));
    for (int i = 0; i < SPLIT_TENSORS; i++) {
        uint64_t stream = (uint64_t)i;
        CHECK_OK(w, par_zero_fill(r.z, i, PAR_ZERO_VALUE, split_start, &stream));
    }
    return r;
}
static double split_step(par_comm *w, split_run *r) { // the gradient's norm
    par_zero_report report;
    CHECK_OK(w, par_zero_backward_begin(r->z, 0));
    for (int i = 0; i < SPLIT_TENSORS; i++)
        for (size_t k = 0, at; k < r->shard[i].shape[0] * r->shard[i].shape[1]; k++) {
            par_shard_find(&r->shard[i], k, &at, NULL);
            par_zero_grad(r->z, i)[k] += par_normal(3, par_zero_steps(r->z) * 10 + (uint64_t)i, at);
        }
    CHECK_OK(w, par_zero_backward_end(r->z, 0));
    CHECK_OK(w, par_zero_step(r->z, 1, &report));
    return report.grad_norm;
}
static void split_grid(par_comm *w, const par_zero_desc *d, int t, par_comm *alone) {
    static __thread float want[SPLIT_MOST * 8], got[SPLIT_MOST * 8];
    par_comm *comm, *tp;
    par_zero_plan plan;
    CHECK_OK(w, par_split(w, par_rank(w) % t, 0, &comm));
    CHECK_OK(w, par_split(w, par_rank(w) / t, 0, &tp));
    split_run one = split_open(w, d, alone, NULL, (size_t)t), r = split_open(w, d, comm, tp, (size_t)t);
    CHECK_OK(w, par_zero_plan_of(r.z, &plan));
    CHECK(w, plan.buffer_bytes == par_zero_allocated(r.z).buffer_bytes);
    for (int step = 0; step < 3; step++) {
        const double norm = split_step(w, &one);
        CHECK(w, fabs(split_step(w, &r) - norm) < 1e-6 * norm);
    }
    for (int i = 0; i < SPLIT_TENSORS; i++) {
        const size_t n = r.shard[i].shape[0] * r.shard[i].shape[1];
        double worst = 0;
        CHECK_OK(w, par_zero_read(one.z, i, PAR_ZERO_VALUE, want));
        CHECK_OK(w, par_zero_read(r.z, i, PAR_ZERO_VALUE, got));
        for (size_t k = 0, at; k < n; k++) {
            par_shard_find(&r.shard[i], k, &at, NULL);
            worst = test_larger(worst, fabs((double)got[k] - (double)want[at]));
        }
        if (worst > 1e-5)
            fprintf(stderr, "%s, tp %d, stage %d, tensor %d: off by %g\n",
                    par_zero_optimizer_name(d->optimizer), t, d->stage, i, worst);
        CHECK(w, worst <= 1e-5);
    }
    CHECK_OK(w, par_zero_close(one.z));
    CHECK_OK(w, par_zero_close(r.z));
    CHECK_OK(w, par_close(comm));
    CHECK_OK(w, par_close(tp));
}
static void split_updates(par_comm *w) {
    par_comm *alone;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    for (int t = 2; t <= par_size(w); t++)
        for (int i = 0; i < 10; i++) {
            par_zero_desc d;
            memset(&d, 0, sizeof d);
            d.optimizer = i % 2 ? PAR_ZERO_MUON : PAR_ZERO_LAMB, d.stage = i / 2 % 4;
            d.parameter_server = i / 2 == 4, d.seed = d.stage % 2 * 40; // so many rows more on the first rank
            d.hyper[0].lr = 0.1f, d.hyper[0].weight_decay = 0.1f, d.clip = 1;
            if (par_size(w) % t == 0) split_grid(w, &d, t, alone);
        }
    for (int i = 0; i < 4; i++) { // what cannot be
        size_t shape[2];
        const par_shard part = split_shard(i == 3 ? 4 : 0, 2, 0, 0, shape);
        par_zero_tensor t;
        par_zero *z;
        par_zero_desc d = sum_desc();
        memset(&t, 0, sizeof t);
        d.comm = alone, d.optimizer = i % 2 ? PAR_ZERO_LAMB : PAR_ZERO_MUON,
        d.state_dtype = i == 3 ? PAR_U8 : PAR_F32;
        d.tensor_parallel_comm = i < 2 ? NULL : alone, t.name = "part", t.shard = &part;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "u") == 0);
        CHECK(w, (par_zero_add_tensor(z, &t) == 0) == (i == 2));
        CHECK(w, par_zero_commit(z) == (i == 2 ? PAR_ERR_MISMATCH : PAR_ERR_ARGUMENT));
        CHECK(w, says(alone, i < 2 ? "set tensor_parallel_comm to the ranks that have the other parts"
                             : i == 2
                                 ? "tensor part: the ranks of tensor_parallel_comm must have each of its 384"
                                 : "LAMB with moments of 8 bits needs each once"));
        CHECK_OK(w, par_zero_close(z));
    }
    CHECK_OK(w, par_close(alone));
}

// ---- narrow states ----------------------------------------------------------------------------------------

// The loops of every instruction set that this processor has; NULL: there are no more.
static const par__zero_state_loops *state_loops(int isa) {
#if PAR__X86
    static const par__zero_state_loops *const all[] = {
        &par__zero_state_loops_base, &par__zero_state_loops_avx2, &par__zero_state_loops_avx512};
    return isa <= PAR__MIN(par__isa(), 2) ? all[isa] : NULL;
#else
    return isa ? NULL : &par__zero_state_loops_base;
#endif
}
static const par__zero_loops *update_loops(int isa) { // likewise
#if PAR__X86
    static const par__zero_loops *const all[] = {&par__zero_loops_base, &par__zero_loops_avx2,
                                                 &par__zero_loops_avx512};
    return isa <= PAR__MIN(par__isa(), 2) ? all[isa] : NULL;
#else
    return isa ? NULL : &par__zero_loops_base;
#endif
}
// Every instruction set updates each element as its formula says, whatever their number.
PAR__EXACT_BEGIN
static void updates(par_comm *w) {
    enum { N = 700, VALUES = 3 };
    float x[VALUES][N + 1], g[N];
    par_zero_update a;
    memset(&a, 0, sizeof a);
    a.scale = 0.3f, a.trust_ratio = 0.7f, a.bias_correction1 = 1.7f, a.bias_correction2 = 2.3f;
    a.hyper.lr = 0.01f, a.hyper.beta1 = 0.9f, a.hyper.beta2 = 0.99f, a.hyper.epsilon = 1e-8f;
    a.hyper.weight_decay = 0.1f, a.hyper.momentum = 0.8f;
    for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++)
        for (size_t n = 1; n <= N; n = n * 5 / 3 + 1)
            for (int isa = 0; update_loops(isa); isa++) {
                a.optimizer = (par_zero_optimizer)o;
                for (size_t i = 0; i < (N + 1) * VALUES; i++) x[i % VALUES][i / VALUES] = par_normal(3, 9, i);
                for (size_t i = 0; i < N; i++) g[i] = i % 50 ? par_normal(3, 10, i) : 0;
                for (size_t i = 0; i <= N; i++) x[2][i] = i % 60 ? x[2][i] * x[2][i] : 0;
                update_loops(isa)->step(&a, x[0], g, x[1], x[2], n);
                for (size_t i = 0, wrong = 0; i <= n; i++) {
                    par__zero_element e = {par_normal(3, 9, i * VALUES), par_normal(3, 9, i * VALUES + 1),
                                           par_normal(3, 9, i * VALUES + 2)};
                    e.v = i % 60 ? e.v * e.v : 0;
                    if (i < n) par__zero_step_element(a.optimizer, &a, &e, g[i]);
                    wrong += x[0][i] != e.w || x[1][i] != e.m || x[2][i] != e.v;
                    if (i == n) CHECK(w, !wrong);
                }
            }
}
PAR__EXACT_END
// Every code comes back, every number gets a code whose interval has it, and all instruction sets agree.
static void state_codes(par_comm *w) {
    enum { N = 4 * 256 };
    float x[N], y[N], z[N];
    uint8_t packed[4 * 260], again[4 * 260];
    const par__zero_state_loops *l;
    for (int sign = 0; sign < 2; sign++) {
        for (uint32_t k = 0; k < 256; k++) { // numbers rise with the code
            const uint32_t positive = sign ? 127 : 255;
            const float d = par__zero_decode_state(k, sign, 1),
                        scaled = par__zero_decode_state(k, sign, 3e-5f);
            CHECK(w, par__zero_encode_state(d, sign, 1) == k);
            CHECK(w, par__zero_encode_state(scaled, sign, par__zero_state_inverse(3e-5f)) == k);
            CHECK(w, k == 0 || k > positive || d > par__zero_decode_state(k - 1, sign, 1));
            CHECK(w, k <= positive || d == -par__zero_decode_state(k - 128, 1, 1));
        }
        // the published code: 0.55e-6 (e-7 without a sign), 10^-5 (0.325, 0.775), ..., 1
        const double unit = sign ? 1e-6 : 1e-7, want[4] = {0, 0.55 * unit, 3.25 * unit, 7.75 * unit};
        for (uint32_t k = 0; k < 4; k++)
            CHECK(w, fabs((double)par__zero_decode_state(k, sign, 1) - want[k]) <= 1e-6 * want[k]);
        CHECK(w, par__zero_decode_state(sign ? 127 : 255, sign, 0.7f) == 0.7f);
        for (int i = 0; i < N; i++) { // of all magnitudes; one block of zeros
            x[i] = i / 256 == 2 ? 0 : par_normal(3, 1, (uint64_t)i) * ldexpf(1, -((i + i / 256 * 20) % 32));
            if (!sign) x[i] *= x[i];
        }
        par__zero_state_encode_base(sign, x, packed, 4);
        par__zero_state_decode_base(sign, y, packed, 4);
        for (int isa = 0; (l = state_loops(isa)) != NULL; isa++) {
            l->encode(sign, x, again, 4);
            CHECK(w, !memcmp(packed, again, sizeof packed));
            l->decode(sign, z, packed, 4);
            CHECK(w, !memcmp(y, z, sizeof y));
            l->encode(sign, y, again, 4); // the same bytes again
            CHECK(w, !memcmp(packed, again, sizeof packed));
        }
        for (int i = 0; i < N; i++) {
            float scale;
            memcpy(&scale, packed + i / 256 * 260, sizeof scale);
            const float size = fabsf(x[i]), error = fabsf(x[i] - y[i]);
            CHECK(w, size <= scale && (y[i] == 0 || x[i] * y[i] > 0) && (sign || (x[i] > 0) == (y[i] > 0)));
            // half an interval: 0.45 of the decade, and less in the upper ones
            if (size > scale * 0.1f) CHECK(w, error <= scale * (sign ? 0.0142f : 0.0071f));
            if (size > scale * 1e-5f) CHECK(w, error <= 2.3f * size);
        }
    }
}
// Every code with scales that are tiny, 0, large and none; what is no number stays none.
static void state_extremes(par_comm *w) {
    enum { N = 4 * 256 };
    float x[N], y[N], z[N];
    uint8_t packed[4 * 260], again[4 * 260];
    const par__zero_state_loops *l;
    for (uint32_t k = 0; k < N; k++) again[k / 256 * 260 + 4 + k % 256] = (uint8_t)k;
    for (int sign = 0; sign < 2; sign++)
        for (int isa = 0; (l = state_loops(isa)) != NULL; isa++) {
            const float scales[4] = {1e-41f, 0, 3e38f, NAN};
            for (int b = 0; b < 4; b++) memcpy(again + 260 * b, &scales[b], 4);
            l->decode(sign, z, again, 4);
            par__zero_state_decode_base(sign, y, again, 4);
            CHECK(w, !memcmp(y, z, 3 * 256 * sizeof *y) && isnan(y[N - 1]) && isnan(z[N - 1]));
        }
    for (int i = 0; i < N; i++) x[i] = par_normal(3, 2, (uint64_t)i);
    x[5] = INFINITY, x[7] = NAN, x[260] = -INFINITY;
    for (int sign = 0; sign < 2; sign++)
        for (int isa = 0; (l = state_loops(isa)) != NULL; isa++) {
            l->encode(sign, x, packed, 4);
            l->decode(sign, y, packed, 4);
            CHECK(w, !isfinite(y[5]) && !isfinite(y[7]) && !isfinite(y[260]) && isfinite(y[600]));
        }
}
// Rounding at random: every instruction set has the bits of one Philox block after the other, at any length,
// with NaN in any place, where numbers of blocks pass 2^32, and touches nothing behind the end.
static void state_rounding(par_comm *w) {
    enum { N = 300 };
    float x[N];
    uint16_t got[N + 1], want[N + 1];
    const par__zero_loops *l;
    for (size_t n = 0; n <= N; n++)
        for (int isa = 0; (l = update_loops(isa)) != NULL; isa++) {
            const uint64_t seed = 11 + n * 0x1234567890ABu, stream = 12 + n * 0xFEDCBA98765u;
            const uint64_t first = n % 3 ? 24 + 8 * n : 8 * (0xFFFFFFFFu - n % 29);
            for (size_t i = 0; i < N; i++) x[i] = par_normal(3, n, i);
            if (n) x[n / 2] = INFINITY, x[n * 7 / 9] = -INFINITY;
            if (n) x[n * n / 3 % n] = par__bits_to_f32(n % 2 ? 0x7FFFFFFF : 0xFF800001); // NaN
            memset(want, 0xEE, sizeof want), memset(got, 0xEE, sizeof got);
            for (size_t i = 0; i < n; i += 8)
                par__zero_round_eight(want + i, x + i, n - i, seed, stream, first + i);
            par__zero_round_by(l, got, x, n, seed, stream, first);
            CHECK(w, !memcmp(want, got, sizeof want));
        }
}
// Every instruction set has the base one's codes: about the least number of each code, and of all sizes.
static void state_thresholds(par_comm *w) {
    enum { N = 256, ONE = 0x3F800000, STRIDE = 4093 };
    float x[N];
    uint8_t packed[260], again[260];
    for (int sign = 0; sign < 2; sign++)
        for (uint32_t k = 1; k < 256 + ONE / STRIDE / N; k++) {
            uint32_t low = 0, high = ONE; // bits of floats from 0 to 1
            while (k < 256 && low < high) {
                const uint32_t middle = (low + high) / 2;
                if (par__zero_encode_state(par__bits_to_f32(middle), 0, 1) < k)
                    low = middle + 1;
                else
                    high = middle;
            }
            x[0] = 1;
            for (uint32_t i = 1; i < N; i++) {
                const uint32_t bits = k < 256 ? low + i - N / 2 : ((k - 256) * N + i) * STRIDE;
                x[i] = par__bits_to_f32(bits <= ONE ? bits : 0) * (sign && bits % 2 ? -1.0f : 1.0f);
            }
            par__zero_state_encode_base(sign, x, packed, 1);
            for (int isa = 1; state_loops(isa); isa++) {
                state_loops(isa)->encode(sign, x, again, 1);
                CHECK(w, !memcmp(packed, again, sizeof packed));
            }
        }
}
static run narrow_run(par_comm *w, int stage, int o, par_dtype type) {
    run r = plain_run(w, stage, (par_zero_optimizer)o);
    r.desc.state_dtype = type, r.desc.canonical_shards = 8, r.desc.microbatches = 8 / par_size(w);
    return r;
}
// States, and Muon's products: the same bits on any number of ranks and in any stage, close to f32's; the
// planned bytes.
static void narrow_states(par_comm *w) {
    enum { CASES = 7, SHORT = 4 };
    static const struct {
        par_zero_optimizer optimizer;
        par_dtype type, products;
        double bound; // of the distance to the weights of f32, in parts of their way
    } cases[CASES] = {
        {PAR_ZERO_ADAMW, PAR_BF16, PAR_F32, 0.05}, {PAR_ZERO_ADAMW, PAR_U8, PAR_F32, 0.1},
        {PAR_ZERO_LION, PAR_U8, PAR_F32, 0.3}, // takes signs, which flip where a moment is about 0
        {PAR_ZERO_MUON, PAR_U8, PAR_F32, 0.1},     {PAR_ZERO_MUON, PAR_BF16, PAR_F32, 0.05},
        {PAR_ZERO_MUON, PAR_F32, PAR_BF16, 0.02},  {PAR_ZERO_LAMB, PAR_U8, PAR_F32, 0.1}};
    char dir[256], where[300];
    par_comm *alone;
    scratch_memory(w, dir, sizeof dir);
    snprintf(where, sizeof where, "file:%s", dir);
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    for (int c = 0; c < CASES; c++) {
        run exact = narrow_run(alone, 0, (int)cases[c].optimizer, PAR_F32), one = exact;
        one.desc.state_dtype = cases[c].type, one.desc.muon_dtype = cases[c].products;
        float *best = weights_after(w, &exact, SHORT), *want = weights_after(w, &one, SHORT);
        float *initial = weights_after(w, &exact, 0);
        double moved = 0, error = 0;
        for (int i = 0; i < TENSORS * CAPACITY; i++) {
            const double x = (double)(best[i] - initial[i]), e = (double)(want[i] - best[i]);
            moved += x * x, error += e * e;
        }
        CHECK(w, error > 0 && sqrt(error / moved) < cases[c].bound);
        for (int kind = c % 2; kind < WHOLE_COMM; kind += 2) {
            run r = narrow_run(w, variants[kind].stage, (int)cases[c].optimizer, cases[c].type);
            r.desc.parameter_server = variants[kind].parameter_server;
            r.desc.accumulate_unsharded = variants[kind].accumulate_unsharded;
            r.desc.offload_states = kind == 2 ? where : kind == 3 ? "host" : NULL;
            r.desc.muon_dtype = cases[c].products;
            float *got = weights_after(w, &r, SHORT);
            CHECK(w, !memcmp(want, got, TENSORS * CAPACITY * sizeof *got));
            CHECK(w, r.plan.state_bytes == r.real.state_bytes && r.plan.file_bytes == r.real.file_bytes);
            CHECK(w, r.plan.buffer_bytes == r.real.buffer_bytes && r.plan.host_bytes == r.real.host_bytes);
            free(got);
        }
        free(best), free(want), free(initial);
    }
    CHECK_OK(w, par_close(alone));
    remove_dir(w, dir);
}
// u8 states have a quarter of the bytes of f32 states, and a 64th of that for scales; bf16 states half.
static void narrow_bytes(par_comm *w) {
    static const par_dtype types[] = {PAR_F32, PAR_BF16, PAR_U8};
    size_t bytes[3];
    for (int i = 0; i < 3; i++) {
        par_zero *z;
        par_zero_plan plan;
        par_zero_desc d;
        par_zero_tensor t;
        d = sum_desc(), memset(&t, 0, sizeof t);
        d.plan_ranks = 4, d.stage = 1, d.state_dtype = types[i];
        t.name = "w", t.dims = 2, t.shape[0] = t.shape[1] = 4096;
        CHECK_OK(w, par_zero_open(&d, &z));
        par_zero_add_unit(z, "layer"), par_zero_add_tensor(z, &t);
        CHECK_OK(w, par_zero_plan_of(z, &plan));
        bytes[i] = plan.state_bytes;
        CHECK_OK(w, par_zero_close(z));
    }
    CHECK(w, bytes[0] == 4096u * 4096 * 2 && bytes[1] * 2 == bytes[0] && bytes[2] * 256 == bytes[0] * 65);
}
// Any ranks and stage continue to the bit; other dtypes of states convert.
static void narrow_checkpoints(par_comm *w) {
    static const par_dtype types[] = {PAR_F32, PAR_BF16, PAR_U8};
    char dir[256];
    par_comm *alone;
    scratch_memory(w, dir, sizeof dir);
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    for (int from = 1; from < 3; from++) {
        run r = narrow_run(w, from, PAR_ZERO_ADAMW, types[from]);
        par_zero_checkpoint f = files_of(w, dir);
        float a[CAPACITY], b[CAPACITY];
        f.background = from == 2, r.desc.param_dtype = from == 1 ? PAR_BF16 : PAR_F32;
        open_run(w, &r);
        for (int i = 0; i < 3; i++) one_step(w, &r, 1);
        CHECK_OK(w, par_zero_save(r.z, &f));
        run q = r, other[3];
        q.desc.comm = f.comm = alone, q.desc.stage = 3 - from, q.desc.microbatches = 8;
        open_run(w, &q);
        CHECK_OK(w, par_zero_load(q.z, &f));
        for (int to = 0; to < 3; to++) { // the same numbers, or f32's rounded
            other[to] = q, other[to].desc.state_dtype = types[to];
            open_run(w, &other[to]);
            CHECK_OK(w, par_zero_load(other[to].z, &f));
            for (int v = 0; v < 2; v++) {
                const par_zero_field what = v ? PAR_ZERO_MOMENT2 : PAR_ZERO_MOMENT1;
                float largest = 0, worst = 0;
                CHECK_OK(w, par_zero_read(r.z, 2, what, a));
                CHECK_OK(w, par_zero_read(other[to].z, 2, what, b));
                for (size_t i = 0; i < count_of(2); i++)
                    largest = fmaxf(largest, fabsf(a[i])), worst = fmaxf(worst, fabsf(a[i] - b[i]));
                CHECK(w, largest > 0 && worst <= largest * 0.0142f);
                CHECK(w, worst == 0 || (to != from && to != 0));
            }
            CHECK_OK(w, par_zero_close(other[to].z));
        }
        float *want = go_on(w, &r, 3), *got = go_on(w, &q, 3);
        CHECK(w, !memcmp(want, got, TRAIL * sizeof *got));
        free(want), free(got);
    }
    CHECK_OK(w, par_close(alone));
    remove_dir(w, dir);
}

// ---- numbers ----------------------------------------------------------------------------------------------

static void overflow(par_comm *w) { // one rank's gradient is not finite: skipped on all, the scale goes down
    for (int kind = 0; kind < 6; kind++) { // stages, and quantized
        const int stage = kind < 4 ? kind : kind - 2;
        run r = plain_run(w, stage, PAR_ZERO_ADAMW);
        r.desc.quantize_gradients = kind < 4 ? 0 : kind == 4 ? 8 : 4;
        float before[CAPACITY], after[CAPACITY];
        r.desc.param_dtype = r.desc.grad_dtype = PAR_F16, r.desc.loss_scale = 256,
        r.desc.loss_scale_window = 2;
        open_run(w, &r);
        CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, before));
        CHECK_OK(w, par_zero_backward_begin(r.z, 1));
        if (par_rank(w) == par_size(w) - 1)
            ((uint16_t *)(void *)par_zero_grad(r.z, 2))[77] = par_f32_to_f16(INFINITY);
        CHECK_OK(w, par_zero_backward_end(r.z, 1));
        for (int u = 0; u < UNITS; u++)
            if (u != 1) unit_backward(w, &r, u, 0);
        CHECK_OK(w, par_zero_step(r.z, 1, &r.report));
        CHECK(w, r.report.skipped && r.report.loss_scale == 128 && r.report.step == 0);
        CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, after));
        CHECK(w, !memcmp(before, after, count_of(2) * 4));
        for (int i = 0; i < 2; i++) one_step(w, &r, 1);
        CHECK(w, !r.report.skipped && r.report.loss_scale == 256 && r.report.step == 2);
        CHECK_OK(w, par_zero_close(r.z));
    }
}
// The scale doubles up to 2^24 and is halved down to 1, whichever side of these it begins on.
static void loss_scales(par_comm *w) {
    static const struct {
        float first, doubled, halved;
    } rows[] = {{64, 128, 32},
                {0x1p23f, 0x1p24f, 0x1p22f},
                {0x1.8p23f, 0x1p24f, 0x1.8p22f},
                {0x1p24f, 0x1p24f, 0x1p23f},
                {0x1p30f, 0x1p30f, 0x1p29f},
                {1.5f, 3, 1},
                {0.25f, 0.5f, 0.25f}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int overflows = 0; overflows < 2; overflows++) {
            run r = plain_run(w, 1, PAR_ZERO_SGD);
            r.desc.loss_scale = rows[i].first, r.desc.loss_scale_window = 1, r.desc.clip = 1;
            open_run(w, &r);
            CHECK(w, par_zero_loss_scale(r.z) == rows[i].first);
            CHECK_OK(w, par_zero_backward_begin(r.z, 0));
            if (overflows) ((float *)par_zero_grad(r.z, 0))[0] = INFINITY;
            CHECK_OK(w, par_zero_backward_end(r.z, 0));
            for (int u = 1; u < UNITS; u++) unit_backward(w, &r, u, 0);
            CHECK_OK(w, par_zero_step(r.z, 1, &r.report));
            CHECK(w, r.report.skipped == overflows);
            CHECK(w, r.report.loss_scale == (overflows ? rows[i].halved : rows[i].doubled));
            CHECK_OK(w, par_zero_close(r.z));
        }
}
// Steps with and without overflow in any order: the scale after each, by the rule as it is written down, also
// if a checkpoint is loaded in between. `runs` counts steps of the same kind since the last change.
static void scaled_step(par_comm *w, run *r, int overflows) {
    CHECK_OK(w, par_zero_backward_begin(r->z, 0));
    if (overflows) ((float *)par_zero_grad(r->z, 0))[0] = INFINITY;
    CHECK_OK(w, par_zero_backward_end(r->z, 0));
    for (int u = 1; u < UNITS; u++) unit_backward(w, r, u, 0);
    CHECK_OK(w, par_zero_step(r->z, 1, &r->report));
    CHECK(w, r->report.skipped == overflows);
}
static void scales_in_turn(par_comm *w) {
    enum { STEPS = 24 };
    char dir[256];
    scratch_memory(w, dir, sizeof dir);
    for (int window = 1; window <= 3; window++)
        for (int hysteresis = 1; hysteresis <= 3; hysteresis++) {
            const uint64_t number = (uint64_t)(10 * window + hysteresis);
            par_zero_checkpoint f = files_of(w, dir);
            run r = plain_run(w, 1, PAR_ZERO_SGD);
            float scale = 1024;
            int before = -1, runs = 0;
            r.desc.loss_scale = scale, r.desc.loss_scale_window = window;
            r.desc.loss_scale_hysteresis = hysteresis;
            open_run(w, &r);
            for (int step = 0; step < STEPS; step++) {
                const int overflows = par_uniform(9, number, (uint64_t)step / 2 * 2) < .5f; // often twice
                scaled_step(w, &r, overflows);
                runs = overflows == before ? runs + 1 : 1;
                before = overflows;
                if (runs == (overflows ? hysteresis : window)) scale *= overflows ? .5f : 2, runs = 0;
                CHECK(w, r.report.loss_scale == scale && par_zero_loss_scale(r.z) == scale);
                if (step % 5 != 4) continue;
                CHECK_OK(w, par_zero_save(r.z, &f));
                CHECK_OK(w, par_zero_close(r.z));
                open_run(w, &r);
                CHECK_OK(w, par_zero_load(r.z, &f));
            }
            CHECK_OK(w, par_zero_close(r.z));
        }
    remove_dir(w, dir);
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
        par__zero_round_by(&par__zero_loops_base, y, x, N, a.seed, a.stream, 0);
        par_cast(back, PAR_F32, y, PAR_BF16, N);
        for (int i = 0; i < N; i++) {
            CHECK(w, back[i] == 1.0f || back[i] == 1.0078125f);
            sum += ((double)back[i] - 1) / 0.0078125;
        }
    }
    CHECK(w, fabs(sum / (N * TIMES) - 0.3) < 0.005);
    for (int stage = 0; stage < 4; stage++) {
        run r = plain_run(w, stage, PAR_ZERO_ADAMW);
        uint16_t mine[CAPACITY], first[CAPACITY];
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
// An embedding that is also the head: the gradients of both uses are summed over ranks and microbatches, each
// by itself, and joined then, whichever ranks have them.
typedef struct tied_grid {
    int alone;    // one rank has all
    int copies;   // two ranks, or n, have a copy each, as stages have: the first of the embedding's gradients
    int uses;     // a rank has both uses, and keeps their gradients apart
    int replicas; // two ranks, or all of a copy, have the same shards
    int rank, n, copy, copy_count, replica_count;
    par_comm *comm, *replica_comm, *pp;
} tied_grid;
enum { TIED_COUNT = 70 };
static const tied_grid tied_grids[] = {{.alone = 1},
                                       {.copies = 1},
                                       {.uses = 1},
                                       {.copies = 1, .uses = 1},
                                       {.uses = 1, .replicas = 1},
                                       {.copies = 1, .uses = 1, .replicas = 1}};
static tied_grid tied_open(par_comm *w, tied_grid g) {
    g.rank = par_rank(w), g.n = par_size(w);
    g.copy_count = !g.copies ? 1 : g.n % 2 ? g.n : 2;
    g.copy = g.rank % g.copy_count;
    const int data = g.rank / g.copy_count, of = g.n / g.copy_count;
    g.replica_count = !g.replicas ? 1 : of % 2 ? of : 2;
    const int replica = data % g.replica_count, shard = data / g.replica_count;
    CHECK_OK(w, par_split(w, g.alone ? g.rank : replica * g.n + g.copy, g.rank, &g.comm));
    CHECK_OK(w, par_split(w, shard * g.n + g.copy, g.rank, &g.replica_comm));
    CHECK_OK(w, par_split(w, data, g.rank, &g.pp));
    return g;
}
// Adds what `count` ranks from `first` on find in microbatch k. All sums are exact if the embedding's, in
// which a large number comes and goes, is complete when the head's odd number is added.
static void tied_add(const tied_grid *g, float *grad, int head, int first, int count, int k) {
    for (int r = first; r < first + count; r++)
        for (int i = 0; i < TIED_COUNT; i++) {
            const int large = k ? 0 : ((r == 0) - (r == g->n - g->copy_count)) * (1 << 24);
            grad[i] += (float)(head ? 6 * r + (r + k == 0) : 2 * (i + k) + 4 * r + large);
        }
}
static void tied_backward(par_comm *w, const tied_grid *g, par_zero *z, float **grad, int k) {
    const int split = g->copies && !g->uses, first = g->alone ? 0 : split ? g->rank - g->copy : g->rank;
    const int count = g->alone ? g->n : split ? g->copy_count : 1;
    for (int u = 0; u < 2 + g->uses; u++) {
        CHECK_OK(w, par_zero_backward_begin(z, u));
        if (u == 1 && (!split || g->copy == 0)) tied_add(g, par_zero_grad(z, 1), 0, first, count, k);
        CHECK(w, u < 2 || *grad != par_zero_grad(z, 1));
        if (u == 1 + g->uses && (!split || g->copy == g->copy_count - 1))
            tied_add(g, g->uses ? *grad : par_zero_grad(z, 1), 1, first, count, k);
        CHECK_OK(w, par_zero_backward_end(z, u));
    }
}
// The gradient of another weight, whose unit is the first one, and of the tied one; its value after a step.
static par_zero_report tied_step(par_comm *w, const tied_grid *g, int stage, int canonical,
                                 float now[3][TIED_COUNT]) {
    par_zero *z;
    par_zero_desc d;
    par_zero_report report;
    void *data;
    float *grad;
    par_parameter use;
    d = sum_desc();
    d.comm = g->comm, d.replica_comm = g->replicas ? g->replica_comm : NULL;
    d.model_parallel_comm = g->copies ? g->pp : NULL, d.stage = stage, d.seed = 3;
    d.microbatches = 2, d.accumulate_unsharded = stage == 2;
    memset(&use, 0, sizeof use), use.data = &data, use.grad = &grad;
    d.canonical_shards = canonical ? 2 * par_size(g->comm) * g->replica_count : 0;
    CHECK_OK(w, par_zero_open(&d, &z));
    for (int i = 0; i < 2; i++) {
        par_zero_tensor t;
        memset(&t, 0, sizeof t);
        t.name = i ? "tied" : "other", t.dims = 1, t.shape[0] = TIED_COUNT;
        t.tied_comm = i && g->copies ? g->pp : NULL;
        par_shard part = par_shard_whole(t.shape, 1);
        if (g->copies) par_shard_replicate(&part, g->copy_count, g->copy);
        t.shard = &part;
        CHECK(w, par_zero_add_unit(z, i ? "second" : "first") == i && par_zero_add_tensor(z, &t) == i);
    }
    if (g->uses) CHECK(w, par_zero_add_use(z, "use", 1, &use) == 2);
    CHECK_OK(w, par_zero_commit(z));
    CHECK_OK(w, par_zero_init(z, 1, 5, 0.5f, 0));
    for (int k = 0; k < 2; k++) tied_backward(w, g, z, &grad, k);
    CHECK(w, !g->uses || data == par_zero_data(z, 1));
    for (int i = 0; i < 2; i++) CHECK_OK(w, par_zero_read(z, i, PAR_ZERO_GRADIENT, now[i]));
    CHECK_OK(w, par_zero_step(z, 1, &report));
    CHECK_OK(w, par_zero_read(z, 1, PAR_ZERO_VALUE, now[2]));
    CHECK_OK(w, par_zero_close(z));
    return report;
}
static void tied(par_comm *w) {
    const int n = par_size(w), powers = (n & (n - 1)) == 0;
    for (size_t kind = 0; kind < sizeof tied_grids / sizeof *tied_grids; kind++) {
        const tied_grid g = tied_open(w, tied_grids[kind]);
        for (int stage = 0; stage < 4; stage++)
            for (int canonical = 0; canonical <= powers; canonical++) {
                float now[3][TIED_COUNT];
                const par_zero_report report = tied_step(w, &g, stage, canonical, now);
                double squares = 0;
                for (int i = 0; i < TIED_COUNT; i++) {
                    const int sum = n * (4 * i + 2) + 10 * n * (n - 1) + 1;
                    CHECK(w, now[0][i] == 0 && now[1][i] == (float)sum);
                    squares += (double)sum * sum;
                    // the first step of AdamW
                    CHECK(w, fabs(now[2][i] - 0.5f * par_normal(3, 5, (uint64_t)i) + 1e-3) < 1e-5);
                }
                CHECK(w, fabs(report.grad_norm - sqrt(squares)) < 1e-6 * report.grad_norm);
            }
        CHECK_OK(w, par_close(g.comm));
        CHECK_OK(w, par_close(g.replica_comm));
        CHECK_OK(w, par_close(g.pp));
    }
}
// Orders of backward passes that are refused; how many partial sums others need.
static void orders(par_comm *w) {
    static const int good[8] = {0, 4, 2, 6, 1, 5, 3, 7}, twice[8] = {0, 1, 2, 3, 3, 5, 6, 7},
                     out[8] = {0, 1, 2, 8, 4, 5, 6, 7}, in_order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const struct {
        const int *order;
        int stage, error;
        size_t sums;
    } rows[] = {{good, 0, 0, 4}, {in_order, 3, 0, 3}, {twice, 0, 1, 0}, {out, 1, 1, 0}, {good, 2, 1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        par_zero_desc d;
        par_zero_plan plan;
        par_zero_tensor t;
        par_zero *z;
        d = sum_desc(), memset(&t, 0, sizeof t);
        d.comm = w, d.microbatches = d.canonical_shards = 8, d.stage = rows[i].stage;
        t.name = "x", t.dims = 1, t.shape[0] = 5;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "unit") == 0 && par_zero_add_tensor(z, &t) == 0);
        const par_result r = par_zero_set_order(z, 0, rows[i].order);
        CHECK(w, r == (rows[i].error ? PAR_ERR_ARGUMENT : PAR_OK));
        CHECK(w, (par_zero_plan_of(z, &plan) != 0) == rows[i].error);
        CHECK(w, rows[i].error || plan.tree_sum_bytes == rows[i].sums * plan.gradient_bytes);
        CHECK_OK(w, par_zero_close(z));
    }
}
// Parameters as layers describe them: the same as tensors that are added and set one by one.
static void layers_of_stage(par_comm *w, int stage) {
    static const size_t shape[2] = {5, 7};
    const char *names[2] = {"drawn", "ones"};
    par_parameter p[2];
    void *data[2];
    float *grad[2], values[2][35];
    par_zero_desc d;
    par_zero *z;
    d = sum_desc(), memset(p, 0, sizeof p);
    d.comm = w, d.seed = 3, d.stage = stage;
    for (int i = 0; i < 2; i++) {
        p[i].name = names[i], p[i].shard = par_shard_whole(shape, 2);
        p[i].data = &data[i], p[i].grad = &grad[i];
    }
    p[0].deviation = 0.5f, p[0].stream = 9, p[1].value = 1;
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add_layer(z, "none", p, 0) == 0 && par_zero_add_layer(z, "layer", p, 2) == 1);
    CHECK_OK(w, par_zero_commit(z));
    CHECK_OK(w, par_zero_init_all(z));
    CHECK_OK(w, par_zero_backward_begin(z, 1));
    for (int i = 0; i < 2; i++) CHECK(w, data[i] == par_zero_data(z, i) && grad[i] == par_zero_grad(z, i));
    CHECK_OK(w, par_zero_backward_end(z, 1));
    for (int i = 0; i < 2; i++) CHECK_OK(w, par_zero_read(z, i, PAR_ZERO_VALUE, values[i]));
    for (uint64_t i = 0; i < 35; i++)
        CHECK(w, values[0][i] == 0.5f * par_normal(3, 9, i) && values[1][i] == 1);
    CHECK_OK(w, par_zero_close(z));
    CHECK_OK(w, par_zero_open(&d, &z));
    p[1].name = names[0];
    CHECK(w, par_zero_add_layer(z, "layer", p, 2) == -1);
    CHECK(w, par_zero_init_all(z) == PAR_ERR_ARGUMENT && par_zero_commit(z) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_zero_close(z));
}
static void layers(par_comm *w) { // ranks that keep all parameters draw a shard each
    layers_of_stage(w, 0);
    layers_of_stage(w, 3);
}
// Gradients of which some elements are partial sums on the ranks of `tp`: a layer of two tensors, of which
// the second is a matrix, and in a unit of its own a weight with a second use. Each rank adds in each
// microbatch small integers that tell rank, microbatch and element; the sum of the step says which were
// added, and how often.
enum { PARTIAL = 40 };
typedef struct partial_grid {
    par_comm *dp, *tp, *some; // some: as tp, another comm
    int stage, accumulate, canonical, m;
} partial_grid;
static float partial_of(int tp, int dp, int k, int tensor, int i) {
    return (float)(1 + tp * 3 + dp * 17 + k * 5 + tensor + i % 7);
}
// Is element i of a tensor to be summed over tp?
static int is_partial(int tensor, int i) { return tensor == 2 || (tensor == 1 && (i < 9 || i / 5 == 4)); }
static void partial_backward(par_comm *w, const partial_grid *g, par_zero *z, float *const *grad, int k) {
    for (int u = 0; u < 3; u++) { // the last one is the use
        CHECK_OK(w, par_zero_backward_begin(z, u));
        for (int t = 0; t < 4; t++)
            for (int i = 0; (t < 2 ? 0 : t - 1) == u && i < PARTIAL; i++)
                grad[t][i] += partial_of(par_rank(g->tp), par_rank(g->dp), k, t, i);
        CHECK_OK(w, par_zero_backward_end(z, u));
    }
}
static void partial_step(par_comm *w, const partial_grid *g) {
    static const char *const names[4] = {"plain", "mixed", "tied", "use"};
    const int n = par_size(g->dp), t_ranks = par_size(g->tp), me = par_rank(g->tp);
    const size_t shape[2] = {8, 5};
    par_parameter p[4];
    void *data[4];
    float *grad[4], sum[PARTIAL];
    int owned[4] = {0, 0, 0, 0};
    par_zero_desc d;
    par_zero *z;
    d = sum_desc(), memset(p, 0, sizeof p);
    d.comm = g->dp, d.model_parallel_comm = g->tp, d.stage = g->stage, d.microbatches = g->m;
    d.accumulate_unsharded = g->accumulate, d.canonical_shards = g->canonical ? g->m * n : 0;
    for (int i = 0; i < 4; i++) {
        const par_op op = g->canonical ? PAR_TREE_SUM : PAR_SUM;
        const par_partial_sum rows[2] = {{g->tp, op, 0, 9}, {g->some, op, 20, 5}},
                              all = {g->tp, op, 0, PARTIAL};
        p[i].name = names[i], p[i].shard = par_shard_whole(shape, 2), p[i].owned = &owned[i];
        p[i].data = &data[i], p[i].grad = &grad[i];
        if (i == 1) p[i].sums[1] = rows[0], p[i].sums[3] = rows[1];
        if (i >= 2) p[i].sums[0] = all;
    }
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add_layer(z, "layer", p, 2) == 0 && par_zero_add_layer(z, "tied", p + 2, 1) == 1);
    CHECK(w, par_zero_add_use(z, "use", 1, &p[3]) == 2 && !owned[0] && !owned[3]);
    CHECK_OK(w, par_zero_commit(z));
    CHECK(w, owned[0] && owned[1] && owned[2] && owned[3]);
    for (int step = 0; step < 2; step++) {
        for (int k = 0; k < g->m; k++) partial_backward(w, g, z, grad, k);
        for (int i = 0; i < 3; i++) {
            CHECK_OK(w, par_zero_read(z, i, PAR_ZERO_GRADIENT, sum));
            for (int e = 0; e < PARTIAL; e++) {
                float want = 0;
                for (int t = 0; t < t_ranks; t++)
                    for (int r = 0; r < n * g->m && (t == me || is_partial(i, e)); r++)
                        for (int use = 0; use < 1 + (i == 2); use++)
                            want += partial_of(t, r % n, r / n, i + use, e);
                CHECK(w, sum[e] == want);
            }
        }
        CHECK_OK(w, par_zero_step(z, 1, NULL));
    }
    CHECK_OK(w, par_zero_close(z));
}
// Ranks that do not have the same sums are an error at commit, on all ranks; sums that cannot be, when added.
static void bad_sums(par_comm *w, const partial_grid *g) {
    static const struct {
        int of_tp, kind; // who differs: the last rank of tp, or of dp; in what
        const char *text;
    } rows[] = {{0, 0, "tensor w: sums[2].count is 3 on rank %d and 4 on rank "},
                {0, 1, "tensor w: sums[2].op is "},
                {0, 2, "tensor w: sums[2].ranks is "},
                {1, 0, "must have the same ones in the same order"},
                {1, 1, "must have the same ones in the same order"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[100];
        par_zero_tensor t;
        par_zero *z;
        par_zero_desc d;
        par_comm *who = rows[i].of_tp ? g->tp : g->dp;
        const int last = par_rank(who) == par_size(who) - 1;
        if (par_size(who) == 1) continue;
        memset(&t, 0, sizeof t), d = sum_desc();
        d.comm = g->dp, t.name = "w", t.dims = 1, t.shape[0] = 10;
        const par_partial_sum plain = {g->tp, PAR_SUM, 1, 4}, none = {NULL, PAR_SUM, 0, 0};
        t.sums[2] = plain;
        if (last && rows[i].kind == 0) t.sums[2].count = 3;
        if (last && rows[i].kind == 1) t.sums[2].op = PAR_TREE_SUM;
        if (last && rows[i].kind == 2) t.sums[2] = none;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "u") == 0 && par_zero_add_tensor(z, &t) == 0);
        snprintf(want, sizeof want, rows[i].text, par_world_rank(g->dp, par_size(g->dp) - 1));
        CHECK(w, par_zero_commit(z) == PAR_ERR_MISMATCH && says(w, want));
        CHECK_OK(w, par_zero_close(z));
    }
    for (int i = 0; i < 3; i++) { // a rank that has none would not be waited for; a use that has others
        par_parameter use;
        par_zero_tensor t;
        par_zero *z;
        par_zero_desc d = sum_desc();
        memset(&t, 0, sizeof t), memset(&use, 0, sizeof use);
        d.comm = g->dp, d.model_parallel_comm = d.tensor_parallel_comm = g->tp;
        t.name = "w", t.dims = 1, t.shape[0] = 10;
        const par_partial_sum plain = {g->tp, PAR_SUM, 1, 4};
        if (i || par_rank(g->tp) < par_size(g->tp) - 1 || par_size(g->tp) == 1) t.sums[2] = plain;
        if (i == 2) use.sums[2] = plain, use.dtype = PAR_BF16;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "u") == 0 && par_zero_add_tensor(z, &t) == 0);
        if (i) CHECK(w, par_zero_add_use(z, "use", 0, &use) == -1);
        const par_result r = par_zero_commit(z);
        CHECK(w, r == (i ? PAR_ERR_ARGUMENT : par_size(g->tp) == 1 ? PAR_OK : PAR_ERR_MISMATCH));
        CHECK(w,
              !r || says(w, i == 0   ? "or on none, with the same sums"
                            : i == 1 ? "unit use: the gradient of this use needs other sums over ranks than"
                                     : "unit use: its layer does not have f32, and desc.param_dtype is f32"));
        CHECK_OK(w, par_zero_close(z));
    }
}
static void partial_sums(par_comm *w) {
    const int n = par_size(w), r = par_rank(w), powers = (n & (n - 1)) == 0;
    for (int t = 1; t <= n; t++) {
        partial_grid g;
        if (n % t) continue;
        memset(&g, 0, sizeof g);
        CHECK_OK(w, par_split(w, r / t, r, &g.tp));
        CHECK_OK(w, par_split(w, r / t, r, &g.some));
        CHECK_OK(w, par_split(w, r % t, r, &g.dp));
        for (g.stage = 0; g.stage < 4; g.stage++)
            for (g.accumulate = 0; g.accumulate <= (g.stage > 1); g.accumulate++)
                for (g.canonical = 0; g.canonical <= powers; g.canonical++)
                    for (g.m = 1; g.m < 5; g.m *= 2) partial_step(w, &g);
        bad_sums(w, &g);
        CHECK_OK(w, par_close(g.tp));
        CHECK_OK(w, par_close(g.some));
        CHECK_OK(w, par_close(g.dp));
    }
}
static void norms(par_comm *w) { // a tensor that all ranks of model_parallel_comm have counts once
    par_zero *z;
    par_zero_desc d;
    par_zero_tensor own, common;
    par_zero_report report;
    const int n = par_size(w);
    par_comm *alone;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    d = sum_desc(), memset(&own, 0, sizeof own), memset(&common, 0, sizeof common);
    d.comm = alone, d.model_parallel_comm = w, d.optimizer = PAR_ZERO_SGD;
    own.name = "own", own.dims = common.dims = 1, own.shape[0] = 3, common.name = "common",
    common.shape[0] = 5;
    par_shard part = par_shard_whole(common.shape, 1);
    part.run_count = 2, part.runs[0].count = 2, part.runs[0].replicas = n;
    part.runs[1].count = 3, part.runs[1].offset = 2, common.shard = &part;
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add_unit(z, "all") == 0 && par_zero_add_tensor(z, &own) == 0 &&
                 par_zero_add_tensor(z, &common) == 1);
    CHECK_OK(w, par_zero_commit(z));
    CHECK_OK(w, par_zero_backward_begin(z, 0));
    for (int i = 0; i < 3; i++) par_zero_grad(z, 0)[i] = 2;
    for (int i = 0; i < 5; i++) par_zero_grad(z, 1)[i] = 3;
    CHECK_OK(w, par_zero_backward_end(z, 0));
    float g[5];
    CHECK_OK(w, par_zero_read(z, 1, PAR_ZERO_GRADIENT, g));
    CHECK(w, g[4] == 3);
    CHECK_OK(w, par_zero_step(z, 1, &report));
    CHECK(w, fabs(report.grad_norm - sqrt(12.0 * n + 18 + 27.0 * n)) < 1e-9 * n);
    CHECK_OK(w, par_zero_close(z));
    CHECK_OK(w, par_close(alone));
}
// What GRADIENT and report.norm hold: the mean and clipping apply to the update alone.
static void contents(par_comm *w) {
    const int n = par_size(w), m = 2;
    for (int stage = 0; stage < 4; stage++)
        for (int mean = 0; mean < 2; mean++) {
            par_zero_desc d;
            par_zero_tensor t;
            par_zero *z;
            par_zero_report report;
            float g[3], x[3];
            d = sum_desc(), memset(&t, 0, sizeof t);
            d.comm = w, d.stage = stage, d.microbatches = m,
            d.reduction = mean ? PAR_ZERO_MEAN : PAR_ZERO_SUM, d.loss_scale = 4, d.clip = 0.5f;
            d.optimizer = PAR_ZERO_SGD, d.hyper[0].lr = 1;
            t.name = "w", t.dims = 1, t.shape[0] = 3;
            CHECK_OK(w, par_zero_open(&d, &z));
            CHECK(w, par_zero_add_unit(z, "layer") == 0 && par_zero_add_tensor(z, &t) == 0);
            CHECK_OK(w, par_zero_commit(z));
            for (int j = 0; j < m; j++) {
                CHECK_OK(w, par_zero_backward_begin(z, 0));
                for (int i = 0; i < 3; i++)
                    par_zero_grad(z, 0)[i] += 4 * (float)(i + 1); // with the loss scale
                CHECK_OK(w, par_zero_backward_end(z, 0));
            }
            const double norm = sqrt(14.0) * (mean ? 1 : m * n);
            CHECK_OK(w, par_zero_read(z, 0, PAR_ZERO_GRADIENT, g));
            for (int i = 0; i < 3; i++) CHECK(w, g[i] == 4 * (float)((i + 1) * m * n));
            CHECK_OK(w, par_zero_step(z, 1, &report));
            CHECK(w, fabs(report.grad_norm - norm) < 1e-6 * norm && !report.skipped);
            CHECK_OK(w, par_zero_read(z, 0, PAR_ZERO_VALUE, x));
            for (int i = 0; i < 3; i++) CHECK(w, fabs((double)x[i] + 0.5 * (i + 1) / sqrt(14.0)) < 1e-6);
            CHECK(w, par_zero_read(z, 0, PAR_ZERO_GRADIENT, g) == PAR_ERR_ARGUMENT); // the next step's
            CHECK_OK(w, par_zero_close(z));
        }
}
static void schedules(par_comm *w) {
    const par_zero_lr_schedule c = {4, 104, 0, 0.1f, PAR_ZERO_COSINE}, l = {0, 10, 0, 0, PAR_ZERO_LINEAR};
    const par_zero_lr_schedule s = {2, 100, 20, 0.5f, PAR_ZERO_WSD}, k = {1, 0, 0, 0, PAR_ZERO_CONSTANT};
    CHECK(w, par_zero_lr_factor(&c, 0) == 0.2f && par_zero_lr_factor(&c, 3) == 0.8f &&
                 par_zero_lr_factor(&c, 4) == 1);
    CHECK(w, fabsf(par_zero_lr_factor(&c, 54) - 0.55f) < 1e-6f && par_zero_lr_factor(&c, 104) == 0.1f);
    CHECK(w, par_zero_lr_factor(&l, 0) == 1 && fabsf(par_zero_lr_factor(&l, 4) - 0.6f) < 1e-6f &&
                 par_zero_lr_factor(&l, 99) == 0);
    CHECK(w, par_zero_lr_factor(&s, 79) == 1 && fabsf(par_zero_lr_factor(&s, 90) - 0.75f) < 1e-6f);
    CHECK(w, par_zero_lr_factor(&k, 0) == 0.5f && par_zero_lr_factor(&k, 1000000) == 1);
}

// ---- mistakes ---------------------------------------------------------------------------------------------

static void expect_error(par_comm *w, par_result r, const char *mistake, const char *text) {
    char why[1300];
    __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
    if (r == PAR_ERR_ARGUMENT && says(w, text)) return;
    snprintf(why, sizeof why, "not \"%s\", but %s: %s", text, par_result_name(r), par_last_error(w));
    test_fail(__FILE__, __LINE__, par_rank(w), mistake, why);
}
static void wrong_order(par_comm *w) { // units of one size: an error on all ranks that names both
    for (int stage = 2; stage < 4; stage++) {
        par_zero *z;
        par_zero_desc d;
        par_zero_tensor t;
        const int odd = par_rank(w) == par_size(w) - 1;
        d = sum_desc(), memset(&t, 0, sizeof t);
        d.comm = w, d.stage = stage, t.dims = 1, t.shape[0] = 100;
        CHECK_OK(w, par_zero_open(&d, &z));
        for (int i = 0; i < 4; i++) {
            static const char *const names[4] = {"fig", "apple", "pear", "plum"};
            t.name = names[i];
            CHECK(w, par_zero_add_unit(z, names[i]) == i && par_zero_add_tensor(z, &t) == i);
        }
        CHECK_OK(w, par_zero_commit(z));
        par_result r = PAR_OK;
        for (int i = 0; i < 8 && !r; i++) { // begin and end of each
            const int u = odd ? i / 2 ^ 2 : i / 2;
            if (stage == 3) r = i % 2 ? par_zero_forward_end(z, u) : par_zero_forward_begin(z, u);
            if (stage == 2) r = i % 2 ? par_zero_backward_end(z, u) : par_zero_backward_begin(z, u);
        }
        if (!r) r = par_zero_step(z, 1, NULL);
        CHECK(w, r == PAR_ERR_MISMATCH);
        CHECK(w, (says(w, "of unit fig") && (says(w, "of unit pear") || says(w, "of unit apple"))) ||
                     (says(w, "of unit apple") && says(w, "of unit plum"))); // whichever is seen first
        CHECK(w, says(w, "tests/test_zero.c:") && !says(w, "par_zero.h"));
        CHECK_OK(w, par_barrier(w));
        par_zero_close(z); // its calls in flight have failed
    }
}
// X(mistake in a desc d of stage 3, a part of the error's text)
#define BAD_DESCS(X)                                                                                         \
    X(d.hyper[0].lr = 0, "hyper[0].lr is 0: give it a learning rate (below 0: 0)")                           \
    X(d.hyper[0].lr = NAN, "hyper[0].lr is nan")                                                             \
    X(d.hyper[3].weight_decay = 0.1f, "hyper[3].lr is 0: give it a learning rate (below 0: 0); a group")     \
    X(d.hyper[7].nesterov = 1, "hyper[7].lr is 0")                                                           \
    X(d.reduction = (par_zero_reduction)2, "reduction must be PAR_ZERO_MEAN or PAR_ZERO_SUM, and is 2")      \
    X(d.canonical_shards = 3 * par_size(w), "canonical_shards")                                              \
    X(d.stage = 7, "stage must be")                                                                          \
    X(d.state_dtype = PAR_F16, "state_dtype must be f32, bf16 or u8")                                        \
    X(d.muon_dtype = PAR_F16, "muon_dtype must be f32 or bf16")                                              \
    X(d.stage = 2; d.offload_parameters = "host", "stage 3")                                                 \
    X(d.stage = 2; d.quantize_parameters = 8, "quantize_parameters")                                         \
    X(d.stage = 2; d.quantize_gradients = 5, "quantize_gradients")                                           \
    X(d.stage = 2; d.offload_states = "disk", "file:DIR")                                                    \
    X(d.stage = 1; d.parameter_server = 1, "parameter_server")
static void bad_descs(par_comm *w) {
    par_zero_desc d;
    par_zero *z;
#define X(mistake, text)                                                                                     \
    d = plain_run(w, 3, PAR_ZERO_ADAMW).desc;                                                                \
    mistake;                                                                                                 \
    expect_error(w, par_zero_open(&d, &z), #mistake, text);
    BAD_DESCS(X)
#undef X
}
static void mistakes(par_comm *w) {
    run r = plain_run(w, 3, PAR_ZERO_ADAMW);
    open_run(w, &r);
    CHECK(w, par_zero_data(r.z, 0) == NULL && par_zero_grad(r.z, 0) == NULL);
    CHECK(w, par_zero_forward_end(r.z, 1) == PAR_ERR_ARGUMENT && says(w, "unit first was not begun"));
    CHECK(w, par_zero_forward_begin(r.z, 9) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_zero_forward_begin(r.z, 0));
    CHECK_OK(w, par_zero_forward_begin(r.z, 1));
    CHECK(w, par_zero_forward_begin(r.z, 3) == PAR_ERR_ARGUMENT && says(w, "max_gathered_units"));
    CHECK(w, par_zero_step(r.z, 1, NULL) == PAR_ERR_ARGUMENT && says(w, "was begun and not ended"));
    CHECK_OK(w, par_zero_forward_end(r.z, 0));
    CHECK_OK(w, par_zero_forward_end(r.z, 1));
    CHECK_OK(w, par_zero_backward_begin(r.z, 1));
    CHECK_OK(w, par_zero_backward_end(r.z, 1));
    CHECK(w, par_zero_backward_begin(r.z, 1) == PAR_ERR_ARGUMENT && says(w, "microbatches"));
    CHECK(w, par_zero_step(r.z, 1, NULL) == PAR_ERR_ARGUMENT);
    CHECK(w, says(w, "par_zero_step: unit embedding has had 0 of the step's 1 backward passes"));
    for (int u = 0; u < UNITS; u++)
        if (u != 1) unit_backward(w, &r, u, 0);
    CHECK_OK(w, par_zero_step(r.z, 1, NULL));
    CHECK(w, par_zero_add_unit(r.z, "late") == -1 && says(w, "unit late was added after par_zero_commit"));
    CHECK_OK(w, par_zero_close(r.z));
    bad_descs(w);
}
// What was gathered ahead, and not used, before a step is gathered again after it.
static void gathered_before(par_comm *w) {
    float value[CAPACITY];
    char dir[256], file[300];
    scratch_memory(w, dir, sizeof dir);
    snprintf(file, sizeof file, "file:%s", dir);
    for (int offload = 0; offload < 2; offload++) {
        run r = plain_run(w, 3, PAR_ZERO_ADAMW);
        r.desc.max_gathered_units = 3;
        r.desc.offload_parameters = offload ? file : NULL;
        open_run(w, &r);
        one_step(w, &r, 1);
        for (int u = UNITS - 1; u >= 0; u--) unit_backward(w, &r, u, 0);
        CHECK_OK(w, par_zero_forward_begin(r.z, 0)); // gathers unit 1, too
        CHECK_OK(w, par_zero_forward_end(r.z, 0));
        CHECK_OK(w, par_zero_step(r.z, 1, NULL));
        CHECK_OK(w, par_zero_forward_begin(r.z, 1));
        CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, value));
        CHECK(w, shapes[2].unit == 1 && !memcmp(value, par_zero_data(r.z, 2), count_of(2) * sizeof *value));
        CHECK_OK(w, par_zero_forward_end(r.z, 1));
        CHECK_OK(w, par_zero_close(r.z));
    }
    remove_dir(w, dir);
}
static void few_passes(par_comm *w) { // than `microbatches`, of a unit with gradients: an error, and no step
    float g[CAPACITY], before[CAPACITY], after[CAPACITY];
    for (int stage = 0; stage < 4; stage++) {
        run r = plain_run(w, stage, PAR_ZERO_ADAMW);
        r.desc.microbatches = 3;
        open_run(w, &r);
        CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, before));
        CHECK(w, !par_zero_data(r.z, -1) && !par_zero_grad(r.z, -1) && !par_zero_data(r.z, 99) &&
                     !par_zero_grad(r.z, 99)); // -1, an error of par_zero_add_tensor, is no tensor
        for (int j = 0; j < 2; j++)
            for (int u = 0; u < UNITS; u++) unit_backward(w, &r, u, (uint64_t)j);
        for (int u = 0; u < UNITS; u++) {
            char want[100];
            snprintf(want, sizeof want, "unit %s has had 2 of the step's 3 backward passes",
                     u == 0   ? "embedding"
                     : u == 1 ? "first"
                     : u == 2 ? "spare"
                              : "second");
            CHECK(w, par_zero_step(r.z, 1, NULL) == PAR_ERR_ARGUMENT && says(w, want));
            CHECK(w, par_zero_read(r.z, 2, PAR_ZERO_GRADIENT, g) == PAR_ERR_ARGUMENT && says(w, want));
            unit_backward(w, &r, u, 2);
        }
        CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, after));
        CHECK(w, !memcmp(before, after, count_of(2) * sizeof *after));
        CHECK_OK(w, par_zero_step(r.z, 1, NULL));
        CHECK_OK(w, par_zero_close(r.z));
    }
    par_zero *z; // a unit whose tensors are all frozen needs none
    par_zero_desc d;
    par_zero_tensor t;
    d = sum_desc(), memset(&t, 0, sizeof t);
    d.comm = w, d.stage = 2, t.dims = 1, t.shape[0] = 5;
    CHECK_OK(w, par_zero_open(&d, &z));
    for (int i = 0; i < 2; i++) {
        t.name = i ? "frozen" : "trained", t.frozen = i;
        CHECK(w, par_zero_add_unit(z, t.name) == i && par_zero_add_tensor(z, &t) == i);
    }
    CHECK_OK(w, par_zero_commit(z));
    CHECK_OK(w, par_zero_backward_begin(z, 0));
    CHECK_OK(w, par_zero_backward_end(z, 0));
    CHECK_OK(w, par_zero_step(z, 1, NULL));
    CHECK_OK(w, par_zero_close(z));
}

// A context with one unit or with none, and a tensor t to add.
static par_zero *fresh(par_comm *w, int units, par_zero_tensor *t) {
    par_zero_desc d;
    par_zero *z = NULL;
    d = sum_desc(), memset(t, 0, sizeof *t);
    d.comm = w, t->name = "w", t->dims = 1, t->shape[0] = 10;
    CHECK_OK(w, par_zero_open(&d, &z));
    if (units) CHECK(w, par_zero_add_unit(z, "layer") == 0);
    return z;
}
static void refused(par_comm *w, par_zero *z, const par_zero_tensor *t, const char *mistake,
                    const char *text) { // when it is added, by the plan, and by commit on all ranks
    par_zero_plan plan;
    CHECK(w, par_zero_add_tensor(z, t) == -1 && says(w, "par_zero_add_tensor: ") && says(w, text));
    expect_error(w, par_zero_plan_of(z, &plan), mistake, text);
    expect_error(w, par_zero_commit(z), mistake, text);
    CHECK(w, says(w, "par_zero_commit: ") && says(w, "on rank 0, ") == (par_size(w) > 1));
    CHECK_OK(w, par_zero_close(z));
}
// X(mistake in a tensor t of one run `part`, a part of the error's text)
#define BAD_TENSORS(X)                                                                                       \
    X(t.name = NULL, "tensor number 0, of unit layer, has no name")                                          \
    X(t.name = "", "tensor number 0, of unit layer, has no name")                                            \
    X(t.name = "__metadata__", "this name is reserved by safetensors")                                       \
    X(t.name = long_name, "its name has 160 bytes, more than 159")                                           \
    X(t.dims = 0, "tensor w of unit layer: dims is 0, and must be 1 to 4")                                   \
    X(t.dims = 5, "tensor w of unit layer: dims is 5, and must be 1 to 4")                                   \
    X(t.group = PAR_ZERO_MAX_GROUPS, "tensor w of unit layer: group is 8, and must be 0 to 7")               \
    X(t.group = -1, "tensor w of unit layer: group is -1")                                                   \
    X(t.dims = 3; t.shape[0] = t.shape[1] = t.shape[2] = (size_t)1 << 24, "its shape is too large")          \
    X(t.shard = &part; part.run_count = 9, "run_count must be 0 to 8")                                       \
    X(t.shard = &part;                                                                                       \
      part.runs[0].count--, "tensor w of unit layer: the counts of its runs do not add up to its elements")  \
    X(t.shard = &part; part.runs[0].offset = 1, "tensor w of unit layer: a run exceeds the global tensor")
static void many_names(par_comm *w) { // the context copies names, and finds one among many
    char name[32];
    par_zero_tensor t;
    par_zero *z = fresh(w, 1, &t);
    t.name = name;
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "t%d", i);
        CHECK(w, par_zero_add_tensor(z, &t) == i);
        if (i % 100 == 0) CHECK(w, par_zero_add_unit(z, "another") == i / 100 + 1);
    }
    snprintf(name, sizeof name, "t1234");
    refused(w, z, &t, "a name that is there", "tensor t1234 of unit another: unit another");
    z = fresh(w, 1, &t);
    CHECK(w, par_zero_add_tensor(z, &t) == 0);
    t.name = "w.exp_avg";
    CHECK(w, par_zero_add_tensor(z, &t) == 1);
    CHECK(w, par_zero_commit(z) == PAR_ERR_ARGUMENT && says(w, "tensor w.exp_avg has the name under which"));
    CHECK_OK(w, par_zero_close(z));
}
static void bad_tensor_of_one_rank(par_comm *w) { // is an error of all; in a hybrid, too
    const int last = par_size(w) - 1;
    char text[100];
    par_zero_tensor t;
    par_zero_desc d;
    par_zero *z = fresh(w, 1, &t);
    par_comm *inner, *outer;
    t.dims = par_rank(w) == last ? 0 : 1;
    CHECK(w, par_zero_add_tensor(z, &t) == (t.dims ? 0 : -1));
    expect_error(w, par_zero_commit(z), "one rank's dims", "tensor w of unit layer: dims is 0");
    CHECK_OK(w, par_zero_close(z));
    if (par_size(w) < 4 || par_size(w) % 2) return;
    d = sum_desc();
    CHECK_OK(w, par_split(w, par_rank(w) / 2, 0, &inner));
    CHECK_OK(w, par_split(w, par_rank(w) % 2, 0, &outer));
    d.comm = inner, d.replica_comm = outer;
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add_unit(z, "layer") == 0 && par_zero_add_tensor(z, &t) == (t.dims ? 0 : -1));
    snprintf(text, sizeof text, "on rank %d, tensor w of unit layer: dims is 0", last);
    expect_error(w, par_zero_commit(z), "one rank's dims", text);
    CHECK_OK(w, par_zero_close(z));
    CHECK_OK(w, par_close(inner));
    CHECK_OK(w, par_close(outer));
}
static void bad_tensors(par_comm *w) {
    char long_name[161];
    par_zero_tensor t;
    par_zero *z = fresh(w, 0, &t);
    par_shard part;
    refused(w, z, &t, "no unit", "tensor w was added before the first unit: call par_zero_add_unit");
    memset(long_name, 'n', sizeof long_name), long_name[160] = 0;
#define X(mistake, text)                                                                                     \
    z = fresh(w, 1, &t), part = par_shard_whole(t.shape, t.dims);                                            \
    mistake;                                                                                                 \
    refused(w, z, &t, #mistake, text);
    BAD_TENSORS(X)
#undef X
    many_names(w);
    bad_tensor_of_one_rank(w);
}
static void said_so(const char *text, char *said, size_t capacity) { // what goes to stderr
    par_zero_desc d;
    par_zero *z;
    int ends[2];
    d = sum_desc(), memset(said, 0, capacity);
    const int saved = dup(2);
    if (pipe(ends) || saved < 0) return;
    dup2(ends[1], 2);
    const par_result r = par_zero_open(&d, &z);
    dup2(saved, 2), close(ends[1]), close(saved);
    if (r != PAR_ERR_ARGUMENT || read(ends[0], said, capacity - 1) < (ssize_t)strlen(text)) said[0] = 0;
    close(ends[0]);
}
static void without_comm(par_comm *w) { // an error has a text, too
    char said[400];
    CHECK(w, strstr(par_zero_optimizer_suggest("Adam-W").text, "mean adamw?") &&
                 strstr(par_zero_optimizer_suggest("muno").text, "mean muon?"));
    said_so("desc.comm is NULL", said, sizeof said);
    CHECK(w, strstr(said, "par_zero_open: desc.comm is NULL") && strstr(said, "plan_ranks"));
}
// X(what is different on the last rank, the error on all ranks)
typedef struct setup {
    par_zero_desc desc;
    par_zero_tensor second; // the first tensor is the same on all ranks
    int own_unit, missing;  // the second tensor is in a unit of its own; it is not there
    int more_units;         // there is another unit, without a tensor; 2: and it is a use
} setup;
#define DIFFERENCES(X)                                                                                       \
    X(s.desc.stage = 1, "desc.stage is 1 on rank %d and 2 on rank 0")                                        \
    X(s.desc.optimizer = PAR_ZERO_LAMB, "desc.optimizer is lamb on rank %d and adamw on rank 0")             \
    X(s.desc.microbatches = 2, "desc.microbatches is 2 on rank %d and 1 on rank 0")                          \
    X(s.desc.hyper[1].lr = 0.25f, "desc.hyper[1].lr is 0.25 on rank %d and 0.00999999978 on rank 0")         \
    X(s.desc.grad_dtype = PAR_BF16, "desc.grad_dtype is bf16 on rank %d and f32 on rank 0")                  \
    X(s.desc.state_dtype = PAR_U8, "desc.state_dtype is u8 on rank %d and f32 on rank 0")                    \
    X(s.second.name = "other", "tensor number 1 has the name other on rank %d and second on rank 0")         \
    X(s.second.group = 1, "tensor second: group is 1 on rank %d and 0 on rank 0")                            \
    X(s.second.shape[0] = 24;                                                                                \
      s.second.shape[1] = 6, "tensor second: shape[0] is 24 on rank %d and 12 on rank 0")                    \
    X(s.own_unit = 1, "tensor second: unit is 1 on rank %d and 0 on rank 0")                                 \
    X(s.more_units = 1, "the number of units is 2 with 0 uses")                                              \
    X(s.more_units = 2, "tensor second is on rank 0, and not on rank %d")                                    \
    X(s.missing = 1, "tensor second is on rank 0, and not on rank %d")
static void expect_mismatch(par_comm *w, const setup *s, const char *text) {
    char want[300];
    par_zero_tensor first;
    par_zero *z;
    memset(&first, 0, sizeof first);
    first.name = "first", first.dims = 2, first.shape[0] = first.shape[1] = 12;
    CHECK_OK(w, par_zero_open(&s->desc, &z));
    CHECK(w, par_zero_add_unit(z, "layer") == 0);
    CHECK(w, par_zero_add_tensor(z, &first) == 0);
    if (s->own_unit) CHECK(w, par_zero_add_unit(z, "more") == 1);
    if (!s->missing && s->more_units < 2) CHECK(w, par_zero_add_tensor(z, &s->second) == 1);
    if (s->more_units == 1) CHECK(w, par_zero_add_unit(z, "more") == 1);
    if (s->more_units == 2) CHECK(w, par_zero_add_use(z, "more", 0, NULL) == 1);
    snprintf(want, sizeof want, text, par_size(w) - 1);
    CHECK(w, par_zero_commit(z) == PAR_ERR_MISMATCH && says(w, want));
    CHECK_OK(w, par_zero_close(z));
}
static void disagreement(par_comm *w) { // names rank, tensor and field
    setup s;
#define X(difference, text)                                                                                  \
    memset(&s, 0, sizeof s);                                                                                 \
    s.desc = plain_run(w, 2, PAR_ZERO_ADAMW).desc;                                                           \
    s.second.name = "second", s.second.dims = 2, s.second.shape[0] = s.second.shape[1] = 12;                 \
    if (par_rank(w) == par_size(w) - 1) {                                                                    \
        difference;                                                                                          \
    }                                                                                                        \
    expect_mismatch(w, &s, text);
    DIFFERENCES(X)
#undef X
    if (par_size(w) < 4 || par_size(w) % 2) return;
    char want[80];
    par_comm *inner, *outer; // in one row of a hybrid; and between its rows
    CHECK_OK(w, par_split(w, par_rank(w) / 2, 0, &inner));
    CHECK_OK(w, par_split(w, par_rank(w) % 2, 0, &outer));
    for (int row = 0; row < 2; row++) {
        run r = plain_run(inner, 2, PAR_ZERO_ADAMW);
        r.desc.replica_comm = outer,
        r.desc.clip = par_rank(outer) == 1 && (row || par_rank(inner) == 1) ? 5 : 1;
        par_zero_tensor t;
        memset(&t, 0, sizeof t);
        t.name = "w", t.dims = 1, t.shape[0] = 3;
        CHECK_OK(w, par_zero_open(&r.desc, &r.z));
        CHECK(w, par_zero_add_unit(r.z, "layer") == 0 && par_zero_add_tensor(r.z, &t) == 0);
        snprintf(want, sizeof want, "desc.clip is 5 on rank %d and 1 on rank %d", row ? 2 : 3, row ? 0 : 2);
        CHECK(w, par_zero_commit(r.z) == PAR_ERR_MISMATCH && says(w, want));
        const char *where = strstr(par_last_error(w), "(called at ");
        CHECK(w, where && !strstr(where + 1, "(called at "));
        CHECK_OK(w, par_zero_close(r.z));
    }
    CHECK_OK(w, par_close(inner));
    CHECK_OK(w, par_close(outer));
}

// Each member of the lists of what must be the same, changed on the last rank: all ranks name it.
static void change_setting(const par__zero_setting *s, void *of, par_comm *other) {
    static par_zero_kernels kernels;
    void *at = (char *)of + s->at;
    kernels.name = "others";
    switch (s->as) {
    case PAR__ZERO_FLOAT: *(float *)at += 1; break;
    case PAR__ZERO_NUMBER: ++*(uint64_t *)at; break;
    case PAR__ZERO_RANKS: *(par_comm **)at = other; break;
    case PAR__ZERO_STORE: *(const char **)at = "host"; break;
    case PAR__ZERO_KERNELS: *(const par_zero_kernels **)at = &kernels; break;
    case PAR__ZERO_DTYPE: *(par_dtype *)at = *(par_dtype *)at == PAR_BF16 ? PAR_F32 : PAR_BF16; break;
    default: *(int *)at ^= 1;
    }
}
#define FIELD_CHANGES(X)                                                                                     \
    X("unit", t->unit++)                                                                                     \
    X("dims", t->desc.dims--)                                                                                \
    X("shape[0]", t->desc.shape[0]++)                                                                        \
    X("shape[1]", t->desc.shape[1]++)                                                                        \
    X("shape[2]", t->desc.shape[2]++)                                                                        \
    X("shape[3]", t->desc.shape[3]++)                                                                        \
    X("group", t->desc.group++)                                                                              \
    X("frozen", t->part++)                                                                                   \
    X("no_decay", t->desc.no_decay++)                                                                        \
    X("use_adamw", t->desc.use_adamw++)                                                                      \
    X("shard", t->desc.shard = &t->shard)                                                                    \
    X("shard->runs", t->shard.runs[0].replicas += 2)                                                         \
    X("tied_comm", t->desc.tied_comm = self)                                                                 \
    X("deviation", t->desc.deviation += 1)                                                                   \
    X("value", t->desc.value += 1)                                                                           \
    X("stream", t->desc.stream++)                                                                            \
    X("ranks", s->comm = self)                                                                               \
    X("op", s->op = PAR_TREE_SUM)                                                                            \
    X("first", s->first++)                                                                                   \
    X("count", s->count++)
static void change_field(par_comm *w, par__zero_tensor *t, const char *field, par_comm *self) {
    int number = 0, changes = 0;
    sscanf(field, "sums[%d]", &number);
    par_partial_sum *s = &t->desc.sums[number];
    const char *name = strstr(field, "].") ? strstr(field, "].") + 2 : field;
#define X(what, change)                                                                                      \
    if (!strcmp(name, what)) {                                                                               \
        change;                                                                                              \
        changes++;                                                                                           \
    }
    FIELD_CHANGES(X)
#undef X
    if (changes != 1) fprintf(stderr, "%s: this test has no change of it\n", field);
    CHECK(w, changes == 1);
}
// over: 0: comm, 1: replica_comm, 2: model_parallel_comm. Which setting or (group of hyperparameters 2) or
// field.
static void expect_named(par_comm *w, par_comm *self, int over, int setting, int hyper, int field) {
    const int last = par_rank(w) == par_size(w) - 1;
    char want[100];
    par_zero_tensor t;
    par_zero *z;
    par_zero_desc d = plain_run(over ? self : w, 2, PAR_ZERO_ADAMW).desc;
    memset(&t, 0, sizeof t);
    if (over == 1) d.replica_comm = w;
    if (over == 2) d.model_parallel_comm = w;
    d.hyper[2] = d.hyper[0];
    t.name = "w", t.dims = 4, t.shape[0] = t.shape[1] = t.shape[2] = t.shape[3] = 2;
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_add_unit(z, "u") == 0 && par_zero_add_tensor(z, &t) == 0);
    if (setting >= 0) snprintf(want, sizeof want, "desc.%s is ", par__zero_settings[setting].name);
    if (hyper >= 0) snprintf(want, sizeof want, "desc.hyper[2].%s is ", par__zero_hypers[hyper].name);
    if (field >= 0) snprintf(want, sizeof want, "tensor w: %s is ", par__zero_fields[field]);
    if (last && setting >= 0) change_setting(&par__zero_settings[setting], &z->desc, self);
    if (last && hyper >= 0) change_setting(&par__zero_hypers[hyper], &z->desc.hyper[2], self);
    if (last && field >= 0) change_field(w, &z->tensors[0], par__zero_fields[field], self);
    const par_result r = par_zero_commit(z);
    if (r != PAR_ERR_MISMATCH || !says(w, want)) fprintf(stderr, "not \"%s\"\n", want);
    CHECK(w, r == PAR_ERR_MISMATCH && says(w, want));
    z->desc = d; // which close needs
    CHECK_OK(w, par_zero_close(z));
}
static void compared(par_comm *w) {
    par_comm *self;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &self));
    for (int over = 0; over < 3; over++) {
        for (int i = 0; i < PAR__ZERO_SETTING_COUNT; i++) // another comm would be waited for
            if (!over || par__zero_settings[i].as != PAR__ZERO_RANKS) expect_named(w, self, over, i, -1, -1);
        for (int i = 0; i < PAR__ZERO_HYPER_COUNT; i++) expect_named(w, self, over, -1, i, -1);
        for (int i = 0; i < PAR__ZERO_FIELD_COUNT && over < 2; i++) expect_named(w, self, over, -1, -1, i);
    }
    CHECK_OK(w, par_close(self));
}
// No member of the desc is left out of the lists, but for what cannot differ, or may.
#define NOT_COMPARED(X) X(comm) X(plan_ranks) X(hyper)
static void compared_members(par_comm *w) {
    static const size_t bytes[] = {sizeof(int), sizeof(float),  sizeof(uint64_t), sizeof(int),
                                   sizeof(int), sizeof(void *), sizeof(void *),   sizeof(void *)};
    char desc[sizeof(par_zero_desc)] = {0}, hyper[sizeof(par_zero_hyper)] = {0};
    size_t left = 0;
#define X(member) memset(desc + offsetof(par_zero_desc, member), 1, sizeof((par_zero_desc *)0)->member);
    NOT_COMPARED(X)
#undef X
    for (int i = 0; i < PAR__ZERO_SETTING_COUNT; i++)
        memset(desc + par__zero_settings[i].at, 1, bytes[par__zero_settings[i].as]);
    for (int i = 0; i < PAR__ZERO_HYPER_COUNT; i++)
        memset(hyper + par__zero_hypers[i].at, 1, bytes[par__zero_hypers[i].as]);
    for (size_t i = 0; i < sizeof desc; i++) left += !desc[i];
    CHECK(w, left < sizeof(void *) && !memchr(hyper, 0, sizeof hyper)); // padding
}
// A learning rate's factor that differs between ranks, or is no number, changes nothing.
static void factors(par_comm *w) {
    static const float wrong[] = {0.5f, 2, 0, NAN, INFINITY};
    const int n = par_size(w), last = par_rank(w) == n - 1;
    par_comm *self;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &self));
    for (int over = 0; over < 3; over++) // comm, replica_comm, model_parallel_comm
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            run r = plain_run(over ? self : w, (int)i % 4, PAR_ZERO_SGD);
            if (over == 1) r.desc.replica_comm = w;
            if (over == 2) r.desc.model_parallel_comm = w;
            open_run(w, &r);
            static __thread float before[CAPACITY], after[CAPACITY];
            CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, before));
            for (int u = UNITS; u-- > 0;) unit_backward(w, &r, u, 0);
            const int differ = n > 1 || !(wrong[i] < INFINITY);
            const par_result got = par_zero_step(r.z, last ? wrong[i] : 1, NULL);
            CHECK(w, differ ? got == PAR_ERR_MISMATCH && says(w, "par_zero_step: lr_factor is ") : !got);
            if (differ) {
                CHECK_OK(w, par_zero_read(r.z, 2, PAR_ZERO_VALUE, after));
                CHECK(w, par_zero_steps(r.z) == 0 && !memcmp(before, after, count_of(2) * sizeof *after));
                CHECK_OK(w, par_zero_set_lr_factor(r.z, last && n > 1 ? 0.5f : 1));
                const par_result kept = par_zero_step(r.z, -1, NULL); // that of par_zero_set_lr_factor
                CHECK(w, kept == (n > 1 ? PAR_ERR_MISMATCH : PAR_OK));
                if (kept) CHECK_OK(w, par_zero_step(r.z, 1, NULL));
            }
            CHECK(w, par_zero_steps(r.z) == 1);
            CHECK_OK(w, par_zero_close(r.z));
        }
    CHECK_OK(w, par_close(self));
}
// Groups of hyperparameters: one that is all zeros is as group 0, others need a learning rate; a tensor may
// be without its group's weight decay. The mean is over all microbatches, and is what a desc of zeros asks
// for.
static void groups(par_comm *w) {
    static const struct {
        int group, no_decay;
        float mean, factor; // the value after a step, of 2 before; of the sum: mean - factor (m n - 1)
    } rows[] = {{0, 0, 1.25f, 0.5f}, {1, 0, 1.25f, 0.5f},  {0, 1, 1.5f, 0.5f},
                {1, 1, 1.5f, 0.5f},  {2, 0, 1.75f, 0.25f}, {3, 0, 2, 0}};
    enum { ROWS_OF_GROUPS = sizeof rows / sizeof *rows };
    for (int i = 0; i < 8; i++) {
        const int sum = i / 4, times = 2 * par_size(w) - 1;
        par_zero *z;
        par_zero_desc d;
        memset(&d, 0, sizeof d);
        d.comm = w, d.stage = i % 4, d.microbatches = 2, d.optimizer = PAR_ZERO_SGD;
        if (sum) d.reduction = PAR_ZERO_SUM;
        d.hyper[0].lr = 0.5f, d.hyper[0].weight_decay = 0.25f, d.hyper[2].lr = 0.25f, d.hyper[3].lr = -1;
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_unit(z, "u") == 0);
        for (int t = 0; t < ROWS_OF_GROUPS; t++) {
            char name[16];
            par_zero_tensor x;
            memset(&x, 0, sizeof x), snprintf(name, sizeof name, "t%d", t);
            x.name = name, x.dims = 1, x.shape[0] = 3, x.value = 2;
            x.group = rows[t].group, x.no_decay = rows[t].no_decay;
            CHECK(w, par_zero_add_tensor(z, &x) == t);
        }
        CHECK_OK(w, par_zero_commit(z));
        CHECK_OK(w, par_zero_init_all(z));
        for (int m = 0; m < 2; m++) {
            CHECK_OK(w, par_zero_backward_begin(z, 0));
            for (int t = 0; t < ROWS_OF_GROUPS; t++)
                for (int k = 0; k < 3; k++) par_zero_grad(z, t)[k] += 1;
            CHECK_OK(w, par_zero_backward_end(z, 0));
        }
        CHECK_OK(w, par_zero_step(z, 1, NULL));
        for (int t = 0; t < ROWS_OF_GROUPS; t++) {
            float now[3];
            CHECK_OK(w, par_zero_read(z, t, PAR_ZERO_VALUE, now));
            CHECK(w, now[2] == rows[t].mean - rows[t].factor * (float)(sum ? times : 0));
        }
        CHECK_OK(w, par_zero_close(z));
    }
}
// Values that each rank brings: all take the first one's.
typedef struct own_values {
    int rank;
    size_t asked;
} own_values;
static void give_own(void *user, size_t first, size_t count, float *values) {
    own_values *v = (own_values *)user;
    for (size_t i = 0; i < count; i++) values[i] = (float)(1000 * v->rank) + (float)(first + i);
    v->asked += count;
}
static void first_ranks_values(par_comm *w) {
    const int n = par_size(w), r = par_rank(w), rows = n % 2 ? 1 : 2;
    par_comm *inner, *outer;
    CHECK_OK(w, par_split(w, r % rows, r, &inner));
    CHECK_OK(w, par_split(w, r / rows, r, &outer));
    for (int stage = 0; stage < 4; stage++)
        for (int p = 0; p < 2; p++) {
            enum { N = 1234 };
            float now[N];
            own_values mine = {r, 0};
            par_zero *z;
            par_zero_tensor t;
            par_zero_desc d = plain_run(inner, stage, PAR_ZERO_ADAMW).desc;
            memset(&t, 0, sizeof t);
            d.replica_comm = rows > 1 ? outer : NULL, d.param_dtype = p ? PAR_BF16 : PAR_F32, d.ema = 0.5f;
            t.name = "w", t.dims = 1, t.shape[0] = N;
            CHECK_OK(w, par_zero_open(&d, &z));
            CHECK(w, par_zero_add_unit(z, "u") == 0 && par_zero_add_tensor(z, &t) == 0);
            CHECK(w, par_zero_broadcast(z, 0, give_own, &mine) == PAR_ERR_ARGUMENT);
            CHECK_OK(w, par_zero_commit(z));
            CHECK(w, par_zero_broadcast(z, 1, give_own, &mine) == PAR_ERR_ARGUMENT &&
                         says(w, "par_zero_broadcast: there is no tensor 1"));
            CHECK_OK(w, par_zero_broadcast(z, 0, give_own, &mine));
            CHECK(w, mine.asked == (r ? 0 : N));
            for (int ema = 0; ema < 2; ema++) {
                CHECK_OK(w, par_zero_read(z, 0, ema ? PAR_ZERO_EMA : PAR_ZERO_VALUE, now));
                for (int i = 0; i < N; i++) CHECK(w, now[i] == (float)i);
            }
            CHECK_OK(w, par_zero_forward_begin(z, 0));
            float widened[N];
            par_cast(widened, PAR_F32, par_zero_data(z, 0), p ? PAR_BF16 : PAR_F32, N);
            for (int i = 0; i < N; i++)
                CHECK(w, widened[i] == (p ? par_bf16_to_f32(par_f32_to_bf16((float)i)) : (float)i));
            CHECK_OK(w, par_zero_forward_end(z, 0));
            CHECK_OK(w, par_zero_close(z));
        }
    CHECK_OK(w, par_close(inner));
    CHECK_OK(w, par_close(outer));
}
// A layer's type must be that of the parameters; its gradients are f32.
static void layer_dtypes(par_comm *w) {
    static const struct {
        par_dtype layer, param, grad;
        int frozen;
        const char *text;
    } rows[] = {{PAR_BF16, PAR_F32, PAR_F32, 0, "its layer does not have f32, and desc.param_dtype is f32"},
                {PAR_F32, PAR_BF16, PAR_F32, 1, "its layer does not have desc.param_dtype"},
                {PAR_BF16, PAR_BF16, PAR_BF16, 0, "its layer writes gradients in f32"},
                {PAR_F32, PAR_F32, PAR_F16, 0, "its layer writes gradients in f32"},
                {PAR_BF16, PAR_BF16, PAR_BF16, 1, NULL},
                {PAR_BF16, PAR_BF16, PAR_F32, 0, NULL},
                {PAR_F64, PAR_BF16, PAR_BF16, 0, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t shape[1] = {8};
        void *data;
        float *grad;
        par_parameter p;
        par_zero *z;
        par_zero_desc d = plain_run(w, 2, PAR_ZERO_ADAMW).desc;
        memset(&p, 0, sizeof p);
        d.param_dtype = rows[i].param, d.grad_dtype = rows[i].grad;
        p.name = "p", p.dtype = rows[i].layer, p.frozen = rows[i].frozen, p.data = &data, p.grad = &grad;
        p.shard = par_shard_whole(shape, 1);
        CHECK_OK(w, par_zero_open(&d, &z));
        CHECK(w, par_zero_add_layer(z, "u", &p, 1) == (rows[i].text ? -1 : 0));
        CHECK(w, !rows[i].text || says(w, rows[i].text));
        if (!rows[i].text) CHECK_OK(w, par_zero_commit(z));
        CHECK_OK(w, par_zero_close(z));
    }
}

// ---- ranks that come and go -------------------------------------------------------------------------------

enum { SHARDS = 8, FIELDS = 4, EVERYTHING = FIELDS * TENSORS * CAPACITY };
typedef struct elastic_kind {
    par_zero_optimizer optimizer;
    par_dtype param, state;
    int rounds; // at random
    float ema, loss_scale;
} elastic_kind;
static const elastic_kind elastic_kinds[] = {
    {PAR_ZERO_ADAMW, PAR_F32, PAR_F32, 0, 0, 0},        {PAR_ZERO_ADAMW, PAR_BF16, PAR_BF16, 1, 0.75f, 0},
    {PAR_ZERO_ADAMW, PAR_F32, PAR_U8, 0, 0.75f, 0},     {PAR_ZERO_ADAMW, PAR_F16, PAR_F32, 0, 0, 0x1p19f},
    {PAR_ZERO_SGD, PAR_F32, PAR_BF16, 0, 0, 0},         {PAR_ZERO_LION, PAR_BF16, PAR_F32, 1, 0, 0},
    {PAR_ZERO_LAMB, PAR_F32, PAR_F32, 0, 0.75f, 0},     {PAR_ZERO_LAMB, PAR_F16, PAR_U8, 0, 0, 0x1p19f},
    {PAR_ZERO_MUON, PAR_F32, PAR_F32, 0, 0, 0},         {PAR_ZERO_MUON, PAR_BF16, PAR_BF16, 1, 0.75f, 0},
    {PAR_ZERO_MUON, PAR_F16, PAR_U8, 0, 0.75f, 0x1p19f}};
enum { ELASTIC_KINDS = (int)(sizeof elastic_kinds / sizeof elastic_kinds[0]), ELASTIC_STAGES = 5 };
static run elastic_run(par_comm *w, int kind, int stage) {
    const elastic_kind *k = &elastic_kinds[kind];
    run r = variant_run(w, stage == 4 ? 5 : stage, k->optimizer);
    r.desc.param_dtype = k->param, r.desc.state_dtype = k->state, r.desc.stochastic_rounding = k->rounds;
    r.desc.ema = k->ema, r.desc.loss_scale = k->loss_scale, r.desc.loss_scale_window = 2;
    r.desc.clip = 0.5f, r.desc.seed = 3;
    r.desc.canonical_shards = SHARDS, r.desc.microbatches = SHARDS / par_size(w), r.desc.buddies = 1;
    return r;
}
// Weights, moments and averages of all tensors, then the numbers of the control.
static float *everything_of(par_comm *w, const run *r) {
    static const par_zero_field fields[FIELDS] = {PAR_ZERO_VALUE, PAR_ZERO_MOMENT1, PAR_ZERO_MOMENT2,
                                                  PAR_ZERO_EMA};
    float *all = (float *)calloc(EVERYTHING + 4, sizeof *all);
    for (int k = 0; k < FIELDS; k++)
        for (int t = 0; t < TENSORS; t++)
            CHECK_OK(w, par_zero_read(r->z, t, fields[k], all + (k * TENSORS + t) * CAPACITY));
    all[EVERYTHING] = (float)par_zero_steps(r->z), all[EVERYTHING + 1] = par_zero_loss_scale(r->z);
    all[EVERYTHING + 2] = (float)r->z->control->good_steps,
                     all[EVERYTHING + 3] = (float)r->z->control->bad_steps;
    return all;
}
static int same_everything(const float *a, const float *b) {
    return !memcmp(a, b, (EVERYTHING + 4) * sizeof *a);
}
// The copy that the buddy has of each array of this rank's shard is equal to the bit.
static void expect_copies(par_comm *w, run *r) {
    par_zero *z = r->z;
    static __thread char theirs[CAPACITY * 8];
    if (z->ward < 0) return;
    par_zero ward = par__zero_ward_of(z);
    for (int u = 0; u < z->unit_count; u++)
        for (int array = 0; array < PAR__ZERO_ARRAYS; array++) {
            const size_t n = par__zero_shard_count(z, &z->units[u], array == 1);
            if ((array > 1 && !z->has_state[array - 2]) || !n || (array == 1 && !z->sharded_parameters))
                continue;
            const size_t bytes = par__zero_array_bytes(z, array, n);
            CHECK(w, bytes <= sizeof theirs);
            CHECK_OK(w, par_sendrecv(par__zero_array_at(z, u, array, n * (size_t)z->rank), bytes, z->buddy,
                                     theirs, bytes, z->ward, PAR_U8, z->desc.comm));
            CHECK(w, !memcmp(theirs, par__zero_array_at(&ward, u, array, n * (size_t)z->ward), bytes));
        }
}
static void elastic_steps(par_comm *w, run *r, int steps) {
    for (int i = 0; i < steps; i++) {
        one_step(w, r, 1);
        expect_copies(w, r);
    }
}
// Every optimizer and type of states: copies, and planned bytes, in memory and sent.
static void buddies(par_comm *w) {
    for (int kind = 0; kind < ELASTIC_KINDS; kind++)
        for (int stage = 0; stage < ELASTIC_STAGES; stage++) {
            run r = elastic_run(w, kind, stage), bare = r;
            const int n = par_size(w), sharded = stage && n > 1;
            if (SHARDS % n) r.desc.canonical_shards = bare.desc.canonical_shards = 0;
            bare.desc.buddies = 0, r.all = bare.all = 1;
            open_run(w, &bare);
            open_run(w, &r);
            CHECK(w, (r.z->ward >= 0) == sharded);
            elastic_steps(w, &r, 3);
            for (int i = 0; i < 3; i++) one_step(w, &bare, 1);
            float *want = everything_of(w, &bare), *got = everything_of(w, &r);
            CHECK(w, same_everything(want, got));
            free(want), free(got);
            CHECK_OK(w, par_zero_plan_of(r.z, &r.plan));
            CHECK_OK(w, par_zero_plan_of(bare.z, &bare.plan));
            r.real = par_zero_allocated(r.z);
            CHECK(w, r.plan.buddy_bytes == r.real.buddy_bytes && r.plan.buffer_bytes == r.real.buffer_bytes);
            CHECK(w, r.plan.buffer_bytes == bare.plan.buffer_bytes + r.plan.buddy_bytes);
            CHECK(w, r.plan.state_bytes == bare.plan.state_bytes && bare.plan.buddy_bytes == 0);
            size_t trained = 0, total = 0, matrices = 0; // of a shard
            for (int u = 0; u < UNITS; u++) {
                const size_t shard = r.z->units[u].count[0] / (size_t)n;
                trained += shard, total += shard + r.z->units[u].count[1] / (size_t)n;
                if (par__zero_has_matrix(r.z, &r.z->units[u])) matrices += shard;
            }
            const size_t e = par_dtype_bytes(elastic_kinds[kind].param), muon = matrices > 0;
            CHECK(w, r.plan.buddy_bytes == (sharded ? total * e + trained * 4 + r.plan.state_bytes : 0) +
                                               (stage ? muon * trained * 4 * (sharded ? 2 : 1) : 0));
            CHECK(w, r.plan.buddy_sent_bytes == (sharded ? trained * 4 + matrices * 4 : 0));
            CHECK_OK(w, par_barrier(w));
            for (int u = 0; u < UNITS; u++) CHECK_OK(w, par_wait(&r.z->units[u].param_gather));
            par_ledger_reset(w);
            one_step(w, &r, 1);
            CHECK(w, par_ledger_get(w, PAR_KIND_SEND).sent_bytes ==
                         (r.report.skipped ? trained * 4 * (size_t)sharded : r.plan.buddy_sent_bytes));
            CHECK_OK(w, par_zero_close(r.z));
            CHECK_OK(w, par_zero_close(bare.z));
        }
}
// A rank that has died: it only gives its memory back.
static void die(par_zero *z) {
    par__zero_wait_all(z);
    par__zero_free_all(z, 0);
    for (int i = 0; i < z->unit_count; i++) PAR_FREE(z->units[i].order);
    PAR_FREE(z->units), PAR_FREE(z->tensors), PAR_FREE(z->names), PAR_FREE(z);
}
enum { AT_END, BEFORE_NORM, BEFORE_COMMIT, AFTER_COMMIT, WHENS };
// What the ranks have done when some of them die. Behind the commit point the first survivor alone knows of
// it.
static void stop_at(par_comm *w, run *r, int when, int knows) {
    if (when == AT_END) return;
    passes(w, r);
    CHECK_OK(w, par__zero_finish_gradients(r->z, "a test"));
    if (when == BEFORE_NORM) return;
    CHECK_OK(w, par__zero_prepare(r->z, 1));
    if (when == AFTER_COMMIT && knows) {
        par__zero_finish_step(r->z, 1);
        return;
    }
    par__zero_swap_control(r->z); // as after an error
    r->z->prepared = 1;
}
// The largest power of two of the ranks trains, at most so many, or the last ones. NULL: this rank is a
// spare.
static par_comm *trainers_of(par_comm *w, par_comm *left, int limit, int late) {
    int most = 1;
    par_comm *comm;
    while (2 * most <= PAR__MIN(limit, par_size(left))) most *= 2;
    const int first = late ? par_size(left) - most : 0, me = par_rank(left);
    CHECK_OK(w, par_split(left, me >= first && me < first + most ? 0 : -1, 0, &comm));
    return comm;
}
typedef struct elastic {
    int kind, stage, when, late, most, hybrid;
    unsigned dead; // bits
} elastic;
// The comms of all ranks: one, or those of a hybrid of two.
static par_zero_comms comms_of(par_comm *w, const elastic *e) {
    par_zero_comms now;
    memset(&now, 0, sizeof now);
    CHECK_OK(w, par_split(w, e->hybrid ? par_rank(w) / 2 : 0, 0, &now.comm));
    if (e->hybrid) CHECK_OK(w, par_split(w, par_rank(w) % 2, 0, &now.replica_comm));
    return now;
}
static run run_on(const par_zero_comms *now, const elastic *e) {
    run r = elastic_run(now->comm, e->kind, e->stage);
    r.desc.replica_comm = now->replica_comm;
    if (now->replica_comm) r.desc.microbatches /= par_size(now->replica_comm);
    return r;
}
static void adopt_comms(run *r, const par_zero_comms *now) {
    r->desc.comm = now->comm, r->desc.replica_comm = now->replica_comm;
    r->desc.microbatches = r->z->microbatches;
}
static void close_comms(par_comm *w, par_zero_comms *now) {
    CHECK_OK(w, par_close(now->comm));
    CHECK_OK(w, par_close(now->replica_comm));
}
// 4 ranks train, some die, those that are left train on, then the dead come back as newcomers.
static void die_and_return(par_comm *w, const elastic *e, float *const *want) {
    const int dead = e->dead >> par_rank(w) & 1;
    par_comm *left;
    par_zero_recovery said;
    par_zero_comms all = comms_of(w, e), some;
    memset(&some, 0, sizeof some);
    some.recovery = &said;
    run r = run_on(&all, e);
    open_run(w, &r);
    CHECK(w, (r.z->ward >= 0) == (e->stage && !e->hybrid)); // a hybrid has replicas
    elastic_steps(w, &r, 2);
    CHECK_OK(w, par_split(w, dead ? -1 : 0, 0, &left));
    stop_at(w, &r, e->when, left && par_rank(left) == 0);
    if (dead) {
        die(r.z);
    } else {
        some.comm = trainers_of(w, left, e->most, e->late);
        CHECK_OK(w, par_zero_recover(r.z, left, &some));
        CHECK(w, !said.from_checkpoint && !said.text[0] && said.step == par_zero_steps(r.z));
        CHECK(w, said.done == 2 + (e->when == AFTER_COMMIT)); // with skipped ones
        CHECK(w, said.repeated == (e->when == BEFORE_NORM || e->when == BEFORE_COMMIT));
    }
    close_comms(w, &all);
    if (some.comm) {
        par_zero_plan plan, real = par_zero_allocated(r.z);
        adopt_comms(&r, &some);
        expect_copies(w, &r);
        CHECK(w, (r.z->ward >= 0) == (e->stage && par_size(some.comm) > 1));
        elastic_steps(w, &r, 2);
        CHECK_OK(w, par_zero_plan_of(r.z, &plan));
        CHECK(w, plan.buffer_bytes == real.buffer_bytes && plan.state_bytes == real.state_bytes);
        CHECK(w, plan.parameter_bytes == real.parameter_bytes && plan.gradient_bytes == real.gradient_bytes);
    } else if (left) {
        CHECK(w, par_zero_step(r.z, 1, NULL) == PAR_ERR_ARGUMENT);
    }
    par_zero_comms back = comms_of(w, e);
    if (dead) {
        r = run_on(&back, e);
        r.newcomer = 1;
        open_run(w, &r);
    }
    CHECK_OK(w, par_zero_recover(r.z, w, &back));
    adopt_comms(&r, &back);
    close_comms(w, &some);
    CHECK_OK(w, par_close(left));
    elastic_steps(w, &r, 2);
    float *got = everything_of(w, &r);
    const int same = same_everything(want[e->when == AFTER_COMMIT], got);
    if (!same)
        fprintf(stderr, "kind %d, stage %d, when %d, late %d, dead %x, hybrid %d\n", e->kind, e->stage,
                e->when, e->late, e->dead, e->hybrid);
    CHECK(w, same);
    free(got);
    CHECK_OK(w, par_zero_close(r.z));
    close_comms(w, &back);
}
// Some of 6 and of 7 steps of an undisturbed run on one rank.
static void undisturbed(par_comm *w, int kind, float **want) {
    par_comm *alone;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    run whole = elastic_run(alone, kind, 0);
    open_run(w, &whole);
    for (int i = 0; i < 6; i++) one_step(w, &whole, 1);
    want[0] = everything_of(w, &whole);
    one_step(w, &whole, 1);
    want[1] = everything_of(w, &whole);
    CHECK_OK(w, par_zero_close(whole.z));
    CHECK_OK(w, par_close(alone));
}
static void comes_and_goes(par_comm *w) { // canonical: the same bits as an undisturbed run
    const unsigned one = 2, two = par__zero_buddy_distance(w) == 2 ? 3 : 10; // that are not buddies
    if (par_size(w) != 4) return;
    for (int kind = 0, turn = 0; kind < ELASTIC_KINDS; kind++) {
        float *want[2];
        undisturbed(w, kind, want);
        for (int stage = 0; stage < ELASTIC_STAGES; stage++, turn++) {
            const int i = turn % 3; // one dies, two, none: then it is planned
            const elastic e = {kind,           stage, i == 2 ? AT_END : turn % WHENS, turn / 4 % 2,
                               i == 2 ? 2 : 4, 0,     i == 0 ? one : i == 1 ? two : 0};
            die_and_return(w, &e, want);
        }
        free(want[0]), free(want[1]);
    }
}
static void replicas(par_comm *w) { // of a hybrid: a rank's shard comes from its replica
    if (par_size(w) != 4) return;
    for (int kind = 0, turn = 0; kind < ELASTIC_KINDS; kind += 2) {
        float *want[2];
        undisturbed(w, kind, want);
        for (int stage = 0; stage < ELASTIC_STAGES; stage++, turn++) { // a rank, or one of each shard
            const elastic e = {kind, stage, turn % WHENS, turn % 2, 4, 1, turn % 3 ? 2 : 6};
            die_and_return(w, &e, want);
        }
        free(want[0]), free(want[1]);
    }
}
// A rank dies while the others recover: some know that all are ready, the others do not.
static void dies_meanwhile(par_comm *w) {
    enum { TURNS = 3 };
    static const struct {
        int first, second, knows, fails; // bits: who dies before it, in it; who has passed the commit point
        int most;                        // ranks that shall train
    } turns[TURNS] = {{2, 4, 1, 0, 4}, {0, 8, 3, 0, 4}, {0, 8, 0, 1, 2}};
    const int me = 1 << par_rank(w);
    if (par_size(w) != 4) return;
    for (int kind = 0; kind < ELASTIC_KINDS; kind += 3) {
        float *want[2];
        undisturbed(w, kind, want);
        for (int i = 0; i < TURNS * ELASTIC_STAGES; i++) {
            const int first = turns[i % TURNS].first & me, second = turns[i % TURNS].second & me;
            const elastic e = {kind, i / TURNS, AT_END, 0, 4, 0, 0};
            par_comm *left, *again;
            par_zero_recovery report;
            par_zero_comms all = comms_of(w, &e), some, last;
            int lost;
            memset(&some, 0, sizeof some), memset(&last, 0, sizeof last);
            run r = run_on(&all, &e);
            open_run(w, &r);
            elastic_steps(w, &r, 4);
            CHECK_OK(w, par_split(w, first ? -1 : 0, 0, &left));
            CHECK_OK(w, par_split(w, first || second ? -1 : 0, 0, &again));
            if (left) {
                par__zero_exchange x;
                memset(&x, 0, sizeof x);
                x.comm = left;
                some.comm = trainers_of(w, left, turns[i % TURNS].most, 0);
                CHECK_OK(w, par__zero_prepare_next(r.z, &x, &some, &report, &lost));
                if (turns[i % TURNS].knows & me) par__zero_adopt(r.z, 0);
                if (turns[i % TURNS].fails & me) par__zero_drop_next(r.z); // it was not ready
                par__zero_close_exchange(&x);
            }
            if (second) par__zero_drop_next(r.z);
            if (first || second) die(r.z);
            if (again) {
                last.comm = trainers_of(w, again, 4, 0);
                CHECK_OK(w, par_zero_recover(r.z, again, &last));
            }
            if (last.comm) {
                adopt_comms(&r, &last);
                elastic_steps(w, &r, 2);
                float *got = everything_of(w, &r);
                CHECK(w, same_everything(want[0], got));
                free(got);
            }
            if (again) CHECK_OK(w, par_zero_close(r.z));
            close_comms(w, &all), close_comms(w, &some), close_comms(w, &last);
            CHECK_OK(w, par_close(left));
            CHECK_OK(w, par_close(again));
        }
        free(want[0]), free(want[1]);
    }
}
// Without canonical_shards: the same but for rounding, with as many microbatches on fewer ranks.
static void other_numbers(par_comm *w) {
    if (par_size(w) != 4) return;
    for (int o = 0; o < PAR_ZERO_OPTIMIZER_COUNT; o++)
        for (int stage = 0; stage < 4; stage++) {
            par_comm *all, *left;
            par_zero_comms now;
            reference f;
            CHECK_OK(w, par_split(w, 0, 0, &all));
            CHECK_OK(w, par_split(w, par_rank(w) == 1 ? -1 : 0, 0, &left));
            run r = plain_run(all, stage, (par_zero_optimizer)o);
            r.desc.microbatches = 3, r.desc.buddies = 1, r.desc.ema = 0.75f;
            memset(&now, 0, sizeof now);
            run_reference(&f, &r);
            open_run(w, &r);
            for (int step = 0; step < 3; step++) one_step(w, &r, reference_factor(step));
            if (left) {
                now.comm = left, now.microbatches = 4;
                CHECK_OK(w, par_zero_recover(r.z, left, &now));
                adopt_comms(&r, &now);
                for (int step = 3; step < REFERENCE_STEPS; step++) one_step(w, &r, reference_factor(step));
                expect_weights(w, &r, &f, o == PAR_ZERO_MUON ? 1e-3 : 1e-5, "3 of 4 ranks");
                CHECK_OK(w, par_zero_close(r.z));
            } else {
                die(r.z);
            }
            close_reference(&f);
            CHECK_OK(w, par_close(left));
            CHECK_OK(w, par_close(all));
        }
}
// A grid of data and tensor parallelism, of which one rank of each row and of each column dies: one row is
// left.
static void grids(par_comm *w) {
    static const struct {
        par_zero_optimizer optimizer;
        par_dtype state, param;
        int stage;
    } cases[] = {{PAR_ZERO_ADAMW, PAR_U8, PAR_BF16, 2},
                 {PAR_ZERO_MUON, PAR_U8, PAR_F32, 3},
                 {PAR_ZERO_LAMB, PAR_U8, PAR_BF16, 3},
                 {PAR_ZERO_LAMB, PAR_BF16, PAR_F32, 1},
                 {PAR_ZERO_MUON, PAR_BF16, PAR_BF16, 0}};
    const int rank = par_rank(w), dead = rank == 1 || rank == 2;
    if (par_size(w) != 4) return;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        par_comm *alone, *comm, *tp, *left;
        par_zero_comms now;
        parts one, p;
        memset(&p, 0, sizeof p), memset(&now, 0, sizeof now);
        par_zero_desc d = sum_desc();
        d.optimizer = cases[c].optimizer, d.state_dtype = cases[c].state, d.param_dtype = cases[c].param;
        d.stage = cases[c].stage, d.stochastic_rounding = 1, d.hyper[0].lr = 0.01f, d.clip = 0.5f;
        d.hyper[0].weight_decay = 0.1f, d.loss_scale = 64, d.loss_scale_window = 2, d.ema = 0.5f, d.seed = 3;
        d.buddies = 1;
        p.desc = d, one = p;
        CHECK_OK(w, par_split(w, rank, 0, &alone));
        CHECK_OK(w, par_split(w, rank % 2, 0, &comm));
        CHECK_OK(w, par_split(w, rank / 2, 0, &tp));
        CHECK_OK(w, par_split(w, dead ? -1 : 0, 0, &left));
        CHECK_OK(w, open_parts(w, &one, alone, NULL));
        CHECK_OK(w, open_parts(w, &p, comm, tp));
        for (int i = 0; i < 7; i++) step_parts(w, &one);
        for (int i = 0; i < 3; i++) step_parts(w, &p);
        if (dead) {
            die(p.z);
        } else {
            now.comm = alone, now.model_parallel_comm = now.tensor_parallel_comm = left;
            CHECK_OK(w, par_zero_recover(p.z, left, &now));
            p.desc.microbatches = PART_BATCHES;
            for (int i = 0; i < 3; i++) step_parts(w, &p);
        }
        par_comm *const old[2] = {comm, tp};
        CHECK_OK(w, par_split(w, rank % 2, 0, &comm));
        CHECK_OK(w, par_split(w, rank / 2, 0, &tp));
        p.newcomer = dead, p.calls = 6; // an odd number of updates: scales of blocks are the other ones
        if (dead) CHECK_OK(w, open_parts(w, &p, comm, tp));
        now.comm = comm, now.model_parallel_comm = now.tensor_parallel_comm = tp;
        CHECK_OK(w, par_zero_recover(p.z, w, &now));
        p.desc.microbatches = PART_BATCHES / 2;
        step_parts(w, &p);
        same_parts(w, &one, &p, "a grid that has lost ranks");
        CHECK_OK(w, par_zero_close(p.z));
        CHECK_OK(w, par_zero_close(one.z));
        par_comm *const all[] = {alone, comm, tp, left, old[0], old[1]};
        for (int i = 0; i < 6; i++) CHECK_OK(w, par_close(all[i]));
    }
}
static par_comm *give_comm(void *user, par_comm *old) { return (par_comm *)(old ? user : NULL); }
// Two stages of a pipeline, each with units of its own, of which the first one's second use of a weight
// stands between others. The same bits as of both stages on one rank each.
typedef struct two_stages {
    par_zero *z;
    int stage; // of the pipeline
} two_stages;
static void open_part(par_comm *w, two_stages *p, const par_zero_comms *now, int zero, int newcomer,
                      par_comm *tied) {
    par_zero_desc d = elastic_run(now->comm, 1, zero).desc;
    d.model_parallel_comm = now->model_parallel_comm, d.canonical_shards = 4;
    d.microbatches = 4 / par_size(now->comm);
    CHECK_OK(w, par_zero_open(&d, &p->z));
    for (int u = 0; u < 3; u++) {
        par_zero_tensor t;
        char name[16];
        memset(&t, 0, sizeof t), snprintf(name, sizeof name, "%d.%d", p->stage, u);
        t.name = name, t.dims = 1, t.shape[0] = 300 + (size_t)(100 * u) + (size_t)p->stage;
        t.tied_comm = u == 2 ? tied : NULL;
        if (u == 1 && !p->stage)
            CHECK(w, par_zero_add_use(p->z, "use", 0, NULL) == 1);
        else
            CHECK(w, par_zero_add_unit(p->z, name) == u && par_zero_add_tensor(p->z, &t) >= 0);
    }
    if (newcomer) return;
    CHECK_OK(w, par_zero_commit(p->z));
    for (int t = 0; t < 2 + p->stage; t++)
        CHECK_OK(w, par_zero_fill(p->z, t, PAR_ZERO_VALUE, give_start, &t));
}
static void step_stage(par_comm *w, two_stages *p) {
    for (int j = 0; j < p->z->microbatches; j++)
        for (int u = 2; u >= 0; u--) {
            const int t = p->stage ? u : u / 2; // unit 1 of stage 0 has none of its own
            CHECK_OK(w, par_zero_backward_begin(p->z, u));
            float *g = p->stage || u != 1 ? par_zero_grad(p->z, t)
                                          : (float *)(void *)par__zero_unit_gradients(p->z, 1);
            for (size_t i = 0; i < p->z->tensors[t].count; i++)
                g[i] += slope(3 * p->stage + u, par_zero_global_microbatch(p->z, j), par_zero_steps(p->z), i);
            CHECK_OK(w, par_zero_backward_end(p->z, u));
        }
    CHECK_OK(w, par_zero_step(p->z, 1, NULL));
}
static void pipelined(par_comm *w) {
    const int rank = par_rank(w), dead = rank == 1;
    if (par_size(w) != 4) return;
    for (int zero = 0; zero < 4; zero++) {
        par_zero_comms one, all, some, back;
        par_comm *left, *pair;
        two_stages p, q;
        p.stage = q.stage = rank / 2;
        memset(&one, 0, sizeof one);
        all = some = back = one;
        CHECK_OK(w, par_split(w, rank, 0, &one.comm));
        CHECK_OK(w, par_split(w, rank % 2, 0, &one.model_parallel_comm));
        CHECK_OK(w, par_split(w, rank / 2, 0, &all.comm));
        CHECK_OK(w, par_split(w, rank % 2, 0, &all.model_parallel_comm));
        CHECK_OK(w, par_split(w, dead ? -1 : 0, 0, &left));
        open_part(w, &q, &one, 0, 0, one.comm);
        open_part(w, &p, &all, zero, 0, one.comm);
        for (int i = 0; i < 5; i++) step_stage(w, &q);
        for (int i = 0; i < 2; i++) step_stage(w, &p);
        CHECK_OK(w, par_split(w, rank % 2 ? -1 : 0, 0, &pair)); // ranks 0 and 2 train, 3 is a spare
        if (rank % 2 == 0) some.comm = one.comm, some.model_parallel_comm = pair;
        some.replace = dead && zero % 2 ? NULL : give_comm; // a newcomer's may be new
        some.user = one.comm, back.replace = some.replace, back.user = one.comm;
        if (dead) die(p.z);
        if (left) CHECK_OK(w, par_zero_recover(p.z, left, &some));
        if (pair) step_stage(w, &p);
        CHECK_OK(w, par_split(w, rank / 2, 0, &back.comm));
        CHECK_OK(w, par_split(w, rank % 2, 0, &back.model_parallel_comm));
        if (dead) open_part(w, &p, &back, zero, 1, back.replace ? back.comm : one.comm);
        CHECK_OK(w, par_zero_recover(p.z, w, &back));
        for (int i = 0; i < 2; i++) step_stage(w, &p);
        for (int t = 0; t < 2 + p.stage; t++)
            for (int field = PAR_ZERO_VALUE; field <= PAR_ZERO_EMA; field++) {
                float want[600], got[600];
                if (field == PAR_ZERO_GRADIENT) continue;
                CHECK_OK(w, par_zero_read(q.z, t, (par_zero_field)field, want));
                CHECK_OK(w, par_zero_read(p.z, t, (par_zero_field)field, got));
                CHECK(w, !memcmp(want, got, p.z->tensors[t].count * sizeof *got));
            }
        CHECK_OK(w, par_zero_close(q.z));
        CHECK_OK(w, par_zero_close(p.z));
        par_comm *const comms[] = {one.comm,  one.model_parallel_comm,  all.comm, all.model_parallel_comm,
                                   back.comm, back.model_parallel_comm, left,     pair};
        for (int i = 0; i < 8; i++) CHECK_OK(w, par_close(comms[i]));
    }
}
// What a rank and its buddy had is lost: an error that says so, or it comes from the last checkpoint.
static void lost_shards(par_comm *w) {
    const int distance = par__zero_buddy_distance(w), rank = par_rank(w);
    char dir[256];
    if (par_size(w) != 4) return;
    scratch_memory(w, dir, sizeof dir);
    for (int bare = 0; bare < 2; bare++)
        for (int stage = 0; stage < 4; stage++) {
            const int dead = rank == 1 || (!bare && rank == (1 + distance) % 4);
            par_comm *all, *left, *some = NULL;
            par_zero_comms now;
            par_zero_recovery said;
            float *want[2];
            par_zero_checkpoint f = files_of(w, dir);
            memset(&now, 0, sizeof now);
            undisturbed(w, stage, want);
            CHECK_OK(w, par_split(w, 0, 0, &all));
            CHECK_OK(w, par_split(w, dead ? -1 : 0, 0, &left));
            run r = elastic_run(all, stage, stage);
            r.desc.buddies = !bare;
            open_run(w, &r);
            elastic_steps(w, &r, 2);
            CHECK_OK(w, par_zero_save(r.z, &f));
            CHECK_OK(w, par_zero_unlock(r.z));
            elastic_steps(w, &r, 1);
            if (dead) {
                die(r.z);
            } else {
                now.comm = some = trainers_of(w, left, 4, 1), now.recovery = &said;
                const par_result got = par_zero_recover(r.z, left, &now);
                CHECK(w, got == (stage ? PAR_ERR_LOST : PAR_OK));
                CHECK(w,
                      !stage || says(w, bare ? "par_zero_recover: the states of rank 1 of 4 are lost: it is "
                                               "gone, and without desc.buddies nobody has a copy; set "
                                               "par_zero_comms.checkpoint"
                                             : "the states of rank 1 of 4 are lost: it is gone, and so is "
                                               "its buddy; set par_zero_comms.checkpoint"));
                f.comm = some, now.checkpoint = &f;
                if (stage) CHECK_OK(w, par_zero_recover(r.z, left, &now));
                CHECK(w, said.from_checkpoint == (stage > 0) && said.step == par_zero_steps(r.z));
                CHECK(w, !stage || strstr(said.text, "the states of rank 1 of 4 are lost"));
            }
            CHECK_OK(w, par_close(all));
            if (some) {
                adopt_comms(&r, &now);
                expect_copies(w, &r);
                elastic_steps(w, &r, stage ? 4 : 3);
                float *got = everything_of(w, &r);
                CHECK(w, same_everything(want[0], got));
                free(got);
            }
            if (left) CHECK_OK(w, par_zero_close(r.z));
            free(want[0]), free(want[1]);
            CHECK_OK(w, par_close(some));
            CHECK_OK(w, par_close(left));
            CHECK_OK(w, par_barrier(w));
        }
    remove_dir(w, dir);
}
// Values that were set are the buddy's, too, from the next step or par_zero_flush on.
static void set_values(par_comm *w) {
    if (par_size(w) != 4) return;
    for (int stage = 1; stage < 4; stage++)
        for (int flushed = 0; flushed < 2; flushed++) {
            int second = 2;
            const int dead = par_rank(w) == 1;
            par_comm *all, *left;
            par_zero_comms now;
            CHECK_OK(w, par_split(w, 0, 0, &all));
            CHECK_OK(w, par_split(w, dead ? -1 : 0, 0, &left));
            run r = elastic_run(all, 2, stage);
            open_run(w, &r);
            elastic_steps(w, &r, 1);
            for (int i = 0; i < 2; i++) { // on one rank alone, too
                if (i || par_rank(w) == 2)
                    CHECK_OK(w, par_zero_fill(r.z, 6, PAR_ZERO_VALUE, give_start, &second));
                if (!i) elastic_steps(w, &r, 1);
            }
            if (flushed) CHECK_OK(w, par_zero_flush(r.z));
            if (flushed) expect_copies(w, &r);
            memset(&now, 0, sizeof now);
            if (dead) {
                die(r.z);
            } else {
                float got[CAPACITY];
                now.comm = trainers_of(w, left, 4, 0);
                const par_result is = par_zero_recover(r.z, left, &now);
                CHECK(w, is == (flushed ? PAR_OK : PAR_ERR_LOST));
                CHECK(w, flushed ||
                             says(w, "values were set that its buddy does not have: call par_zero_flush"));
                if (flushed && now.comm) CHECK_OK(w, par_zero_read(r.z, 6, PAR_ZERO_VALUE, got));
                for (size_t i = 0; flushed && now.comm && i < count_of(6); i++)
                    CHECK(w, got[i] == start(second, i));
                if (flushed) CHECK_OK(w, par_zero_close(r.z));
                if (!flushed) die(r.z);
            }
            CHECK_OK(w, par_close(now.comm));
            CHECK_OK(w, par_close(left));
            CHECK_OK(w, par_close(all));
        }
}
// The rank that had made the lock on the directory dies: another one has it, and a newcomer saves there.
static void inherited_lock(par_comm *w) {
    const int dead = par_rank(w) == 0;
    char dir[256];
    par__zero_holder h;
    par_comm *left, *back;
    if (par_size(w) != 4) return;
    scratch_memory(w, dir, sizeof dir);
    const elastic e = {0, 2, AT_END, 0, 4, 0, 0};
    par_zero_comms all = comms_of(w, &e), now;
    par_zero_checkpoint f = files_of(w, dir);
    run r = run_on(&all, &e);
    memset(&now, 0, sizeof now);
    CHECK_OK(w, par_split(w, dead ? -1 : 0, 0, &left));
    open_run(w, &r);
    elastic_steps(w, &r, 1);
    CHECK_OK(w, par_zero_save(r.z, &f));
    CHECK(w, par__zero_lock_read(dir, "lock.json", &h) == PAR__ZERO_LOCKED);
    CHECK(w, (h.pid == (uint64_t)getpid()) == dead);
    CHECK_OK(w, par_barrier(w));
    if (dead) {
        die(r.z);
    } else {
        now.comm = trainers_of(w, left, 4, 0);
        CHECK_OK(w, par_zero_recover(r.z, left, &now));
        CHECK_OK(w, par_barrier(left));
        CHECK(w, par__zero_lock_read(dir, "lock.json", &h) == PAR__ZERO_LOCKED);
        CHECK(w, (h.pid == (uint64_t)getpid()) == (par_rank(left) == 0));
    }
    CHECK_OK(w, par_split(w, 0, 0, &back));
    if (dead) {
        r = elastic_run(back, e.kind, e.stage), r.newcomer = 1;
        open_run(w, &r);
    }
    CHECK_OK(w, par_zero_recover(r.z, back, NULL));
    r.desc.comm = back, r.desc.microbatches = r.z->microbatches;
    f.comm = back;
    elastic_steps(w, &r, 1);
    CHECK_OK(w, par_zero_save(r.z, &f));
    CHECK_OK(w, par_zero_close(r.z));
    CHECK_OK(w, par_barrier(w));
    CHECK(w, par__zero_lock_read(dir, "lock.json", &h) == PAR__ZERO_UNLOCKED);
    close_comms(w, &all);
    par_comm *const comms[] = {now.comm, left, back};
    for (int i = 0; i < 3; i++) CHECK_OK(w, par_close(comms[i]));
    remove_dir(w, dir);
}
// What cannot be is an error on all ranks, behind which the context is as it was.
static void bad_numbers(par_comm *w) { // of ranks: 3 of 4; of microbatches
    par_comm *odd;
    par_zero_comms now;
    if (par_size(w) != 4) return;
    CHECK_OK(w, par_split(w, par_rank(w) ? 0 : -1, 0, &odd));
    run r = elastic_run(w, 0, 2);
    open_run(w, &r);
    one_step(w, &r, 1);
    memset(&now, 0, sizeof now);
    now.comm = odd;
    CHECK(w, par_zero_recover(r.z, w, &now) == PAR_ERR_ARGUMENT && says(w, "canonical_shards"));
    one_step(w, &r, 1);
    passes(w, &r);
    CHECK_OK(w, par__zero_prepare(r.z, 1));
    par__zero_swap_control(r.z), r.z->prepared = 1;
    CHECK(w, par_zero_step(r.z, 1, NULL) == PAR_ERR_ARGUMENT && says(w, "call par_zero_recover"));
    CHECK_OK(w, par_zero_recover(r.z, w, NULL));
    one_step(w, &r, 1);
    CHECK(w, par_zero_steps(r.z) == 3);
    CHECK_OK(w, par_zero_close(r.z));
    r = elastic_run(w, 0, 0), r.ordered = 1, r.order[0] = 1; // an order of 2 backward passes
    open_run(w, &r);
    CHECK_OK(w, par_split(w, par_rank(w) < 2 ? 0 : -1, 0, &now.comm));
    CHECK(w, par_zero_recover(r.z, w, &now) == PAR_ERR_ARGUMENT && says(w, "par_zero_set_order"));
    CHECK_OK(w, par_close(now.comm));
    CHECK_OK(w, par_zero_close(r.z));
    CHECK_OK(w, par_close(odd));
}
static void bad_recoveries(par_comm *w) {
    par_comm *self;
    par_zero_comms now;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &self));
    for (int i = 0; i < 3; i++) { // buddies: not with these
        run r = plain_run(w, i < 2 ? 3 : 0, PAR_ZERO_ADAMW);
        r.desc.buddies = 1, r.desc.parameter_server = i == 2;
        r.desc.offload_states = i == 0 ? "host" : NULL, r.desc.offload_parameters = i == 1 ? "host" : NULL;
        CHECK(w,
              par_zero_open(&r.desc, &r.z) == PAR_ERR_ARGUMENT && says(w, "buddies hold shards in memory"));
        r.desc.buddies = 0; // and recovery neither
        open_run(w, &r);
        CHECK(w, par_zero_recover(r.z, w, NULL) == PAR_ERR_ARGUMENT);
        CHECK(w, says(w, i == 2 ? "take stage 1" : "what is offloaded does not move between ranks"));
        one_step(w, &r, 1);
        CHECK_OK(w, par_zero_close(r.z));
    }
    par_zero_desc d = plain_run(w, 1, PAR_ZERO_ADAMW).desc;
    par_zero_tensor t;
    par_zero *z;
    memset(&t, 0, sizeof t), memset(&now, 0, sizeof now);
    t.name = "w", t.dims = 1, t.shape[0] = 100, t.tied_comm = self;
    CHECK_OK(w, par_zero_open(&d, &z));
    CHECK(w, par_zero_recover(z, w, NULL) == PAR_ERR_ARGUMENT && says(w, "there are no tensors"));
    CHECK(w, par_zero_add_unit(z, "u") == 0 && par_zero_add_tensor(z, &t) == 0);
    now.comm = w, now.replace = give_comm, now.user = self;
    CHECK(w, par_zero_recover(z, w, &now) == PAR_ERR_ARGUMENT &&
                 says(w, "no rank that has states has the tensors and settings of rank"));
    CHECK_OK(w, par_zero_commit(z)); // all the same
    int zeroth = 0;
    CHECK_OK(w, par_zero_fill(z, 0, PAR_ZERO_VALUE, give_start, &zeroth));
    CHECK(w, par_zero_recover(z, w, NULL) == PAR_ERR_ARGUMENT && says(w, "tensor w has a tied_comm"));
    char *const old = z->gradients;
    CHECK_OK(w, par_zero_recover(z, w, &now));
    CHECK(w, !par_peer(w, old, par_rank(w))); // all ranks of the old comm were there, and have freed it
    CHECK_OK(w, par_zero_close(z));
    CHECK_OK(w, par_close(self));
}

const test tests[] = {
    {"stages", stages, TEST_ALONE | TEST_SMALL, 1, 120},
    {"muon_bytes", muon_bytes, TEST_SERIAL, 1, 60},
    {"precisions", precisions, TEST_ALONE | TEST_SMALL, 1, 60},
    {"exact_norm", exact_norm, TEST_SERIAL, 1, 60},
    {"canonical", canonical, TEST_ALONE | TEST_SMALL, 1, 200},
    {"canonical_parts", canonical_parts, TEST_ALONE | TEST_POWERS | TEST_SMALL, 2, 60},
    {"split_updates", split_updates, TEST_ALONE | TEST_SMALL, 2, 60},
    {"scaled", scaled, TEST_ANY | TEST_POWERS, 1, 60},
    {"hybrid", hybrid, TEST_ALONE | TEST_SMALL, 2, 60},
    {"costs", costs, TEST_ALONE | TEST_SMALL, 1, 60},
    {"pools", pools, TEST_ANY | TEST_SMALL, 1, 60},
    {"sizes", sizes, TEST_SERIAL, 1, 60},
    {"places", places, TEST_ALONE | TEST_SMALL, 1, 120},
    {"paper", paper, TEST_SERIAL, 1, 60},
    {"no_allocation", no_allocation, TEST_ALONE | TEST_SMALL, 1, 60},
    {"offload", offload, TEST_ALONE | TEST_SMALL, 1, 120},
    {"resident", resident, TEST_ALONE | TEST_POWERS | TEST_SMALL, 1, 60},
    {"no_room", no_room, TEST_ALONE, 1, 60},
    {"checkpoints", checkpoints, TEST_ALONE | TEST_POWERS | TEST_SMALL, 1, 240},
    {"hybrid_checkpoint", hybrid_checkpoint, TEST_ALONE | TEST_POWERS, 4, 60},
    {"precision_changes", precision_changes, TEST_ANY, 1, 60},
    {"tensor_parallel", tensor_parallel, TEST_ANY | TEST_POWERS, 1, 60},
    {"gather_memory", gather_memory, TEST_ALONE | TEST_SMALL, 1, 60},
    {"parts_of_files", parts_of_files, TEST_ANY | TEST_SMALL, 1, 60},
    {"floats_of_8_bits", floats_of_8_bits, TEST_SERIAL, 1, 60},
    {"pipeline", pipeline, TEST_ANY, 1, 60},
    {"headers", headers, TEST_SERIAL, 1, 60},
    {"fifos", fifos, TEST_SERIAL, 1, 60},
    {"damage", damage, TEST_ALONE | TEST_SMALL, 1, 60},
    {"strict", strict, TEST_ANY, 1, 60},
    {"lenient", lenient, TEST_ANY | TEST_SMALL, 1, 60},
    {"loaded_scales", loaded_scales, TEST_ANY | TEST_SMALL, 1, 60},
    {"full", full, TEST_ALONE, 1, 60},
    {"kills", kills, TEST_SERIAL, 1, 120},
    {"two_writers", two_writers, TEST_SERIAL, 1, 120},
    {"two_find_a_stale_lock", two_find_a_stale_lock, TEST_SERIAL, 1, 120},
    {"locks", locks, TEST_ANY, 1, 60},
    {"two_directories", two_directories, TEST_ANY, 1, 60},
    {"blocks", blocks, TEST_SERIAL, 1, 60},
    {"quantized", quantized, TEST_ALONE | TEST_POWERS, 1, 60},
    {"updates", updates, TEST_SERIAL, 1, 60},
    {"state_codes", state_codes, TEST_SERIAL, 1, 60},
    {"state_thresholds", state_thresholds, TEST_SERIAL, 1, 60},
    {"state_extremes", state_extremes, TEST_SERIAL, 1, 60},
    {"state_rounding", state_rounding, TEST_SERIAL, 1, 60},
    {"narrow_states", narrow_states, TEST_ALONE | TEST_POWERS | TEST_SMALL, 1, 60},
    {"narrow_bytes", narrow_bytes, TEST_SERIAL, 1, 60},
    {"narrow_checkpoints", narrow_checkpoints, TEST_ALONE | TEST_POWERS | TEST_SMALL, 1, 60},
    {"overflow", overflow, TEST_ANY | TEST_SMALL, 1, 60},
    {"loss_scales", loss_scales, TEST_ANY | TEST_SMALL, 1, 60},
    {"scales_in_turn", scales_in_turn, TEST_SERIAL, 1, 60},
    {"rounding", rounding, TEST_ALONE, 1, 60},
    {"tied", tied, TEST_ANY | TEST_SMALL, 1, 60},
    {"orders", orders, TEST_SERIAL, 1, 60},
    {"partial_sums", partial_sums, TEST_ANY | TEST_SMALL, 1, 60},
    {"norms", norms, TEST_ANY, 1, 60},
    {"layers", layers, TEST_ANY, 1, 60},
    {"contents", contents, TEST_ANY, 1, 60},
    {"schedules", schedules, TEST_SERIAL, 1, 60},
    {"wrong_order", wrong_order, TEST_ANY, 2, 60},
    {"mistakes", mistakes, TEST_ANY, 1, 60},
    {"few_passes", few_passes, TEST_ANY | TEST_SMALL, 1, 60},
    {"gathered_before", gathered_before, TEST_ANY | TEST_SMALL, 1, 60},
    {"bad_tensors", bad_tensors, TEST_ANY, 1, 60},
    {"without_comm", without_comm, TEST_SERIAL, 1, 60},
    {"disagreement", disagreement, TEST_ANY, 2, 60},
    {"compared", compared, TEST_ALONE | TEST_SMALL, 2, 60},
    {"compared_members", compared_members, TEST_SERIAL, 1, 60},
    {"groups", groups, TEST_ANY, 1, 60},
    {"factors", factors, TEST_ALONE | TEST_SMALL, 1, 60},
    {"first_ranks_values", first_ranks_values, TEST_ANY | TEST_SMALL, 1, 60},
    {"layer_dtypes", layer_dtypes, TEST_SERIAL, 1, 60},
    {"buddies", buddies, TEST_ALONE | TEST_RANKS | TEST_NODES | TEST_SMALL, 1, 120},
    {"comes_and_goes", comes_and_goes, TEST_ANY | TEST_POWERS | TEST_SMALL, 4, 240},
    {"replicas", replicas, TEST_ALONE | TEST_POWERS | TEST_SMALL, 4, 120},
    {"dies_meanwhile", dies_meanwhile, TEST_ALONE | TEST_POWERS | TEST_SMALL, 4, 120},
    {"other_numbers", other_numbers, TEST_ALONE | TEST_POWERS | TEST_SMALL, 4, 120},
    {"grids", grids, TEST_ANY | TEST_POWERS | TEST_SMALL, 4, 120},
    {"pipelined", pipelined, TEST_ALONE | TEST_POWERS | TEST_SMALL, 4, 60},
    {"lost_shards", lost_shards, TEST_ALONE | TEST_POWERS | TEST_SMALL, 4, 120},
    {"set_values", set_values, TEST_ALONE | TEST_POWERS | TEST_SMALL, 4, 60},
    {"inherited_lock", inherited_lock, TEST_ALONE | TEST_POWERS | TEST_SMALL, 4, 60},
    {"bad_numbers", bad_numbers, TEST_ANY | TEST_POWERS | TEST_SMALL, 4, 60},
    {"bad_recoveries", bad_recoveries, TEST_ANY | TEST_SMALL, 1, 60},
};
const int test_count = (int)(sizeof tests / sizeof tests[0]);

// bench_zero.c - what par_zero.h costs: setting up; the fused update against memory's own speed and against
// three passes; what quantized messages lose; offloaded states against the disk's own speed; a training step
// of each stage against its computation and against stage 0; bytes beside the plan.
//
//     build/bench_zero                      1 rank, then 2
//     build/bench_zero --units 12 --width 1024 --json
//
// Variants of a comparison alternate in one run; times are medians, ratios medians of each round's. A step
// computes, for each unit, products as a layer of `width` features and `rows` tokens does, forward (1) and
// backward (2).
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE // O_DIRECT
#endif
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_zero.h"

#include "../examples/options.h"
#include "../examples/median.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct settings {
    int units, width, rows, iterations, json, elements;
    const char *dir, *op;
} settings;
typedef struct bench {
    settings o;
    par_comm *world;
    double setup_vs_scalar, adam_vs_triad, adam_vs_unfused, bf16_states_vs_f32, u8_states_vs_f32,
        ddp_vs_predicted, stage_vs[4], buddies_vs[4], offload_vs_disk;
    int plan_equal;
} bench;

static void need(const bench *b, par_result r) {
    if (r == PAR_OK) return;
    fprintf(stderr, "bench_zero: rank %d: %s\n", par_rank(b->world), par_last_error(b->world));
    exit(1);
}
static void *allocate(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) exit(fprintf(stderr, "bench_zero: out of memory\n") != 0);
    return memset(p, 0, bytes), p;
}

// ---- setting up -------------------------------------------------------------------------------------------

typedef struct usage { // of a rank
    double seconds, user, system, faults;
} usage;
static usage usage_now(const bench *b) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    const usage u = {par_seconds(b->world), (double)r.ru_utime.tv_sec + 1e-6 * (double)r.ru_utime.tv_usec,
                     (double)r.ru_stime.tv_sec + 1e-6 * (double)r.ru_stime.tv_usec, (double)r.ru_minflt};
    return u;
}
static void normal_by_normal(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = 0.02f * par_normal(0, *(uint64_t *)user, first + i);
}
// Opens a context for AdamW, draws all parameters, and closes it.
static usage set_up(bench *b, int scalar) {
    enum { TENSORS = 12 };
    par_zero_desc d;
    par_zero *z;
    memset(&d, 0, sizeof d);
    d.comm = b->world, d.hyper[0].lr = 1e-3f;
    need(b, par_barrier(b->world));
    const usage before = usage_now(b);
    need(b, par_zero_open(&d, &z));
    for (int u = 0; u < TENSORS; u++) {
        par_zero_tensor t;
        char name[32];
        memset(&t, 0, sizeof t), snprintf(name, sizeof name, "w%d", u);
        t.name = name, t.dims = 1, t.shape[0] = MAX((size_t)b->o.elements / TENSORS, (size_t)1);
        t.stream = (uint64_t)u, t.deviation = 0.02f;
        par_zero_add_unit(z, "layer"), par_zero_add_tensor(z, &t); // what these refuse, commit refuses
    }
    need(b, par_zero_commit(z));
    for (uint64_t u = 0; u < TENSORS && scalar; u++)
        need(b, par_zero_fill(z, (int)u, PAR_ZERO_VALUE, normal_by_normal, &u));
    if (!scalar) need(b, par_zero_init_all(z));
    need(b, par_zero_close(z));
    const usage after = usage_now(b);
    const usage u = {after.seconds - before.seconds, after.user - before.user, after.system - before.system,
                     after.faults - before.faults};
    return u;
}
static void measure_setup(bench *b) {
    enum { ROUNDS = 3 };
    double t[2][ROUNDS], sums[3] = {0, 0, 0};
    for (int i = 0; i < ROUNDS; i++)
        for (int scalar = 0; scalar < 2; scalar++) {
            const usage u = set_up(b, scalar);
            t[scalar][i] = u.seconds;
            if (!scalar)
                sums[0] += u.user / ROUNDS, sums[1] += u.system / ROUNDS, sums[2] += u.faults / ROUNDS;
        }
    need(b, par_all_reduce(t, t, 2 * ROUNDS, PAR_F64, PAR_MAX, b->world));
    need(b, par_all_reduce(sums, sums, 3, PAR_F64, PAR_SUM, b->world));
    b->setup_vs_scalar = median_ratio(t[1], t[0], ROUNDS);
    if (par_rank(b->world)) return;
    const double seconds = median(t[0], ROUNDS), scalar = median(t[1], ROUNDS);
    if (b->o.json)
        json_print(
            "setup_us:%.1f ranks:%d elements:%d user_us:%.1f system_us:%.1f faults:%.0f scalar_us:%.1f",
            seconds * 1e6, par_size(b->world), b->o.elements, sums[0] * 1e6, sums[1] * 1e6, sums[2],
            scalar * 1e6);
    else
        printf("setting up %d parameters on each of %d ranks, and freeing them: %.3f s; all ranks' processor "
               "time %.3f s, in the system %.3f s more, %.0f page faults; values drawn one by one: %.3f s\n",
               b->o.elements, par_size(b->world), seconds, sums[0], sums[1], sums[2], scalar);
}

// ---- the update -------------------------------------------------------------------------------------------

typedef struct arrays {
    size_t n;
    float *w, *g, *m, *v;
    uint16_t *stored;
    void *narrow[2][2]; // both moments in bf16, in u8
    par_zero_update a;
} arrays;
static void triad(arrays *x) { // the same arrays: w = g + s m
    float *restrict w = x->w;
    const float *restrict g = x->g, *restrict m = x->m;
    for (size_t i = 0; i < x->n; i++) w[i] = g[i] + 0.5f * m[i];
}
static void fused(arrays *x) {
    par_zero_cpu()->update(par_zero_cpu(), &x->a, x->n, x->w, NULL, PAR_F32, x->g, PAR_F32, x->m, x->v, NULL);
}
static void fused_half(arrays *x) { // with a copy of the weights in bf16
    par_zero_cpu()->update(par_zero_cpu(), &x->a, x->n, x->w, x->stored, PAR_BF16, x->g, PAR_F32, x->m, x->v,
                           NULL);
}
static void narrow(arrays *x, par_dtype type) { // with moments of fewer bytes
    par_zero_update a = x->a;
    void *const *moments = x->narrow[type == PAR_U8];
    a.state_dtype = type, a.state_seed = 1;
    par_zero_cpu()->update(par_zero_cpu(), &a, x->n, x->w, NULL, PAR_F32, x->g, PAR_F32, moments[0],
                           moments[1], NULL);
}
static void bf16_states(arrays *x) { narrow(x, PAR_BF16); }
static void u8_states(arrays *x) { narrow(x, PAR_U8); }
static void unfused(arrays *x) { // gradients are scaled, then weights updated, then cast
    par_zero_update a = x->a;
    for (size_t i = 0; i < x->n; i++) x->g[i] *= 1.0000001f;
    a.scale = 1;
    par_zero_cpu()->update(par_zero_cpu(), &a, x->n, x->w, NULL, PAR_F32, x->g, PAR_F32, x->m, x->v, NULL);
    par_cast(x->stored, PAR_BF16, x->w, PAR_F32, x->n);
}
static void measure_update(bench *b) {
    enum { KINDS = 6 };
    void (*const run[KINDS])(arrays *) = {triad, fused, bf16_states, u8_states, fused_half, unfused};
    // an element: what must be read and written
    static const double bytes[KINDS] = {12, 28, 20, 16 + 16.0 / 256, 30, 42};
    static const char *const names[KINDS] = {"triad",
                                             "AdamW",
                                             "AdamW, bf16 states",
                                             "AdamW, u8 states",
                                             "AdamW, bf16 copy",
                                             "the same in three passes"};
    double *t[KINDS];
    arrays x;
    memset(&x, 0, sizeof x);
    x.n = (size_t)(b->o.elements + 255) / 256 * 256;
    x.w = (float *)allocate(x.n * 4), x.g = (float *)allocate(x.n * 4), x.m = (float *)allocate(x.n * 4),
    x.v = (float *)allocate(x.n * 4), x.stored = (uint16_t *)allocate(x.n * 2);
    x.a.optimizer = PAR_ZERO_ADAMW,
    x.a.scale = x.a.trust_ratio = x.a.bias_correction1 = x.a.bias_correction2 = 1;
    x.a.hyper.lr = 1e-4f, x.a.hyper.beta1 = 0.9f, x.a.hyper.beta2 = 0.99f, x.a.hyper.epsilon = 1e-8f;
    for (size_t i = 0; i < x.n; i++) x.g[i] = x.m[i] = x.v[i] = 1e-3f * (float)(i % 7 + 1);
    for (int k = 0; k < 4; k++) x.narrow[k / 2][k % 2] = allocate(k < 2 ? x.n * 2 : x.n / 256 * 260);
    for (int k = 0; k < KINDS; k++) t[k] = (double *)allocate(sizeof(double) * (size_t)b->o.iterations);
    for (int i = -1; i < b->o.iterations; i++)
        for (int k = 0; k < KINDS; k++) {
            const double start = par_seconds(b->world);
            run[k](&x);
            if (i >= 0) t[k][i] = par_seconds(b->world) - start;
        }
    b->adam_vs_triad = median_ratio(t[0], t[1], b->o.iterations) * bytes[1] / bytes[0];
    b->adam_vs_unfused = median_ratio(t[5], t[4], b->o.iterations);
    b->bf16_states_vs_f32 = median_ratio(t[1], t[2], b->o.iterations);
    b->u8_states_vs_f32 = median_ratio(t[1], t[3], b->o.iterations);
    for (int k = 0; k < KINDS; k++) {
        const double seconds = median(t[k], b->o.iterations), rate = bytes[k] * (double)x.n / seconds;
        if (b->o.json)
            json_print("update:%s elements:%zu time_us:%.2f bytes_per_s:%.4g", names[k], x.n, seconds * 1e6,
                       rate);
        else
            printf("%26s %12.1f us %8.2f GB/s\n", names[k], seconds * 1e6, rate * 1e-9);
        free(t[k]);
    }
    for (int k = 0; k < 4; k++) free(x.narrow[k / 2][k % 2]);
    free(x.w), free(x.g), free(x.m), free(x.v), free(x.stored);
}

// ---- quantized messages -----------------------------------------------------------------------------------

static void measure_blocks(bench *b) { // normal numbers in blocks: the loss, the bytes, the speed
    const size_t n = (size_t)b->o.elements / 64 * 64;
    float *x = (float *)allocate(n * 4), *y = (float *)allocate(n * 4);
    char *packed = (char *)allocate(n * 2);
    double *t = (double *)allocate(sizeof(double) * (size_t)b->o.iterations);
    for (size_t i = 0; i < n; i++) x[i] = par_normal(1, 1, i);
    static const struct {
        const char *name;
        int code, bits;
    } codes[] = {
#define X(constant, value, bits, largest) {#constant, constant, bits},
        PAR_ZERO_CODES(X)
#undef X
    };
    for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
        const char *name = codes[c].name + strlen("PAR_ZERO_");
        const int bits = codes[c].bits;
        double squares = 0, errors = 0;
        for (int i = -1; i < b->o.iterations; i++) {
            const double start = par_seconds(b->world);
            need(b, par_zero_cpu()->quantize(par_zero_cpu(), codes[c].code, n, x, PAR_F32, packed));
            need(b, par_zero_cpu()->dequantize(par_zero_cpu(), codes[c].code, n, packed, y, PAR_F32));
            if (i >= 0) t[i] = par_seconds(b->world) - start;
        }
        for (size_t i = 0; i < n; i++) {
            const double d = (double)x[i] - (double)y[i];
            squares += (double)x[i] * (double)x[i], errors += d * d;
        }
        const double seconds = median(t, b->o.iterations), error = sqrt(errors / squares);
        const double bytes = (2 + 4 * bits) / 32.0;
        if (b->o.json)
            json_print(
                "quantized_bits:%d code:%s bytes_per_element:%.4f relative_error:%.5f elements_per_s:%.4g",
                bits, name, bytes, error, (double)n / seconds);
        else
            printf("%s: %.4f bytes an element, relative error %.5f, %.2f elements a ns there and back\n",
                   name, bytes, error, 1e-9 * (double)n / seconds);
    }
    free(x), free(y), free(packed), free(t);
}

// ---- offloading -------------------------------------------------------------------------------------------

// A file of so many bytes is read and written again, in pieces as large as what par_zero.h moves at a time,
// past the page cache where the file system can.
static int disk_open(const bench *b, size_t bytes) {
    char path[4200];
    snprintf(path, sizeof path, "%.4000s/bench_zero.XXXXXX", b->o.dir);
    const int fd = mkstemp(path);
    if (fd >= 0) unlink(path);
    const int e = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (e)
        exit(fprintf(stderr, "bench_zero: no room for %zu bytes in %s: %s\n", bytes, b->o.dir, strerror(e)) !=
             0);
    (void)!fcntl(fd, F_SETFL, O_RDWR | O_DIRECT);
    return fd;
}
static void disk_pass(int fd, char *memory, size_t piece, size_t bytes) {
    for (size_t at = 0; at < bytes; at += piece) {
        const size_t n = MIN(piece, bytes - at);
        if (pread(fd, memory, n, (off_t)at) != (ssize_t)n || pwrite(fd, memory, n, (off_t)at) != (ssize_t)n)
            exit(fprintf(stderr, "bench_zero: the disk fails: %s\n", strerror(errno)) != 0);
    }
}
static void measure_offload(bench *b, par_comm *self) {
    enum { PIECE = 1 << 20 }; // as a window of two moments has (PAR_ZERO_WINDOW)
    char where[4200];
    par_zero_desc d;
    par_zero_tensor t;
    par_zero *z;
    memset(&d, 0, sizeof d), memset(&t, 0, sizeof t);
    snprintf(where, sizeof where, "file:%s", b->o.dir);
    d.comm = self, d.offload_states = where, d.hyper[0].lr = 1e-3f;
    t.name = "w", t.dims = 1, t.shape[0] = (size_t)b->o.elements;
    need(b, par_zero_open(&d, &z));
    par_zero_add_unit(z, "states"), par_zero_add_tensor(z, &t); // what these refuse, commit refuses
    need(b, par_zero_commit(z));
    const size_t bytes = par_zero_allocated(z).file_bytes;
    double *t_step = (double *)allocate(sizeof(double) * (size_t)b->o.iterations),
           *t_disk = (double *)allocate(sizeof(double) * (size_t)b->o.iterations);
    char *memory = NULL;
    if (posix_memalign((void **)&memory, 4096, PIECE)) exit(1);
    memset(memory, 0, PIECE);
    const int fd = disk_open(b, bytes);
    for (int i = -1; i < b->o.iterations; i++) {
        double start = par_seconds(self);
        disk_pass(fd, memory, PIECE, bytes);
        if (i >= 0) t_disk[i] = par_seconds(self) - start;
        need(b, par_zero_backward_begin(z, 0));
        need(b, par_zero_backward_end(z, 0));
        start = par_seconds(self);
        need(b, par_zero_step(z, 1, NULL)); // all but the last window are written by now
        if (i >= 0) t_step[i] = par_seconds(self) - start;
    }
    b->offload_vs_disk = median_ratio(t_disk, t_step, b->o.iterations);
    const double disk = median(t_disk, b->o.iterations), step = median(t_step, b->o.iterations);
    if (b->o.json)
        json_print("offload_bytes:%zu step_us:%.2f disk_us:%.2f vs_disk:%.4f", bytes, step * 1e6, disk * 1e6,
                   b->offload_vs_disk);
    else
        printf("%zu bytes of states in a file: a step %.1f us; reading and writing them alone %.1f us (%.2f "
               "GB/s)\n",
               bytes, step * 1e6, disk * 1e6, 2e-9 * (double)bytes / disk);
    close(fd), free(memory), free(t_step), free(t_disk);
    need(b, par_zero_close(z));
}

// ---- a step -----------------------------------------------------------------------------------------------

typedef struct model {
    bench *b;
    par_zero *z;
    float *x, *y;
    double communication; // predicted for the gradients of a step of stage 0
} model;
static void compute(model *m, const float *w, float *grad) {
    const size_t n = (size_t)m->b->o.width, rows = (size_t)m->b->o.rows;
    if (grad) need(m->b, par_gemm(1, 0, n, n, rows, 1e-6f, m->y, n, m->x, n, 1, grad, n));
    need(m->b, par_gemm(0, 0, rows, n, n, 1e-3f, m->x, n, w, n, 0, m->y, n));
}
static void some_values(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = par_uniform(1, (uint64_t) * (int *)user, first + i) - 0.5f;
}
static void open_model(model *m, bench *b, int stage, int buddies) {
    const size_t n = (size_t)b->o.width, rows = (size_t)b->o.rows;
    par_zero_desc d;
    memset(&d, 0, sizeof d), memset(m, 0, sizeof *m);
    d.comm = b->world, d.stage = stage, d.hyper[0].lr = 1e-5f, d.buddies = buddies;
    m->b = b, m->x = (float *)allocate(rows * n * 4), m->y = (float *)allocate(rows * n * 4);
    for (size_t i = 0; i < rows * n; i++) m->x[i] = par_uniform(2, 1, i) - 0.5f;
    need(b, par_zero_open(&d, &m->z));
    for (int u = 0; u < b->o.units; u++) {
        par_zero_tensor t;
        char name[32];
        memset(&t, 0, sizeof t), snprintf(name, sizeof name, "w%d", u);
        t.name = name, t.dims = 2, t.shape[0] = t.shape[1] = n;
        par_zero_add_unit(m->z, "layer"), par_zero_add_tensor(m->z, &t); // what these refuse, commit refuses
    }
    need(b, par_zero_commit(m->z));
    for (int u = 0; u < b->o.units; u++) need(b, par_zero_fill(m->z, u, PAR_ZERO_VALUE, some_values, &u));
    m->communication = b->o.units * par_predict(b->world, PAR_KIND_ALL_REDUCE, n * n * 4);
}
static void close_model(model *m) {
    need(m->b, par_zero_close(m->z));
    free(m->x), free(m->y);
}
static void one_step(model *m) {
    const int units = m->b->o.units;
    for (int u = 0; u < units; u++) {
        need(m->b, par_zero_forward_begin(m->z, u));
        compute(m, (const float *)par_zero_data(m->z, u), NULL);
        need(m->b, par_zero_forward_end(m->z, u));
    }
    for (int u = units - 1; u >= 0; u--) {
        need(m->b, par_zero_backward_begin(m->z, u));
        compute(m, (const float *)par_zero_data(m->z, u), par_zero_grad(m->z, u));
        need(m->b, par_zero_backward_end(m->z, u));
    }
    need(m->b, par_zero_step(m->z, 1, NULL));
}
// The computation and the update of one rank, without communication.
static void alone(model *m, float *w, float *g, par_zero_update *a, float *states) {
    const size_t n = (size_t)m->b->o.width * (size_t)m->b->o.width;
    double sum = 0;
    for (int u = 0; u < m->b->o.units; u++) compute(m, w + (size_t)u * n, NULL);
    for (int u = m->b->o.units - 1; u >= 0; u--) compute(m, w + (size_t)u * n, g + (size_t)u * n);
    for (int u = 0; u < m->b->o.units; u++)
        par_zero_cpu()->square_sum(par_zero_cpu(), g + (size_t)u * n, PAR_F32, n, 1, &sum);
    a->scale = sum > 0 ? 1 : 0.5f;
    const size_t all = n * (size_t)m->b->o.units;
    par_zero_cpu()->update(par_zero_cpu(), a, all, w, NULL, PAR_F32, g, PAR_F32, states, states + all, NULL);
    memset(g, 0, all * 4);
}
static int plan_holds(const model *m) {
    par_zero_plan p, q = par_zero_allocated(m->z);
    par_zero_plan_of(m->z, &p);
    return p.parameter_bytes == q.parameter_bytes && p.gradient_bytes == q.gradient_bytes &&
           p.state_bytes == q.state_bytes && p.buffer_bytes == q.buffer_bytes;
}
enum { MODELS = 6, KINDS = 7 }; // stages, stages 1 and 3 with buddies; then computation alone
static void print_steps(const bench *b, const model *m, const double *seconds) {
    const int root = par_rank(b->world) == 0;
    for (int s = 0; s < 4; s++) {
        const par_zero_plan p = par_zero_allocated(m[s].z);
        if (root && b->o.json)
            json_print("stage:%d ranks:%d time_us:%.2f vs_stage0:%.4f parameter_bytes:%zu gradient_bytes:%zu "
                       "state_bytes:%zu buffer_bytes:%zu",
                       s, par_size(b->world), seconds[s] * 1e6, b->stage_vs[s], p.parameter_bytes,
                       p.gradient_bytes, p.state_bytes, p.buffer_bytes);
        else if (root)
            printf("stage %d: %10.1f us, %.3f of stage 0; bytes of parameters %zu, gradients %zu, states "
                   "%zu, buffers %zu\n",
                   s, seconds[s] * 1e6, b->stage_vs[s], p.parameter_bytes, p.gradient_bytes, p.state_bytes,
                   p.buffer_bytes);
    }
    for (int s = 4; s < MODELS; s++) {
        const par_zero_plan p = par_zero_allocated(m[s].z);
        const int stage = 2 * s - 7;
        if (root && b->o.json)
            json_print("buddies_stage:%d ranks:%d time_us:%.2f vs_without:%.4f buddy_bytes:%zu", stage,
                       par_size(b->world), seconds[s] * 1e6, b->buddies_vs[stage], p.buddy_bytes);
        else if (root)
            printf("stage %d with buddies: %10.1f us, %.3f of that without; %zu bytes more\n", stage,
                   seconds[s] * 1e6, b->buddies_vs[stage], p.buddy_bytes);
    }
    if (root && b->o.json)
        json_print("compute_us:%.2f communication_predicted_us:%.2f ddp_us:%.2f", seconds[MODELS] * 1e6,
                   m[0].communication * 1e6, seconds[0] * 1e6);
    else if (root)
        printf("computation alone %.1f us, communication %.1f us predicted: stage 0 takes %.3f of the sum\n",
               seconds[MODELS] * 1e6, m[0].communication * 1e6, b->ddp_vs_predicted);
}
static void measure_steps(bench *b) {
    const size_t all = (size_t)b->o.width * (size_t)b->o.width * (size_t)b->o.units;
    double *t[KINDS], seconds[KINDS],
        *predicted = (double *)allocate(sizeof(double) * (size_t)b->o.iterations);
    model m[MODELS];
    par_zero_update a;
    memset(&a, 0, sizeof a);
    a.optimizer = PAR_ZERO_ADAMW, a.scale = a.trust_ratio = a.bias_correction1 = a.bias_correction2 = 1,
    a.hyper.epsilon = 1e-8f;
    a.hyper.lr = 1e-5f, a.hyper.beta1 = 0.9f, a.hyper.beta2 = 0.999f;
    float *w = (float *)allocate(all * 4), *g = (float *)allocate(all * 4),
          *states = (float *)allocate(all * 8);
    need(b, par_calibrate(b->world));
    b->plan_equal = 1;
    for (int s = 0; s < MODELS; s++) {
        open_model(&m[s], b, s < 4 ? s : 2 * s - 7, s >= 4);
        b->plan_equal &= plan_holds(&m[s]);
    }
    for (int k = 0; k < KINDS; k++) t[k] = (double *)allocate(sizeof(double) * (size_t)b->o.iterations);
    for (int i = -1; i < b->o.iterations; i++)
        for (int k = 0; k < KINDS; k++) {
            need(b, par_barrier(b->world));
            const double start = par_seconds(b->world);
            if (k < MODELS)
                one_step(&m[k]);
            else
                alone(&m[0], w, g, &a, states);
            need(b, par_barrier(b->world));
            if (i >= 0) t[k][i] = par_seconds(b->world) - start;
        }
    for (int k = 0; k < KINDS; k++)
        need(b, par_all_reduce(t[k], t[k], (size_t)b->o.iterations, PAR_F64, PAR_MAX, b->world));
    for (int s = 0; s < 4; s++) b->stage_vs[s] = median_ratio(t[s], t[0], b->o.iterations);
    for (int s = 4; s < MODELS; s++)
        b->buddies_vs[2 * s - 7] = median_ratio(t[s], t[2 * s - 7], b->o.iterations);
    for (int i = 0; i < b->o.iterations; i++) predicted[i] = t[MODELS][i] + m[0].communication;
    b->ddp_vs_predicted = median_ratio(t[0], predicted, b->o.iterations);
    for (int k = 0; k < KINDS; k++) seconds[k] = median(t[k], b->o.iterations), free(t[k]);
    free(predicted);
    print_steps(b, m, seconds);
    for (int s = MODELS - 1; s >= 0; s--) close_model(&m[s]);
    free(w), free(g), free(states);
}

static int parse_settings(int argc, char **argv, settings *o) { // as options_parse
    o->units = 8, o->width = 768, o->rows = 2048, o->iterations = 9, o->elements = 8 << 20;
    o->op = "all";
    o->dir = getenv("TMPDIR") ? getenv("TMPDIR") : ".";
    option options[] = {
        {"--units", OPTION_INT, &o->units, "units, each a square matrix", 1, INFINITY},
        {"--width", OPTION_INT, &o->width, "its side", 1, INFINITY},
        {"--rows", OPTION_INT, &o->rows, "tokens: how much is computed for each", 1, INFINITY},
        {"--elements", OPTION_INT, &o->elements, "of the update that is timed alone", 64, INFINITY},
        {"--dir", OPTION_TEXT, &o->dir, "where offloaded states go"},
        {"--op", OPTION_TEXT, &o->op, "all, or setup: setting up alone"},
        {"-n", OPTION_INT, &o->iterations, "measurements of each", 1, INFINITY},
        {"--json", OPTION_FLAG, &o->json, "one JSON object a line; the last is the summary"},
    };
    const int parsed =
        options_parse(argc, argv, options, sizeof options / sizeof options[0],
                      "bench_zero: time updates on 1 rank, and training steps of all stages on 2");
    if (parsed) return parsed;
    if (strcmp(o->op, "all") && strcmp(o->op, "setup"))
        return fprintf(stderr, "bench_zero: op is all or setup, not \"%s\"\n", o->op), 2;
    if (!options_fit("bench_zero", (double)o->units * o->width * o->width, "units x width x width") ||
        !options_fit("bench_zero", (double)o->rows * o->width, "rows x width"))
        return 2;
    return 0;
}
int main(int argc, char **argv) {
    bench b;
    memset(&b, 0, sizeof b);
    settings *o = &b.o;
    const int parsed = parse_settings(argc, argv, o);
    if (parsed) return parsed == 1 ? 0 : 2;
    char made[4300], why[1200];
    if (output_try_in(o->dir, made, sizeof made, why, sizeof why))
        return fprintf(stderr, "bench_zero: %s\n", why), 1;
    unlink(made);
    par_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.rank_count = par_launched(NULL) ? 0 : 2;
    if (par_open(&desc, &b.world)) return 1;
    const size_t n = (size_t)o->width, rows = (size_t)o->rows;
    const par_gemm_shape products[] = {{1, 0, n, n, rows, 1}, {0, 0, rows, n, n, 1}};
    need(&b, par_gemm_select(products, 2, b.world));
    const int root = par_rank(b.world) == 0;
    measure_setup(&b);
    if (!strcmp(o->op, "setup")) return par_close(b.world) != PAR_OK || output_failed("bench_zero");
    par_comm *self;
    need(&b, par_split(b.world, par_rank(b.world), 0, &self));
    if (root) measure_update(&b), measure_blocks(&b), measure_offload(&b, self); // the other rank sleeps
    need(&b, par_close(self));
    need(&b, par_barrier(b.world));
    measure_steps(&b);
    if (root && o->json)
        json_print(
            "summary:%b setup_vs_scalar:%.4f adam_vs_triad:%.4f adam_vs_unfused:%.4f bf16_states_vs_f32:%.4f "
            "u8_states_vs_f32:%.4f "
            "ddp_vs_predicted:%.4f stage1_vs_stage0:%.4f "
            "stage2_vs_stage0:%.4f stage3_vs_stage0:%.4f buddies_vs_stage1:%.4f buddies_vs_stage3:%.4f "
            "offload_vs_disk:%.4f plan_equals_measured:%b",
            1, b.setup_vs_scalar, b.adam_vs_triad, b.adam_vs_unfused, b.bf16_states_vs_f32,
            b.u8_states_vs_f32, b.ddp_vs_predicted, b.stage_vs[1], b.stage_vs[2], b.stage_vs[3],
            b.buddies_vs[1], b.buddies_vs[3], b.offload_vs_disk, b.plan_equal);
    else if (root)
        printf("AdamW %.2f of the triad's rate, %.2f times as fast as three passes, with bf16 and u8 states "
               "%.2f and %.2f times as fast as with f32; stages 1, 2, 3 take %.3f, %.3f, %.3f of stage 0; "
               "offloaded to files at %.2f of the disk's rate; the plan %s\n",
               b.adam_vs_triad, b.adam_vs_unfused, b.bf16_states_vs_f32, b.u8_states_vs_f32, b.stage_vs[1],
               b.stage_vs[2], b.stage_vs[3], b.offload_vs_disk, b.plan_equal ? "holds" : "does NOT hold");
    const int bad = par_close(b.world) != PAR_OK;
    return output_failed("bench_zero") || bad;
}

// par_zero.h - data parallelism from DDP to ZeRO-3: places for parameters, gradients and optimizer states.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_ZERO_IMPLEMENTATION)
#define PAR_ZERO_IMPLEMENTATION
#endif
// clang-format on

#include "par.h"

#ifndef PAR_ZERO_H
#define PAR_ZERO_H
/*
WHAT
    n ranks train one model on different data. Parameters, gradients and optimizer states are each whole on
    every rank, or cut into n shards: the stage says which. Everything else, forward, backward and the loss,
    stays yours: you say which unit (a layer, say) you are about to use, and where its gradients are complete.

USE
    #define PAR_IMPLEMENTATION        in one file
    #include "par_zero.h"             cc -O2 prog.c -pthread -lm

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par_zero.h"

    static void fours(void *user, size_t first, size_t count, float *values) {
        (void)user, (void)first;
        for (size_t i = 0; i < count; i++) values[i] = 4;
    }
    int main(void) { // each rank pulls all weights towards its own number; the average wins
        par_comm *world;
        par_zero *z;
        par_zero_desc desc = {0};
        par_zero_tensor t = {0};
        par_zero_report report;
        if (par_open(NULL, &world)) return 1;
        desc.comm = world, desc.stage = 3, desc.average = 1;
        desc.optimizer = PAR_ZERO_SGD, desc.hyper[0].lr = 1;
        t.name = "w", t.dims = 1, t.shape[0] = 1000;
        if (par_zero_open(&desc, &z)) return 1;
        const int layer = par_zero_unit(z, "layer"), w = par_zero_add(z, &t);
        if (par_zero_commit(z) || par_zero_fill(z, w, PAR_ZERO_VALUE, fours, NULL)) return 1;
        if (par_zero_forward_begin(z, layer)) return 1; // from here on par_zero_data(z, w) is all of w
        if (par_zero_forward_end(z, layer) || par_zero_backward_begin(z, layer)) return 1;
        for (int i = 0; i < 1000; i++)
            par_zero_grad(z, w)[i] = ((float *)par_zero_data(z, w))[i] - (float)par_rank(world);
        if (par_zero_backward_end(z, layer) || par_zero_step(z, 1, &report)) return 1;
        float now[1000];
        if (par_zero_read(z, w, PAR_ZERO_VALUE, now)) return 1;
        if (par_rank(world) == 0) printf("weights are now %g\n", (double)now[999]);
        // with PAR_RANKS=3 it prints: weights are now 1
        par_zero_close(z);
        return par_close(world) != PAR_OK;
    }

TABLE OF CONTENTS
    The API comes first: contexts, units and tensors, the plan, forward and backward, the step, values,
    schedules, kernels. Implementation, bottom-up:
    >>zero_loops     optimizers' inner loops, once per instruction set
    >>zero_kernels   the CPU's row of the table of kernels
    >>zero_structs   every private structure
    >>zero_plan      how units are laid out, what that costs
    >>zero_store     host memory and files, beside computation
    >>zero_open      contexts, registration, memory
    >>zero_gather    whole parameters of sharded units
    >>zero_reduce    gradients of a microbatch, and of all
    >>zero_window    states, piece by piece
    >>zero_norm      the global norm
    >>zero_step      the update
    >>zero_values    reading and writing tensors
    >>zero_schedule  learning rates

CONFIG
    PAR_IMPLEMENTATION (or PAR_ZERO_IMPLEMENTATION)   emit the code, in one file
    PAR_ZERO_WINDOW   elements of offloaded states in each of 3 buffers; a multiple of 1024 (131072)
    PAR_MALLOC, PAR_ASSERT ... as in par.h

MODEL
    stage     parameters   gradients   optimizer   sent by each rank in a step, times (n-1)/n parameters
    0 (DDP)   whole        whole       whole       2: sums of gradients
    1         whole        whole       sharded     2: sums scattered, parameters gathered
    2         whole        sharded     sharded     1 + m: gradients are scattered after each microbatch
    3         sharded      sharded     sharded     3m: and parameters gathered for forward and for backward
    (Rajbhandari et al. 2020.) central: gradients go to rank 0, which alone has optimizer states, and
    parameters come back (a parameter server, Li et al. 2014). desc.outer: shards within comm, replicas across
    outer (hybrid sharding, Zhang et al. 2022).
    A unit is what is gathered and reduced at once; its tensors lie side by side in one array, each at a
    multiple of 32 elements, so that nothing is ever copied together or apart.
    m = micro_steps backward passes make a step. Gradients are summed over them and over ranks, in a fixed
    order: two runs are alike to the bit. With canonical_shards = C = m x ranks (powers of two) they are
    summed by pairs over the C microbatches of the step, each of which has a number (par_zero_microbatch says
    which is whose): so any number of ranks and any stage give the same bits.
    begin and end are counted: a unit may be begun again within (recomputation, a tied embedding).
    Reductions and gathers run beside what is computed next; par_zero_step waits for them.
    What is offloaded to files lies in a file of each rank's own, which has no name and goes with the process.
    It is read and written beside the update.
    Memory is allocated by par_zero_commit and freed by par_zero_close; none in between. The caller may write
    to what par_zero_data and par_zero_grad give until the end that belongs to the begin.
    Errors: par_last_error(desc.comm) has the text.
    Not thread-safe: a context belongs to one rank.

LIMITS
    Every rank uses the same units in the same order; a unit that no rank uses in a step has zeros for
    gradients. LAMB and Muon work on whole tensors. Muon holds the momentum of the largest unit whole.
*/

#ifdef __cplusplus
extern "C" {
#endif

// ---- contexts ---------------------------------------------------------------------------------------------

typedef struct par_zero par_zero;
typedef struct par_zero_kernels par_zero_kernels; // one for each kind of device; see below

// X(constant, name, arrays of states besides the weights)
#define PAR_ZERO_OPTIMIZERS(X)                                                                               \
    X(PAR_ZERO_ADAMW, "adamw", 2) /* Loshchilov and Hutter 2019 */                                           \
    X(PAR_ZERO_SGD, "sgd", 1)     /* momentum and weight decay as torch has them */                          \
    X(PAR_ZERO_LION, "lion", 1)   /* Chen et al. 2023 */                                                     \
    X(PAR_ZERO_LAMB, "lamb", 2)   /* You et al. 2020 */                                                      \
    X(PAR_ZERO_MUON, "muon", 2)   /* Jordan 2024; AdamW for what is no matrix, or `plain` */
typedef enum par_zero_optimizer {
#define X(name, text, states) name,
    PAR_ZERO_OPTIMIZERS(X)
#undef X
        PAR_ZERO_OPTIMIZER_COUNT
} par_zero_optimizer;
const char *par_zero_optimizer_name(par_zero_optimizer optimizer);
int par_zero_optimizer_parse(const char *name, par_zero_optimizer *optimizer); // 1, or 0

typedef struct par_zero_hyper { // of a group of parameters
    float lr;                   // times the factor that par_zero_step is given; 0: 0.001
    float beta1, beta2;         // 0: 0.9 and 0.999 (Lion 0.99); below 0: 0
    float epsilon;              // 0: 1e-8 (LAMB 1e-6)
    float weight_decay;         // decoupled, but for SGD
    float momentum;             // SGD (0: none) and Muon (0: 0.95)
    int nesterov;               // SGD; Muon always
} par_zero_hyper;

enum { PAR_ZERO_GROUPS = 8 };
typedef struct par_zero_desc {
    par_comm *comm;        // ranks that share out the states; NULL: only plan, for plan_ranks
    par_comm *outer;       // hybrid: the same place in other such comms; NULL: there are none
    par_comm *others;      // ranks with other parameters (tp, pp): the norm is over them, too; NULL: none
    int stage;             // 0 to 3
    int central;           // 1: rank 0 has the optimizer; stage 0
    int accumulate;        // 1: stages 2 and 3 keep whole gradients, and scatter them once a step
    int micro_steps;       // m; 0: 1
    int canonical_shards;  // C; 0: sums in rank order
    int average;           // 1: gradients are divided by m x ranks
    int whole_units;       // stages 2 and 3: units that may be whole at a time; 0: 2
    par_dtype param_dtype; // f32, bf16 or f16; 0: f32. 16 bits: f32 masters are kept with the optimizer
    par_dtype grad_dtype;  // 0: f32
    par_zero_optimizer optimizer;
    par_zero_hyper hyper[PAR_ZERO_GROUPS];
    float clip;              // largest norm of all gradients; 0: any
    float loss_scale;        // the first; the caller multiplies the loss by par_zero_loss_scale. 0: none
    int loss_scale_window;   // good steps before it is doubled; 0: 2000
    int loss_scale_patience; // bad steps before it is halved; 0: 1
    int stochastic_rounding; // of weights to bf16, keyed by {seed, unit, element, step}
    float ema;               // decay of a moving average of the weights; 0: none is kept
    uint64_t seed;
    // Kept out of memory, and streamed past the update: "host" (of a GPU) or "file:DIR"; NULL or "none": not.
    const char *offload_states;
    const char *offload_parameters;  // stage 3: they are read for each gather
    int plan_ranks;                  // with comm NULL
    const par_zero_kernels *kernels; // NULL: the CPU's
} par_zero_desc;

// Errors: ARGUMENT, MEMORY. With comm NULL the text goes to PAR_LOG.
par_result par_zero_open(const par_zero_desc *desc, par_zero **z);
par_result par_zero_close(par_zero *z); // collective, if committed

// ---- units and tensors ------------------------------------------------------------------------------------

enum { PAR_ZERO_RUNS = 8 };
typedef struct par_zero_tensor {
    const char *name;
    size_t shape[4];
    int dims;   // 1 to 4; a size may be 0
    int group;  // of hyperparameters
    int frozen; // no gradient, no state
    int plain;  // with Muon: by AdamW, although it is a matrix (embeddings)
    // How many ranks of `others` have the same, for consecutive runs of elements, which count once in the
    // norm. No runs: all is this rank's alone.
    int run_count;
    struct {
        size_t count;
        int replicas;
    } runs[PAR_ZERO_RUNS];
} par_zero_tensor;

// A unit begins; then its tensors. They return numbers from 0 on, or -1: no memory, or already committed.
int par_zero_unit(par_zero *z, const char *name);
int par_zero_add(par_zero *z, const par_zero_tensor *tensor);
// Allocates everything. Collective over comm (and outer). Errors: ARGUMENT, MISMATCH (other tensors on other
// ranks), MEMORY.
par_result par_zero_commit(par_zero *z);

// ---- the plan ---------------------------------------------------------------------------------------------

// Bytes on this rank (with comm NULL: on rank 0), of what commit allocates, and elements sent in a step.
// States hold what is padded to shards, too.
typedef struct par_zero_plan {
    size_t elements;                                     // of all tensors
    size_t parameter_bytes, gradient_bytes, state_bytes; // states: masters, moments, moving averages
    size_t buffer_bytes;                            // whole units on their way, sums of pairs, Muon, windows
    size_t host_bytes, file_bytes;                  // offloaded: these are not in memory
    size_t reduce_count, gather_count, outer_count; // sent over comm, over comm, over outer
} par_zero_plan;
par_result par_zero_plan_of(const par_zero *z, par_zero_plan *plan);
void par_zero_plan_print(const par_zero *z, FILE *file);
// What was in truth allocated, in the same classes (the counts are 0).
par_zero_plan par_zero_allocated(const par_zero *z);

// ---- forward and backward ---------------------------------------------------------------------------------

// Around the use of a unit's parameters in forward. Stage 3: they are gathered by begin (and those of the
// next unit on their way), and gone after end.
par_result par_zero_forward_begin(par_zero *z, int unit);
par_result par_zero_forward_end(par_zero *z, int unit);
// Around backward, which adds to the gradients: they are 0 when a microbatch begins. After the end they are
// on their way to the sum.
par_result par_zero_backward_begin(par_zero *z, int unit);
par_result par_zero_backward_end(par_zero *z, int unit);

// The whole tensor, of param_dtype. NULL while it is sharded.
void *par_zero_data(par_zero *z, int tensor);
// Its whole gradient (of grad_dtype: cast the pointer). NULL if it is frozen, or nowhere now.
float *par_zero_grad(par_zero *z, int tensor);
// Which of the m x ranks microbatches of the step this rank has as its number i, 0 <= i < m.
uint64_t par_zero_microbatch(const par_zero *z, int i);

// ---- the step ---------------------------------------------------------------------------------------------

typedef struct par_zero_report {
    double norm;      // of the gradients, before clipping
    int skipped;      // 1: something was not finite, so that nothing was changed, on all ranks alike
    float loss_scale; // of the next step
    uint64_t step;    // done so far
} par_zero_report;
// Waits for the gradients, updates the weights (learning rates times lr_factor), spreads them. report may be
// NULL. Collective.
par_result par_zero_step(par_zero *z, float lr_factor, par_zero_report *report);
float par_zero_loss_scale(const par_zero *z);
uint64_t par_zero_steps(const par_zero *z);           // done so far; skipped ones do not count
void par_zero_set_steps(par_zero *z, uint64_t steps); // of a run that goes on

// ---- values -----------------------------------------------------------------------------------------------

typedef enum par_zero_what {
    PAR_ZERO_VALUE,
    PAR_ZERO_GRADIENT,
    PAR_ZERO_MOMENT1,
    PAR_ZERO_MOMENT2,
    PAR_ZERO_EMA
} par_zero_what;

// Sets a tensor: fn gives elements [first, first + count) of it, for what this rank has. VALUE sets the
// moving average, too. Not collective.
typedef void (*par_zero_fill_fn)(void *user, size_t first, size_t count, float *values);
par_result par_zero_fill(par_zero *z, int tensor, par_zero_what what, par_zero_fill_fn fn, void *user);
// All of a tensor, as f32, on every rank. VALUE: the masters where there are any. GRADIENT: after the sum,
// before par_zero_step clears it. Collective over comm.
par_result par_zero_read(par_zero *z, int tensor, par_zero_what what, float *values);

// ---- schedules --------------------------------------------------------------------------------------------

typedef enum par_zero_shape {
    PAR_ZERO_CONSTANT,
    PAR_ZERO_LINEAR,
    PAR_ZERO_COSINE,
    PAR_ZERO_WSD
} par_zero_shape;
// After warm-up: constant; down to `least` by a line or half a cosine; WSD: constant, then a line over the
// last `decay` steps (Hu et al. 2024).
typedef struct par_zero_schedule {
    uint64_t warmup, steps, decay;
    float least; // factor at the end
    par_zero_shape shape;
} par_zero_schedule;
// The factor for step number `step`, from 0. Warm-up goes up by a line: (step + 1) / (warmup + 1).
float par_zero_factor(const par_zero_schedule *schedule, uint64_t step);

// ---- kernels ----------------------------------------------------------------------------------------------

// One run of elements of one tensor. scale: of gradients, before anything else.
typedef struct par_zero_update {
    par_zero_optimizer optimizer;
    par_zero_hyper hyper;           // no member left to a default; lr with its factor
    float correction1, correction2; // 1/(1 - beta^step)
    float scale, trust, ema;        // trust: LAMB's; ema 0: none
    uint64_t seed, stream,
        first; // stochastic rounding: element `first` + i of the stream; seed 0: to nearest
} par_zero_update;

struct par_zero_kernels {
    const char *name;
    // w: f32 weights or masters. stored: the 16-bit copy, or NULL. v, ema: NULL where there are none.
    par_result (*update)(const par_zero_update *a, size_t n, float *w, void *stored, par_dtype stored_type,
                         const void *g, par_dtype g_type, float *m, float *v, float *ema);
    // LAMB: moves m and v on; *w_squares += w^2, *u_squares += u^2, u the step before trust and lr
    par_result (*lamb_norms)(const par_zero_update *a, size_t n, const float *w, const void *g,
                             par_dtype g_type, float *m, float *v, double *w_squares, double *u_squares);
    // Muon: m = momentum m + scale g; out = scale g + momentum m
    par_result (*momentum)(const par_zero_update *a, size_t n, const void *g, par_dtype g_type, float *m,
                           float *out);
    par_result (*square_sum)(const void *x, par_dtype type, size_t n, double *sum); // *sum += ...
};
const par_zero_kernels *par_zero_cpu(void);

#ifdef __cplusplus
}
#endif
#endif // PAR_ZERO_H

// Stop here if you only use it. -----------------------------------------------------------------------------

#if defined(PAR_ZERO_IMPLEMENTATION) && !defined(PAR_ZERO_IMPLEMENTED)
#define PAR_ZERO_IMPLEMENTED
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if !defined(PAR_ZERO_WINDOW)
#define PAR_ZERO_WINDOW 131072
#elif PAR_ZERO_WINDOW % 1024
#error "PAR_ZERO_WINDOW must be a multiple of 1024"
#endif

#ifdef __cplusplus
extern "C" {
#endif

// >>zero_loops ----------------------------------------------------------------------------------------------
//
// Whole vectors only: tensors and shards begin at multiples of 32 elements, so that an element is treated
// alike wherever the shards end.

// The square root to an ulp or so, of 1e-30 at least, in plain arithmetic: sqrtf may set errno, so that a
// compiler does not vectorise it. 1/sqrt by exponent bits and two Newton steps, then one of Heron's.
PAR__INLINE_LOOP float par__zero_root(float x) {
    uint32_t bits;
    float r;
    x = x > 1e-30f ? x : 1e-30f;
    memcpy(&bits, &x, sizeof bits);
    bits = 0x5f375a86u - (bits >> 1);
    memcpy(&r, &bits, sizeof r);
    r = r * (1.5f - 0.5f * x * r * r), r = r * (1.5f - 0.5f * x * r * r);
    const float s = x * r;
    return s + 0.5f * r * (x - s * s);
}
PAR__INLINE_LOOP void par__zero_adamw(const par_zero_update *a, float *w, const float *g, float *m, float *v,
                                      size_t n) {
    const float b1 = a->hyper.beta1, b2 = a->hyper.beta2, lr = a->hyper.lr, eps = a->hyper.epsilon;
    const float c1 = a->correction1, c2 = a->correction2, keep = 1 - lr * a->hyper.weight_decay,
                scale = a->scale;
    PAR__VECTOR(i, n, const float x = g[i] * scale, p = b1 * m[i] + (1 - b1) * x;
                const float q = b2 * v[i] + (1 - b2) * x * x; m[i] = p; v[i] = q;
                w[i] = w[i] * keep - lr * (p * c1 / (par__zero_root(q * c2) + eps)));
}
PAR__INLINE_LOOP void par__zero_sgd(const par_zero_update *a, float *w, const float *g, float *m, float *v,
                                    size_t n) {
    const float mu = a->hyper.momentum, lr = a->hyper.lr, decay = a->hyper.weight_decay, scale = a->scale;
    const int mixed = a->hyper.nesterov || mu == 0; // with the gradient itself
    const float own = mixed ? 1.0f : 0.0f, past = mixed ? mu : 1.0f;
    (void)v;
    PAR__VECTOR(i, n, const float x = g[i] * scale + decay * w[i], p = mu * m[i] + x; m[i] = p;
                w[i] -= lr * (own * x + past * p));
}
PAR__INLINE_LOOP void par__zero_lion(const par_zero_update *a, float *w, const float *g, float *m, float *v,
                                     size_t n) {
    const float b1 = a->hyper.beta1, b2 = a->hyper.beta2, lr = a->hyper.lr, scale = a->scale;
    const float keep = 1 - lr * a->hyper.weight_decay;
    (void)v;
    PAR__VECTOR(i, n, const float x = g[i] * scale, c = b1 * m[i] + (1 - b1) * x;
                const float up = c > 0 ? lr : 0, down = c < 0 ? lr : 0; m[i] = b2 * m[i] + (1 - b2) * x;
                w[i] = w[i] * keep - (up - down));
}
PAR__INLINE_LOOP float par__zero_lamb_step(const par_zero_update *a, float w, float m, float v) {
    return m * a->correction1 / (par__zero_root(v * a->correction2) + a->hyper.epsilon) +
           a->hyper.weight_decay * w;
}
PAR__INLINE_LOOP void par__zero_lamb(const par_zero_update *a, float *w, const float *g, float *m, float *v,
                                     size_t n) { // m and v have moved on already
    const float lr = a->hyper.lr * a->trust;
    (void)g;
    PAR__VECTOR(i, n, w[i] -= lr * par__zero_lamb_step(a, w[i], m[i], v[i]));
}
PAR__INLINE_LOOP void par__zero_muon(const par_zero_update *a, float *w, const float *g, float *m, float *v,
                                     size_t n) { // g: the direction
    const float lr = a->hyper.lr, keep = 1 - lr * a->hyper.weight_decay, scale = a->scale;
    (void)m, (void)v;
    PAR__VECTOR(i, n, w[i] = w[i] * keep - lr * (scale * g[i]));
}
PAR__INLINE_LOOP void par__zero_average(float *ema, const float *w, float decay, size_t n) {
    PAR__VECTOR(i, n, ema[i] = decay * ema[i] + (1 - decay) * w[i]);
}
PAR__INLINE_LOOP void par__zero_momentum(const par_zero_update *a, float *out, const float *g, float *m,
                                         size_t n) {
    const float mu = a->hyper.momentum, scale = a->scale;
    PAR__VECTOR(i, n, const float x = g[i] * scale, p = mu * m[i] + x; m[i] = p; out[i] = x + mu * p);
}
PAR__INLINE_LOOP double par__zero_sum_lanes(const double *lanes) {
    double sum = 0;
    for (int j = 0; j < PAR__STRIP; j++) sum += lanes[j];
    return sum;
}
PAR__INLINE_LOOP double par__zero_squares(const float *x, size_t n) {
    double lanes[PAR__STRIP] = {0};
    PAR__VECTOR(i, n, lanes[lane] += (double)x[i] * (double)x[i]);
    return par__zero_sum_lanes(lanes);
}
PAR__INLINE_LOOP void par__zero_lamb_norms(const par_zero_update *a, const float *w, const float *g, float *m,
                                           float *v, size_t n, double *sums) {
    const float b1 = a->hyper.beta1, b2 = a->hyper.beta2, scale = a->scale;
    double ww[PAR__STRIP] = {0}, uu[PAR__STRIP] = {0};
    PAR__VECTOR(i, n, const float x = g[i] * scale; m[i] = b1 * m[i] + (1 - b1) * x;
                v[i] = b2 * v[i] + (1 - b2) * x * x;
                const double p = (double)w[i], u = (double)par__zero_lamb_step(a, w[i], m[i], v[i]);
                ww[lane] += p * p; uu[lane] += u * u);
    sums[0] += par__zero_sum_lanes(ww), sums[1] += par__zero_sum_lanes(uu);
}

#define PAR__ZERO_STEP (const par_zero_update *a, float *w, const float *g, float *m, float *v, size_t n)
// X(P, result, name, parameters, arguments), see PAR__LOOP_TABLES
#define PAR__ZERO_LOOPS(X, P)                                                                                \
    X(P, void, adamw, PAR__ZERO_STEP, (a, w, g, m, v, n))                                                    \
    X(P, void, sgd, PAR__ZERO_STEP, (a, w, g, m, v, n))                                                      \
    X(P, void, lion, PAR__ZERO_STEP, (a, w, g, m, v, n))                                                     \
    X(P, void, lamb, PAR__ZERO_STEP, (a, w, g, m, v, n))                                                     \
    X(P, void, muon, PAR__ZERO_STEP, (a, w, g, m, v, n))                                                     \
    X(P, void, average, (float *ema, const float *w, float decay, size_t n), (ema, w, decay, n))             \
    X(P, void, momentum, (const par_zero_update *a, float *out, const float *g, float *m, size_t n),         \
      (a, out, g, m, n))                                                                                     \
    X(P, double, squares, (const float *x, size_t n), (x, n))                                                \
    X(P, void, lamb_norms,                                                                                   \
      (const par_zero_update *a, const float *w, const float *g, float *m, float *v, size_t n,               \
       double *sums),                                                                                        \
      (a, w, g, m, v, n, sums))

PAR__LOOP_TABLES(par__zero_, PAR__ZERO_LOOPS)

// >>zero_kernels --------------------------------------------------------------------------------------------

enum { PAR__ZERO_PIECE = 1024 }; // elements at a time: what is widened or rounded stays in the first cache

static const float *par__zero_widen(float *room, const void *x, par_dtype type, size_t at, size_t n) {
    if (type == PAR_F32) return (const float *)x + at;
    par_cast(room, PAR_F32, (const uint16_t *)x + at, type, n);
    return room;
}
// To bf16, up with the probability of the part that is cut off (Gupta et al. 2015).
static void par__zero_round_randomly(uint16_t *to, const float *x, size_t n, const par_zero_update *a,
                                     uint64_t first) {
    const uint32_t key[2] = {(uint32_t)a->seed, (uint32_t)(a->seed >> 32)};
    for (size_t i = 0; i < n; i += 8) { // 16 random bits each
        const uint64_t block = (first + i) / 8;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)a->stream,
                                     (uint32_t)(a->stream >> 32)};
        uint32_t random[4], bits;
        par_philox(counter, key, random);
        for (size_t j = 0; j < 8; j++) {
            memcpy(&bits, &x[i + j], sizeof bits);
            const uint32_t r = random[j / 2] >> 16 * (j % 2) & 0xFFFFu;
            to[i + j] = (bits & 0x7F800000u) == 0x7F800000u ? par_f32_to_bf16(x[i + j])
                                                            : (uint16_t)((bits + r) >> 16);
        }
    }
}
static par_result par__zero_cpu_update(const par_zero_update *a, size_t n, float *w, void *stored,
                                       par_dtype stored_type, const void *g, par_dtype g_type, float *m,
                                       float *v, float *ema) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    void(*const step[PAR_ZERO_OPTIMIZER_COUNT])
        PAR__ZERO_STEP = {l->adamw, l->sgd, l->lion, l->lamb, l->muon};
    float wide[PAR__ZERO_PIECE];
    for (size_t at = 0; at < n; at += PAR__ZERO_PIECE) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_PIECE, n - at);
        step[a->optimizer](a, w + at, par__zero_widen(wide, g, g_type, at, k), m ? m + at : NULL,
                           v ? v + at : NULL, k);
        if (ema) l->average(ema + at, w + at, a->ema, k);
        if (!stored) continue;
        if (a->seed && stored_type == PAR_BF16)
            par__zero_round_randomly((uint16_t *)stored + at, w + at, k, a, a->first + at);
        else
            par_cast((uint16_t *)stored + at, stored_type, w + at, PAR_F32, k);
    }
    return PAR_OK;
}
static par_result par__zero_cpu_lamb_norms(const par_zero_update *a, size_t n, const float *w, const void *g,
                                           par_dtype g_type, float *m, float *v, double *w_squares,
                                           double *u_squares) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    float wide[PAR__ZERO_PIECE];
    double sums[2] = {0, 0};
    for (size_t at = 0; at < n; at += PAR__ZERO_PIECE) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_PIECE, n - at);
        l->lamb_norms(a, w + at, par__zero_widen(wide, g, g_type, at, k), m + at, v + at, k, sums);
    }
    *w_squares += sums[0], *u_squares += sums[1];
    return PAR_OK;
}
static par_result par__zero_cpu_momentum(const par_zero_update *a, size_t n, const void *g, par_dtype g_type,
                                         float *m, float *out) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    float wide[PAR__ZERO_PIECE];
    for (size_t at = 0; at < n; at += PAR__ZERO_PIECE) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_PIECE, n - at);
        l->momentum(a, out + at, par__zero_widen(wide, g, g_type, at, k), m + at, k);
    }
    return PAR_OK;
}
static par_result par__zero_cpu_square_sum(const void *x, par_dtype type, size_t n, double *sum) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    float wide[PAR__ZERO_PIECE];
    for (size_t at = 0; at < n; at += PAR__ZERO_PIECE) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_PIECE, n - at);
        *sum += l->squares(par__zero_widen(wide, x, type, at, k), k);
    }
    return PAR_OK;
}
const par_zero_kernels *par_zero_cpu(void) {
    static const par_zero_kernels cpu = {"cpu", par__zero_cpu_update, par__zero_cpu_lamb_norms,
                                         par__zero_cpu_momentum, par__zero_cpu_square_sum};
    return &cpu;
}

// >>zero_structs --------------------------------------------------------------------------------------------

#if defined(__O_DIRECT) // O_DIRECT is declared for _GNU_SOURCE alone
#define PAR__ZERO_DIRECT __O_DIRECT
#else
#define PAR__ZERO_DIRECT O_DIRECT
#endif
enum { PAR__ZERO_ALIGN = 32, PAR__ZERO_WHOLE_UNITS = 8, PAR__ZERO_LEVELS = 20, PAR__ZERO_RECORD = 1024 };
enum { PAR__ZERO_TRAINED, PAR__ZERO_FROZEN }; // the two parts of a unit
enum { PAR__ZERO_FORWARD, PAR__ZERO_BACKWARD, PAR__ZERO_UPDATE, PAR__ZERO_SITES };

typedef struct par__zero_tensor {
    par_zero_tensor desc;
    char name[160];
    int unit, part;
    size_t count, at; // elements; the first, in its part of the unit
} par__zero_tensor;

typedef struct par__zero_unit {
    char name[64], site[PAR__ZERO_SITES][96]; // what errors call it
    int first, last;                          // tensors
    size_t count[2];                          // elements of its parts, padded; a shard is count / ranks
    size_t whole_at, shard_at;                // of its parameters, among those of all units: whole, as shards
    size_t grad_at, grad_shard_at;            // likewise of what is trained
    size_t record_at;                         // of its states, among offloaded ones
    int forwards, backwards;                  // begun and not ended
    int micro;                                // microbatches whose gradients are complete
    par_request reduction, spreading, outer;
} par__zero_unit;

typedef struct par__zero_slot { // room for a whole unit: its parameters, or its gradients
    char *memory;
    int unit, holders;        // -1: none
    int fetching, fetched[2]; // its shards are being read, by these transfers
    par_request requests[2];
} par__zero_slot;

typedef enum par__zero_kind { PAR__ZERO_RESIDENT, PAR__ZERO_HOST, PAR__ZERO_FILE } par__zero_kind;
typedef struct par__zero_store { // what is offloaded
    par__zero_kind kind;
    char dir[1024];
    int fd, direct; // direct: past the page cache
    char *host;
} par__zero_store;
typedef struct par__zero_transfer {
    int fd, write, state; // 0: free or done, 1: under way, 2: a read to be done when it is waited for
    char *memory;
    size_t at, bytes;
    struct iocb block;
} par__zero_transfer;
enum { PAR__ZERO_TRANSFERS = 32, PAR__ZERO_WINDOWS = 3 };
typedef struct par__zero_io {
    aio_context_t context;
    int usable, error;
    par__zero_transfer all[PAR__ZERO_TRANSFERS];
} par__zero_io;

enum { PAR__ZERO_MASTER, PAR__ZERO_M, PAR__ZERO_V, PAR__ZERO_EMA, PAR__ZERO_ARRAYS }; // states

struct par_zero {
    par_zero_desc desc;
    int ranks, rank, groups, group; // of comm, of outer
    int micro_steps, slots, levels;
    int sharded_parameters, sharded_gradients, sharded_states; // sharded gradients are whole in slots
    const par_zero_kernels *kernels;
    par__zero_unit *units;
    par__zero_tensor *tensors;
    int unit_count, tensor_count, committed, finished; // finished: all gradients are summed
    char *parameters, *gradients;                      // whole or shards
    char *level[PAR__ZERO_LEVELS];                     // sums of 2^i microbatches, laid out like gradients
    int has_state[PAR__ZERO_ARRAYS];
    float *states[PAR__ZERO_ARRAYS]; // of what this rank updates; NULL: none, or offloaded
    par__zero_store state_store, parameter_store;
    par__zero_io io;
    char *windows[PAR__ZERO_WINDOWS];
    int writing[PAR__ZERO_WINDOWS];    // transfers
    float *whole_momentum, *matrix[4]; // Muon's
    double *sums;                      // of squares
    size_t pieces;                     // of a unit, each with sums of its own
    par__zero_slot parameter_slots[PAR__ZERO_WHOLE_UNITS], gradient_slots[PAR__ZERO_WHOLE_UNITS];
    par_zero_plan allocated;
    uint64_t step;
    float loss_scale;
    int good_steps, bad_steps;
};

#define PAR__ZERO_FAIL(result, ...) par__zero_fail(z->desc.comm, result, __VA_ARGS__)
#define PAR__ZERO_TRY(call)                                                                                  \
    do {                                                                                                     \
        const par_result par__r = (call);                                                                    \
        if (par__r) return par__r;                                                                           \
    } while (0)
__attribute__((format(printf, 3, 4))) static par_result par__zero_fail(par_comm *comm, par_result result,
                                                                       const char *format, ...) {
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (comm) return par_fail(comm, result, "%s", text);
    PAR_LOG(text);
    return result;
}
static size_t par__zero_element(const par_zero *z) { return par_dtype_bytes(z->desc.param_dtype); }
static size_t par__zero_grad_element(const par_zero *z) { return par_dtype_bytes(z->desc.grad_dtype); }
static int par__zero_has_master(const par_zero *z) { return z->desc.param_dtype != PAR_F32; }
static size_t par__zero_arrays(const par_zero *z) { // of states
    size_t n = 0;
    for (int i = 0; i < PAR__ZERO_ARRAYS; i++) n += (size_t)z->has_state[i];
    return n;
}
static int par__zero_states(const par_zero *z) {
    static const int states[] = {
#define X(name, text, count) count,
        PAR_ZERO_OPTIMIZERS(X)
#undef X
    };
    return states[z->desc.optimizer];
}
const char *par_zero_optimizer_name(par_zero_optimizer o) {
    static const char *const names[] = {
#define X(name, text, count) text,
        PAR_ZERO_OPTIMIZERS(X)
#undef X
    };
    return (unsigned)o < PAR_ZERO_OPTIMIZER_COUNT ? names[o] : "(no par_zero_optimizer)";
}
int par_zero_optimizer_parse(const char *name, par_zero_optimizer *optimizer) {
    for (int i = 0; i < PAR_ZERO_OPTIMIZER_COUNT; i++)
        if (!strcmp(name, par_zero_optimizer_name((par_zero_optimizer)i)))
            return *optimizer = (par_zero_optimizer)i, 1;
    return 0;
}

// >>zero_plan -----------------------------------------------------------------------------------------------
//
//     unit, 2 ranks     | trained: w, b, padding               | frozen: e, padding       |
//                       | shard of rank 0  | shard of rank 1   | rank 0     | rank 1      |
// Each part is padded to a multiple of 32 x ranks elements (canonical: x C), and so is cut alike for all.

static size_t par__zero_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
static size_t par__zero_shard(const par_zero *z, const par__zero_unit *u, int part) {
    return u->count[part] / (size_t)z->ranks;
}
static size_t par__zero_unit_count(const par__zero_unit *u) { return u->count[0] + u->count[1]; }
// Trained elements of a unit whose states this rank has, and the first of them.
static size_t par__zero_owned(const par_zero *z, const par__zero_unit *u, size_t *first) {
    *first = z->sharded_states ? par__zero_shard(z, u, 0) * (size_t)z->rank : 0;
    if (z->desc.central) return z->rank == 0 ? u->count[0] : 0;
    return z->sharded_states ? par__zero_shard(z, u, 0) : u->count[0];
}
// Elements that its states take where they are offloaded: each piece at a multiple of 1024, which is a page.
static size_t par__zero_records(const par_zero *z, const par__zero_unit *u) {
    const size_t piece = u->count[0] / z->pieces;
    size_t first;
    return piece ? par__zero_owned(z, u, &first) / piece * par__zero_up(piece, PAR__ZERO_RECORD) : 0;
}
static void par__zero_lay_out(par_zero *z) { // places of all units
    const size_t grain = PAR__ZERO_ALIGN * z->pieces;
    size_t whole = 0, shard = 0, grad = 0, grad_shard = 0, record = 0;
    for (int i = 0; i < z->unit_count; i++) {
        par__zero_unit *u = &z->units[i];
        u->count[0] = u->count[1] = 0;
        for (int t = u->first; t < u->last; t++) {
            par__zero_tensor *x = &z->tensors[t];
            x->at = u->count[x->part], u->count[x->part] += par__zero_up(x->count, PAR__ZERO_ALIGN);
        }
        for (int p = 0; p < 2; p++) u->count[p] = par__zero_up(u->count[p], grain);
        u->whole_at = whole, whole += par__zero_unit_count(u);
        u->shard_at = shard, shard += par__zero_unit_count(u) / (size_t)z->ranks;
        u->grad_at = grad, grad += u->count[0];
        u->grad_shard_at = grad_shard, grad_shard += par__zero_shard(z, u, 0);
        u->record_at = record, record += par__zero_records(z, u);
    }
}
static int par__zero_is_matrix(const par_zero *z, const par__zero_tensor *t) { // by Muon
    return z->desc.optimizer == PAR_ZERO_MUON && t->part == 0 && t->desc.dims == 2 && !t->desc.plain &&
           t->count;
}
static int par__zero_has_matrix(const par_zero *z, const par__zero_unit *u) {
    for (int t = u->first; t < u->last; t++)
        if (par__zero_is_matrix(z, &z->tensors[t])) return 1;
    return 0;
}
typedef struct par__zero_sizes { // elements
    size_t elements, whole, trained, largest, largest_trained, owned, records;
    size_t window;       // of states in memory at a time
    size_t matrix, side; // the largest matrix, and its shorter side squared
} par__zero_sizes;
static par__zero_sizes par__zero_measure(const par_zero *z) {
    par__zero_sizes s;
    size_t first;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < z->unit_count; i++) {
        const par__zero_unit *u = &z->units[i];
        s.whole += par__zero_unit_count(u), s.trained += u->count[0],
            s.owned += par__zero_owned(z, u, &first), s.records += par__zero_records(z, u);
        s.window = PAR__MAX(s.window, par__zero_up(u->count[0] / z->pieces, PAR__ZERO_RECORD));
        s.largest = PAR__MAX(s.largest, par__zero_unit_count(u));
        s.largest_trained = PAR__MAX(s.largest_trained, u->count[0]);
    }
    s.window = s.owned ? PAR__MIN(s.window, (size_t)PAR_ZERO_WINDOW) : 0;
    for (int t = 0; t < z->tensor_count; t++) {
        const size_t *n = z->tensors[t].desc.shape;
        s.elements += z->tensors[t].count;
        if (!par__zero_is_matrix(z, &z->tensors[t])) continue;
        s.matrix = PAR__MAX(s.matrix, n[0] * n[1]),
        s.side = PAR__MAX(s.side, PAR__MIN(n[0], n[1]) * PAR__MIN(n[0], n[1]));
    }
    return s;
}
static void par__zero_plan_counts(const par_zero *z, par_zero_plan *p) { // elements sent in a step
    const size_t n = (size_t)z->ranks, g = (size_t)z->groups, m = (size_t)z->micro_steps;
    for (int i = 0; i < z->unit_count; i++) {
        const par__zero_unit *u = &z->units[i];
        const size_t shard = par__zero_shard(z, u, 0), reach = (n - 1) * shard;
        const size_t held = z->sharded_states ? shard : u->count[0]; // what is summed over outer
        if (z->desc.central) {
            p->reduce_count += z->rank ? u->count[0] : reach;
            p->gather_count += z->rank || n == 1 ? 0 : u->count[0];
            continue;
        }
        p->reduce_count += reach * (z->sharded_gradients ? m : z->desc.stage == 0 ? 2 : 1);
        if (z->sharded_parameters) // once for forward, once for backward; what is frozen, too
            p->gather_count += 2 * m * (n - 1) * (par__zero_unit_count(u) / n);
        else if (z->sharded_states)
            p->gather_count += reach;
        if (z->sharded_states && par__zero_has_matrix(z, u)) p->gather_count += reach; // Muon's momentum
        if (g > 1) p->outer_count += 2 * (held - held / g);
    }
}
static size_t *par__zero_class(par_zero_plan *p, par__zero_kind kind, size_t *resident) { // of bytes
    return kind == PAR__ZERO_HOST ? &p->host_bytes : kind == PAR__ZERO_FILE ? &p->file_bytes : resident;
}
// One of the buffers through which what is offloaded passes.
static size_t par__zero_window_bytes(const par_zero *z, const par__zero_sizes *s) {
    return s->window * ((z->state_store.kind ? par__zero_arrays(z) * sizeof(float) : 0) +
                        (z->parameter_store.kind ? par__zero_element(z) : 0));
}
par_result par_zero_plan_of(const par_zero *z, par_zero_plan *p) {
    const par__zero_sizes s = par__zero_measure(z);
    const size_t n = (size_t)z->ranks, e = par__zero_element(z), ge = par__zero_grad_element(z);
    const size_t gradients = z->sharded_gradients ? s.trained / n : s.trained;
    memset(p, 0, sizeof *p);
    p->elements = s.elements;
    const size_t parameters = (z->sharded_parameters ? s.whole / n : s.whole) * e;
    const size_t state = par__zero_arrays(z) * sizeof(float);
    const par__zero_kind states_in = z->state_store.kind, parameters_in = z->parameter_store.kind;
    p->gradient_bytes = gradients * ge;
    *par__zero_class(p, parameters_in, &p->parameter_bytes) += parameters;
    *par__zero_class(p, states_in, &p->state_bytes) += state * (states_in ? s.records : s.owned);
    p->buffer_bytes = (size_t)z->levels * gradients * ge + PAR__ZERO_WINDOWS * par__zero_window_bytes(z, &s);
    if (z->sharded_gradients) p->buffer_bytes += (size_t)z->slots * s.largest_trained * ge;
    if (z->sharded_parameters) p->buffer_bytes += (size_t)z->slots * s.largest * e;
    if (s.matrix) p->buffer_bytes += (s.largest_trained + 2 * s.matrix + 2 * s.side) * sizeof(float);
    par__zero_plan_counts(z, p);
    return PAR_OK;
}
void par_zero_plan_print(const par_zero *z, FILE *file) {
    par_zero_plan p;
    par_zero_plan_of(z, &p);
    fprintf(file,
            "stage %d%s, %d ranks%s, %d microbatches a step, %s, parameters %s, gradients %s: %zu elements\n",
            z->desc.stage, z->desc.central ? " (central)" : "", z->ranks, z->groups > 1 ? " (hybrid)" : "",
            z->micro_steps, par_zero_optimizer_name(z->desc.optimizer), par_dtype_name(z->desc.param_dtype),
            par_dtype_name(z->desc.grad_dtype), p.elements);
    fprintf(file, "%16s %16s %16s %16s   bytes on each rank\n%16zu %16zu %16zu %16zu\n", "parameters",
            "gradients", "states", "buffers", p.parameter_bytes, p.gradient_bytes, p.state_bytes,
            p.buffer_bytes);
    if (p.host_bytes + p.file_bytes)
        fprintf(file, "%16s %16s   bytes offloaded\n%16zu %16zu\n", "to the host", "to files", p.host_bytes,
                p.file_bytes);
    fprintf(file, "%16s %16s %16s   elements sent in a step\n%16zu %16zu %16zu\n", "for sums", "for gathers",
            "over outer", p.reduce_count, p.gather_count, p.outer_count);
}

// >>zero_store ----------------------------------------------------------------------------------------------
//
// What is offloaded lies in host memory or in a file. A transfer is begun, gets a number from 1 on (0: it is
// done already) and is waited for by it. States go past the page cache by Linux's asynchronous calls: a
// thread would wait for a processor before it could ask for the next piece. Elsewhere the page cache reads
// ahead and writes behind.

static int par__zero_move_now(par__zero_transfer *t, size_t done) { // 0, or what errno says
    while (done < t->bytes) {
        const off_t at = (off_t)(t->at + done);
        const ssize_t n = t->write ? pwrite(t->fd, t->memory + done, t->bytes - done, at)
                                   : pread(t->fd, t->memory + done, t->bytes - done, at);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return n ? errno : EIO;
    }
    return 0;
}
static void par__zero_io_open(par_zero *z) {
    z->io.usable = z->io.usable || !syscall(SYS_io_setup, PAR__ZERO_TRANSFERS, &z->io.context);
}
static void par__zero_io_close(par_zero *z) { // waits for what is under way
    if (z->io.usable) syscall(SYS_io_destroy, z->io.context);
    z->io.usable = 0;
}
static void par__zero_io_reap(par__zero_io *io) { // waits for one transfer or more
    struct io_event done[PAR__ZERO_TRANSFERS];
    const long n = syscall(SYS_io_getevents, io->context, 1L, (long)PAR__ZERO_TRANSFERS, done, NULL);
    for (long i = 0; i < n; i++) {
        par__zero_transfer *t = &io->all[done[i].data];
        const int e = done[i].res < 0 ? (int)-done[i].res : par__zero_move_now(t, (size_t)done[i].res);
        t->state = 0;
        if (e && !io->error) io->error = e;
    }
}
static int par__zero_transfer_begin(par_zero *z, const par__zero_store *store, void *memory, size_t at,
                                    size_t bytes, int write) {
    par__zero_io *io = &z->io;
    int i = 0;
    if (store->kind == PAR__ZERO_HOST) {
        char *there = store->host + at;
        par_cpu()->copy(par_cpu(), write ? there : (char *)memory, write ? (char *)memory : there, bytes,
                        NULL);
        return 0;
    }
    while (io->all[i].state) i++; // never more than there are: see PAR__ZERO_TRANSFERS
    par__zero_transfer *t = &io->all[i];
    t->fd = store->fd, t->write = write, t->memory = (char *)memory, t->at = at, t->bytes = bytes;
    if (store->direct && io->usable) {
        struct iocb *block = &t->block;
        memset(block, 0, sizeof *block);
        block->aio_data = (unsigned)i, block->aio_lio_opcode = write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
        block->aio_fildes = (uint32_t)store->fd, block->aio_buf = (uint64_t)(uintptr_t)memory;
        block->aio_nbytes = bytes, block->aio_offset = (int64_t)at;
        if (syscall(SYS_io_submit, io->context, 1L, &block) == 1) return t->state = 1, i + 1;
    }
    if (!write) {
        posix_fadvise(store->fd, (off_t)at, (off_t)bytes, POSIX_FADV_WILLNEED);
        return t->state = 2, i + 1;
    }
    const int e = par__zero_move_now(t, 0);
    if (e && !io->error) io->error = e;
    return 0;
}
static par_result par__zero_transfer_wait(par_zero *z, int number) {
    par__zero_io *io = &z->io;
    par__zero_transfer *t = &io->all[number ? number - 1 : 0];
    while (number && t->state == 1) par__zero_io_reap(io);
    if (number && t->state == 2) {
        const int e = par__zero_move_now(t, 0);
        if (e && !io->error) io->error = e;
        t->state = 0;
    }
    return io->error
               ? PAR__ZERO_FAIL(PAR_ERR_SYSTEM, "par_zero: what is offloaded cannot be read or written: %s",
                                strerror(io->error))
               : PAR_OK;
}
// "none", "host", "file:DIR". 0: something else.
static int par__zero_parse_store(par__zero_store *store, const char *text) {
    store->kind = PAR__ZERO_RESIDENT, store->fd = -1;
    if (!text || !strcmp(text, "none")) return 1;
    if (!strcmp(text, "host")) return store->kind = PAR__ZERO_HOST, 1;
    if (strncmp(text, "file:", 5) || !text[5] || strlen(text) >= sizeof store->dir) return 0;
    snprintf(store->dir, sizeof store->dir, "%s", text + 5);
    return store->kind = PAR__ZERO_FILE, 1;
}
// Room for so many bytes, all 0. A file is unlinked at once, so that none is ever left behind. direct: past
// the page cache, where the file system can; then everything comes in pages.
static par_result par__zero_store_open(par_zero *z, par__zero_store *store, size_t bytes, int direct) {
    char path[sizeof store->dir + 32];
    void *host = NULL;
    if (store->kind == PAR__ZERO_HOST) {
        if (par_cpu()->alloc(par_cpu(), PAR__MAX(bytes, (size_t)64), &host))
            return PAR__ZERO_FAIL(PAR_ERR_MEMORY, "par_zero_commit: no host memory for %zu bytes", bytes);
        store->host = (char *)host, z->allocated.host_bytes += bytes;
    }
    if (store->kind != PAR__ZERO_FILE) return PAR_OK;
    par__zero_io_open(z);
    snprintf(path, sizeof path, "%s/par_zero.XXXXXX", store->dir);
    store->fd = mkstemp(path);
    if (store->fd < 0)
        return PAR__ZERO_FAIL(PAR_ERR_SYSTEM, "par_zero_commit: cannot make a file in %s: %s", store->dir,
                              strerror(errno));
    unlink(path);
    fcntl(store->fd, F_SETFD, FD_CLOEXEC);
    const int e = bytes ? posix_fallocate(store->fd, 0, (off_t)bytes) : 0;
    if (e)
        return PAR__ZERO_FAIL(PAR_ERR_SYSTEM, "par_zero_commit: no room for %zu bytes in %s: %s", bytes,
                              store->dir, strerror(e));
    store->direct = direct && !fcntl(store->fd, F_SETFL, O_RDWR | PAR__ZERO_DIRECT);
    return z->allocated.file_bytes += bytes, PAR_OK;
}
static void par__zero_store_close(par__zero_store *store) {
    if (store->host) par_cpu()->free(par_cpu(), store->host);
    if (store->kind == PAR__ZERO_FILE && store->fd >= 0) close(store->fd);
}

// >>zero_open -----------------------------------------------------------------------------------------------

static int par__zero_power(size_t n) { return n && (n & (n - 1)) == 0; }
static const char *par__zero_check(par_zero *z) { // what is wrong with the desc
    const par_zero_desc *d = &z->desc;
    const size_t all = (size_t)z->ranks * (size_t)z->groups * (size_t)z->micro_steps;
    if (d->stage < 0 || d->stage > 3) return "stage must be 0, 1, 2 or 3";
    if (d->central && (d->stage || d->outer)) return "central goes with stage 0, without outer";
    if (d->micro_steps < 0 || z->ranks < 1) return "micro_steps and the number of ranks must be 1 or more";
    if ((unsigned)d->optimizer >= PAR_ZERO_OPTIMIZER_COUNT) return "no such optimizer";
    if (d->param_dtype != PAR_F32 && d->param_dtype != PAR_BF16 && d->param_dtype != PAR_F16)
        return "param_dtype must be f32, bf16 or f16";
    if (d->grad_dtype != PAR_F32 && d->grad_dtype != PAR_BF16 && d->grad_dtype != PAR_F16)
        return "grad_dtype must be f32, bf16 or f16";
    if (d->whole_units < 0 || d->whole_units > PAR__ZERO_WHOLE_UNITS) return "whole_units must be 0 to 8";
    if (d->canonical_shards && (size_t)d->canonical_shards != all)
        return "canonical_shards must be micro_steps x the number of ranks";
    if (d->canonical_shards &&
        (!par__zero_power(all) || !par__zero_power((size_t)z->ranks) || all >> PAR__ZERO_LEVELS))
        return "canonical_shards and the number of ranks must be powers of two";
    if (!par__zero_parse_store(&z->state_store, d->offload_states) ||
        !par__zero_parse_store(&z->parameter_store, d->offload_parameters))
        return "what is offloaded goes to \"host\" or \"file:DIR\"";
    if (z->parameter_store.kind && d->stage != 3) return "parameters can be offloaded in stage 3";
    if (!(d->clip >= 0) || !(d->ema >= 0 && d->ema < 1) || !(d->loss_scale >= 0))
        return "clip, ema and loss_scale must not be negative, ema less than 1";
    return NULL;
}
par_result par_zero_open(const par_zero_desc *desc, par_zero **out) {
    PAR_ASSERT(desc && out);
    *out = NULL;
    par_zero *z = (par_zero *)PAR_MALLOC(sizeof *z);
    if (!z) return par__zero_fail(desc->comm, PAR_ERR_MEMORY, "par_zero_open: out of memory");
    memset(z, 0, sizeof *z);
    z->desc = *desc;
    z->ranks = desc->comm ? par_size(desc->comm) : desc->plan_ranks,
    z->rank = desc->comm ? par_rank(desc->comm) : 0;
    z->groups = desc->outer ? par_size(desc->outer) : 1, z->group = desc->outer ? par_rank(desc->outer) : 0;
    z->micro_steps = desc->micro_steps ? desc->micro_steps : 1;
    z->slots = desc->whole_units ? desc->whole_units : 2;
    if (z->desc.param_dtype == PAR_F64) z->desc.param_dtype = PAR_F32;
    if (z->desc.grad_dtype == PAR_F64) z->desc.grad_dtype = PAR_F32;
    if (z->desc.loss_scale_window <= 0) z->desc.loss_scale_window = 2000;
    if (z->desc.loss_scale_patience <= 0) z->desc.loss_scale_patience = 1;
    z->kernels = desc->kernels ? desc->kernels : par_zero_cpu();
    z->loss_scale = desc->loss_scale > 0 ? desc->loss_scale : 1;
    z->sharded_states = desc->stage >= 1, z->sharded_parameters = desc->stage == 3;
    z->sharded_gradients = desc->stage >= 2 && !desc->accumulate;
    const int wanted[PAR__ZERO_ARRAYS] = {par__zero_has_master(z), 0, 0, desc->ema > 0};
    memcpy(z->has_state, wanted, sizeof wanted);
    z->pieces = (size_t)(desc->canonical_shards > 0 ? desc->canonical_shards : z->ranks);
    while (desc->canonical_shards && z->micro_steps >> (z->levels + 1)) z->levels++;
    const char *why = par__zero_check(z);
    if (why) {
        PAR_FREE(z);
        return par__zero_fail(desc->comm, PAR_ERR_ARGUMENT, "par_zero_open: %s", why);
    }
    z->has_state[PAR__ZERO_M] = par__zero_states(z) > 0, z->has_state[PAR__ZERO_V] = par__zero_states(z) > 1;
    *out = z;
    return PAR_OK;
}

// Room for one more of an array that grows by doubling.
static void *par__zero_grow(void *array, int count, size_t bytes) {
    if (count & (count - 1)) return array;
    return PAR_REALLOC(array, (size_t)(count ? 2 * count : 1) * bytes);
}
int par_zero_unit(par_zero *z, const char *name) {
    static const char *const what[PAR__ZERO_SITES] = {"forward", "backward", "update"};
    if (z->committed) return -1;
    par__zero_unit *all = (par__zero_unit *)par__zero_grow(z->units, z->unit_count, sizeof *all);
    if (!all) return -1;
    z->units = all;
    par__zero_unit *u = &all[z->unit_count];
    memset(u, 0, sizeof *u);
    snprintf(u->name, sizeof u->name, "%s", name ? name : "");
    for (int i = 0; i < PAR__ZERO_SITES; i++)
        snprintf(u->site[i], sizeof u->site[i], "%s of unit %s", what[i], name ? name : "");
    u->first = u->last = z->tensor_count;
    return z->unit_count++;
}
int par_zero_add(par_zero *z, const par_zero_tensor *desc) {
    if (z->committed) return -1;
    if (!z->unit_count && par_zero_unit(z, "model") < 0) return -1;
    par__zero_tensor *all = (par__zero_tensor *)par__zero_grow(z->tensors, z->tensor_count, sizeof *all);
    if (!all) return -1;
    z->tensors = all;
    par__zero_tensor *t = &all[z->tensor_count];
    memset(t, 0, sizeof *t);
    t->desc = *desc, t->unit = z->unit_count - 1,
    t->part = desc->frozen ? PAR__ZERO_FROZEN : PAR__ZERO_TRAINED;
    snprintf(t->name, sizeof t->name, "%s", desc->name ? desc->name : "");
    t->desc.name = NULL, t->count = 1;
    for (int i = 0; i < desc->dims; i++) t->count *= desc->shape[i];
    z->units[t->unit].last = ++z->tensor_count;
    par__zero_lay_out(z);
    return z->tensor_count - 1;
}
static int par__zero_runs_fit(const par__zero_tensor *t) {
    size_t sum = 0;
    for (int i = 0; i < t->desc.run_count && i < PAR_ZERO_RUNS; i++) sum += t->desc.runs[i].count;
    return !t->desc.run_count || (t->desc.run_count <= PAR_ZERO_RUNS && sum == t->count);
}
static const char *par__zero_check_tensors(const par_zero *z) {
    static char why[300];
    for (int i = 0; i < z->tensor_count; i++) {
        const par_zero_tensor *d = &z->tensors[i].desc;
        const char *problem = d->dims < 1 || d->dims > 4                    ? "dims must be 1 to 4"
                              : d->group < 0 || d->group >= PAR_ZERO_GROUPS ? "no such group"
                              : !par__zero_runs_fit(&z->tensors[i]) ? "its runs are not all of its elements"
                                                                    : NULL;
        if (problem) return snprintf(why, sizeof why, "tensor %s: %s", z->tensors[i].name, problem), why;
    }
    return NULL;
}
// Do all ranks have the same units and tensors?
static par_result par__zero_agree(par_zero *z) {
    uint64_t hash = 0xcbf29ce484222325u, pair[2];
    for (int i = 0; i < z->tensor_count; i++) {
        const par__zero_tensor *t = &z->tensors[i];
        const uint64_t words[4] = {(uint64_t)t->unit, t->count, (uint64_t)t->part, (uint64_t)t->desc.group};
        for (int k = 0; k < 4; k++) hash = (hash ^ words[k]) * 0x100000001b3u;
        for (const char *c = t->name; *c; c++) hash = (hash ^ (uint64_t)(unsigned char)*c) * 0x100000001b3u;
    }
    const uint64_t how = (uint64_t)z->desc.stage | (uint64_t)(z->desc.central != 0) << 2 |
                         (uint64_t)(z->desc.accumulate != 0) << 3 | (uint64_t)z->desc.optimizer << 4 |
                         (uint64_t)z->micro_steps << 8 | (uint64_t)z->desc.canonical_shards << 32;
    hash = (hash ^ how) * 0x100000001b3u;
    pair[0] = hash, pair[1] = ~hash;
    PAR__ZERO_TRY(par_all_reduce(pair, pair, 2, PAR_U64, PAR_MAX, z->desc.comm));
    if (z->desc.outer) PAR__ZERO_TRY(par_all_reduce(pair, pair, 2, PAR_U64, PAR_MAX, z->desc.outer));
    if (pair[0] == ~pair[1]) return PAR_OK;
    return PAR__ZERO_FAIL(PAR_ERR_MISMATCH,
                          "par_zero_commit: stage, optimizer, micro_steps or the tensors differ between "
                          "the ranks: register the same in the same order");
}
// `bytes` more of a class. symmetric: what collectives read and write, of one size on all ranks.
static char *par__zero_take(par_zero *z, size_t bytes, int symmetric, size_t *tally) {
    void *memory = NULL;
    if (symmetric)
        memory = par_alloc(z->desc.comm, bytes);
    else if (par_cpu()->alloc(par_cpu(), PAR__MAX(bytes, (size_t)64), &memory))
        memory = NULL;
    if (memory) *tally += bytes;
    return (char *)memory;
}
// For files past the page cache.
static char *par__zero_take_pages(par_zero *z, size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes)) return NULL;
    z->allocated.buffer_bytes += bytes;
    return (char *)memset(memory, 0, bytes);
}
static void par__zero_give(par_zero *z, void *memory, int symmetric) {
    if (memory && symmetric)
        par_free(z->desc.comm, memory);
    else if (memory)
        par_cpu()->free(par_cpu(), memory);
}
static int par__zero_allocate(par_zero *z) { // 0: out of memory
    const par__zero_sizes s = par__zero_measure(z);
    const size_t n = (size_t)z->ranks, e = par__zero_element(z), ge = par__zero_grad_element(z);
    const size_t gradients = (z->sharded_gradients ? s.trained / n : s.trained) * ge;
    par_zero_plan *a = &z->allocated;
    int ok = 1;
    if (!z->parameter_store.kind)
        ok &= (z->parameters = par__zero_take(z, (z->sharded_parameters ? s.whole / n : s.whole) * e, 1,
                                              &a->parameter_bytes)) != NULL;
    ok &= (z->gradients = par__zero_take(z, gradients, 1, &a->gradient_bytes)) != NULL;
    for (int i = 0; i < z->levels; i++)
        ok &= (z->level[i] = par__zero_take(z, gradients, 0, &a->buffer_bytes)) != NULL;
    for (int i = 0; i < PAR__ZERO_ARRAYS; i++)
        if (z->has_state[i] && !z->state_store.kind)
            ok &=
                (z->states[i] = (float *)(void *)par__zero_take(z, s.owned * 4, 0, &a->state_bytes)) != NULL;
    for (int i = 0; i < PAR__ZERO_WINDOWS && par__zero_window_bytes(z, &s); i++)
        ok &= (z->windows[i] = par__zero_take_pages(z, par__zero_window_bytes(z, &s))) != NULL;
    for (int i = 0; i < z->slots; i++) {
        z->parameter_slots[i].unit = z->gradient_slots[i].unit = -1;
        if (z->sharded_parameters)
            ok &= (z->parameter_slots[i].memory = par__zero_take(z, s.largest * e, 1, &a->buffer_bytes)) !=
                  NULL;
        if (z->sharded_gradients)
            ok &= (z->gradient_slots[i].memory =
                       par__zero_take(z, s.largest_trained * ge, 1, &a->buffer_bytes)) != NULL;
    }
    if (s.matrix) {
        ok &= (z->whole_momentum =
                   (float *)(void *)par__zero_take(z, s.largest_trained * 4, 1, &a->buffer_bytes)) != NULL;
        for (int i = 0; i < 4; i++)
            ok &= (z->matrix[i] = (float *)(void *)par__zero_take(z, (i < 2 ? s.matrix : s.side) * 4, 0,
                                                                  &a->buffer_bytes)) != NULL;
    }
    const size_t sums = PAR__MAX((size_t)z->unit_count, 2 * (size_t)z->tensor_count) * z->pieces;
    z->sums = (double *)PAR_MALLOC((sums + 1) * sizeof(double));
    return ok && z->sums;
}
static par_result par__zero_open_stores(par_zero *z) {
    const par__zero_sizes s = par__zero_measure(z);
    PAR__ZERO_TRY(
        par__zero_store_open(z, &z->state_store, s.records * par__zero_arrays(z) * sizeof(float), 1));
    return par__zero_store_open(z, &z->parameter_store, s.whole / (size_t)z->ranks * par__zero_element(z), 0);
}
par_result par_zero_commit(par_zero *z) {
    if (!z->desc.comm)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_commit: a context without a comm only plans");
    if (z->committed) return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_commit: called twice");
    const char *why = par__zero_check_tensors(z);
    par__zero_lay_out(z);
    PAR__ZERO_TRY(par__zero_agree(z));
    if (why) return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_commit: %s", why);
    z->committed = 1;
    par_result r = par__zero_allocate(z) ? par__zero_open_stores(z) : PAR_ERR_MEMORY;
    int failed = r != PAR_OK;
    PAR__ZERO_TRY(par_all_reduce(&failed, &failed, 1, PAR_I32, PAR_MAX, z->desc.comm));
    if (r && r != PAR_ERR_MEMORY) return r; // with its own text
    return failed ? PAR__ZERO_FAIL(PAR_ERR_MEMORY,
                                   "par_zero_commit: no room for the model's states on some rank; see "
                                   "par_zero_plan_print")
                  : PAR_OK;
}
par_zero_plan par_zero_allocated(const par_zero *z) { return z->allocated; }
par_result par_zero_close(par_zero *z) {
    if (!z) return PAR_OK;
    if (z->desc.comm) par__forget_sites(z->desc.comm);
    for (int i = 0; i < z->unit_count; i++)
        par_wait(&z->units[i].reduction), par_wait(&z->units[i].outer), par_wait(&z->units[i].spreading);
    for (int i = 0; i < z->slots; i++) {
        par_wait_all(z->parameter_slots[i].requests, 2), par_wait_all(z->gradient_slots[i].requests, 2);
        par__zero_give(z, z->parameter_slots[i].memory, 1), par__zero_give(z, z->gradient_slots[i].memory, 1);
    }
    par__zero_give(z, z->parameters, 1), par__zero_give(z, z->gradients, 1),
        par__zero_give(z, z->whole_momentum, 1);
    for (int i = 0; i < z->levels; i++) par__zero_give(z, z->level[i], 0);
    for (int i = 0; i < 4; i++) par__zero_give(z, z->matrix[i], 0);
    for (int i = 0; i < PAR__ZERO_ARRAYS; i++) par__zero_give(z, z->states[i], 0);
    par__zero_io_close(z);
    par__zero_store_close(&z->state_store), par__zero_store_close(&z->parameter_store);
    for (int i = 0; i < PAR__ZERO_WINDOWS; i++) free(z->windows[i]);
    PAR_FREE(z->sums), PAR_FREE(z->units), PAR_FREE(z->tensors), PAR_FREE(z);
    return PAR_OK;
}

// >>zero_gather ---------------------------------------------------------------------------------------------
//
// Stage 3. A unit is whole while it is in a slot that somebody holds:
//     forward_begin(i)    wait for i, begin to gather i + 1   slots: [i] [i + 1]
//     forward_end(i)      i is gone                           slots: [ ] [i + 1]
// Backward goes the other way, and the gather of i - 1 is begun before the gradients of i are scattered.

static par_comm *par__zero_call(par_zero *z, int unit,
                                int what) { // the comm, with the unit's name and number
    par_tag(z->desc.comm, PAR__ZERO_SITES * unit + what + 1);
    return par__at(z->desc.comm, z->units[unit].site[what]);
}
static par__zero_slot *par__zero_slot_of(par__zero_slot *slots, int count, int unit) {
    for (int i = 0; i < count; i++)
        if (slots[i].unit == unit) return &slots[i];
    return NULL;
}
static par__zero_slot *par__zero_free_slot(par__zero_slot *slots, int count, int empty_only) {
    par__zero_slot *s = par__zero_slot_of(slots, count, -1);
    for (int i = 0; i < count && !s && !empty_only; i++)
        if (!slots[i].holders) s = &slots[i];
    return s;
}
// This rank's shard of a part, among its parameters.
static size_t par__zero_shard_at(const par_zero *z, const par__zero_unit *u, int part) {
    return u->shard_at + (part ? par__zero_shard(z, u, 0) : 0);
}
static par_result par__zero_gather_begin(par_zero *z, par__zero_slot *s, int what) {
    const par__zero_unit *u = &z->units[s->unit];
    const size_t e = par__zero_element(z);
    for (int part = 0; part < 2; part++) {
        const size_t n = par__zero_shard(z, u, part);
        char *whole = s->memory + (part ? u->count[0] : 0) * e;
        const char *mine = z->parameters ? z->parameters + par__zero_shard_at(z, u, part) * e
                                         : whole + n * (size_t)z->rank * e;
        if (n)
            PAR__ZERO_TRY((par_all_gather_begin)(mine, whole, n, z->desc.param_dtype,
                                                 par__zero_call(z, s->unit, what), &s->requests[part]));
    }
    return PAR_OK;
}
// A unit's way into a slot begins: what is offloaded is read to its place there, and gathered when it is
// held.
static par_result par__zero_fetch(par_zero *z, par__zero_slot *s, int unit, int what) {
    const par__zero_unit *u = &z->units[unit];
    const size_t e = par__zero_element(z);
    s->unit = unit, s->holders = 0, s->fetched[0] = s->fetched[1] = 0;
    if (!z->parameter_store.kind) return par__zero_gather_begin(z, s, what);
    for (int part = 0; part < 2; part++) {
        const size_t n = par__zero_shard(z, u, part), at = (part ? u->count[0] : 0) + n * (size_t)z->rank;
        if (n)
            s->fetched[part] = par__zero_transfer_begin(z, &z->parameter_store, s->memory + at * e,
                                                        par__zero_shard_at(z, u, part) * e, n * e, 0);
    }
    return s->fetching = 1, PAR_OK;
}
static par_result par__zero_fetched(par_zero *z, par__zero_slot *s) {
    if (!s->fetching) return PAR_OK;
    s->fetching = 0;
    PAR__ZERO_TRY(par__zero_transfer_wait(z, s->fetched[0]));
    return par__zero_transfer_wait(z, s->fetched[1]);
}
static par_result par__zero_hold(par_zero *z, int unit, int next, int what) {
    par__zero_slot *slots = z->parameter_slots, *s = par__zero_slot_of(slots, z->slots, unit);
    const int held = s && s->holders;
    if (!s) {
        s = par__zero_free_slot(slots, z->slots, 0);
        if (!s)
            return PAR__ZERO_FAIL(
                PAR_ERR_ARGUMENT,
                "%s: %d other units are whole already, and have not been ended: end them, or "
                "allow more by whole_units",
                z->units[unit].site[what], z->slots);
        PAR__ZERO_TRY(par_wait_all(s->requests, 2));
        PAR__ZERO_TRY(par__zero_fetched(z, s));
        PAR__ZERO_TRY(par__zero_fetch(z, s, unit, what));
    }
    if (s->fetching) {
        PAR__ZERO_TRY(par__zero_fetched(z, s));
        PAR__ZERO_TRY(par__zero_gather_begin(z, s, what));
    }
    s->holders++;
    PAR__ZERO_TRY(par_wait_all(s->requests, 2));
    if (held || next < 0 || next >= z->unit_count || par__zero_slot_of(slots, z->slots, next)) return PAR_OK;
    par__zero_slot *room = par__zero_free_slot(slots, z->slots, 1);
    return room ? par__zero_fetch(z, room, next, what) : PAR_OK;
}
static void par__zero_release(par_zero *z, int unit) {
    par__zero_slot *s = par__zero_slot_of(z->parameter_slots, z->slots, unit);
    if (s && --s->holders == 0) s->unit = -1;
}

static par_result par__zero_check_unit(par_zero *z, const char *call, int unit) {
    if (z->committed && unit >= 0 && unit < z->unit_count) return PAR_OK;
    return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "%s: %d is no unit, or nothing is committed", call, unit);
}
static par_result par__zero_not_begun(par_zero *z, const char *call, int unit) {
    return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "%s: unit %s was not begun", call, z->units[unit].name);
}
par_result par_zero_forward_begin(par_zero *z, int unit) {
    PAR__ZERO_TRY(par__zero_check_unit(z, "par_zero_forward_begin", unit));
    PAR__ZERO_TRY(par_wait(&z->units[unit].spreading));
    const int within = z->units[unit].backwards > 0; // recomputation: the next one is not the next in line
    if (z->sharded_parameters)
        PAR__ZERO_TRY(par__zero_hold(z, unit, within ? -1 : unit + 1, PAR__ZERO_FORWARD));
    return z->units[unit].forwards++, PAR_OK;
}
par_result par_zero_forward_end(par_zero *z, int unit) {
    PAR__ZERO_TRY(par__zero_check_unit(z, "par_zero_forward_end", unit));
    if (!z->units[unit].forwards) return par__zero_not_begun(z, "par_zero_forward_end", unit);
    if (z->sharded_parameters) par__zero_release(z, unit);
    return z->units[unit].forwards--, PAR_OK;
}
void *par_zero_data(par_zero *z, int tensor) {
    const par__zero_tensor *t = &z->tensors[tensor];
    par__zero_unit *u = &z->units[t->unit];
    const size_t e = par__zero_element(z), at = t->at + (t->part ? u->count[0] : 0);
    if (!z->committed || par_wait(&u->spreading)) return NULL;
    if (!z->sharded_parameters) return z->parameters + (u->whole_at + at) * e;
    const par__zero_slot *s = par__zero_slot_of(z->parameter_slots, z->slots, t->unit);
    return s && s->holders ? s->memory + at * e : NULL;
}

// >>zero_reduce ---------------------------------------------------------------------------------------------
//
// Stages 0 and 1: microbatches add to one whole array; after the last one it is reduced. Stages 2 and 3: each
// microbatch has a slot to itself, is scattered, and added to the shards. Canonical sums are by pairs, like a
// binary counter: after microbatch j, level i holds a sum of 2^i of them wherever j + 1 has that bit.
//     stages 0, 1    microbatch number = rank x m + j             ranks are the upper levels of the tree
//     stages 2, 3    microbatch number = (group x m + j) x n + rank     ... the lower, groups the upper ones

uint64_t par_zero_microbatch(const par_zero *z, int i) {
    const uint64_t n = (uint64_t)z->ranks, m = (uint64_t)z->micro_steps, j = (uint64_t)i;
    const uint64_t group = (uint64_t)z->group, rank = (uint64_t)z->rank;
    return z->sharded_gradients ? (group * m + j) * n + rank : (group * n + rank) * m + j;
}
static par_op par__zero_op(const par_zero *z) { return z->desc.canonical_shards ? PAR_TREE_SUM : PAR_SUM; }
static par_result par__zero_add_to(par_zero *z, void *sum, const void *x, size_t n) {
    const void *sources[2] = {sum, x};
    return par_cpu()->reduce(par_cpu(), sum, sources, 2, n, z->desc.grad_dtype, PAR_SUM, NULL);
}
// x: sums of one microbatch, `at` their place in z->gradients and the levels. The last one's end up there.
static par_result par__zero_merge(par_zero *z, char *x, size_t at, size_t n, int micro) {
    const size_t e = par__zero_grad_element(z), bytes = n * e;
    char *sum = z->gradients + at * e;
    if (!z->desc.canonical_shards) {
        if (x == sum) return PAR_OK; // the caller has added to it
        if (micro) return par__zero_add_to(z, sum, x, n);
        return memcpy(sum, x, bytes), PAR_OK;
    }
    int level = 0;
    for (; micro >> level & 1; level++) PAR__ZERO_TRY(par__zero_add_to(z, x, z->level[level] + at * e, n));
    char *to = micro + 1 == z->micro_steps ? sum : z->level[level] + at * e;
    if (to != x) memcpy(to, x, bytes);
    return PAR_OK;
}
// This rank's part of a unit's summed gradients.
static char *par__zero_sum_of(const par_zero *z, const par__zero_unit *u, size_t *first, size_t *count) {
    const size_t e = par__zero_grad_element(z);
    *count = par__zero_owned(z, u, first);
    return z->gradients + (z->sharded_gradients ? u->grad_shard_at : u->grad_at + *first) * e;
}
// Sharded gradients: what was scattered last from this slot is added to the shards.
static par_result par__zero_settle(par_zero *z, par__zero_slot *s) {
    if (s->unit < 0 || s->holders) return PAR_OK;
    const par__zero_unit *u = &z->units[s->unit];
    const size_t n = par__zero_shard(z, u, 0);
    PAR__ZERO_TRY(par_wait(&s->requests[0]));
    char *mine = s->memory + n * (size_t)z->rank * par__zero_grad_element(z);
    s->unit = -1;
    return n ? par__zero_merge(z, mine, u->grad_shard_at, n, u->micro - 1) : PAR_OK;
}
// The whole array of a unit, after its last microbatch, goes to those that need it.
static par_result par__zero_reduce_begin(par_zero *z, int unit) {
    par__zero_unit *u = &z->units[unit];
    const par_dtype type = z->desc.grad_dtype;
    const par_op op = par__zero_op(z);
    const size_t shard = par__zero_shard(z, u, 0), e = par__zero_grad_element(z);
    char *x = z->gradients + u->grad_at * e;
    if (z->ranks == 1 || !u->count[0]) return PAR_OK;
    if (z->desc.central) {
        par_comm *comm = par__at(z->desc.comm, u->site[PAR__ZERO_BACKWARD]);
        return (par_reduce_begin)(x, z->rank ? NULL : x, u->count[0], type, op, 0, comm, &u->reduction);
    }
    par_comm *comm = par__zero_call(z, unit, PAR__ZERO_BACKWARD);
    if (!z->sharded_states) return (par_all_reduce_begin)(x, x, u->count[0], type, op, comm, &u->reduction);
    return (par_reduce_scatter_begin)(x, x + shard * (size_t)z->rank * e, shard, type, op, comm,
                                      &u->reduction);
}
// All of one microbatch's gradients of a unit are there.
static par_result par__zero_complete(par_zero *z, int unit, par__zero_slot *s) {
    par__zero_unit *u = &z->units[unit];
    const size_t e = par__zero_grad_element(z), shard = par__zero_shard(z, u, 0);
    const int micro = u->micro++;
    if (!s) {
        PAR__ZERO_TRY(par__zero_merge(z, z->gradients + u->grad_at * e, u->grad_at, u->count[0], micro));
        return u->micro == z->micro_steps ? par__zero_reduce_begin(z, unit) : PAR_OK;
    }
    s->holders = 0;
    if (!u->count[0] || z->ranks == 1) return PAR_OK;
    return (par_reduce_scatter_begin)(s->memory, s->memory + shard * (size_t)z->rank * e, shard,
                                      z->desc.grad_dtype, par__zero_op(z),
                                      par__zero_call(z, unit, PAR__ZERO_BACKWARD), &s->requests[0]);
}
// Room for a microbatch's gradients, all 0.
static par_result par__zero_open_gradients(par_zero *z, int unit, par__zero_slot **slot) {
    const par__zero_unit *u = &z->units[unit];
    const size_t bytes = u->count[0] * par__zero_grad_element(z);
    *slot = NULL;
    if (!z->sharded_gradients) { // else they add up in place; par_zero_step leaves zeros
        if (z->desc.canonical_shards && u->micro)
            memset(z->gradients + u->grad_at * par__zero_grad_element(z), 0, bytes);
        return PAR_OK;
    }
    par__zero_slot *s = par__zero_slot_of(z->gradient_slots, z->slots, unit); // its last microbatch
    if (!s) s = par__zero_free_slot(z->gradient_slots, z->slots, 0);
    if (!s)
        return PAR__ZERO_FAIL(
            PAR_ERR_ARGUMENT,
            "%s: %d other units are in backward, and have not been ended: end them, or allow "
            "more by whole_units",
            u->site[PAR__ZERO_BACKWARD], z->slots);
    PAR__ZERO_TRY(par__zero_settle(z, s));
    s->unit = unit, s->holders = 1;
    memset(s->memory, 0, bytes);
    return *slot = s, PAR_OK;
}
par_result par_zero_backward_begin(par_zero *z, int unit) {
    par__zero_slot *s;
    PAR__ZERO_TRY(par__zero_check_unit(z, "par_zero_backward_begin", unit));
    par__zero_unit *u = &z->units[unit];
    if (!u->backwards && u->micro == z->micro_steps)
        return PAR__ZERO_FAIL(
            PAR_ERR_ARGUMENT,
            "%s: its %d microbatches are done: call par_zero_step first, or set micro_steps",
            u->site[PAR__ZERO_BACKWARD], z->micro_steps);
    PAR__ZERO_TRY(par_wait(&u->spreading));
    if (z->sharded_parameters) PAR__ZERO_TRY(par__zero_hold(z, unit, unit - 1, PAR__ZERO_BACKWARD));
    if (!u->backwards) PAR__ZERO_TRY(par__zero_open_gradients(z, unit, &s));
    return u->backwards++, PAR_OK;
}
par_result par_zero_backward_end(par_zero *z, int unit) {
    PAR__ZERO_TRY(par__zero_check_unit(z, "par_zero_backward_end", unit));
    par__zero_unit *u = &z->units[unit];
    if (!u->backwards) return par__zero_not_begun(z, "par_zero_backward_end", unit);
    if (z->sharded_parameters) par__zero_release(z, unit);
    if (--u->backwards) return PAR_OK;
    return par__zero_complete(
        z, unit, z->sharded_gradients ? par__zero_slot_of(z->gradient_slots, z->slots, unit) : NULL);
}
float *par_zero_grad(par_zero *z, int tensor) {
    const par__zero_tensor *t = &z->tensors[tensor];
    const par__zero_unit *u = &z->units[t->unit];
    const size_t e = par__zero_grad_element(z);
    if (!z->committed || t->part) return NULL;
    if (!z->sharded_gradients) return (float *)(void *)(z->gradients + (u->grad_at + t->at) * e);
    const par__zero_slot *s = par__zero_slot_of(z->gradient_slots, z->slots, t->unit);
    return s && s->holders ? (float *)(void *)(s->memory + t->at * e) : NULL;
}
// Everything that has been begun is ended; what nobody used in this step counts as zeros.
static par_result par__zero_finish(par_zero *z) {
    const par_op op = par__zero_op(z);
    par__zero_slot *s;
    size_t first, count;
    if (z->finished) return PAR_OK;
    for (int i = 0; i < z->unit_count; i++) {
        par__zero_unit *u = &z->units[i];
        if (u->backwards || u->forwards)
            return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_step: unit %s was begun and not ended",
                                  u->name);
        while (u->micro < z->micro_steps) {
            PAR__ZERO_TRY(par__zero_open_gradients(z, i, &s));
            PAR__ZERO_TRY(par__zero_complete(z, i, s));
        }
    }
    for (int i = 0; i < z->slots && z->sharded_gradients; i++)
        PAR__ZERO_TRY(par__zero_settle(z, &z->gradient_slots[i]));
    for (int i = 0; i < z->unit_count; i++) {
        par__zero_unit *u = &z->units[i];
        PAR__ZERO_TRY(par_wait(&u->reduction));
        char *mine = par__zero_sum_of(z, u, &first, &count);
        if (z->groups > 1 && count)
            PAR__ZERO_TRY(
                par_all_reduce_begin(mine, mine, count, z->desc.grad_dtype, op, z->desc.outer, &u->outer));
    }
    for (int i = 0; i < z->unit_count; i++) PAR__ZERO_TRY(par_wait(&z->units[i].outer));
    return z->finished = 1, PAR_OK;
}

// >>zero_window ---------------------------------------------------------------------------------------------
//
// A unit's trained part is cut into pieces, as many as there are shards (canonical: C), and each piece into
// windows. Whatever walks over elements does so window by window, each with runs of single tensors, so that
// sums are the same however the pieces lie. States that are offloaded pass through three buffers:
//     worked on     -          0                 1                 2
//     transfers     read 0     read 1            write 0, read 2   write 1, read 3

typedef struct par__zero_window { // elements [first, first + count) of a unit's trained part
    int unit;
    size_t piece, first, count;
} par__zero_window;
// The next one of what this rank updates, up to unit `end`; 0: there is none. A new one begins with {unit}.
static int par__zero_window_after(const par_zero *z, par__zero_window *w, int end) {
    for (; w->unit < end; w->unit++, w->first = w->count = 0) {
        const par__zero_unit *u = &z->units[w->unit];
        size_t owned;
        const size_t until = par__zero_owned(z, u, &owned) + owned, piece = u->count[0] / z->pieces;
        const size_t at = PAR__MAX(w->first + w->count, owned);
        if (at >= until) continue;
        w->piece = at / piece, w->first = at;
        w->count = PAR__MIN((size_t)PAR_ZERO_WINDOW, (w->piece + 1) * piece - at);
        return 1;
    }
    return 0;
}
static char *par__zero_gradients_of(const par_zero *z, const par__zero_window *w) {
    size_t first, count;
    char *g = par__zero_sum_of(z, &z->units[w->unit], &first, &count);
    return g + (w->first - first) * par__zero_grad_element(z);
}
// The runs of a window, each of one tensor. 0: no further one. A new one begins with all 0.
typedef struct par__zero_run {
    int tensor, begun;
    size_t at, count; // in the unit's trained part
} par__zero_run;
static int par__zero_next_run(const par_zero *z, const par__zero_window *w, par__zero_run *r) {
    const par__zero_unit *u = &z->units[w->unit];
    r->tensor = r->begun ? r->tensor + 1 : u->first, r->begun = 1;
    for (; r->tensor < u->last; r->tensor++) {
        const par__zero_tensor *t = &z->tensors[r->tensor];
        const size_t end = PAR__MIN(t->at + par__zero_up(t->count, PAR__ZERO_ALIGN), w->first + w->count);
        r->at = PAR__MAX(w->first, t->at);
        if (t->part || r->at >= end) continue;
        r->count = end - r->at;
        return 1;
    }
    return 0;
}

typedef struct par__zero_pass { // over the windows of units up to `end` that have some of [from, until)
    par__zero_window now, next;
    int end, started, more, writes, slot;
    size_t from, until;
    int coming[2]; // transfers of the next one
    float *states[PAR__ZERO_ARRAYS];
    char *stored; // weights of param_dtype
} par__zero_pass;
static void par__zero_pass_advance(const par_zero *z, par__zero_pass *p) {
    do p->more = par__zero_window_after(z, &p->next, p->end);
    while (p->more && (p->next.first >= p->until || p->next.first + p->next.count <= p->from));
}
// One window between its buffer and where it is kept; the transfers of its states and parameters.
static void par__zero_move_window(par_zero *z, const par__zero_window *w, int slot, int write,
                                  int transfers[2]) {
    const par__zero_unit *u = &z->units[w->unit];
    const size_t piece = u->count[0] / z->pieces, e = par__zero_element(z), n = par__zero_arrays(z) * 4;
    const size_t room = par__zero_up(w->count, PAR__ZERO_RECORD);
    size_t owned;
    par__zero_owned(z, u, &owned);
    const size_t before = (w->piece - owned / piece) * par__zero_up(piece, PAR__ZERO_RECORD);
    const size_t at = u->record_at + before + w->first - w->piece * piece;
    transfers[0] = transfers[1] = 0;
    if (z->state_store.kind && n)
        transfers[0] =
            par__zero_transfer_begin(z, &z->state_store, z->windows[slot], at * n, room * n, write);
    if (z->parameter_store.kind)
        transfers[1] = par__zero_transfer_begin(z, &z->parameter_store,
                                                z->windows[slot] + (z->state_store.kind ? room * n : 0),
                                                (u->shard_at + w->first - owned) * e, w->count * e, write);
}
// The next window of a pass is on its way into the buffer after the present one's, once what that held is
// written.
static par_result par__zero_read_ahead(par_zero *z, par__zero_pass *p) {
    const int slot = (p->slot + 1) % PAR__ZERO_WINDOWS;
    par__zero_pass_advance(z, p);
    if (!p->more || !z->windows[0]) return PAR_OK;
    PAR__ZERO_TRY(par__zero_transfer_wait(z, z->writing[slot]));
    z->writing[slot] = 0;
    par__zero_move_window(z, &p->next, slot, 0, p->coming);
    return PAR_OK;
}
static par__zero_pass par__zero_pass_begin(int unit, int end, int writes) {
    par__zero_pass p;
    memset(&p, 0, sizeof p);
    p.next.unit = unit, p.end = end, p.writes = writes, p.until = SIZE_MAX;
    return p;
}
static par_result par__zero_pass_start(par_zero *z, par__zero_pass *p) { // what others wrote is there
    for (int i = 0; i < PAR__ZERO_WINDOWS; i++) {
        PAR__ZERO_TRY(par__zero_transfer_wait(z, z->writing[i]));
        z->writing[i] = 0;
    }
    return p->started = 1, par__zero_read_ahead(z, p);
}
// All windows of the pass that belong to `unit`, in turn; pointers are good until the next call. *found 0:
// there are no more.
static par_result par__zero_pass_next(par_zero *z, par__zero_pass *p, int unit, int *found) {
    int transfers[2] = {0, 0};
    if (!p->started) PAR__ZERO_TRY(par__zero_pass_start(z, p));
    if (p->now.count && p->writes && z->windows[0]) {
        par__zero_move_window(z, &p->now, p->slot, 1, transfers);
        z->writing[p->slot] = transfers[0]; // parameters are written already
    }
    p->now.count = 0;
    *found = p->more && p->next.unit == unit;
    if (!*found) return PAR_OK;
    const int coming[2] = {p->coming[0], p->coming[1]};
    p->now = p->next, p->slot = (p->slot + 1) % PAR__ZERO_WINDOWS;
    PAR__ZERO_TRY(par__zero_read_ahead(z, p));
    for (int i = 0; i < 2 && z->windows[0]; i++) PAR__ZERO_TRY(par__zero_transfer_wait(z, coming[i]));
    const par__zero_unit *u = &z->units[unit];
    const size_t e = par__zero_element(z), room = par__zero_up(p->now.count, PAR__ZERO_RECORD);
    size_t owned;
    par__zero_owned(z, u, &owned);
    const size_t at = p->now.first - owned, states = z->sharded_states ? u->grad_shard_at : u->grad_at;
    char *buffer = z->windows[p->slot];
    for (int i = 0; i < PAR__ZERO_ARRAYS; i++) {
        p->states[i] = z->states[i] ? z->states[i] + states + at : NULL;
        if (z->has_state[i] && z->state_store.kind)
            p->states[i] = (float *)(void *)buffer, buffer += room * sizeof(float);
    }
    p->stored = z->parameter_store.kind
                    ? buffer
                    : z->parameters + ((z->sharded_parameters ? u->shard_at : u->whole_at + owned) + at) * e;
    return PAR_OK;
}
static float *par__zero_weights(const par_zero *z, const par__zero_pass *p) {
    return par__zero_has_master(z) ? p->states[PAR__ZERO_MASTER] : (float *)(void *)p->stored;
}

// >>zero_norm -----------------------------------------------------------------------------------------------
//
// Each piece of a unit has a sum of squares; each rank fills in those it has. Gathered, they are added in one
// order: the same bits on all ranks, however the pieces lie.

static int par__zero_shared_out(const par_zero *z) {
    return z->ranks > 1 && (z->sharded_states || z->desc.central);
}

// The squares of a run, each divided by the number of ranks of `others` that have the element.
static par_result par__zero_run_squares(const par_zero *z, const par__zero_run *r, const char *g,
                                        double *sum) {
    const par__zero_tensor *t = &z->tensors[r->tensor];
    const size_t e = par__zero_grad_element(z);
    size_t at = r->at - t->at, from = 0;
    const size_t begun = at, end = at + r->count;
    if (!t->desc.run_count) return z->kernels->square_sum(g, z->desc.grad_dtype, r->count, sum);
    for (int i = 0; i < t->desc.run_count && at < end; i++) {
        double squares = 0;
        from += t->desc.runs[i].count;
        const size_t until = PAR__MIN(from, end);
        if (at >= until) continue;
        PAR__ZERO_TRY(z->kernels->square_sum(g + (at - begun) * e, z->desc.grad_dtype, until - at, &squares));
        *sum += squares / PAR__MAX(t->desc.runs[i].replicas, 1), at = until;
    }
    return PAR_OK;
}
static par_result par__zero_square_norm(par_zero *z, double *total) {
    const size_t e = par__zero_grad_element(z), n = (size_t)z->unit_count * z->pieces;
    par__zero_window w;
    memset(&w, 0, sizeof w);
    for (size_t i = 0; i < n; i++) z->sums[i] = 0;
    while (par__zero_window_after(z, &w, z->unit_count)) {
        const char *g = par__zero_gradients_of(z, &w);
        par__zero_run r = {0, 0, 0, 0};
        while (par__zero_next_run(z, &w, &r))
            PAR__ZERO_TRY(par__zero_run_squares(z, &r, g + (r.at - w.first) * e,
                                                &z->sums[(size_t)w.unit * z->pieces + w.piece]));
    }
    if (par__zero_shared_out(z))
        PAR__ZERO_TRY(par_all_reduce(z->sums, z->sums, n, PAR_F64, PAR_SUM, z->desc.comm));
    *total = 0;
    for (size_t i = 0; i < n; i++) *total += z->sums[i];
    return z->desc.others ? par_all_reduce(total, total, 1, PAR_F64, PAR_SUM, z->desc.others) : PAR_OK;
}

// >>zero_step -----------------------------------------------------------------------------------------------

static par_zero_hyper par__zero_hyper_of(const par_zero *z, int group) {
    par_zero_hyper h = z->desc.hyper[group];
    const par_zero_optimizer o = z->desc.optimizer;
    if (h.lr <= 0) h.lr = h.lr < 0 ? 0 : 1e-3f;
    if (h.beta1 <= 0) h.beta1 = h.beta1 < 0 ? 0 : 0.9f;
    if (h.beta2 <= 0) h.beta2 = h.beta2 < 0 ? 0 : o == PAR_ZERO_LION ? 0.99f : 0.999f;
    if (h.epsilon <= 0) h.epsilon = o == PAR_ZERO_LAMB ? 1e-6f : 1e-8f;
    if (o == PAR_ZERO_MUON && h.momentum <= 0) h.momentum = 0.95f;
    return h;
}
static par_zero_update par__zero_update_of(const par_zero *z, const par__zero_tensor *t, float lr_factor,
                                           float scale) {
    par_zero_update a;
    memset(&a, 0, sizeof a);
    a.optimizer = z->desc.optimizer, a.hyper = par__zero_hyper_of(z, t->desc.group);
    a.hyper.lr *= lr_factor, a.scale = scale, a.trust = 1, a.ema = z->desc.ema;
    a.correction1 = (float)(1 / (1 - pow((double)a.hyper.beta1, (double)(z->step + 1))));
    a.correction2 = (float)(1 / (1 - pow((double)a.hyper.beta2, (double)(z->step + 1))));
    if (a.optimizer == PAR_ZERO_MUON && !par__zero_is_matrix(z, t)) a.optimizer = PAR_ZERO_ADAMW;
    if (z->desc.stochastic_rounding)
        a.seed = z->desc.seed + 1, a.stream = (z->step + 1) << 24 | (uint64_t)t->unit;
    return a;
}
static par_result par__zero_apply(par_zero *z, const par__zero_pass *p, const par__zero_run *r,
                                  par_zero_update *a, const float *direction) {
    const size_t k = r->at - p->now.first, e = par__zero_element(z);
    const char *g = par__zero_gradients_of(z, &p->now) + k * par__zero_grad_element(z);
    float *m = p->states[PAR__ZERO_M], *v = p->states[PAR__ZERO_V], *ema = p->states[PAR__ZERO_EMA];
    a->first = r->at;
    return z->kernels->update(
        a, r->count, par__zero_weights(z, p) + k, par__zero_has_master(z) ? p->stored + k * e : NULL,
        z->desc.param_dtype, direction ? (const void *)direction : (const void *)g,
        direction ? PAR_F32 : z->desc.grad_dtype, m ? m + k : NULL, v ? v + k : NULL, ema ? ema + k : NULL);
}
// LAMB: |w| / |u| of each tensor, from the squares of its pieces, whoever has them.
static par_result par__zero_lamb_trust(par_zero *z, float lr_factor, float scale) {
    const size_t n = 2 * (size_t)z->tensor_count * z->pieces;
    par__zero_pass p = par__zero_pass_begin(0, z->unit_count, 1);
    int found;
    for (size_t i = 0; i < n; i++) z->sums[i] = 0;
    for (int unit = 0; unit < z->unit_count; unit++)
        for (;;) {
            par__zero_run r = {0, 0, 0, 0};
            PAR__ZERO_TRY(par__zero_pass_next(z, &p, unit, &found));
            if (!found) break;
            const char *g = par__zero_gradients_of(z, &p.now);
            while (par__zero_next_run(z, &p.now, &r)) {
                const par_zero_update a = par__zero_update_of(z, &z->tensors[r.tensor], lr_factor, scale);
                const size_t k = r.at - p.now.first;
                double *sums = z->sums + 2 * ((size_t)r.tensor * z->pieces + p.now.piece);
                PAR__ZERO_TRY(z->kernels->lamb_norms(&a, r.count, par__zero_weights(z, &p) + k,
                                                     g + k * par__zero_grad_element(z), z->desc.grad_dtype,
                                                     p.states[PAR__ZERO_M] + k, p.states[PAR__ZERO_V] + k,
                                                     &sums[0], &sums[1]));
            }
        }
    return par__zero_shared_out(z) ? par_all_reduce(z->sums, z->sums, n, PAR_F64, PAR_SUM, z->desc.comm)
                                   : PAR_OK;
}
static float par__zero_trust_of(const par_zero *z, int tensor) {
    double ww = 0, uu = 0;
    for (size_t i = 0; i < z->pieces; i++)
        ww += z->sums[2 * ((size_t)tensor * z->pieces + i)],
            uu += z->sums[2 * ((size_t)tensor * z->pieces + i) + 1];
    return ww > 0 && uu > 0 ? (float)sqrt(ww / uu) : 1.0f;
}
// Muon: x (rows x cols) to about the nearest orthogonal matrix, by five Newton-Schulz steps
//     A = x x^T,  x = a x + (b A + c A A) x
// in place; on the shorter side.
static par_result par__zero_orthogonalise(par_zero *z, float *x, size_t rows, size_t cols) {
    par_device *cpu = par_cpu();
    const int tall = rows > cols;
    const size_t s = PAR__MIN(rows, cols), n = rows * cols;
    float *y = z->matrix[0], *next = z->matrix[1], *A = z->matrix[2], *B = z->matrix[3];
    double squares = 0;
    PAR__ZERO_TRY(z->kernels->square_sum(x, PAR_F32, n, &squares));
    const float down = 1.0f / ((float)sqrt(squares) + 1e-7f);
    for (size_t i = 0; i < n; i++) y[i] = x[i] * down;
    for (int step = 0; step < 5; step++) {
        PAR__ZERO_TRY(
            cpu->gemm(cpu, tall, !tall, s, s, tall ? rows : cols, 1, y, cols, y, cols, 0, A, s, NULL));
        memcpy(B, A, s * s * sizeof *B);
        PAR__ZERO_TRY(cpu->gemm(cpu, 0, 0, s, s, s, 2.0315f, A, s, A, s, -4.7750f, B, s, NULL));
        memcpy(next, y, n * sizeof *next);
        if (tall)
            PAR__ZERO_TRY(cpu->gemm(cpu, 0, 0, rows, cols, s, 1, y, cols, B, s, 3.4445f, next, cols, NULL));
        else
            PAR__ZERO_TRY(cpu->gemm(cpu, 0, 0, rows, cols, s, 1, B, s, y, cols, 3.4445f, next, cols, NULL));
        float *swap = y;
        y = next, next = swap;
    }
    const float up = sqrtf(PAR__MAX(1.0f, (float)rows / (float)cols));
    for (size_t i = 0; i < n; i++) x[i] = y[i] * up;
    return PAR_OK;
}
// Muon: the momentum of a unit's matrices, gathered whole; those that this rank has a part of, orthogonal.
static par_result par__zero_muon_directions(par_zero *z, int unit, float lr_factor, float scale) {
    const par__zero_unit *u = &z->units[unit];
    par__zero_pass p = par__zero_pass_begin(unit, unit + 1, 1);
    size_t first;
    const size_t count = par__zero_owned(z, u, &first);
    for (int found = 1; found;) {
        par__zero_run r = {0, 0, 0, 0};
        PAR__ZERO_TRY(par__zero_pass_next(z, &p, unit, &found));
        while (found && par__zero_next_run(z, &p.now, &r)) {
            const par__zero_tensor *t = &z->tensors[r.tensor];
            const par_zero_update a = par__zero_update_of(z, t, lr_factor, scale);
            const size_t k = r.at - p.now.first;
            const char *g = par__zero_gradients_of(z, &p.now) + k * par__zero_grad_element(z);
            if (par__zero_is_matrix(z, t))
                PAR__ZERO_TRY(z->kernels->momentum(&a, r.count, g, z->desc.grad_dtype,
                                                   p.states[PAR__ZERO_M] + k, z->whole_momentum + r.at));
        }
    }
    if (z->sharded_states && u->count[0])
        PAR__ZERO_TRY((par_all_gather)(z->whole_momentum + first, z->whole_momentum, count, PAR_F32,
                                       par__zero_call(z, unit, PAR__ZERO_UPDATE)));
    for (int t = u->first; t < u->last; t++) {
        const par__zero_tensor *x = &z->tensors[t];
        if (par__zero_is_matrix(z, x) && count && x->at < first + count && x->at + x->count > first)
            PAR__ZERO_TRY(
                par__zero_orthogonalise(z, z->whole_momentum + x->at, x->desc.shape[0], x->desc.shape[1]));
    }
    return PAR_OK;
}
static par_result par__zero_update_unit(par_zero *z, par__zero_pass *p, int unit, float lr_factor,
                                        float scale) {
    for (;;) {
        par__zero_run r = {0, 0, 0, 0};
        int found;
        PAR__ZERO_TRY(par__zero_pass_next(z, p, unit, &found));
        if (!found) return PAR_OK;
        while (par__zero_next_run(z, &p->now, &r)) {
            const int matrix = par__zero_is_matrix(z, &z->tensors[r.tensor]);
            par_zero_update a = par__zero_update_of(z, &z->tensors[r.tensor], lr_factor, matrix ? 1 : scale);
            if (a.optimizer == PAR_ZERO_LAMB) a.trust = par__zero_trust_of(z, r.tensor);
            PAR__ZERO_TRY(par__zero_apply(z, p, &r, &a, matrix ? z->whole_momentum + r.at : NULL));
        }
        if (!z->sharded_gradients) // zeros for the next step, while they are in the cache
            memset(par__zero_gradients_of(z, &p->now), 0, p->now.count * par__zero_grad_element(z));
    }
}
// What this rank updated, to the others: under way until somebody needs the unit.
static par_result par__zero_spread_begin(par_zero *z, int unit) {
    par__zero_unit *u = &z->units[unit];
    const size_t e = par__zero_element(z), shard = par__zero_shard(z, u, 0);
    char *whole = z->parameters + u->whole_at * e;
    if (!par__zero_shared_out(z) || z->sharded_parameters || !u->count[0]) return PAR_OK;
    if (z->desc.central)
        return (par_broadcast_begin)(whole, whole, u->count[0], z->desc.param_dtype, 0,
                                     par__at(z->desc.comm, u->site[PAR__ZERO_UPDATE]), &u->spreading);
    return (par_all_gather_begin)(whole + shard * (size_t)z->rank * e, whole, shard, z->desc.param_dtype,
                                  par__zero_call(z, unit, PAR__ZERO_UPDATE), &u->spreading);
}
// All units. A unit with Muon's matrices is walked over twice, and so alone.
static par_result par__zero_update_all(par_zero *z, float lr_factor, float scale) {
    par__zero_pass p = par__zero_pass_begin(0, z->unit_count, 1);
    for (int i = 0; i < z->unit_count; i++) {
        if (z->desc.optimizer == PAR_ZERO_MUON) {
            if (par__zero_has_matrix(z, &z->units[i]))
                PAR__ZERO_TRY(par__zero_muon_directions(z, i, lr_factor, scale));
            p = par__zero_pass_begin(i, i + 1, 1);
        }
        PAR__ZERO_TRY(par__zero_update_unit(z, &p, i, lr_factor, scale));
        PAR__ZERO_TRY(par__zero_spread_begin(z, i));
    }
    return PAR_OK;
}
// The loss scale goes down after bad steps and up after many good ones (Micikevicius et al. 2018).
static void par__zero_scale_loss(par_zero *z, int bad) {
    if (z->desc.loss_scale <= 0) return;
    z->good_steps = bad ? 0 : z->good_steps + 1, z->bad_steps = bad ? z->bad_steps + 1 : 0;
    if (z->bad_steps >= z->desc.loss_scale_patience)
        z->loss_scale = PAR__MAX(z->loss_scale / 2, 1.0f), z->bad_steps = 0;
    if (z->good_steps >= z->desc.loss_scale_window)
        z->loss_scale = PAR__MIN(z->loss_scale * 2, 16777216.0f), z->good_steps = 0;
}
// For the next step. Gradients that were used are zeros already.
static void par__zero_clear(par_zero *z, int unused) {
    const size_t e = par__zero_grad_element(z);
    for (int i = 0; i < z->slots && z->sharded_parameters; i++) { // gathered, never used, and old by now
        par__zero_slot *s = &z->parameter_slots[i];
        par__zero_fetched(z, s), par_wait_all(s->requests, 2), s->unit = -1;
    }
    z->finished = 0;
    for (int i = 0; i < z->unit_count; i++) {
        par__zero_unit *u = &z->units[i];
        char *g = z->gradients + u->grad_at * e;
        size_t first, count;
        u->micro = 0;
        if (z->sharded_gradients) continue;
        par__zero_sum_of(z, u, &first, &count);
        if (unused) count = 0;
        memset(g, 0, first * e);
        memset(g + (first + count) * e, 0, (u->count[0] - first - count) * e);
    }
}
par_result par_zero_step(par_zero *z, float lr_factor, par_zero_report *report) {
    const double microbatches = (double)z->ranks * z->groups * z->micro_steps;
    double squares;
    if (!z->committed) return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_step: nothing is committed");
    PAR__ZERO_TRY(par__zero_finish(z));
    PAR__ZERO_TRY(par__zero_square_norm(z, &squares));
    double scale = (z->desc.average ? 1 / microbatches : 1) / (double)z->loss_scale;
    const double norm = sqrt(squares) * scale;
    const int bad = !isfinite(norm);
    if (z->desc.clip > 0 && norm > (double)z->desc.clip) scale *= (double)z->desc.clip / norm;
    if (!bad && z->desc.optimizer == PAR_ZERO_LAMB)
        PAR__ZERO_TRY(par__zero_lamb_trust(z, lr_factor, (float)scale));
    if (!bad) PAR__ZERO_TRY(par__zero_update_all(z, lr_factor, (float)scale));
    par__zero_scale_loss(z, bad);
    par__zero_clear(z, bad);
    if (!bad) z->step++;
    if (report)
        report->norm = norm, report->skipped = bad, report->loss_scale = z->loss_scale,
        report->step = z->step;
    return PAR_OK;
}
float par_zero_loss_scale(const par_zero *z) { return z->loss_scale; }
uint64_t par_zero_steps(const par_zero *z) { return z->step; }
void par_zero_set_steps(par_zero *z, uint64_t steps) { z->step = steps; }

// >>zero_values ---------------------------------------------------------------------------------------------

// Which elements of a tensor are among this rank's parameters, in the unit's part: from *begin to what it
// returns.
static size_t par__zero_stored(const par_zero *z, const par__zero_tensor *t, size_t *begin) {
    const size_t shard = par__zero_shard(z, &z->units[t->unit], t->part);
    const size_t first = z->sharded_parameters ? shard * (size_t)z->rank : 0;
    const size_t until = z->sharded_parameters ? first + shard : SIZE_MAX;
    *begin = PAR__MAX(first, t->at);
    return PAR__MIN(until, t->at + t->count);
}
// Elements of a part of a unit from or to this rank's parameters.
static par_result par__zero_move_parameters(par_zero *z, const par__zero_unit *u, int part, size_t at,
                                            size_t n, void *memory, int write) {
    const size_t e = par__zero_element(z), shard = par__zero_shard(z, u, part);
    const size_t first = z->sharded_parameters ? shard * (size_t)z->rank : 0;
    const size_t begun =
        z->sharded_parameters ? par__zero_shard_at(z, u, part) : u->whole_at + (part ? u->count[0] : 0);
    const size_t from = (begun + at - first) * e;
    if (z->parameter_store.kind)
        return par__zero_transfer_wait(
            z, par__zero_transfer_begin(z, &z->parameter_store, memory, from, n * e, write));
    memcpy(write ? z->parameters + from : (char *)memory, write ? (char *)memory : z->parameters + from,
           n * e);
    return PAR_OK;
}
static int par__zero_state_of(par_zero_what what) { // that is what a tensor's values are, if it has any
    return what == PAR_ZERO_MOMENT1   ? PAR__ZERO_M
           : what == PAR_ZERO_MOMENT2 ? PAR__ZERO_V
           : what == PAR_ZERO_EMA     ? PAR__ZERO_EMA
                                      : PAR__ZERO_MASTER;
}
static par_result par__zero_fill_parameters(par_zero *z, const par__zero_tensor *t, par_zero_fill_fn fn,
                                            void *user) {
    float values[PAR__ZERO_PIECE], rounded[PAR__ZERO_PIECE];
    const par__zero_unit *u = &z->units[t->unit];
    size_t begin;
    const size_t end = par__zero_stored(z, t, &begin);
    for (size_t at = begin; at < end; at += PAR__ZERO_PIECE) {
        const size_t n = PAR__MIN((size_t)PAR__ZERO_PIECE, end - at);
        fn(user, at - t->at, n, values);
        par_cast(rounded, z->desc.param_dtype, values, PAR_F32, n);
        PAR__ZERO_TRY(par__zero_move_parameters(z, u, t->part, at, n, rounded, 1));
    }
    return PAR_OK;
}
// The windows that have elements of a trained tensor; those of them in the present one: *begin on, how many.
static par__zero_pass par__zero_pass_of(const par__zero_tensor *t, int writes) {
    par__zero_pass p = par__zero_pass_begin(t->unit, t->part ? t->unit : t->unit + 1, writes);
    p.from = t->at, p.until = t->at + t->count;
    return p;
}
static size_t par__zero_overlap(const par__zero_pass *p, size_t *begin) {
    *begin = PAR__MAX(p->now.first, p->from);
    return p->now.count ? PAR__MIN(p->now.first + p->now.count, p->until) - *begin : 0;
}
par_result par_zero_fill(par_zero *z, int tensor, par_zero_what what, par_zero_fill_fn fn, void *user) {
    if (!z->committed || tensor < 0 || tensor >= z->tensor_count || what == PAR_ZERO_GRADIENT)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_fill: %d is no tensor, or nothing is committed",
                              tensor);
    const par__zero_tensor *t = &z->tensors[tensor];
    const int kinds[2] = {par__zero_state_of(what), what == PAR_ZERO_VALUE ? PAR__ZERO_EMA : 0};
    PAR__ZERO_TRY(par_wait(&z->units[t->unit].spreading));
    if (what == PAR_ZERO_VALUE) PAR__ZERO_TRY(par__zero_fill_parameters(z, t, fn, user));
    par__zero_pass p = par__zero_pass_of(t, 1);
    for (int found = 1; found;) {
        size_t begin;
        PAR__ZERO_TRY(par__zero_pass_next(z, &p, t->unit, &found));
        const size_t n = par__zero_overlap(&p, &begin);
        for (int i = 0; i < 1 + (kinds[1] > 0) && n; i++)
            if (p.states[kinds[i]]) fn(user, begin - t->at, n, p.states[kinds[i]] + (begin - p.now.first));
    }
    return PAR_OK;
}
static par_result par__zero_read_parameters(par_zero *z, const par__zero_tensor *t, float *values) {
    float narrow[PAR__ZERO_PIECE];
    const par__zero_unit *u = &z->units[t->unit];
    size_t begin;
    const size_t end = par__zero_stored(z, t, &begin);
    for (size_t at = begin; at < end; at += PAR__ZERO_PIECE) {
        const size_t n = PAR__MIN((size_t)PAR__ZERO_PIECE, end - at);
        PAR__ZERO_TRY(par__zero_move_parameters(z, u, t->part, at, n, narrow, 0));
        par_cast(values + (at - t->at), PAR_F32, narrow, z->desc.param_dtype, n);
    }
    return PAR_OK;
}
static par_result par__zero_read_gradient(par_zero *z, const par__zero_tensor *t, float *values) {
    const size_t ge = par__zero_grad_element(z);
    size_t first, count;
    PAR__ZERO_TRY(par__zero_finish(z));
    const char *g = par__zero_sum_of(z, &z->units[t->unit], &first, &count);
    const size_t begin = PAR__MAX(first, t->at), end = PAR__MIN(first + count, t->at + t->count);
    if (!t->part && begin < end)
        par_cast(values + (begin - t->at), PAR_F32, g + (begin - first) * ge, z->desc.grad_dtype,
                 end - begin);
    return PAR_OK;
}
par_result par_zero_read(par_zero *z, int tensor, par_zero_what what, float *values) {
    if (!z->committed || tensor < 0 || tensor >= z->tensor_count)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_read: %d is no tensor, or nothing is committed",
                              tensor);
    const par__zero_tensor *t = &z->tensors[tensor];
    const int parameters = what == PAR_ZERO_VALUE && (t->part || !par__zero_has_master(z));
    memset(values, 0, t->count * sizeof *values);
    PAR__ZERO_TRY(par_wait(&z->units[t->unit].spreading));
    if (parameters) PAR__ZERO_TRY(par__zero_read_parameters(z, t, values));
    if (what == PAR_ZERO_GRADIENT) PAR__ZERO_TRY(par__zero_read_gradient(z, t, values));
    par__zero_pass p = par__zero_pass_of(t, 0);
    for (int found = !parameters && what != PAR_ZERO_GRADIENT; found;) {
        const float *state;
        size_t begin;
        PAR__ZERO_TRY(par__zero_pass_next(z, &p, t->unit, &found));
        if (!found || !(state = p.states[par__zero_state_of(what)])) continue;
        const size_t n = par__zero_overlap(&p, &begin);
        memcpy(values + (begin - t->at), state + (begin - p.now.first), n * sizeof *values);
    }
    if ((parameters && !z->sharded_parameters) || !par__zero_shared_out(z)) return PAR_OK; // all have all
    return par_all_reduce(values, values, t->count, PAR_U32, PAR_MAX, z->desc.comm); // others have zeros
}

// >>zero_schedule -------------------------------------------------------------------------------------------

float par_zero_factor(const par_zero_schedule *s, uint64_t step) {
    if (step < s->warmup) return (float)((double)(step + 1) / (double)(s->warmup + 1));
    if (s->shape == PAR_ZERO_CONSTANT) return 1;
    const uint64_t begun =
        s->shape == PAR_ZERO_WSD ? (s->steps > s->decay ? s->steps - s->decay : 0) : s->warmup;
    if (step >= s->steps) return s->least;
    if (step < begun) return 1;
    const double done = (double)(step - begun) / (double)(s->steps - begun), least = (double)s->least;
    const double left = s->shape == PAR_ZERO_COSINE ? 0.5 * (1 + cos(3.141592653589793 * done)) : 1 - done;
    return (float)(least + (1 - least) * left);
}

#ifdef __cplusplus
}
#endif
#endif // PAR_ZERO_IMPLEMENTATION

// Public domain where that is possible: anyone may use, change and give this away for any purpose, without
// conditions. Elsewhere, and if you prefer, under MIT-0:
//
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction, including
// without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is furnished to do so.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
// LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
// EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
// IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE
// USE OR OTHER DEALINGS IN THE SOFTWARE.

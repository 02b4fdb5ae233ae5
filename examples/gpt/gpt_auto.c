// gpt_auto.c - measures this machine with the model's own sizes for some seconds, plans over the ranks given,
// says why, and prints the options of the fastest layout behind those that it was given, for build/gpt.
//
//     eval "build/gpt $(build/gpt_auto --ranks 4 --data FILE)"
//
// What is given of the layout, of recompute and of offload stays. Reasons go to stderr. All ranks measure at
// once, so what they share (processors, memory, links) is in every figure.
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE // sched_getaffinity
#endif
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_plan.h"
#include "par_tp.h"
#include "par_zero.h"
#if defined(GPT_CUDA)
#include "par_cuda.cuh"
#define GPT_DEVICE "cuda"
#else
#define GPT_DEVICE "cpu"
#endif
#define PROGRAM "gpt_auto"
#include "../median.h"
#include "../options.h"

// The trainer's options, checks and model; not all of them have a part in this.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "model.h"
#include "data.h"
#include "files.h"
#include "settings.h"
#include "grid.h"
#include "check.h"
#include "products.h"
#include "memory.h"
#pragma GCC diagnostic pop
#include <sched.h>
#include <time.h>

typedef struct planner {
    settings o;
    gpt_grid grid;
    dataset data;
    const char *machine; // file for what was measured
    int argc;
    char **argv;
} planner;

enum { AUTO_TOP = 100, AUTO_ACTIONS = 20000, AUTO_PARTS = 9 };

// ---- measuring --------------------------------------------------------------------------------------------

enum { AUTO_TP, AUTO_ULYSSES, AUTO_RING, AUTO_SHARED }; // ways to share a layer
enum { AUTO_PRODUCTS = 5, AUTO_SHORTER = 2, AUTO_WORKS = AUTO_PRODUCTS + AUTO_SHORTER + AUTO_SHARED + 9 };
typedef struct auto_layers { // some layers of the model, and embedding and head
    par_tp *tp;              // of this rank alone, or of those of its node, as tp or as cp
    gpt_model model;
    gpt_buffers buffers;
    size_t batch, sequence;
    int count;
    void *memory[6]; // weights, gradients, tokens, loss, input, output
} auto_layers;
typedef struct auto_message { // a sum
    par_comm *comm;
    void *send, *recv;
    size_t count; // of f32; 0: not measured
} auto_message;
typedef struct auto_bench {
    const settings *o;
    const gpt_grid *g;
    par_comm *self, *node;
    par_tp_linear linear[AUTO_PRODUCTS];
    par_tp_matrix x[AUTO_PRODUCTS], y[AUTO_PRODUCTS];
    auto_layers alone, split, shared[AUTO_SHARED]; // split: as alone, with B and W apart
    par_zero *zero;
    auto_message node_sum, world_sum;
    double busy, passed; // seconds of this rank's processor in what was timed; seconds that passed
    int shares;          // 1: ranks outnumber processors
} auto_bench;
typedef struct auto_work {
    par_result (*run)(auto_bench *b, int i);
    int i, together; // together: ranks wait for each other, and time passes for all; all make as many calls
    double window;   // seconds to measure it
    double *seconds; // of a call
    double calls;
} auto_work;

static par_result auto_sync(const auto_bench *b) { return b->g->device->stream_sync(b->g->device, NULL); }
static par_result auto_alloc(const auto_bench *b, size_t bytes, void **p) {
    return b->g->device->alloc(b->g->device, bytes, p);
}
static par_result auto_free(const auto_bench *b, void *p) {
    return p ? b->g->device->free(b->g->device, p) : PAR_OK;
}

// Seconds on a clock that other programs do not disturb: the processor's, or, of a GPU, the time that passes.
static double auto_clock(const auto_bench *b) {
    struct timespec now;
    if (b->g->device != par_cpu() || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now))
        return par_seconds(b->g->world);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
// Works again and again, on all ranks at once, for a part of the window: seconds of a call.
static par_result auto_part(auto_bench *b, const auto_work *w, double *seconds) {
    par_comm *world = b->g->world;
    double calls = 0;
    GPT_TRY(par_barrier(world));
    const double started = par_seconds(world), end = started + w->window / AUTO_PARTS, begin = auto_clock(b);
    do {
        GPT_TRY(w->run(b, w->i));
        if (!w->together) GPT_TRY(auto_sync(b));
        calls++;
    } while (w->together ? calls < w->calls : par_seconds(world) < end);
    GPT_TRY(auto_sync(b));
    const double busy = auto_clock(b) - begin, passed = par_seconds(world) - started;
    *seconds = (w->together ? passed : busy) / calls;
    if (w->together) return PAR_OK;
    b->busy += busy;
    b->passed += passed;
    return PAR_OK;
}
// A call for the libraries' preparations; and one that tells how many fit into a part of the window.
static par_result auto_warm(auto_bench *b, auto_work *w) {
    double seconds;
    w->calls = 1;
    GPT_TRY(auto_part(b, w, &seconds));
    if (!w->together) return PAR_OK;
    GPT_TRY(auto_part(b, w, &seconds));
    w->calls = MAX(MIN(floor(w->window / AUTO_PARTS / MAX(seconds, 1e-9)), 1000), 1);
    return par_all_reduce(&w->calls, &w->calls, 1, PAR_F64, PAR_MIN, b->g->world);
}
// Times all works by turns, so that a machine that is slower for a while is slower for all of them: the first
// by its middle part, the others by the middle ratio to the first. Then the slowest rank counts, for which a
// step waits; not that of each part, because who is slower for a moment is not so for a whole step. Where
// ranks share processors their mean counts: there a rank that is done leaves its processor to the others, and
// a step takes as long as all of their work.
static par_result auto_time(auto_bench *b, auto_work *works, int count) {
    double parts[AUTO_WORKS][AUTO_PARTS], seconds[AUTO_WORKS];
    for (int i = 0; i < count; i++) GPT_TRY(auto_warm(b, &works[i]));
    for (int part = 0; part < AUTO_PARTS; part++)
        for (int i = 0; i < count; i++) GPT_TRY(auto_part(b, &works[i], &parts[i][part]));
    for (int i = count - 1; i >= 0; i--) // the median sorts the parts of the first, which is the last here
        seconds[i] = i ? median_ratio(parts[i], parts[0], AUTO_PARTS) : median(parts[0], AUTO_PARTS);
    for (int i = 1; i < count; i++) seconds[i] *= seconds[0];
    GPT_TRY(
        par_all_reduce(seconds, seconds, (size_t)count, PAR_F64, b->shares ? PAR_AVG : PAR_MAX, b->g->world));
    for (int i = 0; i < count; i++) *works[i].seconds = seconds[i];
    return PAR_OK;
}
// Ranks of this node for each of its processors that they may use, at least 1.
static par_result auto_oversubscription(auto_bench *b, double *oversubscription) {
    uint8_t may[CPU_SETSIZE];
    cpu_set_t set;
    int count = 0;
    memset(may, 0, sizeof may);
    if (!sched_getaffinity(0, sizeof set, &set))
        for (int i = 0; i < CPU_SETSIZE; i++) may[i] = CPU_ISSET(i, &set) != 0;
    GPT_TRY(par_all_reduce(may, may, CPU_SETSIZE, PAR_U8, PAR_MAX, b->node));
    for (int i = 0; i < CPU_SETSIZE; i++) count += may[i];
    *oversubscription = b->g->device == par_cpu() && count ? MAX((double)par_size(b->node) / count, 1) : 1;
    return PAR_OK;
}

// What a linear layer does forward, in the model's element type.
static par_result auto_multiply(auto_bench *b, int i) {
    return par_tp_linear_forward(b->alone.tp, &b->linear[i], &b->x[i], NULL, &b->y[i]);
}
// The first product of an MLP, thinner ones, and one that is all start and end.
static par_result auto_open_products(auto_bench *b, par_plan_product products[AUTO_PRODUCTS]) {
    const settings *o = b->o;
    const size_t C = (size_t)o->model.n_embd, F = gpt_hidden(&o->model),
                 e = par_tp_element_bytes(b->alone.tp);
    const double most = (b->g->device == par_cpu() ? 1e9 : 4e11) / (2 * (double)C * (double)F);
    const size_t all = (size_t)o->batch_size * (size_t)o->model.block_size,
                 rows = MAX(MIN(all, MAX((size_t)most, (size_t)64)), (size_t)8);
    const size_t f = MAX(F / 128 * 16, (size_t)16), c = MAX(C / 128 * 16, (size_t)16); // as recipes want them
    const size_t sizes[AUTO_PRODUCTS][3] = {                                           // rows, columns, inner
                                            {rows, F, C},
                                            {rows / 8, F, C},
                                            {rows, f, C},
                                            {rows, F, c},
                                            {4, 16, 16}};
    for (int i = 0; i < AUTO_PRODUCTS; i++) {
        const size_t *s = sizes[i];
        products[i].rows = (double)s[0];
        products[i].columns = (double)s[1];
        products[i].inner = (double)s[2];
        b->linear[i].in = s[2];
        b->linear[i].out = s[1];
        b->linear[i].recipe = o->model.recipe;
        b->x[i].rows = s[0];
        b->x[i].cols = s[2];
        b->x[i].layout = PAR_TP_REPLICATED;
        GPT_TRY(par_tp_linear_open(b->alone.tp, &b->linear[i]));
        GPT_TRY(auto_alloc(b, s[0] * s[2] * e, &b->x[i].data));
        GPT_TRY(auto_alloc(b, s[0] * s[1] * e, &b->y[i].data));
        GPT_TRY(auto_alloc(b, s[1] * s[2] * e, &b->linear[i].weight.data));
        GPT_TRY(par_tp_init(b->alone.tp, &b->linear[i].weight, 1, 0.02f));
    }
    return PAR_OK;
}
static par_result auto_close_products(auto_bench *b) {
    for (int i = 0; i < AUTO_PRODUCTS; i++) {
        GPT_TRY(auto_free(b, b->x[i].data));
        GPT_TRY(auto_free(b, b->y[i].data));
        GPT_TRY(auto_free(b, b->linear[i].weight.data));
    }
    return PAR_OK;
}

// Forward and backward of a stage, with the loss where it has a head, as a training step has them.
static par_result auto_stage(const auto_bench *b, auto_layers *l, int layers, size_t parts) {
    const int ends = layers == 0;
    const gpt_stage stage = {0, layers, ends, ends, gpt_is_tied(&l->model.config)};
    const gpt_dropout drop = {(float)b->o->dropout, 1};
    const par_tp_tokens tokens = {l->batch * parts, l->sequence / parts, 0, 0, NULL};
    const size_t rows = par_tp_rows(l->tp, &tokens);
    const int32_t *x = (const int32_t *)l->memory[2], *y = x + rows;
    double *sum = (double *)l->memory[3];
    gpt_buffers *u = &l->buffers;
    u->in = l->memory[4];
    u->out = l->memory[5];
    GPT_TRY(gpt_buffers_layout(&l->model, &stage, u, rows));
    GPT_TRY(gpt_stage_forward(&l->model, &stage, u, &tokens, x, &drop));
    if (ends)
        GPT_TRY(par_tp_loss_forward_backward(l->tp, &l->model.loss, &u->logits, y, u->lse, NULL, sum,
                                             (size_t *)(void *)(sum + 1), 1e-3f, &u->logits));
    GPT_TRY(gpt_stage_backward(&l->model, &stage, u, &tokens, x, &drop));
    return l->model.split_backward ? gpt_stage_wgrad(&l->model, &stage, u) : PAR_OK;
}
// Layers, also with as many tokens in sequences of a quarter and an eighth: what attention takes by its
// blocks.
static par_result auto_run_layers(auto_bench *b, int shorter) {
    return auto_stage(b, &b->alone, b->alone.count, shorter ? (size_t)2 << shorter : 1);
}
// Layers with W after the last B: it reads again what has left the caches.
static par_result auto_run_split(auto_bench *b, int parts) {
    return auto_stage(b, &b->split, b->split.count, (size_t)parts);
}
static par_result auto_run_ends(auto_bench *b, int i) { // embedding, last norm, head and loss
    return auto_stage(b, &b->alone, i, 1);
}
// Layers that the ranks of a node share, tensor or context parallel: what they take beyond their products is
// messages, their copies, and the waiting for each other that comes with them.
static par_result auto_run_shared(auto_bench *b, int how) {
    return auto_stage(b, &b->shared[how], b->shared[how].count, 1);
}
// Embedding and head, which go from rank to rank, as so many at once: what they take besides, and besides
// their message, is the time until a rank that waited goes on. They are short, so that it counts.
static par_result auto_relay(auto_bench *b, int at_once) {
    const int rank = par_rank(b->node), ranks = par_size(b->node);
    const int begins = (rank + 1) * at_once / ranks > rank * at_once / ranks;
    const size_t bytes = gpt_tokens_bytes(&b->alone.model, b->alone.batch * b->alone.sequence);
    void *const x = b->alone.memory[4];
    if (!begins) GPT_TRY(par_recv(x, bytes, PAR_U8, (rank + ranks - 1) % ranks, b->node));
    GPT_TRY(auto_run_ends(b, 0));
    GPT_TRY(par_send(b->alone.memory[5], bytes, PAR_U8, (rank + 1) % ranks, b->node));
    return begins ? par_recv(x, bytes, PAR_U8, (rank + ranks - 1) % ranks, b->node) : PAR_OK;
}
static par_result auto_open_layers(const auto_bench *b, auto_layers *l, par_comm *tp, par_comm *cp,
                                   int ulysses, int layers, size_t batch) {
    gpt_config g = b->o->model;
    const int ranks = cp ? par_size(cp) : 1;
    par_tp_desc d;
    memset(&d, 0, sizeof d);
    d.tp = tp;
    d.cp = cp;
    d.ulysses = ulysses;
    par_dtype_parse(b->o->dtype, &d.dtype);
    par_dtype_parse(b->o->tp_sums, &d.sum_dtype);
    d.seed = 1;
    d.kernels = b->g->tp_kernels;
    if (!l->tp) GPT_TRY(par_tp_open(&d, &l->tp));
    if (!layers) return PAR_OK;
    g.n_layer = l->count = layers;
    l->batch = batch;
    l->sequence = (size_t)g.block_size;
    GPT_TRY(gpt_open(&l->model, &g, l->tp, 0));
    l->model.split_backward = l == &b->split;
    const size_t rows = batch * l->sequence / (size_t)ranks, message = gpt_tokens_bytes(&l->model, rows);
    const size_t bytes[6] = {l->model.count * par_tp_element_bytes(l->tp),
                             l->model.count * sizeof(float),
                             2 * rows * sizeof(int32_t),
                             64,
                             message,
                             message};
    for (int i = 0; i < 6; i++) GPT_TRY(auto_alloc(b, bytes[i], &l->memory[i]));
    gpt_set_memory(&l->model, l->memory[0], (float *)l->memory[1]);
    GPT_TRY(gpt_init_weights(&l->model));
    if (gpt_buffers_open(&l->model, &l->buffers, rows)) return PAR_OK;
    return par_fail(b->g->world, PAR_ERR_MEMORY, "out of memory to measure a layer");
}
static par_result auto_close_layers(const auto_bench *b, auto_layers *l) {
    if (l->count) gpt_buffers_close(&l->model, &l->buffers);
    if (l->count) gpt_close(&l->model);
    for (int i = 0; i < 6; i++) GPT_TRY(auto_free(b, l->memory[i]));
    return l->tp ? par_tp_close(l->tp) : PAR_OK;
}
// As many layers, and sequences, as take a tenth of a second; `rate` of products a second and element.
static void auto_size_layers(const auto_bench *b, double rate, int *layers, int *batch) {
    const settings *o = b->o;
    const double C = o->model.n_embd, T = o->model.block_size;
    const double flops = 3 * T * C * (4 * C + 3 * (double)gpt_hidden(&o->model) + T); // of a sequence
    *batch = o->batch_size;
    *layers = MIN(o->model.n_layer, 4);
    while (*batch > 1 && *batch * flops > 0.1 * rate) *batch = (*batch + 1) / 2;
    while (*layers > 1 && *layers * *batch * flops > 0.1 * rate) --*layers;
}
static int auto_divides(const gpt_config *g, int ranks) { // can so many ranks share a layer?
    const size_t kv = gpt_kv_heads(g), n = (size_t)ranks, multiple = g->recipe ? 16 * n : n;
    return ranks > 1 && g->n_head % ranks == 0 && gpt_hidden(g) % multiple == 0 && kv % n == 0 &&
           (size_t)g->n_head * gpt_head_dim(g) % multiple == 0 && gpt_head_dim(g) * kv % multiple == 0;
}

static par_result auto_step(auto_bench *b, int unit) {
    GPT_TRY(par_zero_backward_begin(b->zero, unit));
    GPT_TRY(par_zero_backward_end(b->zero, unit));
    return par_zero_step(b->zero, 1, NULL);
}
static par_result auto_open_zero(auto_bench *b, double *count) { // for an update of a layer's parameters
    const settings *o = b->o;
    const size_t C = (size_t)o->model.n_embd, rows = 4 * C + 3 * gpt_hidden(&o->model);
    par_zero_desc d;
    par_zero_tensor x;
    memset(&d, 0, sizeof d);
    memset(&x, 0, sizeof x);
    describe_optimizer(b->o, b->g, &d);
    d.comm = b->self;
    d.model_parallel_comm = NULL;
    d.stage = d.parameter_server = d.canonical_shards = d.accumulate_unsharded = 0;
    d.microbatches = 1;
    d.offload_states = d.offload_parameters = NULL;
    x.name = "w";
    x.dims = 2;
    x.shape[0] = MIN(rows, (size_t)4000000 / C + 1);
    x.shape[1] = C;
    *count = (double)x.shape[0] * (double)C;
    GPT_TRY(par_zero_open(&d, &b->zero));
    if (par_zero_add_unit(b->zero, "layer") || par_zero_add_tensor(b->zero, &x)) return PAR_ERR_ARGUMENT;
    return par_zero_commit(b->zero);
}

static par_result auto_sum(auto_bench *b, int i) { // of a node's ranks, or of all; large, or small
    const auto_message *s = i < 2 ? &b->node_sum : &b->world_sum;
    return par_all_reduce(s->send, s->recv, i % 2 ? 16 : s->count, PAR_F32, PAR_SUM, s->comm);
}
// Sums of activations as tensor parallel layers have them.
static par_result auto_open_sum(const auto_bench *b, auto_message *s, par_comm *comm, par_plan_message *m) {
    const settings *o = b->o;
    par_device *d = b->g->device;
    const double want = (double)b->alone.batch * o->model.block_size * o->model.n_embd * sizeof(float);
    const size_t bytes = (size_t)MIN(MAX(want, 1 << 16), 1 << 26) / 64 * 64;
    if (par_size(comm) < 2) return PAR_OK;
    s->comm = comm;
    s->count = bytes / sizeof(float);
    m->ranks = par_size(comm);
    m->bytes = (double)bytes;
    GPT_TRY(d->alloc_symmetric ? d->alloc_symmetric(d, comm, bytes, &s->send)
                               : auto_alloc(b, bytes, &s->send));
    return auto_alloc(b, bytes, &s->recv);
}
static par_result auto_close_sum(const auto_bench *b, auto_message *s) {
    par_device *d = b->g->device;
    if (!s->count) return PAR_OK;
    GPT_TRY(auto_free(b, s->recv));
    return d->alloc_symmetric ? d->free_symmetric(d, s->comm, s->send) : auto_free(b, s->send);
}
// Adds a work to be timed.
static void auto_add(auto_work *works, int *count, par_result (*run)(auto_bench *, int), int i, int together,
                     double window, double *seconds) {
    const auto_work w = {run, i, together, window, seconds, 1};
    works[(*count)++] = w;
}
// Times everything. The layers come first: the others are measured by their ratio to them.
static par_result auto_time_all(auto_bench *b, par_plan_measured *m) {
    auto_work works[AUTO_WORKS];
    int n = 0;
    double sums[2];
    auto_add(works, &n, auto_run_layers, 0, 0, .3, &m->layer_seconds);
    for (int i = 0; i < AUTO_PRODUCTS; i++)
        auto_add(works, &n, auto_multiply, i, 0, .05, &m->products[i].seconds);
    for (int i = 0; i < AUTO_SHORTER && m->shorter[i].sequence > 0; i++)
        auto_add(works, &n, auto_run_layers, i + 1, 0, .15, &m->shorter[i].layer_seconds);
    if (b->split.count) auto_add(works, &n, auto_run_split, 1, 0, .15, &m->split_layer_seconds);
    auto_add(works, &n, auto_run_ends, 0, 0, .1, &m->embedding_head_seconds);
    double *const shared[AUTO_SHARED] = {&m->shared_layer_seconds, &m->ulysses_layer_seconds,
                                         &m->ring_layer_seconds};
    for (int i = 0; i < AUTO_SHARED; i++)
        if (b->shared[i].count) auto_add(works, &n, auto_run_shared, i, 1, .3, shared[i]);
    const int ranks = par_size(b->node),
              at_once = m->oversubscription > 1 ? MAX((int)(ranks / m->oversubscription), 1) : 1;
    if (b->g->device == par_cpu() && ranks > 1)
        auto_add(works, &n, auto_relay, at_once, 1, .3, &m->relay_seconds);
    auto_add(works, &n, auto_step, 0, 0, .05, &m->update_seconds);
    for (int i = 0; i < 4; i++) {
        par_plan_message *s = i < 2 ? &m->node : &m->net;
        if (s->ranks > 1)
            auto_add(works, &n, auto_sum, i, 1, i % 2 ? .02 : .05, i % 2 ? &s->small_seconds : &s->seconds);
    }
    GPT_TRY(auto_time(b, works, n));
    sums[0] = b->busy;
    sums[1] = b->passed;
    GPT_TRY(par_all_reduce(sums, sums, 2, PAR_F64, PAR_SUM, b->g->world));
    m->slowdown = sums[1] / MAX(sums[0], 1e-9);
    m->layer_seconds /= b->alone.count;
    m->split_layer_seconds /= b->alone.count;
    for (int i = 0; i < AUTO_SHORTER; i++) m->shorter[i].layer_seconds /= b->alone.count;
    for (int i = 0; i < AUTO_SHARED; i++) *shared[i] /= MAX(b->shared[i].count, 1);
    m->relay_seconds *= (double)at_once / ranks;
    return PAR_OK;
}
static par_result auto_open_bench(auto_bench *b, par_plan_measured *m, double *parameters) {
    const settings *o = b->o;
    auto_work first = {auto_multiply, 0, 0, .1, NULL, 1};
    int layers, batch;
    double seconds = 0;
    GPT_TRY(par_split(b->g->world, par_rank(b->g->world), 0, &b->self));
    GPT_TRY(par_split(b->g->world, par_node_of(b->g->world, par_rank(b->g->world)), par_rank(b->g->world),
                      &b->node));
    GPT_TRY(auto_open_layers(b, &b->alone, b->self, NULL, 0, 0, 0));
    GPT_TRY(auto_oversubscription(b, &m->oversubscription));
    b->shares = m->oversubscription > 1; // of one node for all: nodes are alike
    GPT_TRY(par_broadcast(&b->shares, &b->shares, sizeof b->shares, PAR_U8, 0, b->g->world));
    GPT_TRY(auto_open_products(b, m->products));
    GPT_TRY(auto_warm(b, &first));
    GPT_TRY(auto_part(b, &first, &seconds));
    GPT_TRY(par_all_reduce(&seconds, &seconds, 1, PAR_F64, PAR_MAX, b->g->world)); // all have as many layers
    const par_plan_product *p = &m->products[0];
    auto_size_layers(b, p->rows * p->columns * p->inner / seconds, &layers, &batch);
    m->microbatch = batch;
    m->shared_microbatch = MIN(batch * par_size(b->node), o->batch_size * o->accumulation_steps);
    GPT_TRY(auto_open_layers(b, &b->alone, b->self, NULL, 0, layers, (size_t)batch));
    if (par_size(b->g->world) > 1)
        GPT_TRY(auto_open_layers(b, &b->split, b->self, NULL, 0, layers, (size_t)batch));
    const gpt_config *g = &o->model;
    const int ranks = par_size(b->node), heads = (int)gpt_kv_heads(g),
              rings = b->g->device == par_cpu() && ranks > 1 && g->block_size % (2 * ranks) == 0;
    const int shares[AUTO_SHARED] = {auto_divides(g, ranks), rings && heads % ranks == 0, rings};
    for (int i = 0; i < AUTO_SHARED; i++)
        if (shares[i])
            GPT_TRY(auto_open_layers(b, &b->shared[i], i == AUTO_TP ? b->node : b->self,
                                     i == AUTO_TP ? NULL : b->node, i == AUTO_ULYSSES, MAX(layers / 2, 1),
                                     (size_t)m->shared_microbatch));
    for (int i = 0; i < AUTO_SHORTER; i++)
        if (b->g->device == par_cpu() && o->model.block_size % 8 == 0)
            m->shorter[i].sequence = (double)(o->model.block_size >> (i + 2));
    GPT_TRY(auto_open_zero(b, parameters));
    GPT_TRY(auto_open_sum(b, &b->node_sum, b->node, &m->node));
    return par_node_count(b->g->world) > 1 ? auto_open_sum(b, &b->world_sum, b->g->world, &m->net) : PAR_OK;
}
static par_result auto_measure(const settings *o, const gpt_grid *g, par_plan_measured *m) {
    auto_bench b;
    double parameters;
    memset(&b, 0, sizeof b);
    memset(m, 0, sizeof *m);
    b.o = o;
    b.g = g;
    GPT_TRY(auto_open_bench(&b, m, &parameters));
    GPT_TRY(auto_time_all(&b, m));
    m->update_seconds /= parameters;
    GPT_TRY(auto_close_sum(&b, &b.world_sum));
    GPT_TRY(auto_close_sum(&b, &b.node_sum));
    GPT_TRY(par_zero_close(b.zero));
    for (int i = 0; i < AUTO_SHARED; i++) GPT_TRY(auto_close_layers(&b, &b.shared[i]));
    GPT_TRY(auto_close_products(&b));
    GPT_TRY(auto_close_layers(&b, &b.split));
    GPT_TRY(auto_close_layers(&b, &b.alone));
    GPT_TRY(par_close(b.node));
    return par_close(b.self);
}

// ---- planning ---------------------------------------------------------------------------------------------

// What the planner knows of a device before it is measured.
static void auto_machine(const settings *o, const gpt_grid *g, par_plan_machine *x) {
    const int ranks = par_size(g->world), nodes = par_node_count(g->world);
    char name[64];
    memset(x, 0, sizeof *x);
    snprintf(x->name, sizeof x->name, "this machine");
    x->overlap_cost = 1; // a processor copies its messages itself
    x->memory_bytes = (double)machine_memory(name, sizeof name) / ((double)ranks / nodes);
    if (!(x->memory_bytes > 0)) x->memory_bytes = 1e18; // nobody knows
#if !defined(GPT_CUDA)
    (void)o;
#else
    struct cudaDeviceProp p;
    size_t unused, all;
    int device;
    if (g->cuda && cudaGetDevice(&device) == cudaSuccess && cudaMemGetInfo(&unused, &all) == cudaSuccess &&
        cudaGetDeviceProperties(&p, device) == cudaSuccess) {
        static const char *const known[][2] = {{"GB200", "gb200-nvl72"},
                                               {"B200", "b200"},
                                               {"H200", "h200"},
                                               {"H100", "h100"},
                                               {"A100", "a100-80"}};
        const char *row = "h100"; // of one that is not in the table: what is not measured
        for (int i = 4; i >= 0; i--)
            if (strstr(p.name, known[i][0])) row = known[i][1];
        par_plan_machine_get(row, x);
        snprintf(x->name, sizeof x->name, "%.60s", p.name);
        x->sm_count = p.multiProcessorCount;
        x->memory_bytes = (double)all;
        if (!strcmp(o->dtype, "f32")) x->peak = 0;
    }
#endif
    x->nodes = nodes;
    x->gpus_per_node = MAX(ranks / nodes, 1);
}
static void auto_problem(const settings *o, const gpt_grid *ranks, par_plan_problem *p) {
    const gpt_config *g = &o->model;
    par_plan_model *m = &p->model;
    par_zero_optimizer optimizer;
    par_dtype state, type;
    memset(p, 0, sizeof *p);
    snprintf(m->name, sizeof m->name, "%s", g->llama ? "llama" : "gpt2");
    m->layers = g->n_layer;
    m->features = g->n_embd;
    m->heads = g->n_head;
    m->kv_heads = (int)gpt_kv_heads(g);
    m->head_dim = (int)gpt_head_dim(g);
    m->hidden = (int)gpt_hidden(g);
    m->vocab = g->vocab_size;
    m->positions = g->llama ? 0 : (int)gpt_positions(g);
    m->gated = g->llama;
    m->tied = gpt_is_tied(g);
    m->has_bias = g->bias;
    auto_machine(o, ranks, &p->machine);
    par_dtype_parse(o->dtype, &type);
    par_dtype_parse(o->state_dtype, &state);
    par_zero_optimizer_parse(o->optimizer, &optimizer);
    const double moments = optimizer == PAR_ZERO_ADAMW || optimizer == PAR_ZERO_LAMB ? 2 : 1;
    p->job.batch = (double)o->batch_size * o->accumulation_steps;
    p->job.sequence = g->block_size;
    p->job.element_bytes = (double)par_dtype_bytes(type);
    p->job.gradient_bytes = 4;
    p->job.state_bytes = moments * (double)par_dtype_bytes(state) + (type == PAR_F32 ? 0 : 4);
    p->job.dropout = o->dropout > 0;
    p->job.fp8 = 2;
    p->job.whole_shards = 1; // as the trainer does
    p->job.f32_sums = !chosen_word(o, "--tp_sums");
}
// What the command line has decided is not the planner's to choose. NULL, or an error text.
static const char *auto_fixed(settings *o, par_plan_config *c, unsigned *mask) {
    const struct {
        const char *option, *format;
        int number;
        const char *word;
    } all[] = {{"--tp", " tp=%d", o->tp, NULL},
               {"--pp", " pp=%d", o->pp, NULL},
               {"--cp", " cp=%d", o->cp, NULL},
               {"--sp", " sp=%d", o->sp, NULL},
               {"--zero", " zero=%d", o->zero, NULL},
               {"--chunks", " chunks=%d", o->chunks, NULL},
               {"--cp_mode", " ulysses=%d", chosen_word(o, "--cp_mode"), NULL},
               {"--schedule", " schedule=%.40s", 0, o->schedule},
               {"--recompute", " recompute=%.40s", 0, o->recompute}};
    char text[512];
    size_t n = (size_t)snprintf(text, sizeof text, "fp8=%s offload=%s", o->fp8,
                                o->offload && !strcmp(o->offload, "host") ? "states" : "none");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!is_given(o, all[i].option)) continue;
        n += (size_t)(all[i].word ? snprintf(text + n, sizeof text - n, all[i].format, all[i].word)
                                  : snprintf(text + n, sizeof text - n, all[i].format, all[i].number));
    }
    return par_plan_parse(text, c, mask, o->why, sizeof o->why) ? o->why : NULL;
}
// In MB, the activations that schedule auto may keep: as many as memory has room for.
static int auto_activation_mb(const par_plan_problem *p, const par_plan_choice *x) {
    const double mb = floor(par_plan_activation_room(p, &x->prediction) / 1e6);
    return x->config.schedule == PAR_PIPE_AUTO ? (int)MIN(MAX(mb, 1), 1e9) : 0;
}
// The options by which the trainer takes a layout.
static void auto_options(const par_plan_problem *p, const par_plan_choice *x, char *text, size_t capacity) {
    const par_plan_config *c = &x->config;
    const int mb = auto_activation_mb(p, x);
    size_t n = (size_t)snprintf(
        text, capacity,
        "--pp %d --tp %d --cp %d --zero %d --batch_size %d --gradient_accumulation_steps %.0f", c->pp, c->tp,
        c->cp, c->zero, c->microbatch, p->job.batch / c->microbatch);
    if (c->sp) n += (size_t)snprintf(text + n, capacity - n, " --sp");
    if (c->cp > 1)
        n += (size_t)snprintf(text + n, capacity - n, " --cp_mode %s", c->ulysses ? "ulysses" : "ring");
    if (c->pp > 1)
        n += (size_t)snprintf(text + n, capacity - n, " --schedule %s", par_plan_schedule_names[c->schedule]);
    if (c->chunks > 1) n += (size_t)snprintf(text + n, capacity - n, " --chunks %d", c->chunks);
    if (mb) n += (size_t)snprintf(text + n, capacity - n, " --max_activation_mb %d", mb);
    if (c->recompute)
        snprintf(text + n, capacity - n, " --recompute %s", par_plan_recompute_names[c->recompute]);
}
static void auto_say(void *user, const char *axis, const char *sentence) {
    if (*(const int *)user)
        json_print("auto:%b axis:%s reason:%s", 1, axis, sentence);
    else
        fprintf(stderr, "  %s\n", sentence);
}
static void auto_print_measured(const par_plan_problem *p, const par_plan_measured *m, double seconds,
                                int json) {
    const par_plan_machine *x = &p->machine;
    const par_plan_product *base = &m->products[0];
    const double flops = 2 * base->rows * base->columns * base->inner / base->seconds;
    if (json)
        json_print(
            "auto:%b seconds:%.4g product_gflops:%.5g microbatch:%.0f layer_seconds:%.5g "
            "embedding_head_seconds:%.5g update_ns:%.4g oversubscription:%.4g slowdown:%.4g "
            "shared_layer_seconds:%.5g ulysses_layer_seconds:%.5g ring_layer_seconds:%.5g "
            "relay_seconds:%.5g split_cost:%.4g tp_bandwidth:%.5g cp_bandwidth:%.5g ring_bandwidth:%.5g "
            "bandwidth:%.5g call_seconds:%.4g wake_seconds:%.4g",
            1, seconds, flops / 1e9, m->microbatch, m->layer_seconds, m->embedding_head_seconds,
            1e9 * m->update_seconds, m->oversubscription, m->slowdown, m->shared_layer_seconds,
            m->ulysses_layer_seconds, m->ring_layer_seconds, m->relay_seconds, x->split_cost, x->tp_bandwidth,
            x->cp_bandwidth, x->ring_bandwidth, x->node_bandwidth, x->call_seconds, x->wake_seconds);
    else
        fprintf(stderr,
                "measured in %.1f s: products %.4g GFLOP/s a rank; %.0f sequences take %.3g ms in a "
                "layer and %.3g ms in embedding, head and loss; an update %.3g ns a parameter; messages "
                "%.3g GB/s and %.3g us; %.3g ranks for each processor\n",
                seconds, flops / 1e9, m->microbatch, 1e3 * m->layer_seconds, 1e3 * m->embedding_head_seconds,
                1e9 * m->update_seconds, x->node_bandwidth / 1e9, 1e6 * x->call_seconds, m->oversubscription);
}
static void auto_print(const par_plan_problem *p, const par_plan_choice *choices, int count, int json) {
    char layout[256], options[512];
    for (int i = 0; i < count && (json || i < 10); i++) {
        const par_plan_prediction *x = &choices[i].prediction;
        par_plan_format(&choices[i].config, 1, layout, sizeof layout);
        auto_options(p, &choices[i], options, sizeof options);
        if (json) {
            json_line j = json_begin(stdout);
            json_add(&j, "auto:%b place:%d layout:%s options:%s predicted_seconds:%.6g bytes:%.6g", 1, i + 1,
                     layout, options, x->seconds, x->bytes);
#define X(member, what) json_add(&j, #member "_seconds:%.5g", x->times.member);
            PAR_PLAN_TIMES(X)
#undef X
            json_end(&j);
        } else {
            fprintf(stderr, "%9.4g s %8.2f GB  %s\n", x->seconds, x->bytes / 1e9,
                    layout[0] ? layout : "one rank");
        }
    }
    if (!json) fprintf(stderr, "why:\n");
    par_plan_explain(p, &choices[0], auto_say, &json);
}
// For build/plan --gpu. NULL, or an error text.
static const char *auto_write_machine(const par_plan_machine *x, const char *path, char why[256]) {
    char text[4096];
    par_plan_machine_format(x, text, sizeof text);
    FILE *f = fopen(path, "w");
    const int failed = !f || fputs(text, f) < 0;
    if ((!f || !fclose(f)) && !failed) return NULL;
    snprintf(why, 256, "cannot write %.160s: %.60s", path, strerror(errno));
    return why;
}
// Prints the command line, but for this program's own option, and the options of the layout. What a shell
// would not take as it is gets quotes.
static void auto_print_command(const planner *t, const char *options) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%";
    for (int i = 1; i < t->argc; i++) {
        const char *text = t->argv[i];
        if (!strcmp(text, "--machine")) {
            i++;
        } else if (!strncmp(text, "--machine=", 10)) {
            continue;
        } else if (*text && !text[strspn(text, plain)]) {
            printf("%s ", text);
        } else {
            putchar('\'');
            for (; *text; text++) *text == '\'' ? (void)printf("'\\''") : (void)putchar(*text);
            printf("' ");
        }
    }
    printf("%s\n", options);
}
// Plans on rank 0, says why, and prints the options of the best layout. NULL, or an error text.
static const char *auto_plan(planner *t, const par_plan_measured *m, double seconds) {
    settings *o = &t->o;
    char options[512];
    par_plan_problem p;
    par_plan_config fixed;
    par_plan_report report;
    unsigned mask;
    auto_problem(o, &t->grid, &p);
    memset(&fixed, 0, sizeof fixed);
    const char *why = auto_fixed(o, &fixed, &mask);
    if (why) return why;
    par_plan_choice *choices = (par_plan_choice *)calloc(AUTO_TOP, sizeof *choices);
    if (!choices) return "out of memory to plan";
    par_plan_fit(&p, m);
    p.machine.fp8_rate = p.machine.fp4_rate = p.machine.product_rate; // measured with the recipe
    p.machine.recipes = 1 << fixed.fp8;
    if (t->machine) why = auto_write_machine(&p.machine, t->machine, o->why);
    if (why) {
        free(choices);
        return why;
    }
    const unsigned layouts =
        1u << PAR_PLAN_AXIS_tp | 1u << PAR_PLAN_AXIS_pp | 1u << PAR_PLAN_AXIS_cp | 1u << PAR_PLAN_AXIS_dp;
    if (par_plan_search(&p, &fixed, mask, layouts, choices, AUTO_TOP, &report)) {
        snprintf(o->why, sizeof o->why, "%.240s", report.why);
        why = o->why;
    } else if (par_plan_simulate(&p, choices, report.count, AUTO_ACTIONS)) {
        why = "out of memory to plan";
    } else {
        auto_print_measured(&p, m, seconds, o->json);
        auto_print(&p, choices, report.count, o->json);
        auto_options(&p, &choices[0], options, sizeof options);
        if (!o->json) auto_print_command(t, options);
    }
    free(choices);
    return why;
}

// Measures and plans. Collective over the world.
static par_result try_machine_file(planner *t) { // rank 0 alone writes it
    char why[sizeof t->o.why];
    if (!t->machine || par_rank(t->grid.world)) return PAR_OK;
    const char *bad = output_try_beside(t->machine, why, sizeof why);
    return bad ? par_fail(t->grid.world, PAR_ERR_FILE, "%s", bad) : PAR_OK;
}
static par_result open_this_device(planner *t) { return open_device(&t->o, &t->grid); }
static par_result choose_products(planner *t) {
    return choose_gemm(&t->o, &t->grid,
                       (size_t)t->o.batch_size * (size_t)t->o.model.block_size / (size_t)t->o.cp);
}
static par_result measure_and_plan(planner *t) {
    settings *o = &t->o;
    par_plan_measured m;
    o->model.recipe = (par_tp_recipe)chosen_word(o, "--fp8"); // it is in all that is measured
    const double begin = par_seconds(t->grid.world);
    GPT_TRY(auto_measure(o, &t->grid, &m));
    const double seconds = par_seconds(t->grid.world) - begin;
    const char *why = par_rank(t->grid.world) ? NULL : auto_plan(t, &m, seconds);
    return why ? par_fail(t->grid.world, PAR_ERR_ARGUMENT, "%s", why) : PAR_OK;
}
static const char *prepare(void *user, int ranks) { // NULL, or an error text
    planner *t = (planner *)user;
    settings *o = &t->o;
    (void)ranks; // any number: how the batch is cut is planned
    if (o->generate) return "a layout is of a training: leave generate out";
    if (o->canonical) return "it chooses microbatches, which canonical fixes: give the layout yourself";
    const char *why = o->load ? load_model(o) : NULL;
    if (!why) why = check_settings(o);
    return why ? why : open_data(o, &t->data);
}

int main(int argc, char **argv) {
    planner t;
    memset(&t, 0, sizeof t);
    t.argc = argc;
    t.argv = argv;
    const option more[] = {
        {"planning", OPTION_TITLE, NULL, NULL},
        {"--machine", OPTION_TEXT, &t.machine,
         "FILE for the machine as measured: build/plan --gpu FILE plans for more of them"}};
    const int parsed =
        parse_settings(&t.o, argc, argv,
                       "gpt_auto: print the options of build/gpt's fastest layout on this machine", more, 2);
    if (parsed == 1 || (parsed && !par_launched(NULL))) return parsed == 1 ? 0 : 2;
    t.o.trace = NULL; // of the training
    int failed = open_world(&t.grid, &t.o, parsed, prepare, &t);
    par_result (*const steps[])(planner *) = {try_machine_file, open_this_device, choose_products,
                                              measure_and_plan};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && t.grid.world && !failed; i++)
        failed = any_rank_failed(t.grid.world, steps[i](&t) ? par_last_error(t.grid.world) : NULL);
    data_close(&t.data);
    free(t.o.given);
    return t.grid.world ? close_world(&t.grid, &t.o, failed) : 1;
}

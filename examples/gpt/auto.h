// auto.h - --auto: measures this machine with the model's own sizes for about a second, plans over the ranks
// given, says why, and takes the fastest layout. gpt.c includes it.
//
// All ranks measure at once, so what they share (processors, memory, links) is in every figure.
#ifndef AUTO_H
#define AUTO_H

#include "../median.h"
#include <sched.h>
#include <time.h>

enum { AUTO_TOP = 100, AUTO_ACTIONS = 20000 };

// ---- measuring --------------------------------------------------------------------------------------------

typedef struct auto_bench {
    trainer *t;
    par_comm *self, *node;
    par_tp *tp; // of this rank alone
    par_tp_linear linear;
    par_tp_matrix x, y;
    gpt_model model; // of a few layers
    gpt_stage stage;
    gpt_buffers buffers;
    par_tp_tokens tokens;
    void *weights, *gradients, *ids, *loss, *in, *out;
    par_zero *zero;
    par_comm *comm; // of messages
    void *send, *recv;
    size_t count;        // of their elements, f32
    double busy, passed; // seconds of this rank's processor in what was timed; seconds that passed
} auto_bench;
typedef par_result (*auto_work)(auto_bench *b);

static par_result auto_sync(const auto_bench *b) { return b->t->device->stream_sync(b->t->device, NULL); }

// The mean over ranks of a number that some of them have.
static par_result auto_mean(const auto_bench *b, int has, double *number) {
    double sum[2] = {has ? *number : 0, has ? 1.0 : 0};
    GPT_TRY(par_all_reduce(sum, sum, 2, PAR_F64, PAR_SUM, b->t->world));
    *number = sum[0] / MAX(sum[1], 1);
    return PAR_OK;
}
// Seconds on a clock that other programs do not disturb: the processor's, or, of a GPU, the time that passes.
static double auto_clock(const auto_bench *b) {
    struct timespec now;
    if (b->t->device != par_cpu() || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now))
        return par_seconds(b->t->world);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
// Works again and again for `window` seconds, on all ranks at once: so many of its own seconds a call, in the
// middle one of three parts.
static par_result auto_time(auto_bench *b, auto_work work, double window, double *seconds) {
    par_comm *world = b->t->world;
    double parts[3];
    GPT_TRY(work(b));
    GPT_TRY(auto_sync(b));
    GPT_TRY(par_barrier(world));
    for (int part = 0; part < 3; part++) {
        const double started = par_seconds(world), end = started + window / 3, begin = auto_clock(b);
        double calls = 0;
        do {
            GPT_TRY(work(b));
            GPT_TRY(auto_sync(b));
            calls++;
        } while (par_seconds(world) < end);
        const double busy = auto_clock(b) - begin;
        b->busy += busy;
        b->passed += par_seconds(world) - started;
        parts[part] = busy / calls;
    }
    *seconds = median(parts, 3);
    return auto_mean(b, 1, seconds);
}
// The same for work that ranks do together, in the middle one of eight parts: all make as many calls, and
// time passes for all.
static par_result auto_time_together(auto_bench *b, auto_work work, double window, double *seconds) {
    par_comm *world = b->t->world;
    double calls, parts[8];
    GPT_TRY(work(b));
    GPT_TRY(par_barrier(world));
    double begin = par_seconds(world);
    GPT_TRY(work(b));
    GPT_TRY(auto_sync(b));
    calls = MAX(MIN(window / 8 / MAX(par_seconds(world) - begin, 1e-9), 1000), 1);
    GPT_TRY(par_all_reduce(&calls, &calls, 1, PAR_F64, PAR_MIN, world));
    for (int part = 0; part < 8; part++) {
        begin = par_seconds(world);
        for (int i = 0; i < (int)calls; i++) GPT_TRY(work(b));
        GPT_TRY(auto_sync(b));
        parts[part] = (par_seconds(world) - begin) / (int)calls;
    }
    *seconds = median(parts, 8);
    return auto_mean(b, 1, seconds);
}
// Ranks of this node for each of its processors that they may use, at least 1.
static par_result auto_crowd(auto_bench *b, double *crowd) {
    uint8_t may[CPU_SETSIZE];
    cpu_set_t set;
    int count = 0;
    memset(may, 0, sizeof may);
    if (!sched_getaffinity(0, sizeof set, &set))
        for (int i = 0; i < CPU_SETSIZE; i++) may[i] = CPU_ISSET(i, &set) != 0;
    GPT_TRY(par_all_reduce(may, may, CPU_SETSIZE, PAR_U8, PAR_MAX, b->node));
    for (int i = 0; i < CPU_SETSIZE; i++) count += may[i];
    *crowd = b->t->device == par_cpu() && count ? MAX((double)par_size(b->node) / count, 1) : 1;
    return PAR_OK;
}

static par_result auto_multiply(auto_bench *b) {
    return par_tp_linear_forward(b->tp, &b->linear, &b->x, NULL, &b->y);
}
// Times a product of the model's element type: what a linear layer does forward.
static par_result auto_product(auto_bench *b, size_t rows, size_t columns, size_t inner,
                               par_plan_product *product) {
    par_device *d = b->t->device;
    const size_t e = par_tp_element_bytes(b->tp);
    memset(&b->linear, 0, sizeof b->linear);
    b->linear.in = inner;
    b->linear.out = columns;
    b->linear.recipe = b->t->o.model.recipe;
    GPT_TRY(par_tp_linear_open(b->tp, &b->linear));
    GPT_TRY(d->alloc(d, rows * inner * e, &b->x.data));
    GPT_TRY(d->alloc(d, rows * columns * e, &b->y.data));
    GPT_TRY(d->alloc(d, columns * inner * e, &b->linear.weight.data));
    GPT_TRY(par_tp_init(b->tp, &b->linear.weight, 1, 0.02f));
    b->x.rows = rows;
    b->x.cols = inner;
    b->x.layout = PAR_TP_REPLICATED;
    product->rows = (double)rows;
    product->columns = (double)columns;
    product->inner = (double)inner;
    GPT_TRY(auto_time(b, auto_multiply, 0.05, &product->seconds));
    GPT_TRY(d->free(d, b->x.data));
    GPT_TRY(d->free(d, b->y.data));
    return d->free(d, b->linear.weight.data);
}
// The first product of an MLP, thinner ones, and one that is all start and end.
static par_result auto_products(auto_bench *b, par_plan_product products[5]) {
    const settings *o = &b->t->o;
    const size_t C = (size_t)o->model.n_embd, F = gpt_hidden(&o->model);
    const double most = (b->t->device == par_cpu() ? 1e9 : 4e11) / (2 * (double)C * (double)F);
    const size_t all = (size_t)o->batch_size * (size_t)o->model.block_size,
                 rows = MAX(MIN(all, MAX((size_t)most, (size_t)64)), (size_t)8);
    GPT_TRY(auto_product(b, rows, F, C, &products[0]));
    GPT_TRY(auto_product(b, rows / 8, F, C, &products[1]));
    const size_t f = MAX(F / 128 * 16, (size_t)16), c = MAX(C / 128 * 16, (size_t)16); // as recipes want them
    GPT_TRY(auto_product(b, rows, f, C, &products[2]));
    GPT_TRY(auto_product(b, rows, F, c, &products[3]));
    return auto_product(b, 4, 16, 16, &products[4]);
}

// Forward and backward of a stage, with the loss where it has a head, as a training step has them.
static par_result auto_stage(auto_bench *b) {
    const gpt_dropout drop = {(float)b->t->o.dropout, 1};
    const size_t rows = par_tp_rows(b->tp, &b->tokens);
    const int32_t *x = (const int32_t *)b->ids, *y = x + rows;
    double *sum = (double *)b->loss;
    gpt_buffers *u = &b->buffers;
    GPT_TRY(gpt_stage_forward(&b->model, &b->stage, u, &b->tokens, x, &drop));
    if (b->stage.head)
        GPT_TRY(par_tp_loss_forward_backward(b->tp, &b->model.loss, &u->logits, y, u->lse, NULL, sum,
                                             (size_t *)(void *)(sum + 1), 1e-3f, &u->logits));
    return gpt_stage_backward(&b->model, &b->stage, u, &b->tokens, x, &drop);
}
static par_result auto_open_model(auto_bench *b, par_tp *tp, int layers) {
    par_device *d = b->t->device;
    gpt_config g = b->t->o.model;
    const size_t rows = b->tokens.batch * b->tokens.sequence;
    g.n_layer = layers;
    GPT_TRY(gpt_open(&b->model, &g, tp, 0));
    const size_t message = gpt_tokens_bytes(&b->model, rows);
    GPT_TRY(d->alloc(d, b->model.count * par_tp_element_bytes(b->tp), &b->weights));
    GPT_TRY(d->alloc(d, b->model.count * sizeof(float), &b->gradients));
    GPT_TRY(d->alloc(d, 2 * rows * sizeof(int32_t), &b->ids));
    GPT_TRY(d->alloc(d, 64, &b->loss));
    GPT_TRY(d->alloc(d, message, &b->in));
    GPT_TRY(d->alloc(d, message, &b->out));
    gpt_set_memory(&b->model, b->weights, (float *)b->gradients);
    GPT_TRY(gpt_init_weights(&b->model));
    if (!gpt_buffers_open(&b->model, &b->buffers, rows))
        return par_fail(b->t->world, PAR_ERR_MEMORY, "out of memory to measure a layer");
    b->buffers.in = b->in;
    b->buffers.out = b->out;
    return PAR_OK;
}
static par_result auto_close_model(auto_bench *b) {
    par_device *d = b->t->device;
    void *const memory[] = {b->weights, b->gradients, b->ids, b->loss, b->in, b->out};
    gpt_buffers_close(&b->model, &b->buffers);
    gpt_close(&b->model);
    for (int i = 0; i < 6; i++)
        if (memory[i]) GPT_TRY(d->free(d, memory[i]));
    return PAR_OK;
}
// Sets the stage, and lays out its matrices in the memory of the whole model.
static par_result auto_set_stage(auto_bench *b, int layers, int ends) {
    const gpt_stage stage = {0, layers, ends, ends, gpt_is_tied(&b->model.config)};
    b->stage = stage;
    return gpt_buffers_layout(&b->model, &b->stage, &b->buffers, b->tokens.batch * b->tokens.sequence);
}
// Times layers with as many tokens in sequences of a quarter and an eighth: what attention takes by its
// blocks.
static par_result auto_shorter(auto_bench *b, par_plan_measured *m, int layers) {
    const size_t batch = b->tokens.batch, sequence = b->tokens.sequence;
    for (size_t i = 0; i < 2; i++) {
        const size_t parts = i ? 8 : 4;
        if (b->t->device != par_cpu() || sequence % parts) break;
        b->tokens.sequence = sequence / parts;
        b->tokens.batch = batch * parts;
        m->shorter[i].sequence = (double)b->tokens.sequence;
        GPT_TRY(auto_time(b, auto_stage, 0.15, &m->shorter[i].layer_seconds));
        m->shorter[i].layer_seconds /= layers;
    }
    b->tokens.sequence = sequence;
    b->tokens.batch = batch;
    return PAR_OK;
}
// Times some layers on each rank alone; and embedding, head and loss.
static par_result auto_layers(auto_bench *b, par_plan_measured *m) {
    const settings *o = &b->t->o;
    const par_plan_product *p = &m->products[0];
    const double C = o->model.n_embd, T = o->model.block_size,
                 rate = p->rows * p->columns * p->inner / p->seconds;
    const double flops = 3 * T * C * (4 * C + 3 * (double)gpt_hidden(&o->model) + T); // of a sequence
    int n = o->batch_size, layers = MIN(o->model.n_layer, 4);
    while (n > 1 && n * flops > 0.1 * rate) n = (n + 1) / 2;
    while (layers > 1 && layers * n * flops > 0.1 * rate) layers--;
    b->tokens.batch = (size_t)n;
    b->tokens.sequence = (size_t)o->model.block_size;
    m->microbatch = n;
    GPT_TRY(auto_open_model(b, b->tp, layers));
    GPT_TRY(auto_set_stage(b, layers, 0));
    GPT_TRY(auto_time(b, auto_stage, 0.3, &m->layer_seconds));
    m->layer_seconds /= layers;
    GPT_TRY(auto_shorter(b, m, layers));
    GPT_TRY(auto_set_stage(b, 0, 1));
    GPT_TRY(auto_time(b, auto_stage, 0.1, &m->ends_seconds));
    return auto_close_model(b);
}
// Times layers that the ranks of a node share, tensor parallel: what they take beyond their products is
// messages, and the waiting for each other that comes with them.
static par_result auto_shared_layers(auto_bench *b, par_plan_measured *m) {
    const gpt_config *g = &b->t->o.model;
    const int ranks = par_size(b->node), layers = MIN(g->n_layer, 4);
    const int kv = g->n_kv_head ? g->n_kv_head : g->n_head, multiple = g->recipe ? 16 * ranks : ranks;
    par_tp_desc d;
    par_tp *tp;
    if (ranks < 2 || g->n_head % ranks || gpt_hidden(g) % (size_t)multiple || kv % ranks ||
        g->n_embd % multiple || g->n_embd / g->n_head * kv % multiple)
        return PAR_OK;
    memset(&d, 0, sizeof d);
    d.tp = b->node;
    par_dtype_parse(b->t->o.dtype, &d.dtype);
    d.seed = 1;
    d.kernels = b->t->tp_kernels;
    GPT_TRY(par_tp_open(&d, &tp));
    GPT_TRY(auto_open_model(b, tp, layers));
    GPT_TRY(auto_set_stage(b, layers, 0));
    GPT_TRY(auto_time_together(b, auto_stage, 0.3, &m->shared_layer_seconds));
    m->shared_layer_seconds /= layers;
    GPT_TRY(auto_close_model(b));
    return par_tp_close(tp);
}

static par_result auto_step(auto_bench *b) {
    GPT_TRY(par_zero_backward_begin(b->zero, 0));
    GPT_TRY(par_zero_backward_end(b->zero, 0));
    return par_zero_step(b->zero, 1, NULL);
}
static par_result auto_update(auto_bench *b, par_plan_measured *m) { // of a layer's parameters
    const settings *o = &b->t->o;
    const size_t C = (size_t)o->model.n_embd, rows = 4 * C + 3 * gpt_hidden(&o->model);
    par_zero_desc d;
    par_zero_tensor x;
    memset(&d, 0, sizeof d);
    memset(&x, 0, sizeof x);
    describe_optimizer(b->t, &d);
    d.comm = b->self;
    d.model_parallel_comm = NULL;
    d.stage = d.parameter_server = d.canonical_shards = d.accumulate_unsharded = 0;
    d.microbatches = 1;
    d.offload_states = d.offload_parameters = NULL;
    x.name = "w";
    x.dims = 2;
    x.shape[0] = MIN(rows, (size_t)4000000 / C + 1);
    x.shape[1] = C;
    GPT_TRY(par_zero_open(&d, &b->zero));
    if (par_zero_add_unit(b->zero, "layer") || par_zero_add_tensor(b->zero, &x)) return PAR_ERR_ARGUMENT;
    GPT_TRY(par_zero_commit(b->zero));
    GPT_TRY(auto_time(b, auto_step, 0.05, &m->update_seconds));
    m->update_seconds /= (double)x.shape[0] * (double)C;
    par_zero *zero = b->zero;
    b->zero = NULL;
    return par_zero_close(zero);
}

static par_result auto_sum(auto_bench *b) {
    return par_all_reduce(b->send, b->recv, b->count, PAR_F32, PAR_SUM, b->comm);
}
// Sums of activations as tensor parallel layers have them, over a node's ranks, then over all.
static par_result auto_messages(auto_bench *b, par_plan_measured *m) {
    const settings *o = &b->t->o;
    par_device *d = b->t->device;
    par_comm *comms[2] = {b->node, par_node_count(b->t->world) > 1 ? b->t->world : NULL};
    const double want = m->microbatch * o->model.block_size * o->model.n_embd * sizeof(float);
    const size_t bytes = (size_t)MIN(MAX(want, 1 << 16), 1 << 26) / 64 * 64;
    for (int i = 0; i < 2; i++) {
        if (!comms[i] || par_size(comms[i]) < 2) continue;
        b->comm = comms[i];
        GPT_TRY(d->alloc_symmetric ? d->alloc_symmetric(d, b->comm, bytes, &b->send)
                                   : d->alloc(d, bytes, &b->send));
        GPT_TRY(d->alloc(d, bytes, &b->recv));
        par_plan_message *s = i ? &m->net : &m->node;
        s->ranks = par_size(b->comm);
        s->bytes = (double)bytes;
        b->count = bytes / sizeof(float);
        GPT_TRY(auto_time_together(b, auto_sum, 0.05, &s->seconds));
        b->count = 16;
        GPT_TRY(auto_time_together(b, auto_sum, 0.02, &s->small_seconds));
        GPT_TRY(d->free(d, b->recv));
        GPT_TRY(d->alloc_symmetric ? d->free_symmetric(d, b->comm, b->send) : d->free(d, b->send));
    }
    return PAR_OK;
}
// How much longer the measured work takes than its seconds of a processor say: other programs, and a
// hypervisor's other guests, have the processors, too, as they will when it trains.
static par_result auto_share(auto_bench *b, par_plan_measured *m) {
    double sums[2] = {b->busy, b->passed};
    GPT_TRY(par_all_reduce(sums, sums, 2, PAR_F64, PAR_SUM, b->t->world));
    const double slower = MAX(sums[1] / MAX(sums[0] * m->crowd, 1e-9), 1);
    for (int i = 0; i < 5; i++) m->products[i].seconds *= slower;
    for (int i = 0; i < 2; i++) m->shorter[i].layer_seconds *= slower;
    m->layer_seconds *= slower;
    m->ends_seconds *= slower;
    m->update_seconds *= slower;
    return PAR_OK;
}
static par_result auto_measure(trainer *t, par_plan_measured *m) {
    auto_bench b;
    par_tp_desc d;
    memset(&b, 0, sizeof b);
    memset(&d, 0, sizeof d);
    memset(m, 0, sizeof *m);
    b.t = t;
    t->o.model.recipe = (par_tp_recipe)chosen_word(&t->o, "--fp8"); // it is in all that is measured
    GPT_TRY(par_split(t->world, par_rank(t->world), 0, &b.self));
    GPT_TRY(par_split(t->world, par_node_of(t->world, par_rank(t->world)), par_rank(t->world), &b.node));
    d.tp = b.self;
    par_dtype_parse(t->o.dtype, &d.dtype);
    d.seed = 1;
    d.kernels = t->tp_kernels;
    GPT_TRY(par_tp_open(&d, &b.tp));
    GPT_TRY(auto_crowd(&b, &m->crowd));
    GPT_TRY(auto_products(&b, m->products));
    GPT_TRY(auto_layers(&b, m));
    GPT_TRY(auto_shared_layers(&b, m));
    GPT_TRY(auto_update(&b, m));
    GPT_TRY(auto_messages(&b, m));
    GPT_TRY(auto_share(&b, m));
    GPT_TRY(par_tp_close(b.tp));
    GPT_TRY(par_close(b.node));
    return par_close(b.self);
}

// ---- planning ---------------------------------------------------------------------------------------------

// What the planner knows of a device before it is measured.
static void auto_machine(const trainer *t, par_plan_machine *x) {
    const int ranks = par_size(t->world), nodes = par_node_count(t->world);
    char name[64];
    memset(x, 0, sizeof *x);
    snprintf(x->name, sizeof x->name, "this machine");
    x->overlap_cost = 1; // a processor copies its messages itself
    x->memory_bytes = (double)plan_machine_memory(name, sizeof name) / ((double)ranks / nodes);
    if (!(x->memory_bytes > 0)) x->memory_bytes = 1e18; // nobody knows
#if defined(GPT_CUDA)
    struct cudaDeviceProp p;
    size_t unused, all;
    int device;
    if (t->cuda && cudaGetDevice(&device) == cudaSuccess && cudaMemGetInfo(&unused, &all) == cudaSuccess &&
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
        x->units = p.multiProcessorCount;
        x->memory_bytes = (double)all;
        if (!strcmp(t->o.dtype, "f32")) x->peak = 0;
    }
#endif
    x->nodes = nodes;
    x->gpus_per_node = MAX(ranks / nodes, 1);
}
static void auto_problem(const trainer *t, par_plan_problem *p) {
    const settings *o = &t->o;
    const gpt_config *g = &o->model;
    par_plan_model *m = &p->model;
    par_zero_optimizer optimizer;
    par_dtype state, type;
    memset(p, 0, sizeof *p);
    snprintf(m->name, sizeof m->name, "%s", g->llama ? "llama" : "gpt2");
    m->layers = g->n_layer;
    m->features = g->n_embd;
    m->heads = g->n_head;
    m->kv_heads = g->n_kv_head ? g->n_kv_head : g->n_head;
    m->head_dim = g->n_embd / g->n_head;
    m->hidden = (int)gpt_hidden(g);
    m->vocab = g->vocab_size;
    m->positions = g->llama ? 0 : (int)gpt_positions(g);
    m->gated = g->llama;
    m->tied = gpt_is_tied(g);
    m->has_bias = g->bias;
    auto_machine(t, &p->machine);
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
    p->job.whole_shards = 1; // as this trainer does
}
// What the command line has decided is not the planner's to choose. NULL, or an error text.
static const char *auto_fixed(trainer *t, par_plan_config *c, unsigned *mask) {
    settings *o = &t->o;
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
        if (!options_given(o->argc, o->argv, all[i].option)) continue;
        n += (size_t)(all[i].word ? snprintf(text + n, sizeof text - n, all[i].format, all[i].word)
                                  : snprintf(text + n, sizeof text - n, all[i].format, all[i].number));
    }
    return par_plan_parse(text, c, mask, o->why, sizeof o->why) ? o->why : NULL;
}
// In MB, the activations that schedule auto may keep: as many as memory has room for.
static int auto_activation_mb(const par_plan_problem *p, const par_plan_choice *x) {
    const double mb = floor(par_plan_activation_room(p, &x->prediction) / 1e6);
    return x->config.schedule == PAR_PLAN_AUTO ? (int)MIN(MAX(mb, 1), 1e9) : 0;
}
// The options by which this trainer takes a layout.
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
        printf("  %s\n", sentence);
}
static void auto_print_measured(const par_plan_problem *p, const par_plan_measured *m, double seconds,
                                int json) {
    const par_plan_machine *x = &p->machine;
    const par_plan_product *base = &m->products[0];
    const double flops = 2 * base->rows * base->columns * base->inner / base->seconds;
    if (json)
        json_print("auto:%b seconds:%.4g product_gflops:%.5g microbatch:%.0f layer_seconds:%.5g "
                   "ends_seconds:%.5g update_ns:%.4g crowd:%.4g shared_layer_seconds:%.5g bandwidth:%.5g "
                   "latency:%.4g",
                   1, seconds, flops / 1e9, m->microbatch, m->layer_seconds, m->ends_seconds,
                   1e9 * m->update_seconds, m->crowd, m->shared_layer_seconds, x->node_bandwidth,
                   x->node_latency);
    else
        printf("auto: measured in %.1f s: products %.4g GFLOP/s a rank; %.0f sequences take %.3g ms in a "
               "layer and %.3g ms in embedding, head and loss; an update %.3g ns a parameter; messages "
               "%.3g GB/s and %.3g us; %.3g ranks for each processor\n",
               seconds, flops / 1e9, m->microbatch, 1e3 * m->layer_seconds, 1e3 * m->ends_seconds,
               1e9 * m->update_seconds, x->node_bandwidth / 1e9, 1e6 * x->node_latency, m->crowd);
}
static void auto_print(const par_plan_problem *p, const par_plan_choice *choices, int count, int json) {
    char layout[256], options[512];
    for (int i = 0; i < count && (json || i < 10); i++) {
        const par_plan_prediction *x = &choices[i].prediction;
        par_plan_format(&choices[i].config, 1, layout, sizeof layout);
        auto_options(p, &choices[i], options, sizeof options);
        if (json)
            json_print("auto:%b place:%d layout:%s options:%s predicted_seconds:%.6g bubble_seconds:%.5g "
                       "bytes:%.6g",
                       1, i + 1, layout, options, x->seconds, x->times.bubble, x->bytes);
        else
            printf("%9.4g s %8.2f GB  %s\n", x->seconds, x->bytes / 1e9, layout[0] ? layout : "one rank");
    }
    if (!json) printf("why:\n");
    par_plan_explain(p, &choices[0], auto_say, &json);
    auto_options(p, &choices[0], options, sizeof options);
    if (!json) printf("auto: trains with %s\n", options);
    fflush(stdout);
}
// Plans on rank 0. NULL, or an error text.
static const char *auto_plan(trainer *t, const par_plan_measured *m, double seconds, par_plan_config *best) {
    par_plan_problem p;
    par_plan_config fixed;
    par_plan_report report;
    unsigned mask;
    auto_problem(t, &p);
    memset(&fixed, 0, sizeof fixed);
    const char *why = auto_fixed(t, &fixed, &mask);
    if (why) return why;
    par_plan_choice *choices = (par_plan_choice *)calloc(AUTO_TOP, sizeof *choices);
    if (!choices) return "out of memory to plan";
    par_plan_fit(&p, m);
    p.machine.fp8_rate = p.machine.fp4_rate = p.machine.product_rate; // measured with the recipe
    p.machine.recipes = 1 << fixed.fp8;
    const unsigned layouts =
        1u << PAR_PLAN_AXIS_tp | 1u << PAR_PLAN_AXIS_pp | 1u << PAR_PLAN_AXIS_cp | 1u << PAR_PLAN_AXIS_dp;
    if (par_plan_search(&p, &fixed, mask, layouts, choices, AUTO_TOP, &report)) {
        snprintf(t->o.why, sizeof t->o.why, "auto: %.240s", report.why);
        why = t->o.why;
    } else if (par_plan_simulate(&p, choices, report.count, AUTO_ACTIONS)) {
        why = "out of memory to plan";
    } else {
        auto_print_measured(&p, m, seconds, t->o.json);
        auto_print(&p, choices, report.count, t->o.json);
        *best = choices[0].config;
    }
    free(choices);
    return why;
}
static void auto_take(settings *o, const par_plan_config *c) {
    const int batch = o->batch_size * o->accumulation_steps;
    o->pp = c->pp;
    o->tp = c->tp;
    o->cp = c->cp;
    o->sp = c->sp;
    o->zero = c->zero;
    o->chunks = c->chunks > 1 ? c->chunks : 0;
    o->schedule = par_plan_schedule_names[c->schedule];
    o->recompute = par_plan_recompute_names[c->recompute];
    o->cp_mode = c->ulysses ? "ulysses" : "ring";
    o->batch_size = c->microbatch;
    o->accumulation_steps = batch / c->microbatch;
}
// Chooses the layout for --auto. Collective over the world.
static par_result auto_layout(trainer *t) {
    par_plan_measured m;
    par_plan_config best;
    if (!t->o.auto_layout || t->o.generate) return PAR_OK;
    memset(&best, 0, sizeof best);
    const double begin = par_seconds(t->world);
    GPT_TRY(auto_measure(t, &m));
    const char *why = par_rank(t->world) ? NULL : auto_plan(t, &m, par_seconds(t->world) - begin, &best);
    GPT_TRY(par_broadcast(&best, &best, sizeof best, PAR_U8, 0, t->world));
    if (!best.tp) // rank 0 says why
        return why ? par_fail(t->world, PAR_ERR_ARGUMENT, "%s", why) : PAR_OK;
    auto_take(&t->o, &best);
    t->o.auto_layout = 0; // from here on these are the layout's options
    why = check_settings(&t->o);
    if (!why) why = check_global_batch(t, par_size(t->world));
    return why ? par_fail(t->world, PAR_ERR_ARGUMENT, "%s", why) : PAR_OK;
}

#endif

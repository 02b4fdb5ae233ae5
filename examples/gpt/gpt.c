// gpt.c - trains a GPT-2 or a Llama on any number of ranks. The trained model does not depend on the number.
//
//     build/gpt --ranks 4 --tp 2 --data FILE       four processes on this machine, tensor parallel over two
//     mpiexec -n 2 build/gpt_mpi --data FILE       under MPI
//
// Ranks form a grid pp x dp x cp x tp. tp splits each layer, cp splits sequences, dp splits batches, and pp
// splits the layers into pipeline stages. --zero says whether parameters, gradients and optimizer states are
// replicated or sharded over dp x cp. A step trains on batch_size x gradient_accumulation_steps sequences,
// which are chosen by their global number. Each rank of dp x cp trains on its share of them in microbatches,
// in the order of a par_pipe.h schedule. The gradients of a layer are summed while the layer before it
// computes.
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE // fmemopen
#endif
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_pipe.h"
#include "par_tp.h"
#include "par_zero.h"
#if defined(GPT_CUDA)
#include "par_cuda.cuh"
#define GPT_DEVICE "cuda"
#else
#define GPT_DEVICE "cpu"
#endif

#include <signal.h>
#include "../options.h"
#include "../median.h"
#include "model.h"
#include "tokenizer.h"
#include "data.h"
#include "files.h"
#include "settings.h"
#include "grid.h"
#include "check.h"
#include "products.h"
#include "pace.h"

typedef struct batches { // the sequences of a step that are this rank's
    dataset data;
    int microbatch, microbatches; // sequences in a microbatch; microbatches of a rank in a step
    // The batch in work: is it held-out data, which step keys its choice, and its first sequence
    int held_out;
    uint64_t step, first_sequence;
    int reads_tokens;  // this rank has the first stage or the last, or attends within documents
    int32_t *sequence; // one sequence and its targets
    size_t *offsets;   // of the documents of a microbatch
    int32_t *x;        // on the device: tokens and targets of all microbatches, then document_token's maps
} batches;

typedef struct model_part { // the part of the model that is this rank's
    par_tp *tp;
    gpt_model model;
    gpt_buffers buffers;
    gpt_dropout drop;
    par_pipe_schedule schedule;
    par_pipe *pipe;
    gpt_stage *stages; // one for each stage of the pipeline
    char *scratch;
    size_t scratch_bytes, planned_bytes; // planned_bytes: of activations, with --plan
    par_zero *zero;                      // parameters, gradients, optimizer states
    int *index; // for each tensor of the model its number in zero; -1: on another rank
    // For each unit of the model its numbers in zero; -1: none, or on another rank. Where the head adds to
    // gradients of its own of the embedding's weight, this weight is alone in a unit, and so is its use.
    int (*unit)[2];
} model_part;

// A step that the host has enqueued. It is written to again when the device has passed `done`.
typedef struct flight {
    int32_t *tokens; // pinned: tokens and targets of all microbatches on this rank
    double *loss;    // pinned, with the control and the dropout's offset
    uint64_t *dropout_offset;
    par_zero_control *control;
    void *done;
    int step;
    double lr;
} flight;
enum { FLIGHTS = 2 }; // the host enqueues a step while a GPU computes the one before
typedef struct progress {
    int step, first_step, zero_step; // zero_step: to which par_zero.h's count of steps is added
    flight flights[FLIGHTS];
    int enqueued, finished;             // steps so far
    int ended, given_up;                // all is done, and said; all ranks end with an error
    double loss, grad_norm, first_loss; // of the last one that is finished; of the first
    double begun, step_begun, val_loss;
    double own; // time of this rank's actions, but for parameters and gradients: see pace.h
    pace_table paces;
    double *losses;           // of microbatches, as par_pipe_work has them
    double *device_loss;      // on the device: the loss of the step, and
    uint64_t *dropout_offset; // of its random streams
    size_t *target_count;
#if defined(GPT_CUDA)
    cudaGraphExec_t graph; // a step; NULL: not captured
#endif
} progress;

typedef struct texts { // that are read and printed
    tokenizer vocabulary;
    int32_t *prompt; // tokens that a sample begins with
    size_t prompt_count;
} texts;

typedef struct trainer {
    settings o;
    gpt_grid grid;
    gpt_grid former[32]; // whose comms are closed when par_zero_recover needs them no longer
    int former_count;
    int joins; // 1: a new rank, to a training that is under way
    int width; // ranks at the start
    batches batch;
    model_part part;
    progress run;
    texts text;
    files_note note; // text in a checkpoint: step and model
} trainer;

static size_t rows_of(const trainer *t) { // rows of a microbatch on this rank
    return (size_t)t->batch.microbatch * (size_t)t->o.model.block_size / (size_t)t->o.cp;
}

#include "stages.h"
#include "checkpoint.h"
#include "memory.h"
#include "plan.h"
#include "generate.h"
#include "report.h"

static int place_of(const trainer *t) { // which part of the model this rank has; a pair of dualpipe has one
    const int pp = par_mesh_index(t->grid.mesh, "pp"), pair = MIN(pp, t->o.pp - 1 - pp);
    return (t->grid.directions == 2 ? pair : pp) * t->o.tp + par_mesh_index(t->grid.mesh, "tp");
}

// ---- one step ---------------------------------------------------------------------------------------------

static float lr_factor(const settings *o, int step) {
    const uint64_t warmup = (uint64_t)o->warmup_iters, steps = (uint64_t)o->lr_decay_iters;
    const par_zero_lr_schedule s = {
        warmup, steps, 0, o->learning_rate > 0 ? (float)(o->min_lr / o->learning_rate) : 0, PAR_ZERO_COSINE};
    return o->decay_lr ? par_zero_lr_factor(&s, (uint64_t)step) : 1;
}

// The model calls this before and after it uses a unit: it gathers parameters and reduces gradients. With a
// split backward the second half ends the microbatch.
static par_result on_unit_phase(void *user, int unit, gpt_phase what) {
    trainer *t = (trainer *)user;
    t->run.own += par_seconds(t->grid.world);
    for (int i = 0; i < 2; i++) {
        const int z = t->part.unit[unit][i];
        if (z < 0) continue;
        switch (what) {
        case GPT_FORWARD_END:
        case GPT_INPUT_END: GPT_TRY(par_zero_forward_end(t->part.zero, z)); break;
        case GPT_BACKWARD_END:
        case GPT_WEIGHT_END: GPT_TRY(par_zero_backward_end(t->part.zero, z)); break;
        case GPT_FORWARD_BEGIN:
        case GPT_INPUT_BEGIN: GPT_TRY(par_zero_forward_begin(t->part.zero, z)); break;
        default: GPT_TRY(par_zero_backward_begin(t->part.zero, z));
        }
    }
    t->run.own -= par_seconds(t->grid.world);
    return PAR_OK;
}

// The number in the step of the first sequence of this rank's microbatch i. Ranks of dp are numbered as in
// par_zero_global_microbatch; ranks of cp share sequences.
static uint64_t first_sequence(const trainer *t, int i) {
    const int dp = par_mesh_index(t->grid.mesh, "dp"), ranks = par_mesh_size(t->grid.mesh, "dp");
    const int in_turn = t->o.zero >= 2 && !accumulates_locally(t);
    return (uint64_t)(t->batch.microbatch * (in_turn ? i * ranks + dp : dp * t->batch.microbatches + i));
}
// Where the map of documents of a microbatch lies behind the tokens of all, in numbers of 4 bytes; the first
// one of no microbatch is their end.
static size_t documents_at(const trainer *t, int microbatch) {
    const size_t tokens = (size_t)t->batch.microbatch * (size_t)t->o.model.block_size;
    const size_t maps = t->o.document_token < 0 ? 0 : 2 * tokens * (size_t)microbatch;
    return 2 * tokens / (size_t)t->o.cp * (size_t)t->batch.microbatches + maps;
}
static par_tp_tokens tokens_of(const trainer *t, int microbatch) {
    par_tp_tokens k;
    k.batch = (size_t)t->batch.microbatch;
    k.sequence = (size_t)t->o.model.block_size;
    k.first_sequence = t->batch.first_sequence + first_sequence(t, microbatch);
    k.position = 0;
    k.documents = NULL;
    if (t->o.document_token >= 0)
        k.documents = (const uint32_t *)(const void *)(t->batch.x + documents_at(t, microbatch));
    return k;
}
// Reads the tokens (for the first stage) and targets (for the last) of all microbatches, and with
// document_token where their documents begin, and enqueues their copy to the device.
static par_result load_batch(trainer *t, int32_t *memory) {
    const int T = t->o.model.block_size, per = T / t->o.cp;
    const size_t rows = rows_of(t), bytes = documents_at(t, t->batch.microbatches) * sizeof *memory;
    size_t documents = 0;
    if (!t->batch.reads_tokens) return PAR_OK;
    for (int n = 0; n < t->batch.microbatches * t->batch.microbatch; n++) {
        const int m = n / t->batch.microbatch, i = n % t->batch.microbatch;
        int32_t *x = memory + (size_t)m * 2 * rows + i * per, *y = x + rows;
        const char *why = data_sequence(&t->batch.data, t->batch.held_out, (uint64_t)t->o.seed, t->batch.step,
                                        tokens_of(t, m).first_sequence + (uint64_t)i, T, t->batch.sequence,
                                        t->batch.sequence + T);
        if (why) return par_fail(t->grid.world, PAR_ERR_FILE, "%s", why);
        for (int j = 0; j < per; j++) {
            const size_t at = par_tp_position(t->part.tp, (size_t)T, (size_t)j);
            x[j] = t->batch.sequence[at];
            y[j] = t->batch.sequence[(size_t)T + at];
        }
        if (t->o.document_token < 0) continue;
        if (!i) documents = 0;
        documents += data_documents(t->batch.sequence, T, t->o.document_token, (size_t)i * (size_t)T,
                                    t->batch.offsets + documents);
        t->batch.offsets[documents] = (size_t)(i + 1) * (size_t)T;
        if (i + 1 < t->batch.microbatch) continue;
        const par_tp_tokens tokens = tokens_of(t, m);
        GPT_TRY(par_tp_documents_map(t->part.tp, &tokens, t->batch.offsets, documents,
                                     (uint32_t *)(void *)(memory + documents_at(t, m))));
    }
    return t->grid.device->copy(t->grid.device, t->batch.x, memory, bytes, NULL);
}
// Runs one action of the pipeline schedule on one microbatch.
static par_result run_action(void *user, const par_pipe_work *w) {
    trainer *t = (trainer *)user;
    const double all = (double)t->o.batch_size * t->o.accumulation_steps * t->o.model.block_size;
    const gpt_stage *stage = &t->part.stages[w->stage];
    const gpt_dropout *drop = w->forward_only ? NULL : &t->part.drop;
    gpt_model *m = &t->part.model;
    gpt_buffers *b = &t->part.buffers;
    const size_t rows = rows_of(t);
    const int32_t *x = t->batch.x + (size_t)w->microbatch * 2 * rows, *y = x + rows;
    if (w->kind > PAR_PIPE_W) return PAR_OK;
    const par_tp_tokens tokens = tokens_of(t, w->microbatch);
    void *const memory[GPT_LIFETIMES] = {w->b, w->w, w->g, t->part.scratch};
    for (int i = 0; i < GPT_LIFETIMES; i++) {
        b->arena[i].data = memory[i];
        b->arena[i].bytes = SIZE_MAX;
    }
    b->in = w->x;
    if (w->loss) t->run.losses = w->loss - w->microbatch;
    const gpt_targets targets = {y, t->run.losses ? t->run.losses + w->microbatch : NULL, t->run.target_count,
                                 (float)(1 / all), w->forward_only};
    b->targets = targets;
    m->split_backward = w->kind == PAR_PIPE_B || w->kind == PAR_PIPE_W;
    GPT_TRY(gpt_buffers_layout(m, stage, b, par_tp_rows(t->part.tp, &tokens)));
    if (w->kind == PAR_PIPE_F) {
        b->out = w->y;
        par_trace_begin(t->grid.world, "forward");
        GPT_TRY(gpt_stage_forward(m, stage, b, &tokens, x, drop));
        if (!w->is_last || m->head_in_chunks) return par_trace_end(t->grid.world), PAR_OK;
        if (w->forward_only)
            GPT_TRY(par_tp_loss_forward(t->part.tp, &m->loss, &b->logits, y, b->lse, NULL, w->loss,
                                        t->run.target_count));
        if (!w->forward_only) // the logits become their gradients
            GPT_TRY(par_tp_loss_forward_backward(t->part.tp, &m->loss, &b->logits, y, b->lse, NULL, w->loss,
                                                 t->run.target_count, targets.scale, &b->logits));
        return par_trace_end(t->grid.world), PAR_OK;
    }
    par_trace_begin(t->grid.world, w->kind == PAR_PIPE_W ? "gradients of weights" : "backward");
    b->in = w->dy;
    b->out = w->dx;
    GPT_TRY(w->kind == PAR_PIPE_W ? gpt_stage_wgrad(m, stage, b)
                                  : gpt_stage_backward(m, stage, b, &tokens, x, drop));
    return par_trace_end(t->grid.world), PAR_OK;
}

static par_result run_timed_action(void *user, const par_pipe_work *w) {
    trainer *t = (trainer *)user;
    t->run.own -= par_seconds(t->grid.world);
    const par_result r = run_action(t, w);
    t->run.own += par_seconds(t->grid.world);
    return r;
}

// What a step computes: forward, backward and the update, of the batch in x. The host waits for nothing.
static par_result compute_step(trainer *t, float factor) {
    const par_zero_kernels *k = t->grid.zero_kernels ? t->grid.zero_kernels : par_zero_cpu();
    GPT_TRY(par_pipe_step(t->part.pipe, NULL));
    GPT_TRY(
        k->total(k, par_pipe_device_losses(t->part.pipe), (size_t)t->batch.microbatches, t->run.device_loss));
    GPT_TRY(par_all_reduce(t->run.device_loss, t->run.device_loss, 1, PAR_F64, PAR_SUM, t->grid.data));
    par_trace_begin(t->grid.world, "update");
    GPT_TRY(par_zero_step(t->part.zero, factor, NULL));
    GPT_TRY(par_tp_update_scales(t->part.tp));
    return par_trace_end(t->grid.world), PAR_OK;
}
// Captures a step as a graph, and replays it. What varies from step to step is in the device's memory: the
// batch in x, the offset of dropout's random streams, and in zero's control the learning rate, the number of
// the step and what follows from it.
static par_result replay_step(trainer *t, float factor) {
#if defined(GPT_CUDA)
    cudaStream_t stream = par_cuda_stream(t->grid.cuda);
    cudaGraph_t graph = NULL;
    par_result r = par_zero_flush(t->part.zero);
    if (!r) r = par_zero_set_lr_factor(t->part.zero, factor);
    cudaError_t e = cudaSuccess;
    if (!r && !t->run.graph) {
        e = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
        if (!e) r = compute_step(t, -1);
        if (!e && !r) r = par_zero_flush(t->part.zero);
        if (!e) e = cudaStreamEndCapture(stream, &graph);
        if (!e && !r) e = cudaGraphInstantiate(&t->run.graph, graph, 0);
        if (graph) cudaGraphDestroy(graph);
    }
    if (!e && !r) e = cudaGraphLaunch(t->run.graph, stream);
    if (!e || r) return r;
    return par_fail(t->grid.world, PAR_ERR_SYSTEM, "graph: a step cannot be captured: %s",
                    cudaGetErrorString(e));
#else
    return compute_step(t, factor); // check_settings has refused it
#endif
}
// Enqueues a step. One of FLIGHTS before it is finished, so its pinned memory may be written to.
static par_result enqueue_step(trainer *t) {
    flight *f = &t->run.flights[t->run.enqueued % FLIGHTS];
    par_device *d = t->grid.device;
    const float factor = lr_factor(&t->o, t->run.step);
    if (t->run.enqueued++ == t->run.finished) t->run.step_begun = par_seconds(t->grid.world);
    f->step = t->run.step;
    f->lr = t->o.learning_rate * (double)factor;
    t->batch.held_out = 0;
    t->batch.step = (uint64_t)t->run.step;
    t->batch.first_sequence = 0;
    t->part.drop.p = (float)t->o.dropout;
    *f->dropout_offset = gpt_dropout_offset((uint64_t)t->run.step);
    GPT_TRY(d->copy(d, t->run.dropout_offset, f->dropout_offset, sizeof *f->dropout_offset, NULL));
    GPT_TRY(load_batch(t, f->tokens));
    // The first step is not captured: it allocates scratch memory, and libraries choose their kernels, which
    // they do once more after they are measured.
    GPT_TRY(t->o.graph && t->run.enqueued > (t->o.tune ? 2 : 1) ? replay_step(t, factor)
                                                                : compute_step(t, factor));
    GPT_TRY(d->copy(d, f->loss, t->run.device_loss, sizeof *f->loss, NULL));
    GPT_TRY(d->copy(d, f->control, par_zero_control_of(t->part.zero), sizeof *f->control, NULL));
    return d->event_record(d, NULL, &f->done);
}
// Waits for the oldest step in flight, and takes its loss and norm.
static par_result finish_step(trainer *t, const flight **finished) {
    const double tokens = (double)t->o.batch_size * t->o.accumulation_steps * t->o.model.block_size;
    const flight *f = &t->run.flights[t->run.finished++ % FLIGHTS];
    GPT_TRY(t->grid.device->event_sync(t->grid.device, f->done));
    t->run.loss = *f->loss / tokens;
    t->run.grad_norm = f->control->grad_norm;
    if (f->step == t->run.first_step) t->run.first_loss = t->run.loss;
    return *finished = f, PAR_OK;
}

static par_result evaluate(trainer *t) { // val_loss: mean loss over eval_iters batches of held-out data
    const uint64_t per_batch = (uint64_t)(t->o.batch_size * t->o.accumulation_steps);
    double loss = 0;
    t->batch.held_out = 1;
    t->batch.step = 0;
    for (int e = 0; e < t->o.eval_iters; e++) {
        par_pipe_report run;
        t->batch.first_sequence = (uint64_t)e * per_batch;
        GPT_TRY(load_batch(t, t->run.flights[0].tokens)); // no step is in flight
        GPT_TRY(par_pipe_evaluate(t->part.pipe, &run));
        loss += run.loss;
    }
    GPT_TRY(par_all_reduce(&loss, &loss, 1, PAR_F64, PAR_SUM, t->grid.data));
    t->run.val_loss = loss / ((double)per_batch * t->o.model.block_size * t->o.eval_iters);
    return PAR_OK;
}

// ---- the model --------------------------------------------------------------------------------------------

static par_result open_mesh(trainer *t) {
    char axes[64];
    snprintf(axes, sizeof axes, "pp=%d dp=-1 cp=%d tp=%d", t->o.pp, t->o.cp, t->o.tp);
    GPT_TRY(par_mesh_open(t->grid.world, axes, &t->grid.mesh));
    GPT_TRY(par_mesh_comm(t->grid.mesh, "tp", &t->grid.tp));
    GPT_TRY(par_mesh_comm(t->grid.mesh, "cp", &t->grid.cp));
    GPT_TRY(par_mesh_comm(t->grid.mesh, "dp,cp", &t->grid.data));
    GPT_TRY(par_mesh_comm(t->grid.mesh, "pp", &t->grid.pp));
    GPT_TRY(par_mesh_comm(t->grid.mesh, "pp,tp", &t->grid.model));
    return PAR_OK;
}
static par_result open_layers(trainer *t) {
    par_tp_desc d;
    memset(&d, 0, sizeof d);
    d.tp = t->grid.tp;
    d.cp = t->o.cp > 1 ? t->grid.cp : NULL;
    d.sequence_parallel = t->o.sp;
    d.ulysses = chosen_word(&t->o, "--cp_mode");
    par_dtype_parse(t->o.dtype, &d.dtype);
    par_dtype_parse(t->o.tp_sums, &d.sum_dtype);
    t->o.model.recipe = (par_tp_recipe)chosen_word(&t->o, "--fp8");
    d.seed = (uint64_t)t->o.seed;
    d.kernels = t->grid.tp_kernels;
    d.canonical_leaves = canonical_leaves(&t->o);
    d.canonical_batch = (size_t)t->batch.microbatch;
    GPT_TRY(par_tp_open(&d, &t->part.tp));
    GPT_TRY(gpt_open(&t->part.model, &t->o.model, t->part.tp, t->o.sp));
    t->part.index = (int *)calloc((size_t)t->part.model.use_count, sizeof(int));
    t->part.unit = (int(*)[2])calloc((size_t)t->o.model.n_layer + 2, sizeof *t->part.unit);
    if (!t->part.index || !t->part.unit) return par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory");
    t->part.model.recompute = (par_tp_recompute)chosen_word(&t->o, "--recompute");
    return PAR_OK;
}
static par_result open_pipe(trainer *t) {
    par_pipe_exec e;
    void *scratch = NULL;
    memset(&e, 0, sizeof e);
    if (t->o.generate) return PAR_OK;
    e.comm = t->grid.pp;
    e.fn = run_timed_action;
    e.user = t;
    e.broadcast_loss = 1;
    e.device = t->grid.device;
    GPT_TRY(par_pipe_open(&t->part.schedule, &e, &t->part.pipe));
    if (t->grid.device->alloc(t->grid.device, t->part.scratch_bytes, &scratch))
        return par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory for the activations");
    t->part.scratch = (char *)scratch;
    return PAR_OK;
}

static par_result alloc_token_buffers(trainer *t) {
    const gpt_config *g = &t->o.model;
    const size_t bytes = documents_at(t, t->batch.microbatches) * sizeof(int32_t);
    par_device *d = t->grid.device;
    void *x = NULL, *loss = NULL, *target_count = NULL;
    t->batch.sequence = (int32_t *)calloc(2 * (size_t)g->block_size, sizeof(int32_t));
    t->batch.offsets =
        (size_t *)calloc((size_t)t->batch.microbatch * (size_t)g->block_size + 1, sizeof(size_t));
    int bad = !t->batch.sequence || !t->batch.offsets || d->alloc(d, bytes, &x) || d->alloc(d, 64, &loss) ||
              d->alloc(d, 64, &target_count);
    for (int i = 0; i < FLIGHTS; i++) {
        flight *f = &t->run.flights[i];
        void *tokens = NULL, *control = NULL;
        bad |= d->alloc_host(d, bytes, &tokens) || d->alloc_host(d, sizeof *f->control + 64, &control);
        f->tokens = (int32_t *)tokens;
        f->control = (par_zero_control *)control;
        f->loss = (double *)(void *)(f->control + 1);
        f->dropout_offset = (uint64_t *)(void *)(f->loss + 1);
    }
    t->batch.x = (int32_t *)x;
    t->run.device_loss = (double *)loss;
    t->run.dropout_offset = (uint64_t *)(void *)(t->run.device_loss + 1);
    t->run.target_count = (size_t *)target_count;
    if (!bad) par_tp_set_dropout_offset(t->part.tp, t->run.dropout_offset);
    return bad ? par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory for the tokens") : PAR_OK;
}
// What depends on the number of microbatches; the opposite of alloc_token_buffers, open_schedule, open_pipe.
static void close_step(trainer *t) {
    par_device *d = t->grid.device;
    par_pipe_close(t->part.pipe); // after an error it has that one
    t->part.pipe = NULL;
    if (t->part.scratch) d->free(d, t->part.scratch);
    t->part.scratch = NULL;
    void *const memory[] = {t->batch.x, t->run.device_loss, t->run.target_count};
    for (int i = 0; i < 3; i++)
        if (memory[i]) d->free(d, memory[i]);
    t->batch.x = NULL;
    t->run.device_loss = NULL;
    t->run.target_count = NULL;
    for (int i = 0; i < FLIGHTS; i++) {
        if (t->run.flights[i].tokens) d->free_host(d, t->run.flights[i].tokens);
        if (t->run.flights[i].control) d->free_host(d, t->run.flights[i].control);
        if (t->run.flights[i].done) d->event_free(d, t->run.flights[i].done);
    }
    memset(t->run.flights, 0, sizeof t->run.flights);
    par_pipe_schedule_close(&t->part.schedule);
    gpt_buffers_close(&t->part.model, &t->part.buffers);
    memset(&t->part.buffers, 0, sizeof t->part.buffers);
    free(t->batch.sequence);
    free(t->batch.offsets);
    free(t->part.stages);
    t->batch.sequence = NULL;
    t->batch.offsets = NULL;
    t->part.stages = NULL;
}
static par_result close_part(trainer *t) { // of the model; the opposite of open_layers and open_zero
    const par_result r = par_zero_close(t->part.zero), s = par_tp_close(t->part.tp);
    gpt_close(&t->part.model);
    free(t->part.index);
    free(t->part.unit);
    memset(&t->part, 0, sizeof t->part);
    t->grid.place = -1;
    return r ? r : s;
}
// Closes the comms of a grid, but for `all`.
static void close_comms(gpt_grid *g, const par_comm *all) {
    par_comm *const splits[] = {g->tied, g->model_parallel == g->model ? NULL : g->model_parallel,
                                g->zero == g->data ? NULL : g->zero};
    for (int i = 0; i < 3; i++) par_close(splits[i]);
    par_mesh_close(g->mesh);
    if (g->world != all) par_close(g->world);
    par_close(g->movers);
    g->movers = g->tied = g->model_parallel = g->zero = NULL;
    g->mesh = NULL;
}
static par_result try_all_outputs(trainer *t) { return try_outputs(&t->o, t->grid.world); }
static par_result choose_products(trainer *t) { return choose_gemm(&t->o, &t->grid, rows_of(t)); }
static par_result commit_zero(trainer *t) { return par_zero_commit(t->part.zero); }
static par_result lock_save(trainer *t) { // nobody else saves there, from before this run loads it
    const par_zero_checkpoint f = checkpoint_files(t, t->o.save);
    return t->o.save ? par_zero_lock(t->part.zero, &f) : PAR_OK;
}
static par_result load_or_init_weights(trainer *t) {
    if (t->o.plan && !plan_is_exact(t))
        return par_fail(t->grid.world, PAR_ERR_MEMORY, "what was allocated is not what was planned");
    const char *why = t->o.load ? load_weights(t) : init_weights(t);
    if (why && why != par_last_error(t->grid.world)) par_fail(t->grid.world, PAR_ERR_FILE, "%s", why);
    return why ? PAR_ERR_FILE : PAR_OK;
}
#include "elastic.h"

// Opens the model and all that trains it, in steps; if one fails on any rank all ranks stop. 0, or 1: the
// error has been printed.
static int open_model(trainer *t) {
    par_result (*const steps[])(trainer *) = {try_all_outputs, choose_products,     open_mesh,
                                              open_layers,     alloc_token_buffers, open_schedule,
                                              open_zero,       print_plan,          commit_zero,
                                              lock_save,       open_pipe,           load_or_init_weights};
    int failed =
        any_rank_failed(t->grid.all, open_device(&t->o, &t->grid) ? par_last_error(t->grid.all) : NULL);
    failed = failed || (t->o.spares && begin_spares(t));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !failed && !is_spare(t); i++)
        failed = any_rank_failed(t->grid.world, steps[i](t) ? par_last_error(t->grid.world) : NULL);
    int known[3] = {failed, t->run.step, t->part.schedule.directions}; // to spares, too
    if (t->o.spares && par_all_reduce(known, known, 3, PAR_I32, PAR_MAX, t->grid.all)) return 1;
    t->run.step = known[1];
    t->grid.directions = known[2];
    return known[0];
}

static void close_inputs(trainer *t) { // what prepare made, as far as it came
    data_close(&t->batch.data);
    tokenizer_close(&t->text.vocabulary);
    free(t->text.prompt);
    free(t->o.given);
}
static void close_model(trainer *t) { // what open_model made, likewise
#if defined(GPT_CUDA)
    if (t->run.graph) cudaGraphExecDestroy(t->run.graph); // before the comms whose calls it has
#endif
    close_paces(&t->run.paces);
    close_step(t);
    must(t->grid.all, close_part(t));
    close_comms(&t->grid, t->grid.all);
}

// ---- the training -----------------------------------------------------------------------------------------

static int print_fault(const trainer *t, par_result r) { // is it one? go_on prints what is a death
    if (r && (!t->o.elastic || !is_death(r)))
        fprintf(stderr, PROGRAM ": rank %d: %s\n", par_rank(t->grid.all), par_last_error(t->grid.all));
    return r != PAR_OK;
}
// Waits until at most so many steps are in flight, and reports those that finish. 0, or 1: the error has been
// printed.
static int finish_steps(trainer *t, int in_flight) {
    const int root = par_rank(t->grid.world) == 0;
    while (t->run.enqueued - t->run.finished > in_flight) {
        const flight *f = NULL;
        if (print_fault(t, finish_step(t, &f))) return 1;
        if (root) report(t, f);
        if (isfinite(t->run.loss)) continue;
        t->run.given_up = 1;
        return root ? print_error("the loss is no longer finite; try a lower learning_rate") : 1;
    }
    return 0;
}
static int train_step(trainer *t) { // 0, or 1: the error has been printed
    par_trace_begin(t->grid.world, "step");
    if (print_fault(t, enqueue_step(t))) return 1;
    if (t->o.tune && t->run.enqueued == 1 && print_fault(t, tune_products(&t->o, &t->grid))) return 1;
    par_trace_end(t->grid.world);
    t->run.step++;
    return finish_steps(t, t->grid.device == par_cpu() ? 0 : FLIGHTS - 1);
}
static int is_due(const trainer *t, int interval) { // what happens every so many steps
    return interval && t->run.step % interval == 0 && t->run.step > t->run.first_step;
}
static int evaluate_between(trainer *t) { // likewise, with what waits
    if (finish_steps(t, 0)) return 1;
    if (print_fault(t, evaluate(t))) return 1;
    if (par_rank(t->grid.world)) return 0;
    if (t->o.json)
        json_print("step:%d val_loss:%.9g", t->run.step, t->run.val_loss);
    else
        printf("%sstep %d  held-out loss %.4f\n", isatty(1) ? "\n" : "", t->run.step, t->run.val_loss);
    return 0;
}
static int save(trainer *t, int last) {
    if (finish_steps(t, 0)) return 1;
    const par_result r = save_checkpoint(t, last);
    t->run.given_up = r && !is_death(r);
    if (!r) return 0;
    return par_rank(t->grid.world) ? 1 : print_error(par_last_error(t->grid.world));
}
// With elastic: names the ranks that others wait for. No more often than there are lines of the log.
static int compare_paces(trainer *t) {
    pace_table *p = &t->run.paces;
    const double now = par_seconds(t->grid.world);
    const int ranks = par_size(t->grid.world), root = par_rank(t->grid.world) == 0, first = !p->ranks;
    pace mine = {t->run.own, t->grid.place};
    for (int k = 0; k < PAR_KIND_COUNT; k++) mine.own -= par_ledger_get(t->grid.tp, (par_kind)k).seconds;
    if (first && !open_paces(p, ranks, t->run.step, now)) return print_error("out of memory for paces");
    if (print_fault(t, par_gather(&mine, p->now, sizeof mine, PAR_U8, 0, t->grid.world))) return 1;
    if (!root || (!first && now - p->at < SLOW_SECONDS)) return 0;
    if (!first) say_paces(t);
    memcpy(p->last, p->now, (size_t)ranks * sizeof *p->last);
    p->step = t->run.step;
    p->at = now;
    return 0;
}
static void begin_training(trainer *t) {
    FILE *out = t->o.json ? stderr : stdout;
    const int root = par_rank(t->grid.all) == 0;
    if (root) print_run(t, out);
    if (root && t->o.elastic) print_elastic(t, out);
    t->run.first_step = t->run.zero_step = t->run.step;
    t->run.first_loss = t->run.loss = t->run.val_loss = (double)NAN; // not measured, where no step is left
    t->run.begun = par_seconds(t->grid.all);
    t->width = par_size(t->grid.all);
    t->grid.place = is_spare(t) || t->joins ? -1 : place_of(t);
}
// Evaluates, saves, exports and says what there is at the end, with a sample. 0, or 1: the error has been
// printed.
static int end_training(trainer *t) {
    const settings *o = &t->o;
    const int root = par_rank(t->grid.world) == 0;
    FILE *out = o->json ? stderr : stdout;
    if (finish_steps(t, 0)) return 1;
    const double seconds = par_seconds(t->grid.world) - t->run.begun;
    if (o->plan && o->pp > 1 && t->run.step > t->run.first_step) print_pipeline(t, root ? out : NULL);
    if (o->eval_iters && print_fault(t, evaluate(t))) return 1;
    if (o->save && save(t, 1)) return 1;
    if (o->save && root) fprintf(out, "saved %s\n", o->save);
    if (o->exported && export_weights(t)) return 1;
    if (o->exported && root) fprintf(out, "exported %s\n", o->exported);
    if (root && !o->json) print_end(t, seconds);
    if (o->sample && (!o->json || o->prompt)) { // JSON has a sample if one is asked for
        if (root && !o->json) printf("---- sample ----\n");
        if (print_fault(t, generate(t, 1))) return 1;
        if (root && !o->json) printf("----------------\n");
    }
    if (root && o->json) print_end_json(t, seconds);
    if (!root || isfinite(t->run.val_loss) || !o->eval_iters) return 0;
    return print_error("the held-out loss is not finite; try a lower learning_rate");
}
// With elastic SIGTERM, which all ranks get, ends the training as if it had no more steps.
static volatile sig_atomic_t sigterm_came;
static void on_sigterm(int signal) { sigterm_came = signal; }
static int is_asked_to_end(const trainer *t, int *failed) { // of one rank is enough
    int asked = sigterm_came != 0;
    if (t->o.elastic)
        *failed = print_fault(t, par_all_reduce(&asked, &asked, 1, PAR_I32, PAR_MAX, t->grid.world));
    return *failed || asked;
}
static int train(trainer *t) { // 0, or 1: the error has been printed
    const settings *o = &t->o;
    const int compares = o->elastic && o->cp == 1 && t->grid.device == par_cpu();
    int failed = 0;
    close_paces(&t->run.paces); // other ranks may have come
    while (!failed && !t->run.ended && t->run.step < o->max_iters && !is_asked_to_end(t, &failed)) {
        if (o->eval_iters && is_due(t, o->eval_interval)) failed = evaluate_between(t);
        failed = failed || train_step(t);
        if (!failed && o->save && is_due(t, o->save_interval)) failed = save(t, 0);
        if (!failed && compares && is_due(t, o->log_interval)) failed = compare_paces(t);
    }
    if (!failed && !t->run.ended) failed = end_training(t);
    t->run.ended = t->run.ended || !failed;
    return failed || (o->elastic && par_barrier(t->grid.all)); // spares wait for that
}

// Reads what a rank can read without the others: settings, data, tokenizer, prompt. NULL, or an error text.
static const char *prepare(void *user, int ranks) {
    trainer *t = (trainer *)user;
    settings *o = &t->o;
    const char *prompt = o->generate ? o->generate : o->prompt;
    const char *why = o->generate ? generate_settings(o) : NULL;
    if (!why && o->load) why = load_model(o);
    if (!why) why = check_settings(o);
    if (!why && !o->generate) why = open_data(o, &t->batch.data);
    if (!why && o->tokenizer) why = tokenizer_open(&t->text.vocabulary, o->tokenizer, o->model.vocab_size);
    if (!why && prompt)
        why = generate_parse(o->generate ? "--generate" : "--prompt", prompt, o->model.vocab_size,
                             &t->text.prompt, &t->text.prompt_count);
    if (!why && o->spares >= ranks)
        why = wrong(o, "of %d ranks %d cannot be spares: give more ranks", ranks, o->spares);
    return why ? why : check_global_batch(o, ranks - o->spares, &t->batch.microbatch, &t->batch.microbatches);
}

int main(int argc, char **argv) {
    trainer t;
    settings *o = &t.o;
    memset(&t, 0, sizeof t);
    const int parsed = parse_settings(o, argc, argv, "gpt: train a GPT-2 or a Llama on n ranks", NULL, 0);
    if (parsed == 1 || (parsed && !par_launched(NULL))) return parsed == 1 ? 0 : 2;

    // From here on all ranks run. 1: the error has been printed.
    int failed = open_world(&t.grid, o, parsed, prepare, &t);
    if (!t.grid.all) return close_inputs(&t), 1;
    t.joins = has_joined(&t.grid);
    failed = failed || (t.joins ? open_device(o, &t.grid) != PAR_OK : open_model(&t));
    if (!failed && o->generate) must(t.grid.world, generate(&t, 0));
    if (!failed && !o->generate) {
        if (o->elastic) signal(SIGTERM, on_sigterm);
        begin_training(&t);
        do failed = t.joins || (is_spare(&t) ? wait_as_spare(&t) != PAR_OK : train(&t));
        while (failed && !go_on(&t));
    }
    close_model(&t);
    close_inputs(&t);
    return close_world(&t.grid, o, failed);
}

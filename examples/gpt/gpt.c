// gpt.c - trains a GPT-2 data-parallel on any number of ranks: the same model, whatever the number.
//
//     build/gpt --ranks 2 --data FILE              processes of this machine
//     mpiexec -n 2 build/gpt_mpi --data FILE       under MPI
//
// Each step draws batch_size x gradient_accumulation_steps sequences by their global number; each rank works
// on its share of them, in microbatches; the gradients of a layer are summed over the ranks while the layer
// before it computes.
#define PAR_IMPLEMENTATION
#include "par.h"

#include "../options.h"
#include "model.h"
#include "data.h"
#include "checkpoint.h"

typedef struct settings {
    const char *data, *trace, *save, *load;
    gpt_config model;
    int batch_size, accumulation, max_iters, warmup_iters, lr_decay_iters, decay_lr, eval_interval,
        eval_iters, log_interval, save_interval, sample, seed, ranks, json;
    double learning_rate, min_lr, weight_decay, beta1, beta2, grad_clip, dropout, temperature;
} settings;

typedef struct trainer {
    settings o;
    dataset data;
    par_comm *world;
    gpt_weights w, d; // weights, gradients (symmetric memory)
    float *m, *v;     // AdamW's moments
    float *decay;     // per element: 1 where weight decay applies
    gpt_buffers buffers;
    int *x, *y;                   // tokens and targets of a microbatch
    int microbatch, microbatches; // sequences in one; how many of them a rank runs in a step
    par_request *requests;        // gradients on their way, one per layer and one for the rest
    int request_count, last_microbatch;
    double loss, grad_norm, lr;
    int step;
    double begun;
} trainer;

// ---- one step ---------------------------------------------------------------------------------------------

static double learning_rate(const settings *o, int step) {
    if (!o->decay_lr) return o->learning_rate;
    if (step < o->warmup_iters) return o->learning_rate * (step + 1) / (o->warmup_iters + 1);
    if (step >= o->lr_decay_iters) return o->min_lr;
    const double done = (double)(step - o->warmup_iters) / (o->lr_decay_iters - o->warmup_iters);
    return o->min_lr + 0.5 * (1 + cos(3.141592653589793 * done)) * (o->learning_rate - o->min_lr);
}

static void need(par_comm *world, par_result r) {
    if (r == PAR_OK) return;
    fprintf(stderr, "gpt: rank %d: %s\n", par_rank(world), par_last_error(world));
    exit(1); // the other ranks notice
}

// Called when layer l's gradients are complete (-1: the rest): begin to sum them over the ranks.
static void gradients_ready(void *user, int layer) {
    trainer *t = (trainer *)user;
    if (!t->last_microbatch) return;
    const size_t layers = t->d.layer_at[0], tail = t->d.layer_at[t->o.model.n_layer];
    float *at = t->d.flat + (layer < 0 ? 0 : t->d.layer_at[layer]);
    const size_t count = layer < 0 ? layers : t->d.layer_at[layer + 1] - t->d.layer_at[layer];
    need(t->world,
         par_all_reduce_begin(at, at, count, PAR_F32, PAR_SUM, t->world, &t->requests[t->request_count++]));
    if (layer >= 0) return;
    at = t->d.flat + tail;
    need(t->world, par_all_reduce_begin(at, at, t->d.count - tail, PAR_F32, PAR_SUM, t->world,
                                        &t->requests[t->request_count++]));
}

static double run_batch(trainer *t, int held_out, uint64_t step, uint64_t first, int backward,
                        gpt_dropout *drop) {
    const int T = t->o.model.block_size;
    const size_t rows = (size_t)t->microbatch * (size_t)T,
                 sequences = (size_t)t->o.batch_size * (size_t)t->o.accumulation;
    for (int i = 0; i < t->microbatch; i++)
        data_sequence(&t->data, held_out, (uint64_t)t->o.seed, step, first + (uint64_t)i, T, t->x + i * T,
                      t->y + i * T);
    if (drop) drop->first_row = first * (uint64_t)T;
    par_trace_begin(t->world, "forward");
    gpt_forward(&t->o.model, &t->w, &t->buffers, t->x, (size_t)t->microbatch, (size_t)T, drop);
    const double loss = cross_entropy(t->buffers.logits, t->y, rows, (size_t)t->o.model.vocab_size,
                                      1.0f / (float)(sequences * (size_t)T));
    par_trace_end(t->world);
    if (!backward) return loss;
    par_trace_begin(t->world, "backward");
    gpt_backward(&t->o.model, &t->w, &t->d, &t->buffers, t->x, (size_t)t->microbatch, (size_t)T, drop,
                 gradients_ready, t);
    par_trace_end(t->world);
    return loss;
}

static void adamw(trainer *t) {
    const settings *o = &t->o;
    const double b1 = 1 - pow(o->beta1, t->step + 1), b2 = 1 - pow(o->beta2, t->step + 1);
    const float beta1 = (float)o->beta1, beta2 = (float)o->beta2, lr = (float)t->lr,
                decay = (float)(t->lr * o->weight_decay);
    const float clip =
        o->grad_clip > 0 && t->grad_norm > o->grad_clip ? (float)(o->grad_clip / t->grad_norm) : 1.0f;
    const float scale1 = (float)(1 / b1), scale2 = (float)(1 / b2);
    for (size_t i = 0; i < t->w.count; i++) {
        const float g = t->d.flat[i] * clip;
        t->m[i] = beta1 * t->m[i] + (1 - beta1) * g;
        t->v[i] = beta2 * t->v[i] + (1 - beta2) * g * g;
        const float update = t->m[i] * scale1 / (sqrtf(t->v[i] * scale2) + 1e-8f);
        t->w.flat[i] -= lr * update + decay * t->decay[i] * t->w.flat[i];
    }
}

static void train_step(trainer *t) {
    const uint64_t per_rank = (uint64_t)(t->microbatch * t->microbatches),
                   first = (uint64_t)par_rank(t->world) * per_rank;
    const double tokens = (double)per_rank * par_size(t->world) * t->o.model.block_size;
    gpt_dropout drop = {(float)t->o.dropout, (uint64_t)t->o.seed, (uint64_t)t->step, 0};
    double loss = 0, square = 0;
    par_trace_begin(t->world, "step");
    memset(t->d.flat, 0, t->d.count * sizeof(float));
    t->request_count = 0;
    for (int i = 0; i < t->microbatches; i++) {
        t->last_microbatch = i + 1 == t->microbatches;
        loss += run_batch(t, 0, (uint64_t)t->step, first + (uint64_t)(i * t->microbatch), 1, &drop);
    }
    need(t->world, par_all_reduce(&loss, &loss, 1, PAR_F64, PAR_SUM, t->world));
    need(t->world, par_wait_all(t->requests, t->request_count));
    for (size_t i = 0; i < t->d.count; i++) square += (double)t->d.flat[i] * (double)t->d.flat[i];
    t->loss = loss / tokens;
    t->grad_norm = sqrt(square);
    t->lr = learning_rate(&t->o, t->step);
    par_trace_begin(t->world, "adamw");
    adamw(t);
    par_trace_end(t->world);
    par_trace_end(t->world);
}

static double evaluate(trainer *t) { // mean loss over eval_iters batches of the held-out part
    const uint64_t n = (uint64_t)par_size(t->world),
                   per_batch = (uint64_t)(t->o.batch_size * t->o.accumulation);
    const uint64_t share = (uint64_t)(t->microbatch * t->microbatches),
                   first = (uint64_t)par_rank(t->world) * share;
    double loss = 0;
    for (int e = 0; e < t->o.eval_iters; e++)
        for (int i = 0; i < t->microbatches; i++)
            loss +=
                run_batch(t, 1, 0, (uint64_t)e * per_batch + first + (uint64_t)(i * t->microbatch), 0, NULL);
    need(t->world, par_all_reduce(&loss, &loss, 1, PAR_F64, PAR_SUM, t->world));
    return loss / ((double)(share * n) * t->o.model.block_size * t->o.eval_iters);
}

// ---- output -----------------------------------------------------------------------------------------------

static void sample(trainer *t, FILE *out) { // rank 0: text from the model, begun with a newline
    const gpt_config *g = &t->o.model;
    const size_t V = (size_t)g->vocab_size;
    int *context = (int *)calloc((size_t)g->block_size, sizeof *context), length = 1;
    if (!context) return;
    context[0] = V == 256 ? '\n' : 0;
    for (int i = 0; i < t->o.sample; i++) {
        gpt_forward(g, &t->w, &t->buffers, context, 1, (size_t)length, NULL);
        float *p = t->buffers.logits + (size_t)(length - 1) * V, most = p[0], sum = 0;
        for (size_t j = 1; j < V; j++) most = p[j] > most ? p[j] : most;
        for (size_t j = 0; j < V; j++) sum += p[j] = fast_exp((p[j] - most) / (float)t->o.temperature);
        float pick = par_uniform((uint64_t)t->o.seed, 77, (uint64_t)i) * sum;
        size_t token = 0;
        while (token + 1 < V && (pick -= p[token]) >= 0) token++;
        if (V != 256)
            fprintf(out, "%zu ", token);
        else
            fputc(token == '\n' || (token >= 32 && token < 127) ? (int)token : '?', out);
        if (length == g->block_size) memmove(context, context + 1, (size_t)(--length) * sizeof *context);
        context[length++] = (int)token;
    }
    fputc('\n', out);
    free(context);
}

static void report(const trainer *t, double tokens_per_s, int first_step) {
    const settings *o = &t->o;
    const int tty = isatty(1), last = t->step + 1 == o->max_iters;
    const double passed = par_seconds(t->world) - t->begun;
    const double eta = passed / (t->step + 1 - first_step) * (o->max_iters - t->step - 1);
    if (o->json) {
        printf("{\"step\":%d,\"loss\":%.9g,\"lr\":%.9g,\"grad_norm\":%.9g,\"tokens_per_s\":%.6g}\n", t->step,
               t->loss, t->lr, t->grad_norm, tokens_per_s);
    } else if (tty || last || t->step % o->log_interval == 0) {
        printf("%sstep %*d/%d  loss %.4f  lr %.2e  norm %.3f  %.0f tokens/s  ETA %d:%02d%s", tty ? "\r" : "",
               4, t->step + 1, o->max_iters, t->loss, t->lr, t->grad_norm, tokens_per_s, (int)eta / 60,
               (int)eta % 60, tty && !last ? "   " : "\n");
    }
    fflush(stdout);
}

// ---- setting up -------------------------------------------------------------------------------------------

static int first_process(void) { // of several under mpiexec, one complains
    static const char *const names[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < 4; i++)
        if (getenv(names[i])) return atoi(getenv(names[i])) == 0;
    return 1;
}
static int complain(const char *text) {
    if (first_process()) fprintf(stderr, "gpt: %s\n", text);
    return 1;
}

static const char *check_settings(settings *o) {
    const gpt_config *g = &o->model;
    if (!o->data) return "no data: --data FILE (make run passes the kit's own sources)";
    if (g->n_layer < 1 || g->n_head < 1 || g->n_embd < 1 || g->block_size < 1)
        return "n_layer, n_head, n_embd and block_size must be 1 or more";
    if (g->n_layer > 10000 || g->n_embd > 1 << 20 || g->block_size > 1 << 24)
        return "n_layer, n_embd or block_size is absurdly large";
    if (g->n_embd % g->n_head) return "n_embd must be a multiple of n_head";
    if (o->batch_size < 1 || o->accumulation < 1)
        return "batch_size and gradient_accumulation_steps must be 1 or more";
    if (o->max_iters < 0 || o->eval_iters < 0 || o->eval_interval < 0 || o->log_interval < 1)
        return "max_iters, eval_iters and eval_interval must not be negative, log_interval must be 1 or more";
    if (o->dropout < 0 || o->dropout >= 1) return "dropout must be in [0, 1)";
    if (o->learning_rate < 0 || o->temperature <= 0)
        return "learning_rate must not be negative and temperature must be more than 0";
    if (o->beta1 < 0 || o->beta1 >= 1 || o->beta2 < 0 || o->beta2 >= 1)
        return "beta1 and beta2 must be in [0, 1)";
    if (o->ranks < 0 || o->ranks > 1024) return "ranks must be from 1 to 1024";
    if (o->min_lr < 0) o->min_lr = o->learning_rate / 10;
    if (o->lr_decay_iters <= 0) o->lr_decay_iters = o->max_iters;
    return NULL;
}

// How a rank's share of the batch_size x accumulation sequences is cut into microbatches; 0: it does not
// divide.
static int divide_batch(trainer *t, int ranks) {
    const int all = t->o.batch_size * t->o.accumulation, share = all / ranks;
    if (all % ranks) return 0;
    t->microbatch = PAR__MIN(share, t->o.batch_size);
    while (share % t->microbatch) t->microbatch--;
    t->microbatches = share / t->microbatch;
    return 1;
}

static void mark_decay(void *user, int tensor, size_t at, size_t n, int decay, float init) {
    trainer *t = (trainer *)user;
    (void)tensor, (void)init;
    for (size_t i = 0; i < n; i++) t->decay[at + i] = (float)decay;
}

static const char *set_up(trainer *t) { // on every rank; NULL or what is wrong
    const gpt_config *g = &t->o.model;
    const size_t n = gpt_walk(g, NULL, NULL, NULL), rows = (size_t)t->microbatch * (size_t)g->block_size;
    float *flat = (float *)calloc(n, sizeof *flat),
          *gradients = (float *)par_alloc(t->world, n * sizeof *gradients);
    gpt_start start = {flat, (uint64_t)t->o.seed};
    checkpoint_header h;
    t->m = (float *)calloc(n, sizeof(float)), t->v = (float *)calloc(n, sizeof(float)),
    t->decay = (float *)calloc(n, sizeof(float));
    t->x = (int *)calloc(rows, sizeof(int)), t->y = (int *)calloc(rows, sizeof(int));
    t->requests = (par_request *)calloc((size_t)g->n_layer + 2, sizeof *t->requests);
    if (!flat || !t->m || !t->v || !t->decay || !t->x || !t->y || !t->requests || !gpt_view(g, &t->w, flat))
        return "out of memory for the model";
    if (!gradients || !gpt_view(g, &t->d, gradients)) return "out of memory for the gradients";
    if (!gpt_buffers_open(g, &t->buffers, (size_t)PAR__MAX(t->microbatch, 1), t->o.dropout > 0))
        return "out of memory for the activations";
    gpt_walk(g, NULL, mark_decay, t);
    if (!t->o.load) return gpt_walk(g, NULL, gpt_init_tensor, &start), NULL;
    float *arrays[3] = {flat, t->m, t->v};
    const char *why = checkpoint_load(t->o.load, &h, arrays);
    t->step = (int)h.step;
    return why;
}

static int train(trainer *t) {
    const settings *o = &t->o;
    const int root = par_rank(t->world) == 0, first_step = t->step;
    const double tokens = (double)o->batch_size * o->accumulation * o->model.block_size;
    double first_loss = 0, val = 0;
    FILE *out = o->json ? stderr : stdout;
    if (root)
        fprintf(out, "gpt: %zu parameters, %d ranks (%s), %g tokens a step, matrix products by %s\n",
                t->w.count, par_size(t->world), par_backend(t->world), tokens, par_cpu()->gemm_name);
    t->begun = par_seconds(t->world);
    for (; t->step < o->max_iters; t->step++) {
        if (o->eval_iters && o->eval_interval && t->step % o->eval_interval == 0 && t->step > first_step) {
            val = evaluate(t);
            if (root && o->json) printf("{\"step\":%d,\"val_loss\":%.9g}\n", t->step, val);
            if (root && !o->json)
                printf("%sstep %d  held-out loss %.4f\n", isatty(1) ? "\n" : "", t->step, val);
        }
        const double begun = par_seconds(t->world);
        train_step(t);
        if (t->step == first_step) first_loss = t->loss;
        if (root) report(t, tokens / (par_seconds(t->world) - begun), first_step);
        if (!isfinite(t->loss))
            return root ? complain("the loss is no longer finite; try a lower learning_rate") : 0;
        if (o->save && o->save_interval && (t->step + 1) % o->save_interval == 0 && root) {
            float *const arrays[3] = {t->w.flat, t->m, t->v};
            const char *why = checkpoint_save(o->save, &o->model, t->step + 1, arrays, t->w.count);
            if (why) return complain(why);
        }
    }
    const double seconds = par_seconds(t->world) - t->begun;
    if (o->eval_iters) val = evaluate(t);
    if (!root) return 0;
    if (o->save) {
        float *const arrays[3] = {t->w.flat, t->m, t->v};
        const char *why = checkpoint_save(o->save, &o->model, t->step, arrays, t->w.count);
        if (why) return complain(why);
        fprintf(out, "saved %s/checkpoint.bin\n", o->save);
    }
    if (!o->json)
        printf("%d steps in %.1f s: loss %.4f -> %.4f, held-out %.4f\n", t->step - first_step, seconds,
               first_loss, t->loss, val);
    if (!o->json && o->sample) {
        printf("---- sample ----\n");
        sample(t, stdout);
        printf("----------------\n");
    }
    if (o->json)
        printf("{\"final\":true,\"step\":%d,\"first_loss\":%.9g,\"loss\":%.9g,\"val_loss\":%.9g,\"seconds\":%"
               ".6g,\"ranks\":%d,"
               "\"gemm\":\"%s\"}\n",
               t->step, first_loss, t->loss, val, seconds, par_size(t->world), par_cpu()->gemm_name);
    if (o->trace) fprintf(out, "trace: %s (open it in ui.perfetto.dev)\n", o->trace);
    return 0;
}

int main(int argc, char **argv) {
    trainer t;
    memset(&t, 0, sizeof t);
    settings *o = &t.o;
    *o = (settings){.model = {4, 4, 128, 64, 0, 1},
                    .batch_size = 12,
                    .accumulation = 4,
                    .max_iters = 200,
                    .warmup_iters = 10,
                    .decay_lr = 1,
                    .eval_interval = 100,
                    .eval_iters = 4,
                    .log_interval = 10,
                    .sample = 400,
                    .seed = 1337,
                    .learning_rate = 1e-3,
                    .min_lr = -1,
                    .weight_decay = 0.1,
                    .beta1 = 0.9,
                    .beta2 = 0.99,
                    .grad_clip = 1,
                    .temperature = 0.8};
    const option options[] = {
        {"--data", OPTION_TEXT, &o->data, "raw bytes, or llm.c's token files"},
        {"--ranks", OPTION_INT, &o->ranks, "ranks on this machine; 0: PAR_RANKS or 1"},
        {"--n_layer", OPTION_INT, &o->model.n_layer, "layers"},
        {"--n_head", OPTION_INT, &o->model.n_head, "attention heads"},
        {"--n_embd", OPTION_INT, &o->model.n_embd, "width"},
        {"--block_size", OPTION_INT, &o->model.block_size, "tokens in a sequence"},
        {"--bias", OPTION_FLAG, &o->model.bias, "biases in linear layers and norms"},
        {"--dropout", OPTION_REAL, &o->dropout, "probability"},
        {"--batch_size", OPTION_INT, &o->batch_size, "sequences in a microbatch"},
        {"--gradient_accumulation_steps", OPTION_INT, &o->accumulation,
         "microbatches in a step, over all ranks"},
        {"--max_iters", OPTION_INT, &o->max_iters, "steps"},
        {"--learning_rate", OPTION_REAL, &o->learning_rate, "of AdamW, at most"},
        {"--decay_lr", OPTION_FLAG, &o->decay_lr, "cosine after warm-up"},
        {"--warmup_iters", OPTION_INT, &o->warmup_iters, "steps of linear warm-up"},
        {"--lr_decay_iters", OPTION_INT, &o->lr_decay_iters, "step at which min_lr is reached; 0: max_iters"},
        {"--min_lr", OPTION_REAL, &o->min_lr, "negative: learning_rate / 10"},
        {"--weight_decay", OPTION_REAL, &o->weight_decay, "of matrices"},
        {"--beta1", OPTION_REAL, &o->beta1, "of AdamW"},
        {"--beta2", OPTION_REAL, &o->beta2, "of AdamW"},
        {"--grad_clip", OPTION_REAL, &o->grad_clip, "largest gradient norm; 0: any"},
        {"--eval_interval", OPTION_INT, &o->eval_interval, "steps between evaluations; 0: at the end only"},
        {"--eval_iters", OPTION_INT, &o->eval_iters, "batches in an evaluation; 0: none"},
        {"--log_interval", OPTION_INT, &o->log_interval, "steps between lines, unless on a terminal"},
        {"--sample", OPTION_INT, &o->sample, "tokens to generate at the end"},
        {"--temperature", OPTION_REAL, &o->temperature, "of the sample"},
        {"--seed", OPTION_INT, &o->seed, "of weights, batches, dropout, sample"},
        {"--save", OPTION_TEXT, &o->save, "directory for the checkpoint"},
        {"--save_interval", OPTION_INT, &o->save_interval, "steps between checkpoints; 0: at the end only"},
        {"--load", OPTION_TEXT, &o->load, "directory to resume from (its model sizes count)"},
        {"--trace", OPTION_TEXT, &o->trace, "file for a Perfetto trace"},
        {"--json", OPTION_FLAG, &o->json, "one JSON object a line on stdout"},
    };
    const int parsed = options_parse(argc, argv, options, sizeof options / sizeof options[0],
                                     "gpt: train a GPT-2 on n ranks");
    if (parsed) return parsed == 1 ? 0 : 2;
    const char *why = check_settings(o);
    checkpoint_header h;
    if (!why && o->load && !(why = checkpoint_load(o->load, &h, NULL))) o->model = h.config;
    if (!why) why = data_open(&t.data, o->data, o->model.block_size);
    if (!why && o->load && h.config.vocab_size != t.data.vocab_size)
        why = "the checkpoint has another vocabulary than the data";
    if (why) return complain(why);
    o->model.vocab_size = t.data.vocab_size;
    char text[256];
    par_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.rank_count = o->ranks, desc.trace = o->trace;
    const int here = o->ranks ? o->ranks : getenv("PAR_RANKS") ? atoi(getenv("PAR_RANKS")) : 1;
    snprintf(text, sizeof text,
             "a global batch of %d sequences (batch_size x gradient_accumulation_steps) does not divide by "
             "the number of ranks",
             o->batch_size * o->accumulation);
    if (here > 0 && here <= 1024 && !divide_batch(&t, here)) return complain(text);
    if (par_open(&desc, &t.world)) return 1;
    int failed = !divide_batch(&t, par_size(t.world)); // mpiexec may have decided
    why = failed ? text : set_up(&t);
    failed = why != NULL;
    need(t.world, par_all_reduce(&failed, &failed, 1, PAR_I32, PAR_MAX, t.world));
    if (failed && (why || par_rank(t.world) == 0))
        fprintf(stderr, "gpt: rank %d: %s\n", par_rank(t.world), why ? why : "another rank failed");
    if (!failed) failed = train(&t);
    const par_result closed = par_close(t.world); // also writes the trace
    gpt_buffers_close(&t.buffers);
    free(t.w.flat), free(t.w.layers), free(t.w.layer_at), free(t.d.layers), free(t.d.layer_at);
    free(t.m), free(t.v), free(t.decay), free(t.x), free(t.y), free(t.requests);
    return failed || closed != PAR_OK;
}

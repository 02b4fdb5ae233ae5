// 05_gpt_simple.c - a GPT that learns a small text character by character, data-parallel with ZeRO.
//
//     cc -O2 -I. examples/05_gpt_simple.c -o gpt -pthread -lm && ./gpt --ranks 2 --zero 3
//
// Each rank runs some of a step's microbatches through the whole model. par_tp.h has the layers, par_zero.h
// keeps the parameters, their gradients and the optimizer. What two more kinds of parallelism add:
//     diff examples/05_gpt_simple.c examples/06_gpt_tensor.c
//     diff examples/06_gpt_tensor.c examples/07_gpt_pipeline.c
#define PAR_IMPLEMENTATION
#include "par_tp.h"
#include "par_zero.h"

#include "options.h"

static const char program[] = "05_gpt_simple";

enum { LAYERS = 4, HEADS = 4, FEATURES = 64, TOKENS = 32, SEQUENCES = 4 }; // sequences of a microbatch
enum { MICROBATCHES = 8, SEED = 1337 }; // microbatches of a step, on all ranks
enum { UNITS = LAYERS + 2, TENSORS = 6 * LAYERS + 4, ROWS = SEQUENCES * TOKENS };

static const char own_text[] = "one rank reads a page, and another rank reads the next page\n"
                               "each rank knows what its page says, and no rank knows it all\n"
                               "so they pass their sums around the ring, from rank to rank\n"
                               "when the sums come home, every rank has learned every page\n"
                               "then they turn the pages, and the ring goes round again\n";

typedef struct settings {
    int ranks, steps, zero;
    const char *data;
} settings;
typedef struct block { // x + attention(norm(x)), then the same with an MLP
    par_tp_norm norm1, norm2;
    par_tp_linear qkv, proj, up, down;
    par_tp_matrix normed1, heads, mixed, middle, normed2, wide, active; // activations, kept for backward
    float *stats1, *stats2, *lse;
} block;
typedef struct gpt {
    settings o;
    unsigned char *text, character[256]; // character[i] is number i of the vocabulary
    size_t length;
    int number[256], vocabulary;
    par_comm *world, *dp, *tp_comm;
    par_mesh *mesh;
    par_tp *tp;
    par_zero *zero;
    par_tp_embedding embedding;
    block blocks[LAYERS];
    par_tp_attention attention;
    par_tp_norm norm;
    par_tp_linear head;
    par_tp_loss loss;
    par_tp_matrix x[LAYERS + 1], normed, logits; // x[l] is the input of block l
    float *stats, *lse;
    float *memory, *at; // of all of this; where lay_out puts it
    size_t used;
    par_tp_matrix dx, dy, wide, wider; // backward's
    par_tp_parameter *parameters[TENSORS];
    int first[UNITS + 1]; // tensors of unit u are first[u] ... first[u + 1] - 1
} gpt;

// ---- the text ---------------------------------------------------------------------------------------------

static const char *read_text(gpt *g) { // NULL, or what is wrong
    FILE *f = g->o.data ? fopen(g->o.data, "rb") : NULL;
    if (g->o.data && !f) return strerror(errno);
    const size_t capacity = f ? 1 << 24 : sizeof own_text - 1; // of a larger file, the first 16 MiB
    g->text = (unsigned char *)malloc(capacity);
    if (g->text && f) g->length = fread(g->text, 1, capacity, f);
    const char *why = !g->text ? "out of memory" : f && ferror(f) ? strerror(errno) : NULL;
    if (f) fclose(f);
    if (g->text && !f) memcpy(g->text, own_text, g->length = capacity);
    if (!why && g->length <= TOKENS) why = "it is shorter than a sequence";
    for (size_t i = 0; i < g->length; i++) g->number[g->text[i]] = 1;
    for (int c = 0; c < 256; c++)
        if (g->number[c]) g->character[g->vocabulary] = (unsigned char)c, g->number[c] = g->vocabulary++;
    return why;
}
// Microbatch `number` of the run: sequences from anywhere in the text, and the same one character later.
static void load_batch(const gpt *g, uint64_t number, int32_t *ids, int32_t *targets) {
    for (int i = 0; i < ROWS; i++) {
        const uint64_t sequence = number * SEQUENCES + (uint64_t)(i / TOKENS);
        const size_t start = (size_t)(par_uniform(SEED, 0, sequence) * (float)(g->length - TOKENS));
        ids[i] = g->number[g->text[start + (size_t)(i % TOKENS)]];
        targets[i] = g->number[g->text[start + (size_t)(i % TOKENS) + 1]];
    }
}

// ---- the model --------------------------------------------------------------------------------------------

// A parameter of the last unit: par_zero.h stores it, shards it and updates it.
static void add(gpt *g, int unit, const char *name, par_tp_parameter *p) {
    par_zero_tensor t;
    char full[64];
    memset(&t, 0, sizeof t);
    snprintf(full, sizeof full, "%d.%s", unit, name);
    t.name = full, t.dims = 2, t.shape[0] = p->local_rows, t.shape[1] = p->local_cols;
    const int i = par_zero_add_tensor(g->zero, &t); // what it refuses, par_zero_commit refuses
    if (i >= 0) g->parameters[i] = p, g->first[unit + 1] = i + 1;
}
static par_result open_block(gpt *g, int l) {
    block *b = &g->blocks[l];
    char name[16];
    b->norm1.features = b->norm2.features = b->qkv.in = b->proj.in = b->proj.out = FEATURES;
    b->qkv.out = 3 * FEATURES, b->qkv.segment_count = 3, b->proj.row_parallel = b->down.row_parallel = 1;
    b->up.in = b->down.out = FEATURES, b->up.out = b->down.in = 4 * FEATURES;
    par_tp_attention_segments(&g->attention, b->qkv.segments);
    par_result r = par_tp_norm_open(g->tp, &b->norm1);
    if (!r) r = par_tp_norm_open(g->tp, &b->norm2);
    if (!r) r = par_tp_linear_open(g->tp, &b->qkv);
    if (!r) r = par_tp_linear_open(g->tp, &b->proj);
    if (!r) r = par_tp_linear_open(g->tp, &b->up);
    if (!r) r = par_tp_linear_open(g->tp, &b->down);
    snprintf(name, sizeof name, "block %d", l), par_zero_add_unit(g->zero, name);
    add(g, 1 + l, "norm1", &b->norm1.weight), add(g, 1 + l, "norm2", &b->norm2.weight);
    add(g, 1 + l, "qkv", &b->qkv.weight), add(g, 1 + l, "proj", &b->proj.weight);
    add(g, 1 + l, "up", &b->up.weight), add(g, 1 + l, "down", &b->down.weight);
    return r;
}
static par_result set_initial_values(gpt *g) { // matrices: normal numbers; weights of norms: ones
    par_result r = PAR_OK;
    for (int unit = 0; unit < UNITS; unit++)
        for (int i = g->first[unit]; i < g->first[unit + 1] && !r; i++)
            r = par_zero_init(g->zero, i, (uint64_t)(8 * unit + i - g->first[unit]),
                              g->parameters[i]->cols > 1 ? 0.05f : 0, 1);
    return r;
}
static float *take(gpt *g, size_t rows, size_t cols) { // NULL while the memory is only counted
    float *p = g->at ? g->at + g->used : NULL;
    g->used += (rows * cols + 15) / 16 * 16;
    return p;
}
static void lay_out(gpt *g, float *at) { // what forward keeps for backward
    g->at = at, g->used = 0;
    for (int l = 0; l < LAYERS; l++) {
        block *b = &g->blocks[l];
        const size_t qkv = b->qkv.weight.local_rows, up = b->up.weight.local_rows;
        g->x[l].data = take(g, ROWS, FEATURES), b->middle.data = take(g, ROWS, FEATURES);
        b->normed1.data = take(g, ROWS, FEATURES), b->normed2.data = take(g, ROWS, FEATURES);
        b->heads.data = take(g, ROWS, qkv), b->mixed.data = take(g, ROWS, qkv / 3);
        b->wide.data = take(g, ROWS, up), b->active.data = take(g, ROWS, up);
        b->stats1 = take(g, ROWS, 2), b->stats2 = take(g, ROWS, 2), b->lse = take(g, ROWS, HEADS);
    }
    g->x[LAYERS].data = take(g, ROWS, FEATURES), g->normed.data = take(g, ROWS, FEATURES);
    g->logits.data = take(g, ROWS, par_tp_ld(PAR_TP_VOCABULARY, g->head.weight.local_rows));
    g->stats = take(g, ROWS, 2), g->lse = take(g, ROWS, 1);
}
static par_result open_model(gpt *g) {
    par_tp_desc layers;
    par_zero_desc zero;
    memset(&layers, 0, sizeof layers), memset(&zero, 0, sizeof zero);
    layers.tp = g->tp_comm;
    zero.comm = g->dp, zero.stage = g->o.zero, zero.seed = SEED;
    zero.hyper[0].lr = 3e-3f, zero.clip = 1, zero.average = 1;
    zero.canonical_shards = MICROBATCHES; // the same bits on any number of ranks
    zero.microbatches = MICROBATCHES / par_size(g->dp);
    par_result r = par_tp_open(&layers, &g->tp);
    if (!r) r = par_zero_open(&zero, &g->zero);
    if (r) return r;
    g->embedding.vocabulary = g->head.out = g->loss.vocabulary = (size_t)g->vocabulary;
    g->embedding.features = g->norm.features = g->head.in = FEATURES, g->embedding.max_positions = TOKENS;
    g->attention.heads = HEADS, g->attention.dim = FEATURES / HEADS, g->head.vocab_parallel = 1;
    r = par_tp_embedding_open(g->tp, &g->embedding);
    par_zero_add_unit(g->zero, "embedding");
    add(g, 0, "token", &g->embedding.weight), add(g, 0, "position", &g->embedding.position_weight);
    for (int l = 0; l < LAYERS && !r; l++) r = open_block(g, l);
    if (!r) r = par_tp_norm_open(g->tp, &g->norm);
    if (!r) r = par_tp_linear_open(g->tp, &g->head);
    par_zero_add_unit(g->zero, "head");
    add(g, UNITS - 1, "norm", &g->norm.weight), add(g, UNITS - 1, "head", &g->head.weight);
    if (!r) r = par_zero_commit(g->zero);
    if (!r) r = set_initial_values(g);
    lay_out(g, NULL);
    g->memory = (float *)calloc(g->used + 10 * ROWS * FEATURES, sizeof *g->memory);
    if (!g->memory) return par_fail(g->world, PAR_ERR_MEMORY, "out of memory for activations");
    lay_out(g, g->memory);
    g->dx.data = take(g, ROWS, FEATURES), g->dy.data = take(g, ROWS, FEATURES);
    g->wide.data = take(g, ROWS, 4 * FEATURES), g->wider.data = take(g, ROWS, 4 * FEATURES);
    return r;
}

// ---- forward and backward ---------------------------------------------------------------------------------

// Between enter and leave the parameters of a unit are whole on this rank, whatever is sharded.
static par_result enter(gpt *g, int unit, int backward) {
    const par_result r =
        backward ? par_zero_backward_begin(g->zero, unit) : par_zero_forward_begin(g->zero, unit);
    for (int i = g->first[unit]; i < g->first[unit + 1] && !r; i++) {
        g->parameters[i]->data = par_zero_data(g->zero, i);
        g->parameters[i]->grad = backward ? par_zero_grad(g->zero, i) : NULL;
    }
    return r;
}
static par_result leave(gpt *g, int unit, int backward) {
    return backward ? par_zero_backward_end(g->zero, unit) : par_zero_forward_end(g->zero, unit);
}
static par_result block_forward(gpt *g, int l, const par_tp_tokens *tokens) { // from x[l] to x[l + 1]
    block *b = &g->blocks[l];
    par_tp_matrix *x = &g->x[l], *y = &g->x[l + 1];
    par_result r = enter(g, 1 + l, 0);
    if (!r) r = par_tp_norm_forward(g->tp, &b->norm1, x, b->stats1, &b->normed1);
    if (!r) r = par_tp_linear_forward(g->tp, &b->qkv, &b->normed1, NULL, &b->heads);
    if (!r) r = par_tp_attention_forward(g->tp, &g->attention, tokens, 0, &b->heads, b->lse, &b->mixed);
    if (!r) r = par_tp_linear_forward(g->tp, &b->proj, &b->mixed, NULL, &b->middle);
    if (!r) r = par_tp_add(g->tp, &b->middle, x, &b->middle);
    if (!r) r = par_tp_norm_forward(g->tp, &b->norm2, &b->middle, b->stats2, &b->normed2);
    if (!r) r = par_tp_linear_forward(g->tp, &b->up, &b->normed2, NULL, &b->wide);
    if (!r) r = par_tp_gelu_forward(g->tp, &b->wide, &b->active);
    if (!r) r = par_tp_linear_forward(g->tp, &b->down, &b->active, NULL, y);
    if (!r) r = par_tp_add(g->tp, y, &b->middle, y);
    return r ? r : leave(g, 1 + l, 0);
}
static par_result block_backward(gpt *g, int l,
                                 const par_tp_tokens *tokens) { // dx: of x[l + 1], then of x[l]
    block *b = &g->blocks[l];
    par_result r = enter(g, 1 + l, 1);
    if (!r) r = par_tp_linear_backward(g->tp, &b->down, &g->dx, &b->active, &g->wide);
    if (!r) r = par_tp_gelu_backward(g->tp, &g->wide, &b->wide, &g->wider);
    if (!r) r = par_tp_linear_backward(g->tp, &b->up, &g->wider, &b->normed2, &g->dy);
    if (!r) r = par_tp_norm_backward(g->tp, &b->norm2, &g->dy, &b->middle, b->stats2, &g->dy);
    if (!r) r = par_tp_add(g->tp, &g->dx, &g->dy, &g->dx);
    if (!r) r = par_tp_linear_backward(g->tp, &b->proj, &g->dx, &b->mixed, &g->wide);
    if (!r)
        r = par_tp_attention_backward(g->tp, &g->attention, tokens, 0, &g->wide, &b->heads, &b->mixed, b->lse,
                                      &g->wider);
    if (!r) r = par_tp_linear_backward(g->tp, &b->qkv, &g->wider, &b->normed1, &g->dy);
    if (!r) r = par_tp_norm_backward(g->tp, &b->norm1, &g->dy, &g->x[l], b->stats1, &g->dy);
    if (!r) r = par_tp_add(g->tp, &g->dx, &g->dy, &g->dx);
    return r ? r : leave(g, 1 + l, 1);
}
static par_result embedding_forward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = enter(g, 0, 0);
    if (!r) r = par_tp_embedding_forward(g->tp, &g->embedding, tokens, ids, &g->x[0]);
    return r ? r : leave(g, 0, 0);
}
static par_result embedding_backward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = enter(g, 0, 1);
    if (!r) r = par_tp_embedding_backward(g->tp, &g->embedding, tokens, ids, &g->dx);
    return r ? r : leave(g, 0, 1);
}
static par_result head_forward(gpt *g) {
    par_result r = enter(g, UNITS - 1, 0);
    if (!r) r = par_tp_norm_forward(g->tp, &g->norm, &g->x[LAYERS], g->stats, &g->normed);
    if (!r) r = par_tp_linear_forward(g->tp, &g->head, &g->normed, NULL, &g->logits);
    return r ? r : leave(g, UNITS - 1, 0);
}
static par_result head_backward(gpt *g) { // logits hold their gradient
    par_result r = enter(g, UNITS - 1, 1);
    if (!r) r = par_tp_linear_backward(g->tp, &g->head, &g->logits, &g->normed, &g->dy);
    if (!r) r = par_tp_norm_backward(g->tp, &g->norm, &g->dy, &g->x[LAYERS], g->stats, &g->dx);
    return r ? r : leave(g, UNITS - 1, 1);
}
static par_result forward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = embedding_forward(g, tokens, ids);
    for (int l = 0; l < LAYERS && !r; l++) r = block_forward(g, l, tokens);
    return r ? r : head_forward(g);
}
static par_result backward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = head_backward(g);
    for (int l = LAYERS - 1; l >= 0 && !r; l--) r = block_backward(g, l, tokens);
    return r ? r : embedding_backward(g, tokens, ids);
}

// ---- training ---------------------------------------------------------------------------------------------

static par_result microbatch(gpt *g, uint64_t number, double *loss) { // its gradients are added to the step's
    const par_tp_tokens tokens = {SEQUENCES, TOKENS, number * SEQUENCES, 0};
    int32_t ids[ROWS], targets[ROWS];
    size_t count;
    load_batch(g, number, ids, targets);
    par_result r = forward(g, &tokens, ids);
    if (!r)
        r = par_tp_loss_forward_backward(g->tp, &g->loss, &g->logits, targets, g->lse, NULL, loss, &count,
                                         1.0f / ROWS, &g->logits);
    return r ? r : backward(g, &tokens, ids);
}
static par_result train(gpt *g) {
    par_result r = PAR_OK;
    for (int step = 0; step < g->o.steps && !r; step++) {
        par_zero_report report;
        double losses[MICROBATCHES] = {0}, loss = 0; // each in its place, so that they add up in one order
        for (int i = 0; i < MICROBATCHES / par_size(g->dp) && !r; i++) {
            const uint64_t number = par_zero_global_microbatch(g->zero, i); // the others are other ranks'
            r = microbatch(g, (uint64_t)step * MICROBATCHES + number, &losses[number]);
        }
        if (!r) r = par_all_reduce(losses, losses, MICROBATCHES, PAR_F64, PAR_SUM, g->dp);
        if (!r) r = par_zero_step(g->zero, 1, &report);
        for (int i = 0; i < MICROBATCHES; i++) loss += losses[i] / (MICROBATCHES * ROWS);
        if (!r && par_rank(g->world) == 0 && (step < 3 || step % 20 == 19 || step + 1 == g->o.steps))
            printf("step %d loss %.9g norm %.6g\n", step + 1, loss, report.grad_norm);
    }
    return r;
}

// ---- generating text --------------------------------------------------------------------------------------

// Draws the next character by the probabilities that the last token's logits give: it is the one whose logit
// plus random (Gumbel) noise is the largest.
static par_result choose(gpt *g, const par_tp_tokens *tokens, uint64_t position, int32_t *next) {
    const float *logits = (const float *)g->logits.data;
    float best = -INFINITY;
    logits += (tokens->sequence - 1) * par_tp_ld(PAR_TP_VOCABULARY, g->logits.cols);
    for (size_t i = 0; i < g->logits.cols; i++) {
        const float uniform = par_uniform(SEED + 1, position, i), noise = -logf(-logf(uniform + 1e-9f));
        if (logits[i] + 0.5f * noise <= best) continue; // 0.5 is the temperature
        best = logits[i] + 0.5f * noise, *next = (int32_t)i;
    }
    return PAR_OK;
}
static par_result generate(gpt *g) { // a line; every rank does the same
    par_tp_tokens tokens = {1, 1, 0, 0};
    int32_t ids[TOKENS + 1] = {g->number['\n']};
    par_result r = PAR_OK;
    if (par_rank(g->world) == 0) printf("text: ");
    for (uint64_t i = 0; i < 100 && !r; i++) {
        r = forward(g, &tokens, ids);
        if (!r) r = choose(g, &tokens, i, &ids[tokens.sequence]);
        const unsigned char c = g->character[ids[tokens.sequence]];
        if (r || c == '\n') break;
        if (par_rank(g->world) == 0) putchar(c);
        if (tokens.sequence < TOKENS)
            tokens.sequence++;
        else
            memmove(ids, ids + 1, TOKENS * sizeof *ids);
    }
    if (par_rank(g->world) == 0) putchar('\n');
    return r;
}

// ---- main -------------------------------------------------------------------------------------------------

static par_result run(gpt *g) {
    const int dp = par_size(g->world);
    if (g->o.steps < 1)
        return par_fail(g->world, PAR_ERR_ARGUMENT, "--steps is %d, but must be 1 or more", g->o.steps);
    if (MICROBATCHES % dp)
        return par_fail(g->world, PAR_ERR_ARGUMENT,
                        "%d data-parallel ranks cannot share %d microbatches evenly: use 1, 2, 4 or 8", dp,
                        (int)MICROBATCHES);
    par_result r = par_mesh_open(g->world, "dp=-1 tp=1", &g->mesh);
    if (!r) r = par_mesh_comm(g->mesh, "dp", &g->dp);
    if (!r) r = par_mesh_comm(g->mesh, "tp", &g->tp_comm); // each rank alone
    if (!r) r = open_model(g);
    if (!r) r = train(g);
    return r ? r : generate(g);
}
int main(int argc, char **argv) {
    par_desc desc;
    gpt g;
    memset(&desc, 0, sizeof desc), memset(&g, 0, sizeof g);
    g.o.steps = 200, g.o.zero = 1;
    const option options[] = {
        {"--ranks", OPTION_INT, &g.o.ranks, "ranks on this machine; 0: PAR_RANKS or 1"},
        {"--steps", OPTION_INT, &g.o.steps, "steps of training"},
        {"--zero", OPTION_INT, &g.o.zero,
         "0: nothing is sharded; 1: optimizer states; 2: gradients; 3: parameters"},
        {"--data", OPTION_TEXT, &g.o.data, "a file to learn; else five lines that the program has"},
    };
    const int parsed = options_parse(argc, argv, options, sizeof options / sizeof options[0],
                                     "Trains a small GPT, data-parallel with ZeRO.");
    if (parsed) return parsed == 1 ? 0 : 2;
    const char *why = read_text(&g);
    if (why) return fprintf(stderr, "%s: cannot learn %s: %s\n", program, g.o.data, why), 1;
    desc.rank_count = g.o.ranks;
    if (par_open(&desc, &g.world)) return 1;
    const par_result r = run(&g);
    if (r) // the other ranks notice that this one ends
        return fprintf(stderr, "%s: rank %d: %s\n", program, par_rank(g.world), par_last_error(g.world)), 1;
    par_zero_close(g.zero), par_tp_close(g.tp), par_mesh_close(g.mesh);
    free(g.memory), free(g.text);
    return par_close(g.world) != PAR_OK || output_failed(program);
}

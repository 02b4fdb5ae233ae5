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

enum { LAYERS = 4, HEADS = 4, FEATURES = 64, TOKENS = 32, SEQUENCES = 4 }; // sequences of a microbatch
enum { ROWS = SEQUENCES * TOKENS, MICROBATCHES = 8, SEED = 1337 };         // microbatches of all ranks

static const char own_text[] = "one rank reads a page, and another rank reads the next page\n"
                               "each rank knows what its page says, and no rank knows it all\n"
                               "so they pass their sums around the ring, from rank to rank\n"
                               "when the sums come home, every rank has learned every page\n"
                               "then they turn the pages, and the ring goes round again\n";

typedef struct block { // x + attention(norm(x)), then the same with an MLP
    int unit;          // its number in par_zero.h
    par_tp_norm norm1, norm2;
    par_tp_linear qkv, proj, up, down;
    par_tp_matrix x, normed1, heads, mixed, middle, normed2, wide, active; // activations, kept for backward
    float *stats1, *stats2, *lse;
} block;
typedef struct gpt {
    int ranks, steps, zero_stage;
    const char *data;
    unsigned char text[1 << 20], character[256]; // character[i] is number i of the vocabulary
    size_t length, vocabulary;
    int32_t number[256]; // of a character
    par_comm *world, *dp, *tp_comm;
    par_mesh *mesh;
    par_tp *tp;
    par_zero *zero;
    par_tp_arena arena; // the memory of all activations
    int embedding_unit, head_unit, tensors;
    uint64_t streams[6 * LAYERS + 4]; // of random numbers, for the initial values of each tensor
    float deviations[6 * LAYERS + 4];
    par_tp_embedding embedding;
    block blocks[LAYERS];
    par_tp_attention attention;
    par_tp_norm norm;
    par_tp_linear head;
    par_tp_loss loss;
    par_tp_matrix x, normed, logits; // x is the output of the last block
    float *stats, *lse;
    par_tp_matrix dx, dy, wide, wider; // gradients
} gpt;

// ---- the text ---------------------------------------------------------------------------------------------

static par_result read_text(gpt *g) { // of a larger file, the first megabyte
    FILE *f = g->data ? fopen(g->data, "rb") : NULL;
    if (f) g->length = fread(g->text, 1, sizeof g->text, f);
    if (!g->data) memcpy(g->text, own_text, g->length = sizeof own_text - 1);
    if (g->length <= TOKENS)
        return par_fail(g->world, PAR_ERR_FILE, "cannot learn %s: %s", g->data,
                        !f || ferror(f) ? strerror(errno) : "it is shorter than a sequence");
    if (f) fclose(f);
    for (size_t i = 0; i < g->length; i++) g->number[g->text[i]] = 1;
    for (int c = 0; c < 256; c++) {
        if (!g->number[c]) continue;
        g->character[g->vocabulary] = (unsigned char)c;
        g->number[c] = (int32_t)g->vocabulary++;
    }
    return PAR_OK;
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

// Adds a parameter to the last unit: par_zero.h shards it, updates it, and tells p where it is.
static void add(gpt *g, const char *name, par_tp_parameter *p, int stream) {
    char full[64];
    const par_shard shard = par_tp_parameter_shard(g->tp, p); // what this rank has of it
    const par_zero_tensor t = {.name = full, .shard = &shard, .bound_data = &p->data, .bound_grad = &p->grad};
    snprintf(full, sizeof full, "%d.%s", stream / 8, name);
    const int i = par_zero_add_tensor(g->zero, &t); // what it refuses, par_zero_commit refuses
    if (i < 0) return;
    g->streams[i] = (uint64_t)stream;
    g->deviations[i] = p->cols > 1 ? 0.05f : 0; // 0: a norm's weight, which begins with ones
    g->tensors = i + 1;
}
static par_result add_norm(gpt *g, par_tp_norm *norm, int stream) {
    norm->features = FEATURES;
    const par_result r = par_tp_norm_open(g->tp, norm);
    if (!r) add(g, norm->name, &norm->weight, stream);
    return r;
}
static par_result add_linear(gpt *g, par_tp_linear *linear, int stream) {
    const par_result r = par_tp_linear_open(g->tp, linear);
    if (!r) add(g, linear->name, &linear->weight, stream);
    return r;
}
static par_result add_embedding(gpt *g) {
    g->embedding_unit = par_zero_add_unit(g->zero, "embedding");
    const par_result r = par_tp_embedding_open(g->tp, &g->embedding);
    if (r) return r;
    add(g, "token", &g->embedding.weight, 0);
    add(g, "position", &g->embedding.position_weight, 1);
    return PAR_OK;
}
static par_result add_block(gpt *g, int l) {
    block *b = &g->blocks[l];
    char name[16];
    b->norm1.name = "norm1", b->norm2.name = "norm2";
    b->qkv = (par_tp_linear){.name = "qkv", .in = FEATURES, .out = 3 * FEATURES, .segment_count = 3};
    par_tp_attention_segments(&g->attention, b->qkv.segments);
    b->proj = (par_tp_linear){.name = "proj", .in = FEATURES, .out = FEATURES, .row_parallel = 1};
    b->up = (par_tp_linear){.name = "up", .in = FEATURES, .out = 4 * FEATURES};
    b->down = (par_tp_linear){.name = "down", .in = 4 * FEATURES, .out = FEATURES, .row_parallel = 1};
    snprintf(name, sizeof name, "block %d", l);
    b->unit = par_zero_add_unit(g->zero, name);
    par_result r = add_norm(g, &b->norm1, 8 * l + 8);
    if (!r) r = add_norm(g, &b->norm2, 8 * l + 9);
    if (!r) r = add_linear(g, &b->qkv, 8 * l + 10);
    if (!r) r = add_linear(g, &b->proj, 8 * l + 11);
    if (!r) r = add_linear(g, &b->up, 8 * l + 12);
    return r ? r : add_linear(g, &b->down, 8 * l + 13);
}
static par_result add_head(gpt *g) {
    g->head_unit = par_zero_add_unit(g->zero, "head");
    const par_result r = add_norm(g, &g->norm, 8 * LAYERS + 8);
    return r ? r : add_linear(g, &g->head, 8 * LAYERS + 9);
}
// A matrix of activations for the rows of a microbatch. The last of them tells whether the arena was full.
static par_result take(gpt *g, par_tp_matrix *x, size_t cols, par_tp_layout layout) {
    return par_tp_alloc(g->tp, &g->arena, ROWS, cols, layout, x);
}
static par_result take_activations(gpt *g) {
    g->arena.used = 0;
    for (int l = 0; l < LAYERS; l++) {
        block *b = &g->blocks[l];
        par_tp_matrix *tokens[] = {&b->x, &b->normed1, &b->middle, &b->normed2};
        for (int i = 0; i < 4; i++) take(g, tokens[i], FEATURES, PAR_TP_REPLICATED);
        take(g, &b->heads, b->qkv.weight.local_rows, PAR_TP_HIDDEN);
        take(g, &b->mixed, b->proj.weight.local_cols, PAR_TP_HIDDEN);
        take(g, &b->wide, b->up.weight.local_rows, PAR_TP_HIDDEN);
        take(g, &b->active, b->up.weight.local_rows, PAR_TP_HIDDEN);
        par_tp_alloc_floats(g->tp, &g->arena, 2 * ROWS, &b->stats1);
        par_tp_alloc_floats(g->tp, &g->arena, 2 * ROWS, &b->stats2);
        par_tp_alloc_floats(g->tp, &g->arena, HEADS * ROWS, &b->lse);
    }
    take(g, &g->x, FEATURES, PAR_TP_REPLICATED);
    take(g, &g->normed, FEATURES, PAR_TP_REPLICATED);
    par_tp_alloc_floats(g->tp, &g->arena, 2 * ROWS, &g->stats);
    par_tp_alloc_floats(g->tp, &g->arena, ROWS, &g->lse);
    return take(g, &g->logits, g->head.weight.local_rows, PAR_TP_VOCABULARY);
}
static par_result take_gradients(gpt *g) {
    take(g, &g->dx, FEATURES, PAR_TP_REPLICATED);
    take(g, &g->dy, FEATURES, PAR_TP_REPLICATED);
    take(g, &g->wide, 4 * FEATURES, PAR_TP_HIDDEN);
    return take(g, &g->wider, 4 * FEATURES, PAR_TP_HIDDEN);
}
static par_result open_model(gpt *g) {
    const par_tp_desc layers = {.tp = g->tp_comm};
    par_zero_desc zero = {.comm = g->dp, .stage = g->zero_stage, .seed = SEED, .clip = 1, .average = 1};
    zero.hyper[0].lr = 3e-3f;
    zero.microbatches = MICROBATCHES / par_size(g->dp);
    zero.canonical_shards = MICROBATCHES; // the same bits on any number of ranks
    g->embedding =
        (par_tp_embedding){.vocabulary = g->vocabulary, .features = FEATURES, .max_positions = TOKENS};
    g->attention = (par_tp_attention){.heads = HEADS, .dim = FEATURES / HEADS};
    g->norm.name = "norm";
    g->head = (par_tp_linear){.name = "head", .in = FEATURES, .out = g->vocabulary, .vocab_parallel = 1};
    g->loss.vocabulary = g->vocabulary;
    par_result r = par_tp_open(&layers, &g->tp);
    if (!r) r = par_zero_open(&zero, &g->zero);
    if (!r) r = add_embedding(g);
    for (int l = 0; l < LAYERS && !r; l++) r = add_block(g, l);
    if (!r) r = add_head(g);
    if (!r) r = par_zero_commit(g->zero);
    for (int i = 0; i < g->tensors && !r; i++)
        r = par_zero_init(g->zero, i, g->streams[i], g->deviations[i], 1);
    if (!r) r = take_activations(g); // only counts, because there is no memory yet
    if (!r) r = take_gradients(g);
    g->arena.bytes = g->arena.used;
    g->arena.data = calloc(1, g->arena.bytes);
    if (!r && !g->arena.data) r = par_fail(g->world, PAR_ERR_MEMORY, "out of memory for activations");
    if (!r) r = take_activations(g);
    return r ? r : take_gradients(g);
}

// ---- forward and backward ---------------------------------------------------------------------------------
// Between par_zero_..._begin and _end the parameters of a unit are whole on this rank, whatever is sharded.

static par_result embedding_forward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = par_zero_forward_begin(g->zero, g->embedding_unit);
    if (!r) r = par_tp_embedding_forward(g->tp, &g->embedding, tokens, ids, &g->blocks[0].x);
    return r ? r : par_zero_forward_end(g->zero, g->embedding_unit);
}
static par_result embedding_backward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = par_zero_backward_begin(g->zero, g->embedding_unit);
    if (!r) r = par_tp_embedding_backward(g->tp, &g->embedding, tokens, ids, &g->dx);
    return r ? r : par_zero_backward_end(g->zero, g->embedding_unit);
}
static par_result block_forward(gpt *g, block *b, const par_tp_tokens *tokens, par_tp_matrix *y) {
    par_result r = par_zero_forward_begin(g->zero, b->unit);
    if (!r) r = par_tp_norm_forward(g->tp, &b->norm1, &b->x, b->stats1, &b->normed1);
    if (!r) r = par_tp_linear_forward(g->tp, &b->qkv, &b->normed1, NULL, &b->heads);
    if (!r) r = par_tp_attention_forward(g->tp, &g->attention, tokens, 0, &b->heads, b->lse, &b->mixed);
    if (!r) r = par_tp_linear_forward(g->tp, &b->proj, &b->mixed, NULL, &b->middle);
    if (!r) r = par_tp_add(g->tp, &b->middle, &b->x, &b->middle);
    if (!r) r = par_tp_norm_forward(g->tp, &b->norm2, &b->middle, b->stats2, &b->normed2);
    if (!r) r = par_tp_linear_forward(g->tp, &b->up, &b->normed2, NULL, &b->wide);
    if (!r) r = par_tp_gelu_forward(g->tp, &b->wide, &b->active);
    if (!r) r = par_tp_linear_forward(g->tp, &b->down, &b->active, NULL, y);
    if (!r) r = par_tp_add(g->tp, y, &b->middle, y);
    return r ? r : par_zero_forward_end(g->zero, b->unit);
}
static par_result block_backward(gpt *g, block *b, const par_tp_tokens *tokens) { // dx: of y, then of x
    par_tp_matrix *dx = &g->dx, *dy = &g->dy, *wide = &g->wide, *wider = &g->wider;
    par_result r = par_zero_backward_begin(g->zero, b->unit);
    if (!r) r = par_tp_linear_backward(g->tp, &b->down, dx, &b->active, wide);
    if (!r) r = par_tp_gelu_backward(g->tp, wide, &b->wide, wider);
    if (!r) r = par_tp_linear_backward(g->tp, &b->up, wider, &b->normed2, dy);
    if (!r) r = par_tp_norm_backward(g->tp, &b->norm2, dy, &b->middle, b->stats2, dy);
    if (!r) r = par_tp_add(g->tp, dx, dy, dx);
    if (!r) r = par_tp_linear_backward(g->tp, &b->proj, dx, &b->mixed, wide);
    if (!r)
        r = par_tp_attention_backward(g->tp, &g->attention, tokens, 0, wide, &b->heads, &b->mixed, b->lse,
                                      wider);
    if (!r) r = par_tp_linear_backward(g->tp, &b->qkv, wider, &b->normed1, dy);
    if (!r) r = par_tp_norm_backward(g->tp, &b->norm1, dy, &b->x, b->stats1, dy);
    if (!r) r = par_tp_add(g->tp, dx, dy, dx);
    return r ? r : par_zero_backward_end(g->zero, b->unit);
}
static par_result head_forward(gpt *g) {
    par_result r = par_zero_forward_begin(g->zero, g->head_unit);
    if (!r) r = par_tp_norm_forward(g->tp, &g->norm, &g->x, g->stats, &g->normed);
    if (!r) r = par_tp_linear_forward(g->tp, &g->head, &g->normed, NULL, &g->logits);
    return r ? r : par_zero_forward_end(g->zero, g->head_unit);
}
static par_result head_backward(gpt *g) { // logits hold their gradient
    par_result r = par_zero_backward_begin(g->zero, g->head_unit);
    if (!r) r = par_tp_linear_backward(g->tp, &g->head, &g->logits, &g->normed, &g->dy);
    if (!r) r = par_tp_norm_backward(g->tp, &g->norm, &g->dy, &g->x, g->stats, &g->dx);
    return r ? r : par_zero_backward_end(g->zero, g->head_unit);
}
static par_result forward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = embedding_forward(g, tokens, ids);
    for (int l = 0; l < LAYERS && !r; l++)
        r = block_forward(g, &g->blocks[l], tokens, l + 1 < LAYERS ? &g->blocks[l + 1].x : &g->x);
    return r ? r : head_forward(g);
}
static par_result backward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = head_backward(g);
    for (int l = LAYERS - 1; l >= 0 && !r; l--) r = block_backward(g, &g->blocks[l], tokens);
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
    for (int step = 0; step < g->steps && !r; step++) {
        par_zero_report report;
        double losses[MICROBATCHES] = {0}, loss = 0; // each in its place, so that they add up in one order
        for (int i = 0; i < MICROBATCHES / par_size(g->dp) && !r; i++) {
            const uint64_t number = par_zero_global_microbatch(g->zero, i); // the others are other ranks'
            r = microbatch(g, (uint64_t)step * MICROBATCHES + number, &losses[number]);
        }
        if (!r) r = par_all_reduce(losses, losses, MICROBATCHES, PAR_F64, PAR_SUM, g->dp);
        if (!r) r = par_zero_step(g->zero, 1, &report);
        for (int i = 0; i < MICROBATCHES; i++) loss += losses[i] / (MICROBATCHES * ROWS);
        if (!r && par_rank(g->world) == 0 && (step < 3 || step % 20 == 19 || step + 1 == g->steps))
            printf("step %d loss %.9g norm %.6g\n", step + 1, loss, report.grad_norm);
    }
    return r;
}

// ---- generating text --------------------------------------------------------------------------------------

// Draws the next character by the probabilities that the last token's logits give: it is the one whose logit
// plus random (Gumbel) noise is the largest.
static par_result choose(gpt *g, uint64_t position, int32_t *next) {
    const size_t row = (g->logits.rows - 1) * par_tp_ld(PAR_TP_VOCABULARY, g->logits.cols);
    const float *logits = (const float *)g->logits.data + row;
    float best = -INFINITY;
    for (size_t i = 0; i < g->logits.cols; i++) {
        const float noise = -logf(-logf(par_uniform(SEED + 1, position, i) + 1e-9f));
        if (logits[i] + 0.5f * noise <= best) continue; // 0.5 is the temperature
        best = logits[i] + 0.5f * noise;
        *next = (int32_t)i;
    }
    return PAR_OK;
}
static par_result generate(gpt *g) { // a line; every rank does the same
    int32_t ids[101] = {g->number['\n']};
    par_result r = PAR_OK;
    if (par_rank(g->world) == 0) printf("text: ");
    for (int i = 0; i < 100 && !r; i++) {
        const int first = i < TOKENS ? 0 : i + 1 - TOKENS; // of the model's context
        const par_tp_tokens tokens = {1, (size_t)(i + 1 - first), 0, 0};
        r = forward(g, &tokens, ids + first);
        if (!r) r = choose(g, (uint64_t)i, &ids[i + 1]);
        if (r || ids[i + 1] == ids[0]) break;
        if (par_rank(g->world) == 0) putchar(g->character[ids[i + 1]]);
    }
    if (par_rank(g->world) == 0) putchar('\n');
    return r;
}

// ---- main -------------------------------------------------------------------------------------------------

static par_result run(gpt *g) {
    par_result r = read_text(g);
    if (!r) r = par_mesh_open(g->world, "dp=-1 tp=1", &g->mesh);
    if (!r) r = par_mesh_comm(g->mesh, "dp", &g->dp);
    if (!r) r = par_mesh_comm(g->mesh, "tp", &g->tp_comm); // each rank alone
    if (!r) r = open_model(g);
    if (!r) r = train(g);
    return r ? r : generate(g);
}
int main(int argc, char **argv) {
    static gpt g; // zeros
    g.steps = 200, g.zero_stage = 1;
    const option options[] = {
        {"--ranks", OPTION_INT, &g.ranks, "ranks on this machine; 0: PAR_RANKS or 1"},
        {"--steps", OPTION_INT, &g.steps, "steps of training"},
        {"--zero", OPTION_INT, &g.zero_stage,
         "0: nothing is sharded; 1: optimizer states; 2: gradients; 3: parameters"},
        {"--data", OPTION_TEXT, &g.data, "a file to learn; else five lines that the program has"},
    };
    const int parsed = options_parse(argc, argv, options, sizeof options / sizeof options[0],
                                     "Trains a small GPT, data-parallel with ZeRO.");
    if (parsed) return parsed == 1 ? 0 : 2;
    const par_desc desc = {.rank_count = g.ranks};
    if (par_open(&desc, &g.world)) return 1;
    if (run(&g)) { // the other ranks notice that this one ends
        fprintf(stderr, "%s: rank %d: %s\n", argv[0], par_rank(g.world), par_last_error(g.world));
        return 1;
    }
    par_zero_close(g.zero), par_tp_close(g.tp), par_mesh_close(g.mesh);
    free(g.arena.data);
    return par_close(g.world) != PAR_OK || output_failed(argv[0]);
}

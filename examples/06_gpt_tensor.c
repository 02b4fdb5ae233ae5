// 06_gpt_tensor.c - 05_gpt_simple.c with tensor parallelism: several ranks share each layer.
//
//     cc -O2 -I. examples/06_gpt_tensor.c -o gpt -pthread -lm
//     ./gpt --ranks 4 --tp 2
//
// par_tp.h's layers do the same calls on parts of their parameters, and talk to the other ranks themselves.
// The program says which ranks share a layer, and which have the same part of it.
#define PAR_IMPLEMENTATION
#include "par_tp.h"
#include "par_zero.h"
#include "options.h"
#include "text.h"

enum { LAYERS = 4, HEADS = 4, FEATURES = 64, TOKENS = 32, SEQUENCES = 4, MICROBATCHES = 8, SEED = 1337 };
enum { ROWS = SEQUENCES * TOKENS, EMBEDDING = 0, HEAD = LAYERS + 1, UNITS = LAYERS + 2 }; // others are blocks

typedef struct gpt {
    int steps, tp_ranks;
    const char *data;
    gpt_text text;
    par_desc ranks; // what par_open, par_tp_open and par_zero_open are asked for
    par_tp_desc layers;
    par_zero_desc sharding;
    par_comm *world, *dp, *tp_comm;
    par_mesh *mesh;
    par_tp *tp;
    par_zero *zero;
    par_tp_embedding embedding;
    par_tp_block blocks[UNITS]; // by unit
    par_tp_norm norm;
    par_tp_linear head;
    par_tp_loss loss;
    par_tp_arena arena;              // memory of a microbatch's activations
    par_tp_matrix x[UNITS], dx;      // outputs of the units but the last; the gradient of one of them
    par_tp_block_saved saved[UNITS]; // what else backward needs: of each block,
    par_tp_matrix normed, logits;    // of the head
    float *stats, *lse;
} gpt;

// ---- the model --------------------------------------------------------------------------------------------

static par_result open_layers(gpt *g) { // each says what this rank has of its parameters
    g->embedding.vocabulary = g->head.out = g->loss.vocabulary = g->text.vocabulary;
    g->embedding.features = g->norm.features = g->head.in = FEATURES;
    g->embedding.deviation = g->head.deviation = 0.05f; // of initial values
    g->embedding.max_positions = TOKENS;
    g->head.vocab_parallel = 1;
    g->embedding.name = "embedding";
    g->norm.name = "norm";
    g->head.name = "head";
    par_result r = par_tp_embedding_open(g->tp, &g->embedding);
    for (int u = EMBEDDING + 1; u < HEAD && !r; u++) {
        par_tp_block *b = &g->blocks[u];
        b->features = FEATURES;
        b->attention.heads = HEADS;
        b->deviation = 0.05f;
        snprintf(b->name, sizeof b->name, "block %d", u);
        r = par_tp_block_open(g->tp, b);
    }
    if (!r) r = par_tp_norm_open(g->tp, &g->norm);
    return r ? r : par_tp_linear_open(g->tp, &g->head);
}
// Adds a unit to par_zero.h, which shards its parameters, updates them, and tells layers where they are.
static void add_unit(gpt *g, int u) {
    par_tp_parameter *list[PAR_TP_BLOCK_PARAMETERS] = {&g->embedding.weight, &g->embedding.position_weight};
    par_parameter p[PAR_TP_BLOCK_PARAMETERS];
    if (u == HEAD) {
        list[0] = &g->norm.weight;
        list[1] = &g->head.weight;
    } else if (u != EMBEDDING) {
        par_tp_block_parameters(&g->blocks[u], list);
    }
    const char *name = u == EMBEDDING ? "embedding" : u == HEAD ? "head" : g->blocks[u].name;
    const uint64_t stream = (uint64_t)u * PAR_TP_BLOCK_PARAMETERS; // of random initial values
    const int n = par_tp_describe(g->tp, list, PAR_TP_BLOCK_PARAMETERS, stream, p);
    par_zero_add_layer(g->zero, name, p, n);
}
static par_result take_activations(gpt *g) { // while there is no memory this only counts
    const par_tp_block_memory memory = {&g->arena, NULL, NULL, NULL, PAR_TP_RECOMPUTE_NONE};
    for (int u = EMBEDDING; u < HEAD; u++) {
        par_tp_alloc(g->tp, &g->arena, ROWS, FEATURES, PAR_TP_REPLICATED, &g->x[u]);
        if (u > EMBEDDING) par_tp_block_alloc(g->tp, &g->blocks[u], ROWS, &memory, &g->saved[u]);
    }
    par_tp_alloc(g->tp, &g->arena, ROWS, FEATURES, PAR_TP_REPLICATED, &g->dx);
    par_tp_alloc(g->tp, &g->arena, ROWS, FEATURES, PAR_TP_REPLICATED, &g->normed);
    par_tp_alloc_floats(g->tp, &g->arena, 2 * ROWS, &g->stats);
    par_tp_alloc_floats(g->tp, &g->arena, ROWS, &g->lse); // the last one tells whether the arena was full
    return par_tp_alloc(g->tp, &g->arena, ROWS, g->head.weight.local_rows, PAR_TP_VOCABULARY, &g->logits);
}
static par_result open_model(gpt *g) {
    g->layers.tp = g->tp_comm;
    g->sharding.comm = g->dp;
    g->sharding.model_parallel_comm = g->tp_comm; // the norm of the gradients is over these ranks, too
    g->sharding.seed = SEED;
    g->sharding.clip = 1;
    g->sharding.hyper[0].lr = 3e-3f;
    g->sharding.microbatches = MICROBATCHES / par_size(g->dp);
    g->sharding.canonical_shards = MICROBATCHES; // the same bits on any number of ranks
    par_result r = par_tp_open(&g->layers, &g->tp);
    if (!r) r = par_zero_open(&g->sharding, &g->zero);
    if (!r) r = open_layers(g);
    for (int u = EMBEDDING; u < UNITS && !r; u++) add_unit(g, u);
    if (!r) r = par_zero_commit(g->zero);
    if (!r) r = par_zero_init_all(g->zero);
    if (!r) r = take_activations(g);
    if (!r) r = par_tp_arena_open(g->tp, &g->arena);
    return r ? r : take_activations(g);
}

// ---- forward and backward ---------------------------------------------------------------------------------

static par_result unit_forward(gpt *g, int u, const par_tp_tokens *tokens, const int32_t *ids) {
    if (u == EMBEDDING) return par_tp_embedding_forward(g->tp, &g->embedding, tokens, ids, &g->x[u]);
    if (u != HEAD)
        return par_tp_block_forward(g->tp, &g->blocks[u], tokens, 0, &g->x[u - 1], &g->saved[u], &g->x[u]);
    const par_result r = par_tp_norm_forward(g->tp, &g->norm, &g->x[u - 1], g->stats, &g->normed);
    return r ? r : par_tp_linear_forward(g->tp, &g->head, &g->normed, NULL, &g->logits);
}
// From the gradient of a unit's output in dx (of the head: in logits) to that of its input.
static par_result unit_backward(gpt *g, int u, const par_tp_tokens *tokens, const int32_t *ids) {
    par_tp_matrix *dx = &g->dx;
    if (u == EMBEDDING) return par_tp_embedding_backward(g->tp, &g->embedding, tokens, ids, dx);
    if (u != HEAD)
        return par_tp_block_backward(g->tp, &g->blocks[u], tokens, 0, dx, &g->x[u - 1], &g->saved[u], dx);
    const par_result r = par_tp_linear_backward(g->tp, &g->head, &g->logits, &g->normed, dx);
    return r ? r : par_tp_norm_backward(g->tp, &g->norm, dx, &g->x[u - 1], g->stats, dx);
}
// Between begin and end the parameters of a unit are whole on this rank, whatever is sharded.
static par_result forward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = PAR_OK;
    for (int u = EMBEDDING; u < UNITS && !r; u++) {
        r = par_zero_forward_begin(g->zero, u);
        if (!r) r = unit_forward(g, u, tokens, ids);
        if (!r) r = par_zero_forward_end(g->zero, u);
    }
    return r;
}
static par_result backward(gpt *g, const par_tp_tokens *tokens, const int32_t *ids) {
    par_result r = PAR_OK;
    for (int u = UNITS - 1; u >= EMBEDDING && !r; u--) {
        r = par_zero_backward_begin(g->zero, u);
        if (!r) r = unit_backward(g, u, tokens, ids);
        if (!r) r = par_zero_backward_end(g->zero, u);
    }
    return r;
}

// ---- training ---------------------------------------------------------------------------------------------

static par_result microbatch(gpt *g, uint64_t number, double *loss) { // its gradients are added to the step's
    const par_tp_tokens tokens = {SEQUENCES, TOKENS, number * SEQUENCES, 0, NULL};
    int32_t ids[ROWS], targets[ROWS];
    size_t count;
    text_batch(&g->text, SEED, tokens.first_sequence, SEQUENCES, TOKENS, ids, targets);
    par_result r = forward(g, &tokens, ids);
    if (!r) // the logits become their gradient
        r = par_tp_loss_forward_backward(g->tp, &g->loss, &g->logits, targets, g->lse, NULL, loss, &count,
                                         1.0f / (float)ROWS, &g->logits);
    return r ? r : backward(g, &tokens, ids);
}
static par_result train(gpt *g) {
    par_result r = PAR_OK;
    for (int step = 0; step < g->steps && !r; step++) {
        par_zero_report report;
        double losses[MICROBATCHES] = {0}, loss = 0; // each in its place, so that they add up in one order
        for (int i = 0; i < g->sharding.microbatches && !r; i++) {
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
static par_result generate(gpt *g) { // a line; every rank does the same
    int32_t ids[101] = {g->text.number[(int)'\n']};
    float logits[256] = {0};
    char text[101] = "";
    par_result r = PAR_OK;
    for (int i = 0; i < 100 && !r; i++) {
        const int first = i < TOKENS ? 0 : i + 1 - TOKENS; // of the model's context
        const par_tp_tokens tokens = {1, (size_t)(i + 1 - first), 0, 0, NULL};
        r = forward(g, &tokens, ids + first);
        if (!r) r = par_tp_logits_gather(g->tp, &g->loss, &g->logits, tokens.sequence - 1, logits);
        for (size_t k = 1; k < g->text.vocabulary; k++) // the most probable character
            if (logits[k] > logits[ids[i + 1]]) ids[i + 1] = (int32_t)k;
        if (r || ids[i + 1] == ids[0]) break;
        text[i] = (char)g->text.character[ids[i + 1]];
    }
    if (!r && par_rank(g->world) == 0) printf("text: %s\n", text);
    return r;
}

// ---- main -------------------------------------------------------------------------------------------------

static par_result run(gpt *g) {
    const char *why = text_read(&g->text, g->data, TOKENS);
    if (why) return par_fail(g->world, PAR_ERR_FILE, "cannot learn %s: %s", g->data, why);
    char axes[64];
    snprintf(axes, sizeof axes, "dp=-1 tp=%d", g->tp_ranks);
    par_result r = par_mesh_open(g->world, axes, &g->mesh);
    if (!r) r = par_mesh_comm(g->mesh, "dp", &g->dp);      // they have the same part of each layer
    if (!r) r = par_mesh_comm(g->mesh, "tp", &g->tp_comm); // they share layers
    if (!r) r = open_model(g);
    if (!r) r = train(g);
    return r ? r : generate(g);
}
int main(int argc, char **argv) {
    static gpt g; // zeros
    g.steps = 200;
    g.sharding.stage = g.tp_ranks = 1;
    option options[] = {
        {"--ranks", OPTION_INT, &g.ranks.rank_count, "ranks on this machine; 0: PAR_RANKS or 1", 0, 1024},
        {"--steps", OPTION_INT, &g.steps, "steps of training", 0, INFINITY},
        {"--zero", OPTION_INT, &g.sharding.stage, "shard optimizer states (1), gradients (2), parameters (3)",
         0, 3},
        {"--tp", OPTION_INT, &g.tp_ranks, "ranks that share each layer", 1, 1024},
        {"--data", OPTION_TEXT, &g.data, "a file to learn; else five lines that the program has"},
    };
    const int parsed = options_parse(argc, argv, options, sizeof options / sizeof options[0],
                                     "Trains a small GPT, data- and tensor-parallel.");
    if (parsed) return parsed == 1 ? 0 : 2;
    if (par_open(&g.ranks, &g.world)) return 1;
    if (run(&g)) { // the other ranks notice that this one ends
        fprintf(stderr, "%s: rank %d: %s\n", argv[0], par_rank(g.world), par_last_error(g.world));
        return 1;
    }
    par_zero_close(g.zero);
    par_tp_arena_close(g.tp, &g.arena);
    par_tp_close(g.tp);
    par_mesh_close(g.mesh);
    return par_close(g.world) != PAR_OK || output_failed(argv[0]);
}

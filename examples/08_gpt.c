// 08_gpt.c - a GPT that learns a text byte by byte, with all of it at once: a pipeline of stages (pp), tensor
// and sequence parallelism within each layer (tp), data parallelism with ZeRO over the other ranks (dp).
//
//     $ cc -O2 -I. examples/08_gpt.c -o gpt -pthread -lm
//     $ PAR_RANKS=1 ./gpt LICENSE 3
//     step 1: loss 5.588910, gradient 2.913708
//     step 2: loss 5.410446, gradient 2.759457
//     step 3: loss 5.297022, gradient 2.473021
//     $ PAR_RANKS=8 ./gpt LICENSE 3 "pp=2 dp=2 tp=2" 3 | tail -n 1
//     step 3: loss 5.297022, gradient 2.473021
//
// Arguments: a text, steps, the grid (of pp, dp and tp), the ZeRO stage. All grids have the same weights.
// A model is a row of units: embedding, blocks, head. A stage of the pipeline has some of them. par_pipe.h
// says when a stage does a forward or a backward of a microbatch, par_zero.h brings the parameters of a unit
// and takes its gradients, and par_tp.h computes it, together with the other ranks of tp.
#define PAR_IMPLEMENTATION
#include "par_pipe.h"
#include "par_tp.h"
#include "par_zero.h"

enum { LAYERS = 4, HEADS = 4, FEATURES = 64, BYTES = 256, TOKENS = 32, SEQUENCES = 4, MICROBATCHES = 8 };
enum { ROWS = SEQUENCES * TOKENS, EMBEDDING = 0, HEAD = LAYERS + 1, UNITS = LAYERS + 2 };

static unsigned char text[1 << 20];
static size_t length, rows, bytes; // of the text; of what layers give each other, on this rank
static par_mesh *mesh;
static par_comm *world, *pp, *dp, *tp_comm, *model;
static int first, end; // this rank's stage has the units first ... end - 1
static uint64_t step;
static par_tp *tp;
static par_zero *zero;
static par_pipe_schedule table;
static par_pipe *pipeline;
static par_tp_embedding embedding = {
    .vocabulary = BYTES, .features = FEATURES, .max_positions = TOKENS, .name = "embedding"};
static par_tp_block blocks[UNITS];
static par_tp_norm norm = {.features = FEATURES, .name = "norm"};
static par_tp_linear head = {.in = FEATURES, .out = BYTES, .vocab_parallel = 1, .name = "head"};
static par_tp_loss loss = {.vocabulary = BYTES};
static par_tp_arena arena;              // the activations of a microbatch:
static par_tp_matrix in[UNITS], dx;     // the input of each unit; the gradient of one of them
static par_tp_block_saved saved[UNITS]; // what else a block's backward needs
static par_tp_matrix normed, logits;    // and the head's
static float *stats, *lse;

static void stop(void) { // prints what failed; the other ranks notice that this one ends
    fprintf(stderr, "rank %d: %s\n", par_rank(world), par_last_error(world));
    exit(1);
}
#define MUST(call) ((call) ? stop() : (void)0)
static int is_block(int u) { return u != EMBEDDING && u != HEAD; }

// Opens a unit's layers, which say what part of each parameter this rank has. par_zero.h gives it memory.
static void add_unit(int u) {
    par_tp_parameter *list[PAR_TP_BLOCK_PARAMETERS] = {NULL};
    par_parameter described[PAR_TP_BLOCK_PARAMETERS];
    par_tp_block *b = &blocks[u];
    snprintf(b->name, sizeof b->name, "unit %d", u);
    if (u == EMBEDDING) {
        MUST(par_tp_embedding_open(tp, &embedding));
        list[0] = &embedding.weight;
        list[1] = &embedding.position_weight;
    } else if (u == HEAD) {
        MUST(par_tp_norm_open(tp, &norm));
        MUST(par_tp_linear_open(tp, &head));
        list[0] = &norm.weight;
        list[1] = &head.weight;
    } else {
        b->features = FEATURES;
        b->attention.heads = HEADS;
        MUST(par_tp_block_open(tp, b));
        par_tp_block_parameters(b, list);
    }
    // random initial values take streams from 16 u on; commit tells what par_zero_add_layer refuses
    const int count = par_tp_describe(tp, list, PAR_TP_BLOCK_PARAMETERS, 16 * (uint64_t)u, described);
    par_zero_add_layer(zero, b->name, described, count);
}
static void lay_out(void *memory) { // a microbatch's activations; NULL: counts their bytes
    const par_tp_block_memory all = {.input = &arena};
    arena.data = memory;
    arena.used = 0;
    for (int u = first; u <= end && u < UNITS; u++) {
        par_tp_alloc(tp, &arena, rows, FEATURES, PAR_TP_SEQUENCE, &in[u]);
        if (is_block(u) && u < end) par_tp_block_alloc(tp, &blocks[u], ROWS, &all, &saved[u]);
    }
    par_tp_alloc(tp, &arena, rows, FEATURES, PAR_TP_SEQUENCE, &normed);
    par_tp_alloc(tp, &arena, ROWS, head.weight.local_rows, PAR_TP_VOCABULARY, &logits);
    par_tp_alloc_floats(tp, &arena, 2 * rows, &stats);
    par_tp_alloc_floats(tp, &arena, ROWS, &lse);
    MUST(par_tp_alloc(tp, &arena, rows, FEATURES, PAR_TP_SEQUENCE, &dx)); // the last one tells of all
}

static void forward(int u, const par_tp_tokens *tokens, const int32_t *ids) {
    MUST(par_zero_forward_begin(zero, u - first)); // until end the parameters are whole
    if (u == EMBEDDING) MUST(par_tp_embedding_forward(tp, &embedding, tokens, ids, &in[1]));
    if (u == HEAD) MUST(par_tp_norm_forward(tp, &norm, &in[u], stats, &normed));
    if (u == HEAD) MUST(par_tp_linear_forward(tp, &head, &normed, NULL, &logits));
    if (is_block(u)) MUST(par_tp_block_forward(tp, &blocks[u], tokens, 0, &in[u], &saved[u], &in[u + 1]));
    MUST(par_zero_forward_end(zero, u - first));
}
static void backward(int u, const par_tp_tokens *tokens, const int32_t *ids) { // dx: from output to input
    MUST(par_zero_backward_begin(zero, u - first));
    if (u == EMBEDDING) MUST(par_tp_embedding_backward(tp, &embedding, tokens, ids, &dx));
    if (u == HEAD) MUST(par_tp_linear_backward(tp, &head, &logits, &normed, &dx));
    if (u == HEAD) MUST(par_tp_norm_backward(tp, &norm, &dx, &in[u], stats, &dx));
    if (is_block(u)) MUST(par_tp_block_backward(tp, &blocks[u], tokens, 0, &dx, &in[u], &saved[u], &dx));
    MUST(par_zero_backward_end(zero, u - first)); // the sum over dp begins
}
static par_result work(void *user, const par_pipe_work *w) { // a forward or backward of this stage
    const uint64_t number = step * MICROBATCHES + par_zero_global_microbatch(zero, w->microbatch);
    const par_tp_tokens tokens = {SEQUENCES, TOKENS, number * SEQUENCES, 0, NULL};
    int32_t ids[ROWS], targets[ROWS];
    size_t count;
    (void)user;
    for (size_t i = 0; i < ROWS; i++) { // sequences from anywhere in the text; targets are one byte later
        const float where = par_uniform(1, 0, tokens.first_sequence + i / TOKENS) * (float)(length - TOKENS);
        ids[i] = text[(size_t)where + i % TOKENS];
        targets[i] = text[(size_t)where + i % TOKENS + 1];
    }
    lay_out(w->b);                   // of this microbatch
    if (w->x) in[first].data = w->x; // from the stage before
    if (w->y) in[end].data = w->y;   // to the next one
    if (w->kind == PAR_PIPE_F) {
        for (int u = first; u < end; u++) forward(u, &tokens, ids);
        if (w->loss)
            MUST(par_tp_loss_forward_backward(tp, &loss, &logits, targets, lse, NULL, w->loss, &count,
                                              1.0f / (float)ROWS, &logits));
    } else {
        if (w->dy) memcpy(dx.data, w->dy, bytes);
        for (int u = end - 1; u >= first; u--) backward(u, &tokens, ids);
        if (w->dx) memcpy(w->dx, dx.data, bytes);
    }
    return PAR_OK;
}

static void open_all(const char *axes, int zero_stage) {
    MUST(par_mesh_open(world, axes, &mesh));
    MUST(par_mesh_comm(mesh, "pp", &pp));
    MUST(par_mesh_comm(mesh, "dp", &dp));
    MUST(par_mesh_comm(mesh, "tp", &tp_comm));
    MUST(par_mesh_comm(mesh, "pp,tp", &model)); // those who have one copy of the model
    const double cost[UNITS] = {1, 4, 4, 4, 4, 2};
    int cut[UNITS + 1];
    if (par_size(pp) > UNITS) MUST(par_fail(world, PAR_ERR_ARGUMENT, "pp is more than %d", (int)UNITS));
    par_pipe_partition(cost, UNITS, par_size(pp), cut);
    first = cut[par_rank(pp)];
    end = cut[par_rank(pp) + 1];
    rows = ROWS / (size_t)par_size(tp_comm);
    bytes = rows * FEATURES * sizeof(float);
    const par_tp_desc layers = {.tp = tp_comm, .sequence_parallel = 1, .canonical_leaves = 4};
    MUST(par_tp_open(&layers, &tp)); // canonical: the same bits for any tp, and below for any dp
    const par_zero_desc sharding = {.comm = dp,
                                    .model_parallel_comm = model,
                                    .stage = zero_stage,
                                    .microbatches = MICROBATCHES / par_size(dp),
                                    .canonical_shards = MICROBATCHES,
                                    .hyper = {{.lr = 3e-3f}}};
    MUST(par_zero_open(&sharding, &zero));
    for (int u = first; u < end; u++) add_unit(u);
    MUST(par_zero_commit(zero));
    MUST(par_zero_init_all(zero));
    lay_out(NULL);
    arena.bytes = arena.used;
    const par_pipe_stage stage = {.input_bytes = bytes, .b_bytes = arena.bytes};
    const par_pipe_desc order = {.schedule = "1f1b",
                                 .ranks = par_size(pp),
                                 .microbatches = sharding.microbatches,
                                 .stages = &stage,
                                 .stage_count = 1};
    const par_pipe_exec execution = {.comm = pp, .fn = work, .broadcast_loss = 1};
    if (par_pipe_schedule_open(&order, &table)) MUST(par_fail(world, PAR_ERR_ARGUMENT, "%s", table.why));
    MUST(par_pipe_open(&table, &execution, &pipeline));
}

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (argc > 1 && !file) return perror(argv[1]), 2;
    if (file) length = fread(text, 1, sizeof text, file); // the first MiB of it
    if (file) fclose(file);
    if (length <= TOKENS) return fprintf(stderr, "usage: %s TEXT [STEPS] [GRID] [ZERO STAGE]\n", argv[0]), 2;
    if (par_open(NULL, &world)) return 1;
    open_all(argc > 3 ? argv[3] : "pp=1 dp=-1 tp=1", argc > 4 ? atoi(argv[4]) : 1);
    const uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
    for (step = 0; step < steps; step++) {
        par_pipe_report run;
        par_zero_report update;
        MUST(par_pipe_step(pipeline, &run)); // all forwards and backwards
        MUST(par_all_reduce(&run.loss, &run.loss, 1, PAR_F64, PAR_SUM, dp));
        MUST(par_zero_step(zero, 1, &update)); // the optimizer
        if (par_rank(world) == 0)
            printf("step %d: loss %.6f, gradient %.6f\n", (int)step + 1, run.loss / (MICROBATCHES * ROWS),
                   update.grad_norm);
    }
    MUST(par_pipe_close(pipeline));
    MUST(par_zero_close(zero));
    MUST(par_tp_close(tp));
    MUST(par_mesh_close(mesh));
    par_pipe_schedule_close(&table);
    return par_close(world) != PAR_OK || fflush(stdout);
}

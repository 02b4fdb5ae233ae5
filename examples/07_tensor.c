// 07_tensor.c - tensor parallelism: ranks share the layers of a model, and each has a part of every weight.
//
//     $ cc -O2 -I. examples/07_tensor.c -o tensor -pthread -lm
//     $ PAR_RANKS=1 ./tensor
//     step 1: loss 19.30432
//     step 2: loss 14.16629
//     step 3: loss 11.45007
//     step 4: loss 8.84514
//     step 5: loss 7.30593
//     $ PAR_RANKS=4 ./tensor
//     step 1: loss 19.30432
//     step 2: loss 14.16629
//     step 3: loss 11.45007
//     step 4: loss 8.84514
//     step 5: loss 7.30593
//
// An MLP is two products, y = gelu(x up) down. Cut `up` by columns: each rank computes some features of the
// middle, and needs no other rank for it. Cut `down` by rows, which are just those features: each rank gets a
// part of every sum, and one sum over the ranks makes y. Forward sends no more than that.
//
// Sequence parallelism cuts x and y, too, by rows (tokens). Then ranks gather x before `up`, and the sum
// after `down` leaves each rank its own rows: the same bytes travel, and activations take less memory.
//
//   x: rows of each rank   -> gather ->  up: columns  -> gelu ->  down: rows  -> sum, scatter ->  y: as x
#define PAR_IMPLEMENTATION
#include "par_tp.h"

enum { TOKENS = 64, FEATURES = 32, MIDDLE = 128, STEPS = 5 };

static par_comm *world;

static void stop(void) { // prints what failed; the other ranks notice that this one ends
    fprintf(stderr, "rank %d: %s\n", par_rank(world), par_last_error(world));
    exit(1);
}
#define MUST(call) ((call) ? stop() : (void)0)

// Each layer says what part of its weight this rank has, and you give it memory.
static void open_linear(par_tp *tp, par_tp_linear *l, size_t in, size_t out, int row_parallel) {
    l->in = in; // of the whole layer
    l->out = out;
    l->row_parallel = row_parallel;
    l->name = row_parallel ? "down" : "up"; // for error texts
    MUST(par_tp_linear_open(tp, l));
    const size_t count = l->weight.local_rows * l->weight.local_cols;
    l->weight.data = calloc(count, sizeof(float));
    l->weight.grad = (float *)calloc(count, sizeof(float));
    if (!l->weight.data || !l->weight.grad) MUST(par_fail(world, PAR_ERR_MEMORY, "no memory"));
    MUST(par_tp_init(tp, &l->weight, (uint64_t)row_parallel, 0.1f)); // the same whole weight for any ranks
}
static void close_linear(par_tp_linear *l) {
    free(l->weight.data);
    free(l->weight.grad);
}
static void update(par_tp_parameter *p) {
    float *weight = (float *)p->data;
    for (size_t i = 0; i < p->local_rows * p->local_cols; i++) {
        weight[i] -= 0.2f * p->grad[i];
        p->grad[i] = 0;
    }
}

int main(void) {
    if (par_open(NULL, &world)) return 1;
    par_tp *tp;
    par_tp_desc d = {0};
    d.tp = world; // all ranks share the layers
    d.sequence_parallel = 1;
    d.canonical_leaves = 4; // the same bits for 1, 2 and 4 ranks; 0 (faster): equal but for rounding
    MUST(par_tp_open(&d, &tp));
    par_tp_linear up, down;
    memset(&up, 0, sizeof up);
    memset(&down, 0, sizeof down);
    open_linear(tp, &up, FEATURES, MIDDLE, 0);
    open_linear(tp, &down, MIDDLE, FEATURES, 1);

    // A matrix carries its layout, and each call checks it. An arena first counts, then gives memory.
    const size_t rows = TOKENS / (size_t)par_size(world), middle = MIDDLE / (size_t)par_size(world);
    par_tp_arena arena = {0};
    par_tp_matrix x, all, a, h, y, da, dh;
    for (int counted = 0; counted < 2; counted++) {
        par_tp_alloc(tp, &arena, rows, FEATURES, PAR_TP_SEQUENCE, &x);
        par_tp_alloc(tp, &arena, rows, FEATURES, PAR_TP_SEQUENCE, &y);
        par_tp_alloc(tp, &arena, TOKENS, FEATURES, PAR_TP_REPLICATED, &all); // what `up` gathers
        par_tp_alloc(tp, &arena, TOKENS, middle, PAR_TP_HIDDEN, &a);
        par_tp_alloc(tp, &arena, TOKENS, middle, PAR_TP_HIDDEN, &h);
        par_tp_alloc(tp, &arena, TOKENS, middle, PAR_TP_HIDDEN, &da);
        MUST(par_tp_alloc(tp, &arena, TOKENS, middle, PAR_TP_HIDDEN, &dh)); // the last one tells of all
        if (!counted) MUST(par_tp_arena_open(tp, &arena));
    }

    float *in = (float *)x.data, *out = (float *)y.data;
    for (int step = 0; step < STEPS; step++) { // learns to move each feature to the next place
        const size_t first = (size_t)par_rank(world) * rows * FEATURES; // of this rank's numbers
        for (size_t i = 0; i < rows * FEATURES; i++) in[i] = par_normal(1, (uint64_t)step, first + i);
        MUST(par_tp_linear_forward(tp, &up, &x, &all, &a));
        MUST(par_tp_gelu_forward(tp, &a, &h));
        MUST(par_tp_linear_forward(tp, &down, &h, NULL, &y));

        double loss = 0;
        for (size_t i = 0; i < rows * FEATURES; i++) { // y becomes its own gradient
            const float error = out[i] - in[i / FEATURES * FEATURES + (i + 1) % FEATURES];
            out[i] = error / (float)TOKENS;
            loss += 0.5 * (double)error * (double)out[i];
        }
        MUST(par_all_reduce(&loss, &loss, 1, PAR_F64, PAR_SUM, world)); // over all tokens

        MUST(par_tp_linear_backward(tp, &down, &y, &h, &dh));
        MUST(par_tp_gelu_backward(tp, &dh, &a, &da));
        MUST(par_tp_linear_backward(tp, &up, &da, &all, NULL)); // x needs no gradient
        update(&up.weight); // each rank its own part: these gradients are complete
        update(&down.weight);
        if (par_rank(world) == 0) printf("step %d: loss %.5f\n", step + 1, loss);
    }
    close_linear(&up);
    close_linear(&down);
    par_tp_arena_close(tp, &arena);
    MUST(par_tp_close(tp));
    return par_close(world) != PAR_OK || fflush(stdout);
}

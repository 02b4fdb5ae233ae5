// 05_zero.c - data parallelism: ranks train one model on different data, and ZeRO shards what each would have
// a copy of. The stage says what: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters.
//
//     $ cc -O2 -I. examples/05_zero.c -o zero -pthread -lm
//     $ PAR_RANKS=1 ./zero 0
//     step  1: loss 1.58610, gradient 4.06501
//     step  2: loss 1.15959, gradient 2.95434
//     step  3: loss 0.89171, gradient 2.67344
//     step  4: loss 0.58242, gradient 1.71802
//     step  5: loss 0.50268, gradient 1.66904
//     $ PAR_RANKS=4 ./zero 3 | tail -n 1
//     step  5: loss 0.50268, gradient 1.66904
//     $ PAR_RANKS=4 ./zero 3 20 saved | tail -n 1
//     step 20: loss 0.23938, gradient 0.38264
//     $ PAR_RANKS=2 ./zero 1 21 saved
//     step 21: loss 0.23641, gradient 0.24796
//
// The arguments are stage, steps, and a directory for checkpoints. One saved by 4 ranks in stage 3 goes on
// with 2 ranks in stage 1. The losses have the same bits for every stage and 1, 2, 4 or 8 ranks: others do
// not divide the 8 microbatches. (Delete the directory to begin anew.)
//
// The model is y = v tanh(W x), and learns the sine of the sum of x. Its two layers are two units. A layer is
// used between begin and end: that is when par_zero.h has its parameters whole, and its gradients ready.
#define PAR_IMPLEMENTATION
#include "par_zero.h"
#include <unistd.h>

enum { MICROBATCHES = 8, ROWS = 16, IN = 4, HIDDEN = 32 }; // of a step, over all ranks; of a microbatch

static par_comm *world;

static void stop(void) { // prints what failed; the other ranks notice that this one ends
    fprintf(stderr, "rank %d: %s\n", par_rank(world), par_last_error(world));
    exit(1);
}
#define MUST(call) ((call) ? stop() : (void)0)

// Forward and backward of one microbatch; its number tells it from all others of the training.
static double microbatch(par_zero *z, uint64_t number) {
    float x[ROWS][IN], h[ROWS][HIDDEN], dh[ROWS][HIDDEN], dy[ROWS];
    double loss = 0;
    for (int i = 0; i < ROWS * IN; i++) x[i / IN][i % IN] = par_normal(2, number, (uint64_t)i);

    MUST(par_zero_forward_begin(z, 0)); // unit 0: in stage 3 its shards are gathered here
    const float *W = (const float *)par_zero_data(z, 0);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < HIDDEN; k++) {
            float sum = 0;
            for (int j = 0; j < IN; j++) sum += W[k * IN + j] * x[i][j];
            h[i][k] = tanhf(sum);
        }
    MUST(par_zero_forward_end(z, 0)); // from here on W is gone

    MUST(par_zero_forward_begin(z, 1));
    const float *v = (const float *)par_zero_data(z, 1);
    for (int i = 0; i < ROWS; i++) {
        float y = -sinf(x[i][0] + x[i][1] + x[i][2] + x[i][3]);
        for (int k = 0; k < HIDDEN; k++) y += v[k] * h[i][k];
        dy[i] = y / (float)ROWS;
        loss += 0.5 * (double)y * (double)dy[i];
    }
    MUST(par_zero_forward_end(z, 1));

    MUST(par_zero_backward_begin(z, 1));
    v = (const float *)par_zero_data(z, 1);
    float *dv = par_zero_grad(z, 1); // add to it
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < HIDDEN; k++) {
            dv[k] += dy[i] * h[i][k];
            dh[i][k] = dy[i] * v[k] * (1 - h[i][k] * h[i][k]);
        }
    MUST(par_zero_backward_end(z, 1)); // the sum over the ranks begins, and runs beside what follows

    MUST(par_zero_backward_begin(z, 0));
    float *dW = par_zero_grad(z, 0);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < HIDDEN; k++)
            for (int j = 0; j < IN; j++) dW[k * IN + j] += dh[i][k] * x[i][j];
    MUST(par_zero_backward_end(z, 0));
    return loss;
}

static par_zero *open_model(int stage) {
    par_zero *z;
    par_zero_desc d = {0}; // zeros are defaults: AdamW, f32, no offloading ...
    d.comm = world;
    d.stage = stage;
    d.clip = 1;
    d.hyper[0].lr = 0.01f;
    d.microbatches = MICROBATCHES / par_size(world); // of this rank
    d.canonical_shards = MICROBATCHES;               // the same bits on any number of ranks
    MUST(par_zero_open(&d, &z));
    par_zero_tensor W = {0}, v = {0};
    W.name = "W";
    W.dims = 2;
    W.shape[0] = HIDDEN;
    W.shape[1] = IN;
    W.deviation = 0.5f; // of random initial values; each tensor has a stream of them
    v.name = "v";
    v.dims = 1;
    v.shape[0] = HIDDEN;
    v.deviation = 0.5f;
    v.stream = 1;
    par_zero_add_unit(z, "first"); // what these refuse, commit refuses
    par_zero_add_tensor(z, &W);
    par_zero_add_unit(z, "second");
    par_zero_add_tensor(z, &v);
    MUST(par_zero_commit(z)); // allocates everything
    MUST(par_zero_init_all(z));
    return z;
}

int main(int argc, char **argv) {
    const int stage = argc > 1 ? atoi(argv[1]) : 3;
    const uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 5;
    par_zero_checkpoint files = {0};
    files.dir = argc > 3 ? argv[3] : NULL;
    char manifest[4096]; // there once a checkpoint is whole
    snprintf(manifest, sizeof manifest, "%s/manifest.json", argc > 3 ? argv[3] : "");
    if (par_open(NULL, &world)) return 1;
    par_zero *z = open_model(stage);
    if (files.dir && !access(manifest, F_OK)) MUST(par_zero_load(z, &files)); // of any ranks and stage
    while (par_zero_steps(z) < steps) {
        const uint64_t step = par_zero_steps(z);
        double losses[MICROBATCHES] = {0}, loss = 0; // each in its place, so that they add up in one order
        for (int i = 0; i < MICROBATCHES / par_size(world); i++) {
            const uint64_t number = par_zero_global_microbatch(z, i); // which are mine depends on the stage
            losses[number] = microbatch(z, step * MICROBATCHES + number);
        }
        MUST(par_all_reduce(losses, losses, MICROBATCHES, PAR_F64, PAR_SUM, world));
        for (int i = 0; i < MICROBATCHES; i++) loss += losses[i] / (double)MICROBATCHES;
        par_zero_report report;
        MUST(par_zero_step(z, 1, &report)); // the optimizer
        if (par_rank(world) == 0)
            printf("step %2d: loss %.5f, gradient %.5f\n", (int)step + 1, loss, report.grad_norm);
        if (files.dir && ((step + 1) % 10 == 0 || step + 1 == steps)) MUST(par_zero_save(z, &files));
    }
    MUST(par_zero_close(z));
    return par_close(world) != PAR_OK || fflush(stdout);
}

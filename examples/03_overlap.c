// 03_overlap.c - communication beside computation: begin a call, compute, wait.
//
//     $ cc -O2 -I. examples/03_overlap.c -o overlap -pthread -lm
//     $ PAR_RANKS=3 ./overlap
//     8 layers of 20000 weights on 3 ranks: 0 sums differ
//
// A backward pass computes the gradients of the last layer first, and the update needs all of them, summed
// over the ranks. The sum of one layer can travel while the next layer is computed. Each call has a form that
// ends in _begin: it returns at once and leaves a request, and par_wait ends it.
//
// Two rules. Between begin and wait the arrays belong to the call: read and write other ones. And all ranks
// begin the same calls in the same order; they may wait in any order.
#define PAR_IMPLEMENTATION
#include "par.h"

enum { LAYERS = 8, WEIGHTS = 20000 };

static par_comm *world;

static void stop(void) { // prints what failed; the other ranks notice that this one ends
    fprintf(stderr, "rank %d: %s\n", par_rank(world), par_last_error(world));
    exit(1);
}
#define MUST(call) ((call) ? stop() : (void)0)

static void backward(int layer, float *gradient) { // stands for a layer's real work
    for (int i = 0; i < WEIGHTS; i++)
        gradient[i] = 1.0f / (float)(1 + layer + i % 7 + par_rank(world)); // each rank has other data
}

static void one_by_one(float (*gradient)[WEIGHTS]) { // computes, waits, computes, waits
    for (int l = LAYERS - 1; l >= 0; l--) {
        backward(l, gradient[l]);
        MUST(par_all_reduce(gradient[l], gradient[l], WEIGHTS, PAR_F32, PAR_SUM, world));
    }
}

static void overlapped(float (*gradient)[WEIGHTS]) { // waits once, at the end
    par_request sums[LAYERS];
    for (int l = LAYERS - 1; l >= 0; l--) {
        backward(l, gradient[l]);
        MUST(par_all_reduce_begin(gradient[l], gradient[l], WEIGHTS, PAR_F32, PAR_SUM, world, &sums[l]));
    }
    MUST(par_wait_all(sums, LAYERS)); // the first error of any of them, or PAR_OK
}

int main(void) {
    static float slow[LAYERS][WEIGHTS], fast[LAYERS][WEIGHTS];
    if (par_open(NULL, &world)) return 1;
    one_by_one(slow);
    overlapped(fast);

    // A sum is added in rank order, however and whenever it travels: so both gradients are the same bits.
    uint64_t differ = 0;
    for (int i = 0; i < LAYERS * WEIGHTS; i++)
        differ += slow[i / WEIGHTS][i % WEIGHTS] != fast[i / WEIGHTS][i % WEIGHTS];
    MUST(par_all_reduce(&differ, &differ, 1, PAR_U64, PAR_SUM, world));
    if (par_rank(world) == 0)
        printf("%d layers of %d weights on %d ranks: %d sums differ\n", LAYERS, WEIGHTS, par_size(world),
               (int)differ);
    return par_close(world) != PAR_OK || fflush(stdout);
}

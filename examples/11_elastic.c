// 11_elastic.c - 05_zero.c, which goes on when a rank dies. A diff of the two shows what that takes: an
// elastic world, buddies, errors that come back to the loop, and go_on.
//
//     $ cc -O2 -I. examples/11_elastic.c -o elastic -pthread -lm
//     $ PAR_RANKS=4 ./elastic | tee undisturbed | sed '/weights/s/ .*/ .../'
//     step  1: loss 1.58610, gradient 4.06501
//     step  2: loss 1.15959, gradient 2.95434
//     step  3: loss 0.89171, gradient 2.67344
//     step  4: loss 0.58242, gradient 1.71802
//     step  5: loss 0.50268, gradient 1.66904
//     weights ...
//     $ PAR_RANKS=4 ./elastic 0 | tee disturbed | sed '/weights/s/ .*/ .../'
//     step  1: loss 1.58610, gradient 4.06501
//     step  2: loss 1.15959, gradient 2.95434
//     3 ranks are left, 2 train: step 3 again
//     step  3: loss 0.89171, gradient 2.67344
//     step  4: loss 0.58242, gradient 1.71802
//     step  5: loss 0.50268, gradient 1.66904
//     weights ...
//     $ grep weights undisturbed >a; grep weights disturbed | diff a - && echo the same weights
//     the same weights
//     $ PAR_RANKS=8 ./elastic 5 | grep weights | diff a - && echo the same weights
//     the same weights
//
// The argument is a rank, which kills itself in the third step. Rank 0 may be that one, because the process
// that called par_open is no rank here: it starts the ranks, and waits for them.
//
// With canonical_shards powers of two give the same bits. So the largest one that is left trains. The others
// are spares, which wait in a barrier, and take a place when the next rank dies. (docs/faults.md)
#define PAR_IMPLEMENTATION
#include "par_zero.h"
#include <signal.h>

enum { MICROBATCHES = 8, ROWS = 16, IN = 4, HIDDEN = 32 }; // of a step, over all ranks; of a microbatch
enum { STEPS = 5, FATAL_STEP = 2 };

static par_comm *world, *trains; // all ranks that live; those that train, or NULL: this one is a spare

static void stop(void) { // prints what failed; the other ranks notice that this one ends
    fprintf(stderr, "rank %d: %s\n", par_rank(world), par_last_error(world));
    exit(1);
}
#define MUST(call) ((call) ? stop() : (void)0)
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        const par_result failed = (call);                                                                    \
        if (failed) return failed;                                                                           \
    } while (0)

// Forward and backward of one microbatch; its number tells it from all others of the training.
static par_result microbatch(par_zero *z, uint64_t number, double *loss) {
    float x[ROWS][IN], h[ROWS][HIDDEN], dh[ROWS][HIDDEN], dy[ROWS];
    for (int i = 0; i < ROWS * IN; i++) x[i / IN][i % IN] = par_normal(2, number, (uint64_t)i);

    TRY(par_zero_forward_begin(z, 0)); // unit 0: in stage 3 its shards are gathered here
    const float *W = (const float *)par_zero_data(z, 0);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < HIDDEN; k++) {
            float sum = 0;
            for (int j = 0; j < IN; j++) sum += W[k * IN + j] * x[i][j];
            h[i][k] = tanhf(sum);
        }
    TRY(par_zero_forward_end(z, 0)); // from here on W is gone

    TRY(par_zero_forward_begin(z, 1));
    const float *v = (const float *)par_zero_data(z, 1);
    for (int i = 0; i < ROWS; i++) {
        float y = -sinf(x[i][0] + x[i][1] + x[i][2] + x[i][3]);
        for (int k = 0; k < HIDDEN; k++) y += v[k] * h[i][k];
        dy[i] = y / (float)ROWS;
        *loss += 0.5 * (double)y * (double)dy[i];
    }
    TRY(par_zero_forward_end(z, 1));

    TRY(par_zero_backward_begin(z, 1));
    v = (const float *)par_zero_data(z, 1);
    float *dv = par_zero_grad(z, 1); // add to it
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < HIDDEN; k++) {
            dv[k] += dy[i] * h[i][k];
            dh[i][k] = dy[i] * v[k] * (1 - h[i][k] * h[i][k]);
        }
    TRY(par_zero_backward_end(z, 1)); // the sum over the ranks begins, and runs beside what follows

    TRY(par_zero_backward_begin(z, 0));
    float *dW = par_zero_grad(z, 0);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < HIDDEN; k++)
            for (int j = 0; j < IN; j++) dW[k * IN + j] += dh[i][k] * x[i][j];
    TRY(par_zero_backward_end(z, 0));
    return PAR_OK;
}

static par_zero *open_model(void) {
    par_zero *z;
    par_zero_desc d = {0}; // zeros are defaults: AdamW, f32, no offloading ...
    d.comm = trains;
    d.stage = 1;
    d.buddies = 1; // the next rank has a copy of this one's shard
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

// Data depend on the number of the step alone: so it can be made again.
static par_result train_step(par_zero *z, int dies) {
    const uint64_t step = par_zero_steps(z);
    double losses[MICROBATCHES] = {0}, loss = 0; // each in its place, so that they add up in one order
    for (int i = 0; i < MICROBATCHES / par_size(trains); i++) {
        const uint64_t number = par_zero_global_microbatch(z, i);
        TRY(microbatch(z, step * MICROBATCHES + number, &losses[number]));
        if (dies && step == FATAL_STEP) raise(SIGKILL);
    }
    TRY(par_all_reduce(losses, losses, MICROBATCHES, PAR_F64, PAR_SUM, trains));
    for (int i = 0; i < MICROBATCHES; i++) loss += losses[i] / (double)MICROBATCHES;
    par_zero_report report;
    TRY(par_zero_step(z, 1, &report));
    if (par_rank(trains) == 0)
        printf("step %2d: loss %.5f, gradient %.5f\n", (int)step + 1, loss, report.grad_norm);
    return PAR_OK;
}

// After an error: the ranks that are left form new comms, and the optimizer's states move there.
static void go_on(par_zero *z, par_result r) {
    par_comm *old = world, *trained = trains;
    if (r != PAR_ERR_PEER_DIED && r != PAR_ERR_TIMEOUT && r != PAR_ERR_REVOKED) stop(); // no rank has died
    MUST(par_revoke(old));               // ranks in calls on other comms come back, too
    if (par_shrink(old, &world)) stop(); // those that live, in the same order
    int n = 1;
    while (2 * n <= par_size(world)) n *= 2;
    const int me = par_rank(world);
    par_zero_comms now = {0};
    par_zero_recovery said;
    now.recovery = &said;
    r = par_split(world, me < n ? 0 : -1, me, &trains); // a spare gets NULL
    now.comm = trains;
    if (!r) r = par_zero_recover(z, world, &now);
    if (!r && me == 0)
        printf("%d ranks are left, %d train: step %d %s\n", par_size(world), n, (int)said.step + 1,
               said.repeated ? "again" : "is next");
    if (r) go_on(z, r); // another one died meanwhile
    if (trained && trained != old) MUST(par_close(trained));
    MUST(par_close(old));
}

static void print_weights(par_zero *z) { // a hash (FNV-1a) of their bits
    uint64_t hash = 14695981039346656037u;
    for (int unit = 0; unit < 2; unit++) {
        MUST(par_zero_forward_begin(z, unit));
        const unsigned char *bytes = (const unsigned char *)par_zero_data(z, unit);
        const size_t n = sizeof(float) * (unit ? HIDDEN : HIDDEN * IN);
        for (size_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
        MUST(par_zero_forward_end(z, unit));
    }
    if (par_rank(trains) == 0) printf("weights %016llx\n", (unsigned long long)hash);
}

int main(int argc, char **argv) {
    par_desc desc = {0};
    desc.elastic = 1;
    if (par_open(&desc, &world)) return 1; // only the ranks return
    const int dies = argc > 1 && atoi(argv[1]) == par_rank(world);
    setvbuf(stdout, NULL, _IOLBF, 0); // a rank that is killed has printed its lines
    trains = world;                   // PAR_RANKS is a power of two
    par_zero *z = open_model();
    for (;;) {
        par_result r = PAR_OK;
        while (!r && trains && par_zero_steps(z) < STEPS) r = train_step(z, dies);
        if (!r) r = par_barrier(world); // spares wait here
        if (!r) break;
        go_on(z, r);
    }
    if (trains) print_weights(z);
    MUST(par_zero_close(z));
    if (trains && trains != world) MUST(par_close(trains));
    return par_close(world) != PAR_OK || fflush(stdout);
}

// 04_zero.c - a training loop on par_zero.h: microbatches, clipping, checkpoints; the same bits on any number
// of ranks, and after a resume.
//
//     PAR_RANKS=4 build/04_zero DIR 20 3      up to step 20, with ZeRO stage 3; saved in DIR
//     PAR_RANKS=2 build/04_zero DIR 30 1      ten more steps, on two ranks, with stage 1
//
// The model is y = v tanh(W x), which learns sin of the sum of x. Its two layers are two units.
#define PAR_IMPLEMENTATION
#include "par_zero.h"
#include <unistd.h>

enum { MICROBATCHES = 8, ROWS = 16, IN = 4, HIDDEN = 32 }; // of a step, over all ranks; of a microbatch

static void give_start(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = 0.5f * par_normal(1, *(const uint64_t *)user, first + i);
}

// Forward and backward of one microbatch, which a number tells from all others of the run.
static par_result microbatch(par_zero *z, uint64_t number, double *loss) {
    float x[ROWS][IN], h[ROWS][HIDDEN], dy[ROWS];
    par_result r = par_zero_forward_begin(z, 0); // unit 0 is W
    const float *W = (const float *)par_zero_data(z, 0);
    for (int i = 0; i < ROWS * IN && !r; i++) x[i / IN][i % IN] = par_normal(2, number, (uint64_t)i);
    for (int i = 0; i < ROWS * HIDDEN && !r; i++) {
        float sum = 0;
        for (int k = 0; k < IN; k++) sum += W[i % HIDDEN * IN + k] * x[i / HIDDEN][k];
        h[i / HIDDEN][i % HIDDEN] = tanhf(sum);
    }
    if (r || (r = par_zero_forward_end(z, 0)) || (r = par_zero_forward_begin(z, 1))) return r;
    const float *v = (const float *)par_zero_data(z, 1); // there until forward_end
    for (int i = 0; i < ROWS; i++) {
        float y = -sinf(x[i][0] + x[i][1] + x[i][2] + x[i][3]);
        for (int k = 0; k < HIDDEN; k++) y += v[k] * h[i][k];
        dy[i] = y / ROWS;
        *loss += 0.5 * (double)y * (double)y / ROWS;
    }
    if ((r = par_zero_forward_end(z, 1)) || (r = par_zero_backward_begin(z, 1))) return r;
    float *dv = par_zero_grad(z, 1), dh[ROWS][HIDDEN]; // gradients are added to what is there
    v = (const float *)par_zero_data(z, 1);
    for (int i = 0; i < ROWS * HIDDEN; i++) {
        const int row = i / HIDDEN, k = i % HIDDEN;
        dv[k] += dy[row] * h[row][k];
        dh[row][k] = dy[row] * v[k] * (1 - h[row][k] * h[row][k]);
    }
    if ((r = par_zero_backward_end(z, 1)) || (r = par_zero_backward_begin(z, 0))) return r;
    float *dW = par_zero_grad(z, 0); // that of unit 1 is on its way meanwhile
    for (int i = 0; i < ROWS * HIDDEN * IN; i++)
        dW[i % (HIDDEN * IN)] += dh[i / (HIDDEN * IN)][i / IN % HIDDEN] * x[i / (HIDDEN * IN)][i % IN];
    return par_zero_backward_end(z, 0);
}

// ---- the loop ---------------------------------------------------------------------------------------------

static par_result train(par_comm *world, const char *dir, uint64_t steps, int stage) {
    static const size_t shapes[2][2] = {{HIDDEN, IN}, {HIDDEN, 1}};
    char manifest[4096];
    par_zero *z;
    par_zero_desc d = {0};
    par_zero_checkpoint files = {0};
    par_zero_report report;
    d.comm = world;
    d.stage = stage;
    d.clip = 1;
    d.hyper[0].lr = 0.01f;
    d.canonical_shards = MICROBATCHES;
    d.microbatches = MICROBATCHES / par_size(world);
    par_result r = par_zero_open(&d, &z);
    for (int i = 0; i < 2 && !r; i++) {
        par_zero_tensor t = {0};
        t.name = i ? "v" : "W";
        t.dims = 2;
        t.shape[0] = shapes[i][0];
        t.shape[1] = shapes[i][1];
        par_zero_add_unit(z, i ? "second" : "first");
        par_zero_add_tensor(z, &t); // what these refuse, commit refuses
    }
    if (!r) r = par_zero_commit(z);
    for (uint64_t i = 0; i < 2 && !r; i++) r = par_zero_fill(z, (int)i, PAR_ZERO_VALUE, give_start, &i);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", dir);
    files.dir = dir;
    if (!r && !access(manifest, F_OK)) r = par_zero_load(z, &files); // of any number of ranks, and stage
    while (!r && par_zero_steps(z) < steps) {
        const uint64_t step = par_zero_steps(z);
        double losses[MICROBATCHES] = {0}, loss = 0; // each in its place, so that they add up in one order
        for (int i = 0; i < d.microbatches && !r; i++) {
            const uint64_t number =
                par_zero_global_microbatch(z, i); // among the step's; it depends on the stage
            r = microbatch(z, step * MICROBATCHES + number, &losses[number]);
        }
        if (!r) r = par_all_reduce(losses, losses, MICROBATCHES, PAR_F64, PAR_SUM, world);
        if (!r) r = par_zero_step(z, 1, &report);
        for (int i = 0; i < MICROBATCHES; i++) loss += losses[i] / MICROBATCHES;
        if (!r && par_rank(world) == 0)
            printf("step %d loss %.9g norm %.9g\n", (int)step + 1, loss, report.grad_norm);
        if (!r && ((step + 1) % 10 == 0 || step + 1 == steps)) r = par_zero_save(z, &files);
    }
    if (r) fprintf(stderr, "04_zero: rank %d: %s\n", par_rank(world), par_last_error(world));
    par_zero_close(z);
    return r;
}

int main(int argc, char **argv) {
    par_comm *world;
    if (argc < 3) return fprintf(stderr, "usage: 04_zero DIR STEPS [STAGE]\n"), 2;
    if (par_open(NULL, &world)) return 1;
    const par_result r = train(world, argv[1], strtoull(argv[2], NULL, 10), argc > 3 ? atoi(argv[3]) : 3);
    if (r) return 1; // the other ranks notice
    const int lost = fflush(stdout);
    if (lost) perror("04_zero");
    return par_close(world) != PAR_OK || lost;
}

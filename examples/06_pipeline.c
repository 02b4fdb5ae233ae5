// 06_pipeline.c - a model in two stages, one on each rank, and microbatches that pass through them.
//
//     $ cc -O2 -I. examples/06_pipeline.c -o pipeline -pthread -lm
//     $ PAR_RANKS=2 ./pipeline
//     rank 0   |00001111........aaaaaaaa2222bbbbbbbb3333cccccccc4444dddddddd5555eeeeeeee....ffffffff
//     rank 1   |....0000aaaaaaaa1111bbbbbbbb2222cccccccc3333dddddddd4444eeeeeeee5555ffffffff........
//     digits: forward of microbatch 0, 1 ...; a, b ...: backward; .: idle
//     step 1: loss 0.75360
//     step 2: loss 0.29598
//     step 3: loss 0.20746
//     step 4: loss 0.19155
//     step 5: loss 0.17018
//     $ PAR_RANKS=2 ./pipeline gpipe | tail -n 1
//     step 5: loss 0.17018
//
// A schedule says in which order a rank does the forwards and backwards of its stage. It is a table of
// actions, made and checked before anything runs; the picture shows it, simulated. You write one function
// that does one action, `work` below. par_pipe.h calls it in the order of the table, and sends what stages
// give each other: the output of a forward, the gradient of a backward.
//
// Stage 0 computes h = tanh(W x), stage 1 computes y = v h, which is to become the sine of the sum of x.
#define PAR_IMPLEMENTATION
#include "par_math.h"
#include "par_pipe.h"

enum { MICROBATCHES = 6, ROWS = 32, IN = 4, HIDDEN = 16, STEPS = 5 };

static par_comm *world;

static void stop(const char *why) { // the other rank notices that this one ends
    fprintf(stderr, "rank %d: %s\n", par_rank(world), why);
    exit(1);
}
#define MUST(call) ((call) ? stop(par_last_error(world)) : (void)0)

typedef struct model {
    uint64_t step;
    float W[HIDDEN][IN], dW[HIDDEN][IN]; // of stage 0, with gradients
    float v[HIDDEN], dv[HIDDEN];         // of stage 1
} model;

// Random numbers are found by their place, so both ranks have the same data without sending them.
static float input(const model *m, int microbatch, int row, int i) {
    return par_normal(1, m->step, (uint64_t)((microbatch * ROWS + row) * IN + i));
}

// w->y is sent to the next stage; w->b stays here until this microbatch's backward.
static void first_forward(model *m, const par_pipe_work *w, float (*h)[HIDDEN]) {
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < HIDDEN; k++) {
            float sum = 0;
            for (int i = 0; i < IN; i++) sum += m->W[k][i] * input(m, w->microbatch, r, i);
            h[r][k] = tanhf(sum);
        }
    memcpy(w->y, h, sizeof(float[ROWS][HIDDEN]));
}
static void first_backward(model *m, const par_pipe_work *w, const float (*h)[HIDDEN]) {
    const float(*dh)[HIDDEN] = (const float(*)[HIDDEN])w->dy; // came from stage 1
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < HIDDEN; k++)
            for (int i = 0; i < IN; i++)
                m->dW[k][i] += dh[r][k] * (1 - h[r][k] * h[r][k]) * input(m, w->microbatch, r, i);
}
static void last_forward(model *m, const par_pipe_work *w, float *dy) {
    const float(*h)[HIDDEN] = (const float(*)[HIDDEN])w->x; // came from stage 0, and stays until backward
    *w->loss = 0;
    for (int r = 0; r < ROWS; r++) {
        float x = 0, y = 0;
        for (int i = 0; i < IN; i++) x += input(m, w->microbatch, r, i);
        for (int k = 0; k < HIDDEN; k++) y += m->v[k] * h[r][k];
        dy[r] = (y - sinf(x)) / (ROWS * MICROBATCHES);
        *w->loss += 0.5 * (double)(y - sinf(x)) * (double)dy[r];
    }
}
static void last_backward(model *m, const par_pipe_work *w, const float *dy) {
    const float(*h)[HIDDEN] = (const float(*)[HIDDEN])w->x;
    float(*dh)[HIDDEN] = (float(*)[HIDDEN])w->dx; // goes to stage 0
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < HIDDEN; k++) {
            m->dv[k] += dy[r] * h[r][k];
            dh[r][k] = dy[r] * m->v[k];
        }
}
static par_result work(void *user, const par_pipe_work *w) { // one action of this rank's stage
    model *m = (model *)user;
    float(*h)[HIDDEN] = (float(*)[HIDDEN])w->b;
    float *dy = (float *)w->b;
    if (w->kind == PAR_PIPE_F && w->is_first)
        first_forward(m, w, h);
    else if (w->kind == PAR_PIPE_F)
        last_forward(m, w, dy);
    else if (w->kind == PAR_PIPE_BW && w->is_first)
        first_backward(m, w, h);
    else if (w->kind == PAR_PIPE_BW)
        last_backward(m, w, dy);
    else
        return par_fail(world, PAR_ERR_ARGUMENT, "this program has no %s", par_pipe_kind_name(w->kind));
    return PAR_OK;
}

static void update(float *weights, float *gradient, int count) {
    for (int i = 0; i < count; i++) {
        weights[i] -= 0.3f * gradient[i];
        gradient[i] = 0;
    }
}

int main(int argc, char **argv) {
    static model m;
    par_pipe_schedule schedule;
    par_pipe_stage cost = {0}; // of a stage: seconds, and bytes of what it gets and keeps
    par_pipe_desc order = {0};
    par_pipe_exec execution = {0};
    par_pipe *pipe;
    if (par_open(NULL, &world)) return 1;

    cost.f = 1; // a backward computes twice as much
    cost.b = cost.w = 1;
    cost.input_bytes = cost.b_bytes = sizeof(float[ROWS][HIDDEN]);
    order.schedule = argc > 1 ? argv[1] : "1f1b";
    order.ranks = 2;
    order.microbatches = MICROBATCHES;
    order.stages = &cost;
    order.stage_count = 1; // all stages cost the same
    if (par_pipe_schedule_open(&order, &schedule)) stop(schedule.why);
    par_pipe_timeline plan;
    if (par_pipe_simulate(&schedule, PAR_PIPE_NONBLOCKING, &plan)) stop(schedule.why);
    if (par_rank(world) == 0) par_pipe_print(&schedule, &plan, 84, 0, stdout);
    par_pipe_timeline_close(&plan);

    execution.comm = world;
    execution.fn = work;
    execution.user = &m;
    execution.broadcast_loss = 1;                      // else the last stage alone knows it
    MUST(par_pipe_open(&schedule, &execution, &pipe)); // do all ranks have the same table?
    for (int i = 0; i < HIDDEN * IN; i++) m.W[i / IN][i % IN] = 0.5f * par_normal(2, 0, (uint64_t)i);
    for (int i = 0; i < HIDDEN; i++) m.v[i] = 0.5f * par_normal(2, 1, (uint64_t)i);
    for (m.step = 0; m.step < STEPS; m.step++) {
        par_pipe_report report;
        MUST(par_pipe_step(pipe, &report));
        update(&m.W[0][0], &m.dW[0][0], HIDDEN * IN); // each rank has gradients of its own stage
        update(m.v, m.dv, HIDDEN);
        if (par_rank(world) == 0) printf("step %d: loss %.5f\n", (int)m.step + 1, report.loss);
    }
    MUST(par_pipe_close(pipe));
    par_pipe_schedule_close(&schedule);
    return par_close(world) != PAR_OK || fflush(stdout);
}

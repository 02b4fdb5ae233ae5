// par_pipe.h - pipeline schedules as data: generate, verify, simulate, draw and execute them.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_PIPE_IMPLEMENTATION)
#define PAR_PIPE_IMPLEMENTATION
#endif
// clang-format on

#include "par.h"
#if PAR_VERSION != 900
#error "par_pipe.h is version 0.9.0, and par.h is of another version: take all headers from one version"
#endif

#ifndef PAR_PIPE_H
#define PAR_PIPE_H
/*
WHAT
    A model is cut into stages, a batch into microbatches, and each rank runs its stages in an order that is
    a table of actions. A generator makes the table. A verifier proves that it is complete and free of
    deadlocks, and counts its memory. A simulator times it. An executor runs it with your functions on any
    comm. The plan and the run can be drawn.

USE
    #define PAR_IMPLEMENTATION        in one file
    #include "par_pipe.h"             cc -O2 prog.c -pthread -lm

STEP BY STEP (you have a model as a list of layers)
    1. par_pipe_partition cuts it into stages. par_pipe_schedule_open makes the table of a par_pipe_desc.
    2. par_pipe_simulate and par_pipe_print show the schedule; no ranks are needed yet.
    3. Write fn, which does one action of one stage. Call par_pipe_open once, par_pipe_step for every batch.

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par_pipe.h"

    static par_result work(void *user, const par_pipe_work *w) { // stage s adds s + 1 to a number
        float *weight_gradient = (float *)user;
        if (w->kind == PAR_PIPE_F && w->is_last)
            *w->loss = ((w->is_first ? 1 : *(const float *)w->x)) + (float)w->stage + 1;
        else if (w->kind == PAR_PIPE_F)
            *(float *)w->y = (w->is_first ? 1 : *(const float *)w->x) + (float)w->stage + 1;
        else if (w->kind == PAR_PIPE_BW) {
            *weight_gradient += w->is_last ? 1 : *(const float *)w->dy;
            if (!w->is_first) *(float *)w->dx = w->is_last ? 1 : *(const float *)w->dy;
        } else
            return PAR_ERR_UNSUPPORTED; // zb_*, v_*, dualpipe* and auto call B and W
        return PAR_OK;
    }
    int main(void) {
        par_comm *world;
        if (par_open(NULL, &world)) return 1;
        par_pipe_stage stage = {0};
        par_pipe_desc desc = {0};
        par_pipe_exec exec = {0};
        par_pipe_schedule s;
        par_pipe *pipe;
        par_pipe_report report;
        float gradient = 0;
        stage.input_bytes = sizeof(float); // of the message from the previous stage
        desc.schedule = "1f1b", desc.ranks = par_size(world), desc.microbatches = 4;
        desc.stages = &stage, desc.stage_count = 1;
        if (par_pipe_schedule_open(&desc, &s)) return puts(s.why), 1;
        exec.comm = world, exec.fn = work, exec.user = &gradient, exec.broadcast_loss = 1;
        if (par_pipe_open(&s, &exec, &pipe) || par_pipe_step(pipe, &report)) return 1;
        if (par_rank(world) == 0) printf("loss %g, gradient %g\n", report.loss, (double)gradient);
        // with PAR_RANKS=3 it prints: loss 28, gradient 4
        par_pipe_close(pipe), par_pipe_schedule_close(&s);
        return par_close(world) != PAR_OK;
    }

TABLE OF CONTENTS
    The API comes first: actions, descriptions, schedules, verifying, simulating, drawing, executing.
    Implementation, bottom-up:
    >>pipe_structs          action lists, placement of stages, costs
    >>pipe_lists            generators: one function for each schedule
    >>pipe_list_scheduling  list scheduling: improves the order of a correct schedule
    >>pipe_auto             search for a schedule
    >>pipe_theory           closed formulas for bubbles and peaks
    >>pipe_table            the list of schedules
    >>pipe_events           discrete-event simulation; deadlocks
    >>pipe_lower            adds sends, receives, recomputation and hooks
    >>pipe_lifetimes        lifetimes of buffers, in actions
    >>pipe_verify           what makes a table correct
    >>pipe_grid             replicas side by side, some of their ranks dead
    >>pipe_schedule         opening and closing schedules
    >>pipe_csv              reading and writing tables
    >>pipe_simulate         times, bubbles, and why ranks wait
    >>pipe_draw             text, SVG, Perfetto
    >>pipe_agree            whether all ranks have the same table
    >>pipe_execute          running a table on a comm
    >>pipe_measure          the timeline of a run

CONFIG
    PAR_IMPLEMENTATION (or PAR_PIPE_IMPLEMENTATION)   emit the code, in one file
    PAR_MALLOC, PAR_ASSERT ... as in par.h

MODEL
    p ranks, m microbatches, v chunks (virtual stages) per rank: p v stages, or p stages where every stage is
    on two ranks (par_pipe_defaults tells).
    Actions     F: forward. BW: the whole backward; or its halves: B (gradient of the input, for which the
                previous stage waits) and W (gradient of the weights, for which no stage waits). R: recomputes
                activations before backward.
    Placement   Loop: stage s is on rank s mod p. V shape: stages r and 2p-1-r are on rank r. Bidirectional:
                every stage is on two ranks, two replicas of the model; half of the microbatches run in each
                direction.
    Grid        `replicas` pipelines; microbatch i of replica j is number j m + i. A dead rank's peers, that
                rank of other replicas, have its weights and take its microbatches (Gandhi et al. 2024).
    Messages    Sends do not block. The table issues receives early; an action waits for its own input alone.
                All ranks' lists are projections of one total order, so they end even if each send waits for
                its receive. Each edge and direction has a channel of its own.
    Bubble      The makespan less the work of the busiest rank; as a fraction, of the makespan. Window: the
                longest time from a rank's first action to its last; it counts where steps overlap.
    Memory      Buffers of a microbatch on a stage, and their lifetimes in actions:
        x    input                    from its RECV_F (or the local F) until W (or BW) ends
        dy   gradient of the output   from its RECV_B (or the local B) until W (or BW) ends
        b    saved for B              from F (or R) until B ends
        w    saved for W              from F (or R) until W ends
        g    passed from B to W       from B until W ends; BW has none
        c    checkpoint to recompute  from F until B ends
    A forward that is recomputed later, or that evaluates, has b and w only while it runs. The bytes that are
    live depend on the order of the rank's own actions alone: plan and run have the same.
    Errors of a schedule: its member `why`. Of the executor: par_last_error(exec.comm). A schedule and an
    executor belong to one rank, also where ranks are threads.

WITH par_zero.h
    par_zero_desc.comm is the ranks with the same stages (dp). model_parallel_comm is the ranks with the other
    parts of the model (pp, or pp x tp): the gradient norm is over the whole model. microbatches is how many
    a rank runs of one stage: with dualpipe half of the table's, and comm has both ranks of a stage.
    par_zero_save and par_zero_load need the world as comm. fn does with the units of its stage:
        F         forward_begin, compute, forward_end; R: the same
        BW        backward_begin, compute, backward_end: one backward pass, which starts the reduction
        B         forward_begin, compute, forward_end: it only reads parameters
        W         backward_begin, compute, backward_end: the backward pass of the unit
        UNSHARD   forward_begin; RESHARD: forward_end. Calls in between need no gather (max_gathered_units
                  must allow the units of desc.max_gathered_stages stages)
        REDUCE    nothing: the last backward_end has started the reduction
        TIE       nothing: leave desc.tied 0. Give both copies of a tied weight a tied_comm (par_zero_tensor):
                  par_zero_step sums their gradients. If one rank has both stages, par_zero_add_use gives the
                  last one gradients of its own
    Call par_zero_step after par_pipe_step. par_zero.h keeps one version of the weights: no UPDATE.
    Stages 2 and 3, and canonical_shards, have gradients from backward_begin to backward_end alone. If B, too,
    computes gradients (of a norm, for example), keep them until W adds them. canonical_shards numbers
    microbatches by backward passes; par_zero_set_order tells it another order.

EXAMPLE WITH par_zero.h
    #define PAR_IMPLEMENTATION
    #include "par_pipe.h"
    #include "par_zero.h"

    typedef struct model { // a stage computes y = weight x; the loss is the last stage's y
        par_zero *zero;
        int unit, weight;
    } model;
    static par_result work(void *user, const par_pipe_work *w) {
        const model *m = (const model *)user;
        const int ends = w->kind == PAR_PIPE_BW || w->kind == PAR_PIPE_W; // a backward pass
        const float x = w->x ? *(const float *)w->x : (float)w->microbatch;
        const float dy = w->dy ? *(const float *)w->dy : 1;
        if (w->kind > PAR_PIPE_R) return PAR_OK;
        par_result r = ends ? par_zero_backward_begin(m->zero, m->unit)
                            : par_zero_forward_begin(m->zero, m->unit);
        if (r) return r;
        const float weight = *(const float *)par_zero_data(m->zero, m->weight);
        if (w->y) *(float *)w->y = weight * x;
        if (w->loss) *w->loss = weight * x;
        if (w->dx) *(float *)w->dx = weight * dy;
        if (ends) *par_zero_grad(m->zero, m->weight) += x * dy;
        return ends ? par_zero_backward_end(m->zero, m->unit) : par_zero_forward_end(m->zero, m->unit);
    }
    static void ones(void *user, size_t first, size_t count, float *values) {
        for (size_t i = 0; i < count; i++) values[i] = 1;
        (void)user, (void)first;
    }
    int main(void) {
        par_comm *world, *pp, *dp;
        par_mesh *mesh;
        par_pipe_stage stage = {0};
        par_pipe_desc desc = {0};
        par_pipe_exec exec = {0};
        par_pipe_schedule s;
        par_pipe *pipe;
        par_pipe_report run;
        par_zero_desc zero = {0};
        par_zero_tensor w = {0};
        par_zero_report step;
        model m;
        if (par_open(NULL, &world) || par_mesh_open(world, "pp=2 dp=-1", &mesh)) return 1;
        if (par_mesh_comm(mesh, "pp", &pp) || par_mesh_comm(mesh, "dp", &dp)) return 1;
        zero.comm = dp, zero.model_parallel_comm = pp, zero.stage = 3, zero.microbatches = 4;
        zero.optimizer = PAR_ZERO_SGD, zero.hyper[0].lr = 0.1f;
        w.name = par_rank(pp) ? "w1" : "w0", w.dims = 1, w.shape[0] = 1;
        if (par_zero_open(&zero, &m.zero)) return 1;
        m.unit = par_zero_add_unit(m.zero, "stage"), m.weight = par_zero_add_tensor(m.zero, &w);
        if (par_zero_commit(m.zero) || par_zero_fill(m.zero, m.weight, PAR_ZERO_VALUE, ones, NULL)) return 1;
        stage.input_bytes = sizeof(float), desc.stages = &stage, desc.stage_count = 1;
        desc.schedule = "zb_h1", desc.ranks = 2, desc.microbatches = 4;
        exec.comm = pp, exec.fn = work, exec.user = &m, exec.broadcast_loss = 1;
        if (par_pipe_schedule_open(&desc, &s) || par_pipe_open(&s, &exec, &pipe)) return puts(s.why), 1;
        for (int i = 0; i < 2; i++) {
            if (par_pipe_step(pipe, &run) || par_zero_step(m.zero, 1, &step)) return 1;
            if (par_rank(world) == 0)
                printf("loss %g, norm %.3f%s", run.loss, step.grad_norm, i ? "\n" : "; ");
        }
        // with PAR_RANKS=4 it prints: loss 6, norm 2.121; loss 4.335, norm 1.803
        par_pipe_close(pipe), par_pipe_schedule_close(&s), par_zero_close(m.zero), par_mesh_close(mesh);
        return par_close(world) != PAR_OK;
    }

DOES NOT
    No autograd: fn computes. It does not cut your code. A table does not change in a step. No grids run.

LIMITS
    At most 65536 stages and 2^31 actions. dualpipe needs an even number of ranks.
*/

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// ---- actions ----------------------------------------------------------------------------------------------

// X(constant, name in tables). The names are those of torch.distributed.pipelining, where B is the whole
// backward and I its input half; R, TIE_GRAD and UPDATE are additions.
#define PAR_PIPE_KINDS(X)                                                                                    \
    X(PAR_PIPE_F, "F")                /* forward */                                                          \
    X(PAR_PIPE_BW, "B")               /* whole backward */                                                   \
    X(PAR_PIPE_B, "I")                /* backward, input half: gradient of the input */                      \
    X(PAR_PIPE_W, "W")                /* backward, weight half: gradient of the weights */                   \
    X(PAR_PIPE_R, "R")                /* recompute activations that forward did not save */                  \
    X(PAR_PIPE_SEND_F, "SEND_F")      /* sends this stage's output */                                        \
    X(PAR_PIPE_RECV_F, "RECV_F")      /* receives this stage's input */                                      \
    X(PAR_PIPE_SEND_B, "SEND_B")      /* sends the gradient of this stage's input */                         \
    X(PAR_PIPE_RECV_B, "RECV_B")      /* receives the gradient of this stage's output */                     \
    X(PAR_PIPE_UNSHARD, "UNSHARD")    /* all-gather the stage's parameters */                                \
    X(PAR_PIPE_RESHARD, "RESHARD")    /* free the gathered parameters */                                     \
    X(PAR_PIPE_REDUCE, "REDUCE_GRAD") /* gradients are complete: reduce them over data-parallel ranks */     \
    X(PAR_PIPE_TIE, "TIE_GRAD")       /* sum gradients that the first and last stage share */                \
    X(PAR_PIPE_UPDATE, "UPDATE")      /* optimizer step (asynchronous schedules); microbatch: batch number */

typedef enum par_pipe_kind {
#define PAR__X(name, text) name,
    PAR_PIPE_KINDS(PAR__X)
#undef PAR__X
        PAR_PIPE_KIND_COUNT
} par_pipe_kind;
const char *par_pipe_kind_name(par_pipe_kind kind); // "F", "B", "I", ...

// pair = 1: runs together with the next action of the list: an F and a backward that overlap, or an R that
// waits for the gradient and the backward that follows.
typedef struct par_pipe_action {
    uint8_t kind; // par_pipe_kind
    uint8_t pair;
    int32_t stage, microbatch;
} par_pipe_action;

// ---- descriptions -----------------------------------------------------------------------------------------

typedef struct par_pipe_stage {                // costs of the largest microbatch on one stage
    double f, b, w;                            // seconds of F, B, W; BW takes b + w. All 0: 1 each
    double r;                                  // seconds of R; 0: f
    double fbw;                                // seconds of an F and a BW (or B) that overlap; 0: their sum
    size_t input_bytes;                        // of x, the message from the previous stage; 0: no x
    size_t b_bytes, w_bytes, g_bytes, c_bytes; // see MODEL. 0: none, and NULL in par_pipe_work
    double latency, seconds_per_byte; // of messages from and to the previous stage; 0: those of the desc
} par_pipe_stage;

typedef enum par_pipe_recompute {
    PAR_PIPE_RECOMPUTE_NONE,
    PAR_PIPE_RECOMPUTE_FUSED,
    PAR_PIPE_RECOMPUTE_EARLY
} par_pipe_recompute;
typedef enum par_pipe_protocol {
    PAR_PIPE_NONBLOCKING, // the executor's: only an action whose input has not arrived blocks
    PAR_PIPE_RENDEZVOUS   // a send blocks until its receive is posted; messages of a pair of ranks keep order
} par_pipe_protocol;

typedef struct par_pipe_desc {
    const char *schedule;         // a name of PAR_PIPE_SCHEDULES; NULL: "1f1b"
    int ranks;                    // p; 0: 1
    int microbatches;             // m of a batch; 0: 1
    int chunks;                   // v; 0: what the schedule needs (1 or 2; interleaved: 2)
    int batches;                  // asynchronous schedules: batches in the table; 0: 1
    const par_pipe_stage *stages; // costs: one for all stages, or one for each. NULL: f = b = w = 1
    int stage_count;              // number of stages[]; see par_pipe_defaults
    double latency;               // seconds of a message without bytes
    double seconds_per_byte;      // inverse bandwidth of each channel
    // Limit of b, w and g on a rank in bytes, for "auto" (0: none), "v_half" and "v_min" (0: their own peak),
    // and for grids with dead ranks (0: what the fault-free order needs there).
    size_t max_activation_bytes;
    par_pipe_recompute recompute; // FUSED: R runs when the gradient has arrived; EARLY: while waiting for it
    int recompute_count;          // how many microbatches, from the first on; 0: all
    int reduce;              // REDUCE_GRAD of a stage: 0: none, 1: after its last microbatch, 2: after each
    int max_gathered_stages; // stages that a rank may have gathered; 0: no UNSHARD and RESHARD
    int tied;                // 1: the first and last stage share parameters: TIE_GRAD after the last backward
    int rows;                // of the largest microbatch, if microbatches differ in size; 0: 1
    const int *row_counts;   // rows of each microbatch; NULL: all have `rows`
    // A grid (see MODEL), to verify, simulate and draw; the executor refuses it.
    int replicas; // dp: pipelines side by side, of `ranks` ranks and `microbatches` microbatches each; 0: 1
    const int *dead; // the ranks of the grid that are dead: rank s of replica j is j * ranks + s
    int dead_count;
} par_pipe_desc;

// ---- schedules --------------------------------------------------------------------------------------------

// X(constant, name,
//   generator of one rank's list, function over all lists afterwards,
//   chunks of a rank (0: any), placement of stages, 1: B and W are apart,
//   microbatches that the planner needs, as a multiple of the ranks (-1: it does not take the schedule),
//   1: their number is a multiple of the ranks',
//   formulas of >>pipe_theory: seconds of the bubble, seconds of messages, when both are exact, seconds of
//   the bubble in the window, microbatches whose activations a rank holds, also with what weight halves keep,
//   paper or program)
#define PAR_PIPE_SCHEDULES(X)                                                                                \
    X(1F1B, "1f1b", 1f1b, nothing, 1, LOOP, 0, 0, 0, fill_and_drain, 1f1b_hops, if_1f1b, no_window,          \
      1f1b_peak, 1f1b_peak, "Narayanan et al. 2019, flushed")                                                \
    X(GPIPE, "gpipe", gpipe, nothing, 1, LOOP, 0, 0, 0, fill_and_drain, gpipe_hops, always, no_window,       \
      all_peak, all_peak, "Huang et al. 2019")                                                               \
    X(INTERLEAVED, "interleaved_1f1b", interleaved, nothing, 0, LOOP, 0, 1, 1, fill_and_drain, chunk_hops,   \
      if_interleaved, no_window, interleaved_peak, interleaved_peak, "Narayanan et al. 2021, Megatron-LM")   \
    X(BFS, "looped_bfs", looped_bfs, nothing, 0, LOOP, 0, 1, 0, fill_and_drain, chunk_hops, if_bfs,          \
      no_window, all_peak, all_peak, "Lamy-Poirier 2023: breadth first")                                     \
    X(ZB_H1, "zb_h1", zb_h1, nothing, 1, LOOP, 1, 0, 0, h1_bubble, h1_hops, if_h1, no_window, 1f1b_peak,     \
      p_peak, "Qi et al. 2024: memory of 1F1B")                                                              \
    X(ZB_H2, "zb_h2", zb_h2, nothing, 1, LOOP, 1, 2, 0, h2_bubble, h1_hops, never, h2_window, h2_peak,       \
      twice_peak, "Qi et al. 2024: twice that memory")                                                       \
    X(INTERLEAVED_ZB, "interleaved_zb", interleaved_zb, nothing, 0, LOOP, 1, 2, 1, h1_bubble, chunk_hops,    \
      if_interleaved_zb, no_window, interleaved_zb_peak, p_peak,                                             \
      "Qi et al. 2024, interleaved: torch's ScheduleInterleavedZeroBubble")                                  \
    X(ZB_V, "zb_v", zb_v, nothing, 2, V_SHAPE, 1, 2, 0, zb_v_bubble, chunk_hops, if_zb_v, zb_v_window,       \
      no_peak, p_peak, "Qi et al. 2024: memory of 1F1B")                                                     \
    X(V_HALF, "v_half", v_half, v_finish, 2, V_SHAPE, 1, 2, 0, v_half_bubble, chunk_hops, if_v_half,         \
      no_window, no_peak, half_peak, "Qi et al. 2024b: half of that memory")                                 \
    X(V_MIN, "v_min", v_min, v_finish, 2, V_SHAPE, 1, 2, 0, v_min_bubble, chunk_hops, if_v_min, no_window,   \
      no_peak, third_peak, "Qi et al. 2024b: a third of it")                                                 \
    X(DUALPIPEV, "dualpipev", dualpipev, nothing, 2, V_SHAPE, 1, 2, 0, dualpipev_bubble, chunk_hops,         \
      if_equal, no_window, no_peak, dualpipev_peak, "the next, cut in half (Qi 2025)")                       \
    X(DUALPIPE, "dualpipe", dualpipe, nothing, 2, BIDIRECTIONAL, 1, 2, 0, dualpipe_bubble, chunk_hops,       \
      if_dualpipe, no_window, no_peak, dualpipe_peak, "DeepSeek-V3 2024: from both ends")                    \
    X(AUTO, "auto", auto, auto_finish, 1, LOOP, 1, 0, 0, auto_bubble, h1_hops, never, no_window, no_peak,    \
      auto_peak, "searched, for the stages' costs and desc.max_activation_bytes")                            \
    X(NAIVE, "naive", naive, nothing, 1, LOOP, 0, -1, 0, naive_bubble, naive_hops, always, no_window,        \
      one_peak, one_peak, "one microbatch at a time")                                                        \
    X(2BW, "pipedream_2bw", 2bw, nothing, 1, LOOP, 0, -1, 0, fill_and_drain, 1f1b_hops, never, no_window,    \
      1f1b_peak, 1f1b_peak, "Narayanan et al. 2021: asynchronous, two versions of the weights")
enum {
#define PAR__X(constant, ...) PAR_PIPE_##constant,
    PAR_PIPE_SCHEDULES(PAR__X)
#undef PAR__X
        PAR_PIPE_SCHEDULE_COUNT
};
enum { PAR_PIPE_LOOP, PAR_PIPE_V_SHAPE, PAR_PIPE_BIDIRECTIONAL }; // placement of stages

// What formulas count with. Seconds: f, b and w of a microbatch on all ranks but the slowest together (where
// ranks are equal: ranks - 1 times a rank's), own_f of F on the slowest.
typedef struct par_pipe_costs {
    double ranks, microbatches, chunks;
    double f, b, w, own_f;
    double message;   // of activations, from a stage to the next
    double in_flight; // "auto": microbatches that memory allows
} par_pipe_costs;
// A row of PAR_PIPE_SCHEDULES. The bubble is what the slowest rank waits for beside its own work: for equal
// stages the simulator's seconds for F, B and W of any ratio; of dualpipev (F/2 less, at most), v_half, v_min
// and auto an estimate, exact where F = B = W.
typedef struct par_pipe_traits {
    const char *name;
    int chunks, placement, splits_backward, rounds, multiple;
    double (*bubble)(const par_pipe_costs *x);
    double (*messages)(const par_pipe_costs *x); // that nothing hides, where sends do not block
    int (*is_exact)(const par_pipe_costs *x);
    double (*window)(const par_pipe_costs *x); // NaN: no formula
    double (*peak)(const par_pipe_costs *x, double rank), (*in_flight)(const par_pipe_costs *x, double rank);
    const char *source; // paper or program
} par_pipe_traits;
extern const par_pipe_traits par_pipe_schedules[PAR_PIPE_SCHEDULE_COUNT];

typedef struct par_pipe_schedule {
    par_pipe_desc desc; // with defaults; its stages, row_counts and dead are these copies
    par_pipe_stage *costs;
    int *row_counts, *dead;
    int ranks, stages;        // ranks: of all replicas
    int directions;           // 2: bidirectional; a grid: each microbatch has its own; else 1
    int microbatches;         // of all batches and replicas
    int forward_only;         // 1: for evaluation
    int has_sends;            // 1: lowered: with sends and receives
    int *rank_of;             // [direction][stage]
    size_t *first;            // actions of rank r: first[r] ... first[r + 1] - 1
    par_pipe_action *actions; // of all ranks, one after the other
    double lower_bound;       // "auto": no order takes less seconds; else 0
    char why[512];            // error text
} par_pipe_schedule;

const par_pipe_traits *par_pipe_schedule_find(const char *name); // NULL: there is none
par_suggestion par_pipe_schedule_suggest(const char *name);      // as par_suggest
// The desc with defaults in place of zeros. If stages is NULL, stage_count is the number of stages that the
// schedule has, that is, how many costs to give; 0: the schedule is unknown or too large.
par_pipe_desc par_pipe_defaults(const par_pipe_desc *desc);

// Makes the table, with sends, receives, recomputation and hooks as the desc says, and verifies it. Pure: it
// needs no comm, and any number of ranks. Errors, with a text in s->why: ARGUMENT, MEMORY (also:
// max_activation_bytes is too small). Close s also after an error.
par_result par_pipe_schedule_open(const par_pipe_desc *desc, par_pipe_schedule *s);
void par_pipe_schedule_close(par_pipe_schedule *s);
// Makes the schedule that runs the forwards of s alone, in the same order, for the first `microbatches`
// microbatches (0: all). For evaluation. Errors: ARGUMENT, MEMORY, with a text in out->why; close it in any
// case.
par_result par_pipe_forward_only(const par_pipe_schedule *s, int microbatches, par_pipe_schedule *out);
// The rank that runs a stage for a microbatch. -1: there is no such stage or microbatch.
int par_pipe_rank_of(const par_pipe_schedule *s, int stage, int microbatch);

// Reads a table in the format of torch.distributed.pipelining: a row for each rank; cells such as 0F1, 2B0,
// 1SEND_F3, (0F7;7B3)OVERLAP_F_B, or empty. A table without sends and receives is lowered; one without
// recomputation and hooks gets those of the desc, which also gives the costs. Its schedule, ranks,
// microbatches and chunks are ignored. Errors, with a text in s->why: FILE (with row and cell), ARGUMENT,
// MEMORY. Close s in any case.
par_result par_pipe_parse(const char *text, size_t bytes, const par_pipe_desc *desc, par_pipe_schedule *s);
par_result par_pipe_load(const char *path, const par_pipe_desc *desc, par_pipe_schedule *s);
// Writes such a table. compute_only: without recomputation, sends, receives and hooks. FILE: see errno.
par_result par_pipe_save(const par_pipe_schedule *s, const char *path, int compute_only);

// Partitions `count` consecutive layers into `stages` so that the most expensive stage is as cheap as
// possible: stage s has layers first[s] ... first[s + 1] - 1 (first has stages + 1 elements). A stage is
// empty only if count < stages.
void par_pipe_partition(const double *cost, int count, int stages, int *first);

// ---- verifying --------------------------------------------------------------------------------------------

typedef struct par_pipe_memory { // peaks on one rank in a step
    size_t activation_bytes;     // of b, w, g, c
    size_t message_bytes;        // of x, dy
    size_t live_bytes;           // of both together
    size_t send_bytes;           // send buffers
    size_t pool_bytes;           // what the executor allocates: blocks by size, and send_bytes
    int microbatches;            // between the begin of F and the end of B, added over chunks
} par_pipe_memory;

// Checks that the table is complete, keeps the dependencies, has the messages of each channel in order, and
// does not deadlock under `protocol`. memory: one element per rank, which it fills, or NULL. Errors, with a
// text in s->why: ARGUMENT (it names the actions, or the shortest cycle of ranks that wait for each other),
// MEMORY.
par_result par_pipe_verify(par_pipe_schedule *s, par_pipe_protocol protocol, par_pipe_memory *memory);

// ---- simulating -------------------------------------------------------------------------------------------

typedef struct par_pipe_rank { // seconds
    double busy;
    double first, last; // start of the first computation, end of the last
    // The idle time makespan - busy, by cause; the causes add up to it:
    double warmup, cooldown; // before the first and after the last computation
    double communication;    // the input was in transit
    double imbalance;        // waiting because this rank has less work than the busiest one
    double dependency;       // other waiting for an input that was not computed yet
} par_pipe_rank;
typedef struct par_pipe_timeline {
    double *start, *end; // of each action of the schedule, in seconds
    par_pipe_rank *ranks;
    int rank_count;
    size_t action_count;
    double makespan, window; // seconds; the window of a grid is of a rank and its peers
    double bubble;           // as a fraction of the makespan
    double window_bubble;    // as a fraction of the window
    double clock_error; // bound on the difference of ranks' clocks, in seconds; 0: simulated, or one machine
} par_pipe_timeline;

// Simulates the table with the costs of the desc; times are proportional to a microbatch's rows. Errors, with
// a text in s->why: ARGUMENT (a deadlock), MEMORY. Close t.
par_result par_pipe_simulate(par_pipe_schedule *s, par_pipe_protocol protocol, par_pipe_timeline *t);
void par_pipe_timeline_close(par_pipe_timeline *t);
// Sets the costs of the stages (f, b, w, and BW as b + w) to the mean times of their actions in `run`, which
// is a timeline of this table as par_pipe_timeline_get gives it: a simulation then tells what the order alone
// costs. r, fbw and messages keep their costs. Errors, with a text in s->why: ARGUMENT (run has other
// actions: on ranks other than 0 it is empty), MEMORY.
par_result par_pipe_set_costs(par_pipe_schedule *s, const par_pipe_timeline *run);
// The bubble by the published formula, as a fraction of the makespan or, with window = 1, of the window. NaN:
// there is no formula, or it does not hold for this case (stages of different costs, for example).
double par_pipe_theory_bubble(const par_pipe_schedule *s, int window);
// The largest number of microbatches whose activations a rank holds, likewise. NaN also: there is no such
// rank.
double par_pipe_theory_peak(const par_pipe_schedule *s, int rank);

// ---- drawing ----------------------------------------------------------------------------------------------

// Prints a timeline as text: one row for each chunk of each rank, time to the right, `columns` wide (0: 100).
// scale: seconds of the whole width, 0: the makespan; give two timelines the same scale to compare them.
// Actions shorter than a column are shown, too.
void par_pipe_print(const par_pipe_schedule *s, const par_pipe_timeline *t, int columns, double scale,
                    FILE *file);
// Writes an SVG with `count` timelines of s, one below the other on one scale. Each chunk has a shade, each
// kind of action a color and a mark (lines above, below), so that they differ without colors. FILE: see
// errno; MEMORY.
par_result par_pipe_svg(const par_pipe_schedule *s, const par_pipe_timeline *const *t,
                        const char *const *titles, int count, const char *path);
// The same for timelines of several schedules: s[k] is the schedule of t[k]. ARGUMENT: count is below 1.
par_result par_pipe_svg_compare(const par_pipe_schedule *const *s, const par_pipe_timeline *const *t,
                                const char *const *titles, int count, const char *path);
// Writes a trace for ui.perfetto.dev, with arrows from sends to receives; each timeline is a process. FILE:
// see errno.
par_result par_pipe_perfetto(const par_pipe_schedule *s, const par_pipe_timeline *const *t,
                             const char *const *titles, int count, const char *path);

// ---- executing --------------------------------------------------------------------------------------------

typedef struct par_pipe par_pipe;

typedef struct par_pipe_work { // one action, as the user's function gets it
    par_pipe_kind kind;        // F, BW, B, W, R, UNSHARD, RESHARD, REDUCE, TIE, UPDATE
    int stage, chunk;          // chunk: index of the stage among this rank's stages, from 0
    int microbatch, rows;      // rows: of this microbatch
    int version;               // asynchronous schedules: which of the two versions of the weights, 0 or 1
    int is_first, is_last;     // the stage is the model's first, last one
    int forward_only;          // 1: evaluation, no backward follows
    int last_backward;         // 1: with BW or W: the stage's last one of this step
    void *x;                   // input, for F, R, BW, B, W, not to be written; NULL on the first stage
    void *y;                   // F writes its output here; NULL on the last stage
    void *dy;                  // gradient of the output, likewise, for BW, B, W; NULL on the last stage
    void *dx;                  // BW and B write the gradient of the input here; NULL on the first stage
    void *b, *w, *g,
        *c;       // buffers of this microbatch, as in MODEL: what F writes, B finds. NULL: not live now
    double *loss; // F of the last stage writes the microbatch's loss here, in device memory; NULL elsewhere
} par_pipe_work;
typedef par_result (*par_pipe_fn)(void *user, const par_pipe_work *work);

typedef struct par_pipe_exec {
    par_comm *comm;        // the ranks of the pipeline, as many as the schedule has
    par_pipe_fn fn;        // called for each action in the order of the table; an error ends the step
    void *user;            // its first argument
    int broadcast_loss;    // 1: report.loss on all ranks; 0: on the last stage's rank, and 0 elsewhere
    int skip_verification; // 1: for tests of tables that the verifier refuses
    // Where buffers are; NULL: the CPU. For a GPU, comm must support its memory. Times of actions are then
    // those of enqueuing them.
    par_device *device;
} par_pipe_exec;

typedef struct par_pipe_report {
    double loss;                                        // sum over microbatches, in their order
    double seconds;                                     // of the step
    size_t live_bytes, activation_bytes, message_bytes; // measured peaks, as in par_pipe_memory
} par_pipe_report;

// Verifies the schedule, which must stay open, and allocates all memory of a step. Collective over comm. All
// ranks must have the same table, microbatches, rows and input_bytes; costs and the other sizes may differ.
// input_bytes of a stage whose input comes from another rank must not be 0. Errors, on all ranks: ARGUMENT
// (the text names what differs, with both values), MEMORY, those of a collective.
par_result par_pipe_open(par_pipe_schedule *s, const par_pipe_exec *exec, par_pipe **pipe);
par_result par_pipe_close(par_pipe *pipe); // collective; NULL is PAR_OK
// Runs all actions of this rank: a training step. report may be NULL, on all ranks alike: then the host does
// not wait for a device. Collective. Errors: those of fn and of messages; the text names the rank and the
// action. An error aborts comm: the other ranks of the pipeline fail, too.
par_result par_pipe_step(par_pipe *pipe, par_pipe_report *report);
par_result par_pipe_evaluate(par_pipe *pipe, par_pipe_report *report); // the same with forwards alone
// The loss of each microbatch in the last step or evaluation; on the last stage's rank (with broadcast_loss
// on all). par_pipe_losses is of one that had a report, unless the device is the CPU. par_pipe_device_losses
// is in exec.device's memory, after what is enqueued there so far.
const double *par_pipe_losses(const par_pipe *pipe);
const double *par_pipe_device_losses(const par_pipe *pipe);
size_t par_pipe_allocated(const par_pipe *pipe); // bytes: equal to the plan's pool_bytes
// Gathers the timeline of the last step from all ranks to rank 0; it is empty elsewhere. Times are by rank
// 0's clock, as precise as par_clock_offset: on one machine no action starts before its inputs are computed.
// Collective. Errors: MEMORY, those of a collective. Close t.
par_result par_pipe_timeline_get(par_pipe *pipe, par_pipe_timeline *t);

// ---- call sites -------------------------------------------------------------------------------------------
// Macros record the program's call site, so that errors and traces name it (see par.h).

par_pipe *par__pipe_called(par_pipe *pipe, const char *site); // site NULL: a call within the implementation
par_result par__pipe_open_at(const char *site, par_pipe_schedule *s, const par_pipe_exec *exec,
                             par_pipe **pipe);
static inline par_result par__pipe_close_at(const char *site, par_pipe *pipe) {
    return par_pipe_close(par__pipe_called(pipe, site));
}
static inline par_result par__pipe_step_at(const char *site, par_pipe *pipe, par_pipe_report *report) {
    return par_pipe_step(par__pipe_called(pipe, site), report);
}
static inline par_result par__pipe_evaluate_at(const char *site, par_pipe *pipe, par_pipe_report *report) {
    return par_pipe_evaluate(par__pipe_called(pipe, site), report);
}
static inline par_result par__pipe_timeline_get_at(const char *site, par_pipe *pipe, par_pipe_timeline *t) {
    return par_pipe_timeline_get(par__pipe_called(pipe, site), t);
}

#define PAR__PIPE_WITH_SITE(name, ...) par__pipe_##name##_at(PAR_SITE, __VA_ARGS__)
#define par_pipe_open(...)             PAR__PIPE_WITH_SITE(open, __VA_ARGS__)
#define par_pipe_close(...)            PAR__PIPE_WITH_SITE(close, __VA_ARGS__)
#define par_pipe_step(...)             PAR__PIPE_WITH_SITE(step, __VA_ARGS__)
#define par_pipe_evaluate(...)         PAR__PIPE_WITH_SITE(evaluate, __VA_ARGS__)
#define par_pipe_timeline_get(...)     PAR__PIPE_WITH_SITE(timeline_get, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_PIPE_H

// Stop here if you only use it. -----------------------------------------------------------------------------

#if defined(PAR_PIPE_IMPLEMENTATION) && !defined(PAR_PIPE_IMPLEMENTED)
#define PAR_PIPE_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Within the implementation the macros of this header's functions are these functions, and calls of other
// headers keep the call site of the program's call.
#pragma push_macro("PAR__PIPE_WITH_SITE")
#undef PAR__PIPE_WITH_SITE
#define PAR__PIPE_WITH_SITE(name, ...) par_pipe_##name(__VA_ARGS__)
#pragma push_macro("PAR_SITE")
#undef PAR_SITE
#define PAR_SITE      NULL
#define par_fail(...) par__fail_in_layer(__VA_ARGS__)

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// >>pipe_structs --------------------------------------------------------------------------------------------

typedef struct par__pipe_list { // actions of one rank, while the table is made
    par_pipe_action *at;
    size_t count, capacity;
} par__pipe_list;

typedef struct par__pipe_build { // the table that generators make
    par_pipe_schedule *s;
    int p, m, v; // m: microbatches of all batches
    par__pipe_list *lists;
    int no_memory;
} par__pipe_build;

static void *par__pipe_alloc_zeroed(size_t count, size_t bytes) { // zeroed
    void *p = PAR_MALLOC(count * bytes + 1);
    if (p) memset(p, 0, count * bytes + 1);
    return p;
}
static par_result par__pipe_fail(par_pipe_schedule *s, par_result result, const char *format, ...) {
    va_list a;
    va_start(a, format);
    vsnprintf(s->why, sizeof s->why, format, a);
    va_end(a);
    return result;
}

static par_result par__pipe_closed(par_pipe_schedule *s) {
    return par__pipe_fail(s, PAR_ERR_ARGUMENT, "the schedule is not open");
}
static par_result par__pipe_no_memory(par_pipe_schedule *s) {
    return par__pipe_fail(s, PAR_ERR_MEMORY,
                          "out of memory for a table of %d ranks, %d chunks on each and %d microbatches",
                          s->ranks, s->desc.chunks, s->microbatches);
}

static const char *const par__pipe_kind_names[] = {
#define PAR__X(name, text) text,
    PAR_PIPE_KINDS(PAR__X)
#undef PAR__X
};
const char *par_pipe_kind_name(par_pipe_kind kind) {
    return (unsigned)kind < PAR_PIPE_KIND_COUNT ? par__pipe_kind_names[kind] : "?";
}
static const char *par__pipe_text(par_pipe_action a, char text[48]) { // format of tables: 1SEND_F3
    snprintf(text, 48, "%d%s%d", a.stage, par_pipe_kind_name((par_pipe_kind)a.kind), a.microbatch);
    return text;
}
static int par__pipe_computes(int kind) { return kind <= PAR_PIPE_R; }
static int par__pipe_is_backward(int kind) { return kind == PAR_PIPE_BW || kind == PAR_PIPE_B; }
static int par__pipe_sends(int kind) { return kind == PAR_PIPE_SEND_F || kind == PAR_PIPE_SEND_B; }
static int par__pipe_receives(int kind) { return kind == PAR_PIPE_RECV_F || kind == PAR_PIPE_RECV_B; }

static par_pipe_action par__pipe_action(int kind, int stage, int microbatch) {
    par_pipe_action a;
    a.kind = (uint8_t)kind;
    a.pair = 0;
    a.stage = stage;
    a.microbatch = microbatch;
    return a;
}
static void par__pipe_push(par__pipe_build *b, int rank, par_pipe_action a) {
    par__pipe_list *l = &b->lists[rank];
    if (l->count == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 64;
        void *at = PAR_REALLOC(l->at, capacity * sizeof *l->at);
        if (!at) {
            b->no_memory = 1;
            return;
        }
        l->at = (par_pipe_action *)at;
        l->capacity = capacity;
    }
    l->at[l->count++] = a;
}
// Generators append actions by this function. It drops microbatches beyond the last one: without them an
// order remains correct.
static void par__pipe_emit(par__pipe_build *b, int rank, int kind, int stage, int microbatch) {
    if (microbatch >= 0 && microbatch < b->m)
        par__pipe_push(b, rank, par__pipe_action(kind, stage, microbatch));
}
static int par__pipe_build_open(par__pipe_build *b, par_pipe_schedule *s) {
    b->s = s;
    b->p = s->ranks;
    b->m = s->microbatches;
    b->v = s->desc.chunks;
    b->no_memory = 0;
    b->lists = (par__pipe_list *)par__pipe_alloc_zeroed((size_t)b->p, sizeof *b->lists);
    return b->lists != NULL;
}
static void par__pipe_build_close(par__pipe_build *b) {
    for (int r = 0; b->lists && r < b->p; r++) PAR_FREE(b->lists[r].at);
    PAR_FREE(b->lists);
    b->lists = NULL;
}
// Turns the lists into the schedule's actions, and closes the build.
static par_result par__pipe_build_end(par__pipe_build *b) {
    par_pipe_schedule *s = b->s;
    size_t count = 0;
    for (int r = 0; r < b->p; r++) count += b->lists[r].count;
    par_pipe_action *actions = (par_pipe_action *)PAR_MALLOC((count + 1) * sizeof *actions);
    size_t *first = (size_t *)PAR_MALLOC(((size_t)b->p + 1) * sizeof *first);
    if (!actions || !first || b->no_memory) {
        PAR_FREE(actions);
        PAR_FREE(first);
        par__pipe_build_close(b);
        return par__pipe_fail(s, PAR_ERR_MEMORY, "out of memory for %zu actions", count);
    }
    first[0] = 0;
    for (int r = 0; r < b->p; r++) {
        const par__pipe_list *l = &b->lists[r];
        if (l->count) memcpy(actions + first[r], l->at, l->count * sizeof *actions);
        first[r + 1] = first[r] + l->count;
    }
    PAR_FREE(s->actions);
    PAR_FREE(s->first);
    s->actions = actions;
    s->first = first;
    par__pipe_build_close(b);
    return PAR_OK;
}

static const par_pipe_stage *par__pipe_stage_of(const par_pipe_schedule *s, int stage) {
    return &s->desc.stages[s->desc.stage_count == 1 ? 0 : stage];
}
static int par__pipe_rows(const par_pipe_schedule *s, int microbatch) {
    return s->desc.row_counts ? s->desc.row_counts[microbatch % s->desc.microbatches] : s->desc.rows;
}
// The rank of a pipeline of p ranks that has a stage.
static int par__pipe_place(int placement, int p, int direction, int stage) {
    if (direction) return p - 1 - stage;
    return placement == PAR_PIPE_LOOP                    ? stage % p
           : placement == PAR_PIPE_V_SHAPE && stage >= p ? 2 * p - 1 - stage
                                                         : stage;
}
static size_t par__pipe_index(const par_pipe_schedule *s, int stage, int microbatch) {
    return (size_t)stage * (size_t)s->microbatches + (size_t)microbatch;
}
static int par__pipe_is_grid(const par_pipe_schedule *s) { return s->desc.replicas > 1; }
static int par__pipe_is_dead(const par_pipe_schedule *s, int rank) {
    for (int i = 0; i < s->desc.dead_count; i++)
        if (s->desc.dead[i] == rank) return 1;
    return 0;
}
// Bidirectional: the first half of the microbatches runs in direction 0, the second half in direction 1.
static int par__pipe_direction(const par_pipe_schedule *s, int microbatch) {
    return s->directions == 1 ? 0 : microbatch / ((s->microbatches + s->directions - 1) / s->directions);
}
static int par__pipe_rank_of(const par_pipe_schedule *s, int stage, int microbatch) {
    return s->rank_of[par__pipe_direction(s, microbatch) * s->stages + stage];
}
int par_pipe_rank_of(const par_pipe_schedule *s, int stage, int microbatch) {
    const int there = s->rank_of && stage >= 0 && stage < s->stages && microbatch >= 0;
    return there && microbatch < s->microbatches ? par__pipe_rank_of(s, stage, microbatch) : -1;
}
// The channel on which `stage` sends its output or, with back, its input gradient. In a grid each edge has
// one for each pair of replicas.
static size_t par__pipe_channel(const par_pipe_schedule *s, int back, int stage, int microbatch) {
    if (!par__pipe_is_grid(s)) return (size_t)(par__pipe_direction(s, microbatch) * s->stages + stage);
    const int p = s->desc.ranks, from = par__pipe_rank_of(s, stage, microbatch) / p;
    const int to = par__pipe_rank_of(s, back ? stage - 1 : stage + 1, microbatch) / p;
    return ((size_t)from * (size_t)s->stages + (size_t)stage) * (size_t)s->desc.replicas + (size_t)to;
}
static size_t par__pipe_channel_count(const par_pipe_schedule *s) {
    const size_t n = (size_t)s->desc.replicas;
    return par__pipe_is_grid(s) ? n * n * (size_t)s->stages : (size_t)(s->directions * s->stages);
}
// 1: stage `to` exists and is on another rank than `stage`, so messages are needed.
static int par__pipe_crosses_ranks(const par_pipe_schedule *s, int stage, int to, int microbatch) {
    return to >= 0 && to < s->stages &&
           par__pipe_rank_of(s, to, microbatch) != par__pipe_rank_of(s, stage, microbatch);
}
static double par__pipe_seconds(const par_pipe_schedule *s, par_pipe_action a) {
    const par_pipe_stage *c = par__pipe_stage_of(s, a.stage);
    double t = 0;
    switch (a.kind) {
    case PAR_PIPE_F: t = c->f; break;
    case PAR_PIPE_BW: t = c->b + c->w; break;
    case PAR_PIPE_B: t = c->b; break;
    case PAR_PIPE_W: t = c->w; break;
    case PAR_PIPE_R: t = c->r; break;
    default: return 0;
    }
    return s->desc.row_counts ? t * par__pipe_rows(s, a.microbatch) / s->desc.rows : t;
}
// Bytes of the message to `stage` from the previous stage: of the largest microbatch, or of this one.
static size_t par__pipe_input_bytes(const par_pipe_schedule *s, int stage) {
    return stage > 0 && stage < s->stages ? par__pipe_stage_of(s, stage)->input_bytes : 0;
}
static size_t par__pipe_message_bytes(const par_pipe_schedule *s, int stage, int microbatch) {
    const size_t all = par__pipe_input_bytes(s, stage);
    return s->desc.row_counts ? all / (size_t)s->desc.rows * (size_t)par__pipe_rows(s, microbatch) : all;
}
// Latency and inverse bandwidth between a stage and the previous one.
static double par__pipe_latency(const par_pipe_schedule *s, int stage) {
    const par_pipe_stage *c = par__pipe_stage_of(s, stage);
    return c->latency > 0 ? c->latency : s->desc.latency;
}
static double par__pipe_byte_seconds(const par_pipe_schedule *s, int stage) {
    const par_pipe_stage *c = par__pipe_stage_of(s, stage);
    return c->seconds_per_byte > 0 ? c->seconds_per_byte : s->desc.seconds_per_byte;
}
static double par__pipe_message_seconds(const par_pipe_schedule *s, int stage, int microbatch) {
    return par__pipe_latency(s, stage) +
           par__pipe_byte_seconds(s, stage) * (double)par__pipe_message_bytes(s, stage, microbatch);
}
static int par__pipe_recomputed(const par_pipe_schedule *s, int microbatch) {
    const int n = s->desc.recompute_count ? s->desc.recompute_count : s->desc.microbatches;
    return s->desc.recompute != PAR_PIPE_RECOMPUTE_NONE && !s->forward_only &&
           microbatch % s->desc.microbatches < n;
}

// >>pipe_lists ----------------------------------------------------------------------------------------------
// Generators of the order of one rank's computation. Diagrams show 4 ranks, time to the right: digits are
// forwards of microbatches, lower-case letters (a: microbatch 0) whole backwards or input halves, '.' is
// idle.

// rank 0 |0......aa1..     One microbatch at a time.
// rank 3 |...0aa......
static void par__pipe_naive(par__pipe_build *b, int r) {
    for (int i = 0; i < b->m; i++) {
        par__pipe_emit(b, r, PAR_PIPE_F, r, i);
        par__pipe_emit(b, r, PAR_PIPE_BW, r, i);
    }
}

// rank 0 |0123............aabbccdd    All forwards, then all backwards: the bubble of 1F1B, but the
// rank 3 |...0123aabbccdd.........    activations of m microbatches.
static void par__pipe_gpipe(par__pipe_build *b, int r) {
    for (int i = 0; i < b->m; i++) par__pipe_emit(b, r, PAR_PIPE_F, r, i);
    for (int i = 0; i < b->m; i++) par__pipe_emit(b, r, PAR_PIPE_BW, r, i);
}

// rank 0 |0123.....aa4bb5cc6dd7ee    Warmup until the first backward, then one forward, one backward:
// rank 3 |...0aa1bb2cc3dd4ee5ff6     rank r holds activations of p - r microbatches at most.
static void par__pipe_1f1b(par__pipe_build *b, int r) {
    const int w = PAR__MIN(b->p - 1 - r, b->m);
    for (int i = 0; i < w; i++) par__pipe_emit(b, r, PAR_PIPE_F, r, i);
    for (int i = 0; i < b->m; i++) {
        par__pipe_emit(b, r, PAR_PIPE_F, r, w + i);
        par__pipe_emit(b, r, PAR_PIPE_BW, r, i);
    }
}

// 1F1B without a flush between batches. Batch t computes with weights W(t-1), and its gradients give W(t+1) =
// W(t) - step. There are two versions of the weights: W(t+1) replaces W(t-1), and batch t+2 waits for it.
static void par__pipe_2bw(par__pipe_build *b, int r) {
    const int each = b->s->desc.microbatches;
    int f = 0, updates = 0;
    for (int i = 0; i < b->m; i++) {
        while (f < b->m && f - i <= b->p - 1 - r && f / each <= updates + 1)
            par__pipe_emit(b, r, PAR_PIPE_F, r, f++);
        par__pipe_emit(b, r, PAR_PIPE_BW, r, i);
        if ((i + 1) % each == 0) par__pipe_emit(b, r, PAR_PIPE_UPDATE, r, updates++);
    }
}

// rank 0 |0123 0123 4567 ..  Each rank has v chunks. Groups of p microbatches go through all chunks before
// the next group. The bubble is v times smaller, and there are v times as many messages.
static void par__pipe_interleaved(par__pipe_build *b, int r) {
    const int p = b->p, v = b->v, n = (b->m + p - 1) / p * p, all = n * v;
    const int w = PAR__MIN(2 * (p - 1 - r) + (v - 1) * p, all);
    for (int i = 0; i < all + w; i++) {
        if (i < all) {
            const int chunk = i % (p * v) / p;
            par__pipe_emit(b, r, PAR_PIPE_F, chunk * p + r, i / (p * v) * p + i % p);
        }
        if (i >= w) {
            const int j = i - w, chunk = v - 1 - j % (p * v) / p;
            par__pipe_emit(b, r, PAR_PIPE_BW, chunk * p + r, j / (p * v) * p + j % p);
        }
    }
}

// rank 0 |0123 0123 a4A b5B ..  Interleaved 1F1B with B and W (capitals) separate and p - 1 - r fewer
// forwards in warm-up. At most r W are deferred on rank r. One chunk: ZB-H1.
static void par__pipe_interleaved_zb(par__pipe_build *b, int r) {
    static const int kinds[3] = {PAR_PIPE_F, PAR_PIPE_B, PAR_PIPE_W};
    const int p = b->p, v = b->v, all = (b->m + p - 1) / p * p * v;
    const int warmup = PAR__MIN(p - 1 - r + (v - 1) * p, all), behind[3] = {0, warmup, warmup + r};
    for (int i = 0; i < all + warmup + r; i++)
        for (int k = 0; k < 3; k++) {
            const int j = i - behind[k], turn = j % (p * v) / p, chunk = k ? v - 1 - turn : turn;
            if (j >= 0 && j < all) par__pipe_emit(b, r, kinds[k], chunk * p + r, j / (p * v) * p + j % p);
        }
}

// rank 0 |0123 0123 ... : breadth first: all microbatches go through a chunk, then through the next one. So
// the parameters of a chunk are gathered once in forward and once in backward.
static void par__pipe_looped_bfs(par__pipe_build *b, int r) {
    for (int c = 0; c < b->v; c++)
        for (int i = 0; i < b->m; i++) par__pipe_emit(b, r, PAR_PIPE_F, c * b->p + r, i);
    for (int c = b->v - 1; c >= 0; c--)
        for (int i = 0; i < b->m; i++) par__pipe_emit(b, r, PAR_PIPE_BW, c * b->p + r, i);
}

// rank 0 |0123...aA4bB5c..    1F1B with B and W (capitals) separate. At most k r W are deferred on rank r,
// rank 3 |...0a1b2c3dA4e..    to fill idle time. k = 2 has twice as many forwards in warmup, and no bubble in
// the window.
static void par__pipe_zb_h(par__pipe_build *b, int r, int k) {
    int f = 0, w = 0;
    for (; f < PAR__MIN(k * (b->p - 1 - r), b->m); f++) par__pipe_emit(b, r, PAR_PIPE_F, r, f);
    for (int i = 0; i < b->m; i++) {
        par__pipe_emit(b, r, PAR_PIPE_F, r, f++);
        par__pipe_emit(b, r, PAR_PIPE_B, r, i);
        if (i + 1 - w > k * r) par__pipe_emit(b, r, PAR_PIPE_W, r, w++);
    }
    while (w < b->m) par__pipe_emit(b, r, PAR_PIPE_W, r, w++);
}
static void par__pipe_zb_h1(par__pipe_build *b, int r) { par__pipe_zb_h(b, r, 1); }
static void par__pipe_zb_h2(par__pipe_build *b, int r) { par__pipe_zb_h(b, r, 2); }

// A rank's two chunks: `a`, which microbatches reach first, and `z`. `next` counts the microbatches of each
// kind of action; microbatch i of chunk z is number first[z] + i of the table.
typedef struct par__pipe_two_chunk {
    par__pipe_build *b;
    int r, stage[2], first[2], count[2];
    int next[2][PAR_PIPE_KIND_COUNT];
    size_t head; // of the rank's list: all B before it have their W
} par__pipe_two_chunk;

static void par__pipe_two_chunk_emit(par__pipe_two_chunk *t, int z, int kind, int i) {
    if (i < t->count[z]) par__pipe_emit(t->b, t->r, kind, t->stage[z], t->first[z] + i);
}
static void par__pipe_two_chunk_next(par__pipe_two_chunk *t, int z, int kind) {
    par__pipe_two_chunk_emit(t, z, kind, t->next[z][kind]++);
}

// ranks 0 and 3 |0 1 2 3 ...  Stages go down the ranks and back up: the last stage is on rank 0. All ranks
// need the memory of 1F1B's rank 0; with F = B = W there is no bubble in the window.
static void par__pipe_zb_v(par__pipe_build *b, int r) {
    const int p = b->p, n = PAR__MAX(b->m, 2 * p - 1);
    const int a = 0, z = 1, F = PAR_PIPE_F, B = PAR_PIPE_B, W = PAR_PIPE_W;
    par__pipe_two_chunk t;
    memset(&t, 0, sizeof t);
    t.b = b;
    t.r = r;
    t.stage[0] = r;
    t.stage[1] = 2 * p - 1 - r;
    t.count[0] = t.count[1] = b->m;
    for (int i = 0; i < 2 * (p - r) - 1; i++) par__pipe_two_chunk_next(&t, a, F);
    for (int i = 0; i < r; i++) {
        par__pipe_two_chunk_next(&t, z, F);
        par__pipe_two_chunk_next(&t, a, F);
    }
    for (int i = 0; i < p - r; i++) {
        par__pipe_two_chunk_next(&t, z, F);
        par__pipe_two_chunk_next(&t, z, B);
        par__pipe_two_chunk_next(&t, z, W);
    }
    while (t.next[z][F] < n) {
        if (t.next[a][F] < n) par__pipe_two_chunk_next(&t, a, F);
        par__pipe_two_chunk_next(&t, a, B);
        par__pipe_two_chunk_next(&t, a, W);
        par__pipe_two_chunk_next(&t, z, F);
        par__pipe_two_chunk_next(&t, z, B);
        par__pipe_two_chunk_next(&t, z, W);
    }
    for (int i = 0; i < r; i++) {
        par__pipe_two_chunk_next(&t, a, B);
        par__pipe_two_chunk_next(&t, z, B);
    }
    for (int i = 0; i < p - r; i++) {
        par__pipe_two_chunk_next(&t, a, B);
        par__pipe_two_chunk_next(&t, a, W);
    }
    while (t.next[z][W] < n) par__pipe_two_chunk_next(&t, z, W);
    while (t.next[a][W] < n) par__pipe_two_chunk_next(&t, a, W);
}

// Appends the W of the oldest B that has none. 0: there is none.
static int par__pipe_two_chunk_w(par__pipe_two_chunk *t) {
    par__pipe_list *l = &t->b->lists[t->r];
    while (t->head < l->count && l->at[t->head].kind != PAR_PIPE_B) t->head++;
    if (t->head == l->count) return 0;
    const par_pipe_action a = l->at[t->head++];
    par__pipe_emit(t->b, t->r, PAR_PIPE_W, a.stage, a.microbatch);
    return 1;
}
// Appends a forward of chunk f and a whole backward of the other chunk. They overlap if `pair` is 1 and both
// exist.
static void par__pipe_two_chunk_pair(par__pipe_two_chunk *t, int f, int pair) {
    const int i = t->next[f][PAR_PIPE_F]++, j = t->next[!f][PAR_PIPE_B]++;
    par__pipe_two_chunk_emit(t, f, PAR_PIPE_F, i);
    par__pipe_list *l = &t->b->lists[t->r];
    if (pair && i < t->count[f] && j < t->count[!f] && l->count) l->at[l->count - 1].pair = 1;
    par__pipe_two_chunk_emit(t, !f, PAR_PIPE_BW, j);
}
static void par__pipe_two_chunk_bw(par__pipe_two_chunk *t, int z) {
    par__pipe_two_chunk_emit(t, z, PAR_PIPE_BW, t->next[z][PAR_PIPE_B]++);
}
// Microbatches enter at both ends. In the steady state a rank overlaps the forward of one with the backward
// of another, so that each hides the messages of the other. p, r: ranks of half the pipeline, and the rank's
// distance from the end where the microbatches of chunk a enter. The eight steps are those of the published
// implementation.
static void par__pipe_dual(par__pipe_two_chunk *t, int p, int r, int n) {
    const int a = 0, z = 1, F = PAR_PIPE_F, B = PAR_PIPE_B;
    for (int i = 0; i < 2 * (p - r - 1); i++) par__pipe_two_chunk_next(t, a, F);
    for (int i = 0; i < r + 1; i++) {
        par__pipe_two_chunk_next(t, a, F);
        par__pipe_two_chunk_next(t, z, F);
    }
    for (int i = 0; i < p - r - 1; i++) {
        par__pipe_two_chunk_next(t, z, B);
        par__pipe_two_chunk_w(t);
        par__pipe_two_chunk_next(t, z, F);
    }
    for (int i = 0; i < n - 2 * p + r + 1; i++) {
        par__pipe_two_chunk_pair(t, a, i || r < p - 1);
        par__pipe_two_chunk_pair(t, z, 1);
    }
    for (int i = 0; i < p - r - 1; i++) {
        par__pipe_two_chunk_bw(t, z);
        par__pipe_two_chunk_pair(t, z, 1);
    }
    for (int i = 0; i < 2 * (r + 1); i++)
        i < r + 1 ? par__pipe_two_chunk_bw(t, !(i & 1)) : par__pipe_two_chunk_next(t, !(i & 1), B);
    for (int i = 0; i < p - r - 1; i++) {
        par__pipe_two_chunk_w(t);
        par__pipe_two_chunk_next(t, a, B);
    }
    while (par__pipe_two_chunk_w(t)) {
    }
}
static void par__pipe_dualpipev(par__pipe_build *b, int r) {
    par__pipe_two_chunk t;
    memset(&t, 0, sizeof t);
    t.b = b;
    t.r = r;
    t.stage[0] = r;
    t.stage[1] = 2 * b->p - 1 - r;
    t.count[0] = t.count[1] = b->m;
    par__pipe_dual(&t, b->p, r, PAR__MAX(b->m, 2 * b->p));
}
static void par__pipe_dualpipe(par__pipe_build *b, int r) {
    const int p = b->p / 2, upper = r >= p, near = upper ? b->p - 1 - r : r, half = (b->m + 1) / 2;
    par__pipe_two_chunk t;
    memset(&t, 0, sizeof t);
    t.b = b;
    t.r = r;
    t.stage[0] = near;
    t.stage[1] = b->p - 1 - near;
    t.first[upper] = 0;
    t.count[upper] = half;
    t.first[!upper] = half;
    t.count[!upper] = b->m - half;
    par__pipe_dual(&t, p, near, PAR__MAX(half, 2 * p));
}

// V-shaped building blocks: slot[] has the time slots of F and B of microbatch 0 on chunks a and z; those of
// microbatch i are 6 i slots later, and W fills empty slots. The slots control how long the memory of a chunk
// is held.
static void par__pipe_v_block(par__pipe_build *b, int r, const int slot[4]) {
    static const int chunk[4] = {0, 1, 1, 0};
    const int p = b->p, n = slot[3] + 12 * b->m + 64;
    par_pipe_action *at = (par_pipe_action *)PAR_MALLOC((size_t)n * sizeof *at);
    char *used = (char *)par__pipe_alloc_zeroed((size_t)n, 1);
    if (at && used) {
        for (int i = 0; i < b->m; i++)
            for (int j = 0; j < 4; j++) {
                const int t = slot[j] + 6 * i;
                used[t] = 1;
                at[t] = par__pipe_action(j < 2 ? PAR_PIPE_F : PAR_PIPE_B, chunk[j] ? 2 * p - 1 - r : r, i);
            }
        for (int t = 0; t < n; t++) {
            if (!used[t] || at[t].kind != PAR_PIPE_B) continue;
            int w = t + 1;
            while (used[w]) w++;
            used[w] = 1;
            at[w] = par__pipe_action(PAR_PIPE_W, at[t].stage, at[t].microbatch);
        }
        for (int t = 0; t < n; t++)
            if (used[t]) par__pipe_push(b, r, at[t]);
    } else
        b->no_memory = 1;
    PAR_FREE(at);
    PAR_FREE(used);
}
static void par__pipe_v_min(par__pipe_build *b, int r) {
    const int p = b->p, d = p % 3 ? 0 : 2;
    const int slot[4] = {r, 2 * p - 1 - r, 2 * p + d + r, 4 * p + d - 1 - r};
    par__pipe_v_block(b, r, slot);
}
static void par__pipe_v_half(par__pipe_build *b, int r) {
    const int p = b->p, d = p % 2 ? 0 : 3;
    const int slot[4] = {2 * r, 3 * p - 2 - r, 3 * p + d - 1 + 2 * r, 6 * p + d - 2 - r};
    par__pipe_v_block(b, r, slot);
}

// >>pipe_list_scheduling ------------------------------------------------------------------------------------
// Improves the order of a correct schedule by list scheduling. Time advances by the stages' costs. A rank
// that is free runs the action of highest priority among the next ones of its list that are ready, but no F
// that would exceed the memory limit at any later point of the list.
//     list   0 1 2 a A 3 b B ...      a is not ready, and memory allows one more microbatch:
//     taken  0 1 2 3 a A b B ...      3 goes first

typedef struct par__pipe_priority { // priority rule: offsets to an action's position in the list
    double w, b, z, noise;          // W: later; B: earlier; z: F of the second chunk earlier; noise: random
    double min_gap; // W waits if less than this fraction of it fits before the next action is ready
} par__pipe_priority;

enum { PAR__PIPE_LOOKAHEAD = 48 }; // how many actions of a list are candidates
#define PAR__PIPE_TIE 1e-6         // weight of the window: it decides between orders with the same makespan

typedef struct par__pipe_list_scheduler {
    par_pipe_schedule *s;
    const par__pipe_list *lists;
    par__pipe_list *out;
    size_t *head; // of each rank: all actions before it are scheduled
    char **taken;
    double *now, *in[2], *stage_w; // when x and dy arrive, and B ends, by stage and microbatch; < 0: unknown
    // Of each rank: its next choice, the time of it, and whether both are up to date
    long *pick;
    double *when, *started;
    char *fresh;
    size_t *live; // bytes that are live
    size_t limit;
    const par__pipe_priority *priority;
    uint64_t seed;
} par__pipe_list_scheduler;

// The change of live bytes by an action; of microbatches, if the costs have no bytes.
static long long par__pipe_memory_delta(const par_pipe_schedule *s, par_pipe_action a) {
    const par_pipe_stage *c = par__pipe_stage_of(s, a.stage);
    const int ends = a.kind == PAR_PIPE_W || a.kind == PAR_PIPE_BW;
    if (c->b_bytes + c->w_bytes == 0) return a.kind == PAR_PIPE_F ? 1 : ends ? -1 : 0;
    if (a.kind == PAR_PIPE_F) return (long long)(c->b_bytes + c->w_bytes);
    if (a.kind == PAR_PIPE_BW) return -(long long)(c->b_bytes + c->w_bytes);
    if (a.kind == PAR_PIPE_B) return (long long)c->g_bytes - (long long)c->b_bytes;
    if (a.kind == PAR_PIPE_W) return -(long long)(c->g_bytes + c->w_bytes);
    return 0;
}
// When the inputs of an action are ready; < 0: unknown yet.
static double par__pipe_ready(const par__pipe_list_scheduler *q, par_pipe_action a) {
    const par_pipe_schedule *s = q->s;
    const size_t at = par__pipe_index(s, a.stage, a.microbatch);
    if (a.kind == PAR_PIPE_F) return a.stage ? q->in[0][at] : 0;
    if (par__pipe_is_backward(a.kind)) return q->in[1][at];
    return q->stage_w[at];
}
// In [0, 1), the same for the same number (splitmix64's last steps; Steele et al. 2014).
static double par__pipe_random(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}
// The index of the best action for rank r now; -1: none is ready, and *when is the earliest time for one (or
// 1e300).
static long par__pipe_pick(const par__pipe_list_scheduler *q, int r, double *when) {
    const par__pipe_list *l = &q->lists[r];
    long best = -1;
    double best_rank = 1e300;
    long long more = 0, peak = 0;
    *when = 1e300;
    for (size_t i = q->head[r], seen = 0; i < l->count && seen < PAR__PIPE_LOOKAHEAD; i++) {
        if (q->taken[r][i]) continue;
        const par_pipe_action a = l->at[i];
        const double ready = par__pipe_ready(q, a);
        const long long delta = par__pipe_memory_delta(q->s, a);
        // if it runs now, its memory adds to the peak of all actions before it
        const long long then = (long long)q->live[r] + peak + PAR__MAX(delta, 0);
        if (ready >= 0 && (a.kind != PAR_PIPE_F || then <= (long long)q->limit)) {
            const double rank_of_action =
                (double)seen + (a.kind == PAR_PIPE_W ? q->priority->w : 0) -
                (par__pipe_is_backward(a.kind) ? q->priority->b : 0) -
                (a.kind == PAR_PIPE_F && a.stage >= q->s->ranks ? q->priority->z : 0) +
                (q->priority->noise > 0
                     ? q->priority->noise *
                           par__pipe_random(q->seed << 48 ^ (uint64_t)r << 32 ^ (q->out[r].count * 64 + seen))
                     : 0);
            if (ready > q->now[r])
                *when = PAR__MIN(*when, ready);
            else if (rank_of_action < best_rank) {
                best_rank = rank_of_action;
                best = (long)i;
            }
        }
        more += delta;
        peak = PAR__MAX(peak, more);
        seen++;
    }
    if (best >= 0 && l->at[best].kind == PAR_PIPE_W &&
        *when - q->now[r] < q->priority->min_gap * par__pipe_seconds(q->s, l->at[best]))
        return -1;
    return best;
}
static void par__pipe_append(par__pipe_list_scheduler *q, par__pipe_build *out, int r, size_t i) {
    const par_pipe_schedule *s = q->s;
    const par_pipe_action a = q->lists[r].at[i];
    const size_t at = par__pipe_index(s, a.stage, a.microbatch);
    const double end = q->now[r] += par__pipe_seconds(s, a);
    par__pipe_push(out, r, a);
    q->taken[r][i] = 1;
    while (q->head[r] < q->lists[r].count && q->taken[r][q->head[r]]) q->head[r]++;
    q->live[r] = (size_t)((long long)q->live[r] + par__pipe_memory_delta(s, a));
    if (a.kind == PAR_PIPE_F && a.stage + 1 == s->stages) q->in[1][at] = end;
    if (a.kind == PAR_PIPE_F && a.stage + 1 < s->stages) {
        const int far = par__pipe_rank_of(s, a.stage + 1, a.microbatch) != r;
        q->in[0][par__pipe_index(s, a.stage + 1, a.microbatch)] =
            end + (far ? par__pipe_message_seconds(s, a.stage + 1, a.microbatch) : 0);
        q->fresh[par__pipe_rank_of(s, a.stage + 1, a.microbatch)] = 0;
    }
    if (par__pipe_is_backward(a.kind) && a.stage > 0) {
        const int far = par__pipe_rank_of(s, a.stage - 1, a.microbatch) != r;
        q->in[1][par__pipe_index(s, a.stage - 1, a.microbatch)] =
            end + (far ? par__pipe_message_seconds(s, a.stage, a.microbatch) : 0);
        q->fresh[par__pipe_rank_of(s, a.stage - 1, a.microbatch)] = 0;
    }
    if (a.kind == PAR_PIPE_B) q->stage_w[at] = end;
}
// Schedules all actions. Returns the objective, which is to be minimized, or -1 if no action is possible. The
// rank with the earliest time goes first, so that everything before its time is known.
static double par__pipe_list_schedule(par__pipe_list_scheduler *q, par__pipe_build *out) {
    const int p = q->s->ranks;
    size_t left = 0;
    double longest = 0, widest = 0;
    for (int r = 0; r < p; r++) {
        left += q->lists[r].count;
        q->fresh[r] = 0;
        q->started[r] = -1;
    }
    while (left && !out->no_memory) {
        int r = 0;
        for (int i = 0; i < p; i++) {
            if (!q->fresh[i]) {
                q->pick[i] = par__pipe_pick(q, i, &q->when[i]);
                q->fresh[i] = 1;
            }
            if (q->pick[i] >= 0) q->when[i] = q->now[i];
            if (q->when[i] < q->when[r]) r = i;
        }
        if (q->when[r] > 1e299) return -1;
        q->fresh[r] = 0;
        if (q->pick[r] < 0) {
            q->now[r] = q->when[r];
            continue;
        }
        if (q->started[r] < 0) q->started[r] = q->now[r];
        par__pipe_append(q, out, r, (size_t)q->pick[r]);
        longest = PAR__MAX(longest, q->now[r]);
        widest = PAR__MAX(widest, q->now[r] - q->started[r]);
        left--;
    }
    return left ? -1 : longest + PAR__PIPE_TIE * widest;
}
static void par__pipe_list_scheduler_close(par__pipe_list_scheduler *q) {
    for (int r = 0; q->taken && r < q->s->ranks; r++) PAR_FREE(q->taken[r]);
    PAR_FREE(q->taken);
    PAR_FREE(q->head);
    PAR_FREE(q->now);
    PAR_FREE(q->in[0]);
    PAR_FREE(q->in[1]);
    PAR_FREE(q->stage_w);
    PAR_FREE(q->live);
    PAR_FREE(q->pick);
    PAR_FREE(q->when);
    PAR_FREE(q->fresh);
    PAR_FREE(q->started);
}
static int par__pipe_list_scheduler_open(par__pipe_list_scheduler *q, par_pipe_schedule *s,
                                         const par__pipe_list *lists) {
    const size_t p = (size_t)s->ranks, all = (size_t)s->stages * (size_t)s->microbatches;
    memset(q, 0, sizeof *q);
    q->s = s;
    q->lists = lists;
    q->head = (size_t *)par__pipe_alloc_zeroed(p, sizeof(size_t));
    q->live = (size_t *)par__pipe_alloc_zeroed(p, sizeof(size_t));
    q->taken = (char **)par__pipe_alloc_zeroed(p, sizeof(char *));
    q->now = (double *)par__pipe_alloc_zeroed(p, sizeof(double));
    q->when = (double *)par__pipe_alloc_zeroed(p, sizeof(double));
    q->started = (double *)par__pipe_alloc_zeroed(p, sizeof(double));
    q->pick = (long *)par__pipe_alloc_zeroed(p, sizeof(long));
    q->fresh = (char *)par__pipe_alloc_zeroed(p, 1);
    q->in[0] = (double *)par__pipe_alloc_zeroed(all, sizeof(double));
    q->in[1] = (double *)par__pipe_alloc_zeroed(all, sizeof(double));
    q->stage_w = (double *)par__pipe_alloc_zeroed(all, sizeof(double));
    int ok = q->head && q->live && q->taken && q->now && q->when && q->pick && q->fresh && q->started &&
             q->in[0] && q->in[1] && q->stage_w;
    for (size_t r = 0; q->taken && r < p; r++) {
        q->taken[r] = (char *)par__pipe_alloc_zeroed(lists[r].count, 1);
        ok = ok && q->taken[r];
    }
    return ok;
}
static void par__pipe_list_scheduler_reset(par__pipe_list_scheduler *q) {
    const size_t p = (size_t)q->s->ranks, all = (size_t)q->s->stages * (size_t)q->s->microbatches;
    for (size_t r = 0; r < p; r++) {
        q->head[r] = q->live[r] = 0;
        q->now[r] = 0;
        memset(q->taken[r], 0, q->lists[r].count + 1);
    }
    for (size_t i = 0; i < all; i++) q->in[0][i] = q->in[1][i] = q->stage_w[i] = -1;
}

// Keeps the better of b's lists, whose objective is *best, and the trial's; closes the trial.
static void par__pipe_keep_better(par__pipe_build *b, par__pipe_build *trial, double t, double *best) {
    if (t >= 0 && t < *best * (1 - 1e-12) && !trial->no_memory) {
        par__pipe_list *const old = b->lists;
        *best = t;
        b->lists = trial->lists;
        trial->lists = old;
    }
    par__pipe_build_close(trial);
}
// Replaces b's lists by the best result over several priority rules, if that is better than *best. 0: no
// memory.
static int par__pipe_list_schedule_best(par__pipe_build *b, size_t limit,
                                        const par__pipe_priority *priorities, int count, int tries,
                                        double *best) {
    par__pipe_list_scheduler q;
    int ok = par__pipe_list_scheduler_open(&q, b->s, b->lists);
    par__pipe_build kept = *b, out; // all priority rules start from b's lists
    double better = *best;
    kept.lists = NULL;
    q.limit = limit;
    for (int i = 0; ok && i < count * tries; i++) {
        q.priority = &priorities[i % count];
        q.seed = (uint64_t)i;
        if (i >= count && q.priority->noise <= 0) continue; // it would give the same again
        if (!(ok = par__pipe_build_open(&out, b->s))) break;
        par__pipe_list_scheduler_reset(&q);
        q.out = out.lists;
        const double t = par__pipe_list_schedule(&q, &out);
        par__pipe_keep_better(&kept, &out, t, &better);
    }
    par__pipe_list_scheduler_close(&q);
    if (kept.lists) par__pipe_keep_better(b, &kept, better, best);
    return ok;
}
static size_t par__pipe_list_peak(const par_pipe_schedule *s, const par__pipe_list *l) {
    long long now = 0, peak = 0;
    for (size_t i = 0; i < l->count; i++) {
        now += par__pipe_memory_delta(s, l->at[i]);
        peak = PAR__MAX(peak, now);
    }
    return (size_t)peak;
}

static size_t par__pipe_highest_peak(const par__pipe_build *b) {
    size_t peak = 0;
    for (int r = 0; r < b->p; r++) peak = PAR__MAX(peak, par__pipe_list_peak(b->s, &b->lists[r]));
    return peak;
}
// List scheduling fills idle time within a peak of memory.
static par_result par__pipe_fill_idle_time(par__pipe_build *b, size_t limit) {
    static const par__pipe_priority priorities[] = {{0, 0, 0, 0, 0}, {99, 0, 0, 0, 0}, {1, 2, 1, 0, 0},
                                                    {3, 0, 1, 2, 0}, {3, 2, 4, 2, 0},  {3, 1, 1, 2, 0},
                                                    {2, 2, 1, 2, 0}, {6, 1, 1, 1, 0}};
    double best = 1e300;
    const int tries = b->p * b->m <= 1024 ? 24 : 1;
    if (!par__pipe_list_schedule_best(b, limit, priorities, 8, tries, &best))
        return par__pipe_no_memory(b->s);
    if (best > 1e299)
        return par__pipe_fail(b->s, PAR_ERR_MEMORY,
                              "found no order within desc.max_activation_bytes; allow more");
    return PAR_OK;
}

// V-Half and V-Min: list scheduling fills empty slots of warmup and cooldown, within their own peak of
// memory.
static par_result par__pipe_v_finish(par__pipe_build *b) {
    const size_t peak = par__pipe_highest_peak(b), limit = b->s->desc.max_activation_bytes;
    if (limit && limit < peak)
        return par__pipe_fail(
            b->s, PAR_ERR_MEMORY,
            "%s needs %zu bytes of activations on a rank; desc.max_activation_bytes allows %zu",
            b->s->desc.schedule, peak, limit);
    return par__pipe_fill_idle_time(b, limit ? limit : peak);
}

// >>pipe_auto -----------------------------------------------------------------------------------------------
// Starts from ZB-H orders with different numbers of forwards in warmup, within the memory limit, and improves
// each by list scheduling with several priority rules (the search of Qi et al. 2024, section 4: W fills gaps,
// waits, or runs where memory forces it).

static void par__pipe_auto_lists(par__pipe_build *b, int r, double k, size_t limit) {
    const par_pipe_stage *c = par__pipe_stage_of(b->s, r);
    const size_t each = c->b_bytes + c->w_bytes;
    const double fits = !each   ? (double)(limit ? limit : (size_t)b->m)
                        : limit ? (double)(limit / each)
                                : (double)b->m;
    int w = (int)PAR__MIN((double)b->m, PAR__MIN(fits - 1, k * (b->p - 1 - r) + (k > 1 ? 1 : 0)));
    w = PAR__MAX(w, 0);
    for (int i = 0; i < w; i++) par__pipe_emit(b, r, PAR_PIPE_F, r, i);
    for (int i = 0; i < b->m; i++) {
        par__pipe_emit(b, r, PAR_PIPE_F, r, w + i);
        par__pipe_emit(b, r, PAR_PIPE_B, r, i);
        par__pipe_emit(b, r, PAR_PIPE_W, r, i);
    }
}
// The earliest time at which an input, and a gradient, can reach a rank.
typedef struct par__pipe_earliest {
    double input, gradient;
} par__pipe_earliest;
static par__pipe_earliest par__pipe_earliest_of(const par_pipe_schedule *s, int rank) {
    par__pipe_earliest x = {0, 0};
    for (int r = 0; r < s->ranks; r++) {
        const par_pipe_stage *c = par__pipe_stage_of(s, r);
        const double hop = r ? par__pipe_message_seconds(s, r, 0) : 0;
        if (r <= rank) x.input += hop + (r < rank ? c->f : 0);
        x.gradient += hop + c->f + (r > rank ? hop + c->b : 0);
    }
    return x;
}
// A lower bound of the makespan: a rank does all its work after its first input arrives, and all but the
// forwards that memory allows after its first gradient arrives.
static double par__pipe_auto_bound(const par_pipe_schedule *s, size_t limit) {
    double bound = 0;
    const int m = s->microbatches;
    for (int r = 0; r < s->ranks; r++) {
        const par_pipe_stage *c = par__pipe_stage_of(s, r);
        const par__pipe_earliest x = par__pipe_earliest_of(s, r);
        const size_t each = c->b_bytes + c->w_bytes;
        const double work = m * (c->f + c->b + c->w);
        double started = m;
        if (limit) started = PAR__MIN(started, (double)(limit / (each ? each : 1)));
        bound = PAR__MAX(bound, PAR__MAX(x.input + work, x.gradient + work - started * c->f));
    }
    return bound;
}

// Another heuristic (after Qi et al. 2024, section 4): F and B in the order of 1F1B, after as many F as fit
// before the first B can run. W runs where a gap is long enough, where this rank would otherwise become the
// one that idles most, and where memory forces it.
typedef struct par__pipe_fill {
    double min_gap;     // W fills a gap that is at least this fraction of it
    int balance;        // 1: and where this rank would become the one that idles most
    int extra_forwards; // forwards more (or fewer) in warmup
} par__pipe_fill;

static void par__pipe_fill_skeleton(par__pipe_build *k, const par__pipe_fill *how, size_t limit) {
    const par_pipe_schedule *s = k->s;
    for (int r = 0; r < k->p; r++) {
        const par_pipe_stage *c = par__pipe_stage_of(s, r);
        const par__pipe_earliest x = par__pipe_earliest_of(s, r);
        const long long each = par__pipe_memory_delta(s, par__pipe_action(PAR_PIPE_F, r, 0));
        const double fit = c->f > 0 ? ceil((x.gradient - x.input) / c->f - 1e-9) : (double)k->p;
        int w = (int)PAR__MIN((double)k->m, fit) - 1 + how->extra_forwards;
        if (limit) w = (int)PAR__MIN((long long)w, (long long)limit / each - 1);
        w = PAR__MAX(PAR__MIN(w, k->m), 0);
        for (int i = 0; i < w; i++) par__pipe_emit(k, r, PAR_PIPE_F, r, i);
        for (int i = 0; i < k->m; i++) {
            par__pipe_emit(k, r, PAR_PIPE_F, r, w + i);
            par__pipe_emit(k, r, PAR_PIPE_B, r, i);
        }
    }
}
typedef struct par__pipe_fill_state { // of a rank
    double now, started, idle;
    int w, b;
    long long live;
    size_t next;
} par__pipe_fill_state;

static void par__pipe_fill_w(par__pipe_build *out, par__pipe_fill_state *x, int r) {
    const par_pipe_action a = par__pipe_action(PAR_PIPE_W, r, x->w++);
    par__pipe_push(out, r, a);
    x->now += par__pipe_seconds(out->s, a);
    x->live += par__pipe_memory_delta(out->s, a);
}
// Schedules one F or B of rank r, and W before it. 0: its input is not ready; -1: not within the memory
// limit.
static int par__pipe_fill_one(par__pipe_build *out, const par__pipe_list *l, par__pipe_fill_state *all,
                              double *const end[2], int r, const par__pipe_fill *how, size_t limit) {
    const par_pipe_schedule *s = out->s;
    par__pipe_fill_state *x = &all[r];
    if (x->next == l[r].count) return 0;
    const par_pipe_action a = l[r].at[x->next];
    const int back = a.kind == PAR_PIPE_B, from = back ? (r + 1 < out->p ? r + 1 : r) : r - 1;
    double ready = 0, idlest = 0;
    if (from >= 0) {
        ready = end[back && from != r][par__pipe_index(s, from, a.microbatch)];
        if (ready < 0) return 0;
        if (from != r) ready += par__pipe_message_seconds(s, back ? from : r, a.microbatch);
    }
    const double w = par__pipe_stage_of(s, r)->w;
    for (int q = 0; q < out->p; q++) idlest = PAR__MAX(idlest, all[q].idle);
    while (x->w < x->b && ready - x->now >= how->min_gap * w && ready > x->now) par__pipe_fill_w(out, x, r);
    if (how->balance && x->w < x->b && x->started >= 0 && ready > x->now && x->idle + ready - x->now > idlest)
        par__pipe_fill_w(out, x, r);
    while (limit && x->live + par__pipe_memory_delta(s, a) > (long long)limit) {
        if (x->w == x->b) return -1; // not within the memory limit
        par__pipe_fill_w(out, x, r);
    }
    const double start = PAR__MAX(x->now, ready);
    if (x->started < 0)
        x->started = start;
    else
        x->idle += start - x->now;
    x->now = end[back][par__pipe_index(s, r, a.microbatch)] = start + par__pipe_seconds(s, a);
    x->live += par__pipe_memory_delta(s, a);
    x->b += back;
    x->next++;
    par__pipe_push(out, r, a);
    return 1;
}
// Fills the build's lists. Returns the objective, or -1.
static double par__pipe_fill_lists(par__pipe_build *out, const par__pipe_fill *how, size_t limit) {
    const par_pipe_schedule *s = out->s;
    const size_t all = (size_t)s->stages * (size_t)s->microbatches;
    par__pipe_build k;
    double *const end[2] = {(double *)PAR_MALLOC(all * sizeof(double)),
                            (double *)PAR_MALLOC(all * sizeof(double))};
    par__pipe_fill_state *x = (par__pipe_fill_state *)par__pipe_alloc_zeroed((size_t)out->p, sizeof *x);
    const int open = par__pipe_build_open(&k, out->s);
    double longest = -1, widest = 0;
    if (open && end[0] && end[1] && x) {
        int moved = 1, bad = 0;
        for (int r = 0; r < out->p; r++) x[r].started = -1;
        for (size_t i = 0; i < all; i++) end[0][i] = end[1][i] = -1;
        par__pipe_fill_skeleton(&k, how, limit);
        while (moved && !bad) {
            moved = 0;
            for (int r = 0; r < out->p; r++) {
                const int moved_on = par__pipe_fill_one(out, k.lists, x, end, r, how, limit);
                moved |= moved_on > 0;
                bad |= moved_on < 0;
            }
        }
        longest = 0;
        for (int r = 0; r < out->p; r++) {
            bad |= x[r].next != k.lists[r].count;
            while (x[r].w < x[r].b) par__pipe_fill_w(out, &x[r], r);
            longest = PAR__MAX(longest, x[r].now);
            widest = PAR__MAX(widest, x[r].now - x[r].started);
        }
        longest += PAR__PIPE_TIE * widest;
        if (bad || k.no_memory || out->no_memory) longest = -1;
    } else
        out->no_memory = 1;
    if (open) par__pipe_build_close(&k);
    PAR_FREE(end[0]);
    PAR_FREE(end[1]);
    PAR_FREE(x);
    return longest;
}
static par_result par__pipe_auto_finish(par__pipe_build *b) {
    static const par__pipe_priority priorities[] = {
        {0, 0, 0, 0, 0},   {99, 0, 0, 0, 0},  {1, 2, 0, 0, 0},   {3, 0, 0, 0, 0},
        {6, 2, 0, 0, .3},  {99, 9, 0, 0, .3}, {99, 3, 0, 0, .6}, {99, 9, 0, 0, .9},
        {99, 0, 0, 0, .3}, {99, 0, 0, 0, .6}, {99, 0, 0, 0, .9}, {6, 2, 0, 0, .9},
        {12, 2, 0, 0, .6}, {24, 0, 0, 0, .6}, {99, 2, 0, 0, .6}, {3, 1, 0, 2, .5}};
    static const double begins[] = {1, 1.5, 2, 3};
    par_pipe_schedule *s = b->s;
    const size_t limit = s->desc.max_activation_bytes;
    for (int r = 0; limit && r < b->p; r++) {
        const long long least = par__pipe_memory_delta(s, par__pipe_action(PAR_PIPE_F, r, 0));
        const par_pipe_stage *c = par__pipe_stage_of(s, r);
        const long long both = PAR__MAX(least, (long long)(c->w_bytes + c->g_bytes));
        if (both > (long long)limit)
            return par__pipe_fail(s, PAR_ERR_MEMORY,
                                  "one microbatch needs %lld bytes of activations on stage %d; "
                                  "desc.max_activation_bytes allows %zu",
                                  both, r, limit);
    }
    double best = 1e300;
    s->lower_bound = par__pipe_auto_bound(s, limit);
    for (int i = 0; i < 4; i++) {
        par__pipe_build trial;
        double t = 1e300;
        if (!par__pipe_build_open(&trial, s)) return par__pipe_no_memory(s);
        for (int r = 0; r < b->p; r++) par__pipe_auto_lists(&trial, r, begins[i], limit);
        if (trial.no_memory ||
            !par__pipe_list_schedule_best(&trial, limit ? limit : (size_t)-1 / 4, priorities, 16,
                                          b->p * b->m <= 1024 ? 8 : 1, &t)) {
            par__pipe_build_close(&trial);
            return par__pipe_no_memory(s);
        }
        par__pipe_keep_better(b, &trial, t, &best);
    }
    for (int i = 0; i < 3 * 2 * 5; i++) {
        static const double gaps[3] = {1, .75, .5};
        const par__pipe_fill how = {gaps[i % 3], i / 3 % 2, i / 6 - 3};
        par__pipe_build trial;
        if (!par__pipe_build_open(&trial, s)) return par__pipe_no_memory(s);
        const double t = par__pipe_fill_lists(&trial, &how, limit);
        par__pipe_keep_better(b, &trial, t, &best);
    }
    if (best > 1e299)
        return par__pipe_fail(s, PAR_ERR_MEMORY,
                              "found no order within desc.max_activation_bytes; allow more");
    return PAR_OK;
}
static void par__pipe_auto(par__pipe_build *b, int r) {
    par__pipe_auto_lists(b, r, 1, b->s->desc.max_activation_bytes);
}

// >>pipe_theory ---------------------------------------------------------------------------------------------
// Formulas for the seconds of the bubble and of messages, and for the peak number of microbatches. With p
// equal ranks x->f, x->b and x->w are (p - 1) F, B and W.

static double par__pipe_nan(void) { return strtod("nan", NULL); }
static double par__pipe_fill_and_drain(const par_pipe_costs *x) { return (x->f + x->b + x->w) / x->chunks; }
static double par__pipe_naive_bubble(const par_pipe_costs *x) {
    return x->microbatches * (x->f + x->b + x->w);
}
static double par__pipe_h1_bubble(const par_pipe_costs *x) {
    return PAR__MAX(x->f, x->f + x->b - x->w) / x->chunks;
}
static double par__pipe_h2_bubble(const par_pipe_costs *x) { return PAR__MAX(x->f, x->f + x->b - 2 * x->w); }
static double par__pipe_zb_v_bubble(const par_pipe_costs *x) {
    const double longer = PAR__MAX(x->f - x->b, 0) / 2 * (x->ranks - 2) / (x->ranks - 1);
    return PAR__MAX(x->f / 2 + longer, PAR__MAX(x->b / 2, x->b - x->w));
}
static double par__pipe_v_half_bubble(const par_pipe_costs *x) { // its cycle has room for B of twice F
    const double most = PAR__MAX(x->f, x->b), each = 1 / (x->ranks - 1);
    return (1.5 - each / 2) * most + PAR__MAX(x->f - x->w, 0) / 2 +
           x->microbatches * each * PAR__MAX(x->b - 2 * x->f, 0);
}
static double par__pipe_v_min_bubble(const par_pipe_costs *x) { // its cycle has three equal parts
    const double most = PAR__MAX(PAR__MAX(x->f, x->b), x->w), each = 1 / (x->ranks - 1);
    return (2 - (fmod(x->ranks, 3) > 0 ? .5 : 1.5) * each) * most +
           x->microbatches * each * (3 * most - x->f - x->b - x->w);
}
static double par__pipe_dualpipev_bubble(const par_pipe_costs *x) {
    return PAR__MAX(x->f + 2 * x->b - x->w, 2 * x->f) / 2;
}
static double par__pipe_dualpipe_bubble(const par_pipe_costs *x) {
    return par__pipe_dualpipev_bubble(x) * (x->ranks - 2) / (x->ranks - 1);
}
static double par__pipe_auto_bubble(const par_pipe_costs *x) {
    return PAR__MAX(x->f, x->f + x->b - (x->in_flight - 1) * x->own_f);
}

static double par__pipe_naive_hops(const par_pipe_costs *x) {
    return 2 * x->microbatches * (x->ranks - 1) * x->message;
}
static double par__pipe_gpipe_hops(const par_pipe_costs *x) { return 2 * (x->ranks - 1) * x->message; }
static double par__pipe_1f1b_hops(const par_pipe_costs *x) {
    return 2 * ((x->ranks - 1) * (x->microbatches / x->ranks + 1) - 1) * x->message;
}
static double par__pipe_h1_hops(const par_pipe_costs *x) { return 4 * (x->ranks - 1) * x->message; }
static double par__pipe_chunk_hops(const par_pipe_costs *x) {
    return (2 * x->ranks * x->chunks - 2) * x->message;
}

static double par__pipe_no_window(const par_pipe_costs *x) { return (void)x, par__pipe_nan(); }
static double par__pipe_h2_window(const par_pipe_costs *x) {
    if (x->microbatches < 2 * x->ranks || x->w > x->b || x->w > x->f) return par__pipe_nan();
    return x->f + x->b - 2 * x->w + par__pipe_gpipe_hops(x);
}
static int par__pipe_is_equal(const par_pipe_costs *x) { // F = B = W
    return fabs(x->f - x->b) <= 1e-9 * x->f && fabs(x->f - x->w) <= 1e-9 * x->f;
}
static double par__pipe_zb_v_window(const par_pipe_costs *x) {
    if (!par__pipe_is_equal(x) || x->ranks < 2 || x->microbatches < 2 * x->ranks - 1) return par__pipe_nan();
    return (6 * x->ranks - 8) * x->message;
}

static int par__pipe_always(const par_pipe_costs *x) { return (void)x, 1; }
static int par__pipe_never(const par_pipe_costs *x) { return (void)x, 0; }
static int par__pipe_is_multiple(const par_pipe_costs *x) { return fmod(x->microbatches, x->ranks) == 0; }
static int par__pipe_is_long(const par_pipe_costs *x) { return x->microbatches >= 2 * x->ranks; }
static int par__pipe_if_1f1b(const par_pipe_costs *x) {
    return x->message <= 0 || (par__pipe_is_multiple(x) && x->ranks >= 2);
}
static int par__pipe_if_interleaved(const par_pipe_costs *x) {
    return par__pipe_is_multiple(x) && (x->message <= 0 || (x->ranks >= 2 && x->chunks >= 2));
}
static int par__pipe_if_bfs(const par_pipe_costs *x) {
    return x->message <= 0 && x->microbatches >= x->ranks;
}
static int par__pipe_if_h1(const par_pipe_costs *x) {
    return par__pipe_is_long(x) && x->w <= x->b && x->w <= x->f;
}
static int par__pipe_if_interleaved_zb(const par_pipe_costs *x) {
    return x->message <= 0 && par__pipe_is_multiple(x) && par__pipe_if_h1(x);
}
static int par__pipe_if_zb_v(const par_pipe_costs *x) {
    return x->message <= 0 && par__pipe_is_equal(x) && x->ranks >= 2 && x->microbatches >= 2 * x->ranks - 1;
}
static int par__pipe_if_equal(const par_pipe_costs *x) {
    return x->message <= 0 && par__pipe_is_equal(x) && par__pipe_is_long(x);
}
// The published formulas of the next two also cover other p. There list scheduling finds orders that
// are longer or shorter by a chunk or two for some m (V-Half: even p; V-Min: p = 3 k + 2).
static int par__pipe_if_v_half(const par_pipe_costs *x) {
    return par__pipe_if_equal(x) && x->ranks >= 3 && fmod(x->ranks, 2) > 0;
}
static int par__pipe_if_v_min(const par_pipe_costs *x) {
    return par__pipe_if_equal(x) && x->ranks >= 3 && fmod(x->ranks, 3) <= 1;
}
static int par__pipe_if_dualpipe(const par_pipe_costs *x) {
    return par__pipe_if_equal(x) && (x->ranks < 2 || fmod(x->microbatches, 2) == 0);
}

static double par__pipe_one_peak(const par_pipe_costs *x, double r) { return (void)x, (void)r, 1; }
static double par__pipe_all_peak(const par_pipe_costs *x, double r) { return (void)r, x->microbatches; }
static double par__pipe_no_peak(const par_pipe_costs *x, double r) {
    return (void)x, (void)r, par__pipe_nan();
}
static double par__pipe_1f1b_peak(const par_pipe_costs *x, double r) {
    return PAR__MIN(x->microbatches, x->ranks - r);
}
static double par__pipe_interleaved_peak(const par_pipe_costs *x, double r) {
    return PAR__MIN(x->microbatches, (2 * (x->ranks - r - 1) + (x->chunks - 1) * x->ranks + 1) / x->chunks);
}
static double par__pipe_interleaved_zb_peak(const par_pipe_costs *x, double r) {
    return PAR__MIN(x->microbatches, (x->chunks * x->ranks - r) / x->chunks);
}
static double par__pipe_h2_peak(const par_pipe_costs *x, double r) {
    return PAR__MIN(x->microbatches, 2 * (x->ranks - r) - 1);
}
static double par__pipe_auto_peak(const par_pipe_costs *x, double r) { return (void)r, x->in_flight; }
// Of weight halves all ranks keep what the first one does, which is a schedule's memory as it is published.
#define PAR__PIPE_PEAK(name, most)                                                                           \
    static double par__pipe_##name##_peak(const par_pipe_costs *x, double r) {                               \
        return (void)r, PAR__MIN(x->microbatches, most);                                                     \
    }
PAR__PIPE_PEAK(p, x->ranks)
PAR__PIPE_PEAK(twice, 2 * x->ranks - 1)
PAR__PIPE_PEAK(half, x->ranks / 2 + 1)
PAR__PIPE_PEAK(third, x->ranks / 3 + 1)
PAR__PIPE_PEAK(dualpipev, x->ranks + .5)
PAR__PIPE_PEAK(dualpipe, x->ranks + 1)

// >>pipe_table ----------------------------------------------------------------------------------------------

static par_result par__pipe_nothing(par__pipe_build *b) { return (void)b, PAR_OK; }

const par_pipe_traits par_pipe_schedules[PAR_PIPE_SCHEDULE_COUNT] = {
#define PAR__X(constant, name, lists, finish, chunks, placement, splits, rounds, multiple, bubble, messages, \
               is_exact, window, peak, in_flight, source)                                                    \
    {name,                                                                                                   \
     chunks,                                                                                                 \
     PAR_PIPE_##placement,                                                                                   \
     splits,                                                                                                 \
     rounds,                                                                                                 \
     multiple,                                                                                               \
     par__pipe_##bubble,                                                                                     \
     par__pipe_##messages,                                                                                   \
     par__pipe_##is_exact,                                                                                   \
     par__pipe_##window,                                                                                     \
     par__pipe_##peak,                                                                                       \
     par__pipe_##in_flight,                                                                                  \
     source},
    PAR_PIPE_SCHEDULES(PAR__X)
#undef PAR__X
};
typedef struct par__pipe_generator {
    void (*lists)(par__pipe_build *b, int rank);
    par_result (*finish)(par__pipe_build *b); // runs after the generator, over all ranks' lists
} par__pipe_generator;
static const par__pipe_generator par__pipe_generators[] = { // of the same rows
#define PAR__X(constant, name, lists, finish, ...) {par__pipe_##lists, par__pipe_##finish},
    PAR_PIPE_SCHEDULES(PAR__X)
#undef PAR__X
};

const par_pipe_traits *par_pipe_schedule_find(const char *name) {
    for (int i = 0; name && i < PAR_PIPE_SCHEDULE_COUNT; i++)
        if (!strcmp(par_pipe_schedules[i].name, name)) return &par_pipe_schedules[i];
    return NULL;
}
par_suggestion par_pipe_schedule_suggest(const char *name) {
    return par_suggest(name, &par_pipe_schedules[0].name, PAR_PIPE_SCHEDULE_COUNT,
                       sizeof par_pipe_schedules[0]);
}

// >>pipe_events ---------------------------------------------------------------------------------------------
// Simulates a table with its costs. A rank advances until its next action has to wait, and is woken when a
// message arrives for it. Times follow from the dependencies alone, without a global clock, and each action
// is visited once or twice, whatever the number of ranks.

enum { PAR__PIPE_DONE_F = 1, PAR__PIPE_DONE_B = 2, PAR__PIPE_POSTED_F = 4, PAR__PIPE_POSTED_B = 8 };

typedef struct par__pipe_sim {
    const par_pipe_schedule *s;
    par_pipe_protocol protocol;
    double *start, *end;        // of actions
    uint32_t *order;            // the order in which they ran
    double *in[2];              // when x and dy of (stage, microbatch) arrive; < 0: unknown
    uint8_t *done;              // of (stage, microbatch)
    double *channel_free_at[2]; // when the channel of a stage's output, of its input gradient, is free
    size_t *next;               // of ranks
    double *now;
    int *queue;
    uint8_t *queued;
    int head, tail;
    uint32_t order_count;
} par__pipe_sim;

static void par__pipe_sim_close(par__pipe_sim *w) {
    PAR_FREE(w->start);
    PAR_FREE(w->end);
    PAR_FREE(w->order);
    PAR_FREE(w->done);
    PAR_FREE(w->next);
    PAR_FREE(w->now);
    PAR_FREE(w->queue);
    PAR_FREE(w->queued);
    for (int i = 0; i < 2; i++) {
        PAR_FREE(w->in[i]);
        PAR_FREE(w->channel_free_at[i]);
    }
    memset(w, 0, sizeof *w);
}
static int par__pipe_sim_open(par__pipe_sim *w, const par_pipe_schedule *s, par_pipe_protocol protocol) {
    const size_t all = (size_t)s->stages * (size_t)s->microbatches, p = (size_t)s->ranks, n = s->first[p];
    const size_t channels = par__pipe_channel_count(s);
    memset(w, 0, sizeof *w);
    w->s = s;
    w->protocol = protocol;
    w->start = (double *)par__pipe_alloc_zeroed(n, sizeof(double));
    w->end = (double *)par__pipe_alloc_zeroed(n, sizeof(double));
    w->order = (uint32_t *)par__pipe_alloc_zeroed(n, sizeof(uint32_t));
    w->done = (uint8_t *)par__pipe_alloc_zeroed(all, 1);
    w->next = (size_t *)par__pipe_alloc_zeroed(p, sizeof(size_t));
    w->now = (double *)par__pipe_alloc_zeroed(p, sizeof(double));
    w->queue = (int *)par__pipe_alloc_zeroed(p + 1, sizeof(int));
    w->queued = (uint8_t *)par__pipe_alloc_zeroed(p, 1);
    int ok = w->start && w->end && w->order && w->done && w->next && w->now && w->queue && w->queued;
    for (int i = 0; i < 2; i++) {
        w->in[i] = (double *)par__pipe_alloc_zeroed(all, sizeof(double));
        w->channel_free_at[i] = (double *)par__pipe_alloc_zeroed(channels, sizeof(double));
        ok = ok && w->in[i] && w->channel_free_at[i];
        for (size_t j = 0; w->in[i] && j < all; j++) w->in[i][j] = -1;
    }
    for (size_t r = 0; ok && r < p; r++) w->next[r] = s->first[r];
    return ok;
}
static void par__pipe_sim_wake(par__pipe_sim *w, int rank) {
    if (w->queued[rank]) return;
    w->queued[rank] = 1;
    w->queue[w->tail] = rank;
    w->tail = (w->tail + 1) % (w->s->ranks + 1);
}
// `stage` sends a message (its output or, with back, its input gradient) at time t. Returns when it arrives.
static double par__pipe_sim_transfer(par__pipe_sim *w, int back, int stage, int microbatch, double t) {
    const par_pipe_schedule *s = w->s;
    const int to = back ? stage - 1 : stage + 1;
    const size_t at = par__pipe_index(s, to, microbatch);
    double *channel = &w->channel_free_at[back][par__pipe_channel(s, back, stage, microbatch)];
    const int edge = back ? stage : to; // the edge before this stage
    const double bytes = (double)par__pipe_message_bytes(s, edge, microbatch);
    *channel = PAR__MAX(*channel, t) + par__pipe_byte_seconds(s, edge) * bytes;
    return w->in[back][at] = *channel + par__pipe_latency(s, edge);
}
static void par__pipe_sim_record(par__pipe_sim *w, size_t i, double start, double end) {
    w->start[i] = start;
    w->end[i] = end;
    w->order[i] = w->order_count++;
}

// Why an action cannot run: READY: it can, at *ready; else a local action, a receive, or a message must come
// first.
typedef enum par__pipe_wait_reason {
    PAR__PIPE_READY,
    PAR__PIPE_WAIT_LOCAL,
    PAR__PIPE_WAIT_RECV,
    PAR__PIPE_WAIT_MESSAGE
} par__pipe_wait_reason;
static par__pipe_wait_reason par__pipe_input_wait(const par__pipe_sim *w, int back, par_pipe_action a,
                                                  double *ready) {
    const par_pipe_schedule *s = w->s;
    const size_t at = par__pipe_index(s, a.stage, a.microbatch);
    const int from = back ? a.stage + 1 : a.stage - 1;
    if (from < 0 || from == s->stages) return PAR__PIPE_READY;
    const int r = par__pipe_rank_of(s, a.stage, a.microbatch), q = par__pipe_rank_of(s, from, a.microbatch);
    if (q != r && s->has_sends && !(w->done[at] & (back ? PAR__PIPE_POSTED_B : PAR__PIPE_POSTED_F)))
        return PAR__PIPE_WAIT_RECV;
    if (w->in[back][at] < 0) return q == r ? PAR__PIPE_WAIT_LOCAL : PAR__PIPE_WAIT_MESSAGE;
    *ready = PAR__MAX(*ready, w->in[back][at]);
    return PAR__PIPE_READY;
}
static par__pipe_wait_reason par__pipe_wait_reason_of(const par__pipe_sim *w, par_pipe_action a,
                                                      double *ready) {
    const uint8_t done = par__pipe_computes(a.kind) || par__pipe_sends(a.kind)
                             ? w->done[par__pipe_index(w->s, a.stage, a.microbatch)]
                             : 0;
    switch (a.kind) {
    case PAR_PIPE_F: return par__pipe_input_wait(w, 0, a, ready);
    case PAR_PIPE_R:
    case PAR_PIPE_SEND_F: return done & PAR__PIPE_DONE_F ? PAR__PIPE_READY : PAR__PIPE_WAIT_LOCAL;
    case PAR_PIPE_B:
    case PAR_PIPE_BW:
        return done & PAR__PIPE_DONE_F ? par__pipe_input_wait(w, 1, a, ready) : PAR__PIPE_WAIT_LOCAL;
    case PAR_PIPE_W:
    case PAR_PIPE_SEND_B: return done & PAR__PIPE_DONE_B ? PAR__PIPE_READY : PAR__PIPE_WAIT_LOCAL;
    default: return PAR__PIPE_READY;
    }
}
static void par__pipe_sim_mark(par__pipe_sim *w, size_t at, int done) {
    w->done[at] = (uint8_t)(w->done[at] | done);
}
static void par__pipe_sim_computed(par__pipe_sim *w, int r, par_pipe_action a, double end) {
    const par_pipe_schedule *s = w->s;
    const int back = a.kind != PAR_PIPE_F, to = back ? a.stage - 1 : a.stage + 1;
    if (a.kind == PAR_PIPE_W || a.kind == PAR_PIPE_R) return;
    par__pipe_sim_mark(w, par__pipe_index(s, a.stage, a.microbatch),
                       back ? PAR__PIPE_DONE_B : PAR__PIPE_DONE_F);
    if (to < 0 || to == s->stages) return;
    const int q = par__pipe_rank_of(s, to, a.microbatch);
    if (q == r)
        w->in[back][par__pipe_index(s, to, a.microbatch)] = end;
    else if (!s->has_sends) {
        par__pipe_sim_transfer(w, back, a.stage, a.microbatch, end);
        par__pipe_sim_wake(w, q);
    }
}
// The receive of a send, or the send of a receive, and its rank.
static par_pipe_action par__pipe_peer_action(par_pipe_action a, const par_pipe_schedule *s, int *rank) {
    const int up = a.kind == PAR_PIPE_SEND_F || a.kind == PAR_PIPE_RECV_B;
    par_pipe_action o = a;
    o.stage = up ? a.stage + 1 : a.stage - 1;
    o.kind = (uint8_t)(a.kind == PAR_PIPE_SEND_F   ? PAR_PIPE_RECV_F
                       : a.kind == PAR_PIPE_RECV_F ? PAR_PIPE_SEND_F
                       : a.kind == PAR_PIPE_SEND_B ? PAR_PIPE_RECV_B
                                                   : PAR_PIPE_SEND_B);
    *rank = par__pipe_rank_of(s, o.stage, a.microbatch);
    return o;
}
// Rendezvous: a send and its receive run together, or neither.
static int par__pipe_sim_rendezvous(par__pipe_sim *w, int r, size_t i) {
    const par_pipe_schedule *s = w->s;
    const par_pipe_action a = s->actions[i];
    int q;
    double ready = 0;
    const par_pipe_action o = par__pipe_peer_action(a, s, &q);
    const size_t j = w->next[q];
    if (j == s->first[q + 1] || s->actions[j].kind != o.kind || s->actions[j].stage != o.stage ||
        s->actions[j].microbatch != o.microbatch)
        return 0;
    const par_pipe_action send = par__pipe_sends(a.kind) ? a : o;
    if (par__pipe_wait_reason_of(w, send, &ready) != PAR__PIPE_READY) return 0;
    const int back = send.kind == PAR_PIPE_SEND_B;
    const double t = PAR__MAX(w->now[r], w->now[q]);
    const double end = par__pipe_sim_transfer(w, back, send.stage, send.microbatch, t);
    par__pipe_sim_mark(w, par__pipe_index(s, back ? send.stage - 1 : send.stage + 1, send.microbatch),
                       back ? PAR__PIPE_POSTED_B : PAR__PIPE_POSTED_F);
    par__pipe_sim_record(w, i, w->now[r], end);
    par__pipe_sim_record(w, j, w->now[q], end);
    w->now[r] = w->now[q] = end;
    w->next[r]++;
    w->next[q]++;
    par__pipe_sim_wake(w, q);
    return 1;
}
static int par__pipe_sim_message(par__pipe_sim *w, int r, size_t i) {
    const par_pipe_schedule *s = w->s;
    const par_pipe_action a = s->actions[i];
    const int back = a.kind == PAR_PIPE_SEND_B || a.kind == PAR_PIPE_RECV_B;
    const size_t at = par__pipe_index(s, a.stage, a.microbatch);
    double end = w->now[r];
    int q;
    if (w->protocol == PAR_PIPE_RENDEZVOUS) return par__pipe_sim_rendezvous(w, r, i);
    if (par__pipe_sends(a.kind)) {
        if (par__pipe_wait_reason_of(w, a, &end) != PAR__PIPE_READY) return 0;
        par__pipe_sim_transfer(w, back, a.stage, a.microbatch, w->now[r]);
        par__pipe_peer_action(a, s, &q);
        par__pipe_sim_wake(w, q);
    } else
        par__pipe_sim_mark(w, at, back ? PAR__PIPE_POSTED_B : PAR__PIPE_POSTED_F);
    par__pipe_sim_record(w, i, w->now[r], end);
    w->now[r] = end;
    w->next[r]++;
    return 1;
}
static int par__pipe_sim_advance(par__pipe_sim *w, int r) { // 1: rank r has advanced
    const par_pipe_schedule *s = w->s;
    const size_t i = w->next[r];
    if (i == s->first[r + 1]) return 0;
    const par_pipe_action a = s->actions[i];
    if (par__pipe_sends(a.kind) || par__pipe_receives(a.kind)) return par__pipe_sim_message(w, r, i);
    double t = w->now[r];
    if (par__pipe_wait_reason_of(w, a, &t) != PAR__PIPE_READY) return 0;
    const double d = par__pipe_seconds(s, a);
    if (!a.pair || i + 1 == s->first[r + 1]) {
        par__pipe_sim_record(w, i, t, t + d);
        w->now[r] = t + d;
        w->next[r]++;
        if (par__pipe_computes(a.kind)) par__pipe_sim_computed(w, r, a, t + d);
        return 1;
    }
    const par_pipe_action b = s->actions[i + 1];
    const double fbw = par__pipe_stage_of(s, a.stage)->fbw, e = par__pipe_seconds(s, b);
    const int follows = a.kind == PAR_PIPE_F && b.stage == a.stage && b.microbatch == a.microbatch &&
                        a.stage == s->stages - 1; // b needs only the result of a
    if (!follows && par__pipe_wait_reason_of(w, b, &t) != PAR__PIPE_READY) return 0;
    const int together = a.kind != PAR_PIPE_R && fbw > 0;
    const double end = together ? t + fbw : t + d + e;
    const double middle = together ? end : t + d;
    par__pipe_sim_record(w, i, t, middle);
    par__pipe_sim_record(w, i + 1, together ? t : middle, end);
    w->now[r] = end;
    w->next[r] += 2;
    par__pipe_sim_computed(w, r, a, end); // what a pair makes leaves when both have ended, as in >>pipe_lower
    par__pipe_sim_computed(w, r, b, end);
    return 1;
}
static int par__pipe_sim_run(par__pipe_sim *w) { // 1: all actions ran; 0: deadlock
    for (int r = 0; r < w->s->ranks; r++) par__pipe_sim_wake(w, r);
    while (w->head != w->tail) {
        const int r = w->queue[w->head];
        w->head = (w->head + 1) % (w->s->ranks + 1);
        w->queued[r] = 0;
        while (par__pipe_sim_advance(w, r)) {
        }
    }
    for (int r = 0; r < w->s->ranks; r++)
        if (w->next[r] != w->s->first[r + 1]) return 0;
    return 1;
}

// After a deadlock: the action at which rank r waits. Of a pair it may be the second.
static par_pipe_action par__pipe_blocked(const par__pipe_sim *w, int r) {
    const size_t i = w->next[r];
    const par_pipe_action a = w->s->actions[i];
    double t = 0;
    const int second = a.pair && i + 1 < w->s->first[r + 1] && par__pipe_computes(a.kind) &&
                       par__pipe_wait_reason_of(w, a, &t) == PAR__PIPE_READY;
    return w->s->actions[i + (size_t)second];
}
// *what is the action that rank r waits for; returns the rank that has it in its list.
static int par__pipe_blocker(const par__pipe_sim *w, int r, par_pipe_action *what) {
    const par_pipe_schedule *s = w->s;
    const par_pipe_action a = par__pipe_blocked(w, r);
    double t = 0;
    int q = r;
    if (par__pipe_receives(a.kind) ||
        (par__pipe_sends(a.kind) && par__pipe_wait_reason_of(w, a, &t) == PAR__PIPE_READY)) {
        *what = par__pipe_peer_action(a, s, &q);
        return q;
    }
    const par__pipe_wait_reason want = par__pipe_wait_reason_of(w, a, &t);
    const int back = par__pipe_is_backward(a.kind);
    const int own_f = back && !(w->done[par__pipe_index(s, a.stage, a.microbatch)] & PAR__PIPE_DONE_F);
    *what = a;
    if (want == PAR__PIPE_WAIT_LOCAL && (own_f || a.kind == PAR_PIPE_SEND_F || a.kind == PAR_PIPE_R)) {
        what->kind = PAR_PIPE_F;
        return r;
    }
    if (want == PAR__PIPE_WAIT_LOCAL && (a.kind == PAR_PIPE_W || a.kind == PAR_PIPE_SEND_B)) {
        what->kind = PAR_PIPE_B;
        return r;
    }
    if (want == PAR__PIPE_WAIT_RECV) return what->kind = back ? PAR_PIPE_RECV_B : PAR_PIPE_RECV_F, r;
    what->stage = back ? a.stage + 1 : a.stage - 1;
    what->kind = s->has_sends && want == PAR__PIPE_WAIT_MESSAGE ? (back ? PAR_PIPE_SEND_B : PAR_PIPE_SEND_F)
                 : back                                         ? PAR_PIPE_B
                                                                : PAR_PIPE_F;
    return par__pipe_rank_of(s, what->stage, a.microbatch);
}
// The same; *what is BW if rank q's list has the whole backward.
static int par__pipe_waits_for(const par__pipe_sim *w, int r, par_pipe_action *what) {
    const par_pipe_schedule *s = w->s;
    const int q = par__pipe_blocker(w, r, what);
    for (size_t i = w->next[q]; what->kind == PAR_PIPE_B && i < s->first[q + 1]; i++)
        if (s->actions[i].kind == PAR_PIPE_BW && s->actions[i].stage == what->stage &&
            s->actions[i].microbatch == what->microbatch)
            what->kind = PAR_PIPE_BW;
    return q;
}
// Describes the shortest cycle of ranks that wait for each other. Ranks outside a cycle wait for one in a
// cycle.
static par_result par__pipe_deadlock(const par__pipe_sim *w, par_pipe_schedule *s) {
    int best = -1, length = s->ranks + 1;
    char what[48], own[48];
    par_pipe_action a;
    for (int r = 0; r < s->ranks; r++) {
        int q = r, n = 0;
        if (w->next[r] == s->first[r + 1]) continue;
        do {
            q = par__pipe_blocker(w, q, &a);
            n++;
        } while (q != r && n <= length && w->next[q] != s->first[q + 1]);
        if (q == r && n < length) {
            best = r;
            length = n;
        }
    }
    size_t at = 0;
    int r = best;
    at += (size_t)snprintf(s->why, sizeof s->why,
                           "deadlock%s:", length > 1 ? ", ranks wait for each other" : "");
    for (int n = 0; best >= 0 && n < length && at < sizeof s->why; n++) {
        const int q = par__pipe_waits_for(w, r, &a);
        at += (size_t)snprintf(s->why + at, sizeof s->why - at, "%s rank %d at %s waits for %s of rank %d",
                               n ? ";" : "", r, par__pipe_text(par__pipe_blocked(w, r), own),
                               par__pipe_text(a, what), q);
        r = q;
    }
    if (best < 0)
        snprintf(s->why, sizeof s->why, "deadlock: a rank waits for an action that is in no rank's list");
    return PAR_ERR_ARGUMENT;
}

// >>pipe_lower ----------------------------------------------------------------------------------------------
// Lowers a table of computations to a full one. First each rank gets recomputation and hooks, then sends and
// receives are added for all ranks, in the order in which computations end: a send after the action that
// makes the message and, at the same time, its receive at the end of the receiver's list so far. So all lists
// are projections of one total order, in which each receive follows its send: such a table does not deadlock,
// even if sends wait for receives.

static int par__pipe_is_last_gradient(const par_pipe_action *at, size_t n, size_t i) {
    for (size_t j = i + 1; j < n; j++)
        if (at[j].stage == at[i].stage && (at[j].kind == PAR_PIPE_BW || at[j].kind == PAR_PIPE_W)) return 0;
    return 1;
}
static int par__pipe_uses_parameters(int kind) {
    return kind == PAR_PIPE_F || kind == PAR_PIPE_B || kind == PAR_PIPE_BW || kind == PAR_PIPE_R;
}
// Unshards the stage of an action. If too many are gathered, it reshards the one whose next use is farthest
// (Belady 1966).
static void par__pipe_emit_unshard(par__pipe_build *b, int r, const par_pipe_action *at, size_t n, size_t i,
                                   int *have, int *count) {
    const int limit = b->s->desc.max_gathered_stages;
    int victim = 0;
    size_t farthest = 0;
    for (int k = 0; k < *count; k++)
        if (have[k] == at[i].stage) return;
    if (*count == limit) {
        for (int k = 0; k < limit; k++) {
            size_t j = i + 1;
            while (j < n && !(at[j].stage == have[k] && par__pipe_uses_parameters(at[j].kind))) j++;
            if (j > farthest) {
                farthest = j;
                victim = k;
            }
        }
        par__pipe_push(b, r, par__pipe_action(PAR_PIPE_RESHARD, have[victim], 0));
        have[victim] = have[--*count];
    }
    have[(*count)++] = at[i].stage;
    par__pipe_push(b, r, par__pipe_action(PAR_PIPE_UNSHARD, at[i].stage, 0));
}
static void par__pipe_emit_hooks(par__pipe_build *out, int r, const par_pipe_action *at, size_t n) {
    const par_pipe_schedule *s = out->s;
    const par_pipe_desc *d = &s->desc;
    int have[64], count = 0, tied[2], ties = 0;
    for (size_t i = 0; i < n; i++) {
        par_pipe_action a = at[i];
        const int backward = par__pipe_is_backward(a.kind), paired = i > 0 && at[i - 1].pair;
        if (backward && !paired && par__pipe_recomputed(s, a.microbatch)) {
            par_pipe_action again = par__pipe_action(PAR_PIPE_R, a.stage, a.microbatch);
            if (d->max_gathered_stages) par__pipe_emit_unshard(out, r, at, n, i, have, &count);
            again.pair = d->recompute == PAR_PIPE_RECOMPUTE_FUSED;
            par__pipe_push(out, r, again);
        }
        if (a.pair && i + 1 < n && par__pipe_recomputed(s, at[i + 1].microbatch) && a.kind == PAR_PIPE_F)
            par__pipe_push(out, r, par__pipe_action(PAR_PIPE_R, at[i + 1].stage, at[i + 1].microbatch));
        if (a.pair && d->max_gathered_stages == 1) a.pair = 0; // two stages cannot be gathered
        if (d->max_gathered_stages && par__pipe_uses_parameters(a.kind)) {
            par__pipe_emit_unshard(out, r, at, n, i, have, &count);
            if (a.pair) par__pipe_emit_unshard(out, r, at, n, i + 1, have, &count);
        }
        par__pipe_push(out, r, a);
        if (a.kind != PAR_PIPE_BW && a.kind != PAR_PIPE_W) continue;
        const int last = d->reduce == 1 || d->tied ? par__pipe_is_last_gradient(at, n, i) : 0;
        const int tie = d->tied && s->stages > 1 && (a.stage == 0 || a.stage == s->stages - 1);
        if (last && tie) tied[ties++ & 1] = a.stage;
        if (d->reduce == 2 || (d->reduce == 1 && last && !tie))
            par__pipe_push(out, r, par__pipe_action(PAR_PIPE_REDUCE, a.stage, a.microbatch));
    }
    for (int i = 0; i < PAR__MIN(ties, 2); i++)
        par__pipe_push(out, r, par__pipe_action(PAR_PIPE_TIE, tied[i], 0));
    for (int i = 0; d->reduce == 1 && i < PAR__MIN(ties, 2); i++)
        par__pipe_push(out, r, par__pipe_action(PAR_PIPE_REDUCE, tied[i], s->microbatches - 1));
    for (int i = 0; i < count; i++) par__pipe_push(out, r, par__pipe_action(PAR_PIPE_RESHARD, have[i], 0));
}

typedef struct par__pipe_event {
    double end;
    uint32_t order;
    int rank;
    size_t i;
} par__pipe_event;
static int par__pipe_by_time(const void *a, const void *b) {
    const par__pipe_event *x = (const par__pipe_event *)a, *y = (const par__pipe_event *)b;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}
// The receiver's list ends with the action that has started last; the receive must not separate a pair.
static void par__pipe_push_receive(par__pipe_build *b, int q, par_pipe_action a) {
    par__pipe_list *l = &b->lists[q];
    par__pipe_push(b, q, a);
    if (b->no_memory || l->count < 2 || !l->at[l->count - 2].pair) return;
    l->at[l->count - 1] = l->at[l->count - 2];
    l->at[l->count - 2] = a;
}
static void par__pipe_push_send(par__pipe_build *b, int r, par_pipe_action a) {
    const par_pipe_schedule *s = b->s;
    const int back = par__pipe_is_backward(a.kind), to = back ? a.stage - 1 : a.stage + 1;
    if ((a.kind != PAR_PIPE_F && !back) || !par__pipe_crosses_ranks(s, a.stage, to, a.microbatch)) return;
    par__pipe_push(b, r, par__pipe_action(back ? PAR_PIPE_SEND_B : PAR_PIPE_SEND_F, a.stage, a.microbatch));
    par__pipe_push_receive(b, par__pipe_rank_of(s, to, a.microbatch),
                           par__pipe_action(back ? PAR_PIPE_RECV_B : PAR_PIPE_RECV_F, to, a.microbatch));
}
static par_result par__pipe_add_sends(par_pipe_schedule *s) {
    par__pipe_sim w;
    par__pipe_build b;
    const size_t n = s->first[s->ranks];
    par__pipe_event *order = (par__pipe_event *)PAR_MALLOC((n + 1) * sizeof *order);
    const int ok = par__pipe_sim_open(&w, s, PAR_PIPE_NONBLOCKING) & (order != NULL);
    par_result result = ok ? PAR_OK : par__pipe_no_memory(s);
    if (ok && !par__pipe_sim_run(&w)) result = par__pipe_deadlock(&w, s);
    for (int r = 0; result == PAR_OK && r < s->ranks; r++)
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            par__pipe_event *o = &order[i];
            const int first_of_pair = s->actions[i].pair && i + 1 < s->first[r + 1];
            o->end = w.end[first_of_pair ? i + 1 : i];
            o->order = w.order[i];
            o->rank = r;
            o->i = i;
        }
    par__pipe_sim_close(&w);
    if (result == PAR_OK && !par__pipe_build_open(&b, s)) result = par__pipe_no_memory(s);
    if (result == PAR_OK) {
        qsort(order, n, sizeof *order, par__pipe_by_time);
        for (size_t j = 0; j < n; j++) {
            const int r = order[j].rank;
            const size_t i = order[j].i;
            const par_pipe_action a = s->actions[i];
            par__pipe_push(&b, r, a);
            if (a.pair && i + 1 < s->first[r + 1]) continue;
            if (i > s->first[r] && s->actions[i - 1].pair) par__pipe_push_send(&b, r, s->actions[i - 1]);
            par__pipe_push_send(&b, r, a);
        }
        result = par__pipe_build_end(&b);
        s->has_sends = 1;
    }
    PAR_FREE(order);
    return result;
}
static par_result par__pipe_add_hooks(par_pipe_schedule *s) {
    par__pipe_build b;
    if (!par__pipe_build_open(&b, s)) return par__pipe_no_memory(s);
    for (int r = 0; r < s->ranks; r++)
        par__pipe_emit_hooks(&b, r, s->actions + s->first[r], s->first[r + 1] - s->first[r]);
    return par__pipe_build_end(&b);
}

// >>pipe_lifetimes ------------------------------------------------------------------------------------------
// The buffers that an action acquires before it starts, and releases after it ends. Plan and executor use the
// same list.

enum {
    PAR__PIPE_X,
    PAR__PIPE_DY,
    PAR__PIPE_SAVED_B,
    PAR__PIPE_SAVED_W,
    PAR__PIPE_SAVED_G,
    PAR__PIPE_SAVED_C,
    PAR__PIPE_BUFFER_KINDS
};

typedef struct par__pipe_buffer {
    int kind, stage;
} par__pipe_buffer;
typedef struct par__pipe_lifetimes {
    par__pipe_buffer acquire[8], release[8];
    int acquired, released;
} par__pipe_lifetimes;

static size_t par__pipe_buffer_bytes(const par_pipe_schedule *s, par__pipe_buffer c) {
    const par_pipe_stage *x = par__pipe_stage_of(s, c.stage);
    switch (c.kind) {
    case PAR__PIPE_X: return par__pipe_input_bytes(s, c.stage);
    case PAR__PIPE_DY: return par__pipe_input_bytes(s, c.stage + 1);
    case PAR__PIPE_SAVED_B: return x->b_bytes;
    case PAR__PIPE_SAVED_W: return x->w_bytes;
    case PAR__PIPE_SAVED_G: return x->g_bytes;
    default: return x->c_bytes;
    }
}
static void par__pipe_acquire(par__pipe_lifetimes *c, int kind, int stage) {
    c->acquire[c->acquired].kind = kind;
    c->acquire[c->acquired++].stage = stage;
}
static void par__pipe_release(par__pipe_lifetimes *c, int kind, int stage) {
    c->release[c->released].kind = kind;
    c->release[c->released++].stage = stage;
}
static par__pipe_lifetimes par__pipe_lifetimes_of(const par_pipe_schedule *s, par_pipe_action a) {
    const int i = a.stage, last = s->stages - 1, again = par__pipe_recomputed(s, a.microbatch);
    par__pipe_lifetimes c;
    memset(&c, 0, sizeof c);
    if (!par__pipe_computes(a.kind) && !par__pipe_receives(a.kind)) return c;
    const int r = par__pipe_rank_of(s, i, a.microbatch);
    if (a.kind == PAR_PIPE_RECV_F) par__pipe_acquire(&c, PAR__PIPE_X, i);
    if (a.kind == PAR_PIPE_RECV_B) par__pipe_acquire(&c, PAR__PIPE_DY, i);
    if (a.kind == PAR_PIPE_F || a.kind == PAR_PIPE_R) {
        par__pipe_acquire(&c, PAR__PIPE_SAVED_B, i);
        par__pipe_acquire(&c, PAR__PIPE_SAVED_W, i);
    }
    if (a.kind == PAR_PIPE_F) {
        if (again) par__pipe_acquire(&c, PAR__PIPE_SAVED_C, i);
        if (i < last && par__pipe_rank_of(s, i + 1, a.microbatch) == r)
            par__pipe_acquire(&c, PAR__PIPE_X, i + 1);
        if (again || s->forward_only) {
            par__pipe_release(&c, PAR__PIPE_SAVED_B, i);
            par__pipe_release(&c, PAR__PIPE_SAVED_W, i);
        }
        if (s->forward_only && i > 0) par__pipe_release(&c, PAR__PIPE_X, i);
    }
    if (par__pipe_is_backward(a.kind)) {
        if (a.kind == PAR_PIPE_B) par__pipe_acquire(&c, PAR__PIPE_SAVED_G, i);
        if (i > 0 && par__pipe_rank_of(s, i - 1, a.microbatch) == r)
            par__pipe_acquire(&c, PAR__PIPE_DY, i - 1);
        par__pipe_release(&c, PAR__PIPE_SAVED_B, i);
        if (again) par__pipe_release(&c, PAR__PIPE_SAVED_C, i);
    }
    if (a.kind == PAR_PIPE_W) par__pipe_release(&c, PAR__PIPE_SAVED_G, i);
    if (a.kind == PAR_PIPE_W || a.kind == PAR_PIPE_BW) {
        par__pipe_release(&c, PAR__PIPE_SAVED_W, i);
        if (i > 0) par__pipe_release(&c, PAR__PIPE_X, i);
        if (i < last) par__pipe_release(&c, PAR__PIPE_DY, i);
    }
    return c;
}

typedef struct par__pipe_pool { // memory blocks of one size on one rank
    size_t bytes;
    int live, max_live;
    void **free_blocks; // of the executor; `live` blocks are in use
    void *memory;
} par__pipe_pool;
typedef struct par__pipe_pools {
    par__pipe_pool *at;
    int count, capacity;
} par__pipe_pools;

static size_t par__pipe_align(size_t bytes) { return (bytes + 63) / 64 * 64; }
static par__pipe_pool *par__pipe_pool_of(par__pipe_pools *p, size_t bytes) { // NULL: no memory
    for (int i = 0; i < p->count; i++)
        if (p->at[i].bytes == bytes) return &p->at[i];
    if (p->count == p->capacity) {
        const int capacity = p->capacity ? 2 * p->capacity : 16;
        void *at = PAR_REALLOC(p->at, (size_t)capacity * sizeof *p->at);
        if (!at) return NULL;
        p->at = (par__pipe_pool *)at;
        p->capacity = capacity;
    }
    memset(&p->at[p->count], 0, sizeof p->at[0]);
    p->at[p->count].bytes = bytes;
    return &p->at[p->count++];
}
// The number of send buffers of each channel. With rendezvous: one that is filled while another is sent, more
// if outputs wait for their sends; else one for each message.
static int par__pipe_send_slots(const par_pipe_schedule *s, int r, int rendezvous) {
    int peak = 0;
    if (par__pipe_is_grid(s)) return 1; // for each message
    if (!rendezvous) return s->microbatches;
    int *unsent = (int *)par__pipe_alloc_zeroed(2 * (size_t)s->stages, sizeof *unsent);
    if (!unsent) return -1;
    for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
        const par_pipe_action a = s->actions[i];
        const int back = par__pipe_is_backward(a.kind) || a.kind == PAR_PIPE_SEND_B,
                  to = back ? a.stage - 1 : a.stage + 1;
        const int makes = (a.kind == PAR_PIPE_F || par__pipe_is_backward(a.kind)) &&
                          par__pipe_crosses_ranks(s, a.stage, to, a.microbatch);
        int *n = &unsent[2 * a.stage + back];
        *n += makes - par__pipe_sends(a.kind);
        peak = PAR__MAX(peak, *n);
    }
    PAR_FREE(unsent);
    return PAR__MIN(peak + 1, s->microbatches);
}
// Bytes of rank r's send buffers, n for each channel.
static size_t par__pipe_send_bytes(const par_pipe_schedule *s, int r, size_t n) {
    size_t bytes = 0;
    for (int w = 0; w < s->directions; w++)
        for (int i = 0; i < s->stages; i++) {
            const int *rank = s->rank_of + w * s->stages;
            if (rank[i] != r) continue;
            if (i + 1 < s->stages && rank[i + 1] != r)
                bytes += n * par__pipe_align(par__pipe_input_bytes(s, i + 1));
            if (i > 0 && rank[i - 1] != r && !s->forward_only)
                bytes += n * par__pipe_align(par__pipe_input_bytes(s, i));
        }
    return bytes;
}
// Finds the peaks of rank r, and how many blocks of which sizes it needs. 0: no memory.
static int par__pipe_plan(const par_pipe_schedule *s, int r, int rendezvous, par_pipe_memory *m,
                          par__pipe_pools *pools) {
    size_t kept = 0, messages = 0;
    int started = 0;
    memset(m, 0, sizeof *m);
    for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
        const par_pipe_action a = s->actions[i];
        const par__pipe_lifetimes c = par__pipe_lifetimes_of(s, a);
        for (int j = 0; j < c.acquired; j++) {
            const size_t bytes = par__pipe_buffer_bytes(s, c.acquire[j]);
            if (!bytes) continue; // there is no such buffer
            if (c.acquire[j].kind <= PAR__PIPE_DY)
                messages += bytes;
            else
                kept += bytes;
            par__pipe_pool *p = par__pipe_pool_of(pools, bytes);
            if (!p) return 0;
            p->live++;
            p->max_live = PAR__MAX(p->max_live, p->live);
        }
        started += a.kind == PAR_PIPE_F;
        m->activation_bytes = PAR__MAX(m->activation_bytes, kept);
        m->message_bytes = PAR__MAX(m->message_bytes, messages);
        m->live_bytes = PAR__MAX(m->live_bytes, kept + messages);
        m->microbatches = PAR__MAX(m->microbatches, started);
        started -= par__pipe_is_backward(a.kind) || (s->forward_only && a.kind == PAR_PIPE_F);
        for (int j = 0; j < c.released; j++) {
            const size_t bytes = par__pipe_buffer_bytes(s, c.release[j]);
            if (!bytes) continue;
            if (c.release[j].kind <= PAR__PIPE_DY)
                messages -= bytes;
            else
                kept -= bytes;
            par__pipe_pool_of(pools, bytes)->live--;
        }
    }
    const int slots = par__pipe_send_slots(s, r, rendezvous);
    if (slots < 0) return 0;
    m->send_bytes = par__pipe_send_bytes(s, r, (size_t)slots);
    m->pool_bytes = m->send_bytes;
    for (int i = 0; i < pools->count; i++)
        m->pool_bytes += (size_t)pools->at[i].max_live * par__pipe_align(pools->at[i].bytes);
    return 1;
}

// >>pipe_verify ---------------------------------------------------------------------------------------------

enum {
    PAR__PIPE_HAS_F = 1,
    PAR__PIPE_HAS_B = 2,
    PAR__PIPE_HAS_W = 4,
    PAR__PIPE_HAS_R = 8,
    PAR__PIPE_HAS_SEND_F = 16,
    PAR__PIPE_HAS_RECV_F = 32,
    PAR__PIPE_HAS_SEND_B = 64,
    PAR__PIPE_HAS_RECV_B = 128
};
static const int par__pipe_kind_bits[PAR_PIPE_KIND_COUNT] = { // hooks: 0
    PAR__PIPE_HAS_F,      PAR__PIPE_HAS_B | PAR__PIPE_HAS_W,
    PAR__PIPE_HAS_B,      PAR__PIPE_HAS_W,
    PAR__PIPE_HAS_R,      PAR__PIPE_HAS_SEND_F,
    PAR__PIPE_HAS_RECV_F, PAR__PIPE_HAS_SEND_B,
    PAR__PIPE_HAS_RECV_B};
// What must come before an action in its own list.
static int par__pipe_prerequisites(const par_pipe_schedule *s, par_pipe_action a) {
    const int far_up = s->has_sends && par__pipe_crosses_ranks(s, a.stage, a.stage - 1, a.microbatch);
    const int far_down = s->has_sends && par__pipe_crosses_ranks(s, a.stage, a.stage + 1, a.microbatch);
    const int again = par__pipe_recomputed(s, a.microbatch) ? PAR__PIPE_HAS_R : 0;
    switch (a.kind) {
    case PAR_PIPE_F: return far_up ? PAR__PIPE_HAS_RECV_F : 0;
    case PAR_PIPE_R:
    case PAR_PIPE_SEND_F: return PAR__PIPE_HAS_F;
    case PAR_PIPE_B:
    case PAR_PIPE_BW: return PAR__PIPE_HAS_F | again | (far_down ? PAR__PIPE_HAS_RECV_B : 0);
    case PAR_PIPE_W:
    case PAR_PIPE_SEND_B: return PAR__PIPE_HAS_B;
    default: return 0;
    }
}
static const char *par__pipe_bit_name(int bits) {
    for (int k = 0; k < PAR_PIPE_KIND_COUNT; k++)
        if (k != PAR_PIPE_BW && par__pipe_kind_bits[k] && (bits & par__pipe_kind_bits[k]))
            return par__pipe_kind_names[k];
    return "?";
}
// Checks that two versions of the weights are enough.
static par_result par__pipe_check_updates(par_pipe_schedule *s, int r) {
    const int each = s->desc.microbatches;
    int updates = 0, backwards = 0;
    char text[48];
    for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
        const par_pipe_action a = s->actions[i];
        if (a.kind == PAR_PIPE_UPDATE && (a.microbatch != updates++ || backwards < updates * each))
            return par__pipe_fail(s, PAR_ERR_ARGUMENT, "rank %d: %s comes before the backwards of its batch",
                                  r, par__pipe_text(a, text));
        backwards += par__pipe_is_backward(a.kind);
        if (a.kind == PAR_PIPE_F && a.microbatch / each > updates + 1)
            return par__pipe_fail(s, PAR_ERR_ARGUMENT,
                                  "rank %d: %s would need a third version of the weights", r,
                                  par__pipe_text(a, text));
    }
    return PAR_OK;
}
// Checks that every action has a valid stage and microbatch and is on the right rank, and that messages go to
// another rank.
static par_result par__pipe_check_placement(par_pipe_schedule *s) {
    char text[48];
    for (int r = 0; r < s->ranks; r++)
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const par_pipe_action a = s->actions[i];
            const int hook = a.kind >= PAR_PIPE_UNSHARD;
            if (a.stage < 0 || a.stage >= s->stages || a.microbatch < 0 ||
                (!hook && a.microbatch >= s->microbatches) || a.kind >= PAR_PIPE_KIND_COUNT)
                return par__pipe_fail(s, PAR_ERR_ARGUMENT,
                                      "rank %d: %s: there are %d stages and %d microbatches", r,
                                      par__pipe_text(a, text), s->stages, s->microbatches);
            if (hook) continue;
            if (par__pipe_rank_of(s, a.stage, a.microbatch) != r)
                return par__pipe_fail(s, PAR_ERR_ARGUMENT, "rank %d: %s belongs to rank %d", r,
                                      par__pipe_text(a, text), par__pipe_rank_of(s, a.stage, a.microbatch));
            const int up = a.kind == PAR_PIPE_SEND_F || a.kind == PAR_PIPE_RECV_B;
            const int to = up ? a.stage + 1 : a.stage - 1;
            if ((par__pipe_sends(a.kind) || par__pipe_receives(a.kind)) &&
                !par__pipe_crosses_ranks(s, a.stage, to, a.microbatch))
                return par__pipe_fail(s, PAR_ERR_ARGUMENT,
                                      "rank %d: %s: the other stage is not on another rank", r,
                                      par__pipe_text(a, text));
        }
    return PAR_OK;
}
// Checks each list: every action occurs once, after its prerequisites, and none is missing.
static par_result par__pipe_check_lists(par_pipe_schedule *s, uint8_t *has) {
    char text[48];
    for (int r = 0; r < s->ranks; r++) {
        int batches = 0;
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const par_pipe_action a = s->actions[i];
            batches |= a.kind == PAR_PIPE_UPDATE;
            if (a.kind >= PAR_PIPE_UNSHARD) continue;
            uint8_t *h = &has[par__pipe_index(s, a.stage, a.microbatch)];
            const int bits = par__pipe_kind_bits[a.kind], before = par__pipe_prerequisites(s, a);
            if (*h & bits)
                return par__pipe_fail(s, PAR_ERR_ARGUMENT, "rank %d: %s occurs twice", r,
                                      par__pipe_text(a, text));
            if ((*h & before) != before)
                return par__pipe_fail(s, PAR_ERR_ARGUMENT, "rank %d: %s (action %zu) comes before its %s", r,
                                      par__pipe_text(a, text), i - s->first[r],
                                      par__pipe_bit_name(before & ~*h));
            const int from = a.kind == PAR_PIPE_F ? a.stage - 1 : a.stage + 1; // its input, if it is local
            const int made = a.kind == PAR_PIPE_F ? PAR__PIPE_HAS_F : PAR__PIPE_HAS_B;
            if ((a.kind == PAR_PIPE_F || (bits & PAR__PIPE_HAS_B)) && from >= 0 && from < s->stages &&
                par__pipe_rank_of(s, from, a.microbatch) == r &&
                !(has[par__pipe_index(s, from, a.microbatch)] & made))
                return par__pipe_fail(
                    s, PAR_ERR_ARGUMENT, "rank %d: %s (action %zu) comes before %s of stage %d", r,
                    par__pipe_text(a, text), i - s->first[r], par__pipe_bit_name(made), from);
            *h = (uint8_t)(*h | bits);
        }
        const par_result result = batches ? par__pipe_check_updates(s, r) : PAR_OK;
        if (result) return result;
    }
    for (int i = 0; i < s->stages; i++)
        for (int j = 0; j < s->microbatches; j++) {
            const int up = s->has_sends && par__pipe_crosses_ranks(s, i, i - 1, j);
            const int down = s->has_sends && par__pipe_crosses_ranks(s, i, i + 1, j);
            int need = PAR__PIPE_HAS_F | (up ? PAR__PIPE_HAS_RECV_F : 0) | (down ? PAR__PIPE_HAS_SEND_F : 0);
            if (!s->forward_only)
                need |= PAR__PIPE_HAS_B | PAR__PIPE_HAS_W | (up ? PAR__PIPE_HAS_SEND_B : 0) |
                        (down ? PAR__PIPE_HAS_RECV_B : 0);
            const int missing = need & ~has[par__pipe_index(s, i, j)];
            if (missing)
                return par__pipe_fail(s, PAR_ERR_ARGUMENT, "rank %d lacks %d%s%d", par__pipe_rank_of(s, i, j),
                                      i, par__pipe_bit_name(missing), j);
        }
    return PAR_OK;
}
// Checks that messages of a channel (of an edge and direction; with by_pair, of a pair of ranks) are received
// in the order in which they are sent.
static par_result par__pipe_check_order(par_pipe_schedule *s, int by_pair) {
    const size_t all = (size_t)s->stages * (size_t)s->microbatches;
    const size_t channels = by_pair ? (size_t)s->ranks * (size_t)s->ranks : 2 * par__pipe_channel_count(s);
    uint32_t *number = (uint32_t *)par__pipe_alloc_zeroed(2 * all, sizeof *number),
             *sent = (uint32_t *)par__pipe_alloc_zeroed(2 * channels, sizeof *sent);
    par_result result = number && sent ? PAR_OK : par__pipe_no_memory(s);
    char text[48];
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < s->ranks && !result; r++)
            for (size_t i = s->first[r]; i < s->first[r + 1] && !result; i++) {
                const par_pipe_action a = s->actions[i];
                if (pass ? !par__pipe_receives(a.kind) : !par__pipe_sends(a.kind)) continue;
                int q;
                const par_pipe_action o = par__pipe_peer_action(a, s, &q);
                const par_pipe_action from = pass ? o : a;
                const int back = from.kind == PAR_PIPE_SEND_B;
                const size_t channel =
                    by_pair ? (pass ? (size_t)q * (size_t)s->ranks + (size_t)r
                                    : (size_t)r * (size_t)s->ranks + (size_t)q)
                            : 2 * par__pipe_channel(s, back, from.stage, from.microbatch) + (size_t)back;
                uint32_t *n = &number[2 * par__pipe_index(s, from.stage, from.microbatch) + (size_t)back];
                const uint32_t order = sent[(size_t)pass * channels + channel]++;
                if (!pass)
                    *n = order;
                else if (*n != order)
                    result =
                        par__pipe_fail(s, PAR_ERR_ARGUMENT,
                                       "rank %d: %s is number %u of what it receives on its channel, and "
                                       "number %u of what rank %d sends",
                                       r, par__pipe_text(a, text), order, *n, q);
            }
    PAR_FREE(number);
    PAR_FREE(sent);
    return result;
}
static par_result par__pipe_check_deadlock(par_pipe_schedule *s, par_pipe_protocol protocol) {
    par__pipe_sim w;
    par_result result = PAR_OK;
    if (!par__pipe_sim_open(&w, s, protocol))
        result = par__pipe_no_memory(s);
    else if (!par__pipe_sim_run(&w))
        result = par__pipe_deadlock(&w, s);
    par__pipe_sim_close(&w);
    return result;
}
// 1: no deadlock even if sends wait for receives.
static int par__pipe_supports_rendezvous(par_pipe_schedule *s) {
    char why[sizeof s->why];
    memcpy(why, s->why, sizeof why);
    const int rendezvous =
        par__pipe_check_order(s, 1) == PAR_OK && par__pipe_check_deadlock(s, PAR_PIPE_RENDEZVOUS) == PAR_OK;
    memcpy(s->why, why, sizeof why);
    return rendezvous;
}
// Checks that living ranks alone compute, and that they have the weights: each is the rank of the stage, or a
// peer of it.
static par_result par__pipe_check_grid(par_pipe_schedule *s) {
    const int placement = par_pipe_schedule_find(s->desc.schedule)->placement;
    for (int i = 0; i < s->stages; i++)
        for (int j = 0; j < s->microbatches; j++) {
            const int r = par__pipe_rank_of(s, i, j), at = par__pipe_place(placement, s->desc.ranks, 0, i);
            if (r < 0 || r >= s->ranks || r % s->desc.ranks != at)
                return par__pipe_fail(s, PAR_ERR_ARGUMENT,
                                      "rank %d has not the weights of stage %d for microbatch %d", r, i, j);
            if (par__pipe_is_dead(s, r))
                return par__pipe_fail(s, PAR_ERR_ARGUMENT,
                                      "rank %d is dead, and has stage %d of microbatch %d", r, i, j);
        }
    return PAR_OK;
}
par_result par_pipe_verify(par_pipe_schedule *s, par_pipe_protocol protocol, par_pipe_memory *memory) {
    if (!s->first) return par__pipe_closed(s);
    uint8_t *has = (uint8_t *)par__pipe_alloc_zeroed((size_t)s->stages * (size_t)s->microbatches, 1);
    par_result result = has ? PAR_OK : par__pipe_no_memory(s);
    if (result == PAR_OK && par__pipe_is_grid(s)) result = par__pipe_check_grid(s);
    if (result == PAR_OK) result = par__pipe_check_placement(s);
    if (result == PAR_OK) result = par__pipe_check_lists(s, has);
    PAR_FREE(has);
    if (result == PAR_OK && s->has_sends) result = par__pipe_check_order(s, protocol != PAR_PIPE_NONBLOCKING);
    if (result == PAR_OK) result = par__pipe_check_deadlock(s, protocol);
    if (result || !memory) return result;
    const int rendezvous = par__pipe_supports_rendezvous(s);
    for (int r = 0; r < s->ranks && !result; r++) {
        par__pipe_pools pools;
        memset(&pools, 0, sizeof pools);
        if (!par__pipe_plan(s, r, rendezvous, &memory[r], &pools)) result = par__pipe_no_memory(s);
        PAR_FREE(pools.at);
    }
    return result;
}

// >>pipe_grid -----------------------------------------------------------------------------------------------
// Each replica's actions are those of one pipeline, in the order of their times there. If ranks are dead,
// list scheduling then improves all lists.
//     rank 2   ..0.1.2aa...      its replica's own microbatches, and between them
//              ...6.8.....gg     6 and 8 of replica 1, whose rank 6 is dead

// The rank that stands for rank r of the microbatch's replica: r itself, or if it is dead one of its peers,
// which take the microbatches of the dead in turn.
static int par__pipe_owner(const par_pipe_schedule *s, int r, int microbatch) {
    const int p = s->desc.ranks, m = s->desc.microbatches, mine = microbatch / m;
    int living = 0, dead = 0; // dead: in replicas before this one
    if (!par__pipe_is_dead(s, mine * p + r)) return mine * p + r;
    for (int j = 0; j < s->desc.replicas; j++) {
        const int is_dead = par__pipe_is_dead(s, j * p + r);
        living += !is_dead;
        dead += is_dead && j < mine;
    }
    int turn = (dead * m + microbatch % m) % living, j = 0;
    while (par__pipe_is_dead(s, j * p + r) || turn-- > 0) j++;
    return j * p + r;
}
static par_result par__pipe_check_dead(par_pipe_schedule *s) {
    const par_pipe_desc *d = &s->desc;
    if (d->dead_count < 0) return par__pipe_fail(s, PAR_ERR_ARGUMENT, "dead_count is %d", d->dead_count);
    for (int i = 0; i < d->dead_count; i++)
        if (!d->dead || d->dead[i] < 0 || d->dead[i] >= s->ranks)
            return par__pipe_fail(s, PAR_ERR_ARGUMENT, "dead[%d] is not one of the grid's ranks, 0 to %d", i,
                                  s->ranks - 1);
    for (int r = 0; r < d->ranks && d->dead_count; r++) {
        int dead = 0;
        for (int j = 0; j < d->replicas; j++) dead += par__pipe_is_dead(s, j * d->ranks + r);
        if (dead == d->replicas)
            return par__pipe_fail(s, PAR_ERR_ARGUMENT,
                                  "stage %d is dead in all replicas (%d): no rank has its weights", r, dead);
    }
    return PAR_OK;
}
// Appends the actions of all replicas to the lists, in the order of their times in one pipeline.
static par_result par__pipe_grid_lists(par__pipe_build *b, par_pipe_schedule *one) {
    par_pipe_schedule *s = b->s;
    par__pipe_sim w;
    const size_t n = one->first[one->ranks];
    par__pipe_event *order = (par__pipe_event *)PAR_MALLOC((n + 1) * sizeof *order);
    par_result result =
        par__pipe_sim_open(&w, one, PAR_PIPE_NONBLOCKING) && order ? PAR_OK : par__pipe_no_memory(s);
    if (result == PAR_OK && !par__pipe_sim_run(&w)) result = par__pipe_deadlock(&w, s);
    for (int r = 0; result == PAR_OK && r < one->ranks; r++)
        for (size_t i = one->first[r]; i < one->first[r + 1]; i++) {
            order[i].end = w.start[i];
            order[i].order = w.order[i];
            order[i].rank = r;
            order[i].i = i;
        }
    par__pipe_sim_close(&w);
    if (result == PAR_OK) qsort(order, n, sizeof *order, par__pipe_by_time);
    for (size_t k = 0; result == PAR_OK && k < n; k++) {
        const par_pipe_action a = one->actions[order[k].i];
        for (int j = 0; j < s->desc.replicas && par__pipe_computes(a.kind); j++) {
            const int microbatch = j * one->microbatches + a.microbatch;
            par__pipe_push(b, par__pipe_rank_of(s, a.stage, microbatch),
                           par__pipe_action(a.kind, a.stage, microbatch));
        }
    }
    PAR_FREE(order);
    return result;
}
static par_result par__pipe_grid(par_pipe_schedule *s, int placement) {
    par_pipe_schedule one; // the pipeline of a replica
    par_pipe_desc d = s->desc;
    par__pipe_build b;
    d.replicas = d.dead_count = d.reduce = d.max_gathered_stages = d.tied = 0;
    d.recompute = PAR_PIPE_RECOMPUTE_NONE;
    for (int j = 0; j < s->microbatches; j++)
        for (int i = 0; i < s->stages; i++)
            s->rank_of[(size_t)j * (size_t)s->stages + (size_t)i] =
                par__pipe_owner(s, par__pipe_place(placement, d.ranks, 0, i), j);
    par_result result = par_pipe_schedule_open(&d, &one);
    if (result) memcpy(s->why, one.why, sizeof s->why);
    if (!result && !par__pipe_build_open(&b, s)) result = par__pipe_no_memory(s);
    if (result) return par_pipe_schedule_close(&one), result;
    result = par__pipe_grid_lists(&b, &one);
    par_pipe_schedule_close(&one);
    const size_t limit = d.max_activation_bytes;
    if (!result && !b.no_memory && s->desc.dead_count)
        result = par__pipe_fill_idle_time(&b, limit ? limit : par__pipe_highest_peak(&b));
    if (result) return par__pipe_build_close(&b), result;
    return par__pipe_build_end(&b);
}

// >>pipe_schedule -------------------------------------------------------------------------------------------

static int par__pipe_stage_count(const par_pipe_traits *row, int ranks,
                                 int chunks) { // 0: the number is not possible
    const long long count = (long long)ranks * (row->placement == PAR_PIPE_BIDIRECTIONAL ? 1 : chunks);
    return count > 0 && count <= 65536 ? (int)count : 0;
}
par_pipe_desc par_pipe_defaults(const par_pipe_desc *desc) {
    par_pipe_desc d;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    if (!d.schedule) d.schedule = "1f1b";
    const par_pipe_traits *row = par_pipe_schedule_find(d.schedule);
    if (d.ranks == 0) d.ranks = 1;
    if (d.microbatches == 0) d.microbatches = 1;
    if (d.batches == 0) d.batches = 1;
    if (d.replicas == 0) d.replicas = 1;
    if (d.chunks == 0) d.chunks = row && row->chunks ? row->chunks : 2;
    if (d.rows == 0) d.rows = 1;
    if (!d.stages) d.stage_count = row ? par__pipe_stage_count(row, d.ranks, d.chunks) : 0;
    return d;
}
static par_result par__pipe_check_desc(par_pipe_schedule *s) {
    const par_pipe_desc *d = &s->desc;
    if (d->ranks < 1 || d->microbatches < 1 || d->chunks < 1 || d->batches < 1 || d->rows < 1 ||
        d->replicas < 1)
        return par__pipe_fail(s, PAR_ERR_ARGUMENT,
                              "ranks, microbatches, chunks, batches, rows and replicas must be 1 or more");
    const double ranks = (double)d->ranks * d->chunks * d->replicas,
                 microbatches = (double)d->microbatches * d->batches * d->replicas;
    if (ranks > 65536 || microbatches > 1 << 24 || ranks * microbatches > 2e8)
        return par__pipe_fail(s, PAR_ERR_ARGUMENT,
                              "%d ranks with %d chunks and %.0f microbatches are too many",
                              d->ranks * d->replicas, d->chunks, microbatches);
    if (d->max_gathered_stages < 0 || d->max_gathered_stages > 64 || d->reduce < 0 || d->reduce > 2 ||
        d->recompute_count < 0 || d->latency < 0 || d->seconds_per_byte < 0)
        return par__pipe_fail(
            s, PAR_ERR_ARGUMENT,
            "max_gathered_stages must be 0 to 64, reduce 0 to 2; counts and times must not be negative");
    if (d->stages && d->stage_count < 1)
        return par__pipe_fail(
            s, PAR_ERR_ARGUMENT,
            "desc.stages is given, but stage_count is %d: it must be 1 or the number of stages",
            d->stage_count);
    for (int i = 0; i < d->stage_count && d->stages; i++) {
        const par_pipe_stage *c = &d->stages[i];
        if (!(c->f >= 0 && c->b >= 0 && c->w >= 0 && c->r >= 0 && c->fbw >= 0 && c->latency >= 0 &&
              c->seconds_per_byte >= 0 && c->f + c->b + c->w + c->latency + c->seconds_per_byte < 1e30))
            return par__pipe_fail(s, PAR_ERR_ARGUMENT, "stage %d: times must be finite and not negative", i);
        if (d->row_counts && c->input_bytes % (size_t)d->rows)
            return par__pipe_fail(s, PAR_ERR_ARGUMENT, "stage %d: input_bytes must be a multiple of rows", i);
    }
    for (int i = 0; d->row_counts && i < d->microbatches; i++)
        if (d->row_counts[i] < 0 || d->row_counts[i] > d->rows)
            return par__pipe_fail(s, PAR_ERR_ARGUMENT, "row_counts[%d] is %d, and must be 0 to rows = %d", i,
                                  d->row_counts[i], d->rows);
    return PAR_OK;
}
// Makes the schedule's own copies of the desc's arrays, with defaults for zeros.
static par_result par__pipe_copy_desc(par_pipe_schedule *s) {
    par_pipe_desc *d = &s->desc;
    const size_t n = d->stages ? (size_t)d->stage_count : 1;
    par_pipe_stage *stages = (par_pipe_stage *)par__pipe_alloc_zeroed(n, sizeof *stages);
    int *rows = d->row_counts ? (int *)par__pipe_alloc_zeroed((size_t)d->microbatches, sizeof *rows) : NULL;
    int *dead = (int *)par__pipe_alloc_zeroed((size_t)d->dead_count, sizeof *dead);
    if (stages && d->stages) memcpy(stages, d->stages, n * sizeof *stages);
    if (rows) memcpy(rows, d->row_counts, (size_t)d->microbatches * sizeof *rows);
    if (dead && d->dead_count) memcpy(dead, d->dead, (size_t)d->dead_count * sizeof *dead);
    const int failed = !stages || !dead || (d->row_counts && !rows);
    for (size_t i = 0; stages && i < n; i++) {
        par_pipe_stage *c = &stages[i];
        if (c->f <= 0 && c->b <= 0 && c->w <= 0) c->f = c->b = c->w = 1;
        if (c->r <= 0) c->r = c->f;
    }
    d->stages = s->costs = stages;
    d->stage_count = (int)n;
    d->row_counts = s->row_counts = rows;
    d->dead = s->dead = dead;
    return failed ? par__pipe_no_memory(s) : PAR_OK;
}
void par_pipe_schedule_close(par_pipe_schedule *s) {
    PAR_FREE(s->costs);
    PAR_FREE(s->row_counts);
    PAR_FREE(s->dead);
    PAR_FREE(s->rank_of);
    PAR_FREE(s->first);
    PAR_FREE(s->actions);
    s->desc.stages = s->costs = NULL;
    s->desc.row_counts = s->row_counts = NULL;
    s->desc.dead = s->dead = NULL;
    s->rank_of = NULL;
    s->first = NULL;
    s->actions = NULL;
}
static par_result par__pipe_generate(par_pipe_schedule *s, const par__pipe_generator *how, int placement) {
    par__pipe_build b;
    par_result result = PAR_OK;
    for (int w = 0; w < s->directions; w++)
        for (int i = 0; i < s->stages; i++)
            s->rank_of[w * s->stages + i] = par__pipe_place(placement, s->ranks, w, i);
    if (!par__pipe_build_open(&b, s)) return par__pipe_no_memory(s);
    for (int r = 0; r < s->ranks; r++) how->lists(&b, r);
    if (!b.no_memory) result = how->finish(&b);
    if (result) return par__pipe_build_close(&b), result;
    return par__pipe_build_end(&b);
}
par_result par_pipe_schedule_open(const par_pipe_desc *desc, par_pipe_schedule *s) {
    memset(s, 0, sizeof *s);
    par_pipe_desc d = par_pipe_defaults(desc);
    const par_pipe_traits *row = par_pipe_schedule_find(d.schedule);
    if (!row)
        return par__pipe_fail(s, PAR_ERR_ARGUMENT, "no schedule is called \"%.100s\"%s", d.schedule,
                              par_pipe_schedule_suggest(d.schedule).text);
    s->desc = d;
    s->desc.schedule = row->name;
    s->directions = row->placement == PAR_PIPE_BIDIRECTIONAL ? 2 : 1;
    par_result result = par__pipe_check_desc(s);
    s->ranks = result ? 0 : d.ranks * d.replicas;
    if (!result) result = par__pipe_check_dead(s);
    if (!result) result = par__pipe_copy_desc(s);
    if (result) return result;
    if (row->chunks && d.chunks != row->chunks)
        return par__pipe_fail(s, PAR_ERR_ARGUMENT, "%s has %d chunk%s on a rank, not %d", row->name,
                              row->chunks, row->chunks > 1 ? "s" : "", d.chunks);
    if (s->directions == 2 && d.ranks % 2)
        return par__pipe_fail(s, PAR_ERR_ARGUMENT, "%s needs an even number of ranks, not %d", row->name,
                              d.ranks);
    if (d.replicas > 1 && (row == &par_pipe_schedules[PAR_PIPE_2BW] || s->directions == 2))
        return par__pipe_fail(s, PAR_ERR_ARGUMENT, "%s has no grid: replicas must be 1", row->name);
    if (d.batches > 1 && row != &par_pipe_schedules[PAR_PIPE_2BW])
        return par__pipe_fail(s, PAR_ERR_ARGUMENT, "%s is synchronous: batches must be 1", row->name);
    s->stages = par__pipe_stage_count(row, d.ranks, d.chunks);
    if (s->desc.stage_count != 1 && s->desc.stage_count != s->stages)
        return par__pipe_fail(s, PAR_ERR_ARGUMENT, "stage_count is %d; %s has %d stages", s->desc.stage_count,
                              row->name, s->stages);
    s->microbatches = d.microbatches * d.batches * d.replicas;
    if (d.replicas > 1) s->directions = s->microbatches;
    s->rank_of = (int *)PAR_MALLOC((size_t)s->directions * (size_t)s->stages * sizeof(int));
    if (!s->rank_of) return par__pipe_no_memory(s);
    result = d.replicas > 1
                 ? par__pipe_grid(s, row->placement)
                 : par__pipe_generate(s, &par__pipe_generators[row - par_pipe_schedules], row->placement);
    if (result == PAR_OK) result = par__pipe_add_hooks(s);
    if (result == PAR_OK) result = par__pipe_add_sends(s);
    return result ? result : par_pipe_verify(s, PAR_PIPE_NONBLOCKING, NULL);
}
par_result par_pipe_forward_only(const par_pipe_schedule *s, int microbatches, par_pipe_schedule *out) {
    par__pipe_build b;
    const size_t slots = (size_t)(s->directions * s->stages);
    *out = *s;
    out->costs = NULL;
    out->row_counts = NULL;
    out->dead = NULL;
    out->rank_of = NULL;
    out->first = NULL;
    out->actions = NULL;
    if (!s->first) return par__pipe_closed(out);
    par_result result = par__pipe_copy_desc(out);
    out->forward_only = 1;
    const int count = microbatches ? PAR__MIN(microbatches, s->microbatches) : s->microbatches;
    if (s->directions == 2 && count <= (s->microbatches + 1) / 2)
        out->directions = 1; // all run in direction 0
    if (par__pipe_is_grid(s)) out->directions = count;
    if (out->directions == 1 || par__pipe_is_grid(s)) out->microbatches = count;
    out->rank_of = (int *)PAR_MALLOC(slots * sizeof(int));
    if (result || !out->rank_of || !par__pipe_build_open(&b, out)) return par__pipe_no_memory(out);
    memcpy(out->rank_of, s->rank_of, slots * sizeof(int));
    for (int r = 0; r < s->ranks; r++)
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            par_pipe_action a = s->actions[i];
            a.pair = 0;
            if (a.microbatch >= out->microbatches) continue;
            if (a.kind == PAR_PIPE_F || a.kind == PAR_PIPE_SEND_F || a.kind == PAR_PIPE_RECV_F ||
                a.kind == PAR_PIPE_UNSHARD || a.kind == PAR_PIPE_RESHARD)
                par__pipe_push(&b, r, a);
        }
    return par__pipe_build_end(&b);
}
void par_pipe_partition(const double *cost, int count, int stages, int *first) {
    double low = 0, high = 0;
    for (int i = 0; i < count; i++) {
        low = PAR__MAX(low, cost[i]);
        high += cost[i];
    }
    for (int bisection = 0; bisection < 100; bisection++) { // finds the smallest cost that no stage exceeds
        const double middle = (low + high) / 2;
        double sum = 0;
        int used = 1;
        for (int i = 0; i < count; i++) {
            if (sum > 0 && sum + cost[i] > middle) {
                sum = 0;
                used++;
            }
            sum += cost[i];
        }
        if (used <= stages)
            high = middle;
        else
            low = middle;
    }
    double sum = 0;
    int s = 0;
    first[0] = 0;
    for (int i = 0; i < count; i++) {
        // each of the remaining stages needs a layer
        const int must = count - i <= stages - 1 - s && i > first[s];
        if (s + 1 < stages && i > first[s] && (must || sum + cost[i] > high * (1 + 1e-12))) {
            first[++s] = i;
            sum = 0;
        }
        sum += cost[i];
    }
    while (s < stages) first[++s] = count;
}

// >>pipe_csv ------------------------------------------------------------------------------------------------

typedef struct par__pipe_reader {
    const char *at, *end;
    par_pipe_schedule *s;
    int row, cell;
} par__pipe_reader;

static par_result par__pipe_parse_error(const par__pipe_reader *c, const char *what) {
    int n = 0;
    while (c->at + n < c->end && n < 24 && c->at[n] >= ' ' && c->at[n] < 127 && c->at[n] != ',') n++;
    return par__pipe_fail(c->s, PAR_ERR_FILE, "row %d, cell %d: %s at \"%.*s\"", c->row + 1, c->cell + 1,
                          what, n, c->at);
}
static int par__pipe_number(par__pipe_reader *c, int *value) { // 1: read a number of at most 8 digits
    const char *begin = c->at;
    long v = 0;
    while (c->at < c->end && c->at < begin + 8 && *c->at >= '0' && *c->at <= '9')
        v = 10 * v + (*c->at++ - '0');
    if (c->at == begin) return 0;
    *value = (int)v;
    return 1;
}
static int par__pipe_word(par__pipe_reader *c, char word[24]) { // upper-case letters and _
    size_t n = 0;
    while (c->at < c->end && ((*c->at >= 'A' && *c->at <= 'Z') || *c->at == '_') && n < 23)
        word[n++] = *c->at++;
    word[n] = 0;
    return n > 0;
}
static par_result par__pipe_read_action(par__pipe_reader *c, par_pipe_action *a) {
    const char *begin = c->at;
    char word[24];
    int stage = 0, microbatch = 0, kind = 0;
    if (!par__pipe_number(c, &stage)) return par__pipe_parse_error(c, "expected a stage's number");
    if (stage >= 65536) return c->at = begin, par__pipe_parse_error(c, "more than 65536 stages");
    if (!par__pipe_word(c, word))
        return par__pipe_parse_error(c, "expected an action (F, B, I, W, SEND_F ...)");
    while (kind < PAR_PIPE_KIND_COUNT && strcmp(word, par__pipe_kind_names[kind])) kind++;
    if (kind == PAR_PIPE_KIND_COUNT) {
        char what[160];
        snprintf(what, sizeof what, "unknown action%s",
                 par_suggest(word, par__pipe_kind_names, PAR_PIPE_KIND_COUNT, sizeof(char *)).text);
        return c->at = begin, par__pipe_parse_error(c, what);
    }
    const int numbered = par__pipe_number(c, &microbatch);
    if (!numbered && kind < PAR_PIPE_UNSHARD)
        return par__pipe_parse_error(c, "expected a microbatch's number");
    if (microbatch >= 1 << 24) return c->at = begin, par__pipe_parse_error(c, "more than 2^24 microbatches");
    *a = par__pipe_action(kind, stage, microbatch);
    return PAR_OK;
}
static par_result par__pipe_read_cell(par__pipe_reader *c, par__pipe_build *b) {
    par_pipe_action a;
    char word[24];
    while (c->at < c->end && *c->at == ' ') c->at++;
    if (c->at == c->end || *c->at == ',' || *c->at == '\r' || *c->at == '\n') return PAR_OK;
    if (*c->at != '(') {
        const par_result r = par__pipe_read_action(c, &a);
        if (r) return r;
        par__pipe_push(b, c->row, a);
        return PAR_OK;
    }
    for (int more = 1; more;) {
        c->at++;
        const par_result r = par__pipe_read_action(c, &a);
        if (r) return r;
        if (c->at == c->end || (*c->at != ';' && *c->at != ')'))
            return par__pipe_parse_error(c, "expected ; or )");
        more = *c->at == ';';
        a.pair = (uint8_t)(more && par__pipe_computes(a.kind));
        par__pipe_push(b, c->row, a);
    }
    c->at++;
    if (!par__pipe_word(c, word) || (strcmp(word, "OVERLAP_F_B") && strcmp(word, "FUSED")))
        return par__pipe_parse_error(c, "expected OVERLAP_F_B or FUSED");
    return PAR_OK;
}
static par_result par__pipe_read_rows(par__pipe_reader *c, par__pipe_build *b) {
    while (c->at < c->end && c->row < b->p) {
        const par_result r = par__pipe_read_cell(c, b);
        if (r) return r;
        while (c->at < c->end && (*c->at == ' ' || *c->at == '\r')) c->at++;
        if (c->at == c->end) break;
        if (*c->at == ',')
            c->cell++;
        else if (*c->at == '\n') {
            c->row++;
            c->cell = 0;
        } else
            return par__pipe_parse_error(c, "expected a comma or the end of the row");
        c->at++;
    }
    return PAR_OK;
}
// Finds the rank of each stage by its forwards; bidirectional: for each half of the microbatches.
static int par__pipe_find_placement(par_pipe_schedule *s, int *stage, int *ranks) {
    for (int i = 0; i < s->directions * s->stages; i++) s->rank_of[i] = -1;
    for (int r = 0; r < s->ranks; r++)
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const par_pipe_action a = s->actions[i];
            if (a.kind != PAR_PIPE_F) continue;
            int *rank = &s->rank_of[par__pipe_direction(s, a.microbatch) * s->stages + a.stage];
            if (*rank >= 0 && *rank != r) return *stage = a.stage, ranks[0] = *rank, ranks[1] = r, 0;
            *rank = r;
        }
    return 1;
}
static par_result par__pipe_infer_placement(par_pipe_schedule *s) {
    int stage = 0, ranks[2] = {0, 0}, highest[2] = {-1, -1};
    for (size_t i = 0; i < s->first[s->ranks]; i++) {
        const par_pipe_action a = s->actions[i];
        highest[0] = PAR__MAX(highest[0], a.stage);
        if (a.kind < PAR_PIPE_UNSHARD) highest[1] = PAR__MAX(highest[1], a.microbatch);
        s->has_sends |= par__pipe_sends(a.kind) || par__pipe_receives(a.kind);
    }
    s->stages = highest[0] + 1;
    s->microbatches = s->desc.microbatches = highest[1] + 1;
    if (s->stages < 1 || s->microbatches < 1) return par__pipe_fail(s, PAR_ERR_FILE, "the table is empty");
    if ((double)s->stages * s->microbatches > 4 * (double)s->first[s->ranks])
        return par__pipe_fail(s, PAR_ERR_FILE, "%d stages and %d microbatches, but only %zu actions",
                              s->stages, s->microbatches, s->first[s->ranks]);
    s->rank_of = (int *)PAR_MALLOC(2 * (size_t)s->stages * sizeof(int));
    if (!s->rank_of) return par__pipe_no_memory(s);
    for (s->directions = 1; s->directions <= 2; s->directions++)
        if (par__pipe_find_placement(s, &stage, ranks)) break;
    if (s->directions > 2) {
        s->directions = 1;
        return par__pipe_fail(s, PAR_ERR_FILE, "stage %d is on rank %d and on rank %d", stage, ranks[0],
                              ranks[1]);
    }
    for (int i = 0; i < s->directions * s->stages; i++)
        if (s->rank_of[i] < 0)
            return par__pipe_fail(s, PAR_ERR_FILE, "stage %d has no forwards (0 to %d have actions)",
                                  i % s->stages, s->stages - 1);
    return PAR_OK;
}
par_result par_pipe_parse(const char *text, size_t bytes, const par_pipe_desc *desc, par_pipe_schedule *s) {
    par__pipe_reader c;
    par__pipe_build b;
    memset(&c, 0, sizeof c);
    memset(s, 0, sizeof *s);
    while (bytes && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r' || text[bytes - 1] == ' ')) bytes--;
    c.at = text;
    c.end = text + bytes;
    c.s = s;
    s->desc = par_pipe_defaults(desc);
    s->ranks = 1;
    s->directions = 1;
    s->desc.schedule = "table";
    s->desc.batches = s->desc.replicas = 1;
    s->desc.dead_count = 0;
    s->desc.microbatches = 1;
    s->desc.chunks = 1;
    for (size_t i = 0; i < bytes; i++) s->ranks += text[i] == '\n';
    const int *row_counts = s->desc.row_counts;
    // checked below, when the number of microbatches is known
    s->desc.row_counts = NULL;
    s->desc.ranks = s->ranks;
    par_result result =
        s->ranks > 65536 ? par__pipe_fail(s, PAR_ERR_FILE, "more than 65536 rows") : par__pipe_check_desc(s);
    if (!result) result = par__pipe_copy_desc(s);
    if (result) return result;
    if (!par__pipe_build_open(&b, s)) return par__pipe_no_memory(s);
    result = par__pipe_read_rows(&c, &b);
    if (result) return par__pipe_build_close(&b), result;
    result = par__pipe_build_end(&b);
    if (!result) result = par__pipe_infer_placement(s);
    if (result) return result;
    s->desc.chunks = (s->stages * s->directions + s->ranks - 1) / s->ranks;
    if (s->desc.stage_count != 1 && s->desc.stage_count != s->stages)
        return par__pipe_fail(s, PAR_ERR_ARGUMENT, "stage_count is %d; the table has %d stages",
                              s->desc.stage_count, s->stages);
    if (row_counts) {
        int *rows = (int *)par__pipe_alloc_zeroed((size_t)s->microbatches, sizeof *rows);
        if (!rows) return par__pipe_no_memory(s);
        memcpy(rows, row_counts, (size_t)s->microbatches * sizeof *rows);
        s->desc.row_counts = s->row_counts = rows;
        if ((result = par__pipe_check_desc(s)) != PAR_OK) return result;
    }
    result = par__pipe_check_placement(s);
    int hooks = 0, tied = 0; // a table with hooks must have all of them
    for (size_t i = 0; i < s->first[s->ranks]; i++) {
        hooks |= s->actions[i].kind >= PAR_PIPE_UNSHARD || s->actions[i].kind == PAR_PIPE_R;
        tied |= s->actions[i].kind == PAR_PIPE_TIE;
    }
    if (!result && hooks && !tied && s->desc.tied && s->stages > 1)
        result =
            par__pipe_fail(s, PAR_ERR_FILE, "the table has hooks, but no TIE_GRAD, which desc.tied needs");
    if (!result && !hooks) result = par__pipe_add_hooks(s);
    if (!result && !s->has_sends) result = par__pipe_add_sends(s);
    return result ? result : par_pipe_verify(s, PAR_PIPE_NONBLOCKING, NULL);
}
par_result par_pipe_load(const char *path, const par_pipe_desc *desc, par_pipe_schedule *s) {
    char why[sizeof s->why];
    size_t bytes, done = 0;
    memset(s, 0, sizeof *s);
    const int fd = par__open_read(path, &bytes, why, sizeof why);
    if (fd < 0) return par__pipe_fail(s, PAR_ERR_FILE, "%s", why);
    char *text = (char *)PAR_MALLOC(bytes + 1);
    for (ssize_t n = 1; text && n > 0 && done < bytes; done += (size_t)PAR__MAX(n, 0))
        n = read(fd, text + done, bytes - done);
    close(fd);
    if (!text)
        return par__pipe_fail(s, PAR_ERR_MEMORY, "%.300s: out of memory for its %zu bytes", path, bytes);
    if (done < bytes) return PAR_FREE(text), par__pipe_fail(s, PAR_ERR_FILE, "%s: cannot be read", path);
    const par_result result = par_pipe_parse(text, bytes, desc, s);
    PAR_FREE(text);
    if (result) {
        memcpy(why, s->why, sizeof why);
        par__pipe_fail(s, result, "%.200s: %.300s", path, why);
    }
    return result;
}
par_result par_pipe_save(const par_pipe_schedule *s, const char *path, int compute_only) {
    FILE *f = par__fopen_write(path);
    char text[48];
    if (!f) return PAR_ERR_FILE;
    for (int r = 0; r < s->ranks; r++) {
        int cells = 0;
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const par_pipe_action a = s->actions[i];
            const int pair = a.pair && i + 1 < s->first[r + 1];
            if (compute_only && (!par__pipe_computes(a.kind) || a.kind == PAR_PIPE_R)) continue;
            fprintf(f, "%s%s%s", cells++ ? "," : "", pair ? "(" : "", par__pipe_text(a, text));
            if (!pair) continue;
            fprintf(f, ";%s)%s", par__pipe_text(s->actions[++i], text),
                    a.kind == PAR_PIPE_R ? "FUSED" : "OVERLAP_F_B");
        }
        fprintf(f, "\r\n");
    }
    const int bad = ferror(f);
    return fclose(f) || bad ? PAR_ERR_FILE : PAR_OK;
}

// >>pipe_simulate -------------------------------------------------------------------------------------------

par_result par_pipe_set_costs(par_pipe_schedule *s, const par_pipe_timeline *run) {
    if (!run->action_count || run->action_count != s->first[s->ranks]) {
        snprintf(s->why, sizeof s->why,
                 "par_pipe_set_costs: the timeline has %zu actions, and the schedule %zu: measure on rank 0",
                 run->action_count, s->first[s->ranks]);
        return PAR_ERR_ARGUMENT;
    }
    par_pipe_stage *costs = (par_pipe_stage *)PAR_MALLOC((size_t)s->stages * sizeof *costs);
    if (!costs) return snprintf(s->why, sizeof s->why, "out of memory for the costs"), PAR_ERR_MEMORY;
    for (int i = 0; i < s->stages; i++) {
        costs[i] = *par__pipe_stage_of(s, i);
        costs[i].f = costs[i].b = costs[i].w = 0;
    }
    for (size_t i = 0; i < run->action_count; i++) {
        const par_pipe_action a = s->actions[i];
        const double seconds = (run->end[i] - run->start[i]) / s->microbatches;
        if (a.kind == PAR_PIPE_F) costs[a.stage].f += seconds;
        if (a.kind == PAR_PIPE_B || a.kind == PAR_PIPE_BW) costs[a.stage].b += seconds;
        if (a.kind == PAR_PIPE_W) costs[a.stage].w += seconds;
    }
    PAR_FREE(s->costs);
    s->desc.stages = s->costs = costs;
    s->desc.stage_count = s->stages;
    return PAR_OK;
}
void par_pipe_timeline_close(par_pipe_timeline *t) {
    PAR_FREE(t->start);
    PAR_FREE(t->end);
    PAR_FREE(t->ranks);
    memset(t, 0, sizeof *t);
}
// Accounts for one rank's idle time. ended[]: the end of F and of B of each (stage, microbatch).
static void par__pipe_account_rank(const par_pipe_schedule *s, par_pipe_timeline *t, int r,
                                   const double *ended) {
    par_pipe_rank *x = &t->ranks[r];
    double before = -1;
    for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
        const par_pipe_action a = s->actions[i];
        if (!par__pipe_computes(a.kind)) continue;
        const double start = t->start[i], end = t->end[i];
        if (before < 0) x->first = x->warmup = before = start;
        x->busy += end - PAR__MAX(start, before) > 0 ? end - PAR__MAX(start, before) : 0;
        double there = 0; // when its input was computed
        const par_pipe_action need = a.kind == PAR_PIPE_R && a.pair ? s->actions[i + 1] : a;
        if (need.kind == PAR_PIPE_F && need.stage > 0)
            there = ended[2 * par__pipe_index(s, need.stage - 1, need.microbatch)];
        if (par__pipe_is_backward(need.kind) && need.stage + 1 < s->stages)
            there = ended[2 * par__pipe_index(s, need.stage + 1, need.microbatch) + 1];
        if (start > before) {
            const double middle = PAR__MIN(start, PAR__MAX(before, there));
            x->dependency += middle - before;
            x->communication += start - middle;
        }
        before = PAR__MAX(before, end);
        x->last = before;
    }
    if (before < 0)
        x->warmup = t->makespan;
    else
        x->cooldown = t->makespan - before;
}
static par_result par__pipe_account(const par_pipe_schedule *s, par_pipe_timeline *t) {
    double *ended =
        (double *)par__pipe_alloc_zeroed(2 * (size_t)s->stages * (size_t)s->microbatches, sizeof *ended);
    double busiest = 0;
    if (!ended) return PAR_ERR_MEMORY;
    t->makespan = t->window = 0;
    for (int r = 0; r < s->ranks; r++)
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const par_pipe_action a = s->actions[i];
            if (a.kind == PAR_PIPE_F) ended[2 * par__pipe_index(s, a.stage, a.microbatch)] = t->end[i];
            if (par__pipe_is_backward(a.kind))
                ended[2 * par__pipe_index(s, a.stage, a.microbatch) + 1] = t->end[i];
            if (par__pipe_computes(a.kind)) t->makespan = PAR__MAX(t->makespan, t->end[i]);
        }
    memset(t->ranks, 0, (size_t)s->ranks * sizeof *t->ranks);
    for (int r = 0; r < s->ranks; r++) {
        par__pipe_account_rank(s, t, r, ended);
        busiest = PAR__MAX(busiest, t->ranks[r].busy);
    }
    for (int r = 0; r < s->ranks; r++)
        for (int q = r % s->desc.ranks; q < s->ranks; q += s->desc.ranks) // r and its peers
            if (t->ranks[r].busy > 0 && t->ranks[q].busy > 0)
                t->window = PAR__MAX(t->window, t->ranks[r].last - t->ranks[q].first);
    for (int r = 0; r < s->ranks; r++) {
        par_pipe_rank *x = &t->ranks[r];
        x->imbalance = PAR__MIN(x->dependency, busiest - x->busy);
        x->dependency -= x->imbalance;
    }
    t->bubble = t->makespan > 0 ? (t->makespan - busiest) / t->makespan : 0;
    t->window_bubble = t->window > 0 ? (t->window - busiest) / t->window : 0;
    PAR_FREE(ended);
    return PAR_OK;
}
static par_result par__pipe_timeline_open(const par_pipe_schedule *s, par_pipe_timeline *t) {
    memset(t, 0, sizeof *t);
    t->rank_count = s->ranks;
    t->action_count = s->first[s->ranks];
    t->start = (double *)par__pipe_alloc_zeroed(t->action_count, sizeof(double));
    t->end = (double *)par__pipe_alloc_zeroed(t->action_count, sizeof(double));
    t->ranks = (par_pipe_rank *)par__pipe_alloc_zeroed((size_t)s->ranks, sizeof *t->ranks);
    if (t->start && t->end && t->ranks) return PAR_OK;
    par_pipe_timeline_close(t);
    return PAR_ERR_MEMORY;
}
par_result par_pipe_simulate(par_pipe_schedule *s, par_pipe_protocol protocol, par_pipe_timeline *t) {
    par__pipe_sim w;
    memset(t, 0, sizeof *t);
    if (!s->first) return par__pipe_closed(s);
    if (!par__pipe_sim_open(&w, s, protocol)) return par__pipe_sim_close(&w), par__pipe_no_memory(s);
    par_result result = par__pipe_sim_run(&w) ? par__pipe_timeline_open(s, t) : par__pipe_deadlock(&w, s);
    if (result == PAR_OK) {
        memcpy(t->start, w.start, t->action_count * sizeof(double));
        memcpy(t->end, w.end, t->action_count * sizeof(double));
        result = par__pipe_account(s, t);
    }
    if (result == PAR_ERR_MEMORY) {
        par_pipe_timeline_close(t);
        par__pipe_no_memory(s);
    }
    par__pipe_sim_close(&w);
    return result;
}
// The costs of equal stages. 0: they are not equal, or something else that formulas do not know.
static int par__pipe_costs_of(const par_pipe_schedule *s, par_pipe_costs *x) {
    const par_pipe_stage *c = s->desc.stages;
    for (int i = 1; i < s->desc.stage_count; i++)
        if (fabs(c[i].f - c->f) > 1e-12 * c->f || fabs(c[i].b - c->b) > 1e-12 * c->b ||
            fabs(c[i].w - c->w) > 1e-12 * c->w)
            return 0;
    for (int i = 0; i < s->desc.stage_count; i++)
        if (c[i].latency > 0 || c[i].seconds_per_byte > 0 || c[i].fbw > 0) return 0;
    if (s->desc.row_counts || s->desc.seconds_per_byte > 0 || s->forward_only || par__pipe_is_grid(s))
        return 0;
    // Formulas count recomputation as part of each backward; EARLY recomputation is not on the critical path.
    if (s->desc.recompute == PAR_PIPE_RECOMPUTE_EARLY || (s->desc.recompute && s->desc.recompute_count))
        return 0;
    const int stages = s->directions == 2 ? 1 : s->desc.chunks; // that a microbatch passes on a rank
    const double others = (double)(s->ranks - 1) * stages;
    memset(x, 0, sizeof *x);
    x->ranks = s->ranks;
    x->microbatches = s->microbatches;
    x->chunks = s->desc.chunks;
    x->message = s->desc.latency;
    x->own_f = c->f * stages;
    x->f = c->f * others;
    x->b = (c->b + (s->desc.recompute ? c->r : 0)) * others;
    x->w = c->w * others;
    return 1;
}
double par_pipe_theory_bubble(const par_pipe_schedule *s, int window) {
    const par_pipe_traits *row = par_pipe_schedule_find(s->desc.schedule);
    const par_pipe_stage *c = s->desc.stages;
    par_pipe_costs x;
    if (!row || !par__pipe_costs_of(s, &x) || (!window && !row->is_exact(&x))) return par__pipe_nan();
    const double bubble = window ? row->window(&x) : row->bubble(&x) + row->messages(&x);
    const double stage = c->f + c->b + c->w + (s->desc.recompute ? c->r : 0);
    return bubble / (x.microbatches * stage * s->desc.chunks / s->directions + bubble);
}
double par_pipe_theory_peak(const par_pipe_schedule *s, int rank) {
    const par_pipe_traits *row = par_pipe_schedule_find(s->desc.schedule);
    par_pipe_costs x;
    if (!row || rank < 0 || rank >= s->ranks || !par__pipe_costs_of(s, &x)) return par__pipe_nan();
    return row->multiple && !par__pipe_is_multiple(&x) ? par__pipe_nan() : row->peak(&x, rank);
}

// >>pipe_draw -----------------------------------------------------------------------------------------------

// What pictures show besides the kind of an action: its chunk; if bidirectional, the direction of its
// microbatch; in a grid with dead ranks, whether the microbatch is another replica's.
typedef struct par__pipe_picture {
    const par_pipe_schedule *s;
    int chunks, *chunk_of; // of stages
    int occurs[PAR_PIPE_R + 1];
} par__pipe_picture;

static par_result par__pipe_picture_open(par__pipe_picture *d, const par_pipe_schedule *s) {
    int *seen = (int *)par__pipe_alloc_zeroed((size_t)s->ranks, sizeof *seen);
    memset(d, 0, sizeof *d);
    d->s = s;
    d->chunks = !par__pipe_is_grid(s) ? s->directions : s->desc.dead_count ? 2 : 1;
    d->chunk_of = (int *)par__pipe_alloc_zeroed((size_t)s->stages, sizeof(int));
    if (!seen || !d->chunk_of) return PAR_FREE(seen), PAR_FREE(d->chunk_of), PAR_ERR_MEMORY;
    for (int i = 0; i < s->stages; i++) {
        d->chunk_of[i] = seen[s->rank_of[i]]++;
        if (s->directions == 1) d->chunks = PAR__MAX(d->chunks, d->chunk_of[i] + 1);
    }
    for (size_t i = 0; i < s->first[s->ranks]; i++)
        if (par__pipe_computes(s->actions[i].kind)) d->occurs[s->actions[i].kind] = 1;
    PAR_FREE(seen);
    return PAR_OK;
}
static int par__pipe_chunk(const par__pipe_picture *d, par_pipe_action a) {
    const par_pipe_schedule *s = d->s;
    if (par__pipe_is_grid(s))
        return par__pipe_rank_of(s, a.stage, a.microbatch) / s->desc.ranks !=
               a.microbatch / s->desc.microbatches;
    return s->directions == 2 ? par__pipe_direction(s, a.microbatch) : d->chunk_of[a.stage];
}

// 1, 2: the action is the first, the second one of two that overlap; else 0.
static int par__pipe_overlap_half(const par_pipe_schedule *s, const par_pipe_timeline *t, int r, size_t i) {
    if (s->actions[i].pair && i + 1 < s->first[r + 1] && t->start[i + 1] < t->end[i]) return 1;
    return i > s->first[r] && s->actions[i - 1].pair && t->start[i] < t->end[i - 1] ? 2 : 0;
}

// What the two shades are, unless they are chunks; NULL: they are.
static const char *par__pipe_shades(const par_pipe_schedule *s) {
    return par__pipe_is_grid(s) ? " +" : s->directions == 2 ? "v^" : NULL;
}
static const char *par__pipe_rank_name(const par_pipe_schedule *s, int r) {
    return par__pipe_is_dead(s, r) ? "dead" : "rank";
}

// ---- text

static char par__pipe_letter(par_pipe_action a) {
    switch (a.kind) {
    case PAR_PIPE_F: return (char)('0' + a.microbatch % 10);
    case PAR_PIPE_W: return (char)('A' + a.microbatch % 26);
    case PAR_PIPE_R: return '~';
    default: return (char)('a' + a.microbatch % 26);
    }
}
// 1: the column is empty, or its action has another column.
static int par__pipe_column_is_free(const size_t *owner, int x, int wide) {
    if (x < 0 || x >= wide) return 0;
    return !owner[x] || (x > 0 && owner[x - 1] == owner[x]) || (x + 1 < wide && owner[x + 1] == owner[x]);
}
// Prints one chunk of a rank: each column shows the action at its middle. An action without such a column
// gets the one that it lies in, or a neighbor, if that is empty or its action has another column; else the
// column shows a star.
static void par__pipe_row_of_text(const par__pipe_picture *d, const par_pipe_timeline *t, int r, int chunk,
                                  double step, int wide, char *row, size_t *owner) {
    const par_pipe_schedule *s = d->s;
    memset(row, 0, (size_t)wide);
    memset(owner, 0, (size_t)wide * sizeof *owner);
    for (int small = 0; small < 2; small++)
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const par_pipe_action a = s->actions[i];
            if (!par__pipe_computes(a.kind) || par__pipe_chunk(d, a) != chunk) continue;
            const int beside = par__pipe_overlap_half(s, t, r, i), other = beside == 1 ? 1 : -1;
            const int half = beside && par__pipe_chunk(d, s->actions[(long)i + other]) == chunk ? beside : 0;
            const double middle = (t->start[i] + t->end[i]) / 2, begin = half == 2 ? middle : t->start[i],
                         end = half == 1 ? middle : t->end[i];
            const double from = ceil(begin / step - 0.5), to = ceil(end / step - 0.5);
            for (int x = (int)PAR__MAX(0, PAR__MIN(from, wide)); !small && x < PAR__MIN(to, wide); x++) {
                row[x] = par__pipe_letter(a);
                owner[x] = i + 1;
            }
            if (!small || from < to || end <= begin) continue;
            int x = (int)PAR__MAX(0, PAR__MIN(floor((begin + end) / 2 / step), wide - 1));
            const int next = owner[x] < i + 1 ? x + 1 : x - 1; // in time
            if (!par__pipe_column_is_free(owner, x, wide) && par__pipe_column_is_free(owner, next, wide) &&
                (!owner[next] || (owner[next] > i + 1) == (next > x)))
                x = next;
            row[x] = par__pipe_column_is_free(owner, x, wide) ? par__pipe_letter(a) : '*';
            owner[x] = i + 1;
        }
}
static void par__pipe_print_rank(const par__pipe_picture *d, const par_pipe_timeline *t, int r, double step,
                                 int wide, char *rows, size_t *owner, FILE *file) {
    for (int c = 0; c < d->chunks; c++)
        par__pipe_row_of_text(d, t, r, c, step, wide, rows + (size_t)c * (size_t)wide, owner);
    for (int c = 0; c < d->chunks; c++) {
        char name[24] = "", chunk[24] = "";
        int empty = par__pipe_is_grid(d->s) && c;
        for (int x = 0; x < wide && empty; x++) empty = !rows[(size_t)c * (size_t)wide + (size_t)x];
        if (empty) break;
        if (!c) snprintf(name, sizeof name, "%s %d", par__pipe_rank_name(d->s, r), r);
        if (d->chunks > 1) snprintf(chunk, sizeof chunk, "%d", c);
        if (d->chunks == 2 && par__pipe_shades(d->s))
            snprintf(chunk, sizeof chunk, "%c", par__pipe_shades(d->s)[c]);
        fprintf(file, d->chunks > 1 ? "%-8s %s |" : "%-8s%s |", name, chunk);
        for (int x = 0; x < wide; x++) {
            int busy = 0;
            for (int o = 0; o < d->chunks; o++) busy |= rows[(size_t)o * (size_t)wide + (size_t)x];
            const char letter = rows[(size_t)c * (size_t)wide + (size_t)x];
            fputc(letter ? letter : busy || (x + 0.5) * step >= t->makespan ? ' ' : '.', file);
        }
        fputc('\n', file);
    }
}
void par_pipe_print(const par_pipe_schedule *s, const par_pipe_timeline *t, int columns, double scale,
                    FILE *file) {
    const int wide = columns < 10 ? 100 : PAR__MIN(columns, 4000);
    double step = (scale > 0 ? scale : t->makespan) / wide;
    par__pipe_picture d;
    if (!(step > 0)) step = 1;
    const par_result r = par__pipe_picture_open(&d, s);
    char *rows = r ? NULL : (char *)par__pipe_alloc_zeroed((size_t)d.chunks, (size_t)wide);
    size_t *owner = (size_t *)par__pipe_alloc_zeroed((size_t)wide, sizeof *owner);
    int stars = 0;
    if (!rows || !owner) fprintf(file, "no memory for a picture of %d columns\n", wide);
    for (int q = 0; rows && owner && q < s->ranks; q++) {
        par__pipe_print_rank(&d, t, q, step, wide, rows, owner, file);
        stars |= memchr(rows, '*', (size_t)d.chunks * (size_t)wide) != NULL;
    }
    if (rows && owner)
        fprintf(file, "digits: forward of microbatch 0, 1 ...%s%s%s%s; .: idle%s\n",
                d.occurs[PAR_PIPE_BW] || d.occurs[PAR_PIPE_B] ? "; a, b ...: backward" : "",
                d.occurs[PAR_PIPE_W] ? "; A, B ...: gradients of weights" : "",
                d.occurs[PAR_PIPE_R] ? "; ~: recomputed" : "", stars ? "; *: several" : "",
                par__pipe_is_grid(s) ? d.chunks > 1 ? "; +: microbatches of replicas with dead ranks" : ""
                : s->directions == 2 ? "; v, ^: microbatches that go down, up"
                : d.chunks > 1       ? "; a rank's rows: its chunks"
                                     : "");
    PAR_FREE(rows);
    PAR_FREE(owner);
    if (!r) PAR_FREE(d.chunk_of);
}

// ---- SVG

// Each kind has a color and a mark that does not need colors: lines above and below (whole backward), below
// (input half), above (weight half), a lower box (recompute). Each chunk has a shade.
typedef struct par__pipe_style {
    const char *name;
    uint8_t red, green, blue; // of chunk 0; other chunks are mixed with white
    uint8_t above, below, low;
} par__pipe_style;
static const par__pipe_style par__pipe_styles[] = {
    // by kind
    {"forward", 0, 76, 140, 0, 0, 0},          {"backward", 0, 100, 72, 1, 1, 0},
    {"backward: inputs", 160, 58, 0, 0, 1, 0}, {"backward: weights", 120, 50, 110, 1, 0, 0},
    {"recompute", 80, 80, 80, 0, 0, 1},
};
static const double par__pipe_left = 60, par__pipe_wide = 800, par__pipe_high = 22, par__pipe_gap = 34,
                    par__pipe_legend = 24;

static double par__pipe_luminance(int byte) { // of sRGB (WCAG 2: relative luminance)
    const double c = byte / 255.0;
    return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}
// Draws a box with its mark, and text in black or white, whichever has more contrast: at least 4.5 to 1.
static void par__pipe_box(const par__pipe_picture *d, FILE *f, int kind, int chunk, double x, double y,
                          double w, double h, const char *title, const char *text) {
    const par__pipe_style *k = &par__pipe_styles[kind];
    const double white = d->chunks > 1 ? 0.5 * chunk / (d->chunks - 1) : 0.15, low = k->low ? h / 6 : 0;
    int rgb[3] = {k->red, k->green, k->blue};
    for (int i = 0; i < 3; i++) rgb[i] += (int)(white * (255 - rgb[i]) + 0.5);
    const double light = 0.2126 * par__pipe_luminance(rgb[0]) + 0.7152 * par__pipe_luminance(rgb[1]) +
                         0.0722 * par__pipe_luminance(rgb[2]);
    const char *ink = (light + 0.05) * (light + 0.05) > 0.05 * 1.05 ? "black" : "white";
    fprintf(f,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#%02x%02x%02x\" "
            "stroke=\"white\" stroke-width=\"0.5\">%s</rect>\n",
            x, y + low, w, h - 2 * low, rgb[0], rgb[1], rgb[2], title);
    const double line = h < 16 ? 0.9 : 1.5;
    for (int i = 0; i < 2; i++)
        if (w > 1.5 && (i ? k->below : k->above))
            fprintf(f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%g\" fill=\"%s\"/>\n", x + 0.5,
                    i ? y + h - 2 * line : y + line, w - 1, line, ink);
    if (w > 4 + 7 * (double)strlen(text))
        fprintf(f,
                "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" pointer-events=\"none\" fill=\"%s\"%s>%s"
                "</text>\n",
                x + w / 2, y + h / 2 + (h < 16 ? 2.5 : 4), ink, h < 16 ? " font-size=\"7\"" : "", text);
}
static void par__pipe_svg_rank(const par__pipe_picture *d, FILE *f, const par_pipe_timeline *t, int r,
                               double y, double all) {
    const par_pipe_schedule *s = d->s;
    const double unit = all > 0 ? par__pipe_wide / all : 0, high = par__pipe_high;
    fprintf(f,
            "<text x=\"4\" y=\"%g\">%s %d</text><rect x=\"%g\" y=\"%g\" width=\"%.2f\" "
            "height=\"%g\" fill=\"#e2e2e2\"/>\n",
            y + 15, par__pipe_rank_name(s, r), r, par__pipe_left, y, t->makespan * unit, high);
    for (size_t i = s->first[r]; i < s->first[r + 1] && all > 0; i++) {
        const par_pipe_action a = s->actions[i];
        char name[48], title[80], number[16];
        if (!par__pipe_computes(a.kind)) continue;
        const int half = par__pipe_overlap_half(s, t, r, i); // two that overlap: one above the other
        snprintf(title, sizeof title, "<title>%s</title>", par__pipe_text(a, name));
        snprintf(number, sizeof number, "%d", a.microbatch);
        par__pipe_box(d, f, a.kind, par__pipe_chunk(d, a), par__pipe_left + t->start[i] * unit,
                      half == 2 ? y + high / 2 : y, (t->end[i] - t->start[i]) * unit, half ? high / 2 : high,
                      title, number);
    }
}
// Draws the legend: each kind that occurs, in the shades of all chunks, and the meaning of numbers and
// shades. Returns its height; f may be NULL.
static double par__pipe_svg_legend(const par__pipe_picture *d, FILE *f, double y) {
    const double box = PAR__MIN(18, 400.0 / d->chunks), high = 18;
    double x = par__pipe_left, started = y;
    for (int k = 0; k <= PAR_PIPE_R + 1; k++) { // the last: idle
        const int idle = k > PAR_PIPE_R, boxes = idle ? 1 : d->chunks;
        const char *name = idle ? "idle" : par__pipe_styles[k].name;
        const double w = box * boxes + 24 + 6.8 * (double)strlen(name);
        char number[16] = "";
        if (!idle && !d->occurs[k]) continue;
        if (x > par__pipe_left && x + w > par__pipe_left + par__pipe_wide) {
            x = par__pipe_left;
            y += par__pipe_legend;
        }
        for (int c = 0; f && !idle && c < boxes; c++) {
            if (d->chunks > 1) snprintf(number, sizeof number, "%d", c);
            par__pipe_box(d, f, k, c, x + box * c, y, box, high, "", number);
        }
        if (f && idle)
            fprintf(f, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"#e2e2e2\"/>\n", x, y, box,
                    high);
        if (f)
            fprintf(f, "<text class=\"legend\" x=\"%g\" y=\"%g\">%s</text>\n", x + box * boxes + 5, y + 13,
                    name);
        x += w;
    }
    y += par__pipe_legend;
    if (f)
        fprintf(
            f, "<text x=\"%g\" y=\"%g\">numbers in boxes: microbatches%s</text>\n", par__pipe_left, y + 13,
            par__pipe_is_grid(d->s) ? d->chunks > 1 ? "; shade 1: those of replicas with dead ranks" : ""
            : d->s->directions == 2 ? "; shades 0 and 1: those that go down and those that go up the ranks"
            : d->chunks > 1         ? "; shades 0, 1 ...: the chunks of a rank"
                                    : "");
    return y + par__pipe_legend - started;
}
static void par__pipe_svg_text(FILE *f, const char *text) { // escapes XML's special characters
    char json[8];
    for (size_t n = strlen(text), used; n; text += used, n -= used) {
        used = par__json_escape(text, n, json);
        if (strchr("<>&\"", *text))
            fprintf(f, "&#%d;", *text);
        else if (!strcmp(json, "\\ufffd")) // not UTF-8
            fputs("&#65533;", f);
        else if ((unsigned char)*text >= 32)
            fwrite(text, 1, used, f);
    }
}
// What the legend is of: kinds, chunks and directions of all schedules, which are s[0], s[step] ...
static par_result par__pipe_svg_all(const par_pipe_schedule *const *s, int step, int count,
                                    par__pipe_picture *all) {
    memset(all, 0, sizeof *all);
    for (int k = 0; k < PAR__MAX(count, 1); k++) {
        par__pipe_picture d;
        if (par__pipe_picture_open(&d, s[k * step])) return PAR_ERR_MEMORY;
        PAR_FREE(d.chunk_of);
        if (!all->s || d.s->directions == 2) all->s = d.s;
        all->chunks = PAR__MAX(all->chunks, d.chunks);
        for (int kind = 0; kind <= PAR_PIPE_R; kind++) all->occurs[kind] |= d.occurs[kind];
    }
    return PAR_OK;
}
// Draws a timeline on the scale of `all` seconds. Returns where the next one begins, or -1: no memory.
static double par__pipe_svg_one(FILE *f, const par_pipe_schedule *s, const par_pipe_timeline *t,
                                const char *title, double y, double all) {
    par__pipe_picture d;
    if (par__pipe_picture_open(&d, s)) return -1;
    fprintf(f, "<text x=\"%g\" y=\"%g\" font-weight=\"bold\">", par__pipe_left, y - 6);
    par__pipe_svg_text(f, title);
    fprintf(f, ": %.6g s, bubble %.3f</text>\n", t->makespan, t->bubble);
    for (int r = 0; r < s->ranks; r++) par__pipe_svg_rank(&d, f, t, r, y + r * (par__pipe_high + 2), all);
    PAR_FREE(d.chunk_of);
    return y + s->ranks * (par__pipe_high + 2) + par__pipe_gap;
}
static par_result par__pipe_svg(const par_pipe_schedule *const *s, int step,
                                const par_pipe_timeline *const *t, const char *const *titles, int count,
                                const char *path) {
    double all = 0, high = 12, y = 24;
    par__pipe_picture legend;
    if (par__pipe_svg_all(s, step, count, &legend)) return PAR_ERR_MEMORY;
    FILE *f = par__fopen_write(path);
    if (!f) return PAR_ERR_FILE;
    void *points = par__set_c_locale();
    for (int k = 0; k < count; k++) {
        all = PAR__MAX(all, t[k]->makespan);
        high += s[k * step]->ranks * (par__pipe_high + 2) + par__pipe_gap;
    }
    const double wide = par__pipe_left + par__pipe_wide + 20;
    high += par__pipe_svg_legend(&legend, NULL, 0);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            wide, high, wide, high);
    for (int k = 0; k < count && y >= 0; k++) y = par__pipe_svg_one(f, s[k * step], t[k], titles[k], y, all);
    if (y >= 0) par__pipe_svg_legend(&legend, f, y - 16);
    fprintf(f, "</svg>\n");
    par__restore_locale(points);
    const int bad = ferror(f);
    if (fclose(f) || bad) return PAR_ERR_FILE;
    return y < 0 ? PAR_ERR_MEMORY : PAR_OK;
}
par_result par_pipe_svg(const par_pipe_schedule *s, const par_pipe_timeline *const *t,
                        const char *const *titles, int count, const char *path) {
    return par__pipe_svg(&s, 0, t, titles, count, path);
}
par_result par_pipe_svg_compare(const par_pipe_schedule *const *s, const par_pipe_timeline *const *t,
                                const char *const *titles, int count, const char *path) {
    return count > 0 ? par__pipe_svg(s, 1, t, titles, count, path) : PAR_ERR_ARGUMENT;
}

// ---- Perfetto

// Writes arrows between the computations that make and use a message.
static void par__pipe_arrows(const par_pipe_schedule *s, const par_pipe_timeline *t, int pid, FILE *f) {
    for (int r = 0; r < s->ranks; r++)
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const par_pipe_action a = s->actions[i];
            const int back = par__pipe_is_backward(a.kind), last = s->stages - 1;
            if ((a.kind != PAR_PIPE_F && !back) || t->end[i] <= t->start[i]) continue;
            const int to = back ? a.stage - 1 : a.stage + 1, from = back ? a.stage + 1 : a.stage - 1;
            const double middle = 1e6 * (t->start[i] + t->end[i]) / 2;
            if (to >= 0 && to <= last && par__pipe_rank_of(s, to, a.microbatch) != r)
                fprintf(f,
                        ",\n{\"ph\":\"s\",\"id\":\"%d%s%d.%d\",\"name\":\"message\",\"cat\":\"message\","
                        "\"pid\":%d,\"tid\":%d,\"ts\":%.3f}",
                        pid, back ? "B" : "F", to, a.microbatch, pid, r, middle);
            if (from >= 0 && from <= last && par__pipe_rank_of(s, from, a.microbatch) != r)
                fprintf(f,
                        ",\n{\"ph\":\"f\",\"bp\":\"e\",\"id\":\"%d%s%d.%d\",\"name\":\"message\",\"cat\":"
                        "\"message\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f}",
                        pid, back ? "B" : "F", a.stage, a.microbatch, pid, r, middle);
        }
}
static void par__pipe_json_text(FILE *f, const char *text) { // within a string
    char json[8];
    for (size_t n = strlen(text), used; n; text += used, n -= used) {
        used = par__json_escape(text, n, json);
        fputs(json, f);
    }
}
par_result par_pipe_perfetto(const par_pipe_schedule *s, const par_pipe_timeline *const *t,
                             const char *const *titles, int count, const char *path) {
    FILE *f = par__fopen_write(path);
    if (!f) return PAR_ERR_FILE;
    void *points = par__set_c_locale();
    fprintf(f, "{\"traceEvents\":[");
    for (int k = 0; k < count; k++) {
        fprintf(f, "%s\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"",
                k ? "," : "", k);
        par__pipe_json_text(f, titles[k]);
        fprintf(f, "\"}}");
        for (int r = 0; r < s->ranks; r++) {
            fprintf(f,
                    ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
                    "\"rank %d\"}}",
                    k, r, r);
            for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
                const par_pipe_action a = s->actions[i];
                if (!par__pipe_computes(a.kind)) continue;
                fprintf(f,
                        ",\n{\"ph\":\"X\",\"name\":\"%d%s%d\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%."
                        "3f,\"dur\":%.3f}",
                        a.stage, par_pipe_kind_name((par_pipe_kind)a.kind), a.microbatch,
                        par_pipe_kind_name((par_pipe_kind)a.kind), k, r, 1e6 * t[k]->start[i],
                        1e6 * (t[k]->end[i] - t[k]->start[i]));
            }
        }
        par__pipe_arrows(s, t[k], k, f);
    }
    fprintf(f, "\n],\"displayTimeUnit\":\"ms\"}\n");
    par__restore_locale(points);
    const int bad = ferror(f);
    return fclose(f) || bad ? PAR_ERR_FILE : PAR_OK;
}

// >>pipe_agree ----------------------------------------------------------------------------------------------
// Ranks whose tables differ would wait for each other. So each rank compares a record with rank 0's: members
// that must be alike, and a hash of each list. Of the first rank that differs all ranks get the record or, if
// it is a list, the list itself, piece by piece: all of them name the same element, with both values.

#define PAR__PIPE_MEMBERS(X) /* X(name, value) */                                                            \
    X("chunks", s->desc.chunks)                                                                              \
    X("stages", s->stages)                                                                                   \
    X("microbatches", s->desc.microbatches)                                                                  \
    X("batches", s->desc.batches)                                                                            \
    X("rows", s->desc.rows)                                                                                  \
    X("broadcast_loss", exec->broadcast_loss != 0)                                                           \
    X("the number of actions", s->first[s->ranks])
#define PAR__PIPE_LISTS(X) /* X(name of an element, number of elements, element i as a word) */              \
    X("input_bytes of stage", s->stages, par__pipe_input_bytes(s, (int)i))                                   \
    X("rows of microbatch", s->desc.microbatches, par__pipe_rows(s, (int)i))                                 \
    X("action", s->first[s->ranks], par__pipe_action_word(s->actions[i]))

static const char *const par__pipe_members[] = {
#define PAR__X(name, value) name,
    PAR__PIPE_MEMBERS(PAR__X)
#undef PAR__X
};
static const char *const par__pipe_lists[] = {
#define PAR__X(name, count, word) name,
    PAR__PIPE_LISTS(PAR__X)
#undef PAR__X
};
enum {
    PAR__PIPE_MEMBER_COUNT = sizeof par__pipe_members / sizeof *par__pipe_members,
    PAR__PIPE_LIST_COUNT = sizeof par__pipe_lists / sizeof *par__pipe_lists
};
typedef struct par__pipe_record {
    char schedule[32];
    uint64_t members[PAR__PIPE_MEMBER_COUNT], counts[PAR__PIPE_LIST_COUNT], hashes[PAR__PIPE_LIST_COUNT];
} par__pipe_record;

static uint64_t par__pipe_action_word(par_pipe_action a) { // all of an action
    return (uint64_t)a.kind << 56 | (uint64_t)a.pair << 55 | (uint64_t)a.stage << 32 | (uint32_t)a.microbatch;
}
static uint64_t par__pipe_list_at(const par_pipe_schedule *s, int list, size_t i) {
    int k = 0;
#define PAR__X(name, count, word)                                                                            \
    if (list == k++) return (uint64_t)(word);
    PAR__PIPE_LISTS(PAR__X)
#undef PAR__X
    return 0;
}
static par__pipe_record par__pipe_record_of(const par_pipe_schedule *s, const par_pipe_exec *exec) {
    par__pipe_record x;
    int n = 0, lists = 0;
    memset(&x, 0, sizeof x);
    snprintf(x.schedule, sizeof x.schedule, "%s", s->desc.schedule);
#define PAR__X(name, value) x.members[n++] = (uint64_t)(value);
    PAR__PIPE_MEMBERS(PAR__X)
#undef PAR__X
#define PAR__X(name, count, word) x.counts[lists++] = (uint64_t)(count);
    PAR__PIPE_LISTS(PAR__X)
#undef PAR__X
    for (int k = 0; k < lists; k++)
        for (size_t i = 0; i < x.counts[k]; i++) {
            const uint64_t h = (x.hashes[k] ^ par__pipe_list_at(s, k, i)) * 0x9e3779b97f4a7c15u;
            x.hashes[k] = h ^ h >> 29;
        }
    return x;
}
static void par__pipe_word_text(int list, uint64_t word, char text[48]) {
    if (list == PAR__PIPE_LIST_COUNT - 1)
        par__pipe_text(
            par__pipe_action((int)(word >> 56), (int)(word >> 32 & 0x7fffff), (int)(word & 0xffffffff)),
            text);
    else
        snprintf(text, 48, "%llu", (unsigned long long)word);
}
static par_result par__pipe_differs(par_comm *comm, const char *what, const char *number, const char *there,
                                    int rank, const char *here) {
    return par_fail(
        comm, PAR_ERR_ARGUMENT,
        "par_pipe_open: %s%s is %s on rank %d, but %s on rank 0: all ranks of a pipeline need the "
        "same schedule",
        what, number, there, rank, here);
}
// Finds the element of a list of `count` in which rank differs from rank 0.
static par_result par__pipe_compare_list(const par_pipe_schedule *s, int list, size_t count, int rank,
                                         par_comm *comm) {
    uint64_t words[2][256];
    char number[24], text[2][48];
    for (size_t i = 0; i < count; i += 256) {
        const size_t n = PAR__MIN(count - i, 256);
        for (int k = 0; k < 2; k++) {
            const int root = k ? rank : 0;
            for (size_t j = 0; j < n && par_rank(comm) == root; j++)
                words[k][j] = par__pipe_list_at(s, list, i + j);
            const par_result r = par_broadcast(words[k], words[k], n, PAR_U64, root, comm);
            if (r) return r;
        }
        for (size_t j = 0; j < n; j++) {
            if (words[0][j] == words[1][j]) continue;
            snprintf(number, sizeof number, " %zu", i + j);
            for (int k = 0; k < 2; k++) par__pipe_word_text(list, words[k][j], text[k]);
            return par__pipe_differs(comm, par__pipe_lists[list], number, text[1], rank, text[0]);
        }
    }
    return PAR_OK;
}
// Collective. ARGUMENT on all ranks if any two have not the same.
static par_result par__pipe_compare(const par_pipe_schedule *s, const par_pipe_exec *exec) {
    par_comm *comm = exec->comm;
    par__pipe_record mine = par__pipe_record_of(s, exec), x[2];
    char text[2][48];
    x[0] = x[1] = mine;
    par_result r = par_broadcast(&x[0], &x[0], sizeof mine, PAR_U8, 0, comm);
    int other = r || !memcmp(&mine, &x[0], sizeof mine) ? par_size(comm) : par_rank(comm);
    if (!r) r = par_all_reduce(&other, &other, 1, PAR_I32, PAR_MIN, comm);
    if (r || other == par_size(comm)) return r;
    if ((r = par_broadcast(&x[1], &x[1], sizeof mine, PAR_U8, other, comm)) != PAR_OK) return r;
    if (strcmp(x[0].schedule, x[1].schedule))
        return par__pipe_differs(comm, "schedule", "", x[1].schedule, other, x[0].schedule);
    for (int i = 0; i < PAR__PIPE_MEMBER_COUNT; i++) {
        if (x[0].members[i] == x[1].members[i]) continue;
        for (int k = 0; k < 2; k++) par__pipe_word_text(0, x[k].members[i], text[k]);
        return par__pipe_differs(comm, par__pipe_members[i], "", text[1], other, text[0]);
    }
    for (int i = 0; i < PAR__PIPE_LIST_COUNT; i++)
        if (x[0].hashes[i] != x[1].hashes[i])
            return par__pipe_compare_list(s, i, (size_t)x[0].counts[i], other, comm);
    return PAR_OK;
}
// What a rank can find out by itself.
static par_result par__pipe_check(par_pipe_schedule *s, const par_pipe_exec *exec) {
    par_comm *comm = exec->comm;
    if (!s->actions) return par_fail(comm, PAR_ERR_ARGUMENT, "par_pipe_open: the schedule is not open");
    if (par__pipe_is_grid(s))
        return par_fail(
            comm, PAR_ERR_UNSUPPORTED,
            "par_pipe_open: a grid of %d replicas is planned, not executed: leave desc.replicas 0 "
            "and open a pipeline on the ranks of each replica",
            s->desc.replicas);
    if (par_size(comm) != s->ranks)
        return par_fail(comm, PAR_ERR_ARGUMENT,
                        "par_pipe_open: the schedule is for %d ranks, the comm has %d", s->ranks,
                        par_size(comm));
    if (!exec->fn) return par_fail(comm, PAR_ERR_ARGUMENT, "par_pipe_open: exec.fn is NULL");
    if (!exec->skip_verification && par_pipe_verify(s, PAR_PIPE_NONBLOCKING, NULL))
        return par_fail(comm, PAR_ERR_ARGUMENT, "par_pipe_open: %s", s->why);
    for (int i = 1; i < s->stages; i++)
        if (!par__pipe_input_bytes(s, i) && (s->directions == 2 || s->rank_of[i] != s->rank_of[i - 1]))
            return par_fail(
                comm, PAR_ERR_ARGUMENT,
                "par_pipe_open: input_bytes of stage %d is 0, and its input comes from another rank: "
                "set it to the bytes of that message in desc.stages",
                i);
    return PAR_OK;
}
// Collective: PAR_OK if all ranks succeeded. A rank that did not has its own text.
static par_result par__pipe_all_succeed(par_comm *comm, par_result mine) {
    int worst = (int)mine;
    const par_result r = par_all_reduce(&worst, &worst, 1, PAR_I32, PAR_MAX, comm);
    if (r || mine || !worst) return r ? r : mine;
    return par_fail(comm, (par_result)worst, "par_pipe_open: it failed on another rank (%s)",
                    par_result_text((par_result)worst));
}

// >>pipe_execute --------------------------------------------------------------------------------------------

typedef struct par__pipe_send_ring { // send buffers of one stage in one direction, used cyclically
    void **slot;
    par_request *request;
    par_comm *channel;
    int filled, sent; // messages so far
} par__pipe_send_ring;
typedef struct par__pipe_cell { // state of a (stage, microbatch) on this rank
    void *held[PAR__PIPE_BUFFER_KINDS];
    par_request request[2]; // of x, of dy
} par__pipe_cell;

struct par_pipe {
    par_pipe_schedule *s, forwards;
    par_pipe_exec exec;
    par_device *device;
    int rank, chunks, rendezvous, slots;
    int *stage_of, *chunk_of;        // stage of each chunk; chunk of each stage, -1: on another rank
    par__pipe_cell *cells;           // [chunk][microbatch]
    par__pipe_send_ring *send_rings; // [chunk][direction]
    par__pipe_pools pools;
    par_comm **channels;
    int channel_count;
    int *channel_of[2]; // channel of messages to a stage: [back][direction, stage]
    double *losses, *device_losses, *start, *end, started; // device_losses: in device memory
    size_t allocated, live[2], peak[3];                    // of messages, of activations; peak[2]: of both
};

static par_result par__pipe_open_out_of_memory(const par_pipe *p) {
    return par_fail(p->exec.comm, PAR_ERR_MEMORY,
                    "par_pipe_open: out of memory for %zu actions, %d stages and %d microbatches",
                    p->s->first[p->s->ranks], p->s->stages, p->s->microbatches);
}
static par_result par__pipe_alloc(par_pipe *p, size_t bytes, void **memory) {
    const par_result r = p->device->alloc(p->device, bytes, memory);
    if (r)
        return par_fail(p->exec.comm, PAR_ERR_MEMORY, "par_pipe_open: out of memory for %zu bytes of buffers",
                        bytes);
    p->allocated += bytes;
    return PAR_OK;
}
static void par__pipe_free(par_pipe *p, void *memory) {
    if (memory) p->device->free(p->device, memory);
}
static par__pipe_cell *par__pipe_cell_of(par_pipe *p, int stage, int microbatch) {
    return &p->cells[(size_t)p->chunk_of[stage] * (size_t)p->s->microbatches + (size_t)microbatch];
}

// Channels: messages of one edge in one direction keep their order, and do not wait for those of other edges.
// Each channel between the same two ranks has a comm of its own.
static int par__pipe_number_channels(par_pipe *p) { // 0: no memory
    const par_pipe_schedule *s = p->s;
    const size_t slots = (size_t)(s->directions * s->stages);
    int *used = (int *)par__pipe_alloc_zeroed((size_t)s->ranks * (size_t)s->ranks, sizeof *used);
    p->channel_count = 1;
    for (int back = 0; back < 2; back++)
        p->channel_of[back] = (int *)par__pipe_alloc_zeroed(slots, sizeof(int));
    const int ok = used && p->channel_of[0] && p->channel_of[1];
    for (int back = 0; ok && back < 2; back++)
        for (int w = 0; w < s->directions; w++)
            for (int i = 0; i < s->stages; i++) {
                const int from = back ? i + 1 : i - 1, *rank = s->rank_of + w * s->stages;
                if (from < 0 || from >= s->stages || rank[from] == rank[i]) continue;
                const int channel = used[rank[from] * s->ranks + rank[i]]++;
                p->channel_of[back][w * s->stages + i] = channel;
                p->channel_count = PAR__MAX(p->channel_count, channel + 1);
            }
    PAR_FREE(used);
    return ok;
}
static par_comm *par__pipe_channel_to(const par_pipe *p, int back, int stage, int microbatch) {
    return p->channels[p->channel_of[back][par__pipe_channel(p->s, back, stage, microbatch)]];
}
static par_result par__pipe_open_channels(par_pipe *p) {
    p->channels = (par_comm **)par__pipe_alloc_zeroed((size_t)p->channel_count, sizeof *p->channels);
    if (!p->channels) return par__pipe_open_out_of_memory(p);
    for (int i = 0; i < p->channel_count; i++) {
        const par_result r = par_split(p->exec.comm, 0, p->rank, &p->channels[i]);
        if (r) return r;
    }
    return PAR_OK;
}
static par_result par__pipe_open_pools(par_pipe *p) {
    for (int i = 0; i < p->pools.count; i++) {
        par__pipe_pool *x = &p->pools.at[i];
        const size_t each = par__pipe_align(x->bytes);
        x->live = 0;
        x->free_blocks = (void **)par__pipe_alloc_zeroed((size_t)x->max_live, sizeof(void *));
        if (!x->free_blocks) return par__pipe_open_out_of_memory(p);
        const par_result r = par__pipe_alloc(p, each * (size_t)x->max_live, &x->memory);
        if (r) return r;
        for (int j = 0; j < x->max_live; j++)
            x->free_blocks[j] = (char *)x->memory + each * (size_t)(x->max_live - 1 - j);
    }
    return PAR_OK;
}
static par_result par__pipe_open_send_rings(par_pipe *p) {
    const par_pipe_schedule *s = p->s;
    for (int c = 0; c < p->chunks; c++)
        for (int back = 0; back < 2; back++) {
            par__pipe_send_ring *o = &p->send_rings[2 * c + back];
            const int i = p->stage_of[c], to = back ? i - 1 : i + 1;
            int way = 0;
            if (s->directions == 2 && s->rank_of[i] != p->rank) way = 1;
            const int *rank = s->rank_of + way * s->stages;
            if (to < 0 || to >= s->stages || rank[to] == p->rank) continue;
            const size_t bytes = par__pipe_align(par__pipe_input_bytes(s, back ? i : to));
            o->slot = (void **)par__pipe_alloc_zeroed((size_t)p->slots, sizeof(void *));
            o->request = (par_request *)par__pipe_alloc_zeroed((size_t)p->slots, sizeof(par_request));
            if (!o->slot || !o->request) return par__pipe_open_out_of_memory(p);
            const par_result r = par__pipe_alloc(p, bytes * (size_t)p->slots, &o->slot[0]);
            if (r) return r;
            for (int j = 1; j < p->slots; j++) o->slot[j] = (char *)o->slot[0] + bytes * (size_t)j;
            o->channel = p->channels[p->channel_of[back][way * s->stages + to]];
        }
    return PAR_OK;
}
static par_result par__pipe_open_parts(par_pipe *p) {
    par_pipe_schedule *s = p->s;
    const size_t n = s->first[s->ranks];
    par_pipe_memory plan;
    p->chunk_of = (int *)par__pipe_alloc_zeroed((size_t)s->stages, sizeof(int));
    p->stage_of = (int *)par__pipe_alloc_zeroed((size_t)s->stages, sizeof(int));
    for (int i = 0; p->chunk_of && p->stage_of && i < s->stages; i++) {
        const int here =
            s->rank_of[i] == p->rank || (s->directions == 2 && s->rank_of[s->stages + i] == p->rank);
        p->chunk_of[i] = here ? p->chunks : -1;
        if (here) p->stage_of[p->chunks++] = i;
    }
    p->cells = (par__pipe_cell *)par__pipe_alloc_zeroed((size_t)p->chunks * (size_t)s->microbatches,
                                                        sizeof *p->cells);
    p->send_rings =
        (par__pipe_send_ring *)par__pipe_alloc_zeroed(2 * (size_t)p->chunks, sizeof *p->send_rings);
    p->losses = (double *)par__pipe_alloc_zeroed((size_t)s->microbatches, sizeof(double));
    void *there = p->losses;
    if (p->device != par_cpu() &&
        p->device->alloc(p->device, (size_t)s->microbatches * sizeof(double), &there))
        there = NULL;
    p->device_losses = (double *)there;
    p->start = (double *)par__pipe_alloc_zeroed(n, sizeof(double));
    p->end = (double *)par__pipe_alloc_zeroed(n, sizeof(double));
    const par_result forwards = par_pipe_forward_only(s, 0, &p->forwards);
    p->slots = par__pipe_send_slots(s, p->rank, p->rendezvous);
    if (forwards || p->slots < 0 || !p->chunk_of || !p->stage_of || !p->cells || !p->send_rings ||
        !p->losses || !p->device_losses || !p->start || !p->end || !par__pipe_number_channels(p) ||
        !par__pipe_plan(&p->forwards, p->rank, p->rendezvous, &plan, &p->pools) ||
        !par__pipe_plan(s, p->rank, p->rendezvous, &plan, &p->pools))
        return par__pipe_open_out_of_memory(p);
    par_result r = par__pipe_open_channels(p);
    if (!r) r = par__pipe_open_pools(p);
    return r ? r : par__pipe_open_send_rings(p);
}
// The comm of a channel, with the name of the message for errors and traces.
static par_comm *par__pipe_named(par_comm *channel, int back, int to) {
    char name[40];
    snprintf(name, sizeof name, "%s to stage %d", back ? "gradients" : "activations", to);
    return par__in_named_layer(channel, name);
}
// A device's first message between two ranks may connect them (NCCL): it is launched when both have begun it,
// and so perhaps behind something that waits for it, in a hardware queue of several streams. So all channels
// get their first message here, one after the other in an order that all ranks have.
static par_result par__pipe_connect(par_pipe *p) {
    const par_pipe_schedule *s = p->s;
    const int slots = s->directions * s->stages;
    par_result r = PAR_OK;
    for (int i = 0; i < 4 * slots && !r; i++) { // even ranks send first: many pairs are at work at a time
        const int odd = i / slots / 2, back = i / slots % 2, to = i % s->stages,
                  from = back ? to + 1 : to - 1;
        const int *rank = s->rank_of + i % slots - to;
        if (from < 0 || from >= s->stages || rank[from] == rank[to] || rank[from] % 2 != odd) continue;
        par_comm *comm = par__pipe_named(p->channels[p->channel_of[back][i % slots]], back, to);
        if (rank[from] == p->rank) r = (par_send)(p->device_losses, 1, PAR_U8, rank[to], comm);
        if (rank[to] == p->rank) r = (par_recv)(p->device_losses, 1, PAR_U8, rank[from], comm);
    }
    return r;
}
par_pipe *par__pipe_called(par_pipe *p, const char *site) {
    if (p && site) par__enter_layer(p->exec.comm, site);
    return p;
}
par_result par__pipe_open_at(const char *site, par_pipe_schedule *s, const par_pipe_exec *exec,
                             par_pipe **pipe) {
    par__enter_layer(exec ? exec->comm : NULL, site);
    return par_pipe_open(s, exec, pipe);
}
par_result par_pipe_open(par_pipe_schedule *s, const par_pipe_exec *exec, par_pipe **pipe) {
    *pipe = NULL;
    if (!exec->comm) { // that could keep the text
        PAR_LOG("par_pipe_open: exec.comm is NULL: give it the ranks of the pipeline");
        return par__pipe_fail(s, PAR_ERR_ARGUMENT, "par_pipe_open: exec.comm is NULL");
    }
    par_result r = par__pipe_all_succeed(exec->comm, par__pipe_check(s, exec));
    if (!r) r = par__pipe_compare(s, exec);
    if (r) return r;
    par_pipe *p = (par_pipe *)par__pipe_alloc_zeroed(1, sizeof *p);
    par_result mine = PAR_ERR_MEMORY;
    if (p) {
        p->s = s;
        p->exec = *exec;
        p->rank = par_rank(exec->comm);
        p->device = exec->device ? exec->device : par_cpu();
        p->rendezvous = par__pipe_supports_rendezvous(s);
        mine = par__pipe_open_parts(p);
    } else
        par_fail(exec->comm, mine, "par_pipe_open: out of memory");
    r = par__pipe_all_succeed(exec->comm, mine);
    if (!r && par_backend_of(exec->comm)) r = par__pipe_connect(p);
    if (r)
        par_pipe_close(p);
    else
        *pipe = p;
    return r;
}
par_result par_pipe_close(par_pipe *p) {
    par_result result = PAR_OK;
    if (!p) return PAR_OK;
    for (int i = 0; p->channels && i < p->channel_count; i++) {
        const par_result r = par_close_together(p->channels[i]); // after an error messages are in flight
        if (r && !result) result = r;
    }
    for (int i = 0; i < p->pools.count; i++) {
        par__pipe_free(p, p->pools.at[i].memory);
        PAR_FREE(p->pools.at[i].free_blocks);
    }
    for (int i = 0; p->send_rings && i < 2 * p->chunks; i++) {
        if (p->send_rings[i].slot) par__pipe_free(p, p->send_rings[i].slot[0]);
        PAR_FREE(p->send_rings[i].slot);
        PAR_FREE(p->send_rings[i].request);
    }
    par_pipe_schedule_close(&p->forwards);
    if (p->device_losses != p->losses) p->device->free(p->device, p->device_losses);
    PAR_FREE(p->pools.at);
    PAR_FREE(p->send_rings);
    PAR_FREE(p->cells);
    PAR_FREE(p->losses);
    PAR_FREE(p->start);
    PAR_FREE(p->end);
    PAR_FREE(p->chunk_of);
    PAR_FREE(p->stage_of);
    PAR_FREE(p->channels);
    PAR_FREE(p->channel_of[0]);
    PAR_FREE(p->channel_of[1]);
    PAR_FREE(p);
    return result;
}

static void *par__pipe_pool_get(par_pipe *p, int kind, size_t bytes) { // from the pool of that size
    if (!bytes) return NULL;
    par__pipe_pool *x = par__pipe_pool_of(&p->pools, bytes);
    PAR_ASSERT(x && x->live < x->max_live); // the plan counts them
    p->live[kind > PAR__PIPE_DY] += bytes;
    for (int i = 0; i < 2; i++) p->peak[i] = PAR__MAX(p->peak[i], p->live[i]);
    p->peak[2] = PAR__MAX(p->peak[2], p->live[0] + p->live[1]);
    return x->free_blocks[x->max_live - ++x->live];
}
static void par__pipe_pool_put(par_pipe *p, int kind, size_t bytes, void *memory) {
    if (!bytes) return;
    par__pipe_pool *x = par__pipe_pool_of(&p->pools, bytes);
    p->live[kind > PAR__PIPE_DY] -= bytes;
    x->free_blocks[x->max_live - x->live--] = memory;
}
static void par__pipe_change_buffers(par_pipe *p, const par_pipe_schedule *s, par_pipe_action a,
                                     int release) {
    const par__pipe_lifetimes c = par__pipe_lifetimes_of(s, a);
    for (int i = 0; i < (release ? c.released : c.acquired); i++) {
        const par__pipe_buffer x = release ? c.release[i] : c.acquire[i];
        void **held = &par__pipe_cell_of(p, x.stage, a.microbatch)->held[x.kind];
        const size_t bytes = par__pipe_buffer_bytes(s, x);
        if (release) {
            par__pipe_pool_put(p, x.kind, bytes, *held);
            *held = NULL;
        } else
            *held = par__pipe_pool_get(p, x.kind, bytes);
    }
}
// The buffer for a stage's next message, after its previous message is sent.
static par_result par__pipe_next_send_buffer(par_pipe *p, par__pipe_send_ring *o, void **memory) {
    const int i = o->filled++ % p->slots;
    *memory = o->slot[i];
    return par_wait(&o->request[i]);
}
static par_result par__pipe_wait_input(par_pipe *p, par_pipe_action a) {
    const int back = par__pipe_is_backward(a.kind);
    if (a.kind != PAR_PIPE_F && !back) return PAR_OK;
    return par_wait(&par__pipe_cell_of(p, a.stage, a.microbatch)->request[back]);
}
static int par__pipe_version(const par_pipe_schedule *s, par_pipe_action a) {
    if (a.kind == PAR_PIPE_UPDATE) return (a.microbatch + 1) & 1;
    const int batch = a.microbatch / s->desc.microbatches;
    return batch ? (batch - 1) & 1 : 0;
}
static void par__pipe_record_times(par_pipe *p, const par_pipe_schedule *s, size_t i, double started) {
    if (s == p->s) {
        p->start[i] = started;
        p->end[i] = par_seconds(p->exec.comm);
    } // not for evaluation
}
// Calls the program's function. Calls of layers in it have call sites of their own; afterwards the step's
// site is restored.
static par_result par__pipe_call_user(par_pipe *p, const par_pipe_schedule *s, size_t i,
                                      const par_pipe_work *w) {
    const double started = par_seconds(p->exec.comm);
    const par__caller caller = par__save_caller(p->exec.comm);
    (par_fail)(p->exec.comm, PAR_OK, "%s", ""); // forget the text of an earlier error
    const par_result r = p->exec.fn(p->exec.user, w);
    par__restore_caller(p->exec.comm, &caller);
    par__pipe_record_times(p, s, i, started);
    return r;
}
static par_result par__pipe_compute(par_pipe *p, const par_pipe_schedule *s, size_t i) {
    const par_pipe_action a = s->actions[i];
    const int hook = !par__pipe_computes(a.kind), back = par__pipe_is_backward(a.kind);
    const int to = back ? a.stage - 1 : a.stage + 1,
              makes = (back || a.kind == PAR_PIPE_F) && to >= 0 && to < s->stages;
    par_pipe_work w;
    par_result r;
    memset(&w, 0, sizeof w);
    w.kind = (par_pipe_kind)a.kind;
    w.stage = a.stage;
    w.chunk = p->chunk_of[a.stage];
    w.microbatch = a.microbatch;
    w.is_first = a.stage == 0;
    w.is_last = a.stage == s->stages - 1;
    w.forward_only = s->forward_only;
    w.version = par__pipe_version(s, a);
    if (hook) return par__pipe_call_user(p, s, i, &w);
    w.rows = par__pipe_rows(s, a.microbatch);
    if ((r = par__pipe_wait_input(p, a)) != PAR_OK) return r;
    if (a.kind == PAR_PIPE_R && a.pair && (r = par__pipe_wait_input(p, s->actions[i + 1])) != PAR_OK)
        return r;
    par__pipe_change_buffers(p, s, a, 0);
    void *const *held = par__pipe_cell_of(p, a.stage, a.microbatch)->held;
    void *out = NULL;
    if (makes && par__pipe_rank_of(s, to, a.microbatch) == p->rank)
        out = par__pipe_cell_of(p, to, a.microbatch)->held[back ? PAR__PIPE_DY : PAR__PIPE_X];
    else if (makes && (r = par__pipe_next_send_buffer(p, &p->send_rings[2 * w.chunk + back], &out)) != PAR_OK)
        return r;
    w.x = held[PAR__PIPE_X];
    w.dy = held[PAR__PIPE_DY];
    w.y = back ? NULL : out;
    w.dx = back ? out : NULL;
    w.b = held[PAR__PIPE_SAVED_B];
    w.w = held[PAR__PIPE_SAVED_W];
    w.g = held[PAR__PIPE_SAVED_G];
    w.c = held[PAR__PIPE_SAVED_C];
    if (w.is_last && a.kind == PAR_PIPE_F) w.loss = &p->device_losses[a.microbatch];
    if (a.kind == PAR_PIPE_BW || a.kind == PAR_PIPE_W)
        w.last_backward = par__pipe_is_last_gradient(s->actions, s->first[p->rank + 1], i);
    if ((r = par__pipe_call_user(p, s, i, &w)) != PAR_OK) return r;
    par__pipe_change_buffers(p, s, a, 1);
    return PAR_OK;
}
static par_result par__pipe_run_action(par_pipe *p, const par_pipe_schedule *s, size_t i) {
    const par_pipe_action a = s->actions[i];
    int q;
    if (!par__pipe_sends(a.kind) && !par__pipe_receives(a.kind)) return par__pipe_compute(p, s, i);
    const int back = a.kind == PAR_PIPE_SEND_B || a.kind == PAR_PIPE_RECV_B;
    const par_pipe_action o = par__pipe_peer_action(a, s, &q);
    par__pipe_record_times(p, s, i, par_seconds(p->exec.comm));
    if (par__pipe_sends(a.kind)) {
        par__pipe_send_ring *out = &p->send_rings[2 * p->chunk_of[a.stage] + back];
        const int slot = out->sent++ % p->slots;
        return (par_send_begin)(out->slot[slot],
                                par__pipe_message_bytes(s, back ? a.stage : o.stage, a.microbatch), PAR_U8, q,
                                par__pipe_named(out->channel, back, o.stage), &out->request[slot]);
    }
    par__pipe_change_buffers(p, s, a, 0);
    par__pipe_cell *u = par__pipe_cell_of(p, a.stage, a.microbatch);
    par_comm *channel = par__pipe_channel_to(p, back, a.stage, a.microbatch);
    return (par_recv_begin)(u->held[back ? PAR__PIPE_DY : PAR__PIPE_X],
                            par__pipe_message_bytes(s, back ? o.stage : a.stage, a.microbatch), PAR_U8, q,
                            par__pipe_named(channel, back, a.stage), &u->request[back]);
}
static par_result par__pipe_wait_sends(par_pipe *p) { // waits for all; returns the first error
    par_result result = PAR_OK;
    for (int k = 0; k < 2 * p->chunks; k++)
        if (p->send_rings[k].slot) {
            const par_result r = par_wait_all(p->send_rings[k].request, p->slots);
            if (!result) result = r;
        }
    return result;
}
// Aborts the step: the other ranks of the node fail at once, in an elastic world those of the pipeline.
// Requests in flight are waited for; they fail, too.
static par_result par__pipe_abort_step(par_pipe *p, const par_pipe_schedule *s, size_t i, par_result r) {
    char text[48], why[512] = "";
    for (int k = 0; k < p->channel_count && !why[0]; k++)
        snprintf(why, sizeof why, "%.500s", par_last_error(p->channels[k]));
    par_fail(p->exec.comm, r, "pipeline: rank %d, action %zu, %s: %s", p->rank, i - s->first[p->rank],
             par__pipe_text(s->actions[i], text), why[0] ? why : par_result_text(r));
    snprintf(why, sizeof why, "%.500s", par_last_error(p->exec.comm));
    const int elastic = par_revoke(p->exec.comm) == PAR_OK; // then it is for the program to go on
    if (!elastic && r != PAR_ERR_ABORTED && r != PAR_ERR_PEER_DIED && r != PAR_ERR_TIMEOUT)
        par_abort(p->exec.comm, why);
    for (size_t k = 0; k < (size_t)p->chunks * (size_t)s->microbatches; k++)
        for (int back = 0; back < 2; back++) (void)par_wait(&p->cells[k].request[back]);
    (void)par__pipe_wait_sends(p);
    return (par_fail)(p->exec.comm, r, "%s", why);
}
static par_result par__pipe_run_step(par_pipe *p, const par_pipe_schedule *s, par_pipe_report *report) {
    const double started = par_seconds(p->exec.comm);
    par_result r;
    const size_t losses = (size_t)s->microbatches * sizeof *p->losses;
    if ((r = p->device->fill(p->device, p->device_losses, 0, losses, NULL)) != PAR_OK)
        return par_fail(p->exec.comm, r, "par_pipe_step: the device cannot clear the losses");
    if (s == p->s) p->started = started;
    p->peak[0] = p->peak[1] = p->peak[2] = 0;
    for (int k = 0; k < 2 * p->chunks; k++) p->send_rings[k].filled = p->send_rings[k].sent = 0;
    for (size_t i = s->first[p->rank]; i < s->first[p->rank + 1]; i++)
        if ((r = par__pipe_run_action(p, s, i)) != PAR_OK) return par__pipe_abort_step(p, s, i, r);
    if ((r = par__pipe_wait_sends(p)) != PAR_OK)
        return par__pipe_abort_step(p, s, s->first[p->rank + 1] - 1, r);
    if (p->exec.broadcast_loss &&
        (r = par_all_reduce(p->device_losses, p->device_losses, (size_t)s->microbatches, PAR_F64, PAR_SUM,
                            p->exec.comm)) != PAR_OK)
        return r;
    if (!report) return PAR_OK;
    if (p->device_losses != p->losses) { // the only place where the host waits for the device
        r = p->device->copy(p->device, p->losses, p->device_losses, losses, NULL);
        if (!r) r = p->device->stream_sync(p->device, NULL);
        if (r) return par_fail(p->exec.comm, r, "par_pipe_step: the device cannot give the losses");
    }
    report->loss = 0;
    for (int i = 0; i < s->microbatches; i++) report->loss += p->losses[i];
    report->seconds = par_seconds(p->exec.comm) - started;
    report->message_bytes = p->peak[0];
    report->activation_bytes = p->peak[1];
    report->live_bytes = p->peak[2];
    return PAR_OK;
}
par_result par_pipe_step(par_pipe *pipe, par_pipe_report *report) {
    return par__pipe_run_step(pipe, pipe->s, report);
}
par_result par_pipe_evaluate(par_pipe *pipe, par_pipe_report *report) {
    return par__pipe_run_step(pipe, &pipe->forwards, report);
}
const double *par_pipe_losses(const par_pipe *pipe) { return pipe->losses; }
const double *par_pipe_device_losses(const par_pipe *pipe) { return pipe->device_losses; }
size_t par_pipe_allocated(const par_pipe *pipe) { return pipe->allocated; }

// >>pipe_measure --------------------------------------------------------------------------------------------

typedef struct par__pipe_clock {   // of a rank
    double started, offset, error; // start of the step by the rank's clock; see par_clock_offset
} par__pipe_clock;

// Converts all times to rank 0's clock; 0 is when the first rank started the step.
static void par__pipe_to_rank0_clock(const par_pipe_schedule *s, par_pipe_timeline *t,
                                     const par__pipe_clock *c) {
    double zero = c[0].started + c[0].offset, largest[2] = {0, 0}; // the two largest errors
    for (int q = 1; q < s->ranks; q++) {
        zero = PAR__MIN(zero, c[q].started + c[q].offset);
        largest[1] = PAR__MAX(largest[1], PAR__MIN(largest[0], c[q].error));
        largest[0] = PAR__MAX(largest[0], c[q].error);
    }
    t->clock_error = largest[0] + largest[1];
    for (int q = 0; q < s->ranks; q++)
        for (size_t i = s->first[q]; i < s->first[q + 1]; i++) {
            t->start[i] += c[q].offset - zero;
            t->end[i] += c[q].offset - zero;
        }
}
par_result par_pipe_timeline_get(par_pipe *pipe, par_pipe_timeline *t) {
    const par_pipe_schedule *s = pipe->s;
    par_comm *comm = pipe->exec.comm;
    const size_t first = s->first[pipe->rank], count = s->first[pipe->rank + 1] - first;
    par__pipe_clock clock, *clocks = NULL;
    size_t *counts = NULL;
    int bad = 0;
    memset(t, 0, sizeof *t);
    clock.started = pipe->started;
    par_result r = par_clock_offset(comm, &clock.offset, &clock.error);
    if (r) return r;
    if (pipe->rank == 0) {
        counts = (size_t *)par__pipe_alloc_zeroed((size_t)s->ranks, sizeof *counts);
        clocks = (par__pipe_clock *)par__pipe_alloc_zeroed((size_t)s->ranks, sizeof *clocks);
        bad = !counts || !clocks || par__pipe_timeline_open(s, t) != PAR_OK;
        for (int q = 0; !bad && q < s->ranks; q++) counts[q] = s->first[q + 1] - s->first[q];
    }
    r = par_all_reduce(&bad, &bad, 1, PAR_I32, PAR_MAX, comm);
    if (!r && bad) r = par_fail(comm, PAR_ERR_MEMORY, "par_pipe_timeline_get: out of memory on rank 0");
    if (!r) r = par_gather(&clock, clocks, sizeof clock, PAR_U8, 0, comm);
    if (!r) r = par_gatherv(pipe->start + first, count, t->start, counts, NULL, PAR_F64, 0, comm);
    if (!r) r = par_gatherv(pipe->end + first, count, t->end, counts, NULL, PAR_F64, 0, comm);
    if (!r && pipe->rank == 0) {
        par__pipe_to_rank0_clock(s, t, clocks);
        r = par__pipe_account(s, t);
        if (r) par_fail(comm, r, "par_pipe_timeline_get: out of memory");
    }
    PAR_FREE(counts);
    PAR_FREE(clocks);
    if (r) par_pipe_timeline_close(t);
    return r;
}

#ifdef __cplusplus
}
#endif
PAR__API_END
#pragma pop_macro("PAR_SITE")
#pragma pop_macro("PAR__PIPE_WITH_SITE")
#undef par_fail
#endif // PAR_PIPE_IMPLEMENTATION

// Public domain where that is possible: anyone may use, change and give this away for any purpose, without
// conditions. Elsewhere, and if you prefer, under MIT-0:
//
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction, including
// without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is furnished to do so.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
// LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
// EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
// IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE
// USE OR OTHER DEALINGS IN THE SOFTWARE.

// test_pipe.c - par_pipe.h: orders against closed formulas, published figures and serial training; memory to
// the byte; deadlocks as the executor sees them; tables as files.
static long allocations;  // made by the kit; a step makes none
static long allowed = -1; // this many allocations succeed, then none; < 0: all
static int may_allocate(void) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return allowed < 0 || allowed-- > 0;
}
#define PAR_IMPLEMENTATION
#include "kit.h"
#include "par_pipe.h"

#include "test.h"
#include <pthread.h>
void *test_malloc(size_t bytes) { return may_allocate() ? malloc(bytes) : NULL; }
void *test_realloc(void *old, size_t bytes) { return may_allocate() ? realloc(old, bytes) : NULL; }

static int close_to(double a, double b, double by) { return fabs(a - b) <= by * fmax(1, fabs(b)); }
static int has_text(const char *text, const char *part) {
    const int found = strstr(text, part) != NULL;
    if (!found) fprintf(stderr, "wanted \"%s\" in \"%s\"\n", part, text);
    return found;
}
static par_result idle_work(void *user, const par_pipe_work *k) { return (void)user, (void)k, PAR_OK; }
static par_pipe_desc desc_of(const char *name, int p, int m, int v, const par_pipe_stage *stage) {
    par_pipe_desc d;
    memset(&d, 0, sizeof d);
    d.schedule = name, d.ranks = p, d.microbatches = m, d.chunks = v, d.stages = stage,
    d.stage_count = stage ? 1 : 0;
    return d;
}
static par_pipe_stage stage_of(double f, double b, double w) {
    par_pipe_stage s;
    memset(&s, 0, sizeof s);
    s.f = f, s.b = b, s.w = w, s.input_bytes = 8, s.b_bytes = 100, s.w_bytes = 10;
    return s;
}
static int any_chunks(const char *name) { return par_pipe_schedule_find(name)->chunks == 0; }

// For any schedule, ranks, microbatches and chunks the table is right under every channel model, and has the
// bubble and the memory that the formulas give.
static void check_case(par_comm *w, const char *name, int p, int m, int v, par_pipe_stage stage,
                       double latency) {
    par_pipe_desc d = desc_of(name, p, m, any_chunks(name) ? v : 0, &stage);
    d.latency = latency;
    par_pipe_schedule s;
    par_pipe_timeline t;
    par_pipe_memory *memory = (par_pipe_memory *)calloc((size_t)p, sizeof *memory);
    const par_result r = par_pipe_schedule_open(&d, &s);
    if (!strcmp(name, "dualpipe") && p % 2)
        CHECK(w, r == PAR_ERR_ARGUMENT && has_text(s.why, "even number of ranks"));
    else {
        if (r) fprintf(stderr, "%s, p %d, m %d, v %d: %s\n", name, p, m, v, s.why);
        CHECK(w, r == PAR_OK);
        CHECK(w, par_pipe_verify(&s, PAR_PIPE_RENDEZVOUS, memory) == PAR_OK);
        CHECK(w, par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t) == PAR_OK);
        const double bubble = par_pipe_theory_bubble(&s, 0), window = par_pipe_theory_bubble(&s, 1);
        if (!strcmp(name, "dualpipev") && stage.w == 1 && stage.fbw <= 0 && latency <= 0 && m >= 2 * p)
            CHECK(w, !isnan(bubble)); // of odd numbers of microbatches, too
        const int right = (isnan(bubble) || fabs(bubble - t.bubble) < 1e-9) &&
                          (isnan(window) || fabs(window - t.window_bubble) < 1e-9);
        if (!right)
            fprintf(stderr, "%s, p %d, m %d, v %d: bubble %g, not %g; in the window %g, not %g\n", name, p, m,
                    v, t.bubble, bubble, t.window_bubble, window);
        CHECK(w, right);
        for (int k = 0; k < p; k++) {
            const double peak = par_pipe_theory_peak(&s, k);
            const par_pipe_rank *x = &t.ranks[k];
            const int held = isnan(peak) || close_to(memory[k].microbatches, peak * s.desc.chunks, 1e-9);
            if (!held)
                fprintf(stderr, "%s, p %d, m %d, v %d: rank %d holds %d microbatches of a chunk, not %g\n",
                        name, p, m, v, k, memory[k].microbatches, peak * s.desc.chunks);
            CHECK(w, held);
            CHECK(w, close_to(x->warmup + x->cooldown + x->communication + x->imbalance + x->dependency,
                              t.makespan - x->busy, 1e-9));
        }
        par_pipe_timeline_close(&t);
    }
    par_pipe_schedule_close(&s);
    free(memory);
}
static int next_microbatches(int p, int m) { // how many more
    if (getenv("SOAK")) return p == 16 && m > 8 ? 5 : 1;
    if (p == 16) return 15;
    return p > 6 || TEST_FEWER ? (m > p ? 5 : 2) : 1;
}
static void set_costs(par_comm *w) { // the times of a timeline become the costs of its stages
    static const char *const names[] = {"1f1b", "zb_h1", "interleaved_1f1b"};
    for (int i = 0; i < 3; i++) {
        par_pipe_stage costs[4];
        par_pipe_desc d;
        par_pipe_schedule s;
        par_pipe_timeline t, empty;
        memset(costs, 0, sizeof costs), memset(&d, 0, sizeof d), memset(&empty, 0, sizeof empty);
        for (int k = 0; k < 4; k++) costs[k].f = 1 + k, costs[k].b = 3 + k, costs[k].w = 2, costs[k].r = 7;
        d.schedule = names[i], d.ranks = i == 2 ? 2 : 4, d.microbatches = 4, d.chunks = i == 2 ? 2 : 0;
        d.stages = costs, d.stage_count = 4;
        CHECK(w, par_pipe_schedule_open(&d, &s) == PAR_OK && s.stages == 4);
        CHECK(w, par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t) == PAR_OK);
        CHECK(w, par_pipe_set_costs(&s, &empty) == PAR_ERR_ARGUMENT && strstr(s.why, "has 0 actions"));
        for (size_t k = 0; k < t.action_count; k++) t.start[k] *= 2, t.end[k] *= 2;
        CHECK(w, par_pipe_set_costs(&s, &t) == PAR_OK && s.desc.stage_count == 4);
        for (int k = 0; k < 4; k++) {
            const par_pipe_stage *c = &s.desc.stages[k];
            CHECK(w, fabs(c->f - 2 * (1 + k)) < 1e-9 && fabs(c->b + c->w - 2 * (5 + k)) < 1e-9 && c->r == 7);
            CHECK(w, fabs(c->w - (i == 1 ? 4 : 0)) < 1e-9);
        }
        par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    }
}
static void formulas(par_comm *w) {
    for (int k = 0; k < PAR_PIPE_SCHEDULE_COUNT; k++)
        for (int p = 1; p <= (getenv("SOAK") ? 16 : 6); p += p == 8 ? 8 : 1)
            for (int m = 1; m <= 3 * p; m += next_microbatches(p, m))
                for (int v = 1; v <= (any_chunks(par_pipe_schedules[k].name) ? 4 : 1); v++)
                    check_case(w, par_pipe_schedules[k].name, p, m, v, stage_of(1, 1, 1), 0);
    for (int k = 0; k < PAR_PIPE_SCHEDULE_COUNT; k++) // uneven stages, and messages that take time
        for (int p = 1; p <= 6; p++)
            for (int m = p; m <= 3 * p; m += p) {
                check_case(w, par_pipe_schedules[k].name, p, m, 2, stage_of(1, 1, 1), .05);
                check_case(w, par_pipe_schedules[k].name, p, m, 3, stage_of(1.8, 1.7, .9), .06);
                check_case(w, par_pipe_schedules[k].name, p, m, 2, stage_of(1, 1.4, .7), 0);
                par_pipe_stage fused = stage_of(1, 1, 1);
                fused.fbw = 2.5; // an F and a BW that overlap
                check_case(w, par_pipe_schedules[k].name, p, m, 2, fused, 0);
            }
}

// F = B = W = 1 and c = 0 on 4 ranks with 8 microbatches; the zero bubble paper's settings, to four digits.
static void published(par_comm *w) {
    static const struct {
        const char *name;
        double makespan;
    } small[] = {
        {"1f1b", 33},   {"gpipe", 33}, {"zb_h1", 27},           {"zb_h2", 27}, {"interleaved_1f1b", 28.5},
        {"zb_v", 25.5}, {"naive", 96}, {"interleaved_zb", 25.5}};
    static const struct {
        int p, m;
        double f, b, w, c, rate[4];
    } paper[] = {{8, 24, 18.522, 18.086, 9.337, .601, {.2431, .1585, .1083, .0433}},
                 {16, 64, 11.307, 11.254, 8.101, .379, {.2082, .1088, .0516, .0054}},
                 {32, 128, 10.408, 10.204, 7.703, .408, {.2168, .1106, .0490, .0029}}};
    static const char *const names[] = {"1f1b", "zb_h1", "zb_h2", "auto"};
    par_pipe_schedule s;
    par_pipe_timeline t;
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        par_pipe_stage stage = stage_of(1, 1, 1);
        par_pipe_desc d = desc_of(small[i].name, 4, 8, 0, &stage);
        const double v = par_pipe_defaults(&d).chunks;
        stage.f /= v, stage.b /= v, stage.w /= v;
        CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
        CHECK(w, close_to(t.makespan, small[i].makespan, 1e-12));
        par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    }
    for (size_t i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) {
            const par_pipe_stage stage = stage_of(paper[i].f, paper[i].b, paper[i].w);
            par_pipe_desc d = desc_of(names[j], paper[i].p, paper[i].m, 0, &stage);
            d.latency = paper[i].c,
            d.max_activation_bytes = 2 * (size_t)paper[i].p * 110; // of so many microbatches
            CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
            CHECK(w, fabs(t.window_bubble - paper[i].rate[j]) < 5e-5 ||
                         (j == 3 && t.window_bubble < paper[i].rate[j]));
            par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
        }
}

// Memory in bytes: M_B = b + w from F to B, M_W = w from B to W.
static void zero_bubble_memory(par_comm *w) {
    for (int p = 2; p <= 8; p++) {
        const par_pipe_stage stage = stage_of(1, 1, 1);
        par_pipe_memory memory[8];
        par_pipe_schedule s;
        for (int k = 1; k <= 2; k++) {
            const par_pipe_desc d = desc_of(k == 1 ? "zb_h1" : "zb_h2", p, 4 * p, 0, &stage);
            CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, memory));
            for (int r = 0; r < p; r++) {
                const size_t whole = (size_t)(k * (p - r) - (k - 1)), weights = (size_t)(k * r);
                CHECK(w, memory[r].activation_bytes == whole * 110 + weights * 10);
            }
            par_pipe_schedule_close(&s);
        }
        const par_pipe_desc half = desc_of("v_half", p, 4 * p, 0, &stage),
                            least = desc_of("v_min", p, 4 * p, 0, &stage);
        CHECK(w, !par_pipe_schedule_open(&half, &s) && !par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, memory));
        for (int r = 0; r < p; r++) CHECK(w, memory[r].microbatches <= 2 * ((p + 2) / 2));
        par_pipe_schedule_close(&s);
        CHECK(w, !par_pipe_schedule_open(&least, &s) && !par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, memory));
        for (int r = 0; r < p; r++) CHECK(w, memory[r].microbatches <= 2 * ((p + 4) / 3));
        par_pipe_schedule_close(&s);
    }
}

// m(F+R+BW) + (p-1)(F+R+BW) where recomputation waits for the gradient, m(F+R+BW) + (p-1)(F+BW) where not.
static void recomputation(par_comm *w) {
    for (int p = 1; p <= 6; p++)
        for (int m = p; m <= 3 * p; m++)
            for (int early = 0; early < 2; early++) {
                par_pipe_stage stage = stage_of(1, 1.5, .5);
                par_pipe_desc d = desc_of("1f1b", p, m, 0, &stage);
                par_pipe_schedule s;
                par_pipe_timeline t;
                par_pipe_memory memory[8];
                stage.r = .75, stage.c_bytes = 7;
                d.recompute = early ? PAR_PIPE_RECOMPUTE_EARLY : PAR_PIPE_RECOMPUTE_FUSED;
                CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
                CHECK(w, close_to(t.makespan, m * 3.75 + (p - 1) * (early ? 3 : 3.75), 1e-12));
                CHECK(w, early || close_to(par_pipe_theory_bubble(&s, 0), t.bubble, 1e-12));
                par_pipe_timeline_close(&t);
                CHECK_OK(w, par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, memory));
                for (int r = 0; r < p; r++) // c bytes of all microbatches in flight, b and w bytes of one
                    CHECK(w, early || memory[r].activation_bytes == (size_t)PAR__MIN(m, p - r) * 7 + 110);
                par_pipe_schedule_close(&s);
                d.recompute_count = 1; // the first microbatch alone
                CHECK_OK(w, par_pipe_schedule_open(&d, &s));
                int again = 0;
                for (size_t i = 0; i < s.first[p]; i++) again += s.actions[i].kind == PAR_PIPE_R;
                CHECK(w, again == p);
                par_pipe_schedule_close(&s);
            }
}

// With one slow stage the other ranks' waiting is imbalance. With messages that take time, waiting is
// warm-up, communication or cool-down, and the reasons add up.
static void simulator(par_comm *w) {
    par_pipe_stage stages[4];
    par_pipe_schedule s;
    par_pipe_timeline t;
    for (int i = 0; i < 4; i++) stages[i] = stage_of(1, 1, 1);
    stages[2].f = stages[2].b = stages[2].w = 2;
    par_pipe_desc d = desc_of("1f1b", 4, 16, 0, stages);
    d.stage_count = 4;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    CHECK(w, close_to(t.ranks[2].busy, 96, 1e-12) && close_to(t.ranks[0].busy, 48, 1e-12));
    CHECK(w, t.makespan >= 96 + 2 + 4 && t.ranks[0].imbalance > 20 && t.ranks[2].imbalance < 1e-12);
    CHECK(w, isnan(par_pipe_theory_bubble(&s, 0)));
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    // one microbatch: p (F + B) + 2 (p-1) hops; waiting is warm-up, cool-down or communication
    d = desc_of("gpipe", 4, 1, 0, stages), d.latency = .25,
    d.seconds_per_byte = .125; // 8 bytes: a hop takes 1.25
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    CHECK(w, close_to(t.makespan, 4 * 3 + 6 * 1.25, 1e-12));
    CHECK(w, close_to(t.ranks[1].warmup, 2.25, 1e-12) && close_to(t.ranks[1].communication, 1.25, 1e-12));
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    // the same with edges that differ: .25 + 1, then 2 + 8 * .5, then .25 + 1, twice each
    stages[2] = stage_of(1, 1, 1), stages[2].latency = 2, stages[2].seconds_per_byte = .5;
    d.stage_count = 4;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    CHECK(w,
          close_to(t.makespan, 4 * 3 + 2 * (1.25 + 6 + 1.25), 1e-12) && isnan(par_pipe_theory_bubble(&s, 0)));
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    // two messages on one channel follow each other: 8 bytes of .5 s, made at 1 and 2, come at 5 and 9
    d = desc_of("gpipe", 2, 2, 0, stages), d.seconds_per_byte = .5;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    for (size_t i = s.first[1]; i < s.first[2]; i++)
        if (s.actions[i].kind == PAR_PIPE_F)
            CHECK(w, close_to(t.start[i], s.actions[i].microbatch ? 9 : 5, 1e-12));
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    // microbatches of half the rows take half the time
    const int rows[2] = {4, 2};
    d = desc_of("gpipe", 1, 2, 0, stages), d.rows = 4, d.row_counts = rows;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    CHECK(w, close_to(t.makespan, 4.5, 1e-12));
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
}

static void large(par_comm *w) { // 64 ranks x 512 microbatches are fast; thousands of stages work
    par_pipe_schedule s;
    par_pipe_timeline t;
    par_pipe_desc d = desc_of("zb_h1", 64, 512, 0, NULL);
    double best = 1e9;
    CHECK_OK(w, par_pipe_schedule_open(&d, &s));
    for (int i = 0; i < 2; i++) {
        const double start = test_now();
        CHECK_OK(w, par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
        best = fmin(best, test_now() - start);
        par_pipe_timeline_close(&t);
    }
    CHECK(w, best < 30); // it takes 20 ms
    par_pipe_schedule_close(&s);
    d = desc_of("1f1b", 2048, 64, 0, NULL);
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    CHECK(w, close_to(t.makespan, (64 + 2047) * 3.0, 1e-12));
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
}

// On random stages "auto" is never slower than ZB-H1, stays within its memory and above its own lower bound;
// with equal stages it reaches the bound.
static void searched(par_comm *w) {
    for (int i = 0; i < 12; i++) {
        const int p = 2 + i % 4, m = p + i % 5;
        par_pipe_stage stages[8];
        par_pipe_schedule s, h1;
        par_pipe_timeline t, u;
        par_pipe_memory memory[8];
        for (int k = 0; k < p; k++)
            stages[k] = stage_of(1 + (double)par_uniform(1, (uint64_t)i, (uint64_t)k),
                                 1 + (double)par_uniform(2, (uint64_t)i, (uint64_t)k),
                                 .5 + (double)par_uniform(3, (uint64_t)i, (uint64_t)k));
        par_pipe_desc d = desc_of("auto", p, m, 0, stages);
        d.stage_count = p, d.latency = .1,
        d.max_activation_bytes = (size_t)p * 110 + (size_t)(p - 1) * 10; // ZB-H1's, at most
        CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t) &&
                     !par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, memory));
        for (int r = 0; r < p; r++) CHECK(w, memory[r].activation_bytes <= d.max_activation_bytes);
        d.schedule = "zb_h1";
        CHECK(w, !par_pipe_schedule_open(&d, &h1) && !par_pipe_simulate(&h1, PAR_PIPE_NONBLOCKING, &u));
        CHECK(w, t.makespan <= u.makespan * (1 + 1e-9) && s.lower_bound <= t.makespan * (1 + 1e-9) &&
                     s.lower_bound > 0);
        par_pipe_timeline_close(&t), par_pipe_timeline_close(&u), par_pipe_schedule_close(&s),
            par_pipe_schedule_close(&h1);
    }
    par_pipe_stage stage = stage_of(1, 1, 1);
    par_pipe_schedule s;
    par_pipe_desc d = desc_of("auto", 4, 8, 0, &stage);
    par_pipe_timeline t;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    CHECK(w, close_to(t.makespan, 27, 1e-12) && close_to(s.lower_bound, 27, 1e-5));
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    d.max_activation_bytes = 109;
    CHECK(w, par_pipe_schedule_open(&d, &s) == PAR_ERR_MEMORY &&
                 has_text(s.why, "one microbatch needs 110 bytes"));
    par_pipe_schedule_close(&s);
    d.schedule = "v_half", d.max_activation_bytes = 220;
    CHECK(w, par_pipe_schedule_open(&d, &s) == PAR_ERR_MEMORY && has_text(s.why, "v_half needs"));
    par_pipe_schedule_close(&s);
}

static void cuts(par_comm *w) { // against all partitions
    for (int i = 0; i < 200; i++) {
        const int n = 1 + i % 7, k = 1 + i % 5;
        double cost[8], best = 1e9, max = 0;
        int first[8];
        for (int j = 0; j < n; j++) cost[j] = 1 + floor(9 * (double)par_uniform(5, (uint64_t)i, (uint64_t)j));
        for (int mask = 0; mask < 1 << (n - 1); mask++) {
            if (__builtin_popcount((unsigned)mask) > k - 1) continue;
            double sum = 0, top = 0;
            for (int j = 0; j < n; j++) {
                sum += cost[j], top = fmax(top, sum);
                if (mask >> j & 1) sum = 0;
            }
            best = fmin(best, top);
        }
        par_pipe_partition(cost, n, k, first);
        CHECK(w, first[0] == 0 && first[k] == n);
        for (int j = 0; j < k; j++) {
            double sum = 0;
            CHECK(w, first[j] <= first[j + 1] && (n < k || first[j] < first[j + 1]));
            for (int l = first[j]; l < first[j + 1]; l++) sum += cost[l];
            max = fmax(max, sum);
        }
        CHECK(w, close_to(max, best, 1e-9));
    }
}

// ---- tables -----------------------------------------------------------------------------------------------

static int same_actions(const par_pipe_schedule *a, const par_pipe_schedule *b) {
    if (a->ranks != b->ranks || a->first[a->ranks] != b->first[b->ranks]) return 0;
    for (int r = 0; r <= a->ranks; r++)
        if (a->first[r] != b->first[r]) return 0;
    for (size_t i = 0; i < a->first[a->ranks]; i++) {
        const par_pipe_action x = a->actions[i], y = b->actions[i];
        const int numbered = x.kind != PAR_PIPE_UNSHARD && x.kind != PAR_PIPE_RESHARD;
        if (x.kind != y.kind || x.pair != y.pair || x.stage != y.stage ||
            (numbered && x.microbatch != y.microbatch))
            return 0;
    }
    return 1;
}
static void tables(par_comm *w) { // what is saved is loaded again
    char path[600];
    snprintf(path, sizeof path, "%s/par_pipe_%d.csv", test_dir, (int)getpid());
    for (int k = 0; k < PAR_PIPE_SCHEDULE_COUNT; k++)
        for (int p = 2; p <= 4; p += 2)
            for (int full = 0; full < 3; full++) {
                par_pipe_stage stage = stage_of(1, 1, 1);
                par_pipe_desc d = desc_of(par_pipe_schedules[k].name, p, 2 * p, 0, &stage);
                par_pipe_schedule s, t;
                if (full == 2)
                    d.recompute = PAR_PIPE_RECOMPUTE_FUSED, d.max_gathered_stages = 2, d.reduce = 1,
                    d.tied = 1;
                CHECK_OK(w, par_pipe_schedule_open(&d, &s));
                CHECK_OK(w, par_pipe_save(&s, path, !full));
                const par_result r = par_pipe_load(path, &d, &t);
                if (r) fprintf(stderr, "%s\n", t.why);
                CHECK(w, r == PAR_OK);
                // 2BW's updates are no computation
                if (full || strcmp(d.schedule, "pipedream_2bw")) CHECK(w, r || same_actions(&s, &t));
                par_pipe_schedule_close(&s), par_pipe_schedule_close(&t);
            }
    par_pipe_schedule s;
    CHECK(w, par_pipe_save(&s, "/nowhere/x.csv", 0) == PAR_ERR_FILE);
    CHECK(w, par_pipe_load("/nowhere/x.csv", NULL, &s) == PAR_ERR_FILE && has_text(s.why, "/nowhere/x.csv"));
    par_pipe_schedule_close(&s);
    unlink(path);
}
static void torch_table(par_comm *w) { // two ranks, two chunks, as torch writes it: CRLF, ragged, idle cells
    static const char text[] = "0F0,0F1,2F0,2F1,,2B0,2B1,0B0,0B1\r\n,1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\r\n";
    static const char half[] = "0F0,0F1,,0I0,(0W0;0I1)OVERLAP_F_B,0W1\n,1F0,1I0,1F1,1I1,1W0,1W1";
    par_pipe_schedule s;
    par_pipe_timeline t;
    CHECK_OK(w, par_pipe_parse(text, sizeof text - 1, NULL, &s));
    CHECK(w, s.ranks == 2 && s.stages == 4 && s.microbatches == 2 && s.desc.chunks == 2);
    CHECK(w, par_pipe_rank_of(&s, 2, 0) == 0 && par_pipe_rank_of(&s, 3, 1) == 1);
    CHECK(w, par_pipe_rank_of(&s, -1, 0) == -1 && par_pipe_rank_of(&s, 4, 0) == -1);
    CHECK(w, par_pipe_rank_of(&s, 0, -1) == -1 && par_pipe_rank_of(&s, 0, 2) == -1);
    CHECK(w, isnan(par_pipe_theory_peak(&s, -1)) && isnan(par_pipe_theory_peak(&s, 2)));
    CHECK(w, !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t) && t.makespan > 12);
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    CHECK_OK(w, par_pipe_parse(half, sizeof half - 1, NULL, &s));
    par_pipe_schedule_close(&s);
}
// Any forward and backward beside each other may overlap, unless ranks then wait for each other: tables of
// all schedules, with pairs at random.
static void overlapped(par_comm *w) {
    int read = 0, pairs = 0, waits = 0;
    for (uint64_t trial = 0; trial < 400; trial++) {
        const int p = 1 + (int)(trial % 4), m = 2 + (int)(trial / 4 % 5);
        const char *const name = par_pipe_schedules[(int)(trial % (uint64_t)PAR_PIPE_SCHEDULE_COUNT)].name;
        par_pipe_desc d = desc_of(name, p, m, 0, NULL);
        par_pipe_schedule s, again;
        char text[16384];
        size_t at = 0;
        if (par_pipe_schedule_open(&d, &s) || s.directions == 2) {
            par_pipe_schedule_close(&s);
            continue;
        }
        for (int r = 0; r < p; r++) {
            const par_pipe_action *held = NULL; // not written yet
            int f_before = 0;
            for (size_t i = s.first[r]; i <= s.first[r + 1]; i++) {
                const par_pipe_action *a = i < s.first[r + 1] ? &s.actions[i] : NULL;
                char one[48], two[48];
                if (a && a->kind > PAR_PIPE_W) continue;
                f_before = held && a && (held->kind == PAR_PIPE_F) != (a->kind == PAR_PIPE_F) &&
                           held->kind != PAR_PIPE_W && a->kind != PAR_PIPE_W &&
                           par_uniform(5, trial, i) < .4f;
                if (f_before)
                    at += (size_t)snprintf(text + at, sizeof text - at, "(%s;%s)OVERLAP_F_B,",
                                           par__pipe_text(*held, one), par__pipe_text(*a, two)),
                        pairs++;
                else if (held)
                    at += (size_t)snprintf(text + at, sizeof text - at, "%s,", par__pipe_text(*held, one));
                held = f_before ? NULL : a;
            }
            text[at - 1] = '\n';
        }
        const par_result r = par_pipe_parse(text, at, NULL, &again);
        const int waiting = r && strstr(again.why, "deadlock");
        if (r && !waiting) fprintf(stderr, "%s: %s\n%.*s", name, again.why, (int)at, text);
        CHECK(w, !r || waiting);
        CHECK(w, r || par_pipe_verify(&again, PAR_PIPE_RENDEZVOUS, NULL) == PAR_OK);
        read += !r, waits += waiting;
        par_pipe_schedule_close(&again), par_pipe_schedule_close(&s);
    }
    CHECK(w, read > 200 && pairs > 1000 && waits < read);
}
// What torch's ScheduleInterleavedZeroBubble gives two ranks of two stages for four microbatches.
static void torch_interleaved_zb(par_comm *w) {
    static const char text[] =
        "0F0,0F1,2F0,2F1,2I0,2W0,0F2,2I1,2W1,0F3,0I0,0W0,2F2,0I1,0W1,2F3,2I2,2W2,2I3,2W3,0I2,0W2,0I3,0W3\n"
        "1F0,1F1,3F0,3I0,3F1,3I1,3W0,1F2,1I0,3W1,1F3,1I1,1W0,3F2,3I2,1W1,3F3,3I3,3W2,1I2,3W3,1I3,1W2,1W3\n";
    par_pipe_desc d = desc_of("interleaved_zb", 2, 4, 2, NULL);
    par_pipe_schedule torch, s;
    CHECK_OK(w, par_pipe_parse(text, sizeof text - 1, NULL, &torch));
    CHECK_OK(w, par_pipe_schedule_open(&d, &s));
    CHECK(w, same_actions(&s, &torch));
    par_pipe_schedule_close(&s), par_pipe_schedule_close(&torch);
}
static void malformed(par_comm *w) {
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "the table is empty"},
        {"0F0,x\n", "row 1, cell 2: expected a stage's number at \"x\""},
        {"0F0,0B0\n1F0,1Z0", "row 2, cell 2: unknown action at \"1Z0\""},
        {"0F0,0SENDF0", "row 1, cell 2: unknown action; did you mean SEND_F? at \"0SENDF0\""},
        {"0F0,0REDUCE_GRADS0", "did you mean REDUCE_GRAD?"},
        {"0F", "row 1, cell 1: expected a microbatch's number"},
        {"0F0,0", "expected an action"},
        {"0F0 0B0", "expected a comma"},
        {"(0F0;0B0", "expected ; or )"},
        {"(0F0;0B0)NONSENSE", "expected OVERLAP_F_B"},
        {"0F0", "rank 0 lacks 0I0"},
        {"0F0,0B0,0B0", "0B0 occurs twice"},
        {"0B0,0F0", "0B0 waits for 0F0"},
        {"0F0,0I0,0W1", "0W1 waits for 0I1"},
        {"0F0,0B0\n0F0,0B0", "stage 0 is on rank 0 and on rank 1"},
        {"1F0,1B0", "stage 0 has no forwards"},
        {"0F0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0", "0B0 (action 1) comes before its RECV_B"},
        {"0F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", "comes before its RECV_B"},
        {"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,"
         "1SEND_B1",
         "is number 0 of what it receives"},
        {"99999F0", "65536 stages"},
        {"0F99999999", "2^24 microbatches"},
        {"5000F3000,0F0", "but only 2 actions"},
        {"0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1", "deadlock, ranks wait for each other: rank 0 at 0B0 waits for "
                                             "1B0 of rank 1; rank 1 at 1F1 waits for 0F1 of rank 0"},
        {"1F0,0F0,1B0,0B0", "1F0 waits for 0F0"},
        {"(0F0;0B0)OVERLAP_F_B\n1F0,1B0", "deadlock: rank 0 at 0B0 waits for 0F0 of rank 0"},
        {"0F0,1B0\n1F0,0B0", "rank 0: 1B0 belongs to rank 1"},
        {"0F0,0B0,0SEND_F0", "the other stage is not on another rank"},
        {"0F0,0R1,0B0,0F1,0B1", "0R1 waits for 0F1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        par_pipe_schedule s;
        const par_result r = par_pipe_parse(bad[i].text, strlen(bad[i].text), NULL, &s);
        if (r != PAR_ERR_FILE && r != PAR_ERR_ARGUMENT)
            fprintf(stderr, "%s: %s\n", bad[i].text, par_result_name(r));
        CHECK(w, r == PAR_ERR_FILE || r == PAR_ERR_ARGUMENT);
        CHECK(w, has_text(s.why, bad[i].why));
        par_pipe_schedule_close(&s);
    }
}
static void impossible(par_comm *w) {
    static const struct {
        const char *name;
        int p, m, v, batches;
        const char *why;
    } bad[] = {{"nonsense", 2, 2, 0, 0, "no schedule is called \"nonsense\""},
               {"ZBV", 2, 2, 0, 0, "did you mean zb_v?"},
               {"1f1d", 2, 2, 0, 0, "did you mean 1f1b?"},
               {"interleaved_1f", 2, 2, 0, 0, "did you mean interleaved_1f1b?"},
               {"1f1b", -1, 2, 0, 0, "must be 1 or more"},
               {"1f1b", 2, -2, 0, 0, "must be 1 or more"},
               {"1f1b", 2, 2, 3, 0, "1f1b has 1 chunk on a rank, not 3"},
               {"zb_v", 2, 2, 1, 0, "zb_v has 2 chunks on a rank, not 1"},
               {"dualpipe", 3, 2, 0, 0, "even number of ranks, not 3"},
               {"gpipe", 2, 2, 0, 3, "batches must be 1"},
               {"1f1b", 70000, 2, 0, 0, "too many"}};
    par_pipe_schedule s;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        par_pipe_desc d = desc_of(bad[i].name, bad[i].p, bad[i].m, bad[i].v, NULL);
        d.batches = bad[i].batches;
        CHECK(w, par_pipe_schedule_open(&d, &s) == PAR_ERR_ARGUMENT && has_text(s.why, bad[i].why));
        par_pipe_schedule_close(&s);
    }
    par_pipe_stage stages[3] = {stage_of(1, 1, 1), stage_of(1, 1, 1), stage_of(1, NAN, 1)};
    par_pipe_desc d = desc_of("1f1b", 2, 2, 0, stages);
    d.stage_count = 3;
    CHECK(w, par_pipe_schedule_open(&d, &s) == PAR_ERR_ARGUMENT &&
                 has_text(s.why, "stage 2: times must be finite"));
    par_pipe_schedule_close(&s);
    stages[2].b = 1;
    CHECK(w, par_pipe_schedule_open(&d, &s) == PAR_ERR_ARGUMENT && has_text(s.why, "stage_count is 3"));
    par_pipe_schedule_close(&s);
    for (d.stage_count = -1; d.stage_count < 1; d.stage_count++) {
        CHECK(w,
              par_pipe_schedule_open(&d, &s) == PAR_ERR_ARGUMENT && has_text(s.why, "stages is given, but"));
        par_pipe_schedule_close(&s);
    }
    const int rows[2] = {4, 5};
    d.stage_count = 1, d.rows = 4, d.row_counts = rows;
    CHECK(w, par_pipe_schedule_open(&d, &s) == PAR_ERR_ARGUMENT && has_text(s.why, "row_counts[1] is 5"));
    par_pipe_schedule_close(&s);
}

static void
stage_counts(par_comm *w) { // known before the table is made, so that each stage's costs can be given
    for (int i = 0; i < PAR_PIPE_SCHEDULE_COUNT; i++)
        for (int p = 2; p <= 6; p += 2)
            for (int v = 0; v <= (any_chunks(par_pipe_schedules[i].name) ? 3 : 0); v++) {
                par_pipe_desc d = desc_of(par_pipe_schedules[i].name, p, 2 * p, v, NULL);
                par_pipe_schedule s;
                d = par_pipe_defaults(&d);
                const int count = d.stage_count;
                par_pipe_stage *stages = (par_pipe_stage *)calloc((size_t)count, sizeof *stages);
                d.stages = stages;
                CHECK(w, par_pipe_schedule_open(&d, &s) == PAR_OK && s.stages == count);
                CHECK(w, count == p * (strcmp(d.schedule, "dualpipe") ? d.chunks : 1));
                par_pipe_schedule_close(&s), free(stages);
            }
    par_pipe_stage stage = stage_of(1, 1, 1);
    par_pipe_desc d = desc_of("zb_v", 4, 4, 0, &stage), none = desc_of("nonsense", 4, 4, 0, NULL);
    CHECK(w, par_pipe_defaults(&d).stage_count == 1 && par_pipe_defaults(NULL).stage_count == 1);
    CHECK(w, par_pipe_defaults(&none).stage_count == 0);
    d.stages = NULL, d.ranks = 1 << 30;
    CHECK(w, par_pipe_defaults(&d).stage_count == 0);
}

// Whichever allocation fails: MEMORY with a text, and no memory leaks (tests/sanitize.sh sees it).
static par_result open_all(const par_pipe_desc *d, par_comm *w, char *why, size_t bytes) {
    par_pipe_schedule s, read;
    par_pipe_timeline t;
    par_pipe_memory memory[4];
    par_pipe_exec e;
    par_pipe *pipe = NULL;
    memset(&e, 0, sizeof e), memset(&t, 0, sizeof t), memset(&read, 0, sizeof read);
    e.comm = w, e.fn = idle_work;
    par_result r = par_pipe_schedule_open(d, &s);
    if (!r) r = par_pipe_verify(&s, PAR_PIPE_RENDEZVOUS, memory);
    if (!r) r = par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t);
    snprintf(why, bytes, "%s", s.why);
    if (!r) r = par_pipe_parse("0F0,0F1,0B0,0B1", 15, d, &read), snprintf(why, bytes, "%s", read.why);
    if (!r && d->ranks == 1) {
        r = par_pipe_open(&s, &e, &pipe);
        if (!r) r = par_pipe_step(pipe, NULL);
        snprintf(why, bytes, "%s", r ? par_last_error(w) : "");
        allowed = -1;
        CHECK_OK(w, par_pipe_close(pipe));
    }
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&read), par_pipe_schedule_close(&s);
    return r;
}
static void no_memory(par_comm *w) {
    static const char *const names[] = {"1f1b", "interleaved_1f1b", "v_min", "auto",
                                        "zb_h1"}; // the last: a grid
    static const int dead[] = {1};
    par_pipe_stage stage = stage_of(1, 1, 1);
    char why[1024];
    for (int k = 0; k < 5; k++) {
        par_pipe_desc d = desc_of(names[k], k ? 2 : 1, 2, 0, &stage);
        const int rows[2] = {1, 1};
        par_result r = PAR_ERR_MEMORY;
        long n = 0;
        d.row_counts = rows, d.rows = 1, d.reduce = 1;
        if (k == 4) d.replicas = 2, d.dead = dead, d.dead_count = 1;
        for (; r && n < 10000; n++) {
            allowed = n;
            par_fail(w, PAR_OK, "%s", "");
            r = open_all(&d, w, why, sizeof why);
            allowed = -1;
            if (r) CHECK(w, r == PAR_ERR_MEMORY && has_text(why, "memory"));
        }
        CHECK(w, r == PAR_OK && n > 20);
    }
}
static void not_open(par_comm *w) { // a closed schedule is an error that says so
    par_pipe_schedule s, forwards;
    par_pipe_timeline t;
    memset(&s, 0, sizeof s);
    CHECK(w,
          par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, NULL) == PAR_ERR_ARGUMENT && has_text(s.why, "not open"));
    s.why[0] = 0;
    CHECK(w,
          par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t) == PAR_ERR_ARGUMENT && has_text(s.why, "not open"));
    CHECK(w,
          par_pipe_forward_only(&s, 0, &forwards) == PAR_ERR_ARGUMENT && has_text(forwards.why, "not open"));
    par_pipe_exec e;
    par_pipe *pipe;
    memset(&e, 0, sizeof e);
    s.why[0] = 0;
    CHECK(w, par_pipe_open(&s, &e, &pipe) == PAR_ERR_ARGUMENT && has_text(s.why, "exec.comm is NULL"));
}

// Hooks gather a stage's parameters before use, and never more stages than asked for; they reduce gradients
// once these are complete, and sum tied ones before that.
static void hooks(par_comm *w) {
    for (int k = 0; k < PAR_PIPE_SCHEDULE_COUNT; k++)
        for (int reduce = 0; reduce <= 2; reduce++)
            for (int unshard = 0; unshard <= 2; unshard++) {
                const par_pipe_stage stage = stage_of(1, 1, 1);
                par_pipe_desc d = desc_of(par_pipe_schedules[k].name, 4, 8, 0, &stage);
                par_pipe_schedule s;
                d.reduce = reduce, d.max_gathered_stages = unshard, d.tied = 1;
                CHECK_OK(w, par_pipe_schedule_open(&d, &s));
                for (int r = 0; r < 4; r++) {
                    int have[16] = {0}, left[16] = {0}, reduced[16] = {0}, tied[16] = {0}, count = 0;
                    for (size_t i = s.first[r]; i < s.first[r + 1]; i++)
                        left[s.actions[i].stage] +=
                            s.actions[i].kind == PAR_PIPE_BW || s.actions[i].kind == PAR_PIPE_W;
                    int all[16];
                    memcpy(all, left, sizeof all);
                    for (size_t i = s.first[r]; i < s.first[r + 1]; i++) {
                        const par_pipe_action a = s.actions[i];
                        const int uses =
                            a.kind == PAR_PIPE_F || a.kind == PAR_PIPE_B || a.kind == PAR_PIPE_BW;
                        left[a.stage] -= a.kind == PAR_PIPE_BW || a.kind == PAR_PIPE_W;
                        if (uses && unshard) CHECK(w, have[a.stage] == 1);
                        if (a.kind == PAR_PIPE_UNSHARD) CHECK(w, have[a.stage]++ == 0 && ++count <= unshard);
                        if (a.kind == PAR_PIPE_RESHARD) CHECK(w, have[a.stage]-- == 1 && count-- > 0);
                        if (a.kind == PAR_PIPE_TIE)
                            CHECK(w, left[a.stage] == 0 && (a.stage == 0 || a.stage == s.stages - 1) &&
                                         !tied[a.stage]++);
                        const int end = a.stage == 0 || a.stage == s.stages - 1;
                        if (a.kind == PAR_PIPE_REDUCE) {
                            reduced[a.stage]++;
                            CHECK(w, reduce == 2 || (left[a.stage] == 0 && (!end || tied[a.stage])));
                        }
                    }
                    CHECK(w, count == 0);
                    for (int i = 0; i < s.stages; i++)
                        CHECK(w, reduced[i] == (reduce == 2 ? all[i] : reduce && all[i] ? 1 : 0));
                    CHECK(w, tied[0] == (all[0] > 0) && tied[s.stages - 1] == (all[s.stages - 1] > 0));
                }
                par_pipe_schedule_close(&s);
            }
}

// ---- deadlocks --------------------------------------------------------------------------------------------

typedef struct trial {
    par_pipe_schedule s;
    int deadlock, timeouts, others;
} trial;
static int run_trial(par_comm *comm, void *user) {
    trial *t = (trial *)user;
    par_pipe_exec e;
    par_pipe *pipe;
    memset(&e, 0, sizeof e);
    e.comm = comm, e.fn = idle_work, e.skip_verification = 1;
    par_result r = par_pipe_open(&t->s, &e, &pipe);
    par_set_timeout(comm, t->deadlock ? 0.15 : 200);
    if (!r) r = par_pipe_step(pipe, NULL);
    if (r) __atomic_add_fetch(r == PAR_ERR_TIMEOUT ? &t->timeouts : &t->others, 1, __ATOMIC_SEQ_CST);
    par_pipe_close(pipe);
    return 0;
}
// A right table in which neighboring actions change places at random, where each rank's list stays right by
// itself and channels keep their order.
static void disorder(par_pipe_schedule *s, uint64_t seed) {
    const size_t n = s->first[s->ranks];
    for (uint64_t k = 0; k < 40 * n; k++) {
        const size_t i = (size_t)(par_uniform(seed, 1, k) * (float)(n - 1));
        const par_pipe_action a = s->actions[i], b = s->actions[i + 1];
        int inside = 1;
        for (int r = 1; r < s->ranks; r++) inside = inside && s->first[r] != i + 1;
        if (!inside) continue;
        s->actions[i] = b, s->actions[i + 1] = a;
        if (!par_pipe_verify(s, PAR_PIPE_NONBLOCKING, NULL)) continue;
        if (strncmp(s->why, "deadlock", 8)) // it has another mistake
            s->actions[i] = a, s->actions[i + 1] = b;
        else if (par_uniform(seed, 2, k) < 0.98f) // most tables shall have no deadlock
            s->actions[i] = a, s->actions[i + 1] = b;
    }
}
typedef struct trials {
    par_comm *w;
    int next, count, deadlocks, wrong;
} trials;
static void *run_trials(void *user) {
    trials *all = (trials *)user;
    static const char *const names[] = {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v"};
    for (int i; (i = __atomic_fetch_add(&all->next, 1, __ATOMIC_SEQ_CST)) < all->count;) {
        trial t;
        memset(&t, 0, sizeof t);
        const par_pipe_stage stage = stage_of(1, 1, 1);
        const par_pipe_desc d = desc_of(names[i % 5], 2 + i / 5 % 2, 2 + i / 10 % 3, 0, &stage);
        if (par_pipe_schedule_open(&d, &t.s)) {
            __atomic_add_fetch(&all->wrong, 1, __ATOMIC_SEQ_CST);
            continue;
        }
        disorder(&t.s, (uint64_t)i);
        t.deadlock = par_pipe_verify(&t.s, PAR_PIPE_NONBLOCKING, NULL) != PAR_OK;
        const par_desc ranks = test_ranks(d.ranks);
        par_run_threads(&ranks, run_trial, &t);
        const int wrong = t.others || (t.timeouts > 0) != t.deadlock;
        if (wrong)
            fprintf(stderr, "table %d: %s; in the run %d timeouts, %d other errors\n", i,
                    t.deadlock ? t.s.why : "no deadlock", t.timeouts, t.others);
        __atomic_add_fetch(&all->wrong, wrong, __ATOMIC_SEQ_CST),
            __atomic_add_fetch(&all->deadlocks, t.deadlock, __ATOMIC_SEQ_CST);
        par_pipe_schedule_close(&t.s);
    }
    return NULL;
}
static void deadlocks(par_comm *w) { // the verifier and the executor agree
    trials all = {w, 0, getenv("SOAK") ? 600 : TEST_FEWER ? 60 : 100, 0, 0};
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) CHECK(w, pthread_create(&threads[i], NULL, run_trials, &all) == 0);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    fprintf(stderr, "%d tables, %d deadlocks\n", all.count, all.deadlocks);
    CHECK(w, all.wrong == 0);
    CHECK(w, all.deadlocks > all.count / 20 && all.deadlocks < all.count);
}

// ---- training ---------------------------------------------------------------------------------------------

enum { WIDE = 5, ROWS = 3, STAGES = 64, MICROBATCHES = 64 };
typedef struct net { // stage s: y = tanh(x W); loss: (y - 1/4)^2
    float weight[STAGES][WIDE * WIDE], gradient[STAGES][WIDE * WIDE];
    int last[STAGES], in_order, calls[PAR_PIPE_KIND_COUNT], evaluated, wrong;
} net;

static void net_open(net *n) {
    memset(n, 0, sizeof *n);
    n->in_order = 1;
    for (int s = 0; s < STAGES; s++) {
        n->last[s] = -1;
        for (int i = 0; i < WIDE * WIDE; i++)
            n->weight[s][i] = par_uniform(7, (uint64_t)s, (uint64_t)i) - .5f;
    }
}
static float net_input(int microbatch, int i) {
    return par_uniform(8, (uint64_t)microbatch, (uint64_t)i) - .5f;
}
static void net_forward(const float *weight, const float *x, float *y, int rows) {
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < WIDE; k++) {
            float sum = 0;
            for (int j = 0; j < WIDE; j++) sum += x[i * WIDE + j] * weight[j * WIDE + k];
            y[i * WIDE + k] = tanhf(sum);
        }
}
static void net_input_half(const float *weight, const float *y, const float *dy, float *dz, float *dx,
                           int rows) {
    for (int i = 0; i < rows * WIDE; i++) dz[i] = (dy ? dy[i] : 2 * (y[i] - .25f)) * (1 - y[i] * y[i]);
    for (int i = 0; dx && i < rows; i++)
        for (int j = 0; j < WIDE; j++) {
            float sum = 0;
            for (int k = 0; k < WIDE; k++) sum += dz[i * WIDE + k] * weight[j * WIDE + k];
            dx[i * WIDE + j] = sum;
        }
}
static void net_weight_half(float *gradient, const float *x, const float *dz, int rows) {
    for (int j = 0; j < WIDE; j++)
        for (int k = 0; k < WIDE; k++) {
            float sum = 0;
            for (int i = 0; i < rows; i++) sum += x[i * WIDE + j] * dz[i * WIDE + k];
            gradient[j * WIDE + k] += sum;
        }
}
static double net_loss(const float *y, int rows) {
    double sum = 0;
    for (int i = 0; i < rows * WIDE; i++) sum += (double)((y[i] - .25f) * (y[i] - .25f));
    return sum;
}
static double net_serial(net *n, int stages, int microbatches, const int *row_counts) {
    double loss = 0;
    for (int m = 0; m < microbatches; m++) {
        const int rows = row_counts ? row_counts[m] : ROWS;
        float x[STAGES + 1][ROWS * WIDE], dy[2][ROWS * WIDE], dz[ROWS * WIDE];
        for (int i = 0; i < rows * WIDE; i++) x[0][i] = net_input(m, i);
        for (int s = 0; s < stages; s++) net_forward(n->weight[s], x[s], x[s + 1], rows);
        loss += net_loss(x[stages], rows);
        for (int s = stages - 1; s >= 0; s--) {
            net_input_half(n->weight[s], x[s + 1], s + 1 < stages ? dy[(s + 1) & 1] : NULL, dz, dy[s & 1],
                           rows);
            net_weight_half(n->gradient[s], x[s], dz, rows);
        }
    }
    return loss;
}
// b: y, w: x, g: dz, c: a mark.
static par_result net_work(void *user, const par_pipe_work *k) {
    net *n = (net *)user;
    float *weight = n->weight[k->stage], *gradient = n->gradient[k->stage], dz[ROWS * WIDE];
    const int rows = k->rows;
    n->calls[k->kind]++, n->evaluated += k->forward_only;
    if (k->kind == PAR_PIPE_F || k->kind == PAR_PIPE_R) {
        float *x = (float *)k->w, *y = (float *)k->b;
        if (!x || !y || k->is_first != (k->x == NULL)) return PAR_ERR_ARGUMENT;
        for (int i = 0; i < rows * WIDE; i++)
            x[i] = k->is_first ? net_input(k->microbatch, i) : ((const float *)k->x)[i];
        net_forward(weight, x, y, rows);
        if (k->kind == PAR_PIPE_R && *(int *)k->c != 1000 * k->stage + k->microbatch) n->wrong++;
        if (k->kind == PAR_PIPE_R) return PAR_OK;
        if (k->c) *(int *)k->c = 1000 * k->stage + k->microbatch;
        if (k->is_last) return *k->loss = net_loss(y, rows), PAR_OK;
        return memcpy(k->y, y, sizeof(float) * (size_t)rows * WIDE), PAR_OK;
    }
    if (k->kind == PAR_PIPE_BW || k->kind == PAR_PIPE_B)
        net_input_half(weight, (const float *)k->b, (const float *)k->dy,
                       k->kind == PAR_PIPE_B ? (float *)k->g : dz, (float *)k->dx, rows);
    if (k->kind != PAR_PIPE_BW && k->kind != PAR_PIPE_W) return PAR_OK;
    net_weight_half(gradient, (const float *)k->w, k->kind == PAR_PIPE_W ? (const float *)k->g : dz, rows);
    n->in_order = n->in_order && k->microbatch > n->last[k->stage], n->last[k->stage] = k->microbatch;
    return PAR_OK;
}
static void net_stages(par_pipe_stage *stages, int count) {
    for (int i = 0; i < count; i++) { // sizes that differ, and are no multiples of 64
        memset(&stages[i], 0, sizeof stages[i]);
        stages[i].f = 1 + .1 * i, stages[i].b = 1, stages[i].w = 1;
        stages[i].input_bytes = sizeof(float) * ROWS * WIDE, stages[i].b_bytes = 60 + (size_t)(i % 3) * 40;
        stages[i].w_bytes = 60, stages[i].g_bytes = 60 + (size_t)(i % 2) * 4, stages[i].c_bytes = 12;
    }
}
static void train_one(par_comm *w, par_pipe_desc d, int bits) {
    static const int row_counts[MICROBATCHES] = {3, 1, 2, 3, 0, 2, 1, 3, 3, 2, 1, 3, 2, 2, 1, 3, 3, 1, 2, 3};
    const int p = par_size(w), me = par_rank(w);
    net *n = (net *)malloc(sizeof *n), *serial = (net *)malloc(sizeof *serial);
    par_pipe_stage stages[STAGES];
    par_pipe_schedule s;
    par_pipe_memory *memory = (par_pipe_memory *)calloc((size_t)p, sizeof *memory);
    par_pipe_exec e;
    par_pipe *pipe;
    par_pipe_report report, evaluation;
    const par_pipe_desc full = par_pipe_defaults(&d);
    net_stages(stages, STAGES);
    d.stages = stages, d.stage_count = !strcmp(d.schedule, "dualpipe") ? p : p * full.chunks;
    d.rows = ROWS, d.row_counts = bits & 1 ? row_counts : NULL;
    memset(&e, 0, sizeof e);
    e.comm = w, e.fn = net_work, e.user = n, e.broadcast_loss = 1;
    if (par_pipe_schedule_open(&d, &s)) fprintf(stderr, "%s\n", s.why);
    CHECK(w, s.actions != NULL);
    CHECK_OK(w, par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, memory));
    CHECK_OK(w, par_pipe_open(&s, &e, &pipe));
    CHECK(w, par_pipe_allocated(pipe) == memory[me].pool_bytes);
    net_open(n), net_open(serial);
    const double loss = net_serial(serial, s.stages, s.microbatches, d.row_counts);
    CHECK_OK(w, par_pipe_evaluate(pipe, &evaluation));
    CHECK(w, close_to(evaluation.loss, loss, 1e-6) && evaluation.live_bytes <= memory[me].live_bytes);
    CHECK(w, n->evaluated == n->calls[PAR_PIPE_F] && n->calls[PAR_PIPE_BW] + n->calls[PAR_PIPE_B] == 0);
    for (int step = 0; step < 2; step++) {
        net_open(n);
        CHECK_OK(w, par_pipe_step(pipe, &report));
        CHECK(w, close_to(report.loss, loss, 1e-6));
        CHECK(w, report.activation_bytes == memory[me].activation_bytes &&
                     report.message_bytes == memory[me].message_bytes);
        CHECK(w, report.live_bytes == memory[me].live_bytes && !n->wrong);
    }
    int in_order = n->in_order && s.directions == 1;
    CHECK_OK(w, par_all_reduce(n->gradient, n->gradient, STAGES * WIDE * WIDE, PAR_F32, PAR_SUM, w));
    CHECK_OK(w, par_all_reduce(&in_order, &in_order, 1, PAR_I32, PAR_MIN, w));
    int equal = 1, near = 1;
    for (int i = 0; i < s.stages; i++)
        for (int j = 0; j < WIDE * WIDE; j++) {
            equal = equal && n->gradient[i][j] == serial->gradient[i][j];
            near = near && close_to((double)n->gradient[i][j], (double)serial->gradient[i][j], 1e-5);
        }
    if (!near || (in_order && !equal))
        fprintf(stderr, "%s, %d microbatches: gradients differ\n", d.schedule, d.microbatches);
    CHECK(w, near && (!in_order || equal));
    CHECK_OK(w, par_pipe_close(pipe));
    par_pipe_schedule_close(&s);
    free(n), free(serial), free(memory);
}
static void training(par_comm *w) {
    const int p = par_size(w), counts[3] = {1, p > 2 ? p - 1 : 3, 2 * p + 1};
    for (int k = 0; k < PAR_PIPE_SCHEDULE_COUNT; k++)
        for (int i = 0; i < 3; i++) {
            const char *name = par_pipe_schedules[k].name;
            par_pipe_desc d = desc_of(name, p, counts[i], 0, NULL);
            if (!strcmp(name, "dualpipe") && p % 2) continue;
            if (any_chunks(name) && i == 1) d.chunks = 3;
            if ((k + i) % 3 == 1) d.recompute = PAR_PIPE_RECOMPUTE_FUSED;
            if ((k + i) % 3 == 2) d.recompute = PAR_PIPE_RECOMPUTE_EARLY, d.recompute_count = i;
            train_one(w, d, (k + i) & 1);
        }
}
static void no_allocation(par_comm *w) { // in a step
    par_pipe_desc d = desc_of("zb_h1", par_size(w), 8, 0, NULL);
    par_pipe_stage stages[STAGES];
    par_pipe_schedule s;
    par_pipe_exec e;
    par_pipe *pipe;
    net *n = (net *)malloc(sizeof *n);
    net_open(n), net_stages(stages, STAGES);
    d.stages = stages, d.stage_count = par_size(w), d.rows = ROWS;
    memset(&e, 0, sizeof e);
    e.comm = w, e.fn = net_work, e.user = n, e.broadcast_loss = 1;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_open(&s, &e, &pipe));
    for (int i = 0; i < 60; i++) { // until every operation of the comm has been used
        const long before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
        CHECK_OK(w, par_pipe_step(pipe, NULL));
        CHECK(w, i < 50 || __atomic_load_n(&allocations, __ATOMIC_RELAXED) == before);
    }
    CHECK_OK(w, par_pipe_close(pipe));
    par_pipe_schedule_close(&s);
    free(n);
}

// The call site of messages is that of par_pipe_step, whatever layers the program's functions call.
typedef struct nested {
    par_comm *comm;
    net *n;
} nested;
static par_result nested_work(void *user, const par_pipe_work *k) {
    const nested *x = (const nested *)user;
    par__enter_layer(x->comm, "elsewhere.c:1"), par__set_layer_name(x->comm, "another layer");
    return net_work(x->n, k);
}
static void call_sites(par_comm *w) {
    par_pipe_desc d = desc_of("1f1b", par_size(w), 8, 0, NULL);
    par_pipe_stage stages[STAGES];
    par_pipe_schedule s;
    par_pipe_exec e;
    par_pipe *pipe;
    char text[16384], site[96];
    nested x = {w, (net *)malloc(sizeof *x.n)};
    net_open(x.n), net_stages(stages, STAGES);
    d.stages = stages, d.stage_count = par_size(w), d.rows = ROWS;
    memset(&e, 0, sizeof e);
    e.comm = w, e.fn = nested_work, e.user = &x;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_open(&s, &e, &pipe));
    CHECK_OK(w, par_pipe_step(pipe, NULL));
    const int to = par_rank(w) ? par_rank(w) : 1;
    snprintf(site, sizeof site, "tests/test_pipe.c:%d in activations to stage %d\n", __LINE__ - 2, to);
    FILE *f = tmpfile();
    for (int i = 0; i < pipe->channel_count; i++) par_ledger_print(pipe->channels[i], f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    CHECK(w, strstr(text, site) && !strstr(text, "elsewhere") && !strstr(text, "another layer"));
    fclose(f);
    CHECK_OK(w, par_pipe_close(pipe));
    par_pipe_schedule_close(&s);
    free(x.n);
}

// PipeDream-2BW: W(t+1) = W(t) - lr gradient(W(t-1)), to the bit.
typedef struct stale {
    double weight[2], gradient, seen[64];
    int versions_wrong;
} stale;
static par_result stale_work(void *user, const par_pipe_work *k) {
    stale *n = (stale *)user;
    double *x = (double *)k->w;
    const double weight = n->weight[k->version];
    if (k->kind == PAR_PIPE_F) {
        *x = k->is_first ? 1 + .25 * k->microbatch : *(const double *)k->x;
        if (k->is_last)
            *(double *)k->b = *x * weight - 1, *k->loss = *(double *)k->b * *(double *)k->b / 2;
        else
            *(double *)k->y = *x * weight;
    } else if (k->kind == PAR_PIPE_BW) {
        const double dy = k->is_last ? *(double *)k->b : *(const double *)k->dy;
        n->gradient += dy * *x;
        if (!k->is_first) *(double *)k->dx = dy * weight;
    } else if (k->kind == PAR_PIPE_UPDATE) {
        n->weight[k->version] = n->weight[!k->version] - .001 * n->gradient, n->gradient = 0;
        n->seen[k->microbatch] = n->weight[k->version];
    }
    return PAR_OK;
}
static void staleness(par_comm *w) {
    const int p = par_size(w), batches = 6;
    for (int m = 1; m <= p + 2; m += p) { // fewer than p microbatches, too
        par_pipe_stage stage = stage_of(1, 1, 1);
        par_pipe_desc d = desc_of("pipedream_2bw", p, m, 0, &stage);
        par_pipe_schedule s;
        par_pipe_exec e;
        par_pipe *pipe;
        stale n;
        double weights[16][8], losses = 0; // after update t: row t + 1
        d.batches = batches, stage.b_bytes = stage.w_bytes = 8;
        memset(&n, 0, sizeof n), memset(&e, 0, sizeof e);
        n.weight[0] = n.weight[1] = 1 + .0625 * par_rank(w);
        e.comm = w, e.fn = stale_work, e.user = &n, e.broadcast_loss = 1;
        par_pipe_report report;
        CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_open(&s, &e, &pipe));
        CHECK_OK(w, par_pipe_step(pipe, &report));
        for (int k = 0; k < p; k++) weights[0][k] = 1 + .0625 * k;
        for (int t = 0; t < batches; t++) {
            double gradient[8] = {0};
            const double *now = weights[t ? t - 1 : 0];
            for (int i = t * m; i < (t + 1) * m; i++) {
                double x[9] = {1 + .25 * i};
                for (int k = 0; k < p; k++) x[k + 1] = x[k] * now[k];
                double dy = x[p] - 1;
                losses += dy * dy / 2;
                for (int k = p - 1; k >= 0; k--) gradient[k] += dy * x[k], dy *= now[k];
            }
            for (int k = 0; k < p; k++) weights[t + 1][k] = weights[t][k] - .001 * gradient[k];
            CHECK(w, n.seen[t] == weights[t + 1][par_rank(w)]);
        }
        CHECK(w, close_to(report.loss, losses, 1e-12));
        CHECK_OK(w, par_pipe_close(pipe));
        par_pipe_schedule_close(&s);
    }
}

// A measured timeline has the planned order, and is drawn on one scale with the plan. However late a rank
// gets a processor, an action starts after those that it depends on, to the nanosecond on one clock.
static par_result brief_work(void *user, const par_pipe_work *k) {
    (void)user;
    if (k->y) *(double *)k->y = 1;
    if (k->dx) *(double *)k->dx = 1;
    if (k->loss) *k->loss = 1;
    return PAR_OK;
}
static double end_of(const par_pipe_schedule *s, const par_pipe_timeline *t, int kind, int stage,
                     int microbatch) {
    double end = -1;
    for (size_t i = 0; i < s->first[s->ranks]; i++) {
        const par_pipe_action a = s->actions[i];
        const int as_asked = a.kind == kind || (kind == PAR_PIPE_B && a.kind == PAR_PIPE_BW);
        if (as_asked && a.stage == stage && a.microbatch == microbatch) end = t->end[i];
    }
    return end;
}
static void check_causes(par_comm *w, const par_pipe_schedule *s, const par_pipe_timeline *t) {
    int wrong = 0;
    for (int r = 0; r < s->ranks; r++)
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const par_pipe_action a = s->actions[i];
            const int to = a.kind == PAR_PIPE_F ? a.stage - 1 : a.stage + 1;
            const int back = a.kind == PAR_PIPE_B || a.kind == PAR_PIPE_BW,
                      sent = back ? PAR_PIPE_B : PAR_PIPE_F;
            double needs = i > s->first[r] ? t->end[i - 1] : 0;
            if ((a.kind == PAR_PIPE_F || back) && to >= 0 && to < s->stages)
                needs = fmax(needs, end_of(s, t, sent, to, a.microbatch) - t->clock_error);
            if (t->start[i] < needs || t->end[i] < t->start[i]) wrong++;
        }
    CHECK(w, !wrong);
}
static void causality(par_comm *w) {
    static const char *const names[] = {"1f1b", "zb_v", "dualpipe"};
    par_pipe_stage stage = stage_of(1, 1, 1);
    par_pipe_exec e;
    memset(&e, 0, sizeof e);
    e.comm = w, e.fn = brief_work;
    *test_opened_at(w) -= 7.5 * par_rank(w); // as if the worlds had been opened one after the other
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        par_pipe_desc d = desc_of(names[k], par_size(w), 2 * par_size(w), 0, &stage);
        par_pipe_schedule s;
        par_pipe_timeline t;
        par_pipe *pipe;
        if (!strcmp(names[k], "dualpipe") && par_size(w) % 2) continue;
        d.reduce = d.max_gathered_stages = 1;
        CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_open(&s, &e, &pipe));
        for (int i = 0; i < 12; i++) {
            CHECK_OK(w, par_pipe_step(pipe, NULL));
            if (i % 3 == 2) CHECK_OK(w, par_pipe_evaluate(pipe, NULL)); // leaves the step's times alone
            CHECK_OK(w, par_pipe_timeline_get(pipe, &t));
            if (par_rank(w) == 0) check_causes(w, &s, &t);
            if (par_node_count(w) == 1) CHECK(w, t.clock_error == 0 || getenv("RANK"));
            par_pipe_timeline_close(&t);
        }
        CHECK_OK(w, par_pipe_close(pipe));
        par_pipe_schedule_close(&s);
    }
}

static size_t count_in_file(const char *path, const char *word) {
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    size_t count = 0;
    text[n] = 0;
    if (f) fclose(f);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) count++;
    return count;
}
static void drawings(par_comm *w) {
    char svg[600], json[600];
    const int p = par_size(w);
    par_pipe_stage stages[STAGES] = {{0}};
    par_pipe_desc d = desc_of("zb_h1", p, 2 * p, 0, stages);
    par_pipe_schedule s;
    par_pipe_exec e;
    par_pipe *pipe;
    par_pipe_timeline plan, real;
    net *n = (net *)malloc(sizeof *n);
    net_open(n), net_stages(stages, STAGES);
    d.stage_count = p, d.rows = ROWS;
    memset(&e, 0, sizeof e);
    e.comm = w, e.fn = net_work, e.user = n;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_open(&s, &e, &pipe) && !par_pipe_step(pipe, NULL));
    CHECK_OK(w, par_pipe_timeline_get(pipe, &real));
    if (par_rank(w) == 0) {
        const par_pipe_timeline *both[2] = {&plan, &real};
        const char *titles[2] = {"planned", "measured"};
        snprintf(svg, sizeof svg, "%s/par_pipe_%d.svg", test_dir, (int)getpid()),
            snprintf(json, sizeof json, "%s/par_pipe_%d.json", test_dir, (int)getpid());
        CHECK_OK(w, par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &plan));
        CHECK(w, real.makespan > 0 && real.bubble >= 0 && real.bubble < 1);
        for (int r = 0; r < p; r++) {
            const par_pipe_rank *x = &real.ranks[r];
            CHECK(w, close_to(x->warmup + x->cooldown + x->communication + x->imbalance + x->dependency +
                                  x->busy,
                              real.makespan, 1e-9));
            for (size_t i = s.first[r]; i + 1 < s.first[r + 1]; i++)
                CHECK(w, real.end[i] >= real.start[i] && real.start[i] >= 0);
        }
        CHECK(w, !par_pipe_svg(&s, both, titles, 2, svg) && !par_pipe_perfetto(&s, both, titles, 2, json));
        CHECK(w, count_in_file(svg, "<title>") == (size_t)(2 * 3 * 2 * p * p));
        CHECK(w, count_in_file(json, "\"ph\":\"X\"") == (size_t)(2 * 3 * 2 * p * p));
        CHECK(w, count_in_file(json, "\"ph\":\"s\"") == count_in_file(json, "\"ph\":\"f\"") &&
                     count_in_file(json, "\"ph\":\"s\"") >= (size_t)(4 * p * (p - 1)));
        FILE *f = fopen(svg, "w");
        par_pipe_print(&s, &plan, 60, 0, f), par_pipe_print(&s, &real, 60, real.makespan, f);
        fclose(f);
        CHECK(w, count_in_file(svg, "rank ") == (size_t)(2 * p));
        CHECK(w, par_pipe_svg(&s, both, titles, 2, "/nowhere/x") == PAR_ERR_FILE);
        CHECK(w, par_pipe_svg_compare(NULL, both, titles, 0, svg) == PAR_ERR_ARGUMENT);
        unlink(svg), unlink(json);
        par_pipe_timeline_close(&plan);
    }
    par_pipe_timeline_close(&real);
    CHECK_OK(w, par_pipe_close(pipe));
    par_pipe_schedule_close(&s);
    free(n);
}

// The text shows actions that are shorter than a column, and has a row for each chunk.
static size_t print_to(const par_pipe_schedule *s, const par_pipe_timeline *t, int columns, char *text,
                       size_t bytes) {
    FILE *f = tmpfile();
    par_pipe_print(s, t, columns, 0, f);
    rewind(f);
    const size_t n = fread(text, 1, bytes - 1, f);
    text[n] = 0;
    fclose(f);
    return n;
}
static void printed(par_comm *w) {
    static const char *const names[] = {"zb_h1", "zb_v", "dualpipe", "interleaved_1f1b", "1f1b"};
    static char text[1 << 16];
    for (int k = 0; k < 5; k++) {
        par_pipe_stage stage = stage_of(1, 0.04, 0.001);
        par_pipe_desc d = desc_of(names[k], 4, 8, k == 3 ? 3 : 0, &stage);
        par_pipe_schedule s;
        par_pipe_timeline t;
        CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
        for (int columns = 20; columns <= 400; columns *= 2) {
            int rows = 0;
            print_to(&s, &t, columns, text, sizeof text);
            for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
                const char *bar = strchr(line, '|');
                if (!strncmp(line, "digits", 6)) {
                    CHECK(w, (strstr(line, "A, B") != NULL) ==
                                 (par_pipe_schedule_find(names[k])->splits_backward));
                    CHECK(w, (strstr(line, "a rank's rows: its chunks") != NULL) == (k == 1 || k == 3));
                    CHECK(w, (strstr(line, "v, ^: ") != NULL) == (k == 2) && !strstr(line, "~"));
                    continue;
                }
                const int all = k == 1 || k == 2 ? 2 : k == 3 ? 3 : 1, r = rows / all, chunk = rows % all;
                int seen[PAR_PIPE_KIND_COUNT][8] = {{0}}, stars = 0;
                rows++;
                CHECK(w, bar && (int)strlen(bar + 1) == columns && !strncmp(line, "rank", 4) == !chunk);
                for (const char *c = bar + 1; *c; c++) {
                    stars += *c == '*';
                    if (*c >= '0' && *c <= '7') seen[PAR_PIPE_F][*c - '0']++;
                    if (*c >= 'a' && *c <= 'h') seen[PAR_PIPE_B][*c - 'a']++;
                    if (*c >= 'A' && *c <= 'H') seen[PAR_PIPE_W][*c - 'A']++;
                }
                for (size_t i = s.first[r]; i < s.first[r + 1];
                     i++) { // each has a letter, or is under a star
                    const par_pipe_action a = s.actions[i];
                    const int kind = a.kind == PAR_PIPE_BW ? PAR_PIPE_B : a.kind;
                    const int of = k == 2 ? a.microbatch >= 4 : k == 1 ? a.stage >= 4 : a.stage / 4;
                    if (a.kind <= PAR_PIPE_W && of == chunk) CHECK(w, seen[kind][a.microbatch] || stars);
                }
                if (columns >= 160 && k == 0) CHECK(w, seen[PAR_PIPE_W][0] && seen[PAR_PIPE_B][6]);
            }
            CHECK(w, rows == 4 * (k == 1 || k == 2 ? 2 : k == 3 ? 3 : 1));
        }
        par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    }
}
// In the picture each kind has a shade for each chunk, no two alike; text and marks are black or white, with
// the larger contrast; the legend has the kinds that occur and no others.
static double light_of(const char *color) { // "#rrggbb"
    static const double share[3] = {0.2126, 0.7152, 0.0722};
    double light = 0;
    for (int i = 0; i < 3; i++) {
        const char two[3] = {color[1 + 2 * i], color[2 + 2 * i], 0};
        const double c = (double)strtol(two, NULL, 16) / 255;
        light += share[i] * (c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4));
    }
    return light;
}
static void check_svg(par_comm *w, const char *path, const par_pipe_schedule *s, int chunks) {
    static const char *const legend[] = {"forward",           "backward",  "backward: inputs",
                                         "backward: weights", "recompute", "idle"};
    char line[512], shades[PAR_PIPE_R + 1][32][8], last[8] = "";
    int count[PAR_PIPE_R + 1] = {0}, occurs[PAR_PIPE_R + 1] = {0}, entries = 0, boxes = 0, wrong = 0,
                           marks = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *title = strstr(line, "<title>"), *fill = strstr(line, "fill=\"#"),
                   *ink = strstr(line, "fill=\"");
        if (strstr(line, "class=\"legend\"")) {
            const char *name = strchr(line, '>') + 1;
            int k = 0;
            while (k < 6 && (strncmp(name, legend[k], strlen(legend[k])) || name[strlen(legend[k])] != '<'))
                k++;
            wrong += k == 6;
            if (k <= PAR_PIPE_R) occurs[k] |= 2;
            entries++;
        }
        if (strstr(line, "text-anchor") && last[0]) { // on the box before it
            const double box = light_of(last), text = strncmp(ink + 6, "white", 5) ? 0 : 1;
            wrong += (fmax(box, text) + 0.05) / (fmin(box, text) + 0.05) < 4.5;
        }
        marks += strstr(line, "height=\"1.5\"") != NULL;
        if (fill && strstr(line, "stroke")) snprintf(last, sizeof last, "%.7s", fill + 6);
        if (!title || !fill) continue;
        int kind = 0, stage, microbatch, j = 0;
        char name[24];
        if (sscanf(title + 7, "%d%23[A-Z_]%d", &stage, name, &microbatch) != 3) wrong++;
        while (kind <= PAR_PIPE_R && strcmp(name, par_pipe_kind_name((par_pipe_kind)kind))) kind++;
        boxes++, occurs[kind] |= 1;
        while (j < count[kind] && strcmp(shades[kind][j], last)) j++;
        if (j == count[kind]) memcpy(shades[kind][count[kind]++], last, 8);
    }
    if (f) fclose(f);
    int kinds = 0;
    for (int k = 0; k <= PAR_PIPE_R; k++) {
        CHECK(w, occurs[k] == 0 || occurs[k] == 3); // there, and in the legend
        CHECK(w, count[k] <= chunks && (k != PAR_PIPE_F || count[k] == chunks));
        kinds += occurs[k] != 0;
        for (int i = 0; i < count[k]; i++)
            for (int o = 0; o < k; o++)
                for (int j = 0; j < count[o]; j++) wrong += !strcmp(shades[k][i], shades[o][j]);
    }
    static const int lines[PAR_PIPE_R + 1] = {0, 2, 1, 1, 0}; // for readers who see no colors
    int computed = 0;
    for (int k = 0; k <= PAR_PIPE_R; k++) marks -= occurs[k] ? chunks * lines[k] : 0; // the legend's
    for (size_t i = 0; i < s->first[s->ranks]; i++)
        if (s->actions[i].kind <= PAR_PIPE_R) computed++, marks -= lines[s->actions[i].kind];
    CHECK(w, !wrong && !marks && entries == kinds + 1 && boxes == computed);
}
static void shades(par_comm *w) {
    static const struct {
        const char *name;
        int v, chunks, recompute;
    } cases[] = {{"1f1b", 0, 1, 0},
                 {"gpipe", 0, 1, 1},
                 {"zb_h1", 0, 1, 0},
                 {"zb_v", 0, 2, 0},
                 {"dualpipe", 0, 2, 0},
                 {"dualpipev", 0, 2, 1},
                 {"interleaved_1f1b", 3, 3, 0},
                 {"looped_bfs", 7, 7, 1}};
    char path[600];
    snprintf(path, sizeof path, "%s/par_shades_%d.svg", test_dir, (int)getpid());
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        par_pipe_stage stage = stage_of(1, 1, 1);
        par_pipe_desc d = desc_of(cases[k].name, 4, 8, cases[k].v, &stage);
        par_pipe_schedule s;
        par_pipe_timeline t;
        const par_pipe_timeline *one[1] = {&t};
        const char *titles[1] = {"<\"planned\" & drawn>"};
        d.recompute = cases[k].recompute ? PAR_PIPE_RECOMPUTE_FUSED : PAR_PIPE_RECOMPUTE_NONE;
        CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
        CHECK_OK(w, par_pipe_svg(&s, one, titles, 1, path));
        CHECK(w, count_in_file(path, "&#60;&#34;planned&#34; &#38; drawn&#62;") == 1);
        check_svg(w, path, &s, cases[k].chunks);
        par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    }
    par_pipe_stage stage = stage_of(1, 1, 1); // a forward beside a backward: both are seen
    stage.fbw = 2.5;
    par_pipe_desc d = desc_of("dualpipev", 4, 8, 0, &stage);
    par_pipe_schedule s;
    par_pipe_timeline t;
    const par_pipe_timeline *one[1] = {&t};
    const char *titles[1] = {"overlapping"};
    size_t pairs = 0;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    CHECK_OK(w, par_pipe_svg(&s, one, titles, 1, path));
    for (size_t i = 0; i < s.first[4]; i++) pairs += s.actions[i].pair;
    CHECK(w, pairs && count_in_file(path, "height=\"11.00\"") == 2 * pairs);
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    unlink(path);
}

static par_result failing_work(void *user, const par_pipe_work *k) {
    par_comm *w = (par_comm *)user;
    if (k->stage == par_size(w) - 1 && k->microbatch == 1) return par_fail(w, PAR_ERR_FILE, "no more data");
    return PAR_OK;
}
static par_result mute_work(void *user, const par_pipe_work *k) {
    return k->stage == par_size((par_comm *)user) - 1 && k->microbatch == 1 ? PAR_ERR_FILE : PAR_OK;
}
static void fail_in(par_comm *w, par_pipe_fn fn, const char *why) { // ends the step on all
    par_pipe_stage stage = stage_of(1, 1, 1);
    par_pipe_desc d = desc_of("1f1b", par_size(w), 4, 0, &stage);
    par_pipe_schedule s;
    par_pipe_exec e;
    par_pipe *pipe;
    memset(&e, 0, sizeof e);
    e.comm = w, e.fn = fn, e.user = w;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_open(&s, &e, &pipe));
    par_fail(w, PAR_ERR_ARGUMENT, "an older error");
    const par_result r = par_pipe_step(pipe, NULL); // no timeout ends it
    const int last = par_rank(w) == par_size(w) - 1;
    CHECK(w, r == (last ? PAR_ERR_FILE : PAR_ERR_ABORTED));
    CHECK(w, has_text(par_last_error(w), last ? why : "rank"));
    CHECK(w, !has_text(par_last_error(w), "an older error"));
    par_pipe_close(pipe);
    par_pipe_schedule_close(&s);
}
static void failing(par_comm *w) { fail_in(w, failing_work, "no more data"); }
static void failing_mute(par_comm *w) { fail_in(w, mute_work, par_result_text(PAR_ERR_FILE)); }
static void mistakes(par_comm *w) {
    par_pipe_stage stage = stage_of(1, 1, 1);
    par_pipe_desc d = desc_of("1f1b", par_size(w) + 1, 4, 0, &stage);
    par_pipe_schedule s;
    par_pipe_exec e;
    par_pipe *pipe;
    memset(&e, 0, sizeof e);
    e.comm = w, e.fn = idle_work;
    CHECK_OK(w, par_pipe_schedule_open(&d, &s));
    CHECK(w, par_pipe_open(&s, &e, &pipe) == PAR_ERR_ARGUMENT && !pipe &&
                 has_text(par_last_error(w), "the comm has"));
    par_pipe_schedule_close(&s);
    d.ranks = par_size(w);
    CHECK_OK(w, par_pipe_schedule_open(&d, &s));
    e.fn = NULL;
    CHECK(w, par_pipe_open(&s, &e, &pipe) == PAR_ERR_ARGUMENT && has_text(par_last_error(w), "exec.fn"));
    e.fn = idle_work;
    s.actions[0].kind = PAR_PIPE_W; // a table that was damaged
    CHECK(w, par_pipe_open(&s, &e, &pipe) == PAR_ERR_ARGUMENT && has_text(par_last_error(w), "0W0"));
    par_pipe_schedule_close(&s);
    CHECK(w, par_pipe_open(&s, &e, &pipe) == PAR_ERR_ARGUMENT && has_text(par_last_error(w), "not open"));
}

// What ranks must have alike, one thing at a time: the last rank's differs, and all ranks hear of it.
typedef struct setup {
    const char *schedule;
    int chunks, microbatches, batches, rows, last_rows, broadcast_loss, reduce;
    int more_stages, late; // of a table: stages beyond one for each rank; forwards before backwards
    size_t input_bytes;
    int no_fn;
} setup;
static void write_table(char *text, size_t bytes, int p, const setup *x) { // two microbatches
    const int stages = p + x->more_stages;
    const char *const order = x->late ? "F0F1B0B1" : "F0B0F1B1";
    size_t at = 0;
    for (int r = 0; r < p; r++) {
        for (const char *c = order; *c; c += 2)
            for (int i = 0; i < 2; i++) { // of the rank's stages r and r + p
                const int s = r + (*c == 'F' ? i : 1 - i) * p;
                if (s < stages) at += (size_t)snprintf(text + at, bytes - at, "%d%.2s,", s, c);
            }
        text[at - 1] = '\n';
    }
}
static par_result open_setup(par_comm *w, const setup *x, par_pipe **pipe) {
    par_pipe_stage stage = stage_of(1, 1, 1);
    par_pipe_desc d = desc_of(x->schedule, par_size(w), x->microbatches, x->chunks, &stage);
    par_pipe_exec e;
    par_pipe_schedule s;
    const int rows[4] = {2, 2, 2, x->last_rows};
    char text[2048];
    memset(&e, 0, sizeof e), e.comm = w, e.fn = x->no_fn ? NULL : idle_work;
    e.broadcast_loss = x->broadcast_loss;
    d.batches = x->batches, d.reduce = x->reduce, d.rows = x->rows, stage.input_bytes = x->input_bytes;
    if (x->last_rows) d.row_counts = rows;
    write_table(text, sizeof text, par_size(w), x);
    if (strcmp(x->schedule, "table"))
        CHECK_OK(w, par_pipe_schedule_open(&d, &s));
    else
        CHECK_OK(w, par_pipe_parse(text, strlen(text), &d, &s));
    const par_result r = par_pipe_open(&s, &e, pipe);
    CHECK_OK(w, par_pipe_close(*pipe));
    par_pipe_schedule_close(&s);
    return r;
}
static const struct {
    const char *name, *text;
    setup all, last;
} setups[] = {
    {"schedule",
     " is gpipe on",
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 8, 0},
     {"gpipe", 0, 4, 0, 4, 0, 0, 0, 0, 0, 8, 0}},
    {"chunks",
     " is 3 on",
     {"interleaved_1f1b", 2, 4, 0, 4, 0, 0, 0, 0, 0, 8, 0},
     {"interleaved_1f1b", 3, 4, 0, 4, 0, 0, 0, 0, 0, 8, 0}},
    {"stages",
     " is ",
     {"table", 0, 2, 0, 4, 0, 0, 0, 1, 0, 8, 0},
     {"table", 0, 2, 0, 4, 0, 0, 0, 2, 0, 8, 0}},
    {"microbatches",
     " is 5 on",
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 8, 0},
     {"1f1b", 0, 5, 0, 4, 0, 0, 0, 0, 0, 8, 0}},
    {"batches",
     " is 2 on",
     {"pipedream_2bw", 0, 4, 1, 4, 0, 0, 0, 0, 0, 8, 0},
     {"pipedream_2bw", 0, 4, 2, 4, 0, 0, 0, 0, 0, 8, 0}},
    {"rows",
     " is 2 on",
     {"1f1b", 0, 4, 0, 4, 2, 0, 0, 0, 0, 8, 0},
     {"1f1b", 0, 4, 0, 2, 2, 0, 0, 0, 0, 8, 0}},
    {"broadcast_loss",
     " is 1 on",
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 8, 0},
     {"1f1b", 0, 4, 0, 4, 0, 1, 0, 0, 0, 8, 0}},
    {"the number of actions",
     " is ",
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 8, 0},
     {"1f1b", 0, 4, 0, 4, 0, 0, 1, 0, 0, 8, 0}},
    {"input_bytes of stage",
     " 1 is 16 on",
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 8, 0},
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 16, 0}},
    {"rows of microbatch",
     " 3 is 1 on",
     {"1f1b", 0, 4, 0, 4, 2, 0, 0, 0, 0, 8, 0},
     {"1f1b", 0, 4, 0, 4, 1, 0, 0, 0, 0, 8, 0}},
    {"action",
     " 2 is 0F1 on",
     {"table", 0, 2, 0, 4, 0, 0, 0, 0, 0, 8, 0},
     {"table", 0, 2, 0, 4, 0, 0, 0, 0, 1, 8, 0}},
    {"it failed on another rank",
     "",
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 8, 0},
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 8, 1}},
    {"input_bytes of stage 1 is 0, ",
     "",
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 0, 0},
     {"1f1b", 0, 4, 0, 4, 0, 0, 0, 0, 0, 0, 0}},
};
static void agreement(par_comm *w) {
    enum { SETUPS = sizeof setups / sizeof *setups };
    const int last = par_rank(w) == par_size(w) - 1;
    int at = 1;
    for (int i = 0; i < PAR__PIPE_MEMBER_COUNT; i++)
        CHECK(w, !strcmp(setups[at++].name, par__pipe_members[i]));
    for (int i = 0; i < PAR__PIPE_LIST_COUNT; i++) CHECK(w, !strcmp(setups[at++].name, par__pipe_lists[i]));
    for (int k = 0; k < SETUPS; k++) {
        char text[80];
        par_pipe *pipe;
        snprintf(text, sizeof text, "%s%s", setups[k].last.no_fn && last ? "exec.fn" : setups[k].name,
                 setups[k].text);
        CHECK(w, open_setup(w, last ? &setups[k].last : &setups[k].all, &pipe) == PAR_ERR_ARGUMENT && !pipe);
        CHECK(w, has_text(par_last_error(w), text));
        CHECK_OK(w, open_setup(w, &setups[0].all, &pipe)); // the comm goes on
    }
}

// A buffer of 0 bytes is NULL, so that nobody writes to it.
static par_result bufferless_work(void *user, const par_pipe_work *k) {
    int *seen = (int *)user;
    *seen |= k->b || k->w || k->g || k->c || (k->kind == PAR_PIPE_F && k->is_last != (k->y == NULL));
    return PAR_OK;
}
static void no_buffers(par_comm *w) {
    par_pipe_stage stage;
    par_pipe_desc d = desc_of("zb_h1", par_size(w), 4, 0, &stage);
    par_pipe_exec e;
    par_pipe_schedule s;
    par_pipe *pipe;
    int seen = 0;
    memset(&stage, 0, sizeof stage), memset(&e, 0, sizeof e);
    stage.input_bytes = 8, d.recompute = PAR_PIPE_RECOMPUTE_EARLY;
    e.comm = w, e.fn = bufferless_work, e.user = &seen;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_open(&s, &e, &pipe) && !par_pipe_step(pipe, NULL));
    CHECK(w, !seen);
    CHECK_OK(w, par_pipe_close(pipe));
    par_pipe_schedule_close(&s);
}

// ---- grids: replicas side by side, some of their ranks dead

enum { MOST_DEAD = 4 };
static par_pipe_desc grid_of(const char *name, int p, int replicas, int m, const int *dead,
                             const par_pipe_stage *stage) {
    par_pipe_desc d = desc_of(name, p, m, any_chunks(name) ? 2 : 0, stage);
    d.replicas = replicas, d.dead = dead;
    while (dead && d.dead_count < MOST_DEAD && dead[d.dead_count] >= 0) d.dead_count++;
    return d;
}
static int is_one_of(const par_pipe_desc *d, int rank) {
    for (int i = 0; i < d->dead_count; i++)
        if (d->dead[i] == rank) return 1;
    return 0;
}
// Counts by itself what the table does: everything once, on living ranks that have the stage, and a dead
// rank's microbatches are spread evenly, and each message has a buffer.
static void check_grid(par_comm *w, const par_pipe_desc *d, const par_pipe_schedule *s,
                       const par_pipe_memory *memory) {
    const size_t all = (size_t)s->stages * (size_t)s->microbatches;
    int(*count)[3] = (int(*)[3])calloc(all, sizeof *count), *place = (int *)malloc(all * sizeof *place);
    int *forwards = (int *)calloc((size_t)s->ranks, sizeof *forwards);
    for (int r = 0; r < s->ranks; r++) {
        size_t sent = 0;
        CHECK(w, !is_one_of(d, r) || s->first[r] == s->first[r + 1]);
        for (size_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const par_pipe_action a = s->actions[i];
            const size_t at = (size_t)(a.stage * s->microbatches + a.microbatch);
            sent += a.kind == PAR_PIPE_SEND_F || a.kind == PAR_PIPE_SEND_B;
            if (a.kind > PAR_PIPE_W) continue;
            if (!count[at][0] && a.kind == PAR_PIPE_F) place[at] = r, forwards[r]++;
            CHECK(w, place[at] == r && r % d->ranks == par_pipe_rank_of(s, a.stage, a.microbatch) % d->ranks);
            count[at][0] += a.kind == PAR_PIPE_F;
            count[at][1] += a.kind == PAR_PIPE_B || a.kind == PAR_PIPE_BW;
            count[at][2] += a.kind == PAR_PIPE_W || a.kind == PAR_PIPE_BW;
        }
        CHECK(w, memory[r].send_bytes == 64 * sent);
    }
    for (size_t i = 0; i < all; i++) CHECK(w, count[i][0] == 1 && count[i][1] == 1 && count[i][2] == 1);
    for (int r = 0; r < s->ranks; r++)
        for (int q = r % d->ranks; q < s->ranks; q += d->ranks)
            if (!is_one_of(d, r) && !is_one_of(d, q))
                CHECK(w, abs(forwards[r] - forwards[q]) <= s->stages / d->ranks);
    free(count), free(place), free(forwards);
}
static const int no_dead[] = {-1}, one_dead[] = {6, -1}, same_stage[] = {6, 10, -1},
                 same_replica[] = {4, 6, -1}, apart[] = {1, 6, 11, -1};
static void grids(par_comm *w) { // every schedule, costs, hooks, protocols
    static const int *const sets[] = {no_dead, one_dead, same_stage, same_replica, apart};
    par_pipe_stage stages[2] = {stage_of(1, 1, 1), stage_of(2, 1, 5)};
    for (int k = 0; k < PAR_PIPE_SCHEDULE_COUNT; k++)
        for (int i = 0; i < 5 * 2 * 3; i++) {
            const char *name = par_pipe_schedules[k].name;
            par_pipe_desc d = grid_of(name, 4, 4, 1 + i % 3 * 3, sets[i / 6], &stages[i / 3 % 2]);
            if (i % 2)
                d.latency = .25, d.seconds_per_byte = .05, d.reduce = 1, d.max_gathered_stages = 2,
                d.tied = 1, d.recompute = PAR_PIPE_RECOMPUTE_EARLY;
            par_pipe_schedule s, forwards;
            par_pipe_timeline t;
            par_pipe_memory memory[16];
            const par_result r = par_pipe_schedule_open(&d, &s);
            if (k == PAR_PIPE_2BW || k == PAR_PIPE_DUALPIPE)
                CHECK(w, r == PAR_ERR_ARGUMENT && has_text(s.why, "has no grid: replicas must be 1"));
            else {
                if (r) fprintf(stderr, "%s, case %d: %s\n", name, i, s.why);
                CHECK_OK(w, r);
                CHECK(w, !par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, memory) &&
                             !par_pipe_verify(&s, PAR_PIPE_RENDEZVOUS, NULL));
                check_grid(w, &d, &s, memory);
                CHECK(w, !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t) && t.window <= t.makespan);
                CHECK(w, isnan(par_pipe_theory_bubble(&s, 0)) && isnan(par_pipe_theory_peak(&s, 0)));
                par_pipe_timeline_close(&t);
                CHECK(w, !par_pipe_forward_only(&s, 2, &forwards) && forwards.microbatches == 2 &&
                             !par_pipe_verify(&forwards, PAR_PIPE_NONBLOCKING, NULL));
                par_pipe_schedule_close(&forwards);
            }
            par_pipe_schedule_close(&s);
        }
}
// Of stages that differ, two peers can have a longer window together than any rank alone.
static void peers_window(par_comm *w) {
    static const int dead[] = {2, -1};
    const par_pipe_stage stages[2] = {stage_of(1, 1, 1), stage_of(1, 1, 4)};
    par_pipe_desc d = grid_of("zb_h1", 2, 2, 2, dead, stages);
    par_pipe_schedule s;
    par_pipe_timeline t;
    d.stage_count = 2;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    for (int r = 0; r < 4; r++) CHECK(w, t.ranks[r].last - t.ranks[r].first < 12.5);
    CHECK(w, close_to(t.window, 13, 1e-9) && close_to(t.makespan, 14, 1e-9));
    par_pipe_timeline_close(&t);
    par_pipe_schedule_close(&s);
}
// ReCycle (Gandhi et al. 2024). 3 replicas of 4 stages, 6 microbatches each, B = W = F: 1F1B takes 27. A dead
// rank's two peers have 27 of work and get the first input at 2: no order takes less than 29, which halves
// reach; and steps that overlap (a staggered optimizer) take 27 again. Without halves the last backward still
// has to go up two stages, to 33.
static void recycle(par_comm *w) {
    static const int eight[] = {0, 5, 10, 15, -1};
    static const struct {
        const char *name;
        int replicas, m;
        const int *dead;
        double makespan, window;
        size_t limit;
    } cases[] = {
        {"1f1b", 3, 6, no_dead, 27, 27, 0},
        {"1f1b", 3, 6, one_dead, 33, 33, 0},
        {"zb_h1", 3, 6, one_dead, 29, 27, 0},
        {"zb_h1", 3, 6, no_dead, 21, 21, 0},
        {"zb_h1", 3, 6, same_stage, 56, 54, 0},
        {"1f1b", 1, 9, NULL, 36, 36, 0}, // what a replica does if another one is left out
        {"zb_h1", 1, 9, NULL, 30, 30, 0},
        {"zb_h1", 3, 6, one_dead, 29, 27, 440},
        {"zb_h1", 3, 6, one_dead, 30, 29, 300},
        {"1f1b", 3, 6, one_dead, 33, 33, 440},
        {"1f1b", 3, 6, one_dead, 42, 42, 220},
        {"zb_h1", 8, 8, eight, 33, 32, 0},
    };
    const par_pipe_stage stage = stage_of(1, 1, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        par_pipe_desc d = grid_of(cases[i].name, 4, cases[i].replicas, cases[i].m, cases[i].dead, &stage);
        par_pipe_schedule s;
        par_pipe_timeline t;
        par_pipe_memory memory[32];
        d.max_activation_bytes = cases[i].limit;
        CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
        CHECK_OK(w, par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, memory));
        for (int r = 0; r < s.ranks; r++)
            CHECK(w, !cases[i].limit || memory[r].activation_bytes <= cases[i].limit);
        if (!close_to(t.makespan, cases[i].makespan, 1e-9) || !close_to(t.window, cases[i].window, 1e-9))
            fprintf(stderr, "case %zu: %g, window %g\n", i, t.makespan, t.window);
        CHECK(w, close_to(t.makespan, cases[i].makespan, 1e-9) && close_to(t.window, cases[i].window, 1e-9));
        par_pipe_timeline_close(&t);
        par_pipe_schedule_close(&s);
    }
}
static size_t find_action(const par_pipe_schedule *s, int kind, int stage, int microbatch) {
    for (size_t i = 0; i < s->first[s->ranks]; i++)
        if (s->actions[i].kind == kind && s->actions[i].stage == stage &&
            s->actions[i].microbatch == microbatch)
            return i;
    return 0;
}
static void move_action(par_pipe_schedule *s, size_t from, size_t to) { // within one rank's list
    const par_pipe_action a = s->actions[from];
    for (; from < to; from++) s->actions[from] = s->actions[from + 1];
    for (; from > to; from--) s->actions[from] = s->actions[from - 1];
    s->actions[to] = a;
}
// Rank 6 is stage 2 of replica 1, and dead: of its microbatches 6 to 11, rank 2 has 6, and rank 10 has 7.
static void
holed(par_comm *w) { // planted faults of a grid are found, and it is refused by name where it must
    static const char *const why[] = {
        "rank 10: 2F6 belongs to rank 2",
        "rank 6 is dead, and has stage 2 of microbatch 6",
        "rank 3 has not the weights of stage 2 for microbatch 6",
        "rank 14 has not the weights of stage 2 for microbatch 6",
        "rank 2: 2F6 occurs twice",
        "rank 2 lacks 2W6",
        "2W6 (action",
        "2F6 (action",
        "2RECV_F8 is number 0 of what it receives on its channel, and number 1 of what rank 5 sends",
        "rank 2 at 2I6 waits for 3SEND_B6 of rank 7; rank 7 at 3F8 waits for 2SEND_F8 of rank 2",
    };
    const par_pipe_stage stage = stage_of(1, 1, 1);
    for (int fault = -1; fault < (int)(sizeof why / sizeof why[0]); fault++) {
        par_pipe_desc d = grid_of("zb_h1", 4, 3, 6, one_dead, &stage);
        par_pipe_schedule s;
        CHECK_OK(w, par_pipe_schedule_open(&d, &s));
        const size_t f = find_action(&s, PAR_PIPE_F, 2, 6), x = find_action(&s, PAR_PIPE_W, 2, 6);
        const size_t g = find_action(&s, PAR_PIPE_RECV_F, 2, 6), h = find_action(&s, PAR_PIPE_RECV_F, 2, 8);
        int *place = &s.rank_of[6 * 4 + 2];
        CHECK(w, *place == 2 && par_pipe_rank_of(&s, 2, 7) == 10);
        if (fault == 0) s.actions[find_action(&s, PAR_PIPE_F, 2, 7)].microbatch = 6;
        if (fault >= 1 && fault <= 3) *place = fault == 1 ? 6 : fault == 2 ? 3 : 14;
        if (fault == 4) s.actions[find_action(&s, PAR_PIPE_F, 2, 8)].microbatch = 6;
        if (fault == 5) s.actions[x].kind = PAR_PIPE_RESHARD;
        if (fault == 6) move_action(&s, x, find_action(&s, PAR_PIPE_B, 2, 6));
        if (fault == 7) move_action(&s, f, s.first[2]);
        if (fault == 8) move_action(&s, h, g);
        if (fault == 9) { // rank 2 has the backward of 6 before the forward of 8, rank 7 then the opposite
            const size_t to = find_action(&s, PAR_PIPE_F, 3, 6);
            move_action(&s, find_action(&s, PAR_PIPE_RECV_F, 3, 8), to);
            move_action(&s, find_action(&s, PAR_PIPE_F, 3, 8), to + 1);
        }
        const par_result r = par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, NULL);
        CHECK(w, fault < 0 ? !r : r == PAR_ERR_ARGUMENT && has_text(s.why, why[fault]));
        par_pipe_schedule_close(&s);
    }
    static const int all_dead[] = {2, 6, 10, -1}, outside[] = {12, -1};
    par_pipe_desc bad[4];
    static const char *const refused[4] = {"stage 2 is dead in all replicas (3): no rank has its weights",
                                           "dead[0] is not one of the grid's ranks, 0 to 11",
                                           "replicas must be 1 or more", "found no order within"};
    for (int i = 0; i < 4; i++) {
        par_pipe_schedule s;
        bad[i] = grid_of("zb_h1", 4, 3, 6, i == 0 ? all_dead : i == 1 ? outside : one_dead, &stage);
        if (i == 2) bad[i].replicas = -1;
        if (i == 3) bad[i].max_activation_bytes = 100; // of one microbatch are 110
        CHECK(w, par_pipe_schedule_open(&bad[i], &s) == (i == 3 ? PAR_ERR_MEMORY : PAR_ERR_ARGUMENT) &&
                     has_text(s.why, refused[i]));
        par_pipe_schedule_close(&s);
    }
}
static void grid_drawn(par_comm *w) { // and not executed
    static char text[1 << 14];
    char path[600];
    const par_pipe_stage stage = stage_of(1, 1, 1);
    const par_pipe_desc d = grid_of("zb_h1", 4, 3, 6, one_dead, &stage);
    par_pipe_schedule s;
    par_pipe_timeline t;
    par_pipe_exec e;
    par_pipe *pipe;
    CHECK(w, !par_pipe_schedule_open(&d, &s) && !par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    CHECK(w, print_to(&s, &t, 58, text, sizeof text) > 0);
    CHECK(w, has_text(text, "dead 6     |..........................................................\n") &&
                 has_text(text, "\nrank 10    |") && has_text(text, "\n         + |") &&
                 has_text(text, "+: microbatches of replicas with dead ranks"));
    snprintf(path, sizeof path, "%s/par_grid_%d.svg", test_dir, (int)getpid());
    const par_pipe_timeline *one = &t;
    const char *title = "planned";
    CHECK_OK(w, par_pipe_svg(&s, &one, &title, 1, path));
    CHECK(w, count_in_file(path, "<title>") == 3 * 4 * 18 && count_in_file(path, ">dead 6<") == 1 &&
                 count_in_file(path, "shade 1: those of replicas with dead ranks") == 1);
    unlink(path);
    memset(&e, 0, sizeof e);
    e.comm = w, e.fn = idle_work;
    CHECK(w, par_pipe_open(&s, &e, &pipe) == PAR_ERR_UNSUPPORTED &&
                 has_text(par_last_error(w), "a grid of 3 replicas is planned, not executed"));
    par_pipe_timeline_close(&t);
    par_pipe_schedule_close(&s);
}

const test tests[] = {
    {"set_costs", set_costs, TEST_SERIAL, 1, 60},
    {"formulas", formulas, TEST_SERIAL, 1, 200},
    {"published", published, TEST_SERIAL, 1, 60},
    {"zero_bubble_memory", zero_bubble_memory, TEST_SERIAL, 1, 60},
    {"recomputation", recomputation, TEST_SERIAL, 1, 60},
    {"simulator", simulator, TEST_SERIAL, 1, 60},
    {"large", large, TEST_SERIAL, 1, 60},
    {"searched", searched, TEST_SERIAL, 1, 120},
    {"cuts", cuts, TEST_SERIAL, 1, 60},
    {"tables", tables, TEST_SERIAL, 1, 60},
    {"torch_table", torch_table, TEST_SERIAL, 1, 60},
    {"overlapped", overlapped, TEST_SERIAL, 1, 60},
    {"torch_interleaved_zb", torch_interleaved_zb, TEST_SERIAL, 1, 60},
    {"malformed", malformed, TEST_SERIAL, 1, 60},
    {"impossible", impossible, TEST_SERIAL, 1, 60},
    {"stage_counts", stage_counts, TEST_SERIAL, 1, 60},
    {"no_memory", no_memory, TEST_SERIAL, 1, 60},
    {"not_open", not_open, TEST_SERIAL, 1, 60},
    {"hooks", hooks, TEST_SERIAL, 1, 60},
    {"deadlocks", deadlocks, TEST_SERIAL, 1, 240},
    {"training", training, TEST_ANY | TEST_SMALL, 1, 120},
    {"no_allocation", no_allocation, TEST_ALONE, 1, 60},
    {"call_sites", call_sites, TEST_ANY | TEST_LAUNCHES | TEST_NODES, 2, 60},
    {"staleness", staleness, TEST_ANY | TEST_SMALL, 1, 60},
    {"causality", causality, TEST_ANY | TEST_SMALL, 2, 60},
    {"printed", printed, TEST_SERIAL, 1, 60},
    {"shades", shades, TEST_SERIAL, 1, 60},
    {"drawings", drawings, TEST_ALONE, 1, 60},
    {"failing_mute", failing_mute, TEST_FAULT, 2, 60},
    {"failing", failing, TEST_FAULT, 2, 60},
    {"mistakes", mistakes, TEST_ANY, 1, 60},
    {"agreement", agreement, TEST_ANY | TEST_SMALL, 2, 60},
    {"no_buffers", no_buffers, TEST_ANY | TEST_SMALL, 1, 60},
    {"grids", grids, TEST_SERIAL, 1, 120},
    {"peers_window", peers_window, TEST_SERIAL, 1, 60},
    {"recycle", recycle, TEST_SERIAL, 1, 60},
    {"holed", holed, TEST_SERIAL, 1, 60},
    {"grid_drawn", grid_drawn, TEST_SERIAL, 1, 60},
};
const int test_count = (int)(sizeof tests / sizeof tests[0]);

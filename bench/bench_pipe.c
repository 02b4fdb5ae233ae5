// bench_pipe.c - pipeline schedules: theory, simulation and a run with real messages, side by side.
//
//     build/bench_pipe --schedule zb_h1 --ranks 4 --microbatches 8 --f_us 2000 --b_us 2000 --w_us 2000
//     build/bench_pipe --all --ranks 4
//     build/bench_pipe --all --simulate --stages 64 --microbatches 256
//     build/bench_pipe --schedule zb_h1 --stages 4 --replicas 3 --dead 1:2 --simulate    a rank is dead
//
//     build/bench_pipe_cuda --all --ranks 4            on GPUs; ranks are threads
//
// Computation sleeps for the given time, so that 8 stages can be timed on two processors; activations are
// sent for real. With --comm_us each message is held back so long, by a time stamp it carries. On GPUs a
// kernel of one thread takes the time, messages are in device memory, and the host waits for each action.
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_pipe.h"
#if defined(BENCH_CUDA)
#include "par_cuda.cuh"
#endif

#include "../examples/options.h"

#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

typedef struct settings {
    const char *schedule, *recompute, *svg, *compare, *perfetto, *csv, *device, *dead_text;
    int stages, microbatches, chunks, ranks, batches, simulate, json, all, steps, recompute_count, replicas;
    int dead[64], dead_count; // ranks of the grid
    double f_us, b_us, w_us, r_us, comm_us;
    size_t message, b_bytes, w_bytes, memory;
} settings;

typedef struct row { // of the table
    const char *name;
    int chunks, ran;
    double theory, window_theory, simulated, measured, window, makespan, window_measured, makespan_measured,
        bound;
    size_t peak, peak_measured, planned, allocated;
    const char *why; // not possible
    char text[512];
} row;

typedef struct bench {
    settings o;
    par_comm *world; // NULL: only simulate
    par_pipe_schedule *s;
    double held_back; // seconds spent until messages were "there"
    int status;
#if defined(BENCH_CUDA)
    par_cuda *cuda; // NULL: the CPU
#endif
} bench;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void sleep_until(double when) {
    struct timespec t;
    t.tv_sec = (time_t)when, t.tv_nsec = (long)(1e9 * (when - (double)t.tv_sec));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {
    }
}

// ---- the work ---------------------------------------------------------------------------------------------

static double duration(const par_pipe_stage *c, par_pipe_kind kind) {
    switch (kind) {
    case PAR_PIPE_F: return c->f;
    case PAR_PIPE_BW: return c->b + c->w;
    case PAR_PIPE_B: return c->b;
    case PAR_PIPE_W: return c->w;
    case PAR_PIPE_R: return c->r;
    default: return 0;
    }
}
#if defined(BENCH_CUDA)
static __device__ unsigned long long nanoseconds(void) {
#if defined(CUDA_EMU)
    return (unsigned long long)(1e9 * now());
#else
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
#endif
}
static __global__ void k_work(unsigned long long ns, double *loss) {
    const unsigned long long start = nanoseconds();
    while (nanoseconds() - start < ns) {
    }
    if (loss) *loss = 1;
}
static par_result device_work(void *user, const par_pipe_work *k) {
    bench *b = (bench *)user;
    const double seconds = duration(&b->s->desc.stages[0], k->kind);
    if (seconds <= 0 && !k->loss) return PAR_OK;
    const unsigned long long ns = (unsigned long long)(1e9 * seconds);
#if defined(CUDA_EMU)
    emu_launch(k_work, dim3(1), dim3(1), 0, par_cuda_stream(b->cuda), ns, k->loss);
#else
    k_work<<<1, 1, 0, par_cuda_stream(b->cuda)>>>(ns, k->loss);
#endif
    return par_cuda_sync(b->cuda);
}
static par_result open_device(bench *b) {
    par_cuda_desc d;
    memset(&d, 0, sizeof d);
    d.comm = b->world;
    return strcmp(b->o.device, "cuda") ? PAR_OK : par_cuda_open(&d, &b->cuda);
}
#endif
static par_result work(void *user, const par_pipe_work *k) {
    bench *b = (bench *)user;
    const double start = now();
    const void *message = k->kind == PAR_PIPE_F                             ? k->x
                          : k->kind == PAR_PIPE_B || k->kind == PAR_PIPE_BW ? k->dy
                                                                            : NULL;
    double from = start, sent = 0;
    if (message && b->s->desc.latency > 0)
        memcpy(&sent, message, sizeof sent); // 0: from a stage of this rank
    if (sent + b->s->desc.latency > start) from = sent + b->s->desc.latency, b->held_back += from - start;
    if (k->kind >= PAR_PIPE_SEND_F) return PAR_OK;
    sleep_until(from + duration(&b->s->desc.stages[0], k->kind));
    void *out = k->kind == PAR_PIPE_F ? k->y : k->dx;
    const int to = k->kind == PAR_PIPE_F ? k->stage + 1 : k->stage - 1;
    const int far = out && par_pipe_rank_of(b->s, to, k->microbatch) != par_rank(b->world);
    sent = far ? now() : 0;
    if (out) memcpy(out, &sent, sizeof sent);
    if (k->loss) *k->loss = 1;
    return PAR_OK;
}

// ---- one schedule -----------------------------------------------------------------------------------------

static int recompute_of(const char *name) { // a par_pipe_recompute; -1: there is none of that name
    static const char *const names[] = {"none", "fused", "early"}; // as the enum has them
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) return i;
    return -1;
}
static int open_schedule(const bench *b, const char *name, par_pipe_schedule *s) {
    const settings *o = &b->o;
    par_pipe_desc d;
    par_pipe_stage c;
    memset(&d, 0, sizeof d), memset(&c, 0, sizeof c);
    d.schedule = name, d.ranks = o->stages, d.microbatches = o->microbatches;
    d.batches = !strcmp(name, "pipedream_2bw") ? o->batches : 1;
    d.chunks = !o->all || par_pipe_schedule_find(name)->chunks == 0 ? o->chunks : 0;
    d.chunks = par_pipe_defaults(&d).chunks;
    const double cut = strcmp(name, "dualpipe") ? d.chunks : 1; // there, each stage is on two ranks
    const size_t parts = (size_t)cut;
    c.f = 1e-6 * o->f_us / cut, c.b = 1e-6 * o->b_us / cut, c.w = 1e-6 * o->w_us / cut,
    c.r = 1e-6 * o->r_us / cut;
    c.input_bytes = o->message, c.b_bytes = o->b_bytes / parts, c.w_bytes = o->w_bytes / parts;
    d.stages = &c, d.stage_count = 1, d.latency = 1e-6 * o->comm_us, d.max_activation_bytes = o->memory;
    d.recompute = (par_pipe_recompute)recompute_of(o->recompute);
    d.recompute_count = o->recompute_count;
    d.replicas = o->replicas, d.dead = o->dead, d.dead_count = o->dead_count;
    return (is_schedule_file(name) ? par_pipe_load(name, &d, s) : par_pipe_schedule_open(&d, s)) == PAR_OK;
}
static int by_makespan(const void *a, const void *b) {
    const double x = ((const par_pipe_timeline *)a)->makespan, y = ((const par_pipe_timeline *)b)->makespan;
    return x < y ? -1 : x > y;
}
// Run some steps and keep rank 0's shortest: other programs only make steps longer.
static par_result measure(bench *b, par_pipe_schedule *s, row *x, par_pipe_timeline *out) {
    enum { MAX_STEPS = 64 };
    par_pipe_exec e;
    par_pipe *pipe;
    par_pipe_timeline t[MAX_STEPS];
    memset(&e, 0, sizeof e);
    b->s = s, e.comm = b->world, e.fn = work, e.user = b;
#if defined(BENCH_CUDA)
    if (b->cuda) e.fn = device_work, e.device = par_cuda_device(b->cuda);
#endif
    par_result r = par_pipe_open(s, &e, &pipe);
    uint64_t peaks[2] = {0, r ? 0 : par_pipe_allocated(pipe)};
    int n = 0;
    for (int i = 0; !r && i <= b->o.steps && i < MAX_STEPS; i++) { // the first is not counted
        par_pipe_report report;
        b->held_back = 0;
        r = par_barrier(b->world);
        if (!r) r = par_pipe_step(pipe, &report);
        if (!r && report.activation_bytes > peaks[0]) peaks[0] = report.activation_bytes;
        double *all = (double *)calloc((size_t)s->ranks, sizeof *all);
        if (!r) r = par_gather(&b->held_back, all, 1, PAR_F64, 0, b->world);
        if (!r) r = par_pipe_timeline_get(pipe, &t[n]);
        if (!r && par_rank(b->world) == 0) {
            double busiest = 0; // without what was held back
            for (int k = 0; k < s->ranks; k++) busiest = fmax(busiest, t[n].ranks[k].busy - all[k]);
            t[n].bubble = (t[n].makespan - busiest) / t[n].makespan;
        }
        free(all);
        if (!r && i)
            n++;
        else if (!r)
            par_pipe_timeline_close(&t[n]);
    }
    if (!r) r = par_all_reduce(peaks, peaks, 2, PAR_U64, PAR_MAX, b->world);
    if (!r && par_rank(b->world) == 0) {
        qsort(t, (size_t)n, sizeof t[0], by_makespan);
        *out = t[0];
        x->measured = out->bubble, x->window_measured = out->window, x->makespan_measured = out->makespan,
        x->ran = 1;
        x->peak_measured = peaks[0], x->allocated = peaks[1];
        for (int i = 1; i < n; i++) par_pipe_timeline_close(&t[i]);
    }
    if (pipe) par_pipe_close(pipe);
    return r;
}
static void plan(par_pipe_schedule *s, row *x, par_pipe_timeline *t) {
    par_pipe_memory *m = (par_pipe_memory *)calloc((size_t)s->ranks, sizeof *m);
    if (!m || par_pipe_verify(s, PAR_PIPE_NONBLOCKING, m) || par_pipe_simulate(s, PAR_PIPE_NONBLOCKING, t))
        exit(fprintf(stderr, "bench_pipe: %s\n", m ? s->why : "out of memory") != 0);
    x->theory = par_pipe_theory_bubble(s, 0), x->window_theory = par_pipe_theory_bubble(s, 1);
    x->simulated = t->bubble, x->window = t->window, x->makespan = t->makespan, x->bound = s->lower_bound;
    x->chunks = s->desc.chunks;
    for (int r = 0; r < s->ranks; r++) {
        if (m[r].activation_bytes > x->peak) x->peak = m[r].activation_bytes;
        if (m[r].pool_bytes > x->planned) x->planned = m[r].pool_bytes;
    }
    free(m);
}
static void print_json(const settings *o, const row *x) { // null where there is no formula, or no run
    const double measured = x->ran ? x->measured : NAN, window = x->ran ? x->window_measured : NAN;
    json_line j = json_begin(stdout);
    json_add(&j, "schedule:%s stages:%d replicas:%d dead:%d microbatches:%d chunks:%d", x->name, o->stages,
             o->replicas, o->dead_count, o->microbatches, x->chunks);
    json_add(&j, "bubble_theory:%?.6f bubble_sim:%.6f", x->theory, x->simulated);
    json_add(&j, "bubble_measured:%?.6f window_theory:%?.6f window_sim:%.9f window_measured:%?.9f", measured,
             x->window_theory, x->window, window);
    json_add(&j, "makespan_sim:%.9f makespan_measured:%?.9f peak_sim:%zu peak_measured:%?.0f bound:%.9f",
             x->makespan, x->ran ? x->makespan_measured : NAN, x->peak,
             x->ran ? (double)x->peak_measured : NAN, x->bound);
    json_end(&j);
}
static void print_row(const row *x) {
    char theory[32], measured[32] = "-", makespan[32] = "-", peak[32] = "-";
    snprintf(theory, sizeof theory, isnan(x->theory) ? "-" : "%.4f", x->theory);
    if (x->ran) {
        snprintf(measured, sizeof measured, "%.4f", x->measured),
            snprintf(makespan, sizeof makespan, "%.2f", 1e3 * x->makespan_measured);
        snprintf(peak, sizeof peak, "%zu", x->peak_measured);
    }
    printf("%-18s %6d %8s %8.4f %8s %11.2f %11.2f %9s %11zu %11s\n", x->name, x->chunks, theory, x->simulated,
           measured, 1e3 * x->window, 1e3 * x->makespan, makespan, x->peak, peak);
}
static void print_head(void) {
    printf("%-18s %6s %8s %8s %8s %11s %11s %9s %11s %11s\n", "", "", "bubble", "bubble", "bubble", "window",
           "makespan", "makespan", "peak", "peak");
    printf("%-18s %6s %8s %8s %8s %11s %11s %9s %11s %11s\n", "schedule", "chunks", "theory", "sim",
           "measured", "sim ms", "sim ms", "measured", "sim bytes", "measured");
}
// What a step takes, and what a rank holds, if nothing is dead, if the peers of dead ranks take over, and if
// the other replicas share all microbatches. 0, or the exit status.
static int print_alternatives(const bench *b, const char *name) {
    static const char *const rows[] = {"no rank is dead", "peers take over", "other replicas alone"};
    char left_out[64] = {0};
    int living = b->o.replicas;
    for (int i = 0; i < b->o.dead_count; i++) {
        const int replica = b->o.dead[i] / b->o.stages;
        living -= !left_out[replica], left_out[replica] = 1;
    }
    printf("\n%-22s %11s %11s %11s   %s\n", "", "step ms", "window ms", "peak bytes", name);
    for (int i = 0; i < 3 && (i < 2 || living); i++) {
        bench other = *b;
        par_pipe_schedule s;
        par_pipe_timeline t;
        row x;
        memset(&x, 0, sizeof x);
        if (i != 1) other.o.dead_count = 0;
        if (i == 2) other.o.replicas = living;
        if (i == 2) other.o.microbatches = (b->o.microbatches * b->o.replicas + living - 1) / living;
        if (!open_schedule(&other, name, &s)) return fprintf(stderr, "bench_pipe: %s\n", s.why), 2;
        plan(&s, &x, &t);
        printf("%-22s %11.2f %11.2f %11zu\n", rows[i], 1e3 * t.makespan, 1e3 * t.window, x.peak);
        par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
    }
    return 0;
}
// Writes the files that were asked for. 0, or the exit status: what is wrong has been said.
static int files(const bench *b, const par_pipe_schedule *s, const par_pipe_timeline *planned,
                 const par_pipe_timeline *measured) {
    const settings *o = &b->o;
    const par_pipe_timeline *t[3] = {planned, measured};
    const par_pipe_schedule *of[3] = {s, s};
    const char *titles[3] = {o->compare ? o->schedule : "planned", "measured"}, *bad = NULL;
    int n = measured ? 2 : 1;
    par_pipe_schedule other;
    par_pipe_timeline other_planned;
    if (o->compare) {
        if (!open_schedule(b, o->compare, &other) ||
            par_pipe_simulate(&other, PAR_PIPE_NONBLOCKING, &other_planned))
            return fprintf(stderr, "bench_pipe: %s\n", other.why), 2;
        t[n] = &other_planned, of[n] = &other, titles[n++] = o->compare;
    }
    if (o->svg && par_pipe_svg_compare(of, t, titles, n, o->svg)) bad = o->svg;
    if (o->compare) par_pipe_timeline_close(&other_planned), par_pipe_schedule_close(&other), n--;
    if (!bad && o->perfetto && par_pipe_perfetto(s, t, titles, n, o->perfetto)) bad = o->perfetto;
    if (!bad && o->csv && par_pipe_save(s, o->csv, 0)) bad = o->csv;
    return bad ? perror(bad), 1 : 0;
}
// 0: done; else an exit status.
static int run(bench *b, const char *name, row *x) {
    const int root = !b->world || par_rank(b->world) == 0;
    const settings *o = &b->o;
    par_pipe_schedule s;
    par_pipe_timeline planned, measured;
    memset(x, 0, sizeof *x), memset(&measured, 0, sizeof measured);
    x->name = name;
    if (!open_schedule(b, name, &s)) {
        snprintf(x->text, sizeof x->text, "%s", s.why), x->why = x->text;
        par_pipe_schedule_close(&s);
        return 0;
    }
    if (o->all && root && isatty(2)) fprintf(stderr, "\r%-30s", name);
    plan(&s, x, &planned);
    if (b->world && par_size(b->world) != s.ranks)
        return fprintf(stderr, "bench_pipe: the schedule is for %d ranks; start as many (--ranks)\n",
                       s.ranks),
               2;
    if (b->world && measure(b, &s, x, &measured))
        return fprintf(stderr, "bench_pipe: rank %d: %s\n", par_rank(b->world), par_last_error(b->world)), 1;
    if (root && !o->all) {
        if (o->json)
            print_json(o, x);
        else {
            print_head(), print_row(x);
            if (x->bound > 0)
                printf("no order takes less than %.2f ms: at most %.2f%% remain\n", 1e3 * x->bound,
                       100 * (x->makespan / x->bound - 1));
            const double scale = fmax(planned.makespan, measured.makespan);
            for (int i = 0; i < 2 && o->dead_count; i++) // whole backwards, then what was asked for
                if ((!i || strcmp(name, "1f1b")) && print_alternatives(b, i ? name : "1f1b")) return 2;
            printf(o->replicas > 1 ? "\nplanned, not executed\n" : "\nplanned\n"),
                par_pipe_print(&s, &planned, 100, scale, stdout);
            if (x->ran) printf("\nmeasured\n"), par_pipe_print(&s, &measured, 100, scale, stdout);
        }
        const int bad = files(b, &s, &planned, x->ran ? &measured : NULL);
        if (bad) return bad;
    }
    par_pipe_timeline_close(&planned), par_pipe_timeline_close(&measured);
    par_pipe_schedule_close(&s);
    return 0;
}
static int by_bubble(const void *a, const void *b) {
    const row *x = (const row *)a, *y = (const row *)b;
    const double p = x->why ? 2 : x->simulated, q = y->why ? 2 : y->simulated;
    return p < q ? -1 : p > q;
}
static int run_all(bench *b) {
    const int root = !b->world || par_rank(b->world) == 0, n = PAR_PIPE_SCHEDULE_COUNT;
    row *rows = (row *)calloc((size_t)n, sizeof *rows);
    for (int i = 0; rows && i < n; i++) {
        const int status = run(b, par_pipe_schedules[i].name, &rows[i]);
        if (status) return status;
    }
    if (!rows || !root) return free(rows), 0;
    if (isatty(2)) fprintf(stderr, "\r%30s\r", "");
    qsort(rows, (size_t)n, sizeof *rows, by_bubble);
    for (int i = 0; i < n; i++) rows[i].why = rows[i].why ? rows[i].text : NULL; // sorting moved the texts
    if (!b->o.json) print_head();
    for (int i = 0; i < n; i++) {
        if (rows[i].why && !b->o.json) printf("%-18s %s\n", rows[i].name, rows[i].text);
        if (!rows[i].why) b->o.json ? print_json(&b->o, &rows[i]) : print_row(&rows[i]);
    }
    free(rows);
    return 0;
}

static int run_here(bench *b) {
    row x;
    return b->o.all ? run_all(b) : run(b, b->o.schedule, &x);
}
#if defined(BENCH_CUDA)
static int run_thread(par_comm *world, void *user) { // rank 0's outcome counts
    bench b = *(const bench *)user;
    b.world = world;
    const int opened = open_device(&b) == PAR_OK, status = opened ? run_here(&b) : 1;
    if (!opened) fprintf(stderr, "bench_pipe: rank %d: %s\n", par_rank(world), par_last_error(world));
    par_cuda_close(b.cuda);
    if (par_rank(world) == 0) ((bench *)user)->status = status;
    return !opened;
}
#endif

static int try_outputs(const settings *o) { // 0, or the exit status: what is wrong has been said
    const char *const outputs[] = {o->svg, o->perfetto, o->csv};
    char why[1200];
    for (int i = 0; i < 3; i++) {
        if (outputs[i] && o->all)
            return fprintf(stderr,
                           "bench_pipe: --svg, --perfetto and --csv are of one schedule, without --all\n"),
                   2;
        if (outputs[i] && output_try(outputs[i], why, sizeof why))
            return fprintf(stderr, "bench_pipe: %s\n", why), 1;
    }
    return 0;
}

// 0, or the exit status: what is wrong has been said.
static int check_settings(const settings *o) {
    const int cuda = !strcmp(o->device, "cuda");
    const struct {
        int wrong;
        const char *text;
    } rules[] = {
        {o->compare && !o->svg, "--compare is for --svg"},
        {recompute_of(o->recompute) < 0, "recompute is none, fused or early"},
        {!cuda && strcmp(o->device, "cpu"), "--device is cpu or cuda"},
        {cuda && o->comm_us > 0, "--comm_us is for --device cpu"},
        {o->replicas > 1 && !o->simulate, "--replicas is planned, not executed: add --simulate"},
        {o->dead_text && o->replicas < 2, "--dead needs --replicas 2 or more"},
#if !defined(BENCH_CUDA)
        {cuda, "--device cuda needs build/bench_pipe_cuda (make cuda)"},
#endif
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].wrong) return fprintf(stderr, "bench_pipe: %s\n", rules[i].text), 2;
    if (!options_fit("bench_pipe", (double)o->message, "--message") ||
        !options_fit("bench_pipe", (double)o->b_bytes, "--b_bytes") ||
        !options_fit("bench_pipe", (double)o->w_bytes, "--w_bytes"))
        return 2;
    return try_outputs(o);
}
#define COSTS " --f_us --b_us --w_us --r_us --comm_us --message --b_bytes --w_bytes "
#define OTHERS                                                                                               \
    " --ranks --device --recompute --recompute_count --simulate --steps --svg --perfetto --csv --json "
static const option_answer answers[] = {
    {"--all", COSTS OTHERS " --stages --microbatches --chunks --batches --memory --replicas --dead "},
    {"--schedule", COSTS OTHERS " --compare "}, // a file: stages, chunks and microbatches are the table's
};
#undef COSTS
#undef OTHERS
// The options, as parsed and checked; else *status is the exit status.
static int read_options(int argc, char **argv, settings *o, int *status) {
    o->schedule = "1f1b", o->recompute = "none", o->microbatches = 8, o->batches = 4, o->steps = 5,
    o->replicas = 1;
    o->f_us = o->b_us = o->w_us = 2000, o->message = 16384, o->b_bytes = 65536, o->w_bytes = 32768;
    o->device = "cpu";
#if defined(BENCH_CUDA)
    o->device = "cuda";
#endif
    option options[] = {
        {"--schedule", OPTION_TEXT, &o->schedule,
         "its name (--all shows them), or a FILE.csv as torch's pipelining writes it"},
        {"--all", OPTION_FLAG, &o->all, "a table of all schedules, by their bubbles"},
        {"--stages", OPTION_INT, &o->stages, "ranks in the pipeline; 0: --ranks", 0, INFINITY},
        {"--ranks", OPTION_INT, &o->ranks, "ranks to start on this machine; 0: PAR_RANKS or 4", 0, 1024},
        {"--replicas", OPTION_INT, &o->replicas, "pipelines side by side; needs --simulate", 1, 64},
        {"--dead", OPTION_TEXT, &o->dead_text,
         "REPLICA:STAGE,... dead ranks, whose microbatches go to the same stage of other replicas"},
        {"--device", OPTION_TEXT, &o->device, "cpu, or cuda (build/bench_pipe_cuda)"},
        {"--microbatches", OPTION_INT, &o->microbatches, "in a step", 1, INFINITY},
        {"--chunks", OPTION_INT, &o->chunks, "stages on each rank; 0: what the schedule has", 0, INFINITY},
        {"--batches", OPTION_INT, &o->batches, "in a step, where updates are asynchronous", 1, INFINITY},
        {"--f_us", OPTION_REAL, &o->f_us, "microseconds of forward, of a rank's whole share", 0, 1e9},
        {"--b_us", OPTION_REAL, &o->b_us, "... of the input half of backward", 0, 1e9},
        {"--w_us", OPTION_REAL, &o->w_us, "... of its weight half", 0, 1e9},
        {"--r_us", OPTION_REAL, &o->r_us, "... of recomputation; 0: as forward", 0, 1e9},
        {"--comm_us", OPTION_REAL, &o->comm_us, "... of a message", 0, 1e9},
        {"--message", OPTION_SIZE, &o->message, "bytes of a message", 0, INFINITY},
        {"--b_bytes", OPTION_SIZE, &o->b_bytes,
         "bytes kept from forward until the input half, of a rank's whole share", 0, INFINITY},
        {"--w_bytes", OPTION_SIZE, &o->w_bytes, "... until the weight half", 0, INFINITY},
        {"--memory", OPTION_SIZE, &o->memory,
         "bytes of activations that auto, v_half and v_min may hold; 0: any", 0, INFINITY},
        {"--recompute", OPTION_TEXT, &o->recompute,
         "none, fused (once the gradient is there) or early (before)"},
        {"--recompute_count", OPTION_INT, &o->recompute_count, "of the first so many microbatches; 0: of all",
         0, INFINITY},
        {"--simulate", OPTION_FLAG, &o->simulate, "do not run it"},
        {"--steps", OPTION_INT, &o->steps, "to measure; the shortest counts", 1, 60},
        {"--svg", OPTION_TEXT, &o->svg, "file for a picture"},
        {"--compare", OPTION_TEXT, &o->compare, "another schedule, planned, below the one in --svg"},
        {"--perfetto", OPTION_TEXT, &o->perfetto, "file for ui.perfetto.dev"},
        {"--csv", OPTION_TEXT, &o->csv, "file for the table"},
        {"--json", OPTION_FLAG, &o->json, "one JSON object a line on stdout"},
    };
    enum { COUNT = sizeof options / sizeof options[0] };
    const int parsed = options_parse(argc, argv, options, COUNT,
                                     "bench_pipe: bubbles of pipeline schedules, planned and measured");
    *status =
        parsed == 1 ? 0
        : parsed || options_unused("bench_pipe", options, COUNT, answers, 1 + is_schedule_file(o->schedule))
            ? 2
            : check_settings(o);
    if (o->message < sizeof(double)) o->message = sizeof(double);
    return !parsed && !*status;
}
static int read_dead(settings *o) { // 0, or the exit status
    const char *at = o->dead_text;
    for (int used = 0; at && *at; at += used + (at[used] == ',')) {
        int replica = -1, stage = -1;
        if (sscanf(at, "%4d:%6d%n", &replica, &stage, &used) < 2 || replica < 0 || replica >= o->replicas ||
            stage < 0 || stage >= o->stages || (at[used] && at[used] != ',') || o->dead_count == 64)
            return fprintf(
                       stderr,
                       "bench_pipe: --dead %s: give REPLICA:STAGE,..., at most 64, of replicas 0 to %d and "
                       "stages 0 to %d\n",
                       o->dead_text, o->replicas - 1, o->stages - 1),
                   2;
        o->dead[o->dead_count++] = replica * o->stages + stage;
    }
    return 0;
}
// Complete the numbers of ranks and stages. 0, or the exit status: what cannot be is said once.
static int choose_ranks(bench *b) {
    settings *o = &b->o;
    par_desc desc;
    if (par_defaults(NULL, &desc)) return 1;
    if (!o->ranks && o->stages && o->stages <= 64) o->ranks = o->stages;
    if (!o->ranks) o->ranks = desc.rank_count ? desc.rank_count : 4;
    if (!o->stages) o->stages = o->ranks;
    if (read_dead(o)) return 2;
    par_pipe_schedule s;
    const int possible = o->all || open_schedule(b, o->schedule, &s);
    if (!possible) return fprintf(stderr, "bench_pipe: %s\n", s.why), 2;
    if (!o->all && is_schedule_file(o->schedule)) o->stages = s.ranks, o->microbatches = s.microbatches;
    if (!o->all) par_pipe_schedule_close(&s);
    if (o->compare) {
        if (!open_schedule(b, o->compare, &s)) return fprintf(stderr, "bench_pipe: %s\n", s.why), 2;
        par_pipe_schedule_close(&s);
    }
    if (!o->simulate && o->stages != o->ranks)
        return fprintf(stderr, "bench_pipe: %d stages need as many ranks (--ranks), or --simulate\n",
                       o->stages),
               2;
    return 0;
}

int main(int argc, char **argv) {
    bench b;
    memset(&b, 0, sizeof b);
    settings *o = &b.o;
    int status;
    if (!read_options(argc, argv, o, &status)) return status;
    if ((status = choose_ranks(&b)) != 0) return status;
#if defined(BENCH_CUDA)
    if (!strcmp(o->device, "cuda") && !o->simulate) { // processes that share a GPU take turns; threads do not
        par_desc desc;
        memset(&desc, 0, sizeof desc), desc.rank_count = o->ranks;
        if (par_run_threads(&desc, run_thread, &b) != PAR_OK) b.status = 1;
        return output_failed("bench_pipe") && !b.status ? 1 : b.status;
    }
#endif
    if (!o->simulate) {
        par_desc d;
        memset(&d, 0, sizeof d);
        d.rank_count = o->ranks;
        prctl(PR_SET_TIMERSLACK, 1ul);
        if (par_open(&d, &b.world)) return 1;
    }
    status = run_here(&b);
    if (par_close(b.world) != PAR_OK && !status) status = 1;
    return output_failed("bench_pipe") && !status ? 1 : status;
}

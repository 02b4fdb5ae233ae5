// bench_fault.c - how long a training stops when a rank dies: from the kill to the end of the next step, by
// buddies, and by starting the job again from a checkpoint; how long par_agree and par_shrink take then.
//
//     build/bench_fault                     4 ranks, 50 deaths of each; then votes of 2 to 64 ranks
//     build/bench_fault --ranks 2 --runs 3 --most 2 --json
//     build/bench_fault --units 8 --width 1024 --rows 64 --runs 10 --most 2        larger states
//     build/bench_fault --node_ranks 2      the same over TCP, on pretended nodes of two ranks
//
// A rank is killed by a timer, at a random moment of a step: any rank, rank 0 too. One rank fewer goes on, in
// both ways, which alternate and have the same victims and moments. A job that starts again has saved its
// checkpoint after every step, so that no step is lost to it; its processes are forked, and load no program
// anew. Times are of the last rank: a part ends when all that are left have ended it. Medians of parts do not
// add up to the median of the whole. What buddies cost while nobody dies, build/bench_zero tells.
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE // nftw
#endif
#include "par.h"
#include "par_zero.h"

#include "../examples/options.h"
#include "../examples/median.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 256, STEPS = 4 }; // before the death, of which the first does not count
enum { DETECTED, SHRUNK, RECOVERED, STEPPED, PARTS };
enum { ENDED = SHRUNK, LOADED = RECOVERED };                      // of a job that starts again
enum { AGREES = DETECTED, AGREED = SHRUNK, SHRINKS = RECOVERED }; // of a vote, as is STEPPED: its end

typedef struct marks {          // in memory that all processes share; times of CLOCK_MONOTONIC
    double killed, step, saved; // when; an undisturbed step of the victim; saving after it
    int failed;                 // a rank has met another error than a death
    double at[MOST_RANKS][PARTS];
    double peak[MOST_RANKS]; // bytes of memory that a rank has had at most, when its states were there
} marks;
static marks *shared; // for the signal's handler, too

typedef struct settings {
    int ranks, runs, votes, most, node_ranks, units, width, rows, json; // node_ranks 0: on one node
    const char *dir;
} settings;
typedef struct bench {
    settings o;
    FILE *said; // what the ranks print about the deaths; shown where a run fails
    char path[4300];
    pid_t pid;
} bench;
typedef struct job {
    const bench *b;
    int ranks, stage, restart, resumes, victim;
    double moment; // of its death, in steps
} job;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void die(int signal) {
    (void)signal;
    shared->killed = now();
    kill(getpid(), SIGKILL);
}
static int is_death(par_result r) { return r == PAR_ERR_PEER_DIED || r == PAR_ERR_REVOKED; }
static void need(const par_comm *c, par_result r, const char *what) {
    if (r == PAR_OK) return;
    fprintf(stderr, "bench_fault: rank %d of %d: %s: %s\n", par_rank(c), par_size(c), what,
            par_last_error(c));
    shared->failed = 1;
    _exit(1);
}
static void mark(const par_comm *c, int part) {
    struct rusage use;
    const int me = par_world_rank(c, par_rank(c));
    shared->at[me][part] = now();
    if (part == RECOVERED && !getrusage(RUSAGE_SELF, &use)) shared->peak[me] = 1024.0 * (double)use.ru_maxrss;
}

// ---- a training -------------------------------------------------------------------------------------------

typedef struct model {
    const job *j;
    par_zero *z;
    float *x, *y;
} model;
static void some_values(void *user, size_t first, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = par_uniform(1, (uint64_t) * (int *)user, first + i) - 0.5f;
}
static par_zero_checkpoint files_of(const model *m) {
    par_zero_checkpoint f;
    memset(&f, 0, sizeof f);
    f.dir = m->j->b->path;
    return f;
}
static void open_model(model *m, const job *j, par_comm *world) {
    const settings *o = &j->b->o;
    const size_t n = (size_t)o->width, values = (size_t)o->rows * n;
    par_zero_desc d;
    memset(&d, 0, sizeof d);
    d.comm = world, d.stage = j->stage, d.buddies = !j->restart, d.hyper[0].lr = 1e-5f;
    m->j = j, m->x = (float *)calloc(2 * values, sizeof *m->x), m->y = m->x ? m->x + values : NULL;
    if (!m->x) need(world, PAR_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < values; i++) m->x[i] = par_uniform(2, 1, i) - 0.5f;
    need(world, par_zero_open(&d, &m->z), "par_zero_open");
    for (int u = 0; u < o->units; u++) {
        par_zero_tensor t;
        char name[32];
        memset(&t, 0, sizeof t), snprintf(name, sizeof name, "w%d", u);
        t.name = name, t.dims = 2, t.shape[0] = t.shape[1] = n;
        par_zero_add_unit(m->z, "layer"), par_zero_add_tensor(m->z, &t); // what these refuse, commit refuses
    }
    need(world, par_zero_commit(m->z), "par_zero_commit");
    const par_zero_checkpoint f = files_of(m);
    if (j->resumes) need(world, par_zero_load(m->z, &f), "par_zero_load");
    for (int u = 0; u < o->units && !j->resumes; u++)
        need(world, par_zero_fill(m->z, u, PAR_ZERO_VALUE, some_values, &u), "par_zero_fill");
}
static par_result compute(const model *m, int unit, int backward) {
    const size_t n = (size_t)m->j->b->o.width, rows = (size_t)m->j->b->o.rows;
    const float *w = (const float *)par_zero_data(m->z, unit);
    par_result r = PAR_OK;
    if (backward) r = par_gemm(1, 0, n, n, rows, 1e-6f, m->y, n, m->x, n, 1, par_zero_grad(m->z, unit), n);
    return r ? r : par_gemm(0, 0, rows, n, n, 1e-3f, m->x, n, w, n, 0, m->y, n);
}
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        const par_result result = (call);                                                                    \
        if (result) return result;                                                                           \
    } while (0)
static par_result one_step(const model *m) {
    const int units = m->j->b->o.units;
    for (int u = 0; u < units; u++) {
        TRY(par_zero_forward_begin(m->z, u));
        TRY(compute(m, u, 0));
        TRY(par_zero_forward_end(m->z, u));
    }
    for (int u = units - 1; u >= 0; u--) {
        TRY(par_zero_backward_begin(m->z, u));
        TRY(compute(m, u, 1));
        TRY(par_zero_backward_end(m->z, u));
    }
    return par_zero_step(m->z, 1, NULL);
}
// Steps until a rank dies: the victim's timer runs in all but the first ones, and not while it saves.
static void train_until_a_death(const model *m, par_comm *world) {
    const int dies = par_rank(world) == m->j->victim;
    const par_zero_checkpoint f = files_of(m);
    struct itimerval timer, none;
    memset(&timer, 0, sizeof timer), memset(&none, 0, sizeof none);
    signal(SIGALRM, die);
    for (int i = 0; i < STEPS + 1000; i++) { // where none has died then, run_job says so
        if (i >= STEPS && dies) {
            const double us =
                MAX(m->j->moment * shared->step * 1e6 * STEPS / i, 1.0); // steps may be shorter now
            timer.it_value.tv_sec = (time_t)(us / 1e6);
            timer.it_value.tv_usec = (suseconds_t)(us - 1e6 * (double)timer.it_value.tv_sec);
            setitimer(ITIMER_REAL, &timer, NULL);
        }
        const double start = now();
        par_result r = one_step(m);
        if (dies) setitimer(ITIMER_REAL, &none, NULL);
        const double stepped = now();
        if (!r && m->j->restart) r = par_zero_save(m->z, &f);
        if (is_death(r)) break;
        need(world, r, "a step");
        if (dies && i && i < STEPS) shared->step = stepped - start, shared->saved = now() - stepped;
    }
    mark(world, DETECTED);
    need(world, par_revoke(world), "par_revoke"); // who waits for another rank than the dead one
}
static void close_all(model *m, par_comm *c) {
    need(c, par_zero_close(m->z), "par_zero_close");
    free(m->x);
    if (par_close(c)) shared->failed = 1;
}
static void go_on(model *m, par_comm *world) { // by buddies
    par_zero_recovery got;
    par_zero_comms next;
    par_comm *left;
    memset(&next, 0, sizeof next);
    need(world, par_shrink(world, &left), "par_shrink");
    mark(left, SHRUNK);
    next.comm = left, next.recovery = &got;
    need(left, par_zero_recover(m->z, left, &next), "par_zero_recover");
    par_close(world); // broken
    mark(left, RECOVERED);
    need(left, one_step(m), "the next step");
    mark(left, STEPPED);
    if (par_size(left) != m->j->ranks - 1) need(left, PAR_ERR_MISMATCH, "another number of ranks is left");
    close_all(m, left);
}
static par_result open_world(const job *j, par_comm **world) {
    par_desc d;
    memset(&d, 0, sizeof d);
    d.elastic = 1, d.rank_count = j->ranks, d.run_again = -1, d.timeout_s = 60;
    d.node_ranks = j->b->o.node_ranks;
    return par_open(&d, world);
}
static int train(const job *j) { // in each rank; its exit status
    par_comm *world;
    model m;
    if (open_world(j, &world)) return 1;
    open_model(&m, j, world);
    if (j->resumes) {
        mark(world, LOADED);
        need(world, one_step(&m), "the first step");
        mark(world, STEPPED);
        close_all(&m, world);
        return 0;
    }
    train_until_a_death(&m, world);
    if (j->restart) _exit(0); // with all others: the job starts again
    go_on(&m, world);
    return 0;
}
static int vote(const job *j) {
    par_comm *world, *left;
    uint64_t value = UINT64_MAX;
    par_result r;
    if (open_world(j, &world)) return 1;
    r = par_barrier(world);
    if (par_rank(world) == j->victim) die(0); // where others may still be in it
    while (!r) r = par_barrier(world);
    if (!is_death(r)) need(world, r, "par_barrier");
    mark(world, AGREES);
    r = par_agree(world, &value);
    if (r != PAR_ERR_PEER_DIED) need(world, r ? r : PAR_ERR_MISMATCH, "par_agree");
    mark(world, AGREED);
    mark(world, SHRINKS);
    need(world, par_shrink(world, &left), "par_shrink");
    mark(left, STEPPED);
    par_close(world);
    if (par_size(left) != j->ranks - 1) need(left, PAR_ERR_MISMATCH, "another number of ranks is left");
    if (par_close(left)) shared->failed = 1;
    return 0;
}

// ---- jobs -------------------------------------------------------------------------------------------------

static void give_up(const bench *b, const char *what, const job *j) {
    char line[512];
    rewind(b->said);
    while (fgets(line, sizeof line, b->said)) fputs(line, stderr);
    fprintf(stderr, "bench_fault: %s: %d ranks, stage %d, rank %d dies after %.3f steps\n", what, j->ranks,
            j->stage, j->victim, j->moment);
    exit(1);
}
static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}
// As a launcher does; the status of ranks that were not killed.
static int launch(int (*in_rank)(const job *), const job *j) {
    int status, worst = 0;
    const int pid = getpid();
    set_number("WORLD_SIZE", j->ranks);
    set_number("MASTER_PORT", 10000 + pid % 10000); // if it is taken rank 0 waits
    set_number("PAR_JOB", pid);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    for (int r = 0; r < j->ranks; r++)
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            set_number("RANK", r);
            exit(in_rank(j));
        }
    while (wait(&status) > 0)
        if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) worst = 1;
    return worst;
}
// Runs a job in a process of its own, the ranks' supervisor. ends: its status is to be 0.
static void run_job(const bench *b, int (*in_rank)(const job *), const job *j, int ends) {
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != b->pid || dup2(fileno(b->said), 2) < 0) _exit(1);
        _exit(b->o.node_ranks ? launch(in_rank, j) : in_rank(j));
    }
    if (pid < 0) give_up(b, strerror(errno), j);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (shared->failed || (ends && status)) give_up(b, "a run has failed", j);
    if (shared->killed <= 0) give_up(b, "no rank has died", j);
}
static void begin_run(const bench *b) {
    memset(shared, 0, sizeof *shared);
    if (ftruncate(fileno(b->said), 0)) perror("bench_fault");
    rewind(b->said);
}
static double last(int part) { // of all ranks
    double t = 0;
    for (int r = 0; r < MOST_RANKS; r++) t = MAX(t, shared->at[r][part]);
    return t;
}
static int remove_one(const char *path, const struct stat *s, int type, struct FTW *at) {
    (void)s, (void)type, (void)at;
    return remove(path);
}
static void remove_files(const bench *b) { nftw(b->path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

enum { KINDS = 2, WHOLE = PARTS, STEP, SAVED, PEAK, TIMES }; // after the parts; PEAK: bytes
typedef struct times {
    double *t[TIMES]; // per run
} times;
static void measure_death(const bench *b, job *j, times *t, int run) {
    const int restart = j->restart;
    double ended = 0, at[PARTS], before;
    begin_run(b);
    run_job(b, train, j, !restart);
    if (restart) {
        job again = *j;
        ended = now();
        again.resumes = 1, again.ranks = j->ranks - 1;
        run_job(b, train, &again, 1);
        remove_files(b);
    }
    before = shared->killed;
    for (int p = 0; p < PARTS; p++) {
        at[p] = restart && p == ENDED ? ended : last(p);
        t->t[p][run] = at[p] - before;
        if (at[p] < before) give_up(b, "the parts of a run are not in order", j);
        before = at[p];
    }
    t->t[WHOLE][run] = at[STEPPED] - shared->killed;
    t->t[STEP][run] = shared->step, t->t[SAVED][run] = shared->saved;
    for (int r = 0; r < MOST_RANKS; r++) t->t[PEAK][run] = MAX(t->t[PEAK][run], shared->peak[r]);
}

// ---- rows -------------------------------------------------------------------------------------------------

static void print_deaths(const bench *b, int stage, int restart, times *x, double ratio) {
    static const char *const parts[KINDS][PARTS] = {{"detected", "shrunk", "recovered", "step"},
                                                    {"detected", "ended", "loaded", "step"}};
    const int n = b->o.runs;
    double m[TIMES], worst;
    for (int i = 0; i < TIMES; i++) m[i] = (i == PEAK ? 1 : 1e6) * median(x->t[i], n);
    worst = 1e6 * x->t[WHOLE][n - 1]; // median has sorted it
    if (b->o.json) {
        json_line j = json_begin(stdout);
        json_add(
            &j,
            "fault:%s zero:%d ranks:%d node_ranks:%d units:%d width:%d runs:%d time_us:%.1f worst_us:%.1f",
            restart ? "restart" : "buddies", stage, b->o.ranks, b->o.node_ranks, b->o.units, b->o.width, n,
            m[WHOLE], worst);
        for (int p = 0; p < PARTS; p++) {
            char field[32];
            snprintf(field, sizeof field, "%s_us:%%.1f", parts[restart][p]);
            json_add(&j, field, m[p]);
        }
        json_add(&j, "undisturbed_us:%.1f peak_bytes:%.0f", m[STEP], m[PEAK]);
        if (restart) json_add(&j, "saved_us:%.1f ratio:%.4f", m[SAVED], ratio);
        json_end(&j);
        return;
    }
    printf("ZeRO-%d, %s: %9.2f ms, worst %9.2f;", stage, restart ? "starts again" : "buddies     ",
           m[WHOLE] * 1e-3, worst * 1e-3);
    for (int p = 0; p < PARTS; p++) printf(" %s %.2f%s", parts[restart][p], m[p] * 1e-3, p < 3 ? "," : "");
    printf("; undisturbed step %.2f; peak %.0f MB", m[STEP] * 1e-3, m[PEAK] * 1e-6);
    if (restart) printf(", saving %.2f; %.2f times as long as by buddies", m[SAVED] * 1e-3, ratio);
    puts("");
}
static double measure_stage(const bench *b, int stage) { // the time of starting again over that of buddies
    const int n = b->o.runs;
    times t[KINDS];
    double *memory = (double *)calloc((size_t)(KINDS * TIMES * n), sizeof *memory), ratio;
    if (!memory) exit(fprintf(stderr, "bench_fault: out of memory\n") != 0);
    for (int i = 0; i < KINDS * TIMES; i++) t[i / TIMES].t[i % TIMES] = memory + (size_t)i * (size_t)n;
    for (int run = 0; run < n; run++)
        for (int restart = 0; restart < KINDS; restart++) {
            job j;
            memset(&j, 0, sizeof j);
            j.b = b, j.ranks = b->o.ranks, j.stage = stage, j.restart = restart;
            j.victim = (int)(par_uniform(1, 1, (uint64_t)run) * (float)b->o.ranks) % b->o.ranks;
            j.moment = par_uniform(1, 2, (uint64_t)run);
            measure_death(b, &j, &t[restart], run);
        }
    ratio = median_ratio(t[1].t[WHOLE], t[0].t[WHOLE], n);
    for (int restart = 0; restart < KINDS; restart++) print_deaths(b, stage, restart, &t[restart], ratio);
    free(memory);
    return ratio;
}
// From the moment when the last survivor calls to that when the last one has returned.
static void measure_votes(const bench *b, int ranks) {
    const int n = b->o.votes;
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    double *agree = (double *)calloc(2 * (size_t)n, sizeof *agree), *shrink = agree + n, m[2];
    if (!agree) exit(fprintf(stderr, "bench_fault: out of memory\n") != 0);
    for (int run = 0; run < n; run++) {
        job j;
        memset(&j, 0, sizeof j);
        j.b = b, j.ranks = ranks;
        j.victim = (int)(par_uniform(1, 3, (uint64_t)run) * (float)ranks) % ranks;
        begin_run(b);
        run_job(b, vote, &j, 1);
        agree[run] = last(AGREED) - last(AGREES);
        shrink[run] = last(STEPPED) - last(SHRINKS);
    }
    m[0] = 1e6 * median(agree, n), m[1] = 1e6 * median(shrink, n);
    if (b->o.json)
        json_print("fault:%s ranks:%d node_ranks:%d cores:%d runs:%d agree_us:%.2f agree_worst_us:%.2f "
                   "shrink_us:%.2f "
                   "shrink_worst_us:%.2f",
                   "votes", ranks, b->o.node_ranks, cores, n, m[0], 1e6 * agree[n - 1], m[1],
                   1e6 * shrink[n - 1]);
    else
        printf("%3d ranks on %d cores: par_agree %9.1f us, worst %9.1f; par_shrink %9.1f us, worst %9.1f%s\n",
               ranks, cores, m[0], 1e6 * agree[n - 1], m[1], 1e6 * shrink[n - 1],
               ranks > cores ? "; ranks share cores" : "");
    free(agree);
}

static int parse_settings(int argc, char **argv, settings *o) { // as options_parse
    o->ranks = 4, o->runs = 50, o->votes = 20, o->most = 64;
    o->units = 4, o->width = 256, o->rows = 256;
    o->dir = getenv("TMPDIR") ? getenv("TMPDIR") : ".";
    option options[] = {
        {"--ranks", OPTION_INT, &o->ranks, "that train, before one dies", 2, 64},
        {"--runs", OPTION_INT, &o->runs, "deaths of each way to go on", 1, 1e6},
        {"--votes", OPTION_INT, &o->votes, "deaths for each number of ranks that vote", 1, 1e6},
        {"--most", OPTION_INT, &o->most, "ranks that vote: 2, 4, 8 and so on up to it", 2, MOST_RANKS},
        {"--node_ranks", OPTION_INT, &o->node_ranks, "over TCP, with so many ranks on a node; 0: not", 0, 64},
        {"--units", OPTION_INT, &o->units, "units, each a square matrix", 1, INFINITY},
        {"--width", OPTION_INT, &o->width, "its side", 1, INFINITY},
        {"--rows", OPTION_INT, &o->rows, "tokens: how much is computed for each", 1, INFINITY},
        {"--dir", OPTION_TEXT, &o->dir, "where checkpoints go"},
        {"--json", OPTION_FLAG, &o->json, "one JSON object a line; the last is the summary"},
    };
    const int parsed = options_parse(argc, argv, options, sizeof options / sizeof options[0],
                                     "bench_fault: kill a rank, and time how the others go on");
    if (parsed) return parsed;
    if (!options_fit("bench_fault", (double)o->units * o->width * o->width, "units x width x width") ||
        !options_fit("bench_fault", 2.0 * o->rows * o->width, "2 x rows x width"))
        return 2;
    if (par_launched(NULL))
        return fprintf(stderr, "bench_fault: it starts its ranks itself: run it without a launcher\n"), 2;
    return 0;
}
static const bench *opened; // whose directory is removed in the end
static void clean(void) {
    if (getpid() == opened->pid) remove_files(opened);
}
int main(int argc, char **argv) {
    bench b;
    char why[1200];
    memset(&b, 0, sizeof b);
    const int parsed = parse_settings(argc, argv, &b.o);
    if (parsed) return parsed == 1 ? 0 : 2;
    if (output_try_in(b.o.dir, b.path, sizeof b.path, why, sizeof why))
        return fprintf(stderr, "bench_fault: %s\n", why), 1;
    unlink(b.path); // it becomes the checkpoint's directory
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    b.said = tmpfile();
    if (memory == MAP_FAILED || !b.said) return perror("bench_fault"), 1;
    shared = (marks *)memory;
    fcntl(fileno(b.said), F_SETFL, O_RDWR | O_APPEND);
    b.pid = getpid(), opened = &b;
    atexit(clean);
    if (!b.o.json)
        printf(
            "%d ranks train %d x %d x %d weights; from a death to the end of the next step, medians of %d, "
            "in ms\n",
            b.o.ranks, b.o.units, b.o.width, b.o.width, b.o.runs);
    const double zero1 = measure_stage(&b, 1), zero3 = measure_stage(&b, 3);
    for (int n = 2; n <= b.o.most; n *= 2) measure_votes(&b, n);
    if (b.o.json)
        json_print("summary:%b restart_vs_buddies_zero1:%.4f restart_vs_buddies_zero3:%.4f", 1, zero1, zero3);
    return output_failed("bench_fault");
}

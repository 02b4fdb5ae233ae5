// test.h - a small harness: each test runs on n ranks in processes of its own, with a deadline.
//
//     test_x                          run every test, in the settings that it needs
//     test_x --full                   run every test with every launch method, number of ranks and nodes
//     test_x --only NAME --ranks 4 --launch fork --node 2    run some of them
//     test_x --worker fork 4 2 NAME   run one test in this process, for a debugger
//     mpiexec -n 4 test_x_mpi --worker mpi 4 0 all            run all tests under MPI
//
// A setting has three axes: launch method, number of ranks, ranks of a pretended node. A test names those
// that matter to it (none: all three). It runs in a small set of settings that covers every pair of values
// of two axes (pairwise testing). Settings run in parallel. CHECK_LOG=FILE appends a line for each setting,
// with tabs between: seconds, ok or FAIL, this program, the setting, the command that runs it again, and the
// seconds of processors.
#ifndef TEST_H
#define TEST_H

#if !defined(TEST_TCP)
#define TEST_TCP 0 // 1: tests run over TCP even without --launch tcp
#endif
#if !defined(TEST_FEWER)
#define TEST_FEWER 0 // 1, 2: fewer settings, for slow builds (ASan, TSan)
#endif

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void (*test_fn)(par_comm *world);
// What a test needs. ALONE: forked ranks. FAULT: it may break its comm. KILL: processes, and it may break its
// comm. SERIAL: one rank.
enum { TEST_ANY, TEST_ALONE, TEST_FAULT, TEST_KILL, TEST_SERIAL, TEST_KINDS = 7 };
enum { TEST_LAUNCHES = 8, TEST_RANKS = 16, TEST_NODES = 32, TEST_AXES = 56 }; // axes that matter; none: all
// POWERS: only on 1, 2, 4, 8 ranks. PROGRESS: ranks have a progress thread. SMALL: more than 5 ranks only
// with --ranks or --full. BIND: ranks are bound to processors; others are not when tests run in parallel.
enum { TEST_POWERS = 64, TEST_PROGRESS = 128, TEST_SMALL = 256, TEST_BIND = 512 };
enum { TEST_SLOWDOWN = 5 }; // deadlines are this many times longer; on a busy machine by its load, too

typedef struct test {
    const char *name;
    test_fn fn;
    int kind, min_ranks; // kind | axes | POWERS, PROGRESS, SMALL
    double deadline_s;   // on a quiet machine
} test;
static int test_kind(const test *t) { return t->kind & TEST_KINDS; }

extern const test tests[];
extern const int test_count;

typedef struct test_words { // shared by the ranks of a test, for synchronization without the kit
    uint32_t issued;        // a flag: the rank that sets it has issued its calls
    uint32_t count;         // of test_arrive
} test_words;
typedef struct test_state { // shared by all ranks of a worker
    int failures, checks;
    test_words words;
} test_state;
static test_state *test_shared;
static char test_offload[512] = "file:/tmp"; // for offloading to files: "file:" and test_dir
#define test_dir (test_offload + 5)          // for files of tests: TMPDIR, or /tmp
static int test_node_ranks;

static void test_fail(const char *file, int line, int rank, const char *text, const char *why) {
    if (__atomic_add_fetch(&test_shared->failures, 1, __ATOMIC_SEQ_CST) <= 8)
        fprintf(stderr, "%s:%d: rank %d: CHECK(%s) failed%s%s\n", file, line, rank, text, why[0] ? ": " : "",
                why);
}
#define CHECK(world, condition)                                                                              \
    do {                                                                                                     \
        __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);                                       \
        if (!(condition)) test_fail(__FILE__, __LINE__, par_rank(world), #condition, par_last_error(world)); \
    } while (0)
#define CHECK_OK(world, call) CHECK(world, (call) == PAR_OK)
// The larger of two errors, where NaN counts as infinite: fmax would leave it out.
static inline int is_float(par_dtype d) { return par_dtype_traits_of(d)->is_float; }
static inline double test_larger(double a, double b) { return b <= a ? a : b == b ? b : INFINITY; }

// Synchronization without the kit: a rank adds 1 to a counter, and another waits until it is `count`.
static inline void test_arrive(test_words *words) { __atomic_add_fetch(&words->count, 1, __ATOMIC_SEQ_CST); }
static inline void test_wait_for(const test_words *words, int count) {
    while (__atomic_load_n(&words->count, __ATOMIC_SEQ_CST) < (uint32_t)count) usleep(200);
}

static int test_runs_here(const test *t, const char *launch, int ranks) {
    const int kind = test_kind(t);
    if (kind == TEST_SERIAL) return ranks == 1 && !strcmp(launch, "fork");
    if (ranks < t->min_ranks || (t->kind & TEST_POWERS && ranks & (ranks - 1))) return 0;
    if (kind == TEST_ALONE) return !strcmp(launch, "fork");
    if (t->kind & TEST_PROGRESS && !strcmp(launch, "mpi")) return 0; // the world is open already, without one
    if (kind == TEST_KILL) return strcmp(launch, "threads") != 0 && strcmp(launch, "mpi") != 0;
    if (kind == TEST_FAULT) return strcmp(launch, "mpi") != 0;
    return 1;
}
static int test_may_break(const test *t) { return test_kind(t) == TEST_FAULT || test_kind(t) == TEST_KILL; }

// When workers run in parallel, ranks yield soon instead of spinning.
static void test_call(const test *t, par_comm *world) {
    if (getenv("PAR_TEST_BESIDE")) *test_spin_limit(world) = PAR__MIN(*test_spin_limit(world), 50u);
    t->fn(world);
}
// Fork a child that is killed when this process ends.
static pid_t test_fork(void) {
    const pid_t parent = getpid(), child = fork();
    if (child == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)) _exit(1);
    return child;
}

static par_desc test_ranks(int count) { // for par_run_threads
    par_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.rank_count = count;
    return desc;
}
static int test_thread(par_comm *world, void *user) { return test_call((const test *)user, world), 0; }

// A port for rank 0. A lock, shared with `port` of tests/lib.sh, reserves it until this process and its ranks
// have ended. It is below the ephemeral ports: one of those could be the source port of any connection, and a
// rank that connects to it before rank 0 listens could connect to itself.
static int test_port(void) {
    char path[512], file[540];
    struct sockaddr_in a;
    snprintf(path, sizeof path, "%.400s/par_ports", test_dir);
    if (mkdir(path, 01777) == 0) chmod(path, 01777);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    for (int i = 0; i < 10000; i++) {
        const int port = 10000 + (int)(((unsigned)getpid() * 7 + (unsigned)i) % 10000);
        snprintf(file, sizeof file, "%s/%d", path, port);
        int lock = open(file, O_RDONLY); // also one that another user has made
        if (lock < 0 && (lock = open(file, O_RDONLY | O_CREAT, 0644)) >= 0) fchmod(lock, 0644);
        const int s = socket(AF_INET, SOCK_STREAM, 0);
        const int locked = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0;
        a.sin_port = htons((uint16_t)port);
        const int free_one = locked && bind(s, (struct sockaddr *)&a, sizeof a) == 0;
        close(s);
        if (free_one) return port; // the lock stays
        if (lock >= 0) close(lock);
    }
    return -1;
}

// Start ranks with torchrun's variables; this process becomes rank 0. Returns the rank of the process.
static int test_launch(int ranks, pid_t *children) {
    char text[16];
    int rank = ranks;
    const int port = test_port();
    if (port < 0) return fprintf(stderr, "no port is free, or no file can be made in par_ports\n"), -1;
    snprintf(text, sizeof text, "%d", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1), setenv("MASTER_PORT", text, 1);
    snprintf(text, sizeof text, "%d", ranks);
    setenv("WORLD_SIZE", text, 1);
    while (--rank > 0)
        if ((children[rank] = test_fork()) == 0) break;
    snprintf(text, sizeof text, "%d", rank);
    return setenv("RANK", text, 1), rank;
}
static int test_run_with(const char *launch, int ranks, const test *t);
static int test_over_tcp(int ranks, const test *t) {
    pid_t children[64];
    const int rank = test_launch(ranks, children);
    int status, failed = rank < 0 || test_run_with("launched", ranks, t);
    if (rank) _exit(failed);
    for (int r = 1; r < ranks; r++)
        if (waitpid(children[r], &status, 0) < 0 || status) failed |= !test_may_break(t);
    return failed;
}

static int test_run_with(const char *launch, int ranks, const test *t) {
    char text[16];
    par_comm *world;
    snprintf(text, sizeof text, "%d", ranks);
    if (t->kind & TEST_PROGRESS) setenv("PAR_PROGRESS", "1", 1);
    if (t->kind & TEST_BIND || getenv("PAR_TEST_BESIDE"))
        setenv("PAR_BIND", t->kind & TEST_BIND ? "core" : "0", 1);
    if (!strcmp(launch, "tcp")) return test_over_tcp(ranks, t);
    if (!strcmp(launch, "threads")) {
        const par_desc desc = test_ranks(ranks);
        const par_result r = par_run_threads(&desc, test_thread, (void *)(uintptr_t)t);
        return !test_may_break(t) && r != PAR_OK;
    }
    if (strcmp(launch, "mpi") && strcmp(launch, "launched")) setenv("PAR_RANKS", text, 1);
    if (par_open(NULL, &world)) return 1;
    test_call(t, world);
    const par_result r = par_close(world);
    return !test_may_break(t) && r != PAR_OK;
}

static int test_under_mpi(int ranks, const char *name) { // all tests in one job
    par_comm *world;
    int failed = 0, passed = 0;
    if (par_open(NULL, &world)) return 1;
    for (int i = 0; i < test_count; i++) {
        const int named = !strcmp(name, tests[i].name);
        if (!named && (strcmp(name, "all") || !test_runs_here(&tests[i], "mpi", ranks))) continue;
        int before = test_shared->failures, bad;
        tests[i].fn(world);
        if (test_kind(&tests[i]) == TEST_KILL) _exit(test_shared->failures != 0); // MPI cannot go on
        bad = test_shared->failures > before;
        if (par_all_reduce(&bad, &bad, 1, PAR_I32, PAR_MAX, world)) bad = 1;
        bad ? failed++ : passed++;
        if (par_rank(world) == 0 && bad)
            printf("FAIL %s, %d ranks, mpi, node %d\n", tests[i].name, ranks, test_node_ranks);
    }
    if (par_rank(world) == 0)
        printf("mpi, %d ranks, node %d: %d passed, %d failed, 0 skipped\n", ranks, test_node_ranks, passed,
               failed);
    fflush(stdout);
    return par_close(world) != PAR_OK || failed || !passed; // a name that no test has is a failure
}

static int test_worker(char **argv) { // launch method, ranks, node ranks, test
    const int ranks = atoi(argv[1]);
    test_shared = (test_state *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    test_node_ranks = atoi(argv[2]);
    if (test_node_ranks) setenv("PAR_NODE_RANKS", argv[2], 1);
    if (!strcmp(argv[0], "mpi")) return test_under_mpi(ranks, argv[3]);
    for (int i = 0; i < test_count; i++)
        if (!strcmp(argv[3], tests[i].name)) {
            const int r = test_run_with(argv[0], ranks, &tests[i]);
            if (!test_shared->failures && !test_shared->checks)
                return fprintf(stderr, "nothing was checked\n"), 1;
            return r || test_shared->failures;
        }
    return fprintf(stderr, "no test named %s\n", argv[3]), 2;
}

static double test_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *const test_launch_methods[] = {"fork", "threads", "tcp"};
typedef struct test_options { // NULL, 0, -1: not given
    const char *self, *only, *launch;
    int ranks, node, full, jobs;
} test_options;
typedef struct test_run { // a test in a setting, run by a worker process
    const test *t;
    int launch, ranks, node;
    int out; // pipe of its output, which ends when all its processes have ended; -1: ended, or not started
    pid_t pid;
    double start, end, seconds, processor_seconds;
    const char *failed; // NULL: it passed
    size_t said;
    char *text;
} test_run;
typedef struct test_list {
    test_run *runs;
    int count, next, reported; // next: the first not started; reported: the first not reported
    int ranks;                 // of all running workers together
} test_list;

// ---- which settings ---------------------------------------------------------------------------------------

static int test_valid(const test *t, const test_options *o, int b, int ranks, int k) {
    if (!test_runs_here(t, test_launch_methods[b], ranks)) return 0;
    if (t->kind & TEST_SMALL && ranks > 5 && !o->full && !o->ranks) return 0;
    if (b == 2 && (ranks < 2 || ranks > 5 || k > 2)) return 0;
    if (b == 2 && ((!TEST_TCP && !o->launch) || (!k && ranks != 3))) return 0;
    if ((k && ranks < 2) || (k == 3 && ranks < 4)) return 0;
    if (k && test_kind(t) != TEST_ANY && b < 2) return 0;
    if (k && b == 1 && ranks > 5) return 0; // fewer ranks suffice
    // 8 ranks only on even nodes of 2. 7 ranks only on uneven nodes of 3, and if they are asked for: 5 are no
    // power of two either, and three uneven nodes of 2.
    if (ranks == 7 && !o->full && !o->ranks) return 0;
    if (k && ranks > 5 && k != (ranks == 8 ? 2 : 3) && !o->full && o->node < 0) return 0;
    if (TEST_FEWER && (k == 1 || k == 3)) return 0;
    if (o->launch && strcmp(o->launch, test_launch_methods[b])) return 0;
    return (!o->ranks || o->ranks == ranks) && (o->node < 0 || o->node == k);
}
// A setting's value on an axis; and the cell of its values on a pair of axes (pair: 0 to 2).
static int test_axis_value(const test_run *r, int axis) {
    return axis == 0 ? r->launch : axis == 1 ? r->ranks : r->node;
}
static unsigned char *test_pair_seen(unsigned char (*seen)[16][16], const test_run *r, int pair, int axes) {
    const int a = pair == 2 ? 1 : 0, b = pair == 0 ? 1 : 2; // an axis that does not matter counts as 0
    return &seen[pair][axes & TEST_LAUNCHES << a ? test_axis_value(r, a) & 15 : 0]
                [axes & TEST_LAUNCHES << b ? test_axis_value(r, b) & 15 : 0];
}
// Keep, greedily, a small set of `runs` that covers every pair of values; move it to the front, in order.
static int test_pairwise(test_run *runs, int count, int axes) {
    static unsigned char seen[3][16][16];
    char *chosen = (char *)calloc((size_t)count + 1, 1);
    int kept = 0;
    memset(seen, 0, sizeof seen);
    for (;;) {
        int best = -1, max = 0;
        for (int i = 0; i < count; i++) {
            int fresh = 0;
            for (int pair = 0; pair < 3; pair++) fresh += !*test_pair_seen(seen, &runs[i], pair, axes);
            if (fresh > max) max = fresh, best = i;
        }
        if (best < 0) break;
        for (int pair = 0; pair < 3; pair++) *test_pair_seen(seen, &runs[best], pair, axes) = 1;
        chosen[best] = 1;
    }
    for (int i = 0; i < count; i++)
        if (chosen[i]) runs[kept++] = runs[i];
    free(chosen);
    return kept;
}
// Add a test's settings to the list. Settings that come first in the loops are preferred.
static void test_add_settings(const test *t, const test_options *o, test_list *l) {
#if TEST_FEWER == 2
    static const int rank_counts[] = {3, 2};
#elif TEST_FEWER
    static const int rank_counts[] = {3, 2, 5, 1};
#else
    static const int rank_counts[] = {4, 3, 2, 5, 1, 8, 7};
#endif
    const int axes = t->kind & TEST_AXES ? t->kind & TEST_AXES : TEST_AXES;
    const int first = l->count, counts = (int)(sizeof rank_counts / sizeof rank_counts[0]);
    for (int b = 0; b < 3; b++)
        for (int n = 0; n < (o->ranks ? 1 : counts); n++)
            for (int k = 0; k <= 3; k++) { // pretended nodes: none, of 1, 2 or 3 ranks
                const int ranks = o->ranks ? o->ranks : rank_counts[n];
                if (!test_valid(t, o, b, ranks, k)) continue;
                l->runs = (test_run *)realloc(l->runs, sizeof *l->runs * (size_t)(l->count + 1));
                test_run *r = &l->runs[l->count++];
                memset(r, 0, sizeof *r);
                r->t = t, r->launch = b, r->ranks = ranks, r->node = k, r->out = -1;
            }
    if (!o->full) l->count = first + test_pairwise(l->runs + first, l->count - first, axes);
}

// ---- workers in parallel ----------------------------------------------------------------------------------

enum { TEST_OUTPUT_BYTES = 65536 }; // bytes of a worker's output that are kept
static void test_start_worker(const char *self, test_run *r) {
    char ranks[16], node[16];
    int ends[2];
    snprintf(ranks, sizeof ranks, "%d", r->ranks), snprintf(node, sizeof node, "%d", r->node);
    fflush(NULL);
    r->start = test_now(), r->text = (char *)calloc(TEST_OUTPUT_BYTES, 1);
    if (pipe(ends)) perror("pipe"), exit(1);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC), fcntl(ends[0], F_SETFL, O_NONBLOCK);
    if ((r->pid = test_fork()) == 0) {
        setpgid(0, 0);
        dup2(ends[1], 1), dup2(ends[1], 2), close(ends[1]);
        execl(self, self, "--worker", test_launch_methods[r->launch], ranks, node, r->t->name, (char *)NULL);
        _exit(127);
    }
    if (r->pid < 0) perror("fork"), exit(1);
    setpgid(r->pid, r->pid); // parent and child both do it, so that it is done before either goes on
    close(ends[1]), r->out = ends[0];
}
static void test_read_output(test_run *r) { // read a worker's output
    char more[4096];
    ssize_t n;
    while ((n = read(r->out, more, sizeof more)) > 0) {
        const size_t kept = PAR__MIN((size_t)n, TEST_OUTPUT_BYTES - 1 - r->said);
        memcpy(r->text + r->said, more, kept), r->said += kept;
    }
    if (n == 0) close(r->out), r->out = -1;
}
static double test_seconds(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }
static int test_late(const test_run *r, double now) {
    const double processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double load = 0;
    if (now - r->start <= TEST_SLOWDOWN * r->t->deadline_s || getloadavg(&load, 1) < 0) return 0;
    return now - r->start > TEST_SLOWDOWN * r->t->deadline_s * PAR__MAX(1.0, load / processors);
}
// Has this worker ended? Processes that outlive rank 0 are killed at the test's deadline, or at once after a
// failure.
static int test_poll_worker(test_run *r) {
    const double now = test_now();
    struct rusage used;
    int status = 0;
    if (r->out >= 0) test_read_output(r);
    if (r->end == 0 && wait4(r->pid, &status, WNOHANG, &used) == r->pid) r->end = now;
    if (r->end == now) r->processor_seconds = test_seconds(used.ru_utime) + test_seconds(used.ru_stime);
    if (r->end > 0 && status) r->failed = "failed";
    if (r->end > 0 && r->out < 0) return r->seconds = now - r->start, 1;
    const int late = test_late(r, now);
    if (!late && !r->failed) return 0;
    if (late && !r->failed) r->failed = r->end > 0 ? "left processes behind" : "deadline";
    kill(-r->pid, SIGKILL);
    if (r->end == 0) waitpid(r->pid, &status, 0);
    if (r->out >= 0) test_read_output(r);
    if (r->out >= 0) close(r->out), r->out = -1;
    return r->seconds = now - r->start, 1;
}
static void test_wait_any(test_list *l) { // until a worker writes output or ends
    struct pollfd fds[256];
    int count = 0, silent = 0;
    for (int i = l->reported; i < l->next; i++) {
        const test_run *r = &l->runs[i];
        if (r->out >= 0 && count < 256) fds[count].fd = r->out, fds[count++].events = POLLIN;
        silent |= r->pid && r->out < 0;
    }
    poll(fds, (nfds_t)count, silent ? 1 : 50);
    for (int i = l->reported; i < l->next; i++)
        if (l->runs[i].pid && test_poll_worker(&l->runs[i])) l->runs[i].pid = 0, l->ranks -= l->runs[i].ranks;
}

// ---- reports ----------------------------------------------------------------------------------------------

extern char **environ;
// The command that runs this setting again, with the variables that change what it does.
static void test_command(const test_options *o, const test_run *r, char *text, size_t bytes) {
    static const char *const ours[] = {"PAR_",          "EMU_",           "CUDA_DEVICE_",
                                       "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS="};
    size_t at = 0;
    for (char **e = environ; *e; e++)
        for (int i = 0; i < 6; i++)
            if (!strncmp(*e, ours[i], strlen(ours[i])) && strncmp(*e, "PAR_TEST_BESIDE", 15) &&
                !strpbrk(*e, "'\t\n"))
                at += (size_t)snprintf(text + at, PAR__MIN(bytes - at, 512), "%s'%.400s' ", at ? "" : "env ",
                                       *e);
    snprintf(text + at, bytes - at, "%s --only %s --launch %s --ranks %d --node %d", o->self, r->t->name,
             test_launch_methods[r->launch], r->ranks, r->node);
}
static void test_log(const test_options *o, const test_run *r) { // for tests/check.sh
    const char *path = getenv("CHECK_LOG"), *slash = strrchr(o->self, '/');
    char command[4096], line[5000];
    if (!path || !*path) return;
    const int f = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    test_command(o, r, command, sizeof command);
    const int n = snprintf(line, sizeof line, "%.3f\t%s\t%s\t%s, %s, ranks %d, node %d\t%s\t%.2f\n",
                           r->seconds, r->failed ? "FAIL" : "ok", slash ? slash + 1 : o->self, r->t->name,
                           test_launch_methods[r->launch], r->ranks, r->node, command, r->processor_seconds);
    if (f < 0 || write(f, line, (size_t)n) != n) perror(path);
    if (f >= 0) close(f);
}
static char *test_reason(char *text) { // where a sanitizer's report begins in it, if there is one
    static const char *const reports[] = {"Sanitizer:", "runtime error:"};
    for (int i = 0; i < 2; i++) {
        char *at = strstr(text, reports[i]);
        while (at && at > text && at[-1] != '\n') at--;
        if (at) return at;
    }
    return text;
}
static void test_report(const test_options *o, const test_run *r) { // log a run; print it if it failed
    test_log(o, r);
    if (isatty(1)) printf("\033[K"); // erase the progress line
    if (!r->failed) return;
    printf("FAIL %s, %d ranks, %s, node %d: %s\n", r->t->name, r->ranks, test_launch_methods[r->launch],
           r->node, r->failed);
    int lines = 0;
    for (char *line = strtok(test_reason(r->text), "\n"); line && lines++ < 40; line = strtok(NULL, "\n"))
        printf("    %.500s\n", line);
}
static void test_progress(const test_list *l) { // on a terminal
    static int shown = -1;
    if (!isatty(1) || shown == l->reported) return;
    shown = l->reported;
    printf("\r%d of %d", l->reported, l->count);
    if (l->reported < l->count) printf(": %s", l->runs[l->reported].t->name);
    printf("\033[K\r");
    fflush(stdout);
}
static void test_all_begun(void) { // tests/check.sh may begin what comes next
    const char *path = getenv("CHECK_BEGUN");
    if (path && *path) close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
}
static int test_run_all(const test_options *o, test_list *l) { // returns how many failed
    int failed = 0, first = 0;
    double seconds = 0, processors = 0;
    while (l->reported < l->count) {
        while (l->next < l->count && (!l->ranks || l->ranks + l->runs[l->next].ranks <= o->jobs)) {
            l->ranks += l->runs[l->next].ranks;
            test_start_worker(o->self, &l->runs[l->next++]);
        }
        if (l->next == l->count) test_all_begun();
        test_wait_any(l);
        for (; l->reported < l->next && !l->runs[l->reported].pid; l->reported++) { // in order
            test_run *r = &l->runs[l->reported];
            const int last = l->reported + 1 == l->count || r[1].t != r->t;
            test_report(o, r);
            free(r->text), seconds += r->seconds, processors += r->processor_seconds,
                failed += r->failed != NULL;
            if (!last) continue;
            printf("%-28s %3d runs, %6.2f s, %6.2f s of processors\n", r->t->name, l->reported + 1 - first,
                   seconds, processors);
            fflush(stdout);
            first = l->reported + 1, seconds = processors = 0;
        }
        test_progress(l);
    }
    return failed;
}

// ---- the command line -------------------------------------------------------------------------------------

static int test_usage(const char *self, FILE *to) {
    fprintf(to,
            "%s runs every test in the settings that it needs, or some of them:\n"
            "    --only NAME         one test\n"
            "    --launch NAME       fork, threads or tcp\n"
            "    --ranks N           N ranks\n"
            "    --node K            pretended nodes of K ranks, 0: none\n"
            "    --full              every combination of launch method, number of ranks and nodes\n"
            "    -j, --jobs N        at most N ranks at a time, of all workers together (4 per processor)\n"
            "    --worker LAUNCH RANKS NODE TEST    one test, in this process: for a debugger, and under "
            "mpiexec\n"
            "                        (LAUNCH mpi; TEST all: every one)\n"
            "    --help\n"
            "CHECK_LOG=FILE appends a line for each setting: seconds, ok or FAIL, program, setting, command\n"
            "tests:",
            self);
    for (int i = 0; i < test_count; i++) fprintf(to, " %s", tests[i].name);
    fprintf(to, "\n");
    return to == stderr ? 2 : 0;
}
static int test_number(const char *text, int *n) { // 0: not a number
    char *end;
    const long value = strtol(text, &end, 10);
    *n = (int)value;
    return *text && !*end && value >= 0 && value <= 1024;
}
// Returns -1, or the status to exit with.
static int test_parse(int argc, char **argv, test_options *o) {
    int known = 0;
    memset(o, 0, sizeof *o), o->node = -1, o->self = argv[0];
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        known = 0;
        if (!strcmp(name, "--help") || !strcmp(name, "-h")) return test_usage(argv[0], stdout);
        if (!strcmp(name, "--full")) known = o->full = 1, i--;
        if (!strcmp(name, "--only"))
            for (int k = 0; k < test_count; k++) known |= !strcmp(o->only = value, tests[k].name);
        if (!strcmp(name, "--only") && !known)
            fprintf(stderr, "no test %s%s\n", value,
                    par_suggest(value, &tests[0].name, (size_t)test_count, sizeof tests[0]).text);
        if (!strcmp(name, "--launch"))
            for (int k = 0; k < 3; k++) known |= !strcmp(o->launch = value, test_launch_methods[k]);
        if (!strcmp(name, "--ranks")) known = test_number(value, &o->ranks) && o->ranks;
        if (!strcmp(name, "--node")) known = test_number(value, &o->node);
        if (!strcmp(name, "--jobs") || !strcmp(name, "-j")) known = test_number(value, &o->jobs) && o->jobs;
        if (!known)
            return fprintf(stderr, "%s: cannot use %s %s\n", argv[0], name, value),
                   test_usage(argv[0], stderr);
    }
    return -1;
}

int main(int argc, char **argv) {
    test_options o;
    test_list l;
    const double start = test_now();
    const char *base = getenv("TMPDIR");
    if (base && *base) snprintf(test_offload, sizeof test_offload, "file:%.500s", base);
    if (argc == 6 && !strcmp(argv[1], "--worker")) return test_worker(argv + 2);
    const int parsed = test_parse(argc, argv, &o);
    if (parsed >= 0) return parsed;
    memset(&l, 0, sizeof l);
    for (int i = 0; i < test_count; i++)
        if (!o.only || !strcmp(o.only, tests[i].name)) test_add_settings(&tests[i], &o, &l);
    if (!o.jobs) o.jobs = PAR__MAX(8, 4 * test_processors());
    if (l.count > 1 && o.jobs > 1) setenv("PAR_TEST_BESIDE", "1", 1);
    const int failed = test_run_all(&o, &l);
    printf("%d passed, %d failed, 0 skipped (%.1f s)\n", l.count - failed, failed, test_now() - start);
    free(l.runs);
    return failed != 0 || l.count == 0;
}

#endif

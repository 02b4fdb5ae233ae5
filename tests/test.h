// test.h - a small harness: each test runs on n ranks in processes of its own, with a deadline.
//
//     test_x                          every test, on every backend and number of ranks below
//     test_x --only NAME --ranks 4 --backend fork --node 2    some of them
//     test_x --worker fork 4 2 NAME   one, in this process (what gdb wants)
//     mpiexec -n 4 test_x_mpi --worker mpi 4 0 all            under MPI
#ifndef TEST_H
#define TEST_H

#if !defined(TEST_TCP)
#define TEST_TCP 0 // 1: also over TCP, without being asked by --backend tcp
#endif
#if !defined(TEST_FEWER)
#define TEST_FEWER 0 // 1, 2: fewer settings, for slow builds (ASan, TSan)
#endif

#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void (*test_fn)(par_comm *world);
// ALONE: forked ranks only; FAULT: may break its comm; KILL: both; SERIAL: one rank
enum { TEST_ANY, TEST_ALONE, TEST_FAULT, TEST_KILL, TEST_SERIAL };

typedef struct test {
    const char *name;
    test_fn fn;
    int kind, min_ranks;
    double deadline_s;
} test;

extern const test tests[];
extern const int test_count;

typedef struct test_words { // a test's own
    double death;           // when a rank died
    uint64_t begun;         // it has arrived, and goes no further
} test_words;
typedef struct test_state { // shared by all ranks of a worker
    int failures, checks;
    test_words words;
} test_state;
static test_state *test_shared;
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

static int test_runs_here(const test *t, const char *backend, int ranks) {
    if (t->kind == TEST_SERIAL) return ranks == 1 && !strcmp(backend, "fork");
    if (ranks < t->min_ranks) return 0;
    if (t->kind == TEST_ALONE) return !strcmp(backend, "fork");
    if (t->kind == TEST_KILL) return strcmp(backend, "threads") != 0 && strcmp(backend, "mpi") != 0;
    if (t->kind == TEST_FAULT) return strcmp(backend, "mpi") != 0;
    return 1;
}

static int test_thread(par_comm *world, void *user) { return ((const test *)user)->fn(world), 0; }

// As a launcher that knows torchrun's variables starts them; this process becomes rank 0.
static int test_launch(int ranks, pid_t *children) { // my rank
    struct sockaddr_in a;
    socklen_t bytes = sizeof a;
    char text[16];
    int rank = ranks;
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    if (bind(s, (struct sockaddr *)&a, sizeof a) || getsockname(s, (struct sockaddr *)&a, &bytes)) return -1;
    close(s); // a port that was free just now
    snprintf(text, sizeof text, "%d", ntohs(a.sin_port));
    setenv("MASTER_ADDR", "127.0.0.1", 1), setenv("MASTER_PORT", text, 1);
    snprintf(text, sizeof text, "%d", ranks);
    setenv("WORLD_SIZE", text, 1);
    while (--rank > 0)
        if ((children[rank] = fork()) == 0) break;
    snprintf(text, sizeof text, "%d", rank);
    return setenv("RANK", text, 1), rank;
}
static int test_work(const char *backend, int ranks, const test *t);
static int test_over_tcp(int ranks, const test *t) {
    pid_t children[64];
    const int rank = test_launch(ranks, children);
    int status, failed = rank < 0 || test_work("launched", ranks, t);
    if (rank) _exit(failed);
    for (int r = 1; r < ranks; r++)
        if (waitpid(children[r], &status, 0) < 0 || status) failed |= t->kind == TEST_ANY;
    return failed;
}

static int test_work(const char *backend, int ranks, const test *t) {
    char text[16];
    par_comm *world;
    snprintf(text, sizeof text, "%d", ranks);
    if (!strcmp(backend, "tcp")) return test_over_tcp(ranks, t);
    if (!strcmp(backend, "threads")) {
        const par_result r = par_run_threads(ranks, test_thread, (void *)(uintptr_t)t);
        return t->kind != TEST_FAULT && t->kind != TEST_KILL && r != PAR_OK;
    }
    if (strcmp(backend, "mpi") && strcmp(backend, "launched")) setenv("PAR_RANKS", text, 1);
    if (par_open(NULL, &world)) return 1;
    t->fn(world);
    const par_result r = par_close(world);
    return t->kind != TEST_FAULT && t->kind != TEST_KILL && r != PAR_OK;
}

#if defined(PAR_MPI)
static int test_under_mpi(int ranks, const char *name) { // all tests in one job
    par_comm *world;
    int failed = 0, passed = 0;
    if (par_open(NULL, &world)) return 1;
    for (int i = 0; i < test_count; i++) {
        const int named = !strcmp(name, tests[i].name);
        if (!named && (strcmp(name, "all") || !test_runs_here(&tests[i], "mpi", ranks))) continue;
        int before = test_shared->failures, bad;
        tests[i].fn(world);
        if (tests[i].kind == TEST_KILL) _exit(test_shared->failures != 0); // MPI cannot go on
        bad = test_shared->failures > before;
        MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        bad ? failed++ : passed++;
        if (par_rank(world) == 0 && bad)
            printf("FAIL %s, %d ranks, mpi, node %d\n", tests[i].name, ranks, test_node_ranks);
    }
    if (par_rank(world) == 0)
        printf("mpi, %d ranks, node %d: %d passed, %d failed, 0 skipped\n", ranks, test_node_ranks, passed,
               failed);
    fflush(stdout);
    return par_close(world) != PAR_OK || failed;
}
#endif

static int test_worker(char **argv) { // backend, ranks, node ranks, test
    const int ranks = atoi(argv[1]);
    test_shared = (test_state *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    test_node_ranks = atoi(argv[2]);
    if (test_node_ranks) setenv("PAR_NODE_RANKS", argv[2], 1);
#if defined(PAR_MPI)
    if (!strcmp(argv[0], "mpi")) return test_under_mpi(ranks, argv[3]);
#endif
    for (int i = 0; i < test_count; i++)
        if (!strcmp(argv[3], tests[i].name)) {
            const int r = test_work(argv[0], ranks, &tests[i]);
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

// Run a worker; its output is shown only if it fails. 0: passed.
static int test_spawn(const char *self, const test *t, const char *backend, int ranks, int node) {
    char r[16], k[16], log[] = "/tmp/par_test_XXXXXX";
    const int out = mkstemp(log);
    snprintf(r, sizeof r, "%d", ranks);
    snprintf(k, sizeof k, "%d", node);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        dup2(out, 1);
        dup2(out, 2);
        execl(self, self, "--worker", backend, r, k, t->name, (char *)NULL);
        _exit(127);
    }
    const double begun = test_now();
    int status = 0, ended = 0;
    while (!(ended = waitpid(pid, &status, WNOHANG) == pid) && test_now() - begun < t->deadline_s)
        usleep(1000);
    if (!ended) kill(-pid, SIGKILL), waitpid(pid, &status, 0);
    const int left = kill(-pid, 0) == 0; // a process of the group that outlived its rank 0
    if (left) usleep(100000);
    const int failed = !ended || status != 0 || (left && kill(-pid, 0) == 0);
    kill(-pid, SIGKILL);
    if (failed) {
        char line[512];
        FILE *f = fopen(log, "r");
        printf("FAIL %s, %d ranks, %s, node %d: %s\n", t->name, ranks, backend, node,
               !ended   ? "deadline"
               : status ? "failed"
                        : "left processes behind");
        for (int i = 0; f && i < 40 && fgets(line, sizeof line, f); i++) printf("    %s", line);
        if (f) fclose(f);
        fflush(stdout);
    }
    close(out);
    unlink(log);
    return failed;
}

static const char *const test_backends[] = {"fork", "threads", "tcp"};
typedef struct test_options { // NULL, 0, -1: all
    const char *only, *backend;
    int ranks, node;
} test_options;

static int test_usage(const char *self, FILE *to) {
    fprintf(to,
            "%s: every test, on every backend and number of ranks, or some of them:\n"
            "    --only NAME         one test\n"
            "    --backend NAME      fork, threads or tcp\n"
            "    --ranks N           so many ranks\n"
            "    --node K            pretended nodes of K ranks, 0: none\n"
            "    --worker BACKEND RANKS NODE TEST    one test, in this process: for a debugger, and under "
            "mpiexec\n"
            "                        (BACKEND mpi; TEST all: every one)\n"
            "    --help\n"
            "tests:",
            self);
    for (int i = 0; i < test_count; i++) fprintf(to, " %s", tests[i].name);
    fprintf(to, "\n");
    return to == stderr ? 2 : 0;
}
static int test_number(const char *text, int *n) { // 0: it is none
    char *end;
    const long value = strtol(text, &end, 10);
    *n = (int)value;
    return *text && !*end && value >= 0 && value <= 1024;
}
// -1: go on; else the status to end with.
static int test_parse(int argc, char **argv, test_options *o) {
    int known = 0;
    memset(o, 0, sizeof *o), o->node = -1;
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        known = 0;
        if (!strcmp(name, "--help") || !strcmp(name, "-h")) return test_usage(argv[0], stdout);
        if (!strcmp(name, "--only"))
            for (int k = 0; k < test_count; k++) known |= !strcmp(o->only = value, tests[k].name);
        if (!strcmp(name, "--only") && !known)
            fprintf(stderr, "the nearest is \"%s\"\n",
                    par_nearest_name(value, &tests[0].name, (size_t)test_count, sizeof tests[0]));
        if (!strcmp(name, "--backend"))
            for (int k = 0; k < 3; k++) known |= !strcmp(o->backend = value, test_backends[k]);
        if (!strcmp(name, "--ranks")) known = test_number(value, &o->ranks) && o->ranks;
        if (!strcmp(name, "--node")) known = test_number(value, &o->node);
        if (!known) return fprintf(stderr, "%s: %s %s?\n", argv[0], name, value), test_usage(argv[0], stderr);
    }
    return -1;
}

int main(int argc, char **argv) {
#if TEST_FEWER == 2
    static const int rank_counts[] = {2, 3};
#elif TEST_FEWER
    static const int rank_counts[] = {1, 2, 3, 5};
#else
    static const int rank_counts[] = {1, 2, 3, 4, 5, 7, 8};
#endif
    test_options o;
    int passed = 0, failed = 0;
    const double begun = test_now();
    if (argc == 6 && !strcmp(argv[1], "--worker")) return test_worker(argv + 2);
    const int parsed = test_parse(argc, argv, &o);
    if (parsed >= 0) return parsed;
    for (int i = 0; i < test_count; i++) {
        const double start = test_now();
        const int before = passed + failed;
        if (o.only && strcmp(o.only, tests[i].name)) continue;
        for (size_t b = 0; b < 3; b++)
            for (size_t n = 0; n < sizeof rank_counts / sizeof rank_counts[0]; n++)
                for (int k = 0; k <= 3; k++) { // pretended nodes: none, of 1, 2 or 3 ranks
                    if (!test_runs_here(&tests[i], test_backends[b], rank_counts[n])) continue;
                    if (b == 2 && (rank_counts[n] < 2 || rank_counts[n] > 5 || k > 2)) continue;
                    if (b == 2 && ((!TEST_TCP && !o.backend) || (!k && rank_counts[n] != 3))) continue;
                    if ((k && rank_counts[n] < 2) || (k == 3 && rank_counts[n] < 4)) continue;
                    if (k && tests[i].kind != TEST_ANY && b < 2) continue;
                    if (k && b == 1 && rank_counts[n] > 5) continue; // enough
#if TEST_FEWER
                    if (k == 1 || k == 3) continue;
#endif
                    if (o.backend && strcmp(o.backend, test_backends[b])) continue;
                    if ((o.ranks && o.ranks != rank_counts[n]) || (o.node >= 0 && o.node != k)) continue;
                    test_spawn(argv[0], &tests[i], test_backends[b], rank_counts[n], k) ? failed++ : passed++;
                }
        printf("%-28s %3d runs, %6.2f s\n", tests[i].name, passed + failed - before, test_now() - start);
        fflush(stdout);
    }
    printf("%d passed, %d failed, 0 skipped (%.1f s)\n", passed, failed, test_now() - begun);
    return failed != 0 || passed == 0;
}

#endif

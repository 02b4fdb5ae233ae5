// Ranks of an elastic world are killed at planned points, and the others must go on with right sums.
//     build/elastic [--points 40] [--only NUMBER]
// A point is before any atomic store, exchange or addition of par.h. The victim counts them, and kills itself
// before one of them: in calls, while it splits, allocates, frees, closes, grows, and while it recovers from
// the death of another rank.
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static int64_t elastic_left = -1; // points until this process dies; < 0: it does not count
static int64_t elastic_passed;
static void elastic_point(void) {
    elastic_passed++;
    if (elastic_left > 0 && --elastic_left == 0) raise(SIGKILL);
}
#define __atomic_store_n(...)            (elastic_point(), __atomic_store_n(__VA_ARGS__))
#define __atomic_fetch_add(...)          (elastic_point(), __atomic_fetch_add(__VA_ARGS__))
#define __atomic_add_fetch(...)          (elastic_point(), __atomic_add_fetch(__VA_ARGS__))
#define __atomic_sub_fetch(...)          (elastic_point(), __atomic_sub_fetch(__VA_ARGS__))
#define __atomic_fetch_or(...)           (elastic_point(), __atomic_fetch_or(__VA_ARGS__))
#define __atomic_or_fetch(...)           (elastic_point(), __atomic_or_fetch(__VA_ARGS__))
#define __atomic_compare_exchange_n(...) (elastic_point(), __atomic_compare_exchange_n(__VA_ARGS__))
#define PAR_IMPLEMENTATION
#include "par.h"

typedef struct run { // one world
    int ranks, node_ranks, victim, second, grows;
    int64_t points; // until the victim dies; where there is a second one, until that one does in the recovery
    int counts;     // print the points instead
} run;

#define CHECK(c, condition)                                                                                  \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "tests/elastic.c:%d: rank %d of %d: %s: %s\n", __LINE__, par_rank(c),            \
                    par_size(c), #condition, par_last_error(c));                                             \
            _exit(9);                                                                                        \
        }                                                                                                    \
    } while (0)
enum { COUNT = 40000 };
static float elastic_x[COUNT], elastic_y[COUNT];

static int is_fault(par_result r) {
    return r == PAR_ERR_PEER_DIED || r == PAR_ERR_REVOKED || r == PAR_ERR_TIMEOUT;
}
#define TRY(c, call)                                                                                         \
    do {                                                                                                     \
        const par_result result = (call);                                                                    \
        CHECK(c, !result || is_fault(result));                                                               \
        if (result) return result;                                                                           \
    } while (0)
static par_result sums(par_comm *c, size_t count) {
    const int n = par_size(c);
    for (size_t i = 0; i < count; i++) elastic_x[i] = (float)(par_rank(c) + (int)i % 5);
    TRY(c, par_all_reduce(elastic_x, elastic_y, count, PAR_F32, PAR_SUM, c));
    for (size_t i = 0; i < count; i++) CHECK(c, elastic_y[i] == (float)(n * (n - 1) / 2 + n * ((int)i % 5)));
    return PAR_OK;
}
static par_result messages(par_comm *c, size_t count) {
    const int n = par_size(c), next = (par_rank(c) + 1) % n, last = (par_rank(c) + n - 1) % n;
    par_request q[2];
    for (size_t i = 0; i < count; i++) elastic_x[i] = (float)par_rank(c);
    TRY(c, par_sendrecv(elastic_x, count, next, elastic_y, count, last, PAR_F32, c));
    CHECK(c, elastic_y[0] == (float)last && elastic_y[count - 1] == (float)last);
    TRY(c, par_recv_begin(elastic_y, count, PAR_F32, last, c, &q[0]));
    const par_result sent = par_send_begin(elastic_x, count, PAR_F32, next, c, &q[1]);
    CHECK(c, !sent || is_fault(sent));
    TRY(c, par_wait_all(q, 2));
    return sent;
}
static par_result one_round(par_comm *c) { // a little of everything
    par_comm *half;
    TRY(c, sums(c, 3));
    TRY(c, sums(c, COUNT));
    TRY(c, messages(c, 5));
    TRY(c, messages(c, COUNT));
    TRY(c, par_split(c, par_rank(c) & 1, 0, &half));
    par_result r = sums(half, 100); // of half of the ranks: the others may not hear of a death here
    if (!r) {
        float *z = (float *)par_alloc(half, sizeof(float) * COUNT);
        CHECK(c, z || is_fault(par_all_reduce(elastic_x, elastic_y, 1, PAR_F32, PAR_SUM, half)));
        if (z) memset(z, 0, sizeof(float) * COUNT);
        r = z ? par_all_reduce(z, z, COUNT, PAR_F32, PAR_SUM, half) : PAR_ERR_PEER_DIED;
        if (!r) r = par_free(half, z);
    }
    CHECK(c, !r || is_fault(r));
    if (r) par_revoke(c);
    par_close(half);
    return r;
}
// Until a comm of the survivors is there. This is what a program would do.
static par_comm *recover(par_comm *c) {
    par_comm *next;
    uint64_t value = UINT64_MAX;
    CHECK(c, !par_revoke(c));
    const par_result agreed = par_agree(c, &value);
    CHECK(c, !agreed || is_fault(agreed));
    const par_result r = par_shrink(c, &next);
    if (r == PAR_ERR_PEER_DIED) _exit(7); // taken for dead
    CHECK(c, !r && next && par_size(next) >= 1 && par_rank_before(next, par_rank(next)) == par_rank(c));
    par_close(c);
    return next;
}
// Blocks of shared memory that belong to nobody: of the dead.
static int stray_blocks(const par_comm *c) {
    const par__world *w = c->world;
    const par__extents *x = par__extents_of(w->arena, 0);
    int stray = 0;
    for (uint64_t i = 0; i < x->count; i++) stray += par__is_orphan(w, &x->extent[i], 0);
    return stray;
}
// Rounds, whose end all agree on; after a death the survivors do the round again.
static int rank_main(par_comm *world, const run *t) {
    enum { ROUNDS = 2 };
    par_comm *c = world, *more;
    const int newcomer = c->id != 0, me = par_world_rank(c, par_rank(c));
    int deaths = 0;
    if (me == t->victim) elastic_left = t->second >= 0 ? 200 : t->points;
    elastic_passed = 0;
    for (int round = newcomer; round < ROUNDS;) {
        uint64_t well = 1;
        const par_result r = one_round(c);
        if (r) well = 0, par_revoke(c); // who waits for a message of this rank
        par_result agreed = par_agree(c, &well);
        CHECK(c, !agreed || is_fault(agreed));
        if (!agreed && well && round == 0 && t->grows && c == world && !newcomer) {
            agreed = par_grow(c, t->grows, &more);
            CHECK(c, !agreed || is_fault(agreed) || agreed == PAR_ERR_SYSTEM);
            if (!agreed) par_close(c), c = more;
        }
        if (!agreed && well) {
            round++;
            continue;
        }
        if (++deaths == 1 && me == t->second) elastic_passed = 0, elastic_left = t->points;
        c = recover(c);
        if (par_world_rank(c, 0) >= t->ranks) break; // of new ranks alone
    }
    if (t->counts && me == (t->second >= 0 ? t->second : t->victim))
        printf("%lld\n", (long long)elastic_passed), fflush(stdout);
    elastic_left = -1;
    for (;;) { // it may have died after the others had ended their rounds
        uint64_t all = 1;
        const par_result r = par_agree(c, &all);
        CHECK(c, !r || is_fault(r));
        if (!r) break;
        c = recover(c);
    }
    CHECK(c, !sums(c, 100) && !messages(c, 100));
    CHECK(c, stray_blocks(c) == 0);
    return par_close(c) != PAR_OK;
}
static int run_world(const run *t) { // in a process of its own; its exit status
    par_desc d;
    par_comm *world;
    memset(&d, 0, sizeof d);
    d.elastic = 1;
    d.rank_count = t->ranks;
    d.node_ranks = t->node_ranks;
    d.timeout_s = 60;
    if (par_open(&d, &world)) return 8;
    return rank_main(world, t);
}

static int64_t in_process(const run *t, int *status) { // what it prints, if anything
    int out[2];
    char text[64];
    fflush(NULL);
    if (pipe(out)) abort();
    const pid_t pid = fork();
    if (!pid) {
        dup2(out[1], 1);
        close(out[0]), close(out[1]);
        alarm(120);
        _exit(run_world(t));
    }
    close(out[1]);
    size_t n = 0;
    ssize_t got;
    while (n < sizeof text - 1 && (got = read(out[0], text + n, sizeof text - 1 - n)) > 0) n += (size_t)got;
    text[n] = 0;
    close(out[0]);
    waitpid(pid, status, 0);
    return strtoll(text, NULL, 10);
}
int main(int argc, char **argv) {
    // The victim; a second one, that dies in the recovery; new ranks
    static const run kinds[] = {{4, 0, 1, -1, 0, 0, 0}, {4, 0, 0, -1, 0, 0, 0}, {3, 0, 2, -1, 1, 0, 0},
                                {4, 0, 1, 0, 0, 0, 0},  {4, 0, 3, 2, 0, 0, 0},  {3, 0, 0, -1, 1, 0, 0},
                                {4, 2, 2, -1, 0, 0, 0}, {5, 2, 4, 0, 0, 0, 0}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    int64_t points[KINDS];
    long count = 40, only = -1, failures = 0;
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--points"))
            count = strtol(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--only"))
            only = strtol(argv[i + 1], NULL, 10);
    for (int k = 0; k < KINDS; k++) {
        run t = kinds[k];
        int s = 0;
        t.counts = 1, t.points = -1;
        points[k] = in_process(&t, &s);
        if (s || points[k] < 10)
            fprintf(stderr, "kind %d: status %x, %lld points\n", k, s, (long long)points[k]), failures++;
    }
    for (long i = 0; i < count; i++) {
        const int k = (int)(i % KINDS);
        run t = kinds[k];
        int s = 0;
        if (only >= 0 && i != only) continue;
        t.points = 1 + (points[k] - 1) * (i / KINDS) / (count / KINDS + 1);
        in_process(&t, &s);
        if (s)
            fprintf(stderr, "--only %ld: kind %d, point %lld of %lld: status %x\n", i, k, (long long)t.points,
                    (long long)points[k], s),
                failures++;
    }
    printf("%ld planned points, %ld failures\n", count, failures);
    return failures != 0;
}

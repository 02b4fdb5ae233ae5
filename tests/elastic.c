// Ranks of an elastic world are killed at planned points, and the others must go on with right sums.
//     build/elastic [--points 40] [--only NUMBER]     or     --job NAME
// A point is before any copy of memory, atomic store, exchange or addition in par.h, and before anything is
// sent. The victim counts them, and kills itself before one of them: in calls, while it splits, allocates,
// frees, closes, grows, and while it recovers from the death of another rank. Over TCP it starts the ranks.
// What par_split and par_alloc make, all survivors have, or none.
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
static int64_t elastic_left = -1; // points until this process dies; < 0: it does not count
static int64_t elastic_passed;
static int elastic_skips; // outside of calls that make something for all ranks
static void elastic_point(void) {
    if (elastic_skips) return;
    elastic_passed++;
    if (elastic_left > 0 && --elastic_left == 0) raise(SIGKILL);
}
#define memcpy(...)                      (elastic_point(), memcpy(__VA_ARGS__))
#define __atomic_store_n(...)            (elastic_point(), __atomic_store_n(__VA_ARGS__))
#define __atomic_fetch_add(...)          (elastic_point(), __atomic_fetch_add(__VA_ARGS__))
#define __atomic_add_fetch(...)          (elastic_point(), __atomic_add_fetch(__VA_ARGS__))
#define __atomic_sub_fetch(...)          (elastic_point(), __atomic_sub_fetch(__VA_ARGS__))
#define __atomic_fetch_or(...)           (elastic_point(), __atomic_fetch_or(__VA_ARGS__))
#define __atomic_or_fetch(...)           (elastic_point(), __atomic_or_fetch(__VA_ARGS__))
#define __atomic_compare_exchange_n(...) (elastic_point(), __atomic_compare_exchange_n(__VA_ARGS__))
#define send(...)                        (elastic_point(), send(__VA_ARGS__))
#define sendmsg(...)                     (elastic_point(), sendmsg(__VA_ARGS__))
#define PAR_IMPLEMENTATION
#include "par.h"

typedef struct run { // one world
    int ranks, node_ranks, victim, second, grows;
    int makes;      // points are in par_split and par_alloc alone
    int counts;     // print the points instead
    int over_tcp;   // as if a launcher had started the ranks
    int64_t points; // until the victim dies; where there is a second one, until that one does in the recovery
} run;

// What each rank has got from calls that all ranks of a comm have or have not succeeded in, by its number in
// the world, in memory that all processes share.
enum { MOST_RANKS = 16, MOST_CALLS = 64 };
typedef struct got {
    uint32_t comm;         // and a color: comms of all colors of a par_split have one number
    int color, number, it; // number: of such calls on it; it: 0: an error
} got;
typedef struct gains {
    int survived[MOST_RANKS], count[MOST_RANKS];
    got call[MOST_RANKS][MOST_CALLS];
} gains;
static gains *shared;
static void note(const par_comm *c, int color, int it) {
    const int me = par_world_rank(c, par_rank(c));
    if (!shared || me >= MOST_RANKS || shared->count[me] == MOST_CALLS) abort();
    got *mine = shared->call[me], *last = &mine[shared->count[me]];
    last->comm = c->id, last->color = color, last->it = it, last->number = 0;
    for (const got *x = mine; x < last; x++) last->number += x->comm == c->id && x->color == color;
    shared->count[me]++;
}
// Have all survivors of each call got the same?
static int gains_are_alike(void) {
    for (int a = 0; a < MOST_RANKS; a++)
        for (int b = 0; b < MOST_RANKS; b++)
            for (int i = 0; i < shared->count[a] && shared->survived[a] && shared->survived[b]; i++)
                for (int j = 0; j < shared->count[b]; j++) {
                    const got *x = &shared->call[a][i], *y = &shared->call[b][j];
                    if (x->comm == y->comm && x->color == y->color && x->number == y->number &&
                        x->it != y->it)
                        return 0;
                }
    return 1;
}

enum { REPORT = 9 }; // a descriptor to which a rank reports a failure: it may count as one of the dead
static void failed(const par_comm *c, int line, const char *what) {
    fprintf(stderr, "tests/elastic.c:%d: rank %d of %d: %s: %s\n", line, par_rank(c), par_size(c), what,
            par_last_error(c));
    if (write(REPORT, "F", 1) != 1) perror("write");
    _exit(9);
}
#define CHECK(c, condition)                                                                                  \
    do {                                                                                                     \
        if (!(condition)) failed(c, __LINE__, #condition);                                                   \
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
static par_result one_round(par_comm *c, int makes) { // a little of everything
    par_comm *half;
    TRY(c, sums(c, 3));
    TRY(c, sums(c, COUNT));
    TRY(c, messages(c, 5));
    TRY(c, messages(c, COUNT));
    const int color = par_rank(c) & 1;
    elastic_skips = 0;
    par_result r = par_split(c, color, 0, &half);
    note(c, -1, !r);
    elastic_skips = makes;
    TRY(c, r);
    r = sums(half, 100); // of half of the ranks: the others may not hear of a death here
    if (!r) {
        elastic_skips = 0;
        float *z = (float *)par_alloc(half, sizeof(float) * COUNT);
        note(half, color, z != NULL);
        elastic_skips = makes;
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
// Blocks of shared memory that are not those of the only comm that is left.
static int other_blocks(par_comm *c) {
    const par__extents *x = par__extents_of(c->world->arena, 0);
    int others = 0;
    par__release_closed(c->world);
    for (uint64_t i = 0; i < x->count; i++) others += x->extent[i].users != c->rings_offset;
    return others;
}
// Rounds, whose end all agree on; after a death the survivors do the round again.
static int rank_main(par_comm *world, const run *t) {
    enum { ROUNDS = 2 };
    par_comm *c = world, *more;
    const int newcomer = c->id != 0, me = par_world_rank(c, par_rank(c));
    int deaths = 0;
    if (me == t->victim) elastic_left = t->second >= 0 ? 200 : t->points;
    elastic_passed = 0;
    elastic_skips = t->makes;
    for (int round = newcomer; round < ROUNDS;) {
        uint64_t well = 1;
        const par_result r = one_round(c, t->makes);
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
    CHECK(c, t->grows || stray_blocks(c) == 0); // of a new rank that was refused: until the next death
    for (int i = 0; i < 2000 && other_blocks(c); i++) usleep(1000); // until others have closed theirs
    CHECK(c, t->grows || other_blocks(c) == 0);
    shared->survived[par_world_rank(c, par_rank(c))] = 1;
    return par_close(c) != PAR_OK;
}
static int open_and_run(const run *t) {
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
// As a launcher does, for the calling process, its child number `rank`.
static void set_variable(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}
static int free_port(void) {
    struct sockaddr_in a;
    socklen_t bytes = sizeof a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || getsockname(fd, (struct sockaddr *)&a, &bytes)) abort();
    close(fd);
    return ntohs(a.sin_port);
}
// The status of a job whose ranks this process starts: of those that have not been killed. `most` may be.
static int launch(int ranks, int most, int (*run_rank)(const void *), const void *x) {
    int worst = 0, killed = 0, status;
    set_variable("WORLD_SIZE", ranks);
    set_variable("MASTER_PORT", free_port());
    set_variable("PAR_JOB", (int)getpid());
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    for (int r = 0; r < ranks; r++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            set_variable("RANK", r);
            exit(run_rank(x));
        }
    while (wait(&status) > 0)
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            killed++;
        else if (status)
            worst = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return killed == ranks ? 10 : killed > most ? 11 : worst;
}
static int run_as_rank(const void *t) { return open_and_run((const run *)t); }
static int run_world(const run *t) { // in a process of its own; its exit status
    return t->over_tcp ? launch(t->ranks, 1 + (t->second >= 0), run_as_rank, t) : open_and_run(t);
}

// ---- what a death, and a mistake, leads to; the status of the whole job

static int says(const par_comm *c, const char *text) { return strstr(par_last_error(c), text) != NULL; }
static int mistakes(par_comm *w) {
    par_comm *c, *none;
    par_request q;
    uint64_t bits = 3;
    int x = 1;
    CHECK(w, par_shrink(w, &c) == PAR_ERR_ARGUMENT && !c && says(w, "use par_split"));
    CHECK(w, par_grow(w, 0, &c) == PAR_ERR_ARGUMENT && says(w, "count is 0"));
    CHECK(w, par_grow(w, 100000, &c) == PAR_ERR_ARGUMENT && !c);
    if (w->world->net) CHECK(w, par_grow(w, 1, &c) == PAR_ERR_SYSTEM && !c && says(w, "PAR_JOIN"));
    CHECK(w, !par_group_begin(w) && par_agree(w, &bits) == PAR_ERR_ARGUMENT && says(w, "par_group_end"));
    CHECK(w, !par_group_end(w) && !par_agree(w, &bits) && bits == 3);
    CHECK(w, !par_split(w, 0, 0, &c));
    if (par_rank(c) == 0) CHECK(w, !par_revoke(c) && !par_revoke(c));
    while (!par_barrier_begin(c, &q) && !par_wait(&q)) {
    }
    CHECK(w, par_barrier(c) == PAR_ERR_REVOKED && says(w, "rank 0 of the world has revoked comm"));
    bits = 1ull << par_rank(c);
    if (par_rank(c) == 1) // some shrink, some agree: all hear of it, and go on
        CHECK(w, par_shrink(c, &none) == PAR_ERR_MISMATCH && says(w, "make the same calls"));
    else
        CHECK(w, par_agree(c, &bits) == PAR_ERR_MISMATCH && bits == 1ull << par_rank(c));
    CHECK(w, !par_all_reduce(&x, &x, 1, PAR_I32, PAR_SUM, w) && x == par_size(w)); // the world is whole
    return par_close(w) != PAR_OK;
}
// A rank stops, as by SIGSTOP. At the deadline it is killed: it can never write again.
static int stopped(par_comm *w) {
    par_comm *c;
    float x = 1;
    par_set_timeout(w, 0.5);
    CHECK(w, !par_barrier(w));
    if (par_rank(w) == 2) raise(SIGSTOP), _exit(5); // SIGCONT would come here
    const par_result r = par_all_reduce(&x, &x, 1, PAR_F32, PAR_SUM, w);
    CHECK(w, is_fault(r) && !par_shrink(w, &c) && par_size(c) == par_size(w) - 1);
    if (par_node_of(w, par_rank(w)) == par_node_of(w, 2)) {
        CHECK(w, !par__process(w->world->arena->ranks[2].pid).runs);
        kill(w->world->arena->ranks[2].pid, SIGCONT);
    }
    par_set_timeout(w, 60);
    CHECK(w, par_rank_before(c, 2) == 3 && par_rank_before(c, 9) == -1 && par_world_rank(c, 2) == 3);
    par_close(w);
    return sums(c, 10) || par_close(c);
}
// The same where the others only vote. One that waits itself is not to blame.
static int silent(par_comm *w) {
    uint64_t bits = 1;
    float x;
    CHECK(w, !par_barrier(w));
    if (par_rank(w) == 2) raise(SIGSTOP), _exit(5);
    if (par_rank(w) == 1) { // until the others revoke what it waits on
        const par_result r = par_recv(&x, 1, PAR_F32, 0, w);
        CHECK(w, r == PAR_ERR_REVOKED || r == PAR_ERR_PEER_DIED);
        CHECK(w, par_agree(w, &bits) == PAR_ERR_PEER_DIED);
        par_close(w);
        return 0;
    }
    par_set_timeout(w, 0.6);
    const par_result first = par_agree(w, &bits);
    CHECK(w, first == PAR_ERR_TIMEOUT && says(w, "for rank 1 of comm world to vote"));
    CHECK(w, par__process(w->world->arena->ranks[1].pid).runs);
    CHECK(w, !par__process(w->world->arena->ranks[2].pid).runs);
    CHECK(w, !par_revoke(w)); // its second vote would not be the first of rank 1
    par_close(w);
    return 0;
}
// What a rank has begun ends with the comm, before anybody goes on: nobody writes to its arrays afterwards.
static int begun(par_comm *w) {
    par_comm *part, *c;
    par_request q[3];
    const int me = par_rank(w), n = par_size(w);
    CHECK(w, !par_split(w, 0, 0, &part));
    CHECK(w, !par_recv_begin(elastic_y, COUNT, PAR_F32, (me + 1) % n, part, &q[0]));
    CHECK(w, !par_recv_begin(elastic_y, 1, PAR_F32, (me + 1) % n, part, &q[1])); // waits for that one
    CHECK(w, !par_all_reduce_begin(elastic_x, elastic_x, COUNT, PAR_F32, PAR_SUM, part, &q[2]));
    CHECK(w, !par_wait(&q[2]));
    if (me == 0) raise(SIGKILL);
    while (!par_barrier(w)) {
    }
    CHECK(w, !par_shrink(w, &c));
    for (int i = 0; i < 2; i++) {
        CHECK(w, par__op_state(q[i].operation) == PAR__DONE);
        CHECK(w, is_fault(par_wait(&q[i])));
    }
    CHECK(w, !w->world->active);
    par_close(part);
    par_close(w);
    return sums(c, COUNT) || par_close(c);
}
// Two halves: where one loses a rank and shrinks, the other goes on undisturbed.
static int halves(par_comm *w) {
    par_comm *half, *c, *pair;
    const int hurt = par_rank(w) < par_size(w) / 2;
    CHECK(w, !par_split(w, hurt, 0, &half) && !par_split(half, 0, 0, &pair));
    if (par_rank(w) == 0) raise(SIGKILL);
    if (hurt) {
        while (!sums(pair, 10)) { // of the half that has lost a rank
        }
        CHECK(w, !par_shrink(half, &c) && !par_split(c, 0, 0, &half) && !sums(half, 10) && !par_close(half));
        CHECK(w, !par_revoke(c) && par_barrier(pair) && par_barrier(c) == PAR_ERR_REVOKED);
    }
    for (int i = 0; i < 20 && !hurt; i++) {
        CHECK(w, !sums(half, 100) && !sums(pair, 10));
        usleep(1000);
    }
    uint64_t bits = 1;
    CHECK(w, par_agree(w, &bits) == PAR_ERR_PEER_DIED && bits == 1); // the others have ended their sums
    CHECK(w, !par_shrink(w, &c));
    par_close(w);
    return sums(c, 10) || par_close(c);
}
static int all_die(par_comm *w) {
    CHECK(w, !par_barrier(w));
    raise(SIGKILL);
    return 0;
}
static int ends_badly(par_comm *w) { // a rank that has closed its world has a status of its own
    const int me = par_rank(w);
    return par_close(w) ? 9 : me == 1 ? 3 : 0;
}
static volatile sig_atomic_t asked_to_end;
static void on_term(int signal) { asked_to_end = signal; }
static int asked(par_comm *w) { // SIGTERM of the supervisor is for the ranks
    signal(SIGTERM, on_term);
    CHECK(w, !par_barrier(w));
    if (par_rank(w) == 0) kill(getppid(), SIGTERM);
    while (!asked_to_end) usleep(1000);
    return par_close(w) != PAR_OK;
}
static int orphaned(par_comm *w) { // no rank outlives the supervisor
    CHECK(w, !par_barrier(w));
    if (par_rank(w) == 0) kill(getppid(), SIGKILL);
    for (;;) pause();
    return 0;
}
// New ranks have numbers and memory of their own; a job has places for so many.
static int grows(par_comm *w) {
    enum { RANKS = 2, MORE = 3 };
    par_comm *c = w, *more;
    if (w->id) CHECK(w, !sums(w, 1000)); // a new one
    while (par_size(c) < RANKS + MORE) {
        const int n = par_size(c), old = par_rank(c);
        CHECK(c, !par_grow(c, 1, &more) && par_size(more) == n + 1 && par_rank(more) == old);
        CHECK(more, par_rank_before(more, n) == -1 && par_rank_before(more, 0) == 0 &&
                        par_world_rank(more, n) == n);
        CHECK(more, !sums(more, 1000));
        par_close(c);
        c = more;
    }
    CHECK(c, !messages(c, COUNT) && par_grow(c, 64, &more) == PAR_ERR_SYSTEM &&
                 says(c, "its places for new ranks"));
    CHECK(c, par_grow(c, 1 + par_rank(c), &more) == PAR_ERR_MISMATCH && !sums(c, 10)); // the comm goes on
    return par_close(c) != PAR_OK;
}
// Ranks on several nodes. One that is silent counts as dead where the others are more. When it wakes up it
// ends, also where the others have ended their job meanwhile.
static int far_silence(par_comm *w) {
    par_comm *c;
    int pids[4], pid = (int)getpid();
    par_set_timeout(w, 0.5);
    CHECK(w, !par_all_gather(&pid, pids, 1, PAR_I32, w) && !par_barrier(w));
    if (par_rank(w) == 2) {
        raise(SIGSTOP);
        par_result r = PAR_OK;
        while (!r) r = par_barrier(w);                   // the first one may have begun
        if (r != PAR_ERR_ABORTED) r = par_shrink(w, &c); // it had no line yet on which it could be told
        CHECK(w, r == PAR_ERR_ABORTED && (says(w, "go on without it") || says(w, "so they end")));
        _exit(0);
    }
    while (!sums(w, 10)) {
    }
    CHECK(w, !par_revoke(w) && !par_shrink(w, &c) && par_size(c) == 3);
    par_close(w);
    CHECK(c, !sums(c, 1000));
    const int me = par_rank(c), status = par_close(c) != PAR_OK;
    if (me == 0) kill(pids[2], SIGCONT);
    return status;
}
// Two nodes that do not hear each other: the one with the first rank may go on, and does; the other one ends.
static int far_halves(par_comm *w) {
    par_comm *c;
    int pids[4], pid = (int)getpid();
    const int me = par_rank(w);
    par_set_timeout(w, 0.5);
    CHECK(w, !par_all_gather(&pid, pids, 1, PAR_I32, w) && !par_barrier(w));
    if (me < 2) raise(SIGSTOP);
    while (me >= 2 && !sums(w, 10)) {
    }
    CHECK(w, !par_revoke(w));
    if (me >= 2) {
        CHECK(w, par_shrink(w, &c) == PAR_ERR_ABORTED && !c && says(w, "so they end"));
        usleep(300000); // the other rank of this node hears of it, too
        kill(pids[0], SIGCONT);
        kill(pids[1], SIGCONT);
        return par_close(w) != PAR_OK;
    }
    par_set_timeout(w, 60);
    CHECK(w, !par_shrink(w, &c));
    par_close(w);
    while (par_size(c) > 2) c = recover(c); // the other side was heard of before it ended
    return sums(c, 1000) || par_close(c);
}
// The leader of a vote does not wait for it, and closes the comm: it leads on.
static int far_leads(par_comm *w) {
    const uint64_t mine[2] = {7, 0};
    unsigned char counted[3] = {1, 1, 1};
    par_comm *c;
    CHECK(w, !par_split(w, 0, 0, &c));
    par_set_timeout(w, 1000);
    if (par_rank(w) == 0) {
        CHECK(w, !par__hold_vote(c, PAR__KEEPS, mine, NULL));
        par_close(c);
    }
    CHECK(w, !par_barrier(w));
    if (par_rank(w)) {
        CHECK(w, !par__hold_vote(c, PAR__KEEPS, mine, counted) && par__vote_value(c, 0)[0] == 7);
        par_close(c);
    }
    return sums(w, 10) || par_close(w);
}
// A rank has heard of the ballot of a leader that is none any more: the one that is goes on by a higher one.
static int far_ballots(par_comm *w) {
    const uint64_t mine[2] = {(uint64_t)par_rank(w), 0};
    unsigned char counted[3] = {1, 1, 1};
    par_set_timeout(w, 1000);
    if (par_rank(w) == 1) {
        CHECK(w, !par__hold_vote(w, PAR__KEEPS, mine, NULL));
        w->world->tcp->decisions->promised = 2;
    }
    CHECK(w, !par_barrier(w));
    if (par_rank(w) != 1) CHECK(w, !par__hold_vote(w, PAR__KEEPS, mine, counted));
    if (par_rank(w) != 1) CHECK(w, par__vote_value(w, 1)[0] == 1 && par__vote_value(w, 2)[0] == 2);
    return sums(w, 10) || par_close(w);
}
// Comms come and go; of their votes few are kept.
static int far_forgets(par_comm *w) {
    par_comm *c;
    int kept = 0;
    for (int i = 0; i < 200; i++) {
        CHECK(w, !par_split(w, 0, 0, &c) && par_alloc(c, 10));
        par_close(c);
    }
    for (const par__decision *d = w->world->tcp->decisions; d; d = d->next) kept++;
    CHECK(w, kept <= PAR__DECISIONS + 4);
    return sums(w, 10) || par_close(w);
}
// Of a part's ranks one is silent. The world alone decides that it counts as dead: where each part did, two
// sides that do not hear each other could both go on.
static int far_parts(par_comm *w) {
    par_comm *half, *heard, *c;
    int pids[4], pid = (int)getpid();
    uint64_t bits = 1;
    const int me = par_rank(w);
    CHECK(w, !par_all_gather(&pid, pids, 1, PAR_I32, w));
    CHECK(w, !par_split(w, me & 1, -me, &half) && !par_split(w, me == 2, 0, &heard) && !par_barrier(w));
    if (me == 2) raise(SIGSTOP);
    par_set_timeout(w, 0.3);
    if (me == 0)
        CHECK(half, par_agree(half, &bits) == PAR_ERR_TIMEOUT && says(half, "par_shrink on the world"));
    CHECK(w, par__tcp_state(w->world->tcp, 2) == PAR__RANK_RUNNING);
    par_set_timeout(w, 60);
    CHECK(w, !par_barrier(heard));
    par_set_timeout(w, 2);
    CHECK(w, !par_revoke(w) && !par_shrink(w, &c) && par_size(c) == 3);
    par_set_timeout(w, 60);
    CHECK(w, !sums(c, 1000));
    if (me == 0) kill(pids[2], SIGKILL);
    par_close(w);
    return par_close(c);
}
// Processes that come later: to the world, and to what is left of it when its first rank has died.
static pid_t start_joiner(const char *where) {
    const pid_t pid = fork();
    if (pid) return pid;
    setenv("PAR_JOIN", where, 1);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    execl("/proc/self/exe", "elastic", "--joins", (char *)NULL);
    _exit(127);
}
static int numbers_continue(const par_comm *c) { // whoever is the first one when more join
    return c->world->tcp->next_place == par_world_rank(c, par_size(c) - 1) + 1;
}
static par_comm *let_join(par_comm *c, int count) {
    par_comm *more = NULL;
    par_result r;
    CHECK(c, par_rank(c) == 0 || !*par_join_at(c));
    for (int i = 0; i < count && par_rank(c) == 0; i++) start_joiner(par_join_at(c));
    while ((r = par_grow(c, count, &more)) == PAR_ERR_SYSTEM) { // until they have come
        CHECK(c, says(c, "fewer processes wait"));
        usleep(1000);
    }
    CHECK(c, !r && par_size(more) == par_size(c) + count && par_rank(more) == par_rank(c));
    CHECK(more, par_rank_before(more, par_size(c)) == -1 && par_rank_before(more, 0) == 0);
    par_close(c);
    CHECK(more, !sums(more, 1000) && !messages(more, COUNT) && numbers_continue(more));
    return more;
}
// One that does not answer is no new rank, and nobody is taken for dead who waits for it.
static int far_guest(par_comm *w) {
    par_comm *more;
    pid_t guest = 0;
    par__world *world = w->world;
    if (par_rank(w) == 0) guest = start_joiner(par_join_at(w));
    while (guest && !world->tcp->joiner_count) par__poll_net(world, par__now());
    if (guest) kill(guest, SIGSTOP);
    CHECK(w, !par_barrier(w));
    par_set_timeout(w, 4);
    CHECK(w, par_grow(w, 1, &more) == PAR_ERR_SYSTEM && says(w, "did not start"));
    if (guest) kill(guest, SIGKILL);
    return sums(w, 10) || par_close(w);
}
static int joined(par_comm *c) { // the rest of the job, on old and new ranks: the new ones come to its middle
    const int newcomer = par_size(c) > 3;
    par_comm *half;
    if (!newcomer)
        c = let_join(c, 2);
    else
        CHECK(c, !sums(c, 1000) && !messages(c, COUNT) && numbers_continue(c));
    if (par_size(c) == 5) {
        CHECK(c, !par_split(c, par_rank(c) & 1, 0, &half) && !sums(half, 1000) && !par_close(half));
        while (!sums(c, 10)) // until rank 0 has died
            if (par_rank(c) == 0) raise(SIGKILL);
        c = recover(c);
        CHECK(c, par_size(c) == 4 && !sums(c, 1000));
        c = let_join(c, 2); // the first of them is another one now
    }
    CHECK(c, par_size(c) == 6 && !sums(c, COUNT) && !messages(c, 10));
    return par_close(c) != PAR_OK;
}
typedef struct job {
    const char *name;
    int (*run)(par_comm *world);
    int ranks, run_again, status; // of the supervisor; < 0: the signal that kills it
    int node_ranks;               // > 0: over TCP, of so many
} job;
static const job jobs[] = {{"mistakes", mistakes, 3, 0, 0, 0},
                           {"stopped", stopped, 4, 0, 0, 0},
                           {"silent", silent, 3, 0, 0, 0},
                           {"begun", begun, 3, 0, 0, 0},
                           {"halves", halves, 4, 0, 0, 0},
                           {"all_die", all_die, 3, 0, 1, 0},
                           {"ends_badly", ends_badly, 3, 0, 3, 0},
                           {"asked", asked, 3, 0, 0, 0},
                           {"orphaned", orphaned, 3, 0, -SIGKILL, 0},
                           {"grows", grows, 2, 0, 0, 0},
                           {"grows_again", grows, 2, 1, 0, 0},
                           {"halves_again", halves, 4, 1, 0, 0},
                           {"far_joins", joined, 3, 0, 0, 2},
                           {"far_mistakes", mistakes, 3, 0, 0, 1},
                           {"far_stopped", stopped, 4, 0, 0, 3},
                           {"far_begun", begun, 3, 0, 0, 2},
                           {"far_halves_live", halves, 4, 0, 0, 1},
                           {"far_silence", far_silence, 4, 0, 0, 1},
                           {"far_halves", far_halves, 4, 0, 0, 2},
                           {"far_leads", far_leads, 3, 0, 0, 1},
                           {"far_ballots", far_ballots, 3, 0, 0, 1},
                           {"far_forgets", far_forgets, 3, 0, 0, 1},
                           {"far_parts", far_parts, 4, 0, 0, 1},
                           {"far_guest", far_guest, 3, 0, 0, 2}};
enum { JOBS = sizeof jobs / sizeof *jobs };
static int open_job(const void *x) {
    const job *t = (const job *)x;
    par_desc d;
    par_comm *world;
    memset(&d, 0, sizeof d);
    d.elastic = 1;
    d.rank_count = t->ranks;
    d.node_ranks = t->node_ranks;
    d.run_again = t->run_again ? 1 : -1;
    if (par_open(&d, &world)) return 8;
    return t->run(world);
}
static int join_job(void) {
    par_desc d;
    par_comm *world;
    memset(&d, 0, sizeof d);
    d.elastic = 1;
    return par_open(&d, &world) ? 8 : joined(world);
}
static int run_job(const char *name) {
    const job *t = jobs;
    while (t < jobs + JOBS && strcmp(t->name, name)) t++;
    if (t == jobs + JOBS) return 2;
    return t->node_ranks ? launch(t->ranks, 1, open_job, t) : open_job(t);
}
static int check_job(const job *t) { // in a process of its own, until all its ranks have ended
    int out[2], status = 0, got = 0, reports = 0;
    char byte;
    fflush(NULL);
    if (pipe(out)) abort();
    const pid_t pid = fork();
    if (!pid) {
        dup2(out[1], REPORT);
        close(out[0]);
        alarm(100);
        execl("/proc/self/exe", "elastic", "--job", t->name, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    while (read(out[0], &byte, 1) > 0) reports++;
    close(out[0]);
    waitpid(pid, &status, 0);
    got = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    if (got != t->status || reports)
        fprintf(stderr, "--job %s ended with %d, not %d; %d reports\n", t->name, got, t->status, reports);
    return got == t->status && !reports;
}

static int64_t in_process(const run *t, int *status) { // what it prints, if anything
    int out[2];
    char text[64];
    fflush(NULL);
    if (pipe(out)) abort();
    memset(shared, 0, sizeof *shared);
    const pid_t pid = fork();
    if (!pid) {
        dup2(out[1], 1), dup2(out[1], REPORT);
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
    if (strchr(text, 'F')) *status |= 1 << 16; // a rank has reported
    if (!gains_are_alike())
        fprintf(stderr, "some ranks have a comm or memory, others an error\n"), *status |= 1 << 17;
    return strtoll(text, NULL, 10);
}
int main(int argc, char **argv) {
    // The victim; a second one, that dies in the recovery; new ranks
    static const run kinds[] = {
        {4, 0, 1, -1, 0, 0, 0, 0, 0}, {4, 0, 0, -1, 0, 0, 0, 0, 0}, {3, 0, 2, -1, 1, 0, 0, 0, 0},
        {4, 0, 1, 0, 0, 0, 0, 0, 0},  {4, 0, 3, 2, 0, 0, 0, 0, 0},  {3, 0, 0, -1, 1, 0, 0, 0, 0},
        {4, 2, 2, -1, 0, 0, 0, 0, 0}, {5, 2, 4, 0, 0, 0, 0, 0, 0},  {4, 0, 0, -1, 0, 1, 0, 0, 0},
        {4, 0, 3, -1, 0, 1, 0, 0, 0}, {6, 2, 2, -1, 0, 1, 0, 0, 0}, {6, 2, 0, -1, 0, 1, 0, 0, 0},
        {4, 2, 1, -1, 0, 0, 0, 1, 0}, {4, 2, 0, -1, 0, 0, 0, 1, 0}, {5, 2, 3, 0, 0, 0, 0, 1, 0},
        {4, 1, 0, 1, 0, 0, 0, 1, 0},  {6, 2, 2, -1, 0, 1, 0, 1, 0}, {6, 2, 0, -1, 0, 1, 0, 1, 0}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    int64_t points[KINDS];
    long count = 40, only = -1, failures = 0;
    if (argc == 3 && !strcmp(argv[1], "--job")) return run_job(argv[2]);
    if (argc == 2 && !strcmp(argv[1], "--joins")) return join_job();
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--points"))
            count = strtol(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--only"))
            only = strtol(argv[i + 1], NULL, 10);
    shared = (gains *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return perror("mmap"), 1;
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
    for (int i = 0; i < JOBS && only < 0; i++) failures += !check_job(&jobs[i]);
    printf("%d jobs, %ld planned points, %ld failures\n", (int)JOBS, count, failures);
    return failures != 0;
}

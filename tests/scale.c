// Every collective on many nodes: what it returns, what its arrivals cost in messages and bytes, what a comm
// costs in memory, and what a mistake of one rank says.
//     build/scale --threads RANKS NODE    ranks are threads; nodes of NODE ranks
//     build/scale                         as a launcher, or PAR_RANKS, starts it; PAR_NODE_RANKS makes nodes
#define PAR_IMPLEMENTATION
#include "par.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int scale_failures;
static int scale_failed(const par_comm *c, int line, const char *what) {
    if (__atomic_fetch_add(&scale_failures, 1, __ATOMIC_SEQ_CST) < 5)
        fprintf(stderr, "tests/scale.c:%d: rank %d of %d: %s: %s\n", line, par_rank(c), par_size(c), what,
                par_last_error(c));
    return 1;
}
#define CHECK(c, condition)                                                                                  \
    do {                                                                                                     \
        if (!(condition)) return scale_failed(c, __LINE__, #condition); /* what follows would fail, too */   \
    } while (0)
enum { MOST = 1 << 17 }; // numbers of all ranks in one call
typedef struct arrays {
    int32_t x[MOST], y[MOST];
    float fx[MOST], fy[MOST];
} arrays;

static float in_order(size_t i, int ranks) { // the sum of what fill writes
    float sum = 0;
    for (int r = 0; r < ranks; r++) {
        const float term = 0.1f * (float)(r + 1) + (float)(i % 31);
        sum = r ? sum + term : term;
    }
    return sum;
}
static void fill(arrays *a, size_t count, int me) {
    for (size_t i = 0; i < count; i++) {
        a->x[i] = (int32_t)i + 1000 * me;
        a->fx[i] = 0.1f * (float)(me + 1) + (float)(i % 31);
    }
}
static int check_sums(par_comm *c, arrays *a, size_t count, int root) {
    const int n = par_size(c), me = par_rank(c), terms = 1000 * (n * (n - 1) / 2);
    int right = 1;
    fill(a, count * (size_t)n, me);
    CHECK(c, !par_all_reduce(a->x, a->y, count, PAR_I32, PAR_SUM, c));
    for (size_t i = 0; i < count; i++) right &= a->y[i] == n * (int)i + terms;
    CHECK(c, !par_all_reduce(a->x, a->y, count, PAR_I32, PAR_MAX, c));
    for (size_t i = 0; i < count; i++) right &= a->y[i] == (int)i + 1000 * (n - 1);
    CHECK(c, !par_reduce(a->x, a->y, count, PAR_I32, PAR_AVG, root, c));
    for (size_t i = 0; i < count && me == root; i++) right &= a->y[i] == (n * (int)i + terms) / n;
    CHECK(c, !par_all_reduce(a->fx, a->fy, count, PAR_F32, PAR_SUM, c));
    for (size_t i = 0; i < count; i += 7) right &= a->fy[i] == in_order(i, n);
    CHECK(c, !par_reduce(a->fx, a->fy, count, PAR_F32, PAR_SUM, root, c));
    for (size_t i = 0; i < count && me == root; i += 7) right &= a->fy[i] == in_order(i, n);
    CHECK(c, !par_reduce_scatter(a->x, a->y, count, PAR_I32, PAR_SUM, c));
    for (size_t i = 0; i < count; i++) right &= a->y[i] == n * ((int)i + me * (int)count) + terms;
    CHECK(c, !par_reduce_scatter(a->fx, a->fy, count, PAR_F32, PAR_SUM, c));
    for (size_t i = 0; i < count; i += 7) right &= a->fy[i] == in_order(i + (size_t)me * count, n);
    CHECK(c, right);
    return 0;
}
static int check_blocks(par_comm *c, arrays *a, size_t count, int root) {
    const int n = par_size(c), me = par_rank(c);
    const size_t all = count * (size_t)n;
    int right = 1;
    fill(a, all, me);
    memcpy(a->y, a->x, count * sizeof *a->y);
    CHECK(c, !par_broadcast(a->y, a->y, count, PAR_I32, root, c));
    for (size_t i = 0; i < count; i++) right &= a->y[i] == (int)i + 1000 * root;
    for (int gather = 0; gather < 2; gather++) {
        memset(a->y, 0, all * sizeof *a->y);
        CHECK(c, !(gather ? par_gather(a->x, a->y, count, PAR_I32, root, c)
                          : par_all_gather(a->x, a->y, count, PAR_I32, c)));
        for (size_t i = 0; i < all && (!gather || me == root); i++)
            right &= a->y[i] == (int)(i % count) + 1000 * (int)(i / count);
    }
    CHECK(c, !par_scatter(a->x, a->y, count, PAR_I32, root, c));
    for (size_t i = 0; i < count; i++) right &= a->y[i] == (int)(i + (size_t)me * count) + 1000 * root;
    CHECK(c, !par_all_to_all(a->x, a->y, count, PAR_I32, c));
    for (size_t i = 0; i < all; i++)
        right &= a->y[i] == (int)(i % count + (size_t)me * count) + 1000 * (int)(i / count);
    CHECK(c, right);
    return 0;
}

// Blocks of unequal sizes, or none. par_all_to_allv passes a message between every two ranks: of few ranks.
static size_t size_of(int r) { return (size_t)(r % 4); }
static size_t begin_of(int r) { return (size_t)(r / 4 * 6 + (r % 4) * (r % 4 - 1) / 2); }
static int check_counts(par_comm *c, arrays *a, int root, size_t *sizes) {
    const int n = par_size(c), me = par_rank(c);
    int right = 1;
    fill(a, begin_of(n), me);
    for (int r = 0; r < n; r++) sizes[r] = size_of(r);
    for (int gather = 0; gather < 2; gather++) {
        memset(a->y, 0, begin_of(n) * sizeof *a->y);
        CHECK(c, !(gather ? par_gatherv(a->x, size_of(me), a->y, sizes, NULL, PAR_I32, root, c)
                          : par_all_gatherv(a->x, a->y, sizes, NULL, PAR_I32, c)));
        for (int r = 0; r < n && (!gather || me == root); r++)
            for (size_t i = 0; i < size_of(r); i++) right &= a->y[begin_of(r) + i] == (int)i + 1000 * r;
    }
    CHECK(c, !par_scatterv(a->x, sizes, NULL, a->y, size_of(me), PAR_I32, root, c));
    CHECK(c, !par_reduce_scatterv(a->fx, a->fy, sizes, PAR_F32, PAR_SUM, c));
    for (size_t i = 0; i < size_of(me); i++)
        right &=
            a->y[i] == (int)(begin_of(me) + i) + 1000 * root && a->fy[i] == in_order(begin_of(me) + i, n);
    for (int r = 0; r < n; r++) sizes[r] = size_of(r + me); // to rank r, and from it
    if (n <= 150) CHECK(c, !par_all_to_allv(a->x, sizes, NULL, a->y, sizes, NULL, PAR_I32, c));
    for (int r = 0, at = 0; r < n && n <= 150; r++)
        for (size_t i = 0; i < size_of(r + me); i++)
            right &= a->y[at++] == (int)(begin_of(r + me) - begin_of(r) + i) + 1000 * r;
    CHECK(c, right);
    return 0;
}

// A leader sends ceil(log8 k) times up to 7 messages: of 64 bytes in the first step, 128 later, and the data.
static int check_costs(par_comm *c, arrays *a) {
    const int k = par_node_count(c), n = par_size(c);
    int leads = 1;
    uint64_t messages = 0, bytes = 0;
    for (int r = 0; r < par_rank(c); r++) leads &= par_node_of(c, r) != par_node_of(c, par_rank(c));
    for (int d = 1; d < k; d *= 8)
        for (int far = d; far < k && far < 8 * d; far += d, messages++) bytes += d > 1 ? 128 : 64;
    const par_ledger before = par_ledger_get(c, PAR_KIND_BARRIER);
    CHECK(c, !par_barrier(c) && !par_barrier(c));
    const par_ledger after = par_ledger_get(c, PAR_KIND_BARRIER);
    CHECK(c, after.net_messages - before.net_messages == (leads ? 2 * messages : 0));
    CHECK(c, after.net_bytes - before.net_bytes == (leads ? 2 * bytes : 0));
    const par_ledger sum = par_ledger_get(c, PAR_KIND_ALL_REDUCE);
    CHECK(c, !par_all_reduce(a->x, a->y, 2, PAR_I64, PAR_SUM, c)); // one sum beside each digest
    const par_ledger summed = par_ledger_get(c, PAR_KIND_ALL_REDUCE);
    CHECK(c, summed.net_messages - sum.net_messages == (leads ? messages : 0));
    CHECK(c, summed.net_bytes - sum.net_bytes == (leads ? bytes + bytes / 64 * 16 : 0));
    if (!par_rank(c))
        printf("%d ranks on %d nodes: a barrier: %d messages and %d bytes of a leader\n", n, k, (int)messages,
               (int)bytes);
    return 0;
}
// One rank makes another call: all hear which, and go on.
static int check_mistakes(par_comm *c, arrays *a) {
    const int n = par_size(c), me = par_rank(c);
    for (int wrong = 0; wrong < n; wrong += n / 3 + 1) {
        char text[64];
        snprintf(text, sizeof text, "rank %d called par_all_reduce(count=%d, f32, op=sum)", wrong ? wrong : 1,
                 wrong ? 4 : 3);
        const par_result r = par_all_reduce(a->fx, a->fy, me == wrong ? 4 : 3, PAR_F32, PAR_SUM, c);
        CHECK(c, r == PAR_ERR_MISMATCH && strstr(par_last_error(c), text) &&
                     strstr(par_last_error(c), "tests/scale.c"));
        CHECK(c, !par_barrier(c));
    }
    return 0;
}

// An exchange with all others, of blocks that wait for their receivers: more messages than are in flight.
static int check_exchange(par_comm *c) {
    enum { COUNT = 4096 };
    const int n = par_size(c), me = par_rank(c);
    int *peers = (int *)malloc((size_t)n * sizeof *peers), right = 1;
    size_t *counts = (size_t *)malloc((size_t)n * sizeof *counts);
    int32_t *x = (int32_t *)malloc(2 * (size_t)n * COUNT * sizeof *x), *y = x + (size_t)n * COUNT;
    par_neighbors *all;
    for (int r = 0; r < n; r++) peers[r] = r, counts[r] = COUNT;
    for (size_t i = 0; i < (size_t)n * COUNT; i++) x[i] = (int32_t)i + 7 * me, y[i] = 0;
    CHECK(c, !par_neighbors_open(c, n, peers, NULL, &all));
    CHECK(c, !par_neighbor_exchange(x, counts, NULL, y, counts, NULL, PAR_I32, all));
    for (size_t i = 0; i < (size_t)n * COUNT; i += 999)
        right &= y[i] == (int)(i % COUNT) + me * COUNT + 7 * (int)(i / COUNT);
    CHECK(c, right && !par_neighbors_close(all));
    free(peers);
    free(counts);
    free(x);
    return 0;
}

// MPI: what is not shared, because MPI's own shared memory is touched bit by bit.
static size_t memory_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0, shared = 0;
    if (f && fscanf(f, "%*d %ld %ld", &pages, &shared) != 2) pages = 0;
    if (f) fclose(f);
#if defined(PAR_MPI)
    pages -= shared;
#endif
    return (size_t)pages * 4096;
}
// Comms that have made a call: bytes of a rank for each. Threads: the process has all ranks' memory.
static int check_memory(par_comm *c, int threads) {
    enum { COMMS = 8 };
    par_comm *split[COMMS];
    par_barrier(c);
    const size_t before = memory_bytes();
    for (int i = 0; i < COMMS; i++)
        CHECK(c, !par_split(c, 0, par_rank(c), &split[i]) && !par_barrier(split[i]));
    par_barrier(c);
    const size_t each = (memory_bytes() - before) / COMMS / (threads ? (size_t)par_size(c) : 1);
    if (!par_rank(c)) printf("%d ranks: %zu bytes a rank and comm\n", par_size(c), each);
    CHECK(c, each <= 48 << 10);
    par_barrier(c);
    for (int i = 0; i < COMMS; i++) CHECK(c, !par_close(split[i]));
    return 0;
}

static int scale(par_comm *c, void *threads) {
    static const size_t counts[] = {1, 5, 64, 2000};
    arrays *a = (arrays *)calloc(1, sizeof *a);
    const int n = par_size(c);
    int failed = 0;
    if (!a) return 1;
    for (int i = 0; i < 4; i++) {
        if (counts[i] * (size_t)n > MOST || (i > 1 && n > 100)) continue;
        failed = failed || check_sums(c, a, counts[i], (7 * i + 3) % n) ||
                 check_blocks(c, a, counts[i], (5 * i + 1) % n);
    }
    size_t *sizes = (size_t *)malloc((size_t)n * sizeof *sizes);
    failed = failed || check_counts(c, a, n / 2, sizes) || check_costs(c, a) || check_mistakes(c, a) ||
             (n <= 100 && check_exchange(c)) || check_memory(c, threads != NULL);
    free(sizes);
    free(a);
    return failed;
}
// More than 150 threads, without messages between every two, had at most 1 MiB each, arrays included.
static int is_small(int ranks) {
    struct rusage used;
    const long kib = getrusage(RUSAGE_SELF, &used) ? -1 : used.ru_maxrss, most = 1024L * (ranks + 32);
    printf("%d ranks as threads: at most %ld MiB of memory\n", ranks, kib >> 10);
    if (ranks <= 150 || kib <= most) return 1;
    fprintf(stderr, "tests/scale.c: that is more than %ld MiB\n", most >> 10);
    return 0;
}
int main(int argc, char **argv) {
    par_desc d;
    par_comm *world;
    memset(&d, 0, sizeof d);
    if (argc == 4 && !strcmp(argv[1], "--threads")) {
        d.rank_count = atoi(argv[2]);
        d.node_ranks = atoi(argv[3]);
        return par_run_threads(&d, scale, &d) != PAR_OK || !is_small(d.rank_count);
    }
    if (par_open(&d, &world) != PAR_OK) return 1;
    const int failed = scale(world, NULL);
    if (failed) par_abort(world, "a check failed");
    return par_close(world) != PAR_OK || failed;
}

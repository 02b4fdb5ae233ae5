// test_par.c - par.h against naive references, by every launch method.
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
static __thread long lock_questions; // that this thread has asked the kernel: whether a rank is alive
static int counting_fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    lock_questions += command == F_GETLK;
    return fcntl(fd, command, argument);
}
#define fcntl(...) counting_fcntl(__VA_ARGS__)
#include "kit.c"
#undef fcntl
#include <linux/filter.h>
#include <linux/seccomp.h>
#define TEST_TCP 1
#include "test.h"

// ---- data: a value for each (rank, element, salt), small integers so that every sum is exact in every type
//
// A few sequences of random numbers, in every type. A rank reads one of them from a place of its own on, and
// from its front again after PERIOD, a prime: no displacement by blocks or chunks is a multiple of it.

enum { PERIOD = 4093, AT_ONCE = 256 };
enum { SIGNED, UNSIGNED, FACTORS, SIGNS, UNSIGNED_FACTORS, ONES, SEQUENCES }; // factors: of six ranks at most
static struct {
    pthread_once_t once;
    signed char numbers[SEQUENCES][PERIOD + AT_ONCE];
    unsigned char typed[SEQUENCES][PAR_DTYPE_COUNT][(PERIOD + AT_ONCE) * 8];
} values = {PTHREAD_ONCE_INIT, {{0}}, {{{0}}}};

static uint64_t mixed(uint64_t a, uint64_t b) {
    uint64_t x = (a << 32 ^ b) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    return x >> 37;
}
static int is_unsigned(par_dtype d) { return !par_dtype_traits_of(d)->is_signed; }
static void values_make(void) {
    float x[PERIOD + AT_ONCE];
    for (unsigned k = 0; k < SEQUENCES; k++) {
        for (size_t i = 0; i < PERIOD + AT_ONCE; i++) {
            const int h = (int)mixed(k + 1, i % PERIOD), two = h % 4 == 0, sign = h % 3 ? 1 : -1;
            const int v[SEQUENCES] = {h % 15 - 7, h % 8, two ? 2 : sign, sign, two ? 2 : 1, 1};
            x[i] = values.numbers[k][i] = (signed char)v[k];
        }
        for (int d = 0; d < PAR_DTYPE_COUNT; d++)
            if (is_unsigned((par_dtype)d) == (k == UNSIGNED || k >= UNSIGNED_FACTORS))
                par_cast(values.typed[k][d], (par_dtype)d, x, PAR_F32, PERIOD + AT_ONCE);
    }
}
static unsigned sequence(par_dtype d, par_op op, int rank) {
    if ((op & 255) != PAR_PROD) return is_unsigned(d) ? UNSIGNED : SIGNED;
    return is_unsigned(d) ? (rank < 6 ? UNSIGNED_FACTORS : ONES) : rank < 6 ? FACTORS : SIGNS;
}
static size_t place(int rank, unsigned salt, size_t i) { // of a rank's element i, in its sequence
    return (size_t)((mixed(salt + 1, (uint64_t)rank + 1) + i) % PERIOD);
}

// The reduction of elements [first, first + count) of the first ranks, not yet rounded; count <= AT_ONCE.
static void reduce_values(double *x, par_dtype d, par_op op, int ranks, size_t first, size_t count,
                          unsigned salt) {
    const unsigned code = (unsigned)(op & 255);
    int acc[AT_ONCE];
    for (int r = 0; r < ranks; r++) {
        const signed char *v = values.numbers[sequence(d, op, r)] + place(r, salt, first);
        for (size_t i = 0; i < count; i++)
            acc[i] = r == 0             ? v[i]
                     : code == PAR_PROD ? acc[i] * v[i]
                     : code == PAR_MIN  ? (v[i] < acc[i] ? v[i] : acc[i])
                     : code == PAR_MAX  ? (v[i] > acc[i] ? v[i] : acc[i])
                                        : acc[i] + v[i];
    }
    for (size_t i = 0; i < count; i++)
        x[i] = code == PAR_SCALED_SUM ? acc[i] * 0.5
               : code != PAR_AVG      ? acc[i]
               : d == PAR_F64         ? (double)acc[i] / ranks
               : !is_float(d)         ? acc[i] / ranks
                                      : (double)((float)acc[i] / (float)ranks);
}

static double get(const void *p, par_dtype d, size_t i) {
    double x;
    par_cast(&x, PAR_F64, (const char *)p + i * par_dtype_bytes(d), d, 1);
    return x;
}
static void put(void *p, par_dtype d, size_t i, double x) {
    par_cast((char *)p + i * par_dtype_bytes(d), d, &x, PAR_F64, 1);
}

// A buffer with canaries on both sides: 0xFF bytes are NaN in every float type.
enum { CANARY = 64 };
typedef struct buffer {
    unsigned char *base, *at;
    size_t bytes, dirty; // so many from `at` on have been written
    int symmetric, trials;
} buffer;
static buffer buffer_open(par_comm *w, size_t bytes, int symmetric) {
    buffer b;
    b.bytes = bytes, b.dirty = 0, b.symmetric = symmetric, b.trials = 0;
    b.base = (unsigned char *)(symmetric ? par_alloc(w, bytes + 2 * CANARY) : malloc(bytes + 2 * CANARY));
    CHECK(w, b.base != NULL);
    if (!b.base) exit(1);
    b.at = b.base + CANARY;
    memset(b.base, 0xFF, bytes + 2 * CANARY);
    return b;
}
static int all_are(unsigned char value, const unsigned char *p, size_t n) {
    return !n || (p[0] == value && !memcmp(p, p + 1, n - 1));
}
static int untouched(const unsigned char *p, size_t n) { return all_are(0xFF, p, n); }
// Nothing beyond the used part was written: not as much again, nor 4 KiB.
static void buffer_check(par_comm *w, const buffer *b, size_t used) {
    const size_t far = PAR__MIN(b->bytes + CANARY, used + PAR__MAX(used, 4096));
    CHECK(w, untouched(b->base, CANARY) && untouched(b->at + used, far - used));
}
static void buffer_reset(par_comm *w, buffer *b) { // for the next trial; now and then all of it is looked at
    memset(b->at, 0xFF, b->dirty);
    if (b->trials++ % 32 == 31) CHECK(w, untouched(b->base, b->bytes + 2 * CANARY));
}
static void buffer_close(par_comm *w, buffer *b) {
    if (b->symmetric)
        CHECK_OK(w, par_free(w, b->base));
    else
        free(b->base);
}

static int says(par_comm *w, const char *text) { return strstr(par_last_error(w), text) != NULL; }

// ---- every collective x algorithm x dtype x op x in place x count x memory --------------------------------

typedef struct trial {
    par_kind kind;
    par_dtype dtype;
    par_op op;
    size_t count;
    int in_place, root;
    unsigned salt;
} trial;

// What this rank passes to the call of a trial. Block r of an array of all blocks has counts[r] elements and
// starts at displs[r]; displs[n] is the array's length. The array that all_to_allv receives has counts of its
// own.
enum { TRIAL_RANKS = 128 };
typedef struct arguments {
    unsigned char *send, *recv, *root_send, *root_recv; // root_...: NULL on the other ranks
    size_t counts[TRIAL_RANKS], displs[TRIAL_RANKS + 1], recv_counts[TRIAL_RANKS],
        recv_displs[TRIAL_RANKS + 1];
    const size_t *root_counts, *root_displs;
    size_t sent, received, first; // elements of send and recv; send[0] is this rank's element number `first`
} arguments;

// A row for each kind: what send and recv hold, which counts the blocks have, whether it reduces, its call.
// EVEN: every block has t->count elements. PACKED: each has a count of its own. GAPPED: and a hole of one
// element comes after each. ROOTED: as GAPPED, but the root alone knows them. OWN: a count for each pair of
// ranks.
enum { NO, BLOCK, ALL, AT_ROOT = 4, ROOT_BLOCK, ROOT_ALL };
enum { EVEN, PACKED, GAPPED, ROOTED, OWN };
#define TRIALS(X)                                                                                            \
    X(BARRIER, NO, NO, EVEN, 0, par_barrier(w))                                                              \
    X(ALL_REDUCE, BLOCK, BLOCK, EVEN, 1, par_all_reduce(a->send, a->recv, c, d, t->op, w))                   \
    X(REDUCE_SCATTER, ALL, BLOCK, EVEN, 1, par_reduce_scatter(a->send, a->recv, c, d, t->op, w))             \
    X(REDUCE_SCATTERV, ALL, BLOCK, PACKED, 1, par_reduce_scatterv(a->send, a->recv, a->counts, d, t->op, w)) \
    X(ALL_GATHER, BLOCK, ALL, EVEN, 0, par_all_gather(a->send, a->recv, c, d, w))                            \
    X(ALL_GATHERV, BLOCK, ALL, GAPPED, 0, par_all_gatherv(a->send, a->recv, a->counts, a->displs, d, w))     \
    X(BROADCAST, ROOT_BLOCK, BLOCK, EVEN, 0, par_broadcast(a->root_send, a->recv, c, d, t->root, w))         \
    X(REDUCE, BLOCK, ROOT_BLOCK, EVEN, 1, par_reduce(a->send, a->root_recv, c, d, t->op, t->root, w))        \
    X(GATHER, BLOCK, ROOT_ALL, EVEN, 0, par_gather(a->send, a->root_recv, c, d, t->root, w))                 \
    X(GATHERV, BLOCK, ROOT_ALL, ROOTED, 0,                                                                   \
      par_gatherv(a->send, a->sent, a->recv, a->root_counts, a->root_displs, d, t->root, w))                 \
    X(SCATTER, ROOT_ALL, BLOCK, EVEN, 0, par_scatter(a->root_send, a->recv, c, d, t->root, w))               \
    X(SCATTERV, ROOT_ALL, BLOCK, ROOTED, 0,                                                                  \
      par_scatterv(a->send, a->root_counts, a->root_displs, a->recv, a->received, d, t->root, w))            \
    X(ALL_TO_ALL, ALL, ALL, EVEN, 0, par_all_to_all(a->send, a->recv, c, d, w))                              \
    X(ALL_TO_ALLV, ALL, ALL, OWN, 0,                                                                         \
      par_all_to_allv(a->send, a->counts, a->displs, a->recv, a->recv_counts, a->recv_displs, d, w))
#define X(kind, send, recv, counts, reduces, call)                                                           \
    static par_result call_##kind(par_comm *w, const trial *t, const arguments *a) {                         \
        const size_t c = t->count;                                                                           \
        const par_dtype d = t->dtype;                                                                        \
        (void)a, (void)c, (void)d;                                                                           \
        return call;                                                                                         \
    }
TRIALS(X)
#undef X
typedef struct trial_kind {
    int send, recv, counts, reduces;
    par_result (*call)(par_comm *w, const trial *t, const arguments *a);
} trial_kind;
#define X(kind, send, recv, counts, reduces, call)                                                           \
    [PAR_KIND_##kind] = {send, recv, counts, reduces, call_##kind},
static const trial_kind trial_kinds[PAR_KIND_SEND] = {TRIALS(X)};
#undef X
static int takes_in_place(int kind) { return !(trial_kinds[kind].send & trial_kinds[kind].recv & ALL); }

static size_t block_count(const trial *t, int from, int to, int block) {
    const int counts = trial_kinds[t->kind].counts;
    if (counts == EVEN || !t->count) return t->count;
    return (t->count + (size_t)(counts == OWN ? from + 2 * to : 3 * block)) % (t->count + 1);
}
static size_t block_start(const trial *t, int from, int block) { // in the array that rank `from` sends
    const int counts = trial_kinds[t->kind].counts, gap = counts == GAPPED || counts == ROOTED;
    size_t at = 0;
    for (int i = 0; i < block; i++) at += block_count(t, from, i, i) + (size_t)gap;
    return at;
}

// Write a rank's elements, from `first` on; rank < 0: the reduction of the elements of -rank ranks.
static void put_values(void *to, const trial *t, int rank, size_t first, size_t count) {
    const size_t e = par_dtype_bytes(t->dtype);
    double x[AT_ONCE];
    pthread_once(&values.once, values_make);
    for (size_t i = 0, n; i < count; i += n) {
        char *at = (char *)to + i * e;
        n = PAR__MIN(AT_ONCE, count - i);
        if (rank < 0) {
            reduce_values(x, t->dtype, t->op, -rank, first + i, n, t->salt);
            par_cast(at, t->dtype, x, PAR_F64, n);
            continue;
        }
        const size_t from = place(rank, t->salt, first + i);
        n = PAR__MIN(PERIOD + AT_ONCE - from, count - i);
        memcpy(at, values.typed[sequence(t->dtype, t->op, rank)][t->dtype] + from * e, n * e);
    }
}
// Fill in the arguments; the arrays are in sb and rb, or one is a part of the other (in place).
static void make_arguments(par_comm *w, const trial *t, buffer *sb, buffer *rb, arguments *a) {
    const trial_kind *k = &trial_kinds[t->kind];
    const int n = par_size(w), me = par_rank(w), root = me == t->root;
    const int sends = k->send && (root || !(k->send & AT_ROOT)),
              receives = k->recv && (root || !(k->recv & AT_ROOT));
    const size_t e = par_dtype_bytes(t->dtype);
    a->recv_displs[0] = 0;
    for (int i = 0; i <= n; i++) a->displs[i] = block_start(t, me, i);
    for (int i = 0; i < n; i++) {
        a->counts[i] = block_count(t, me, i, i), a->recv_counts[i] = block_count(t, i, me, i);
        a->recv_displs[i + 1] =
            a->recv_displs[i] + a->recv_counts[i] + a->displs[i + 1] - a->displs[i] - a->counts[i];
    }
    a->sent = !sends ? 0 : k->send & ALL ? a->displs[n] : a->counts[me];
    a->received = !receives ? 0 : k->recv & ALL ? a->recv_displs[n] : a->counts[me];
    a->first = k->send & BLOCK && k->recv & ALL ? a->displs[me] : 0;
    a->send = sb->at, a->recv = rb->at;
    if (t->in_place && sends && receives) {
        if (k->recv & ALL)
            a->send = rb->at + a->first * e;
        else
            a->recv = sb->at + (k->send & ALL ? a->displs[me] * e : 0);
    }
    a->root_send = root ? a->send : NULL, a->root_recv = root ? a->recv : NULL;
    a->root_counts = root ? a->counts : NULL, a->root_displs = root ? a->displs : NULL;
}
static par_call describe(par_comm *w, const trial *t, const arguments *a) {
    const trial_kind *k = &trial_kinds[t->kind];
    const int own = k->counts == OWN, rooted = k->counts == ROOTED,
              same = k->counts == PACKED || k->counts == GAPPED;
    par_call call;
    memset(&call, 0, sizeof call);
    call.kind = t->kind, call.dtype = t->dtype, call.op = k->reduces ? t->op : PAR_SUM, call.root = t->root;
    call.count = rooted ? a->counts[par_rank(w)] : t->count;
    call.send = k->send & AT_ROOT ? a->root_send : a->send,
    call.recv = k->recv & AT_ROOT ? a->root_recv : a->recv;
    if (own || (rooted && k->send & ALL)) call.send_counts = own ? a->counts : a->root_counts;
    if (own || (rooted && k->send & ALL)) call.send_displs = own ? a->displs : a->root_displs;
    if (own) call.recv_counts = a->recv_counts, call.recv_displs = a->recv_displs;
    if (rooted && k->recv & ALL) call.recv_counts = a->root_counts, call.recv_displs = a->root_displs;
    if (same) call.recv_counts = a->counts;
    if (k->counts == GAPPED) call.recv_displs = a->displs;
    return call;
}
static par_result call_by_description(par_comm *w, const trial *t, const arguments *a) {
    const int waits = (int)(t->count % 2);
    const par_call call = describe(w, t, a);
    par_request request;
    const par_result r = par_begin(w, &call, waits ? &request : NULL);
    return r || !waits ? r : par_wait(&request);
}
// What recv holds after the call; gaps between blocks stay unchanged.
static void put_wanted(par_comm *w, const trial *t, const arguments *a, unsigned char *want) {
    const trial_kind *k = &trial_kinds[t->kind];
    const int n = par_size(w), all = k->recv & ALL;
    const size_t e = par_dtype_bytes(t->dtype);
    memset(want, 0xFF, a->received * e);
    for (int q = 0; q < (all ? n : 1) && a->received; q++) {
        const int from = all ? q : t->root;
        const size_t first = k->send & ALL ? block_start(t, from, par_rank(w)) : all ? a->displs[q] : 0;
        put_values(want + (all ? a->recv_displs[q] * e : 0), t, k->reduces ? -n : from, first,
                   all ? a->recv_counts[q] : a->received);
    }
}
static void run_trial(par_comm *w, const trial *t, buffer *sb, buffer *rb) {
    const size_t e = par_dtype_bytes(t->dtype), c = t->count;
    size_t wrong = 0;
    arguments a;
    buffer_reset(w, sb), buffer_reset(w, rb);
    make_arguments(w, t, sb, rb, &a);
    const size_t sent = a.sent * e, received = a.received * e;
    put_values(a.send, t, par_rank(w), a.first, a.sent);
    CHECK_OK(w, (c % 3 == 1 ? call_by_description : trial_kinds[t->kind].call)(w, t, &a));
    unsigned char *want = (unsigned char *)malloc(received + 1), *input = (unsigned char *)malloc(sent + 1);
    put_wanted(w, t, &a, want);
    for (size_t i = 0; i < received && memcmp(want, a.recv, received); i += e)
        wrong += memcmp(want + i, a.recv + i, e) != 0;
    if (wrong) {
        char why[200];
        snprintf(why, sizeof why,
                 "%zu wrong of %zu: par_%s %s %s count=%zu in_place=%d root=%d algorithm=%s memory=%s/%s",
                 wrong, a.received, par_kind_name(t->kind), par_dtype_name(t->dtype), par_op_name(t->op), c,
                 t->in_place, t->root, par_last_algorithm(w), sb->symmetric ? "symmetric" : "private",
                 rb->symmetric ? "symmetric" : "private");
        test_fail(__FILE__, __LINE__, par_rank(w), "result", why);
    }
    const int recv_in_send = a.recv >= sb->at && a.recv < sb->at + sb->bytes && t->in_place;
    const int send_in_recv = a.send >= rb->at && a.send < rb->at + rb->bytes && t->in_place;
    const size_t written = recv_in_send && a.recv == sb->at ? PAR__MAX(sent, received) : sent;
    buffer_check(w, sb, send_in_recv ? 0 : written);
    buffer_check(w, rb, recv_in_send ? 0 : received);
    sb->dirty = rb->dirty = PAR__MAX(sent, received);
    put_values(input, t, par_rank(w), a.first, a.sent);
    CHECK(w, t->in_place || !memcmp(input, a.send, sent)); // send is unchanged
    free(want), free(input);
}

static void force(par_comm *w, par_kind kind, int algorithm) { // -1: the default
    char text[64] = "";
    if (algorithm >= 0)
        snprintf(text, sizeof text, "%s:%s", par_kind_name(kind), par_algorithm_name(w, kind, algorithm));
    CHECK_OK(w, par_force_algorithm(w, text));
}

// Not every combination runs. large: one size, beyond caches. middle: the size that runs with fewer types.
// thin: most dtypes and operators are left out.
static int left_out(const trial *t, int large, int middle, int thin) {
    const int f32 = t->dtype == PAR_F32, bf16 = t->dtype == PAR_BF16, plain = !t->in_place && f32;
    const unsigned op = (unsigned)(t->op & 255);
    const int few_dtypes = !f32 && !bf16 && t->dtype != PAR_U64, few_ops = op == PAR_MIN || op == PAR_PROD;
    return (op == PAR_SCALED_SUM && !is_float(t->dtype)) || (t->in_place && !takes_in_place(t->kind)) ||
           (large && (op != PAR_SUM || !(f32 || bf16) || (t->in_place && !f32) || (thin && !plain))) ||
           (middle && op > PAR_AVG && (!is_float(t->dtype) || bf16)) ||
           (thin && (few_dtypes || few_ops || (t->in_place && !f32))) ||
           (TEST_FEWER == 2 && (!f32 || op > PAR_AVG)); // data races do not depend on the dtype
}
// Every size in every dtype, by every operator, not in place and in place.
static void sweep_kind(par_comm *w, par_kind kind, buffer *sb, buffer *rb, int large, int thin,
                       unsigned *salt) {
    const size_t counts[] = {0, 1, (size_t)par_size(w) - 1, 5, 37, 1031}, large_count = 40009;
    trial t;
    memset(&t, 0, sizeof t);
    t.kind = kind;
    for (int d = 0; d < PAR_DTYPE_COUNT; d++)
        for (int o = 0; o < (trial_kinds[kind].reduces ? PAR_OP_COUNT : 1); o++)
            for (int c = 0; c < (large ? 1 : 6); c++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    t.dtype = (par_dtype)d, t.count = large ? large_count : counts[c], t.in_place = in_place;
                    t.op = o == PAR_SCALED_SUM ? par_scaled_sum(0.5) : (par_op)o;
                    t.salt = (*salt)++, t.root = (int)(*salt % (unsigned)par_size(w));
                    if (!left_out(&t, large, c == 5, thin)) run_trial(w, &t, sb, rb);
                }
}
static void sweep(par_comm *w, int memory, int large) { // memory: bit 0 send symmetric, bit 1 recv symmetric
    const size_t bytes = (large ? (40009 + 16) * 4 : (1031 + 16) * 8) * ((size_t)par_size(w) + 1);
    buffer sb = buffer_open(w, bytes, memory & 1), rb = buffer_open(w, bytes, memory & 2);
    const int few = TEST_FEWER || par_node_count(w) > 1 || strcmp(par_launch_method(w), "fork") ||
                    memory == 1 || memory == 2;
    unsigned salt = 1;
    for (int k = 0; k < PAR_KIND_SEND; k++)
        for (int a = -1; a < 0 || par_algorithm_name(w, (par_kind)k, a);
             a++) { // they share kernels: all with the default
            force(w, (par_kind)k, a);
            sweep_kind(w, (par_kind)k, &sb, &rb, large, few || a >= 0, &salt);
        }
    CHECK_OK(w, par_force_algorithm(w, ""));
    buffer_close(w, &sb);
    buffer_close(w, &rb);
}
static void collectives_private(par_comm *w) { // always staged; out of place written past the caches
    w->world->cma_bytes = SIZE_MAX;
    w->world->nontemporal_bytes = 1;
    sweep(w, 0, 0);
}
static void collectives_far(par_comm *w) { // always by process_vm_readv
    w->world->cma_bytes = 1;
    sweep(w, 0, 0);
}
static void collectives_symmetric(par_comm *w) { sweep(w, 3, 0); }
static void collectives_send_symmetric(par_comm *w) { sweep(w, 1, 0); }
static void collectives_recv_symmetric(par_comm *w) { sweep(w, 2, 0); }
static void collectives_large_private(par_comm *w) { sweep(w, 0, 1); }
static void collectives_large_symmetric(par_comm *w) { // results are written past the caches
    w->world->nontemporal_bytes = 1;
    sweep(w, 3, 1);
}

// Every row for every kind on nodes of several shapes: ranks, ranks of a node, PAR_STAGE; `taken`: the ranks
// of the comm in their order, 0 to 9, "": all.
typedef struct shape {
    int ranks, node;
    size_t stage;
    const char *taken;
} shape;
static const shape shapes[] = {{8, 1, 8192, ""},     {7, 1, 0, ""},          {6, 2, 8192, ""},
                               {10, 2, 0, ""},       {9, 3, 8192, "012345"}, {9, 3, 0, "0123678"},
                               {9, 3, 0, "012367"},  {9, 3, 0, "031425"},    {9, 3, 8192, "0361472"},
                               {8, 4, 0, "0123456"}, {12, 4, 0, ""}};
// Of zeros with signs, and of NaNs, the order of ranks chooses one: the same whatever the algorithm.
static void zeros_in_order(par_comm *w) {
    enum { COUNT = 4096 };
    static const uint32_t bits[] = {0, 0x80000000u, 0x7fc00001u, 0x7fc00002u};
    static __thread uint32_t x[COUNT], y[2][COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = bits[mixed((uint64_t)par_rank(w), (uint64_t)i) % (i % 2 ? 2 : 4)];
    for (int op = PAR_MIN; op <= PAR_MAX; op++) {
        for (int chain = 0; chain < 2; chain++) {
            CHECK_OK(w, par_force_algorithm(w, chain ? "all_reduce:two_level" : "all_reduce:fold"));
            CHECK_OK(w, par_all_reduce(x, y[chain], COUNT, PAR_F32, (par_op)op, w));
        }
        CHECK(w, !memcmp(y[0], y[1], sizeof *y));
    }
    CHECK_OK(w, par_force_algorithm(w, ""));
}
static int shaped(par_comm *world, void *user) {
    const shape *s = (const shape *)user;
    const char *at = strchr(s->taken, '0' + par_rank(world)), *only = getenv("ROW");
    const int all = !*s->taken, mine = all || (at && *at);
    const size_t counts[] = {0, 1, 5, 700, 9001};
    unsigned salt = 1;
    par_comm *w;
    CHECK_OK(world, par_split(world, mine ? 0 : -1, all || !mine ? 0 : (int)(at - s->taken), &w));
    if (!w) return 0;
    zeros_in_order(w);
    const size_t bytes = (9001 + 16) * 8 * ((size_t)par_size(w) + 1);
    buffer sb = buffer_open(w, bytes, 0), rb = buffer_open(w, bytes, 0);
    for (int k = 0; k < PAR_KIND_SEND; k++)
        for (int a = -1; a < 0 || par_algorithm_name(w, (par_kind)k, a); a++) {
            force(w, (par_kind)k, a);
            if (only && (a < 0 || strcmp(only, par_algorithm_name(w, (par_kind)k, a)))) continue;
            for (int i = 0; i < 5 * PAR_DTYPE_COUNT * PAR_OP_COUNT; i++) {
                trial t;
                memset(&t, 0, sizeof t);
                const int op = i / 5 % PAR_OP_COUNT;
                t.kind = (par_kind)k, t.dtype = (par_dtype)(i / 5 / PAR_OP_COUNT), t.count = counts[i % 5];
                t.op = op == PAR_SCALED_SUM ? par_scaled_sum(0.5) : (par_op)op;
                t.in_place = (int)(++salt / 3 % 2), t.salt = salt,
                t.root = (int)(salt % (unsigned)par_size(w));
                if (left_out(&t, 0, t.count > 1000, 1) || (!trial_kinds[k].reduces && op)) continue;
                run_trial(w, &t, &sb, &rb);
            }
        }
    CHECK_OK(w, par_force_algorithm(w, ""));
    buffer_close(w, &sb), buffer_close(w, &rb);
    CHECK_OK(w, par_close(w));
    return 0;
}
static void collectives_shaped(par_comm *w) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        par_desc d = test_ranks(shapes[i].ranks);
        d.node_ranks = shapes[i].node, d.stage_bytes = shapes[i].stage;
        CHECK_OK(w, par_run_threads(&d, shaped, (void *)(uintptr_t)&shapes[i]));
    }
}

// The least stage has no slot for each of so many nodes, and does not grow with them: every row ends, right.
static int slotless(par_comm *w, void *user) {
    trial t;
    memset(&t, 0, sizeof t);
    buffer sb = buffer_open(w, 4 * 66 * ((size_t)par_size(w) + 1), 0),
           rb = buffer_open(w, 4 * 66 * ((size_t)par_size(w) + 1), 0);
    CHECK(w, w->stage_bytes == 8192 * PAR__TRACKS && par_node_count(w) > (int)w->half_bytes / 64);
    for (int k = 0; k < PAR_KIND_SEND; k++)
        for (int a = -1; a < 0 || par_algorithm_name(w, (par_kind)k, a); a++) {
            force(w, (par_kind)k, a);
            for (int i = 0; i < (trial_kinds[k].reduces ? 3 : 1); i++) {
                t.kind = (par_kind)k, t.dtype = i ? PAR_F32 : PAR_I32, t.op = i > 1 ? PAR_TREE_SUM : PAR_SUM;
                t.count = 50, t.root = par_size(w) - 1, t.salt++;
                run_trial(w, &t, &sb, &rb);
            }
        }
    CHECK_OK(w, par_force_algorithm(w, ""));
    buffer_close(w, &sb), buffer_close(w, &rb);
    (void)user;
    return 0;
}
static void slots_used_up(par_comm *w) {
    par_desc d = test_ranks(70);
    d.node_ranks = 1, d.stage_bytes = 8192;
    CHECK_OK(w, par_run_threads(&d, slotless, NULL));
}

// What a rank passes to other nodes in one call by a row: messages and bytes beyond those of an empty call.
typedef struct passed {
    uint64_t messages, bytes;
} passed;
static passed passed_in(par_comm *w, const char *row, trial t) {
    const int all = (trial_kinds[t.kind].send | trial_kinds[t.kind].recv) & ALL;
    const size_t count = t.count, bytes = (count + 16) * 8 * (all ? (size_t)par_size(w) + 1 : 1);
    buffer sb = buffer_open(w, bytes, 0), rb = buffer_open(w, bytes, 0);
    uint64_t x[2][2];
    char text[64];
    snprintf(text, sizeof text, "%s:%s", par_kind_name(t.kind), row);
    CHECK_OK(w, par_force_algorithm(w, text));
    for (int i = 0; i < 2; i++) {
        par_ledger_reset(w);
        t.count = i ? count : 0;
        run_trial(w, &t, &sb, &rb);
        const par_ledger l = par_ledger_get(w, t.kind);
        x[i][0] = l.net_messages, x[i][1] = l.net_bytes;
    }
    CHECK(w, !strcmp(par_last_algorithm(w), row));
    CHECK_OK(w, par_force_algorithm(w, ""));
    buffer_close(w, &sb), buffer_close(w, &rb);
    const passed p = {x[1][0] - x[0][0], x[1][1] - x[0][1]};
    return p;
}
// Sums of floats in rank order: the array passes from node to node, and each node's part goes to it. Small
// arrays go in as few pieces as are in flight, so that a block costs no message of its own.
static void chains_counted(par_comm *w, size_t block) {
    const int64_t k = par_node_count(w), n = par_size(w), array = 4 * n * (int64_t)block;
    for (int i = 0; i < 3; i++) {
        static const par_kind kinds[] = {PAR_KIND_REDUCE_SCATTER, PAR_KIND_REDUCE_SCATTERV, PAR_KIND_REDUCE};
        trial t;
        memset(&t, 0, sizeof t);
        t.kind = kinds[i], t.dtype = PAR_F32, t.op = PAR_SUM;
        t.count = i == 2 ? block * (size_t)n : block;
        const passed p = passed_in(w, "two_level", t);
        int64_t sums[2] = {(int64_t)p.messages, (int64_t)p.bytes};
        CHECK_OK(w, par_all_reduce(sums, sums, 2, PAR_I64, PAR_SUM, w));
        if (i != 1) CHECK(w, sums[1] == (k - 1) * array + (i ? array : array / k * (k - 1)));
        if (array <= 1 << 14) CHECK(w, sums[0] <= PAR__TRACKS * (k - 1) + (k - 1) + PAR__TRACKS);
    }
}
static int counted(par_comm *w, void *user) { // k nodes, a power of two, of m ranks; root 0
    enum { COUNT = 24, LARGE = 65536, LINE = 300001 };
    const int k = par_node_count(w), n = par_size(w), m = n / k, me = par_rank(w), node = me / m;
    const uint64_t part = w->half_bytes / 3 / 64 * 64;
    const int leads = me % m == 0, below = node ? node & -node : k;
    const uint64_t steps = (uint64_t)par__log2_up(k), others = (uint64_t)k - 1, b = 4 * COUNT;
    trial t;
    memset(&t, 0, sizeof t);
    t.kind = PAR_KIND_ALL_REDUCE, t.dtype = PAR_I32, t.count = COUNT;
    passed p = passed_in(w, "fold", t);
    CHECK(w, p.messages == (leads ? steps : 0) && p.bytes == p.messages * b);
    t.dtype = PAR_F32, t.op = PAR_TREE_SUM, t.kind = PAR_KIND_REDUCE;
    if (!(m & (m - 1))) p = passed_in(w, "fold", t); // else it does not fit
    CHECK(w, p.messages == (leads ? steps : 0) && p.bytes == p.messages * b);
    t.dtype = PAR_I32, t.op = PAR_SUM;
    if (k <= 16) { // in halves: pieces by turns
        t.kind = PAR_KIND_ALL_REDUCE, t.count = LARGE;
        p = passed_in(w, "fold", t);
        const uint64_t pieces = (4 * LARGE + part - 1) / part;
        const uint64_t mine = pieces / (uint64_t)m + (pieces % (uint64_t)m > (uint64_t)(me % m));
        CHECK(w, p.messages == 2 * steps * mine && p.bytes <= 2 * mine * part);
        t.count = COUNT;
    }
    t.kind = PAR_KIND_ALL_GATHER;
    p = passed_in(w, "two_level", t);
    CHECK(w, p.messages == steps && p.bytes == others * b);
    t.kind = PAR_KIND_ALL_TO_ALL;
    p = passed_in(w, "two_level", t);
    CHECK(w, p.messages == others && p.bytes == others * (uint64_t)m * b);
    p = passed_in(w, "bruck", t);
    CHECK(w, p.messages == steps && p.bytes == steps * (uint64_t)k / 2 * (uint64_t)m * b);
    t.kind = PAR_KIND_GATHER;
    p = passed_in(w, "tree", t);
    CHECK(w, p.messages == (leads && node) && p.bytes == p.messages * (uint64_t)(below * m) * b);
    t.kind = PAR_KIND_SCATTER;
    p = passed_in(w, "tree", t);
    CHECK(w, p.messages == (leads ? (uint64_t)par__log2_up(below) : 0));
    CHECK(w, me || p.bytes == others * (uint64_t)m * b);
    t.kind = PAR_KIND_BROADCAST;
    p = passed_in(w, "two_level", t);
    CHECK(w, me || (p.messages == steps && p.bytes == steps * b));
    t.count = LINE; // many pieces pass from node to node
    const uint64_t pieces = (4 * LINE + w->half_bytes - 1) / w->half_bytes;
    if (k <= 16) p = passed_in(w, "two_level", t);
    CHECK(w, k > 16 || me || (p.messages == pieces && p.bytes == 4 * LINE));
    chains_counted(w, COUNT);
    if (k <= 16) chains_counted(w, LARGE / n);
    (void)user;
    return 0;
}
static void messages_counted(par_comm *w) {
    static const int nodes[][2] = {{8, 3}, {16, 4}, {64, 1}, {128, 1}};
    for (int i = 0; i < 4; i++) {
        par_desc d = test_ranks(nodes[i][0] * nodes[i][1]);
        d.node_ranks = nodes[i][1];
        CHECK_OK(w, par_run_threads(&d, counted, NULL));
    }
}

static void collectives_mixed(par_comm *w) { // even ranks ordinary, odd ranks symmetric memory
    w->world->cma_bytes = 1000;              // smaller: staged; larger: by process_vm_readv
    const size_t bytes = 3001 * 8;
    buffer s1 = buffer_open(w, bytes, 1), r1 = buffer_open(w, bytes, 1), s0 = buffer_open(w, bytes, 0),
           r0 = buffer_open(w, bytes, 0);
    const int odd = par_rank(w) & 1;
    for (int k = 0; k < PAR_KIND_SEND; k++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (size_t count = 1; count * (size_t)par_size(w) < 2900; count = count * 3 + 1) {
                trial t;
                memset(&t, 0, sizeof t);
                t.kind = (par_kind)k, t.dtype = PAR_F32, t.count = count, t.in_place = in_place,
                t.salt = (unsigned)count;
                if (in_place && !takes_in_place(k)) continue;
                run_trial(w, &t, odd ? &s1 : &s0, odd ? &r1 : &r0);
            }
    buffer_close(w, &s1), buffer_close(w, &r1), buffer_close(w, &s0), buffer_close(w, &r0);
}

// ---- bit equality -----------------------------------------------------------------------------------------

static double rough(int rank, size_t i) { // sums of these are rounded
    return ((double)(mixed((uint64_t)rank + 7, i) & 0xffffff) / 0x1000000 - .5) * (double)(1 << (i % 20));
}
static void add_to(double *sum, const double *x, size_t count, par_dtype d) { // in the accumulator's type
    for (size_t i = 0; i < count; i++)
        sum[i] = d == PAR_F64 ? sum[i] + x[i] : (double)((float)sum[i] + (float)x[i]);
}
// This rank's input, and the sum of all ranks' from left to right.
static void rough_sum(par_comm *w, par_dtype d, size_t count, void *mine, void *want) {
    double *x = (double *)malloc(count * sizeof *x), *sum = (double *)malloc(count * sizeof *sum);
    void *typed = malloc(count * 8);
    for (int r = 0; r < par_size(w); r++) {
        for (size_t i = 0; i < count; i++)
            x[i] = rough(r, i) * PAR__MIN(1, par_dtype_traits_of(d)->max / 1e7);
        par_cast(typed, d, x, PAR_F64, count);
        par_cast(r ? x : sum, PAR_F64, typed, d, count);
        if (r) add_to(sum, x, count, d);
        if (r == par_rank(w)) memcpy(mine, typed, count * par_dtype_bytes(d));
    }
    par_cast(want, d, sum, PAR_F64, count);
    free(x), free(sum), free(typed);
}

static void bit_equality(par_comm *w) {
    const int n = par_size(w);
    static const size_t counts[] = {3, 250, 9001};
    for (int ti = 0; ti < PAR_DTYPE_COUNT; ti++)
        for (size_t ci = 0; ci < 3; ci++) {
            const par_dtype d = (par_dtype)ti;
            if (!is_float(d)) continue;
            const size_t e = par_dtype_bytes(d), per = counts[ci], c = per * (size_t)n;
            unsigned char *want = (unsigned char *)malloc(c * e), *mine = (unsigned char *)malloc(c * e);
            rough_sum(w, d, c, mine, want);
            for (int symmetric = 0; symmetric < 2; symmetric++) {
                // Every pair of dtype, count and memory; over the numbers of ranks every combination.
                if (!getenv("SOAK") && symmetric != (ti + (int)ci + n) % 2) continue;
                buffer s = buffer_open(w, c * e, symmetric), r = buffer_open(w, c * e, symmetric),
                       b = buffer_open(w, per * e, symmetric);
                memcpy(s.at, mine, c * e);
                for (int a = -1; a < 0 || par_algorithm_name(w, PAR_KIND_ALL_REDUCE, a); a++) {
                    force(w, PAR_KIND_ALL_REDUCE, a);
                    memset(r.at, 0, c * e);
                    CHECK_OK(w, par_all_reduce(s.at, r.at, c, d, PAR_SUM, w));
                    CHECK(w, !memcmp(r.at, want, c * e));
                }
                // The same as reduce_scatter, then all_gather.
                for (int a = -1; a < 0 || par_algorithm_name(w, PAR_KIND_REDUCE_SCATTER, a); a++) {
                    force(w, PAR_KIND_REDUCE_SCATTER, a);
                    memset(r.at, 0, c * e);
                    CHECK_OK(w, par_reduce_scatter(s.at, b.at, per, d, PAR_SUM, w));
                    CHECK_OK(w, par_all_gather(b.at, r.at, per, d, w));
                    CHECK(w, !memcmp(r.at, want, c * e));
                }
                CHECK_OK(w, par_force_algorithm(w, ""));
                buffer_close(w, &s), buffer_close(w, &r), buffer_close(w, &b);
            }
            free(want), free(mine);
        }
}

// PAR_TREE_SUM of ranks [first, last): split at the largest power of two.
static double pairs(double (*x)(int rank, size_t i), int first, int last, size_t i, par_dtype d) {
    int half = 1;
    if (last - first == 1) return x(first, i);
    while (2 * half < last - first) half *= 2;
    const double a = pairs(x, first, first + half, i, d), b = pairs(x, first + half, last, i, d);
    return d == PAR_F64 ? a + b : (double)((float)a + (float)b);
}
static double uneven(int rank, size_t i) { // exact in bf16; their sums are not in f32
    return ldexp((double)((int)(mixed((uint64_t)rank + 3, i) % 255) - 127),
                 (int)((i * 7 + (size_t)rank * 5) % 29));
}
static void
tree_sums(par_comm *w) { // by every algorithm; reduce to the last rank, reduce_scatter, all_reduce
    static const size_t counts[] = {1, 9, 900, 20000};
    static const par_kind kinds[] = {PAR_KIND_ALL_REDUCE, PAR_KIND_REDUCE_SCATTER, PAR_KIND_REDUCE};
    static const par_dtype types[] = {PAR_F32, PAR_F64, PAR_BF16};
    const int n = par_size(w), me = par_rank(w);
    for (int k = 0; k < 3; k++)
        for (int a = -1; a < 0 || par_algorithm_name(w, kinds[k], a); a++)
            for (int t = 0; t < 3; t++)
                for (int c = 0; c < (t ? 3 : 4); c++) {
                    const par_dtype d = types[t];
                    const size_t e = par_dtype_bytes(d), count = counts[c], blocks = k == 1 ? (size_t)n : 1;
                    force(w, kinds[k], a);
                    const size_t block = k == 1 ? (size_t)me * count : 0;
                    char *x = (char *)malloc(count * blocks * e), *y = (char *)malloc(count * e);
                    double *exact = (double *)malloc(count * blocks * sizeof *exact);
                    for (size_t i = 0; i < count * blocks; i++) exact[i] = uneven(me, i);
                    par_cast(x, d, exact, PAR_F64, count * blocks);
                    if (k == 0)
                        CHECK_OK(w, par_all_reduce(x, y, count, d, PAR_TREE_SUM, w));
                    else if (k == 1)
                        CHECK_OK(w, par_reduce_scatter(x, y, count, d, PAR_TREE_SUM, w));
                    else
                        CHECK_OK(w, par_reduce(x, y, count, d, PAR_TREE_SUM, n - 1, w));
                    for (size_t i = 0; i < count; i++) exact[i] = pairs(uneven, 0, n, block + i, d);
                    par_cast(x, d, exact, PAR_F64, count);
                    CHECK(w, (k == 2 && me < n - 1) || !memcmp(x, y, count * e));
                    free(x), free(y), free(exact);
                }
    CHECK_OK(w, par_force_algorithm(w, ""));
}

static void nan_and_extremes(par_comm *w) {
    const int me = par_rank(w), n = par_size(w);
    float x[3] = {me == n - 1 ? NAN : 1.0f, me == 0 ? NAN : 2.0f, (float)me}, y[3];
    CHECK_OK(w, par_all_reduce(x, y, 3, PAR_F32, PAR_MAX, w));
    CHECK(w, isnan(y[0]) && isnan(y[1]) && y[2] == (float)(n - 1));
    CHECK_OK(w, par_all_reduce(x, y, 3, PAR_F32, PAR_MIN, w));
    CHECK(w, isnan(y[0]) && isnan(y[1]) && y[2] == 0);
    int32_t big = INT32_MAX, sum;
    CHECK_OK(w, par_all_reduce(&big, &sum, 1, PAR_I32, PAR_SUM, w));
    CHECK(w, sum == (int32_t)((uint32_t)INT32_MAX * (uint32_t)n)); // wraps
    uint16_t h[1] = {par_f32_to_f16(40000.0f)}, avg[1];
    CHECK_OK(w, par_all_reduce(h, avg, 1, PAR_F16, PAR_AVG, w)); // the sum alone would overflow f16
    CHECK(w, avg[0] == h[0]);
}

// ---- messages ---------------------------------------------------------------------------------------------

static void messages(par_comm *w) {
    const int n = par_size(w), me = par_rank(w), right = (me + 1) % n, left = (me + n - 1) % n;
    static const size_t sizes[] = {0, 1, 100, 4096, 4097, 70000, 1000003};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int symmetric = 0; symmetric < 2; symmetric++) {
            const size_t c = sizes[s];
            buffer out = buffer_open(w, c, symmetric), in = buffer_open(w, c, symmetric);
            for (size_t i = 0; i < c; i++) out.at[i] = (unsigned char)(i * 7 + (size_t)me);
            CHECK_OK(w, par_sendrecv(out.at, c, right, in.at, c, left, PAR_U8, w));
            size_t wrong = 0;
            for (size_t i = 0; i < c; i++) wrong += in.at[i] != (unsigned char)(i * 7 + (size_t)left);
            CHECK(w, !wrong);
            if (n > 1) { // blocking, in a chain
                if (me > 0) CHECK_OK(w, par_recv(in.at, c, PAR_U8, me - 1, w));
                if (me < n - 1) CHECK_OK(w, par_send(out.at, c, PAR_U8, me + 1, w));
                for (size_t i = 0; me > 0 && i < c; i++)
                    wrong += in.at[i] != (unsigned char)(i * 7 + (size_t)(me - 1));
                CHECK(w, !wrong);
            }
            buffer_check(w, &in, c);
            buffer_close(w, &out), buffer_close(w, &in);
        }
    enum { MANY = 20 }; // many in flight, in order, to all ranks and to itself
    int *out = (int *)malloc(sizeof(int) * (size_t)(n * MANY)),
        *in = (int *)malloc(sizeof(int) * (size_t)(n * MANY));
    par_request *q = (par_request *)malloc(sizeof *q * (size_t)(2 * n * MANY));
    int at = 0, wrong = 0;
    for (int p = 0; p < n; p++)
        for (int i = 0; i < MANY; i++) {
            out[p * MANY + i] = me * 1000 + i;
            CHECK_OK(w, par_recv_begin(&in[p * MANY + i], 1, PAR_I32, p, w, &q[at++]));
            CHECK_OK(w, par_send_begin(&out[p * MANY + i], 1, PAR_I32, p, w, &q[at++]));
        }
    CHECK_OK(w, par_wait_all(q, at));
    for (int p = 0; p < n; p++)
        for (int i = 0; i < MANY; i++) wrong += in[p * MANY + i] != p * 1000 + i;
    CHECK(w, !wrong);
    free(out), free(in), free(q);
}

// The sender of a long message copies a part of it while it waits: here all of it, because rank 1 says where
// it wants the message, and claims nothing before it receives. Where that is no place to write to, rank 1
// copies the message itself.
static void say_where_to(par_comm *w, uint64_t to, uint32_t place) {
    uint8_t *committed;
    if (!par__find_rings(w, 1)) abort();
    par__cell *cell = &par__ring_of(w, 0, 1, 0, &committed)->cells[0];
    cell->u.copy.to = to;
    PAR__STORE(&cell->u.copy.to_place, place);
    for (int i = 0; i < 60000 && PAR__LOAD(&cell->u.copy.helped) < cell->bytes; i++) usleep(1000);
    CHECK(w,
          PAR__LOAD(&cell->u.copy.helped) == cell->bytes && PAR__LOAD(&cell->u.copy.claimed) == cell->bytes);
    CHECK(w, PAR__LOAD(&cell->u.copy.failed) == (to < 4096));
}
static void shared_copies(par_comm *w) {
    const size_t c = 300001;
    const int me = par_rank(w), here = par_node_of(w, 1) == par_node_of(w, 0);
    for (int k = 0; k < 4; k++) { // both kinds of memory, right and wrong places
        const int symmetric = k % 2, wrong_place = k / 2 && strcmp(par_launch_method(w), "threads");
        buffer x = buffer_open(w, c, symmetric);
        par_comm *pair;
        uint64_t to;
        CHECK_OK(w, par_split(w, me > 1, me, &pair));
        for (size_t i = 0; i < c && !me; i++) x.at[i] = (unsigned char)(i * 7 + (size_t)k);
        const int place = (int)par__message_place(pair, x.at, c, !me, &to);
        CHECK_OK(w, par_barrier(pair));
        par_request q;
        if (me == 0) CHECK_OK(w, par_send_begin(x.at, c, PAR_U8, 1, pair, &q));
        CHECK_OK(w, par_barrier(pair));
        if (me == 0) CHECK_OK(w, par_wait(&q));
        if (me == 1) {
            if (here && place != PAR__IN_RING) {
                say_where_to(pair, wrong_place ? !symmetric : to, (uint32_t)place);
                size_t same = 0;
                for (size_t i = 0; i < c; i++) same += x.at[i] == (unsigned char)(i * 7 + (size_t)k);
                CHECK(w, wrong_place || same == c);
            }
            CHECK_OK(w, par_recv(x.at, c, PAR_U8, 0, pair));
            size_t wrong = 0;
            for (size_t i = 0; i < c; i++) wrong += x.at[i] != (unsigned char)(i * 7 + (size_t)k);
            CHECK(w, !wrong);
            buffer_check(w, &x, c);
        }
        CHECK_OK(w, par_close(pair));
        buffer_close(w, &x);
    }
}

// A receive ends while its sender copies a part of the message: when it returns, that is done. A sender that
// stops there for longer than the deadline is named.
static void fails_helped(par_comm *w) {
    enum { PART = 65536 };
    const size_t c = 300001;
    const int me = par_rank(w);
    unsigned char *x = (unsigned char *)par_alloc(w, c);
    test_words *words = &test_shared->words;
    CHECK(w, x != NULL);
    for (int stops = 1; stops >= 0; stops--) {
        par_comm *pair;
        CHECK_OK(w, par_split(w, me > 1, me, &pair));
        if (me > 1 || par_node_count(pair) > 1) continue;
        par_request q;
        uint8_t *committed;
        if (me == 0) CHECK_OK(w, par_send_begin(x, c, PAR_U8, 1, pair, &q));
        par__cell *cell = &par__ring_of(pair, 0, 1, 0, &committed)->cells[0];
        if (me == 0) __atomic_add_fetch(&cell->u.copy.claimed, PART, __ATOMIC_SEQ_CST); // as a slow helper
        CHECK_OK(w, par_barrier(pair));
        if (me == 1) {
            if (stops) par_set_timeout(w, 0.06);
            const par_result r = par_recv(x, c, PAR_U8, 0, pair);
            const int late =
                !stops && r == PAR_OK; // on a busy machine it hears of the end after the helper's
            CHECK(w, late || r == (stops ? PAR_ERR_TIMEOUT : PAR_ERR_ABORTED));
            CHECK(w, stops ? says(w, "; rank 0 may still write to recv, 300001 bytes at ")
                           : (int)__atomic_load_n(&words->issued, __ATOMIC_SEQ_CST));
            if (late) __atomic_store_n(&words->issued, 2, __ATOMIC_SEQ_CST);
            par_set_timeout(w, 1000);
            test_arrive(words);
        } else {
            while (PAR__LOAD(&cell->u.copy.claimed) < c) usleep(200); // rank 1 receives
            if (!stops) {
                par_abort(w, "stop");
                usleep(150000); // the receive ends, which nothing tells
                __atomic_store_n(&words->issued, 1, __ATOMIC_SEQ_CST);
            }
            if (!stops) __atomic_add_fetch(&cell->u.copy.helped, PART, __ATOMIC_SEQ_CST);
            test_wait_for(words, 2 - stops);
            par_set_timeout(w, 0.03);
            CHECK(w, par_wait(&q) != PAR_OK || __atomic_load_n(&words->issued, __ATOMIC_SEQ_CST) == 2);
            par_set_timeout(w, 1000);
        }
    }
}

// ---- begin and wait ---------------------------------------------------------------------------------------

static void outstanding(par_comm *w) {
    enum { K = 12 };
    const int n = par_size(w), me = par_rank(w);
    par_comm *other;
    par_request q[2 * K];
    static __thread float x[2 * K][5000];
    CHECK_OK(w, par_split(w, 0, -me, &other)); // the same ranks, reversed
    CHECK(w, par_rank(other) == n - 1 - me);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2 * K; i++) {
            for (int j = 0; j < 5000; j++) x[i][j] = (float)(me + i + j % 3);
            CHECK_OK(w, par_all_reduce_begin(x[i], x[i], i % 3 ? 5000 : 3, PAR_F32, PAR_SUM,
                                             i & 1 ? other : w, &q[i]));
        }
        for (int i = 0; i < 2 * K; i++) { // odd and even ranks wait in opposite orders
            const int j = me & 1 ? i : 2 * K - 1 - i;
            CHECK_OK(w, par_wait(&q[j]));
            int wrong = 0;
            for (int a = 0; a < (j % 3 ? 5000 : 3); a++)
                wrong += x[j][a] != (float)(n * (n - 1) / 2 + n * (j + a % 3));
            CHECK(w, !wrong);
        }
    }
    int done = 0;
    CHECK_OK(w, par_barrier_begin(w, &q[0]));
    for (par_result r = PAR_OK; !done && !r; sched_yield()) CHECK_OK(w, r = par_test(&q[0], &done));
    CHECK_OK(w, par_wait(&q[0])); // already complete
    CHECK_OK(w, par_close(other));
}

// Every rank begins its messages of a round in an order of its own (each pair's stay in order), and waits for
// them in another one. Sizes: within a cell, within the ring, around it, large; memory: private or symmetric.
enum { PAIR_MESSAGES = 5 };
typedef struct random_message {
    par_request request;
    uint64_t drawn;
    size_t bytes;
    int peer, sends;
    unsigned char *at;
} random_message;
static uint64_t draw_message(uint64_t seed, int round, int from, int to, int number, size_t *bytes) {
    static const size_t limits[] = {49, 700, 5000, 40000};
    const uint64_t h = par_random(seed, 300 + (uint64_t)round,
                                  ((uint64_t)from << 16 | (uint64_t)to) * 64 + (uint64_t)number);
    const size_t limit = limits[h % 32 ? h / 32 % 3 : 3];
    *bytes = h >> 16 & 15 ? (size_t)(h >> 20) % limit : limit;
    return h;
}
static int draw_messages(par_comm *w, uint64_t seed, int round, random_message *m, unsigned char *pool,
                         size_t pool_bytes) {
    const int n = par_size(w), me = par_rank(w);
    size_t used = 0;
    int count = 0, next[2][64];
    memset(next, 0, sizeof next);
    for (uint64_t i = 0, left = (uint64_t)(2 * n * PAIR_MESSAGES); left; i++) {
        const uint64_t pick = par_random(seed, 200 + (uint64_t)round, (uint64_t)me << 32 | i);
        random_message *x = &m[count];
        x->sends = (int)(pick & 1), x->peer = (int)((pick >> 1) % (unsigned)n);
        if (next[x->sends][x->peer] == PAIR_MESSAGES) continue;
        const int number = next[x->sends][x->peer]++;
        x->drawn =
            draw_message(seed, round, x->sends ? me : x->peer, x->sends ? x->peer : me, number, &x->bytes);
        const int symmetric = (pick >> 20 & 1) && used + x->bytes <= pool_bytes;
        x->at = symmetric ? pool + used : (unsigned char *)malloc(x->bytes + 1);
        used += symmetric ? x->bytes : 0;
        for (size_t j = 0; j < x->bytes; j++) x->at[j] = (unsigned char)(x->sends ? x->drawn + j * 7 : 0xEE);
        count++, left--;
    }
    return count;
}
static void random_messages(par_comm *w, uint64_t seed, int rounds) {
    const int n = par_size(w), count = 2 * n * PAIR_MESSAGES;
    const size_t pool_bytes = 200000;
    unsigned char *pool = (unsigned char *)par_alloc(w, pool_bytes);
    random_message *m = (random_message *)calloc((size_t)count, sizeof *m);
    for (int round = 0; round < rounds && n <= 64; round++) {
        size_t wrong = 0;
        CHECK(w, draw_messages(w, seed, round, m, pool, pool_bytes) == count);
        for (random_message *x = m; x < m + count; x++)
            CHECK_OK(w, x->sends ? par_send_begin(x->at, x->bytes, PAR_U8, x->peer, w, &x->request)
                                 : par_recv_begin(x->at, x->bytes, PAR_U8, x->peer, w, &x->request));
        for (int i = 0; i < count; i++) // a step that has no factor in common with count
            CHECK_OK(w, par_wait(&m[(i * 7 + round) % count].request));
        for (random_message *x = m; x < m + count; x++) {
            CHECK_OK(w, par_wait(&x->request));
            for (size_t j = 0; j < x->bytes; j++) wrong += x->at[j] != (unsigned char)(x->drawn + j * 7);
            if (x->at < pool || x->at >= pool + pool_bytes) free(x->at);
        }
        CHECK(w, !wrong);
        CHECK_OK(w, par_barrier(w)); // the pool is used again
    }
    free(m);
    CHECK_OK(w, par_free(w, pool));
}

static void random_operations(par_comm *w) { // reproducible: PAR_TEST_SEED=n
    const char *text = getenv("PAR_TEST_SEED"), *count_text = getenv("PAR_TEST_COUNT");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    const int n = par_size(w), me = par_rank(w), count = count_text ? atoi(count_text) : 800;
    par_comm *groups[6];
    CHECK_OK(w, par_broadcast(&seed, &seed, 1, PAR_U64, 0, w));
    if (me == 0) printf("seed %llu\n", (unsigned long long)seed);
    groups[0] = w;
    for (int g = 1; g < 6; g++)
        CHECK_OK(w, par_split(w, (int)(par_random(seed, (uint64_t)(100 + g), (uint64_t)me) % 2),
                              (int)(par_random(seed, (uint64_t)(200 + g), (uint64_t)me) % 100), &groups[g]));
    const size_t bytes = 20011 * 8;
    buffer s[2], r[2];
    for (int m = 0; m < 2; m++) s[m] = buffer_open(w, bytes, m), r[m] = buffer_open(w, bytes, m);
    for (int i = 0; i < count; i++) {
        uint64_t h = par_random(seed, 1, (uint64_t)i);
        trial t;
        par_comm *g = groups[h % 6];
        memset(&t, 0, sizeof t);
        h /= 6;
        t.kind = (par_kind)(h % PAR_KIND_SEND), h /= PAR_KIND_SEND;
        t.dtype = (par_dtype)(h % PAR_DTYPE_COUNT), h /= PAR_DTYPE_COUNT;
        t.op = (par_op)(h % 5), h /= 5;
        t.in_place = (int)(h & 1) && takes_in_place(t.kind), h >>= 1;
        const int memory = (int)(h & 3);
        h >>= 2;
        t.count = (size_t)(h % (h & 0x10000 ? 4 : 20000u / (unsigned)n)), h >>= 17;
        t.root = (int)(h % (unsigned)par_size(g)), t.salt = (unsigned)i;
        run_trial(g, &t, &s[memory & 1], &r[memory >> 1]);
        if (test_shared->failures) break;
    }
    for (int m = 0; m < 2; m++) buffer_close(w, &s[m]), buffer_close(w, &r[m]);
    random_messages(w, seed, count / 40);
    for (int g = 5; g > 0; g--) CHECK_OK(w, par_close(groups[g]));
}

// ---- groups and memory ------------------------------------------------------------------------------------

static void groups(par_comm *w) {
    const int n = par_size(w), me = par_rank(w);
    par_comm *c, *cc;
    for (int round = 0; round < 20; round++) { // closing frees everything
        CHECK_OK(w, par_split(w, me % 3 == 2 ? -1 : me % 3, 0, &c));
        CHECK(w, (c == NULL) == (me % 3 == 2));
        if (!c) continue;
        int sum = 1, members = (n - me % 3 + 2) / 3;
        CHECK(w, par_size(c) == members && par_rank(c) == me / 3 && par_world_rank(c, par_rank(c)) == me);
        CHECK_OK(w, par_all_reduce(&sum, &sum, 1, PAR_I32, PAR_SUM, c));
        CHECK(w, sum == members);
        CHECK_OK(w, par_split(c, par_rank(c) / 2, 0, &cc)); // split the result of a split
        sum = 1;
        CHECK_OK(w, par_all_reduce(&sum, &sum, 1, PAR_I32, PAR_SUM, cc));
        CHECK(w, sum == par_size(cc));
        CHECK_OK(w, par_close(cc));
        CHECK_OK(w, par_close(c));
    }
}

static void mesh(par_comm *w) {
    const int n = par_size(w), me = par_rank(w);
    par_mesh *m;
    par_comm *dp, *tp, *both, *again;
    char text[64];
    int sum;
    CHECK(w, par_mesh_open(w, "dp=7 tp=11", &m) == PAR_ERR_ARGUMENT);
    CHECK(w, par_mesh_open(w, "dp=-1 tp=-1", &m) == PAR_ERR_ARGUMENT);
    CHECK(w, par_mesh_open(w, "dp=-1 dp=1", &m) == PAR_ERR_ARGUMENT);
    CHECK(w, par_mesh_open(w, "dp=x", &m) == PAR_ERR_ARGUMENT);
    // products and numbers that would be the number of ranks if they wrapped around
    for (int i = 0; i < 3; i++) {
        static const char *const forms[] = {"a=%d b=1073741825", "a=1 b=%d c=1073741824 d=4", "a=%lld"};
        const long long wraps = ((long long)1 << 32) + n;
        i == 2 ? snprintf(text, sizeof text, forms[i], wraps) : snprintf(text, sizeof text, forms[i], n);
        CHECK(w, par_mesh_open(w, text, &m) == PAR_ERR_ARGUMENT && !m);
    }
    snprintf(text, sizeof text, "pp=1, dp=-1 tp=%d", n % 2 ? 1 : 2);
    CHECK_OK(w, par_mesh_open(w, text, &m));
    const int t = par_mesh_size(m, "tp"), d = par_mesh_size(m, "dp");
    CHECK(w, t * d == n && par_mesh_size(m, "cp") == 1 && par_mesh_index(m, "tp") == me % t &&
                 par_mesh_index(m, "dp") == me / t);
    CHECK_OK(w, par_mesh_comm(m, "tp", &tp));
    CHECK_OK(w, par_mesh_comm(m, "dp", &dp));
    CHECK_OK(w, par_mesh_comm(m, "dp,tp", &both));
    CHECK_OK(w, par_mesh_comm(m, "tp dp", &again));
    CHECK(w, both == again && par_size(tp) == t && par_size(dp) == d && par_size(both) == n &&
                 par_rank(tp) == me % t);
    CHECK(w, par_mesh_comm(m, "zz", &again) == PAR_ERR_ARGUMENT);
    sum = me;
    CHECK_OK(w, par_all_reduce(&sum, &sum, 1, PAR_I32, PAR_SUM, tp));
    CHECK(w, sum == (t == 1 ? me : me / 2 * 4 + 1));
    CHECK_OK(w, par_mesh_close(m));
}

// Four axes, of which one in turn has what the others leave: every set of them gives the ranks that have the
// same place on the axes left out, in the order of the world.
static void mesh_axes(par_comm *w) {
    const int n = par_size(w), me = par_rank(w);
    for (int kind = 0; kind < 8; kind++) {
        const int large = kind % 4, part = kind < 4 && n % 8 == 0 ? 2 : 1, two = kind > 3 && n % 2 == 0;
        int sizes[4], place[4], rest = me;
        char text[64];
        par_mesh *m;
        for (int i = 0; i < 4; i++) sizes[i] = i == large ? n / (part * part * part * (1 + two)) : part;
        sizes[(large + 1) % 4] <<= two;
        snprintf(text, sizeof text, "a=%d b=%d c=%d d=%d", sizes[0], sizes[1], sizes[2], sizes[3]);
        CHECK_OK(w, par_mesh_open(w, text, &m));
        for (int i = 3; i >= 0; i--) place[i] = rest % sizes[i], rest /= sizes[i];
        for (int set = 1; set < 16; set++) {
            int size = 1, rank = 0, most = me;
            char axes[16] = "";
            par_comm *c;
            for (int i = 0; i < 4; i++)
                if (set >> i & 1)
                    size *= sizes[i],
                        rank = rank * sizes[i] + place[i],
                        snprintf(axes + strlen(axes), sizeof axes - strlen(axes), "%c ", 'a' + i);
            CHECK_OK(w, par_mesh_comm(m, axes, &c));
            CHECK(w, par_size(c) == size && par_rank(c) == rank);
            CHECK_OK(w, par_all_reduce(&most, &most, 1, PAR_I32, PAR_MAX, c));
            int last = 0; // the rank that has the last place on these axes, and this rank's on the others
            for (int i = 0; i < 4; i++) last = last * sizes[i] + (set >> i & 1 ? sizes[i] - 1 : place[i]);
            CHECK(w, most == last);
        }
        CHECK_OK(w, par_mesh_close(m));
    }
}

static void out_of_range(par_comm *w) { // ranks and kinds that do not exist
    const int n = par_size(w), bad[4] = {-1, n, n + 1000000, -2147483647 - 1};
    for (int i = 0; i < 4; i++) {
        char text[32];
        snprintf(text, sizeof text, "no rank %d in comm world", bad[i]);
        CHECK(w, par_world_rank(w, bad[i]) == -1 && says(w, "par_world_rank") && says(w, text));
        par_fail(w, PAR_OK, " ");
        CHECK(w, par_node_of(w, bad[i]) == -1 && says(w, "par_node_of") && says(w, text));
        CHECK(w, par_ledger_get(w, (par_kind)(PAR_KIND_COUNT + i * 100000)).calls == 0);
        CHECK(w, par_predict(w, (par_kind)(PAR_KIND_COUNT + i), 1) == 0);
    }
    CHECK(w, par_world_rank(w, n - 1) == n - 1 && par_node_of(w, n - 1) == par_node_count(w) - 1);
}

static void memory(par_comm *w) {
    const int n = par_size(w), me = par_rank(w);
    void *p[40];
    for (int round = 0; round < 2; round++) { // what was given back is clean again
        for (int i = 0; i < 40; i++) {
            const size_t bytes = (size_t)i * 7919 + (i == 39 ? (size_t)5 << 20 : 0);
            p[i] = par_alloc(w, bytes);
            CHECK(w, p[i] != NULL && (uintptr_t)p[i] % 64 == 0);
            CHECK(w, all_are(0, (unsigned char *)p[i], bytes));
            memset(p[i], me + 1, bytes);
        }
        CHECK_OK(w, par_barrier(w));
        for (int r = 0; r < n; r++) {
            unsigned char *peer = (unsigned char *)par_peer(w, (char *)p[20] + 100, r);
            CHECK(w, (peer != NULL) == (par_node_of(w, r) == par_node_of(w, me)));
            if (peer) CHECK(w, *peer == r + 1);
        }
        CHECK(w, par_peer(w, &round, 0) == NULL);
        CHECK_OK(w, par_barrier(w));
        for (int i = 0; i < 40; i++) CHECK_OK(w, par_free(w, p[(i * 7) % 40]));
    }
    const uint64_t before = w->world->committed_bytes; // every rank commits its own part
    p[0] = par_alloc(w, 1 << 20);
    CHECK(w, p[0] && w->world->committed_bytes - before == 1 << 20);
    CHECK_OK(w, par_free(w, p[0]));
    CHECK(w, par_alloc(w, SIZE_MAX / 2) == NULL && says(w, "cannot allocate"));
    CHECK(w, par_alloc(w, (size_t)1 << 45) == NULL);
    CHECK(w, n == 1 || (par_alloc(w, me == 0 ? 10 : 20) == NULL && strstr(par_last_error(w), "asks for")));
    CHECK(w, par_free(w, &p) == PAR_ERR_ARGUMENT && says(w, "is not from par_alloc on comm world"));
    p[0] = par_alloc(w, 5000), p[1] = par_alloc(w, 100);
    CHECK(w, par_free(w, (char *)p[0] + 64) == PAR_ERR_ARGUMENT && says(w, "is 64 bytes into a block"));
    memset(p[0], 7, 5000), memset(p[1], 8, 100); // both blocks are still allocated
    CHECK_OK(w, par_free(w, p[0]));
    CHECK(w, par_free(w, p[0]) == PAR_ERR_ARGUMENT && says(w, "or was freed before"));
    CHECK_OK(w, par_free(w, p[1]));
    CHECK_OK(w, par_free(w, NULL));
    CHECK_OK(w, par_barrier(w));
}

// ---- diagnosis --------------------------------------------------------------------------------------------

static void ledger(par_comm *w) {
    const size_t n = (size_t)par_size(w), c = 1000 * n;
    float *x = (float *)calloc(c * n, 4), *y = (float *)calloc(c * n, 4);
    par_ledger_reset(w);
    CHECK_OK(w, par_all_reduce(x, y, c, PAR_F32, PAR_SUM, w));
    CHECK_OK(w, par_reduce_scatter(x, y, c, PAR_F32, PAR_SUM, w));
    CHECK_OK(w, par_all_gather(x, y, c, PAR_F32, w));
    CHECK(w, par_ledger_get(w, PAR_KIND_ALL_REDUCE).sent_count == 2 * (n - 1) * c / n);
    CHECK(w, par_ledger_get(w, PAR_KIND_REDUCE_SCATTER).sent_count == (n - 1) * c);
    CHECK(w, par_ledger_get(w, PAR_KIND_ALL_GATHER).sent_bytes == (n - 1) * c * 4);
    CHECK(w, par_ledger_get(w, PAR_KIND_ALL_GATHER).calls == 1 &&
                 (n == 1 || par_ledger_get(w, PAR_KIND_ALL_REDUCE).seconds > 0));
    uint64_t net = par_ledger_get(w, PAR_KIND_ALL_REDUCE).net_bytes;
    int leads = 1; // the first rank of each node sends to the other nodes
    for (int r = 0; r < par_rank(w); r++) leads = leads && par_node_of(w, r) != par_node_of(w, par_rank(w));
    CHECK(w, net ? par_node_count(w) > 1 : !leads || par_node_count(w) == 1); // pieces have other leaders
    CHECK_OK(w, par_all_reduce(&net, &net, 1, PAR_U64, PAR_SUM, w));
    CHECK(w, (net == 0) == (par_node_count(w) == 1));
    if (par_node_count(w) == 2)
        CHECK(w, net >= 2 * c * 4 && net < 2 * c * 4 + 64 * 1024); // S bytes each way, and the arrivals
    CHECK(w, par_predict(w, PAR_KIND_ALL_REDUCE, 1 << 20) == 0);
    if (n == 2 && !test_node_ranks && !strcmp(par_launch_method(w), "fork") &&
        !TEST_FEWER) { // it takes some time
        CHECK_OK(w, par_calibrate(w));
        CHECK(w, par_predict(w, PAR_KIND_ALL_REDUCE, 1 << 20) > 0);
        CHECK(w, par_predict(w, PAR_KIND_ALL_REDUCE, 1 << 26) > par_predict(w, PAR_KIND_ALL_REDUCE, 1 << 16));
        par_ledger_reset(w);
        CHECK_OK(w, par_all_reduce(x, y, c, PAR_F32, PAR_SUM, w));
        CHECK(w, par_ledger_get(w, PAR_KIND_ALL_REDUCE).predicted_seconds > 0);
    }
    free(x), free(y);
}

// This rank's clock at the moment when the machine started. tests/tcp.sh gives a rank a clock of its own.
static double shift_of_clock(void) {
    double shift = 0, least = 1e9;
    for (int i = 0; i < 100000 && least > 2e-6; i++) { // until nothing interrupts the three readings
        struct timespec t;
        const double before = par__now();
        clock_gettime(CLOCK_BOOTTIME, &t);
        const double after = par__now();
        if (after - before < least)
            least = after - before,
            shift = (before + after) / 2 - ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    }
    return shift;
}
static void offsets(par_comm *w) {
    const int n = par_size(w), me = par_rank(w);
    double offset, error, measured, error_measured, shift = shift_of_clock(), first = shift;
    par__round_trip trips[20];
    CHECK_OK(w, par_broadcast(&first, &first, 1, PAR_F64, 0, w));
    const int same = fabs(shift - first) < 1; // else tests/tcp.sh has shifted the clock, by far more
    if (same) shift = first;
    for (int turn = 0; turn < 2; turn++) { // worlds opened at about the same time, then not
        double opened = w->world->opened_at, zero = opened;
        CHECK_OK(w, par_broadcast(&zero, &zero, 1, PAR_F64, 0, w));
        const double truth = (first - zero) - (shift - opened);
        CHECK_OK(w, par_clock_offset(w, &offset, &error));
        CHECK(w, error < 30 && (error > 0) == !same);
        CHECK(w, same ? offset == opened - zero : fabs(offset - truth) <= error + 1e-5);
        for (int q = 1; q < n; q++) { // measure it again, as between machines
            par_result r = PAR_OK;
            if (me == 0) r = par__answer_offset(w, q);
            if (me == q) r = par__measure_offset(w, 0, &measured, &error_measured);
            CHECK_OK(w, r);
            if (me != q) continue;
            CHECK(w, error_measured > 0 && fabs(measured - truth) <= error_measured + (same ? 1e-9 : 1e-5));
        }
        CHECK_OK(w, par_barrier(w));
        w->world->opened_at -= 1000.25 * me;
    }
    for (int i = 0; i < 20;
         i++) { // there: 50 s less; the way takes longer and longer, then shorter and shorter
        const double way = i < 10 ? 3 + i : 1.25 + 20 - i, sent = 40 * i;
        trips[i].sent = sent, trips[i].remote = sent - 50 + (i == 19 ? 2.25 : way / 4),
        trips[i].received = sent + way;
    }
    const double by = par__best_offset(trips, 20, &error);
    CHECK(w, error == 1.125 && by == -50 + 2.25 - 1.125 && fabs(by - -50) <= error);
}
// In a trace no rank leaves a barrier before every rank has reached it.
static int read_events(const char *path, const char *name, double *start, double *end, int *count,
                       int capacity) {
    char line[1024];
    FILE *f = fopen(path, "r");
    int bad = !f;
    while (f && fgets(line, sizeof line, f)) {
        const char *ts = strstr(line, "\"ts\":"), *lasted = strstr(line, "\"dur\":"),
                   *pid = strstr(line, "\"pid\":");
        if (!ts || !lasted || !pid || !strstr(line, name)) continue;
        const int rank = atoi(pid + 6), at = rank * capacity + count[rank]++;
        if (count[rank] > capacity) return fclose(f), 0;
        start[at] = atof(ts + 5), end[at] = start[at] + atof(lasted + 6);
        bad |= start[at] < 0;
    }
    if (f) fclose(f);
    return !bad;
}
static void traced(par_comm *w) {
    enum { TURNS = 40 };
    const int n = par_size(w), me = par_rank(w);
    static double start[64 * TURNS], end[64 * TURNS];
    char path[600];
    par__world *world = w->world;
    int count[64] = {0}, pid = (int)getpid();
    double offset, error;
    CHECK_OK(w, par_broadcast(&pid, &pid, 1, PAR_I32, 0, w));
    snprintf(path, sizeof path, "%s/par_trace_%d.json", test_dir, pid);
    world->opened_at -= 0.5 * me; // as if the ranks had opened their worlds one after the other
    world->trace_path = path, world->event_count = 0;
    for (int i = 0; i < TURNS; i++) {
        if (i % n == me) usleep(500);
        CHECK_OK(w, par_trace_begin(w, "turn"));
        CHECK_OK(w, par_barrier(w));
        CHECK_OK(w, par_trace_end(w));
    }
    CHECK(w, par_trace_end(w) == PAR_ERR_ARGUMENT && says(w, "without par_trace_begin"));
    for (int i = 0; i < 34; i++) CHECK(w, par_trace_begin(w, "deep") == (i < 32 ? PAR_OK : PAR_ERR_ARGUMENT));
    const size_t before = world->event_count;
    for (int i = 0; i < 34; i++) CHECK_OK(w, par_trace_end(w));
    CHECK(w, world->event_count == before + 32 && par_trace_end(w) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_clock_offset(w, &offset, &error));
    CHECK_OK(w, par_all_reduce(&error, &error, 1, PAR_F64, PAR_MAX, w));
    CHECK_OK(w, par__write_trace(w));
    if (me) return;
    CHECK(w, read_events(path, "\"turn\"", start, end, count, TURNS));
    for (int i = 0; i < TURNS; i++) {
        double last = 0, first = 1e30;
        for (int r = 0; r < n; r++) {
            CHECK(w, count[r] == TURNS);
            last = fmax(last, start[r * TURNS + i]), first = fmin(first, end[r * TURNS + i]);
        }
        CHECK(w, first >= last - 2e6 * error - 5); // us; 5: between its two clocks
    }
    unlink(path);
}

// What a program asks and counts while the progress thread runs its calls.
static void traced_beside(par_comm *w) {
    enum { BEGUN = 8 };
    float x[16] = {1}, y[BEGUN][16];
    char path[600];
    int pid = (int)getpid();
    CHECK_OK(w, par_broadcast(&pid, &pid, 1, PAR_I32, 0, w));
    snprintf(path, sizeof path, "%s/par_trace_%d.json", test_dir, pid);
    par__lock_world(w->world);
    w->world->trace_path = path, w->world->event_count = 0;
    par__unlock_world(w->world);
    for (int i = 0; i < 150; i++) {
        par_request q[BEGUN];
        for (int k = 0; k < BEGUN; k++)
            CHECK_OK(w, par_all_reduce_begin(x, y[k], 16, PAR_F32, PAR_SUM, w, &q[k]));
        for (int k = 0; k < 40; k++) {
            CHECK_OK(w, par_trace_begin(w, "span"));
            CHECK_OK(w, par_trace_end(w));
            if (k % 8 == 0)
                CHECK(w, par_ledger_get(w, PAR_KIND_ALL_REDUCE).calls <= (size_t)BEGUN * (size_t)(i + 1));
            if (k == 9) CHECK(w, par_last_algorithm(w)[0]);
        }
        CHECK_OK(w, par_force_algorithm(w, ""));
        CHECK_OK(w, par_wait_all(q, BEGUN));
        CHECK(w, y[BEGUN - 1][0] == (float)par_size(w));
        if (i == 75) par_ledger_reset(w);
    }
    CHECK(w, w->world->event_count >= 150 * (BEGUN + 40));
    CHECK_OK(w, par__write_trace(w));
    if (par_rank(w) == 0) unlink(path);
}

static void timing(par_comm *w) {
    const double t = par_seconds(w);
    CHECK(w, t >= 0 && par_seconds(w) >= t && par_launch_method(w)[0]);
    CHECK(w, !strcmp(par_result_name(PAR_ERR_TIMEOUT), "PAR_ERR_TIMEOUT") && par_result_text(PAR_OK)[0]);
    FILE *f = fdopen(par__memfd_create("test"), "w+");
    par_recorder_print(w, f);
    par_algorithms_print(w, f);
    par_ledger_print(w, f);
    CHECK(w, ftell(f) > 500);
    fclose(f);
    CHECK(w, par_force_algorithm(w, "all_reduce:twoshoot") == PAR_ERR_ARGUMENT && says(w, "mean twoshot?"));
    CHECK(w, par_force_algorithm(w, "all-reduce:ring") == PAR_ERR_ARGUMENT && says(w, "mean all_reduce?"));
    CHECK(w, par_force_algorithm(w, "ring") == PAR_ERR_ARGUMENT && says(w, "is not operation:algorithm"));
    CHECK_OK(w, par_force_algorithm(w, ""));
    CHECK_OK(w, par_barrier(w));
}

// Compare many calls in a group with the same calls alone, bit for bit; then try what a group may not
// contain.
static void grouped(par_comm *w) {
    enum { CALLS = 40 };
    const int n = par_size(w), me = par_rank(w), right = (me + 1) % n, left = (me + n - 1) % n;
    static const size_t sizes[5] = {1, 0, 777, 40000, 9};
    float *x[CALLS], *y[CALLS], *z[CALLS];
    par_request request;
    for (int i = 0; i < CALLS; i++) {
        const size_t c = sizes[i % 5] + (size_t)i;
        x[i] = (float *)malloc(c * 4), y[i] = (float *)malloc(c * 4), z[i] = (float *)malloc(c * 4);
        for (size_t j = 0; j < c; j++) x[i][j] = rough((uint64_t)me * 100 + (uint64_t)i, j);
    }
    for (int round = 0; round < 4; round++) {
        float got = 0, mine = (float)me;
        par_ledger_reset(w);
        CHECK_OK(w, par_group_begin(w));
        CHECK(w, par_group_begin(w) == PAR_ERR_ARGUMENT);
        for (int i = 0; i < CALLS; i++) {
            const size_t c = sizes[i % 5] + (size_t)i;
            const par_op op = i / 8 % 2 ? PAR_AVG : PAR_SUM;
            if (i % 13 == 12)
                CHECK_OK(w, par_broadcast(x[i], y[i], c, PAR_F32, i % n, w));
            else
                CHECK_OK(w, par_all_reduce(x[i], y[i], c, PAR_F32, op, w));
        }
        if (n > 1) CHECK_OK(w, par_recv(&got, 1, PAR_F32, left, w));
        if (n > 1) CHECK_OK(w, par_send(&mine, 1, PAR_F32, right, w));
        CHECK(w, par_alloc(w, 10) == NULL && says(w, "group"));
        if (round % 2) {
            CHECK_OK(w, par_group_end(w));
        } else {
            CHECK_OK(w, par_group_end_begin(w, &request));
            CHECK_OK(w, par_wait(&request));
        }
        CHECK(w, n == 1 || got == (float)left);
        CHECK(w, par_ledger_get(w, PAR_KIND_ALL_REDUCE).calls < CALLS / 2); // some were coalesced
        for (int i = 0; i < CALLS; i++) {
            const size_t c = sizes[i % 5] + (size_t)i;
            if (i % 13 == 12)
                CHECK_OK(w, par_broadcast(x[i], z[i], c, PAR_F32, i % n, w));
            else
                CHECK_OK(w, par_all_reduce(x[i], z[i], c, PAR_F32, i / 8 % 2 ? PAR_AVG : PAR_SUM, w));
            CHECK(w, !memcmp(y[i], z[i], c * 4));
        }
    }
    // One rank makes two calls of a group in another order: as many elements, but a mismatch.
    CHECK(w, par_group_end(w) == PAR_ERR_ARGUMENT);
    const int odd = n > 1 && me == n - 1;
    CHECK_OK(w, par_group_begin(w));
    CHECK_OK(w, par_all_reduce(x[2], y[2], odd ? 20 : 10, PAR_F32, PAR_SUM, w));
    CHECK_OK(w, par_all_reduce(x[3], y[3], odd ? 10 : 20, PAR_F32, PAR_SUM, w));
    CHECK(w, par_group_end(w) == (n > 1 ? PAR_ERR_MISMATCH : PAR_OK));
    CHECK(w, n == 1 || says(w, "group of calls"));
    for (int i = 0; i < CALLS; i++) free(x[i]), free(y[i]), free(z[i]);
    CHECK_OK(w, par_barrier(w));
}

// A tag belongs to the next collective without a root, within a group as outside.
static void tagged(par_comm *w) {
    const int odd = par_size(w) > 1 && par_rank(w) == par_size(w) - 1, me = par_rank(w);
    int x[2] = {1, 3}, got = 0;
    par_request request;
    for (int late = 0; late < 2; late++) { // the last rank may tag another call of the group than the others
        CHECK_OK(w, par_group_begin(w));
        if (late || !odd) par_tag(w, 5);
        CHECK_OK(w, par_all_reduce(&x[0], &x[0], 1, PAR_I32, PAR_MAX, w));
        if (!late && odd) par_tag(w, 5);
        CHECK_OK(w, par_all_reduce(&x[1], &x[1], 1, PAR_I32, PAR_MAX, w));
        CHECK(w, par_group_end(w) == (late || par_size(w) == 1 ? PAR_OK : PAR_ERR_MISMATCH));
        CHECK(w, late || par_size(w) == 1 || says(w, "tag=5"));
        CHECK_OK(w, par_barrier(w));
    }
    if (odd) par_tag(w, 5);
    CHECK_OK(w, par_recv_begin(&got, 1, PAR_I32, me, w, &request)); // a receive ignores the tag
    CHECK_OK(w, par_send(&x[1], 1, PAR_I32, me, w));
    CHECK_OK(w, par_wait(&request));
    CHECK(w, got == 3);
    if (!odd) par_tag(w, 5);
    CHECK_OK(w, par_barrier(w));
}

// What par_begin says of a description that is wrong; what it takes from it besides arguments.
static void described(par_comm *w) {
    const int last = par_rank(w) == par_size(w) - 1;
    size_t counts[64];
    int x = 1;
    par_call call;
    memset(&call, 0, sizeof call);
    for (int i = 0; i < 64; i++) counts[i] = 1;
    call.send = call.recv = &x, call.count = 1, call.dtype = PAR_I32, call.kind = PAR_KIND_SEND;
    call.root = par_size(w), call.site = "a site of its own";
    CHECK(w, par_begin(w, &call, NULL) == PAR_ERR_ARGUMENT &&
                 says(w, "par_send at a site of its own: peer is not"));
    call.root = 0, call.send_counts = counts;
    CHECK(w, par_begin(w, &call, NULL) == PAR_ERR_ARGUMENT && says(w, "does not take these counts"));
    call.send_counts = NULL, call.kind = PAR_KIND_REDUCE_SCATTERV,
    call.recv_counts = call.recv_displs = counts;
    CHECK(w, par_begin(w, &call, NULL) == PAR_ERR_ARGUMENT && says(w, "does not take these counts"));
    call.kind = last ? PAR_KIND_COUNT : PAR_KIND_BARRIER, call.recv_counts = call.recv_displs = NULL;
    CHECK(w, par_begin(w, &call, NULL) == (last ? PAR_ERR_ARGUMENT : PAR_ERR_MISMATCH));
    CHECK(w, says(w, last ? "no such kind"
                          : "called par_barrier() with an invalid argument at a site of its own"));
    call.kind = PAR_KIND_ALL_REDUCE, call.site = NULL, call.tag = last ? 7 : 0;
    if (!last) par_tag(w, 7);
    CHECK_OK(w, par_begin(w, &call, NULL));
    CHECK(w, x == par_size(w));
    CHECK_OK(w, par_barrier(w)); // has no tag
}

static size_t listed(par_comm *w) { // the operations that one progress step of this rank looks at
    size_t count = 0;
    par__lock_world(w->world);
    for (const par__operation *op = w->world->active; op; op = op->next) count++;
    par__unlock_world(w->world);
    return count;
}

static uint64_t recorded(const par_comm *w) { return PAR__LOAD(&w->world->control->record_count); }

// A message that fits into the ring has ended when its send returns, and a receive of one that is there too;
// so has a collective of one rank. They are recorded and counted as all calls are. Neither a receive that is
// begun copies a large message, nor does the first of several sends keep the next from the receiver.
static void ended_at_once(par_comm *w) {
    enum { LARGE = 100000, SENDS = 3 };
    const int n = par_size(w), me = par_rank(w), right = (me + 1) % n, left = (me + n - 1) % n;
    const int one_node = par_node_count(w) == 1;
    int x[3] = {me, 5, -1}, y[3] = {0, 0, 0};
    char *large = (char *)par_alloc(w, 2 * SENDS * LARGE), *got = large + SENDS * LARGE;
    par_request q[2 * SENDS];
    par_comm *self;
    CHECK_OK(w, par_sendrecv(x, 3, right, y, 3, left, PAR_I32, w)); // makes the rings
    CHECK(w, y[0] == left);
    uint64_t records = recorded(w);
    const uint64_t sends = par_ledger_get(w, PAR_KIND_SEND).sent_bytes;
    CHECK_OK(w, par_send_begin(x, 3, PAR_I32, right, w, &q[0]));
    CHECK(w, !one_node || (!q[0].operation && recorded(w) == records + 1));
    CHECK(w, !one_node || par_ledger_get(w, PAR_KIND_SEND).sent_bytes == sends + sizeof x);
    CHECK_OK(w, par_recv(y, 3, PAR_I32, left, w));
    CHECK_OK(w, par_wait(&q[0]));
    CHECK_OK(w, par_send(x, 3, PAR_I32, right, w));
    CHECK_OK(w, par_barrier(w)); // the message is there
    CHECK_OK(w, par_recv_begin(y, 3, PAR_I32, left, w, &q[0]));
    CHECK(w, !one_node || (!q[0].operation && y[0] == left && y[1] == 5 && y[2] == -1));
    CHECK_OK(w, par_wait(&q[0]));
    memset(large, 1 + me, SENDS * LARGE), memset(got, 0, SENDS * LARGE);
    for (int i = 0; i < SENDS; i++)
        CHECK_OK(w, par_send_begin(large + i * LARGE, LARGE, PAR_U8, right, w, &q[i]));
    CHECK(w, !one_node || listed(w) == SENDS); // all are with the receiver
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_recv_begin(got, LARGE, PAR_U8, left, w, &q[SENDS]));
    CHECK(w, !one_node || got[0] == 0);
    for (int i = 1; i < SENDS; i++)
        CHECK_OK(w, par_recv_begin(got + i * LARGE, LARGE, PAR_U8, left, w, &q[SENDS + i]));
    CHECK_OK(w, par_wait_all(q, 2 * SENDS));
    CHECK(w, got[0] == 1 + left && got[SENDS * LARGE - 1] == 1 + left && listed(w) == 0);
    CHECK_OK(w, par_free(w, large));
    CHECK_OK(w, par_split(w, me, 0, &self));
    records = recorded(w);
    CHECK_OK(w, par_all_reduce_begin(x, y, 3, PAR_I32, PAR_SUM, self, &q[0]));
    CHECK(w, !q[0].operation && y[0] == me && y[2] == -1 && recorded(w) == records + 1);
    CHECK(w, par_ledger_get(self, PAR_KIND_ALL_REDUCE).calls == 1);
    CHECK_OK(w, par_wait(&q[0]));
    CHECK(w, par_all_reduce(x, NULL, 3, PAR_I32, PAR_SUM, self) == PAR_ERR_ARGUMENT);
    float z[2] = {3, 5};
    CHECK_OK(w, par_all_reduce(z, z, 2, PAR_F32, par_scaled_sum(0.5), self));
    CHECK(w, z[0] == 1.5f && z[1] == 2.5f);
    CHECK_OK(w, par_close(self));
}

// However many calls are in flight, a progress step looks only at the first of each queue.
static void many_begun(par_comm *w) {
    enum { CALLS = 300 };
    const int me = par_rank(w), n = par_size(w), right = (me + 1) % n, left = (me + n - 1) % n;
    par_request *requests = (par_request *)calloc(3 * CALLS, sizeof *requests), *q = requests;
    int *sums = (int *)calloc(3 * CALLS, sizeof *sums), *sent = sums + CALLS, *got = sent + CALLS;
    size_t max = 0;
    for (int i = 0; i < CALLS; i++, q += 3) {
        sums[i] = sent[i] = i + me;
        CHECK_OK(w, par_all_reduce_begin(&sums[i], &sums[i], 1, PAR_I32, PAR_SUM, w, &q[0]));
        CHECK_OK(w, par_recv_begin(&got[i], 1, PAR_I32, left, w, &q[1]));
        if (i % 2) CHECK_OK(w, par_send_begin(&sent[i - 1], 1, PAR_I32, right, w, &q[2]));
        if (i % 2) CHECK_OK(w, par_send_begin(&sent[i], 1, PAR_I32, right, w, &q[-1]));
        max = PAR__MAX(max, listed(w));
    }
    CHECK(w, max <= 3);
    for (int i = 3 * CALLS; i-- > 3 * CALLS / 2;) CHECK_OK(w, par_wait(&requests[i])); // the last ones first
    CHECK_OK(w, par_wait_all(requests, 3 * CALLS));
    for (int i = 0; i < CALLS; i++)
        CHECK(w, sums[i] == n * i + n * (n - 1) / 2 && got[i] == i + left && sent[i] == i + me);
    CHECK(w, listed(w) == 0);
    free(requests), free(sums);
}

// With a progress thread calls in flight complete while the program makes no call.
static void progress_thread(par_comm *w) {
    const size_t c = 300000;
    float *x = (float *)malloc(c * 4), *y = (float *)malloc(c * 4);
    par_request requests[3];
    for (size_t i = 0; i < c; i++) x[i] = (float)(par_rank(w) + 1);
    for (int round = 0; round < 3; round++) {
        memset(y, 0, c * 4);
        CHECK_OK(w, par_all_reduce_begin(x, y, c, PAR_F32, PAR_SUM, w, &requests[0]));
        CHECK_OK(w, par_barrier_begin(w, &requests[1]));
        CHECK_OK(w, par_all_reduce_begin(y, y, c, PAR_F32, PAR_MAX, w, &requests[2]));
        while (requests[2].operation && PAR__LOAD(&requests[2].operation->state) != PAR__DONE)
            usleep(200); // by the thread alone
        CHECK_OK(w, par_wait_all(requests, 3));
        CHECK(w, y[c - 1] == (float)(par_size(w) * (par_size(w) + 1)) / 2);
    }
    for (int i = 0; i < 50; i++) { // small calls are made at once, as without the thread, which may step them
        const int sum = par_size(w) * (par_size(w) + 1) / 2 + i * par_size(w);
        int mine = par_rank(w) + 1 + i;
        CHECK_OK(w, par_all_reduce(&mine, &mine, 1, PAR_I32, PAR_SUM, w));
        CHECK(w, mine == sum);
    }
    CHECK_OK(w, par_barrier(w));
    free(x), free(y);
}

// What both threads of a rank use is locked, or atomic: for a race detector. The thread ends calls, with or
// without a group, and reserves the rings of a comm, while the program makes calls that end at once, asks for
// calls that have ended, and allocates.
static void beside_thread(par_comm *w) {
    enum { ROUNDS = TEST_FEWER ? 8 : 2, COUNT = 30000 };
    const int n = par_size(w), me = par_rank(w), right = (me + 1) % n, left = (me + n - 1) % n;
    static __thread float x[2][COUNT], y[2][COUNT];
    int got[2], sent[2] = {1, 2}, one = 1, done = 0;
    par_request q[2], ended[2], group;
    par_comm *self, *c;
    CHECK_OK(w, par_split(w, me, 0, &self));
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(w, par_split(w, 0, me, &c));
        CHECK_OK(w, par_all_reduce_begin(x[0], y[0], COUNT, PAR_F32, PAR_SUM, c, &q[0]));
        for (done = 0; !done; done = !q[0].operation || PAR__LOAD(&q[0].operation->state) == PAR__DONE) {
            CHECK_OK(w, par_all_reduce(&one, &one, 1, PAR_I32, PAR_SUM, self));
            CHECK_OK(w, par_free(self, par_alloc(self, 64)));
            par_set_timeout(w, par_timeout(w));
        }
        CHECK_OK(w, par_wait(&q[0]));
        CHECK_OK(w, par_close(c));
        for (int i = 0; i < 2; i++) CHECK_OK(w, par_recv_begin(&got[i], 1, PAR_I32, left, w, &q[i]));
        memcpy(ended, q, sizeof q);
        CHECK_OK(w, par_barrier(w)); // the receives have operations, which the group takes
        for (int i = 0; i < 2; i++) CHECK_OK(w, par_send(&sent[i], 1, PAR_I32, right, w));
        for (int i = 0; i < 2; i++) CHECK_OK(w, par_wait(&q[i]));
        CHECK(w, got[0] == 1 && got[1] == 2);
        CHECK_OK(w, par_group_begin(w));
        for (int i = 0; i < 2; i++) CHECK_OK(w, par_all_reduce(x[i], y[i], COUNT, PAR_F32, PAR_SUM, w));
        CHECK_OK(w, par_group_end_begin(w, &group));
        for (done = 0; !done; done = !group.operation || PAR__LOAD(&group.operation->state) == PAR__DONE) {
            for (int i = 0; i < 2; i++)
                CHECK(w, !ended[i].operation || !par__has_ticket(ended[i].operation, ended[i].ticket));
            sched_yield();
        }
        CHECK_OK(w, par_wait(&group));
    }
    CHECK_OK(w, par_close(self));
}

// A device backend for calls on one rank's own memory.
static float offload_memory[64][2];
static int offload_supports(par_device_backend *backend, const void *memory) {
    return (void)backend, (const char *)memory >= (const char *)offload_memory &&
                              (const char *)memory < (const char *)(offload_memory + 64);
}
static float offload_sent[64]; // to itself
static int offload_messages[64];
static par_result offload_begin(par_device_backend *backend, const par_call *call, void **state) {
    const int sends = call->kind == PAR_KIND_SEND, receives = call->kind == PAR_KIND_RECV;
    (void)backend, (void)state;
    if (sends || receives) offload_messages[call->root]++;
    memcpy(sends ? &offload_sent[call->root] : call->recv, receives ? &offload_sent[call->root] : call->send,
           call->count * 4);
    return PAR_OK;
}
static par_result offload_end(par_device_backend *backend, void *state) {
    return (void)backend, (void)state, PAR_OK;
}
static par_result offload_split(par_device_backend *backend, int color, int key, par_comm *part) {
    return (void)backend, (void)color, (void)key, (void)part, PAR_OK;
}
static void offload_close(par_device_backend *backend) { (void)backend; }

// Messages of a device's memory are its backend's; a neighbor exchange cannot be.
static void offloaded_messages(par_comm *w, par_comm *c, float *mine) {
    float got[2] = {0, 0};
    const size_t one[1] = {1};
    const int self[1] = {par_rank(w)};
    mine[0] = 21;
    CHECK_OK(w, par_send(mine, 1, PAR_F32, self[0], c));
    CHECK_OK(w, par_recv(&mine[1], 1, PAR_F32, self[0], c));
    CHECK(w, mine[1] == 21 && offload_messages[self[0]] == 2);
    par_neighbors *neighbors;
    CHECK_OK(w, par_neighbors_open(c, 1, self, NULL, &neighbors));
    CHECK(w, par_neighbor_exchange(mine, one, NULL, &mine[1], one, NULL, PAR_F32, neighbors) ==
                     PAR_ERR_UNSUPPORTED &&
                 says(w, "memory of a device (test)"));
    CHECK_OK(w, par_neighbor_exchange(&got[0], one, NULL, &got[1], one, NULL, PAR_F32, neighbors));
    CHECK_OK(w, par_neighbors_close(neighbors));
}
// The rank and its progress thread both allocate and recycle operations. Rank 1 sends only after rank 0 has
// made its offloaded calls. Nothing else orders the two threads of rank 0, because that could hide a missing
// lock from a race detector.
static void offloaded(par_comm *w) {
    float got[2] = {0, 0}, *mine = offload_memory[par_rank(w)], *rest;
    par_request request;
    par_device_backend backend;
    memset(&backend, 0, sizeof backend);
    backend.name = "test", backend.supports = offload_supports, backend.begin = offload_begin;
    backend.end = offload_end, backend.close = offload_close, backend.split = offload_split;
    par_comm *c;
    CHECK_OK(w, par_split(w, 0, 0, &c));
    CHECK_OK(w, par_attach_backend(c, &backend));
    CHECK_OK(w, par_barrier(w));
    mine[0] = 3, rest = mine + 1;
    if (par_rank(w) == 0) {
        CHECK_OK(w, par_group_begin(w));
        CHECK_OK(w, par_recv(&got[0], 1, PAR_F32, 1, w));
        CHECK_OK(w, par_recv(&got[1], 1, PAR_F32, 1, w));
        CHECK_OK(w, par_group_end_begin(w, &request));
        const par__operation *head = request.operation;
        CHECK_OK(w, par_broadcast(mine, rest, 1, PAR_F32, 0, c));
        CHECK(w, par_broadcast(mine, rest, 1, PAR_F32, 99, c) == PAR_ERR_ARGUMENT && says(w, "root=99"));
        __atomic_store_n(&test_shared->words.issued, 1, __ATOMIC_RELAXED);
        while (getenv("PAR_PROGRESS") && __atomic_load_n(&head->state, __ATOMIC_RELAXED) != PAR__DONE)
            usleep(100);
        CHECK_OK(w, par_wait(&request));
        CHECK(w, got[0] == 7 && got[1] == 8 && *rest == 3);
    } else if (par_rank(w) == 1) {
        while (!__atomic_load_n(&test_shared->words.issued, __ATOMIC_RELAXED)) usleep(100);
        got[0] = 7, got[1] = 8;
        CHECK_OK(w, par_send(&got[0], 1, PAR_F32, 0, w));
        CHECK_OK(w, par_send(&got[1], 1, PAR_F32, 0, w));
    }
    for (int i = 0; i < 2; i++) { // a repeated call is offloaded each time
        mine[0] = (float)(10 + i);
        CHECK_OK(w, par_broadcast(mine, rest, 1, PAR_F32, 0, c));
        CHECK(w, *rest == (float)(10 + i) && !strcmp(par_last_algorithm(c), "test"));
    }
    offloaded_messages(w, c, mine);
    par_comm *part; // split within a layer, whose name stays set
    par__enter_layer(w, "here");
    par__set_layer_name(w, "layer");
    CHECK_OK(w, par_split(c, 0, 0, &part));
    const par__caller caller = par__save_caller(w);
    CHECK(w, !strcmp(caller.site, "here") && !strcmp(caller.name, "layer"));
    CHECK_OK(w, par_close(part));
    CHECK_OK(w, par_close(c));
}

static void nearest(par_comm *w) {
    static const struct {
        const char *given, *meant; // NULL: nothing is near
    } names[] = {{"1f1b", "1f1b"},
                 {"1F1BB", "1f1b"},
                 {"interleaved", "interleaved_1f1b"},
                 {"ZB-H1", "zb_h1"},
                 {"zbv", "zb_v"},
                 {"glipe", "gpipe"},
                 {"dual_pipe", "dualpipe"},
                 {"daulpipe", "dualpipe"},
                 {"--learning-rte=3", "--learning_rate"},
                 {"lerning_rate", "--learning_rate"},
                 {"--lr", "--learning_rate"},
                 {"--learn", "--learning_rate"},
                 {"u61", "u16"},
                 {"--epochs", NULL},
                 {"--optimizer", NULL},
                 {"l", NULL},
                 {"pt", NULL},
                 {"", NULL},
                 {"--", NULL}};
    static const struct {
        int row;
        const char *name;
    } there[] = {{0, "gpipe"},
                 {1, "1f1b"},
                 {2, "interleaved_1f1b"},
                 {3, "zb_h1"},
                 {4, "zb_v"},
                 {5, "dualpipe"},
                 {6, "--learning_rate"},
                 {7, "--tp"},
                 {8, "--arch"},
                 {9, "u16"},
                 {10, "-n"}};
    const size_t count = sizeof there / sizeof there[0];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char wanted[96] = "";
        const par_suggestion s = par_suggest(names[i].given, &there[0].name, count, sizeof there[0]);
        if (names[i].meant) snprintf(wanted, sizeof wanted, "; did you mean %s?", names[i].meant);
        if (strcmp(s.text, wanted)) fprintf(stderr, "%s%s\n", names[i].given, s.text);
        CHECK(w, !strcmp(s.text, wanted));
    }
    CHECK(w, !*par_suggest("x", &there[0].name, 0, sizeof there[0]).text);
    char endless[4096];
    const char *const long_name = endless;
    memset(endless, 'x', sizeof endless), endless[4095] = 0;
    CHECK(w, !*par_suggest(endless, &there[0].name, count, sizeof there[0]).text);
    CHECK(w, strlen(par_suggest(endless, &long_name, 1, sizeof long_name).text) < sizeof(par_suggestion));
}

// A tuning table with unusual choices, and invalid tables.
static void tuned(par_comm *w) {
    char path[600], line[160];
    float x[300], y[300];
    par__world *world = w->world;
    snprintf(path, sizeof path, "%s/par_tuned_%d_%p", test_dir, (int)getpid(), (void *)w);
    for (int bad = 0; bad < 5; bad++) {
        static const char *const rows[] = {"all_reduce %d %d 100000 ring\nset stream_bytes 77777\n# all\n\n",
                                           "all_reduce %d %d 100000 Rign\n", "all_reduce %d %d\n",
                                           "allreduce %d %d 100000 ring\n", "set stream-byte 7\n# %d %d\n"};
        static const char *const texts[] = {
            "", ":1: all_reduce has no algorithm \"Rign\"; did you mean ring?", ":1 is not a row",
            "did you mean all_reduce?", "to set, but cma_bytes and stream_bytes"};
        FILE *f = fopen(path, "w");
        snprintf(line, sizeof line, rows[bad], par_size(w), par_node_count(w));
        CHECK(w, f && fputs(line, f) >= 0 && fclose(f) == 0);
        CHECK(w, par__load_tune_file(world, path) == (bad ? PAR_ERR_ARGUMENT : PAR_OK));
        CHECK(w, !bad || says(w, texts[bad]));
    }
    CHECK(w, world->nontemporal_bytes == 77777 && world->tune_row_count == 1);
    for (int i = 0; i < 300; i++) x[i] = 1;
    CHECK_OK(w, par_all_reduce(x, y, 300, PAR_F32, PAR_SUM, w));
    const int alone = par_size(w) == 1; // then a call ends at once, by no algorithm
    CHECK(w, (alone || !strcmp(par_last_algorithm(w), "ring")) && y[299] == (float)par_size(w));
    for (int other = 0; other < 2; other++) { // rows of other ranks, of other nodes
        FILE *f = fopen(path, "w");
        snprintf(line, sizeof line, "all_reduce %d %d 100000 ring\n", par_size(w) + !other,
                 par_node_count(w) + other);
        world->tune_row_count = 0;
        CHECK(w, f && fputs(line, f) >= 0 && fclose(f) == 0);
        CHECK_OK(w, par__load_tune_file(world, path));
        CHECK_OK(w, par_all_reduce(x, y, 300, PAR_F32, PAR_SUM, w));
        CHECK(w, alone || strcmp(par_last_algorithm(w), "ring") != 0);
    }
    CHECK_OK(w, par_all_reduce(x, y, 2, PAR_F32, PAR_SUM, w)); // it still fits the arrival
    CHECK(w, (alone || !strcmp(par_last_algorithm(w), "inline")) && y[1] == (float)par_size(w));
    world->tune_row_count = 0;
    CHECK(w, par__load_tune_file(world, "/nonexistent/file") == PAR_ERR_SYSTEM);
    unlink(path);
    CHECK_OK(w, par_barrier(w));
}

static void mismatch(par_comm *w) { // every rank finds every kind of mismatch, and the comm stays usable
    const int me = par_rank(w), odd = me == par_size(w) - 1;
    float x[64] = {0}, y[64];
    for (int round = 0; round < 3; round++) {
        CHECK(w, par_all_reduce(x, y, odd ? 11 : 10, PAR_F32, PAR_SUM, w) == PAR_ERR_MISMATCH);
        CHECK(w, says(w, "count=11") && says(w, "count=10") && says(w, "test_par.c:"));
        CHECK(w, par_all_reduce(x, y, 4, PAR_F32, odd ? PAR_MAX : PAR_SUM, w) == PAR_ERR_MISMATCH &&
                     says(w, "op=max"));
        CHECK(w, par_all_reduce(x, y, 4, odd ? PAR_I32 : PAR_F32, PAR_SUM, w) == PAR_ERR_MISMATCH &&
                     says(w, "i32"));
        CHECK(w, par_broadcast(x, y, 4, PAR_F32, odd ? 0 : 1, w) == PAR_ERR_MISMATCH && says(w, "root=1"));
        CHECK(w, par_all_reduce(x, y, 2, PAR_F32, par_scaled_sum(odd ? 0.5 : 0.25), w) == PAR_ERR_MISMATCH);
        if (odd)
            CHECK(w, par_barrier(w) == PAR_ERR_MISMATCH);
        else
            CHECK(w, par_all_reduce(x, y, 4, PAR_F32, PAR_SUM, w) == PAR_ERR_MISMATCH);
        CHECK(w, says(w, "par_barrier") && says(w, "par_all_reduce"));
        par_tag(w, odd ? 7 : 6);
        CHECK(w, par_all_gather(x, y, 1, PAR_F32, w) == PAR_ERR_MISMATCH && says(w, "tag=7") &&
                     says(w, "tag=6"));
        par_tag(w, 5);
        CHECK_OK(w, par_all_gather(x, y, 1, PAR_F32, w));
        size_t counts[64];
        for (int i = 0; i < par_size(w); i++) counts[i] = 1 + (size_t)(odd && i == 0);
        CHECK(w, par_all_gatherv(x, y, counts, NULL, PAR_F32, w) == PAR_ERR_MISMATCH);
        // An argument is wrong on one rank: that rank learns what is wrong, the others which rank it is.
        const par_result want = odd ? PAR_ERR_ARGUMENT : PAR_ERR_MISMATCH;
        CHECK(w, par_broadcast(x, y, 4, PAR_F32, odd ? 99 : 0, w) == want &&
                     says(w, odd ? "root is not" : "invalid argument"));
        CHECK(w, par_all_reduce(x, odd ? NULL : y, 4, PAR_F32, PAR_SUM, w) == want);
        CHECK(w, par_all_reduce(x, y, 4, odd ? (par_dtype)77 : PAR_F32, PAR_SUM, w) == want);
        CHECK(w, par_all_reduce(x, y, 4, PAR_F32, odd ? (par_op)77 : PAR_SUM, w) == want);
        CHECK(w, par_all_reduce(x, y, odd ? SIZE_MAX / 2 : 4, PAR_F32, PAR_SUM, w) == want);
        CHECK_OK(w, par_all_reduce(x, y, 4, PAR_F32, PAR_SUM, w));
    }
    if (me == 0) { // the receiver finds a message's mismatch
        int z[100] = {0};
        CHECK_OK(w, par_send(z, 100, PAR_I32, 1, w));
        for (int i = 0; i < 3; i++) CHECK_OK(w, par_send(z, 3, PAR_I32, 1, w));
        CHECK(w, par_send(z, 3, PAR_I32, 5000, w) == PAR_ERR_ARGUMENT);
        CHECK(w, par_send(z, 3, (par_dtype)77, 1, w) == PAR_ERR_ARGUMENT && says(w, "no such dtype"));
        CHECK(w, par_recv(z, (size_t)1 << 62, PAR_I32, 1, w) == PAR_ERR_ARGUMENT && says(w, "too large"));
        CHECK(w, par_recv(NULL, 3, PAR_I32, 1, w) == PAR_ERR_ARGUMENT && says(w, "recv is NULL"));
    } else if (me == 1) {
        int z[100];
        CHECK(w,
              par_recv(z, 99, PAR_I32, 0, w) == PAR_ERR_MISMATCH && says(w, "100 i32") && says(w, "99 i32"));
        CHECK(w, par_recv(z, 3, PAR_F32, 0, w) == PAR_ERR_MISMATCH && says(w, "f32"));
        CHECK(w, par_recv(z, 2, PAR_I32, 0, w) == PAR_ERR_MISMATCH && says(w, "3 i32") && says(w, "2 i32"));
        CHECK_OK(w, par_recv(z, 3, PAR_I32, 0, w)); // the ranks agree again
    }
    CHECK_OK(w, par_barrier(w));
}

// Between nodes small data are attached to digests of the arrivals. Ranks whose data differ in length still
// find out why, and go on.
static void attached(par_comm *w) {
    enum { COUNT = 500, LONG = 30000 };
    const int n = par_size(w), me = par_rank(w), last = n - 1, few = par_node_count(w) == n && n <= 8;
    static __thread int x[LONG], y[8 * COUNT];
    const uint64_t others = (uint64_t)n - 1;
    par_ledger before = par_ledger_get(w, PAR_KIND_ALL_REDUCE), after;
    for (int i = 0; i < COUNT; i++) x[i] = i + me;
    CHECK_OK(w, par_all_reduce(x, y, COUNT, PAR_I32, PAR_SUM, w));
    for (int i = 0; i < COUNT; i += 99) CHECK(w, y[i] == n * i + n * last / 2);
    after = par_ledger_get(w, PAR_KIND_ALL_REDUCE);
    CHECK(w, !few || after.net_messages - before.net_messages == others);
    CHECK(w, !few || after.net_bytes - before.net_bytes == others * (sizeof(par__digest) + 4 * COUNT));
    before = par_ledger_get(w, PAR_KIND_BROADCAST);
    CHECK_OK(w, par_broadcast(x, x, COUNT, PAR_I32, last, w));
    CHECK(w, x[0] == last && x[COUNT - 1] == last + COUNT - 1);
    after = par_ledger_get(w, PAR_KIND_BROADCAST);
    CHECK(w, !few || after.net_bytes - before.net_bytes ==
                         others * (sizeof(par__digest) + (me == last ? 4 * COUNT : 0)));
    for (int wrong = 1; wrong <= LONG; wrong += LONG - 1) {
        const int count = n > 1 && me == last ? wrong : COUNT;
        CHECK(w, n == 1 || (par_all_reduce(x, x, (size_t)count, PAR_I32, PAR_SUM, w) == PAR_ERR_MISMATCH &&
                            says(w, "count=500") && says(w, wrong == 1 ? "count=1," : "count=30000")));
        for (int i = 0; i < COUNT; i++) x[i] = i - me;
        CHECK_OK(w, par_all_reduce(x, x, COUNT, PAR_I32, PAR_MIN, w));
        CHECK(w, x[0] == -last && x[COUNT - 1] == COUNT - 1 - last);
    }
}

static par_result big_sum(par_comm *w) {
    static __thread float x[100000];
    return par_all_reduce(x, x, 100000, PAR_F32, PAR_SUM, w);
}

// The counts of one block differ between its ends: all ranks hear, no data move, and the comm goes on.
typedef struct own_counts {
    float *x, *y;
    size_t mine, *send, *recv; // of a rooted call: its own block; the root's blocks are in both
} own_counts;
static par_result own_counts_call(par_comm *w, int kind, const own_counts *a) {
    if (kind == 0) return par_gatherv(a->x, a->mine, a->y, a->recv, NULL, PAR_F32, 0, w);
    if (kind == 1) return par_scatterv(a->x, a->send, NULL, a->y, a->mine, PAR_F32, 0, w);
    return par_all_to_allv(a->x, a->send, NULL, a->y, a->recv, NULL, PAR_F32, w);
}
static void counts_differ(par_comm *w) {
    static const char *const texts[] = {"rank %d sends %zu f32 (%zu bytes) to rank 0 at ",
                                        "rank 0 sends %zu f32 (%zu bytes) to rank %d at ",
                                        "rank %d sends %zu f32 (%zu bytes) to rank 0 at "};
    static const size_t sizes[] = {0, 3, 30000};
    const int n = par_size(w), me = par_rank(w), odd = n - 1;
    size_t send[16], recv[16];
    char text[128];
    own_counts a;
    a.send = send;
    a.recv = recv;
    a.x = (float *)calloc(16 * 30001, sizeof *a.x);
    a.y = (float *)calloc(16 * 30001, sizeof *a.y);
    for (int i = 0; i < 27; i++) {
        const int kind = i / 9, right = i % 3 == 2;
        const size_t size = sizes[i / 3 % 3], wrong = right ? size : i % 3 ? SIZE_MAX - 4 : size + 1;
        for (int r = 0; r < n; r++) send[r] = recv[r] = size;
        a.mine = size;
        if (me == odd && kind != 1) send[0] = a.mine = wrong;
        if (me == 0 && kind == 1) send[odd] = wrong;
        for (int j = 0; j < n * 30001; j++) a.y[j] = 7;
        const par_result r = own_counts_call(w, kind, &a);
        if (right) {
            CHECK_OK(w, r);
            continue;
        }
        if (wrong > size + 1) { // a negative int
            const int mistaken = me == (kind == 1 ? 0 : odd);
            CHECK(w, r == (mistaken ? PAR_ERR_ARGUMENT : PAR_ERR_MISMATCH));
            CHECK(w, says(w, mistaken ? "too large to be true" : "invalid argument"));
            continue;
        }
        if (kind == 1)
            snprintf(text, sizeof text, texts[kind], wrong, 4 * wrong, odd);
        else
            snprintf(text, sizeof text, texts[kind], odd, wrong, 4 * wrong);
        CHECK(w, r == PAR_ERR_MISMATCH && says(w, text) && says(w, "test_par.c:"));
        for (int j = 0; j < n * 30001; j += 101) CHECK(w, a.y[j] == 7);
        CHECK_OK(w, par_barrier(w)); // the next call has the same number on all ranks
    }
    free(a.x);
    free(a.y);
}

// A mistake within a group: all ranks hear when their groups end, and their next calls have the same numbers.
static void group_differs(par_comm *w) {
    const int n = par_size(w), me = par_rank(w), odd = me == n - 1, next = (me + 1) % n,
              last = (me + n - 1) % n;
    float x[8] = {0}, y[8], one = 1, sum = 0, got = -1;
    for (int i = 0; i < 12; i++) {
        const int wrong = odd && i % 4 < 3, by = i % 4; // 0: the first, 1: a later argument; 2: other calls
        const par_result bad = odd && by < 2 ? PAR_ERR_ARGUMENT : PAR_ERR_MISMATCH;
        par_request group, after;
        CHECK_OK(w, par_group_begin(w));
        for (int j = 0; j < 3; j++) { // the others coalesce all three
            const int invalid = wrong && by == j && by < 2;
            const par_op op = wrong && by == 2 && j == 1 ? PAR_AVG : PAR_SUM;
            CHECK(w, par_all_reduce(x + j, y + j, 1, invalid ? (par_dtype)77 : PAR_F32, op, w) ==
                         (invalid ? PAR_ERR_ARGUMENT : PAR_OK));
        }
        CHECK_OK(w, par_send(&one, 1, PAR_F32, next, w));
        CHECK_OK(w, par_recv(&got, 1, PAR_F32, last, w));
        CHECK_OK(w, par_all_gather(x, n > 8 ? NULL : y, n > 8 ? 0 : 1, PAR_F32, w));
        CHECK_OK(w, par_group_end_begin(w, &group));
        CHECK_OK(w, par_all_reduce_begin(&one, &sum, 1, PAR_F32, PAR_SUM, w, &after)); // it is in the queue
        CHECK(w, par_wait(&group) == (by == 3 ? PAR_OK : bad));
        CHECK(w, by > 1 || says(w, odd ? "no such dtype" : "invalid argument"));
        CHECK_OK(w, par_wait(&after));
        CHECK(w, sum == (float)n && got == 1);
        CHECK_OK(w, par_barrier(w));
    }
}

// A comm that has ended repeats its own error, whatever went wrong on others since.
static void own_texts(par_comm *w) {
    const int me = par_rank(w);
    const double seconds = par_timeout(w);
    float x[64] = {0}, y[64];
    par_comm *c;
    char call[64];
    CHECK_OK(w, par_split(w, 0, 0, &c));
    snprintf(call, sizeof call, "(call 1 on comm %s)", c->name);
    if (me == 0) { // the others do not come
        par_set_timeout(w, 0.06);
        CHECK(w, par_all_reduce(x, y, 64, PAR_F32, PAR_SUM, c) == PAR_ERR_TIMEOUT && says(w, call));
        par_set_timeout(w, seconds);
    }
    CHECK(w, par_all_reduce(x, y, me == 0 ? 2 : 1, PAR_F32, PAR_SUM, w) == PAR_ERR_MISMATCH);
    CHECK(w, says(w, "count=2"));
    if (me == 0) {
        CHECK(w, par_all_reduce(x, y, 1, PAR_F32, PAR_SUM, c) == PAR_ERR_TIMEOUT && says(c, call));
        CHECK(w, par_fail(w, PAR_ERR_FILE, "another") == PAR_ERR_FILE);
        CHECK(w, par_all_reduce(x, y, 64, PAR_F32, PAR_SUM, c) == PAR_ERR_TIMEOUT && says(c, call));
        CHECK(w, par_fail(w, PAR_ERR_FILE, "another") == PAR_ERR_FILE);
        CHECK(w, par_send(x, 1, PAR_F32, 1, c) == PAR_ERR_TIMEOUT && says(c, call));
        CHECK(w, par_fail(w, PAR_ERR_FILE, "another") == PAR_ERR_FILE);
        CHECK(w, par_recv(x, 64, PAR_F32, 1, c) == PAR_ERR_TIMEOUT && says(c, call));
    }
    CHECK_OK(w, par_barrier(w));
}

// A rank that par_open has started on this machine opens no other ranks, before that world closes.
static void opened_twice(par_comm *w) {
    par_desc two;
    par_comm *other = w;
    memset(&two, 0, sizeof two);
    two.rank_count = 2;
    CHECK(w, par_open(&two, &other) == PAR_ERR_ARGUMENT && !other);
    CHECK_OK(w, par_barrier(w));
}

static void never_arrives(par_comm *w) {
    test_words *words = &test_shared->words;
    const int last = par_size(w) - 1, far = par_node_count(w) > 1;
    static __thread float x[100000];
    par_request q;
    char who[32];
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == last) { // it arrives after the others' deadline
        test_wait_for(words, 2 * last);
        par_set_timeout(w, 1000); // it learns of the error, and does not wait
        CHECK(w, par_barrier(w) != PAR_OK);
        return;
    }
    CHECK_OK(w, par_all_reduce_begin(x, x, 100000, PAR_F32, PAR_SUM, w, &q));
    test_arrive(words), test_wait_for(words, last);
    par_set_timeout(w, 0.06);
    const double start = test_now();
    const par_result r = par_wait(&q);
    const double s = test_now() - start;
    snprintf(who, sizeof who, "rank %d (%s", last, far ? "" : "last seen");
    // the first rank to time out reports the ranks of its own node
    CHECK(w, r == PAR_ERR_TIMEOUT && s < 30 && says(w, far ? "waited" : who));
    CHECK(w, far || says(w, "par_barrier"));
    par_set_timeout(w, 1000);
    CHECK(w, par_barrier(w) == PAR_ERR_TIMEOUT); // a broken comm repeats its error at once
    test_arrive(words);
}

// A rank arrives, and then stalls: the others name the ranks that they wait for.
static void stalls_within(par_comm *w) {
    test_words *words = &test_shared->words;
    float *x = (float *)calloc(100000, sizeof *x); // of threads: nobody accesses it after an error
    const int n = par_size(w), last = n - 1, stalls = par_rank(w) == last;
    par_request q;
    char who[32];
    CHECK_OK(w, par_barrier(w));
    if (!stalls) test_wait_for(words, 1); // the last rank arrives first, and can do nothing yet
    CHECK_OK(w, par_all_reduce_begin(x, x, 100000, PAR_F32, PAR_SUM, w, &q));
    test_arrive(words);
    test_wait_for(words, stalls ? n + last : n);
    par_set_timeout(w, stalls ? 1000 : 0.06);
    snprintf(who, sizeof who, "rank %d (", last);
    const par_result r = par_wait(&q);
    free(x);
    if (stalls) return; // the others may have done their parts
    CHECK(w, r == PAR_ERR_TIMEOUT && says(w, ") for rank "));
    CHECK(w, par_node_count(w) > 1 || says(w, who)); // another node's leader may be between
    test_arrive(words);
}

// Two ranks have one TCP connection, whoever begins: data carry the acknowledgments of the other direction's.
static void one_connection(par_comm *w) {
    const int n = par_size(w), me = par_rank(w);
    int found = 0;
    for (int by = 1; by < n; by++) {
        int from = -1;
        CHECK_OK(w, par_sendrecv(&me, 1, (me + by) % n, &from, 1, (me - by + n) % n, PAR_I32, w));
        CHECK(w, from == (me - by + n) % n);
    }
    CHECK_OK(w, par_barrier(w));
    const par__tcp *t = w->world->tcp;
    for (size_t i = 0; t && i < t->table_size; i++) {
        const par__connection *v = t->table[i];
        CHECK(w, !v || (v->in >= 0 && v->in == v->out));
        found += v != NULL;
    }
    CHECK(w, !t || par_node_count(w) < n || found == n - 1);
}

static void receive_never_sent(par_comm *w) {
    int x;
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w)) return test_wait_for(&test_shared->words, 1);
    par_set_timeout(w, 0.06);
    const double start = test_now();
    CHECK(w, par_recv(&x, 1, PAR_I32, 1, w) == PAR_ERR_TIMEOUT && says(w, "rank 1"));
    CHECK(w, test_now() - start >= 0.06);
    test_arrive(&test_shared->words);
}

static void killed(par_comm *w, int in_the_middle) {
    const int me = par_rank(w), victim = par_size(w) - 1;
    par_result r = PAR_OK;
    test_words *mine = (test_words *)par_alloc(w, sizeof *mine), *words = &test_shared->words;
    if (par_node_count(w) == 1)
        words = (test_words *)par_peer(w, mine, 0); // shared even if a launcher started the ranks
    CHECK_OK(w, par_alive(w));
    CHECK_OK(w, par_barrier(w));
    if (me == victim) {
        if (in_the_middle) { // issue the call, then make no progress
            par_request q;
            static float x[100000];
            par_all_reduce_begin(x, x, 100000, PAR_F32, PAR_SUM, w, &q);
            __atomic_store_n(&words->issued, 1, __ATOMIC_SEQ_CST);
        }
        test_wait_for(words, victim);
        raise(SIGKILL);
    }
    while (in_the_middle && !__atomic_load_n(&words->issued, __ATOMIC_SEQ_CST)) usleep(100);
    test_arrive(words);
    const double start = test_now();
    r = big_sum(w);
    CHECK(w, r == PAR_ERR_PEER_DIED && test_now() - start < 30); // long before the deadline
    char who[32];
    snprintf(who, sizeof who, "rank %d (", victim);
    CHECK(w, says(w, who) && says(w, "died"));
    CHECK(w, par_alive(w) == PAR_ERR_PEER_DIED);
    FILE *f = fdopen(par__memfd_create("test"), "w+"); // the dead rank's calls can still be read
    char text[8192];
    par_recorder_print(w, f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    if (par_node_of(w, me) == par_node_of(w, victim))
        CHECK(w, strstr(text, "DEAD") != NULL && strstr(text, "barrier") != NULL);
}
static void killed_before(par_comm *w) { killed(w, 0); }
static void killed_within(par_comm *w) { killed(w, 1); }

static void left_early(par_comm *w) {
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == par_size(w) - 1) _exit(0);
    const double start = test_now();
    CHECK(w, big_sum(w) == PAR_ERR_PEER_DIED && test_now() - start < 30);
}

// Ranks that talk to each other for the first time long after they started: the memory for their messages is
// committed then. Where there is none left, that is an error with its text.
static int refuse_memory(void) { // this thread's calls that commit shared memory fail from here on
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 3, 0),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
                                 BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23 /* MADV_POPULATE_WRITE */, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog filter = {sizeof code / sizeof *code, code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}
static void late(par_comm *w) {
    const int n = par_size(w), me = par_rank(w);
    int from = -1, sum = 1, refused = 1;
    for (int i = 0; i < 20; i++) CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_sendrecv(&me, 1, (me + 1) % n, &from, 1, (me + n - 1) % n, PAR_I32, w));
    CHECK(w, from == (me + n - 1) % n);
    CHECK_OK(w, par_all_reduce(&sum, &sum, 1, PAR_I32, PAR_SUM, w));
    CHECK(w, sum == n);
    if (me == 0) refused = refuse_memory();
    CHECK_OK(w, par_broadcast(&refused, &refused, 1, PAR_I32, 0, w));
    if (!refused) return; // the system has no filters
    CHECK(w, !par_alloc(w, (size_t)8 << 20) && says(w, "cannot allocate 8388608 bytes of shared memory"));
    if (me == 0 && par_node_of(w, 2) == par_node_of(w, 0))
        CHECK(w, par_send(&me, 1, PAR_I32, 2, w) == PAR_ERR_MEMORY &&
                     says(w, "no shared memory for messages from rank 0 to rank 2"));
}

// The sender's buffer is shorter than its message. process_vm_readv tells the receiver. Where ranks may not
// read each other's memory, the sender copies what there is.
static void bad_buffer(par_comm *w) {
    const size_t bytes = (size_t)1 << 20, half = bytes / 2;
    const int cma = w->world->cma;
    int all[2] = {cma, -cma};
    unsigned char *y = (unsigned char *)calloc(bytes, 1);
    unsigned char *x =
        (unsigned char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(x + half, half);
    CHECK_OK(w, par_all_reduce(all, all, 2, PAR_I32, PAR_MAX, w));
    CHECK(w, all[0] == cma && all[1] == -cma);
    if (cma && par_rank(w) == 0) CHECK_OK(w, par_send(x, bytes, PAR_U8, 1, w));
    if (cma && par_rank(w) == 1) {
        CHECK(w, par_recv(y, bytes, PAR_U8, 0, w) == PAR_ERR_SYSTEM);
        CHECK(w, says(w, "cannot read 1048576 bytes") && says(w, "of rank 0 in par_recv at") &&
                     says(w, "Bad address"));
    }
    CHECK_OK(w, par_barrier(w));
    w->world->cma = 0;
    for (size_t i = 0; i < half; i++) x[i] = (unsigned char)(i * 7 + i / 251);
    if (par_rank(w) == 0) CHECK_OK(w, par_send(x, half, PAR_U8, 1, w));
    if (par_rank(w) == 1) {
        CHECK_OK(w, par_recv(y, half, PAR_U8, 0, w));
        CHECK(w, !memcmp(x, y, half) && !y[half]);
    }
    CHECK_OK(w, par_barrier(w));
    munmap(x, half), free(y);
}

// ---- handing out a node's shared memory

static int handed(const par__rank_info *p,
                  uint64_t key) { // try to get it with this key; returns 0 or errno
    par__rank_info mine = *p;
    const int s = par__local_socket();
    mine.key = key;
    const int fd = par__request_fd(s, &mine, par__now() + 60), e = errno;
    close(s);
    return fd < 0 ? e : (close(fd), 0);
}
static par__world other_world(const par_comm *w) { // a world as of another rank, without memory
    par__world other;
    memset(&other, 0, sizeof other);
    other.fd = -1, other.rank = 1, other.timeout_s = 60, other.launch_method = w->world->launch_method;
    return other;
}
static void handed_out(par_comm *w) { // while others connect and send nothing, or another key
    par__world *world = w->world;
    const uint64_t key = world->arena->key, other_key = key + 1;
    struct sockaddr_un a;
    par__rank_info p;
    int silent[PAR__PENDING_FD_MAX + 8];
    memset(&p, 0, sizeof p);
    snprintf(p.socket, sizeof p.socket, "par.test.%d", (int)getpid());
    p.key = key, p.bytes = world->arena_bytes;
    CHECK(w, handed(&p, key) == ECONNREFUSED);
    const int s = par__local_socket();
    const socklen_t bytes = par__local_address(&p, &a);
    CHECK(w, !bind(s, (struct sockaddr *)&a, bytes) && !listen(s, PAR__PENDING_FD_MAX));
    for (int i = 0; i < PAR__PENDING_FD_MAX + 8; i++) {
        silent[i] = par__local_socket();
        const int e = connect(silent[i], (struct sockaddr *)&a, bytes) ? errno : 0;
        CHECK(w, !e || e == EAGAIN);
        if (i == 0) CHECK(w, send(silent[i], &other_key, sizeof other_key, 0) == (ssize_t)sizeof other_key);
    }
    const pid_t last = test_fork(); // in a full queue
    if (!last) {
        par__world other = other_world(w);
        int mine = par__local_socket();
        CHECK(w, par__receive_arena(&other, &mine, &p, 0, 1) == PAR_OK);
        CHECK(w, other.arena && other.arena->key == key && other.fd > 2 && mine > 2);
        _exit(0);
    }
    CHECK_OK(w, par__send_arena_fd(world, s, key, 1));
    CHECK(w, par__recv_fd(silent[0]) < 0);
    waitpid(last, NULL, 0);
    close(s);
    for (int i = 0; i < PAR__PENDING_FD_MAX + 8; i++) close(silent[i]);
}
static int still_connected(int s) {
    char byte;
    return recv(s, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}
static void connect_all(par_comm *w, int *s, int count, const struct sockaddr_un *a, socklen_t bytes) {
    for (int i = 0; i < count; i++) {
        s[i] = par__local_socket();
        CHECK(w, s[i] > 2 && !connect(s[i], (const struct sockaddr *)a, bytes));
    }
}
// At most PAR__PENDING_FD_MAX connections are accepted at a time, and as many are kept: a further one
// replaces the oldest. As many of another user are refused at a time. Without a free descriptor none is
// accepted and none lost.
static void visitors(par_comm *w) {
    enum { CAPACITY = PAR__PENDING_FD_MAX, MORE = CAPACITY + 3 };
    struct pollfd p[CAPACITY + 1];
    struct sockaddr_un a;
    struct rlimit files, few;
    par__rank_info place;
    int own[MORE + 1], foreign[MORE], count = 0;
    memset(&place, 0, sizeof place);
    snprintf(place.socket, sizeof place.socket, "par.test.%d", (int)getpid());
    const socklen_t bytes = par__local_address(&place, &a);
    const int s = par__local_socket();
    CHECK(w, !bind(s, (struct sockaddr *)&a, bytes) && !listen(s, MORE));
    connect_all(w, own, MORE, &a, bytes);
    CHECK(w, par__accept_local(s, p, &count) == 0 && count == CAPACITY && still_connected(own[0]));
    CHECK(w, par__accept_local(s, p, &count) == 0 && count == CAPACITY);
    for (int i = 0; i < MORE; i++) CHECK(w, still_connected(own[i]) == (i >= MORE - CAPACITY));
    connect_all(w, own + MORE, 1, &a, bytes);
    CHECK(w, !getrlimit(RLIMIT_NOFILE, &files));
    few = files, few.rlim_cur = (rlim_t)dup(0), close((int)few.rlim_cur);
    CHECK(w, !setrlimit(RLIMIT_NOFILE, &few));
    CHECK(w, par__accept_local(s, p, &count) == EMFILE && count == CAPACITY &&
                 still_connected(own[MORE - CAPACITY]));
    CHECK(w, par__process_start((int)getpid()) == 1); // it runs, though nobody can read since when
    CHECK(w, !setrlimit(RLIMIT_NOFILE, &files));
    CHECK(w, par__process_start((int)getpid()) > 1);
    CHECK(w, par__accept_local(s, p, &count) == 0 && count == CAPACITY &&
                 !still_connected(own[MORE - CAPACITY]));
    CHECK(w, still_connected(own[MORE]));
    if (geteuid() == 0) { // only root can be two users
        CHECK(w, !seteuid(65534));
        connect_all(w, foreign, MORE, &a, bytes);
        CHECK(w, !seteuid(0));
        CHECK(w, par__accept_local(s, p, &count) == 0 && count == CAPACITY && still_connected(own[MORE]));
        for (int i = 0; i < MORE; i++) {
            CHECK(w, still_connected(foreign[i]) == (i >= CAPACITY));
            close(foreign[i]);
        }
    }
    for (int i = 0; i < CAPACITY; i++) close(p[i].fd);
    for (int i = 0; i <= MORE; i++) close(own[i]);
    close(s);
}
static void
handed_out_to_users(par_comm *w) { // another user is refused at both ends, although it knows the key
    par__world *world = w->world;
    struct sockaddr_un a;
    par__rank_info p;
    int told[2];
    char byte;
    CHECK(w, par__peer_uid(-1) == UINT32_MAX);
    if (geteuid()) return; // only root can be two users
    memset(&p, 0, sizeof p);
    snprintf(p.socket, sizeof p.socket, "par.test.%d", (int)getpid());
    p.key = world->arena->key, p.bytes = world->arena_bytes;
    const socklen_t bytes = par__local_address(&p, &a);
    int s = par__local_socket();
    CHECK(w, !pipe(told) && !bind(s, (struct sockaddr *)&a, bytes) && !listen(s, 1));
    const pid_t stranger = test_fork();
    if (!stranger) {
        const int mine = par__local_socket();
        CHECK(w, !setgid(65534) && !setuid(65534) && !connect(mine, (struct sockaddr *)&a, bytes));
        CHECK(w, send(mine, &p.key, sizeof p.key, MSG_NOSIGNAL) == (ssize_t)sizeof p.key &&
                     write(told[1], "", 1));
        CHECK(w, par__tcp_poll_fd(mine, POLLIN, par__now() + 60) && par__recv_fd(mine) < 0);
        _exit(0);
    }
    CHECK(w, read(told[0], &byte, 1) == 1);
    world->timeout_s = 0.01; // no other rank connects
    CHECK(w, par__send_arena_fd(world, s, p.key, 1) == PAR_ERR_TIMEOUT);
    world->timeout_s = 60;
    close(s), waitpid(stranger, NULL, 0);
    const pid_t squatter = test_fork();
    if (!squatter) {
        s = par__local_socket();
        CHECK(w, !setgid(65534) && !setuid(65534) && !bind(s, (struct sockaddr *)&a, bytes) && !listen(s, 1));
        CHECK(w, write(told[1], "", 1) == 1);
        pause();
    }
    CHECK(w, read(told[0], &byte, 1) == 1);
    par__world other = other_world(w);
    s = par__local_socket();
    CHECK(w, par__receive_arena(&other, &s, &p, 0, 1) == PAR_ERR_SYSTEM && !other.base);
    kill(squatter, SIGKILL), waitpid(squatter, NULL, 0);
    close(s), close(told[0]), close(told[1]);
}
// Refuse memory of another size, of other ranks, with another key, and what is no memory.
static void adopted(par_comm *w) {
    const par__world *world = w->world;
    const size_t bytes = world->arena_bytes;
    const uint64_t key = world->arena->key;
    par__world other = other_world(w);
    CHECK(w, par__arena_adopt(&other, dup(world->fd), bytes + 4096, 1, key) == PAR_ERR_SYSTEM && !other.base);
    CHECK(w, par__arena_adopt(&other, dup(0), 0, 1, key) == PAR_ERR_SYSTEM && !other.base);
    CHECK(w, par__arena_adopt(&other, par__memfd_create("par"), 0, 1, key) == PAR_ERR_SYSTEM && !other.base);
    CHECK(w, par__arena_adopt(&other, -1, 0, 1, key) == PAR_ERR_SYSTEM && !other.base);
    CHECK(w, ftruncate(world->fd, 4096) && errno == EPERM); // the size is sealed
    CHECK(w, par__arena_adopt(&other, dup(world->fd), bytes, 1, key + 1) == PAR_ERR_SYSTEM);
    CHECK(w, par__arena_adopt(&other, dup(world->fd), bytes, 2, key) == PAR_ERR_SYSTEM);
    CHECK_OK(w, par__arena_adopt(&other, dup(world->fd), bytes, 1, key));
}

// ---- forged numbers in shared memory: each is found before it is used

static void forge_message(par_comm *c, uint64_t bytes, uint8_t place, uint64_t address, uint32_t ticket) {
    uint8_t *committed; // of the ring from rank 1 to rank 0
    if (!par__find_rings(c, 1)) abort();
    par__ring *ring = par__ring_of(c, 1, 0, 0, &committed);
    par__cell *cell = ring->cells;
    par__arena_commit(c->world, (uint64_t)((char *)ring - c->world->base), par__ring_stride(c->ring_count));
    cell->bytes = bytes, cell->count = 4, cell->dtype = PAR_F32, cell->place = place;
    cell->u.copy.from = address, cell->site = 54321; // no such place
    PAR__STORE(&cell->ticket, ticket);
    PAR__STORE(committed, (uint8_t)1);
}
static void forge_arrival(par_comm *c, uint64_t send_at, unsigned flags) { // of an all_to_all
    par__arrival *s = &c->board->arrivals[1].arrival[1];
    memset(s, 0, sizeof *s);
    s->call.kind = PAR_KIND_ALL_TO_ALL, s->call.dtype = PAR_F32, s->call.count = 50000,
    s->call.flags = (uint8_t)flags;
    s->u.address.send = send_at;
    PAR__STORE(&s->call.sequence, 1u);
}
static void forged(par_comm *w) {
    static const struct {
        uint64_t bytes, address;
        uint8_t place;
        uint32_t ticket;
        par_result result;
    } messages[] = {{4096, 0, 0, 1, PAR_ERR_MISMATCH},
                    {16, 0, 1, 1, PAR_ERR_SYSTEM},
                    {16, (uint64_t)1 << 60, 1, 1, PAR_ERR_SYSTEM},
                    {16, 0, 9, 1, PAR_ERR_SYSTEM},
                    {16, 0, 2, 1, PAR_ERR_SYSTEM}, // to be read from a rank's memory, which is not allowed
                    {16, 0, 0, 100, PAR_ERR_SYSTEM},
                    {16, 0, 0, 0x80000000u, PAR_ERR_SYSTEM}};
    static const uint64_t places[] = {0, UINT64_MAX, (uint64_t)1 << 60};
    static float x[100000], y[100000], small[4096];
    par__world *world = w->world;
    par_comm *c;
    CHECK_OK(w, par_barrier(w));
    world->cma = 0;
    if (par_size(w) != 2) return;
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        CHECK_OK(w, par_split(w, 0, 0, &c));
        if (par_rank(w) == 1)
            forge_message(c, messages[i].bytes, messages[i].place, messages[i].address, messages[i].ticket);
        CHECK_OK(w, par_barrier(w));
        if (par_rank(w) == 1) continue;
        small[4] = 7;
        CHECK(w, par_recv(small, 4, PAR_F32, 1, c) == messages[i].result);
        CHECK(w, small[4] == 7 && (i == 0 || says(w, "something wrote into it")));
    }
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(w, par_split(w, 0, 0, &c));
        if (par_rank(w) == 1) forge_arrival(c, places[i], PAR__SEND_SHARED);
        CHECK_OK(w, par_barrier(w));
        if (par_rank(w) == 1) continue;
        CHECK(w, par_all_to_all(x, y, 50000, PAR_F32, c) == PAR_ERR_SYSTEM &&
                     says(w, "something wrote into it"));
    }
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == 1) {
        par__arena *a = world->arena;
        par__extents *blocks = par__extents_of(a, 0);
        const uint64_t count = blocks->count, at = blocks->extent[0].at;
        blocks->count = (uint64_t)1 << 40;
        CHECK(w, !par__arena_alloc(world, 1, 64, 0) && says(w, "a number of blocks of"));
        blocks->count = count, blocks->extent[0].at = UINT64_MAX - 4095;
        CHECK(w, !par__arena_alloc(world, 1, 64, 0) && says(w, "a block at"));
        blocks->extent[0].at = at, a->lock = 12345;
        CHECK(w, !par__arena_alloc(world, 1, 64, 0) && says(w, "a lock of rank"));
        a->lock = 0;
    }
    CHECK_OK(w, par_barrier(w));
}

// ---- memory that another process has written into
//
// A rank overwrites parts of its shared memory with random bytes, between calls and during them. The others
// may get an error, a timeout or wrong numbers; they must not crash, hang or allocate gigabytes.

enum { SCRIBBLE_SEEDS = 12, SCRIBBLE_RANKS = 3 };
static void scribble_crashed(int signal) {
    __atomic_add_fetch(&test_shared->failures, 1, __ATOMIC_SEQ_CST);
    _exit(128 + signal);
}
static uint64_t scribble_draw(uint64_t seed, uint64_t *at, uint64_t limit) {
    return par_random(seed, 77, (*at)++) % limit;
}
static void scribble(par_comm *c, uint64_t seed, uint64_t *at) {
    const par__world *w = c->world;
    const int has_rings = par__find_rings(c, 1); // 0: scribbled over
    par__arena *a = w->arena;
    char *const part[] = {(char *)a,
                          (char *)par__extents_of(a, 0),
                          (char *)&a->ranks[0],
                          (char *)&a->ranks[0].record_count,
                          par__shared_site(w, 0, 0),
                          (char *)c->board,
                          (char *)c->board->arrivals,
                          (char *)c->rings,
                          has_rings ? c->first_ring : (char *)c->rings};
    const size_t stride = par__ring_stride(c->ring_count), rings = (size_t)(c->ring_count * c->ring_count);
    const size_t bytes[] = {offsetof(par__arena, tables),
                            256,
                            sizeof(par__rank_control) * SCRIBBLE_RANKS,
                            1024,
                            4096,
                            offsetof(par__board, arrivals),
                            sizeof(par__arrivals) * SCRIBBLE_RANKS,
                            64,
                            sizeof(par__ring) + 256};
    const size_t which = (size_t)scribble_draw(seed, at, 10 * sizeof part / sizeof *part) % 9;
    const uint64_t how = scribble_draw(seed, at, 4);
    char *to = part[which] + scribble_draw(seed, at, bytes[which]) / 4 * 4;
    if (which == 8 && has_rings) to += scribble_draw(seed, at, rings) * stride;
    for (uint64_t n = 4 << scribble_draw(seed, at, 6); n; n--, to++)
        __atomic_store_n(to,
                         (char)(how == 0   ? 0
                                : how == 1 ? 255
                                           : scribble_draw(seed, at, 256)),
                         __ATOMIC_RELAXED);
}
static par_result scribble_call(par_comm *c, int kind, float *x, float *y) {
    const int next = (par_rank(c) + 1) % par_size(c), last = (par_rank(c) + par_size(c) - 1) % par_size(c);
    const size_t counts[SCRIBBLE_RANKS] = {300, 5000, 1};
    par_comm *half;
    par_result r;
    double offset;
    switch (kind) {
    case 0: return par_all_reduce(x, y, 2, PAR_F32, PAR_SUM, c);
    case 1: return par_all_reduce(x, y, 30000, PAR_F32, PAR_SUM, c);
    case 2: return par_sendrecv(x, 100, next, y, 100, last, PAR_F32, c);
    case 3: return par_sendrecv(x, 30000, next, y, 30000, last, PAR_F32, c);
    case 4: return par_broadcast(x, y, 20000, PAR_F32, 1, c);
    case 5: return par_gatherv(x, counts[par_rank(c)], y, counts, NULL, PAR_F32, 0, c);
    case 6: return par_all_to_all(x, y, 5000, PAR_F32, c);
    case 7: return par_reduce(x, y, 3000, PAR_F32, PAR_SUM, 2, c);
    case 8: r = par_split(c, par_rank(c) & 1, 0, &half); return r ? r : par_close(half);
    case 9: return par_clock_offset(c, &offset, NULL);
    default: {
        float *z = (float *)par_alloc(c, 100000);
        if (!z) return PAR_ERR_MEMORY;
        r = par_all_reduce(z, z, 20000, PAR_F32, PAR_SUM, c);
        return r ? r : par_free(c, z);
    }
    }
}
static void scribble_run(const par__world *old,
                         uint64_t seed) { // one run of all ranks, in processes of their own
    const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    static float x[60000], y[60000];
    par_desc d;
    par_comm *c;
    uint64_t at = 0, mine = 1u << 20;
    const int quiet = open("/dev/null", O_WRONLY);
    dup2(quiet, 2);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], scribble_crashed);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const struct rlimit limit = {(rlim_t)3 << 30, (rlim_t)3 << 30};
    munmap(old->base, old->arena_bytes);
    setrlimit(RLIMIT_AS, &limit); // the same limit for each process of this run
#else
    (void)old; // sanitizers need the address space
#endif
    memset(&d, 0, sizeof d);
    d.rank_count = SCRIBBLE_RANKS, d.node_ranks = (int)(seed % 3), d.run_again = -1;
    d.arena_bytes = (size_t)64 << 20;
    if (par_open(&d, &c)) _exit(1);
    par_set_timeout(c, 0.2);
    mine += (uint64_t)par_rank(c);
    for (int i = 0; i < 40; i++) {
        const int kind = (int)scribble_draw(seed, &at, 11);
        if (i > 4 && par_rank(c) == (int)(seed % SCRIBBLE_RANKS)) scribble(c, seed, &mine);
        if (scribble_call(c, kind, x, y)) break;
    }
    FILE *f = fopen("/dev/null", "w");
    par_recorder_print(c, f), par_ledger_print(c, f);
    par_close(c);
    _exit(0);
}
static void scribbled(par_comm *w) {
    const uint64_t first = getenv("PAR_TEST_SEED") ? strtoull(getenv("PAR_TEST_SEED"), NULL, 10) : 1;
    pid_t run[SCRIBBLE_SEEDS];
    for (uint64_t i = 0; i < SCRIBBLE_SEEDS; i++)
        if ((run[i] = test_fork()) == 0) scribble_run(w->world, first + i);
    for (int i = 0; i < SCRIBBLE_SEEDS; i++) {
        int status = 0, exited = 0;
        const double until = test_now() + 100; // a hundred deadlines
        while (!(exited = waitpid(run[i], &status, WNOHANG) == run[i]) && test_now() < until) usleep(2000);
        if (!exited) kill(run[i], SIGKILL), waitpid(run[i], &status, 0);
        CHECK(w, exited && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (!exited || status)
            fprintf(stderr, "seed %llu: status %x\n", (unsigned long long)first + (unsigned)i, status);
    }
}

// ---- comms that are closed

static uint64_t blocks_in_use(par_comm *w) { // of this rank's arena, when all ranks are here
    CHECK_OK(w, par_barrier(w));
    const uint64_t n = par__extents_of(w->world->arena, 0)->count;
    CHECK_OK(w, par_barrier(w));
    return n;
}
// Ranks close comms in orders of their own, and before a message by which a peer comes to its own close.
static void closed_apart(par_comm *w) {
    enum { COMMS = 5 };
    const int n = par_size(w), me = par_rank(w);
    par_comm *c[COMMS];
    int x = 1, y;
    CHECK_OK(w, par_sendrecv(&x, 1, me, &y, 1, me, PAR_I32, w)); // makes the rings
    const uint64_t before = blocks_in_use(w);
    for (int i = 0; i < COMMS; i++) {
        CHECK_OK(w, par_split(w, 0, i & 1 ? me : -me, &c[i]));
        CHECK_OK(w, par_all_reduce(&x, &y, 1, PAR_I32, PAR_SUM, c[i]));
        CHECK(w, y == n);
        CHECK_OK(w, par_send(&me, 1, PAR_I32, (par_rank(c[i]) + 1) % n, c[i]));
    }
    for (int i = 0; i < COMMS; i++) { // what its peers sent is there when they have closed it
        par_comm *const mine = c[(i * (me & 1 ? 1 : COMMS - 1) + me) % COMMS];
        CHECK_OK(w, par_recv(&y, 1, PAR_I32, (par_rank(mine) + n - 1) % n, mine));
        CHECK(w, y == (par_world_rank(mine, 0) ? me + 1 : me + n - 1) % n);
        CHECK_OK(w, par_close(mine));
    }
    CHECK_OK(w, par_split(w, 0, me, &c[0]));
    if (me) CHECK_OK(w, par_recv(&x, 1, PAR_I32, me - 1, w));
    CHECK_OK(w, par_close(c[0]));
    if (me < n - 1) CHECK_OK(w, par_send(&x, 1, PAR_I32, me + 1, w));
    CHECK(w, blocks_in_use(w) == before && !w->world->closed);
}

// What was begun goes on after par_close, and can be waited for: collectives, messages, a group, a neighbor
// exchange. Then nothing of the comm is left.
static void closed_begun(par_comm *w) {
    enum { N = 60000, CALLS = 7 };
    const int n = par_size(w), me = par_rank(w), peers[2] = {(me + 1) % n, (me + n - 1) % n};
    const size_t counts[2] = {N, N};
    const uint64_t before = blocks_in_use(w);
    float *x = (float *)malloc((2 + 2 * CALLS) * N * sizeof *x), *y[CALLS];
    for (int i = 0; i < CALLS; i++) y[i] = x + (2 + 2 * i) * N;
    for (int round = 0; round < 3; round++) {
        const size_t count = round ? N : 2;
        par_comm *c;
        par_request q[CALLS], within, copy;
        par_neighbors *h;
        for (int i = 0; i < 2 * N; i++) x[i] = (float)(me + 1);
        CHECK_OK(w, par_split(w, 0, me, &c));
        CHECK_OK(w, par_neighbors_open(c, 2, peers, NULL, &h));
        CHECK_OK(w, par_all_reduce_begin(x, y[0], count, PAR_F32, PAR_SUM, c, &q[0]));
        CHECK_OK(w, par_recv_begin(y[1], count, PAR_F32, peers[1], c, &q[1]));
        CHECK_OK(w, par_send_begin(x, count, PAR_F32, peers[0], c, &q[2]));
        CHECK_OK(w, par_all_reduce_begin(x, y[3], count, PAR_F32, PAR_SUM, c, &q[3]));
        CHECK_OK(w, par_all_reduce_begin(x, y[4], 1, PAR_F32, PAR_SUM, c, &q[4]));
        CHECK_OK(w, par_group_begin(c));
        CHECK_OK(w, par_all_reduce_begin(x, y[5], 2, PAR_F32, PAR_SUM, c, &within));
        CHECK_OK(w, par_all_reduce_begin(x, y[5], count, PAR_F32, PAR_SUM, c, &within));
        CHECK_OK(w, par_group_end_begin(c, &q[5]));
        CHECK_OK(w, par_neighbor_exchange_begin(x, counts, NULL, y[6], counts, NULL, PAR_F32, h, &q[6]));
        if ((me + round) % 2) CHECK_OK(w, par_neighbors_close(h));
        CHECK_OK(w, par_close(c));
        if ((me + round) % 2 == 0) CHECK_OK(w, par_neighbors_close(h));
        if (me == 0) usleep(30000);                // the others check meanwhile whether it will come
        if (round) CHECK_OK(w, par_wait(&within)); // the group's own request stands
        for (int i = 0, done = 0; i < CALLS; i++) {
            par_request *const mine = &q[(me & 1 ? i : CALLS - 1 - i)];
            copy = within;
            if (mine == &q[5]) CHECK_OK(w, par_wait(&copy)); // the group has not been waited for
            for (done = 0; round == 2 && !done; sched_yield()) CHECK_OK(w, par_test(mine, &done));
            CHECK_OK(w, par_wait(mine));
        }
        if (round) CHECK(w, !within.operation && par_wait(&within) == PAR_OK);
        const float sum = (float)(n * (n + 1) / 2), from = (float)(peers[1] + 1);
        CHECK(w, y[0][count - 1] == sum && y[1][count - 1] == from && y[3][count - 1] == sum);
        CHECK(w, y[4][0] == sum && y[5][count - 1] == sum && y[6][2 * N - 1] == from);
        CHECK(w, y[6][0] == (float)(peers[0] + 1));
        CHECK(w, blocks_in_use(w) == before && !w->world->closed);
    }
    free(x);
}

// A rank that waits on a comm for a rank of its node that has closed it hears of that at once. What had been
// sent before is there.
enum { WAIT_SUM, WAIT_BEGUN, WAIT_SEND, WAIT_RECV, WAIT_GROUP, WAIT_HALO, WAIT_SIGNAL, WAIT_KINDS };
static par_result wait_closed(par_comm *c, int kind, par_neighbors *h, uint64_t *word) {
    static __thread float x[100000], y[2];
    const size_t one = 1;
    par_request q[2];
    par_result r = PAR_OK;
    switch (kind) {
    case WAIT_SUM: return par_all_reduce(x, y, 2, PAR_F32, PAR_SUM, c);
    case WAIT_BEGUN: // the one that is waited for is behind another one
        for (int i = 0; i < 2 && !r; i++) r = par_all_reduce_begin(x, y, 2, PAR_F32, PAR_SUM, c, &q[i]);
        return r ? r : par_wait(&q[1]);
    case WAIT_SEND: return par_send(x, 100000, PAR_F32, 0, c);
    case WAIT_RECV: return par_recv(y, 1, PAR_F32, 0, c);
    case WAIT_GROUP:
        r = par_group_begin(c);
        if (!r) r = par_send(x, 1, PAR_F32, par_rank(c), c); // which ends at once
        if (!r) r = par_recv(y, 1, PAR_F32, par_rank(c), c);
        if (!r) r = par_recv(y, 1, PAR_F32, 0, c);
        return r ? r : par_group_end(c);
    case WAIT_HALO: return par_neighbor_exchange(x, &one, NULL, y, &one, NULL, PAR_F32, h);
    default: return par_wait_signal(word, 2, c);
    }
}
static void closed_waited(par_comm *w) {
    enum { SENT = 20 };
    static const char *const in[WAIT_KINDS] = {"all_reduce", "all_reduce",        "send",       "recv",
                                               "recv",       "neighbor_exchange", "wait_signal"};
    const int me = par_rank(w), peer = !me;
    for (int kind = 0; kind < WAIT_KINDS; kind++) {
        const int waits = me && par_node_of(w, me) == par_node_of(w, 0) && (kind < WAIT_GROUP || me == 1);
        par_neighbors *h = NULL;
        par_comm *c;
        char text[100];
        int got = 0;
        CHECK_OK(w, par_split(w, 0, me, &c));
        CHECK_OK(w, par_neighbors_open(c, me < 2, &peer, NULL, &h));
        uint64_t *word = (uint64_t *)par_alloc(c, sizeof *word);
        for (int i = 0; i < SENT && me == 0; i++) CHECK_OK(w, par_send(&i, 1, PAR_I32, 1, c));
        if (me == 0 && par_node_of(w, 1) == par_node_of(w, 0)) CHECK_OK(w, par_signal(word, 1, 1, c));
        CHECK_OK(w, waits ? par_barrier(w) : par_neighbors_close(h));
        const int line = __LINE__ + 1;
        CHECK_OK(w, waits ? PAR_OK : par_close(c));
        CHECK_OK(w, waits ? PAR_OK : par_barrier(w));
        for (int i = 0; i < SENT && me == 1 && waits; i++)
            CHECK(w, par_recv(&got, 1, PAR_I32, 0, c) == PAR_OK && got == i);
        const double start = test_now();
        if (!waits) continue;
        if (me == 1 && kind == WAIT_SIGNAL) CHECK_OK(w, par_wait_signal(word, 1, c));
        CHECK(w, wait_closed(c, kind, h, word) == PAR_ERR_MISMATCH && test_now() - start < 30);
        snprintf(text, sizeof text, "has closed the comm at tests/test_par.c:%d",
                 kind == WAIT_HALO ? line - 2 : line);
        CHECK(w, says(w, text) && says(w, in[kind]) && says(w, "for rank 0, which"));
        CHECK_OK(w, par_neighbors_close(h));
        CHECK_OK(w, par_close(c));
    }
    CHECK_OK(w, par_barrier(w));
    CHECK(w, !w->world->closed);
}

static void closed_broken(par_comm *w) { // one that closes it after an error hands that on
    par_comm *c;
    int x = 0;
    CHECK_OK(w, par_split(w, 0, par_rank(w), &c));
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == 0) {
        par_set_timeout(w, 0.06);
        CHECK(w, par_recv(&x, 1, PAR_I32, 1, c) == PAR_ERR_TIMEOUT);
        par_set_timeout(w, 1000);
    }
    const double start = test_now();
    if (par_rank(w) == 1 && par_node_of(w, 0) == par_node_of(w, 1))
        CHECK(w, par_recv(&x, 1, PAR_I32, 0, c) == PAR_ERR_TIMEOUT && says(w, "rank 0 waited "));
    CHECK(w, test_now() - start < 30);
    CHECK_OK(w, par_close(c));
    CHECK_OK(w, par_barrier(w));
    CHECK(w, !w->world->closed);
}

// A program that waits for nothing: its collectives have ended when the world is closed, and a message that
// its peer never received is an error there.
enum { LEFT_BEHIND = 100000 };
static __thread float left_behind[2][LEFT_BEHIND];
static int leaves_behind(par_comm *w, void *user) {
    par_request q;
    par_comm *c;
    (void)user;
    for (int i = 0; i < LEFT_BEHIND; i++) left_behind[0][i] = 1;
    CHECK_OK(w, par_split(w, 0, 0, &c));
    if (par_rank(w) == 0)
        CHECK_OK(w, par_send_begin(left_behind[0], LEFT_BEHIND, PAR_F32, par_size(w) - 1, c, &q));
    CHECK_OK(w, par_all_reduce_begin(left_behind[0], left_behind[1], LEFT_BEHIND, PAR_F32, PAR_SUM, c, &q));
    CHECK_OK(w, par_close(c));
    return 0;
}
static void never_waited(par_comm *w) {
    enum { RANKS = 3 };
    for (int node = 0; node <= 2; node++) {
        const pid_t child = test_fork();
        int status = -1;
        if (child == 0) {
            par_desc d;
            par_comm *world;
            memset(&d, 0, sizeof d);
            d.rank_count = RANKS, d.node_ranks = node, d.run_again = -1;
            dup2(open("/dev/null", O_WRONLY), 2);
            if (par_open(&d, &world)) _exit(1);
            const par_result want = par_rank(world) ? PAR_OK : PAR_ERR_ARGUMENT;
            leaves_behind(world, NULL);
            _exit(par_close(world) != want || left_behind[1][LEFT_BEHIND - 1] != RANKS);
        }
        CHECK(w, waitpid(child, &status, 0) == child && status == 0);
    }
    const par_desc threads = test_ranks(RANKS);
    CHECK(w, par_run_threads(&threads, leaves_behind, NULL) == PAR_ERR_ARGUMENT);
}
static void forgotten(par_comm *w) {  // a receive without a matching send does not prevent closing
    const int last = par_size(w) - 1; // of another node, where there is one
    par_comm *c;
    par_request q;
    int x;
    CHECK_OK(w, par_split(w, 0, 0, &c));
    if (par_rank(w) == 0) CHECK_OK(w, par_recv_begin(&x, 1, PAR_I32, last, c, &q));
    CHECK_OK(w, par_close(c));
    CHECK_OK(w, par_barrier(w));
    CHECK(w, !w->world->closed == (par_rank(w) > 0));
}
static void killed_open(par_comm *w) { // a rank that died while its comms were open: the others close theirs
    const int victim = par_size(w) - 1;
    par_comm *c;
    CHECK_OK(w, par_split(w, 0, 0, &c));
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == victim) {
        test_wait_for(&test_shared->words, victim);
        raise(SIGKILL);
    }
    test_arrive(&test_shared->words);
    while (par_alive(w) == PAR_OK) usleep(200);
    CHECK_OK(w, par_close(c));
    CHECK(w, big_sum(w) == PAR_ERR_PEER_DIED);
}

static void aborted(par_comm *w) {
    const int n = par_size(w), me = par_rank(w), right = (me + 1) % n, left = (me + n - 1) % n;
    int x = 0;
    CHECK_OK(w, par_sendrecv(&me, 1, right, &x, 1, left, PAR_I32, w)); // makes the rings
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == 0) {
        test_wait_for(&test_shared->words, par_size(w) - 1);
        CHECK_OK(w, par_abort(w, "the data is wrong"));
        return;
    }
    test_arrive(&test_shared->words);
    CHECK(w, big_sum(w) == PAR_ERR_ABORTED && says(w, "the data is wrong"));
    CHECK(w, par_send(&me, 1, PAR_I32, right, w) == PAR_ERR_ABORTED);
    CHECK(w, par_recv(&x, 1, PAR_I32, left, w) == PAR_ERR_ABORTED);
}

static void no_leaks(par_comm *w) { // comms and blocks are freed, whoever closes them last
    enum { KEPT = 4 };
    const uint64_t before = blocks_in_use(w);
    par_comm *kept[KEPT] = {NULL};
    for (int i = 0; i < 400; i++) { // each rank closes them in an order of its own
        par_comm *c;
        CHECK_OK(w, par_split(w, 0, 0, &c));
        void *p = i % 4 ? NULL : par_alloc(c, 100000);
        CHECK(w, i % 4 || p != NULL);
        CHECK_OK(w, par_free(c, i % 8 ? p : NULL)); // what is left goes with the comm
        par_comm **place = &kept[(i / KEPT * par_rank(w) + i) % KEPT];
        CHECK_OK(w, par_close(*place));
        *place = c;
    }
    for (int i = 0; i < KEPT; i++) CHECK_OK(w, par_close(kept[i]));
    CHECK(w, blocks_in_use(w) == before && !w->world->closed);
}

// ---- tests of one rank ------------------------------------------------------------------------------------

static void random_numbers(par_comm *w) { // the known answers of the Random123 distribution
    const uint32_t zero[4] = {0, 0, 0, 0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    const uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   pi_key[2] = {0xa4093822, 0x299f31d0};
    const uint32_t want[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    uint32_t out[4];
    par_philox(zero, zero, out);
    CHECK(w, !memcmp(out, want[0], 16));
    par_philox(ones, ones, out);
    CHECK(w, !memcmp(out, want[1], 16));
    par_philox(pi, pi_key, out);
    CHECK(w, !memcmp(out, want[2], 16));
    double mean = 0, square = 0, uniform = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        const double x = (double)par_normal(1, 2, i), u = (double)par_uniform(1, 2, i);
        mean += x, square += x * x, uniform += u;
        if (u < 0 || u >= 1) CHECK(w, 0);
    }
    CHECK(w, fabs(mean / 1e5) < 0.02 && fabs(square / 1e5 - 1) < 0.03 && fabs(uniform / 1e5 - 0.5) < 0.01);
}

#if PAR__X86
static const par__random_loops *const random_sets[] = {&par__random_loops_base, &par__random_loops_avx2,
                                                       &par__random_loops_avx512};
#else
static const par__random_loops *const random_sets[] = {&par__random_loops_base};
#endif
static int usable_sets(void);
// Every instruction set has par_normal's bits, which are the C library's to a unit in the last place.
static void normals(par_comm *w) {
    static const uint64_t firsts[] = {0, 7, ((uint64_t)1 << 32) - 500};
    static const uint32_t edges[] = {0,          1,          0x3fffffff, 0x40000000, 0x40000001, 0x7fffffff,
                                     0x80000000, 0x80000001, 0xbfffffff, 0xc0000000, 0xc0000001, 0xffffffff};
    float x[1000];
    size_t wrong = 0;
    for (size_t k = 0; k < 3; k++)
        for (size_t n = 1; n <= 1000; n = n * 10 - n / 10) {
            par_normals(k + 1, 2 - k, firsts[k], n, x);
            for (size_t i = 0; i < n; i++) wrong += x[i] != par_normal(k + 1, 2 - k, firsts[k] + i);
        }
    CHECK(w, !wrong);
    for (int set = 0; set < usable_sets(); set++)
        for (uint64_t block = 0; block < 200; block++) {
            enum { N = PAR__PHILOX_BLOCKS };
            uint32_t words[4 * N], want[4];
            float y[N], base[N];
            random_sets[set]->blocks(words, 3ull << block % 60, block, block << 30, N);
            for (size_t i = 0; i < N; i++) {
                par__philox_at(3ull << block % 60, block, (block << 30) + i, want);
                wrong += memcmp(words + 4 * i, want, sizeof want) != 0;
                if (block < 4) words[4 * i] = edges[i % 12]; // extreme numbers, in every pair
                if (block < 4) words[4 * i + 1] = edges[(i / 12 + 6 * (block % 2)) % 12];
            }
            random_sets[set]->normals(y, words);
            random_sets[0]->normals(base, words);
            wrong += memcmp(y, base, sizeof y) != 0;
            for (size_t i = 0; i < N; i++) {
                const double u = ((double)words[4 * i] + 0.5) * 0x1p-32, v = words[4 * i + 1] * 0x1p-32;
                const double want = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
                wrong += !(fabs((double)y[i] - want) <= fabs(want) * 0x1.001p-24 + 0x1p-149);
            }
        }
    CHECK(w, !wrong);
}

// The worst error of a function of doubles in units of the last place of a float, for all floats in [first,
// last], given by their bits, or (without SOAK=1) for one in `stride` of them.
static double worst_error(double (*kit)(double), double (*library)(double), uint32_t first, uint32_t last) {
    const uint32_t stride = getenv("SOAK") ? 1 : 4099;
    double worst = 0;
    for (uint64_t bits = first; bits <= last; bits += stride) {
        const double x = (double)par__bits_to_f32((uint32_t)bits), want = library(x);
        const double error = fabs(kit(x) - want) / fabs(want) * 0x1p24;
        if (!(error <= worst)) worst = error; // NaN, too
    }
    return worst;
}
static double kit_exp(double x) { return par__exp(x); }
static double kit_log(double x) { return par__log(x); }
static double kit_cos(double x) { return par__cos(x); }
static double kit_sin(double x) { return par__sin(x); }
// The kit's own functions against the C library's: a double's last places, far below those of a float.
static void functions(par_comm *w) {
    const uint32_t minus = 0x80000000, tiny = 0x20000000, turns = 0x49800000; // 2^-63, 2^20
    const double allowed = 0x1p-24;
    CHECK(w, worst_error(kit_exp, exp, 0x00000000, 0x44310000) < allowed); // up to 708
    CHECK(w, worst_error(kit_exp, exp, minus, minus | 0x44310000) < allowed);
    CHECK(w, worst_error(kit_log, log, tiny, 0x3f7fffff) < allowed); // below 1
    CHECK(w, worst_error(kit_log, log, 0x3f800001, 0x7f7fffff) < allowed);
    CHECK(w, worst_error(kit_cos, cos, 0x00000000, turns) < allowed);
    CHECK(w, worst_error(kit_sin, sin, 0x00000001, turns) < allowed);
    CHECK(w, worst_error(kit_sin, sin, minus | 1, minus | turns) < allowed);
    CHECK(w, par__log(0) == -INFINITY && par__log(1) == 0 && par__log(INFINITY) == INFINITY);
    CHECK(w, isnan(par__log(NAN)) && isnan(par__exp(NAN)) && isnan(par__cos(NAN)) && isnan(par__sin(NAN)));
    CHECK(w, par__exp(0) == 1 && par__exp(-INFINITY) < 1e-300 && par__power(0.5, 10) == 0x1p-10);
    double worst = 0;
    for (uint64_t n = 1; n < 100000; n += 97)
        worst = PAR__MAX(worst, fabs(par__power(0.999, n) / pow(0.999, (double)n) - 1));
    for (int i = 0; i < 64; i++)
        worst = PAR__MAX(worst, fabs(par__pow(500000, i / -64.0) / pow(500000, i / -64.0) - 1));
    CHECK(w, worst < 1e-10);
}

static void cast_16_bits(par_comm *w) {
    size_t wrong = 0;
    for (unsigned h = 0; h < 65536; h++) { // every f16 converts to f32 and back unchanged
        const float f = par_f16_to_f32((uint16_t)h), b = par_bf16_to_f32((uint16_t)h);
        const unsigned e = h >> 10 & 31, m = h & 1023;
        const double want =
            (e ? ldexp(1.0 + m / 1024.0, (int)e - 15) : ldexp(m / 1024.0, -14)) * (h & 0x8000 ? -1 : 1);
        if (e == 31)
            wrong += m ? !isnan(f) : !isinf(f);
        else
            wrong += (double)f != want;
        if (!isnan(f)) wrong += par_f32_to_f16(f) != h;
        if (!isnan(b)) wrong += par_f32_to_bf16(b) != h;
        if (isnan(b)) wrong += !isnan(par_bf16_to_f32(par_f32_to_bf16(b)));
    }
    CHECK(w, !wrong);
    for (unsigned h = 0; h < 0x7bff; h++) { // halfway between two f16s: round to even
        const float low = par_f16_to_f32((uint16_t)h), high = par_f16_to_f32((uint16_t)(h + 1)),
                    mid = low + (high - low) / 2;
        wrong += par_f32_to_f16(mid) != (h & 1 ? h + 1 : h);
        wrong += par_f32_to_f16(nextafterf(mid, 1e9f)) != h + 1 || par_f32_to_f16(nextafterf(mid, 0)) != h;
    }
    CHECK(w, !wrong && par_f32_to_f16(65519.0f) == 0x7bff && par_f32_to_f16(65520.0f) == 0x7c00);
}
static void cast_many(par_comm *w) { // elements in one call: the bits of a call for each
    enum { N = 1100 };
    size_t wrong = 0;
    static char from[N * 8], together[N * 8], one[8];
    for (size_t i = 0; i < N; i++) {
        const uint64_t bits = par_random(7, 7, i) * 0x9e3779b97f4a7c15u;
        memcpy(from + i * 8, &bits, 8);
    }
    for (int st = 0; st < PAR_DTYPE_COUNT; st++)
        for (int dt = 0; dt < PAR_DTYPE_COUNT; dt++) {
            const size_t a = par_dtype_bytes((par_dtype)st), b = par_dtype_bytes((par_dtype)dt);
            CHECK_OK(w, par_cast(together, (par_dtype)dt, from, (par_dtype)st, N));
            for (size_t i = 0; i < N; i++) {
                CHECK_OK(w, par_cast(one, (par_dtype)dt, from + i * a, (par_dtype)st, 1));
                wrong += memcmp(one, together + i * b, b) != 0;
            }
        }
    CHECK(w, !wrong);
}
static void casts(par_comm *w) {
    size_t wrong = 0;
    cast_16_bits(w);
    cast_many(w);
    const double d[6] = {1e300, -1e300, NAN, 300.7, -5.9, 1.00048828125000022};
    int8_t i8[6];
    uint8_t u8[6];
    uint16_t f16[6];
    int64_t i64[6];
    uint64_t u64[6];
    CHECK_OK(w, par_cast(i8, PAR_I8, d, PAR_F64, 6));
    CHECK(w, i8[0] == 127 && i8[1] == -128 && i8[2] == 0 && i8[3] == 127 && i8[4] == -5);
    CHECK_OK(w, par_cast(u8, PAR_U8, d, PAR_F64, 6));
    CHECK(w, u8[0] == 255 && u8[1] == 0 && u8[3] == 255 && u8[4] == 0);
    CHECK_OK(w, par_cast(i64, PAR_I64, d, PAR_F64, 6));
    CHECK_OK(w, par_cast(u64, PAR_U64, d, PAR_F64, 6));
    CHECK(w, i64[0] == INT64_MAX && i64[1] == INT64_MIN && i64[2] == 0 && u64[0] == UINT64_MAX &&
                 u64[1] == 0 && u64[3] == 300);
    CHECK_OK(w, par_cast(f16, PAR_F16, d, PAR_F64, 6));
    CHECK(w, f16[0] == 0x7c00 &&
                 f16[5] == 0x3c01); // just above a midpoint: rounding by way of f32 would give 3c00
    int32_t minus = -1;
    CHECK_OK(w, par_cast(u64, PAR_U64, &minus, PAR_I32, 1));
    CHECK(w, u64[0] == UINT64_MAX);
    CHECK(w, par_cast(u64, (par_dtype)55, &minus, PAR_I32, 1) == PAR_ERR_ARGUMENT);
    float many[1000], back[1000];
    uint16_t half[1000];
    for (int i = 0; i < 1000; i++) many[i] = (float)i * 0.37f - 100;
    CHECK_OK(w, par_cast(half, PAR_BF16, many, PAR_F32, 1000));
    CHECK_OK(w, par_cast(back, PAR_F32, half, PAR_BF16, 1000));
    for (int i = 0; i < 1000; i++)
        wrong += half[i] != par_f32_to_bf16(many[i]) ||
                 !(fabsf(back[i] - many[i]) <= fabsf(many[i]) / 256 + 1e-6f);
    CHECK(w, !wrong);
}

#if PAR__X86
static const par__kernels *const kernel_sets[] = {&par__kernels_base, &par__kernels_avx2,
                                                  &par__kernels_avx512};
static int usable_sets(void) {
    return par__pick_kernels() == kernel_sets[2] ? 3 : par__pick_kernels() == kernel_sets[1] ? 2 : 1;
}
#else
static const par__kernels *const kernel_sets[] = {&par__kernels_base};
static int usable_sets(void) { return 1; }
#endif
static void kernels_agree(par_comm *w) { // every instruction set gives the same bits
    static float a[3][5008] __attribute__((aligned(64))), x[2][5008] __attribute__((aligned(64)));
    size_t wrong = 0;
    for (size_t i = 0; i < 5003; i++) x[0][i] = rough(1, i), x[1][i] = rough(2, i);
    for (int d = 0; d < PAR_DTYPE_COUNT; d++)
        for (par_op op = 0; op < 5; op++)
            for (size_t c = 0; c < 2501; c += c < 70 ? 1 : 405)
                for (int s = 0; s < usable_sets(); s++) {
                    const size_t e = par_dtype_bytes((par_dtype)d);
                    const void *in[2] = {x[0], x[1]};
                    void *out = a[s];
                    memset(a[s], 0, sizeof a[s]);
                    par__reduce_sources(kernel_sets[s], &out, 1, NULL, in, 2, c, (par_dtype)d, op, 2, 0);
                    for (size_t i = 0; i < c && memcmp(a[s], a[0], sizeof a[0]);
                         i++) { // NaNs' bits may differ
                        const int same = !memcmp((char *)a[s] + i * e, (char *)a[0] + i * e, e);
                        wrong += !same && !(is_float((par_dtype)d) && isnan(get(a[s], (par_dtype)d, i)) &&
                                            isnan(get(a[0], (par_dtype)d, i)));
                    }
                    wrong += memcmp((char *)a[s] + c * e, (char *)a[0] + c * e, sizeof a[0] - c * e) != 0;
                    if (wrong)
                        fprintf(stderr, "set %d, %s, %s\n", s, par_dtype_name((par_dtype)d), par_op_name(op));
                    CHECK(w, !wrong);
                }
}

// 8-bit floats against a second implementation: all codes, and the nearest of them for many values.
typedef struct f8_format {
    par_dtype dtype;
    int exponent_bits, mantissa_bits, has_infinity; // without infinities, only the code of all ones is NaN
} f8_format;
static const f8_format f8_formats[] = {{PAR_F8_E4M3, 4, 3, 0}, {PAR_F8_E5M2, 5, 2, 1}};
enum { F8_FORMATS = sizeof f8_formats / sizeof f8_formats[0] };

static double f8_value(const f8_format *f, unsigned code) {
    const int m = f->mantissa_bits, bias = (1 << (f->exponent_bits - 1)) - 1;
    const int exponent = (int)(code & 0x7f) >> m, fraction = (int)code & ((1 << m) - 1);
    const int top = exponent == (1 << f->exponent_bits) - 1;
    const double sign = code & 0x80 ? -1 : 1;
    if (top && f->has_infinity) return fraction ? NAN : sign * INFINITY;
    if (top && fraction == (1 << m) - 1) return NAN;
    return sign * ldexp(fraction + (exponent ? 1 << m : 0), (exponent ? exponent : 1) - bias - m);
}
static unsigned f8_largest(const f8_format *f) {
    unsigned code = 0x7f;
    while (!isfinite(f8_value(f, code))) code--;
    return code;
}
// The nearest finite code of a number; of two, the even one.
static unsigned f8_nearest(const f8_format *f, double x) {
    unsigned low = 0, high = f8_largest(f);
    const double size = fabs(x);
    while (low + 1 < high) {
        const unsigned middle = (low + high) / 2;
        if (f8_value(f, middle) <= size)
            low = middle;
        else
            high = middle;
    }
    const double down = size - f8_value(f, low), up = f8_value(f, high) - size;
    return (down < up || (down == up && low % 2 == 0) ? low : high) | (signbit(x) ? 0x80u : 0);
}
static int f8_is(const f8_format *f, unsigned code, double x) { // what x is to become
    return isnan(x) ? isnan(f8_value(f, code)) : code == f8_nearest(f, x);
}
static size_t f8_wrong(const f8_format *f, const float *x, size_t n) { // by all kernels, and from f64
    static uint8_t code[1 << 16];
    size_t wrong = 0;
    for (int s = 0; s < usable_sets(); s++) {
        kernel_sets[s]->of[f->dtype].narrow(code, x, n);
        for (size_t i = 0; i < n; i++) wrong += !f8_is(f, code[i], (double)x[i]);
    }
    for (size_t i = 0; i < n; i += 7) {
        const double wide = (double)x[i];
        put(code, f->dtype, 0, wide);
        wrong += !f8_is(f, code[0], wide);
    }
    return wrong;
}
static void f8_codes(par_comm *w, const f8_format *f) {
    float x[256], between[6 * 128];
    uint8_t code[256];
    size_t wrong = 0, n = 0;
    for (unsigned c = 0; c < 256; c++) code[c] = (uint8_t)c;
    for (int s = 0; s < usable_sets(); s++) {
        kernel_sets[s]->of[f->dtype].widen(x, code, 256);
        for (unsigned c = 0; c < 256; c++) {
            const double want = f8_value(f, c);
            wrong += isnan(want) ? !isnan(x[c]) : (double)x[c] != want || !signbit(x[c]) != !signbit(want);
        }
    }
    CHECK(w, !wrong && par_dtype_traits_of(f->dtype)->max == f8_value(f, f8_largest(f)));
    for (unsigned c = 0; c < f8_largest(f); c++) { // halfway between two codes, and next to it
        const double half = (f8_value(f, c) + f8_value(f, c + 1)) / 2;
        for (int sign = -1; sign < 2; sign += 2) {
            between[n++] = (float)(half * sign), between[n++] = (float)half * (float)sign * 1.0000001f,
            between[n++] = nextafterf((float)half, 0) * (float)sign;
            put(code, f->dtype, 0, half * sign * (1 + 1e-15)); // f32 would round it to the half
            wrong += code[0] != (c + 1) + (sign < 0 ? 0x80u : 0);
        }
    }
    CHECK(w, !wrong && !f8_wrong(f, between, n));
}
static void eight_bit_floats(par_comm *w) {
    static float x[1 << 16];
    for (int k = 0; k < F8_FORMATS; k++) {
        f8_codes(w, &f8_formats[k]);
        for (uint32_t low = 0; low < 5; low++) { // every sign, exponent and 7 bits of mantissa
            static const uint32_t ends[] = {0, 1, 0x7fff, 0x8000, 0xffff};
            for (uint32_t high = 0; high < 1 << 16; high++) {
                const uint32_t bits = high << 16 | ends[low];
                memcpy(&x[high], &bits, sizeof bits);
            }
            CHECK(w, !f8_wrong(&f8_formats[k], x, 1 << 16));
        }
        int described = 0;
        for (int d = 0; d < PAR_DTYPE_COUNT; d++)
            described += is_float((par_dtype)d) && par_dtype_bytes((par_dtype)d) == 1;
        CHECK(w, described == F8_FORMATS);
    }
}

// Every way to write a result: to one or several places, through the caches or past them, aligned or not.
static void kernels_write(par_comm *w) {
    static double a[5][3000] __attribute__((aligned(64))), x[3][3000] __attribute__((aligned(64)));
    for (int s = 0; s < usable_sets(); s++)
        for (int d = 0; d < PAR_DTYPE_COUNT; d++)
            for (size_t c = 1; c < 2900; c = c * 3 + 1)
                for (int outs = 1; outs <= 4; outs++)
                    for (int off = 0; off < 2; off++)
                        for (par_op op = 0; op < PAR_SCALED_SUM; op++) {
                            const size_t e = par_dtype_bytes((par_dtype)d);
                            void *to[4], *want = a[4];
                            const void *in[3] = {x[0], x[1], x[2]};
                            for (int r = 0; r < 3; r++)
                                for (size_t i = 0; i < c; i++)
                                    put(x[r], (par_dtype)d, i, (double)((i * 7 + (size_t)r * 3) % 5));
                            memset(a, 0xCC, sizeof a);
                            for (int o = 0; o < outs; o++)
                                to[o] = (char *)a[o] + (off ? e * (size_t)(o + 1) : 0);
                            par__reduce_sources(kernel_sets[0], &want, 1, NULL, in, 3, c, (par_dtype)d, op, 3,
                                                0);
                            par__reduce_sources(kernel_sets[s], to, outs, NULL, in, 3, c, (par_dtype)d, op, 3,
                                                1);
                            for (int o = 0; o < outs; o++) {
                                CHECK(w, !memcmp(to[o], want, c * e));
                                CHECK(w, ((unsigned char *)to[o])[c * e] == 0xCC);
                            }
                        }
}

static void device(par_comm *w) {
    par_device *d = par_cpu();
    void *p, *event = NULL, *stream;
    CHECK_OK(w, d->alloc(d, 1000, &p));
    CHECK_OK(w, d->fill(d, p, 7, 1000, NULL));
    CHECK_OK(w, d->copy(d, p, (char *)p + 500, 500, NULL));
    CHECK(w, ((char *)p)[499] == 7);
    CHECK_OK(w, d->stream_open(d, &stream));
    CHECK_OK(w, d->event_record(d, stream, &event));
    CHECK_OK(w, d->event_wait(d, stream, event));
    CHECK_OK(w, d->event_sync(d, event));
    CHECK_OK(w, d->event_free(d, event));
    CHECK_OK(w, d->stream_sync(d, stream));
    CHECK_OK(w, d->stream_close(d, stream));
    const float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, c[3] = {100, 200, 300};
    const void *sources[3] = {a, b, c};
    CHECK_OK(w, d->reduce(d, p, sources, 3, 3, PAR_F32, PAR_AVG, NULL));
    CHECK(w, ((float *)p)[2] == 111);
    CHECK(w, d->reduce(d, p, sources, 3, 3, PAR_F32, PAR_SCALED_SUM, NULL) == PAR_ERR_ARGUMENT);
    CHECK(w, d->reduce(d, p, sources, 3, 3, PAR_I32, par_scaled_sum(2), NULL) == PAR_ERR_ARGUMENT);
    CHECK(w, d->reduce(d, p, sources, 3, 3, PAR_F32, PAR_OP_COUNT, NULL) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, d->free(d, p));
    // Many sources: every one of them counts, in every part of the array.
    enum { SOURCES = 8192 + 4095, COUNT = 700 };
    static float one[COUNT], sum[COUNT];
    static const void *many[SOURCES];
    for (int i = 0; i < COUNT; i++) one[i] = (float)(i % 3);
    for (int i = 0; i < SOURCES; i++) many[i] = one;
    for (int n = SOURCES; n > 0; n = n / 2 - 1) {
        CHECK_OK(w, d->reduce(d, sum, many, n, COUNT, PAR_F32, PAR_TREE_SUM, NULL));
        for (int i = 0; i < COUNT; i++) CHECK(w, sum[i] == (float)(n * (i % 3)));
    }
}

// The definition of a canonical product's element: sums of blocks of 256 by fused multiply-adds, in a tree.
static float canonical_sum(const float *a, const float *b, size_t k) {
    float sum = 0;
    if (k <= 256) {
        for (size_t p = 0; p < k; p++) sum = fmaf(a[p], b[p], sum);
        return sum;
    }
    size_t left = 256;
    while (2 * left < k) left *= 2;
    return canonical_sum(a, b, left) + canonical_sum(a + left, b + left, k - left);
}
static void canonical_gemm(par_comm *w) {
    static const size_t shapes[][3] = {{9, 33, 7},      {8, 32, 256}, {5, 40, 257},   {2, 3, 1280},
                                       {17, 1030, 300}, {1030, 3, 5}, {97, 35, 1800}, {13, 35, 3000}};
    const par__gemm_tile *tiles[3] = {&par__canonical_base, NULL, NULL};
#if PAR__X86
    if (par__isa() >= 1) tiles[1] = &par__tiles_avx2;
    if (par__isa() >= 2) tiles[2] = &par__canonical_panels;
#endif
    for (int s = 0; s < 24; s++) {
        const size_t m = shapes[s % 8][0], n = shapes[s % 8][1], k = shapes[s % 8][2], ldc = n + 1;
        const int ta = s & 1, tb = s % 3 != 0;
        const float alpha = s % 5 ? 1 : 0.3f, beta = s % 8 == 1 ? 1 : s % 8 == 6 ? 0.7f : 0;
        float *a = (float *)malloc(m * k * 4), *b = (float *)malloc(n * k * 4),
              *c = (float *)malloc(m * ldc * 4);
        float *x = (float *)malloc(m * k * 4), *y = (float *)malloc(n * k * 4); // as the product gets them
        for (size_t i = 0; i < m * k; i++) {
            x[ta ? i % k * m + i / k : i] = par_uniform(2, 5, i) - 0.5f;
            a[i] = alpha * (par_uniform(2, 5, i) - 0.5f);
        }
        for (size_t i = 0; i < n * k; i++) b[i] = y[tb ? i : i % k * n + i / k] = par_uniform(2, 6, i) - 0.5f;
        for (size_t i = 0; i < m * ldc; i++) c[i] = par_uniform(2, 7, i);
        const par__gemm_tile *tile = tiles[s / 8];
        if (tile)
            CHECK_OK(w, par__canonical_product(tile, ta, tb, m, n, k, alpha, x, ta ? m : k, y, tb ? k : n,
                                               beta, c, ldc));
        for (size_t i = 0; tile && i < m; i++)
            for (size_t j = 0; j < n; j++) {
                const float sum = canonical_sum(a + i * k, b + j * k, k), c0 = par_uniform(2, 7, i * ldc + j);
                const float expected = beta == 0 ? sum : beta == 1 ? c0 + sum : fmaf(beta, c0, sum);
                CHECK(w, c[i * ldc + j] == expected);
                if (c[i * ldc + j] != expected) i = m, j = n;
            }
        free(a), free(b), free(c), free(x), free(y);
    }
}
// C of a tile, whose rows are two further than it has columns, from A with these strides.
static void run_tile(const par__gemm_tile *tile, size_t k, size_t a_row, size_t a_k, int add, float *c) {
    const size_t ldb = tile->cols + 3, ldc = tile->cols + 2;
    float a[700], b[40 * (PAR__TILE_COLS + 3)];
    for (int i = 0; i < 700; i++) a[i] = NAN;
    for (size_t i = 0; i < tile->rows; i++)
        for (size_t p = 0; p < k; p++) a[i * a_row + p * a_k] = par_uniform(1, p, i) - 0.5f;
    for (size_t i = 0; i < k * ldb; i++) b[i] = par_uniform(2, 1, i) - 0.5f;
    for (size_t i = 0; i < tile->rows * ldc; i++) c[i] = par_uniform(3, 1, i);
    tile->run(k, a, a_row, a_k, b, ldb, c, ldc, add);
    for (size_t i = 0; i < tile->rows; i++)
        for (size_t j = 0; j < ldc; j++) {
            double sum = j >= tile->cols || add ? (double)par_uniform(3, 1, i * ldc + j) : 0;
            for (size_t p = 0; p < k && j < tile->cols; p++)
                sum += (double)(par_uniform(1, p, i) - 0.5f) * (double)b[p * ldb + j];
            if (!(fabs(sum - (double)c[i * ldc + j]) < 1e-5)) c[i * ldc + j] = NAN;
        }
}
// The strides of A do not change a tile's bits, whatever they are and however many k there are.
static void gemm_tiles(par_comm *w) {
    const par__gemm_tile *tiles[] = {par__gemm_tile_get(), par__gemm_tile_for(par__gemm_tile_get(), 5),
                                     &par__tiles_base};
    for (size_t t = 0; t < 3; t++)
        for (size_t k = 0; k <= 33; k++)
            for (int add = 0; add < 2; add++) {
                const size_t n = tiles[t]->rows * (tiles[t]->cols + 2);
                float rows[PAR__TILE_ROWS * (PAR__TILE_COLS + 2)], panel[sizeof rows / 4],
                    far[sizeof rows / 4];
                run_tile(tiles[t], k, k + 3, 1, add, rows);
                run_tile(tiles[t], k, 1, tiles[t]->rows + 1, add, panel);
                run_tile(tiles[t], k, 2, 2 * tiles[t]->rows, add, far);
                for (size_t i = 0; i < n; i++) CHECK(w, rows[i] == panel[i] && rows[i] == far[i]); // no NaN
            }
}
static void gemm(par_comm *w) {
    static const size_t sizes[] = {1, 2, 5, 6, 7, 31, 32, 33, 97, 260};
    double worst = 0;
    for (size_t s = 0; s < 400; s++) {
        const size_t m = sizes[par_random(1, 1, s) % 10], n = sizes[par_random(1, 2, s) % 10],
                     k = sizes[par_random(1, 3, s) % 10];
        const int ta = (int)(s & 1), tb = (int)(s >> 1 & 1);
        const size_t lda = (ta ? m : k) + s % 3, ldb = (tb ? k : n) + s % 2, ldc = n + s % 4;
        const float alpha = s % 5 ? 1 : 0.5f, beta = s % 3 == 0 ? 0 : s % 3 == 1 ? 1 : 0.25f;
        float *a = (float *)malloc(4 * (lda + 1) * ((ta ? k : m) + 1)),
              *b = (float *)malloc(4 * (ldb + 1) * ((tb ? n : k) + 1));
        float *c = (float *)malloc(4 * ldc * m), *c0 = (float *)malloc(4 * ldc * m);
        for (size_t i = 0; i < lda * (ta ? k : m); i++) a[i] = par_uniform(2, s, i) - 0.5f;
        for (size_t i = 0; i < ldb * (tb ? n : k); i++) b[i] = par_uniform(3, s, i) - 0.5f;
        for (size_t i = 0; i < ldc * m; i++) c[i] = c0[i] = beta == 0 ? NAN : par_uniform(4, s, i);
        CHECK_OK(w, par_gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc));
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < ldc; j++) {
                double sum = 0;
                if (j >= n) { // beyond the row: unchanged
                    if (memcmp(&c[i * ldc + j], &c0[i * ldc + j], 4)) CHECK(w, 0);
                    continue;
                }
                for (size_t q = 0; q < k; q++)
                    sum += (double)(ta ? a[q * lda + i] : a[i * lda + q]) *
                           (double)(tb ? b[j * ldb + q] : b[q * ldb + j]);
                sum = (double)alpha * sum + (beta == 0 ? 0 : (double)beta * (double)c0[i * ldc + j]);
                worst = test_larger(worst, fabs(sum - (double)c[i * ldc + j]));
            }
        free(a), free(b), free(c), free(c0);
    }
    CHECK(w, worst < 1e-4);
    // no sums; a row length beyond int; NaN stays NaN
    float x[4] = {1, NAN, 3, INFINITY}, y[4] = {1, 0, 0, 1}, z[4] = {1, 2, NAN, 4};
    const size_t far = (size_t)INT_MAX + 9;
    CHECK_OK(w, par_gemm(0, 0, 2, 2, 0, 1, x, 2, y, 2, 0.5f, z, 2));
    CHECK(w, z[0] == 0.5f && z[1] == 1 && isnan(z[2]) && z[3] == 2);
    CHECK_OK(w, par_gemm(0, 0, 2, 2, 0, 1, x, 2, y, 2, 0, z, 2));
    CHECK(w, z[0] == 0 && z[1] == 0 && z[2] == 0 && z[3] == 0);
    CHECK_OK(w, par_gemm(0, 0, 1, 2, 2, 1, y, far, y, 2, 0, z, far));
    CHECK(w, z[0] == 1 && z[1] == 0);
    CHECK_OK(w, par_gemm(0, 0, 2, 2, 2, 1, x, 2, y, 2, 0, z, 2));
    CHECK(w, isnan(z[0]) && isnan(z[1]) && isnan(z[2]) && isinf(z[3]));
    CHECK(w,
          par_gemm_get().chosen >= 0 && !strcmp(par_gemm_name(), par_gemm_get().name[par_gemm_get().chosen]));
}

// ---- binding to processors --------------------------------------------------------------------------------

typedef struct pretended { // a machine in a directory that looks like /sys/devices/system
    char root[600];
    par__machine m;
} pretended;
static void pretend(pretended *p, const char *name, const char *text) { // a file; NULL: there is none
    char path[700];
    snprintf(path, sizeof path, "%s/%s", p->root, name);
    for (char *c = path + strlen(test_dir) + 1; (c = strchr(c, '/')) != NULL; *c++ = '/') {
        *c = 0;
        mkdir(path, 0700);
    }
    unlink(path);
    FILE *f = text ? fopen(path, "w") : NULL;
    if (f) fputs(text, f), fclose(f);
}
static void remove_all(const char *path) {
    char inner[1024];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        if (unlink(inner)) remove_all(inner);
    }
    if (d) closedir(d);
    rmdir(path);
}
static void pretend_cores(pretended *p, int cores, int threads) { // siblings are `cores` apart
    char name[64], list[64];
    pretend(p, "cpu/smt/active", threads > 1 ? "1\n" : "0\n");
    for (int c = 0; c < cores * threads && threads > 1; c++) {
        snprintf(name, sizeof name, "cpu/cpu%d/topology/core_cpus_list", c);
        snprintf(list, sizeof list, "%d,%d\n", c % cores, c % cores + cores);
        pretend(p, name, list);
    }
}
static int read_pretended(pretended *p, const char *allowed) {
    return par__parse_cpu_list(allowed, &p->m.allowed) && par__read_machine(&p->m, p->root);
}
static const char *share_of(pretended *p, int index, int count, int whole_nodes) { // "": there is none
    static char text[256];
    par__cpu_set share;
    p->m.whole_nodes = whole_nodes;
    par__order_cpus(&p->m, count);
    text[0] = 0;
    if (par__choose_cpus(&p->m, index, count, &share)) par__print_cpu_list(&share, text, sizeof text);
    return text;
}
// For `count` ranks: shares are allowed, do not overlap, and are of whole cores, or of one processor of as
// many cores as there are; where there are no more nodes than ranks, a share is on one, and all on a node are
// equal.
static void check_shares(par_comm *w, pretended *p, int count) {
    par__cpu_set share, taken, cores;
    int node_share[64] = {0}, used = 0;
    memset(&taken, 0, sizeof taken), memset(&cores, 0, sizeof cores);
    p->m.whole_nodes = 0;
    par__order_cpus(&p->m, count);
    for (int r = 0; r < count; r++) {
        int n = 0, node = -1, bad = !par__choose_cpus(&p->m, r, count, &share);
        for (int c = 0; c < PAR__CPU_MAX; c++) {
            if (!par__cpu_in(&share, c)) continue;
            bad |= par__cpu_in(&taken, c) || !par__cpu_in(&p->m.allowed, c);
            bad |= count >= p->m.node_count && node >= 0 && node != p->m.node[c];
            node = p->m.node[c], n++;
            par__cpu_add(&taken, c), par__cpu_add(&cores, p->m.core[c]);
        }
        for (int c = 0; c < PAR__CPU_MAX && count <= p->m.core_count; c++) // whole cores
            bad |= p->m.core[c] >= 0 && par__cpu_in(&share, c) != par__cpu_in(&share, p->m.core[c]);
        if (count >= p->m.node_count && node >= 0 && node < 64 && !node_share[node]) node_share[node] = n;
        bad |= count > p->m.core_count && n != 1 && n != node_share[node & 63];
        used += n;
        CHECK(w, !bad && n > 0);
    }
    CHECK(w, used <= p->m.cpu_count);
    CHECK(w, count < p->m.core_count || p->m.node_count > 1 || par__cpu_count(&cores) == p->m.core_count);
}
static void check_topologies(par_comm *w, pretended *p) {
    static const char *const few[][3] = {
        // ranks, rank, its share of 2 nodes with 4 cores of 2 processors each
        {"2", "0", "0-3,8-11"},  {"2", "1", "4-7,12-15"}, {"3", "0", "0-1,8-9"}, {"3", "1", "2-3,10-11"},
        {"3", "2", "4-7,12-15"}, {"4", "1", "2-3,10-11"}, {"8", "7", "7,15"},    {"10", "4", "8"},
        {"10", "5", "4"},        {"10", "9", "12"},       {"16", "15", "15"},    {"17", "0", ""}};
    pretend(p, "cpu/online", "0-15\n"), pretend(p, "node/online", "0-1\n");
    pretend(p, "node/node0/cpulist", "0-3,8-11\n"), pretend(p, "node/node1/cpulist", "4-7,12-15\n");
    pretend_cores(p, 8, 2);
    CHECK(w, read_pretended(p, "0-15") && p->m.core_count == 8 && p->m.node_count == 2);
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++)
        CHECK(w, !strcmp(share_of(p, atoi(few[i][1]), atoi(few[i][0]), 0), few[i][2]));
    CHECK(w, !strcmp(share_of(p, 3, 4, 1), "4-7,12-15")); // PAR_BIND=numa
    for (int count = 1; count <= 16; count++) check_shares(w, p, count);
    // a cgroup's processors, half a core among them; processors that went offline; uneven nodes
    CHECK(w, read_pretended(p, "1-3,9,12") && p->m.core_count == 4 && p->m.cpu_count == 5);
    CHECK(w, !strcmp(share_of(p, 0, 2, 0), "1,9") && !strcmp(share_of(p, 1, 2, 0), "2"));
    CHECK(w, !strcmp(share_of(p, 3, 5, 0), "9") && !strcmp(share_of(p, 0, 6, 0), ""));
    for (int count = 1; count <= 5; count++) check_shares(w, p, count);
    pretend(p, "cpu/online", "0-2,4-15\n");
    CHECK(w, read_pretended(p, "0-15") && p->m.cpu_count == 15 && p->m.core_count == 8);
    CHECK(w, !strcmp(share_of(p, 3, 8, 0), "11"));
    CHECK(w, read_pretended(p, "0-3,8-12") && p->m.node_count == 2);
    CHECK(w, !strcmp(share_of(p, 1, 2, 0), "2,10-11"));
    // a kernel that names siblings in the old way; one without NUMA; a thousand processors
    pretend(p, "cpu/cpu0/topology/core_cpus_list", NULL);
    pretend(p, "cpu/cpu0/topology/thread_siblings_list", "0,8");
    CHECK(w, read_pretended(p, "0-15") && p->m.core_count == 8);
    pretend(p, "node/online", NULL), pretend(p, "cpu/online", "0-999\n");
    pretend_cores(p, 1000, 1);
    CHECK(w, read_pretended(p, "0-999") && p->m.core_count == 1000 && p->m.node_count == 1);
    CHECK(w, !strcmp(share_of(p, 6, 7, 0), "852-993") && !strcmp(share_of(p, 999, 1000, 0), "999"));
    for (int count = 3; count < 1000; count *= 6) check_shares(w, p, count);
}
// What a hostile or strange system could say: an error with a text, never a share.
static void check_strange_systems(par_comm *w, pretended *p) {
    static const char *const names[] = {"cpu/online", "node/online", "node/node1/cpulist",
                                        "cpu/cpu2/topology/core_cpus_list"};
    static const char *const texts[] = {"0-99999999999999999999",
                                        "8192",
                                        "0-8192",
                                        "7-3",
                                        "0,,1",
                                        ",",
                                        "1,",
                                        "-3",
                                        "0-",
                                        "0-1-2",
                                        "x",
                                        "0 1",
                                        "0x3",
                                        "0-3\n4",
                                        "\n\n",
                                        "0-3:1/2",
                                        "3-5"};
    static char large[20000];
    pretend(p, "cpu/online", "0-7"), pretend(p, "node/online", "0-1");
    pretend(p, "node/node0/cpulist", "0-3"), pretend(p, "node/node1/cpulist", "4-7\n");
    pretend_cores(p, 4, 2);
    CHECK(w, read_pretended(p, "0-7"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *whole = i == 0 ? "0-7" : i == 1 ? "0-1" : i == 2 ? "4-7" : "2,6";
        for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
            if (i == 0 && k + 1 == sizeof texts / sizeof texts[0]) continue; // 3-5 are online: a valid list
            pretend(p, names[i], texts[k]);
            p->m.why[0] = 0;
            if (read_pretended(p, "0-7") || !p->m.why[0]) fprintf(stderr, "%s: %s\n", names[i], texts[k]);
            CHECK(w, !read_pretended(p, "0-7") && p->m.why[0]);
        }
        memset(large, '1', sizeof large - 1);
        pretend(p, names[i], large);
        CHECK(w, !read_pretended(p, "0-7") && p->m.why[0]);
        pretend(p, names[i], whole);
        CHECK(w, read_pretended(p, "0-7"));
    }
    pretend(p, "cpu/online", NULL);
    CHECK(w, !read_pretended(p, "0-7") && p->m.why[0]); // no /sys
    char fifo[700];
    snprintf(fifo, sizeof fifo, "%s/cpu/online", p->root);
    CHECK(w, mkfifo(fifo, 0600) == 0 && !read_pretended(p, "0-7") && strstr(p->m.why, "FIFO"));
}
static void topologies(par_comm *w) {
    pretended *p = (pretended *)calloc(1, sizeof *p);
    snprintf(p->root, sizeof p->root, "%.500s/par_machine_%d", test_dir, (int)getpid());
    check_topologies(w, p);
    check_strange_systems(w, p);
    remove_all(p->root);
    free(p);
}
// Ranks are bound to shares of one mask that do not overlap, if there are enough processors.
static void bound(par_comm *w) {
    const int n = par_size(w), me = par_rank(w);
    par__world *world = w->world;
    par__cpu_set mine, *all = (par__cpu_set *)malloc((size_t)n * sizeof mine);
    int together = 1, same_bound = world->bound;
    CHECK(w, par__get_cpus(0, &mine));
    CHECK_OK(w, par_all_gather(&mine, all, sizeof mine, PAR_U8, w));
    CHECK_OK(w, par_all_reduce(&same_bound, &same_bound, 1, PAR_I32, PAR_SUM, w));
    CHECK(w, same_bound == 0 || same_bound == n);
    CHECK(w, !strncmp(world->binding, world->bound ? "bound to " : "not bound: ", world->bound ? 9 : 11));
    for (int r = 0; r < n && world->bound; r++)
        for (int i = 0; i < PAR__CPU_MAX / 64; i++) together &= r == me || !(all[r].word[i] & mine.word[i]);
    CHECK(w, together && (!world->bound || !memcmp(&mine, &world->cpus, sizeof mine)));
    const int cpus = world->bound ? par__cpu_count(&world->cpus_before) : par__cpu_count(&mine);
    const int can = !strcmp(par_launch_method(w), "mpi") || access("/sys/devices/system/cpu/online", R_OK);
    CHECK(w, n == 1 || can || world->bound == (n <= cpus));
    CHECK(w, !world->bound || par__cpu_count(&mine) <= cpus / n + cpus % n + 1);
    free(all);
}
static void *a_thread(void *p) { // what OpenMP's threads would have: the rank's share
    return par__get_cpus(0, (par__cpu_set *)p) ? p : NULL;
}
static void unbound_again(par_comm *w) { // ... when the world closes; a thread of a rank has the rank's share
    par__cpu_set before, now, in_thread;
    par_comm *world;
    pthread_t thread;
    const pid_t child = test_fork();
    int status = -1, fine = 1;
    if (child == 0) {
        setenv("PAR_RANKS", "2", 1), setenv("PAR_BIND", "core", 1);
        par__get_cpus(0, &before);
        if (par_open(NULL, &world)) _exit(1);
        fine &= world->world->bound == (par__cpu_count(&before) >= 2) &&
                !pthread_create(&thread, NULL, a_thread, &in_thread);
        fine &=
            !pthread_join(thread, NULL) && par__get_cpus(0, &now) && !memcmp(&now, &in_thread, sizeof now);
        fine &= !par_close(world) && par__get_cpus(0, &now) && !memcmp(&now, &before, sizeof now);
        _exit(!fine);
    }
    CHECK(w, waitpid(child, &status, 0) == child && status == 0);
}
// A world of one rank, in a job that has more ranks on this machine than processors.
static void crowded(par_comm *w) {
    static const char *const ranks[] = {"1", "1000000", "-3", "many"};
    par_comm *world;
    for (int i = 0; i < 4; i++) {
        const pid_t child = test_fork();
        int status = -1;
        if (child == 0) {
            setenv("PAR_RANKS", "1", 1), setenv("LOCAL_WORLD_SIZE", ranks[i], 1);
            if (par_open(NULL, &world)) _exit(1);
            const int fine = (world->world->spin_limit == 1) == (i == 1);
            _exit(par_close(world) || !fine);
        }
        CHECK(w, waitpid(child, &status, 0) == child && status == 0);
    }
}

// A small call is checked where it differs from the last one: here a single member does, on the last rank.
static void alike_calls(par_comm *w) {
    enum { KIND, DTYPE, OP, COUNT, ROOT, TAG, SEND, RECV, SITE, MEMBERS };
    const int n = par_size(w), odd = par_rank(w) == n - 1;
    float x[4], y[4], z[4];
    par_call k;
    par_request q;
    memset(&k, 0, sizeof k);
    for (int i = 0; i < 4; i++) x[i] = (float)(i + odd);
    k.send = x, k.recv = y, k.count = 4, k.dtype = PAR_F32, k.op = PAR_SUM, k.site = "here.c:1";
    for (int member = 0; member < MEMBERS; member++) {
        par_call other = k, *mine = odd ? &other : &k;
        k.kind = member == ROOT ? PAR_KIND_BROADCAST : PAR_KIND_ALL_REDUCE;
        CHECK_OK(w, par_begin(w, &k, NULL));
        other.kind = member == KIND ? PAR_KIND_BROADCAST : k.kind;
        if (member == DTYPE) other.dtype = PAR_I32;
        if (member == OP) other.op = PAR_MAX;
        if (member == COUNT) other.count = 3;
        if (member == ROOT) other.root = 1;
        if (member == TAG) other.tag = 9;
        if (member == SEND) other.send = NULL;
        if (member == RECV) other.recv = NULL;
        if (member == SITE) other.site = "there.c:2", k.count = 3; // one differs here, the other there
        const int bad = odd && (member == SEND || member == RECV);
        CHECK(w, par_begin(w, mine, NULL) == (bad ? PAR_ERR_ARGUMENT : PAR_ERR_MISMATCH));
        CHECK(w, says(w, member == SITE ? "there.c:2" : "here.c:1"));
    }
    k.count = 4, k.kind = PAR_KIND_ALL_REDUCE;
    CHECK_OK(w, par_begin(w, &k, &q));
    CHECK_OK(w, par_barrier(w)); // the call before it has ended now, and is waited for at the end
    k.recv = z;
    CHECK_OK(w, par_begin(w, &k, NULL));
    CHECK_OK(w, par_wait(&q));
    for (int i = 0; i < 4; i++) CHECK(w, y[i] == (float)(n * i + 1) && z[i] == y[i]);
    if (par_node_count(w) > 1) return;
    CHECK_OK(w, par_force_algorithm(w, "all_reduce:twoshot"));
    CHECK_OK(w, par_begin(w, &k, NULL));
    CHECK(w, !strcmp(par_last_algorithm(w), "twoshot"));
    CHECK_OK(w, par_force_algorithm(w, ""));
    CHECK_OK(w, par_begin(w, &k, NULL));
    CHECK(w, !strcmp(par_last_algorithm(w), "inline"));
}

// How two processes copy ordinary memory of 32 KiB: blocks of 16 KiB go with the arrivals, the whole array of
// a broadcast by one copy of the system.
static void ordinary_memory(par_comm *w) {
    enum { COUNT = 8192 };
    const char *const copied = w->world->cma ? "oneshot" : "eager";
    const int two = par_size(w) == 2 && par_node_count(w) == 1 && !par__ranks_are_threads(w->world);
    float *x = (float *)calloc((size_t)par_size(w) + 1, 4 * COUNT), *y = x + COUNT;
    w->world->cma_bytes = PAR__CMA_BYTES; // whatever another test of this world has set
    CHECK_OK(w, par_all_reduce(x, y, COUNT, PAR_F32, PAR_SUM, w));
    CHECK(w, !two || !strcmp(par_last_algorithm(w), "eager"));
    CHECK_OK(w, par_reduce_scatter(y, x, COUNT / 2, PAR_F32, PAR_SUM, w));
    CHECK(w, !two || !strcmp(par_last_algorithm(w), "eager"));
    CHECK_OK(w, par_all_gather(x, y, COUNT / 2, PAR_F32, w));
    CHECK(w, !two || !strcmp(par_last_algorithm(w), "eager"));
    CHECK_OK(w, par_broadcast(x, x, COUNT, PAR_F32, 0, w));
    CHECK(w, !two || !strcmp(par_last_algorithm(w), copied));
    free(x);
}

// Calls on a machine where `slower` takes twice as long: how many of `count` went that way. Each eleventh is
// interrupted.
static int slow_calls(par__two_ways *x, int slower, int count) {
    int slow = 0;
    for (int i = 0; i < count; i++) {
        const int way = par__next_way(x);
        slow += way == slower;
        par__count_way(x, way, 1e-5 * (way == slower ? 2 : 1) * (i % 11 ? 1 : 500));
    }
    return slow;
}
static void prefer_way(par_comm *c, int way) {
    for (int i = 0; i < (int)PAR_KIND_COUNT * (int)PAR__SIZE_CLASSES && c->ways; i++) {
        c->ways[i].calls = 9;
        c->ways[i].seconds[way] = 1e-9f;
        c->ways[i].seconds[!way] = 1;
    }
}
// All kinds with either way, and with either rank as root.
static void both_ways(par_comm *w) {
    enum { COUNT = 100001, REDUCED = 1100003 }; // a sum for a root is staged for longer
    buffer s = buffer_open(w, REDUCED * 4, 0), r = buffer_open(w, REDUCED * 4, 0);
    for (int k = 0; k < PAR_KIND_SEND; k++)
        for (int i = 0; i < 8; i++) {
            trial t;
            memset(&t, 0, sizeof t);
            t.kind = (par_kind)k, t.dtype = PAR_F32, t.root = i & 1, t.in_place = i >> 1 & 1;
            t.count = (size_t)(k == PAR_KIND_REDUCE ? REDUCED - 1 : COUNT) + (size_t)t.root;
            t.salt = (unsigned)i;
            prefer_way(w, i >> 2);
            if (!t.in_place || takes_in_place(k)) run_trial(w, &t, &s, &r);
        }
    buffer_close(w, &s), buffer_close(w, &r);
}
// Whether ordinary memory is staged or copied by the system follows what rank 0 measures: when all calls went
// one way, ranks staged their data, or nobody did. Both give the same bits.
static void faster_way(par_comm *w) {
    enum { COUNT = 100000, CALLS = 20 };
    par__two_ways machine;
    memset(&machine, 0, sizeof machine);
    for (int slower = 0; slower < 2; slower++) {
        CHECK(w, slow_calls(&machine, slower, 128) < 128); // learns, again after the machine has changed
        CHECK(w, slow_calls(&machine, slower, 6400) == 100);
    }
    const int two =
        par_size(w) == 2 && w->world->cma && par_node_count(w) == 1 && !par__ranks_are_threads(w->world);
    float *x = (float *)calloc(COUNT, 4), *y = (float *)calloc(COUNT, 4);
    par_comm *c = NULL;
    w->world->cma_bytes = PAR__CMA_BYTES; // whatever another test of this world has set
    w->world->nontemporal_bytes = PAR__NONTEMPORAL_BYTES;
    CHECK_OK(w, par_split(w, 0, par_rank(w), &c));
    for (int i = 0; i < COUNT; i++) x[i] = (float)(i + par_rank(w));
    for (int i = 0; i < CALLS; i++) {
        const int way = i >= CALLS / 2;
        prefer_way(c, way);
        CHECK_OK(w, par_all_reduce(x, y, COUNT, PAR_F32, PAR_SUM, c));
        CHECK(w, (c->ways != NULL) == (two && par_rank(w) == 0));
        for (int k = 0; k < COUNT; k += 997)
            CHECK(w, fabsf(y[k] - (float)(par_size(w) * (2 * k + par_size(w) - 1)) / 2) < 1);
        CHECK_OK(w, par_barrier(c)); // all have read the stages
        float *stage = (float *)(void *)par__stage_of(c, par_rank(c));
        int staged = 0;
        for (int k = 0; k < 1024; k++) staged |= stage[k] != 0;
        CHECK(w, !two || staged == way);
        memset(stage, 0, 4096);
        CHECK_OK(w, par_barrier(c));
    }
    CHECK_OK(w, par_close(c));
    if (two) both_ways(w);
    free(x), free(y);
}

// par__copy is memmove, wherever in a page its ends are.
static void copies(par_comm *w) {
    enum { ROOM = 3 * 4096, COUNT = 5 };
    static const size_t sizes[COUNT] = {0, 33, 2047, 2048, 3001};
    unsigned char *from = (unsigned char *)malloc(4 * ROOM), *to = from + 2 * ROOM, *want = to + ROOM;
    int good = 1;
    for (size_t i = 0; i < 2 * ROOM; i++) from[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t behind = 0; behind < 4096; behind += behind < 40 ? 1 : 509)
        for (int i = 0; i < COUNT; i++) {
            const unsigned char *x =
                from + (4096 + (uintptr_t)(to + 64) - (uintptr_t)from % 4096 - behind) % 4096;
            memset(to, 0, ROOM), memset(want, 0, ROOM);
            memcpy(want + 64, x, sizes[i]);
            par__copy(w->world->kernels, to + 64, x, sizes[i]);
            good &= !memcmp(to, want, ROOM);
            for (int down = 0; down < 2; down++) { // the two overlap
                memcpy(to, from, ROOM), memcpy(want, from, ROOM);
                memmove(want + (down ? 0 : behind), want + (down ? behind : 0), sizes[i]);
                par__copy(w->world->kernels, to + (down ? 0 : behind), to + (down ? behind : 0), sizes[i]);
                good &= !memcmp(to, want, ROOM);
            }
        }
    CHECK(w, good);
    free(from);
}

// Arrays that begin anywhere in a page, next to one another or not: send at `in`, recv at `out`.
static void check_offsets(par_comm *w, unsigned char *in, unsigned char *out, size_t count) {
    const int n = par_size(w), me = par_rank(w);
    par_request requests[2];
    int good = 1;
    for (int step = 0; step < 6; step++) {
        memset(in, 0, (size_t)n * count), memset(out, 0, (size_t)n * count + 1);
        for (int r = 0; r < n; r++)
            for (size_t i = 0; i < count; i++)
                in[(size_t)r * count + i] = (unsigned char)(i % 7 + (size_t)(me + (step == 5 ? r : 0)));
        if (step == 0) CHECK_OK(w, par_reduce(in, out, count, PAR_U8, PAR_SUM, n - 1, w));
        if (step == 1) CHECK_OK(w, par_all_reduce(in, out, count, PAR_U8, PAR_SUM, w));
        if (step == 2) CHECK_OK(w, par_broadcast(in, out, count, PAR_U8, n - 1, w));
        if (step == 3) CHECK_OK(w, par_all_gather(in, out, count, PAR_U8, w));
        if (step == 4) {
            CHECK_OK(w, par_recv_begin(out, count, PAR_U8, (me + n - 1) % n, w, &requests[0]));
            CHECK_OK(w, par_send_begin(in, count, PAR_U8, (me + 1) % n, w, &requests[1]));
            CHECK_OK(w, par_wait_all(requests, 2));
        }
        if (step == 5) CHECK_OK(w, par_all_to_all(in, out, count, PAR_U8, w));
        const int blocks = step == 3 || step == 5 ? n : step == 0 && me < n - 1 ? 0 : 1;
        for (int r = 0; r < blocks; r++)
            for (size_t i = 0; i < count; i++) {
                const size_t base = i % 7, ranks = (size_t)n;
                const size_t want = step < 2    ? ranks * base + ranks * (ranks - 1) / 2
                                    : step == 2 ? base + ranks - 1
                                    : step == 3 ? base + (size_t)r
                                    : step == 4 ? base + (size_t)((me + n - 1) % n)
                                                : base + (size_t)(me + r);
                good &= out[(size_t)r * count + i] == (unsigned char)want;
            }
        good &= !out[(size_t)n * count];
    }
    CHECK(w, good);
}
static void page_offsets(par_comm *w) {
    enum { MOST = 140007 }; // more than a slot of a stage
    static const size_t sizes[] = {4096, 8192 + 5, 20011, MOST}, offsets[] = {0, 1, 16, 31, 32};
    const size_t room = (size_t)par_size(w) * MOST + 8192;
    const size_t cma_bytes = w->world->cma_bytes;
    char *memory = (char *)calloc(2, room);
    for (int size = 0; size < 4; size++)
        for (int at = 0; at < (size < 3 ? 5 : 1); at++) {
            char *in = memory + (4096 - (uintptr_t)memory % 4096), *out = memory + room;
            out += 4096 - (uintptr_t)out % 4096;
            const size_t behind = offsets[(at + par_rank(w)) % 5];
            w->world->cma_bytes = size == 1 ? PAR__CMA_BYTES : 1;
            in += 16 + 5 * (par_size(w) - par_rank(w)), out += 16 + 5 * (par_size(w) - par_rank(w));
            check_offsets(w, (unsigned char *)in, (unsigned char *)out + behind, sizes[size]);
        }
    w->world->cma_bytes = cma_bytes;
    free(memory);
}

// ---- repeated calls, neighbors, signals -------------------------------------------------------------------

// Small calls share plans. Here are more than a comm has, of all kinds, in turns, with dtypes, roots,
// operators and memory of their own, each again with other values; then of one kind, where calls differ in
// one of them. Between them algorithms are forced, and some have a mistake.
static void repeated_kinds(par_comm *w) {
    enum { ROUNDS = 4, TURNS = 3 * PAR_KIND_SEND, CALLS = TURNS + 6 * 40 };
    static const par_dtype dtypes[5] = {PAR_F32, PAR_F64, PAR_BF16, PAR_I32, PAR_U8};
    static const size_t counts[4] = {1, 5, 70, 600};
    const int n = par_size(w);
    buffer b[4];
    float x = 1;
    for (int i = 0; i < 4; i++) b[i] = buffer_open(w, 8 * 700 * (size_t)n, i / 2);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < (round % 2 ? CALLS : TURNS); i++) {
            const unsigned memory = (round + i) & 2, one = i < TURNS ? 0 : (i - TURNS) % 6;
            trial t;
            memset(&t, 0, sizeof t);
            t.kind = i < TURNS ? (par_kind)(i * 3 % PAR_KIND_SEND) : PAR_KIND_REDUCE;
            t.dtype = dtypes[i < TURNS ? i % 5 : one == 1 ? 3 : 1];
            t.count = i < TURNS ? counts[i % 4] : 1 + (i - TURNS) / 6;
            t.op = i < TURNS && i % 3 == 1 && is_float(t.dtype) ? par_scaled_sum(0.5) : PAR_SUM;
            if (i < TURNS ? i % 3 == 0 : one == 2) t.op = PAR_MAX;
            t.root = (int)((i < TURNS ? i : one < 3 ? 0 : one - 2) % (unsigned)n), t.salt = 100 * round + i;
            t.in_place = round % 2 && i % 2 && takes_in_place((int)t.kind);
            if (round == 2) force(w, t.kind, i % 2 && par_algorithm_name(w, t.kind, 1));
            run_trial(w, &t, &b[memory], &b[1 + memory]);
            if (round == 2 && i % 4 < 2) CHECK_OK(w, par_force_algorithm(w, ""));
            if (i % 9 == round) CHECK(w, par_broadcast(&x, &x, t.count, t.dtype, n, w) == PAR_ERR_ARGUMENT);
        }
        CHECK_OK(w, par_force_algorithm(w, ""));
    }
    for (int i = 0; i < 4; i++) buffer_close(w, &b[i]);
}
static int keeps_early(par_comm *w) { // what comes before its receive: TCP, in new memory
    return !strcmp(par_launch_method(w), "tcp") && par_node_count(w) > 1;
}
// Calls that are repeated allocate nothing, also where several of a kind are in flight: which operation each
// takes, follows from the order of the program's calls.
static void repeated_calls(par_comm *w) {
    enum { ROUNDS = 28, SIZES = 5 };
    static const size_t sizes[SIZES] = {2, 2, 700, 9000, 30000};
    const int n = par_size(w), me = par_rank(w);
    par_request q[2 * SIZES];
    double *x[SIZES], *y[SIZES];
    long before = 0;
    for (int s = 0; s < SIZES; s++) {
        x[s] = (double *)(s % 2 ? malloc(8 * sizes[s]) : par_alloc(w, 8 * sizes[s]));
        y[s] = (double *)calloc(sizes[s], 8);
    }
    for (int i = 0; i < ROUNDS; i++) {
        const int waits = i % 2; // or all are in flight at once
        if (i == 8) before = allocations;
        for (int s = 0; s < SIZES && i % 10 == 0; s++)
            for (size_t j = 0; j < sizes[s]; j++) x[s][j] = (double)(me + i);
        for (int s = 0; s < SIZES; s++)
            if (waits) {
                CHECK_OK(w, par_all_reduce(x[s], y[s], sizes[s], PAR_F64, PAR_SUM, w));
                CHECK_OK(w, par_broadcast(y[s], y[s], sizes[s], PAR_F64, 0, w));
            } else {
                CHECK_OK(w, par_all_reduce_begin(x[s], y[s], sizes[s], PAR_F64, PAR_SUM, w, &q[2 * s]));
                CHECK_OK(w, par_broadcast_begin(y[s], y[s], sizes[s], PAR_F64, 0, w, &q[2 * s + 1]));
            }
        if (!waits) CHECK_OK(w, par_wait_all(q, 2 * SIZES));
        for (int s = 0; s < SIZES; s++)
            CHECK(w, y[s][0] == n * (n - 1) / 2 + n * (i - i % 10) && y[s][sizes[s] - 1] == y[s][0]);
    }
    CHECK(w, allocations == before || keeps_early(w));
    for (int s = 0; s < SIZES; s++) {
        if (s % 2)
            free(x[s]);
        else
            CHECK_OK(w, par_free(w, x[s]));
        free(y[s]);
    }
}
// A plan was made at one call site; errors name those of the calls that differ, and the comm stays usable.
static void repeated_errors(par_comm *w) {
    const int odd = par_rank(w) == par_size(w) - 1;
    float x[200] = {0}, y[200];
    par_request q;
    par_call good;
    memset(&good, 0, sizeof good);
    good.kind = PAR_KIND_ALL_REDUCE, good.send = x, good.recv = y, good.dtype = PAR_F32;
    for (int i = 0; i < 9; i++) { // inline, eager, two-shot; a count, an argument or a kind differs
        good.count = i % 3 == 0 ? 4 : i % 3 == 1 ? 100 : 200, good.site = "first.c:1";
        if (i % 3 == 2) force(w, PAR_KIND_ALL_REDUCE, par_node_count(w) == 1 ? 3 : -1);
        for (int form = 0; form < 2; form++) {
            par_call bad = good;
            for (int repeat = 0; repeat < 2; repeat++) CHECK_OK(w, par_begin(w, &good, NULL));
            bad.site = odd ? "odd.c:2" : "others.c:3";
            if (odd && i < 3) bad.count--;
            if (odd && i / 3 == 1) bad.recv = NULL;
            if (odd && i >= 6) bad.kind = PAR_KIND_BARRIER;
            par_result r = par_begin(w, &bad, form ? &q : NULL);
            if (form && !r) r = par_wait(&q);
            CHECK(w, r == (odd && i / 3 == 1 ? PAR_ERR_ARGUMENT : PAR_ERR_MISMATCH));
            CHECK(w, says(w, "odd.c:2") && !says(w, "first.c:1"));
            CHECK(w, says(w, "others.c:3") || i / 3 == 1);
        }
        CHECK_OK(w, par_force_algorithm(w, ""));
    }
}

// Neighbors at random: rank a sends b so many blocks, of so many elements.
enum { BLOCKS_OF_PAIR = 3, HALO_LARGE = 7000 };
static int halo_blocks(uint64_t seed, int a, int b) {
    const uint64_t h = mixed(seed, (uint64_t)a * 1000 + (uint64_t)b);
    return h % 4 == 0 ? 0 : (int)(h / 4 % (BLOCKS_OF_PAIR + 1));
}
static size_t halo_count(uint64_t seed, int a, int b, int k) {
    static const size_t counts[8] = {0, 1, 1, 2, 7, 300, 2000, HALO_LARGE};
    return counts[mixed(seed + 99, ((uint64_t)a * 1000 + (uint64_t)b) * 10 + (uint64_t)k) % 8];
}
typedef struct halo { // of one rank
    int degree, *peers, *sources;
    size_t *counts[2], *displs[2], length[2]; // of what is sent, and of what is received
    par_neighbors *neighbors;
} halo;
// Blocks in an order of their own on each rank and side: those of a peer are in order, others between them.
static void halo_open(par_comm *w, uint64_t seed, halo *h) {
    const int n = par_size(w), me = par_rank(w), most = n * BLOCKS_OF_PAIR;
    int *lists = (int *)calloc(2 * (size_t)most, sizeof *lists);
    size_t *sizes = (size_t *)calloc(4 * (size_t)most, sizeof *sizes);
    memset(h, 0, sizeof *h);
    h->peers = lists, h->sources = lists + most;
    for (int side = 0; side < 2; side++) {
        int *list = side ? h->sources : h->peers, at = 0;
        size_t *counts = h->counts[side] = sizes + (size_t)side * (size_t)(2 * most), place = 0;
        size_t *displs = h->displs[side] = counts + most;
        for (int k = 0; k < BLOCKS_OF_PAIR; k++)
            for (int i = 0; i < n; i++) {
                const int peer = (i + 3 * me + k) % n, from = side ? peer : me, to = side ? me : peer;
                if (k >= halo_blocks(seed, from, to)) continue;
                list[at] = peer, counts[at] = halo_count(seed, from, to, k);
                displs[at] = place, place += counts[at++] + 1; // a gap of one element
            }
        while (at < most) list[at] = -1, counts[at] = 5, displs[at++] = 0; // no neighbors
        h->length[side] = place;
    }
    h->degree = most;
    CHECK_OK(w, par_neighbors_open(w, h->degree, h->peers, h->sources, &h->neighbors));
}
static void halo_close(par_comm *w, halo *h) {
    CHECK_OK(w, par_neighbors_close(h->neighbors));
    free(h->peers), free(h->counts[0]);
}
static int halo_value(int from, int to, int k, size_t i, int round) {
    return (int)(((uint64_t)from * 31 + (uint64_t)to * 7 + (uint64_t)k * 101 + i * 3 + (uint64_t)round) &
                 0xffff);
}
// Write what is sent, or compare what has come (side 1); returns the wrong elements.
static size_t halo_values(par_comm *w, const halo *h, int side, int *x, int round) {
    const int me = par_rank(w);
    int seen[64] = {0};
    size_t wrong = 0;
    for (int e = 0; e < h->degree; e++) {
        const int peer = side ? h->sources[e] : h->peers[e];
        if (peer < 0) continue;
        const int from = side ? peer : me, to = side ? me : peer, k = seen[peer]++;
        int *at = x + h->displs[side][e];
        for (size_t i = 0; i < h->counts[side][e]; i++)
            if (side)
                wrong += at[i] != halo_value(from, to, k, i, round);
            else
                at[i] = halo_value(from, to, k, i, round);
        if (side) wrong += at[h->counts[side][e]] != -1;
    }
    return wrong;
}
static void halo_rounds(par_comm *w, const halo *h,
                        int memory) { // 0: malloc, 1: par_alloc, 2: sent memory alone
    size_t most = PAR__MAX(h->length[0], h->length[1]) + 1;
    CHECK_OK(w, par_all_reduce(&most, &most, 1, PAR_U64, PAR_MAX, w)); // par_alloc: the same on all ranks
    const size_t bytes = most * sizeof(int);
    int *x = (int *)(memory ? par_alloc(w, bytes) : malloc(bytes));
    int *y = (int *)(memory == 1 ? par_alloc(w, bytes) : malloc(bytes));
    par_request q;
    long before = 0;
    for (int round = 0; round < 6; round++) {
        halo_values(w, h, 0, x, round);
        memset(y, 0xFF, bytes);
        if (round == 3) before = allocations;
        if (round % 2 == 0)
            CHECK_OK(w, par_neighbor_exchange(x, h->counts[0], h->displs[0], y, h->counts[1], h->displs[1],
                                              PAR_I32, h->neighbors));
        else
            CHECK_OK(w, par_neighbor_exchange_begin(x, h->counts[0], h->displs[0], y, h->counts[1],
                                                    h->displs[1], PAR_I32, h->neighbors, &q));
        if (round % 2) CHECK_OK(w, par_wait(&q));
        if (round == 5) CHECK(w, allocations == before || keeps_early(w));
        CHECK(w, !halo_values(w, h, 1, y, round));
    }
    if (memory)
        CHECK_OK(w, par_free(w, x));
    else
        free(x);
    if (memory == 1)
        CHECK_OK(w, par_free(w, y));
    else
        free(y);
}
static void halos(par_comm *w) {
    const int cma = w->world->cma;
    w->world->cma_bytes = 512;
    for (int i = 0; i < 4; i++) {
        halo h;
        halo_open(w, (uint64_t)i, &h);
        w->world->cma = i == 1 ? 0 : cma; // all in pieces
        halo_rounds(w, &h, i == 3 ? 2 : i % 2 == 0);
        if (i < 2) halo_rounds(w, &h, i == 1 ? 1 : 0);
        halo_close(w, &h);
    }
    w->world->cma = cma, w->world->cma_bytes = PAR__CMA_BYTES;
}
// A ring, as a grid's periodic axis: whatever its length, what goes to the left comes from the right.
static void halo_ring(par_comm *w) {
    const int n = par_size(w), me = par_rank(w), left = (me + n - 1) % n, right = (me + 1) % n;
    const int peers[3] = {left, -1, right}, sources[3] = {right, -1, left};
    const size_t counts[3] = {1, 0, 1};
    int x[2] = {100 * me + 1, 100 * me + 2}, y[2] = {-1, -1}, z[2] = {-1, -1};
    par_neighbors *ring, *none;
    CHECK_OK(w, par_neighbors_open(w, 3, peers, sources, &ring));
    CHECK_OK(w, par_neighbors_open(w, 0, NULL, NULL, &none));
    CHECK_OK(w, par_neighbor_exchange(NULL, NULL, NULL, NULL, NULL, NULL, PAR_I32, none));
    for (int i = 0; i < 100; i++) { // messages of the program do not mix with it
        par_request q;
        CHECK_OK(w, par_neighbor_exchange_begin(x, counts, NULL, y, counts, NULL, PAR_I32, ring, &q));
        CHECK_OK(w, par_sendrecv(&x[1], 1, right, &z[1], 1, left, PAR_I32, w));
        if (i % 3 == 0) CHECK_OK(w, par_barrier(w));
        CHECK_OK(w, par_wait(&q));
        CHECK(w, y[0] == 100 * right + 1 && y[1] == 100 * left + 2 && z[1] == y[1]);
        y[0] = y[1] = z[1] = -1;
    }
    const par_ledger row = par_ledger_get(ring->own, PAR_KIND_NEIGHBOR_EXCHANGE);
    CHECK(w, row.calls == 100 && row.sent_bytes == (n > 1 ? 800u : 0u));
    CHECK_OK(w, par_neighbors_close(none));
    CHECK_OK(w, par_neighbors_close(ring));
    CHECK_OK(w, par_neighbors_close(NULL));
}
// The tables of an exchange are kept for one like it: not where counts or displs changed at their addresses,
// an array or the dtype is another, another is in flight, or the last one was a mistake.
static void halo_repeats(par_comm *w) {
    enum { NEW, AGAIN, OTHER_COUNTS, OTHER_RECV, OTHER_SEND, OTHER_DTYPE, NO_DISPLS, STEPS, VARIANTS = 7 };
    const int n = par_size(w), me = par_rank(w), right = (me + 1) % n, left = (me + n - 1) % n;
    const int peers[2] = {right, right}, sources[2] = {left, left};
    size_t counts[2], displs[2], two[2] = {2, 2};
    int64_t x[2][4], y[2][4], z[4];
    par_neighbors *h;
    par_request q[2];
    CHECK_OK(w, par_neighbors_open(w, 2, peers, sources, &h));
    for (int i = 0; i < VARIANTS * STEPS; i++) { // each step changes one thing
        const int step = i % STEPS, variant = i / STEPS + (step >= OTHER_COUNTS), both = i % 5 == 4,
                  begins = both || i % 4 == 3;
        const par_dtype d = step >= OTHER_DTYPE ? PAR_I32 : PAR_I64;
        const size_t *const sent = step == NO_DISPLS ? NULL : displs;
        int64_t *const from = x[step >= OTHER_SEND], *const to = y[step >= OTHER_RECV];
        counts[0] = 1 + (size_t)variant % 3, counts[1] = 4 - counts[0];
        displs[0] = variant & 1 ? counts[1] : 0, displs[1] = variant & 1 ? 0 : counts[0];
        memset(x, 0, sizeof x), memset(y, 0, sizeof y), memset(z, 0, sizeof z);
        for (size_t j = 0; j < 4; j++) put(from, d, j, 1000 * me + 10 * i + (int)j + 1);
        if (begins)
            CHECK_OK(w, par_neighbor_exchange_begin(from, counts, sent, to, counts, NULL, d, h, &q[0]));
        else
            CHECK_OK(w, par_neighbor_exchange(from, counts, sent, to, counts, NULL, d, h));
        if (both) CHECK_OK(w, par_neighbor_exchange_begin(from, two, NULL, z, two, NULL, d, h, &q[1]));
        if (both) CHECK_OK(w, par_wait(&q[1]));
        if (begins) CHECK_OK(w, par_wait(&q[0]));
        for (size_t block = 0, at = 0; block < 2; block++)
            for (size_t j = 0; j < counts[block]; j++, at++) {
                const int first = 1000 * left + 10 * i + 1;
                CHECK(w, get(to, d, at) == first + (int)(sent ? sent[block] + j : at));
                CHECK(w, get(z, d, at) == (both ? first + (int)at : 0));
            }
        if (variant % 3 == 1 && n == 1 && counts[0] != 2) // to itself other counts than it receives
            CHECK(w, par_neighbor_exchange(from, two, sent, to, counts, NULL, d, h) == PAR_ERR_ARGUMENT);
        if (variant % 3 == 2)
            CHECK(w, par_neighbor_exchange(from, two, sent, to, NULL, NULL, d, h) == PAR_ERR_ARGUMENT);
    }
    put(x[0], PAR_I64, 3, me);
    CHECK_OK(w, par_neighbor_exchange_begin(x[0], two, NULL, z, two, NULL, PAR_I64, h, &q[0]));
    CHECK_OK(w, par_neighbors_close(h));
    CHECK_OK(w, par_wait(&q[0]));
    CHECK(w, z[3] == left && !w->world->closed);
}
static void halo_mismatch(par_comm *w) {
    const int n = par_size(w), me = par_rank(w), right = (me + 1) % n, left = (me + n - 1) % n;
    const int peers[2] = {right, right}, sources[2] = {left, left};
    static const size_t large[2] = {3000, 2000};
    size_t out[2] = {2, 1}, in[2] = {2, 1};
    int *x = (int *)calloc(10000, sizeof *x), *y = x + 5000;
    par_neighbors *h;
    CHECK(w, par_neighbors_open(w, me == n - 1, peers, sources, &h) == PAR_ERR_MISMATCH && !h);
    CHECK(w, me && me != n - 1 && n > 3 ? says(w, "its own error says why") || says(w, "blocks")
                                        : says(w, "list as many neighbors") && says(w, "test_par.c:"));
    const int beyond[1] = {n};
    CHECK(w, par_neighbors_open(w, me == 0, beyond, NULL, &h) == (me ? PAR_ERR_MISMATCH : PAR_ERR_ARGUMENT));
    CHECK_OK(w, par_neighbors_open(w, 2, peers, sources, &h));
    for (int round = 0; round < 4; round++) { // rank 0 sends others than are expected: then all is well again
        const par_dtype d = round == 2 && me == 0 ? PAR_U32 : PAR_I32;
        out[0] = me ? 2 : round == 1 ? 1 : round == 3 ? 5000 : 2, out[1] = me || round != 1 ? 1 : 2;
        if (round == 0 && me == 0) out[0] = 3;
        if (round == 3 && me == 0) out[1] = 0;
        const par_result r = par_neighbor_exchange(x, out, NULL, y, in, NULL, d, h);
        CHECK(w, r == (me == 1 || (d == PAR_U32 && me == 0) ? PAR_ERR_MISMATCH : PAR_OK));
        if (me == 1) CHECK(w, says(w, "rank 0 sent") && says(w, "but rank 1 receives 3 i32 (12 bytes"));
        if (me == 1 && round == 1) CHECK(w, says(w, "in other blocks"));
        CHECK_OK(w, par_neighbor_exchange(x, large, NULL, y, large, NULL, PAR_I32, h));
    }
    CHECK(w, par_neighbor_exchange(x, NULL, NULL, y, in, NULL, PAR_I32, h) == PAR_ERR_ARGUMENT);
    CHECK(w, says(w, "counts is NULL"));
    CHECK(w, par_neighbor_exchange(NULL, in, NULL, y, in, NULL, PAR_I32, h) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_neighbors_close(h));
    free(x);
}
static void halo_late(par_comm *w) { // a neighbor that never comes: the error names it, and no other
    const int n = par_size(w), me = par_rank(w), left = (me + n - 1) % n, right = (me + 1) % n;
    const int both = n == 3 ? 2 : 0; // ranks that come are neighbors, and wait until both have sent
    const size_t counts[2] = {1, 1};
    const int peers[2] = {left, right};
    int x[2] = {0, 0}, y[2];
    char who[32], other[32];
    par_neighbors *h;
    par_request q;
    CHECK_OK(w, par_neighbors_open(w, 2, peers, NULL, &h));
    CHECK_OK(w, par_neighbor_exchange(x, counts, NULL, y, counts, NULL, PAR_I32, h));
    if (me == 0 || me == n - 2) {
        par_set_timeout(w, 0.06);
        snprintf(who, sizeof who, "rank %d (", n - 1);
        snprintf(other, sizeof other, "rank %d (", both ? 1 - me : n);
        CHECK_OK(w, par_neighbor_exchange_begin(x, counts, NULL, y, counts, NULL, PAR_I32, h, &q));
        if (both) test_arrive(&test_shared->words);
        test_wait_for(&test_shared->words, both);
        CHECK(w, par_wait(&q) == PAR_ERR_TIMEOUT);
        CHECK(w, says(w, who) && says(w, "in par_neighbor_exchange at tests/test_par.c:"));
        CHECK(w, !says(w, other));
    }
    if (me < n - 1) test_arrive(&test_shared->words);
    test_wait_for(&test_shared->words, n - 1 + both); // before, no other rank is late, or has closed
    par_set_timeout(w, 1000);
    CHECK_OK(w, par_neighbors_close(h));
}

// A value to the right, by signals alone: words[0] counts those that came, [1] those that were taken.
static void signals(par_comm *w) {
    enum { ROUNDS = 300, WORDS = 8 };
    const int n = par_size(w), me = par_rank(w), right = (me + 1) % n, left = (me + n - 1) % n;
    uint64_t *words = (uint64_t *)par_alloc(w, WORDS * sizeof *words), ordinary = 0;
    double *mine = (double *)par_alloc(w, 2 * sizeof *mine), *there = (double *)par_peer(w, mine, right);
    CHECK(w, words && mine);
    CHECK(w, there || (par_node_of(w, right) != par_node_of(w, me) &&
                       par_signal(words, 1, right, w) == PAR_ERR_UNSUPPORTED && says(w, "another node")));
    for (uint64_t i = 1; i <= ROUNDS && par_node_count(w) == 1; i++) {
        there[0] = (double)i + me, there[1] = -(double)i;
        CHECK_OK(w, par_signal(&words[0], 1, right, w));
        CHECK_OK(w, par_wait_signal(&words[0], i, w));
        CHECK(w, mine[0] == (double)i + left && mine[1] == -(double)i);
        CHECK_OK(w, par_signal(&words[1], 1, left, w));
        CHECK_OK(w, par_wait_signal(&words[1], i, w));
        CHECK_OK(w, par_signal(&words[2], 3, 0, w)); // all of them add to rank 0's
    }
    if (par_node_count(w) == 1 && me == 0)
        CHECK_OK(w, par_wait_signal(&words[2], (uint64_t)(3 * n * ROUNDS), w));
    CHECK_OK(w, par_barrier(w));
    CHECK(w, words[2] == (par_node_count(w) == 1 && me == 0 ? (uint64_t)(3 * n * ROUNDS) : 0));
    CHECK(w, par_signal(&ordinary, 1, 0, w) == PAR_ERR_ARGUMENT && says(w, "par_alloc"));
    CHECK(w, par_wait_signal(&ordinary, 1, w) == PAR_ERR_ARGUMENT && says(w, "par_wait_signal"));
    CHECK(w, par_signal(words, 1, n, w) == PAR_ERR_ARGUMENT && says(w, "par_signal"));
    CHECK(w, par_signal((uint64_t *)(void *)((char *)words + 4), 1, me, w) == PAR_ERR_ARGUMENT);
    CHECK(w, says(w, "not aligned") && !ordinary);
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_free(w, words));
    CHECK_OK(w, par_free(w, mine));
}
// Waits for a signal that nobody sends end with the deadline, or when a rank dies.
static void no_signal(par_comm *w, int dies) {
    const int last = par_size(w) - 1;
    uint64_t *words = (uint64_t *)par_alloc(w, 2 * sizeof *words);
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) == last && dies) {
        test_wait_for(&test_shared->words, last);
        raise(SIGKILL);
    }
    if (par_rank(w) == last) return test_wait_for(&test_shared->words, last);
    if (dies)
        test_arrive(&test_shared->words);
    else
        par_set_timeout(w, 0.06);
    const par_result r = par_wait_signal(words, 7, w);
    CHECK(w, r == (dies ? PAR_ERR_PEER_DIED : PAR_ERR_TIMEOUT) && says(w, "in par_wait_signal at "));
    CHECK(w, says(w, dies ? "died" : "it waits for 7") && par_wait_signal(words, 0, w) == r);
    if (!dies) test_arrive(&test_shared->words);
}
static void signal_late(par_comm *w) { no_signal(w, 0); }
static void signal_killed(par_comm *w) { no_signal(w, 1); }

// What a program may do wrong with requests is an error, also where nobody asserts.
static void requests_twice(par_comm *w) {
    enum { N = 50000 };
    float *x = (float *)malloc(4 * N * sizeof *x), *y = x + N, *z = y + N, *u = z + N;
    const float n = (float)par_size(w);
    par_request q, copy, q1, q2;
    par_comm *c;
    int done = 0;
    for (int i = 0; i < N; i++) x[i] = 1, y[i] = 10, z[i] = u[i] = -1;
    for (int test = 0; test < 2; test++) { // two later calls do not share an operation
        CHECK_OK(w, par_all_reduce_begin(x, z, N, PAR_F32, PAR_SUM, w, &q));
        copy = q;
        CHECK_OK(w, par_wait(&q));
        const par_result r = test ? par_test(&copy, &done) : par_wait(&copy);
        CHECK(w,
              copy.operation == NULL && (par_size(w) == 1 || (r == PAR_ERR_ARGUMENT && says(w, "a copy"))));
        CHECK_OK(w, par_all_reduce_begin(x, z, N, PAR_F32, PAR_SUM, w, &q1));
        CHECK_OK(w, par_all_reduce_begin(y, u, N, PAR_F32, PAR_SUM, w, &q2));
        CHECK_OK(w, par_wait(&q1));
        CHECK_OK(w, par_wait(&q2));
        CHECK(w, z[N - 1] == n && u[N - 1] == 10 * n);
    }
    CHECK_OK(w, par_split(w, 0, par_rank(w), &c)); // the comm, and what was made for the call, are gone
    CHECK_OK(w, par_all_reduce_begin(x, z, N, PAR_F32, PAR_SUM, c, &q));
    q1 = q;
    CHECK_OK(w, par_wait(&q));
    CHECK_OK(w, par_group_begin(c));
    CHECK_OK(w, par_all_reduce_begin(x, z, N, PAR_F32, PAR_SUM, c, &q2));
    CHECK_OK(w, par_group_end(c));
    CHECK_OK(w, par_close(c));
    CHECK(w, par_wait(&q2) == PAR_ERR_ARGUMENT && says(w, "its comm has been closed"));
    if (par_size(w) > 1) CHECK(w, par_wait(&q1) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_all_reduce(x, z, N, PAR_F32, PAR_SUM, w));
    free(x);
}
static void polled(par_comm *w) { // a poll asks the kernel nothing, but now and then
    enum { POLLS = 2000 };
    const int n = par_size(w), right = (par_rank(w) + 1) % n, left = (par_rank(w) + n - 1) % n;
    int x = 7, y = 0, done = 0;
    par_request q;
    CHECK_OK(w, par_recv_begin(&y, 1, PAR_I32, left, w, &q));
    const double start = par__now();
    const long before = lock_questions;
    for (int i = 0; i < POLLS; i++) CHECK(w, par_test(&q, &done) == PAR_OK && !done);
    // PAR__SCAN_RANKS and the sender, every 5 ms
    CHECK(w, (double)(lock_questions - before) <= (n + 1) * (2 + (par__now() - start) / 0.005));
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_send(&x, 1, PAR_I32, right, w));
    while (!done) CHECK_OK(w, par_test(&q, &done));
    CHECK(w, y == 7);
}
static void requests_grouped(par_comm *w) { // they are complete when their groups are
    const int me = par_rank(w), n = par_size(w);
    int x[2] = {me, 1}, y[2] = {-1, -1}, done = 0;
    par_request q[3], group[2];
    for (int begun = 0; begun < 2; begun++) {
        y[0] = -1;
        CHECK_OK(w, par_group_begin(w));
        CHECK_OK(w, par_all_reduce_begin(&x[1], &y[0], 1, PAR_I32, PAR_SUM, w, &q[0]));
        q[2] = q[0];
        for (int i = 0; i < 2; i++) {
            CHECK(w, par_wait(&q[0]) == PAR_ERR_ARGUMENT && says(w, "call par_group_end first"));
            CHECK(w, par_test(&q[0], &done) == PAR_ERR_ARGUMENT && done && y[0] == -1);
        }
        CHECK_OK(w, begun ? par_group_end_begin(w, &group[0]) : par_group_end(w));
        if (begun) { // another one before the first has been waited for
            CHECK_OK(w, par_group_begin(w));
            CHECK_OK(w, par_all_reduce_begin(&x[1], &y[1], 1, PAR_I32, PAR_SUM, w, &q[1]));
            CHECK_OK(w, par_group_end_begin(w, &group[1]));
            CHECK_OK(w, par_wait(&q[1]));
            CHECK(w, y[1] == n);
        }
        for (done = 0; !done;) CHECK_OK(w, par_test(&q[2], &done));
        CHECK(w, y[0] == n);
        CHECK_OK(w, par_wait(&q[0]));
        CHECK(w, !q[0].operation && !q[2].operation);
        if (begun) CHECK_OK(w, par_wait_all(group, 2));
    }
    CHECK(w, !w->groups);
}
static void misused(par_comm *w) { // a result, where it was an assertion
    int x = 1;
    CHECK(w, par_all_reduce(&x, &x, 1, PAR_I32, PAR_SUM, NULL) == PAR_ERR_ARGUMENT);
    CHECK(w, par_group_end_begin(w, NULL) == PAR_ERR_ARGUMENT && says(w, "request is NULL"));
    CHECK(w, par_defaults(NULL, NULL) == PAR_ERR_ARGUMENT && par_open(NULL, NULL) == PAR_ERR_ARGUMENT);
    CHECK(w, par_run_threads(NULL, NULL, NULL) == PAR_ERR_ARGUMENT);
    CHECK(w, par_gemm_select(NULL, 1, w) == PAR_ERR_ARGUMENT && says(w, "shapes is NULL"));
    CHECK(w, par_gemm_select(NULL, 0, NULL) == PAR_ERR_ARGUMENT);
    CHECK_OK(w, par_barrier(w));
}
static void no_factor(par_comm *w) {
    const float x[2] = {1, -3};
    float y[2] = {-1, -1};
    CHECK(w, par_all_reduce(x, y, 2, PAR_F32, PAR_SCALED_SUM, w) == PAR_ERR_ARGUMENT && y[0] == -1);
    CHECK(w, says(w, "pass par_scaled_sum(factor)"));
    CHECK_OK(w, par_all_reduce(x, y, 2, PAR_F32, par_scaled_sum(0), w));
    CHECK(w, y[0] == 0 && y[1] == 0 && par_op_factor(par_scaled_sum(0)) == 0);
    CHECK_OK(w, par_all_reduce(x, y, 2, PAR_F32, par_scaled_sum(-2), w));
    CHECK(w, y[1] == 6 * (float)par_size(w) && par_op_factor(par_scaled_sum(-2)) == -2);
}

// ---- counters that wrap around: each begins just below

// The state of the rings from this rank that 2^32 - 16 cells have passed.
static void wrap_rings(par_comm *c) {
    const uint32_t head = 0u - 16u;
    for (int to = 0; to < c->size; to++) {
        uint8_t *committed;
        par__ring *r = par__ring_index(c, to) < 0 || !par__find_rings(c, 0)
                           ? NULL
                           : par__ring_of(c, c->rank, to, 0, &committed);
        if (!r || !*committed) continue;
        for (uint32_t t = head - 31; t != head + 1; t++) r->cells[(t - 1) % 32].ticket = t;
        r->head = head, r->head_line = 0u - 64u;
        r->tail = r->seen_tail = (uint64_t)r->head_line << 32 | head;
    }
}
static void wrapped_messages(par_comm *w) {
    const int n = par_size(w), left = (par_rank(w) + n - 1) % n, right = (par_rank(w) + 1) % n;
    const int peers[2] = {left, right};
    const size_t ones[2] = {1, 1};
    static const size_t counts[] = {1, 1000, 9000}; // in a cell, behind it, in pieces
    par_neighbors *h;
    CHECK_OK(w, par_neighbors_open(w, 2, peers, NULL, &h));
    for (int k = -1; k < 3; k++) {
        for (int i = 0; i < 60; i++) {
            static __thread int x[9000], y[9000];
            const size_t count = counts[k < 0 ? 0 : k];
            if (i == 20) {
                CHECK_OK(w, par_barrier(w));
                wrap_rings(k < 0 ? h->own : w);
                par__message_queue(w, PAR_KIND_SEND, right)->issued =
                    par__message_queue(w, PAR_KIND_RECV, left)->issued = 0u - 9u;
                CHECK_OK(w, par_barrier(w));
            }
            x[0] = x[count - 1] = 100 * par_rank(w) + i, x[1] += count < 2;
            if (k < 0)
                CHECK_OK(w, par_neighbor_exchange(x, ones, NULL, y, ones, NULL, PAR_I32, h));
            else
                CHECK_OK(w, par_sendrecv(x, count, right, y, count, left, PAR_I32, w));
            if (k >= 0) CHECK(w, y[0] == 100 * left + i && y[count - 1] == y[0]);
        }
    }
    CHECK_OK(w, par_neighbors_close(h));
}
static void set_phases(par_comm *w, uint32_t phase) {
    CHECK_OK(w, par_barrier(w));
    par__lock_world(w->world); // there may be a progress thread
    for (int i = 0; i < PAR__TRACKS; i++)
        PAR__STORE(&par__arrivals_of(w, w->rank)->phase[i], w->phase[i] = phase);
    par__unlock_world(w->world);
    CHECK_OK(w, par_barrier(w));
}
// The last rank comes to a barrier when another rank that it can wake sleeps there.
static void wake_once(par_comm *w) {
    const int last = par_size(w) - 1;
    int asleep = w->rank != last || w->ring_count == 1;
    for (int r = 0; !asleep; r = (r + 1) % last) {
        if (par__arena_index(w, r) >= 0)
            asleep = PAR__LOAD(&w->world->arena->ranks[par__arena_index(w, r)].sleeping) == PAR__ASLEEP;
        if (!asleep) usleep(20);
    }
    CHECK_OK(w, par_barrier(w));
}
// A rank's calls, halves of stages ... of collectives. What other ranks count on meanwhile is stored as they
// read it: the last one may ring a doorbell after the barrier has let this rank go.
static void wrap_collectives(par_comm *w, int wakes) {
    CHECK_OK(w, par_barrier(w));
    if (wakes) wake_once(w);
    par__lock_world(w->world);                                       // there may be a progress thread
    w->collectives.issued = 0u - 12u + (w->collectives.issued & 1u); // even calls follow odd ones
    w->half = 0u - 4u + (w->half & 1u);
    w->offload_count = w->world->poll_round = 0u - 3u;
    PAR__STORE(&w->world->control->doorbell, 0u - 3u);
    par__unlock_world(w->world);
    if (!w->world->arena_rank) PAR__STORE(&w->world->arena->scan_next, 0u - 3u);
    CHECK_OK(w, par_barrier(w));
    while (wakes-- > 1) wake_once(w); // the doorbells wrap around
}
static void wrapped_collectives(par_comm *w) {
    static __thread float x[50000], y[50000];
    const float n = (float)par_size(w);
    const int cma = w->world->cma;
    w->world->cma = 0; // all are staged
    for (int k = 0; k < 3; k++) {
        wrap_collectives(w, k ? 0 : 5);
        set_phases(w, 0u - 9u);
        for (int i = 0; i < 40; i++) {
            par_request q;
            const size_t count = k == 0 ? 4 : k == 1 ? 3000 : 50000;
            x[0] = x[count - 1] = (float)i;
            CHECK_OK(w, par_all_reduce_begin(x, y, count, PAR_F32, PAR_SUM, w, &q));
            if (q.operation) CHECK_OK(w, par__check_wait(q.operation)); // also at call 0
            CHECK_OK(w, par_wait(&q));
            CHECK(w, y[0] == n * (float)i && y[count - 1] == y[0]);
        }
    }
    // No rank's published phase is left behind, whatever the algorithm.
    for (int a = 0; par_algorithm_name(w, PAR_KIND_ALL_REDUCE, a); a++) {
        char name[64];
        snprintf(name, sizeof name, "all_reduce:%s", par_algorithm_name(w, PAR_KIND_ALL_REDUCE, a));
        CHECK_OK(w, par_force_algorithm(w, name));
        set_phases(w, (1u << 31) - 2);
        CHECK_OK(w, par_all_reduce(x, y, 9000, PAR_F32, PAR_SUM, w));
        for (int i = 0; i < PAR__TRACKS; i++)
            CHECK(w, par__arrivals_of(w, w->rank)->phase[i] >> 29 == w->phase[i] >> 29);
    }
    CHECK_OK(w, par_force_algorithm(w, ""));
    CHECK_OK(w, par_barrier(w));
    w->world->cma = cma;
}

// A node has so many blocks: a comm and a par_alloc take one each; beyond them all ranks get an error that
// says so, and go on.
static void use_up_blocks(par_comm *w, int room) { // leave so many; < 0: free them again
    const uint64_t first = w->world->arena_bytes - (uint64_t)PAR__EXTENT_MAX * 4096;
    CHECK_OK(w, par_barrier(w));
    par__extents *a = par__extents_of(w->world->arena, 0);
    if (w->world->arena_rank == 0) {
        uint64_t n = a->count;
        while (n && a->extent[n - 1].at >= first) n--;
        CHECK(w, n == 0 || a->extent[n - 1].at + a->extent[n - 1].bytes <= first);
        for (; room >= 0 && n < PAR__EXTENT_MAX - (uint64_t)room; n++) {
            a->extent[n].at = first + 4096 * n;
            a->extent[n].bytes = 4096;
        }
        a->count = n;
    }
    CHECK_OK(w, par_barrier(w));
}
static void blocks_used_up(par_comm *w) {
    int here = 0, sum = 1;
    par_comm *c;
    for (int r = 0; r < w->size; r++)
        here += par__arena_index(w, r) >= 0 && par__local_index(&w->nodes, r) == 0;
    const uint64_t before = blocks_in_use(w);
    CHECK_OK(w, par_split(w, 0, par_rank(w), &c));
    CHECK(w, blocks_in_use(w) == before + 1);
    CHECK_OK(w, par_close(c));
    use_up_blocks(w, here);
    void *p = par_alloc(w, 64);
    CHECK(w, p && !par_alloc(w, 64) && says(w, "all 65536 blocks of the node's shared memory are in use"));
    CHECK(w, par_split(w, 0, par_rank(w), &c) == PAR_ERR_MEMORY && !c);
    CHECK(w, says(w, "all 65536 blocks of the node's shared memory are in use: close comms, or free memory"));
    CHECK_OK(w, par_all_reduce(&sum, &sum, 1, PAR_I32, PAR_SUM, w));
    CHECK(w, sum == par_size(w));
    CHECK_OK(w, par_free(w, p));
    CHECK_OK(w, par_split(w, 0, par_rank(w), &c));
    CHECK_OK(w, par_close(c));
    use_up_blocks(w, -1);
    CHECK(w, !par_alloc(w, SIZE_MAX / 8) && says(w, "out of memory") && !says(w, "65536"));
}

// Comms have tags of their own, whatever their numbers; beyond the last number all ranks hear of it.
static void comm_numbers(par_comm *w) {
    enum { N = 100 };
    const uint32_t n = (uint32_t)par_size(w), next = w->world->next_id; // rank r has r + 1, r + 1 + n ...
    const uint32_t last = (par__comm_ids(w->world) - 2) / n, numbers[] = {(1 << 15) / n, last};
    for (int i = 0; i < 2; i++) {
        par_comm *c;
        par_request q[2];
        float x[2][N], y[2][N];
        w->world->next_id = numbers[i];
        CHECK_OK(w, par_split(w, 0, par_rank(w), &c));
        CHECK(w, c->id == numbers[i] * n + 1);
        par_comm *const both[2] = {w, c};
        for (int k = 0; k < 2; k++)
            for (int j = 0; j < N; j++) x[k][j] = k ? 100 : 1, y[k][j] = -1;
        for (int j = 0; j < 2; j++) { // odd ranks begin with the other comm
            const int k = (par_rank(w) + j) % 2;
            CHECK_OK(w, par_all_reduce_begin(x[k], y[k], N, PAR_F32, PAR_SUM, both[k], &q[k]));
        }
        CHECK_OK(w, par_wait_all(q, 2));
        for (int k = 0; k < 2; k++)
            CHECK(w, y[k][0] == (float)par_size(w) * x[k][0] && y[k][N - 1] == y[k][0]);
        CHECK_OK(w, par_close(c));
    }
    for (int color = 0; color > -2; color--) {
        par_comm *c = w;
        CHECK(w, par_split(w, par_rank(w) ? color : 0, 0, &c) == PAR_ERR_MEMORY && !c);
        CHECK(w, says(w, "numbers that comms of this world can have are used up"));
    }
    w->world->next_id = next + 1;
    CHECK_OK(w, par_barrier(w));
}

// ---- the list ---------------------------------------------------------------------------------------------

const test tests[] = {
    {"random_numbers", random_numbers, TEST_SERIAL, 1, 60},
    {"normals", normals, TEST_SERIAL, 1, 60},
    {"functions", functions, TEST_SERIAL, 1, 600},
    {"casts", casts, TEST_SERIAL, 1, 60},
    {"kernels_agree", kernels_agree, TEST_SERIAL, 1, 60},
    {"eight_bit_floats", eight_bit_floats, TEST_SERIAL, 1, 60},
    {"kernels_write", kernels_write, TEST_SERIAL, 1, 60},
    {"device", device, TEST_SERIAL, 1, 60},
    {"gemm", gemm, TEST_SERIAL, 1, 60},
    {"gemm_tiles", gemm_tiles, TEST_SERIAL, 1, 60},
    {"canonical_gemm", canonical_gemm, TEST_SERIAL, 1, 60},
    {"nearest", nearest, TEST_SERIAL, 1, 60},
    {"handed_out", handed_out, TEST_SERIAL, 1, 60},
    {"visitors", visitors, TEST_SERIAL, 1, 60},
    {"handed_out_to_users", handed_out_to_users, TEST_SERIAL, 1, 60},
    {"adopted", adopted, TEST_SERIAL, 1, 60},
    {"scribbled", scribbled, TEST_SERIAL, 1, 200},
    {"forged", forged, TEST_ALONE, 2, 60},
    {"topologies", topologies, TEST_SERIAL, 1, 60},
    {"unbound_again", unbound_again, TEST_SERIAL, 1, 60},
    {"crowded", crowded, TEST_SERIAL, 1, 60},
    {"bound", bound, TEST_ANY | TEST_BIND | TEST_LAUNCHES | TEST_RANKS, 1, 60},
    {"offsets", offsets, TEST_ANY, 1, 60},
    {"traced", traced, TEST_ANY, 2, 60},
    {"traced_beside", traced_beside, TEST_ANY | TEST_PROGRESS | TEST_LAUNCHES, 1, 60},
    {"timing", timing, TEST_ANY, 1, 60},
    {"collectives_private", collectives_private, TEST_ANY, 1, 120},
    {"collectives_far", collectives_far, TEST_ALONE, 2, 120},
    {"collectives_symmetric", collectives_symmetric, TEST_ANY | TEST_SMALL, 1, 120},
    {"collectives_send_symmetric", collectives_send_symmetric, TEST_ALONE, 2, 120},
    {"collectives_recv_symmetric", collectives_recv_symmetric, TEST_ALONE, 2, 120},
    {"collectives_large_private", collectives_large_private, TEST_ANY, 2, 120},
    {"collectives_large_symmetric", collectives_large_symmetric, TEST_ALONE, 2, 120},
    {"collectives_shaped", collectives_shaped, TEST_SERIAL, 1, 120},
    {"slots_used_up", slots_used_up, TEST_SERIAL, 1, 120},
    {"messages_counted", messages_counted, TEST_SERIAL, 1, 120},
    {"collectives_mixed", collectives_mixed, TEST_ANY, 2, 120},
    {"bit_equality", bit_equality, TEST_ANY, 1, 120},
    {"tree_sums", tree_sums, TEST_ALONE, 1, 60},
    {"nan_and_extremes", nan_and_extremes, TEST_ANY, 2, 60},
    {"messages", messages, TEST_ANY, 1, 60},
    {"shared_copies", shared_copies, TEST_ANY, 2, 60},
    {"fails_helped", fails_helped, TEST_FAULT | TEST_LAUNCHES, 2, 60},
    {"outstanding", outstanding, TEST_ANY, 1, 60},
    {"random_operations", random_operations, TEST_ANY, 2, 120},
    {"groups", groups, TEST_ANY, 1, 60},
    {"mesh", mesh, TEST_ANY, 1, 60},
    {"mesh_axes", mesh_axes, TEST_ANY, 1, 60},
    {"comm_numbers", comm_numbers, TEST_ANY, 1, 60},
    {"blocks_used_up", blocks_used_up, TEST_ANY, 1, 60},
    {"wrapped_messages", wrapped_messages, TEST_ANY, 1, 60},
    {"wrapped_collectives", wrapped_collectives, TEST_ANY, 1, 60},
    {"requests_twice", requests_twice, TEST_ANY, 1, 60},
    {"requests_grouped", requests_grouped, TEST_ANY, 1, 60},
    {"polled", polled, TEST_ANY | TEST_LAUNCHES, 2, 60},
    {"misused", misused, TEST_ANY | TEST_RANKS, 1, 60},
    {"no_factor", no_factor, TEST_ANY | TEST_RANKS, 1, 60},
    {"memory", memory, TEST_ANY | TEST_SMALL, 1, 60},
    {"out_of_range", out_of_range, TEST_ALONE, 1, 60},
    {"ledger", ledger, TEST_ANY, 1, 60},
    {"grouped", grouped, TEST_ANY, 1, 60},
    {"tagged", tagged, TEST_ANY, 1, 60},
    {"described", described, TEST_ANY, 1, 60},
    {"ended_at_once", ended_at_once, TEST_ANY, 1, 60},
    {"many_begun", many_begun, TEST_ANY, 1, 60},
    {"progress_thread", progress_thread, TEST_ANY | TEST_PROGRESS, 1, 60},
    {"beside_thread", beside_thread, TEST_ANY | TEST_PROGRESS | TEST_LAUNCHES | TEST_NODES, 2, 60},
    {"offloaded", offloaded, TEST_FAULT, 2, 60},
    {"alike_calls", alike_calls, TEST_ANY, 2, 60},
    {"ordinary_memory", ordinary_memory, TEST_ANY, 2, 60},
    {"faster_way", faster_way, TEST_ANY, 2, 60},
    {"copies", copies, TEST_ANY, 1, 60},
    {"page_offsets", page_offsets, TEST_ANY, 1, 60},
    {"repeated_kinds", repeated_kinds, TEST_ANY, 1, 60},
    {"repeated_calls", repeated_calls, TEST_ANY, 1, 60},
    {"repeated_errors", repeated_errors, TEST_ANY, 2, 60},
    {"halos", halos, TEST_ANY, 1, 60},
    {"halo_ring", halo_ring, TEST_ANY, 1, 60},
    {"halo_repeats", halo_repeats, TEST_ANY, 1, 60},
    {"halo_mismatch", halo_mismatch, TEST_ANY, 3, 60},
    {"halo_late", halo_late, TEST_FAULT, 3, 60},
    {"signals", signals, TEST_ANY, 1, 60},
    {"signal_late", signal_late, TEST_FAULT, 2, 60},
    {"signal_killed", signal_killed, TEST_KILL, 2, 60},
    {"tuned", tuned, TEST_ANY, 1, 60},
    {"mismatch", mismatch, TEST_ANY, 2, 60},
    {"counts_differ", counts_differ, TEST_ANY, 2, 60},
    {"group_differs", group_differs, TEST_ANY, 2, 60},
    {"attached", attached, TEST_ANY, 1, 60},
    {"no_leaks", no_leaks, TEST_ANY | TEST_LAUNCHES | TEST_NODES, 2, 60},
    {"opened_twice", opened_twice, TEST_ALONE, 2, 60},
    {"own_texts", own_texts, TEST_FAULT, 2, 60},
    {"never_arrives", never_arrives, TEST_FAULT, 2, 60},
    {"stalls_within", stalls_within, TEST_FAULT, 2, 60},
    {"one_connection", one_connection, TEST_ANY, 2, 60},
    {"receive_never_sent", receive_never_sent, TEST_FAULT, 2, 60},
    {"bad_buffer", bad_buffer, TEST_ALONE, 2, 60},
    {"closed_apart", closed_apart, TEST_ANY, 1, 60},
    {"closed_begun", closed_begun, TEST_ANY, 2, 60},
    {"closed_beside", closed_begun, TEST_ANY | TEST_PROGRESS, 2, 60},
    {"closed_waited", closed_waited, TEST_FAULT, 2, 60},
    {"closed_broken", closed_broken, TEST_FAULT, 2, 60},
    {"never_waited", never_waited, TEST_SERIAL, 1, 60},
    {"forgotten", forgotten, TEST_FAULT, 2, 60},
    {"killed_open", killed_open, TEST_KILL, 2, 60},
    {"aborted", aborted, TEST_FAULT, 2, 60},
    {"killed_before", killed_before, TEST_KILL, 2, 60},
    {"killed_within", killed_within, TEST_KILL, 2, 60},
    {"left_early", left_early, TEST_ALONE, 2, 60},
    {"late", late, TEST_FAULT | TEST_LAUNCHES | TEST_RANKS, 3, 60},
};
const int test_count = (int)(sizeof tests / sizeof tests[0]);

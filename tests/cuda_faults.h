// cuda_faults.h - a part of test_cuda.cu: a rank of an elastic world dies, and the others go on with their
// devices. Each death has a world of its own. Without the emulation, too: several processes share a GPU.

enum { FAULT_COUNT = 5000, FAULT_RANKS = 3 };
// What else: its device does not come to its calls; the others do not wait for theirs; the victim waits for
// its device when another rank revokes the comm, and dies then; the last of the others dies, too, before it
// joins them again.
enum { FAULT_STALLS = 1, FAULT_LEAVES = 2, FAULT_WAITS = 4, FAULT_TWICE = 8 };
enum { FAULT_REOPENS, FAULT_CLOSES_BEFORE, FAULT_OPENS_ANOTHER }; // how the others go on
typedef struct fault {
    par_cuda_backend backend;
    int ranks, victim;
    int calls; // in flight; the victim begins one less
    int steps; // how often the victim's calls go on before it dies
    int what, how;
    int stage; // the victim dies in a step of this ZeRO stage instead; -1: does not
    int grows; // new ranks come afterwards
} fault;
typedef struct fault_rank { // what a rank has on its device
    par_comm *c;
    par_cuda *cuda;
    float *x, *y, *kept; // kept: nobody is sent it, and nobody but this rank may change it
    float *freed;        // others have it mapped when it is freed, after the death
    par_request begun[4];
    int begun_count;
    par_zero *z[PLACES];
    int tensors[PLACES][6];
} fault_rank;

#if defined(CUDA_EMU)
static void stall(cudaStream_t stream) { emu_stall(stream); }
static int mapped_of_dead(void) { return emu_mapped_of_dead(); }
static void use_devices(int n) { emu_devices(n); }
#else
static void CUDART_CB never_ends(void *) {
    for (;;) pause();
}
static void stall(cudaStream_t stream) { cudaLaunchHostFunc(stream, never_ends, NULL); }
static int mapped_of_dead(void) { return 0; }
static void use_devices(int) {}
#endif
static int is_fault(par_result r) {
    return r == PAR_ERR_PEER_DIED || r == PAR_ERR_REVOKED || r == PAR_ERR_TIMEOUT || r == PAR_ERR_ABORTED;
}
#define FAULT_TRY(c, call)                                                                                   \
    do {                                                                                                     \
        const par_result fault_result = (call);                                                              \
        CHECK(c, !fault_result || is_fault(fault_result));                                                   \
        if (fault_result) return fault_result;                                                               \
    } while (0)
// Allocations that this rank has mapped of ranks that are not in its comm.
static int mapped_of_others(const fault_rank *f) {
    int n = 0;
    for (int i = 0; i < f->cuda->mapping_count; i++) {
        int here = 0;
        for (int r = 0; r < par_size(f->c); r++)
            here |= par_world_rank(f->c, r) == f->cuda->mappings[i].owner;
        n += f->cuda->mappings[i].base && !here;
    }
    return n;
}
static par_result fault_copy(const fault_rank *f, void *to, const void *from) {
    par_device *d = par_cuda_device(f->cuda);
    const par_result r = d->copy(d, to, from, sizeof(float) * FAULT_COUNT, NULL);
    return r ? r : d->stream_sync(d, NULL);
}
// A sum, and a message around the ring, with right results.
static par_result fault_round(const fault_rank *f) {
    static float host[FAULT_COUNT];
    par_comm *c = f->c;
    const int n = par_size(c), me = par_rank(c), last = (me + n - 1) % n;
    par_request q[2];
    int i = 0;
    for (int j = 0; j < FAULT_COUNT; j++) host[j] = (float)(me + j % 7);
    FAULT_TRY(c, fault_copy(f, f->x, host));
    FAULT_TRY(c, par_all_reduce(f->x, f->y, FAULT_COUNT, PAR_F32, PAR_SUM, c));
    FAULT_TRY(c, fault_copy(f, host, f->y));
    while (i < FAULT_COUNT && host[i] == (float)(n * (n - 1) / 2 + n * (i % 7))) i++;
    CHECK(c, i == FAULT_COUNT);
    if (n == 1) return PAR_OK;
    FAULT_TRY(c, par_recv_begin(f->y, FAULT_COUNT, PAR_F32, last, c, &q[0]));
    const par_result sent = par_send_begin(f->x, FAULT_COUNT, PAR_F32, (me + 1) % n, c, &q[1]);
    const par_result ended = par_wait_all(q, sent ? 1 : 2);
    FAULT_TRY(c, sent ? sent : ended);
    FAULT_TRY(c, fault_copy(f, host, f->y));
    for (i = 0; i < FAULT_COUNT && host[i] == (float)(last + i % 7);) i++;
    CHECK(c, i == FAULT_COUNT);
    return PAR_OK;
}
// The calls in which the victim dies: with what it has begun, when the others have begun all.
static par_result fault_calls(fault_rank *f, const fault *t) {
    par_comm *c = f->c;
    const int dies = par_rank(c) == t->victim, begun = t->calls - dies, leaves = t->what & FAULT_LEAVES;
    par_request *q = f->begun;
    par_result r = PAR_OK;
    int n = 0;
    if (dies && t->what & FAULT_STALLS) stall(par_cuda_stream(f->cuda));
    for (; n < begun && !r; n += !r)
        r = par_all_reduce_begin(f->x, f->x, FAULT_COUNT, PAR_F32, PAR_SUM, c, &q[n]);
    test_arrive(&test_shared->words);
    if (dies) test_wait_for(&test_shared->words, par_size(c));
    for (int i = 0; i < t->steps && (dies || leaves); i++, usleep(1000)) par__step_calls(c);
    if (dies) raise(SIGKILL);
    if (leaves && !r) return f->begun_count = n, PAR_ERR_REVOKED;
    const par_result ended = par_wait_all(q, n);
    FAULT_TRY(c, r ? r : ended);
    return par_cuda_sync(f->cuda);
}
static par_result fault_waits(fault_rank *f, const fault *t) {
    if (par_rank(f->c) == t->victim) {
        stall(par_cuda_stream(f->cuda));
        test_arrive(&test_shared->words);
        CHECK(f->c, par_cuda_sync(f->cuda) == PAR_ERR_REVOKED);
        raise(SIGKILL);
    }
    test_wait_for(&test_shared->words, 1);
    return par_revoke(f->c);
}
// A step that the death interrupts. Others may be behind it in a gather, or in the reduction.
static par_result fault_step(par_comm *c, par_zero *z, int dies) {
    for (int u = 0; u < 2; u++) {
        FAULT_TRY(c, par_zero_forward_begin(z, u));
        FAULT_TRY(c, par_zero_forward_end(z, u));
    }
    for (int u = 1; u >= 0; u--) {
        FAULT_TRY(c, par_zero_backward_begin(z, u));
        if (dies && u == 0) raise(SIGKILL);
        FAULT_TRY(c, par_zero_backward_end(z, u));
    }
    FAULT_TRY(c, par_zero_step(z, 1, NULL));
    return PAR_OK;
}
static zero_case fault_case(const fault *t) {
    zero_case l = {t->stage, PAR_ZERO_ADAMW, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32};
    l.buddies = 1;
    return l;
}
static void fault_trains(fault_rank *f, const fault *t, int step) {
    const zero_case l = fault_case(t);
    for (int at = 0; at < PLACES; at++) {
        one_microbatch(f->c, f->z[at], at ? f->cuda : NULL, f->tensors[at], &l, step, 0, 0);
        CHECK_OK(f->c, par_zero_step(f->z[at], 1, NULL));
    }
}
static void test_wait_for_flag(const test_words *words) {
    while (!__atomic_load_n(&words->issued, __ATOMIC_SEQ_CST)) usleep(200);
}
static par_result fault_agree(par_comm *c, par_result r) { // on all alike
    uint64_t well = !r;
    if (r) CHECK_OK(c, par_revoke(c)); // who waits for a message of this rank
    const par_result agreed = par_agree(c, &well);
    CHECK(c, !agreed || is_fault(agreed));
    return agreed ? agreed : well ? PAR_OK : PAR_ERR_REVOKED;
}
static par_comm *fault_shrink(par_comm *c) {
    par_comm *next;
    CHECK_OK(c, par_revoke(c));
    CHECK_OK(c, par_shrink(c, &next));
    if (!next) _exit(5);
    return next;
}
static par_comm *fault_reopen(const fault_rank *f, const fault *t, par_comm *next) {
    if (t->what & FAULT_TWICE && par_rank(next) == par_size(next) - 1) raise(SIGKILL);
    for (;;) {
        const par_result r = par_cuda_reopen(f->cuda, next);
        CHECK(next, !r || is_fault(r));
        if (!fault_agree(next, r)) return next;
        par_comm *last = next;
        next = fault_shrink(last);
        CHECK_OK(next, par_close(last));
    }
}
static void fault_moves(fault_rank *f, const fault *t, par_comm *next) { // to the comm of those that live
    par_comm *c = f->c;
    if (t->how == FAULT_OPENS_ANOTHER) CHECK_OK(next, par_cuda_close(f->cuda));
    if (t->how != FAULT_REOPENS) { // rank 0 closes when the others have something mapped still
        if (par_rank(next)) test_wait_for_flag(&test_shared->words);
        CHECK_OK(next, par_close(c));
        __atomic_store_n(&test_shared->words.issued, 1, __ATOMIC_SEQ_CST);
    }
    if (t->how == FAULT_OPENS_ANOTHER)
        f->cuda = open_cuda(next, t->backend);
    else
        next = fault_reopen(f, t, next);
    par_zero_comms now;
    memset(&now, 0, sizeof now);
    now.comm = next;
    for (par_zero *z : f->z)
        if (z) CHECK_OK(next, par_zero_recover(z, next, &now));
    if (t->how == FAULT_REOPENS) CHECK_OK(next, par_close(c));
    f->c = next;
}
static void fault_recover(fault_rank *f, const fault *t) {
    static float host[FAULT_COUNT];
    par_comm *c = f->c, *next = fault_shrink(c);
    const cudaStream_t stream = par_cuda_comm_stream(c);
    CHECK(next, !stream || !cudaStreamQuery(stream)); // nothing is on its way
    for (int i = 0; i < f->begun_count; i++) {
        const par_result ended = par_wait(&f->begun[i]);
        CHECK(next, !ended || is_fault(ended));
    }
    for (int i = 0; i < 5000; i++) cudaMemsetAsync(f->y, i, 16, par_cuda_stream(f->cuda)); // takes a while
    CHECK_OK(next, par_cuda_free(f->cuda, PAR_CUDA_DEVICE, f->freed));
    fault_moves(f, t, next);
    next = f->c;
    CHECK(next, mapped_of_others(f) == 0 && mapped_of_dead() == 0);
    for (const par__cuda_export *x = f->cuda->exports; x; x = x->next) CHECK(next, x->free_count == 0);
    CHECK_OK(next, fault_copy(f, host, f->kept));
    CHECK(next, host[0] == 1 && host[FAULT_COUNT - 1] == 1);
}
static void fault_open(fault_rank *f, par_comm *c, const fault *t) {
    static float ones[FAULT_COUNT];
    const zero_case l = fault_case(t);
    memset(f, 0, sizeof *f);
    f->c = c;
    f->cuda = open_cuda(c, t->backend);
    for (float **p : {&f->x, &f->y, &f->kept, &f->freed}) *p = (float *)on_device(c, f->cuda, sizeof ones);
    for (float &x : ones) x = 1;
    CHECK_OK(c, fault_copy(f, f->kept, ones));
    if (t->stage < 0 || par_rank_before(c, 0) >= 0) return;
    f->z[HOST] = open_zero(c, &l, NULL, f->tensors[HOST]);
    f->z[DEVICE] = open_zero(c, &l, par_cuda_zero(f->cuda), f->tensors[DEVICE]);
}
// The first ranks of a world, until one has died and the others have the sums, and the weights, that they
// should. Then there may come more.
static void fault_goes_on(fault_rank *f, const fault *t) {
    par_comm *more, *c = f->c;
    const int trains = t->stage >= 0, dies = par_rank(c) == t->victim;
    CHECK_OK(c, fault_round(f));
    CHECK_OK(c, par_all_reduce(f->freed, f->freed, 4, PAR_F32, PAR_MAX, c));
    for (int step = 0; step < 2 && trains; step++) fault_trains(f, t, step);
    par_result r = trains                  ? fault_step(c, f->z[DEVICE], dies)
                   : t->what & FAULT_WAITS ? fault_waits(f, t)
                                           : fault_calls(f, t);
    if (!r) r = fault_round(f);
    CHECK(c, (t->what & FAULT_LEAVES ? r : fault_agree(c, r)) != PAR_OK); // to agree lets calls go on
    fault_recover(f, t);
    CHECK_OK(f->c, fault_round(f));
    for (int step = 2; step < 4 && trains; step++) fault_trains(f, t, step);
    if (trains) CHECK(f->c, zero_difference(f->c, f->z, f->tensors, PAR_ZERO_VALUE) <= 2e-4);
    for (par_zero *z : f->z) CHECK_OK(f->c, par_zero_close(z));
    if (!t->grows) return;
    CHECK_OK(f->c, par_grow(f->c, t->grows, &more));
    CHECK_OK(more, par_cuda_reopen(f->cuda, more));
    CHECK(more, par_all_reduce(f->x, f->x, 8, PAR_F32, PAR_SUM, f->c) == PAR_ERR_UNSUPPORTED);
    CHECK_OK(more, par_close(f->c));
    f->c = more;
    CHECK_OK(more, fault_round(f));
}
static int fault_rank_main(par_comm *world, const fault *t) {
    fault_rank f;
    fault_open(&f, world, t);
    if (par_rank_before(world, 0) < 0)
        fault_goes_on(&f, t);
    else // this rank is a new one
        CHECK_OK(f.c, fault_round(&f));
    for (float *p : {f.x, f.y, f.kept}) CHECK_OK(f.c, par_cuda_free(f.cuda, PAR_CUDA_DEVICE, p));
    CHECK_OK(f.c, par_cuda_close(f.cuda));
    return par_close(f.c) != PAR_OK;
}
// A world in a process of its own, which starts the ranks.
static void in_elastic_world(par_comm *w, const fault *t, int (*rank_main)(par_comm *, const fault *)) {
    int status = 0;
    fflush(NULL);
    test_shared->words.count = test_shared->words.issued = 0;
    const pid_t pid = test_fork();
    if (!pid) {
        par_desc d;
        par_comm *world;
        memset(&d, 0, sizeof d);
        d.elastic = 1, d.rank_count = t->ranks, d.timeout_s = 60;
        SEED(t->steps);
        if (t->backend == PAR_CUDA_AUTO) use_devices(2); // the others have one each, and no NCCL joins them
        alarm(100);
        _exit(par_open(&d, &world) ? 8 : rank_main(world, t));
    }
    waitpid(pid, &status, 0);
    CHECK(w, status == 0);
    if (status)
        fprintf(stderr, "victim %d, %d calls, %d steps, what %d, stage %d: status %x\n", t->victim, t->calls,
                t->steps, t->what, t->stage, status);
}

static void deaths(par_comm *w) {
    enum {
        N = FAULT_RANKS,
        ANOTHER = FAULT_OPENS_ANOTHER,
        BEFORE = FAULT_CLOSES_BEFORE,
        STAYS = FAULT_REOPENS
    };
    static const fault faults[] = {
        {PAR_CUDA_PEER, N, 1, 1, 0, 0, ANOTHER, -1, 0},           // before a call
        {PAR_CUDA_AUTO, N, 0, 3, 0, FAULT_STALLS, BEFORE, -1, 0}, // its array is never ready
        {PAR_CUDA_PEER, N, 2, 4, 3, 0, STAYS, -1, 2},             // in the midst of calls
        {PAR_CUDA_PEER, N, 2, 4, 2, FAULT_LEAVES, STAYS, -1, 0},
        {PAR_CUDA_PEER, N, 1, 0, 0, FAULT_WAITS, STAYS, -1, 0},
        {PAR_CUDA_STAGING, N, 1, 3, 2, 0, STAYS, -1, 0},
        {PAR_CUDA_PEER, N, 1, 0, 0, 0, STAYS, 1, 0}, // in training
        {PAR_CUDA_PEER, N, 0, 0, 0, 0, STAYS, 3, 1},
        {PAR_CUDA_PEER, N + 1, 1, 2, 1, FAULT_TWICE, STAYS, -1, 0},
        {PAR_CUDA_PEER, 2, 1, 2, 1, 0, BEFORE, -1, 1}, // one rank is left, and then there are two
    };
    for (const fault &t : faults) in_elastic_world(w, &t, fault_rank_main);
}
#if defined(CUDA_EMU)
static void death_points(par_comm *w) { // many of them
    for (int i = 0; i < 12; i++) {
        const fault t = {PAR_CUDA_PEER, FAULT_RANKS, i % FAULT_RANKS, 2 + i % 3, i, i % 2 ? FAULT_LEAVES : 0,
                         i % 3,         -1,          i == 5};
        in_elastic_world(w, &t, fault_rank_main);
    }
}
#endif
#if defined(PAR_CUDA_NCCL)
// A communicator of NCCL is aborted, and another one takes its place.
static int revoked_rank_main(par_comm *world, const fault *t) {
    fault_rank f;
    fault_open(&f, world, t);
    CHECK_OK(world, fault_round(&f));
    f.begun_count = 1;
    CHECK_OK(world, par_all_reduce_begin(f.x, f.y, FAULT_COUNT, PAR_F32, PAR_SUM, world, &f.begun[0]));
    CHECK(world, par_cuda_reopen(f.cuda, world) == PAR_ERR_ARGUMENT);
    fault_recover(&f, t);
    CHECK_OK(f.c, fault_round(&f));
    for (float *p : {f.x, f.y, f.kept}) CHECK_OK(f.c, par_cuda_free(f.cuda, PAR_CUDA_DEVICE, p));
    CHECK_OK(f.c, par_cuda_close(f.cuda));
    return par_close(f.c) != PAR_OK;
}
static void revoked_nccl(par_comm *w) {
    const fault t = {PAR_CUDA_NCCL_BACKEND, 1, -1, 1, 0, 0, FAULT_REOPENS, -1, 0};
    in_elastic_world(w, &t, revoked_rank_main);
}
#endif

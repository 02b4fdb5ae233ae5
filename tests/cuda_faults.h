// cuda_faults.h - a part of test_cuda.cu: a rank of an elastic world dies, and the others go on with their
// devices. Each death has a world of its own. Under nvcc several processes share a GPU.

enum { FAULT_COUNT = 5000, FAULT_RANKS = 3 };
typedef struct fault {
    par_cuda_backend backend;
    int victim;
    int calls; // in flight, of which the victim begins one less; -1: the victim waits for its device, another
               // rank revokes the comm, and the victim dies
    int steps; // how often the victim's calls go on before it dies
    int stalls; // its device does not come to its calls
    int stage;  // of a ZeRO context that trains, which the death interrupts; -1: none
    int grows;  // new ranks, which take the places of the dead
    int how;    // the others go on, see fault_recover
} fault;
enum { REOPENS, CLOSES_BEFORE, OPENS_ANOTHER };
typedef struct fault_rank { // what a rank has on its device
    par_comm *c;
    par_cuda *cuda;
    float *x, *y, *kept; // kept: nobody is sent it, and nobody but this rank may change it
} fault_rank;

static int is_fault(par_result r) {
    return r == PAR_ERR_PEER_DIED || r == PAR_ERR_REVOKED || r == PAR_ERR_TIMEOUT || r == PAR_ERR_ABORTED;
}
#define FAULT_TRY(c, call)                                                                                   \
    do {                                                                                                     \
        const par_result fault_result = (call);                                                              \
        CHECK(c, !fault_result || is_fault(fault_result));                                                   \
        if (fault_result) return fault_result;                                                               \
    } while (0)
#if defined(CUDA_EMU)
static void stall(cudaStream_t stream) { emu_stall(stream); }
static int mapped_of_dead(void) { return emu_mapped_of_dead(); }
#else
static void CUDART_CB never_ends(void *) {
    for (;;) pause();
}
static void stall(cudaStream_t stream) { cudaLaunchHostFunc(stream, never_ends, NULL); }
static int mapped_of_dead(void) { return 0; }
#endif
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
static par_result to_host(const fault_rank *f, float *host, const float *device) {
    par_device *d = par_cuda_device(f->cuda);
    const par_result r = d->copy(d, host, device, sizeof(float) * FAULT_COUNT, NULL);
    return r ? r : d->stream_sync(d, NULL);
}
static par_result to_device(const fault_rank *f, float *device, const float *host) {
    par_device *d = par_cuda_device(f->cuda);
    const par_result r = d->copy(d, device, host, sizeof(float) * FAULT_COUNT, NULL);
    return r ? r : d->stream_sync(d, NULL);
}
// A sum, and a message around the ring, with right results.
static par_result fault_round(const fault_rank *f) {
    static float host[FAULT_COUNT];
    par_comm *c = f->c;
    const int n = par_size(c), me = par_rank(c), last = (me + n - 1) % n;
    par_request q[2];
    for (int j = 0; j < FAULT_COUNT; j++) host[j] = (float)(me + j % 7);
    FAULT_TRY(c, to_device(f, f->x, host));
    FAULT_TRY(c, par_all_reduce(f->x, f->y, FAULT_COUNT, PAR_F32, PAR_SUM, c));
    FAULT_TRY(c, to_host(f, host, f->y));
    int i = 0;
    while (i < FAULT_COUNT && host[i] == (float)(n * (n - 1) / 2 + n * (i % 7))) i++;
    CHECK(c, i == FAULT_COUNT);
    if (n == 1) return PAR_OK;
    FAULT_TRY(c, par_recv_begin(f->y, FAULT_COUNT, PAR_F32, last, c, &q[0]));
    const par_result sent = par_send_begin(f->x, FAULT_COUNT, PAR_F32, (me + 1) % n, c, &q[1]);
    const par_result ended = par_wait_all(q, sent ? 1 : 2);
    FAULT_TRY(c, sent ? sent : ended);
    FAULT_TRY(c, to_host(f, host, f->y));
    for (i = 0; i < FAULT_COUNT && host[i] == (float)(last + i % 7);) i++;
    CHECK(c, i == FAULT_COUNT);
    return PAR_OK;
}
// The calls in which the victim dies. Of the last one it begins nothing.
static par_result fault_calls(const fault_rank *f, const fault *t) {
    par_comm *c = f->c;
    par_request q[4];
    const int dies = par_rank(c) == t->victim, begun = t->calls - dies;
    par_result r = PAR_OK;
    int n = 0;
    if (t->calls < 0 && !dies) {
        test_wait_for(&test_shared->words, 1);
        return par_revoke(c);
    }
    if (dies && t->stalls) stall(par_cuda_stream(f->cuda));
    for (; n < begun && !r; n += !r)
        r = par_all_reduce_begin(f->x, f->x, FAULT_COUNT, PAR_F32, PAR_SUM, c, &q[n]);
    test_arrive(&test_shared->words);
    if (t->calls < 0) {
        CHECK(c, par_cuda_sync(f->cuda) == PAR_ERR_REVOKED);
        raise(SIGKILL);
    }
    if (dies) test_wait_for(&test_shared->words, par_size(c));
    for (int i = 0; i < t->steps && dies; i++, usleep(1000)) par__step_calls(c);
    if (dies) raise(SIGKILL);
    const par_result ended = par_wait_all(q, n);
    FAULT_TRY(c, r ? r : ended);
    return par_cuda_sync(f->cuda);
}
// A step of a context whose ranks may die. Its gradients are zero.
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
// This rank goes on with a comm of those that live, and has the same on its device.
static void fault_recover(fault_rank *f, const fault *t) {
    static float host[FAULT_COUNT];
    par_comm *c = f->c, *next;
    CHECK_OK(c, par_revoke(c));
    CHECK_OK(c, par_shrink(c, &next));
    if (!next) _exit(5);
    if (t->how == OPENS_ANOTHER) CHECK_OK(next, par_cuda_close(f->cuda));
    if (t->how != REOPENS) CHECK_OK(next, par_close(c));
    if (t->how == OPENS_ANOTHER)
        f->cuda = open_cuda(next, t->backend);
    else
        CHECK_OK(next, par_cuda_reopen(f->cuda, next));
    if (t->how == REOPENS) CHECK_OK(next, par_close(c));
    f->c = next;
    CHECK(next, mapped_of_others(f) == 0 && mapped_of_dead() == 0);
    for (const par__cuda_export *x = f->cuda->exports; x; x = x->next) CHECK(next, x->free_count == 0);
    CHECK_OK(next, to_host(f, host, f->kept));
    CHECK(next, host[0] == 1 && host[FAULT_COUNT - 1] == 1);
}
static par_result fault_agree(par_comm *c, par_result r) { // on all alike
    uint64_t well = !r;
    if (r) CHECK_OK(c, par_revoke(c)); // who waits for a message of this rank
    const par_result agreed = par_agree(c, &well);
    CHECK(c, !agreed || is_fault(agreed));
    return agreed ? agreed : well ? PAR_OK : PAR_ERR_REVOKED;
}
static void fault_open(fault_rank *f, par_comm *c, const fault *t) {
    static float ones[FAULT_COUNT];
    f->c = c;
    f->cuda = open_cuda(c, t->backend);
    f->x = (float *)on_device(c, f->cuda, sizeof ones);
    f->y = (float *)on_device(c, f->cuda, sizeof ones);
    f->kept = (float *)on_device(c, f->cuda, sizeof ones);
    for (float &x : ones) x = 1;
    CHECK_OK(c, to_device(f, f->kept, ones));
}
// After the death the sums are right, with new ranks, too, and a whole training is as on CPUs.
static void fault_goes_on(fault_rank *f, const fault *t) {
    static const zero_case l = {3, PAR_ZERO_ADAMW, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32};
    par_comm *more;
    CHECK_OK(f->c, fault_round(f));
    if (t->stage >= 0) zero_trains(f->c, &l, f->cuda);
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
    void *freed;
    int tensors[6];
    float before[8] = {0}, after[8] = {1};
    const zero_case l = {t->stage, PAR_ZERO_ADAMW, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32};
    par_zero *z = NULL;
    fault_open(&f, world, t);
    if (par_rank_before(world, 0) >= 0) { // this rank is a new one
        CHECK_OK(f.c, fault_round(&f));
    } else {
        const int dies = par_rank(world) == t->victim, kept = l.stage == 0 || l.stage == 1;
        par_device *d = par_cuda_device(f.cuda);
        if (t->stage >= 0) z = open_zero(world, &l, par_cuda_zero(f.cuda), tensors);
        CHECK_OK(world, fault_round(&f));
        freed = on_device(world, f.cuda, 4 * sizeof(float)); // others have it mapped when its owner frees it
        CHECK_OK(world, par_all_reduce(freed, freed, 4, PAR_F32, PAR_MAX, world));
        if (!dies) CHECK_OK(world, par_cuda_free(f.cuda, PAR_CUDA_DEVICE, freed));
        if (z) CHECK_OK(world, fault_step(world, z, 0));
        if (z && kept) CHECK_OK(world, d->copy(d, before, par_zero_data(z, tensors[0]), sizeof before, NULL));
        CHECK_OK(world, d->stream_sync(d, NULL));
        par_result r = z ? fault_step(world, z, dies) : fault_calls(&f, t);
        if (!r) r = fault_round(&f);
        r = fault_agree(world, r);
        CHECK(world, r != PAR_OK);
        fault_recover(&f, t);
        if (z && kept) {
            CHECK_OK(f.c, d->copy(d, after, par_zero_data(z, tensors[0]), sizeof after, NULL));
            CHECK_OK(f.c, d->stream_sync(d, NULL));
            CHECK(f.c, !memcmp(before, after, sizeof after));
        }
        if (z) CHECK_OK(f.c, par_zero_close(z));
        fault_goes_on(&f, t);
    }
    for (float *p : {f.x, f.y, f.kept}) CHECK_OK(f.c, par_cuda_free(f.cuda, PAR_CUDA_DEVICE, p));
    CHECK_OK(f.c, par_cuda_close(f.cuda));
    return par_close(f.c) != PAR_OK;
}
// A world in a process of its own, which starts the ranks.
static void in_elastic_world(par_comm *w, const fault *t, int ranks, const char *what) {
    int status = 0;
    fflush(NULL);
    test_shared->words.count = 0;
    const pid_t pid = test_fork();
    if (!pid) {
        par_desc d;
        par_comm *world;
        memset(&d, 0, sizeof d);
        d.elastic = 1, d.rank_count = ranks, d.timeout_s = 60;
        SEED(t->steps);
        alarm(100);
        _exit(par_open(&d, &world) ? 8 : fault_rank_main(world, t));
    }
    waitpid(pid, &status, 0);
    CHECK(w, status == 0);
    if (status) fprintf(stderr, "%s: victim %d, %d steps: status %x\n", what, t->victim, t->steps, status);
}

static void deaths(par_comm *w) {
    static const fault faults[] = {
        {PAR_CUDA_PEER, 1, 1, 0, 0, -1, 0, OPENS_ANOTHER}, // before a call
        {PAR_CUDA_PEER, 0, 3, 0, 1, -1, 0, CLOSES_BEFORE}, // its device never comes to others' calls
        {PAR_CUDA_PEER, 2, 4, 3, 0, -1, 2, REOPENS},       // in the midst of some; two ranks more come
        {PAR_CUDA_PEER, 1, -1, 0, 1, -1, 0, REOPENS},      // while it waits for its device
        {PAR_CUDA_STAGING, 1, 3, 2, 0, -1, 0, REOPENS},    // through the host's memory
        {PAR_CUDA_PEER, 1, 0, 0, 0, 1, 0, REOPENS},        // in a training step: others keep their weights
        {PAR_CUDA_PEER, 0, 0, 0, 0, 3, 1, REOPENS},        // shards are lost
    };
    for (const fault &t : faults) in_elastic_world(w, &t, FAULT_RANKS, "a death");
    const fault last = {PAR_CUDA_PEER, 1, 2, 1, 0, -1, 1,
                        CLOSES_BEFORE}; // one rank is left, and then there are two
    in_elastic_world(w, &last, 2, "a death of two");
}
#if defined(CUDA_EMU)
// At many points of the calls.
static void death_points(par_comm *w) {
    for (int steps = 0; steps < 12; steps++) {
        const fault t = {PAR_CUDA_PEER, steps % FAULT_RANKS, 2 + steps % 3, steps, 0, -1, steps == 5,
                         steps % 3};
        in_elastic_world(w, &t, FAULT_RANKS, "a point");
    }
}
#endif
#if defined(PAR_CUDA_NCCL)
// A revoked communicator is aborted, and another one takes its place.
static int revoked_rank_main(par_comm *world) {
    fault_rank f;
    const fault t[1] = {{PAR_CUDA_NCCL_BACKEND, 0, 0, 0, 0, -1, 0, REOPENS}};
    par_request q;
    fault_open(&f, world, t);
    CHECK_OK(world, fault_round(&f));
    CHECK_OK(world, par_all_reduce_begin(f.x, f.y, FAULT_COUNT, PAR_F32, PAR_SUM, world, &q));
    CHECK(world, par_cuda_reopen(f.cuda, world) == PAR_ERR_ARGUMENT);
    fault_recover(&f, t);
    CHECK_OK(f.c, fault_round(&f));
    for (float *p : {f.x, f.y, f.kept}) CHECK_OK(f.c, par_cuda_free(f.cuda, PAR_CUDA_DEVICE, p));
    CHECK_OK(f.c, par_cuda_close(f.cuda));
    return par_close(f.c) != PAR_OK;
}
static void revoked_nccl(par_comm *w) {
    int status = 0;
    fflush(NULL);
    const pid_t pid = test_fork();
    if (!pid) {
        par_desc d;
        par_comm *world;
        memset(&d, 0, sizeof d);
        d.elastic = 1, d.rank_count = 1, d.timeout_s = 60;
        alarm(100);
        _exit(par_open(&d, &world) ? 8 : revoked_rank_main(world));
    }
    waitpid(pid, &status, 0);
    CHECK(w, status == 0);
}
#endif

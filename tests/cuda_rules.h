// cuda_rules.h - a part of test_cuda.cu: what hardware refuses, the emulation refuses. Each rule has a fault
// that is planted here; the table of CONTRIBUTING.md names them.
static char said[4096]; // by the last planted fault

// Does a child process that commits this fault end with an error that has this text?
static int fault_ends(void (*fault)(void), const char *text) {
    int ends[2], status = 0;
    size_t n = 0;
    ssize_t more;
    fflush(NULL);
    if (pipe(ends)) return 0;
    const pid_t child = fork();
    if (!child) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], 2);
        fault();
        _exit(0);
    }
    close(ends[1]);
    while ((more = read(ends[0], said + n, sizeof said - 1 - n)) > 0) n += (size_t)more;
    said[n] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    const int found = status != 0 && strstr(said, text) != NULL;
    if (!found) fprintf(stderr, "status %d, not \"%s\" but: %s\n", status, text, said);
    return found;
}

// Names of the driver's calls are base names; of an unknown one CUDA says in the status alone that it is.
static void entry_points(par_comm *w) {
    void *fn = w;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;
#if CUDART_VERSION >= 13000
    CHECK(w, !cudaGetDriverEntryPointByVersion("cuMemGetAddressRange_v2", &fn, 12000, cudaEnableDefault,
                                               &found));
    CHECK(w, !fn && found == cudaDriverEntryPointSymbolNotFound);
    CHECK(w,
          !cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &fn, 12000, cudaEnableDefault, &found));
    CHECK(w, fn && found == cudaDriverEntryPointSuccess);
#endif
    CHECK(w, !fn || fn);
}
// A process dies before its event has fired: those that wait for it hear of it, and can close everything.
static void dies_before_event(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_PEER);
    par_device *d = par_cuda_device(cuda);
    float *x = (float *)on_device(w, cuda, 4000);
    CHECK_OK(w, par_cuda_sync(cuda));
    const int last = par_size(w) - 1;
    if (par_rank(w) == last) emu_stall(par_cuda_stream(cuda)); // its array is never ready
    CHECK_OK(w, par_all_reduce(x, x, 1000, PAR_F32, PAR_SUM, w));
    test_arrive(&test_shared->words);
    test_wait_for(&test_shared->words, par_size(w));
    if (par_rank(w) == last) raise(SIGKILL);
    CHECK(w, d->stream_sync(d, NULL) == PAR_ERR_PEER_DIED);
    CHECK(w, par_cuda_sync(cuda) == PAR_ERR_ABORTED);
    CHECK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, x) == PAR_ERR_ABORTED); // cudaFree would wait for ever
    CHECK_OK(w, par_cuda_close(cuda));
    par_close(w);
    _exit(test_shared->failures != 0); // what the device might still use is left, and ASan would report it
}
// A call may need more mappings than are kept, and memory may be freed that others have mapped.
static void mappings(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_PEER);
    const int n = par_size(w);
    enum { COUNT = 200, ARRAYS = 3 };
    float host[COUNT], *x[ARRAYS], *y[ARRAYS];
    cuda->kept_mappings = 2;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < ARRAYS; i++)
            x[i] = (float *)on_device(w, cuda, sizeof host), y[i] = (float *)on_device(w, cuda, sizeof host);
        for (int i = 0; i < ARRAYS; i++) {
            for (int j = 0; j < COUNT; j++) host[j] = (float)(i + j + round);
            upload(cuda, x[i], host, sizeof host);
            CHECK_OK(w, par_all_reduce(x[i], y[i], COUNT, PAR_F32, PAR_SUM, w));
            download(cuda, host, y[i], sizeof host);
            CHECK(w, host[7] == (float)(n * (i + 7 + round)));
        }
        for (int i = 0; i < ARRAYS; i++) {
            CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, x[i]));
            CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, y[i]));
        }
    }
    CHECK(w, cuda->mapping_count <= 2 * (n - 1) || n < 3);
    CHECK_OK(w, par_cuda_close(cuda));
}
#if defined(PAR_CUDA_NCCL)
typedef struct nccl_pair { // two ranks, by one thread
    ncclComm_t comm[2];
    cudaStream_t stream[2];
    float *x;
} nccl_pair;
static nccl_pair open_nccl_pair(void) {
    nccl_pair p;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclGetUniqueId(&id);
    for (int r = 0; r < 2; r++) ncclCommInitRankConfig(&p.comm[r], 2, id, r, &config);
    for (int r = 0; r < 2; r++) cudaStreamCreateWithFlags(&p.stream[r], cudaStreamNonBlocking);
    cudaMalloc((void **)&p.x, 1024);
    return p;
}
// A group of sends and receives of rank r: "sr" sends, then receives.
static void nccl_group(const nccl_pair *p, int r, const char *messages) {
    ncclGroupStart();
    for (; *messages; messages++)
        *messages == 's' ? ncclSend(p->x, 16, ncclFloat, 1 - r, p->comm[r], p->stream[r])
                         : ncclRecv(p->x + 64 * (r + 1), 16, ncclFloat, 1 - r, p->comm[r], p->stream[r]);
    ncclGroupEnd();
}
// 1F1B on two ranks, with all that was begun before the first wait in one group: S1 waits for R0 of its own
// group, which waits for a send that comes after R1 on the other rank.
static void grouped_1f1b(void) {
    const nccl_pair p = open_nccl_pair();
    nccl_group(&p, 0, "ssr"), nccl_group(&p, 1, "rr"), nccl_group(&p, 1, "s");
    cudaStreamSynchronize(p.stream[0]);
}
// One communicator for both directions, a stream for each: kernels of a communicator run in series anyhow.
static void streams_of_one_communicator(void) {
    nccl_pair p = open_nccl_pair();
    cudaStream_t first[2] = {p.stream[0], p.stream[1]};
    nccl_group(&p, 0, "s"), nccl_group(&p, 1, "r"), nccl_group(&p, 1, "s"), nccl_group(&p, 0, "r");
    for (int r = 0; r < 2; r++) cudaStreamSynchronize(first[r]); // connected
    nccl_group(&p, 0, "s"), nccl_group(&p, 1, "s");
    for (int r = 0; r < 2; r++) cudaStreamCreateWithFlags(&p.stream[r], cudaStreamNonBlocking);
    nccl_group(&p, 0, "r"), nccl_group(&p, 1, "r");
    cudaStreamSynchronize(first[0]);
}
static void nccl_rules(par_comm *w) {
    CHECK(w, fault_ends(grouped_1f1b, "deadlock of NCCL kernels"));
    CHECK(w, strstr(said, "rank 0 of communicator") && strstr(said, "receive from 1 (waits), send to 1"));
    CHECK(w, fault_ends(streams_of_one_communicator, "deadlock of NCCL kernels"));
    const nccl_pair p = open_nccl_pair(); // the same messages in groups that cannot deadlock
    ncclResult_t state;
    nccl_group(&p, 0, "s");
    CHECK(w, !ncclCommGetAsyncError(p.comm[0], &state) && state == ncclInProgress); // until rank 1 has called
    CHECK(w, ncclSend(p.x, 16, ncclFloat, 1, p.comm[0], p.stream[0]) == ncclInvalidArgument);
    nccl_group(&p, 1, "r");
    CHECK(w, !ncclCommGetAsyncError(p.comm[0], &state) && state == ncclSuccess);
    nccl_group(&p, 0, "sr"), nccl_group(&p, 1, "sr");
    CHECK(w, ncclCommFinalize(p.comm[0]) == ncclInProgress);
    CHECK(w, ncclCommDestroy(p.comm[0]) == ncclInvalidUsage); // its kernels have not ended
    for (int r = 0; r < 2; r++) CHECK(w, cudaStreamSynchronize(p.stream[r]) == cudaSuccess);
    for (int r = 0; r < 2; r++) CHECK(w, ncclCommDestroy(p.comm[r]) == ncclSuccess);
    for (int r = 0; r < 2; r++) cudaStreamDestroy(p.stream[r]);
    cudaFree(p.x);
}

static void failing_communicators(par_comm *w) { // what cannot be made is not left behind
    par_cuda *cuda = NULL;
    par_cuda_desc desc;
    const int before = emu_communicators();
    par_comm *part;
    memset(&desc, 0, sizeof desc);
    desc.backend = PAR_CUDA_NCCL_BACKEND;
    for (int i = 0; i < 2; i++) { // the comm's own; a split's
        CHECK_OK(w, par_split(w, 0, par_rank(w), &part));
        desc.comm = part;
        CHECK_OK(w, par_barrier(w));
        if (!i) emu_fail_communicators(1);
        CHECK_OK(w, par_barrier(w));
        const par_result r = par_cuda_open(&desc, &cuda);
        CHECK(w, i ? r == PAR_OK : r == PAR_ERR_SYSTEM && !cuda && strstr(par_last_error(part), "NCCL"));
        CHECK_OK(w, par_barrier(w));
        if (i) {
            par_comm *half = NULL;
            emu_fail_communicators(1);
            CHECK_OK(w, par_barrier(w));
            CHECK(w, par_split(part, 0, 0, &half) == PAR_ERR_SYSTEM);
            CHECK_OK(w, par_barrier(w));
        }
        emu_fail_communicators(0);
        CHECK_OK(w, par_cuda_close(cuda));
        CHECK_OK(w, par_close(part));
        CHECK_OK(w, par_barrier(w));
        CHECK(w, emu_communicators() == before);
        CHECK_OK(w, par_barrier(w));
    }
}
static void callers_communicator(par_comm *w) { // is neither aborted nor destroyed
    par_cuda *cuda = NULL;
    par_cuda_desc desc;
    par_comm *part;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const int before = emu_communicators();
    memset(&desc, 0, sizeof desc), memset(&id, 0, sizeof id);
    desc.backend = PAR_CUDA_NCCL_BACKEND;
    if (par_rank(w) == 0) ncclGetUniqueId(&id);
    CHECK_OK(w, par_broadcast(&id, &id, sizeof id, PAR_U8, 0, w));
    ncclComm_t mine;
    config.blocking = 0;
    ncclCommInitRankConfig(&mine, par_size(w), id, par_rank(w), &config);
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_split(w, 0, par_rank(w), &part));
    desc.comm = part, desc.nccl = mine;
    CHECK_OK(w, par_cuda_open(&desc, &cuda));
    void *x, *window;
    CHECK_OK(w, par_cuda_alloc(cuda, PAR_CUDA_SYMMETRIC, 400, &x));
    CHECK_OK(w, par_barrier(w));
    par_set_timeout(part, 0.3);
    if (par_rank(w)) // the others wait for rank 0
        CHECK(w, par_cuda_window_open(part, x, 400, &window) == PAR_ERR_TIMEOUT || !PAR__CUDA_WINDOWS);
    par_set_timeout(part, 20);
    CHECK_OK(w, par_barrier(w));
    CHECK(w, emu_communicators() == before + par_size(w));
    CHECK_OK(w, par_barrier(w));
    ncclCommAbort(mine);
    CHECK_OK(w, par_barrier(w));
    par_cuda_free(cuda, PAR_CUDA_SYMMETRIC, x);
    par_cuda_close(cuda);
    par_close(part);
}
static void communicators(par_comm *w) {
    if (nccl_here(w)) {
        failing_communicators(w);
        callers_communicator(w);
    } else {
        CHECK_OK(w, par_barrier(w));
    }
}
#endif

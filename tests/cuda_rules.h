// cuda_rules.h - a part of test_cuda.cu: what hardware refuses, the emulation refuses. Each rule has a fault
// that is planted here; tests/cuda_emu/RULES.md names them.
#include <string>
#include <thread>
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
        emu_allow_fork();
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
// A capture takes the streams that an event of it leads to, and they must come back to where it began.
static void capture_rules(par_comm *w) {
    cudaStream_t stream[2];
    cudaEvent_t event, before;
    cudaGraph_t made;
    cudaGraphExec_t exec;
    int *x, host[2] = {0, 0};
    CHECK(w, !cudaMalloc((void **)&x, 256) && !cudaEventCreate(&event) && !cudaEventCreate(&before));
    for (int i = 0; i < 2; i++) cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking);
    cudaEventRecord(before, stream[1]);
    for (int joined = 0; joined < 2; joined++) {
        CHECK(w, !cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
        cudaMemsetAsync(x, 1, 8, stream[0]);
        cudaEventRecord(event, stream[0]);
        CHECK(w, !cudaStreamWaitEvent(stream[1], event, 0));
        cudaMemsetAsync(x, 2, 4, stream[1]);
        cudaEventRecord(event, stream[1]);
        if (joined) cudaStreamWaitEvent(stream[0], event, 0);
        const cudaError_t e = cudaStreamEndCapture(stream[0], &made);
        CHECK(w, e == (joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined) && joined == (made != NULL));
    }
    CHECK(w, cudaStreamWaitEvent(stream[1], event, 0) == cudaErrorCapturedEvent);
    CHECK(w, !cudaGraphInstantiate(&exec, made, 0) && !cudaGraphLaunch(exec, stream[0]));
    cudaGraphDestroy(made);
    cudaMemcpyAsync(host, x, 8, cudaMemcpyDeviceToHost, stream[0]);
    cudaStreamSynchronize(stream[0]);
    CHECK(w, host[0] == 0x02020202 && host[1] == 0x01010101);
    CHECK(w, !cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
    CHECK(w, cudaStreamWaitEvent(stream[0], before, 0) == cudaErrorStreamCaptureIsolation);
    CHECK(w, cudaStreamEndCapture(stream[0], &made) == cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
    cudaGraphExecDestroy(exec);
    for (int i = 0; i < 2; i++) cudaStreamDestroy(stream[i]);
    cudaEventDestroy(event), cudaEventDestroy(before), cudaFree(x);
}
// Where hosts wait for events they may see two complete in one look at all calls, the second one first.
static void calls_in_order(par_comm *w) {
    par_call sum, send;
    par__cuda_comm l;
    par__cuda_pending p[3];
    memset(&sum, 0, sizeof sum), memset(&l, 0, sizeof l), memset(p, 0, sizeof p);
    sum.kind = PAR_KIND_ALL_REDUCE, send = sum, send.kind = PAR_KIND_SEND;
    l.first = &p[0], p[0].next = &p[1], p[1].next = &p[2];
    p[0].call = p[2].call = &sum, p[1].call = &send;
    for (int state = PAR__CUDA_PREPARING; state < PAR__CUDA_DONE; state++) {
        const int ordered = state == PAR__CUDA_COMPLETING; // by the hosts' calls
        p[0].state = p[1].state = p[2].state = state;
        CHECK(w, par__cuda_is_next(&l, &p[0]) && par__cuda_is_next(&l, &p[1]));
        CHECK(w, par__cuda_is_next(&l, &p[2]) == ordered);
        p[0].state = state + 1;
        CHECK(w, par__cuda_is_next(&l, &p[2]));
    }
}
// A process dies before its event has fired: those that wait for it hear of it, and can close everything.
static void dies_before_event(par_comm *w) {
    par_cuda *cuda = open_cuda(w, PAR_CUDA_PEER);
    par_device *d = par_cuda_device(cuda);
    float *x = (float *)on_device(w, cuda, 4000);
    CHECK_OK(w, par_cuda_sync(cuda));
    const int last = par_size(w) - 1;
    if (par_rank(w) == last) emu_stall(par_cuda_stream(cuda)); // its array is never ready
    for (par_op op : {PAR_SUM, PAR_TREE_SUM}) CHECK_OK(w, par_all_reduce(x, x, 1000, PAR_F32, op, w));
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
// Three contexts of each rank, on a comm, on a copy of it and alone. Arrays of each are sent on both comms,
// and freed by another context than the one that allocated them, while others have them mapped through both.
static void contexts(par_comm *w) {
    enum { COUNT = 20, CONTEXTS = 3 };
    const int n = par_size(w);
    par_comm *comm[CONTEXTS], *half;
    par_cuda *cuda[CONTEXTS];
    float host[COUNT], *x[CONTEXTS], *y[CONTEXTS];
    for (int i = 0; i < CONTEXTS; i++) {
        CHECK_OK(w, par_split(w, i == 2 ? par_rank(w) : 0, par_rank(w), &comm[i]));
        cuda[i] = open_cuda(comm[i], PAR_CUDA_PEER);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CONTEXTS; i++) {
            par_cuda *other = cuda[(i + 1 + round) % CONTEXTS];
            x[i] = (float *)on_device(w, cuda[i], sizeof host),
            y[i] = (float *)on_device(w, other, sizeof host);
            for (int j = 0; j < COUNT; j++) host[j] = (float)(i + j + round);
            CHECK_OK(w, par_cuda_sync(other));
            upload(cuda[i], x[i], host, sizeof host);
            CHECK_OK(w, par_all_reduce(x[i], y[i], COUNT, PAR_F32, PAR_SUM, comm[0]));
            download(cuda[0], host, y[i], sizeof host);
            CHECK_OK(w, par_all_reduce(y[i], x[i], COUNT, PAR_F32, PAR_SUM, comm[1]));
            download(cuda[1], host, x[i], sizeof host);
            CHECK(w, host[7] == (float)(n * n * (i + 7 + round)));
            CHECK_OK(w, par_cuda_free(other, PAR_CUDA_DEVICE, x[i]));
            CHECK_OK(w, par_cuda_free(cuda[i], PAR_CUDA_DEVICE, y[i]));
        }
    }
    x[0] = (float *)on_device(w, cuda[2], sizeof host);
    CHECK_OK(w, par_cuda_sync(cuda[2]));
    CHECK_OK(w, par_split(comm[0], 0, par_rank(w), &half));
    CHECK_OK(w, par_close(comm[0])); // what is mapped by a comm that outlives it, nobody would unmap in time
    CHECK(w, par_broadcast(x[0], x[0], COUNT, PAR_F32, 0, half) == PAR_ERR_UNSUPPORTED || n == 1);
    CHECK_OK(w, par_close(half));
    CHECK_OK(w, par_broadcast(x[0], x[0], COUNT, PAR_F32, 0, comm[1]));
    CHECK_OK(w, par_cuda_free(cuda[2], PAR_CUDA_DEVICE, x[0]));
    for (int i = 0; i < CONTEXTS; i++) CHECK_OK(w, par_cuda_close(cuda[i]));
    for (int i = 1; i < CONTEXTS; i++) CHECK_OK(w, par_close(comm[i]));
}
// A kernel's limit of shared memory is one for all threads: two that set what their own launches need race.
static void allowed_by_two_threads(void) {
    const auto allow = [](int bytes) {
        cudaFuncSetAttribute((const void *)plus_one, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    };
    allow(64 << 10), std::thread(allow, 60 << 10).join();
}
static void launches_of_two_threads(par_comm *w, par_cuda *cuda, float *x) {
    par_cuda_desc alone;
    par_cuda *other = NULL;
    memset(&alone, 0, sizeof alone);
    CHECK_OK(w, par_cuda_open(&alone, &other));
    const auto launch = [=](par_cuda *c, size_t bytes) {
        CHECK(w, !cudaSetDevice(0));
        CHECK_OK(w, par__cuda_launch(c, plus_one, 1, 32, bytes, par_cuda_stream(c), x, x, (size_t)1));
    };
    launch(cuda, 100 << 10), std::thread(launch, other, 60 << 10).join(), launch(cuda, 120 << 10);
    CHECK_OK(w, par_cuda_close(other));
}
// What does not fit on a device is not launched.
static void launch_limits(par_comm *w) {
    static const struct {
        dim3 grid, block;
        size_t shared, allowed; // allowed: 0: the kernel has no attribute
        cudaError_t error;
    } launches[] = {{dim3(1, 65535, 1), dim3(1), 0, 0, cudaSuccess},
                    {dim3(1, 65536, 1), dim3(1), 0, 0, cudaErrorInvalidConfiguration},
                    {dim3(1, 1, 65536), dim3(1), 0, 0, cudaErrorInvalidConfiguration},
                    {dim3(0x80000000u), dim3(1), 0, 0, cudaErrorInvalidConfiguration},
                    {dim3(0), dim3(1), 0, 0, cudaErrorInvalidConfiguration},
                    {dim3(1), dim3(1025), 0, 0, cudaErrorInvalidConfiguration},
                    {dim3(1), dim3(1, 1, 65), 0, 0, cudaErrorInvalidConfiguration},
                    {dim3(1), dim3(1), (48 << 10) + 1, 0, cudaErrorInvalidValue},
                    {dim3(1), dim3(1), 64 << 10, 64 << 10, cudaSuccess},
                    {dim3(1), dim3(1), (64 << 10) + 1, 0, cudaErrorInvalidValue}};
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    float *x = (float *)on_device(w, cuda, 400);
    const void *kernel = (const void *)plus_one;
    const cudaFuncAttribute shared = cudaFuncAttributeMaxDynamicSharedMemorySize;
    emu_sample(1);
    for (const auto &l : launches) {
        if (l.allowed) CHECK(w, cudaFuncSetAttribute(kernel, shared, (int)l.allowed) == cudaSuccess);
        emu_launch(plus_one, l.grid, l.block, l.shared, par_cuda_stream(cuda), x, x, (size_t)1);
        CHECK(w, cudaGetLastError() == l.error);
    }
    CHECK(w, cudaFuncSetAttribute(kernel, shared, emu_shared_limit() + 1) == cudaErrorInvalidValue);
    CHECK(w, cudaGetLastError() == cudaErrorInvalidValue);
    emu_sample(0);
    dim3 grid;
    CHECK(w, par__cuda_grid(cuda, "it", (size_t)1 << 31, &grid) == PAR_ERR_UNSUPPORTED);
    CHECK(w, strstr(par_last_error(w), "2147483648 blocks"));
    CHECK(w, cudaSetDevice(99) == cudaErrorInvalidDevice); // and its error is not the launch's
    CHECK_OK(w, par__cuda_launch(cuda, plus_one, 1, 32, 0, par_cuda_stream(cuda), x, x, (size_t)1));
    CHECK(w, cudaGetLastError() == cudaErrorInvalidDevice);
    CHECK(w, fault_ends(allowed_by_two_threads, "two threads allow a kernel other sizes"));
    launches_of_two_threads(w, cuda, x);
    const size_t far = (size_t)1 << 31; // between rows
    par_tp *tp = open_tp(w, NULL, 0, 0, 0, par_cuda_tp(cuda));
    CHECK(w, cudaMemcpy2DAsync(x, far, x, far, 4, 1, cudaMemcpyDefault, 0) == cudaErrorInvalidPitchValue);
    CHECK_OK(w, par_cuda_tp(cuda)->copy(tp, x + 1, far, x, far, 1, 4));
    CHECK_OK(w, par_tp_close(tp));
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, x));
    CHECK_OK(w, par_cuda_close(cuda));
}
static par_comm *matrix_comm; // of matrix_faults
static int matrix_fault;
static void commit_matrix_fault(void) {
    par_cuda *cuda = open_cuda(matrix_comm, PAR_CUDA_AUTO);
    const uint4 *x = (const uint4 *)zeros_on_device(matrix_comm, cuda, 2048);
    par__cuda_launch(cuda, matrix_faults, 1, 32, 2048, par_cuda_stream(cuda), matrix_fault, x);
    uint64_t reads, cycles;
    emu_seed(1, EMU_FORWARD);
    cudaStreamSynchronize(par_cuda_stream(cuda));
    emu_bank_cycles(&reads, &cycles);
    fprintf(stderr, "%d extra cycles for %d reads\n", (int)(cycles - reads), (int)reads);
    abort();
}
static void matrix_rules(par_comm *w) {
    static const char *const says[] = {"0 extra cycles for 4",
                                       "0 extra cycles for 4",
                                       "has not waited for its copies",
                                       "lanes of a warp are at different instructions",
                                       "cp.async: an address is not aligned",
                                       "no multiple of 16",
                                       "not in the block's shared memory",
                                       "28 extra cycles for 8",
                                       "at different places of a kernel",
                                       "reads a lane that is not there",
                                       "at different places of a kernel"};
    matrix_comm = w;
    for (matrix_fault = 0; matrix_fault < 11; matrix_fault++)
        CHECK(w, fault_ends(commit_matrix_fault, says[matrix_fault]));
}
// Attention with more heads than an axis of a grid takes. Each head has one token: y is v, and dv is dy.
static void many_heads(par_comm *w) {
    enum { BATCH = 32768, HEADS = 2, DIM = 8, H = HEADS * DIM, COLS = 3 * H };
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_tp *tp = open_tp(w, NULL, 0, 0, 0, par_cuda_tp(cuda));
    const par_tp_attention a = {HEADS, HEADS, DIM, 0, 0, NULL, 0};
    const par_tp_tokens t = {BATCH, 1, 0, 0, NULL};
    const size_t x_bytes = BATCH * COLS * sizeof(float), y_bytes = BATCH * H * sizeof(float);
    float *host = (float *)malloc(x_bytes), *x = (float *)on_device(w, cuda, x_bytes);
    float *y = (float *)zeros_on_device(w, cuda, y_bytes), *dx = (float *)on_device(w, cuda, x_bytes);
    float *lse = (float *)on_device(w, cuda, BATCH * HEADS * sizeof *lse);
    for (int i = 0; i < BATCH * COLS; i++) host[i] = (float)(i % 251);
    upload(cuda, x, host, x_bytes);
    par_tp_matrix mx = {x, BATCH, COLS, PAR_TP_HIDDEN}, my = {y, BATCH, H, PAR_TP_HIDDEN};
    par_tp_matrix mdx = {dx, BATCH, COLS, PAR_TP_HIDDEN};
    emu_sample(2);
    CHECK_OK(w, par_tp_attention_forward(tp, &a, &t, 4, &mx, lse, &my));
    CHECK_OK(w, par_tp_attention_backward(tp, &a, &t, 4, &my, &mx, &my, lse, &mdx));
    download(cuda, host, dx, x_bytes);
    emu_sample(0);
    for (int i = 0; i < H; i++) // of the first token and of the last one
        for (int at : {2 * H + i, (BATCH - 1) * COLS + 2 * H + i}) CHECK(w, host[at] == (float)(at % 251));
    free(host);
    for (float *p : {x, y, dx, lse}) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, p));
    CHECK_OK(w, par_tp_close(tp));
    CHECK_OK(w, par_cuda_close(cuda));
}
// Ranks on a device each: with peer access and NCCL, in memory of a pool where ranks are threads. A process
// has a context on its own device only. Devices that cannot access each other go through the host.
static void devices(par_comm *w) {
    const int n = par_size(w), threads = !strcmp(par_launch_method(w), "threads");
    const par_cuda_memory kind = threads ? PAR_CUDA_STREAM : PAR_CUDA_DEVICE;
    par_cuda *cuda = NULL;
    par_cuda_desc desc;
    par_comm *part;
    if (par_node_count(w) > 1) return;
    emu_devices(n);
    CHECK_OK(w, par_barrier(w));
    for (par_cuda_backend backend : {PAR_CUDA_PEER, PAR_CUDA_NCCL_BACKEND}) {
        float host[100], *x;
        void *memory;
        if (backend == PAR_CUDA_NCCL_BACKEND && !(threads && PAR__CUDA_WINDOWS)) continue;
        CHECK_OK(w, par_split(w, 0, par_rank(w), &part));
        cuda = open_cuda(part, backend);
        CHECK_OK(w, par_cuda_alloc(cuda, kind, sizeof host, &memory));
        x = (float *)memory;
        for (int i = 0; i < 100; i++) host[i] = (float)(i + par_rank(w));
        upload(cuda, x, host, sizeof host);
        CHECK_OK(w, par_all_reduce(x, x, 100, PAR_F32, PAR_SUM, part));
        download(cuda, host, x, sizeof host);
        CHECK(w, host[7] == (float)(7 * n + n * (n - 1) / 2));
        CHECK(w, emu_contexts() == (threads ? n : 1));
        CHECK_OK(w, par_barrier(w));
        CHECK_OK(w, par_cuda_free(cuda, kind, x));
        CHECK_OK(w, par_cuda_close(cuda));
        CHECK_OK(w, par_close(part));
    }
    emu_devices(2), emu_separate(0, 1, 1); // from 3 ranks on some share one: no NCCL
    CHECK_OK(w, par_barrier(w));
    memset(&desc, 0, sizeof desc);
    desc.comm = w, desc.backend = PAR_CUDA_PEER;
    CHECK(w, par_cuda_open(&desc, &cuda) == PAR_ERR_UNSUPPORTED);
    CHECK(w, strstr(par_last_error(w), "staging"));
    if (n > 2) {
        cuda = open_cuda(w, PAR_CUDA_AUTO);
        CHECK(w, !strcmp(par_cuda_backend_name(cuda), "staging"));
        CHECK_OK(w, par_cuda_close(cuda));
    }
    CHECK_OK(w, par_barrier(w));
    emu_separate(0, 1, 0), emu_devices(0);
    CHECK_OK(w, par_barrier(w));
}
// Device 1 adds to an array of device 0, of a pool or of cudaMalloc, that was opened to it in these ways.
enum { OF_POOL = 1, PEER_ACCESS = 2, POOL_ACCESS = 4 };
static cudaError_t add_from_afar(int how) {
    cudaStream_t s[2];
    cudaMemPool_t pool;
    struct cudaMemAccessDesc access;
    float *x;
    emu_devices(2);
    memset(&access, 0, sizeof access);
    access.location.type = cudaMemLocationTypeDevice, access.location.id = 1;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    for (int i = 0; i < 2; i++) cudaSetDevice(i), cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking);
    how &OF_POOL ? cudaMallocAsync((void **)&x, 400, s[0]) : (cudaSetDevice(0), cudaMalloc((void **)&x, 400));
    cudaSetDevice(1);
    if (how & PEER_ACCESS) cudaDeviceEnablePeerAccess(0, 0);
    cudaDeviceGetDefaultMemPool(&pool, 0);
    if (how & POOL_ACCESS) cudaMemPoolSetAccess(pool, &access, 1);
    emu_launch(plus_one, 1, 32, 0, s[1], x, x, (size_t)1);
    cudaStreamSynchronize(s[1]);
    return cudaGetLastError();
}
static void peer_without_access(void) { add_from_afar(0); }
static void pool_of_a_peer(void) { add_from_afar(OF_POOL | PEER_ACCESS); }
static void peer_with_access(void) {
    if (!add_from_afar(PEER_ACCESS)) fprintf(stderr, "it may"), _exit(1);
}
static void pool_with_access(void) {
    if (!add_from_afar(OF_POOL | POOL_ACCESS)) fprintf(stderr, "it may"), _exit(1);
}
static void device_rules(par_comm *w) {
    cudaStream_t s;
    cudaEvent_t event;
    cudaIpcMemHandle_t handle;
    void *x;
    CHECK(w, fault_ends(peer_without_access, "use-after-poison"));
    CHECK(w, fault_ends(pool_of_a_peer, "use-after-poison"));
    CHECK(w, fault_ends(peer_with_access, "it may"));
    CHECK(w, fault_ends(pool_with_access, "it may"));
    emu_devices(2); // streams and events belong to devices
    CHECK(w, !cudaSetDevice(1) && !cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(w, !cudaMallocAsync(&x, 400, s) && !cudaSetDevice(0) && !cudaEventCreateWithFlags(&event, 0));
    CHECK(w, cudaEventRecord(event, s) == cudaErrorInvalidResourceHandle);
    CHECK(w, emu_launch(plus_one, 1, 1, 0, s, (float *)x, (float *)x, (size_t)1) ==
                 cudaErrorInvalidResourceHandle);
    CHECK(w, cudaIpcGetMemHandle(&handle, x) == cudaErrorInvalidValue); // of a pool
    cudaGetLastError();
    CHECK(w, !cudaFreeAsync(x, s) && !cudaStreamDestroy(s) && !cudaEventDestroy(event));
    emu_devices(0);
    fflush(NULL); // a child of a process that has used CUDA cannot use it
    const pid_t child = fork();
    if (!child) _exit(cudaSetDevice(0) != cudaErrorInitializationError);
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(w, status == 0);
}
// What CUDA refuses while stream s is captured, with these errors. a: another stream; x: 400 bytes; old: was
// recorded before, new: in the capture.
typedef struct capture_case {
    cudaStream_t s, a;
    cudaEvent_t old, recorded;
    float *x;
} capture_case;
static const struct {
    const char *what;
    cudaError_t error;
    cudaError_t (*call)(capture_case *c);
} captured_calls[] = {
    {"cudaMalloc", cudaErrorStreamCaptureUnsupported,
     [](capture_case *) {
         void *p;
         return cudaMalloc(&p, 4);
     }},
    {"cudaFree", cudaErrorStreamCaptureUnsupported, [](capture_case *c) { return cudaFree(c->x); }},
    {"cudaHostAlloc", cudaErrorStreamCaptureUnsupported,
     [](capture_case *) {
         void *p;
         return cudaHostAlloc(&p, 4, 0);
     }},
    {"cudaMemcpy", cudaErrorStreamCaptureUnsupported,
     [](capture_case *c) { return cudaMemcpy(c->x, c->x + 1, 4, cudaMemcpyDefault); }},
    {"sync", cudaErrorStreamCaptureUnsupported, [](capture_case *c) { return cudaStreamSynchronize(c->s); }},
    {"query", cudaErrorStreamCaptureUnsupported, [](capture_case *c) { return cudaStreamQuery(c->s); }},
    {"sync of another", cudaErrorStreamCaptureUnsupported,
     [](capture_case *c) { return cudaStreamSynchronize(c->a); }},
    {"sync of the device", cudaErrorStreamCaptureUnsupported,
     [](capture_case *) { return cudaDeviceSynchronize(); }},
    {"query of an event", cudaErrorCapturedEvent,
     [](capture_case *c) { return cudaEventQuery(c->recorded); }},
    {"sync of an event", cudaErrorCapturedEvent,
     [](capture_case *c) { return cudaEventSynchronize(c->recorded); }},
    {"wait for work before", cudaErrorStreamCaptureIsolation,
     [](capture_case *c) { return cudaStreamWaitEvent(c->s, c->old, 0); }},
    {"destroy", cudaErrorStreamCaptureUnsupported, [](capture_case *c) { return cudaStreamDestroy(c->s); }}};
static void broken_captures(par_comm *w) {
    capture_case c;
    cudaGraph_t made;
    cudaStreamCaptureStatus status;
    cudaStream_t legacy;
    CHECK(w, !cudaStreamCreateWithFlags(&c.s, cudaStreamNonBlocking) && !cudaMalloc((void **)&c.x, 400));
    CHECK(w,
          !cudaStreamCreateWithFlags(&c.a, cudaStreamNonBlocking) && !cudaStreamCreateWithFlags(&legacy, 0));
    CHECK(w, !cudaEventCreateWithFlags(&c.old, cudaEventDisableTiming) && !cudaEventRecord(c.old, c.s));
    CHECK(w, !cudaEventCreateWithFlags(&c.recorded, cudaEventDisableTiming));
    for (const auto &k : captured_calls) {
        CHECK(w,
              !cudaStreamBeginCapture(c.s, cudaStreamCaptureModeGlobal) && !cudaEventRecord(c.recorded, c.s));
        const cudaError_t e = k.call(&c);
        if (e != k.error) fprintf(stderr, "%s: error %d, not %d\n", k.what, (int)e, (int)k.error);
        CHECK(w, e == k.error);
        CHECK(w, !cudaStreamIsCapturing(c.s, &status) && status == cudaStreamCaptureStatusInvalidated);
        CHECK(w, cudaMemsetAsync(c.x, 0, 4, c.s) == cudaErrorStreamCaptureInvalidated);
        CHECK(w, cudaStreamEndCapture(c.s, &made) == cudaErrorStreamCaptureInvalidated && !made);
    }
    CHECK(w, !cudaStreamBeginCapture(legacy, cudaStreamCaptureModeThreadLocal));
    CHECK(w, cudaMemsetAsync(c.x, 0, 4, NULL) == cudaErrorStreamCaptureImplicit);
    CHECK(w, cudaStreamEndCapture(legacy, &made) == cudaErrorStreamCaptureInvalidated);
    for (int joined = 0; joined < 2; joined++) { // the first stream must wait for the second one
        CHECK(w, !cudaStreamBeginCapture(c.s, cudaStreamCaptureModeRelaxed) &&
                     !cudaEventRecord(c.recorded, c.s));
        CHECK(w, !cudaStreamWaitEvent(c.a, c.recorded, 0) && !cudaMemsetAsync(c.x, 0, 4, c.a));
        CHECK(w, !cudaEventRecord(c.recorded, c.a));
        if (joined) CHECK(w, !cudaStreamWaitEvent(c.s, c.recorded, 0));
        CHECK(w, cudaStreamEndCapture(c.s, &made) == (joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
    }
    CHECK(w, !cudaGraphDestroy(made));
    CHECK(w, cudaStreamWaitEvent(c.s, c.recorded, 0) == cudaErrorCapturedEvent);
    CHECK(w, cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
    for (cudaStream_t s : {c.s, c.a, legacy}) CHECK(w, !cudaStreamDestroy(s));
    CHECK(w, !cudaEventDestroy(c.old) && !cudaEventDestroy(c.recorded) && !cudaFree(c.x));
    cudaGetLastError();
}
// What the kit cannot do in a capture it refuses itself, and the capture goes on; the rest is captured.
static void captured_kit(par_comm *w) {
    par_cuda *cuda = open_cuda(w, par_node_count(w) == 1 ? PAR_CUDA_PEER : PAR_CUDA_STAGING);
    par_device *d = par_cuda_device(cuda);
    enum { N = 16 };
    float host[N * N], *x = (float *)on_device(w, cuda, sizeof host),
                       *y = (float *)on_device(w, cuda, sizeof host);
    const void *sources[2] = {x, x};
    void *p, *event = NULL, *second;
    cudaGraph_t made;
    cudaGraphExec_t exec;
    par_comm *part;
    par_request q;
    par_cuda *late = NULL;
    par_cuda_desc desc;
    memset(&desc, 0, sizeof desc), desc.stream = par_cuda_stream(cuda);
    for (int i = 0; i < N * N; i++) host[i] = i % (N + 1) ? 0 : 2; // twice the identity
    upload(cuda, x, host, sizeof host);
    CHECK_OK(w, d->stream_open(d, &second));
    CHECK_OK(w, par_split(w, 0, par_rank(w), &part));
    CHECK_OK(w, par_all_reduce_begin(y, y, N, PAR_F32, PAR_SUM, part, &q));
    CHECK(w, !cudaStreamBeginCapture(par_cuda_stream(cuda), cudaStreamCaptureModeThreadLocal));
    for (par_cuda_memory kind : {PAR_CUDA_DEVICE, PAR_CUDA_STREAM, PAR_CUDA_HOST, PAR_CUDA_SYMMETRIC}) {
        CHECK(w, par_cuda_alloc(cuda, kind, 100, &p) == PAR_ERR_UNSUPPORTED && !p);
        CHECK(w, par_cuda_free(cuda, kind, x) == PAR_ERR_UNSUPPORTED);
    }
    CHECK(w, strstr(par_last_error(w), "captured"));
    CHECK(w, par_cuda_sync(cuda) == PAR_ERR_UNSUPPORTED);
    CHECK(w, d->stream_sync(d, second) == PAR_ERR_UNSUPPORTED);
    CHECK(w, d->stream_open(d, &p) == PAR_ERR_UNSUPPORTED && d->stream_close(d, second));
    CHECK(w, par_cuda_open(&desc, &late) == PAR_ERR_UNSUPPORTED && !late);
    CHECK(w, par_cuda_close(cuda) == PAR_ERR_UNSUPPORTED);
    CHECK(w, par_wait(&q) == PAR_ERR_UNSUPPORTED && strstr(par_last_error(w), "wait for it before"));
    CHECK(w, par_close(part) == PAR_ERR_UNSUPPORTED && strstr(par_last_error(w), "end the capture"));
    CHECK(w,
          par_all_reduce(x, x, N, PAR_F32, PAR_SUM, w) == (par_size(w) > 1 ? PAR_ERR_UNSUPPORTED : PAR_OK));
    CHECK(w, square_product(cuda, N, x, x, y, second) == PAR_ERR_UNSUPPORTED ||
                 strcmp(par_cuda_tp(cuda)->gemm_name, "cuBLASLt")); // its workspace
    CHECK_OK(w, square_product(cuda, N, x, x, y, NULL));
    CHECK_OK(w, d->event_record(d, NULL, &event));
    CHECK_OK(w, d->event_wait(d, second, event));
    CHECK_OK(w, d->reduce(d, y, sources, 2, N, PAR_F32, PAR_SUM, second)); // the first row
    CHECK_OK(w, d->event_record(d, second, &event));
    CHECK_OK(w, d->event_wait(d, NULL, event));
    CHECK_OK(w, d->copy(d, x, y, sizeof host, NULL));
    CHECK_OK(w, d->fill(d, y, 0, 4, NULL));
    CHECK(w, !cudaStreamEndCapture(par_cuda_stream(cuda), &made) && !cudaGraphInstantiate(&exec, made, 0));
    CHECK(w, !cudaGraphLaunch(exec, par_cuda_stream(cuda)));
    download(cuda, host, x, sizeof host);
    CHECK(w, host[0] == 4 && host[N + 1] == 4 && host[1] == 0);
    CHECK(w, !cudaGraphExecDestroy(exec) && !cudaGraphDestroy(made));
    CHECK_OK(w, par_barrier(w));
    CHECK(w, par_all_reduce(y, y, N, PAR_F32, PAR_SUM, part) == (par_size(w) > 1 ? PAR_ERR_ABORTED : PAR_OK));
    CHECK_OK(w, par_close(part));
    CHECK_OK(w, d->event_free(d, event));
    CHECK_OK(w, d->stream_close(d, second));
    for (float *q : {x, y}) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, q));
    CHECK_OK(w, par_cuda_close(cuda));
}
// A graph has a loss with its scratch memory; a larger batch comes, which needs more; the graph is replayed.
static void graph_keeps_scratch(par_comm *w) {
    enum { ROWS = 64, COLS = 64 };
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_tp *tp = open_tp(w, NULL, 0, 0, 0, par_cuda_tp(cuda));
    par_tp_loss loss;
    memset(&loss, 0, sizeof loss), loss.vocabulary = COLS, loss.ignore_index = -1;
    float *x = (float *)on_device(w, cuda, ROWS * COLS * sizeof *x),
          *dx = (float *)on_device(w, cuda, ROWS * COLS * 4);
    float host[COLS], want[COLS], *lse = (float *)on_device(w, cuda, ROWS * sizeof *lse);
    int32_t *targets = (int32_t *)on_device(w, cuda, ROWS * sizeof *targets);
    double *sum = (double *)on_device(w, cuda, sizeof *sum);
    size_t *count = (size_t *)on_device(w, cuda, sizeof *count);
    cudaGraph_t made;
    cudaGraphExec_t exec;
    CHECK(w, !cudaMemsetAsync(x, 0, ROWS * COLS * sizeof *x, par_cuda_stream(cuda)));
    CHECK(w, !cudaMemsetAsync(targets, 0, ROWS * sizeof *targets, par_cuda_stream(cuda)));
    const auto step = [=](size_t rows) {
        par_tp_matrix logits = {x, rows, COLS, PAR_TP_VOCABULARY},
                      dlogits = {dx, rows, COLS, PAR_TP_VOCABULARY};
        CHECK_OK(
            w, par_tp_loss_forward_backward(tp, &loss, &logits, targets, lse, NULL, sum, count, 1, &dlogits));
    };
    step(2);
    download(cuda, want, dx, sizeof want);
    CHECK(w, !cudaStreamBeginCapture(par_cuda_stream(cuda), cudaStreamCaptureModeThreadLocal));
    step(2);
    CHECK(w, !cudaStreamEndCapture(par_cuda_stream(cuda), &made) && !cudaGraphInstantiate(&exec, made, 0));
    step(ROWS);
    CHECK(w, !cudaMemsetAsync(dx, 0xFF, sizeof want, par_cuda_stream(cuda)));
    CHECK(w, !cudaGraphLaunch(exec, par_cuda_stream(cuda)));
    download(cuda, host, dx, sizeof host);
    CHECK(w, want[0] < 0 && want[1] > 0 && !memcmp(host, want, sizeof want));
    CHECK(w, !cudaGraphExecDestroy(exec) && !cudaGraphDestroy(made));
    for (void *p : {(void *)x, (void *)dx, (void *)lse, (void *)targets, (void *)sum, (void *)count})
        CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, p));
    CHECK_OK(w, par_tp_close(tp));
    CHECK_OK(w, par_cuda_close(cuda));
}
#if defined(PAR_CUDA_CUBLASLT)
// Products on two streams at a time: each stream has a workspace, and the bits are the same.
enum { PRODUCT = 24 };
static par_result two_products(par_comm *w, par_cuda *cuda, int shared, float *got) { // shared: one for both
    par_device *d = par_cuda_device(cuda);
    const size_t n = PRODUCT, bytes = n * n * sizeof(float);
    float host[PRODUCT * PRODUCT], *a = (float *)on_device(w, cuda, bytes), *c[2];
    void *stream[2] = {NULL, NULL};
    par_result r = PAR_OK;
    fill_values(PAR_F32, host, n * n, 3);
    upload(cuda, a, host, bytes);
    CHECK_OK(w, d->stream_open(d, &stream[1]));
    for (int i = 0; i < 2; i++) c[i] = (float *)on_device(w, cuda, bytes);
    CHECK_OK(w, par_cuda_sync(cuda));
    const uint64_t kernels = emu_launches();
    for (int k = 0; k < 20 && !r; k++)
        for (int i = 0; i < 2 && !r; i++) {
            r = square_product(cuda, n, a, a, c[i], stream[i]);
            if (shared && i && !k) cuda->workspaces->memory = cuda->workspaces->next->memory;
        }
    for (int i = 0; i < 2 && !r; i++) r = d->stream_sync(d, stream[i]);
    for (int i = 0; i < 2; i++) download(cuda, got + (size_t)i * n * n, c[i], bytes);
    CHECK(w, emu_launches() == kernels && "by the library");
    CHECK_OK(w, d->stream_close(d, stream[1]));
    CHECK(w, !cuda->workspaces->next); // that of the stream is freed
    for (float *x : {a, c[0], c[1]}) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, x));
    return r;
}
static par_comm *products_comm;
static par_cuda *products_cuda;
static void one_workspace(void) {
    static float got[2][PRODUCT * PRODUCT];
    two_products(products_comm, products_cuda, 1, got[0]);
}
static void products(par_comm *w) {
    static float got[2][PRODUCT * PRODUCT];
    products_comm = w, products_cuda = open_cuda(w, PAR_CUDA_AUTO);
    CHECK_OK(w, two_products(w, products_cuda, 0, got[0]));
    CHECK(w, got[0][5] != 0 && !memcmp(got[0], got[1], sizeof got[0]));
    CHECK(w, fault_ends(one_workspace, "two products use one workspace"));
    // The library chooses a kernel by the alignment of the bias, and says in a result whether there is one.
    const par_tp_kernels *k = par_cuda_tp(products_cuda);
    par_tp *tp = open_tp(w, NULL, 0, 0, 0, k);
    float *x = (float *)zeros_on_device(w, products_cuda, 3 * sizeof got[0]), *y = x + PRODUCT * PRODUCT;
    for (int i = 0; i < 3; i++)
        CHECK_OK(w,
                 k->gemm(tp, 0, 0, 8, PRODUCT, 8, x, PRODUCT, x, PRODUCT, 0, y, PAR_F32, PRODUCT, x + i % 2));
    emu_no_algorithms(1);
    CHECK(w, k->gemm(tp, 0, 0, 9, PRODUCT, 8, x, PRODUCT, x, PRODUCT, 0, y, PAR_F32, PRODUCT, x) ==
                 PAR_ERR_SYSTEM);
    emu_no_algorithms(0);
    CHECK_OK(w, par_cuda_free(products_cuda, PAR_CUDA_DEVICE, x));
    CHECK_OK(w, par_tp_close(tp));
    CHECK_OK(w, par_cuda_close(products_cuda));
}
// A product with an epilogue, of which only what the library has is planned: GELU's input has a leading
// dimension that is a multiple of 8, and arrays are aligned as those for which the kernel was chosen.
static void epilogue_rules(par_comm *w) {
    static const struct {
        int epilogue;
        size_t ld;
        int bias, aux, planned;
    } rules[] = {
        {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 16, 1, 1, 1}, {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 12, 1, 1, 0},
        {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 16, 1, 0, 0}, {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 16, 0, 1, 0},
        {CUBLASLT_EPILOGUE_DGELU, 16, 0, 1, 1},         {CUBLASLT_EPILOGUE_DGELU, 20, 0, 1, 0},
        {CUBLASLT_EPILOGUE_BGRADA, 16, 1, 0, 0}};
    emu_capability(90);
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    float *x = (float *)on_device(w, cuda, 4096), *y = x + 256, *z = x + 512, *bias = x + 768;
    par__cuda_gemm_desc p = {0, 0, 8, 12, 8, 8, 16, 16, 1, 0, PAR_F32, PAR_F32, NULL};
    for (const auto &k : rules) {
        p.epilogue = k.epilogue, p.ldc = k.ld, p.bias = k.bias ? bias : NULL, p.aux = k.aux ? z : NULL;
        const par_result got = par__cuda_gemm(cuda, &p, x, x, y, cuda->stream);
        if (got != (k.planned ? PAR_OK : PAR_ERR_UNSUPPORTED))
            fprintf(stderr, "epilogue %d, ld %zu: %d\n", k.epilogue, k.ld, (int)got);
        CHECK(w, got == (k.planned ? PAR_OK : PAR_ERR_UNSUPPORTED));
    }
    par__cuda_gemm_plan *plan;
    p.epilogue = CUBLASLT_EPILOGUE_DGELU, p.ldc = 16, p.bias = NULL, p.aux = z;
    const par__cuda_gemm_key key = par__cuda_gemm_key_of(cuda, &p, x, x, y);
    CHECK_OK(w, par__cuda_find_plan(cuda, &p, &key, &plan));
    p.aux = z + 1; // 4 bytes later
    CHECK(w, !par__cuda_set_epilogue(plan->matmul, NULL, p.aux));
    CHECK(w, cublasLtMatmul(cuda->cublas, plan->matmul, &p.alpha, x, plan->b, x, plan->a, &p.beta, y, plan->c,
                            y, plan->c, &plan->heuristic.algo, cuda->workspaces->memory,
                            cuda->workspace_bytes, cuda->stream) == CUBLAS_STATUS_INVALID_VALUE);
    // what the library does not have is asked once; the kernels of rows do it
    const par_tp_kernels *k = par_cuda_tp(cuda);
    par_tp *tp = open_tp(w, NULL, 0, 0, 0, k);
    int handled[4] = {1, 1, 1, 1};
    for (int i = 0; i < 4; i++) {
        const size_t n = i == 3 ? 12 : 16; // the last one has a leading dimension that no kernel has
        emu_no_algorithms(i == 0);
        CHECK_OK(w, k->gemm_fused(tp, PAR_TP_FUSED_GELU_BACKWARD, 4, n, i == 2 ? 12 : 8, x, 16, x, n, y, n,
                                  NULL, z, &handled[i]));
    }
    CHECK(w, !handled[0] && !handled[1] && handled[2] && !handled[3]);
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, x));
    CHECK_OK(w, par_tp_close(tp));
    CHECK_OK(w, par_cuda_close(cuda));
    emu_capability(0);
}
// ---- plans by measurement

// A product of rows x 16 x 8 by this context; 0: its result is not what it should be.
static int tuned_product(par_comm *w, par_cuda *cuda, size_t rows, int epilogue) {
    enum { N = 16, K = 8, MOST = 64 };
    static const float one = 1;
    float host[MOST * N], *a, *c;
    int right = 1;
    par__cuda_gemm_desc p = {0, 0, rows, N, K, K, N, N, 1, 0, PAR_F32, PAR_F32, NULL};
    a = (float *)on_device(w, cuda, MOST * N * sizeof *a), c = (float *)on_device(w, cuda, sizeof host);
    for (int i = 0; i < MOST * N; i++) host[i] = one;
    upload(cuda, a, host, sizeof host);
    if (epilogue) p.epilogue = epilogue, p.aux = a;
    if (!epilogue && rows % 2 == 0) // the same in two blocks
        p.m = rows / 2, p.blocks = 2, p.a_step = p.m * K, p.c_step = p.m * N;
    CHECK_OK(w, par__cuda_gemm(cuda, &p, a, a, c, cuda->stream));
    download(cuda, host, c, sizeof host);
    for (size_t i = 0; i < rows * N; i++) right = right && host[i] == host[0];
    right = right && (epilogue || host[0] == K) && host[0] > 1;
    for (float *x : {a, c}) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, x));
    return right;
}
static float milliseconds_of(par_comm *w, par_cuda *cuda, size_t rows) { // as the library pretends
    cudaEvent_t e[2], untimed;
    float ms = 0;
    for (cudaEvent_t &x : e) cudaEventCreate(&x);
    CHECK(w, cudaEventElapsedTime(&ms, e[0], e[1]) == cudaErrorInvalidResourceHandle); // not recorded
    for (cudaEvent_t x : e) {
        if (x == e[1]) CHECK(w, tuned_product(w, cuda, rows, 0));
        cudaEventRecord(x, cuda->stream);
    }
    CHECK_OK(w, par_cuda_sync(cuda));
    CHECK(w, !cudaEventElapsedTime(&ms, e[0], e[1]));
    cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaEventRecord(untimed, cuda->stream);
    float none;
    CHECK(w, cudaEventElapsedTime(&none, e[0], untimed) == cudaErrorInvalidResourceHandle);
    cudaGetLastError();
    for (cudaEvent_t x : {e[0], e[1], untimed}) cudaEventDestroy(x);
    return ms;
}
// Rank 0's file holds this text: what do the ranks say? NULL: they take it.
static void tunes_by(par_comm *w, par_cuda *cuda, const char *path, const std::string &text,
                     const char *says) {
    FILE *f = par_rank(w) == 0 ? fopen(path, "w") : NULL;
    if (f) fwrite(text.data(), 1, text.size(), f), fclose(f);
    const par_result r = par_cuda_tune(cuda, path, NULL);
    const int right = !says         ? !r
                      : par_rank(w) ? r != PAR_OK
                                    : r == PAR_ERR_FILE && strstr(par_last_error(w), says);
    if (!right) fprintf(stderr, "%s: %d, %s\n", text.c_str(), (int)r, par_last_error(w));
    CHECK(w, right);
}
static std::string text_of(const char *path) {
    char text[8192];
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (f) fclose(f);
    return std::string(text, n);
}
// Files that this version did not write, or not whole; then one of another device, which is replaced.
static void tuning_files(par_comm *w, par_cuda *cuda, const char *path) {
    const std::string good = text_of(path), rows = good.substr(good.find("plan\n") + 5);
    CHECK_OK(w, par_barrier(w)); // all have read it
    const std::string first = rows.substr(0, rows.find('\n') + 1),
                      header = good.substr(0, good.find("plan\n") + 5);
    const std::string start = first.substr(0, first.rfind(' ') + 1);
    const char *damaged = "name another file, or delete this one";
    tunes_by(w, cuda, path, good, NULL);
    tunes_by(w, cuda, path, header + "end 0\n", NULL);
    for (const std::string &text :
         {std::string(), std::string("\0\1\2\xff", 4), std::string("weights"),
          "par_cuda_tune 1" + good.substr(15), good.substr(0, 30), header, header + first, header + "end 1\n",
          header + first + "end 2\n", header + first.substr(1), header + first + "end 1\nx",
          header + start + "8\nend 1\n", header + start + "-1\nend 1\n",
          header + start + "99999999999999999999\nend 1\n",
          header + "0" + first.substr(first.find(' ')) + "end 1\n", header + start + "1 1\nend 1\n",
          header + "\n" + "end 0\n", good.substr(0, good.size() - 1)})
        tunes_by(w, cuda, path, text, damaged);
    par__cuda_tuner *t = new par__cuda_tuner();
    snprintf(
        t->identity, sizeof t->identity, "%s",
        header.substr(strlen(par__cuda_tuned_begin), header.find('\n', 16) - strlen(par__cuda_tuned_begin))
            .c_str());
    for (uint64_t i = 0; i < 300; i++) { // a byte is another one, or the file ends there
        std::string text = good;
        const size_t at = (size_t)(par_uniform(7, 1, i) * (float)good.size());
        if (i % 4) text[at] = (char)(par_uniform(7, 2, i) * 256);
        if (i % 4 == 0) text.resize(at);
        const par_result r = par__cuda_tuned_parse(cuda, path, text.c_str(), t);
        CHECK(w, !r || r == PAR_ERR_FILE);
        PAR_FREE(t->list), t->list = NULL, t->count = 0;
    }
    delete t;
    const size_t device = good.find("device ") + 7;
    tunes_by(w, cuda, path, good.substr(0, device) + "Another " + good.substr(device), NULL);
    CHECK_OK(w, par_barrier(w));
}
typedef struct tuned_run { // of a context on a comm of its own
    par_comm *comm;
    par_cuda *cuda;
} tuned_run;
static tuned_run begin_tuned(par_comm *w, par_cuda_backend backend) {
    tuned_run t;
    CHECK_OK(w, par_split(w, 0, par_rank(w), &t.comm));
    t.cuda = open_cuda(t.comm, backend);
    return t;
}
static void end_tuned(par_comm *w, const tuned_run *t) {
    CHECK_OK(w, par_cuda_close(t->cuda));
    CHECK_OK(w, par_close(t->comm));
    CHECK_OK(w, par_barrier(w));
}
static const char *tuned_file(par_comm *w) {
    static thread_local char path[600];
    snprintf(path, sizeof path, "%s/par_cuda_tune_%d", test_dir, (int)getpid());
    CHECK_OK(w, par_broadcast(path, path, sizeof path, PAR_U8, 0, w));
    return path;
}
static void tuned_elsewhere(par_comm *w) { // what cannot be written, captured or allocated
    const tuned_run t = begin_tuned(w, PAR_CUDA_AUTO);
    const std::string nowhere = std::string(tuned_file(w)) + ".none/file";
    cudaGraph_t made;
    CHECK(w, tuned_product(w, t.cuda, 5, 0));
    CHECK(w, par_cuda_tune(t.cuda, nowhere.c_str(), NULL) == PAR_ERR_FILE);
    CHECK(w, !cudaStreamBeginCapture(t.cuda->stream, cudaStreamCaptureModeThreadLocal));
    CHECK(w, par_cuda_tune(t.cuda, NULL, NULL) == PAR_ERR_UNSUPPORTED);
    CHECK(w, !cudaStreamEndCapture(t.cuda->stream, &made) && !cudaGraphDestroy(made));
    par__cuda_choice none = {0, 0, 0, 0};
    par__cuda_trial *trial = new par__cuda_trial();
    par__cuda_gemm_key large = t.cuda->tuned[0].key;
    large.lda = large.m = (size_t)1 << 24;
    CHECK(w, !par__cuda_try_product(t.cuda, trial, &large, &none) && !none.plan);
    delete trial;
    end_tuned(w, &t);
}
// Each rank has a product of its own, and all have one in common: the fastest plan whose bits do not vary is
// taken by all. The file gives the same plans to a later run.
static void tunes_on(par_comm *w, int sm) { // sm_90's workspaces allow a plan more
    const int n = par_size(w), me = par_rank(w), count = n + 1 + (sm == 90);
    const float ms = sm == 80 ? 0.03f : 0.02f;
    const char *path = tuned_file(w);
    par_cuda_tuning got;
    tuned_run t = begin_tuned(w, PAR_CUDA_AUTO);
    CHECK_OK(w, par_cuda_tune(t.cuda, path, &got)); // no product has run, and the file is of another device
    CHECK(w, !got.products && !got.measured);
    CHECK(w, tuned_product(w, t.cuda, 4, 0) && tuned_product(w, t.cuda, (size_t)(8 + me), 0));
    if (sm == 90) CHECK(w, tuned_product(w, t.cuda, 4, CUBLASLT_EPILOGUE_DGELU));
    CHECK(w, fabsf(milliseconds_of(w, t.cuda, 4) - 0.04f) < 1e-6f);
    CHECK_OK(w, par_cuda_tune(t.cuda, path, &got));
    CHECK(w, got.products == count && got.measured == count);
    CHECK(w, got.changed == count && got.refused == count);
    CHECK(w, fabs(got.first_us - 40 * count) < 0.1 && fabs(got.tuned_us - 1e3 * ms * count) < 0.1);
    for (size_t rows : {(size_t)4, (size_t)(8 + me)})
        CHECK(w, fabsf(milliseconds_of(w, t.cuda, rows) - ms) < 1e-6f);
    CHECK_OK(w, par_cuda_tune(t.cuda, path, &got));
    CHECK(w, got.products == count && !got.measured);
    end_tuned(w, &t);
    t = begin_tuned(w, PAR_CUDA_AUTO);
    CHECK_OK(w, par_cuda_tune(t.cuda, path, &got));
    CHECK(w, got.products == count && !got.measured);
    CHECK(w, fabsf(milliseconds_of(w, t.cuda, (size_t)(8 + (me + 1) % n)) - ms) < 1e-6f); // another rank's
    end_tuned(w, &t);
}
static void tuning(par_comm *w) {
    const int me = par_rank(w), threads = !strcmp(par_launch_method(w), "threads");
    par_cuda_tuning got;
    for (int sm : {80, 90}) {
        CHECK_OK(w, par_barrier(w));
        emu_capability(sm);
        tunes_on(w, sm);
    }
    tuned_run t = begin_tuned(w, PAR_CUDA_AUTO);
    tuning_files(t.comm, t.cuda, tuned_file(w));
    CHECK(w, tuned_product(w, t.cuda, 6, 0)); // now the file is another device's
    CHECK_OK(w, par_cuda_tune(t.cuda, tuned_file(w), &got));
    CHECK(w, got.measured == 1 && text_of(tuned_file(w)).find("Another") == std::string::npos);
    end_tuned(w, &t);
    tuned_elsewhere(w);
    if (!threads && par_size(w) > 1) {
        emu_capability(me ? 90 : 80);
        t = begin_tuned(w, PAR_CUDA_STAGING);
        CHECK(w, par_cuda_tune(t.cuda, NULL, NULL) == PAR_ERR_MISMATCH);
        end_tuned(w, &t);
    }
    if (!me)
        unlink(tuned_file(w));
    else
        tuned_file(w);
    CHECK_OK(w, par_barrier(w));
    emu_capability(0);
}
// Which products of codes the library has depends on the device; what it lacks is an error that names it. A
// case is a fault if `refused` is not 0: with that device, shape or alignment it is refused.
typedef struct code_rule {
    int capability;
    par_tp_recipe recipe;
    size_t rows, cols;    // of A; of both (K); B has 32 rows
    int gradients, shift; // A has the codes of gradients, B too if 2; bytes by which A's scales are shifted
    const char *refused;
} code_rule;
static void code_product(par_comm *w, par_cuda *cuda, par_tp *tp, const code_rule *k) {
    const par__tp_recipe *r = par__tp_recipe_of(k->recipe);
    char *memory = (char *)zeros_on_device(w, cuda, 65536);
    par_tp_operand q[2];
    memset(q, 0, sizeof q);
    emu_capability(k->capability);
    for (int i = 0; i < 2; i++) {
        q[i].code = k->gradients > i ? r->gradients : r->code, q[i].scale = r->scale;
        q[i].block_rows = i || k->gradients == 3 ? r->weight_rows : r->rows, q[i].block_cols = r->cols;
        q[i].rows = i ? 32 : k->rows, q[i].cols = q[i].ld = k->cols;
        q[i].amax = (float *)(void *)(memory + 4096 * i), q[i].codes = memory + 8192 + 16384 * i;
        q[i].scales = memory + 4096 * i + 1024 + (i ? 0 : k->shift);
    }
    const par_result got =
        par_cuda_tp(cuda)->gemm_codes(tp, &q[0], &q[1], 0, memory + 40960, PAR_F32, 32, NULL);
    const int right = k->refused ? got && strstr(par_last_error(w), k->refused) : !got;
    if (!right) fprintf(stderr, "rule %s: %s\n", k->refused ? k->refused : "none", par_last_error(w));
    CHECK(w, right);
    emu_capability(0);
    CHECK_OK(w, par_cuda_sync(cuda));
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, memory));
}
static void code_rules(par_comm *w) {
    static const code_rule rules[] = {
        {89, PAR_TP_CURRENT, 24, 128, 1, 0, NULL},
        {80, PAR_TP_CURRENT, 24, 128, 0, 0, "on sm_80 has no product of 24 x 32 x 128"},
        {89, PAR_TP_CURRENT, 24, 128, 2, 0, "scale modes SCALAR_32F and SCALAR_32F"}, // E5M2 twice
        {89, PAR_TP_CURRENT, 24, 136, 0, 0, "no product of 24 x 32 x 136"},           // K not of 16 bytes
        {90, PAR_TP_ROWWISE, 24, 128, 0, 0, NULL},
        {89, PAR_TP_ROWWISE, 24, 128, 0, 0, "OUTER_VEC_32F: it has them from cuBLAS 12.9 on, on sm_90"},
        {90, PAR_TP_BLOCKS, 24, 128, 0, 0, NULL},
        {90, PAR_TP_BLOCKS, 22, 128, 0, 0, "VEC128_32F and BLK128x128_32F"}, // columns of scales: 88 bytes
        {100, PAR_TP_BLOCKS, 24, 128, 0, 0, "VEC128_32F"},
        {90, PAR_TP_BLOCKS, 24, 128, 3, 0, "BLK128x128_32F and BLK128x128_32F"},
        {90, PAR_TP_BLOCKS, 24, 128, 0, 4, "emulated cuBLASLt error"}, // scales not at 16 bytes
        {100, PAR_TP_MXFP8, 24, 128, 0, 0, NULL},
        {90, PAR_TP_MXFP8, 24, 128, 0, 0, "VEC32_UE8M0: it has them from sm_100 and cuBLAS 12.8 on"},
        {100, PAR_TP_NVFP4, 24, 128, 0, 0, NULL},
        {90, PAR_TP_NVFP4, 24, 128, 0, 0, "VEC16_UE4M3"}};
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    par_tp *tp = open_tp(w, NULL, 0, 0, 0, par_cuda_tp(cuda));
    for (const code_rule &k : rules) code_product(w, cuda, tp, &k);
    CHECK_OK(w, par_tp_close(tp));
    CHECK_OK(w, par_cuda_close(cuda));
}
#endif
#if PAR__CUDA_DNN
// One forward pass of attention by cuDNN on this stream, in `workspace`. off: bytes by which v begins
// elsewhere.
enum { DNN_TOKENS = 9, DNN_DIM = 16, DNN_WORKSPACE = 512 }; // of the first engine that can be taken
static par_result dnn_forward(par_cuda *cuda, par__dnn_plan *p, char *x, size_t off, size_t count,
                              void *workspace) {
    enum { BYTES = DNN_TOKENS * DNN_DIM * 2 };
    float scale = 1, low = -INFINITY;
    const int64_t ids[] = {PAR__DNN_Q,     PAR__DNN_K_TRANSPOSED,      PAR__DNN_V,  PAR__DNN_Y,
                           PAR__DNN_SCALE, PAR__DNN_NEGATIVE_INFINITY, PAR__DNN_LSE};
    void *data[] = {x, x + DNN_DIM * 2, x + DNN_DIM * 4 + off, x + 3 * BYTES, &scale, &low, x + 4 * BYTES};
    return par__dnn_run(cuda, p, ids, data, count, workspace);
}
static par_cuda *dnn_cuda;
static par__dnn_plan *dnn_plan;
static char *dnn_arrays;           // of the planted fault
static void two_executions(void) { // of one plan on two streams, in one workspace
    cudaStream_t s;
    cudaMalloc((void **)&dnn_arrays, 8192);
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    for (int i = 0; i < 40; i++) {
        cudnnSetStream(dnn_cuda->cudnn, i % 2 ? s : dnn_cuda->stream);
        dnn_forward(dnn_cuda, dnn_plan, dnn_arrays, 0, 7, dnn_arrays + 4096);
    }
    cudaStreamSynchronize(s);
    cudaStreamSynchronize(dnn_cuda->stream);
}
static void cudnn_rules(par_comm *w) {
    static const struct {
        par__dnn_shape shape;
        int planned;
    } shapes[] = {{{1, 2, 1, 9, 64, 0}, 1}, {{1, 2, 1, 9, 256, 0}, 1}, {{1, 2, 1, 9, 264, 0}, 0},
                  {{1, 2, 2, 9, 20, 0}, 0}, {{1, 2, 1, 9, 128, 1}, 1}, {{1, 2, 1, 9, 136, 1}, 0},
                  {{1, 2, 1, 33, 8, 1}, 1}};
    par_cuda *cuda = dnn_cuda = open_cuda(w, PAR_CUDA_AUTO);
    cudaGraph_t made;
    cudaGraphExec_t exec;
    par_tp_attention_block m;
    par__dnn_plan p, *none;
    char *x = (char *)on_device(w, cuda, 8192);
    uint16_t host[DNN_DIM], want[DNN_DIM];
    CHECK_OK(w, par__dnn_open(cuda));
    for (const auto &s : shapes) {
        memset(&p, 0, sizeof p), p.shape = s.shape;
        static const size_t limits[] = {1 << 20, DNN_WORKSPACE - 1, DNN_WORKSPACE / 2 - 1}; // then none
        for (int i = 0; i < 3; i++) {
            par__dnn_build(&p, cuda->cudnn, NULL, limits[i]);
            CHECK(w, !p.plan == (!s.planned || i == 2));
            CHECK(w, !p.plan || p.workspace_bytes == (size_t)DNN_WORKSPACE >> i);
            CHECK(w, p.descriptor_count < PAR__DNN_MAX_DESCRIPTORS);
            par__dnn_destroy(&p, 0), p.plan = NULL;
        }
    }
    memset(&m, 0, sizeof m), m.batch = m.heads = m.kv_heads = 1, m.q_count = DNN_TOKENS, m.dim = DNN_DIM;
    CHECK_OK(w, par__dnn_find(cuda, &m, 0, &dnn_plan));
    CHECK(w, dnn_plan && dnn_plan->workspace_bytes <= 4096);
    CHECK(w, !cudaMemsetAsync(x, 0x3c, 4096, par_cuda_stream(cuda)));
    CHECK(w, dnn_forward(cuda, dnn_plan, x, 8, 7, x + 4096) == PAR_ERR_SYSTEM); // no multiple of 16
    CHECK(w, dnn_forward(cuda, dnn_plan, x, 0, 6, x + 4096) == PAR_ERR_SYSTEM); // a tensor is missing
    CHECK(w, dnn_forward(cuda, dnn_plan, x, 0, 7, NULL) == PAR_ERR_SYSTEM);
    CHECK_OK(w, par_cuda_sync(cuda));
    CHECK(w, fault_ends(two_executions, "two plans use one workspace"));
    CHECK_OK(w, dnn_forward(cuda, dnn_plan, x, 0, 7, x + 4096));
    download(cuda, want, x + 3 * DNN_TOKENS * DNN_DIM * 2, sizeof want);
    // A plan is executed in a capture, and built outside.
    for (int built = 0; built < 2; built++) {
        m.q_count = DNN_TOKENS + 1;
        CHECK(w, !cudaMemsetAsync(x + 3 * DNN_TOKENS * DNN_DIM * 2, 0, 64, par_cuda_stream(cuda)));
        CHECK(w, !cudaStreamBeginCapture(par_cuda_stream(cuda), cudaStreamCaptureModeThreadLocal));
        CHECK_OK(w, dnn_forward(cuda, dnn_plan, x, 0, 7, x + 4096));
        CHECK(w, par__dnn_find(cuda, &m, 0, &none) == PAR_ERR_UNSUPPORTED && !none);
        memset(&p, 0, sizeof p), p.shape = shapes[0].shape;
        if (built) par__dnn_build(&p, cuda->cudnn, NULL, 1 << 20);
        if (built) par__dnn_destroy(&p, 0);
        CHECK(w, cudaStreamEndCapture(par_cuda_stream(cuda), &made) ==
                     (built ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
        if (built) break;
        CHECK(w, !cudaGraphInstantiate(&exec, made, 0) && !cudaGraphLaunch(exec, par_cuda_stream(cuda)));
        download(cuda, host, x + 3 * DNN_TOKENS * DNN_DIM * 2, sizeof host);
        CHECK(w, want[3] && !memcmp(host, want, sizeof host));
        CHECK(w, !cudaGraphExecDestroy(exec) && !cudaGraphDestroy(made));
    }
    cudaGetLastError();
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, x));
    CHECK_OK(w, par_cuda_close(cuda));
}
#endif
#if defined(PAR_CUDA_NCCL)
// NCCL accesses an array of another device's pool directly.
static void nccl_pool(void) {
    ncclUniqueId id;
    ncclComm_t comm[2];
    cudaStream_t s[2];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    void *x[2];
    emu_devices(2);
    config.blocking = 0;
    ncclGetUniqueId(&id);
    for (int r = 0; r < 2; r++) {
        cudaSetDevice(r), ncclCommInitRankConfig(&comm[r], 2, id, r, &config);
        cudaStreamCreateWithFlags(&s[r], cudaStreamNonBlocking), cudaMallocAsync(&x[r], 64, s[r]);
    }
    for (int r = 0; r < 2; r++) ncclAllReduce(x[r], x[r], 16, ncclFloat, ncclSum, comm[r], s[r]);
    cudaStreamSynchronize(s[0]);
}
typedef struct nccl_pair { // two ranks, by one thread
    ncclComm_t comm[2];
    cudaStream_t stream[2];
    float *x;
} nccl_pair;
static nccl_pair open_nccl_pair(ncclConfig_t config = NCCL_CONFIG_INITIALIZER) {
    nccl_pair p;
    ncclUniqueId id;
    config.blocking = 0;
    ncclGetUniqueId(&id);
    for (int r = 0; r < 2; r++) ncclCommInitRankConfig(&p.comm[r], 2, id, r, &config);
    for (int r = 0; r < 2; r++) cudaStreamCreateWithFlags(&p.stream[r], cudaStreamNonBlocking);
    cudaMalloc((void **)&p.x, 1024);
    return p;
}
// What a library reads and writes lies within arrays, and as their types want it.
static void sums_from(size_t first) {
    const nccl_pair p = open_nccl_pair();
    const float *x = (const float *)(const void *)((const char *)p.x + first);
    for (int r = 0; r < 2; r++) ncclAllReduce(x, p.x, 16, ncclFloat, ncclSum, p.comm[r], p.stream[r]);
    cudaStreamSynchronize(p.stream[0]);
}
static void sums_beyond(void) { sums_from(1024 - 60); }
static void sums_unaligned(void) { sums_from(2); }
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
// A kernel that waits for another rank runs, and the host goes on with a call that waits for it, or launches
// a kernel for the first time, which may wait for it: what the other rank waits for comes too late.
static void receive_first(int alloc, int loaded) {
    const nccl_pair p = open_nccl_pair();
    float *x;
    cudaStream_t compute;
    cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking);
    nccl_group(&p, 0, "r"), nccl_group(&p, 1, "s");
    cudaStreamSynchronize(p.stream[0]); // connected
    if (loaded) emu_launch(plus_one, 1, 32, 0, compute, p.x, p.x, (size_t)1);
    emu_patience(0.2);
    nccl_group(&p, 0, "r");
    if (alloc) cudaMalloc((void **)&x, 4);
    emu_launch(plus_one, 1, 32, 0, compute, p.x, p.x, (size_t)1);
    emu_patience(60);
    nccl_group(&p, 1, "s"); // of what the kernel has computed
    cudaStreamSynchronize(p.stream[0]);
}
static void loaded_late(void) { receive_first(0, 0); }
static void allocated_late(void) { receive_first(1, 1); }
static void loaded_before(void) { receive_first(0, 1), fprintf(stderr, "it ends"), _exit(1); }
// Rank 0 receives, computes with it, and sends what rank 1 needs first. Each direction has a communicator.
static void receive_before_send(int connections) {
    emu_connections(connections);
    const nccl_pair in = open_nccl_pair(), out = open_nccl_pair();
    cudaStream_t compute;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking), cudaEventCreate(&event);
    for (int late = 0; late < 2; late++) { // connected first
        nccl_group(&in, 0, "r");
        if (!late) nccl_group(&in, 1, "s");
        cudaEventRecord(event, in.stream[0]), cudaStreamWaitEvent(compute, event, 0);
        cudaMemsetAsync(in.x, 0, 4, compute);
        nccl_group(&out, 0, "s"), nccl_group(&out, 1, "r");
        if (late) cudaEventRecord(event, out.stream[1]), cudaStreamWaitEvent(in.stream[1], event, 0);
        if (late) nccl_group(&in, 1, "s");
        cudaStreamSynchronize(compute);
    }
}
// Two communicators that share resources, each in an order of its own on the two ranks.
static void split_share(void) {
    nccl_pair p = open_nccl_pair(), child = p;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0, config.splitShare = 1;
    for (int r = 0; r < 2; r++) ncclCommSplit(p.comm[r], 0, r, &child.comm[r], &config);
    for (int r = 0; r < 2; r++) cudaStreamCreateWithFlags(&child.stream[r], cudaStreamNonBlocking);
    for (int i = 0; i < 2; i++) // first connected
        for (int r = 0; r < 2; r++)
            for (int k = 0; k < 2; k++) {
                const nccl_pair *c = (k + i * r) % 2 ? &child : &p;
                ncclAllReduce(p.x, p.x, 16, ncclFloat, ncclSum, c->comm[r], c->stream[r]);
            }
    cudaStreamSynchronize(p.stream[0]);
}
// A stream that comes after a sum of NCCL copies to the host's memory. The sum may never end.
static void copy_after_sum(int pinned, int waits) {
    static char pageable[64];
    void *to = pageable;
    nccl_pair p = open_nccl_pair();
    cudaStream_t compute;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking), cudaEventCreate(&event);
    if (pinned) cudaHostAlloc(&to, sizeof pageable, 0);
    for (int r = 0; r < 2; r++) ncclAllReduce(p.x, p.x, 16, ncclFloat, ncclSum, p.comm[r], p.stream[r]);
    cudaEventRecord(event, p.stream[0]), cudaStreamWaitEvent(compute, event, 0);
    if (waits) cudaStreamSynchronize(compute);
    cudaMemcpyAsync(to, p.x, sizeof pageable, cudaMemcpyDeviceToHost, compute);
    cudaStreamSynchronize(compute);
    fprintf(stderr, "it ends"), _exit(1);
}
static void copy_to_pageable(void) { copy_after_sum(0, 0); }
static void copy_to_pinned(void) { copy_after_sum(1, 0); }
static void copy_after_wait(void) { copy_after_sum(0, 1); }
// A communicator is aborted while a graph has one of its sums.
static void abort_with_graph(void) {
    const nccl_pair p = open_nccl_pair();
    cudaGraph_t made;
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < 2; r++) {
            if (i) cudaStreamBeginCapture(p.stream[r], cudaStreamCaptureModeThreadLocal);
            ncclAllReduce(p.x, p.x, 16, ncclFloat, ncclSum, p.comm[r], p.stream[r]);
            if (i) cudaStreamEndCapture(p.stream[r], &made);
        }
    cudaStreamSynchronize(p.stream[0]);
    if (ncclCommFinalize(p.comm[0]) != ncclInProgress) return; // likewise
    emu_patience(0.2);
    ncclCommAbort(p.comm[0]);
}
static void one_queue(void) { receive_before_send(1); }
static void many_queues(void) { receive_before_send(32), fprintf(stderr, "it ends"), _exit(1); }
static void nccl_rules(par_comm *w) {
    CHECK(w, fault_ends(loaded_late, "the first launch of a kernel waits"));
    CHECK(w, fault_ends(allocated_late, "an allocation waits"));
    CHECK(w, fault_ends(loaded_before, "it ends"));
    CHECK(w, fault_ends(one_queue, "deadlock of NCCL kernels"));
    CHECK(w, fault_ends(many_queues, "it ends"));
    CHECK(w, fault_ends(copy_to_pageable, "not page-locked waits for NCCL"));
    CHECK(w, fault_ends(copy_to_pinned, "it ends"));
    CHECK(w, fault_ends(copy_after_wait, "it ends"));
    CHECK(w, fault_ends(abort_with_graph, "ncclCommAbort waits for graphs"));
    CHECK(w, fault_ends(split_share, "deadlock of NCCL kernels"));
    CHECK(w, fault_ends(nccl_pool, "cudaMemPoolSetAccess"));
    CHECK(w, fault_ends(sums_beyond, "out of bounds"));
    CHECK(w, fault_ends(sums_unaligned, "not aligned"));
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
    CHECK(w, ncclAllReduce(p.x, p.x, 4, ncclFloat, ncclSum, p.comm[1], p.stream[1]) == ncclInProgress);
    CHECK(w, !ncclCommGetAsyncError(p.comm[1], &state) && state == ncclInProgress); // the first of its kind
    CHECK(w, ncclAllReduce(p.x, p.x, 4, ncclFloat, ncclSum, p.comm[0], p.stream[0]) == ncclSuccess);
    CHECK(w, !ncclCommGetAsyncError(p.comm[1], &state) && state == ncclSuccess);
    CHECK(w, ncclAllReduce(p.x, p.x, 4, ncclFloat, ncclSum, p.comm[1], p.stream[1]) == ncclSuccess);
    CHECK(w, ncclAllReduce(p.x, p.x, 4, ncclFloat, ncclSum, p.comm[0], p.stream[0]) == ncclSuccess);
    nccl_group(&p, 0, "sr"), nccl_group(&p, 1, "sr");
    CHECK(w, ncclCommFinalize(p.comm[0]) == ncclInProgress);
    CHECK(w, ncclCommDestroy(p.comm[0]) == ncclInvalidUsage); // its kernels have not ended
    for (int r = 0; r < 2; r++) CHECK(w, cudaStreamSynchronize(p.stream[r]) == cudaSuccess);
    for (int r = 0; r < 2; r++) CHECK(w, ncclCommDestroy(p.comm[r]) == ncclSuccess);
    for (int r = 0; r < 2; r++) cudaStreamDestroy(p.stream[r]);
    cudaFree(p.x);
}

// NCCL's communicators are captured, and made before. Another context of the rank must not break the capture.
static void captured_nccl(par_comm *w) {
    enum { N = 16 };
    par_comm *copy, *part, *half;
    par_cuda *cuda, *other;
    par_request q;
    float host[N];
    void *x, *p;
    cudaGraph_t made;
    cudaGraphExec_t exec;
    if (!nccl_here(w)) {
        CHECK_OK(w, par_barrier(w));
        return;
    }
    CHECK_OK(w, par_split(w, 0, par_rank(w), &copy));
    CHECK_OK(w, par_split(w, 0, par_rank(w), &part));
    cuda = open_cuda(part, PAR_CUDA_NCCL_BACKEND), other = open_cuda(copy, PAR_CUDA_STAGING);
    CHECK_OK(w, par_cuda_alloc(cuda, PAR_CUDA_SYMMETRIC, sizeof host, &x));
    for (int i = 0; i < N; i++) host[i] = (float)i;
    upload(cuda, x, host, sizeof host);
    CHECK_OK(w, par_all_reduce(x, x, N, PAR_F32, PAR_SUM, part)); // makes the comm's stream
    CHECK(w, !cudaStreamBeginCapture(par_cuda_stream(cuda), cudaStreamCaptureModeThreadLocal));
    CHECK_OK(w, par_all_reduce_begin(x, x, N, PAR_F32, PAR_SUM, part, &q));
    CHECK(w, cudaStreamEndCapture(par_cuda_stream(cuda), &made) ==
                 (par_size(w) > 1 ? cudaErrorStreamCaptureUnjoined : cudaSuccess)); // of one rank: a stream
    if (made) cudaGraphDestroy(made);
    CHECK(w, par_wait(&q) == PAR_ERR_UNSUPPORTED && strstr(par_last_error(w), "before cudaStreamEndCapture"));
    CHECK_OK(w, par_broadcast_begin(x, x, N, PAR_F32, 0, part, &q));
    CHECK(w, !cudaStreamBeginCapture(par_cuda_stream(cuda), cudaStreamCaptureModeThreadLocal));
    CHECK(w, par_wait(&q) == PAR_ERR_UNSUPPORTED && strstr(par_last_error(w), "wait for it before"));
    CHECK(w, par_close(part) == PAR_ERR_UNSUPPORTED);
    CHECK(w, par_split(part, 0, par_rank(w), &half) == PAR_ERR_UNSUPPORTED);
    CHECK(w, strstr(par_last_error(part), "split comms before"));
    CHECK(w, par_cuda_window_open(part, x, sizeof host, &p) == PAR_ERR_UNSUPPORTED && !p);
    CHECK(w, par_cuda_window_close(part, x) == PAR_ERR_UNSUPPORTED || !PAR__CUDA_WINDOWS);
    CHECK(w, strstr(par_last_error(part), "outside of captures") || !PAR__CUDA_WINDOWS);
    CHECK(w, par_cuda_alloc(other, PAR_CUDA_DEVICE, 4, &p) == PAR_ERR_UNSUPPORTED);
    CHECK(w, par_cuda_sync(other) == PAR_ERR_UNSUPPORTED);
    CHECK(w, par_all_reduce(x, x, N, PAR_F32, PAR_SUM, copy) == PAR_ERR_UNSUPPORTED);
    CHECK_OK(w, par_all_reduce(x, x, N, PAR_F32, PAR_SUM, part));
    CHECK(w, !cudaStreamEndCapture(par_cuda_stream(cuda), &made) && !cudaGraphInstantiate(&exec, made, 0));
    CHECK(w, !cudaGraphLaunch(exec, par_cuda_stream(cuda)));
    download(cuda, host, x, sizeof host);
    CHECK(w, host[3] == (float)(3 * par_size(w) * par_size(w)));
    CHECK(w, !cudaGraphExecDestroy(exec) && !cudaGraphDestroy(made));
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_SYMMETRIC, x));
    CHECK_OK(w, par_cuda_close(other));
    CHECK_OK(w, par_cuda_close(cuda));
    CHECK_OK(w, par_close(copy));
    CHECK_OK(w, par_close(part));
}
// A comm is not closed while a graph has its calls, which NCCL would wait for; the graph can be replayed.
static void graphs_at_close(par_comm *w) {
    enum { N = 16 };
    par_comm *part;
    float host[N];
    void *x;
    cudaGraph_t made;
    cudaGraphExec_t exec;
    CHECK_OK(w, par_barrier(w));
    if (!nccl_here(w)) return;
    CHECK_OK(w, par_split(w, 0, par_rank(w), &part));
    par_cuda *cuda = open_cuda(part, PAR_CUDA_NCCL_BACKEND);
    CHECK_OK(w, par_cuda_alloc(cuda, PAR_CUDA_DEVICE, sizeof host, &x));
    for (int i = 0; i < N; i++) host[i] = (float)i;
    upload(cuda, x, host, sizeof host);
    CHECK_OK(w, par_all_reduce(x, x, N, PAR_F32, PAR_SUM, part));
    CHECK(w, !cudaStreamBeginCapture(par_cuda_stream(cuda), cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 2; i++) CHECK_OK(w, par_all_reduce(x, x, N, PAR_F32, PAR_AVG, part));
    CHECK(w, !cudaStreamEndCapture(par_cuda_stream(cuda), &made) && !cudaGraphInstantiate(&exec, made, 0));
    CHECK(w, !cudaGraphDestroy(made)); // what is made of it is alive
    const double timeout = par_timeout(part);
    par_set_timeout(part, 0.1);
    CHECK(w, par_close(part) == PAR_ERR_UNSUPPORTED && strstr(par_last_error(part), "cudaGraphExecDestroy"));
    CHECK(w, par_cuda_limit_ctas(part, 4) == PAR_ERR_UNSUPPORTED);
    par_set_timeout(part, timeout);
    CHECK(w, !cudaGraphLaunch(exec, par_cuda_stream(cuda)));
    download(cuda, host, x, sizeof host);
    CHECK(w, host[3] == (float)(3 * par_size(w)));
    CHECK(w, !cudaGraphExecDestroy(exec));
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, x));
    CHECK_OK(w, par_cuda_close(cuda));
    CHECK_OK(w, par_close(part));
}
// Rank 1 does not come to a call: the others hear of it by the deadline. Device memory of a rank each.
static par_cuda *open_without_checks(par_comm *w) {
    CHECK_OK(w, par_barrier(w));
    if (!nccl_here(w)) return NULL;
    emu_devices(par_size(w)); // else all would wait for the work of one
    CHECK_OK(w, par_barrier(w));
    par_cuda *cuda = open_cuda(w, PAR_CUDA_NCCL_BACKEND);
    cuda->desc.check = 0; // the call is made, and does not end
    return cuda;
}
static void copies_have_deadlines(par_comm *w) {
    float host[4], *x;
    par_cuda *cuda = open_without_checks(w);
    if (!cuda) return;
    par_device *d = par_cuda_device(cuda);
    x = (float *)on_device(w, cuda, sizeof host);
    CHECK_OK(w, par_all_reduce(x, x, 4, PAR_F32, PAR_SUM, w)); // connects
    CHECK_OK(w, d->copy(d, host, x, sizeof host, NULL));
    CHECK_OK(w, par_cuda_sync(cuda));
    CHECK_OK(w, par_barrier(w));
    if (par_rank(w) != 1) {
        par_set_timeout(w, 0.3);
        CHECK_OK(w, par_all_reduce(x, x, 4, PAR_F32, PAR_SUM, w));
        CHECK(w, d->copy(d, host, x, sizeof host, NULL) == PAR_ERR_TIMEOUT);
        CHECK(w, !cudaStreamSynchronize(par_cuda_stream(cuda))); // NCCL is aborted
        par_set_timeout(w, 20);
        test_arrive(&test_shared->words);
    } else {
        test_wait_for(&test_shared->words, par_size(w) - 1);
    }
    par_cuda_free(cuda, PAR_CUDA_DEVICE, x);
    par_cuda_close(cuda);
}
static void failing_communicators(par_comm *w) { // what cannot be made is not left behind
    par_cuda *cuda = NULL;
    par_cuda_desc desc;
    const int before = emu_communicators();
    par_comm *part;
    memset(&desc, 0, sizeof desc);
    desc.backend = PAR_CUDA_NCCL_BACKEND;
    for (int i = 0; i < 3; i++) { // the comm's own; a split's; the id of rank 0
        CHECK_OK(w, par_split(w, 0, par_rank(w), &part));
        desc.comm = part;
        CHECK_OK(w, par_barrier(w));
        if (i != 1) emu_fail_communicators(1 + i / 2);
        CHECK_OK(w, par_barrier(w));
        const par_result r = par_cuda_open(&desc, &cuda);
        CHECK(w, i == 1 ? r == PAR_OK : r == PAR_ERR_SYSTEM && !cuda && strstr(par_last_error(part), "NCCL"));
        CHECK_OK(w, par_barrier(w));
        if (i == 1) {
            par_comm *half = NULL;
            emu_fail_communicators(1);
            CHECK_OK(w, par_barrier(w));
            CHECK(w, par_split(part, 0, 0, &half) == PAR_ERR_SYSTEM);
            CHECK_OK(w, par_barrier(w));
        }
        emu_fail_communicators(0);
        CHECK_OK(w, par_cuda_close(cuda));
        cuda = NULL;
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
// Several ranks, which are threads here: one never comes to sums that the others wait for on their devices.
// All go on with a communicator of another comm.
static void goes_on_nccl(par_comm *w) {
    enum { COUNT = 100 };
    const int n = par_size(w), last = n - 1, me = par_rank(w), before = emu_communicators();
    float host[COUNT];
    par_comm *next, *half;
    CHECK_OK(w, par_split(w, 0, 0, &next));
    par_cuda *cuda = open_without_checks(w);
    if (!cuda) return;
    float *x = (float *)zeros_on_device(w, cuda, sizeof host);
    CHECK_OK(w, par_split(w, 0, 0, &half));
    for (par_comm *c : {w, half}) CHECK_OK(w, par_all_reduce(x, x, COUNT, PAR_F32, PAR_SUM, c));
    CHECK_OK(w, par_cuda_sync(cuda));
    par_set_timeout(w, 0.5);
    if (me != last) {
        for (par_comm *c : {w, half}) (void)par_all_reduce(x, x, COUNT, PAR_F32, PAR_SUM, c);
        CHECK(w, par_cuda_sync(cuda) != PAR_OK);
        test_arrive(&test_shared->words);
    }
    test_wait_for(&test_shared->words, last);
    par_set_timeout(w, 30);
    for (par_comm *c : {half, w}) CHECK_OK(w, par_backend_of(c)->stop(par_backend_of(c)));
    CHECK_OK(next, par__cuda_go_on(cuda, next));
    for (int i = 0; i < COUNT; i++) host[i] = (float)(me + i);
    upload(cuda, x, host, sizeof host);
    CHECK_OK(next, par_all_reduce(x, x, COUNT, PAR_F32, PAR_SUM, next));
    download(cuda, host, x, sizeof host);
    CHECK(next, host[3] == (float)(n * (n - 1) / 2 + 3 * n));
    CHECK_OK(next, par_barrier(next));
    CHECK(next, emu_communicators() == before + n);
    CHECK_OK(next, par_barrier(next));
    CHECK_OK(next, par_cuda_free(cuda, PAR_CUDA_DEVICE, x));
    CHECK_OK(next, par_close(half));
    CHECK_OK(next, par_close(next));
    CHECK_OK(w, par_cuda_close(cuda));
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

// cuda_overlap.h - a part of test_cuda.cu: what runs beside each other on a GPU, from the emulation's trace.

static void trace_from_here(par_comm *w) { // ranks may be threads, which have one trace
    CHECK_OK(w, par_barrier(w));
    emu_trace(1);
    CHECK_OK(w, par_barrier(w));
}
static int is_nccl(const par_cuda *cuda) { return !strcmp(par_cuda_backend_name(cuda), "nccl"); }

// ZeRO gathers the next unit beside a sum of tensor parallelism; the gathers themselves are in order.
static void separate_streams(par_comm *w) {
    static const zero_case l = {3, PAR_ZERO_ADAMW, 1, 0, 0, 0, 0, 0, PAR_F32, PAR_F32, NULL, 0, 0, PAR_F32};
    enum { N = 64 };
    CHECK_OK(w, par_barrier(w));
    if (par_node_count(w) > 1) return;
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    const char *gather = !is_nccl(cuda)      ? "copy"
                         : PAR__CUDA_WINDOWS ? "all_gather in windows"
                                             : "all_gather",
               *sum = is_nccl(cuda) ? "all_reduce" : "kernel";
    int tensors[6];
    float host[N], *x = (float *)on_device(w, cuda, sizeof host);
    par_comm *dp, *tp;
    CHECK_OK(w, par_split(w, 0, 0, &tp)); // both of all ranks
    CHECK_OK(w, par_split(w, 0, 0, &dp));
    par_zero *z = open_zero(dp, &l, par_cuda_zero(cuda), tensors);
    par_tp *layers = open_tp(tp, NULL, 0, 0, 0, par_cuda_tp(cuda));
    par_tp_matrix m = {x, 4, N / 4, PAR_TP_PARTIAL};
    for (int i = 0; i < N; i++) host[i] = (float)(i + par_rank(tp));
    upload(cuda, x, host, sizeof host);
    trace_from_here(w);
    CHECK_OK(w, par_zero_forward_begin(z, 0));
    CHECK_OK(w, par_tp_all_reduce(layers, &m, &m));
    CHECK_OK(w, par_zero_forward_begin(z, 1));
    for (int u = 0; u < 2; u++) CHECK_OK(w, par_zero_forward_end(z, u));
    download(cuda, host, x, sizeof host);
    CHECK(w, host[9] == (float)(par_size(w) * 9 + par_size(w) * (par_size(w) - 1) / 2));
    const cudaStream_t a = par_cuda_comm_stream(dp), b = par_cuda_comm_stream(tp);
    CHECK(w, a && b && a != b && a != par_cuda_stream(cuda) && !par_cuda_comm_stream(w));
    CHECK(w, emu_traced_count(a, gather) >= 2 && emu_traced_count(b, sum) == 1);
    CHECK(w, emu_overlaps(b, sum, a, gather) == 1 && emu_overlaps(a, gather, a, gather) == 0);
    CHECK_OK(w, par_barrier(w));
    emu_trace(0);
    CHECK_OK(w, par_zero_close(z));
    CHECK_OK(w, par_tp_close(layers));
    for (par_comm *c : {dp, tp}) CHECK_OK(w, par_close(c));
    CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, x));
    CHECK_OK(w, par_cuda_close(cuda));
}

// A column-parallel product gathers the next rows, and a row-parallel one sums the last ones, beside the
// product of some. Without pieces nothing runs beside.
static void rows_beside_products(par_comm *w) {
    enum { IN = 8, ROWS = 6 }; // of a rank
    CHECK_OK(w, par_barrier(w));
    if (par_node_count(w) > 1) return;
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    const int n = par_size(w), nccl = is_nccl(cuda),
              library = !strcmp(par_cuda_tp(cuda)->gemm_name, "cuBLASLt");
    const char *product = library ? "product" : "kernel", *sum = nccl ? "reduce_scatter" : "kernel";
    const cudaStream_t compute = par_cuda_stream(cuda);
    par_tp_linear up, down;
    float host[ROWS * IN], first[ROWS * IN], *d[5];
    for (int i = 0; i < 5; i++) d[i] = (float *)on_device(w, cuda, (size_t)(ROWS * n * IN) * sizeof(float));
    fill_values(PAR_F32, host, ROWS * IN, (uint64_t)par_rank(w));
    upload(cuda, d[2], host, sizeof host);
    par_tp_matrix x = {d[2], ROWS, IN, PAR_TP_SEQUENCE}, h = {d[3], 0, 0, PAR_TP_HIDDEN},
                  y = {d[4], 0, 0, PAR_TP_HIDDEN};
    for (int pieces = 1; pieces < 4; pieces += 2) {
        const char *gather = !nccl ? "copy" : PAR__CUDA_WINDOWS ? "all_gather in windows" : "all_gather";
        par_tp *tp = open_tp_pieces(w, NULL, 1, 0, 0, par_cuda_tp(cuda), pieces);
        memset(&up, 0, sizeof up), memset(&down, 0, sizeof down);
        up.in = down.out = IN, up.out = down.in = (size_t)(IN * n), down.row_parallel = 1;
        CHECK_OK(w, par_tp_linear_open(tp, &up));
        CHECK_OK(w, par_tp_linear_open(tp, &down));
        up.weight.data = d[0], down.weight.data = d[1];
        CHECK_OK(w, par_tp_init(tp, &up.weight, 1, 1));
        CHECK_OK(w, par_tp_init(tp, &down.weight, 2, 1));
        CHECK_OK(w, par_tp_linear_forward(tp, &up, &x, NULL, &h)); // makes scratch memory
        CHECK_OK(w, par_tp_linear_forward(tp, &down, &h, NULL, &y));
        trace_from_here(w);
        CHECK_OK(w, par_tp_linear_forward(tp, &up, &x, NULL, &h));
        CHECK_OK(w, par_cuda_sync(cuda));
        const cudaStream_t s = par_cuda_comm_stream(w);
        const int blocks = pieces > 1 && !library ? n : 1;
        CHECK(w, emu_traced_count(compute, product) == pieces * blocks);
        CHECK(w, emu_overlaps(compute, product, s, gather) == (pieces - 1) * blocks);
        trace_from_here(w);
        CHECK_OK(w, par_tp_linear_forward(tp, &down, &h, NULL, &y));
        CHECK_OK(w, par_cuda_sync(cuda));
        CHECK(w, emu_traced_count(compute, product) == pieces * blocks);
        CHECK(w, emu_overlaps(compute, product, s, sum) == (pieces - 1) * blocks);
        CHECK_OK(w, par_barrier(w));
        emu_trace(0);
        download(cuda, pieces > 1 ? host : first, y.data, sizeof host);
        CHECK_OK(w, par_tp_close(tp));
    }
    CHECK(w, first[5] != 0 && !memcmp(first, host, sizeof host));
    for (int i = 0; i < 5; i++) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, d[i]));
    CHECK_OK(w, par_cuda_close(cuda));
}

// How many messages this rank's links, or copies of the peer backend, carry; and beside how many of them the
// compute stream has a kernel.
static void count_hops(par_comm *w, const par_cuda *cuda, int *all, int *hidden) {
    const cudaStream_t compute = par_cuda_stream(cuda);
    *all = *hidden = 0;
#if defined(PAR_CUDA_NCCL)
    for (par__cuda_link *l = par__cuda_comm_of(par_backend_of(w))->links; l; l = l->next) {
        *all += emu_traced_count(l->stream, "messages");
        *hidden += emu_overlaps(l->stream, "messages", compute, "kernel");
    }
#endif
    if (is_nccl(cuda)) return;
    *all = emu_traced_count(par_cuda_comm_stream(w), "copy");
    *hidden = emu_overlaps(par_cuda_comm_stream(w), "copy", compute, "kernel");
}
// Attention of context-parallel ranks, as on the CPU. In a ring a kernel runs beside each hop, also of the
// gradients. Ulysses attends to whole sequences by the library, where that is.
static void attention_over_cp_of(par_comm *w, par_cuda *cuda, par_comm *alone, int ulysses, int bf16) {
    const size_t c = (size_t)par_size(w), kv = ulysses ? c : 1, heads = 2 * kv, dim = 8, per = 4,
                 rows = 2 * per;
    const size_t h = heads * dim, cols = h + 2 * kv * dim;
    const par_dtype d = bf16 ? PAR_BF16 : PAR_F32;
    const par_tp_attention a = {heads, kv, dim, 0, 0, NULL, 0};
    const par_tp_tokens t = {2, c * per, 0, 0, NULL};
    par_tp *tp[PLACES] = {open_tp(alone, w, 0, ulysses, bf16, NULL),
                          open_tp(alone, w, 0, ulysses, bf16, par_cuda_tp(cuda))};
    const uint64_t stream = 10 + 2 * (uint64_t)par_rank(w);
    pair x = pair_open(w, cuda, d, rows * cols, stream), y = pair_open(w, cuda, d, rows * h, 0);
    pair dy = pair_open(w, cuda, d, rows * h, stream + 1), dx = pair_open(w, cuda, d, rows * cols, 0);
    pair lse = pair_open(w, cuda, PAR_F32, rows * heads, 0);
    par_tp_matrix mx[PLACES], my[PLACES], mdy[PLACES], mdx[PLACES];
    for (int at = 0; at < PLACES; at++) {
        mx[at] = {x.at[at], rows, cols, PAR_TP_HIDDEN}, my[at] = {y.at[at], rows, h, PAR_TP_HIDDEN};
        mdx[at] = {dx.at[at], rows, cols, PAR_TP_HIDDEN}, mdy[at] = {dy.at[at], rows, h, PAR_TP_HIDDEN};
    }
    const int hops = (int)c - 1, sides = is_nccl(cuda) ? 2 : 1, whole = PAR__CUDA_DNN && ulysses && bf16;
    const cudaStream_t compute = par_cuda_stream(cuda);
    for (int warm = 0; warm < 2; warm++) { // the first time makes scratch memory, and plans
        int all, hidden;
        trace_from_here(w);
        BOTH(par_tp_attention_forward(tp[at], &a, &t, 4, &mx[at], floats(lse, at), &my[at]));
        CHECK_OK(w, par_cuda_sync(cuda));
        CHECK(w, emu_traced_count(compute, "attention") == whole);
        count_hops(w, cuda, &all, &hidden);
        CHECK(w, ulysses || !warm || (all == sides * hops && hidden == all));
        trace_from_here(w);
        BOTH(par_tp_attention_backward(tp[at], &a, &t, 4, &mdy[at], &mx[at], &my[at], floats(lse, at),
                                       &mdx[at]));
        CHECK_OK(w, par_cuda_sync(cuda));
        CHECK(w, emu_traced_count(compute, "attention") == whole);
        count_hops(w, cuda, &all, &hidden);
        CHECK(w, ulysses || !warm || (all == 2 * sides * hops && hidden == all));
        CHECK_OK(w, par_barrier(w));
        emu_trace(0);
    }
    CLOSE(y, bf16 ? 0.03 : 2e-5);
    CLOSE(dx, bf16 ? 0.08 : 1e-4);
    close_pairs({&x, &y, &dy, &dx, &lse});
    BOTH(par_tp_close(tp[at]));
}
static void attention_over_cp(par_comm *w) {
    par_comm *alone;
    CHECK_OK(w, par_barrier(w));
    if (par_node_count(w) > 1) return;
    CHECK_OK(w, par_split(w, par_rank(w), 0, &alone));
    par_cuda *cuda = open_cuda(w, PAR_CUDA_AUTO);
    for (int i = getenv("SOAK") ? 0 : 2; i < 4; i++) {
        if (par_rank(w) == 0) SEED(i);
        attention_over_cp_of(w, cuda, alone, i % 2, i / 2);
    }
    CHECK_OK(w, par_cuda_close(cuda));
    CHECK_OK(w, par_close(alone));
}

#if defined(PAR_CUDA_NCCL)
// A comm's collectives on fewer SMs, and products that leave them alone while one is in flight.
static void limited_ctas(par_comm *w) {
    CHECK_OK(w, par_barrier(w));
    if (!nccl_here(w) || par_node_count(w) > 1) return;
    par_cuda *cuda = open_cuda(w, PAR_CUDA_NCCL_BACKEND);
    enum { N = 16 };
    const cudaStream_t compute = par_cuda_stream(cuda);
    const int library = !strcmp(par_cuda_tp(cuda)->gemm_name, "cuBLASLt");
    float host[N * N], *x = (float *)on_device(w, cuda, sizeof host),
                       *y = (float *)on_device(w, cuda, sizeof host);
    par_request q;
    const int before = emu_communicators();
    CHECK(w, par_cuda_limit_ctas(w, -2) == PAR_ERR_ARGUMENT && strstr(par_last_error(w), "max_ctas is -2"));
    CHECK_OK(w, par_barrier(w));
    CHECK_OK(w, par_cuda_limit_ctas(w, 2));
    CHECK_OK(w, par_barrier(w));
    CHECK(w, emu_communicators() == before && emu_newest_max_ctas() == 2);
    fill_values(PAR_F32, host, N * N, 3);
    upload(cuda, x, host, sizeof host);
    trace_from_here(w);
    CHECK_OK(w, par_all_reduce_begin(x, x, N * N, PAR_F32, PAR_AVG, w, &q));
    CHECK(w, par_cuda_limit_ctas(w, 3) == PAR_ERR_ARGUMENT && strstr(par_last_error(w), "in flight"));
    CHECK_OK(w, square_product(cuda, N, y, y, y, NULL));
    CHECK_OK(w, par_wait(&q));
    CHECK_OK(w, square_product(cuda, N, x, x, y, NULL));
    download(cuda, host, x, sizeof host);
    CHECK(w, emu_traced_count(compute, "product on some SMs") == library);
    CHECK(w, emu_traced_count(compute, "product") == library);
    CHECK_OK(w, par_barrier(w));
    emu_trace(0);
    CHECK_OK(w, par_cuda_limit_ctas(w, 0));
    for (float *p : {x, y}) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, p));
    CHECK_OK(w, par_cuda_close(cuda));
}

#if PAR__CUDA_WINDOWS
// Sums of two ranks, by one thread: with arrays at other offsets of their windows, in windows that the ranks
// have opened in another order, and in a window on one rank only.
enum { OTHER_OFFSET = 1, OTHER_ORDER = 2, NO_WINDOW = 4 };
static void sum_in_windows(int fault) {
    const nccl_pair p = open_nccl_pair();
    void *x[2][2];
    ncclWindow_t window;
    for (int i = 0; i < 4; i++) ncclMemAlloc(&x[i / 2][i % 2], 4096);
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < 2; r++)
            if (!r || !(fault & NO_WINDOW))
                ncclCommWindowRegister(p.comm[r], x[r][r && fault & OTHER_ORDER ? !i : i], 4096, &window,
                                       NCCL_WIN_COLL_SYMMETRIC);
    for (int r = 0; r < 2; r++) {
        char *mine = (char *)x[r][0] + (r && fault & OTHER_OFFSET ? 64 : 0);
        ncclAllReduce(mine, mine, 16, ncclFloat, ncclSum, p.comm[r], p.stream[r]);
    }
    for (int r = 0; r < 2; r++) cudaStreamSynchronize(p.stream[r]);
    if (!fault) ncclMemFree(x[0][0]); // its window is open
}
#if PAR__CUDA_POLICY
// Blocks of two ranks, by one thread, where copy engines may move them: arrays in windows, or, of a rank
// whose array the call does not use, none. With one hardware queue for both ranks.
static void blocks_in_windows(int kind, int fault, int connections) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclWindow_t window;
    char *x[2];
    emu_connections(connections);
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    const nccl_pair p = open_nccl_pair(config);
    for (int r = 0; r < 2; r++) ncclMemAlloc((void **)&x[r], 8192);
    for (int r = 0; r < 2; r++)
        ncclCommWindowRegister(p.comm[r], x[r], 8192, &window, NCCL_WIN_COLL_SYMMETRIC);
    for (int r = 0; r < 2; r++) {
        char *to = x[r] + 4096 + (r && fault & OTHER_OFFSET ? 64 : 0);
        if (kind == PAR_KIND_ALL_TO_ALL) ncclAlltoAll(x[r], to, 16, ncclFloat, p.comm[r], p.stream[r]);
        if (r && fault & NO_WINDOW) to = NULL;
        if (kind == PAR_KIND_GATHER) ncclGather(x[r], to, 16, ncclFloat, 0, p.comm[r], p.stream[r]);
    }
    for (int r = 0; r < 2; r++) cudaStreamSynchronize(p.stream[r]);
    fprintf(stderr, "it ends"), _exit(1);
}
static void exchange_at_other_offset(void) { blocks_in_windows(PAR_KIND_ALL_TO_ALL, OTHER_OFFSET, 0); }
static void gather_to_root_alone(void) { blocks_in_windows(PAR_KIND_GATHER, NO_WINDOW, 0); }
static void gather_in_windows(void) { blocks_in_windows(PAR_KIND_GATHER, 0, 0); }
static void exchange_in_one_queue(void) { blocks_in_windows(PAR_KIND_ALL_TO_ALL, 0, 1); }
static void copy_engine_rules(par_comm *w) {
    CHECK(w, fault_ends(exchange_at_other_offset, "at other offsets"));
    CHECK(w, fault_ends(gather_to_root_alone, "copy engines on one rank, and messages on another"));
    CHECK(w, fault_ends(gather_in_windows, "it ends"));
    CHECK(w, fault_ends(exchange_in_one_queue, "deadlock of NCCL kernels"));
}
#else
static void copy_engine_rules(par_comm *) {}
#endif
static void other_offset(void) { sum_in_windows(OTHER_OFFSET); }
static void other_order(void) { sum_in_windows(OTHER_ORDER); }
static void one_window(void) { sum_in_windows(NO_WINDOW); }
static void freed_in_window(void) { sum_in_windows(0); }
// A communicator is aborted while its kernel waits for a rank that does not come.
static void abort_between_windows(int policy, int version) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclWindow_t window;
    void *x[2];
#if PAR__CUDA_POLICY
    config.CTAPolicy = policy;
#endif
    const nccl_pair p = open_nccl_pair(config);
    for (int r = 0; r < 2; r++) ncclMemAlloc(&x[r], 4096);
    for (int r = 0; r < 2; r++)
        ncclCommWindowRegister(p.comm[r], x[r], 4096, &window, NCCL_WIN_COLL_SYMMETRIC);
    for (int r = 0; r < 3; r++) // connected; then rank 0 alone
        ncclAllGather(x[r % 2], x[r % 2], 16, ncclFloat, p.comm[r % 2], p.stream[r % 2]);
    emu_nccl_version(version), emu_patience(0.2);
    ncclCommAbort(p.comm[0]);
    (void)policy, fprintf(stderr, "it ends"), _exit(1);
}
static void abort_kernel(void) { abort_between_windows(0, NCCL_VERSION(2, 29, 3)); }
static void abort_new_kernel(void) { abort_between_windows(0, NCCL_VERSION(2, 29, 7)); }
static void abort_engines(void) { abort_between_windows(NCCL_CTA_POLICY_ZERO, NCCL_VERSION(2, 29, 7)); }
static void window_rules(par_comm *w) {
    CHECK(w, fault_ends(abort_kernel, "ncclCommAbort waits for kernels"));
    CHECK(w, fault_ends(abort_new_kernel, "it ends"));
    if (PAR__CUDA_POLICY) CHECK(w, fault_ends(abort_engines, "ncclCommAbort waits for kernels"));
    CHECK(w, fault_ends(other_offset, "at other offsets"));
    CHECK(w, fault_ends(other_order, "in other windows"));
    CHECK(w, fault_ends(one_window, "in a window on one rank"));
    CHECK(w, fault_ends(freed_in_window, "in an open window"));
    copy_engine_rules(w);
}
// Rank 1 does not come to a gather between windows. Where NCCL cannot be aborted, nothing waits for the
// device any more. A sum on another comm comes after the gather: both are aborted, or none.
static void gather_without_rank(par_comm *w, int version, int engines, int stuck) {
    enum { N = 16 };
    void *memory, *window;
    par_comm *part;
    par_cuda *cuda = open_without_checks(w);
    if (!cuda) return;
    const int n = par_size(w), me = par_rank(w);
    float *y = (float *)on_device(w, cuda, N * sizeof *y);
    CHECK_OK(w, par_split(w, 0, me, &part));
    emu_nccl_version(version);
    CHECK_OK(w, par_cuda_limit_ctas(w, engines ? PAR_CUDA_COPY_ENGINES : 0));
    CHECK_OK(w, par_cuda_alloc(cuda, PAR_CUDA_SYMMETRIC, (size_t)n * N * 4, &memory));
    CHECK_OK(w, par_cuda_window_open(w, memory, (size_t)n * N * 4, &window));
    float *x = (float *)memory;
    for (int i = 0; i < 2; i++) {
        if (i && me == 1) break;
        if (i) par_set_timeout(w, 0.3);
        CHECK_OK(w, par_all_gather(x + me * N, x, N, PAR_F32, w));
        CHECK_OK(w, par_all_reduce(y, y, N, PAR_F32, PAR_SUM, part));
        CHECK(w, par_cuda_sync(cuda) == (i ? PAR_ERR_TIMEOUT : PAR_OK));
        CHECK_OK(w, i ? PAR_OK : par_barrier(w));
    }
    if (me != 1) {
        CHECK(w, cuda->stuck == stuck);
        CHECK(w, stuck || !cudaStreamSynchronize(par_cuda_stream(cuda)));
        CHECK(w, !stuck || (par_cuda_sync(cuda) == PAR_ERR_ABORTED && strstr(par_last_error(w), "process")));
        CHECK(w, !stuck || par_cuda_free(cuda, PAR_CUDA_SYMMETRIC, x) == PAR_ERR_ABORTED);
        CHECK_OK(w, par_cuda_window_close(w, window));
        if (stuck) CHECK_OK(w, par_cuda_close(cuda));
        if (stuck) par_close(part), par_close(w);
        test_arrive(&test_shared->words);
    }
    if (!stuck) par_set_timeout(w, 20);
    if (me == 1 || stuck) test_wait_for(&test_shared->words, n - 1);
    if (stuck) _exit(test_shared->failures != 0); // what the device might still use is left
    par_cuda_window_close(w, me == 1 ? window : NULL);
    par_close(part);
    par_cuda_free(cuda, PAR_CUDA_SYMMETRIC, x), par_cuda_free(cuda, PAR_CUDA_DEVICE, y);
    par_cuda_close(cuda);
}
static void aborts_in_windows(par_comm *w) { gather_without_rank(w, NCCL_VERSION(2, 29, 7), 0, 0); }
static void windows_cannot_abort(par_comm *w) { gather_without_rank(w, NCCL_VERSION(2, 29, 3), 0, 1); }
static void engines_cannot_abort(par_comm *w) {
    gather_without_rank(w, NCCL_VERSION(2, 29, 7), PAR__CUDA_POLICY, PAR__CUDA_POLICY);
}
// Where others are to go on after a death the layers open windows only if NCCL can end the calls in them.
static void elastic_windows(par_comm *w) {
    par_cuda *cuda = open_without_checks(w);
    if (!cuda) return;
    par_device *d = par_cuda_device(cuda);
    for (int version : {NCCL_VERSION(2, 28, 9), NCCL_VERSION(2, 29, 7)})
        for (int elastic = 0; elastic < 2; elastic++) {
            void *memory;
            cuda->elastic = elastic;
            emu_nccl_version(version);
            CHECK_OK(w, par_barrier(w));
            CHECK_OK(w, d->alloc_symmetric(d, w, 64, &memory));
            CHECK(w, (cuda->windows != NULL) == (!elastic || version >= NCCL_VERSION(2, 29, 7)));
            CHECK_OK(w, d->free_symmetric(d, w, memory));
            CHECK_OK(w, par_barrier(w));
        }
    cuda->elastic = 0;
    CHECK_OK(w, par_cuda_close(cuda));
}
// What the layers communicate lies in windows: ZeRO's gathers, which copy engines can make, and its sums; the
// sums of tensor parallelism.
static void layers_in_windows(par_comm *w) {
    static const zero_case l = {3, PAR_ZERO_ADAMW, 1, 0, 0, 0, 0, 0, PAR_BF16, PAR_BF16, NULL, 0, 0, PAR_F32},
                           quantized = {2, PAR_ZERO_ADAMW, 1,       0,    8, 0, 0,
                                        0, PAR_BF16,       PAR_F32, NULL, 0, 0, PAR_F32};
    enum { IN = 32, ROWS = 4 }; // of a rank
    int tensors[6];
    CHECK_OK(w, par_barrier(w));
    if (!nccl_here(w)) return;
    const size_t n = (size_t)par_size(w), bytes = (IN + ROWS * n) * IN * 2;
    par_cuda *cuda = open_cuda(w, PAR_CUDA_NCCL_BACKEND);
    par_comm *comm[2];
    for (int i = 0; i < 2; i++) CHECK_OK(w, par_split(w, 0, par_rank(w), &comm[i]));
    CHECK_OK(w, par_cuda_limit_ctas(comm[0], PAR_CUDA_COPY_ENGINES));
    par_zero *z = open_zero(comm[0], &l, par_cuda_zero(cuda), tensors), *packed = NULL;
    CHECK(w, par_cuda_limit_ctas(comm[0], 4) == PAR_ERR_ARGUMENT &&
                 strstr(par_last_error(w), "windows are open"));
    par_tp *tp = open_tp(comm[1], NULL, 1, 0, 1, par_cuda_tp(cuda));
    par_tp_linear down;
    memset(&down, 0, sizeof down);
    down.in = IN * n, down.out = IN, down.row_parallel = 1;
    CHECK_OK(w, par_tp_linear_open(tp, &down));
    void *d[3];
    for (int i = 0; i < 3; i++) d[i] = on_device(w, cuda, bytes);
    down.weight.data = d[0];
    CHECK_OK(w, par_tp_init(tp, &down.weight, 2, 1));
    CHECK(w, !cudaMemsetAsync(d[1], 0, bytes, par_cuda_stream(cuda)));
    par_tp_matrix x = {d[1], ROWS * n, IN, PAR_TP_HIDDEN}, y = {d[2], 0, 0, PAR_TP_SEQUENCE};
    CHECK_OK(w, par_tp_linear_forward(tp, &down, &x, NULL, &y)); // makes scratch memory
    trace_from_here(w);
    CHECK_OK(w, par_tp_linear_forward(tp, &down, &x, NULL, &y));
    one_microbatch(w, z, cuda, tensors, &l, 0, 0, 0);
    if (PAR__CUDA_POLICY) packed = open_zero(comm[0], &quantized, par_cuda_zero(cuda), tensors);
    if (packed) one_microbatch(w, packed, cuda, tensors, &quantized, 0, 0, 0);
    CHECK_OK(w, par_cuda_sync(cuda));
    const cudaStream_t s[2] = {par_cuda_comm_stream(comm[0]), par_cuda_comm_stream(comm[1])};
    CHECK(w,
          emu_traced_count(s[0], "all_gather by copy engines") >= 2 && !emu_traced_count(s[0], "all_gather"));
    CHECK(w, emu_traced_count(s[0], "reduce_scatter in windows") == 2);
    CHECK(w, emu_traced_count(s[0], "all_to_all by copy engines") == 2 * PAR__CUDA_POLICY);
    CHECK(w, emu_traced_count(s[1], "reduce_scatter in windows") == 1);
    CHECK_OK(w, par_barrier(w));
    emu_trace(0);
    CHECK_OK(w, par_zero_close(z));
    CHECK_OK(w, par_zero_close(packed));
    CHECK_OK(w, par_tp_close(tp));
    for (int i = 0; i < 3; i++) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, d[i]));
    for (int i = 0; i < 2; i++) CHECK_OK(w, par_close(comm[i]));
    CHECK_OK(w, par_cuda_close(cuda));
}
#endif
#endif

// cuda_pipelines.h - a part of test_cuda.cu: pipelines on GPUs, all schedules over every backend.
//
// Stage s computes y = x / 2 + s + 1, and its weight's gradient is the sum of x dy: all numbers are exact.
enum { PIPE_NUMBERS = 48 };

static __global__ void pipe_forward(float *y, const float *x, float input, float add) {
    for (int i = (int)threadIdx.x; i < PIPE_NUMBERS; i += (int)blockDim.x)
        y[i] = (x ? x[i] : input + (float)i) / 2 + add;
}
static __global__ void pipe_loss(double *loss, const float *x, float input, float add) {
    double sum = 0;
    for (int i = 0; i < PIPE_NUMBERS; i++) sum += (double)((x ? x[i] : input + (float)i) / 2 + add);
    *loss = sum;
}
static __global__ void pipe_backward(float *dx, const float *dy) {
    for (int i = (int)threadIdx.x; i < PIPE_NUMBERS; i += (int)blockDim.x) dx[i] = (dy ? dy[i] : 1) / 2;
}
static __global__ void pipe_weight(double *gradient, const float *x, const float *dy, float input) {
    for (int i = 0; i < PIPE_NUMBERS; i++)
        *gradient += (double)((x ? x[i] : input + (float)i) * (dy ? dy[i] : 1));
}
typedef struct pipe_model {
    par_cuda *cuda;
    double *gradients; // of all stages, on the device
} pipe_model;
static par_result pipe_work(void *user, const par_pipe_work *w) {
    const pipe_model *m = (const pipe_model *)user;
    cudaStream_t s = par_cuda_stream(m->cuda);
    const float *x = (const float *)w->x, *dy = (const float *)w->dy, input = (float)w->microbatch,
                add = (float)(w->stage + 1);
    par_result r = PAR_OK;
    if (w->loss) r = par__cuda_launch(m->cuda, pipe_loss, 1, 1, 0, s, w->loss, x, input, add);
    if (w->y) r = par__cuda_launch(m->cuda, pipe_forward, 1, 32, 0, s, (float *)w->y, x, input, add);
    if (w->dx && !r) r = par__cuda_launch(m->cuda, pipe_backward, 1, 32, 0, s, (float *)w->dx, dy);
    if ((w->kind == PAR_PIPE_BW || w->kind == PAR_PIPE_W) && !r)
        r = par__cuda_launch(m->cuda, pipe_weight, 1, 1, 0, s, &m->gradients[w->stage], x, dy, input);
    return r;
}
// What a serial program computes.
static double pipe_serial(int stages, int microbatches, double *gradients) {
    double loss = 0;
    for (int m = 0; m < microbatches; m++)
        for (int i = 0; i < PIPE_NUMBERS; i++) {
            float x = (float)(m + i);
            for (int s = 0; s < stages; s++) {
                gradients[s] += ldexp((double)x, s + 1 - stages);
                x = x / 2 + (float)(s + 1);
            }
            loss += (double)x;
        }
    return loss;
}
enum { PIPE_MAX_STAGES = 32 };
static void pipe_trial(par_comm *w, par_cuda *cuda, const char *schedule, int steps) {
    par_pipe_stage stage;
    par_pipe_desc desc;
    par_pipe_exec exec;
    par_pipe_schedule s;
    par_pipe *pipe;
    par_pipe_report report;
    pipe_model m;
    double want[PIPE_MAX_STAGES] = {0}, got[PIPE_MAX_STAGES];
    memset(&stage, 0, sizeof stage), memset(&desc, 0, sizeof desc), memset(&exec, 0, sizeof exec);
    stage.input_bytes = PIPE_NUMBERS * sizeof(float);
    desc.schedule = schedule, desc.ranks = par_size(w), desc.microbatches = 2 * par_size(w);
    desc.stages = &stage, desc.stage_count = 1;
    m.cuda = cuda;
    CHECK_OK(w, par_cuda_alloc(cuda, PAR_CUDA_DEVICE, sizeof got, (void **)&m.gradients));
    exec.comm = w, exec.fn = pipe_work, exec.user = &m, exec.broadcast_loss = 1;
    exec.device = par_cuda_device(cuda);
    const par_result made = par_pipe_schedule_open(&desc, &s);
    if (made) fprintf(stderr, "%s: %s\n", schedule, s.why);
    CHECK_OK(w, made);
    CHECK_OK(w, par_pipe_open(&s, &exec, &pipe));
    const double loss = pipe_serial(s.stages, s.microbatches, want);
    for (int step = 0; step < steps; step++) {
        CHECK_OK(w, par_pipe_step(pipe, &report));
        CHECK(w, report.loss == loss);
    }
    download(cuda, got, m.gradients, sizeof got);
    CHECK_OK(w, par_all_reduce(got, got, PIPE_MAX_STAGES, PAR_F64, PAR_SUM, w));
    int wrong = 0;
    for (int i = 0; i < s.stages; i++) wrong += got[i] != steps * want[i];
    if (wrong) fprintf(stderr, "%s by %s: wrong gradients\n", schedule, par_cuda_backend_name(cuda));
    CHECK(w, !wrong);
    CHECK_OK(w, par_pipe_close(pipe));
    par_pipe_schedule_close(&s);
    par_cuda_free(cuda, PAR_CUDA_DEVICE, m.gradients);
}
static int backend_here(par_comm *w, par_cuda_backend b) {
#if defined(PAR_CUDA_NCCL)
    if (b == PAR_CUDA_NCCL_BACKEND) return nccl_here(w);
#endif
    return b == PAR_CUDA_STAGING || (b == PAR_CUDA_PEER && par_node_count(w) == 1);
}
static void pipelines(par_comm *w) { // PIPELINES=all: each schedule over each backend; else in turns
#define X(constant, name, ...) name,
    static const char *const schedules[] = {PAR_PIPE_SCHEDULES(X)};
#undef X
    const int count = (int)(sizeof schedules / sizeof schedules[0]), all = getenv("PIPELINES") != NULL;
    for (int b = PAR_CUDA_NCCL_BACKEND; b < PAR_CUDA_BACKEND_COUNT; b++) {
        par_comm *part;
        if (!backend_here(w, (par_cuda_backend)b)) continue;
        CHECK_OK(w, par_split(w, 0, par_rank(w), &part));
        par_cuda *cuda = open_cuda(part, (par_cuda_backend)b);
        for (int i = 0; i < count; i++) {
            if (b != PAR_CUDA_NCCL_BACKEND && !all && i % 3 != b - PAR_CUDA_PEER) continue;
            if (par_rank(w) == 0) SEED(100 * b + i);
            pipe_trial(part, cuda, schedules[i], 2);
        }
        par_cuda_close(cuda);
        CHECK_OK(w, par_close(part));
    }
}

#if defined(PAR_CUDA_NCCL) && defined(CUDA_EMU)
// First messages, and first collectives, with one hardware queue for all streams of a GPU. What is launched
// late must not come behind what waits for it, nor the host wait for ranks that wait for its messages.
static void first_messages(par_comm *w) {
    enum { N = 8, ARRAYS = 3 };
    if (!nccl_here(w)) {
        CHECK_OK(w, par_barrier(w));
        return;
    }
    const int n = par_size(w), me = par_rank(w), last = n - 1, right = (me + 1) % n, left = (me + last) % n;
    CHECK_OK(w, par_barrier(w));
    emu_devices(n), emu_connections(1);
    CHECK_OK(w, par_barrier(w));
    par_cuda *cuda = NULL;
    par_cuda_desc desc;
    memset(&desc, 0, sizeof desc), desc.comm = w,
                                   desc.backend = PAR_CUDA_NCCL_BACKEND; // hosts compare nothing
    CHECK_OK(w, par_cuda_open(&desc, &cuda));
    par_comm *ring;
    float host[N], *x[ARRAYS];
    par_request q[2];
    CHECK_OK(w, par_split(w, 0, me, &ring));
    for (int i = 0; i < N; i++) host[i] = (float)(me + i);
    for (int i = 0; i < ARRAYS; i++) {
        x[i] = (float *)on_device(w, cuda, sizeof host);
        upload(cuda, x[i], host, sizeof host);
    }
    for (int from = 0; from < n; from += last) { // to the other end; then a sum, before it is waited for
        const int to = last - from;
        if (me == from) {
            CHECK_OK(w, par_send_begin(x[0], N, PAR_F32, to, w, &q[0]));
            CHECK_OK(w, par_all_reduce_begin(x[1], x[1], N, PAR_F32, PAR_SUM, w, &q[1]));
            if (from)
                test_arrive(&test_shared->words); // the sum's kernel is launched, and the message is not
            for (int i = 1; i >= 0; i--) CHECK_OK(w, par_wait(&q[i]));
        } else {
            if (me == to && from) test_wait_for(&test_shared->words, 1);
            if (me == to) CHECK_OK(w, par_recv(x[2], N, PAR_F32, from, w));
            CHECK_OK(w, par_all_reduce(x[1], x[1], N, PAR_F32, PAR_SUM, w));
        }
        download(cuda, host, x[2], sizeof host);
        CHECK(w, me != to || host[3] == (float)(from + 3));
    }
    download(cuda, host, x[1], sizeof host);
    CHECK(w, host[3] == (float)(n * (3 * n + n * last / 2)));
    CHECK_OK(w, par_send_begin(x[0], N, PAR_F32, right, ring, &q[0])); // all in both directions
    CHECK_OK(w, par_recv_begin(x[2], N, PAR_F32, left, ring, &q[1]));
    for (int i = 0; i < 2; i++) CHECK_OK(w, par_wait(&q[i]));
    download(cuda, host, x[2], sizeof host);
    CHECK(w, host[3] == (float)(left + 3));
    CHECK_OK(w, par_close(ring));
    for (float *p : x) CHECK_OK(w, par_cuda_free(cuda, PAR_CUDA_DEVICE, p));
    CHECK_OK(w, par_cuda_close(cuda));
    CHECK_OK(w, par_barrier(w));
    emu_devices(0), emu_connections(0);
    CHECK_OK(w, par_barrier(w));
}
#endif
#if defined(PAR_CUDA_NCCL)
// A message that has begun arrives, though its sender waits for nothing and goes on to receive.
static void begun_messages(par_comm *w) {
    if (!nccl_here(w)) {
        CHECK_OK(w, par_barrier(w));
        return;
    }
    par_cuda *cuda = open_cuda(w, PAR_CUDA_NCCL_BACKEND);
    const int me = par_rank(w), last = par_size(w) - 1;
    float host[64], *x = (float *)on_device(w, cuda, sizeof host),
                    *y = (float *)on_device(w, cuda, sizeof host);
    par_request q[2];
    for (int i = 0; i < 64; i++) host[i] = (float)(i + me);
    upload(cuda, x, host, sizeof host);
    for (int first = 1; first >= 0; first--) { // first: NCCL connects the two ranks
        if (me == 0) {
            CHECK_OK(w, par_send_begin(x, 64, PAR_F32, last, w, &q[0]));
            CHECK_OK(w, par_recv_begin(y, 64, PAR_F32, last, w, &q[1]));
            if (!first) test_wait_for(&test_shared->words, 1);
            for (int i = 0; i < 2; i++) CHECK_OK(w, par_wait(&q[i]));
        } else if (me == last) {
            CHECK_OK(w, par_recv(y, 64, PAR_F32, 0, w));
            download(cuda, host, y, sizeof host);
            CHECK(w, host[5] == 5);
            if (!first) test_arrive(&test_shared->words);
            CHECK_OK(w, par_send(x, 64, PAR_F32, 0, w));
        }
    }
    download(cuda, host, y, sizeof host);
    CHECK(w, me || host[5] == (float)(5 + last));
    if (me == 1) // to itself: both halves must have begun
        CHECK(w, par_send(x, 64, PAR_F32, me, w) == PAR_ERR_ARGUMENT && strstr(par_last_error(w), "itself"));
    CHECK_OK(w, par_barrier(w));
    par_cuda_free(cuda, PAR_CUDA_DEVICE, x), par_cuda_free(cuda, PAR_CUDA_DEVICE, y);
    par_cuda_close(cuda);
}
#endif

// test_errors.c - no error is without a text: each allocation of a set-up and a step fails once, by itself.
// The call must then succeed all the same, or fail with a sentence; nothing crashes, and nothing is lost.
// The linker gives it the kit's allocations and what the kit writes to stderr (--wrap).
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
static __thread long before_failure; // allocations of this thread until one fails; 0: none does
static __thread int failed;
static __thread int logged;
static long live; // blocks
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
void __wrap_free(void *p);
ssize_t __real_writev(int fd, const struct iovec *parts, int count);
ssize_t __wrap_writev(int fd, const struct iovec *parts, int count);
static int refuse(void) {
    if (!before_failure || --before_failure) return 0;
    return failed = 1;
}
static void *count(void *p) {
    if (p) __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    return p;
}
void *__wrap_malloc(size_t n) { return refuse() ? NULL : count(__real_malloc(n)); }
// What gcc makes of malloc and memset.
void *__wrap_calloc(size_t n, size_t bytes) { return refuse() ? NULL : count(__real_calloc(n, bytes)); }
void *__wrap_realloc(void *old, size_t n) {
    void *p = refuse() ? NULL : __real_realloc(old, n);
    return old ? p : count(p);
}
int __wrap_posix_memalign(void **p, size_t align, size_t n) {
    const int status = refuse() ? 12 : __real_posix_memalign(p, align, n);
    if (!status) count(*p);
    return status;
}
void __wrap_free(void *p) {
    if (p) __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
    __real_free(p);
}
ssize_t __wrap_writev(int fd, const struct iovec *parts, int n) {
    logged |= fd == 2;
    return fd == 2 ? 1 : __real_writev(fd, parts, n);
}
#define PAR_IMPLEMENTATION
#include "kit.h"
#include "par_pipe.h"
#include "par_tp.h"
#include "par_zero.h"
#include "test.h"

static int said(par_comm *w, par_result r, const char *what) { // r, with a text if it is an error
    if (r && !par_last_error(w)[0]) fprintf(stderr, "%s: %s without a text\n", what, par_result_name(r));
    CHECK(w, !r || par_last_error(w)[0]);
    CHECK(w, !r || failed); // where no allocation has failed there is nothing wrong
    return r == PAR_OK;
}
#define SAID(call) said(w, call, #call)

static void collectives(par_comm *w) {
    float x[64] = {0}, y[64];
    par_comm *part = NULL;
    par_mesh *mesh = NULL;
    par_request q;
    size_t counts[1] = {64};
    const int self = 0;
    par_neighbors *neighbors = NULL;
    if (SAID(par_split(w, 0, 0, &part)) && SAID(par_all_reduce(x, y, 64, PAR_F32, PAR_SUM, part))) {
        void *memory = par_alloc(part, 1000);
        CHECK(w, memory || par_last_error(w)[0]);
        if (memory) SAID(par_free(part, memory));
        if (SAID(par_group_begin(part))) {
            for (int i = 0; i < 3; i++) SAID(par_all_reduce(x, y, 8, PAR_F32, PAR_SUM, part));
            SAID(par_group_end(part));
        }
        if (SAID(par_all_gatherv_begin(x, y, counts, NULL, PAR_F32, part, &q))) SAID(par_wait(&q));
        SAID(par_all_to_all(x, y, 64, PAR_F32, part));
        if (SAID(par_neighbors_open(part, 1, &self, NULL, &neighbors)))
            for (int i = 0; i < 2; i++)
                SAID(par_neighbor_exchange(x, counts, NULL, y, counts, NULL, PAR_F32, neighbors));
        SAID(par_neighbors_close(neighbors));
    }
    SAID(par_close(part));
    if (SAID(par_mesh_open(w, "dp=-1 tp=1", &mesh))) SAID(par_mesh_comm(mesh, "tp", &part));
    SAID(par_mesh_close(mesh));
}

static int block(par_comm *w, par_tp *tp, float *memory) { // every layer of par_tp.h, forward and backward
    static const int32_t ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const par_tp_tokens tokens = {1, 8, 0, 0, NULL};
    par_tp_linear up, head;
    par_tp_norm norm;
    par_tp_embedding e;
    par_tp_attention a;
    par_tp_loss loss;
    par_tp_segment segments[3];
    par_tp_rotary rotary;
    double sum;
    size_t counted;
    memset(&up, 0, sizeof up), memset(&head, 0, sizeof head), memset(&norm, 0, sizeof norm);
    memset(&e, 0, sizeof e), memset(&a, 0, sizeof a), memset(&loss, 0, sizeof loss);
    memset(&rotary, 0, sizeof rotary);
    a.heads = 2, a.dim = 4;
    par_tp_attention_segments(&a, segments);
    up.in = 8, up.out = 24, up.has_bias = 1, up.segment_count = 3;
    memcpy(up.segments, segments, sizeof segments);
    head.in = 8, head.out = 16, head.vocab_parallel = 1;
    norm.features = 8, e.vocabulary = 16, e.features = 8, e.max_positions = 8, loss.vocabulary = 16;
    if (!SAID(par_tp_linear_open(tp, &up)) || !SAID(par_tp_linear_open(tp, &head)) ||
        !SAID(par_tp_norm_open(tp, &norm)) || !SAID(par_tp_embedding_open(tp, &e)))
        return 0;
    up.weight.data = memory, up.bias.data = memory + 200,
    head.weight.data = norm.weight.data = e.weight.data = memory;
    e.position_weight.data = memory;
    up.weight.grad = up.bias.grad = head.weight.grad = norm.weight.grad = e.weight.grad =
        e.position_weight.grad = memory + 512;
    par_tp_matrix x = {memory + 1024, 0, 0, PAR_TP_REPLICATED}, y = x, qkv = x, att = x, logits = x, d = x,
                  dd = x;
    y.data = memory + 2048, qkv.data = memory + 3072, att.data = memory + 4096, logits.data = memory + 5120;
    d.data = memory + 6144, dd.data = memory + 7168;
    float *stats = memory + 8192, *lse = memory + 8300;
    return SAID(par_tp_init(tp, &up.weight, 1, 1)) &&
           SAID(par_tp_embedding_forward(tp, &e, &tokens, ids, &x)) &&
           SAID(par_tp_norm_forward(tp, &norm, &x, stats, &y)) &&
           SAID(par_tp_linear_forward(tp, &up, &y, NULL, &qkv)) &&
           SAID(par_tp_rope(tp, &tokens, 2, 4, &rotary, 0, &qkv)) &&
           SAID(par_tp_attention_forward(tp, &a, &tokens, 1, &qkv, lse, &att)) &&
           SAID(par_tp_attention_backward(tp, &a, &tokens, 1, &att, &qkv, &att, lse, &d)) &&
           SAID(par_tp_linear_backward(tp, &up, &d, &y, &dd)) &&
           SAID(par_tp_norm_backward(tp, &norm, &dd, &x, stats, &y)) &&
           SAID(par_tp_gelu_forward(tp, &x, &y)) && SAID(par_tp_dropout(tp, &tokens, 1, 0.5f, &x, &y)) &&
           SAID(par_tp_linear_forward(tp, &head, &x, NULL, &logits)) &&
           SAID(par_tp_loss_forward(tp, &loss, &logits, ids, lse, NULL, &sum, &counted)) &&
           SAID(par_tp_loss_backward(tp, &loss, &logits, ids, lse, 1, &logits)) &&
           SAID(par_tp_loss_forward_backward(tp, &loss, &logits, ids, lse, NULL, &sum, &counted, 1,
                                             &logits)) &&
           SAID(par_tp_head_forward(tp, &head, &loss, &x, ids, 3, NULL, &sum, &counted)) &&
           SAID(par_tp_head_forward_backward(tp, &head, &loss, &x, ids, 3, NULL, &sum, &counted, 1, &d)) &&
           SAID(par_tp_embedding_backward(tp, &e, &tokens, ids, &x));
}
static void layers_of(par_comm *w, int bf16) {
    par_tp_desc d;
    par_tp *tp = NULL;
    static float memory[10000];
    memset(&d, 0, sizeof d), memset(memory, 0, sizeof memory);
    d.tp = w, d.dtype = bf16 ? PAR_BF16 : PAR_F32;
    if (SAID(par_tp_open(&d, &tp))) block(w, tp, memory);
    SAID(par_tp_close(tp));
}
static void layers(par_comm *w) { layers_of(w, 0); }
static void layers_bf16(par_comm *w) { layers_of(w, 1); }

static void zero_of(par_comm *w, int stage, par_zero_optimizer optimizer, const char *offload) {
    par_zero *z = NULL;
    par_zero_desc d;
    par_zero_tensor t;
    par_zero_checkpoint f;
    char dir[600], command[700];
    snprintf(dir, sizeof dir, "%s/par_errors_%d", test_dir, (int)getpid());
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    memset(&d, 0, sizeof d), memset(&t, 0, sizeof t), memset(&f, 0, sizeof f);
    d.comm = w, d.hyper[0].lr = 1e-3f, d.stage = stage, d.optimizer = optimizer, d.param_dtype = PAR_BF16;
    d.offload_states = offload;
    f.dir = dir;
    t.dims = 2, t.shape[0] = 8, t.shape[1] = 8;
    int unit = 0, a = 0, b = 0;
    if (!SAID(par_zero_open(&d, &z))) goto end;
    t.name = "a", unit = par_zero_add_unit(z, "one"), a = unit < 0 ? -1 : par_zero_add_tensor(z, &t);
    t.name = "b", b = a < 0 ? -1 : par_zero_add_tensor(z, &t);
    CHECK(w, b >= 0 || par_last_error(w)[0]);
    if (b < 0 || !SAID(par_zero_commit(z))) goto end;
    for (int i = 0; i < 2; i++) {
        if (!SAID(par_zero_forward_begin(z, 0)) || !SAID(par_zero_forward_end(z, 0)) ||
            !SAID(par_zero_backward_begin(z, 0)) || !SAID(par_zero_backward_end(z, 0)) ||
            !SAID(par_zero_step(z, 1, NULL)))
            goto end;
    }
    if (SAID(par_zero_save(z, &f))) SAID(par_zero_load(z, &f));
end:
    SAID(par_zero_close(z));
    if (system(command)) CHECK(w, 0);
}
static void zero_plain(par_comm *w) { zero_of(w, 1, PAR_ZERO_ADAMW, NULL); }
static void zero_sharded(par_comm *w) { zero_of(w, 3, PAR_ZERO_MUON, NULL); }
static void zero_offloaded(par_comm *w) { zero_of(w, 2, PAR_ZERO_ADAMW, test_offload); }

static par_result nothing(void *user, const par_pipe_work *k) { return (void)user, (void)k, PAR_OK; }
static void pipes(par_comm *w) {
    par_pipe_desc d;
    par_pipe_exec e;
    par_pipe_schedule s;
    par_pipe_timeline t;
    par_pipe *pipe = NULL;
    memset(&d, 0, sizeof d), memset(&e, 0, sizeof e);
    d.ranks = 1, d.microbatches = 4, d.schedule = "1f1b";
    e.comm = w, e.fn = nothing;
    const par_result r = par_pipe_schedule_open(&d, &s);
    if (r && !s.why[0]) fprintf(stderr, "par_pipe_schedule_open: %s without a text\n", par_result_name(r));
    CHECK(w, !r || s.why[0]);
    if (r) {
        par_pipe_schedule_close(&s);
        return;
    }
    const par_result simulated = par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t);
    if (simulated && !s.why[0]) fprintf(stderr, "par_pipe_simulate: no text\n");
    CHECK(w, !simulated || s.why[0]);
    if (!simulated) par_pipe_timeline_close(&t);
    if (SAID(par_pipe_open(&s, &e, &pipe)) && SAID(par_pipe_step(pipe, NULL)) &&
        SAID(par_pipe_timeline_get(pipe, &t)))
        par_pipe_timeline_close(&t);
    SAID(par_pipe_close(pipe));
    par_pipe_schedule_close(&s);
}

typedef struct trial {
    void (*scenario)(par_comm *w);
    long number;
    int failed;
} trial;
static int run_trial(par_comm *w, void *user) {
    trial *t = (trial *)user;
    before_failure = t->number, failed = 0;
    t->scenario(w);
    before_failure = 0, t->failed = failed;
    return 0;
}
static void each_allocation(par_comm *w, void (*scenario)(par_comm *w)) {
    long number = 0;
    trial t = {scenario, 0, 1};
    for (; t.failed && number < 5000; t.number = ++number) {
        t.number = number;
        const long before = __atomic_load_n(&live, __ATOMIC_RELAXED);
        const par_desc one = test_ranks(1);
        const par_result r = par_run_threads(&one, run_trial, &t);
        (void)r;                   // a comm whose barrier had no memory does not close well
        if (!number) t.failed = 1; // once without a failure
        const long lost = __atomic_load_n(&live, __ATOMIC_RELAXED) - before;
        if (lost) fprintf(stderr, "allocation %ld: %ld blocks are lost\n", number, lost);
        CHECK(w, !lost);
    }
    CHECK(w, number > 1 && !t.failed);
}
#define EACH(name)                                                                                           \
    static void each_of_##name(par_comm *w) { each_allocation(w, name); }
EACH(collectives)
EACH(layers)
EACH(layers_bf16)
EACH(zero_plain)
EACH(zero_sharded)
EACH(zero_offloaded)
EACH(pipes)

static int only_ok(par_comm *w, void *user) { return (void)w, *(int *)user = 1, 0; }
static void opening(par_comm *w) { // of ranks: the text goes to PAR_LOG
    for (long i = 1; i < 5000; i++) {
        const long before = __atomic_load_n(&live, __ATOMIC_RELAXED);
        int ran = 0;
        before_failure = i, failed = logged = 0;
        const par_desc one = test_ranks(1);
        const par_result r = par_run_threads(&one, only_ok, &ran);
        before_failure = 0;
        if (r && !logged) fprintf(stderr, "allocation %ld: %s, not logged\n", i, par_result_name(r));
        CHECK(w, !r || logged);
        CHECK(w, __atomic_load_n(&live, __ATOMIC_RELAXED) == before);
        if (!failed) return;
    }
    CHECK(w, 0);
}

const test tests[] = {
    {"opening", opening, TEST_SERIAL, 1, 60},
    {"collectives", each_of_collectives, TEST_SERIAL, 1, 60},
    {"layers", each_of_layers, TEST_SERIAL, 1, 60},
    {"layers_bf16", each_of_layers_bf16, TEST_SERIAL, 1, 60},
    {"zero_plain", each_of_zero_plain, TEST_SERIAL, 1, 60},
    {"zero_sharded", each_of_zero_sharded, TEST_SERIAL, 1, 60},
    {"zero_offloaded", each_of_zero_offloaded, TEST_SERIAL, 1, 60},
    {"pipes", each_of_pipes, TEST_SERIAL, 1, 60},
};
const int test_count = (int)(sizeof tests / sizeof tests[0]);

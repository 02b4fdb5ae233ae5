// test_golden.c - the trainer's models against PyTorch's: logits, loss, every gradient and ten AdamW losses
// of what tests/golden/make_golden.py made, for t = 1, 2, 4 with and without sequence parallelism, and c = 2.
#define _GNU_SOURCE
#define PAR_IMPLEMENTATION
#include "kit.h"
#include "par_tp.h"
#include "par_zero.h"
#include "../examples/options.h"
#include "model.h"
#include "files.h"
#include "test.h"

enum { BATCH = 2, TOKENS = 16, ROWS = BATCH * TOKENS };

typedef struct golden {
    par_comm *world, *tp_comm, *cp_comm;
    par_tp *tp;
    gpt_model m;
    gpt_buffers b;
    par_tp_tokens tokens;
    par_safetensors want;
    float *w, *d, *m1, *m2;
    int32_t ids[ROWS], targets[ROWS];
    size_t rows;
    const char *name;
    double tolerance;
    float *whole, *grads; // all parameters; torch's gradients of them
} golden;

static void close_to(const golden *g, const char *what, double error, double max_value) {
    char why[256];
    __atomic_add_fetch(&test_shared->checks, 1, __ATOMIC_RELAXED);
    if (error <= g->tolerance * max_value) return;
    snprintf(why, sizeof why, "%s of %s: off by %g of %g", what, g->name, error, max_value);
    test_fail(__FILE__, __LINE__, par_rank(g->world), "close", why);
}
static size_t whole_row(const golden *g, size_t r) {
    const size_t per = TOKENS / (size_t)par_size(g->cp_comm);
    return r / per * TOKENS + par_tp_position(g->tp, TOKENS, r % per);
}
static double loss_of(golden *g) { // of all tokens
    double sum;
    size_t target_count;
    CHECK_OK(g->world, gpt_forward(&g->m, &g->b, &g->tokens, g->ids, NULL));
    CHECK_OK(g->world, par_tp_loss_forward(g->tp, &g->m.loss, &g->b.logits, g->targets, g->b.lse, NULL, &sum,
                                           &target_count));
    CHECK_OK(g->world, par_all_reduce(&sum, &sum, 1, PAR_F64, PAR_SUM, g->cp_comm));
    return sum / ROWS;
}
static void gradients(golden *g) {
    par_tp_parameter *all[64];
    memset(g->d, 0, g->m.count * 4);
    CHECK_OK(g->world, par_tp_loss_backward(g->tp, &g->m.loss, &g->b.logits, g->targets, g->b.lse,
                                            1.0f / ROWS, &g->b.logits));
    CHECK_OK(g->world, gpt_backward(&g->m, &g->b, &g->tokens, g->ids, NULL));
    for (int i = 0; i < g->m.tensor_count; i++) all[i] = g->m.tensors[i].p;
    CHECK_OK(g->world, par_tp_finalize_gradients(g->tp, all, (size_t)g->m.tensor_count));
    CHECK_OK(g->world, par_all_reduce(g->d, g->d, g->m.count, PAR_F32, PAR_SUM, g->cp_comm));
}

// Copies from an array of all elements to one of this rank's elements.
static void copy_local(const gpt_model *m, float *local, const float *whole) {
    for (int i = 0; i < m->tensor_count; i++) {
        const gpt_tensor *x = &m->tensors[i];
        const par_tp_parameter *p = x->p;
        size_t first, global, count;
        int replicas;
        for (int j = 0; par_tp_shard(m->tp, p, j, &first, &global, &count, &replicas); j++) {
            const int columns = p->split == PAR_TP_SPLIT_COLS;
            const size_t pieces = columns ? p->rows : 1, n = columns ? count : count * p->cols;
            for (size_t r = 0; r < pieces; r++)
                memcpy(local + x->offset + (columns ? r * p->local_cols + first : first * p->cols),
                       whole + x->total_offset + (columns ? r * p->cols + global : global * p->cols),
                       n * sizeof(float));
        }
    }
}
static void check_gradients(golden *g, float *whole) {
    float *want = (float *)calloc(g->m.count, sizeof *want);
    copy_local(&g->m, want, whole);
    for (int i = 0; i < g->m.tensor_count; i++) {
        const gpt_tensor *x = &g->m.tensors[i];
        const size_t n = x->p->local_rows * x->p->local_cols;
        double error = 0, max_value = 0;
        for (size_t k = x->offset; k < x->offset + n; k++)
            error = test_larger(error, fabs((double)g->d[k] - (double)want[k]));
        for (size_t k = x->total_offset; k < x->total_offset + x->p->rows * x->p->cols; k++)
            max_value = fmax(max_value, fabs((double)whole[k]));
        close_to(g, "a gradient", error, max_value);
    }
    free(want);
}
// Of the rows at hand: those of each sequence's tokens from `position` on, where it is not 0.
static void check_logits(golden *g) {
    const float *want = (const float *)par_safetensors_find(&g->want, "logits")->data;
    const size_t s = g->tokens.sequence, from = g->tokens.position;
    const size_t V = (size_t)g->m.config.vocab_size, mine = g->b.logits.cols;
    const size_t ld = par_tp_ld(PAR_TP_VOCABULARY, mine);
    double error = 0, max_value = 0;
    size_t first, global, count;
    int replicas;
    par_tp_shard(g->tp, &g->m.head.weight, 0, &first, &global, &count, &replicas);
    for (size_t r = 0; r < g->b.logits.rows; r++)
        for (size_t j = 0; j < mine; j++) {
            const size_t row = s < TOKENS ? r / s * TOKENS + from + r % s : whole_row(g, r);
            const double x = (double)want[row * V + global + j];
            const size_t at = r * ld + j;
            const double got = par_tp_dtype(g->tp) == PAR_F32
                                   ? (double)((const float *)g->b.logits.data)[at]
                                   : (double)par_bf16_to_f32(((const uint16_t *)g->b.logits.data)[at]);
            error = test_larger(error, fabs(x - got));
            max_value = fmax(max_value, fabs(x));
        }
    close_to(g, "logits", error, max_value);
}

static void train_like_torch(golden *g, float *whole_grads) {
    const double *losses = (const double *)par_safetensors_find(&g->want, "losses")->data;
    const par_zero_hyper a = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0, 0};
    for (int step = 0; step < 10; step++) {
        close_to(g, "a loss", fabs(loss_of(g) - losses[step]), losses[step]);
        if (step == 0) check_logits(g);
        gradients(g);
        if (step == 0) check_gradients(g, whole_grads);
        CHECK_OK(g->world, gpt_update(&g->m, &a, step + 1, g->w, g->d, g->m1, g->m2));
    }
}

// Reads all parameters from the tensors of files that are called `prefix` and their name: NULL, or an error.
static const char *read_whole(files_weights *f, const char *prefix, float *whole) {
    const char *why = NULL;
    for (int i = 0; i < f->m->tensor_count && !why; i++) {
        const gpt_tensor *x = &f->m->tensors[i];
        par_zero_part parts[3];
        int count = 0;
        if (*prefix)
            why = files_huggingface_parts(f->m, &f->shards, prefix, x, parts) ? NULL : f->shards.why;
        else
            why = files_parts(f, x, parts, &count);
        if (!why) par_zero_read_parts(parts, 0, x->p->rows * x->p->cols, whole + x->total_offset);
    }
    return why;
}
static int load_whole(const gpt_model *m, const char *path, float *whole) { // 1: it is loaded
    files_weights *f = (files_weights *)calloc(1, sizeof *f);
    const int ok = !files_weights_open(f, m, path, files_is_llmc(path)) && !read_whole(f, "", whole);
    files_weights_close(f), free(f);
    return ok;
}
static const char *save_whole(const gpt_model *m, const char *path, const float *whole) {
    static files_export x;
    const char *why = files_export_begin(&x, m, path, 0);
    for (int i = m->tensor_count; i-- > 0 && !why;) { // in any order, and in pieces
        const gpt_tensor *p = &m->tensors[i];
        for (size_t at = 0, n = p->p->rows * p->p->cols; at < n && !why; at += 7)
            why = files_export_put(&x, p, at, PAR__MIN((size_t)7, n - at), whole + p->total_offset + at);
    }
    const char *ended = files_export_end(&x, !why);
    return why ? why : ended;
}

static void open_golden(golden *g, par_comm *w, const char *name, int t, par_tp_desc d) {
    char path[256], why[4400];
    gpt_config c;
    files_weights *gradients_of = (files_weights *)calloc(1, sizeof *gradients_of);
    memset(g, 0, sizeof *g);
    g->world = w, g->name = name, g->tolerance = d.dtype == PAR_BF16 ? 3e-2 : 1e-5;
    CHECK_OK(w, par_split(w, par_rank(w) / t, par_rank(w), &g->tp_comm));
    CHECK_OK(w, par_split(w, par_rank(w) % t, par_rank(w), &g->cp_comm));
    d.tp = g->tp_comm, d.cp = par_size(g->cp_comm) > 1 ? g->cp_comm : NULL;
    snprintf(path, sizeof path, "tests/golden/%s", name);
    const char *problem = files_config(path, NULL, &c, why, sizeof why);
    if (problem) test_fail(__FILE__, __LINE__, par_rank(w), "config", problem);
    CHECK_OK(w, par_tp_open(&d, &g->tp));
    CHECK_OK(w, gpt_open(&g->m, &c, g->tp, d.sequence_parallel));
    const size_t n = g->m.count;
    g->w = (float *)calloc(4 * n, sizeof(float)), g->d = g->w + n, g->m1 = g->d + n, g->m2 = g->m1 + n;
    g->whole = (float *)calloc(2 * g->m.total_count, sizeof(float)), g->grads = g->whole + g->m.total_count;
    if (!load_whole(&g->m, path, g->whole)) problem = "not loaded";
    copy_local(&g->m, g->w, g->whole);
    if (d.dtype == PAR_BF16) par_cast(g->m1, PAR_BF16, g->w, PAR_F32, n);
    gpt_set_memory(&g->m, d.dtype == PAR_BF16 ? g->m1 : g->w, g->d);
    strcat(path, "/expected.safetensors");
    if (!problem && par_safetensors_open(path, &g->want)) problem = g->want.why;
    gradients_of->m = &g->m, gradients_of->shards.shards = &g->want, gradients_of->shards.shard_count = 1;
    if (!problem) problem = read_whole(gradients_of, "grad.", g->grads);
    free(gradients_of);
    if (problem) return test_fail(__FILE__, __LINE__, par_rank(w), "files", problem);
    g->tokens.batch = BATCH, g->tokens.sequence = TOKENS, g->rows = par_tp_rows(g->tp, &g->tokens);
    CHECK(w, gpt_buffers_open(&g->m, &g->b, g->rows));
    for (size_t r = 0; r < g->rows; r++) {
        g->ids[r] = ((const int32_t *)par_safetensors_find(&g->want, "ids")->data)[whole_row(g, r)];
        g->targets[r] = ((const int32_t *)par_safetensors_find(&g->want, "targets")->data)[whole_row(g, r)];
    }
}
static void close_golden(golden *g) {
    par_safetensors_close(&g->want);
    gpt_buffers_close(&g->m, &g->b), gpt_close(&g->m), free(g->w), free(g->whole);
    CHECK_OK(g->world, par_tp_close(g->tp));
    CHECK_OK(g->world, par_close(g->cp_comm));
    CHECK_OK(g->world, par_close(g->tp_comm));
}
static void one(par_comm *w, const char *name, int t, int sequence, int ulysses) {
    golden g;
    par_tp_desc d;
    memset(&d, 0, sizeof d);
    d.sequence_parallel = sequence, d.ulysses = ulysses;
    open_golden(&g, w, name, t, d);
    train_like_torch(&g, g.grads);
    close_golden(&g);
}
static void torch(par_comm *w) {
    static const char *const names[] = {"gpt2", "llama", "llama31"};
    const int n = par_size(w);
    for (int i = 0; i < 3; i++)
        for (int t = 1; t <= n; t *= 2)
            for (int variant = 0; variant < 4; variant++) {
                const int ulysses = variant >> 1, c = n / t;
                if (n % t || TOKENS % (2 * c) || t > 4) continue;
                if (ulysses && (c == 1 || i || 4 / t % c)) continue; // by heads: as many as there are
                one(w, names[i], t, variant & 1, ulysses);
            }
}

// Multiply-adds of the CPU's kernels, counted.
static __thread double multiplied, attended;
static par_result count_gemm(par_tp *tp, int ta, int tb, size_t m, size_t n, size_t k, const void *a,
                             size_t lda, const void *b, size_t ldb, float beta, void *c, par_dtype c_type,
                             size_t ldc, const void *bias) {
    multiplied += (double)(m * n * k);
    return par_tp_cpu()->gemm(tp, ta, tb, m, n, k, a, lda, b, ldb, beta, c, c_type, ldc, bias);
}
static par_result count_attention(par_tp *tp, const par_tp_attention_block *m) {
    attended += 2 * (double)(m->batch * m->heads * m->q_count * m->kv_count * m->dim);
    return par_tp_cpu()->attention_block_forward(tp, m);
}
// A prompt of 9 tokens, then token by token: PyTorch's logits of each, and products for no other tokens.
static void cached(par_comm *w, const char *name, int bf16) {
    golden g;
    par_tp_desc d;
    par_tp_kernels kernels = *par_tp_cpu();
    const int t = par_size(w);
    kernels.gemm = count_gemm, kernels.attention_block_forward = count_attention;
    memset(&d, 0, sizeof d);
    d.dtype = bf16 ? PAR_BF16 : PAR_F32, d.kernels = &kernels;
    open_golden(&g, w, name, t, d);
    const int layers = g.m.config.n_layer;
    const par_tp_attention *a = &g.m.layers[0].attention;
    const size_t bytes = par_tp_kv_cache_bytes(g.tp, a, BATCH, TOKENS);
    const double a_key = 2.0 * BATCH * layers * (double)(a->heads / (size_t)t * a->dim);
    int32_t ids[ROWS];
    double products = 0; // of a pass through the prompt, per token
    g.m.cache = (par_tp_kv_cache *)calloc((size_t)layers, sizeof *g.m.cache);
    for (int l = 0; l < layers; l++)
        g.m.cache[l].data = calloc(1, bytes), g.m.cache[l].batch = BATCH, g.m.cache[l].capacity = TOKENS;
    for (size_t at = 0, n; at < TOKENS; at += n) {
        n = at ? 1 : 9;
        g.tokens.sequence = n, g.tokens.position = at, multiplied = attended = 0;
        for (size_t b = 0; b < BATCH; b++) memcpy(ids + b * n, g.ids + b * TOKENS + at, n * sizeof *ids);
        CHECK_OK(w, gpt_forward(&g.m, &g.b, &g.tokens, ids, NULL));
        CHECK(w, g.b.logits.rows == BATCH * n);
        check_logits(&g);
        if (!at) products = multiplied / 9;
        CHECK(w, multiplied == products * (double)n);
        CHECK(w, !at || attended == a_key * (double)(at + 1));
        g.m.last_token_only =
            BATCH; // the last tokens' logits once more: of the same token, which is forgotten first
        CHECK_OK(w, gpt_forward(&g.m, &g.b, &g.tokens, ids, NULL));
        CHECK(w, g.b.logits.rows == BATCH);
        g.m.last_token_only = 0, g.tokens.position = at + n - 1, g.tokens.sequence = 1;
        check_logits(&g);
    }
    for (int l = 0; l < layers; l++) free(g.m.cache[l].data);
    free(g.m.cache);
    close_golden(&g);
}
static void generating(par_comm *w) {
    static const char *const names[] = {"gpt2", "llama", "llama31"};
    const int n = par_size(w);
    for (int i = 0; i < 6 && (n == 1 || n == 2 || n == 4); i++) cached(w, names[i / 2], i % 2);
    CHECK_OK(w, par_barrier(w));
}

static void same_model(par_comm *w, const gpt_config *c, const gpt_model *again) {
    const gpt_config *g = &again->config;
    CHECK(w, g->n_layer == c->n_layer && g->n_head == c->n_head && g->n_kv_head == c->n_kv_head &&
                 gpt_hidden(g) == gpt_hidden(c) && gpt_is_tied(g) == gpt_is_tied(c));
    CHECK(w, !memcmp(&g->rotary, &c->rotary, sizeof c->rotary));
    CHECK(w, c->epsilon == 0 || g->epsilon == c->epsilon);
    CHECK(w, again->final_norm.epsilon == g->epsilon && again->layers[1].norm1.epsilon == g->epsilon &&
                 again->layers[1].norm2.epsilon == g->epsilon);
}
static void rewrite(par_comm *w, const char *file, const char *bytes, size_t n) {
    FILE *f = fopen(file, "wb");
    CHECK(w, f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}
// Others' files of this model: in bf16 (of llm.c's, behind its header; of Hugging Face's, each tensor), and
// GPT-2's names without what transformers puts before them. y holds the parameters that are read.
static void by_others(par_comm *w, const gpt_model *m, const char *dir, const char *file, const float *x,
                      float *y, char *bytes, size_t n) {
    static _Alignas(16) char other[65536];
    const int llmc = file[strlen(file) - 1] == 'n';
    const char *path = llmc ? file : dir;
    par_file_tensor list[64];
    size_t wrong = 0;
    memcpy(other, bytes, n);
    if (llmc) {
        CHECK(w, ((const int32_t *)(void *)bytes)[7] == 128); // rows of the embedding
        other[4] = 5, par_cast(other + 1024, PAR_BF16, bytes + 1024, PAR_F32, (n - 1024) / 4);
        rewrite(w, file, other, 1024 + (n - 1024) / 2);
    } else {
        static par_safetensors_writer out;
        memset(list, 0, sizeof list);
        size_t at[64];
        const size_t count = files_list_tensors(m, list, at);
        for (size_t i = 0; i < count; i++) list[i].dtype = "BF16", list[i].bytes = 2 * list[i].count;
        CHECK(w, !par_safetensors_create(file, list, count, &out));
        for (size_t i = 0, k = 0; i < (size_t)m->tensor_count; i++) {
            const gpt_tensor *p = &m->tensors[i];
            char name[192];
            int transposed;
            size_t first, rows;
            for (int j = 0; files_source(m, p, j, name, sizeof name, &transposed, &first, &rows); j++, k++)
                CHECK(w, !par_zero_safetensors_put(&out, k, transposed, 0, rows * p->p->cols,
                                                   x + p->total_offset + first * p->p->cols));
        }
        CHECK(w, !par_safetensors_end(&out, 1));
    }
    CHECK(w, load_whole(m, path, y));
    for (size_t i = 0; i < m->total_count; i++) wrong += y[i] != par_bf16_to_f32(par_f32_to_bf16(x[i]));
    CHECK(w, wrong == 0);
    if (!llmc && !m->config.llama) {
        memcpy(other, bytes, n);
        for (char *p = other; (p = (char *)memmem(p, n - (size_t)(p - other), "\"transformer.", 13)); wrong++)
            memcpy(p, "            \"", 13);
        rewrite(w, file, other, n);
        CHECK(w, wrong && load_whole(m, path, y) && !memcmp(x, y, m->total_count * 4));
    }
    rewrite(w, file, bytes, n);
}
// Files that are truncated, and files with another byte in their first 1500, which may load or not.
static void damaged_files(par_comm *w, const gpt_model *m, const char *dir, const char *file, float *y,
                          char *bytes, size_t n) {
    const int llmc = file[strlen(file) - 1] == 'n';
    int loaded_truncated = 0;
    char why[4400];
    gpt_config read;
    for (size_t i = 0; i < 400; i++) {
        const int truncate = i % 2 == 0;
        const size_t at = i * 37 % PAR__MIN(n, (size_t)1500);
        const char kept = bytes[at];
        if (!truncate) bytes[at] = (char)(bytes[at] + 1 + (int)(i % 250));
        rewrite(w, file, bytes, truncate ? n * i / 400 : n);
        bytes[at] = kept;
        const char *bad = llmc ? files_llmc_config(file, &read, why, sizeof why) : NULL;
        const int loaded = !bad && load_whole(m, llmc ? file : dir, y);
        loaded_truncated += truncate && loaded;
    }
    CHECK(w, loaded_truncated == 0);
}
// What is written can be read, and is the same; what is damaged is an error.
static void files_of(par_comm *w, par_tp *tp, const gpt_config *config, int llmc, const char *dir) {
    static _Alignas(16) char bytes[65536];
    char file[640], why[4400];
    gpt_model m, again;
    gpt_config c = *config, read;
    CHECK_OK(w, gpt_open(&m, &c, tp, 0));
    float *x = (float *)calloc(2 * m.total_count, 4), *y = x + m.total_count;
    for (size_t i = 0; i < m.total_count; i++) x[i] = par_normal(1, 2, i);
    snprintf(file, sizeof file, llmc ? "%s/model.bin" : "%s/model.safetensors", dir);
    const char *path = llmc ? file : dir, *bad = save_whole(&m, path, x);
    if (!bad)
        bad = llmc ? files_llmc_config(file, &read, why, sizeof why)
                   : files_config(dir, NULL, &read, why, sizeof why);
    if (bad) test_fail(__FILE__, __LINE__, 0, "saved", bad);
    CHECK_OK(w, gpt_open(&again, &read, tp, 0));
    CHECK(w, again.total_count == m.total_count);
    CHECK(w, load_whole(&again, path, y));
    CHECK(w, !memcmp(x, y, m.total_count * 4));
    same_model(w, &c, &again);
    FILE *f = fopen(file, "rb");
    const size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    by_others(w, &again, dir, file, x, y, bytes, n);
    damaged_files(w, &again, dir, file, y, bytes, n);
    gpt_close(&m), gpt_close(&again), free(x);
}
static void files(par_comm *w) { // Hugging Face's GPT-2 and Llama, llm.c
    gpt_config kinds[3];
    char dir[600], remove[700];
    par_tp_desc d;
    par_tp *tp;
    memset(kinds, 0, sizeof kinds), memset(&d, 0, sizeof d);
    for (int k = 0; k < 3; k++) {
        gpt_config *c = &kinds[k];
        c->n_layer = 2, c->n_head = 2, c->n_embd = 8, c->block_size = 6, c->vocab_size = 11, c->bias = k != 1;
    }
    kinds[0].hidden = 20, kinds[0].epsilon = 2e-6f;
    kinds[1].llama = 1, kinds[1].n_kv_head = 1, kinds[1].epsilon = 3.1234567e-6f;
    kinds[1].rotary = (par_tp_rotary){500000, 8, 1, 4, 8192};
    d.tp = w;
    snprintf(dir, sizeof dir, "%s/par_test_files_%d", test_dir, (int)getpid());
    CHECK_OK(w, par_tp_open(&d, &tp));
    for (int k = 0; k < 3; k++) files_of(w, tp, &kinds[k], k == 2, dir);
    CHECK_OK(w, par_tp_close(tp));
    snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
    CHECK(w, system(remove) == 0);
}

// Element i of a tensor, from -0.5 to 0.5, as tests/golden/families.py computes it.
static float family_number(const char *tensor, size_t i) {
    uint32_t x = 2166136261u;
    for (const char *c = tensor; *c; c++) x = (x ^ (unsigned char)*c) * 16777619u;
    x += (uint32_t)i;
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15) * 0x846CA68Bu;
    x ^= x >> 16;
    return (float)(x >> 8) / (float)(1 << 24) - 0.5f;
}
// Writes a model of a family as Hugging Face's file, and reads it.
static void family_weights(par_comm *w, const gpt_model *m, const char *dir, float *whole) {
    static par_safetensors_writer out;
    static par_file_tensor list[64];
    static float values[4096];
    char file[640];
    size_t at[64];
    memset(list, 0, sizeof list);
    const size_t count = files_list_tensors(m, list, at);
    snprintf(file, sizeof file, "%s/model.safetensors", dir);
    CHECK(w, !par_safetensors_create(file, list, count, &out));
    for (size_t k = 0; k < count; k++) {
        const char *name = out.list[k].name, *ending = strrchr(name, '.');
        const float mean = out.list[k].dims == 1 && !strcmp(ending, ".weight") ? 1 : 0;
        if (out.list[k].count > 4096) return test_fail(__FILE__, __LINE__, 0, "a tensor", name);
        for (size_t i = 0; i < out.list[k].count; i++) values[i] = mean + family_number(name, i);
        CHECK(w, !par_zero_safetensors_put(&out, k, 0, 0, out.list[k].count, values));
    }
    CHECK(w, !par_safetensors_end(&out, 1));
    CHECK(w, load_whole(m, dir, whole));
}
// The most likely tokens after 1 2 ... 12 are those that transformers finds.
static void family_tokens(par_comm *w, par_tp *tp, const gpt_config *c, const char *dir, const char *want) {
    enum { PROMPT = 12, ALL = 24 };
    gpt_model m;
    gpt_buffers b;
    par_tp_tokens tokens;
    int32_t ids[ALL] = {0};
    char got[256] = "tokens";
    memset(&tokens, 0, sizeof tokens);
    tokens.batch = 1, tokens.sequence = ALL;
    CHECK_OK(w, gpt_open(&m, c, tp, 0));
    float *whole = (float *)calloc(m.total_count + 1, sizeof *whole);
    family_weights(w, &m, dir, whole);
    gpt_set_memory(&m, whole, NULL);
    CHECK(w, gpt_buffers_open(&m, &b, ALL));
    for (int i = 0; i < PROMPT; i++) ids[i] = i + 1;
    for (int i = PROMPT; i < ALL; i++) { // tokens behind number i do not change what follows it
        CHECK_OK(w, gpt_forward(&m, &b, &tokens, ids, NULL));
        const size_t ld = par_tp_ld(PAR_TP_VOCABULARY, b.logits.cols);
        const float *logits = (const float *)b.logits.data + (size_t)(i - 1) * ld;
        for (int v = 1; v < c->vocab_size; v++)
            if (logits[v] > logits[ids[i]]) ids[i] = v;
        snprintf(got + strlen(got), sizeof got - strlen(got), " %d", (int)ids[i]);
    }
    if (strcmp(got, want)) test_fail(__FILE__, __LINE__, 0, want, got);
    gpt_buffers_close(&m, &b), gpt_close(&m), free(whole);
}
// The config.json of an export says the same model.
static void family_again(par_comm *w, const gpt_config *c) {
    gpt_config again, want = *c;
    char *text = NULL, why[640];
    size_t n;
    FILE *f = open_memstream(&text, &n);
    CHECK(w, f && files_print_config(f, c) && !fclose(f));
    const char *wrong = files_config_of(text, "config.json", NULL, &again, why, sizeof why);
    want.hidden = (int)gpt_hidden(c); // what follows from other sizes is written
    if (c->llama && !c->n_kv_head) want.n_kv_head = c->n_head;
    if (c->llama) want.head_dim = (int)gpt_head_dim(c);
    if (wrong || memcmp(&again, &want, sizeof want))
        test_fail(__FILE__, __LINE__, 0, wrong ? wrong : "another model", text);
    free(text);
}
// What transformers takes for sizes that a config.json does not have.
static void family_defaults(par_comm *w) {
    static const struct {
        const char *type;
        size_t count;
        float epsilon;
    } of[] = {{"gpt2", 124439808, 1e-5f}, {"llama", 6738415616, 1e-6f}, {"mistral", 7241732096, 1e-6f}};
    for (int i = 0; i < 3; i++) {
        char json[64], why[256];
        gpt_config g;
        snprintf(json, sizeof json, "{\"model_type\": \"%s\"}", of[i].type);
        CHECK(w, !files_config_of(json, "config.json", NULL, &g, why, sizeof why));
        CHECK(w, gpt_parameter_count(&g) == of[i].count && g.epsilon == of[i].epsilon);
        CHECK(w, g.rotary.base == (g.llama ? 10000.0f : 0) && g.rotary.factor == 0);
        CHECK(w, g.positions == (i == 0 ? 1024 : i == 1 ? 2048 : 4096)); // Mistral's: its sliding window
    }
}
static void
families(par_comm *w) { // each line of tests/golden/families.txt: transformers' tokens, or an error
    char line[4096], dir[600], remove[700], key[80], why[640];
    par_tp_desc d;
    par_tp *tp;
    int tokens = 0, refused = 0;
    memset(&d, 0, sizeof d);
    d.tp = w;
    CHECK_OK(w, par_tp_open(&d, &tp));
    snprintf(dir, sizeof dir, "%s/par_test_families_%d", test_dir, (int)getpid());
    CHECK(w, !mkdir(dir, 0777));
    FILE *f = fopen("tests/golden/families.txt", "r");
    CHECK(w, f != NULL);
    while (f && fgets(line, sizeof line, f)) {
        char *want = strchr(line, '\t'), *json = want ? strchr(want + 1, '\t') : NULL;
        gpt_config c;
        if (line[0] == '#' || !json) continue;
        *want++ = *json++ = 0;
        const char *wrong = files_config_of(json, "config.json", NULL, &c, why, sizeof why);
        snprintf(key, sizeof key, "config.json: \"%.60s\" is ",
                 strncmp(want, "refuses ", 8) ? "?" : want + 8);
        if (wrong && strncmp(wrong, key, strlen(key))) test_fail(__FILE__, __LINE__, 0, line, wrong);
        if (!wrong) family_tokens(w, tp, &c, dir, want);
        if (!wrong) family_again(w, &c);
        wrong ? refused++ : tokens++;
    }
    if (f) fclose(f);
    CHECK(w, tokens >= 18 && refused >= 38);
    family_defaults(w);
    CHECK_OK(w, par_tp_close(tp));
    snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
    CHECK(w, system(remove) == 0);
}

// config.json as a closed list of keys: what is put into a whole one, keys to ignore, and what is said of it.
static const char gpt2_keys[] = "\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 8, \"n_head\": 2";
static const char llama_keys[] =
    "\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 2";
static const struct {
    const char *keys, *more, *ignored, *said; // said NULL: it is read
} config_rows[] = {
    {llama_keys, "\"logit_scale\": 0.0625", NULL, "\"logit_scale\" is 0.0625, which is not implemented here"},
    {llama_keys, "\"logit_scale\": 0.0625", "logit_scale", NULL},
    {llama_keys, "\"logit_scale\": 0.0625, \"x\": [1]", "x,logit_scale", NULL},
    {llama_keys, "\"logit_scale\": 0.0625", "x", "\"logit_scale\" is"},
    {llama_keys, "\"use_cache\": true", "use_cach", "it has no key \"use_cach\" to ignore"},
    {llama_keys, "\"a\": null, \"b\": false, \"c\": 0, \"d\": 0.0, \"e\": [ ], \"f\": {}", NULL, NULL},
    {llama_keys, "\"a\": {\"b\": null}", NULL, "\"a\" is {\"b\": null}, which"},
    {llama_keys, "\"a\": \"\"", NULL, "\"a\" is \"\", which"},
    {llama_keys, "\"a\": true", NULL, "\"a\" is true, which"},
    {llama_keys, "\"rms_norm_eps\": 1e-5, \"rms_norm_eps\": 1e-6", NULL,
     "\"rms_norm_eps\" stands there twice"},
    {llama_keys, "\"a\": 0, \"a\": 0", NULL, "\"a\" stands there twice"},
    {llama_keys, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"factor\": 4}", NULL, "twice"},
    {llama_keys, "\"rms_norm_eps\": 0", NULL, "\"rms_norm_eps\" is 0, and must be a number above 0"},
    {llama_keys, "\"rope_theta\": -1", NULL, "\"rope_theta\" is -1, and must be a number above 0"},
    {llama_keys, "\"num_key_value_heads\": null, \"head_dim\": null, \"hidden_act\": null", NULL, NULL},
    {llama_keys, "\"num_key_value_heads\": 0", NULL, "\"num_key_value_heads\" is 0, and must be"},
    {llama_keys, "\"vocab_size\": null", NULL, "\"vocab_size\" is null, and must be"},
    {llama_keys, "\"attention_bias\": \"false\"", NULL, "\"attention_bias\" is \"false\", and must be false"},
    {llama_keys, "\"mlp_bias\": true", NULL, "\"mlp_bias\" is true, and must be false"},
    {llama_keys, "\"mlp_bias\": true", "mlp_bias", NULL},
    {llama_keys, "\"hidden_act\": \"gelu\"", NULL, "\"hidden_act\" is \"gelu\", and must be silu or swish"},
    {llama_keys, "\"hidden_act\": \"silu or swish\"", NULL, "\"hidden_act\" is"},
    {llama_keys, "\"layer_types\": [\"full_attention\"]", NULL, NULL},
    {llama_keys, "\"layer_types\": [\"chunked\", \"full_attention\"]", NULL, "\"layer_types\" is"},
    {llama_keys, "\"layer_types\": [\"full_attention\", \"chunked\"]", NULL, "\"layer_types\" is"},
    {llama_keys, "\"head_dim\": 8", NULL, NULL},
    {llama_keys, "\"head_dim\": 3", NULL, "head_dim, must be even"},
    {llama_keys, "\"partial_rotary_factor\": 1.0", NULL, NULL},
    {llama_keys, "\"partial_rotary_factor\": 0.5", NULL, "\"partial_rotary_factor\" is 0.5, and must be 1"},
    {llama_keys, "\"rope_parameters\": {\"partial_rotary_factor\": 0.5}", NULL,
     "\"partial_rotary_factor\" is"},
    {llama_keys, "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2}", NULL,
     "\"rope_type\" is \"yarn\""},
    {llama_keys, "\"rope_scaling\": {\"factor\": 2}", NULL, "have factors, and are of rope_type default"},
    {llama_keys, "\"rope_scaling\": {\"type\": \"linear\"}", NULL, "rope_type linear needs factor alone"},
    {llama_keys, "\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}", NULL,
     "rope_type llama3 needs factor, and"},
    {llama_keys, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"mscale\": 1}", NULL,
     "\"mscale\" is 1"},
    {llama_keys,
     "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"factor\": 2}", NULL,
     "rope_scaling and rope_parameters: one of them alone"},
    {llama_keys, "\"rope_scaling\": {}, \"rope_parameters\": {\"type\": \"linear\", \"factor\": 2}", NULL,
     NULL},
    {llama_keys, "\"rope_scaling\": 8", NULL, "\"rope_scaling\" is 8, and must be an object"},
    {llama_keys, "\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"linear\", \"factor\": 2}", NULL,
     NULL},
    {llama_keys, "\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"default\", \"factor\": 2}", NULL,
     "its rope_type and the older type differ"},
    {llama_keys, "\"rope_theta\": 500, \"rope_parameters\": {\"rope_theta\": 500}", NULL, NULL},
    {llama_keys, "\"rope_theta\": 500, \"rope_parameters\": {\"rope_theta\": 600}", NULL,
     "rope_theta is 500, and 600 among the rotary positions"},
    {llama_keys, "\"sliding_window\": 4096", NULL, "\"sliding_window\" is 4096, which is not"},
    {llama_keys, "\"text_config\": {\"model_type\": \"llama\"}", NULL, "\"text_config\" is {"},
    {llama_keys, "\"quantization_config\": {\"bits\": 4}", NULL, "\"quantization_config\" is {\"bits\": 4}"},
    {llama_keys, "\"n_head\": 4", NULL, "\"n_head\" is 4, which is not"}, // GPT-2's
    {gpt2_keys, "\"rope_theta\": 10000", NULL, "\"rope_theta\" is 10000, which is not"},
    {gpt2_keys, "\"hidden_size\": 16", NULL, "\"hidden_size\" is 16, which is not"},
    {gpt2_keys, "\"activation_function\": \"relu\"", NULL,
     "\"activation_function\" is \"relu\", and must be gelu_new"},
    {gpt2_keys, "\"activation_function\": \"gelu\"", NULL,
     "\"activation_function\" is \"gelu\", and must be gelu_new"},
    {gpt2_keys, "\"activation_function\": \"gelu_pytorch_tanh\"", NULL, NULL},
    {gpt2_keys, "\"scale_attn_weights\": false", NULL, "\"scale_attn_weights\" is false, and must be true"},
    {gpt2_keys, "\"scale_attn_by_inverse_layer_idx\": true", NULL, "is true, and must be false"},
    {gpt2_keys, "\"tie_word_embeddings\": false", NULL, "\"tie_word_embeddings\" is false, and must be true"},
    {gpt2_keys, "\"add_cross_attention\": true", NULL, "\"add_cross_attention\" is true, which is not"},
    {gpt2_keys, "\"reorder_and_upcast_attn\": true, \"n_ctx\": 8, \"n_inner\": null", NULL, NULL},
    {"\"text_config\": {\"model_type\": \"llama\"}", "\"x\": 0", NULL,
     "its model_type must be gpt2, llama or mistral"},
};
static void config_keys(par_comm *w) {
    for (size_t i = 0; i < sizeof config_rows / sizeof *config_rows; i++) {
        char json[512], why[640] = "";
        gpt_config g;
        snprintf(json, sizeof json, "{%s, %s}", config_rows[i].keys, config_rows[i].more);
        const char *said = files_config_of(json, "c", config_rows[i].ignored, &g, why, sizeof why);
        CHECK(w, (said != NULL) == (why[0] != 0));
        if (config_rows[i].said ? !said || !strstr(said, config_rows[i].said) : said != NULL)
            test_fail(__FILE__, __LINE__, par_rank(w), json, said ? said : "it is read");
    }
}

// Tensors that a model has no place for, in one file and in several.
static const char *tensors_load(const gpt_model *m, const char *dir) { // NULL, or why not
    static char why[640];
    files_weights *f = (files_weights *)calloc(1, sizeof *f);
    const char *problem = files_weights_open(f, m, dir, 0);
    if (problem) snprintf(why, sizeof why, "%s", problem);
    files_weights_close(f), free(f);
    return problem ? why : NULL;
}
// Files of zeros. value: of the first element of the last tensor.
static void write_tensors(par_comm *w, const char *dir, const char *name, const par_file_tensor *list,
                          size_t count, float value) {
    static par_safetensors_writer out;
    char file[700];
    snprintf(file, sizeof file, "%s/%s", dir, name);
    CHECK(w, !par_safetensors_create(file, list, count, &out));
    CHECK(w, !par_zero_safetensors_put(&out, count - 1, 0, 0, 1, &value));
    CHECK(w, !par_safetensors_end(&out, 1));
}
static void says(par_comm *w, const gpt_model *m, const char *dir, const char *what, const char *said) {
    const char *problem = tensors_load(m, dir);
    if (said ? !problem || !strstr(problem, said) : problem != NULL)
        test_fail(__FILE__, __LINE__, par_rank(w), what, problem ? problem : "it is loaded");
}
static void strange_tensors(par_comm *w, const gpt_model *m, const char *dir, par_file_tensor *list,
                            size_t count) {
    static const struct {
        int llama;
        const char *name;
        float value;
        const char *said;
    } rows[] = {{1, "model.layers.0.self_attn.rotary_emb.inv_freq", 1, NULL},
                {1, "model.layers.0.self_attn.q_proj.bias", 1,
                 "takes the tensor model.layers.0.self_attn.q_proj.bias"},
                {1, "model.layers.0.self_attn.q_proj.weight_scale", 1, "scales are not read"},
                {1, "model.layers.1.input_layernorm.weight", 1, "fewer layers than the files"},
                {1, "model.layers.0.self_attn.q_proj.lora_A.weight", 1, "adapter that is not merged"},
                {1, "score.weight", 1, "takes the tensor score.weight"},
                {1, "model.layers.0.attn.bias", 1, "takes the tensor"},
                {0, "transformer.h.0.attn.bias", 1, NULL},
                {0, "h.0.attn.masked_bias", 1, NULL},
                {0, "h.0.rotary_emb.inv_freq", 1, "takes the tensor"},
                {0, "wte.weight", 1, "takes the tensor wte.weight"}, // once more, by its other name
                {0, "lm_head.weight", 0, NULL},
                {0, "lm_head.weight", 1, "and they differ"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].llama != m->config.llama) continue;
        list[count] = list[0]; // the embedding's shape
        snprintf(list[count].name, sizeof list[count].name, "%s", rows[i].name);
        write_tensors(w, dir, "model.safetensors", list, count + 1, rows[i].value);
        says(w, m, dir, rows[i].name, rows[i].said);
    }
}
// Two files and an index: the last tensor of the first file is also in the second, elsewhere in the map ...
static void strange_index(par_comm *w, const gpt_model *m, const char *dir, par_file_tensor *list,
                          size_t count) {
    static const struct {
        const char *what;
        int again;   // it is in the second file, too
        int file;    // where the map places it; 0: nowhere
        int twice;   // in the map
        int missing; // a file
        const char *said;
    } rows[] = {
        {"as it should be", 0, 1, 0, 0, NULL},
        {"in two files", 1, 1, 0, 0, "is in b.safetensors, where model.safetensors.index.json does not"},
        {"elsewhere", 0, 2, 0, 0, "in b.safetensors, which does not have it"},
        {"nowhere", 0, 0, 0, 0, "is in a.safetensors, where model.safetensors.index.json does not"},
        {"twice in the map", 0, 1, 1, 0, "twice"},
        {"a file that is not there", 0, 1, 0, 1, "c.safetensors"}};
    char file[700];
    const size_t half = count / 2;
    par_file_tensor two[64];
    memcpy(two, list + half, (count - half) * sizeof *two);
    two[count - half] = list[half - 1];
    snprintf(file, sizeof file, "%s/model.safetensors", dir);
    CHECK(w, !unlink(file));
    snprintf(file, sizeof file, "%s/%s", dir, files_index);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_tensors(w, dir, "a.safetensors", list, half, 1);
        write_tensors(w, dir, "b.safetensors", two, count - half + (size_t)rows[i].again, 1);
        FILE *f = fopen(file, "w");
        CHECK(w, f != NULL);
        fprintf(f, "{\"weight_map\": {\"%s\": \"%s.safetensors\"", list[0].name, rows[i].missing ? "c" : "a");
        for (size_t k = 1; k < count; k++) {
            const int in = k == half - 1 ? rows[i].file : k < half ? 1 : 2;
            for (int n = 0; in && n <= (k == half - 1 && rows[i].twice); n++)
                fprintf(f, ", \"%s\": \"%c.safetensors\"", list[k].name, in == 1 ? 'a' : 'b');
        }
        CHECK(w, fprintf(f, "}}\n") > 0 && !fclose(f));
        says(w, m, dir, rows[i].what, rows[i].said);
    }
}
static void tensors(par_comm *w) {
    char dir[600], remove[700];
    par_tp_desc d;
    par_tp *tp;
    memset(&d, 0, sizeof d);
    d.tp = w;
    CHECK_OK(w, par_tp_open(&d, &tp));
    snprintf(dir, sizeof dir, "%s/par_test_tensors_%d", test_dir, (int)getpid());
    snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
    for (int llama = 0; llama < 2; llama++) {
        par_file_tensor list[64];
        size_t at[64];
        gpt_model m;
        gpt_config c;
        memset(list, 0, sizeof list), memset(&c, 0, sizeof c);
        c.n_layer = 1, c.n_head = 2, c.n_embd = 8, c.block_size = 6, c.vocab_size = 11;
        c.bias = !llama, c.llama = llama;
        CHECK_OK(w, gpt_open(&m, &c, tp, 0));
        CHECK(w, !mkdir(dir, 0777));
        const size_t count = files_list_tensors(&m, list, at);
        strange_tensors(w, &m, dir, list, count);
        strange_index(w, &m, dir, list, count);
        gpt_close(&m);
        CHECK(w, system(remove) == 0);
    }
    CHECK_OK(w, par_tp_close(tp));
}

// Codes, scales and products of tests/golden/low_precision.py, to the bit.
static const void *golden_bytes(const par_safetensors *s, const char *recipe, const char *operand,
                                const char *what, size_t *count) {
    char name[64];
    snprintf(name, sizeof name, "%s%s%s%s%s", recipe, *recipe ? "." : "", operand, *what ? "." : "", what);
    const par_file_tensor *x = par_safetensors_find(s, name);
    if (x && count) *count = x->shape[0] * (x->dims > 1 ? x->shape[1] : 1);
    return x ? x->data : NULL;
}
static void golden_casts(par_comm *w, const par_safetensors *s) {
    size_t n = 0, wrong = 0;
    const float *x = (const float *)golden_bytes(s, "", "f32", "", &n);
    for (int k = 0; k < 2; k++) {
        const par_dtype d = k ? PAR_F8_E5M2 : PAR_F8_E4M3;
        const uint8_t *want = (const uint8_t *)golden_bytes(s, "", k ? "e5m2" : "e4m3", "", NULL);
        for (size_t i = 0; i < n; i++) {
            uint8_t got;
            float back;
            CHECK_OK(w, par_cast(&got, d, &x[i], PAR_F32, 1));
            CHECK_OK(w, par_cast(&back, PAR_F32, &want[i], d, 1));
            wrong += isnan(back) ? (got & 0x7f) < (k ? 0x7d : 0x7f) : got != want[i];
        }
    }
    CHECK(w, n > 2000 && !wrong);
}
static void golden_operand(par_comm *w, par_tp *tp, const par_safetensors *s, par_tp_recipe recipe,
                           const char *name, size_t rows, par_tp_operand *q) {
    enum { COLS = 136 };
    const par__tp_recipe *r = par__tp_recipe_of(recipe);
    const uint8_t *codes = (const uint8_t *)golden_bytes(s, r->name, name, "codes", NULL);
    const void *scales = golden_bytes(s, r->name, name, "scales", NULL);
    size_t count = 0, wrong = 0;
    memset(q, 0, sizeof *q);
    q->code = *name == 'g' ? r->gradients : r->code, q->scale = r->scale;
    q->block_rows = *name == 'w' ? r->weight_rows : r->rows, q->block_cols = r->cols;
    q->rows = rows, q->cols = COLS, q->ld = 256;
    q->amax = (float *)calloc(2, 4), q->codes = malloc(rows * 256),
    q->scales = malloc(par__tp_scale_bytes(q));
    CHECK_OK(w, par_tp_kernels_of(tp)->quantize(tp, q, golden_bytes(s, "", name, "", NULL), COLS, 0));
    const size_t bits = q->code == PAR_TP_E2M1 ? 4 : 8, per = r->cols ? (COLS + r->cols - 1) / r->cols : 1;
    for (size_t i = 0; i < rows; i++)
        wrong += memcmp((const char *)q->codes + i * 256 * bits / 8, codes + i * COLS * bits / 8,
                        COLS * bits / 8) != 0;
    if (wrong) fprintf(stderr, "%s.%s: %zu rows of codes differ\n", r->name, name, wrong);
    CHECK(w, !wrong);
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < per; c++) {
            const size_t at = par__tp_scale_at(q, i, c * r->cols),
                         block = q->block_rows ? i / q->block_rows : 0;
            if (q->scale >= PAR_TP_SCALE_E8M0)
                wrong += ((uint8_t *)q->scales)[at] != ((const uint8_t *)scales)[i * per + c];
            else
                wrong += ((float *)q->scales)[at] != ((const float *)scales)[block * per + c];
        }
    if (wrong) fprintf(stderr, "%s.%s: %zu scales differ\n", r->name, name, wrong);
    CHECK(w, !wrong);
    const void *tiles = golden_bytes(s, r->name, name, "tiles", &count);
    CHECK(w, !tiles || (count <= par__tp_scale_bytes(q) && !memcmp(tiles, q->scales, count)));
}
static void close_operand(par_tp_operand *q) { free(q->amax), free(q->codes), free(q->scales); }
static void low_precision(par_comm *w) {
    par_safetensors s;
    par_tp_operand x, g;
    par_tp_desc d;
    par_tp *tp;
    float y[24 * 16];
    memset(&d, 0, sizeof d);
    d.tp = w, d.dtype = PAR_BF16;
    CHECK_OK(w, par_tp_open(&d, &tp));
    if (par_safetensors_open("tests/golden/low_precision.safetensors", &s))
        return test_fail(__FILE__, __LINE__, 0, "file", s.why);
    golden_casts(w, &s);
    for (int k = 0; k < 2; k++) {
        const par_tp_recipe recipe = k ? PAR_TP_ROWWISE : PAR_TP_CURRENT;
        const float *want = (const float *)golden_bytes(&s, k ? "rowwise" : "current", "y", "", NULL);
        golden_operand(w, tp, &s, recipe, "x", 24, &x);
        golden_operand(w, tp, &s, recipe, "g", 16, &g);
        CHECK_OK(w, par_tp_kernels_of(tp)->gemm_codes(tp, &x, &g, 0, y, PAR_F32, 16, NULL));
        for (int r = 0; r < 24; r++) { // sums in another order
            float max = 0, error = 0;
            for (int c = 0; c < 16; c++) {
                max = fmaxf(max, fabsf(want[r * 16 + c]));
                error = fmaxf(error, fabsf(want[r * 16 + c] - y[r * 16 + c]));
            }
            CHECK(w, error <= max * 1e-5f);
        }
        close_operand(&x), close_operand(&g);
    }
    for (int k = 0; k < 5; k++) {
        static const par_tp_recipe recipes[] = {PAR_TP_BLOCKS, PAR_TP_BLOCKS, PAR_TP_MXFP8, PAR_TP_NVFP4,
                                                PAR_TP_NVFP4};
        golden_operand(w, tp, &s, recipes[k], k == 1 || k == 4 ? "w" : "x", k == 1 || k == 4 ? 136 : 24, &x);
        close_operand(&x);
    }
    par_safetensors_close(&s);
    CHECK_OK(w, par_tp_close(tp));
}

// Muon's first step against tests/golden/muon.py: f32's direction is the exact one; that of bf16 is at least
// as near to it as one of which each operation is rounded, and as near to that one as two errors may be.
static void give_zeros(void *user, size_t first, size_t count, float *values) {
    (void)user, (void)first;
    memset(values, 0, count * sizeof *values);
}
static double distance(const float *a, const float *b, size_t n) {
    double sum = 0, whole = 0;
    for (size_t i = 0; i < n; i++)
        sum += pow((double)a[i] - (double)b[i], 2), whole += (double)b[i] * (double)b[i];
    return sqrt(sum / whole);
}
static void muon_step(par_comm *w, const par_file_tensor *g, par_dtype products, float *direction) {
    const size_t n = g->shape[0] * g->shape[1];
    par_zero *z;
    par_zero_desc d;
    par_zero_tensor t;
    memset(&d, 0, sizeof d), memset(&t, 0, sizeof t);
    d.comm = w, d.optimizer = PAR_ZERO_MUON, d.muon_dtype = products, d.hyper[0].lr = 1;
    t.name = "W", t.dims = 2, t.shape[0] = g->shape[0], t.shape[1] = g->shape[1];
    CHECK_OK(w, par_zero_open(&d, &z));
    par_zero_add_unit(z, "unit"), par_zero_add_tensor(z, &t);
    CHECK_OK(w, par_zero_commit(z));
    CHECK_OK(w, par_zero_fill(z, 0, PAR_ZERO_VALUE, give_zeros, NULL));
    CHECK_OK(w, par_zero_forward_begin(z, 0));
    CHECK_OK(w, par_zero_forward_end(z, 0));
    CHECK_OK(w, par_zero_backward_begin(z, 0));
    memcpy(par_zero_grad(z, 0), g->data, n * sizeof(float));
    CHECK_OK(w, par_zero_backward_end(z, 0));
    CHECK_OK(w, par_zero_step(z, 1, NULL));
    CHECK_OK(w, par_zero_forward_begin(z, 0));
    for (size_t i = 0; i < n; i++) direction[i] = -((const float *)par_zero_data(z, 0))[i];
    CHECK_OK(w, par_zero_forward_end(z, 0));
    CHECK_OK(w, par_zero_close(z));
}
static void muon(par_comm *w) {
    static const char *const shapes[] = {"wide", "tall", "square"};
    par_safetensors s;
    float got[40 * 40];
    if (par_safetensors_open("tests/golden/muon.safetensors", &s))
        return test_fail(__FILE__, __LINE__, 0, "file", s.why);
    for (int i = 0; i < 3; i++) {
        char name[32];
        size_t n = 0;
        snprintf(name, sizeof name, "%s.g", shapes[i]);
        const par_file_tensor *g = par_safetensors_find(&s, name);
        const float *exact = (const float *)golden_bytes(&s, shapes[i], "exact", "", &n);
        const float *bf16 = (const float *)golden_bytes(&s, shapes[i], "bf16", "", NULL);
        CHECK(w, g && exact && bf16 && n <= sizeof got / sizeof *got);
        if (!g || !exact || !bf16) continue;
        muon_step(w, g, PAR_F32, got);
        CHECK(w, distance(got, exact, n) < 2e-5);
        muon_step(w, g, PAR_BF16, got);
        const double off = distance(got, exact, n), allowed = distance(bf16, exact, n);
        CHECK(w, off > 1e-4 && off < allowed && distance(got, bf16, n) < off + allowed);
    }
    par_safetensors_close(&s);
}

const test tests[] = {{"torch", torch, TEST_ALONE | TEST_POWERS, 1, 60},
                      {"generating", generating, TEST_ALONE | TEST_POWERS | TEST_SMALL, 1, 60},
                      {"files", files, TEST_SERIAL, 1, 60},
                      {"families", families, TEST_SERIAL, 1, 60},
                      {"config_keys", config_keys, TEST_SERIAL, 1, 60},
                      {"tensors", tensors, TEST_SERIAL, 1, 60},
                      {"low_precision", low_precision, TEST_SERIAL, 1, 60},
                      {"muon", muon, TEST_SERIAL, 1, 60}};
const int test_count = (int)(sizeof tests / sizeof tests[0]);

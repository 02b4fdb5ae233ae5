// model.h - GPT-2 on the CPU in f32: a forward and a backward function for each layer, on buffers the caller
// owns.
//
// Shapes: B sequences of T tokens, C = n_embd, H = n_head, L = n_layer, V = vocabulary; N = B*T rows. Weights
// are (out, in) row-major, Y = X W^T + b. Backward functions add to dw and db, and write dx.
#ifndef MODEL_H
#define MODEL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- elementwise ------------------------------------------------------------------------------------------

// e^x to 2 ulp, without branches, so that loops over it vectorise: x = n ln2 + r, 2^n by exponent bits, e^r
// by a polynomial (Cephes).
static inline float fast_exp(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f; // rounds to an integer in the low mantissa bits
    const float n = shifted - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f, p = p * r + 8.3334519073e-3f, p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f, p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

// GELU, tanh form: x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3); tanh(u) = 1 - 2/(e^2u + 1)
static void gelu_forward(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float u = 0.797884561f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        y[i] = x[i] * (1.0f - 1.0f / (fast_exp(2.0f * u) + 1.0f));
    }
}
static void gelu_backward(float *dx, const float *dy, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float u = 0.797884561f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        const float s = 1.0f - 1.0f / (fast_exp(2.0f * u) + 1.0f); // (1 + tanh u) / 2
        const float du = 0.797884561f * (1.0f + 3.0f * 0.044715f * x[i] * x[i]);
        dx[i] = dy[i] * (s + x[i] * 2.0f * s * (1.0f - s) * du);
    }
}

static void add(float *y, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

// Keeps each element with probability 1 - p and scales it up. The mask depends on {site, global element}
// alone, so that backward calls the same function and every number of ranks drops the same elements.
static void dropout(float *x, size_t n, float p, uint64_t seed, uint64_t site, uint64_t first) {
    if (p <= 0) return;
    for (size_t i = 0; i < n; i++) x[i] = par_uniform(seed, site, first + i) < p ? 0 : x[i] / (1 - p);
}

// ---- linear -----------------------------------------------------------------------------------------------

static void gemm(int ta, int tb, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
                 const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    par_device *cpu = par_cpu();
    if (cpu->gemm(cpu, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, NULL)) abort();
}

static void linear_forward(float *y, const float *x, const float *w, const float *b, size_t rows, size_t in,
                           size_t out) {
    for (size_t r = 0; b && r < rows; r++) memcpy(y + r * out, b, out * sizeof *y);
    gemm(0, 1, rows, out, in, 1, x, in, w, in, b ? 1.0f : 0.0f, y, out);
}
static void linear_backward(float *dx, float *dw, float *db, const float *dy, const float *x, const float *w,
                            size_t rows, size_t in, size_t out) {
    gemm(0, 0, rows, in, out, 1, dy, out, w, in, 0, dx, in);
    gemm(1, 0, out, in, rows, 1, dy, out, x, in, 1, dw, in);
    for (size_t r = 0; db && r < rows; r++)
        for (size_t j = 0; j < out; j++) db[j] += dy[r * out + j];
}

// ---- layer norm -------------------------------------------------------------------------------------------

static void layernorm_forward(float *y, float *mean, float *rstd, const float *x, const float *w,
                              const float *b, size_t rows, size_t c) {
    for (size_t r = 0; r < rows; r++, x += c, y += c) {
        float sum = 0, square = 0;
        for (size_t i = 0; i < c; i++) sum += x[i];
        const float m = sum / (float)c;
        for (size_t i = 0; i < c; i++) square += (x[i] - m) * (x[i] - m);
        const float s = 1.0f / sqrtf(square / (float)c + 1e-5f);
        for (size_t i = 0; i < c; i++) y[i] = (x[i] - m) * s * w[i] + (b ? b[i] : 0);
        mean[r] = m, rstd[r] = s;
    }
}
static void layernorm_backward(float *dx, float *dw, float *db, const float *dy, const float *x,
                               const float *mean, const float *rstd, const float *w, size_t rows, size_t c) {
    for (size_t r = 0; r < rows; r++, x += c, dx += c, dy += c) {
        const float m = mean[r], s = rstd[r];
        float sum = 0, dot = 0;
        for (size_t i = 0; i < c; i++) {
            const float g = dy[i] * w[i], h = (x[i] - m) * s;
            sum += g, dot += g * h;
            dw[i] += dy[i] * h;
        }
        for (size_t i = 0; db && i < c; i++) db[i] += dy[i];
        for (size_t i = 0; i < c; i++)
            dx[i] = s * (dy[i] * w[i] - sum / (float)c - (x[i] - m) * s * dot / (float)c);
    }
}

// ---- causal self-attention
// ---------------------------------------------------------------------------------- qkv: (B, T, 3C) as [q;
// k; v]; probabilities p: (B, H, T, T); y: (B, T, C)

static void softmax_causal(float *p, size_t t, float scale) { // rows of p in place
    for (size_t i = 0; i < t; i++, p += t) {
        float most = p[0], sum = 0;
        for (size_t j = 1; j <= i; j++) most = p[j] > most ? p[j] : most;
        for (size_t j = 0; j <= i; j++) p[j] = fast_exp(scale * (p[j] - most));
        for (size_t j = 0; j <= i; j++) sum += p[j];
        for (size_t j = 0; j <= i; j++) p[j] /= sum;
        for (size_t j = i + 1; j < t; j++) p[j] = 0;
    }
}
static void attention_forward(float *y, float *p, float *dropped, const float *qkv, size_t b, size_t t,
                              size_t c, size_t h, float drop, uint64_t seed, uint64_t site,
                              uint64_t first_row) {
    const size_t d = c / h, w = 3 * c;
    for (size_t i = 0; i < b * h; i++) {
        const float *q = qkv + i / h * t * w + i % h * d;
        float *pi = p + i * t * t, *used = pi;
        gemm(0, 1, t, t, d, 1, q, w, q + c, w, 0, pi, t);
        softmax_causal(pi, t, 1.0f / sqrtf((float)d));
        if (drop > 0) {
            used = memcpy(dropped + i * t * t, pi, t * t * sizeof *pi);
            dropout(used, t * t, drop, seed, site, (first_row / t * h + i) * t * t);
        }
        gemm(0, 0, t, d, t, 1, used, t, q + 2 * c, w, 0, y + i / h * t * c + i % h * d, c);
    }
}
static void attention_backward(float *dqkv, float *dp, const float *dy, const float *p, const float *dropped,
                               const float *qkv, size_t b, size_t t, size_t c, size_t h, float drop,
                               uint64_t seed, uint64_t site, uint64_t first_row) {
    const size_t d = c / h, w = 3 * c;
    for (size_t i = 0; i < b * h; i++) {
        const float *q = qkv + i / h * t * w + i % h * d, *pi = p + i * t * t,
                    *used = drop > 0 ? dropped + i * t * t : pi;
        const float *dyi = dy + i / h * t * c + i % h * d;
        float *dq = dqkv + i / h * t * w + i % h * d;
        gemm(1, 0, t, d, t, 1, used, t, dyi, c, 0, dq + 2 * c, w); // dV = P^T dY
        gemm(0, 1, t, t, d, 1, dyi, c, q + 2 * c, w, 0, dp, t);    // dP = dY V^T
        dropout(dp, t * t, drop, seed, site, (first_row / t * h + i) * t * t);
        for (size_t r = 0; r < t; r++) { // dS = P (dP - sum P dP) / sqrt(d)
            const float *pr = pi + r * t;
            float *dr = dp + r * t, dot = 0;
            for (size_t j = 0; j <= r; j++) dot += pr[j] * dr[j];
            for (size_t j = 0; j < t; j++) dr[j] = pr[j] * (dr[j] - dot) / sqrtf((float)d);
        }
        gemm(0, 0, t, d, t, 1, dp, t, q + c, w, 0, dq, w); // dQ = dS K
        gemm(1, 0, t, d, t, 1, dp, t, q, w, 0, dq + c, w); // dK = dS^T Q
    }
}

// ---- embedding and loss
// -------------------------------------------------------------------------------------

static void embedding_forward(float *y, const int *tokens, const float *wte, const float *wpe, size_t rows,
                              size_t t, size_t c) {
    for (size_t r = 0; r < rows; r++) add(y + r * c, wte + (size_t)tokens[r] * c, wpe + r % t * c, c);
}
static void embedding_backward(float *dwte, float *dwpe, const float *dy, const int *tokens, size_t rows,
                               size_t t, size_t c) {
    for (size_t r = 0; r < rows; r++) {
        float *te = dwte + (size_t)tokens[r] * c, *pe = dwpe + r % t * c;
        for (size_t i = 0; i < c; i++) te[i] += dy[r * c + i], pe[i] += dy[r * c + i];
    }
}

// Sum of -log softmax(logits)[target] over rows; logits become scale x the gradient.
static double cross_entropy(float *logits, const int *targets, size_t rows, size_t v, float scale) {
    double loss = 0;
    for (size_t r = 0; r < rows; r++, logits += v) {
        float most = logits[0], sum = 0;
        const float wanted = logits[targets[r]];
        for (size_t j = 1; j < v; j++) most = logits[j] > most ? logits[j] : most;
        for (size_t j = 0; j < v; j++) logits[j] = fast_exp(logits[j] - most);
        for (size_t j = 0; j < v; j++) sum += logits[j];
        loss += log((double)sum) + (double)most - (double)wanted;
        for (size_t j = 0; j < v; j++) logits[j] *= scale / sum;
        logits[targets[r]] -= scale;
    }
    return loss;
}

// ---- the model
// ----------------------------------------------------------------------------------------------

typedef struct gpt_config {
    int n_layer, n_head, n_embd, block_size, vocab_size, bias;
} gpt_config;

// X(name, elements, does weight decay apply, standard deviation of the initial values: 0 zeros, -1 ones)
#define GPT_LAYER(X)                                                                                         \
    X(ln1w, C, 0, -1.0f)                                                                                     \
    X(ln1b, BIAS *C, 0, 0.0f)                                                                                \
    X(qkvw, 3 * C * C, 1, 0.02f)                                                                             \
    X(qkvb, BIAS * 3 * C, 0, 0.0f)                                                                           \
    X(projw, C *C, 1, RESIDUAL)                                                                              \
    X(projb, BIAS *C, 0, 0.0f)                                                                               \
    X(ln2w, C, 0, -1.0f)                                                                                     \
    X(ln2b, BIAS *C, 0, 0.0f)                                                                                \
    X(fcw, 4 * C * C, 1, 0.02f)                                                                              \
    X(fcb, BIAS * 4 * C, 0, 0.0f)                                                                            \
    X(fcprojw, 4 * C * C, 1, RESIDUAL)                                                                       \
    X(fcprojb, BIAS *C, 0, 0.0f)
#define GPT_HEAD(X)                                                                                          \
    X(wte, V *C, 1, 0.02f)                                                                                   \
    X(wpe, T *C, 1, 0.02f)
#define GPT_TAIL(X)                                                                                          \
    X(lnfw, C, 0, -1.0f)                                                                                     \
    X(lnfb, BIAS *C, 0, 0.0f)
#define GPT_MEMBER(name, count, decay, init) float *name;
typedef struct gpt_layer {
    GPT_LAYER(GPT_MEMBER)
} gpt_layer;
typedef struct gpt_weights { // views of one flat block: head, layers, tail
    float *flat;
    size_t count;
    size_t *layer_at; // where layer l begins; [n_layer]: where the layers end
    GPT_HEAD(GPT_MEMBER)
    GPT_TAIL(GPT_MEMBER)
    gpt_layer *layers;
} gpt_weights;

// Walk all tensors in order: visit(user, tensor number, first element, elements, decay, init).
typedef void (*gpt_visit)(void *user, int tensor, size_t at, size_t count, int decay, float init);
static size_t gpt_walk(const gpt_config *g, gpt_weights *w, gpt_visit visit, void *user) {
    const size_t C = (size_t)g->n_embd, V = (size_t)g->vocab_size, T = (size_t)g->block_size,
                 BIAS = g->bias ? 1 : 0;
    const float RESIDUAL = 0.02f / sqrtf(2.0f * (float)g->n_layer);
    size_t at = 0;
    int tensor = 0;
#define GPT_TENSOR(where, name, count, decay, init)                                                          \
    {                                                                                                        \
        const size_t n = (count);                                                                            \
        if (w) where name = n ? w->flat + at : NULL;                                                         \
        if (visit && n) visit(user, tensor, at, n, decay, init);                                             \
        at += n, tensor++;                                                                                   \
    }
#define X(name, count, decay, init) GPT_TENSOR(w->, name, count, decay, init)
    GPT_HEAD(X)
#undef X
#define X(name, count, decay, init) GPT_TENSOR(w->layers[l]., name, count, decay, init)
    for (int l = 0; l < g->n_layer; l++) {
        if (w) w->layer_at[l] = at;
        GPT_LAYER(X)
    }
    if (w) w->layer_at[g->n_layer] = at;
#undef X
#define X(name, count, decay, init) GPT_TENSOR(w->, name, count, decay, init)
    GPT_TAIL(X)
#undef X
    return at;
}
static int gpt_view(const gpt_config *g, gpt_weights *w, float *flat) { // 0: out of memory
    w->flat = flat;
    w->layers = (gpt_layer *)calloc((size_t)g->n_layer, sizeof *w->layers);
    w->layer_at = (size_t *)calloc((size_t)g->n_layer + 1, sizeof *w->layer_at);
    if (!w->layers || !w->layer_at) return 0;
    w->count = gpt_walk(g, w, NULL, NULL);
    return 1;
}

typedef struct gpt_start {
    float *flat;
    uint64_t seed;
} gpt_start;
static void gpt_init_tensor(void *user, int tensor, size_t at, size_t n, int decay, float init) {
    const gpt_start *s = (const gpt_start *)user;
    (void)decay;
    for (size_t i = 0; i < n; i++)
        s->flat[at + i] = init > 0   ? init * par_normal(s->seed, (uint64_t)tensor + 1, i)
                          : init < 0 ? 1.0f
                                     : 0.0f;
}

// What forward keeps for backward, for one microbatch.
typedef struct gpt_saved {
    float *x, *ln1, *mean1, *rstd1, *qkv, *p, *dropped, *att, *mid, *ln2, *mean2, *rstd2, *fc,
        *gelu; // per layer
} gpt_saved;
typedef struct gpt_buffers {
    size_t rows, bytes;
    float *block; // everything below
    gpt_saved *layers;
    float *x, *lnf, *meanf, *rstdf, *logits;
    float *dx, *dy, *dwide, *dp; // backward's scratch: N x C, N x C, N x 4C, T x T
} gpt_buffers;

static size_t gpt_buffers_walk(const gpt_config *g, gpt_buffers *b, size_t batch, int dropping) {
    const size_t C = (size_t)g->n_embd, V = (size_t)g->vocab_size, T = (size_t)g->block_size, N = batch * T;
    const size_t P = batch * (size_t)g->n_head * T * T;
    size_t at = 0;
#define TAKE(member, n) (void)((member) = b->block ? b->block + at : NULL, at += ((n) + 15) / 16 * 16)
    for (int l = 0; l < g->n_layer; l++) {
        gpt_saved *s = &b->layers[l];
        TAKE(s->x, N * C);
        TAKE(s->ln1, N * C);
        TAKE(s->mean1, N);
        TAKE(s->rstd1, N);
        TAKE(s->qkv, N * 3 * C);
        TAKE(s->p, P);
        TAKE(s->dropped, dropping ? P : 0);
        TAKE(s->att, N * C);
        TAKE(s->mid, N * C);
        TAKE(s->ln2, N * C);
        TAKE(s->mean2, N);
        TAKE(s->rstd2, N);
        TAKE(s->fc, N * 4 * C);
        TAKE(s->gelu, N * 4 * C);
    }
    TAKE(b->x, N * C);
    TAKE(b->lnf, N * C);
    TAKE(b->meanf, N);
    TAKE(b->rstdf, N);
    TAKE(b->logits, N * V);
    TAKE(b->dx, N * C);
    TAKE(b->dy, N * C);
    TAKE(b->dwide, N * 4 * C);
    TAKE(b->dp, T * T);
#undef TAKE
    return at;
}
static int gpt_buffers_open(const gpt_config *g, gpt_buffers *b, size_t batch, int dropping) {
    void *p = NULL;
    memset(b, 0, sizeof *b);
    b->rows = batch * (size_t)g->block_size;
    b->layers = (gpt_saved *)calloc((size_t)g->n_layer, sizeof *b->layers);
    if (!b->layers) return 0;
    b->bytes = gpt_buffers_walk(g, b, batch, dropping) * sizeof(float);
    if (par_cpu()->alloc(par_cpu(), b->bytes, &p)) return 0;
    b->block = (float *)p;
    gpt_buffers_walk(g, b, batch, dropping);
    return 1;
}
static void gpt_buffers_close(gpt_buffers *b) {
    par_cpu()->free(par_cpu(), b->block);
    free(b->layers);
}

typedef struct gpt_dropout { // first_row: global number of row 0 of this microbatch
    float p;
    uint64_t seed, step, first_row;
} gpt_dropout;
static uint64_t gpt_site(const gpt_dropout *d, int layer, int place) { // a random stream of its own
    return (d->step + 1) << 16 | (uint64_t)(layer + 1) << 2 | (uint64_t)place;
}

// Logits of batch*T rows into b->logits.
static void gpt_forward(const gpt_config *g, const gpt_weights *w, gpt_buffers *b, const int *tokens,
                        size_t batch, size_t t, const gpt_dropout *drop) {
    const size_t C = (size_t)g->n_embd, N = batch * t, H = (size_t)g->n_head, V = (size_t)g->vocab_size;
    const float p = drop ? drop->p : 0;
    const uint64_t seed = drop ? drop->seed : 0, row = drop ? drop->first_row : 0;
    float *x = g->n_layer ? b->layers[0].x : b->x;
    embedding_forward(x, tokens, w->wte, w->wpe, N, t, C);
    if (p > 0) dropout(x, N * C, p, seed, gpt_site(drop, -1, 0), row * C);
    for (int l = 0; l < g->n_layer; l++) {
        const gpt_layer *k = &w->layers[l];
        gpt_saved *s = &b->layers[l];
        float *next = l + 1 < g->n_layer ? b->layers[l + 1].x : b->x;
        layernorm_forward(s->ln1, s->mean1, s->rstd1, s->x, k->ln1w, k->ln1b, N, C);
        linear_forward(s->qkv, s->ln1, k->qkvw, k->qkvb, N, C, 3 * C);
        attention_forward(s->att, s->p, s->dropped, s->qkv, batch, t, C, H, p, seed,
                          drop ? gpt_site(drop, l, 0) : 0, row);
        linear_forward(s->mid, s->att, k->projw, k->projb, N, C, C);
        if (p > 0) dropout(s->mid, N * C, p, seed, gpt_site(drop, l, 1), row * C);
        add(s->mid, s->mid, s->x, N * C);
        layernorm_forward(s->ln2, s->mean2, s->rstd2, s->mid, k->ln2w, k->ln2b, N, C);
        linear_forward(s->fc, s->ln2, k->fcw, k->fcb, N, C, 4 * C);
        gelu_forward(s->gelu, s->fc, N * 4 * C);
        linear_forward(next, s->gelu, k->fcprojw, k->fcprojb, N, 4 * C, C);
        if (p > 0) dropout(next, N * C, p, seed, gpt_site(drop, l, 2), row * C);
        add(next, next, s->mid, N * C);
    }
    layernorm_forward(b->lnf, b->meanf, b->rstdf, b->x, w->lnfw, w->lnfb, N, C);
    linear_forward(b->logits, b->lnf, w->wte, NULL, N, C, V); // the head is tied to the embedding
}

// Gradients from b->logits (holding dlogits) into d. ready(user, l) after each layer's gradients are complete
// (-1: all the rest), so that the caller can begin to reduce them.
static void gpt_backward(const gpt_config *g, const gpt_weights *w, gpt_weights *d, gpt_buffers *b,
                         const int *tokens, size_t batch, size_t t, const gpt_dropout *drop,
                         void (*ready)(void *user, int layer), void *user) {
    const size_t C = (size_t)g->n_embd, N = batch * t, H = (size_t)g->n_head, V = (size_t)g->vocab_size;
    const float p = drop ? drop->p : 0;
    const uint64_t seed = drop ? drop->seed : 0, row = drop ? drop->first_row : 0;
    float *dx = b->dx, *dy = b->dy, *wide = b->dwide;
    linear_backward(dy, d->wte, NULL, b->logits, b->lnf, w->wte, N, C, V);
    layernorm_backward(dx, d->lnfw, d->lnfb, dy, b->x, b->meanf, b->rstdf, w->lnfw, N, C);
    for (int l = g->n_layer - 1; l >= 0; l--) { // dx: gradient of the layer's output
        const gpt_layer *k = &w->layers[l];
        gpt_layer *dk = &d->layers[l];
        gpt_saved *s = &b->layers[l];
        memcpy(dy, dx, N * C * sizeof *dx);
        if (p > 0) dropout(dy, N * C, p, seed, gpt_site(drop, l, 2), row * C);
        linear_backward(wide, dk->fcprojw, dk->fcprojb, dy, s->gelu, k->fcprojw, N, 4 * C, C);
        gelu_backward(wide, wide, s->fc, N * 4 * C);
        linear_backward(dy, dk->fcw, dk->fcb, wide, s->ln2, k->fcw, N, C, 4 * C);
        layernorm_backward(wide, dk->ln2w, dk->ln2b, dy, s->mid, s->mean2, s->rstd2, k->ln2w, N, C);
        add(dx, dx, wide, N * C); // the residual
        memcpy(dy, dx, N * C * sizeof *dx);
        if (p > 0) dropout(dy, N * C, p, seed, gpt_site(drop, l, 1), row * C);
        linear_backward(wide, dk->projw, dk->projb, dy, s->att, k->projw, N, C, C);
        float *dqkv = wide + N * C;
        attention_backward(dqkv, b->dp, wide, s->p, s->dropped, s->qkv, batch, t, C, H, p, seed,
                           drop ? gpt_site(drop, l, 0) : 0, row);
        linear_backward(dy, dk->qkvw, dk->qkvb, dqkv, s->ln1, k->qkvw, N, C, 3 * C);
        layernorm_backward(wide, dk->ln1w, dk->ln1b, dy, s->x, s->mean1, s->rstd1, k->ln1w, N, C);
        add(dx, dx, wide, N * C);
        if (ready) ready(user, l);
    }
    if (p > 0) dropout(dx, N * C, p, seed, gpt_site(drop, -1, 0), row * C);
    embedding_backward(d->wte, d->wpe, dx, tokens, N, t, C);
    if (ready) ready(user, -1);
}

#endif

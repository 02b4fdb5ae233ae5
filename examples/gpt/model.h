// model.h - GPT-2 and Llama on par_tp.h's layers: one forward and one backward for any t x c ranks, and an
// update by par_zero.h's kernel.
//
// Shapes: B sequences of T tokens, C = n_embd, V = vocabulary. "tokens": R = B T/c rows x C, split once more
// over tp with sequence parallelism. Weights are (out, in) row-major, Y = X W^T + b. Backward adds to the
// gradients of parameters.
#ifndef MODEL_H
#define MODEL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h> // MIN, MAX

typedef struct gpt_config {
    int n_layer, n_head, n_embd, block_size, vocab_size, bias;
    int llama, n_kv_head; // llama: RMSNorm, RoPE, SwiGLU, no biases, a head with its own weight
    // From imported models: features of the MLP, whether the head is tied to the embedding, rows of the
    // position table. 0: gpt_hidden, by the architecture, block_size.
    int hidden, tied, positions;
    float epsilon; // of norms; 0: 1e-5
    par_tp_rotary rotary;
} gpt_config;

enum {
    GPT_NAME_LN1,
    GPT_NAME_QKV,
    GPT_NAME_ATTN,
    GPT_NAME_PROJ,
    GPT_NAME_LN2,
    GPT_NAME_UP,
    GPT_NAME_DOWN,
    GPT_NAMES
};
typedef struct gpt_layer {
    par_tp_norm norm1, norm2;
    par_tp_linear qkv, proj, up, down;
    char name[GPT_NAMES][32]; // "layers.3.attn.qkv", as its tensors
} gpt_layer;

enum { // kinds of tensors, in the model's order
    GPT_WTE,
    GPT_WPE,
    GPT_LN1W,
    GPT_LN1B,
    GPT_QKVW,
    GPT_QKVB,
    GPT_PROJW,
    GPT_PROJB,
    GPT_LN2W,
    GPT_LN2B,
    GPT_UPW,
    GPT_UPB,
    GPT_DOWNW,
    GPT_DOWNB,
    GPT_LNFW,
    GPT_LNFB,
    GPT_HEAD,
    GPT_KINDS
};
static const char *const gpt_names[GPT_KINDS] = {
    "wte.weight",       "wpe.weight",     "ln1.weight", "ln1.bias", "attn.qkv.weight", "attn.qkv.bias",
    "attn.proj.weight", "attn.proj.bias", "ln2.weight", "ln2.bias", "mlp.up.weight",   "mlp.up.bias",
    "mlp.down.weight",  "mlp.down.bias",  "lnf.weight", "lnf.bias", "head.weight"};
typedef struct gpt_tensor { // a parameter, in the model's order
    par_tp_parameter *p;
    size_t offset,
        total_offset; // first element: of this rank's parts side by side; of the whole tensors side by side
    int kind, layer;  // GPT_WTE ...; -1: of no layer
    int tied;         // 1: the head as a copy of the embedding's weight, on ranks that have only the head
    int decay;        // does weight decay apply?
    float init;       // standard deviation of the initial values; 0: zeros, -1: ones
    uint64_t stream;
} gpt_tensor;

// Where the model is in its use of a unit (0: the embedding; 1 to n_layer: a layer; n_layer + 1: the last
// norm and the head). Between BEGIN and END the unit's parameters must be complete on this rank. INPUT and
// WEIGHT are the halves of a split backward. INPUT alone is a use of the embedding by the head of another
// stage: it adds to gradients, which are complete after the stage's own backward, or later.
typedef enum gpt_phase {
    GPT_FORWARD_BEGIN,
    GPT_FORWARD_END,
    GPT_BACKWARD_BEGIN,
    GPT_BACKWARD_END,
    GPT_INPUT_BEGIN,
    GPT_INPUT_END,
    GPT_WEIGHT_BEGIN,
    GPT_WEIGHT_END
} gpt_phase;

// A stage of a pipeline: some consecutive layers, with the embedding before the first and the norm and the
// head after the last.
typedef struct gpt_stage {
    int first, end; // layers first ... end - 1
    int embed, head;
    int tied; // 1: the head's weight is that of the embedding, which is on this rank
} gpt_stage;

// Which activations backward recomputes. SELECTIVE: the cheap ones, norms and activation functions (attention
// scores are never kept). FULL: all but each layer's input (Chen et al. 2016).
typedef enum gpt_recompute { GPT_RECOMPUTE_NONE, GPT_RECOMPUTE_SELECTIVE, GPT_RECOMPUTE_FULL } gpt_recompute;

typedef struct gpt_model {
    gpt_recompute recompute; // before gpt_buffers_open
    int split_backward;      // 1: the halves of backward are apart
    par_tp_kv_cache *cache; // of each layer, for generating: keys and values of the tokens so far; NULL: none
    size_t last_token_only; // logits of so many sequences' last tokens alone; 0: of all tokens
    par_result (*on_phase)(void *user, int unit, gpt_phase what); // NULL: everything is always there
    void *user;
    gpt_config config;
    par_tp *tp;
    par_device *device;       // where everything is
    int t, sequence_parallel; // ranks; sequence parallelism
    par_tp_embedding embedding;
    par_tp_norm final_norm;
    par_tp_linear head;
    par_tp_attention attention;
    par_tp_loss loss;
    gpt_layer *layers;
    gpt_tensor *tensors;
    int tensor_count, use_count; // use_count: with the tied head, the last one
    int *unit_first_tensor;      // the first tensor of each unit, and behind the last
    size_t count, total_count;   // elements: this rank's, all
} gpt_model;

#define GPT_TRY(call)                                                                                        \
    do {                                                                                                     \
        const par_result gpt_r = (call);                                                                     \
        if (gpt_r) return gpt_r;                                                                             \
    } while (0)

static size_t gpt_hidden(const gpt_config *g) { // features between the two products of the MLP
    if (g->hidden > 0) return (size_t)g->hidden;
    return g->llama ? ((size_t)g->n_embd * 8 / 3 + 63) / 64 * 64 : 4 * (size_t)g->n_embd;
}
static size_t gpt_positions(const gpt_config *g) {
    return (size_t)(g->positions > 0 ? g->positions : g->block_size);
}
static inline int gpt_unit_of(const gpt_tensor *x, const gpt_config *g) {
    return x->layer >= 0 ? x->layer + 1 : x->kind <= GPT_WPE ? 0 : g->n_layer + 1;
}
// The tensors of a unit: from *first to one before the number that is returned.
static inline int gpt_unit_tensors(const gpt_model *m, int unit, int *first) {
    return *first = m->unit_first_tensor[unit], m->unit_first_tensor[unit + 1];
}
// Checks a model's sizes, which come from options or from files: NULL, or an error text. Sizes that pass have
// fewer than 2^60 parameters. A vocabulary of 0 is not known yet.
static inline const char *gpt_check(const gpt_config *g) {
    if (g->n_layer < 1 || g->n_layer > 10000) return "n_layer must be from 1 to 10000";
    if (g->n_embd < 1 || g->n_embd > 1 << 20) return "n_embd must be from 1 to 1048576";
    if (g->n_head < 1 || g->n_embd % g->n_head) return "n_embd must be a multiple of n_head";
    if (g->n_kv_head < 0 || (g->n_kv_head && g->n_head % g->n_kv_head))
        return "n_head must be a multiple of n_kv_head";
    if (g->block_size < 1 || g->block_size > 1 << 24 || g->positions < 0 || g->positions > 1 << 24)
        return "block_size and the positions of a model must be from 1 to 16777216";
    if (g->vocab_size < 0 || g->vocab_size > 1 << 28)
        return "a vocabulary must have from 1 to 268435456 tokens";
    if (g->hidden < 0 || g->hidden > 1 << 24) return "the features of the MLP must be at most 16777216";
    return NULL;
}
static par_result gpt_notify(const gpt_model *m, int unit, gpt_phase what) {
    return m->on_phase ? m->on_phase(m->user, unit, what) : PAR_OK;
}
static inline void gpt_name(const gpt_tensor *x, char *name, size_t capacity) { // "layers.3.attn.qkv.weight"
    if (x->layer >= 0)
        snprintf(name, capacity, "layers.%d.%s", x->layer, gpt_names[x->kind]);
    else
        snprintf(name, capacity, "%s", gpt_names[x->tied ? GPT_WTE : x->kind]);
}
static int gpt_is_tied(const gpt_config *g) { return !g->llama || g->tied; } // the head is the embedding
static gpt_stage gpt_all_layers(const gpt_model *m) {
    const gpt_stage all = {0, m->config.n_layer, 1, 1, gpt_is_tied(&m->config)};
    return all;
}

// ---- parameters -------------------------------------------------------------------------------------------

static void gpt_tensor_add(gpt_model *m, int present, int kind, int layer, par_tp_parameter *p, float init) {
    // absent tensors have numbers, too, so that the others get the same initial values
    const int layers = m->config.n_layer;
    const int number = layer >= 0 ? 12 * layer + kind : kind < GPT_LN1W ? kind : 12 * layers + kind - 12;
    const uint64_t stream = (uint64_t)number + 1;
    if (!present) return;
    gpt_tensor *x = &m->tensors[m->tensor_count++];
    x->p = p, x->kind = kind, x->layer = layer, x->decay = p->cols > 1, x->init = init, x->stream = stream;
    x->offset = m->count, x->total_offset = m->total_count;
    m->count += p->local_rows * p->local_cols, m->total_count += p->rows * p->cols;
}

static void gpt_layer_name(gpt_layer *k, int layer) { // what errors, ledger and trace call its parts
    static const char *const parts[GPT_NAMES] = {"ln1", "attn.qkv", "attn",    "attn.proj",
                                                 "ln2", "mlp.up",   "mlp.down"};
    for (int i = 0; i < GPT_NAMES; i++)
        snprintf(k->name[i], sizeof k->name[i], "layers.%d.%s", layer, parts[i]);
    k->norm1.name = k->name[GPT_NAME_LN1], k->norm2.name = k->name[GPT_NAME_LN2];
    k->qkv.name = k->name[GPT_NAME_QKV], k->proj.name = k->name[GPT_NAME_PROJ];
    k->up.name = k->name[GPT_NAME_UP], k->down.name = k->name[GPT_NAME_DOWN];
}
static par_result gpt_layer_open(gpt_model *m, gpt_layer *k) {
    const gpt_config *g = &m->config;
    const size_t C = (size_t)g->n_embd, F = gpt_hidden(g);
    memset(k, 0, sizeof *k);
    gpt_layer_name(k, (int)(k - m->layers));
    k->norm1.features = k->norm2.features = C;
    k->norm1.epsilon = k->norm2.epsilon = g->epsilon;
    k->norm1.rms = k->norm2.rms = g->llama, k->norm1.has_bias = k->norm2.has_bias = g->bias;
    par_tp_attention_segments(&m->attention, k->qkv.segments);
    k->qkv.segment_count = 3;
    k->qkv.in = C, k->qkv.has_bias = k->proj.has_bias = k->up.has_bias = k->down.has_bias = g->bias;
    for (int i = 0; i < 3; i++) k->qkv.out += k->qkv.segments[i].count;
    k->proj.in = k->proj.out = C, k->proj.row_parallel = k->down.row_parallel = 1;
    k->up.in = k->down.out = C, k->down.in = F, k->up.out = g->llama ? 2 * F : F;
    if (g->llama) k->up.segment_count = 2, k->up.segments[0].count = k->up.segments[1].count = F;
    GPT_TRY(par_tp_norm_open(m->tp, &k->norm1));
    GPT_TRY(par_tp_norm_open(m->tp, &k->norm2));
    GPT_TRY(par_tp_linear_open(m->tp, &k->qkv));
    GPT_TRY(par_tp_linear_open(m->tp, &k->proj));
    GPT_TRY(par_tp_linear_open(m->tp, &k->up));
    return par_tp_linear_open(m->tp, &k->down);
}

// Sets the shapes of all parameters, split over tp. Collective over tp.
static par_result gpt_open(gpt_model *m, const gpt_config *g, par_tp *tp, int sequence) {
    const float residual = 0.02f / sqrtf(2.0f * (float)g->n_layer);
    const int bias = g->bias;
    memset(m, 0, sizeof *m);
    m->config = *g, m->tp = tp, m->t = par_size(par_tp_comm(tp)), m->sequence_parallel = sequence;
    m->device = par_tp_kernels_of(tp)->device ? par_tp_kernels_of(tp)->device : par_cpu();
    m->layers = (gpt_layer *)calloc((size_t)g->n_layer + 1, sizeof *m->layers);
    m->tensors = (gpt_tensor *)calloc((size_t)g->n_layer * 12 + 5, sizeof *m->tensors);
    m->unit_first_tensor = (int *)calloc((size_t)g->n_layer + 3, sizeof(int));
    if (!m->layers || !m->tensors || !m->unit_first_tensor)
        return par_fail(par_tp_comm(tp), PAR_ERR_MEMORY, "out of memory for the model");
    m->attention.heads = (size_t)g->n_head;
    m->attention.kv_heads = (size_t)(g->n_kv_head ? g->n_kv_head : g->n_head);
    m->attention.dim = (size_t)(g->n_embd / g->n_head);
    m->embedding.vocabulary = m->loss.vocabulary = (size_t)g->vocab_size;
    m->embedding.features = (size_t)g->n_embd;
    m->embedding.max_positions = g->llama ? 0 : gpt_positions(g);
    m->loss.ignore_index = -1;
    m->final_norm.features = (size_t)g->n_embd, m->final_norm.rms = g->llama;
    m->final_norm.epsilon = g->epsilon, m->final_norm.has_bias = g->bias;
    m->head.in = (size_t)g->n_embd, m->head.out = (size_t)g->vocab_size, m->head.vocab_parallel = 1;
    m->embedding.name = "wte", m->final_norm.name = "lnf", m->head.name = "head", m->loss.name = "loss";
    GPT_TRY(par_tp_embedding_open(tp, &m->embedding));
    GPT_TRY(par_tp_norm_open(tp, &m->final_norm));
    GPT_TRY(par_tp_linear_open(tp, &m->head));
    gpt_tensor_add(m, 1, GPT_WTE, -1, &m->embedding.weight, 0.02f);
    gpt_tensor_add(m, !g->llama, GPT_WPE, -1, &m->embedding.position_weight, 0.02f);
    for (int l = 0; l < g->n_layer; l++) {
        gpt_layer *k = &m->layers[l];
        GPT_TRY(gpt_layer_open(m, k));
        gpt_tensor_add(m, 1, GPT_LN1W, l, &k->norm1.weight, -1.0f);
        gpt_tensor_add(m, bias, GPT_LN1B, l, &k->norm1.bias, 0.0f);
        gpt_tensor_add(m, 1, GPT_QKVW, l, &k->qkv.weight, 0.02f);
        gpt_tensor_add(m, bias, GPT_QKVB, l, &k->qkv.bias, 0.0f);
        gpt_tensor_add(m, 1, GPT_PROJW, l, &k->proj.weight, residual);
        gpt_tensor_add(m, bias, GPT_PROJB, l, &k->proj.bias, 0.0f);
        gpt_tensor_add(m, 1, GPT_LN2W, l, &k->norm2.weight, -1.0f);
        gpt_tensor_add(m, bias, GPT_LN2B, l, &k->norm2.bias, 0.0f);
        gpt_tensor_add(m, 1, GPT_UPW, l, &k->up.weight, 0.02f);
        gpt_tensor_add(m, bias, GPT_UPB, l, &k->up.bias, 0.0f);
        gpt_tensor_add(m, 1, GPT_DOWNW, l, &k->down.weight, residual);
        gpt_tensor_add(m, bias, GPT_DOWNB, l, &k->down.bias, 0.0f);
    }
    gpt_tensor_add(m, 1, GPT_LNFW, -1, &m->final_norm.weight, -1.0f);
    gpt_tensor_add(m, bias, GPT_LNFB, -1, &m->final_norm.bias, 0.0f);
    gpt_tensor_add(m, !gpt_is_tied(g), GPT_HEAD, -1, &m->head.weight, 0.02f);
    m->use_count = m->tensor_count;
    if (gpt_is_tied(g)) {
        gpt_tensor *x = &m->tensors[m->use_count++];
        *x = m->tensors[0], x->p = &m->head.weight, x->kind = GPT_HEAD, x->tied = 1;
    }
    for (int i = 0; i < m->use_count; i++) m->unit_first_tensor[gpt_unit_of(&m->tensors[i], g) + 1] = i + 1;
    return PAR_OK;
}
static void gpt_close(gpt_model *m) { free(m->layers), free(m->tensors), free(m->unit_first_tensor); }

// Sets the memory of this rank's parameters (count elements of the context's type) and gradients (count
// floats).
static inline void gpt_set_memory(gpt_model *m, void *data, float *grad) {
    for (int i = 0; i < m->use_count; i++) {
        m->tensors[i].p->data = (char *)data + m->tensors[i].offset * par_tp_element_bytes(m->tp);
        m->tensors[i].p->grad = grad ? grad + m->tensors[i].offset : NULL;
    }
}
static inline par_result gpt_init_weights(gpt_model *m) {
    for (int i = 0; i < m->tensor_count; i++) {
        const gpt_tensor *x = &m->tensors[i];
        if (x->init > 0)
            GPT_TRY(par_tp_init(m->tp, x->p, x->stream, x->init));
        else
            GPT_TRY(par_tp_fill(m->tp, x->p, x->init < 0 ? 1.0f : 0.0f));
    }
    return PAR_OK;
}

static inline size_t gpt_parameter_count(const gpt_config *g) { // elements of all parameters
    const size_t C = (size_t)g->n_embd, F = gpt_hidden(g), V = (size_t)g->vocab_size;
    const size_t kv = (size_t)(g->n_kv_head ? g->n_kv_head : g->n_head) * (C / (size_t)g->n_head);
    const size_t up = g->llama ? 2 * F : F, layer = C * (C + 2 * kv) + C * C + C * up + F * C + 2 * C;
    const size_t biases = g->bias ? (C + 2 * kv) + C + up + C + 2 * C : 0;
    return (size_t)g->n_layer * (layer + biases) + V * C * (gpt_is_tied(g) ? 1 : 2) +
           (g->llama ? 0 : gpt_positions(g) * C) + C * (g->bias ? 2 : 1);
}

// ---- activations ------------------------------------------------------------------------------------------

typedef struct gpt_activations { // what a layer keeps for backward
    par_tp_matrix x, norm1, qkv, att, mid, norm2, up, act;
    par_tp_matrix ddown, dup, dproj, dqkv; // gradients of the products' outputs
    float *stats1, *stats2, *lse;
} gpt_activations;
// The lifetime of a matrix: until the input half of backward, until the weight half, between the two halves,
// or within one call.
typedef enum gpt_lifetime {
    GPT_UNTIL_INPUT,
    GPT_UNTIL_WEIGHT,
    GPT_BETWEEN,
    GPT_SCRATCH,
    GPT_LIFETIMES
} gpt_lifetime;
typedef struct gpt_buffers {
    char *block[GPT_LIFETIMES]; // everything below
    size_t bytes[GPT_LIFETIMES];
    char *memory;            // all blocks, where gpt_buffers_open made them
    gpt_activations *layers; // of the whole model
    void *in, *out;          // a part's input and output, where it does not begin or end the model
    par_tp_matrix x, final_norm, logits;
    float *stats, *lse;
    par_tp_matrix dx, dy, wide, wider; // backward's scratch
} gpt_buffers;

// Takes n bytes of a block. NULL where the block is NULL and its bytes are only counted.
static void *gpt_take(gpt_buffers *b, gpt_lifetime until, size_t n) {
    char *p = b->block[until] ? b->block[until] + b->bytes[until] : NULL;
    b->bytes[until] += (n + 63) / 64 * 64;
    return p;
}
// Takes memory for a matrix that backward computes again if `least` or more is recomputed.
static void *gpt_take_kept(const gpt_model *m, gpt_buffers *b, gpt_recompute least, gpt_lifetime until,
                           size_t n) {
    if (m->recompute >= least)
        until = m->split_backward && until == GPT_UNTIL_WEIGHT ? GPT_BETWEEN : GPT_SCRATCH;
    return gpt_take(b, until, n);
}
// Lays out what a layer keeps. x is there already.
static void gpt_layer_layout(const gpt_model *m, gpt_buffers *b, gpt_activations *s, size_t rows) {
    const gpt_layer *k = &m->layers[0];
    const size_t N = m->sequence_parallel ? rows / (size_t)m->t : rows, e = par_tp_element_bytes(m->tp),
                 tokens = N * (size_t)m->config.n_embd * e, heads = (size_t)(m->config.n_head / m->t);
    const size_t qkv = rows * k->qkv.weight.local_rows * e, att = rows * k->proj.weight.local_cols * e,
                 up = rows * k->up.weight.local_rows * e, act = rows * k->down.weight.local_cols * e;
    const gpt_recompute selective = GPT_RECOMPUTE_SELECTIVE, full = GPT_RECOMPUTE_FULL;
    s->norm1.data = gpt_take_kept(m, b, selective, GPT_UNTIL_WEIGHT, tokens);
    s->stats1 = (float *)gpt_take_kept(m, b, selective, GPT_UNTIL_INPUT, N * 8);
    s->qkv.data = gpt_take_kept(m, b, full, GPT_UNTIL_INPUT, qkv);
    s->att.data = gpt_take_kept(m, b, full, GPT_UNTIL_WEIGHT, att);
    s->lse = (float *)gpt_take_kept(m, b, full, GPT_UNTIL_INPUT, rows * heads * 4);
    s->mid.data = gpt_take_kept(m, b, full, GPT_UNTIL_INPUT, tokens);
    s->norm2.data = gpt_take_kept(m, b, selective, GPT_UNTIL_WEIGHT, tokens);
    s->stats2 = (float *)gpt_take_kept(m, b, selective, GPT_UNTIL_INPUT, N * 8);
    s->up.data = gpt_take_kept(m, b, full, GPT_UNTIL_INPUT, up);
    s->act.data = gpt_take_kept(m, b, selective, GPT_UNTIL_WEIGHT, act);
    s->ddown.data = m->split_backward ? gpt_take(b, GPT_BETWEEN, tokens) : b->dy.data;
    s->dup.data = m->split_backward ? gpt_take(b, GPT_BETWEEN, up) : b->wider.data;
    s->dproj.data = m->split_backward ? gpt_take(b, GPT_BETWEEN, tokens) : b->dy.data;
    s->dqkv.data = m->split_backward ? gpt_take(b, GPT_BETWEEN, qkv) : b->wider.data;
}
// Lays out the matrices of a stage for R rows in the blocks, or only counts their bytes where a block is
// NULL. What layers recompute is in the same scratch for all of them.
static void gpt_buffers_layout(const gpt_model *m, const gpt_stage *stage, gpt_buffers *b, size_t rows) {
    const size_t C = (size_t)m->config.n_embd, N = m->sequence_parallel ? rows / (size_t)m->t : rows,
                 e = par_tp_element_bytes(m->tp);
    const size_t Q = m->layers[0].qkv.weight.local_rows, U = m->layers[0].up.weight.local_rows,
                 max_cols = MAX(MAX(Q, U), C);
    memset(b->bytes, 0, sizeof b->bytes);
    b->dx.data = gpt_take(b, GPT_SCRATCH, N * C * e);
    b->dy.data = gpt_take(b, GPT_SCRATCH, N * C * e);
    b->wide.data = gpt_take(b, GPT_SCRATCH, rows * max_cols * e);
    b->wider.data = gpt_take(b, GPT_SCRATCH, rows * max_cols * e);
    const size_t scratch = b->bytes[GPT_SCRATCH];
    for (int l = stage->first; l < stage->end; l++) {
        const int given = l == stage->first && !stage->embed;
        b->layers[l].x.data = given ? b->in : gpt_take(b, GPT_UNTIL_INPUT, N * C * e);
        b->bytes[GPT_SCRATCH] = scratch;
        gpt_layer_layout(m, b, &b->layers[l], rows);
    }
    if (!stage->head) return;
    const size_t outs = m->last_token_only ? m->last_token_only : rows;
    const size_t ld = par_tp_ld(PAR_TP_VOCABULARY, m->head.weight.local_rows);
    const int given = stage->first == stage->end && !stage->embed;
    b->x.data = given ? b->in : gpt_take(b, GPT_UNTIL_INPUT, N * C * e);
    b->final_norm.data = gpt_take(b, GPT_UNTIL_WEIGHT, N * C * e);
    b->stats = (float *)gpt_take(b, GPT_UNTIL_INPUT, N * 8);
    b->logits.data = gpt_take(b, GPT_UNTIL_WEIGHT, outs * ld * e);
    b->lse = (float *)gpt_take(b, GPT_UNTIL_INPUT, rows * 4);
}
static inline int gpt_buffers_open(const gpt_model *m, gpt_buffers *b, size_t rows) { // 0: out of memory
    const gpt_stage all = gpt_all_layers(m);
    void *p = NULL;
    size_t bytes = 0;
    memset(b, 0, sizeof *b);
    b->layers = (gpt_activations *)calloc((size_t)m->config.n_layer, sizeof *b->layers);
    if (!b->layers) return 0;
    gpt_buffers_layout(m, &all, b, rows);
    for (int i = 0; i < GPT_LIFETIMES; i++) bytes += b->bytes[i];
    if (m->device->alloc(m->device, bytes, &p)) return 0;
    b->memory = (char *)p;
    bytes = 0;
    for (int i = 0; i < GPT_LIFETIMES; i++) b->block[i] = b->memory + bytes, bytes += b->bytes[i];
    gpt_buffers_layout(m, &all, b, rows);
    return 1;
}
static inline void gpt_buffers_close(const gpt_model *m, gpt_buffers *b) {
    if (b->memory) m->device->free(m->device, b->memory);
    free(b->layers);
}

// ---- forward and backward ---------------------------------------------------------------------------------

typedef struct gpt_dropout {
    float p;
    uint64_t step;
} gpt_dropout;
static uint64_t gpt_dropout_stream(const gpt_dropout *d, int layer, int site) { // a random stream of its own
    return d ? (d->step + 1) << 16 | (uint64_t)(layer + 1) << 2 | (uint64_t)site : 0;
}
static par_result gpt_apply_dropout(const gpt_model *m, const par_tp_tokens *tokens, const gpt_dropout *d,
                                    int layer, int site, par_tp_matrix *x) {
    return d && d->p > 0 ? par_tp_dropout(m->tp, tokens, gpt_dropout_stream(d, layer, site), d->p, x, x)
                         : PAR_OK;
}
// Applies RoPE to queries and keys, which are side by side in qkv.
static par_result gpt_rope(const gpt_model *m, const par_tp_tokens *tokens, int backward,
                           par_tp_matrix *qkv) {
    const size_t dim = m->attention.dim, t = (size_t)m->t, kv = m->attention.kv_heads;
    if (!m->config.llama) return PAR_OK;
    return par_tp_rope(m->tp, tokens, m->attention.heads / t + (kv >= t ? kv / t : 1), dim, &m->config.rotary,
                       backward, qkv);
}

static par_result gpt_activate(const gpt_model *m, gpt_activations *s) {
    return m->config.llama ? par_tp_swiglu_forward(m->tp, &s->up, &s->act)
                           : par_tp_gelu_forward(m->tp, &s->up, &s->act);
}
static par_result gpt_layer_forward(const gpt_model *m, const gpt_layer *k, gpt_activations *s,
                                    const par_tp_tokens *tokens, const gpt_dropout *drop, int l,
                                    par_tp_matrix *next) {
    par_tp *tp = m->tp;
    par_tp_attention attention = m->attention;
    attention.name = k->name[GPT_NAME_ATTN];
    attention.dropout = drop ? drop->p : 0;
    GPT_TRY(par_tp_norm_forward(tp, &k->norm1, &s->x, s->stats1, &s->norm1));
    GPT_TRY(par_tp_linear_forward(tp, &k->qkv, &s->norm1, NULL, &s->qkv));
    GPT_TRY(gpt_rope(m, tokens, 0, &s->qkv));
    GPT_TRY(m->cache ? par_tp_attention_cached(tp, &attention, tokens, &m->cache[l], &s->qkv, &s->att)
                     : par_tp_attention_forward(tp, &attention, tokens, gpt_dropout_stream(drop, l, 0),
                                                &s->qkv, s->lse, &s->att));
    GPT_TRY(par_tp_linear_forward(tp, &k->proj, &s->att, NULL, &s->mid));
    GPT_TRY(gpt_apply_dropout(m, tokens, drop, l, 1, &s->mid));
    GPT_TRY(par_tp_add(tp, &s->mid, &s->x, &s->mid));
    GPT_TRY(par_tp_norm_forward(tp, &k->norm2, &s->mid, s->stats2, &s->norm2));
    GPT_TRY(par_tp_linear_forward(tp, &k->up, &s->norm2, NULL, &s->up));
    GPT_TRY(gpt_activate(m, s));
    GPT_TRY(par_tp_linear_forward(tp, &k->down, &s->act, NULL, next));
    GPT_TRY(gpt_apply_dropout(m, tokens, drop, l, 2, next));
    return par_tp_add(tp, next, &s->mid, next);
}

// Describes a token matrix that comes from, or goes to, another stage.
static void gpt_token_matrix(const gpt_model *m, par_tp_matrix *x, void *data, size_t rows) {
    x->data = data;
    x->rows = m->sequence_parallel ? rows / (size_t)m->t : rows;
    x->cols = (size_t)m->config.n_embd;
    x->layout = m->sequence_parallel ? PAR_TP_SEQUENCE : PAR_TP_REPLICATED;
}
static size_t gpt_tokens_bytes(const gpt_model *m, size_t rows) {
    return (m->sequence_parallel ? rows / (size_t)m->t : rows) * (size_t)m->config.n_embd *
           par_tp_element_bytes(m->tp);
}
// Copies the row of each sequence's last token. Tokens must not be split over tp.
static par_result gpt_last_tokens(const gpt_model *m, const par_tp_tokens *tokens, const par_tp_matrix *x,
                                  par_tp_matrix *y) {
    const size_t row = x->cols * par_tp_element_bytes(m->tp), n = tokens->sequence;
    y->rows = tokens->batch, y->cols = x->cols, y->layout = x->layout;
    return par_tp_kernels_of(m->tp)->copy(m->tp, y->data, row, (const char *)x->data + (n - 1) * row, n * row,
                                          tokens->batch, row);
}
// The forward of a stage, from b->in (or ids) to b->out (or to b->logits, R rows split by vocabulary). A tied
// embedding of the same stage stays in use until the head; that of another stage of this rank is used twice.
static par_result gpt_stage_forward(gpt_model *m, const gpt_stage *stage, gpt_buffers *b,
                                    const par_tp_tokens *tokens, const int32_t *ids,
                                    const gpt_dropout *drop) {
    const int layers = m->config.n_layer, tied = stage->head && stage->tied;
    const size_t rows = par_tp_rows(m->tp, tokens);
    par_tp_matrix out, *x = stage->first < stage->end ? &b->layers[stage->first].x
                            : stage->head             ? &b->x
                                                      : &out;
    if (!stage->head) gpt_token_matrix(m, &out, b->out, rows);
    if (stage->embed) {
        GPT_TRY(gpt_notify(m, 0, GPT_FORWARD_BEGIN));
        GPT_TRY(par_tp_embedding_forward(m->tp, &m->embedding, tokens, ids, x));
        GPT_TRY(gpt_apply_dropout(m, tokens, drop, -1, 0, x));
        if (!tied) GPT_TRY(gpt_notify(m, 0, GPT_FORWARD_END));
    } else {
        gpt_token_matrix(m, x, b->in, rows);
        if (x == &out) { // an empty part
            x->data = b->out;
            GPT_TRY(m->device->copy(m->device, b->out, b->in, gpt_tokens_bytes(m, rows), NULL));
        }
    }
    for (int l = stage->first; l < stage->end; l++) {
        x = l + 1 < stage->end ? &b->layers[l + 1].x : stage->head ? &b->x : &out;
        GPT_TRY(gpt_notify(m, l + 1, GPT_FORWARD_BEGIN));
        GPT_TRY(gpt_layer_forward(m, &m->layers[l], &b->layers[l], tokens, drop, l, x));
        GPT_TRY(gpt_notify(m, l + 1, GPT_FORWARD_END));
    }
    if (!stage->head) return PAR_OK;
    GPT_TRY(gpt_notify(m, layers + 1, GPT_FORWARD_BEGIN));
    if (tied && !stage->embed) GPT_TRY(gpt_notify(m, 0, GPT_FORWARD_BEGIN));
    if (tied) m->head.weight = m->embedding.weight;
    if (m->last_token_only) {
        GPT_TRY(gpt_last_tokens(m, tokens, x, &b->dy));
        x = &b->dy;
    }
    GPT_TRY(par_tp_norm_forward(m->tp, &m->final_norm, x, b->stats, &b->final_norm));
    GPT_TRY(par_tp_linear_forward(m->tp, &m->head, &b->final_norm, NULL, &b->logits));
    if (tied) GPT_TRY(gpt_notify(m, 0, GPT_FORWARD_END));
    return gpt_notify(m, layers + 1, GPT_FORWARD_END);
}
static inline par_result gpt_forward(gpt_model *m, gpt_buffers *b, const par_tp_tokens *tokens,
                                     const int32_t *ids, const gpt_dropout *drop) {
    const gpt_stage all = gpt_all_layers(m);
    return gpt_stage_forward(m, &all, b, tokens, ids, drop);
}

// Recomputes the activations of a layer that were not kept.
static par_result gpt_layer_recompute(const gpt_model *m, const gpt_layer *k, gpt_activations *s,
                                      gpt_buffers *b, const par_tp_tokens *tokens, const gpt_dropout *drop,
                                      int l) {
    if (m->recompute == GPT_RECOMPUTE_NONE) return PAR_OK;
    if (m->recompute == GPT_RECOMPUTE_FULL) return gpt_layer_forward(m, k, s, tokens, drop, l, &b->dy);
    GPT_TRY(par_tp_norm_forward(m->tp, &k->norm1, &s->x, s->stats1, &s->norm1));
    GPT_TRY(par_tp_norm_forward(m->tp, &k->norm2, &s->mid, s->stats2, &s->norm2));
    return gpt_activate(m, s);
}
// The backward of a linear layer; with a split backward only the half that computes dx.
static par_result gpt_linear_backward(const gpt_model *m, par_tp_linear *l, const par_tp_matrix *dy,
                                      const par_tp_matrix *x, par_tp_matrix *dx) {
    return m->split_backward ? par_tp_linear_backward_input(m->tp, l, dy, dx)
                             : par_tp_linear_backward(m->tp, l, dy, x, dx);
}
// b->dx is the gradient of the layer's output, and becomes the gradient of its input.
static par_result gpt_layer_backward(const gpt_model *m, gpt_layer *k, gpt_activations *s, gpt_buffers *b,
                                     const par_tp_tokens *tokens, const gpt_dropout *drop, int l) {
    par_tp *tp = m->tp;
    par_tp_matrix *dx = &b->dx, *dy = &b->dy, *wide = &b->wide;
    par_tp_attention attention = m->attention;
    attention.name = k->name[GPT_NAME_ATTN];
    attention.dropout = drop ? drop->p : 0;
    const float p = attention.dropout;
    GPT_TRY(par_tp_dropout(tp, tokens, gpt_dropout_stream(drop, l, 2), p, dx,
                           &s->ddown)); // a copy if nothing is dropped
    GPT_TRY(gpt_linear_backward(m, &k->down, &s->ddown, &s->act, wide));
    if (m->config.llama)
        GPT_TRY(par_tp_swiglu_backward(tp, wide, &s->up, &s->dup));
    else
        GPT_TRY(par_tp_gelu_backward(tp, wide, &s->up, &s->dup));
    GPT_TRY(gpt_linear_backward(m, &k->up, &s->dup, &s->norm2, dy));
    GPT_TRY(par_tp_norm_backward(tp, &k->norm2, dy, &s->mid, s->stats2, dy));
    GPT_TRY(par_tp_add(tp, dx, dy, dx)); // the residual
    GPT_TRY(par_tp_dropout(tp, tokens, gpt_dropout_stream(drop, l, 1), p, dx, &s->dproj));
    GPT_TRY(gpt_linear_backward(m, &k->proj, &s->dproj, &s->att, wide));
    GPT_TRY(par_tp_attention_backward(tp, &attention, tokens, gpt_dropout_stream(drop, l, 0), wide, &s->qkv,
                                      &s->att, s->lse, &s->dqkv));
    GPT_TRY(gpt_rope(m, tokens, 1, &s->dqkv));
    GPT_TRY(gpt_linear_backward(m, &k->qkv, &s->dqkv, &s->norm1, dy));
    GPT_TRY(par_tp_norm_backward(tp, &k->norm1, dy, &s->x, s->stats1, dy));
    return par_tp_add(tp, dx, dy, dx);
}
static par_result gpt_layer_wgrad(const gpt_model *m, gpt_layer *k,
                                  const gpt_activations *s) { // the other half
    GPT_TRY(par_tp_linear_backward_weight(m->tp, &k->down, &s->ddown, &s->act));
    GPT_TRY(par_tp_linear_backward_weight(m->tp, &k->up, &s->dup, &s->norm2));
    GPT_TRY(par_tp_linear_backward_weight(m->tp, &k->proj, &s->dproj, &s->att));
    return par_tp_linear_backward_weight(m->tp, &k->qkv, &s->dqkv, &s->norm1);
}

// The backward of a stage, from b->logits (which hold dlogits) or b->in (the gradient of the output) to
// b->out (the gradient of the input). With a split backward gpt_stage_wgrad computes the gradients of the
// linear layers' weights.
static par_result gpt_stage_backward(gpt_model *m, const gpt_stage *stage, gpt_buffers *b,
                                     const par_tp_tokens *tokens, const int32_t *ids,
                                     const gpt_dropout *drop) {
    const int layers = m->config.n_layer, tied = stage->head && stage->tied;
    const gpt_phase begin = m->split_backward ? GPT_INPUT_BEGIN : GPT_BACKWARD_BEGIN,
                    end = m->split_backward ? GPT_INPUT_END : GPT_BACKWARD_END;
    const size_t rows = par_tp_rows(m->tp, tokens);
    if (stage->head) {
        GPT_TRY(gpt_notify(m, layers + 1, begin));
        if (tied) GPT_TRY(gpt_notify(m, 0, stage->embed ? begin : GPT_INPUT_BEGIN));
        if (tied) m->head.weight = m->embedding.weight;
        GPT_TRY(gpt_linear_backward(m, &m->head, &b->logits, &b->final_norm, &b->dy));
        GPT_TRY(par_tp_norm_backward(m->tp, &m->final_norm, &b->dy, &b->x, b->stats, &b->dx));
        if (tied && !stage->embed) GPT_TRY(gpt_notify(m, 0, GPT_INPUT_END));
        GPT_TRY(gpt_notify(m, layers + 1, end));
    } else {
        gpt_token_matrix(m, &b->dx, b->dx.data, rows);
        GPT_TRY(m->device->copy(m->device, b->dx.data, b->in, gpt_tokens_bytes(m, rows), NULL));
    }
    for (int l = stage->end - 1; l >= stage->first; l--) {
        GPT_TRY(gpt_notify(m, l + 1, begin));
        GPT_TRY(gpt_layer_recompute(m, &m->layers[l], &b->layers[l], b, tokens, drop, l));
        GPT_TRY(gpt_layer_backward(m, &m->layers[l], &b->layers[l], b, tokens, drop, l));
        GPT_TRY(gpt_notify(m, l + 1, end));
    }
    if (!stage->embed) return m->device->copy(m->device, b->out, b->dx.data, gpt_tokens_bytes(m, rows), NULL);
    if (!tied) GPT_TRY(gpt_notify(m, 0, begin));
    GPT_TRY(gpt_apply_dropout(m, tokens, drop, -1, 0, &b->dx));
    GPT_TRY(par_tp_embedding_backward(m->tp, &m->embedding, tokens, ids, &b->dx));
    return gpt_notify(m, 0, end);
}
static inline par_result gpt_stage_wgrad(gpt_model *m, const gpt_stage *stage, gpt_buffers *b) {
    const int layers = m->config.n_layer, tied = stage->head && stage->tied;
    if (stage->head) {
        GPT_TRY(gpt_notify(m, layers + 1, GPT_WEIGHT_BEGIN));
        if (tied) GPT_TRY(gpt_notify(m, 0, stage->embed ? GPT_WEIGHT_BEGIN : GPT_INPUT_BEGIN));
        if (tied) m->head.weight = m->embedding.weight;
        GPT_TRY(par_tp_linear_backward_weight(m->tp, &m->head, &b->logits, &b->final_norm));
        if (tied && !stage->embed) GPT_TRY(gpt_notify(m, 0, GPT_INPUT_END));
        GPT_TRY(gpt_notify(m, layers + 1, GPT_WEIGHT_END));
    }
    for (int l = stage->end - 1; l >= stage->first; l--) {
        GPT_TRY(gpt_notify(m, l + 1, GPT_WEIGHT_BEGIN));
        GPT_TRY(gpt_layer_wgrad(m, &m->layers[l], &b->layers[l]));
        GPT_TRY(gpt_notify(m, l + 1, GPT_WEIGHT_END));
    }
    if (!stage->embed) return PAR_OK;
    if (!tied) GPT_TRY(gpt_notify(m, 0, GPT_WEIGHT_BEGIN));
    return gpt_notify(m, 0, GPT_WEIGHT_END);
}
static inline par_result gpt_backward(gpt_model *m, gpt_buffers *b, const par_tp_tokens *tokens,
                                      const int32_t *ids, const gpt_dropout *drop) {
    const gpt_stage all = gpt_all_layers(m);
    return gpt_stage_backward(m, &all, b, tokens, ids, drop);
}

// ---- AdamW ------------------------------------------------------------------------------------------------

// AdamW step `number` (from 1) on this rank's parameters (f32). Weight decay applies to matrices.
static inline par_result gpt_update(const gpt_model *model, const par_zero_hyper *hyper, int number, float *w,
                                    const float *d, float *m, float *v) {
    for (int k = 0; k < model->tensor_count; k++) {
        const gpt_tensor *x = &model->tensors[k];
        par_zero_update a;
        memset(&a, 0, sizeof a);
        a.optimizer = PAR_ZERO_ADAMW, a.hyper = *hyper, a.scale = 1;
        a.bias_correction1 = (float)(1 / (1 - pow((double)hyper->beta1, number)));
        a.bias_correction2 = (float)(1 / (1 - pow((double)hyper->beta2, number)));
        if (!x->decay) a.hyper.weight_decay = 0;
        GPT_TRY(par_zero_cpu()->update(par_zero_cpu(), &a, x->p->local_rows * x->p->local_cols, w + x->offset,
                                       NULL, PAR_F32, d + x->offset, PAR_F32, m + x->offset, v + x->offset,
                                       NULL));
    }
    return PAR_OK;
}

#endif

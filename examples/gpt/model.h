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

typedef struct gpt_config {
    int n_layer, n_head, n_embd, block_size, vocab_size, bias;
    int llama, n_kv_head; // llama: RMSNorm, RoPE, SwiGLU, no biases, a head with its own weight
    // Features of the MLP and of a head, whether the head is tied to the embedding, rows of the position
    // table. 0: gpt_hidden, n_embd / n_head, by the architecture, block_size.
    int hidden, head_dim, tied, positions;
    float epsilon; // of norms; 0: 1e-5
    par_tp_rotary rotary;
    par_tp_recipe recipe; // of the products in the blocks
} gpt_config;

enum { // kinds of tensors, in the model's order; from GPT_LN1W on as a par_tp_block has them
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
typedef struct gpt_tensor { // a parameter, in the model's order
    par_tp_parameter *p;
    const char *name; // "layers.3.attn.qkv.weight"
    size_t offset,
        total_offset; // first element: of this rank's parts side by side; of the whole tensors side by side
    int kind, layer;  // GPT_WTE ...; -1: of no layer
    int tied;         // 1: the head as a copy of the embedding's weight, on ranks that have only the head
    int decay;        // does weight decay apply?
    uint64_t stream;  // of its initial values
} gpt_tensor;

// Where the model is in its use of a unit (0: the embedding; 1 to n_layer: a layer; n_layer + 1: the last
// norm and the head). Between BEGIN and END the unit's parameters must be complete on this rank. INPUT and
// WEIGHT are the halves of a split backward. Gradients are added in WEIGHT alone: those of norms, which the
// first half computes, wait for it in the buffers. The embedding has none for WEIGHT, and so its backward is
// BACKWARD in the first half.
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
    int tied; // 1: the head's weight is the embedding's, of this stage, and both add to one gradient
} gpt_stage;

typedef struct gpt_model {
    par_tp_recompute recompute; // before gpt_buffers_open
    int split_backward;         // 1: the halves of backward are apart
    int head_in_chunks;     // 1: the head and its loss are one call, with b->targets, and there are no logits
    size_t chunk_rows;      // of that call
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
    par_tp_loss loss;
    par_tp_block *layers;
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
static size_t gpt_head_dim(const gpt_config *g) {
    return (size_t)(g->head_dim > 0 ? g->head_dim : g->n_embd / g->n_head);
}
static size_t gpt_kv_heads(const gpt_config *g) { return (size_t)(g->n_kv_head ? g->n_kv_head : g->n_head); }
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
    if (g->n_head < 1 || g->n_head > 1 << 20 || (!g->head_dim && g->n_embd % g->n_head))
        return "n_embd must be a multiple of n_head, or head_dim be given";
    if (g->head_dim < 0 || (double)g->n_head * g->head_dim > 1 << 20)
        return "n_head x head_dim must be at most 1048576";
    if (g->llama && gpt_head_dim(g) % 2) return "n_embd / n_head, or head_dim, must be even with arch llama";
    if (g->n_kv_head < 0 || (g->n_kv_head && g->n_head % g->n_kv_head))
        return "n_head must be a multiple of n_kv_head";
    if (g->block_size < 1 || g->block_size > 1 << 24 || g->positions < 0 || g->positions > 1 << 24)
        return "block_size and the positions of a model must be from 1 to 16777216";
    if (g->vocab_size < 0 || g->vocab_size > 1 << 28)
        return "a vocabulary must have from 1 to 268435456 tokens";
    if (g->hidden < 0 || g->hidden > 1 << 24) return "the features of the MLP must be at most 16777216";
    if (!g->llama && g->positions && g->block_size > g->positions)
        return "block_size must be no larger than the positions that the model learns (n_positions)";
    return NULL;
}
static par_result gpt_notify(const gpt_model *m, int unit, gpt_phase what) {
    return m->on_phase ? m->on_phase(m->user, unit, what) : PAR_OK;
}
static int gpt_is_tied(const gpt_config *g) { return !g->llama || g->tied; } // the head is the embedding
// Limits sequences to block_size; the table of positions keeps its size.
static inline void gpt_shorten(gpt_config *g, int block_size) {
    g->positions = g->llama ? g->positions : (int)gpt_positions(g);
    g->block_size = block_size < g->block_size ? block_size : g->block_size;
}
static gpt_stage gpt_all_layers(const gpt_model *m) {
    const gpt_stage all = {0, m->config.n_layer, 1, 1, gpt_is_tied(&m->config)};
    return all;
}

// ---- parameters -------------------------------------------------------------------------------------------

static void gpt_tensor_add(gpt_model *m, int kind, int layer, par_tp_parameter *p) {
    // absent tensors have numbers, too, so that the others get the same initial values
    const int layers = m->config.n_layer;
    const int number = layer >= 0 ? 12 * layer + kind : kind < GPT_LN1W ? kind : 12 * layers + kind - 12;
    if (!p || !p->rows) return;
    gpt_tensor *x = &m->tensors[m->tensor_count++];
    x->p = p;
    x->kind = kind;
    x->layer = layer;
    x->decay = x->p->cols > 1;
    x->stream = (uint64_t)number + 1;
    x->name = p->name;
    x->offset = m->count;
    x->total_offset = m->total_count;
    m->count += x->p->local_rows * x->p->local_cols;
    m->total_count += x->p->rows * x->p->cols;
}
static par_result gpt_layer_open(gpt_model *m, int l) {
    const gpt_config *g = &m->config;
    par_tp_block *k = &m->layers[l];
    k->features = (size_t)g->n_embd;
    k->hidden = gpt_hidden(g);
    k->depth = g->n_layer;
    k->attention.heads = (size_t)g->n_head;
    k->attention.kv_heads = (size_t)g->n_kv_head;
    k->attention.dim = (size_t)g->head_dim;
    k->rms = k->gated = k->rope = g->llama;
    k->has_bias = g->bias;
    k->epsilon = g->epsilon;
    k->rotary = g->rotary;
    k->recipe = g->recipe;
    snprintf(k->name, sizeof k->name, "layers.%d", l);
    GPT_TRY(par_tp_block_open(m->tp, k));
    par_tp_parameter *list[PAR_TP_BLOCK_PARAMETERS];
    par_tp_block_parameters(k, list);
    for (int i = 0; i < PAR_TP_BLOCK_PARAMETERS; i++) gpt_tensor_add(m, GPT_LN1W + i, l, list[i]);
    return PAR_OK;
}

// Sets the shapes of all parameters, split over tp. Collective over tp.
static par_result gpt_open(gpt_model *m, const gpt_config *g, par_tp *tp, int sequence) {
    memset(m, 0, sizeof *m);
    m->config = *g;
    m->tp = tp;
    m->t = par_size(par_tp_comm(tp));
    m->sequence_parallel = sequence;
    m->device = par_tp_kernels_of(tp)->device ? par_tp_kernels_of(tp)->device : par_cpu();
    m->layers = (par_tp_block *)calloc((size_t)g->n_layer + 1, sizeof *m->layers);
    m->tensors = (gpt_tensor *)calloc((size_t)g->n_layer * 12 + 5, sizeof *m->tensors);
    m->unit_first_tensor = (int *)calloc((size_t)g->n_layer + 3, sizeof(int));
    if (!m->layers || !m->tensors || !m->unit_first_tensor)
        return par_fail(par_tp_comm(tp), PAR_ERR_MEMORY, "out of memory for the model");
    m->embedding.vocabulary = m->loss.vocabulary = (size_t)g->vocab_size;
    m->embedding.features = (size_t)g->n_embd;
    m->embedding.max_positions = g->llama ? 0 : gpt_positions(g);
    m->loss.ignore_index = -1;
    m->final_norm.features = (size_t)g->n_embd;
    m->final_norm.rms = g->llama;
    m->final_norm.epsilon = g->epsilon;
    m->final_norm.has_bias = g->bias;
    m->head.in = (size_t)g->n_embd;
    m->head.out = (size_t)g->vocab_size;
    m->head.vocab_parallel = 1;
    m->embedding.name = "wte";
    m->final_norm.name = "lnf";
    m->head.name = "head";
    m->loss.name = "loss";
    GPT_TRY(par_tp_embedding_open(tp, &m->embedding));
    GPT_TRY(par_tp_norm_open(tp, &m->final_norm));
    GPT_TRY(par_tp_linear_open(tp, &m->head));
    snprintf(m->embedding.position_weight.name, sizeof m->embedding.position_weight.name, "wpe.weight");
    gpt_tensor_add(m, GPT_WTE, -1, &m->embedding.weight);
    gpt_tensor_add(m, GPT_WPE, -1, &m->embedding.position_weight);
    for (int l = 0; l < g->n_layer; l++) GPT_TRY(gpt_layer_open(m, l));
    gpt_tensor_add(m, GPT_LNFW, -1, &m->final_norm.weight);
    gpt_tensor_add(m, GPT_LNFB, -1, &m->final_norm.bias);
    if (!gpt_is_tied(g)) gpt_tensor_add(m, GPT_HEAD, -1, &m->head.weight);
    m->use_count = m->tensor_count;
    if (gpt_is_tied(g)) {
        gpt_tensor *x = &m->tensors[m->use_count++];
        *x = m->tensors[0];
        x->p = &m->head.weight;
        x->kind = GPT_HEAD;
        x->tied = 1;
    }
    for (int i = 0; i < m->use_count; i++) m->unit_first_tensor[gpt_unit_of(&m->tensors[i], g) + 1] = i + 1;
    return PAR_OK;
}
static void gpt_close(gpt_model *m) {
    free(m->layers);
    free(m->tensors);
    free(m->unit_first_tensor);
}

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
        if (x->p->deviation > 0)
            GPT_TRY(par_tp_init(m->tp, x->p, x->stream, x->p->deviation));
        else
            GPT_TRY(par_tp_fill(m->tp, x->p, x->p->value));
    }
    return PAR_OK;
}

static inline size_t gpt_parameter_count(const gpt_config *g) { // elements of all parameters
    const size_t C = (size_t)g->n_embd, F = gpt_hidden(g), V = (size_t)g->vocab_size;
    const size_t q = (size_t)g->n_head * gpt_head_dim(g), kv = gpt_kv_heads(g) * gpt_head_dim(g);
    const size_t up = g->llama ? 2 * F : F, layer = C * (q + 2 * kv) + q * C + C * up + F * C + 2 * C;
    const size_t biases = g->bias ? (q + 2 * kv) + C + up + C + 2 * C : 0;
    return (size_t)g->n_layer * (layer + biases) + V * C * (gpt_is_tied(g) ? 1 : 2) +
           (g->llama ? 0 : gpt_positions(g) * C) + C * (g->bias ? 2 : 1);
}

// ---- activations ------------------------------------------------------------------------------------------

typedef struct gpt_activations { // what a layer keeps for backward
    par_tp_matrix x;
    par_tp_block_saved saved;
    float *norm_gradients; // between the halves of backward
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
typedef struct gpt_targets { // of the loss, with head_in_chunks
    const int32_t *ids;
    double *sum;
    size_t *count;
    float scale; // of the gradients
    int forward_only;
} gpt_targets;
typedef struct gpt_buffers {
    par_tp_arena arena[GPT_LIFETIMES]; // everything below
    char *memory;                      // all arenas, where gpt_buffers_open made them
    gpt_activations *layers;           // of the whole model
    void *in, *out;                    // a part's input and output, where it does not begin or end the model
    par_tp_matrix x, final_norm, logits;
    float *stats, *lse, *norm_gradients;
    par_tp_matrix dx, dy; // backward's scratch
    gpt_targets targets;
} gpt_buffers;

// Describes a token matrix that comes from, or goes to, another stage.
static void gpt_token_matrix(const gpt_model *m, par_tp_matrix *x, void *data, size_t rows) {
    x->data = data;
    x->rows = m->sequence_parallel ? rows / (size_t)m->t : rows;
    x->cols = (size_t)m->config.n_embd;
    x->layout = m->sequence_parallel ? PAR_TP_SEQUENCE : PAR_TP_REPLICATED;
}
// The parameters of the norms of a layer; n_layer: of the last norm. Returns their number.
static int gpt_norm_parameters(gpt_model *m, int layer, par_tp_parameter *list[4]) {
    par_tp_norm *const norms[2] = {layer < m->config.n_layer ? &m->layers[layer].norm1 : &m->final_norm,
                                   layer < m->config.n_layer ? &m->layers[layer].norm2 : NULL};
    int n = 0;
    for (int i = 0; i < 2 && norms[i]; i++) {
        list[n++] = &norms[i]->weight;
        if (norms[i]->bias.rows) list[n++] = &norms[i]->bias;
    }
    return n;
}
static size_t gpt_parameter_local_count(const par_tp_parameter *p) { return p->local_rows * p->local_cols; }
// Memory for their gradients, which wait for the second half of backward.
static par_result gpt_alloc_norm_gradients(gpt_model *m, gpt_buffers *b, int layer, float **gradients) {
    par_tp_parameter *list[4];
    size_t count = 0;
    if (!m->split_backward) return PAR_OK;
    for (int i = gpt_norm_parameters(m, layer, list); i-- > 0;) count += gpt_parameter_local_count(list[i]);
    return par_tp_alloc_floats(m->tp, &b->arena[GPT_BETWEEN], count, gradients);
}
// Lets the norms of a layer add to these gradients, from 0 on, and back to their own.
static par_result gpt_hold_norm_gradients(gpt_model *m, int layer, float *gradients, float *own[4]) {
    par_tp_parameter *list[4];
    const int n = gpt_norm_parameters(m, layer, list);
    for (int i = 0; i < n && m->split_backward; gradients += gpt_parameter_local_count(list[i++])) {
        own[i] = list[i]->grad;
        list[i]->grad = gradients;
        GPT_TRY(m->device->fill(m->device, gradients, 0, gpt_parameter_local_count(list[i]) * sizeof(float),
                                NULL));
    }
    return PAR_OK;
}
static void gpt_restore_norm_gradients(gpt_model *m, int layer, float *const own[4]) {
    par_tp_parameter *list[4];
    const int n = gpt_norm_parameters(m, layer, list);
    for (int i = 0; i < n && m->split_backward; i++) list[i]->grad = own[i];
}
// Adds the held gradients to the norms' own.
static par_result gpt_add_norm_gradients(gpt_model *m, int layer, const float *gradients) {
    par_tp_parameter *list[4];
    const int n = gpt_norm_parameters(m, layer, list);
    for (int i = 0; i < n; gradients += gpt_parameter_local_count(list[i++])) {
        const void *const pair[2] = {list[i]->grad, gradients};
        GPT_TRY(m->device->reduce(m->device, list[i]->grad, pair, 2, gpt_parameter_local_count(list[i]),
                                  PAR_F32, PAR_SUM, NULL));
    }
    return PAR_OK;
}
// Lays out the matrices of a stage for R rows in the arenas, or only counts their bytes where these have no
// data. What layers recompute is in the same scratch for all of them.
static par_result gpt_buffers_layout(gpt_model *m, const gpt_stage *stage, gpt_buffers *b, size_t rows) {
    const par_tp_layout layout = m->sequence_parallel ? PAR_TP_SEQUENCE : PAR_TP_REPLICATED;
    const size_t C = (size_t)m->config.n_embd, N = m->sequence_parallel ? rows / (size_t)m->t : rows;
    par_tp_arena *input = &b->arena[GPT_UNTIL_INPUT], *weight = &b->arena[GPT_UNTIL_WEIGHT],
                 *scratch = &b->arena[GPT_SCRATCH], rest = {NULL, 0, 0};
    const par_tp_block_memory memory = {input, weight, m->split_backward ? &b->arena[GPT_BETWEEN] : NULL,
                                        &rest, m->recompute};
    for (int i = 0; i < GPT_LIFETIMES; i++) b->arena[i].used = 0;
    GPT_TRY(par_tp_alloc(m->tp, scratch, N, C, layout, &b->dx));
    GPT_TRY(par_tp_alloc(m->tp, scratch, N, C, layout, &b->dy));
    if (scratch->data) rest.data = (char *)scratch->data + scratch->used;
    rest.bytes = scratch->bytes - scratch->used;
    for (int l = stage->first; l <= stage->end; l++) {
        par_tp_matrix *x = l < stage->end ? &b->layers[l].x : &b->x; // of the layer, or of the head
        if (l == stage->end && !stage->head) break;
        if (l == stage->first && !stage->embed)
            gpt_token_matrix(m, x, b->in, rows);
        else
            GPT_TRY(par_tp_alloc(m->tp, input, N, C, layout, x));
        if (l == stage->end) break;
        GPT_TRY(par_tp_block_alloc(m->tp, &m->layers[l], rows, &memory, &b->layers[l].saved));
        GPT_TRY(gpt_alloc_norm_gradients(m, b, l, &b->layers[l].norm_gradients));
    }
    scratch->used += rest.used;
    if (!stage->head) return PAR_OK;
    GPT_TRY(gpt_alloc_norm_gradients(m, b, m->config.n_layer, &b->norm_gradients));
    GPT_TRY(par_tp_alloc(m->tp, weight, N, C, layout, &b->final_norm));
    GPT_TRY(par_tp_alloc_floats(m->tp, input, 2 * N, &b->stats));
    if (m->head_in_chunks) return PAR_OK;
    GPT_TRY(par_tp_alloc_floats(m->tp, input, rows, &b->lse));
    return par_tp_alloc(m->tp, weight, m->last_token_only ? m->last_token_only : rows,
                        m->head.weight.local_rows, PAR_TP_VOCABULARY, &b->logits);
}
// Gives each arena as much memory as it needs, one after the other.
static char *gpt_place_arenas(gpt_buffers *b, char *memory) {
    for (int i = 0; i < GPT_LIFETIMES; i++) {
        par_tp_arena *a = &b->arena[i];
        a->data = memory;
        a->bytes = a->used;
        memory += a->used;
    }
    return memory;
}
static inline int gpt_buffers_open(gpt_model *m, gpt_buffers *b, size_t rows) { // 0: out of memory
    const gpt_stage all = gpt_all_layers(m);
    void *p = NULL;
    size_t bytes = 0;
    memset(b, 0, sizeof *b);
    b->layers = (gpt_activations *)calloc((size_t)m->config.n_layer, sizeof *b->layers);
    if (!b->layers) return 0;
    if (gpt_buffers_layout(m, &all, b, rows)) return 0;
    for (int i = 0; i < GPT_LIFETIMES; i++) bytes += b->arena[i].used;
    if (m->device->alloc(m->device, bytes, &p)) return 0;
    b->memory = (char *)p;
    gpt_place_arenas(b, b->memory);
    return !gpt_buffers_layout(m, &all, b, rows);
}
static inline void gpt_buffers_close(const gpt_model *m, gpt_buffers *b) {
    if (b->memory) m->device->free(m->device, b->memory);
    free(b->layers);
}

// ---- forward and backward ---------------------------------------------------------------------------------

typedef struct gpt_dropout {
    float p;
    uint64_t step; // of the random numbers; or 0, and par_tp_set_dropout_offset's number varies by step
} gpt_dropout;
static inline uint64_t gpt_dropout_offset(uint64_t step) { return step << 16; }
static uint64_t gpt_dropout_stream(const gpt_dropout *d, int layer) { // four random streams of its own
    return d ? gpt_dropout_offset(d->step + 1) | (uint64_t)(layer + 1) << 2 : 0;
}
static par_result gpt_embedding_dropout(const gpt_model *m, const par_tp_tokens *tokens, const gpt_dropout *d,
                                        par_tp_matrix *x) {
    return d && d->p > 0 ? par_tp_dropout(m->tp, tokens, gpt_dropout_stream(d, -1), d->p, x, x) : PAR_OK;
}
static par_result gpt_layer_forward(const gpt_model *m, gpt_activations *s, const par_tp_tokens *tokens,
                                    const gpt_dropout *drop, int l, par_tp_matrix *next) {
    par_tp_block *k = &m->layers[l];
    k->dropout = k->attention.dropout = drop ? drop->p : 0;
    return m->cache
               ? par_tp_block_cached(m->tp, k, tokens, &m->cache[l], &s->x, &s->saved, next)
               : par_tp_block_forward(m->tp, k, tokens, gpt_dropout_stream(drop, l), &s->x, &s->saved, next);
}
// b->dx is the gradient of the layer's output, and becomes the gradient of its input.
static par_result gpt_layer_backward(gpt_model *m, gpt_activations *s, gpt_buffers *b,
                                     const par_tp_tokens *tokens, const gpt_dropout *drop, int l) {
    par_tp_block *k = &m->layers[l];
    const uint64_t stream = gpt_dropout_stream(drop, l);
    float *own[4];
    k->dropout = k->attention.dropout = drop ? drop->p : 0;
    GPT_TRY(gpt_hold_norm_gradients(m, l, s->norm_gradients, own));
    const par_result r =
        m->split_backward
            ? par_tp_block_backward_input(m->tp, k, tokens, stream, &b->dx, &s->x, &s->saved, &b->dx)
            : par_tp_block_backward(m->tp, k, tokens, stream, &b->dx, &s->x, &s->saved, &b->dx);
    return gpt_restore_norm_gradients(m, l, own), r;
}
// The forward of the head: to b->logits, or of an evaluation to the loss. Else backward does both.
static par_result gpt_head_forward(gpt_model *m, gpt_buffers *b) {
    const gpt_targets *y = &b->targets;
    if (!m->head_in_chunks) return par_tp_linear_forward(m->tp, &m->head, &b->final_norm, NULL, &b->logits);
    if (!y->forward_only) return PAR_OK;
    return par_tp_head_forward(m->tp, &m->head, &m->loss, &b->final_norm, y->ids, m->chunk_rows, NULL, y->sum,
                               y->count);
}
// The backward of the head and the last norm, from b->logits (or b->targets) to b->dx.
static par_result gpt_head_backward(gpt_model *m, gpt_buffers *b) {
    const gpt_targets *y = &b->targets;
    float *own[4];
    GPT_TRY(m->head_in_chunks
                ? par_tp_head_forward_backward(m->tp, &m->head, &m->loss, &b->final_norm, y->ids,
                                               m->chunk_rows, NULL, y->sum, y->count, y->scale, &b->dy)
            : m->split_backward
                ? par_tp_linear_backward_input(m->tp, &m->head, &b->logits, &b->dy)
                : par_tp_linear_backward(m->tp, &m->head, &b->logits, &b->final_norm, &b->dy));
    GPT_TRY(gpt_hold_norm_gradients(m, m->config.n_layer, b->norm_gradients, own));
    const par_result r = par_tp_norm_backward(m->tp, &m->final_norm, &b->dy, &b->x, b->stats, &b->dx);
    return gpt_restore_norm_gradients(m, m->config.n_layer, own), r;
}

static size_t gpt_tokens_bytes(const gpt_model *m, size_t rows) {
    return (m->sequence_parallel ? rows / (size_t)m->t : rows) * (size_t)m->config.n_embd *
           par_tp_element_bytes(m->tp);
}
// Copies the row of each sequence's last token. Tokens must not be split over tp.
static par_result gpt_last_tokens(const gpt_model *m, const par_tp_tokens *tokens, const par_tp_matrix *x,
                                  par_tp_matrix *y) {
    const size_t row = x->cols * par_tp_element_bytes(m->tp), n = tokens->sequence;
    y->rows = tokens->batch;
    y->cols = x->cols;
    y->layout = x->layout;
    return par_tp_kernels_of(m->tp)->copy(m->tp, y->data, row, (const char *)x->data + (n - 1) * row, n * row,
                                          tokens->batch, row);
}
// The forward of a stage, from b->in (or ids) to b->out (or to b->logits, R rows split by vocabulary; with
// head_in_chunks to the loss in an evaluation, else to b->final_norm). A tied embedding stays in use until
// the head.
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
        GPT_TRY(gpt_embedding_dropout(m, tokens, drop, x));
        if (!tied) GPT_TRY(gpt_notify(m, 0, GPT_FORWARD_END));
    } else if (x == &out) { // an empty part
        GPT_TRY(m->device->copy(m->device, b->out, b->in, gpt_tokens_bytes(m, rows), NULL));
    }
    for (int l = stage->first; l < stage->end; l++) {
        x = l + 1 < stage->end ? &b->layers[l + 1].x : stage->head ? &b->x : &out;
        GPT_TRY(gpt_notify(m, l + 1, GPT_FORWARD_BEGIN));
        GPT_TRY(gpt_layer_forward(m, &b->layers[l], tokens, drop, l, x));
        GPT_TRY(gpt_notify(m, l + 1, GPT_FORWARD_END));
    }
    if (!stage->head) return PAR_OK;
    GPT_TRY(gpt_notify(m, layers + 1, GPT_FORWARD_BEGIN));
    if (tied) m->head.weight = m->embedding.weight;
    if (m->last_token_only) {
        GPT_TRY(gpt_last_tokens(m, tokens, x, &b->dy));
        x = &b->dy;
    }
    GPT_TRY(par_tp_norm_forward(m->tp, &m->final_norm, x, b->stats, &b->final_norm));
    GPT_TRY(gpt_head_forward(m, b));
    if (tied) GPT_TRY(gpt_notify(m, 0, GPT_FORWARD_END));
    return gpt_notify(m, layers + 1, GPT_FORWARD_END);
}
static inline par_result gpt_forward(gpt_model *m, gpt_buffers *b, const par_tp_tokens *tokens,
                                     const int32_t *ids, const gpt_dropout *drop) {
    const gpt_stage all = gpt_all_layers(m);
    return gpt_stage_forward(m, &all, b, tokens, ids, drop);
}

// The backward of a stage, from b->logits (which hold dlogits, or b->targets) or b->in (the gradient of the
// output) to b->out (the gradient of the input). With a split backward gpt_stage_wgrad computes the gradients
// of the linear layers' weights.
static par_result gpt_stage_backward(gpt_model *m, const gpt_stage *stage, gpt_buffers *b,
                                     const par_tp_tokens *tokens, const int32_t *ids,
                                     const gpt_dropout *drop) {
    const int layers = m->config.n_layer, tied = stage->head && stage->tied;
    const gpt_phase begin = m->split_backward ? GPT_INPUT_BEGIN : GPT_BACKWARD_BEGIN,
                    end = m->split_backward ? GPT_INPUT_END : GPT_BACKWARD_END;
    const size_t rows = par_tp_rows(m->tp, tokens);
    if (stage->head) {
        GPT_TRY(gpt_notify(m, layers + 1, begin));
        if (tied) GPT_TRY(gpt_notify(m, 0, GPT_BACKWARD_BEGIN));
        if (tied) m->head.weight = m->embedding.weight;
        GPT_TRY(gpt_head_backward(m, b));
        GPT_TRY(gpt_notify(m, layers + 1, end));
    } else {
        GPT_TRY(m->device->copy(m->device, b->dx.data, b->in, gpt_tokens_bytes(m, rows), NULL));
    }
    for (int l = stage->end - 1; l >= stage->first; l--) {
        GPT_TRY(gpt_notify(m, l + 1, begin));
        GPT_TRY(gpt_layer_backward(m, &b->layers[l], b, tokens, drop, l));
        GPT_TRY(gpt_notify(m, l + 1, end));
    }
    if (!stage->embed) return m->device->copy(m->device, b->out, b->dx.data, gpt_tokens_bytes(m, rows), NULL);
    if (!tied) GPT_TRY(gpt_notify(m, 0, GPT_BACKWARD_BEGIN));
    GPT_TRY(gpt_embedding_dropout(m, tokens, drop, &b->dx));
    GPT_TRY(par_tp_embedding_backward(m->tp, &m->embedding, tokens, ids, &b->dx));
    return gpt_notify(m, 0, GPT_BACKWARD_END);
}
static inline par_result gpt_stage_wgrad(gpt_model *m, const gpt_stage *stage, gpt_buffers *b) {
    const int layers = m->config.n_layer;
    if (stage->head) {
        GPT_TRY(gpt_notify(m, layers + 1, GPT_WEIGHT_BEGIN));
        GPT_TRY(gpt_add_norm_gradients(m, layers, b->norm_gradients));
        GPT_TRY(par_tp_linear_backward_weight(m->tp, &m->head, &b->logits, &b->final_norm));
        GPT_TRY(gpt_notify(m, layers + 1, GPT_WEIGHT_END));
    }
    for (int l = stage->end - 1; l >= stage->first; l--) {
        GPT_TRY(gpt_notify(m, l + 1, GPT_WEIGHT_BEGIN));
        GPT_TRY(gpt_add_norm_gradients(m, l, b->layers[l].norm_gradients));
        GPT_TRY(par_tp_block_backward_weight(m->tp, &m->layers[l], &b->layers[l].saved));
        GPT_TRY(gpt_notify(m, l + 1, GPT_WEIGHT_END));
    }
    return PAR_OK;
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
        a.optimizer = PAR_ZERO_ADAMW;
        a.hyper = *hyper;
        a.scale = 1;
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

// files.h - imports and exports models: Hugging Face's safetensors (GPT-2, Llama and Mistral, one file or
// several) and llm.c's model files. Models pass through tensor by tensor: an import gives each rank what it
// asks for, from mapped files; an export takes consecutive pieces of each tensor, in any order of tensors.
#ifndef FILES_H
#define FILES_H

#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/param.h> // MIN, MAX
#include <sys/stat.h>
#include <unistd.h>

#include "../output.h"

// Hugging Face's names for each kind of tensor; of several names each has some rows. GPT-2's matrices, except
// the embeddings, are stored transposed, (in, out).
static const struct {
    const char *gpt2, *llama[3];
} files_names[GPT_KINDS] = {
    {"wte.weight", {"model.embed_tokens.weight"}},
    {"wpe.weight", {NULL}},
    {"ln_1.weight", {"input_layernorm.weight"}},
    {"ln_1.bias", {NULL}},
    {"attn.c_attn.weight", {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
    {"attn.c_attn.bias", {NULL}},
    {"attn.c_proj.weight", {"self_attn.o_proj.weight"}},
    {"attn.c_proj.bias", {NULL}},
    {"ln_2.weight", {"post_attention_layernorm.weight"}},
    {"ln_2.bias", {NULL}},
    {"mlp.c_fc.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
    {"mlp.c_fc.bias", {NULL}},
    {"mlp.c_proj.weight", {"mlp.down_proj.weight"}},
    {"mlp.c_proj.bias", {NULL}},
    {"ln_f.weight", {"model.norm.weight"}},
    {"ln_f.bias", {NULL}},
    {NULL, {"lm_head.weight"}},
};
// Part `index` of a tensor in Hugging Face's files: its name, whether it is transposed, and which of our rows
// it has. 0: there is no such part.
static int files_source(const gpt_model *m, const gpt_tensor *x, int index, char *name, size_t capacity,
                        int *transposed, size_t *first, size_t *count) {
    const int llama = m->config.llama, matrix = x->p->cols > 1 && x->layer >= 0;
    const int kind = x->tied ? GPT_WTE : x->kind;
    const char *suffix = llama   ? (index < 3 ? files_names[kind].llama[index] : NULL)
                         : index ? NULL
                                 : files_names[kind].gpt2;
    if (!suffix) return 0;
    if (x->layer >= 0)
        snprintf(name, capacity, llama ? "model.layers.%d.%s" : "transformer.h.%d.%s", x->layer, suffix);
    else
        snprintf(name, capacity, "%s%s", llama ? "" : "transformer.", suffix);
    *transposed = !llama && matrix;
    *first = 0;
    *count = x->p->rows;
    for (int i = 0; llama && i <= index && x->p->segment_count; i++) {
        if (i) *first += x->p->segments[i - 1].count;
        *count = x->p->segments[i].count;
    }
    return 1;
}

// ---- Hugging Face: load -----------------------------------------------------------------------------------

typedef struct
    files_huggingface { // a directory: config.json and model.safetensors, or shards that an index names
    par_safetensors *shards;
    int shard_count;
    unsigned char *marks; // of the tensors of all shards: has the index placed it, has a parameter taken it?
    char why[640];
} files_huggingface;
static const char files_index[] = "model.safetensors.index.json";

static FILE *files_read(const char *path, char *why, size_t capacity) { // NULL, and in why what is wrong
    size_t bytes;
    const int fd = par_file_open(path, &bytes, why, capacity);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    if (fd >= 0 && !f) {
        close(fd);
        snprintf(why, capacity, "out of memory for %.400s", path);
    }
    return f;
}
static char *files_text(const char *dir, const char *name, char *why, size_t capacity) { // a small file
    char path[4200];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *text = par_file_read(path, &bytes, why, capacity);
    if (!text || bytes) return text;
    snprintf(why, capacity, "cannot read %.400s/%s: it is empty", dir, name);
    free(text);
    return NULL;
}
static const char *files_printable(char *text) { // other people's names must not change a terminal
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || (unsigned char)*p > 126) *p = '?';
    return text;
}
typedef struct files_json { // that is read: the first thing that is wrong stays in why
    const char *name;       // of the file
    const char *ignored; // keys, with commas between them, that are read as if they were not there; or NULL
    uint64_t found;      // which of them are there
    char *why;
    size_t capacity;
    int bad;
} files_json;
__attribute__((format(printf, 2, 3))) static void files_bad(files_json *f, const char *format, ...) {
    va_list list;
    if (f->bad) return;
    va_start(list, format);
    snprintf(f->why, f->capacity, "%s: ", f->name);
    const size_t n = strlen(f->why);
    vsnprintf(f->why + n, f->capacity - n, format, list);
    va_end(list);
    files_printable(f->why);
    f->bad = 1;
}
static int files_shown(const par_json *value) { // bytes of a value that an error shows
    return (int)MIN(value->end - value->at, 40);
}
static void files_bad_value(files_json *f, const char *key, const char *expected, const par_json *value) {
    files_bad(f, "\"%s\" is %.*s, and must be %s", key, files_shown(value), value->at, expected);
}
// Goes on to the next member of an object, as par_json_member does, and gives the text of its value.
static int files_member(par_json *j, size_t index, char *key, size_t capacity, par_json *value) {
    if (!par_json_member(j, index, key, capacity, 1)) return 0;
    par_json_peek(j);
    *value = *j;
    par_json_skip(j);
    value->end = j->at;
    return !j->bad;
}
// Finds a key of the object that a text is. The whole text must be valid JSON.
static int files_find(files_json *f, const char *text, const char *key, par_json *value) {
    char name[64];
    par_json all = {text, text + strlen(text), 0}, j = all;
    par_json_skip(&all);
    if (all.bad || par_json_peek(&all) || par_json_peek(&j) != '{')
        files_bad(f, "it is no JSON object, or damaged");
    for (size_t i = 0; !f->bad && files_member(&j, i, name, sizeof name, value); i++)
        if (!strcmp(name, key)) return 1;
    return 0;
}
static int files_is(const par_json *value,
                    const char *text) { // is it this, a number or a word of JSON's?
    const size_t n = strlen(text);
    return (size_t)(value->end - value->at) == n && !memcmp(value->at, text, n);
}
static int files_number(const par_json *value, double *x) { // 1: it is one, and finite
    char text[64] = "", *end;
    const size_t n = (size_t)(value->end - value->at);
    if (n >= sizeof text) return 0;
    memcpy(text, value->at, n);
    *x = strtod(text, &end);
    return n && strspn(text, "0123456789-+.eE") == n && *text != '+' && end == text + n && isfinite(*x);
}
static int files_word_of(const char *words, const char *word) { // "a, b or c": its number, from 1; 0: none
    for (int number = 1;; number++) {
        const size_t n = strcspn(words, ", ");
        if (n == strlen(word) && !memcmp(words, word, n)) return number;
        if (!words[n]) return 0;
        words += n + (words[n] == ',' ? strlen(", ") : strlen(" or "));
    }
}
// The number of a JSON string among these words, from 1; of an array of strings the last one's, if all are
// among them.
static int files_string_of(const char *words, const par_json *value) {
    char text[64];
    par_json j = *value;
    int number = 0;
    if (par_json_peek(&j) == '[') {
        for (size_t i = 0; par_json_next(&j, i, '['); i++) {
            par_json_string(&j, text, sizeof text, 0);
            number = j.bad || (i && !number) ? 0 : files_word_of(words, text);
        }
        return j.bad ? 0 : number;
    }
    par_json_string(&j, text, sizeof text, 0);
    return j.bad ? 0 : files_word_of(words, text);
}
// The number of a word in a list with one character between its words, from 1; 0: it is not there.
static int files_listed(const char *list, char between, const char *word) {
    for (int number = 1; list && *list; number++) {
        const char *end = strchr(list, between);
        const size_t n = end ? (size_t)(end - list) : strlen(list);
        if (n == strlen(word) && !memcmp(list, word, n)) return number;
        list = end ? end + 1 : NULL;
    }
    return 0;
}
static void files_close(files_huggingface *h) {
    for (int i = 0; i < h->shard_count; i++) par_safetensors_close(&h->shards[i]);
    free(h->shards);
    free(h->marks);
    h->shards = NULL;
    h->marks = NULL;
    h->shard_count = 0;
}
__attribute__((format(printf, 2, 3))) static const char *files_why(files_huggingface *h, const char *format,
                                                                   ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(h->why, sizeof h->why, format, list);
    va_end(list);
    return files_printable(h->why);
}
static const char *files_alloc_marks(files_huggingface *h) {
    size_t count = 1;
    for (int i = 0; i < h->shard_count; i++) count += h->shards[i].count;
    h->marks = (unsigned char *)calloc(count, 1);
    return h->marks ? NULL : "out of memory for the tensors of a model";
}
static unsigned char *files_mark(const files_huggingface *h, const par_file_tensor *t) {
    unsigned char *first = h->marks;
    int i = 0;
    while (t < h->shards[i].list || t >= h->shards[i].list + h->shards[i].count)
        first += h->shards[i++].count;
    return first + (t - h->shards[i].list);
}
static const par_safetensors *files_shard_by_name(const files_huggingface *h, const char *name) {
    for (int i = 0; i < h->shard_count; i++)
        if (!strcmp(h->shards[i].why, name)) return &h->shards[i];
    return NULL; // it is not open
}
// Opens a file of weights if it is not open yet. NULL, or an error text.
static const char *files_shard_open(files_huggingface *h, const char *dir, const char *name) {
    char path[4200];
    const size_t n = strlen(name), ending = strlen(".safetensors");
    if (files_shard_by_name(h, name)) return NULL;
    if (n <= ending || strcmp(name + n - ending, ".safetensors") || strchr(name, '/') ||
        h->shard_count == 1000)
        return files_why(h, "%.400s/%s: \"%.100s\" is no file of weights beside it, or one too many", dir,
                         files_index, name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    par_safetensors *s = &h->shards[h->shard_count++];
    if (par_safetensors_open(path, s)) return files_why(h, "%s", s->why);
    return snprintf(s->why, sizeof s->why, "%s", name), (const char *)NULL; // which it is
}
// Compares the files of an index with its map: a tensor is where the map places it, and nowhere else.
static const char *files_compare_map(files_huggingface *h, const par_json *map) {
    char name[PAR_FILE_NAME_BYTES], file[160];
    par_json j = *map;
    for (size_t i = 0; par_json_member(&j, i, name, sizeof name, 1); i++) {
        par_json_string(&j, file, sizeof file, 1);
        const par_safetensors *shard = files_shard_by_name(h, file);
        const par_file_tensor *t = shard ? par_safetensors_find(shard, name) : NULL;
        if (!t) return files_why(h, "%s places %s in %s, which does not have it", files_index, name, file);
        if (*files_mark(h, t)) return files_why(h, "%s places %s twice", files_index, name);
        *files_mark(h, t) = 1;
    }
    for (int k = 0; k < h->shard_count; k++)
        for (size_t i = 0; i < h->shards[k].count; i++) {
            const par_file_tensor *t = &h->shards[k].list[i];
            if (!*files_mark(h, t))
                return files_why(h, "%s is in %s, where %s does not place it", t->name, h->shards[k].why,
                                 files_index);
            *files_mark(h, t) = 0;
        }
    return NULL;
}
// Opens every file of an index, {"weight_map": {tensor: file, ...}}.
static const char *files_shards(files_huggingface *h, const char *dir, const char *index) {
    files_json f = {files_index, NULL, 0, h->why, sizeof h->why, 0};
    par_json map, j;
    char name[160];
    const char *problem = NULL;
    if (!files_find(&f, index, "weight_map", &map) || par_json_peek(&map) != '{') {
        files_bad(&f, "it has no weight_map");
        return h->why;
    }
    j = map;
    for (size_t i = 0; !problem && par_json_member(&j, i, NULL, 0, 1); i++) {
        par_json_string(&j, name, sizeof name, 0);
        if (j.bad) return files_why(h, "%s: its weight_map is damaged", files_index);
        problem = files_shard_open(h, dir, name);
    }
    if (!problem) problem = files_alloc_marks(h);
    return problem ? problem : files_compare_map(h, &map);
}
// Weights that other programs write beside a config.json, and how they become safetensors.
static const struct {
    const char *name, *advice;
} files_others[] = {
    {"pytorch_model.bin", "from_pretrained(DIR).save_pretrained(NEW) of transformers converts it"},
    {"pytorch_model.bin.index.json", "from_pretrained(DIR).save_pretrained(NEW) of transformers converts it"},
    {"tf_model.h5", "from_pretrained(DIR, from_tf=True).save_pretrained(NEW) of transformers converts it"},
    {"consolidated.safetensors", "its names are not Hugging Face's: take the model in their format"},
};
static const char *files_no_weights(files_huggingface *h, const char *dir) {
    char path[4200];
    struct stat st;
    for (size_t i = 0; i < sizeof files_others / sizeof *files_others; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files_others[i].name);
        if (!stat(path, &st))
            return files_why(h, "it has no model.safetensors, nor %s; %s is not read: %s", files_index,
                             files_others[i].name, files_others[i].advice);
    }
    return files_why(h, "it has a config.json and no weights: no model.safetensors, nor %s", files_index);
}
static const char *files_open(files_huggingface *h, const char *dir) { // all shards
    char path[4200];
    struct stat st;
    const char *problem = NULL;
    memset(h, 0, sizeof *h);
    h->shards = (par_safetensors *)calloc(1000, sizeof *h->shards);
    if (!h->shards) return "out of memory";
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (!stat(path, &st)) {
        problem = files_shard_open(h, dir, "model.safetensors");
        if (!problem) problem = files_alloc_marks(h);
    } else {
        snprintf(path, sizeof path, "%s/%s", dir, files_index);
        char *index = stat(path, &st) ? NULL : files_text(dir, files_index, h->why, sizeof h->why);
        problem = index ? files_shards(h, dir, index) : *h->why ? h->why : files_no_weights(h, dir);
        free(index);
    }
    if (problem) files_close(h);
    return problem;
}
static const par_file_tensor *files_tensor(const files_huggingface *h,
                                           const char *name) { // with or without "transformer."
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < h->shard_count; i++) {
            const int plain = pass && !strncmp(name, "transformer.", 12);
            const par_file_tensor *t = par_safetensors_find(&h->shards[i], plain ? name + 12 : name);
            if (t) return t;
        }
    return NULL;
}

// ---- Hugging Face: config.json ----------------------------------------------------------------------------

// The keys of config.json are a closed list: those in files_keys, which say what the model is, and those in
// files_free_keys, which do not change it. Any other key is an error, unless its value says "no such thing".
enum {
    FILES_GPT2 = 1,
    FILES_LLAMA = 2,
    FILES_MISTRAL = 4,
    FILES_LLAMAS = FILES_LLAMA | FILES_MISTRAL,
    FILES_ALL = FILES_GPT2 | FILES_LLAMAS,
    FILES_ROPE = 8
};                                                             // the object of rotary positions
static const char files_families[] = "gpt2, llama or mistral"; // in the order of the bits
typedef enum files_how {
    FILES_SIZE,         // a whole number from 1
    FILES_SIZE_OR_NULL, // or null, which is 0
    FILES_REAL,         // a number above 0
    FILES_FLAG,
    FILES_MUST, // a number or a word of JSON's: no other is implemented
    FILES_WORD, // a string, or strings in an array: one of some words; its number from 1
    FILES_OBJECT
} files_how;
typedef struct files_config_json { // what is read
    gpt_config model;
    float theta;
    int window, original, rope_type, type, objects, unused;
} files_config_json;
#define KEY(families, key, how, field, absent, words)                                                        \
    { FILES_##families, FILES_##how, key, offsetof(files_config_json, field), absent, words }
static const struct {
    int families;
    files_how how;
    const char *key;
    size_t place;      // in a files_config_json
    double absent;     // what transformers takes where the key is not there
    const char *words; // that are implemented
} files_keys[] = {
    KEY(ALL, "model_type", WORD, unused, 0, files_families),
    KEY(GPT2, "architectures", WORD, unused, 0, "GPT2LMHeadModel or GPT2Model"),
    KEY(LLAMA, "architectures", WORD, unused, 0, "LlamaForCausalLM"),
    KEY(MISTRAL, "architectures", WORD, unused, 0, "MistralForCausalLM"),
    KEY(ALL, "is_causal", MUST, unused, 0, "true"),
    KEY(GPT2, "vocab_size", SIZE, model.vocab_size, 50257, NULL),
    KEY(GPT2, "n_layer", SIZE, model.n_layer, 12, NULL),
    KEY(GPT2, "n_head", SIZE, model.n_head, 12, NULL),
    KEY(GPT2, "n_embd", SIZE, model.n_embd, 768, NULL),
    KEY(GPT2, "n_positions", SIZE, model.positions, 1024, NULL),
    KEY(GPT2, "n_inner", SIZE_OR_NULL, model.hidden, 0, NULL),
    KEY(GPT2, "layer_norm_epsilon", REAL, model.epsilon, 1e-5, NULL),
    KEY(GPT2, "activation_function", WORD, unused, 0,
        "gelu_new, gelu_pytorch_tanh, gelu_python_tanh, gelu_fast or gelu_accurate"), // one function
    KEY(GPT2, "scale_attn_weights", MUST, unused, 0, "true"),
    KEY(GPT2, "scale_attn_by_inverse_layer_idx", MUST, unused, 0, "false"),
    KEY(GPT2, "tie_word_embeddings", MUST, unused, 0, "true"),
    KEY(LLAMAS, "vocab_size", SIZE, model.vocab_size, 32000, NULL),
    KEY(LLAMAS, "num_hidden_layers", SIZE, model.n_layer, 32, NULL),
    KEY(LLAMAS, "num_attention_heads", SIZE, model.n_head, 32, NULL),
    KEY(LLAMA, "num_key_value_heads", SIZE_OR_NULL, model.n_kv_head, 0, NULL),
    KEY(MISTRAL, "num_key_value_heads", SIZE_OR_NULL, model.n_kv_head, 8, NULL),
    KEY(LLAMAS, "head_dim", SIZE_OR_NULL, model.head_dim, 0, NULL),
    KEY(LLAMAS, "hidden_size", SIZE, model.n_embd, 4096, NULL),
    KEY(LLAMA, "intermediate_size", SIZE, model.hidden, 11008, NULL),
    KEY(MISTRAL, "intermediate_size", SIZE, model.hidden, 14336, NULL),
    KEY(LLAMA, "max_position_embeddings", SIZE, model.positions, 2048, NULL),
    KEY(MISTRAL, "max_position_embeddings", SIZE, model.positions, 131072, NULL),
    KEY(MISTRAL, "sliding_window", SIZE_OR_NULL, window, 4096, NULL),
    KEY(LLAMAS, "layer_types", WORD, unused, 0, "full_attention"),
    KEY(LLAMAS, "rms_norm_eps", REAL, model.epsilon, 1e-6, NULL),
    KEY(LLAMAS, "hidden_act", WORD, unused, 0, "silu or swish"),
    KEY(LLAMAS, "attention_bias", MUST, unused, 0, "false"),
    KEY(LLAMAS, "mlp_bias", MUST, unused, 0, "false"),
    KEY(LLAMAS, "tie_word_embeddings", FLAG, model.tied, 0, NULL),
    KEY(LLAMAS, "rope_scaling", OBJECT, objects, 0, NULL),
    KEY(LLAMAS, "rope_parameters", OBJECT, objects, 0, NULL),
    KEY(LLAMAS, "rope_theta", REAL, theta, 0, NULL), // 10000, or that of the object
    KEY(LLAMAS, "partial_rotary_factor", MUST, unused, 0, "1"),
    KEY(ROPE, "rope_theta", REAL, model.rotary.base, 0, NULL),
    KEY(ROPE, "partial_rotary_factor", MUST, unused, 0, "1"),
    KEY(ROPE, "rope_type", WORD, rope_type, 0, "default, llama3 or linear"),
    KEY(ROPE, "type", WORD, type, 0, "default, llama3 or linear"), // of older versions
    KEY(ROPE, "factor", REAL, model.rotary.factor, 0, NULL),
    KEY(ROPE, "low_freq_factor", REAL, model.rotary.low, 0, NULL),
    KEY(ROPE, "high_freq_factor", REAL, model.rotary.high, 0, NULL),
    KEY(ROPE, "original_max_position_embeddings", SIZE, original, 0, NULL),
};
#undef KEY
enum { FILES_KEYS = sizeof files_keys / sizeof files_keys[0] };
static const char files_free_keys[] =
    // numbers and names of special tokens, and how a text is cut: tokens are given as numbers here
    "bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id cls_token_id mask_token_id "
    "decoder_start_token_id forced_bos_token_id forced_eos_token_id bos_token eos_token pad_token unk_token "
    "tokenizer_class prefix model_max_length "
    // how transformers chooses tokens: --temperature and --top_k here
    "use_cache do_sample temperature top_k top_p typical_p num_beams num_beam_groups num_return_sequences "
    "min_length max_length max_new_tokens early_stopping length_penalty diversity_penalty repetition_penalty "
    "no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids remove_invalid_values suppress_tokens "
    "begin_suppress_tokens exponential_decay_length_penalty cache_implementation task_specific_params "
    // initial values and dropout of a training, of which the options here decide
    "initializer_range attn_pdrop embd_pdrop resid_pdrop attention_dropout gradient_checkpointing "
    // of other heads than the language model's; their weights would be tensors that nothing takes
    "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout "
    "num_labels _num_labels id2label label2id problem_type classifier_dropout finetuning_task "
    // types and ways of computing the same; each weight has its type in its file
    "dtype torch_dtype attn_implementation _attn_implementation _attn_implementation_autoset use_bfloat16 "
    "tf_legacy_loss torchscript reorder_and_upcast_attn pretraining_tp chunk_size_feed_forward "
    // what transformers returns, names and versions; n_ctx and max_sequence_length: older names of positions
    "return_dict use_return_dict output_attentions output_hidden_states output_scores output_past "
    "return_dict_in_generate keys_to_ignore_at_inference transformers_version name_or_path _name_or_path "
    "_commit_hash unsloth_fixed unsloth_version is_llama_config transformers.js_config n_ctx "
    "max_sequence_length";

static int files_is_inert(const par_json *value) { // null, false, 0, [] or {}
    double x;
    par_json j = *value;
    const char open = par_json_peek(&j);
    if (open == '[') return !par_json_next(&j, 0, open);
    if (open == '{') return !par_json_member(&j, 0, NULL, 0, 1);
    return files_is(value, "null") || files_is(value, "false") || (files_number(value, &x) && x == 0);
}
static void files_read_object(files_json *f, const par_json *value, int family, files_config_json *c);

// Reads the value of row k of files_keys.
static void files_read_value(files_json *f, int k, const par_json *v, files_config_json *c) {
    const char *key = files_keys[k].key, *words = files_keys[k].words;
    const files_how how = files_keys[k].how;
    void *place = (char *)c + files_keys[k].place;
    const int null = files_is(v, "null");
    double x = 0, only = 0;
    const int number = files_number(v, &x);
    if (how == FILES_SIZE || (how == FILES_SIZE_OR_NULL && !null)) {
        if (!number || x < 1 || x > INT_MAX || x != floor(x))
            files_bad_value(f, key, "a whole number from 1 to 2147483647", v);
        else
            *(int *)place = (int)x;
    } else if (how == FILES_SIZE_OR_NULL) {
        *(int *)place = 0;
    } else if (how == FILES_REAL) {
        if (!number || x <= 0 || (float)x <= 0 || !isfinite((float)x))
            files_bad_value(f, key, "a number above 0", v);
        *(float *)place = (float)x;
    } else if (how == FILES_FLAG) {
        if (!files_is(v, "true") && !files_is(v, "false")) files_bad_value(f, key, "true or false", v);
        *(int *)place = files_is(v, "true");
    } else if (null || (how == FILES_OBJECT && files_is_inert(v))) {
        return; // as if it was not there
    } else if (how == FILES_OBJECT) {
        par_json j = *v;
        if (par_json_peek(&j) != '{') files_bad_value(f, key, "an object", v);
        if (++*(int *)place > 1) files_bad(f, "it has rope_scaling and rope_parameters: one of them alone");
        files_read_object(f, v, FILES_ROPE, c);
    } else if (how == FILES_WORD) {
        if (!(*(int *)place = files_string_of(words, v))) files_bad_value(f, key, words, v);
    } else if (!files_is(v, words) && !(number && (only = strtod(words, NULL)) != 0 && x == only))
        files_bad_value(f, key, words, v);
}
static void files_read_key(files_json *f, const char *key, const par_json *v, int family,
                           files_config_json *c) {
    const int ignored = files_listed(f->ignored, ',', key);
    if (ignored) f->found |= (uint64_t)1 << (ignored & 63);
    if (ignored) return;
    for (int k = 0; k < FILES_KEYS; k++)
        if (files_keys[k].families & family && !strcmp(files_keys[k].key, key)) {
            files_read_value(f, k, v, c);
            return;
        }
    if (files_is_inert(v) || files_listed(files_free_keys, ' ', key)) return;
    files_bad(f,
              "\"%s\" is %.*s, which is not implemented here; if it changes nothing that the model computes: "
              "--ignore_config %s",
              key, files_shown(v), v->at, key);
}
static void files_read_object(files_json *f, const par_json *value, int family, files_config_json *c) {
    enum { KEYS = 256 };
    char keys[KEYS][64];
    par_json j = *value, v;
    for (size_t i = 0; !f->bad; i++) {
        char *key = keys[i % KEYS];
        if (!files_member(&j, i, key, sizeof keys[0], &v)) return;
        if (i == KEYS) files_bad(f, "an object has more than %d keys", KEYS);
        for (size_t k = 0; k < i && !f->bad; k++)
            if (!strcmp(keys[k], key)) files_bad(f, "\"%s\" stands there twice", key);
        files_read_key(f, key, &v, family, c);
    }
}
// type: 2: llama3; 3: linear, where all pairs rotate slower, as if they were trained on no tokens.
static void files_check_rotary(files_json *f, par_tp_rotary *r, int type, int original) {
    const int bounded = r->low > 0 || r->high > 0;
    if (type < 2 && (r->factor > 0 || bounded))
        files_bad(f, "its rotary positions have factors, and are of rope_type default");
    if (type == 2 && !(r->factor > 0 && r->low > 0 && r->high > r->low))
        files_bad(f, "rope_type llama3 needs factor, and low_freq_factor below high_freq_factor");
    if (type == 3 && (bounded || !(r->factor > 0))) files_bad(f, "rope_type linear needs factor alone");
    r->original = type == 2 ? (float)original : 0;
    if (type == 3) r->low = r->high = 1;
}
// Compares what was read: sizes that follow from others, and rotary positions. Where a key and an older one
// differ, it depends on transformers' version which one counts.
static void files_check_config(files_json *f, files_config_json *c) {
    gpt_config *g = &c->model;
    par_tp_rotary *r = &g->rotary;
    g->block_size = g->positions = c->window ? MIN(c->window, g->positions) : g->positions;
    const char *wrong = gpt_check(g);
    if (wrong) files_bad(f, "it is not that of a GPT-2 or a Llama: %s", wrong);
    if (c->rope_type && c->type && c->rope_type != c->type)
        files_bad(f, "its rope_type and the older type differ: delete the one that does not hold");
    if (r->base > 0 && c->theta > 0 && fabsf(r->base - c->theta) > 0)
        files_bad(f, "rope_theta is %g, and %g among the rotary positions: delete the one that does not hold",
                  (double)c->theta, (double)r->base);
    if (!r->base && g->llama) r->base = c->theta > 0 ? c->theta : 10000;
    files_check_rotary(f, r, c->rope_type ? c->rope_type : c->type, c->original ? c->original : g->positions);
}
// Reads the model's sizes from the text of a config.json. ignored: keys, with commas between them, that are
// read as if they were not there; or NULL. NULL, or an error text (in why).
static const char *files_config_of(const char *json, const char *name, const char *ignored, gpt_config *g,
                                   char *why, size_t capacity) {
    files_json f = {name, ignored, 0, why, capacity, 0};
    const par_json all = {json, json + strlen(json), 0};
    files_config_json c;
    par_json v;
    memset(g, 0, sizeof *g);
    memset(&c, 0, sizeof c);
    const int there = files_find(&f, json, "model_type", &v),
              family = there ? files_string_of(files_families, &v) : 0;
    if (!there) files_bad(&f, "its model_type must be %s", files_families);
    if (!family) files_bad_value(&f, "model_type", files_families, &v);
    for (int k = 0; k < FILES_KEYS && !f.bad; k++) {
        void *place = (char *)&c + files_keys[k].place;
        if (!(files_keys[k].families & 1 << (family - 1))) continue;
        if (files_keys[k].how == FILES_REAL)
            *(float *)place = (float)files_keys[k].absent;
        else
            *(int *)place = (int)files_keys[k].absent;
    }
    c.model.llama = family > 1;
    c.model.bias = !c.model.llama;
    if (!f.bad) files_read_object(&f, &all, 1 << (family - 1), &c);
    if (!f.bad) files_check_config(&f, &c);
    for (int k = 1; ignored && *ignored && !f.bad; k++) {
        const size_t n = strcspn(ignored, ",");
        if (k > 63 || !(f.found >> k & 1))
            files_bad(&f, "it has no key \"%.*s\" to ignore", (int)MIN(n, (size_t)64), ignored);
        ignored += n + (ignored[n] == ',');
    }
    if (!f.bad) *g = c.model;
    return f.bad ? why : NULL;
}
static const char *files_config(const char *dir, const char *ignored, gpt_config *g, char *why,
                                size_t capacity) {
    char name[4200];
    struct stat st;
    snprintf(name, sizeof name, "%.4000s/adapter_config.json", dir);
    if (!stat(name, &st)) {
        snprintf(why, capacity,
                 "%.1000s has an adapter that is not merged: load it by peft, and save what "
                 "merge_and_unload() gives",
                 dir);
        return why;
    }
    snprintf(name, sizeof name, "%.4000s/config.json", dir);
    if (stat(name, &st)) {
        snprintf(why, capacity,
                 "%.1000s has no manifest.json, as checkpoints of this program have, and no config.json, as "
                 "models of Hugging Face's have: %s",
                 dir, strerror(errno));
        return why;
    }
    char *json = files_text(dir, "config.json", why, capacity);
    if (!json) return why;
    const char *wrong = files_config_of(json, name, ignored, g, why, capacity);
    return free(json), wrong;
}
// Checks, before memory for the model is allocated, that the files have at least as many elements as the
// model. NULL, or an error text.
static const char *files_check_size(const char *dir, const gpt_config *g, char *why, size_t capacity) {
    files_huggingface h;
    size_t present = 0;
    const char *problem = files_open(&h, dir);
    for (int i = 0; i < h.shard_count; i++)
        for (size_t k = 0; k < h.shards[i].count; k++) present += h.shards[i].list[k].count;
    if (problem)
        snprintf(why, capacity, "cannot load %.1000s: %s", dir, problem);
    else if (present < gpt_parameter_count(g))
        snprintf(
            why, capacity,
            "cannot load %.1000s: its config.json is that of a model of %zu parameters, and its files have "
            "only %zu",
            dir, gpt_parameter_count(g), present);
    const int fits = !problem && present >= gpt_parameter_count(g);
    return files_close(&h), fits ? NULL : why;
}
// The parts of a parameter in Hugging Face's files, whose tensors are called `prefix` and their name. Returns
// their number; 0: one is missing or does not fit, see why.
static int files_huggingface_parts(const gpt_model *m, files_huggingface *h, const char *prefix,
                                   const gpt_tensor *x, par_zero_part parts[3]) {
    char name[192];
    int transposed, j;
    size_t first, rows, n = strlen(prefix);
    memcpy(name, prefix, n);
    for (j = 0; files_source(m, x, j, name + n, sizeof name - n, &transposed, &first, &rows); j++) {
        const par_file_tensor *t = files_tensor(h, name);
        const size_t cols = x->p->cols, shape[2] = {transposed ? cols : rows, transposed ? rows : cols};
        if (t && !par_dtype_traits_of(par_zero_file_dtype(t))->is_float)
            return snprintf(h->why, sizeof h->why, "%s is not of a floating-point type", name), 0;
        if (!t || t->count != rows * cols || t->shape[0] != shape[0] ||
            (t->dims == 2 ? t->shape[1] != shape[1] : t->dims != 1 || cols > 1)) {
            snprintf(h->why, sizeof h->why, "%s %s (%zu x %zu)", name,
                     t ? "is not of the shape that the model has" : "is missing", shape[0], shape[1]);
            return 0;
        }
        parts[j].file = t;
        parts[j].first = first * cols;
        parts[j].transposed = transposed;
    }
    return j;
}

// Tensors that no parameter takes: buffers that follow from the sizes, or the embedding once more.
static const struct {
    int llama;
    const char *ending;
} files_buffers[] = {{1, ".rotary_emb.inv_freq"}, {0, ".attn.bias"}, {0, ".attn.masked_bias"}};
static int files_may_stay(const gpt_model *m, const files_huggingface *h, const par_file_tensor *t) {
    const size_t n = strlen(t->name);
    for (size_t i = 0; i < sizeof files_buffers / sizeof *files_buffers; i++) {
        const size_t ending = strlen(files_buffers[i].ending);
        if (files_buffers[i].llama == m->config.llama && n > ending &&
            !strcmp(t->name + n - ending, files_buffers[i].ending))
            return 1;
    }
    if (!gpt_is_tied(&m->config) || strcmp(t->name, "lm_head.weight")) return 0;
    const par_file_tensor *e =
        files_tensor(h, m->config.llama ? "model.embed_tokens.weight" : "transformer.wte.weight");
    return e && !strcmp(e->dtype, t->dtype) && e->bytes == t->bytes && !memcmp(e->data, t->data, t->bytes);
}
// What a tensor that nothing takes says of the model, where its name tells.
static const char *files_meaning(const gpt_model *m, const char *name) {
    static const struct {
        const char *part, *meaning;
    } known[] = {
        {"lora_", ": an adapter that is not merged (peft's merge_and_unload() does it)"},
        {"_scale", ": its weights are quantized, and scales are not read"},
        {"lm_head.weight", ": the head is tied to the embedding, says config.json, and they differ"}};
    const char *number = strpbrk(name, "0123456789");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(name, known[i].part)) return known[i].meaning;
    return number && atoi(number) >= m->config.n_layer ? ": config.json has fewer layers than the files" : "";
}
// Checks on every rank that the files have each parameter of the whole model, and nothing else.
static const char *files_check_tensors(const gpt_model *m, files_huggingface *h) {
    for (int i = 0; i < m->tensor_count; i++) {
        par_zero_part parts[3];
        const int count = files_huggingface_parts(m, h, "", &m->tensors[i], parts);
        if (!count) return h->why;
        for (int k = 0; k < count; k++) *files_mark(h, parts[k].file) = 1;
    }
    for (int k = 0; k < h->shard_count; k++)
        for (size_t i = 0; i < h->shards[k].count; i++) {
            const par_file_tensor *t = &h->shards[k].list[i];
            if (!*files_mark(h, t) && !files_may_stay(m, h, t))
                return files_why(h, "no parameter takes the tensor %s%s", t->name, files_meaning(m, t->name));
        }
    return NULL;
}

// ---- Hugging Face: save -----------------------------------------------------------------------------------

static int files_is_llmc(const char *path) { // a file of llm.c's, not a directory
    const char *ending = strrchr(path, '.');
    return ending && !strcmp(ending, ".bin");
}
// Can this model be exported to this path? NULL, or why not.
static const char *files_supports(const gpt_config *g, const char *path) {
    if (g->llama && files_is_llmc(path))
        return "llm.c's model files hold GPT-2 with biases: export a Llama to a directory";
    if (g->llama)
        return g->n_embd % g->n_head ? "--export: other programs' Llama has an n_embd that is a multiple of "
                                       "n_head, whatever head_dim is"
                                     : NULL;
    if (!g->bias) return "--export: other programs' files hold GPT-2 with biases: leave out --no-bias";
    if ((int)gpt_kv_heads(g) != g->n_head)
        return "--export: other programs' GPT-2 has as many key-value heads as heads: leave out --n_kv_head";
    if (gpt_head_dim(g) * (size_t)g->n_head != (size_t)g->n_embd)
        return "--export: other programs' GPT-2 has heads of n_embd / n_head: leave out --head_dim";
    return files_is_llmc(path) && gpt_hidden(g) != 4 * (size_t)g->n_embd
               ? "--export: llm.c's model files hold an MLP of 4 x n_embd: leave out --n_hidden"
               : NULL;
}
// Lists all parameters as tensors of Hugging Face, without data. at: where in the list the parts of each
// parameter begin.
static size_t files_list_tensors(const gpt_model *m, par_file_tensor *list, size_t *at) {
    size_t n = 0;
    for (int i = 0; i < m->tensor_count; i++) {
        const gpt_tensor *x = &m->tensors[i];
        at[i] = n;
        int transposed;
        size_t first, rows;
        for (int j = 0; files_source(m, x, j, list[n].name, sizeof list[n].name, &transposed, &first, &rows);
             j++, n++) {
            const size_t cols = x->p->cols;
            list[n].dtype = "F32";
            list[n].count = rows * cols;
            list[n].bytes = rows * cols * sizeof(float);
            list[n].dims = cols > 1 ? 2 : 1;
            list[n].shape[0] = transposed ? cols : rows;
            list[n].shape[1] = transposed ? rows : cols;
        }
    }
    return n;
}
// The number of tensors from `first` on that fit into one file.
static size_t files_shard(const par_file_tensor *list, size_t n, size_t first, size_t max_bytes) {
    size_t bytes = 0, k = first;
    while (k < n && (k == first || bytes + list[k].count * 4 <= max_bytes)) bytes += list[k++].count * 4;
    return k - first;
}
// Hugging Face's name for shard k of so many.
static void files_shard_name(char name[64], size_t k, size_t shards) {
    snprintf(name, 64, shards == 1 ? "model.safetensors" : "model-%05zu-of-%05zu.safetensors", k, shards);
}
// An export writes each file as NAME.new, and renames all of them when they are on the disk. If the disk is
// full, a previous export stays as it was. Meanwhile it locks the directory: another export into it waits,
// and who has the lock deletes what exports that were killed have left. A file system that cannot lock a
// directory (NFS) keeps these files until they are written again.
typedef struct files_export {
    const gpt_model *m;
    const char *path; // a directory, or llm.c's file
    int llmc, fresh;  // fresh: the directory is new
    int lock;         // the directory, which is locked; -1: it cannot be
    char why[4400];   // the first error
    // Hugging Face's: all tensors, in the order of the files, and the writer of each file
    par_file_tensor *list;
    size_t count, max_bytes, shards;
    par_safetensors_writer *writers;
    size_t *writer_of; // of each tensor
    FILE *file;        // llm.c's, under a temporary name
    size_t *at;        // of each parameter: its first tensor in list; llm.c's: its first byte in the file
} files_export;

static void files_path(char path[4300], const files_export *x, const char *name, const char *ending) {
    snprintf(path, 4300, "%.4000s/%s%s", x->path, name, ending);
}
// Is it a name under which an export writes?
static int files_is_new(const char *name) {
    static const char *const texts[] = {"model.safetensors", "model.safetensors.index.json", "config.json"};
    const char *end = strstr(name, ".new");
    int used = 0, k, n;
    if (!end || (strcmp(end, ".new") && strcmp(end, ".new.tmp"))) return 0;
    for (int i = 0; i < 3; i++)
        if (strlen(texts[i]) == (size_t)(end - name) && !strncmp(name, texts[i], strlen(texts[i]))) return 1;
    return sscanf(name, "model-%5d-of-%5d.safetensors%n", &k, &n, &used) == 2 && name + used == end;
}
// Locks the directory of an export, and deletes what exports that were killed have left in it. Returns its
// descriptor; -1: it cannot be locked or, with waits 0, another export has it.
static int files_lock_export(const char *path, int llmc, int waits) {
    char at[4300], dir[4200];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.4000s", path);
    if (llmc) snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    const int low = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
              fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 3);
    if (low >= 0) close(low);
    int e = fd < 0 ? -1 : flock(fd, LOCK_EX | LOCK_NB);
    if (e && fd >= 0 && errno == EWOULDBLOCK && waits) {
        fprintf(stderr, "gpt: waits until another run has exported to %s\n", path);
        do e = flock(fd, LOCK_EX);
        while (e && errno == EINTR);
    }
    if (e && fd >= 0) close(fd);
    if (e) return -1;
    DIR *d = llmc ? NULL : opendir(dir);
    for (struct dirent *entry; d && (entry = readdir(d)) != NULL;) {
        snprintf(at, sizeof at, "%s/%.90s", dir, entry->d_name);
        if (files_is_new(entry->d_name)) unlink(at);
    }
    if (d) closedir(d);
    return fd;
}
static const char *files_write_error(char *why, size_t capacity, const char *path) {
    snprintf(why, capacity, "cannot write %.1000s: %s; what was there is untouched", path, strerror(errno));
    return why;
}
// Writes a stream to the disk and closes it. 0: failed, see errno.
static int files_close_synced(FILE *f, int ok) {
    ok = ok && !fflush(f) && !fsync(fileno(f));
    const int e = errno, closed = !f || !fclose(f);
    if (!ok) errno = e;
    return ok && closed;
}
static int files_print_index(FILE *f, const files_export *x) { // which file each tensor is in; 0: not written
    char name[64];
    size_t bytes = 0;
    for (size_t i = 0; i < x->count; i++) bytes += x->list[i].count * 4;
    int ok = fprintf(f, "{\"metadata\": {\"total_size\": %zu}, \"weight_map\": {", bytes) > 0;
    for (size_t first = 0, k = 1, n; ok && first < x->count; first += n, k++) {
        n = files_shard(x->list, x->count, first, x->max_bytes);
        files_shard_name(name, k, x->shards);
        for (size_t i = first; i < first + n && ok; i++)
            ok = fprintf(f, "%s\"%s\": \"%s\"", i ? ", " : "", x->list[i].name, name) > 0;
    }
    return ok && fprintf(f, "}}\n") > 0;
}
// A member of an object whose value is a float: so many digits that reading gives the same float again, and a
// point, as transformers wants it.
static void files_print_real(FILE *f, const char *key, float x) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    fprintf(f, " \"%s\": %s%s,\n", key, text, strpbrk(text, ".e") ? "" : ".0");
}
static void files_print_rotary(FILE *f, const par_tp_rotary *r) {
    files_print_real(f, "rope_theta", r->base > 0 ? r->base : 10000.0f);
    if (!(r->factor > 0)) return;
    fprintf(f, " \"rope_scaling\": {\n");
    files_print_real(f, "factor", r->factor);
    if (r->original > 0) {
        files_print_real(f, "low_freq_factor", r->low);
        files_print_real(f, "high_freq_factor", r->high);
        fprintf(f, " \"original_max_position_embeddings\": %.0f,\n", (double)r->original);
    }
    fprintf(f, " \"rope_type\": \"%s\"},\n", r->original > 0 ? "llama3" : "linear");
}
// Special tokens are null: a file that says nothing of them has GPT-2's or Llama's, which are ordinary tokens
// here.
static int files_print_config(FILE *f, const gpt_config *g) { // 0: not written
    const float epsilon = g->epsilon > 0 ? g->epsilon : 1e-5f;
    fprintf(f, "{\"bos_token_id\": null, \"eos_token_id\": null, \"pad_token_id\": null,\n");
    if (g->llama) {
        files_print_real(f, "rms_norm_eps", epsilon);
        files_print_rotary(f, &g->rotary);
        fprintf(f,
                " \"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\",\n"
                " \"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d,\n"
                " \"head_dim\": %zu, \"hidden_size\": %d, \"intermediate_size\": %zu,\n"
                " \"max_position_embeddings\": %d,\n"
                " \"hidden_act\": \"silu\", \"attention_bias\": false, \"mlp_bias\": false,\n",
                g->n_layer, g->n_head, (int)gpt_kv_heads(g), gpt_head_dim(g), g->n_embd, gpt_hidden(g),
                (int)gpt_positions(g));
    } else {
        files_print_real(f, "layer_norm_epsilon", epsilon);
        fprintf(f,
                " \"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", \"n_layer\": %d,\n"
                " \"n_head\": %d, \"n_embd\": %d, \"n_positions\": %d, \"n_inner\": %zu,\n"
                " \"activation_function\": \"gelu_new\",\n",
                g->n_layer, g->n_head, g->n_embd, (int)gpt_positions(g), gpt_hidden(g));
    }
    return fprintf(f, " \"vocab_size\": %d, \"tie_word_embeddings\": %s, \"torch_dtype\": \"float32\"}\n",
                   g->vocab_size, gpt_is_tied(g) ? "true" : "false") > 0;
}
static FILE *files_create(const char *path) { // under a temporary name
    const int fd = par_file_replace(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd >= 0 && !f) close(fd);
    return f;
}
static const char *files_write_text(const files_export *x, const char *name, const gpt_config *g, char *why,
                                    size_t capacity) { // the configuration, or without one the index
    char path[4300];
    files_path(path, x, name, ".new");
    FILE *f = files_create(path);
    const int ok = f && (g ? files_print_config(f, g) : files_print_index(f, x));
    return files_close_synced(f, ok) ? NULL : files_write_error(why, capacity, path);
}
// Renames all new files to their names, or removes them all. Meanwhile there is no config.json, so that
// nobody reads a mixture of two exports.
static const char *files_rename_all(const files_export *x, int keep, char *why, size_t capacity) {
    char from[4300], to[4300], name[64];
    const char *problem = NULL;
    files_path(to, x, "config.json", "");
    if (keep) unlink(to);
    for (size_t k = 1; k <= x->shards + 2; k++) {
        const int text = k > x->shards;
        if (!text) files_shard_name(name, k, x->shards);
        const char *which = !text ? name : k == x->shards + 1 ? files_index : "config.json";
        files_path(from, x, which, ".new");
        files_path(to, x, which, "");
        if (!keep || problem)
            unlink(from);
        else if (k == x->shards + 1 && x->shards == 1)
            unlink(to); // of an earlier export
        else if (rename(from, to))
            problem = output_why(why, capacity, "rename", from);
    }
    files_path(to, x, "model.safetensors", "");
    if (keep && !problem && x->shards > 1) unlink(to); // likewise
    return problem;
}
// Creates the files of a directory that transformers can load.
static const char *files_huggingface_create(files_export *x) {
    char name[64], path[4300];
    x->list = (par_file_tensor *)calloc((size_t)x->m->tensor_count * 3 + 1, sizeof *x->list);
    if (!x->list) return "out of memory to save";
    x->count = files_list_tensors(x->m, x->list, x->at);
    for (size_t at = 0; at < x->count; at += files_shard(x->list, x->count, at, x->max_bytes)) x->shards++;
    x->writers = (par_safetensors_writer *)calloc(x->shards + 1, sizeof *x->writers);
    x->writer_of = (size_t *)calloc(x->count + 1, sizeof *x->writer_of);
    if (!x->writers || !x->writer_of) return "out of memory to save";
    for (size_t k = 0; k < x->shards; k++) x->writers[k].fd = -1;
    x->fresh = !mkdir(x->path, 0777);
    if (!x->fresh && errno != EEXIST) return output_why(x->why, sizeof x->why, "make the directory", x->path);
    x->lock = files_lock_export(x->path, 0, 1);
    for (size_t first = 0, k = 0, n; first < x->count; first += n, k++) {
        n = files_shard(x->list, x->count, first, x->max_bytes);
        for (size_t i = first; i < first + n; i++) x->writer_of[i] = k;
        files_shard_name(name, k + 1, x->shards);
        files_path(path, x, name, ".new");
        if (par_safetensors_create(path, x->list + first, n, &x->writers[k])) return x->writers[k].why;
    }
    return NULL;
}
// Writes elements [first, first + count) of the parameter to the parts that have them.
static const char *files_huggingface_put(files_export *x, const gpt_tensor *t, size_t first, size_t count,
                                         const float *values) {
    char name[PAR_FILE_NAME_BYTES];
    int transposed;
    size_t row, rows;
    for (int j = 0; files_source(x->m, t, j, name, sizeof name, &transposed, &row, &rows); j++) {
        const size_t begin = row * t->p->cols, end = begin + rows * t->p->cols;
        const size_t from = MAX(begin, first), until = MIN(end, first + count);
        const size_t i = x->at[t - x->m->tensors] + (size_t)j;
        par_safetensors_writer *w = &x->writers[x->writer_of[i]];
        if (from < until && par_zero_safetensors_put(w, (size_t)(x->list + i - w->list), transposed,
                                                     from - begin, until - from, values + (from - first)))
            return w->why;
    }
    return NULL;
}
static const char *files_huggingface_end(files_export *x, int keep) {
    const char *problem = NULL;
    for (size_t k = 0; k < x->shards && x->writers; k++) {
        const int r = par_safetensors_end(&x->writers[k], keep && !problem);
        if (!r || !keep || problem) continue;
        snprintf(x->why, sizeof x->why, "%s", x->writers[k].why);
        problem = x->why;
    }
    if (keep && !problem && x->shards > 1)
        problem = files_write_text(x, files_index, NULL, x->why, sizeof x->why);
    if (keep && !problem) problem = files_write_text(x, "config.json", &x->m->config, x->why, sizeof x->why);
    if (keep && !problem)
        problem = files_rename_all(x, 1, x->why, sizeof x->why);
    else
        files_rename_all(x, 0, NULL, 0);
    if ((!keep || problem) && x->fresh) rmdir(x->path);
    free(x->list);
    free(x->writers);
    free(x->writer_of);
    return problem;
}

// ---- this program's checkpoints: the note of par_zero_save ------------------------------------------------

#define INT(field)                                                                                           \
    { #field, offsetof(gpt_config, field), 0, 0 }
#define REAL(field)                                                                                          \
    { #field, offsetof(gpt_config, field), 1, 0 }
#define LATER(field)                                                                                         \
    { #field, offsetof(gpt_config, field), 0, 1 }
static const struct {
    const char *name;
    size_t place; // in gpt_config
    int real;     // 0: an int; 1: a float
    int later;    // 1: where a note lacks it, as those of earlier versions do, it is 0
} files_fields[] = {INT(n_layer),          INT(n_head),         INT(n_embd),      INT(block_size),
                    INT(vocab_size),       INT(bias),           INT(llama),       INT(n_kv_head),
                    INT(hidden),           INT(tied),           INT(positions),   REAL(epsilon),
                    REAL(rotary.base),     REAL(rotary.factor), REAL(rotary.low), REAL(rotary.high),
                    REAL(rotary.original), LATER(head_dim)};
#undef INT
#undef REAL
#undef LATER
enum { FILES_FIELDS = sizeof files_fields / sizeof files_fields[0] };
typedef char files_note[1024];
static void files_print_note(char *note, size_t capacity, const gpt_config *g, int step) {
    size_t at = (size_t)snprintf(note, capacity, "gpt step=%d", step);
    for (int i = 0; i < FILES_FIELDS; i++) {
        const void *field = (const char *)g + files_fields[i].place;
        if (files_fields[i].later && !*(const int *)field) continue;
        at += (size_t)snprintf(note + at, capacity - at, " %s=", files_fields[i].name);
        if (files_fields[i].real)
            at += (size_t)snprintf(note + at, capacity - at, "%.9g", (double)*(const float *)field);
        else
            at += (size_t)snprintf(note + at, capacity - at, "%d", *(const int *)field);
    }
}
// Reads the note of a checkpoint, and what it says. NULL, or what is wrong.
static const char *files_read_note(const char *dir, gpt_config *g, int *step, files_note note) {
    static char why[1800];
    char key[64];
    uint64_t updates;
    memset(g, 0, sizeof *g);
    if (par_zero_load_note(dir, note, sizeof(files_note), &updates, why, sizeof why)) return why;
    int ok = sscanf(note, "gpt step=%d", step) == 1;
    for (int i = 0; i < FILES_FIELDS && ok; i++) {
        void *field = (char *)g + files_fields[i].place;
        snprintf(key, sizeof key, " %s=", files_fields[i].name);
        const char *p = strstr(note, key);
        if (!p && files_fields[i].later) continue;
        ok = p && (files_fields[i].real ? sscanf(p + strlen(key), "%f", (float *)field)
                                        : sscanf(p + strlen(key), "%d", (int *)field)) == 1;
    }
    if (ok && !gpt_check(g) && g->vocab_size) return NULL;
    snprintf(why, sizeof why, "%.1000s is not a checkpoint of this program", dir);
    return why;
}
// Checks, before memory for the model is allocated, that the files of weights are as large as the model in
// the note.
static const char *files_own_check_size(const char *dir, const gpt_config *g, char *why, size_t capacity) {
    char path[4400];
    struct stat st;
    size_t present = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%.4000s/%.255s", dir, e->d_name);
        if (!strncmp(e->d_name, "model-s", 7) && !stat(path, &st) && S_ISREG(st.st_mode))
            present += (size_t)st.st_size;
    }
    if (d) closedir(d);
    if (present / sizeof(float) >= gpt_parameter_count(g)) return NULL;
    snprintf(why, capacity,
             "cannot load the checkpoint %.1000s: its model has %zu parameters, and its files have only %zu "
             "bytes: they are truncated, or missing",
             dir, gpt_parameter_count(g), present);
    return why;
}

// ---- llm.c's model file -----------------------------------------------------------------------------------

// The format: 256 int32 (magic, version (3: f32, 5: bf16), block size, vocabulary, layers, heads, features,
// padded vocabulary), then each kind of tensor for all layers, with the embedding's rows padded.
enum { FILES_LLMC = 20240326 };

static const char *files_llmc_config(const char *path, gpt_config *g, char *why, size_t capacity) {
    int32_t h[256] = {0};
    struct stat st;
    FILE *f = files_read(path, why, capacity);
    if (!f) return why;
    const int ok = !fstat(fileno(f), &st) && fread(h, sizeof h, 1, f) == 1 && h[0] == FILES_LLMC &&
                   (h[1] == 3 || h[1] == 5);
    fclose(f);
    memset(g, 0, sizeof *g);
    g->bias = 1;
    g->block_size = g->positions = h[2];
    g->vocab_size = h[3];
    g->n_layer = h[4];
    g->n_head = h[5];
    g->n_embd = h[6];
    if (!ok || gpt_check(g) || !g->vocab_size || h[7] < h[3]) {
        snprintf(why, capacity, "%.1000s is no model file of llm.c's (version 3 or 5)%s%s", path,
                 ok ? ": " : "",
                 !ok            ? ""
                 : gpt_check(g) ? gpt_check(g)
                                : "its vocabulary makes no sense");
        return why;
    }
    const size_t elements = gpt_parameter_count(g) + (size_t)(h[7] - h[3]) * (size_t)h[6];
    const size_t bytes = sizeof h + elements * (h[1] == 5 ? 2 : 4), present = (size_t)st.st_size;
    if (bytes == present) return NULL;
    snprintf(why, capacity, "the model file %.1000s %s: its header asks for %zu bytes, and it has %zu", path,
             present < bytes ? "is truncated" : "is longer than its header says", bytes, present);
    return why;
}
// The size of a model file for elements of so many bytes. at: the first byte of each parameter in it. The
// embedding's rows are padded.
static size_t files_llmc_layout(const gpt_model *m, size_t element, size_t padded, size_t *at) {
    size_t end = 256 * sizeof(int32_t);
    for (int kind = 0; kind < GPT_HEAD; kind++)
        for (int i = 0; i < m->tensor_count; i++) {
            const gpt_tensor *x = &m->tensors[i];
            if ((x->tied ? GPT_WTE : x->kind) != kind) continue;
            at[i] = x->tied ? at[0] : end;
            if (!x->tied) end += (kind == GPT_WTE ? padded : x->p->rows) * x->p->cols * element;
        }
    return end;
}
static int files_llmc_padded(const gpt_config *g) { return (g->vocab_size + 127) / 128 * 128; }
static const char *files_llmc_create(files_export *x) {
    const gpt_config *g = &x->m->config;
    const int padded = files_llmc_padded(g);
    int32_t h[256] = {FILES_LLMC, 3,     (int)gpt_positions(g), g->vocab_size, g->n_layer, g->n_head,
                      g->n_embd,  padded};
    char beside[4300];
    x->lock = files_lock_export(x->path, 1, 1);
    snprintf(beside, sizeof beside, "%.4200s.tmp", x->path);
    x->file = files_create(beside);
    const off_t bytes = (off_t)files_llmc_layout(x->m, sizeof(float), (size_t)padded, x->at);
    if (x->file && fwrite(h, sizeof h, 1, x->file) == 1 && !fflush(x->file) &&
        !ftruncate(fileno(x->file), bytes))
        return NULL;
    return files_write_error(x->why, sizeof x->why, x->path);
}
static const char *files_llmc_put(files_export *x, const gpt_tensor *t, size_t first, size_t count,
                                  const float *values) {
    const size_t at = x->at[t - x->m->tensors];
    if (!fseeko(x->file, (off_t)(at + first * sizeof(float)), SEEK_SET) &&
        fwrite(values, sizeof(float), count, x->file) == count)
        return NULL;
    return files_write_error(x->why, sizeof x->why, x->path);
}
static const char *files_llmc_end(files_export *x, int keep) {
    char beside[4300];
    snprintf(beside, sizeof beside, "%.4200s.tmp", x->path);
    const int ok = x->file && files_close_synced(x->file, keep);
    if (ok && keep && !rename(beside, x->path)) return NULL;
    if (keep) files_write_error(x->why, sizeof x->why, x->path);
    if (x->file) unlink(beside);
    return keep ? x->why : NULL;
}

// ---- import and export in either format -------------------------------------------------------------------

// The weights of a Hugging Face directory or of llm.c's file, mapped.
typedef struct files_weights {
    const gpt_model *m;
    files_huggingface shards;
    char *map;              // llm.c's file
    size_t bytes, *at;      // of the file; the first byte of each parameter in it
    par_file_tensor tensor; // in it, the last one that was asked for
    char why[4400];
} files_weights;

static const char *files_llmc_open(files_weights *f, const char *path) {
    gpt_config g;
    int32_t h[256];
    const gpt_config *c = &f->m->config;
    if (files_llmc_config(path, &g, f->why, sizeof f->why)) return f->why;
    if (g.n_layer != c->n_layer || g.n_embd != c->n_embd || g.vocab_size != c->vocab_size ||
        gpt_positions(&g) != gpt_positions(c))
        return "the model file is of another model";
    const int fd = par_file_open(path, &f->bytes, f->why, sizeof f->why);
    if (fd < 0) return f->why;
    void *map = mmap(NULL, f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return "cannot map the model file";
    f->map = (char *)map;
    memcpy(h, f->map, sizeof h);
    f->tensor.dtype = h[1] == 5 ? "BF16" : "F32";
    f->at = (size_t *)calloc((size_t)f->m->tensor_count + 1, sizeof *f->at);
    if (!f->at) return "out of memory for the places of parameters in the model file";
    const size_t size =
        files_llmc_layout(f->m, par_dtype_bytes(par_zero_file_dtype(&f->tensor)), (size_t)h[7], f->at);
    return size == f->bytes ? NULL : "the model file has changed";
}
// NULL, or an error text. Close it in any case.
static const char *files_weights_open(files_weights *f, const gpt_model *m, const char *path, int llmc) {
    memset(f, 0, sizeof *f);
    f->m = m;
    if (llmc) return files_llmc_open(f, path);
    const char *problem = files_open(&f->shards, path);
    return problem ? problem : files_check_tensors(m, &f->shards);
}
static void files_weights_close(files_weights *f) {
    if (f->map) munmap(f->map, f->bytes);
    free(f->at);
    files_close(&f->shards);
}
// Finds the parts of a parameter, valid until the next call. NULL, or an error text.
static const char *files_parts(files_weights *f, const gpt_tensor *x, par_zero_part parts[3], int *count) {
    if (!f->map) {
        *count = files_huggingface_parts(f->m, &f->shards, "", x, parts);
        return *count ? NULL : f->shards.why;
    }
    par_file_tensor *t = &f->tensor;
    t->data = f->map + f->at[x - f->m->tensors];
    t->count = x->p->rows * x->p->cols;
    t->bytes = t->count * par_dtype_bytes(par_zero_file_dtype(t));
    parts[0].file = t;
    parts[0].first = 0;
    parts[0].transposed = 0;
    return *count = 1, (const char *)NULL;
}

// Creates the files of an export. shard_bytes: the largest file of weights, unless one tensor is larger; 0: 5
// GB. NULL, or an error text. End it in any case.
static const char *files_export_begin(files_export *x, const gpt_model *m, const char *path,
                                      size_t shard_bytes) {
    memset(x, 0, sizeof *x);
    x->m = m;
    x->path = path;
    x->llmc = files_is_llmc(path);
    x->lock = -1;
    x->max_bytes = shard_bytes ? shard_bytes : (size_t)5000000000;
    x->at = (size_t *)calloc((size_t)m->tensor_count + 1, sizeof *x->at);
    if (!x->at) return "out of memory for the places of parameters in files";
    if (files_supports(&m->config, path)) return files_supports(&m->config, path);
    return x->llmc ? files_llmc_create(x) : files_huggingface_create(x);
}
// Writes elements [first, first + count) of a parameter. NULL, or an error text.
static const char *files_export_put(files_export *x, const gpt_tensor *t, size_t first, size_t count,
                                    const float *values) {
    return x->llmc ? files_llmc_put(x, t, first, count, values)
                   : files_huggingface_put(x, t, first, count, values);
}
// keep 1: completes the files; else, and after an error, what was there before stays as it was. NULL, or an
// error text.
static const char *files_export_end(files_export *x, int keep) {
    free(x->at);
    const char *problem = x->llmc ? files_llmc_end(x, keep) : files_huggingface_end(x, keep);
    if (x->lock >= 0) close(x->lock);
    return problem;
}

#endif

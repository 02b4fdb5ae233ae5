// files.h - imports and exports models: Hugging Face's safetensors (GPT-2 and Llama, one file or several) and
// llm.c's model files. Models pass through tensor by tensor: an import gives each rank what it asks for, from
// mapped files, and an export takes consecutive pieces of each tensor, in any order of tensors.
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
    par_zero_safetensors *shards;
    int shard_count;
    char why[640];
} files_huggingface;

static FILE *files_read(const char *path, char *why, size_t capacity) { // NULL, and in why what is wrong
    size_t bytes;
    const int fd = par_open_read(path, &bytes, why, capacity);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    if (fd >= 0 && !f) {
        close(fd);
        snprintf(why, capacity, "out of memory for %s", path);
    }
    return f;
}
static char *files_text(const char *dir, const char *name, char *why, size_t capacity) { // a small file
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = files_read(path, why, capacity);
    if (!f) return NULL;
    char *text = (char *)calloc(1, (size_t)16 << 20);
    const size_t n = text ? fread(text, 1, ((size_t)16 << 20) - 1, f) : 0;
    fclose(f);
    if (n) return text;
    snprintf(why, capacity, "cannot read %s", path);
    free(text);
    return NULL;
}
// Finds a key anywhere in a valid JSON text. 1: *value is the text of its value.
static int files_find_key(par_zero_json *j, const char *key, par_zero_json *value) {
    char name[64];
    const char open = par_zero_json_peek(j);
    if (open != '{' && open != '[') return par_zero_json_skip(j), 0;
    for (size_t i = 0;
         open == '{' ? par_zero_json_member(j, i, name, sizeof name, 1) : par_zero_json_next(j, i, open);
         i++) {
        par_zero_json_peek(j);
        par_zero_json at = *j, inner;
        par_zero_json_skip(j);
        if (j->bad) return 0;
        at.end = j->at;
        inner = at;
        if (open == '{' && !strcmp(name, key)) return *value = at, 1;
        if (files_find_key(&inner, key, value)) return 1;
    }
    return 0;
}
typedef struct files_json { // that is read: the first thing that is wrong stays in why
    const char *text, *name;
    char *why;
    size_t capacity;
    int bad;
} files_json;
static void files_bad_value(files_json *f, const char *key, const char *expected,
                            const par_zero_json *value) {
    const int n = (int)MIN(value->end - value->at, 40);
    if (!f->bad)
        snprintf(f->why, f->capacity, "%s: \"%s\" is %.*s, and must be %s", f->name, key, n, value->at,
                 expected);
    for (char *p = f->why; !f->bad && *p; p++)
        if ((unsigned char)*p < 32 || (unsigned char)*p > 126) *p = '?';
    f->bad = 1;
}
// 1: the key is there, and its value is not null. The whole text must be valid JSON.
static int files_value(files_json *f, const char *key, par_zero_json *value) {
    par_zero_json all = {f->text, f->text + strlen(f->text), 0}, j = all;
    par_zero_json_skip(&all);
    if (all.bad || par_zero_json_peek(&all) || *j.at != '{') {
        if (!f->bad) snprintf(f->why, f->capacity, "%s is no JSON object, or damaged", f->name);
        return f->bad = 1, 0;
    }
    return files_find_key(&j, key, value) && strncmp(value->at, "null", 4);
}
static double files_number(files_json *f, const char *key, double fallback) {
    char text[64] = "", *end;
    par_zero_json v;
    if (!files_value(f, key, &v)) return fallback;
    const size_t n = (size_t)(v.end - v.at);
    if (n < sizeof text) {
        memcpy(text, v.at, n);
        text[n] = 0;
    }
    const double x = strtod(text, &end);
    if (*text && strspn(text, "0123456789-+.eE") == n && *text != '+' && end == text + n && isfinite(x))
        return x;
    return files_bad_value(f, key, "a number", &v), fallback;
}
static int files_integer(files_json *f, const char *key, int fallback) { // whole, from 0 on
    par_zero_json v;
    const double x = files_number(f, key, fallback);
    if (x >= 0 && x <= INT_MAX && x == floor(x)) return (int)x;
    if (files_value(f, key, &v)) files_bad_value(f, key, "a whole number from 0 to 2147483647", &v);
    return fallback;
}
static int files_flag(files_json *f, const char *key, int fallback) {
    par_zero_json v;
    if (!files_value(f, key, &v)) return fallback;
    const size_t n = (size_t)(v.end - v.at);
    if (n == 4 && !memcmp(v.at, "true", n)) return 1;
    if (n == 5 && !memcmp(v.at, "false", n)) return 0;
    return files_bad_value(f, key, "true or false", &v), fallback;
}
static int files_word_of(const char *words, const char *word) { // "a, b or c": its number, from 1; 0: none
    for (int number = 1;; number++) {
        const size_t n = strcspn(words, ", ");
        if (n == strlen(word) && !memcmp(words, word, n)) return number;
        if (!words[n]) return 0;
        words += n + (words[n] == ',' ? strlen(", ") : strlen(" or "));
    }
}
// Is the value of a key this word? `words` are the allowed ones, which an error shows.
static int files_is_word(files_json *f, const char *key, const char *word, const char *words) {
    char text[32];
    par_zero_json v;
    if (!files_value(f, key, &v)) return 0;
    par_zero_json at = v;
    par_zero_json_string(&at, text, sizeof text, 0);
    if (at.bad || !files_word_of(words, text)) files_bad_value(f, key, words, &v);
    return !at.bad && !strcmp(text, word);
}
static void files_close(files_huggingface *h) {
    for (int i = 0; i < h->shard_count; i++) par_zero_safetensors_close(&h->shards[i]);
    free(h->shards);
    h->shards = NULL;
    h->shard_count = 0;
}
// Opens a file of weights if it is not open yet. NULL, or an error text.
static const char *files_shard_open(files_huggingface *h, const char *dir, const char *name) {
    char path[4200];
    const size_t n = strlen(name), ending = strlen(".safetensors");
    for (int i = 0; i < h->shard_count; i++)
        if (!strcmp(h->shards[i].why, name)) return NULL;
    if (n <= ending || strcmp(name + n - ending, ".safetensors") || strchr(name, '/') ||
        h->shard_count == 1000) {
        snprintf(h->why, sizeof h->why,
                 "%.400s/model.safetensors.index.json: \"%.100s\" is no file of weights beside it, or one "
                 "too many",
                 dir, name);
        return h->why;
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    par_zero_safetensors *s = &h->shards[h->shard_count++];
    if (par_zero_safetensors_open(path, s)) return snprintf(h->why, sizeof h->why, "%s", s->why), h->why;
    return snprintf(s->why, sizeof s->why, "%s", name), (const char *)NULL; // which it is
}
// Opens every file of an index, {"weight_map": {tensor: file, ...}}.
static const char *files_shards(files_huggingface *h, const char *dir, const char *index) {
    files_json f = {index, "model.safetensors.index.json", h->why, sizeof h->why, 0};
    par_zero_json map;
    char name[160];
    const char *problem = NULL;
    if (!files_value(&f, "weight_map", &map) || par_zero_json_peek(&map) != '{') {
        if (!f.bad) snprintf(h->why, sizeof h->why, "%s has no weight_map", f.name);
        return h->why;
    }
    for (size_t i = 0; !problem && par_zero_json_member(&map, i, NULL, 0, 1); i++) {
        par_zero_json_string(&map, name, sizeof name, 0);
        if (map.bad) return snprintf(h->why, sizeof h->why, "%s: its weight_map is damaged", f.name), h->why;
        problem = files_shard_open(h, dir, name);
    }
    return problem;
}
static const char *files_open(files_huggingface *h, const char *dir) { // all shards
    char path[4200];
    struct stat st;
    memset(h, 0, sizeof *h);
    h->shards = (par_zero_safetensors *)calloc(1000, sizeof *h->shards);
    if (!h->shards) return "out of memory";
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (!stat(path, &st)) {
        const par_result r = par_zero_safetensors_open(path, &h->shards[h->shard_count++]);
        if (r) {
            snprintf(h->why, sizeof h->why, "%s", h->shards[0].why);
            files_close(h);
        }
        return r ? h->why : NULL;
    }
    char *index = files_text(dir, "model.safetensors.index.json", h->why, sizeof h->why);
    if (!index) return files_close(h), h->why;
    const char *problem = files_shards(h, dir, index);
    free(index);
    if (problem) files_close(h);
    return problem;
}
static const par_zero_file_tensor *files_tensor(const files_huggingface *h,
                                                const char *name) { // with or without "transformer."
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < h->shard_count; i++) {
            const int plain = pass && !strncmp(name, "transformer.", 12);
            const par_zero_file_tensor *t =
                par_zero_safetensors_find(&h->shards[i], plain ? name + 12 : name);
            if (t) return t;
        }
    return NULL;
}

// Reads the model's sizes from the text of a config.json. NULL, or an error text (in why).
static const char *files_config_of(const char *json, const char *name, gpt_config *g, char *why,
                                   size_t capacity) {
    files_json f = {json, name, why, capacity, 0};
    par_zero_json v;
    memset(g, 0, sizeof *g);
    const int llama = files_is_word(&f, "model_type", "llama", "gpt2 or llama"),
              gpt2 = files_is_word(&f, "model_type", "gpt2", "gpt2 or llama");
    g->llama = llama;
    g->bias = !llama;
    g->n_layer = files_integer(&f, llama ? "num_hidden_layers" : "n_layer", 0);
    g->n_head = files_integer(&f, llama ? "num_attention_heads" : "n_head", 0);
    g->n_kv_head = llama ? files_integer(&f, "num_key_value_heads", g->n_head) : 0;
    g->n_embd = files_integer(&f, llama ? "hidden_size" : "n_embd", 0);
    g->block_size = g->positions = files_integer(&f, llama ? "max_position_embeddings" : "n_positions", 0);
    g->vocab_size = files_integer(&f, "vocab_size", 0);
    g->hidden = files_integer(&f, llama ? "intermediate_size" : "n_inner", 0);
    g->head_dim = llama ? files_integer(&f, "head_dim", 0) : 0;
    g->epsilon = (float)files_number(&f, llama ? "rms_norm_eps" : "layer_norm_epsilon", 1e-5);
    g->rotary.base = (float)files_number(&f, "rope_theta", 0);
    g->tied = files_flag(&f, "tie_word_embeddings", !llama);
    const char *type =
        files_value(&f, "rope_type", &v) || !files_value(&f, "rope_scaling", &v) ? "rope_type" : "type";
    if (llama && files_is_word(&f, type, "llama3", "default or llama3")) {
        g->rotary.factor = (float)files_number(&f, "factor", 1);
        g->rotary.low = (float)files_number(&f, "low_freq_factor", 1);
        g->rotary.high = (float)files_number(&f, "high_freq_factor", 4);
        g->rotary.original = (float)files_number(&f, "original_max_position_embeddings", 8192);
    }
    if (f.bad) return why;
    const char *wrong = !llama && !gpt2 ? "its model_type must be gpt2 or llama" : gpt_check(g);
    if (!wrong && !g->vocab_size) wrong = "it has no vocabulary";
    if (!wrong) return NULL;
    snprintf(why, capacity, "%s is not that of a GPT-2 or a Llama: %s", name, wrong);
    return why;
}
static const char *files_config(const char *dir, gpt_config *g, char *why, size_t capacity) {
    char name[4200], *json = files_text(dir, "config.json", why, capacity);
    if (!json) return why;
    snprintf(name, sizeof name, "%.1000s/config.json", dir);
    const char *wrong = files_config_of(json, name, g, why, capacity);
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
        const par_zero_file_tensor *t = files_tensor(h, name);
        const size_t cols = x->p->cols, shape[2] = {transposed ? cols : rows, transposed ? rows : cols};
        if (t && !par_dtype_traits_of(t->dtype)->is_float)
            return snprintf(h->why, sizeof h->why, "%s is not of a floating-point type", name), 0;
        if (!t || t->count != rows * cols || t->shape[0] != shape[0] ||
            (t->dims == 2 && t->shape[1] != shape[1])) {
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

// ---- Hugging Face: save -----------------------------------------------------------------------------------

static int files_is_llmc(const char *path) { // a file of llm.c's, not a directory
    const char *ending = strrchr(path, '.');
    return ending && !strcmp(ending, ".bin");
}
// Can this model be exported to this path? NULL, or why not.
static const char *files_supports(const gpt_config *g, const char *path) {
    if (g->llama)
        return files_is_llmc(path)
                   ? "llm.c's model files hold GPT-2 with biases: export a Llama to a directory"
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
static size_t files_list_tensors(const gpt_model *m, par_zero_file_tensor *list, size_t *at) {
    size_t n = 0;
    for (int i = 0; i < m->tensor_count; i++) {
        const gpt_tensor *x = &m->tensors[i];
        at[i] = n;
        int transposed;
        size_t first, rows;
        for (int j = 0; files_source(m, x, j, list[n].name, sizeof list[n].name, &transposed, &first, &rows);
             j++, n++) {
            const size_t cols = x->p->cols;
            list[n].dtype = PAR_F32;
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
static size_t files_shard(const par_zero_file_tensor *list, size_t n, size_t first, size_t max_bytes) {
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
    par_zero_file_tensor *list;
    size_t count, max_bytes, shards;
    par_zero_safetensors_writer *writers;
    size_t *writer_of; // of each tensor
    FILE *file;        // llm.c's, under a temporary name
    size_t *at;        // of each parameter: its first tensor in list; llm.c's: its first byte in the file
} files_export;
static const char *const files_index = "model.safetensors.index.json";

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
    const int fd = par_safe_fd(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
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
// A member of an object whose value is a float: so many digits that reading gives the same float again.
static void files_print_real(FILE *f, const char *key, float x) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    fprintf(f, " \"%s\": %s,\n", key, text);
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
    const int fd = par_open_replace(path);
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
    x->list = (par_zero_file_tensor *)calloc((size_t)x->m->tensor_count * 3 + 1, sizeof *x->list);
    if (!x->list) return "out of memory to save";
    x->count = files_list_tensors(x->m, x->list, x->at);
    for (size_t at = 0; at < x->count; at += files_shard(x->list, x->count, at, x->max_bytes)) x->shards++;
    x->writers = (par_zero_safetensors_writer *)calloc(x->shards + 1, sizeof *x->writers);
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
        if (par_zero_safetensors_create(path, x->list + first, n, &x->writers[k])) return x->writers[k].why;
    }
    return NULL;
}
// Writes elements [first, first + count) of the parameter to the parts that have them.
static const char *files_huggingface_put(files_export *x, const gpt_tensor *t, size_t first, size_t count,
                                         const float *values) {
    char name[PAR_ZERO_NAME_BYTES];
    int transposed;
    size_t row, rows;
    for (int j = 0; files_source(x->m, t, j, name, sizeof name, &transposed, &row, &rows); j++) {
        const size_t begin = row * t->p->cols, end = begin + rows * t->p->cols;
        const size_t from = MAX(begin, first), until = MIN(end, first + count);
        const size_t i = x->at[t - x->m->tensors] + (size_t)j;
        par_zero_safetensors_writer *w = &x->writers[x->writer_of[i]];
        if (from < until && par_zero_safetensors_put(w, (size_t)(x->list + i - w->list), transposed,
                                                     from - begin, until - from, values + (from - first)))
            return w->why;
    }
    return NULL;
}
static const char *files_huggingface_end(files_export *x, int keep) {
    const char *problem = NULL;
    for (size_t k = 0; k < x->shards && x->writers; k++) {
        const par_result r = par_zero_safetensors_end(&x->writers[k], keep && !problem);
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
// NULL, or what is wrong.
static const char *files_read_note(const char *dir, gpt_config *g, int *step) {
    static char why[1800];
    char note[1024], key[64];
    uint64_t updates;
    memset(g, 0, sizeof *g);
    if (par_zero_load_note(dir, note, sizeof note, &updates, why, sizeof why)) return why;
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
    snprintf(why, sizeof why, "%s is not a checkpoint of this program", dir);
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
        snprintf(why, capacity, "%s is no model file of llm.c's (version 3 or 5)%s%s", path, ok ? ": " : "",
                 !ok            ? ""
                 : gpt_check(g) ? gpt_check(g)
                                : "its vocabulary makes no sense");
        return why;
    }
    const size_t elements = gpt_parameter_count(g) + (size_t)(h[7] - h[3]) * (size_t)h[6];
    const size_t bytes = sizeof h + elements * (h[1] == 5 ? 2 : 4), present = (size_t)st.st_size;
    if (bytes == present) return NULL;
    snprintf(why, capacity, "the model file %s %s: its header asks for %zu bytes, and it has %zu", path,
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
    char *map;                   // llm.c's file
    size_t bytes, *at;           // of the file; the first byte of each parameter in it
    par_zero_file_tensor tensor; // in it, the last one that was asked for
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
    const int fd = par_open_read(path, &f->bytes, f->why, sizeof f->why);
    if (fd < 0) return f->why;
    void *map = mmap(NULL, f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return "cannot map the model file";
    f->map = (char *)map;
    memcpy(h, f->map, sizeof h);
    f->tensor.dtype = h[1] == 5 ? PAR_BF16 : PAR_F32;
    f->at = (size_t *)calloc((size_t)f->m->tensor_count + 1, sizeof *f->at);
    if (!f->at) return "out of memory for the places of parameters in the model file";
    const size_t size = files_llmc_layout(f->m, par_dtype_bytes(f->tensor.dtype), (size_t)h[7], f->at);
    return size == f->bytes ? NULL : "the model file has changed";
}
// NULL, or an error text. Close it in any case.
static const char *files_weights_open(files_weights *f, const gpt_model *m, const char *path, int llmc) {
    memset(f, 0, sizeof *f);
    f->m = m;
    return llmc ? files_llmc_open(f, path) : files_open(&f->shards, path);
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
    par_zero_file_tensor *t = &f->tensor;
    t->data = f->map + f->at[x - f->m->tensors];
    t->count = x->p->rows * x->p->cols;
    t->bytes = t->count * par_dtype_bytes(t->dtype);
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

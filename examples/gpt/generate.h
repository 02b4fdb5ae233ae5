// generate.h - generates text: reads the prompt, then adds one token at a time, with a key-value cache. Part
// of gpt.c.
//
// It works on every grid. Each rank of tp has the cache of its heads, each stage of a pipeline that of its
// layers; stages run one after the other; ranks of dp and cp all compute the same. When the context is full
// (block_size tokens) the older half is dropped, and the newer half is read again at its new positions.

enum { GENERATE_MAX_ROWS = 512 }; // of a prompt, in a pass at most

typedef struct generator {
    par_tp *tp;             // the trainer's tp, but all tokens on every rank
    par_tp_kv_cache *cache; // of each layer; data NULL: on another stage
    gpt_buffers buffers;    // of a pass, for all stages of this rank in turn
    size_t capacity;        // tokens of context
    size_t rows;            // of them in a pass
    void *in, *out;         // of a stage
    void *memory, *ids;     // of the device
    size_t cache_bytes;     // of all layers here
    int32_t *context;
    float *logits;
    double prompt_seconds, seconds; // until the first token was known; from then on
} generator;

// ---- prompts and output -----------------------------------------------------------------------------------

// Parses a prompt into tokens (the caller frees them): bytes with a vocabulary of 256, else numbers separated
// by spaces. NULL, or an error text.
static const char *generate_parse(const char *option, const char *text, int vocab_size, int32_t **tokens,
                                  size_t *count) {
    static char why[512];
    const size_t n = strlen(text);
    *count = 0;
    *tokens = (int32_t *)calloc(n + 1, sizeof **tokens);
    if (!*tokens) return "out of memory for the prompt";
    if (vocab_size == 256) {
        for (size_t i = 0; i < n; i++) (*tokens)[i] = (unsigned char)text[i];
        return *count = n, (const char *)NULL;
    }
    for (const char *at = text + strspn(text, " \t\n"); *at; at += strspn(at, " \t\n")) {
        char *end;
        const size_t length = strcspn(at, " \t\n");
        const long v = strtol(at, &end, 10);
        if (end != at + length || *at == '-' || *at == '+') {
            snprintf(why, sizeof why,
                     "%s: \"%.*s\" is no token: this model's vocabulary has %d tokens, and a text is not cut "
                     "into them here (--tokenizer shows them only): give their numbers, separated by spaces",
                     option, (int)MIN(length, (size_t)64), at, vocab_size);
            return why;
        }
        if (v >= vocab_size) {
            snprintf(why, sizeof why, "%s: there is no token %.*s: the model's vocabulary has %d", option,
                     (int)MIN(length, (size_t)64), at, vocab_size);
            return why;
        }
        (*tokens)[(*count)++] = (int32_t)v;
        at = end;
    }
    return NULL;
}

// Where text goes, byte by byte. Safe for a terminal: characters of UTF-8 as they are, and '?' for each byte
// that belongs to none and each control character but line ends and tabs. A character may be cut between
// tokens: its first bytes wait.
typedef struct generate_screen {
    FILE *file; // NULL: no text is printed
    int safe;   // 0: all bytes as they are
    unsigned char waiting[4];
    size_t count;
} generate_screen;

static int generate_is_character(const unsigned char *s, size_t n) { // one of n bytes
    char json[8];
    return par_json_escape((const char *)s, n, json) == n && strcmp(json, "\\ufffd") != 0;
}
// Are these the first bytes of a character? The least and the largest that can follow tell.
static int generate_begins_character(const unsigned char *s, size_t n) {
    unsigned char low[4], high[4];
    const size_t length = s[0] < 0xC2 ? 1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (n >= length) return 0;
    memset(low, 0x80, sizeof low);
    memset(high, 0xBF, sizeof high);
    memcpy(low, s, n);
    memcpy(high, s, n);
    return generate_is_character(low, length) || generate_is_character(high, length);
}
// Prints what can be told of the bytes that wait; at the end of the text all.
static void generate_screen_flush(generate_screen *g, int end) {
    unsigned char *w = g->waiting;
    while (g->count && (end || !generate_begins_character(w, g->count))) {
        const size_t whole = generate_is_character(w, g->count) ? g->count : 0;
        const int control = whole == 1 ? (w[0] < 32 && w[0] != '\n' && w[0] != '\t') || w[0] == 127
                                       : whole == 2 && w[0] == 0xC2 && w[1] < 0xA0;
        if (whole && !control)
            fwrite(w, 1, whole, g->file);
        else
            fputc('?', g->file);
        g->count -= whole ? whole : 1;
        if (!whole) memmove(w, w + 1, g->count);
    }
}
static void generate_show(const trainer *t, generate_screen *g, int32_t token) { // prints one token
    unsigned char byte;
    size_t n;
    const unsigned char *text = tokenizer_text(&t->text.vocabulary, t->o.model.vocab_size, token, &byte, &n);
    if (!text) fprintf(g->file, "%d ", (int)token);
    if (text && !g->safe) fwrite(text, 1, n, g->file);
    for (size_t i = 0; text && g->safe && i < n; i++) {
        g->waiting[g->count++] = text[i];
        generate_screen_flush(g, 0);
    }
    fflush(g->file);
}
static void generate_json(const trainer *t, const generator *g, size_t prompt, const int32_t *tokens,
                          size_t n) {
    json_line j = json_begin(stdout);
    unsigned char *all = (unsigned char *)calloc(n + 1, 255), byte;
    const unsigned char *text = NULL;
    size_t bytes = 0, length;
    json_add(&j, "prompt_tokens:%zu", prompt);
    fputs(",\"tokens\":[", stdout);
    for (size_t i = 0; i < n; i++) {
        printf(i ? ",%d" : "%d", (int)tokens[i]);
        text = tokenizer_text(&t->text.vocabulary, t->o.model.vocab_size, tokens[i], &byte, &length);
        if (text && all) {
            memcpy(all + bytes, text, length);
            bytes += length;
        }
    }
    fputs("]", stdout);
    if (text && all) {
        fputs(",\"text\":", stdout);
        json_bytes(stdout, all, bytes);
    }
    json_add(&j, "prefill_tokens_per_s:%?.6g decode_tokens_per_s:%?.6g cache_bytes:%zu",
             (double)prompt / g->prompt_seconds, n > 1 ? (double)(n - 1) / g->seconds : (double)NAN,
             g->cache_bytes);
    json_end(&j);
    free(all);
}

// ---- which token comes next -------------------------------------------------------------------------------

static uint32_t generate_sort_key(float x) { // an integer that sorts as the number does
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
// The sort key of the k-th largest of n numbers, found byte by byte: how many have each next byte?
static uint32_t generate_kth_largest(const float *x, size_t n, size_t k) {
    uint32_t found = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t count[256] = {0};
        uint32_t byte = 255;
        for (size_t i = 0; i < n; i++) {
            const uint32_t key = generate_sort_key(x[i]);
            count[key >> shift & 255u] += (key & mask) == found;
        }
        for (; count[byte] < k; byte--) k -= count[byte];
        found |= byte << shift;
        mask |= 255u << shift;
    }
    return found;
}
// Samples a token from V logits, which are overwritten. At temperature 0 it is the largest, else one of the
// top_k largest (0: of all), with the probabilities softmax(logits / temperature). number: the token's, keys
// the random number.
static int32_t generate_sample(const settings *o, float *p, size_t V, uint64_t number) {
    size_t token = 0;
    float sum = 0;
    for (size_t j = 1; j < V; j++) token = p[j] > p[token] ? j : token;
    if (o->temperature <= 0) return (int32_t)token;
    const float max_logit = p[token];
    const uint32_t limit =
        o->top_k > 0 && (size_t)o->top_k < V ? generate_kth_largest(p, V, (size_t)o->top_k) : 0;
    for (size_t j = 0; j < V; j++)
        sum += p[j] = generate_sort_key(p[j]) >= limit ? expf((p[j] - max_logit) / (float)o->temperature) : 0;
    float pick = par_uniform((uint64_t)o->seed, 77, number) * sum;
    for (size_t j = 0; j < V; j++) {
        if (p[j] > 0) token = j; // the last that can be, should rounding leave something
        if ((pick -= p[j]) < 0) break;
    }
    return (int32_t)token;
}

// ---- passes through the model -----------------------------------------------------------------------------

static int generate_rank_of(const trainer *t, int stage) {
    return par_pipe_rank_of(&t->part.schedule, stage, 0);
}
static int generate_has_stage(const trainer *t, int stage) {
    return generate_rank_of(t, stage) == par_rank(t->grid.pp);
}

// Switches the model to the generator's context, in which tokens are not split; generate_end switches it
// back.
static gpt_model generate_begin(trainer *t, generator *g) {
    const gpt_model before = t->part.model;
    t->part.model.tp = g->tp;
    t->part.model.sequence_parallel = 0;
    t->part.model.split_backward = t->part.model.head_in_chunks = 0;
    t->part.model.recompute = PAR_TP_RECOMPUTE_FULL;
    t->part.model.cache = t->o.kv_cache ? g->cache : NULL;
    t->part.model.last_token_only = 1;
    return before;
}
static void generate_end(trainer *t, const gpt_model *before) {
    t->part.model.tp = before->tp;
    t->part.model.sequence_parallel = before->sequence_parallel;
    t->part.model.split_backward = before->split_backward;
    t->part.model.head_in_chunks = before->head_in_chunks;
    t->part.model.recompute = before->recompute;
    t->part.model.cache = NULL;
    t->part.model.last_token_only = 0;
}

static size_t generate_aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
// Allocates the caches of this rank's layers, and buffers for the largest of its stages.
static par_result generate_memory(trainer *t, generator *g) {
    const size_t between = g->rows * (size_t)t->o.model.n_embd * par_tp_element_bytes(g->tp);
    const size_t each = par_tp_kv_cache_bytes(g->tp, &t->part.model.layers[0].attention, 1, g->capacity);
    size_t max_bytes[GPT_LIFETIMES] = {0},
           bytes = 2 * generate_aligned(between) + generate_aligned(4 * g->rows);
    for (int s = 0; s < t->part.schedule.stages; s++) {
        if (!generate_has_stage(t, s)) continue;
        GPT_TRY(gpt_buffers_layout(&t->part.model, &t->part.stages[s], &g->buffers, g->rows));
        for (int i = 0; i < GPT_LIFETIMES; i++) max_bytes[i] = MAX(max_bytes[i], g->buffers.arena[i].used);
        if (t->part.model.cache)
            g->cache_bytes +=
                (size_t)(t->part.stages[s].end - t->part.stages[s].first) * generate_aligned(each);
    }
    for (int i = 0; i < GPT_LIFETIMES; i++) bytes += max_bytes[i];
    if (t->grid.device->alloc(t->grid.device, bytes + g->cache_bytes + 64, &g->memory)) {
        char text[2][16];
        return par_fail(t->grid.world, PAR_ERR_MEMORY,
                        "no memory for a context of %zu tokens: %s of cache, %s more (fewer: a smaller "
                        "--sample or --block_size)",
                        g->capacity, par_zero_format_bytes(g->cache_bytes, text[0]),
                        par_zero_format_bytes(bytes, text[1]));
    }
    char *at = (char *)g->memory;
    for (int i = 0; i < GPT_LIFETIMES; i++) g->buffers.arena[i].used = max_bytes[i];
    at = gpt_place_arenas(&g->buffers, at);
    g->in = at;
    g->out = at += generate_aligned(between);
    g->ids = at += generate_aligned(between);
    at += generate_aligned(4 * g->rows);
    for (int s = 0; s < t->part.schedule.stages; s++)
        for (int l = t->part.stages[s].first;
             t->part.model.cache && generate_has_stage(t, s) && l < t->part.stages[s].end; l++) {
            g->cache[l].data = at;
            g->cache[l].batch = 1;
            g->cache[l].capacity = g->capacity;
            at += generate_aligned(each);
        }
    return PAR_OK;
}
static par_result generate_open(trainer *t, generator *g, size_t prompt) {
    const gpt_config *c = &t->o.model;
    par_tp_desc d;
    memset(g, 0, sizeof *g);
    memset(&d, 0, sizeof d);
    d.tp = t->grid.tp;
    d.dtype = par_tp_dtype(t->part.tp);
    par_dtype_parse(t->o.tp_sums, &d.sum_dtype);
    d.seed = (uint64_t)t->o.seed;
    d.kernels = t->grid.tp_kernels;
    d.canonical_leaves = canonical_leaves(&t->o);
    GPT_TRY(par_tp_open(&d, &g->tp));
    g->capacity = MIN((size_t)c->block_size, prompt + (size_t)t->o.sample);
    g->rows = t->o.kv_cache ? MIN(g->capacity, (size_t)GENERATE_MAX_ROWS) : g->capacity;
    g->cache = (par_tp_kv_cache *)calloc((size_t)c->n_layer + 1, sizeof *g->cache);
    g->buffers.layers = (gpt_activations *)calloc((size_t)c->n_layer + 1, sizeof *g->buffers.layers);
    g->context = (int32_t *)calloc(g->capacity + 1, sizeof *g->context);
    g->logits = (float *)calloc((size_t)c->vocab_size, sizeof *g->logits);
    if (!g->cache || !g->buffers.layers || !g->context || !g->logits)
        return par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory to generate");
    const gpt_model before = generate_begin(t, g);
    const par_result r = generate_memory(t, g);
    return generate_end(t, &before), r;
}
static void generate_close(trainer *t, generator *g) {
    if (g->memory) t->grid.device->free(t->grid.device, g->memory);
    if (g->tp) must(t->grid.world, par_tp_close(g->tp));
    free(g->cache);
    free(g->buffers.layers);
    free(g->context);
    free(g->logits);
}

// Passes tokens `first` to `end - 1` of the context through the stages; the logits are on the last one.
static par_result generate_pass(trainer *t, generator *g, size_t first, size_t end) {
    const par_tp_tokens tokens = {1, end - first, 0, first, NULL};
    const size_t rows = end - first, count = rows * (size_t)t->o.model.n_embd;
    const par_dtype type = par_tp_dtype(g->tp);
    gpt_buffers *b = &g->buffers;
    GPT_TRY(t->grid.device->copy(t->grid.device, g->ids, g->context + first, rows * sizeof(int32_t), NULL));
    for (int s = 0; s < t->part.schedule.stages; s++) {
        if (!generate_has_stage(t, s)) continue;
        if (s && !generate_has_stage(t, s - 1)) {
            GPT_TRY(par_recv(g->in, count, type, generate_rank_of(t, s - 1), t->grid.pp));
        } else if (s) {
            void *swap = g->in;
            g->in = g->out;
            g->out = swap;
        }
        b->in = g->in;
        b->out = g->out;
        GPT_TRY(gpt_buffers_layout(&t->part.model, &t->part.stages[s], b, rows));
        GPT_TRY(
            gpt_stage_forward(&t->part.model, &t->part.stages[s], b, &tokens, (const int32_t *)g->ids, NULL));
        if (s + 1 < t->part.schedule.stages && !generate_has_stage(t, s + 1))
            GPT_TRY(par_send(g->out, count, type, generate_rank_of(t, s + 1), t->grid.pp));
    }
    return PAR_OK;
}
// Chooses the next token on the last stage, where each rank of tp gathers the same logits, and sends it to
// all ranks.
static par_result generate_next(trainer *t, generator *g, uint64_t number, int32_t *token) {
    const int last = generate_rank_of(t, t->part.schedule.stages - 1);
    if (par_rank(t->grid.pp) == last) {
        GPT_TRY(par_tp_logits_gather(g->tp, &t->part.model.loss, &g->buffers.logits, 0, g->logits));
        *token = generate_sample(&t->o, g->logits, (size_t)t->o.model.vocab_size, number);
    }
    return par_broadcast(token, token, 1, PAR_I32, last, t->grid.pp);
}

// Generates o.sample tokens after a prompt of at least one token. Rank 0 prints each, or keeps it in `all`.
static par_result generate_run(trainer *t, generator *g, const int32_t *prompt, size_t count,
                               generate_screen *screen, int32_t *all) {
    const size_t skip = count > g->capacity ? count - g->capacity : 0; // the newest part fits
    size_t length = count - skip, done = 0;
    double begun = par_seconds(t->grid.world);
    memcpy(g->context, prompt + skip, length * sizeof *prompt);
    for (int i = 0; i < t->o.sample; i++) {
        for (size_t end; done < length; done = end) {
            end = MIN(done + g->rows, length);
            GPT_TRY(generate_pass(t, g, done, end));
        }
        int32_t token = 0;
        GPT_TRY(generate_next(t, g, (uint64_t)i, &token));
        if (screen->file) generate_show(t, screen, token);
        if (all) all[i] = token;
        if (i == 0) {
            g->prompt_seconds = par_seconds(t->grid.world) - begun;
            begun += g->prompt_seconds;
        }
        if (length == g->capacity) {
            const size_t kept = length / 2;
            memmove(g->context, g->context + length - kept, kept * sizeof *g->context);
            length = kept;
            done = 0;
        }
        g->context[length++] = token;
        if (!t->o.kv_cache) done = 0;
    }
    g->seconds = par_seconds(t->grid.world) - begun;
    return PAR_OK;
}
// Prints the prompt and the generated text on stdout. as_sample: at the end of a training.
static par_result generate(trainer *t, int as_sample) {
    const int root = par_rank(t->grid.world) == 0, json = t->o.json, V = t->o.model.vocab_size;
    const int32_t start = V == 256 ? '\n' : V == 50257 ? 50256 : 0; // GPT-2's end of a text; else as it comes
    const int32_t *prompt = t->text.prompt_count ? t->text.prompt : &start;
    const size_t count = t->text.prompt_count ? t->text.prompt_count : 1;
    int32_t *all = json && root ? (int32_t *)calloc((size_t)t->o.sample + 1, sizeof *all) : NULL;
    FILE *out = root && !json ? stdout : NULL;
    generate_screen screen = {out, as_sample || isatty(1), {0}, 0};
    generator g;
    if (json && root && !all) return par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory to generate");
    par_result r = generate_open(t, &g, count);
    if (!r && root && count > g.capacity)
        fprintf(stderr, "gpt: of the prompt's %zu tokens the last %zu are read: block_size has no more\n",
                count, g.capacity);
    const gpt_model before = generate_begin(t, &g);
    for (size_t i = 0; !r && out && i < t->text.prompt_count; i++) generate_show(t, &screen, prompt[i]);
    if (!r) r = generate_run(t, &g, prompt, count, &screen, all);
    generate_end(t, &before);
    if (out) generate_screen_flush(&screen, 1);
    if (out) fputc('\n', out);
    const size_t read = MIN(count, g.capacity);
    if (!r && all) generate_json(t, &g, read, all, (size_t)t->o.sample);
    char size[16];
    if (!r && out && !as_sample)
        fprintf(stderr,
                "gpt: %zu tokens read, %.0f a second; %d written, %.0f a second; %s of cache on a rank\n",
                read, (double)read / g.prompt_seconds, t->o.sample,
                t->o.sample > 1 ? (double)(t->o.sample - 1) / g.seconds : 0,
                par_zero_format_bytes(g.cache_bytes, size));
    generate_close(t, &g);
    return free(all), r;
}

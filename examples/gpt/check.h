// check.h - the checks of options: by themselves, with each other, with the model that is loaded, the data,
// the number of ranks, and the places of what is written. Each returns NULL, or an error text. gpt.c and
// gpt_auto.c include it.

// Checks the size of a batch. Products are computed in 64 bits or in floating point, so that they do not
// overflow.
static const char *check_batch(settings *o) {
    const gpt_config *g = &o->model;
    const int64_t all = (int64_t)o->batch_size * o->accumulation_steps;
    if (all > INT_MAX)
        return wrong(
            o,
            "a step of %d x %d = %lld sequences (batch_size x gradient_accumulation_steps) is too large: at "
            "most %d",
            o->batch_size, o->accumulation_steps, (long long)all, INT_MAX);
    const double wide = 16.0 * g->n_embd + 4.0 * (double)gpt_hidden(g),
                 rows = (double)o->batch_size * g->block_size;
    const double bytes = 4 * rows * (wide * g->n_layer + MAX(g->vocab_size, 256));
    if (bytes < 0x1p56) return NULL;
    return wrong(o,
                 "a microbatch of %d sequences of %d tokens would keep about %.2g bytes for backward: a "
                 "smaller batch_size",
                 o->batch_size, g->block_size, bytes);
}
static const char *check_canonical(settings *o) {
    const int heads = (int)gpt_kv_heads(&o->model), leaves = MIN(o->canonical, MAX_LEAVES),
              parts = o->tp * o->cp;
    if (!o->canonical) return NULL;
    if (o->canonical < 0 || (o->canonical & (o->canonical - 1)) || (o->cp & (o->cp - 1)))
        return "canonical must be a power of two, and then cp, too";
    if (o->graph) return "canonical adds some sums on the host, which no graph can: leave graph out";
    if (chosen_word(o, "--tp_sums"))
        return "canonical has the same bits for each tp, and tp_sums bf16 has not: leave tp_sums out";
    if (o->head_rows) return "canonical adds gradients of the head over all rows: leave head_rows out";
    if (leaves % o->tp)
        return wrong(o, "with canonical %d tp must be a power of two up to %d", o->canonical, leaves);
    if (heads % parts)
        return wrong(o, "with canonical tp x cp must divide the %d key-value heads, and is %d", heads, parts);
    return NULL;
}
// An option that nothing would use is an error: one that is of another, which is not given.
static const char *check_needs(settings *o) {
    static const struct {
        const char *option, *need;
    } needs[] = {{"--spares", "--elastic"},     {"--regrow", "--elastic"},  {"--weights_only", "--load"},
                 {"--save_interval", "--save"}, {"--save_async", "--save"}, {"--take_over", "--save"},
                 {"--ignore_config", "--load"}};
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        if (is_given(o, needs[i].option) && !is_given(o, needs[i].need))
            return wrong(o, "%s is of %s: give both", needs[i].option + 2, needs[i].need);
    return NULL;
}
// Checks the sizes of the model. With --load they are the checkpoint's.
static const char *check_model(settings *o) {
    gpt_config *g = &o->model;
    if (!o->load) {
        g->llama = chosen_word(o, "--arch");
        if (g->llama && g->bias && is_given(o, "--bias")) return "arch llama has no biases: leave bias out";
        if (!g->llama && !g->tied && is_given(o, "--tied"))
            return "arch gpt2 has the embedding's weight as its head's: leave tied out";
        if (!g->llama && o->rope_theta > 0) return "arch gpt2 has no rotary positions: leave rope_theta out";
        if (g->llama) g->bias = 0;
        g->rotary.base = (float)o->rope_theta;
        g->epsilon = (float)o->norm_epsilon;
    }
    return gpt_check(g);
}
// Does the layout divide the model? What the layers refuse in the first step is refused here.
static const char *check_layout(settings *o) {
    const gpt_config *g = &o->model;
    const int kv = (int)gpt_kv_heads(g), heads_here = g->n_head / o->tp, kv_here = MAX(kv / o->tp, 1);
    if (chosen_word(o, "--tp_sums") && !chosen_word(o, "--dtype"))
        return "tp_sums bf16 is for a model in bf16: give --dtype bf16, too";
    if (g->n_head % o->tp) return wrong(o, "n_head must be a multiple of tp: %d of %d", g->n_head, o->tp);
    if (kv % o->tp && o->tp % kv)
        return wrong(o, "tp must divide n_kv_head, or be a multiple of it: %d and %d", o->tp, kv);
    if (gpt_hidden(g) % (size_t)o->tp)
        return wrong(o, "n_hidden must be a multiple of tp: %zu of %d", gpt_hidden(g), o->tp);
    if (o->generate) return NULL; // its ranks share no sequence, and no schedule
    if (g->block_size % (o->cp > 1 ? 2 * o->cp : 1) || g->block_size / o->cp % (o->sp ? o->tp : 1))
        return "block_size must be a multiple of 2 cp, and with sp a rank's share of it a multiple of tp";
    if (o->cp > 1 && chosen_word(o, "--cp_mode") && (heads_here % o->cp || kv_here % o->cp))
        return wrong(
            o,
            "cp_mode ulysses divides the heads of a rank over cp: %d heads and %d key-value heads do "
            "not divide by %d; use the ring",
            heads_here, kv_here, o->cp);
    if (!strcmp(o->schedule, "dualpipe") && o->pp % 2) return "dualpipe needs an even pp";
    if (!strcmp(o->schedule, "dualpipe") && o->zero == 3 && o->sample && (!o->json || o->prompt))
        return "dualpipe with zero 3 generates no text: give --sample 0, or zero 0 to 2";
    return NULL;
}
static const char *check_elastic(settings *o) {
    if (!o->elastic) return NULL;
    if (strcmp(o->device, "cpu") && o->cp > 1 && !o->canonical && !chosen_word(o, "--cp_mode"))
        return "elastic opens no ring of GPUs anew: give cp_mode ulysses";
    if (o->graph || o->tune) return "elastic follows no graph, and no tuning: leave graph and tune out";
    if (o->parameter_server) return "elastic needs states that survive a rank: leave parameter_server out";
    if (o->offload && strcmp(o->offload, "none")) return "elastic needs states in memory: leave offload out";
    if (o->zero || strcmp(o->device, "cpu")) o->buddies = 1; // a device has no commit point without
    return NULL;
}
static const char *check_settings(settings *o) {
    if (!o->data && !o->generate) return "no data: --data FILE (make run passes the kit's own pages)";
    const char *bad = check_words(o);
    if (!bad) bad = check_needs(o);
    if (!bad) bad = check_model(o);
    if (!bad) bad = check_batch(o);
    if (bad) return bad;
    par_zero_optimizer optimizer;
    if (par_zero_optimizer_parse(o->optimizer, &optimizer))
        return wrong(o, "no optimizer is called \"%.100s\"%s", o->optimizer,
                     par_zero_optimizer_suggest(o->optimizer).text);
    if (o->parameter_server && o->zero) return "zero must be 0, 1, 2 or 3; parameter_server needs 0";
    if (o->graph && strcmp(o->device, "cuda")) return "graph needs a GPU: --device cuda of build/gpt_cuda";
    if (o->graph && o->offload && strcmp(o->offload, "none"))
        return "graph needs offload none: the host moves what is offloaded";
    if (o->tune && strcmp(o->device, "cuda")) return "tune needs a GPU: --device cuda of build/gpt_cuda";
    if ((bad = check_canonical(o))) return bad;
    if (o->buddies && o->graph) return "with buddies the host waits in each step: leave graph out";
    if ((bad = check_elastic(o))) return bad;
    const int csv = is_schedule_file(o->schedule);
    if (!csv && !par_pipe_schedule_find(o->schedule))
        return wrong(o, "no schedule is called \"%.100s\"%s (or give a FILE.csv)", o->schedule,
                     par_pipe_schedule_suggest(o->schedule).text);
    if (!strcmp(o->schedule, "pipedream_2bw"))
        return "pipedream_2bw updates beside the pipeline: not in this trainer";
    if ((bad = check_layout(o))) return bad;
    if (o->min_lr < 0) o->min_lr = o->learning_rate / 10;
    if (o->lr_decay_iters <= 0) o->lr_decay_iters = o->max_iters;
    return NULL;
}

// The lr_decay_iters of a checkpoint's note; 0: it has none.
static int saved_decay_iters(const char *note) {
    int steps = 0;
    const char *at = strstr(note, " lr_decay_iters=");
    return at && sscanf(at, " lr_decay_iters=%d", &steps) == 1 ? MAX(steps, 0) : 0;
}
// The format of what --load names: a checkpoint of this program, a Hugging Face directory, an llm.c model
// file.
typedef enum load_kind { LOAD_OWN, LOAD_HUGGINGFACE, LOAD_LLMC } load_kind;
static load_kind load_kind_of(const char *path) {
    char file[4200];
    struct stat st;
    if (!stat(path, &st) && !S_ISDIR(st.st_mode)) return LOAD_LLMC;
    snprintf(file, sizeof file, "%s/manifest.json", path);
    return stat(file, &st) ? LOAD_HUGGINGFACE : LOAD_OWN;
}
// Reads the sizes of its model, and a checkpoint's note.
static const char *load_config(const char *path, load_kind kind, const char *ignored, gpt_config *c,
                               files_note note) {
    static char why[4400];
    int step;
    if (ignored && kind != LOAD_HUGGINGFACE)
        return "ignore_config is for a config.json of Hugging Face's, and what --load names has none";
    const char *problem = kind == LOAD_HUGGINGFACE ? files_config(path, ignored, c, why, sizeof why)
                          : kind == LOAD_LLMC      ? files_llmc_config(path, c, why, sizeof why)
                                                   : files_read_note(path, c, &step, note);
    if (problem || kind == LOAD_LLMC) return problem; // that file's size is compared with its header
    return kind == LOAD_HUGGINGFACE ? files_check_size(path, c, why, sizeof why)
                                    : files_own_check_size(path, c, why, sizeof why);
}
// Compares each option of the model that is given with the loaded model's: all rows of the table whose place
// is in settings.model. A 0 that is given stands for what the model has. longest: block_size may be up to
// this; 0: it must be the same.
static const char *check_fixed(settings *o, const gpt_config *loaded, int longest) {
    static const char says[] = "%s is %s, but that of %.200s is %s: leave the option out";
    gpt_config has = *loaded;
    char text[2][16];
    if (is_given(o, "--arch") && chosen_word(o, "--arch") != has.llama)
        return wrong(o, says, "arch", o->arch, o->load, has.llama ? "llama" : "gpt2");
    has.n_kv_head = (int)gpt_kv_heads(&has);
    has.head_dim = (int)gpt_head_dim(&has);
    has.hidden = (int)gpt_hidden(&has);
    has.positions = (int)gpt_positions(&has);
    has.tied = gpt_is_tied(&has);
    if (longest) has.block_size = MIN(longest, MAX(o->model.block_size, 1));
    for (int i = 0; i < SETTINGS; i++) {
        const setting *s = &setting_table[i];
        const size_t place = s->place - offsetof(settings, model);
        if (!o->given[i] || s->place < offsetof(settings, model) || place >= sizeof has) continue;
        const int asked = *(const int *)(const void *)((const char *)&o->model + place),
                  had = *(const int *)(const void *)((const char *)&has + place);
        if (asked == had || (!asked && s->type == OPTION_INT)) continue;
        snprintf(text[0], sizeof text[0], "%d", asked);
        snprintf(text[1], sizeof text[1], "%d", had);
        return wrong(o, says, s->name + 2, text[0], o->load, text[1]);
    }
    const double asked[2] = {o->rope_theta, o->norm_epsilon};
    const float had[2] = {has.rotary.base > 0 ? has.rotary.base : 10000,
                          has.epsilon > 0 ? has.epsilon : 1e-5f};
    for (int i = 0; i < 2; i++) {
        if (!(asked[i] > 0) || fabsf((float)asked[i] - had[i]) <= 0) continue;
        snprintf(text[0], sizeof text[0], "%g", asked[i]);
        snprintf(text[1], sizeof text[1], "%g", (double)had[i]);
        return wrong(o, says, i ? "norm_epsilon" : "rope_theta", text[0], o->load, text[1]);
    }
    return NULL;
}
// Takes the model of --load, and, where a training goes on, the length of its cosine.
static const char *load_model(settings *o) {
    gpt_config c;
    files_note note = "";
    const load_kind kind = load_kind_of(o->load);
    const int resumes = kind == LOAD_OWN && !o->generate && !o->weights_only;
    const char *why = check_words(o);
    if (!why) why = load_config(o->load, kind, o->ignore_config, &c, note);
    if (!why)
        why = check_fixed(o, &c, resumes ? 0 : kind == LOAD_OWN ? (int)gpt_positions(&c) : c.block_size);
    if (why) return why;
    if (kind != LOAD_OWN && !o->generate)
        c.block_size = MIN(c.block_size, o->model.block_size);
    else if (!resumes && is_given(o, "--block_size"))
        gpt_shorten(&c, o->model.block_size);
    o->model = c;
    if (resumes) o->saved_decay_iters = saved_decay_iters(note);
    if (o->saved_decay_iters && !is_given(o, "--lr_decay_iters")) o->lr_decay_iters = o->saved_decay_iters;
    return NULL;
}

// An option that generating does not use is an error: those of data and of training, but the vocabulary, and
// these. NULL, or an error text.
static const char *generate_unused(settings *o) {
    static const char *const others[] = {
        "--save",    "--save_interval", "--save_async", "--take_over",    "--export",           "--shard_mb",
        "--plan",    "--recompute",     "--schedule",   "--chunks",       "--canonical",        "--graph",
        "--buddies", "--dropout",       "--prompt",     "--weights_only", "--max_activation_mb"};
    const char *title = "";
    for (int i = 0; i < SETTINGS; i++) {
        const setting *s = &setting_table[i];
        if (s->type == OPTION_TITLE) title = s->name;
        int unused =
            (!strcmp(title, "data") || !strcmp(title, "training")) && strcmp(s->name, "--vocab_size");
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) unused |= !strcmp(s->name, others[k]);
        if (unused && o->given[i]) return wrong(o, "--generate does not use %s: leave it out", s->name);
    }
    return NULL;
}
// Sets what --generate does not need: a batch and a schedule. NULL, or an error text.
static const char *generate_settings(settings *o) {
    if (!o->load) return "--generate needs a model: --load CHECKPOINT";
    const char *unused = generate_unused(o);
    if (unused) return unused;
    if (o->sample < 1) return "--generate writes at least one token: sample must be 1 or more";
    o->schedule = "1f1b";
    o->recompute = "none";
    o->chunks = o->canonical = 0;
    o->batch_size = o->accumulation_steps = 1;
    return NULL;
}

// Opens the data. A model without a vocabulary gets that of the data.
static const char *open_data(settings *o, dataset *d) {
    data_desc how;
    memset(&how, 0, sizeof how);
    how.data = o->data;
    how.val_data = o->val_data;
    how.type = o->data_type;
    how.vocab_size = o->model.vocab_size;
    how.block_size = o->model.block_size;
    const char *why = data_open(d, &how);
    o->model.vocab_size = d->vocab_size;
    if (!why && o->document_token >= o->model.vocab_size)
        return wrong(o, "document_token is %d, beyond the vocabulary of %d", o->document_token,
                     o->model.vocab_size);
    return why;
}

// "0-3, 8": those r < count with of[r] == kind.
static void plan_ranges(char *text, size_t capacity, const int *of, int count, int kind) {
    size_t n = 0;
    text[0] = 0;
    for (int r = 0; r < count && n < capacity; r++) {
        int end = r;
        if (of[r] != kind) continue;
        while (end + 1 < count && of[end + 1] == kind) end++;
        n += (size_t)snprintf(text + n, capacity - n, end > r ? "%s%d-%d" : "%s%d", n ? ", " : "", r, end);
        r = end;
    }
}
// Cuts a rank's share of the batch_size x gradient_accumulation_steps sequences into so many microbatches.
// Returns the sequences of each; 0: with this number of ranks it does not divide.
static int cut_batch(const settings *o, int ranks, int *microbatches) {
    const int all = o->batch_size * o->accumulation_steps, grid = o->pp * o->tp * o->cp, dp = ranks / grid;
    *microbatches = 1;
    if (ranks % grid || !dp) return 0;
    if (o->generate) return 1;
    if (all % dp) return 0;
    const int C = o->canonical;
    if (C && (all % C || C % dp || (dp & (dp - 1)))) return 0;
    int microbatch = C ? all / C : MIN(all / dp, o->batch_size);
    while (all / dp % microbatch) microbatch--;
    *microbatches = all / dp / microbatch;
    return microbatch;
}
// Checks that the global batch divides by the ranks, and cuts it. NULL, or an error text.
static const char *check_global_batch(settings *o, int ranks, int *microbatch, int *microbatches) {
    enum { MAX_RANKS = 1024 }; // that --ranks starts
    int works[MAX_RANKS + 1] = {0}, any = 0, unused;
    char text[256];
    *microbatch = cut_batch(o, ranks, microbatches);
    if (*microbatch) return NULL;
    const int all = o->batch_size * o->accumulation_steps, grid = o->pp * o->tp * o->cp, C = o->canonical;
    for (int n = grid; n <= MAX_RANKS; n += grid) any |= works[n] = cut_batch(o, n, &unused) > 0;
    plan_ranges(text, sizeof text, works, MAX_RANKS + 1, 1);
    if (!any) snprintf(text, sizeof text, "none up to %d", MAX_RANKS);
    if (C)
        return wrong(
            o,
            "with canonical %d a global batch is a multiple of %d sequences (batch_size x "
            "gradient_accumulation_steps), and ranks are %d (pp x tp x cp) times 1, 2, 4 ... %d: not %d "
            "sequences on %d ranks; numbers of ranks that work: %s",
            C, C, grid, C, all, ranks, text);
    return wrong(
        o,
        "a global batch of %d sequences (batch_size x gradient_accumulation_steps) does not divide by "
        "%d ranks / (pp x tp x cp = %d); numbers of ranks that work: %s",
        all, ranks, grid, text);
}

// Tests that a file can be created in a directory, which is created if necessary. `made` receives the file's
// name, and *fresh whether the directory is new: the caller removes both. NULL, or an error text.
static const char *try_directory(const char *dir, int *fresh, char *made, size_t made_capacity, char *why,
                                 size_t capacity) {
    *fresh = !mkdir(dir, 0777);
    if (!*fresh && errno != EEXIST) return output_why(why, capacity, "make the directory", dir);
    const char *problem = output_try_in(dir, made, made_capacity, why, capacity);
    if (problem && *fresh) {
        rmdir(dir);
        *fresh = 0;
    }
    return problem;
}
static const char *try_export(const settings *o, char *why, size_t capacity) {
    char made[4300];
    int fresh;
    const char *problem = files_supports(&o->model, o->exported);
    if (problem) return problem;
    if (files_is_llmc(o->exported)) return output_try_beside(o->exported, why, capacity);
    problem = try_directory(o->exported, &fresh, made, sizeof made, why, capacity);
    if (!problem) unlink(made);
    const int lock = problem ? -1 : files_lock_export(o->exported, 0, 0); // frees disk space for the training
    if (lock >= 0) close(lock);
    if (fresh) rmdir(o->exported);
    return problem;
}
static const char *try_save(const char *dir, int *fresh, char *made, size_t made_capacity, char *why,
                            size_t capacity) {
    char path[4300];
    uint64_t steps;
    struct stat st;
    const char *problem = try_directory(dir, fresh, made, made_capacity, why, capacity);
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    if (problem || stat(path, &st)) return problem;
    return par_zero_load_note(dir, path, sizeof path, &steps, why, capacity) ? why : NULL; // not written over
}
// A checkpoint and an export would replace each other's index. NULL, or an error text.
static const char *try_apart(const settings *o, char *why, size_t capacity) {
    static const char says[] =
        "%.1000s has %s: a checkpoint and a model of Hugging Face's need two directories, "
        "because both have a model.safetensors.index.json";
    const int exports = o->exported && !files_is_llmc(o->exported);
    const struct {
        const char *dir, *name;
    } rows[] = {{o->save, "config.json"}, {exports ? o->exported : NULL, "manifest.json"}};
    char path[4300];
    struct stat st;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%.4000s/%s", rows[i].dir ? rows[i].dir : "", rows[i].name);
        if (rows[i].dir && !stat(path, &st))
            return snprintf(why, capacity, says, rows[i].dir, rows[i].name), why;
    }
    return o->save && exports && !strcmp(o->save, o->exported) ? "--save and --export need two directories"
                                                               : NULL;
}
// Before the training: tests that its results can be written. All ranks write to --save's directory.
// (par_open has tested the trace's file.) Existing files do not change.
static par_result try_outputs(const settings *o, par_comm *world) {
    char made[4300] = "", why[1800];
    const char *problem = NULL;
    int fresh = 0;
    if (par_rank(world) == 0) problem = try_apart(o, why, sizeof why);
    if (par_rank(world) == 0 && o->exported && !problem) problem = try_export(o, why, sizeof why);
    if (par_rank(world) == 0 && o->save && !problem)
        problem = try_save(o->save, &fresh, made, sizeof made, why, sizeof why);
    must(world, par_broadcast(made, made, sizeof made, PAR_U8, 0, world));
    if (par_rank(world) && made[0] && access(made, W_OK)) {
        snprintf(why, sizeof why,
                 "%.1000s, which rank 0 has made, is not there: --save needs a directory of all ranks", made);
        problem = why;
    }
    must(world, par_barrier(world));
    if (par_rank(world) == 0 && made[0]) unlink(made);
    if (fresh) rmdir(o->save);
    return problem ? par_fail(world, PAR_ERR_FILE, "%s", problem) : PAR_OK;
}

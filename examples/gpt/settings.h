// settings.h - the options of a training: a table of them, and what the command line makes of it. gpt.c and
// gpt_auto.c include it.

typedef struct settings {
    const char *data, *val_data, *data_type, *trace, *save, *load, *exported, *arch, *dtype, *fp8, *tp_sums,
        *cp_mode, *optimizer, *state_dtype, *offload, *recompute, *schedule, *device, *ignore_config;
    gpt_config model;
    int batch_size, accumulation_steps, max_iters, warmup_iters, lr_decay_iters, decay_lr, eval_interval,
        eval_iters, log_interval, save_interval, sample, seed, ranks, shard_mb, json, tp, sp, cp, zero,
        parameter_server, buddies, elastic, spares, regrow, canonical, plan, save_async, take_over, pp,
        chunks, head_rows, max_activation_mb, graph, document_token, weights_only;
    const char *generate, *prompt, *tokenizer, *tune;
    int kv_cache, top_k;
    double learning_rate, min_lr, weight_decay, beta1, beta2, grad_clip, dropout, temperature, rope_theta,
        norm_epsilon;
    int saved_decay_iters; // lr_decay_iters of the checkpoint that is resumed from; 0: it has none
    int *given;            // of each row of setting_table: is the option on the command line?
    char why[1800];        // what is wrong with the settings
} settings;
enum { MAX_LEAVES = 16 };

typedef struct setting { // an option, or a title over several
    const char *name;
    option_type type;
    size_t place;        // in the settings
    const char *initial; // the default; NULL: none
    double low, high;    // of a number, as option has them
    const char *words;   // that a text may be, "a, b or c"; NULL: any
    const char *help;
} setting;
#define ANY              -INFINITY, INFINITY // its type holds
#define FROM(low)        low, INFINITY
#define RANGE(low, high) low, high
#define BELOW_ONE        0, 1 - 0x1p-25 // as a float it is below 1
#define TITLE(text)                                                                                          \
    { text, OPTION_TITLE, 0, NULL, 0, 0, NULL, NULL }
#define TEXT(name, place, initial, words, help)                                                              \
    { name, OPTION_TEXT, offsetof(settings, place), initial, 0, 0, words, help }
#define FLAG(name, place, initial, help)                                                                     \
    { name, OPTION_FLAG, offsetof(settings, place), initial, 0, 1, NULL, help }
#define NUMBER(name, type, place, initial, range, help)                                                      \
    { name, OPTION_##type, offsetof(settings, place), initial, range, NULL, help }
static const setting setting_table[] = {
    TITLE("data"),
    TEXT("--data", data, NULL, NULL,
         "FILE, several with commas, 'PATTERN', or a directory of train and val shards"),
    TEXT("--val_data", val_data, NULL, NULL,
         "held-out data, likewise; else a directory's val shards, or the last tenth"),
    TEXT("--data_type", data_type, "auto", NULL,
         "auto, or bytes, u16, u32, u64 (nanoGPT's .bin), llmc, npy, megatron (.bin and .idx)"),
    NUMBER("--document_token", INT, document_token, "-1", RANGE(-1, DATA_MAX_VOCABULARY - 1),
           "tokens see those of their own document alone, each of which begins with this token (of GPT-2: "
           "50256); -1: those of the whole sequence"),
    NUMBER("--vocab_size", INT, model.vocab_size, "0", RANGE(0, DATA_MAX_VOCABULARY),
           "0: that of the loaded model, or of the data (of .bin: its largest token, rounded up to a "
           "multiple of 64)"),
    TITLE("ranks, a grid of pp x dp x cp x tp"),
    NUMBER("--ranks", INT, ranks, "0", RANGE(0, 1024), "ranks on this machine; 0: PAR_RANKS or 1"),
    TEXT("--device", device, GPT_DEVICE, NULL, "cpu, or cuda (of build/gpt_cuda)"),
    FLAG("--elastic", elastic, "0", "where ranks die the others train on: see docs/faults.md"),
    NUMBER("--spares", INT, spares, "0", RANGE(0, 1023),
           "with elastic: so many of the ranks wait to take a place"),
    FLAG("--regrow", regrow, "0", "with elastic: new ranks are started in the places of those that die"),
    FLAG("--graph", graph, "0",
         "on a GPU: capture the second step as a CUDA graph, and replay it; by nccl, or with one rank"),
    TEXT(
        "--tune", tune, NULL, NULL,
        "on a GPU: after the first step measure which of cuBLASLt's kernels is the fastest for each product, "
        "and keep that in this FILE, which later runs read"),
    NUMBER("--tp", INT, tp, "1", RANGE(1, 1024), "tensor-parallel ranks: each layer is split over them"),
    FLAG("--sp", sp, "0", "sequence parallelism: norms and residuals are split over tp by tokens"),
    TEXT("--tp_sums", tp_sums, "f32", "f32 or bf16",
         "how sums of tp travel: f32, or bf16 (half of the bytes, each rank's part rounded) with --dtype "
         "bf16"),
    NUMBER("--cp", INT, cp, "1", RANGE(1, 1024), "context-parallel ranks: each sequence is split over them"),
    TEXT("--cp_mode", cp_mode, "ring", "ring or ulysses", "ring or ulysses"),
    NUMBER("--pp", INT, pp, "1", RANGE(1, 1024),
           "pipeline ranks: the layers are split into stages, one or more on each rank"),
    TEXT("--schedule", schedule, "1f1b", NULL,
         "of the pipeline: 1f1b, gpipe, interleaved_1f1b, zb_h1, zb_v, auto ... (build/bench_pipe --all), or "
         "a FILE.csv"),
    NUMBER("--chunks", INT, chunks, "0", FROM(0),
           "stages on each pipeline rank; 0: the schedule's own number"),
    NUMBER(
        "--max_activation_mb", INT, max_activation_mb, "0", FROM(0),
        "of schedule auto (v_half, v_min): activations that a rank may keep, in MB; 0: any (their own peak)"),
    NUMBER("--head_rows", INT, head_rows, "0", FROM(0),
           "rows of logits that exist at a time; 0: at most 16384, or all (canonical, zb_h1 and its like)"),
    NUMBER("--zero", INT, zero, "0", RANGE(0, 3),
           "what is sharded over dp x cp. 0: nothing, 1: optimizer states, 2: gradients, too, 3: parameters, "
           "too"),
    FLAG("--parameter_server", parameter_server, "0", "with zero 0: rank 0 alone updates the parameters"),
    FLAG("--buddies", buddies, "0",
         "with zero 1 to 3: each rank has a copy of another one's shard, for when that dies"),
    NUMBER("--canonical", INT, canonical, "0", RANGE(0, 1 << 20),
           "sum gradients of so many microbatches in a fixed tree: the same bits on any number of ranks, of "
           "tp up to it and 16, of cp and of pp, by any schedule; 0: in rank order"),
    TITLE("memory"),
    TEXT("--recompute", recompute, "none", "none, selective or full",
         "activations that backward computes again: none, selective (norms, activation functions) or full "
         "(all but layers' inputs)"),
    FLAG("--plan", plan, "0", "print what each rank will hold and send, and how much memory there is"),
    TEXT("--offload", offload, NULL, NULL,
         "where optimizer states, with zero 3 parameters, too, are kept: none, host or file:DIR"),
    TITLE("model (--load sets these sizes)"),
    TEXT("--arch", arch, "gpt2", "gpt2 or llama", "gpt2 or llama"),
    TEXT("--dtype", dtype, "f32", "f32 or bf16", "of weights and activations in the layers: f32 or bf16"),
    TEXT(
        "--fp8", fp8, "none", "none, delayed, current, rowwise, blocks, mxfp8 or nvfp4",
        "how the blocks' products scale their operands to 8 or 4 bits: none, delayed or current (one scale a "
        "tensor), rowwise, blocks (1x128 and 128x128), mxfp8 (1x32), nvfp4 (1x16, 4 bits)"),
    NUMBER("--n_kv_head", INT, model.n_kv_head, "0", RANGE(0, 1 << 20), "key-value heads; 0: n_head"),
    NUMBER("--n_layer", INT, model.n_layer, "4", RANGE(1, 10000), "layers"),
    NUMBER("--n_head", INT, model.n_head, "4", RANGE(1, 1 << 20), "attention heads"),
    NUMBER("--head_dim", INT, model.head_dim, "0", RANGE(0, 1 << 20),
           "features of a head; 0: n_embd / n_head"),
    NUMBER("--n_embd", INT, model.n_embd, "128", RANGE(1, 1 << 20), "width"),
    NUMBER("--n_hidden", INT, model.hidden, "0", RANGE(0, 1 << 24),
           "features within the MLP; 0: of gpt2 4 x n_embd, of llama 8/3 x n_embd up to a multiple of 64"),
    NUMBER("--block_size", INT, model.block_size, "64", RANGE(1, 1 << 24), "tokens in a sequence"),
    NUMBER("--n_positions", INT, model.positions, "0", RANGE(0, 1 << 24),
           "the longest sequence of the model, so many positions gpt2 learns; 0: block_size"),
    NUMBER("--rope_theta", REAL, rope_theta, "0", FROM(0), "base of llama's rotary positions; 0: 10000"),
    NUMBER("--norm_epsilon", REAL, norm_epsilon, "0", BELOW_ONE, "added in norms; 0: 1e-5"),
    FLAG("--tied", model.tied, "0", "the head's weight is the embedding's, as gpt2's always is"),
    FLAG("--bias", model.bias, "1", "biases in linear layers and norms; llama has none"),
    NUMBER("--dropout", REAL, dropout, "0", BELOW_ONE, "probability"),
    TITLE("training"),
    NUMBER("--batch_size", INT, batch_size, "12", FROM(1), "sequences in a microbatch"),
    NUMBER("--gradient_accumulation_steps", INT, accumulation_steps, "4", FROM(1),
           "microbatches in a step, over all ranks"),
    NUMBER("--max_iters", INT, max_iters, "200", FROM(0), "steps"),
    TEXT("--optimizer", optimizer, "adamw", NULL, "adamw, sgd, lion, lamb or muon"),
    NUMBER("--learning_rate", REAL, learning_rate, "1e-3", FROM(0), "after warm-up"),
    TEXT("--state_dtype", state_dtype, "f32", "f32, bf16 or u8",
         "of the optimizer's moments: f32, bf16 (rounded at random) or u8 (8-bit codes in blocks)"),
    FLAG("--decay_lr", decay_lr, "1", "cosine after warm-up"),
    NUMBER("--warmup_iters", INT, warmup_iters, "10", FROM(0), "steps of linear warm-up"),
    NUMBER("--lr_decay_iters", INT, lr_decay_iters, "0", FROM(0),
           "step at which min_lr is reached; 0: max_iters, or of a checkpoint its own"),
    NUMBER("--min_lr", REAL, min_lr, "-1", FROM(-1), "negative: learning_rate / 10"),
    NUMBER("--weight_decay", REAL, weight_decay, "0.1", FROM(0), "of matrices"),
    NUMBER("--beta1", REAL, beta1, "0.9", BELOW_ONE, "of AdamW"),
    NUMBER("--beta2", REAL, beta2, "0.99", BELOW_ONE, "of AdamW"),
    NUMBER("--grad_clip", REAL, grad_clip, "1", FROM(0), "largest gradient norm; 0: any"),
    NUMBER("--eval_interval", INT, eval_interval, "100", FROM(0),
           "steps between evaluations; 0: at the end only"),
    NUMBER("--eval_iters", INT, eval_iters, "4", FROM(0), "batches in an evaluation; 0: none"),
    NUMBER("--log_interval", INT, log_interval, "10", FROM(1), "steps between lines, unless on a terminal"),
    TITLE("text"),
    TEXT("--generate", generate, NULL, NULL,
         "do not train: print this text, and how the model of --load continues it (a vocabulary other than "
         "bytes: give numbers of tokens)"),
    TEXT("--prompt", prompt, NULL, NULL,
         "text that the sample after a training begins with, as for --generate"),
    TEXT("--tokenizer", tokenizer, NULL, NULL,
         "llm.c's gpt2_tokenizer.bin, or one like it: generated tokens are shown as text"),
    NUMBER("--sample", INT, sample, "400", FROM(0), "tokens to generate"),
    NUMBER("--temperature", REAL, temperature, "0.8", FROM(0),
           "of sampling; 0: always the most likely token"),
    NUMBER("--top_k", INT, top_k, "0", FROM(0), "sample among so many most likely tokens; 0: among all"),
    FLAG("--kv_cache", kv_cache, "1",
         "keep keys and values; off: each token computes the whole context again"),
    NUMBER("--seed", INT, seed, "1337", ANY, "of weights, batches, dropout, sample"),
    TITLE("files"),
    TEXT("--save", save, NULL, NULL, "directory for the checkpoint"),
    NUMBER("--save_interval", INT, save_interval, "0", FROM(0),
           "steps between checkpoints; 0: at the end only"),
    FLAG("--save_async", save_async, "0", "write checkpoints beside the training"),
    FLAG("--take_over", take_over, "0",
         "save into --save's directory although another run has it: one that has ended, on another host"),
    TEXT("--load", load, NULL, NULL,
         "checkpoint to resume from; or a Hugging Face directory, or an llm.c model file: it sets the "
         "model's sizes"),
    FLAG("--weights_only", weights_only, "0",
         "of the checkpoint load no optimizer states: begin at step 0, with any optimizer"),
    TEXT("--ignore_config", ignore_config, NULL, NULL,
         "KEY,KEY ...: read config.json of a Hugging Face directory as if it did not have these keys"),
    TEXT("--export", exported, NULL, NULL,
         "at the end: NAME.bin as llm.c's model file, else a directory for Hugging Face"),
    NUMBER("--shard_mb", INT, shard_mb, "0", FROM(0),
           "largest file that --save and --export write, in MB; 0: 5000"),
    TEXT("--trace", trace, NULL, NULL, "file for a Perfetto trace"),
    FLAG("--json", json, "0",
         "one JSON object a line on stdout; a number that is not finite is null, and named in \"nonfinite\""),
};
enum { SETTINGS = sizeof setting_table / sizeof setting_table[0] };

// Sets the defaults, then what the command line says, which may have more options than the table. Returns
// options_parse's result.
static int parse_settings(settings *o, int argc, char **argv, const char *about, const option *more,
                          size_t more_count) {
    option options[SETTINGS + 8];
    o->given = (int *)calloc(SETTINGS, sizeof *o->given);
    if (!o->given || more_count > 8) return fprintf(stderr, "%s: out of memory\n", argv[0]), 2;
    for (int i = 0; i < SETTINGS; i++) {
        const setting *s = &setting_table[i];
        const option row = {s->name, s->type, (char *)o + s->place, s->help, s->low, s->high, 0};
        options[i] = row;
        if (s->initial) option_set(&options[i], s->initial);
    }
    for (size_t i = 0; i < more_count; i++) options[SETTINGS + i] = more[i];
    const int parsed = options_parse(argc, argv, options, SETTINGS + more_count, about);
    for (int i = 0; i < SETTINGS; i++) o->given[i] = options[i].given;
    return parsed;
}
static int row_of(const char *name) { // in the table
    int i = 0;
    while (strcmp(setting_table[i].name, name)) i++;
    return i;
}
static int is_given(const settings *o, const char *name) { return o->given[row_of(name)]; }
// Puts an error text into o->why, and returns it.
__attribute__((format(printf, 2, 3))) static const char *wrong(settings *o, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(o->why, sizeof o->why, format, list);
    va_end(list);
    return o->why;
}
// Is each text one of its row's words? NULL, or an error text.
static const char *check_words(settings *o) {
    for (int i = 0; i < SETTINGS; i++) {
        const setting *s = &setting_table[i];
        const char *const *value = (const char *const *)(const void *)((const char *)o + s->place);
        if (s->words && !files_word_of(s->words, *value))
            return wrong(o, "%s is %s, not \"%.60s\"", s->name + 2, s->words, *value);
    }
    return NULL;
}

// Which of the words of its row an option is, from 0: a par_tp_recompute, whether it is llama, ulysses.
static int chosen_word(const settings *o, const char *name) {
    const setting *s = &setting_table[row_of(name)];
    return files_word_of(s->words, *(const char *const *)((const char *)o + s->place)) - 1;
}

static inline int canonical_leaves(const settings *o) { // of sums over tp
    return MIN(o->canonical, MAX_LEAVES);
}

// gpt.c - trains a GPT-2 or a Llama on any number of ranks. The trained model does not depend on the number.
//
//     build/gpt --ranks 4 --tp 2 --data FILE       four processes on this machine, tensor parallel over two
//     mpiexec -n 2 build/gpt_mpi --data FILE       under MPI
//
// Ranks form a grid pp x dp x cp x tp. tp splits each layer, cp splits sequences, dp splits batches, and pp
// splits the layers into pipeline stages. --zero says whether parameters, gradients and optimizer states are
// replicated or sharded over dp x cp. A step trains on batch_size x gradient_accumulation_steps sequences,
// which are chosen by their global number. Each rank of dp x cp trains on its share of them in microbatches,
// in the order of a par_pipe.h schedule. The gradients of a layer are summed while the layer before it
// computes.
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE // sched_getaffinity
#endif
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_pipe.h"
#include "par_plan.h"
#include "par_tp.h"
#include "par_zero.h"
#if defined(GPT_CUDA)
#include "par_cuda.cuh"
#define GPT_DEVICE "cuda"
#else
#define GPT_DEVICE "cpu"
#endif

#include "../options.h"
#include "model.h"
#include "tokenizer.h"
#include "data.h"
#include "files.h"
#include "plan.h"

typedef struct settings {
    const char *data, *val_data, *data_type, *trace, *save, *load, *exported, *arch, *dtype, *fp8, *tp_sums,
        *cp_mode, *optimizer, *state_dtype, *offload, *recompute, *schedule, *device, *ignore_config;
    gpt_config model;
    int batch_size, accumulation_steps, max_iters, warmup_iters, lr_decay_iters, decay_lr, eval_interval,
        eval_iters, log_interval, save_interval, sample, seed, ranks, shard_mb, json, tp, sp, cp, zero,
        parameter_server, canonical, plan, save_async, take_over, pp, chunks, head_rows, max_activation_mb,
        graph, auto_layout, document_token, weights_only;
    const char *generate, *prompt, *tokenizer, *tune, *auto_machine;
    int kv_cache, top_k;
    double learning_rate, min_lr, weight_decay, beta1, beta2, grad_clip, dropout, temperature, rope_theta,
        norm_epsilon;
    int saved_decay_iters; // lr_decay_iters of the checkpoint that is resumed from; 0: it has none
    int *given;            // of each row of setting_table: is the option on the command line?
    char why[512];         // what is wrong with the settings
} settings;

// A step that the host has enqueued. It is written to again when the device has passed `done`.
typedef struct flight {
    int32_t *tokens; // pinned: tokens and targets of all microbatches on this rank
    double *loss;    // pinned, with the control and the dropout's offset
    uint64_t *dropout_offset;
    par_zero_control *control;
    void *done;
    int step;
    double lr;
} flight;
enum { MAX_LEAVES = 16 };
enum { FLIGHTS = 2 }; // the host enqueues a step while a GPU computes the one before

typedef struct trainer {
    settings o;
    dataset data;
    par_comm *world, *tp_comm, *cp_comm, *data_comm; // data_comm: dp x cp, over which gradients are summed
    par_comm *pp_comm, *model_comm; // pipeline stages; pp x tp, the ranks of one replica of the model
    // The ranks that zero shards over, and the ranks with other parameters. They are data_comm and
    // model_comm, except for dualpipe, where ranks r and pp - 1 - r have the same stages and half of the
    // microbatches each.
    par_comm *zero_comm, *model_parallel_comm;
    par_comm
        *tied_comm; // ranks that have the embedding's weight for the embedding, or for the head; NULL: none
    par_mesh *mesh;
    par_device *device; // where parameters and activations are
    const par_tp_kernels *tp_kernels;
    const par_zero_kernels *zero_kernels;
#if defined(GPT_CUDA)
    par_cuda *cuda;
    cudaGraphExec_t graph; // a step; NULL: not captured
#endif
    par_tp *tp;
    gpt_model model;
    par_zero *zero; // parameters, gradients, optimizer states
    int *index;     // for each tensor of the model its number in zero; -1: on another rank
    // For each unit of the model its numbers in zero; -1: none, or on another rank. Where the head adds to
    // gradients of its own of the embedding's weight, this weight is alone in a unit, and so is its use.
    int (*unit)[2];
    gpt_buffers buffers;
    char *scratch;
    size_t scratch_bytes, planned_bytes; // planned_bytes: of activations, with --plan
    par_pipe_schedule schedule;
    par_pipe *pipe;
    gpt_stage *stages; // one for each stage of the pipeline
    // The batch in work: is it held-out data, which step keys its choice, and its first sequence
    int held_out;
    uint64_t batch_step, first_sequence;
    int32_t *prompt; // tokens that a sample begins with
    size_t prompt_count;
    tokenizer text_tokenizer;
    gpt_dropout drop;
    // On the device: tokens and targets of all microbatches on this rank; the loss of the step.
    int32_t *x; // then, with document_token, their maps of documents
    double *device_loss;
    uint64_t *dropout_offset; // of the step's random streams
    size_t *target_count;
    double *losses;               // of microbatches, as par_pipe_work has them
    int32_t *sequence;            // one sequence and its targets
    size_t *offsets;              // of the documents of a microbatch
    int reads_tokens;             // this rank has the first stage or the last, or attends within documents
    int microbatch, microbatches; // sequences in a microbatch; microbatches of a rank in a step
    flight flights[FLIGHTS];
    int enqueued, finished; // steps so far
    double loss, grad_norm; // of the last one that is finished
    int step;
    double begun, step_begun;
    double first_loss;
    int first_step;
    files_note note; // text in a checkpoint: step and model
} trainer;

// ---- options ----------------------------------------------------------------------------------------------

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
    NUMBER("--canonical", INT, canonical, "0", RANGE(0, 1 << 20),
           "sum gradients of so many microbatches in a fixed tree: the same bits on any number of ranks, of "
           "tp up to it and 16, of cp and of pp, by any schedule; 0: in rank order"),
    FLAG("--auto", auto_layout, "0",
         "measure this machine for some seconds, plan, say why, and train with the fastest layout; what is "
         "given "
         "of these, of recompute and of offload stays"),
    TEXT("--auto_machine", auto_machine, NULL, NULL,
         "FILE for the machine as --auto has measured it: build/plan --gpu FILE plans for more of them"),
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

// Sets the defaults, then what the command line says. Returns options_parse's result.
static int parse_settings(settings *o, int argc, char **argv) {
    option options[SETTINGS];
    o->given = (int *)calloc(SETTINGS, sizeof *o->given);
    if (!o->given) return fprintf(stderr, "gpt: out of memory\n"), 2;
    for (int i = 0; i < SETTINGS; i++) {
        const setting *s = &setting_table[i];
        options[i].name = s->name;
        options[i].type = s->type;
        options[i].value = (char *)o + s->place;
        options[i].help = s->help;
        options[i].low = s->low;
        options[i].high = s->high;
        options[i].given = 0;
        if (s->initial) option_set(&options[i], s->initial);
    }
    const int parsed =
        options_parse(argc, argv, options, SETTINGS, "gpt: train a GPT-2 or a Llama on n ranks");
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

// ---- one step ---------------------------------------------------------------------------------------------

static float lr_factor(const settings *o, int step) {
    const uint64_t warmup = (uint64_t)o->warmup_iters, steps = (uint64_t)o->lr_decay_iters;
    const par_zero_lr_schedule s = {
        warmup, steps, 0, o->learning_rate > 0 ? (float)(o->min_lr / o->learning_rate) : 0, PAR_ZERO_COSINE};
    return o->decay_lr ? par_zero_lr_factor(&s, (uint64_t)step) : 1;
}

static void must(par_comm *world, par_result r) {
    if (r == PAR_OK) return;
    fprintf(stderr, "gpt: rank %d: %s\n", par_rank(world), par_last_error(world));
    exit(1); // the other ranks notice
}

// Returns 1 on all ranks if `why` is an error text on any rank, else 0 (why NULL: no error). The rank with
// the error prints it. The other ranks print which rank's error ends them; an error that all ranks have is
// printed once. Collective over the world.
static int any_rank_failed(const trainer *t, const char *why) {
    const int me = par_rank(t->world), n = par_size(t->world);
    int worst[2] = {why ? n - me : 0, !why}; // of the first rank that has an error; does anybody go on?
    char first[1024];
    must(t->world, par_all_reduce(worst, worst, 2, PAR_I32, PAR_MAX, t->world));
    if (!worst[0]) return 0;
    snprintf(first, sizeof first, "%s", why ? why : "");
    must(t->world, par_broadcast(first, first, sizeof first, PAR_U8, n - worst[0], t->world));
    const int apart = par_launched(NULL) > 0; // each may have a screen of its own
    if (!why && (apart || me == 0))
        fprintf(stderr, "gpt: rank %d ends because of rank %d: %s\n", me, n - worst[0], first);
    else if (why && worst[1])
        fprintf(stderr, "gpt: rank %d: %s\n", me, why);
    else if (why && (me == 0 || strncmp(why, first, sizeof first - 1)))
        fprintf(stderr, "gpt: %s\n", why);
    return 1;
}

static int splits_backward(const trainer *t) { // of backward; or perhaps, in a table
    const par_pipe_traits *row = par_pipe_schedule_find(t->schedule.desc.schedule);
    return !row || row->splits_backward;
}
// Does the head, whose weight is the embedding's, add to gradients of its own? They come at another time in
// another stage or half of backward; and with canonical they are the other part of a sum in any case.
static int head_is_apart(const trainer *t) {
    return gpt_is_tied(&t->o.model) && (t->o.canonical || t->schedule.stages > 1 || splits_backward(t));
}
// With stages 2 and 3 and a split backward, is a rank's sum of a step reduced? Else each microbatch's is.
static int accumulates_locally(const trainer *t) { return t->o.zero >= 2 && splits_backward(t); }
// The model calls this before and after it uses a unit: it gathers parameters and reduces gradients. With a
// split backward the second half ends the microbatch.
static par_result on_unit_phase(void *user, int unit, gpt_phase what) {
    trainer *t = (trainer *)user;
    for (int i = 0; i < 2; i++) {
        const int z = t->unit[unit][i];
        if (z < 0) continue;
        switch (what) {
        case GPT_FORWARD_END:
        case GPT_INPUT_END: GPT_TRY(par_zero_forward_end(t->zero, z)); break;
        case GPT_BACKWARD_END:
        case GPT_WEIGHT_END: GPT_TRY(par_zero_backward_end(t->zero, z)); break;
        case GPT_FORWARD_BEGIN:
        case GPT_INPUT_BEGIN: GPT_TRY(par_zero_forward_begin(t->zero, z)); break;
        default: GPT_TRY(par_zero_backward_begin(t->zero, z));
        }
    }
    return PAR_OK;
}

// The number in the step of the first sequence of this rank's microbatch i. Ranks of dp are numbered as in
// par_zero_global_microbatch; ranks of cp share sequences.
static uint64_t first_sequence(const trainer *t, int i) {
    const int dp = par_mesh_index(t->mesh, "dp"), ranks = par_mesh_size(t->mesh, "dp");
    const int in_turn = t->o.zero >= 2 && !accumulates_locally(t);
    return (uint64_t)(t->microbatch * (in_turn ? i * ranks + dp : dp * t->microbatches + i));
}
// Where the map of documents of a microbatch lies behind the tokens of all, in numbers of 4 bytes; the first
// one of no microbatch is their end.
static size_t documents_at(const trainer *t, int microbatch) {
    const size_t tokens = (size_t)t->microbatch * (size_t)t->o.model.block_size;
    const size_t maps = t->o.document_token < 0 ? 0 : 2 * tokens * (size_t)microbatch;
    return 2 * tokens / (size_t)t->o.cp * (size_t)t->microbatches + maps;
}
static par_tp_tokens tokens_of(const trainer *t, int microbatch) {
    par_tp_tokens k;
    k.batch = (size_t)t->microbatch;
    k.sequence = (size_t)t->o.model.block_size;
    k.first_sequence = t->first_sequence + first_sequence(t, microbatch);
    k.position = 0;
    k.documents = NULL;
    if (t->o.document_token >= 0)
        k.documents = (const uint32_t *)(const void *)(t->x + documents_at(t, microbatch));
    return k;
}
static int canonical_leaves(const trainer *t) { // of sums over tp
    return MIN(t->o.canonical, MAX_LEAVES);
}
static size_t rows_of(const trainer *t) { // rows of a microbatch on this rank
    return (size_t)t->microbatch * (size_t)t->o.model.block_size / (size_t)t->o.cp;
}
// Reads the tokens (for the first stage) and targets (for the last) of all microbatches, and with
// document_token where their documents begin, and enqueues their copy to the device.
static par_result load_batch(trainer *t, int32_t *memory) {
    const int T = t->o.model.block_size, per = T / t->o.cp;
    const size_t rows = rows_of(t), bytes = documents_at(t, t->microbatches) * sizeof *memory;
    size_t documents = 0;
    if (!t->reads_tokens) return PAR_OK;
    for (int n = 0; n < t->microbatches * t->microbatch; n++) {
        const int m = n / t->microbatch, i = n % t->microbatch;
        int32_t *x = memory + (size_t)m * 2 * rows + i * per, *y = x + rows;
        const char *why =
            data_sequence(&t->data, t->held_out, (uint64_t)t->o.seed, t->batch_step,
                          tokens_of(t, m).first_sequence + (uint64_t)i, T, t->sequence, t->sequence + T);
        if (why) return par_fail(t->world, PAR_ERR_FILE, "%s", why);
        for (int j = 0; j < per; j++) {
            const size_t at = par_tp_position(t->tp, (size_t)T, (size_t)j);
            x[j] = t->sequence[at];
            y[j] = t->sequence[(size_t)T + at];
        }
        if (t->o.document_token < 0) continue;
        if (!i) documents = 0;
        documents += data_documents(t->sequence, T, t->o.document_token, (size_t)i * (size_t)T,
                                    t->offsets + documents);
        t->offsets[documents] = (size_t)(i + 1) * (size_t)T;
        if (i + 1 < t->microbatch) continue;
        const par_tp_tokens tokens = tokens_of(t, m);
        GPT_TRY(par_tp_documents_map(t->tp, &tokens, t->offsets, documents,
                                     (uint32_t *)(void *)(memory + documents_at(t, m))));
    }
    return t->device->copy(t->device, t->x, memory, bytes, NULL);
}
// Runs one action of the pipeline schedule on one microbatch.
static par_result run_action(void *user, const par_pipe_work *w) {
    trainer *t = (trainer *)user;
    const double all = (double)t->o.batch_size * t->o.accumulation_steps * t->o.model.block_size;
    const gpt_stage *stage = &t->stages[w->stage];
    const gpt_dropout *drop = w->forward_only ? NULL : &t->drop;
    gpt_model *m = &t->model;
    gpt_buffers *b = &t->buffers;
    const size_t rows = rows_of(t);
    const int32_t *x = t->x + (size_t)w->microbatch * 2 * rows, *y = x + rows;
    if (w->kind > PAR_PIPE_W) return PAR_OK;
    const par_tp_tokens tokens = tokens_of(t, w->microbatch);
    void *const memory[GPT_LIFETIMES] = {w->b, w->w, w->g, t->scratch};
    for (int i = 0; i < GPT_LIFETIMES; i++) {
        b->arena[i].data = memory[i];
        b->arena[i].bytes = SIZE_MAX;
    }
    b->in = w->x;
    if (w->loss) t->losses = w->loss - w->microbatch;
    const gpt_targets targets = {y, t->losses ? t->losses + w->microbatch : NULL, t->target_count,
                                 (float)(1 / all), w->forward_only};
    b->targets = targets;
    m->split_backward = w->kind == PAR_PIPE_B || w->kind == PAR_PIPE_W;
    GPT_TRY(gpt_buffers_layout(m, stage, b, par_tp_rows(t->tp, &tokens)));
    if (w->kind == PAR_PIPE_F) {
        b->out = w->y;
        par_trace_begin(t->world, "forward");
        GPT_TRY(gpt_stage_forward(m, stage, b, &tokens, x, drop));
        if (!w->is_last || m->head_in_chunks) return par_trace_end(t->world), PAR_OK;
        if (w->forward_only)
            GPT_TRY(
                par_tp_loss_forward(t->tp, &m->loss, &b->logits, y, b->lse, NULL, w->loss, t->target_count));
        if (!w->forward_only) // the logits become their gradients
            GPT_TRY(par_tp_loss_forward_backward(t->tp, &m->loss, &b->logits, y, b->lse, NULL, w->loss,
                                                 t->target_count, targets.scale, &b->logits));
        return par_trace_end(t->world), PAR_OK;
    }
    par_trace_begin(t->world, w->kind == PAR_PIPE_W ? "gradients of weights" : "backward");
    b->in = w->dy;
    b->out = w->dx;
    GPT_TRY(w->kind == PAR_PIPE_W ? gpt_stage_wgrad(m, stage, b)
                                  : gpt_stage_backward(m, stage, b, &tokens, x, drop));
    return par_trace_end(t->world), PAR_OK;
}

// What a step computes: forward, backward and the update, of the batch in x. The host waits for nothing.
static par_result compute_step(trainer *t, float factor) {
    const par_zero_kernels *k = t->zero_kernels ? t->zero_kernels : par_zero_cpu();
    GPT_TRY(par_pipe_step(t->pipe, NULL));
    GPT_TRY(k->total(k, par_pipe_device_losses(t->pipe), (size_t)t->microbatches, t->device_loss));
    GPT_TRY(par_all_reduce(t->device_loss, t->device_loss, 1, PAR_F64, PAR_SUM, t->data_comm));
    par_trace_begin(t->world, "update");
    GPT_TRY(par_zero_step(t->zero, factor, NULL));
    GPT_TRY(par_tp_update_scales(t->tp));
    return par_trace_end(t->world), PAR_OK;
}
// Captures a step as a graph, and replays it. What varies from step to step is in the device's memory: the
// batch in x, the offset of dropout's random streams, and in zero's control the learning rate, the number of
// the step and what follows from it.
static par_result replay_step(trainer *t, float factor) {
#if defined(GPT_CUDA)
    cudaStream_t stream = par_cuda_stream(t->cuda);
    cudaGraph_t graph = NULL;
    par_result r = par_zero_flush(t->zero);
    if (!r) r = par_zero_set_lr_factor(t->zero, factor);
    cudaError_t e = cudaSuccess;
    if (!r && !t->graph) {
        e = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
        if (!e) r = compute_step(t, -1);
        if (!e && !r) r = par_zero_flush(t->zero);
        if (!e) e = cudaStreamEndCapture(stream, &graph);
        if (!e && !r) e = cudaGraphInstantiate(&t->graph, graph, 0);
        if (graph) cudaGraphDestroy(graph);
    }
    if (!e && !r) e = cudaGraphLaunch(t->graph, stream);
    if (!e || r) return r;
    return par_fail(t->world, PAR_ERR_SYSTEM, "graph: a step cannot be captured: %s", cudaGetErrorString(e));
#else
    return compute_step(t, factor); // check_settings has refused it
#endif
}
// Enqueues a step. One of FLIGHTS before it is finished, so its pinned memory may be written to.
static par_result enqueue_step(trainer *t) {
    flight *f = &t->flights[t->enqueued % FLIGHTS];
    par_device *d = t->device;
    const float factor = lr_factor(&t->o, t->step);
    if (t->enqueued++ == t->finished) t->step_begun = par_seconds(t->world);
    f->step = t->step;
    f->lr = t->o.learning_rate * (double)factor;
    t->held_out = 0;
    t->batch_step = (uint64_t)t->step;
    t->first_sequence = 0;
    t->drop.p = (float)t->o.dropout;
    *f->dropout_offset = gpt_dropout_offset((uint64_t)t->step);
    GPT_TRY(d->copy(d, t->dropout_offset, f->dropout_offset, sizeof *f->dropout_offset, NULL));
    GPT_TRY(load_batch(t, f->tokens));
    // The first step is not captured: it allocates scratch memory, and libraries choose their kernels, which
    // they do once more after they are measured.
    GPT_TRY(t->o.graph && t->enqueued > (t->o.tune ? 2 : 1) ? replay_step(t, factor)
                                                            : compute_step(t, factor));
    GPT_TRY(d->copy(d, f->loss, t->device_loss, sizeof *f->loss, NULL));
    GPT_TRY(d->copy(d, f->control, par_zero_control_of(t->zero), sizeof *f->control, NULL));
    return d->event_record(d, NULL, &f->done);
}
// Takes the kernels that --tune's file names, and measures those of products that ran and that it does not
// have.
static par_result tune_products(trainer *t) {
#if defined(GPT_CUDA)
    par_cuda_tuning x;
    GPT_TRY(par_cuda_tune(t->cuda, t->o.tune, &x));
    if (par_rank(t->world) || !x.measured) return PAR_OK;
    fprintf(t->o.json ? stderr : stdout,
            "tuned: %d products, %d with another kernel than cuBLASLt's first: %.3g of the time; %d kernels "
            "refused, whose results vary\n",
            x.measured, x.changed, x.tuned_us / x.first_us, x.refused);
#else
    (void)t;                        // check_settings has refused it
#endif
    return PAR_OK;
}
static void train_step(trainer *t) {
    par_trace_begin(t->world, "step");
    must(t->world, enqueue_step(t));
    if (t->o.tune && t->enqueued == 1) must(t->world, tune_products(t));
    par_trace_end(t->world);
}
// Waits for the oldest step in flight, and takes its loss and norm.
static const flight *finish_step(trainer *t) {
    const double tokens = (double)t->o.batch_size * t->o.accumulation_steps * t->o.model.block_size;
    const flight *f = &t->flights[t->finished++ % FLIGHTS];
    must(t->world, t->device->event_sync(t->device, f->done));
    t->loss = *f->loss / tokens;
    t->grad_norm = f->control->grad_norm;
    if (f->step == t->first_step) t->first_loss = t->loss;
    return f;
}

static double evaluate(trainer *t) { // mean loss over eval_iters batches of held-out data
    const uint64_t per_batch = (uint64_t)(t->o.batch_size * t->o.accumulation_steps);
    double loss = 0;
    t->held_out = 1;
    t->batch_step = 0;
    for (int e = 0; e < t->o.eval_iters; e++) {
        par_pipe_report run;
        t->first_sequence = (uint64_t)e * per_batch;
        must(t->world, load_batch(t, t->flights[0].tokens)); // no step is in flight
        must(t->world, par_pipe_evaluate(t->pipe, &run));
        loss += run.loss;
    }
    must(t->world, par_all_reduce(&loss, &loss, 1, PAR_F64, PAR_SUM, t->data_comm));
    return loss / ((double)per_batch * t->o.model.block_size * t->o.eval_iters);
}

// ---- output -----------------------------------------------------------------------------------------------

#include "generate.h"

// Reports a step that has just finished.
static void report(trainer *t, const flight *f) {
    const settings *o = &t->o;
    const int tty = isatty(1), last = f->step + 1 == o->max_iters;
    const double now = par_seconds(t->world), passed = now - t->begun;
    const double eta = passed / (f->step + 1.0 - t->first_step) * (o->max_iters - f->step - 1);
    const double tokens_per_s =
        (double)o->batch_size * o->accumulation_steps * o->model.block_size / (now - t->step_begun);
    t->step_begun = now;
    if (o->json) {
        json_print("step:%d loss:%.9g lr:%.9g grad_norm:%.9g tokens_per_s:%.6g", f->step, t->loss, f->lr,
                   t->grad_norm, tokens_per_s);
    } else if (tty || last || f->step % o->log_interval == 0) {
        printf("%sstep %*d/%d  loss %.4f  lr %.2e  norm %.3f  %.0f tokens/s  ETA %.0f:%02.0f%s",
               tty ? "\r" : "", 4, f->step + 1, o->max_iters, t->loss, f->lr, t->grad_norm, tokens_per_s,
               floor(eta / 60), floor(fmod(eta, 60)), tty && !last ? "   " : "\n");
    }
    fflush(stdout);
}

// ---- setting up -------------------------------------------------------------------------------------------

static int print_error(const char *text) { return fprintf(stderr, "gpt: %s\n", text), 1; }

static int is_schedule_file(const char *schedule) { // a file, not a name
    const char *ending = strrchr(schedule, '.');
    return ending && !strcmp(ending, ".csv");
}
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
    } needs[] = {{"--weights_only", "--load"}, {"--auto_machine", "--auto"}, {"--save_interval", "--save"},
                 {"--save_async", "--save"},   {"--take_over", "--save"},    {"--ignore_config", "--load"}};
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
static const char *check_settings(settings *o) {
    if (!o->data && !o->generate) return "no data: --data FILE (make run passes the kit's own sources)";
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
    if (o->auto_layout && o->canonical)
        return "auto chooses microbatches, which canonical fixes: give the layout yourself";
    if (o->graph && strcmp(o->device, "cuda")) return "graph needs a GPU: --device cuda of build/gpt_cuda";
    if (o->graph && o->offload && strcmp(o->offload, "none"))
        return "graph needs offload none: the host moves what is offloaded";
    if (o->tune && strcmp(o->device, "cuda")) return "tune needs a GPU: --device cuda of build/gpt_cuda";
    if ((bad = check_canonical(o))) return bad;
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

// Opens the data. A model without a vocabulary gets that of the data.
static const char *open_data(trainer *t) {
    settings *o = &t->o;
    data_desc how;
    memset(&how, 0, sizeof how);
    how.data = o->data;
    how.val_data = o->val_data;
    how.type = o->data_type;
    how.vocab_size = o->model.vocab_size;
    how.block_size = o->model.block_size;
    const char *why = data_open(&t->data, &how);
    o->model.vocab_size = t->data.vocab_size;
    if (!why && o->document_token >= o->model.vocab_size)
        return wrong(o, "document_token is %d, beyond the vocabulary of %d", o->document_token,
                     o->model.vocab_size);
    return why;
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
// Checks that the global batch divides by the ranks. NULL, or an error text.
static const char *check_global_batch(trainer *t, int ranks) {
    enum { MAX_RANKS = 1024 }; // that --ranks starts
    settings *o = &t->o;
    int works[MAX_RANKS + 1] = {0}, any = 0, unused;
    char text[256];
    t->microbatch = cut_batch(o, ranks, &t->microbatches);
    if (t->microbatch) return NULL;
    if (o->auto_layout) { // it has not chosen yet
        t->microbatch = o->batch_size;
        return NULL;
    }
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
static par_result try_outputs(trainer *t) {
    const settings *o = &t->o;
    char made[4300] = "", why[1800];
    const char *problem = NULL;
    int fresh = 0;
    if (par_rank(t->world) == 0) problem = try_apart(o, why, sizeof why);
    if (par_rank(t->world) == 0 && o->exported && !problem) problem = try_export(o, why, sizeof why);
    if (par_rank(t->world) == 0 && o->save && !problem)
        problem = try_save(o->save, &fresh, made, sizeof made, why, sizeof why);
    must(t->world, par_broadcast(made, made, sizeof made, PAR_U8, 0, t->world));
    if (par_rank(t->world) && made[0] && access(made, W_OK)) {
        snprintf(why, sizeof why,
                 "%.1000s, which rank 0 has made, is not there: --save needs a directory of all ranks", made);
        problem = why;
    }
    must(t->world, par_barrier(t->world));
    if (par_rank(t->world) == 0 && made[0]) unlink(made);
    if (fresh) rmdir(o->save);
    return problem ? par_fail(t->world, PAR_ERR_FILE, "%s", problem) : PAR_OK;
}

// Opens --device: the CPU, or this rank's GPU. Comms that are split afterwards take the device's memory.
static par_result open_device(trainer *t) {
    t->device = par_cpu();
    if (!strcmp(t->o.device, "cpu")) return PAR_OK;
#if defined(GPT_CUDA)
    par_cuda_desc d;
    memset(&d, 0, sizeof d);
    d.comm = t->world;
    d.canonical = t->o.canonical != 0;
    GPT_TRY(par_cuda_open(&d, &t->cuda));
    t->device = par_cuda_device(t->cuda);
    t->tp_kernels = par_cuda_tp(t->cuda);
    t->zero_kernels = par_cuda_zero(t->cuda);
    return t->o.tune ? tune_products(t) : PAR_OK;
#else
    return par_fail(t->world, PAR_ERR_UNSUPPORTED,
                    "this program has only the CPU: make cuda builds build/gpt_cuda");
#endif
}
static par_result open_grid(trainer *t) {
    char axes[64];
    par_tp_desc d;
    memset(&d, 0, sizeof d);
    snprintf(axes, sizeof axes, "pp=%d dp=-1 cp=%d tp=%d", t->o.pp, t->o.cp, t->o.tp);
    GPT_TRY(par_mesh_open(t->world, axes, &t->mesh));
    GPT_TRY(par_mesh_comm(t->mesh, "tp", &t->tp_comm));
    GPT_TRY(par_mesh_comm(t->mesh, "cp", &t->cp_comm));
    GPT_TRY(par_mesh_comm(t->mesh, "dp,cp", &t->data_comm));
    GPT_TRY(par_mesh_comm(t->mesh, "pp", &t->pp_comm));
    GPT_TRY(par_mesh_comm(t->mesh, "pp,tp", &t->model_comm));
    d.tp = t->tp_comm;
    d.cp = t->o.cp > 1 ? t->cp_comm : NULL;
    d.sequence_parallel = t->o.sp;
    d.ulysses = chosen_word(&t->o, "--cp_mode");
    par_dtype_parse(t->o.dtype, &d.dtype);
    par_dtype_parse(t->o.tp_sums, &d.sum_dtype);
    t->o.model.recipe = (par_tp_recipe)chosen_word(&t->o, "--fp8");
    d.seed = (uint64_t)t->o.seed;
    d.kernels = t->tp_kernels;
    d.canonical_leaves = canonical_leaves(t);
    d.canonical_batch = (size_t)t->microbatch;
    GPT_TRY(par_tp_open(&d, &t->tp));
    GPT_TRY(gpt_open(&t->model, &t->o.model, t->tp, t->o.sp));
    t->model.recompute = (par_tp_recompute)chosen_word(&t->o, "--recompute");
    return PAR_OK;
}

// Chooses the fastest matrix product library on the CPU, and how bf16 is multiplied, on the products of a
// step: those of the linear layers (the MLP's first stands for all), of the head and of attention.
static par_result choose_gemm(trainer *t) {
    const gpt_config *g = &t->o.model;
    const size_t R = rows_of(t), C = (size_t)g->n_embd, F = gpt_hidden(g), tp = (size_t)t->o.tp,
                 d = gpt_head_dim(g), block = MIN((size_t)128, (size_t)(g->block_size / t->o.cp)),
                 f = MAX(F / tp, (size_t)1), v = MAX((size_t)g->vocab_size / tp, (size_t)1);
    const double layers = g->n_layer, blocks = (double)(R / block), heads = (double)g->n_head / t->o.tp,
                 pairs = layers * heads * blocks * ((double)g->block_size / (double)block + 1) / 2,
                 linear = layers * (4 * (double)C / (double)F + (g->llama ? 3 : 2));
    const par_gemm_shape shapes[] = {{0, 1, R, f, C, linear},
                                     {0, 0, R, C, f, linear},
                                     {1, 0, f, C, R, linear},
                                     {0, 1, R, v, C, 1},
                                     {0, 0, R, C, v, 1},
                                     {1, 0, v, C, R, 1},
                                     {0, 0, block, block, d, 3 * pairs},
                                     {1, 0, block, d, block, 2 * pairs},
                                     {0, 0, block, d, block, 2 * pairs}};
    par_dtype dtype = PAR_F32;
    if (t->device != par_cpu() || t->o.canonical) return PAR_OK;
    par_dtype_parse(t->o.dtype, &dtype);
    return par_tp_gemm_select(shapes, sizeof shapes / sizeof *shapes, dtype, t->world);
}
static const char *gemm_name(const trainer *t) {
    if (canonical_leaves(t)) return "canonical";
    return t->tp_kernels ? t->tp_kernels->gemm_name : par_gemm_name();
}
static double gemm_rate(const trainer *t) { // GFLOP/s; NaN: not measured
    const par_gemm_report r = par_gemm_get();
    const int raced = t->device == par_cpu() && !t->o.canonical && r.chosen >= 0 && r.flops[r.chosen] > 0;
    return raced ? r.flops[r.chosen] * 1e-9 : (double)NAN;
}
// Appends the name of what was chosen, and what was measured.
static size_t add_choice(char *text, size_t bytes, const char *name, const par_gemm_report *r) {
    size_t at = (size_t)snprintf(text, bytes, "%s", name);
    if (r->chosen < 0 || r->flops[r->chosen] <= 0) return at;
    at += (size_t)snprintf(text + at, bytes - at, " (%.1f GFLOP/s", r->flops[r->chosen] * 1e-9);
    for (int i = 0; i < r->count; i++)
        if (i != r->chosen && r->flops[i] > 0)
            at += (size_t)snprintf(text + at, bytes - at, "; %s %.1f", r->name[i], r->flops[i] * 1e-9);
        else if (i != r->chosen && strcmp(r->note[i], "not there"))
            at += (size_t)snprintf(text + at, bytes - at, "; %s %s", r->name[i],
                                   strcmp(r->note[i], "cut early") ? r->note[i] : "slower");
    return at + (size_t)snprintf(text + at, bytes - at, ")");
}
// How bf16 is multiplied; NULL: nothing is, or there is no choice.
static const char *bf16_name(const trainer *t) {
    const par_gemm_report r = par_tp_gemm_get();
    return t->device == par_cpu() && !t->o.canonical && r.chosen >= 0 ? r.name[r.chosen] : NULL;
}
static const char *gemm_text(const trainer *t, char *text, size_t bytes) { // and the others
    par_gemm_report r = par_gemm_get();
    if (isnan(gemm_rate(t))) r.chosen = -1;
    size_t at = add_choice(text, bytes, gemm_name(t), &r);
    r = par_tp_gemm_get();
    if (!bf16_name(t)) return text;
    at += (size_t)snprintf(text + at, bytes - at, ", of bf16 by ");
    return add_choice(text + at, bytes - at, bf16_name(t), &r), text;
}

// Who multiplies, for a checkpoint's note: " gemm=built-in bf16=amx_bf16"; "": the bits do not depend on it.
static void print_products(const trainer *t, char *text, size_t bytes) {
    text[0] = 0;
    if (t->o.canonical) return;
    const size_t at = (size_t)snprintf(text, bytes, " gemm=%s", gemm_name(t));
    if (bf16_name(t)) snprintf(text + at, bytes - at, " bf16=%s", bf16_name(t));
}
// Says what multiplied in the run that saved, where it is another one.
static void compare_products(const trainer *t, const char *note) {
    static const char *const keys[] = {" gemm=", " bf16="};
    char now[128];
    print_products(t, now, sizeof now);
    for (int i = 0; i < 2; i++) {
        const char *a = strstr(note, keys[i]), *b = strstr(now, keys[i]);
        char was[32], is[32];
        if (!a || !b || sscanf(a + 6, "%31[A-Za-z0-9_-]", was) != 1 || sscanf(b + 6, "%31s", is) != 1)
            continue;
        if (strcmp(was, is) && par_rank(t->world) == 0)
            fprintf(
                stderr,
                "gpt: the checkpoint was saved with products%s by %s, and this run has %s: results differ in "
                "the last bits (PAR_GEMM chooses)\n",
                i ? " of bf16" : "", was, is);
    }
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

static par_zero_checkpoint checkpoint_files(trainer *t, const char *dir) {
    par_zero_checkpoint f;
    memset(&f, 0, sizeof f);
    files_print_note(t->note, sizeof t->note, &t->o.model, t->step);
    size_t at = strlen(t->note);
    at += (size_t)snprintf(t->note + at, sizeof t->note - at, " lr_decay_iters=%d", t->o.lr_decay_iters);
    print_products(t, t->note + at, sizeof t->note - at);
    f.dir = dir;
    f.comm = t->world;
    f.note = t->note;
    f.background = t->o.save_async;
    f.take_over = t->o.take_over;
    f.max_file_bytes = (size_t)t->o.shard_mb * 1000000;
    f.weights_only = t->o.generate != NULL;
    return f;
}
static const char *load_weights(trainer *t) {
    const load_kind kind = load_kind_of(t->o.load);
    if (kind == LOAD_OWN) {
        par_zero_checkpoint f = checkpoint_files(t, t->o.load);
        gpt_config c;
        files_note note;
        int step;
        f.weights_only |= t->o.weights_only;
        if (par_zero_load(t->zero, &f)) return par_last_error(t->world); // on all ranks alike
        const char *problem = files_read_note(t->o.load, &c, &step, note);
        if (problem) return problem;
        compare_products(t, note);
        if (!t->o.weights_only) t->step = step;
        return NULL;
    }
    files_weights weights;
    static char why[5500];
    const char *problem = files_weights_open(&weights, &t->model, t->o.load, kind == LOAD_LLMC);
    for (int i = 0; i < t->model.use_count && !problem; i++) {
        par_zero_part parts[3];
        int count = 0;
        if (t->index[i] < 0) continue;
        problem = files_parts(&weights, &t->model.tensors[i], parts, &count);
        if (!problem && par_zero_import(t->zero, t->index[i], parts, count))
            problem = par_last_error(t->world);
    }
    if (problem && kind == LOAD_HUGGINGFACE)
        snprintf(why, sizeof why, "cannot load %.1000s: %s", t->o.load, problem);
    else if (problem)
        snprintf(why, sizeof why, "%s", problem);
    return files_weights_close(&weights), problem ? why : NULL;
}
// Sets initial values, which do not depend on how the model is split.
static const char *init_weights(trainer *t) {
    return par_zero_init_all(t->zero) ? par_last_error(t->world) : NULL;
}

typedef struct exporter {
    const trainer *t;
    const gpt_tensor **by_name; // sorted
    files_export files;
} exporter;
static int tensor_by_name(const void *a, const void *b) {
    return strcmp((*(const gpt_tensor *const *)a)->name, (*(const gpt_tensor *const *)b)->name);
}
static par_result export_piece(void *user, const char *name, size_t first, size_t count,
                               const float *values) {
    exporter *e = (exporter *)user;
    gpt_tensor wanted, *key = &wanted;
    wanted.name = name;
    const gpt_tensor **found = (const gpt_tensor **)bsearch(
        &key, e->by_name, (size_t)e->t->model.tensor_count, sizeof *e->by_name, tensor_by_name);
    const char *why = files_export_put(&e->files, *found, first, count, values);
    return why ? par_fail(e->t->world, PAR_ERR_FILE, "%s", why) : PAR_OK;
}
// Exports all weights in the format of Hugging Face or llm.c. 0, or 1: the error has been printed.
static int export_weights(trainer *t) {
    static exporter e;
    const int root = par_rank(t->world) == 0;
    const size_t shard_bytes = (size_t)t->o.shard_mb * 1000000;
    e.t = t;
    e.by_name = (const gpt_tensor **)malloc((size_t)t->model.tensor_count * sizeof *e.by_name);
    if (any_rank_failed(t, e.by_name ? NULL : "out of memory")) return free(e.by_name), 1;
    for (int i = 0; i < t->model.tensor_count; i++) e.by_name[i] = &t->model.tensors[i];
    qsort(e.by_name, (size_t)t->model.tensor_count, sizeof *e.by_name, tensor_by_name);
    const char *why = root ? files_export_begin(&e.files, &t->model, t->o.exported, shard_bytes) : NULL;
    int failed = any_rank_failed(t, why);
    if (!failed) {
        const par_result r = par_zero_gather(t->zero, t->world, PAR_ZERO_VALUE, 0, export_piece, &e);
        failed = any_rank_failed(t, r ? par_last_error(t->world) : NULL);
    }
    free(e.by_name);
    why = root ? files_export_end(&e.files, !failed) : NULL;
    return failed || any_rank_failed(t, why);
}
// Saves a checkpoint. With --save_async it is complete when the next one begins, or at the end of the run.
static par_result save_checkpoint(trainer *t, int last) {
    const par_zero_checkpoint f = checkpoint_files(t, t->o.save);
    GPT_TRY(par_zero_save_begin(t->zero, &f));
    return f.background && !last ? PAR_OK : par_zero_save_end(t->zero);
}

static int stage_has_unit(const trainer *t, int stage, int unit) {
    const gpt_stage *p = &t->stages[stage];
    return unit == 0 ? p->embed : unit > t->o.model.n_layer ? p->head : unit > p->first && unit <= p->end;
}
// Does a stage of this rank use this unit of the model?
static int has_unit(const trainer *t, int unit) {
    const int me = par_rank(t->pp_comm);
    for (int i = 0; i < t->schedule.stages; i++)
        if (stage_has_unit(t, i, unit) && (par_pipe_rank_of(&t->schedule, i, 0) == me ||
                                           par_pipe_rank_of(&t->schedule, i, t->microbatches - 1) == me))
            return 1;
    return 0;
}
// Adds this rank's shard of a tensor to zero.
static par_result add_tensor(trainer *t, const gpt_tensor *x) {
    par_parameter p;
    par_tp_describe(t->tp, &x->p, 1, x->stream, &p);
    par_zero_tensor z = par_zero_tensor_of(&p);
    z.name = x->name; // of a tied head: the embedding's
    z.frozen = t->o.generate != NULL;
    if ((x == t->model.tensors || x->tied) && t->tied_comm) {
        z.tied_comm = t->tied_comm;
        par_shard_replicate(&p.shard, par_size(t->tied_comm), par_rank(t->tied_comm));
    }
    return par_zero_add_tensor(t->zero, &z) < 0 ? PAR_ERR_ARGUMENT : PAR_OK; // with its text
}
// Tells zero in which order the microbatches complete the gradients of a unit: the embedding's in the input
// half of a backward, the others' in the weight half.
static par_result set_order(trainer *t, int u, int unit) {
    const par_pipe_schedule *s = &t->schedule;
    const int me = par_rank(t->pp_comm), passes = t->microbatches / s->directions;
    int *order = (int *)calloc((size_t)passes, sizeof *order), n = 0;
    if (!order) return par_fail(t->world, PAR_ERR_MEMORY, "out of memory for the order of microbatches");
    for (size_t i = s->first[me]; i < s->first[me + 1]; i++) {
        const par_pipe_action *a = &s->actions[i];
        if (a->kind != PAR_PIPE_BW && a->kind != (u ? PAR_PIPE_W : PAR_PIPE_B)) continue;
        if (stage_has_unit(t, a->stage, u) && n < passes) order[n++] = a->microbatch % passes;
    }
    const par_result r = par_zero_set_order(t->zero, unit, order);
    free(order);
    return r;
}
// Adds a unit of the model to zero, as one unit, or as two where a weight is to be alone. *count: tensors so
// far.
static par_result add_unit(trainer *t, int u, int *count) {
    const int layers = t->o.model.n_layer;
    char name[64];
    int i, n = 0;
    snprintf(name, sizeof name, u == 0 ? "embedding" : u <= layers ? "layer %d" : "head", u - 1);
    for (const int end = gpt_unit_tensors(&t->model, u, &i); i < end; i++) {
        const gpt_tensor *x = &t->model.tensors[i];
        if (x->tied && t->unit[0][0] >= 0) { // the weight is here
            par_parameter p;
            par_tp_describe(t->tp, &x->p, 1, x->stream, &p);
            if (head_is_apart(t)) t->unit[u][1] = par_zero_add_use(t->zero, "tied head", t->unit[0][0], &p);
            continue;
        }
        if (!n || x->tied || (x->kind == GPT_WPE && head_is_apart(t))) {
            t->unit[u][n] = par_zero_add_unit(t->zero, n ? x->name : name);
            n++;
        }
        GPT_TRY(add_tensor(t, x));
        t->index[i] = (*count)++;
    }
    for (i = 0; i < 2 && t->o.canonical; i++)
        if (t->unit[u][i] >= 0) GPT_TRY(set_order(t, u, t->unit[u][i]));
    return PAR_OK;
}
// ZeRO gathers parameters beside products. Where NVLink joins the GPUs copy engines do it, and occupy no SM.
static par_result use_copy_engines(trainer *t) {
    par_result r = PAR_OK;
#if defined(GPT_CUDA)
    if (t->cuda && t->o.zero && par_size(t->zero_comm) > 1)
        r = par_cuda_limit_ctas(t->zero_comm, PAR_CUDA_COPY_ENGINES);
#endif
    return (void)t, r == PAR_ERR_UNSUPPORTED ? PAR_OK : r; // by NCCL before 2.28
}
// The optimizer, as the options say.
static void describe_optimizer(const trainer *t, par_zero_desc *d) {
    const settings *o = &t->o;
    d->kernels = t->zero_kernels;
    d->reduction = PAR_ZERO_SUM; // run_action divides the loss by the tokens of all
    d->clip = (float)o->grad_clip;
    d->seed = (uint64_t)o->seed;
    par_dtype_parse(o->dtype, &d->param_dtype);
    par_dtype_parse(o->state_dtype, &d->state_dtype);
    par_zero_optimizer_parse(o->optimizer, &d->optimizer);
    par_zero_hyper *h = &d->hyper[0];
    h->lr = (float)o->learning_rate > 0 ? (float)o->learning_rate : -1;
    h->weight_decay = (float)o->weight_decay;
    h->beta1 = (float)o->beta1 > 0 ? (float)o->beta1 : -1;
    h->beta2 = (float)o->beta2 > 0 ? (float)o->beta2 : -1;
    h->momentum = d->optimizer == PAR_ZERO_SGD ? (float)o->beta1 : 0;
}
// Adds every tensor of this rank's stages to zero. Nothing is allocated yet.
static par_result open_zero(trainer *t) {
    const settings *o = &t->o;
    const gpt_config *g = &o->model;
    par_zero_desc d;
    memset(&d, 0, sizeof d);
    describe_optimizer(t, &d);
    d.comm = t->zero_comm;
    d.model_parallel_comm = t->model_parallel_comm;
    d.tensor_parallel_comm = o->tp > 1 ? t->tp_comm : NULL;
    d.accumulate_unsharded = accumulates_locally(t);
    d.stage = o->zero;
    d.parameter_server = o->parameter_server;
    d.microbatches = t->microbatches / t->schedule.directions;
    d.canonical_shards = o->canonical * o->cp;
    d.max_gathered_units = gpt_is_tied(g) ? 3 : 2;
    d.offload_states = o->offload;
    d.offload_parameters = o->zero == 3 ? o->offload : NULL;
    GPT_TRY(use_copy_engines(t));
    GPT_TRY(par_zero_open(&d, &t->zero));
    for (int i = 0; i < t->model.use_count; i++) t->index[i] = -1;
    for (int u = 0, count = 0; u <= g->n_layer + 1; u++) {
        t->unit[u][0] = t->unit[u][1] = -1;
        if (has_unit(t, u)) GPT_TRY(add_unit(t, u, &count));
    }
    return PAR_OK;
}

// ---- the pipeline -----------------------------------------------------------------------------------------

// The relative cost of each layer per token; the last one's includes the head.
static void estimate_layer_costs(const gpt_config *g, double *layers) {
    const double C = g->n_embd, F = (double)gpt_hidden(g), T = g->block_size;
    for (int l = 0; l < g->n_layer; l++)
        layers[l] =
            4 * C * C + (g->llama ? 3 : 2) * C * F + T * C + (l + 1 == g->n_layer ? C * g->vocab_size : 0);
}
// Partitions the layers into stages of about equal cost, and computes what a microbatch costs and keeps on
// each.
static par_result partition_layers(trainer *t, int stages, int split, par_pipe_stage *costs, size_t rows) {
    const gpt_config *g = &t->o.model;
    double *layers = (double *)calloc((size_t)g->n_layer, sizeof *layers);
    int *first = (int *)calloc((size_t)stages + 1, sizeof *first);
    free(t->stages);
    t->stages = (gpt_stage *)calloc((size_t)stages, sizeof *t->stages);
    if (!layers || !first || !t->stages)
        return par_fail(t->world, PAR_ERR_MEMORY, "out of memory for the stages");
    estimate_layer_costs(g, layers);
    par_pipe_partition(layers, g->n_layer, stages, first);
    t->scratch_bytes = 0;
    for (int i = 0; i < stages; i++) {
        gpt_stage *p = &t->stages[i];
        gpt_buffers b;
        memset(&b, 0, sizeof b);
        b.layers = t->buffers.layers;
        p->first = first[i];
        p->end = first[i + 1];
        p->embed = i == 0;
        p->head = i + 1 == stages;
        for (int halves = 0; halves <= split;
             halves++) { // what is recomputed is scratch for a whole backward
            t->model.split_backward = halves;
            gpt_buffers_layout(&t->model, p, &b, rows); // no error, because it only counts
            t->scratch_bytes = MAX(t->scratch_bytes, b.arena[GPT_SCRATCH].used);
        }
        double f = 1e-3 * layers[0];
        for (int l = p->first; l < p->end; l++) f += layers[l];
        costs[i].f = costs[i].b = costs[i].w = f;
        costs[i].input_bytes = gpt_tokens_bytes(&t->model, rows);
        costs[i].b_bytes = b.arena[GPT_UNTIL_INPUT].used;
        costs[i].w_bytes = b.arena[GPT_UNTIL_WEIGHT].used;
        costs[i].g_bytes = b.arena[GPT_BETWEEN].used;
    }
    free(layers);
    free(first);
    return PAR_OK;
}
static par_result build_schedule(trainer *t, par_pipe_desc *d, par_pipe_schedule *s) {
    const char *name = t->o.schedule;
    const par_result r = is_schedule_file(name) ? par_pipe_load(name, d, s) : par_pipe_schedule_open(d, s);
    if (r) // the library's name of the option may be in it
        return par_fail(t->world, r, "%s%s", s->why,
                        strstr(s->why, "desc.max_activation_bytes") ? " (--max_activation_mb)" : "");
    if (s->ranks != t->o.pp || s->microbatches != t->microbatches)
        return par_fail(
            t->world, PAR_ERR_ARGUMENT,
            "%s has %d ranks and %d microbatches; pp is %d, and each rank of dp has %d microbatches", name,
            s->ranks, s->microbatches, t->o.pp, t->microbatches);
    for (int i = 0; s->directions == 2 && i < s->stages; i++)
        if (s->rank_of[i] + s->rank_of[s->stages + i] != s->ranks - 1)
            return par_fail(t->world, PAR_ERR_ARGUMENT,
                            "%s has stage %d on ranks %d and %d: this trainer wants r and pp - 1 - r", name,
                            i, s->rank_of[i], s->rank_of[s->stages + i]);
    return PAR_OK;
}
// Builds the schedule twice, because the costs of its stages depend on their number.
static par_result open_schedule(trainer *t) {
    const size_t rows = rows_of(t);
    par_pipe_desc d;
    memset(&d, 0, sizeof d);
    d.schedule = t->o.schedule;
    d.ranks = t->o.pp;
    d.microbatches = t->microbatches;
    d.chunks = t->o.chunks;
    d.max_activation_bytes = (size_t)t->o.max_activation_mb * 1000000;
    t->buffers.layers = (gpt_activations *)calloc((size_t)t->o.model.n_layer, sizeof *t->buffers.layers);
    if (!t->buffers.layers) return par_fail(t->world, PAR_ERR_MEMORY, "out of memory");
    GPT_TRY(build_schedule(t, &d, &t->schedule));
    const int stages = t->schedule.stages, split = splits_backward(t);
    t->model.head_in_chunks = !split; // else the halves of its backward are apart, too
    t->model.chunk_rows = (size_t)t->o.head_rows;
    if (split && t->o.head_rows)
        return par_fail(t->world, PAR_ERR_ARGUMENT,
                        "head_rows: schedule %s has backward in halves, between which logits are kept: leave "
                        "it out, or take another schedule",
                        t->o.schedule);
    par_pipe_schedule_close(&t->schedule);
    par_pipe_stage *costs = (par_pipe_stage *)calloc((size_t)stages, sizeof *costs);
    if (!costs) return par_fail(t->world, PAR_ERR_MEMORY, "out of memory for %d stages", stages);
    par_result r = partition_layers(t, stages, split, costs, rows);
    d.stages = costs;
    d.stage_count = stages;
    if (!r) r = build_schedule(t, &d, &t->schedule);
    free(costs);
    if (r) return r;
    const int pp = t->o.pp, me = par_rank(t->pp_comm), pair = MIN(me, pp - 1 - me);
    t->zero_comm = t->data_comm;
    t->model_parallel_comm = t->o.tp * pp > 1 ? t->model_comm : NULL;
    if (t->schedule.directions == 2) {
        if (t->microbatches % 2)
            return par_fail(t->world, PAR_ERR_ARGUMENT,
                            "dualpipe sends half of the microbatches each way: %d is odd", t->microbatches);
        // the two ranks of a stage side by side: their microbatches follow each other
        GPT_TRY(par_split(t->world, pair * t->o.tp + par_rank(t->tp_comm),
                          2 * par_rank(t->data_comm) + (me != pair), &t->zero_comm));
        GPT_TRY(par_split(t->model_comm, me == pair, par_rank(t->model_comm), &t->model_parallel_comm));
    }
    const int embed = has_unit(t, 0), head = has_unit(t, t->o.model.n_layer + 1);
    t->reads_tokens = embed || head || t->o.document_token >= 0;
    for (int i = 0; i < stages; i++) t->stages[i].tied = gpt_is_tied(&t->o.model) && !head_is_apart(t);
    if (!gpt_is_tied(&t->o.model) || stages == 1) return PAR_OK;
    const int side = t->schedule.directions == 2 && me != pair; // each has both ends once
    return par_split(t->pp_comm, embed == head ? -1 : side, me, &t->tied_comm);
}
static par_result open_pipe(trainer *t) {
    par_pipe_exec e;
    void *scratch = NULL;
    memset(&e, 0, sizeof e);
    if (t->o.generate) return PAR_OK;
    e.comm = t->pp_comm;
    e.fn = run_action;
    e.user = t;
    e.broadcast_loss = 1;
    e.device = t->device;
    GPT_TRY(par_pipe_open(&t->schedule, &e, &t->pipe));
    if (t->device->alloc(t->device, t->scratch_bytes, &scratch))
        return par_fail(t->world, PAR_ERR_MEMORY, "out of memory for the activations");
    t->scratch = (char *)scratch;
    return PAR_OK;
}

// Prints the pipeline as simulated with the times of the last step's actions, and the step as it ran, on one
// time scale. Collective over the pipeline.
static void print_pipeline(trainer *t, FILE *out) {
    par_pipe_schedule *s = &t->schedule;
    par_pipe_timeline planned, real;
    must(t->world, par_pipe_timeline_get(t->pipe, &real));
    if (!out || par_pipe_set_costs(s, &real)) return par_pipe_timeline_close(&real);
    must(t->world, par_pipe_simulate(s, PAR_PIPE_NONBLOCKING, &planned));
    const double scale = MAX(planned.makespan, real.makespan);
    fprintf(out, "pipeline as planned, by the last step's own times: %.4g s, bubble %.3f\n", planned.makespan,
            planned.bubble);
    par_pipe_print(s, &planned, 100, scale, out);
    fprintf(out, "pipeline as it ran: %.4g s, bubble %.3f\n", real.makespan, real.bubble);
    par_pipe_print(s, &real, 100, scale, out);
    par_pipe_timeline_close(&planned);
    par_pipe_timeline_close(&real);
}

#include "auto.h"

// ---- the plan ---------------------------------------------------------------------------------------------

// Writes which part of the model a rank has: "embedding, layers 0-2, 9-11, head".
static void print_part(const trainer *t, char *text, size_t capacity) {
    const int head = t->o.model.n_layer + 1;
    int of[2] = {0, 0}, *layers = (int *)calloc((size_t)t->o.model.n_layer, sizeof *layers);
    size_t n = (size_t)snprintf(text, capacity, "%s", has_unit(t, 0) ? "embedding" : "");
    for (int l = 0; l < t->o.model.n_layer && layers; l++) of[1] += layers[l] = has_unit(t, l + 1);
    if (of[1]) {
        n += (size_t)snprintf(text + n, capacity - n, "%slayer%s ", n ? ", " : "", of[1] > 1 ? "s" : "");
        plan_ranges(text + n, capacity - n - 8, layers, t->o.model.n_layer, 1);
    }
    if (!text[0] && !has_unit(t, head)) snprintf(text, capacity, "no layers");
    if (has_unit(t, head))
        snprintf(text + strlen(text), capacity - strlen(text), "%shead", text[0] ? ", " : "");
    free(layers);
}
// Finds the memory that this rank uses, and its size.
static void find_memory(const trainer *t, plan_rank *p) {
    p->memory_id = (uint64_t)par_node_of(t->world, par_rank(t->world)) << 16;
    p->total_bytes = p->parameter_bytes + p->gradient_bytes + p->state_bytes + p->buffer_bytes +
                     p->activation_bytes + p->scratch_bytes;
#if defined(GPT_CUDA)
    size_t unused, all;
    int device;
    if (t->cuda && cudaGetDevice(&device) == cudaSuccess && cudaMemGetInfo(&unused, &all) == cudaSuccess) {
        p->memory_id += (uint64_t)device + 1;
        p->memory_bytes = all;
        snprintf(p->name, sizeof p->name, "GPU %d", device);
        return;
    }
#endif
    p->total_bytes += p->host_bytes;
    p->memory_bytes = plan_machine_memory(p->name, sizeof p->name);
}
// Plans what this rank will hold and send. p: all zero.
static par_result plan_this_rank(trainer *t, plan_rank *p) {
    par_zero_plan z;
    GPT_TRY(par_zero_plan_of(t->zero, &z));
    par_pipe_memory *pipe = (par_pipe_memory *)calloc((size_t)t->schedule.ranks, sizeof *pipe);
    if (!pipe) return par_fail(t->world, PAR_ERR_MEMORY, "out of memory to plan");
    const par_result r = par_pipe_verify(&t->schedule, PAR_PIPE_NONBLOCKING, pipe);
    t->planned_bytes = pipe[par_rank(t->pp_comm)].pool_bytes;
    free(pipe);
    if (r) return par_fail(t->world, PAR_ERR_ARGUMENT, "%s", t->schedule.why);
    p->parameter_bytes = z.parameter_bytes;
    p->gradient_bytes = z.gradient_bytes;
    p->state_bytes = z.state_bytes;
    p->buffer_bytes = z.buffer_bytes;
    p->host_bytes = z.host_bytes;
    p->file_bytes = z.file_bytes;
    p->sum_bytes = z.reduce_bytes;
    p->gather_bytes = z.gather_bytes;
    p->activation_bytes = t->planned_bytes;
    p->scratch_bytes = t->scratch_bytes;
    if (t->model.head_in_chunks && has_unit(t, t->o.model.n_layer + 1))
        p->scratch_bytes += par_tp_head_bytes(t->tp, &t->model.head, rows_of(t), t->model.chunk_rows);
    print_part(t, p->what, sizeof p->what);
    FILE *text = fmemopen(p->zero, sizeof p->zero, "w");
    if (text) {
        par_zero_plan_print(t->zero, text);
        fclose(text);
    }
    find_memory(t, p);
    return PAR_OK;
}
// Prints the plan before anything is allocated. Collective. MEMORY if the plan does not fit.
static par_result print_plan(trainer *t) {
    if (!t->o.plan) return PAR_OK;
    const int ranks = par_size(t->world), root = par_rank(t->world) == 0;
    plan_rank mine, *all = root ? (plan_rank *)calloc((size_t)ranks, sizeof *all) : NULL;
    memset(&mine, 0, sizeof mine);
    par_result r = root && !all ? par_fail(t->world, PAR_ERR_MEMORY, "out of memory to plan") : PAR_OK;
    if (!r) r = plan_this_rank(t, &mine);
    if (!r) r = par_gather(&mine, all, sizeof mine, PAR_U8, 0, t->world);
    if (!r && root && t->o.json) json_print("plan:%b parameters:%zu", 1, t->model.total_count);
    if (!r && root && !t->o.json) printf("a model of %.4g parameters\n", (double)t->model.total_count);
    int fits = !r && root ? plan_print(all, ranks, stdout, t->o.json) : 0;
    free(all);
    if (r) return r;
    GPT_TRY(par_broadcast(&fits, &fits, 1, PAR_I32, 0, t->world));
    if (fits > 0) return PAR_OK;
    return par_fail(
        t->world, PAR_ERR_MEMORY,
        fits ? "out of memory to plan"
             : "the plan takes more memory than there is: nothing was allocated (fewer bytes: --zero, "
               "--pp, --tp, --recompute, a smaller --batch_size, --offload)");
}
// Did the run allocate exactly what --plan printed?
static int plan_is_exact(const trainer *t) {
    const par_zero_plan real = par_zero_allocated(t->zero);
    par_zero_plan p;
    return !par_zero_plan_of(t->zero, &p) && p.parameter_bytes == real.parameter_bytes &&
           p.gradient_bytes == real.gradient_bytes && p.state_bytes == real.state_bytes &&
           p.buffer_bytes == real.buffer_bytes && p.host_bytes == real.host_bytes &&
           p.file_bytes == real.file_bytes && t->planned_bytes == par_pipe_allocated(t->pipe);
}

static par_result alloc_token_buffers(trainer *t) {
    const gpt_config *g = &t->o.model;
    const size_t bytes = documents_at(t, t->microbatches) * sizeof(int32_t);
    par_device *d = t->device;
    void *x = NULL, *loss = NULL, *target_count = NULL;
    t->index = (int *)calloc((size_t)t->model.use_count, sizeof(int));
    t->unit = (int(*)[2])calloc((size_t)g->n_layer + 2, sizeof *t->unit);
    t->sequence = (int32_t *)calloc(2 * (size_t)g->block_size, sizeof(int32_t));
    t->offsets = (size_t *)calloc((size_t)t->microbatch * (size_t)g->block_size + 1, sizeof(size_t));
    int bad = !t->index || !t->unit || !t->sequence || !t->offsets || d->alloc(d, bytes, &x) ||
              d->alloc(d, 64, &loss) || d->alloc(d, 64, &target_count);
    for (int i = 0; i < FLIGHTS; i++) {
        flight *f = &t->flights[i];
        void *tokens = NULL, *control = NULL;
        bad |= d->alloc_host(d, bytes, &tokens) || d->alloc_host(d, sizeof *f->control + 64, &control);
        f->tokens = (int32_t *)tokens;
        f->control = (par_zero_control *)control;
        f->loss = (double *)(void *)(f->control + 1);
        f->dropout_offset = (uint64_t *)(void *)(f->loss + 1);
    }
    t->x = (int32_t *)x;
    t->device_loss = (double *)loss;
    t->dropout_offset = (uint64_t *)(void *)(t->device_loss + 1);
    t->target_count = (size_t *)target_count;
    if (!bad) par_tp_set_dropout_offset(t->tp, t->dropout_offset);
    return bad ? par_fail(t->world, PAR_ERR_MEMORY, "out of memory for the tokens") : PAR_OK;
}
static par_result commit_zero(trainer *t) { return par_zero_commit(t->zero); }
static par_result lock_save(trainer *t) { // nobody else saves there, from before this run loads it
    const par_zero_checkpoint f = checkpoint_files(t, t->o.save);
    return t->o.save ? par_zero_lock(t->zero, &f) : PAR_OK;
}
static par_result load_or_init_weights(trainer *t) {
    if (t->o.plan && !plan_is_exact(t))
        return par_fail(t->world, PAR_ERR_MEMORY, "what was allocated is not what was planned");
    const char *why = t->o.load ? load_weights(t) : init_weights(t);
    t->model.on_phase = on_unit_phase;
    t->model.user = t;
    if (why && why != par_last_error(t->world)) par_fail(t->world, PAR_ERR_FILE, "%s", why);
    return why ? PAR_ERR_FILE : PAR_OK;
}
// Sets up the training in steps; if one fails on any rank all ranks stop. 0, or 1: the error has been
// printed.
static int set_up(trainer *t) {
    par_result (*const steps[])(trainer *) = {
        try_outputs, open_device, choose_gemm, auto_layout, open_grid, alloc_token_buffers, open_schedule,
        open_zero,   print_plan,  commit_zero, lock_save,   open_pipe, load_or_init_weights};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (any_rank_failed(t, steps[i](t) ? par_last_error(t->world) : NULL)) return 1;
    return 0;
}

static void close_inputs(trainer *t) { // what prepare made, as far as it came
    data_close(&t->data);
    tokenizer_close(&t->text_tokenizer);
    free(t->prompt);
    free(t->o.given);
}
static void tear_down(trainer *t) { // what set_up made, likewise
#if defined(GPT_CUDA)
    if (t->graph) cudaGraphExecDestroy(t->graph); // before the comms whose calls it has
#endif
    must(t->world, par_pipe_close(t->pipe));
    if (t->scratch) t->device->free(t->device, t->scratch);
    void *const memory[] = {t->x, t->device_loss, t->target_count};
    for (int i = 0; i < 3; i++)
        if (memory[i]) t->device->free(t->device, memory[i]);
    for (int i = 0; i < FLIGHTS; i++) {
        if (t->flights[i].tokens) t->device->free_host(t->device, t->flights[i].tokens);
        if (t->flights[i].control) t->device->free_host(t->device, t->flights[i].control);
        if (t->flights[i].done) t->device->event_free(t->device, t->flights[i].done);
    }
    if (t->tied_comm) must(t->world, par_close(t->tied_comm));
    if (t->zero) must(t->world, par_zero_close(t->zero));
    if (t->schedule.directions == 2 && t->model_parallel_comm && t->model_parallel_comm != t->model_comm) {
        must(t->world, par_close(t->model_parallel_comm));
        must(t->world, par_close(t->zero_comm));
    }
    par_pipe_schedule_close(&t->schedule);
    if (t->tp) must(t->world, par_tp_close(t->tp));
    if (t->mesh) must(t->world, par_mesh_close(t->mesh));
    gpt_buffers_close(&t->model, &t->buffers);
    gpt_close(&t->model);
    free(t->sequence);
    free(t->offsets);
    free(t->index);
    free(t->unit);
    free(t->stages);
}

static void print_run(const trainer *t, FILE *out) { // what works on which data, and how those were read
    const settings *o = &t->o;
    const dataset *d = &t->data;
    char text[512];
    const char *type = data_type_names[d->files[0].type];
    for (size_t i = 1; i < d->file_count; i++)
        if (d->files[i].type != d->files[0].type) type = "several types";
    fprintf(out,
            "gpt: %zu parameters, %d ranks (%s), pp %d x dp %d x cp %d x tp %d, %g tokens a step, matrix "
            "products by %s, %s\n",
            t->model.total_count, par_size(t->world), par_launch_method(t->world), o->pp,
            par_mesh_size(t->mesh, "dp"), o->cp, o->tp,
            (double)o->batch_size * o->accumulation_steps * o->model.block_size,
            gemm_text(t, text, sizeof text), t->device->name);
    fprintf(out, "data: %zu tokens, %zu held out, %s in %zu file%s, vocabulary %d\n",
            d->subsets[0].token_count, d->subsets[1].token_count, type, d->file_count,
            d->file_count > 1 ? "s" : "", d->vocab_size);
    if (!o->saved_decay_iters || !o->decay_lr) return;
    if (o->lr_decay_iters != o->saved_decay_iters)
        fprintf(out, "lr_decay_iters is %d; when the checkpoint was saved it was %d\n", o->lr_decay_iters,
                o->saved_decay_iters);
    else if (o->lr_decay_iters < o->max_iters)
        fprintf(out,
                "lr_decay_iters is %d, as when the checkpoint was saved: after it the learning rate stays %g "
                "(--lr_decay_iters %d takes all steps)\n",
                o->lr_decay_iters, o->min_lr, o->max_iters);
}

// Waits until at most so many steps are in flight, and reports those that finish. 0, or 1: the error has been
// printed.
static int finish_steps(trainer *t, int in_flight) {
    const int root = par_rank(t->world) == 0;
    while (t->enqueued - t->finished > in_flight) {
        const flight *f = finish_step(t);
        if (root) report(t, f);
        if (isfinite(t->loss)) continue;
        return root ? print_error("the loss is no longer finite; try a lower learning_rate") : 1;
    }
    return 0;
}
static void print_end(const trainer *t, double seconds, double val) {
    const int steps = t->step - t->first_step;
    if (steps)
        printf("%d steps in %.1f s: loss %.4f -> %.4f", steps, seconds, t->first_loss, t->loss);
    else
        printf("no step is left to do: it is at step %d, and max_iters is %d", t->step, t->o.max_iters);
    printf(t->o.eval_iters ? ", held-out %.4f\n" : "\n", val);
}
static void print_end_json(const trainer *t, double seconds, double val) { // null: no step, no evaluation
    json_line j = json_begin(stdout);
    json_add(&j, "final:%b step:%d first_loss:%?.9g loss:%?.9g", 1, t->step, t->first_loss, t->loss);
    json_add(&j, t->o.eval_iters ? "val_loss:%.9g" : "val_loss:%?.9g", val);
    json_add(&j, "seconds:%.6g ranks:%d gemm:%s gemm_gflops:%?.1f gemm_bf16:%s", seconds, par_size(t->world),
             gemm_name(t), gemm_rate(t), bf16_name(t));
    json_end(&j);
}
static int train(trainer *t) {
    const settings *o = &t->o;
    const int root = par_rank(t->world) == 0, in_flight = t->device == par_cpu() ? 0 : FLIGHTS - 1;
    double val = (double)NAN; // not measured, as losses where no step is left
    FILE *out = o->json ? stderr : stdout;
    if (root) print_run(t, out);
    t->first_step = t->step;
    t->first_loss = t->loss = (double)NAN;
    t->begun = par_seconds(t->world);
    for (; t->step < o->max_iters; t->step++) {
        const int evaluates = o->eval_iters && o->eval_interval && t->step % o->eval_interval == 0 &&
                              t->step > t->first_step,
                  saves = o->save && o->save_interval && (t->step + 1) % o->save_interval == 0;
        if (evaluates) {
            if (finish_steps(t, 0)) return 1;
            val = evaluate(t);
            if (root && o->json) json_print("step:%d val_loss:%.9g", t->step, val);
            if (root && !o->json)
                printf("%sstep %d  held-out loss %.4f\n", isatty(1) ? "\n" : "", t->step, val);
        }
        train_step(t);
        if (finish_steps(t, saves ? 0 : in_flight)) return 1;
        if (saves) {
            t->step++;
            const par_result r = save_checkpoint(t, 0);
            t->step--;
            if (r) return root ? print_error(par_last_error(t->world)) : 1;
        }
    }
    if (finish_steps(t, 0)) return 1;
    const double seconds = par_seconds(t->world) - t->begun;
    if (o->plan && o->pp > 1 && t->step > t->first_step) print_pipeline(t, root ? out : NULL);
    if (o->eval_iters) val = evaluate(t);
    if (o->save) {
        if (save_checkpoint(t, 1)) return root ? print_error(par_last_error(t->world)) : 1;
        if (root) fprintf(out, "saved %s\n", o->save);
    }
    if (o->exported) {
        if (export_weights(t)) return 1;
        if (root) fprintf(out, "exported %s\n", o->exported);
    }
    if (root && !o->json) print_end(t, seconds, val);
    if (o->sample && (!o->json || o->prompt)) { // JSON has a sample if one is asked for
        if (root && !o->json) printf("---- sample ----\n");
        must(t->world, generate(t, 1));
        if (root && !o->json) printf("----------------\n");
    }
    if (!root) return 0;
    if (o->json) print_end_json(t, seconds, val);
    return isfinite(val) || !o->eval_iters
               ? 0
               : print_error("the held-out loss is not finite; try a lower learning_rate");
}

// Reads what a rank can read without the others: settings, data, tokenizer, prompt. NULL, or an error text.
static const char *prepare(trainer *t) {
    settings *o = &t->o;
    const char *why = o->generate ? generate_settings(o) : NULL;
    if (!why && o->load) why = load_model(o);
    if (!why) why = check_settings(o);
    if (!why && !o->generate) why = open_data(t);
    if (!why && o->tokenizer) why = tokenizer_open(&t->text_tokenizer, o->tokenizer, o->model.vocab_size);
    const char *prompt = o->generate ? o->generate : o->prompt;
    if (why || !prompt) return why;
    return generate_parse(o->generate ? "--generate" : "--prompt", prompt, o->model.vocab_size, &t->prompt,
                          &t->prompt_count);
}
// Opens the world. A rank that no launcher has started reports wrong settings before others start. 0, or 1:
// the error has been printed.
static int open_world(trainer *t, int launched) {
    par_desc desc, full;
    memset(&desc, 0, sizeof desc);
    desc.rank_count = t->o.ranks;
    desc.trace = t->o.trace;
    if (!launched) {
        const char *why = prepare(t);
        if (!why && par_defaults(&desc, &full)) return 1;
        if (!why) why = check_global_batch(t, full.rank_count ? full.rank_count : 1);
        if (why) return print_error(why);
    }
    return par_open(&desc, &t->world) != PAR_OK;
}
// Closes the world, which also writes the trace. Returns the program's exit status.
static int close_world(trainer *t, int failed) {
    const settings *o = &t->o;
    const int traced = o->trace && !o->generate && !failed && par_rank(t->world) == 0;
    const par_result closed = par_close(t->world);
    if (traced && closed == PAR_OK)
        fprintf(o->json ? stderr : stdout, "trace: %s (open it in ui.perfetto.dev)\n", o->trace);
#if defined(GPT_CUDA)
    par_cuda_close(t->cuda);
#endif
    return output_failed("gpt") || failed || closed != PAR_OK;
}

int main(int argc, char **argv) {
    trainer t;
    memset(&t, 0, sizeof t);
    const int parsed = parse_settings(&t.o, argc, argv);
    // Ranks of a launcher first meet, and then say what is wrong: none waits for one that has ended.
    const int launched = par_launched(NULL);
    if (parsed == 1 || (parsed && !launched)) return parsed == 1 ? 0 : 2;
    if (open_world(&t, launched)) return close_inputs(&t), 1;
    const char *why = parsed ? "its options cannot be used" : launched ? prepare(&t) : NULL;
    if (!why) why = check_global_batch(&t, par_size(t.world));
    int failed = any_rank_failed(&t, why) || set_up(&t);
    if (!failed && t.o.generate) must(t.world, generate(&t, 0));
    if (!failed && !t.o.generate) failed = train(&t);
    if (!launched && par_rank(t.world)) failed = 0; // rank 0, which has started this one, ends with the error
    tear_down(&t);
    close_inputs(&t);
    return close_world(&t, failed);
}

// plan.c - which strategy when: the best layouts of a model on a machine, why they are, and how right such
// predictions are. A program around par_plan.h; it needs no ranks and no GPU.
//
//     build/plan --model gpt3-175b --nodes 64 --gpu a100-80 --batch 2048 --seq 2048
//     build/plan --model config.json --gpus 8 --gpu h100 --batch 64 --seq 8192 --svg plan.svg
//     build/plan ... --compare "pp=8 tp=8 zero=1"      build/plan ... --what_if gpus=256,512,1024
//     build/plan --validate tests/plan_published.csv
#define PAR_IMPLEMENTATION
#include "par_plan.h"

#include "options.h"
#include "output.h"
#include "published.h"

// The trainer's reader of a config.json, which knows what the trainer has.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "gpt/model.h"
#include "gpt/files.h"
#pragma GCC diagnostic pop

enum { TOP_MAX = 100, SIMULATED = 100, ACTIONS = 20000, GPUS_MAX = 16, TEXT_MAX = 1 << 20 };
enum {
    LAYOUTS = 1 << PAR_PLAN_AXIS_tp | 1 << PAR_PLAN_AXIS_pp | 1 << PAR_PLAN_AXIS_cp | 1 << PAR_PLAN_AXIS_dp
};

typedef struct settings {
    const char *model, *ignored, *gpu, *svg, *what_if, *compare, *fix, *validate;
    int nodes, gpus, batch, sequence, top, json, fp8, fp4, simulate, why, list;
    double memory_gb;
} settings;

// ---- inputs -----------------------------------------------------------------------------------------------

// Reads a file of at most TEXT_MAX bytes; free it. NULL: an error was printed.
static char *read_text(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *text = (char *)malloc(TEXT_MAX + 1);
    if (!file || !text) {
        fprintf(stderr, "plan: cannot read %s: %s\n", path, file ? "out of memory" : strerror(errno));
        if (file) fclose(file);
        return free(text), NULL;
    }
    *bytes = fread(text, 1, TEXT_MAX + 1, file);
    const int failed = ferror(file);
    fclose(file);
    if (!failed && *bytes <= TEXT_MAX) return text[*bytes] = 0, text;
    fprintf(stderr, "plan: cannot read %s: %s\n", path, failed ? "an error" : "it is larger than a megabyte");
    return free(text), NULL;
}
static int is_file(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}
// What this kit's trainer reads of the same config.json, which is a text.
typedef struct trained {
    gpt_config config; // zeros: there is no such file
    char why[256];     // what the trainer does not take of it; "": it takes all
} trained;
// A size that is left out may be another one for the planner than for transformers, whose the trainer takes.
static void find_trained(const char *text, const char *unused, const par_plan_model *model, trained *t) {
    if (files_config_of(text, "its config.json", unused, &t->config, t->why, sizeof t->why)) return;
    const double parameters = par_plan_parameters(model), read = (double)gpt_parameter_count(&t->config);
    if (fabs(parameters - read) >= 1)
        snprintf(t->why, sizeof t->why,
                 "its config.json leaves out sizes: %.0f parameters were planned, and it reads %.0f",
                 parameters, read);
}
// Of the table, or a config.json; 1, or 0. unused: keys that the trainer need not know.
static int load_model(const char *name, const char *unused, par_plan_model *model, trained *t) {
    char why[256], ignored[4096], path[4200];
    size_t bytes;
    memset(t, 0, sizeof *t);
    if (!par_plan_model_get(name, model)) return 1;
    snprintf(path, sizeof path, "%.4000s/config.json", name);
    const char *file = is_file(name) ? name : is_file(path) ? path : NULL;
    if (!file) {
        fprintf(stderr, "plan: no model %s, and no such file%s (--list shows all)\n", name,
                par_plan_model_suggest(name).text);
        return 0;
    }
    char *text = read_text(file, &bytes);
    if (!text) return 0;
    const par_result r = par_plan_model_read(text, bytes, model, ignored, sizeof ignored, why, sizeof why);
    if (!r) find_trained(text, unused, model, t);
    free(text);
    if (r) fprintf(stderr, "plan: %s: %s\n", file, why);
    if (!r && ignored[0]) fprintf(stderr, "plan: %s: ignored: %s\n", file, ignored);
    return r == PAR_OK;
}
static int load_machine(const char *name, par_plan_machine *machine) { // of the table, or a file; 1, or 0
    char why[256];
    size_t bytes;
    if (!par_plan_machine_get(name, machine)) return 1;
    if (!is_file(name)) {
        fprintf(stderr, "plan: no GPU %s, and no such file%s (--list shows all)\n", name,
                par_plan_machine_suggest(name).text);
        return 0;
    }
    char *text = read_text(name, &bytes);
    if (!text) return 0;
    const par_result r = par_plan_machine_read(text, bytes, machine, why, sizeof why);
    free(text);
    if (r) fprintf(stderr, "plan: %s: %s\n", name, why);
    return r == PAR_OK;
}

// ---- planning ---------------------------------------------------------------------------------------------

typedef struct plan {
    par_plan_problem problem;
    par_plan_machine whole; // the machine before --gpus took a part of it
    trained trained;
    par_plan_config fixed; // members that are given
    unsigned mask;
    par_plan_choice choices[TOP_MAX];
    par_plan_report report;
} plan;

// Takes so many GPUs of the machine, or the most that are whole nodes.
static void take_gpus(par_plan_machine *machine, int gpus) {
    const int used = set_gpus(machine, gpus);
    if (used != gpus)
        fprintf(stderr, "plan: %d GPUs are not whole nodes of %.0f: planned for %d\n", gpus,
                machine->gpus_per_node, used);
}
static int gpus_of(const par_plan_problem *p) { return (int)(p->machine.nodes * p->machine.gpus_per_node); }

// Puts a choice where it belongs by its time: in place of a slower one of the same layout, or of the last.
static void insert_choice(plan *x, int top, const par_plan_choice *c) {
    int *count = &x->report.count, end = -1, at;
    for (int i = 0; i < *count && end < 0; i++) {
        int same = 1;
        for (int k = 0; k < PAR_PLAN_AXIS_COUNT; k++)
            same &= !(LAYOUTS >> k & 1) ||
                    par_plan_axis_get(&x->choices[i].config, k) == par_plan_axis_get(&c->config, k);
        if (same && x->choices[i].prediction.seconds <= c->prediction.seconds) return;
        if (same) end = i;
    }
    if (end < 0)
        end = *count < top ? (*count)++ : *count - 1;
    else
        x->choices[end].prediction.seconds = 1e300;
    for (at = 0; at < end && x->choices[at].prediction.seconds <= c->prediction.seconds; at++) {
    }
    if (at == end && x->choices[end].prediction.seconds <= c->prediction.seconds && end + 1 == top) return;
    memmove(&x->choices[at + 1], &x->choices[at], (size_t)(end - at) * sizeof x->choices[0]);
    x->choices[at] = *c;
}
// The best `top` layouts. With simulate their bubbles are simulated, and those of the best hundred choices
// that differ in layout or schedule.
static par_result search_once(plan *x, int top, int simulate) {
    const unsigned schedules = LAYOUTS | 1 << PAR_PLAN_AXIS_schedule | 1 << PAR_PLAN_AXIS_chunks;
    par_plan_report report;
    par_result r = par_plan_search(&x->problem, &x->fixed, x->mask, LAYOUTS, x->choices, top, &x->report);
    if (r || !simulate) return r;
    par_plan_choice *more = (par_plan_choice *)malloc(SIMULATED * sizeof *more);
    if (!more) r = PAR_ERR_MEMORY;
    if (!r) r = par_plan_simulate(&x->problem, x->choices, x->report.count, ACTIONS);
    if (!r) r = par_plan_search(&x->problem, &x->fixed, x->mask, schedules, more, SIMULATED, &report);
    if (!r) r = par_plan_simulate(&x->problem, more, report.count, ACTIONS);
    for (int i = 0; !r && i < report.count; i++) insert_choice(x, top, &more[i]);
    free(more);
    if (!r) return PAR_OK;
    snprintf(x->report.why, sizeof x->report.why, "out of memory for a simulation");
    return PAR_ERR_SYSTEM;
}
// The same for another number of GPUs.
static par_result search_with(plan *x, int gpus, int top, int simulate) {
    x->problem.machine = x->whole;
    set_gpus(&x->problem.machine, gpus);
    return search_once(x, top, simulate);
}
// GPUs by which their number changes: whole nodes, or, within a node, one.
static int node_of(const plan *x, int gpus) {
    return gpus > x->whole.gpus_per_node ? (int)x->whole.gpus_per_node : 1;
}
// More GPUs, where memory is at fault: twice as many until something fits, then the fewest that do, of up to
// 64 numbers between.
static par_result search_more(plan *x, int asked, int top) {
    int few = asked, many = asked;
    par_result r = PAR_ERR_MEMORY;
    while (r == PAR_ERR_MEMORY && many <= 32768) {
        few = many;
        many = 2 * many / node_of(x, 2 * many) * node_of(x, 2 * many);
        r = search_with(x, many, top, 0);
    }
    if (r) return r;
    const int node = node_of(x, many), step = (many - few + 64 * node - 1) / (64 * node) * node;
    for (int gpus = few / node * node + step; gpus < many; gpus += step) {
        r = search_with(x, gpus, top, 0);
        if (r != PAR_ERR_MEMORY && r != PAR_ERR_ARGUMENT) return r;
    }
    return search_with(x, many, top, 0);
}
// Another number of GPUs, where layouts are at fault.
static par_result search_near(plan *x, int asked, int top) {
    par_result r = PAR_ERR_ARGUMENT;
    for (int i = 1; i < 64; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const int gpus = asked + sign * i * node_of(x, asked);
            if (gpus < 1 || gpus > 65536) continue;
            r = search_with(x, gpus, top, 0);
            if (r != PAR_ERR_ARGUMENT && r != PAR_ERR_MEMORY) return r;
        }
    for (int gpus = asked / 2; r == PAR_ERR_ARGUMENT && gpus >= 1; gpus /= 2)
        r = search_with(x, gpus, top, 0);
    return r;
}
// Shorter sequences, where no number of GPUs has memory enough: a multiple of what ranks may divide it by,
// then halves.
static par_result search_shorter(plan *x, int top) {
    const int multiple = 2 * gpus_of(&x->problem);
    par_result r = PAR_ERR_MEMORY;
    for (int s = (int)x->problem.job.sequence; r == PAR_ERR_MEMORY && s >= multiple; s /= 2) {
        x->problem.job.sequence = s / multiple * multiple;
        r = search_once(x, top, 0);
    }
    return r;
}
// Searches. Where no configuration exists or fits, it takes the nearest number of GPUs that works, or the
// nearest shorter sequence, and says so.
static par_result search_nearest(plan *x, int top, int simulate) {
    const par_plan_problem problem = x->problem;
    const int asked = gpus_of(&problem);
    par_result r = search_once(x, top, simulate);
    if (!r || r == PAR_ERR_SYSTEM) return r;
    const par_plan_report first = x->report;
    const int memory = r == PAR_ERR_MEMORY;
    char nearest[64];
    r = memory ? search_more(x, asked, top) : search_near(x, asked, top);
    snprintf(nearest, sizeof nearest, "%d GPU%s", gpus_of(&x->problem), gpus_of(&x->problem) > 1 ? "s" : "");
    if (memory && r && r != PAR_ERR_SYSTEM) {
        x->problem = problem;
        r = search_shorter(x, top);
        snprintf(nearest, sizeof nearest, "sequences of %.0f tokens", x->problem.job.sequence);
    }
    if (!r) {
        fprintf(stderr, "plan: %s. The nearest that works: %s.\n", first.why, nearest);
        return simulate ? search_once(x, top, simulate) : r;
    }
    x->problem = problem;
    x->report = first;
    return r;
}
static void print_choice(const par_plan_choice *c, const char *mark) {
    char layout[256];
    par_plan_format(&c->config, 1, layout, sizeof layout);
    printf("%s%10.4g s %5.1f%% %11.0f %6.1f GB  %s\n", mark, c->prediction.seconds, 100 * c->prediction.mfu,
           c->prediction.tokens_per_second, c->prediction.bytes / 1e9, layout[0] ? layout : "one rank");
}
static void print_times(const par_plan_choice *c) {
    const char *comma = "";
    printf("  seconds:");
#define X(member, what)                                                                                      \
    if (c->prediction.times.member > 0) {                                                                    \
        printf("%s %s %.4g", comma, #member, c->prediction.times.member);                                    \
        comma = ",";                                                                                         \
    }
    PAR_PLAN_TIMES(X)
#undef X
    printf("\n  GB:");
    comma = "";
#define X(member, what)                                                                                      \
    printf("%s %s %.4g", comma, #member, c->prediction.memory.member / 1e9);                                 \
    comma = ",";
    PAR_PLAN_BYTES(X)
#undef X
    printf("\n");
}
static void json_choice(json_line *j, const par_plan_choice *c) {
    char format[64], layout[256];
    par_plan_format(&c->config, 1, layout, sizeof layout);
    json_add(j, "layout:%s", layout);
    for (int i = 0; i < PAR_PLAN_AXIS_COUNT; i++) {
        snprintf(format, sizeof format, "%s:%%d", par_plan_axis_name(i));
        json_add(j, format, par_plan_axis_get(&c->config, i));
    }
    const par_plan_prediction *p = &c->prediction;
    json_add(j,
             "microbatches:%d seconds:%.6g tokens_per_second:%.6g tflops_per_gpu:%.5g mfu:%.4f bound_by:%s",
             p->microbatches, p->seconds, p->tokens_per_second, p->flops_per_gpu / 1e12, p->mfu,
             par_plan_bound_by(p));
#define X(member, what) json_add(j, #member "_seconds:%.5g", p->times.member);
    PAR_PLAN_TIMES(X)
#undef X
    json_add(j, "bytes:%.6g", p->bytes);
#define X(member, what) json_add(j, #member "_bytes:%.6g", p->memory.member);
    PAR_PLAN_BYTES(X)
#undef X
}
static void say(void *user, const char *axis, const char *sentence) {
    if (*(const int *)user)
        json_print("axis:%s reason:%s", axis, sentence);
    else
        printf("  %s\n", sentence);
}
// Why this kit's trainer cannot train it; NULL: it can.
static const char *untrainable(const plan *x) {
    const par_plan_model *m = &x->problem.model;
    if (x->trained.why[0]) return x->trained.why;
    if (x->trained.config.rotary.factor > 0) return "it has no option for scaled rotary positions";
    if (!strcmp(m->name, "mistral") && x->trained.config.positions < x->problem.job.sequence)
        return "it has no sliding window, and sequences are longer than this one";
    if (m->gated && m->positions) return "it has no SwiGLU with learned positions";
    if (m->gated && m->has_bias) return "it has no SwiGLU with biases";
    if (!m->gated && !m->positions) return "it has GELU with learned positions alone";
    if (!m->gated && !m->has_bias) return "it has no norms with biases beside products without";
    if (!m->gated && !m->tied) return "its GPT-2 has the embedding's weight as its head's";
    if (!m->gated && m->positions < x->problem.job.sequence) return "sequences are longer than its positions";
    return NULL;
}
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t capacity, const char *format,
                                                         ...) {
    va_list list;
    const size_t n = strlen(text);
    va_start(list, format);
    vsnprintf(text + n, capacity - n, format, list);
    va_end(list);
}
// The command that trains it as planned.
static void format_launch(const plan *x, char *text, size_t capacity) {
    const par_plan_config *c = &x->choices[0].config;
    const par_plan_problem *p = &x->problem;
    const par_plan_model *m = &p->model;
    const char *program = p->machine.sm_count > 0 ? "build/gpt_cuda" : "build/gpt";
    text[0] = 0;
    if (p->machine.sm_count > 0 || p->machine.nodes > 1)
        append(text, capacity, "torchrun --no-python --nnodes %.0f --nproc-per-node %.0f %s",
               p->machine.nodes, p->machine.gpus_per_node, program);
    else
        append(text, capacity, "%s --ranks %.0f", program, p->machine.gpus_per_node);
    append(
        text, capacity,
        " --data FILE --arch %s --dtype bf16 --n_layer %d --n_head %d --n_kv_head %d --n_embd %d --n_hidden "
        "%d --block_size %.0f --vocab_size %d --pp %d --tp %d --cp %d --zero %d --batch_size %d "
        "--gradient_accumulation_steps %.0f",
        m->gated ? "llama" : "gpt2", m->layers, m->heads, m->kv_heads, m->features, m->hidden,
        p->job.sequence, m->vocab, c->pp, c->tp, c->cp, c->zero, c->microbatch, p->job.batch / c->microbatch);
    if (m->head_dim * m->heads != m->features) append(text, capacity, " --head_dim %d", m->head_dim);
    if (m->positions > p->job.sequence) append(text, capacity, " --n_positions %d", m->positions);
    if (m->gated && m->tied) append(text, capacity, " --tied");
    const double base = x->trained.config.rotary.base, epsilon = x->trained.config.epsilon;
    if (base > 0) append(text, capacity, " --rope_theta %.9g", base);
    if (epsilon > 0) append(text, capacity, " --norm_epsilon %.6g", epsilon);
    if (c->tp > 1) append(text, capacity, " --tp_sums bf16");
    if (c->sp) append(text, capacity, " --sp");
    if (c->cp > 1) append(text, capacity, " --cp_mode %s", c->ulysses ? "ulysses" : "ring");
    if (c->pp > 1) append(text, capacity, " --schedule %s", par_plan_schedule_names[c->schedule]);
    if (c->chunks > 1) append(text, capacity, " --chunks %d", c->chunks);
    if (c->recompute) append(text, capacity, " --recompute %s", par_plan_recompute_names[c->recompute]);
    if (c->fp8) append(text, capacity, " --fp8 %s", par_plan_recipe_names[c->fp8]);
    if (c->schedule == PAR_PIPE_AUTO)
        append(text, capacity, " --max_activation_mb %.0f",
               par_plan_activation_room(p, &x->choices[0].prediction) / 1e6);
    if (c->offload & PAR_PLAN_OFFLOAD_DISK)
        append(text, capacity, " --offload file:DIR");
    else if (c->offload & PAR_PLAN_OFFLOAD_STATES)
        append(text, capacity, " --offload host");
}
static void print_launch(const plan *x) { // the same training by this kit's trainer
    const par_plan_config *c = &x->choices[0].config;
    char text[1200];
    const char *why = untrainable(x);
    if (why) return (void)printf("\nthis kit's trainer cannot train it: %s\n", why);
    format_launch(x, text, sizeof text);
    printf("\nwith this kit's trainer%s:\n  %s\n", x->problem.machine.nodes > 1 ? ", on each node" : "",
           text);
    if (c->zero && c->shard != c->dp * c->cp)
        printf("  (the trainer shards states over all of dp x cp; groups of %d: desc.replica_comm of "
               "par_zero.h)\n",
               c->shard);
    if (c->offload & PAR_PLAN_OFFLOAD_ACTIVATIONS) printf("  (the trainer does not offload activations)\n");
}
static void print_plan(const plan *x, const settings *o) {
    const par_plan_report *r = &x->report;
    printf("%s (%.4g parameters) on %d %s, batch %d of %d tokens\n%.0f configurations, %.0f evaluated, %.0f "
           "left out by bounds, %.3f s%s\n\n",
           x->problem.model.name, par_plan_parameters(&x->problem.model), gpus_of(&x->problem),
           x->problem.machine.name, o->batch, (int)x->problem.job.sequence, r->configurations, r->evaluated,
           r->bounded, r->seconds, r->proved ? ": nothing faster was left out" : "");
    printf("   step time    MFU    tokens/s    memory  layout (what is not named is 1, none or off)\n");
    for (int i = 0; i < r->count; i++) print_choice(&x->choices[i], "");
    printf("\nthe best:\n");
    print_times(&x->choices[0]);
    if (o->why) printf("\nwhy:\n");
}

// ---- comparing --------------------------------------------------------------------------------------------

// The reason is what is wrong with the nearest layout if it has the value that was asked for.
static void say_impossible(const par_plan_problem *p, const char *option, int axis, int value,
                           const char *nearest, const par_plan_config *c) {
    char word[64], why[320] = "";
    unsigned bit;
    par_plan_config wrong = *c;
    snprintf(word, sizeof word, "%s=%d", par_plan_axis_name(axis), value);
    if (par_plan_parse(word, &wrong, &bit, why, sizeof why) == PAR_OK)
        par_plan_check(p, &wrong, why, sizeof why);
    fprintf(stderr, "plan: %s: %s is impossible here; the nearest that works: %s (%s)\n", option, word,
            nearest, why);
}
// A choice that is impossible with the others gets the nearest value that is not; or, if no number of GPUs
// helps, none.
static par_result nearest_value(const par_plan_problem *p, const char *option, par_plan_config *given,
                                unsigned *mask, int axis, par_plan_choice *yours, par_plan_report *report) {
    const par_plan_config asked = *given;
    const int value = par_plan_axis_get(given, axis), gpus = gpus_of(p);
    const char *name = par_plan_axis_name(axis);
    char word[64], why[160];
    unsigned bit;
    for (int i = 1; i <= MIN(gpus, 128); i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            snprintf(word, sizeof word, "%s=%d", name, value + sign * i);
            *given = asked; // axes with named values take no numbers
            if (value + sign * i < 1 || par_plan_parse(word, given, &bit, why, sizeof why)) continue;
            if (par_plan_search(p, given, *mask, 0, yours, 1, report)) continue;
            say_impossible(p, option, axis, value, word, &yours->config);
            return PAR_OK;
        }
    *given = asked;
    *mask &= ~(1u << axis);
    fprintf(stderr, "plan: %s: %s is impossible here with what else is given; left out\n", option, name);
    return par_plan_search(p, given, *mask, 0, yours, 1, report);
}
// Where no configuration has the given members, they are given up from the last on, until the rest has one.
static par_result nearest_members(const par_plan_problem *p, const char *option, const char *text,
                                  par_plan_config *given, unsigned *mask, par_plan_choice *yours,
                                  par_plan_report *report) {
    char why[320];
    par_result r = PAR_ERR_ARGUMENT;
    for (int axis = PAR_PLAN_AXIS_COUNT - 1; r && axis >= 0; axis--) {
        if (!(*mask >> axis & 1)) continue;
        snprintf(why, sizeof why, "%s", report->why);
        r = nearest_value(p, option, given, mask, axis, yours, report);
        if (!r && !(*mask >> axis & 1)) fprintf(stderr, "plan: %s: %s: %s.\n", option, text, why);
    }
    return r;
}
// The best with the given members, or with the nearest that work.
static int compare(plan *x, const settings *o) {
    par_plan_config given;
    par_plan_choice yours;
    par_plan_report report;
    unsigned mask;
    char why[320], text[256];
    if (par_plan_parse(o->compare, &given, &mask, why, sizeof why)) {
        fprintf(stderr, "plan: --compare: %s\n", why);
        return 2;
    }
    par_plan_problem roomy = x->problem;
    par_result r = par_plan_search(&roomy, &given, mask, 0, &yours, 1, &report);
    const int fits = r != PAR_ERR_MEMORY; // if not, its time is told all the same
    if (!fits) roomy.job.memory_bytes = 1e18;
    if (!fits) r = par_plan_search(&roomy, &given, mask, 0, &yours, 1, &report);
    if (r) r = nearest_members(&roomy, "--compare", o->compare, &given, &mask, &yours, &report);
    if (r) {
        fprintf(stderr, "plan: --compare: %s\n", report.why);
        return 1;
    }
    const double ratio = yours.prediction.seconds / x->choices[0].prediction.seconds;
    if (o->json) {
        json_line j = json_begin(stdout);
        json_add(&j, "compared:%b fits:%b ratio:%.4f", 1, fits, ratio);
        json_choice(&j, &yours);
        json_end(&j);
        return 0;
    }
    printf("\nyours, with the best for what you left open:\n");
    print_choice(&yours, "");
    print_times(&yours);
    par_plan_format(&x->choices[0].config, 1, text, sizeof text);
    printf("  %s%.3f times the best (%s)\n", fits ? "" : "nothing of the kind fits; the time would be ",
           ratio, text);
    return 0;
}

// ---- scaling ----------------------------------------------------------------------------------------------

typedef struct curve {
    int count, gpus[GPUS_MAX];
    double tokens[GPUS_MAX];
} curve;

static int what_if(const plan *x, const settings *o, curve *c) { // gpus=256,512,1024; 0, or a status
    const char *at = o->what_if;
    c->count = 0;
    if (strncmp(at, "gpus=", 5) || !at[5]) {
        fprintf(stderr, "plan: --what-if takes gpus=256,512,1024, not %s\n", at);
        return 2;
    }
    if (!o->json) printf("\nwhat if:\n");
    for (at += 5; *at && c->count < GPUS_MAX;) {
        char *end;
        const long gpus = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || gpus < 1 || gpus > 65536) {
            fprintf(stderr, "plan: --what-if: cannot use \"%s\": numbers from 1 to 65536\n", at);
            return 2;
        }
        at = *end ? end + 1 : end;
        plan *other = (plan *)malloc(sizeof *other);
        if (!other) return 1;
        *other = *x;
        other->problem.machine = x->whole;
        take_gpus(&other->problem.machine, (int)gpus);
        if (search_nearest(other, 1, o->simulate) == PAR_OK) {
            c->gpus[c->count] = gpus_of(&other->problem);
            c->tokens[c->count++] = other->choices[0].prediction.tokens_per_second;
            if (o->json) {
                json_line j = json_begin(stdout);
                json_add(&j, "what_if:%d", gpus_of(&other->problem));
                json_choice(&j, &other->choices[0]);
                json_end(&j);
            } else {
                printf("%6d GPUs:", gpus_of(&other->problem));
                print_choice(&other->choices[0], "");
            }
        } else {
            fprintf(stderr, "plan: %ld GPUs: %s\n", gpus, other->report.why);
        }
        free(other);
    }
    return 0;
}

// ---- pictures ---------------------------------------------------------------------------------------------

static const char *const colors[] = {"#4477aa", "#ee6677", "#ccbb44", "#228833", "#aa3377",
                                     "#66ccee", "#885522", "#ff9933", "#777777"};
enum { WIDTH = 860, LINE = 14, BAR = 16, LAYOUT = 40, PARTS = 9, SHOWN = 10 };

static void svg_text(FILE *f, double x, double y, const char *text) { // markup's characters become '_'
    fprintf(f, "<text x='%.1f' y='%.1f'>", x, y);
    for (; *text; text++) fputc(strchr("<>&'\"", *text) || (unsigned char)*text < 32 ? '_' : *text, f);
    fprintf(f, "</text>\n");
}
static double svg_wrapped(FILE *f, double x, double y, const char *text) { // lines of LAYOUT characters
    char line[LAYOUT + 1];
    for (size_t rest = strlen(text), n; rest; text += n, rest -= n) {
        n = rest;
        if (n > LAYOUT)
            for (n = LAYOUT; n > 1 && text[n - 1] != ' '; n--) {
            }
        if (n == 1) n = MIN(rest, LAYOUT); // one long word
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        svg_text(f, x, y, line);
        y += LINE;
    }
    return y;
}
// What a column shows of a prediction: the parts of its bytes; or of its seconds, less `least` of compute.
static int take_parts(const par_plan_prediction *p, int memory, double least, const char **names,
                      double *values) {
    int n = 0;
#define X(member, what)                                                                                      \
    if (memory && n < 5) { /* those of the GPU */                                                            \
        names[n] = #member;                                                                                  \
        values[n++] = p->memory.member;                                                                      \
    }
    PAR_PLAN_BYTES(X)
#undef X
#define X(member, what)                                                                                      \
    if (!memory) {                                                                                           \
        names[n] = #member;                                                                                  \
        values[n++] = p->times.member;                                                                       \
    }
    PAR_PLAN_TIMES(X)
#undef X
    if (!memory) {
        names[0] = "more compute";
        values[0] -= least;
    }
    return n;
}
// The legend of a column: parts that one of its bars shows, three in a line.
static void svg_legend(FILE *f, double x, double y, double step, const char *const *names, const double *most,
                       int parts) {
    int shown = 0;
    for (int k = 0; k < parts; k++) {
        if (most[k] <= 0) continue;
        const double at = x + step * (shown % 3), top = y + LINE * (shown / 3);
        fprintf(f, "<rect x='%.1f' y='%.1f' width='10' height='10' fill='%s'/>\n", at, top - 9, colors[k]);
        svg_text(f, at + 14, top, names[k]);
        shown++;
    }
}
// A column of bars, one for each choice, from x on; y is of the first, and head of the column's title.
static void svg_column(FILE *f, const plan *x, int memory, double left, double head, const double *y) {
    const int count = MIN(x->report.count, SHOWN);
    const double wide = memory ? 140 : 185;
    double least = INFINITY, longest = 0, values[PARTS], most[PARTS] = {0};
    const char *names[PARTS];
    char text[100];
    int parts = 0;
    for (int i = 0; i < count; i++) least = MIN(least, x->choices[i].prediction.times.compute);
    for (int i = 0; i < count; i++) {
        double all = 0;
        parts = take_parts(&x->choices[i].prediction, memory, least, names, values);
        for (int k = 0; k < parts; k++) {
            most[k] = MAX(most[k], values[k]);
            all += values[k];
        }
        longest = MAX(longest, all);
    }
    snprintf(text, sizeof text, memory ? "memory of a GPU" : "seconds of a step, less %.4g s of compute",
             least);
    svg_text(f, left, head, text);
    for (int k = 0; k < parts; k++) most[k] = most[k] * wide < longest / 4 ? 0 : most[k]; // too thin to see
    svg_legend(f, left, head + LINE + 4, memory ? 92 : 106, names, most, parts);
    for (int i = 0; i < count && longest > 0; i++) {
        const par_plan_prediction *p = &x->choices[i].prediction;
        double at = left;
        take_parts(p, memory, least, names, values);
        for (int k = 0; k < parts; k++) {
            const double w = values[k] * wide / longest;
            if (w > 0)
                fprintf(f,
                        "<rect x='%.1f' y='%.1f' width='%.1f' height='%d' fill='%s'><title>%s %.4g</title>"
                        "</rect>\n",
                        at, y[i] - 11, w, BAR, colors[k], names[k], values[k]);
            at += MAX(w, 0);
        }
        const double over = 100 * (p->seconds / x->choices[0].prediction.seconds - 1);
        if (memory) snprintf(text, sizeof text, "%.1f GB", p->bytes / 1e9);
        if (!memory && i) snprintf(text, sizeof text, "%.4g s, +%.1f%%", p->seconds, over);
        if (!memory && !i) snprintf(text, sizeof text, "%.4g s, the best", p->seconds);
        svg_text(f, at + 5, y[i] + 1, text);
    }
}
static double svg_choices(FILE *f, const plan *x, double y) { // layouts, and beside them time and memory
    const int count = MIN(x->report.count, SHOWN);
    double rows[SHOWN];
    char layout[256], text[300];
    snprintf(text, sizeof text, "%s on %d %s, sequences of %d tokens", x->problem.model.name,
             gpus_of(&x->problem), x->problem.machine.name, (int)x->problem.job.sequence);
    fprintf(f, "<g font-weight='bold'>");
    svg_text(f, 10, y, text);
    fprintf(f, "</g>\n");
    y += 2 * LINE;
    const double head = y;
    svg_text(f, 10, y, "layout (what is not named is 1, none or off)");
    y += 5 * LINE;
    for (int i = 0; i < count; i++) {
        par_plan_format(&x->choices[i].config, 1, layout, sizeof layout);
        snprintf(text, sizeof text, "%d. %s", i + 1, layout);
        rows[i] = y;
        y = svg_wrapped(f, 10, y, text) + 6;
    }
    svg_column(f, x, 0, 300, head, rows);
    svg_column(f, x, 1, 612, head, rows);
    return y + BAR;
}
static double svg_map(FILE *f, const plan *x, double y) { // tokens/s of the best with each tp and pp
    enum { CELL = 62 };
    double tokens[12][12], most = 0;
    int tps = 0, pps = 0, tp[12], pp[12];
    const int gpus = gpus_of(&x->problem);
    for (int n = 1; n <= gpus && tps < 12; n *= 2)
        if (gpus % n == 0 && x->problem.model.heads % n == 0) tp[tps++] = n;
    for (int n = 1; n <= gpus && n <= x->problem.model.layers && pps < 12; n++)
        if (gpus % n == 0 && (n & (n - 1)) == 0) pp[pps++] = n;
    for (int i = 0; i < tps; i++)
        for (int k = 0; k < pps; k++) {
            par_plan_config fixed = x->fixed;
            par_plan_choice best;
            par_plan_report report;
            fixed.tp = tp[i];
            fixed.pp = pp[k];
            tokens[i][k] = 0;
            if (gpus % (tp[i] * pp[k]) == 0 &&
                !par_plan_search(&x->problem, &fixed,
                                 x->mask | 1u << PAR_PLAN_AXIS_tp | 1u << PAR_PLAN_AXIS_pp, 0, &best, 1,
                                 &report))
                tokens[i][k] = best.prediction.tokens_per_second;
            most = MAX(most, tokens[i][k]);
        }
    svg_text(f, 10, y, "tokens/s of the best with each tp (down) and pp (across); empty: nothing fits");
    for (int i = 0; i < tps; i++) {
        char text[32];
        snprintf(text, sizeof text, "tp %d", tp[i]);
        svg_text(f, 10, y + BAR * (i + 2), text);
        for (int k = 0; k < pps; k++) {
            const double share = most > 0 ? tokens[i][k] / most : 0;
            snprintf(text, sizeof text, "pp %d", pp[k]);
            if (i == 0) svg_text(f, 70 + CELL * k, y + BAR, text);
            if (share <= 0) continue;
            fprintf(f, "<rect x='%d' y='%.1f' width='%d' height='%d' fill='#4477aa' fill-opacity='%.2f'/>\n",
                    66 + CELL * k, y + BAR * (i + 2) - 12, CELL - 2, BAR - 2, share * share * .8);
            snprintf(text, sizeof text, tokens[i][k] < 1e6 ? "%.0f" : "%.3g", tokens[i][k]);
            svg_text(f, 70 + CELL * k, y + BAR * (i + 2), text);
        }
    }
    return y + BAR * (tps + 3);
}
static double svg_curve(FILE *f, const curve *c, double y) { // tokens/s over GPUs, beside the straight line
    if (c->count < 2) return y;
    const double high = 200, per_gpu = c->tokens[0] / c->gpus[0];
    const double most_gpus = c->gpus[c->count - 1];
    const double most = MAX(per_gpu * most_gpus, c->tokens[c->count - 1]);
    svg_text(f, 10, y, "tokens/s over GPUs; gray: as the first point would scale");
    fprintf(f, "<path d='M%d %.1f L%d %.1f' stroke='#bbbbbb'/>\n<path fill='none' stroke='#4477aa' d='", 60,
            y + high + 10, WIDTH - 90, y + 10 + high * (1 - per_gpu * most_gpus / most));
    for (int i = 0; i < c->count; i++)
        fprintf(f, "%s%.1f %.1f ", i ? "L" : "M", 60 + (WIDTH - 150) * c->gpus[i] / most_gpus,
                y + 10 + high * (1 - c->tokens[i] / most));
    fprintf(f, "'/>\n");
    for (int i = 0; i < c->count; i++) {
        char text[64];
        snprintf(text, sizeof text, "%d: %.0f", c->gpus[i], c->tokens[i]);
        svg_text(f, 50 + (WIDTH - 150) * c->gpus[i] / most_gpus, y + 26 + high * (1 - c->tokens[i] / most),
                 text);
    }
    return y + high + 40;
}
static int write_svg(const plan *x, const curve *c, const char *path) { // 0, or 1: an error was printed
    char *body = NULL;
    size_t bytes = 0;
    FILE *b = open_memstream(&body, &bytes);
    double y = b ? svg_map(b, x, svg_choices(b, x, 22)) : 0;
    if (b) y = svg_curve(b, c, y);
    const int whole = b && !ferror(b);
    if (!b || fclose(b) || !whole) return fprintf(stderr, "plan: no memory for a picture\n"), 1;
    FILE *f = fopen(path, "w");
    if (!f) fprintf(stderr, "plan: cannot write %s: %s\n", path, strerror(errno));
    if (f)
        fprintf(
            f,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%.0f' viewBox='0 0 %d %.0f' "
            "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n"
            "%s</svg>\n",
            WIDTH, y, WIDTH, y, body);
    free(body);
    if (!f) return 1;
    const int failed = ferror(f);
    if (!fclose(f) && !failed) return 0;
    return fprintf(stderr, "plan: cannot write all of %s\n", path), 1;
}

// ---- validating -------------------------------------------------------------------------------------------

typedef struct errors {
    int count;
    double sum, largest;
} errors;
typedef struct validation {
    int json;
    errors time, memory;
} validation;

// The error of a prediction, which is counted; NaN: nothing was measured.
static double add_error(errors *e, double predicted, double measured) {
    if (!(measured > 0)) return NAN;
    const double error = predicted / measured - 1;
    e->count++;
    e->sum += fabs(error);
    e->largest = MAX(e->largest, fabs(error));
    return error;
}
static void print_pair(const char *format, double measured, double predicted, double error) {
    char cells[2][24] = {"-", "-"};
    if (measured > 0) snprintf(cells[0], sizeof cells[0], format, measured);
    if (measured > 0) snprintf(cells[1], sizeof cells[1], "%+.1f%%", 100 * error);
    printf(" %8s ", cells[0]);
    printf(format, predicted);
    printf(" %7s", cells[1]);
}
static void validate_row(void *user, const row *r) {
    validation *v = (validation *)user;
    par_plan_prediction p;
    par_plan_evaluate(&r->problem, &r->config, &p);
    const double seconds = row_seconds(r), gib = 1073741824, states = p.mean_state_bytes / gib,
                 activations = p.layer_activation_bytes / gib;
    const double time_error = add_error(&v->time, p.seconds, seconds),
                 states_error = add_error(&v->memory, states, r->states_gib),
                 activations_error = add_error(&v->memory, activations, r->activations_gib);
    if (v->json) {
        json_print("name:%s seconds:%?.6g predicted_seconds:%.6g time_error:%?.4f states_gib:%?.5g "
                   "predicted_states_gib:%.5g states_error:%?.4f activations_gib:%?.5g "
                   "predicted_activations_gib:%.5g activations_error:%?.4f",
                   r->name, seconds > 0 ? seconds : NAN, p.seconds, time_error,
                   r->states_gib > 0 ? r->states_gib : NAN, states, states_error,
                   r->activations_gib > 0 ? r->activations_gib : NAN, activations, activations_error);
        return;
    }
    printf("%-28s", r->name);
    print_pair("%8.3f", seconds, p.seconds, time_error);
    print_pair("%8.2f", r->states_gib, states, states_error);
    print_pair("%8.2f", r->activations_gib, activations, activations_error);
    printf("\n");
}
static int validate(const settings *o) {
    validation v;
    char why[400];
    size_t bytes;
    char *text = read_text(o->validate, &bytes);
    if (!text) return 2;
    memset(&v, 0, sizeof v);
    v.json = o->json;
    if (!o->json)
        printf("%-28s %8s %8s %7s %8s %8s %7s %8s %8s %7s\n", "row", "s", "model", "error", "states", "model",
               "error", "activ.", "model", "error");
    const int failed = rows_read(text, validate_row, &v, why, sizeof why);
    free(text);
    if (failed) return fprintf(stderr, "plan: %s, %s\n", o->validate, why), 2;
    if (!v.time.count && !v.memory.count)
        return fprintf(stderr, "plan: %s has no rows with measurements\n", o->validate), 2;
    const double time_average = v.time.sum / MAX(v.time.count, 1),
                 memory_average = v.memory.sum / MAX(v.memory.count, 1);
    if (o->json)
        json_print(
            "summary:%b rows:%d time_average_error:%.5f time_largest_error:%.5f memory_average_error:%.5f "
            "memory_largest_error:%.5f",
            1, v.time.count, time_average, v.time.largest, memory_average, v.memory.largest);
    else
        printf("step times: average error %.2f%%, largest %.2f%% of %d; memory: average %.2f%%, largest "
               "%.2f%%\n",
               100 * time_average, 100 * v.time.largest, v.time.count, 100 * memory_average,
               100 * v.memory.largest);
    return 0;
}

// ---- the program ------------------------------------------------------------------------------------------

// Microseconds of processor time of one prediction: the fastest of five rounds over the choices found.
static double evaluation_us(const plan *x) {
    enum { ROUNDS = 5, CALLS = 4000 };
    par_plan_prediction p;
    double fastest = 1e300;
    for (int round = 0; round < ROUNDS; round++) {
        const clock_t begun = clock();
        for (int i = 0; i < CALLS; i++)
            par_plan_evaluate(&x->problem, &x->choices[i % x->report.count].config, &p);
        fastest = MIN(fastest, (double)(clock() - begun) / CLOCKS_PER_SEC / CALLS);
    }
    return 1e6 * fastest;
}

static void list_tables(int json) {
    par_plan_model m;
    par_plan_machine x;
    for (int i = 0; par_plan_model_name(i); i++) {
        par_plan_model_get(par_plan_model_name(i), &m);
        if (json)
            json_print("model:%s parameters:%.0f layers:%d width:%d", m.name, par_plan_parameters(&m),
                       m.layers, m.features);
        else
            printf("%-16s %8.4g parameters, %3d layers, width %d\n", m.name, par_plan_parameters(&m),
                   m.layers, m.features);
    }
    for (int i = 0; par_plan_machine_name(i); i++) {
        par_plan_machine_get(par_plan_machine_name(i), &x);
        if (json)
            json_print("gpu:%s product_rate:%g peak:%g memory_bytes:%.0f memory_rate:%g gpus_per_node:%.0f",
                       x.name, x.product_rate, x.peak, x.memory_bytes, x.memory_rate, x.gpus_per_node);
        else
            printf("%-16s %4.0f of %4.0f TFLOP/s, %3.0f GB at %.2f TB/s, %.0f on a node\n", x.name,
                   x.product_rate / 1e12, x.peak / 1e12, x.memory_bytes / 1e9, x.memory_rate / 1e12,
                   x.gpus_per_node);
    }
}
static int prepare(const settings *o, plan *x) { // 0, or a status
    char why[320];
    memset(x, 0, sizeof *x);
    if (!load_model(o->model, o->ignored, &x->problem.model, &x->trained) ||
        !load_machine(o->gpu, &x->problem.machine))
        return 2;
    if (o->fix && par_plan_parse(o->fix, &x->fixed, &x->mask, why, sizeof why))
        return fprintf(stderr, "plan: --fix: %s\n", why), 2;
    if (o->nodes > 0 && o->gpus > 0)
        return fprintf(stderr, "plan: --nodes %d and --gpus %d: give one of them\n", o->nodes, o->gpus), 2;
    x->problem.machine.nodes = MAX(x->problem.machine.nodes, 1);
    x->problem.machine.gpus_per_node = MAX(x->problem.machine.gpus_per_node, 1);
    x->whole = x->problem.machine;
    if (o->nodes > 0) x->problem.machine.nodes = o->nodes;
    if (o->gpus > 0) take_gpus(&x->problem.machine, o->gpus);
    x->problem.job.batch = o->batch;
    x->problem.job.sequence = o->sequence;
    x->problem.job.fp8 = o->fp4 ? 2 : o->fp8;
    x->problem.job.memory_bytes = o->memory_gb * 1e9;
    return 0;
}
// What --fix decides becomes the nearest that some layout of these GPUs has, if they have any.
static void fix_nearest(plan *x, const settings *o) {
    par_plan_choice found;
    par_plan_report report;
    par_plan_config fixed = x->fixed;
    unsigned mask = x->mask;
    if (!mask || par_plan_search(&x->problem, &fixed, mask, 0, &found, 1, &report) != PAR_ERR_ARGUMENT)
        return;
    if (nearest_members(&x->problem, "--fix", o->fix, &fixed, &mask, &found, &report)) return;
    x->fixed = fixed;
    x->mask = mask;
}
static int print_all(plan *x, const settings *o) {
    curve c;
    int status = 0;
    c.count = 0;
    if (o->json) {
        for (int i = 0; i < x->report.count; i++) {
            json_line j = json_begin(stdout);
            json_add(&j, "place:%d", i + 1);
            json_choice(&j, &x->choices[i]);
            json_end(&j);
        }
    } else {
        print_plan(x, o);
    }
    int json = o->json;
    if (o->why) par_plan_explain(&x->problem, &x->choices[0], say, &json);
    if (o->compare) status = compare(x, o);
    if (o->what_if && !status) status = what_if(x, o, &c);
    if (o->svg && !status) status = write_svg(x, &c, o->svg);
    if (!o->json) {
        print_launch(x);
    } else if (!status) {
        const par_plan_report *r = &x->report;
        const char *why = untrainable(x);
        char launch[1200];
        format_launch(x, launch, sizeof launch);
        json_line j = json_begin(stdout), best = j;
        json_add(&j, "summary:%b model:%s parameters:%.17g gpu:%s gpus:%d untrainable:%s trainer:%s", 1,
                 x->problem.model.name, par_plan_parameters(&x->problem.model), x->problem.machine.name,
                 gpus_of(&x->problem), why, why ? NULL : launch);
        json_add(&j,
                 "configurations:%.17g evaluated:%.17g bounded:%.17g seconds:%.6g proved:%b "
                 "evaluation_us:%.3g",
                 r->configurations, r->evaluated, r->bounded, r->seconds, r->proved, evaluation_us(x));
        printf(",\"best\":");
        json_choice(&best, &x->choices[0]);
        printf("}}\n");
    }
    return status;
}
// --validate alone means the kit's own file. argv has room for it.
static int with_default_file(int argc, char **argv, char **out) {
    static char file[] = "tests/plan_published.csv";
    int count = 0;
    for (int i = 0; i < argc; i++) {
        out[count++] = argv[i];
        if (!strcmp(argv[i], "--validate") && (i + 1 == argc || !strncmp(argv[i + 1], "--", 2)))
            out[count++] = file;
    }
    return count;
}
static int print_tables(const settings *o) { // a status
    if (o->list) list_tables(o->json);
    const int status = o->validate ? validate(o) : 0;
    return status ? status : output_failed("plan");
}
static int parse_settings(int argc, char **argv, settings *o) { // as options_parse
    memset(o, 0, sizeof *o);
    o->model = "gpt3-175b";
    o->gpu = "h100";
    o->batch = 2048;
    o->sequence = 2048;
    o->top = 10;
    o->simulate = o->why = 1;
    static const option_answer answers[] = {{"--list", " --json "}, {"--validate", " --json "}};
    option options[] = {
        {"what is trained, and on what", OPTION_TITLE, NULL, NULL},
        {"--model", OPTION_TEXT, &o->model,
         "a name (--list), or a Hugging Face config.json or its directory"},
        {"--ignore_config", OPTION_TEXT, &o->ignored,
         "keys of the config.json, with commas between them, without which the trainer's command is right"},
        {"--gpu", OPTION_TEXT, &o->gpu, "a name (--list), or a file of lines \"member = number\""},
        {"--nodes", OPTION_INT, &o->nodes, "nodes; 0: 1, or as --gpus says", 0, 65536},
        {"--gpus", OPTION_INT, &o->gpus, "GPUs, instead of --nodes", 0, 65536},
        {"--batch", OPTION_INT, &o->batch, "sequences of a step, over all GPUs", 1, 1e8},
        {"--seq", OPTION_INT, &o->sequence, "tokens of a sequence", 1, 1e8},
        {"--fp8", OPTION_FLAG, &o->fp8, "layers may use recipes of 8 bits"},
        {"--fp4", OPTION_FLAG, &o->fp4, "layers may use recipes of 8 or 4 bits"},
        {"--memory_gb", OPTION_REAL, &o->memory_gb, "limit of a GPU's memory; 0: the GPU's", 0, 1e9},
        {"--fix", OPTION_TEXT, &o->fix, "choices that are made: \"tp=8 zero=1\""},
        {"what is shown", OPTION_TITLE, NULL, NULL},
        {"--top", OPTION_INT, &o->top, "layouts, each with its fastest settings", 1, TOP_MAX},
        {"--simulate", OPTION_FLAG, &o->simulate, "bubbles of these by simulation instead of formulas"},
        {"--why", OPTION_FLAG, &o->why, "the reasons: for each choice the best of other values"},
        {"--compare", OPTION_TEXT, &o->compare, "your choices beside the best: \"pp=8 tp=8 zero=1\""},
        {"--what-if", OPTION_TEXT, &o->what_if, "other numbers of GPUs: gpus=256,512,1024"},
        {"--svg", OPTION_TEXT, &o->svg, "FILE for a picture: times, memory, tp against pp, scaling"},
        {"--json", OPTION_FLAG, &o->json, "one JSON object a line; the last has \"summary\":true"},
        {"--validate", OPTION_TEXT, &o->validate,
         "predict the measurements of a FILE.csv instead; alone: tests/plan_published.csv"},
        {"--list", OPTION_FLAG, &o->list, "the models and GPUs of the tables"},
    };
    enum { COUNT = sizeof options / sizeof options[0] };
    const int status = options_parse(argc, argv, options, COUNT,
                                     "Which parallel layout is fastest for a model on a machine, and why.");
    if (status) return status;
    return options_unused("plan", options, COUNT, answers, sizeof answers / sizeof answers[0]) ? 2 : 0;
}
int main(int argc, char **argv) {
    settings o;
    char **args = (char **)malloc(2 * ((size_t)argc + 1) * sizeof *args), why[4400];
    plan *x = (plan *)malloc(sizeof *x);
    if (!args || !x) return 1;
    int status = parse_settings(with_default_file(argc, argv, args), args, &o);
    if (status) return status == 1 ? 0 : status;
    if (o.list || o.validate) {
        free(args);
        free(x);
        return print_tables(&o);
    }
    const char *problem = o.svg ? output_try(o.svg, why, sizeof why) : NULL;
    if (problem) return fprintf(stderr, "plan: %s\n", problem), 2;
    if ((status = prepare(&o, x))) return status;
    fix_nearest(x, &o);
    if (search_nearest(x, o.top, o.simulate)) return fprintf(stderr, "plan: %s\n", x->report.why), 1;
    status = print_all(x, &o);
    free(args);
    free(x);
    return status ? status : output_failed("plan");
}

// test_plan.c - the planner: its search against brute force, its formulas against those of the other headers,
// the rules of the field as results, its readers. It needs no ranks.
//
//     build/test_plan           every test          build/test_plan search rules    some of them
#define PAR_IMPLEMENTATION
#include "par_plan.h"
#include "published_bytes.h"

#include <math.h>
#include <string.h>

static int failures;

#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            failures++;                                                                                      \
            printf("%s:%d: ", __FILE__, __LINE__);                                                           \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
        }                                                                                                    \
    } while (0)

static int is_near(double a, double b, double relative) { return fabs(a - b) <= relative * fabs(b); }

static par_plan_problem problem_of(const char *model, const char *gpu, int nodes, double batch,
                                   double sequence) {
    par_plan_problem p;
    memset(&p, 0, sizeof p);
    CHECK(!par_plan_model_get(model, &p.model), "no model %s", model);
    CHECK(!par_plan_machine_get(gpu, &p.machine), "no machine %s", gpu);
    p.machine.nodes = nodes;
    p.job.batch = batch;
    p.job.sequence = sequence;
    return p;
}

static void tables(void) {
    static const struct {
        const char *name;
        double parameters;
    } known[] = {{"gpt2", 124.44e6},      {"gpt2-xl", 1557.6e6},      {"gpt3-175b", 174.6e9},
                 {"llama2-7b", 6.738e9},  {"llama2-70b", 68.977e9},   {"llama3-8b", 8.03e9},
                 {"llama3-70b", 70.55e9}, {"llama3-405b", 405.85e9},  {"megatron-22b", 22.07e9},
                 {"megatron-1t", 1008e9}, {"megatron-530b", 529.6e9}, {"megatron-145b", 145.6e9}};
    par_plan_problem p;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        p = problem_of(known[i].name, "h100", 1, 8, 128);
        CHECK(is_near(par_plan_parameters(&p.model), known[i].parameters, 2e-3), "%s has %.6g parameters",
              known[i].name, par_plan_parameters(&p.model));
    }
    for (int i = 0; par_plan_machine_name(i); i++) {
        CHECK(!par_plan_machine_get(par_plan_machine_name(i), &p.machine), "machine %d", i);
        CHECK(p.machine.product_rate < p.machine.peak, "%s reaches more than its peak", p.machine.name);
    }
    CHECK(!strcmp(par_plan_model_suggest("gpt3_175b").text, "; did you mean gpt3-175b?"), "%s",
          par_plan_model_suggest("gpt3_175b").text);
    CHECK(!strcmp(par_plan_machine_suggest("H100").text, "; did you mean h100?"), "%s",
          par_plan_machine_suggest("H100").text);
    p = problem_of("gpt3-175b", "a100-80", 1, 64, 2048); // 72 B s l h^2 (1 + s/6h + V/12hl)
    const double h = 12288, l = 96,
                 flops = 72 * 64 * 2048 * l * h * h * (1 + 2048 / (6 * h) + 51200 / (12 * h * l));
    CHECK(is_near(par_plan_flops(&p), flops, 1e-9), "FLOPs %.9g, not %.9g", par_plan_flops(&p), flops);
}

// ---- search against brute force --------------------------------------------------------------------------

enum { KEPT = 6 };
typedef struct fastest { // of the configurations that have the values of `fixed` in the members of `mask`
    par_plan_config fixed;
    unsigned mask;
    double seconds[KEPT], configurations;
    int count;
} fastest;
typedef struct brute {
    const par_plan_problem *p;
    fastest all, some;
    par__plan_walk walk; // as a search has it
    const char *wrong;   // the first bound that is above what it bounds
    par_plan_config wrong_config;
} brute;

static void brute_keep(fastest *f, const par_plan_config *c, const par_plan_prediction *p) {
    for (int i = 0; i < PAR_PLAN_AXIS_COUNT; i++)
        if (f->mask >> i & 1 && par_plan_axis_get(c, i) != par_plan_axis_get(&f->fixed, i)) return;
    f->configurations++;
    if (!p->fits) return;
    int at = f->count;
    while (at > 0 && f->seconds[at - 1] > p->seconds) at--;
    if (at == KEPT) return;
    if (f->count < KEPT) f->count++;
    for (int i = f->count - 1; i > at; i--) f->seconds[i] = f->seconds[i - 1];
    f->seconds[at] = p->seconds;
}
// The bounds of the search leave this configuration out if they are above its time or its bytes: NULL, or the
// first that is.
static const char *bound_above(brute *b, const par_plan_config *c, const par_plan_prediction *p) {
    const double seconds = p->seconds / b->walk.tolerance, bytes = p->bytes / b->walk.tolerance;
    par__plan_case k = par__plan_case_of(b->p, c);
    const par__plan_layer l = par__plan_layer_of(&k, c->ulysses);
    par__plan_base base;
    par__plan_shards shards;
    int fits;
    if (par__plan_node_bound(&k, &l, *c) > seconds) return "a node's time";
    if (par__plan_group_bound(&k, c, par__plan_sums_of(&k, &l, c)) > seconds) return "a group's time";
    par__plan_base_of(&k, &l, c, &base);
    if (base.p.seconds > seconds) return "a group's time without gradients and update";
    par__plan_shards_of(&b->walk, c->dp * c->cp, &shards);
    if (par__plan_least_memory(k, &l, *c, &base.cut, &shards, &fits) > bytes) return "a group's memory";
    if (p->fits && !fits) return "whether a group fits";
    b->walk.mask = 1u << PAR_PLAN_AXIS_zero; // of this stage alone
    b->walk.fixed.zero = c->zero;
    const double least = par__plan_fit_node(&b->walk, &k);
    b->walk.mask = 0;
    if (least > bytes) return "a node's memory";
    return p->fits && !b->walk.node_fits[c->zero] ? "whether a node fits" : NULL;
}
static void brute_one(brute *b, const par_plan_config *c) {
    par_plan_prediction p;
    par_plan_evaluate(b->p, c, &p);
    if (!b->wrong && (b->wrong = bound_above(b, c, &p))) b->wrong_config = *c;
    brute_keep(&b->all, c, &p);
    brute_keep(&b->some, c, &p);
}
static void brute_rest(brute *b, par_plan_config c) { // everything below a schedule; c is right with zero 0
    char why[320];
    const int replicas = c.dp * c.cp;
    for (c.zero = 0; c.zero < 5; c.zero++)
        for (c.shard = 1; c.shard <= replicas; c.shard++) {
            c.recompute = c.offload = c.overlap = 0;
            if (par_plan_check(b->p, &c, why, sizeof why)) continue;
            for (c.overlap = 0; c.overlap < 9; c.overlap++) {
                c.recompute = c.offload = 0;
                if (par_plan_check(b->p, &c, why, sizeof why)) continue;
                for (c.recompute = 0; c.recompute < 3; c.recompute++)
                    for (c.offload = 0; c.offload < 8; c.offload++)
                        if (!par_plan_check(b->p, &c, why, sizeof why)) brute_one(b, &c);
            }
        }
}
static void brute_layout(brute *b, par_plan_config c, int batch) {
    char why[320];
    for (c.microbatch = 1; c.microbatch <= batch; c.microbatch++)
        for (c.ulysses = 0; c.ulysses < 2; c.ulysses++)
            for (c.sp = 0; c.sp < 2; c.sp++)
                for (c.fp8 = 0; c.fp8 < (b->p->job.fp8 > 0 ? PAR_TP_RECIPE_COUNT : 1); c.fp8++)
                    for (c.schedule = 0; c.schedule < PAR_PIPE_SCHEDULE_COUNT; c.schedule++)
                        for (c.chunks = 1; c.chunks <= 17; c.chunks++) {
                            c.zero = c.overlap = c.recompute = c.offload = 0;
                            c.shard = 1;
                            if (!par_plan_check(b->p, &c, why, sizeof why)) brute_rest(b, c);
                        }
}
static void brute_force(brute *b, int ranks) {
    par_plan_config c;
    memset(&c, 0, sizeof c);
    for (c.tp = 1; c.tp <= ranks; c.tp++)
        for (c.pp = 1; c.tp * c.pp <= ranks; c.pp++)
            for (c.cp = 1; c.tp * c.pp * c.cp <= ranks; c.cp++) {
                c.dp = ranks / (c.tp * c.pp * c.cp);
                if (c.tp * c.pp * c.cp * c.dp == ranks) brute_layout(b, c, (int)b->p->job.batch);
            }
}
static unsigned random_below(unsigned *state, unsigned n) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}
static double random_times(unsigned *state, double x) { // between x/4 and 4x
    return x * exp2(((double)random_below(state, 1001) - 500) / 250);
}
static par_plan_problem random_problem(unsigned *state) {
    static const char *const gpus[] = {"a100-40", "a100-80", "h100", "b200"};
    par_plan_problem p = problem_of("gpt2", gpus[random_below(state, 4)], 1, 1, 1);
    p.model.layers = 1 + (int)random_below(state, 8);
    p.model.heads = 4 << random_below(state, 2);
    p.model.kv_heads = p.model.heads >> random_below(state, 3);
    p.model.head_dim = 64;
    p.model.features = p.model.heads * 64 * (1 + (int)random_below(state, 8));
    p.model.hidden = p.model.features * 4;
    p.model.gated = (int)random_below(state, 2);
    p.model.tied = (int)random_below(state, 2);
    p.model.vocab = random_below(state, 2) ? 50257 : 16; // with a large head, or stages alike
    p.machine.nodes = 1 + random_below(state, 3);
    p.machine.gpus_per_node = 1 + random_below(state, 3);
    p.job.batch = (double)(p.machine.nodes * p.machine.gpus_per_node) * (1 + random_below(state, 3));
    p.job.sequence = 64 << random_below(state, 5);
    p.job.fp8 = random_below(state, 4) ? 0 : 1 + random_below(state, 2);
    p.job.unfused = random_below(state, 2);
    p.job.dropout = random_below(state, 2);
    p.job.equal_layers = random_below(state, 4) == 0;
    p.job.whole_shards = random_below(state, 4) == 0;
    if (random_below(state, 3) == 0) p.job.update_bytes = 1e-9; // nothing but what bounds count
    if (random_below(state, 3) == 0) p.machine.cores = p.machine.gpus_per_node / 2;
    if (random_below(state, 2)) p.machine.disk_bytes = 0;
    if (random_below(state, 2)) p.machine.split_cost = .1;
    double *const rates[] = {&p.machine.memory_rate,   &p.machine.kernel_seconds, &p.machine.node_bandwidth,
                             &p.machine.net_bandwidth, &p.machine.net_latency,    &p.machine.host_bandwidth,
                             &p.machine.overlap_cost,  &p.machine.host_rate,      &p.machine.disk_rate};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) *rates[i] = random_times(state, *rates[i]);
    const double parameters = par_plan_parameters(&p.model);
    p.machine.reserved_bytes = 0;
    p.machine.memory_bytes = random_times(state, 8 * parameters + 2e7);
    return p;
}
// One or two choices that a user might make, possible or not.
static unsigned random_fixed(unsigned *state, par_plan_config *fixed) {
    unsigned mask = 0;
    memset(fixed, 0, sizeof *fixed);
    for (int i = 0; i < 2; i++) {
        const struct {
            int axis, *member, value;
        } choices[] = {{PAR_PLAN_AXIS_tp, &fixed->tp, 1 + (int)random_below(state, 3)},
                       {PAR_PLAN_AXIS_pp, &fixed->pp, 1 + (int)random_below(state, 3)},
                       {PAR_PLAN_AXIS_cp, &fixed->cp, 1 + (int)random_below(state, 2)},
                       {PAR_PLAN_AXIS_dp, &fixed->dp, 1 + (int)random_below(state, 3)},
                       {PAR_PLAN_AXIS_microbatch, &fixed->microbatch, 1 + (int)random_below(state, 3)},
                       {PAR_PLAN_AXIS_schedule, &fixed->schedule, (int)random_below(state, 4)},
                       {PAR_PLAN_AXIS_zero, &fixed->zero, (int)random_below(state, 4)},
                       {PAR_PLAN_AXIS_sp, &fixed->sp, (int)random_below(state, 2)},
                       {PAR_PLAN_AXIS_recompute, &fixed->recompute, (int)random_below(state, 3)},
                       {PAR_PLAN_AXIS_offload, &fixed->offload, (int)random_below(state, 4)},
                       {PAR_PLAN_AXIS_overlap, &fixed->overlap, (int)random_below(state, 4)}};
        const unsigned k = random_below(state, sizeof choices / sizeof choices[0]);
        *choices[k].member = choices[k].value;
        mask |= 1u << choices[k].axis;
    }
    return mask;
}
// Does the search find what enumeration found? 1: some configuration fits.
static int search_finds(const par_plan_problem *p, const fastest *f, unsigned seed) {
    par_plan_choice choices[KEPT];
    par_plan_report report;
    const par_result r = par_plan_search(p, &f->fixed, f->mask, 0, choices, KEPT, &report);
    CHECK(report.configurations == f->configurations, "seed %u, mask %x: %.0f configurations, not %.0f", seed,
          f->mask, report.configurations, f->configurations);
    CHECK(report.proved || !f->count, "seed %u, mask %x: not proved", seed, f->mask);
    CHECK(r == (f->count                ? PAR_OK
                : f->configurations > 0 ? PAR_ERR_MEMORY
                                        : PAR_ERR_ARGUMENT),
          "seed %u, mask %x: %s", seed, f->mask, par_result_name(r));
    CHECK(report.count == f->count, "seed %u, mask %x: %d choices, not %d", seed, f->mask, report.count,
          f->count);
    for (int k = 0; k < f->count && k < report.count; k++) {
        par_plan_prediction again;
        CHECK(choices[k].prediction.seconds == f->seconds[k],
              "seed %u, mask %x, choice %d: %.12g s, not %.12g", seed, f->mask, k,
              choices[k].prediction.seconds, f->seconds[k]);
        par_plan_evaluate(p, &choices[k].config, &again);
        CHECK(again.seconds == choices[k].prediction.seconds && again.fits, "seed %u: not the same again",
              seed);
    }
    return f->count > 0;
}
// The first layout of a kind is the fastest of it.
static void search_layouts(const par_plan_problem *p, unsigned seed) {
    par_plan_choice layouts[KEPT];
    par_plan_report report;
    const unsigned distinct = 1u << PAR_PLAN_AXIS_tp | 1u << PAR_PLAN_AXIS_pp | 1u << PAR_PLAN_AXIS_cp;
    par_plan_search(p, NULL, 0, distinct, layouts, KEPT, &report);
    for (int k = 0; k < report.count; k++) {
        par_plan_choice best;
        par_plan_report one;
        par_plan_search(p, &layouts[k].config, distinct, 0, &best, 1, &one);
        CHECK(one.count == 1 && best.prediction.seconds == layouts[k].prediction.seconds,
              "seed %u: layout %d is not the fastest of its kind", seed, k);
    }
}
static unsigned number_of(const char *name, unsigned otherwise) { // of the environment
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}
// Random problems. One of them again: PAR_TEST_SEED=seed PAR_TEST_COUNT=1 build/test_plan search.
static void search(void) {
    const unsigned first = number_of("PAR_TEST_SEED", 1000);
    const unsigned count = number_of("PAR_TEST_COUNT", getenv("SOAK") ? 1000 : 26);
    unsigned found[2] = {0, 0};
    for (unsigned i = 0; i < count; i++) {
        unsigned state = (first + i) * 2654435761u;
        const par_plan_problem p = random_problem(&state);
        brute b;
        memset(&b, 0, sizeof b);
        b.p = b.walk.problem = &p;
        b.walk.tolerance = 1 - 1e-9;
        b.walk.parameters = par_plan_parameters(&p.model);
        b.some.mask = random_fixed(&state, &b.some.fixed);
        brute_force(&b, (int)(p.machine.nodes * p.machine.gpus_per_node));
        char layout[256];
        par_plan_format(&b.wrong_config, 1, layout, sizeof layout);
        CHECK(!b.wrong, "seed %u: the bound of %s is above that of %s", first + i, b.wrong, layout);
        found[0] += (unsigned)search_finds(&p, &b.all, first + i);
        found[1] += (unsigned)search_finds(&p, &b.some, first + i);
        search_layouts(&p, first + i);
    }
    if (count < 24) return;
    const par_plan_problem p = problem_of("gpt3-175b", "a100-80", 64, 2048, 2048); // the bounds do leave out
    par_plan_choice best;
    par_plan_report report;
    CHECK(!par_plan_search(&p, NULL, 0, 0, &best, 1, &report) &&
              200 * report.evaluated < report.configurations,
          "%.0f of %.0f configurations were evaluated", report.evaluated, report.configurations);
    CHECK(found[0] > count / 2 && found[1] > count / 6, "of %u problems %u have a solution, %u with choices",
          count, found[0], found[1]);
}

// ---- formulas of the other headers -----------------------------------------------------------------------

static par_plan_config config_of(const char *text) {
    par_plan_config c;
    unsigned mask;
    char why[320];
    memset(&c, 0, sizeof c);
    c.tp = c.pp = c.cp = c.dp = c.microbatch = c.chunks = c.shard = 1;
    CHECK(par_plan_parse(text, &c, &mask, why, sizeof why) == PAR_OK, "%s: %s", text, why);
    return c;
}
static par_plan_prediction predict(const par_plan_problem *p, const char *text) {
    const par_plan_config c = config_of(text);
    par_plan_prediction x;
    char why[320];
    CHECK(par_plan_check(p, &c, why, sizeof why) == PAR_OK, "%s: %s", text, why);
    par_plan_evaluate(p, &c, &x);
    double sum = 0;
#define X(member, what) sum += x.times.member;
    PAR_PLAN_TIMES(X)
#undef X
    CHECK(is_near(sum, x.seconds, 1e-12), "%s: times add up to %.9g, not %.9g", text, sum, x.seconds);
    return x;
}
static void memory(void) { // bytes of activations and states as published
    static const struct {
        const char *config;
        par_tp_recompute recompute;
        int sp;
    } cases[] = {{"tp=8 dp=1", PAR_TP_RECOMPUTE_NONE, 0},
                 {"tp=8 dp=1 sp=1", PAR_TP_RECOMPUTE_NONE, 1},
                 {"tp=8 dp=1 recompute=selective", PAR_TP_RECOMPUTE_SELECTIVE, 0},
                 {"tp=8 dp=1 recompute=selective sp=1", PAR_TP_RECOMPUTE_SELECTIVE, 1}};
    par_plan_problem p = problem_of("gpt3-175b", "a100-80", 1, 8, 2048);
    p.job.unfused = p.job.dropout = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        published_shape shape;
        memset(&shape, 0, sizeof shape);
        shape.s = 2048;
        shape.b = 1;
        shape.h = 12288;
        shape.a = 96;
        shape.t = 8;
        shape.sequence_parallel = cases[i].sp;
        const par_plan_prediction x = predict(&p, cases[i].config);
        const double layer = published_save_bytes(&shape, cases[i].recompute);
        CHECK(is_near(x.layer_activation_bytes, 96 * layer, 1e-9), "%s: %.9g bytes, not %.9g",
              cases[i].config, x.layer_activation_bytes, 96 * layer);
    }
    // 7.5 billion parameters on 64 ranks (Rajbhandari et al. 2020), with 2 bytes a gradient
    static const double gb[] = {120, 31.4, 16.6, 1.88};
    p = problem_of("megatron-7.5b", "a100-80", 8, 64, 2048);
    p.job.gradient_bytes = 2;
    for (int zero = 0; zero < 4; zero++) {
        char text[64];
        snprintf(text, sizeof text, "dp=64 zero=%d shard=%d", zero, zero ? 64 : 1);
        const double scale = 7.5e9 / par_plan_parameters(&p.model);
        const double bytes = predict(&p, text).mean_state_bytes * scale;
        CHECK(is_near(bytes, gb[zero] * 1e9, 0.01), "ZeRO-%d: %.4g GB, not %.4g", zero, bytes / 1e9,
              gb[zero]);
    }
}
// Bytes that a rank sends to its replicas in a step of four microbatches (dp=4: two), at most, and has where
// most memory is needed: what `build/gpt --plan` says, which counts as its ledger does, with four ranks, 8
// sequences, --n_layer 4 --n_head 4 --n_embd 128 --block_size 64. A head that is tied to the embedding has
// gradients of its own on a rank that has both; where backward is split gradients are whole, and are reduced
// once.
static void shards(void) {
    static const struct {
        const char *config;
        double sums, gathers, parameters, gradients, states;
    } cases[] = {
        {"dp=4 zero=2 shard=4", 5005824, 2502912, 3337216, 834304, 1668608},
        {"dp=4 zero=3 shard=4", 5005824, 10011648, 834304, 834304, 1668608},
        {"pp=2 dp=2 zero=1 shard=2", 875008, 875008, 1750016, 1750016, 1750016},
        {"pp=2 dp=2 zero=2 shard=2", 3500032, 875008, 1750016, 875008, 1750016},
        {"pp=2 dp=2 zero=3 shard=2", 3500032, 7000064, 875008, 875008, 1750016},
        {"pp=2 dp=2 zero=2 shard=2 schedule=zb_h1", 875008, 875008, 1718272, 1718272, 1718272},
        {"pp=2 dp=2 zero=3 shard=2 schedule=zb_h1", 875008, 7000064, 859136, 1718272, 1718272},
        {"pp=2 dp=2 zero=1 shard=2 schedule=zb_v chunks=2", 941056, 875520, 1751040, 1882112, 1751040},
        {"pp=2 dp=2 zero=3 shard=2 schedule=zb_v chunks=2", 941056, 7528448, 875520, 1882112, 1751040},
        {"pp=2 dp=2 zero=2 shard=2 schedule=dualpipe chunks=2", 2601216, 2502912, 3337216, 3468288, 1668608},
        {"pp=2 dp=2 zero=3 shard=2 schedule=dualpipe chunks=2", 2601216, 10404864, 834304, 3468288, 1668608}};
    par_plan_problem p = problem_of("gpt2", "h100", 1, 8, 64);
    const par_plan_model small = {"", 4, 128, 4, 4, 32, 512, 256, 64, 0, 1, 1};
    p.model = small;
    p.job.element_bytes = 4;
    p.job.state_bytes = 8;
    p.job.equal_layers = 1;
    p.machine.gpus_per_node = 4;
    p.machine.node_bandwidth = 1;
    p.machine.node_latency = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const par_plan_prediction x = predict(&p, cases[i].config);
        CHECK(is_near(x.times.dp, cases[i].sums + cases[i].gathers, 2e-3), "%s: %.0f bytes sent, not %.0f",
              cases[i].config, x.times.dp, cases[i].sums + cases[i].gathers);
        CHECK(is_near(x.memory.parameters, cases[i].parameters, 2e-3) &&
                  is_near(x.memory.gradients, cases[i].gradients, 2e-3) &&
                  is_near(x.memory.states, cases[i].states, 2e-3),
              "%s: %.0f, %.0f and %.0f bytes", cases[i].config, x.memory.parameters, x.memory.gradients,
              x.memory.states);
    }
    // the first and the last stage add up the gradients of their copies, each rank its shard
    static const struct {
        const char *config;
        double copies;
    } ties[] = {{"pp=2 dp=2", 1},
                {"pp=2 dp=2 zero=1 shard=2", .5},
                {"pp=2 dp=2 zero=2 shard=2", .5},
                {"pp=2 dp=2 schedule=zb_v chunks=2", 0}};
    for (size_t i = 0; i < sizeof ties / sizeof ties[0]; i++) {
        par_plan_problem untied = p;
        untied.model.tied = 0;
        const double bytes = predict(&p, ties[i].config).times.pp - predict(&untied, ties[i].config).times.pp;
        CHECK(fabs(bytes - ties[i].copies * 256 * 128 * 4) < 1, "%s: %.0f bytes of a tied weight",
              ties[i].config, bytes);
    }
}
// The formula against the simulation, on stages of equal cost; `least` and `most` of it.
static void bubbles(void) {
    static const struct {
        const char *config;
        double least, most; // formula / simulation
    } cases[] = {{"pp=4 dp=2 schedule=1f1b", .98, 1.02},
                 {"pp=4 dp=2 schedule=gpipe", .98, 1.02},
                 {"pp=4 dp=2 schedule=zb_h1", .98, 1.02},
                 {"pp=4 dp=2 schedule=zb_h2", .98, 1.02},
                 {"pp=4 dp=2 schedule=zb_v chunks=2", .98, 1.02},
                 {"pp=8 schedule=zb_v chunks=2 recompute=full", .98, 1.02},
                 {"pp=8 schedule=zb_h2 recompute=full", .98, 1.02},
                 {"pp=4 dp=2 schedule=interleaved_1f1b chunks=2", .98, 1.02},
                 {"pp=8 schedule=interleaved_1f1b chunks=3", .98, 1.02},
                 {"pp=4 dp=2 schedule=interleaved_zb chunks=3", .98, 1.02},
                 {"pp=4 dp=2 schedule=looped_bfs chunks=2", .98, 1.02},
                 {"pp=4 dp=2 schedule=dualpipev chunks=2", .98, 1.2},
                 {"pp=8 schedule=dualpipev chunks=2", .98, 1.2},
                 {"pp=8 schedule=dualpipe chunks=2", .98, 1.2},
                 {"pp=8 schedule=v_half chunks=2", .8, 1.4},
                 {"pp=4 dp=2 schedule=v_min chunks=2", .5, 2},
                 {"pp=4 dp=2 schedule=auto", .9, 1.02}};
    par_plan_problem p = problem_of("gpt2-xl", "a100-80", 1, 32, 1024);
    p.model.vocab = 1;
    p.job.equal_layers = 1;
    p.machine.memory_bytes = p.machine.memory_rate = 1e15;
    p.machine.sm_count = p.machine.kernel_seconds = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *config = cases[i].config;
        par_plan_choice choice;
        memset(&choice, 0, sizeof choice);
        choice.config = config_of(config);
        choice.prediction = predict(&p, config);
        const double formula = choice.prediction.times.bubble, seconds = choice.prediction.seconds;
        CHECK(par_plan_simulate(&p, &choice, 1, 0) == PAR_OK, "%s: no simulation", config);
        const double simulated = choice.prediction.times.bubble;
        CHECK(formula >= cases[i].least * simulated && formula <= cases[i].most * simulated,
              "%s: bubble %.6g s, simulated %.6g", config, formula, simulated);
        CHECK(is_near(choice.prediction.seconds - simulated, seconds - formula, 1e-9),
              "%s: the rest has changed", config);
    }
    par_plan_choice choice; // a head that is as much work as half of the layers
    memset(&choice, 0, sizeof choice);
    p.model.vocab = 50257 * 16, p.job.equal_layers = 0;
    choice.config = config_of("pp=8");
    choice.prediction = predict(&p, "pp=8");
    const double formula = choice.prediction.seconds;
    CHECK(par_plan_simulate(&p, &choice, 1, 0) == PAR_OK, "no simulation");
    CHECK(is_near(choice.prediction.seconds, formula, .02), "a large head: %g s, simulated %g", formula,
          choice.prediction.seconds);
}
// Memory that "auto" has left becomes microbatches in flight, and these a smaller bubble; what does not fit
// with 1F1B's microbatches in flight may fit with fewer.
static void memory_left(void) {
    par_plan_problem p = problem_of("gpt3-13b", "a100-80", 1, 64, 2048);
    const par_plan_prediction h1 = predict(&p, "pp=8 schedule=zb_h1"),
                              full = predict(&p, "pp=8 schedule=1f1b");
    double before = 1e300, live = 0;
    for (double bytes = full.bytes * .8; bytes < full.bytes * 2; bytes *= 1.25) {
        p.machine.memory_bytes = bytes + p.machine.reserved_bytes;
        const par_plan_prediction x = predict(&p, "pp=8 schedule=auto");
        CHECK(x.fits && x.bytes <= bytes, "auto needs %.4g of %.4g bytes", x.bytes, bytes);
        CHECK(x.in_flight >= live && x.times.bubble <= before, "%.4g bytes: %g in flight, bubble %g", bytes,
              x.in_flight, x.times.bubble);
        before = x.times.bubble;
        live = x.in_flight;
    }
    CHECK(live > 8 && before < h1.times.bubble, "%g in flight, bubble %g", live, before);
}
// Four ranks on two processors: stages that wait leave their time to others, so a pipeline's bubble costs
// little; and nothing takes less than all the work.
static void shared_processors(void) {
    par_plan_problem p = problem_of("gpt2", "h100", 1, 8, 64), own;
    par_plan_choice choice;
    p.machine.gpus_per_node = 4;
    p.machine.sm_count = 0;
    p.machine.kernel_seconds = p.machine.sync_seconds = 0;
    p.model.vocab = 64;
    own = p;
    p.machine.cores = 2;
    memset(&choice, 0, sizeof choice);
    choice.config = config_of("pp=4 overlap=pp");
    choice.prediction = predict(&p, "pp=4 overlap=pp");
    const par_plan_prediction alone = predict(&own, "pp=4 overlap=pp");
    CHECK(choice.prediction.times.bubble < alone.times.bubble / 4,
          "bubble %g s, with processors of its own %g", choice.prediction.times.bubble, alone.times.bubble);
    const double formula = choice.prediction.seconds, work = alone.seconds - alone.times.bubble;
    CHECK(par_plan_simulate(&p, &choice, 1, 0) == PAR_OK, "no simulation");
    CHECK(choice.prediction.seconds >= .99 * work && choice.prediction.seconds >= .99 * formula &&
              choice.prediction.seconds <= 1.3 * formula,
          "%g s simulated, %g by the formula, work %g", choice.prediction.seconds, formula, work);
    // so many microbatches that the ramps do not count: all processors are busy all the time
    p.job.batch = own.job.batch = 256;
    choice.prediction = predict(&p, "pp=4 overlap=pp");
    par_plan_simulate(&p, &choice, 1, 0);
    const par_plan_prediction many = predict(&own, "pp=4 overlap=pp");
    CHECK(is_near(choice.prediction.seconds, many.seconds - many.times.bubble, .02), "%g s, work %g",
          choice.prediction.seconds, many.seconds - many.times.bubble);
}
// A stage that waited wakes before it computes: three ranks on the way of one microbatch forward, and three
// on its way back, by the formula and by simulation. Where ranks have processors of their own, each message
// of 1F1B's formula waits for one.
static void wakes(void) {
    par_plan_problem p = problem_of("gpt2", "h100", 1, 1, 64);
    par_plan_choice choice[2];
    double formula[2];
    p.machine.gpus_per_node = 4;
    p.machine.sm_count = 0;
    p.machine.cores = 2;
    memset(choice, 0, sizeof choice);
    for (int i = 0; i < 2; i++) {
        p.machine.wake_seconds = i;
        choice[i].config = config_of("pp=4 overlap=pp");
        choice[i].prediction = predict(&p, "pp=4 overlap=pp");
        formula[i] = choice[i].prediction.seconds;
        CHECK(par_plan_simulate(&p, &choice[i], 1, 0) == PAR_OK, "no simulation");
    }
    CHECK(is_near(formula[1] - formula[0], 6, 1e-3), "wakes of 1 s take %g s", formula[1] - formula[0]);
    CHECK(is_near(choice[1].prediction.seconds - choice[0].prediction.seconds, 6, 1e-6),
          "simulated wakes of 1 s take %g s", choice[1].prediction.seconds - choice[0].prediction.seconds);
    p.machine.cores = 0;
    p.job.batch = 8;
    const double with = predict(&p, "pp=4 overlap=pp").times.pp;
    p.machine.wake_seconds = 0;
    CHECK(is_near(with - predict(&p, "pp=4 overlap=pp").times.pp, 2 * (3 * (8 / 4 + 1) - 1), 1e-6),
          "1F1B waits %g s for wakes", with - predict(&p, "pp=4 overlap=pp").times.pp);
}
// Where B and W apart cost a tenth of a layer, schedules that have them so compute a tenth longer.
static void splits(void) {
    par_plan_problem p = problem_of("gpt2", "h100", 1, 32, 256);
    double compute[2][2];
    p.machine.gpus_per_node = 4;
    p.model.vocab = 1; // of embedding and head there is next to nothing
    for (int i = 0; i < 2; i++) {
        p.machine.split_cost = i * .1;
        compute[i][0] = predict(&p, "pp=4 schedule=1f1b").times.compute;
        compute[i][1] = predict(&p, "pp=4 schedule=zb_h1").times.compute;
    }
    CHECK(is_near(compute[1][0], compute[0][0], 1e-9), "1F1B computes %g s", compute[1][0]);
    CHECK(is_near(compute[1][1], 1.1 * compute[0][1], 1e-2), "ZB-H1 computes %g s instead of %g",
          compute[1][1], compute[0][1]);
}
// With how many microbatches the planner takes a schedule: the fewest and the next (0: never); par_pipe.h has
// each of these tables.
static void schedules(void) {
    static const struct {
        const char *name;
        int chunks, fewest, next;
    } rules[] = {
        {"1f1b", 1, 1, 2},   {"gpipe", 1, 1, 2}, {"interleaved_1f1b", 3, 4, 8}, {"looped_bfs", 3, 4, 5},
        {"zb_h1", 1, 1, 2},  {"zb_h2", 1, 8, 9}, {"interleaved_zb", 3, 8, 12},  {"zb_v", 2, 8, 9},
        {"v_half", 2, 8, 9}, {"v_min", 2, 8, 9}, {"dualpipev", 2, 8, 9},        {"dualpipe", 2, 8, 10},
        {"auto", 1, 1, 2},   {"naive", 1, 0, 0}, {"pipedream_2bw", 1, 0, 0}};
    char why[320], text[96];
    for (int i = 0; i < PAR_PIPE_SCHEDULE_COUNT; i++) {
        int taken[2] = {0, 0}, count = 0;
        CHECK(!strcmp(par_plan_schedule_names[i], rules[i].name), "schedule %d is %s", i, rules[i].name);
        for (int m = 1; m < 16 && count < 2; m++) {
            par_plan_problem p = problem_of("gpt2", "h100", 1, m, 64);
            par_pipe_desc desc;
            par_pipe_schedule s;
            p.machine.gpus_per_node = 4;
            snprintf(text, sizeof text, "pp=4 schedule=%s chunks=%d", rules[i].name, rules[i].chunks);
            const par_plan_config c = config_of(text);
            if (par_plan_check(&p, &c, why, sizeof why)) continue;
            taken[count++] = m;
            memset(&desc, 0, sizeof desc);
            desc.schedule = rules[i].name;
            desc.ranks = 4;
            desc.chunks = rules[i].chunks;
            desc.microbatches = m;
            CHECK(par_pipe_schedule_open(&desc, &s) == PAR_OK, "%s of %d microbatches: %s", text, m, s.why);
            par_pipe_schedule_close(&s);
        }
        par_plan_report report;
        par_plan_choice choice;
        par_plan_problem any = problem_of("gpt2", "h100", 1, 8, 64);
        const par_plan_config fixed = config_of(text);
        const par_result searched =
            par_plan_search(&any, &fixed, 1u << PAR_PLAN_AXIS_schedule, 0, &choice, 1, &report);
        CHECK(rules[i].fewest || (searched == PAR_ERR_ARGUMENT && strstr(report.why, "is not planned")),
              "search for %s: %s", rules[i].name, report.why);
        CHECK(rules[i].fewest || strstr(why, "is not planned"), "%s: %s", rules[i].name, why);
        CHECK(taken[0] == rules[i].fewest && taken[1] == rules[i].next, "%s takes %d and %d microbatches",
              rules[i].name, taken[0], taken[1]);
    }
}
// Seconds of a ring's backward of c blocks, kernel by kernel and message by message as par_tp.h issues them:
// `block` for both kernels, `queries` of it for the second one; `key` and `gradient` for a hop.
static double ring_backward(int c, double block, double queries, double key, double gradient) {
    double now = queries, arrived = key, link = key; // the first keys travel beside the gradients of queries
    for (int j = 1; j <= c; j++) {
        now = fmax(now, arrived);
        if (j + 1 < c) arrived = link = fmax(now, link) + key;
        const double keys_end = now + block - queries;
        now = j < c ? now + block : keys_end;
        if (j < c) now = fmax(now, link = fmax(keys_end, link) + gradient);
    }
    return now;
}
// Context parallelism on GPUs whose attention takes a second for each square of a rank's tokens in backward.
static void context(void) {
    static const struct {
        int ranks;
        double key, dropout;
    } cases[] = {{2, .2, 0}, {2, .3, 0}, {2, .6, 0}, {4, .1, 0},  {4, .25, 0}, {4, .35, 0},
                 {4, .5, 0}, {4, 2, 0},  {8, .3, 0}, {8, .45, 0}, {8, .7, 1},  {2, .3, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int c = cases[i].ranks;
        const double key = cases[i].key, hops = c - 1, rows = 1024, width = 768;
        par_plan_problem p = problem_of("gpt2", "h100", 1, 1, rows * c);
        p.model.positions = (int)rows * c;
        p.model.heads = p.model.kv_heads = 16, p.model.head_dim = 48;
        p.machine.gpus_per_node = c;
        p.machine.node_latency = p.machine.kernel_seconds = p.machine.overlap_cost = 0;
        p.machine.attention_rate = 5 * rows * rows * width;
        p.machine.memory_rate = 1e30;
        p.machine.node_bandwidth = 2 * rows * 2 * width / key;
        p.job.dropout = cases[i].dropout;
        char text[64];
        snprintf(text, sizeof text, "cp=%d", c);
        const double forward = hops * fmax(key - 2.0 / 5, 0);
        const double backward = ring_backward(c, 1, 3.0 / 7, key, 2 * key) - c;
        const double ring = predict(&p, text).times.cp / p.model.layers;
        CHECK(is_near(ring, forward + backward, 1e-6) || fabs(ring) + backward + forward < 1e-9,
              "case %d: %g s of a ring's messages, not %g + %g", (int)i, ring, forward, backward);
        // queries, keys, values and outputs; in backward twice; without cuDNN dot products for outputs
        const double dots = cases[i].dropout > 0 ? 4 * 16 / (2 * width) : 1, part = hops / c * key / 2;
        snprintf(text, sizeof text, "cp=%d ulysses=1", c);
        const double ulysses = predict(&p, text).times.cp / p.model.layers;
        CHECK(is_near(ulysses, (4 + 7 + dots) * part, 1e-6), "case %d: %g s of all-to-alls, not %g", (int)i,
              ulysses, (4 + 7 + dots) * part);
    }
}
// What dropout adds, by bytes, where a byte takes a second: masks of a byte for both residuals (drawn in
// forward, read in backward, with the gradient) and for the embedding; for scores if attention is not fused.
static void masks(void) {
    for (int unfused = 0; unfused < 2; unfused++) {
        par_plan_prediction t[2];
        par_plan_problem p = problem_of("gpt2", "h100", 1, 1, 64);
        const double layers = 12, tokens = 64 * 768, scores = unfused ? 12 * 64 * 64 : 0, e = 2;
        p.machine.gpus_per_node = 1;
        p.machine.memory_rate = 1, p.machine.kernel_seconds = p.machine.sync_seconds = 0;
        p.job.unfused = unfused;
        for (int dropout = 0; dropout < 2; dropout++)
            p.job.dropout = dropout, t[dropout] = predict(&p, "dp=1");
        const double seconds = layers * (2 * tokens + 2 * (2 * e + 1) * tokens + 2 * scores * (2 * e + 1));
        const double bytes = layers * (2 * tokens + scores * (e + 1)) + tokens;
        CHECK(is_near(t[1].times.compute - t[0].times.compute, seconds, 1e-6), "%g s of masks, not %g",
              t[1].times.compute - t[0].times.compute, seconds);
        CHECK(is_near(t[1].memory.activations - t[0].memory.activations, bytes, 1e-9), "%g bytes, not %g",
              t[1].memory.activations - t[0].memory.activations, bytes);
    }
}
// Messages of ZeRO-3 that are slower than all computation: 11 of 12 layers hide them, forward and backward.
static void hidden(void) {
    par_plan_problem p = problem_of("gpt2", "h100", 1, 2, 64);
    p.model.vocab = 1;
    p.machine.gpus_per_node = 2;
    p.machine.node_bandwidth = 1e3, p.machine.overlap_cost = 0;
    const par_plan_prediction none = predict(&p, "dp=2 zero=3 shard=2"),
                              most = predict(&p, "dp=2 zero=3 shard=2 overlap=dp");
    p.model.layers++;
    const double layer = predict(&p, "dp=2 zero=3 shard=2").times.compute - none.times.compute;
    const double saved = none.times.dp - most.times.dp, want = 11 * layer;
    CHECK(is_near(saved, want, .005), "%g s are hidden, not %g", saved, want);
}
// Collectives of each layer, by what they cost where nothing else costs anything.
static void calls(void) {
    static const struct {
        const char *config;
        double tp, cp;                                  // of a layer
    } cases[] = {{"tp=4 microbatch=4", 4, 0},           // two all-reduces, in each direction
                 {"tp=4 sp=1 microbatch=4", 10, 0},     // four gathers and scatters; in backward inputs again
                 {"cp=4 ulysses=1 microbatch=4", 0, 6}, // two all-to-alls; in backward four
                 {"cp=4 microbatch=4", 0, 3 + 6},       // hops of keys; again, and of their gradients
                 {"dp=4 zero=1 shard=4", 0, 0}};
    par_plan_problem p = problem_of("gpt2", "h100", 1, 4, 64);
    par_plan_machine *x = &p.machine;
    x->gpus_per_node = 4;
    x->sm_count = x->kernel_seconds = x->sync_seconds = x->node_latency = x->net_latency = 0;
    x->product_rate = x->memory_rate = x->node_bandwidth = x->net_bandwidth = 1e30;
    x->call_seconds = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const par_plan_prediction t = predict(&p, cases[i].config);
        CHECK(is_near(t.times.tp + 1, 12 * cases[i].tp + 1, 1e-9) &&
                  is_near(t.times.cp + 1, 12 * cases[i].cp + 1, 1e-9),
              "%s: tp %g and cp %g calls of 12 layers", cases[i].config, t.times.tp, t.times.cp);
    }
    // a unit's gradients are scattered, and its parameters gathered: 12 layers, embedding and head
    CHECK(is_near(predict(&p, "dp=4 zero=1 shard=4").times.dp, 28, 1e-9), "ZeRO-1: %g calls",
          predict(&p, "dp=4 zero=1 shard=4").times.dp);
}
// A ring gathers: seconds until all blocks have passed all hops, each link one block after the other.
static double ring_gather(const par_plan_machine *x, int n, int k, double bytes) {
    double here[64], next[64], is_free[64] = {0}, last = 0; // a rank has its next block; its link is free
    for (int r = 0; r < n; r++) here[r] = 0;
    for (int step = 1; step < n; step++) {
        for (int r = 0; r < n; r++) {
            const int leaves = (r + 1) % k == 0;
            const double rate = leaves ? k * x->net_bandwidth : x->node_bandwidth;
            is_free[r] = fmax(here[r], is_free[r]) + bytes / n / rate;
            next[(r + 1) % n] = is_free[r] + (leaves ? x->net_latency : x->node_latency);
            last = fmax(last, next[(r + 1) % n]);
        }
        memcpy(here, next, sizeof here);
    }
    return last;
}
// Hops of each collective, and of all of ZeRO's, unit by unit, where nothing but one level's latency costs
// anything; a ring, hop by hop; links that a node's GPUs share.
static void network(void) {
    static const double hops[][2] = {{1343, 192}, {2 * 1343, 2 * 192}, {14, 16}, {7, 191}, {14, 382}};
    static const struct {
        const char *config;
        double within, between; // of 14 units, on two nodes of two GPUs
    } zero[] = {{"dp=4 zero=3 shard=4", 14 * 3, 14 * 3 * 2},
                {"dp=4 zero=3 shard=4 recompute=full", 14 * 4, 14 * 4 * 2},
                {"dp=4 zero=1 shard=2", 14 * 2, 14 * 2}, // between nodes sums of copies
                {"dp=4", 14 * 2, 14 * 2}};               // trees have fewer hops than a ring
    par_plan_problem p = problem_of("gpt2", "a100-80", 2, 4, 64);
    par_plan_machine x = p.machine;
    const double bytes[] = {1, 1e7, 1e8, 1e12};
    for (int i = 0; i < 4; i++) { // in between latency and bytes hide a part of each other
        const double formula = par_plan_collective_seconds(&x, PAR_PLAN_RING_GATHER, bytes[i], 64, 8),
                     ring = ring_gather(&x, 64, 8, bytes[i]);
        CHECK(ring < 1.001 * formula && ring > (i % 3 ? .75 : .99) * formula, "%g bytes: %g s in a ring, %g",
              bytes[i], ring, formula);
    }
    x.node_bandwidth = x.net_bandwidth = 1e30;
    for (int level = 0; level < 2; level++) {
        x.node_latency = !level, x.net_latency = level;
        for (int i = 0; i < PAR_PLAN_COLLECTIVE_COUNT; i++) {
            const double t = par_plan_collective_seconds(&x, (par_plan_collective)i, 1, 1536, 8);
            CHECK(is_near(t, hops[i][level], 1e-9), "collective %d, level %d: %g hops", i, level, t);
        }
        p.machine = x, p.machine.gpus_per_node = 2, p.job.gathers_again = 1;
        for (size_t i = 0; i < sizeof zero / sizeof zero[0]; i++) {
            const double t = predict(&p, zero[i].config).times.dp,
                         want = level ? zero[i].between : zero[i].within;
            CHECK(is_near(t, want, 1e-9), "%s, level %d: %g hops, not %g", zero[i].config, level, t, want);
        }
    }
    x.net_bandwidth = 1, x.net_latency = 0;
    for (int links = 1; links <= 16; links *= 2) { // 8 GPUs have the links that there are, at most one each
        x.net_links = links;
        const double t = par_plan_collective_seconds(&x, PAR_PLAN_RING_GATHER, 16, 16, 8);
        CHECK(is_near(t, 15.0 / (links < 8 ? links : 8), 1e-9), "%d links: %g s", links, t);
    }
    p = problem_of("gpt2", "a100-80", 4, 32, 1024);
    const double late = predict(&p, "dp=32 zero=1 shard=8 overlap=dp").times.dp;
    p.job.sums_copies_early = 1;
    CHECK(predict(&p, "dp=32 zero=1 shard=8 overlap=dp").times.dp < .9 * late,
          "sums of copies are not hidden");
}
static void four_ranks(par_plan_machine *x) { // on two processors
    memset(x, 0, sizeof *x);
    x->nodes = 1;
    x->gpus_per_node = 4;
    x->cores = 2;
    x->product_rate = 60e9;
    x->rows_half = 12;
    x->columns_half = 20;
    x->inner_half = 9;
    x->kernel_seconds = 2e-6;
    x->memory_rate = 3e9;
    x->update_rate = 9e9;
    x->loss_rate = 1e8;
    x->memory_bytes = 8e9;
    x->call_seconds = 12e-6;
    x->wake_seconds = 2e-4;
    x->split_cost = .05;
    x->node_bandwidth = x->net_bandwidth = 2e9;
    x->overlap_cost = 1;
}
static double layer_seconds(const par_plan_problem *p, const char *layout) {
    par_plan_problem less = *p;
    less.model.layers--;
    const par_plan_prediction x = predict(p, layout), y = predict(&less, layout);
    return x.times.compute + x.times.tp + x.times.cp - y.times.compute - y.times.tp - y.times.cp;
}
// Layers that ranks share tell what their messages take where that is more than a sum alone takes; never that
// they take less. They are measured with more sequences than one rank's.
static void fits_shared_layers(par_plan_problem *truth, par_plan_measured *m, par_plan_problem *p) {
    static const double slower[] = {3, .5};
    const double bandwidth = truth->machine.node_bandwidth;
    truth->job.batch = m->shared_microbatch = 16;
    for (int i = 0; i < 2; i++) {
        const double rate = slower[i] > 1 ? slower[i] : 1;
        par_plan_problem no_calls = *truth;
        no_calls.machine.call_seconds = no_calls.machine.tp_bandwidth = no_calls.machine.cp_bandwidth = 0;
        no_calls.machine.ring_bandwidth = 0;
        const double plain = predict(&no_calls, "tp=4 microbatch=16").times.tp;
        no_calls.machine.tp_bandwidth = truth->machine.tp_bandwidth = bandwidth / slower[i];
        CHECK(is_near(predict(&no_calls, "tp=4 microbatch=16").times.tp, slower[i] * plain, 1e-9),
              "messages %g times as slow", slower[i]);
        m->shared_layer_seconds = layer_seconds(truth, "tp=4 microbatch=16");
        par_plan_fit(p, m);
        CHECK(is_near(p->machine.tp_bandwidth, bandwidth / rate, .05) &&
                  is_near(p->machine.node_bandwidth, bandwidth, 1e-9),
              "messages at %g and %g bytes/s", p->machine.tp_bandwidth, p->machine.node_bandwidth);
        truth->machine.cp_bandwidth = bandwidth / slower[i];
        m->ulysses_layer_seconds = layer_seconds(truth, "cp=4 microbatch=16 ulysses=1");
        truth->machine.ring_bandwidth = bandwidth / slower[1 - i];
        m->ring_layer_seconds = layer_seconds(truth, "cp=4 microbatch=16");
        par_plan_fit(p, m);
        CHECK(
            is_near(p->machine.cp_bandwidth, bandwidth / rate, .05) &&
                is_near(p->machine.ring_bandwidth, bandwidth / (slower[1 - i] > 1 ? slower[1 - i] : 1), .05),
            "context at %g bytes/s, in a ring at %g", p->machine.cp_bandwidth, p->machine.ring_bandwidth);
    }
}
// What the planner predicts for a machine, taken as its measurements, gives that machine's predictions again.
static void fits(void) {
    par_plan_problem truth = problem_of("gpt2", "h100", 1, 32, 256), p;
    par_plan_machine *x = &truth.machine;
    par_plan_measured m;
    memset(&m, 0, sizeof m);
    four_ranks(x);
    truth.job.element_bytes = 4;
    static const double sizes[5][3] = {
        {1024, 3072, 768}, {128, 3072, 768}, {1024, 384, 768}, {1024, 3072, 96}, {0, 0, 0}};
    for (int i = 0; i < 5; i++) {
        par_plan_product *s = &m.products[i];
        s->rows = sizes[i][0];
        s->columns = sizes[i][1];
        s->inner = sizes[i][2];
        s->seconds = 2 * (s->rows + 12) * (s->columns + 20) * (s->inner + 9) / 60e9 + 2e-6;
        if (i == 4) s->seconds = 2e-6;
        s->seconds /= 2; // on a processor of its own
    }
    m.microbatch = 4;
    m.oversubscription = 2;
    truth.job.batch = 4;
    x->gpus_per_node = 1;
    x->cores = 0;
    const par_plan_prediction one = predict(&truth, "microbatch=4");
    truth.model.layers++;
    m.layer_seconds = (predict(&truth, "microbatch=4").times.compute - one.times.compute) / 2;
    m.embedding_head_seconds = one.times.compute / 2 - 12 * m.layer_seconds;
    truth.model.layers--;
    m.split_layer_seconds = m.layer_seconds * (1 + x->split_cost);
    m.update_seconds = 58 / 9e9 / 2;
    x->gpus_per_node = m.node.ranks = 4;
    x->cores = 2;
    truth.job.batch = 32;
    m.node.bytes = 1e6;
    m.node.small_seconds = 12e-6;
    m.node.seconds = m.node.small_seconds + 2 * 1e6 * 3 / 4 / 2e9;
    m.relay_seconds = m.embedding_head_seconds + 4 * 256 * 768 * 4 / 2e9 + x->wake_seconds;
    p = truth;
    x = &p.machine;
    x->product_rate = x->rows_half = x->columns_half = x->inner_half = x->memory_rate = x->kernel_seconds = 0;
    x->update_rate = x->loss_rate = x->cores = x->call_seconds = x->node_bandwidth = x->wake_seconds = 0;
    x->split_cost = 0;
    par_plan_fit(&p, &m);
    static const char *const layouts[] = {"dp=4 zero=1 shard=4", "tp=4 microbatch=8",
                                          "pp=4 overlap=pp",     "cp=4 microbatch=2",
                                          "tp=2 dp=2 sp=1",      "pp=4 overlap=pp schedule=zb_h1"};
    for (int i = 0; i < 6; i++) {
        const double want = predict(&truth, layouts[i]).seconds, got = predict(&p, layouts[i]).seconds;
        CHECK(is_near(got, want, .02), "%s: %.6g s, not %.6g", layouts[i], got, want);
    }
    CHECK(is_near(x->wake_seconds, truth.machine.wake_seconds, 1e-6), "a wake takes %g s", x->wake_seconds);
    CHECK(is_near(x->split_cost, truth.machine.split_cost, 1e-6), "B and W apart cost %g", x->split_cost);
    m.relay_seconds = m.embedding_head_seconds / 2;
    m.split_layer_seconds = 0;
    par_plan_fit(&p, &m);
    CHECK(x->split_cost <= 0, "B and W apart cost %g", x->split_cost);
    CHECK(x->wake_seconds <= 0, "a wake takes %g s", x->wake_seconds);
    fits_shared_layers(&truth, &m, &p);
}
// Blocks of attention: layers with shorter sequences tell what a block costs, and what a score.
static void blocks(void) {
    par_plan_problem truth = problem_of("gpt2", "h100", 1, 4, 256), p;
    par_plan_measured m;
    double seconds[3];
    memset(&m, 0, sizeof m);
    four_ranks(&truth.machine);
    truth.machine.gpus_per_node = 1;
    truth.machine.cores = 0;
    truth.machine.block_seconds = 3e-5;
    truth.machine.score_seconds = 4e-9;
    for (int i = 0; i < 3; i++) {
        par_plan_problem one = truth;
        const int parts = i ? 2 << i : 1;
        char text[64];
        one.job.sequence = 256 / parts;
        one.job.batch = 4 * parts;
        snprintf(text, sizeof text, "microbatch=%d", 4 * parts);
        seconds[i] = -predict(&one, text).times.compute;
        one.model.layers++;
        seconds[i] += predict(&one, text).times.compute;
    }
    m.microbatch = 4;
    m.layer_seconds = seconds[0];
    for (int i = 0; i < 2; i++) {
        m.shorter[i].sequence = i ? 32 : 64;
        m.shorter[i].layer_seconds = seconds[i + 1];
    }
    for (int i = 0; i < 5; i++) {
        par_plan_product *x = &m.products[i];
        x->rows = i == 1 ? 128 : 1024;
        x->columns = i == 2 ? 384 : 3072;
        x->inner = i == 3 ? 96 : 768;
        x->seconds = i == 4 ? 2e-6 : 2 * (x->rows + 12) * (x->columns + 20) * (x->inner + 9) / 60e9 + 2e-6;
    }
    p = truth;
    par_plan_fit(&p, &m);
    CHECK(is_near(p.machine.block_seconds, 3e-5, 1e-3) && is_near(p.machine.score_seconds, 4e-9, 1e-3),
          "a block %g s, a score %g s", p.machine.block_seconds, p.machine.score_seconds);
    m.shorter[1].layer_seconds = 0;
    par_plan_fit(&p, &m);
    CHECK(p.machine.block_seconds <= 0 && p.machine.score_seconds <= 0, "not measured, but used");
}
// Disks hold states where nothing else does, 8-bit products keep 8-bit inputs, and what a machine does not
// have is refused.
static void disks_and_precision(void) {
    par_plan_problem p = problem_of("llama3-70b", "h100", 1, 64, 8192);
    p.job.fp8 = 1;
    const char *const layout = "tp=8 sp=1 recompute=full overlap=tp";
    char text[256], why[320];
    const par_plan_prediction host = predict(
                                  &p, (snprintf(text, sizeof text, "%s offload=states", layout), text)),
                              disk =
                                  predict(&p, (snprintf(text, sizeof text, "%s offload=disk", layout), text));
    CHECK(is_near(disk.memory.disk, host.memory.host, 1e-12) && disk.memory.host <= 0 &&
              host.memory.disk <= 0,
          "disk %g, host %g", disk.memory.disk, host.memory.host);
    CHECK(disk.seconds > host.seconds && disk.bytes <= host.bytes, "disks are not slower");
    CHECK(disk.times.offload > 70.6e9 / 8 * 24 / p.machine.disk_rate - disk.times.update, "offload %g s",
          disk.times.offload);
    p.machine.disk_bytes = 1e9;
    CHECK(!predict(&p, text).fits, "states fit on a small disk");
    // the first rank offloads more activations than the last, which has most memory because of the logits
    const par_plan_prediction ends = predict(&p, "tp=4 pp=2 sp=1 recompute=full offload=activations");
    CHECK(is_near(ends.memory.host, ends.layer_activation_bytes, 1e-9) && ends.in_flight > 1.5,
          "%g bytes on the host, not %g", ends.memory.host, ends.layer_activation_bytes);
    p.machine.disk_bytes = 0;
    par_plan_config c = config_of(text);
    CHECK(par_plan_check(&p, &c, why, sizeof why) && strstr(why, "disk"), "%s", why);
    const par_plan_prediction wide = predict(&p, "tp=8 sp=1"), narrow = predict(&p, "tp=8 sp=1 fp8=1");
    CHECK(narrow.memory.activations < wide.memory.activations && narrow.times.compute < wide.times.compute,
          "8 bits: activations %g and %g", narrow.memory.activations, wide.memory.activations);
    CHECK(narrow.memory.parameters > 1.9 * wide.memory.parameters, "8-bit copies and transposes");
}
// Logits of at most 16384 rows exist at a time, but of all where backward is in halves: 6 bytes each.
static void logits(void) {
    const par_plan_problem p = problem_of("gpt2", "h100", 1, 512, 1024);
    double bytes[2][2];
    for (int halves = 0; halves < 2; halves++)
        for (int many = 0; many < 2; many++) {
            char text[96];
            snprintf(text, sizeof text, "pp=2 dp=4 schedule=%s microbatch=%d", halves ? "zb_h1" : "1f1b",
                     many ? 64 : 16);
            bytes[halves][many] = predict(&p, text).memory.buffers;
        }
    const double all = 6.0 * 65536 * p.model.vocab;
    CHECK(bytes[0][1] < all && bytes[1][1] - bytes[0][1] > 0.7 * all && bytes[1][1] > all,
          "%g bytes of buffers in chunks, %g else", bytes[0][1], bytes[1][1]);
    CHECK(bytes[0][0] - bytes[1][0] < 0.01 * all, "16384 rows are one chunk: %g, %g", bytes[0][0],
          bytes[1][0]);
}
// Each machine has the recipes that its kernels multiply by; scales that a kernel must find first cost a
// pass, and codes of 4 bits are faster and smaller than those of 8.
static void recipes(void) {
    static const char *const of[2][4] = {{"delayed", "current", "rowwise", "blocks"},
                                         {"delayed", "current", "mxfp8", "nvfp4"}};
    for (int g = 0; g < 2; g++) {
        par_plan_problem p = problem_of("llama3-70b", g ? "b200" : "h100", 1, 64, 8192);
        char text[96], why[320];
        p.job.fp8 = 2;
        const par_plan_prediction wide = predict(&p, "tp=8 sp=1");
        par_plan_prediction x[4];
        for (int i = 0; i < 4; i++) {
            x[i] = predict(&p, (snprintf(text, sizeof text, "tp=8 sp=1 fp8=%s", of[g][i]), text));
            CHECK(x[i].seconds < wide.seconds && x[i].memory.activations < wide.memory.activations,
                  "%s is no gain", of[g][i]);
        }
        CHECK(x[1].seconds > x[0].seconds, "finding a scale costs nothing");
        if (g)
            CHECK(x[3].seconds < x[2].seconds && x[3].memory.activations < x[2].memory.activations, "nvfp4");
        for (int i = 2; i < 4; i++) {
            const par_plan_config c =
                config_of((snprintf(text, sizeof text, "tp=8 sp=1 fp8=%s", of[!g][i]), text));
            CHECK(par_plan_check(&p, &c, why, sizeof why) == PAR_ERR_ARGUMENT, "%s has %s", p.machine.name,
                  of[!g][i]);
        }
        p.job.fp8 = 1;
        const par_plan_config four = config_of("tp=8 sp=1 fp8=nvfp4");
        CHECK(par_plan_check(&p, &four, why, sizeof why) == PAR_ERR_ARGUMENT, "4 bits where 8 are allowed");
    }
}
// The bound of a node where it is tight: equal stages, nothing but computation, and many chunks, which leave
// the smallest of bubbles.
static void tight_bound(void) {
    par_plan_problem p = problem_of("gpt2", "h100", 1, 8, 256);
    p.model.layers = 64;
    p.model.vocab = 1;
    p.machine.gpus_per_node = 4;
    p.machine.kernel_seconds = p.machine.node_latency = p.machine.sync_seconds = 0;
    p.machine.node_bandwidth = 1e30;
    p.job.update_bytes = 1e-30;
    const par_plan_config c = config_of("pp=4 schedule=interleaved_zb chunks=16 overlap=pp");
    const par_plan_prediction x = predict(&p, "pp=4 schedule=interleaved_zb chunks=16 overlap=pp");
    const par__plan_case k = par__plan_case_of(&p, &c);
    const par__plan_layer l = par__plan_layer_of(&k, 0);
    const double bound = par__plan_node_bound(&k, &l, c);
    CHECK(bound <= x.seconds && bound > .99 * (x.seconds - x.times.bubble), "bound %.9g of %.9g s", bound,
          x.seconds);
}
// The shortest time of the slowest of p ranks that share so many layers, one of which has `first` besides and
// one `last`: all layers of the first rank, and of the last, are tried.
static double best_cut(int layers, int p, double layer, double first, double last) {
    double best = 1e300;
    for (int a = 0; a <= layers; a++)
        for (int b = 0; a + b <= layers; b++) {
            const int rest = layers - a - b, middle = p > 2 ? (rest + p - 3) / (p - 2) : 0;
            if (p == 2 && rest) continue;
            best = fmin(best, fmax(fmax(a * layer + first, b * layer + last), middle * layer));
        }
    return best;
}
// The same with v chunks a rank, of which the first and the last give up layers, while others have n.
static double best_chunks(int layers, int p, int v, double layer, double first, double last) {
    double best = 1e300;
    for (int n = (layers + p - 1) / p; n < layers + v; n++)
        for (int a = 0; a <= n / v; a++)
            for (int b = 0; b <= n / v && a + b <= n * p - layers; b++)
                best = fmin(best, n * layer + fmax(fmax(first - a * layer, last - b * layer), 0));
    return best;
}
// The stages of a cut have all layers, none a negative number of them, and no rank takes longer than the cut
// says.
static void check_stages(const par__plan_cut *cut, int layers, int p, int v, int schedule, double first,
                         double last) {
    par_plan_model m;
    par__plan_case k;
    par_plan_config c = config_of("");
    int stages[64], sum = 0;
    memset(&m, 0, sizeof m);
    memset(&k, 0, sizeof k);
    m.layers = layers;
    k.m = &m;
    c.pp = p;
    c.chunks = v;
    c.schedule = schedule;
    par__plan_stage_layers(&k, &c, cut, stages);
    for (int i = 0; i < p * v; i++) sum += stages[i] >= 0 ? stages[i] : 1000;
    const int n = (int)cut->middle;
    CHECK(v == 1 || (stages[0] + first <= n / v + cut->ends + 1e-9 &&
                     stages[p * v - 1] + last <= (n + v - 1) / v + cut->ends + 1e-9),
          "%d layers, %d ranks, %d chunks, %s: the first has %d, the last %d", layers, p, v,
          par_plan_schedule_names[schedule], stages[0], stages[p * v - 1]);
    CHECK(sum == layers, "%d layers, %d ranks, %d chunks, %s: stages have %d", layers, p, v,
          par_plan_schedule_names[schedule], sum);
    for (int r = 0; r < p; r++) {
        double seconds = (r == 0 ? first : 0) + (v == 1 && r == p - 1 ? last : 0);
        for (int i = 0; i < v; i++)
            seconds += stages[schedule == PAR_PIPE_ZB_V && i ? 2 * p - 1 - r : i * p + r];
        CHECK(v > 1 || seconds <= cut->slowest + 1e-9, "rank %d takes %g s, not %g", r, seconds,
              cut->slowest);
    }
}
static void best_cuts(void) {
    unsigned state = 7;
    for (int i = 0; i < 4000; i++) {
        const int layers = 1 + (int)random_below(&state, 24), p = 2 + (int)random_below(&state, 5);
        const int v = 1 + (int)random_below(&state, 4), both = v == 2 && random_below(&state, 2);
        const double first = random_below(&state, 400) / 100., last = random_below(&state, 400) / 100.;
        if (p * v > layers) continue;
        const par__plan_cut cut = par__plan_cut_of(layers, p, v, both, 0, 1, first, last);
        const double best =
            v > 1 ? best_chunks(layers, p, v, 1, first, last) : best_cut(layers, p, 1, first, last);
        CHECK(is_near(cut.slowest, best, 1e-9),
              "%d layers, %d ranks, %d chunks, ends %g and %g: %.9g s, not %.9g", layers, p, v, first, last,
              cut.slowest, best);
        CHECK(is_near(cut.slowest, cut.slowest_layers + cut.ends, 1e-9), "parts of the slowest");
        CHECK(is_near(cut.sum, layers + first + last, 1e-12), "the sum");
        check_stages(&cut, layers, p, v,
                     both    ? PAR_PIPE_ZB_V
                     : v > 1 ? PAR_PIPE_INTERLEAVED
                             : PAR_PIPE_1F1B,
                     first, last);
    }
}
// A head as large as layers: the cut moves layers away from it, which is faster than equal stages.
static void cuts(void) {
    par_plan_problem p = problem_of("llama3-8b", "h100", 1, 64, 4096), equal;
    equal = p;
    equal.job.equal_layers = 1;
    const double cut = predict(&p, "pp=8 overlap=pp").seconds,
                 same = predict(&equal, "pp=8 overlap=pp").seconds;
    CHECK(cut < 0.95 * same, "cut %.6g s, equal stages %.6g", cut, same);
    // the formula for unequal stages is within 10% of their simulation, which decides among the best
    static const char *const configs[] = {"pp=8 overlap=pp",
                                          "pp=4 dp=2 overlap=dp+pp",
                                          "pp=2 dp=4 schedule=interleaved_1f1b chunks=8 overlap=dp+pp",
                                          "pp=2 dp=4 schedule=interleaved_1f1b chunks=16 overlap=dp+pp",
                                          "pp=4 dp=2 schedule=interleaved_1f1b chunks=4 overlap=dp+pp",
                                          "pp=8 schedule=interleaved_1f1b chunks=2 overlap=pp",
                                          "pp=4 dp=2 schedule=zb_h1 overlap=dp+pp"};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        par_plan_choice choice;
        memset(&choice, 0, sizeof choice);
        choice.config = config_of(configs[i]);
        choice.prediction = predict(&p, configs[i]);
        const double seconds = choice.prediction.seconds;
        CHECK(par_plan_simulate(&p, &choice, 1, 0) == PAR_OK, "%s: no simulation", configs[i]);
        CHECK(is_near(choice.prediction.seconds, seconds, 0.1), "%s: %.6g s, simulated %.6g", configs[i],
              seconds, choice.prediction.seconds);
    }
}

// ---- the rules of the field ------------------------------------------------------------------------------

static par_plan_choice best_of(const par_plan_problem *p, const char *fix) {
    par_plan_choice best;
    par_plan_config c;
    par_plan_report report;
    unsigned mask;
    char why[320];
    memset(&best, 0, sizeof best);
    CHECK(par_plan_parse(fix, &c, &mask, why, sizeof why) == PAR_OK, "%s", why);
    par_plan_search(p, &c, mask, 0, &best, 1, &report);
    CHECK(report.count == 1 && report.proved, "%s: %s", fix, report.why);
    return best;
}
static void rules(void) {
    static const struct {
        const char *model;
        int nodes;
        double batch;
    } large[] = {{"gpt3-175b", 64, 1024}, {"megatron-530b", 64, 512}, {"megatron-310b", 240, 2160}};
    for (int i = 0; i < 3; i++) {
        const par_plan_problem p =
            problem_of(large[i].model, "a100-80", large[i].nodes, large[i].batch, 2048);
        const par_plan_choice best = best_of(&p, "cp=1");
        const par_plan_config *c = &best.config;
        char text[256];
        par_plan_format(c, 1, text, sizeof text);
        CHECK(c->tp > 1 && c->tp <= 8, "%s: tp leaves the node: %s", large[i].model, text);
        CHECK(c->pp > 1, "%s: no pipeline: %s", large[i].model, text);
        CHECK(c->zero == 1, "%s: not ZeRO-1 with a pipeline: %s", large[i].model, text);
        CHECK(c->sp == 1, "%s: no sequence parallelism: %s", large[i].model, text);
        CHECK(c->recompute < PAR_PLAN_RECOMPUTE_FULL, "%s: full recomputation: %s", large[i].model, text);
        CHECK(c->schedule != PAR_PIPE_GPIPE, "%s: GPipe: %s", large[i].model, text);
        // tensor parallelism over the network loses, and so does ZeRO-2 or 3 with that pipeline
        snprintf(text, sizeof text, "cp=1 tp=%d", 16);
        CHECK(best_of(&p, text).prediction.seconds > 1.05 * best.prediction.seconds, "%s: tp 16",
              large[i].model);
        for (int zero = 2; zero < 4 && c->dp > 1; zero++) {
            // (where backward is split ZeRO-2 sends and keeps what ZeRO-1 does)
            snprintf(text, sizeof text, "cp=1 tp=%d pp=%d zero=%d", c->tp, c->pp, zero);
            const double least = best.prediction.seconds * (zero == 2 ? 1 : 1.001);
            CHECK(best_of(&p, text).prediction.seconds >= least, "%s: ZeRO-%d", large[i].model, zero);
        }
    }
    // a backward that is whole reduces after each microbatch with ZeRO-2
    const par_plan_problem p = problem_of("gpt3-175b", "a100-80", 64, 1024, 2048);
    const char *const layout =
        "cp=1 tp=8 pp=8 dp=8 microbatch=1 schedule=interleaved_1f1b chunks=6 sp=1 zero=";
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s%d", layout, i + 1);
        seconds[i] = best_of(&p, text).prediction.seconds;
    }
    CHECK(seconds[1] > 1.01 * seconds[0], "ZeRO-2 takes %g s, ZeRO-1 %g", seconds[1], seconds[0]);
    // a model that fits on a GPU: data parallelism alone
    const par_plan_problem small = problem_of("gpt2", "h100", 4, 512, 1024);
    const par_plan_choice best = best_of(&small, "");
    CHECK(best.config.dp == 32 && best.config.recompute == 0, "gpt2: dp %d", best.config.dp);
    // selective before full recomputation, where memory forces one
    par_plan_problem tight = problem_of("megatron-22b", "a100-80", 1, 4, 2048);
    tight.job.unfused = tight.job.dropout = 1;
    CHECK(best_of(&tight, "tp=8 dp=1 microbatch=4 offload=none").config.recompute ==
              PAR_PLAN_RECOMPUTE_SELECTIVE,
          "22b: recomputation");
}
// Figures 13 and 16 of Narayanan et al. 2021: tensor parallelism fills a node before pipelines go across
// nodes, and a microbatch of 2 is the best for (8, 8) at 91 billion parameters and a batch of 512.
static void published_order(void) {
    par_plan_problem p = problem_of("megatron-145b", "a100-80", 8, 32, 2048);
    double best = 1e300;
    int tp = 0;
    p.model.layers = 32;
    p.model.features = 20480;
    p.model.heads = p.model.kv_heads = 128;
    p.model.head_dim = 160;
    p.model.hidden = 4 * 20480;
    p.machine.memory_bytes = 1e15;
    p.job.unfused = p.job.dropout = p.job.separate_gradients = p.job.equal_layers = 1;
    p.job.gradient_bytes = 2;
    for (int t = 2; t <= 32; t *= 2) {
        char text[64];
        snprintf(text, sizeof text, "tp=%d pp=%d microbatch=1 recompute=full", t, 64 / t);
        const double seconds = predict(&p, text).seconds;
        if (seconds < best) tp = t;
        if (seconds < best) best = seconds;
    }
    CHECK(tp == 8, "figure 13: tp %d is the fastest", tp);
    p.model.features = 15360;
    p.model.head_dim = 120;
    p.model.hidden = 4 * 15360;
    p.job.batch = 512;
    best = 1e300;
    int microbatch = 0;
    for (int n = 1; n <= 8; n *= 2) {
        char text[64];
        snprintf(text, sizeof text, "tp=8 pp=8 microbatch=%d recompute=full", n);
        const double seconds = predict(&p, text).seconds;
        if (seconds < best) microbatch = n;
        if (seconds < best) best = seconds;
    }
    CHECK(microbatch == 2, "figure 16: microbatch %d is the fastest", microbatch);
    p.job.batch = 128; // with 4, too, the bubble is a quarter of the step
    const double one = predict(&p, "tp=8 pp=8 microbatch=1 recompute=full").seconds,
                 two = predict(&p, "tp=8 pp=8 microbatch=2 recompute=full").seconds,
                 four = predict(&p, "tp=8 pp=8 microbatch=4 recompute=full").seconds;
    CHECK(two < 1.005 * one && two < .95 * four, "figure 16, a batch of 128: %g, %g and %g s", one, two,
          four);
}

// ---- readers ---------------------------------------------------------------------------------------------

static par_result read_model(const char *json, par_plan_model *m, char ignored[256], char why[256]) {
    why[0] = 0;
    return par_plan_model_read(json, strlen(json), m, ignored, 256, why, 256);
}
static void model_types(void) { // what a type says that the config.json does not
    par_plan_model m;
    char ignored[256], why[256];
    static const struct {
        const char *type, *rest;
        int gated, tied, positions, has_bias;
    } types[] = {{"mistral", "\"hidden_act\":\"silu\",\"sliding_window\":4096", 1, 0, 0, 0},
                 {"qwen2", "\"hidden_act\":\"silu\",\"tie_word_embeddings\":true", 1, 1, 0, 0},
                 {"gpt_neox", "\"hidden_act\":\"gelu\",\"use_parallel_residual\":true", 0, 0, 0, 1},
                 {"gemma", "\"hidden_act\":\"gelu_pytorch_tanh\",\"head_dim\":256", 1, 1, 0, 0},
                 {"opt", "\"activation_function\":\"relu\"", 0, 1, 2048, 1},
                 {"llama", "\"rms_norm_eps\":1e-5", 1, 0, 0, 0}, // without hidden_act
                 {"llama", "\"hidden_act\":\"gelu\"", 1, 0, 0, 0},
                 {"qwen3", "\"tie_word_embeddings\":true", 1, 1, 0, 0},
                 {"nemotron", "\"hidden_act\":\"relu2\"", 0, 0, 0, 0},
                 {"new_model", "\"head_dim\":64", 1, 0, 0, 0},
                 {"new_model", "\"hidden_act\":\"gelu\"", 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char json[512];
        snprintf(json, sizeof json,
                 "{\"model_type\":\"%s\",\"hidden_size\":768,\"num_attention_heads\":12,\"vocab_size\":9000,"
                 "\"num_hidden_layers\":6,\"max_position_embeddings\":2048,%s}",
                 types[i].type, types[i].rest);
        CHECK(!read_model(json, &m, ignored, why), "%s: %s", types[i].type, why);
        CHECK(m.gated == types[i].gated && m.tied == types[i].tied && m.positions == types[i].positions &&
                  m.has_bias == types[i].has_bias,
              "%s: gated %d, tied %d, positions %d, bias %d", types[i].type, m.gated, m.tied, m.positions,
              m.has_bias);
    }
}
// Sizes as the config.json of published models name them, and the parameters that these models have.
static void published_models(void) {
    static const struct {
        const char *json;
        double parameters;
        const char *ignored; // all of it
    } models[] = {
        {"\"model_type\":\"mistral\",\"hidden_size\":4096,\"num_hidden_layers\":32,\"num_attention_heads\":"
         "32,"
         "\"num_key_value_heads\":8,\"intermediate_size\":14336,\"vocab_size\":32000,\"hidden_act\":\"silu\","
         "\"sliding_window\":4096",
         7.242e9, "sliding_window"},
        {"\"model_type\":\"qwen3\",\"hidden_size\":4096,\"num_hidden_layers\":36,\"num_attention_heads\":32,"
         "\"num_key_value_heads\":8,\"head_dim\":128,\"intermediate_size\":12288,\"vocab_size\":151936,"
         "\"hidden_act\":\"silu\",\"attention_bias\":false,\"tie_word_embeddings\":false",
         8.191e9, ""},
        {"\"model_type\":\"gemma2\",\"hidden_size\":3584,\"num_hidden_layers\":42,\"num_attention_heads\":16,"
         "\"num_key_value_heads\":8,\"head_dim\":256,\"intermediate_size\":14336,\"vocab_size\":256000,"
         "\"hidden_activation\":\"gelu_pytorch_tanh\"",
         9.242e9, ""},
        {"\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":1152,\"num_hidden_layers\":26,"
         "\"num_attention_heads\":4,\"num_key_value_heads\":1,\"head_dim\":256,\"intermediate_size\":6912,"
         "\"vocab_size\":262144},\"model_type\":\"sees\"",
         0.9999e9, ""},
        {"\"model_type\":\"phi\",\"hidden_size\":2560,\"num_hidden_layers\":32,\"num_attention_heads\":32,"
         "\"num_key_value_heads\":null,\"intermediate_size\":10240,\"vocab_size\":51200,\"hidden_act\":"
         "\"gelu_new\"",
         2.780e9, ""},
        {"\"model_type\":\"gpt_neox\",\"hidden_size\":6144,\"num_hidden_layers\":44,\"num_attention_heads\":"
         "64,"
         "\"intermediate_size\":24576,\"vocab_size\":50432,\"hidden_act\":\"gelu_fast\",\"rotary_pct\":0.25",
         20.555e9, "rotary_pct"},
        {"\"model_type\":\"falcon\",\"hidden_size\":4544,\"num_hidden_layers\":32,\"num_attention_heads\":71,"
         "\"multi_query\":true,\"num_kv_heads\":71,\"new_decoder_architecture\":false,\"bias\":false,"
         "\"vocab_size\":65024",
         6.922e9, ""},
        {"\"model_type\":\"RefinedWeb\",\"hidden_size\":8192,\"n_layer\":60,\"n_head\":128,\"n_head_kv\":8,"
         "\"multi_query\":true,\"new_decoder_architecture\":true,\"bias\":false,\"vocab_size\":65024",
         41.30e9, ""},
        {"\"model_type\":\"mpt\",\"d_model\":4096,\"n_layers\":32,\"n_heads\":32,\"vocab_size\":50432,"
         "\"attn_config\":{\"alibi\":true}",
         6.649e9, "attn_config"},
        {"\"model_type\":\"starcoder2\",\"hidden_size\":4608,\"num_hidden_layers\":32,\"num_attention_"
         "heads\":36,"
         "\"num_key_value_heads\":4,\"intermediate_size\":18432,\"vocab_size\":49152,\"hidden_act\":"
         "\"gelu_pytorch_tanh\"",
         7.174e9, ""},
        {"\"model_type\":\"new\",\"hidden_size\":896,\"num_hidden_layers\":24,\"num_attention_heads\":14,"
         "\"num_key_value_heads\":2,\"intermediate_size\":4864,\"vocab_size\":151936,\"hidden_act\":\"silu\","
         "\"tie_word_embeddings\":true,\"num_experts\":1",
         0.494e9, "model_type=new"}};
    par_plan_model m;
    char json[1024], ignored[256], why[256];
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        snprintf(json, sizeof json, "{%s}", models[i].json);
        CHECK(!read_model(json, &m, ignored, why), "%s: %s", json, why);
        CHECK(is_near(par_plan_parameters(&m), models[i].parameters, 1e-3), "%s: %.5g parameters, not %.5g",
              json, par_plan_parameters(&m), models[i].parameters);
        CHECK(!strcmp(ignored, models[i].ignored), "%s: ignored: %s", json, ignored);
    }
}
// What is no dense decoder is refused, and the reason says what it is.
static void refused_models(void) {
    static const struct {
        const char *more, *why;
    } models[] = {{"\"model_type\":\"mixtral\",\"num_local_experts\":8,\"num_experts_per_tok\":2", "experts"},
                  {"\"model_type\":\"mixtral\"", "experts"},
                  {"\"model_type\":\"qwen3_moe\"", "experts"},
                  {"\"num_experts\":128", "experts"},
                  {"\"moe_num_experts\":[64,64]", "experts"},
                  {"\"llm_config\":{\"n_routed_experts\":256}", "experts"},
                  {"\"kv_lora_rank\":512", "compressed"},
                  {"\"mamba_d_state\":16", "state-space"},
                  {"\"is_encoder_decoder\":true", "encoder"},
                  {"\"model_type\":\"bert\"", "encoder"},
                  {"\"model_type\":\"xlm-roberta\"", "encoder"},
                  {"\"model_type\":\"modernbert\"", "encoder"},
                  {"\"model_type\":\"electra\"", "encoder"},
                  {"\"architectures\":[\"NewForMaskedLM\"]", "encoder"},
                  {"\"architectures\":[\"NewForCausalLM\"]", NULL},
                  {"\"moe_config\":{\"num_experts\":4}", "experts"},
                  {"\"ffn_config\":{\"moe_num_experts\":16},\"model_type\":\"dbrx\"", "experts"},
                  {"\"n_shared_experts\":2", "experts"},
                  {"\"num_experts_per_tok\":8", "experts"},
                  {"\"num_experts_per_tok\":8,\"num_experts\":1", NULL},
                  {"\"moe_config\":null,\"moe_loss_weight\":0.25,\"experts_implementation\":\"eager\"", NULL},
                  {"\"model_type\":\"granitemoehybrid\",\"num_local_experts\":0", NULL},
                  {"\"kv_lora_rank\":null,\"is_encoder_decoder\":false,\"n_routed_experts\":null", NULL}};
    par_plan_model m;
    char json[512], ignored[256], why[256];
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        snprintf(json, sizeof json, "{\"n_embd\":768,\"n_head\":12,\"n_layer\":2,\"vocab_size\":9,%s}",
                 models[i].more);
        const par_result r = read_model(json, &m, ignored, why);
        CHECK(models[i].why ? r == PAR_ERR_FILE && strstr(why, models[i].why) : r == PAR_OK, "%s: %s", json,
              why);
    }
}
static void read_machines(void) {
    par_plan_machine x;
    char why[256];
    const char *good = "# mine\n gpu = h100\n nodes=4 # four\nnet_bandwidth = 12e9\n";
    CHECK(!par_plan_machine_read(good, strlen(good), &x, why, sizeof why), "machine: %s", why);
    CHECK(x.nodes == 4 && x.net_bandwidth == 12e9 && x.gpus_per_node == 8, "machine: values");
    static const char *const broken[] = {"gpu = h1000",
                                         "gpu = h100\nnet_bandwith = 3",
                                         "gpu = h100\nnodes = -1",
                                         "gpu = h100\nnodes = x",
                                         "nodes = 3",
                                         "gpu h100"};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        CHECK(par_plan_machine_read(broken[i], strlen(broken[i]), &x, why, sizeof why) == PAR_ERR_FILE &&
                  why[0],
              "%s was read", broken[i]);
    for (int i = 0; par_plan_machine_name(i); i++) { // each machine, written and read again
        par_plan_machine row;
        char text[4096], small[40];
        par_plan_machine_get(par_plan_machine_name(i), &row);
        row.net_latency = 1.0 / 3;
        par_plan_machine_format(&row, text, sizeof text);
        CHECK(!par_plan_machine_read(text, strlen(text), &x, why, sizeof why), "%s: %s", row.name, why);
        snprintf(x.name, sizeof x.name, "%s", row.name); // the name is no member of it
        CHECK(!memcmp(&x.nodes, &row.nodes, sizeof row - offsetof(par_plan_machine, nodes)), "%s is another",
              row.name);
        par_plan_machine_format(&row, small, sizeof small);
        CHECK(!strncmp(small, text, sizeof small - 1) && strlen(small) == sizeof small - 1, "cut: %s", small);
    }
}
static void readers(void) {
    par_plan_model m;
    char ignored[256], why[256];
    CHECK(!read_model("{\"model_type\":\"llama\",\"hidden_size\":4096,\"num_hidden_layers\":32,"
                      "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,"
                      "\"vocab_size\":128256,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,"
                      "\"rope_scaling\":{\"factor\":8.0,\"type\":[1,2]},\"torch_dtype\":\"bfloat16\"}",
                      &m, ignored, why),
          "llama: %s", why);
    CHECK(is_near(par_plan_parameters(&m), 8.03e9, 1e-3) && m.gated && !m.tied && !m.positions, "llama: %.6g",
          par_plan_parameters(&m));
    CHECK(!strcmp(ignored, "rope_scaling torch_dtype"), "ignored: %s", ignored);
    CHECK(!read_model("{\"model_type\":\"gpt2\",\"n_layer\":12,\"n_head\":12,\"n_embd\":768,\"n_inner\":null,"
                      "\"vocab_size\":50257,\"n_positions\":1024}",
                      &m, ignored, why),
          "gpt2: %s", why);
    CHECK(is_near(par_plan_parameters(&m), 124.44e6, 1e-4), "gpt2: %.6g", par_plan_parameters(&m));
    // sizes below "text_config"; null is the default
    CHECK(!read_model("{\"model_type\":\"llava\",\"vision_config\":{\"hidden_size\":64},\"text_config\":{"
                      "\"n_embd\":768,\"n_head\":12,\"n_layer\":2,\"vocab_size\":9,\"head_dim\":null}}\n",
                      &m, ignored, why),
          "text_config: %s", why);
    CHECK(m.features == 768 && m.head_dim == 64 && !strcmp(ignored, "vision_config model_type=llava"),
          "text_config: %s", ignored);
    static const char *const bad[] = {"",
                                      "{",
                                      "[1]",
                                      "{\"hidden_size\":}",
                                      "{\"hidden_size\":768,\"num_attention_heads\":12,\"vocab_size\":9}",
                                      "{\"hidden_size\":99999999999}",
                                      "{\"n_embd\":770,\"n_head\":12,\"n_layer\":2,\"vocab_size\":9}",
                                      "{\"n_embd\":768,\"n_head\":12,\"n_layer\":0,\"vocab_size\":9}",
                                      "{\"n_embd\":768,\"n_head\":12,\"n_layer\":-1,\"vocab_size\":9}",
                                      "{\"n_embd\":768,\"n_head\":12,\"n_layer\":\"2\",\"vocab_size\":9}",
                                      "{\"n_embd\":768,\"n_head\":12,\"n_layer\":2,\"vocab_size\":9} 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(read_model(bad[i], &m, ignored, why) == PAR_ERR_FILE && why[0], "%s was read", bad[i]);
    const par_plan_config c =
        config_of("tp=8, pp=4 schedule=interleaved_1f1b chunks=2 offload=states overlap=tp+dp sp=1");
    char text[256];
    par_plan_format(&c, 1, text, sizeof text);
    const par_plan_config d = config_of(text);
    CHECK(!memcmp(&c, &d, sizeof c), "%s is not the same again", text);
    unsigned mask;
    par_plan_config e;
    CHECK(par_plan_parse("tp=8 zerro=1", &e, &mask, why, sizeof why) && strstr(why, "did you mean zero"),
          "%s", why);
    CHECK(par_plan_parse("tp=eight", &e, &mask, why, sizeof why) == PAR_ERR_ARGUMENT, "tp=eight");
}
// The seconds of the fastest configuration whose value of an axis is below (side -1) or above (1) the best
// one's, or is another (0); with the tp of the best where the choice is sp. By a search for each value.
static double fastest_beside(const par_plan_problem *p, const par_plan_config *best, int axis,
                             const char *name, int side) {
    const int mine = par_plan_axis_get(best, axis);
    double seconds = 1e300;
    for (int value = 0; value <= 8; value++) {
        char text[64];
        par_plan_choice found;
        par_plan_report report;
        par_plan_config c = *best;
        unsigned mask;
        if (side < 0 ? value >= mine : side > 0 ? value <= mine : value == mine) continue;
        if (!value && par__plan_counts >> axis & 1) continue; // stands for 1
        snprintf(text, sizeof text, "%s=%d", name, value);
        if (par_plan_parse(text, &c, &mask, report.why, sizeof report.why)) continue;
        if (axis == PAR_PLAN_AXIS_sp) mask |= 1u << PAR_PLAN_AXIS_tp;
        if (!par_plan_search(p, &c, mask, 0, &found, 1, &report) && found.prediction.seconds < seconds)
            seconds = found.prediction.seconds;
    }
    return seconds;
}
typedef struct explanation {
    const par_plan_problem *p;
    const par_plan_choice *best;
    int sentences;
    char contradicted[256]; // rules, each with its choice
} explanation;
static void check_memory(const explanation *s, const char *sentence) {
    par_plan_problem p = *s->p;
    par_plan_choice found;
    par_plan_report report;
    char text[64] = "more memory would not";
    p.job.memory_bytes = 1e18;
    par_plan_search(&p, NULL, 0, 0, &found, 1, &report);
    if (found.prediction.seconds < s->best->prediction.seconds)
        snprintf(text, sizeof text, " takes %.4g s, ", found.prediction.seconds);
    CHECK(strstr(sentence, text), "no \"%s\" in: %s", text, sentence);
}
static void check_sentence(void *user, const char *axis, const char *sentence) {
    explanation *s = (explanation *)user;
    int a = 0;
    while (a < PAR_PLAN_AXIS_COUNT && strcmp(par_plan_axis_name(a), axis)) a++;
    s->sentences += strpbrk(sentence, "0123456789") != NULL;
    static const char before[] = ", which contradicts \"";
    const char *rule = strstr(sentence, before);
    const size_t n = strlen(s->contradicted);
    if (rule) {
        const char *name = rule + sizeof before - 1;
        snprintf(s->contradicted + n, sizeof s->contradicted - n, "%.*s: %.*s; ", (int)(rule - sentence),
                 sentence, (int)strcspn(name, "\""), name);
    }
    if (!strcmp(axis, "memory")) check_memory(s, sentence);
    if (a == PAR_PLAN_AXIS_COUNT) return;
    const int named = a == PAR_PLAN_AXIS_sp || a == PAR_PLAN_AXIS_recompute || a == PAR_PLAN_AXIS_offload;
    int found = 0;
    for (int side = named ? 0 : -1; side < 2; side += 2) {
        char text[64];
        const double seconds = fastest_beside(s->p, &s->best->config, a, axis, side);
        if (seconds > 1e299) continue;
        found++;
        snprintf(text, sizeof text, " takes %.4g s, ", seconds);
        CHECK(strstr(sentence, text), "no \"%s\" in: %s", text, sentence);
    }
    CHECK(found || strstr(sentence, "no other value"), "there is no other %s: %s", axis, sentence);
}
// The reasons name the fastest configurations with other values, which a search for each value finds, and
// the rules that choices contradict. Two jobs have little more memory than one layout needs: alternatives
// that fit are found all the same, so no bound of memory takes them for too large.
static void reasons(void) {
    static const struct {
        const char *model;
        int nodes, per_node;
        double batch, sequence, memory;
        const char *tight; // memory is what this layout needs, and `memory` of it more
        const char *fixed, *contradicted;
    } jobs[] = {
        {"gpt2-xl", 2, 4, 8, 2048, 0, NULL, "", ""},
        {"megatron-3.6b", 1, 4, 4, 2048, 26e9, NULL, "recompute=full",
         "recompute=full: selective before full recomputation; "},
        {"megatron-3.6b", 1, 4, 8, 2048, 40e9, NULL, "zero=2 pp=2", "zero=2: ZeRO-1 with pipelines; "},
        {"megatron-7.5b", 1, 4, 4, 64, .02, "tp=4 recompute=full offload=states", "", ""},
        {"megatron-7.5b", 1, 4, 4, 64, .02, "pp=4 recompute=full offload=states", "",
         "sp=0: sequence with tensor parallelism; "},
        {"megatron-3.6b", 4, 2, 2, 2048, 0, NULL, "", "tp=4: tensor parallelism inside a node; "},
        {"megatron-3.6b", 8, 1, 8, 2048, 14e9, NULL, "",
         "tp=2: tensor parallelism inside a node; pp=1: pipelines across nodes; "}};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        par_plan_problem p =
            problem_of(jobs[i].model, "a100-80", jobs[i].nodes, jobs[i].batch, jobs[i].sequence);
        par_plan_config fixed;
        unsigned mask = 0;
        char why[320];
        p.machine.gpus_per_node = jobs[i].per_node;
        if (jobs[i].per_node < 4) p.machine.net_bandwidth = p.machine.node_bandwidth;
        if (jobs[i].per_node < 4) p.machine.net_latency = p.machine.node_latency;
        memset(&fixed, 0, sizeof fixed);
        CHECK(par_plan_parse(jobs[i].fixed, &fixed, &mask, why, sizeof why) == PAR_OK, "%s", why);
        par_plan_choice best;
        par_plan_report report;
        p.job.memory_bytes =
            jobs[i].tight ? (1 + jobs[i].memory) * predict(&p, jobs[i].tight).bytes + p.machine.reserved_bytes
                          : jobs[i].memory;
        CHECK(par_plan_search(&p, &fixed, mask, 0, &best, 1, &report) == PAR_OK, "%s: %s", jobs[i].model,
              report.why);
        explanation s = {&p, &best, 0, ""};
        par_plan_explain(&p, &best, check_sentence, &s);
        CHECK(s.sentences >= 8, "only %d reasons have numbers", s.sentences);
        CHECK(!strcmp(s.contradicted, jobs[i].contradicted), "job %d contradicts \"%s\", not \"%s\"", (int)i,
              s.contradicted, jobs[i].contradicted);
    }
}
// Every 0 that the header gives a meaning is used, and predicted, as what it stands for, by every function.
static void count_sentences(void *user, const char *axis, const char *sentence) {
    (void)axis, (void)sentence, ++*(int *)user;
}
static void defaults(void) {
    par_plan_problem with = problem_of("gpt2", "h100", 1, 64, 1024), none;
    with.model.kv_heads = with.model.heads, with.model.head_dim = with.model.features / with.model.heads;
    with.model.hidden = 4 * with.model.features, with.job.memory_bytes = with.machine.memory_bytes;
    with.job.element_bytes = 2, with.job.gradient_bytes = 4;
    with.job.state_bytes = 12, with.job.update_bytes = 58;
    none = with;
    none.model.kv_heads = none.model.head_dim = none.model.hidden = 0;
    none.machine.nodes = 0;
    none.job.element_bytes = none.job.gradient_bytes = none.job.state_bytes = none.job.update_bytes = 0;
    none.job.memory_bytes = 0;
    CHECK(par_plan_parameters(&with.model) == par_plan_parameters(&none.model), "parameters");
    CHECK(par_plan_flops(&with) == par_plan_flops(&none), "flops");
    const par_plan_config one = config_of("tp=1 pp=1 cp=1 dp=8 microbatch=1 chunks=1 shard=1");
    par_plan_config zeros;
    char why[256] = "";
    memset(&zeros, 0, sizeof zeros), zeros.dp = 8;
    CHECK(!par_plan_check(&none, &zeros, why, sizeof why), "zeros: %s", why);
    par_plan_prediction a, b;
    par_plan_evaluate(&with, &one, &a), par_plan_evaluate(&none, &zeros, &b);
    CHECK(!memcmp(&a, &b, sizeof a) && a.seconds > 0, "%g and %g s", a.seconds, b.seconds);
    par_plan_choice best[2];
    par_plan_report report;
    int sentences[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        const par_plan_problem *p = i ? &none : &with;
        CHECK(!par_plan_search(p, i ? &zeros : &one, 1u << PAR_PLAN_AXIS_tp, 0, &best[i], 1, &report), "%s",
              report.why);
        CHECK(!par_plan_simulate(p, &best[i], 1, 0), "simulation");
        par_plan_explain(p, &best[i], count_sentences, &sentences[i]);
    }
    CHECK(!memcmp(&best[0].config, &best[1].config, sizeof best[0].config) && best[0].config.tp == 1,
          "another choice");
    CHECK(best[0].prediction.seconds == best[1].prediction.seconds, "another prediction");
    CHECK(sentences[0] > 5 && sentences[0] == sentences[1], "%d, %d reasons", sentences[0], sentences[1]);
    CHECK(par_plan_activation_room(&with, &a) == par_plan_activation_room(&none, &a), "room");
    par_plan_measured m;
    memset(&m, 0, sizeof m);
    for (int i = 0; i < 5; i++)
        m.products[i].rows = m.products[i].columns = m.products[i].inner = 1024, m.products[i].seconds = 1e-4;
    m.microbatch = 1, m.layer_seconds = 1e-2, m.embedding_head_seconds = 1e-2, m.update_seconds = 1e-9;
    par_plan_fit(&with, &m), par_plan_fit(&none, &m);
    CHECK(with.machine.memory_rate == none.machine.memory_rate && none.model.hidden == 0, "fit");
}
// An error names the member.
static void named_members(void) {
    const par_plan_problem good = problem_of("gpt2", "h100", 1, 64, 1024);
    const par_plan_config config = config_of("dp=8");
    char why[256];
    for (int i = 0; i < PAR_PLAN_AXIS_COUNT; i++)
        for (int k = 0; k < 2; k++) { // negative; not one of its values
            par_plan_config c = config;
            char text[64];
            par__plan_axis_set(&c, i, k ? par__plan_value_count(i) : -1);
            snprintf(text, sizeof text, "%s is %d", par_plan_axis_name(i), par_plan_axis_get(&c, i));
            CHECK(par_plan_check(&good, &c, why, sizeof why) == PAR_ERR_ARGUMENT && strstr(why, text),
                  "%s: %s", text, why);
        }
#define X(member, what)                                                                                      \
    {                                                                                                        \
        par_plan_problem p = good;                                                                           \
        p.PART.member = -1;                                                                                  \
        par_plan_choice best;                                                                                \
        par_plan_report report;                                                                              \
        const par_result r = par_plan_search(&p, NULL, 0, 0, &best, 1, &report);                             \
        CHECK(r == PAR_ERR_ARGUMENT && strstr(report.why, "." #member), #member ": %s", report.why);         \
    }
#define PART machine
    PAR_PLAN_MACHINE_FIELDS(X)
#undef PART
#define PART job
    PAR_PLAN_JOB_FIELDS(X)
#undef PART
#undef X
    static const struct {
        const char *name;
        size_t at;
    } sizes[] = {
        {"layers", offsetof(par_plan_model, layers)},     {"features", offsetof(par_plan_model, features)},
        {"heads", offsetof(par_plan_model, heads)},       {"kv_heads", offsetof(par_plan_model, kv_heads)},
        {"head_dim", offsetof(par_plan_model, head_dim)}, {"hidden", offsetof(par_plan_model, hidden)},
        {"vocab", offsetof(par_plan_model, vocab)},       {"positions", offsetof(par_plan_model, positions)}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        par_plan_problem p = good;
        char text[64];
        const int minus = -1;
        memcpy((char *)&p.model + sizes[i].at, &minus, sizeof minus);
        snprintf(text, sizeof text, "model.%s is -1", sizes[i].name);
        CHECK(par_plan_check(&p, &config, why, sizeof why) && strstr(why, text), "%s: %s", text, why);
    }
    par_plan_problem p = good;
    CHECK(!par_plan_check(&p, &config, why, sizeof why), "%s", why);
    const par_plan_config hybrid = config_of("dp=8 zero=1 shard=4");
    CHECK(!par_plan_check(&p, &hybrid, why, sizeof why), "%s", why);
    p.job.whole_shards = 1;
    CHECK(par_plan_check(&p, &hybrid, why, sizeof why) && strstr(why, "shard 4"), "%s", why);
    p.model.kv_heads = 5;
    CHECK(par_plan_check(&p, &config, why, sizeof why) && strstr(why, "model.kv_heads is 5"), "%s", why);
    p = good, p.model.head_dim = 0, p.model.heads = 7, p.model.kv_heads = 0;
    CHECK(par_plan_check(&p, &config, why, sizeof why) && strstr(why, "set head_dim"), "%s", why);
}
static void errors(void) {
    par_plan_problem p = problem_of("gpt3-175b", "a100-80", 1, 64, 2048);
    par_plan_choice best;
    par_plan_report report;
    CHECK(par_plan_search(&p, NULL, 0, 0, &best, 1, &report) == PAR_ERR_MEMORY && strstr(report.why, "GB"),
          "175b on 8 GPUs: %s", report.why);
    p.machine.nodes = 101;
    p.job.batch = 3;
    CHECK(par_plan_search(&p, NULL, 0, 0, &best, 1, &report) == PAR_ERR_ARGUMENT && report.why[0],
          "batch 3 on 808 GPUs: %s", report.why);
    p.job.batch = 0.5;
    CHECK(par_plan_search(&p, NULL, 0, 0, &best, 1, &report) == PAR_ERR_ARGUMENT, "batch 0.5: %s",
          report.why);
    p = problem_of("megatron-22b", "a100-80", 2, 64, 2048);
    p.machine.overlap_cost = 1.5; // the search relies on it that hiding a message takes no longer
    CHECK(par_plan_search(&p, NULL, 0, 0, &best, 1, &report) == PAR_ERR_ARGUMENT &&
              strstr(report.why, "overlap_cost"),
          "overlap_cost 1.5: %s", report.why);
    p.machine.overlap_cost = 1;
    char why[320];
    par_plan_config c = config_of("tp=7 dp=1");
    CHECK(par_plan_check(&p, &c, why, sizeof why) && strstr(why, "64 heads"), "%s", why);
    c = config_of("tp=8 dp=1");
    CHECK(par_plan_check(&p, &c, why, sizeof why) && strstr(why, "8, but there are 16 GPUs"), "%s", why);
    c = config_of("tp=16 microbatch=3");
    CHECK(par_plan_check(&p, &c, why, sizeof why) && strstr(why, "microbatch=2"), "%s", why);
    p.model.heads = p.model.kv_heads = 40; // 20 is nearer, but no divisor of 16 GPUs
    CHECK(par_plan_check(&p, &c, why, sizeof why) && strstr(why, "try tp=8"), "%s", why);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*fn)(void);
    } all[] = {{"tables", tables},
               {"search", search},
               {"memory", memory},
               {"shards", shards},
               {"bubbles", bubbles},
               {"bounds", tight_bound},
               {"best_cuts", best_cuts},
               {"cuts", cuts},
               {"rules", rules},
               {"live", memory_left},
               {"shared", shared_processors},
               {"wakes", wakes},
               {"splits", splits},
               {"schedules", schedules},
               {"context", context},
               {"masks", masks},
               {"hidden", hidden},
               {"calls", calls},
               {"network", network},
               {"fit", fits},
               {"blocks", blocks},
               {"disks", disks_and_precision},
               {"logits", logits},
               {"recipes", recipes},
               {"order", published_order},
               {"reasons", reasons},
               {"types", model_types},
               {"models", published_models},
               {"refused", refused_models},
               {"readers", readers},
               {"machines", read_machines},
               {"defaults", defaults},
               {"members", named_members},
               {"errors", errors}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int wanted = argc < 2;
        for (int k = 1; k < argc; k++) wanted |= !strcmp(argv[k], all[i].name);
        const int before = failures;
        if (wanted) all[i].fn();
        if (wanted) printf("%s %s\n", failures > before ? "FAIL" : "ok  ", all[i].name);
    }
    return failures > 0;
}

// grid.h - the ranks of a training: how they start, tell each other's errors and end; their device, and what
// the options say of the optimizer. gpt.c and gpt_auto.c include it.

#ifndef PROGRAM
#define PROGRAM "gpt"
#endif

typedef struct gpt_grid { // pp x dp x cp x tp
    par_comm *all;        // all ranks; with elastic some of them may be spares:
    par_comm *world;      // the ranks that train; NULL: this one is a spare
    par_comm *movers;     // the ranks that have moved states; NULL: none, or this one had none to move
    int place;            // the part of the model that this rank has, see elastic.h; -1: none
    int directions;       // of the pipeline's schedule
    par_comm *tp, *cp, *pp;
    par_comm *data;  // dp x cp, over which gradients are summed
    par_comm *model; // pp x tp, the ranks of one replica of the model
    // The ranks that zero shards over, and the ranks with other parameters. They are data and model, except
    // for dualpipe, where ranks r and pp - 1 - r have the same stages and half of the microbatches each.
    par_comm *zero, *model_parallel;
    par_comm *tied; // ranks that have the embedding's weight for the embedding, or for the head; NULL: none
    par_mesh *mesh;
    int launched;       // by a launcher; 0: rank 0 has started the others
    par_device *device; // where parameters and activations are
    const par_tp_kernels *tp_kernels;
    const par_zero_kernels *zero_kernels;
#if defined(GPT_CUDA)
    par_cuda *cuda;
#endif
} gpt_grid;

static int print_error(const char *text) { return fprintf(stderr, PROGRAM ": %s\n", text), 1; }
static void must(par_comm *world, par_result r) {
    if (r == PAR_OK) return;
    fprintf(stderr, PROGRAM ": rank %d: %s\n", par_rank(world), par_last_error(world));
    exit(1); // the other ranks notice
}

// *failed is 1 on all ranks if `why` is an error text on any rank, else 0 (why NULL: no error). The rank with
// the error prints it. The other ranks print which rank's error ends them; an error that all ranks have is
// printed once. Collective over the world. Errors: those of a collective, which are not printed.
static par_result share_failure(par_comm *world, const char *why, int *failed) {
    const int me = par_rank(world), n = par_size(world);
    int worst[2] = {why ? n - me : 0, !why}; // of the first rank that has an error; does anybody go on?
    char first[1024];
    par_result r = par_all_reduce(worst, worst, 2, PAR_I32, PAR_MAX, world);
    *failed = worst[0] > 0;
    if (r || !*failed) return r;
    snprintf(first, sizeof first, "%s", why ? why : "");
    r = par_broadcast(first, first, sizeof first, PAR_U8, n - worst[0], world);
    if (r) return r;
    const int apart = par_launched(NULL) > 0; // each may have a screen of its own
    if (!why && (apart || me == 0))
        fprintf(stderr, PROGRAM ": rank %d ends because of rank %d: %s\n", me, n - worst[0], first);
    else if (why && worst[1])
        fprintf(stderr, PROGRAM ": rank %d: %s\n", me, why);
    else if (why && (me == 0 || strncmp(why, first, sizeof first - 1)))
        fprintf(stderr, PROGRAM ": %s\n", why);
    return PAR_OK;
}
// Returns *failed; 1, too, where a rank has died.
static int any_rank_failed(par_comm *world, const char *why) {
    int failed = 0;
    return share_failure(world, why, &failed) ? print_error(par_last_error(world)) : failed;
}
// Has this rank come by par_grow, to a training that is under way?
static int has_joined(const gpt_grid *g) { return par_rank_before(g->all, 0) >= 0; }

// Opens the world, and prepares this rank by a function, which returns NULL or an error text. A rank that no
// launcher has started prepares, and reports wrong settings, before others start. Ranks of a launcher first
// meet, and then say what is wrong: none waits for one that has ended. 0, or 1: the error has been printed.
static int open_world(gpt_grid *g, const settings *o, int parsed,
                      const char *(*prepare)(void *user, int ranks), void *user) {
    par_desc desc, full;
    const char *why = NULL;
    g->launched = par_launched(NULL);
    memset(&desc, 0, sizeof desc);
    desc.rank_count = o->ranks;
    desc.trace = o->trace;
    desc.elastic = o->elastic;
    if (!g->launched) {
        if (par_defaults(&desc, &full)) return 1;
        why = prepare(user, full.rank_count ? full.rank_count : 1);
        if (why) return print_error(why);
    }
    if (par_open(&desc, &g->world) != PAR_OK) return 1;
    g->all = g->world;
    if (has_joined(g)) return 0; // the others are long past this
    if (g->launched) why = parsed ? "its options cannot be used" : prepare(user, par_size(g->world));
    return any_rank_failed(g->world, why);
}
// Closes the world, which also writes the trace. Returns the program's exit status.
static int close_world(gpt_grid *g, const settings *o, int failed) {
    const int root = par_rank(g->all) == 0, traced = o->trace && !o->generate && !failed && root;
    if (!root && !g->launched && !o->elastic) failed = 0; // rank 0 ends with the error
    const par_result closed = par_close(g->all);
    if (traced && closed == PAR_OK)
        fprintf(o->json ? stderr : stdout, "trace: %s (open it in ui.perfetto.dev)\n", o->trace);
#if defined(GPT_CUDA)
    par_cuda_close(g->cuda);
#endif
    return output_failed(PROGRAM) || failed || closed != PAR_OK;
}

// Takes the kernels that --tune's file names, and measures those of products that ran and that it does not
// have.
static par_result tune_products(const settings *o, gpt_grid *g) {
#if defined(GPT_CUDA)
    par_cuda_tuning x;
    GPT_TRY(par_cuda_tune(g->cuda, o->tune, &x));
    if (par_rank(g->world) || !x.measured) return PAR_OK;
    fprintf(o->json ? stderr : stdout,
            "tuned: %d products, %d with another kernel than cuBLASLt's first: %.3g of the time; %d kernels "
            "refused, whose results vary\n",
            x.measured, x.changed, x.tuned_us / x.first_us, x.refused);
#else
    (void)o;
    (void)g; // check_settings has refused it
#endif
    return PAR_OK;
}
// Opens --device: the CPU, or this rank's GPU. Comms that are split afterwards take the device's memory.
// Where there are spares they have one, too.
static par_result open_device(const settings *o, gpt_grid *g) {
    g->device = par_cpu();
    if (!strcmp(o->device, "cpu")) return PAR_OK;
#if defined(GPT_CUDA)
    par_cuda_desc d;
    memset(&d, 0, sizeof d);
    d.comm = g->all;
    d.canonical = o->canonical != 0;
    GPT_TRY(par_cuda_open(&d, &g->cuda));
    g->device = par_cuda_device(g->cuda);
    g->tp_kernels = par_cuda_tp(g->cuda);
    g->zero_kernels = par_cuda_zero(g->cuda);
    return o->tune ? tune_products(o, g) : PAR_OK;
#else
    return par_fail(g->world, PAR_ERR_UNSUPPORTED,
                    "this program has only the CPU: make cuda builds build/gpt_cuda");
#endif
}
// After par_shrink or par_grow: the device goes on with the new comm of all ranks.
static par_result reopen_device(gpt_grid *g) {
#if defined(GPT_CUDA)
    if (g->cuda) return par_cuda_reopen(g->cuda, g->all);
#endif
    (void)g;
    return PAR_OK;
}
// The optimizer, as the options say.
static void describe_optimizer(const settings *o, const gpt_grid *g, par_zero_desc *d) {
    d->kernels = g->zero_kernels;
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

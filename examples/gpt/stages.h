// stages.h - which part of the model each rank has: the stages of the pipeline and their schedule, and the
// units of par_zero.h. Part of gpt.c.

static par_result on_unit_phase(void *user, int unit, gpt_phase what);
static int splits_backward(const trainer *t) { // of backward; or perhaps, in a table
    const par_pipe_traits *row = par_pipe_schedule_find(t->part.schedule.desc.schedule);
    return !row || row->splits_backward;
}
// Does the head, whose weight is the embedding's, add to gradients of its own? They come at another time in
// another stage or half of backward; and with canonical they are the other part of a sum in any case.
static int head_is_apart(const trainer *t) {
    return gpt_is_tied(&t->o.model) && (t->o.canonical || t->part.schedule.stages > 1 || splits_backward(t));
}
// With stages 2 and 3 and a split backward, is a rank's sum of a step reduced? Else each microbatch's is.
static int accumulates_locally(const trainer *t) { return t->o.zero >= 2 && splits_backward(t); }

static int stage_has_unit(const trainer *t, int stage, int unit) {
    const gpt_stage *p = &t->part.stages[stage];
    return unit == 0 ? p->embed : unit > t->o.model.n_layer ? p->head : unit > p->first && unit <= p->end;
}
// Does a stage of this rank use this unit of the model?
static int has_unit(const trainer *t, int unit) {
    const int me = par_rank(t->grid.pp);
    for (int i = 0; i < t->part.schedule.stages; i++)
        if (stage_has_unit(t, i, unit) &&
            (par_pipe_rank_of(&t->part.schedule, i, 0) == me ||
             par_pipe_rank_of(&t->part.schedule, i, t->batch.microbatches - 1) == me))
            return 1;
    return 0;
}
// Adds this rank's shard of a tensor to zero.
static par_result add_tensor(trainer *t, const gpt_tensor *x) {
    par_parameter p;
    par_tp_describe(t->part.tp, &x->p, 1, x->stream, &p);
    par_zero_tensor z = par_zero_tensor_of(&p);
    z.name = x->name; // of a tied head: the embedding's
    z.frozen = t->o.generate != NULL;
    if ((x == t->part.model.tensors || x->tied) && t->grid.tied) {
        z.tied_comm = t->grid.tied;
        par_shard_replicate(&p.shard, par_size(t->grid.tied), par_rank(t->grid.tied));
    }
    return par_zero_add_tensor(t->part.zero, &z) < 0 ? PAR_ERR_ARGUMENT : PAR_OK; // with its text
}
// Tells zero in which order the microbatches complete the gradients of a unit: the embedding's in the input
// half of a backward, the others' in the weight half.
static par_result set_order(trainer *t, int u, int unit) {
    const par_pipe_schedule *s = &t->part.schedule;
    const int me = par_rank(t->grid.pp), passes = t->batch.microbatches / s->directions;
    int *order = (int *)calloc((size_t)passes, sizeof *order), n = 0;
    if (!order) return par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory for the order of microbatches");
    for (size_t i = s->first[me]; i < s->first[me + 1]; i++) {
        const par_pipe_action *a = &s->actions[i];
        if (a->kind != PAR_PIPE_BW && a->kind != (u ? PAR_PIPE_W : PAR_PIPE_B)) continue;
        if (stage_has_unit(t, a->stage, u) && n < passes) order[n++] = a->microbatch % passes;
    }
    const par_result r = par_zero_set_order(t->part.zero, unit, order);
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
    for (const int end = gpt_unit_tensors(&t->part.model, u, &i); i < end; i++) {
        const gpt_tensor *x = &t->part.model.tensors[i];
        if (x->tied && t->part.unit[0][0] >= 0) { // the weight is here
            par_parameter p;
            par_tp_describe(t->part.tp, &x->p, 1, x->stream, &p);
            if (head_is_apart(t))
                t->part.unit[u][1] = par_zero_add_use(t->part.zero, "tied head", t->part.unit[0][0], &p);
            continue;
        }
        if (!n || x->tied || (x->kind == GPT_WPE && head_is_apart(t))) {
            t->part.unit[u][n] = par_zero_add_unit(t->part.zero, n ? x->name : name);
            n++;
        }
        GPT_TRY(add_tensor(t, x));
        t->part.index[i] = (*count)++;
    }
    for (i = 0; i < 2 && t->o.canonical; i++)
        if (t->part.unit[u][i] >= 0) GPT_TRY(set_order(t, u, t->part.unit[u][i]));
    return PAR_OK;
}
// ZeRO gathers parameters beside products. Where NVLink joins the GPUs copy engines do it, and occupy no SM.
static par_result use_copy_engines(trainer *t) {
    par_result r = PAR_OK;
#if defined(GPT_CUDA)
    if (t->grid.cuda && t->o.zero && par_size(t->grid.zero) > 1)
        r = par_cuda_limit_ctas(t->grid.zero, PAR_CUDA_COPY_ENGINES);
#endif
    return (void)t, r == PAR_ERR_UNSUPPORTED ? PAR_OK : r; // by NCCL before 2.28
}
// Adds every tensor of this rank's stages to zero. Nothing is allocated yet.
static par_result open_zero(trainer *t) {
    const settings *o = &t->o;
    const gpt_config *g = &o->model;
    par_zero_desc d;
    memset(&d, 0, sizeof d);
    describe_optimizer(o, &t->grid, &d);
    d.comm = t->grid.zero;
    d.model_parallel_comm = t->grid.model_parallel;
    d.tensor_parallel_comm = o->tp > 1 ? t->grid.tp : NULL;
    d.accumulate_unsharded = accumulates_locally(t);
    d.stage = o->zero;
    d.parameter_server = o->parameter_server;
    d.buddies = o->buddies;
    d.microbatches = t->batch.microbatches / t->part.schedule.directions;
    d.canonical_shards = o->canonical * o->cp;
    d.max_gathered_units = gpt_is_tied(g) ? 3 : 2;
    d.offload_states = o->offload;
    d.offload_parameters = o->zero == 3 ? o->offload : NULL;
    GPT_TRY(use_copy_engines(t));
    GPT_TRY(par_zero_open(&d, &t->part.zero));
    for (int i = 0; i < t->part.model.use_count; i++) t->part.index[i] = -1;
    for (int u = 0, count = 0; u <= g->n_layer + 1; u++) {
        t->part.unit[u][0] = t->part.unit[u][1] = -1;
        if (has_unit(t, u)) GPT_TRY(add_unit(t, u, &count));
    }
    t->part.model.on_phase = on_unit_phase;
    t->part.model.user = t;
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
    free(t->part.stages);
    t->part.stages = (gpt_stage *)calloc((size_t)stages, sizeof *t->part.stages);
    if (!layers || !first || !t->part.stages)
        return par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory for the stages");
    estimate_layer_costs(g, layers);
    par_pipe_partition(layers, g->n_layer, stages, first);
    t->part.scratch_bytes = 0;
    for (int i = 0; i < stages; i++) {
        gpt_stage *p = &t->part.stages[i];
        gpt_buffers b;
        memset(&b, 0, sizeof b);
        b.layers = t->part.buffers.layers;
        p->first = first[i];
        p->end = first[i + 1];
        p->embed = i == 0;
        p->head = i + 1 == stages;
        for (int halves = 0; halves <= split;
             halves++) { // what is recomputed is scratch for a whole backward
            t->part.model.split_backward = halves;
            gpt_buffers_layout(&t->part.model, p, &b, rows); // no error, because it only counts
            t->part.scratch_bytes = MAX(t->part.scratch_bytes, b.arena[GPT_SCRATCH].used);
        }
        double f = 1e-3 * layers[0];
        for (int l = p->first; l < p->end; l++) f += layers[l];
        costs[i].f = costs[i].b = costs[i].w = f;
        costs[i].input_bytes = gpt_tokens_bytes(&t->part.model, rows);
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
        return par_fail(t->grid.world, r, "%s%s", s->why,
                        strstr(s->why, "desc.max_activation_bytes") ? " (--max_activation_mb)" : "");
    if (s->ranks != t->o.pp || s->microbatches != t->batch.microbatches)
        return par_fail(
            t->grid.world, PAR_ERR_ARGUMENT,
            "%s has %d ranks and %d microbatches; pp is %d, and each rank of dp has %d microbatches", name,
            s->ranks, s->microbatches, t->o.pp, t->batch.microbatches);
    for (int i = 0; s->directions == 2 && i < s->stages; i++)
        if (s->rank_of[i] + s->rank_of[s->stages + i] != s->ranks - 1)
            return par_fail(t->grid.world, PAR_ERR_ARGUMENT,
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
    d.microbatches = t->batch.microbatches;
    d.chunks = t->o.chunks;
    d.max_activation_bytes = (size_t)t->o.max_activation_mb * 1000000;
    t->part.buffers.layers =
        (gpt_activations *)calloc((size_t)t->o.model.n_layer, sizeof *t->part.buffers.layers);
    if (!t->part.buffers.layers) return par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory");
    GPT_TRY(build_schedule(t, &d, &t->part.schedule));
    const int stages = t->part.schedule.stages, split = splits_backward(t);
    t->part.model.head_in_chunks = !split; // else the halves of its backward are apart, too
    t->part.model.chunk_rows = (size_t)t->o.head_rows;
    if (split && t->o.head_rows)
        return par_fail(t->grid.world, PAR_ERR_ARGUMENT,
                        "head_rows: schedule %s has backward in halves, between which logits are kept: leave "
                        "it out, or take another schedule",
                        t->o.schedule);
    par_pipe_schedule_close(&t->part.schedule);
    par_pipe_stage *costs = (par_pipe_stage *)calloc((size_t)stages, sizeof *costs);
    if (!costs) return par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory for %d stages", stages);
    par_result r = partition_layers(t, stages, split, costs, rows);
    d.stages = costs;
    d.stage_count = stages;
    if (!r) r = build_schedule(t, &d, &t->part.schedule);
    free(costs);
    if (r) return r;
    const int pp = t->o.pp, me = par_rank(t->grid.pp), pair = MIN(me, pp - 1 - me);
    t->grid.zero = t->grid.data;
    t->grid.model_parallel = t->o.tp * pp > 1 ? t->grid.model : NULL;
    if (t->part.schedule.directions == 2) {
        if (t->batch.microbatches % 2)
            return par_fail(t->grid.world, PAR_ERR_ARGUMENT,
                            "dualpipe sends half of the microbatches each way: %d is odd",
                            t->batch.microbatches);
        // the two ranks of a stage side by side: their microbatches follow each other
        GPT_TRY(par_split(t->grid.world, pair * t->o.tp + par_rank(t->grid.tp),
                          2 * par_rank(t->grid.data) + (me != pair), &t->grid.zero));
        GPT_TRY(par_split(t->grid.model, me == pair, par_rank(t->grid.model), &t->grid.model_parallel));
    }
    const int embed = has_unit(t, 0), head = has_unit(t, t->o.model.n_layer + 1);
    t->batch.reads_tokens = embed || head || t->o.document_token >= 0;
    for (int i = 0; i < stages; i++) t->part.stages[i].tied = gpt_is_tied(&t->o.model) && !head_is_apart(t);
    if (!gpt_is_tied(&t->o.model) || stages == 1) return PAR_OK;
    const int side = t->part.schedule.directions == 2 && me != pair; // each has both ends once
    return par_split(t->grid.pp, embed == head ? -1 : side, me, &t->grid.tied);
}

// Prints the pipeline as simulated with the times of the last step's actions, and the step as it ran, on one
// time scale. Collective over the pipeline.
static void print_pipeline(trainer *t, FILE *out) {
    par_pipe_schedule *s = &t->part.schedule;
    par_pipe_timeline planned, real;
    must(t->grid.world, par_pipe_timeline_get(t->part.pipe, &real));
    if (!out || par_pipe_set_costs(s, &real)) return par_pipe_timeline_close(&real);
    must(t->grid.world, par_pipe_simulate(s, PAR_PIPE_NONBLOCKING, &planned));
    const double scale = MAX(planned.makespan, real.makespan);
    fprintf(out, "pipeline as planned, by the last step's own times: %.4g s, bubble %.3f\n", planned.makespan,
            planned.bubble);
    par_pipe_print(s, &planned, 100, scale, out);
    fprintf(out, "pipeline as it ran: %.4g s, bubble %.3f\n", real.makespan, real.bubble);
    par_pipe_print(s, &real, 100, scale, out);
    par_pipe_timeline_close(&planned);
    par_pipe_timeline_close(&real);
}

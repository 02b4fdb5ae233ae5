// checkpoint.h - loads and saves checkpoints, and imports and exports models of other formats. Part of gpt.c.

static par_zero_checkpoint checkpoint_files(trainer *t, const char *dir) {
    par_zero_checkpoint f;
    memset(&f, 0, sizeof f);
    files_print_note(t->note, sizeof t->note, &t->o.model, t->run.step);
    size_t at = strlen(t->note);
    at += (size_t)snprintf(t->note + at, sizeof t->note - at, " lr_decay_iters=%d", t->o.lr_decay_iters);
    print_products(&t->o, &t->grid, t->note + at, sizeof t->note - at);
    f.dir = dir;
    f.comm = t->grid.world;
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
        if (par_zero_load(t->part.zero, &f)) return par_last_error(t->grid.world); // on all ranks alike
        const char *problem = files_read_note(t->o.load, &c, &step, note);
        if (problem) return problem;
        compare_products(&t->o, &t->grid, note);
        if (!t->o.weights_only) t->run.step = step;
        return NULL;
    }
    files_weights weights;
    static char why[5500];
    const char *problem = files_weights_open(&weights, &t->part.model, t->o.load, kind == LOAD_LLMC);
    for (int i = 0; i < t->part.model.use_count && !problem; i++) {
        par_zero_part parts[3];
        int count = 0;
        if (t->part.index[i] < 0) continue;
        problem = files_parts(&weights, &t->part.model.tensors[i], parts, &count);
        if (!problem && par_zero_import(t->part.zero, t->part.index[i], parts, count))
            problem = par_last_error(t->grid.world);
    }
    if (problem && kind == LOAD_HUGGINGFACE)
        snprintf(why, sizeof why, "cannot load %.1000s: %s", t->o.load, problem);
    else if (problem)
        snprintf(why, sizeof why, "%s", problem);
    return files_weights_close(&weights), problem ? why : NULL;
}
// Sets initial values, which do not depend on how the model is split.
static const char *init_weights(trainer *t) {
    return par_zero_init_all(t->part.zero) ? par_last_error(t->grid.world) : NULL;
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
        &key, e->by_name, (size_t)e->t->part.model.tensor_count, sizeof *e->by_name, tensor_by_name);
    const char *why = files_export_put(&e->files, *found, first, count, values);
    return why ? par_fail(e->t->grid.world, PAR_ERR_FILE, "%s", why) : PAR_OK;
}
// Exports all weights in the format of Hugging Face or llm.c. 0, or 1: the error has been printed.
static int export_weights(trainer *t) {
    static exporter e;
    const int root = par_rank(t->grid.world) == 0;
    const size_t shard_bytes = (size_t)t->o.shard_mb * 1000000;
    e.t = t;
    e.by_name = (const gpt_tensor **)malloc((size_t)t->part.model.tensor_count * sizeof *e.by_name);
    if (any_rank_failed(t->grid.world, e.by_name ? NULL : "out of memory")) return free(e.by_name), 1;
    for (int i = 0; i < t->part.model.tensor_count; i++) e.by_name[i] = &t->part.model.tensors[i];
    qsort(e.by_name, (size_t)t->part.model.tensor_count, sizeof *e.by_name, tensor_by_name);
    const char *why = root ? files_export_begin(&e.files, &t->part.model, t->o.exported, shard_bytes) : NULL;
    int failed = any_rank_failed(t->grid.world, why);
    if (!failed) {
        const par_result r =
            par_zero_gather(t->part.zero, t->grid.world, PAR_ZERO_VALUE, 0, export_piece, &e);
        failed = any_rank_failed(t->grid.world, r ? par_last_error(t->grid.world) : NULL);
    }
    free(e.by_name);
    why = root ? files_export_end(&e.files, !failed) : NULL;
    return failed || any_rank_failed(t->grid.world, why);
}
// Saves a checkpoint. With --save_async it is complete when the next one begins, or at the end of the run.
static par_result save_checkpoint(trainer *t, int last) {
    const par_zero_checkpoint f = checkpoint_files(t, t->o.save);
    GPT_TRY(par_zero_save_begin(t->part.zero, &f));
    return f.background && !last ? PAR_OK : par_zero_save_end(t->part.zero);
}

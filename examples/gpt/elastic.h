// elastic.h - how a training goes on when ranks die: --elastic. Part of gpt.c.
//
// Each rank has a place in its replica of the model: its numbers in pp, cp and tp. After a death the ranks
// that are left form replicas anew, from whatever ranks have these places, and so many that the batch divides
// by them; ranks that are left over are spares, which wait:
//     dp 0    place 0  place 1                  dp 0    place 0  place 1
//     dp 1    place 0  (died)          -->      dp 1    place 0  place 1 (of dp 2)
//     dp 2    place 0  place 1                  spare   place 0
// par_zero_recover moves the states; layers take the new comms; what depends on the number of microbatches is
// opened anew. The step that was under way is finished, where a rank had committed it, or made again.

static int is_spare(const trainer *t) { return t->grid.world == NULL; }

// Which replica each rank is in now. places: of all ranks. Returns the number of replicas; replica[r] < 0: r
// is a spare. The first ranks of a place count.
static int form_replicas(const trainer *t, const int *places, int ranks, int *replica) {
    const int size = t->o.pp * t->o.cp * t->o.tp;
    int dp = ranks, unused;
    for (int p = 0; p < size; p++) {
        int here = 0;
        for (int r = 0; r < ranks; r++)
            if (places[r] == p) replica[r] = here++;
        dp = MIN(dp, here);
    }
    while (dp > 0 && !cut_batch(&t->o, dp * size, &unused)) dp--;
    for (int r = 0; r < ranks; r++)
        if (replica[r] >= dp) replica[r] = -1;
    return dp;
}
// Makes the comm of those that train: t->grid.world, or NULL for a spare.
static par_result form_grid(trainer *t) {
    const int ranks = par_size(t->grid.all), me = par_rank(t->grid.all), inner = t->o.cp * t->o.tp;
    int *places = (int *)calloc(2 * (size_t)ranks, sizeof *places), *replica = places + ranks;
    if (!places) return par_fail(t->grid.all, PAR_ERR_MEMORY, "out of memory for the ranks' places");
    par_result r = par_all_gather(&t->grid.place, places, 1, PAR_I32, t->grid.all);
    const int dp = r ? 0 : form_replicas(t, places, ranks, replica), mine = replica[me], p = t->grid.place;
    if (!r && !dp)
        r = par_fail(
            t->grid.all, PAR_ERR_ARGUMENT,
            "the ranks that are left have no whole copy of the model, or the batch does not divide by them");
    if (!r)
        r = par_split(t->grid.all, mine < 0, mine < 0 ? me : (p / inner * dp + mine) * inner + p % inner,
                      &t->grid.world);
    if (!r && mine < 0) {
        r = par_close(t->grid.world);
        t->grid.world = NULL;
    }
    if (!r && me == 0)
        fprintf(t->o.json ? stderr : stdout, "gpt: %d ranks train on (dp %d), %d spares\n",
                dp * t->o.pp * inner, dp, ranks - dp * t->o.pp * inner);
    free(places);
    return r;
}

static par_comm *comm_after(void *user, par_comm *old) { // for tensors
    trainer *t = (trainer *)user;
    par_comm *now = par_tp_comm_after(t->part.tp, old);
    return now ? now : t->grid.tied;
}
static par_result recover_states(trainer *t) {
    const par_zero_checkpoint f = checkpoint_files(t, t->o.save);
    par_zero_recovery got;
    par_zero_comms now;
    memset(&now, 0, sizeof now);
    now.recovery = &got;
    now.checkpoint = t->o.save ? &f : NULL;
    now.replace = comm_after;
    now.user = t;
    if (!is_spare(t)) {
        now.comm = t->grid.zero;
        now.model_parallel_comm = t->grid.model_parallel;
        now.tensor_parallel_comm = t->o.tp > 1 ? t->grid.tp : NULL;
        now.microbatches = t->batch.microbatches / t->part.schedule.directions;
    }
    GPT_TRY(par_zero_recover(t->part.zero, t->grid.all, &now));
    t->run.step = t->run.zero_step + (int)got.done;
    if (got.from_checkpoint) {
        gpt_config saved;
        files_note note;
        const char *why = files_read_note(t->o.save, &saved, &t->run.step, note);
        if (why) return par_fail(t->grid.all, PAR_ERR_FILE, "%s", why);
        t->run.zero_step = t->run.step - (int)got.done;
    }
    t->run.finished = t->run.enqueued; // what was lost is not reported
    if (par_rank(t->grid.all) == 0)
        fprintf(t->o.json ? stderr : stdout, "gpt: from step %d on%s%s\n", t->run.step + 1,
                got.from_checkpoint ? ", by the checkpoint: " : "", got.text);
    return PAR_OK;
}
// The new grid, from the comm of those that are left.
static par_result join_grid(trainer *t) {
    int microbatches = 0;
    close_step(t);
    GPT_TRY(form_grid(t));
    if (is_spare(t)) return recover_states(t);
    t->batch.microbatch = cut_batch(&t->o, par_size(t->grid.world), &microbatches);
    t->batch.microbatches = microbatches;
    GPT_TRY(open_mesh(t));
    GPT_TRY(par_tp_set_comms(t->part.tp, t->grid.tp, t->o.cp > 1 ? t->grid.cp : NULL));
    GPT_TRY(alloc_token_buffers(t));
    GPT_TRY(open_schedule(t));
    GPT_TRY(recover_states(t));
    return open_pipe(t);
}
// After an error: is it a death? Then the ranks that are left go on. 0: they do. 1: it was no death, or they
// cannot; the error has been printed.
static int go_on(trainer *t) {
    par_comm *left;
    while (t->o.elastic && par_alive(t->grid.all)) {
        if (!par_rank(t->grid.all)) fprintf(stderr, "gpt: %s\n", par_last_error(t->grid.all));
        if (t->former_count == (int)(sizeof t->former / sizeof t->former[0]))
            return print_error("too many ranks died while others recovered");
        if (par_revoke(t->grid.all) || par_shrink(t->grid.all, &left))
            return print_error(par_last_error(t->grid.all));
        t->former[t->former_count++] = t->grid;
        t->grid.all = left;
        t->grid.mesh = NULL;
        t->grid.world = t->grid.tied = t->grid.zero = t->grid.model_parallel = NULL;
        const par_result r = join_grid(t);
        while (!r && !is_spare(t) && t->former_count) { // a spare's layers keep their comms
            gpt_grid *old = &t->former[--t->former_count];
            close_comms(old, old->all);
            par_close(old->all);
        }
        if (!r) return 0;
        if (!par_alive(t->grid.all)) return print_error(par_last_error(t->grid.all)); // no other death
    }
    return 1;
}
// At the start: the last ranks are spares, which have a model of their own, and no states yet.
static int begin_spares(trainer *t) { // 0, or 1: the error has been printed
    const int me = par_rank(t->grid.all), spare = me >= par_size(t->grid.all) - t->o.spares;
    par_result (*const steps[])(trainer *) = {open_this_device, choose_products, open_grid, open_schedule,
                                              open_zero};
    par_result r = par_split(t->grid.all, spare ? me : 0, me, &t->grid.world);
    if (spare) t->batch.microbatch = cut_batch(&t->o, 1, &t->batch.microbatches);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && spare && !r; i++) r = steps[i](t);
    if (any_rank_failed(t->grid.all, r ? par_last_error(t->grid.all) : NULL)) return 1;
    if (!spare) return 0;
    t->grid.world = NULL; // its comm of one rank is closed with the world
    close_step(t);
    return 0;
}
// A spare waits until the others have ended, or a death makes it one of them. For as long as that takes.
static par_result wait_as_spare(trainer *t) {
    const double timeout = par_timeout(t->grid.all);
    par_set_timeout(t->grid.all, 1e9);
    const par_result r = par_barrier(t->grid.all);
    par_set_timeout(t->grid.all, timeout);
    return r;
}

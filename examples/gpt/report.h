// report.h - what a training says: how it begins, each step, how it ends. Part of gpt.c.

static void print_run(const trainer *t, FILE *out) { // what works on which data, and how those were read
    const settings *o = &t->o;
    const dataset *d = &t->batch.data;
    char text[512];
    const char *type = data_type_names[d->files[0].type];
    for (size_t i = 1; i < d->file_count; i++)
        if (d->files[i].type != d->files[0].type) type = "several types";
    fprintf(out,
            "gpt: %zu parameters, %d ranks (%s), pp %d x dp %d x cp %d x tp %d, %g tokens a step, matrix "
            "products by %s, %s\n",
            t->part.model.total_count, par_size(t->grid.world), par_launch_method(t->grid.world), o->pp,
            par_mesh_size(t->grid.mesh, "dp"), o->cp, o->tp,
            (double)o->batch_size * o->accumulation_steps * o->model.block_size,
            gemm_text(&t->o, &t->grid, text, sizeof text), t->grid.device->name);
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

// Reports a step that has just finished.
static void report(trainer *t, const flight *f) {
    const settings *o = &t->o;
    const int tty = isatty(1), last = f->step + 1 == o->max_iters;
    const double now = par_seconds(t->grid.world), passed = now - t->run.begun;
    const double eta = passed / (f->step + 1.0 - t->run.first_step) * (o->max_iters - f->step - 1);
    const double tokens_per_s =
        (double)o->batch_size * o->accumulation_steps * o->model.block_size / (now - t->run.step_begun);
    t->run.step_begun = now;
    if (o->json) {
        json_print("step:%d loss:%.9g lr:%.9g grad_norm:%.9g tokens_per_s:%.6g", f->step, t->run.loss, f->lr,
                   t->run.grad_norm, tokens_per_s);
    } else if (tty || last || f->step % o->log_interval == 0) {
        printf("%sstep %*d/%d  loss %.4f  lr %.2e  norm %.3f  %.0f tokens/s  ETA %.0f:%02.0f%s",
               tty ? "\r" : "", 4, f->step + 1, o->max_iters, t->run.loss, f->lr, t->run.grad_norm,
               tokens_per_s, floor(eta / 60), floor(fmod(eta, 60)), tty && !last ? "   " : "\n");
    }
    fflush(stdout);
}

// Ranks that compute for much longer than their peers, since the last comparison, and those that do no more.
static void say_paces(trainer *t) {
    pace_table *p = &t->run.paces;
    for (int r = 0; r < p->ranks; r++) {
        const double times = times_the_median(p, r);
        const int change = slow_change(p, r, times);
        if (!change) continue;
        fprintf(
            t->o.json ? stderr : stdout,
            PROGRAM ": rank %d computes %.1f times as long as the median of its peers%s (steps %d to %d)\n",
            par_world_rank(t->grid.world, r), times, change < 0 ? " again" : "", p->step + 1, t->run.step);
    }
}

static void print_end(const trainer *t, double seconds) {
    const int steps = t->run.step - t->run.first_step;
    if (steps)
        printf("%d steps in %.1f s: loss %.4f -> %.4f", steps, seconds, t->run.first_loss, t->run.loss);
    else
        printf("no step is left to do: it is at step %d, and max_iters is %d", t->run.step, t->o.max_iters);
    printf(t->o.eval_iters ? ", held-out %.4f\n" : "\n", t->run.val_loss);
}
static void print_end_json(const trainer *t, double seconds) { // null: no step, no evaluation
    json_line j = json_begin(stdout);
    json_add(&j, "final:%b step:%d first_loss:%?.9g loss:%?.9g", 1, t->run.step, t->run.first_loss,
             t->run.loss);
    json_add(&j, t->o.eval_iters ? "val_loss:%.9g" : "val_loss:%?.9g", t->run.val_loss);
    json_add(&j, "seconds:%.6g ranks:%d gemm:%s gemm_gflops:%?.1f gemm_bf16:%s", seconds,
             par_size(t->grid.world), gemm_name(&t->o, &t->grid), gemm_rate(&t->o, &t->grid),
             bf16_name(&t->o, &t->grid));
    json_end(&j);
}

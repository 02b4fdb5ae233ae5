// elastic.h - how a training goes on when ranks die: --elastic. Part of gpt.c.
//
// Each rank has a part of the model: its place, numbered over pp and tp. Ranks of dp and cp, and both ranks
// of a pair of dualpipe, have the same part, so that each of them can take the seat of another. After a death
// all ranks are seated anew: those with a part keep it, spares take the seats that remain, and there are so
// many replicas that the batch divides by them. Ranks without a seat are spares, which have no model:
//     dp 0    place 0  place 1                  dp 0    place 0  place 1
//     dp 1    place 0  (died)          -->      dp 1    place 0  place 1 (of dp 2)
//     dp 2    place 0  place 1                  spare   (was place 0)
// par_zero_recover moves the states, layers take the new comms, and what depends on the number of
// microbatches is opened anew. A rank whose part nobody needs gives its states in a first round, and may take
// another part in a second one. The step that was under way is finished, where a rank had committed it, or
// made again.

static int is_spare(const trainer *t) { return t->grid.world == NULL; }
static int is_death(par_result r) {
    return r == PAR_ERR_PEER_DIED || r == PAR_ERR_TIMEOUT || r == PAR_ERR_REVOKED;
}

typedef struct seat { // of a rank of grid.all
    int place;        // which part of the model it has, with states, or gets; -1: none
    int number;       // among the ranks that train this part; -1: a spare
    int width, first_step, zero_step, directions, ended; // what a new rank does not know, 0
} seat;
typedef struct seating {
    int ranks, places, per_replica; // seats of a place in a replica
    int dp;
    seat *seats;
} seating;

static int ranks_of(const seating *s, int place) {
    int n = 0;
    for (int r = 0; r < s->ranks; r++) n += s->seats[r].place == place;
    return n;
}
static int lacks_states(const seating *s) { // of a part of the model
    int lacks = 0;
    for (int p = 0; p < s->places; p++) lacks |= !ranks_of(s, p);
    return lacks;
}
// Can each place have `need` ranks? keep: a rank that has a part gets no other one.
static int are_enough(const seating *s, int need, int keep) {
    int missing = 0, unused = ranks_of(s, -1);
    for (int p = 0; p < s->places; p++) {
        const int n = ranks_of(s, p);
        missing += MAX(need - n, 0);
        unused += keep ? 0 : MAX(n - need, 0);
    }
    return missing <= unused;
}
// Seats the ranks, for as many replicas as can be. The first ranks of a place count.
static void seat_ranks(const trainer *t, seating *s, int keep) {
    const int size = s->places * s->per_replica;
    int unused;
    s->dp = s->ranks / size;
    while (s->dp > 0 &&
           (!cut_batch(&t->o, s->dp * size, &unused) || !are_enough(s, s->dp * s->per_replica, keep)))
        s->dp--;
    for (int r = 0; r < s->ranks; r++) s->seats[r].number = -1;
    const int need = s->dp * s->per_replica;
    for (int p = 0; p < s->places; p++)
        for (int r = 0, n = 0; r < s->ranks && n < need; r++)
            if (s->seats[r].place == p) s->seats[r].number = n++;
    for (int p = 0, r = 0; p < s->places; p++)
        for (int n = MIN(ranks_of(s, p), need); n < need; n++) {
            while (s->seats[r].number >= 0 || (keep && s->seats[r].place >= 0)) r++;
            s->seats[r].place = p;
            s->seats[r].number = n;
        }
}
// Would there be more replicas if the spares had given their states?
static int can_be_more(const trainer *t, const seating *s, seat *memory) {
    seating next = *s;
    next.seats = memory;
    memcpy(memory, s->seats, (size_t)s->ranks * sizeof *memory);
    for (int r = 0; r < s->ranks; r++)
        if (memory[r].number < 0) memory[r].place = -1;
    seat_ranks(t, &next, 1);
    return next.dp > s->dp;
}
// Seats all ranks, in s->seats, which has room for twice as many. *more: another round has more replicas.
static par_result take_seats(trainer *t, seating *s, int *more) {
    seat mine = {t->grid.place,      0,           t->width, t->run.first_step, t->run.zero_step,
                 t->grid.directions, t->run.ended};
    GPT_TRY(par_all_gather(&mine, s->seats, sizeof mine, PAR_U8, t->grid.all));
    int from = 0; // a rank that knows: rank 0 is no new one, but a rank with states knows better
    for (int r = s->ranks - 1; r >= 0; r--) {
        if (s->seats[r].place >= 0) from = r;
        t->run.ended |= s->seats[r].ended;
    }
    t->width = s->seats[from].width;
    t->run.first_step = s->seats[from].first_step;
    t->run.zero_step = s->seats[from].zero_step;
    t->grid.directions = s->seats[from].directions;
    s->per_replica = t->o.cp * t->grid.directions;
    s->places = t->o.pp * t->o.cp * t->o.tp / s->per_replica;
    const int lacks = lacks_states(s) && !t->o.save;
    seat_ranks(t, s, 1);
    if (!s->dp) seat_ranks(t, s, 0); // a buddy may have their states, or a checkpoint
    if (!s->dp || lacks)
        return par_fail(
            t->grid.all, PAR_ERR_ARGUMENT,
            "the ranks that are left have no whole copy of the model, or the batch does not divide by "
            "them: go on from a checkpoint of --save, by --load");
    *more = can_be_more(t, s, s->seats + s->ranks);
    return PAR_OK;
}
static par_result split_grid(trainer *t, const seating *s) {
    const int me = par_rank(t->grid.all), tp = t->o.tp, cp = t->o.cp;
    const seat *mine = &s->seats[me];
    const int n = MAX(mine->number, 0), pair = mine->place / tp, other = n % s->per_replica / cp;
    const int pp = other ? t->o.pp - 1 - pair : pair;
    GPT_TRY(par_split(t->grid.all, mine->number < 0 ? -1 : 0,
                      ((pp * s->dp + n / s->per_replica) * cp + n % cp) * tp + mine->place % tp,
                      &t->grid.world));
    return par_split(t->grid.all, mine->number < 0 && t->grid.place < 0 ? -1 : 0, me, &t->grid.movers);
}
// Opens what this rank needs for its seat. A rank that has another part of the model, or none, opens that.
static par_result open_seat(trainer *t, int place) {
    if (t->grid.place != place) GPT_TRY(close_part(t));
    t->batch.microbatch = cut_batch(&t->o, par_size(t->grid.world), &t->batch.microbatches);
    GPT_TRY(open_mesh(t));
    GPT_TRY(choose_products(t));
    GPT_TRY(t->part.tp ? par_tp_set_comms(t->part.tp, t->grid.tp, t->o.cp > 1 ? t->grid.cp : NULL)
                       : open_layers(t));
    GPT_TRY(alloc_token_buffers(t));
    GPT_TRY(open_schedule(t));
    if (!t->part.zero) GPT_TRY(open_zero(t));
    t->grid.place = place;
    return PAR_OK;
}

static par_comm *comm_after(void *user, par_comm *old) { // for tensors
    trainer *t = (trainer *)user;
    par_comm *now = par_tp_comm_after(t->part.tp, old);
    return now ? now : t->grid.tied;
}
static par_result recover_states(trainer *t, par_zero_recovery *got) {
    const par_zero_checkpoint f = checkpoint_files(t, t->o.save);
    par_zero_comms now;
    memset(&now, 0, sizeof now);
    now.recovery = got;
    now.checkpoint = t->o.save ? &f : NULL;
    now.replace = comm_after;
    now.user = t;
    if (!is_spare(t)) {
        now.comm = t->grid.zero;
        now.model_parallel_comm = t->grid.model_parallel;
        now.tensor_parallel_comm = t->o.tp > 1 ? t->grid.tp : NULL;
        now.microbatches = t->batch.microbatches / t->part.schedule.directions;
    }
    GPT_TRY(par_zero_recover(t->part.zero, t->grid.movers, &now));
    if (is_spare(t)) return close_part(t);
    t->run.step = t->run.zero_step + (int)got->done;
    if (got->from_checkpoint) {
        gpt_config saved;
        files_note note;
        const char *why = files_read_note(t->o.save, &saved, &t->run.step, note);
        if (why) return par_fail(t->grid.all, PAR_ERR_FILE, "%s", why);
        t->run.zero_step = t->run.step - (int)got->done;
    }
    t->run.finished = t->run.enqueued; // what was lost is not reported
    return open_pipe(t);
}
// Ends a part of the recovery: all ranks have done it, or all return an error, which has been printed unless
// it is a death.
static par_result agree(trainer *t, par_result r) {
    int failed = 0;
    if (is_death(r)) return r; // the others hear of it, too
    r = share_failure(t->grid.all, r ? par_last_error(t->grid.all) : NULL, &failed);
    return r ? r : failed ? PAR_ERR_ARGUMENT : PAR_OK;
}
// Keeps the grid's comms until the states are in new ones.
static par_result keep_former(trainer *t, par_comm *all) {
    if (t->former_count == (int)(sizeof t->former / sizeof t->former[0]))
        return par_fail(t->grid.all, PAR_ERR_MEMORY, "too many ranks died while others recovered");
    gpt_grid *f = &t->former[t->former_count++], *g = &t->grid;
    *f = *g;
    f->all = all;
    g->mesh = NULL;
    g->world = g->movers = g->tied = g->zero = g->model_parallel = NULL;
    return PAR_OK;
}
static void close_former(trainer *t) {
    while (t->former_count) {
        gpt_grid *old = &t->former[--t->former_count];
        close_comms(old, old->all);
        par_close(old->all);
    }
}
static void say_who_trains(const trainer *t, const par_zero_recovery *got) {
    const int ranks = par_size(t->grid.all), train = is_spare(t) ? 0 : par_size(t->grid.world);
    FILE *out = t->o.json ? stderr : stdout;
    if (!train || par_rank(t->grid.world)) return;
    fprintf(out, PROGRAM ": %d rank%s on (dp %d), %d spare%s\n", train, train == 1 ? " trains" : "s train",
            par_mesh_size(t->grid.mesh, "dp"), ranks - train, ranks - train == 1 ? "" : "s");
    fprintf(out, PROGRAM ": from step %d on%s%s\n", t->run.step + 1,
            got->from_checkpoint ? ", by the checkpoint: " : "", got->text);
}
// Ranks of grid.all, some of which may be new, form a new grid: in one round, or two.
static par_result join_grid(trainer *t) {
    seating s;
    par_zero_recovery got;
    int more = 1;
    memset(&s, 0, sizeof s);
    memset(&got, 0, sizeof got);
    s.ranks = par_size(t->grid.all);
    s.seats = (seat *)calloc(2 * (size_t)s.ranks, sizeof *s.seats);
    par_result r =
        agree(t, s.seats ? PAR_OK : par_fail(t->grid.all, PAR_ERR_MEMORY, "out of memory for seats"));
    for (int round = 0; more && !r; round++) {
        if (round) r = keep_former(t, NULL);
        close_step(t);
        if (!r) r = take_seats(t, &s, &more);
        if (!r) r = split_grid(t, &s);
        if (!r && !is_spare(t)) r = open_seat(t, s.seats[par_rank(t->grid.all)].place);
        r = agree(t, r);
        if (!r) r = agree(t, t->grid.movers ? recover_states(t, &got) : PAR_OK);
    }
    free(s.seats);
    if (!r) say_who_trains(t, &got);
    if (!r) close_former(t);
    return r;
}
static par_result take_device_along(trainer *t) { // to grid.all, which is a new one
    const par_result r = reopen_device(&t->grid);
    if (r && !is_death(r)) print_error(par_last_error(t->grid.all));
    return r;
}
static int is_over_tcp(const trainer *t) { return !strcmp(par_launch_method(t->grid.all), "tcp"); }
static void say_where_to_join(const trainer *t) { // over TCP new ranks are processes that the user starts
    const char *where = t->o.regrow ? par_join_at(t->grid.all) : "";
    if (*where) fprintf(t->o.json ? stderr : stdout, PROGRAM ": new ranks join by PAR_JOIN=%s\n", where);
}
// Starts new ranks in the places of those that have died. Where that cannot be the training goes on smaller.
static par_result replace_the_dead(trainer *t) {
    par_comm *more;
    const int dead = t->width - par_size(t->grid.all);
    GPT_TRY(par_all_reduce(&t->run.ended, &t->run.ended, 1, PAR_I32, PAR_MAX, t->grid.all));
    if (!t->o.regrow || dead < 1 || t->run.ended) return PAR_OK;
    par_result r = par_grow(t->grid.all, dead, &more);
    if (r && !is_death(r)) {
        t->o.regrow = is_over_tcp(t); // later there may be some that wait
        if (!par_rank(t->grid.all))
            fprintf(stderr, PROGRAM ": no new ranks%s: %s\n", t->o.regrow ? "" : " from here on",
                    par_last_error(t->grid.all));
        say_where_to_join(t);
        return PAR_OK;
    }
    if (r) return r;
    par_comm *left = t->grid.all;
    t->grid.all = more;
    r = take_device_along(t);
    par_close(left);
    say_where_to_join(t);
    return r;
}
// The ranks that are left form a comm, if none has an error that is no death. Errors have been printed then.
static par_result drop_the_dead(trainer *t, int is_fault) {
    uint64_t go = !is_fault;
    par_comm *left;
    if (go && !par_rank(t->grid.all)) fprintf(stderr, PROGRAM ": %s\n", par_last_error(t->grid.all));
    par_result r = par_revoke(t->grid.all);
    if (!r) r = par_agree(t->grid.all, &go);
    if (!go) return PAR_ERR_ARGUMENT;
    if ((r && !is_death(r)) || par_shrink(t->grid.all, &left) || keep_former(t, t->grid.all))
        return print_error(par_last_error(t->grid.all)), PAR_ERR_ARGUMENT;
    t->grid.all = left;
    r = take_device_along(t);
    return r ? r : replace_the_dead(t);
}
// After an error: is it a death? Then the ranks that are left go on; and a new rank begins here. 0: they do.
// 1: it was no death, or they cannot; the error has been printed.
static int go_on(trainer *t) {
    if (!t->o.elastic) return 1;
    if (t->run.given_up) par_barrier(t->grid.world); // all that train come here, and root has said why
    int is_fault = t->run.given_up || (!t->joins && par_alive(t->grid.all) == PAR_OK);
    par_result r = t->joins ? PAR_OK : PAR_ERR_PEER_DIED;
    do {
        if (r) r = drop_the_dead(t, is_fault);
        if (!r) r = join_grid(t);
        is_fault = 0;
    } while (is_death(r));
    t->joins = 0;
    return r != PAR_OK;
}
// At the start: the last ranks are spares. 0, or 1: the error has been printed.
static int begin_spares(trainer *t) {
    const int me = par_rank(t->grid.all), spare = me >= par_size(t->grid.all) - t->o.spares;
    const par_result r = par_split(t->grid.all, spare ? -1 : 0, me, &t->grid.world);
    return any_rank_failed(t->grid.all, r ? par_last_error(t->grid.all) : NULL);
}
// A spare waits until the others have ended, or a death makes it one of them. For as long as that takes.
static par_result wait_as_spare(trainer *t) {
    const double timeout = par_timeout(t->grid.all);
    par_set_timeout(t->grid.all, 1e9);
    const par_result r = par_barrier(t->grid.all);
    par_set_timeout(t->grid.all, timeout);
    return r;
}
// What will be done where ranks die.
static void print_elastic(const trainer *t, FILE *out) {
    const int size = t->o.pp * t->o.cp * t->o.tp;
    int unused;
    fprintf(out, "elastic: where ranks die ");
    if (t->o.spares) fprintf(out, "spares (%d) ", t->o.spares);
    if (t->o.regrow) fprintf(out, t->o.spares ? "and new ones " : "new ones ");
    fprintf(out, t->o.spares || t->o.regrow ? "take their places, else dp shrinks:" : "dp shrinks:");
    for (int dp = par_mesh_size(t->grid.mesh, "dp"); dp > 0; dp--)
        if (cut_batch(&t->o, dp * size, &unused)) fprintf(out, " %d", dp);
    fprintf(out, " (replicas of %d rank%s)\n", size, size == 1 ? "" : "s");
    say_where_to_join(t);
}

// simulate.h - bench_coll --simulate: the kit's own collectives at a scale that nobody here has. Each rank's
// emitter runs as in >>stepping of par.h, one rank at a time, over a comm of which only the layout is there;
// its actions become the steps of network.h. Where all ranks do O(ranks) steps, more ranks than can be
// executed are computed from fewer, by the polynomial through three sizes, and the row says so.
#ifndef SIMULATE_H
#define SIMULATE_H

#include "network.h"

enum { SIM_MESSAGES = 2000000, SIM_ACTIONS = 400000000 }; // of all ranks, at most
enum { SIM_PHASES = 4 * PAR__PHASES }; // before the first of a collective: those of the arrival
static const uintptr_t sim_stages = (uintptr_t)1 << 44, sim_send = (uintptr_t)1 << 45,
                       sim_recv = (uintptr_t)3 << 45; // addresses of nothing

typedef struct sim_steps {
    net_step *steps;
    size_t count, capacity;
} sim_steps;
typedef struct simulation {
    par__world *world;
    par_comm *comm;
    par__operation *op;
    size_t *counts, *displs; // of v-forms
    sim_steps tracks[NET_TRACKS];
    sim_steps all;
    size_t messages, actions; // emitted so far
    const char *algorithm;
    net_run run;
} simulation;

static net_step *sim_add(simulation *s, int track, net_verb verb, uint64_t amount) {
    sim_steps *x = &s->tracks[track];
    if (x->count == x->capacity) {
        const size_t capacity = 2 * x->capacity + 64;
        net_step *p = (net_step *)realloc(x->steps, capacity * sizeof *p);
        if (!p) return s->run.no_memory = 1, x->steps;
        x->steps = p, x->capacity = capacity;
    }
    net_step *a = &x->steps[x->count++];
    memset(a, 0, sizeof *a);
    a->verb = (uint8_t)verb;
    a->amount = amount;
    return a;
}
// The actions that a piece has on the current track.
static void sim_take_actions(simulation *s) {
    const par__operation *op = s->op;
    const int n = s->comm->size, me = s->comm->rank, track = op->track->index;
    s->actions += op->track->action_count;
    for (size_t i = 0; i < op->track->action_count; i++) {
        const par__action *a = &op->track->actions[i];
        const uint64_t sources = (uint64_t)(a->last - a->first + 1 + (a->src != NULL));
        net_step *x = NULL;
        switch (a->verb) {
        case PAR__WAIT_ALL: sim_add(s, track, NET_WAIT_ALL, a->phase); break;
        case PAR__WAIT: x = sim_add(s, track, NET_WAIT, a->phase); break;
        case PAR__PUBLISH: sim_add(s, track, NET_PUBLISH, a->phase); break;
        case PAR__COPY:
        case PAR__PULL:
        case PAR__PUT: sim_add(s, track, NET_WORK, a->bytes); break;
        case PAR__REDUCE: sim_add(s, track, NET_WORK, sources * a->count * par__element_bytes(op)); break;
        case PAR__COMBINE: sim_add(s, track, NET_WORK, 2 * a->count * par__element_bytes(op)); break;
        case PAR__TRANSPOSE:
            sim_add(s, track, NET_WORK, (uint64_t)a->first * (uint64_t)a->last * a->bytes);
            break;
        case PAR__SEND: x = sim_add(s, track, NET_SEND, a->bytes); break;
        case PAR__RECV: x = sim_add(s, track, NET_RECV, a->bytes); break;
        case PAR__JOIN: sim_add(s, track, NET_JOIN, 0); break;
        case PAR__COMPARE: break;
        }
        if (!x) continue;
        x->peer = (a->rank - me + n) % n;
        x->lane = (uint8_t)(a->verb == PAR__WAIT ? 0 : a->lane);
        s->messages += x->verb == NET_SEND;
    }
}
static void sim_use_track(simulation *s, int i) {
    par__use_track(s->op, i);
    s->op->track->action_count = s->op->track->at = 0;
}

// ---- the arrival ------------------------------------------------------------------------------------------

// What a rank does before the algorithm: it tells its node of its call, and the leader folds digests of the
// nodes' arrivals, as in par__step_gathering. The one place that knows how.
static void sim_emit_arrival(simulation *s) {
    par__operation *op = s->op;
    const par__layout *l = &s->comm->nodes;
    const int leader = par__local_index(l, s->comm->rank) == 0;
    sim_add(s, 0, NET_PUBLISH, 1);
    if (l->node_count == 1 || leader) sim_add(s, 0, NET_WAIT_ALL, 1);
    if (l->node_count > 1 && leader) {
        sim_use_track(s, 0);
        for (op->distance = 1; op->distance < l->node_count; op->distance *= PAR__FOLD_RADIX) {
            par__emit_gathering(op);
            sim_take_actions(s);
        }
    }
    if (l->node_count > 1 && leader) sim_add(s, 0, NET_PUBLISH, 2);
    if (l->node_count > 1 && !leader) {
        const int first = par__node_rank(l, l->my_node, 0), n = s->comm->size;
        sim_add(s, 0, NET_WAIT, 2)->peer = (first - s->comm->rank + n) % n;
    }
    sim_add(s, 0, NET_PUBLISH, SIM_PHASES);
}

// ---- a rank -----------------------------------------------------------------------------------------------

// Give a v-form its counts: all blocks have `count`.
static void sim_set_counts(par_call *k, int at_root, const size_t *counts, const size_t *displs) {
    const par_kind_traits *t = &par__kinds[k->kind];
    const int own = t->counts == PAR_COUNTS_OWN, rooted = t->counts == PAR_COUNTS_ROOT && at_root,
              scatters = t->send == PAR_SIDE_ROOT_ALL;
    if (own || (rooted && scatters)) k->send_counts = counts, k->send_displs = displs;
    if (own || (rooted && !scatters) || t->counts == PAR_COUNTS_SAME) k->recv_counts = counts;
    if (k->recv_counts && t->recv != PAR_SIDE_BLOCK) k->recv_displs = displs;
}
static void sim_call(simulation *s, par_call call) {
    par_call *k = &s->op->call;
    *k = call;
    k->send = (const void *)sim_send;
    k->recv = (void *)sim_recv;
    for (int r = 0; r < s->comm->size && s->counts[r] != call.count; r++)
        s->counts[r] = call.count, s->displs[r + 1] = (size_t)(r + 1) * call.count;
    sim_set_counts(k, s->comm->rank == call.root, s->counts, s->displs);
    if (k->recv_counts) k->recv_displs = s->displs; // the same places, faster
}
// How the ranks' arrays are reached, as >>arrival finds out: ordinary memory, which the system does not copy.
static void sim_resolve(simulation *s) {
    par__operation *op = s->op;
    const par__layout *l = &s->comm->nodes;
    op->eager = par__sends_inline(op)      ? PAR__EAGER_INLINE
                : par__sends_attached(op)  ? PAR__EAGER_ATTACHED
                : par__sends_staged(op, 1) ? PAR__EAGER_SMALL
                : par__sends_staged(op, 0) ? PAR__EAGER_STAGE
                                           : PAR__EAGER_NONE;
    op->arrays.all_staged = op->eager && op->eager != PAR__EAGER_INLINE;
    op->arrays.send_addressable = op->arrays.recv_addressable = op->arrays.nontemporal = 0;
    op->arrays.stream_recv = par__is_beyond_caches(op);
    for (int t = 0; t < NET_TRACKS; t++)
        for (int i = 0; i < par__node_size(l, l->my_node); i++) {
            const int r = par__node_rank(l, l->my_node, i);
            op->arrays.inputs[t * s->comm->size + r] =
                r == s->comm->rank ? (const char *)op->call.send : NULL;
            op->arrays.output[r] = NULL;
        }
}
static int sim_emit_rank(simulation *s, int rank, par_call call) { // 0: an error, see the world's text
    par_comm *c = s->comm;
    par__operation *op = s->op;
    c->rank = rank;
    c->half = 0;
    par__set_layout(&c->nodes, c->size, rank, s->world->node_ranks);
    par__set_layout(&c->flat, c->size, rank, 1);
    for (int i = 0; i < NET_TRACKS; i++) c->phase[i] = SIM_PHASES, s->tracks[i].count = 0;
    sim_call(s, call);
    par__begin_tracks(op);
    sim_resolve(s);
    sim_emit_arrival(s);
    op->algorithm = par__choose_algorithm(op);
    s->algorithm = op->algorithm->name;
    if (!op->algorithm->emit && c->nodes.node_count > 1) { // the leader has what its node needs
        const par__payload p = par__payload_of(op);
        sim_add(s, 0, NET_WORK, p.needed + (par__local_index(&c->nodes, rank) ? 0 : p.bytes));
    } else if (!op->algorithm->emit) { // every rank takes what it needs from all
        const size_t blocks =
            par__takes_op(call.kind) || par__kinds[call.kind].recv & PAR_SIDE_ALL ? (size_t)c->size : 1;
        sim_add(s, 0, NET_WORK, blocks * par__call_bytes(op));
    }
    while (op->algorithm->emit && op->more_pieces && !op->result) { // par__step_pieces
        const int i = (int)(op->piece % (size_t)op->track_count);
        sim_use_track(s, i);
        sim_add(s, i, NET_PIECE, op->piece);
        par__emit_next_piece(op);
        sim_take_actions(s);
        op->track->phase += PAR__PHASES;
    }
    if (op->algorithm->emit && op->track_count > 1 && op->piece > 1) {
        sim_add(s, 0, NET_LAST, 0);
        par__emit_final_piece(op);
        sim_take_actions(s);
    }
    return op->result == PAR_OK;
}
// The steps of all tracks side by side.
static const net_program *sim_pack(simulation *s) {
    uint32_t ends[NET_TRACKS];
    size_t count = 0;
    for (int i = 0; i < NET_TRACKS; i++) ends[i] = (uint32_t)(count += s->tracks[i].count);
    if (s->all.capacity < count) {
        free(s->all.steps);
        s->all.steps = (net_step *)malloc((s->all.capacity = 2 * count) * sizeof(net_step));
        if (!s->all.steps) return s->run.no_memory = 1, s->all.capacity = 0, (net_program *)NULL;
    }
    for (int i = 0; i < NET_TRACKS; i++)
        memcpy(s->all.steps + ends[i] - s->tracks[i].count, s->tracks[i].steps,
               s->tracks[i].count * sizeof(net_step));
    return net_keep_program(&s->run, s->all.steps, ends);
}

static void sim_close(simulation *s) {
    for (int i = 0; i < NET_TRACKS; i++) free(s->tracks[i].steps);
    if (s->comm) par__free_comm(s->comm);
    if (s->world) par__free_world(s->world, 0);
    free(s->counts), free(s->displs), free(s->all.steps);
    memset(s, 0, sizeof *s);
}
// A comm that has a layout and no ranks. 0: an error was printed.
static int sim_open(simulation *s, int ranks, int node_ranks, const char *force) {
    par__open_request start;
    memset(s, 0, sizeof *s);
    par__check_desc(NULL, &start);
    start.desc.node_ranks = node_ranks;
    s->world = par__new_world(&start.desc, "simulated", 0, ranks);
    if (!s->world) return 0;
    par__read_algorithm_settings(s->world, &start);
    if (par__open_rejected(&start) || par__apply_force(s->world, "--simulate", force)) return 0;
    s->world->cma = 0;
    int *where = (int *)malloc(3 * sizeof(int) * (size_t)ranks);
    for (int r = 0; where && r < ranks; r++)
        where[r] = r, where[ranks + r] = r / node_ranks, where[2 * ranks + r] = -1; // no arena
    if (where) s->comm = par__make_comm(s->world, 0, 0, ranks, where, where + ranks, where + 2 * ranks);
    free(where);
    s->op = s->comm ? par__make_operation(s->world) : NULL;
    s->counts = (size_t *)calloc((size_t)ranks, sizeof(size_t));
    s->displs = (size_t *)calloc((size_t)ranks + 1, sizeof(size_t)); // and where the last block ends
    if (!s->op || !s->counts || !s->displs) return 0;
    s->comm->stages = (char *)sim_stages;
    s->op->comm = s->comm;
    s->op->world = s->world;
    s->op->sequence = 1;
    return par__alloc_addresses(s->op);
}

#include "patterns.h"

typedef struct sim_case {
    par_call call;              // of a pattern: bytes
    const pattern_row *pattern; // of messages; NULL: the call
    char algorithm[64];         // operation:algorithm; "": the one that the call takes
} sim_case;
typedef struct sim_row {
    net_result net;
    const char *algorithm;
    int from[3];    // the sizes that it was computed from; 0: it was executed
    double differs; // by how much a fourth one does
} sim_row;
static void sim_emit_pattern(simulation *s, int rank, const network *n, const sim_case *x) {
    for (int i = 0; i < NET_TRACKS; i++) s->tracks[i].count = 0;
    x->pattern->emit(s, rank, n->ranks, n->node_ranks, x->call.count);
    s->algorithm = "pattern";
}
// Emit all ranks, and execute them unless they have too many messages. 1: executed; 0: too many; -1: an
// error, which is printed.
static int sim_execute(network *n, const sim_case *x, sim_row *row) {
    simulation s;
    int many = 0;
    int fine = sim_open(&s, n->ranks, n->node_ranks, x->algorithm);
    if (fine && !(net_open(n) && net_begin(&s.run, n))) fine = 0, fprintf(stderr, "bench_coll: no memory\n");
    for (int r = 0; fine && r < n->ranks && !many; r++) {
        if (x->pattern)
            sim_emit_pattern(&s, r, n, x);
        else
            fine = sim_emit_rank(&s, r, x->call);
        if (fine) s.run.ranks[r].program = sim_pack(&s);
        if (s.run.no_memory) fine = 0;
        many = s.messages > SIM_MESSAGES || s.actions > SIM_ACTIONS;
        if (!fine)
            fprintf(stderr, "bench_coll: rank %d: %s\n", r, s.run.no_memory ? "no memory" : s.world->error);
    }
    if (fine && !many) {
        row->net = net_execute(&s.run);
        fine = !s.run.no_memory && row->net.stuck < 0;
        if (!fine) fprintf(stderr, "bench_coll: rank %d waits for ever\n", row->net.stuck);
    }
    row->algorithm = s.algorithm;
    net_end(&s.run), net_close(n), sim_close(&s);
    return !fine ? -1 : !many;
}
// The polynomial through three points at `at`; *differs becomes how far off it is at a fourth one, as a
// share, if that is more.
static double sim_polynomial(const double *x, const double *y, double at, double *differs) {
    double value[2];
    for (int fourth = 0; fourth < 2; fourth++) { // predict the first point from the others; then `at`
        const double *px = x + !fourth, *py = y + !fourth, to = fourth ? at : x[0];
        value[fourth] = 0;
        for (int i = 0; i < 3; i++) {
            double term = py[i];
            for (int k = 0; k < 3; k++)
                if (k != i) term *= (to - px[k]) / (px[i] - px[k]);
            value[fourth] += term;
        }
    }
    *differs = MAX(*differs, fabs(value[0] - y[0]) / MAX(y[0], 1e-12));
    return value[1];
}
// A row of a call; from smaller sizes where there are too many messages. The same results.
static int sim_measure(network *n, const sim_case *x, sim_row *row) {
    enum { POINTS = 4 };
    const int ranks = n->ranks, nodes = n->nodes;
    double at_ranks[POINTS], y[4][POINTS];
    sim_row at;
    memset(row, 0, sizeof *row);
    int fine = sim_execute(n, x, row);
    sim_case same = *x; // by the algorithm that this many ranks take
    if (!x->pattern)
        snprintf(same.algorithm, sizeof same.algorithm, "%s:%s", par_kind_name(x->call.kind), row->algorithm);
    for (int i = 0, shift = 1; !fine && i < POINTS && nodes >> shift > 0; shift++) {
        n->ranks = (nodes >> shift) * n->node_ranks;
        const int done = sim_execute(n, &same, &at);
        if (done < 0) fine = done;
        if (done <= 0) continue;
        if (i < 3) row->from[i] = n->ranks;
        if (!i) row->net = at.net, row->algorithm = at.algorithm;
        at_ranks[i] = n->ranks;
        y[0][i] = at.net.messages, y[1][i] = at.net.bytes, y[2][i] = at.net.steps, y[3][i++] = at.net.seconds;
        fine = i == POINTS;
    }
    n->ranks = ranks;
    net_describe(n);
    if (fine <= 0 || !row->from[2]) return fine;
    double off = 0;
    row->net.messages = sim_polynomial(at_ranks, y[0], ranks, &row->differs);
    row->net.bytes = sim_polynomial(at_ranks, y[1], ranks, &row->differs);
    row->net.seconds = sim_polynomial(at_ranks, y[3], ranks, &row->differs);
    const double steps = sim_polynomial(at_ranks, y[2], ranks, &off);
    if (row->differs > 0.05) row->net.messages = row->net.bytes = row->net.seconds = NAN; // it is none
    row->net.steps = off < 0.01 ? (int)lround(steps) : -1; // they grow as a logarithm, perhaps
    return 1;
}

// ---- the rows ---------------------------------------------------------------------------------------------

static size_t sim_blocks(par_kind kind, int ranks) {
    const par_kind_traits *t = par_kind_traits_of(kind);
    return (t->send | t->recv) & PAR_SIDE_ALL ? (size_t)ranks : 1;
}
static void sim_print(const bench *b, const network *n, const sim_case *c, const sim_row *row) {
    const size_t blocks = sim_blocks(c->call.kind, n->ranks) * b->element_bytes;
    const size_t bytes = c->call.count * (c->pattern ? 1 : blocks);
    const char *op = c->pattern ? c->pattern->name : par_kind_name(c->call.kind);
    const net_result *x = &row->net;
    if (b->o.json) {
        json_line j = json_begin(stdout);
        json_add(&j, "mode:%s op:%s bytes:%zu algorithm:%s ranks:%d nodes:%d network:%s messages:%?.0f",
                 "simulated", op, bytes, row->algorithm, n->ranks, n->nodes, net_names[n->kind], x->messages);
        json_add(&j, "net_bytes:%?.0f steps:%?.0f time_us:%?.6f link:%s share:%.4f", x->bytes,
                 x->steps < 0 ? NAN : (double)x->steps, x->seconds * 1e6, x->link, x->share);
        if (row->from[0]) json_add(&j, "computed_from:%d differs:%.4f", row->from[0], row->differs);
        json_end(&j);
        return;
    }
    char steps[16] = "?";
    if (x->steps >= 0) snprintf(steps, sizeof steps, "%d", x->steps);
    printf("%-14s %11zu %-10s %11.5g %11.5g %7s %12.2f %-9s %4.0f%%", op, bytes, row->algorithm, x->messages,
           x->bytes, steps, x->seconds * 1e6, x->link, x->share * 100);
    if (row->from[0])
        printf("  %s from %d, %d, %d ranks (%.1f%% off)", isnan(x->seconds) ? "unknown" : "computed",
               row->from[2], row->from[1], row->from[0], row->differs * 100);
    printf("\n");
}
static void sim_print_head(const bench *b, const network *n) {
    if (b->o.json) return;
    printf("# %d ranks on %d nodes, %s (radix %d, oversubscription %g), simulated\n", n->ranks, n->nodes,
           net_names[n->kind], n->radix, n->oversubscription);
    printf("# %g us, %g us a hop, %g us a processor, %g GB/s a link; in a node %g us, %g GB/s a rank\n",
           n->latency * 1e6, n->hop * 1e6, n->overhead * 1e6, n->bandwidth * 1e-9, n->memory_latency * 1e6,
           n->memory_bandwidth * 1e-9);
    printf("#%-13s %11s %-10s %11s %11s %7s %12s %-9s %5s\n", "op", "size", "algorithm", "messages", "bytes",
           "steps", "time", "busiest", "share");
    printf("#%-13s %11s %-10s %11s %11s %7s %12s link\n", "", "(B)", "", "of nodes", "of nodes", "", "(us)");
}

// ---- --vs ledger ------------------------------------------------------------------------------------------

typedef struct sim_job { // a call that threads make, too
    sim_case call;
    double messages, bytes; // simulated
    uint64_t counted[2];    // by the ledgers of all ranks
} sim_job;
typedef struct sim_jobs {
    sim_job *jobs;
    size_t count, capacity;
} sim_jobs;
static par_result sim_make_call(par_comm *world, sim_job *x, char *send, char *recv, size_t *sizes) {
    const size_t n = (size_t)par_size(world);
    par_call call = x->call.call;
    for (size_t r = 0; r < n; r++) sizes[r] = call.count, sizes[n + r] = r * call.count;
    sim_set_counts(&call, par_rank(world) == call.root, sizes, sizes + n);
    call.send = send;
    call.recv = recv;
    par_ledger_reset(world);
    par_result r = par_force_algorithm(world, x->call.algorithm);
    if (!r) r = par_begin(world, &call, NULL);
    const par_ledger row = par_ledger_get(world, call.kind);
    __atomic_add_fetch(&x->counted[0], row.net_messages, __ATOMIC_RELAXED);
    __atomic_add_fetch(&x->counted[1], row.net_bytes, __ATOMIC_RELAXED);
    return r;
}
static int sim_run_thread(par_comm *world, void *user) {
    const sim_jobs *x = (const sim_jobs *)user;
    const size_t n = (size_t)par_size(world);
    size_t bytes = 64, *sizes = (size_t *)malloc(2 * n * sizeof(size_t));
    for (size_t i = 0; i < x->count; i++)
        bytes = MAX(bytes, n * x->jobs[i].call.call.count * par_dtype_bytes(x->jobs[i].call.call.dtype));
    char *memory = (char *)calloc(2, bytes);
    par_result r = sizes && memory ? PAR_OK : PAR_ERR_MEMORY;
    for (size_t i = 0; i < x->count && !r; i++)
        r = sim_make_call(world, &x->jobs[i], memory, memory + bytes, sizes);
    if (r) fprintf(stderr, "bench_coll: rank %d: %s\n", par_rank(world), par_last_error(world));
    free(memory), free(sizes);
    return r != PAR_OK;
}
static int sim_compare(const network *n, sim_jobs *x) { // 0: the ledgers have the same counts
    par_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.rank_count = n->ranks;
    desc.node_ranks = n->node_ranks;
    int failed = par_run_threads(&desc, sim_run_thread, x) != PAR_OK;
    for (size_t i = 0; i < x->count && !failed; i++) {
        const sim_job *j = &x->jobs[i];
        if ((double)j->counted[0] == j->messages && (double)j->counted[1] == j->bytes) continue;
        fprintf(stderr,
                "bench_coll: %s, count %zu: simulated are %.0f messages, %.0f bytes, but the ledger has "
                "%llu, %llu\n",
                j->call.algorithm, j->call.call.count, j->messages, j->bytes,
                (unsigned long long)j->counted[0], (unsigned long long)j->counted[1]);
        failed = 1;
    }
    return failed;
}
static int sim_add_job(sim_jobs *x, const sim_job *j) { // 0: no memory
    if (x->count == x->capacity) {
        sim_job *jobs = (sim_job *)realloc(x->jobs, (x->capacity = 2 * x->capacity + 16) * sizeof *jobs);
        if (!jobs) return 0;
        x->jobs = jobs;
    }
    x->jobs[x->count++] = *j;
    return 1;
}

// A call by the algorithm that it takes; compare: by each that fits. 0: an error.
static int sim_run_size(bench *b, network *n, par_kind kind, const pattern_row *pattern, size_t count,
                        sim_jobs *compare) {
    sim_job j;
    sim_row row;
    memset(&j, 0, sizeof j);
    j.call.pattern = pattern;
    j.call.call.kind = kind, j.call.call.dtype = b->dtype, j.call.call.op = b->redop;
    j.call.call.root = b->o.root, j.call.call.count = count;
    for (int i = 0; i < (compare ? PAR__ALGORITHM_COUNT : 1); i++) {
        const char *name = par__algorithms[i].name;
        if (compare && par__algorithms[i].kind != kind) continue;
        if (compare) snprintf(j.call.algorithm, sizeof j.call.algorithm, "%s:%s", par_kind_name(kind), name);
        if (sim_measure(n, &j.call, &row) <= 0) return 0;
        if (compare && strcmp(row.algorithm, name)) continue;
        sim_print(b, n, &j.call, &row);
        j.messages = row.net.messages, j.bytes = row.net.bytes;
        if (compare && !sim_add_job(compare, &j)) return 0;
    }
    return 1;
}
// All sizes of one kind, or pattern. 0: an error.
static int sim_run_sizes(bench *b, network *n, par_kind kind, const pattern_row *pattern, sim_jobs *compare) {
    const size_t unit = pattern ? 1 : b->element_bytes * sim_blocks(kind, n->ranks);
    const int barrier = !pattern && kind == PAR_KIND_BARRIER;
    size_t last = SIZE_MAX;
    int fine = 1;
    for (size_t bytes = b->o.begin; bytes <= (barrier ? b->o.begin : b->o.end) && fine;
         bytes = next_size(b, bytes)) {
        const size_t count = barrier ? 0 : (bytes + unit - 1) / unit;
        if (count != last) fine = sim_run_size(b, n, kind, pattern, count, compare);
        last = count;
    }
    return fine;
}
static const pattern_row *sim_pattern(const char *name) { // NULL: there is none
    for (int i = 0; name && i < PATTERNS; i++)
        if (!strcmp(name, patterns[i].name)) return &patterns[i];
    return NULL;
}
static int sim_has(const char *op) {
    int has = !strcmp(op, "all");
    for (int k = 0; k < PAR_KIND_SEND; k++) has |= !strcmp(op, par_kind_name((par_kind)k));
    return has;
}
static network sim_network(const settings *o) { // NET_KINDS: there is no such kind
    network n;
    int kind = 0;
    memset(&n, 0, sizeof n);
    while (kind < NET_KINDS && strcmp(o->network, net_names[kind])) kind++;
    n.kind = (net_kind)kind;
    n.ranks = o->ranks ? o->ranks : 1024;
    n.node_ranks = MIN(o->node, n.ranks);
    n.latency = o->latency * 1e-6, n.hop = o->hop * 1e-6, n.overhead = o->processor * 1e-6;
    n.bandwidth = o->link * 1e9, n.memory_latency = o->memory_latency * 1e-6;
    n.memory_bandwidth = o->memory_link * 1e9, n.oversubscription = o->oversubscription;
    n.radix = o->radix;
    return n;
}
static int simulate(bench *b) { // the exit status
    network n = sim_network(&b->o);
    sim_jobs jobs = {NULL, 0, 0};
    int fine = 1;
    net_describe(&n);
    sim_print_head(b, &n);
    const pattern_row *pattern = sim_pattern(b->o.pattern);
    if (pattern) fine = sim_run_sizes(b, &n, PAR_KIND_BARRIER, pattern, NULL);
    for (int k = 0; k < PAR_KIND_SEND && fine && !pattern; k++)
        if (!strcmp(b->o.op, "all") || !strcmp(b->o.op, par_kind_name((par_kind)k)))
            fine = sim_run_sizes(b, &n, (par_kind)k, NULL, b->o.vs ? &jobs : NULL);
    if (fine && jobs.count) fine = !sim_compare(&n, &jobs);
    return free(jobs.jobs), !fine;
}

#endif

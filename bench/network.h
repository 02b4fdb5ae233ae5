// network.h - the time of messages over a network that is described, not there: what every rank does is a
// list of steps without data, which run in the order of simulated time.
//
// A message of b bytes takes a sender's processor `overhead`, passes the links of its route one after the
// other, arrives `latency` later (and `hop` later for each link between switches), and takes a receiver's
// processor `overhead`. A link is taken first come first served, for b / its bandwidth; the next link begins
// while the first is busy (cut-through). Sends are buffered: a sender waits until its bytes have left, not
// for the receiver. Within a node a message takes the sender's memory, and `memory_latency`.
//     fat_tree   nodes below switches of `radix` ports, half of them up, in as many levels as are needed;
//                above the first switch there are `oversubscription` times fewer links. A route goes up as
//                far as it must, by the links that its destination chooses (D mod k)
//     dragonfly  switches of `radix` ports, a quarter of them for nodes and a quarter for other groups, and
//                one link between all switches of a group; minimal routes: at most local, global, local
//     rails      a link for each rank of a node, to a switch of its own; a rank reaches another rail by the
//                memory of the rank of its node that is there
#ifndef NETWORK_H
#define NETWORK_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h> // MIN, MAX

typedef enum net_kind { NET_FAT_TREE, NET_DRAGONFLY, NET_RAILS, NET_KINDS } net_kind;
static const char *const net_names[NET_KINDS] = {"fat_tree", "dragonfly", "rails"};

enum { NET_TRACKS = 4, NET_LEVELS = 20, NET_CLASSES = 3 + 2 * NET_LEVELS, NET_HOPS = 3 + 2 * NET_LEVELS };
typedef struct net_class { // of links
    const char *name;
    size_t first, count;
    double seconds_per_byte;
} net_class;
typedef struct network {
    net_kind kind;
    int ranks, node_ranks, nodes;
    double latency, hop, overhead, bandwidth, memory_latency, memory_bandwidth, oversubscription; // seconds
    int radix;
    int levels; // of a fat tree, from 0; nodes below a switch, and its links up:
    size_t below[NET_LEVELS], width[NET_LEVELS];
    int group_nodes, groups, pair_links; // of a dragonfly; between two groups
    int class_count;
    net_class classes[NET_CLASSES];
    double *free_at, *busy; // of each link
    size_t link_count;
} network;

typedef enum net_verb {
    NET_WORK,
    NET_SEND,
    NET_RECV,
    NET_JOIN,
    NET_PUBLISH,
    NET_WAIT,
    NET_WAIT_ALL,
    NET_PIECE,
    NET_LAST
} net_verb;
typedef struct net_step {
    uint64_t amount; // bytes; or the phase; or the piece
    int32_t peer;    // its distance from this rank, so that ranks that do the same have the same steps
    uint8_t verb, lane;
} net_step;
typedef struct net_program {
    struct net_program *next; // of the same hash
    uint64_t hash;
    uint32_t end[NET_TRACKS]; // of each track's steps
    net_step steps[1];
} net_program;

typedef enum net_state {
    NET_RUNS,
    NET_AT_JOIN,
    NET_AT_PHASE,
    NET_AT_PIECE,
    NET_AT_LAST,
    NET_ENDED
} net_state;
typedef struct net_track {
    uint32_t at, open; // the step; transfers that are not complete
    int scanned;       // ranks of the node whose phase was there
    net_state state;
    double now, joined; // the latest end of a transfer
    int depth, joined_depth;
} net_track;
typedef struct net_rank {
    const net_program *program;
    net_track tracks[NET_TRACKS];
    uint32_t phase[NET_TRACKS], begun, ended; // pieces; tracks
    int phase_depth[NET_TRACKS];
    double free_at; // its processor
} net_rank;
typedef struct net_item { // a message on its way, or waiting for its receive; a receive; a phase
    uint64_t bytes;       // or the phase
    double tail;          // when its last byte arrives
    int32_t from, to, depth;
    uint32_t next; // in its list, + 1
    uint8_t lane, track, hop, kind;
} net_item;
enum { NET_MESSAGE, NET_ARRIVED, NET_POSTED, NET_PHASE };
typedef struct net_event {
    double at;
    uint32_t order, item; // of the same time: first come
} net_event;

typedef struct net_result {
    double messages, bytes; // between nodes
    int steps;              // the longest chain of messages between nodes
    double seconds;
    double share; // of the time in which the busiest link is taken
    const char *link;
    int stuck; // a rank that waits for ever; -1: none
} net_result;
typedef struct net_run {
    network *net;
    net_rank *ranks;
    net_program **programs; // by hash
    net_item *items;
    uint32_t item_count, item_capacity, free_item; // + 1
    uint32_t *lists;                               // of items that wait for their other end, + 1
    net_event *heap;
    size_t heap_count, heap_capacity;
    uint32_t order;
    net_result result;
    int no_memory;
} net_run;
enum { NET_HASH = 1 << 20 };

// ---- links and routes -------------------------------------------------------------------------------------

static void net_add_class(network *n, const char *name, size_t count, double bandwidth) {
    net_class *c = &n->classes[n->class_count++];
    c->name = name;
    c->first = n->link_count;
    c->count = count;
    c->seconds_per_byte = 1 / bandwidth;
    n->link_count += c->count;
}
enum { NET_MEMORY, NET_OUT, NET_IN, NET_SWITCHES }; // classes of all networks

static void net_add_switches(network *n) {
    const int p = (n->radix + 1) / 4, a = 2 * p; // nodes of a switch; switches of a group
    size_t below = (size_t)n->radix / 2;
    n->levels = 0;
    for (; n->kind == NET_FAT_TREE && below < (size_t)n->nodes; below *= (size_t)n->radix / 2) {
        const size_t width = MAX((size_t)((double)below / n->oversubscription), (size_t)1);
        const size_t links = ((size_t)n->nodes + below - 1) / below * width;
        net_add_class(n, "up", links, n->bandwidth);
        net_add_class(n, "down", links, n->bandwidth);
        n->below[n->levels] = below;
        n->width[n->levels++] = width;
    }
    if (n->kind != NET_DRAGONFLY) return;
    n->group_nodes = p * a;
    n->groups = (n->nodes + n->group_nodes - 1) / n->group_nodes;
    n->pair_links = n->groups > 1 ? a * p / (n->groups - 1) : 0;
    net_add_class(n, "local", (size_t)n->groups * (size_t)(a * a), n->bandwidth);
    net_add_class(n, "global", (size_t)n->groups * (size_t)(a * p), n->bandwidth);
}
// Derive the links from the settings. 0: there is no such network of so many nodes.
static int net_describe(network *n) {
    n->nodes = (n->ranks + n->node_ranks - 1) / n->node_ranks;
    n->class_count = 0;
    n->link_count = 0;
    const size_t links = (size_t)(n->kind == NET_RAILS ? n->ranks : n->nodes);
    net_add_class(n, "memory", (size_t)n->ranks, n->memory_bandwidth);
    net_add_class(n, "node out", links, n->bandwidth);
    net_add_class(n, "node in", links, n->bandwidth);
    net_add_switches(n);
    return n->kind != NET_DRAGONFLY || n->groups == 1 || n->pair_links;
}
static int net_open(network *n) { // 0: no memory
    net_describe(n);
    n->free_at = (double *)calloc(n->link_count, sizeof(double));
    n->busy = (double *)calloc(n->link_count, sizeof(double));
    return n->free_at && n->busy;
}
static void net_close(network *n) {
    free(n->free_at), free(n->busy);
    n->free_at = n->busy = NULL;
}

typedef struct net_route {
    int count;
    struct {
        int of;      // a class
        size_t link; // of it
    } hops[NET_HOPS];
} net_route;
static void net_pass(net_route *r, int of, size_t link) {
    r->hops[r->count].of = of;
    r->hops[r->count++].link = link;
}
static void net_route_fat_tree(const network *n, size_t from, size_t to, net_route *r) {
    int top = 0;
    while (top < n->levels && from / n->below[top] != to / n->below[top]) top++;
    for (int i = 0; i < 2 * top; i++) { // up, then down
        const int l = i < top ? i : 2 * top - 1 - i, down = i >= top;
        net_pass(r, NET_SWITCHES + 2 * l + down,
                 (down ? to : from) / n->below[l] * n->width[l] + to % n->width[l]);
    }
}
static void net_route_dragonfly(const network *n, size_t from, size_t to, net_route *r) {
    const size_t p = ((size_t)n->radix + 1) / 4, a = 2 * p, groups = (size_t)n->groups,
                 size = (size_t)n->group_nodes, pair = (size_t)n->pair_links;
    const size_t group = from / size, other = to / size, last = to % size / p;
    size_t at = from % size / p;
    if (group != other) {
        const size_t link = ((other + groups - group) % groups - 1) * pair + to % pair,
                     entry = ((group + groups - other) % groups - 1) * pair + to % pair;
        if (at != link / p) net_pass(r, NET_SWITCHES, group * a * a + at * a + link / p);
        net_pass(r, NET_SWITCHES + 1, group * a * p + link);
        at = entry / p;
    }
    if (at != last) net_pass(r, NET_SWITCHES, other * a * a + at * a + last);
}
static void net_find_route(const network *n, int from, int to, net_route *r) {
    const int k = n->node_ranks, a = from / k, b = to / k, rails = n->kind == NET_RAILS;
    r->count = 0;
    if (a == b || (rails && from % k != to % k)) net_pass(r, NET_MEMORY, (size_t)from);
    if (a == b) return;
    net_pass(r, NET_OUT, (size_t)(rails ? a * k + to % k : a));
    if (n->kind == NET_FAT_TREE) net_route_fat_tree(n, (size_t)a, (size_t)b, r);
    if (n->kind == NET_DRAGONFLY) net_route_dragonfly(n, (size_t)a, (size_t)b, r);
    net_pass(r, NET_IN, (size_t)(rails ? to : b));
}

// ---- events -----------------------------------------------------------------------------------------------

static inline int net_before(const net_event *a, const net_event *b) {
    return a->at < b->at || (a->at == b->at && (int32_t)(a->order - b->order) < 0);
}
static void net_push(net_run *s, double at, uint32_t item) {
    if (s->heap_count == s->heap_capacity) {
        const size_t capacity = 2 * s->heap_capacity + 1024;
        net_event *heap = (net_event *)realloc(s->heap, capacity * sizeof *heap);
        if (!heap) return (void)(s->no_memory = 1);
        s->heap = heap, s->heap_capacity = capacity;
    }
    const net_event e = {at, s->order++, item};
    size_t i = s->heap_count++;
    for (; i && net_before(&e, &s->heap[(i - 1) / 4]); i = (i - 1) / 4) s->heap[i] = s->heap[(i - 1) / 4];
    s->heap[i] = e;
}
static net_event net_pop(net_run *s) {
    const net_event first = s->heap[0], e = s->heap[--s->heap_count];
    size_t i = 0;
    for (;;) {
        size_t best = 4 * i + 1;
        for (size_t c = best + 1; c < 4 * i + 5 && c < s->heap_count; c++)
            if (net_before(&s->heap[c], &s->heap[best])) best = c;
        if (best >= s->heap_count || !net_before(&s->heap[best], &e)) break;
        s->heap[i] = s->heap[best];
        i = best;
    }
    s->heap[i] = e;
    return first;
}
static net_item *net_new_item(net_run *s, int kind, int from, int to, int lane, int track, uint64_t bytes) {
    static net_item none;
    uint32_t i = s->free_item;
    if (!i && s->item_count == s->item_capacity) {
        const uint32_t capacity = 2 * s->item_capacity + 1024;
        net_item *items = (net_item *)realloc(s->items, capacity * sizeof *items);
        if (!items) return s->no_memory = 1, &none;
        s->items = items, s->item_capacity = capacity;
    }
    if (i)
        s->free_item = s->items[i - 1].next;
    else
        i = ++s->item_count;
    net_item *x = &s->items[i - 1];
    memset(x, 0, sizeof *x);
    x->kind = (uint8_t)kind;
    x->from = from;
    x->to = to;
    x->lane = (uint8_t)lane;
    x->track = (uint8_t)track;
    x->bytes = bytes;
    return x;
}
static uint32_t net_index(const net_run *s, const net_item *x) { return (uint32_t)(x - s->items); }
static void net_free_item(net_run *s, uint32_t i) {
    s->items[i].next = s->free_item;
    s->free_item = i + 1;
}
// The list of what waits between two ranks, and perhaps between others.
static uint32_t *net_list(net_run *s, const net_item *x) {
    uint64_t h = ((uint64_t)(uint32_t)x->from << 32 | (uint32_t)x->to) * 8 + x->lane;
    h = (h ^ h >> 31) * 0x9e3779b97f4a7c15u;
    return &s->lists[h >> 44];
}
// The first of `kind` that waits at the other end of x's lane, removed; UINT32_MAX: none, so that x waits.
static uint32_t net_match(net_run *s, const net_item *x, int kind) {
    uint32_t *link = net_list(s, x);
    for (; *link; link = &s->items[*link - 1].next) {
        const net_item *y = &s->items[*link - 1];
        if (y->from != x->from || y->to != x->to || y->lane != x->lane || y->kind != kind) continue;
        const uint32_t i = *link - 1;
        *link = y->next;
        return i;
    }
    *link = net_index(s, x) + 1;
    return UINT32_MAX;
}

// ---- ranks ------------------------------------------------------------------------------------------------

static double net_work(net_rank *r, double now, double seconds) { // the processor does one thing at a time
    return r->free_at = MAX(now, r->free_at) + seconds;
}
static void net_run_track(net_run *s, int rank, int track);
static void net_ended(net_run *s, int rank, int track, double at, int depth) { // a transfer
    net_track *t = &s->ranks[rank].tracks[track];
    t->joined = MAX(t->joined, at);
    t->joined_depth = MAX(t->joined_depth, depth);
    if (--t->open || t->state != NET_AT_JOIN) return;
    net_run_track(s, rank, track);
}
static void net_received(net_run *s, uint32_t message, uint32_t receive) {
    const net_item m = s->items[message], r = s->items[receive];
    net_free_item(s, message), net_free_item(s, receive);
    const double at = net_work(&s->ranks[m.to], MAX(m.tail, r.tail), s->net->overhead);
    net_ended(s, m.to, r.track, at, m.depth);
}
static void net_step_message(net_run *s, uint32_t i, double now) { // at its next link, or at its receiver
    network *n = s->net;
    net_item *x = &s->items[i];
    net_route route;
    net_find_route(n, x->from, x->to, &route);
    if (x->hop == route.count) {
        x->kind = NET_ARRIVED;
        x->tail = now;
        x->next = 0;
        const uint32_t receive = net_match(s, x, NET_POSTED);
        if (receive != UINT32_MAX) net_received(s, i, receive);
        return;
    }
    const int of = route.hops[x->hop].of;
    const size_t link = n->classes[of].first + route.hops[x->hop].link;
    const double begins = MAX(now, n->free_at[link]),
                 takes = (double)x->bytes * n->classes[of].seconds_per_byte;
    n->free_at[link] = begins + takes;
    n->busy[link] += takes;
    x->tail = MAX(x->tail, begins + takes);
    const int first = !x->hop++, last = x->hop == route.count;
    const double left = x->tail; // all bytes have
    double later = of == NET_MEMORY ? n->memory_latency : of >= NET_SWITCHES ? n->hop : 0;
    if (of == NET_IN) later += n->latency;
    x->tail += later;
    const int from = x->from, track = x->track;
    net_push(s, last ? x->tail : begins + later, i);
    if (first) net_ended(s, from, track, left, 0);
}
static void net_publish(net_run *s, uint32_t i) {
    const net_item x = s->items[i];
    const int k = s->net->node_ranks, first = x.from / k * k, end = MIN(first + k, s->net->ranks);
    net_rank *r = &s->ranks[x.from];
    net_free_item(s, i);
    r->phase[x.track] = (uint32_t)x.bytes;
    r->phase_depth[x.track] = MAX(r->phase_depth[x.track], x.depth);
    for (int other = first; other < end; other++) {
        net_track *t = &s->ranks[other].tracks[x.track];
        if (t->state != NET_AT_PHASE || t->scanned != x.from - first) continue;
        t->now = MAX(t->now, x.tail);
        net_run_track(s, other, x.track);
    }
}

// The verbs return 0 where the track must wait.
static int net_wait(net_run *s, int rank, net_track *t, int track, const net_step *a) {
    const int k = s->net->node_ranks, first = rank / k * k, all = a->verb == NET_WAIT_ALL;
    const int one = (int)(((int64_t)rank + a->peer) % s->net->ranks) - first;
    const int end = all ? MIN(first + k, s->net->ranks) - first : one + 1;
    for (t->scanned = MAX(t->scanned, all ? 0 : one); t->scanned < end; t->scanned++) {
        const net_rank *r = &s->ranks[first + t->scanned];
        if ((int32_t)(r->phase[track] - (uint32_t)a->amount) < 0) return t->state = NET_AT_PHASE, 0;
        t->depth = MAX(t->depth, r->phase_depth[track]);
    }
    t->scanned = 0;
    return 1;
}
static void net_transfer(net_run *s, int rank, net_track *t, int track, const net_step *a) {
    const int peer = (int)(((int64_t)rank + a->peer) % s->net->ranks), k = s->net->node_ranks;
    const int apart = rank / k != peer / k;
    t->open++;
    if (a->verb == NET_SEND) {
        net_item *x = net_new_item(s, NET_MESSAGE, rank, peer, a->lane, track, a->amount);
        x->depth = t->depth + apart;
        s->result.steps = MAX(s->result.steps, x->depth);
        s->result.messages += apart;
        s->result.bytes += apart ? (double)a->amount : 0;
        t->now = net_work(&s->ranks[rank], t->now, s->net->overhead);
        net_push(s, t->now, net_index(s, x));
        return;
    }
    net_item *x = net_new_item(s, NET_POSTED, peer, rank, a->lane, track, a->amount);
    x->tail = t->now;
    const uint32_t message = net_match(s, x, NET_ARRIVED);
    if (message != UINT32_MAX) net_received(s, message, net_index(s, x));
}
static int net_join(net_track *t) {
    if (t->open) return t->state = NET_AT_JOIN, 0;
    t->now = MAX(t->now, t->joined);
    t->depth = MAX(t->depth, t->joined_depth);
    return 1;
}
static void net_wake(net_run *s, int rank, net_state state, double now) { // the other tracks that wait so
    for (int i = 0; i < NET_TRACKS; i++) {
        net_track *t = &s->ranks[rank].tracks[i];
        if (t->state != state) continue;
        t->now = MAX(t->now, now);
        net_run_track(s, rank, i);
    }
}
static int net_begin_piece(net_run *s, int rank, net_track *t, uint32_t piece) {
    net_rank *r = &s->ranks[rank];
    if (r->begun != piece) return t->state = NET_AT_PIECE, 0;
    r->begun++;
    return 1;
}
static void net_run_track(net_run *s, int rank, int track) {
    net_rank *r = &s->ranks[rank];
    net_track *t = &r->tracks[track];
    t->state = NET_RUNS;
    for (; t->at < r->program->end[track]; t->at++) {
        const net_step *a = &r->program->steps[t->at];
        int goes_on = 1;
        switch ((net_verb)a->verb) {
        case NET_WORK: t->now = net_work(r, t->now, (double)a->amount / s->net->memory_bandwidth); break;
        case NET_SEND:
        case NET_RECV: net_transfer(s, rank, t, track, a); break;
        case NET_JOIN: goes_on = net_join(t); break;
        case NET_PUBLISH: {
            net_item *x = net_new_item(s, NET_PHASE, rank, rank, 0, track, a->amount);
            x->tail = t->now + s->net->memory_latency;
            x->depth = t->depth;
            net_push(s, x->tail, net_index(s, x));
            break;
        }
        case NET_WAIT:
        case NET_WAIT_ALL: goes_on = net_wait(s, rank, t, track, a); break;
        case NET_PIECE:
            goes_on = net_begin_piece(s, rank, t, (uint32_t)a->amount);
            if (goes_on) net_wake(s, rank, NET_AT_PIECE, t->now);
            break;
        case NET_LAST:
            if (r->ended < NET_TRACKS - 1) t->state = NET_AT_LAST, goes_on = 0;
            break;
        }
        if (!goes_on) return;
    }
    t->state = NET_ENDED;
    s->result.seconds = MAX(s->result.seconds, t->now);
    if (++r->ended == NET_TRACKS - 1) net_wake(s, rank, NET_AT_LAST, t->now);
}

// ---- programs ---------------------------------------------------------------------------------------------

// Ranks with the same steps share them. ends: of each track's steps, all of which lie side by side.
static const net_program *net_keep_program(net_run *s, const net_step *steps, const uint32_t *ends) {
    const size_t bytes = ends[NET_TRACKS - 1] * sizeof *steps;
    const uint64_t *words = (const uint64_t *)(const void *)steps;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes / 8; i++) h = (h ^ words[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 32;
    net_program **list = &s->programs[h % NET_HASH];
    for (net_program *p = *list; p; p = p->next)
        if (p->hash == h && !memcmp(p->end, ends, sizeof p->end) && !memcmp(p->steps, steps, bytes)) return p;
    net_program *p = (net_program *)malloc(sizeof *p + bytes);
    if (!p) return s->no_memory = 1, (net_program *)NULL;
    memcpy(p->end, ends, sizeof p->end);
    memcpy(p->steps, steps, bytes);
    p->hash = h;
    p->next = *list;
    return *list = p;
}
static int net_begin(net_run *s, network *n) { // 0: no memory
    memset(s, 0, sizeof *s);
    s->net = n;
    s->ranks = (net_rank *)calloc((size_t)n->ranks, sizeof *s->ranks);
    s->programs = (net_program **)calloc(NET_HASH, sizeof *s->programs);
    s->lists = (uint32_t *)calloc(NET_HASH, sizeof *s->lists);
    return s->ranks && s->programs && s->lists;
}
static void net_end(net_run *s) {
    for (size_t i = 0; s->programs && i < NET_HASH; i++)
        while (s->programs[i]) {
            net_program *p = s->programs[i];
            s->programs[i] = p->next;
            free(p);
        }
    free(s->ranks), free(s->programs), free(s->lists), free(s->items), free(s->heap);
}
// Run all ranks' programs.
static net_result net_execute(net_run *s) {
    const network *n = s->net;
    net_result *result = &s->result;
    for (int r = 0; r < n->ranks; r++)
        for (int i = 0; i < NET_TRACKS; i++) {
            s->ranks[r].tracks[i].at = i ? s->ranks[r].program->end[i - 1] : 0;
            s->ranks[r].tracks[i].state = NET_AT_PIECE; // so that the first piece's track can wake the others
        }
    for (int r = 0; r < n->ranks; r++) net_wake(s, r, NET_AT_PIECE, 0);
    while (s->heap_count && !s->no_memory) {
        const net_event e = net_pop(s);
        if (s->items[e.item].kind == NET_PHASE)
            net_publish(s, e.item);
        else
            net_step_message(s, e.item, e.at);
    }
    result->stuck = -1;
    for (int r = 0; r < n->ranks && result->stuck < 0; r++)
        if (s->ranks[r].ended < NET_TRACKS) result->stuck = r;
    result->link = "none";
    for (int c = 0; c < n->class_count; c++)
        for (size_t i = n->classes[c].first; i < n->classes[c].first + n->classes[c].count; i++)
            if (n->busy[i] > result->share) result->share = n->busy[i], result->link = n->classes[c].name;
    if (result->seconds > 0) result->share /= result->seconds;
    return *result;
}

#endif

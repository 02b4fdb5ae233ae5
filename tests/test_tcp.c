// test_tcp.c - ranks over TCP of which one is false, or dies: who sends what no rank would is named, nothing
// is written where it does not belong, and all survivors of a death name the rank that died.
//
//     cc -I. tests/test_tcp.c -o build/test_tcp -pthread -lm && build/test_tcp [NAME]
//     build/test_tcp RANKS NODE        the tree of so many ranks, NODE to a node, and what it costs
#define PAR_IMPLEMENTATION
#include "par.h"
#include <dirent.h>
#include <stdlib.h>

enum { COUNT = 32768, CANARY = 65536, WAIT_S = 60 };

typedef struct setting {         // of a test
    const char *name, *expected; // in every honest rank's error
    int number;                  // of the case
    int ranks, node_ranks;
    int gate[2];   // a pipe: who reads waits until those that hold its other end have ended
    int killer[2]; // to this program: which rank to kill
} setting;
typedef int (*rank_fn)(par_comm *c, const setting *s); // of one rank: how much was wrong

static int wrong(par_comm *c, const setting *s, const char *what) {
    fprintf(stderr, "%s, rank %d: %s: %s\n", s->name, par_rank(c), what, par_last_error(c));
    return 1;
}
static int says(par_comm *c, const setting *s, par_result r, par_result expected) {
    if (r == expected && strstr(par_last_error(c), s->expected)) return 0;
    fprintf(stderr, "wanted %s \"%s\", got %s ", par_result_name(expected), s->expected, par_result_name(r));
    return wrong(c, s, "another error");
}

static int ends(par_comm *c, const setting *s, par_result r, par_result expected) { // and closes its world
    const int bad = says(c, s, r, expected);
    par_close(c);
    return bad;
}

// ---- a false rank

static par__connection *connection(const par_comm *c, int rank) { // of messages
    return par__tcp_connection(c->world->tcp, rank);
}
static int control(const par_comm *c, int rank) { // of a neighbor in the tree
    return par__tcp_edge_to(c->world->tcp, rank)->fd;
}

static par__frame frame(const par_comm *c, uint32_t kind, uint32_t tag, uint64_t bytes) {
    par__frame f;
    memset(&f, 0, sizeof f);
    f.session = c->world->tcp->session, f.kind = kind, f.tag = tag, f.bytes = bytes;
    return f;
}
static void put(int fd, const void *memory, size_t bytes) { // as many bytes as the other end accepts
    static const char zeros[65536];
    for (size_t at = 0; at < bytes;) {
        const char *p = memory ? (const char *)memory + at : zeros;
        const size_t n = memory ? bytes - at : PAR__MIN(bytes - at, sizeof zeros);
        const ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent > 0) at += (size_t)sent;
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return;
        if (sent < 0) par__tcp_poll_fd(fd, POLLOUT, par__now() + 1);
    }
}
static void say(const par_comm *c, const par__frame *f, size_t payload) {
    const int fd = connection(c, 0)->out;
    put(fd, f, sizeof *f), put(fd, NULL, payload);
}
static void until_end(int fd) { // of the other end
    char byte[256];
    for (;;) {
        const ssize_t n = recv(fd, byte, sizeof byte, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
        if (n < 0) par__tcp_poll_fd(fd, POLLIN, par__now() + 1);
    }
}

// X(name, what the receiver says): what rank 1 sends to rank 0, which waits for its message.
#define FRAMES(X)                                                                                            \
    X(SESSION, "rank 1 sent rank 0 a frame of another session")                                              \
    X(KIND, "rank 1 sent rank 0 a frame of kind 77 with tag 0, which is none")                               \
    X(TAG, "rank 1 sent rank 0 a frame of kind 0 with tag 2147483648, which is none")                        \
    X(SHORT, "rank 1 sent rank 0 a frame of kind SHORT with 65537 bytes, where at most 65536 are allowed")   \
    X(RTS,                                                                                                   \
      "rank 1 sent rank 0 a frame of kind RTS with 2147483648 bytes, where at most 1073741824 are allowed")  \
    X(CTS, "rank 1 sent rank 0 a frame of kind CTS with tag 0 that nothing asked for")                       \
    X(DATA, "rank 1 sent rank 0 a frame of kind DATA with tag 0 that nothing asked for")                     \
    X(CREDIT, "rank 1 sent rank 0 a frame of kind CREDIT with 65 bytes, where at most 0 are allowed")        \
    X(FLOOD, "rank 1 sent rank 0 more messages than were agreed before any of them was received")            \
    X(MANY_RTS, "rank 1 sent rank 0 more messages than were agreed before any of them was received")         \
    X(LONG, "rank 1 sent rank 0 a frame of kind DATA with 200000 bytes, where 126976 were agreed")           \
    X(HUGE, "rank 1 sent rank 0 a frame of kind DATA with 18446744073709551615 bytes, where at most "        \
            "1073741824 are allowed")                                                                        \
    X(HEADER, "rank 1 sent rank 0 a message of 3 bytes without a valid header")                              \
    X(BYTES, "without a valid header")
enum {
#define X(name, text) FRAME_##name,
    FRAMES(X)
#undef X
        FRAME_COUNT
};

// Rank 0 receives: from its error on nothing has been touched behind its array.
static int receives(par_comm *c, const setting *s) {
    unsigned char *memory = (unsigned char *)malloc(COUNT * 4 + CANARY);
    memset(memory, 0x5a, COUNT * 4 + CANARY);
    int bad = says(c, s, par_recv(memory, COUNT, PAR_F32, 1, c), PAR_ERR_SYSTEM);
    for (size_t i = COUNT * 4; i < COUNT * 4 + CANARY; i++)
        if (memory[i] != 0x5a) return wrong(c, s, "the canary has changed");
    free(memory);
    par_close(c);
    return bad;
}
static void long_message(par_comm *c, uint64_t bytes) { // send a header and an RTS of `bytes` bytes
    par__connection *v = connection(c, 0);
    par__message_header m;
    par__frame f = frame(c, PAR__TCP_SHORT, 0, sizeof m + PAR__SHORT_MESSAGE_BYTES);
    memset(&m, 0, sizeof m);
    m.bytes = COUNT * 4, m.count = COUNT, m.dtype = PAR_F32;
    put(v->out, &f, sizeof f), put(v->out, &m, sizeof m), put(v->out, NULL, PAR__SHORT_MESSAGE_BYTES);
    f = frame(c, PAR__TCP_RTS, 0, COUNT * 4 - PAR__SHORT_MESSAGE_BYTES);
    say(c, &f, 0);
    while (v->in < 0) par__tcp_poll_listeners(c->world, 0), sched_yield();
    for (ssize_t n = 0; n < (ssize_t)sizeof f;) { // CTS
        n = recv(v->in, &f, sizeof f, MSG_PEEK);
        if (n == 0) return;
        if (n < (ssize_t)sizeof f) sched_yield();
    }
    f = frame(c, PAR__TCP_DATA, 0, bytes);
    say(c, &f, 200000);
}
static void false_frames(par_comm *c, int number) {
    par__frame f = frame(c, PAR__TCP_SHORT, 0, 64);
    par__message_header m;
    memset(&m, 0, sizeof m);
    m.bytes = 1 << 30, m.count = COUNT, m.dtype = PAR_F32;
    switch (number) {
    case FRAME_SESSION: f.session ^= 1; break;
    case FRAME_KIND: f.kind = 77; break;
    case FRAME_TAG: f.tag = PAR__NET_TAG_COUNT; break;
    case FRAME_SHORT: f.bytes = PAR__TCP_SHORT_BYTES + 1; break;
    case FRAME_RTS: f.kind = PAR__TCP_RTS, f.bytes = (uint64_t)2 << 30; break;
    case FRAME_CTS: f.kind = PAR__TCP_CTS, f.bytes = 0; break;
    case FRAME_DATA: f.kind = PAR__TCP_DATA; break;
    case FRAME_CREDIT: f.kind = PAR__TCP_CREDIT, f.bytes = 65; break;
    case FRAME_FLOOD: f.tag = 9, f.bytes = PAR__TCP_SHORT_BYTES; break;
    case FRAME_MANY_RTS: f.tag = 9, f.kind = PAR__TCP_RTS; break;
    case FRAME_LONG: long_message(c, 200000); return;
    case FRAME_HUGE: long_message(c, UINT64_MAX); return;
    case FRAME_HEADER: f.bytes = 3; break;
    default: f.bytes = sizeof m; break;
    }
    if (number == FRAME_BYTES) {
        put(connection(c, 0)->out, &f, sizeof f), put(connection(c, 0)->out, &m, sizeof m);
        return;
    }
    const int flood = number == FRAME_FLOOD || number == FRAME_MANY_RTS;
    for (int i = 0; i < (number == FRAME_MANY_RTS ? PAR__TCP_RTS_MAX + 1 : flood ? 65 : 1); i++)
        say(c, &f, f.kind == PAR__TCP_SHORT ? (size_t)f.bytes : 0);
}
static int frames(par_comm *c, const setting *s) {
    if (par_rank(c) == 0) return receives(c, s);
    if (par_rank(c) == 2) return ends(c, s, par_barrier(c), PAR_ERR_SYSTEM);
    while (connection(c, 0)->out == -1) par__tcp_progress_connect(c->world, connection(c, 0));
    false_frames(c, s->number);
    until_end(control(c, 0));
    return 0;
}

// X(who, kind, rank, what is wrong with it): a notice on a control connection, and the receiver's error.
#define NOTICES(X)                                                                                           \
    X(1, 99, 1, "of a kind that is none")                                                                    \
    X(1, -1, 1, "of a kind that is none")                                                                    \
    X(1, PAR__NOTICE_LEFT, 3, "about a rank that is none")                                                   \
    X(1, PAR__NOTICE_LEFT, -1, "about a rank that is none")                                                  \
    X(1, PAR__NOTICE_LEFT, 2, "that it may not tell")                                                        \
    X(1, PAR__NOTICE_ABORT, 0, "that it may not tell")                                                       \
    X(1, PAR__NOTICE_DIED, 2, "that it may not tell")                                                        \
    X(1, PAR__NOTICE_CLOSED, 1, "that it may not tell")                                                      \
    X(1, PAR__NOTICE_LOST, 1, "that it may not tell")                                                        \
    X(1, PAR__NOTICE_ALIVE, 2, "that it may not tell")                                                       \
    X(1, PAR__NOTICE_ERROR, 1, "with a result that is none")                                                 \
    X(1, PAR__NOTICE_CLOSING + 256, 1, "after it had closed its world")                                      \
    X(1, PAR__NOTICE_ABORT + 256, 1, "with a text that does not end")                                        \
    X(1, 0, 1, "of another session, not of this run")                                                        \
    X(0, PAR__NOTICE_DIED, 1, "that it may not tell")                                                        \
    X(0, PAR__NOTICE_LOST, 1, "that it may not tell")                                                        \
    X(0, PAR__NOTICE_CLOSING, 0, "that it may not tell")                                                     \
    X(0, PAR__NOTICE_CLOSED, 1, "that it may not tell")                                                      \
    X(0, PAR__NOTICE_LEFT, 1 << 30, "about a rank that is none")
typedef struct false_notice {
    int who, kind, rank;
    const char *text;
} false_notice;
static const false_notice notice_list[] = {
#define X(who, kind, rank, text) {who, kind, rank, text},
    NOTICES(X)
#undef X
};
static int names(par_comm *c, const setting *s, par_result r, int rank) {
    char text[32];
    snprintf(text, sizeof text, "rank %d sent rank ", rank);
    return r == PAR_ERR_SYSTEM && strstr(par_last_error(c), text) ? 0 : wrong(c, s, "does not say who");
}
static int notices(par_comm *c, const setting *s) {
    const false_notice *f = &notice_list[s->number];
    if (par_rank(c) != f->who) {
        const int bad = names(c, s, par_barrier(c), f->who);
        return bad | ends(c, s, PAR_ERR_SYSTEM, PAR_ERR_SYSTEM);
    }
    par__notice n;
    memset(&n, 0, sizeof n);
    n.session = c->world->tcp->session + (f->kind == 0), n.kind = f->kind & 255, n.rank = f->rank;
    if (f->kind < 0) n.kind = f->kind;
    if (f->kind == PAR__NOTICE_ABORT + 256) n.text_bytes = PAR__ERROR_BYTES;
    put(control(c, !f->who), &n, sizeof n);
    if (f->kind == PAR__NOTICE_CLOSING + 256) put(control(c, !f->who), &n, sizeof n);
    until_end(control(c, !f->who));
    return 0;
}
static int clean(par_comm *c, const setting *s) { // a notice is printed without control characters
    if (par_rank(c) == 0) par_abort(c, "a\033[2Jb\r\n");
    const par_result r = par_barrier(c);
    return (par_rank(c) ? says(c, s, r, PAR_ERR_ABORTED) : r != PAR_ERR_ABORTED);
}

// ---- the limit of descriptors

// Rank 2 cannot make a connection (case 0) or accept one (case 1): all ranks report it, and no rank counts as
// dead.
static int descriptors(par_comm *c, const setting *s) {
    struct rlimit limit;
    float x = 0;
    if (par_rank(c) == 2) {
        getrlimit(RLIMIT_NOFILE, &limit);
        const int next = dup(0);
        close(next);
        limit.rlim_cur = (rlim_t)next;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    const int sender = s->number ? 1 : 2;
    const par_result r = par_rank(c) == sender       ? par_send(&x, 1, PAR_F32, 3 - sender, c)
                         : par_rank(c) == 3 - sender ? par_recv(&x, 1, PAR_F32, sender, c)
                                                     : par_barrier(c);
    const par_result all = r ? r : par_barrier(c); // a short message counts as sent before it is received
    return ends(c, s, all, PAR_ERR_SYSTEM);
}

// The connection from rank 10 to rank 1 ends, but rank 10 lives: rank 1 hears that from rank 8, its parent in
// the tree, by way of rank 0.
static int lost(par_comm *c, const setting *s) {
    int x = 0;
    if (par_rank(c) == 10 && par_send(&x, 1, PAR_I32, 1, c)) return wrong(c, s, "send");
    if (par_rank(c) == 10) shutdown(connection(c, 1)->out, SHUT_WR);
    if (par_rank(c) == 1 && par_recv(&x, 1, PAR_I32, 10, c)) return wrong(c, s, "recv");
    const par_result r = par_rank(c) == 1 ? par_recv(&x, 1, PAR_I32, 10, c) : par_barrier(c);
    return ends(c, s, r, PAR_ERR_SYSTEM);
}

// ---- messages that nobody takes

// Rank 1 issues all its sends before rank 0 receives any: rank 0 keeps no more bytes than its credits allow.
static int unexpected(par_comm *c, const setting *s) {
    enum { MESSAGES = 400, EACH = 32768 };
    const par__connection *v = connection(c, par_rank(c) ? 0 : 1);
    unsigned char *x = (unsigned char *)calloc(MESSAGES, EACH);
    par_request *q = (par_request *)calloc(MESSAGES, sizeof *q);
    int bad = 0, last = 7;
    for (int i = 0; i < MESSAGES; i++) {
        unsigned char *at = x + (size_t)i * EACH;
        if (par_rank(c) == 1)
            at[0] = at[EACH - 1] = (unsigned char)i, par_send_begin(at, EACH, PAR_U8, 0, c, &q[i]);
    }
    if (par_rank(c) == 1) bad |= par_wait_all(q, MESSAGES) != PAR_OK;
    if (par_rank(c) == 1) bad |= par_send(&last, 1, PAR_I32, 0, c) != PAR_OK;
    for (int i = 0; i < MESSAGES && par_rank(c) == 0; i++) {
        bad |= par_recv(x, EACH, PAR_U8, 1, c) != PAR_OK;
        bad |= x[0] != (unsigned char)i || x[EACH - 1] != (unsigned char)i;
        bad |= v->unexpected_bytes > PAR__TCP_CREDIT_BYTES || v->fault[0];
    }
    if (par_rank(c) == 0) bad |= par_recv(&last, 1, PAR_I32, 1, c) != PAR_OK;
    free(x), free(q);
    if (bad) wrong(c, s, "messages");
    return bad | (par_close(c) != PAR_OK);
}

// ---- deaths

static void ask_to_kill(const setting *s, int rank) {
    const char byte = (char)rank;
    if (write(s->killer[1], &byte, 1) != 1) exit(1);
}
static int is_killed(par_comm *c, const setting *s, int asks) { // waits for that
    if (asks) ask_to_kill(s, par_rank(c));
    while (pause() < 0) continue;
    return wrong(c, s, "lives");
}
static void wait_for_gate(const setting *s) { // until all others that may hold it have ended
    char byte;
    close(s->gate[1]);
    while (read(s->gate[0], &byte, 1) > 0) continue;
}

// Rank 0 polls nothing until rank 1, which has lost its connection to the dead rank 3, has given up or asked
// rank 0. Rank 2 waits for rank 1.
static int slow_zero(par_comm *c, const setting *s) {
    int x = 0;
    const int rank = par_rank(c);
    if (rank == 3 && par_send(&x, 1, PAR_I32, 1, c)) return 1;
    if (rank == 1 && (par_recv(&x, 1, PAR_I32, 3, c) || par_send(&x, 1, PAR_I32, 2, c))) return 1;
    if (rank == 2 && par_recv(&x, 1, PAR_I32, 1, c)) return 1;
    if (par_rank(c) == 3) return is_killed(c, s, 1);
    if (par_rank(c) == 0)
        while (!par__tcp_poll_fd(control(c, 1), POLLIN, par__now() + 1)) continue;
    const par_result r =
        par_rank(c) == 0 ? par_barrier(c) : par_recv(&x, 1, PAR_I32, par_rank(c) == 1 ? 3 : 1, c);
    return ends(c, s, r, PAR_ERR_PEER_DIED);
}
// Rank 0 gets an error from rank 1's death and ends without closing its world, before rank 2 polls.
static int zero_leaves(par_comm *c, const setting *s) {
    if (par_rank(c) == 1) return is_killed(c, s, 1);
    if (par_rank(c) == 0) _exit(says(c, s, par_barrier(c), PAR_ERR_PEER_DIED));
    wait_for_gate(s);
    return ends(c, s, par_barrier(c), PAR_ERR_PEER_DIED);
}
// Rank 0 dies, rank 1 gives up because of that; then rank 2 waits for rank 1 alone.
static int zero_dies(par_comm *c, const setting *s) {
    int x = 0;
    if (par_rank(c) == 0) return is_killed(c, s, 1);
    if (par_rank(c) == 2) wait_for_gate(s);
    const par_result r = par_rank(c) == 1 ? par_barrier(c) : par_recv(&x, 1, PAR_I32, 1, c);
    return ends(c, s, r, PAR_ERR_PEER_DIED);
}
// Rank 2 dies; when rank 0 knows of it rank 1 does, too.
static int two_die(par_comm *c, const setting *s) {
    if (par_rank(c)) return is_killed(c, s, 0);
    ask_to_kill(s, 2);
    while (par_alive(c) == PAR_OK) usleep(1000);
    ask_to_kill(s, 1);
    while (par_alive(c) != PAR_OK && !strstr(par_last_error(c), "rank 1 (")) usleep(1000);
    return ends(c, s, par_barrier(c), PAR_ERR_PEER_DIED);
}
// On one node: rank 1 offers its memory to rank 0, which copies from it when rank 1 has ended because of
// rank 2.
static int far_memory(par_comm *c, const setting *s) {
    enum { BYTES = 1 << 20 };
    char *x = (char *)calloc(BYTES, 1);
    par_request q;
    if (par_rank(c) == 2) return is_killed(c, s, 1);
    if (par_rank(c) == 1) {
        par_send_begin(x, BYTES, PAR_U8, 0, c, &q);
        _exit(says(c, s, par_recv(x, BYTES, PAR_U8, 2, c), PAR_ERR_PEER_DIED));
    }
    wait_for_gate(s);
    const int bad = says(c, s, par_recv(x, BYTES, PAR_U8, 1, c), PAR_ERR_PEER_DIED);
    free(x);
    par_close(c);
    return bad;
}

// One rank dies while all wait: every other names it, and no other.
static int dies(par_comm *c, const setting *s) {
    par_result r = par_barrier(c); // here some hear of it already
    if (par_rank(c) == s->number) return is_killed(c, s, 1);
    if (!r) r = par_barrier(c);
    const int bad = says(c, s, r, PAR_ERR_PEER_DIED) |
                    (strstr(par_last_error(c), "died first") && wrong(c, s, "names two"));
    par_close(c);
    return bad;
}

// Rank 64 dies, when all below it have opened their worlds. Below it 72 waits for its child 73, and that for
// rank 1: neither for the dead one. All others do.
static int cut_off(par_comm *c, const setting *s) {
    const int rank = par_rank(c);
    int x = 0;
    for (int r = 65; r < s->ranks && rank == 64; r++)
        if (par_recv(&x, 1, PAR_I32, r, c)) return wrong(c, s, "recv");
    if (rank == 64) return is_killed(c, s, 1);
    if (rank > 64 && par_send(&x, 1, PAR_I32, 64, c)) return wrong(c, s, "send");
    return ends(c, s, par_recv(&x, 1, PAR_I32, rank == 72 ? 73 : rank == 73 ? 1 : 64, c), PAR_ERR_PEER_DIED);
}

// ---- the tree

enum { GATHERS = 7, GATHERED_BYTES = 28 + 8 + 96 + 96 + 3 * 4 }; // while a world opens: of each rank
typedef struct cost {                                            // of a rank
    uint64_t edges, sockets, words, handshakes, blocks, block_bytes, messages, kib, open_us;
} cost;
static int parent_index(int i) { // of i in a tree of radix 8: the lowest digit becomes 0
    for (int unit = 8;; unit *= 8)
        if (i % unit) return i - i % unit;
}
static uint64_t children_of(int i, int count) {
    uint64_t n = 0;
    for (int k = i + 1; k < count; k++) n += parent_index(k) == i;
    return n;
}
static uint64_t open_sockets(void) {
    DIR *dir = opendir("/proc/self/fd");
    uint64_t n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) n += par__socket_inode(atoi(e->d_name)) != 0;
    if (dir) closedir(dir);
    return n;
}
static uint64_t private_kib(void) {
    char line[128];
    unsigned long x, sum = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Private_Clean: %lu", &x) == 1 || sscanf(line, "Private_Dirty: %lu", &x) == 1)
            sum += x;
    if (f) fclose(f);
    return sum;
}
static cost cost_of(const par_comm *c) {
    const par__tcp *t = c->world->tcp;
    cost x;
    memset(&x, 0, sizeof x);
    x.edges = (uint64_t)t->edge_count, x.messages = t->table_count, x.kib = private_kib();
    x.words = t->counts.words, x.handshakes = t->counts.handshakes;
    x.blocks = t->counts.blocks, x.block_bytes = t->counts.block_bytes;
    x.sockets = open_sockets() - (uint64_t)(t->listener_count + t->door_count);
    x.open_us = (uint64_t)((par__now() - c->world->opened_at) * 1e6);
    return x;
}
// Edges, messages and bytes are those of the formulas; nothing that the rendezvous needed is left.
static int tree(par_comm *c, const setting *s) {
    const int n = par_size(c), me = par_rank(c), nodes = (n + s->node_ranks - 1) / s->node_ranks;
    const int node = me / s->node_ranks, first = node * s->node_ranks,
              locals = PAR__MIN(s->node_ranks, n - first);
    const uint64_t below = children_of(me - first, locals) + (me == first ? children_of(node, nodes) : 0),
                   links = below + (me != 0), head = sizeof(par__verdict);
    const cost mine = cost_of(c);
    cost *all = (cost *)malloc(sizeof *all * (size_t)n), sum = mine, most = mine;
    int bad =
        c->world->tcp->rendezvous != NULL || c->world->tcp->pending != NULL || c->world->tcp->local != -1;
    if (bad) wrong(c, s, "something is left");
    if (mine.edges != links || mine.blocks != GATHERS * links) bad |= wrong(c, s, "edges or messages");
    if (mine.sockets < links || mine.sockets > links + 2 * mine.messages) bad |= wrong(c, s, "connections");
    const uint64_t each = (uint64_t)n * (GATHERED_BYTES + GATHERS * 4) + GATHERS * head; // at most, of a link
    if (mine.block_bytes > links * each) bad |= wrong(c, s, "bytes");
    if (par_all_gather(&mine, all, sizeof mine / 8, PAR_U64, c)) return wrong(c, s, "all_gather");
    for (int r = 0; r < n; r++) {
        if (r != me) sum.words += all[r].words, sum.blocks += all[r].blocks, sum.kib += all[r].kib;
        most.edges = PAR__MAX(most.edges, all[r].edges),
        most.open_us = PAR__MAX(most.open_us, all[r].open_us);
        most.kib = PAR__MAX(most.kib, all[r].kib),
        most.handshakes = PAR__MAX(most.handshakes, all[r].handshakes);
    }
    // JOIN, ASSIGN, READY, GO and WHERE, each over one hop, or two by the host's leader.
    if (sum.words > 9 * (uint64_t)n) bad |= wrong(c, s, "words");
    if (sum.blocks != 2 * GATHERS * (uint64_t)(n - 1)) bad |= wrong(c, s, "messages of all");
    if (s->number && !me)
        printf("%d ranks, %d nodes: at most %d edges and %d handshakes of a rank (rank 0: %d, %d), words "
               "%.1f of "
               "a rank, blocks %d, bytes of rank 0 %d, own memory %d KiB (at most %d), opened in %.2f s\n",
               n, nodes, (int)most.edges, (int)most.handshakes, (int)mine.edges, (int)mine.handshakes,
               (double)sum.words / n, (int)sum.blocks, (int)mine.block_bytes, (int)sum.kib / n, (int)most.kib,
               (double)most.open_us * 1e-6);
    fflush(stdout);
    free(all);
    return bad | (par_close(c) != PAR_OK);
}

// ---- running them

static int open_rank(const setting *s, int rank, const char *port,
                     rank_fn fn) { // of a rank: 0: as it should be
    char text[16];
    par_comm *c;
    snprintf(text, sizeof text, "%d", s->ranks), setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof text, "%d", rank), setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", s->node_ranks), unsetenv("PAR_NODE_RANKS");
    if (s->node_ranks) setenv("PAR_NODE_RANKS", text, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1), setenv("MASTER_PORT", port, 1), setenv("PAR_TIMEOUT", "60", 1);
    close(s->killer[0]);
    return par_open(NULL, &c) ? 1 : fn(c, s);
}
static void free_port(char *text, size_t bytes) {
    struct sockaddr_in a;
    socklen_t length = sizeof a;
    const int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, (struct sockaddr *)&a, sizeof a) || getsockname(s, (struct sockaddr *)&a, &length)) exit(1);
    snprintf(text, bytes, "%d", ntohs(a.sin_port));
    close(s);
}
// Kill the ranks that others name, until all have ended. 1: a rank did not end as it should.
static int watch(const setting *s, pid_t *pids) {
    char killed[256] = "";
    int bad = 0, status;
    struct pollfd p;
    p.fd = s->killer[0], p.events = POLLIN;
    for (;;) {
        char byte;
        const int ready = poll(&p, 1, 2 * WAIT_S * 1000);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) bad = 1, fprintf(stderr, "%s: a rank hangs\n", s->name);
        for (int r = 0; ready <= 0 && r < s->ranks; r++) kill(pids[r], SIGKILL);
        if (ready <= 0 || read(p.fd, &byte, 1) <= 0) break;
        kill(pids[(int)byte], SIGKILL), killed[(int)byte] = 1;
    }
    for (int r = 0; r < s->ranks; r++)
        if (waitpid(pids[r], &status, 0) < 0 || (status && (r > 255 || !killed[r])))
            bad = 1, fprintf(stderr, "%s: rank %d ended with status %d\n", s->name, r, status);
    return bad;
}
static int run(rank_fn fn, setting s) { // 1: it failed, and the output is shown
    char port[16], line[512];
    pid_t *pids = (pid_t *)malloc(sizeof *pids * (size_t)s.ranks);
    FILE *log = fdopen(par__memfd_create("test"), "w+");
    const int out = dup(2);
    fflush(NULL);
    if (!log || out < 0 || pipe(s.gate) || pipe(s.killer)) return perror("test_tcp"), 1;
    dup2(fileno(log), 2);
    free_port(port, sizeof port);
    for (int r = 0; r < s.ranks; r++)
        if ((pids[r] = fork()) == 0) close(out), _exit(open_rank(&s, r, port, fn));
    close(s.gate[0]), close(s.gate[1]), close(s.killer[1]);
    const int bad = watch(&s, pids);
    fflush(stderr), dup2(out, 2), close(out), close(s.killer[0]);
    rewind(log);
    if (bad) printf("FAIL %s\n", s.name);
    while (bad && fgets(line, sizeof line, log)) printf("    %s", line);
    fclose(log);
    free(pids);
    fflush(stdout);
    return bad;
}

typedef struct row {
    rank_fn fn;
    setting s;
} row;
#define ROW(fn, expected, number, ranks, node_ranks)                                                         \
    {fn, {#fn, expected, number, ranks, node_ranks, {0, 0}, {0, 0}}},
#define X(name, text) ROW(frames, text, FRAME_##name, 3, 1)
static const row rows[] = {
    FRAMES(X)
#undef X
        ROW(clean, "a?[2Jb?\n", 0, 2, 1) ROW(
            descriptors,
            "rank 2 has no descriptor left for a connection to rank 1: Too many open files (the limit is ", 0,
            3, 1) ROW(descriptors,
                      "rank 2 has no descriptor left for a connection from rank 1: Too many open files (the "
                      "limit is ",
                      1, 3, 1) ROW(unexpected, "", 0, 2, 1)
            ROW(slow_zero, "rank 3 (on another node) died", 0, 4, 1) ROW(zero_leaves, "rank 1 (", 0, 3, 2)
                ROW(zero_dies, "rank 0 ", 0, 3, 1) ROW(two_die, "rank 2 died first", 0, 3, 1)
                    ROW(far_memory, "rank 2 (pid ", 0, 3, 0) ROW(tree, "", 0, 64, 4) ROW(tree, "", 0, 40, 20)
                        ROW(tree, "", 0, 20, 1) ROW(dies, "rank 0 ", 0, 64, 4) // with seven children or more,
    ROW(dies, "rank 32 ", 32, 64, 4) // and the first of a node with as many; the first of another;
    ROW(dies, "rank 36 ", 36, 64, 4) ROW(dies, "rank 33 ", 33, 64, 4) // one that leads nobody,
    ROW(dies, "rank 28 ", 28, 40, 20) ROW(cut_off, "rank 64 ", 0, 80, 1)
        ROW(lost, "rank 1 has no connection to rank 10", 0, 20, 1)}; // and one that does, within its node

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    if (argc > 2) {
        const setting s = {"tree", "", 1, atoi(argv[1]), atoi(argv[2]), {0, 0}, {0, 0}};
        return s.ranks < 1 || s.node_ranks < 1 || run(tree, s);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (argc > 1 && strcmp(argv[1], rows[i].s.name)) continue;
        run(rows[i].fn, rows[i].s) ? failed++ : passed++;
    }
    for (size_t i = 0; i < sizeof notice_list / sizeof notice_list[0]; i++) {
        const setting s = {"notices", notice_list[i].text, (int)i, 3 - !notice_list[i].who, 1, {0, 0},
                           {0, 0}};
        if (argc > 1 && strcmp(argv[1], s.name)) continue;
        run(notices, s) ? failed++ : passed++;
    }
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0 || passed == 0;
}

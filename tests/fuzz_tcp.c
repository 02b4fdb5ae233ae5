// fuzz_tcp.c - libFuzzer's target for what arrives over TCP: what another says where ranks meet; and, while
// they train, frames, notices, headers, in an elastic world memos; an invitation. An input is what a stranger
// says on a new connection, an invitation, or a list of steps: what this rank begins, tests and gives up, and
// what another one sends.
//
//     clang -fsanitize=fuzzer,address,undefined -I. tests/fuzz_tcp.c -o build/fuzz_tcp -pthread -lm
#define PAR_IMPLEMENTATION
#include "par.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 4, PEER = 1, MESSAGES = 8, STEPS = 200 };
static const uint64_t session = 0x1122334455667788;

typedef struct bytes { // of the input, still to be used
    const uint8_t *at;
    size_t left;
} bytes;
static uint64_t next(bytes *b, size_t n) { // of so many; 0s behind the end
    uint64_t x = 0;
    const size_t have = PAR__MIN(n, b->left);
    if (have) memcpy(&x, b->at, have);
    b->at += have, b->left -= have;
    return x;
}

typedef struct message { // that this rank has begun
    par__net_request q;
    char *memory; // exactly as long as it was said: the sanitizer sees what is written behind it
    size_t bytes;
} message;
typedef struct ends { // of another rank
    par__world w;
    int in, out, control; // the far ends: what is written to `in` this rank reads
    message messages[MESSAGES];
} ends;

static void connect_all(ends *e) {
    int pair[2];
    par__connection *v = par__tcp_connection(e->w.tcp, PEER);
    if (!v || !(v->buffer = (char *)PAR_MALLOC(PAR__TCP_BUFFER_BYTES))) abort();
    int *const near[] = {&v->in, &v->out, &e->w.tcp->edges[0].fd};
    int *const far[] = {&e->in, &e->out, &e->control};
    for (int i = 0; i < 3; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)) abort();
        *near[i] = pair[0], *far[i] = pair[1];
    }
}
static void open_world(ends *e, par__arena *arena, int rank) {
    par__tcp *t = (par__tcp *)par__zalloc(sizeof *t);
    par__world *w = &e->w;
    memset(e, 0, sizeof *e);
    arena->first_error = arena->alarms = arena->first_dead = 0, arena->rank_count = 1;
    for (int i = 0; arena->revoked[i]; i++) arena->revoked[i] = 0;
    w->rank = rank, w->size = RANKS, w->arena = arena, w->control = &arena->ranks[0], w->tcp = t;
    w->places = RANKS, w->timeout_s = 60;
    t->session = session, t->on_handshake = par__tcp_accept_sender;
    t->self.rank = rank, t->self.size = RANKS, t->local = -1;
    t->sink = (char *)par__zalloc(PAR__TCP_SHORT_BYTES);
    t->states = (unsigned char *)par__zalloc(RANKS);
    t->book = (par__address *)par__zalloc(RANKS * sizeof *t->book);
    t->edges = (par__edge *)par__zalloc(sizeof *t->edges); // the tree: 0 <- 1 <- 2, 1 <- 3
    t->edge_count = 1;
    for (int r = 0; r < RANKS; r++) t->states[r] = PAR__RANK_RUNNING, t->book[r].parent = r > PEER;
    t->edges[0].rank = PEER, t->edges[0].fd = -1;
    connect_all(e);
}
static void put(int fd, const void *memory, size_t n) { // what fits
    const ssize_t sent = send(fd, memory, n, MSG_NOSIGNAL);
    (void)sent;
}
static void give_up(ends *e, message *m) {
    if (m->q.active) par__tcp_cancel(&e->w, &m->q);
    free(m->memory); // nothing may touch it from here on
    memset(m, 0, sizeof *m);
}

static void begin(ends *e, bytes *b, int sending) {
    message *m = &e->messages[next(b, 1) % MESSAGES];
    const int tag = (int)(next(b, 1) % 4);
    give_up(e, m);
    m->bytes = (size_t)next(b, 3) % 200000;
    m->memory = (char *)calloc(m->bytes + !m->bytes, 1);
    if (!m->memory) abort();
    if (sending)
        par__tcp_send(&e->w, PEER, tag, m->memory, m->bytes, &m->q);
    else
        par__tcp_recv(&e->w, PEER, tag, m->memory, m->bytes, &m->q);
}
static void test(ends *e, message *m) {
    const par__connection *v = par__tcp_find(e->w.tcp, PEER);
    int done = 0;
    size_t received = 0;
    if (!m->q.active) return;
    e->w.poll_round++;
    const par_result r = par__tcp_test(&e->w, &m->q, &done, &received);
    if (v->unexpected_bytes > PAR__TCP_CREDIT_BYTES + PAR__TCP_SHORT_BYTES + PAR__TCP_MESSAGE_OVERHEAD ||
        v->unexpected_rts > PAR__TCP_RTS_MAX + 1)
        abort();
    if (v->fault[0] && (v->in != -2 || (!done && r == PAR_OK))) abort();
    if (r || done) give_up(e, m);
}
// A frame, as the ranks have agreed (1), of another session (2), too long (16) ..., and some of its payload.
static void frame(ends *e, bytes *b) {
    static const char payload[PAR__TCP_SHORT_BYTES];
    const unsigned how = (unsigned)next(b, 1);
    const par__connection *v = par__tcp_find(e->w.tcp, PEER);
    par__frame f;
    memset(&f, 0, sizeof f);
    f.session = session ^ (how >> 1 & 1), f.kind = (uint32_t)next(b, 1), f.tag = (uint32_t)next(b, 1) % 5;
    f.bytes = next(b, how & 4 ? 8 : 2);
    if (how & 1 && v->cts_sent) f.tag = v->cts_sent->tag, f.bytes = v->cts_sent->received;
    if (how & 8) f.tag *= 0x10000;
    if (how & 16) f.bytes += 70000;
    put(e->in, &f, sizeof f);
    if (f.kind != PAR__TCP_SHORT && f.kind != PAR__TCP_DATA) return;
    for (size_t left = (size_t)next(b, 3) % 200000, n; left; left -= n)
        put(e->in, payload, n = PAR__MIN(left, sizeof payload));
}
static void notice(ends *e, bytes *b) {
    par__notice n;
    const unsigned how = (unsigned)next(b, 1);
    memset(&n, how & 1 ? 'x' : 0, sizeof n);
    n.session = session ^ (how >> 1 & 1), n.kind = (int8_t)next(b, 1), n.rank = (int8_t)next(b, 1);
    n.result = (int8_t)next(b, 1);
    n.asker = (int8_t)next(b, 1), n.text_bytes = how & 4 ? 5 : how & 16 ? (uint32_t)next(b, 2) : 0;
    put(e->control, &n, how & 8 ? (size_t)next(b, 1) % sizeof n : sizeof n);
    if (how & 4) put(e->control, "a\033\n\xff", 5);
    par__tcp_poll(&e->w);
    const par__arena *a = e->w.arena;
    if (!memchr(a->first_error_text, 0, sizeof a->first_error_text) || strchr(a->first_error_text, '\033'))
        abort();
    for (int r = 0; r < RANKS; r++) par__tcp_rank_state(&e->w, r);
}
static void raw(ends *e, bytes *b) { // on the connection
    const size_t wanted = (size_t)next(b, 1), n = PAR__MIN(wanted, b->left);
    put(e->in, b->at, n);
    b->at += n, b->left -= n;
}
static void header(bytes *b) { // of a user's message, in exactly so much memory
    par__transfer x;
    par__message_header m;
    const size_t n = b->left;
    memset(&x, 0, sizeof x);
    x.first = (char *)malloc(n + !n);
    if (!x.first) abort();
    if (n) memcpy(x.first, b->at, n);
    if (par__parse_header(&x, &m, n) &&
        (m.bytes / par_dtype_bytes((par_dtype)m.dtype) != m.count || strlen(m.site) >= sizeof m.site))
        abort();
    free(x.first);
    b->left = 0;
}

// In an elastic world: another rank's memos, while this one votes. It is rank 2 of them; the comm has all.
static par_comm *vote_on_comm(ends *e) {
    static int every[RANKS] = {0, 1, 2, 3};
    const uint64_t value[2] = {5, 6};
    par_comm *c = (par_comm *)par__zalloc(sizeof *c);
    if (!c) abort();
    c->world = &e->w, c->size = RANKS, c->rank = e->w.rank, c->id = 3;
    c->world_ranks.table = every;
    for (uint64_t vote = 1; vote < 3; vote++) par__vote_by_lines(c, vote << 8 | PAR__VOTED, value, NULL);
    return c;
}
static void memo(bytes *b, int fd, par_comm *c) {
    static char table[sizeof(par__vote) * (RANKS + 1) + 5000];
    par__memo m;
    const unsigned how = (unsigned)next(b, 1);
    memset(&m, how & 1 ? 'x' : 0, sizeof m);
    m.session = session ^ (how >> 1 & 1), m.kind = (int8_t)next(b, 1), m.rank = (int8_t)next(b, 1);
    m.from = PEER, m.size = RANKS, m.ballot = (int8_t)next(b, 1), m.key = par__comm_key(c);
    m.state = (next(b, 1) % 4) << 8 | PAR__VOTED;
    m.promised = m.ballot + (int)next(b, 1) % 4;
    if (how & 4) m.from = (int8_t)next(b, 1), m.size = (int8_t)next(b, 1);
    if (how & 8) m.key = next(b, 8), m.state = next(b, 8);
    const size_t all = sizeof(par__vote) * RANKS;
    const int votes = m.kind == PAR__TELL_VOTE,
              full = m.kind == PAR__TELL_PROPOSE || m.kind == PAR__TELL_DECIDED;
    m.bytes = (uint32_t)((votes ? sizeof(par__vote) : 0) + (full || (votes && m.ballot >= 0) ? all : 0));
    if (how & 16) m.bytes = (uint32_t)next(b, 2);
    for (size_t i = 0; i < sizeof table / sizeof(par__vote); i++) {
        par__vote v;
        memset(&v, 0, sizeof v);
        v.state = how & 32 ? next(b, 8) : m.state, v.value[0] = next(b, 1);
        memcpy(table + i * sizeof v, &v, sizeof v);
    }
    put(fd, &m, how & 64 ? (size_t)next(b, 1) % sizeof m : sizeof m);
    put(fd, table, PAR__MIN((size_t)m.bytes, sizeof table));
}
static void hear_memos(ends *e, bytes *b) {
    static char sink[1 << 16];
    par__tcp *t = e->w.tcp;
    int pair[2], kept = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)) abort();
    par__line *l = par__new_line(t, PEER);
    if (!l) abort();
    l->edge.fd = pair[0], l->edge.inode = par__socket_inode(pair[0]), l->greeted = 1;
    par_comm *c = vote_on_comm(e);
    for (int i = 0; i < STEPS && b->left && l->edge.fd >= 0; i++) {
        memo(b, pair[1], c);
        par__line_read(&e->w, l);
        for (par__decision *d = t->decisions; d; d = d->next) par__step_vote(&e->w, d);
        while (recv(pair[1], sink, sizeof sink, 0) > 0) continue;
    }
    for (const par__decision *d = t->decisions; d; d = d->next, kept++)
        for (int r = 0; r < RANKS && d->decided; r++)
            if (d->table[r].state >> 8 != d->state >> 8) abort();
    const par__arena *a = e->w.arena;
    if (kept != 2 || !memchr(a->abort_text, 0, sizeof a->abort_text) || strchr(a->abort_text, '\033'))
        abort();
    close(pair[1]);
    PAR_FREE(c);
}
// What a process hears that wants to join, from one that knows the secret: signed. It takes what fits alone.
static void invitation(bytes *b, unsigned how) {
    const unsigned char key[PAR__MAC_BYTES] = {1};
    par__invitation v;
    par_desc d;
    int pair[2];
    memset(&d, 0, sizeof d), memset(&v, 0, sizeof v);
    d.elastic = 1;
    v.magic = PAR__MAGIC, v.world_size = 1 + (int)next(b, 1) % 4, v.count = 1 + (int)next(b, 1) % 3;
    v.comm_size = v.count + 1 + (int)next(b, 1) % 3, v.rank = (int8_t)next(b, 1), v.stage_bytes = 8192;
    const size_t places = (size_t)par__arena_ranks(&d, v.world_size), n = (size_t)v.comm_size;
    v.bytes = par__invitation_bytes(places, n);
    if (how & 1) {
        const size_t at = (size_t)next(b, 1) % sizeof v, wanted = PAR__MIN(sizeof v - at, (size_t)8);
        for (size_t i = 0; i < wanted; i++) ((unsigned char *)&v)[at + i] = (unsigned char)next(b, 1);
    }
    const size_t all = par__invitation_bytes(places, n);
    par__invitation *sent = (par__invitation *)par__zalloc(all);
    if (!sent || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) abort();
    memcpy(sent, &v, sizeof v);
    char *rest = (char *)(sent + 1);
    for (size_t i = 0; i < n; i++) {
        const par__seat seat = {(int8_t)next(b, 1), (int8_t)next(b, 1)};
        memcpy(rest + places * sizeof(par__address) + i * sizeof seat, &seat, sizeof seat);
    }
    memset(rest + places * sizeof(par__address) + n * sizeof(par__seat), (int)next(b, 1), places);
    par__join_proof(key, 'i', sent, all - PAR__MAC_BYTES, (unsigned char *)sent + all - PAR__MAC_BYTES);
    put(pair[1], sent, how & 2 ? (size_t)next(b, 2) % all : all);
    close(pair[1]);
    par__invitation *got = par__await_invitation(pair[0], key, &d);
    if (got) { // what it indexes with these is as long as it says
        const par__seat *seat = par__seats(got, par__arena_ranks(&d, got->world_size));
        int me = 0;
        for (int i = 0; i < got->comm_size; i++) {
            if (seat[i].world_rank < 0 || (size_t)seat[i].world_rank >= places || seat[i].node < 0) abort();
            me += seat[i].world_rank == got->rank;
        }
        if (me != 1 || got->bytes != all) abort();
    }
    close(pair[0]);
    PAR_FREE(got);
    PAR_FREE(sent);
}

// On a new connection; nobody gets through who does not know the key.
static void meet(bytes *b, unsigned how) {
    par__identity self;
    par__handshake p;
    memset(&self, 0, sizeof self);
    self.job = 7, self.size = RANKS, self.rank = how & 1, self.secret = how >> 1 & 1;
    if (par__handshake_begin(&self, &p, -1, how & 4 ? !self.rank : -1, PAR__TO_MEET)) return;
    p.at_door = how >> 4 & 1, p.local = how >> 5 & 1;
    while (p.state < PAR__HANDSHAKE_DONE && b->left) {
        const size_t wanted = how & 8 ? 1 : par__handshake_wanted(&p) - p.received,
                     n = PAR__MIN(wanted, b->left);
        memcpy(p.in + p.received, b->at, n);
        b->at += n, b->left -= n;
        par__handshake_received(&self, &p, n);
    }
    if (p.state == PAR__HANDSHAKE_DONE) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static par__arena arena;
    static char sink[1 << 18];
    static ends e;
    bytes b = {data, size};
    const unsigned how = (unsigned)next(&b, 1);
    if (how & 128) return meet(&b, how), 0;
    if (how & 64) return invitation(&b, how), 0;
    open_world(&e, &arena, how % 2 ? 2 : 0);
    if (how & 32) hear_memos(&e, &b);
    for (int i = 0; i < STEPS && b.left; i++) {
        switch (next(&b, 1) % 8) {
        case 0: begin(&e, &b, 0); break;
        case 1: begin(&e, &b, 1); break;
        case 2: give_up(&e, &e.messages[next(&b, 1) % MESSAGES]); break;
        case 3: notice(&e, &b); break;
        case 4: raw(&e, &b); break;
        case 5: header(&b); break;
        default: frame(&e, &b); break;
        }
        for (int k = 0; k < MESSAGES; k++) test(&e, &e.messages[k]);
        while (recv(e.out, sink, sizeof sink, 0) > 0) continue;
    }
    for (int k = 0; k < MESSAGES; k++) give_up(&e, &e.messages[k]);
    par__tcp_free(&e.w);
    close(e.in), close(e.out), close(e.control);
    return 0;
}

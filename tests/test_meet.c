// test_meet.c - how ranks that meet over TCP prove who they are: published test vectors of the hash, both
// ends of a new connection, and what strangers say. Also a false rank, for tcp.sh:
//     test_meet false      meets as RANK of WORLD_SIZE, says what became of it, then nothing until stdin ends
#include <errno.h>
#include <sys/socket.h>
static int accept_calls, accept_fails, accept_error; // so often, with this errno
static int counted_accept(int s, struct sockaddr *a, socklen_t *bytes) {
    accept_calls++;
    return accept_fails && accept_fails-- ? errno = accept_error, -1 : accept(s, a, bytes);
}
#define accept counted_accept
#define PAR_IMPLEMENTATION
#include "par.h"

static int failed, passed;
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (condition)                                                                                       \
            passed++;                                                                                        \
        else                                                                                                 \
            failed++, fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
    } while (0)

static int is_hex(const unsigned char *hash, const char *want) {
    char text[2 * PAR__MAC_BYTES + 1];
    for (int i = 0; i < PAR__MAC_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", hash[i]);
    return !strcmp(text, want);
}
static int sha_is(const void *memory, size_t bytes, const char *want) {
    unsigned char hash[PAR__MAC_BYTES];
    par__sha256_of(memory, bytes, hash);
    return is_hex(hash, want);
}
static int hmac_is(const void *key, size_t key_bytes, const void *memory, size_t bytes, const char *want) {
    unsigned char hash[PAR__MAC_BYTES];
    const size_t half = bytes / 2;
    const struct iovec parts[2] = {par__iovec(memory, half),
                                   par__iovec((const char *)memory + half, bytes - half)};
    par__hmac(key, key_bytes, parts, 2, hash);
    return is_hex(hash, want);
}
static void known_answers(void) {
    unsigned char key[131], data[64];
    char *million = (char *)malloc(1000000);
    CHECK(sha_is("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")); // FIPS 180-4
    CHECK(sha_is("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    CHECK(sha_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
    CHECK(million != NULL);
    memset(million, 'a', 1000000);
    CHECK(sha_is(million, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
    free(million);
    memset(key, 0x0b, 20); // RFC 4231
    CHECK(
        hmac_is(key, 20, "Hi There", 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
    CHECK(hmac_is("Jefe", 4, "what do ya want for nothing?", 28,
                  "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
    memset(key, 0xaa, sizeof key), memset(data, 0xdd, 50);
    CHECK(hmac_is(key, 20, data, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"));
    CHECK(hmac_is(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
                  "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
}

typedef struct ends { // of a new connection
    par__identity self[2];
    par__handshake p[2]; // the caller, rank 1; who is called, rank 0
} ends;
static void make_ends(ends *e) {
    int pair[2];
    memset(e, 0, sizeof *e);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)) exit(1);
    for (int i = 0; i < 2; i++) {
        e->self[i].job = 7, e->self[i].size = 3, e->self[i].rank = !i, e->self[i].secret = 1;
        memset(e->self[i].key, 42, sizeof e->self[i].key);
        e->p[i].fd = pair[i];
    }
}
static void begin_ends(ends *e) {
    CHECK(par__handshake_begin(&e->self[0], &e->p[0], e->p[0].fd, 0, PAR__TO_SEND) == 0);
    CHECK(par__handshake_begin(&e->self[1], &e->p[1], e->p[1].fd, -1, PAR__TO_SEND) == 0);
}
static void run_ends(ends *e) { // until neither goes on; whoever is called then answers
    begin_ends(e);
    for (int i = 0; i < 4; i++) par__handshake_progress(&e->self[i % 2], &e->p[i % 2]);
    if (e->p[1].state == PAR__HANDSHAKE_DONE) par__handshake_end(&e->self[1], &e->p[1], PAR_OK, "");
    if (e->p[1].state == PAR__HANDSHAKE_FAILED && e->p[1].permanent)
        par__handshake_end(&e->self[1], &e->p[1], PAR_ERR_ARGUMENT, "");
    par__handshake_progress(&e->self[0], &e->p[0]);
}
static void close_ends(ends *e) {
    for (int i = 0; i < 2; i++)
        if (e->p[i].fd >= 0) close(e->p[i].fd);
}
static void both_prove(void) {
    ends e;
    make_ends(&e), run_ends(&e);
    CHECK(e.p[0].state == PAR__HANDSHAKE_DONE && e.p[1].state == PAR__HANDSHAKE_DONE);
    close_ends(&e);
    make_ends(&e), e.self[1].key[31] ^= 1, run_ends(&e); // another secret
    CHECK(e.p[0].state == PAR__HANDSHAKE_FAILED && e.p[0].permanent &&
          strstr(e.p[0].why, "ranks 0 and 1 have different secrets"));
    CHECK(e.p[1].state == PAR__HANDSHAKE_FAILED && e.p[1].permanent &&
          strstr(e.p[1].why, "ranks 0 and 1 have different secrets"));
    close_ends(&e);
    make_ends(&e), e.self[0].secret = 0, run_ends(&e); // none
    CHECK(e.p[0].permanent &&
          strstr(e.p[0].why, "rank 0 has PAR_SECRET (or PAR_SECRET_FILE), but rank 1 has none"));
    CHECK(e.p[1].permanent &&
          strstr(e.p[1].why, "rank 0 has PAR_SECRET (or PAR_SECRET_FILE), but rank 1 has none"));
    close_ends(&e);
    make_ends(&e), e.self[0].job = 8, run_ends(&e);
    CHECK(e.p[0].state == PAR__HANDSHAKE_FAILED && !e.p[0].permanent &&
          e.p[1].state == PAR__HANDSHAKE_FAILED && !e.p[1].permanent);
    close_ends(&e);
    // Another number of ranks, and the same rank: each end names the other's place.
    for (int i = 0; i < 2; i++) {
        make_ends(&e);
        snprintf(e.self[0].place, sizeof e.self[0].place, "here\033");
        memset(e.self[1].place, 'x', sizeof e.self[1].place); // it does not end
        e.self[0].size += !i, e.self[0].rank *= !i;
        run_ends(&e);
        for (int k = 0; k < 2; k++)
            CHECK(e.p[k].state == PAR__HANDSHAKE_FAILED && e.p[k].permanent &&
                  strstr(e.p[k].why, i ? "the same rank, 0" : "another number of ranks, ") &&
                  strstr(e.p[k].why, k ? "here?" : "xxxx"));
        close_ends(&e);
    }
}
// What was said once proves nothing later; nor does what the other end itself says.
static void repeated(void) {
    ends e;
    char said[sizeof(par__hello) + PAR__MAC_BYTES];
    par__hello other;
    make_ends(&e), begin_ends(&e);
    for (int i = 0; i < 3; i++) { // read along
        par__handshake_progress(&e.self[i % 2], &e.p[i % 2]);
        if (i == 0) CHECK(recv(e.p[1].fd, said, sizeof other, MSG_PEEK) == sizeof other);
        if (i == 2) CHECK(recv(e.p[1].fd, said + sizeof other, PAR__MAC_BYTES, MSG_PEEK) == PAR__MAC_BYTES);
    }
    par__handshake_progress(&e.self[1], &e.p[1]);
    CHECK(e.p[1].state == PAR__HANDSHAKE_DONE);
    close_ends(&e);
    make_ends(&e);
    CHECK(par__handshake_begin(&e.self[1], &e.p[1], e.p[1].fd, -1, PAR__TO_SEND) == 0);
    CHECK(send(e.p[0].fd, said, sizeof said, 0) == sizeof said);
    par__handshake_progress(&e.self[1], &e.p[1]);
    CHECK(e.p[1].state == PAR__HANDSHAKE_FAILED);
    close_ends(&e);
    make_ends(&e); // a mirror
    CHECK(par__handshake_begin(&e.self[0], &e.p[0], e.p[0].fd, 0, PAR__TO_SEND) == 0);
    par__handshake_progress(&e.self[0], &e.p[0]);
    CHECK(recv(e.p[1].fd, &other, sizeof other, 0) == sizeof other);
    other.rank = 0, other.to = 1;
    CHECK(send(e.p[1].fd, &other, sizeof other, 0) == sizeof other);
    par__handshake_progress(&e.self[0], &e.p[0]);
    char mirror[sizeof(par__verdict)] = "";
    CHECK(recv(e.p[1].fd, mirror + offsetof(par__verdict, proof), PAR__MAC_BYTES, 0) == PAR__MAC_BYTES);
    CHECK(send(e.p[1].fd, mirror, sizeof mirror, 0) == sizeof mirror);
    par__handshake_progress(&e.self[0], &e.p[0]);
    CHECK(e.p[0].state == PAR__HANDSHAKE_FAILED && !e.p[0].permanent);
    close_ends(&e);
}
static void foreign_server(void) { // what it says is shown, but cannot move a cursor
    ends e;
    make_ends(&e);
    CHECK(par__handshake_begin(&e.self[0], &e.p[0], e.p[0].fd, 0, PAR__TO_SEND) == 0);
    CHECK(send(e.p[1].fd, "SSH-2.0\x1b[2J\r\n\xff", 15, 0) == 15);
    par__handshake_progress(&e.self[0], &e.p[0]);
    CHECK(e.p[0].state == PAR__HANDSHAKE_FAILED && !e.p[0].permanent);
    CHECK(!strcmp(e.p[0].why, "what answers there is no rank 0, but says \"SSH-2.0?[2J????\"") ||
          strstr(e.p[0].why, "says \"SSH-2.0?[2J"));
    for (const char *c = e.p[0].why; *c; c++) CHECK(*c >= 32 && *c < 127);
    close_ends(&e);
}
// Any byte of what a rank says that is changed is noticed: its magic, job, numbers, nonce, or proof.
static void altered(void) {
    for (size_t i = 0; i < sizeof(par__hello) + PAR__MAC_BYTES; i++) {
        ends e;
        char said[sizeof(par__hello)];
        make_ends(&e), begin_ends(&e);
        for (size_t part = 0; part < 2; part++) {
            const size_t bytes = part ? PAR__MAC_BYTES : sizeof said, at = i - part * sizeof said;
            par__handshake_progress(&e.self[0], &e.p[0]);
            if (recv(e.p[1].fd, said, bytes, 0) != (ssize_t)bytes) break; // the other has found it out
            if (at < bytes) said[at] = (char)(said[at] ^ 1);
            memcpy(e.p[1].in, said, bytes);
            par__handshake_received(&e.self[1], &e.p[1], bytes);
            par__handshake_progress(&e.self[1], &e.p[1]);
        }
        CHECK(e.p[1].state != PAR__HANDSHAKE_DONE);
        close_ends(&e);
    }
}

static int is_open(int s) { // at its other end, too
    char byte;
    const ssize_t n = recv(s, &byte, 1, MSG_DONTWAIT);
    return n > 0 || (n < 0 && errno == EAGAIN);
}
// Rank 0 has no descriptor for a connection that waits at its port. If none is pending, that is an error.
// Else rank 0 pauses, and then accepts it in place of one that has been pending for more than a second.
static void no_descriptors(int e) {
    par__world w;
    par__tcp t;
    struct sockaddr_in at;
    socklen_t bytes = sizeof at;
    int waits[2];
    memset(&w, 0, sizeof w), memset(&t, 0, sizeof t), memset(&at, 0, sizeof at);
    w.size = 3, w.tcp = &t, t.self.size = 3, t.local = -1;
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    t.listeners[t.listener_count++] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(!bind(t.listeners[0], (struct sockaddr *)&at, sizeof at) && !listen(t.listeners[0], 8));
    CHECK(!getsockname(t.listeners[0], (struct sockaddr *)&at, &bytes));
    for (int i = 0; i < 2; i++) waits[i] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!connect(waits[0], (struct sockaddr *)&at, sizeof at));
    accept_error = e, accept_fails = 1;
    par__tcp_poll_listeners(&w, par__now() + 60);
    CHECK(t.accept_error == e && t.pending_count == 0);
    par__tcp_poll_listeners(&w, par__now() + 60);
    CHECK(t.accept_error == 0 && t.pending_count == 1);
    t.pending[0].deadline = par__now() + 1e6; // it has just come
    CHECK(!connect(waits[1], (struct sockaddr *)&at, sizeof at));
    accept_fails = 100;
    par__tcp_poll_listeners(&w, par__now() + 60);
    CHECK(t.accept_error == 0 && t.pending_count == 1 && is_open(waits[0]));
    for (int i = 0; i < 3; i++) {
        const double start = par__now();
        accept_calls = 0;
        par__tcp_poll_listeners(&w, start + 60);
        CHECK(accept_calls == 1 && par__now() - start > 0.009);
        CHECK(t.accept_error == 0 && t.pending_count == 1 && is_open(waits[0]));
    }
    t.pending[0].deadline = par__now() + PAR__TCP_HANDSHAKE_SECONDS - 1.001; // or a little longer ago
    accept_fails = 1;
    par__tcp_poll_listeners(&w, par__now() + 60);
    CHECK(t.accept_error == 0 && t.pending_count == 1 && !is_open(waits[0]) && is_open(waits[1]));
    for (int i = 0; i < 2; i++) close(waits[i]);
    par__tcp_stop_listening(&t);
    PAR_FREE(t.pending);
    PAR_FREE(t.polls);
}

static int false_rank(void) {
    par__launch l;
    par__handshake p;
    par__tcp t;
    char byte;
    const char *why = "";
    memset(&t, 0, sizeof t);
    par__find_launch(&l);
    if (par__find_rendezvous(&l) || par__load_secret(t.self.key, &t.self.secret)) return 1;
    t.self.job = l.job, t.self.rank = l.rank, t.self.size = l.size;
    int fd;
    while ((fd = par__tcp_connect_to(l.host, l.port, par__now() + 60, &why)) < 0) usleep(10000);
    if (par__handshake_begin(&t.self, &p, fd, 0, PAR__TO_MEET)) return 1;
    while (p.state < PAR__HANDSHAKE_DONE) {
        par__handshake_progress(&t.self, &p);
        if (p.state < PAR__HANDSHAKE_DONE) par__tcp_poll_fd(fd, POLLIN, par__now() + 1);
    }
    puts(p.state == PAR__HANDSHAKE_DONE ? "taken" : p.why);
    fflush(stdout);
    return read(0, &byte, 1) < 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "false")) return false_rank();
    known_answers();
    both_prove();
    repeated();
    foreign_server();
    altered();
    no_descriptors(EMFILE), no_descriptors(ENFILE);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0;
}

// stranger.c - what a hostile or confused program does to a job that it has no part in.
//
//     stranger MODE ADDRESS ...       connects to each, prints "ready" once it is connected to all of them,
//                                     connects again where it is sent away, and stays until its stdin ends
//         silent                      says nothing
//         crowd                       64 connections to each, all silent
//         drip                        a byte every 100 ms, also when nobody says anything any more
//         http, random                a request to a web server; 4096 random bytes
//         reset                       random bytes, then a reset
//         say FILE, drip_file FILE    the bytes of FILE, then nothing more, or a byte every 100 ms
//         alter FILE                  64 connections: to each FILE, with another byte changed; then they drip
//     ADDRESS                         HOST:PORT (numbers), pid:N (every TCP port at which process N listens),
//                                     unix:PREFIX (every abstract socket whose name begins so)
//     stranger hear FILE PORT         listens there, and writes to FILE what the first connection says
//     stranger without CALL,... COMMAND ...    the command, where these system calls fail with EPERM
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { CAPACITY = 4096, CROWD = 64, BYTES = 4096 };

typedef struct connection {
    struct sockaddr_storage at;
    socklen_t at_bytes;
    int type;               // SOCK_STREAM or SOCK_SEQPACKET
    int fd, made, was_made; // fd: -1, or a socket whose connection may still be in the making
    int altered;            // which byte of what is said is changed; -1: none
} connection;

static connection connections[CAPACITY];
static int count;
static char text[BYTES];
static size_t text_bytes;
static int drips, resets, altered_each, per_address = 1;

static void fail(const char *what) {
    perror(what);
    exit(1);
}
static void add(const void *at, size_t bytes, int type) {
    for (int i = 0; i < per_address && count < CAPACITY; i++) {
        connection *c = &connections[count++];
        memcpy(&c->at, at, bytes);
        c->at_bytes = (socklen_t)bytes, c->type = type;
        c->fd = -1, c->altered = altered_each ? i : -1;
    }
}

// ---- addresses --------------------------------------------------------------------------------------------

static void add_port(uint32_t host,
                     unsigned port) { // as the network has the host, and as people write the port
    struct sockaddr_in a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET, a.sin_addr.s_addr = host, a.sin_port = htons((uint16_t)port);
    add(&a, sizeof a, SOCK_STREAM);
}
static int owns(const char *pid, unsigned long inode) { // has the process this socket?
    char path[300], link[64], want[64];
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    snprintf(want, sizeof want, "socket:[%lu]", inode);
    DIR *dir = opendir(path);
    int found = 0;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        snprintf(path, sizeof path, "/proc/%s/fd/%s", pid, e->d_name);
        const ssize_t n = readlink(path, link, sizeof link - 1);
        link[n > 0 ? n : 0] = 0;
        found = !strcmp(link, want);
    }
    if (dir) closedir(dir);
    return found;
}
static void add_ports_of(const char *pid) {
    char line[512];
    FILE *f = fopen("/proc/net/tcp", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned host, port, state;
        unsigned long inode;
        const char *format = "%*d: %x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*d %*d %lu";
        if (sscanf(line, format, &host, &port, &state, &inode) != 4 || state != 10 || !owns(pid, inode))
            continue;
        add_port(host ? host : htonl(INADDR_LOOPBACK), port);
    }
    if (f) fclose(f);
}
static void add_abstract(const char *prefix) {
    char line[512], name[128];
    FILE *f = fopen("/proc/net/unix", "r");
    while (f && fgets(line, sizeof line, f)) {
        struct sockaddr_un a;
        unsigned flags, type;
        if (sscanf(line, "%*x: %*x %*x %x %x %*x %*u @%107s", &flags, &type, name) != 3) continue;
        if (!(flags & 0x10000) || strncmp(name, prefix, strlen(prefix))) continue; // 0x10000: it listens
        memset(&a, 0, sizeof a);
        a.sun_family = AF_UNIX;
        const char *padding = strchr(name, '@'); // the file shows zeros so
        const size_t n = padding ? (size_t)(padding - name) : strlen(name);
        memcpy(a.sun_path + 1, name, n);
        add(&a, padding ? sizeof a : offsetof(struct sockaddr_un, sun_path) + 1 + n, (int)type);
    }
    if (f) fclose(f);
}
static void add_address(const char *address) { // waits until there is one
    const char *colon = strchr(address, ':');
    if (!colon) fprintf(stderr, "stranger: %s is no address\n", address), exit(2);
    for (const int before = count; count == before; usleep(20000)) {
        char host[64];
        snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
        if (!strcmp(host, "pid"))
            add_ports_of(colon + 1);
        else if (!strcmp(host, "unix"))
            add_abstract(colon + 1);
        else
            add_port(inet_addr(host), (unsigned)atoi(colon + 1));
    }
}

// ---- connections ------------------------------------------------------------------------------------------

static void leave(connection *c) {
    close(c->fd);
    c->fd = -1, c->made = 0;
}
static void speak(connection *c) {
    char said[BYTES];
    memcpy(said, text, text_bytes);
    if (c->altered >= 0 && (size_t)c->altered < text_bytes)
        said[c->altered] = (char)(said[c->altered] ^ 0x81);
    send(c->fd, said, text_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!resets) return;
    const struct linger now = {1, 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    leave(c);
}
static void begin(connection *c) {
    int e = 0;
    socklen_t bytes = sizeof e;
    if (c->fd < 0) {
        c->fd = socket(c->at.ss_family, c->type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (c->fd < 0) fail("stranger: socket");
        if (connect(c->fd, (struct sockaddr *)&c->at, c->at_bytes) && errno != EINPROGRESS) return leave(c);
    }
    struct pollfd p = {c->fd, POLLOUT, 0};
    if (poll(&p, 1, 0) <= 0) return;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &bytes) || e) return leave(c);
    c->made = c->was_made = 1;
    speak(c);
}
static void listen_to(connection *c) { // hears what comes; a descriptor would be a find
    char bytes[BYTES], control[256];
    struct iovec io = {bytes, sizeof bytes};
    struct msghdr m;
    memset(&m, 0, sizeof m);
    m.msg_iov = &io, m.msg_iovlen = 1, m.msg_control = control, m.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *found = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (found && found->cmsg_type == SCM_RIGHTS) puts("took a descriptor"), fflush(stdout);
    if ((n == 0 && !drips) || (n < 0 && errno != EAGAIN)) return leave(c);
    if (drips && send(c->fd, text, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN) leave(c);
}
static int stay(void) { // until stdin ends
    for (int said = 0;;) {
        struct pollfd p = {0, POLLIN, 0};
        int made = 0;
        char byte;
        for (int i = 0; i < count; i++) {
            connection *c = &connections[i];
            if (!c->made)
                begin(c);
            else
                listen_to(c);
            made += c->was_made;
        }
        if (made == count && !said++) puts("ready"), fflush(stdout);
        if (poll(&p, 1, said ? 100 : 10) > 0 && read(0, &byte, 1) <= 0) return 0;
    }
}

// ---- the other two ----------------------------------------------------------------------------------------

static int hear(const char *path, int port) {
    struct sockaddr_in a;
    const int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET, a.sin_addr.s_addr = htonl(INADDR_LOOPBACK), a.sin_port = htons((uint16_t)port);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 8)) fail("stranger: listen");
    puts("ready"), fflush(stdout);
    const int c = accept(s, NULL, NULL);
    const ssize_t n = recv(c, text, sizeof text, 0);
    FILE *f = fopen(path, "wb");
    return c < 0 || n <= 0 || !f || fwrite(text, 1, (size_t)n, f) != (size_t)n || fclose(f);
}
static int without(char *calls, char **command) {
    static const struct {
        const char *name;
        unsigned number;
    } known[] = {{"memfd_create", SYS_memfd_create},
                 {"process_vm_readv", SYS_process_vm_readv},
                 {"process_vm_writev", SYS_process_vm_writev},
                 {"fallocate", SYS_fallocate},
                 {"getrandom", SYS_getrandom},
                 {"sched_getaffinity", SYS_sched_getaffinity},
                 {"madvise", SYS_madvise},
                 {"prctl", SYS_prctl},
                 {"socket", SYS_socket},
                 {"ftruncate", SYS_ftruncate},
                 {"fsync", SYS_fsync},
                 {"rename", SYS_rename}};
    struct sock_filter program[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short n = 1;
    for (char *name = strtok(calls, ","); name && n < 60; name = strtok(NULL, ",")) {
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && strcmp(name, known[i].name)) i++;
        if (i == sizeof known / sizeof known[0]) return fprintf(stderr, "stranger: no call %s\n", name), 2;
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, known[i].number, 0, 1);
        program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog filter = {n, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("stranger: no seccomp here");
        return 77;
    }
    execvp(command[0], command);
    perror(command[0]);
    return 127;
}

static void read_text(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) fail(path);
    text_bytes = fread(text, 1, sizeof text, f);
    fclose(f);
}
int main(int n, char **v) {
    const char *mode = n > 1 ? v[1] : "";
    int at = 2;
    if (!strcmp(mode, "hear") && n == 4) return hear(v[2], atoi(v[3]));
    if (!strcmp(mode, "without") && n > 3) return without(v[2], v + 3);
    const int with_file = !strcmp(mode, "say") || !strcmp(mode, "drip_file") || !strcmp(mode, "alter");
    resets = !strcmp(mode, "reset"), drips = !strncmp(mode, "drip", 4) || !strcmp(mode, "alter");
    if (with_file && n > 2) {
        read_text(v[at++]);
        altered_each = !strcmp(mode, "alter");
        if (altered_each) per_address = text_bytes < 64 ? (int)text_bytes : 64;
    } else if (!strcmp(mode, "http")) {
        text_bytes = (size_t)sprintf(text, "GET / HTTP/1.1\r\nHost: here\r\n\r\n");
    } else if (!strcmp(mode, "random") || resets) {
        for (; text_bytes < BYTES; text_bytes++) text[text_bytes] = (char)rand();
    } else if (!strcmp(mode, "crowd")) {
        per_address = CROWD;
    } else if (strcmp(mode, "silent") && !drips) {
        fprintf(stderr, "stranger: see the first lines of tests/stranger.c\n");
        return 2;
    }
    for (; at < n; at++) add_address(v[at]);
    return stay();
}

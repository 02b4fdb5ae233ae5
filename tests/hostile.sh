# Strangers at every port and socket, odd machines, tiny limits: the right result or a clear error, never a
# hang. A stranger stays until its check has ended, so a job that it holds up runs into the check's deadline.
waiting=6
. tests/lib.sh
gpt=build/gpt hello=build/01_hello stranger=build/stranger victim=build/victim
small="--data build/corpus.txt --n_layer 1 --n_head 2 --n_embd 32 --block_size 32"
small+=" --batch_size 4 --eval_iters 1 --sample 0 --json"

# ---- what the checks are made of

said() { grep -q -e "$2" "$1"; } # file, text
# mode, address ...: connected when this returns; they stay until the check ends
strangers() {
    local said
    said=$(mktemp "$work/strangers.XXXXXX")
    exec {leash}> >(exec "${as_user[@]}" $stranger "$@" >"$said" 2>&1)
    await said "$said" ready
}
job() { # ranks: names a job over TCP that nobody has begun yet
    unset GO
    export WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) PAR_TIMEOUT=600
    pids=()
}
start() { # rank, command ...
    local r=$1
    shift
    RANK=$r "$@" >"$work/out.$r" 2>"$work/err.$r" &
    pids[r]=$!
}
ended() { # status of all ranks
    local r status=0
    for r in "${!pids[@]}"; do wait "${pids[r]}" || {
        status=$?
        echo "rank $r: status $status"
        cat "$work/err.$r"
    }; done
    return $status
}
# program: "${as_user[@]}" runs a copy of it, $work/PROGRAM, as a user who need not reach the checkout
other_user() {
    as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    chmod 755 "$shared" "$work" && install -m 755 "$1" "$work" || return 1
    [ "$(id -u)" = 0 ] && "${as_user[@]}" test -x "$work/${1##*/}" && return
    echo "only root can start a program as another user (setpriv), who can read $shared"
    return 77
}
hello_of() { # rank, file: what this rank of the job would say first
    $stranger hear "$2" "$MASTER_PORT" >"$work/heard" &
    local ear=$!
    await said "$work/heard" ready || return 1
    RANK=$1 $hello >/dev/null 2>&1 &
    local rank=$!
    wait $ear
    kill $rank
    wait $rank
    [ -s "$2" ]
}

# ---- while ranks meet

meets_among() { # mode: of strangers that came before the ranks did
    job 3
    start 0 $hello
    await listens $MASTER_PORT || return 1
    strangers "$1" 127.0.0.1:$MASTER_PORT || return 1
    start 1 $hello
    start 2 $hello
    ended && grep -q "^3 ranks; their numbers add up to 3" "$work/out.0"
}
meets_among_all() {
    for mode in silent crowd drip http random reset; do
        echo "$mode"
        meets_among $mode || return 1
    done
}
false_numbers() { # a rank's first words, each time with another byte changed
    job 3
    hello_of 1 "$work/hello" || return 1
    start 0 $hello
    await listens $MASTER_PORT || return 1
    for i in 1 2; do strangers alter "$work/hello" 127.0.0.1:$MASTER_PORT || return 1; done
    start 2 $hello
    start 1 $hello
    ended && grep -q "^3 ranks; their numbers add up to 3" "$work/out.0"
}

repeated_words() { # with a secret the first words of a rank, overheard, are worth nothing
    export PAR_SECRET="not to be guessed: $$"
    job 3
    hello_of 1 "$work/hello" || return 1
    start 0 $hello
    await listens $MASTER_PORT || return 1
    for i in 1 2 3; do strangers say "$work/hello" 127.0.0.1:$MASTER_PORT || return 1; done
    start 2 $hello
    start 1 $hello
    ended && grep -q "^3 ranks; their numbers add up to 3" "$work/out.0" || return 1
    for secret in "" "not to be guessed" "not to be guessed: 1$$"; do # none, and wrong ones
        job 2
        start 0 $hello
        start 1 env PAR_SECRET="$secret" $hello
        ! wait "${pids[1]}" && kill "${pids[0]}" && ! wait "${pids[0]}" || return 1
        ! grep "ranks;" "$work"/out.? && grep -q PAR_SECRET "$work/err.1" || {
            cat "$work"/err.?
            return 1
        }
    done
}
silent_name_server() { # the host's name is looked up until the deadline, not for ever
    cat >"$work/silent.c" <<'C'
// Looks a name up for ever, and reads a numeric address.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>
typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found) {
    while (host && !(hints->ai_flags & AI_NUMERICHOST)) pause();
    return ((lookup *)dlsym(RTLD_NEXT, "getaddrinfo"))(host, port, hints, found);
}
C
    gcc -O1 -shared -fPIC "$work/silent.c" -o "$work/silent.so" -ldl || return 1
    local preload=(env LD_PRELOAD="$work/silent.so") numeric="no name server.*use the host's numeric address"
    job 2
    fails 1 "rank 0 waited 1 s for the address of MASTER_ADDR, a.host: $numeric" \
        "${preload[@]}" RANK=0 MASTER_ADDR=a.host PAR_TIMEOUT=1 $hello &&
        fails 1 "rank 1 tried for 1 s to reach rank 0 at a.host:$MASTER_PORT ($numeric)" \
            "${preload[@]}" RANK=1 MASTER_ADDR=a.host PAR_TIMEOUT=1 $hello || return 1
    for r in 0 1; do start $r "${preload[@]}" $hello; done
    ended && grep -q "^2 ranks; their numbers add up to 1" "$work/out.0"
}
arena_socket() { # where the ranks of a machine hand on their shared memory: strangers come first
    cat >"$work/hold.c" <<'C'
// A connection to a Unix socket waits until the file $HOLD is there; that it waits, $HOLD.now says.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int connect(int fd, const struct sockaddr *to, socklen_t bytes) {
    const char *hold = getenv("HOLD");
    char now[4096];
    snprintf(now, sizeof now, "%s.now", hold ? hold : "");
    if (to->sa_family != AF_UNIX || !strncmp(to->sa_data + 1, "par.meet.", 9)) hold = NULL;
    if (hold) close(open(now, O_CREAT | O_WRONLY, 0600));
    while (hold && access(hold, F_OK)) usleep(5000);
    return ((int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect"))(fd, to, bytes);
}
C
    gcc -O1 -shared -fPIC "$work/hold.c" -o "$work/hold.so" -ldl || return 1
    job 3
    for r in 0 1 2; do start $r env LD_PRELOAD="$work/hold.so" HOLD="$work/hold" $hello; done
    await test -e "$work/hold.now" || return 1
    for mode in silent crowd drip random reset; do strangers $mode unix:par.${pids[0]}. || return 1; done
    if other_user $stranger; then
        stranger=$work/stranger
        for mode in silent random; do strangers $mode unix:par.${pids[0]}. || return 1; done
    fi
    touch "$work/hold"
    ended &&
        grep -q "^3 ranks; their numbers add up to 3" "$work/out.0" &&
        ! grep "took a descriptor" "$work"/strangers.*
}
host_socket_of() { # process: the name of the socket where it waits for other ranks of its host
    ls -l /proc/$1/fd | sed -n 's/.*socket:\[\([0-9]*\)\]$/mine \1/p' | cat - /proc/net/unix |
        awk '$1 == "mine" {mine[$2]} $7 in mine && $8 ~ /^@par.meet/ {print substr($8, 2)}' | grep .
}
# Where ranks of a host find each other: strangers come there, or have its name. Who does not get on there
# goes to rank 0.
host_socket() {
    cat >"$work/squat.c" <<'C'
// Has an abstract socket, answers each who comes with a line, and hangs up.
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int main(int n, char **v) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM, 0), c, once;
    if (n < 2 || strlen(v[1]) > 100) return 1;
    memcpy(a.sun_path + 1, v[1], strlen(v[1]));
    if (bind(s, (void *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(v[1])))) return 1;
    if (listen(s, 9)) return 1;
    for (puts("ready"), fflush(stdout), once = 1; (c = accept(s, 0, 0)) >= 0; close(c), once = 0)
        if (write(c, "!par.ar, or nearly so\n", 22) == 22 && once) puts("came"), fflush(stdout);
    return 1;
}
C
    gcc -O1 "$work/squat.c" -o "$work/squat" || return 1
    local name squatter user
    for user in own other; do
        unset as_user
        [ $user = own ] || other_user "$work/squat" >"$work/why" || { cat "$work/why" && break; }
        job 4
        start 1 $hello
        await host_socket_of ${pids[1]} || return 1
        name=$(host_socket_of ${pids[1]})
        kill ${pids[1]}
        wait ${pids[1]}
        "${as_user[@]}" "$work/squat" "$name" >"$work/squat.out" &
        squatter=$!
        await said "$work/squat.out" ready || return 1
        for r in 0 1 2 3; do start $r env PAR_SECRET=0123456789abcdef $hello; done
        ended && said "$work/out.0" "^4 ranks; their numbers add up to 6" || return 1
        kill -0 $squatter && said "$work/squat.out" came || [ $user = other ] || return 1
        kill $squatter
    done
    unset as_user
    for mode in silent crowd drip http random reset; do
        echo "$mode"
        job 4
        start 1 $hello
        await host_socket_of ${pids[1]} || return 1
        strangers $mode unix:$(host_socket_of ${pids[1]}) || return 1
        for r in 0 2 3; do start $r $hello; done
        ended && said "$work/out.0" "^4 ranks; their numbers add up to 6" || return 1
    done
}

# ---- while they train

at_listeners() { # every rank's own port, before the first message and beside all that follow
    for mode in silent crowd drip http random reset; do
        echo "$mode"
        rm -f "$work/go"
        job 3
        export GO=$work/go
        for r in 0 1 2; do start $r env PAR_NODE_RANKS=1 "$victim"; done
        for r in 0 1 2; do await said "$work/err.$r" open || return 1; done
        strangers $mode pid:${pids[0]} pid:${pids[1]} pid:${pids[2]} || return 1
        touch "$work/go"
        ended && grep -q right "$work/out.0" || return 1
    done
}
# the trainer's losses are the same among strangers; it waits for them at its output, a full pipe
trains_among() {
    $gpt $small --max_iters 20 --ranks 2 >"$work/quiet" 2>&1 || return 1
    job 2
    mkfifo "$work/full"
    exec 8<>"$work/full"
    dd if=/dev/zero of=/dev/fd/8 bs=4096 count=1024 oflag=nonblock 2>/dev/null # until it is full
    RANK=0 PAR_NODE_RANKS=1 $gpt $small --max_iters 20 >"$work/full" 2>"$work/err.0" &
    pids[0]=$!
    exec 9<"$work/full" 8>&-
    start 1 env PAR_NODE_RANKS=1 $gpt $small --max_iters 20
    await said "$work/err.0" "2 ranks (tcp)" || return 1
    # as many as wait in the system
    for mode in drip random; do strangers $mode pid:${pids[0]} pid:${pids[1]} || return 1; done
    tr -d '\0' <&9 >"$work/out.0"
    ended && same_losses 0 "$work/quiet" "$work/out.0"
}

# ---- odd machines

right_or_says() { # text, command ...: it works, or ends with status 1 and says this
    local text=$1 status
    shift
    "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status = 0 ] || { [ $status = 1 ] && grep -q -e "$text" "$work/err"; } && return
    echo "status $status, and neither success nor \"$text\":"
    head -c 2000 "$work/err"
    return 1
}
limited() { # option of ulimit, value, command ...
    local option=$1 value=$2
    shift 2
    (ulimit "$option" "$value" && exec "$@")
}
closed() { # which of 0, 1 and 2, command ...
    local which=$1
    shift
    (
        case $which in *0*) exec <&- ;; esac
        case $which in *1*) exec >&- ;; esac
        case $which in *2*) exec 2>&- ;; esac
        exec "$@"
    ) >"$work/out" 2>"$work/err"
}
reused_descriptors() { # a program closes all from 3 on, and opens files of its own: they stay as they are
    cat >"$work/r.c" <<'END'
#include "par.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
enum { FILES = 24, BYTES = 2 << 20 };
static char b[BYTES];
static void heard(const char *dir, int rank, int tells) { // says that a rank has heard, or waits until it has
    char name[4096];
    if (!dir) return;
    snprintf(name, sizeof name, "%s/heard.%d", dir, rank);
    if (tells) close(open(name, O_WRONLY | O_CREAT, 0600));
    for (alarm(60); access(name, F_OK);) usleep(1000);
}
int main(int n, char **v) { // v[1]: a folder; v[2]: the same, where the ranks hear of each other
    par_comm *w, *c;
    int fd[FILES], bad = 0;
    char name[4096], *x = (char *)calloc(1, 1 << 20);
    if (par_open(NULL, &w) || n < 2) return 1;
    const int closes = par_rank(w) == 0;
    if (par_all_reduce(x, x, 100000, PAR_F32, PAR_SUM, w)) return 1; // connections are open
    for (int i = 3; i < 64 && closes; i++) close(i);
    memset(b, 'x', BYTES);
    for (int i = 0; i < FILES && closes; i++) {
        snprintf(name, sizeof name, "%s/%d", v[1], i);
        fd[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        bad |= write(fd[i], b, BYTES) != BYTES;
    }
    void *p = par_alloc(w, 1 << 20); // where it is the only rank all goes on
    const int all = p && !par_free(w, p) && !par_split(w, 0, 0, &c);
    if (par_size(w) == 1 && !all) printf("one rank: %s\n", par_last_error(w));
    if (closes) heard(n > 2 ? v[2] : NULL, 1, 0); // which waits meanwhile
    par_all_reduce(x, x, 100000, PAR_F32, PAR_SUM, w);
    for (int i = 0; i < FILES && closes; i++) {
        struct stat s;
        snprintf(name, sizeof name, "%s/%d", v[1], i);
        const int f = open(name, O_RDONLY);
        bad |= fstat(f, &s) || s.st_size != BYTES || pread(f, b, BYTES, 0) != BYTES;
        close(f);
        for (int k = 0; k < BYTES; k++) bad |= b[k] != 'x';
    }
    if (closes) puts(bad ? "the files were changed" : "the files are whole");
    fflush(stdout);
    fprintf(stderr, "rank %d heard: %s\n", par_rank(w), par_last_error(w));
    heard(n > 2 ? v[2] : NULL, par_rank(w), 1);
    heard(n > 2 ? v[2] : NULL, 0, 0); // while this one runs
    while (closes && wait(NULL) > 0) continue;
    _exit(0);
}
END
    gcc -O1 -I. -DPAR_H_IMPLEMENTED "$work/r.c" build/par.o -o "$work/r" -pthread -lm || return 1
    export PAR_TIMEOUT=20
    local both=
    for n in 1 2; do
        PAR_RANKS=$n "$work/r" "$work" ${both:+"$both"} >"$work/said" 2>"$work/err"
        both=$work
        grep "files are whole" "$work/said" && ! grep "one rank" "$work/said" &&
            grep -q "rank 0's program has closed descriptor 3" "$work/err" || return 1
    done
    grep -q "rank 0 heard: rank 0's program has closed a descriptor" "$work/err" &&
        grep -q "rank 1 heard: rank 0.* has closed .*descriptor" "$work/err" || return 1
    PAR_NODE_RANKS=1 MASTER_PORT=$(port) ranks 2 "$work/r" "$work" >"$work/said" 2>&1
    grep "files are whole" "$work/said"
}
closed_descriptors() { # what is written is what is written else; without stdout the programs fail
    train="$gpt $small --ranks 2 --max_iters 2"
    here=build/closed # $work: commands are split at spaces, which TMPDIR may have
    $train --save "$work/whole" --export "$work/whole.bin" >/dev/null &&
        cp -r "$work/whole" "$work/ck" &&
        ln -sfn "$work" $here || return 1
    for which in 0 1 2 01 02 12 012; do
        rm -rf "$work/ck" "$work/x.bin" "$work/trace"
        case $which in *1*) want=1 ;; *) want=0 ;; esac
        for program in "$train --save $here/ck --export $here/x.bin --trace $here/trace" \
            "env PAR_RANKS=2 $hello" "build/bench_coll_test -b 8 -e 64 -n 2" \
            "env PAR_RANKS=2 build/05_zero 3 2 $here/states.$which"; do
            closed $which $program
            got=$?
            [ $got = $want ] || {
                echo "without $which: $program ended with $got, not $want"
                cat "$work/err"
                return 1
            }
        done
        cmp <(checkpoint_content "$work/whole") <(checkpoint_content "$work/ck") &&
            cmp "$work/whole.bin" "$work/x.bin" &&
            tail -n 1 "$work/trace" | grep -q ']}$' || return 1
    done
    rm $here
}
few_descriptors() { # each number from one with which a program can be loaded
    for n in 4 5 6 7 8 10; do
        right_or_says "open files" limited -n $n $gpt $small --ranks 2 --max_iters 1 --save "$work/ck.$n" \
            --trace "$work/trace" || return 1
    done
}
told_or_ended() { grep -q "open files\|error 24" "$work"/err.[012] || [ -z "$(jobs -pr)" ]; }
few_descriptors_apart() { # of ranks that meet over TCP: said at once, not taken for a rank that does not come
    for n in 4 5 6 7 8 10 12; do
        job 3
        for r in 0 1 2; do start $r limited -n $n env PAR_NODE_RANKS=1 "$victim"; done
        await told_or_ended || return 1
        [ -z "$(jobs -pr)" ] && ended && continue
        kill "${pids[@]}"
        wait "${pids[@]}" # as launchers do when a rank fails
        cat "$work"/err.[012] | tee "$work/all"
        grep -q "open files\|error 24" "$work/all" || {
            echo "$n descriptors: nobody said so"
            return 1
        }
    done 2>/dev/null
}
starved_by_strangers() { # they have every descriptor of rank 0: those that came first leave for its ranks
    job 3
    start 0 limited -n 20 $hello
    await listens $MASTER_PORT || return 1
    strangers silent $(for i in $(seq 30); do echo 127.0.0.1:$MASTER_PORT; done) || return 1
    start 1 $hello
    start 2 $hello
    ended && grep -q "^3 ranks; their numbers add up to 3" "$work/out.0"
}
small_limits() {
    for v in 40000 100000 1000000; do # less address space does: that is said, and may be chosen
        prints "^2 ranks" limited -v $v env PAR_RANKS=2 $hello 2>"$work/err" &&
            grep -q "rank 0 takes [0-9]* bytes of address space .* as ulimit -v or -f allows" "$work/err" &&
            fails 1 "cannot map .* ulimit -v? PAR_ARENA" limited -v $v env PAR_ARENA=8000000000 PAR_RANKS=2 \
                $hello || return 1
    done
    prints "^2 ranks" limited -v 100000 env PAR_ARENA=9000000 PAR_RANKS=2 $hello 2>"$work/err" &&
        ! [ -s "$work/err" ] &&
        prints "^2 ranks" limited -f 10000 env PAR_RANKS=2 $hello &&
        fails 1 "File too large.*ulimit -f? PAR_ARENA" limited -f 100 env PAR_RANKS=2 $hello || return 1
    fails 1 "no shared memory for 8 ranks .*PAR_ARENA asks for more" env PAR_ARENA=1048576 PAR_RANKS=8 \
        $hello || return 1
    fails 1 "stack is limited to 64 KiB.*ulimit -s" limited -s 64 env PAR_RANKS=2 $hello &&
        fails 1 "stack is limited to 16 KiB" env -i bash -c 'ulimit -s 16 && PAR_RANKS=2 exec $0' $hello &&
        prints "^2 ranks" limited -s 128 env PAR_RANKS=2 $hello &&
        prints "^2 ranks" limited -c 0 env PAR_RANKS=2 $hello
}
few_processes() { # of another user, whom limits bind
    other_user $hello || return
    fails 1 "cannot start rank .* of 1000: Resource temporarily unavailable" \
        limited -u 20 "${as_user[@]}" env PAR_RANKS=1000 "$work/01_hello" &&
        ! grep -q ranks "$work/out"
}
ports_of_others() { # files that another user has made to reserve ports reserve them for this one, too
    other_user build/test_par || return
    mkdir -m 1777 "$work/par_ports" && (umask 022 && touch "$work"/par_ports/{10000..19999}) || return 1
    export TMPDIR=$work
    cd "$work" &&
        [ "$("${as_user[@]}" bash -c port)" -ge 10000 ] &&
        "${as_user[@]}" ./test_par --only groups --launch tcp --ranks 3 --node 1
}
full_disk() { # for what is offloaded, a trace, a picture (checkpoints and exports: tests/programs.sh)
    unshare --mount true 2>/dev/null || {
        echo "mounting a small tmpfs needs root"
        return 77
    }
    mkdir "$work/tiny" && cat >"$work/full.sh" <<'SH'
mount -t tmpfs -o size=100k tmpfs "$1" || exit 77
shift
for try in "" fill; do
    [ -z $try ] || head -c 200000 /dev/zero >"$work/tiny/fill" 2>/dev/null
    fails 1 "No space left" $gpt $small --max_iters 2 --ranks 2 --zero 1 --offload "file:$work/tiny" || exit 1
done
fails 1 "No space left" $gpt $small --max_iters 2 --ranks 2 --trace "$work/tiny/t" &&
    ! grep "^trace:" "$work/err" &&
    fails 1 "No space left" env PAR_TRACE="$work/tiny/u" PAR_RANKS=2 $hello &&
    fails 1 "No space left" build/bench_pipe --ranks 2 --simulate --svg "$work/tiny/s"
SH
    unshare --mount bash "$work/full.sh" "$work/tiny"
}
read_only_tmp() { # files of tests are where TMPDIR says
    unshare --mount sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || {
        echo "mounting a tmpfs needs root"
        return 77
    }
    cat >"$work/elsewhere.sh" <<'SH'
mount -t tmpfs none /mnt && mkdir "/mnt/a b" && mount -t tmpfs -o ro none /tmp || exit
export TMPDIR="/mnt/a b"
for t in "par --only traced" "par --only timing" "par --only groups --launch tcp --node 1" \
    "pipe --only drawings"; do
    build/test_$t --ranks 2 || exit
done
SH
    unshare --mount bash "$work/elsewhere.sh"
}
refused_calls() { # by a container, say
    for call in memfd_create fallocate ftruncate process_vm_readv sched_getaffinity madvise prctl getrandom \
        socket; do
        echo $call
        right_or_says "Operation not permitted" $stranger without $call $gpt $small --ranks 2 --max_iters \
            1 || return 1
    done
    for call in fsync rename; do
        fails 1 "Operation not permitted" $stranger without $call $gpt $small --ranks 2 --max_iters 1 --save \
            "$work/ck.$call" || return 1
    done
    prints "^2 ranks" $stranger without process_vm_readv,prctl,madvise,sched_getaffinity env PAR_RANKS=2 \
        $hello
}
no_proc() {
    unshare --mount sh -c 'mount -t tmpfs none /proc' 2>/dev/null || {
        echo "only root can take /proc away (unshare --mount)"
        return 77
    }
    # directory, command ...
    without() { unshare --mount sh -c 'mount -t tmpfs none "$1" && shift && exec "$@"' sh "$@"; }
    prints "^2 ranks" without /proc env PAR_RANKS=2 $hello &&
        prints '"final":true' without /proc $gpt $small --ranks 2 --max_iters 2 --save "$work/ck" &&
        prints "^2 ranks" without /dev env PAR_RANKS=2 $hello &&
        fails 2 "make check needs /proc" without /proc bash tests/check.sh
}
both_open() { [ "$(grep -c open "$work/err")" = 2 ]; }
signals() { # ignored or blocked by what started the program
    (
        trap '' CHLD PIPE HUP TERM INT
        PAR_RANKS=3 prints "^3 ranks" $hello &&
            prints '"final":true' $gpt $small --ranks 2 --max_iters 2 || exit 1
        rm -f "$work/go"
        GO=$work/go PAR_RANKS=2 "$victim" >"$work/out" 2>"$work/err" &
        rank=$!
        await both_open || exit 1
        kill -KILL $(cat /proc/$rank/task/$rank/children) && touch "$work/go"
        wait $rank
        [ $? = 1 ] && grep -q "rank 1 .*died" "$work/err" && ! grep -q right "$work/out"
    ) || return 1
    env --block-signal true 2>/dev/null || return 0
    prints "^3 ranks" env --block-signal PAR_RANKS=3 $hello &&
        prints '"final":true' env --block-signal $gpt $small --ranks 2 --max_iters 2
}
is_gone() { ! grep -q '^State:.[^ZX]' /proc/$1/status; } # a process; it may not have been reaped yet
stopped_rank() {                                         # it is named, and does not stay
    rm -f "$work/go"
    GO=$work/go PAR_TIMEOUT=2 PAR_RANKS=2 "$victim" >"$work/out" 2>"$work/err" &
    local rank=$! child
    await both_open || return 1
    child=$(cat /proc/$rank/task/$rank/children)
    kill -STOP $child && touch "$work/go"
    wait $rank
    [ $? = 1 ] && grep -q "rank 1" "$work/err" && await is_gone $child
}
gone_directory() { # the current one
    here=$PWD
    mkdir "$work/gone" && cd "$work/gone" && rmdir "$work/gone" || return 1
    PAR_RANKS=2 prints "^2 ranks" "$here/$hello" &&
        fails 1 "cannot write the trace to t" env PAR_TRACE=t "$here/$hello" &&
        fails 1 "cannot make the directory ck" "$here/$gpt" ${small#*.txt} --data "$here/build/corpus.txt" \
            --max_iters 1 --save ck
}
strange_names() { # of files: long ones, other letters, quotes, ends of lines
    local long
    long=$(head -c 200 /dev/zero | tr '\0' x)
    for name in $'b\xff"\n\\x' "日本 語" "%s%n%d" "-x" \
        "$long/$long/$long/$long/$long/$long/$long/$long/$long/$long/$long/$long/$long/$long/$long/$long"; do
        mkdir -p "$work/$name" &&
            $gpt $small --ranks 2 --max_iters 2 --save "$work/$name/ck" --trace "$work/$name/t" --export \
                "$work/$name/hub" >"$work/out" 2>&1 &&
            $gpt $small --max_iters 3 --load "$work/$name/ck" --export \
                "$work/$name/x.bin" >"$work/out" 2>&1 &&
            $gpt $small --max_iters 0 --load "$work/$name/hub" >"$work/out" 2>&1 &&
            [ -s "$work/$name/x.bin" ] || {
            head -c 1000 "$work/out"
            return 1
        }
        iconv -f UTF-8 -t UTF-8 "$work/$name/t" >/dev/null &&
            tail -n 1 "$work/$name/t" | grep -q ']}$' || return 1
    done
    fails 1 "File name too long" $gpt $small --max_iters 1 --save "$work/$long$long"
}
links() { # at names under which files are written before they get their own: what they lead to stays as it is
    mkdir "$work/ck" "$work/hub" && echo mine >"$work/target" || return 1
    for name in ck/manifest.json ck/model.safetensors.index.json x.bin hub/config.json \
        hub/model.safetensors; do
        for end in .tmp .new .new.tmp; do ln -s "$work/target" "$work/$name$end"; done
    done
    $gpt $small --max_iters 1 --save "$work/ck" --export "$work/hub" >/dev/null &&
        $gpt $small --max_iters 0 --load "$work/ck" --export "$work/x.bin" >/dev/null &&
        $gpt $small --max_iters 0 --load "$work/hub" >/dev/null &&
        $gpt $small --max_iters 0 --load "$work/x.bin" >/dev/null &&
        [ "$(cat "$work/target")" = mine ]
}
decimal_commas() { # a program's locale does not change what it writes into files
    have localedef && localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" 2>/dev/null || {
        echo "apt-get install locales"
        return 77
    }
    echo '#include <locale.h>
        __attribute__((constructor)) static void begin(void) { setlocale(LC_ALL, ""); }' >"$work/locale.c"
    gcc -shared -fPIC "$work/locale.c" -o "$work/locale.so" || return 1
    export LOCPATH=$work LC_ALL=de_DE.UTF-8 LD_PRELOAD=$work/locale.so
    # it counts
    $gpt $small --ranks 2 --max_iters 2 --trace "$work/t" --save "$work/ck" >"$work/out" &&
        grep -q '"loss":[0-9]*,' "$work/out" &&
        PAR_TIMEOUT=30.5 $gpt $small --max_iters 3 --load "$work/ck" >"$work/out" &&
        build/bench_pipe --ranks 2 --simulate --svg "$work/s" --perfetto "$work/p" >"$work/out" || return 1
    unset LD_PRELOAD
    # nor what the checks compare; and what they run is no launcher's
    printf '%s\n' '. tests/lib.sh' "halves() { awk 'BEGIN {exit 0.5 + \"0.5\" != 1}'; }" \
        'check halves halves' 'check launcher test -z "$RANK$SLURM_PROCID$PAR_RANKS"' \
        summary >"$work/point.sh"
    RANK=0 SLURM_PROCID=0 PAR_RANKS=3 bash "$work/point.sh" || return 1
    unset LC_ALL
    grep -q '"ts":[0-9]*\.[0-9]*,"dur":[0-9]*\.[0-9]*,' "$work/t" &&
        grep -q '"ts":[0-9]*\.[0-9]*,"dur":[0-9]*\.[0-9]*}' "$work/p" &&
        grep -q 'height="[0-9]*\.[0-9]*"' "$work/s" &&
        ! grep -E '"(ts|dur)":[0-9]*,[0-9]|="[0-9]+,[0-9]' "$work/t" "$work/p" "$work/s"
}
garbage_settings() { # of every variable in the manual
    names=$(sed -n '/^ENVIRONMENT/,/^[A-Z]*$/s/^    \(PAR_[A-Z_]*\)=.*/\1/p' par.h)
    [ "$(echo "$names" | wc -l)" -gt 10 ] && cd "$work" || return 1
    local digits=$(head -c 130000 /dev/zero | tr '\0' 9)
    for name in $names; do
        for value in x -1 1e999 99999999999999999999 1,5 $'\xff\xfe' ' ' "$digits"; do
            right_or_says "$name" env -u PAR_GEMM PAR_RANKS=2 "$name=$value" "$OLDPWD/$hello" || {
                echo "$name=${value:0:40}"
                return 1
            }
        done
    done
    for value in x "0 0 0 0 0" "0 1 2 2 $$" "1 1 2 2 $$" \
        "-1 -1 -1 -1 -1" "99 1 2 2 $$" "2 1 0 0 $$" "9999999999999999 1 1 1 1" ""; do
        right_or_says "PAR__BOOT" env "PAR__BOOT=$value" "$OLDPWD/$hello" || {
            echo "PAR__BOOT=$value"
            return 1
        }
    done
    for size in 131073 2147483647 2147483648 0 -1 x; do
        fails 1 "" env WORLD_SIZE=$size RANK=0 MASTER_ADDR=127.0.0.1 "$OLDPWD/$hello" || return 1
    done
}

made $gpt $hello $stranger $victim build/test_par build/test_pipe \
    build/05_zero build/bench_coll_test build/bench_pipe build/corpus.txt
check "strangers where ranks meet" meets_among_all
check "false numbers where ranks meet" false_numbers
check "words of a rank, repeated" repeated_words
check "strangers where ranks of a host meet" host_socket
check "strangers at every rank's port" at_listeners
check "training among strangers" trains_among
check "a name server that is silent" silent_name_server
check "strangers at the socket of shared memory" arena_socket
check "closed descriptors" closed_descriptors
check "descriptors that are used again" reused_descriptors
check "few descriptors" few_descriptors
check "few descriptors over TCP" few_descriptors_apart
check "strangers have every descriptor" starved_by_strangers
check "little memory" small_limits
check "few processes" few_processes
check "ports that another user has reserved" ports_of_others
check "full disk" full_disk
check "a /tmp that is read-only" read_only_tmp
check "system calls that are refused" refused_calls
check "no /proc, no /dev" no_proc
check "signals ignored and blocked" signals
check "a rank that was stopped" stopped_rank
check "the current directory is gone" gone_directory
check "strange names of files" strange_names
check "links in the way of files" links
check "a locale of decimal commas" decimal_commas
check "garbage in the environment" garbage_settings
summary

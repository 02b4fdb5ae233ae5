# Strangers at every port and socket, odd machines, tiny limits: the right result or a clear error, never a hang.
# A stranger stays until its check has ended, so a job that it holds up runs into the check's deadline.
. tests/lib.sh
gpt=build/gpt hello=build/01_hello stranger=build/stranger victim=$work/victim
small="--data build/corpus.txt --n_layer 1 --n_head 2 --n_embd 32 --block_size 32 --batch_size 4 --eval_iters 1 --sample 0 --json"
export PAR_GEMM=built-in

programs() {
    gcc -std=gnu11 -O1 -Wall -Wextra -Wconversion -Werror tests/stranger.c -o $stranger || return 1
    cat >"$work/victim.c" <<'C'
// Opens, says so, waits until the file $GO is there, and computes.
#define PAR_IMPLEMENTATION
#include "par.h"
#include <fcntl.h>
#include <stdlib.h>
enum { MOST = 100000 };
static float x[MOST], y[MOST];
int main(void) {
    par_comm *w;
    if (par_open(NULL, &w)) return 1;
    const int n = par_size(w), r = par_rank(w);
    fprintf(stderr, "open\n");
    for (const char *go = getenv("GO"); go && access(go, F_OK);) usleep(5000);
    const size_t counts[3] = {1, 1000, MOST};
    for (int round = 0; round < 12; round++) {
        const size_t count = counts[round % 3];
        for (size_t i = 0; i < count; i++) x[i] = (float)(r + 1 + round), y[i] = 0;
        if (par_all_reduce(x, y, count, PAR_F32, PAR_SUM, w)) return fprintf(stderr, "%s\n", par_last_error(w)), 1;
        for (size_t i = 0; i < count; i++)
            if (y[i] != (float)(n * (n + 1) / 2 + n * round)) return fprintf(stderr, "wrong\n"), 3;
    }
    if (r == 0) puts("right");
    return par_close(w) != PAR_OK || fflush(stdout);
}
C
    gcc -std=gnu11 -O1 -I. "$work/victim.c" -o "$victim" -pthread -lm
}

# ---- what the checks are made of

until_said() { until grep -q -e "$2" "$1" 2>/dev/null; do sleep 0.02; done; } # file, text
strangers() { # mode, address ...: connected when this returns; they stay until the check ends
    local said
    said=$(mktemp "$work/strangers.XXXXXX")
    exec {leash}> >(exec "${as_user[@]}" $stranger "$@" >"$said" 2>&1)
    until_said "$said" ready
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
    for r in "${!pids[@]}"; do wait "${pids[r]}" || { status=$?; echo "rank $r: status $status"; cat "$work/err.$r"; }; done
    return $status
}
listens() { until grep -qi ":$(printf %04X "$MASTER_PORT") 00000000:0000 0A" /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done; } # rank 0
hello_of() { # rank, file: what this rank of the job would say first
    $stranger hear "$2" "$MASTER_PORT" >"$work/heard" &
    local ear=$!
    until_said "$work/heard" ready
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
    listens
    strangers "$1" 127.0.0.1:$MASTER_PORT
    start 1 $hello
    start 2 $hello
    ended && grep -q "^3 ranks; their numbers add up to 3" "$work/out.0"
}
meets_among_all() {
    for mode in silent drip http random reset; do
        echo "$mode"
        meets_among $mode || return 1
    done
}
false_numbers() { # a rank's first words, each time with another byte changed
    job 3
    hello_of 1 "$work/hello" || return 1
    start 0 $hello
    listens
    strangers alter "$work/hello" 127.0.0.1:$MASTER_PORT
    strangers alter "$work/hello" 127.0.0.1:$MASTER_PORT
    start 2 $hello
    start 1 $hello
    ended && grep -q "^3 ranks; their numbers add up to 3" "$work/out.0"
}

# ---- while they train

at_listeners() { # every rank's own port, before the first message and beside all that follow
    for mode in silent drip http random reset; do
        echo "$mode"
        rm -f "$work/go"
        job 3
        export GO=$work/go
        for r in 0 1 2; do start $r env PAR_NODE_RANKS=1 "$victim"; done
        for r in 0 1 2; do until_said "$work/err.$r" open; done
        strangers $mode pid:${pids[0]} pid:${pids[1]} pid:${pids[2]}
        touch "$work/go"
        ended && grep -q right "$work/out.0" || return 1
    done
}
trains_among() { # the trainer's losses are the same among strangers; it waits for them at its output, a full pipe
    $gpt $small --max_iters 20 --ranks 2 >"$work/quiet" 2>&1 || return 1
    job 2
    mkfifo "$work/full"
    exec 8<>"$work/full"
    dd if=/dev/zero of=/dev/fd/8 bs=4096 count=1024 oflag=nonblock 2>/dev/null # until it is full
    RANK=0 PAR_NODE_RANKS=1 $gpt $small --max_iters 20 >"$work/full" 2>"$work/err.0" &
    pids[0]=$!
    exec 9<"$work/full" 8>&-
    start 1 env PAR_NODE_RANKS=1 $gpt $small --max_iters 20
    until_said "$work/err.0" "2 ranks (tcp)"
    for mode in drip random; do strangers $mode pid:${pids[0]} pid:${pids[1]}; done # as many as wait in the system
    tr -d '\0' <&9 >"$work/out.0"
    ended && same_losses 0 "$work/quiet" "$work/out.0"
}

# ---- odd machines

child_signals() { # SIGCHLD ignored by what started the program: nobody can wait for a child then
    trap '' CHLD
    PAR_RANKS=3 $hello | grep -q "^3 ranks" && $gpt $small --ranks 2 --max_iters 2 | grep -q '"final":true' || return 1
    rm -f "$work/go"
    GO=$work/go PAR_RANKS=2 "$victim" >"$work/out" 2>"$work/err" &
    local rank=$!
    until [ "$(grep -c open "$work/err")" = 2 ]; do sleep 0.02; done
    kill -KILL $(cat /proc/$rank/task/$rank/children) && touch "$work/go"
    wait $rank
    [ $? = 1 ] && grep -q "rank 1 .*died" "$work/err" && ! grep -q right "$work/out"
}

DEADLINE=150
check "the programs of these tests" programs
DEADLINE=40
check "strangers where ranks meet" meets_among_all
check "false numbers where ranks meet" false_numbers
check "strangers at every rank's port" at_listeners
check "training among strangers" trains_among
check "SIGCHLD ignored" child_signals
summary

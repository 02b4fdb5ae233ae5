# Ranks that meet over TCP: what launchers set, mistakes, two hosts, the layers, the trainer. (test_par has
# the rest.)
waiting=6
. tests/lib.sh
. tests/launchers.sh

hello="build/01_hello"
three="3 ranks; their numbers add up to 3"
by_torchrun() { # the real one, or what it would set
    if find_torchrun; then
        PAR_TIMEOUT=100 "${torchrun[@]}" --no_python --nproc_per_node 3 --master_addr 127.0.0.1 \
            --master_port "$(port)" \
            sh -c 'echo >"$1/ran"; exec "$2"' sh "$work" $hello >"$work/said" 2>"$work/err" &&
            grep "$three" "$work/said" &&
            return
        [ ! -e "$work/ran" ] || {
            cat "$work/said" "$work/err"
            return 1
        }
        why="it starts nothing here: $(tail -n 1 "$work/err")"
    fi
    prints "$three" ranks 3 $hello && echo "a stand-in did; the real one: $why" && return 77
}
# rank, ranks, command ...: as srun would start it on this machine; $step and $hosts where they matter
as_srun() {
    SLURM_JOB_ID=$$ SLURM_STEP_ID=${step:-0} SLURM_STEP_NODELIST=${hosts:-127.0.0.1} SLURM_PROCID=$1 \
        SLURM_STEP_NUM_TASKS=$2 "${@:3}"
}
in_slurm() { # tasks, command ...: a step of the real srun, or as it would set the variables
    local n=$1 r tasks="" status=0
    shift
    [ "$slurm" = real ] && {
        srun -n"$n" --overlap "$@"
        return
    }
    for r in $(seq $((n - 1)) -1 0); do
        as_srun $r $n "$@" &
        tasks="$tasks $!"
    done
    for r in $tasks; do wait $r || status=$?; done
    return $status
}
in_job() { # of Slurm
    prints "$three" in_slurm 3 $hello || return 1
    PAR_RANKS=2 prints "^2 ranks" in_slurm 1 $hello || return 1 # a shell in a step, say
    PAR_RANKS=2 in_slurm 4 $hello >"$work/four" 2>&1 && return 1
    local refusal="PAR_RANKS is 2, but srun started 4 processes: unset it, or start as many"
    [ "$(grep -c "$refusal" "$work/four")" = 4 ] || return 1
    export PAR_PORT=$(port)
    for step in 1 2 3; do in_slurm 2 $hello >"$work/step.$step" 2>&1 & done
    wait
    cat "$work"/step.? && [ "$(cat "$work"/step.? | grep -c "^2 ranks")" = 3 ]
}
by_slurm() {
    trap slurm_stop EXIT
    export PAR_TIMEOUT=600 slurm=stand-in
    getent hosts "$(hostname -s)" >/dev/null || export MASTER_ADDR=127.0.0.1
    if slurm_start; then
        slurm=real salloc -n4 bash -c in_job
    else
        in_job && echo "a stand-in did; the real one: $why" && return 77
    fi
}
# rank 0's host by another name; as srun names things: the address from its list of hosts, the port from the
# job
meets() {
    export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port)
    RANK=0 MASTER_ADDR=localhost $hello >"$work/out.0" 2>&1 &
    zero=$! # its name may be another for rank 0
    RANK=1 $hello >"$work/out.1" 2>&1 &
    one=$!
    RANK=2 $hello && wait $zero && wait $one && grep -q "$three" "$work/out.0" || return 1
    unset WORLD_SIZE MASTER_ADDR MASTER_PORT
    pids=""
    for r in 2 1 0; do
        step=1 hosts=$1 as_srun $r 3 $hello >"$work/out.$r" 2>&1 &
        pids="$pids $!"
    done
    for p in $pids; do wait $p || return 1; done
    grep -q "$three" "$work/out.0"
}
in_step() { step=$1 as_srun $2 2 $hello; } # step, rank of two
# ranks of two steps do not join; steps that have one port meet one after the other
steps() {
    export PAR_TIMEOUT=1
    in_step 0 1 >"$work/out.1" 2>&1 &
    fails 1 "rank 0 waited 1 s at 127.0.0.1" in_step 3 0 &&
        ! wait $! &&
        grep -q "tried for 1 s to reach rank 0" "$work/out.1" || return 1
    export PAR_TIMEOUT=600 PAR_PORT=$(port)
    in_step 0 1 >"$work/out.01" 2>&1 &
    pids=$!
    in_step 3 0 >"$work/out.30" 2>&1 &
    pids="$pids $!"
    await listens $PAR_PORT || return 1
    in_step 0 0 >"$work/out.00" 2>&1 &
    pids="$pids $!"
    await grep -q "cannot listen on port $PAR_PORT yet" "$work/out.00" || return 1
    in_step 3 1 && for p in $pids; do wait $p || return 1; done
    grep -q "^2 ranks" "$work/out.00" && grep -q "^2 ranks" "$work/out.30"
}
hears() { # text, env ...: rank 1 ends with it, if it has time enough to hear it
    local t text=$1
    shift
    for t in 0.2 2 20 100; do fails 1 "$text" "$@" RANK=1 PAR_TIMEOUT=$t $hello >"$work/heard" && return; done
    cat "$work/heard"
    return 1
}
same_job() { # another job's rank, and one that is told another number, are not taken; nor is a stranger
    p=$(port)
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$p
    WORLD_SIZE=2 RANK=0 PAR_TIMEOUT=600 $hello >"$work/out.0" 2>&1 &
    zero=$!
    await listens $p || return 1
    exec 9<>/dev/tcp/127.0.0.1/$p || return 1
    (
        trap '' PIPE
        printf 'GET / HTTP/1.0\r\n\r\n and more than a rank would say' >&9
    ) # rank 0 may hang up after a line
    hears "rank 0 there was given another number of ranks" env WORLD_SIZE=3 &&
        hears "rank 0 there is of another job" env TORCHELASTIC_RUN_ID=other WORLD_SIZE=2 || return 1
    WORLD_SIZE=2 RANK=1 $hello && wait $zero && grep -q "2 ranks" "$work/out.0"
}
strange_server() { # has the port first, and answers: a rank tries again until rank 0 has it
    cat >"$work/s.c" <<'END'
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int n, char **v) {
    struct sockaddr_in a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_port = htons((unsigned short)atoi(v[n - 1]));
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 9)) return 1;
    for (int i = 0; i < 3; i++) {
        int c = accept(s, NULL, NULL);
        if (write(c, "SSH-2.0-and more than a rank would say\r\n", 41) != 41) return 1;
        sleep(i);
        close(c);
    }
    return puts("three came") < 0;
}
END
    gcc "$work/s.c" -o "$work/s" || return 1
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) WORLD_SIZE=2 PAR_TIMEOUT=600
    "$work/s" $MASTER_PORT >"$work/strange" &
    stranger=$!
    await listens $MASTER_PORT || return 1
    RANK=1 $hello >"$work/out.1" 2>&1 &
    one=$!
    RANK=0 $hello >"$work/out.0" &&
        grep -q "2 ranks" "$work/out.0" &&
        wait $one &&
        wait $stranger &&
        grep -q "three came" "$work/strange"
}
innermost() { # which of several launchers' variables count
    export MASTER_ADDR=127.0.0.1 PAR_TIMEOUT=600
    by_two() { # how each of two is started: $r is its rank
        export MASTER_PORT=$(port)
        r=1 bash -c "$1" >"$work/out.1" 2>&1 &
        r=0 bash -c "$1" >"$work/out.0" 2>&1 && wait $! && grep -q "^2 ranks" "$work/out.0" && return
        echo "$1:"
        cat "$work"/out.?
        return 1
    }
    srun='SLURM_TASK_PID=$$ SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=2'
    proxy='export SLURM_TASK_PID=$$ SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_JOB_ID=7; exec bash -c "'
    # mpiexec in an allocation: srun starts its proxies
    by_two "$proxy PMI_RANK=\$r PMI_SIZE=2 $hello; exit \\\$?\"" &&
        by_two "$proxy OMPI_COMM_WORLD_RANK=\$r OMPI_COMM_WORLD_SIZE=2 $hello; exit \\\$?\"" &&
        by_two "$proxy RANK=\$r WORLD_SIZE=2 LOCAL_RANK=0 $hello; exit \\\$?\"" && # torchrun in a step
        # nothing to be seen of srun's task
        by_two "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3 PMI_RANK=\$r PMI_SIZE=2 $hello" &&
        by_two "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 RANK=\$r WORLD_SIZE=2 LOCAL_RANK=\$r $hello" &&
        by_two "PMI_RANK=0 PMI_SIZE=1 exec env $srun $hello" && # srun in mpiexec
        # and in a shell
        by_two "PMI_RANK=0 PMI_SIZE=1 exec env $srun bash -c '$hello; exit \$?'" &&
        by_two "PMI_RANK=\$r PMI_SIZE=2 exec env $srun RANK=\$r WORLD_SIZE=2 $hello" || return 1 # they agree
    local by_srun="SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3 (srun)" by_mpiexec="PMI_RANK=0 PMI_SIZE=3 (mpiexec)"
    fails 1 "launchers disagree: RANK=1 WORLD_SIZE=2 (torchrun), $by_srun; unset" \
        env RANK=1 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3 $hello &&
        fails 1 "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 (Open MPI's mpiexec), $by_mpiexec; unset" \
            env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=3 $hello
}
par_ranks() { # beside a launcher; srun: see in_job
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port)
    fails 1 "PAR_RANKS is 2, but torchrun started 4 processes" env PAR_RANKS=2 RANK=0 WORLD_SIZE=4 $hello &&
        fails 1 "PAR_RANKS is 2, but mpiexec started 4 processes" env PAR_RANKS=2 PMI_RANK=0 PMI_SIZE=4 \
            $hello &&
        PAR_RANKS=3 prints "^3 ranks" ranks 3 $hello
}
# process: it listens, has said so, and sleeps, three times of three
waits_in() {
    local once
    for once in 1 2 3; do
        grep -q "^State:.S" /proc/$1/status &&
            ls -l /proc/$1/fd | sed -n 's/.*socket:\[\([0-9]*\)\]$/mine \1/p' |
            cat - /proc/net/tcp /proc/net/tcp6 | awk '
                $1 == "mine" {mine[$2]}
                $4 == "0A" && $10 in mine {n++}
                END {exit !n}' || return 1
        sleep 0.02
    done
}
same_rank() { # one of two is refused; another may have the place when the one that has it has ended
    local refusal="two processes were given the same rank, 1" refused taken
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) WORLD_SIZE=3 PAR_TIMEOUT=600 PAR_JOB=name
    RANK=0 $hello >"$work/out.0" 2>&1 &
    zero=$!
    RANK=1 $hello >"$work/out.1" 2>&1 &
    one=$!
    RANK=1 $hello >"$work/out.2" 2>&1 &
    two=$!
    await grep -q "$refusal" "$work/out.1" "$work/out.2" || return 1
    grep -q "$refusal" "$work/out.1" && refused=$one taken=$two || refused=$two taken=$one
    wait $refused
    [ $? = 1 ] || return 1
    kill -KILL $taken
    wait $taken
    RANK=1 $hello >"$work/out.1" 2>&1 &
    one=$!
    await waits_in $one || return 1
    RANK=2 $hello && wait $one && wait $zero && grep -q "3 ranks" "$work/out.0"
}
# Two runs at one port: with names they meet one after the other, without the second one is refused, while
# the first meets and until its world closes; both hear of both.
two_jobs() {
    cat >"$work/t.c" <<'END'
#include "par.h"
int main(int n, char **v) { // rank 1 waits until its input ends; all have the same argument, or say so
    par_comm *w;
    if (par_open(NULL, &w)) return 1;
    if (n > 2) fclose(fopen(v[2], "w"));
    int mine = n > 1 ? v[1][0] : 0, all[2], c = par_rank(w) ? getchar() : EOF;
    if (c != EOF || par_all_gather(&mine, all, 1, PAR_I32, w)) return 1;
    printf("rank %d with %c: %s\n", par_rank(w), mine, all[0] == all[1] ? "alone" : "MIXED");
    return par_close(w) != PAR_OK;
}
END
    gcc -I. -DPAR_H_IMPLEMENTED "$work/t.c" build/par.o -o "$work/t" -pthread -lm || return 1
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) WORLD_SIZE=2 PAR_TIMEOUT=600
    local same="two processes were given the same rank" r pids=""
    PAR_JOB=a RANK=0 "$work/t" a >"$work/a.0" 2>&1 & # with names
    pids=$!
    await listens $MASTER_PORT || return 1
    for r in 0 1; do
        PAR_JOB=b RANK=$r "$work/t" b >"$work/b.$r" 2>&1 </dev/null &
        pids+=" $!"
    done
    await grep -q "cannot listen on port $MASTER_PORT yet" "$work/b.0" &&
        PAR_JOB=a RANK=1 "$work/t" a </dev/null >"$work/a.1" 2>&1 || return 1
    for r in $pids; do wait $r || return 1; done
    [ "$(cat "$work"/[ab].? | grep -c alone)" = 4 ] || return 1
    for r in 0 1; do # without: the same rank, 0 or 1, before all have met; nobody knows whose ranks these are
        WORLD_SIZE=3 RANK=0 "$work/t" a >"$work/a.0" 2>&1 &
        pids=$!
        await listens $MASTER_PORT || return 1
        [ $r = 1 ] || fails 1 "$same, 0: one at .*, pid .*: t b, one at .*, pid $pids: t a" env WORLD_SIZE=3 \
            RANK=0 "$work/t" b || return 1
        while [ $r = 1 ] && kill -0 $pids 2>/dev/null; do # one that has not yet said all is replaced
            WORLD_SIZE=3 RANK=1 "$work/t" a </dev/null >>"$work/a.1" 2>&1 &
            sleep 0.05
        done
        ! wait $pids && grep "rank 0 opens no world: $same, $r: one at .*: t" "$work/a.0" || return 1
    done
    await grep "rank 1.*: $same, 1: one at .*: t" "$work/a.1" || return 1
    rm -f "$work/leash" && mkfifo "$work/leash" # after they have met, while the world is open
    RANK=0 "$work/t" a >"$work/a.0" 2>&1 &
    pids=$!
    RANK=1 "$work/t" a "$work/open" <"$work/leash" >"$work/a.1" 2>&1 &
    exec {leash}>"$work/leash"
    until [ -e "$work/open" ]; do sleep 0.02; done
    for r in 0 1; do
        fails 1 "$same, $r: one at .*: t [ab].*, one at .*: t [ab]" env RANK=$r "$work/t" b </dev/null ||
            return 1
    done
    exec {leash}>&-
    wait $pids && grep -h "alone" "$work"/a.0 || return 1
    RANK=0 "$work/t" a >"$work/a.0" 2>&1 & # the port is free again; other arguments are said
    pids=$!
    RANK=1 "$work/t" b </dev/null >"$work/b.1" && wait $pids && grep -q MIXED "$work/b.1" &&
        grep "rank 1 runs at .*: t b, but rank 0 at .*: t a: is that one run" "$work/a.0"
}
false_rank() { # comes first. Without a secret it is taken until the real one comes; with one never
    for secret in "" 0123456789abcdef; do
        export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) WORLD_SIZE=3 PAR_TIMEOUT=600
        rm -f "$work/false" "$work/leash" && mkfifo "$work/leash"
        RANK=0 env ${secret:+PAR_SECRET=$secret} $hello >"$work/out.0" 2>&1 &
        zero=$!
        RANK=1 build/test_meet false <"$work/leash" >"$work/false" 2>&1 &
        exec {leash}>"$work/leash"
        until [ -s "$work/false" ]; do sleep 0.02; done
        [ "${secret:+refused}" ] || grep -q "^taken" "$work/false" || return 1
        [ ! "$secret" ] || grep -q "rank 0 has PAR_SECRET .* but rank 1 has none" "$work/false" || return 1
        for r in 1 2; do
            RANK=$r env ${secret:+PAR_SECRET=$secret} $hello >"$work/out.$r" 2>&1 &
            ranks[r]=$!
        done
        wait ${ranks[1]} && wait ${ranks[2]} && wait $zero && grep -q "3 ranks" "$work/out.0" || return 1
        exec {leash}>&-
    done
}
# the same for all, and a clear error on both sides for who has another or none; the job still starts
secrets() {
    local s=0123456789abcdef0123
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) WORLD_SIZE=2 PAR_TIMEOUT=600
    echo $s >"$work/secret" && chmod 644 "$work/secret" || return 1
    fails 1 "PAR_SECRET must have 16 to 4096 bytes, .* but has 0" env RANK=1 PAR_SECRET= $hello &&
        fails 1 "PAR_SECRET must have 16 to 4096 bytes, .* but has 5" env RANK=1 PAR_SECRET=abcde $hello &&
        fails 1 "PAR_SECRET and PAR_SECRET_FILE are both set" env RANK=1 PAR_SECRET=$s \
            PAR_SECRET_FILE="$work/secret" $hello &&
        fails 1 "PAR_SECRET_FILE: cannot open /nowhere/s" env RANK=1 PAR_SECRET_FILE=/nowhere/s $hello &&
        fails 1 "PAR_SECRET_FILE: $work/secret has mode 0644 .*chmod 600" env RANK=1 \
            PAR_SECRET_FILE="$work/secret" $hello || return 1
    chmod 600 "$work/secret"
    for other in PAR_SECRET=another0123456789 A=none; do
        export MASTER_PORT=$(port)
        case $other in
        A=*)
            text="rank 0 has PAR_SECRET (or PAR_SECRET_FILE), but rank 1 has none: give all"
            ;;
        *) text="ranks 0 and 1 have different secrets in PAR_SECRET" ;;
        esac
        RANK=0 PAR_SECRET_FILE="$work/secret" $hello >"$work/out.0" 2>&1 &
        zero=$!
        fails 1 "$text" env RANK=1 "$other" $hello || return 1
        until grep -q "$text" "$work/out.0"; do sleep 0.02; done
        RANK=1 PAR_SECRET=$s $hello >"$work/out.1" 2>&1 &&
            wait $zero &&
            grep -q "2 ranks" "$work/out.0" || return 1
        ! grep -q -e $s -e another0 "$work"/out.? "$work/err" || return 1
    done
}
where() { # ranks listen where MASTER_ADDR says, and everywhere only if that is nowhere here
    export WORLD_SIZE=2 PAR_TIMEOUT=600
    local addresses="127.0.0.1 192.0.2.1 no-such-host.invalid" # 192.0.2.0/24 is for examples alone
    ! getent hosts localhost >/dev/null || addresses+=" localhost"
    for host in $addresses; do
        export MASTER_PORT=$(port)
        case $host in 1?7* | local*) at=0100007F every=0 ;; *) at=00000000 every=1 ;; esac
        RANK=0 MASTER_ADDR=$host $hello >"$work/out.0" 2>&1 &
        zero=$!
        until grep -qi ": $at:$(printf %04X $MASTER_PORT) 00000000:0000 0A" /proc/net/tcp; do
            kill -0 $zero || return 1
            sleep 0.02
        done
        RANK=1 MASTER_ADDR=127.0.0.1 $hello && wait $zero && grep -q "2 ranks" "$work/out.0" || return 1
        [ $(grep -c "listens on port $MASTER_PORT of every address: MASTER_ADDR is $host" "$work/out.0") \
            = $every ] || return 1
    done
}
at_address() { # MASTER_ADDR of rank 0, of the others; each listens, too
    local r pids=""
    export WORLD_SIZE=3 MASTER_ADDR=$1 MASTER_PORT=$(port) PAR_TIMEOUT=600 PAR_NODE_RANKS=1
    for r in 1 2; do
        RANK=$r MASTER_ADDR=${2:-$1} $hello >"$work/out.$r" 2>&1 &
        pids="$pids $!"
    done
    RANK=0 $hello >"$work/out.0" 2>&1 &&
        for r in $pids; do wait $r || break; done &&
        grep "$three" "$work/out.0" &&
        return
    echo "at $*:" && cat "$work"/out.[0-2]
    return 1
}
ipv6() {
    grep -q '^0\{31\}1 ' /proc/net/if_inet6 2>/dev/null || {
        echo "this machine has no IPv6 (no address ::1)"
        return 77
    }
    at_address ::1 && fails 1 "waited 0.5 s at ::1:" env RANK=0 PAR_TIMEOUT=0.5 MASTER_PORT=$(port) $hello
}
families() { # with one of the two alone, and both, each time by a name that has both
    have ip || {
        echo "apt-get install iproute2"
        return 77
    }
    unshare --net --mount ip link set lo up 2>/dev/null || {
        echo "only root can take addresses from a network (unshare --net)"
        return 77
    }
    echo "127.0.0.1 localhost
::1 localhost" >"$work/hosts"
    alone() { # what is taken away, addresses that are left
        mount --bind "$work/hosts" /etc/hosts &&
            ip link set lo up &&
            eval "$1" &&
            at_address localhost || return 1
        for a in ${@:2}; do
            at_address $a && at_address $a localhost && at_address localhost $a || return 1
        done
    }
    export -f alone
    unshare --net --mount bash -c \
        'alone "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6" 127.0.0.1' || return 1
    unshare --net ip -6 addr add ::2 dev lo 2>/dev/null || {
        echo "IPv4 alone passed; this machine has no IPv6"
        return 77
    }
    unshare --net --mount bash -c 'alone "ip addr del 127.0.0.1/8 dev lo" ::1' &&
        unshare --net --mount bash -c 'alone true ::1 127.0.0.1'
}
nobody_comes() {
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) WORLD_SIZE=4 PAR_TIMEOUT=0.5
    fails 1 "waited 0.5 s at 127.0.0.1:$MASTER_PORT for ranks 1, 2, 3 of 4" env RANK=0 $hello &&
        fails 1 "rank 3 tried for 0.5 s to reach rank 0 at 127.0.0.1:$MASTER_PORT (Connection refused)" env \
            RANK=3 $hello &&
        fails 1 "the launcher says rank 4 of 4" env RANK=4 $hello &&
        for bad in WORLD_SIZE=many WORLD_SIZE=0 WORLD_SIZE=4x RANK=-1 RANK=1.5 RANK=99999999999 LOCAL_RANK=x \
            MASTER_PORT=65536 MASTER_PORT=x; do
            fails 1 "$bad: it takes a whole number from" env RANK=1 $bad $hello || return 1
        done
    fails 1 "MASTER_PORT=65535: torchrun's agent has it" env TORCHELASTIC_USE_AGENT_STORE=True \
        MASTER_PORT=65535 RANK=1 $hello &&
        fails 1 "MASTER_ADDR=.*\.\.\.: it takes at most 255 bytes" env MASTER_ADDR=$(printf '%0300d' 0) \
            RANK=1 $hello &&
        unknown="\(Name or service not known\|Temporary failure in name resolution\|no name server.*\)" &&
        fails 1 "to reach rank 0 at no-such-host.invalid:.* ($unknown)" env \
            MASTER_ADDR=no-such-host.invalid RANK=1 $hello || return 1
    for r in 0 1; do # at once
        for bad in '[::1]' localhost:29500 http://localhost '[::1]:29500' 'a b'; do
            fails 1 "MASTER_ADDR=.*: it takes the name of a host, or an address" env PAR_TIMEOUT=600 RANK=$r \
                MASTER_ADDR="$bad" $hello || return 1
        done
    done
    getent hosts localhost >/dev/null || return 0
    # What a name means is known again at each try: the deadline cuts one off, which says nothing.
    fails 1 "to reach rank 0 at localhost:$MASTER_PORT (Connection refused)" env RANK=1 \
        MASTER_ADDR=localhost $hello
}
port_taken() {
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port)
    PAR_JOB=a WORLD_SIZE=2 RANK=0 PAR_TIMEOUT=600 $hello >"$work/out.0" 2>&1 &
    await listens $MASTER_PORT || return 1
    fails 1 "cannot listen on port $MASTER_PORT: Address already in use; set MASTER_PORT or PAR_PORT" env \
        PAR_JOB=b WORLD_SIZE=2 RANK=0 PAR_TIMEOUT=0.5 $hello || return 1
    kill $! && wait
    PAR_PORT=$(port) ranks 2 $hello # this one counts, and is free
}
nowhere_to_meet() {
    fails 1 "mpiexec started 3 processes: export MASTER_ADDR" env PMI_SIZE=3 PMI_RANK=1 $hello &&
        local first="a7, the first of SLURM_STEP_NODELIST=a\[7,9\],b2"
    fails 1 "rank 0 runs on b2, but .* look for it on $first: export MASTER_ADDR=b2" \
        env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NODELIST='a[7,9],b2' SLURMD_NODENAME=b2 \
        $hello || return 1
    for list in 'a[' 'a[7' 'a[]' 'a b' ',a' 'a[x]' "$(printf '%0300d' 0)"; do
        fails 1 "SLURM_STEP_NODELIST=.*: it takes names of hosts" env SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3 \
            SLURM_STEP_NODELIST="$list" $hello || return 1
    done
}
both_say() { # text, setting of rank 1, of rank 0: both ranks end with the text, neither by a deadline
    RANK=1 env "$2" $hello >"$work/out.1" 2>&1 &
    fails 1 "$1" env RANK=0 ${3:+"$3"} $hello && ! wait $! && grep -q -e "$1" "$work/out.1"
}
differ() { # settings that all ranks must have alike
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port)
    echo "all_reduce 2 1 64 ring" >"$work/tuned" &&
        mkdir -p "$work/d" &&
        echo "all_reduce 2 1 65 ring" >"$work/d/tuned"
    both_say "PAR_STAGE .* differs between ranks: 65536 on rank 1, 262144 on rank 0" PAR_STAGE=65536 &&
        both_say "PAR_NODE_RANKS .* differs between ranks: not set on rank 1, 1 on rank 0" PAR_NODE_RANKS= \
            PAR_NODE_RANKS=1 &&
        both_say "PAR_ALGO differs between ranks: all_reduce:ring on rank 1, not set on rank 0" \
            PAR_ALGO=all_reduce:ring &&
        both_say \
            "PAR_TUNE differs between ranks: .*/d/tuned (1 rows, content .*) on rank 1, .*tuned (1 rows" \
            "PAR_TUNE=$work/d/tuned" "PAR_TUNE=$work/tuned" &&
        both_say "PAR_GEMM differs between ranks: built-in on rank 1, CBLAS on rank 0" PAR_GEMM=built-in \
            PAR_GEMM=CBLAS &&
        both_say "PAR_TRACE .* differs between ranks: not set on rank 1, $work/t on rank 0" PAR_TRACE= \
            "PAR_TRACE=$work/t"
}
unreadable() { # on one rank alone: the others do not wait for it
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port)
    for bad in PAR_TIMEOUT=5m PAR_LEDGER=yes PAR_STAGE=64k PAR_GEMM=x; do
        both_say "$bad: it takes" $bad &&
            grep -q "rank 0 ends because of rank 1: $bad" "$work/err" || return 1
    done
    both_say "PAR_ALGO.*magic" PAR_ALGO=all_reduce:magic &&
        both_say "PAR_TUNE: cannot open" PAR_TUNE=/nowhere/t || return 1
    RANK=0 PAR_ALGO=x $hello >"$work/out.0" 2>&1 &
    fails 1 "rank 1 ends because of rank 0: PAR_ALGO" env RANK=1 $hello && ! wait $!
}
dies_opening() { # the others hear of it, and end
    export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) PAR_TIMEOUT=600
    RANK=0 $hello >"$work/out.0" 2>&1 &
    zero=$!
    RANK=1 $hello >"$work/out.1" 2>&1 &
    await waits_in $! || return 1
    kill -KILL $!
    fails 1 "rank 2: rank 1 did not open its world" env RANK=2 $hello &&
        ! wait $zero &&
        grep -q "rank 1 did not open its world" "$work/out.0"
}
layers() { # ranks, of a node: shards and their costs, checkpoints, quantized messages, pipelines, tensors
    for t in costs checkpoints quantized; do
        [ $t,$1 = checkpoints,2 ] || build/test_zero --worker tcp $1 $2 $t || return 1 # of MPICH's two ranks
    done
    build/test_pipe --launch tcp --ranks $1 && build/test_tp --launch tcp --ranks $1 --node 1
}
tree() { # ranks, ranks of a node
    build/test_tcp "$@" | tee "$work/said" && grep -q "opened in" "$work/said"
}
clocks() { # rank 1 in a time namespace: 1000 s ahead
    unshare --time --monotonic 1000 --fork true 2>/dev/null || {
        echo "only root may give a process another clock (unshare --time)"
        return 77
    }
    for t in "test_par offsets" "test_par traced" "test_pipe causality"; do
        export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port)
        set -- build/${t% *} --worker launched 2 0 "${t#* }"
        RANK=1 unshare --time --monotonic 1000 --fork "$@" >"$work/out.1" 2>&1 &
        RANK=0 "$@" && wait $! || {
            cat "$work/out.1"
            return 1
        }
    done
}
trainer() { # its losses do not depend on what joins the ranks
    small="--data build/corpus.txt --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --batch_size 4"
    small+=" --max_iters 10 --eval_iters 1 --sample 0 --json"
    build/gpt $small --ranks 4 --pp 2 --zero 2 >"$work/a" || return 1
    PAR_NODE_RANKS=2 ranks 4 build/gpt $small --pp 2 --zero 2 >/dev/null && cp "$work/out.0" "$work/b" &&
        same_losses 0 "$work/a" "$work/b" && [ "$(losses "$work/b" | wc -l)" = 10 ]
}
# what one rank alone finds wrong it says itself, and the others, at once, whose error ends them
own_errors() {
    cat >"$work/own.sh" <<'SH'
case $RANK in 1) shift ;; *) unset "$1" && shift ;; esac
exec build/gpt --data "${DATA:-build/corpus.txt}" --n_layer 1 --n_embd 32 --eval_iters 0 --sample 0 "$@"
SH
    export PAR_TIMEOUT=100000 # longer than this test may take
    said() {                  # text, options of rank 1 (DATA=... in the environment)
        [ $? = 1 ] &&
            grep -q "^gpt: rank 1: .*$1" "$work/out.1" &&
            grep -q "^gpt: rank 0 ends because of rank 1: .*$1" "$work/out.0" &&
            grep -q "^gpt: rank 2 ends because of rank 1: .*$1" "$work/out.2"
    }
    DATA=/nowhere ranks 3 bash "$work/own.sh" DATA
    said "cannot open .*/nowhere" || return 1
    : >"$work/empty"
    DATA="$work/empty" ranks 3 bash "$work/own.sh" DATA
    said "is empty" || return 1
    cat >"$work/own.sh" <<'SH'
a=3
[ $RANK = 1 ] && a=x
exec build/gpt --data build/corpus.txt --n_layer 1 --n_embd 32 --max_iters $a
SH
    ranks 3 bash "$work/own.sh"
    said "options" || return 1
    PAR_TRACE=/nowhere/t ranks 3 $hello >"$work/all"
    [ $? = 1 ] &&
        grep -q "cannot write the trace" "$work/out.0" &&
        grep -q "rank 0 could not open" "$work/out.2"
}
helpers() { # a rank dies while a process that it has forked stays: the others hear of its death all the same
    cat >"$work/h.c" <<'END'
#include "par.h"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char **v) { // v[1]: the rank that dies; its helper stays until its input ends
    par_comm *w;
    float x = 1, y;
    if (par_open(NULL, &w) || par_all_reduce(&x, &y, 1, PAR_F32, PAR_SUM, w) || n < 2) return 2;
    if (par_rank(w) == atoi(v[1])) {
        if (!fork()) _exit(getchar() == EOF);
        kill(getpid(), SIGKILL);
    }
    return par_barrier(w) != PAR_ERR_PEER_DIED;
}
END
    gcc -I. -DPAR_H_IMPLEMENTED "$work/h.c" build/par.o -o "$work/h" -pthread -lm || return 1
    export MASTER_ADDR=127.0.0.1 WORLD_SIZE=2 PAR_NODE_RANKS=1 PAR_TIMEOUT=20
    rm -f "$work/leash" && mkfifo "$work/leash" && exec {leash}<>"$work/leash" || return 1
    for r in 0 1; do
        export MASTER_PORT=$(port)
        RANK=$r "$work/h" $r <"$work/leash" >"$work/out.$r" 2>&1 &
        RANK=$((1 - r)) "$work/h" $r 2>"$work/err" || return 1
        grep -q "rank $r .*died" "$work/err" || return 1
    done
}
# What a leader of a node does while it hands out the shared memory: it dies, or has no descriptor left. The
# others of its node end at once.
leader_leaves() {
    cat >"$work/l.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int accept(int fd, struct sockaddr *a, socklen_t *n) {
    struct sockaddr_un s;
    socklen_t k = sizeof s;
    if (!getsockname(fd, (struct sockaddr *)&s, &k) && s.sun_family == AF_UNIX &&
        strncmp(s.sun_path + 1, "par.meet.", 9)) {
        if (!getenv("LEADER_STAYS")) kill(getpid(), SIGKILL);
        return errno = EMFILE, -1;
    }
    return ((int (*)(int, struct sockaddr *, socklen_t *))dlsym(RTLD_NEXT, "accept"))(fd, a, n);
}
END
    gcc -shared -fPIC "$work/l.c" -o "$work/l.so" -ldl || return 1
    export MASTER_ADDR=127.0.0.1 WORLD_SIZE=3 PAR_TIMEOUT=20
    for stays in "" 1; do
        export MASTER_PORT=$(port) LEADER_STAYS=$stays
        [ "$stays" ] || unset LEADER_STAYS
        RANK=0 LD_PRELOAD="$work/l.so" $hello >"$work/out.0" 2>&1 &
        RANK=1 $hello >"$work/out.1" 2>&1 &
        RANK=2 $hello >"$work/out.2" 2>&1
        [ $? = 1 ] || return 1
        wait
        for r in 1 2; do
            grep "cannot get the shared memory .* from rank 0: it has died, or could not" "$work/out.$r" &&
                ! grep "20 s" "$work/out.$r" || return 1
        done
        [ ! "$stays" ] || grep "rank 0 cannot pass shared memory" "$work/out.0" || return 1
    done
}
# two namespaces and a link of 1 Gbit/s between them: S bytes each way and no more, no faster than it is
export BENCH=build/bench_coll_test
two_hosts() {
    OVER=tcp bash bench/two_hosts.sh 1 1000 --op all_reduce -b 1M -e 1M -n 15 --no-in_place --json \
        >"$work/hosts"
    status=$?
    [ $status = 77 ] && {
        cat "$work/hosts"
        return 77
    }
    cat "$work/hosts"
    sed -n 's/.*"busbw":\([0-9.]*\).*"wrong":0,.*"net_bytes":\([0-9]*\).*/\2 \1/p' "$work/hosts" |
        awk '
            {rows++; print; ok = $1 >= 2 * 1048576 && $1 < 2.01 * 1048576 && $2 > 0 && $2 < 0.15}
            END {exit !(rows == 1 && ok)}'
}
# a link from each host to the next one: sums go on and results come back, so each link has S bytes each way
line_of_hosts() {
    HOSTS=3 LINKS=line OVER=tcp PAR_ALGO=all_reduce:two_level bash bench/two_hosts.sh 1 1000 \
        --op all_reduce -b 1M -e 1M -n 4 -w 1 --no-in_place --json >"$work/hosts" 2>"$work/busiest"
    status=$?
    cat "$work/hosts" "$work/busiest"
    [ $status != 77 ] || return 77
    every_line "$work/hosts" '"wrong":0' &&
        awk '/busiest/ {n++; ok = $1 >= 5 * 1048576 && $1 < 1.5 * 5 * 1048576} END {exit !(n == 1 && ok)}' \
            "$work/busiest"
}

made build/01_hello build/test_par build/test_meet build/test_tcp build/test_zero build/test_pipe \
    build/test_tp build/gpt build/bench_coll_test build/scale build/corpus.txt
check "torchrun" by_torchrun
check "srun" by_slurm
check "launchers' variables" meets '127.0.0.1,other[01-12,20]'
check "steps of one Slurm job" steps
check "the innermost launcher counts" innermost
check "PAR_RANKS beside a launcher" par_ranks
check "strangers and other jobs" same_job
check "a strange server has the port" strange_server
check "one rank for two processes" same_rank
check "two runs at one port" two_jobs
check "a false rank comes first" false_rank
check "secrets" secrets
check "where ranks listen" where
check "IPv6" ipv6
check "one family of addresses, and both" families
check "proofs of who a rank is" build/test_meet
check "nobody comes" nobody_comes
check "a port that is taken" port_taken
check "nowhere to meet" nowhere_to_meet
check "settings that differ" differ
check "settings that one rank cannot read" unreadable
check "a rank dies while opening" dies_opening
check "a rank dies, and a process that it forked stays" helpers
check "a leader leaves while it hands out shared memory" leader_leaves
check "every collective on nine nodes" ranks 18 env PAR_NODE_RANKS=2 build/scale
release check "every collective on 64 nodes" ranks 128 env PAR_NODE_RANKS=2 build/scale
check "the layers" layers 2 1
release check "the layers on four ranks" layers 4 2
release check "a tree of 1024 ranks" tree 1024 8
check "clocks that differ" clocks
check "the trainer" trainer
check "a rank's own errors" own_errors
check "two hosts and a slow link" two_hosts
check "a line of three hosts" line_of_hosts
summary

# Ranks that meet over TCP: what launchers set, mistakes, two hosts, the layers, the trainer. (test_par has the rest.)
. tests/lib.sh

hello="build/01_hello"
meets() { # as torchrun names things; as srun does: the address from its list of hosts, the port from the job
    said="3 ranks; their numbers add up to 3"
    ranks 3 $hello >"$work/torchrun" && grep -q "$said" "$work/torchrun" || return 1
    unset WORLD_SIZE MASTER_ADDR MASTER_PORT
    for r in 2 1 0; do
        SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NODELIST="$1" SLURM_JOB_ID=$$ SLURM_STEP_ID=1 $hello >"$work/out.$r" 2>&1 &
    done
    wait
    grep -q "$said" "$work/out.0"
}
same_job() { # another job's rank, and one that is told another number, are sent away; so is a stranger
    p=$(port)
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$p
    WORLD_SIZE=2 RANK=0 PAR_TIMEOUT=20 $hello >"$work/out.0" 2>&1 &
    sleep 0.3
    exec 9<>/dev/tcp/127.0.0.1/$p && printf 'GET / HTTP/1.0\r\n\r\n and more than a rank would say' >&9
    fails 1 "another job, or was given another number of ranks" env WORLD_SIZE=3 RANK=1 PAR_TIMEOUT=20 $hello &&
    fails 1 "another job, or was given another number of ranks" env TORCHELASTIC_RUN_ID=other WORLD_SIZE=2 RANK=1 PAR_TIMEOUT=20 $hello || return 1
    WORLD_SIZE=2 RANK=1 $hello && wait && grep -q "2 ranks" "$work/out.0"
}
same_rank() {
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) WORLD_SIZE=3 PAR_TIMEOUT=20
    RANK=0 $hello >"$work/out.0" 2>&1 &
    RANK=1 $hello >"$work/out.1" 2>&1 &
    sleep 0.5
    fails 1 "two processes were given the same rank" env RANK=1 $hello || return 1
    RANK=2 $hello && wait && grep -q "3 ranks" "$work/out.0"
}
nobody_comes() {
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) WORLD_SIZE=4 PAR_TIMEOUT=0.5
    fails 1 "waited 0.5 s at 127.0.0.1:$MASTER_PORT for ranks 1, 2, 3 of 4" env RANK=0 $hello &&
    fails 1 "rank 3 tried for 0.5 s to reach rank 0 at 127.0.0.1:$MASTER_PORT (Connection refused)" env RANK=3 $hello &&
    fails 1 "the launcher says rank 4 of 4" env RANK=4 $hello &&
    fails 1 "to reach rank 0 at no-such-host.invalid:.* (\(Name or service not known\|Temporary failure in name resolution\))" env MASTER_ADDR=no-such-host.invalid RANK=1 $hello
}
port_taken() {
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port)
    WORLD_SIZE=2 RANK=0 PAR_TIMEOUT=3 $hello >"$work/out.0" 2>&1 &
    sleep 0.3
    fails 1 "cannot listen on port $MASTER_PORT: Address already in use; set MASTER_PORT or PAR_PORT" env WORLD_SIZE=2 RANK=0 $hello || return 1
    kill $! && wait
    PAR_PORT=$(port) ranks 2 $hello # this one counts, and is free
}
nowhere_to_meet() { fails 1 "export MASTER_ADDR" env PMI_SIZE=3 PMI_RANK=1 $hello; }
differ() { # settings by which algorithms are chosen
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port)
    RANK=1 PAR_STAGE=65536 $hello >"$work/out.1" 2>&1 &
    fails 1 "differ between ranks 0 and 1" env RANK=0 $hello
    wait
    grep -q "differ between ranks 1 and 0" "$work/out.1"
}
dies_opening() { # the others hear of it, and end
    export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port) PAR_TIMEOUT=20
    RANK=0 $hello >"$work/out.0" 2>&1 &
    RANK=1 $hello >"$work/out.1" 2>&1 &
    sleep 0.5
    kill -KILL $!
    fails 1 "rank 2: rank 1 did not open its world" env RANK=2 $hello && wait %1
    grep -q "rank 1 did not open its world" "$work/out.0"
}
layers() { # shards and their costs, checkpoints, quantised messages, pipelines, tensor parallelism
    for t in costs checkpoints quantised; do build/test_zero --worker tcp 2 1 $t && build/test_zero --worker tcp 4 2 $t || return 1; done
    for n in 2 4; do build/test_pipe --backend tcp --ranks $n && build/test_tp --backend tcp --ranks $n --node 1 || return 1; done
}
clocks() { # rank 1 in a time namespace: 1000 s ahead
    unshare --time --monotonic 1000 --fork true 2>/dev/null || { echo "only root may give a process another clock (unshare --time)"; return 77; }
    for t in "test_par offsets" "test_par traced" "test_pipe causality"; do
        export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(port)
        set -- build/${t% *} --worker launched 2 0 "${t#* }"
        RANK=1 unshare --time --monotonic 1000 --fork "$@" >"$work/out.1" 2>&1 &
        RANK=0 "$@" && wait $! || { cat "$work/out.1"; return 1; }
    done
}
trainer() { # its losses do not depend on what joins the ranks
    small="--data build/corpus.txt --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --batch_size 4 --max_iters 10 --eval_iters 1 --sample 0 --json"
    build/gpt $small --ranks 4 --pp 2 --zero 2 >"$work/a" || return 1
    PAR_NODE_RANKS=2 ranks 4 build/gpt $small --pp 2 --zero 2 >/dev/null && cp "$work/out.0" "$work/b" &&
    same_losses 0 "$work/a" "$work/b" && [ "$(losses "$work/b" | wc -l)" = 10 ]
}
two_hosts() { # two namespaces and a link of 1 Gbit/s between them: S bytes each way and no more, at most of its rate
    OVER=tcp bash bench/two_hosts.sh 1 1000 --op all_reduce -b 1M -e 1M -n 15 -i 0 --json >"$work/hosts"
    status=$?
    [ $status = 77 ] && { cat "$work/hosts"; return 77; }
    cat "$work/hosts"
    sed -n 's/.*"busbw":\([0-9.]*\).*"wrong":0,.*"net_bytes":\([0-9]*\).*/\2 \1/p' "$work/hosts" |
    awk '{rows++; print; ok = $1 >= 2 * 1048576 && $1 < 2.01 * 1048576 && $2 > 0.05} END {exit !(rows == 1 && ok)}'
}

DEADLINE=200
check "launchers' variables" meets '127.0.0.1,other[01-12,20]'
check "strangers and other jobs are sent away" same_job
check "one rank for two processes" same_rank
check "nobody comes" nobody_comes
check "a port that is taken" port_taken
check "nowhere to meet" nowhere_to_meet
check "settings that differ" differ
check "a rank dies while opening" dies_opening
check "the layers" layers
check "clocks that differ" clocks
check "the trainer" trainer
check "two hosts and a slow link" two_hosts
summary

# The same tests under MPICH and Open MPI, real and pretended nodes; the MPI examples; a killed rank.
waiting=4
. tests/lib.sh
mpich="mpiexec.mpich -n"
openmpi="mpiexec.openmpi --oversubscribe --mca btl_base_warn_component_unused 0"
[ "$(id -u)" != 0 ] || openmpi+=" --allow-run-as-root"
openmpi+=" -n"

same_as_forked() { # command prefix, suffix: the trainer's losses do not depend on what joins the ranks
    small="--data build/corpus.txt --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --batch_size 4"
    small+=" --max_iters 10 --eval_iters 1 --sample 0 --json"
    build/gpt_$2 $small --ranks 2 >"$work/forked" && $1 2 build/gpt_$2 $small >"$work/mpi" || return 1
    for f in forked mpi; do sed -n '/final/d;s/^\({.*\),"tokens.*/\1/p' "$work/$f" >"$work/$f.lines"; done
    [ "$(losses "$work/mpi" | wc -l)" = 10 ] && diff "$work/forked.lines" "$work/mpi.lines"
}
# Layers are the same with each MPI: without SOAK=1, on two ranks with one, on four with the other;
# tests/tcp.sh writes checkpoints on four.
zero() { # command prefix, suffix: shards, costs, checkpoints and quantized messages between nodes
    local t two="all costs checkpoints quantized" four="costs quantized"
    case $2,${SOAK-} in
    mpich,) four="" ;;
    openmpi,) two="" ;;
    *) four=$two ;;
    esac
    for t in $two; do $1 2 build/test_zero_$2 --worker mpi 2 1 $t || return 1; done
    for t in $four; do $1 4 build/test_zero_$2 --worker mpi 4 2 $t || return 1; done
}
pipe() {
    [ $2,${SOAK-} = openmpi, ] || $1 2 build/test_pipe_$2 --worker mpi 2 1 all || return 1
    [ $2,${SOAK-} = mpich, ] || $1 4 build/test_pipe_$2 --worker mpi 4 2 all
}
killed_rank() { # under MPICH without its own clean-up, the survivors hear of it from the kit
    # mpiexec itself may fall over the dead rank and kill its children; the ranks, in sessions of their own,
    # go on without it
    mpiexec.mpich -disable-auto-cleanup -n 3 setsid --fork --wait sh -c '
        build/test_par_mpich --worker mpi 3 0 killed_before >"$work/out.$PMI_RANK" 2>&1
        echo ended >>"$work/out.$PMI_RANK"'
    for r in 0 1; do await grep -q "^ended" "$work/out.$r" || return 1; done
    cat "$work"/out.*
    ! grep -q "CHECK" "$work"/out.* &&
        grep -q "rank 2 (pid .* died while" "$work/out.0" &&
        grep -q "rank 2 (pid .* died while" "$work/out.1"
}
versus() { # both measured, results right
    $1 2 build/bench_coll_$2 --op all --vs mpi -b 64 -e 64K -f 32 -n 20 --json >"$work/all" || return 1
    grep '^{' "$work/all" >"$work/out" # MPI may print, too
    every_line "$work/out" '"wrong":0,.*"vs_time_us":.*"ratio":' && [ "$(wc -l <"$work/out")" -ge 19 ]
}
adopt() { $1 3 build/04_mpi_adopt_$2 >"$work/out" && grep -q "; 0 sums differ" "$work/out"; }
one_process() {
    build/gpt_$1 --data build/corpus.txt --n_layer 1 --max_iters 2 --eval_iters 1 --sample 0 --ranks 3 \
        --gradient_accumulation_steps 3 >"$work/out" &&
        grep -q "3 ranks (fork)" "$work/out"
}
in_a_step() { # mpiexec in an allocation, whose srun starts its proxies: mpiexec's variables count
    export MASTER_ADDR=127.0.0.1 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1
    export MASTER_PORT=$(port)
    $1 3 build/01_hello >"$work/out" &&
        grep "^3 ranks" "$work/out" &&
        $1 3 build/01_hello_$2 >"$work/out" &&
        grep "^3 ranks" "$work/out"
}
one_of_many() { # command prefix, suffix, its name, another's prefix: MPI and the launcher disagree
    alone="MPI_COMM_WORLD has this one alone ($3"
    fails 1 "srun started 3 processes (SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=3), but $alone" \
        env SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3 build/01_hello_$2 &&
        fails 1 "PAR_RANKS is 3, but .*mpiexec started 2 processes" env PAR_RANKS=3 $1 2 build/01_hello_$2 &&
        PAR_RANKS=3 prints "^3 ranks" $1 1 build/01_hello_$2 || return 1 # one process: PAR_RANKS counts
    have ${4%% *} || return 0
    fails 1 "mpiexec started 2 processes (.*), but $alone" $4 2 build/01_hello_$2 &&
        fails 1 "mpiexec started 2 processes (.*), but $alone" $4 2 build/04_mpi_adopt_$2
}

# over a link of 1 Gbit/s between two namespaces: S bytes each way and no more; with SOAK=1, on a quiet
# machine, not behind MPI
two_hosts() {
    BENCH=build/bench_coll_mpich bash bench/two_hosts.sh 1 1000 --op all_reduce -b 1M -e 1M -n 15 \
        --no-in_place --json >"$work/hosts"
    [ $? = 77 ] && return 77
    cat "$work/hosts"
    fields "$work/hosts" wrong net_bytes ratio | awk -v least="${SOAK:+0.5}" '
        {rows++; ok = $1 == 0 && $2 >= 2 * 1048576 && $2 < 2.01 * 1048576 && $3 > least + 0}
        END {exit !(rows == 1 && ok)}'
}

for kind in mpich openmpi; do
    [ $kind = mpich ] || tier=release
    if ! have mpicc.$kind || ! have mpiexec.$kind; then
        skip "everything under $kind" "apt-get install mpich libmpich-dev openmpi-bin libopenmpi-dev"
        continue
    fi
    eval "run=\$$kind"
    made build/test_par_$kind build/test_zero_$kind build/test_pipe_$kind build/gpt_$kind \
        build/bench_coll_$kind build/scale_$kind build/01_hello_$kind build/04_mpi_adopt_$kind \
        build/01_hello build/corpus.txt
    case $kind,${SOAK-} in # ranks, those of a node
    mpich,) settings="2,1 3,0 4,2" ;;
    openmpi,) settings="2,0 4,1" ;;
    *) settings="1,0 2,0 2,1 2,2 3,0 3,1 3,2 4,0 4,1 4,2" ;;
    esac
    for s in $settings; do # make check has the first one
        [ $s = "${settings%% *}" ] && more="" || more=release
        $more check "$kind: ${s%,*} ranks, node ${s#*,}" \
            $run ${s%,*} build/test_par_$kind --worker mpi ${s%,*} ${s#*,} all
    done
    check "$kind: every collective on nine nodes" $run 18 env PAR_NODE_RANKS=2 build/scale_$kind
    [ $kind = openmpi ] || release check "$kind: every collective on 64 nodes" \
        $run 128 env PAR_NODE_RANKS=2 build/scale_$kind
    release check "$kind: par_zero.h" zero "$run" $kind
    check "$kind: par_pipe.h" pipe "$run" $kind
    check "$kind: the trainer" same_as_forked "$run" $kind
    check "$kind: forked without mpiexec" one_process $kind
    check "$kind: 04_mpi_adopt" adopt "$run" $kind
    check "$kind: bench_coll --vs mpi" versus "$run" $kind
    check "$kind: mpiexec in a Slurm step" in_a_step "$run" $kind
    [ $kind = mpich ] && others=("MPICH" "$openmpi") || others=("Open MPI" "$mpich")
    check "$kind: the wrong starter" one_of_many "$run" $kind "${others[@]}"
done
tier=check
if have mpiexec.mpich; then
    made build/08_gpt_mpich
    check "mpich: 08_gpt" prints "^step 2: loss 5.4104" \
        $mpich 4 build/08_gpt_mpich LICENSE 2 "pp=2 dp=1 tp=2"
    check "mpich: no shared memory between ranks" \
        env MPIR_CVAR_NOLOCAL=1 mpiexec.mpich -n 2 build/test_par_mpich --worker mpi 2 1 bit_equality
    check "mpich: a killed rank" killed_rank
    check "mpich: no elastic world" prints "cannot be opened over MPI" \
        sh -c "! $mpich 2 build/gpt_mpich --data LICENSE --elastic 2>&1"
    check "mpich: two hosts and a slow link" two_hosts
fi
summary

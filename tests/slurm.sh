# Real launchers: a Slurm of three nodes, all of them this machine, for this script alone. srun, steps beside
# each other and of several components, mpiexec and torchrun in an allocation, MPIs that were not told,
# PAR_RANKS. Not part of make check.
. tests/lib.sh
. tests/launchers.sh
trap 'slurm_stop; stop_checks' EXIT

hello=build/01_hello
mpich=$hello.mpich openmpi=$hello.openmpi
as_root=""
[ "$(id -u)" = 0 ] && as_root=--allow-run-as-root
openmpi_run="mpiexec.openmpi $as_root --oversubscribe -n"
# status (0, or failure: any other), times, text, command ...: it ends so, and the line is there so often
says() {
    local want=$1 times=$2 text=$3 status=0
    shift 3
    "$@" >"$work/said" 2>&1 || status=failure
    [ $status = "$want" ] && [ "$(grep -c "$text" "$work/said")" = "$times" ] && return
    echo "wanted status $want and $times times \"$text\", got status $status:"
    cat "$work/said"
    return 1
}
each='for job in $(jobs -p); do wait $job || exit; done' # waits for the jobs of a shell; its status is theirs
resolves() { getent hosts "$host" >/dev/null || export MASTER_ADDR=127.0.0.1; }
plain() {
    resolves
    says 0 1 "^5 ranks" srun -n5 -w "$host" $hello
}
overcommitted() { # more ranks than CPUs, and no plugin of an MPI named in slurm.conf
    resolves
    scontrol show config | grep -E "^MpiDefault += none" &&
        says 0 1 "^12 ranks" srun -n12 -O -w "$host" $hello
}
unresolved() { says 0 1 "^4 ranks" env MASTER_ADDR=127.0.0.1 srun -N2 -n4 -w parb,parc $hello; }
batch() { # and a step of it that starts ranks itself
    resolves
    printf '#!/bin/sh\nsrun %s\nPAR_RANKS=3 %s\nPAR_RANKS=4 srun -n1 %s\n' "$hello" "$hello" \
        "$hello" >"$work/job"
    sbatch -W -n2 -w "$host" -o "$work/job.out" "$work/job" && says 0 3 "^[234] ranks" cat "$work/job.out"
}
two_steps() {
    resolves
    says 0 3 "^2 ranks" salloc -n6 -w "$host" bash -c \
        "for i in 1 2 3; do srun -n2 --exact $hello & done; $each"
}
components() { says 0 1 "^3 ranks" env MASTER_ADDR=127.0.0.1 srun -n1 $hello : -n2 $hello; }
components_apart() {
    says 0 2 "^2 ranks" env MASTER_ADDR=127.0.0.1 salloc -n2 : -n2 bash -c \
        "srun --het-group=0 $hello & srun --het-group=1 $hello & $each"
}
components_reversed() { # Slurm sorts the names: the first is not rank 0's
    says failure 1 "rank 0 runs on parc, .*export MASTER_ADDR=parc" srun -K -n1 -w parc $hello : -n2 -w parb \
        $hello
}
mpiexec_inside() { # each MPI's starter in an allocation: over TCP, and by MPI
    export MASTER_ADDR=127.0.0.1
    says 0 1 "^4 ranks" salloc -N2 -n4 $1 4 $hello && says 0 1 "^4 ranks" salloc -N2 -n4 $1 4 $2
}
srun_inside() {
    says 0 1 "^2 ranks" env MASTER_ADDR=127.0.0.1 salloc -n2 mpiexec.mpich -launcher fork -n 1 srun \
        --mpi=none \
        -n2 bash -c "$hello; exit \$?"
}
by_srun() { says 0 1 "^3 ranks" srun --mpi=$1 -N1 -n3 $2; } # two nodes of one machine cannot share a PMIx
not_told() {
    says failure 2 "srun started 2 processes .*MPI_COMM_WORLD has this one alone (MPICH" srun --mpi=none -n2 \
        $mpich
}
par_ranks() { says failure 4 "PAR_RANKS is 2, but srun started 4 processes" env PAR_RANKS=2 srun -n4 $hello; }
torchrun_inside() { # an agent on each of two nodes
    find_torchrun || {
        echo "$why"
        return 77
    }
    says 0 1 "^4 ranks" srun -N2 -n2 "${torchrun[@]}" --no_python --nnodes 2 --nproc_per_node 2 \
        --rdzv_backend c10d --rdzv_id 7 \
        --rdzv_endpoint "127.0.0.1:$(port)" $hello
}

host=$(hostname -s)
[ "$listing" ] || make -s $hello || exit 1
if [ -z "$listing" ] && ! slurm_start parb parc; then
    tail -n 3 "$work"/*.log 2>/dev/null
    skip "everything under Slurm" "$why"
    summary
    exit
fi
export PAR_TIMEOUT=60
check "srun" plain
check "srun, more ranks than CPUs" overcommitted
check "srun, names of nodes that do not resolve" unresolved
check "sbatch, and ranks that the job starts itself" batch
check "steps beside each other" two_steps
check "a step of two components" components
check "two components, each with a step" components_apart
check "a step whose rank 0 is not on the first node" components_reversed
check "PAR_RANKS beside srun" par_ranks
for kind in mpich openmpi; do
    [ -z "$listing" ] || break # all names, whatever is installed
    if ! have mpicc.$kind || ! have mpiexec.$kind; then
        skip "$kind" "apt-get install mpich libmpich-dev openmpi-bin libopenmpi-dev"
        continue
    fi
    mpicc.$kind -DPAR_MPI -O2 -I. examples/01_hello.c -o $hello.$kind -pthread -lm || exit 1
done
if [ "$listing" ] || [ -x $mpich ]; then
    check "mpich: mpiexec in an allocation" mpiexec_inside "mpiexec.mpich -n" $mpich
    check "mpich: srun --mpi=pmi2" by_srun pmi2 $mpich
    check "mpich: srun --mpi=none" not_told
    check "srun in mpiexec" srun_inside
fi
if [ "$listing" ] || [ -x $openmpi ]; then
    check "openmpi: mpiexec in an allocation" mpiexec_inside "$openmpi_run" $openmpi
    check "openmpi: srun --mpi=pmix" by_srun pmix $openmpi
fi
check "torchrun in a step" torchrun_inside
summary

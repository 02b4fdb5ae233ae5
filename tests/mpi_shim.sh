# MPI programs that know nothing of the kit, with par_mpi.h preloaded, under MPICH and Open MPI: in C every
# collective is compared with MPI's own; three Fortran interfaces; errors; the header's example.
waiting=6
. tests/lib.sh
openmpi_options="--oversubscribe --mca btl_base_warn_component_unused 0"
[ "$(id -u)" != 0 ] || openmpi_options+=" --allow-run-as-root"
export PAR_TIMEOUT=3000 # small calls are the kit's, too
preloaded() { # MPI, ranks, program ...
    local kind=$1 ranks=$2 shim=${library:-$PWD/build/libpar_mpi_$1_test.so}
    shift 2
    case $kind in
    mpich) mpiexec.mpich -n "$ranks" -env LD_PRELOAD "$shim" "$@" ;;
    openmpi) mpiexec.openmpi $openmpi_options -x LD_PRELOAD="$shim" -n "$ranks" "$@" ;;
    esac
}
by_kit() { # table of PAR_MPI_PRINT, kind: how many calls the kit ran
    awk -v kind="$2" '$1 == kind {print $2}' "$1"
}
small() { # MPI may have some where each rank has a processor, and there is no deadline
    local kind kit sums how one=$(taskset -pc $$ | sed 's/.*: //;s/[-,].*//')
    for how in alone deadline shared; do
        (
            [ $how = deadline ] && export PAR_TIMEOUT=300 || export PAR_TIMEOUT=
            [ $how = shared ] && set -- "$1" taskset -c $one
            PAR_MPI_PRINT=1 preloaded "$1" 2 "${@:2}" build/mpi_shim_$1 small >"$work/out" 2>&1
        )
        cat "$work/out"
        kit=81 sums=82
        [ $how = alone ] && [ "$(nproc)" != 1 ] && kit=33 && [ "$1" = openmpi ] && sums=6
        for kind in broadcast gather scatter gatherv scatterv all_to_allv; do
            [ "$(by_kit "$work/out" $kind)" = $kit ] || return 1
        done
        [ "$1" = openmpi ] || kit=81 # MPICH's Allgatherv and Reduce have none
        [ "$(by_kit "$work/out" all_gatherv)" = $kit ] || return 1
        [ "$(by_kit "$work/out" reduce)" = $sums ] || return 1
        grep -q '^done$' "$work/out" || return 1
    done
}
small_sums() { # three ranks that are bound: MPI has the sums of integers alone
    local kit=10
    [ "$1" = openmpi ] || kit=12
    PAR_TIMEOUT= PAR_MPI_PRINT=1 preloaded "$1" 3 build/mpi_shim_$1 small_sums >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && [ "$(by_kit "$work/out" reduce)" = $kit ]
}
loose() { # MPI runs calls whose sizes and types alone differ; one rank says so, once for each place
    local node forgiven=10
    [ "$1" = mpich ] || forgiven=9
    for node in "" 2; do
        PAR_NODE_RANKS=$node PAR_TIMEOUT= \
            preloaded "$1" 3 build/mpi_shim_$1 loose >"$work/out" 2>&1
        cat "$work/out"
        grep -q '^done$' "$work/out" && ! grep -q CHECK "$work/out" || return 1
        [ "$(grep -c "^par: MPI runs a call .* at mpi_shim_$1+0x" "$work/out")" = $forgiven ] || return 1
    done
    grep -q 'rank 1 called par_all_reduce(count=1800, u32, .* but rank 0 called .*(count=1800, i32, ' \
        "$work/out" || return 1
    PAR_TIMEOUT= preloaded "$1" 2 build/mpi_shim_$1 other_op >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^error: PAR_ERR_MISMATCH: rank 1 called .* op=max) at ' "$work/out"
}
# MPI, who has the kit of two programs, all of them say that all have it: then the kit runs them
several() {
    local shim=$PWD/build/libpar_mpi_$1_test.so one="-n 1 build/mpi_shim_$1 several"
    local give="" mpiexec="mpiexec.$1 $openmpi_options"
    case $1 in
    mpich) mpiexec=mpiexec.mpich give="-env LD_PRELOAD $shim -env PAR_MPI_PRINT 1" ;;
    openmpi) give="-x LD_PRELOAD=$shim -x PAR_MPI_PRINT=1 ${3:+-x PAR_MPI_MPMD=1}" ;;
    esac
    case $2 in
    first) $mpiexec $give ${one/1/2} : $one ;;
    second) $mpiexec $one : $give $one ;;
    all) $mpiexec $give $one : $give $one ;;
    esac >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && ! grep -q CHECK "$work/out" || return 1
    if [ "${3-}" ]; then
        [ "$(by_kit "$work/out" all_reduce)" = 1 ] && ! grep -q '^par: ' "$work/out"
    else
        [ "$(grep -c '^par: par_mpi.h leaves all collectives to MPI: ' "$work/out")" = 1 ]
    fi
}
several_programs() {
    several "$1" first && several "$1" second && several "$1" all 1 && SLURM_HET_SIZE=2 slurm_shows "$1"
}
slurm_shows() { # a job of several programs, all of which have the library here
    preloaded "$1" 2 build/mpi_shim_$1 several >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" &&
        [ "$(grep -c '^par: par_mpi.h leaves all collectives to MPI: .*SLURM_HET_SIZE' "$work/out")" = 1 ]
}
# MPI: the other MPI's library is preloaded: rank 0 says so, and the program runs without; one that has loaded
# MPI later, as Python does, ends
other_library() {
    local other=mpich mpiexec="mpiexec.$1 $openmpi_options" how="-x LD_PRELOAD=" text
    [ "$1" = openmpi ] || other=openmpi mpiexec=mpiexec.mpich how="-env LD_PRELOAD "
    text="par: libpar_mpi_${other}_test.so in LD_PRELOAD is for .*: preload libpar_mpi_$1.so, "
    $mpiexec $how$PWD/build/libpar_mpi_${other}_test.so -n 2 build/mpi_shim_$1 several >"$work/out" 2>&1
    cat "$work/out"
    [ "$(grep -c "^$text.* it runs without" "$work/out")" = 1 ] && grep -q '^done$' "$work/out" || return 1
    mpicc.$1 -O0 -w -fPIC -shared -Dmain=run tests/mpi_shim.c -o "$work/late.so" -pthread &&
        printf '%s\n' "#include <dlfcn.h>" "int main(int n, char **a) {" \
            'int (*run)(int, char **) = dlsym(dlopen("'"$work/late.so"'", RTLD_NOW), "run");' \
            "return run(n, a); }" >"$work/late.c" && cc -w "$work/late.c" -o "$work/late" -ldl || return 1
    $mpiexec -n 2 "$work/late" several | grep '^done$' || return 1 # as it is
    LD_PRELOAD=$PWD/build/libpar_mpi_${other}_test.so "$work/late" several >"$work/out" 2>&1
    cat "$work/out"
    grep -q "^$text.* ends here" "$work/out"
}
any_mpi() { # the library that MPICC makes
    mkdir -p "$work/there" && cp Makefile ./*.h "$work/there" &&
        make -s -C "$work/there" CFLAGS=-O0 MPICC="mpicc.$1" build/libpar_mpi.so || return 1
    local library=$work/there/build/libpar_mpi.so
    PAR_MPI_PRINT=1 preloaded "$1" 2 build/mpi_shim_$1 several >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && [ "$(by_kit "$work/out" all_reduce)" = 1 ]
}
not_opened() { # one rank cannot open the comm: all leave everything to MPI, and a line says why
    local program="-n 1 build/mpi_shim_$1 small"
    export PAR_MPI_MPMD=1
    case $1 in
    mpich) PAR_MPI_PRINT=1 preloaded mpich 1 build/mpi_shim_mpich small : \
        -env LD_PRELOAD "$PWD/build/libpar_mpi_mpich_test.so" -env PAR_STAGE many $program ;;
    openmpi) PAR_MPI_PRINT=1 preloaded openmpi 1 build/mpi_shim_openmpi small : $openmpi_options \
        -x LD_PRELOAD="$PWD/build/libpar_mpi_openmpi_test.so" -x PAR_STAGE=many $program ;;
    esac >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && grep -q 'PAR_STAGE.*many' "$work/out" &&
        [ "$(by_kit "$work/out" broadcast)" = 0 ] && [ "$(by_kit "$work/out" reduce)" = 0 ]
}
fuzz() { # MPI, ranks, of a node, seed, calls; on five ranks, threads may call at a time, though one does
    local what=fuzz
    [ "$2" != 5 ] || what=fuzz_threads
    PAR_NODE_RANKS=$3 PAR_MPI_PRINT=1 preloaded "$1" "$2" build/mpi_shim_$1 $what "$4" "$5" >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && ! grep -q CHECK "$work/out" &&
        { [ "$2" = 1 ] || [ "$(by_kit "$work/out" all_reduce)" -ge 40 ]; }
}
bits() { # sums have the same bits under both MPIs
    for kind in mpich openmpi; do
        preloaded $kind 3 build/mpi_shim_$kind bits | grep '^bits [0-9a-f]*$' >"$work/$kind" || return 1
    done
    diff "$work/mpich" "$work/openmpi"
}
progress() { # MPI copies a large message in pieces, which the sender makes
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
    for how in progress progress_threads; do
        preloaded "$1" 2 build/mpi_shim_$1 $how | grep -q '^done$' || return 1
    done
}
nonblocking() { # the kit runs them
    PAR_MPI_PRINT=1 preloaded "$1" 2 build/mpi_shim_$1 nonblocking >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && [ "$(by_kit "$work/out" all_reduce)" = 9 ] &&
        [ "$(by_kit "$work/out" all_gather)" = 1 ] && [ "$(by_kit "$work/out" all_gatherv)" = 1 ]
}
between_nodes() { # MPI runs the nonblocking ones
    export PAR_NODE_RANKS=1 PAR_MPI_PRINT=1
    preloaded "$1" 2 build/mpi_shim_$1 nonblocking by_mpi >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && [ "$(by_kit "$work/out" barrier)" = 2 ] &&
        [ "$(by_kit "$work/out" all_reduce)$(by_kit "$work/out" all_gather)" = "" ]
}
frees() { # communicators, in any order, with requests on their way, with callbacks
    local how
    for how in frees frees_threads; do
        preloaded "$1" 3 build/mpi_shim_$1 $how >"$work/out" 2>&1
        cat "$work/out"
        grep -q '^done$' "$work/out" && ! grep -q CHECK "$work/out" || return 1
    done
}
used_after_free() { # a collective on a communicator that a rank has freed: an error, also where MPI has calls
    PAR_TIMEOUT= preloaded "$1" 3 build/mpi_shim_$1 used_after_free >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && ! grep -q CHECK "$work/out"
}
many() { # communicators at a time, with few descriptors, little address space, or no room for all
    local how
    for how in "-n 64" "-v 4000000"; do
        (ulimit $how && PAR_MPI_PRINT=1 preloaded "$1" 2 build/mpi_shim_$1 many 200) \
            >"$work/out" 2>&1
        cat "$work/out"
        grep -q '^done$' "$work/out" && [ "$(by_kit "$work/out" all_reduce)" = 400 ] || return 1
    done
    export PAR_ARENA=12000000 PAR_MPI_PRINT=1
    preloaded "$1" 2 build/mpi_shim_$1 many 200 >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && [ "$(by_kit "$work/out" all_reduce)" -lt 400 ] &&
        grep -q 'leaves a communicator of 2 ranks to MPI.*PAR_ARENA' "$work/out"
}
no_thread() { # the kit cannot have its thread: MPI runs what is nonblocking
    PAR_MPI_PRINT=1 preloaded "$1" 2 build/mpi_shim_$1 nonblocking no_thread >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^done$' "$work/out" && [ "$(by_kit "$work/out" all_gather)" = "" ]
}
tool() { # MPI: a profiler's MPI_Wait is found before the kit's, or after it
    local kind=$1 shim=$PWD/build/libpar_mpi_$1_test.so order
    mpicc.$kind -shared -fPIC -x c - -o "$work/tool.so" <<'END' || return 1
#include <mpi.h>
#include <stdio.h>
static int waits, inits;
int MPI_Init_thread(int *c, char ***v, int l, int *p) { return inits++, PMPI_Init_thread(c, v, l, p); }
int MPI_Wait(MPI_Request *q, MPI_Status *s) { return waits++, PMPI_Wait(q, s); }
int MPI_Finalize(void) {
    return fprintf(stderr, "tool: %d inits, %d waits\n", inits, waits), PMPI_Finalize();
}
END
    for order in "$work/tool.so:$shim" "$shim:$work/tool.so"; do
        case $kind in
        mpich) mpiexec.mpich -n 2 -env LD_PRELOAD "$order" build/mpi_shim_mpich nonblocking by_mpi ;;
        openmpi)
            mpiexec.openmpi $openmpi_options -x LD_PRELOAD="$order" -n 2 build/mpi_shim_openmpi \
                nonblocking by_mpi
            ;;
        esac >"$work/out" 2>&1
        cat "$work/out"
        grep -q '^done$' "$work/out" && grep -q '^tool: 1 inits, [1-9]' "$work/out" || return 1
    done
}
out_of_memory() { # of what is packed; the program would have got a signal, or MPI's result
    for what in memory memory_threads; do
        preloaded "$1" 2 build/mpi_shim_$1 $what >"$work/out" 2>&1
        cat "$work/out"
        grep -q '^done$' "$work/out" && ! grep -q CHECK "$work/out" || return 1
    done
}
threads() { preloaded "$1" 2 build/mpi_shim_$1 threads | grep -q '^done$'; }
says() { # MPI, what, text: the error that the program gets
    PAR_TIMEOUT=1 preloaded "$1" 2 build/mpi_shim_$1 "$2" >"$work/out" 2>&1
    cat "$work/out"
    grep -q "^error: $3" "$work/out" && grep -q '^done$' "$work/out"
}
site() { # MPI: the call site in an error is a line with this call
    local at
    says "$1" mismatch "PAR_ERR_MISMATCH: rank 1 called .*(count=2, i32, op=sum) at mpi_shim_$1+0x" &&
        have addr2line || return
    at=$(sed -n 's/^error: .* at mpi_shim_[a-z]*+\(0x[0-9a-f]*\), but .*/\1/p' "$work/out")
    at=$(addr2line -e build/mpi_shim_$1 $at | sed 's/.*:\([0-9]*\).*/\1/')
    sed -n "${at}p" tests/mpi_shim.c | grep 'MPI_Allreduce(x, y, mismatch'
}
fortran() { # MPI, interface
    mpifort.$1 -cpp -DHOW=$2 -O0 -fallow-argument-mismatch -w -J "$work" tests/mpi_shim.F90 \
        -o "$work/fortran" &&
        PAR_MPI_PRINT=1 preloaded "$1" 3 "$work/fortran" >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^fortran done$' "$work/out" || return 1
    for kind in all_reduce:4 broadcast:2 reduce:2 reduce_scatter:2 reduce_scatterv:2 all_gather:2 \
        all_gatherv:1 gather:1 gatherv:2 scatter:2 scatterv:2 all_to_all:1 all_to_allv:2 barrier:9; do
        [ "$(by_kit "$work/out" ${kind%:*})" = ${kind#*:} ] || return 1
    done
}
static_fortran() { # a program that has MPICH within itself
    mpicc.mpich -O0 -DPAR_IMPLEMENTATION -I. -include par_mpi.h -x c -c /dev/null -o "$work/kit.o" &&
        mpifort.mpich -cpp -DHOW=$1 -O0 -fallow-argument-mismatch -w -J "$work" -c tests/mpi_shim.F90 \
            -o "$work/fortran.o" &&
        gfortran "$work/fortran.o" "$work/kit.o" -o "$work/fortran" -Wl,-Bstatic -lmpichfort -lmpich \
            -Wl,-Bdynamic $(pkg-config --static --libs mpich | sed 's/-lmpich//') -pthread -lm -ldl &&
        PAR_MPI_PRINT=1 mpiexec.mpich -n 3 "$work/fortran" >"$work/out" 2>&1 || return 1
    cat "$work/out"
    grep -q '^fortran done$' "$work/out" && [ "$(by_kit "$work/out" all_reduce)" = 4 ]
}
example() { # MPI: the manual's program, linked with the header's functions
    sed -n '/^EXAMPLE$/,/^[A-Z]/p' par_mpi.h | sed '1d;$d;s/^    //' >"$work/example.c"
    mpicc.$1 -c -O0 -I. "$work/example.c" -o "$work/example.o" &&
        mpicc.$1 "$work/example.o" -o "$work/example" -pthread -lm -ldl &&
        LD_PRELOAD= PAR_MPI_PRINT=1 run_example "$1" >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^sum 6$' "$work/out" && [ "$(by_kit "$work/out" all_reduce)" = 1 ]
}
run_example() {
    case $1 in
    mpich) mpiexec.mpich -n 3 "$work/example" ;;
    openmpi) mpiexec.openmpi $openmpi_options -n 3 "$work/example" ;;
    esac
}
both=""
for kind in mpich openmpi; do
    [ $kind = mpich ] || tier=release
    if ! have mpicc.$kind || ! have mpiexec.$kind; then
        skip "par_mpi.h under $kind" "apt-get install mpich libmpich-dev openmpi-bin libopenmpi-dev"
        continue
    fi
    both+=$kind
    made build/libpar_mpi_${kind}_test.so build/mpi_shim_$kind
    case $kind,${SOAK-} in # ranks, of a node, calls; MPICH's ranks burn processors while they wait
    mpich,) settings="1,,20 2,,150" ;;
    openmpi,) settings="3,2,150 5,,100" ;;
    *) settings="1,,500 2,,2000 2,1,500 3,,2000 3,2,500 4,2,500 5,,1000" ;;
    esac
    for s in $settings; do
        IFS=, read -r ranks node calls <<<"$s"
        for seed in 1 ${SOAK:+2 3 4 5}; do
            check "$kind: $ranks ranks, node ${node:-all}, seed $seed" fuzz $kind $ranks "$node" $seed $calls
        done
    done
    check "$kind: a rank does not come" says $kind hang \
        "PAR_ERR_TIMEOUT: rank 0 waited .* in par_all_reduce at mpi_shim_$kind+0x[0-9a-f]* .* for rank 1 "
    check "$kind: different calls" site $kind
    for how in "" _threads; do
        check "$kind: one of several requests fails${how/_/, }" says $kind in_status$how \
            "PAR_ERR_TIMEOUT: rank 0 waited "
    done
    check "$kind: several programs" several_programs $kind
    check "$kind: loose calls" loose $kind
    check "$kind: small calls" small $kind
    check "$kind: small sums of three ranks" small_sums $kind
    check "$kind: one rank cannot open the comm" not_opened $kind
    check "$kind: out of memory" out_of_memory $kind
    release check "$kind: threads" threads $kind
    check "$kind: nonblocking" nonblocking $kind
    check "$kind: without a thread" no_thread $kind
    check "$kind: a profiler" tool $kind
    check "$kind: communicators are freed" frees $kind
    check "$kind: a freed communicator is used" used_after_free $kind
    release check "$kind: many communicators" many $kind
    check "$kind: nonblocking, between nodes" between_nodes $kind
    check "$kind: MPI goes on while a rank waits" progress $kind
    if have mpifort.$kind; then
        for how in 1 ${SOAK:+2} 3; do check "$kind: Fortran, interface $how" fortran $kind $how; done
    else
        skip "$kind: Fortran" "apt-get install gfortran"
    fi
done
if [ "$both" = mpichopenmpi ]; then
    check "the same bits under both MPIs" bits
    for kind in mpich openmpi; do check "$kind: the other one's library" other_library $kind; done
fi
for kind in ${SOAK:+mpich} openmpi; do
    [ -n "${both##*$kind*}" ] || check "$kind: the library of make MPICC=" any_mpi $kind
done
[ -z "${both##mpich*}" ] && [ "$both" ] && tier=check check "the manual's example" example mpich
if [ "${SOAK-}" ] && have mpifort.mpich && have gfortran; then
    for how in 1 2; do check "mpich, linked statically: Fortran, interface $how" static_fortran $how; done
fi
summary

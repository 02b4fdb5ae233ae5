# Unmodified MPI programs, as they are and with par_mpi.h preloaded, in turn:
#     bash bench/mpi_programs.sh [RANKS]   a table of bench_mpi.c, under each MPI that is here, or MPI=mpich
#     bash bench/mpi_programs.sh 2 --json  the same as objects, a row each
#     PROGRAMS="lmp -in in.lj" bash bench/mpi_programs.sh   seconds of a command, under MPI=openmpi, and what
#         PAR_MPI_PRINT=1 says of rank 0 in one more run: its calls, the seconds saved (--json, too)
#     KNOWN=all bash bench/mpi_programs.sh   the same of those of docs/benchmarks.md that are in PATH, on
#         inputs that are made here, and whether their results are the same; KNOWN="hpcg osu": of these
CDPATH= cd "$(dirname "$0")/.." || exit 1
here=$PWD
ranks=${1:-2}
json=${2-}
times=${TIMES:-5}
run() { # MPI, 1: with the kit, command ...
    local kind=$1 shim="" options="--oversubscribe --mca btl_base_warn_component_unused 0"
    [ "$2" = 0 ] || shim=$here/build/libpar_mpi_$kind.so
    [ "$(id -u)" != 0 ] || options+=" --allow-run-as-root"
    shift 2
    case $kind in
    mpich) mpiexec.mpich -n "$ranks" ${shim:+-env LD_PRELOAD "$shim"} "$@" ;;
    openmpi) mpiexec.openmpi $options ${shim:+-x LD_PRELOAD="$shim"} -n "$ranks" "$@" ;;
    esac
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# MPI, name: the command of a known program, and its input in this directory. Fails where it is not installed.
known_command() {
    case $2 in
    lammps)
        uses "$1" lmp || return
        printf '%s\n' "units lj" "atom_style atomic" "lattice fcc 0.8442" "region box block 0 8 0 8 0 8" \
            "create_box 1 box" "create_atoms 1 box" "mass 1 1.0" "velocity all create 1.44 87287 loop geom" \
            "pair_style lj/cut 2.5" "pair_coeff 1 1 1.0 1.0 2.5" "neighbor 0.3 bin" \
            "neigh_modify delay 0 every 20 check no" "fix 1 all nve" "thermo 10" \
            "thermo_modify format float %20.16g" "run 400" >in.lj
        echo lmp -log none -in in.lj
        ;;
    gromacs)
        uses "$1" gmx_mpi && command -v gmx >/dev/null || return
        printf '%s\n' '#include "oplsaa.ff/forcefield.itp"' '#include "oplsaa.ff/spce.itp"' "[ system ]" \
            water "[ molecules ]" >topol.top
        printf '%s\n' integrator=md nsteps=300 dt=0.002 nstenergy=20 nstcalcenergy=20 coulombtype=PME \
            rcoulomb=0.9 rvdw=0.9 tcoupl=v-rescale tc-grps=System tau-t=0.5 ref-t=300 gen-vel=yes gen-seed=7 \
            ld-seed=7 >run.mdp
        gmx solvate -cs spc216.gro -box 3.72412 3.72412 3.72412 -p topol.top -o water.gro >said 2>&1 &&
            gmx grompp -f run.mdp -c water.gro -p topol.top -o run.tpr >said 2>&1 || return
        echo gmx_mpi mdrun -s run.tpr -reprod -ntomp 1
        ;;
    hpcc) # its own example, as a grid of 1 row
        uses "$1" hpcc && echo hpcc &&
            sed "0,/^2  *Ps/s/^2  *Ps/1 Ps/;0,/^2  *Qs/s/^2  *Qs/$ranks Qs/" \
                /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
        ;;
    scalapack) cp /usr/lib/*/scalapack/$1-tests/LU.dat . && echo /usr/lib/*/scalapack/$1-tests/xdlu ;;
    hpcg) uses "$1" xhpcg && echo xhpcg --nx=16 --rt=0 ;;
    lulesh) uses "$1" lulesh2.0 && echo lulesh2.0 -s 8 -i 40 ;;
    mpi4py)
        [ -e "${MPI4PY-}/test/runtests.py" ] && # its sources
            python3 -c 'from mpi4py import MPI; print(MPI.Get_library_version())' |
            tr -d ' ' | grep -qi "^$1" &&
            echo "python3 $MPI4PY/test/runtests.py --no-builddir -i test_cco"
        ;;
    osu) uses "$1" osu_allreduce && echo osu ;;
    *) false ;;
    esac
} 2>/dev/null
uses() { # MPI, program: it is in PATH, and linked with this MPI
    local file library='libmpi\.so\.40'
    [ "$1" != mpich ] || library=libmpich
    file=$(command -v "$2") && ldd "$file" | grep -q "$library"
}
results() { # name: those of a run in this directory
    case $1 in
    lammps) grep -E '^ +[0-9]+( +-?[0-9.]+){5}' out ;;
    gromacs) gmx dump -e ener.edr 2>/dev/null | grep -E '^ +[A-Z].* +-?[0-9]' ;;
    hpcc) grep -hE 'PASSED|FAILED|PTRANS_residual|Errors|maxErr' out hpccoutf.txt | grep -vE '^(WALL|CPU)' ;;
    scalapack) grep -E 'PASSED|FAILED|tests' out | sed -E 's/ [0-9. ]+ (PASSED|FAILED).*/ \1/' ;;
    hpcg) cat out ./*.txt | grep -iE 'residual *[=\[]|residual::' ;;
    lulesh) grep -E 'Energy +=|Diff +=' out ;;
    mpi4py) grep -aoE '^(Ran [0-9]+ tests|OK.*|FAILED.*)' out ;;
    *) : ;;
    esac | sort -u
}
# MPI, name, command: a row, in which a run begins in a copy of $work/input
measure() {
    local i kit same="" shown=$3
    [ -z "$2" ] || shown=$(sed 's#[^ ]*/##g' <<<"$3") # without places
    rm -f "$work"/us.*
    for i in $(seq "$times"); do
        for kit in 0 1; do once "$1" $kit "$2" "$3" && echo $us >>"$work/us.$kit" || return 1; done
    done
    [ -z "$2" ] || same=false
    [ -z "$2" ] || ! [ -s "$work/results.0" ] || ! cmp -s "$work"/results.[01] || same=true
    PAR_MPI_PRINT=1 once "$1" 1 "" "$3" || return 1
    for kit in 0 1; do sort -n "$work/us.$kit" | sed -n "$((times / 2 + 1))p"; done | paste -s -d ' ' |
        awk -v kind=$1 -v ranks=$ranks -v program="$shown" -v json="$json" -v same="$same" \
            -v kinds="^(all_|reduce|broadcast|gather|scatter|barrier)" '
            FILENAME != "-" && NF >= 6 && $1 ~ kinds && $2 $3 $5 ~ /^[0-9]+$/ {
                calls += $2; left += $5; saved += $6
            }
            FILENAME == "-" { mpi = $1 / 1e6; kit = $2 / 1e6 }
            END {
                row = "as it is %.3f s, with the kit %.3f s: %.3f; %d calls by the kit save %.4f s, %d left"
                if (json) {
                    printf "{\"mpi\":\"%s\",\"program\":\"%s\",\"ranks\":%d,", kind, program, ranks
                    row = "\"mpi_s\":%.3f,\"kit_s\":%.3f,\"ratio\":%.3f,\"calls\":%d,\"saved_s\":%.4f,"
                    row = row "\"left\":%d" (same ? ",\"same\":" same : "") "}"
                } else if (same)
                    row = kind ", " ranks " ranks, " program ": " row "; the same results: " same
                printf row "\n", mpi, kit, mpi / kit, calls, saved, left
            }' "$work/out" -
}
# MPI, 1: with the kit, name or "", command: $us microseconds, its output, and the results of a known one
once() {
    local begun
    if [ -e "$work/input" ]; then rm -rf "$work/run" && cp -r "$work/input" "$work/run" && cd "$work/run"; fi
    begun=${EPOCHREALTIME/[.,]/}
    run $1 $2 $4 >"$work/out" 2>&1 </dev/null || {
        echo "$1, kit $2: $4 fails:" && tail -n 5 "$work/out"
        return 1
    } >&2
    us=$((${EPOCHREALTIME/[.,]/} - begun))
    if [ "$3" ]; then
        cp "$work/out" out && results "$3" >"$work/results.$2"
        [ -s "$work/results.$2" ] || echo "$1, kit $2: $4 prints no results" >&2
    fi
    cd "$here"
}
# MPI: latencies that OSU's benchmarks print, as rows like those of bench_mpi.c
osu() {
    local i kit name options
    for name in allreduce reduce bcast allgather alltoall gather scatter reduce_scatter barrier; do
        options="-m 8:1048576"
        case $name in barrier) options="" ;; *reduce*) options+=" -T mpi_float" ;; esac
        for i in $(seq "$times"); do
            for kit in 0 1; do
                run $1 $kit osu_$name $options 2>/dev/null | awk -v name=osu_$name '
                    /^ *[0-9]/ && NF == 1 {print name, 0, $1}
                    NF > 1 && ($1 == 8 || $1 == 4096 || $1 == 65536 || $1 == 1048576) {print name, $1, $2}' \
                    >>"$work/rows.$1.$kit"
            done
        done
    done
}
known() { # names
    local kind name command given=$ranks
    [ "$*" != all ] || set -- lammps gromacs hpcc scalapack hpcg lulesh mpi4py osu
    for name in "$@"; do
        for kind in ${MPI:-mpich openmpi}; do
            rm -rf "$work/input" && mkdir "$work/input" && cd "$work/input" || return
            command=$(known_command $kind $name)
            cd "$here"
            [ $name = lulesh ] && ranks=8 || ranks=$given # a cube
            if [ -z "$command" ]; then
                echo "$name: not here for $kind" >&2
            elif make -s build/libpar_mpi_$kind.so && [ $name = osu ]; then
                osu $kind
            else
                measure $kind $name "$command"
            fi
        done
    done
}
if [ "${PROGRAMS-}" ]; then
    make -s build/libpar_mpi_${MPI:-openmpi}.so && measure ${MPI:-openmpi} "" "$PROGRAMS"
    exit
fi
[ -z "${KNOWN-}" ] || known $KNOWN
for kind in ${MPI:-mpich openmpi}; do
    [ -z "${KNOWN-}" ] && command -v mpicc.$kind >/dev/null || continue
    make -s build/libpar_mpi_$kind.so && mpicc.$kind -O2 bench/bench_mpi.c -o "$work/$kind" || exit 1
    for i in $(seq "$times"); do
        for kit in 0 1; do run $kind $kit "$work/$kind" >>"$work/rows.$kind.$kit" || exit 1; done
    done
done
row='| %s | %s | %s | %.2f | %.2f | %.2f |'
if [ "$json" ]; then
    row='{"mpi":"%s","call":"%s","bytes":%s,"ranks":'$ranks',"mpi_us":%.2f,"kit_us":%.2f,"ratio":%.2f}'
elif ls "$work"/rows.* >/dev/null 2>&1; then
    printf '| %s | %s | %s | %s | %s | %s |\n|---|---|---|---|---|---|\n' MPI call bytes "as it is, us" \
        "with the kit, us" ratio
fi
for kind in ${MPI:-mpich openmpi}; do
    [ -e "$work/rows.$kind.0" ] || continue
    awk -v kind=$kind -v row="$row\n" '{ # medians
            what = $1 " " $2; kit = FILENAME ~ /1$/
            if (!(what in seen)) { seen[what] = 1; order[++rows] = what }
            value[what, kit, ++count[what, kit]] = $3
        }
        function median(what, kit,   n, i, j, t, a) {
            n = count[what, kit]
            for (i = 1; i <= n; i++) a[i] = value[what, kit, i]
            for (i = 1; i <= n; i++)
                for (j = i + 1; j <= n; j++) if (a[j] < a[i]) { t = a[i]; a[i] = a[j]; a[j] = t }
            return a[int((n + 1) / 2)]
        }
        END {
            for (i = 1; i <= rows; i++) {
                split(order[i], part, " ")
                mpi = median(order[i], 0); kit = median(order[i], 1)
                printf row, kind, part[1], part[2], mpi, kit, mpi / kit
            }
        }' "$work/rows.$kind.0" "$work/rows.$kind.1"
done

# Unmodified MPI programs, as they are and with par_mpi.h preloaded, in turn:
#     bash bench/mpi_programs.sh [RANKS]   a table of bench_mpi.c, under each MPI that is here, or MPI=mpich
#     bash bench/mpi_programs.sh 2 --json  the same as objects, a row each
#     PROGRAMS="lmp -in in.lj" bash bench/mpi_programs.sh   seconds of a command, under MPI=openmpi, and what
#         PAR_MPI_PRINT=1 says of rank 0 in one more run: its calls, the seconds saved (--json, too)
CDPATH= cd "$(dirname "$0")/.." || exit 1
ranks=${1:-2}
times=${TIMES:-5}
run() { # MPI, 1: with the kit, command ...
    local kind=$1 shim="" options="--oversubscribe --mca btl_base_warn_component_unused 0"
    [ "$2" = 0 ] || shim=$PWD/build/libpar_mpi_$kind.so
    [ "$(id -u)" != 0 ] || options+=" --allow-run-as-root"
    shift 2
    case $kind in
    mpich) mpiexec.mpich -n "$ranks" ${shim:+-env LD_PRELOAD "$shim"} "$@" ;;
    openmpi) mpiexec.openmpi $options ${shim:+-x LD_PRELOAD="$shim"} -n "$ranks" "$@" ;;
    esac
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${PROGRAMS-}" ]; then
    kind=${MPI:-openmpi}
    make -s build/libpar_mpi_$kind.so || exit 1
    for i in $(seq "$times"); do
        for kit in 0 1; do
            begun=${EPOCHREALTIME/[.,]/}
            run $kind $kit $PROGRAMS >"$work/out.$kit" 2>&1 || exit 1
            echo $((${EPOCHREALTIME/[.,]/} - begun)) >>"$work/us.$kit"
        done
    done
    PAR_MPI_PRINT=1 run $kind 1 $PROGRAMS >"$work/table" 2>&1 || exit 1
    for kit in 0 1; do sort -n "$work/us.$kit" | sed -n "$((times / 2 + 1))p"; done | paste -s -d ' ' |
        awk -v kind=$kind -v ranks=$ranks -v program="$PROGRAMS" -v json="${2-}" '
            FILENAME != "-" && NF >= 6 && $2 $3 $5 ~ /^[0-9]+$/ { calls += $2; left += $5; saved += $6 }
            FILENAME == "-" { mpi = $1 / 1e6; kit = $2 / 1e6 }
            END {
                row = "as it is %.3f s, with the kit %.3f s: %.3f; %d calls by the kit save %.4f s, %d left\n"
                if (json) {
                    printf "{\"mpi\":\"%s\",\"program\":\"%s\",\"ranks\":%d,", kind, program, ranks
                    row = "\"mpi_s\":%.3f,\"kit_s\":%.3f,\"ratio\":%.3f,\"calls\":%d,\"saved_s\":%.4f,"
                    row = row "\"left\":%d}\n"
                }
                printf row, mpi, kit, mpi / kit, calls, saved, left
            }' "$work/table" -
    exit
fi
for kind in ${MPI:-mpich openmpi}; do
    command -v mpicc.$kind >/dev/null || continue
    make -s build/libpar_mpi_$kind.so && mpicc.$kind -O2 bench/bench_mpi.c -o "$work/$kind" || exit 1
    for i in $(seq "$times"); do
        for kit in 0 1; do run $kind $kit "$work/$kind" >>"$work/rows.$kind.$kit" || exit 1; done
    done
done
row='| %s | %s | %s | %.2f | %.2f | %.2f |'
if [ "${2-}" = --json ]; then
    row='{"mpi":"%s","call":"%s","bytes":%s,"ranks":'$ranks',"mpi_us":%.2f,"kit_us":%.2f,"ratio":%.2f}'
else
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

# In how many runs of a benchmark beside MPI does every row reach a ratio? Each run starts its ranks anew,
# bound to cores, since the luck of a run (its pages, its neighbors on the machine) lasts as long as it does.
#
#     bash bench/repeat.sh [GOAL [OPTIONS of bench_coll]]
#
# Without arguments: 1.5, --op all_reduce --memory symmetric -b 8 -e 4K -f 2. RUNS=n: so many (10). RANKS=n:
# of so many ranks (2). MPI="openmpi mpich": beside these. A line of JSON for each MPI.
set -u
export LC_ALL=C
goal=${1:-1.5} runs=${RUNS:-10} ranks=${RANKS:-2}
shift $(($# > 0))
[ $# -gt 0 ] || set -- --op all_reduce --memory symmetric -b 8 -e 4K -f 2
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for kind in ${MPI:-openmpi mpich}; do
    command -v mpicc.$kind >/dev/null && command -v mpiexec.$kind >/dev/null || {
        echo "repeat.sh: no $kind: left out" >&2
        continue
    }
    mpicc.$kind -DPAR_MPI -std=gnu11 -O2 -I. bench/bench_coll.c -o "$work/bench" -pthread -lm || exit 1
    bind="-bind-to core"
    [ $kind = openmpi ] && bind="--bind-to core --mca btl_base_warn_component_unused 0"
    [ $kind = openmpi ] && [ "$(id -u)" = 0 ] && bind="$bind --allow-run-as-root"
    : >"$work/rows"
    for run in $(seq "$runs"); do
        timeout 300 mpiexec.$kind $bind -n "$ranks" "$work/bench" --vs mpi --json "$@" 2>"$work/err" |
            sed -n "s/^{/{\"run\":$run,/p" >"$work/run"
        [ -s "$work/run" ] || {
            cat "$work/err" >&2
            exit 1
        }
        cat "$work/run" >>"$work/rows"
    done
    awk -v goal="$goal" -v runs="$runs" '
        function field(name) { # its text; "": the row has none
            if (!match($0, "\"" name "\":[^,}]*")) return ""
            return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
        }
        function look(name) {
            if (field(name) == "") return
            rows++
            if (field(name) < goal + 0) missed[field("run")] = 1
            if (rows == 1 || field(name) + 0 < lowest) {
                lowest = field(name) + 0
                where = field("op") ",\"lowest_bytes\":" field("bytes") ",\"lowest_is\":\"" name "\""
            }
        }
        {look("ratio"); look("in_place_ratio"); vs = field("vs")}
        END {
            reached = runs
            for (run in missed) reached--
            printf "{\"vs\":%s,\"goal\":%s,\"runs\":%d,\"reached\":%d,", vs, goal, runs, reached
            printf "\"ratios\":%d,\"lowest_ratio\":%s,\"lowest_op\":%s}\n", rows, lowest, where
        }' "$work/rows"
done

# Measure what bench/results/ holds, on this machine, against every MPI that is installed.
#
#     bash bench/results.sh NAME    writes bench/results/NAME.jsonl, an object a row; ten minutes on 2 cores
set -eu
export LC_ALL=C CDPATH= # numbers have a point; cd goes nowhere else
name=${1:?usage: bash bench/results.sh NAME, for bench/results/NAME.jsonl}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
out=bench/results/$name.jsonl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rows() { # label, command ...: keep its rows, and say what is going on
    printf '%s\n' "$1" >&2
    shift
    timeout 900 "$@" 2>"$work/err" | grep '^{' >>"$work/out" || {
        echo "  failed: $*" >&2
        tail -n 3 "$work/err" >&2
    }
}
printf '{"machine":"%s","cores":%d,"date":"%s"}\n' \
    "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | sed 1q)" "$(nproc)" "$(date -u +%F)" >"$work/out"
make -s bench
for kind in mpich openmpi; do
    command -v mpicc.$kind >/dev/null && command -v mpiexec.$kind >/dev/null || {
        echo "no $kind: left out" >&2
        continue
    }
    mpicc.$kind -DPAR_MPI -std=gnu11 -O2 -I. bench/bench_coll.c -o "$work/$kind" -pthread -lm
    run="mpiexec.$kind"
    [ $kind = openmpi ] && run="$run --oversubscribe --mca btl_base_warn_component_unused 0"
    [ $kind = openmpi ] && [ "$(id -u)" = 0 ] && run="$run --allow-run-as-root"
    for memory in private symmetric; do
        label="$kind, $memory memory"
        versus="--vs mpi --memory $memory --json"
        rows "$label, 2 ranks" $run -n 2 "$work/$kind" $versus --op all -b 8 -e 64M -f 8
        rows "$label, cold" $run -n 2 "$work/$kind" $versus --op all_reduce -b 16M -e 64M -f 4 --cold -n 15
        for n in 4 8; do
            for bytes in 8 1M; do
                rows "$label, $n ranks, $bytes" $run -n $n "$work/$kind" $versus --op all_reduce \
                    -b $bytes -e $bytes -n 60
            done
        done
    done
done
rows "collectives of MPI programs that are not edited" bash bench/mpi_programs.sh 2 --json
rows "known MPI programs that are here" env KNOWN=all TIMES=3 bash bench/mpi_programs.sh 2 --json
rows "the model" build/bench_coll --model --op all --json
rows "the layers" build/bench_tp --json
rows "the stages" build/bench_zero --json
rows "deaths" build/bench_fault --json
rows "deaths over TCP" build/bench_fault --node_ranks 2 --most 32 --json
rows "deaths, larger states" build/bench_fault --units 8 --width 1024 --rows 64 --runs 10 --most 2 --json
rows "pipelines" bash bench/pipelines.sh
rows "the schedules, 4 ranks" build/bench_pipe --all --ranks 4 --json
rows "the schedules, 8 ranks" build/bench_pipe --all --ranks 8 --microbatches 16 \
    --f_us 4000 --b_us 4000 --w_us 4000 --json
rows "the planner, 175 B" build/plan --model gpt3-175b --gpus 512 --gpu a100-80 --top 1 --no-why --json
rows "the planner, 1 T" build/plan --model megatron-1t --gpus 3072 --gpu a100-80 --top 1 --no-why --json
rows "overlap" build/bench_coll --overlap -b 64K -e 16M -f 4 --json
rows "diagnosis" build/bench_coll --diagnosis --json
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v mpiexec.mpich >/dev/null; then
    for n in 1 2; do
        for op in all_reduce reduce_scatter all_gather broadcast; do
            label="two hosts of $n ranks, 1 Gbit/s, $op"
            hosts="bash bench/two_hosts.sh $n 1000 --op $op -b 64K -e 4M -f 8 -n 15 --no-in_place --json"
            rows "$label, TCP" env OVER=tcp $hosts
            rows "$label" $hosts
        done
    done
    rows "two hosts, overlap" bash bench/two_hosts.sh 1 1000 --overlap -b 64K -e 4M -f 8 --json
fi
mv "$work/out" "$out"
echo "$out: $(wc -l <"$out") rows"

# What the same bits cost: the trainer with --canonical and without, one after the other in each round, so
# that both suffer alike from what else the machine does. Prints one JSON row for each layout: the medians of
# tokens/s over all steps but the first, their ratio, and that of the processor time of all ranks.
#
#     bash bench/canonical.sh [ROUNDS [LAYOUT...]]   5 rounds, of the layouts below; or options of build/gpt
set -eu
export LC_ALL=C CDPATH= # numbers have a point; cd goes nowhere else
cd "$(dirname "$0")/.."
make -s build/gpt build/corpus.txt
rounds=${1:-5}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- "" "--ranks 2" "--ranks 2 --zero 3" "--ranks 2 --tp 2" "--ranks 2 --tp 2 --sp" \
    "--ranks 2 --cp 2" "--ranks 2 --pp 2" "--dtype bf16" "--optimizer lamb" "--optimizer muon" \
    "--state_dtype u8" "--ranks 2 --tp 2 --state_dtype u8"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
common="--data build/corpus.txt --arch llama --n_layer 4 --n_head 4 --n_embd 256 --block_size 128"
common+=" --batch_size 2 --gradient_accumulation_steps 4 --max_iters 5 --warmup_iters 1 --eval_iters 0"
common+=" --sample 0 --json"
median() { sort -g "$1" | awk '{x[NR] = $1} END {printf "%.1f", x[int((NR + 1) / 2)]}'; }
seconds() { awk '{s += $1 + $2} END {printf "%.2f", s}' "$1"; }
TIMEFORMAT="%U %S"
for layout in "$@"; do
    rm -f "$work"/*
    for round in $(seq "$rounds"); do
        for canonical in 0 4; do
            { time build/gpt $common $layout --canonical $canonical >"$work/out" 2>"$work/err"; } \
                2>>"$work/time.$canonical"
            sed -n 's/.*"tokens_per_s":\([0-9.e+]*\)}/\1/p' "$work/out" | tail -n +2 >>"$work/rate.$canonical"
            [ $canonical != 0 ] || library=$(sed -n 's/.*"gemm":\("[^"]*"\).*/\1/p' "$work/out")
        done
    done
    default=$(median "$work/rate.0") same=$(median "$work/rate.4")
    printf '{"layout":"%s","library":%s,"default_tokens_per_s":%s,"canonical_tokens_per_s":%s,' \
        "${layout:-one rank}" "$library" "$default" "$same"
    awk "BEGIN {printf \"\\\"ratio\\\":%.3f,\\\"processor_ratio\\\":%.3f}\\n\", $same / $default, \
        $(seconds "$work/time.0") / $(seconds "$work/time.4")}"
done

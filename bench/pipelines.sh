# Schedules with real computation: the trainer on two stages, one after the other in each round, so that all
# suffer alike from what else the machine does. Prints one JSON row for each: the median of tokens/s over all
# steps.
#
#     bash bench/pipelines.sh [ROUNDS]
set -eu
export LC_ALL=C CDPATH= # numbers have a point; cd goes nowhere else
cd "$(dirname "$0")/.."
make -s build/gpt build/corpus.txt
rounds=${1:-7}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model="--data build/corpus.txt --n_layer 6 --n_head 4 --n_embd 256 --block_size 128 --batch_size 2"
model="$model --gradient_accumulation_steps 4 --max_iters 6 --eval_iters 0 --sample 0 --warmup_iters 1"
variants="1f1b|zb_h1|zb_v|gpipe|gpipe --recompute full|none" # none: one rank, no pipeline
round=0
while [ $((round += 1)) -le "$rounds" ]; do
    [ ! -t 2 ] || printf '\rround %d of %d ' "$round" "$rounds" >&2
    echo "$variants" | tr '|' '\n' | while read -r v; do
        name=$(echo "$v" | tr -d ' -')
        how="--ranks 2 --pp 2 --schedule $v"
        [ "$v" != none ] || how=
        build/gpt $model $how --plan --json >"$work/out" 2>/dev/null
        sed -n 's/.*"tokens_per_s":\([0-9.e+]*\)}/\1/p' "$work/out" | tail -n +2 >>"$work/$name"
        sed -n 's/.*"plan":true,"ranks":"0".*"activation_bytes":\([0-9]*\).*/\1/p' "$work/out" \
            >"$work/$name.bytes"
    done
done
[ ! -t 2 ] || printf '\r%30s\r' '' >&2
echo "$variants" | tr '|' '\n' | while read -r v; do
    name=$(echo "$v" | tr -d ' -')
    median=$(sort -g "$work/$name" | awk '{x[NR] = $1} END {printf "%.1f", x[int((NR + 1) / 2)]}')
    printf '{"pipeline":"%s","stages":2,"microbatches":4,"tokens_per_s":%s,"activation_bytes":%s}\n' \
        "$v" "$median" "$(cat "$work/$name.bytes")"
done

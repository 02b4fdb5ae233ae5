# Moments of fewer bytes: the trainer's losses on one model, data and seed with each state_dtype. Prints one
# JSON row for each optimizer and state_dtype: the last training and validation loss, their ratios to f32's.
#
#     bash bench/states.sh [STEPS [OPTION...]]   2000 steps; options of build/gpt, --data FILE for other text
set -eu
export LC_ALL=C CDPATH= # numbers have a point; cd goes nowhere else
cd "$(dirname "$0")/.."
make -s build/gpt build/corpus.txt
steps=${1:-2000}
[ $# = 0 ] || shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
common="--data build/corpus.txt --gradient_accumulation_steps 1 --max_iters $steps --warmup_iters 100"
common+=" --eval_iters 20 --eval_interval 0 --log_interval 1 --sample 0 --json"
ratio() { awk "BEGIN {printf \"%.5f\", $1 / $2}"; }
for optimizer in adamw lion muon; do
    rate=1e-3
    [ "$optimizer" != lion ] || rate=1e-4 # signs: a tenth of AdamW's
    for states in f32 bf16 u8; do
        build/gpt $common --optimizer $optimizer --learning_rate $rate --state_dtype $states "$@" \
            >"$work/$states"
        # the mean of the last 50 steps: one alone depends on its batch
        train=$(sed -n 's/^{"step.*"loss":\([0-9.]*\).*/\1/p' "$work/$states" | tail -n 50 |
            awk '{s += $1} END {printf "%.5f", s / NR}')
        val=$(sed -n 's/.*"val_loss":\([0-9.]*\).*/\1/p' "$work/$states" | tail -n 1)
        [ "$states" != f32 ] || train_f32=$train val_f32=$val
        printf '{"optimizer":"%s","state_dtype":"%s","steps":%d,' "$optimizer" "$states" "$steps"
        printf '"train_loss":%s,"val_loss":%s,' "$train" "$val"
        printf '"train_vs_f32":%s,"val_vs_f32":%s}\n' "$(ratio "$train" "$train_f32")" \
            "$(ratio "$val" "$val_f32")"
    done
done

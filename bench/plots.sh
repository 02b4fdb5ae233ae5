# Draw the pictures of the pages, from the kit's own programs and from bench/results: make plots.
#
#     bash bench/plots.sh [DIR]    into DIR instead of docs/ and bench/results/
set -eu
export LC_ALL=C CDPATH= # numbers have a point; cd goes nowhere else
there=${1:+$(cd "$1" && pwd)}
cd "$(dirname "$0")/.."
docs=${there:-docs} results=${there:-bench/results}
build/bench_pipe --schedule 1f1b --compare zb_h1 --ranks 4 --simulate --json \
    --svg "$docs/zb_h1.svg" >/dev/null
build/plan --model gpt3-175b --gpus 512 --gpu a100-80 --batch 2048 --seq 2048 --no-why --json \
    --svg "$docs/plan.svg" >/dev/null
awk -f bench/field.awk -f bench/ratios.awk bench/results/*.jsonl >"$results/ratios.svg"
awk -f bench/field.awk -f bench/curves.awk bench/results/nanogpt.jsonl >"$results/nanogpt.svg"
awk -f bench/field.awk -f bench/scale.awk bench/results/simulated.jsonl >"$results/simulated.svg"

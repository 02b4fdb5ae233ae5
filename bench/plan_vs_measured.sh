# The planner against the trainer: all layouts of 2 and 4 ranks, for two sizes of model, are predicted by
# build/gpt --auto, which measures this machine first, and then trained, both in rounds, so that all suffer
# alike from what else the machine does. Prints a row for each layout: of its rounds' median steps the middle
# one, beside the middle prediction; and how far the layout that --auto takes is from the fastest. Ranks may
# outnumber processors.
#
#     bash bench/plan_vs_measured.sh [--json] [PART ...]     small-2 small-4 large-2 large-4; without: all
#
# ROUNDS=n, STEPS=n: rounds (3), and steps of a training (small 20, large 8); OPTIONS: more options of the
# trainer ("--dtype bf16").
set -eu
export LC_ALL=C CDPATH= # numbers have a point; cd goes nowhere else
cd "$(dirname "$0")/.."
json=0
[ "${1-}" != --json ] || { json=1 && shift; }
[ $# -gt 0 ] || set -- small-2 small-4 large-2 large-4
make -s build/gpt build/corpus.txt
rounds=${ROUNDS:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quiet="--data build/corpus.txt --eval_iters 0 --sample 0 --json ${OPTIONS-}"
say() { [ ! -t 2 ] || printf '\r%-70s' "$*" >&2; }
middle() { sort -g "$1" | awk '{x[NR] = $1} END {print x[int((NR + 1) / 2)]}'; } # of a file's numbers
plan() { # ranks, options: what --auto says, into $work/places
    build/gpt --ranks "$@" $quiet --auto --max_iters 0 >"$work/auto" 2>"$work/log" || {
        cat "$work/log" >&2 && exit 1
    }
    grep '"place":' "$work/auto" >"$work/places"
}
value() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$2"; } # field, file

for part; do
    ranks=${part#*-}
    case $part in
    small-[1-9]) model="--n_layer 4 --n_head 4 --n_embd 128 --block_size 64" tokens=1024 steps=20 ;;
    large-[1-9]) model="--n_layer 4 --n_head 4 --n_embd 384 --block_size 128" tokens=2048 steps=8 ;;
    *) echo "plan_vs_measured: no part $part: small-2 small-4 large-2 large-4" >&2 && exit 2 ;;
    esac
    batch=16 steps=${STEPS:-$steps}
    model="$model --batch_size $((batch / ranks)) --gradient_accumulation_steps $ranks"
    say "$part: --auto"
    plan "$ranks" $model
    value options "$work/places" >"$work/options"
    value layout "$work/places" >"$work/layouts"
    count=$(grep -c . "$work/options") round=0
    rm -f "$work"/times.* "$work"/predicted.*
    while [ $((round += 1)) -le "$rounds" ]; do
        i=0
        [ $round = 1 ] || plan "$ranks" $model
        while read -r how; do
            say "$part: round $round of $rounds, layout $((i += 1)) of $count"
            grep -e "\"${how%% --zero*} --zero" "$work/places" >"$work/place" # the same --pp, --tp, --cp
            value predicted_seconds "$work/place" >>"$work/predicted.$i"
            build/gpt --ranks "$ranks" $model $quiet $how --max_iters "$steps" --warmup_iters 1 \
                </dev/null >"$work/out" 2>"$work/log" || { cat "$work/log" >&2 && exit 1; }
            value tokens_per_s "$work/out" | tail -n +2 >"$work/steps"
            awk -v t=$tokens -v rate="$(middle "$work/steps")" 'BEGIN {print t / rate}' >>"$work/times.$i"
        done <"$work/options"
    done
    i=0
    while [ $((i += 1)) -le "$count" ]; do
        echo "$part	$(middle "$work/predicted.$i")	$(middle "$work/times.$i")	$(sed -n ${i}p "$work/layouts")"
    done | sort -t '	' -k 2,2g >>"$work/rows"
done
say
awk -F '\t' -v json=$json '
    !($1 in best) || $3 < best[$1] {best[$1] = $3}
    !($1 in taken) {taken[$1] = $3; order[++parts] = $1}
    {
        e = $2 / $3 - 1
        if (json) {
            printf "{\"plan_vs_measured\":\"%s\",\"layout\":\"%s\",\"predicted_s\":%s,", $1, $4, $2
            printf "\"measured_s\":%s,\"error\":%.4f}\n", $3, e
        } else printf "%-8s %9.4f s  predicted %9.4f s  %+6.1f%%  %s\n", $1, $3, $2, 100 * e, $4
        if (e < 0) e = -e
        sum += e
        if (e > most) most = e
    }
    END {
        for (i = 1; i <= parts; i++) {
            lost = taken[order[i]] / best[order[i]] - 1
            if (lost > worst) worst = lost
            if (!json) printf "%-8s --auto is %.1f%% slower than the fastest\n", order[i], 100 * lost
        }
        if (json) {
            printf "{\"summary\":true,\"plan_vs_measured\":%d,\"average_error\":%.4f,", NR, sum / NR
            printf "\"largest_error\":%.4f,\"auto_loss\":%.4f}\n", most, worst
        } else {
            printf "%d layouts: average error %.1f%%, largest %.1f%%; ", NR, 100 * sum / NR, 100 * most
            printf "--auto at most %.1f%% slower than the fastest\n", 100 * worst
        }
    }' "$work/rows"

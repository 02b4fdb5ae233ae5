# The planner against the trainer: all grids of 2 and 4 ranks, for two sizes of model, are trained by
# build/gpt with what build/gpt_auto --pp P --tp T --cp C prints, which measures this machine and predicts.
# The steps follow their prediction at once, and a round has all grids by turns: a machine that is slower for
# a while slows both. Prints a row for each grid: of its rounds the middle step beside the middle prediction,
# and the middle of their ratios; and how far the grid that gpt_auto takes is from the fastest, both by their
# rounds' middle ratio of a step to a layer as it was measured just before. Ranks may outnumber processors.
#
#     bash bench/plan_vs_measured.sh [--json] [PART ...]     small-2 small-4 large-2 large-4; without: all
#
# ROUNDS=n, STEPS=n: rounds (3), and steps of a training (small 20, large 8); OPTIONS: more options of the
# trainer ("--dtype bf16"). ROWS=FILE: keeps the runs there, and counts those that it has: many rounds in
# several calls.
set -eu
export LC_ALL=C CDPATH= # numbers have a point; cd goes nowhere else
cd "$(dirname "$0")/.."
json=0
[ "${1-}" != --json ] || { json=1 && shift; }
[ $# -gt 0 ] || set -- small-2 small-4 large-2 large-4
make -s build/gpt build/gpt_auto build/corpus.txt
rounds=${ROUNDS:-3}
work=$(mktemp -d)
rows=${ROWS:-$work/rows}
trap 'rm -rf "$work"' EXIT
quiet="--data build/corpus.txt --eval_iters 0 --sample 0 --warmup_iters 1 --json ${OPTIONS-}"
say() { [ ! -t 2 ] || printf '\r%-70s' "$*" >&2; }
middle() { sort -g | awk '{x[NR] = $1} END {print x[int((NR + 1) / 2)]}'; }
value() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; } # of a field
train() { # options: plans and trains so, into $work/run
    build/gpt_auto $quiet "$@" </dev/null >"$work/run" 2>"$work/log" &&
        build/gpt $quiet "$@" $(value options <"$work/run" | head -n 1) </dev/null >>"$work/run" \
            2>"$work/log" || {
        cat "$work/log" >&2 && exit 1
    }
}

for part; do
    ranks=${part#*-}
    case $part in
    small-[1-9]) model="--n_layer 4 --n_head 4 --n_embd 128 --block_size 64" tokens=1024 steps=20 ;;
    large-[1-9]) model="--n_layer 4 --n_head 4 --n_embd 384 --block_size 128" tokens=2048 steps=8 ;;
    *) echo "plan_vs_measured: no part $part: small-2 small-4 large-2 large-4" >&2 && exit 2 ;;
    esac
    batch=16 steps=${STEPS:-$steps} round=0
    model="--ranks $ranks $model --batch_size $((batch / ranks)) --gradient_accumulation_steps $ranks"
    say "$part: gpt_auto"
    train $model --max_iters 0
    value options <"$work/run" | sed 's/ --zero.*//' >"$work/grids"
    while [ $((round += 1)) -le "$rounds" ]; do
        while read -r grid; do
            say "$part: round $round of $rounds, $grid"
            train $model $grid --max_iters "$steps"
            rate=$(value tokens_per_s <"$work/run" | tail -n +2 | middle)
            grep '"place":1,' "$work/run" >"$work/place"
            printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$part" "$grid" "$(value predicted_seconds <"$work/place")" \
                "$(awk -v t=$tokens -v r="$rate" 'BEGIN {print t / r}')" \
                "$(value layer_seconds <"$work/run" | head -n 1)" "$(value layout <"$work/place")"
        done <"$work/grids"
    done >>"$rows"
done
say
awk -F '\t' -v json=$json '
    function middle(of, n) { # of an even count the mean of the two in the middle
        n = sort(of)
        return (sorted[int((n + 1) / 2)] + sorted[int(n / 2) + 1]) / 2
    }
    function share(of, part, i) { # of the numbers in a text the one below which such a part is
        i = int(part * sort(of) + .5)
        return sorted[i < 1 ? 1 : i] + 0
    }
    function sort(of, n, i, j, x) { # into sorted; returns how many
        n = split(of, sorted, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && sorted[j - 1] + 0 > sorted[j] + 0; j--) {
                x = sorted[j]
                sorted[j] = sorted[j - 1]
                sorted[j - 1] = x
            }
        return n
    }
    {
        key = $1 FS $2
        if (!(key in ratio)) order[++rows] = key
        predicted[key] = predicted[key] " " $3
        measured[key] = measured[key] " " $4
        ratio[key] = ratio[key] " " $3 / $4
        layers[key] = layers[key] " " $4 / $5
        part[key] = $1
        runs[key]++
        layout[key] = $6
    }
    END {
        for (i = 1; i <= rows; i++) { # the first of a part is what gpt_auto takes
            k = order[i]
            p = part[k]
            cost = middle(layers[k])
            if (!(p in taken)) {taken[p] = best[p] = cost; parts[++count] = p}
            if (cost < best[p]) best[p] = cost
            e = middle(ratio[k]) - 1
            if (json) {
                printf "{\"plan_vs_measured\":\"%s\",\"layout\":\"%s\",", p, layout[k]
                printf "\"predicted_s\":%s,\"measured_s\":%s,", middle(predicted[k]), middle(measured[k])
                printf "\"runs\":%d,\"error\":%.4f,", runs[k], e
                printf "\"error_quarter\":%.4f,\"error_three_quarters\":%.4f}\n", share(ratio[k], .25) - 1,
                    share(ratio[k], .75) - 1
            } else {
                printf "%-8s %9.4f s  predicted %9.4f s  ", p, middle(measured[k]), middle(predicted[k])
                printf "%+6.1f%% (half of %d runs: %+.0f to %+.0f%%)  %s\n", 100 * e, runs[k],
                    100 * share(ratio[k], .25) - 100, 100 * share(ratio[k], .75) - 100, layout[k]
            }
            if (e < 0) e = -e
            sum += e
            if (e > most) most = e
        }
        for (i = 1; i <= count; i++) {
            lost = taken[parts[i]] / best[parts[i]] - 1
            if (lost > worst) worst = lost
            if (!json) printf "%-8s gpt_auto is %.1f%% slower than the fastest\n", parts[i], 100 * lost
        }
        if (json) {
            printf "{\"summary\":true,\"plan_vs_measured\":%d,\"average_error\":%.4f,", rows, sum / rows
            printf "\"largest_error\":%.4f,\"auto_loss\":%.4f}\n", most, worst
        } else {
            printf "%d layouts: average error %.1f%%, largest %.1f%%; ", rows, 100 * sum / rows, 100 * most
            printf "gpt_auto at most %.1f%% slower than the fastest\n", 100 * worst
        }
    }' "$rows"

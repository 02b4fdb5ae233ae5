# Trainings whose ranks are killed: each must end with the weights of an undisturbed one, to the bit, and
# leave no process. Victims and moments are chosen by a seed; moments are lines of output, not times.
#     bash tests/storm.sh [RUNS [SEED]]     10 runs; 200 take some minutes. FIRST=n: from run n on
# A run: a layout on 4 to 9 ranks, and 1 to 3 kills: of any rank, rank 0, a spare or a new one too, one after
# another or together, while it trains, saves, or recovers from the kill before. 4/2: two ranks on each of two
# pretended nodes, over TCP.
set -u
cd "$(dirname "$0")/.." || exit
runs=${1:-10} seed=${2:-1} gpt=${GPT:-build/gpt} steps=24
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 500000 build/corpus.txt >"$work/corpus.txt" || exit # make may write build/corpus.txt again
model="--data $work/corpus.txt --n_layer 2 --n_head 2 --n_embd 16 --block_size 16 --batch_size 8
    --max_iters $steps --eval_iters 0 --sample 0 --json --canonical 4 --seed 5"
layouts=("4 --zero 1" "4 --zero 3" "4 --zero 0" "4 --zero 2 --optimizer muon"
    "8 --zero 1 --pp 2 --batch_size 16" "8 --zero 3 --tp 2 --batch_size 16"
    "5 --zero 1 --spares 1" "8 --zero 0 --pp 2 --tp 2" "6 --zero 1 --pp 2 --spares 2"
    "9 --zero 3 --pp 2 --tp 2 --spares 1" "7 --zero 2 --tp 2 --spares 3 --sp" "4 --zero 1 --regrow"
    "4 --zero 3 --pp 2 --regrow --arch llama" "5 --zero 2 --cp 2 --spares 1 --regrow"
    "4 --zero 0 --pp 2 --schedule dualpipe --regrow" "8 --zero 1 --cp 2 --tp 2 --arch llama --n_head 4"
    "4/1 --zero 1" "6/2 --zero 3 --pp 2 --spares 2" "8/2 --zero 1 --tp 2 --batch_size 16" "4/2 --zero 0")
draw() { # a number below $1, from the seed: the same on every machine
    state=$(((state * 1103515245 + 12345) % 2147483648))
    drawn=$((state / 65536 % $1))
}
await_line() { # text in the output, at least $2 times: or until the run has ended
    until [ "$(grep -c -- "$1" "$out")" -ge "$2" ]; do
        kill -0 $pid 2>/dev/null || return
        sleep 0.005
    done
}
train() { # layout, options: until it has ended. Over TCP this shell starts the ranks, as a launcher does
    local ranks=${1%% *} options=${1#* } status=1 pids=() r
    [ "$ranks" != "${ranks#*/}" ] || exec $gpt $model --ranks $1 --elastic "${@:2}"
    export PAR_NODE_RANKS=${ranks#*/} WORLD_SIZE=${ranks%/*} MASTER_ADDR=127.0.0.1
    export MASTER_PORT=$((10000 + $$ % 10000)) PAR_JOB=storm.$$
    for ((r = 0; r < WORLD_SIZE; r++)); do
        RANK=$r $gpt $model $options --elastic "${@:2}" &
        pids[r]=$!
    done
    for r in "${pids[@]}"; do
        wait $r
        case $? in
        0) status=0 ;;
        137) ;;
        *) exit 9 ;;
        esac
    done
    exit $status
}
strike() { # how many ranks: kill them, as the supervisor has them now
    local children=($(cat /proc/$pid/task/$pid/children 2>/dev/null)) i
    for ((i = 0; i < $1 && ${#children[@]} > 1; i++)); do
        draw ${#children[@]}
        kill -KILL "${children[drawn]}" 2>/dev/null
        unset "children[drawn]"
        children=("${children[@]}")
    done
}
whole() { # layout: its weights without a kill
    local key=${1//[^a-z0-9]/_}
    [ -d "$work/$key" ] || (train "$1" --export "$work/$key") >"$work/log" 2>&1 || cat "$work/log"
    reference=$work/$key
}
run() { # number
    local layout kills moment count n=1 files= status
    state=$((seed * 1000 + $1)) && draw 1 && draw ${#layouts[@]} && layout=${layouts[drawn]}
    [ "$1" -gt ${#layouts[@]} ] || layout=${layouts[$1 - 1]}
    whole "$layout"
    out=$work/out && : >"$out"
    draw 3 && kills=$((drawn + 1))
    [ $kills = 1 ] || files="--save $work/save --save_interval 5"
    (train "$layout" $files --export "$work/end") >"$out" 2>&1 &
    pid=$!
    draw $((steps - 8)) && await_line "\"step\":$((drawn + 1))," 1
    until [ -z "$files" ] || [ -e "$work/save/manifest.json" ] || ! kill -0 $pid 2>/dev/null; do
        sleep 0.005 # buddies may die together
    done
    while [ $kills -gt 0 ]; do
        draw 3 && moment=$drawn
        count=1
        [ $moment = 2 ] && [ $kills -gt 1 ] && count=2
        strike $count
        kills=$((kills - count))
        [ $moment = 0 ] && await_line "died while" $n # at once: in the recovery
        [ $moment = 0 ] || await_line "from step" $n
        n=$((n + 1))
    done
    timeout 100 tail --pid=$pid -f /dev/null || { kill -KILL $pid && echo "it hangs"; }
    wait $pid
    status=$?
    pgrep -f "$work/end" >/dev/null && echo "it leaves processes" && status=1
    pkill -KILL -f "$work/end"
    if grep -q "have no whole copy" "$out"; then echo "run $1 ($layout): too few were left" && return 0; fi
    [ $status = 0 ] && cmp "$reference/model.safetensors" "$work/end/model.safetensors" && return 0
    echo "run $1 ($layout): status $status" && grep -v '"step"' "$out"
    return 1
}
failed=0
for ((number = ${FIRST:-1}; number <= runs; number++)); do
    run $number || failed=$((failed + 1))
    rm -rf "$work/save" "$work/end"
done
echo "$runs runs, $failed failed"
[ $failed = 0 ]

# The same bits on every grid and every processor: checkpoints of --canonical after 10 steps. Their checksums
# are those of tests/golden/bits.txt, which another machine made in another year. A row is
#     model | build | environment | options
# and make check takes the rows that together have each pair of what they name; SOAK=1 takes all.
. tests/lib.sh
unset PAR_GEMM # it would take another library than the canonical product
golden=tests/golden/bits.txt
seq 1 4000 >build/bits.data # and build/bits.csv: rows are split at spaces, which TMPDIR may have

common="--data build/bits.data --batch_size 2 --gradient_accumulation_steps 4 --block_size 36 --canonical 8"
common+=" --n_layer 2 --n_embd 32 --learning_rate 1e-2 --warmup_iters 3 --eval_iters 0 --sample 0 --json"
models="gpt2 llama bf16 lamb lamb8 lion muon sgd wide"
options_of() { # model
    case $1 in
    gpt2) echo "--n_head 4 --dropout 0.1" ;;
    llama) echo "--n_head 2 --arch llama --n_layer 4" ;;
    bf16) echo "--n_head 2 --arch llama --dtype bf16 --state_dtype u8" ;;
    lamb) echo "--n_head 2 --optimizer lamb --dropout 0.1" ;;
    lamb8) echo "--n_head 2 --optimizer lamb --state_dtype u8" ;;
    lion) echo "--n_head 2 --arch llama --optimizer lion --state_dtype bf16" ;;
    muon) echo "--n_head 2 --optimizer muon --dtype bf16" ;;
    sgd) echo "--n_head 2 --optimizer sgd --dropout 0.1" ;;
    # sums of several blocks of 256: over features, tokens and the vocabulary
    wide) echo "--n_head 2 --n_layer 1 --n_embd 68 --block_size 260 --vocab_size 520" ;;
    esac
}
# model, checkpoint: compare its checksum with the golden one; without a golden one, print it
compare() {
    local sum=$(checkpoint_content "$2" | sha256sum | cut -c1-16)
    ls "$2"/model-s* "$2"/optimizer-s* "$2"/manifest.json >/dev/null && grep -qx "$1 $sum" $golden && return
    echo "$1 is $sum, but $golden has $(grep "^$1 " $golden)"
    return 1
}
# model, program, environment, options: the checkpoint after 10 steps has the golden checksum
row() {
    rm -rf "$work/ck"
    echo "$1, $2: $3 $4"
    env $3 $2 $common $(options_of "$1") --max_iters 10 $4 --save "$work/ck" >/dev/null &&
        compare "$1" "$work/ck"
}
# model, options there, options here: four steps there, and six here
goes_on() {
    rm -rf "$work/there" "$work/ck"
    echo "$1: $2, then $3"
    local train="build/gpt $common $(options_of "$1") --lr_decay_iters 10"
    $train --max_iters 4 $2 --save "$work/there" >/dev/null &&
        $train --max_iters 10 $3 --load "$work/there" --save "$work/ck" >/dev/null &&
        compare "$1" "$work/ck"
}

# Each row takes another value of several things at once: dp and the stage of ZeRO, pipelines, instruction
# set, nodes, algorithms.
grids() {
    row gpt2 build/gpt "PAR_ISA=base" "--ranks 1" &&
        row gpt2 build/gpt "PAR_ISA=avx2 PAR_NODE_RANKS=2" "--ranks 4 --zero 3" &&
        row gpt2 build/gpt "PAR_NODE_RANKS=1" "--ranks 2 --zero 2" &&
        row gpt2 build/gpt "PAR_ISA=avx2" "--ranks 8 --tp 4 --sp --zero 2" &&
        row lamb build/gpt "PAR_ISA=avx2" "--ranks 8 --parameter_server" &&
        row lamb build/gpt "PAR_ALGO=reduce_scatter:halving" "--ranks 4 --tp 2 --zero 1" &&
        row bf16 build/gpt "PAR_ISA=avx2" "--ranks 1" &&
        row bf16 build/gpt "PAR_NODE_RANKS=2" "--ranks 4 --tp 2 --zero 2" &&
        row muon build/gpt "PAR_ISA=avx2" "--ranks 4 --tp 2 --sp --zero 3" &&
        row sgd build/gpt "PAR_ISA=base" "--ranks 4 --tp 2 --zero 2" &&
        row gpt2 build/gpt "" "--ranks 8 --tp 2 --sp --cp 2 --zero 3" &&
        row wide build/gpt "PAR_ISA=avx2" "--ranks 2 --tp 2" || return 1
    fails 1 "multiple of 8 sequences.*ranks are 1 .* times 1, 2, 4 ... 8: not 8 sequences on 3 ranks" \
        build/gpt $common --ranks 3 &&
        fails 1 "tp must be a power of two up to 8" build/gpt $common --ranks 16 --tp 16 --n_head 16 &&
        fails 1 "divide the 2 key-value heads" build/gpt $common --ranks 4 --n_kv_head 2 --tp 2 --cp 2
}
# A table of two stages, in which each rank completes the microbatches in an order of its own, by halves of
# backward (I and W) and whole ones (B).
table() {
    each() { printf "$1%s," "${@:2}"; } # kind, microbatches
    echo "$(each 0F 0 1 2 3 4 5 6 7)$(each 0I 6 2 4 0 7)$(each 0B 1 3 5)$(each 0W 0 6 7 2 4)"
    echo "$(each 1F 0 1 2 3 4 5 6 7)$(each 1B 6 2 4)$(each 1I 0 7 1 3 5)$(each 1W 3 0 5 1 7)"
}
# The embedding of gpt2, lamb and lamb8 is tied: its two uses are on two ranks, or (dualpipe) each rank has
# both.
pipelines() {
    table >build/bits.csv
    row gpt2 build/gpt "PAR_ISA=avx2" "--ranks 4 --pp 2 --tp 2 --sp --schedule build/bits.csv" &&
        row gpt2 build/gpt "PAR_NODE_RANKS=2" "--ranks 4 --pp 2 --schedule zb_h1 --zero 1" &&
        row llama build/gpt "PAR_NODE_RANKS=2" "--ranks 4 --pp 4 --schedule gpipe" &&
        row llama build/gpt "" "--ranks 4 --pp 2 --schedule interleaved_1f1b --zero 2" &&
        row lion build/gpt "" "--ranks 4 --pp 2 --tp 2 --schedule v_min" && # rounds at random
        row lamb build/gpt "" "--ranks 4 --pp 2 --schedule dualpipe --zero 3" &&
        row lamb8 build/gpt "" "--ranks 4 --pp 2 --tp 2 --zero 1"
}
resumed() {
    goes_on gpt2 "--ranks 2 --zero 3" "--ranks 4 --zero 1" &&
        goes_on llama "--ranks 4 --pp 2 --zero 1 --schedule looped_bfs" "--ranks 3 --pp 3" &&
        goes_on bf16 "--ranks 1" "--ranks 2 --tp 2" # blocks of whole tensors, whose parts are here and there
}
# every model, on every number of ranks in every stage, while the other things take turns
all_grids() {
    local model ranks zero i=0
    local isas=(base avx2 avx512) nodes=("" PAR_NODE_RANKS=1 PAR_NODE_RANKS=2)
    local algorithms=("" PAR_ALGO=reduce_scatter:halving PAR_ALGO=all_reduce:twoshot,reduce_scatter:oneshot)
    for model in $models; do
        for ranks in 1 2 4 8; do
            for zero in 0 1 2 3; do
                row $model build/gpt "PAR_ISA=${isas[i % 3]} ${nodes[i / 3 % 3]} ${algorithms[i / 2 % 3]}" \
                    "--ranks $ranks --zero $zero" || return 1
                i=$((i + 1))
            done
        done
    done
    for i in "--tp 2" "--tp 4 --sp" "--tp 2 --sp --zero 3" "--cp 2 --tp 2" \
        "--cp 2 --cp_mode ring --zero 2"; do
        for model in $models; do
            case "$model $i" in gpt2*) ;; *"--tp 4 --sp" | *"--cp 2 --tp 2") continue ;; esac # two heads
            row $model build/gpt "" "--ranks 4 $i" && row $model build/gpt "" "--ranks 8 $i" || return 1
        done
    done
}
# every schedule, with a tied embedding and without one; tables, in every stage
all_pipelines() {
    local model i
    table >build/bits.csv
    for model in gpt2 llama; do
        for i in naive gpipe 1f1b interleaved_1f1b interleaved_zb looped_bfs zb_h1 zb_h2 zb_v v_half v_min \
            dualpipe dualpipev auto; do
            row $model build/gpt "" "--ranks 2 --pp 2 --schedule $i" &&
                row $model build/gpt "" "--ranks 8 --pp 4 --tp 2 --sp --schedule $i" &&
                row $model build/gpt "" "--ranks 8 --pp 2 --cp 2 --schedule $i --zero 3" &&
                row $model build/gpt "" "--ranks 4 --pp 2 --schedule $i --zero 1" || return 1
        done
        for i in 0 1 2 3; do
            row $model build/gpt "" "--ranks 4 --pp 2 --schedule build/bits.csv --tp 2 --zero $i" || return 1
        done
        goes_on $model "--ranks 3 --pp 3 --schedule zb_v" "--ranks 2 --tp 2" || return 1
    done
}
# compiler, what runs the program
can_build() {
    have "${1%% *}" && have "${2:-true}" || {
        echo "$1 ${2:+and $2} would be needed"
        return 77
    }
}
# compiler, its options, what runs the program, how many floats: the functions of one number have the golden
# checksums, compiled in every way
functions() {
    local all=${4-} golden=tests/golden/functions.txt
    can_build "$1" "${3-}" || return
    $1 -std=gnu11 $2 -I. tests/test_functions.c -o "$work/functions" -lm &&
        ${3-} "$work/functions" $all >"$work/sums" || return 1
    diff <(sort -u "$work/sums") <(grep "^${all:---sample} " $golden | cut -d " " -f 2- | sort)
}
# compiler, its options, what runs the program: every model, by a program that is built so; training in f16
# with a loss scale, by each optimizer
built() {
    local model
    functions "$1" "$2" "${3-}" || return
    $1 -std=gnu11 $2 -I. examples/gpt/gpt.c -o "$work/gpt" -pthread -lm || return 1
    # an emulator has threads: then ranks start by running the program again, which needs binfmt_misc
    local ranks=${3:+1}
    for model in $models; do
        row $model "${3-} $work/gpt" "" "--ranks ${ranks:-2} --zero 1" || return 1
    done
    local options="-std=gnu11 $2 -I. -Itests"
    $1 $options -c tests/kit.c -o "$work/kit.o" &&
        $1 $options -DPAR_{H,MATH}_IMPLEMENTED tests/test_zero.c "$work/kit.o" -o "$work/zero" -pthread -lm &&
        ${3-} "$work/zero" --worker threads 4 0 scaled
}

made build/gpt
check "grids" grids
check "pipelines" pipelines
check "checkpoints go on" resumed
check "functions" functions gcc -O2 # with tables for each instruction set, of which the first one cannot fuse
release check "functions, fused" functions gcc "-O2 -march=native"
release check "functions, ARM" functions aarch64-linux-gnu-gcc "-O2 -static" qemu-aarch64
if [ -n "${SOAK-}" ]; then
    check "all floats" functions gcc -O2 "" --all # half an hour each
    check "all floats, fused" functions gcc "-O3 -march=native" "" --all
    check "all grids" all_grids
    check "all pipelines" all_pipelines
    check "gcc -O0" built gcc -O0
    check "gcc -O2" built gcc -O2
    check "gcc -O3 -march=native" built gcc "-O3 -march=native"
    check "clang -O2" built clang -O2
    check "clang -O3 -march=native" built clang "-O3 -march=native"
    check "musl" built musl-gcc "-O2 -static"
    check "ARM" built aarch64-linux-gnu-gcc "-O2 -static" qemu-aarch64
fi
summary

# make gpu-check: on a machine with a GPU, build for it, run every CUDA test, then the benchmarks, and write
# bench/results/GPU.json. Needs nvcc and a driver; neither MPI nor a second GPU. Ends with "N passed, N
# failed, N skipped".
. tests/lib.sh
DEADLINE=240
begun=$(date +%s)
if ! nvidia-smi >"$work/smi" 2>&1; then
    skip "GPU" "nvidia-smi found none: $(tail -n 1 "$work/smi" | cut -c1-100)"
    summary
    exit
fi
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
[ "$arch" = 90 ] && arch=90a
gpus=$(nvidia-smi -L | wc -l)
echo "$gpu, sm_$arch, $gpus of them"
make_one() { make -s CUDA_ARCHS="$arch" "$1"; }
# Sizes: the trainer's, bench_cuda's, of GPT-2 124M, bench_coll's, bench_pipe's. GPU_CHECK_QUICK=1: for
# tests/cuda.sh, which runs this script on an emulated GPU.
small="--n_layer 2 --n_embd 64 --n_head 4 --block_size 64" room="" coll="-b 64K -e 64M -f 32 -n 9" pipe=""
gpt2="--n_layer 12 --n_head 12 --n_embd 768 --block_size 1024 --batch_size 32" steps=20
if [ -n "$GPU_CHECK_QUICK" ]; then
    small="--n_layer 2 --n_embd 32 --n_head 2 --block_size 16 --batch_size 2" room="--bytes 256K" \
        coll="-b 64K -e 64K -n 2" pipe="--f_us 50 --b_us 50 --w_us 50 --steps 1"
    gpt2="--n_layer 1 --n_head 1 --n_embd 8 --block_size 16 --batch_size 1" steps=3
fi
mkdir -p build bench/results
for p in test_cuda gpt_cuda bench_cuda bench_coll_cuda bench_pipe_cuda 03_cuda_adopt; do
    check "build $p for sm_$arch" make_one build/$p
done
finish
make -s build/gpt build/corpus.txt

adopts() { PAR_RANKS=3 build/03_cuda_adopt >"$work/said" && grep -q "x is 2," "$work/said"; }
trains() { # on the GPU as on the CPU; arguments: layout
    common="--data build/corpus.txt $small --max_iters $steps --eval_iters 1 --sample 0 --json"
    build/gpt $common >"$work/cpu" && build/gpt_cuda $common "$@" >"$work/gpu" || return 1
    same_losses 1e-3 "$work/cpu" "$work/gpu" && [ "$(losses "$work/gpu" | wc -l)" = $steps ]
}
sanitized() { # memory errors in the kernels, on a few tests
    command -v compute-sanitizer >/dev/null 2>&1 || {
        echo "no compute-sanitizer"
        return 77
    }
    for t in reduces zero_update tp_rows tp_attention; do
        compute-sanitizer --error-exitcode 9 build/test_cuda --worker fork 1 0 $t >"$work/sanitizer" 2>&1 &&
            continue
        grep -qi "not supported\|unable to\|failed to initialize" "$work/sanitizer" && {
            echo "compute-sanitizer does not work here"
            return 77
        }
        tail -n 20 "$work/sanitizer"
        return 1
    done
}
if [ -x build/test_cuda ]; then
    suite build/test_cuda --node 0
    alone "03_cuda_adopt" adopts
    alone "the trainer, 1 rank" trains
    alone "the trainer, ZeRO 3 on 2 ranks" trains --ranks 2 --zero 3
    alone "the trainer, tp 2, sequence parallel" trains --ranks 2 --tp 2 --sp
    alone "the trainer, 2 stages" trains --ranks 2 --pp 2 --schedule zb_h1
    alone "compute-sanitizer" sanitized
fi
results=bench/results/$(echo "$gpu" | tr 'A-Z ' 'a-z_' | tr -cd 'a-z0-9_-').json
word() { for shift in 0 8 16 24; do printf "\\$(printf %o $(($1 >> shift & 255)))"; done; } # 4 bytes
# two bytes of the corpus make a token: those of ASCII are all within GPT-2's vocabulary. In llm.c's format
tokens() {
    LC_ALL=C tr -cd '\000-\177' <build/corpus.txt >"$work/bytes"
    count=$(($(wc -c <"$work/bytes") / 2))
    {
        word 20240520
        word 1
        word $count
        head -c 1012 /dev/zero
        head -c $((2 * count)) "$work/bytes"
    } >"$work/tokens.bin"
}
bench() {
    build/bench_cuda $room --json >"$work/bench.json" && tokens || return 1
    # GPT-2 124M, sequence 1024, bf16: 6 operations a token for each of the 123.5M parameters of its products,
    # and those of causal attention: 3 x 2 x 12 layers x 768 x 1024
    build/gpt_cuda --data "$work/tokens.bin" $gpt2 --dtype bf16 --gradient_accumulation_steps 2 \
        --max_iters 12 --eval_iters 0 --sample 0 --json >"$work/gpt2.json" || return 1
    peak=$(sed -n 's/.*"matrix product, bf16","value":\([^,]*\),.*/\1/p' "$work/bench.json")
    sed -n 's/.*"tokens_per_s":\([^,}]*\).*/\1/p' "$work/gpt2.json" |
        tail -n 5 |
        sort -n |
        sed -n 3p >"$work/rate"
    awk -v peak="$peak" '{
            f = $1 * (6 * 123.5e6 + 6 * 12 * 768 * 1024) / 1e12
            printf "{\"bench\":\"GPT-2 124M, bf16\",\"value\":%.6g,\"unit\":\"tokens/s\",", $1
            printf "\"ratio\":%.4g,\"target\":0.45}\n", f / peak
        }' "$work/rate" >>"$work/bench.json"
    # exits 1 if a result is wrong
    build/bench_coll_cuda --ranks 4 --op all $coll --json >>"$work/bench.json" &&
        build/bench_pipe_cuda --all --ranks 4 $pipe --json >>"$work/bench.json" || return 1
    {
        echo '['
        sed '$!s/$/,/' "$work/bench.json"
        echo ']'
    } >"$results"
}
if [ -x build/bench_cuda ]; then
    alone "benchmarks" bench
    [ -s "$results" ] && cat "$results"
    echo "written: $results"
fi
echo "($(($(date +%s) - begun)) s)"
summary

# make gpu-check: on a machine with a GPU, build for it, test, measure. The fast and most telling tests come
# first. Needs nvcc and a driver; neither MPI nor a second GPU. With several GPUs ranks have one each (NCCL,
# peer); with one they share it (peer), and NCCL's refusal is tested.
#
#     bash tests/gpu_check.sh              progress, a line for each result; at the end what passed
#     bash tests/gpu_check.sh --pack FILE  instead: build here (CUDA_ARCHS, else 90a), and write an archive
#                                          for a machine that has neither nvcc nor make
#     bash tests/gpu_check.sh --unpack FILE ...   there: run what it has, with these options:
#     --out DIR        where results go; else bench/results
#     --seconds 480    what has not begun by then is left out
#     --from STAGE     begin with it, one of those that --help names at its end
#     --json           the rows instead of progress, a JSON object a line
#     --rehearse       tiny sizes, with the emulation's programs, which build/ must have
#     --help
#
# DIR/GPU.json, a JSON array, gets a row, a line of it, when each test or measurement ends: if the GPU is
# taken away, the rows so far are there.
stages="kernels nccl graphs roofline gemm attention gpt2 profile ranks sanitizer trainer collectives"
stages+=" bubbles sanitizers"
rehearse="" json="" packed="" pack="" unpack="" out="" from=kernels LIMIT=480
given=("$@")
while [ $# -gt 0 ]; do
    case $1 in
    --rehearse) rehearse=yes LIMIT=0 ;;
    --json) json=yes ;;
    --pack | --unpack | --out | --seconds | --from)
        [ $# -ge 2 ] || { echo "gpu_check.sh: $1 wants a value (--help)" >&2 && exit 2; }
        case $1 in
        --pack) pack=$2 ;;
        --unpack) unpack=$2 ;;
        --out) out=$(mkdir -p "$2" && cd "$2" && pwd) ;;
        --seconds) LIMIT=$2 ;;
        --from) from=$2 ;;
        esac
        shift
        ;;
    *)
        sed -n '1,/^[^#]/s/^# \{0,1\}//p' "$0"
        echo "stages: $stages"
        [ "$1" = --help ]
        exit $((2 * $?))
        ;;
    esac
    shift
done
[ -n "$out" ] || out=$PWD/bench/results
[[ " $stages " = *" $from "* ]] || {
    echo "gpu_check.sh: --from $from: it is one of $stages" >&2
    exit 2
}
set -- # lib.sh takes names of checks
if [ -n "$unpack" ]; then # the archive's own script runs there
    there=$(mktemp -d) && tar -xzf "$unpack" -C "$there" && cd "$there/gpu_check" || exit
    trap 'rm -rf "$there"' EXIT
    for option in "${given[@]}"; do
        [ "$option" = --unpack ] || [ "$option" = "$unpack" ] || set -- "$@" "$option"
    done
    bash tests/gpu_check.sh "$@" --out "$out"
    exit
fi
[ -e Makefile ] || packed=yes
export rehearse json LIMIT
. tests/lib.sh
DEADLINE=1000000 # seconds of a command, where there is no limit
started=$EPOCHSECONDS
exec 9>&1 # progress
[ -z "$json" ] || exec >&2

# ---- sizes, programs

test=build/test_cuda canonical=build/test_cuda_canonical gpt=build/gpt_cuda bench=build/bench_cuda
coll=build/bench_coll_cuda pipe=build/bench_pipe_cuda adopt=build/09_cuda_adopt
small="--n_layer 2 --n_embd 64 --n_head 4 --block_size 64" steps=20 large="" bubbles="--all"
collectives="--op all -b 64K -e 64M -f 32 -n 9"
sharing=2 # ranks on one GPU
gpt2="--n_layer 12 --n_head 12 --n_embd 768 --block_size 1024" microbatches="64x1 32x2 16x4 8x8" gpt2_steps=12
profiler=build/libgpu_profile.so
if [ "$packed" ]; then [ -e $profiler ]; else bash tests/cuda_find.sh cupti >/dev/null 2>&1; fi || profiler=""
if [ "$rehearse" ]; then
    test=build/test_cuda_emu canonical=$test gpt=build/gpt_emu bench=build/bench_cuda_emu
    coll=build/bench_coll_emu pipe=build/bench_pipe_emu adopt=build/09_cuda_adopt_emu
    small="--n_layer 2 --n_embd 32 --n_head 2 --block_size 16 --batch_size 2" steps=1 large="--bytes 256K"
    sharing=2 collectives="--op all_reduce -b 64K -e 64K -n 2"
    bubbles="--schedule zb_v --f_us 50 --b_us 50 --w_us 50 --steps 1" # cuda.sh has all
    gpt2="--n_layer 1 --n_head 1 --n_embd 8 --block_size 16" microbatches="1x2" gpt2_steps=3
    profiler="" # the emulation is no driver
    export EMU_DEVICES=1 # ranks are processes, which the emulated NCCL does not join
fi
programs=($test $canonical $gpt $bench $coll $pipe $adopt $profiler)

# ---- an archive of what runs, for a machine that has no compiler

build() { # all programs at once, with all processors
    make -s -k -j"$(nproc)" "${programs[@]}" build/gpt build/corpus.txt "$@"
}
pack() { # file
    local p dir=$work/gpu_check
    [ "$rehearse" ] || # for any processor
        build CUDA_ARCHS="${CUDA_ARCHS:-90a}" FAST="-O3 -fno-math-errno -fno-trapping-math" || return
    mkdir -p "$dir/build" "$dir/tests" && cp build/corpus.txt "$dir/build" &&
        cp tests/{gpu_check,lib,environment,cuda_find}.sh "$dir/tests" || return
    for p in "${programs[@]}" build/gpt; do
        cp -L "$p" "$dir/build" && { [ "$rehearse" ] || strip "$dir/$p"; } || return
    done
    git rev-parse --short HEAD >"$dir/commit" 2>/dev/null
    tar -C "$work" -czf "$1" gpu_check && echo "written: $1 ($(du -m "$1" | cut -f1) MB)"
}
if [ -n "$pack" ]; then
    pack "$pack"
    exit
fi
if ! nvidia-smi >"$work/smi" 2>&1; then
    skip "GPU" "nvidia-smi found none: $(tail -n 1 "$work/smi" | cut -c1-100)"
    summary
    exit
fi

# ---- the GPU, its tools, the results

query() { nvidia-smi --query-gpu="$1" --format=csv,noheader | head -n 1; }
gpu=$(query name) gpus=$(nvidia-smi -L | grep -c '^GPU')
ranks=$((gpus > 1 ? (gpus < 8 ? gpus : 8) : sharing)) # of the tests of several ranks
for tool in nvcc compute-sanitizer; do
    found=$(bash tests/cuda_find.sh $tool 2>/dev/null) && PATH=$PATH:$(dirname "$found")
done
if [ "$packed" ]; then
    export LD_LIBRARY_PATH=$(bash tests/cuda_find.sh libraries)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
commit=$(cat commit 2>/dev/null || git rev-parse --short HEAD 2>/dev/null)
mkdir -p build "$out"
results=$out/$(echo "$gpu" | tr 'A-Z ' 'a-z_' | tr -cd 'a-z0-9_-').json

text() { # a JSON string
    printf '"%s"' "$(printf %s "$*" | tr -d '"\\' | tr -c ' -~' ' ' | cut -c1-300)"
}
emit() { # an object: append it to the results, which are whole at any time
    {
        flock 6
        printf '%s\n' "$1" >>"$shared/rows"
        { echo '[' && sed '$!s/$/,/' "$shared/rows" && echo ']'; } >"$results.new"
        mv "$results.new" "$results"
    } 6>"$shared/rows.lock"
    [ -z "$json" ] || printf '%s\n' "$1" >&9
}
progress() { [ "$json" ] || printf '[%3d s] %s\n' $((EPOCHSECONDS - started)) "$*" >&9; }
# Run a command with a limit of seconds, or what is left. Then its row: stage, check, result, seconds, why.
timed() { # stage, name, limit, command ...
    local stage=$1 name=$2 limit=$3 start=${EPOCHREALTIME/[.,]/} left status result=failed why="" row
    shift 3
    left=$((LIMIT ? LIMIT - (EPOCHSECONDS - started) : DEADLINE))
    [ -z "$rehearse" ] || limit=$DEADLINE
    if [ $left -lt 2 ]; then
        echo "there was no time left of $LIMIT s" >"$work/said"
        status=77
    else
        timeout -k 5 $((limit < left ? limit : left)) bash -c '"$@"' timed "$@" >"$work/said" 2>&1
        status=$?
    fi
    start=$((${EPOCHREALTIME/[.,]/} - start))
    case $status in
    0) result=ok ;;
    77) result=skipped ;;
    124) echo "it did not end in $((limit < left ? limit : left)) s" >>"$work/said" ;;
    esac
    [ $result = ok ] || why=$(grep -v '^{' "$work/said" | tail -n 1)
    row=$(printf '{"stage":"%s","check":%s,"result":"%s","seconds":%d.%02d' "$stage" "$(text "$name")" \
        $result $((start / 1000000)) $((start / 10000 % 100)))
    [ -z "$why" ] || row+=",\"why\":$(text "$why")"
    emit "$row}"
    progress "$(printf '%-7s %s: %s (%d.%d s)%s' $result "$stage" "$name" $((start / 1000000)) \
        $((start / 100000 % 10)) "${why:+: $why}")"
    cat "$work/said"
    return $status
}
reached() { # stage: is it, or did it come after, the one to begin with?
    [ "$from" != "$1" ] || from=""
    [ -z "$from" ]
}
stage() { ! reached "$1" || check "$1: $2" timed "$@"; } # stage, name, limit, command ...: beside others
lonely() { ! reached "$1" || alone "$1: $2" timed "$@"; }
# Add the rows that a command prints to the results as they come. $stage says what they belong to.
rows() { # stage, command ...
    local stage=$1 row
    shift
    "$@" 2>"$work/err" | while read -r row; do
        case $row in "{"*"}") emit "{\"stage\":\"$stage\",${row#\{}" && echo "$row" ;; esac
    done
    [ "${PIPESTATUS[0]}" = 0 ] || { cat "$work/err" && return 1; }
}

# ---- the stages, in their order

loads() { # a program and its libraries are there
    [ -x "$1" ] || { echo "it was not built" && return 1; }
    ! ldd "$1" | grep "not found"
}
# The rehearsal lets the program read its options; the tests themselves are a part of make check.
tests() { # name, options of the test program ...
    if [ "$rehearse" ] && [ "$1" != device ]; then
        $test --only "$@" --help >/dev/null
    else
        $test --only "$@"
    fi
}
kernels="device casts reduces gemm zero_update zero_packs initial_values tp_rows tp_losses split_products"
kernels+=" fused_products block_products low_precision tensor_cores tp_attention own_attention ring_blocks"
kernels+=" models"
collective_tests="collectives messages splits mismatch windows narrow_sums"
# tool, test: on one rank, of the kit's kernels alone. NCCL would take longer, and asks for kernels that are
# not there.
sanitized() {
    command -v compute-sanitizer >/dev/null 2>&1 || { echo "there is no compute-sanitizer" && return 77; }
    PAR_CUDA_BACKEND=peer compute-sanitizer --tool "$1" --error-exitcode 9 --kernel-name \
        kernel_substring=par__ $test --worker fork 1 0 "$2" >"$work/sanitizer" 2>&1 && return
    grep -i "not supported\|unable to\|failed to initialize" "$work/sanitizer" && return 77
    grep -v "Host Frame" "$work/sanitizer" | head -n 25
    return 1
}
adopts() { PAR_RANKS=$1 $adopt >"$work/adopts" && grep "x is $2," "$work/adopts"; } # ranks, the mean
refuses() { # NCCL takes no two ranks on a GPU
    local backend="PAR_CUDA_BACKEND=nccl CUDA_VISIBLE_DEVICES=0"
    env PAR_RANKS=2 $backend $adopt >"$work/refused" 2>&1 || return 0
    cat "$work/refused"
    echo "NCCL took two ranks on a GPU"
    return 1
}
trains() { # on the GPU as on the CPU; arguments: layout
    local common="--data build/corpus.txt $small --max_iters $steps --eval_iters 1 --sample 0 --json"
    build/gpt $common >"$work/cpu" && $gpt $common "$@" >"$work/gpu" &&
        same_losses 1e-3 "$work/cpu" "$work/gpu" && [ "$(losses "$work/gpu" | wc -l)" = $steps ]
}
word() { for shift in 0 8 16 24; do printf "\\$(printf %o $(($1 >> shift & 255)))"; done; } # 4 bytes
# Two bytes of the corpus make a token: those of ASCII are all within GPT-2's vocabulary. In llm.c's format.
tokens() {
    LC_ALL=C tr -cd '\000-\177' <build/corpus.txt >"$work/bytes"
    local count=$(($(wc -c <"$work/bytes") / 2))
    word 20240520 && word 1 && word $count && head -c 1012 /dev/zero && head -c $((2 * count)) "$work/bytes"
}
peak_tflops() { # of dense bf16, as its maker says; nothing for GPUs that are not in this table
    case $gpu in *H100* | *H200* | *GH200*) echo 989 ;; *A100*) echo 312 ;; *B200*) echo 2250 ;; esac
}
# GPT-2 124M with llm.c's batch: 64 sequences of 1024 tokens in as few microbatches as the memory holds. 6
# operations a token for each of the 123.5M parameters of its products, and those of causal attention: 3 x 2
# x 12 layers x 768 x 1024. mfu_peak: by what the maker says; mfu_product: by the measured matrix product.
gpt2() {
    local m rate=""
    tokens >"$work/tokens.bin"
    for m in $microbatches; do
        rows "gpt2" $gpt --data "$work/tokens.bin" $gpt2 --dtype bf16 --batch_size ${m%x*} \
            --gradient_accumulation_steps ${m#*x} --max_iters $gpt2_steps --eval_iters 0 --sample 0 --json \
            >"$work/gpt2" || continue
        rate=$(fields "$work/gpt2" tokens_per_s | tail -n +3 | sort -g |
            awk '{x[NR] = $1} END {if (NR) print x[int((NR + 1) / 2)]}') # the first steps choose plans
        echo "$m" >"$shared/microbatches"
        break
    done
    [ "$rate" ] || { cat "$work/gpt2" "$work/err" && return 1; }
    emit "$(fields "$results" bench value | awk -v rate="$rate" -v peak="$(peak_tflops)" -v batch="$m" '
        /^matrix product, bf16 / {product = $NF}
        END {
            f = rate * (6 * 123.5e6 + 6 * 12 * 768 * 1024) / 1e12
            printf "{\"stage\":\"gpt2\",\"bench\":\"GPT-2 124M, bf16, %s sequences\",", batch
            printf "\"value\":%.6g,\"unit\":\"tokens/s\",\"tflops\":%.5g,", rate, f
            printf "\"peak_tflops\":%s,\"mfu_peak\":%s,", number(peak), number(peak ? f / peak : "")
            printf "\"product_tflops\":%s,", number(product)
            printf "\"mfu_product\":%s}\n", number(product ? f / product : "")
        }
        function number(x) {return x == "" ? "null" : sprintf("%.4g", x)}')"
}

# What the time of GPT-2's steps goes to: each kernel's calls and microseconds, the longest first.
profile() {
    [ -e "$profiler" ] || { echo "there is no CUPTI" && return 77; }
    local m=$(cat "$shared/microbatches" 2>/dev/null || echo ${microbatches%% *})
    tokens >"$work/tokens.bin"
    GPU_PROFILE=$work/kernels CUDA_INJECTION64_PATH=$PWD/$profiler $gpt --data "$work/tokens.bin" $gpt2 \
        --dtype bf16 --batch_size ${m%x*} --gradient_accumulation_steps ${m#*x} \
        --max_iters $gpt2_steps --eval_iters 0 --sample 0 --json >"$work/profiled" 2>&1 &&
        [ -s "$work/kernels" ] ||
        { tail -n 5 "$work/profiled" && return 1; }
    rows profile head -n 40 "$work/kernels"
}

emit "$(printf '{"gpu":%s,"gpus":%d,"capability":%s,"driver":%s,"commit":%s,"rehearsal":%s}' \
    "$(text "$gpu")" "$gpus" "$(text "$(query compute_cap)")" "$(text "$(query driver_version)")" \
    "$(text "$commit")" "$([ "$rehearse" ] && echo true || echo false)")"
progress "$gpus x $gpu; rows go to $results"
jobs_at_once=2 # a GPU holds the contexts of so many programs at a time
[ "$rehearse$packed" ] || alone "build: the programs" timed build "the programs" 300 build
for p in "${programs[@]}"; do check "build: $p" timed build "$p" 5 loads $p; done
finish

for t in $kernels; do stage kernels "$t" 60 tests $t; done
test=$canonical stage kernels "canonical_kernels" 60 tests canonical_kernels
stage kernels "the example, 1 rank" 30 adopts 1 1
finish
for t in collectives_nccl exact_nccl windows; do
    stage nccl "$t, 1 rank" 60 tests $t --launch fork --ranks 1
done
stage nccl "a revoked comm, 1 rank" 60 tests revoked_nccl
stage graphs "a step is captured and replayed" 60 tests graph
finish
lonely roofline "copy, kernels, 768 and 4096 columns" 60 rows roofline $bench $large --only rows --json
lonely gemm "matrix products" 30 rows gemm $bench $large --only product --json
lonely attention "attention" 30 rows attention $bench $large --only attention --json
lonely gpt2 "GPT-2 124M" 90 gpt2
lonely profile "steps of GPT-2" 60 profile
if [ "$gpus" = 1 ]; then
    stage ranks "NCCL refuses two ranks on a GPU" 60 refuses
else
    for t in collectives_nccl exact_nccl; do
        stage ranks "$t" 90 tests $t --ranks $ranks --launch fork --node 0
    done
fi
stage ranks "a death, fork" 120 tests deaths
stage ranks "the example" 30 adopts 3 2
for t in $collective_tests zero_stages zero_mistakes models; do
    for launch in fork threads; do
        stage ranks "$t, $launch" 90 tests $t --ranks $ranks --launch $launch --node 0
    done
done
stage ranks "pipelines" 90 tests pipelines --ranks $((ranks < 4 ? 2 : 4)) --node 0
test=$canonical stage ranks "canonical_moments" 60 tests canonical_moments --ranks 2 --launch fork --node 0
stage ranks "staging" 60 tests collectives_staged --ranks 2 --node 0
finish
for tool in memcheck racecheck; do
    stage sanitizer "$tool, own_attention" 60 sanitized $tool own_attention
done

stage trainer "1 rank" 60 trains --ranks 1
stage trainer "ZeRO 3 on 2 ranks" 60 trains --ranks 2 --zero 3
stage trainer "tp 2, sequence parallel" 60 trains --ranks 2 --tp 2 --sp
stage trainer "2 stages" 60 trains --ranks 2 --pp 2 --schedule zb_h1
[ "$gpus" -lt 4 ] || stage trainer "pp 2 x tp 2" 60 trains --ranks 4 --pp 2 --tp 2
finish
lonely collectives "on one GPU" 60 rows collectives $bench $large --only all_reduce --json
lonely collectives "bench_coll" 60 rows collectives $coll --ranks $ranks $collectives --json
lonely bubbles "bench_pipe" 60 rows bubbles $pipe --ranks $((ranks < 4 ? 2 : 4)) $bubbles --json

# These take minutes, so what tells more has come before.
for tool in memcheck racecheck synccheck initcheck; do
    for t in device casts reduces gemm zero_update tp_rows tp_losses ring_blocks own_attention; do
        case $tool-$t in
        memcheck-own_attention | racecheck-own_attention) ;; # above
        racecheck-tp_*) ;; # racecheck has an error of its own in cuBLASLt's kernels
        *) stage sanitizers "$tool, $t" 60 sanitized $tool $t ;;
        esac
    done
done
test=$canonical stage sanitizers "racecheck, canonical_kernels" 60 sanitized racecheck canonical_kernels
finish
emit "$(printf '{"stage":"end","passed":%d,"failed":%d,"skipped":%d,"seconds":%d}' $passed $failed $skipped \
    $((EPOCHSECONDS - started)))"
echo "written: $results ($(wc -l <"$shared/rows") rows, $((EPOCHSECONDS - started)) s)"
summary

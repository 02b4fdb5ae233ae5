# par_cuda.cuh without a GPU: the emulation (tests/cuda_emu) under ASan and UBSan, and nvcc for every
# architecture, where CUDA's headers and nvcc are.
. tests/lib.sh
if ! headers=$(bash tests/cuda_find.sh headers 2>"$work/why"); then
    skip "par_cuda.cuh" "$(cat "$work/why")"
    summary
    exit
fi
emulated="-std=c++17 -x c++ -include tests/cuda_emu/emu.h -I. -Itests $headers"
nccl="" cublaslt=""
case $(bash tests/cuda_find.sh emulation) in *EMU_NCCL*) nccl=yes ;; esac
case $(bash tests/cuda_find.sh emulation) in *EMU_CUBLASLT*) cublaslt=yes ;; esac
made build/gpt_emu build/09_cuda_adopt_emu build/gpt build/corpus.txt build/roofline
release made build/test_cuda_emu build/bench_coll_emu build/bench_pipe_emu build/bench_cuda_emu

layers() { # a layer that is not there leaves no trace; each alone, and the header twice
    printf '%s\n' '#define PAR_IMPLEMENTATION' "$1" '#include "par_cuda.cuh"' '#include "par_cuda.cuh"' \
        'int main() { return 0; }' >"$work/$2.cu"
    g++ $emulated -Wall -Wextra -Werror -Wno-unused-function -fsyntax-only "$work/$2.cu"
}
example() { # the manual's, on emulated GPUs
    sed -n '/^EXAMPLE$/,/^TABLE OF CONTENTS$/p' par_cuda.cuh | sed '1d;$d;s/^    //' >"$work/example.cu"
    said=$(sed -n 's/.*with PAR_RANKS=3 it prints: //p' "$work/example.cu")
    [ -n "$said" ] &&
        g++ $emulated $kit_is_linked -DPAR_CUDA_IMPLEMENTED -Wall -Wextra -Werror -Wno-unused-function \
            -c "$work/example.cu" -o "$work/example.o" &&
        g++ "$work/example.o" build/{emu,cuda_emu,par,layers}.o -o "$work/example" -pthread -lm &&
        [ "$(PAR_RANKS=3 "$work/example")" = "$said" ]
}
# Options for a compilation in a fifth of the time. Before CUDA 12.8: in a quarter; at -Xcicc -O0 ptxas would
# have twice as much to read.
quick() { "$1" --help | grep -q -e --Ofast-compile && echo "-Ofc max" || echo "-O0 -Xcicc -O1 -Xptxas -O0"; }
kit_is_linked=$(printf -- '-DPAR_%s_IMPLEMENTED ' H FILES MATH TP ZERO PIPE PLAN)
libraries() { for library in nccl cublaslt cudnn; do bash tests/cuda_find.sh $library 2>/dev/null; done; }
library_headers() { libraries | tr ' ' '\n' | grep -E '^-[DI]' | tr '\n' ' '; }
no_spills() { # what ptxas said: the kernels that touch every element are there, and keep all in registers
    for kernel in reduce sum_rows sum_squares cast update norm elementwise loss_stats loss_backward \
        loss_forward_backward flash_forward flash_backward dropout rope add_bias pack; do
        grep -q "entry function '.*k_$kernel" "$1" || {
            echo "there is no kernel k_$kernel"
            return 1
        }
        ! awk -F"'" '
            /entry function/ {name = $2}
            / [1-9][0-9]* bytes spill stores/ {print name ": " $0}' "$1" |
            grep "k_$kernel" || return 1
    done
}
# No warnings. All is with the libraries' parts. sm_90a's is build/cuda.o, as the Makefile makes it. Who comes
# second takes what the first has made.
every_architecture() {
    exec 9>"$shared/nvcc.$1" && flock 9 && nvcc=$(bash tests/cuda_find.sh nvcc) || return 1
    [ ! -e "$shared/ptxas.$1" ] || return 0
    local said=$work/ptxas.$1 kept=$work/kept.$1 level="" # nvcc leaves the code that it makes there
    mkdir -p "$kept"
    if [ "$1" = 90a ]; then
        rm -f build/cuda.o
        set -- 90a make -s CUDA_ARCHS=90a CUDA_KEEP="-Xptxas -v -keep -keep-dir $kept" build/cuda.o
    else
        [ -n "${SOAK-}" ] || level=$(quick "$nvcc")
        set -- "$1" "$nvcc" -std=c++17 $level -Werror all-warnings -Xptxas -v -I. \
            $(library_headers) -gencode "arch=compute_$1,code=sm_$1" -keep -keep-dir "$kept" -cubin \
            tests/compile/cuda.cu -o "$kept/cubin"
    fi
    "${@:2}" >"$said" 2>&1 || {
        cat "$said"
        return 1
    }
    [ "$1" != 90a ] || no_spills "$said" || return 1
    mv "$said" "$shared"
    mv "$(find "$kept" -name '*cubin' -size +100k | head -n 1)" "$shared/cubin.$1"
}
make_cuda() { every_architecture 90a && make -s -k CUDA_ARCHS=90a cuda; } # with the user's flags
# The budgets find what compilers make of mistakes, each in a kernel of its own: a spill, an array that is not
# in registers, a pointer of unknown memory, accesses of 32 bits, conversions and products one by one, lanes
# that part between products.
planted_instructions() {
    awk '
        /^\.text\./ {first = 1; name = $0}
        /^ *\/\*[0-9a-f]*\*\/ / && first {
            if (name ~ /k_castIff/) print "/*0000*/ STL [R1], R2 ;"
            if (name ~ /k_add_biasIf/) print "/*0000*/ LDL.64 R2, [R1+0x8] ;"
            if (name ~ /k_sum_squaresIf/) print "/*0000*/ @P0 LD.E R2, [R4.64] ;"
            first = 0
        }
        name ~ /k_normI14par__cuda_bf16L19par__cuda_norm_size0ELb0/ {sub(/LDG\.E\.128/, "LDG.E")}
        name ~ /k_dropoutIfLb1/ {sub(/STG\.E\.128/, "STG.E")}
        name ~ /elementwiseI14par__cuda_bf16L18par_tp_elementwise0/ {sub(/F2FP/, "F2F")}
        name ~ /k_flash_forwardILi64/ {sub(/HMMA/, "FFMA")}
        name ~ /k_flash_backward_qILi64/ && / HMMA/ && !planted++ {$0 = $0 "\n/*0000*/ BSSY B1, `(.L_x_1) ;"}
        {print}' "$1" >"$work/planted"
    ! bash tests/sass.sh "$work/planted" "$shared/ptxas.90a" >"$work/said" || return 1
    for fault in "castIff.* 1 accesses of local" "add_biasIf.* 1 accesses of local" \
        "sum_squaresIf.* 1 generic" "normI14.*norm_size0ELb0.* 0 loads of 128" \
        "dropoutIfLb1.* 0 stores of 128" "elementwiseI14.*elementwise0.* 0 packed" \
        "flash_forwardILi64.* 0 products" "flash_backward_qILi64.* 1 places between products"; do
        grep -q "^$fault" "$work/said" || {
            echo "not found: $fault"
            return 1
        }
    done
    [ "$(grep -c "its budget is" "$work/said")" = 8 ]
}
counted() { # the kernels' instructions; the page's table, where it was made by this nvcc
    disassembler=$(bash tests/cuda_find.sh nvdisasm 2>&1) || {
        echo "$disassembler"
        return 77
    }
    every_architecture 90a && "$disassembler" -c -ndf "$shared/cubin.90a" >"$work/listing" 2>/dev/null &&
        bash tests/sass.sh "$work/listing" "$shared/ptxas.90a" && planted_instructions "$work/listing" ||
        return 1
    tables 90a "$work/listing" H100
}
# What an architecture's listing costs, in build/ to be copied to the table; the tables of its first GPU there
# are these, where they are of this nvcc.
counts=bench/results/kernels.md
tables() {
    build/roofline --count "$shared/ptxas.$1" <"$2" >"$work/table" || {
        cat "$work/table"
        return 1
    }
    cp "$work/table" "build/kernels.$1"
    version=$("$nvcc" --version | sed -n 's/.*release [0-9.]*, V//p')
    grep -q "nvcc $version" $counts || return 0
    sed -n "/^| kernel .* warps | $3/,/^$/p;/^| attention .* warps | $3/,/^$/p" $counts |
        sed 's/| [0-9]*%* *|$/| |/' | diff -B - "$work/table" # without what was measured
}
# Another architecture's budgets, which are its own: they would be too many accesses on sm_90a.
counted_elsewhere() {
    disassembler=$(bash tests/cuda_find.sh nvdisasm 2>&1) || {
        echo "$disassembler"
        return 77
    }
    listing=$work/listing.$1
    every_architecture "$1" && "$disassembler" -c -ndf "$shared/cubin.$1" >"$listing" 2>/dev/null &&
        bash tests/sass.sh "$listing" "$shared/ptxas.$1" || return 1
    sed "s/^\(.*\.target.*\)sm_$1/\1sm_90a/" "$listing" >"$listing.planted"
    ! bash tests/sass.sh "$listing.planted" "$shared/ptxas.$1" >"$work/said" &&
        grep "accesses of local memory, and its budget" "$work/said" || return 1
    [ "$1" != 100 ] || tables 100 "$listing" B200
}
# Each kernel has its share, and a step is what the tables predict; one that has less is found.
roofline() {
    build/roofline --check $counts &&
        build/roofline --step $counts >"$work/step" &&
        build/roofline --layer $counts >>"$work/step" &&
        sed -n '/^```text$/,/^```$/p' $counts | grep -v '^```' | diff - "$work/step" || return 1
    sed 's/^\(| RoPE .*| [0-9]* | [0-9]* |\) [0-9]*%/\1 84%/' $counts >"$work/slow.md"
    ! build/roofline --check "$work/slow.md" >"$work/said" && grep "RoPE: 84%.*H100.*85%" "$work/said" &&
        grep "RoPE: 84%.*B200.*85%" "$work/said" && [ "$(grep -c . "$work/said")" = 2 ]
}
# architectures (none: all): linked; without a GPU a clear error; then cuDNN itself, for GPUs that are
# described to it, on a driver that takes code and runs none
with_libraries() {
    for part in nvcc cudnn driver; do found=$(bash tests/cuda_find.sh $part 2>&1) || {
        echo "$found"
        return 77
    }; done
    nvcc=$(bash tests/cuda_find.sh nvcc)
    "$nvcc" -std=c++17 $(quick "$nvcc") -gencode arch=compute_90a,code=sm_90a -I. $kit_is_linked \
        $(library_headers) -c tests/test_cudnn.cu -o "$work/test_cudnn.o" || return 1
    # without those that are there
    nm -D --defined-only "$found" | awk '$3 ~ /^cu/ {print "int " $3 "(void) { return 100; }"}' |
        grep -v -w -f <(grep -o '^int cu[A-Za-z]*' tests/cuda_emu/driver.c) >"$work/driver.c"
    gcc -w -shared -fPIC -Wl,-soname,libcuda.so.1 tests/cuda_emu/driver.c "$work/driver.c" -o \
        "$work/libcuda.so.1" &&
        "$nvcc" -arch=sm_90a "$work/test_cudnn.o" build/par.o build/layers.o $(libraries) \
            -o "$work/test_cudnn" &&
        "$work/test_cudnn" none &&
        LD_LIBRARY_PATH=$work "$work/test_cudnn" "$@"
}
small="--data build/corpus.txt --n_layer 2 --n_embd 32 --n_head 2 --batch_size 1 --block_size 16"
small+=" --max_iters 2 --eval_iters 1 --sample 0 --dropout 0.1 --json"
trains_over_nccl() { # 4 ranks, which are threads; in $work/cpu: what the CPU trains
    layouts=("--pp 2 --tp 2" "--pp 2 --zero 3")
    [ -z "${SOAK-}" ] || layouts+=("--pp 2 --zero 1" "--pp 2 --zero 2" "--pp 4 --schedule 1f1b")
    for layout in "${layouts[@]}"; do
        echo "nccl $layout"
        EMU_THREADS=4 EMU_DEVICES=4 PAR_CUDA_BACKEND=nccl build/gpt_emu $small $layout >"$work/gpu" &&
            same_losses 1e-5 "$work/cpu" "$work/gpu" || return 1
    done
}
tiny="--data build/corpus.txt --n_layer 2 --n_embd 16 --n_head 1 --batch_size 1 --block_size 8"
tiny+=" --eval_iters 1 --sample 0 --json"
elastic_limits() { # what no rank could go on with
    fails 1 "opens no ring of GPUs anew: give cp_mode ulysses" \
        build/gpt_emu $tiny --ranks 2 --cp 2 --elastic &&
        fails 1 "follows no graph, and no tuning" build/gpt_emu $tiny --elastic --graph
}
# however many steps there are, the host waits as often for all that a GPU has to do
never_waits() {
    for steps in 2 4; do
        EMU_DRAINS=1 build/gpt_emu $tiny --max_iters $steps 2>&1 >/dev/null |
            grep drains >"$work/drains.$steps"
    done
    cat "$work"/drains.[24] && [ -s "$work/drains.2" ] && cmp "$work"/drains.[24]
}
replays() { # a step that is captured, with new data: the bits of steps that are enqueued anew
    how=("env EMU_DEVICES=1 --ranks 1")
    [ -z "$cublaslt" ] || [ -z "${SOAK-}" ] || how+=("env EMU_DEVICES=1 EMU_CAPABILITY=89 --fp8 delayed"
        "env EMU_DEVICES=1 EMU_CAPABILITY=100 --fp8 nvfp4")
    nccl4="env EMU_THREADS=4 EMU_DEVICES=4 PAR_CUDA_BACKEND=nccl"
    [ -z "$nccl" ] || how+=("$nccl4 --pp 2 --zero 1")
    [ -z "$nccl" ] || [ -z "${SOAK-}" ] ||
        how+=("$nccl4 --n_head 2 --tp 2 --zero 2 --sp" "$nccl4 --zero 3"
            "$nccl4 --cp 2 --pp 2 --schedule zb_v")
    for x in "${how[@]}"; do
        echo "graph: $x"
        for graph in --no-graph --graph; do
            ${x%% --*} build/gpt_emu $tiny --dropout 0.2 --max_iters 4 --eval_interval 3 $graph --${x#* --} |
                sed 's/,"tokens_per_s.*//;s/,"seconds.*//' >"$work/bits$graph" || return 1
        done
        cat "$work/bits--graph"
        [ "$(wc -l <"$work/bits--graph")" = 6 ] && cmp "$work"/bits--no-graph "$work/bits--graph" || return 1
    done
}
recipes() { # of low precision: what the CPU trains; what the device does not have has a name
    build/gpt $tiny --max_iters 2 --fp8 nvfp4 >"$work/low" &&
        EMU_CAPABILITY=100 build/gpt_emu $tiny --max_iters 2 --fp8 nvfp4 >"$work/gpu" &&
        same_losses 1e-4 "$work/low" "$work/gpu" &&
        fails 1 "cuBLASLt [0-9]* on sm_80 has no product of .* take another recipe" \
            build/gpt_emu $tiny --max_iters 2 --fp8 current
}
tunes() { # products by measured kernels, which later runs read; also in a graph; other files are refused
    build/gpt $tiny --max_iters 4 >"$work/cpu.tuned" || return 1
    for more in "" "" "--graph"; do
        build/gpt_emu $tiny --max_iters 4 --tune "$work/tuned" $more >"$work/gpu" 2>"$work/said$more" &&
            same_losses 1e-5 "$work/cpu.tuned" "$work/gpu" || return 1
        [ -n "$more" ] || cat "$work/said" >>"$work/both"
    done
    cat "$work/both"
    [ "$(grep -c 'tuned: [1-9].*: 0.75 of the time' "$work/both")" = 1 ] &&
        ! grep tuned: "$work/said--graph" &&
        echo "a letter" >"$work/letter" &&
        fails 1 "line 1 of .*letter is not what par_cuda_tune writes" \
            build/gpt_emu $tiny --max_iters 4 --tune "$work/letter" && grep -q "a letter" "$work/letter" &&
        fails 1 "tune needs a GPU" build/gpt $tiny --tune "$work/tuned"
}
trains_on_one() { # emulated GPU what the CPU trains; and on two, by each other's memory
    build/gpt $small >"$work/cpu" || return 1
    for layout in "--ranks 1 --sample 8" "--ranks 2 --tp 2 --sp"; do
        build/gpt_emu $small $layout >"$work/gpu" &&
            same_losses 1e-5 "$work/cpu" "$work/gpu" && [ "$(losses "$work/gpu" | wc -l)" = 2 ] || return 1
    done
}
trains() { # the same on more, with everything
    build/gpt $small >"$work/cpu" || return 1
    for layout in "--ranks 2 --zero 3" "--ranks 4 --pp 2 --zero 1 --schedule zb_v" \
        "--ranks 2 --cp 2 --zero 2" \
        ${SOAK:+"--ranks 2 --pp 2 --schedule dualpipe --zero 2"}; do
        echo "$layout"
        [ "$layout" = "--ranks 2 --zero 3" ] && save=(--save "$work/ck") || save=()
        build/gpt_emu $small $layout "${save[@]}" >"$work/gpu" || return 1
        same_losses 1e-5 "$work/cpu" "$work/gpu" && [ "$(losses "$work/gpu" | wc -l)" = 2 ] || return 1
    done
    documents="--arch llama --n_kv_head 1 --document_token 32"
    build/gpt $small $documents >"$work/cpu.documents" &&
        build/gpt_emu $small $documents --ranks 2 --cp 2 >"$work/gpu" &&
        same_losses 1e-5 "$work/cpu.documents" "$work/gpu" || return 1
    [ -z "$cublaslt" ] || { recipes && tunes; } || return 1
    never_waits && replays || return 1
    [ -z "$nccl" ] || trains_over_nccl || return 1
    # the CPU goes on where the GPU stopped
    build/gpt $small --load "$work/ck" --max_iters 3 >"$work/out" || return 1
    # whose head is its own: no token repeats itself
    build/gpt $small --arch llama --n_kv_head 1 --save "$work/text" >/dev/null || return 1
    text="--generate abc --sample 30 --temperature 0 --json"
    build/gpt --load "$work/text" $text >"$work/cpu" || return 1
    for layout in "--ranks 1" "--ranks 2 --tp 2" "--ranks 4 --pp 2 --zero 3"; do
        build/gpt_emu --load "$work/text" $text $layout >"$work/gpu" &&
            cmp <(sed 's/,"prefill.*//' "$work/cpu") <(sed 's/,"prefill.*//' "$work/gpu") || return 1
    done
}
# canonical training on emulated GPUs writes the files that the CPU writes
same_files() {
    local model layouts=("--ranks 2 --tp 2 --sp")
    models=("--dropout 0.1 --optimizer lamb --state_dtype u8"
        "--arch llama --dtype bf16 --optimizer muon --state_dtype bf16 --grad_clip 0.5")
    [ -z "${SOAK-}" ] || models+=("--state_dtype u8" "--arch llama --optimizer lion --state_dtype bf16"
        "--optimizer lamb" "--dtype bf16 --optimizer muon --state_dtype u8")
    [ -z "${SOAK-}" ] || layouts+=("--ranks 1" "--ranks 2 --zero 3" "--ranks 2 --cp 2 --zero 1")
    for model in "${models[@]}"; do
        train="$tiny --n_head 2 --canonical 2 --gradient_accumulation_steps 2 --max_iters 2 $model"
        build/gpt $train --save "$work/cpu" >/dev/null || return 1
        for layout in "${layouts[@]}"; do
            echo "$model $layout"
            rm -rf "$work/gpu"
            build/gpt_emu $train $layout --save "$work/gpu" >/dev/null &&
                cmp <(checkpoint_content "$work/cpu") <(checkpoint_content "$work/gpu") || return 1
        done
        rm -rf "$work/cpu"
    done
}
# processes that were started apart, each with a GPU that it shares with nobody's memory: through the host
meets() {
    build/gpt $small >"$work/cpu" || return 1
    PAR_CUDA_BACKEND=staging PAR_NODE_RANKS=1 ranks 2 build/gpt_emu $small --zero 2 >/dev/null &&
        same_losses 1e-5 "$work/cpu" "$work/out.0"
}
adopts() { # as its comment shows
    sed -n 's|^//     \([0-9]\)|\1|p' examples/09_cuda_adopt.cu >"$work/shown" &&
        PAR_RANKS=3 build/09_cuda_adopt_emu >"$work/said" && diff "$work/shown" "$work/said"
}
measures() {
    build/bench_cuda_emu --bytes 256K --json >"$work/bench" && [ "$(grep -c '"ratio"' "$work/bench")" -ge 14 ]
}
collectives() { # on device memory, by each backend: right results (times mean nothing here)
    for devices in 1 4; do
        EMU_DEVICES=$devices build/bench_coll_emu --ranks 3 --op all -b 256 -e 16K -f 64 -n 3 -w 1 \
            --json >"$work/coll" || return 1
        [ "$(grep -c '"wrong":0,' "$work/coll")" = 23 ] && ! grep -v '"wrong":0,' "$work/coll" || return 1
    done
    grep -q '"memory":"nccl"' "$work/coll" || [ -z "$nccl" ]
}
bubbles() {
    build/bench_pipe_emu --all --ranks 2 --f_us 50 --b_us 50 --w_us 50 --steps 1 --json >"$work/pipe" &&
        [ "$(grep -c '"bubble_measured":0' "$work/pipe")" -ge 13 ] &&
        awk -F'"peak_sim":|,"peak_measured":|,"bound"' '{bad += $2 != $3} END {exit bad != 0}' "$work/pipe"
}
gpu_machine() { # one that says it has so many GPUs, and the archive of the emulation's programs
    there=$work/machine.$1
    mkdir -p "$there/bin"
    cat >"$there/bin/nvidia-smi" <<END
#!/bin/sh
case "\$*" in
*=name*) echo An Emulated GPU ;;
*cap*) echo 9.0 ;;
-L) seq -f 'GPU %g: emulated' $1 ;;
*) echo 1 ;;
esac
END
    cat >"$there/bin/compute-sanitizer" <<'END'
#!/bin/sh
case "$1 $2 $3 $4 $5 $6 $7 $8" in
"--tool "*"check --error-exitcode 9 --kernel-name kernel_substring=par__ build/test_cuda_emu --worker") ;;
*) exit 1 ;;
esac
shift 6
[ "$6" != device ] || exec "$@"
END
    chmod +x "$there"/bin/*
    bash tests/gpu_check.sh --rehearse --pack "$there/archive" || return 1
    results=$there/out/an_emulated_gpu.json
}
gpu_machine_runs() {
    PATH=$there/bin:$PATH TMPDIR=$there exec bash tests/gpu_check.sh --rehearse --unpack "$there/archive" \
        --out "$there/out" "$@"
}
array_of_rows() { # the results are one JSON value, an object a line
    [ "$(head -n 1 "$results")$(tail -n 1 "$results")" = "[]" ] &&
        ! sed '1d;$d' "$results" | sed '$s/$/,/' | grep -v '^{"[a-z]*":.*},$' &&
        { ! have python3 || python3 -m json.tool "$results" >/dev/null; }
}
gpu_check() { # each stage's commands, with tiny sizes; then one that is killed
    for n in 1 ${SOAK:+4}; do
        gpu_machine $n && (gpu_machine_runs) || return 1
        stages=$(fields "$results" stage | sort -u | tr '\n' ' ') # checks of two stages run beside each other
        [ "$stages" = "attention bubbles build collectives end gemm gpt2 graphs kernels nccl profile $(
        )ranks roofline sanitizer sanitizers trainer " ] || { echo "$stages" && return 1; }
        array_of_rows && tail -n 2 "$results" | grep -q '^{"stage":"end"' &&
            ! grep '"result":"failed"' "$results" &&
            [ "$(grep -c '"ratio"' "$results")" -ge 16 ] && grep -q '"mfu_product":[0-9]' "$results" &&
            grep -q '"bench":"RoPE, 4096 columns"' "$results" || return 1
    done
    (gpu_machine_runs --from bubbles) && [ "$(fields "$results" stage | sort -u | tr '\n' ' ')" = \
        "bubbles build end sanitizers " ] && ! (gpu_machine_runs --from nowhere)
}
ten_rows() { [ "$(grep -c . "$results")" -ge 12 ]; }
gpu_check_killed() { # the GPU is taken away: the rows so far are there
    gpu_machine 1 || return 1
    export there && exec setsid bash -c gpu_machine_runs >"$work/said" &
    await ten_rows && kill -KILL -- -$! && wait $!
    array_of_rows && ! grep '"stage":"end"' "$results"
}
check "kernels, counted" roofline
check "par_cuda.cuh: example" example
check "par_cuda.cuh alone" layers '' alone
check "the trainer on an emulated GPU" trains_on_one
check "09_cuda_adopt.cu" adopts
check "an elastic training on an emulated GPU, bad input" elastic_limits
check "trainings on an emulated GPU whose ranks are killed" env GPT=build/gpt_emu bash tests/storm.sh 2
tier=release
# Ranks share a GPU: peer, staging; then a GPU for each: NCCL.
suite env EMU_DEVICES=1 build/test_cuda_emu
suite env EMU_DEVICES=1 build/test_cuda_emu --only contexts --ranks 40
# Ranks of two pretended nodes share a GPU, so they do not choose NCCL.
suite env EMU_DEVICES=2 build/test_cuda_emu --only splits --ranks 3 --launch fork --node 2
threads="build/test_cuda_emu --launch threads --node 0"
[ -z "$nccl" ] || for n in 2 3 ${SOAK:+5}; do suite env EMU_DEVICES=8 $threads --ranks $n; done
# One hardware queue for all streams, and each launch loads its kernel, which waits for the device.
one_queue="env EMU_DEVICES=8 EMU_RELOADS=1 CUDA_DEVICE_MAX_CONNECTIONS=1 $threads"
[ -z "$nccl" ] || suite $one_queue --only pipelines --ranks 4
if [ -n "$nccl" ] && [ -n "${SOAK-}" ]; then
    suite env EMU_DEVICES=8 PIPELINES=all $threads --only pipelines --ranks 4
    for t in models zero_stages splits collectives_nccl; do suite $one_queue --only $t; done
fi
if bash tests/cuda_find.sh nvcc >/dev/null 2>&1; then
    made build/kit.o build/layers.o build/par.o
    check "make cuda" make_cuda
    for a in ${SOAK:+80 100}; do check "nvcc, sm_$a: no warnings" every_architecture $a; done
    check "instructions of the kernels" counted
    for a in ${SOAK:+80 100}; do check "instructions of the kernels, sm_$a" counted_elsewhere $a; done
else
    echo "(no nvcc here: not compiled with it)"
fi
check "par_cuda.cuh and par_zero.h" layers '#include "par_zero.h"' zero
check "par_cuda.cuh and par_tp.h" layers '#include "par_tp.h"' tp
check "the trainer on emulated GPUs" trains
check "canonical training on emulated GPUs" same_files
check "12 trainings on emulated GPUs whose ranks are killed" env GPT=build/gpt_emu bash tests/storm.sh 12 2
check "make gpu-check's script" gpu_check
check "make gpu-check is killed" gpu_check_killed
check "with libraries; cuDNN plans the attention" with_libraries ${SOAK:+80 100} 90
check "the trainer on emulated GPUs, over TCP" meets
check "bench_coll.cu: all collectives" collectives
check "bench_pipe.cu: all schedules" bubbles
check "bench_cuda.cu runs" measures
summary

# What nvcc made of the kernels, executed on this machine's processors: the tests of test_cuda.cu by the
# interpreter of PTX (tests/ptx), which checks each access of memory. Needs nvcc, and no GPU.
. tests/lib.sh
tier=release
if ! bash tests/cuda_find.sh nvcc >/dev/null 2>"$work/why" ||
    ! bash tests/cuda_find.sh headers >/dev/null 2>"$work/why"; then
    skip "PTX of the kernels" "$(tail -n 1 "$work/why")"
    summary
    exit
fi
# Without fused products, so that the canonical kernels have the CPU's bits; as users build it: make soak.
made build/test_cuda_emu build/canonical.ptx ${SOAK:+build/test_cuda.ptx}
export EMU_DEVICES=1

# PTX file, tests: each passes. $work/log: the kernels that have run, "ptx" or "g++" before their names.
run() {
    local ptx=$1 t
    shift
    for t in "$@"; do
        PTX=$ptx PTX_LOG=$work/log build/test_cuda_emu --only "$t" >"$work/said" 2>&1 || {
            cat "$work/said"
            return 1
        }
    done
}
# All kernels that ran have PTX, but for these, which only the emulation has.
all_have_ptx() {
    grep -q '^ptx' "$work/log" || { echo "no kernel ran as PTX" && return 1; }
    grep '^ptx' "$work/log" | sort -u | wc -l
    ! grep '^g++' "$work/log" | grep -v -e ' _Z8reversedPfi$' -e ' _Z8plus_onePfPKfm$'
}
elements() {
    run build/canonical.ptx casts reduces gemm zero_update zero_packs initial_values && all_have_ptx
}
layers() { run build/canonical.ptx tp_rows tp_losses fused_products low_precision && all_have_ptx; }
matrices() { run build/canonical.ptx tensor_cores tp_attention ring_blocks matrix_rules && all_have_ptx; }
canonical() { run build/canonical.ptx canonical_kernels canonical_moments && all_have_ptx; }

# kernel, which line of it (0: each) that has a pattern, text in it, what comes there instead: the file
# $work/planted.ptx. An instruction that goes leaves an empty line.
plant() {
    awk -v kernel="$1" -v nth="$2" -v pattern="$3" -v text="$4" -v by="$5" '
        /^[.a-z ]*\.entry/ {inside = $0 ~ kernel}
        inside && $0 ~ pattern && (nth == 0 || ++n == nth) {count += sub(text, by)}
        {print}
        END {exit !count}' build/canonical.ptx >"$work/planted.ptx" || {
        echo "no place for $*"
        return 1
    }
}
# A kernel's products and sums, fused where a sum follows its product.
plant_fused() {
    awk '
        /^[.a-z ]*\.entry/ {inside = /k_c_normIf/}
        inside && /(mul|add)\.rn\.f32/ {
            line = $0
            gsub(/[,;]/, " ", line)
            split(line, word, " ")
            if (word[1] ~ /mul/) {
                product = word[2]
                factors = word[3] ", " word[4]
            } else if (product == word[3] || product == word[4]) {
                $0 = "fma.rn.f32 " word[2] ", " factors ", " (product == word[3] ? word[4] : word[3]) ";"
                count++
            }
        }
        {print}
        END {exit !count}' build/canonical.ptx >"$work/planted.ptx"
}
finds() { # test, text: the planted fault is found by a test, which says so
    ! PTX=$work/planted.ptx build/test_cuda_emu --only "$1" >"$work/said" 2>&1 &&
        grep -m 1 -e "$2" "$work/said" && return
    echo "not found: $2"
    cat "$work/said"
    return 1
}
# name of the test, what is said, kernel, which line, pattern, text, instead
faults='
tensor_cores|has not waited for its copies|tile_products|0|cp.async.wait_all|cp.async.wait_all;|
tensor_cores|no barrier between this and a write|tile_products|1|bar.sync|bar.sync[^;]*;|
tensor_cores|CHECK(wrong == 0)|tile_products|1|ldmatrix|]|+128]
tensor_cores|has not waited for its copies|tile_products|1|xor.b32|xor|or
tensor_cores|an unknown instruction at "mma.sync|tile_products|1|mma.sync|m16n8k16|m16n8k8
tp_losses|no barrier between this and|k_loss_statsIf|2|bar.sync|bar.sync[^;]*;|
tp_losses|shared memory is read that was never written|k_loss_statsIf|1|st.shared|st.shared[^;]*;|
casts|ptx: memory is read that was never written|k_castIf14|0|ld.global|]|+32800]
casts|out of bounds|k_castIf14|0|ld.global|]|+1048576]
casts|is not aligned|k_castIf14|0|ld.global.v4|]|+4]
casts|another block of the grid has written|k_castIf14|1|%ctaid.x|%ctaid.x|0
zero_update|no barrier between this and a read|k_updateILi0ELi2ELi2|0|bar.warp.sync|bar.warp.sync[^;]*;|
casts|cast as par_cast does|k_castI13par__cuda_f16f|1|cvt.rn.f16x2|cvt.rn.f16x2|cvt.rn.bf16x2
'
planted() {
    while IFS='|' read -r t said kernel nth pattern text by; do
        [ -z "$t" ] || { plant "$kernel" "$nth" "$pattern" "$text" "$by" && finds "$t" "$said"; } || return 1
    done <<<"$faults"
    plant_fused && finds canonical_kernels "differs by"
}
check "PTX: casts, reductions, optimizers" elements
check "PTX: rows, losses, codes" layers
check "PTX: tensor cores, attention" matrices
check "PTX: canonical training" canonical
check "PTX: planted faults" planted

# All tests, but those of the canonical kernels, which the text with fused products does not have.
every_test() {
    run "$1" $(sed -n 's/^    {"\([a-z_0-9]*\)", .*/\1/p' tests/test_cuda.cu | grep -v -e "${2:-^$}") &&
        all_have_ptx && cp "$work/log" "$shared/log.$(basename "$1")"
}
approximate() {
    export PTX_APPROXIMATE=1
    run build/canonical.ptx low_precision &&
        run build/test_cuda.ptx tp_rows tp_losses tp_attention ring_blocks models seeds
}
fuzz() { # other numbers each time
    export PAR_TEST_COUNT=100 PAR_TEST_SEED=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    echo "seed $PAR_TEST_SEED"
    run build/canonical.ptx random_numbers && run build/test_cuda.ptx random_numbers
}
# But for those of the sort of a library, and these, which no test launches: casts to the same type, which are
# copies, and products of bf16 where there is no cuBLASLt.
unlaunched='_Z16par__cuda_k_castI[^ ]*S0_Ev|_Z16par__cuda_k_castIffEv|_Z16par__cuda_k_gemmI14'
every_kernel() {
    awk '/\.entry/ && !/3cub/ {sub(/.*entry /, ""); sub(/\(.*/, ""); print}' build/canonical.ptx |
        sort >"$work/all"
    sed -n 's/^ptx //p' "$shared/log.canonical.ptx" | sort -u >"$work/ran"
    ! comm -23 "$work/all" "$work/ran" | grep -vE "$unlaunched"
}
if [ -n "${SOAK-}" ]; then
    check "PTX: all tests" every_test build/canonical.ptx
    check "PTX: all tests, with fused products" every_test build/test_cuda.ptx '^canonical_'
    check "PTX: functions that are approximate" approximate
    check "PTX: random numbers" fuzz
    finish
    check "PTX: every kernel has run" every_kernel
fi
summary

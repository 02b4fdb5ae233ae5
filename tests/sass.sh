# What nvcc made of par_cuda.cuh's kernels, counted in their instructions, against budgets; no GPU is needed:
#
#     bash tests/sass.sh CUBIN [REGISTERS]     REGISTERS: what nvcc -Xptxas -v said
#
# CUBIN may also be what nvdisasm -c -ndf said of it.
# Prints a row for each kernel: registers; instructions; loads and stores of global memory in 128 bits, and in
# all; accesses of local memory (arrays that are not in registers), accesses whose memory is not known before
# they run (generic), packed conversions to 16 bits. Status 1: a kernel is over its budget; 2: wrong
# arguments; 77: there is no nvdisasm.
CDPATH= cd "$(dirname "$0")/.." || exit 2
[ -r "${1-}" ] || {
    echo "usage: $0 CUBIN [what nvcc -Xptxas -v said]" >&2
    exit 2
}
listing() {
    case $(head -c 4 "$1" | tr -d '\0') in
    *ELF) "$disassembler" -c -ndf "$1" 2>/dev/null ;;
    *) cat "$1" ;;
    esac
}
disassembler=$(bash tests/cuda_find.sh nvdisasm) || exit 77

# kernels (a pattern of their names without par__cuda_k_): local and generic accesses, at most; 128-bit loads
# and stores, packed conversions, at least; products of tensor cores, at least. A kernel has the budget of the
# first row that it matches. No kernel may have a place between its products where lanes part and meet (BSSY).
budgets='
flash_forwardILi64 0 0 8 8 32 128
flash_forwardILi128 0 0 8 16 32 128
flash_forwardILi256 0 0 8 16 64 128
flash_backward_kvILi64 0 0 8 16 64 128
flash_backward_kvILi128 0 0 8 16 64 128
flash_backward_kvILi256 0 0 8 16 32 96
flash_backward_qILi64 0 0 8 8 32 96
flash_backward_qILi128 0 0 8 8 32 96
flash_backward_qILi256 0 0 8 16 64 96
attention_(forward|backward) 0 0 4 0 0
^c_attentionI 330 0 0 0 0
^(update|momentum)_part 0 0 0 0 0
^canonical_gemm 35 0 0 0 0
^reduce.*Li1E|^tree_sum 0 0 0 0 0
^reduceI(13|14)par__cuda_b?f16 0 0 4 1 4
^reduce 0 0 4 1 0
^cast_any 0 0 0 0 0
^castI(13|14)par__cuda_b?f16[0-9S].*f8 0 0 0 1 4
^castI17 0 0 0 0 0
^castIf17 0 0 0 2 0
^cast(I13|I14).* 0 0 1 1 4
^castI 0 0 1 2 0
^update|^momentum 0 0 6 6 8
^lamb_norms 0 0 8 0 0
^scale 0 0 2 2 0
^sum_squares 0 0 1 0 0
^embed_piecesI14 0 0 3 2 0
^embed_ 0 0 0 0 0
^sum_rowsI14 0 0 4 0 0
^sum_rowsIf 0 0 8 0 0
^ropeI14 0 0 6 2 8
^ropeIf 0 0 8 4 0
^positions_backwardI14 0 0 6 2 0
^positions_backwardIf 0 0 10 2 0
^loss_forward_backwardI14 0 0 4 1 4
^norm(_backward)?I.*norm_size3 0 0 0 0 0
^(norm|elementwise|add_bias|embed|loss_(forward_)?backward)[_a-z]*I14 0 0 1 1 4
^(norm|elementwise|add_bias|embed|loss_(forward_)?backward)[_a-z]*If 0 0 2 2 0
^loss_stats 0 0 1 0 0
^(dropout|positions)I14 0 0 1 1 4
^(dropout|positions)If 0 0 2 2 0
^codesI 0 0 4 1 16
^pack 0 0 1 1 0
^unpackIf 0 0 1 2 0
^unpack 0 0 1 1 4
^init|^rope_table 5 0 0 0 0
^decide 0 52 0 0 0
^[a-z] 0 0 0 0 0'

# Architectures on which ptxas (13.0) keeps less in registers than on sm_90a: local and generic accesses, at
# most, and packed conversions, at least, where they are others. These hold what is there; they are to be
# lowered. Codes of 8 bits have an instruction from sm_89 on.
architectures='
sm_80 ^flash_backward_kvILi64 2 0
sm_80 ^flash_forwardILi256 24 0
sm_80 ^flash_forwardILi128 8 0
sm_80 ^flash_forwardILi64 2 0
sm_80 ^codes 0 0 0
sm_100 ^attention_forward 0 1
sm_100 ^flash_backward_kvILi64 23 0
sm_100 ^canonical_gemm 44 0'

listing "$1" | budgets=$budgets architectures=$architectures awk '
    BEGIN { # what ptxas said: "... entry function NAME for ...", later "Used N registers"
        while (ARGV[1] != "" && (getline line <ARGV[1]) > 0) {
            if (line ~ /entry function/) {
                split(line, part, "\047")
                of = part[2]
            }
            if (match(line, /Used [0-9]+ registers/)) registers[of] = substr(line, RSTART + 5, RLENGTH - 15)
        }
        ARGV[1] = "-"
    }
    $1 == ".target" {architecture = $2}
    /^\.text\./ { # a kernel begins; CUB has its own
        name = substr($0, 7, length($0) - 7)
        if (name ~ /par__cuda_k_/) names[++count] = name
        next
    }
    match($0, /^ *\/\*[0-9a-f]+\*\/ +/) {
        instruction = substr($0, RLENGTH + 1)
        sub(/^@!?U?P[0-9T]+ +/, "", instruction)
        code = instruction
        sub(/[ ;].*/, "", code)
        all[name]++
        if (code ~ /^LDG/) loads[name]++
        if (code ~ /^STG/) stores[name]++
        if (code ~ /^LDG.*\.128/) wide_loads[name]++
        if (code ~ /^STG.*\.128/) wide_stores[name]++
        if (code ~ /^(LDL|STL)/) locals[name]++
        if (code ~ /^(LD|ST)(\.|$)/) generic[name]++
        if (code ~ /^F2FP/) pairs[name]++
        if (code ~ /^HMMA/) {
            if (products[name]++) parted[name] += parts
            parts = 0
        }
        parts += code ~ /^BSSY/
    }
    function over(what, n, limit, sign) {
        if (sign * n > sign * limit) {
            printf "%s: %d %s, and its budget is %s %d\n", short, n, what,
                (sign > 0 ? "at most" : "at least"), limit
            bad = 1
        }
    }
    END {
        rows = split(ENVIRON["budgets"], row, "\n")
        exceptions = split(ENVIRON["architectures"], exception, "\n")
        printf "%-58s %9s %12s %9s %9s %6s %7s %6s %8s\n", "kernel", "registers", "instructions", "loads",
            "stores", "local", "generic", "packed", "products"
        for (i = 1; i <= count; i++) {
            name = names[i]
            short = name
            sub(/^_Z[0-9]+par__cuda_k_/, "", short)
            printf "%-58.58s %9s %12d %4d of %3d %3d of %3d %4d %7d %6d %8d\n", short, registers[name],
                all[name], wide_loads[name], loads[name], wide_stores[name], stores[name], locals[name],
                generic[name], pairs[name], products[name]
            for (k = 2; k <= rows; k++) {
                split(row[k], b, " ")
                if (short !~ b[1]) continue
                for (e = 2; e <= exceptions; e++) {
                    split(exception[e], own, " ")
                    if (own[1] == architecture && short ~ own[2]) {
                        b[2] = own[3]
                        b[3] = own[4]
                        if (own[5] != "") b[6] = own[5]
                    }
                }
                over("accesses of local memory", locals[name], b[2], 1)
                over("generic accesses", generic[name], b[3], 1)
                over("loads of 128 bits", wide_loads[name], b[4], -1)
                over("stores of 128 bits", wide_stores[name], b[5], -1)
                over("packed conversions", pairs[name], b[6], -1)
                over("products of tensor cores", products[name], b[7], -1)
                over("places between products where lanes part", parted[name], 0, 1)
                break
            }
        }
        if (count < 50) {
            print "only " count + 0 " kernels were found"
            bad = 1
        }
        exit bad
    }' "${2-}"

# How long nvcc takes for a program that adopts the kit, in seconds of processor time, by its phases: the
# host's compiler, cudafe++ and cicc (the device's front end and optimizer), ptxas (the assembler).
#
#     bash bench/compile_time.sh [ARCH]      one JSON object a program; ARCH: 90a
set -eu
shopt -s extglob
cd "$(dirname "$0")/.."
nvcc=$(bash tests/cuda_find.sh nvcc) arch=${1:-$(bash tests/cuda_find.sh archs native | cut -d' ' -f1)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TIMEFORMAT='%U %S'
compile() { # name, then what it includes
    local name=$1 line phase
    shift
    {
        [ "${LINKED-}" ] || echo '#define PAR_IMPLEMENTATION'
        printf '#include "%s"\n' "$@" par_cuda.cuh
        echo 'int main() { return 0; }'
    } >"$work/program.cu"
    : >"$work/times"
    "$nvcc" --dryrun --keep-dir "$work" --keep -std=c++17 -O3 ${LINKED-} -I. \
        -gencode=arch=compute_$arch,code=sm_$arch -c "$work/program.cu" -o "$work/program.o" 2>&1 |
        sed 's/^#\$ //' >"$work/commands"
    while IFS= read -r line; do
        case $line in
        [A-Z_]*([A-Z_])=*)
            eval "${line%%=*}='${line#*=}'"
            export "${line%%=*}"
            continue
            ;;
        gcc*" -E "*) phase=preprocessor ;;
        gcc*) phase=host ;;
        cudafe*) phase=cudafe ;;
        *cicc*) phase=cicc ;;
        ptxas*) phase=ptxas ;;
        *) phase=other ;;
        esac
        echo "$phase $({ time eval "$line" >"$work/log" 2>&1; } 2>&1)" >>"$work/times"
    done <"$work/commands"
    [ -s "$work/program.o" ] || { cat "$work/log" && exit 1; }
    awk -v name="$name" -v arch="$arch" '
        {t[$1] += $2 + $3; sum += $2 + $3}
        END {
            printf "{\"compile\":\"%s\",\"arch\":\"sm_%s\",\"cpu_s\":%.1f", name, arch, sum
            for (p in t) printf ",\"%s_s\":%.1f", p, t[p]
            print "}"
        }' "$work/times"
}
compile "collectives"
compile "collectives, ZeRO" par_zero.h
compile "collectives, tensor parallelism" par_tp.h
compile "all layers" par_tp.h par_zero.h par_pipe.h
LINKED=$(printf -- "-DPAR_%s_IMPLEMENTED " H FILES MATH ZERO CUDA)
compile "linked to the kit" par_zero.h

# What the checks need and this machine lacks: says which packages, and why, then installs them where it may.
# INSTALL=0 (make check INSTALL=0) installs nothing: what needs them is skipped. Arguments: tiers.
tiers=${*:-check release}
case ${INSTALL:-1} in
0 | 1) ;;
*)
    echo "INSTALL is 0 (install nothing) or 1, not \"$INSTALL\"" >&2
    exit 2
    ;;
esac

# tier | a command, header:, library: or static: (a compiler that links so) | Debian package | what needs it
wanted="check|gcc|gcc|every program
check|g++|g++|the headers as C++; par_cuda.cuh on emulated GPUs
check|make|make|every program
release|clang|clang|the headers by another compiler; fuzzers and sanitizers
check|clang-format|clang-format|the layout of the sources
check|mpicc.mpich|libmpich-dev|programs built with PAR_MPI for MPICH
check|mpiexec.mpich|mpich|the same, run
release|mpicc.openmpi|libopenmpi-dev|programs built with PAR_MPI for Open MPI
release|mpiexec.openmpi|openmpi-bin|the same, run
release|musl-gcc|musl-tools|the headers with another C library
release|aarch64-linux-gnu-gcc|gcc-aarch64-linux-gnu|par.h and the same bits on ARM
release|static:aarch64-linux-gnu-gcc|libc6-dev-arm64-cross|the same
release|qemu-aarch64|qemu-user|the same, run
release|header:dnnl.h|libdnnl-dev|matrix products by oneDNN
release|library:openblas|libopenblas-dev|matrix products by OpenBLAS
release|chromium|chromium|the API reference in a browser
check|ip|iproute2|two hosts, as network namespaces"

found() { # an entry of the second column
    case $1 in
    library:*) echo 'int main(void) { return 0; }' | gcc -x c - -o /dev/null "-l${1#library:}" 2>/dev/null ;;
    static:*) echo 'int main(void) { return 0; }' | "${1#static:}" -static -x c - -o /dev/null 2>/dev/null ;;
    header:*) echo "#include <${1#header:}>" | gcc -E -x c - -o /dev/null 2>/dev/null ;;
    chromium) command -v chromium || command -v chromium-browser || command -v google-chrome ;;
    *) command -v "$1" ;;
    esac >/dev/null 2>&1
}
install_packages() { # names, that have been said
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    if [ "${INSTALL:-1}" = 0 ]; then
        echo "INSTALL=0: nothing is installed, and what needs these is skipped"
    elif ! command -v apt-get >/dev/null 2>&1; then
        echo "no apt-get here: please install what your system calls these; what needs them is skipped"
    elif [ -n "$as_root" ] && ! $as_root true 2>/dev/null; then
        echo "this user may not install: what needs them is skipped. Please run: apt-get install $*"
    else
        echo "installing: apt-get install $* (make check INSTALL=0 does without)"
        log=$(mktemp)
        $as_root apt-get update -q >/dev/null 2>&1
        install="$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends"
        $install "$@" >"$log" 2>&1 || for package; do # those that there are
            $install "$package" >"$log" 2>&1 || { echo "could not install: $package" && tail -n 5 "$log"; }
        done
        rm -f "$log"
    fi
}
need_packages() { # rows of the table
    missing=""
    while IFS='|' read -r tier what package why; do
        [[ " $tiers " = *" $tier "* ]] || continue
        found "$what" && continue
        [ -n "$missing" ] || echo "not here, and what needs it:"
        printf '    %-18s %s\n' "$package" "$why"
        missing="$missing $package"
    done <<<"$1"
    [ -z "$missing" ] || install_packages $missing
}
need_packages "$wanted"
[[ $tiers = *release* ]] || exit 0
if found clang; then # what clang links for -fsanitize=fuzzer is a package of its own
    fuzzer() {
        echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' |
            clang -x c -fsanitize=fuzzer - -o /dev/null 2>/dev/null
    }
    fuzzer ||
        need_packages "release|library of clang|libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev|$(
        )fuzzers and sanitizers"
fi
if bash tests/cuda_find.sh nvcc >/dev/null 2>&1 && ! bash tests/cuda_find.sh nvdisasm >/dev/null 2>&1; then
    wheel=nvidia-cuda-nvdisasm # 5 MB, of one program
    echo "pip's $wheel is not here; the budgets of the kernels' instructions need it"
    if [ "${INSTALL:-1}" = 0 ]; then
        echo "INSTALL=0: it is not installed, and they are skipped"
    elif ! python3 -m pip install -q --disable-pip-version-check --root-user-action ignore \
        --target build/nvdisasm "$wheel==13.*" </dev/null; then
        echo "could not install: $wheel"
    fi
fi
exit 0

# make check: install what is missing where that is allowed, then every test. Ends with "N passed, N failed, N skipped".
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0 begun=$(date +%s)

# a command, file or library -> its Debian package
wanted="gcc:gcc g++:g++ make:make clang:clang clang-format:clang-format mpicc.mpich:libmpich-dev mpiexec.mpich:mpich
mpicc.openmpi:libopenmpi-dev mpiexec.openmpi:openmpi-bin file:/usr/include/dnnl.h:libdnnl-dev library:openblas:libopenblas-dev gnuplot:gnuplot-nox ip:iproute2"
missing=""
for w in $wanted; do
    package=${w##*:} what=${w%:*}
    case $what in
    library:*) echo 'int main(void) { return 0; }' | gcc -x c - -o /dev/null "-l${what#library:}" 2>/dev/null || missing="$missing $package" ;;
    file:*) [ -e "${what#file:}" ] || ls /usr/include/*/"$(basename "${what#file:}")" >/dev/null 2>&1 || missing="$missing $package" ;;
    *) command -v "$what" >/dev/null 2>&1 || missing="$missing $package" ;;
    esac
done
install_packages() { # names; 1: not installed
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "missing; please install what your system calls: $*"
        return 1
    fi
    if [ -n "$as_root" ] && ! $as_root true 2>/dev/null; then
        echo "missing, and this user may not install: $*"
        echo "    please run: apt-get install $*"
        return 1
    fi
    echo "installing: $*"
    $as_root apt-get update -q >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends "$@" >build.install.log 2>&1 ||
        { echo "could not install: $*"; tail -n 5 build.install.log; }
    rm -f build.install.log
}
[ -z "$missing" ] || install_packages $missing
if command -v clang >/dev/null 2>&1; then # what clang links for -fsanitize=fuzzer is a package of its own
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' |
        clang -x c -fsanitize=fuzzer - -o /dev/null 2>/dev/null || install_packages "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
fi

part() { # name, command ...
    name=$1
    shift
    start=$(date +%s)
    echo "== $name"
    "$@" 2>&1 | tee build/part.log | grep --line-buffered -v '^[0-9]* passed'
    status=${PIPESTATUS[0]}
    line=$(grep '^[0-9]* passed, [0-9]* failed' build/part.log | tail -n 1)
    if [ -z "$line" ]; then
        echo "FAIL $name: it ended without a count (status $status)"
        failed=$((failed + 1))
        return
    fi
    set -- $line
    passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
    echo "   $1 passed, $3 failed, $5 skipped, $(($(date +%s) - start)) s"
}

mkdir -p build
make -s build/test_par build/test_zero build/test_pipe build/test_tp build/test_golden build/gpt build/01_hello build/bench_coll build/bench_zero build/bench_pipe build/bench_tp build/corpus.txt || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
part "lint" bash tests/lint.sh
part "compile" bash tests/compile.sh
part "par.h" build/test_par
part "par_zero.h" build/test_zero
part "par_pipe.h" build/test_pipe
part "par_tp.h" build/test_tp
part "PyTorch" build/test_golden
part "par_cuda.cuh" bash tests/cuda.sh
part "programs" bash tests/programs.sh
part "tcp" bash tests/tcp.sh
part "mpi" bash tests/mpi.sh
part "sanitizers" bash tests/sanitize.sh
echo "($(($(date +%s) - begun)) s)"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]

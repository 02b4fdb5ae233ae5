# make check: install what is missing where that is allowed (not with INSTALL=0), then every test. Ends with "N passed, N failed, N skipped".
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0 begun=$(date +%s)

bash tests/packages.sh || exit

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
make -s build/test_par build/test_zero build/test_pipe build/test_tp build/test_golden build/test_errors build/gpt build/01_hello build/04_zero build/bench_coll build/bench_zero build/bench_pipe build/bench_tp build/corpus.txt || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
part "lint" bash tests/lint.sh
part "compile" bash tests/compile.sh
part "par.h" build/test_par
part "par_zero.h" build/test_zero
part "par_pipe.h" build/test_pipe
part "par_tp.h" build/test_tp
part "errors" build/test_errors
part "PyTorch" build/test_golden
part "par_cuda.cuh" bash tests/cuda.sh
part "programs" bash tests/programs.sh
part "tcp" bash tests/tcp.sh
part "hostile" bash tests/hostile.sh
part "mpi" bash tests/mpi.sh
part "sanitizers" bash tests/sanitize.sh
echo "($(($(date +%s) - begun)) s)"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]

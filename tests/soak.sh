# make soak: every test in every setting, what the scripts leave out of make check, then random operations
# and random problems of the planner with new seeds, for SOAK_SECONDS (600).
CDPATH= cd "$(dirname "$0")/.." || exit 1
. tests/environment.sh
passed=0 failed=0
export SOAK=1
for t in "build/test_par --full" "build/test_zero --full" "build/test_pipe --full" "build/test_tp --full" \
    "build/test_par --only late --launch fork --ranks 200" "bash tests/compile.sh" "bash tests/cuda.sh" \
    "bash tests/ptx.sh" "bash tests/programs.sh" "bash tests/bits.sh" "bash tests/mpi.sh" \
    "bash tests/mpi_shim.sh" "bash tests/lessons.sh" "bash tests/bindings.sh" "bash tests/sanitize.sh"; do
    echo "== $t"
    $t 2>&1 | tee build/soak.log | grep --line-buffered -v '^[0-9]* passed'
    status=${PIPESTATUS[0]}
    set -- $(grep '^[0-9]* passed, [0-9]* failed' build/soak.log | tail -n 1)
    passed=$((passed + ${1:-0})) failed=$((failed + ${3:-1}))
    [ "$status" = 0 ] || [ "${3:-1}" != 0 ] || {
        echo "FAIL $t: status $status, although nothing failed"
        failed=$((failed + 1))
    }
done
until=$(($(date +%s) + ${SOAK_SECONDS:-600}))
while [ "$(date +%s)" -lt "$until" ]; do
    seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    for t in "PAR_TEST_COUNT=4000 build/test_par --only random_operations" \
        "PAR_TEST_COUNT=40 build/test_plan search"; do
        if env PAR_TEST_SEED="$seed" $t >build/soak.log 2>&1; then
            passed=$((passed + 1))
            echo "seed $seed passed: $t"
        else
            echo "FAIL: PAR_TEST_SEED=$seed $t"
            grep -e FAIL -e seed build/soak.log
            failed=$((failed + 1))
        fi
    done
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]

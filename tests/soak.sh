# make soak: random operations with new seeds, for SOAK_SECONDS (600).
cd "$(dirname "$0")/.." || exit 1
until=$(($(date +%s) + ${SOAK_SECONDS:-600})) passed=0 failed=0
while [ "$(date +%s)" -lt "$until" ]; do
    seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    if PAR_TEST_SEED=$seed PAR_TEST_COUNT=4000 build/test_par --only random_operations >build/soak.log 2>&1; then
        passed=$((passed + 1))
        echo "seed $seed passed"
    else
        echo "FAIL: PAR_TEST_SEED=$seed PAR_TEST_COUNT=4000 build/test_par --only random_operations"
        grep FAIL build/soak.log
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]

# make soak: every test in every setting, then random operations with new seeds, for SOAK_SECONDS (600).
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0
for t in par zero pipe tp; do
    echo "== test_$t --full"
    build/test_$t --full 2>&1 | tee build/soak.log | grep --line-buffered -v '^[0-9]* passed'
    set -- $(grep '^[0-9]* passed, [0-9]* failed' build/soak.log)
    passed=$((passed + ${1:-0})) failed=$((failed + ${3:-1}))
done
until=$(($(date +%s) + ${SOAK_SECONDS:-600}))
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

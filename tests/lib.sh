# Shared by the test scripts: each check runs a command with a deadline and shows its output only if it fails.
set -a # functions run in a shell of their own, under timeout
passed=0 failed=0 skipped=0 later_count=0
work=${TMPDIR:-/tmp}/par_check_$$
mkdir -p "$work" build
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

run_check() { # number, command ...: into a log and a status
    local log=$work/log.$1
    shift
    export -f $(compgen -A function)
    timeout -k 5 "${DEADLINE:-300}" bash -c '"$@"' check "$@" >"$log" 2>&1
    echo $? >"$log.status"
}
report() { # number, name, command ...
    local log=$work/log.$1 name=$2
    shift 2
    local status=$(cat "$log.status")
    case $status in
    0) passed=$((passed + 1)) ;;
    77) skip "$name" "$(tail -n 1 "$log")" ;;
    *)
        echo "FAIL $name (status $status): $*"
        tail -n 30 "$log" | cut -c1-300 | sed 's/^/    /'
        failed=$((failed + 1))
        ;;
    esac
}
check() { # name, command ...; a command that ends with 77 says on its last line what is missing
    local name=$1
    shift
    run_check 0 "$@"
    report 0 "$name" "$@"
}
later() { # the same, beside others, one for each processor: for what only compiles. `finish` reports them
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    later_count=$((later_count + 1))
    printf '%q ' "$@" >"$work/later.$later_count"
    shift
    run_check $later_count "$@" &
}
finish() {
    local i=0
    wait
    while [ $((i += 1)) -le $later_count ]; do eval "report $i $(cat "$work/later.$i")"; done
    later_count=0
}
skip() { # name, what to install
    echo "SKIP $1: $2"
    skipped=$((skipped + 1))
}
fails() { # status, text that must be said on stderr, command ...: for bad input
    local want=$1 text=$2 got
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$want" ] && grep -q -e "$text" "$work/err" && return 0
    echo "wanted status $want and \"$text\", got status $got:"
    cat "$work/err"
    return 1
}
have() { command -v "$1" >/dev/null 2>&1; }
# Of the trainer's JSON lines.
losses() { sed -n 's/.*"loss":\([^,]*\),"lr".*/\1/p' "$1"; }
same_losses() { # relative tolerance, file, file
    losses "$2" >"$work/l1" && losses "$3" >"$work/l2"
    [ -s "$work/l1" ] && [ "$(wc -l <"$work/l1")" = "$(wc -l <"$work/l2")" ] &&
    paste "$work/l1" "$work/l2" | awk -v t="$1" '{d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d} END {print "worst", worst; exit !(worst <= t)}'
}
suite() { # a test program and its arguments: shows its lines, and adds its counts
    "$@" 2>&1 | tee "$work/suite.log" | grep --line-buffered -E 'runs,|^FAIL|^    (==|.*CHECK|.*cuda_emu)'
    set -- $(grep '^[0-9]* passed, [0-9]* failed' "$work/suite.log" | tail -n 1)
    passed=$((passed + ${1:-0})) failed=$((failed + ${3:-1}))
}
port() { echo $((20000 + (RANDOM * 32768 + RANDOM) % 12000)); } # below those that the system gives away
ranks() { # n, command ...: as torchrun would start them, on this machine; outputs in $work/out.RANK
    local n=$1 r job status
    shift
    export WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-$(port)}
    for r in $(seq 1 $((n - 1))); do RANK=$r "$@" >"$work/out.$r" 2>&1 & done
    RANK=0 "$@" >"$work/out.0" 2>&1
    status=$?
    for job in $(jobs -rp); do wait $job || status=1; done
    cat "$work"/out.[0-9]*
    return $status
}
summary() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}

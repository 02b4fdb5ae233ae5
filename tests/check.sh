# bash tests/check.sh TIERS: install the packages that are missing (not with INSTALL=0), then run the tests
# of these tiers: check (make check), release (what make check-all adds to it). The last line is "N passed, N
# failed, N skipped". FAILED=1: run what failed last time first; if anything fails again, stop. Each check,
# and each setting of a test program, appends a line to build/check.log, with tabs between: seconds, ok or
# FAIL, part, name, the command that runs it again, seconds of processors; each line of a recipe of the
# Makefile to build/check.builds, with those of the user and of the system apart.
CDPATH= cd "$(dirname "$0")/.." || exit 1
. tests/environment.sh
exec </dev/null
case ${FAILED:-0} in
0 | 1) ;;
*)
    echo "FAILED is 0 or 1 (run what failed last time first), not \"$FAILED\"" >&2
    exit 2
    ;;
esac
tiers=${*:-check}
passed=0 failed=0 skipped=0 live=""
every=${CHECK_EVERY:-30} # seconds between progress lines in a log
[ -t 1 ] && live=1 every=1

# The tests look at processes there, and bash's <(...) needs /dev/fd, which leads there.
[ -r /proc/self/status ] && [ -e /dev/fd/0 ] || {
    echo "make check needs /proc and /dev/fd: mount -t proc proc /proc; ln -s /proc/self/fd /dev/fd" >&2
    exit 2
}
bash tests/packages.sh $tiers || exit
mkdir -p build
log=build/check.log builds=build/check.builds count=build/check.count.${tiers// /.}
tests="test_par test_zero test_pipe test_tp test_errors test_golden"
parts="lint compile $tests bits lessons cuda ptx programs tcp hostile mpi mpi_shim bindings reference"
parts+=" commands sanitize"

progress() { # on a terminal one line that changes; elsewhere a new line every $every seconds
    local ended last
    { ended=$(wc -l <"$CHECK_LOG") && last=$(tail -n 1 "$CHECK_LOG" | cut -f 4); } 2>/dev/null
    ended="$name: $ended${expected:+ of about $expected} checks, $SECONDS s${last:+; the last was $last}"
    if [ $live ]; then printf '\r\033[K%.100s\r' "$ended"; else echo "   ($ended)"; fi
    due=$((SECONDS + every))
}
# Parts begin, and are shown, in their order; the next one begins when all checks of this one have begun, so
# that no processor is idle during the last of them.
names=() commands=() outputs=() begins=()
part() { # name, command ...
    names+=("$1") commands+=("$(printf '%q ' "${@:2}")")
}
begin_parts() { # those that are due; $1 is shown
    local n from
    for ((n = ${#begins[@]}; n < ${#names[@]}; n++)); do
        [ $n = "$1" ] || [ -e "$begun/$((n - 1))" ] || return
        begins[n]=$SECONDS
        exec {from}< <(
            export CHECK_BEGUN=$begun/$n
            for from in "${outputs[@]}"; do exec {from}<&-; done
            eval "${commands[n]}" 2>&1
            printf '\nstatus %d\n' $?
        )
        outputs[n]=$from
    done
}
title() {
    [ "$shown" ] || printf "${live:+\r\033[K}== %s\n" "$name"
    shown=1
}
run_parts() {
    local n begun=build/check.begun
    rm -rf $begun && mkdir $begun || exit
    for n in "${!names[@]}"; do show_part $n; done
    names=() commands=() outputs=() begins=()
}
show_part() { # number: show its lines, add its counts; of a script without checks of this tier nothing
    local name=${names[$1]} due=$((SECONDS + every)) from line more="" status="" counts="" seconds shown=""
    begin_parts $1
    from=${outputs[$1]}
    while :; do
        if IFS= read -r -t 1 line <&$from; then
            line=$more$line more=""
            case $line in
            # do not wait for other processes that hold the pipe
            "status "*) status=${line#status } && break ;;
            [0-9]*" passed, "[0-9]*" failed"*) counts=$line ;;
            "") ;;
            *) title && printf "${live:+\r\033[K}%s\n" "$line" ;;
            esac
        elif [ $? -gt 128 ]; then
            more=$more$line
        else
            break
        fi
        begin_parts $1
        [ $SECONDS -lt $due ] || progress
    done
    exec {from}<&- && unset "outputs[$1]"
    [ -z $live ] || printf '\r\033[K'
    seconds=$((SECONDS - begins[$1]))
    [ "$status,$counts" != "0,0 passed, 0 failed, 0 skipped" ] || return
    title
    if [ -z "$counts" ]; then
        echo "FAIL $name: it ended without a count (status $status)"
        failed=$((failed + 1))
        return
    fi
    set -- $counts
    [ "$status" = 0 ] || [ "$3" != 0 ] || {
        echo "FAIL $name: status $status, although nothing failed"
        set -- "$1" "" 1 "" "$5"
    }
    passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
    echo "   $1 passed, $3 failed, $5 skipped, $seconds s"
}
end() {
    echo "($SECONDS s)"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
    exit
}
again() { # log: run the commands of its failures, one after the other
    local command targets good=0 bad=0
    cut -f 5 "$1" | sort -u >build/check.commands
    targets=$(grep -o 'build/[a-z0-9_]*' build/check.commands | sort -u)
    [ -z "$targets" ] || make -s $targets || return
    while IFS= read -r command; do
        echo "$command"
        if bash -c "$command" </dev/null >build/check.said 2>&1; then
            good=$((good + 1))
        else
            bad=$((bad + 1)) && grep -v '^[0-9]* passed' build/check.said
        fi
    done <build/check.commands
    echo "$good passed, $bad failed, 0 skipped"
    [ $bad = 0 ]
}
make_programs() {
    make -s -k -j"$(nproc)" build/{gpt,layers.o,par.o,corpus.txt} ${tests//test_/build/test_} &&
        echo "1 passed, 0 failed, 0 skipped"
}
build_ahead() { # what the scripts below run, one by one, while the tests leave processors idle
    local tier script program
    for tier in $tiers; do
        for script in $parts; do
            for program in $(TIER=$tier bash tests/$script.sh --programs); do
                nice flock build/making bash -c 'touch build/making && make -s "$0"' "$program"
            done
        done
    done >/dev/null 2>&1
}

# What takes most of the processors: parts, what is built, checks and test programs' tests.
costs() {
    awk -F'\t' '
        {
            spent = $6 + $7
            sub(/, [a-z]*, ranks .*/, "", $4)
            sum += spent; part[$3] += spent; one[$3 ": " $4] += spent
        }
        END {
            for (i in part) printf "1\t%8.1f s  %s\n", part[i], i
            for (i in one) printf "2\t%8.1f s  %s\n", one[i], i
            printf "1\t%8.1f s  all\n", sum
        }' $log $builds | sort -k 1,1n -k 2,2rn | awk -F'\t' '$1 == 1 || rows++ < 20 {print $2}'
}

expected=""
if [ "${FAILED:-0}" = 1 ]; then
    grep $'\tFAIL\t' $log >build/check.failed 2>/dev/null
    if [ -s build/check.failed ]; then
        export CHECK_LOG=build/check.again
        : >$CHECK_LOG
        part "what failed last time" again build/check.failed
        run_parts
        [ $failed = 0 ] || {
            echo "it fails again; $log stays as it was"
            end
        }
        passed=0
        echo "all that failed last time passes now; everything follows"
    else
        echo "nothing failed last time; everything follows"
    fi
fi
export CHECK_LOG=$log CHECK_BUILDS=$PWD/$builds
expected=$(cat "$count" 2>/dev/null)
: >$log && : >$builds
part "programs" make_programs
run_parts
[ $failed = 0 ] || end
set -m # a group of its own, to end it with all its compilers
build_ahead &
ahead=$!
set +m
trap 'kill -TERM -- -$ahead 2>/dev/null' EXIT
for tier in $tiers; do
    for name in $parts; do
        case $name,$tier in
        test_*,check) part $name build/$name ;;
        test_*) ;;
        *) part $name env TIER=$tier bash tests/$name.sh ;;
        esac
    done
done
run_parts
wc -l <$log >"$count"
echo "The slowest ten:"
sort -rn $log | head -n 10 | awk -F'\t' '{printf "%8.1f s  %s: %s\n", $1, $3, $4}'
echo "Seconds of processors:"
costs
[ $failed = 0 ] || {
    echo "What failed (FAILED=1 runs these first):"
    awk -F'\t' '$2 == "FAIL" {print "    " $5}' $log
}
end

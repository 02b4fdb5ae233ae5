# Shared by the test scripts. `check` runs a command in the background, with no input and a directory of its
# own ($work; the script's is $shared), and shows its output only if it fails. Two more checks run at a time
# than there are processors, because some wait; or $waiting more, which a script sets before where most wait.
# `release` before a check, a suite, or what is made: it is of make check-all, not of make check. TIER=check
# and TIER=release run one tier alone. With arguments a script runs only the checks of these names, of any
# tier; --list shows the names. CHECK_LOG=file gets a line for each check, as check.sh describes.
. tests/environment.sh
set -a # each check runs in a new shell under timeout, which needs the functions
passed=0 failed=0 skipped=0 count=0 running=0 listing=""
begun_file=${CHECK_BEGUN-} # make check wants it to be there when all checks have begun
unset CHECK_BEGUN
names=("$@") seen=() check_names=() check_commands=() check_lines=()
case ${1-} in --list) listing=checks ;; --programs) listing=programs ;; esac
[ -z "$listing" ] || exec 8>&1 >/dev/null # names alone, whatever else the script says
jobs_at_once=${CHECK_JOBS:-$(($(nproc) + ${waiting:-2}))}
tier=check
shared=${TMPDIR:-/tmp}/par_check_$$
work=$shared
mkdir -p "$shared" build
mkfifo "$shared/ended" && exec 7<>"$shared/ended" </dev/null || exit 1
stop_groups() { # signal: of the checks that still run
    local pid
    for pid in "$shared"/*.pid; do [ -e "$pid" ] && kill "-$1" -- "-$(cat "$pid")"; done
} 2>/dev/null
stop_checks() {
    kill "$watcher"
    stop_groups TERM
    wait
    rm -rf "$shared"
} 2>/dev/null
trap stop_checks EXIT
trap 'exit 130' INT TERM

# What hangs is ended, however busy the machine is, and what a busy machine starves is not: at 60 looks in
# succession all threads of all checks that run were asleep, and took less than a tenth of a processor. (What
# runs for ever ends when one of its processes has taken $SPEND seconds of a processor.)
LOOK=${LOOK:-5} SPEND=${SPEND:-${SOAK:+14}900} # seconds; a soak has checks of half an hour
look() { # ticks before, looks asleep before: those of now
    local found=$(grep -lzs "^CHECK_OF=.* $shared/" /proc/[0-9]*/environ)
    cat ${found//environ/task/[0-9]*/stat} </dev/null |
        awk -v was="$1" -v asleep="$2" -v seconds="$LOOK" '
        {
            sub(/.*\) /, "")
            if ($1 !~ /[SZXI]/) busy = 1
            ticks += $12 + $13 + $14 + $15
        }
        END {
            used = ticks - was
            if (used * used > 100 * seconds * seconds || !NR) busy = 1
            print ticks + 0, busy ? 0 : asleep + 1
        }'
}
watch() {
    local ticks=0 asleep=0 log found
    trap - EXIT INT TERM
    while sleep "$LOOK" && [ -d "$shared" ]; do
        read -r ticks asleep <<<"$(look "$ticks" "$asleep")"
        [ "$asleep" -ge 60 ] || continue
        for log in "$shared"/*.pid; do
            {
                for found in $(grep -lzs "^CHECK_OF=.* ${log%.pid}\( \|$\)" /proc/[0-9]*/environ); do
                    echo "${found//[^0-9]/} $(tr '\0' ' ' <"${found%environ}cmdline")"
                done
                echo "it hung: these were asleep at 60 looks, $LOOK s apart"
            } >>"${log%pid}log"
        done
        stop_groups TERM
        sleep 5
        stop_groups KILL
        asleep=0
    done
}
watcher=""
[ "$listing" ] || {
    watch >/dev/null 2>&1 7>&- &
    watcher=$!
}
release() { # command ...
    local tier=release
    "$@"
}
of_tier() { [ "${TIER:-$tier}" = "$tier" ]; }
wanted() { # name: is this check to run?
    local name
    of_tier || return
    [ "$listing" = checks ] && echo "$1" >&8
    [ -z "$listing" ] || return 1
    [ ${#names[@]} = 0 ] && return
    for name in "${names[@]}"; do [ "$name" = "$1" ] && seen+=("$1") && return; done
    return 1
}
# ok or FAIL, microseconds, name, command, seconds of processors: append a line to CHECK_LOG in one write
log_check() {
    local part=${CHECK_PART:-$(basename "$0" .sh)}
    [ -z "${CHECK_LOG-}" ] ||
        printf '%d.%02d\t%s\t%s\t%s\t%s\t%s\n' $(($2 / 1000000)) $(($2 / 10000 % 100)) \
            "$1" "$part" "$3" "$4" "$5" >>"$CHECK_LOG"
}
# command ...: run it. Where it is a function, $work.step has at the end the command that the function ran
# last.
run_steps() {
    declare -ft "$1" 2>/dev/null &&
        trap '[[ $BASH_COMMAND = return* ]] || printf "%s\n" "$BASH_COMMAND" 2>/dev/null >"$work.step"' DEBUG
    "$@"
}
# file:line where a function begins, its last command: show this command, and its line if only one is like it
step_of() {
    local file=${1%:*} start=${1##*:} begins=${2%% [<>]*}
    begins=${begins:0:40}
    local lines=$(begins=$begins awk -v start="$start" '
        NR > start && /^}/ {exit}
        NR >= start && index($0, ENVIRON["begins"]) {print NR}' "$file")
    [[ $lines =~ ^[0-9]+$ ]] && echo "    failed at $file:$lines: $2" || echo "    failed at: $2"
}
# number, name, command ...: run it, write its log and status, then send its number to the pipe "ended"
run_check() {
    local n=$1 name=$2 begun=${EPOCHREALTIME/[.,]/} status spent log=${CHECK_LOG-}
    [ -z "$name" ] || log="" # a suite logs its tests itself
    shift 2
    trap - EXIT INT TERM
    work=$shared/$n
    mkdir -p "$work"
    export -f $(compgen -A function)
    ulimit -S -t "$SPEND"
    CHECK_OF="${CHECK_OF-} $work" TIER='' CHECK_LOG=$log CHECK_BUILDS='' \
        timeout 0 bash -c 'run_steps "$@"' check "$@" >"$work.log" 2>&1 7>&- & # a process group of its own
    echo $! >"$work.pid"
    wait $! 2>>"$work.log"
    status=$?
    kill -KILL -- "-$!" 2>/dev/null # processes that it left behind
    rm "$work.pid"
    echo $status >"$work.status"
    times >"$work.times"
    spent=$(tail -n 1 "$work.times" | tr ms '  ' | awk '{printf "%.2f", 60 * ($1 + $3) + $2 + $4}')
    begun=$((${EPOCHREALTIME/[.,]/} - begun))
    case $name,$status in
    ,* | *,77) ;;
    *,0) log_check ok $begun "$name" "bash $0 $(printf %q "$name")" "$spent" ;;
    *) log_check FAIL $begun "$name" "bash $0 $(printf %q "$name")" "$spent" ;;
    esac
    echo $n >"$shared/ended"
}
place_of() { # function, else: file and line where it begins; if it is none, the second argument
    local function line file
    shopt -s extdebug
    if read -r function line file <<<"$(declare -F "$1")" && [ "$line" ]; then
        echo "$file:$line"
    else
        echo "$2"
    fi
}
# Of the first failures all that is known, so that one is understood which does not come again; of the rest
# what was wrong.
suite_lines() { # log
    awk '
        /^FAIL/ {failed++}
        /runs,|^FAIL/ || (/^    / && (failed <= 3 || /CHECK|cuda_emu|Sanitizer:|runtime error:/))' "$1"
}
excerpt() { # log: a sanitizer's report, if there is one, from its first line on; else the end
    local from=$(grep -nm 1 'Sanitizer:\|runtime error:' "$1" | cut -d : -f 1)
    if [ "$from" ]; then tail -n "+$from" "$1" | head -n 40; else tail -n 30 "$1"; fi | cut -c1-300
}
report_suite() { # number, its log: show its lines, add its counts
    local line=$(grep '^[0-9]* passed, [0-9]* failed' "$2" | tail -n 1) status=$(cat "$shared/$1.status")
    echo "-- ${check_commands[$1]}"
    suite_lines "$2"
    if [ -z "$line" ] || { [ "$status" != 0 ] && [ "${line#* passed, 0 failed}" != "$line" ]; }; then
        echo "FAIL ${check_commands[$1]} (status $status): ${line:-no count}"
        tail -n 5 "$2"
        failed=$((failed + 1))
        return
    fi
    set -- $line
    passed=$((passed + $1)) failed=$((failed + $3))
}
report() { # wait until a check or a suite ends, and count and show its result
    local n log place
    read -r n <&7
    log=$shared/$n.log running=$((running - 1))
    [ "${check_names[n]}" ] || {
        report_suite "$n" "$log"
        return
    }
    case $(cat "$shared/$n.status") in
    0) passed=$((passed + 1)) ;;
    77) skipped "${check_names[n]}" "$(tail -n 1 "$log")" ;;
    *)
        place=$(place_of "${check_commands[n]%% *}" "${check_lines[n]}")
        echo "FAIL ${check_names[n]} (status $(cat "$shared/$n.status"), $place): ${check_commands[n]}"
        [ ! -s "$shared/$n.step" ] || step_of "$place" "$(head -n 1 "$shared/$n.step")"
        excerpt "$log" | sed 's/^/    /'
        failed=$((failed + 1))
        ;;
    esac
    rm -rf "${shared:?}/$n"
}
start_check() { # name (a suite has none), command ...
    while [ $running -ge "$jobs_at_once" ]; do report; done
    count=$((count + 1)) running=$((running + 1))
    check_names[count]=$1 check_commands[count]=${*:2} check_lines[count]=$0:${BASH_LINENO[-2]}
    run_check $count "$@" &
}
check() { # name, command ...: status 77 means skipped; then the last line of the output says what is missing
    ! wanted "$1" || start_check "$@"
}
suite() { # test program and its arguments: like check, but it counts its tests itself, and logs them
    [ "$listing" ] || [ ${#names[@]} != 0 ] || ! of_tier || start_check "" "$@"
}
finish() { # wait for all checks that run; checks after it may use what they made
    while [ $running -gt 0 ]; do report; done
}
alone() { # like check, but no other check runs meanwhile: it measures time, or has many ranks
    finish
    check "$@"
    finish
}
made() { # build the programs that the checks run
    [ "$tier,${TIER-}" != release,check ] || return 0 # a release's checks run programs of make check's, too
    [ "$listing" != programs ] || echo "$@" >&8
    [ -z "$listing" ] && [ -z "${CHECK_MADE-}" ] || return 0
    # without waiting for who builds ahead, unless that is half written; the flags are always made again, so
    # that they would count as old
    make -s -q -o build/gemm.flags -o build/cc.flags -o build/fast.flags "$@" >/dev/null 2>&1 &&
        { flock -n build/making true || ! find "$@" -newer build/making | grep -q .; } && return
    flock build/making bash -c 'touch build/making && make -s -k -j"$(nproc)" "$@"' make "$@" \
        >"$shared/make" 2>&1 && return
    echo "FAIL make $*"
    tail -n 30 "$shared/make" | cut -c1-300 | sed 's/^/    /'
    failed=$((failed + 1))
    summary
    exit 1
}
skipped() {
    echo "SKIP $1: $2"
    skipped=$((skipped + 1))
}
skip() { # name, what to install
    [ "$listing" ] || ! of_tier || skipped "$@"
}
fails() { # status, text, command ...: the command must end with this status and write this text to stderr
    local want=$1 text=$2 got
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$want" ] && grep -q -e "$text" "$work/err" && return 0
    echo "wanted status $want and \"$text\", got status $got:"
    cat "$work/err"
    return 1
}
prints() { # text, command ...: the command succeeds, and writes this text to stdout
    local text=$1
    shift
    "$@" >"$work/printed" && grep -e "$text" "$work/printed" && return
    echo "wanted \"$text\" (status $?):"
    cat "$work/printed"
    return 1
}
await() { # command ...: until it succeeds; two minutes where it costs nothing, longer on a busy machine
    local try
    for try in {1..6000}; do
        "$@" 2>/dev/null && return
        sleep 0.02
    done
    echo "waited in vain for: $*"
    return 1
}
# gcc's options and files of a C program: link it with the implementations that build/par.o and build/layers.o
# have
link_kit() {
    gcc -DPAR_{H,FILES,MATH,TP,ZERO,PIPE,PLAN}_IMPLEMENTED -I. "$@" build/par.o build/layers.o -pthread -lm
}
have() { command -v "$1" >/dev/null 2>&1; }
losses() { # file: the losses in the trainer's JSON lines
    sed -n 's/.*"loss":\([^,]*\),"lr".*/\1/p' "$1"
}
same_losses() { # relative tolerance, file, file
    losses "$2" >"$work/l1" && losses "$3" >"$work/l2"
    [ -s "$work/l1" ] && [ "$(wc -l <"$work/l1")" = "$(wc -l <"$work/l2")" ] &&
        paste "$work/l1" "$work/l2" | awk -v t="$1" '
        {
            d = ($1 - $2) / $1
            if (d < 0) d = -d
            if (!(d <= t)) bad = 1
            if (d > worst) worst = d
        }
        END {print "worst", worst; exit bad}'
}
# file, names ...: of each JSON line that has fields of all these names their values
fields() {
    awk -v names="${*:2}" '
        BEGIN {n = split(names, name, " ")}
        {
            row = ""
            for (i = 1; i <= n; i++) {
                if (!match($0, "[{,]\"" name[i] "\":(\"[^\"]*\"|[^],}]*)")) next
                value = substr($0, RSTART + length(name[i]) + 4, RLENGTH - length(name[i]) - 4)
                gsub(/"/, "", value)
                row = row (i > 1 ? " " : "") value
            }
            print row
        }' "$1"
}
# file, pattern: it has lines, and each has this
every_line() { [ -s "$1" ] && ! grep -v -e "$2" "$1"; }
# What a checkpoint holds, without the random part of its files' names, and without the checksum of the
# manifest, which has these names.
checkpoint_content() {
    cat "$1"/*.json | sed -E 's/(-s[0-9]{6})-[0-9a-f]{8}-/\1-/; s/,"self":"[0-9a-f]{16}"}$/}/' &&
        cat "$1"/*.safetensors
}
# port: does a process listen there?
listens() {
    local hex=$(printf %04X "$1")
    grep -qi "^ *[0-9]*: [0-9A-F]*:$hex [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null
}
# a free port, reserved until this shell ends. It is below the ephemeral ports and those of ranks under srun.
# A file is only read: others can lock one that this user has made.
port() {
    local p dir=${TMPDIR:-/tmp}/par_ports lock try
    mkdir -p -m 1777 "$dir" 2>/dev/null
    for try in {1..1000}; do
        p=$((10000 + RANDOM % 10000))
        [ -e "$dir/$p" ] || (umask 022 && : >>"$dir/$p") 2>/dev/null
        { exec {lock}<"$dir/$p"; } 2>/dev/null || continue
        if flock -n $lock && ! listens $p; then
            tail --pid=$$ -f /dev/null >/dev/null 2>&1 7>&- & # holds the lock
            echo $p
            return
        fi
        exec {lock}<&-
    done
    echo "no port is free, or no file can be made in $dir" >&2
    return 1
}
# n, command ...: start n ranks on this machine with torchrun's variables; output goes to $work/out.RANK
ranks() {
    local n=$1 r job status pids=""
    shift
    export WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-$(port)}
    rm -f "$work"/out.[0-9]*
    for r in $(seq 1 $((n - 1))); do
        RANK=$r "$@" >"$work/out.$r" 2>&1 &
        pids="$pids $!"
    done
    RANK=0 "$@" >"$work/out.0" 2>&1
    status=$?
    for job in $pids; do wait $job || status=1; done
    cat "$work"/out.[0-9]*
    return $status
}
summary() {
    local name
    [ -z "$begun_file" ] || : >"$begun_file"
    finish
    [ -z "$listing" ] || return 0
    for name in "${names[@]}"; do
        [[ " ${seen[*]} " = *" $name "* ]] && continue
        echo "no check of $0 is called \"$name\"; bash $0 --list shows them" >&2
        exit 2
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}

# MPICH's own tests of MPI, under MPICH or Open MPI, as they are and with par_mpi.h preloaded:
#     bash bench/mpich_tests.sh [mpich|openmpi] ...   a table, under each MPI that is named, or that is here
#     MPICH_TAR=mpich-4.0.2.tar.gz ...  MPICH's sources, of which test/mpi is taken; unset: those that
#         apt-get downloads
#     WORK=directory (/tmp/par_mpich_tests) ...  of sources, programs and results. A run that was cut
#         short goes on there; results with the kit are kept for each shim by itself
#     DIRS="coll comm" RANKS="2 4" NODES="1 2" STAGES="build plain kit table" ...  of these only
#     SHIMS=directory LIMIT=30 SLOW=3 ...  where the shims are; seconds of a program without the kit; with the
#         kit twice as many, and only programs that take fewer than so many without
#     WHY=1 ...  also what each program printed that fails with the kit
# Nothing of MPICH is copied into this directory. A row of a testlist is a program with its arguments. It is
# run on 2 and on 4 ranks, or on as many as the list has at most; if it passes on neither, on the least number
# that the list has. With the kit are run those that pass without, on 1 node and on 2 that are pretended. One
# that fails is run once more, and differs only if it fails again and then passes without the kit.
CDPATH= cd "$(dirname "$0")/.." || exit 1
here=$PWD
work=${WORK:-${TMPDIR:-/tmp}/par_mpich_tests}
dirs=${DIRS:-coll comm threads topo attr errhan init pt2pt rma io spawn f77 f90}
ranks=${RANKS:-2 4}
nodes=${NODES:-1 2}
limit=${LIMIT:-30}
slow=${SLOW:-3}
stages=${STAGES:-build plain kit table}
job=par_mpich_tests_$$ # in the environment of its processes
mkdir -p "$work" && work=$(cd "$work" && pwd) || exit 1

sources() { # $work/mpi is test/mpi of MPICH
    local apt tar=${MPICH_TAR-}
    [ ! -e "$work/mpi/configure" ] || return 0
    if [ -z "$tar" ]; then # with lists of its own: the system's stay as they are
        mkdir -p "$work/apt/partial"
        . /etc/os-release
        echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
            "http://deb.debian.org/debian $VERSION_CODENAME main" >"$work/apt/sources.list"
        apt="-o Dir::Etc::sourcelist=$work/apt/sources.list -o Dir::Etc::sourceparts=-"
        apt+=" -o Dir::State::lists=$work/apt -o APT::Sandbox::User=$(id -un)"
        (cd "$work/apt" && apt-get -q $apt update &&
            apt-get -q $apt source --download-only mpich) >&2 || return
        tar=$(ls "$work"/apt/mpich_*.orig.tar.*)
    fi
    mkdir -p "$work/mpich" &&
        tar -xf "$tar" -C "$work/mpich" --strip-components=1 --wildcards '*/test/mpi/*' &&
        rm -rf "$work/mpi" && mv "$work/mpich/test/mpi" "$work/mpi" ||
        { echo "$0: $tar has no test/mpi" >&2 && return 1; }
    # names that MPI 3 has removed, and Open MPI with it
    sed -Ei 's/\bMPI_Type_(hvector|hindexed)\b/MPI_Type_create_\1/' "$work/mpi/dtpools/src/dtpools_custom.c"
}
# MPI: configure the tests, and compile those of the rows, in $work/MPI
build() {
    local kind=$1 dir
    mkdir -p "$work/$kind" && cd "$work/$kind" || return
    if [ ! -e testlist ]; then
        "$work/mpi/configure" --disable-cxx --enable-threads=multiple --enable-fortran=f77,f90 \
            --without-cuda CC=mpicc.$kind MPICC=mpicc.$kind F77=mpif77.$kind MPIF77=mpif77.$kind \
            FC=mpif90.$kind MPIFC=mpif90.$kind CFLAGS="-O0 -w" FFLAGS="-O0 -w -fallow-argument-mismatch" \
            FCFLAGS="-O0 -w -fallow-argument-mismatch" >configure.log 2>&1 9>&- ||
            { rm -f testlist && tail -n 5 configure.log >&2 && return 1; }
    fi
    # MPICH's ranks that wait never sleep: with more of them than processors a program takes 20 times as long
    cat >yield.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
unsigned ucp_worker_progress(void *worker) {
    static unsigned (*next)(void *);
    unsigned done;
    if (!next) next = (unsigned (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress");
    done = next(worker);
    if (!done) sched_yield();
    return done;
}
END
    gcc -O1 -shared -fPIC yield.c -o yield.so -ldl || return
    for dir in dtpools util; do make -k -j2 -C $dir >>make.log 2>&1 9>&-; done
    rows $kind | cut -f 1,2 | sort -u >built
    cut -f 1 built | uniq | while read -r dir; do
        nice make -k -j2 -C "$dir" $(awk -v dir="$dir" '$1 == dir {print $2}' built) >>make.log 2>&1 9>&-
    done
    cd "$here"
}
# MPI: directory, program, least and most ranks, environment, arguments of each row that can be run here
rows() {
    local dir
    for dir in $dirs; do lists "$1" $dir; done | awk -v OFS='\t' '
        $3 !~ /^[0-9]+$/ || / (xfail|mpiexecarg|resultTest)=/ || /count=4194304/ {next} # the last: minutes
        {
            env = args = ""; skip = 0
            for (i = 4; i <= NF; i++) {
                if ($i ~ /^arg=/) args = args " " substr($i, 5)
                if ($i ~ /^env=/) env = env " " substr($i, 5)
                if ($i ~ /^mem=/ && substr($i, 5) > 2) skip = 1
            }
            if (skip) next
            key = $1 OFS $2 OFS env OFS args
            if (!(key in most)) { order[++n] = key; least[key] = $3 }
            if ($3 < least[key]) least[key] = $3
            if ($3 > most[key]) most[key] = $3
        }
        END {
            for (i = 1; i <= n; i++) {
                split(order[i], part, OFS)
                print part[1], part[2], least[order[i]], most[order[i]], part[3] "", part[4] ""
            }
        }'
}
lists() { # MPI, directory: the lines of its testlist and of those below it, each after its directory
    local list=$work/$1/$2/testlist first rest
    [ -e "$list" ] || list=$work/mpi/$2/testlist
    [ -e "$list" ] || return
    while read -r first rest; do
        case $first in
        '' | '#'*) ;;
        *) if [ "$rest" ]; then echo "$2 $first $rest"; else lists "$1" "$2/$first"; fi ;;
        esac
    done <"$list"
}
# MPI, directory, ranks, nodes (0: without the kit), seconds, environment, command ...: a line with pass, fail
# or hang, and seconds; what the program printed is in $said
run() {
    local kind=$1 dir=$2 n=$3 on=$4 within=$5 environment=$6 preload="" result=fail status begun pid
    local start=(mpiexec.$kind -n $n)
    shift 6
    [ "$on" = 0 ] || preload=$shim
    case $kind in
    mpich)
        preload+=:$work/mpich/yield.so
        start+=(-env LD_PRELOAD "${preload#:}")
        ;;
    openmpi)
        start+=(--oversubscribe --bind-to none --mca btl_base_warn_component_unused 0)
        [ "$(id -u)" != 0 ] || start+=(--allow-run-as-root)
        [ -z "$preload" ] || start+=(-x LD_PRELOAD="$preload")
        ;;
    esac
    [ "$on" -lt 2 ] || environment+=" PAR_NODE_RANKS=$(((n + on - 1) / on))"
    begun=${EPOCHREALTIME/[.,]/}
    (cd "$work/$kind/$dir" && exec env PAR_MPICH_TESTS=$job $environment \
        timeout -k 3 "$within" "${start[@]}" "$@") >"$said" 2>&1 </dev/null 9>&-
    status=$?
    begun=$((${EPOCHREALTIME/[.,]/} - begun))
    # what is left of the job, whichever group and session it has moved to
    grep -lzxF "PAR_MPICH_TESTS=$job" /proc/[0-9]*/environ 2>/dev/null | while IFS=/ read -r _ _ pid _; do
        awk '$6 ~ "^/dev/shm/" {print $6}' /proc/$pid/maps >>"$said.shared"
        kill -KILL "$pid"
    done 2>/dev/null
    [ ! -s "$said.shared" ] || sort -u "$said.shared" | xargs rm -f
    rm -f "$said.shared"
    case $status in
    0) ! grep -qE '^ *No [Ee]rrors *$' "$said" || result=pass ;;
    124 | 137) result=hang ;;
    esac
    printf '%s\t%d.%02d\n' $result $((begun / 1000000)) $((begun / 10000 % 100))
}
# MPI, file of results, nodes, row: run it on $1 ranks unless the file has it
once() {
    local kind=$1 file=$2 on=$3 n=$4 within=$5 dir=$6 program=$7 environment=$8 arguments=$9 key got first
    key="$dir	$program$environment$arguments	$n	$on"
    got=$(grep -F "$key	" "$file" 2>/dev/null)
    if [ -z "$got" ]; then
        got=$(run "$kind" "$dir" "$n" "$on" "$within" "${environment# }" ./$program $arguments)
        if [ "$on" != 0 ] && [ "${got%	*}" != pass ]; then
            first=${got/	/ } && cp "$said" "$said.kit"
            got=$(run "$kind" "$dir" "$n" "$on" "$within" "${environment# }" ./$program $arguments)
            if [ "${got%	*}" = pass ]; then
                got="once	$first" # failed once, passed once
                cp "$said.kit" "$said"
            else
                cp "$said" "$said.kit"
                case $(run "$kind" "$dir" "$n" 0 "$within" "${environment# }" ./$program $arguments) in
                pass*) ;;
                *) got="flaky	0" ;; # MPI's own
                esac
                cp "$said.kit" "$said"
            fi
        fi
        case $got in pass*) ;; *)
            mkdir -p "$file.said"
            head -c 20000 "$said" >"$file.said/$(tr '\t /' '___' <<<"$key")"
            ;;
        esac
        printf '%s\t%s\n' "$key" "$got" >>"$file"
        [ -z "${SHOW-}" ] || printf '%s\t%s\n' "$key" "$got" >&2
    fi
    grep -qF "$key	pass	" "$file"
}
plain() { # MPI: every row without the kit
    local kind=$1 file=$work/results.$1.plain dir program least most environment arguments n passed
    rows $kind | tr '\t' '|' | while IFS='|' read -r dir program least most environment arguments; do
        [ -x "$work/$kind/$dir/$program" ] || continue
        passed=""
        for n in $ranks; do
            [ $n -le $most ] || n=$most
            once $kind "$file" 0 $n $limit "$dir" "$program" "$environment" "$arguments" && passed=1
        done
        [ "$passed" ] || [ -n "${least##[1-9]}" ] ||
            once $kind "$file" 0 $least $limit "$dir" "$program" "$environment" "$arguments"
    done
}
kit() { # MPI: with the kit what passes without
    local kind=$1 dir what n on result seconds program environment arguments
    cut -f 1-6 "$work/results.$kind.plain" | while IFS=$'\t' read -r dir what n on result seconds; do
        [ "$result" = pass ] && [ ${seconds%.*} -lt $slow ] && [[ " $dirs " = *" ${dir%%/*} "* ]] || continue
        set -- $what
        program=$1 environment="" arguments=""
        shift
        while [[ ${1-} = [A-Z]*=* ]]; do environment+=" $1" && shift; done
        arguments=${*:+ $*}
        for on in $nodes; do
            [ $on -le $n ] || continue
            once $kind "$results" $on $n $((2 * limit + 10 * ${seconds%.*})) "$dir" "$program" \
                "$environment" "$arguments"
        done
    done
}
table() { # MPI: a row for each directory, ranks and nodes, then the names that differ
    awk -F '\t' -v kind=$1 -v dirs="$dirs" '
        { top = $1; sub("/.*", "", top) }
        FILENAME ~ /plain$/ { ran[top]++; if ($5 == "pass") passed[top]++; next }
        {
            setting = top FS $4
            with[setting]++
            if ($5 == "pass" || $5 == "once" || $5 == "flaky") good[setting]++
            named = " `" $1 "/" $2 "` " $3
            if ($5 == "fail" || $5 == "hang") differ[setting] = differ[setting] named " (" $5 ");"
            if ($5 == "once") rare[setting] = rare[setting] named ";"
        }
        END {
            n = split(dirs, dir, " ")
            for (i = 1; i <= n; i++) for (on = 1; on <= 64; on++) {
                setting = dir[i] FS on
                if (!(setting in with)) continue
                sub(";$", "", differ[setting]); sub(";$", "", rare[setting])
                printf "| %s | %s | %d | %d of %d | %d of %d |%s%s |\n", kind, dir[i], on, passed[dir[i]], \
                    ran[dir[i]], good[setting], with[setting], differ[setting], \
                    rare[setting] ? " once of twice:" rare[setting] : ""
            }
        }' "$work/results.$1.plain" "$results"
    [ -z "${WHY-}" ] || tail -n 12 "$results.said"/* 2>/dev/null >&2
}
main() {
    kinds=${*:-mpich openmpi}
    for stage in $stages; do
        [ $stage != table ] ||
            printf '| %s | %s | %s | %s | %s | %s |\n|---|---|---|---|---|---|\n' MPI directory nodes \
                "pass as they are" "of these pass with the kit" "fail with the kit, on so many ranks"
        for kind in $kinds; do
            command -v mpicc.$kind >/dev/null || continue
            said=$work/$kind/said
            shim=${SHIMS:-$here/build}/libpar_mpi_$kind.so
            case $stage in kit | table)
                [ "${SHIMS-}" ] || make -s build/libpar_mpi_$kind.so || exit 1
                results=$work/results.$kind.$(cksum <"$shim" | cut -d ' ' -f 1)
                ;;
            esac
            case $stage in plain | kit)
                exec 9>"$work/$kind/lock"
                flock -n 9 || { echo "$0: another run uses $work/$kind" >&2 && exit 1; }
                ;;
            esac
            case $stage in
            build) sources && build $kind || exit 1 ;;
            plain | kit | table) $stage $kind ;;
            *) echo "$0: STAGES: build, plain, kit, table, not $stage" >&2 && exit 1 ;;
            esac
        done
    done
}
main "$@"
exit # what was read is what runs, though this file is edited meanwhile

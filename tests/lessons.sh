# Each lesson does what the comment at its top shows: the commands behind "$ ", and below each of them what it
# prints. cc and mpicc read the kit with the lesson, but link its objects; with SOAK=1 they compile it, too.
. tests/lib.sh

if [ -z "${SOAK-}" ]; then
    cc() { gcc -fsyntax-only "$@" && link_kit "$@"; }
    mpicc() {
        mpicc.mpich -fsyntax-only "$@" || return
        mpicc.mpich -DPAR_{H,FILES,MATH,TP,ZERO,PIPE,PLAN}_IMPLEMENTED "$@" build/kit_mpich.o \
            build/layers.o -lm
    }
else
    mpicc() { mpicc.mpich "$@"; }
fi
mpiexec() { mpiexec.mpich "$@"; }

session() { sed -n '/^\/\//!q;s|^//     ||p' "$1"; } # file: its commands and what they print
lesson() {                                           # file
    local command
    session "$1" >"$work/shown"
    grep -q '^[$] ' "$work/shown" || return 1
    ln -s "$PWD"/*.h "$PWD/examples" "$PWD/build" "$PWD/LICENSE" "$work" && cd "$work" || return 1
    sed -n 's/^[$] //p' shown | while read -r command; do
        printf '$ %s\n' "$command"
        bash -o pipefail -c "$command" 2>>errors </dev/null || echo "status $?" # an MPI may warn there
    done | sed 's/ *$//' >said
    diff shown said || { cat errors && return 1; }
}
grids() { # the same bits on any of them
    local ranks grid stage
    build/08_gpt LICENSE 2 >"$work/one" || return 1
    while IFS=, read -r ranks grid stage; do
        echo "$grid, stage $stage"
        PAR_RANKS=$ranks build/08_gpt LICENSE 2 "$grid" $stage >"$work/many" &&
            cmp "$work/one" "$work/many" || return 1
    done <<<"2,dp=2 pp=1 tp=1,3
2,pp=2 dp=1 tp=1,0
4,pp=1 dp=1 tp=4,1
6,pp=3 dp=2 tp=1,2"
}
mistakes() { # each is said
    wrong() { PAR_RANKS=$2 fails 1 "$1" "${@:3}"; } # text, ranks, command
    echo short >"$work/short"
    fails 2 "/nowhere: No such file" build/08_gpt /nowhere &&
        fails 2 "usage: .*TEXT" build/08_gpt "$work/short" &&
        wrong "must be microbatches x the number of ranks = 6, and is 8" 3 build/08_gpt LICENSE 1 &&
        wrong "ranks can be 1, 2 ... 4, .*, but are 3" 3 build/08_gpt LICENSE 1 "pp=1 dp=1 tp=3" &&
        wrong "needs 2 ranks, but there are 3" 3 build/08_gpt LICENSE 1 "pp=2 dp=-1 tp=1" &&
        wrong "pp is more than 6" 7 build/08_gpt LICENSE 1 "pp=7 dp=1 tp=1" &&
        wrong "this program has no I" 2 build/06_pipeline zb_h1 &&
        wrong "this program has no UPDATE" 2 build/06_pipeline pipedream_2bw &&
        wrong 'no schedule is called "1f1d"; did you mean 1f1b?' 2 build/06_pipeline 1f1d
}
made build/par.o build/layers.o build/06_pipeline build/08_gpt $(have mpicc.mpich && echo build/kit_mpich.o)
for file in examples/[0-9]*.c; do
    if grep -q '^//     [$] mpicc' "$file" && ! { have mpicc.mpich && have mpiexec.mpich; }; then
        skip "$file" "apt-get install mpich libmpich-dev"
        continue
    fi
    check "$file" lesson "$file"
done
check "08_gpt.c on other grids" grids
check "mistakes" mistakes
summary

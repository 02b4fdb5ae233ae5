# Each lesson does what the comment at its top shows: the commands behind "$ ", and below each of them what it
# prints. cc and mpicc link the kit's objects; with SOAK=1 they compile the kit, as on a reader's machine.
. tests/lib.sh

if [ -z "${SOAK-}" ]; then
    cc() { link_kit "$@"; }
    mpicc() {
        command mpicc.mpich -DPAR_{H,FILES,MATH,TP,ZERO,PIPE,PLAN}_IMPLEMENTED "$@" build/kit_mpich.o \
            build/layers.o -lm
    }
else
    mpicc() { command mpicc.mpich "$@"; }
fi
mpiexec() { mpiexec.mpich "$@"; }

session() { sed -n '/^\/\//!q;s|^//     ||p' "$1"; } # file: its commands and what they print
lesson() {                                           # file
    local command
    session "$1" >"$work/shown"
    grep -q '^[$] ' "$work/shown" || return 1
    ln -s "$PWD"/*.h "$PWD/examples" "$PWD/build" "$work" && cd "$work" || return 1
    sed -n 's/^[$] //p' shown | while read -r command; do
        printf '$ %s\n' "$command"
        bash -c "$command" 2>&1 </dev/null || echo "status $?"
    done | sed 's/ *$//' >said
    diff shown said
}
made build/par.o build/layers.o $(have mpicc.mpich && echo build/kit_mpich.o)
for file in $(grep -l "^//     [$] " examples/[0-9]*.c); do
    if grep -q '^//     [$] mpicc' "$file" && ! { have mpicc.mpich && have mpiexec.mpich; }; then
        skip "$file" "apt-get install mpich libmpich-dev"
        continue
    fi
    check "$file" lesson "$file"
done
summary

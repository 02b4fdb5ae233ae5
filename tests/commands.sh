# The commands of every page, manual, example and benchmark, each page's in a new copy of these files in which
# only programs of make check are built: compilers take the objects that it has made (prog.c is the page's own
# program, else the first example). What cannot be run stands in tests/commands.txt with the reason why. A
# command that has none is run; one that fails is wrong, or lacks its reason.
. tests/lib.sh

pages=$(ls ./*.md docs/*.md bench/results/*.md ./*.h ./*.cuh bindings/*.f90 bindings/*.hpp bindings/*.py \
    examples/*.md tests/*.md examples/*.c* examples/*.f90 examples/gpt/gpt.c* bench/*.[cs]* \
    tests/golden/*.py |
    sed 's|^\./||')
commands() { awk -f tests/commands.awk "$@" | awk '!seen[$0]++'; } # of pages: page, command
reason() { # command: why it is not run
    local why pattern
    while IFS=$'\t' read -r why pattern; do
        [[ $1 == $pattern ]] && echo "$why" && return
    done < <(grep -v '^#' tests/commands.txt)
    return 1
}
# compiler: in its place, links the kit's objects; makes none of par.h's, but takes that
stand_in() { # before the programs of PATH
    local real=$1 kit=$2
    cat <<END
#!/bin/bash
case " \$* " in
*" -x c -c par.h -o "*) exec cp "$kit" "\${@: -1}" ;;
*" -c "*) objects="" ;;
*) objects="$kit $PWD/build/layers.o" ;;
esac
export PATH=${PATH#*:} # an MPI's compiler calls another one
exec $real -O0 -DPAR_{H,FILES,MATH,TP,ZERO,PIPE,PLAN}_IMPLEMENTED \$objects "\${@/#-O[0-9]/-O0}"
END
}
stand_ins() {
    local name
    mkdir "$shared/bin"
    for name in cc gcc; do stand_in "$(command -v $name)" "$PWD/build/par.o" >"$shared/bin/$name"; done
    stand_in mpicc.mpich "$PWD/build/kit_mpich.o" >"$shared/bin/mpicc"
    echo 'exec mpiexec.mpich "$@"' >"$shared/bin/mpiexec"
    echo 'PATH=${PATH#*:} exec mpifort.mpich "${@/#-O[0-9]/-O0}"' >"$shared/bin/mpifort"
    echo 'PATH=${PATH#*:} exec gfortran "${@/#-O[0-9]/-O0}"' >"$shared/bin/gfortran"
    sed -i '1{/^#!/!s/^/#!\/bin\/bash\n/}' "$shared"/bin/* && chmod +x "$shared"/bin/*
    mkdir "$shared/files" && tar -c --exclude=./build --exclude=./.git . | tar -x -C "$shared/files"
    mkdir "$shared/files/build" && ln -s "$PWD"/build/* "$shared/files/build/" &&
        ln -sf "$PWD/build/bench_coll_test" "$shared/files/build/bench_coll"
}
tree() { # page: its copy of everything, with what its commands name
    local program
    cp -al "$shared/files" "$work/tree" && mkdir "$work/home" && cd "$work/tree" || return
    case $1 in
    *.md) # its blocks of C, C++, Fortran and Python; of the last three one is prog
        awk '/^```(c|cpp|f90|py)$/ {file = "page" ++n "." substr($0, 4); next} /^```$/ {file = ""}
            file {print > file}' "$1"
        for program in page*.cpp page*.f90 page*.py; do
            [ ! -e "$program" ] || cp "$program" "prog.${program##*.}"
        done
        ;;
    *.f90)
        sed -n '/^! *EXAMPLE$/,/^! *end program$/s/^!     //p' "$1" | sed 1d >prog.f90
        cp bindings/* .
        ;;
    *.py) sed -n '/^EXAMPLE$/,/^[A-Z]/p' "$1" | sed '1d;$d;s/^    //' >prog.py ;;
    *) sed -n '/^EXAMPLE$/,/^[A-Z]/p' "$1" | sed '1d;$d;s/^    //' >prog.c ;;
    esac
    program=$(grep -l '^int main' page*.c 2>/dev/null | head -n 1)
    grep -q '^int main' prog.c 2>/dev/null || cp "${program:-examples/01_hello.c}" prog.c
    [ -s prog.f90 ] || cp examples/fortran_heat.f90 prog.f90
    ln -s "$OLDPWD/build/01_hello" prog
    mkdir -p path/to && cp tests/golden/llama/config.json path/to && cp path/to/config.json config.json
    cp README.md FILE
}
tools() { # command: are the tools here that the kit itself does without?
    local words word
    read -ra words <<<"$1"
    for word in "${words[@]}"; do
        case $word in
        mpicc | mpifort | mpiexec) have $word.mpich || return ;;
        gfortran | openssl | clang-format | python3 | mpiexec.*) have "$word" || return ;;
        esac
    done
}
run_commands() { # page
    local page command failed=0 left=0 run=0
    commands "$1" >"$work/commands"
    tree "$1" || return
    while IFS=$'\t' read -r page command; do
        { reason "$command" || ! tools "$command"; } >"$work/why" && left=$((left + 1)) && continue
        run=$((run + 1))
        [[ $command != diff\ * ]] || command="$command || [ \$? = 1 ]" # files that differ
        HOME=$work/home CC=$(command -v cc) PATH=$shared/bin:$PATH bash -c "$command" \
            </dev/null >"$work/said" 2>&1 && continue
        echo "$page: $command (status $?); if it cannot be run, tests/commands.txt says why"
        tail -n 5 "$work/said"
        failed=1
    done <"$work/commands"
    echo "$run run, $left not"
    return $failed
}
reasons_used() { # each line of the list matches a command
    local why pattern command
    commands $pages | cut -f 2 | sort -u >"$work/all"
    while IFS=$'\t' read -r why pattern; do
        while read -r command; do [[ $command == $pattern ]] && continue 2; done <"$work/all"
        echo "tests/commands.txt: no command is $pattern" && return 1
    done < <(grep -v '^#' tests/commands.txt)
}
found_commands() { # in each of the places where commands stand, and in none where text or C does
    printf '%s\n' 'Text `make build/x` and `make` and `build/x` and `PAR_RANKS=2' './prog`, `struct x`.' '' \
        '    cc a.c    # why' '' '```c' 'make check' '```' '```' 'bash tests/x.sh --all   words' '```' \
        >"$work/a.md"
    printf '%s\n' 'Text `build/z --last`' >"$work/end.md"
    printf '%s\n' '// a' '//' '//     build/a \' '//         -b    words' '//     make do' 'int a;' \
        '//     make check' >"$work/b.c"
    printf '%s\n' '// a' '/*' 'USE' '    #define X    cc -O2 x.c' '    make run' '*/' '    make check' \
        >"$work/c.h"
    commands "$work/a.md" "$work/end.md" "$work/b.c" "$work/c.h" | sed "s|^$work/||" >"$work/found"
    printf '%s\t%s\n' a.md 'make build/x' a.md 'PAR_RANKS=2 ./prog' a.md 'cc a.c' \
        a.md 'bash tests/x.sh --all' end.md 'build/z --last' b.c 'build/a -b' c.h 'cc -O2 x.c' \
        c.h 'make run' |
        diff - "$work/found"
}

lessons=$(ls examples/[0-9]*.c | sed "/_mpi_/d;s|^examples|build|;s|[.]c$||")
made build/par.o build/layers.o $lessons build/plan build/gpt build/bench_pipe \
    build/bench_coll_test build/libpar.so $(have mpicc.mpich && echo build/kit_mpich.o)
stand_ins
check "commands are found" found_commands
check "commands that are not run" reasons_used
for page in $(commands $pages | cut -f 1 | uniq); do check "$page" run_commands "$page"; done
summary

# Every header alone: with and without its implementation, in two translation units, as C11 and C++17, by gcc,
# clang, nvcc.
. tests/lib.sh
flags="-Wall -Wextra -Wconversion -Wcast-qual -Wvla -Werror -I. -pthread"

# compiler, language flags, objects (none: one is compiled): the implementation, for a program that uses all
# and one of macros with commas
two_units() {
    compiler=$1 lang=$2 implementation=${*:3}
    [ "$implementation" ] || {
        implementation=$work/impl.o
        "$compiler" $lang $flags -c tests/compile/implementation.c -o "$implementation" || return 1
    }
    for unit in user arguments; do
        "$compiler" $lang $flags -c tests/compile/$unit.c -o "$work/$unit.o" &&
            ${link:-"$compiler" -pthread} "$work/$unit.o" $implementation -o "$work/$unit" -lm &&
            PAR_RANKS=3 "$work/$unit" || return 1
    done
}
nvcc_units() { # the implementation by nvcc, whose host's compiler is g++; the program by g++
    cp tests/compile/implementation.c "$work/implementation.cu" &&
        nvcc $strict -I. -c "$work/implementation.cu" -o "$work/implementation.o" &&
        link=nvcc two_units g++ "-x c++ -std=c++17" "$work/implementation.o"
}
# c, cpp or cu; compiler, flags: all arguments of all macros of call sites with commas in them, but for the
# handles of par_zero.h and par_tp.h, which are the first of theirs
every_macro() {
    dir=$(mktemp -d "$work/macros.XXXXXX") how=$1 headers="par_math.h par_zero.h par_pipe.h par_tp.h" &&
        shift || return 1
    [ "$how" = cu ] && headers="$headers par_cuda.cuh"
    unit=$dir/use.${how/cpp/c}
    printf '#include "%s"\n' $headers >"$unit"
    sited=$(sed -n 's/^#define \(par_[a-z_]*\)([a-z].*SITED.*/\1/p' $headers | paste -sd'|')
    "$@" -I. -E "$unit" |
        grep -v '^#' |
        tr '\n' ' ' |
        grep -oE "par__[a-z_]+_at\(const char \*site, [^)]*\)|\<($sited)\(par_(zero|tp) \*[^)]*\);" |
        awk -F '[(,)]' -v how="$how" '{
            handle = $1 ~ /_at$/ ? 0 : 2
            sub(/^par__?/, "", $1); sub(/_at$/, "", $1); list = ""
            for (i = handle ? 2 : 3; i < NF; i++) {
                sub(/[a-z_0-9]+$/, "", $i)
                list = list (list == "" ? "" : ", ") (i == handle ? "(" $i ")0" : how == "c" \
                    ? "(" $i "[2]){0, 0}[0]" : "pick<" $i ", 2>()")
            }
            print "    par_" $1 "(" list ");\n    (par_" $1 ")(" list ");\n" \
                "    address = (void (*)(void))par_" $1 ";"
        }' >"$dir/calls"
    sed -n 's/^#define \(par_[a-z_0-9]*\)(.*/\1/p' par.h $headers | grep -vx par_fail | sort >"$dir/macros"
    sed -n 's/^    \(par_[a-z_0-9]*\)(.*/\1/p' "$dir/calls" | sort | diff - "$dir/macros" &&
        [ "$(wc -l <"$dir/macros")" -ge 98 ] || return 1
    {
        [ "$how" = c ] || echo 'template <class T, int n> static T pick() { return T(); }'
        printf 'extern void (*address)(void);\nvoid (*address)(void);\nvoid use(void);\nvoid use(void) {\n'
        cat "$dir/calls"
        echo '}'
    } >>"$unit"
    "$@" -I. -c "$unit" -o /dev/null
}
api_alone() { # header, compiler, flags: a unit that only uses it gets the API, and three headers of C
    header=$1 dir=$(mktemp -d "$work/api.XXXXXX") && shift
    printf '#include %s\n' ${system:-"<stddef.h>" "<stdint.h>" "<stdio.h>"} >"$dir/system.c" &&
        printf '#include "%s"\n' "$header" >"$dir/api.c"
    for unit in system api; do
        "$@" -I. -dM -E "$dir/$unit.c" |
            sed 's/^#define \([A-Za-z_0-9]*\).*/\1/' |
            sort -u >"$dir/$unit.macros"
        "$@" -I. -M "$dir/$unit.c" | tr -s ' \\' '\n' | grep '\.h$' | sort -u >"$dir/$unit.files"
    done
    comm -13 "$dir/system.macros" "$dir/api.macros" >"$dir/own"
    grep -qE "PAR_(VERSION|FILES_H)" "$dir/own" &&
        ! grep -vE '^(PAR|par)_[A-Za-z]|^PAR__([A-Z]*_)?(WITH_SITE|SITED)$' "$dir/own" |
        grep -vxE 'PAR__(STRINGIFY(_VALUE)?|PRAGMA|API_(BEGIN|END))' &&
        ! grep -xE 'PAR_(MALLOC|REALLOC|FREE|ASSERT|LOG)' "$dir/own" &&
        ! comm -13 "$dir/system.files" "$dir/api.files" | grep -vE '^(./)?par(_[a-z]+)?\.(h|cuh)$'
}
# compiler, flags: implementations of all layers without par.h's, and of each without the others'
layers_alone() {
    [ "$1" = gcc ] || "$@" ${parses/implementation/layer} || return 1 # gcc's is build/layers.o
    for layer in files math pipe tp zero plan; do
        printf '#define PAR_%s_IMPLEMENTATION\n#include "par_%s.h"\n' ${layer^^} $layer >"$work/$layer.c"
        "$@" -fsyntax-only "$work/$layer.c" || return 1
    done
}
lessons() { # compiler, flags: the programs alone; the implementation is compiled by other checks
    for program in examples/[0-9]*.c; do
        [[ $program = *_mpi_* ]] ||
            "$@" -Wno-missing-field-initializers -DPAR_{H,FILES,MATH,TP,ZERO,PIPE}_IMPLEMENTED -fsyntax-only \
                $program || return 1
    done
}
versions() { # all headers have one, beside another one's par.h each is an error, and pkg-config knows it
    cat >"$work/version.c" <<'END'
#include "par.h"
#define NAME PAR_VERSION_MAJOR, PAR_VERSION_MINOR, PAR_VERSION_PATCH
int main(void) { return printf("%d.%d.%d %d\n", NAME, PAR_VERSION) < 0; }
END
    gcc -I. "$work/version.c" -o "$work/version" && read -r name number <<<"$("$work/version")" || return 1
    mkdir -p "$work/other" &&
        sed 's/^#define PAR_VERSION_PATCH .*/#define PAR_VERSION_PATCH 99/' par.h >"$work/other/par.h"
    for header in par.h par_math.h par_zero.h par_pipe.h par_tp.h par_plan.h par_cuda.cuh; do
        grep -q "^#if PAR_VERSION != $number\$" $header || {
            echo "$header is not for PAR_VERSION $number"
            return 1
        }
        fails 1 "#error.*$header is version $name, .*par\.h" gcc -x c -I. -include "$work/other/par.h" \
            -c $header -o /dev/null || return 1
    done
    sed 's/^#define PAR_FILES_VERSION .*/#define PAR_FILES_VERSION 1/' par_files.h >"$work/other/par_files.h"
    fails 1 "#error.*par_zero\.h and par_files\.h are of two versions" gcc -x c -I. \
        -include "$work/other/par_files.h" -c par_zero.h -o /dev/null || return 1
    make install DESTDIR="$work/a place" PREFIX=/p >/dev/null &&
        grep -qx "Version: $name" "$work/a place/p/lib/pkgconfig/par.pc"
}
# The implementation at -O2, for gcc's warnings that come from the optimizer; par.h and the layers apart.
made build/par.o build/layers.o
if have gcc; then check "gcc two units" two_units gcc -std=c11 build/par.o build/layers.o; fi
emits="-c tests/compile/implementation.c -o /dev/null"
# Enough where another check emits the same functions; clang then tells of functions that nothing uses.
parses="-fsyntax-only tests/compile/implementation.c"
[ -z "${SOAK-}" ] || parses=$emits
for cc in gcc clang; do
    [ $cc = gcc ] || tier=release
    if ! have $cc; then
        skip "compile with $cc" "apt-get install $cc"
        continue
    fi
    [ $cc = gcc ] && levels="" || levels=-O0
    [ -z "${SOAK-}" ] || levels="-O0 -O2"
    for level in $levels; do check "$cc two units $level" two_units $cc "-std=c11 $level"; done
    check "$cc gnu17, NDEBUG, with a CBLAS" $cc -std=gnu17 $flags -DNDEBUG -DPAR_CBLAS \
        ${parses/implementation/late}
    check "$cc a layer alone" layers_alone $cc -std=c11 $flags
    check "$cc header only" $cc -std=c11 $flags -pedantic -c tests/compile/user.c -o /dev/null
    check "$cc commas in every argument" every_macro c $cc -std=c11 $flags
    for header in par.h par_files.h par_math.h par_zero.h par_pipe.h par_tp.h par_plan.h; do
        check "$cc $header: the API alone" api_alone $header $cc -std=c11
    done
done
tier=check
check "versions" versions
for cc in g++ clang++; do
    [ $cc = g++ ] || tier=release
    if ! have $cc; then
        skip "compile with $cc" "apt-get install $cc"
        continue
    fi
    check "$cc, C++20, with a CBLAS" $cc -x c++ -std=c++20 -Wpedantic -fno-exceptions $flags -DPAR_CBLAS \
        $parses
    check "$cc, C++17" $cc -x c++ -std=c++17 $flags -fsyntax-only \
        tests/compile/{implementation,user,arguments}.c
    if [ -n "${SOAK-}" ] || { [ $cc = g++ ] && ! have nvcc; }; then # see nvcc_units
        release check "$cc two units" two_units $cc "-x c++ -std=c++17 ${SOAK:+-O2}"
    fi
    release check "$cc, the lessons" lessons $cc -x c++ -std=c++17 $flags
    check "$cc commas in every argument" every_macro cpp $cc -x c++ -std=c++17 $flags
done
tier=check
visibility() { # of functions of each header, within a shared library
    printf '#include "%s.h"\n' par_plan >"$work/use.c"
    echo 'void *all[] = {(void *)par_open, (void *)par_zero_open, (void *)par_pipe_open, (void *)par_tp_open,
        (void *)par_plan_model_name};' >>"$work/use.c"
    gcc -DPAR_API=hidden -I. -S "$work/use.c" -o "$work/use.s" && cat "$work/use.s" &&
        [ "$(grep -c '\.hidden.*par_' "$work/use.s")" = 5 ]
}
hidden_all() { # compiler ...: no function of a program that has it all is visible, but C++'s own
    "$@" $flags -g0 -DPAR_API=hidden -DPAR_IMPLEMENTATION -I. -c par_plan.h -o "$work/all.o" || return 1
    readelf -Ws "$work/all.o" | awk '$7 != "UND" && $5 ~ /GLOBAL|WEAK/ {print $6, $8}' >"$work/symbols"
    grep -q "^HIDDEN par_open$" "$work/symbols" && ! grep "^DEFAULT" "$work/symbols" | grep -v " _ZSt"
}
own_macros() { # the headers leave the program's macros alone: they define and undefine their own
    ! grep -nE '^[[:space:]]*#[[:space:]]*(define|undef)' *.h *.cuh |
        grep -vE '(define|undef) +(par_|PAR_|_DEFAULT_SOURCE|_GNU_SOURCE)' &&
        printf '#define %s 5\n' X ROW I N MIN MAX >"$work/own.c" &&
        printf '#include "%s.h"\n' par par_files par_math par_zero par_pipe par_tp par_plan >>"$work/own.c" &&
        echo 'int own[X == 5 ? 1 : -1];' >>"$work/own.c" &&
        gcc -std=c11 $flags -I. -fsyntax-only "$work/own.c" &&
        g++ -std=c++17 $flags -I. -fsyntax-only -x c++ "$work/own.c"
}
visible() { # mpicc: MPI's functions are, for the program and its Fortran library; the kit's are not
    "$1" -DPAR_API=hidden -fvisibility=hidden -DPAR_MPI_IMPLEMENTATION -I. -S -x c par_mpi.h \
        -o "$work/mpi.s" &&
        [ "$(grep -cE '\.hidden[[:space:]]+par_mpi_(comm|print)( |$)' "$work/mpi.s")" = 2 ] &&
        grep -q '^MPI_Allreduce:' "$work/mpi.s" &&
        ! grep -E '\.hidden[[:space:]]+(MPI|mpi|ompi)_' "$work/mpi.s"
}
refused() { # machines of 32 bits, and big-endian ones: by one sentence
    local header how
    for header in par.h par_files.h par_math.h par_zero.h par_pipe.h par_tp.h par_plan.h; do
        for how in "gcc -m32" "gcc -U__LP64__" "gcc -U__BYTE_ORDER__ -D__BYTE_ORDER__=4321"; do
            fails 1 "#error .par\(_files\)\?\.h is for 64-bit" $how -Wfatal-errors -I. -fsyntax-only \
                -x c $header || return 1
        done
    done
    have clang || return 0
    for how in armv7-linux-gnueabihf powerpc64-linux-gnu; do
        fails 1 "par.h is for 64-bit" clang --target=$how -I. -fsyntax-only -x c par.h || return 1
    done
}
is_static() {
    link_kit -static tests/compile/user.c -o "$work/user" && PAR_RANKS=3 "$work/user"
}
optimized_by_linker() { # with SOAK=1
    gcc -std=c11 -O2 -flto $flags tests/compile/implementation.c tests/compile/user.c -o "$work/user" -lm &&
        PAR_RANKS=3 "$work/user"
}
with_musl() { # run with SOAK=1
    [ -n "${SOAK-}" ] || {
        musl-gcc -std=c11 $flags $parses
        return
    }
    musl-gcc -std=c11 -static $flags tests/compile/implementation.c tests/compile/user.c -o "$work/user" &&
        PAR_RANKS=3 "$work/user"
}
# Under qemu-user. With SOAK=1 every test of par.h, on ranks that a launcher starts, and products of bf16 by
# BFMMLA, and without.
on_aarch64() {
    local build="aarch64-linux-gnu-gcc -std=gnu11 -static -pthread -Wall -Wextra -I. -Itests"
    $build tests/compile/threads.c -o "$work/program" -lm && qemu-aarch64 "$work/program" || return 1
    [ -z "${SOAK-}" ] && return
    $build -O1 tests/test_par.c -o "$work/program" -lm &&
        ranks 3 qemu-aarch64 "$work/program" --worker mpi 3 0 all &&
        $build -O1 tests/test_tp.c tests/kit.c -o "$work/program" -lm || return 1
    for cpu in max cortex-a57; do
        for name in bf16_products attention_kernels; do
            qemu-aarch64 -cpu $cpu "$work/program" --worker threads 1 0 $name || return 1
        done
    done
}
without_ranks() { # par_files.h's manual: a program that links nothing else
    sed -n '/^EXAMPLE$/,/^TABLE/p' par_files.h | sed '1d;$d;s/^    //' >"$work/files.c" &&
        gcc -std=c11 -O2 -Wall -Wextra -Werror -I. "$work/files.c" -o "$work/files" &&
        (cd "$work" && ./files) | grep -qx "$(sed -n 's/.*it prints: //p' "$work/files.c")"
}
check "par_files.h without ranks" without_ranks
hooks_rejected() {
    ! gcc -Wfatal-errors -DPAR_MALLOC=malloc -I. $emits 2>"$work/err" &&
        grep -q "or none" "$work/err"
}
check "memory hooks: all or none" hooks_rejected
check "visibility" visibility
release check "visibility of all, gcc" hidden_all gcc -std=c11 -x c
release check "visibility of all, g++" hidden_all g++ -std=c++17 -x c++
if have clang; then release check "visibility of all, clang" hidden_all clang -std=c11 -x c; fi
check "the program's macros" own_macros
check "other machines" refused
check "a static program" is_static
[ -z "${SOAK-}" ] || check "optimized by the linker" optimized_by_linker
tier=release
if have musl-gcc; then check "musl" with_musl; else skip "musl" "apt-get install musl-tools"; fi
if have aarch64-linux-gnu-gcc && have qemu-aarch64; then
    check "aarch64" on_aarch64
else
    skip "aarch64" "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
fi
for cc in $(compgen -c | grep -xE "(gcc|clang)-[0-9]+" | sort -u); do # other versions that are installed
    [ "${SOAK-}" ] && check "$cc" $cc -std=c11 -pedantic-errors $flags $parses
done
tier=check
hooks_taken() { # nothing else allocates
    ! grep -nE '(^|[^a-zA-Z_])(malloc|calloc|realloc|strdup)\(' *.h | grep -v '#define PAR_' &&
        gcc $flags "-DPAR_MALLOC(n)=malloc(n)" "-DPAR_REALLOC(p,n)=realloc(p,n)" "-DPAR_FREE(p)=free(p)" \
            -include stdlib.h $parses
}
check "memory hooks" hooks_taken
if have clang; then export MPICH_CC=clang OMPI_CC=clang; fi
for mpicc in mpicc.mpich mpicc.openmpi; do
    [ $mpicc = mpicc.mpich ] || tier=release
    if have $mpicc; then
        check "$mpicc" $mpicc -std=c11 $flags -DPAR_MPI -c $parses
        for lang in "-std=c11 -x c" "-std=c++17 -x c++"; do
            check "$mpicc: par_mpi.h ${lang##* }" $mpicc $flags -Wno-unused-command-line-argument \
                -D{OMPI,MPICH}_SKIP_MPICXX -DPAR_MPI_IMPLEMENTATION -fsyntax-only $lang par_mpi.h
        done
        check "$mpicc: visibility" visible $mpicc
        check "$mpicc: the API alone" env system="<stddef.h> <stdint.h> <stdio.h> <mpi.h>" bash \
            -c 'api_alone "$@"' api par.h $mpicc -std=c11 -DPAR_MPI
        check "$mpicc: par_mpi.h, the API alone" env system="<stddef.h> <stdint.h> <stdio.h> <mpi.h>" bash \
            -c 'api_alone "$@"' api par_mpi.h $mpicc -std=c11 -DPAR_MPI
    else
        skip "$mpicc" "apt-get install mpich libmpich-dev libopenmpi-dev"
    fi
done
tier=release
if have nvcc; then
    cp tests/compile/user.c "$work/user.cu"
    strict="-Werror all-warnings -Xcompiler -Wall,-Wextra"
    check "nvcc commas in every argument" every_macro cu nvcc $strict
    check "nvcc header" nvcc $strict -I. -c "$work/user.cu" -o /dev/null
    check "nvcc and g++, two units" nvcc_units
else
    echo "(no nvcc here: not compiled with it)"
fi
summary

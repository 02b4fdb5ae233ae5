# Fortran, C++ and Python, whose interfaces are made from par.h; and what installs the kit and finds it then.
. tests/lib.sh

made_anew() { # make bindings would change nothing
    local binding
    for binding in bindings/par.f90 bindings/par.hpp bindings/par.py; do
        awk -f bindings/make.awk par.h $binding | diff $binding - && continue
        echo "$binding is not what par.h declares: make bindings"
        return 1
    done
}
from_the_header() { # a new kind of call and a new function appear in all of them
    local added='par_result par_scan(const void *send, void *recv, size_t count, par_dtype dtype, par_op op,'
    added+=' par_comm *comm); par_result par_scan_begin(const void *send, void *recv, const size_t *counts,'
    added+=' par_dtype dtype, par_comm *comm, par_request *request);'
    added+=' par_result par_fetch_max(uint64_t *word, uint64_t value, int rank, par_comm *comm);'
    sed 's/^    X(PAR_KIND_RECV,/    X(PAR_KIND_SCAN, "scan", BLOCK, BLOCK, NONE, OP, OWN) \\\n&/
        s/^par_result par_barrier(par_comm \*comm);/&'"$added/" par.h >"$work/par.h"
    for binding in f90 hpp py; do
        awk -f bindings/make.awk "$work/par.h" bindings/par.$binding >"$work/par.$binding" || return 1
    done
    grep -q "outcome<void> scan(const S &send, R &&recv, par_op op, " "$work/par.hpp" &&
        grep -q "misfit wrong(handle_, blocks(), PAR_KIND_SCAN, 0, send_view.size(), " "$work/par.hpp" &&
        grep -q "bytes_touched(wrong, comm%handle, PAR_KIND_SCAN, 0, count, dtype, " "$work/par.f90" &&
        grep -q "outcome<void> fetch_max(std::uint64_t \*word, std::uint64_t value, int rank)" \
            "$work/par.hpp" &&
        grep -q '"par_scan_begin": (c_int, \[c_void_p, c_void_p, c_void_p, c_int, ' "$work/par.py" &&
        grep -q '("PAR_KIND_SCAN", "scan", "BLOCK", "BLOCK", "NONE", "OP"),' "$work/par.py" &&
        grep -q 'parameter, public :: PAR_KIND_SCAN = ' "$work/par.f90" &&
        grep -q 'module procedure par_scan_i64, par_scan_i32$' "$work/par.f90" &&
        grep -q 'module procedure par_scan_begin_i64$' "$work/par.f90" # its counts stay: of 8 bytes
}
fortran="-std=f2018 -Wall -Wextra -Wno-compare-reals -Werror -cpp -ffree-line-length-none -Ibindings"
example() { # of a binding's manual
    sed -n '/^!* *EXAMPLE$/,/^\(    }\|!     end program\|\)$/p' bindings/par.$1 |
        sed '1d;s/^\(!     \|    \)//' >"$work/example.$1"
    grep -q par_ "$work/example.$1" || grep 'par[:.]' "$work/example.$1"
}
fortran_calls() {
    gfortran $fortran -J "$work" bindings/par.f90 tests/test_f90.f90 build/par.o -pthread -lm \
        -o "$work/calls" &&
        PAR_RANKS=3 "$work/calls" &&
        example f90 &&
        gfortran $fortran -fsyntax-only -I "$work" "$work/example.f90" &&
        fails 1 "^par_broadcast at tests/test_f90.f90:[0-9]*: root" "$work/calls" ends
}
fortran_mpi() { # its starter ...: the kit's sums are those of MPI
    prints "^2 ranks, 200 sweeps: change  *2.73[0-9]*E+00, 0 sums differ" "${@:2}" build/fortran_heat_$1
}
strict="-Wall -Wextra -Wconversion -Wpedantic -Werror -I. -DPAR_H_IMPLEMENTED"
cxx() {
    g++ -std=c++17 $strict tests/test_hpp.cpp build/par.o -o "$work/hpp" -pthread -lm &&
        PAR_RANKS=3 "$work/hpp" &&
        example hpp &&
        for unit in "$work/example.hpp" ${SOAK:+tests/test_hpp.cpp}; do
            g++ -std=c++20 -fno-exceptions $strict -Ibindings -fsyntax-only -x c++ "$unit" || return 1
        done
}
python() { # nothing, or numpy
    have python3 && { [ -z "${1-}" ] || python3 -c 'import numpy' 2>/dev/null; } || {
        echo "apt-get install python3${1:+-$1}"
        return 77
    }
    PAR_RANKS=3 python3 tests/test_py.py "$@" && example py &&
        PAR_RANKS=2 PYTHONPATH=bindings prints "^2 ranks: .2.0, 4.0, 1.0.$" python3 "$work/example.py"
}
python_session() { # text, what the program is to do first, command ...: read from standard input it says this
    printf '%s\n' "$2" 'import sys; sys.path.insert(0, "bindings"); import par' \
        'world = par.Comm(); print("%d ranks" % world.size, flush=True); world.close()' >"$work/session.py"
    PAR_TIMEOUT=60 PAR_RANKS=2 "${@:3}" <"$work/session.py" >"$work/said" 2>&1
    grep -q "$1" "$work/said" || { cat "$work/said" && return 1; }
}
python_sessions() { # a program that is no file: ranks are started, or an error says how
    local thread='import threading as t; t.Thread(target=t.Event().wait, daemon=True).start()'
    have python3 || return 77
    python_session "^2 ranks" "" python3 &&
        python_session "a prompt or a notebook starts no ranks.*PAR_RANKS=2 python3 prog.py" "" python3 -i &&
        python_session "nothing on standard input any more: write the program to" "$thread" python3 - &&
        PAR_RANKS=2 prints "^2 ranks" python3 -c "$(cat "$work/session.py")"
}
show_version='show: ; @echo $(VERSION)'
version() { make -s -f Makefile -f - show <<<"$show_version"; }
installed() { # every header as it is here; a program finds them by its flags
    local usr="$work/root/my u&r" header flags
    make -s install DESTDIR="$work/root" PREFIX="/my u&r" &&
        fails 2 "PREFIX is a path from /" make -s install DESTDIR="$work/root" PREFIX=usr &&
        diff <(ls ./*.h ./*.cuh bindings/*.h bindings/*.hpp | xargs -n 1 basename | sort) \
            <(ls "$usr/include" | sort) || return 1
    for header in *.h *.cuh; do cmp $header "$usr/include/$header" || return 1; done
    sed 's/"par.h"/<par.h>/' examples/01_hello.c >"$work/hello.c"
    flags=$("$1" "$usr") &&
        eval "gcc -DPAR_H_IMPLEMENTED '$work/hello.c' build/par.o $flags -o '$work/hello'" &&
        PAR_RANKS=2 prints "^2 ranks" "$work/hello" && installed_python "$usr"
}
installed_python() { # where: par.py finds the library that was installed with it, or the one that is named
    local lib=$1/lib
    have python3 || return 0
    [ "$(readlink -f "$lib/libpar.so")" = "$(readlink -f "$lib")/libpar.so.$(version)" ] || return 1
    example py && cd / && export PYTHONPATH=$1/share/par PAR_RANKS=2 &&
        prints "^2 ranks" python3 "$work/example.py" &&
        mv "$lib" "$lib.moved" &&
        fails 1 "no libpar.so: neither $1/share/.*PAR_LIBRARY=path" python3 "$work/example.py" &&
        PAR_LIBRARY=$lib.moved/libpar.so prints "^2 ranks" python3 "$work/example.py" &&
        mv "$lib.moved" "$lib"
}
flags_read() { # what pkg-config would say
    local flags=$(sed -n "s|^Cflags: ||p; s|^Libs: ||p" "$1/lib/pkgconfig/par.pc" | paste -s -d ' ')
    echo "${flags//'${includedir}'/"$1/include"}" # quoted: else bash 5.2 takes & for what it replaces
}
flags_asked() { # nothing if a package is not as it should be
    export PKG_CONFIG_SYSROOT_DIR=${1%/*} PKG_CONFIG_PATH=$1/lib/pkgconfig
    for name in par par-mpi par-cuda; do
        [ "$(pkg-config --modversion $name)" = "$(version)" ] || return 1
    done
    pkg-config --cflags par-mpi | grep -q -e '-DPAR_MPI' && pkg-config --cflags --libs par
}
cmake_project() { # how a program gets the targets, options: it is built, and finds all three
    mkdir "$work/project" && cp examples/01_hello.c "$work/project/hello.c"
    cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.13)
project(hello LANGUAGES C)
$1
add_executable(hello hello.c $PWD/build/par.o)
target_link_libraries(hello par::par)
target_compile_definitions(hello PRIVATE PAR_H_IMPLEMENTED)
get_target_property(definitions par::mpi INTERFACE_COMPILE_DEFINITIONS)
if(NOT definitions STREQUAL PAR_MPI OR NOT TARGET par::cuda)
  message(FATAL_ERROR "par::mpi or par::cuda is not there")
endif()
END
    cmake -S "$work/project" -B "$work/build" -DCMAKE_C_COMPILER_WORKS=1 "${@:2}" &&
        cmake --build "$work/build" &&
        PAR_RANKS=2 prints "^2 ranks" "$work/build/hello"
}
by_find_package() { # make and CMake install the same files, but for the library, as CMake compiles nothing
    make -s install DESTDIR="$work/made" PREFIX=/p &&
        cmake -S . -B "$work/kit" -DCMAKE_INSTALL_PREFIX=/p &&
        DESTDIR=$work/other cmake --install "$work/kit" &&
        diff -r -x 'libpar.so*' "$work/made" "$work/other" &&
        cmake_project "find_package(par $(version | cut -d. -f1,2) REQUIRED)" \
            -Dpar_DIR="$work/made/p/lib/cmake/par"
}
versions() { # and components: what there is not is not found; an optional one does not matter
    local v=$(version) minor
    minor=${v#*.} minor=${minor%%.*}
    mkdir "$work/project" && make -s install DESTDIR="$work/made" PREFIX=/p && {
        printf 'cmake_minimum_required(VERSION 3.19)\nproject(p LANGUAGES NONE)\n'
        while read -r wanted arguments; do
            printf 'find_package(par %s QUIET)\nif(%s par_FOUND)\n' "$arguments" "$wanted"
            printf 'message(SEND_ERROR "%s: ${par_FOUND} ${par_NOT_FOUND_MESSAGE}")\nendif()\n' "$arguments"
        done <<END
NOT $v
NOT 0.$minor EXACT COMPONENTS par
NOT 0.1...0.$((minor + 1))
NOT $v...$v
NOT COMPONENTS par OPTIONAL_COMPONENTS nonsense
-- 0.$((minor + 1))
-- 0.$((minor - 1))
-- 0.1...<$v
-- 0.$((minor + 1))...2
-- COMPONENTS nonsense
-- COMPONENTS par mpi,
END
    } | sed 's/^if(--/if(/; s/^if( /if(/' >"$work/project/CMakeLists.txt"
    cmake -S "$work/project" -B "$work/build" -Dpar_DIR="$work/made/p/lib/cmake/par"
}
as_a_part() { # of another project, which installs its own files alone
    mkdir "$work/project"
    cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.14)
project(parent LANGUAGES NONE)
include(FetchContent)
FetchContent_Declare(par SOURCE_DIR "$PWD")
FetchContent_MakeAvailable(par)
install(FILES CMakeLists.txt DESTINATION its)
if(NOT TARGET par::par)
  message(FATAL_ERROR "par::par is not there")
endif()
END
    cmake -S "$work/project" -B "$work/build" &&
        cmake --install "$work/build" --prefix "$work/to" &&
        [ "$(cd "$work/to" && find . -type f)" = ./its/CMakeLists.txt ]
}
by_subdirectory() { cmake_project "add_subdirectory($PWD kit)"; }
by_fetch_content() {
    cmake_project "include(FetchContent)
FetchContent_Declare(par SOURCE_DIR $PWD)
FetchContent_MakeAvailable(par)"
}
one_file() { # layer: its manual's example with the header as one file prints what it says
    local header=par_$1-$(version).h
    sed -n '/^EXAMPLE$/,/^[A-Z]/p' "par_$1.h" |
        sed "1d;\$d;s/^    //;s/\"par_$1.h\"/\"$header\"/" >"$work/$1.c"
    ! grep '^#include "par' "$work/dist/$header" &&
        link_kit -std=c11 -I"$work/dist" "$work/$1.c" -o "$work/$1" &&
        ranks=$(sed -n 's/.*PAR_RANKS=\([0-9]*\) it.*/\1/p' "$work/$1.c") &&
        (cd "$work" && PAR_RANKS=$ranks "./$1") >"$work/said" &&
        sed -n 's/.*it prints: //p' "$work/$1.c" | diff - "$work/said"
}
distributed() { # a header as one file; Spack's recipe and the tarball have this version
    [ ! -e .git ] || have git || {
        echo "apt-get install git"
        return 77
    }
    make -s dist DIST="$work/dist" || return 1
    for layer in files math zero pipe tp plan; do one_file $layer || return 1; done
    gcc -std=c11 -DPAR_IMPLEMENTATION -fsyntax-only -x c "$work/dist/par_plan-$(version).h" &&
        grep -q "version(\"$(version)\"" packaging/spack/package.py || return 1
    [ ! -e .git ] || tar -tzf "$work/dist/par_$(version).orig.tar.gz" | grep -x "par-$(version)/par.h"
}

made build/par.o build/layers.o build/libpar.so
check "made from par.h" made_anew
check "a new call appears in all" from_the_header
if have gfortran; then check "Fortran" fortran_calls; else skip "Fortran" "apt-get install gfortran"; fi
mpich="mpiexec.mpich -n 2" openmpi="mpiexec.openmpi --oversubscribe -n 2"
[ "$(id -u)" != 0 ] || openmpi="$openmpi --allow-run-as-root"
for kind in mpich openmpi; do
    [ $kind = mpich ] || tier=release
    if have mpifort.$kind && have mpiexec.$kind; then
        made build/fortran_heat_$kind
        check "$kind: an MPI program of Fortran" fortran_mpi $kind ${!kind}
    else
        skip "$kind: an MPI program of Fortran" "apt-get install gfortran mpich libmpich-dev libopenmpi-dev"
    fi
done
tier=check
if have g++; then check "C++" cxx; else skip "C++" "apt-get install g++"; fi
check "Python" python
check "NumPy" python numpy
check "Python without a file" python_sessions
if have pkg-config; then
    check "make install, pkg-config" installed flags_asked
else
    check "make install" installed flags_read
    skip "pkg-config" "apt-get install pkg-config"
fi
if have cmake; then
    check "CMake: find_package" by_find_package
    check "CMake: versions, components" versions
    check "CMake: a part of another project" as_a_part
    [ -z "${SOAK-}" ] || check "CMake: add_subdirectory" by_subdirectory
    [ -z "${SOAK-}" ] || check "CMake: FetchContent" by_fetch_content
else
    skip "CMake" "apt-get install cmake"
fi
release check "make dist" distributed
summary

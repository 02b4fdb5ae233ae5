# Every header alone: with and without its implementation, in two translation units, as C11 and C++17, by gcc, clang, nvcc.
. tests/lib.sh
flags="-Wall -Wextra -Wconversion -Werror -I. -pthread"

two_units() { # compiler, language flags
    compiler=$1 lang=$2 dir=$(mktemp -d "$work/two.XXXXXX")
    "$compiler" $lang $flags -O1 -c tests/compile/user.c -o "$dir/user.o" &&
    "$compiler" $lang $flags -O1 -c tests/compile/implementation.c -o "$dir/impl.o" &&
    "$compiler" "$dir/user.o" "$dir/impl.o" -o "$dir/two" -pthread -lm && PAR_RANKS=3 "$dir/two"
}
for cc in gcc clang; do
    if ! have $cc; then skip "compile with $cc" "apt-get install $cc"; continue; fi
    for level in -O0 -O2; do check "$cc c11 $level" $cc -std=c11 $level $flags -c tests/compile/implementation.c -o /dev/null; done
    check "$cc gnu17" $cc -std=gnu17 $flags -c tests/compile/late.c -o /dev/null
    check "$cc a layer alone" $cc -std=c11 $flags -c tests/compile/layer.c -o /dev/null
    check "$cc with a CBLAS" $cc -std=c11 $flags -DPAR_CBLAS -c tests/compile/implementation.c -o /dev/null
    check "$cc header only" $cc -std=c11 $flags -pedantic -c tests/compile/user.c -o /dev/null
    check "$cc two units" two_units $cc -std=c11
done
for cc in g++ clang++; do
    if ! have $cc; then skip "compile with $cc" "apt-get install $cc"; continue; fi
    check "$cc c++17" $cc -x c++ -std=c++17 -O2 $flags -c tests/compile/implementation.c -o /dev/null
    check "$cc with a CBLAS" $cc -x c++ -std=c++17 $flags -DPAR_CBLAS -c tests/compile/implementation.c -o /dev/null
    check "$cc two units" two_units $cc "-x c++ -std=c++17"
done
hooks_rejected() { ! gcc -DPAR_MALLOC=malloc -I. -c tests/compile/implementation.c -o /dev/null 2>"$work/err" && grep -q "or none" "$work/err"; }
check "memory hooks: all or none" hooks_rejected
check "memory hooks" gcc $flags "-DPAR_MALLOC(n)=malloc(n)" "-DPAR_REALLOC(p,n)=realloc(p,n)" "-DPAR_FREE(p)=free(p)" -include stdlib.h -c tests/compile/implementation.c -o /dev/null
check "NDEBUG" gcc $flags -DNDEBUG -O2 -c tests/compile/implementation.c -o /dev/null
for mpicc in mpicc.mpich mpicc.openmpi; do
    if have $mpicc; then check "$mpicc" $mpicc -std=c11 $flags -DPAR_MPI -c tests/compile/implementation.c -o /dev/null
    else skip "$mpicc" "apt-get install mpich libmpich-dev libopenmpi-dev"; fi
done
if have nvcc; then
    cp tests/compile/user.c "$work/user.cu" && cp tests/compile/implementation.c "$work/impl.cu"
    check "nvcc header" nvcc -Werror all-warnings -I. -c "$work/user.cu" -o /dev/null
    check "nvcc implementation" nvcc -Werror all-warnings -I. -c "$work/impl.cu" -o /dev/null
else
    echo "(no nvcc here: not compiled with it)"
fi
summary

# Print the compiler flags for all matrix product libraries that link and work here: sh tests/gemm_flags.sh cc
# oneDNN, and one CBLAS; the program races them, see par_gemm_select in par.h.
cc=${1:-cc}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
works() { # libraries; a program on stdin that ends with 0
    "$cc" -x c - -o "$work/a" $1 >/dev/null 2>&1 && "$work/a" >/dev/null 2>&1
}
dnnl() {
    works -ldnnl <<'C'
#include <dnnl.h>
int main(void) {
    const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    float c[4] = {0};
    return dnnl_sgemm('N', 'N', 2, 2, 2, 1, a, 2, b, 2, 0, c, 2) != dnnl_success || c[0] != 19 || c[3] != 50;
}
C
}
cblas() { # library, a function that nobody else has: cblas_sgemm may come from another one
    works "$1" <<C
void cblas_sgemm(int, int, int, int, int, int, float, const float *,
    int, const float *, int, float, float *, int);
${2:+void $2(void);}
int main(int argc, char **argv) {
    const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    float c[4] = {0};
    (void)argv;
    cblas_sgemm(101, 111, 111, 2, 2, 2, 1, a, 2, b, 2, 0, c, 2);
    ${2:+if (argc > 99) $2();}
    return c[0] != 19 || c[3] != 50;
}
C
}
flags=""
if dnnl; then flags="-DPAR_DNNL -ldnnl"; fi
if cblas -lopenblas openblas_set_num_threads; then
    flags="$flags -DPAR_CBLAS -lopenblas"
elif cblas -lmkl_rt MKL_Set_Num_Threads_Local; then
    flags="$flags -DPAR_CBLAS -lmkl_rt"
elif cblas -lblis bli_thread_set_num_threads; then
    flags="$flags -DPAR_CBLAS -lblis"
elif cblas -lcblas; then
    flags="$flags -DPAR_CBLAS -lcblas"
elif cblas -lblas; then
    flags="$flags -DPAR_CBLAS -lblas"
fi
echo $flags

# Print the compiler flags for the best matrix product library there is: sh tests/gemm_flags.sh cc
try() { # header, flags
    printf '#include <%s>\nint main(void) { return 0; }\n' "$1" | "$cc" -x c - -o /dev/null $2 >/dev/null 2>&1
}
cc=${1:-cc}
if try dnnl.h "-ldnnl"; then echo "-DPAR_DNNL -ldnnl"
elif try cblas.h "-lopenblas"; then echo "-DPAR_CBLAS -lopenblas"
elif try cblas.h "-lcblas"; then echo "-DPAR_CBLAS -lcblas"
elif try cblas.h "-lblas"; then echo "-DPAR_CBLAS -lblas"
else echo ""
fi

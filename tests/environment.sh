# Sourced by the scripts: what a user or a launcher (srun --pty bash, say) has exported does not change what
# the tests do. PAR_GEMM and PAR_TEST_... are for them; small products take the built-in kernel half the time
# that the libraries need to begin. A warning of the layers is an error.
export LC_ALL=C CDPATH= # numbers have a point, messages are English; cd goes nowhere else
exec 3>&- 4>&- 5>&- 6>&- # descriptors that the caller has left open: some tests count them
for name in $(compgen -e); do
    case $name in
    PAR_GEMM | PAR_TEST_*) ;;
    PAR_* | SLURM* | OMPI_* | PMI_* | PMIX_* | TORCHELASTIC_* | *RANK | *WORLD_SIZE | MASTER_*)
        unset "$name"
        ;;
    esac
done
unset name
export PAR_GEMM=${PAR_GEMM:-built-in}
export DEBUG=-g1 # lines alone: gcc takes five sixths of the time
export FAST_PAR=build/par.o # with libraries for matrix products: build/gpt_gemm, build/bench_tp_gemm
export FAST_LEVEL=-O2 # layers compile in half the time of -O3
export LAYERS_WARN="-pedantic-errors -Wall -Wextra -Wconversion -Wvla -Werror"

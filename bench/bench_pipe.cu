// bench_pipe.cu - bench_pipe.c on GPUs. make cuda builds build/bench_pipe_cuda.
//
//     build/bench_pipe_cuda --all --ranks 4
#define BENCH_CUDA
#include "bench_pipe.c"

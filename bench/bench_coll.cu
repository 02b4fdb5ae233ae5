// bench_coll.cu - bench_coll.c on device memory. make cuda builds build/bench_coll_cuda.
//
//     build/bench_coll_cuda --ranks 4 --op all -b 1K -e 256M
#define BENCH_CUDA
#include "bench_coll.c"

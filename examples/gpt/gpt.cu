// gpt.cu - the trainer on GPUs: gpt.c, with par_cuda.cuh's kernels and communication. make cuda builds
// build/gpt_cuda.
//
//     build/gpt_cuda --ranks 8 --dtype bf16 --data FILE
#define GPT_CUDA
#include "gpt.c"

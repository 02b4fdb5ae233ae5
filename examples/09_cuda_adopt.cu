// 09_cuda_adopt.cu - a CUDA program adopts the kit: it keeps its main, its stream and its cudaMalloc. What
// was added is marked with +.
//
//     $ nvcc -O2 -arch=sm_90 -I. examples/09_cuda_adopt.cu -o adopt -lpthread
//     $ PAR_RANKS=3 ./adopt
//     3 ranks: x is 2, the mean of their targets
//
// Before, one GPU iterated x = x - step * grad(x). Now each rank has its own data, and gradients are
// averaged. Ranks take as many GPUs as there are, or share one. par_all_reduce takes device pointers, and
// runs in the order of the stream. (-arch is that of your GPU; docs/gpu.md says what NCCL needs.)
#define PAR_IMPLEMENTATION
#include "par_cuda.cuh" // +
#include <stdio.h>
#include <stdlib.h>

__global__ void gradient(float *g, const float *x, int n, float target) { // of |x - target|^2 / 2
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x))
        g[i] = x[i] - target;
}
__global__ void descend(float *x, const float *g, int n, float step) {
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x))
        x[i] -= step * g[i];
}
#if defined(CUDA_EMU) // the kit's own check runs this program on a CPU, where nobody reads <<<>>>
#define LAUNCH(kernel, ...) emu_launch(kernel, 8, 64, 0, stream, __VA_ARGS__)
#else
#define LAUNCH(kernel, ...) kernel<<<8, 64, 0, stream>>>(__VA_ARGS__)
#endif
#define CUDA(call) ((call) ? (void)(fprintf(stderr, "%s fails\n", #call), exit(1)) : (void)0)
#define MUST(call) ((call) ? (void)(fprintf(stderr, "%s\n", par_last_error(world)), exit(1)) : (void)0) // +

int main(void) {
    const int n = 10000, steps = 50;
    float *x, *g, first = 0;
    int devices = 0;
    cudaStream_t stream;
    par_comm *world;                      // +
    par_cuda *cuda;                       // +
    par_cuda_desc desc = {};              // +
    if (par_open(NULL, &world)) return 1; // + before CUDA is touched: ranks may be forked here

    if (cudaGetDeviceCount(&devices) || !devices) return fprintf(stderr, "there is no GPU\n"), 1;
    const int device = par_rank(world) % devices; // was 0
    CUDA(cudaSetDevice(device));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&x, n * sizeof *x));
    CUDA(cudaMalloc((void **)&g, n * sizeof *g));
    cudaMemsetAsync(x, 0, n * sizeof *x, stream);

    desc.comm = world;                 // +
    desc.device = 1 + device;          // +
    desc.stream = stream;              // +
    MUST(par_cuda_open(&desc, &cuda)); // +
    for (int i = 0; i < steps; i++) {
        LAUNCH(gradient, g, x, n, (float)(1 + par_rank(world)));
        MUST(par_all_reduce(g, g, (size_t)n, PAR_F32, PAR_AVG, world)); // + in the stream's order
        LAUNCH(descend, x, g, n, 0.5f);
    }
    MUST(par_cuda_sync(cuda)); // + was cudaStreamSynchronize, which waits for ever if a rank has died
    CUDA(cudaMemcpy(&first, x, sizeof first, cudaMemcpyDeviceToHost));
    if (par_rank(world) == 0)
        printf("%d ranks: x is %g, the mean of their targets\n", par_size(world), (double)first);
    par_cuda_close(cuda);                          // +
    const int failed = par_close(world) != PAR_OK; // + before cudaFree: other ranks have mapped g until now
    cudaFree(x);
    cudaFree(g);
    cudaStreamDestroy(stream);
    return fflush(stdout) ? perror("adopt"), 1 : failed;
}

// 03_cuda_adopt.cu - an existing CUDA program adopts the kit: its own main, its own stream, its own
// cudaMalloc.
//
//     build/03_cuda_adopt                    one rank
//     PAR_RANKS=4 build/03_cuda_adopt        four, on as many GPUs as there are (or all on one)
//
// Before: one GPU iterated x = x - step * grad(x). Now each rank has its own data, and gradients are
// averaged. What was added is marked with +.
#define PAR_IMPLEMENTATION
#include "par_cuda.cuh" // +
#include <stdio.h>

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
    cudaSetDevice(device);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc((void **)&x, n * sizeof *x);
    cudaMalloc((void **)&g, n * sizeof *g);
    cudaMemsetAsync(x, 0, n * sizeof *x, stream);

    desc.comm = world;
    desc.device = 1 + device;
    desc.stream = stream;                      // +
    if (par_cuda_open(&desc, &cuda)) return 1; // +
    for (int i = 0; i < steps; i++) {
        LAUNCH(gradient, g, x, n, (float)(1 + par_rank(world)));
        if (par_all_reduce(g, g, (size_t)n, PAR_F32, PAR_AVG, world)) return 1; // + in the stream's order
        LAUNCH(descend, x, g, n, 0.5f);
    }
    if (par_cuda_sync(cuda)) return 1; // + was cudaStreamSynchronize, which waits for ever if a rank has died
    cudaMemcpy(&first, x, sizeof first, cudaMemcpyDeviceToHost);
    if (par_rank(world) == 0)
        printf("%d ranks, backend %s: x is %g, the mean of their targets\n", par_size(world),
               par_cuda_backend_name(cuda), (double)first);
    par_cuda_close(cuda);                          // +
    const int failed = par_close(world) != PAR_OK; // + before cudaFree: other ranks have mapped g until now
    cudaFree(x);
    cudaFree(g);
    cudaStreamDestroy(stream);
    return fflush(stdout) ? perror("adopt"), 1 : failed;
}

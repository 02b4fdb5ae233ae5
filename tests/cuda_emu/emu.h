// emu.h - compiles a .cu file with g++ against NVIDIA's headers and runs it on a CPU. For tests only.
//
//     g++ -x c++ -include tests/cuda_emu/emu.h -I $CUDA/include test_cuda.cu tests/cuda_emu/emu.cpp
//
// Only kernels may access device memory: a load or store by the host ends the program. Each thread of a
// block is a fiber. Forward or reversed, each warp runs up to the block's next barrier before another one
// begins; in random order all go on together. Streams are queues of work; when somebody waits, ready work of
// a random stream runs. So a missing barrier or event shows in the results. Every random choice comes from
// emu_seed. With EMU_DRAINS=1 a process prints emu_drains at its end.
#ifndef CUDA_EMU_H
#define CUDA_EMU_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <functional>
#include <tuple>

#include <cuda_runtime.h>
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define CUDA_EMU 1
#include "../ptx/ptx.h"

enum emu_order { EMU_FORWARD, EMU_REVERSED, EMU_RANDOM };
void emu_seed(uint64_t seed, emu_order threads); // the order of threads, and the random choices, from now on
uint64_t emu_launches(void);                     // number of kernels that have run
uint64_t emu_drains(void); // waits of the host for the newest work of a device, which then has nothing to do
void emu_fail_launches(int after);   // launch number `after` from now fails, once; 0: none
void emu_stall(cudaStream_t stream); // what is enqueued from now on never runs
// 1: forgets what was traced, and traces what is enqueued from now on; 0: no more. What a stream has is
// "kernel", "copy", "product" or one of NCCL's: "all_gather", "messages", ...
void emu_trace(int on);
int emu_traced_count(cudaStream_t stream, const char *what);
// How much work of a may run at the same time as some of b, whatever the machine does.
int emu_overlaps(cudaStream_t a, const char *what_a, cudaStream_t b, const char *what_b);
void emu_patience(double seconds);     // how long the host waits for the device before the program ends
void emu_connections(int n);           // hardware queues of streams made from now on; 0: one for each
void emu_no_algorithms(int none);      // 1: cuBLASLt's heuristics find none
void emu_narrow_counts(size_t most);   // elements that its kernels for few rows, columns or terms count
int emu_communicators(void);           // number of NCCL's communicators that exist
void emu_nccl_version(int version);    // what ncclGetVersion says, and how it aborts
int emu_newest_max_ctas(void);         // of NCCL's newest communicator; 0: NCCL's choice
void emu_fail_communicators(int fail); // 1: those that are made from now on fail; 0: no more

struct emu_thread_state {
    uint3 thread, block;
    dim3 grid, size;
    unsigned char *shared;
};
extern thread_local emu_thread_state emu_thread;
#define threadIdx              emu_thread.thread
#define blockIdx               emu_thread.block
#define gridDim                emu_thread.grid
#define blockDim               emu_thread.size
#define warpSize               32
#define EMU_SHARED(type, name) type *name = (type *)(void *)emu_thread.shared

// Tensor cores and asynchronous copies, with the layouts of the PTX ISA. They end the program where hardware
// has no defined result: addresses that are not aligned, lanes of a warp that do not all take part in an
// instruction, copies that nobody waited for. An address is an offset in the block's shared memory.
uint32_t emu_shared_address(const void *p);
void *emu_shared_pointer(uint32_t address);
void emu_ldmatrix(uint32_t *r, uint32_t address, int transposed);      // .x4
void emu_mma_bf16(float *c, const uint32_t *a, const uint32_t *b);     // m16n8k16, c += a b
void emu_copy_async(uint32_t to, const void *from, bool there, int n); // 16 or 4 bytes, or zeros
void emu_copies_end(void);                                             // of this thread
// Reads of 8 rows by ldmatrix so far, and how many cycles banks needed for them: one each without conflicts.
void emu_bank_cycles(uint64_t *reads, uint64_t *cycles);

void emu_barrier(void);                                                // of the block
void emu_exchange(const void *mine, void *theirs, size_t n, int lane); // within the warp; lane: whose
int emu_lane(void);
int emu_shared_limit(void);
void emu_capability(int sm); // 90 for 9.0: which products cuBLASLt has; 0: what EMU_CAPABILITY says, or 80
void emu_devices(int n);     // number of devices; 0: what EMU_DEVICES says
void emu_separate(int a, int b, int apart); // two devices cannot access each other's memory
int emu_contexts(void);                     // number of devices on which this process has a context
int emu_mapped_of_dead(void);   // allocations of processes that have ended, which this one has open
void emu_allow_fork(void);      // this process may use CUDA, although its parent has
void emu_sample(size_t blocks); // of each grid only so many first and last blocks run; 0: all
cudaError_t emu_enqueue(cudaStream_t stream, const void *kernel, dim3 grid, dim3 block, size_t shared,
                        const ptx_arguments &arguments, std::function<void()> body);

void emu_sort_pairs(const uint32_t *keys, uint32_t *sorted, const uint32_t *values, uint32_t *order, size_t n,
                    int bits, cudaStream_t stream);

// Inlined, so that emu_barrier and emu_exchange see from where in a kernel they are called.
#define EMU_INLINE static inline __attribute__((always_inline))
EMU_INLINE void __syncthreads() { emu_barrier(); }
EMU_INLINE void __syncwarp(unsigned = 0xffffffffu) {
    char x = 0;
    emu_exchange(&x, &x, 1, emu_lane());
}
template <class T> EMU_INLINE T __shfl_sync(unsigned, T x, int lane) {
    T y = x;
    emu_exchange(&x, &y, sizeof x, lane & 31);
    return y;
}
template <class T> EMU_INLINE T __shfl_xor_sync(unsigned, T x, int mask) {
    return __shfl_sync(0, x, emu_lane() ^ mask);
}
template <class T> EMU_INLINE T __shfl_down_sync(unsigned, T x, unsigned by) {
    const int from = emu_lane() + (int)by;
    return __shfl_sync(0, x, from > 31 ? emu_lane() : from);
}
template <class T> EMU_INLINE T __shfl_up_sync(unsigned, T x, unsigned by) {
    const int from = emu_lane() - (int)by;
    return __shfl_sync(0, x, from < 0 ? emu_lane() : from);
}
EMU_INLINE int __any_sync(unsigned, int x) {
    for (int d = 1; d < 32; d *= 2) x |= __shfl_xor_sync(0, x, d);
    return x;
}
static inline unsigned atomicMax(unsigned *to, unsigned x) {
    const unsigned old = *to;
    if (x > old) *to = x;
    return old;
}
template <class P> static inline void emu_pack(ptx_arguments *to, const P &p) {
    const unsigned char *bytes = (const unsigned char *)(const void *)&p;
    to->bytes.insert(to->bytes.end(), bytes, bytes + sizeof p), to->sizes.push_back(sizeof p);
}
template <class... P, class... A>
static inline cudaError_t emu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                     cudaStream_t stream, A... arguments) {
    std::tuple<P...> copy(arguments...);
    ptx_arguments packed;
    std::apply([&](const P &...p) { (emu_pack(&packed, p), ...); }, copy);
    return emu_enqueue(stream, (const void *)kernel, grid, block, shared, packed,
                       [=] { std::apply(kernel, copy); });
}
#endif

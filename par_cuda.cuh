// par_cuda.cuh - the kit on NVIDIA's GPUs: device memory, streams, communication, kernels of every layer.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_CUDA_IMPLEMENTATION)
#define PAR_CUDA_IMPLEMENTATION
#endif
// clang-format on

#include "par.h"
#if PAR_VERSION != 900
#error "par_cuda.cuh is version 0.9.0, and par.h is of another version: take all headers from one version"
#endif
#include <cuda_runtime_api.h>

#ifndef PAR_CUDA_H
#define PAR_CUDA_H
/*
WHAT
    NVIDIA GPUs for par.h and for the layers that are included before this file. Collectives take device
    pointers; par_zero.h and par_tp.h run on the GPU. Your CUDA program keeps its main, its pointers and its
    streams.

USE
    #define PAR_IMPLEMENTATION        in one .cu file, after the layers you use:
    #include "par_zero.h"
    #include "par_cuda.cuh"           nvcc -O3 -arch=sm_90 prog.cu -lpthread

STEP BY STEP (you have a CUDA program for one GPU)
    1. Call par_open before the first CUDA call, since ranks may be forked there, then choose the device.
    2. par_cuda_open with desc.comm, your device and your stream. From then on the calls of par.h take device
       pointers, in the order of that stream.
    3. Give the layers their kernels: par_zero_desc.kernels = par_cuda_zero(cuda), and par_cuda_tp likewise.
    4. Run it on one GPU with PAR_RANKS=2 first: ranks may share one. examples/09_cuda_adopt.cu shows it.

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par_cuda.cuh"
    #include <stdio.h>

    int main(void) { // PAR_RANKS ranks, on as many GPUs as there are
        par_comm *world;
        par_cuda *cuda;
        par_cuda_desc desc = {};
        float x[4] = {1, 2, 3, 4}, *d;
        if (par_open(NULL, &world)) return 1;
        desc.comm = world;
        if (par_cuda_open(&desc, &cuda)) return 1;
        cudaStream_t stream = par_cuda_stream(cuda);
        if (par_cuda_alloc(cuda, PAR_CUDA_DEVICE, sizeof x, (void **)&d)) return 1;
        cudaMemcpyAsync(d, x, sizeof x, cudaMemcpyHostToDevice, stream);
        if (par_all_reduce(d, d, 4, PAR_F32, PAR_SUM, world)) return 1;
        if (par_cuda_sync(cuda)) return 1; // the sum is there; a rank that is missing is an error
        cudaMemcpy(x, d, sizeof x, cudaMemcpyDeviceToHost);
        if (par_rank(world) == 0) printf("%g %g %g %g\n", x[0], x[1], x[2], x[3]);
        // with PAR_RANKS=3 it prints: 3 6 9 12
        par_cuda_free(cuda, PAR_CUDA_DEVICE, d);
        par_cuda_close(cuda);
        return par_close(world) != PAR_OK;
    }

TABLE OF CONTENTS
    The API comes first: contexts, memory, streams, tables of kernels. Implementation, bottom-up:
    A device and its streams
    >>cuda_platform   errors, launches, grids
    >>cuda_numbers    types, 16-byte loads and stores, block reductions, random numbers
    >>cuda_reduce     reductions of several arrays, casts
    >>cuda_device     a GPU as a par_device
    How ranks communicate
    >>cuda_calls      the messages between hosts before and after a call
    >>cuda_peer       backend: peer-to-peer access to the arrays of all ranks
    >>cuda_staging    backend: through the host's memory
    >>cuda_nccl       backend: NCCL
    >>cuda_open       contexts, the choice of a backend
    Matrix products
    >>cuda_gemm       matrix products: cuBLASLt, or plain tiles
    >>cuda_tune       the fastest of cuBLASLt's plans, by measurement
    >>cuda_exact      matrix products that add as docs/bits.md defines
    Rows, elements, optimizers
    >>cuda_zero       kernels of par_zero.h
    >>cuda_tp_rows    kernels of par_tp.h: rows, bias, sums over rows
    >>cuda_pointwise  kernels of par_tp.h: activations
    >>cuda_norm       kernels of par_tp.h: norms
    >>cuda_dropout    kernels of par_tp.h: dropout
    >>cuda_rope       kernels of par_tp.h: rotary position embedding
    >>cuda_embedding  kernels of par_tp.h: tokens and positions
    >>cuda_loss       kernels of par_tp.h: cross-entropy
    >>cuda_codes      kernels of par_tp.h: operands in codes of 8 and 4 bits
    >>cuda_tp         other kernels of par_tp.h
    Attention
    >>cuda_mma        matrix products of a warp by tensor cores
    >>cuda_attention  kernels of par_tp.h: attention
    >>cuda_cudnn      attention by cuDNN
    The table for par_tp.h
    >>cuda_tp_exact   kernels of par_tp.h that add as docs/bits.md defines
    >>cuda_tp_table   the table of kernels for par_tp.h

CONFIG
    PAR_IMPLEMENTATION (or PAR_CUDA_IMPLEMENTATION)   emit the code, in one .cu file
    PAR_CUDA_NCCL       communicate by NCCL (link -lnccl); without it: ranks of one node
    PAR_CUDA_NVTX       each call is a range in Nsight, from begin to end (NVTX 3, header only)
    PAR_CUDA_CUBLASLT   matrix products by cuBLASLt (link -lcublasLt); without it: plain tiles, slow. From
                        compute capability 9.0 on its kernels also do GELU
    PAR_CUDA_CUDNN      attention by cuDNN 9.12 or newer (link -lcudnn): of bf16, whole sequences (no ring),
                        without window, documents and dropout, where it has a deterministic engine whose
                        workspace is at most 1/16 of the memory. Elsewhere, without the macro or with
                        desc.own_attention: this file's kernels, deterministic too; of bf16 on tensor cores
    PAR_CUDA_CANONICAL  functions of numbers are those of the CPU. With -fmad=false, which keeps nvcc from
                        fusing products and sums, desc.canonical works
    PAR_MALLOC, PAR_ASSERT ... as in par.h

ENVIRONMENT
    PAR_CUDA_BACKEND=nccl, peer or staging   see par_cuda_desc.backend
    PAR_CUDA_CHECK=1                         see par_cuda_desc.check

MODEL
    A context (par_cuda) belongs to one rank. It has a device and a compute stream, yours or its own. With
    desc.comm, calls on that comm and on comms that are split from it afterwards take device memory. Each of
    these comms has a stream of its own, of high priority, which its first call makes.
    Order       A call reads what was enqueued on the compute stream before it (begin forms: before begin).
                The blocking form and par_wait make the compute stream wait for the result, not the host; work
                that is enqueued next sees it. The host waits by par_cuda_sync, which has a deadline. Copies
                to memory that is not page-locked wait by themselves, for ever where a rank is missing: call
                par_cuda_sync before them, or copy to PAR_CUDA_HOST memory.
                Calls on one comm follow each other. Those on two comms run beside each other, so all ranks
                must begin calls in one order, also across comms.
    Backends    nccl: any ranks, one per GPU. peer: ranks of one node, threads or processes, any number per
                GPU; each reduces its slice of all ranks' arrays; hosts wait for hosts, no device waits for a
                device. staging: through host memory and par.h; anywhere, slow.
    Sums        peer and staging add in rank order, narrow floats in f32: the bits of par.h. So does nccl for
                PAR_TREE_SUM, for 8-bit floats and with desc.exact. Otherwise NCCL chooses the order, and two
                runs may differ.
    Messages    by nccl have a communicator and a stream for each rank and direction, are launched when they
                begin, and use up to 4 SMs each while they wait. NCCL connects ranks when they first need it:
                the first collective of a kind waits in begin until all ranks have begun it, the first message
                between two ranks in par_wait until both have. While a message is not launched, each par_wait
                waits for the device.
    Loading     A kernel may be loaded at its first launch (CUDA_MODULE_LOADING=LAZY), which waits for the
                device. Pipelines and rings of attention have their first messages when they open, so that
                nothing enqueued waits for what comes later. Before messages of your own load your kernels.
    Memory      The caller frees what it allocates. With peer other processes map the arrays that are sent,
                which need memory from cudaMalloc. par_cuda_free may be called at any time, by any context of
                the rank whose comm is open, and frees when they have unmapped it. Memory of your own
                cudaMalloc must not be freed before par_close of the comm. Close desc.comm after the comms
                that were split from it.
    Errors      As in par.h. Without a comm the text goes to PAR_LOG.
    Faults      In an elastic world a rank that waits for its device hears of deaths and of par_revoke. After
                par_shrink the context goes on by par_cuda_reopen; its memory keeps what it has. No stream
                waits for another process there: by peer the hosts wait for the device instead, before and
                after each call, which costs its latency; nccl is aborted, and joined anew.

DOES NOT
    No other vendor's GPUs. No NVSHMEM: between machines NCCL, or staging over the host's network. No
    scheduling of your kernels.

LIMITS
    Compute capability 8.0 or newer. peer: at most 64 ranks, on one node. A stream that is captured (CUDA
    graphs) can communicate by nccl, or on a comm of one rank. Capture after a first step, which allocates
    scratch memory and lets libraries choose kernels. Give each GPU a process, as NCCL's manual advises for
    graphs. Destroy a graph before you close the comms whose calls it has; examples/gpt --graph shows it.
    Where NCCL cannot end calls (see par_cuda_sync) a rank must end when another one dies.
    make check emulates a GPU; make gpu-check needs one.
*/

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// ---- contexts ---------------------------------------------------------------------------------------------

typedef struct par_cuda par_cuda;

// X(constant, name): the backends. AUTO chooses nccl if it is compiled in and no two ranks share a GPU, else
// peer on one node whose GPUs can access each other's memory, else staging.
#define PAR_CUDA_BACKENDS(X)                                                                                 \
    X(PAR_CUDA_AUTO, "auto")                                                                                 \
    X(PAR_CUDA_NCCL_BACKEND, "nccl")                                                                         \
    X(PAR_CUDA_PEER, "peer")                                                                                 \
    X(PAR_CUDA_STAGING, "staging")
typedef enum par_cuda_backend {
#define PAR__X(name, text) name,
    PAR_CUDA_BACKENDS(PAR__X)
#undef PAR__X
        PAR_CUDA_BACKEND_COUNT
} par_cuda_backend;

typedef struct par_cuda_desc {
    par_comm *comm;      // its calls take device memory from now on; NULL: a device without communication
    int device;          // 1 + the device's number; 0: the rank on the node modulo the number of devices
    cudaStream_t stream; // the compute stream; NULL: the context makes its own
    par_cuda_backend backend;
    void *nccl; // NULL, or an ncclComm_t of the same ranks in the same order; the caller destroys it
    // For the nccl backend. exact: sums in rank order, which sends more bytes. check: hosts compare the
    // arguments of each collective before it begins, and wait for each other (also PAR_CUDA_CHECK=1).
    int exact, check;
    int own_attention; // 1: no attention by cuDNN
    // 1: with canonical_leaves and canonical_shards the layers' kernels give the CPU's bits (docs/bits.md),
    // slowly. The program must be compiled for it: see PAR_CUDA_CANONICAL. Else UNSUPPORTED.
    int canonical;
} par_cuda_desc;

// Opens a context and makes its device current for this thread. Collective over desc.comm. Errors: ARGUMENT
// (no such device), UNSUPPORTED (the backend cannot work here; the text says why), MISMATCH (ranks asked for
// different backends), SYSTEM (CUDA or NCCL failed), MEMORY.
par_result par_cuda_open(const par_cuda_desc *desc, par_cuda **cuda);
// Closes the context. Not collective. Comms that use its backend may be closed later. NULL is PAR_OK. Error:
// UNSUPPORTED (a stream is captured; par_close of such a comm, too, and by nccl where a CUDA graph is alive
// that has calls of the comm: destroy it before).
par_result par_cuda_close(par_cuda *cuda);
// After par_shrink, or par_grow, of desc.comm: the context goes on with their new comm, and this rank keeps
// its memory, streams and tables. Comms are split from it anew; those before take no device memory any more,
// and are closed as ever. Collective over comm, whose new ranks call par_cuda_open with the same desc. The
// backend stays. After an error the context is as it was, and may be opened again on a comm of another
// par_shrink. Errors: ARGUMENT (comm is no such comm, or has a device; calls are in flight), ABORTED (the
// device waits for a rank that is gone: this rank must end), those of par_cuda_open.
par_result par_cuda_reopen(par_cuda *cuda, par_comm *comm);
const char *par_cuda_backend_name(const par_cuda *cuda); // "nccl", "peer", "staging", "none"

// ---- memory and streams -----------------------------------------------------------------------------------

// Kinds of memory. DEVICE: zeroed, for any use; other processes can map it. STREAM: allocated in stream order
// on the compute stream, from a pool, not initialized; the peer backend cannot use it between processes.
// HOST: pinned host memory, zeroed. SYMMETRIC: zeroed, for par_cuda_window_open (ncclMemAlloc; without nccl
// as DEVICE).
typedef enum par_cuda_memory {
    PAR_CUDA_DEVICE,
    PAR_CUDA_STREAM,
    PAR_CUDA_HOST,
    PAR_CUDA_SYMMETRIC
} par_cuda_memory;
// Allocates and frees. bytes 0 gives a pointer that can be freed. Errors: MEMORY, SYSTEM.
par_result par_cuda_alloc(par_cuda *cuda, par_cuda_memory kind, size_t bytes, void **memory);
par_result par_cuda_free(par_cuda *cuda, par_cuda_memory kind, void *memory); // NULL is PAR_OK

// Registers SYMMETRIC memory with comm, the same number of bytes on all ranks. NCCL 2.27 and newer can then
// use NVLink SHARP, copy engines and zero-copy kernels for all_gather, and for all_reduce and reduce_scatter
// of sums in f32 and narrow floats, where both arrays lie in windows, on all ranks at one offset (in place, a
// rank's own block may lie where it belongs). With other backends the call does nothing, and *window is NULL.
// Both calls are collective over comm. Close the window before you free the memory or close comm. The layers
// open windows for what they communicate, by par_cuda_device's alloc_symmetric. Errors: ARGUMENT (comm has no
// backend of par_cuda_open; memory does not begin a multiple of 4096 bytes into what par_cuda_alloc gave),
// UNSUPPORTED (a stream is captured), SYSTEM.
par_result par_cuda_window_open(par_comm *comm, void *memory, size_t bytes, void **window);
par_result par_cuda_window_close(par_comm *comm, void *window); // NULL is PAR_OK

// Limits the SMs that NCCL's collectives on comm occupy from now on, by a new communicator with this maxCTAs;
// 0: NCCL's choice, at most 32. Few suit gathers that have time, as ZeRO's; sums that the next product waits
// for want many. While such calls are in flight, cuBLASLt is told that products have the other SMs alone: it
// may choose other kernels, with other bits. Messages have a limit of 4, other backends have none. Collective
// over comm, before windows are opened. PAR_CUDA_COPY_ENGINES: the same as 0, but all_gather and all_to_all
// between windows occupy none (NCCL_CTA_POLICY_ZERO; NCCL 2.28, CUDA 12.5, ranks that NVLink joins), and
// begin when all messages that began before are launched. Errors: ARGUMENT (less than 0; calls are in flight,
// windows are open), UNSUPPORTED (an older NCCL; a stream is captured; a CUDA graph has calls of comm),
// SYSTEM.
enum { PAR_CUDA_COPY_ENGINES = -1 };
par_result par_cuda_limit_ctas(par_comm *comm, int max_ctas);

cudaStream_t par_cuda_stream(const par_cuda *cuda); // the compute stream
// The stream of a comm's calls; NULL before the first one on device memory.
cudaStream_t par_cuda_comm_stream(const par_comm *comm);
// The host waits for the compute stream, until the comm's deadline (TIMEOUT), until par_alive fails, or a
// comm of the context is revoked. Then nccl is aborted, so that the stream can finish. It may never finish
// with other backends (in an elastic world it does) and with desc.nccl, and where NCCL cannot end calls:
// before 2.29.7 or with PAR_CUDA_COPY_ENGINES those between windows (the layers open some), and all where a
// CUDA graph has calls of the comm. Then nothing waits for the device any more (ABORTED): close everything,
// and end the process, which ends its kernels.
par_result par_cuda_sync(par_cuda *cuda);

// ---- plans of matrix products -----------------------------------------------------------------------------

typedef struct par_cuda_tuning {
    int products, measured; // that have a measured plan; of these, by this call
    int changed, refused;   // of those: with another plan than cuBLASLt's first; plans that were not the same
                            // again in all runs
    double first_us, tuned_us; // of those, one run of each: by the first plans, and by those that were taken
} par_cuda_tuning;
// Chooses cuBLASLt's plans for the matrix products of this context by measurement: for each kind of product
// (sizes, types, epilogue, alignments) that ran so far on a rank and has none, it runs the first 8 plans that
// cuBLASLt proposes, in turns, with numbers of its own in memory of its own, and takes the fastest one that
// gives the same bits in all runs (cuBLASLt's first, unless another is 2% faster). All ranks take the same
// plans, which may give other bits than before: two trainings are the same if both have the same file. file:
// NULL, or where plans are kept: rank 0 reads it, and replaces it where plans are new. So call it with the
// file before the first step, and again after it. A file of another device or cuBLASLt is measured anew and
// replaced; a damaged one is an error. Products whose arrays do not fit into free memory keep their plan. The
// call waits for the device. result may be NULL. Collective over desc.comm. Errors: UNSUPPORTED (compiled
// without PAR_CUDA_CUBLASLT; a stream is captured), MISMATCH (the ranks have different devices), FILE,
// SYSTEM, MEMORY.
par_result par_cuda_tune(par_cuda *cuda, const char *file, par_cuda_tuning *result);

// ---- tables for the layers --------------------------------------------------------------------------------
// The tables belong to the context and live as long. A `stream` argument is a cudaStream_t; NULL is the
// compute stream. The first product on a stream allocates cuBLASLt's workspace for it: 4 MiB, from compute
// capability 9.0 on 32 MiB.

par_device *par_cuda_device(par_cuda *cuda);
#if defined(PAR_ZERO_H)
const par_zero_kernels *par_cuda_zero(par_cuda *cuda); // for par_zero_desc.kernels
#endif
#if defined(PAR_TP_H)
const par_tp_kernels *par_cuda_tp(par_cuda *cuda); // for par_tp_desc.kernels
#endif

// Communication is reported at the place where the program made the call (see par.h).
par_result par__cuda_open_at(const char *site, const par_cuda_desc *desc, par_cuda **cuda);
par_result par__cuda_reopen_at(const char *site, par_cuda *cuda, par_comm *comm);
#define PAR__CUDA_WITH_SITE(name, ...) par__cuda_##name##_at(PAR_SITE, __VA_ARGS__)
#define par_cuda_open(...)             PAR__CUDA_WITH_SITE(open, __VA_ARGS__)
#define par_cuda_reopen(...)           PAR__CUDA_WITH_SITE(reopen, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_CUDA_H

// Stop here if you only use it. -----------------------------------------------------------------------------

#if defined(PAR_CUDA_IMPLEMENTATION) && !defined(PAR_CUDA_IMPLEMENTED)
#define PAR_CUDA_IMPLEMENTED
#if defined(PAR_ZERO_H)
#include "par_zero.h" // what its implementation shares with this one
#endif
#if defined(PAR_TP_H)
#include "par_tp.h" // likewise
#endif
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <unistd.h>
#if defined(PAR_TP_H) && defined(__CUDACC__)
#include <cub/device/device_radix_sort.cuh>
#endif
#if defined(PAR_CUDA_NVTX)
#include <nvtx3/nvToolsExt.h>
#endif
#if defined(PAR_CUDA_NCCL)
#include <nccl.h>
#define PAR__CUDA_WINDOWS (NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0))
#define PAR__CUDA_POLICY  (NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0))
#else
#define PAR__CUDA_WINDOWS 0
#define PAR__CUDA_POLICY  0
#endif
#if defined(PAR_CUDA_CUBLASLT)
#include <cublasLt.h>
#endif
#if defined(PAR_CUDA_CUDNN) && defined(PAR_TP_H)
#include <cudnn.h>
#define PAR__CUDA_DNN 1
#if CUDNN_VERSION < 91200
#error "PAR_CUDA_CUDNN: cuDNN 9.12 or newer is needed"
#endif
#else
#define PAR__CUDA_DNN 0
#endif

// Within the implementation the macros of this header's functions are these functions, and calls of other
// headers keep the call site of the program's call.
#pragma push_macro("PAR__CUDA_WITH_SITE")
#undef PAR__CUDA_WITH_SITE
#define PAR__CUDA_WITH_SITE(name, ...) par_cuda_##name(__VA_ARGS__)
#pragma push_macro("PAR_SITE")
#undef PAR_SITE
#define PAR_SITE      NULL
#define par_fail(...) par__fail_in_layer(__VA_ARGS__)

// >>cuda_platform -------------------------------------------------------------------------------------------

enum {
    PAR__CUDA_MAX_PEERS = 64, // ranks of a comm of the peer backend
    PAR__CUDA_EVENTS = 32,    // events of each kind, per rank and comm, used in turn
    PAR__CUDA_SITE_BYTES = 96,
    PAR__CUDA_KEPT_MAPPINGS = 64, // allocations of other processes that stay mapped; a call may need more
    PAR__CUDA_WIDE_KERNELS = 16,  // that par__cuda_allow_shared remembers
    PAR__CUDA_THREADS = 256
};
// Memory that kernels use between two launches of one call: what each part is for.
enum {
    PAR__CUDA_SCRATCH_SUMS,      // partial sums for one number; what sorts keys
    PAR__CUDA_SCRATCH_PARTIALS,  // of sums over rows; sorted keys and rows
    PAR__CUDA_SCRATCH_ROPE,      // the table of angles, which stays
    PAR__CUDA_SCRATCH_ATTENTION, // dots, softmax sums, cuDNN's workspace
    PAR__CUDA_SCRATCHES
};

#if defined(PAR_CUDA_CUBLASLT)
enum { PAR__CUDA_MAX_PLANS = 64, PAR__CUDA_CANDIDATES = 8 }; // candidates: of cuBLASLt's plans for a product
// X(type, name): what cuBLASLt's choice of a kernel depends on. epilogue 0: none; sm_count: that it may use;
// 0: all; code and mode: of operands in codes; factors: alpha and beta are on the device; align: bytes.
#define PAR__CUDA_GEMM_KEY(X)                                                                                \
    X(size_t, m)                                                                                             \
    X(size_t, n)                                                                                             \
    X(size_t, k)                                                                                             \
    X(size_t, lda)                                                                                           \
    X(size_t, ldb)                                                                                           \
    X(size_t, ldc)                                                                                           \
    X(size_t, blocks)                                                                                        \
    X(size_t, a_step)                                                                                        \
    X(size_t, c_step)                                                                                        \
    X(int, trans_a)                                                                                          \
    X(int, trans_b)                                                                                          \
    X(int, epilogue)                                                                                         \
    X(int, sm_count)                                                                                         \
    X(int, type)                                                                                             \
    X(int, c_type)                                                                                           \
    X(int, code_a)                                                                                           \
    X(int, mode_a)                                                                                           \
    X(int, code_b)                                                                                           \
    X(int, mode_b)                                                                                           \
    X(int, factors)                                                                                          \
    X(int, align_a)                                                                                          \
    X(int, align_b)                                                                                          \
    X(int, align_c)                                                                                          \
    X(int, align_bias)                                                                                       \
    X(int, align_aux)
struct par__cuda_gemm_key {
#define PAR__X(type, name) type name;
    PAR__CUDA_GEMM_KEY(PAR__X)
#undef PAR__X
};
struct par__cuda_tuned { // which of cuBLASLt's plans is taken for a product
    par__cuda_gemm_key key;
    int plan; // 0: its first
};
struct par__cuda_gemm_plan {
    par__cuda_gemm_key key;
    cublasLtMatmulDesc_t matmul; // NULL: cuBLASLt has no kernel with this epilogue
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t heuristic;
    uint64_t last_used; // 0: never
};
#endif
#if PAR__CUDA_DNN
enum { PAR__DNN_MAX_OPERATIONS = 24, PAR__DNN_MAX_CONFIGS = 16, PAR__DNN_MAX_DESCRIPTORS = 160 };
struct par__dnn_shape {
    size_t batch, heads, kv_heads, sequence, dim, backward;
};
struct par__dnn_plan {
    par__dnn_shape shape;
    cudnnBackendDescriptor_t plan; // NULL: cuDNN has none for the shape
    size_t workspace_bytes;
    cudnnBackendDescriptor_t descriptors[PAR__DNN_MAX_DESCRIPTORS]; // all of the plan, the newest last
    int descriptor_count;
    cudnnStatus_t status; // the first error
    par__dnn_plan *next;
};
#endif
struct par__cuda_workspace { // of matrix products on one stream: products that run at a time share none
    par__cuda_workspace *next;
    cudaStream_t stream;
    void *memory;
};
struct par__cuda_ipc_mapping { // an allocation of another process
    cudaIpcMemHandle_t handle;
    void *base;
    int owner; // world rank
    uint64_t free_count,
        last_used; // free_count: the owner's when it was mapped; after a later free the address may be reused
};
struct par__cuda_kept { // memory that was replaced, and that a captured graph may use: freed at the end
    par__cuda_kept *next;
    void *memory;
};
struct par__cuda_window { // memory of alloc_symmetric
    par__cuda_window *next;
    void *memory, *window;
};
struct par__cuda_export { // an allocation that other processes may have mapped
    par__cuda_export *next;
    void *memory;
    uint64_t free_count; // 0: in use; else par_cuda_free was called, and this is the context's count
};
// What processes tell each other about mappings, in the node's memory: each rank writes its own.
struct par__cuda_map_state {
    uint64_t free_count;                    // of this rank
    uint64_t unmapped[PAR__CUDA_MAX_PEERS]; // by owner: its free_count, for which nothing is mapped any more
};
#if defined(PAR_TP_H)
struct par__cuda_rope_key {
    par_tp_rotary rotary;
    par_tp_row_map map;
    size_t dim;
};
#endif
struct par_cuda {
    par_cuda_desc desc;
    par_device device; // first of the tables; its state is this
#if defined(PAR_ZERO_H)
    par_zero_kernels zero;
#endif
#if defined(PAR_TP_H)
    par_tp_kernels tp;
#endif
    int ordinal, sm_count, max_shared_bytes;
    const void *wide[PAR__CUDA_WIDE_KERNELS]; // kernels that may have all of a block's shared memory
    int wide_count;
    int references; // the user's and one for each comm
    int own_stream;
    int stuck; // a stream waits for a rank that died or never came: nothing may wait for the device any more
    int elastic; // ranks may die, and the others go on
    cudaStream_t stream;
    par_cuda_backend backend;
    par__cuda_ipc_mapping *mappings;
    int mapping_count, kept_mappings;
    uint64_t mapping_clock, free_count;
    uint64_t call_start; // the mapping_clock when the call began: what was used since is pinned
    par__cuda_export *exports;
    par__cuda_window *windows;
    par__cuda_map_state *map_state; // of desc.comm's ranks that are processes; NULL: none
#if defined(PAR_TP_H)
    par__cuda_rope_key rope_key; // the arguments of the RoPE table in the scratch
#endif
    par__cuda_workspace *workspaces;
    size_t workspace_bytes; // of each
    int fuses;              // products with GELU, where cuBLASLt has them
    size_t split_from;      // products of so many multiplications, of sizes that are no multiple of 8
    size_t most_elements;   // of an array, in cuBLASLt's products of few rows, columns or terms
    void *scratch[PAR__CUDA_SCRATCHES]; // memory for kernels, see par__cuda_scratch
    size_t scratch_bytes[PAR__CUDA_SCRATCHES];
    int captured; // a graph has the compute stream's work, and may be replayed at any time
    par__cuda_kept *kept;
#if defined(PAR_CUDA_CUBLASLT)
    cublasLtHandle_t cublas;
    par__cuda_gemm_plan plans[PAR__CUDA_MAX_PLANS];
    uint64_t plan_clock;
    par__cuda_tuned *tuned;
    size_t tuned_count;
#endif
#if PAR__CUDA_DNN
    cudnnHandle_t cudnn;
    par__dnn_plan *dnn_plans; // one for each shape so far, also if cuDNN has none
#endif
};

#define PAR__CUDA_TRY(call)                                                                                  \
    do {                                                                                                     \
        const par_result par__r = (call);                                                                    \
        if (par__r) return par__r;                                                                           \
    } while (0)

static par_result par__cuda_fail(const par_cuda *cuda, par_result result, const char *what, const char *why) {
    char text[1000];
    snprintf(text, sizeof text, "%s: %s", what, why);
    if (cuda->desc.comm) return par_fail(cuda->desc.comm, result, "%s", text);
    PAR_LOG(text);
    return result;
}
// An error of any rank of comm is one of all: its own, or that another rank failed. comm NULL: of this rank
// alone.
static par_result par__cuda_agree(const par_cuda *cuda, par_comm *comm, par_result r, const char *what) {
    int worst = (int)r;
    const par_result announced = comm ? par_all_reduce(&worst, &worst, 1, PAR_I32, PAR_MAX, comm) : PAR_OK;
    if (r || announced || !worst) return r ? r : announced;
    return par__cuda_fail(cuda, (par_result)worst, what, "another rank failed: its error says why");
}
static par_result par__cuda_check(const par_cuda *cuda, cudaError_t e, const char *what) {
    if (e == cudaSuccess) return PAR_OK;
    cudaGetLastError(); // else the next call reports it again
    return par__cuda_fail(cuda, e == cudaErrorMemoryAllocation ? PAR_ERR_MEMORY : PAR_ERR_SYSTEM, what,
                          cudaGetErrorString(e));
}
#define PAR__CUDA_CALL(call) PAR__CUDA_TRY(par__cuda_check(cuda, call, #call))

// The contexts of this rank whose comm is open, one after the other. last NULL: the first. NULL: no more.
static par_cuda *par__cuda_next_context(const par_cuda *cuda, const par_cuda *last);
// Is the compute stream captured, or that of another context of this rank?
static int par__cuda_rank_captures(const par_cuda *cuda) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cuda->stream && cudaStreamIsCapturing(cuda->stream, &status)) cudaGetLastError();
    for (const par_cuda *c = NULL; !status && (c = par__cuda_next_context(cuda, c));)
        if (c != cuda && cudaStreamIsCapturing(c->stream, &status)) cudaGetLastError();
    return status != cudaStreamCaptureStatusNone;
}
// What allocates, frees or waits for the device would end the capture of any stream of this thread.
static par_result par__cuda_refuse_capture(const par_cuda *cuda, const char *what, const char *why) {
    return par__cuda_rank_captures(cuda) ? par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, what, why) : PAR_OK;
}
#define PAR__CUDA_CAPTURED_WINDOWS                                                                           \
    "a stream is captured, and windows are opened and closed outside of captures"
#define PAR__CUDA_CAPTURED_CLOSE "a stream is captured, and this waits for the device: end the capture before"
#define PAR__CUDA_CAPTURED_MEMORY                                                                            \
    "the stream is captured, and memory is allocated and freed outside of captures: run the step once "      \
    "before"

static par_result par__cuda_record_event(const par_cuda *cuda, cudaEvent_t event, cudaStream_t stream) {
    PAR__CUDA_CALL(cudaEventRecord(event, stream));
    return PAR_OK;
}
static par_result par__cuda_stream_wait(const par_cuda *cuda, cudaStream_t stream, cudaEvent_t event) {
    PAR__CUDA_CALL(cudaStreamWaitEvent(stream, event, 0));
    return PAR_OK;
}

// Memory of the device, where the compiler cannot know it: accesses of unknown memory are slower.
template <class T> static __device__ __forceinline__ T *par__cuda_global(T *p) {
#if defined(__CUDA_ARCH__)
    __builtin_assume(__isGlobal(p));
#endif
    return p;
}

// PAR__CUDA_UNROLL: the next loop has to be unrolled, because its arrays have to be in registers;
// PAR__CUDA_ROLLED: it must not be, because it is long.
// PAR__CUDA_PARAMETER: a kernel's argument whose address is taken; no thread writes or copies it.
#if defined(CUDA_EMU)
#define PAR__CUDA_UNROLL
#define PAR__CUDA_ROLLED
#define PAR__CUDA_PARAMETER const
#else
#define PAR__CUDA_UNROLL    _Pragma("unroll")
#define PAR__CUDA_ROLLED    _Pragma("unroll 1")
#define PAR__CUDA_PARAMETER const __grid_constant__
#endif

// Every kernel is launched here. Shared memory is always dynamic, and PAR__CUDA_SHARED declares it.
template <class T> struct par__cuda_identity { typedef T type; };
#if defined(CUDA_EMU)
#define PAR__CUDA_SHARED(type, name) EMU_SHARED(type, name)
#else
#define PAR__CUDA_SHARED(type, name)                                                                         \
    extern __shared__ __align__(1024) unsigned char par__cuda_shared[];                                      \
    type *name = (type *)(void *)par__cuda_shared
#endif
// Allows a kernel as much shared memory as the device gives to a block. The limit belongs to the kernel, not
// to the rank: two ranks that are threads, and set what their own launches need, would lower it under each
// other's.
static par_result par__cuda_allow_shared(const par_cuda *cuda, const void *kernel) {
    par_cuda *mine = (par_cuda *)(uintptr_t)cuda;
    for (int i = 0; i < cuda->wide_count; i++)
        if (cuda->wide[i] == kernel) return PAR_OK;
    int most = 0;
    PAR__CUDA_CALL(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, cuda->ordinal));
    PAR__CUDA_CALL(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    if (cuda->wide_count < PAR__CUDA_WIDE_KERNELS) mine->wide[mine->wide_count++] = kernel;
    return PAR_OK;
}
template <class... P>
static par_result par__cuda_launch(const par_cuda *cuda, void (*kernel)(P...), dim3 grid, dim3 block,
                                   size_t shared, cudaStream_t stream,
                                   typename par__cuda_identity<P>::type... a) {
    if (shared > (size_t)48 << 10) PAR__CUDA_TRY(par__cuda_allow_shared(cuda, (const void *)kernel));
#if defined(CUDA_EMU)
    const cudaError_t e = emu_launch(kernel, grid, block, shared, stream, a...);
#else // not <<<>>>, after which an error that the program has left unread would seem to be the launch's
    void *arguments[] = {(void *)(uintptr_t)&a...};
    const cudaError_t e = cudaLaunchKernel((const void *)kernel, grid, block, arguments, shared, stream);
#endif
    return par__cuda_check(cuda, e, "launch of a kernel");
}
static cudaStream_t par__cuda_stream_of(const par_cuda *cuda, void *stream) {
    return stream ? (cudaStream_t)stream : cuda->stream;
}
// The number of blocks for so many items at `per` items a block, at most as many as fill the device.
static unsigned par__cuda_blocks(const par_cuda *cuda, size_t items, size_t per) {
    const size_t wanted = (items + per - 1) / per, max_blocks = (size_t)cuda->sm_count * 8;
    return (unsigned)PAR__MAX((size_t)1, PAR__MIN(wanted, max_blocks));
}
// On the compute stream so many threads, at most as many as fill the device.
template <class... P>
static par_result par__cuda_over(const par_cuda *cuda, size_t threads, void (*kernel)(P...),
                                 typename par__cuda_identity<P>::type... a) {
    return par__cuda_launch(cuda, kernel, par__cuda_blocks(cuda, threads, PAR__CUDA_THREADS),
                            PAR__CUDA_THREADS, 0, cuda->stream, a...);
}
// A grid of so many blocks in a row: only this axis of a grid takes more than 65535.
static par_result par__cuda_grid(const par_cuda *cuda, const char *what, size_t blocks, dim3 *grid) {
    char why[100];
    *grid = dim3((unsigned)blocks);
    if (blocks <= 0x7FFFFFFF) return PAR_OK;
    snprintf(why, sizeof why, "%zu blocks, and a grid has at most 2147483647: use a smaller batch", blocks);
    return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, what, why);
}
static par_cuda *par__cuda_of(par_device *device) { return (par_cuda *)device->state; }

static int par__cuda_is_capturing(par_cuda *cuda) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(cuda->stream, &status)) cudaGetLastError();
    if (status != cudaStreamCaptureStatusNone) cuda->captured = 1;
    return status != cudaStreamCaptureStatusNone;
}
// Keeps memory of the device until the context is closed. 0: out of memory.
static int par__cuda_keep(par_cuda *cuda, void *memory) {
    par__cuda_kept *x = (par__cuda_kept *)PAR_MALLOC(sizeof *x);
    if (!x) return 0;
    x->memory = memory;
    x->next = cuda->kept;
    cuda->kept = x;
    return 1;
}
// Scratch memory number `slot`, of at least so many bytes; NULL: out of memory. Use it on the compute stream
// only.
static void *par__cuda_scratch(par_cuda *cuda, int slot, size_t bytes) {
    (void)par__cuda_is_capturing(cuda);
    if (cuda->scratch_bytes[slot] >= bytes && cuda->scratch[slot]) return cuda->scratch[slot];
    if (!cuda->captured) par_cuda_free(cuda, PAR_CUDA_DEVICE, cuda->scratch[slot]);
    if (cuda->captured && !par__cuda_keep(cuda, cuda->scratch[slot])) return NULL;
    cuda->scratch[slot] = NULL;
    cuda->scratch_bytes[slot] = 0;
    if (par_cuda_alloc(cuda, PAR_CUDA_DEVICE, bytes, &cuda->scratch[slot])) return NULL;
    return cuda->scratch_bytes[slot] = bytes, cuda->scratch[slot];
}

// >>cuda_numbers --------------------------------------------------------------------------------------------

// For each dtype the type par__cuda_NAME. par__cuda_widen converts to the type in which values are
// accumulated, par__cuda_accumulator; par__cuda_round converts back, to nearest even.
template <class T> static __device__ __forceinline__ T par__cuda_widen(T x) { return x; }
template <class T> static __device__ __forceinline__ void par__cuda_round(T *to, T x) { *to = x; }
template <class T> struct par__cuda_accumulator { typedef T type; };
#define PAR__CUDA_TYPE_FLOAT(name, C)    typedef C par__cuda_##name;
#define PAR__CUDA_TYPE_SIGNED(name, C)   typedef C par__cuda_##name;
#define PAR__CUDA_TYPE_UNSIGNED(name, C) typedef C par__cuda_##name;
#define PAR__CUDA_TYPE_NARROW(name, C)                                                                       \
    struct par__cuda_##name {                                                                                \
        C bits;                                                                                              \
    };                                                                                                       \
    static __device__ __forceinline__ float par__cuda_widen(par__cuda_##name x) {                            \
        return par__##name##_widen(x.bits);                                                                  \
    }                                                                                                        \
    static __device__ __forceinline__ void par__cuda_round(par__cuda_##name *to, float x) {                  \
        to->bits = par__##name##_narrow(x);                                                                  \
    }                                                                                                        \
    template <> struct par__cuda_accumulator<par__cuda_##name> { typedef float type; };
#define PAR__X(constant, name, type, sums, family, ...) PAR__CUDA_TYPE_##family(name, type)
PAR_DTYPES(PAR__X)
#undef PAR__X

// f(a number of the type): float, bf16 or f16, by dtype.
template <class F> static par_result par__cuda_visit_float(par_dtype dtype, F f) {
    switch (dtype) {
    case PAR_F32: return f(float());
    case PAR_BF16: return f(par__cuda_bf16());
    case PAR_F16: return f(par__cuda_f16());
    default: return PAR_ERR_ARGUMENT;
    }
}

// Two numbers in 16 bits each, the first one in the low half, rounded as par__cuda_round does. From sm_80 on
// one instruction converts both, and NaNs alone get other bits from it (PTX ISA, cvt.rn.bf16x2.f32).
#if defined(__CUDA_ARCH__)
static __device__ __forceinline__ uint32_t par__cuda_convert_pair(par__cuda_bf16, float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
static __device__ __forceinline__ uint32_t par__cuda_convert_pair(par__cuda_f16, float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
// Sums of pairs, rounded once. A sum in f32 that is rounded has the same bits, because f32 has more than
// twice as many; NaNs alone get other ones.
static __device__ __forceinline__ uint32_t par__cuda_add_pairs(par__cuda_bf16, uint32_t a, uint32_t b) {
    uint32_t sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3F803F80), "r"(b)); // a x 1 + b
    return sum;
}
static __device__ __forceinline__ uint32_t par__cuda_add_pairs(par__cuda_f16, uint32_t a, uint32_t b) {
    uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}
// Whether there is no NaN in four pairs: their sum says it, which infinities of both signs make NaN, too.
template <class T> static __device__ __forceinline__ bool par__cuda_are_numbers(const uint32_t *pairs) {
    const uint32_t sum = par__cuda_add_pairs(T(), par__cuda_add_pairs(T(), pairs[0], pairs[1]),
                                             par__cuda_add_pairs(T(), pairs[2], pairs[3]));
    const float both = par__bits_to_f32(par__cuda_add_pairs(T(), sum, __byte_perm(sum, 0, 0x1032)));
    return both == both; // the NaN of either type, 0x7FFF, is one of f32's upper halves, too
}
#endif
template <class T> static __device__ __forceinline__ uint32_t par__cuda_round_pair(float low, float high) {
    T a, b;
#if defined(__CUDA_ARCH__)
    if (low == low && high == high) return par__cuda_convert_pair(T(), low, high);
#endif
    par__cuda_round(&a, low);
    par__cuda_round(&b, high);
    return a.bits | (uint32_t)b.bits << 16;
}

// A pack: eight elements as memory has them. par__cuda_load8 reads those from `at` on, with 0 beyond n;
// par__cuda_store8 rounds and writes them, and nothing beyond n. whole: all eight are there, and they begin
// at a multiple of 16 bytes (8-bit floats: of 8), so that accesses have 16 bytes. Kernels ask it once for all
// their arrays, and load all before they use some: so the loads of all arrays are in flight at a time.
template <class T> struct par__cuda_pack8 { uint32_t word[2 * sizeof(T)]; };
static __device__ __forceinline__ uint32_t par__cuda_bits(float x) { return par__f32_to_bits(x); }
template <class T> static __device__ __forceinline__ uint32_t par__cuda_bits(T x) { return x.bits; }
template <class T>
static __device__ __forceinline__ par__cuda_pack8<T> par__cuda_load8(const T *p, size_t at, size_t n,
                                                                     bool whole) {
    par__cuda_pack8<T> v;
    if (!whole) {
        for (int i = 0; i < 2 * (int)sizeof(T); i++) v.word[i] = 0;
        PAR__CUDA_UNROLL
        for (int i = 0; i < 8; i++)
            if (at + (size_t)i < n)
                v.word[i * (int)sizeof(T) / 4] |= par__cuda_bits(p[at + (size_t)i])
                                                  << i * (int)sizeof(T) % 4 * 8;
    } else if constexpr (sizeof(T) == 1) {
        const uint2 q = *(const uint2 *)(const void *)(p + at);
        v.word[0] = q.x;
        v.word[1] = q.y;
    } else {
        PAR__CUDA_UNROLL
        for (int k = 0; k < (int)sizeof(T) / 2; k++) {
            const uint4 q = ((const uint4 *)(const void *)(p + at))[k];
            v.word[4 * k] = q.x;
            v.word[4 * k + 1] = q.y;
            v.word[4 * k + 2] = q.z;
            v.word[4 * k + 3] = q.w;
        }
    }
    return v;
}
static __device__ __forceinline__ void par__cuda_widen8(float *x, const par__cuda_pack8<float> &v) {
    for (int i = 0; i < 8; i++) x[i] = par__bits_to_f32(v.word[i]);
}
template <class T>
static __device__ __forceinline__ void par__cuda_widen8(float *x, const par__cuda_pack8<T> &v) {
    PAR__CUDA_UNROLL
    for (int i = 0; i < 8; i++) {
        T one;
        const uint32_t bits = v.word[i * (int)sizeof(T) / 4] >> i * (int)sizeof(T) % 4 * 8;
        if constexpr (sizeof(T) == 1)
            one.bits = (uint8_t)bits;
        else
            one.bits = (uint16_t)bits;
        x[i] = par__cuda_widen(one);
    }
}
static __device__ __forceinline__ par__cuda_pack8<float> par__cuda_round8(float *, const float *x) {
    par__cuda_pack8<float> v;
    for (int i = 0; i < 8; i++) v.word[i] = par__f32_to_bits(x[i]);
    return v;
}
template <class T>
static __device__ __forceinline__ par__cuda_pack8<T> par__cuda_round8(T *, const float *x) {
    par__cuda_pack8<T> v;
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 2) {
        for (int i = 0; i < 8; i += 2) v.word[i / 2] = par__cuda_convert_pair(T(), x[i], x[i + 1]);
        if (par__cuda_are_numbers<T>(v.word)) return v;
    }
#endif
    for (int i = 0; i < 2 * (int)sizeof(T); i++) v.word[i] = 0;
    PAR__CUDA_UNROLL
    for (int i = 0; i < 8; i++) {
        T one;
        par__cuda_round(&one, x[i]);
        v.word[i * (int)sizeof(T) / 4] |= (uint32_t)one.bits << i * (int)sizeof(T) % 4 * 8;
    }
    return v;
}
template <class T>
static __device__ __forceinline__ void par__cuda_store8_words(T *p, const par__cuda_pack8<T> &v) {
    if constexpr (sizeof(T) == 1) {
        *(uint2 *)(void *)p = make_uint2(v.word[0], v.word[1]);
    } else {
        PAR__CUDA_UNROLL
        for (int k = 0; k < (int)sizeof(T) / 2; k++)
            ((uint4 *)(void *)p)[k] =
                make_uint4(v.word[4 * k], v.word[4 * k + 1], v.word[4 * k + 2], v.word[4 * k + 3]);
    }
}
// To global memory: compilers split other stores of 16 bytes whose words come from two branches.
template <class T>
static __device__ __forceinline__ void par__cuda_store8_global(T *p, const par__cuda_pack8<T> &v) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 2) {
        __stwb((uint4 *)(void *)p, make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
        return;
    }
#endif
    par__cuda_store8_words(p, v);
}
template <class T>
static __device__ __forceinline__ void par__cuda_store8(T *p, const float *x, size_t at, size_t n,
                                                        bool whole) {
    if (!whole) {
        PAR__CUDA_UNROLL
        for (int i = 0; i < 8; i++)
            if (at + (size_t)i < n) par__cuda_round(p + at + (size_t)i, x[i]);
        return;
    }
    par__cuda_store8_global(p + at, par__cuda_round8(p, x));
}
template <class T>
static __device__ __forceinline__ par__cuda_pack8<T> par__cuda_add8(const par__cuda_pack8<T> &a,
                                                                    const par__cuda_pack8<T> &b) {
    float x[8], y[8];
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 2) {
        par__cuda_pack8<T> sum;
        for (int i = 0; i < 4; i++) sum.word[i] = par__cuda_add_pairs(T(), a.word[i], b.word[i]);
        if (par__cuda_are_numbers<T>(sum.word)) return sum;
    }
#endif
    par__cuda_widen8(x, a);
    par__cuda_widen8(y, b);
    for (int i = 0; i < 8; i++) x[i] += y[i];
    return par__cuda_round8((T *)NULL, x);
}
// Writes the sum of two packs, and returns it as it is in memory.
template <class T>
static __device__ __forceinline__ par__cuda_pack8<T> par__cuda_store8_sum(T *p, const par__cuda_pack8<T> &a,
                                                                          const par__cuda_pack8<T> &b,
                                                                          size_t at, size_t n, bool whole) {
    const par__cuda_pack8<T> sum = par__cuda_add8(a, b);
    float x[8];
    if (whole) return par__cuda_store8_global(p + at, sum), sum;
    par__cuda_widen8(x, sum);
    par__cuda_store8(p, x, at, n, false);
    return sum;
}
// Load and widen, or store, where nobody knows whether the pack is whole.
template <class T>
static __device__ __forceinline__ bool par__cuda_is_whole(const T *p, size_t at, size_t n) {
    return at + 8 <= n && (uintptr_t)(p + at) % (sizeof(T) == 1 ? 8 : 16) == 0;
}
template <class T>
static __device__ __forceinline__ void par__cuda_load(float *x, const T *p, size_t at, size_t n) {
    par__cuda_widen8(x, par__cuda_load8(p, at, n, par__cuda_is_whole(p, at, n)));
}
template <class T>
static __device__ __forceinline__ void par__cuda_store(T *p, const float *x, size_t at, size_t n) {
    par__cuda_store8(p, x, at, n, par__cuda_is_whole(p, at, n));
}
// Whether all addresses and row lengths in bytes are multiples of 16.
template <class... P> static bool par__cuda_aligned(P... p) { return (((uintptr_t)p | ...) & 15u) == 0; }

// Which of n numbers a thread has: every (number of threads)-th.
#define PAR__CUDA_GRID_STRIDE(i, n)                                                                          \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                                  \
         i += (size_t)gridDim.x * blockDim.x)

// Which packs of a matrix a thread has, of `rows` with `groups` each: every (number of threads)-th. Rows and
// groups are counted on, so that there is a division at the begin alone.
struct par__cuda_grid_stride {
    size_t row, group, groups, row_step, group_step;
    __device__ __forceinline__ par__cuda_grid_stride(size_t groups_of_row) {
        const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
        const uint32_t by = (uint32_t)PAR__MIN(groups_of_row, (size_t)0xFFFFFFFFu); // above first and step
        groups = groups_of_row;
        row = first / by;
        group = first % by;
        row_step = step / by;
        group_step = step % by;
    }
    __device__ __forceinline__ void next() {
        row += row_step;
        group += group_step;
        if (group >= groups) {
            group -= groups;
            row++;
        }
    }
};
// Division by a number that the host knows, of n below 2^31 without a division: n / by is the upper half of
// n x multiplier, shifted (Granlund and Montgomery 1994).
struct par__cuda_divisor {
    uint32_t multiplier, shift; // multiplier 0: by is 1
    size_t by;
};
static par__cuda_divisor par__cuda_divisor_of(size_t by) {
    par__cuda_divisor d = {0, 0, PAR__MAX(by, (size_t)1)};
    while ((uint64_t)1 << d.shift < d.by && d.shift < 31) d.shift++;
    if (d.by > 1 && d.by >> 31 == 0)
        d.multiplier = (uint32_t)((((uint64_t)1 << (31 + d.shift)) + d.by - 1) / d.by);
    return d;
}
static __device__ __forceinline__ size_t par__cuda_divide(const par__cuda_divisor &d, size_t n) {
    if (n >> 31 || d.by >> 31) return n / d.by;
    return d.multiplier ? (uint32_t)((uint64_t)(uint32_t)n * d.multiplier >> 32) >> (d.shift - 1) : n;
}

// The same for float, bf16 or f16, chosen when the kernel runs. 16-bit types have the first four words.
static __device__ __forceinline__ par__cuda_pack8<float>
par__cuda_load8_any(const void *p, par_dtype type, size_t at, size_t n, bool whole) {
    par__cuda_pack8<float> v;
    if (type != PAR_BF16 && type != PAR_F16) return par__cuda_load8((const float *)p, at, n, whole);
    const par__cuda_pack8<par__cuda_bf16> half = par__cuda_load8((const par__cuda_bf16 *)p, at, n, whole);
    for (int i = 0; i < 8; i++) v.word[i] = i < 4 ? half.word[i] : 0;
    return v;
}
static __device__ __forceinline__ void par__cuda_widen_any(float *x, const par__cuda_pack8<float> &v,
                                                           par_dtype type) {
    par__cuda_pack8<par__cuda_bf16> b;
    par__cuda_pack8<par__cuda_f16> h;
    for (int i = 0; i < 4; i++) b.word[i] = h.word[i] = v.word[i];
    if (type == PAR_BF16)
        par__cuda_widen8(x, b);
    else if (type == PAR_F16)
        par__cuda_widen8(x, h);
    else
        par__cuda_widen8(x, v);
}
static __device__ __forceinline__ void par__cuda_store8_any(void *p, par_dtype type, const float *x,
                                                            size_t at, size_t n, bool whole) {
    if (type == PAR_BF16)
        par__cuda_store8((par__cuda_bf16 *)p, x, at, n, whole);
    else if (type == PAR_F16)
        par__cuda_store8((par__cuda_f16 *)p, x, at, n, whole);
    else
        par__cuda_store8((float *)p, x, at, n, whole);
}

#if defined(PAR_MATH_H)
// The random bits of element i of a stream, by selects: an index would put the block into memory.
static __device__ __forceinline__ uint32_t par__cuda_random_bits(uint64_t seed, uint64_t stream, uint64_t i) {
    uint32_t block[4];
    par__philox_at(seed, stream, i >> 2, block);
    const uint32_t low = i & 1u ? block[1] : block[0], high = i & 1u ? block[3] : block[2];
    return i & 2u ? high : low;
}
#endif

// The largest bits of two pairs' halves.
static __device__ __forceinline__ uint32_t par__cuda_max_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t max;
    asm("max.u16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
    return max;
#else
    return PAR__MAX(a & 0xFFFFu, b & 0xFFFFu) | PAR__MAX(a >> 16, b >> 16) << 16;
#endif
}
// The bits, as f32, of the largest absolute value of eight numbers; NaN is above all others.
template <class T>
static __device__ __forceinline__ uint32_t par__cuda_amax_bits(const par__cuda_pack8<T> &v) {
    uint32_t size = 0;
    if constexpr (sizeof(T) == 2) {
        T largest;
        for (int i = 0; i < 4; i++) size = par__cuda_max_pairs(size, v.word[i] & 0x7FFF7FFFu);
        largest.bits = (uint16_t)PAR__MAX(size & 0xFFFFu, size >> 16);
        return par__f32_to_bits(par__cuda_widen(largest));
    } else {
        for (int i = 0; i < 8; i++) {
            const uint32_t one = v.word[i] & 0x7FFFFFFFu;
            size = PAR__MAX(size, one);
        }
        return size;
    }
}
// Four codes of 8 bits, of which the first is the lowest. From sm_89 on one instruction converts two; NaNs
// alone keep no sign in it. numbers: none is NaN.
static __device__ __forceinline__ uint32_t par__cuda_four_codes(bool e4m3, const float *x, bool numbers) {
    uint32_t four = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if (numbers) {
        uint16_t low, high;
        if (e4m3) {
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x[1]), "f"(x[0]));
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x[3]), "f"(x[2]));
        } else {
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x[1]), "f"(x[0]));
            asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x[3]), "f"(x[2]));
        }
        return low | (uint32_t)high << 16;
    }
#else
    (void)numbers;
#endif
    PAR__CUDA_UNROLL
    for (int i = 0; i < 4; i++)
        four |= (uint32_t)(e4m3 ? par__f8_e4m3_narrow(x[i]) : par__f8_e5m2_narrow(x[i])) << 8 * i;
    return four;
}

// e^x = 2^(x log2(e)); 2^(-inf) is 0.
#define PAR__CUDA_LOG2E 1.44269504f
static __device__ __forceinline__ float par__cuda_exp2(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// Reductions over a warp and over a block, in a fixed order; all threads get the result. scratch: one value
// per warp. Blocks must be whole warps.
struct par__cuda_add {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
};
struct par__cuda_max {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return a > b ? a : b; }
};
template <class F, class T> static __device__ __forceinline__ T par__cuda_warp_reduce(T x) {
    for (int d = 16; d; d /= 2) x = F::of(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}
template <class F, class T> static __device__ __forceinline__ T par__cuda_block_reduce(T x, T *scratch) {
    const unsigned warps = blockDim.x / 32;
    x = par__cuda_warp_reduce<F>(x);
    __syncthreads(); // other threads may still read scratch
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    T sum = scratch[0];
    for (unsigned i = 1; i < warps; i++) sum = F::of(sum, scratch[i]);
    return sum;
}

// >>cuda_reduce ---------------------------------------------------------------------------------------------
//
// Element i of every destination = the reduction of element i of all sources, in their order. Each source is
// read once and each destination is written once, 16 bytes a thread at a time.

struct par__cuda_reduction {
    const void *from[PAR__CUDA_MAX_PEERS];
    void *to[PAR__CUDA_MAX_PEERS];
    int sources, destinations;
    unsigned op;
    int ranks; // what an average divides by
    double factor;
};
template <class A> static __device__ __forceinline__ A par__cuda_combine(unsigned op, A x, A y) {
    if (op == PAR_PROD) return (A)(x * y);
    if (op == PAR_MIN) return (x < y || x != x) ? x : y;
    if (op == PAR_MAX) return (x > y || x != x) ? x : y;
    return (A)(x + y);
}
static __device__ __forceinline__ int32_t par__cuda_combine(unsigned op, int32_t x, int32_t y) { // wraps
    if (op == PAR_MIN) return x < y ? x : y;
    if (op == PAR_MAX) return x > y ? x : y;
    return (int32_t)par__cuda_combine(op, (uint32_t)x, (uint32_t)y);
}
static __device__ __forceinline__ int64_t par__cuda_combine(unsigned op, int64_t x, int64_t y) {
    if (op == PAR_MIN) return x < y ? x : y;
    if (op == PAR_MAX) return x > y ? x : y;
    return (int64_t)par__cuda_combine(op, (uint64_t)x, (uint64_t)y);
}
template <class A> static __device__ __forceinline__ A par__cuda_average(A x, int ranks) {
    return (A)(x / (A)ranks);
}
static __device__ __forceinline__ int8_t par__cuda_average(int8_t x, int ranks) {
    return (int8_t)(x / ranks);
}
static __device__ __forceinline__ uint8_t par__cuda_average(uint8_t x, int ranks) {
    return (uint8_t)(x / ranks);
}
template <class A> static __device__ __forceinline__ A par__cuda_scaled(A x, double) { return x; }
static __device__ __forceinline__ float par__cuda_scaled(float x, double f) { return x * (float)f; }
static __device__ __forceinline__ double par__cuda_scaled(double x, double f) { return x * f; }

template <class T, int N> struct alignas(N * sizeof(T) == 16 ? 16 : alignof(T)) par__cuda_vector { T x[N]; };
// acc[] op= v[]. The operation is chosen once for all elements.
template <class T, int N, class A>
static __device__ __forceinline__ void par__cuda_accumulate(unsigned op, A *acc,
                                                            const par__cuda_vector<T, N> &v) {
    A x[N];
    for (int i = 0; i < N; i++) x[i] = (A)par__cuda_widen(v.x[i]);
#define PAR__CUDA_EACH(constant)                                                                             \
    for (int i = 0; i < N; i++) acc[i] = par__cuda_combine(constant, acc[i], x[i])
    if (op == PAR_PROD)
        PAR__CUDA_EACH(PAR_PROD);
    else if (op == PAR_MIN)
        PAR__CUDA_EACH(PAR_MIN);
    else if (op == PAR_MAX)
        PAR__CUDA_EACH(PAR_MAX);
    else
        PAR__CUDA_EACH(PAR_SUM);
#undef PAR__CUDA_EACH
}
// out = the reduction of N elements at `at`. The loads of four sources are in flight at a time.
template <class T, int N>
static __device__ __forceinline__ void par__cuda_reduce_at(const par__cuda_reduction &s, size_t at,
                                                           par__cuda_vector<T, N> *out) {
    typedef typename par__cuda_accumulator<T>::type A;
    par__cuda_vector<T, N> v[4];
    A acc[N];
    for (int first = 0; first < s.sources; first += 4) {
        PAR__CUDA_UNROLL
        for (int k = 0; k < 4; k++)
            if (first + k < s.sources)
                v[k] = *(const par__cuda_vector<T, N> *)((const T *)s.from[first + k] + at);
        for (int i = 0; i < N && !first; i++) acc[i] = (A)par__cuda_widen(v[0].x[i]);
        PAR__CUDA_UNROLL
        for (int k = 0; k < 4; k++)
            if (first + k > 0 && first + k < s.sources) par__cuda_accumulate<T, N>(s.op, acc, v[k]);
    }
    for (int i = 0; i < N; i++) {
        if (s.op == PAR_AVG) acc[i] = par__cuda_average(acc[i], s.ranks);
        if (s.op == PAR_SCALED_SUM) acc[i] = par__cuda_scaled(acc[i], s.factor);
        if constexpr (sizeof(T) != 2 || N == 1) par__cuda_round(&out->x[i], acc[i]);
    }
    if constexpr (sizeof(T) == 2 && N > 1)
        for (int i = 0; i < N; i += 2) {
            const uint32_t pair = par__cuda_round_pair<T>(acc[i], acc[i + 1]);
            out->x[i].bits = (uint16_t)pair;
            out->x[i + 1].bits = (uint16_t)(pair >> 16);
        }
}
template <class T, int N> static __global__ void par__cuda_k_reduce(par__cuda_reduction s, size_t n) {
    PAR__CUDA_GRID_STRIDE(i, (n + N - 1) / N) {
        const size_t at = i * N;
        if (at + N <= n) {
            par__cuda_vector<T, N> out;
            par__cuda_reduce_at<T, N>(s, at, &out);
            PAR__CUDA_ROLLED
            for (int d = 0; d < s.destinations; d++) *(par__cuda_vector<T, N> *)((T *)s.to[d] + at) = out;
        } else {
            for (size_t k = at; k < n; k++) {
                par__cuda_vector<T, 1> out;
                par__cuda_reduce_at<T, 1>(s, k, &out);
                PAR__CUDA_ROLLED
                for (int d = 0; d < s.destinations; d++) ((T *)s.to[d])[k] = out.x[0];
            }
        }
    }
}
// TREE_SUM. Bit l of the number of sources so far says whether level[l] holds a sum of 2^l of them.
template <class T> static __global__ void par__cuda_k_tree_sum(par__cuda_reduction s, size_t n) {
    typedef typename par__cuda_accumulator<T>::type A;
    enum { LEVELS = 8 };
    PAR__CUDA_GRID_STRIDE(at, n) {
        A level[LEVELS], sum = 0;
        for (int r = 0; r < s.sources; r++) {
            A carry = (A)par__cuda_widen(((const T *)s.from[r])[at]);
            bool carries = true;
            PAR__CUDA_UNROLL
            for (int l = 0; l < LEVELS; l++) {
                if (carries && !(r >> l & 1)) level[l] = carry;
                carries = carries && (r >> l & 1);
                if (carries) carry = par__cuda_combine(PAR_SUM, level[l], carry);
            }
        }
        bool some = false;
        PAR__CUDA_UNROLL
        for (int l = 0; l < LEVELS; l++) {
            if (!(s.sources >> l & 1)) continue;
            sum = some ? par__cuda_combine(PAR_SUM, level[l], sum) : level[l];
            some = true;
        }
        T out;
        par__cuda_round(&out, sum);
        PAR__CUDA_ROLLED
        for (int d = 0; d < s.destinations; d++) ((T *)s.to[d])[at] = out;
    }
}
template <class T>
static par_result par__cuda_reduce_typed(const par_cuda *cuda, const par__cuda_reduction &s, size_t n,
                                         cudaStream_t stream) {
    enum { N = 16 / sizeof(T) };
    uintptr_t any = 0;
    for (int i = 0; i < s.sources; i++) any |= (uintptr_t)s.from[i];
    for (int i = 0; i < s.destinations; i++) any |= (uintptr_t)s.to[i];
    if (s.op == PAR_TREE_SUM)
        return par__cuda_launch(cuda, par__cuda_k_tree_sum<T>, par__cuda_blocks(cuda, n, PAR__CUDA_THREADS),
                                PAR__CUDA_THREADS, 0, stream, s, n);
    if (any % 16)
        return par__cuda_launch(cuda, par__cuda_k_reduce<T, 1>, par__cuda_blocks(cuda, n, PAR__CUDA_THREADS),
                                PAR__CUDA_THREADS, 0, stream, s, n);
    return par__cuda_launch(cuda, par__cuda_k_reduce<T, N>, par__cuda_blocks(cuda, n, N * PAR__CUDA_THREADS),
                            PAR__CUDA_THREADS, 0, stream, s, n);
}
static par_result par__cuda_reduce(const par_cuda *cuda, const par__cuda_reduction &s, size_t n,
                                   par_dtype dtype, cudaStream_t stream) {
    if (!n) return PAR_OK;
#define PAR__X(constant, name, ...)                                                                          \
    case constant: return par__cuda_reduce_typed<par__cuda_##name>(cuda, s, n, stream);
    switch (dtype) {
        PAR_DTYPES(PAR__X)
    default: return PAR_ERR_ARGUMENT;
    }
#undef PAR__X
}
// Loads the kernels of par__cuda_reduce. One that is loaded when it is first launched waits for the device
// (CUDA_MODULE_LOADING=LAZY), and so for ever behind an event of a process that has died.
template <class T> static par_result par__cuda_load_reduce_typed(const par_cuda *cuda) {
    const void *const kernels[] = {(const void *)par__cuda_k_reduce<T, 1>,
                                   (const void *)par__cuda_k_reduce<T, 16 / sizeof(T)>,
                                   (const void *)par__cuda_k_tree_sum<T>};
    struct cudaFuncAttributes a;
    for (int i = 0; i < 3; i++) PAR__CUDA_CALL(cudaFuncGetAttributes(&a, kernels[i]));
    return PAR_OK;
}
static par_result par__cuda_load_reduce(const par_cuda *cuda) {
#define PAR__X(constant, name, ...) PAR__CUDA_TRY(par__cuda_load_reduce_typed<par__cuda_##name>(cuda));
    PAR_DTYPES(PAR__X)
#undef PAR__X
    return PAR_OK;
}
static void par__cuda_reduction_open(par__cuda_reduction *s, par_op op, int ranks) {
    memset(s, 0, sizeof *s);
    s->op = (unsigned)(op & 255u);
    s->ranks = ranks;
    s->factor = s->op == PAR_SCALED_SUM ? par_op_factor(op) : 1;
}

// Casts between types that accumulate in f32, eight elements a thread. In place only if both types have the
// same size.
typedef void (*par__cuda_cast_kernel)(void *to, const void *from, size_t n);
template <class D, class S> static __global__ void par__cuda_k_cast(void *to, const void *from, size_t n) {
    const size_t step = (size_t)gridDim.x * blockDim.x * 8;
    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; at < n; at += step) {
        float x[8];
        par__cuda_load(x, (const S *)from, at, n);
        par__cuda_store((D *)to, x, at, n);
    }
}
template <class D, class S> static par__cuda_cast_kernel par__cuda_cast_kernel_of(float *, float *) {
    return par__cuda_k_cast<D, S>;
}
template <class D, class S> static par__cuda_cast_kernel par__cuda_cast_kernel_of(...) { return NULL; }
template <class D> static par__cuda_cast_kernel par__cuda_cast_kernel_to(par_dtype st) {
#define PAR__X(constant, name, ...)                                                                          \
    case constant:                                                                                           \
        return par__cuda_cast_kernel_of<D, par__cuda_##name>(                                                \
            (typename par__cuda_accumulator<D>::type *)NULL,                                                 \
            (typename par__cuda_accumulator<par__cuda_##name>::type *)NULL);
    switch (st) {
        PAR_DTYPES(PAR__X)
    default: return NULL;
    }
#undef PAR__X
}
static par__cuda_cast_kernel par__cuda_find_cast_kernel(par_dtype dt, par_dtype st) { // NULL: there is none
#define PAR__X(constant, name, ...)                                                                          \
    case constant: return par__cuda_cast_kernel_to<par__cuda_##name>(st);
    switch (dt) {
        PAR_DTYPES(PAR__X)
    default: return NULL;
    }
#undef PAR__X
}
// Casts between any types, as par_cast does: floats to integers truncate and saturate, and NaN gives 0.
static __global__ void par__cuda_k_cast_any(void *to, par_dtype dt, const void *from, par_dtype st,
                                            size_t n) {
    PAR__CUDA_GRID_STRIDE(i, n) par__cast_one(to, dt, from, st, i);
}
static par_result par__cuda_cast(par_cuda *cuda, void *dst, par_dtype dt, const void *src, par_dtype st,
                                 size_t n, cudaStream_t stream) {
    if (!par_dtype_bytes(dt) || !par_dtype_bytes(st) || (n && (!dst || !src))) return PAR_ERR_ARGUMENT;
    if (!n || (dt == st && dst == src)) return PAR_OK;
    if (dt == st) {
        PAR__CUDA_CALL(cudaMemcpyAsync(dst, src, n * par_dtype_bytes(dt), cudaMemcpyDeviceToDevice, stream));
        return PAR_OK;
    }
    const par__cuda_cast_kernel kernel = par__cuda_find_cast_kernel(dt, st);
    const dim3 packs(par__cuda_blocks(cuda, n, 8 * PAR__CUDA_THREADS)), threads(PAR__CUDA_THREADS);
    if (kernel) return par__cuda_launch(cuda, kernel, packs, threads, 0, stream, dst, src, n);
    return par__cuda_launch(cuda, par__cuda_k_cast_any, par__cuda_blocks(cuda, n, PAR__CUDA_THREADS), threads,
                            0, stream, dst, dt, src, st, n);
}

// Sums of squares in two launches: a partial sum for each block, then the sum of the partial sums by one
// block.
enum { PAR__CUDA_MAX_PARTIALS = 1024 };
// The number of partial sums for n elements. It depends on n alone, so that every device gives the same bits.
static unsigned par__cuda_partial_count(size_t n) {
    return (unsigned)PAR__MAX((size_t)1,
                              PAR__MIN(n / (16 * PAR__CUDA_THREADS), (size_t)PAR__CUDA_MAX_PARTIALS));
}
// sums[0], sums[1] += weight x the sums of the partial sums.
static __global__ void par__cuda_k_sum_partials(const double *partials, unsigned count, int kinds,
                                                double weight, double *sums) {
    PAR__CUDA_SHARED(double, scratch);
    for (int s = 0; s < kinds; s++) {
        double x = 0;
        for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
            x += partials[s * PAR__CUDA_MAX_PARTIALS + (int)i];
        x = par__cuda_block_reduce<par__cuda_add>(x, scratch);
        if (threadIdx.x == 0) sums[s] += weight * x;
    }
}
template <class T> static __global__ void par__cuda_k_sum_squares(const T *x, size_t n, double *partials) {
    PAR__CUDA_SHARED(double, scratch);
    const size_t step = (size_t)gridDim.x * blockDim.x * 8;
    double sum = 0;
    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; at < n; at += step) {
        float y[8];
        par__cuda_load(y, x, at, n);
        for (int i = 0; i < 8; i++) sum += (double)y[i] * (double)y[i];
    }
    sum = par__cuda_block_reduce<par__cuda_add>(sum, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}
static par_result par__cuda_sum_squares(par_cuda *cuda, const void *x, par_dtype type, size_t n,
                                        double weight, double *sum) {
    const size_t shared = PAR__CUDA_THREADS / 32 * sizeof(double);
    const unsigned count = par__cuda_partial_count(n);
    double *partials = (double *)par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_SUMS,
                                                   2 * PAR__CUDA_MAX_PARTIALS * sizeof(double));
    if (!partials) return PAR_ERR_MEMORY;
    if (!n) return PAR_OK;
    PAR__CUDA_TRY(par__cuda_visit_float(type, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_launch(cuda, par__cuda_k_sum_squares<T>, count, PAR__CUDA_THREADS, shared,
                                cuda->stream, (const T *)x, n, partials);
    }));
    return par__cuda_launch(cuda, par__cuda_k_sum_partials, 1, PAR__CUDA_THREADS, shared, cuda->stream,
                            partials, count, 1, weight, sum);
}

// >>cuda_device ---------------------------------------------------------------------------------------------

static void par__cuda_abort(par_cuda *cuda, const par_comm *comm);
static par_result par__cuda_wait_for_comms(par_cuda *cuda, const char *what);
// For waits outside par.h: checks every few milliseconds whether the deadline has passed or a rank has died.
struct par__cuda_waiting {
    double start = -1, last_check = 0;
};
static par_result par__cuda_poll(par_comm *c, par__cuda_waiting *w, const char *what, const char *missing,
                                 const char *hint) {
    const double now = par_seconds(c), limit = par_timeout(c);
    if (w->start < 0) w->start = w->last_check = now;
    sched_yield();
    if (now - w->last_check < 0.005) return PAR_OK;
    w->last_check = now;
    if (now - w->start > limit)
        return par_fail(c, PAR_ERR_TIMEOUT, "%s: %s within %g s%s", what, missing, limit, hint);
    const par_result r = par_alive(c);
    return r ? r : par__ask_revoked(c);
}
// Has a rank revoked a comm of this context?
static par_result par__cuda_ask_revoked(const par_cuda *cuda);
// The host waits for an event, or (NULL) for a stream. All waits for the device are here: what a stream waits
// for may come from a rank that has died, and the driver would wait for ever. Meanwhile the calls of all
// comms go on. After an error NCCL is aborted, where that ends what the streams wait for; a stream that waits
// for another process's event never ends.
static par_result par__cuda_wait(par_cuda *cuda, cudaStream_t stream, cudaEvent_t event, const char *what) {
    par_comm *c = cuda->desc.comm;
    if (cuda->stuck)
        return par__cuda_fail(cuda, PAR_ERR_ABORTED, what,
                              "the device waits for a rank that is gone, and cannot be stopped: close "
                              "everything, and end the process");
    PAR__CUDA_TRY(
        par__cuda_refuse_capture(cuda, what, "the stream is captured, and does nothing until it is played"));
    if (!c || par_size(c) == 1)
        return par__cuda_check(cuda, event ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream),
                               what);
    par__cuda_waiting wait;
    cudaError_t e;
    while ((e = event ? cudaEventQuery(event) : cudaStreamQuery(stream)) == cudaErrorNotReady) {
        cudaGetLastError();
        par__step_calls(c);
        par_result r = par__cuda_poll(c, &wait, what, "the stream has not finished",
                                      ": a rank may not have made the call that the others wait for "
                                      "(PAR_CUDA_CHECK=1 finds out); close "
                                      "the comm");
        if (!r) r = par__cuda_ask_revoked(cuda);
        if (r) return par__cuda_abort(cuda, c), r;
    }
    return par__cuda_check(cuda, e, what);
}
// The same before something is closed or freed: after an error, too, the stream ends, unless it is stuck.
static par_result par__cuda_drain(par_cuda *cuda, cudaStream_t stream, const char *what) {
    par_comm *c = cuda->desc.comm;
    const par_result r = par__cuda_wait(cuda, stream, NULL, what);
    if (!r || cuda->stuck || !c || par__cuda_rank_captures(cuda)) return r;
    const double start = par_seconds(c);
    cudaError_t e;
    while ((e = cudaStreamQuery(stream)) == cudaErrorNotReady && par_seconds(c) - start < par_timeout(c)) {
        cudaGetLastError();
        sched_yield();
    }
    return e == cudaErrorNotReady ? r : par__cuda_check(cuda, e, what);
}

// Any context of this rank may have sent an array of any other.
static int par__cuda_is_exported(const par_cuda *cuda, const void *memory) {
    for (const par_cuda *c = par__cuda_next_context(cuda, NULL); c; c = par__cuda_next_context(cuda, c))
        for (const par__cuda_export *x = c->exports; x; x = x->next)
            if (x->memory == memory) return 1;
    return 0;
}
// Memory that other processes have mapped is freed when they have unmapped it, as CUDA demands. The owner
// counts its frees; the others see the count whenever they wait, unmap what they have of that owner, and say
// so. all: nobody has anything of this context mapped any more.
static void par__cuda_free_unmapped(par_cuda *cuda, int all) {
    const par_comm *c = cuda->desc.comm;
    for (par__cuda_export **link = &cuda->exports; *link;) {
        par__cuda_export *x = *link;
        int unmapped = x->free_count != 0 || all;
        for (int r = 0; r < par_size(c) && unmapped && !all; r++) {
            par__cuda_map_state *theirs =
                (par__cuda_map_state *)par_peer(cuda->desc.comm, cuda->map_state, r);
            if (r != par_rank(c))
                unmapped = __atomic_load_n(&theirs->unmapped[par_rank(c)], __ATOMIC_ACQUIRE) >= x->free_count;
        }
        if (!unmapped) {
            link = &x->next;
            continue;
        }
        *link = x->next;
        // Else it is the program's still, or another context waits for its own processes.
        if (x->free_count && !par__cuda_is_exported(cuda, x->memory)) cudaFree(x->memory);
        PAR_FREE(x);
    }
}
// Frees what the other processes have unmapped. Returns whether something is left.
static int par__cuda_free_pending(const par_cuda *cuda) {
    int left = 0;
    for (par_cuda *c = par__cuda_next_context(cuda, NULL); c; c = par__cuda_next_context(cuda, c)) {
        par__cuda_free_unmapped(c, 0);
        for (const par__cuda_export *x = c->exports; x; x = x->next) left |= x->free_count != 0;
    }
    return left;
}
// An allocation in use that other processes may have mapped, or NULL.
static par__cuda_export *par__cuda_find_export(const par_cuda *cuda, const void *memory) {
    par__cuda_export *x = cuda->exports;
    while (x && (x->memory != memory || x->free_count)) x = x->next;
    return x;
}
// Frees memory of cudaMalloc, now or when no process has it mapped, through whichever context of this rank.
static par_result par__cuda_free_device(par_cuda *cuda, void *memory) {
    for (par_cuda *c = par__cuda_next_context(cuda, NULL); c; c = par__cuda_next_context(cuda, c)) {
        par__cuda_export *x = par__cuda_find_export(c, memory);
        if (!x) continue;
        PAR__CUDA_TRY(par__cuda_wait_for_comms(c, "par_cuda_free"));
        x->free_count = ++c->free_count;
        __atomic_store_n(&c->map_state->free_count, c->free_count, __ATOMIC_RELEASE);
    }
    if (par__cuda_is_exported(cuda, memory))
        (void)par__cuda_free_pending(cuda);
    else
        PAR__CUDA_CALL(cudaFree(memory));
    return PAR_OK;
}
// Where memory is short, waits for what other processes have not unmapped yet.
static par_result par__cuda_malloc(par_cuda *cuda, size_t bytes, void **memory) {
    par_comm *c = cuda->desc.comm;
    par__cuda_waiting wait;
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "par_cuda_alloc", PAR__CUDA_CAPTURED_MEMORY));
    for (;;) {
        const int waiting = par__cuda_free_pending(cuda);
        const cudaError_t e = cudaMalloc(memory, bytes);
        if (e != cudaErrorMemoryAllocation || !waiting) return par__cuda_check(cuda, e, "cudaMalloc");
        cudaGetLastError();
        par__step_calls(c);
        PAR__CUDA_TRY(par__cuda_poll(c, &wait, "par_cuda_alloc",
                                     "out of memory; others have not unmapped what was freed", ""));
    }
}

#if PAR__CUDA_WINDOWS
static int par__cuda_is_nccl_memory(const par_cuda *cuda,
                                    par_cuda_memory kind) { // its memory, not cudaMalloc's
    return kind == PAR_CUDA_SYMMETRIC && cuda->backend == PAR_CUDA_NCCL_BACKEND;
}
#endif
par_result par_cuda_alloc(par_cuda *cuda, par_cuda_memory kind, size_t bytes, void **memory) {
    *memory = NULL;
    bytes = bytes ? bytes : 16;
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "par_cuda_alloc", PAR__CUDA_CAPTURED_MEMORY));
    if (kind == PAR_CUDA_STREAM) {
        PAR__CUDA_CALL(cudaMallocAsync(memory, bytes, cuda->stream));
        return PAR_OK;
    }
    if (kind == PAR_CUDA_HOST) {
        PAR__CUDA_CALL(cudaHostAlloc(memory, bytes, cudaHostAllocDefault));
        memset(*memory, 0, bytes);
        return PAR_OK;
    }
#if PAR__CUDA_WINDOWS
    if (par__cuda_is_nccl_memory(cuda, kind)) {
        if (ncclMemAlloc(memory, bytes) != ncclSuccess)
            return par__cuda_fail(cuda, PAR_ERR_MEMORY, "ncclMemAlloc", ncclGetLastError(NULL));
    } else
#endif
        PAR__CUDA_TRY(par__cuda_malloc(cuda, bytes, memory));
    const par_result r =
        par__cuda_check(cuda, cudaMemsetAsync(*memory, 0, bytes, cuda->stream), "cudaMemsetAsync");
    if (r) {
        par_cuda_free(cuda, kind, *memory);
        *memory = NULL;
    }
    return r;
}
par_result par_cuda_free(par_cuda *cuda, par_cuda_memory kind, void *memory) {
    if (!memory) return PAR_OK;
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "par_cuda_free", PAR__CUDA_CAPTURED_MEMORY));
    if (kind == PAR_CUDA_STREAM)
        PAR__CUDA_CALL(cudaFreeAsync(memory, cuda->stream));
    else if (kind == PAR_CUDA_HOST)
        PAR__CUDA_CALL(cudaFreeHost(memory));
#if PAR__CUDA_WINDOWS
    else if (par__cuda_is_nccl_memory(cuda, kind)) {
        PAR__CUDA_TRY(par__cuda_drain(cuda, cuda->stream, "par_cuda_free"));
        PAR__CUDA_TRY(par__cuda_wait_for_comms(cuda, "par_cuda_free"));
        if (ncclMemFree(memory) != ncclSuccess)
            return par__cuda_fail(cuda, PAR_ERR_SYSTEM, "ncclMemFree", ncclGetLastError(NULL));
    }
#endif
    else { // cudaFree waits for the device
        PAR__CUDA_TRY(par__cuda_drain(cuda, cuda->stream, "par_cuda_free"));
        PAR__CUDA_TRY(par__cuda_wait_for_comms(cuda, "par_cuda_free"));
        return par__cuda_free_device(cuda, memory);
    }
    return PAR_OK;
}
cudaStream_t par_cuda_stream(const par_cuda *cuda) { return cuda->stream; }
par_result par_cuda_sync(par_cuda *cuda) { return par__cuda_wait(cuda, cuda->stream, NULL, "par_cuda_sync"); }

static par_result par__cuda_d_alloc(par_device *device, size_t bytes, void **memory) {
    return par_cuda_alloc(par__cuda_of(device), PAR_CUDA_DEVICE, bytes, memory);
}
static par_result par__cuda_d_free(par_device *device, void *memory) {
    return par_cuda_free(par__cuda_of(device), PAR_CUDA_DEVICE, memory);
}
static par_result par__cuda_d_alloc_host(par_device *device, size_t bytes, void **memory) {
    return par_cuda_alloc(par__cuda_of(device), PAR_CUDA_HOST, bytes, memory);
}
static par_result par__cuda_d_free_host(par_device *device, void *memory) {
    return par_cuda_free(par__cuda_of(device), PAR_CUDA_HOST, memory);
}
static par_result par__cuda_d_alloc_symmetric(par_device *device, par_comm *comm, size_t bytes,
                                              void **memory);
static par_result par__cuda_d_free_symmetric(par_device *device, par_comm *comm, void *memory);
static int par__cuda_is_pageable(const void *memory) {
    struct cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, memory)) return cudaGetLastError(), 1;
    return a.type == cudaMemoryTypeUnregistered;
}
// All copies between the host and the device are here, but those of the staging backend, whose memory is
// page-locked. Where the host's memory is not, the driver copies through its own, and the call may return
// when all that comes before it has ended (CUDA runtime's manual, API synchronization behavior): without a
// deadline. So the host waits before, with one.
static par_result par__cuda_d_copy(par_device *device, void *dst, const void *src, size_t bytes,
                                   void *stream) {
    par_cuda *cuda = par__cuda_of(device);
    cudaStream_t s = par__cuda_stream_of(cuda, stream);
    if (!bytes || dst == src) return PAR_OK;
    if ((par__cuda_is_pageable(dst) || par__cuda_is_pageable(src)) && !par__cuda_rank_captures(cuda))
        PAR__CUDA_TRY(par__cuda_wait(cuda, s, NULL, "a copy of memory that is not page-locked"));
    PAR__CUDA_CALL(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, s));
    return PAR_OK;
}
static par_result par__cuda_d_fill(par_device *device, void *dst, int byte, size_t bytes, void *stream) {
    par_cuda *cuda = par__cuda_of(device);
    if (bytes) PAR__CUDA_CALL(cudaMemsetAsync(dst, byte, bytes, par__cuda_stream_of(cuda, stream)));
    return PAR_OK;
}
static par_result par__cuda_d_cast(par_device *device, void *dst, par_dtype dt, const void *src, par_dtype st,
                                   size_t n, void *stream) {
    par_cuda *cuda = par__cuda_of(device);
    return par__cuda_cast(cuda, dst, dt, src, st, n, par__cuda_stream_of(cuda, stream));
}
static par_result par__cuda_d_reduce(par_device *device, void *dst, const void *const *sources, int count,
                                     size_t n, par_dtype dtype, par_op op, void *stream) {
    par_cuda *cuda = par__cuda_of(device);
    par__cuda_reduction s;
    if (count < 1 || par__op_error(op, dtype)) return PAR_ERR_ARGUMENT;
    if (count > PAR__CUDA_MAX_PEERS)
        return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "reduce", "more than 64 arrays at once");
    par__cuda_reduction_open(&s, op, count);
    for (int i = 0; i < count; i++) s.from[i] = sources[i];
    s.to[0] = dst;
    s.sources = count;
    s.destinations = 1;
    return par__cuda_reduce(cuda, s, n, dtype, par__cuda_stream_of(cuda, stream));
}
static par_result par__cuda_d_stream_open(par_device *device, void **stream) {
    par_cuda *cuda = par__cuda_of(device);
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "stream_open", PAR__CUDA_CAPTURED_MEMORY));
    PAR__CUDA_CALL(cudaStreamCreateWithPriority((cudaStream_t *)stream, cudaStreamNonBlocking, 0));
    return PAR_OK;
}
static par_result par__cuda_d_stream_close(par_device *device, void *stream) {
    par_cuda *cuda = par__cuda_of(device);
    par__cuda_workspace **link = &cuda->workspaces;
    if (!stream) return PAR_OK;
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "stream_close", PAR__CUDA_CAPTURED_CLOSE));
    while (*link && (*link)->stream != (cudaStream_t)stream) link = &(*link)->next;
    if (*link) { // the stream may still use it
        par__cuda_workspace *x = *link;
        PAR__CUDA_TRY(par__cuda_drain(cuda, x->stream, "stream_close"));
        PAR__CUDA_TRY(par_cuda_free(cuda, PAR_CUDA_DEVICE, x->memory));
        *link = x->next;
        PAR_FREE(x);
    }
    PAR__CUDA_CALL(cudaStreamDestroy((cudaStream_t)stream));
    return PAR_OK;
}
static par_result par__cuda_d_stream_sync(par_device *device, void *stream) {
    par_cuda *cuda = par__cuda_of(device);
    return par__cuda_wait(cuda, par__cuda_stream_of(cuda, stream), NULL, "stream_sync");
}
static par_result par__cuda_d_event_record(par_device *device, void *stream, void **event) {
    par_cuda *cuda = par__cuda_of(device);
    if (!*event) PAR__CUDA_CALL(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming));
    PAR__CUDA_CALL(cudaEventRecord((cudaEvent_t)*event, par__cuda_stream_of(cuda, stream)));
    return PAR_OK;
}
static par_result par__cuda_d_event_wait(par_device *device, void *stream, void *event) {
    par_cuda *cuda = par__cuda_of(device);
    if (event) PAR__CUDA_CALL(cudaStreamWaitEvent(par__cuda_stream_of(cuda, stream), (cudaEvent_t)event, 0));
    return PAR_OK;
}
static par_result par__cuda_d_event_sync(par_device *device, void *event) {
    return event ? par__cuda_wait(par__cuda_of(device), NULL, (cudaEvent_t)event, "event_sync") : PAR_OK;
}
static par_result par__cuda_d_event_free(par_device *device, void *event) {
    par_cuda *cuda = par__cuda_of(device);
    if (event) PAR__CUDA_CALL(cudaEventDestroy((cudaEvent_t)event));
    return PAR_OK;
}
static void par__cuda_device_open(par_cuda *cuda) {
    par_device *d = &cuda->device;
    d->name = "cuda";
    d->state = cuda;
    d->alloc = par__cuda_d_alloc;
    d->free = par__cuda_d_free;
    d->alloc_host = par__cuda_d_alloc_host;
    d->free_host = par__cuda_d_free_host;
    d->alloc_symmetric = par__cuda_d_alloc_symmetric;
    d->free_symmetric = par__cuda_d_free_symmetric;
    d->copy = par__cuda_d_copy;
    d->fill = par__cuda_d_fill;
    d->cast = par__cuda_d_cast;
    d->reduce = par__cuda_d_reduce;
    d->stream_open = par__cuda_d_stream_open;
    d->stream_close = par__cuda_d_stream_close;
    d->stream_sync = par__cuda_d_stream_sync;
    d->event_record = par__cuda_d_event_record;
    d->event_wait = par__cuda_d_event_wait;
    d->event_sync = par__cuda_d_event_sync;
    d->event_free = par__cuda_d_event_free;
}
par_device *par_cuda_device(par_cuda *cuda) { return &cuda->device; }

// >>cuda_calls ----------------------------------------------------------------------------------------------
//
// The peer and staging backends keep a list of the calls in flight on each comm. A call advances whenever its
// rank waits for anything:
//     peer      rank 0   ready -> [announce] ..... all here: reduce slice | done -> [announce] . all done
//               rank 1        ready -> [announce]  all here: reduce slice | done -> [announce] . all done
//     streams   compute  ready                                                        (end) wait: all done
//               comm                             wait: all ready | reduce | done
// Hosts exchange these messages over two comms of their own. An event is recorded before any stream is told
// to wait for it, so devices cannot deadlock. Events of a stream complete in order, so they can be reused in
// turn.
//
// An event of a process that dies never completes, and nothing ends a stream that waits for it. So in an
// elastic world hosts announce a call when their own event has completed, and say that a part is done when it
// is, and streams wait for no other rank's event (l->hosts_wait):
//     peer      rank 0   ready .. [announce] ..... all here: reduce slice | done .. [announce] . all done

struct par__cuda_arrival { // what a rank announces of its call to the others
    par__call_record call;
    int32_t failed;
    uint32_t slot;                // of the event after which its arrays are ready
    uint64_t free_count;          // allocations that this rank has freed so far
    uint64_t array[2], offset[2]; // send, recv: addresses; in the allocation that the handle is of
    cudaIpcMemHandle_t handle[2];
    char site[PAR__CUDA_SITE_BYTES];
};
struct par__cuda_completion {
    int32_t result;
    uint32_t slot;
};
// The states of a call, in their order. PREPARING and, with the peer backend, RUNNING: the host waits for an
// event of its own device.
enum {
    PAR__CUDA_PREPARING = -1,
    PAR__CUDA_ANNOUNCED,
    PAR__CUDA_RUNNING,
    PAR__CUDA_COMPLETING,
    PAR__CUDA_DONE
};
struct par__cuda_pending {
    par__cuda_pending *next;
    const par_call *call;
    int state;
    par_result result;
    uint32_t slot;
    par_request request, acknowledgement;
    cudaEvent_t complete;
    par__cuda_arrival mine, *all; // of all ranks; of a message: the sender's
    par__cuda_completion completion, *completions;
    size_t *blocks; // all_to_allv: of every rank where its blocks are, and how long
    int waiting;    // somebody waits for a request of it
    int captured;   // it began while the compute stream was captured
    int recorded;   // of a collective by NCCL: its end is
#if defined(PAR_CUDA_NVTX)
    nvtxRangeId_t range;
#endif
    char *host[2]; // staging: send, recv
    size_t host_bytes[2];
};
struct par__cuda_host_block { // a block of pinned memory that the staging backend keeps
    par__cuda_host_block *next;
    char *memory;
    size_t bytes;
};
#if defined(PAR_CUDA_NCCL)
enum { PAR__CUDA_LINK_NEW, PAR__CUDA_LINK_JOINING, PAR__CUDA_LINK_READY };
struct par__cuda_link { // NCCL's communicator for the messages to one rank, or from it
    par__cuda_link *next;
    int peer, sends, state;
    int connected;     // a message has been launched: from now on NCCL launches without the peer
    par_result failed; // what every message gets
    ncclComm_t nccl;   // of two ranks: the sender is rank 0
    cudaStream_t stream;
    ncclUniqueId id;
    par_request request;          // of the id, which the sender makes
    par__cuda_pending *launching; // the message that NCCL was given
    par__cuda_pending *launched;  // the last one; NULL: its end is recorded
};
#endif
struct par__cuda_comm { // the backend of one comm
    par_device_backend base;
    par_cuda *cuda;
    par_cuda_backend kind;
    par_comm *comm, *announce_comm, *completion_comm;
    cudaStream_t stream; // of its calls, without NCCL's messages; of a comm of one rank: the compute stream
    int n, me, threads;  // threads: ranks share one address space
    int in_progress, windows; // windows: that are open
    int hosts_wait;           // no stream waits for another rank's event
    int stopped;              // no call begins or goes on any more
    int dropped;              // a call was, see par__cuda_drop
    int *graphs;              // by nccl: CUDA graphs that are alive and have calls of this comm
    unsigned long long graph; // 1 + the id of the last capture that has
    uint32_t issued;
    cudaEvent_t *ready, *done; // rank r's event e: [r * PAR__CUDA_EVENTS + e]
    par__cuda_pending *first;
    void *scratch; // scratch on the device, in the order of the stream
    size_t scratch_bytes;
    cudaEvent_t *free_events; // events to be used again
    int free_event_count, free_event_capacity;
    par__cuda_host_block *host_blocks;
#if defined(PAR_CUDA_NCCL)
    ncclComm_t nccl;
    int adopted;  // nccl is the caller's: it is never aborted nor destroyed here
    int max_ctas; // of nccl's collectives; 0: its choice
    int copy_engines;
    par__cuda_link *links;
    ncclComm_t part; // what NCCL makes, at any time after a call that was not complete within the deadline
#if PAR__CUDA_WINDOWS
    ncclWindow_t window;
#endif
#endif
};
static par__cuda_comm *par__cuda_comm_of(par_device_backend *c) {
    return (par__cuda_comm *)c;
} // its first member

static int par__cuda_supports(par_device_backend *backend, const void *memory) {
    struct cudaPointerAttributes a;
    (void)backend;
    if (cudaPointerGetAttributes(&a, memory)) return cudaGetLastError(), 0;
    return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
}
static par_cuda *par__cuda_next_context(const par_cuda *cuda, const par_cuda *last) {
    for (par_device_backend *b = cuda->desc.comm ? par__first_backend(cuda->desc.comm) : NULL; b;
         b = b->next) {
        const par__cuda_comm *l = par__cuda_comm_of(b);
        if (b->supports != par__cuda_supports || l->comm != l->cuda->desc.comm) continue;
        if (!last) return l->cuda;
        if (l->cuda == last) last = NULL;
    }
    return NULL;
}
// The host waits for the streams of all comms, before something is closed or freed.
static par_result par__cuda_wait_for_comms(par_cuda *cuda, const char *what) {
    if (!cuda->desc.comm) return PAR_OK;
    for (par_device_backend *x = par__first_backend(cuda->desc.comm); x; x = x->next) {
        const par__cuda_comm *l = par__cuda_comm_of(x);
        if (x->supports == par__cuda_supports && l->cuda == cuda && l->stream)
            PAR__CUDA_TRY(par__cuda_drain(cuda, l->stream, what));
    }
    return PAR_OK;
}
static par_result par__cuda_ask_revoked(const par_cuda *cuda) {
    for (par_device_backend *x = cuda->elastic ? par__first_backend(cuda->desc.comm) : NULL; x; x = x->next) {
        const par__cuda_comm *l = par__cuda_comm_of(x);
        if (x->supports == par__cuda_supports && l->cuda == cuda && !l->stopped)
            PAR__CUDA_TRY(par__ask_revoked(l->comm));
    }
    return PAR_OK;
}
cudaStream_t par_cuda_comm_stream(const par_comm *comm) {
    par_device_backend *x = par_backend_of(comm);
    return x && x->supports == par__cuda_supports ? par__cuda_comm_of(x)->stream : NULL;
}
// Makes a stream for communication. Its kernels go first: others wait for them.
static par_result par__cuda_open_stream(par_cuda *cuda, const char *what, cudaStream_t *stream) {
    int least_priority = 0, greatest_priority = 0;
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, what, PAR__CUDA_CAPTURED_MEMORY));
    PAR__CUDA_CALL(cudaDeviceGetStreamPriorityRange(&least_priority, &greatest_priority));
    PAR__CUDA_CALL(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest_priority));
    return PAR_OK;
}
static par_result par__cuda_acquire_event(par__cuda_comm *l, cudaEvent_t *event) {
    par_cuda *cuda = l->cuda;
    if (l->free_event_count) return *event = l->free_events[--l->free_event_count], PAR_OK;
    PAR__CUDA_CALL(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    return PAR_OK;
}
static void par__cuda_release_event(par__cuda_comm *l, cudaEvent_t event) {
    if (!event) return;
    if (l->free_event_count == l->free_event_capacity) {
        const int capacity = 2 * l->free_event_capacity + 16;
        cudaEvent_t *p = (cudaEvent_t *)PAR_REALLOC(l->free_events, (size_t)capacity * sizeof *p);
        if (!p) {
            cudaEventDestroy(event);
            return;
        }
        l->free_events = p;
        l->free_event_capacity = capacity;
    }
    l->free_events[l->free_event_count++] = event;
}
static int par__cuda_is_point_to_point(const par_call *k) {
    return par_kind_traits_of(k->kind)->takes == PAR_TAKES_PEER;
}
static int par__cuda_is_reduce_scatter(const par_call *k) { // of sums
    return (par_kind_traits_of(k->kind)->takes & PAR_TAKES_OP) &&
           par_kind_traits_of(k->kind)->send == PAR_SIDE_ALL;
}
static int par__cuda_is_reduction(const par_call *k) {
    return (par_kind_traits_of(k->kind)->takes & PAR_TAKES_OP) != 0;
}

// ---- common to both backends

static par_result par__cuda_check_kind(par__cuda_comm *l, const par_call *k) {
    const par_kind_traits *t = par_kind_traits_of(k->kind);
    return t->runs & PAR_RUNS_DEVICE
               ? PAR_OK
               : par__cuda_fail(l->cuda, PAR_ERR_UNSUPPORTED, t->name,
                                "only the staging backend runs it (PAR_CUDA_BACKEND=staging)");
}

static par_result par__cuda_pending_open(par__cuda_comm *l, const par_call *k, void **state,
                                         par__cuda_pending **out) {
    const size_t n = l->kind != PAR_CUDA_PEER ? 0 : par__cuda_is_point_to_point(k) ? 1 : (size_t)l->n;
    const size_t blocks = par_kind_traits_of(k->kind)->counts == PAR_COUNTS_OWN ? 2 * n * n : 0;
    const size_t bytes = sizeof(par__cuda_pending) +
                         n * (sizeof(par__cuda_arrival) + sizeof(par__cuda_completion)) +
                         blocks * sizeof(size_t);
    if (l->dropped)
        return par__cuda_fail(l->cuda, PAR_ERR_ABORTED, par_kind_name(k->kind),
                              "a call on this comm was given up in a capture: close the comm");
    if (l->stopped)
        return par__cuda_fail(l->cuda, PAR_ERR_UNSUPPORTED, par_kind_name(k->kind),
                              "the device went on with another comm (par_cuda_reopen): close this one");
    if (!l->stream && l->n == 1) l->stream = l->cuda->stream;
    if (!l->stream) PAR__CUDA_TRY(par__cuda_open_stream(l->cuda, par_kind_name(k->kind), &l->stream));
    par__cuda_pending *p = (par__cuda_pending *)PAR_MALLOC(bytes), **link = &l->first;
    if (!p) return par__cuda_fail(l->cuda, PAR_ERR_MEMORY, par_kind_name(k->kind), "out of memory");
    memset(p, 0, bytes);
    p->all = (par__cuda_arrival *)(void *)(p + 1);
    p->completions = (par__cuda_completion *)(void *)(p->all + n);
    p->blocks = (size_t *)(void *)(p->completions + n);
    p->call = k;
    p->captured = par__cuda_is_capturing(l->cuda);
    *state = p;
    p->slot = l->issued++ % PAR__CUDA_EVENTS;
    while (*link) link = &(*link)->next;
#if defined(PAR_CUDA_NVTX)
    p->range = nvtxRangeStartA(par_kind_name(k->kind));
#endif
    return *link = p, *out = p, PAR_OK;
}
static void par__cuda_pending_close(par__cuda_comm *l, par__cuda_pending *p) {
    par__cuda_pending **link = &l->first;
    while (*link && *link != p) link = &(*link)->next;
    if (*link) *link = p->next;
#if defined(PAR_CUDA_NVTX)
    nvtxRangeEnd(p->range);
#endif
    par__cuda_release_event(l, p->complete);
    PAR_FREE(p);
}
static par_result par__cuda_record_complete(par__cuda_comm *l,
                                            par__cuda_pending *p) { // what the comm stream has so far
    par_cuda *cuda = l->cuda;
    if (!p->complete) PAR__CUDA_TRY(par__cuda_acquire_event(l, &p->complete));
    PAR__CUDA_CALL(cudaEventRecord(p->complete, l->stream));
    return PAR_OK;
}
// The comm's stream waits for what is on the compute stream so far.
static par_result par__cuda_wait_for_compute(par__cuda_comm *l, par__cuda_pending *p) {
    par_cuda *cuda = l->cuda;
    PAR__CUDA_TRY(par__cuda_acquire_event(l, &p->complete));
    PAR__CUDA_TRY(par__cuda_record_event(cuda, p->complete, cuda->stream));
    return par__cuda_stream_wait(cuda, l->stream, p->complete);
}
static void par__cuda_finish(par__cuda_pending *p, par_result result) {
    if (result && !p->result) p->result = result;
    p->state = PAR__CUDA_DONE;
}
// Waits for one request of a call. Meanwhile par_wait advances all other calls.
static void par__cuda_wait_request(par__cuda_pending *p, par_request *request) {
    p->waiting = 1;
    const par_result r = par_wait(request);
    p->waiting = 0;
    if (r) par__cuda_finish(p, r);
}
// All ranks advance calls in the order in which they began. Is this call next, among calls of its kind? What
// completes is complete on all ranks in this order.
static int par__cuda_is_next(const par__cuda_comm *l, const par__cuda_pending *p) {
    const int message = par__cuda_is_point_to_point(p->call);
    for (const par__cuda_pending *q = l->first; q != p; q = q->next)
        if (p->state < PAR__CUDA_COMPLETING && q->state <= p->state &&
            par__cuda_is_point_to_point(q->call) == message &&
            (!message || (q->call->kind == p->call->kind && q->call->root == p->call->root)))
            return 0;
    return 1;
}
static void par__cuda_progress(par_device_backend *backend);
static par_result par__cuda_peer_wait_done(par__cuda_comm *l, const par__cuda_pending *p);
static void par__cuda_peer_wait_event(par__cuda_comm *l, par__cuda_pending *p);
static int par__cuda_ended(par_device_backend *backend, void *state) {
    (void)backend;
    return !state || ((par__cuda_pending *)state)->state == PAR__CUDA_DONE;
}
#define PAR__CUDA_CAPTURED_WAIT "it began before a stream was captured: wait for it before the capture"
// Ends a call whose result the compute stream cannot wait for. With the peer and the staging backend other
// hosts still wait for this one, and write for it: it stays in the list, and the comm takes no more calls.
static par_result par__cuda_drop(par__cuda_comm *l, par__cuda_pending *p, const char *why) {
    const par_result r = par__cuda_fail(l->cuda, PAR_ERR_UNSUPPORTED, par_kind_name(p->call->kind), why);
    p->state = PAR__CUDA_DONE;
    l->dropped = l->n > 1 && l->kind != PAR_CUDA_NCCL_BACKEND;
    if (!l->dropped) par__cuda_pending_close(l, p);
    return r;
}
static par_result par__cuda_end(par_device_backend *backend, void *state) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    par_cuda *cuda = l->cuda;
    par__cuda_pending *p = (par__cuda_pending *)state;
    if (par__cuda_is_capturing(cuda) != p->captured)
        return par__cuda_drop(
            l, p,
            p->captured ? "it began in a capture that has ended: wait for it before cudaStreamEndCapture"
                        : PAR__CUDA_CAPTURED_WAIT);
    while (p->state != PAR__CUDA_DONE) {
        if (l->n > 1 && par__cuda_rank_captures(cuda)) return par__cuda_drop(l, p, PAR__CUDA_CAPTURED_WAIT);
        par__cuda_progress(backend);
        if (p->state == PAR__CUDA_PREPARING || p->state == PAR__CUDA_RUNNING)
            par__cuda_peer_wait_event(l, p);
        else if (p->state != PAR__CUDA_DONE)
            par__cuda_wait_request(p, p->request.operation ? &p->request : &p->acknowledgement);
    }
    par_result result = p->result;
    if (!result && p->complete) result = par__cuda_stream_wait(cuda, cuda->stream, p->complete);
    if (!result && l->kind == PAR_CUDA_PEER && !l->hosts_wait) result = par__cuda_peer_wait_done(l, p);
    par__cuda_pending_close(l, p);
    return result;
}

// An error if the ranks did not make the same call. The text names two call sites.
static par_result par__cuda_compare_arrivals(par__cuda_comm *l, const par__cuda_arrival *all) {
    char one[160], two[160];
    for (int r = 0; r < l->n; r++) {
        const par__cuda_arrival *a = &all[0], *b = &all[r];
        if (b->failed)
            return par_fail(l->comm, PAR_ERR_SYSTEM, "rank %d could not begin par_%s at %s", r,
                            par_kind_name((par_kind)b->call.kind), b->site);
        if (par__is_same_call(&a->call, &b->call)) continue;
        return par_fail(
            l->comm, PAR_ERR_MISMATCH,
            "rank %d called %s at %s, but rank %d called %s at %s on device memory: all ranks must "
            "make the same calls in the same order",
            r, par__describe_call(&b->call, one, sizeof one), b->site, 0,
            par__describe_call(&a->call, two, sizeof two), a->site);
    }
    return PAR_OK;
}
static void par__cuda_fill_arrival(par__cuda_comm *l, const par_call *k, par__cuda_arrival *a) {
    memset(&a->call, 0, sizeof a->call);
    par__record_call(l->comm, k, &a->call);
    a->free_count = l->cuda->free_count;
    a->array[0] = (uint64_t)(uintptr_t)k->send;
    a->array[1] = (uint64_t)(uintptr_t)k->recv;
    snprintf(a->site, sizeof a->site, "%s", k->site);
}

// >>cuda_peer -----------------------------------------------------------------------------------------------
//
// Rank r reduces slice r of all arrays in one kernel and writes the result to all ranks. Together the ranks
// read and write n S bytes each, which is the minimum, and no rank waits within the operation. (A one-shot
// all_reduce has as few steps but reads n^2 S bytes; a two-shot one moves as few bytes but synchronizes
// between its two kernels.)
//     all_reduce      from: slice r of every send       to: slice r of every recv
//     reduce          from: slice r of every send       to: slice r of the root's recv
//     reduce_scatter  from: block r of every send       to: my recv
// All other calls are copies, which the receiver makes; in scatterv the root makes them, as it knows the
// blocks.

static par_result par__cuda_ipc_close(par_cuda *cuda, par__cuda_ipc_mapping *m) {
    PAR__CUDA_TRY(par__cuda_wait_for_comms(cuda, "cudaIpcCloseMemHandle"));
    PAR__CUDA_CALL(cudaIpcCloseMemHandle(m->base));
    return m->base = NULL, PAR_OK;
}
static par_result par__cuda_ipc_close_all(par_cuda *cuda) {
    for (int i = 0; i < cuda->mapping_count; i++)
        if (cuda->mappings[i].base) PAR__CUDA_TRY(par__cuda_ipc_close(cuda, &cuda->mappings[i]));
    return PAR_OK;
}
// Unmaps what owners have freed since it was mapped, and tells them.
static void par__cuda_ipc_unmap_freed(par_cuda *cuda) {
    par_comm *c = cuda->desc.comm;
    for (int r = 0; cuda->map_state && r < par_size(c); r++) {
        const par__cuda_map_state *theirs = (const par__cuda_map_state *)par_peer(c, cuda->map_state, r);
        const uint64_t freed = __atomic_load_n(&theirs->free_count, __ATOMIC_ACQUIRE);
        par_result result = PAR_OK;
        if (r == par_rank(c) || freed == cuda->map_state->unmapped[r]) continue;
        for (int i = 0; i < cuda->mapping_count; i++) {
            par__cuda_ipc_mapping *m = &cuda->mappings[i];
            if (m->base && m->owner == par_world_rank(c, r) && m->free_count < freed && !result)
                result = par__cuda_ipc_close(cuda, m);
        }
        if (!result) __atomic_store_n(&cuda->map_state->unmapped[r], freed, __ATOMIC_RELEASE);
    }
}
// A place for a mapping. Those that the call in progress uses are pinned: the others go, the oldest first.
static par_result par__cuda_ipc_place(par_cuda *cuda, par__cuda_ipc_mapping **out) {
    par__cuda_ipc_mapping *oldest = NULL;
    for (int i = 0; i < cuda->mapping_count; i++) {
        par__cuda_ipc_mapping *m = &cuda->mappings[i];
        if (!m->base) return *out = m, PAR_OK;
        if (m->last_used <= cuda->call_start && (!oldest || m->last_used < oldest->last_used)) oldest = m;
    }
    if (oldest && cuda->mapping_count >= cuda->kept_mappings)
        return *out = oldest, par__cuda_ipc_close(cuda, oldest);
    const size_t bytes = (size_t)(cuda->mapping_count + 1) * sizeof *oldest;
    par__cuda_ipc_mapping *more = (par__cuda_ipc_mapping *)PAR_REALLOC(cuda->mappings, bytes);
    if (!more) return par__cuda_fail(cuda, PAR_ERR_MEMORY, "cudaIpcOpenMemHandle", "out of memory");
    cuda->mappings = more;
    *out = &more[cuda->mapping_count++];
    memset(*out, 0, sizeof **out);
    return PAR_OK;
}
// The address in this process of the array that rank `rank` announced.
static par_result par__cuda_ipc_open(par__cuda_comm *l, const par__cuda_arrival *a, int rank, int which,
                                     char **out) {
    par_cuda *cuda = l->cuda;
    *out = (char *)(uintptr_t)a->array[which];
    if (!a->array[which] || l->threads || rank == l->me) return PAR_OK;
    const int owner = par_world_rank(l->comm, rank);
    par__cuda_ipc_mapping *m = NULL;
    for (int i = 0; i < cuda->mapping_count; i++) {
        m = &cuda->mappings[i];
        if (m->base && m->owner == owner && m->free_count != a->free_count)
            PAR__CUDA_TRY(par__cuda_ipc_close(cuda, m));
        if (m->base && m->owner == owner && !memcmp(&m->handle, &a->handle[which], sizeof m->handle)) {
            m->last_used = ++cuda->mapping_clock;
            return *out = (char *)m->base + a->offset[which], PAR_OK;
        }
    }
    PAR__CUDA_TRY(par__cuda_ipc_place(cuda, &m));
    PAR__CUDA_CALL(cudaIpcOpenMemHandle(&m->base, a->handle[which], cudaIpcMemLazyEnablePeerAccess));
    m->handle = a->handle[which];
    m->owner = owner;
    m->free_count = a->free_count;
    m->last_used = ++cuda->mapping_clock;
    return *out = (char *)m->base + a->offset[which], PAR_OK;
}
// Remembers that other processes can map an allocation.
static par_result par__cuda_ipc_remember(par_cuda *cuda, void *memory) {
    if (par__cuda_find_export(cuda, memory)) return PAR_OK;
    par__cuda_export *x = (par__cuda_export *)PAR_MALLOC(sizeof *x);
    if (!x) return par__cuda_fail(cuda, PAR_ERR_MEMORY, "cudaIpcGetMemHandle", "out of memory");
    x->memory = memory;
    x->free_count = 0;
    x->next = cuda->exports;
    cuda->exports = x;
    return PAR_OK;
}
// Puts into an arrival what another process needs to map an array: the IPC handle of its allocation, and the
// array's offset there.
static par_result par__cuda_ipc_export(par__cuda_comm *l, par__cuda_arrival *a, int which) {
    par_cuda *cuda = l->cuda;
    typedef int (*range_fn)(unsigned long long *base, size_t *bytes, unsigned long long pointer);
    static const char *const call = "cuMemGetAddressRange"; // the base name, without _v2
    void *memory = (void *)(uintptr_t)a->array[which], *fn = NULL;
    unsigned long long base = 0;
    size_t bytes = 0;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    if (!memory || l->threads) return PAR_OK;
    if (!cuda->map_state)
        return par_fail(
            l->comm, PAR_ERR_UNSUPPORTED,
            "device memory between processes: the comm of par_cuda_open is closed: close it after "
            "those split from it");
#if CUDART_VERSION >= 13000
    PAR__CUDA_CALL(cudaGetDriverEntryPointByVersion(call, &fn, 12000, cudaEnableDefault, &found));
#else
    PAR__CUDA_CALL(cudaGetDriverEntryPoint(call, &fn, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess || !fn || ((range_fn)fn)(&base, &bytes, a->array[which]))
        return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, call,
                              "the driver does not tell the base address of an allocation");
    a->offset[which] = a->array[which] - base;
    const cudaError_t e = cudaIpcGetMemHandle(&a->handle[which], (void *)(uintptr_t)base);
    if (!e) return par__cuda_ipc_remember(cuda, (void *)(uintptr_t)base);
    cudaGetLastError();
    return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "this memory cannot be shared with other processes",
                          "allocate it by par_cuda_alloc or cudaMalloc");
}

struct par__cuda_peer_arrays { // of a call: all ranks' arrays
    char *send[PAR__CUDA_MAX_PEERS], *recv[PAR__CUDA_MAX_PEERS];
    size_t bytes; // of an element
};
static size_t par__cuda_block_count(const par_call *k, const size_t *counts, int r) {
    return counts ? counts[r] : k->count;
}
static size_t par__cuda_block_offset(const par_call *k, const size_t *counts, const size_t *displs, int r) {
    size_t at = 0;
    if (displs) return displs[r];
    if (!counts) return (size_t)r * k->count;
    for (int i = 0; i < r; i++) at += counts[i];
    return at;
}
static par_result par__cuda_copy(par__cuda_comm *l, char *to, const char *from, size_t bytes) {
    par_cuda *cuda = l->cuda;
    if (bytes && to != from)
        PAR__CUDA_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, l->stream));
    return PAR_OK;
}
// Slice r of n of an array, in multiples of 16 bytes.
static void par__cuda_slice(size_t count, size_t bytes, int n, int r, size_t *first, size_t *length) {
    const size_t grain = 16 / bytes, grains = (count + grain - 1) / grain, each = grains / (size_t)n,
                 extra = grains % (size_t)n;
    const size_t begin = (each * (size_t)r + PAR__MIN((size_t)r, extra)) * grain;
    const size_t end = begin + (each + ((size_t)r < extra)) * grain;
    *first = PAR__MIN(begin, count);
    *length = PAR__MIN(end, count) - *first;
}
// The range of elements that rank r reduces.
static void par__cuda_reduced_range(const par__cuda_comm *l, const par_call *k, int r, size_t *first,
                                    size_t *count) {
    if (par__cuda_is_reduce_scatter(k)) {
        *first = par__cuda_block_offset(k, k->recv_counts, NULL, r);
        *count = par__cuda_block_count(k, k->recv_counts, r);
    } else
        par__cuda_slice(k->count, par_dtype_bytes(k->dtype), l->n, r, first, count);
}
static par_result par__cuda_peer_reduce(par__cuda_comm *l, const par_call *k,
                                        const par__cuda_peer_arrays *v) {
    const par_kind_traits *t = par_kind_traits_of(k->kind);
    const int all = t->send == PAR_SIDE_BLOCK && t->recv == PAR_SIDE_BLOCK;
    par__cuda_reduction s;
    size_t first, count;
    par__cuda_reduction_open(&s, k->op, l->n);
    s.sources = l->n;
    par__cuda_reduced_range(l, k, l->me, &first, &count);
    for (int r = 0; r < l->n; r++) {
        s.from[r] = v->send[r] + first * v->bytes;
        if (all) s.to[s.destinations++] = v->recv[r] + first * v->bytes;
    }
    if (par__cuda_is_reduce_scatter(k)) s.to[s.destinations++] = v->recv[l->me];
    if (t->recv & PAR_SIDE_ROOT) s.to[s.destinations++] = v->recv[k->root] + first * v->bytes;
    return par__cuda_reduce(l->cuda, s, count, k->dtype, l->stream);
}
static par_result par__cuda_peer_copy(par__cuda_comm *l, const par__cuda_pending *p,
                                      const par__cuda_peer_arrays *v) {
    const par_call *k = p->call;
    const par_kind_traits *t = par_kind_traits_of(k->kind);
    const int me = l->me, root = me == k->root;
    const int scattered = t->send & PAR_SIDE_ALL;
    const int gathered = t->recv & PAR_SIDE_ALL;
    const int scatterv =
        t->send == PAR_SIDE_ROOT_ALL && t->counts; // only the root knows where the blocks are
    const size_t e = v->bytes;
    for (int i = 0; i < l->n; i++) {
        const int r = (me + i) % l->n; // everybody begins elsewhere
        size_t from = scattered ? (size_t)me * k->count : 0, to = 0, count = k->count;
        if (scatterv && root)
            PAR__CUDA_TRY(par__cuda_copy(
                l, v->recv[r], v->send[me] + par__cuda_block_offset(k, k->send_counts, k->send_displs, r) * e,
                k->send_counts[r] * e));
        if (scatterv || ((t->send & PAR_SIDE_ROOT) && r != k->root) || ((t->recv & PAR_SIDE_ROOT) && !root))
            continue;
        if (t->counts == PAR_COUNTS_OWN) from = p->blocks[2 * (r * l->n + me)];
        if (gathered) to = par__cuda_block_offset(k, k->recv_counts, k->recv_displs, r);
        if (gathered) count = par__cuda_block_count(k, k->recv_counts, r);
        PAR__CUDA_TRY(par__cuda_copy(l, v->recv[me] + to * e, v->send[r] + from * e, count * e));
    }
    return PAR_OK;
}
static par_result par__cuda_peer_launch(par__cuda_comm *l, par__cuda_pending *p) {
    par_cuda *cuda = l->cuda;
    const par_call *k = p->call;
    par__cuda_peer_arrays v;
    v.bytes = par_dtype_bytes(k->dtype);
    cuda->call_start = cuda->mapping_clock;
    for (int r = 0; r < l->n; r++) {
        PAR__CUDA_TRY(par__cuda_ipc_open(l, &p->all[r], r, 0, &v.send[r]));
        PAR__CUDA_TRY(par__cuda_ipc_open(l, &p->all[r], r, 1, &v.recv[r]));
        if (!l->hosts_wait)
            PAR__CUDA_TRY(
                par__cuda_stream_wait(cuda, l->stream, l->ready[r * PAR__CUDA_EVENTS + (int)p->all[r].slot]));
    }
    return par__cuda_is_reduction(k) ? par__cuda_peer_reduce(l, k, &v) : par__cuda_peer_copy(l, p, &v);
}
static cudaEvent_t par__cuda_own_event(const par__cuda_comm *l, cudaEvent_t *events, uint32_t slot) {
    return events[l->me * PAR__CUDA_EVENTS + (int)slot];
}
// The host has seen that an event of its own device has completed. An error is the call's.
static int par__cuda_peer_event(par__cuda_comm *l, par__cuda_pending *p, cudaEvent_t *events) {
    const cudaError_t e = cudaEventQuery(par__cuda_own_event(l, events, p->slot));
    if (e == cudaErrorNotReady) return cudaGetLastError(), 0;
    const par_result r = par__cuda_check(l->cuda, e, "cudaEventQuery");
    if (!p->result) p->result = r;
    return 1;
}
static void par__cuda_peer_wait_event(par__cuda_comm *l, par__cuda_pending *p) {
    cudaEvent_t *events = p->state == PAR__CUDA_PREPARING ? l->ready : l->done;
    const par_result r =
        par__cuda_wait(l->cuda, NULL, par__cuda_own_event(l, events, p->slot), par_kind_name(p->call->kind));
    if (r) par__cuda_finish(p, r);
}
// Tells the other ranks of a call, also of one that has failed here: they wait for it.
static void par__cuda_peer_announce(par__cuda_comm *l, par__cuda_pending *p) {
    const par_call *k = p->call;
    const int own_counts = par_kind_traits_of(k->kind)->counts == PAR_COUNTS_OWN;
    par_comm *hosts = par__at_site(l->announce_comm, k->site);
    par_result announced = PAR_OK;
    p->state = PAR__CUDA_ANNOUNCED;
    p->mine.failed = p->result != PAR_OK;
    p->waiting = 1; // until all requests have begun
    if (k->kind == PAR_KIND_SEND) {
        announced = (par_send_begin)(&p->mine, sizeof p->mine, PAR_U8, k->root, hosts, &p->request);
        if (!announced)
            announced = (par_recv_begin)(&p->completion, sizeof p->completion, PAR_U8, k->root,
                                         par__at_site(l->completion_comm, k->site), &p->acknowledgement);
    } else if (k->kind == PAR_KIND_RECV) {
        announced = (par_recv_begin)(p->all, sizeof p->mine, PAR_U8, k->root, hosts, &p->request);
    } else {
        size_t *mine = p->blocks + (own_counts ? 2 * l->me * l->n : 0);
        for (int i = 0; i < l->n && own_counts; i++) {
            mine[2 * i] = par__cuda_block_offset(k, k->send_counts, k->send_displs, i);
            mine[2 * i + 1] = k->send_counts[i];
        }
        if (own_counts) // begins first, and so is complete when the other one is
            announced = (par_all_gather_begin)(mine, p->blocks, 2 * (size_t)l->n * sizeof(size_t), PAR_U8,
                                               hosts, &p->acknowledgement);
        if (!announced)
            announced = (par_all_gather_begin)(&p->mine, p->all, sizeof p->mine, PAR_U8,
                                               par__at_site(l->announce_comm, k->site), &p->request);
    }
    p->waiting = 0;
    if (announced) par__cuda_finish(p, announced);
}
static par_result par__cuda_peer_begin(par_device_backend *backend, const par_call *k, void **state) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    par_cuda *cuda = l->cuda;
    par__cuda_pending *p;
    PAR__CUDA_TRY(par__cuda_check_kind(l, k));
    if (l->n > 1)
        PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, par_kind_name(k->kind),
                                               "a stream that is captured can communicate by nccl only"));
    PAR__CUDA_TRY(par__cuda_pending_open(l, k, state, &p));
    par__cuda_fill_arrival(l, k, &p->mine);
    p->mine.slot = p->slot;
    par_result r = par__cuda_record_event(cuda, par__cuda_own_event(l, l->ready, p->slot), cuda->stream);
    for (int i = 0; i < 2 && !r; i++) r = par__cuda_ipc_export(l, &p->mine, i);
    p->result = r;
    p->state = PAR__CUDA_PREPARING;
    if (!l->hosts_wait) par__cuda_peer_announce(l, p);
    return PAR_OK; // an error is announced to all ranks, and par_wait returns it
}
// Checks the lengths of blocks that only their sender and receiver know.
static par_result par__cuda_check_blocks(par__cuda_comm *l, const par__cuda_pending *p) {
    const par_call *k = p->call;
    const par_counts counts = par_kind_traits_of(k->kind)->counts;
    const int root = l->me == k->root;
    for (int r = 0; r < l->n; r++) {
        size_t here = 0, there = 0;
        if (counts == PAR_COUNTS_ROOT && root) {
            here = k->recv_counts ? k->recv_counts[r] : k->send_counts[r];
            there = p->all[r].call.count;
        }
        if (counts == PAR_COUNTS_OWN) {
            here = k->recv_counts[r];
            there = p->blocks[2 * (r * l->n + l->me) + 1];
        }
        if (here != there)
            return par_fail(l->comm, PAR_ERR_MISMATCH,
                            "par_%s at %s: rank %d has %zu elements for the block of rank %d, which has %zu",
                            par_kind_name(k->kind), k->site, l->me, here, r, there);
    }
    return PAR_OK;
}
// This rank's part of a call is done, or failed: tells the others, of a message its sender.
static void par__cuda_peer_complete(par__cuda_comm *l, par__cuda_pending *p) {
    const par_call *k = p->call;
    par_comm *hosts = par__at_site(l->completion_comm, k->site);
    p->completion.result = p->result;
    p->completion.slot = p->slot;
    p->state = PAR__CUDA_COMPLETING;
    const par_result r =
        k->kind == PAR_KIND_RECV
            ? (par_send_begin)(&p->completion, sizeof p->completion, PAR_U8, k->root, hosts, &p->request)
            : (par_all_gather_begin)(&p->completion, p->completions, sizeof p->completion, PAR_U8, hosts,
                                     &p->request);
    if (r) par__cuda_finish(p, r);
}
// This rank's part of a call is enqueued, or failed.
static void par__cuda_peer_launched(par__cuda_comm *l, par__cuda_pending *p, par_result r) {
    p->result = r;
    p->state = PAR__CUDA_RUNNING;
    if (r || !l->hosts_wait) par__cuda_peer_complete(l, p);
}
// Starts a collective that all ranks have announced.
static void par__cuda_peer_run(par__cuda_comm *l, par__cuda_pending *p) {
    par_cuda *cuda = l->cuda;
    const par_result different = p->result ? p->result : par__cuda_compare_arrivals(l, p->all);
    if (different) {
        par__cuda_finish(p, different); // and on all ranks alike
        return;
    }
    par_result r = par_wait(&p->acknowledgement);
    if (!r) r = par__cuda_check_blocks(l, p);
    if (!r) r = par__cuda_peer_launch(l, p);
    if (!r) r = par__cuda_record_event(cuda, par__cuda_own_event(l, l->done, p->slot), l->stream);
    par__cuda_peer_launched(l, p, r);
}
static void par__cuda_peer_finish(par__cuda_comm *l, par__cuda_pending *p) {
    par_result r = p->result;
    for (int i = 0; i < l->n && !r; i++)
        if (p->completions[i].result)
            r = par_fail(l->comm, (par_result)p->completions[i].result,
                         "rank %d could not do its part of par_%s at %s", i, par_kind_name(p->call->kind),
                         p->call->site);
    par__cuda_finish(p, r);
}
// The compute stream waits for the parts of all ranks; of a sent message, for its receiver's copy. The comm's
// stream does not, as the next call may have begun there.
static par_result par__cuda_peer_wait_done(par__cuda_comm *l, const par__cuda_pending *p) {
    par_cuda *cuda = l->cuda;
    const int message = par__cuda_is_point_to_point(p->call);
    if (message && (p->call->kind == PAR_KIND_RECV || p->completion.result)) return PAR_OK;
    for (int i = message ? p->call->root : 0; i < (message ? p->call->root + 1 : l->n); i++) {
        const uint32_t slot = message ? p->completion.slot : p->completions[i].slot;
        PAR__CUDA_TRY(par__cuda_stream_wait(cuda, cuda->stream, l->done[i * PAR__CUDA_EVENTS + (int)slot]));
    }
    return PAR_OK;
}
// The receiver copies the message and tells the sender.
static void par__cuda_peer_receive(par__cuda_comm *l, par__cuda_pending *p) {
    par_cuda *cuda = l->cuda;
    const par_call *k = p->call;
    const par__cuda_arrival *a = &p->all[0];
    char *from = NULL;
    par_result r = p->result;
    if (!r && (a->failed || a->call.count != k->count || a->call.dtype != k->dtype)) {
        char theirs[160];
        par__describe_call(&a->call, theirs, sizeof theirs);
        r = par_fail(l->comm, PAR_ERR_MISMATCH,
                     "par_recv(count=%zu, %s) from rank %d at %s, which calls %s at %s%s", k->count,
                     par_dtype_name(k->dtype), k->root, k->site, theirs, a->site,
                     a->failed ? ", and failed" : "");
    }
    cuda->call_start = cuda->mapping_clock;
    if (!r) r = par__cuda_ipc_open(l, a, k->root, 0, &from);
    if (!r && !l->hosts_wait)
        r = par__cuda_stream_wait(cuda, l->stream, l->ready[k->root * PAR__CUDA_EVENTS + (int)a->slot]);
    if (!r) r = par__cuda_stream_wait(cuda, l->stream, par__cuda_own_event(l, l->ready, p->slot));
    if (!r) r = par__cuda_copy(l, (char *)k->recv, from, k->count * par_dtype_bytes(k->dtype));
    if (!r) r = par__cuda_record_event(cuda, par__cuda_own_event(l, l->done, p->slot), l->stream);
    if (!r) r = par__cuda_record_complete(l, p);
    par__cuda_peer_launched(l, p, r);
}
// Is a request complete? An error finishes the call.
static int par__cuda_request_done(par__cuda_pending *p, par_request *request) {
    int done = 1;
    const par_result r = request->operation ? par_test(request, &done) : PAR_OK;
    if (r) par__cuda_finish(p, r);
    return done && p->state != PAR__CUDA_DONE;
}
static void par__cuda_peer_step(par__cuda_comm *l, par__cuda_pending *p) {
    if (!par__cuda_is_next(l, p) || !par__cuda_request_done(p, &p->request)) return;
    if (p->state == PAR__CUDA_PREPARING) {
        if (par__cuda_peer_event(l, p, l->ready)) par__cuda_peer_announce(l, p);
    } else if (p->state == PAR__CUDA_RUNNING) {
        if (par__cuda_peer_event(l, p, l->done)) par__cuda_peer_complete(l, p);
    } else if (p->call->kind == PAR_KIND_SEND) {
        if (par__cuda_request_done(p, &p->acknowledgement)) par__cuda_finish(p, PAR_OK);
    } else if (p->call->kind == PAR_KIND_RECV) {
        if (p->state == PAR__CUDA_ANNOUNCED)
            par__cuda_peer_receive(l, p);
        else
            par__cuda_finish(p, PAR_OK);
    } else if (p->state == PAR__CUDA_ANNOUNCED) {
        par__cuda_peer_run(l, p);
    } else {
        par__cuda_peer_finish(l, p);
    }
}

// >>cuda_staging --------------------------------------------------------------------------------------------
//
//     device -> pinned memory | the same call of par.h between the hosts | pinned memory -> device

static char *par__cuda_acquire_host_block(par__cuda_comm *l, size_t bytes) {
    void *memory = NULL;
    for (par__cuda_host_block **b = &l->host_blocks; *b; b = &(*b)->next)
        if ((*b)->bytes >= bytes && (*b)->bytes <= 2 * bytes + 4096) {
            par__cuda_host_block *found = *b;
            char *p = found->memory;
            *b = found->next;
            PAR_FREE(found);
            return p;
        }
    return par_cuda_alloc(l->cuda, PAR_CUDA_HOST, bytes, &memory) ? NULL : (char *)memory;
}
static void par__cuda_release_host_block(par__cuda_comm *l, char *memory, size_t bytes) {
    par__cuda_host_block *b = memory ? (par__cuda_host_block *)PAR_MALLOC(sizeof *b) : NULL;
    if (b) {
        b->memory = memory;
        b->bytes = bytes;
        b->next = l->host_blocks;
        l->host_blocks = b;
    } else
        par_cuda_free(l->cuda, PAR_CUDA_HOST, memory);
}
static par_result par__cuda_staging_begin(par_device_backend *backend, const par_call *k, void **state) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    par_cuda *cuda = l->cuda;
    par__cuda_pending *p;
    size_t counts[2];
    const void *from[2] = {k->send, k->recv};
    const size_t e = par_dtype_bytes(k->dtype);
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, par_kind_name(k->kind),
                                           "a stream that is captured can communicate by nccl only"));
    PAR__CUDA_TRY(par__cuda_pending_open(l, k, state, &p));
    par_call_spans(l->comm, k, &counts[0], &counts[1]);
    par_result r = par__cuda_wait_for_compute(l, p);
    for (int i = 0; i < 2 && !r; i++) {
        p->host_bytes[i] = counts[i] * e;
        p->host[i] = par__cuda_acquire_host_block(l, PAR__MAX(p->host_bytes[i], (size_t)16));
        if (!p->host[i]) r = PAR_ERR_MEMORY;
        if (!r && p->host_bytes[i] && (i == 0 || k->recv_displs)) // holes in recv keep what they have
            r = par__cuda_check(
                cuda,
                cudaMemcpyAsync(p->host[i], from[i], p->host_bytes[i], cudaMemcpyDeviceToHost, l->stream),
                "cudaMemcpyAsync");
    }
    if (!r) r = par__cuda_record_complete(l, p);
    p->result = r; // the other ranks must still be told of the call
    return PAR_OK;
}
static par_result par__cuda_staging_call(par__cuda_comm *l, par__cuda_pending *p) {
    par_call k = *p->call;
    k.send = p->host[0];
    k.recv = p->host[1];
    return (par_begin)(l->announce_comm, &k, &p->request);
}
static void par__cuda_staging_step(par__cuda_comm *l, par__cuda_pending *p) {
    par_cuda *cuda = l->cuda;
    par_result r;
    if (p->state == PAR__CUDA_ANNOUNCED) {
        if (!par__cuda_is_next(l, p)) return;
        if (cudaEventQuery(p->complete) == cudaErrorNotReady) {
            cudaGetLastError();
            return;
        }
        p->state = PAR__CUDA_RUNNING;
        r = p->result ? p->result : par__cuda_staging_call(l, p);
        if (r) par__cuda_finish(p, r);
        if (r) return;
    }
    if (p->state == PAR__CUDA_RUNNING) {
        if (!par__cuda_request_done(p, &p->request)) return;
        p->state = PAR__CUDA_COMPLETING;
        r = !p->host_bytes[1] ? PAR_OK
                              : par__cuda_check(cuda,
                                                cudaMemcpyAsync(p->call->recv, p->host[1], p->host_bytes[1],
                                                                cudaMemcpyHostToDevice, l->stream),
                                                "cudaMemcpyAsync");
        if (!r) r = par__cuda_record_complete(l, p);
        par__cuda_finish(p, r);
    }
}
static par_result par__cuda_staging_end(par_device_backend *backend, void *state) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    par_cuda *cuda = l->cuda;
    par__cuda_pending *p = (par__cuda_pending *)state;
    const par__cuda_pending copy = *p;
    while (p->state != PAR__CUDA_DONE) {
        const par_result r = p->state == PAR__CUDA_ANNOUNCED && p->complete
                                 ? par__cuda_wait(cuda, NULL, p->complete, "staging")
                                 : PAR_OK;
        if (r) {
            par__cuda_finish(p, r);
            break;
        }
        par__cuda_progress(backend);
        if (p->state == PAR__CUDA_RUNNING) par__cuda_wait_request(p, &p->request);
    }
    // Pinned memory goes back when the stream has read it.
    if (!p->result) p->result = par__cuda_wait(cuda, NULL, p->complete, "staging");
    const par_result r = par__cuda_end(backend, state);
    for (int i = 0; i < 2; i++)
        par__cuda_release_host_block(l, copy.host[i], PAR__MAX(copy.host_bytes[i], (size_t)16));
    return r;
}
static void par__cuda_progress(par_device_backend *backend) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    if (l->in_progress || l->stopped) return; // what is asked below asks for progress itself
    l->in_progress = 1;
    const int captures = l->n > 1 && par__cuda_rank_captures(l->cuda); // nothing may be asked of the device
    if (!captures) par__cuda_ipc_unmap_freed(l->cuda);
    for (par__cuda_pending *p = captures ? NULL : l->first; p; p = p->next)
        for (int before = PAR__CUDA_DONE; p->state != PAR__CUDA_DONE && p->state != before && !p->waiting;) {
            before = p->state;
            if (l->kind == PAR_CUDA_PEER) par__cuda_peer_step(l, p);
            if (l->kind == PAR_CUDA_STAGING) par__cuda_staging_step(l, p);
        }
    l->in_progress = 0;
}

// >>cuda_nccl -----------------------------------------------------------------------------------------------
//
// A collective is enqueued on its comm's stream when it begins. With desc.exact, and for PAR_TREE_SUM, a
// reduction is made in rank order:
//     all slices  -- send, recv -->  n contributions to mine  -- one kernel -->  my slice  -- send, recv -->
// An all_reduce then sends (n-1)/n S bytes twice, a reduce_scatter once.
//
// Comms. Kernels of two communicators run beside each other on a device. Each waits there for its other
// ranks, and occupies SMs meanwhile. All ranks begin calls in one order, so a kernel waits only for work
// that some rank enqueued before it: there is no cycle, even where streams share a queue of the device. A
// kernel must also find SMs beside those that wait: NCCL takes at most 32 for each communicator, see
// par_cuda_limit_ctas. Communicators share no resources (splitShare): those that do run in series, and calls
// on any two comms may be in flight at a time. One pair never is, a communicator and the one that takes its
// place in par_cuda_limit_ctas, but there sharing would only keep the buffers of the first one.
// Communicators are nonblocking, although NCCL then makes a thread for each call: a blocking one holds the
// host in the first call of a kind until all ranks have come, past every deadline, while they may wait for
// this rank's messages.
//
// NCCL's own all_to_all lets copy engines make it. Its gather and scatter send the messages that are sent
// here; with copy engines they ask each rank alone whether both arrays lie in windows, also an array that
// the call does not use on this rank: ranks that answer differently wait for ever. So these two are
// messages.
//
// Messages. A message is a kernel, too, which waits on the device for its peer, and kernels of a
// communicator run in series. So messages to a rank, and from it, have a communicator and a stream of their
// own (a link), and each message is launched when it begins:
//     rank 0  compute    F0 . F1 . . . . . . B0        rank 1  compute     . F0 . B0 . F1 . B1
//             link to 1    \_S0 \_S1                           link from 0   R0 R1
//             link from 1                R0                     link to 0             \_S0
// A message waits for the work that was on both ranks' compute streams when it began, for the message before
// it on its link, and for nothing else. All of these began before it, where the calls of all ranks are
// projections of one total order (as a pipeline's lists are): waiting has no cycle, so there is no deadlock,
// and no message waits for one of another rank or direction. In one group, or on one communicator, S1 above
// would wait for R0 of rank 0, which waits for B0 of rank 1, and so for F1, which waits for S1. Kernels that
// wait occupy SMs: a link may use PAR__CUDA_LINK_CTAS, so that all links together leave most SMs free. A
// link is made when its first message begins: the sender makes an id and sends it between hosts; both ranks
// join; NCCL connects them within the first message, which it launches when both have begun it. None of this
// blocks the host in begin: each wait of the rank advances it. Streams share hardware queues: a queue goes on
// when what it comes to has started, and a kernel of NCCL starts and then waits, but the record of its end
// starts when it has ended. A message that is launched late would be stuck behind that, and the call may need
// it, on another rank. So while a message that has begun is not launched, nothing is enqueued behind a call,
// neither its record nor a wait for it: par_wait lets the host wait for its end first. Then all that a queue
// stops at is for calls that come before in the total order, and the first of these has nothing before it.

#if defined(PAR_CUDA_NCCL)
static par_result par__cuda_nccl_check_on(const par__cuda_comm *l, ncclComm_t nccl, ncclResult_t e,
                                          const char *what) {
    if (e == ncclSuccess || e == ncclInProgress) return PAR_OK;
    char text[500];
    const char *more = nccl ? ncclGetLastError(nccl) : NULL;
    snprintf(text, sizeof text, "%s%s%s (NCCL_DEBUG=INFO says more)", ncclGetErrorString(e),
             more && *more ? ": " : "", more ? more : "");
    return par__cuda_fail(l->cuda, PAR_ERR_SYSTEM, what, text);
}
static par_result par__cuda_nccl_check(const par__cuda_comm *l, ncclResult_t e, const char *what) {
    return par__cuda_nccl_check_on(l, l->nccl, e, what);
}
// NCCL ends a communicator when no graph has its calls any more, and waits for that without a deadline
// (src/init.cc, commDestroySync). So the comm counts its graphs as NCCL does: a graph keeps an object, which
// the driver ends, by a thread of its own, some time after the last of the graph and what was made of it.
static int par__cuda_live_graphs(const par__cuda_comm *l) {
    return l->graphs ? __atomic_load_n(l->graphs, __ATOMIC_ACQUIRE) : 0;
}
static void CUDART_CB par__cuda_graph_ends(void *graphs) {
    __atomic_fetch_sub((int *)graphs, 1, __ATOMIC_RELEASE);
}
static par_result par__cuda_count_graph(par__cuda_comm *l) {
    const par_cuda *cuda = l->cuda;
    cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    cudaUserObject_t object;
    PAR__CUDA_CALL(cudaStreamGetCaptureInfo(cuda->stream, &status, &id, &graph));
    if (status != cudaStreamCaptureStatusActive || l->graph == id + 1) return PAR_OK;
    if (!l->graphs) {
        l->graphs = (int *)PAR_MALLOC(sizeof *l->graphs);
        if (!l->graphs) return par__cuda_fail(cuda, PAR_ERR_MEMORY, "a captured call", "out of memory");
        *l->graphs = 0;
    }
    PAR__CUDA_CALL(
        cudaUserObjectCreate(&object, l->graphs, par__cuda_graph_ends, 1, cudaUserObjectNoDestructorSync));
    __atomic_fetch_add(l->graphs, 1, __ATOMIC_RELAXED);
    const cudaError_t e = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
    if (e) cudaUserObjectRelease(object, 1);
    if (!e) l->graph = id + 1;
    return par__cuda_check(cuda, e, "cudaGraphRetainUserObject");
}
static par_result par__cuda_refuse_graphs(const par__cuda_comm *l, const char *what) {
    const double start = par_seconds(l->comm), limit = PAR__MIN(par_timeout(l->comm), 10.0);
    while (par__cuda_live_graphs(l) && !l->cuda->stuck) {
        if (par_seconds(l->comm) - start > limit)
            return par__cuda_fail(l->cuda, PAR_ERR_UNSUPPORTED, what,
                                  "a CUDA graph has calls of this comm, and NCCL would wait for its end: "
                                  "cudaGraphExecDestroy and cudaGraphDestroy it before");
        par__step_calls(l->comm); // other ranks may wait for this one meanwhile
        sched_yield();
    }
    return PAR_OK;
}
// Would ncclCommAbort return? It waits for graphs, and for the kernels of the communicator (NCCL,
// src/init.cc, commDestroySync). These end where they look at its flag. Those between windows do so since
// 2.29.7 (src/include/nccl_device/impl/lsa_barrier__funcs.h). With copy engines streams wait for words of the
// other ranks (src/ce_coll.cc), and nothing ends that.
static int par__cuda_aborts_in_windows(const par__cuda_comm *l) {
    int version = 0; // of the library, which may be another one than the header's
    return !l->copy_engines && !ncclGetVersion(&version) && version >= NCCL_VERSION(2, 29, 7);
}
static int par__cuda_can_abort(const par__cuda_comm *l) {
    return !par__cuda_live_graphs(l) && (!l->windows || par__cuda_aborts_in_windows(l));
}
// Ends a communicator, or leaves it where nothing may wait for the device any more.
static void par__cuda_nccl_drop(par__cuda_comm *l, ncclComm_t *nccl) {
    if (*nccl && par__cuda_live_graphs(l)) l->cuda->stuck = 1;
    if (*nccl && !l->cuda->stuck) ncclCommAbort(*nccl);
    *nccl = NULL;
}
// The comm communicates no more. Kernels that wait on the device end, except on the caller's ncclComm_t, and
// where they cannot be aborted. In a group all flags are set before one of the aborts waits (NCCL,
// src/init.cc): a communicator's kernels may come after those of another one.
static void par__cuda_nccl_abort(par__cuda_comm *l) {
    ncclGroupStart();
    if (l->nccl && !l->adopted && !par__cuda_can_abort(l)) l->cuda->stuck = 1;
    if (l->adopted) l->nccl = NULL;
    par__cuda_nccl_drop(l, &l->nccl);
    for (par__cuda_link *x = l->links; x; x = x->next) {
        par__cuda_nccl_drop(l, &x->nccl);
        if (!x->failed) x->failed = PAR_ERR_ABORTED;
    }
    ncclGroupEnd();
}
#define PAR__CUDA_NCCL_CALL(call) PAR__CUDA_TRY(par__cuda_nccl_check(l, call, #call))
static ncclDataType_t par__cuda_nccl_type(par_dtype d) {
#define PAR__X(constant, name, type, sums, family, accumulator, max, mpi, nccl, ...) nccl,
    static const ncclDataType_t types[] = {PAR_DTYPES(PAR__X)};
#undef PAR__X
    return types[d];
}
// NCCL could add 8-bit floats from version 2.24 and sm_90 on ("FP8 reduction support begins with sm90 capable
// devices", its src/enqueue.cc), but it would round after each addition. So it moves them as bytes, and the
// kit's kernel adds them in f32 on every device, as for exact sums.
static int par__cuda_nccl_adds(par_dtype d) { return d == PAR_U8 || par__cuda_nccl_type(d) != ncclUint8; }
// Calls on a nonblocking NCCL communicator may return before they are complete: the host polls until the
// deadline.
static par_result par__cuda_nccl_wait_ready(par__cuda_comm *l, const char *what) {
    par__cuda_waiting wait;
    ncclResult_t state;
    for (;;) {
        PAR__CUDA_NCCL_CALL(ncclCommGetAsyncError(l->nccl, &state));
        if (state != ncclInProgress) break;
        par__step_calls(l->comm); // other ranks may wait for messages of this one before they come here
        const par_result r = par__cuda_poll(l->comm, &wait, what, "a rank did not arrive",
                                            l->adopted ? "; abort your ncclComm_t" : "; close the comm");
        if (r) return par__cuda_nccl_abort(l), r;
    }
    return par__cuda_nccl_check(l, state, what);
}
static par_result par__cuda_nccl_op(par__cuda_comm *l, const par_call *k, ncclRedOp_t *op, int *own) {
    static const ncclRedOp_t ops[] = {ncclSum, ncclAvg, ncclProd, ncclMin, ncclMax};
    const unsigned code = (unsigned)(k->op & 255u);
    *own = 0;
    if (code < PAR_SCALED_SUM) return *op = ops[code], PAR_OK;
    const double factor = par_op_factor(k->op);
    uint64_t scalar;
    PAR__CUDA_TRY(par_cast(&scalar, k->dtype, &factor, PAR_F64, 1));
    PAR__CUDA_NCCL_CALL(ncclRedOpCreatePreMulSum(op, &scalar, par__cuda_nccl_type(k->dtype),
                                                 ncclScalarHostImmediate, l->nccl));
    return *own = 1, PAR_OK;
}
// Are there messages of this rank that are not launched? A first message is when both ranks have begun it.
static int par__cuda_is_launch_pending(const par__cuda_comm *l, const par__cuda_pending *but) {
    for (par_device_backend *x = par__first_backend(l->comm); x; x = x->next) {
        const par__cuda_comm *other = par__cuda_comm_of(x);
        if (x->supports != par__cuda_supports || other->kind != PAR_CUDA_NCCL_BACKEND) continue;
        for (const par__cuda_pending *p = other->first; p; p = p->next)
            if (p != but && p->state != PAR__CUDA_DONE && par__cuda_is_point_to_point(p->call) &&
                p->call->root != other->me)
                return 1;
    }
    return 0;
}
// Comes before what would hold up a hardware queue until all that the stream has so far is done: while a
// message is not launched, the host waits for that instead, and goes on with all calls.
static par_result par__cuda_settle(par__cuda_comm *l, cudaStream_t stream) {
    return par__cuda_is_launch_pending(l, NULL) && !par__cuda_is_capturing(l->cuda)
               ? par__cuda_wait(l->cuda, stream, NULL, "a wait for NCCL")
               : PAR_OK;
}
enum { PAR__CUDA_NCCL_MAX_RANKS = 1024 };
struct par__cuda_messages { // who gets what of my array, and where what I get goes, in elements; n of each
    size_t to[PAR__CUDA_NCCL_MAX_RANKS], send[PAR__CUDA_NCCL_MAX_RANKS], from[PAR__CUDA_NCCL_MAX_RANKS],
        recv[PAR__CUDA_NCCL_MAX_RANKS];
};
static par_result par__cuda_nccl_messages(par__cuda_comm *l, const par__cuda_messages *p, const void *send,
                                          void *recv, par_dtype dtype) {
    const size_t e = par_dtype_bytes(dtype);
    const ncclDataType_t type = par__cuda_nccl_type(dtype);
    cudaStream_t stream = l->stream;
    PAR__CUDA_NCCL_CALL(ncclGroupStart());
    ncclResult_t bad = ncclSuccess;
    for (int r = 0; r < l->n && !bad; r++) {
        if (p->send[r])
            bad = ncclSend((const char *)send + p->to[r] * e, p->send[r], type, r, l->nccl, stream);
        if (p->recv[r] && !bad)
            bad = ncclRecv((char *)recv + p->from[r] * e, p->recv[r], type, r, l->nccl, stream);
        if (bad == ncclInProgress) bad = ncclSuccess;
    }
    const ncclResult_t ended = ncclGroupEnd();
    PAR__CUDA_TRY(par__cuda_nccl_check(l, bad ? bad : ended, "ncclSend and ncclRecv"));
    return par__cuda_nccl_wait_ready(l, "ncclGroupEnd");
}
static par_result par__cuda_nccl_exact(par__cuda_comm *l, const par_call *k, par__cuda_messages *p) {
    par_cuda *cuda = l->cuda;
    const size_t e = par_dtype_bytes(k->dtype);
    const int scatter = par__cuda_is_reduce_scatter(k);
    size_t first, count, at, n;
    par__cuda_reduced_range(l, k, l->me, &first, &count);
    if (l->n > PAR__CUDA_MAX_PEERS)
        return par__cuda_fail(
            cuda, PAR_ERR_UNSUPPORTED, par_kind_name(k->kind),
            "sums in rank order (desc.exact, PAR_TREE_SUM, 8-bit floats) need 64 ranks or fewer: "
            "add in bf16 without desc.exact");
    const size_t bytes = PAR__MAX((size_t)1, count) * (size_t)l->n * e;
    if (l->scratch_bytes < bytes) {
        PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, par_kind_name(k->kind), PAR__CUDA_CAPTURED_MEMORY));
        if (cuda->captured && l->scratch && !par__cuda_keep(cuda, l->scratch)) return PAR_ERR_MEMORY;
        if (!cuda->captured && l->scratch) PAR__CUDA_CALL(cudaFreeAsync(l->scratch, l->stream));
        l->scratch = NULL;
        l->scratch_bytes = 0;
        PAR__CUDA_CALL(cudaMallocAsync(&l->scratch, bytes, l->stream));
        l->scratch_bytes = bytes;
    }
    for (int r = 0; r < l->n; r++) {
        par__cuda_reduced_range(l, k, r, &at, &n);
        p->to[r] = at;
        p->send[r] = n;
        p->from[r] = (size_t)r * count;
        p->recv[r] = count;
    }
    PAR__CUDA_TRY(par__cuda_nccl_messages(l, p, k->send, l->scratch, k->dtype));
    PAR__CUDA_TRY(par__cuda_settle(l, l->stream));
    par__cuda_reduction s;
    par__cuda_reduction_open(&s, k->op, l->n);
    s.sources = l->n;
    s.destinations = 1;
    for (int r = 0; r < l->n; r++) s.from[r] = (char *)l->scratch + (size_t)r * count * e;
    const int root = k->kind == PAR_KIND_REDUCE;
    char *mine = scatter                    ? (char *)k->recv
                 : root && l->me != k->root ? (char *)l->scratch
                                            : (char *)k->recv + first * e;
    s.to[0] = mine;
    PAR__CUDA_TRY(par__cuda_reduce(cuda, s, count, k->dtype, l->stream));
    if (scatter) return PAR_OK;
    for (int r = 0; r < l->n; r++) {
        par__cuda_reduced_range(l, k, r, &at, &n);
        const int sends = r != l->me && (!root || r == k->root),
                  gets = r != l->me && (!root || l->me == k->root);
        p->to[r] = 0;
        p->send[r] = sends ? count : 0;
        p->from[r] = at;
        p->recv[r] = gets ? n : 0;
    }
    return par__cuda_nccl_messages(l, p, mine, k->recv, k->dtype);
}
static par_result par__cuda_nccl_reduce(par__cuda_comm *l, const par_call *k) {
    const ncclDataType_t type = par__cuda_nccl_type(k->dtype);
    cudaStream_t stream = l->stream;
    ncclRedOp_t op;
    int own;
    PAR__CUDA_TRY(par__cuda_nccl_op(l, k, &op, &own));
    ncclResult_t e = ncclSuccess;
    if (k->kind == PAR_KIND_ALL_REDUCE) {
        e = ncclAllReduce(k->send, k->recv, k->count, type, op, l->nccl, stream);
    } else if (k->kind == PAR_KIND_REDUCE) {
        e = ncclReduce(k->send, k->recv, k->count, type, op, k->root, l->nccl, stream);
    } else if (k->kind == PAR_KIND_REDUCE_SCATTER) {
        e = ncclReduceScatter(k->send, k->recv, k->count, type, op, l->nccl, stream);
    } else {
        ncclGroupStart();
        for (int r = 0; r < l->n && (!e || e == ncclInProgress); r++)
            e = ncclReduce((const char *)k->send +
                               par__cuda_block_offset(k, k->recv_counts, NULL, r) * par_dtype_bytes(k->dtype),
                           k->recv, k->recv_counts[r], type, op, r, l->nccl, stream);
        const ncclResult_t ended = ncclGroupEnd();
        if (!e || e == ncclInProgress) e = ended;
    }
    par_result r = par__cuda_nccl_check(l, e, par_kind_name(k->kind));
    if (!r) r = par__cuda_nccl_wait_ready(l, par_kind_name(k->kind));
    if (own) ncclRedOpDestroy(op, l->nccl);
    return r;
}
static void par__cuda_plan_messages(const par__cuda_comm *l, const par_call *k, par__cuda_messages *p) {
    const par_kind_traits *t = par_kind_traits_of(k->kind);
    const int root = l->me == k->root;
    const int scattered = t->send & PAR_SIDE_ALL;
    const int gathered = t->recv & PAR_SIDE_ALL;
    const size_t mine = t->counts == PAR_COUNTS_SAME ? k->recv_counts[l->me] : k->count;
    memset(p, 0, sizeof *p);
    for (int r = 0; r < l->n; r++) {
        if ((!(t->send & PAR_SIDE_ROOT) || root) && (!(t->recv & PAR_SIDE_ROOT) || r == k->root)) {
            p->to[r] = scattered ? par__cuda_block_offset(k, k->send_counts, k->send_displs, r) : 0;
            p->send[r] = scattered ? par__cuda_block_count(k, k->send_counts, r) : mine;
        }
        if ((!(t->recv & PAR_SIDE_ROOT) || root) && (!(t->send & PAR_SIDE_ROOT) || r == k->root)) {
            p->from[r] = gathered ? par__cuda_block_offset(k, k->recv_counts, k->recv_displs, r) : 0;
            p->recv[r] = gathered ? par__cuda_block_count(k, k->recv_counts, r) : mine;
        }
    }
}
static par_result par__cuda_nccl_collective(par__cuda_comm *l, const par_call *k) {
    const ncclDataType_t type = par__cuda_nccl_type(k->dtype);
    cudaStream_t stream = l->stream;
    const int sum = par__cuda_is_reduction(k);
    if (sum && !l->cuda->desc.exact && (k->op & 255u) != PAR_TREE_SUM && par__cuda_nccl_adds(k->dtype))
        return par__cuda_nccl_reduce(l, k);
    if (k->kind == PAR_KIND_ALL_GATHER)
        PAR__CUDA_NCCL_CALL(ncclAllGather(k->send, k->recv, k->count, type, l->nccl, stream));
#if PAR__CUDA_POLICY
    else if (k->kind == PAR_KIND_ALL_TO_ALL)
        PAR__CUDA_NCCL_CALL(ncclAlltoAll(k->send, k->recv, k->count, type, l->nccl, stream));
#endif
    else if (k->kind == PAR_KIND_BROADCAST)
        PAR__CUDA_NCCL_CALL(
            ncclBroadcast(k->send ? k->send : k->recv, k->recv, k->count, type, k->root, l->nccl, stream));
    else {
        par__cuda_messages *p = (par__cuda_messages *)PAR_MALLOC(sizeof *p);
        if (!p) return par__cuda_fail(l->cuda, PAR_ERR_MEMORY, par_kind_name(k->kind), "out of memory");
        if (!sum) par__cuda_plan_messages(l, k, p);
        const par_result r =
            sum ? par__cuda_nccl_exact(l, k, p) : par__cuda_nccl_messages(l, p, k->send, k->recv, k->dtype);
        PAR_FREE(p);
        return r;
    }
    return par__cuda_nccl_wait_ready(l, par_kind_name(k->kind));
}
// ---- messages

enum { PAR__CUDA_LINK_CTAS = 4 };
static void par__cuda_nccl_config(ncclConfig_t *config, int max_ctas) { // as par_cuda_limit_ctas
    const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
    *config = initial;
    config->blocking = 0;
#if PAR__CUDA_POLICY
    if (max_ctas == PAR_CUDA_COPY_ENGINES) config->CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
    if (max_ctas > 0) {
        config->minCTAs = 1;
        config->maxCTAs = max_ctas;
    }
}
static int par__cuda_is_on_link(const par__cuda_pending *p, const par__cuda_link *x) {
    return par__cuda_is_point_to_point(p->call) && p->call->root == x->peer &&
           (p->call->kind == PAR_KIND_SEND) == x->sends;
}
// No message of the link can be sent any more: those in flight end with an error.
static void par__cuda_link_fail(par__cuda_comm *l, par__cuda_link *x, par_result result) {
    par__cuda_nccl_drop(l, &x->nccl);
    x->failed = result;
    x->launching = NULL;
    for (par__cuda_pending *p = l->first; p; p = p->next)
        if (p->state != PAR__CUDA_DONE && par__cuda_is_on_link(p, x)) par__cuda_finish(p, result);
}
static par_result par__cuda_link_join(par__cuda_comm *l, par__cuda_link *x) {
    ncclConfig_t config;
    par__cuda_nccl_config(&config, PAR__CUDA_LINK_CTAS);
    const ncclResult_t e = ncclCommInitRankConfig(&x->nccl, 2, x->id, !x->sends, &config);
    x->state = PAR__CUDA_LINK_JOINING;
    return par__cuda_nccl_check_on(l, x->nccl, e, "ncclCommInitRankConfig");
}
// Begins to make a link: the id is on its way. The link is in the list of links from then on, because the
// rank's waits advance those.
static par_result par__cuda_link_begin(par__cuda_comm *l, const par_call *k, par__cuda_link *x) {
    par_comm *hosts = par__at_site(l->announce_comm, k->site);
    x->peer = k->root;
    x->sends = k->kind == PAR_KIND_SEND;
    PAR__CUDA_TRY(par__cuda_open_stream(l->cuda, par_kind_name(k->kind), &x->stream));
    if (x->sends) PAR__CUDA_NCCL_CALL(ncclGetUniqueId(&x->id));
    PAR__CUDA_TRY(x->sends ? (par_send_begin)(&x->id, sizeof x->id, PAR_U8, x->peer, hosts, &x->request)
                           : (par_recv_begin)(&x->id, sizeof x->id, PAR_U8, x->peer, hosts, &x->request));
    x->next = l->links;
    l->links = x;
    return PAR_OK;
}
static par_result par__cuda_link_open(par__cuda_comm *l, const par_call *k, par__cuda_link **out) {
    par__cuda_link *x = l->links;
    while (x && (x->peer != k->root || x->sends != (k->kind == PAR_KIND_SEND))) x = x->next;
    *out = x;
    if (x) return x->failed;
    x = (par__cuda_link *)PAR_MALLOC(sizeof *x);
    if (!x) return par__cuda_fail(l->cuda, PAR_ERR_MEMORY, par_kind_name(k->kind), "out of memory");
    memset(x, 0, sizeof *x);
    const par_result r = par__cuda_link_begin(l, k, x);
    if (!r) return *out = x, PAR_OK;
    if (x->stream) cudaStreamDestroy(x->stream);
    PAR_FREE(x);
    return r;
}
// Is what NCCL was asked for complete? An error is in *result.
static int par__cuda_link_poll(par__cuda_comm *l, par__cuda_link *x, const char *what, par_result *result) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t e = ncclCommGetAsyncError(x->nccl, &state);
    *result = par__cuda_nccl_check_on(l, x->nccl, e ? e : state, what);
    return *result || state != ncclInProgress;
}
// Records the end of the last message, as late as it can be: in a hardware queue of several streams the
// record would hold up what comes after it, and that may be the other half of an exchange.
static par_result par__cuda_link_record(par__cuda_comm *l, par__cuda_link *x) {
    par__cuda_pending *p = x->launched;
    x->launched = NULL;
    return p ? par__cuda_record_event(l->cuda, p->complete, x->stream) : PAR_OK;
}
// Can the next message be launched? The end of the last one is recorded before, see par__cuda_settle.
static int par__cuda_link_is_ready(par__cuda_comm *l, const par__cuda_link *x, const par__cuda_pending *p) {
    if (!x->launched || p->captured || !par__cuda_is_launch_pending(l, p)) return 1;
    if (x->launched->waiting) return 0;
    if (cudaStreamQuery(x->stream) != cudaErrorNotReady) return 1; // an error is reported by what comes next
    return cudaGetLastError(), 0;
}
// Gives NCCL the next message. On a link that is connected NCCL launches it at once, by a thread of its own.
static par_result par__cuda_link_launch(par__cuda_comm *l, par__cuda_link *x, par__cuda_pending *p) {
    const par_call *k = p->call;
    const ncclDataType_t type = par__cuda_nccl_type(k->dtype);
    PAR__CUDA_TRY(par__cuda_link_record(l, x));
    PAR__CUDA_TRY(par__cuda_stream_wait(l->cuda, x->stream, p->complete)); // for the compute stream
    const ncclResult_t e = x->sends ? ncclSend(k->send, k->count, type, 1, x->nccl, x->stream)
                                    : ncclRecv(k->recv, k->count, type, 0, x->nccl, x->stream);
    x->launching = p;
    p->state = PAR__CUDA_RUNNING;
    par_result r = par__cuda_nccl_check_on(l, x->nccl, e, x->sends ? "ncclSend" : "ncclRecv");
    par__cuda_waiting wait;
    while (!r && x->connected && !par__cuda_link_poll(l, x, "a message", &r))
        r = par__cuda_poll(l->comm, &wait, "ncclSend or ncclRecv", "not launched", "");
    return r;
}
static par_result par__cuda_link_step(par__cuda_comm *l, par__cuda_link *x) {
    par_result r = PAR_OK;
    int done = 1;
    if (x->request.operation) r = par_test(&x->request, &done);
    if (r) return r;
    if (x->state == PAR__CUDA_LINK_NEW && (done || x->sends)) r = par__cuda_link_join(l, x);
    if (x->state == PAR__CUDA_LINK_JOINING && !r && par__cuda_link_poll(l, x, "ncclCommInitRankConfig", &r))
        x->state = PAR__CUDA_LINK_READY;
    for (par__cuda_pending *p = l->first; p && x->state == PAR__CUDA_LINK_READY && !r;) {
        if (!x->launching && p->state == PAR__CUDA_ANNOUNCED && par__cuda_is_on_link(p, x)) {
            if (!par__cuda_link_is_ready(l, x, p)) return PAR_OK;
            r = par__cuda_link_launch(l, x, p);
        }
        if (x->launching && !r) {
            if (!par__cuda_link_poll(l, x, "a message", &r) || r) return r;
            p = x->launched = x->launching;
            x->launching = NULL;
            x->connected = 1;
            par__cuda_finish(p, PAR_OK);
        }
        p = p->next;
    }
    return r;
}
static void par__cuda_nccl_progress(par_device_backend *backend) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    if (l->in_progress || l->stopped) return; // what is asked below asks for progress itself
    l->in_progress = 1;
    for (par__cuda_link *x = l->links; x; x = x->next) {
        const par_result r = x->failed ? PAR_OK : par__cuda_link_step(l, x);
        if (r) par__cuda_link_fail(l, x, r);
    }
    l->in_progress = 0;
}
// A message of the rank to itself: a copy, when the send and the receive have begun.
static par_result par__cuda_nccl_self(par__cuda_comm *l, par__cuda_pending *p) {
    par_cuda *cuda = l->cuda;
    par__cuda_pending *q = l->first;
    while (q && (q->state != PAR__CUDA_ANNOUNCED || !par__cuda_is_point_to_point(q->call) ||
                 q->call->root != l->me || q->call->kind == p->call->kind))
        q = q->next;
    if (!q) return PAR_OK; // the other half comes later
    const par_call *from = p->call->kind == PAR_KIND_SEND ? p->call : q->call,
                   *to = p->call->kind == PAR_KIND_SEND ? q->call : p->call;
    par_result r = PAR_OK;
    if (from->count != to->count || from->dtype != to->dtype)
        r = par_fail(l->comm, PAR_ERR_MISMATCH, "a rank sends itself %zu %s at %s and receives %zu %s at %s",
                     from->count, par_dtype_name(from->dtype), from->site, to->count,
                     par_dtype_name(to->dtype), to->site);
    if (!r) r = par__cuda_settle(l, l->stream);
    if (!r) r = par__cuda_stream_wait(cuda, l->stream, p->complete);
    if (!r) r = par__cuda_stream_wait(cuda, l->stream, q->complete);
    if (!r)
        r = par__cuda_copy(l, (char *)to->recv, (const char *)from->send,
                           to->count * par_dtype_bytes(to->dtype));
    if (!r) r = par__cuda_record_complete(l, p);
    if (!r) r = par__cuda_record_complete(l, q);
    par__cuda_finish(p, r);
    par__cuda_finish(q, r);
    return PAR_OK;
}
static par_result par__cuda_nccl_message(par__cuda_comm *l, par__cuda_pending *p) {
    par__cuda_link *x;
    PAR__CUDA_TRY(par__cuda_acquire_event(l, &p->complete));
    PAR__CUDA_TRY(par__cuda_record_event(l->cuda, p->complete, l->cuda->stream));
    if (p->call->root == l->me) return par__cuda_nccl_self(l, p);
    const par_result r = par__cuda_link_open(l, p->call, &x);
    if (!r) par__cuda_nccl_progress(&l->base);
    return r;
}
// Waits until a message is launched.
static void par__cuda_nccl_wait_launched(par__cuda_comm *l, par__cuda_pending *p) {
    par__cuda_waiting wait;
    char what[120];
    if (p->call->root == l->me)
        par__cuda_finish(p,
                         par_fail(l->comm, PAR_ERR_ARGUMENT,
                                  "par_%s to the rank itself at %s is waited for before its other half has "
                                  "begun",
                                  par_kind_name(p->call->kind), p->call->site));
    snprintf(what, sizeof what, "par_%s at %.64s", par_kind_name(p->call->kind), p->call->site);
    while (p->state != PAR__CUDA_DONE) {
        par__step_calls(l->comm); // of every comm, as other ranks may wait for another one
        if (p->state == PAR__CUDA_DONE) break;
        char missing[64];
        snprintf(missing, sizeof missing, "rank %d has not begun its half", p->call->root);
        const par_result r = par__cuda_poll(l->comm, &wait, what, missing, "");
        if (!r) continue;
        for (par__cuda_link *x = l->links; x; x = x->next)
            if (par__cuda_is_on_link(p, x)) par__cuda_link_fail(l, x, r);
        par__cuda_finish(p, r);
    }
}
// Copy engines hold up their hardware queue: what must come before is launched before.
static par_result par__cuda_nccl_wait_all_launched(par__cuda_comm *l, const char *what) {
    par__cuda_waiting wait;
    par_result r = PAR_OK;
    while (!r && par__cuda_is_launch_pending(l, NULL)) {
        par__step_calls(l->comm);
        r = par__cuda_poll(l->comm, &wait, what, "a message that began before is not launched",
                           ": its other half must begin, too");
    }
    return r;
}
static void par__cuda_links_close(par__cuda_comm *l) {
    par__cuda_waiting wait;
    par_result r;
    for (par__cuda_link *x = l->links; x; x = x->next)
        if (x->nccl && (l->cuda->stuck || x->state != PAR__CUDA_LINK_READY || x->launching ||
                        par__cuda_nccl_check_on(l, x->nccl, ncclCommFinalize(x->nccl), "ncclCommFinalize")))
            par__cuda_nccl_drop(l, &x->nccl);
    for (par__cuda_link *x = l->links; x; x = x->next) { // all end at once: two ranks may have other orders
        r = PAR_OK;
        while (x->nccl && !r && !par__cuda_link_poll(l, x, "ncclCommFinalize", &r))
            r = par__cuda_poll(l->comm, &wait, "par_close", "messages have not ended", "");
        if (x->nccl && !r) ncclCommDestroy(x->nccl);
        if (!r) x->nccl = NULL;
        par__cuda_nccl_drop(l, &x->nccl);
        if (x->stream && !l->cuda->stuck) cudaStreamDestroy(x->stream);
        x->stream = NULL;
    }
}
static par_result par__cuda_nccl_compare_arrivals(par__cuda_comm *l, const par_call *k) {
    par__cuda_arrival mine, *all = (par__cuda_arrival *)PAR_MALLOC(sizeof mine * (size_t)l->n);
    if (!all) return par__cuda_fail(l->cuda, PAR_ERR_MEMORY, par_kind_name(k->kind), "out of memory");
    memset(&mine, 0, sizeof mine);
    par__cuda_fill_arrival(l, k, &mine);
    par_result r = (par_all_gather)(&mine, all, sizeof mine, PAR_U8, par__at_site(l->announce_comm, k->site));
    if (!r) r = par__cuda_compare_arrivals(l, all);
    return PAR_FREE(all), r;
}
static par_result par__cuda_nccl_begin(par_device_backend *backend, const par_call *k, void **state) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    par_cuda *cuda = l->cuda;
    par__cuda_pending *p;
    PAR__CUDA_TRY(par__cuda_check_kind(l, k));
    if (!l->nccl || cuda->stuck)
        return par__cuda_fail(cuda, PAR_ERR_ABORTED, par_kind_name(k->kind),
                              "NCCL was aborted on this comm, or waits for a rank that is gone");
    const int message = par__cuda_is_point_to_point(k);
    if (!message && cuda->desc.check) PAR__CUDA_TRY(par__cuda_nccl_compare_arrivals(l, k));
    if (l->n > 1 && par__cuda_is_capturing(cuda)) PAR__CUDA_TRY(par__cuda_count_graph(l));
    PAR__CUDA_TRY(par__cuda_pending_open(l, k, state, &p));
    par_result r = message ? par__cuda_nccl_message(l, p) : par__cuda_wait_for_compute(l, p);
    if (message && r) par__cuda_finish(p, r);
    if (message) return PAR_OK;
    if (!r && l->copy_engines) r = par__cuda_nccl_wait_all_launched(l, par_kind_name(k->kind));
    if (!r) r = par__cuda_nccl_collective(l, k);
    p->recorded = p->captured || !par__cuda_is_launch_pending(l, NULL);
    if (!r && p->recorded) r = par__cuda_record_complete(l, p);
    par__cuda_finish(p, r);
    return PAR_OK;
}
static par_result par__cuda_nccl_end(par_device_backend *backend, void *state) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    par__cuda_pending *p = (par__cuda_pending *)state;
    if (p->state != PAR__CUDA_DONE) par__cuda_nccl_wait_launched(l, p);
    p->waiting = 1; // until its end is recorded
    for (par__cuda_link *x = l->links; x; x = x->next) {
        if (x->launched != p) continue;
        par_result r = par__cuda_settle(l, x->stream);
        if (!r) r = par__cuda_link_record(l, x);
        x->launched = NULL;
        par__cuda_finish(p, r);
    }
    if (!par__cuda_is_point_to_point(p->call) && !p->recorded && !p->result) {
        par_result r = par__cuda_settle(l, l->stream);
        if (!r) r = par__cuda_record_complete(l, p);
        par__cuda_finish(p, r);
    }
    return par__cuda_end(backend, state);
}
// ncclCommSplit wants a communicator without calls in flight. A graph's calls are on the compute stream.
static par_result par__cuda_nccl_wait_idle(par__cuda_comm *l, const char *what) {
    PAR__CUDA_TRY(par__cuda_wait(l->cuda, l->cuda->stream, NULL, what));
    return l->stream ? par__cuda_wait(l->cuda, l->stream, NULL, what) : PAR_OK;
}
static par_result par__cuda_nccl_open(par__cuda_comm *l, par__cuda_comm *parent, int color, int key) {
    ncclConfig_t config;
    par__cuda_nccl_config(&config, 0);
    if (l && !parent && l->cuda->desc.nccl) { // the caller's
        l->nccl = (ncclComm_t)l->cuda->desc.nccl;
        l->adopted = 1;
        int n = 0;
        PAR__CUDA_NCCL_CALL(ncclCommCount(l->nccl, &n));
        return n == l->n ? PAR_OK
                         : par__cuda_fail(l->cuda, PAR_ERR_ARGUMENT, "desc.nccl",
                                          "it must have as many ranks as desc.comm");
    }
    if (parent) {
        parent->part = NULL;
        PAR__CUDA_TRY(par__cuda_nccl_wait_idle(parent, "par_split"));
        const ncclResult_t e =
            ncclCommSplit(parent->nccl, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &parent->part, &config);
        par_result r = par__cuda_nccl_check(parent, e, "ncclCommSplit");
        if (!r) r = par__cuda_nccl_wait_ready(parent, "ncclCommSplit");
        if (r && parent->part) ncclCommAbort(parent->part);
        if (r || !l) return r;
        l->nccl = parent->part;
        return par__cuda_nccl_wait_ready(l, "ncclCommSplit");
    }
    struct {
        ncclUniqueId id;
        int32_t failed;
    } first; // rank 0's: the others must not wait for an id that there is not
    memset(&first, 0, sizeof first);
    par_result made = PAR_OK;
    if (l->me == 0) made = par__cuda_nccl_check(l, ncclGetUniqueId(&first.id), "ncclGetUniqueId");
    first.failed = made != PAR_OK;
    PAR__CUDA_TRY(par_broadcast(&first, &first, sizeof first, PAR_U8, 0, l->comm));
    if (first.failed)
        return made ? made
                    : par__cuda_fail(l->cuda, PAR_ERR_SYSTEM, "ncclGetUniqueId", "NCCL failed on rank 0");
    PAR__CUDA_NCCL_CALL(ncclCommInitRankConfig(&l->nccl, l->n, first.id, l->me, &config));
    return par__cuda_nccl_wait_ready(l, "ncclCommInitRankConfig");
}
static void par__cuda_nccl_finalize(par__cuda_comm *l) {
    if (!l->nccl || l->adopted) return;
    if (!l->cuda->stuck &&
        !(ncclCommFinalize(l->nccl) != ncclSuccess && par__cuda_nccl_wait_ready(l, "ncclCommFinalize"))) {
        ncclCommDestroy(l->nccl);
        l->nccl = NULL;
    }
    par__cuda_nccl_drop(l, &l->nccl);
}
static void par__cuda_nccl_close(par__cuda_comm *l) {
    par__cuda_links_close(l);
    par__cuda_nccl_finalize(l);
}
// Replaces the communicator by one of the same ranks with another limit.
static par_result par__cuda_nccl_limit(par__cuda_comm *l, int max_ctas) {
    ncclConfig_t config;
    par__cuda_nccl_config(&config, max_ctas);
    PAR__CUDA_TRY(par__cuda_nccl_wait_idle(l, "par_cuda_limit_ctas"));
    l->part = NULL;
    const ncclResult_t e = ncclCommSplit(l->nccl, 0, l->me, &l->part, &config);
    par_result r = par__cuda_nccl_check(l, e, "ncclCommSplit");
    if (!r) r = par__cuda_nccl_wait_ready(l, "ncclCommSplit");
    if (r && l->part) ncclCommAbort(l->part);
    if (r) return r;
    par__cuda_nccl_finalize(l);
    l->nccl = l->part;
    l->adopted = 0;
    l->max_ctas = PAR__MAX(max_ctas, 0);
    l->copy_engines = max_ctas == PAR_CUDA_COPY_ENGINES;
    return par__cuda_nccl_wait_ready(l, "ncclCommSplit");
}
#endif
#if defined(PAR_CUDA_CUBLASLT)
// The SMs that calls in flight leave to products; 0: all, or it is not known.
static int par__cuda_free_sms(const par_cuda *cuda) {
    int used = 0;
#if defined(PAR_CUDA_NCCL)
    par_device_backend *x = cuda->desc.comm ? par__first_backend(cuda->desc.comm) : NULL;
    for (; x; x = x->next) {
        const par__cuda_comm *l = par__cuda_comm_of(x);
        if (x->supports == par__cuda_supports && l->cuda == cuda && l->first) used += l->max_ctas;
    }
#endif
    return used ? PAR__MAX(1, cuda->sm_count - used) : 0;
}
#endif
// Aborts NCCL, so that kernels that wait on the device for a missing rank end. Where some would not, because
// they are not NCCL's, are on the caller's ncclComm_t or cannot be aborted, the context is stuck, and none is
// aborted: ncclCommAbort would wait for kernels that come after these. comm: one of this world.
static void par__cuda_abort(par_cuda *cuda, const par_comm *comm) {
    cuda->stuck |= (cuda->backend != PAR_CUDA_NCCL_BACKEND && !cuda->elastic) || cuda->desc.nccl;
#if defined(PAR_CUDA_NCCL)
    ncclGroupStart();
    for (int aborts = 0; aborts < 2; aborts++)
        for (par_device_backend *x = par__first_backend(comm); x; x = x->next) {
            par__cuda_comm *l = par__cuda_comm_of(x);
            if (x->begin != par__cuda_nccl_begin || l->cuda != cuda) continue;
            cuda->stuck |= !par__cuda_can_abort(l);
            if (aborts) par__cuda_nccl_abort(l);
        }
    ncclGroupEnd();
#else
    (void)comm;
#endif
}

// >>cuda_open -----------------------------------------------------------------------------------------------

static par_result par__cuda_products_open(par_cuda *cuda);
static void par__cuda_products_close(par_cuda *cuda);

static const char *const par__cuda_backend_names[] = {
#define PAR__X(name, text) text,
    PAR_CUDA_BACKENDS(PAR__X)
#undef PAR__X
};
#define PAR__X(name, text) text "|"
static const par__setting par__cuda_settings[] = {
    {"PAR_CUDA_BACKEND", PAR__SETTING_CHOICE, 0, 0, PAR_CUDA_AUTO, PAR_CUDA_BACKENDS(PAR__X)},
    {"PAR_CUDA_CHECK", PAR__SETTING_SWITCH, 0, 1, 0, ""}};
#undef PAR__X
#if PAR__CUDA_DNN
static void par__dnn_close(par_cuda *cuda);
#endif
static void par__cuda_release(par_cuda *cuda) {
    if (--cuda->references) return;
    while (cuda->exports) {
        par__cuda_export *x = cuda->exports;
        cuda->exports = x->next;
        PAR_FREE(x);
    }
    while (cuda->kept) {
        par__cuda_kept *x = cuda->kept;
        cuda->kept = x->next;
        if (!cuda->stuck) cudaFree(x->memory); // which waits for the device
        PAR_FREE(x);
    }
    while (cuda->workspaces) {
        par__cuda_workspace *x = cuda->workspaces;
        cuda->workspaces = x->next;
        if (!cuda->stuck) cudaFree(x->memory);
        PAR_FREE(x);
    }
    if (cuda->stuck) { // what the device still uses stays; the process is about to end
        PAR_FREE(cuda->mappings);
        PAR_FREE(cuda);
        return;
    }
    cudaStreamSynchronize(cuda->stream);
    for (int i = 0; i < cuda->mapping_count; i++)
        if (cuda->mappings[i].base) cudaIpcCloseMemHandle(cuda->mappings[i].base);
    PAR_FREE(cuda->mappings);
    for (int i = 0; i < PAR__CUDA_SCRATCHES; i++)
        if (cuda->scratch[i]) cudaFree(cuda->scratch[i]);
    par__cuda_products_close(cuda);
#if PAR__CUDA_DNN
    par__dnn_close(cuda);
#endif
    if (cuda->own_stream) cudaStreamDestroy(cuda->stream);
    PAR_FREE(cuda);
}
static void par__cuda_comm_free(par__cuda_comm *l) {
    while (l->first) par__cuda_pending_close(l, l->first); // in flight, and never waited for
    while (l->free_event_count) cudaEventDestroy(l->free_events[--l->free_event_count]);
    for (int i = 0; i < l->n * PAR__CUDA_EVENTS; i++) { // of threads: each its own
        const int own = i / PAR__CUDA_EVENTS == l->me;
        if (l->ready && l->ready[i] && (own || !l->threads)) cudaEventDestroy(l->ready[i]);
        if (l->done && l->done[i] && (own || !l->threads)) cudaEventDestroy(l->done[i]);
    }
    while (l->host_blocks) {
        par__cuda_host_block *b = l->host_blocks;
        l->host_blocks = b->next;
        if (!l->cuda->stuck) cudaFreeHost(b->memory); // it waits for the device
        PAR_FREE(b);
    }
#if defined(PAR_CUDA_NCCL)
    while (l->links) {
        par__cuda_link *x = l->links;
        l->links = x->next;
        PAR_FREE(x);
    }
    if (!par__cuda_live_graphs(l)) PAR_FREE(l->graphs); // else the driver may still count one
#endif
    if (l->scratch && !l->cuda->stuck) cudaFree(l->scratch);
    if (l->stream && l->stream != l->cuda->stream && !l->cuda->stuck) cudaStreamDestroy(l->stream);
    PAR_FREE(l->free_events);
    PAR_FREE(l->ready);
    PAR_FREE(l->done);
    PAR_FREE(l);
}
static par_result par__cuda_can_close(par_device_backend *backend) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    PAR__CUDA_TRY(par__cuda_refuse_capture(l->cuda, "par_close", PAR__CUDA_CAPTURED_CLOSE));
#if defined(PAR_CUDA_NCCL)
    PAR__CUDA_TRY(par__cuda_refuse_graphs(l, "par_close"));
#endif
    return PAR_OK;
}
// A comm that shrinks: its calls end, here and on the device.
static par_result par__cuda_stop(par_device_backend *backend) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    PAR__CUDA_TRY(par__cuda_refuse_capture(l->cuda, "par_shrink", PAR__CUDA_CAPTURED_CLOSE));
    if (l->stopped) return PAR_OK;
    l->stopped = 1;
    for (par__cuda_pending *p = l->first; p; p = p->next) {
        if (p->state == PAR__CUDA_DONE) continue;
        (void)par_wait(&p->request); // which fails, or has ended
        (void)par_wait(&p->acknowledgement);
        par__cuda_finish(p, PAR_ERR_REVOKED);
    }
    par__cuda_abort(l->cuda, l->comm);
    return l->stream || l->cuda->stuck ? par__cuda_drain(l->cuda, l->stream, "par_shrink") : PAR_OK;
}
static void par__cuda_comm_close(par_device_backend *backend) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    par_cuda *cuda = l->cuda;
    if (l->stream) (void)par__cuda_drain(cuda, l->stream, "par_close");
#if defined(PAR_CUDA_NCCL)
    par__cuda_nccl_close(l);
#endif
    const int maps = cuda->map_state && l->comm == cuda->desc.comm;
    if (maps && !cuda->stuck) (void)par__cuda_ipc_close_all(cuda);
    for (par__cuda_pending *p = l->first; p; p = p->next) { // never waited for
        int done;
        (void)par_test(&p->request, &done);
        (void)par_test(&p->acknowledgement, &done);
    }
    // Other ranks' streams may still wait for these events, and have memory mapped: no rank destroys or frees
    // any before all ranks are here. Survivors do not meet here: what they free waits for par_cuda_reopen.
    const int meets = !cuda->elastic || (!par_alive(l->comm) && !par__ask_revoked(l->comm));
    par_close_together(l->announce_comm);
    if (maps && meets && !cuda->stuck) par__cuda_free_unmapped(cuda, 1);
    if (maps) cuda->map_state = NULL; // the comm frees it
    par_close_together(l->completion_comm);
    if (l->comm == cuda->desc.comm) cuda->desc.comm = NULL; // errors go to PAR_LOG from now on
    par__cuda_comm_free(l);
    par__cuda_release(cuda);
}
// Makes events that all ranks can wait for: threads share the events themselves, processes share them by CUDA
// IPC. Where hosts wait each rank has its own alone.
static par_result par__cuda_share_events(par__cuda_comm *l, cudaEvent_t *events) {
    par_cuda *cuda = l->cuda;
    const size_t each = l->threads ? sizeof(cudaEvent_t) : sizeof(cudaIpcEventHandle_t),
                 row = each * PAR__CUDA_EVENTS;
    const int apart = !l->threads && !l->hosts_wait;
    const unsigned flags = cudaEventDisableTiming | (apart ? cudaEventInterprocess : 0);
    char *all = (char *)PAR_MALLOC(row * (size_t)l->n), *mine = all ? all + row * (size_t)l->me : NULL;
    par_result r = all ? PAR_OK : PAR_ERR_MEMORY;
    for (int i = 0; i < PAR__CUDA_EVENTS && !r; i++) {
        cudaEvent_t *e = &events[l->me * PAR__CUDA_EVENTS + i];
        r = par__cuda_check(cuda, cudaEventCreateWithFlags(e, flags), "cudaEventCreateWithFlags");
        if (!r && l->threads) memcpy(mine + (size_t)i * each, e, each);
        if (!r && apart)
            r = par__cuda_check(
                cuda, cudaIpcGetEventHandle((cudaIpcEventHandle_t *)(void *)(mine + (size_t)i * each), *e),
                "cudaIpcGetEventHandle");
    }
    r = par__cuda_agree(cuda, l->announce_comm, r, "par_cuda_open: events");
    if (!r && !l->hosts_wait) r = par_all_gather(mine, all, row, PAR_U8, l->announce_comm);
    for (int i = 0; i < l->n * PAR__CUDA_EVENTS && !r && !l->hosts_wait; i++) {
        if (i / PAR__CUDA_EVENTS == l->me) continue;
        if (l->threads) {
            memcpy(&events[i], all + (size_t)i * each, each);
        } else {
            cudaIpcEventHandle_t handle;
            memcpy(&handle, all + (size_t)i * each, sizeof handle);
            r = par__cuda_check(cuda, cudaIpcOpenEventHandle(&events[i], handle), "cudaIpcOpenEventHandle");
        }
    }
    PAR_FREE(all);
    return r;
}
static par_result par__cuda_open_events(par__cuda_comm *l) {
    const size_t bytes = (size_t)l->n * PAR__CUDA_EVENTS * sizeof(cudaEvent_t);
    l->ready = (cudaEvent_t *)PAR_MALLOC(bytes);
    l->done = (cudaEvent_t *)PAR_MALLOC(bytes);
    if (l->ready) memset(l->ready, 0, bytes);
    if (l->done) memset(l->done, 0, bytes);
    PAR__CUDA_TRY(l->ready && l->done ? par__cuda_share_events(l, l->ready) : PAR_ERR_MEMORY);
    return par__cuda_share_events(l, l->done);
}
static par_result par__cuda_split(par_device_backend *backend, int color, int key, par_comm *part);
static void par__cuda_fill_backend(par__cuda_comm *l) {
    par_device_backend *b = &l->base;
    b->name = par__cuda_backend_names[l->kind];
    b->supports = par__cuda_supports;
    b->split = par__cuda_split;
    b->stop = par__cuda_stop;
    b->can_close = par__cuda_can_close;
    b->close = par__cuda_comm_close;
    b->progress = par__cuda_progress;
    b->done = par__cuda_ended;
    b->end = par__cuda_end;
    b->begin = par__cuda_peer_begin;
    if (l->kind == PAR_CUDA_STAGING) {
        b->begin = par__cuda_staging_begin;
        b->end = par__cuda_staging_end;
    }
#if defined(PAR_CUDA_NCCL)
    if (l->kind == PAR_CUDA_NCCL_BACKEND) {
        b->begin = par__cuda_nccl_begin;
        b->end = par__cuda_nccl_end;
        b->progress = par__cuda_nccl_progress;
    }
#endif
}
static par_result par__cuda_comm_open(par_cuda *cuda, par_comm *comm, par__cuda_comm *parent, int color,
                                      int key) {
    par__cuda_comm *l = (par__cuda_comm *)PAR_MALLOC(sizeof *l);
    if (!l) return par__cuda_fail(cuda, PAR_ERR_MEMORY, "par_cuda_open", "out of memory");
    memset(l, 0, sizeof *l);
    l->cuda = cuda;
    l->kind = cuda->backend;
    l->comm = comm;
    l->n = par_size(comm);
    l->me = par_rank(comm);
    l->threads = !strcmp(par_launch_method(comm), "threads") || !strcmp(par_launch_method(comm), "single") ||
                 l->n == 1;
    l->hosts_wait = cuda->elastic && l->n > 1;
    par__cuda_fill_backend(l);
    par_result r = PAR_OK;
#if defined(PAR_CUDA_NCCL)
    if (l->kind == PAR_CUDA_NCCL_BACKEND)
        r = l->n <= PAR__CUDA_NCCL_MAX_RANKS
                ? par__cuda_nccl_open(l, parent, color, key)
                : par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "par_cuda_open: nccl", "more than 1024 ranks");
#else
    (void)parent;
#endif
    if (!r) r = par_split_host(comm, 0, l->me, &l->announce_comm);
    if (!r && l->kind != PAR_CUDA_NCCL_BACKEND) r = par_split_host(comm, 0, l->me, &l->completion_comm);
    (void)color;
    (void)key;
    if (l->kind == PAR_CUDA_PEER && !r) r = par__cuda_open_events(l);
    if (l->kind == PAR_CUDA_PEER && !r && comm == cuda->desc.comm) r = par__cuda_load_reduce(cuda);
    if (!r && l->kind == PAR_CUDA_PEER && !l->threads && comm == cuda->desc.comm) {
        cuda->map_state = (par__cuda_map_state *)par_alloc(comm, sizeof *cuda->map_state);
        if (!cuda->map_state) r = PAR_ERR_MEMORY;
    }
    if (!r) r = par_attach_backend(comm, &l->base);
    if (r) {
#if defined(PAR_CUDA_NCCL)
        par__cuda_nccl_abort(l);
#endif
        par_close_together(l->announce_comm);
        par_close_together(l->completion_comm);
        return par__cuda_comm_free(l), r;
    }
    return cuda->references++, PAR_OK;
}
static par_result par__cuda_split(par_device_backend *backend, int color, int key, par_comm *part) {
    par__cuda_comm *l = par__cuda_comm_of(backend);
    PAR__CUDA_TRY(par__cuda_refuse_capture(
        l->cuda, "par_split",
        "a stream is captured, and NCCL's communicators and events are made outside of captures: "
        "split comms before"));
#if defined(PAR_CUDA_NCCL)
    if (!part && l->kind == PAR_CUDA_NCCL_BACKEND) return par__cuda_nccl_open(NULL, l, color, key);
#endif
    return part ? par__cuda_comm_open(l->cuda, part, l, color, key) : PAR_OK;
}

// What ranks tell each other before the backend is chosen.
typedef struct par__cuda_rank_info { // of a rank; uuid: of its GPU, also where nodes are pretended
    char bus[32], uuid[16];
    int32_t node, device, requested, nccl, flags; // flags: exact and check
    int32_t before;                               // the backend that its context has had
} par__cuda_rank_info;
// Can this rank's device access the memory of a rank of the node? Of a device that this process does not see,
// only cudaIpcOpenMemHandle can tell.
static int par__cuda_can_access(const par_cuda *cuda, const par__cuda_rank_info *other) {
    int device = 0, can = 1;
    if (cudaDeviceGetByPCIBusId(&device, other->bus)) return cudaGetLastError(), 1;
    if (device != cuda->ordinal && cudaDeviceCanAccessPeer(&can, cuda->ordinal, device)) cudaGetLastError();
    return can;
}
// Ranks that are threads: their kernels, and NCCL's, access each other's arrays. Memory of cudaMalloc is
// opened by peer access, which NCCL enables itself, and memory of a pool by the pool's owner.
static par_result par__cuda_open_to_peers(par_cuda *cuda, const par__cuda_rank_info *all, int n) {
    cudaMemPool_t pool;
    struct cudaMemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = cudaMemLocationTypeDevice;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    for (int r = 0; r < n; r++) {
        const int peer = access.location.id = all[r].device;
        if (peer == cuda->ordinal || !par__cuda_can_access(cuda, &all[r])) continue;
        PAR__CUDA_CALL(cudaDeviceGetDefaultMemPool(&pool, cuda->ordinal));
        PAR__CUDA_CALL(cudaMemPoolSetAccess(pool, &access, 1));
        if (cuda->backend != PAR_CUDA_PEER) continue;
        const cudaError_t e = cudaDeviceEnablePeerAccess(peer, 0);
        if (e == cudaErrorPeerAccessAlreadyEnabled)
            cudaGetLastError();
        else
            PAR__CUDA_TRY(par__cuda_check(cuda, e, "cudaDeviceEnablePeerAccess"));
    }
    return PAR_OK;
}
static par_result par__cuda_choose_from(par_cuda *cuda, const par__cuda_rank_info *all) {
    par_comm *c = cuda->desc.comm;
    const int n = par_size(c), me = par_rank(c), nccl = all[me].nccl;
    const int local = par_node_count(c) == 1 && n <= PAR__CUDA_MAX_PEERS;
    int shared = 0, differ = 0, access = local, before = 0;
    for (int i = 0; i < n; i++) {
        before = PAR__MAX(before, all[i].before);
        differ |= all[i].requested != all[0].requested || all[i].nccl != all[0].nccl ||
                  all[i].flags != all[0].flags;
        for (int j = 0; j < i; j++)
            shared |= !memcmp(all[i].uuid, all[j].uuid, sizeof all[i].uuid) ||
                      (all[i].node == all[j].node && !strcmp(all[i].bus, all[j].bus));
        access = access && par__cuda_can_access(cuda, &all[i]);
    }
    if (differ)
        return par__cuda_fail(
            cuda, PAR_ERR_MISMATCH, "par_cuda_open",
            "backend, exact, check or PAR_CUDA_NCCL differ between ranks: give all the same");
    PAR__CUDA_TRY(par_all_reduce(&access, &access, 1, PAR_I32, PAR_MIN, c)); // of all ranks
    cuda->backend = (par_cuda_backend)all[me].requested;
    if (cuda->backend == PAR_CUDA_AUTO) cuda->backend = (par_cuda_backend)before;
    if (cuda->backend == PAR_CUDA_AUTO)
        cuda->backend = nccl && !shared ? PAR_CUDA_NCCL_BACKEND : access ? PAR_CUDA_PEER : PAR_CUDA_STAGING;
    if (cuda->backend == PAR_CUDA_PEER && !access)
        return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "par_cuda_open: peer",
                              local ? "the ranks' GPUs cannot access each other's memory: use nccl or staging"
                                    : "ranks are on several nodes, or more than 64: use nccl or staging");
    if (cuda->backend == PAR_CUDA_NCCL_BACKEND && !nccl)
        return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "par_cuda_open: nccl",
                              "compile with -DPAR_CUDA_NCCL -lnccl");
    return PAR_OK;
}
// Chooses the backend from what all ranks asked for and from where they run.
static par_result par__cuda_choose_backend(par_cuda *cuda) {
    par_comm *c = cuda->desc.comm;
    const int n = par_size(c), threads = !strcmp(par_launch_method(c), "threads");
    par__cuda_rank_info *all = (par__cuda_rank_info *)PAR_MALLOC(sizeof *all * (size_t)n), mine;
    if (!all) return par__cuda_fail(cuda, PAR_ERR_MEMORY, "par_cuda_open", "out of memory");
    memset(&mine, 0, sizeof mine);
    mine.requested = cuda->desc.nccl ? PAR_CUDA_NCCL_BACKEND : cuda->desc.backend;
    mine.before = cuda->backend;
    mine.node = par_node_of(c, par_rank(c));
    mine.device = cuda->ordinal;
    mine.flags = (cuda->desc.exact != 0) | (cuda->desc.check != 0) << 1;
    struct cudaDeviceProp p;
    memset(&p, 0, sizeof p);
    if (cudaGetDeviceProperties(&p, cuda->ordinal)) cudaGetLastError(); // then ranks seem to share one
    memcpy(mine.uuid, &p.uuid, sizeof mine.uuid);
    if (cudaDeviceGetPCIBusId(mine.bus, sizeof mine.bus, cuda->ordinal))
        snprintf(mine.bus, sizeof mine.bus, "?");
#if defined(PAR_CUDA_NCCL)
    mine.nccl = 1;
#endif
    par_result r = par_all_gather(&mine, all, sizeof mine, PAR_U8, c);
    if (!r) r = par__cuda_choose_from(cuda, all);
    if (!r && threads)
        r = par__cuda_agree(cuda, c, par__cuda_open_to_peers(cuda, all, n), "par_cuda_open: access of peers");
    return PAR_FREE(all), r;
}
static par_result par__cuda_device_begin(par_cuda *cuda) {
    int count = 0, least_priority = 0, greatest_priority = 0;
    PAR__CUDA_CALL(cudaGetDeviceCount(&count));
    const par_comm *c = cuda->desc.comm;
    int local = 0;
    for (int r = 0; c && r < par_rank(c); r++) local += par_node_of(c, r) == par_node_of(c, par_rank(c));
    cuda->ordinal = cuda->desc.device > 0 ? cuda->desc.device - 1 : count ? local % count : 0;
    if (cuda->ordinal >= count)
        return par__cuda_fail(cuda, PAR_ERR_ARGUMENT, "par_cuda_open",
                              count ? "there is no such device" : "there is no GPU");
    PAR__CUDA_CALL(cudaSetDevice(cuda->ordinal));
    PAR__CUDA_CALL(cudaDeviceGetAttribute(&cuda->sm_count, cudaDevAttrMultiProcessorCount, cuda->ordinal));
    PAR__CUDA_CALL(cudaDeviceGetAttribute(&cuda->max_shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                          cuda->ordinal));
    PAR__CUDA_CALL(cudaDeviceGetStreamPriorityRange(&least_priority, &greatest_priority));
    cuda->stream = cuda->desc.stream;
    cuda->own_stream = !cuda->stream;
    if (!cuda->stream)
        PAR__CUDA_CALL(cudaStreamCreateWithPriority(&cuda->stream, cudaStreamNonBlocking, least_priority));
    return par__cuda_products_open(cuda);
}
#if defined(PAR_ZERO_H)
static void par__cuda_zero_open(par_cuda *cuda);
#endif
#if defined(PAR_TP_H)
static void par__cuda_tp_open(par_cuda *cuda);
#endif
static par_result par__cuda_read_environment(par_cuda *cuda) { // for what the caller's desc leaves open
    double value[2];
    char why[512];
    for (int i = 0; i < 2; i++)
        if (par__setting_read(&par__cuda_settings[i], &value[i], why, sizeof why))
            return par__cuda_fail(cuda, PAR_ERR_ARGUMENT, "par_cuda_open", why);
    if (!cuda->desc.backend) cuda->desc.backend = (par_cuda_backend)(int)value[0];
    if (value[1] > 0) cuda->desc.check = 1;
    if (!cuda->desc.comm || par_rank(cuda->desc.comm) == 0)
        par__settings_warn_misspelled(par__cuda_settings, 2);
    return PAR_OK;
}
// desc.canonical: is the program compiled for it?
#if defined(PAR_CUDA_CANONICAL) || defined(CUDA_EMU)
static __global__ void par__cuda_k_fuses(float x, float y, float *to) { *to = x * x - y; }
#endif
static par_result par__cuda_check_canonical(par_cuda *cuda) {
    par_result r = PAR_ERR_UNSUPPORTED;
#if defined(PAR_CUDA_CANONICAL) || defined(CUDA_EMU)
    void *there;
    float left = 1; // of (1 + 2^-12)^2 - (1 + 2^-11): 0 where the product is rounded
    PAR__CUDA_TRY(par_cuda_alloc(cuda, PAR_CUDA_DEVICE, sizeof left, &there));
    r = par__cuda_launch(cuda, par__cuda_k_fuses, 1, 1, 0, cuda->stream, 1 + 0x1p-12f, 1 + 0x1p-11f,
                         (float *)there);
    if (!r) r = par__cuda_d_copy(&cuda->device, &left, there, sizeof left, NULL);
    if (!r) r = par_cuda_sync(cuda);
    par_cuda_free(cuda, PAR_CUDA_DEVICE, there);
    if (!r && left != 0) r = PAR_ERR_UNSUPPORTED;
#endif
    if (r != PAR_ERR_UNSUPPORTED) return r;
    return par__cuda_fail(cuda, r, "par_cuda_open",
                          "desc.canonical: compile this program with -fmad=false -DPAR_CUDA_CANONICAL");
}
par_result par__cuda_open_at(const char *site, const par_cuda_desc *desc, par_cuda **cuda) {
    par__enter_layer(desc ? desc->comm : NULL, site);
    return par_cuda_open(desc, cuda);
}
par_result par_cuda_open(const par_cuda_desc *desc, par_cuda **out) {
    if (!desc || !out) {
        PAR_LOG("par_cuda_open: desc or cuda is NULL");
        return PAR_ERR_ARGUMENT;
    }
    *out = NULL;
    par_cuda *cuda = (par_cuda *)PAR_MALLOC(sizeof *cuda);
    if (!cuda) {
        PAR_LOG("par_cuda_open: out of memory");
        return PAR_ERR_MEMORY;
    }
    memset(cuda, 0, sizeof *cuda);
    cuda->desc = *desc;
    cuda->references = 1;
    cuda->kept_mappings = PAR__CUDA_KEPT_MAPPINGS;
    cuda->stream = desc->stream;
    cuda->elastic = desc->comm && par__is_elastic(desc->comm);
    par__cuda_device_open(cuda);
    const par_result captured = par__cuda_refuse_capture(cuda, "par_cuda_open", PAR__CUDA_CAPTURED_MEMORY);
    par_result r = captured;
    if (!r) r = par__cuda_read_environment(cuda);
    if (!r) r = par__cuda_device_begin(cuda);
    if (!r && desc->canonical) r = par__cuda_check_canonical(cuda);
    r = par__cuda_agree(cuda, desc->comm, r, "par_cuda_open");
    if (!r && desc->comm) {
        r = par__cuda_choose_backend(cuda);
        if (!r) r = par__cuda_comm_open(cuda, desc->comm, NULL, 0, 0);
    }
#if defined(PAR_ZERO_H)
    par__cuda_zero_open(cuda);
#endif
#if defined(PAR_TP_H)
    par__cuda_tp_open(cuda);
#endif
    if (captured) return PAR_FREE(cuda), r; // nothing is made, and nothing may wait
    if (r) return par__cuda_release(cuda), r;
    return *out = cuda, PAR_OK;
}
// Has this rank waited for its calls on the comms that it leaves? Then they are left, if so wished.
static par_result par__cuda_leave_comms(par_cuda *cuda, par_comm *comm, int leave) {
    for (par_device_backend *x = par__first_backend(comm); x; x = x->next) {
        par__cuda_comm *l = par__cuda_comm_of(x);
        if (x->supports != par__cuda_supports || l->cuda != cuda || l->comm == comm) continue;
        if (l->first && !l->stopped)
            return par__cuda_fail(cuda, PAR_ERR_ARGUMENT, "par_cuda_reopen",
                                  "calls on the comm before are in flight: wait for them");
        l->stopped |= leave;
    }
    return PAR_OK;
}
// The context's comm is another one from now on. When all ranks are here, nobody has anything mapped.
static par_result par__cuda_go_on(par_cuda *cuda, par_comm *comm) {
    par_comm *old = cuda->desc.comm;
    par__cuda_map_state *old_state = cuda->map_state;
    void *nccl = cuda->desc.nccl;
    par_result r = par__cuda_leave_comms(cuda, comm, 0);
    if (!r) r = par__cuda_ipc_close_all(cuda);
    cuda->desc.comm = comm;
    cuda->desc.nccl = NULL; // it has the old ranks
    cuda->map_state = NULL;
    r = par__cuda_agree(cuda, comm, r, "par_cuda_reopen");
    if (!r) par__cuda_free_unmapped(cuda, 1);
    if (!r) r = par__cuda_choose_backend(cuda);
    if (!r) r = par__cuda_comm_open(cuda, comm, NULL, 0, 0);
    if (!r) return par__cuda_leave_comms(cuda, comm, 1);
    cuda->desc.comm = old;
    cuda->desc.nccl = nccl;
    cuda->map_state = old_state;
    return r;
}
par_result par__cuda_reopen_at(const char *site, par_cuda *cuda, par_comm *comm) {
    par__enter_layer(comm, site);
    return par_cuda_reopen(cuda, comm);
}
par_result par_cuda_reopen(par_cuda *cuda, par_comm *comm) {
    if (!comm || par_rank_before(comm, par_rank(comm)) < 0 || par_backend_of(comm))
        return par__cuda_fail(cuda, PAR_ERR_ARGUMENT, "par_cuda_reopen",
                              "comm has a device, or is not of par_shrink or par_grow, which took desc.comm");
    if (cuda->stuck)
        return par__cuda_fail(cuda, PAR_ERR_ABORTED, "par_cuda_reopen",
                              "the device waits for a rank that is gone: this rank must end");
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "par_cuda_reopen", PAR__CUDA_CAPTURED_CLOSE));
    return par__cuda_go_on(cuda, comm);
}
par_result par_cuda_close(par_cuda *cuda) {
    if (!cuda) return PAR_OK;
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "par_cuda_close", PAR__CUDA_CAPTURED_CLOSE));
    return par__cuda_release(cuda), PAR_OK;
}
const char *par_cuda_backend_name(const par_cuda *cuda) {
    return cuda->desc.comm ? par__cuda_backend_names[cuda->backend] : "none";
}

static par_result par__cuda_check_backend(par_comm *comm, const char *call) {
    const par_device_backend *c = par_backend_of(comm);
    return c && c->close == par__cuda_comm_close
               ? PAR_OK
               : par_fail(comm, PAR_ERR_ARGUMENT,
                          "%s: this comm does not take device memory: call par_cuda_open with it, or split "
                          "it from a comm that does",
                          call);
}
par_result par_cuda_limit_ctas(par_comm *comm, int max_ctas) {
    PAR__CUDA_TRY(par__cuda_check_backend(comm, "par_cuda_limit_ctas"));
    par__cuda_comm *l = par__cuda_comm_of(par_backend_of(comm));
    if (max_ctas == PAR_CUDA_COPY_ENGINES && l->kind == PAR_CUDA_NCCL_BACKEND && !PAR__CUDA_POLICY)
        return par_fail(comm, PAR_ERR_UNSUPPORTED, "par_cuda_limit_ctas: copy engines need NCCL 2.28");
    if (max_ctas < PAR_CUDA_COPY_ENGINES || l->first || l->windows)
        return par_fail(
            comm, PAR_ERR_ARGUMENT,
            max_ctas < PAR_CUDA_COPY_ENGINES ? "par_cuda_limit_ctas: max_ctas is %d; 0 is NCCL's choice"
            : l->windows ? "par_cuda_limit_ctas(%d): windows are open on this comm: limit it before "
                           "the layers that use it are opened"
                         : "par_cuda_limit_ctas(%d): calls on this comm are in flight: wait for them",
            max_ctas);
    PAR__CUDA_TRY(
        par__cuda_refuse_capture(l->cuda, "par_cuda_limit_ctas", "the stream is captured: do it before"));
#if defined(PAR_CUDA_NCCL)
    PAR__CUDA_TRY(par__cuda_refuse_graphs(l, "par_cuda_limit_ctas"));
    if (l->nccl) return par__cuda_nccl_limit(l, max_ctas);
#endif
    return PAR_OK;
}
enum { PAR__CUDA_WINDOW_ALIGNMENT = 4096 }; // NCCL_WIN_REQUIRED_ALIGNMENT
par_result par_cuda_window_open(par_comm *comm, void *memory, size_t bytes, void **window) {
    *window = NULL;
    PAR__CUDA_TRY(par__cuda_check_backend(comm, "par_cuda_window"));
    PAR__CUDA_TRY(par__cuda_refuse_capture(par__cuda_comm_of(par_backend_of(comm))->cuda,
                                           "par_cuda_window_open", PAR__CUDA_CAPTURED_WINDOWS));
#if PAR__CUDA_WINDOWS
    par__cuda_comm *l = par__cuda_comm_of(par_backend_of(comm));
    l->window = NULL;
    if (!l->nccl) return PAR_OK;
    if ((uintptr_t)memory % PAR__CUDA_WINDOW_ALIGNMENT)
        return par_fail(
            comm, PAR_ERR_ARGUMENT,
            "par_cuda_window_open: memory must begin a multiple of 4096 bytes after what par_cuda_alloc "
            "gave");
    PAR__CUDA_NCCL_CALL(ncclCommWindowRegister(l->nccl, memory, bytes, &l->window, NCCL_WIN_COLL_SYMMETRIC));
    PAR__CUDA_TRY(par__cuda_nccl_wait_ready(l, "ncclCommWindowRegister"));
    *window = l->window;
    l->windows += l->window != NULL;
#else
    (void)memory;
    (void)bytes;
#endif
    return PAR_OK;
}
par_result par_cuda_window_close(par_comm *comm, void *window) {
    if (!window) return PAR_OK;
    PAR__CUDA_TRY(par__cuda_check_backend(comm, "par_cuda_window"));
#if PAR__CUDA_WINDOWS
    par__cuda_comm *l = par__cuda_comm_of(par_backend_of(comm));
    par_cuda *cuda = l->cuda;
    if (!l->nccl) return PAR_OK; // aborted
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "par_cuda_window_close", PAR__CUDA_CAPTURED_WINDOWS));
    if (l->stream) PAR__CUDA_TRY(par__cuda_wait(cuda, l->stream, NULL, "par_cuda_window_close"));
    l->windows--;
    PAR__CUDA_NCCL_CALL(ncclCommWindowDeregister(l->nccl, (ncclWindow_t)window));
    PAR__CUDA_TRY(par__cuda_nccl_wait_ready(l, "ncclCommWindowDeregister"));
#endif
    return PAR_OK;
}
// Memory in a window where comm communicates by NCCL; elsewhere as DEVICE.
static par_result par__cuda_d_alloc_symmetric(par_device *device, par_comm *comm, size_t bytes,
                                              void **memory) {
    par_cuda *cuda = par__cuda_of(device);
    const par_device_backend *x = par_backend_of(comm);
    const par__cuda_comm *l = x && x->supports == par__cuda_supports ? (const par__cuda_comm *)x : NULL;
    int windows = PAR__CUDA_WINDOWS && l && l->kind == PAR_CUDA_NCCL_BACKEND && l->n > 1;
#if PAR__CUDA_WINDOWS
    if (cuda->elastic) windows = windows && par__cuda_aborts_in_windows(l); // the others must go on
#endif
    if (!windows) return par_cuda_alloc(cuda, PAR_CUDA_DEVICE, bytes, memory);
    par__cuda_window *w = (par__cuda_window *)PAR_MALLOC(sizeof *w);
    bytes = PAR__MAX(bytes, (size_t)16);
    *memory = NULL;
    par_result r = w ? par_cuda_alloc(cuda, PAR_CUDA_SYMMETRIC, bytes, memory) : PAR_ERR_MEMORY;
    r = par__cuda_agree(cuda, l->announce_comm, r, "symmetric memory");
    if (!r) r = par_cuda_window_open(comm, *memory, bytes, &w->window);
    if (r) {
        PAR_FREE(w);
        par_cuda_free(cuda, PAR_CUDA_SYMMETRIC, *memory);
        return *memory = NULL, r;
    }
    w->memory = *memory;
    w->next = cuda->windows;
    cuda->windows = w;
    return PAR_OK;
}
static par_result par__cuda_d_free_symmetric(par_device *device, par_comm *comm, void *memory) {
    par_cuda *cuda = par__cuda_of(device);
    par__cuda_window **link = &cuda->windows;
    while (*link && (*link)->memory != memory) link = &(*link)->next;
    if (!*link) return par_cuda_free(cuda, PAR_CUDA_DEVICE, memory);
    par__cuda_window *w = *link;
    *link = w->next;
    const par_result closed = par_cuda_window_close(comm, w->window),
                     freed = par_cuda_free(cuda, PAR_CUDA_SYMMETRIC, memory);
    PAR_FREE(w);
    return closed ? closed : freed;
}

// >>cuda_gemm -----------------------------------------------------------------------------------------------
//
// C = alpha op(A) op(B) + beta C, row-major, with sums in f32. The plain kernel: a block computes a tile of
// 64 x 64 of C, 16 of K at a time, and each thread 4 x 4 of it.

struct par__cuda_codes { // of an operand in codes of 8 or 4 bits: its cudaDataType_t, 0 for none; its scales
    int type, mode;      // and how cuBLASLt is to use them (cublasLtMatmulMatrixScale_t)
    const void *scales;
};
struct par__cuda_gemm_desc {
    int trans_a, trans_b;
    size_t m, n, k, lda, ldb, ldc;
    float alpha, beta;
    par_dtype type, c_type; // of A and B; of C
    const void *bias;       // of C's type, one for each column; NULL: none
    par__cuda_codes codes_a = {0, 0, NULL}, codes_b = {0, 0, NULL};
    const float *factors = NULL; // alpha and beta in the device's memory; NULL: those above
    int epilogue = 0;            // cublasLtEpilogue_t; 0: bias or nothing
    const void *aux = NULL;      // of the epilogue, with C's shape and ld
    size_t blocks = 1, a_step = 0,
           c_step = 0; // so many products of one B; elements from one's A to the next's
};
enum { PAR__CUDA_TILE = 64, PAR__CUDA_DEPTH = 16 };
enum {
    PAR__CUDA_FEW = 8
}; // numbers in 16 bytes: for fewer rows, columns or terms cuBLASLt has kernels of their own
template <class T, class C>
static __global__ void par__cuda_k_gemm(par__cuda_gemm_desc p, const T *a, const T *b, C *c) {
    PAR__CUDA_SHARED(float, shared);
    float *as = shared,
          *bs = shared + PAR__CUDA_DEPTH * (PAR__CUDA_TILE + 1); // [depth][row], [depth][column]
    const size_t across = (p.n + PAR__CUDA_TILE - 1) / PAR__CUDA_TILE;
    const size_t row0 = blockIdx.x / across * PAR__CUDA_TILE, col0 = blockIdx.x % across * PAR__CUDA_TILE;
    const unsigned tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float sum[4][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
    for (size_t k0 = 0; k0 < p.k; k0 += PAR__CUDA_DEPTH) {
        for (unsigned i = threadIdx.x; i < PAR__CUDA_TILE * PAR__CUDA_DEPTH; i += blockDim.x) {
            const unsigned ra = p.trans_a ? i % PAR__CUDA_TILE : i / PAR__CUDA_DEPTH;
            const unsigned ka = p.trans_a ? i / PAR__CUDA_TILE : i % PAR__CUDA_DEPTH;
            const unsigned cb = p.trans_b ? i / PAR__CUDA_DEPTH : i % PAR__CUDA_TILE;
            const unsigned kb = p.trans_b ? i % PAR__CUDA_DEPTH : i / PAR__CUDA_TILE;
            const size_t r = row0 + ra, col = col0 + cb, ak = k0 + ka, bk = k0 + kb;
            as[ka * (PAR__CUDA_TILE + 1) + ra] =
                r < p.m && ak < p.k ? (float)par__cuda_widen(a[p.trans_a ? ak * p.lda + r : r * p.lda + ak])
                                    : 0.0f;
            bs[kb * (PAR__CUDA_TILE + 1) + cb] =
                col < p.n && bk < p.k
                    ? (float)par__cuda_widen(b[p.trans_b ? col * p.ldb + bk : bk * p.ldb + col])
                    : 0.0f;
        }
        __syncthreads();
        for (unsigned k = 0; k < PAR__CUDA_DEPTH; k++)
            for (unsigned i = 0; i < 4; i++)
                for (unsigned j = 0; j < 4; j++)
                    sum[i][j] +=
                        as[k * (PAR__CUDA_TILE + 1) + ty * 4 + i] * bs[k * (PAR__CUDA_TILE + 1) + tx * 4 + j];
        __syncthreads();
    }
    PAR__CUDA_UNROLL
    for (unsigned i = 0; i < 4; i++) {
        PAR__CUDA_UNROLL
        for (unsigned j = 0; j < 4; j++) {
            const size_t r = row0 + ty * 4 + i, col = col0 + tx * 4 + j;
            if (r >= p.m || col >= p.n) continue;
            C *to = c + r * p.ldc + col;
            const float old = p.beta != 0 ? p.beta * (float)par__cuda_widen(*to) : 0.0f;
            const float add = p.bias ? (float)par__cuda_widen(((const C *)p.bias)[col]) : 0.0f;
            par__cuda_round(to, p.alpha * sum[i][j] + old + add);
        }
    }
}
static par_result par__cuda_plain_gemm(const par_cuda *cuda, const par__cuda_gemm_desc *p, const void *a,
                                       const void *b, void *c, cudaStream_t stream) {
    const size_t down = (p->m + PAR__CUDA_TILE - 1) / PAR__CUDA_TILE,
                 across = (p->n + PAR__CUDA_TILE - 1) / PAR__CUDA_TILE;
    const size_t shared = 2 * PAR__CUDA_DEPTH * (PAR__CUDA_TILE + 1) * sizeof(float);
    dim3 grid;
    PAR__CUDA_TRY(par__cuda_grid(cuda, "matrix product", down * across, &grid));
    const auto run = [&](auto in, auto out) {
        typedef decltype(in) T;
        typedef decltype(out) C;
        return par__cuda_launch(cuda, par__cuda_k_gemm<T, C>, grid, 256, shared, stream, *p, (const T *)a,
                                (const T *)b, (C *)c);
    };
    if (p->type == PAR_F32 && p->c_type == PAR_F32) return run(float(), float());
    if (p->type == PAR_BF16 && p->c_type == PAR_F32) return run(par__cuda_bf16(), float());
    if (p->type == PAR_BF16 && p->c_type == PAR_BF16) return run(par__cuda_bf16(), par__cuda_bf16());
    return PAR_ERR_ARGUMENT;
}
#if defined(PAR_CUDA_CUBLASLT)
static cudaDataType_t par__cuda_data_type(int d) {
#define PAR__X(constant, name, type, sums, family, accumulator, max, mpi, nccl, cuda, ...) cuda,
    static const cudaDataType_t types[] = {PAR_DTYPES(PAR__X)};
#undef PAR__X
    return types[d];
}
static void par__cuda_destroy_plan(par__cuda_gemm_plan *plan) {
    if (plan->c) cublasLtMatrixLayoutDestroy(plan->c);
    if (plan->a) cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b) cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->matmul) cublasLtMatmulDescDestroy(plan->matmul);
    memset(plan, 0, sizeof *plan);
}
// The alignment of an address, at most 16 bytes, which is what kernels load at once. With larger alignments
// the chosen kernel, and with it the bits of a result, would depend on the address of an array.
static int par__cuda_alignment(const void *p) {
    int bytes = 16;
    while ((uintptr_t)p % (unsigned)bytes) bytes /= 2;
    return bytes;
}
// blocks > 1: so many matrices, with `step` elements from one to the next.
static cublasStatus_t par__cuda_set_blocks(cublasLtMatrixLayout_t layout, size_t blocks, size_t step) {
    const int32_t count = (int32_t)blocks;
    const int64_t offset = (int64_t)step;
    if (blocks == 1) return CUBLAS_STATUS_SUCCESS;
    const cublasStatus_t e =
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    return e ? e
             : cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset,
                                                sizeof offset);
}
#define PAR__CUDA_PREFERENCE(what, value)                                                                    \
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_##what, &(value), sizeof(value))
// The scales of operands in codes: cuBLASLt's A is B here. Pointers are each call's own.
static cublasStatus_t par__cuda_set_scales(cublasLtMatmulDesc_t matmul, const par__cuda_gemm_desc *p) {
    const int32_t device = CUBLASLT_POINTER_MODE_DEVICE, a = p->codes_b.mode, b = p->codes_a.mode;
    cublasStatus_t e = cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                                      &p->codes_b.scales, sizeof p->codes_b.scales);
    if (!e)
        e = cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->codes_a.scales,
                                           sizeof p->codes_a.scales);
#if CUBLAS_VERSION >= 120800
    if (!e) e = cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &a, sizeof a);
    if (!e) e = cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &b, sizeof b);
#else
    if (a || b) e = CUBLAS_STATUS_NOT_SUPPORTED;
#endif
    if (!e && p->factors)
        e = cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_POINTER_MODE, &device, sizeof device);
    return e;
}
// Which arrays an epilogue reads and writes: each call's own. cuBLASLt chooses kernels by their alignments.
static cublasStatus_t par__cuda_set_epilogue(cublasLtMatmulDesc_t matmul, const void *bias, const void *aux) {
    cublasStatus_t e = CUBLAS_STATUS_SUCCESS;
    if (bias)
        e = cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (!e && aux)
        e = cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux,
                                           sizeof aux);
    return e;
}
// Says which product of codes cuBLASLt does not have, and where it has it.
static par_result par__cuda_no_codes(const par_cuda *cuda, const par__cuda_gemm_desc *p, cublasStatus_t e) {
    static const struct {
        const char *name, *has;
    } modes[] = {{"SCALAR_32F", "sm_89 on"},
                 {"VEC16_UE4M3", "sm_100 and cuBLAS 12.8 on"},
                 {"VEC32_UE8M0", "sm_100 and cuBLAS 12.8 on"},
                 {"OUTER_VEC_32F", "cuBLAS 12.9 on, on sm_90"},
                 {"VEC128_32F", "cuBLAS 12.9 on, on sm_90"},
                 {"BLK128x128_32F", "cuBLAS 12.9 on, on sm_90"}};
    int major = 0, minor = 0;
    char text[400];
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->ordinal);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->ordinal);
    snprintf(
        text, sizeof text,
        "cuBLASLt %zu on sm_%d%d has no product of %zu x %zu x %zu (%s) with the scale modes %s and %s: it "
        "has them from %s; take another recipe",
        cublasLtGetVersion(), major, minor, p->m, p->n, p->k, cublasLtGetStatusString(e),
        modes[p->codes_a.mode].name, modes[p->codes_b.mode].name, modes[p->codes_a.mode].has);
    return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "matrix product", text);
}
// A product without its kernel, and of cuBLASLt's kernels for it the first `wanted`. cuBLAS is column-major:
// it computes C^T = op(B)^T op(A)^T.
static cublasStatus_t par__cuda_make_plan(const par_cuda *cuda, par__cuda_gemm_plan *plan,
                                          const par__cuda_gemm_desc *desc, int wanted,
                                          cublasLtMatmulHeuristicResult_t *found, int *count) {
    const par__cuda_gemm_key *p = &plan->key;
    const int64_t aux_ld = (int64_t)p->ldc;
    const cublasOperation_t ta = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                            tb = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t type = par__cuda_data_type(p->type), c_type = par__cuda_data_type(p->c_type);
    const cudaDataType_t a_type = p->code_a ? (cudaDataType_t)p->code_a : type,
                         b_type = p->code_b ? (cudaDataType_t)p->code_b : type;
    const uint32_t parts = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulPreference_t preference = NULL;
    *count = 0;
    cublasStatus_t e = cublasLtMatmulDescCreate(&plan->matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!e) e = cublasLtMatmulDescSetAttribute(plan->matmul, CUBLASLT_MATMUL_DESC_TRANSA, &tb, sizeof tb);
    if (!e) e = cublasLtMatmulDescSetAttribute(plan->matmul, CUBLASLT_MATMUL_DESC_TRANSB, &ta, sizeof ta);
    if (!e && p->sm_count)
        e = cublasLtMatmulDescSetAttribute(plan->matmul, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &p->sm_count,
                                           sizeof p->sm_count);
    if (!e && p->code_a) e = par__cuda_set_scales(plan->matmul, desc);
    if (!e && p->epilogue) // of C^T, which has a row for each number of the bias
        e = cublasLtMatmulDescSetAttribute(plan->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue,
                                           sizeof p->epilogue);
    if (!e && p->align_aux)
        e = cublasLtMatmulDescSetAttribute(plan->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld,
                                           sizeof aux_ld);
    if (!e) // addresses with these alignments
        e = par__cuda_set_epilogue(plan->matmul, (const void *)(uintptr_t)p->align_bias,
                                   (const void *)(uintptr_t)p->align_aux);
    if (!e)
        e = cublasLtMatrixLayoutCreate(&plan->b, b_type, p->trans_b ? p->k : p->n, p->trans_b ? p->n : p->k,
                                       (int64_t)p->ldb);
    if (!e)
        e = cublasLtMatrixLayoutCreate(&plan->a, a_type, p->trans_a ? p->m : p->k, p->trans_a ? p->k : p->m,
                                       (int64_t)p->lda);
    if (!e) e = cublasLtMatrixLayoutCreate(&plan->c, c_type, p->n, p->m, (int64_t)p->ldc);
    if (!e) e = par__cuda_set_blocks(plan->a, p->blocks, p->a_step);
    if (!e) e = par__cuda_set_blocks(plan->b, p->blocks, 0);
    if (!e) e = par__cuda_set_blocks(plan->c, p->blocks, p->c_step);
    if (!e) e = cublasLtMatmulPreferenceCreate(&preference);
    if (!e) e = PAR__CUDA_PREFERENCE(MAX_WORKSPACE_BYTES, cuda->workspace_bytes);
    if (!e && par_dtype_bytes((par_dtype)p->c_type) < 4) // parts of a sum are added in f32, and rounded once
        e = PAR__CUDA_PREFERENCE(REDUCTION_SCHEME_MASK, parts);
    if (!e) e = PAR__CUDA_PREFERENCE(MIN_ALIGNMENT_A_BYTES, p->align_b); // else it takes 256 for granted
    if (!e) e = PAR__CUDA_PREFERENCE(MIN_ALIGNMENT_B_BYTES, p->align_a);
    if (!e) e = PAR__CUDA_PREFERENCE(MIN_ALIGNMENT_C_BYTES, p->align_c);
    if (!e) e = PAR__CUDA_PREFERENCE(MIN_ALIGNMENT_D_BYTES, p->align_c);
    if (!e)
        e = cublasLtMatmulAlgoGetHeuristic(cuda->cublas, plan->matmul, plan->b, plan->a, plan->c, plan->c,
                                           preference, wanted, found, count);
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
    return e;
}
// The workspace of a stream, which its first product allocates.
static par_result par__cuda_find_workspace(par_cuda *cuda, cudaStream_t stream, void **memory) {
    par__cuda_workspace *x = cuda->workspaces;
    while (x && x->stream != stream) x = x->next;
    if (x) return *memory = x->memory, PAR_OK;
    x = (par__cuda_workspace *)PAR_MALLOC(sizeof *x);
    if (!x) return par__cuda_fail(cuda, PAR_ERR_MEMORY, "matrix product", "out of memory");
    const par_result r =
        par__cuda_malloc(cuda, cuda->workspace_bytes, &x->memory); // not zeroed: of any stream
    if (r) return PAR_FREE(x), r;
    x->stream = stream;
    x->next = cuda->workspaces;
    cuda->workspaces = x;
    return *memory = x->memory, PAR_OK;
}
static par__cuda_gemm_key par__cuda_gemm_key_of(const par_cuda *cuda, const par__cuda_gemm_desc *p,
                                                const void *a, const void *b, const void *c) {
    par__cuda_gemm_key key;
    memset(&key, 0, sizeof key);
    key.trans_a = p->trans_a;
    key.trans_b = p->trans_b;
    key.m = p->m;
    key.n = p->n;
    key.k = p->k;
    key.lda = p->lda;
    key.ldb = p->ldb;
    key.ldc = p->ldc;
    key.type = p->type;
    key.c_type = p->c_type;
    key.code_a = p->codes_a.type;
    key.mode_a = p->codes_a.mode;
    key.code_b = p->codes_b.type;
    key.mode_b = p->codes_b.mode;
    key.factors = p->factors != NULL;
    key.epilogue = p->epilogue ? p->epilogue : p->bias ? (int)CUBLASLT_EPILOGUE_BIAS : 0;
    key.sm_count = par__cuda_free_sms(cuda);
    const size_t a_bytes = p->a_step * par_dtype_bytes(p->type),
                 c_bytes = p->c_step * par_dtype_bytes(p->c_type);
    key.blocks = p->blocks;
    key.a_step = p->a_step;
    key.c_step = p->c_step;
    key.align_a = par__cuda_alignment((const void *)((uintptr_t)a | a_bytes)); // of each block's
    key.align_b = par__cuda_alignment(b);
    key.align_c = par__cuda_alignment((const void *)((uintptr_t)c | c_bytes));
    key.align_bias = p->bias ? par__cuda_alignment(p->bias) : 0;
    key.align_aux = p->aux ? par__cuda_alignment(p->aux) : 0;
    return key;
}
static const par__cuda_tuned *par__cuda_tuned_of(const par_cuda *cuda, const par__cuda_gemm_key *key) {
    for (size_t i = 0; i < cuda->tuned_count; i++)
        if (!memcmp(&cuda->tuned[i].key, key, sizeof *key)) return &cuda->tuned[i];
    return NULL;
}
// Makes a plan with cuBLASLt's first kernel, or with that which was measured to be the fastest.
static cublasStatus_t par__cuda_choose_plan(const par_cuda *cuda, par__cuda_gemm_plan *plan,
                                            const par__cuda_gemm_desc *p) {
    const par__cuda_tuned *tuned = par__cuda_tuned_of(cuda, &plan->key);
    cublasLtMatmulHeuristicResult_t found[PAR__CUDA_CANDIDATES];
    const int which = tuned ? tuned->plan : 0;
    int count;
    const cublasStatus_t e =
        par__cuda_make_plan(cuda, plan, p, tuned ? PAR__CUDA_CANDIDATES : 1, found, &count);
    if (e || which >= count) return e ? e : CUBLAS_STATUS_NOT_SUPPORTED;
    plan->heuristic = found[which];
    return found[which].state;
}
// The plan of a product, made if there is none. UNSUPPORTED, and no text: there is no kernel with its
// epilogue.
static par_result par__cuda_find_plan(par_cuda *cuda, const par__cuda_gemm_desc *p,
                                      const par__cuda_gemm_key *key, par__cuda_gemm_plan **out) {
    par__cuda_gemm_plan *plan = NULL, *oldest = &cuda->plans[0];
    for (int i = 0; i < PAR__CUDA_MAX_PLANS && !plan; i++) {
        par__cuda_gemm_plan *x = &cuda->plans[i];
        if (x->last_used && !memcmp(&x->key, key, sizeof *key)) plan = x;
        if (x->last_used < oldest->last_used) oldest = x;
    }
    if (!plan) {
        plan = oldest;
        par__cuda_destroy_plan(plan);
        plan->key = *key;
        const cublasStatus_t e = par__cuda_choose_plan(cuda, plan, p);
        if (e) {
            par__cuda_destroy_plan(plan);
            if (p->codes_a.type) return par__cuda_no_codes(cuda, p, e);
            if (!p->epilogue)
                return par__cuda_fail(cuda, PAR_ERR_SYSTEM, "cuBLASLt", cublasLtGetStatusString(e));
            plan->key = *key; // it is not asked again
        }
    }
    plan->last_used = ++cuda->plan_clock;
    *out = plan;
    return plan->matmul ? PAR_OK : PAR_ERR_UNSUPPORTED;
}
static cublasStatus_t par__cuda_run_plan(const par_cuda *cuda, const par__cuda_gemm_plan *plan,
                                         const par__cuda_gemm_desc *p, const cublasLtMatmulAlgo_t *algorithm,
                                         const void *a, const void *b, void *c, void *workspace,
                                         cudaStream_t stream) {
    const float *alpha = p->factors ? p->factors : &p->alpha, *beta = p->factors ? p->factors + 1 : &p->beta;
    cublasStatus_t e = par__cuda_set_epilogue(plan->matmul, p->bias, p->aux);
    if (!e && p->codes_a.type) e = par__cuda_set_scales(plan->matmul, p);
    if (e) return e;
    return cublasLtMatmul(cuda->cublas, plan->matmul, alpha, b, plan->b, a, plan->a, beta, c, plan->c, c,
                          plan->c, algorithm, workspace, cuda->workspace_bytes, stream);
}
// For few rows, columns or terms cuBLASLt takes kernels that count an array's elements with 32 bits, and of a
// larger array write elsewhere: 13.1 on H200, of 1 column, 65536 rows with a leading dimension of 50264.
static bool par__cuda_miscounts(const par_cuda *cuda, const par__cuda_gemm_desc *p) {
    const size_t a = (p->trans_a ? p->k : p->m) * p->lda, b = (p->trans_b ? p->n : p->k) * p->ldb;
    const bool few = PAR__MIN(PAR__MIN(p->m, p->n), p->k) < PAR__CUDA_FEW && !p->codes_a.type;
    return few && PAR__MAX(PAR__MAX(a, b), p->m * p->ldc) > cuda->most_elements;
}
static par_result par__cuda_plain_blocks(const par_cuda *cuda, const par__cuda_gemm_desc *p, const void *a,
                                         const void *b, void *c, cudaStream_t stream) {
    for (size_t i = 0; i < p->blocks; i++)
        PAR__CUDA_TRY(par__cuda_plain_gemm(cuda, p,
                                           (const char *)a + i * p->a_step * par_dtype_bytes(p->type), b,
                                           (char *)c + i * p->c_step * par_dtype_bytes(p->c_type), stream));
    return PAR_OK;
}
// cuBLASLt takes longer to choose a kernel than to run a small product, so the choice for each shape is
// cached.
static par_result par__cuda_cublaslt_one(par_cuda *cuda, const par__cuda_gemm_desc *p, const void *a,
                                         const void *b, void *c, cudaStream_t stream) {
    if (par__cuda_miscounts(cuda, p))
        return p->epilogue ? PAR_ERR_UNSUPPORTED : par__cuda_plain_blocks(cuda, p, a, b, c, stream);
    const par__cuda_gemm_key key = par__cuda_gemm_key_of(cuda, p, a, b, c);
    par__cuda_gemm_plan *plan = NULL;
    void *workspace;
    PAR__CUDA_TRY(par__cuda_find_workspace(cuda, stream, &workspace));
    PAR__CUDA_TRY(par__cuda_find_plan(cuda, p, &key, &plan));
    const cublasStatus_t e =
        par__cuda_run_plan(cuda, plan, p, &plan->heuristic.algo, a, b, c, workspace, stream);
    if (e == CUBLAS_STATUS_NOT_SUPPORTED && p->codes_a.type) return par__cuda_no_codes(cuda, p, e);
    return e ? par__cuda_fail(cuda, PAR_ERR_SYSTEM, "cuBLASLt", cublasLtGetStatusString(e)) : PAR_OK;
}
// cuBLASLt's fast kernels move 16 bytes of a row, so a row of A, B and C has to be a multiple of 8 numbers.
// Else a large product is two: first of what is left over, then of the rest.
//     n = 50257       C's last column, then 50256
//     k = 50257       C = A's last column times B's last row + beta C; then C += the rest, so that the large
//                     sum is rounded once
// Of a vocabulary of 50257 these products took 53 and 39 ms of a step of GPT-2 on H200.
static par_result par__cuda_cublaslt_gemm(par_cuda *cuda, const par__cuda_gemm_desc *p, const void *a,
                                          const void *b, void *c, cudaStream_t stream) {
    const size_t bytes = par_dtype_bytes(p->type), whole_n = p->n / 8 * 8, whole_k = p->k / 8 * 8;
    const bool k_in_rows = !p->trans_a || p->trans_b, by_8 = (p->lda | p->ldb | p->ldc) % 8 == 0;
    const bool splits = bytes == 2 && by_8 && !p->epilogue && !p->codes_a.type && !p->factors &&
                        p->m * p->n * p->k >= cuda->split_from;
    par__cuda_gemm_desc left = *p, rest = *p;
    const void *left_a = a, *left_b = b;
    void *left_c = c;
    if (splits && whole_n && whole_n < p->n) {
        left.n -= rest.n = whole_n;
        left_b = (const char *)b + whole_n * (p->trans_b ? p->ldb : 1) * bytes;
        left_c = (char *)c + whole_n * par_dtype_bytes(p->c_type);
        if (p->bias) left.bias = (const char *)p->bias + whole_n * par_dtype_bytes(p->c_type);
    } else if (splits && k_in_rows && whole_k && whole_k < p->k) {
        left.k -= rest.k = whole_k;
        left_a = (const char *)a + whole_k * (p->trans_a ? p->lda : 1) * bytes;
        left_b = (const char *)b + whole_k * (p->trans_b ? 1 : p->ldb) * bytes;
        left.bias = NULL;
        rest.beta = 1;
    } else {
        return par__cuda_cublaslt_one(cuda, p, a, b, c, stream);
    }
    PAR__CUDA_TRY(par__cuda_cublaslt_one(cuda, &left, left_a, left_b, left_c, stream));
    return par__cuda_cublaslt_gemm(cuda, &rest, a, b, c, stream);
}
#endif
static par_result par__cuda_gemm(par_cuda *cuda, const par__cuda_gemm_desc *p, const void *a, const void *b,
                                 void *c, cudaStream_t stream) {
    if (!p->m || !p->n) return PAR_OK;
#if defined(PAR_CUDA_CUBLASLT)
    if (p->k) return par__cuda_cublaslt_gemm(cuda, p, a, b, c, stream);
#endif
    return par__cuda_plain_gemm(cuda, p, a, b, c, stream);
}
static par_result par__cuda_products_open(par_cuda *cuda) {
#if defined(PAR_CUDA_CUBLASLT)
    const cublasStatus_t e = cublasLtCreate(&cuda->cublas);
    if (e) return par__cuda_fail(cuda, PAR_ERR_SYSTEM, "cublasLtCreate", cublasLtGetStatusString(e));
    int major = 0;
    PAR__CUDA_CALL(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->ordinal));
    cuda->workspace_bytes = (size_t)(major >= 9 ? 32 : 4) << 20; // what its kernels ask for
    cuda->split_from = (size_t)1 << 32;                          // a few microseconds more
    cuda->most_elements = 0x7FFFFFFF;
    cuda->fuses = major >= 9; // before Hopper the fused kernels are slower than two (llm.c, matmul.cuh)
    void *workspace;
    PAR__CUDA_TRY(par__cuda_find_workspace(cuda, cuda->stream, &workspace));
#else
    (void)cuda;
#endif
    return PAR_OK;
}
static void par__cuda_products_close(par_cuda *cuda) { // but the workspaces
#if defined(PAR_CUDA_CUBLASLT)
    for (int i = 0; i < PAR__CUDA_MAX_PLANS; i++) par__cuda_destroy_plan(&cuda->plans[i]);
    PAR_FREE(cuda->tuned);
    if (cuda->cublas) cublasLtDestroy(cuda->cublas);
#else
    (void)cuda;
#endif
}

// >>cuda_tune -----------------------------------------------------------------------------------------------
//
// A trial is a product whose candidates run in turns, so that all meet the same clock rate:
//
//     round 0: c0 c0 c0 | c1 c1 c1 | ...     first launches: not timed; the bits that each candidate gives
//     round 1: c0 c0 c0 | c1 c1 c1 | ...     timed by events around each three; the same bits again?
//     ...                                    a candidate's time is that of its fastest round
//
// Invariant: all ranks have the same table, since each product is measured by one rank, the first that has
// it.

#if defined(PAR_CUDA_CUBLASLT)
enum {
    PAR__CUDA_TRIAL_ROUNDS = 6,
    PAR__CUDA_TRIAL_REPEATS = 3,
    PAR__CUDA_TRIAL_SUMS = 64 * PAR__CUDA_THREADS, // threads at most that look for other bits
    PAR__CUDA_TUNED_FILE_BYTES = 4 << 20           // a file is no larger
};
// Where the parts of a trial's memory begin. What a product writes lies side by side.
enum {
    PAR__CUDA_TRIAL_A,
    PAR__CUDA_TRIAL_B,
    PAR__CUDA_TRIAL_C,
    PAR__CUDA_TRIAL_AUX,
    PAR__CUDA_TRIAL_BIAS,
    PAR__CUDA_TRIAL_SCALES_A,
    PAR__CUDA_TRIAL_SCALES_B,
    PAR__CUDA_TRIAL_FACTORS,
    PAR__CUDA_TRIAL_SUM, // of each candidate, for each thread that looks for other bits
    PAR__CUDA_TRIAL_DIFFERS,
    PAR__CUDA_TRIAL_PARTS
};
struct par__cuda_trial {
    par__cuda_gemm_plan plan;
    cublasLtMatmulHeuristicResult_t found[PAR__CUDA_CANDIDATES];
    int count, fails[PAR__CUDA_CANDIDATES];
    size_t part[PAR__CUDA_TRIAL_PARTS + 1];
    char *memory;
    cudaEvent_t event[PAR__CUDA_CANDIDATES][PAR__CUDA_TRIAL_ROUNDS][2];
};
struct par__cuda_choice {                 // what ranks tell each other of a product
    uint32_t plan, refused, first_ns, ns; // plan: 1 + its number; 0: not measured
};
struct par__cuda_tuner {
    char identity[400];    // of the device and the library
    par__cuda_tuned *list; // of the file; then those to be measured
    size_t count;
    par__cuda_trial trial;
};

// Bits at random where `random` has ones, else those of `fixed`.
static __global__ void par__cuda_k_trial_fill(uint32_t *to, size_t words, uint32_t fixed, uint32_t random) {
    const size_t threads = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += threads) {
        uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u;
        x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
        to[i] = fixed | ((uint32_t)(x >> 32) & random);
    }
}
// Each thread keeps a sum over its words in the first round, and looks in the others whether it is the same.
static __global__ void par__cuda_k_trial_watch(const uint32_t *x, size_t words, uint64_t *sum,
                                               uint32_t *differs, int first) {
    const size_t threads = (size_t)gridDim.x * blockDim.x, me = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    uint64_t s = 0;
    for (size_t i = me; i < words; i += threads) s = (s ^ x[i]) * 0x9E3779B97F4A7C15u;
    if (first)
        sum[me] = s;
    else if (sum[me] != s)
        atomicMax(differs, 1u);
}

static void par__cuda_trial_layout(par__cuda_trial *t) {
    const par__cuda_gemm_key *k = &t->plan.key;
    const size_t c = par_dtype_bytes((par_dtype)k->c_type), block = k->code_a ? 1 : 0;
    const size_t e = k->code_a ? 1 : par_dtype_bytes((par_dtype)k->type);
    const size_t scales =
        block * par__round_up((k->k + 15) / 16, 4); // of a row: at most a byte for 16 numbers
    const size_t more_a = (k->blocks - 1) * k->a_step, more_c = (k->blocks - 1) * k->c_step;
    const size_t bytes[PAR__CUDA_TRIAL_PARTS] = {((k->trans_a ? k->k : k->m) * k->lda + more_a) * e,
                                                 (k->trans_b ? k->n : k->k) * k->ldb * e,
                                                 (k->m * k->ldc + more_c) * c,
                                                 k->align_aux ? k->m * k->ldc * c : 0,
                                                 k->align_bias ? PAR__MAX(k->m, k->n) * c : 0,
                                                 par__round_up(k->m, 128) * scales,
                                                 par__round_up(k->n, 128) * scales,
                                                 2 * sizeof(float),
                                                 PAR__CUDA_CANDIDATES * PAR__CUDA_TRIAL_SUMS *
                                                     sizeof(uint64_t),
                                                 PAR__CUDA_CANDIDATES * sizeof(uint32_t)};
    t->part[0] = 0;
    for (int i = 0; i < PAR__CUDA_TRIAL_PARTS; i++)
        t->part[i + 1] = t->part[i] + par__round_up(bytes[i] + 16, 256); // 16: an array may begin a bit later
}
static void *par__cuda_trial_at(const par__cuda_trial *t, int part, int alignment) { // exactly
    return t->memory + t->part[part] + alignment % 16;
}
// Numbers between 0.5 and 2, of both signs, so that each order of a sum has its own bits; scales are 1.
static par_result par__cuda_trial_fill(const par_cuda *cuda, const par__cuda_trial *t) {
    const par__cuda_gemm_key *k = &t->plan.key;
    for (int i = PAR__CUDA_TRIAL_A; i <= PAR__CUDA_TRIAL_SCALES_B; i++) {
        const int scales = i >= PAR__CUDA_TRIAL_SCALES_A, code = i <= PAR__CUDA_TRIAL_B && k->code_a;
        const int mode = i == PAR__CUDA_TRIAL_SCALES_A ? k->mode_a : k->mode_b;
        const int wide = par_dtype_bytes((par_dtype)(i <= PAR__CUDA_TRIAL_B ? k->type : k->c_type)) == 4;
        const uint32_t one = mode == 1 ? 0x38383838 : mode == 2 ? 0x7F7F7F7F : 0x3F800000;
        const uint32_t fixed = scales ? one : code ? 0 : wide ? 0x3F000000 : 0x3F003F00;
        const uint32_t random = scales ? 0 : code ? 0xBFBFBFBF : wide ? 0x80FFFFFF : 0x80FF80FF;
        const size_t words = (t->part[i + 1] - t->part[i]) / 4;
        PAR__CUDA_TRY(par__cuda_over(cuda, (words + 3) / 4, par__cuda_k_trial_fill,
                                     (uint32_t *)(void *)(t->memory + t->part[i]), words, fixed, random));
    }
    return PAR_OK;
}
// The product of a key, with arrays of the trial's memory that have the same alignments.
static par__cuda_gemm_desc par__cuda_trial_desc(const par__cuda_trial *t) {
    const par__cuda_gemm_key *k = &t->plan.key;
    par__cuda_gemm_desc p = {
        k->trans_a,         k->trans_b,           k->m, k->n, k->k, k->lda, k->ldb, k->ldc, 1, 0,
        (par_dtype)k->type, (par_dtype)k->c_type, NULL};
    p.epilogue = k->epilogue;
    p.blocks = k->blocks;
    p.a_step = k->a_step;
    p.c_step = k->c_step;
    if (k->align_bias) p.bias = par__cuda_trial_at(t, PAR__CUDA_TRIAL_BIAS, k->align_bias);
    if (k->align_aux) p.aux = par__cuda_trial_at(t, PAR__CUDA_TRIAL_AUX, k->align_aux);
    if (k->factors) p.factors = (const float *)par__cuda_trial_at(t, PAR__CUDA_TRIAL_FACTORS, 0);
    p.codes_a.type = k->code_a;
    p.codes_a.mode = k->mode_a;
    p.codes_a.scales = par__cuda_trial_at(t, PAR__CUDA_TRIAL_SCALES_A, 0);
    p.codes_b.type = k->code_b;
    p.codes_b.mode = k->mode_b;
    p.codes_b.scales = par__cuda_trial_at(t, PAR__CUDA_TRIAL_SCALES_B, 0);
    return p;
}
// Enqueues all rounds: the host must not wait between them, else the device would be idle, and then measured.
static par_result par__cuda_trial_enqueue(par_cuda *cuda, par__cuda_trial *t, const par__cuda_gemm_desc *p) {
    const par__cuda_gemm_key *k = &t->plan.key;
    const size_t words = (t->part[PAR__CUDA_TRIAL_SCALES_A] - t->part[PAR__CUDA_TRIAL_C]) / 4;
    const unsigned blocks = (unsigned)PAR__MIN((words + PAR__CUDA_THREADS - 1) / PAR__CUDA_THREADS,
                                               (size_t)PAR__CUDA_TRIAL_SUMS / PAR__CUDA_THREADS);
    const void *a = par__cuda_trial_at(t, PAR__CUDA_TRIAL_A, k->align_a);
    const void *b = par__cuda_trial_at(t, PAR__CUDA_TRIAL_B, k->align_b);
    void *c = par__cuda_trial_at(t, PAR__CUDA_TRIAL_C, k->align_c), *workspace;
    uint64_t *sum = (uint64_t *)par__cuda_trial_at(t, PAR__CUDA_TRIAL_SUM, 0);
    uint32_t *differs = (uint32_t *)par__cuda_trial_at(t, PAR__CUDA_TRIAL_DIFFERS, 0);
    PAR__CUDA_TRY(par__cuda_find_workspace(cuda, cuda->stream, &workspace));
    for (int round = 0; round < PAR__CUDA_TRIAL_ROUNDS; round++)
        for (int i = 0; i < t->count; i++) {
            if (t->found[i].state) t->fails[i] = 1; // the rest of it is not valid
            if (t->fails[i]) continue;
            PAR__CUDA_CALL(cudaEventRecord(t->event[i][round][0], cuda->stream));
            for (int n = 0; n < PAR__CUDA_TRIAL_REPEATS && !t->fails[i]; n++)
                t->fails[i] = par__cuda_run_plan(cuda, &t->plan, p, &t->found[i].algo, a, b, c, workspace,
                                                 cuda->stream) != CUBLAS_STATUS_SUCCESS;
            PAR__CUDA_CALL(cudaEventRecord(t->event[i][round][1], cuda->stream));
            PAR__CUDA_TRY(
                par__cuda_launch(cuda, par__cuda_k_trial_watch, blocks, PAR__CUDA_THREADS, 0, cuda->stream,
                                 (const uint32_t *)(void *)(t->memory + t->part[PAR__CUDA_TRIAL_C]), words,
                                 sum + (size_t)i * PAR__CUDA_TRIAL_SUMS, differs + i, round == 0));
        }
    return PAR_OK;
}
static par_result par__cuda_trial_choose(par_cuda *cuda, par__cuda_trial *t, par__cuda_choice *choice) {
    uint32_t differs[PAR__CUDA_CANDIDATES];
    float ms[PAR__CUDA_CANDIDATES];
    int best = 0;
    PAR__CUDA_TRY(par__cuda_d_copy(&cuda->device, differs, par__cuda_trial_at(t, PAR__CUDA_TRIAL_DIFFERS, 0),
                                   sizeof differs, NULL));
    PAR__CUDA_TRY(par_cuda_sync(cuda));
    for (int i = 0; i < t->count; i++) {
        ms[i] = INFINITY;
        for (int round = 1; round < PAR__CUDA_TRIAL_ROUNDS && !t->fails[i]; round++) {
            float once = 0;
            PAR__CUDA_CALL(cudaEventElapsedTime(&once, t->event[i][round][0], t->event[i][round][1]));
            ms[i] = PAR__MIN(ms[i], once / PAR__CUDA_TRIAL_REPEATS);
        }
        choice->refused += !t->fails[i] && differs[i];
        if (differs[i]) t->fails[i] = 1;
        if (!t->fails[i] && (t->fails[best] || ms[i] < ms[best])) best = i;
    }
    if (!t->fails[0] && ms[best] > 0.98f * ms[0]) best = 0;
    choice->plan = 1 + (uint32_t)best; // the first one where none is left, as without a measurement
    choice->first_ns = t->fails[0] ? 0 : (uint32_t)PAR__MIN(1e6f * ms[0], 4e9f);
    choice->ns = t->fails[0] ? 0 : (uint32_t)PAR__MIN(1e6f * ms[best], 4e9f);
    return PAR_OK;
}
// Measures the candidates of one product. choice->plan 0: its arrays find no memory.
static par_result par__cuda_try_product(par_cuda *cuda, par__cuda_trial *t, const par__cuda_gemm_key *key,
                                        par__cuda_choice *choice) {
    static const float factors[2] = {1, 0};
    t->plan.key = *key;
    memset(t->fails, 0, sizeof t->fails);
    par__cuda_trial_layout(t);
    const cudaError_t e = cudaMalloc((void **)&t->memory, t->part[PAR__CUDA_TRIAL_PARTS]);
    if (e == cudaErrorMemoryAllocation) return cudaGetLastError(), PAR_OK;
    PAR__CUDA_TRY(par__cuda_check(cuda, e, "cudaMalloc"));
    const par__cuda_gemm_desc p = par__cuda_trial_desc(t);
    par_result r = par__cuda_check(cuda,
                                   cudaMemsetAsync(par__cuda_trial_at(t, PAR__CUDA_TRIAL_DIFFERS, 0), 0,
                                                   sizeof(uint32_t) * PAR__CUDA_CANDIDATES, cuda->stream),
                                   "cudaMemsetAsync");
    if (!r)
        r = par__cuda_d_copy(&cuda->device, par__cuda_trial_at(t, PAR__CUDA_TRIAL_FACTORS, 0), factors,
                             sizeof factors, NULL);
    if (!r) r = par__cuda_trial_fill(cuda, t);
    const cublasStatus_t made =
        par__cuda_make_plan(cuda, &t->plan, &p, PAR__CUDA_CANDIDATES, t->found, &t->count);
    if (!r && !made) r = par__cuda_trial_enqueue(cuda, t, &p);
    if (!r && !made) r = par__cuda_trial_choose(cuda, t, choice);
    par__cuda_destroy_plan(&t->plan);
    const cudaError_t freed = cudaFree(t->memory);
    return r ? r : par__cuda_check(cuda, freed, "cudaFree");
}

// ---- the file of plans
//
//     par_cuda_tune 2
//     device NVIDIA H200, 132 SMs, 9.0, cuBLASLt 130100
//     # m n k lda ... plan
//     768 1024 3072 ... 3
//     end 1

static const char par__cuda_tuned_begin[] = "par_cuda_tune 2\ndevice ";
static int par__cuda_tuned_number(const char **text, uint64_t max, uint64_t *value) { // 0: there is none
    const char *c = *text;
    *value = 0;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (*value > max / 10) return 0;
        *value = *value * 10 + (uint64_t)(*c - '0');
    }
    if (c == *text || *value > max || (*c != ' ' && *c != '\n')) return 0;
    *text = c + 1;
    return 1;
}
static int par__cuda_tuned_row(const char **text, par__cuda_tuned *row) { // 0: it is none
    uint64_t x = 0;
    int ok = 1;
    memset(row, 0, sizeof *row);
#define PAR__X(type, name)                                                                                   \
    ok = ok && par__cuda_tuned_number(text, sizeof(type) == 8 ? (uint64_t)1 << 53 : 0x7FFFFFFF, &x);         \
    row->key.name = (type)x;
    PAR__CUDA_GEMM_KEY(PAR__X)
#undef PAR__X
    ok = ok && par__cuda_tuned_number(text, PAR__CUDA_CANDIDATES - 1, &x);
    row->plan = (int)x;
    return ok && row->key.m && row->key.blocks && (*text)[-1] == '\n';
}
static par_result par__cuda_tuned_add(const par_cuda *cuda, par__cuda_tuned **list, size_t *count,
                                      const par__cuda_tuned *row) {
    par__cuda_tuned *more = (par__cuda_tuned *)PAR_REALLOC(*list, (*count + 1) * sizeof *more);
    if (!more) return par__cuda_fail(cuda, PAR_ERR_MEMORY, "par_cuda_tune", "out of memory");
    *list = more;
    more[(*count)++] = *row;
    return PAR_OK;
}
// Reads the text of a file, which ends with a 0. None of another device.
static par_result par__cuda_tuned_parse(const par_cuda *cuda, const char *path, const char *text,
                                        par__cuda_tuner *t) {
    const size_t begin = sizeof par__cuda_tuned_begin - 1, n = strlen(t->identity);
    char why[600];
    uint64_t rows = 0;
    const char *c = strncmp(text, par__cuda_tuned_begin, begin) ? NULL : strchr(text + begin, '\n');
    if (c && ((size_t)(c - text) != begin + n || memcmp(text + begin, t->identity, n))) return PAR_OK;
    if (c) c = strchr(c + 1, '\n'); // after the names of columns
    int line = c ? 4 : 1, ok = c != NULL;
    c += ok;
    for (; ok && strncmp(c, "end ", 4); line++) {
        par__cuda_tuned row;
        ok = par__cuda_tuned_row(&c, &row);
        if (ok) PAR__CUDA_TRY(par__cuda_tuned_add(cuda, &t->list, &t->count, &row));
    }
    if (ok) c += 4;
    if (ok && par__cuda_tuned_number(&c, 0x7FFFFFFF, &rows) && rows == t->count && c[-1] == '\n' && !*c)
        return PAR_OK;
    snprintf(why, sizeof why,
             "line %d of %.400s is not what par_cuda_tune writes: name another file, or delete this one",
             line, path);
    return par__cuda_fail(cuda, PAR_ERR_FILE, "par_cuda_tune", why);
}
static par_result par__cuda_tuned_read(const par_cuda *cuda, const char *path, par__cuda_tuner *t) {
    char why[500] = "it is larger than what par_cuda_tune writes: is it another file?";
    size_t bytes, got = 0;
    if (access(path, F_OK) && errno == ENOENT) return PAR_OK;
    const int fd = par__open_read(path, &bytes, why, sizeof why);
    char *text = fd >= 0 && bytes <= PAR__CUDA_TUNED_FILE_BYTES ? (char *)PAR_MALLOC(bytes + 1) : NULL;
    while (text && got < bytes) {
        const ssize_t n = read(fd, text + got, bytes - got);
        if (n == 0 || (n < 0 && errno != EINTR)) break;
        got += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0) close(fd);
    if (!text) return par__cuda_fail(cuda, PAR_ERR_FILE, "par_cuda_tune", why);
    text[got] = 0;
    const par_result r = par__cuda_tuned_parse(cuda, path, text, t);
    return PAR_FREE(text), r;
}
static int par__cuda_tuned_print(const par_cuda *cuda, const char *identity, FILE *f) { // 0: see errno
    fprintf(f, "%s%s\n#", par__cuda_tuned_begin, identity);
#define PAR__X(type, name) fprintf(f, " " #name);
    PAR__CUDA_GEMM_KEY(PAR__X)
#undef PAR__X
    fprintf(f, " plan\n");
    for (size_t i = 0; i < cuda->tuned_count; i++) {
        const par__cuda_tuned *row = &cuda->tuned[i];
#define PAR__X(type, name) fprintf(f, "%llu ", (unsigned long long)row->key.name);
        PAR__CUDA_GEMM_KEY(PAR__X)
#undef PAR__X
        fprintf(f, "%d\n", row->plan);
    }
    return fprintf(f, "end %zu\n", cuda->tuned_count) > 0 && !fflush(f) && !ferror(f) && !fsync(fileno(f));
}
// Writes the table beside the file and renames it, so that nobody reads a part of it.
static par_result par__cuda_tuned_write(const par_cuda *cuda, const char *path, const char *identity) {
    char *beside = (char *)PAR_MALLOC(strlen(path) + 5), why[600];
    if (!beside) return par__cuda_fail(cuda, PAR_ERR_MEMORY, "par_cuda_tune", "out of memory");
    snprintf(beside, strlen(path) + 5, "%s.new", path);
    const int fd = par__open_replace(beside);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    int e = f && par__cuda_tuned_print(cuda, identity, f) ? 0 : errno ? errno : EIO;
    if (f && fclose(f) && !e) e = errno;
    if (fd >= 0 && !f) close(fd);
    if (!e && rename(beside, path)) e = errno;
    if (e && fd >= 0) unlink(beside);
    PAR_FREE(beside);
    snprintf(why, sizeof why, "cannot write %.400s: %s; what was there is untouched", path, strerror(e));
    return e ? par__cuda_fail(cuda, PAR_ERR_FILE, "par_cuda_tune", why) : PAR_OK;
}

// ---- all ranks

static par_comm *par__cuda_hosts(const par_cuda *cuda) { // for arrays of the host; NULL: this rank alone
    return cuda->desc.comm ? par__cuda_comm_of(par_backend_of(cuda->desc.comm))->announce_comm : NULL;
}
static par_result par__cuda_tune_agree(const par_cuda *cuda, par_result r) {
    return par__cuda_agree(cuda, par__cuda_hosts(cuda), r, "par_cuda_tune");
}
static par_result par__cuda_tune_begin(par_cuda *cuda, const char *file, par__cuda_tuner *t) {
    struct cudaDeviceProp p;
    memset(&p, 0, sizeof p);
    PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "par_cuda_tune", PAR__CUDA_CAPTURED_MEMORY));
    PAR__CUDA_CALL(cudaGetDeviceProperties(&p, cuda->ordinal));
    snprintf(t->identity, sizeof t->identity, "%.256s, %d SMs, %d.%d, cuBLASLt %zu", p.name, cuda->sm_count,
             p.major, p.minor, cublasLtGetVersion());
    t->identity[strcspn(t->identity, "\n")] = 0;
    for (int i = 0; i < PAR__CUDA_CANDIDATES; i++)
        for (int round = 0; round < PAR__CUDA_TRIAL_ROUNDS; round++)
            for (int end = 0; end < 2; end++) PAR__CUDA_CALL(cudaEventCreate(&t->trial.event[i][round][end]));
    const int reads = file && (!cuda->desc.comm || par_rank(cuda->desc.comm) == 0);
    if (reads) PAR__CUDA_TRY(par__cuda_tuned_read(cuda, file, t));
    return par_cuda_sync(cuda); // what is measured has the device for itself
}
// Takes what rank 0 read. *fresh: there is something.
static par_result par__cuda_tune_share(par_cuda *cuda, par__cuda_tuner *t) {
    par_comm *hosts = par__cuda_hosts(cuda);
    char identity[sizeof t->identity];
    uint64_t count = t->count;
    memcpy(identity, t->identity, sizeof identity);
    if (hosts) PAR__CUDA_TRY(par_broadcast(identity, identity, sizeof identity, PAR_U8, 0, hosts));
    if (hosts) PAR__CUDA_TRY(par_broadcast(&count, &count, 1, PAR_U64, 0, hosts));
    par_result r = PAR_OK;
    if (strcmp(identity, t->identity))
        r = par__cuda_fail(cuda, PAR_ERR_MISMATCH, "par_cuda_tune",
                           "this rank's device or cuBLASLt is not that of rank 0, whose plans are others");
    if (!r && count > t->count) {
        PAR_FREE(t->list);
        t->list = (par__cuda_tuned *)PAR_MALLOC(count * sizeof *t->list);
        if (!t->list) r = par__cuda_fail(cuda, PAR_ERR_MEMORY, "par_cuda_tune", "out of memory");
    }
    PAR__CUDA_TRY(par__cuda_tune_agree(cuda, r));
    t->count = count;
    if (hosts && count)
        PAR__CUDA_TRY(par_broadcast(t->list, t->list, count * sizeof *t->list, PAR_U8, 0, hosts));
    for (size_t i = 0; i < count; i++)
        if (!par__cuda_tuned_of(cuda, &t->list[i].key))
            r = r ? r : par__cuda_tuned_add(cuda, &cuda->tuned, &cuda->tuned_count, &t->list[i]);
    t->count = 0;
    return par__cuda_tune_agree(cuda, r);
}
// What a split product leaves over (cuda_gemm): it takes a few microseconds by any plan.
static bool par__cuda_is_left_over(const par__cuda_gemm_key *k) {
    return PAR__MIN(k->n, k->k) < PAR__CUDA_FEW;
}
// The products of all ranks that have no measured plan, in t->list; their plan: the rank that measures them.
static par_result par__cuda_tune_gather(par_cuda *cuda, par__cuda_tuner *t) {
    par_comm *hosts = par__cuda_hosts(cuda);
    const size_t n = hosts ? (size_t)par_size(hosts) : 1, me = hosts ? (size_t)par_rank(hosts) : 0;
    const size_t row = PAR__CUDA_MAX_PLANS * sizeof(par__cuda_gemm_key);
    par__cuda_gemm_key *all = (par__cuda_gemm_key *)PAR_MALLOC(n * row), *mine;
    par_result r = all ? PAR_OK : par__cuda_fail(cuda, PAR_ERR_MEMORY, "par_cuda_tune", "out of memory");
    if (all) memset(all, 0, n * row);
    mine = all ? all + me * PAR__CUDA_MAX_PLANS : NULL;
    for (int i = 0; i < PAR__CUDA_MAX_PLANS && !r; i++)
        if (cuda->plans[i].matmul && !par__cuda_is_left_over(&cuda->plans[i].key))
            mine[i] = cuda->plans[i].key;
    r = par__cuda_tune_agree(cuda, r);
    if (!r && hosts) r = par_all_gather(mine, all, row, PAR_U8, hosts);
    for (size_t i = 0; i < n * PAR__CUDA_MAX_PLANS && !r; i++) {
        par__cuda_tuned x;
        size_t k = 0;
        memset(&x, 0, sizeof x);
        x.key = all[i];
        x.plan = (int)(i / PAR__CUDA_MAX_PLANS);
        while (k < t->count && memcmp(&t->list[k].key, &x.key, sizeof x.key)) k++;
        if (x.key.m && k == t->count && !par__cuda_tuned_of(cuda, &x.key))
            r = par__cuda_tuned_add(cuda, &t->list, &t->count, &x);
    }
    PAR_FREE(all);
    return par__cuda_tune_agree(cuda, r);
}
static par_result par__cuda_tune_measure(par_cuda *cuda, par__cuda_tuner *t, par_cuda_tuning *out) {
    par_comm *hosts = par__cuda_hosts(cuda);
    const int me = hosts ? par_rank(hosts) : 0;
    par__cuda_choice *choice = (par__cuda_choice *)PAR_MALLOC((t->count + 1) * sizeof *choice);
    par_result r = choice ? PAR_OK : par__cuda_fail(cuda, PAR_ERR_MEMORY, "par_cuda_tune", "out of memory");
    if (choice) memset(choice, 0, (t->count + 1) * sizeof *choice);
    for (size_t i = 0; i < t->count && !r; i++)
        if (t->list[i].plan == me) r = par__cuda_try_product(cuda, &t->trial, &t->list[i].key, &choice[i]);
    r = par__cuda_tune_agree(cuda, r);
    if (!r && hosts) r = par_all_reduce(choice, choice, 4 * t->count, PAR_U32, PAR_SUM, hosts);
    for (size_t i = 0; i < t->count && !r; i++) {
        if (!choice[i].plan) continue;
        t->list[i].plan = (int)choice[i].plan - 1;
        r = par__cuda_tuned_add(cuda, &cuda->tuned, &cuda->tuned_count, &t->list[i]);
        out->measured++;
        out->changed += t->list[i].plan != 0;
        out->refused += (int)choice[i].refused;
        out->first_us += 1e-3 * choice[i].first_ns;
        out->tuned_us += 1e-3 * choice[i].ns;
    }
    PAR_FREE(choice);
    out->products = (int)cuda->tuned_count;
    return par__cuda_tune_agree(cuda, r);
}
par_result par_cuda_tune(par_cuda *cuda, const char *file, par_cuda_tuning *result) {
    par__cuda_tuner *t = (par__cuda_tuner *)PAR_MALLOC(sizeof *t);
    par_cuda_tuning out;
    memset(&out, 0, sizeof out);
    if (t) memset(t, 0, sizeof *t);
    par_result r = t ? par__cuda_tune_begin(cuda, file, t)
                     : par__cuda_fail(cuda, PAR_ERR_MEMORY, "par_cuda_tune", "out of memory");
    r = par__cuda_tune_agree(cuda, r);
    if (!r) r = par__cuda_tune_share(cuda, t);
    if (!r) r = par__cuda_tune_gather(cuda, t);
    if (!r) r = par__cuda_tune_measure(cuda, t, &out);
    for (int i = 0; i < PAR__CUDA_MAX_PLANS && !r; i++) // the next product makes its plan anew
        par__cuda_destroy_plan(&cuda->plans[i]);
    const int writes = file && out.measured && (!cuda->desc.comm || par_rank(cuda->desc.comm) == 0);
    if (!r) r = par__cuda_tune_agree(cuda, writes ? par__cuda_tuned_write(cuda, file, t->identity) : PAR_OK);
    for (int i = 0; t && i < PAR__CUDA_CANDIDATES * PAR__CUDA_TRIAL_ROUNDS * 2; i++)
        if ((&t->trial.event[0][0][0])[i]) cudaEventDestroy((&t->trial.event[0][0][0])[i]);
    if (t) PAR_FREE(t->list);
    PAR_FREE(t);
    if (result) *result = out;
    return r;
}
#else
par_result par_cuda_tune(par_cuda *cuda, const char *file, par_cuda_tuning *result) {
    (void)file;
    if (result) memset(result, 0, sizeof *result);
    return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "par_cuda_tune", "compile with -DPAR_CUDA_CUBLASLT");
}
#endif

// >>cuda_exact ----------------------------------------------------------------------------------------------
//
// Matrix products of desc.canonical: each element of C is computed by one thread, in the order that
// docs/bits.md defines. They are a reference, and slow.

template <class T> static __device__ __forceinline__ float par__cuda_at(const T *x, size_t i) {
    return (float)par__cuda_widen(x[i]);
}
static __device__ __forceinline__ float par__cuda_any_at(const void *x, par_dtype type, size_t i) {
    if (type == PAR_BF16) return par__cuda_at((const par__cuda_bf16 *)x, i);
    if (type == PAR_F16) return par__cuda_at((const par__cuda_f16 *)x, i);
    return ((const float *)x)[i];
}
static __device__ __forceinline__ void par__cuda_put_any_at(void *to, par_dtype type, size_t i, float x) {
    if (type == PAR_BF16)
        par__cuda_round((par__cuda_bf16 *)to + i, x);
    else if (type == PAR_F16)
        par__cuda_round((par__cuda_f16 *)to + i, x);
    else
        ((float *)to)[i] = x;
}
// C = alpha op(A) op(B) + beta C + bias, where C is rounded once.
template <class A, class C>
static __global__ void par__cuda_k_canonical_gemm(PAR__CUDA_PARAMETER par__cuda_gemm_desc d, const A *a,
                                                  const A *b, C *c) {
    PAR__CUDA_GRID_STRIDE(at, d.m * d.n) {
        const size_t i = at / d.n, j = at % d.n;
        float sums[56]; // of blocks, in whole subtrees
        int used = 0;
        for (size_t from = 0, blocks = 0; from < d.k; from += 256) {
            float sum = 0;
            for (size_t p = from; p < d.k && p < from + 256; p++) {
                const float x = par__cuda_at(a, d.trans_a ? p * d.lda + i : i * d.lda + p);
                const float y = par__cuda_at(b, d.trans_b ? j * d.ldb + p : p * d.ldb + j);
                sum = fmaf(d.alpha * x, y, sum);
            }
            sums[used++] = sum;
            for (size_t q = ++blocks; q % 2 == 0; q /= 2, used--) sums[used - 2] += sums[used - 1];
        }
        float sum = used ? sums[--used] : 0;
        while (used) sum = sums[--used] + sum;
        const float old = d.beta != 0 ? par__cuda_at(c, i * d.ldc + j) : 0;
        if (d.beta != 0) sum = d.beta == 1 ? old + sum : fmaf(d.beta, old, sum);
        if (d.bias) sum += par__cuda_at((const A *)d.bias, j);
        par__cuda_round(&c[i * d.ldc + j], sum);
    }
}
static par_result par__cuda_canonical_gemm(par_cuda *cuda, const par__cuda_gemm_desc *d, const void *a,
                                           const void *b, void *c) {
    const unsigned blocks = par__cuda_blocks(cuda, d->m * d->n, PAR__CUDA_THREADS);
    if (!d->m || !d->n) return PAR_OK;
    if (d->type == PAR_F32)
        return par__cuda_launch(cuda, par__cuda_k_canonical_gemm<float, float>, blocks, PAR__CUDA_THREADS, 0,
                                cuda->stream, *d, (const float *)a, (const float *)b, (float *)c);
    if (d->c_type == PAR_F32)
        return par__cuda_launch(cuda, par__cuda_k_canonical_gemm<par__cuda_bf16, float>, blocks,
                                PAR__CUDA_THREADS, 0, cuda->stream, *d, (const par__cuda_bf16 *)a,
                                (const par__cuda_bf16 *)b, (float *)c);
    return par__cuda_launch(cuda, par__cuda_k_canonical_gemm<par__cuda_bf16, par__cuda_bf16>, blocks,
                            PAR__CUDA_THREADS, 0, cuda->stream, *d, (const par__cuda_bf16 *)a,
                            (const par__cuda_bf16 *)b, (par__cuda_bf16 *)c);
}

// >>cuda_zero -----------------------------------------------------------------------------------------------
//
// Each thread takes eight elements at a time; everything is read and written once.

#if defined(PAR_ZERO_H)
// Eight elements of a moment from and to its dtype. sign 0: the second moment. u8: the 32 threads of a warp
// have the 256 elements of a block, and the first three words are the scale and the codes.
static __device__ __forceinline__ par__cuda_pack8<float>
par__cuda_get_state(const void *state, const par_zero_update &a, size_t at, size_t n, bool whole) {
    if (a.state_dtype != PAR_U8) return par__cuda_load8_any(state, a.state_dtype, at, n, whole);
    const uint32_t *block = (const uint32_t *)state + at / 256 * (PAR__ZERO_STATE_BLOCK_BYTES / 4);
    par__cuda_pack8<float> v = {};
    v.word[0] = block[0];
    v.word[1] = block[1 + at % 256 / 4];
    v.word[2] = block[2 + at % 256 / 4];
    return v;
}
static __device__ __forceinline__ void par__cuda_widen_state(float *x, const par__cuda_pack8<float> &v,
                                                             const par_zero_update &a, int sign) {
    if (a.state_dtype == PAR_U8)
        for (int i = 0; i < 8; i++)
            x[i] = par__zero_decode_state(v.word[1 + i / 4] >> 8 * (i % 4) & 0xFFu, sign,
                                          par__bits_to_f32(v.word[0]));
    else
        par__cuda_widen_any(x, v, a.state_dtype);
}
// Eight random roundings to bf16, by one Philox block. number: of the first element, a multiple of eight.
static __device__ __forceinline__ void par__cuda_put_rounded(void *to, const float *x, uint64_t seed,
                                                             uint64_t stream, uint64_t number, size_t at,
                                                             size_t n, bool whole) {
    if (!whole) return par__zero_round_eight((uint16_t *)to + at, x, n - at, seed, stream, number);
    uint32_t random[4];
    par__cuda_pack8<par__cuda_bf16> v;
    par__philox_at(seed, stream, number / 8, random);
    PAR__CUDA_UNROLL
    for (int i = 0; i < 4; i++)
        v.word[i] = par__zero_round_randomly(x[2 * i], random[i] & 0xFFFFu) |
                    (uint32_t)par__zero_round_randomly(x[2 * i + 1], random[i] >> 16) << 16;
    par__cuda_store8_words((par__cuda_bf16 *)to + at, v);
}
static __device__ __forceinline__ void par__cuda_put_state(void *state, const float *x,
                                                           const par_zero_update &a, int sign, size_t at,
                                                           size_t n, bool whole) {
    if (a.state_dtype == PAR_U8) {
        uint32_t *block = (uint32_t *)state + at / 256 * (PAR__ZERO_STATE_BLOCK_BYTES / 4), codes[2] = {0, 0};
        uint32_t size = 0;
        for (int i = 0; i < 8; i++) size = PAR__MAX(size, par__f32_to_bits(x[i]) & 0x7FFFFFFFu);
        for (int d = 1; d < 32; d *= 2) {
            const uint32_t other = __shfl_xor_sync(0xffffffffu, size, d);
            size = PAR__MAX(size, other);
        }
        const float up = par__zero_state_inverse(par__bits_to_f32(size));
        for (int i = 0; i < 8; i++) codes[i / 4] |= par__zero_encode_state(x[i], sign, up) << 8 * (i % 4);
        __syncwarp(); // all lanes have read the scale; shuffles do not order memory
        if (at % 256 == 0) block[0] = size;
        for (int i = 0; i < 2; i++) block[1 + at % 256 / 4 + i] = codes[i];
    } else if (a.state_dtype == PAR_BF16 && a.state_seed)
        par__cuda_put_rounded(state, x, a.state_seed + !sign, a.stream, a.first + at, at, n, whole);
    else
        par__cuda_store8_any(state, a.state_dtype, x, at, n, whole);
}
// Parts of tensors whose rounding must not depend on how they are split: each element by one thread, as the
// number that it has in the whole tensor. They are a reference, and slow.
static __device__ bool par__cuda_number(const par_shard &s, size_t local, size_t *number) {
    for (int i = 0; i < s.run_count; local -= s.runs[i++].count) {
        const par_run &r = s.runs[i];
        if (local >= r.count) continue;
        *number = r.offset + (r.width ? local / r.width * r.stride + local % r.width : local);
        return true;
    }
    return false;
}
static __device__ float par__cuda_part_state(const par_zero_update &a, const void *state, int sign, size_t i,
                                             size_t number) {
    if (a.state_dtype == PAR_BF16) return par__bf16_widen(((const uint16_t *)state)[i]);
    if (a.state_dtype != PAR_U8) return ((const float *)state)[i];
    const uint8_t *codes = (const uint8_t *)state + i / 256 * PAR__ZERO_STATE_BLOCK_BYTES + 4;
    return par__zero_decode_state(codes[i % 256], sign, a.scales[!sign][number / 256]);
}
static __device__ uint16_t par__cuda_part_round(float x, uint64_t seed, uint64_t stream, size_t number) {
    const uint32_t random = par__cuda_random_bits(seed, stream, number / 2);
    return par__zero_round_randomly(x, random >> 16 * (number % 2) & 0xFFFFu);
}
static __device__ void par__cuda_raise(float *scale, float x) { // without signs floats compare like integers
    atomicMax((unsigned *)(void *)scale, par__f32_to_bits(x) & 0x7FFFFFFFu);
}
static __device__ void par__cuda_put_part_state(const par_zero_update &a, void *state, float x, int sign,
                                                size_t i, size_t number) {
    if (a.state_dtype == PAR_U8) {
        float *scale = &a.new_scales[!sign][number / 256];
        uint8_t *codes = (uint8_t *)state + i / 256 * PAR__ZERO_STATE_BLOCK_BYTES + 4;
        if (a.raise) return par__cuda_raise(scale, x);
        codes[i % 256] = (uint8_t)par__zero_encode_state(x, sign, par__zero_state_inverse(*scale));
    } else if (a.state_dtype == PAR_BF16)
        ((uint16_t *)state)[i] = a.state_seed
                                     ? par__cuda_part_round(x, a.state_seed + !sign, a.stream, number)
                                     : par__bf16_narrow(x);
    else
        ((float *)state)[i] = x;
}
// A skipped step: the scales stay, also those that the next step takes for the present ones.
static __device__ void par__cuda_keep_scales(const par_zero_update &a, const par_shard &shard, size_t n,
                                             int moments) {
    size_t number;
    PAR__CUDA_GRID_STRIDE(i, a.raise ? n : 0) {
        const bool valid = par__cuda_number(shard, a.first + i, &number);
        PAR__CUDA_UNROLL for (int k = 0; k < 2; k++) if (valid && k < moments)
            par__cuda_raise(&a.new_scales[k][number / 256], a.scales[k][number / 256]);
    }
}
static __global__ void par__cuda_k_update_part(par_zero_update a, PAR__CUDA_PARAMETER par_shard shard,
                                               size_t n, int moments, float *w, void *stored, par_dtype type,
                                               const void *g, par_dtype g_type, void *m, void *v,
                                               float *ema) {
    if (!par__zero_apply_control(&a)) return par__cuda_keep_scales(a, shard, n, moments);
    PAR__CUDA_GRID_STRIDE(i, n) {
        size_t number;
        if (!par__cuda_number(shard, a.first + i, &number)) continue;
        par__zero_element e = {w[i], moments > 0 ? par__cuda_part_state(a, m, 1, i, number) : 0,
                               moments > 1 ? par__cuda_part_state(a, v, 0, i, number) : 0};
        par__zero_step_element(a.optimizer, &a, &e, par__cuda_any_at(g, g_type, i));
        if (moments > 0) par__cuda_put_part_state(a, m, e.m, 1, i, number);
        if (moments > 1) par__cuda_put_part_state(a, v, e.v, 0, i, number);
        if (a.raise) continue;
        w[i] = e.w;
        if (ema) ema[i] = par__zero_average(ema[i], e.w, a.ema);
        if (stored && a.seed && type == PAR_BF16)
            ((uint16_t *)stored)[i] = par__cuda_part_round(e.w, a.seed, a.stream, number);
        else if (stored)
            par__cuda_put_any_at(stored, type, i, e.w);
    }
}
static __global__ void par__cuda_k_lamb_part(par_zero_update a, PAR__CUDA_PARAMETER par_shard shard, size_t n,
                                             const float *w, const void *g, par_dtype g_type, const void *m,
                                             const void *v, float *steps) {
    if (!par__zero_apply_control(&a)) return;
    PAR__CUDA_GRID_STRIDE(i, n) {
        size_t number;
        steps[i] = 0;
        if (!par__cuda_number(shard, a.first + i, &number)) continue;
        par__zero_element e = {w[i], par__cuda_part_state(a, m, 1, i, number),
                               par__cuda_part_state(a, v, 0, i, number)};
        par__zero_update_moments(&a, &e, par__cuda_any_at(g, g_type, i));
        steps[i] = par__zero_lamb_direction(&a, &e);
    }
}
static __global__ void par__cuda_k_momentum_part(par_zero_update a, PAR__CUDA_PARAMETER par_shard shard,
                                                 size_t n, const void *g, par_dtype g_type, void *m,
                                                 float *out) {
    if (!par__zero_apply_control(&a)) return par__cuda_keep_scales(a, shard, n, 1);
    PAR__CUDA_GRID_STRIDE(i, n) {
        size_t number;
        if (!par__cuda_number(shard, a.first + i, &number)) continue;
        float x = par__cuda_part_state(a, m, 1, i, number);
        out[i] = par__zero_muon_momentum(&a, &x, par__cuda_any_at(g, g_type, i));
        par__cuda_put_part_state(a, m, x, 1, i, number);
    }
}
static bool par__cuda_rounds_part(const par_zero_update *a) {
    return a->shard && (a->state_dtype == PAR_U8 || a->state_dtype == PAR_BF16 || a->seed);
}
template <int OPTIMIZER, int READS, int WRITES>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_update(par_zero_update a, size_t n, float *w, void *stored, par_dtype type, const void *g,
                       par_dtype g_type, void *m, void *v, float *ema, bool aligned) {
    if (!par__zero_apply_control(&a)) return;
    const size_t step = (size_t)gridDim.x * blockDim.x * 8;
    const auto update = [&](size_t at, bool whole) {
        par__cuda_pack8<float> raw_m, raw_v, raw_ema;
        float ws[8], gs[8], ms[8] = {0}, vs[8] = {0};
        const par__cuda_pack8<float> raw_w = par__cuda_load8(w, at, n, whole);
        const par__cuda_pack8<float> raw_g = par__cuda_load8_any(g, g_type, at, n, whole);
        if constexpr (READS > 0) raw_m = par__cuda_get_state(m, a, at, n, whole);
        if constexpr (READS > 1) raw_v = par__cuda_get_state(v, a, at, n, whole);
        if (ema) raw_ema = par__cuda_load8(ema, at, n, whole);
        par__cuda_widen8(ws, raw_w);
        par__cuda_widen_any(gs, raw_g, g_type);
        if constexpr (READS > 0) par__cuda_widen_state(ms, raw_m, a, 1);
        if constexpr (READS > 1) par__cuda_widen_state(vs, raw_v, a, 0);
        for (int i = 0; i < 8; i++) {
            par__zero_element e = {ws[i], ms[i], vs[i]};
            par__zero_step_element((par_zero_optimizer)OPTIMIZER, &a, &e, gs[i]);
            ws[i] = e.w;
            ms[i] = e.m;
            vs[i] = e.v;
        }
        par__cuda_store8(w, ws, at, n, whole);
        if constexpr (WRITES > 0) par__cuda_put_state(m, ms, a, 1, at, n, whole);
        if constexpr (WRITES > 1) par__cuda_put_state(v, vs, a, 0, at, n, whole);
        if (ema) {
            par__cuda_widen8(gs, raw_ema);
            for (int i = 0; i < 8; i++) gs[i] = par__zero_average(gs[i], ws[i], a.ema);
            par__cuda_store8(ema, gs, at, n, whole);
        }
        if (stored && a.seed && type == PAR_BF16)
            par__cuda_put_rounded(stored, ws, a.seed, a.stream, a.first + at, at, n, whole);
        else if (stored)
            par__cuda_store8_any(stored, type, ws, at, n, whole);
    };
    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; at < n; at += step)
        aligned &&at + 8 <= n ? update(at, true) : update(at, false);
}
// For par__cuda_aligned: codes are read in words wherever they begin.
static const void *par__cuda_whole_state(const par_zero_update *a, const void *state) {
    return a->state_dtype == PAR_U8 ? NULL : state;
}
static par_cuda *par__cuda_of_zero(const par_zero_kernels *k) { return par__cuda_of(k->device); }
static par_result par__cuda_z_update(const par_zero_kernels *k, const par_zero_update *a, size_t n, float *w,
                                     void *stored, par_dtype stored_type, const void *g, par_dtype g_type,
                                     void *m, void *v, float *ema) {
    const par_cuda *cuda = par__cuda_of_zero(k);
    if (!n) return PAR_OK;
    const unsigned blocks = par__cuda_blocks(cuda, n, 8 * PAR__CUDA_THREADS);
    const bool aligned =
        par__cuda_aligned(w, stored, g, par__cuda_whole_state(a, m), par__cuda_whole_state(a, v), ema);
    const bool part = par__cuda_rounds_part(a);
    switch (a->optimizer) {
#define PAR__X(constant, name, states, reads, writes)                                                        \
    case constant:                                                                                           \
        if (part)                                                                                            \
            return par__cuda_launch(cuda, par__cuda_k_update_part, blocks, PAR__CUDA_THREADS, 0,             \
                                    cuda->stream, *a, *a->shard, n, writes, w, stored, stored_type, g,       \
                                    g_type, m, v, ema);                                                      \
        return par__cuda_launch(cuda, par__cuda_k_update<constant, reads, writes>, blocks,                   \
                                PAR__CUDA_THREADS, 0, cuda->stream, *a, n, w, stored, stored_type, g,        \
                                g_type, m, v, ema, aligned);
        PAR_ZERO_OPTIMIZERS(PAR__X)
#undef PAR__X
    default: return PAR_ERR_ARGUMENT;
    }
}
static par_result par__cuda_z_square_sum(const par_zero_kernels *k, const void *x, par_dtype type, size_t n,
                                         double weight, double *sum) {
    return par__cuda_sum_squares(par__cuda_of_zero(k), x, type, n, weight, sum);
}
static __global__ void par__cuda_k_lamb_norms(par_zero_update a, size_t n, const float *w, const void *g,
                                              par_dtype g_type, const void *m, const void *v, float *steps,
                                              double *partials, bool aligned) {
    PAR__CUDA_SHARED(double, scratch);
    const size_t step = (size_t)gridDim.x * blockDim.x * 8;
    double ww = 0, uu = 0;
    const bool skipped = !par__zero_apply_control(&a);
    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; at < n && !skipped; at += step) {
        const bool whole = aligned && at + 8 <= n;
        const par__cuda_pack8<float> raw_w = par__cuda_load8(w, at, n, whole),
                                     raw_g = par__cuda_load8_any(g, g_type, at, n, whole),
                                     raw_m = par__cuda_get_state(m, a, at, n, whole),
                                     raw_v = par__cuda_get_state(v, a, at, n, whole);
        float ws[8], gs[8], ms[8], vs[8];
        par__cuda_widen8(ws, raw_w);
        par__cuda_widen_any(gs, raw_g, g_type);
        par__cuda_widen_state(ms, raw_m, a, 1);
        par__cuda_widen_state(vs, raw_v, a, 0);
        for (int i = 0; i < 8; i++) {
            par__zero_element e = {ws[i], ms[i], vs[i]};
            par__zero_update_moments(&a, &e, gs[i]);
            const double u = (double)par__zero_lamb_direction(&a, &e);
            if (at + (size_t)i < n) {
                if (steps) steps[at + (size_t)i] = (float)u;
                ww += (double)ws[i] * (double)ws[i];
                uu += u * u;
            }
        }
    }
    ww = par__cuda_block_reduce<par__cuda_add>(ww, scratch);
    uu = par__cuda_block_reduce<par__cuda_add>(uu, scratch);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = ww;
        partials[PAR__CUDA_MAX_PARTIALS + blockIdx.x] = uu;
    }
}
static par_result par__cuda_z_lamb_norms(const par_zero_kernels *k, const par_zero_update *a, size_t n,
                                         const float *w, const void *g, par_dtype g_type, const void *m,
                                         const void *v, double *sums, float *steps) {
    par_cuda *cuda = par__cuda_of_zero(k);
    const size_t shared = PAR__CUDA_THREADS / 32 * sizeof(double);
    const unsigned count = par__cuda_partial_count(n);
    if (steps && par__cuda_rounds_part(a)) // their squares are what counts
        return par__cuda_over(cuda, n, par__cuda_k_lamb_part, *a, *a->shard, n, w, g, g_type, m, v, steps);
    double *partials = (double *)par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_SUMS,
                                                   2 * PAR__CUDA_MAX_PARTIALS * sizeof(double));
    if (!partials) return PAR_ERR_MEMORY;
    PAR__CUDA_TRY(
        par__cuda_launch(cuda, par__cuda_k_lamb_norms, count, PAR__CUDA_THREADS, shared, cuda->stream, *a, n,
                         w, g, g_type, m, v, steps, partials,
                         par__cuda_aligned(w, g, par__cuda_whole_state(a, m), par__cuda_whole_state(a, v))));
    return par__cuda_launch(cuda, par__cuda_k_sum_partials, 1, PAR__CUDA_THREADS, shared, cuda->stream,
                            partials, count, 2, 1.0, sums);
}
static __global__ void par__cuda_k_lamb_trust(size_t tensors, size_t pieces, const double *sums,
                                              float *trust) {
    const size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (t < tensors) trust[t] = par__zero_trust_ratio(sums + 2 * t * pieces, pieces);
}
static par_result par__cuda_z_lamb_trust(const par_zero_kernels *k, size_t tensors, size_t pieces,
                                         const double *sums, float *trust) {
    par_cuda *cuda = par__cuda_of_zero(k);
    return par__cuda_launch(cuda, par__cuda_k_lamb_trust, (unsigned)(tensors + 31) / 32, 32, 0, cuda->stream,
                            tensors, pieces, sums, trust);
}
static __global__ void par__cuda_k_momentum(par_zero_update a, size_t n, const void *g, par_dtype g_type,
                                            void *m, float *out, bool aligned) {
    if (!par__zero_apply_control(&a)) return;
    const size_t step = (size_t)gridDim.x * blockDim.x * 8;
    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; at < n; at += step) {
        const bool whole = aligned && at + 8 <= n;
        const par__cuda_pack8<float> raw_g = par__cuda_load8_any(g, g_type, at, n, whole),
                                     raw_m = par__cuda_get_state(m, a, at, n, whole);
        float gs[8], ms[8];
        par__cuda_widen_any(gs, raw_g, g_type);
        par__cuda_widen_state(ms, raw_m, a, 1);
        for (int i = 0; i < 8; i++) gs[i] = par__zero_muon_momentum(&a, &ms[i], gs[i]);
        par__cuda_put_state(m, ms, a, 1, at, n, whole);
        par__cuda_store8(out, gs, at, n, whole);
    }
}
static par_result par__cuda_z_momentum(const par_zero_kernels *k, const par_zero_update *a, size_t n,
                                       const void *g, par_dtype g_type, void *m, float *out) {
    par_cuda *cuda = par__cuda_of_zero(k);
    if (!n) return PAR_OK;
    if (par__cuda_rounds_part(a))
        return par__cuda_over(cuda, n, par__cuda_k_momentum_part, *a, *a->shard, n, g, g_type, m, out);
    return par__cuda_over(cuda, (n + 7) / 8, par__cuda_k_momentum, *a, n, g, g_type, m, out,
                          par__cuda_aligned(g, par__cuda_whole_state(a, m), out));
}
static __global__ void par__cuda_k_scale(size_t n, float *y, const float *x, float factor,
                                         const double *squares) {
    const float f = par__zero_scale_factor(factor, squares);
    const size_t step = (size_t)gridDim.x * blockDim.x * 8;
    for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; at < n; at += step) {
        float v[8];
        par__cuda_load(v, x, at, n);
        for (int i = 0; i < 8; i++) v[i] *= f;
        par__cuda_store(y, v, at, n);
    }
}
static par_result par__cuda_z_scale(const par_zero_kernels *k, size_t n, float *y, const float *x,
                                    float factor, const double *squares) {
    par_cuda *cuda = par__cuda_of_zero(k);
    return par__cuda_over(cuda, (n + 7) / 8, par__cuda_k_scale, n, y, x, factor, squares);
}
static par_result par__cuda_z_gemm(const par_zero_kernels *k, par_dtype type, int canonical, int ta, int tb,
                                   size_t m, size_t n, size_t depth, float alpha, const void *a, size_t lda,
                                   const void *b, size_t ldb, float beta, void *c, size_t ldc) {
    par_cuda *cuda = par__cuda_of_zero(k);
    const par__cuda_gemm_desc p = {ta, tb, m, n, depth, lda, ldb, ldc, alpha, beta, type, type, NULL};
    if (canonical && cuda->desc.canonical) return par__cuda_canonical_gemm(cuda, &p, a, b, c);
    return par__cuda_gemm(cuda, &p, a, b, c, cuda->stream);
}
static __global__ void par__cuda_k_total(const double *sums, size_t n, double *total) {
    double sum = 0; // few numbers, added as the CPU does
    for (size_t i = 0; i < n; i++) sum += sums[i];
    *total = sum;
}
static par_result par__cuda_z_total(const par_zero_kernels *k, const double *sums, size_t n, double *total) {
    par_cuda *cuda = par__cuda_of_zero(k);
    return par__cuda_launch(cuda, par__cuda_k_total, 1, 1, 0, cuda->stream, sums, n, total);
}
static __global__ void par__cuda_k_decide(par_zero_rules rules, par_zero_control *control) {
    par__zero_decide_step(&rules, control);
}
static par_result par__cuda_z_decide(const par_zero_kernels *k, const par_zero_rules *rules,
                                     par_zero_control *control) {
    par_cuda *cuda = par__cuda_of_zero(k);
    return par__cuda_launch(cuda, par__cuda_k_decide, 1, 1, 0, cuda->stream, *rules, control);
}

// Quantized blocks of 32 numbers have 34 or 18 bytes: a scale of 2 bytes, then a byte or half of one for each
// number. Threads of a block take eight numbers each, 2048 in all, and their 64 blocks go through shared
// memory, because they begin at even addresses, and memory is read and written 16 bytes at a time.
enum { PAR__CUDA_PACKED = 64 * 34 + 32, PAR__CUDA_PACK_NUMBERS = 8 * PAR__CUDA_THREADS };
template <int CODE> static __device__ __forceinline__ unsigned par__cuda_packed_bytes() { // of a block
    return 2 + 4 * (unsigned)par__zero_code_bits(CODE);
}

// Copies `bytes` bytes from or to an even address; `near` has room for 16 more, and byte i of the memory is
// near[far % 16 + i].
template <bool TO_FAR>
static __device__ __forceinline__ void par__cuda_move_packed(uint8_t *near, uint8_t *far, unsigned bytes) {
    const unsigned shift = (unsigned)((uintptr_t)far % 16), end = shift + bytes;
    uint8_t *begin = far - shift;
    for (unsigned at = threadIdx.x * 16; at < end; at += blockDim.x * 16) {
        if (at >= shift && at + 16 <= end) {
            if (TO_FAR)
                *(uint4 *)(void *)(begin + at) = *(const uint4 *)(const void *)(near + at);
            else
                *(uint4 *)(void *)(near + at) = *(const uint4 *)(const void *)(begin + at);
            continue;
        }
        for (unsigned i = at; i < at + 16; i += 2) {
            if (i < shift || i >= end) continue;
            if (TO_FAR)
                *(uint16_t *)(void *)(begin + i) = *(const uint16_t *)(const void *)(near + i);
            else
                *(uint16_t *)(void *)(near + i) = *(const uint16_t *)(const void *)(begin + i);
        }
    }
}
// The codes of four integers, each nearest to x, as bytes. x is at most 127 by its scale, so that adding 3 x
// 2^22 rounds it to its last bits.
static __device__ __forceinline__ uint32_t par__cuda_integer_codes(const float *x) {
    uint32_t bits[4];
    for (int i = 0; i < 4; i++)
#if defined(__CUDA_ARCH__)
        bits[i] = par__f32_to_bits(__fadd_rn(x[i], 12582912.0f));
    return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
#else
        bits[i] = (uint32_t)(int)rintf(x[i]) & 0xFFu;
    return bits[0] | bits[1] << 8 | bits[2] << 16 | bits[3] << 24;
#endif
}
template <class T, int CODE>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_pack(size_t n, const T *x, uint8_t *packed, bool aligned) {
    const unsigned bytes = par__cuda_packed_bytes<CODE>();
    PAR__CUDA_SHARED(uint8_t, near);
    const unsigned part = threadIdx.x % 4, own = threadIdx.x * 8;
    for (size_t first = (size_t)blockIdx.x * PAR__CUDA_PACK_NUMBERS; first < n;
         first += (size_t)gridDim.x * PAR__CUDA_PACK_NUMBERS) {
        const unsigned left = (unsigned)PAR__MIN(n - first, (size_t)PAR__CUDA_PACK_NUMBERS);
        uint8_t *far = packed + first / 32 * bytes;
        uint8_t *to = near + (uintptr_t)far % 16 + threadIdx.x / 4 * bytes;
        const par__cuda_pack8<T> raw =
            par__cuda_load8(x + first, PAR__MIN(own, left), left, aligned && own + 8 <= left);
        float v[8];
        uint32_t word[2] = {0, 0};
        uint32_t size = par__cuda_amax_bits(raw);
        for (int d = 1; d < 4; d *= 2) {
            const uint32_t other = __shfl_xor_sync(0xffffffffu, size, d);
            size = PAR__MAX(size, other);
        }
        const float scale = par__zero_block_scale(size, par__zero_largest_code(CODE));
        const float up = par__zero_block_inverse(scale);
        par__cuda_widen8(v, raw);
        for (int j = 0; j < 8; j++) v[j] *= up;
        if (par__zero_is_float_code(CODE)) {
            word[0] = par__cuda_four_codes(CODE == PAR_ZERO_E4M3, v, size < 0x7F800000u);
            word[1] = par__cuda_four_codes(CODE == PAR_ZERO_E4M3, v + 4, size < 0x7F800000u);
        } else if (up > 0) { // else all are 0, or some are not numbers, and the scale says so
            word[0] = par__cuda_integer_codes(v);
            word[1] = par__cuda_integer_codes(v + 4);
        }
        __syncthreads(); // the last numbers have been copied
        if (part == 0) *(uint16_t *)(void *)to = (uint16_t)(par__f32_to_bits(scale) >> 16);
        if (CODE == PAR_ZERO_INT4) {
            for (int i = 0; i < 2; i++) {
                const uint32_t high = __shfl_xor_sync(0xffffffffu, word[i], 2); // of 16 numbers further on
                word[i] = (word[i] & 0x0F0F0F0Fu) | (high & 0x0F0F0F0Fu) << 4;
            }
        }
        if (CODE != PAR_ZERO_INT4 || part < 2) {
            uint16_t *half = (uint16_t *)(void *)(to + 2 + part * 8);
            for (int i = 0; i < 4; i++) half[i] = (uint16_t)(word[i / 2] >> 16 * (i % 2));
        }
        __syncthreads();
        par__cuda_move_packed<true>(near, far, left / 32 * bytes);
    }
}
// The integer of 4 bits in byte i of a word, less 8: it goes into the last bits of 2^23.
static __device__ __forceinline__ float par__cuda_integer_of(uint32_t word, uint32_t i) {
#if defined(__CUDA_ARCH__)
    return par__bits_to_f32(__byte_perm(word, 0x4B000000u, 0x7440 + i)) - (8388608.0f + 8);
#else
    return par__bits_to_f32(0x4B000000u | (word >> 8 * i & 0xFFu)) - (8388608.0f + 8);
#endif
}
// A thread's eight numbers of 64 blocks in shared memory.
template <int CODE>
static __device__ __forceinline__ void par__cuda_decode(const uint8_t *near, unsigned thread, float *x) {
    constexpr bool four = CODE == PAR_ZERO_INT4;
    const unsigned part = thread % 4;
    const uint8_t *from = near + thread / 4 * par__cuda_packed_bytes<CODE>();
    const uint16_t *half = (const uint16_t *)(const void *)(from + 2 + (four ? part % 2 : part) * 8);
    const float scale = par__bits_to_f32((uint32_t) * (const uint16_t *)(const void *)from << 16);
    PAR__CUDA_UNROLL
    for (int i = 0; i < 2; i++) {
        uint32_t word = half[2 * i] | (uint32_t)half[2 * i + 1] << 16;
        if (four) word = (word >> (part < 2 ? 0 : 4) & 0x0F0F0F0Fu) ^ 0x08080808u;
        PAR__CUDA_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            x[4 * i + j] = scale * (four ? par__cuda_integer_of(word, j)
                                         : par__zero_decode(CODE, word >> 8 * j & 0xFFu));
    }
}
// Dequantizes and sums the numbers of several ranks, in their order or by a binary tree; of one rank alone.
enum par__cuda_packed_sum { PAR__CUDA_PACKED_ONE, PAR__CUDA_PACKED_ORDER, PAR__CUDA_PACKED_TREE };
template <class T, int CODE, par__cuda_packed_sum SUM>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS, SUM == PAR__CUDA_PACKED_ONE     ? 8
                                                            : SUM == PAR__CUDA_PACKED_ORDER ? 4
                                                                                            : 2)
    par__cuda_k_unpack(int ranks, size_t n, const uint8_t *packed, T *x, bool aligned) {
    enum { LEVELS = SUM == PAR__CUDA_PACKED_TREE ? 11 : 1 };
    const unsigned bytes = par__cuda_packed_bytes<CODE>();
    PAR__CUDA_SHARED(uint8_t, near);
    const unsigned at = threadIdx.x * 8;
    for (size_t first = (size_t)blockIdx.x * PAR__CUDA_PACK_NUMBERS; first < n;
         first += (size_t)gridDim.x * PAR__CUDA_PACK_NUMBERS) {
        const unsigned left = (unsigned)PAR__MIN(n - first, (size_t)PAR__CUDA_PACK_NUMBERS);
        const uint8_t *far = packed + first / 32 * bytes;
        float level[LEVELS][8], v[8];
        const auto read = [&]() {
            par__cuda_move_packed<false>(near, (uint8_t *)far, left / 32 * bytes);
            __syncthreads();
            // beyond the end the first thread's, because there is no other
            par__cuda_decode<CODE>(near + (uintptr_t)far % 16, at < left ? threadIdx.x : 0, v);
            __syncthreads();
            far += n / 32 * bytes;
        };
        read();
        for (int j = 0; j < 8; j++) level[0][j] = v[j];
        for (int r = 1; SUM == PAR__CUDA_PACKED_ORDER && r < ranks; r++) {
            read();
            for (int j = 0; j < 8; j++) level[0][j] = v[j] = level[0][j] + v[j];
        }
        // bit l of the number of ranks so far says whether level[l] has a sum of 2^l of them
        for (int r = 1; SUM == PAR__CUDA_PACKED_TREE && r < ranks; r++) {
            bool carries = true;
            read();
            PAR__CUDA_UNROLL
            for (int l = 0; l < LEVELS; l++) {
                carries = carries && (r >> l & 1);
                if (carries)
                    for (int j = 0; j < 8; j++) v[j] = level[l][j] + v[j];
                if (!carries && (l == 0 || (r & ((1 << l) - 1)) == (1 << l) - 1))
                    for (int j = 0; j < 8; j++) level[l][j] = v[j];
            }
        }
        if (at < left) par__cuda_store8(x + first, v, at, left, aligned && at + 8 <= left);
    }
}
template <class T, int CODE>
static par_result par__cuda_pack_as(par_cuda *cuda, size_t n, const void *x, void *packed) {
    return par__cuda_launch(
        cuda, par__cuda_k_pack<T, CODE>, par__cuda_blocks(cuda, n, PAR__CUDA_PACK_NUMBERS), PAR__CUDA_THREADS,
        PAR__CUDA_PACKED, cuda->stream, n, (const T *)x, (uint8_t *)packed, par__cuda_aligned(x));
}
template <class T, int CODE>
static par_result par__cuda_unpack_as(par_cuda *cuda, int ranks, int pairs, size_t n, const void *packed,
                                      void *sum) {
    return par__cuda_launch(cuda,
                            ranks == 1 ? par__cuda_k_unpack<T, CODE, PAR__CUDA_PACKED_ONE>
                            : pairs    ? par__cuda_k_unpack<T, CODE, PAR__CUDA_PACKED_TREE>
                                       : par__cuda_k_unpack<T, CODE, PAR__CUDA_PACKED_ORDER>,
                            par__cuda_blocks(cuda, n, PAR__CUDA_PACK_NUMBERS), PAR__CUDA_THREADS,
                            PAR__CUDA_PACKED, cuda->stream, ranks, n, (const uint8_t *)packed, (T *)sum,
                            par__cuda_aligned(sum));
}
static par_result par__cuda_z_pack(const par_zero_kernels *k, int code, size_t n, const void *x,
                                   par_dtype type, void *packed) {
    par_cuda *cuda = par__cuda_of_zero(k);
    if (!n) return PAR_OK;
#define PAR__X(constant, ...)                                                                                \
    if (code == constant)                                                                                    \
        return par__cuda_visit_float(type, [&](auto number) {                                                \
            typedef decltype(number) T;                                                                      \
            return par__cuda_pack_as<T, constant>(cuda, n, x, packed);                                       \
        });
    PAR_ZERO_CODES(PAR__X)
#undef PAR__X
    return PAR_ERR_ARGUMENT;
}
static par_result par__cuda_z_sum_packed(const par_zero_kernels *k, int code, int ranks, int pairs, size_t n,
                                         const void *packed, void *sum, par_dtype type) {
    par_cuda *cuda = par__cuda_of_zero(k);
    if (ranks > 2048)
        return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "quantized sums", "more than 2048 ranks");
    if (!n) return PAR_OK;
#define PAR__X(constant, ...)                                                                                \
    if (code == constant)                                                                                    \
        return par__cuda_visit_float(type, [&](auto number) {                                                \
            typedef decltype(number) T;                                                                      \
            return par__cuda_unpack_as<T, constant>(cuda, ranks, pairs, n, packed, sum);                     \
        });
    PAR_ZERO_CODES(PAR__X)
#undef PAR__X
    return PAR_ERR_ARGUMENT;
}
static par_result par__cuda_z_unpack(const par_zero_kernels *k, int code, size_t n, const void *packed,
                                     void *x, par_dtype type) {
    return par__cuda_z_sum_packed(k, code, 1, 0, n, packed, x, type);
}
template <class T> static __device__ __forceinline__ float par__cuda_rounded(float x) {
    T narrow;
    par__cuda_round(&narrow, x);
    return (float)par__cuda_widen(narrow);
}
template <class T>
static __global__ void par__cuda_k_initial(T *x, par_zero_initial v, PAR__CUDA_PARAMETER par_shard shard,
                                           size_t first, size_t n) {
    PAR__CUDA_GRID_STRIDE(i, n) {
        size_t number;
        if (!par__cuda_number(shard, first + i, &number)) continue;
        float one = v.deviation > 0 ? v.deviation * par__normal(v.seed, v.stream, number) : v.value;
        if (v.dtype == PAR_BF16) one = par__cuda_rounded<par__cuda_bf16>(one);
        if (v.dtype == PAR_F16) one = par__cuda_rounded<par__cuda_f16>(one);
        par__cuda_round(x + i, one);
    }
}
static par_result par__cuda_z_init(const par_zero_kernels *k, const par_zero_initial *v, size_t first,
                                   size_t n, void *x, par_dtype type) {
    par_cuda *cuda = par__cuda_of_zero(k);
    if (!n) return PAR_OK;
    return par__cuda_visit_float(type, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_over(cuda, n, par__cuda_k_initial<T>, (T *)x, *v, *v->shard, first, n);
    });
}
static void par__cuda_zero_open(par_cuda *cuda) {
    par_zero_kernels *z = &cuda->zero;
    z->name = "cuda";
    z->device = &cuda->device;
    z->update = par__cuda_z_update;
    z->lamb_norms = par__cuda_z_lamb_norms;
    z->lamb_trust_ratios = par__cuda_z_lamb_trust;
    z->momentum = par__cuda_z_momentum;
    z->scale = par__cuda_z_scale;
    z->gemm = par__cuda_z_gemm;
    z->square_sum = par__cuda_z_square_sum;
    z->total = par__cuda_z_total;
    z->decide = par__cuda_z_decide;
    z->quantize = par__cuda_z_pack;
    z->dequantize = par__cuda_z_unpack;
    z->sum_quantized = par__cuda_z_sum_packed;
    z->init = par__cuda_z_init;
    z->canonical = cuda->desc.canonical;
}
const par_zero_kernels *par_cuda_zero(par_cuda *cuda) { return &cuda->zero; }
#endif

// >>cuda_tp_rows --------------------------------------------------------------------------------------------
//
// Each thread takes eight elements at a time. Sums over rows are made in two steps with a fixed order: first
// over runs of consecutive rows, then over the runs.

#if defined(PAR_TP_H)
// f(a number of the context's storage type).
template <class F> static par_result par__cuda_visit_storage(const par_tp *tp, F f) {
    return par_tp_dtype(tp) == PAR_F32 ? f(float()) : f(par__cuda_bf16());
}
static par_cuda *par__cuda_of_tp(const par_tp *tp) { return par__cuda_of(par_tp_kernels_of(tp)->device); }
enum { PAR__CUDA_MAX_ROW_RUNS = 256 }; // of rows, at most

static unsigned par__cuda_row_blocks(const par_cuda *cuda, size_t rows) {
    return (unsigned)PAR__MAX((size_t)1, PAR__MIN(rows, (size_t)cuda->sm_count * 32));
}

template <class T>
static __global__ void par__cuda_k_add_bias(T *y, size_t ld, const T *bias, size_t rows, size_t cols,
                                            bool aligned) {
    for (par__cuda_grid_stride i((cols + 7) / 8); i.row < rows; i.next()) {
        const size_t at = i.group * 8;
        T *row = y + i.row * ld;
        const auto add = [&](bool whole) {
            const par__cuda_pack8<T> p = par__cuda_load8(row, at, cols, whole),
                                     q = par__cuda_load8(bias, at, cols, whole);
            float x[8], b[8];
            par__cuda_widen8(x, p);
            par__cuda_widen8(b, q);
            for (int j = 0; j < 8; j++) x[j] += b[j];
            par__cuda_store8(row, x, at, cols, whole);
        };
        aligned &&at + 8 <= cols ? add(true) : add(false);
    }
}
static par_result par__cuda_t_add_bias(par_tp *tp, void *y, size_t ld, const void *bias, size_t rows,
                                       size_t cols) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const bool aligned = par__cuda_aligned(y, bias, ld * par_tp_element_bytes(tp));
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_over(cuda, rows * ((cols + 7) / 8), par__cuda_k_add_bias<T>, (T *)y, ld,
                              (const T *)bias, rows, cols, aligned);
    });
}
// partials[run][column] = the sum over a run of rows. A thread has 8 columns, a warp has every 8th row, and
// the rows of a warp are loaded four at a time.
template <class T>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_sum_rows(float *partials, const T *x, size_t ld, size_t rows, size_t cols, size_t run,
                         bool aligned) {
    PAR__CUDA_SHARED(float, scratch); // [warp][column]
    const size_t from = (size_t)blockIdx.x * 256, at = from + threadIdx.x % 32 * 8;
    const size_t end = PAR__MIN((blockIdx.y + 1) * run, rows);
    const unsigned warp = threadIdx.x / 32;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    const auto add = [&](bool whole) {
        for (size_t r = blockIdx.y * run + warp; r < end; r += 32) {
            par__cuda_pack8<T> v[4] = {};
            PAR__CUDA_UNROLL
            for (size_t k = 0; k < 4; k++)
                if (r + 8 * k < end) v[k] = par__cuda_load8(x + (r + 8 * k) * ld, at, cols, whole);
            PAR__CUDA_UNROLL
            for (size_t k = 0; k < 4; k++) {
                float y[8];
                par__cuda_widen8(y, v[k]);
                for (int j = 0; j < 8; j++) sum[j] += y[j];
            }
        }
    };
    aligned &&at + 8 <= cols ? add(true) : add(false);
    par__cuda_store8(scratch + warp * 256, sum, threadIdx.x % 32 * 8, 256, true);
    __syncthreads();
    const size_t col = from + threadIdx.x;
    float total = scratch[threadIdx.x];
    for (unsigned i = 1; i < 8; i++) total += scratch[i * 256 + threadIdx.x];
    if (col < cols) partials[blockIdx.y * cols + col] = total;
}
// Adds the columns of `runs` rows of partial sums to sum[0] (the first `cols` of them) and to sum[1] (the
// others); NULL: not wanted. A block has 32 columns, and its warps have every 32nd row.
struct par__cuda_sums {
    float *sum[2];
};
static __global__ void __launch_bounds__(1024)
    par__cuda_k_add_partials(par__cuda_sums to, const float *partials, unsigned runs, size_t width,
                             size_t cols) {
    PAR__CUDA_SHARED(float, scratch); // [warp][column]
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const size_t col = (size_t)blockIdx.x * 32 + lane;
    float x = 0;
    for (unsigned i = warp; i < runs && col < width; i += 256) {
        float v[8];
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < 8; k++) v[k] = i + 32 * k < runs ? partials[(i + 32 * k) * width + col] : 0;
        for (unsigned k = 0; k < 8; k++) x += v[k];
    }
    scratch[threadIdx.x] = x;
    __syncthreads();
    if (warp || col >= width) return;
    for (unsigned i = 1; i < 32; i++) x += scratch[i * 32 + lane];
    float *sum = col < cols ? to.sum[0] : to.sum[1];
    if (sum) sum[col < cols ? col : col - cols] += x;
}
static par_result par__cuda_add_partials(par_cuda *cuda, float *first, float *second, const float *partials,
                                         unsigned runs, size_t width, size_t cols) {
    const par__cuda_sums to = {{first, second}};
    return par__cuda_launch(cuda, par__cuda_k_add_partials, (unsigned)((width + 31) / 32), 1024,
                            1024 * sizeof(float), cuda->stream, to, partials, runs, width, cols);
}
static par_result par__cuda_t_sum_rows(par_tp *tp, float *sum, const void *x, size_t ld, size_t rows,
                                       size_t cols) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const size_t run = PAR__MAX((size_t)64, (rows + PAR__CUDA_MAX_ROW_RUNS - 1) / PAR__CUDA_MAX_ROW_RUNS);
    const unsigned runs = (unsigned)((rows + run - 1) / run);
    const bool aligned = par__cuda_aligned(x, ld * par_tp_element_bytes(tp));
    float *partials = (float *)par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_PARTIALS,
                                                 PAR__CUDA_MAX_ROW_RUNS * cols * sizeof(float));
    if (!partials) return PAR_ERR_MEMORY;
    if (!rows || !cols) return PAR_OK;
    PAR__CUDA_TRY(par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_launch(cuda, par__cuda_k_sum_rows<T>, dim3((unsigned)((cols + 255) / 256), runs),
                                PAR__CUDA_THREADS, 8 * 256 * sizeof(float), cuda->stream, partials,
                                (const T *)x, ld, rows, cols, run, aligned);
    }));
    return par__cuda_add_partials(cuda, sum, NULL, partials, runs, cols, cols);
}

// >>cuda_pointwise ------------------------------------------------------------------------------------------
//
// Activations, sums and products of elements, and their gradients.

template <class T, par_tp_elementwise WHAT>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_elementwise(size_t rows, size_t cols, T *o0, T *o1, size_t out_ld, const T *a, size_t a_ld,
                            const T *b, const T *c, size_t bc_ld, bool aligned) {
    constexpr bool has_b = WHAT != PAR_TP_GELU, has_c = WHAT == PAR_TP_SWIGLU_BACKWARD;
    for (par__cuda_grid_stride i((cols + 7) / 8); i.row < rows; i.next()) {
        const size_t at = i.group * 8;
        const auto apply = [&](bool whole) {
            float x[8], y[8], z[8], o[8], p[8];
            par__cuda_pack8<T> v[3];
            v[0] = par__cuda_load8(a + i.row * a_ld, at, cols, whole);
            if constexpr (has_b) v[1] = par__cuda_load8(b + i.row * bc_ld, at, cols, whole);
            if constexpr (has_c) v[2] = par__cuda_load8(c + i.row * bc_ld, at, cols, whole);
            par__cuda_widen8(x, v[0]);
            if constexpr (has_b) par__cuda_widen8(y, v[1]);
            if constexpr (has_c) par__cuda_widen8(z, v[2]);
            for (int j = 0; j < 8; j++) {
                if constexpr (WHAT == PAR_TP_GELU) o[j] = x[j] * par__tp_gelu_gate(x[j]);
                if constexpr (WHAT == PAR_TP_GELU_BACKWARD) o[j] = par__tp_gelu_gradient(x[j], y[j]);
                if constexpr (WHAT == PAR_TP_SWIGLU) o[j] = par__tp_silu(x[j]) * y[j];
                if constexpr (has_c) o[j] = par__tp_swiglu_gradient(x[j], y[j], z[j], &p[j]);
                if constexpr (WHAT == PAR_TP_ADD) o[j] = x[j] + y[j];
            }
            par__cuda_store8(o0 + i.row * out_ld, o, at, cols, whole);
            if constexpr (has_c) par__cuda_store8(o1 + i.row * out_ld, p, at, cols, whole);
        };
        aligned &&at + 8 <= cols ? apply(true) : apply(false);
    }
}
template <par_tp_elementwise WHAT>
static par_result par__cuda_elementwise_of(par_tp *tp, size_t rows, size_t cols, void *o0, void *o1,
                                           size_t out_ld, const void *a, size_t a_ld, const void *b,
                                           const void *c, size_t bc_ld) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const size_t e = rows > 1 ? par_tp_element_bytes(tp) : 0;
    const bool aligned = par__cuda_aligned(o0, o1, a, b, c, e * out_ld, e * a_ld, b ? e * bc_ld : 0);
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_over(cuda, rows * ((cols + 7) / 8), par__cuda_k_elementwise<T, WHAT>, rows, cols,
                              (T *)o0, (T *)o1, out_ld, (const T *)a, a_ld, (const T *)b, (const T *)c, bc_ld,
                              aligned);
    });
}
static par_result par__cuda_t_elementwise(par_tp *tp, par_tp_elementwise what, size_t rows, size_t cols,
                                          void *o0, void *o1, size_t out_ld, const void *a, size_t a_ld,
                                          const void *b, const void *c, size_t bc_ld) {
    typedef par_result (*kernel)(par_tp *, size_t, size_t, void *, void *, size_t, const void *, size_t,
                                 const void *, const void *, size_t);
    static const kernel kernels[PAR_TP_ELEMENTWISE_COUNT] = {
        par__cuda_elementwise_of<PAR_TP_GELU>, par__cuda_elementwise_of<PAR_TP_GELU_BACKWARD>,
        par__cuda_elementwise_of<PAR_TP_SWIGLU>, par__cuda_elementwise_of<PAR_TP_SWIGLU_BACKWARD>,
        par__cuda_elementwise_of<PAR_TP_ADD>};
    if (out_ld == cols && a_ld == cols && (!b || bc_ld == cols)) {
        cols *= rows;
        rows = rows ? 1 : 0;
        out_ld = a_ld = bc_ld = cols;
    } // one long row
    return kernels[what](tp, rows, cols, o0, o1, out_ld, a, a_ld, b, c, bc_ld);
}

// >>cuda_norm -----------------------------------------------------------------------------------------------
//
// Layer norm and RMS norm, with the addition that comes before the norm in a transformer block, or after its
// gradient. A warp has a short row (ONE), a block a longer one, and each thread keeps a part of it in
// registers, so that it is read once. In the backward pass a thread has the same columns of all its rows, and
// sums their weight gradients in registers.

// The packs of a row that a thread keeps; threads of a block, where a warp has a row and where a block has.
template <class T> struct par__cuda_norm_packs {
    enum { KEPT = sizeof(T) == 2 ? 4 : 2 };
};
enum { PAR__CUDA_WARP_NORM = 128, PAR__CUDA_BLOCK_NORM = 512 };
// The number of threads of a block for rows of so many elements, of which each has `packs` packs.
static unsigned par__cuda_norm_threads(size_t cols, size_t packs) {
    return cols <= 128 * 8 * packs ? 128 : cols <= 256 * 8 * packs ? 256 : PAR__CUDA_BLOCK_NORM;
}
// Who has a row: a warp, or a block. In the backward pass blocks of up to 256 threads have a kernel, and
// larger ones, where rows may have columns beyond those that the threads keep. Rows that are not aligned have
// kernels of their own. What a kernel has no need of takes no registers.
enum par__cuda_norm_size {
    PAR__CUDA_NORM_WARP,
    PAR__CUDA_NORM_BLOCK,
    PAR__CUDA_NORM_LARGE,
    PAR__CUDA_NORM_UNALIGNED
};
// Where a thread stands in its block's rows: `rows` of them at a time.
template <bool ONE> struct par__cuda_row_threads {
    unsigned rows, row, at, step; // at: its first element; step: from one of its packs to the next
    __device__ __forceinline__ par__cuda_row_threads() {
        rows = ONE ? blockDim.x / 32 : 1;
        row = ONE ? threadIdx.x / 32 : 0;
        at = (ONE ? threadIdx.x % 32 : threadIdx.x) * 8;
        step = (ONE ? 32 : blockDim.x) * 8;
    }
};
// The sums of N numbers over a row's threads, in all of them. scratch: N floats for each warp.
template <bool ONE, int N>
static __device__ __forceinline__ void par__cuda_row_sums(float *x, float *scratch) {
    PAR__CUDA_UNROLL
    for (int i = 0; i < N; i++) x[i] = par__cuda_warp_reduce<par__cuda_add>(x[i]);
    if constexpr (!ONE) {
        const unsigned lane = threadIdx.x % 32;
        __syncthreads(); // other threads may still read scratch
        for (int i = 0; i < N && lane == 0; i++) scratch[threadIdx.x / 32 * N + i] = x[i];
        __syncthreads(); // a block has at most 16 warps: each lane has a sum
        float sum = lane < blockDim.x / 32 * N ? scratch[lane] : 0.0f;
        for (int d = 16; d >= N; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        for (int i = 0; i < N; i++) x[i] = __shfl_sync(0xffffffffu, sum, i);
    }
}
// What a thread has of a row: f(at, x) for each of its packs, of which the first ones are kept.
template <class T, bool ONE> struct par__cuda_row_part {
    enum { K = par__cuda_norm_packs<T>::KEPT };
    par__cuda_pack8<T> kept[K];
    template <class F>
    __device__ __forceinline__ void each(const par__cuda_row_threads<ONE> &t, const T *from, unsigned cols,
                                         bool whole, F f) {
        float x[8];
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < K; k++)
            if (t.at + k * t.step < cols) {
                par__cuda_widen8(x, kept[k]);
                f(t.at + k * t.step, x);
            }
        for (unsigned at = t.at + K * t.step; !ONE && at < cols; at += t.step) {
            par__cuda_widen8(x, par__cuda_load8(from, at, cols, whole));
            f(at, x);
        }
    }
    // Reads the row, or (add) writes x + add to `total` and keeps that.
    __device__ __forceinline__ void read(const par__cuda_row_threads<ONE> &t, const T *x, const T *add,
                                         T *total, unsigned cols, bool whole) {
        par__cuda_pack8<T> more[K];
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < K; k++) {
            const unsigned at = t.at + k * t.step;
            if (at < cols) kept[k] = par__cuda_load8(x, at, cols, whole);
            if (at < cols && add) more[k] = par__cuda_load8(add, at, cols, whole);
        }
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < K; k++)
            if (t.at + k * t.step < cols && add)
                kept[k] = par__cuda_store8_sum(total, kept[k], more[k], t.at + k * t.step, cols, whole);
        for (unsigned at = t.at + K * t.step; !ONE && add && at < cols; at += t.step)
            (void)par__cuda_store8_sum(total, par__cuda_load8(x, at, cols, whole),
                                       par__cuda_load8(add, at, cols, whole), at, cols, whole);
    }
};
template <class T, par__cuda_norm_size SIZE, bool ADD>
static __global__ void __launch_bounds__(SIZE == PAR__CUDA_NORM_WARP ? PAR__CUDA_WARP_NORM
                                                                     : PAR__CUDA_BLOCK_NORM,
                                         SIZE == PAR__CUDA_NORM_WARP && sizeof(T) == 2 ? 6 : 1)
    par__cuda_k_norm(T *y, float *stats, const T *x, const T *add, T *total, const T *weight, const T *bias,
                     size_t rows, unsigned cols, int rms, float epsilon) {
    constexpr bool ONE = SIZE == PAR__CUDA_NORM_WARP, whole = SIZE != PAR__CUDA_NORM_UNALIGNED;
    PAR__CUDA_SHARED(float, scratch);
    const par__cuda_row_threads<ONE> t;
    const auto normalize = [&](size_t r) {
        const T *from = ADD ? total + r * cols : x + r * cols;
        par__cuda_row_part<T, ONE> row;
        float mean = 0, squares = 0;
        row.read(t, x + r * cols, ADD ? add + r * cols : NULL, ADD ? total + r * cols : NULL, cols, whole);
        if (!rms) {
            row.each(t, from, cols, whole, [&](unsigned, const float *v) {
                for (int j = 0; j < 8; j++) mean += v[j];
            });
            par__cuda_row_sums<ONE, 1>(&mean, scratch);
            mean /= (float)cols;
        }
        row.each(t, from, cols, whole, [&](unsigned at, const float *v) {
            for (unsigned j = 0; j < 8; j++) {
                const float d = whole || at + j < cols ? v[j] - mean : 0;
                squares += d * d;
            }
        });
        par__cuda_row_sums<ONE, 1>(&squares, scratch);
        const float rstd = par__tp_rstd(squares, cols, epsilon);
        row.each(t, from, cols, whole, [&](unsigned at, const float *v) {
            float w[8], b[8] = {0, 0, 0, 0, 0, 0, 0, 0}, o[8];
            par__cuda_widen8(w, par__cuda_load8(weight, at, cols, whole));
            if (bias) par__cuda_widen8(b, par__cuda_load8(bias, at, cols, whole));
            for (int j = 0; j < 8; j++) o[j] = par__tp_normalized(v[j], mean, rstd) * w[j] + b[j];
            par__cuda_store8(y + r * cols, o, at, cols, whole);
        });
        if (t.at == 0 && rms) stats[r] = rstd;
        if (t.at == 0 && !rms) {
            stats[2 * r] = mean;
            stats[2 * r + 1] = rstd;
        }
    };
    for (size_t r = (size_t)blockIdx.x * t.rows + t.row; r < rows; r += (size_t)gridDim.x * t.rows)
        normalize(r);
}
static par_result par__cuda_check_norm(const par_cuda *cuda, size_t cols) {
    return cols < (size_t)1 << 31
               ? PAR_OK
               : par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "norm", "a row has more than 2147483647 elements");
}
static par_result par__cuda_t_norm_forward(par_tp *tp, void *y, float *stats, const void *x, const void *add,
                                           void *sum, const void *weight, const void *bias, size_t rows,
                                           size_t cols, int rms, float epsilon) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    PAR__CUDA_TRY(par__cuda_check_norm(cuda, cols));
    if (!rows) return PAR_OK;
    const bool aligned = cols % 8 == 0 && par__cuda_aligned(y, sum, x, add, weight, bias);
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        constexpr unsigned kept = par__cuda_norm_packs<T>::KEPT;
        const bool one = aligned && cols <= 32 * 8 * kept;
        const auto kernel = !aligned ? add ? par__cuda_k_norm<T, PAR__CUDA_NORM_UNALIGNED, true>
                                           : par__cuda_k_norm<T, PAR__CUDA_NORM_UNALIGNED, false>
                            : one ? add ? par__cuda_k_norm<T, PAR__CUDA_NORM_WARP, true>
                                        : par__cuda_k_norm<T, PAR__CUDA_NORM_WARP, false>
                            : add ? par__cuda_k_norm<T, PAR__CUDA_NORM_BLOCK, true>
                                     : par__cuda_k_norm<T, PAR__CUDA_NORM_BLOCK, false>;
        return par__cuda_launch(cuda, kernel, par__cuda_row_blocks(cuda, one ? (rows + 3) / 4 : rows),
                                par__cuda_norm_threads(cols, kept), 32 * sizeof(float), cuda->stream, (T *)y,
                                stats, (const T *)x, (const T *)add, (T *)sum, (const T *)weight,
                                (const T *)bias, rows, (unsigned)cols, rms, epsilon);
    });
}
// Writes the sums of dw and db of eight columns to `to` and to + cols. Where a warp has a row, the block's
// warps have the same columns, and theirs are added first.
template <bool ONE>
static __device__ __forceinline__ void par__cuda_put_partials(float *to, const float *dw, const float *db,
                                                              unsigned at, unsigned cols, float *scratch) {
    const unsigned lane = threadIdx.x % 32 * 8, warp = threadIdx.x / 32;
    if constexpr (!ONE) {
        for (unsigned j = 0; j < 8 && at + j < cols; j++) {
            to[at + j] = dw[j];
            to[cols + at + j] = db[j];
        }
        return;
    }
    __syncthreads();
    par__cuda_store8(scratch + warp * 512, dw, lane, 256, true);
    par__cuda_store8(scratch + warp * 512 + 256, db, lane, 256, true);
    __syncthreads();
    for (unsigned c = threadIdx.x; c < 512; c += blockDim.x) {
        const unsigned col = at - lane + c % 256;
        float sum = scratch[c];
        for (unsigned i = 1; i < blockDim.x / 32; i++) sum += scratch[i * 512 + c];
        if (col < cols) to[c / 256 * (size_t)cols + col] = sum;
    }
}
// Both sums of a row: of g and of g xhat, where g = dy w and xhat = x rstd + shift. Each thread adds to its
// weights' gradients. of: dy and x.
template <class T>
static __device__ __forceinline__ void
par__cuda_norm_sums(float *sums, float *dw, float *db, const par__cuda_pack8<T> *of,
                    const par__cuda_pack8<T> &weight, float rstd, float shift) {
    float dy[8], x[8], w[8];
    par__cuda_widen8(dy, of[0]);
    par__cuda_widen8(x, of[1]);
    par__cuda_widen8(w, weight);
    for (int j = 0; j < 8; j++) {
        const float h = fmaf(x[j], rstd, shift), g = dy[j] * w[j];
        sums[0] += g;
        sums[1] += g * h;
        dw[j] += dy[j] * h;
        db[j] += dy[j];
    }
}
// The same for eight columns beyond those that a thread keeps, whose gradients are summed in memory. first:
// of the block's rows.
template <class T>
static __device__ __forceinline__ void
par__cuda_norm_sums_beyond(float *sums, float *own, const par__cuda_pack8<T> *of,
                           const par__cuda_pack8<T> &weight, unsigned at, unsigned cols, bool first,
                           float rstd, float shift) {
    float more[2][8];
    for (unsigned j = 0; j < 8; j++) {
        more[0][j] = first || at + j >= cols ? 0 : own[at + j];
        more[1][j] = first || at + j >= cols ? 0 : own[cols + at + j];
    }
    par__cuda_norm_sums(sums, more[0], more[1], of, weight, rstd, shift);
    par__cuda_put_partials<false>(own, more[0], more[1], at, cols, NULL);
}
// rstd (g - mean(g) - xhat mean(g xhat)) = rstd g + slope x + constant
template <class T>
static __device__ __forceinline__ void
par__cuda_norm_gradients_of(float *to, const par__cuda_pack8<T> &dy, const par__cuda_pack8<T> &x,
                            const float *w, float rstd, float slope, float constant) {
    float u[8];
    par__cuda_widen8(u, dy);
    par__cuda_widen8(to, x);
    for (int j = 0; j < 8; j++) to[j] = fmaf(u[j] * w[j], rstd, fmaf(to[j], slope, constant));
}
// Writes eight numbers, or (ADD) their sums with `add` after they are rounded.
template <bool ADD, class T>
static __device__ __forceinline__ void par__cuda_put_added(T *to, const float *x,
                                                           const par__cuda_pack8<T> &add, unsigned at,
                                                           unsigned cols, bool whole) {
    if constexpr (ADD)
        par__cuda_store8_sum(to, par__cuda_round8((T *)NULL, x), add, at, cols, whole);
    else
        par__cuda_store8(to, x, at, cols, whole);
}
// Begins to bring memory to the L2 cache, where GPUs have an instruction for it (from sm_90 on). It takes no
// registers and no threads' time, and so what is read next is in flight while a row is used.
#if defined(CUDA_EMU)
static inline void par__cuda_prefetch(const void *p, unsigned bytes) { // reads, to find a wrong address
    (void)*(const volatile char *)p, (void)*((const volatile char *)p + bytes - 1);
}
#else
static __device__ __forceinline__ void par__cuda_prefetch(const void *p, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    const uint64_t from = __cvta_generic_to_global(p), aligned = from & ~(uint64_t)15;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(aligned),
                 "r"((unsigned)(from + bytes + 15 - aligned) & ~15u));
#endif
}
#endif
// Row r, which a backward kernel reads next, and its statistics.
template <class T>
static __device__ __forceinline__ void par__cuda_prefetch_row(const T *dy, const T *x, const T *add,
                                                              const float *stats, size_t r, unsigned cols,
                                                              int rms) {
    const unsigned bytes = PAR__MIN(cols, 1u << 20) * (unsigned)sizeof(T), of_row = rms ? 1 : 2;
    par__cuda_prefetch(dy + r * cols, bytes);
    par__cuda_prefetch(x + r * cols, bytes);
    if (add) par__cuda_prefetch(add + r * cols, bytes);
    par__cuda_prefetch(stats + r * of_row, of_row * (unsigned)sizeof(float));
}
// A backward kernel by who has a row.
template <class T, par__cuda_norm_size SIZE> struct par__cuda_norm_shape {
    enum {
        THREADS = SIZE == PAR__CUDA_NORM_WARP    ? PAR__CUDA_WARP_NORM
                  : SIZE == PAR__CUDA_NORM_BLOCK ? 256
                                                 : PAR__CUDA_BLOCK_NORM,
        // of a multiprocessor, by the registers
        BLOCKS = SIZE == PAR__CUDA_NORM_WARP    ? 4
                 : SIZE == PAR__CUDA_NORM_BLOCK ? (sizeof(T) == 2 ? 3 : 2)
                                                : 1,
        // packs of a thread
        SUMMED = SIZE == PAR__CUDA_NORM_UNALIGNED || (sizeof(T) == 4 && SIZE == PAR__CUDA_NORM_LARGE) ? 1
                 : sizeof(T) == 4 || SIZE == PAR__CUDA_NORM_BLOCK                                     ? 2
                                                                                                      : 3
    };
};
// A thread loads all that it has of a row at once, and meanwhile the next row comes to the cache. MORE: the
// gradients of columns beyond those that it keeps are summed in `partials`, and a second pass finds rows in
// the cache. ADD: the gradient is rounded, and `add` is added to it.
template <class T, par__cuda_norm_size SIZE, bool ADD>
static __global__ void __launch_bounds__((par__cuda_norm_shape<T, SIZE>::THREADS),
                                         (par__cuda_norm_shape<T, SIZE>::BLOCKS))
    par__cuda_k_norm_backward(T *dx, float *partials, const T *dy, const T *x, const T *add, const T *weight,
                              const float *stats, size_t rows, unsigned cols, int rms) {
    enum { K = par__cuda_norm_shape<T, SIZE>::SUMMED };
    constexpr bool ONE = SIZE == PAR__CUDA_NORM_WARP, MORE = SIZE >= PAR__CUDA_NORM_LARGE,
                   whole = SIZE != PAR__CUDA_NORM_UNALIGNED;
    PAR__CUDA_SHARED(float, scratch);
    const par__cuda_row_threads<ONE> t;
    float *own = partials + 2 * blockIdx.x * (size_t)cols;
    float dw[K][8] = {}, db[K][8] = {};
    const auto gradient = [&](size_t r, bool first) {
        const float rstd = rms ? stats[r] : stats[2 * r + 1], shift = rms ? 0 : -stats[2 * r] * rstd;
        float v[8], w[8], sums[2] = {0, 0};
        par__cuda_pack8<T> of[K][3], here[3]; // dy, x, add
        const auto get = [&](par__cuda_pack8<T> *to, unsigned at) {
            to[0] = par__cuda_load8(dy + r * cols, at, cols, whole);
            to[1] = par__cuda_load8(x + r * cols, at, cols, whole);
            if (ADD) to[2] = par__cuda_load8(add + r * cols, at, cols, whole);
        };
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < K; k++)
            if (t.at + k * t.step < cols) get(of[k], t.at + k * t.step);
        const size_t next = r + (size_t)gridDim.x * t.rows;
        if (t.at == 0 && next < rows)
            par__cuda_prefetch_row(dy, x, ADD ? add : (const T *)NULL, stats, next, cols, rms);
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < K; k++)
            if (t.at + k * t.step < cols)
                par__cuda_norm_sums(sums, dw[k], db[k], of[k],
                                    par__cuda_load8(weight, t.at + k * t.step, cols, whole), rstd, shift);
        for (unsigned at = t.at + K * t.step; MORE && at < cols; at += t.step) {
            get(here, at);
            par__cuda_norm_sums_beyond(sums, own, here, par__cuda_load8(weight, at, cols, whole), at, cols,
                                       first, rstd, shift);
        }
        par__cuda_row_sums<ONE, 2>(sums, scratch);
        const float sum = rms ? 0 : sums[0] / (float)cols, dot = sums[1] / (float)cols;
        const float slope = -rstd * rstd * dot, constant = -rstd * (sum + shift * dot);
        const auto put = [&](unsigned at, par__cuda_pack8<T> *from) {
            if (MORE) get(from, at);
            par__cuda_widen8(w, par__cuda_load8(weight, at, cols, whole));
            par__cuda_norm_gradients_of(v, from[0], from[1], w, rstd, slope, constant);
            par__cuda_put_added<ADD>(dx + r * cols, v, from[2], at, cols, whole);
        };
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < K; k++)
            if (t.at + k * t.step < cols) put(t.at + k * t.step, of[k]);
        for (unsigned at = t.at + K * t.step; MORE && at < cols; at += t.step) put(at, here);
    };
    const size_t begin = (size_t)blockIdx.x * t.rows + t.row;
    for (size_t r = begin; r < rows; r += (size_t)gridDim.x * t.rows) gradient(r, r == begin);
    PAR__CUDA_UNROLL
    for (unsigned k = 0; k < K; k++)
        if (k * t.step < cols) // the same in all threads
            par__cuda_put_partials<ONE>(own, dw[k], db[k], t.at + k * t.step, cols, scratch);
}
// Blocks are as many on any device, so that all add in the same order: those that the 132 multiprocessors of
// an H100 run at a time, with 16 rows or more. threads: of a block; sums: with dweight and dbias of each.
template <class T, par__cuda_norm_size SIZE>
static par_result par__cuda_norm_gradients(par_cuda *cuda, void *dx, float *dweight, float *dbias,
                                           const void *dy, const void *x, const void *add, const void *weight,
                                           const float *stats, size_t rows, size_t cols, int rms) {
    typedef par__cuda_norm_shape<T, SIZE> shape;
    const size_t most = 132 * (SIZE <= PAR__CUDA_NORM_BLOCK ? (size_t)shape::BLOCKS : 4);
    const unsigned blocks = (unsigned)PAR__MAX((size_t)1, PAR__MIN(rows / 16, most));
    const unsigned threads = PAR__MIN(par__cuda_norm_threads(cols, shape::SUMMED), (unsigned)shape::THREADS);
    float *partials =
        (float *)par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_PARTIALS, 2 * blocks * cols * sizeof(float));
    if (!partials) return PAR_ERR_MEMORY;
    PAR__CUDA_TRY(par__cuda_launch(
        cuda, add ? par__cuda_k_norm_backward<T, SIZE, true> : par__cuda_k_norm_backward<T, SIZE, false>,
        blocks, threads, 4 * 512 * sizeof(float), cuda->stream, (T *)dx, partials, (const T *)dy,
        (const T *)x, (const T *)add, (const T *)weight, stats, rows, (unsigned)cols, rms));
    return par__cuda_add_partials(cuda, dweight, dbias, partials, blocks, 2 * cols, cols);
}
static par_result par__cuda_t_norm_backward(par_tp *tp, void *dx, float *dweight, float *dbias,
                                            const void *dy, const void *x, const void *add,
                                            const void *weight, const float *stats, size_t rows, size_t cols,
                                            int rms) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const bool aligned = cols % 8 == 0 && par__cuda_aligned(dx, dy, x, add, weight);
    PAR__CUDA_TRY(par__cuda_check_norm(cuda, cols));
    if (!rows) return PAR_OK;
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        typedef par__cuda_norm_shape<T, PAR__CUDA_NORM_WARP> warp;
        typedef par__cuda_norm_shape<T, PAR__CUDA_NORM_BLOCK> block;
        const auto run = !aligned ? par__cuda_norm_gradients<T, PAR__CUDA_NORM_UNALIGNED>
                         : cols <= 32 * 8 * warp::SUMMED ? par__cuda_norm_gradients<T, PAR__CUDA_NORM_WARP>
                         : cols <= block::THREADS * 8 * block::SUMMED
                             ? par__cuda_norm_gradients<T, PAR__CUDA_NORM_BLOCK>
                             : par__cuda_norm_gradients<T, PAR__CUDA_NORM_LARGE>;
        return run(cuda, dx, dweight, dbias, dy, x, add, weight, stats, rows, cols, rms);
    });
}

// >>cuda_dropout --------------------------------------------------------------------------------------------
//
// The random numbers depend on the element alone, not on the layout: those of >>math_philox.

struct par__cuda_dropout { // of what the random numbers are, and under which of them an element is dropped
    uint64_t seed, stream;
    const uint64_t *offset; // of the stream, or NULL: read when the kernel runs
    uint32_t limit;         // 0: no dropout
};
static __device__ __forceinline__ uint64_t par__cuda_dropout_stream(const par__cuda_dropout &d) {
    return d.stream + (d.offset ? *d.offset : 0);
}
static par__cuda_dropout par__cuda_dropout_of(const par_tp *tp, uint64_t stream, float p) {
    const par__cuda_dropout d = {par_tp_seed(tp), stream, par_tp_dropout_offset(tp),
                                 p > 0 ? par__tp_dropout_limit(p) : 0};
    return d;
}
// Which token a row is, as par__tp_row_position and par__tp_token_index have it, without divisions.
struct par__cuda_map {
    par_tp_row_map map;
    par__cuda_divisor local_sequence, chunk_tokens;
};
static par__cuda_map par__cuda_map_of(const par_tp_row_map *map) {
    const par__cuda_map m = {*map, par__cuda_divisor_of(map->local_sequence),
                             par__cuda_divisor_of(map->chunk_tokens)};
    return m;
}
static __device__ __forceinline__ size_t par__cuda_position(const par__cuda_map &m, size_t i) {
    const size_t chunk = par__cuda_divide(m.chunk_tokens, i);
    return m.map.position + (m.map.chunk[chunk] - chunk) * m.map.chunk_tokens + i;
}
static __device__ __forceinline__ size_t par__cuda_row_position(const par__cuda_map &m, size_t row,
                                                                size_t *sequence) {
    const size_t i = m.map.first_row + row;
    *sequence = par__cuda_divide(m.local_sequence, i);
    return par__cuda_position(m, i - *sequence * m.map.local_sequence);
}
// The keys of Philox's rounds, which depend on the seed alone. As a kernel's argument they are operands of
// its instructions.
struct par__cuda_round_keys {
    uint32_t word[10][2];
};
static par__cuda_round_keys par__cuda_round_keys_of(uint64_t seed) {
    par__cuda_round_keys k;
    for (uint32_t i = 0; i < 10; i++) {
        k.word[i][0] = (uint32_t)seed + i * 0x9E3779B9u;
        k.word[i][1] = (uint32_t)(seed >> 32) + i * 0xBB67AE85u;
    }
    return k;
}
// par__philox_at, with the rounds' keys.
static __device__ __forceinline__ void par__cuda_philox(const par__cuda_round_keys &k, uint64_t stream,
                                                        uint64_t index, uint32_t *out) {
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)stream,
             c3 = (uint32_t)(stream >> 32);
    PAR__CUDA_UNROLL
    for (int i = 0; i < 10; i++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k.word[i][0];
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k.word[i][1];
        c3 = (uint32_t)p0;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
// linear: the rows are consecutive tokens, so that the matrix is one long row, whose first element is `base`.
struct par__cuda_dropped {
    par__cuda_map map;
    par__cuda_dropout drop;
    par__cuda_round_keys keys;
    float scale;
    uint64_t base;
};
template <class T, bool LINEAR>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS, LINEAR ? 6 : 1)
    par__cuda_k_dropout(T *y, const T *x, size_t rows, size_t cols, PAR__CUDA_PARAMETER par__cuda_dropped d,
                        bool aligned) {
    const uint64_t stream = par__cuda_dropout_stream(d.drop);
    const auto drop8 = [&](size_t row, size_t at, uint64_t first, bool whole) {
        float v[8];
        uint32_t bits[8];
        const par__cuda_pack8<T> raw = par__cuda_load8(x + row * cols, at, cols, whole);
        if (whole) { // a Philox block has the bits of four elements, and these begin at a multiple of four
            par__cuda_philox(d.keys, stream, first >> 2, bits);
            par__cuda_philox(d.keys, stream, first >> 2 | 1, bits + 4); // the upper half is the same
        } else
            for (int j = 0; j < 8; j++)
                bits[j] = par__cuda_random_bits(d.drop.seed, stream, first + (uint64_t)j);
        par__cuda_widen8(v, raw);
        for (int j = 0; j < 8; j++) v[j] = par__tp_is_dropped(bits[j], d.drop.limit) ? 0.0f : v[j] * d.scale;
        par__cuda_store8(y + row * cols, v, at, cols, whole);
    };
    if constexpr (LINEAR) {
        const size_t whole = aligned ? cols / 8 * 8 : 0;
        const unsigned step = gridDim.x * blockDim.x * 8;
        size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8;
        for (; at < whole; at += step) drop8(0, at, d.base + at, true);
        for (; at < cols; at += step) drop8(0, at, d.base + at, false);
    } else {
        const par_tp_row_map &m = d.map.map;
        for (par__cuda_grid_stride i((cols + 7) / 8); i.row < rows; i.next()) {
            size_t sequence;
            const size_t at = i.group * 8, position = par__cuda_row_position(d.map, i.row, &sequence);
            const uint64_t first = ((m.first_sequence + sequence) * m.sequence + position) * cols + at;
            aligned &&at + 8 <= cols ? drop8(i.row, at, first, true) : drop8(i.row, at, first, false);
        }
    }
}
static par_result par__cuda_t_dropout(par_tp *tp, void *y, const void *x, size_t rows, size_t cols,
                                      const par_tp_row_map *map, uint64_t stream, float p) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    if (p <= 0 && x == y) return PAR_OK;
    const bool linear = map->local_sequence == map->sequence && !map->position && !map->chunk[0] &&
                        map->chunk_tokens >= map->sequence;
    const par__cuda_dropped d = {par__cuda_map_of(map), par__cuda_dropout_of(tp, stream, p),
                                 par__cuda_round_keys_of(par_tp_seed(tp)), par__tp_dropout_scale(p),
                                 (map->first_sequence * map->sequence + map->first_row) * cols};
    const bool aligned = cols % 8 == 0 && par__cuda_aligned(x, y);
    const unsigned blocks = par__cuda_blocks(cuda, rows * ((cols + 7) / 8), PAR__CUDA_THREADS);
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_launch(cuda, linear ? par__cuda_k_dropout<T, true> : par__cuda_k_dropout<T, false>,
                                blocks, PAR__CUDA_THREADS, 0, cuda->stream, (T *)y, (const T *)x,
                                linear ? 1 : rows, linear ? rows * cols : cols, d, aligned);
    });
}

// >>cuda_rope -----------------------------------------------------------------------------------------------

// Angles are computed in double, as in the CPU's table.
static __global__ void par__cuda_k_rope_table(float *table, size_t local_sequence, size_t dim,
                                              PAR__CUDA_PARAMETER par_tp_row_map map,
                                              PAR__CUDA_PARAMETER par_tp_rotary rotary) {
    const size_t half = dim / 2;
    PAR__CUDA_GRID_STRIDE(i, local_sequence * half) {
        const double angle =
            (double)par__tp_map_position(&map, i / half) * par__tp_rope_frequency(&rotary, i % half, dim);
        table[i / half * dim + i % half] = (float)par__cos(angle);
        table[i / half * dim + half + i % half] = (float)par__sin(angle);
    }
}
// A thread rotates eight pairs, whose halves are two packs of a head; `groups` is how many a head has.
template <class T>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_rope(T *x, size_t rows, size_t ld, size_t heads, size_t dim, const float *table,
                     PAR__CUDA_PARAMETER par__cuda_map map, par__cuda_divisor groups, float sign) {
    const size_t half = dim / 2;
    for (par__cuda_grid_stride i(heads * groups.by); i.row < rows; i.next()) {
        const size_t token = map.map.first_row + i.row, head = par__cuda_divide(groups, i.group),
                     j = (i.group - head * groups.by) * 8;
        const float *cos_sin =
            table + (token - par__cuda_divide(map.local_sequence, token) * map.map.local_sequence) * dim;
        T *a = x + i.row * ld + head * dim, *b = a + half;
        const par__cuda_pack8<T> p = par__cuda_load8(a, j, half, true), q = par__cuda_load8(b, j, half, true);
        float u[8], v[8], c[8], s[8], o[8];
        par__cuda_widen8(c, par__cuda_load8(cos_sin, j, half, true));
        par__cuda_widen8(s, par__cuda_load8(cos_sin + half, j, half, true));
        par__cuda_widen8(u, p);
        par__cuda_widen8(v, q);
        for (int k = 0; k < 8; k++) o[k] = par__tp_rotate_first(u[k], v[k], c[k], sign * s[k]);
        par__cuda_store8(a, o, j, half, true);
        for (int k = 0; k < 8; k++) o[k] = par__tp_rotate_second(u[k], v[k], c[k], sign * s[k]);
        par__cuda_store8(b, o, j, half, true);
    }
}
// The same for heads of other lengths, or elsewhere in memory: a thread rotates one pair.
template <class T>
static __global__ void par__cuda_k_rope_pairs(T *x, size_t rows, size_t ld, size_t heads, size_t dim,
                                              const float *table, PAR__CUDA_PARAMETER par__cuda_map map,
                                              par__cuda_divisor half, float sign) {
    for (par__cuda_grid_stride i(heads * half.by); i.row < rows; i.next()) {
        const size_t token = map.map.first_row + i.row, head = par__cuda_divide(half, i.group),
                     j = i.group - head * half.by;
        const float *cos_sin =
            table + (token - par__cuda_divide(map.local_sequence, token) * map.map.local_sequence) * dim;
        T *a = x + i.row * ld + head * dim + j, *b = a + half.by;
        const float u = (float)par__cuda_widen(*a), v = (float)par__cuda_widen(*b), c = cos_sin[j],
                    s = sign * cos_sin[half.by + j];
        par__cuda_round(a, par__tp_rotate_first(u, v, c, s));
        par__cuda_round(b, par__tp_rotate_second(u, v, c, s));
    }
}
static par_result par__cuda_t_rope(par_tp *tp, void *x, size_t rows, size_t ld, size_t heads, size_t dim,
                                   const par_tp_row_map *map, const par_tp_rotary *rotary, int backward) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    par__cuda_rope_key key; // the same for all layers of a step, so kept
    memset(&key, 0, sizeof key);
    key.rotary = *rotary;
    key.map = *map;
    key.dim = dim;
    key.map.first_row = 0;
    key.map.first_sequence = 0;
    float *table =
        (float *)par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_ROPE, map->local_sequence * dim * sizeof(float));
    if (!table) return PAR_ERR_MEMORY;
    if (cuda->captured || memcmp(&key, &cuda->rope_key, sizeof key)) { // a replay writes another one
        PAR__CUDA_TRY(par__cuda_over(cuda, map->local_sequence * dim / 2, par__cuda_k_rope_table, table,
                                     map->local_sequence, dim, *map, *rotary));
        memcpy(&cuda->rope_key, &key, sizeof key);
    }
    const float sign = backward ? -1.0f : 1.0f;
    const bool whole = dim % 16 == 0 && par__cuda_aligned(x, ld * par_tp_element_bytes(tp));
    const par__cuda_divisor parts = par__cuda_divisor_of(whole ? dim / 16 : dim / 2);
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_over(cuda, rows * heads * parts.by,
                              whole ? par__cuda_k_rope<T> : par__cuda_k_rope_pairs<T>, (T *)x, rows, ld,
                              heads, dim, table, par__cuda_map_of(map), parts, sign);
    });
}

// >>cuda_embedding ------------------------------------------------------------------------------------------
//
// Embeddings of tokens and positions. The backward pass of tokens sorts rows by id and sums the rows of each
// id in a fixed order. A piece is a run of one id within PAR__CUDA_PIECE sorted rows. The first piece of an
// id is added to the gradient at once; the sums of its further pieces go to `partials` and are added
// afterwards, in order.
//     sorted ids   3 3 5 5 5 | 5 5 7 ...      5 has two pieces: the second is added from `partials`

template <class T>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_embed(T *y, const int32_t *ids, size_t rows, const T *table, size_t first, size_t count,
                      size_t cols, bool aligned) {
    for (par__cuda_grid_stride i((cols + 7) / 8); i.row < rows; i.next()) {
        const size_t id = (size_t)ids[i.row] - first, at = i.group * 8; // wraps around below
        const auto copy = [&](bool whole) {
            float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (id < count) par__cuda_widen8(v, par__cuda_load8(table + id * cols, at, cols, whole));
            par__cuda_store8(y + i.row * cols, v, at, cols, whole);
        };
        aligned &&at + 8 <= cols ? copy(true) : copy(false);
    }
}
static par_result par__cuda_t_embed(par_tp *tp, void *y, const int32_t *ids, size_t rows, const void *table,
                                    size_t first, size_t count, size_t cols) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const bool aligned = cols % 8 == 0 && par__cuda_aligned(y, table);
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_over(cuda, rows * ((cols + 7) / 8), par__cuda_k_embed<T>, (T *)y, ids, rows,
                              (const T *)table, first, count, cols, aligned);
    });
}
enum { PAR__CUDA_PIECE = 32 };
// Of ids that are elsewhere the key is `count`, the last.
static __global__ void par__cuda_k_embed_keys(uint32_t *keys, uint32_t *rows_of_keys, const int32_t *ids,
                                              size_t rows, size_t first, size_t count) {
    PAR__CUDA_GRID_STRIDE(i, rows) {
        const size_t id = (size_t)ids[i] - first;
        keys[i] = (uint32_t)PAR__MIN(id, count);
        rows_of_keys[i] = (uint32_t)i;
    }
}
// par__cuda_store8 of f32, which compilers do not cut where words come two ways.
static __device__ __forceinline__ void par__cuda_put_sums(float *p, const float *x, size_t at, size_t n,
                                                          bool whole) {
#if defined(__CUDA_ARCH__)
    if (whole) {
        __stwb((float4 *)(void *)(p + at), make_float4(x[0], x[1], x[2], x[3]));
        __stwb((float4 *)(void *)(p + at + 4), make_float4(x[4], x[5], x[6], x[7]));
        return;
    }
#endif
    par__cuda_store8(p, x, at, n, whole);
}
// A warp adds up the pieces within PAR__CUDA_PIECE sorted rows, in 256 columns. It loads four rows and their
// keys at a time, whatever the keys are, while the next four come to the cache.
template <class T>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_embed_pieces(float *grad, float *partials, const uint32_t *keys, const uint32_t *rows_of_keys,
                             const T *dy, size_t rows, uint32_t count, size_t cols, bool aligned) {
    enum { PIECE = PAR__CUDA_PIECE, AHEAD = 4 };
    const size_t warps = (size_t)gridDim.x * (blockDim.x / 32), across = (cols + 255) / 256;
    const size_t items = (rows + PIECE - 1) / PIECE * across;
    for (size_t w = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; w < items; w += warps) {
        const unsigned first = (unsigned)(w / across) * PIECE, end = PAR__MIN(first + PIECE, (unsigned)rows);
        const unsigned lane = threadIdx.x % 32;
        const size_t from_col = w % across * 256, at = from_col + lane * 8;
        const auto add = [&](bool whole) {
            float sum[8], v[8];
            bool opens = false; // the run that is added up begins here, so that its sum goes to the gradient
            for (unsigned from = first; from < end; from += AHEAD) {
                par__cuda_pack8<T> x[AHEAD];
                uint32_t key[AHEAD + 2]; // of the row before, the rows, and the row behind; of none: `count`
                PAR__CUDA_UNROLL
                for (unsigned k = 0; k < AHEAD + 2; k++)
                    key[k] = from + k > 0 && from + k <= (unsigned)rows ? keys[from + k - 1] : count;
                PAR__CUDA_UNROLL
                for (unsigned k = 0; k < AHEAD; k++)
                    x[k] = par__cuda_load8(dy + rows_of_keys[PAR__MIN(from + k, end - 1)] * cols, at, cols,
                                           whole);
                if (lane < AHEAD && from + AHEAD + lane < end)
                    par__cuda_prefetch(dy + rows_of_keys[from + AHEAD + lane] * cols + from_col,
                                       (unsigned)(PAR__MIN(cols - from_col, (size_t)256) * sizeof(T)));
                PAR__CUDA_UNROLL
                for (unsigned k = 0; k < AHEAD; k++) {
                    const unsigned i = from + k;
                    const bool begins = key[k] != key[k + 1], ends = i + 1 == end || key[k + 1] != key[k + 2];
                    if (i >= end || key[k + 1] == count) break;
                    par__cuda_widen8(v, x[k]);
                    if (begins || i == first) opens = begins;
                    for (int j = 0; j < 8; j++) sum[j] = begins || i == first ? v[j] : sum[j] + v[j];
                    if (!ends) continue;
                    float *to = opens ? grad + key[k + 1] * cols : partials + first / PIECE * cols;
                    if (opens) {
                        par__cuda_widen8(v, par__cuda_load8(to, at, cols, whole));
                        for (int j = 0; j < 8; j++) sum[j] = v[j] + sum[j];
                    }
                    par__cuda_put_sums(to, sum, at, cols, whole);
                }
            }
        };
        if (at < cols) aligned &&at + 8 <= cols ? add(true) : add(false);
    }
}
// A warp has the first end of a piece that a run of one id reaches beyond, and adds the run's further sums,
// in 32 columns.
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_embed_carry(float *grad, const float *partials, const uint32_t *keys, size_t rows,
                            uint32_t count, size_t cols) {
    enum { PIECE = PAR__CUDA_PIECE, AHEAD = 16 };
    const size_t warps = (size_t)gridDim.x * (blockDim.x / 32), across = (cols + 31) / 32;
    const size_t items = (rows - 1) / PIECE * across;
    for (size_t w = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; w < items; w += warps) {
        const size_t next = (w / across + 1) * PIECE, c = w % across * 32 + threadIdx.x % 32;
        const uint32_t key = keys[next], before = keys[next - 1];
        const uint32_t earlier = next > PIECE ? keys[next - PIECE - 1] : count;
        if (key == count || before != key || earlier == key) continue;
        size_t last = next / PIECE, beyond = (rows - 1) / PIECE + 1; // pieces: last begins with this id
        while (last + 1 < beyond) {
            const size_t middle = (last + beyond) / 2;
            if (keys[middle * PIECE] == key)
                last = middle;
            else
                beyond = middle;
        }
        if (c >= cols) continue;
        float sum = 0;
        for (size_t i = next / PIECE; i < beyond; i += AHEAD) {
            float x[AHEAD];
            PAR__CUDA_UNROLL
            for (size_t k = 0; k < AHEAD; k++) x[k] = i + k < beyond ? partials[(i + k) * cols + c] : 0;
            PAR__CUDA_UNROLL
            for (size_t k = 0; k < AHEAD; k++) sum += x[k];
        }
        grad[key * cols + c] += sum;
    }
}
// Sorts rows by their keys, of `bits` bits.
#if !defined(CUDA_EMU)
static par_result par__cuda_sort(par_cuda *cuda, const uint32_t *keys, uint32_t *sorted,
                                 const uint32_t *rows_of_keys, uint32_t *order, size_t n, int bits) {
    size_t bytes = 0;
    PAR__CUDA_CALL(cub::DeviceRadixSort::SortPairs(NULL, bytes, keys, sorted, rows_of_keys, order, n, 0, bits,
                                                   cuda->stream));
    void *scratch =
        par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_SUMS, PAR__MAX(bytes, (size_t)2 * 1024 * sizeof(double)));
    if (!scratch) return PAR_ERR_MEMORY;
    PAR__CUDA_CALL(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted, rows_of_keys, order, n, 0,
                                                   bits, cuda->stream));
    return PAR_OK;
}
#else
static par_result par__cuda_sort(par_cuda *cuda, const uint32_t *keys, uint32_t *sorted,
                                 const uint32_t *places, uint32_t *order, size_t n, int bits) {
    emu_sort_pairs(keys, sorted, places, order, n, bits, cuda->stream);
    return PAR_OK;
}
#endif
static par_result par__cuda_t_embed_backward(par_tp *tp, float *grad, const int32_t *ids, size_t rows,
                                             const void *dy, size_t first, size_t count, size_t cols) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const size_t pieces = rows / PAR__CUDA_PIECE + 1, up = (rows + 63) / 64 * 64;
    char *scratch = (char *)par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_PARTIALS,
                                              4 * up * sizeof(uint32_t) + pieces * cols * sizeof(float));
    if (!scratch) return PAR_ERR_MEMORY;
    if (!rows || !cols) return PAR_OK;
    uint32_t *keys = (uint32_t *)(void *)scratch, *rows_of_keys = keys + up, *sorted = rows_of_keys + up,
             *order = sorted + up;
    float *partials = (float *)(void *)(order + up);
    const unsigned threads = PAR__CUDA_THREADS;
    const unsigned blocks = par__cuda_blocks(cuda, pieces * ((cols + 31) / 32), threads / 32);
    const bool aligned = cols % 8 == 0 && par__cuda_aligned(grad, partials, dy);
    PAR__CUDA_TRY(
        par__cuda_over(cuda, rows, par__cuda_k_embed_keys, keys, rows_of_keys, ids, rows, first, count));
    int bits = 1; // of the largest key
    while (bits < 32 && count >> bits) bits++;
    PAR__CUDA_TRY(par__cuda_sort(cuda, keys, sorted, rows_of_keys, order, rows, bits));
    PAR__CUDA_TRY(par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_launch(cuda, par__cuda_k_embed_pieces<T>, blocks, threads, 0, cuda->stream, grad,
                                partials, sorted, order, (const T *)dy, rows, (uint32_t)count, cols, aligned);
    }));
    return par__cuda_launch(cuda, par__cuda_k_embed_carry, blocks, threads, 0, cuda->stream, grad, partials,
                            sorted, rows, (uint32_t)count, cols);
}
template <class T>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_positions(T *y, const T *table, size_t rows, size_t cols,
                          PAR__CUDA_PARAMETER par__cuda_map map, bool aligned) {
    for (par__cuda_grid_stride i((cols + 7) / 8); i.row < rows; i.next()) {
        const size_t at = i.group * 8;
        size_t sequence;
        const T *from = table + par__cuda_row_position(map, i.row, &sequence) * cols;
        const auto add = [&](bool whole) {
            const par__cuda_pack8<T> p = par__cuda_load8(y + i.row * cols, at, cols, whole),
                                     q = par__cuda_load8(from, at, cols, whole);
            float x[8], t[8];
            par__cuda_widen8(x, p);
            par__cuda_widen8(t, q);
            for (int j = 0; j < 8; j++) x[j] += t[j];
            par__cuda_store8(y + i.row * cols, x, at, cols, whole);
        };
        aligned &&at + 8 <= cols ? add(true) : add(false);
    }
}
static par_result par__cuda_t_positions(par_tp *tp, void *y, const void *table, size_t rows, size_t cols,
                                        const par_tp_row_map *map) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const bool aligned = cols % 8 == 0 && par__cuda_aligned(y, table);
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_over(cuda, rows * ((cols + 7) / 8), par__cuda_k_positions<T>, (T *)y,
                              (const T *)table, rows, cols, par__cuda_map_of(map), aligned);
    });
}
// A thread has one position of the sequence and eight columns, and sums the rows with that position in order.
// offset: of the first row in its sequence.
template <class T>
static __global__ void __launch_bounds__(PAR__CUDA_THREADS)
    par__cuda_k_positions_backward(float *grad, const T *dy, size_t rows, size_t cols,
                                   PAR__CUDA_PARAMETER par__cuda_map map, size_t offset, bool aligned) {
    const size_t tokens = map.map.local_sequence;
    for (par__cuda_grid_stride i((cols + 7) / 8); i.row < tokens; i.next()) {
        const size_t at = i.group * 8, first = i.row - offset + (i.row < offset ? tokens : 0);
        if (first >= rows) continue;
        float *to = grad + par__cuda_position(map, i.row) * cols;
        const auto add = [&](bool whole) {
            float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0}, v[8];
            for (size_t r = first; r < rows; r += 4 * tokens) {
                par__cuda_pack8<T> raw[4] = {};
                PAR__CUDA_UNROLL
                for (size_t k = 0; k < 4; k++)
                    if (r + k * tokens < rows)
                        raw[k] = par__cuda_load8(dy + (r + k * tokens) * cols, at, cols, whole);
                PAR__CUDA_UNROLL
                for (size_t k = 0; k < 4; k++) {
                    par__cuda_widen8(v, raw[k]);
                    for (int j = 0; j < 8; j++) sum[j] += v[j];
                }
            }
            par__cuda_widen8(v, par__cuda_load8(to, at, cols, whole));
            for (int j = 0; j < 8; j++) v[j] += sum[j];
            par__cuda_store8(to, v, at, cols, whole);
        };
        aligned &&at + 8 <= cols ? add(true) : add(false);
    }
}
static par_result par__cuda_t_positions_backward(par_tp *tp, float *grad, const void *dy, size_t rows,
                                                 size_t cols, const par_tp_row_map *map) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const bool aligned = cols % 8 == 0 && par__cuda_aligned(grad, dy);
    const size_t tokens = map->local_sequence;
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_over(cuda, tokens * ((cols + 7) / 8), par__cuda_k_positions_backward<T>, grad,
                              (const T *)dy, rows, cols, par__cuda_map_of(map), map->first_row % tokens,
                              aligned);
    });
}

// >>cuda_loss -----------------------------------------------------------------------------------------------
//
// Cross-entropy over logits that may be split by columns: each rank computes its statistics of a row, and
// combines those of all ranks.

enum { PAR__CUDA_LOSS_THREADS = 512 };
static unsigned par__cuda_loss_threads(size_t cols) {
    const size_t wanted = ((cols + 7) / 8 + 31) / 32 * 32;
    return (unsigned)PAR__MAX((size_t)32, PAR__MIN(wanted, (size_t)PAR__CUDA_LOSS_THREADS));
}
// A thread's part of an online softmax: base is max log2(e), rounded; sum that of 2^(x log2(e) - base), so
// that one instruction multiplies and subtracts. How base was rounded is made good once a row.
struct par__cuda_softmax {
    float max, base, sum, total;
    __device__ __forceinline__ void add(const float *v) {
        float new_max = max;
        for (int j = 0; j < 8; j++) new_max = fmaxf(v[j], new_max);
        const float new_base = new_max * PAR__CUDA_LOG2E;
        const float subtracted = new_max > -INFINITY ? new_base : 0; // where all are -inf, 2^-inf is added
        sum *= par__cuda_exp2(base - subtracted);
        for (int j = 0; j < 8; j++) sum += par__cuda_exp2(fmaf(v[j], PAR__CUDA_LOG2E, -subtracted));
        max = new_max;
        base = new_base;
    }
};
// An online softmax over a row, in one pass: each thread updates its maximum and its sum of e^(x - max), 64
// bytes at a time. Returns the row's maximum, its sum of e^(x - max) and the sum of x, in all threads. KEEP:
// `keep` is shared memory, to which each thread copies the packs that it reads.
template <bool KEEP, class T>
static __device__ __forceinline__ float3 par__cuda_row_stats(const T *x, size_t cols, float *scratch, T *keep,
                                                             bool whole) {
    enum { N = 8 / sizeof(T) }; // packs at a time
    const unsigned step = blockDim.x * 8;
    par__cuda_softmax s = {-INFINITY, -INFINITY, 0, 0};
    float v[8];
    size_t from = threadIdx.x * 8;
    for (; whole && from + (N - 1) * step + 8 <= cols; from += N * step) {
        par__cuda_pack8<T> raw[N];
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < N; k++) raw[k] = par__cuda_load8(x + from, k * step, cols, true);
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < N; k++) {
            if (KEEP) par__cuda_store8_words(keep + from + k * step, raw[k]);
            par__cuda_widen8(v, raw[k]);
            s.add(v);
            for (int j = 0; j < 8; j++) s.total += v[j];
        }
    }
    for (; from < cols; from += step) {
        const par__cuda_pack8<T> raw = par__cuda_load8(x, from, cols, whole && from + 8 <= cols);
        if (KEEP) par__cuda_store8_words(keep + from, raw);
        par__cuda_widen8(v, raw);
        for (size_t j = 0; j < 8; j++) v[j] = from + j < cols ? v[j] : -INFINITY;
        s.add(v);
        for (size_t j = 0; j < 8; j++) s.total += from + j < cols ? v[j] : 0;
    }
    const float all = par__cuda_block_reduce<par__cuda_max>(s.max, scratch);
    const float scale = par__cuda_exp2(fmaf(-all, PAR__CUDA_LOG2E, s.base)); // <= 1, but for rounding
    const float sum =
        par__cuda_block_reduce<par__cuda_add>(s.max > -INFINITY ? s.sum * scale : 0.0f, scratch);
    return make_float3(all, sum, par__cuda_block_reduce<par__cuda_add>(s.total, scratch));
}
template <class T>
static __global__ void __launch_bounds__(PAR__CUDA_LOSS_THREADS)
    par__cuda_k_loss_stats(float *stats, const T *logits, size_t ld, const int32_t *targets, size_t rows,
                           size_t first, size_t cols, bool aligned) {
    PAR__CUDA_SHARED(float, scratch);
    for (size_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const T *x = logits + r * ld;
        const float3 s = par__cuda_row_stats<false>(x, cols, scratch, (T *)NULL, aligned);
        const size_t target = (size_t)targets[r] - first;
        if (threadIdx.x == 0) {
            stats[4 * r] = s.x;
            stats[4 * r + 1] = s.y;
            stats[4 * r + 3] = s.z;
            stats[4 * r + 2] = target < cols ? (float)par__cuda_widen(x[target]) : 0.0f;
        }
    }
}
static par_result par__cuda_t_loss_stats(par_tp *tp, float *stats, const void *logits, size_t ld,
                                         const int32_t *targets, size_t rows, size_t first, size_t cols) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    if (!rows) return PAR_OK;
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_launch(cuda, par__cuda_k_loss_stats<T>, par__cuda_row_blocks(cuda, rows),
                                par__cuda_loss_threads(cols), 32 * sizeof(float), cuda->stream, stats,
                                (const T *)logits, ld, targets, rows, first, cols,
                                par__cuda_aligned(logits, ld * sizeof(T)));
    });
}
static __global__ void par__cuda_k_loss_combine(const float *stats, size_t ranks, size_t rows,
                                                const int32_t *targets, par_tp_loss loss, float *lse,
                                                float *losses, double *sum, size_t *target_count) {
    PAR__CUDA_SHARED(double, scratch);
    double all = 0, count = 0;
    for (size_t r = threadIdx.x; r < rows; r += blockDim.x) {
        const double one = par__tp_row_loss(&loss, stats + 4 * r, ranks, 4 * rows, &lse[r]);
        const bool ignored = par__tp_ignored(&loss, targets[r]);
        if (losses) losses[r] = ignored ? 0 : (float)one;
        if (!ignored) {
            all += one;
            count += 1;
        }
    }
    all = par__cuda_block_reduce<par__cuda_add>(all, scratch);
    count = par__cuda_block_reduce<par__cuda_add>(count, scratch);
    if (threadIdx.x == 0) {
        *sum = all;
        *target_count = (size_t)count;
    }
}
static par_result par__cuda_t_loss_combine(par_tp *tp, const float *stats, size_t ranks, size_t rows,
                                           const int32_t *targets, const par_tp_loss *loss, float *lse,
                                           float *losses, double *sum, size_t *target_count) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    return par__cuda_launch(cuda, par__cuda_k_loss_combine, 1, 512, 32 * sizeof(double), cuda->stream, stats,
                            ranks, rows, targets, *loss, lse, losses, sum, target_count);
}
// y: the gradient of a row of logits; x is the row in memory (kept: in shared memory, padded to whole
// packs), which may be y. The thread that has the target's pack writes the target's own gradient
// afterwards.
template <class T>
static __device__ __forceinline__ void
par__cuda_row_gradient(T *y, const T *x, bool kept, int32_t id, size_t first, size_t cols, float lse,
                       const par_tp_loss &loss, float scale, bool whole) {
    enum { N = 8 / sizeof(T) }; // packs at a time
    const float base = lse * PAR__CUDA_LOG2E, smooth = par__tp_loss_smooth(&loss, scale);
    const float factor =
        par__tp_loss_factor(&loss, scale, lse) * par__cuda_exp2(fmaf(-lse, PAR__CUDA_LOG2E, base));
    const size_t target = (size_t)id - first;
    const unsigned step = blockDim.x * 8;
    const bool ignored = par__tp_ignored(&loss, id);
    const bool owns = target < cols && target / 8 % blockDim.x == threadIdx.x && !ignored;
    const float logit = owns ? (float)par__cuda_widen(x[target]) : 0.0f;
    const auto gradient = [&](float v) {
        return fmaf(factor, par__cuda_exp2(fmaf(v, PAR__CUDA_LOG2E, -base)), -smooth);
    };
    const auto put = [&](const par__cuda_pack8<T> &raw, size_t at, bool all) {
        float v[8];
        par__cuda_widen8(v, raw);
        for (int j = 0; j < 8; j++) v[j] = ignored ? 0.0f : gradient(v[j]);
        par__cuda_store8(y, v, at, cols, all);
    };
    size_t from = threadIdx.x * 8;
    for (; whole && from + (N - 1) * step + 8 <= cols; from += N * step) {
        par__cuda_pack8<T> raw[N];
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < N; k++) raw[k] = par__cuda_load8(x + from, k * step, cols, true);
        PAR__CUDA_UNROLL
        for (unsigned k = 0; k < N; k++) put(raw[k], from + k * step, true);
    }
    for (; from < cols; from += step) {
        const bool all = whole && from + 8 <= cols;
        put(par__cuda_load8(x, from, cols, kept || all), from, all);
    }
    if (owns) par__cuda_round(y + target, par__tp_target_gradient(&loss, scale, gradient(logit)));
}
template <class T>
static __global__ void __launch_bounds__(PAR__CUDA_LOSS_THREADS)
    par__cuda_k_loss_backward(T *dlogits, const T *logits, size_t ld, const int32_t *targets,
                              const float *lse, size_t rows, size_t first, size_t cols, par_tp_loss loss,
                              float scale, bool aligned) {
    for (size_t r = blockIdx.x; r < rows; r += gridDim.x)
        par__cuda_row_gradient(dlogits + r * ld, logits + r * ld, false, targets[r], first, cols, lse[r],
                               loss, scale, aligned);
}
// The row stays in shared memory between its statistics and its gradient; with two blocks of a
// multiprocessor, one loads while the other computes.
template <class T>
static __global__ void __launch_bounds__(PAR__CUDA_LOSS_THREADS, 2)
    par__cuda_k_loss_forward_backward(T *dlogits, float *stats, const T *logits, size_t ld,
                                      const int32_t *targets, size_t rows, size_t cols, par_tp_loss loss,
                                      float scale, bool aligned) {
    PAR__CUDA_SHARED(float, scratch);
    T *row = (T *)(void *)(scratch + 32);
    for (size_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const T *x = logits + r * ld;
        const size_t target = (size_t)targets[r];
        if (threadIdx.x == 0) stats[4 * r + 2] = target < cols ? (float)par__cuda_widen(x[target]) : 0.0f;
        const float3 s = par__cuda_row_stats<true>(x, cols, scratch, row, aligned);
        if (threadIdx.x == 0) {
            stats[4 * r] = s.x;
            stats[4 * r + 1] = s.y;
            stats[4 * r + 3] = s.z;
        }
        const float lse = (float)par__tp_log_sum_exp(s.x, (double)s.y);
        par__cuda_row_gradient(dlogits + r * ld, row, true, targets[r], 0, cols, lse, loss, scale, aligned);
    }
}
static par_result par__cuda_t_loss_backward(par_tp *tp, void *dlogits, const void *logits, size_t ld,
                                            const int32_t *targets, const float *lse, size_t rows,
                                            size_t first, size_t cols, const par_tp_loss *loss, float scale) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    if (!rows) return PAR_OK;
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_launch(cuda, par__cuda_k_loss_backward<T>, par__cuda_row_blocks(cuda, rows),
                                par__cuda_loss_threads(cols), 0, cuda->stream, (T *)dlogits,
                                (const T *)logits, ld, targets, lse, rows, first, cols, *loss, scale,
                                par__cuda_aligned(dlogits, logits, ld * sizeof(T)));
    });
}
static par_result par__cuda_t_loss_forward_backward(par_tp *tp, void *dlogits, float *stats,
                                                    const void *logits, size_t ld, const int32_t *targets,
                                                    size_t rows, size_t cols, const par_tp_loss *loss,
                                                    float *lse, float *losses, double *sum,
                                                    size_t *target_count, float scale) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const size_t shared = 32 * sizeof(float) + (cols + 7) / 8 * 8 * par_tp_element_bytes(tp);
    const int fits = shared <= (size_t)cuda->max_shared_bytes;
    if (rows && fits) {
        PAR__CUDA_TRY(par__cuda_visit_storage(tp, [&](auto number) {
            typedef decltype(number) T;
            return par__cuda_launch(cuda, par__cuda_k_loss_forward_backward<T>,
                                    par__cuda_row_blocks(cuda, rows), par__cuda_loss_threads(cols), shared,
                                    cuda->stream, (T *)dlogits, stats, (const T *)logits, ld, targets, rows,
                                    cols, *loss, scale, par__cuda_aligned(dlogits, logits, ld * sizeof(T)));
        }));
    }
    if (!fits) PAR__CUDA_TRY(par__cuda_t_loss_stats(tp, stats, logits, ld, targets, rows, 0, cols));
    PAR__CUDA_TRY(
        par__cuda_t_loss_combine(tp, stats, 1, rows, targets, loss, lse, losses, sum, target_count));
    return fits
               ? PAR_OK
               : par__cuda_t_loss_backward(tp, dlogits, logits, ld, targets, lse, rows, 0, cols, loss, scale);
}

// >>cuda_codes ----------------------------------------------------------------------------------------------
//
// A block quantizes a tile of 128 x 128 of an operand, the largest block that shares a scale, in groups of 16
// columns: first the amax of each, then the codes, for which the tile is read again from the L1 cache. Where
// one scale is for more than a tile, a pass before finds amax. Maxima are taken of bits as integers, whose
// order does not matter.

#if defined(PAR_CUDA_CUBLASLT)
enum { PAR__CUDA_CODES_TILE = 128, PAR__CUDA_CODES_GROUP = 16, PAR__CUDA_CODES_GROUPS = 4 };
struct par__cuda_amax_of {
    static __device__ __forceinline__ float of(float a, float b) { return par__tp_amax(a, b); }
};
struct par__cuda_code_place { // of a thread's group: in the operand, and in the tile
    size_t row, col;
    unsigned tile_row, group;
};
static __device__ __forceinline__ par__cuda_code_place par__cuda_find_group(const par_tp_operand &q,
                                                                            unsigned j, int transposed) {
    const unsigned across = (unsigned)(q.ld / PAR__CUDA_CODES_TILE); // at most the number of blocks
    const unsigned i = threadIdx.x + blockDim.x * j;
    par__cuda_code_place p; // threads beside each other load what is beside each other
    p.tile_row = transposed ? i % PAR__CUDA_CODES_TILE : i / 8;
    p.group = transposed ? i / PAR__CUDA_CODES_TILE : i % 8;
    p.row = (size_t)(blockIdx.x / across) * PAR__CUDA_CODES_TILE + p.tile_row;
    p.col = blockIdx.x % across * PAR__CUDA_CODES_TILE + p.group * PAR__CUDA_CODES_GROUP;
    return p;
}
// Whether all of a group is there, in a row, at a multiple of 16 bytes.
template <class T>
static __device__ __forceinline__ bool par__cuda_is_whole_group(const par_tp_operand &q, const T *x,
                                                                size_t x_ld, int transposed,
                                                                const par__cuda_code_place &p) {
    return !transposed && p.row < q.rows && p.col + PAR__CUDA_CODES_GROUP <= q.cols &&
           (((uintptr_t)x | x_ld * sizeof(T)) & 15u) == 0;
}
template <class T>
static __device__ __forceinline__ void par__cuda_load_group(float *v, const par_tp_operand &q, const T *x,
                                                            size_t x_ld, int transposed,
                                                            const par__cuda_code_place &p) {
    const size_t cols = p.row < q.rows ? q.cols : 0, down = transposed ? x_ld : 1;
    const T *from = transposed ? x + p.col * x_ld + p.row : x + p.row * x_ld + p.col;
    if (par__cuda_is_whole_group(q, x, x_ld, transposed, p)) {
        const par__cuda_pack8<T> low = par__cuda_load8(from, 0, cols, true),
                                 high = par__cuda_load8(from, 8, cols, true);
        par__cuda_widen8(v, low);
        par__cuda_widen8(v + 8, high);
    } else {
        PAR__CUDA_UNROLL
        for (size_t i = 0; i < PAR__CUDA_CODES_GROUP; i++)
            v[i] = p.col + i < cols ? (float)par__cuda_widen(from[i * down]) : 0.0f;
    }
    if (q.hadamard) par__tp_hadamard(v);
}
template <class T>
static __device__ __forceinline__ float par__cuda_group_amax(const par_tp_operand &q, const T *x, size_t x_ld,
                                                             int transposed, const par__cuda_code_place &p) {
    float v[PAR__CUDA_CODES_GROUP], amax = 0;
    if (!q.hadamard && par__cuda_is_whole_group(q, x, x_ld, transposed, p)) {
        const par__cuda_pack8<T> low = par__cuda_load8(x + p.row * x_ld, p.col, q.cols, true),
                                 high = par__cuda_load8(x + p.row * x_ld, p.col + 8, q.cols, true);
        const uint32_t a = par__cuda_amax_bits(low), b = par__cuda_amax_bits(high);
        return par__bits_to_f32(PAR__MAX(a, b));
    }
    par__cuda_load_group(v, q, x, x_ld, transposed, p);
    PAR__CUDA_UNROLL
    for (int i = 0; i < PAR__CUDA_CODES_GROUP; i++) amax = par__tp_amax(amax, v[i]);
    return amax;
}
static __device__ __forceinline__ void par__cuda_atomic_amax(float *to, float amax) {
    atomicMax((unsigned *)(void *)to, par__f32_to_bits(amax));
}
template <class T>
static __global__ void par__cuda_k_codes_amax(PAR__CUDA_PARAMETER par_tp_operand q, const T *x, size_t x_ld,
                                              int transposed) {
    PAR__CUDA_SHARED(float, scratch);
    float amax = 0;
    if (q.history && q.history[0] > 0) return; // that one is in use
    for (unsigned j = 0; j < PAR__CUDA_CODES_GROUPS; j++) {
        const par__cuda_code_place p = par__cuda_find_group(q, j, transposed);
        const float group = par__cuda_group_amax(q, x, x_ld, transposed, p);
        amax = par__tp_amax(amax, group);
        if (q.block_rows == 1 && !q.block_cols && p.row < q.rows)
            par__cuda_atomic_amax(q.amax + p.row, group);
    }
    if (q.block_rows == 1 && !q.block_cols) return;
    amax = par__cuda_block_reduce<par__cuda_amax_of>(amax, scratch);
    if (threadIdx.x == 0) par__cuda_atomic_amax(q.amax, amax);
}
// The amax of a group's block from those of the tile's groups.
static __device__ __forceinline__ float par__cuda_amax_in_tile(const par_tp_operand &q, const float *groups,
                                                               const par__cuda_code_place &p) {
    const unsigned rows = (unsigned)q.block_rows, cols = (unsigned)q.block_cols / PAR__CUDA_CODES_GROUP;
    const unsigned row = p.tile_row / rows * rows, col = p.group / cols * cols;
    float amax = 0;
    for (unsigned r = row; r < row + rows; r++)
        for (unsigned c = col; c < col + cols; c++) amax = par__tp_amax(amax, groups[r * 8 + c]);
    return amax;
}
// amax: of the group.
static __device__ __forceinline__ void par__cuda_store_codes(const par_tp_operand &q, float *v, float encode,
                                                             float amax, const par__cuda_code_place &p,
                                                             uint64_t seed, uint64_t stream) {
    const size_t at = p.row * q.ld + p.col;
    uint32_t w[4] = {0, 0, 0, 0}, bits[4] = {0, 0, 0, 0};
    PAR__CUDA_UNROLL
    for (int i = 0; i < PAR__CUDA_CODES_GROUP; i++) v[i] *= encode;
    if (q.code == PAR_TP_E2M1) {
        PAR__CUDA_UNROLL
        for (int i = 0; i < PAR__CUDA_CODES_GROUP; i++)
            w[i / 8] |= par__tp_e2m1_code(&q, seed, stream, at, (unsigned)i, v[i], bits) << 4 * (i % 8);
        uint2 two;
        two.x = w[0];
        two.y = w[1];
        *(uint2 *)(void *)((uint8_t *)q.codes + at / 2) = two;
    } else {
        const auto put = [&](bool e4m3, bool numbers) {
            uint4 four;
            four.x = par__cuda_four_codes(e4m3, v, numbers);
            four.y = par__cuda_four_codes(e4m3, v + 4, numbers);
            four.z = par__cuda_four_codes(e4m3, v + 8, numbers);
            four.w = par__cuda_four_codes(e4m3, v + 12, numbers);
            *(uint4 *)(void *)((uint8_t *)q.codes + at) = four;
        };
        if (amax != amax || encode != encode) // which is above 0
            put(q.code == PAR_TP_E4M3, false);
        else
            q.code == PAR_TP_E4M3 ? put(true, true) : put(false, true);
    }
}
template <class T>
static __global__ void par__cuda_k_codes(PAR__CUDA_PARAMETER par_tp_operand q, const T *x, size_t x_ld,
                                         int transposed, uint64_t seed, const uint64_t *offset) {
    PAR__CUDA_SHARED(float, groups); // the amax of each, then one of each warp
    const float tensor = q.history && q.history[0] > 0 ? q.history[0] : q.amax[0];
    const uint64_t stream = q.stream + (offset ? *offset << 24 : 0);
    float v[PAR__CUDA_CODES_GROUP], tile = 0;
    for (unsigned j = 0; j < PAR__CUDA_CODES_GROUPS; j++) {
        const par__cuda_code_place p = par__cuda_find_group(q, j, transposed);
        const float amax = par__cuda_group_amax(q, x, x_ld, transposed, p);
        groups[p.tile_row * 8 + p.group] = amax;
        tile = par__tp_amax(tile, amax);
    }
    tile = par__cuda_block_reduce<par__cuda_amax_of>(tile, groups + PAR__CUDA_CODES_TILE * 8);
    if (q.observed && threadIdx.x == 0) par__cuda_atomic_amax(q.history + 1, tile);
    // a scale of all of the tile, or of the group's row or block
    const bool common = q.block_cols ? q.block_rows == 128 : !q.block_rows;
    par__tp_block_scale s = par__tp_scale_block(q.code, q.scale, q.block_cols ? tile : tensor, tensor);
    for (unsigned j = 0; j < PAR__CUDA_CODES_GROUPS; j++) {
        const par__cuda_code_place p = par__cuda_find_group(q, j, transposed);
        if (p.row >= q.rows) continue;
        par__cuda_load_group(v, q, x, x_ld, transposed, p);
        if (!common)
            s = par__tp_scale_block(
                q.code, q.scale, q.block_cols ? par__cuda_amax_in_tile(q, groups, p) : q.amax[p.row], tensor);
        par__cuda_store_codes(q, v, s.encode, groups[p.tile_row * 8 + p.group], p, seed, stream);
        // a block's sides divide those of a tile; 0: all of the operand's
        const bool first_row = q.block_rows ? p.tile_row % (unsigned)q.block_rows == 0 : p.row == 0;
        const bool first =
            q.block_cols ? p.group * PAR__CUDA_CODES_GROUP % (unsigned)q.block_cols == 0 : p.col == 0;
        if (!first || (q.scale < PAR_TP_SCALE_E8M0 && !first_row)) continue;
        const size_t at = par__tp_scale_at(&q, p.row, p.col);
        if (q.scale >= PAR_TP_SCALE_E8M0)
            ((uint8_t *)q.scales)[at] = (uint8_t)s.stored;
        else
            ((float *)q.scales)[at] = s.decode;
    }
}
static par_result par__cuda_t_quantize(par_tp *tp, const par_tp_operand *q, const void *x, size_t x_ld,
                                       int transposed) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const size_t tiles =
        (q->rows + PAR__CUDA_CODES_TILE - 1) / PAR__CUDA_CODES_TILE * (q->ld / PAR__CUDA_CODES_TILE);
    const size_t shared = (PAR__CUDA_CODES_TILE * 8 + PAR__CUDA_THREADS / 32) * sizeof(float);
    const int whole = !q->block_cols || q->scale == PAR_TP_SCALE_E4M3;
    dim3 grid;
    PAR__CUDA_TRY(par__cuda_grid(cuda, "quantization", tiles, &grid));
    if (q->block_cols) // those of rows and columns beyond the last
        PAR__CUDA_CALL(cudaMemsetAsync(q->scales, 0, par__tp_scale_bytes(q), cuda->stream));
    if (whole) PAR__CUDA_CALL(cudaMemsetAsync(q->amax, 0, (q->rows + 1) * sizeof(float), cuda->stream));
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        if (whole)
            PAR__CUDA_TRY(par__cuda_launch(cuda, par__cuda_k_codes_amax<T>, grid, PAR__CUDA_THREADS, shared,
                                           cuda->stream, *q, (const T *)x, x_ld, transposed));
        return par__cuda_launch(cuda, par__cuda_k_codes<T>, grid, PAR__CUDA_THREADS, shared, cuda->stream, *q,
                                (const T *)x, x_ld, transposed, par_tp_seed(tp), par_tp_dropout_offset(tp));
    });
}
// A product's alpha and beta, where scales of tensors in the device's memory are a part of alpha.
static __global__ void par__cuda_k_factors(float *factors, PAR__CUDA_PARAMETER par_tp_operand a,
                                           PAR__CUDA_PARAMETER par_tp_operand b, float beta) {
    if (threadIdx.x) return;
    factors[0] =
        1.0f / par__tp_tensor_scale(a.code, a.amax[0]) * (1.0f / par__tp_tensor_scale(b.code, b.amax[0]));
    factors[1] = beta;
}
// What cuBLASLt calls the operand's codes and its way of scaling (cublasLtMatmulMatrixScale_t).
static par__cuda_codes par__cuda_codes_of(const par_tp_operand *q) {
    par__cuda_codes c;
    c.type = q->code == PAR_TP_E4M3   ? CUDA_R_8F_E4M3
             : q->code == PAR_TP_E5M2 ? CUDA_R_8F_E5M2
                                      : 33;      // 4F_E2M1
    c.mode = q->scale == PAR_TP_SCALE_E4M3   ? 1 // VEC16_UE4M3
             : q->scale == PAR_TP_SCALE_E8M0 ? 2 // VEC32_UE8M0
             : !q->block_rows                ? 0 // SCALAR_32F
             : !q->block_cols                ? 3 // OUTER_VEC_32F
             : q->block_rows == 1            ? 4 // VEC128_32F
                                             : 5;           // BLK128x128_32F
    c.scales = q->scales;
    return c;
}
static par_result par__cuda_t_gemm_codes(par_tp *tp, const par_tp_operand *a, const par_tp_operand *b,
                                         float beta, void *c, par_dtype c_type, size_t ldc,
                                         const void *bias) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const void *inside = (uintptr_t)bias % 16 || c_type == PAR_F32 ? NULL : bias; // cuBLASLt's is bf16
    const float *factors = NULL;
    if (a->scale == PAR_TP_SCALE_E4M3) {
        factors = a->amax + 4;
        PAR__CUDA_TRY(par__cuda_launch(cuda, par__cuda_k_factors, dim3(1), 32, 0, cuda->stream, a->amax + 4,
                                       *a, *b, beta));
    }
    const par__cuda_gemm_desc p = {0,
                                   1,
                                   a->rows,
                                   b->rows,
                                   a->ld,
                                   a->ld,
                                   b->ld,
                                   ldc,
                                   1.0f,
                                   beta,
                                   PAR_U8,
                                   c_type,
                                   inside,
                                   par__cuda_codes_of(a),
                                   par__cuda_codes_of(b),
                                   factors};
    PAR__CUDA_TRY(par__cuda_gemm(cuda, &p, a->codes, b->codes, c, cuda->stream));
    return inside == bias ? PAR_OK : par__cuda_t_add_bias(tp, c, ldc, bias, a->rows, b->rows);
}
static __global__ void par__cuda_k_roll_amax(float *histories, size_t tensors) {
    for (size_t i = threadIdx.x; i < tensors; i += blockDim.x)
        par__tp_roll_amax(histories + i * PAR__TP_HISTORY);
}
static par_result par__cuda_t_roll_amax(par_tp *tp, float *histories, size_t tensors) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    return par__cuda_launch(cuda, par__cuda_k_roll_amax, dim3(1), 32, 0, cuda->stream, histories, tensors);
}
#endif

// >>cuda_tp -------------------------------------------------------------------------------------------------

static par_result par__cuda_t_alloc(par_tp *tp, size_t bytes, void **memory) {
    return par_cuda_alloc(par__cuda_of_tp(tp), PAR_CUDA_DEVICE, bytes, memory);
}
static par_result par__cuda_t_free(par_tp *tp, void *memory) {
    return par_cuda_free(par__cuda_of_tp(tp), PAR_CUDA_DEVICE, memory);
}
static int par__cuda_t_captured(par_tp *tp) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    return par__cuda_is_capturing(cuda) || cuda->captured;
}
static par_result par__cuda_t_gemm(par_tp *tp, int ta, int tb, size_t m, size_t n, size_t k, const void *a,
                                   size_t lda, const void *b, size_t ldb, float beta, void *c,
                                   par_dtype c_type, size_t ldc, const void *bias) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const void *inside = (uintptr_t)bias % 16 ? NULL : bias; // libraries load 16 bytes at a time
    const par__cuda_gemm_desc p = {ta,     tb,    m, n, k, lda, ldb, ldc, 1.0f, beta, par_tp_dtype(tp),
                                   c_type, inside};
    PAR__CUDA_TRY(par__cuda_gemm(cuda, &p, a, b, c, cuda->stream));
    return inside == bias ? PAR_OK : par__cuda_t_add_bias(tp, c, ldc, bias, m, n);
}
#if defined(PAR_CUDA_CUBLASLT)
static par_result par__cuda_t_gemm_blocks(par_tp *tp, int tb, size_t blocks, size_t m, size_t n, size_t k,
                                          const void *a, size_t a_step, size_t lda, const void *b, size_t ldb,
                                          void *c, size_t c_step, par_dtype c_type, size_t ldc,
                                          const void *bias) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const void *inside = (uintptr_t)bias % 16 ? NULL : bias;
    par__cuda_gemm_desc p = {0, tb, m, n, k, lda, ldb, ldc, 1.0f, 0.0f, par_tp_dtype(tp), c_type, inside};
    p.blocks = blocks;
    p.a_step = a_step;
    p.c_step = c_step;
    PAR__CUDA_TRY(par__cuda_gemm(cuda, &p, a, b, c, cuda->stream));
    for (size_t i = 0; i < blocks && inside != bias; i++) // of the storage type
        PAR__CUDA_TRY(
            par__cuda_t_add_bias(tp, (char *)c + i * c_step * par_tp_element_bytes(tp), ldc, bias, m, n));
    return PAR_OK;
}
// cuBLASLt's D is C, but with GELU: there its auxiliary output is C. Its sums for biases (BGRADB) are not
// used: on H200 they are a kernel of their own, which takes 1.5 times as long as par__cuda_k_sum_rows.
static par_result par__cuda_t_gemm_fused(par_tp *tp, par_tp_fused what, size_t m, size_t n, size_t k,
                                         const void *a, size_t lda, const void *b, size_t ldb, void *c,
                                         size_t ldc, const void *bias, void *other, int *handled) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const int gelu = what == PAR_TP_FUSED_GELU;
    const par_dtype type = par_tp_dtype(tp);
    par__cuda_gemm_desc p = {0, gelu, m, n, k, lda, ldb, ldc, 1.0f, 0.0f, type, type, bias};
    *handled = 0;
    if (!cuda->fuses || ldc % 8 || (uintptr_t)bias % 16) return PAR_OK;
    p.epilogue = (int)(!gelu  ? CUBLASLT_EPILOGUE_DGELU
                       : bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                              : CUBLASLT_EPILOGUE_GELU_AUX);
    p.aux = gelu ? c : other;
    const par_result r = par__cuda_gemm(cuda, &p, a, b, gelu ? other : c, cuda->stream);
    if (r == PAR_ERR_UNSUPPORTED) return PAR_OK;
    return *handled = 1, r;
}
#endif
static par_result par__cuda_t_cast(par_tp *tp, void *dst, par_dtype dt, const void *src, par_dtype st,
                                   size_t n) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    return par__cuda_cast(cuda, dst, dt, src, st, n, cuda->stream);
}
static par_result par__cuda_t_copy(par_tp *tp, void *dst, size_t dst_ld, const void *src, size_t src_ld,
                                   size_t rows, size_t row_bytes) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    const int far = PAR__MAX(dst_ld, src_ld) > 0x7FFFFFFF; // copies in two dimensions take no more
    if (rows && row_bytes && !far)
        PAR__CUDA_CALL(cudaMemcpy2DAsync(dst, dst_ld, src, src_ld, row_bytes, rows, cudaMemcpyDeviceToDevice,
                                         cuda->stream));
    for (size_t i = 0; i < rows && row_bytes && far; i++)
        PAR__CUDA_CALL(cudaMemcpyAsync((char *)dst + i * dst_ld, (const char *)src + i * src_ld, row_bytes,
                                       cudaMemcpyDeviceToDevice, cuda->stream));
    return PAR_OK;
}
template <class T>
static __global__ void par__cuda_k_init(T *dst, uint64_t seed, uint64_t stream, uint64_t first, size_t n,
                                        float deviation, float value) {
    PAR__CUDA_GRID_STRIDE(i, n) {
        const float x = deviation > 0 ? deviation * par__normal(seed, stream, first + i) : value;
        par__cuda_round(dst + i, x);
    }
}
static par_result par__cuda_t_init(par_tp *tp, void *dst, uint64_t stream, uint64_t first, size_t n,
                                   float deviation, float value) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_over(cuda, n, par__cuda_k_init<T>, (T *)dst, par_tp_seed(tp), stream, first, n,
                              deviation, value);
    });
}
static par_result par__cuda_t_square_sum(par_tp *tp, const float *x, size_t n, double *sum) {
    return par__cuda_sum_squares(par__cuda_of_tp(tp), x, PAR_F32, n, 1, sum);
}
static __global__ void par__cuda_k_set(float *x, size_t n, float value) {
    PAR__CUDA_GRID_STRIDE(i, n) x[i] = value;
}
static par_result par__cuda_t_set(par_tp *tp, float *x, size_t n, float value) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    return par__cuda_over(cuda, n, par__cuda_k_set, x, n, value);
}

// >>cuda_mma ------------------------------------------------------------------------------------------------
//
// Tensor cores by the instructions of sm_80 (PTX ISA: mma.sync.m16n8k16, ldmatrix, cp.async). A tile is a
// matrix in shared memory whose rows are D numbers of bf16, in chunks of 16 bytes. Chunk c of row r is stored
// at chunk c ^ (r % 8), so that the eight rows that ldmatrix reads at once are in different banks:
//     row 0   0 1 2 3 4 5 6 7      row 1   1 0 3 2 5 4 7 6      row 2   2 3 0 1 6 7 4 5    ...
// Fragments are spread over a warp. Lane 4 g + t has of a 16 x 8 matrix of sums the elements (g, 2t),
// (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).

#if defined(CUDA_EMU)
static inline uint32_t par__cuda_shared_address(const void *p) { return emu_shared_address(p); }
static inline void par__cuda_ldmatrix_x4(uint32_t *r, uint32_t address) { emu_ldmatrix(r, address, 0); }
static inline void par__cuda_ldmatrix_x4_trans(uint32_t *r, uint32_t address) { emu_ldmatrix(r, address, 1); }
static inline void par__cuda_mma_m16n8k16_bf16(float *c, const uint32_t *a, const uint32_t *b) {
    emu_mma_bf16(c, a, b);
}
static inline void par__cuda_copy_async(uint32_t to, const void *from, bool valid) {
    emu_copy_async(to, from, valid, 16);
}
static inline void par__cuda_copy_async_word(uint32_t to, const void *from, bool valid) {
    emu_copy_async(to, from, valid, 4);
}
static inline void par__cuda_copies_end() { emu_copies_end(); }
static inline void par__cuda_store_shared(uint32_t to, uint4 x) { memcpy(emu_shared_pointer(to), &x, 16); }
static inline float2 par__cuda_load_shared(uint32_t from) {
    float2 x;
    memcpy(&x, emu_shared_pointer(from), sizeof x);
    return x;
}
#else
static __device__ __forceinline__ uint32_t par__cuda_shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
// Loads four matrices of 8 x 8. Lanes 8 i to 8 i + 7 have the addresses of the rows of matrix i.
static __device__ __forceinline__ void par__cuda_ldmatrix_x4(uint32_t *r, uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}
static __device__ __forceinline__ void par__cuda_ldmatrix_x4_trans(uint32_t *r, uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}
// c (16 x 8) += a (16 x 16) b (16 x 8)
static __device__ __forceinline__ void par__cuda_mma_m16n8k16_bf16(float *c, const uint32_t *a,
                                                                   const uint32_t *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Begin to copy 16 bytes, or a word of 4, to shared memory, or zeros if they are not there. copies_end waits
// until this thread's copies have ended; then others see them after a barrier.
static __device__ __forceinline__ void par__cuda_copy_async(uint32_t to, const void *from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void par__cuda_copy_async_word(uint32_t to, const void *from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(valid ? 4 : 0)
                 : "memory");
}
static __device__ __forceinline__ void par__cuda_copies_end() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}
static __device__ __forceinline__ void par__cuda_store_shared(uint32_t to, uint4 x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}
static __device__ __forceinline__ float2 par__cuda_load_shared(uint32_t from) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from));
    return x;
}
#endif
// Two numbers, which are no NaNs, rounded to bf16.
static __device__ __forceinline__ uint32_t par__cuda_bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__)
    return par__cuda_convert_pair(par__cuda_bf16(), low, high);
#else
    return par__cuda_round_pair<par__cuda_bf16>(low, high);
#endif
}

// The lane's part of the addresses of fragments: of a row, and of one half of two chunks. A left operand, and
// a right one that is transposed, take 16 rows x 2 chunks; a right operand by rows takes the halves first. To
// go on by two chunks k times, flip the address by k << 5, as tiles are multiples of 512; by r rows: + 2 r D.
template <int D> static __device__ __forceinline__ uint32_t par__cuda_lane_address(int row, int half) {
    return (uint32_t)(row * D * 2 + ((half ^ (row & 7)) << 4));
}
template <int D> static __device__ __forceinline__ uint32_t par__cuda_left_address() {
    const int lane = (int)threadIdx.x % 32;
    return par__cuda_lane_address<D>(lane % 16, lane / 16);
}
template <int D> static __device__ __forceinline__ uint32_t par__cuda_right_address() {
    const int lane = (int)threadIdx.x % 32;
    return par__cuda_lane_address<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}
// s (16 M x N) = a b^T, where a has 16 M rows and b has N rows of D numbers. Addresses are the lane's.
template <int D, int M, int N>
static __device__ __forceinline__ void par__cuda_rows_by_rows(float (&s)[M][N / 8][4], uint32_t a,
                                                              uint32_t b) {
    PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int n = 0; n < N / 8; n++)
        PAR__CUDA_UNROLL for (int e = 0; e < 4; e++) s[i][n][e] = 0;
    PAR__CUDA_UNROLL for (int k = 0; k < D / 16; k++) {
        uint32_t left[M][4];
        PAR__CUDA_UNROLL for (int i = 0; i < M; i++)
            par__cuda_ldmatrix_x4(left[i], (a ^ (uint32_t)(k << 5)) + (uint32_t)(i * 32 * D));
        PAR__CUDA_UNROLL for (int n = 0; n < N / 16; n++) {
            uint32_t right[4];
            par__cuda_ldmatrix_x4(right, (b ^ (uint32_t)(k << 5)) + (uint32_t)(n * 32 * D));
            PAR__CUDA_UNROLL for (int i = 0; i < M; i++) {
                par__cuda_mma_m16n8k16_bf16(s[i][2 * n], left[i], right);
                par__cuda_mma_m16n8k16_bf16(s[i][2 * n + 1], left[i], right + 2);
            }
        }
    }
}
// x (16 M x O) += p b, where p (16 M x N) is rounded to bf16, and b has N rows of a tile with D numbers each,
// of which O are taken.
template <int D, int M, int N, int O>
static __device__ __forceinline__ void
par__cuda_add_weighted_rows(float (&x)[M][O / 8][4], const float (&p)[M][N / 8][4], uint32_t b) {
    PAR__CUDA_UNROLL for (int k = 0; k < N / 16; k++) {
        uint32_t left[M][4];
        PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int e = 0; e < 4; e++) left[i][e] =
            par__cuda_bf16_pair(p[i][2 * k + e / 2][e % 2 * 2], p[i][2 * k + e / 2][e % 2 * 2 + 1]);
        PAR__CUDA_UNROLL for (int n = 0; n < O / 16; n++) {
            uint32_t right[4];
            par__cuda_ldmatrix_x4_trans(right, (b ^ (uint32_t)(n << 5)) + (uint32_t)(k * 32 * D));
            PAR__CUDA_UNROLL for (int i = 0; i < M; i++) {
                par__cuda_mma_m16n8k16_bf16(x[i][2 * n], left[i], right);
                par__cuda_mma_m16n8k16_bf16(x[i][2 * n + 1], left[i], right + 2);
            }
        }
    }
}
// Begins to copy ROWS rows of a head to a tile; `wide`: 16 bytes at a time. Rows from `count` on and features
// from `dim` on become zeros.
template <int ROWS, int D, int THREADS>
static __device__ __forceinline__ void par__cuda_begin_tile(uint32_t tile, const par__cuda_bf16 *from,
                                                            size_t ld, int count, int dim, bool wide) {
    constexpr int CHUNKS = D / 8, STEP = THREADS / CHUNKS;
    const int at = (int)threadIdx.x % CHUNKS * 8, first = (int)threadIdx.x / CHUNKS;
    if (wide) {
        PAR__CUDA_UNROLL for (int i = 0; i < ROWS / STEP; i++) {
            const int row = first + i * STEP;
            const bool valid = row < count && at < dim;
            const uint32_t to = tile + par__cuda_lane_address<D>(row, at / 8);
            par__cuda_copy_async(to, from + (valid ? (size_t)row * ld + (size_t)at : 0), valid);
        }
        return;
    }
    PAR__CUDA_ROLLED
    for (int row = first; row < ROWS; row += STEP) {
        uint32_t x[8];
        for (int j = 0; j < 8; j++)
            x[j] = row < count && at + j < dim ? from[(size_t)row * ld + (size_t)(at + j)].bits : 0u;
        uint4 v;
        v.x = x[0] | x[1] << 16;
        v.y = x[2] | x[3] << 16;
        v.z = x[4] | x[5] << 16;
        v.w = x[6] | x[7] << 16;
        par__cuda_store_shared(tile + par__cuda_lane_address<D>(row, at / 8), v);
    }
}
// Stores one row of x times `factor`, of the lane's: h 0 or 1 is its first or second row. Four lanes exchange
// what they have of four pieces of 8 numbers, so that each has 16 bytes to store.
template <int D>
static __device__ __forceinline__ void par__cuda_store_fragment(par__cuda_bf16 *row, bool valid, int dim,
                                                                bool wide, const float (&x)[D / 8][4], int h,
                                                                float factor) {
    const int t = (int)threadIdx.x % 4;
    row = par__cuda_global(row);
    PAR__CUDA_UNROLL for (int n = 0; n < D / 8; n += 4) {
        uint32_t w[4];
        PAR__CUDA_UNROLL for (int i = 0; i < 4; i++) w[i] =
            par__cuda_bf16_pair(x[n + i][2 * h] * factor, x[n + i][2 * h + 1] * factor);
        PAR__CUDA_UNROLL for (int d = 1; d <= 2; d *= 2) { // transposes 4 x 4 words
            PAR__CUDA_UNROLL for (int i = 0; i < 2; i++) {
                const int a = d == 1 ? 2 * i : i, b = a + d;
                const uint32_t mine = t & d ? w[a] : w[b];
                const uint32_t theirs = __shfl_xor_sync(0xffffffffu, mine, d);
                w[a] = t & d ? theirs : w[a];
                w[b] = t & d ? w[b] : theirs;
            }
        }
        const int at = (n + t) * 8;
        if (valid && wide && at < dim) {
            uint4 v;
            v.x = w[0];
            v.y = w[1];
            v.z = w[2];
            v.w = w[3];
            *(uint4 *)(void *)(row + at) = v;
        }
        PAR__CUDA_UNROLL for (int j = 0; j < 8; j++) if (valid && !wide && at + j < dim) row[at + j].bits =
            (uint16_t)(w[j / 2] >> 16 * (j % 2));
    }
}
// Multiplies one row of x, of the lane's, by `factor`, and adds `sums` of earlier blocks where there are any.
// keep: the sums go back there, else they stay in x.
template <int D>
static __device__ __forceinline__ void par__cuda_sum_fragment(float *sums, bool any, bool keep, bool valid,
                                                              int dim, float (&x)[D / 8][4], int h,
                                                              float factor) {
    const int t = (int)threadIdx.x % 4;
    PAR__CUDA_UNROLL for (int n = 0; n < D / 8; n++) PAR__CUDA_UNROLL for (int e = 0; e < 2; e++) {
        const int col = 8 * n + 2 * t + e;
        float sum = x[n][2 * h + e] * factor;
        if (any && valid && col < dim) sum += sums[col];
        x[n][2 * h + e] = sum;
        if (keep && valid && col < dim) sums[col] = sum;
    }
}

// >>cuda_attention ------------------------------------------------------------------------------------------
//
// FlashAttention (Dao 2023) of bf16 on tensor cores. A block has WARPS warps, and each warp has 16 M rows:
// queries, or in backward 1 keys. It loops over tiles of N rows of the other side, of which the next one is
// copied to shared memory while this one is used. Scores and their gradients stay in registers: sums of a
// product have the layout of the next product's left operand. Tiles that the mask hides are skipped, by the
// block where it hides all of the block's rows, else by the warp. Features are rounded up to D.
//     forward     queries |  s = q k^T -> maxima, 2^(s - max) -> out = out 2^(old - new) + p v
//     backward 1  keys    |  s^T = k q^T, dp^T = v dy^T -> p^T, ds^T;  dv += p^T dy, dk += ds^T q
//     backward 2  queries |  s = q k^T, dp = dy v^T -> ds;  dq += ds k
// Exponents are of base 2: 1/ln 2 is in the factor of the scores. Each element is written by one thread, in
// an order that does not change: backward computes the scores twice and needs no atomics.

struct par__cuda_flash {
    par_tp_attention_block m;
    bool wide; // rows begin at multiples of 16 bytes
    par__cuda_dropout drop;
};
// What a block of threads works on. Query q sees key k if 0 <= q + shift - k < the window of its row.
struct par__cuda_flash_place {
    int b, h, kh; // sequence, query head, key head
    int first, shift, q_count, k_count, dim;
};
// The largest width of heads, as wider ones need more registers than a thread has, and position of a token.
enum { PAR__CUDA_FLASH_MAX_DIM = 256, PAR__CUDA_FLASH_MAX_TOKENS = 1 << 29 };
// Blocks of backward 2 on a multiprocessor: three by the registers that it needs on sm_90.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#define PAR__CUDA_FLASH_BLOCKS 2
#else
#define PAR__CUDA_FLASH_BLOCKS 3
#endif
#define PAR__CUDA_LN2 0.693147181f

static __device__ __forceinline__ par__cuda_flash_place
par__cuda_flash_place_of(const par_tp_attention_block &m, int head, int by_keys, int first) {
    par__cuda_flash_place s;
    const int group = (int)m.heads / (int)m.kv_heads, heads = (int)(by_keys ? m.kv_heads : m.heads);
    s.b = head / heads;
    s.h = head % heads * (by_keys ? group : 1);
    s.kh = s.h / group;
    s.first = first;
    s.shift = (int)((int64_t)m.q_position - (int64_t)m.kv_position);
    s.q_count = (int)m.q_count;
    s.k_count = (int)m.kv_count;
    s.dim = (int)m.dim;
    return s;
}
static __device__ __forceinline__ size_t par__cuda_flash_q_row(const par_tp_attention_block &m,
                                                               const par__cuda_flash_place &s, int row) {
    return (size_t)(s.b * (int)m.q_stride + (int)m.q_row + row);
}
static __device__ __forceinline__ size_t par__cuda_flash_kv_row(const par_tp_attention_block &m,
                                                                const par__cuda_flash_place &s, int row) {
    return (size_t)(s.b * (int)m.kv_stride + (int)m.kv_row + row);
}
static __device__ __forceinline__ int
par__cuda_flash_limit(const par__cuda_flash &f, const par__cuda_flash_place &p, bool by_keys, int row) {
    const par_tp_attention_block &m = f.m;
    const size_t most = PAR__CUDA_FLASH_MAX_TOKENS, at = by_keys ? m.kv_position : m.q_position;
    int window = (int)(m.window ? PAR__MIN(m.window, most) : most);
    if (m.documents) {
        const size_t last = (size_t)(by_keys ? p.k_count : p.q_count) - 1;
        const size_t token = (size_t)p.b * m.sequence + at + PAR__MIN((size_t)row, last);
        window = (int)PAR__MIN((uint32_t)window, m.documents[token + (by_keys ? m.batch * m.sequence : 0)]);
    }
    return by_keys ? row - p.shift + window : row + p.shift - window;
}
// Puts the limit of each of a block's rows into shared memory: the last key that a query does not see any
// more, or by_keys the first query that does not see a key any more. They rise from row to row, also with
// documents, so that a tile's first and last row tell what all of it sees.
template <int ROWS, int THREADS>
static __device__ __forceinline__ void par__cuda_flash_limits(int *limits, const par__cuda_flash &f,
                                                              const par__cuda_flash_place &p, bool by_keys) {
    for (int i = (int)threadIdx.x; i < ROWS; i += THREADS)
        limits[i] = par__cuda_flash_limit(f, p, by_keys, p.first + i);
}
// Which scores of the lane's are dropped: bit 4 (i N / 8 + n) + e. row, column: the lane's first; queries are
// rows, or with by_keys columns. Where nothing is dropped nothing is computed.
template <int N> using par__cuda_mask_bits = typename std::conditional<(N > 32), uint64_t, uint32_t>::type;
template <int M, int N>
static __device__ __forceinline__ par__cuda_mask_bits<M * N / 2>
par__cuda_dropped(const par__cuda_flash &f, const par__cuda_flash_place &p, int head, bool by_keys, int row,
                  int column) {
    static_assert(M * N <= 128, "a bit for each score of a lane");
    par__cuda_mask_bits<M *N / 2> dropped = 0;
    if (!f.drop.limit) return 0;
    const uint64_t stream = par__cuda_dropout_stream(f.drop);
    const uint64_t first = par__tp_first_score(&f.m, (size_t)p.b, (size_t)head) +
                           f.m.q_position * f.m.sequence + f.m.kv_position;
    PAR__CUDA_ROLLED
    for (int at = 0; at < M * N / 2; at++) {
        const int r = row + at / (N / 2) * 16 + at % 4 / 2 * 8, c = column + at / 4 % (N / 8) * 8 + at % 2;
        const int64_t query = by_keys ? c : r, key = by_keys ? r : c;
        const uint64_t i = first + (uint64_t)(query * (int64_t)f.m.sequence + key);
        const uint32_t bits = par__cuda_random_bits(f.drop.seed, stream, i);
        dropped |= (par__cuda_mask_bits<M * N / 2>)par__tp_is_dropped(bits, f.drop.limit) << at;
    }
    return dropped;
}
// The softmax's state of a warp's rows: maxima (base 2), and each lane's part of the sums.
template <int D, int M, int N>
static __device__ __forceinline__ void
par__cuda_online_softmax(float (&s)[M][N / 8][4], float (&out)[M][D / 8][4], float (&row_max)[M][2],
                         float (&sum)[M][2], float factor) {
    PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int h = 0; h < 2; h++) {
        float top = s[i][0][2 * h], total = 0;
        PAR__CUDA_UNROLL for (int n = 0; n < N / 8; n++) top =
            fmaxf(top, fmaxf(s[i][n][2 * h], s[i][n][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        top = fmaxf(row_max[i][h], top * factor);
        const float base = top == -INFINITY ? 0.0f : top, rescale = par__cuda_exp2(row_max[i][h] - base);
        PAR__CUDA_UNROLL for (int n = 0; n < N / 8; n++)
            PAR__CUDA_UNROLL for (int e = 2 * h; e < 2 * h + 2; e++) {
            s[i][n][e] = par__cuda_exp2(s[i][n][e] * factor - base);
            total += s[i][n][e];
        }
        row_max[i][h] = top;
        sum[i][h] = sum[i][h] * rescale + total;
        PAR__CUDA_UNROLL for (int n = 0; n < D / 8; n++) {
            out[i][n][2 * h] *= rescale;
            out[i][n][2 * h + 1] *= rescale;
        }
    }
}
// Tells nvcc that x is the same in all lanes; else it adds instructions with which lanes meet again.
static __device__ __forceinline__ bool par__cuda_of_warp(bool x) { return __any_sync(0xffffffffu, x) != 0; }
// Scores of which the query does not see the key become -inf. row, key: the lane's first.
template <int M, int N>
static __device__ __forceinline__ void par__cuda_hide_scores(float (&s)[M][N / 8][4],
                                                             const par__cuda_flash_place &p,
                                                             const int *limits, int row, int key) {
    PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int h = 0; h < 2; h++) {
        const int r = row + 16 * i + 8 * h, query = r + p.shift, keys = p.k_count;
        const unsigned window = (unsigned)(query - limits[r - p.first]);
        PAR__CUDA_UNROLL for (int n = 0; n < N / 8; n++)
            PAR__CUDA_UNROLL for (int e = 2 * h; e < 2 * h + 2; e++) {
            const int k = key + 8 * n + e % 2;
            if ((unsigned)(query - k) >= window || k >= keys) s[i][n][e] = -INFINITY;
        }
    }
}
// What earlier keys left in the block's f32 arrays, or nothing; the sum goes to one of the four lanes.
template <int D, int M>
static __device__ __forceinline__ void
par__cuda_flash_begin(const par__cuda_flash &f, const par__cuda_flash_place &p, int row,
                      float (&out)[M][D / 8][4], float (&row_max)[M][2], float (&sum)[M][2]) {
    const int t = (int)threadIdx.x % 4;
    PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int h = 0; h < 2; h++) {
        const int r = row + 16 * i + 8 * h;
        const bool valid = !f.m.first && r < p.q_count;
        const size_t at = par__cuda_flash_q_row(f.m, p, r);
        row_max[i][h] = valid ? f.m.row_max[at * f.m.heads + (size_t)p.h] * PAR__CUDA_LOG2E : -INFINITY;
        sum[i][h] = valid && t == 0 ? f.m.row_sum[at * f.m.heads + (size_t)p.h] : 0.0f;
        const float *acc = f.m.acc + (valid ? at * f.m.acc_ld + (size_t)p.h * f.m.dim : 0);
        PAR__CUDA_UNROLL for (int n = 0; n < D / 8; n++) PAR__CUDA_UNROLL for (int e = 0; e < 2; e++) {
            const int col = 8 * n + 2 * t + e;
            out[i][n][2 * h + e] = valid && col < p.dim ? acc[col] : 0.0f;
        }
    }
}
template <int D, int M>
static __device__ __forceinline__ void
par__cuda_flash_end(const par__cuda_flash &f, const par__cuda_flash_place &p, int row,
                    float (&out)[M][D / 8][4], float (&row_max)[M][2], float (&sum)[M][2]) {
    const int t = (int)threadIdx.x % 4;
    __syncwarp(); // the lanes of a row have read what earlier keys left; shuffles do not order memory
    PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int h = 0; h < 2; h++) {
        const int r = row + 16 * i + 8 * h;
        const bool valid = r < p.q_count;
        const size_t at = par__cuda_flash_q_row(f.m, p, r), state = at * f.m.heads + (size_t)p.h;
        float total = sum[i][h];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        if (f.m.y) {
            if (valid && t == 0) f.m.row_max[state] = row_max[i][h] * PAR__CUDA_LN2 + logf(total);
            par__cuda_store_fragment<D>((par__cuda_bf16 *)f.m.y + state * f.m.dim, valid, p.dim, f.wide,
                                        out[i], h, 1.0f / total);
            continue;
        }
        if (valid && t == 0) {
            f.m.row_max[state] = row_max[i][h] * PAR__CUDA_LN2;
            f.m.row_sum[state] = total;
        }
        float *acc = f.m.acc + at * f.m.acc_ld + (size_t)p.h * f.m.dim;
        PAR__CUDA_UNROLL for (int n = 0; n < D / 8; n++)
            PAR__CUDA_UNROLL for (int e = 0; e < 2; e++) if (valid && 8 * n + 2 * t + e < p.dim)
                acc[8 * n + 2 * t + e] = out[i][n][2 * h + e];
    }
}
// Begins to copy keys k0 to k0 + N - 1 and their values to one of two pairs of tiles, in turn.
template <int N, int D, int THREADS>
static __device__ __forceinline__ void par__cuda_begin_keys(uint32_t tiles, const par__cuda_flash &f,
                                                            const par__cuda_flash_place &p, int k0) {
    const par_tp_attention_block &m = f.m;
    const uint32_t to = tiles + (uint32_t)(k0 / N % 2) * 2 * (N * D * 2);
    const size_t at = par__cuda_flash_kv_row(m, p, k0) * m.kv_ld + (size_t)p.kh * m.kv_head_stride;
    par__cuda_begin_tile<N, D, THREADS>(to, (const par__cuda_bf16 *)m.k + at, m.kv_ld, p.k_count - k0, p.dim,
                                        f.wide);
    par__cuda_begin_tile<N, D, THREADS>(to + N * D * 2, (const par__cuda_bf16 *)m.v + at, m.kv_ld,
                                        p.k_count - k0, p.dim, f.wide);
}
template <int D, int M, int WARPS, int N>
static __global__ void __launch_bounds__(32 * WARPS)
    par__cuda_k_flash_forward(PAR__CUDA_PARAMETER par__cuda_flash f) {
    constexpr int ROWS = 16 * M * WARPS, THREADS = 32 * WARPS;
    constexpr uint32_t BYTES = N * D * 2;
    PAR__CUDA_SHARED(unsigned char, memory);
    const par_tp_attention_block &m = f.m;
    const unsigned tiles = ((unsigned)m.q_count + ROWS - 1) / ROWS; // the last has the most keys: it begins
    par__cuda_flash_place p = par__cuda_flash_place_of(m, (int)(blockIdx.x / tiles), 0,
                                                       (int)(tiles - 1 - blockIdx.x % tiles) * ROWS);
    const int end = p.k_count = PAR__MIN(p.k_count, PAR__MIN(p.first + ROWS, p.q_count) + p.shift);
    const int start = PAR__MAX(par__cuda_flash_limit(f, p, false, p.first) + 1, 0) / N *
                      N; // the keys of all rows: [start, end)
    const int lane = (int)threadIdx.x % 32, warp_row = p.first + (int)threadIdx.x / 32 * 16 * M;
    const int last_row = warp_row + 16 * M - 1;
    const uint32_t q_tile = par__cuda_shared_address(memory), kv_tiles = q_tile + ROWS * D * 2;
    const uint32_t a = q_tile + (uint32_t)((warp_row - p.first) * D * 2) + par__cuda_left_address<D>();
    int *limits = (int *)(void *)(memory + (ROWS + 4 * N) * D * 2);
    const float keep = par__tp_dropout_scale(m.dropout);
    float out[M][D / 8][4], row_max[M][2], sum[M][2];
    if (start >= end && !m.first && !m.y) return;
    par__cuda_begin_tile<ROWS, D, THREADS>(
        q_tile,
        (const par__cuda_bf16 *)m.q + par__cuda_flash_q_row(m, p, p.first) * m.q_ld + (size_t)p.h * m.dim,
        m.q_ld, p.q_count - p.first, p.dim, f.wide);
    if (start < end) par__cuda_begin_keys<N, D, THREADS>(kv_tiles, f, p, start);
    par__cuda_flash_limits<ROWS, THREADS>(limits, f, p, false);
    par__cuda_flash_begin<D, M>(f, p, warp_row + lane / 4, out, row_max, sum);
    for (int k0 = start; k0 < end; k0 += N) {
        par__cuda_copies_end();
        __syncthreads();
        if (k0 + N < end) par__cuda_begin_keys<N, D, THREADS>(kv_tiles, f, p, k0 + N);
        const bool cut = k0 <= limits[last_row - p.first]; // from some rows
        if (warp_row >= p.q_count || k0 > last_row + p.shift) continue;
        if (cut && k0 + N - 1 <= limits[warp_row - p.first]) continue;
        const uint32_t tile = kv_tiles + (uint32_t)(k0 / N % 2) * 2 * BYTES;
        const par__cuda_mask_bits<M *N / 2> dropped =
            par__cuda_dropped<M, N>(f, p, p.h, false, warp_row + lane / 4, k0 + lane % 4 * 2);
        float s[M][N / 8][4];
        par__cuda_rows_by_rows<D, M, N>(s, a, tile + par__cuda_right_address<D>());
        if (par__cuda_of_warp(k0 + N - 1 > warp_row + p.shift || k0 + N > p.k_count || cut))
            par__cuda_hide_scores<M, N>(s, p, limits, warp_row + lane / 4, k0 + lane % 4 * 2);
        par__cuda_online_softmax<D, M, N>(s, out, row_max, sum, m.scale * PAR__CUDA_LOG2E);
        if (f.drop.limit) {
            PAR__CUDA_UNROLL for (int at = 0; at < M * N / 2; at++)
                s[at / (N / 2)][at / 4 % (N / 8)][at % 4] *= dropped >> at & 1 ? 0.0f : keep;
        }
        par__cuda_add_weighted_rows<D, M, N, D>(out, s, tile + BYTES + par__cuda_left_address<D>());
    }
    par__cuda_copies_end(); // those that no turn of the loop waited for
    par__cuda_flash_end<D, M>(f, p, warp_row + lane / 4, out, row_max, sum);
}

// Begins to copy lse and dot of N queries behind the tiles of q and dy.
template <int N>
static __device__ __forceinline__ void par__cuda_begin_statistics(uint32_t to, const par__cuda_flash &f,
                                                                  const par__cuda_flash_place &p, size_t head,
                                                                  int q0) {
    for (int i = (int)threadIdx.x; i < 2 * N; i += (int)blockDim.x) {
        const size_t at = par__cuda_flash_q_row(f.m, p, q0 + i % N) * f.m.heads + head;
        const bool valid = q0 + i % N < p.q_count;
        par__cuda_copy_async_word(to + (uint32_t)i * 4, (i < N ? f.m.lse : f.m.dot) + (valid ? at : 0),
                                  valid);
    }
}
// Gradients of scores, but for their factor: g = p (g - dot) where p = 2^(s - lse), and s = p; both with
// dropout.
static __device__ __forceinline__ void par__cuda_score_gradient(float &s, float &g, float factor, float lse,
                                                                float dot, bool dropped, float keep) {
    const float p = par__cuda_exp2(s * factor - lse), kept = dropped ? 0.0f : keep;
    g = p * (g * kept - dot);
    s = p * kept;
}
// Where gradients go: rows of f32 sums, which earlier blocks have begun or not (`first`), and with the last
// block rows of dx, else NULL.
struct par__cuda_flash_rows {
    float *sums;
    par__cuda_bf16 *dx;
    size_t sums_ld, dx_ld;
    bool first;
};
template <int D, int M>
static __device__ __forceinline__ void par__cuda_flash_put(const par__cuda_flash_rows &to, bool wide, int row,
                                                           int count, int dim, float (&x)[M][D / 8][4],
                                                           float factor) {
    PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int h = 0; h < 2; h++) {
        const int r = row + 16 * i + 8 * h;
        float *sums = to.first && to.dx ? NULL : to.sums + (size_t)r * to.sums_ld;
        par__cuda_sum_fragment<D>(sums, !to.first, !to.dx, r < count, dim, x[i], h, factor);
        if (to.dx)
            par__cuda_store_fragment<D>(to.dx + (size_t)r * to.dx_ld, r < count, dim, wide, x[i], h, 1.0f);
    }
}
template <int O, int M>
static __device__ __forceinline__ void
par__cuda_flash_put_keys(const par__cuda_flash &f, const par__cuda_flash_place &p, int part, int row,
                         float (&dk)[M][O / 8][4], float (&dv)[M][O / 8][4]) {
    const par_tp_attention_block &m = f.m;
    const size_t kv = par__cuda_flash_kv_row(m, p, p.first), col = (size_t)p.kh * m.dim + (size_t)part;
    const int count = p.k_count - p.first, dim = p.dim - part;
    const size_t sums = kv * m.dkv_ld + col;
    par__cuda_bf16 *dx = (par__cuda_bf16 *)m.dx_kv;
    if (dx) dx += kv * m.kv_ld + m.heads * m.dim + col;
    par__cuda_flash_rows to = {m.dk ? m.dk + sums : NULL, dx, m.dkv_ld, m.kv_ld, m.first_queries != 0};
    par__cuda_flash_put<O, M>(to, f.wide, row, count, dim, dk, m.scale);
    to.sums = m.dv ? m.dv + sums : NULL;
    if (dx) to.dx += m.kv_heads * m.dim;
    par__cuda_flash_put<O, M>(to, f.wide, row, count, dim, dv, 1.0f);
}
// Begins to copy N queries of query head h, their gradients and their statistics.
template <int N, int D, int THREADS>
static __device__ __forceinline__ void par__cuda_begin_queries(uint32_t to, const par__cuda_flash &f,
                                                               const par__cuda_flash_place &p, int h,
                                                               int q0) {
    const par_tp_attention_block &m = f.m;
    const size_t row = par__cuda_flash_q_row(m, p, q0), col = (size_t)h * m.dim;
    const par__cuda_bf16 *q = (const par__cuda_bf16 *)m.q + row * m.q_ld + col;
    const par__cuda_bf16 *dy = (const par__cuda_bf16 *)m.dy + row * m.dy_ld + col;
    par__cuda_begin_tile<N, D, THREADS>(to, q, m.q_ld, p.q_count - q0, p.dim, f.wide);
    par__cuda_begin_tile<N, D, THREADS>(to + N * D * 2, dy, m.dy_ld, p.q_count - q0, p.dim, f.wide);
    par__cuda_begin_statistics<N>(to + 2 * N * D * 2, f, p, (size_t)h, q0);
}
// The same where rows are keys, which queries from `first` to before the key's limit see. limits: where that
// of the lane's first key is.
template <int M, int N>
static __device__ __forceinline__ void par__cuda_hide_scores_of_keys(float (&s)[M][N / 8][4], int shift,
                                                                     const int *limits, int key, int query) {
    PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int h = 0; h < 2; h++) {
        const int first = key + 16 * i + 8 * h - shift;
        const unsigned window = (unsigned)(limits[16 * i + 8 * h] - first);
        PAR__CUDA_UNROLL for (int n = 0; n < N / 8; n++)
            PAR__CUDA_UNROLL for (int e = 2 * h; e < 2 * h + 2; e++) {
            const int q = query + 8 * n + e % 2;
            if ((unsigned)(q - first) >= window) s[i][n][e] = -INFINITY;
        }
    }
}
// s and g (keys x queries) become weights and gradients of scores. statistics: of the lane's first query.
template <int M, int N>
static __device__ __forceinline__ void
par__cuda_gradients_by_keys(float (&s)[M][N / 8][4], float (&g)[M][N / 8][4], const par__cuda_flash &f,
                            uint32_t statistics, par__cuda_mask_bits<M * N / 2> dropped) {
    const float keep = par__tp_dropout_scale(f.m.dropout), factor = f.m.scale * PAR__CUDA_LOG2E;
    PAR__CUDA_UNROLL for (int n = 0; n < N / 8; n++) {
        const uint32_t at = statistics + (uint32_t)(8 * n) * 4;
        const float2 lse = par__cuda_load_shared(at), dot = par__cuda_load_shared(at + N * 4);
        PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int e = 0; e < 4; e++)
            par__cuda_score_gradient(s[i][n][e], g[i][n][e], factor,
                                     (e % 2 ? lse.y : lse.x) * PAR__CUDA_LOG2E, e % 2 ? dot.y : dot.x,
                                     dropped >> (4 * (i * N / 8 + n) + e) & 1, keep);
    }
}
// dk and dv have O of the D features: block number i of a tile has features (i mod D / O) O on.
template <int D, int M, int WARPS, int N, int O>
static __global__ void __launch_bounds__(32 * WARPS)
    par__cuda_k_flash_backward_kv(PAR__CUDA_PARAMETER par__cuda_flash f) {
    constexpr int ROWS = 16 * M * WARPS, THREADS = 32 * WARPS;
    constexpr uint32_t BYTES = N * D * 2, STAGE = 2 * BYTES + 1024;
    PAR__CUDA_SHARED(unsigned char, memory);
    const par_tp_attention_block &m = f.m;
    const unsigned tiles = ((unsigned)m.kv_count + ROWS - 1) / ROWS, block = blockIdx.x / (D / O);
    const int part = (int)(blockIdx.x % (D / O)) * O, lane = (int)threadIdx.x % 32;
    const par__cuda_flash_place p =
        par__cuda_flash_place_of(m, (int)(block / tiles), 1, (int)(block % tiles) * ROWS);
    const int warp = (int)threadIdx.x / 32 * 16 * M, warp_key = p.first + warp;
    const int last_key = warp_key + 16 * M - 1;
    const int q_begin = PAR__MAX(p.first - p.shift, 0) / N * N; // queries before it see none of these keys
    const int q_end =
        PAR__MIN(p.q_count, par__cuda_flash_limit(f, p, true, p.first + ROWS - 1)); // from here on
    const int end = p.h + (int)m.heads / (int)m.kv_heads;
    const uint32_t k_tile = par__cuda_shared_address(memory), v_tile = k_tile + ROWS * D * 2;
    const uint32_t left = (uint32_t)(warp * D * 2) + par__cuda_left_address<D>();
    const uint32_t right = par__cuda_right_address<D>(),
                   weighted = par__cuda_left_address<D>() ^ (uint32_t)(part * 2);
    const uint32_t both = 2 * (v_tile + ROWS * D * 2) + STAGE; // the next tile is at both - tile
    const size_t keys = par__cuda_flash_kv_row(m, p, p.first) * m.kv_ld + (size_t)p.kh * m.kv_head_stride;
    const auto advance = [&](int *h, int *q0) {
        *q0 += N;
        if (*q0 >= q_end) {
            *q0 = q_begin;
            ++*h;
        }
    };
    uint32_t tile = v_tile + ROWS * D * 2;
    float dk[M][O / 8][4] = {}, dv[M][O / 8][4] = {};
    int h = q_begin < q_end ? p.h : end, q0 = q_begin;
    int *limits = (int *)(void *)(memory + 2 * (ROWS * D * 2 + STAGE));
    if (h == end && !m.first_queries && !m.dx_kv) return; // nothing to add
    par__cuda_flash_limits<ROWS, THREADS>(limits, f, p, true);
    par__cuda_begin_tile<ROWS, D, THREADS>(k_tile, (const par__cuda_bf16 *)m.k + keys, m.kv_ld,
                                           p.k_count - p.first, p.dim, f.wide);
    par__cuda_begin_tile<ROWS, D, THREADS>(v_tile, (const par__cuda_bf16 *)m.v + keys, m.kv_ld,
                                           p.k_count - p.first, p.dim, f.wide);
    if (h < end) par__cuda_begin_queries<N, D, THREADS>(tile, f, p, h, q0);
    for (; h < end; advance(&h, &q0), tile = both - tile) {
        int next_h = h, next_q0 = q0;
        par__cuda_copies_end();
        __syncthreads();
        advance(&next_h, &next_q0);
        if (next_h < end) par__cuda_begin_queries<N, D, THREADS>(both - tile, f, p, next_h, next_q0);
        const bool cut = q0 + N - 1 >= limits[warp]; // from some keys
        if (warp_key >= p.k_count || q0 + N - 1 + p.shift < warp_key) continue;
        if (cut && q0 >= limits[last_key - p.first]) continue;
        const bool mask = q0 + p.shift < last_key || cut;
        const int key = warp_key + lane / 4, query = q0 + lane % 4 * 2;
        const par__cuda_mask_bits<M *N / 2> dropped = par__cuda_dropped<M, N>(f, p, h, true, key, query);
        float s[M][N / 8][4], g[M][N / 8][4];
        par__cuda_rows_by_rows<D, M, N>(s, k_tile + left, tile + right);
        par__cuda_rows_by_rows<D, M, N>(g, v_tile + left, tile + BYTES + right);
        if (par__cuda_of_warp(mask))
            par__cuda_hide_scores_of_keys<M, N>(s, p.shift, limits + warp + lane / 4, key, query);
        par__cuda_gradients_by_keys<M, N>(s, g, f, tile + 2 * BYTES + (uint32_t)(lane % 4 * 8), dropped);
        par__cuda_add_weighted_rows<D, M, N, O>(dv, s, tile + BYTES + weighted);
        par__cuda_add_weighted_rows<D, M, N, O>(dk, g, tile + weighted);
    }
    par__cuda_copies_end();
    par__cuda_flash_put_keys<O, M>(f, p, part, warp + lane / 4, dk, dv);
}
// Of a warp's queries: lse (base 2) and dot. row: the lane's first.
template <int M>
static __device__ __forceinline__ void par__cuda_row_statistics(const par__cuda_flash &f,
                                                                const par__cuda_flash_place &p, int row,
                                                                float (&lse)[M][2], float (&dot)[M][2]) {
    PAR__CUDA_UNROLL for (int i = 0; i < M; i++) PAR__CUDA_UNROLL for (int h = 0; h < 2; h++) {
        const int r = row + 16 * i + 8 * h;
        const bool valid = r < p.q_count;
        const size_t at = par__cuda_flash_q_row(f.m, p, valid ? r : 0) * f.m.heads + (size_t)p.h;
        lse[i][h] = valid ? f.m.lse[at] * PAR__CUDA_LOG2E : 0.0f;
        dot[i][h] = valid ? f.m.dot[at] : 0.0f;
    }
}
template <int D, int M, int WARPS, int N>
static __global__ void __launch_bounds__(32 * WARPS, D == 64 ? PAR__CUDA_FLASH_BLOCKS : 1)
    par__cuda_k_flash_backward_q(PAR__CUDA_PARAMETER par__cuda_flash f) {
    constexpr int ROWS = 16 * M * WARPS, THREADS = 32 * WARPS;
    constexpr uint32_t BYTES = N * D * 2;
    PAR__CUDA_SHARED(unsigned char, memory);
    const par_tp_attention_block &m = f.m;
    const unsigned tiles = ((unsigned)m.q_count + ROWS - 1) / ROWS;
    par__cuda_flash_place p = par__cuda_flash_place_of(m, (int)(blockIdx.x / tiles), 0,
                                                       (int)(tiles - 1 - blockIdx.x % tiles) * ROWS);
    const int end = p.k_count = PAR__MIN(p.k_count, PAR__MIN(p.first + ROWS, p.q_count) + p.shift);
    const int start = PAR__MAX(par__cuda_flash_limit(f, p, false, p.first) + 1, 0) / N *
                      N; // the keys of all rows: [start, end)
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 * 16 * M, warp_row = p.first + warp;
    const int last_row = warp_row + 16 * M - 1;
    const uint32_t q_tile = par__cuda_shared_address(memory), dy_tile = q_tile + ROWS * D * 2;
    const uint32_t kv_tiles = dy_tile + ROWS * D * 2,
                   left = (uint32_t)(warp * D * 2) + par__cuda_left_address<D>();
    int *limits = (int *)(void *)(memory + (2 * ROWS + 4 * N) * D * 2);
    const size_t row = par__cuda_flash_q_row(m, p, p.first), col = (size_t)p.h * m.dim;
    const float keep = par__tp_dropout_scale(m.dropout), factor = m.scale * PAR__CUDA_LOG2E;
    float dq[M][D / 8][4] = {}, lse[M][2], dot[M][2];
    if (start >= end && !m.first && !m.dx_q) return;
    par__cuda_begin_tile<ROWS, D, THREADS>(q_tile, (const par__cuda_bf16 *)m.q + row * m.q_ld + col, m.q_ld,
                                           p.q_count - p.first, p.dim, f.wide);
    par__cuda_begin_tile<ROWS, D, THREADS>(dy_tile, (const par__cuda_bf16 *)m.dy + row * m.dy_ld + col,
                                           m.dy_ld, p.q_count - p.first, p.dim, f.wide);
    if (start < end) par__cuda_begin_keys<N, D, THREADS>(kv_tiles, f, p, start);
    par__cuda_flash_limits<ROWS, THREADS>(limits, f, p, false);
    par__cuda_row_statistics<M>(f, p, warp_row + lane / 4, lse, dot);
    for (int k0 = start; k0 < end; k0 += N) {
        par__cuda_copies_end();
        __syncthreads();
        if (k0 + N < end) par__cuda_begin_keys<N, D, THREADS>(kv_tiles, f, p, k0 + N);
        const bool cut = k0 <= limits[last_row - p.first]; // from some rows
        if (warp_row >= p.q_count || k0 > last_row + p.shift) continue;
        if (cut && k0 + N - 1 <= limits[warp_row - p.first]) continue;
        const uint32_t tile = kv_tiles + (uint32_t)(k0 / N % 2) * 2 * BYTES;
        const bool mask = k0 + N - 1 > warp_row + p.shift || k0 + N > p.k_count || cut;
        const int query = warp_row + lane / 4, key = k0 + lane % 4 * 2;
        const par__cuda_mask_bits<M *N / 2> dropped = par__cuda_dropped<M, N>(f, p, p.h, false, query, key);
        float s[M][N / 8][4], g[M][N / 8][4];
        par__cuda_rows_by_rows<D, M, N>(s, q_tile + left, tile + par__cuda_right_address<D>());
        par__cuda_rows_by_rows<D, M, N>(g, dy_tile + left, tile + BYTES + par__cuda_right_address<D>());
        if (par__cuda_of_warp(mask)) par__cuda_hide_scores<M, N>(s, p, limits, query, key);
        PAR__CUDA_UNROLL for (int n = 0; n < N / 8; n++) PAR__CUDA_UNROLL for (int i = 0; i < M; i++)
            PAR__CUDA_UNROLL for (int e = 0; e < 4; e++)
                par__cuda_score_gradient(s[i][n][e], g[i][n][e], factor, lse[i][e / 2], dot[i][e / 2],
                                         dropped >> (4 * (i * N / 8 + n) + e) & 1, keep);
        par__cuda_add_weighted_rows<D, M, N, D>(dq, g, tile + par__cuda_left_address<D>());
    }
    par__cuda_copies_end();
    par__cuda_flash_rows to = {m.dq, (par__cuda_bf16 *)m.dx_q, m.dq_ld, m.q_ld, m.first != 0};
    if (to.sums) to.sums += row * m.dq_ld + col;
    if (to.dx) to.dx += row * m.q_ld + col;
    par__cuda_flash_put<D, M>(to, f.wide, warp + lane / 4, p.q_count - p.first, p.dim, dq, m.scale);
}

static bool par__cuda_flash_is_wide(const par__cuda_flash *f) {
    const par_tp_attention_block *m = &f->m;
    const uintptr_t addresses = (uintptr_t)m->q | (uintptr_t)m->k | (uintptr_t)m->v | (uintptr_t)m->dy |
                                (uintptr_t)m->y | (uintptr_t)m->dx_q | (uintptr_t)m->dx_kv;
    return addresses % 16 == 0 && (m->dim | m->q_ld | m->kv_ld | m->kv_head_stride | m->dy_ld) % 8 == 0;
}
// Launches a kernel for each tile of so many of `count` rows, of so many heads, times `parts`.
static par_result par__cuda_flash_launch(const par_cuda *cuda, void (*kernel)(par__cuda_flash), int rows,
                                         int warps, size_t shared, size_t count, size_t heads, size_t parts,
                                         const par__cuda_flash *f) {
    const size_t tiles = (count + (size_t)rows - 1) / (size_t)rows, limits = (size_t)rows * sizeof(int);
    dim3 grid;
    PAR__CUDA_TRY(par__cuda_grid(cuda, "attention", tiles * heads * parts, &grid));
    return par__cuda_launch(cuda, kernel, grid, (unsigned)warps * 32, shared + limits, cuda->stream, *f);
}
template <int D, int M, int WARPS, int N>
static par_result par__cuda_flash_forward(const par_cuda *cuda, const par__cuda_flash *f) {
    return par__cuda_flash_launch(cuda, par__cuda_k_flash_forward<D, M, WARPS, N>, 16 * M * WARPS, WARPS,
                                  (16 * M * WARPS + 4 * N) * D * 2, f->m.q_count, f->m.batch * f->m.heads, 1,
                                  f);
}
template <int D, int M, int WARPS, int N, int O>
static par_result par__cuda_flash_backward_kv(const par_cuda *cuda, const par__cuda_flash *f) {
    return par__cuda_flash_launch(cuda, par__cuda_k_flash_backward_kv<D, M, WARPS, N, O>, 16 * M * WARPS,
                                  WARPS, (2 * 16 * M * WARPS + 4 * N) * D * 2 + 2048, f->m.kv_count,
                                  f->m.batch * f->m.kv_heads, D / O, f);
}
template <int D, int M, int WARPS, int N>
static par_result par__cuda_flash_backward_q(const par_cuda *cuda, const par__cuda_flash *f) {
    return par__cuda_flash_launch(cuda, par__cuda_k_flash_backward_q<D, M, WARPS, N>, 16 * M * WARPS, WARPS,
                                  (2 * 16 * M * WARPS + 4 * N) * D * 2, f->m.q_count, f->m.batch * f->m.heads,
                                  1, f);
}
static par_result par__cuda_flash_run(par_tp *tp, const par_tp_attention_block *m) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    par__cuda_flash f = {*m, false, par__cuda_dropout_of(tp, m->stream, m->dropout)};
    const size_t rows = m->batch * PAR__MAX(m->q_stride, m->kv_stride) + PAR__MAX(m->q_row, m->kv_row);
    const size_t most = PAR__MAX(rows, PAR__MAX(m->q_position + m->q_count, m->kv_position + m->kv_count));
    if (!m->batch || !m->q_count || !m->kv_count) return PAR_OK;
    if (m->dim > PAR__CUDA_FLASH_MAX_DIM)
        return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "attention",
                              "heads of bf16 have at most 256 features");
    if (most > PAR__CUDA_FLASH_MAX_TOKENS)
        return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "attention", "a rank has at most 2^29 tokens");
    f.wide = par__cuda_flash_is_wide(&f);
    const int size = m->dim <= 64 ? 0 : m->dim <= 128 ? 1 : 2;
    if (!m->dy)
        return size == 0   ? par__cuda_flash_forward<64, 2, 4, 64>(cuda, &f)
               : size == 1 ? par__cuda_flash_forward<128, 2, 4, 32>(cuda, &f)
                           : par__cuda_flash_forward<256, 1, 4, 32>(cuda, &f);
    if (m->without != PAR_TP_KEYS)
        PAR__CUDA_TRY(size == 0   ? (par__cuda_flash_backward_kv<64, 2, 4, 32, 64>(cuda, &f))
                      : size == 1 ? (par__cuda_flash_backward_kv<128, 1, 8, 32, 128>(cuda, &f))
                                  : (par__cuda_flash_backward_kv<256, 1, 4, 16, 128>(cuda, &f)));
    if (m->without == PAR_TP_QUERIES) return PAR_OK;
    return size == 0   ? par__cuda_flash_backward_q<64, 2, 4, 32>(cuda, &f)
           : size == 1 ? par__cuda_flash_backward_q<128, 1, 8, 32>(cuda, &f)
                       : par__cuda_flash_backward_q<256, 1, 4, 16>(cuda, &f);
}

// The same for f32, by plain sums: scores of a pair of tiles are in shared memory.

struct par__cuda_tiles {         // the shape of a pair of tiles in shared memory
    int tile, dim, ld, score_ld; // rows; features rounded up to a multiple of 16; leading dimensions
};
enum { PAR__CUDA_ATTENTION_THREADS = 128, PAR__CUDA_PAD = 8 };
// c (m x n) = or += op(a) op(b). Sizes are multiples of 16; each warp computes squares of 16 x 16.
static __device__ __forceinline__ void par__cuda_gemm_16x16(const float *a, int lda, bool ta, const float *b,
                                                            int ldb, bool tb, float *c, int ldc, int k,
                                                            bool add) {
    const int lane = (int)threadIdx.x % 32;
    for (int i = lane; i < 256; i += 32) {
        const int row = i / 16, col = i % 16;
        float sum = add ? c[row * ldc + col] : 0.0f;
        for (int j = 0; j < k; j++)
            sum += (ta ? a[j * lda + row] : a[row * lda + j]) * (tb ? b[col * ldb + j] : b[j * ldb + col]);
        c[row * ldc + col] = sum;
    }
}
static __device__ __forceinline__ void par__cuda_tile_gemm(int m, int n, int k, const float *a, int lda,
                                                           bool ta, const float *b, int ldb, bool tb,
                                                           float *c, int ldc, bool add) {
    const int warps = PAR__CUDA_ATTENTION_THREADS / 32, across = n / 16;
    for (int i = (int)threadIdx.x / 32; i < m / 16 * across; i += warps) {
        const int row = i / across * 16, col = i % across * 16;
        par__cuda_gemm_16x16(ta ? a + row : a + row * lda, lda, ta, tb ? b + col * ldb : b + col, ldb, tb,
                             c + row * ldc + col, ldc, k, add);
    }
}
// Loads rows of a head into a tile. Rows beyond `count` and features beyond `dim` become zeros.
static __device__ __forceinline__ void par__cuda_load_tile(const par__cuda_tiles &t, float *to,
                                                           const void *from, size_t ld, size_t count,
                                                           size_t dim) {
    const int groups = t.dim / 8;
    for (int i = (int)threadIdx.x; i < t.tile * groups; i += PAR__CUDA_ATTENTION_THREADS) {
        const int row = i / groups, at = i % groups * 8;
        float x[8] = {0};
        if ((size_t)row < count) par__cuda_load(x, (const float *)from + (size_t)row * ld, (size_t)at, dim);
        for (int j = 0; j < 8; j++) to[row * t.ld + at + j] = x[j];
    }
}
static __device__ __forceinline__ void par__cuda_clear_tile(const par__cuda_tiles &t, float *x) {
    for (int i = (int)threadIdx.x; i < t.tile * t.ld; i += PAR__CUDA_ATTENTION_THREADS) x[i] = 0;
}
// The tiles that a block works on.
struct par__cuda_tile_index {
    size_t b, h, kh, q0, k0, nq, nk; // sequence, heads, first query and key of the tiles, how many are there
};
static __device__ __forceinline__ bool par__cuda_is_masked(const par_tp_attention_block &m,
                                                           const par__cuda_tile_index &s, int q, int k) {
    return (size_t)q >= s.nq || (size_t)k >= s.nk ||
           m.kv_position + s.k0 + (size_t)k > m.q_position + s.q0 + (size_t)q ||
           m.kv_position + s.k0 + (size_t)k < par__tp_first_key(&m, s.b, m.q_position + s.q0 + (size_t)q);
}
// The dropout factor of a pair (query, key): 0 or 1/(1 - p).
static __device__ __forceinline__ float par__cuda_dropout_factor(const par_tp_attention_block &m,
                                                                 const par__cuda_tile_index &s, int q, int k,
                                                                 const par__cuda_dropout &drop) {
    const uint64_t query = m.q_position + s.q0 + (uint64_t)q, key = m.kv_position + s.k0 + (uint64_t)k;
    const uint64_t i = par__tp_first_score(&m, s.b, s.h) + query * m.sequence + key;
    return par__tp_is_dropped(par__cuda_random_bits(drop.seed, par__cuda_dropout_stream(drop), i), drop.limit)
               ? 0.0f
               : par__tp_dropout_scale(m.dropout);
}
// The head (of batch x heads) that the block works on. first: of the `count` queries or keys of the head. A
// grid's blocks are counted in 32 bits, in which GPUs divide without a call.
static __device__ __forceinline__ unsigned par__cuda_head_of_block(const par__cuda_tiles &t, size_t count,
                                                                   size_t *first) {
    const unsigned tiles = ((unsigned)count + (unsigned)t.tile - 1) / (unsigned)t.tile;
    *first = blockIdx.x % tiles * (size_t)t.tile;
    return blockIdx.x / tiles;
}
static __device__ __forceinline__ size_t par__cuda_q_row(const par_tp_attention_block &m,
                                                         const par__cuda_tile_index &s) {
    return s.b * m.q_stride + m.q_row + s.q0;
}
static __device__ __forceinline__ size_t par__cuda_kv_row(const par_tp_attention_block &m,
                                                          const par__cuda_tile_index &s) {
    return s.b * m.kv_stride + m.kv_row + s.k0;
}
static __global__ void __launch_bounds__(PAR__CUDA_ATTENTION_THREADS, 1) // as shared memory allows
    par__cuda_k_attention_forward(PAR__CUDA_PARAMETER par_tp_attention_block m, par__cuda_tiles t,
                                  par__cuda_dropout drop) {
    PAR__CUDA_SHARED(float, scratch);
    float *acc = scratch, *scores = acc + t.tile * t.ld, *row_max = scores + t.tile * t.score_ld,
          *sum = row_max + t.tile;
    float *q = (sum + t.tile), *k = q + t.tile * t.ld, *v = k + t.tile * t.ld, *p = v + t.tile * t.ld;
    par__cuda_tile_index s;
    const unsigned head = par__cuda_head_of_block(t, m.q_count, &s.q0), heads = (unsigned)m.heads;
    s.b = head / heads;
    s.h = head % heads;
    s.kh = head % heads / (heads / (unsigned)m.kv_heads);
    s.nq = PAR__MIN((size_t)t.tile, m.q_count - s.q0);
    const size_t row0 = par__cuda_q_row(m, s),
                 last = m.q_position + s.q0 + s.nq; // keys from here on are hidden
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32,
              warps = PAR__CUDA_ATTENTION_THREADS / 32;
    if (m.kv_position >= last) return;
    par__cuda_load_tile(t, q, (const float *)m.q + row0 * m.q_ld + s.h * m.dim, m.q_ld, s.nq, m.dim);
    for (int i = (int)threadIdx.x; i < t.tile * t.dim; i += PAR__CUDA_ATTENTION_THREADS) {
        const int r = i / t.dim, c = i % t.dim;
        acc[r * t.ld + c] = !m.first && (size_t)r < s.nq && (size_t)c < m.dim
                                ? m.acc[(row0 + (size_t)r) * m.acc_ld + s.h * m.dim + (size_t)c]
                                : 0.0f;
    }
    for (int r = (int)threadIdx.x; r < t.tile; r += PAR__CUDA_ATTENTION_THREADS) {
        const size_t at = (row0 + (size_t)r) * m.heads + s.h;
        const bool valid = !m.first && (size_t)r < s.nq;
        row_max[r] = valid ? m.row_max[at] : -INFINITY;
        sum[r] = valid ? m.row_sum[at] : 0.0f;
    }
    for (s.k0 = 0; s.k0 < m.kv_count && m.kv_position + s.k0 < last; s.k0 += (size_t)t.tile) {
        const size_t kv = par__cuda_kv_row(m, s) * m.kv_ld + s.kh * m.kv_head_stride;
        s.nk = PAR__MIN((size_t)t.tile, m.kv_count - s.k0);
        __syncthreads();
        par__cuda_load_tile(t, k, (const float *)m.k + kv, m.kv_ld, s.nk, m.dim);
        par__cuda_load_tile(t, v, (const float *)m.v + kv, m.kv_ld, s.nk, m.dim);
        __syncthreads();
        par__cuda_tile_gemm(t.tile, t.tile, t.dim, q, t.ld, false, k, t.ld, true, scores, t.score_ld, false);
        __syncthreads();
        for (int r = warp; r < t.tile; r += warps) { // a warp has a row
            float new_max = row_max[r], total = 0;
            for (int c = lane; c < t.tile; c += 32) {
                const float x =
                    par__cuda_is_masked(m, s, r, c) ? -INFINITY : scores[r * t.score_ld + c] * m.scale;
                scores[r * t.score_ld + c] = x;
                new_max = x > new_max ? x : new_max;
            }
            new_max = par__cuda_warp_reduce<par__cuda_max>(new_max);
            const float rescale = par__tp_softmax_weight(row_max[r], new_max);
            for (int c = lane; c < t.tile; c += 32) {
                float e = par__tp_softmax_weight(scores[r * t.score_ld + c], new_max);
                total += e;
                if (drop.limit && e != 0) e *= par__cuda_dropout_factor(m, s, r, c, drop);
                p[r * t.score_ld + c] = e;
            }
            total = par__cuda_warp_reduce<par__cuda_add>(total);
            for (int c = lane; c < t.dim; c += 32) acc[r * t.ld + c] *= rescale;
            __syncwarp();
            if (lane == 0) {
                row_max[r] = new_max;
                sum[r] = sum[r] * rescale + total;
            }
        }
        __syncthreads();
        par__cuda_tile_gemm(t.tile, t.dim, t.tile, p, t.score_ld, false, v, t.ld, false, acc, t.ld, true);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < t.tile * t.dim; i += PAR__CUDA_ATTENTION_THREADS) {
        const int r = i / t.dim, c = i % t.dim;
        if ((size_t)r >= s.nq || (size_t)c >= m.dim) continue;
        if (m.y)
            par__cuda_global((float *)m.y)[((row0 + (size_t)r) * m.heads + s.h) * m.dim + (size_t)c] =
                acc[r * t.ld + c] * (1.0f / sum[r]);
        else
            m.acc[(row0 + (size_t)r) * m.acc_ld + s.h * m.dim + (size_t)c] = acc[r * t.ld + c];
    }
    for (int r = (int)threadIdx.x; r < t.tile; r += PAR__CUDA_ATTENTION_THREADS) {
        const size_t at = (row0 + (size_t)r) * m.heads + s.h;
        if ((size_t)r >= s.nq) continue;
        m.row_max[at] = m.y ? row_max[r] + logf(sum[r]) : row_max[r];
        if (!m.y) m.row_sum[at] = sum[r];
    }
}
// For a pair of tiles writes the probabilities with dropout to p, and the gradient of the scores to ds.
// scores and grads hold q k^T and dy v^T.
static __device__ __forceinline__ void
par__cuda_softmax_backward(const par_tp_attention_block &m, const par__cuda_tiles &t,
                           const par__cuda_tile_index &s, const float *scores, const float *grads, float *p,
                           float *ds, const par__cuda_dropout &drop) {
    const size_t row0 = par__cuda_q_row(m, s);
    for (int i = (int)threadIdx.x; i < t.tile * t.tile; i += PAR__CUDA_ATTENTION_THREADS) {
        const int r = i / t.tile, c = i % t.tile;
        float e = 0, d = 0, mask = 1;
        if (!par__cuda_is_masked(m, s, r, c)) {
            const size_t at = (row0 + (size_t)r) * m.heads + s.h;
            e = par__tp_exp(scores[r * t.score_ld + c] * m.scale - m.lse[at]);
            if (drop.limit) mask = par__cuda_dropout_factor(m, s, r, c, drop);
            d = par__tp_score_gradient(e, grads[r * t.score_ld + c] * mask, m.dot[at], m.scale);
        }
        p[r * t.score_ld + c] = e * mask;
        ds[r * t.score_ld + c] = d;
    }
}
struct par__cuda_backward_tiles { // shared memory of backward
    float *first, *second, *scores, *grads;
    float *q, *k, *v, *dy, *p, *ds;
};
static __device__ __forceinline__ par__cuda_backward_tiles par__cuda_backward_layout(const par__cuda_tiles &t,
                                                                                     float *scratch,
                                                                                     int sums) {
    par__cuda_backward_tiles x;
    const int wide = t.tile * t.ld, square = t.tile * t.score_ld;
    x.first = scratch;
    x.second = scratch + (sums - 1) * wide;
    x.scores = scratch + sums * wide;
    x.grads = x.scores + square;
    x.q = (x.grads + square);
    x.k = x.q + wide;
    x.v = x.k + wide;
    x.dy = x.v + wide;
    x.p = x.dy + wide;
    x.ds = x.p + square;
    return x;
}
static __device__ __forceinline__ void par__cuda_tile_backward(const par_tp_attention_block &m,
                                                               const par__cuda_tiles &t,
                                                               const par__cuda_tile_index &s,
                                                               const par__cuda_backward_tiles &x,
                                                               const par__cuda_dropout &drop) {
    par__cuda_tile_gemm(t.tile, t.tile, t.dim, x.q, t.ld, false, x.k, t.ld, true, x.scores, t.score_ld,
                        false);
    par__cuda_tile_gemm(t.tile, t.tile, t.dim, x.dy, t.ld, false, x.v, t.ld, true, x.grads, t.score_ld,
                        false);
    __syncthreads();
    par__cuda_softmax_backward(m, t, s, x.scores, x.grads, x.p, x.ds, drop);
    __syncthreads();
}
// Where gradients go: those of queries, or of keys and of values. sums: of earlier blocks, or NULL.
struct par__cuda_gradients {
    float *to[2];
    const float *sums[2];
    size_t ld, sums_ld;
};
// to = `from` + sums.
static __device__ __forceinline__ void par__cuda_put_tile(const par__cuda_tiles &t, float *to, size_t ld,
                                                          const float *sums, size_t sums_ld,
                                                          const float *from, size_t rows, size_t dim) {
    for (int i = (int)threadIdx.x; i < t.tile * t.dim; i += PAR__CUDA_ATTENTION_THREADS) {
        const size_t r = (size_t)(i / t.dim), c = (size_t)(i % t.dim);
        if (r < rows && c < dim)
            to[r * ld + c] = (sums ? sums[r * sums_ld + c] : 0.0f) + from[r * (size_t)t.ld + c];
    }
}
static __global__ void __launch_bounds__(PAR__CUDA_ATTENTION_THREADS, 1)
    par__cuda_k_attention_backward_kv(PAR__CUDA_PARAMETER par_tp_attention_block m, par__cuda_tiles t,
                                      par__cuda_dropout drop, PAR__CUDA_PARAMETER par__cuda_gradients o) {
    PAR__CUDA_SHARED(float, scratch);
    const par__cuda_backward_tiles x = par__cuda_backward_layout(t, scratch, 2); // dk, dv
    par__cuda_tile_index s;
    const unsigned head = par__cuda_head_of_block(t, m.kv_count, &s.k0), heads = (unsigned)m.kv_heads;
    s.b = head / heads;
    s.kh = head % heads;
    s.nk = PAR__MIN((size_t)t.tile, m.kv_count - s.k0);
    const size_t kv = par__cuda_kv_row(m, s), group = (unsigned)m.heads / heads;
    const size_t keys = kv * m.kv_ld + s.kh * m.kv_head_stride;
    par__cuda_load_tile(t, x.k, (const float *)m.k + keys, m.kv_ld, s.nk, m.dim);
    par__cuda_load_tile(t, x.v, (const float *)m.v + keys, m.kv_ld, s.nk, m.dim);
    par__cuda_clear_tile(t, x.first);
    par__cuda_clear_tile(t, x.second);
    for (s.h = s.kh * group; s.h < (s.kh + 1) * group; s.h++)
        for (s.q0 = 0; s.q0 < m.q_count; s.q0 += (size_t)t.tile) {
            s.nq = PAR__MIN((size_t)t.tile, m.q_count - s.q0);
            if (m.q_position + s.q0 + s.nq <= m.kv_position + s.k0) continue; // they see none of these keys
            const size_t row = par__cuda_q_row(m, s);
            __syncthreads();
            par__cuda_load_tile(t, x.q, (const float *)m.q + row * m.q_ld + s.h * m.dim, m.q_ld, s.nq, m.dim);
            par__cuda_load_tile(t, x.dy, (const float *)m.dy + row * m.dy_ld + s.h * m.dim, m.dy_ld, s.nq,
                                m.dim);
            __syncthreads();
            par__cuda_tile_backward(m, t, s, x, drop);
            par__cuda_tile_gemm(t.tile, t.dim, t.tile, x.ds, t.score_ld, true, x.q, t.ld, false, x.first,
                                t.ld, true);
            par__cuda_tile_gemm(t.tile, t.dim, t.tile, x.p, t.score_ld, true, x.dy, t.ld, false, x.second,
                                t.ld, true);
        }
    __syncthreads();
    PAR__CUDA_UNROLL for (int i = 0; i < 2; i++)
        par__cuda_put_tile(t, o.to[i] + kv * o.ld + s.kh * m.dim, o.ld,
                           o.sums[i] ? o.sums[i] + kv * o.sums_ld + s.kh * m.dim : NULL, o.sums_ld,
                           i ? x.second : x.first, s.nk, m.dim);
}
static __global__ void __launch_bounds__(PAR__CUDA_ATTENTION_THREADS, 1)
    par__cuda_k_attention_backward_q(PAR__CUDA_PARAMETER par_tp_attention_block m, par__cuda_tiles t,
                                     par__cuda_dropout drop, PAR__CUDA_PARAMETER par__cuda_gradients o) {
    PAR__CUDA_SHARED(float, scratch);
    const par__cuda_backward_tiles x = par__cuda_backward_layout(t, scratch, 1); // dq
    par__cuda_tile_index s;
    const unsigned head = par__cuda_head_of_block(t, m.q_count, &s.q0), heads = (unsigned)m.heads;
    s.b = head / heads;
    s.h = head % heads;
    s.kh = head % heads / (heads / (unsigned)m.kv_heads);
    s.nq = PAR__MIN((size_t)t.tile, m.q_count - s.q0);
    const size_t row = par__cuda_q_row(m, s), last = m.q_position + s.q0 + s.nq;
    if (m.kv_position >= last && !m.first && !m.dx_q) return;
    par__cuda_load_tile(t, x.q, (const float *)m.q + row * m.q_ld + s.h * m.dim, m.q_ld, s.nq, m.dim);
    par__cuda_load_tile(t, x.dy, (const float *)m.dy + row * m.dy_ld + s.h * m.dim, m.dy_ld, s.nq, m.dim);
    par__cuda_clear_tile(t, x.first);
    for (s.k0 = 0; s.k0 < m.kv_count && m.kv_position + s.k0 < last; s.k0 += (size_t)t.tile) {
        const size_t kv = par__cuda_kv_row(m, s) * m.kv_ld + s.kh * m.kv_head_stride;
        s.nk = PAR__MIN((size_t)t.tile, m.kv_count - s.k0);
        __syncthreads();
        par__cuda_load_tile(t, x.k, (const float *)m.k + kv, m.kv_ld, s.nk, m.dim);
        par__cuda_load_tile(t, x.v, (const float *)m.v + kv, m.kv_ld, s.nk, m.dim);
        __syncthreads();
        par__cuda_tile_backward(m, t, s, x, drop);
        par__cuda_tile_gemm(t.tile, t.dim, t.tile, x.ds, t.score_ld, false, x.k, t.ld, false, x.first, t.ld,
                            true);
    }
    __syncthreads();
    par__cuda_put_tile(t, o.to[0] + row * o.ld + s.h * m.dim, o.ld,
                       o.sums[0] ? o.sums[0] + row * o.sums_ld + s.h * m.dim : NULL, o.sums_ld, x.first, s.nq,
                       m.dim);
}
// Chooses the largest tiles that fit into shared memory. wide, square: how many tile x dim and tile x tile
// arrays a kernel needs.
static par_result par__cuda_choose_tiles(const par_cuda *cuda, const par_tp_attention_block *m, int wide,
                                         int square, par__cuda_tiles *t, size_t *shared) {
    t->dim = (int)((m->dim + 15) / 16 * 16);
    t->ld = t->dim + PAR__CUDA_PAD;
    for (t->tile = 64; t->tile >= 16; t->tile /= 2) {
        t->score_ld = t->tile + PAR__CUDA_PAD;
        const size_t rows = (size_t)t->tile;
        *shared =
            rows * ((size_t)wide * (size_t)t->ld + (size_t)square * (size_t)t->score_ld + 2) * sizeof(float);
        if (*shared <= (size_t)cuda->max_shared_bytes) return PAR_OK;
    }
    return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "attention",
                          "heads are too wide for a block's shared memory");
}
static par_result par__cuda_attention_grid(const par_cuda *cuda, const par__cuda_tiles *t, size_t count,
                                           size_t heads, dim3 *grid) {
    const size_t tiles = (count + (size_t)t->tile - 1) / (size_t)t->tile;
    return par__cuda_grid(cuda, "attention", tiles * heads, grid);
}
static par_result par__cuda_t_attention_block_forward(par_tp *tp, const par_tp_attention_block *m) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    par__cuda_tiles t;
    size_t shared;
    dim3 grid;
    if (par_tp_dtype(tp) == PAR_BF16) return par__cuda_flash_run(tp, m);
    PAR__CUDA_TRY(par__cuda_choose_tiles(cuda, m, 4, 2, &t, &shared));
    const par__cuda_dropout drop = par__cuda_dropout_of(tp, m->stream, m->dropout);
    if (!m->batch || !m->q_count || !m->kv_count) return PAR_OK;
    PAR__CUDA_TRY(par__cuda_attention_grid(cuda, &t, m->q_count, m->batch * m->heads, &grid));
    return par__cuda_launch(cuda, par__cuda_k_attention_forward, grid, PAR__CUDA_ATTENTION_THREADS, shared,
                            cuda->stream, *m, t, drop);
}
static par__cuda_gradients par__cuda_query_gradients(const par_tp_attention_block *m) {
    par__cuda_gradients o = {{m->dq, NULL}, {m->first ? NULL : m->dq, NULL}, m->dq_ld, m->dq_ld};
    if (m->dx_q) {
        o.to[0] = (float *)m->dx_q;
        o.ld = m->q_ld;
    }
    return o;
}
static par__cuda_gradients par__cuda_key_gradients(const par_tp_attention_block *m) {
    const int first = m->first_queries;
    par__cuda_gradients o = {
        {m->dk, m->dv}, {first ? NULL : m->dk, first ? NULL : m->dv}, m->dkv_ld, m->dkv_ld};
    if (m->dx_kv) {
        o.to[0] = (float *)m->dx_kv + m->heads * m->dim;
        o.to[1] = o.to[0] + m->kv_heads * m->dim;
        o.ld = m->kv_ld;
    }
    return o;
}
static par_result par__cuda_t_attention_block_backward(par_tp *tp, const par_tp_attention_block *m) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    par__cuda_tiles t;
    size_t shared;
    dim3 by_keys, by_queries;
    if (par_tp_dtype(tp) == PAR_BF16) return par__cuda_flash_run(tp, m);
    PAR__CUDA_TRY(par__cuda_choose_tiles(cuda, m, 6, 4, &t, &shared));
    const par__cuda_dropout drop = par__cuda_dropout_of(tp, m->stream, m->dropout);
    if (!m->batch || !m->q_count || !m->kv_count) return PAR_OK;
    PAR__CUDA_TRY(par__cuda_attention_grid(cuda, &t, m->kv_count, m->batch * m->kv_heads, &by_keys));
    PAR__CUDA_TRY(par__cuda_attention_grid(cuda, &t, m->q_count, m->batch * m->heads, &by_queries));
    const par__cuda_gradients of_queries = par__cuda_query_gradients(m), of_keys = par__cuda_key_gradients(m);
    if (m->without != PAR_TP_KEYS)
        PAR__CUDA_TRY(par__cuda_launch(cuda, par__cuda_k_attention_backward_kv, by_keys,
                                       PAR__CUDA_ATTENTION_THREADS, shared, cuda->stream, *m, t, drop,
                                       of_keys));
    if (m->without == PAR_TP_QUERIES) return PAR_OK;
    return par__cuda_launch(cuda, par__cuda_k_attention_backward_q, by_queries, PAR__CUDA_ATTENTION_THREADS,
                            shared, cuda->stream, *m, t, drop, of_queries);
}
template <class T>
static __global__ void par__cuda_k_row_dots(float *dot, const T *a, const T *b, size_t rows, size_t dim) {
    const size_t warps = (size_t)gridDim.x * blockDim.x / 32;
    for (size_t r = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; r < rows;
         r += warps) { // a warp has a row
        float sum = 0;
        for (size_t i = threadIdx.x % 32; i < dim; i += 32)
            sum += (float)par__cuda_widen(a[r * dim + i]) * (float)par__cuda_widen(b[r * dim + i]);
        sum = par__cuda_warp_reduce<par__cuda_add>(sum);
        if (threadIdx.x % 32 == 0) dot[r] = sum;
    }
}
static par_result par__cuda_t_row_dots(par_tp *tp, float *dot, const void *a, const void *b, size_t rows,
                                       size_t dim) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_over(cuda, rows * 32, par__cuda_k_row_dots<T>, dot, (const T *)a, (const T *)b, rows,
                              dim);
    });
}

// >>cuda_cudnn ----------------------------------------------------------------------------------------------
//
// Causal attention of whole sequences in bf16 by cuDNN's backend API: a graph of operations, which cuDNN
// fuses into one kernel or a few, so that f32 scores are never written to memory.
//     forward     scores = scale q k^T, hidden for later keys; y = softmax(scores) v; lse = top + log sum
//     backward    p = e^(scores - lse); dv = p^T dy; dp = dy v^T; ds = scale p (dp - dot), dot = sum of y dy;
//                 dk = ds^T q; dq = ds k; where queries share keys, dk and dv are sums over them
// Of the engines that cuDNN proposes, the first deterministic one is used; those for backward keep ds in
// bf16. tests/test_cudnn.cu lets cuDNN plan this for GPUs that are not present.

#if PAR__CUDA_DNN
// X(tensor, sizes, place, type).
// sizes: q (batch, heads, sequence, dim), k (of kv_heads), K (k with the last two axes transposed), s (batch,
// heads,
//     sequence, sequence), S (s transposed), r (batch, heads, sequence, 1), 1 (one number).
// place: x, y (by tokens, as in x or y), t (by tokens, one for each head), d (dense), c (by value); v (inside
//     the kernel), w (there, too, but laid out as in x).
#define PAR__DNN_TENSORS(X)                                                                                  \
    X(Q, 'q', 'x', BFLOAT16)                                                                                 \
    X(K, 'k', 'w', FLOAT)                                                                                    \
    X(K_TRANSPOSED, 'K', 'x', BFLOAT16)                                                                      \
    X(V, 'k', 'x', BFLOAT16)                                                                                 \
    X(V_TRANSPOSED, 'K', 'x', BFLOAT16)                                                                      \
    X(Y, 'q', 'y', BFLOAT16)                                                                                 \
    X(LSE, 'r', 't', FLOAT)                                                                                  \
    X(LSE_DENSE, 'r', 'd', FLOAT)                                                                            \
    X(DY, 'q', 'y', BFLOAT16)                                                                                \
    X(DQ, 'q', 'x', BFLOAT16)                                                                                \
    X(DK, 'k', 'x', BFLOAT16)                                                                                \
    X(DV, 'k', 'x', BFLOAT16)                                                                                \
    X(SCALE, '1', 'c', FLOAT)                                                                                \
    X(NEGATIVE_INFINITY, '1', 'c', FLOAT)                                                                    \
    X(ONE, '1', 'c', FLOAT)                                                                                  \
    X(SCORES, 's', 'v', FLOAT)                                                                               \
    X(SCALED, 's', 'v', FLOAT)                                                                               \
    X(ROW_INDEX, 's', 'v', INT32)                                                                            \
    X(COL_INDEX, 's', 'v', INT32)                                                                            \
    X(VISIBLE, 's', 'v', BOOLEAN)                                                                            \
    X(MASKED, 's', 'v', FLOAT)                                                                               \
    X(ROW_MAX, 'r', 'v', FLOAT)                                                                              \
    X(SHIFTED, 's', 'v', FLOAT)                                                                              \
    X(EXPONENTIAL, 's', 'v', FLOAT)                                                                          \
    X(SUM, 'r', 'v', FLOAT)                                                                                  \
    X(LOG_SUM, 'r', 'v', FLOAT)                                                                              \
    X(P, 's', 'v', BFLOAT16)                                                                                 \
    X(P_TRANSPOSED, 'S', 'v', BFLOAT16)                                                                      \
    X(Y_DY, 'q', 'v', FLOAT)                                                                                 \
    X(DOT_VIRTUAL, 'r', 'v', FLOAT)                                                                          \
    X(DOT, 'r', 'd', FLOAT)                                                                                  \
    X(DV_HEADS, 'q', 'v', BFLOAT16)                                                                          \
    X(DP, 's', 'v', FLOAT)                                                                                   \
    X(DP_SHIFTED, 's', 'v', FLOAT)                                                                           \
    X(DP_P, 's', 'v', FLOAT)                                                                                 \
    X(DS, 's', 'v', FLOAT)                                                                                   \
    X(DS_TRANSPOSED, 'S', 'v', BFLOAT16)                                                                     \
    X(DK_HEADS, 'q', 'v', BFLOAT16)
enum {
    PAR__DNN_NONE,
#define PAR__X(name, sizes, place, type) PAR__DNN_##name,
    PAR__DNN_TENSORS(PAR__X)
#undef PAR__X
        PAR__DNN_TENSOR_COUNT
};
static const struct {
    char sizes, place;
    cudnnDataType_t type;
} par__dnn_tensors[] = {{0, 0, CUDNN_DATA_FLOAT},
#define PAR__X(name, sizes, place, type) {sizes, place, CUDNN_DATA_##type},
                        PAR__DNN_TENSORS(PAR__X)
#undef PAR__X
};
// X(kind, mode, y, x, b, t). kind: m (y = x b), p (y = a function of x, b and t), i (y = x's indices along an
// axis), r (y = the sum or maximum of x along the axis that y lacks), g (so, over the heads that share one of
// y's), t (y = x transposed).
#define PAR__DNN_FORWARD(X)                                                                                  \
    X('m', 0, SCORES, Q, K_TRANSPOSED, NONE)                                                                 \
    X('p', CUDNN_POINTWISE_MUL, SCALED, SCORES, SCALE, NONE)                                                 \
    X('i', 2, ROW_INDEX, SCALED, NONE, NONE)                                                                 \
    X('i', 3, COL_INDEX, SCALED, NONE, NONE)                                                                 \
    X('p', CUDNN_POINTWISE_CMP_GE, VISIBLE, ROW_INDEX, COL_INDEX, NONE)                                      \
    X('p', CUDNN_POINTWISE_BINARY_SELECT, MASKED, SCALED, NEGATIVE_INFINITY, VISIBLE)                        \
    X('r', CUDNN_REDUCE_TENSOR_MAX, ROW_MAX, MASKED, NONE, NONE)                                             \
    X('p', CUDNN_POINTWISE_SUB, SHIFTED, MASKED, ROW_MAX, NONE)                                              \
    X('p', CUDNN_POINTWISE_EXP, EXPONENTIAL, SHIFTED, NONE, NONE)                                            \
    X('r', CUDNN_REDUCE_TENSOR_ADD, SUM, EXPONENTIAL, NONE, NONE)                                            \
    X('p', CUDNN_POINTWISE_LOG, LOG_SUM, SUM, NONE, NONE)                                                    \
    X('p', CUDNN_POINTWISE_ADD, LSE, ROW_MAX, LOG_SUM, NONE)                                                 \
    X('p', CUDNN_POINTWISE_DIV, P, EXPONENTIAL, SUM, NONE)                                                   \
    X('m', 0, Y, P, V, NONE)
// Without the product with 1 cuDNN 9.19 needs three times as much workspace.
#define PAR__DNN_BACKWARD(X)                                                                                 \
    X('p', CUDNN_POINTWISE_MUL, Y_DY, DY, Y, NONE)                                                           \
    X('r', CUDNN_REDUCE_TENSOR_ADD, DOT_VIRTUAL, Y_DY, NONE, NONE)                                           \
    X('p', CUDNN_POINTWISE_MUL, DOT, DOT_VIRTUAL, ONE, NONE)                                                 \
    X('m', 0, SCORES, Q, K_TRANSPOSED, NONE)                                                                 \
    X('p', CUDNN_POINTWISE_MUL, SCALED, SCORES, SCALE, NONE)                                                 \
    X('p', CUDNN_POINTWISE_SUB, SHIFTED, SCALED, LSE_DENSE, NONE)                                            \
    X('i', 2, ROW_INDEX, SHIFTED, NONE, NONE)                                                                \
    X('i', 3, COL_INDEX, SHIFTED, NONE, NONE)                                                                \
    X('p', CUDNN_POINTWISE_CMP_GE, VISIBLE, ROW_INDEX, COL_INDEX, NONE)                                      \
    X('p', CUDNN_POINTWISE_BINARY_SELECT, MASKED, SHIFTED, NEGATIVE_INFINITY, VISIBLE)                       \
    X('p', CUDNN_POINTWISE_EXP, EXPONENTIAL, MASKED, NONE, NONE)                                             \
    X('t', 0, P_TRANSPOSED, EXPONENTIAL, NONE, NONE)                                                         \
    X('m', 0, DV_HEADS, P_TRANSPOSED, DY, NONE)                                                              \
    X('g', CUDNN_REDUCE_TENSOR_ADD, DV, DV_HEADS, NONE, NONE)                                                \
    X('m', 0, DP, DY, V_TRANSPOSED, NONE)                                                                    \
    X('p', CUDNN_POINTWISE_SUB, DP_SHIFTED, DP, DOT, NONE)                                                   \
    X('p', CUDNN_POINTWISE_MUL, DP_P, DP_SHIFTED, EXPONENTIAL, NONE)                                         \
    X('p', CUDNN_POINTWISE_MUL, DS, DP_P, SCALE, NONE)                                                       \
    X('t', 0, DS_TRANSPOSED, DS, NONE, NONE)                                                                 \
    X('m', 0, DK_HEADS, DS_TRANSPOSED, Q, NONE)                                                              \
    X('g', CUDNN_REDUCE_TENSOR_ADD, DK, DK_HEADS, NONE, NONE)                                                \
    X('t', 0, K, K_TRANSPOSED, NONE, NONE)                                                                   \
    X('m', 0, DQ, DS, K, NONE)
struct par__dnn_operation_row {
    char kind;
    int mode; // of p and r: cuDNN's; of i: the axis
    int y, x, b, t;
};
#define PAR__X(kind, mode, y, x, b, t) {kind, mode, PAR__DNN_##y, PAR__DNN_##x, PAR__DNN_##b, PAR__DNN_##t},
static const par__dnn_operation_row par__dnn_forward[] = {PAR__DNN_FORWARD(PAR__X)};
static const par__dnn_operation_row par__dnn_backward[] = {PAR__DNN_BACKWARD(PAR__X)};
#undef PAR__X

// Functions that build a plan. Descriptors live as long as the plan; after an error the functions do nothing.
static cudnnBackendDescriptor_t par__dnn_new(par__dnn_plan *p, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = NULL;
    if (!p->status) p->status = cudnnBackendCreateDescriptor(type, &d);
    if (!p->status) p->descriptors[p->descriptor_count++] = d;
    return d;
}
static void par__dnn_set(par__dnn_plan *p, cudnnBackendDescriptor_t d, int attribute,
                         cudnnBackendAttributeType_t type, size_t count, const void *value) {
    const cudnnBackendAttributeName_t name = (cudnnBackendAttributeName_t)attribute;
    if (!p->status) p->status = cudnnBackendSetAttribute(d, name, type, (int64_t)count, value);
}
static void par__dnn_set_one(par__dnn_plan *p, cudnnBackendDescriptor_t d, int attribute,
                             cudnnBackendDescriptor_t value) {
    par__dnn_set(p, d, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static int64_t par__dnn_get(par__dnn_plan *p, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, size_t capacity, void *values) { // how many
    int64_t count = 0;
    if (!p->status) p->status = cudnnBackendGetAttribute(d, name, type, (int64_t)capacity, &count, values);
    return p->status ? 0 : PAR__MIN(count, (int64_t)capacity);
}
static cudnnBackendDescriptor_t par__dnn_finalize(par__dnn_plan *p, cudnnBackendDescriptor_t d) {
    if (!p->status) p->status = cudnnBackendFinalize(d);
    return d;
}
static void par__dnn_destroy(par__dnn_plan *p, int from) {
    while (p->descriptor_count > from) cudnnBackendDestroyDescriptor(p->descriptors[--p->descriptor_count]);
}

static cudnnBackendDescriptor_t par__dnn_tensor(par__dnn_plan *p, int number) {
    const par__dnn_shape *s = &p->shape;
    const char sizes = par__dnn_tensors[number].sizes, place = par__dnn_tensors[number].place;
    const bool transposed = sizes == 'K' || sizes == 'S', in_x = place == 'x' || place == 'w';
    const bool inside = place == 'v' || place == 'w', by_value = place == 'c';
    const size_t n = s->sequence, heads = sizes == 'k' || sizes == 'K' ? s->kv_heads : s->heads;
    const size_t cols = sizes == 's' || sizes == 'S' ? n : sizes == 'r' ? 1 : s->dim;
    const size_t ld = (in_x ? s->heads + 2 * s->kv_heads : s->heads) * cols; // between tokens
    const int64_t id = number, alignment = 16;
    size_t size[4] = {s->batch, heads, n, cols}, step[4] = {heads * n * cols, n * cols, cols, 1};
    if (in_x || place == 'y' || place == 't') {
        step[0] = n * ld;
        step[1] = cols;
        step[2] = ld;
    }
    int64_t sizes_of[4], steps_of[4];
    for (int i = 0; i < 4; i++) {
        const int from = transposed && i >= 2 ? 5 - i : i;
        sizes_of[i] = sizes == '1' ? 1 : (int64_t)size[from];
        steps_of[i] = sizes == '1' ? 1 : (int64_t)step[from];
    }
    const cudnnBackendDescriptor_t t = par__dnn_new(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    par__dnn_set(p, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &par__dnn_tensors[number].type);
    par__dnn_set(p, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes_of);
    par__dnn_set(p, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, steps_of);
    par__dnn_set(p, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    par__dnn_set(p, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    par__dnn_set(p, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside);
    par__dnn_set(p, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    return par__dnn_finalize(p, t);
}
// The names in cuDNN's API of an operation of each kind, its descriptor and its tensors; 0 where it has none.
static const struct par__dnn_kind {
    const char *kinds;
    cudnnBackendDescriptorType_t operation, description;
    cudnnBackendAttributeType_t mode_type;
    int mode, precision, described, x, b, t, y; // attributes
} par__dnn_kinds[] = {
    {"m", CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_BACKEND_MATMUL_DESCRIPTOR,
     (cudnnBackendAttributeType_t)0, 0, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_ATTR_OPERATION_MATMUL_DESC,
     CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, 0,
     CUDNN_ATTR_OPERATION_MATMUL_CDESC},
    {"pi", CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
     CUDNN_TYPE_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC,
     CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
     CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
     CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
    {"rg", CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
     CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_COMP_TYPE,
     CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 0, 0,
     CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
    {"t", CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, (cudnnBackendDescriptorType_t)0,
     (cudnnBackendAttributeType_t)0, 0, 0, 0, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 0, 0,
     CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
};
static cudnnBackendDescriptor_t par__dnn_describe(par__dnn_plan *p, const par__dnn_kind *k,
                                                  const par__dnn_operation_row *step) {
    const bool index = step->kind == 'i';
    const int mode = index ? CUDNN_POINTWISE_GEN_INDEX : step->mode;
    const cudnnDataType_t type = mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    const int64_t axis = step->mode;
    const cudnnBackendDescriptor_t d = par__dnn_new(p, k->description);
    par__dnn_set(p, d, k->precision, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (k->mode_type) par__dnn_set(p, d, k->mode, k->mode_type, 1, &mode);
    if (index) par__dnn_set(p, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    return par__dnn_finalize(p, d);
}
static cudnnBackendDescriptor_t par__dnn_operation(par__dnn_plan *p, const par__dnn_operation_row *step,
                                                   const cudnnBackendDescriptor_t *tensors) {
    const par__dnn_kind *k = par__dnn_kinds;
    while (!strchr(k->kinds, step->kind)) k++;
    const cudnnBackendDescriptor_t described = k->described ? par__dnn_describe(p, k, step) : NULL,
                                   o = par__dnn_new(p, k->operation);
    if (described) par__dnn_set_one(p, o, k->described, described);
    par__dnn_set_one(p, o, k->x, tensors[step->x]);
    par__dnn_set_one(p, o, k->y, tensors[step->y]);
    if (step->b) par__dnn_set_one(p, o, k->b, tensors[step->b]);
    if (step->t) par__dnn_set_one(p, o, k->t, tensors[step->t]);
    return par__dnn_finalize(p, o);
}
// Builds the operation graph. A tensor is made when an operation first names it.
static cudnnBackendDescriptor_t par__dnn_graph(par__dnn_plan *p, cudnnHandle_t handle) {
    const bool alone = p->shape.heads == p->shape.kv_heads; // no keys are shared: then g's x is its y
    const par__dnn_operation_row *steps = p->shape.backward ? par__dnn_backward : par__dnn_forward;
    const size_t count =
        (p->shape.backward ? sizeof par__dnn_backward : sizeof par__dnn_forward) / sizeof *steps;
    cudnnBackendDescriptor_t tensors[PAR__DNN_TENSOR_COUNT] = {}, operations[PAR__DNN_MAX_OPERATIONS];
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        par__dnn_operation_row s = steps[i];
        if (alone && s.kind == 'g') continue;
        if (alone && i + 1 < count && steps[i + 1].kind == 'g') s.y = steps[i + 1].y;
        const int named[4] = {s.y, s.x, s.b, s.t};
        for (int k = 0; k < 4; k++)
            if (named[k] && !tensors[named[k]]) tensors[named[k]] = par__dnn_tensor(p, named[k]);
        operations[made++] = par__dnn_operation(p, &s, tensors);
    }
    const cudnnBackendDescriptor_t graph = par__dnn_new(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle) par__dnn_set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    par__dnn_set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made, operations);
    return par__dnn_finalize(p, graph);
}
static bool par__dnn_is_deterministic(par__dnn_plan *p,
                                      cudnnBackendDescriptor_t config) { // the same bits each time
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = par__dnn_new(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    par__dnn_get(p, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    const int64_t count = par__dnn_get(p, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    return !p->status;
}
// Builds a plan with this engine: true, if it is deterministic and needs at most `limit` bytes of workspace.
static bool par__dnn_try_config(par__dnn_plan *p, cudnnBackendDescriptor_t config, cudnnHandle_t handle,
                                cudnnBackendDescriptor_t described, size_t limit) {
    const int before = p->descriptor_count;
    int64_t bytes = 0;
    const bool repeats = par__dnn_is_deterministic(p, config);
    p->plan = par__dnn_new(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (handle) par__dnn_set(p, p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    if (described) par__dnn_set_one(p, p->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, described);
    par__dnn_set_one(p, p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (repeats) par__dnn_finalize(p, p->plan); // compiles
    par__dnn_get(p, p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    if (repeats && !p->status && (size_t)bytes <= limit) return p->workspace_bytes = (size_t)bytes, true;
    par__dnn_destroy(p, before);
    p->plan = NULL;
    p->status = CUDNN_STATUS_SUCCESS; // the next one
    return false;
}
// Builds a plan with the first engine that can be taken, in cuDNN's order, by speed. p->plan is NULL if there
// is none. It is for the handle's device, or if handle is NULL for the described device.
static void par__dnn_build(par__dnn_plan *p, cudnnHandle_t handle, cudnnBackendDescriptor_t described,
                           size_t limit) {
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t configs[PAR__DNN_MAX_CONFIGS];
    const cudnnBackendDescriptor_t graph = par__dnn_graph(p, handle);
    const cudnnBackendDescriptor_t search = par__dnn_new(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    par__dnn_set_one(p, search, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    par__dnn_set(p, search, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (described) par__dnn_set_one(p, search, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, described);
    par__dnn_finalize(p, search);
    for (int i = 0; i < PAR__DNN_MAX_CONFIGS; i++)
        configs[i] = par__dnn_new(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const int64_t count = par__dnn_get(p, search, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, PAR__DNN_MAX_CONFIGS, configs);
    for (int64_t i = 0; i < count; i++)
        if (par__dnn_try_config(p, configs[i], handle, described, limit)) return;
}

static par_result par__dnn_fail(par_cuda *cuda, cudnnStatus_t e) {
    return par__cuda_fail(cuda, PAR_ERR_SYSTEM, "cuDNN", cudnnGetErrorString(e));
}
static par_result par__dnn_open(par_cuda *cuda) {
    if (cuda->cudnn) return PAR_OK;
    if (cudnnGetVersion() < 91200)
        return par__cuda_fail(cuda, PAR_ERR_UNSUPPORTED, "cuDNN", "9.12 or newer is needed");
    cudnnStatus_t e = cudnnCreate(&cuda->cudnn);
    if (!e) e = cudnnSetStream(cuda->cudnn, cuda->stream);
    return e ? par__dnn_fail(cuda, e) : PAR_OK;
}
static void par__dnn_close(par_cuda *cuda) {
    while (cuda->dnn_plans) {
        par__dnn_plan *p = cuda->dnn_plans;
        cuda->dnn_plans = p->next;
        par__dnn_destroy(p, 0);
        PAR_FREE(p);
    }
    if (cuda->cudnn) cudnnDestroy(cuda->cudnn);
}
// *plan = the plan for this shape; NULL: there is none. Building one takes about a second, so the result is
// cached, also if there is none.
static par_result par__dnn_find(par_cuda *cuda, const par_tp_attention_block *m, size_t backward,
                                par__dnn_plan **plan) {
    const par__dnn_shape shape = {m->batch, m->heads, m->kv_heads, m->q_count, m->dim, backward};
    par__dnn_plan *p = cuda->dnn_plans;
    size_t unused, memory;
    *plan = NULL;
    while (p && memcmp(&p->shape, &shape, sizeof shape)) p = p->next;
    if (!p) {
        PAR__CUDA_TRY(par__cuda_refuse_capture(cuda, "attention of a new shape", PAR__CUDA_CAPTURED_MEMORY));
        PAR__CUDA_TRY(par__dnn_open(cuda));
        PAR__CUDA_CALL(cudaMemGetInfo(&unused, &memory));
        p = (par__dnn_plan *)PAR_MALLOC(sizeof *p);
        if (!p) return par__cuda_fail(cuda, PAR_ERR_MEMORY, "cuDNN", "out of memory for a plan");
        memset(p, 0, sizeof *p);
        p->shape = shape;
        p->next = cuda->dnn_plans;
        cuda->dnn_plans = p;
        par__dnn_build(p, cuda->cudnn, NULL, memory / 16);
        if (!p->plan)
            PAR_LOG("cuDNN has no plan for attention of these sizes: the kernels of par_cuda.cuh are used");
    }
    return *plan = p->plan ? p : NULL, PAR_OK;
}
static par_result par__dnn_run(par_cuda *cuda, par__dnn_plan *p, const int64_t *ids, void **data,
                               size_t count, void *workspace) {
    par__dnn_plan pack;
    memset(&pack, 0, sizeof pack);
    const cudnnBackendDescriptor_t d = par__dnn_new(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    par__dnn_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    par__dnn_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data);
    par__dnn_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    par__dnn_finalize(&pack, d);
    if (!pack.status) pack.status = cudnnBackendExecute(cuda->cudnn, p->plan, d);
    par__dnn_destroy(&pack, 0);
    return pack.status ? par__dnn_fail(cuda, pack.status) : PAR_OK;
}
static bool par__dnn_supports(const par_tp *tp, const par_tp_attention_block *m, const void *y) {
    const uintptr_t any =
        (uintptr_t)m->q | (uintptr_t)m->k | (uintptr_t)m->v | (uintptr_t)m->dy | (uintptr_t)y;
    return par_tp_dtype(tp) == PAR_BF16 && m->dropout <= 0 && !m->window && !m->documents &&
           m->dim % 8 == 0 && any % 16 == 0 && m->batch && m->q_count;
}
static par_result par__dnn_attention_forward(par_tp *tp, const par_tp_attention_block *m, void *y, float *lse,
                                             int *handled) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    par__dnn_plan *p = NULL;
    if (!par__dnn_supports(tp, m, y)) return PAR_OK;
    PAR__CUDA_TRY(par__dnn_find(cuda, m, 0, &p));
    if (!p) return PAR_OK;
    void *workspace = par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_ATTENTION, p->workspace_bytes);
    float scale = m->scale, low = -INFINITY;
    const int64_t ids[] = {PAR__DNN_Q,     PAR__DNN_K_TRANSPOSED,      PAR__DNN_V,  PAR__DNN_Y,
                           PAR__DNN_SCALE, PAR__DNN_NEGATIVE_INFINITY, PAR__DNN_LSE};
    void *data[] = {(void *)m->q, (void *)m->k, (void *)m->v, y, &scale, &low, lse};
    *handled = 1;
    return workspace ? par__dnn_run(cuda, p, ids, data, sizeof ids / sizeof *ids, workspace) : PAR_ERR_MEMORY;
}
// Transposes lse from (batch x n) tokens x heads to batch x heads x n, which cuDNN before 9.26 needs in
// backward.
static __global__ void par__cuda_k_lse_by_heads(float *to, const float *from, size_t n, size_t heads,
                                                size_t all) {
    PAR__CUDA_GRID_STRIDE(i, all) to[i] = from[(i / n / heads * n + i % n) * heads + i / n % heads];
}
static par_result par__dnn_attention_backward(par_tp *tp, const par_tp_attention_block *m, const void *y,
                                              void *dx, int *handled) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    par__dnn_plan *p = NULL;
    if (!par__dnn_supports(tp, m, y) || (uintptr_t)dx % 16) return PAR_OK;
    if (!y) return *handled = 1, PAR_OK; // only asked; without a plan there is the file's own kernel
    PAR__CUDA_TRY(par__dnn_find(cuda, m, 1, &p));
    if (!p) return PAR_OK;
    const size_t all = m->batch * m->heads * m->q_count, up = (all + 63) / 64 * 64;
    float *lse = (float *)par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_ATTENTION,
                                            2 * up * sizeof(float) + p->workspace_bytes);
    if (!lse) return PAR_ERR_MEMORY;
    float scale = m->scale, low = -INFINITY, one = 1;
    uint16_t *dq = (uint16_t *)dx, *dk = dq + m->heads * m->dim, *dv = dk + m->kv_heads * m->dim;
    const int64_t ids[] = {PAR__DNN_Q,   PAR__DNN_K_TRANSPOSED, PAR__DNN_V_TRANSPOSED,
                           PAR__DNN_Y,   PAR__DNN_DY,           PAR__DNN_LSE_DENSE,
                           PAR__DNN_DOT, PAR__DNN_DQ,           PAR__DNN_DK,
                           PAR__DNN_DV,  PAR__DNN_SCALE,        PAR__DNN_NEGATIVE_INFINITY,
                           PAR__DNN_ONE};
    void *data[] = {(void *)m->q, (void *)m->k, (void *)m->v, (void *)y, (void *)m->dy, lse, lse + up,
                    dq,           dk,           dv,           &scale,    &low,          &one};
    *handled = 1;
    PAR__CUDA_TRY(
        par__cuda_over(cuda, all, par__cuda_k_lse_by_heads, lse, m->lse, m->q_count, m->heads, all));
    return par__dnn_run(cuda, p, ids, data, sizeof ids / sizeof *ids, lse + 2 * up);
}
#endif

// Attention of whole sequences: by cuDNN where it can, else of bf16 by this file's kernels.
static par_tp_attention_block par__cuda_whole_sequences(const par_tp_attention_block *m, void *y,
                                                        float *lse) {
    par_tp_attention_block whole = *m;
    whole.first = 1;
    whole.y = y;
    whole.row_max = lse;
    return whole;
}
static par_result par__cuda_t_attention_fused_forward(par_tp *tp, const par_tp_attention_block *m, void *y,
                                                      float *lse, int *handled) {
#if PAR__CUDA_DNN
    if (!par__cuda_of_tp(tp)->desc.own_attention)
        PAR__CUDA_TRY(par__dnn_attention_forward(tp, m, y, lse, handled));
#endif
    if (*handled || par_tp_dtype(tp) != PAR_BF16) return PAR_OK;
    const par_tp_attention_block whole = par__cuda_whole_sequences(m, y, lse);
    return *handled = 1, par__cuda_flash_run(tp, &whole);
}
static par_result par__cuda_t_attention_fused_backward(par_tp *tp, const par_tp_attention_block *m,
                                                       const void *y, void *dx, int *handled) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    par_tp_attention_block whole = par__tp_whole_gradients(m, dx);
    const size_t states = m->batch * m->q_count * m->heads;
#if PAR__CUDA_DNN
    if (!cuda->desc.own_attention) PAR__CUDA_TRY(par__dnn_attention_backward(tp, m, y, dx, handled));
#endif
    if (*handled || !y || par_tp_dtype(tp) != PAR_BF16) return PAR_OK;
    float *dot = (float *)par__cuda_scratch(cuda, PAR__CUDA_SCRATCH_ATTENTION,
                                            PAR__MAX(states, (size_t)1) * sizeof *dot);
    if (!dot) return PAR_ERR_MEMORY;
    *handled = 1;
    whole.dot = dot;
    PAR__CUDA_TRY(par__cuda_t_row_dots(tp, dot, m->dy, y, states, m->dim));
    return par__cuda_flash_run(tp, &whole);
}

// >>cuda_tp_exact -------------------------------------------------------------------------------------------
//
// The kernels of par_tp.h with desc.canonical, which add as the CPU's do (docs/bits.md): each row, column or
// query by one thread, in order. They are a reference, and slow. What adds nothing is left to the others
// where these use the CPU's functions.

template <int D, int LANES>
static __device__ __forceinline__ void par__cuda_fold_lanes(float (&lanes)[LANES]) {
    PAR__CUDA_UNROLL for (int j = 0; j < D; j++) lanes[j] += lanes[j + D];
    if constexpr (D > 1) par__cuda_fold_lanes<D / 2>(lanes);
}
// lanes[j] += term(i) for i from `from` to n - 1, where j counts the terms modulo LANES.
template <int LANES, int ALL, class F>
static __device__ __forceinline__ void par__cuda_add_to_lanes(float (&lanes)[ALL], size_t from, size_t n,
                                                              F term) {
    PAR__CUDA_ROLLED
    for (size_t i = from; i < n; i += LANES) {
        PAR__CUDA_UNROLL for (size_t j = 0; j < LANES; j++) if (i + j < n) lanes[j] += term(i + j);
    }
}
// The sum of term(i) over i < n, in lanes. No lane is -0, so that those without a term change no bit.
template <class F> static __device__ __forceinline__ float par__cuda_lane_sum(size_t n, F term) {
    float lanes[PAR__STRIP] = {0};
    const size_t strips = n / PAR__STRIP * PAR__STRIP;
    par__cuda_add_to_lanes<PAR__STRIP>(lanes, 0, strips, term);
    par__cuda_add_to_lanes<16>(lanes, strips, n, term);
    par__cuda_fold_lanes<PAR__STRIP / 2>(lanes);
    return lanes[0];
}
// Launches a kernel with a thread for each of n items.
template <class... P>
static par_result par__cuda_each(par_tp *tp, void (*kernel)(P...), size_t n,
                                 typename par__cuda_identity<P>::type... a) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    return n ? par__cuda_over(cuda, n, kernel, a...) : PAR_OK;
}

static par_result par__cuda_c_gemm(par_tp *tp, int ta, int tb, size_t m, size_t n, size_t k, const void *a,
                                   size_t lda, const void *b, size_t ldb, float beta, void *c,
                                   par_dtype c_type, size_t ldc, const void *bias) {
    const par__cuda_gemm_desc p = {ta,     tb,  m, n, k, lda, ldb, ldc, 1.0f, beta, par_tp_dtype(tp),
                                   c_type, bias};
    return par__cuda_canonical_gemm(par__cuda_of_tp(tp), &p, a, b, c);
}
template <class T>
static __global__ void par__cuda_k_c_sum_rows(float *sum, const T *x, size_t ld, size_t rows, size_t cols) {
    PAR__CUDA_GRID_STRIDE(j, cols)
        for (size_t r = 0; r < rows; r++) sum[j] += par__cuda_at(x, r * ld + j);
}
static par_result par__cuda_c_sum_rows(par_tp *tp, float *sum, const void *x, size_t ld, size_t rows,
                                       size_t cols) {
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_each(tp, par__cuda_k_c_sum_rows<T>, cols, sum, (const T *)x, ld, rows, cols);
    });
}

template <class T>
static __global__ void par__cuda_k_c_norm(T *y, float *stats, const T *x, const T *w, const T *b, size_t rows,
                                          size_t n, int rms, float epsilon) {
    PAR__CUDA_GRID_STRIDE(r, rows) {
        const T *row = x + r * n;
        const float mean =
            rms ? 0 : par__cuda_lane_sum(n, [&](size_t i) { return par__cuda_at(row, i); }) / (float)n;
        const float squares = par__cuda_lane_sum(n, [&](size_t i) {
            const float d = par__cuda_at(row, i) - mean;
            return d * d;
        });
        const float rstd = par__tp_rstd(squares, n, epsilon);
        for (size_t i = 0; i < n; i++) {
            const float h = par__tp_normalized(par__cuda_at(row, i), mean, rstd) * par__cuda_at(w, i);
            par__cuda_round(&y[r * n + i], b ? h + par__cuda_at(b, i) : h);
        }
        if (!rms) stats[2 * r] = mean;
        stats[rms ? r : 2 * r + 1] = rstd;
    }
}
static par_result par__cuda_c_norm_forward(par_tp *tp, void *y, float *stats, const void *x, const void *add,
                                           void *sum, const void *weight, const void *bias, size_t rows,
                                           size_t cols, int rms, float epsilon) {
    if (add)
        PAR__CUDA_TRY(
            par__cuda_t_elementwise(tp, PAR_TP_ADD, rows, cols, sum, NULL, cols, x, cols, add, NULL, cols));
    if (add) x = sum;
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_each(tp, par__cuda_k_c_norm<T>, rows, (T *)y, stats, (const T *)x, (const T *)weight,
                              (const T *)bias, rows, cols, rms, epsilon);
    });
}
template <class T>
static __global__ void par__cuda_k_c_norm_weights(float *dw, float *db, const T *dy, const T *x,
                                                  const float *stats, size_t rows, size_t n, int rms) {
    PAR__CUDA_GRID_STRIDE(i, n)
        for (size_t r = 0; r < rows; r++) {
            const float mean = rms ? 0 : stats[2 * r], rstd = stats[rms ? r : 2 * r + 1],
                        g = par__cuda_at(dy, r * n + i);
            if (dw) dw[i] += g * (par__cuda_at(x, r * n + i) - mean) * rstd;
            if (db) db[i] += g;
        }
}
template <class T>
static __global__ void par__cuda_k_c_norm_backward(T *dx, const T *dy, const T *x, const T *add, const T *w,
                                                   const float *stats, size_t rows, size_t n, int rms) {
    PAR__CUDA_GRID_STRIDE(r, rows) {
        const float mean = rms ? 0 : stats[2 * r], rstd = stats[rms ? r : 2 * r + 1];
        const auto g = [&](size_t i) { return par__cuda_at(dy, r * n + i) * par__cuda_at(w, i); };
        const auto h = [&](size_t i) { return par__tp_normalized(par__cuda_at(x, r * n + i), mean, rstd); };
        const float sum = rms ? 0 : par__cuda_lane_sum(n, g) / (float)n;
        const float dot = par__cuda_lane_sum(n, [&](size_t i) { return g(i) * h(i); }) / (float)n;
        for (size_t i = 0; i < n; i++) {
            T one;
            par__cuda_round(&one, par__tp_norm_gradient(par__cuda_at(dy, r * n + i), par__cuda_at(w, i), h(i),
                                                        rstd, sum, dot));
            const float gradient = (float)par__cuda_widen(one);
            par__cuda_round(&dx[r * n + i], add ? gradient + par__cuda_at(add, r * n + i) : gradient);
        }
    }
}
static par_result par__cuda_c_norm_backward(par_tp *tp, void *dx, float *dweight, float *dbias,
                                            const void *dy, const void *x, const void *add,
                                            const void *weight, const float *stats, size_t rows, size_t cols,
                                            int rms) {
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        PAR__CUDA_TRY(par__cuda_each(tp, par__cuda_k_c_norm_weights<T>, cols, dweight, dbias, (const T *)dy,
                                     (const T *)x, stats, rows, cols, rms)); // dx may be dy
        return par__cuda_each(tp, par__cuda_k_c_norm_backward<T>, rows, (T *)dx, (const T *)dy, (const T *)x,
                              (const T *)add, (const T *)weight, stats, rows, cols, rms);
    });
}

template <class T>
static __global__ void par__cuda_k_c_embed_backward(float *grad, const int32_t *ids, size_t rows, const T *dy,
                                                    size_t first, size_t count, size_t cols) {
    PAR__CUDA_GRID_STRIDE(j, cols)
        for (size_t r = 0; r < rows; r++) {
            const size_t id = (size_t)ids[r] - first;
            if (id < count) grad[id * cols + j] += par__cuda_at(dy, r * cols + j);
        }
}
static par_result par__cuda_c_embed_backward(par_tp *tp, float *grad, const int32_t *ids, size_t rows,
                                             const void *dy, size_t first, size_t count, size_t cols) {
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_each(tp, par__cuda_k_c_embed_backward<T>, cols, grad, ids, rows, (const T *)dy,
                              first, count, cols);
    });
}
template <class T>
static __global__ void par__cuda_k_c_positions_backward(float *grad, const T *dy, size_t rows, size_t cols,
                                                        PAR__CUDA_PARAMETER par_tp_row_map map) {
    PAR__CUDA_GRID_STRIDE(j, cols)
        for (size_t r = 0; r < rows; r++)
            grad[par__tp_row_position(&map, r) * cols + j] += par__cuda_at(dy, r * cols + j);
}
static par_result par__cuda_c_positions_backward(par_tp *tp, float *grad, const void *dy, size_t rows,
                                                 size_t cols, const par_tp_row_map *map) {
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_each(tp, par__cuda_k_c_positions_backward<T>, cols, grad, (const T *)dy, rows, cols,
                              *map);
    });
}

template <class T>
static __global__ void par__cuda_k_c_loss_stats(float *stats, const T *logits, size_t ld,
                                                const int32_t *targets, size_t rows, size_t first,
                                                size_t cols) {
    PAR__CUDA_GRID_STRIDE(r, rows) {
        const T *x = logits + r * ld;
        const size_t target = (size_t)targets[r] - first;
        float max = -INFINITY;
        for (size_t i = 0; i < cols; i++) max = par__tp_max(par__cuda_at(x, i), max);
        stats[4 * r] = max;
        stats[4 * r + 1] =
            par__cuda_lane_sum(cols, [&](size_t i) { return par__tp_exp(par__cuda_at(x, i) - max); });
        stats[4 * r + 2] = target < cols ? par__cuda_at(x, target) : 0;
        stats[4 * r + 3] = par__cuda_lane_sum(cols, [&](size_t i) { return par__cuda_at(x, i); });
    }
}
static par_result par__cuda_c_loss_stats(par_tp *tp, float *stats, const void *logits, size_t ld,
                                         const int32_t *targets, size_t rows, size_t first, size_t cols) {
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_each(tp, par__cuda_k_c_loss_stats<T>, rows, stats, (const T *)logits, ld, targets,
                              rows, first, cols);
    });
}
static __global__ void par__cuda_k_c_loss_combine(const float *stats, size_t ranks, size_t rows,
                                                  const int32_t *targets, par_tp_loss loss, float *lse,
                                                  float *losses, double *sum, size_t *target_count) {
    double all = 0;
    size_t count = 0;
    for (size_t r = 0; r < rows; r++) { // by one thread
        const double one = par__tp_row_loss(&loss, stats + 4 * r, ranks, 4 * rows, &lse[r]);
        const bool ignored = par__tp_ignored(&loss, targets[r]);
        if (losses) losses[r] = ignored ? 0 : (float)one;
        if (ignored) continue;
        all += one;
        count++;
    }
    *sum = all;
    *target_count = count;
}
static par_result par__cuda_c_loss_combine(par_tp *tp, const float *stats, size_t ranks, size_t rows,
                                           const int32_t *targets, const par_tp_loss *loss, float *lse,
                                           float *losses, double *sum, size_t *target_count) {
    par_cuda *cuda = par__cuda_of_tp(tp);
    return par__cuda_launch(cuda, par__cuda_k_c_loss_combine, 1, 1, 0, cuda->stream, stats, ranks, rows,
                            targets, *loss, lse, losses, sum, target_count);
}
template <class T>
static __global__ void par__cuda_k_c_loss_backward(T *dlogits, const T *logits, size_t ld,
                                                   const int32_t *targets, const float *lse, size_t rows,
                                                   size_t first, size_t cols, par_tp_loss loss, float scale) {
    PAR__CUDA_GRID_STRIDE(r, rows) {
        const float factor = par__tp_loss_factor(&loss, scale, lse[r]);
        const float smooth = par__tp_loss_smooth(&loss, scale);
        const bool ignored = par__tp_ignored(&loss, targets[r]);
        const size_t target = (size_t)targets[r] - first;
        for (size_t i = 0; i < cols; i++) {
            float y = par__tp_logit_gradient(par__cuda_at(logits + r * ld, i), lse[r], factor, smooth);
            if (i == target) y = par__tp_target_gradient(&loss, scale, y);
            par__cuda_round(dlogits + r * ld + i, ignored ? 0.0f : y);
        }
    }
}
static par_result par__cuda_c_loss_backward(par_tp *tp, void *dlogits, const void *logits, size_t ld,
                                            const int32_t *targets, const float *lse, size_t rows,
                                            size_t first, size_t cols, const par_tp_loss *loss, float scale) {
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_each(tp, par__cuda_k_c_loss_backward<T>, rows, (T *)dlogits, (const T *)logits, ld,
                              targets, lse, rows, first, cols, *loss, scale);
    });
}
static par_result par__cuda_c_loss_forward_backward(par_tp *tp, void *dlogits, float *stats,
                                                    const void *logits, size_t ld, const int32_t *targets,
                                                    size_t rows, size_t cols, const par_tp_loss *loss,
                                                    float *lse, float *losses, double *sum,
                                                    size_t *target_count, float scale) {
    PAR__CUDA_TRY(par__cuda_c_loss_stats(tp, stats, logits, ld, targets, rows, 0, cols));
    PAR__CUDA_TRY(
        par__cuda_c_loss_combine(tp, stats, 1, rows, targets, loss, lse, losses, sum, target_count));
    return par__cuda_c_loss_backward(tp, dlogits, logits, ld, targets, lse, rows, 0, cols, loss, scale);
}

// Attention: block by block, or (dx, and first and y of the block) of whole sequences. What a thread has: a
// query of a head, or (keys) a feature of a key.
enum { PAR__CUDA_KEYS = 128 }; // of a block
template <class T> struct par__cuda_query {
    const par_tp_attention_block &m;
    size_t head, kv_head, sequence, row, position, first; // first: of the keys that it sees
    const T *q, *k, *v;                                   // this head's: of the query, of the first key
    __device__ par__cuda_query(const par_tp_attention_block &block, size_t at) : m(block) {
        head = at % m.heads;
        kv_head = head / (m.heads / m.kv_heads);
        sequence = at / m.heads / m.q_count;
        row = sequence * m.q_stride + m.q_row + at / m.heads % m.q_count;
        position = m.q_position + at / m.heads % m.q_count;
        first = par__tp_first_key(&m, sequence, position);
        const size_t keys = (sequence * m.kv_stride + m.kv_row) * m.kv_ld + kv_head * m.kv_head_stride;
        q = (const T *)m.q + row * m.q_ld + head * m.dim;
        k = (const T *)m.k + keys;
        v = (const T *)m.v + keys;
    }
    __device__ bool sees(size_t key) const {
        return m.kv_position + key <= position && m.kv_position + key >= first;
    }
    __device__ float score(size_t key) const {
        float sum = 0;
        for (size_t d = 0; d < m.dim; d++)
            sum = fmaf(par__cuda_at(k, key * m.kv_ld + d), par__cuda_at(q, d) * m.scale, sum);
        return sum;
    }
    __device__ float kept(const par__cuda_dropout &drop, size_t key) const { // the factor of dropout
        if (!drop.limit) return 1;
        const uint64_t element =
            par__tp_first_score(&m, sequence, head) + position * m.sequence + m.kv_position + key;
        const uint32_t bits = par__cuda_random_bits(drop.seed, par__cuda_dropout_stream(drop), element);
        return par__tp_is_dropped(bits, drop.limit) ? 0.0f : par__tp_dropout_scale(m.dropout);
    }
};
// One step of the online softmax: the weights of n keys from `from` on. Returns the factor of earlier sums.
template <class T>
static __device__ float par__cuda_c_softmax(const par__cuda_query<T> &o, const par__cuda_dropout &drop,
                                            size_t from, size_t n, float *s, float *max, float *sum) {
    float now = *max, total = 0;
    for (size_t i = 0; i < n; i++) {
        s[i] = o.sees(from + i) ? o.score(from + i) : -INFINITY;
        now = par__tp_max(s[i], now);
    }
    const float rescale = par__tp_softmax_weight(*max, now);
    for (size_t i = 0; i < n; i++) s[i] = par__tp_softmax_weight(s[i], now);
    for (size_t i = 0; i < n; i += 2) total += s[i] + (i + 1 < n ? s[i + 1] : 0);
    for (size_t i = 0; i < n; i++) s[i] *= o.kept(drop, from + i);
    *max = now;
    *sum = *sum * rescale + total;
    return rescale;
}
template <class T>
static __global__ void par__cuda_k_c_attention(PAR__CUDA_PARAMETER par_tp_attention_block m,
                                               PAR__CUDA_PARAMETER par__cuda_dropout drop, float *outs) {
    PAR__CUDA_GRID_STRIDE(at, m.batch * m.q_count * m.heads) {
        const par__cuda_query<T> o(m, at);
        float *out = outs + at * m.dim, max = -INFINITY, sum = 0, s[PAR__CUDA_KEYS];
        for (size_t d = 0; d < m.dim; d++) out[d] = 0;
        for (size_t from = 0; from < m.kv_count && m.kv_position + from <= o.position;
             from += PAR__CUDA_KEYS) {
            const size_t n = PAR__MIN((size_t)PAR__CUDA_KEYS, m.kv_count - from);
            const float rescale = par__cuda_c_softmax(o, drop, from, n, s, &max, &sum);
            for (size_t d = 0; d < m.dim; d++) {
                float add = 0;
                for (size_t i = 0; i < n; i++)
                    if (o.sees(from + i)) add = fmaf(par__cuda_at(o.v, (from + i) * m.kv_ld + d), s[i], add);
                out[d] = out[d] * rescale + add;
            }
        }
        const size_t state = o.row * m.heads + o.head;
        if (!m.first) {
            const float *acc = m.acc + o.row * m.acc_ld + o.head * m.dim;
            const float both = PAR__MAX(m.row_max[state], max),
                        before = par__tp_softmax_weight(m.row_max[state], both),
                        now = par__tp_softmax_weight(max, both);
            sum = m.row_sum[state] * before + sum * now;
            max = both;
            for (size_t d = 0; d < m.dim; d++) out[d] = acc[d] * before + out[d] * now;
        }
        m.row_max[state] = m.y ? max + (float)par__log((double)sum) : max;
        if (!m.y) m.row_sum[state] = sum;
        for (size_t d = 0; d < m.dim; d++)
            if (m.y)
                par__cuda_round(&((T *)m.y)[state * m.dim + d], out[d] * (1 / sum));
            else
                m.acc[o.row * m.acc_ld + o.head * m.dim + d] = out[d];
    }
}
static par_result par__cuda_c_attention_block_forward(par_tp *tp, const par_tp_attention_block *m) {
    const size_t n = m->batch * m->q_count * m->heads;
    float *outs = (float *)par__cuda_scratch(par__cuda_of_tp(tp), PAR__CUDA_SCRATCH_ATTENTION,
                                             (n * m->dim + 1) * sizeof *outs);
    if (!outs) return PAR_ERR_MEMORY;
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_each(tp, par__cuda_k_c_attention<T>, n, *m,
                              par__cuda_dropout_of(tp, m->stream, m->dropout), outs);
    });
}
static par_result par__cuda_c_attention_forward(par_tp *tp, const par_tp_attention_block *m, void *y,
                                                float *lse, int *handled) {
    const par_tp_attention_block whole = par__cuda_whole_sequences(m, y, lse);
    return *handled = 1, par__cuda_c_attention_block_forward(tp, &whole);
}
template <class T>
static __global__ void par__cuda_k_c_row_dots(float *dot, const T *a, const T *b, size_t rows, size_t dim) {
    PAR__CUDA_GRID_STRIDE(r, rows) {
        float lanes[16] = {0};
        par__cuda_add_to_lanes<16>(lanes, 0, dim, [&](size_t i) {
            return par__cuda_at(a, r * dim + i) * par__cuda_at(b, r * dim + i);
        });
        par__cuda_fold_lanes<8>(lanes);
        dot[r] = lanes[0];
    }
}
static par_result par__cuda_c_row_dots(par_tp *tp, float *dot, const void *a, const void *b, size_t rows,
                                       size_t dim) {
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        return par__cuda_each(tp, par__cuda_k_c_row_dots<T>, rows, dot, (const T *)a, (const T *)b, rows,
                              dim);
    });
}
// Of each query: the weights and the gradients of the scores of all keys, and the gradient of the query.
template <class T>
static __global__ void par__cuda_k_c_attention_queries(PAR__CUDA_PARAMETER par_tp_attention_block m,
                                                       PAR__CUDA_PARAMETER par__cuda_dropout drop,
                                                       float *weights, float *gradients) {
    PAR__CUDA_GRID_STRIDE(at, m.batch * m.q_count * m.heads) {
        const par__cuda_query<T> o(m, at);
        const T *dy = (const T *)m.dy + o.row * m.dy_ld + o.head * m.dim;
        float *p = weights + at * m.kv_count, *ds = gradients + at * m.kv_count;
        const float dot = m.dot[o.row * m.heads + o.head], lse = m.lse[o.row * m.heads + o.head];
        for (size_t key = 0; key < m.kv_count; key++) {
            float g = 0;
            p[key] = ds[key] = 0;
            if (!o.sees(key)) continue;
            for (size_t d = 0; d < m.dim; d++)
                g = fmaf(par__cuda_at(o.v, key * m.kv_ld + d), par__cuda_at(dy, d), g);
            const float weight = par__tp_softmax_weight(o.score(key), lse), kept = o.kept(drop, key);
            ds[key] = par__tp_score_gradient(weight, drop.limit ? g * kept : g, dot, m.scale);
            p[key] = weight * kept;
        }
        for (size_t d = 0; d < m.dim; d++) {
            float dq = 0;
            for (size_t from = 0; from < m.kv_count; from += PAR__CUDA_KEYS) {
                float add = 0;
                for (size_t key = from; key < m.kv_count && key < from + PAR__CUDA_KEYS; key++)
                    if (o.sees(key)) add = fmaf(par__cuda_at(o.k, key * m.kv_ld + d), ds[key], add);
                dq += add;
            }
            const size_t sums = o.row * m.dq_ld + o.head * m.dim + d;
            if (!m.first) dq = m.dq[sums] + dq;
            if (m.dx_q)
                par__cuda_round((T *)m.dx_q + o.row * m.q_ld + o.head * m.dim + d, dq);
            else
                m.dq[sums] = dq;
        }
    }
}
template <class T>
static __global__ void par__cuda_k_c_attention_keys(PAR__CUDA_PARAMETER par_tp_attention_block m,
                                                    const float *weights, const float *gradients) {
    T *dx = (T *)m.dx_kv;
    PAR__CUDA_GRID_STRIDE(at, m.batch * m.kv_heads * m.kv_count * m.dim) {
        const size_t d = at % m.dim, kv_head = at / m.dim % m.kv_heads, group = m.heads / m.kv_heads,
                     key = at / m.dim / m.kv_heads % m.kv_count,
                     sequence = at / m.dim / m.kv_heads / m.kv_count;
        const size_t row = sequence * m.kv_stride + m.kv_row + key,
                     there = row * m.dkv_ld + kv_head * m.dim + d,
                     to = row * m.kv_ld + (m.heads + kv_head) * m.dim + d;
        float dk = m.first_queries ? 0 : m.dk[there], dv = m.first_queries ? 0 : m.dv[there];
        for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++)
            for (size_t from = 0; from < m.q_count; from += PAR__CUDA_KEYS) {
                float add_k = 0, add_v = 0;
                for (size_t i = from; i < m.q_count && i < from + PAR__CUDA_KEYS; i++) {
                    const size_t query = (sequence * m.q_count + i) * m.heads + head;
                    const par__cuda_query<T> o(m, query);
                    const T *dy = (const T *)m.dy + o.row * m.dy_ld + head * m.dim;
                    if (!o.sees(key)) continue;
                    add_k = fmaf(gradients[query * m.kv_count + key], par__cuda_at(o.q, d), add_k);
                    add_v = fmaf(weights[query * m.kv_count + key], par__cuda_at(dy, d), add_v);
                }
                dk += add_k;
                dv += add_v;
            }
        if (dx) {
            par__cuda_round(&dx[to], dk);
            par__cuda_round(&dx[to + m.kv_heads * m.dim], dv);
        } else {
            m.dk[there] = dk;
            m.dv[there] = dv;
        }
    }
}
// y NULL: m->dot is known.
static par_result par__cuda_c_attention_gradients(par_tp *tp, const par_tp_attention_block *m,
                                                  const void *y) {
    const size_t n = m->batch * m->q_count * m->heads, pairs = n * m->kv_count;
    float *dot = (float *)par__cuda_scratch(par__cuda_of_tp(tp), PAR__CUDA_SCRATCH_ATTENTION,
                                            (n + 2 * pairs + 1) * sizeof *dot);
    float *weights = dot + n, *gradients = weights + pairs;
    par_tp_attention_block with_dot = *m;
    if (!dot) return PAR_ERR_MEMORY;
    if (y) PAR__CUDA_TRY(par__cuda_c_row_dots(tp, dot, m->dy, y, n, m->dim));
    if (y) with_dot.dot = dot;
    return par__cuda_visit_storage(tp, [&](auto number) {
        typedef decltype(number) T;
        PAR__CUDA_TRY(par__cuda_each(tp, par__cuda_k_c_attention_queries<T>, n, with_dot,
                                     par__cuda_dropout_of(tp, m->stream, m->dropout), weights, gradients));
        return par__cuda_each(tp, par__cuda_k_c_attention_keys<T>,
                              m->batch * m->kv_heads * m->kv_count * m->dim, *m, weights, gradients);
    });
}
static par_result par__cuda_c_attention_backward(par_tp *tp, const par_tp_attention_block *m, const void *y,
                                                 void *dx, int *handled) {
    const par_tp_attention_block whole = par__tp_whole_gradients(m, dx);
    if (!y) return PAR_OK;
    return *handled = 1, par__cuda_c_attention_gradients(tp, &whole, y);
}
static par_result par__cuda_c_attention_block_backward(par_tp *tp, const par_tp_attention_block *m) {
    return par__cuda_c_attention_gradients(tp, m, NULL);
}
static void par__cuda_tp_open_canonical(par_tp_kernels *t) {
    t->canonical = 1;
    t->gemm = par__cuda_c_gemm;
    t->gemm_fused = NULL;
    t->gemm_blocks = NULL;
    t->sum_rows = par__cuda_c_sum_rows;
    t->norm_forward = par__cuda_c_norm_forward;
    t->norm_backward = par__cuda_c_norm_backward;
    t->embed_backward = par__cuda_c_embed_backward;
    t->positions_backward = par__cuda_c_positions_backward;
    t->loss_stats = par__cuda_c_loss_stats;
    t->loss_combine = par__cuda_c_loss_combine;
    t->loss_backward = par__cuda_c_loss_backward;
    t->loss_forward_backward = par__cuda_c_loss_forward_backward;
    t->attention_block_forward = par__cuda_c_attention_block_forward;
    t->attention_block_backward = par__cuda_c_attention_block_backward;
    t->attention_apart = 0;
    t->row_dots = par__cuda_c_row_dots;
    t->attention_fused_forward = par__cuda_c_attention_forward;
    t->attention_fused_backward = par__cuda_c_attention_backward;
}

// >>cuda_tp_table -------------------------------------------------------------------------------------------

static void par__cuda_tp_open(par_cuda *cuda) {
    par_tp_kernels *t = &cuda->tp;
    t->name = "cuda";
    t->device = &cuda->device;
    t->alloc = par__cuda_t_alloc;
    t->free = par__cuda_t_free;
    t->captured = par__cuda_t_captured;
    t->gemm = par__cuda_t_gemm;
    t->cast = par__cuda_t_cast;
    t->copy = par__cuda_t_copy;
    t->add_bias = par__cuda_t_add_bias;
    t->sum_rows = par__cuda_t_sum_rows;
    t->elementwise = par__cuda_t_elementwise;
    t->norm_forward = par__cuda_t_norm_forward;
    t->norm_backward = par__cuda_t_norm_backward;
    t->dropout = par__cuda_t_dropout;
    t->rope = par__cuda_t_rope;
    t->embed = par__cuda_t_embed;
    t->embed_backward = par__cuda_t_embed_backward;
    t->positions = par__cuda_t_positions;
    t->positions_backward = par__cuda_t_positions_backward;
    t->loss_stats = par__cuda_t_loss_stats;
    t->loss_combine = par__cuda_t_loss_combine;
    t->loss_backward = par__cuda_t_loss_backward;
    t->loss_forward_backward = par__cuda_t_loss_forward_backward;
    t->attention_block_forward = par__cuda_t_attention_block_forward;
    t->attention_block_backward = par__cuda_t_attention_block_backward;
    t->attention_apart = 1;
    t->row_dots = par__cuda_t_row_dots;
    t->init = par__cuda_t_init;
    t->attention_fused_forward = par__cuda_t_attention_fused_forward;
    t->attention_fused_backward = par__cuda_t_attention_fused_backward;
    t->gemm_name = "built-in";
#if defined(PAR_CUDA_CUBLASLT)
    t->gemm_name = "cuBLASLt";
    t->quantize = par__cuda_t_quantize;
    t->gemm_codes = par__cuda_t_gemm_codes;
    t->roll_amax = par__cuda_t_roll_amax;
    t->gemm_fused = par__cuda_t_gemm_fused;
    t->gemm_blocks = par__cuda_t_gemm_blocks;
#endif
    t->square_sum = par__cuda_t_square_sum;
    t->set = par__cuda_t_set;
    if (cuda->desc.canonical) par__cuda_tp_open_canonical(t);
}
const par_tp_kernels *par_cuda_tp(par_cuda *cuda) { return &cuda->tp; }
#endif

#pragma pop_macro("PAR_SITE")
#pragma pop_macro("PAR__CUDA_WITH_SITE")
#undef par_fail
#endif // PAR_CUDA_IMPLEMENTATION

// Public domain where that is possible: anyone may use, change and give this away for any purpose, without
// conditions. Elsewhere, and if you prefer, under MIT-0:
//
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction, including
// without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is furnished to do so.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
// LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
// EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
// IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE
// USE OR OTHER DEALINGS IN THE SOFTWARE.

// par_zero.h - data parallelism from DDP to ZeRO-3: parameters, gradients and optimizer states, sharded or
// not.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_ZERO_IMPLEMENTATION)
#define PAR_ZERO_IMPLEMENTATION
#endif
// clang-format on

#include "par.h"
#include "par_files.h"
#if PAR_FILES_VERSION != PAR_VERSION
#error "par_zero.h and par_files.h are of two versions: take all headers from one"
#endif
#include "par_math.h"
#if PAR_VERSION != 900
#error "par_zero.h is version 0.9.0, and par.h is of another version: take all headers from one version"
#endif

#ifndef PAR_ZERO_H
#define PAR_ZERO_H
/*
WHAT
    n ranks train one model on different data. The ZeRO stage decides which of parameters, gradients and
    optimizer states each rank has whole, and of which it has 1/n. Forward, backward and the loss stay yours:
    you tell the library which unit (a layer, for example) you are about to use, and when its gradients are
    complete.

USE
    #define PAR_IMPLEMENTATION        in one file
    #include "par_zero.h"             cc -O2 prog.c -pthread -lm
    A whole loop, with microbatches, clipping, checkpoints and the same bits on any number of ranks:
    examples/05_zero.c.

STEP BY STEP (you have a training loop in one process)
    1. par_zero_open. par_zero_add_unit for each layer, par_zero_add_tensor for each of its tensors; or
       par_zero_add_layer for par_tp.h's layers. par_zero_commit allocates them. par_zero_fill or
       par_zero_init_all sets initial values.
    2. Between par_zero_forward_begin and _end of a unit read weights by par_zero_data. Between
       par_zero_backward_begin and _end add to par_zero_grad. Or let both set your own pointers
       (par_zero_tensor.data, grad).
    3. Replace your optimizer by par_zero_step, your checkpoint by par_zero_save and par_zero_load.
    4. Change desc.stage from 0 to 3: nothing else in the loop changes.

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par_zero.h"

    static void fours(void *user, size_t first, size_t count, float *values) {
        (void)user, (void)first;
        for (size_t i = 0; i < count; i++) values[i] = 4;
    }
    int main(void) { // each rank pulls all weights towards its own number; the average wins
        par_comm *world;
        par_zero *z;
        par_zero_desc desc = {0};
        par_zero_tensor t = {0};
        par_zero_report report;
        if (par_open(NULL, &world)) return 1;
        desc.comm = world, desc.stage = 3; // gradients become their mean over the ranks
        desc.optimizer = PAR_ZERO_SGD, desc.hyper[0].lr = 1;
        t.name = "w", t.dims = 1, t.shape[0] = 1000;
        if (par_zero_open(&desc, &z)) return 1;
        const int layer = par_zero_add_unit(z, "layer"), w = par_zero_add_tensor(z, &t); // the name is copied
        if (par_zero_commit(z) || par_zero_fill(z, w, PAR_ZERO_VALUE, fours, NULL)) return 1;
        if (par_zero_forward_begin(z, layer)) return 1; // from here on par_zero_data(z, w) is all of w
        if (par_zero_forward_end(z, layer) || par_zero_backward_begin(z, layer)) return 1;
        for (int i = 0; i < 1000; i++)
            par_zero_grad(z, w)[i] = ((float *)par_zero_data(z, w))[i] - (float)par_rank(world);
        if (par_zero_backward_end(z, layer) || par_zero_step(z, 1, &report)) return 1;
        float now[1000];
        if (par_zero_read(z, w, PAR_ZERO_VALUE, now)) return 1;
        if (par_rank(world) == 0) printf("weights are now %g\n", (double)now[999]);
        // with PAR_RANKS=3 it prints: weights are now 1
        par_zero_close(z);
        return par_close(world) != PAR_OK;
    }

TABLE OF CONTENTS
    The API comes first: contexts, units and tensors, the plan, forward and backward, the step, values,
    files, checkpoints, learning rates, kernels. Implementation, bottom-up:
    >>zero_structs   private structures
    >>zero_plan      layout of units; sizes of all buffers
    >>zero_store     offloading to host memory and files, asynchronously
    >>zero_open      contexts, registration of tensors, allocation
    >>zero_gather    stage 3: all-gather of parameters, with prefetch
    >>zero_reduce    gradients: accumulation and reduction
    >>zero_window    iteration over optimizer states, window by window
    >>zero_norm      the global norm of the gradients
    >>zero_step      the update
    >>zero_buddies   each rank's copy of another one's shard
    >>zero_commit    the step, and its commit point
    >>zero_values    reading and writing tensors
    >>zero_files     tensors of safetensors files: conversions, import
    >>zero_table     which tensors a checkpoint holds, and where they lie in its files
    >>zero_manifest  which files of a directory are a checkpoint's
    >>zero_lock      one run saves into a directory
    >>zero_save      saving checkpoints
    >>zero_load      loading checkpoints into any layout
    >>zero_export    whole tensors, piece by piece, on rank 0
    >>zero_recover   the same training on other ranks
    >>zero_schedule  learning-rate schedules
    >>zero_loops     inner loops of the optimizers, compiled once per instruction set
    >>zero_states    moments of 8 bits
    >>zero_kernels   the CPU's table of kernels

CONFIG
    PAR_IMPLEMENTATION (or PAR_ZERO_IMPLEMENTATION)   emit the code, in one file
    PAR_ZERO_WINDOW   elements of each of the 3 buffers for offloaded states; a multiple of 1024 (131072)
    PAR_MALLOC, PAR_ASSERT ... as in par.h

MODEL
    stage     parameters   gradients   optimizer   sent by each rank in a step, times (n-1)/n parameters
    0 (DDP)   replicated   replicated  replicated  2: all-reduce of gradients
    1         replicated   replicated  sharded     2: reduce-scatter of gradients, all-gather of parameters
    2         replicated   sharded     sharded     1 + m: gradients are reduce-scattered per microbatch
    3         sharded      sharded     sharded     3m: and parameters gathered, for forward and backward
    m is the number of microbatches of a step (Rajbhandari et al. 2020).
    parameter_server: rank 0 alone has optimizer states; gradients are reduced to it, and it broadcasts the
    parameters (Li et al. 2014). replica_comm: states are sharded within comm and replicated across
    replica_comm (hybrid sharding, Zhang et al. 2022).

    Units       A unit is gathered and reduced as a whole. Its tensors lie in one flat array, each at a
                multiple of 32 elements: nothing is copied into or out of buckets. Units of about one layer
                are best; give what is used at another time (embedding, head) units of their own.
    Buffers     Stages 2 and 3 have buffers for unsharded units: max_gathered_units times the gradients of the
                largest unit, in stage 3 also its parameters. A unit that is far larger than the others gets a
                buffer of its own, and max_gathered_units counts the others.
    Gradients   A step has m microbatches, each with one backward pass of every unit. Gradients are summed
                over microbatches and ranks in a fixed order: two runs give the same bits. The update takes
                their mean, or the sum (desc.reduction). A gradient that is a partial sum over a layer's ranks
                is completed first (par_zero_tensor.sums): do not sum it yourself.
    Same bits   canonical_shards = C = m x ranks, all powers of two: the C microbatches of a step are summed
                pairwise in a fixed tree, and every number of ranks and every stage gives the same bits.
                par_zero_global_microbatch tells which of them a rank has to process. On a CPU the norms of
                gradients, LAMB and Muon are then roots of exact sums; random numbers, blocks of moments and
                Muon's matrices are those of whole tensors (see tensor_parallel_comm).
    Nesting     A unit may begin again before it has ended (recomputation, tied embeddings). Reductions and
                gathers run beside the computation that follows; par_zero_step waits for them.
    Offloading  To a file: each rank has an unlinked one, which disappears with the process; the update reads
                and writes it. Offloading never changes a result. Quantization does, but with canonical_shards
                it gives the same bits on any number of ranks.
    Moments     A moment takes 4 bytes, or less (state_dtype): AdamW then moves 20 (bf16) or 16 (u8) bytes an
                element instead of 28. That is faster where cores share the memory's bandwidth; one core alone
                computes longer. Both give the same bits on any number of ranks with canonical_shards.
        bf16    2 bytes, rounded at random, so that small changes are right on average. Random numbers depend
                on seed, name of the tensor, element and step.
        u8      1.016 bytes: blocks of 256 elements, each an f32 scale, then codes with a sign and 1 to 6 bits
                of fraction, by magnitude, or 1 to 7 without a sign (dynamic tree code; Dettmers et al. 2022).
                A tensor begins at a multiple of 256 elements of its unit: no block has elements of two
                tensors or shards.
                Master weights and averages are f32.
    Checkpoints Any number of ranks, stage, precision and offloading may load what par_zero_save wrote.
    Commits     par_zero_step has a commit point, which no rank passes before all have arrived. Before it
                nothing has changed; behind it each rank finishes the step by itself. State is what a step
                changes: parameters, master weights, moments, averages, scales of blocks, and
                par_zero_control: steps done, loss scale, good and bad steps, factors. Let data and random
                numbers depend on par_zero_steps and par_zero_global_microbatch alone: then a step can be
                made again.
    Buddies     desc.buddies = 1, stages 1 to 3: the next rank on another node (on one node, the next rank)
                has a copy of a rank's parameters and states, gets its reduced gradients, 4 bytes an element,
                and makes the same update (of Muon's matrices it gets the result, too). Where the rank dies,
                par_zero_recover takes its shard from there. It costs memory for one more shard, and a second
                update of 1/n of the elements. Stage 0 and replica_comm have replicas: there buddies = 1 only
                lets Muon need no other rank behind the commit point. Values that are set are the buddy's,
                too, from par_zero_flush, par_zero_init_all, par_zero_load or the next step on.
    Memory      par_zero_commit allocates all, par_zero_close frees it; only saving and loading allocate in
                between. The pointers of par_zero_data and par_zero_grad are valid from a begin to its end.
    Errors      The text is par_last_error(desc.comm). A context belongs to one rank and is not thread-safe.

DOES NOT
    No autograd: backward is yours. No activation checkpointing: recompute between backward_begin and _end, or
    let par_pipe.h do it. No optimizer of your own at run time: a new one is a row and a loop here.
    par_zero_recover is told who is left; it does not move what is offloaded, nor a parameter server's states.

LIMITS
    All ranks use the same units in the same order. Every unit with trained tensors needs m backward passes in
    a step: call begin and end also where it was not used. LAMB and Muon need tensor_parallel_comm where
    tensor parallelism splits tensors. Muon gathers the momentum of one unit at a time, then each split matrix
    on one rank. All tensors together have partial sums over at most 8 comms, each tensor over 4.
*/

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// ---- contexts ---------------------------------------------------------------------------------------------

typedef struct par_zero par_zero;
typedef struct par_zero_kernels par_zero_kernels; // the operations of one kind of device; see below

// X(constant, name, moments kept per parameter, how many of them an update reads, how many it writes)
#define PAR_ZERO_OPTIMIZERS(X)                                                                               \
    X(PAR_ZERO_ADAMW, adamw, 2, 2, 2) /* Loshchilov and Hutter 2019 */                                       \
    X(PAR_ZERO_SGD, sgd, 1, 1, 1)     /* momentum and weight decay as torch has them */                      \
    X(PAR_ZERO_LION, lion, 1, 1, 1)   /* Chen et al. 2023 */                                                 \
    X(PAR_ZERO_LAMB, lamb, 2, 2, 2)   /* You et al. 2020; by the trust ratios that lamb_norms leads to */    \
    X(PAR_ZERO_MUON, muon, 2, 0, 0)   /* Jordan 2024; AdamW for other shapes and for use_adamw */
typedef enum par_zero_optimizer {
#define PAR__X(constant, name, states, reads, writes) constant,
    PAR_ZERO_OPTIMIZERS(PAR__X)
#undef PAR__X
        PAR_ZERO_OPTIMIZER_COUNT
} par_zero_optimizer;
const char *par_zero_optimizer_name(par_zero_optimizer optimizer);
par_result par_zero_optimizer_parse(const char *name,
                                    par_zero_optimizer *optimizer); // Error: ARGUMENT (no such name)
par_suggestion par_zero_optimizer_suggest(const char *name);        // as par_suggest

// Codes of quantized messages, in blocks of 32 numbers that share a bf16 scale: integers (ZeRO++, Wang et
// al. 2023) or 8-bit floats (OCP; in blocks: Rouhani et al. 2023). The scale maps the largest number of a
// block to the largest code, so that blocks of any magnitude use the whole range. Integers have the smaller
// error relative to the largest number of a block; floats keep the relative error of the small ones. e4m3
// has 3 bits of mantissa; e5m2 has 2, and the wider range. X(constant, value, bits, the largest code)
#define PAR_ZERO_CODES(X)                                                                                    \
    X(PAR_ZERO_INT4, 4, 4, 7.0f)                                                                             \
    X(PAR_ZERO_INT8, 8, 8, 127.0f)                                                                           \
    X(PAR_ZERO_E4M3, 43, 8, 448.0f)                                                                          \
    X(PAR_ZERO_E5M2, 52, 8, 57344.0f)
typedef enum par_zero_code {
#define PAR__X(constant, value, bits, largest) constant = value,
    PAR_ZERO_CODES(PAR__X)
#undef PAR__X
        PAR_ZERO_NO_CODE = 0
} par_zero_code;

typedef struct par_zero_hyper { // hyperparameters of one parameter group
    float lr;                   // learning rate; par_zero_step multiplies it by lr_factor. Below 0: 0
    float beta1, beta2;         // 0: 0.9 and 0.999 (Lion 0.99); below 0: 0
    float epsilon;              // 0: 1e-8 (LAMB 1e-6)
    float weight_decay;         // decoupled; for SGD, L2
    float momentum;             // SGD (0: none) and Muon (0: 0.95)
    int nesterov;               // SGD; Muon always has it
} par_zero_hyper;

// What becomes of the gradients of the m microbatches of all ranks of comm and replica_comm: their mean, over
// m x ranks (DDP and FSDP divide by the ranks, and leave it to the loss to divide by m), or their sum.
typedef enum par_zero_reduction { PAR_ZERO_MEAN, PAR_ZERO_SUM } par_zero_reduction;

enum { PAR_ZERO_MAX_GROUPS = 8 };
typedef struct par_zero_desc {
    par_comm *comm;         // ranks over which states are sharded; NULL: only plan, for plan_ranks ranks
    par_comm *replica_comm; // hybrid sharding: ranks of other such comms with the same shards; NULL: none
    par_comm *model_parallel_comm; // tensor- and pipeline-parallel ranks, with other parts of the model: the
                                   // gradient norm is over them, too; NULL: none
    // Those of model_parallel_comm whose parts of this rank's tensors are, together, each element once. They
    // have the same tensors in the same order; some may have copies of elements. Parts of tensors need it
    // with LAMB and Muon, whose updates so do not depend on how tensors are split, and with
    // canonical_shards also with moments of 8 bits; NULL: none.
    par_comm *tensor_parallel_comm;
    int stage;                // 0 to 3
    int parameter_server;     // 1: rank 0 alone has the optimizer; only with stage 0
    int accumulate_unsharded; // 1: stages 2 and 3 accumulate unsharded gradients, and reduce them once a step
    int microbatches;         // m: backward passes of a step on this rank; 0: 1
    int canonical_shards;     // C = m x ranks: the same bits on any number of ranks; 0: sums in rank order
    par_zero_reduction reduction; // of gradients; 0: their mean
    int max_gathered_units;       // stages 2 and 3: units that may be unsharded at a time; 0: 2. See MODEL
    par_dtype param_dtype;        // f32, bf16 or f16; 0: f32. With 16 bits, states include f32 master weights
    par_dtype grad_dtype;         // f32, bf16 or f16; 0: f32, which canonical_shards needs
    par_dtype state_dtype;        // of moments: f32, bf16 or u8; 0: f32. See MODEL
    // Of the matrices that Muon's products take and give, with sums in f32: f32, or bf16 as Jordan (2024) has
    // them, which GPUs multiply faster; CPUs round them, and multiply in f32. 0: bf16 where param_dtype is,
    // else f32.
    par_dtype muon_dtype;
    par_zero_optimizer optimizer;
    // By par_zero_tensor.group. With a comm group 0 needs lr, and so does each other one, unless it is all
    // zeros: then it is as group 0.
    par_zero_hyper hyper[PAR_ZERO_MAX_GROUPS];
    float clip;            // gradients are clipped to this global norm; 0: no clipping
    float loss_scale;      // initial loss scale; multiply the loss by par_zero_loss_scale. 0: no loss scaling
    int loss_scale_window; // steps without overflow before the loss scale doubles, up to 2^24; 0: 2000
    int loss_scale_hysteresis; // steps with overflow before it is halved, down to 1; 0: 1
    int stochastic_rounding;   // of bf16 weights; random numbers are those of bf16 moments: see MODEL
    float ema;                 // decay of an exponential moving average of the weights; 0: none
    uint64_t seed;
    int quantize_parameters; // a par_zero_code of 8 bits, or 0; stage 3. Layers use what was dequantized
    int quantize_gradients;  // a par_zero_code, or 0; stages 2 and 3. One all-to-all, and sums in f32
    // Offloading: "host" (from a GPU to host memory), "file:DIR" (from the CPU to a file), or NULL or "none".
    const char *offload_states;     // optimizer states; they are streamed through three buffers by the update
    const char *offload_parameters; // only with stage 3; each gather reads them
    // 1: training can go on when ranks die: see Buddies in MODEL, and par_zero_recover. Not with
    // parameter_server and offloading. The host waits for a device in each step: no CUDA graph captures it.
    int buddies;
    int plan_ranks;                  // number of ranks, where comm is NULL
    const par_zero_kernels *kernels; // NULL: the CPU's
} par_zero_desc;

// Checks the desc and makes an empty context: add units and tensors, then call par_zero_commit. Local.
// Errors: ARGUMENT, MEMORY; where comm is NULL the text goes to PAR_LOG.
par_result par_zero_open(const par_zero_desc *desc, par_zero **z);
// Waits for everything in flight, ends a save, and frees all memory. Collective once committed. NULL is
// PAR_OK.
par_result par_zero_close(par_zero *z);

// ---- units and tensors ------------------------------------------------------------------------------------

typedef struct par_zero_tensor {
    const char *name; // unique; bytes that are not UTF-8 become U+FFFD
    size_t shape[4];  // of the tensor
    int dims;         // 1 to 4; a dimension may be 0
    int group;        // parameter group: index into desc.hyper
    int no_decay;     // 1: without its group's weight decay (norms, biases)
    int frozen;       // 1: not trained, no gradient and no states
    int use_adamw;    // 1: with Muon, this matrix is updated by AdamW (embeddings)
    // Not NULL: ranks of model_parallel_comm have other parts of this tensor, or copies. shape and dims are
    // the shard's then. An element that several ranks have counts once in the norm; checkpoints hold copy 0.
    const par_shard *shard; // copied
    // Not NULL: the ranks that have copies of this rank's part of the tensor, one of each copy, as the first
    // and the last stage of a pipeline have a tied weight. par_zero_step sums the gradients of the copies,
    // each of which is summed over comm and replica_comm before. The copies begin equal, and stay equal to
    // the bit. Such a tensor is alone in its unit, so that its shards are alike.
    par_comm *tied_comm;
    // Not NULL: every begin and end of the unit stores here what par_zero_data and par_zero_grad then return,
    // so that a layer's parameter is bound to its memory once (&p->data and &p->grad of a par_tp_parameter).
    // The pointers must stay valid until par_zero_close, which does not write to them.
    void **data;
    float **grad;
    float deviation, value; // initial values, for par_zero_init_all: see par_zero_init
    uint64_t stream;
    // Elements whose gradient is a partial sum on the ranks of a comm of the layer: it is completed before
    // it is summed over comm. The ranks of that comm have the same such tensors, and end their units in the
    // same order.
    par_partial_sum sums[PAR_MAX_SUMS];
    int *owned; // not NULL: par_zero_commit sets it to 1, so that the layer knows who completes these sums
    // Of a layer, which reads parameters of this type, and adds to gradients in f32: param_dtype must be
    // this, and grad_dtype f32. 0: it takes those of the desc.
    par_dtype dtype;
} par_zero_tensor;
// A tensor for a layer's parameter: with all that it says. *parameter must stay valid until it is added.
par_zero_tensor par_zero_tensor_of(const par_parameter *parameter);

// par_zero_add_unit begins a unit, and par_zero_add_tensor adds a tensor to the last unit. par_zero_add_layer
// begins a unit and adds `count` parameters to it, and returns the unit's number. Names are copied. All
// return a number, from 0 on, or -1 on an error: no name or a name that exists already; wrong dims,
// group or runs; a tensor before the first unit; any call after par_zero_commit; no memory. par_last_error
// has the text, and par_zero_commit returns the first such error again. Local.
int par_zero_add_unit(par_zero *z, const char *name);
int par_zero_add_tensor(par_zero *z, const par_zero_tensor *tensor);
int par_zero_add_layer(par_zero *z, const char *name, const par_parameter *parameters, int count);
// Adds a unit that is a second use of the weight of `unit`, which has one tensor: a head uses the weight of
// its embedding at another time, perhaps in another stage on this rank. It has that unit's parameters, and
// gradients of its own, which par_zero_step adds to that unit's, both summed over ranks and microbatches: the
// same bits as of copies with a tied_comm on two ranks. use: the parameter as the layer of this use describes
// it, of which data, grad and owned count; its gradients need the same sums as the weight's. NULL: there is
// none. Returns the unit's number, or -1.
int par_zero_add_use(par_zero *z, const char *name, int unit, const par_parameter *use);
// The order of a unit's backward passes, where it is not that of the microbatches: pass i is of microbatch
// order[i], from 0 to m - 1, of this rank. With canonical_shards the same pairs are added in any order, and
// there are as many partial sums as the order needs; else it does not matter. order is copied. Before
// par_zero_commit. Local. Errors: ARGUMENT (a microbatch twice or out of range; gradients are sharded, so
// all ranks would have to add the same microbatch at a time), MEMORY.
par_result par_zero_set_order(par_zero *z, int unit, const int *order);
// Compares what all ranks have given and added (over model_parallel_comm: the desc), and allocates all
// memory. Collective over comm, replica_comm, model_parallel_comm, tensor_parallel_comm and the comms of
// tensors' sums. Errors, the same on all ranks: ARGUMENT (an error of par_zero_add_unit or
// par_zero_add_tensor on any rank), MISMATCH (settings or tensors differ; the text names rank, tensor and
// field), MEMORY, SYSTEM (offloading).
par_result par_zero_commit(par_zero *z);

// ---- the plan ---------------------------------------------------------------------------------------------

// Bytes that par_zero_commit allocates on this rank (where comm is NULL: on rank 0), and the elements and
// bytes that this rank sends in a step. Sharded sizes include the padding.
typedef struct par_zero_plan {
    size_t elements;        // of all tensors
    size_t parameter_bytes; // replicated, or this rank's shard; likewise the next two
    size_t gradient_bytes;
    size_t state_bytes;              // optimizer states: master weights, moments, moving averages
    size_t buffer_bytes;             // the sum of these six:
    size_t gathered_parameter_bytes; // stage 3: parameters of gathered units
    size_t unsharded_gradient_bytes; // stages 2 and 3: gradients of units in backward
    size_t tree_sum_bytes;           // canonical_shards: partial sums
    size_t muon_bytes;               // Muon: gathered momentum, and matrices to work with
    size_t window_bytes;             // windows through which offloaded states pass
    size_t buddy_bytes; // buddies: another rank's shard: parameters, gradients, states; Muon's directions
    size_t host_bytes, file_bytes;     // offloaded
    size_t reduce_count, gather_count; // elements sent over comm: gradients, parameters
    size_t replica_reduce_count;       // elements sent over replica_comm: gradients
    size_t reduce_bytes, gather_bytes; // reduce_count and gather_count in bytes, as quantized
    size_t buddy_sent_bytes;           // sent to the buddy: gradients, Muon's directions
} par_zero_plan;
// Before or after par_zero_commit. Local. ARGUMENT: a unit or tensor was refused.
par_result par_zero_plan_of(const par_zero *z, par_zero_plan *plan);
void par_zero_plan_print(const par_zero *z, FILE *file);        // as text, with the contents of each buffer
const char *par_zero_format_bytes(size_t bytes, char text[16]); // "931 MiB"; returns text
// What was allocated, by the same classes; counts are 0. It equals the plan.
par_zero_plan par_zero_allocated(const par_zero *z);

// ---- forward and backward ---------------------------------------------------------------------------------

// Call these around each use of a unit's parameters in forward. In stage 3 begin waits for the all-gather of
// the unit and starts that of the next unit; end drops the gathered parameters. Collective over comm in stage
// 3. Errors: ARGUMENT (no such unit; more than max_gathered_units at a time), and those of the all-gather.
par_result par_zero_forward_begin(par_zero *z, int unit);
par_result par_zero_forward_end(par_zero *z, int unit);
// Call these around the backward pass of a unit, which adds to the gradients of par_zero_grad. begin also
// gathers the parameters, and starts the gather of the unit before. The outermost end completes the unit's
// gradients of this microbatch, and starts their reduction: in stages 2 and 3 at each microbatch, else at the
// last one. Before that it completes partial sums of the unit's tensors (par_zero_tensor.sums; with
// canonical_shards at each microbatch, too). Collective over comm and the comms of these sums. Errors:
// ARGUMENT (also: the step's microbatches are done), and those of the collectives.
par_result par_zero_backward_begin(par_zero *z, int unit);
par_result par_zero_backward_end(par_zero *z, int unit);

// The unsharded tensor, of param_dtype. NULL: it is sharded now, or there is no such tensor.
void *par_zero_data(par_zero *z, int tensor);
// The unsharded gradient, of grad_dtype (cast the pointer); backward adds to it. With sharded gradients or
// canonical_shards it holds the present microbatch alone, else all microbatches of the step so far. NULL: the
// tensor is frozen, its unit is not in backward (sharded gradients), or there is no such tensor.
float *par_zero_grad(par_zero *z, int tensor);
// The number, among the m x ranks microbatches of the step, of the one that this rank processes i-th, 0 <= i
// < m. UINT64_MAX: i is out of range. canonical_shards gives the same bits if each rank processes these.
uint64_t par_zero_global_microbatch(const par_zero *z, int i);

// ---- the step ---------------------------------------------------------------------------------------------

typedef struct par_zero_report {
    // The global norm of the gradients before clipping, over all units, comm, replica_comm and
    // model_parallel_comm: without the loss scale, and of the mean or the sum, as desc.reduction says.
    double grad_norm;
    int skipped;      // 1: a gradient was not finite (overflow): nothing was changed, on all ranks alike
    float loss_scale; // of the next step
    uint64_t step;    // steps done so far, without skipped ones
} par_zero_report;
// Waits for the reduction of gradients, clips them, updates the parameters with learning rates times
// lr_factor, starts the all-gather of replicated parameters, and clears the gradients. Collective over all
// comms of the desc. report may be NULL: then, but for buddies, the host does not wait for a device.
// lr_factor below 0: use the factor of par_zero_set_lr_factor, so that a captured CUDA graph can be replayed
// with another one (call par_zero_flush before the capture, at its end, and before each replay). Errors:
// ARGUMENT (a unit lacks backward passes of the step: nothing is changed, and the text says which), MISMATCH
// (on CPUs: ranks give other factors, or one that is not finite: nothing is changed), those of collectives:
// call par_zero_recover, which knows whether this step or the one before is the last.
par_result par_zero_step(par_zero *z, float lr_factor, par_zero_report *report);
par_result par_zero_set_lr_factor(par_zero *z, float lr_factor); // of all steps with lr_factor below 0
// Makes the device wait for the gathers that are under way, and forgets what was gathered ahead. The host
// does not wait for the device. Collective over comm.
par_result par_zero_flush(par_zero *z);
float par_zero_loss_scale(const par_zero *z);         // of the present step; 1: none
uint64_t par_zero_steps(const par_zero *z);           // done so far, without skipped ones
void par_zero_set_steps(par_zero *z, uint64_t steps); // when a run resumes without par_zero_load

// ---- values -----------------------------------------------------------------------------------------------

typedef enum par_zero_field {
    PAR_ZERO_VALUE,    // the parameter, or its f32 master weights
    PAR_ZERO_GRADIENT, // summed over the step
    PAR_ZERO_MOMENT1,  // exp_avg or momentum
    PAR_ZERO_MOMENT2,  // exp_avg_sq
    PAR_ZERO_EMA       // moving average of the parameter
} par_zero_field;

// Sets a field of a tensor. fn writes elements [first, first + count) to `values`; it is called for those
// that this rank holds, and they are numbered in the whole tensor (that of shard->global_shape, where there
// is a shard). So each rank computes or reads its own elements alone, and the same fn serves every number of
// ranks. PAR_ZERO_VALUE also sets the moving average; PAR_ZERO_GRADIENT cannot be set. Local. Errors:
// ARGUMENT, SYSTEM (offloading).
typedef void (*par_zero_fill_fn)(void *user, size_t first, size_t count, float *values);
par_result par_zero_fill(par_zero *z, int tensor, par_zero_field what, par_zero_fill_fn fn, void *user);
// Sets the values of a tensor as par_zero_fill does, but all of them to what fn gives on the first rank of
// comm and replica_comm, which alone is asked: so ranks that bring initial values of their own begin alike,
// as DDP's do. Ranks of tied_comm take those of its first rank. Takes memory for the tensor meanwhile.
// Collective over comm and replica_comm (and tied_comm). Errors: MEMORY, those of par_zero_fill and of
// collectives.
par_result par_zero_broadcast(par_zero *z, int tensor, par_zero_fill_fn fn, void *user);
// Sets initial values. deviation above 0: normal numbers with mean 0; number i of the whole tensor depends on
// desc.seed, stream and i alone, as with par_tp_init. Else all elements are `value`. They are rounded to
// param_dtype, master weights, too. A GPU draws them itself, with a CPU's bits. Local. Errors: those
// of par_zero_fill.
par_result par_zero_init(par_zero *z, int tensor, uint64_t stream, float deviation, float value);
// Of all tensors, as their par_zero_tensor says. Collective over comm.
par_result par_zero_init_all(par_zero *z);
// Reads this rank's part of the tensor (all of it without a shard) as f32 to `values`, on every rank.
// Collective over comm.
// PAR_ZERO_GRADIENT: the sum over all microbatches of comm and replica_comm, before the division by the loss
// scale and by the microbatches (PAR_ZERO_MEAN), and before clipping, which the update applies. Call it
// after the last backward pass of the step and before par_zero_step (else ARGUMENT). Collective over
// replica_comm, too.
par_result par_zero_read(par_zero *z, int tensor, par_zero_field what, float *values);
// Gives all whole tensors to fn on rank 0 of a comm that has every rank of the job, whatever part of the
// model each rank has: to export the model without ever having all of it in memory. fn gets one tensor after
// the other (a tied one once), and of each consecutive pieces of whole rows, of at most max_count elements
// (0: 1048576) or one row. A rank needs memory for two pieces. An error that fn returns, with a text by
// par_fail(comm, ...), ends the call on all ranks after the tensor. fn may be NULL on other ranks. Collective
// over comm. Errors: ARGUMENT (PAR_ZERO_GRADIENT; two tensors of one name), MISMATCH, MEMORY, those of fn and
// of collectives.
typedef par_result (*par_zero_gather_fn)(void *user, const char *name, size_t first, size_t count,
                                         const float *values);
par_result par_zero_gather(par_zero *z, par_comm *comm, par_zero_field what, size_t max_count,
                           par_zero_gather_fn fn, void *user);

// ---- files ------------------------------------------------------------------------------------------------
// Tensors of safetensors files (par_files.h) as numbers of f32.

// PAR_DTYPE_COUNT: a dtype that par.h does not have.
par_dtype par_zero_file_dtype(const par_file_tensor *tensor);
// Converts elements [first, first + count) of a tensor of floats to f32.
void par_zero_safetensors_read(const par_file_tensor *tensor, size_t first, size_t count, float *values);
// As par_safetensors_put, of numbers that are rounded to the tensor's dtype. transposed: these elements are
// numbered in the transposed matrix (shape[1] x shape[0]); whole rows are fastest.
par_result par_zero_safetensors_put(par_safetensors_writer *w, size_t index, int transposed, size_t first,
                                    size_t count, const float *values);

// A tensor in a file (f64, f32, f16 or bf16) that is a part of one of the model's: one of the matrices that
// the model has side by side, for example.
typedef struct par_zero_part {
    const par_file_tensor *file;
    size_t first;   // number of its first element in the model's whole tensor
    int transposed; // 1: the file has the transposed matrix, columns x rows
} par_zero_part;
// Reads elements [first, first + count) of the whole tensor that the parts are.
void par_zero_read_parts(const par_zero_part *parts, size_t first, size_t count, float *values);
// Sets the values of a tensor from parts, in their order, which together are the whole of it. Each rank reads
// the elements that it holds. Local. Errors: ARGUMENT (the parts are not the whole tensor, or not of a
// floating-point type), those of par_zero_fill.
par_result par_zero_import(par_zero *z, int tensor, const par_zero_part *parts, int count);

// ---- checkpoints ------------------------------------------------------------------------------------------

// A checkpoint is a directory on a file system that all ranks share. It holds safetensors files of unsharded
// tensors, in the order of their names: model-* has the weights (f32; then frozen ones in param_dtype),
// optimizer-* has NAME.exp_avg, NAME.exp_avg_sq and NAME.ema. An index serves Hugging Face's tools.
// manifest.json names the files of the last save and the checksum of each tensor; it is replaced last,
// atomically, when all else is on the disk. So a save that fails leaves the previous checkpoint intact. What
// the manifest names is never deleted, even if several runs save into the directory. Each rank writes and
// reads its own elements.
// One run saves into a directory: lock.json names its process and host from the first save, or par_zero_lock,
// to par_zero_close; each save sets its time. Another run that would save there gets an error that says who
// holds the lock, where, since when, and how long ago it saved. The lock of a process that has ended on this
// machine counts for nothing. What became of a process on another machine is not known here, and clocks are
// not compared: such a lock is replaced with take_over. The run that had it finds that out at its next save,
// which fails on all its ranks. A load takes no lock.
typedef struct par_zero_checkpoint {
    const char *dir;  // created if it does not exist
    par_comm *comm;   // all ranks of the job, whatever part of the model each has. NULL: desc.comm, where
                      // there are no replica_comm and model_parallel_comm
    const char *note; // any text, saved in the manifest; NULL: none
    size_t max_file_bytes; // save: largest file, unless one tensor is larger; 0: 5e9
    int weights_only;      // save: no optimizer states; load: neither states nor the number of steps
    // Load, 1: what the checkpoint has and the model lacks is ignored (states of what is frozen now, a head).
    int allow_extra;
    // Load, 1: what the checkpoint lacks begins: moments are zeros, and a moving average is the weight.
    // Weights keep the values that they have: set them before (adapters on a base). The number of steps is
    // the checkpoint's, for bias corrections, too: so the first updates of such weights are larger.
    int allow_missing;
    int background; // 1: par_zero_save_begin copies this rank's elements, and a thread writes them
    // Save, 1: the lock that another run has on the directory ends (a job that was requeued on another host).
    // It counts when this run makes its own lock: one that was taken over does not take the directory back.
    // A run that saves into several directories in turn makes a lock each time: it gives take_over once.
    int take_over;
} par_zero_checkpoint;

// par_zero_save_begin starts a save, and par_zero_save_end returns when the checkpoint is on the disk. With
// `background` the model may be used and changed in between. Collective over checkpoint->comm. If any rank
// fails, all return an error, and the previous checkpoint is intact: ARGUMENT, FILE (for example, a full
// disk), MEMORY, MISMATCH (ranks have tensors of the same name and different shapes).
par_result par_zero_save_begin(par_zero *z, const par_zero_checkpoint *files);
par_result par_zero_save_end(par_zero *z);
par_result par_zero_save(par_zero *z, const par_zero_checkpoint *files); // begin and end
// Makes the directory and locks it before the first save, so that a run hears of another one before it
// trains, and deletes what saves that were killed have left there. A lock on another directory is given up.
// Collective over checkpoint->comm. FILE: another run has the lock, or see par_zero_save_begin.
par_result par_zero_lock(par_zero *z, const par_zero_checkpoint *files);
// Gives the lock up, as par_zero_close does. Call it on all ranks. Its error is par_zero_save_end's.
par_result par_zero_unlock(par_zero *z);
// Loads a checkpoint, whatever number of ranks, stage, precision, offloading and tensor-parallel degree it
// was saved with. The loss scale is the checkpoint's, if both runs scale the loss. Collective. FILE: a
// tensor is missing (unless allow_missing), is not one of the model's (unless allow_extra), or has another
// shape or a wrong checksum; the text names it. The contents of the model are undefined after an error.
par_result par_zero_load(par_zero *z, const par_zero_checkpoint *files);
// Reads the note (truncated to note_bytes, with its terminating 0) and the number of steps of a checkpoint.
// steps may be NULL. Local. FILE, with a text in why.
par_result par_zero_load_note(const char *dir, char *note, size_t note_bytes, uint64_t *steps, char *why,
                              size_t why_bytes);

// ---- ranks that come and go -------------------------------------------------------------------------------

typedef struct par_zero_recovery { // what par_zero_recover has found
    uint64_t step;                 // of the states, as in par_zero_report
    uint64_t done;                 // steps since the first par_zero_commit, with skipped ones: on all ranks
    int repeated;                  // 1: backward passes of the next step are gone: make all of them again
    int from_checkpoint;           // 1: the states are those of the checkpoint
    char text[400];                // why; else empty
} par_zero_recovery;
typedef struct par_zero_comms { // who trains on; comms as in par_zero_desc
    par_comm *comm;             // NULL: this rank becomes a spare, which only gives what it holds
    par_comm *replica_comm, *model_parallel_comm, *tensor_parallel_comm;
    int microbatches; // 0: with canonical_shards C / ranks; else as before
    // Gives the comm that takes the place of an old one, of a tensor's tied_comm and sums; maybe the same
    // one. NULL: no tensor has any, or the rank is new and its tensors have those of now.
    par_comm *(*replace)(void *user, par_comm *old);
    void *user;
    const par_zero_checkpoint *checkpoint; // loaded if states are lost; NULL: that is an error
    par_zero_recovery *recovery;           // is set; may be NULL
} par_zero_comms;
// Goes on with the same training on other ranks: when some have died, when a job shrinks or grows at the end
// of a step, when a spare comes back. Collective over comm: all ranks that are left (of par_shrink) or there
// now (of par_grow). now NULL: these train on, in comm. A rank that is new opens a context with its comms of
// `now` and adds the same units and tensors; this call stands for its par_zero_commit. A spare comes back
// with the context that it has. The ranks agree on the last step that one of them has committed: the others
// finish it, or all drop what they have of a later one, whose backward passes are made again. Then states
// move from memory to memory; a checkpoint is read only where a rank and its buddy are gone (its comm: the
// ranks that train on). Numbers of units and tensors stay; pointers are valid from the next begin on. With
// canonical_shards m follows the number of ranks, and results do not change. Memory is needed for both
// layouts meanwhile; that of par_alloc is freed when the old comms are closed. Close them behind this call,
// not before. Comms of ranks that have died are revoked before it: it waits for calls in flight. Errors, the
// same on all ranks: LOST (a rank is gone, and so is who had a copy of its states: the text says whose; a
// checkpoint has them), ARGUMENT (no rank has states of such tensors; what par_zero_open says of the new
// ranks; the comm of a tensor is not replaced; parameter_server or offloading), MISMATCH, MEMORY, those of
// collectives: nothing is changed, and the call can be made again, on fewer ranks. After an error of
// par_zero_load values are undefined.
par_result par_zero_recover(par_zero *z, par_comm *comm, const par_zero_comms *now);

// ---- learning rates ---------------------------------------------------------------------------------------

typedef enum par_zero_lr_decay {
    PAR_ZERO_CONSTANT,
    PAR_ZERO_LINEAR,
    PAR_ZERO_COSINE,
    PAR_ZERO_WSD
} par_zero_lr_decay;
// The factor rises linearly over warmup_steps. Then it is constant (CONSTANT), or decays to min_factor at
// total_steps, linearly (LINEAR) or by half a cosine (COSINE); or it is constant and decays linearly over the
// last decay_steps (WSD: warmup, stable, decay; Hu et al. 2024).
typedef struct par_zero_lr_schedule {
    uint64_t warmup_steps, total_steps, decay_steps;
    float min_factor; // at total_steps and after
    par_zero_lr_decay decay_style;
} par_zero_lr_schedule;
// The factor of the learning rate for step number `step`, from 0. In warmup it is (step + 1) / (warmup_steps
// + 1).
float par_zero_lr_factor(const par_zero_lr_schedule *schedule, uint64_t step);

// ---- kernels ----------------------------------------------------------------------------------------------

// State of the step in the device's memory: the device decides whether the step is skipped, and by how much
// gradients are scaled. So the host need not wait, and a step can be captured in a CUDA graph.
typedef struct par_zero_control {
    double squares,
        grad_norm; // squares: sum over all gradients as they are; grad_norm: unscaled, before clipping
    float lr_factor, scale, loss_scale; // scale: factor of the gradients; loss_scale: of the next step
    int32_t skipped, good_steps, bad_steps;
    uint64_t step;                                 // done so far, including this one
    float bias_correction[PAR_ZERO_MAX_GROUPS][2]; // 1/(1 - beta^step)
} par_zero_control;
// That of the last step, in the device's memory, after what is enqueued there so far; NULL before
// par_zero_commit. So a program can read the norm without waiting for the device in par_zero_step.
const par_zero_control *par_zero_control_of(const par_zero *z);
typedef struct par_zero_rules { // settings of that decision
    double microbatches;        // gradients are divided by this number; 1: they stay sums
    float lr_factor;            // below 0: keep the control's
    float clip, loss_scale;     // as in the desc
    int window, hysteresis;
    float beta[PAR_ZERO_MAX_GROUPS][2];
} par_zero_rules;

// Arguments of an update of consecutive elements of one tensor.
typedef struct par_zero_update {
    par_zero_optimizer optimizer;
    par_zero_hyper hyper;                     // without defaults; lr is multiplied by lr_factor already
    float bias_correction1, bias_correction2; // 1 / (1 - beta^step)
    float scale, trust_ratio, ema; // scale: factor of the gradient; trust_ratio: LAMB's; ema: decay, 0: none
    // Stochastic rounding: the random stream, and the number in it of the first element. seed 0: round to
    // nearest.
    uint64_t seed, stream, first;
    par_dtype state_dtype; // of m and v: f32, bf16 or u8 (n, first: multiples of 256); 0: f32
    uint64_t state_seed;   // rounds bf16 states (m by this seed, v by the next one); 0: to nearest
    // If control is not NULL: lr_factor, bias corrections (of `group`), scale (unless `unscaled`) and the
    // step (the upper bits of the stream) come from it, and a skipped step changes nothing. If trust_ratio_at
    // is not NULL, trust_ratio comes from there.
    const par_zero_control *control;
    const float *trust_ratio_at;
    int group, unscaled;
    // Not NULL: of a part of a tensor whose update must not depend on how it is split; in the host's memory.
    // `first` is the number in the part; random numbers, and blocks of u8, are those of the whole tensor.
    // scales: of m and v, a scale for each of these blocks; new_scales: after the update. raise = 1: it only
    // raises these to the largest sizes, or to `scales` if the step is skipped, and changes nothing else.
    const par_shard *shard;
    float *scales[2], *new_scales[2];
    int raise;
} par_zero_update;

typedef struct par_zero_initial { // initial values of a tensor, as par_zero_init has them
    uint64_t seed, stream;
    float deviation, value;
    par_dtype dtype;        // they are rounded to this one
    const par_shard *shard; // gives elements their numbers
} par_zero_initial;
// Operations of a device. All arrays, sums too, are in its memory; calls run in order, as on one stream.
struct par_zero_kernels {
    const char *name;
    par_device *device; // NULL: the CPU
    int canonical;      // 1: with canonical_shards the bits are those that docs/bits.md defines
    // One optimizer step. w: f32 weights or master weights. stored: the 16-bit parameters, or NULL. m: first
    // moment; v: second moment, ema: moving average, NULL where there are none.
    par_result (*update)(const par_zero_kernels *k, const par_zero_update *a, size_t n, float *w,
                         void *stored, par_dtype stored_type, const void *g, par_dtype g_type, void *m,
                         void *v, float *ema);
    // LAMB: sums[0] += w^2, sums[1] += u^2, where u is the step that update will make of the same moments,
    // before trust ratio and lr; it is also stored where `steps` is not NULL
    par_result (*lamb_norms)(const par_zero_kernels *k, const par_zero_update *a, size_t n, const float *w,
                             const void *g, par_dtype g_type, const void *m, const void *v, double *sums,
                             float *steps);
    // trust[t] = |w| / |u| of tensor t, from `pieces` such pairs of sums
    par_result (*lamb_trust_ratios)(const par_zero_kernels *k, size_t tensors, size_t pieces,
                                    const double *sums, float *trust);
    // Muon: m = momentum m + scale g; out = scale g + momentum m
    par_result (*momentum)(const par_zero_kernels *k, const par_zero_update *a, size_t n, const void *g,
                           par_dtype g_type, void *m, float *out);
    // y = factor x / (sqrt(*squares) + 1e-7); squares NULL: factor x
    par_result (*scale)(const par_zero_kernels *k, size_t n, float *y, const float *x, float factor,
                        const double *squares);
    // C = alpha op(A) op(B) + beta C as par_gemm, but of f32 or bf16 (all three), with sums in f32; on
    // CPUs with canonical = 1 in the order of par_gemm_canonical
    par_result (*gemm)(const par_zero_kernels *k, par_dtype type, int canonical, int trans_a, int trans_b,
                       size_t m, size_t n, size_t depth, float alpha, const void *a, size_t lda,
                       const void *b, size_t ldb, float beta, void *c, size_t ldc);
    // *sum += weight x the sum of the squares of x
    par_result (*square_sum)(const par_zero_kernels *k, const void *x, par_dtype type, size_t n,
                             double weight, double *sum);
    par_result (*total)(const par_zero_kernels *k, const double *sums, size_t n,
                        double *total); // adds sums in order
    par_result (*decide)(const par_zero_kernels *k, const par_zero_rules *rules, par_zero_control *control);
    // Quantizes blocks of 32 elements (n is a multiple of 32): a bf16 scale, then 32 numbers of that code
    par_result (*quantize)(const par_zero_kernels *k, int code, size_t n, const void *x, par_dtype type,
                           void *quantized);
    par_result (*dequantize)(const par_zero_kernels *k, int code, size_t n, const void *quantized, void *x,
                             par_dtype type);
    // sum[i] = sum over ranks of quantized[rank * n + i], in f32, in rank order or (pairs) by a binary tree
    par_result (*sum_quantized)(const par_zero_kernels *k, int code, int ranks, int pairs, size_t n,
                                const void *quantized, void *sum, par_dtype type);
    // Optional (NULL: the host draws, and copies): x[0] to x[n - 1] = initial values of elements `first` and
    // on of a rank's part, the same bits as on the CPU, stored as f32 or v->dtype
    par_result (*init)(const par_zero_kernels *k, const par_zero_initial *v, size_t first, size_t n, void *x,
                       par_dtype type);
};
const par_zero_kernels *par_zero_cpu(void);

// ---- call sites -------------------------------------------------------------------------------------------
// Macros record the program's call site, so that errors and traces name it (see par.h).

par_zero *par__zero_called(par_zero *z, const char *site); // site NULL: a call within the implementation
par_result par__zero_open_at(const char *site, const par_zero_desc *desc, par_zero **z);

#define PAR__ZERO_SITED(z)              par__zero_called(z, PAR_SITE)
#define PAR__ZERO_WITH_SITE(name, ...)  par__zero_##name##_at(PAR_SITE, __VA_ARGS__)
#define par_zero_open(...)              PAR__ZERO_WITH_SITE(open, __VA_ARGS__)
#define par_zero_close(z)               par_zero_close(PAR__ZERO_SITED(z))
#define par_zero_commit(z)              par_zero_commit(PAR__ZERO_SITED(z))
#define par_zero_save_end(z)            par_zero_save_end(PAR__ZERO_SITED(z))
#define par_zero_add_unit(z, ...)       par_zero_add_unit(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_add_tensor(z, ...)     par_zero_add_tensor(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_add_layer(z, ...)      par_zero_add_layer(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_forward_begin(z, ...)  par_zero_forward_begin(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_forward_end(z, ...)    par_zero_forward_end(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_backward_begin(z, ...) par_zero_backward_begin(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_backward_end(z, ...)   par_zero_backward_end(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_step(z, ...)           par_zero_step(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_set_lr_factor(z, ...)  par_zero_set_lr_factor(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_flush(z)               par_zero_flush(PAR__ZERO_SITED(z))
#define par_zero_fill(z, ...)           par_zero_fill(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_broadcast(z, ...)      par_zero_broadcast(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_read(z, ...)           par_zero_read(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_init(z, ...)           par_zero_init(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_init_all(z)            par_zero_init_all(PAR__ZERO_SITED(z))
#define par_zero_gather(z, ...)         par_zero_gather(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_import(z, ...)         par_zero_import(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_save_begin(z, ...)     par_zero_save_begin(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_save(z, ...)           par_zero_save(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_load(z, ...)           par_zero_load(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_lock(z, ...)           par_zero_lock(PAR__ZERO_SITED(z), __VA_ARGS__)
#define par_zero_unlock(z)              par_zero_unlock(PAR__ZERO_SITED(z))
#define par_zero_recover(z, ...)        par_zero_recover(PAR__ZERO_SITED(z), __VA_ARGS__)

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_ZERO_H

// Stop here if you only use it. -----------------------------------------------------------------------------

// Functions that the CPU and devices share.
#if !defined(PAR__ZERO_SHARED) && (defined(PAR_ZERO_IMPLEMENTATION) || defined(PAR_CUDA_IMPLEMENTATION))
#define PAR__ZERO_SHARED
PAR__EXACT_BEGIN
// The square root of max(x, 1e-30), to about one ulp, in plain arithmetic: sqrtf may set errno, which keeps
// compilers from vectorizing it. 1/sqrt from the exponent bits and two Newton steps, then one step of Heron's
// method. A device has an instruction.
PAR__HOST_DEVICE float par__zero_sqrt(float x) {
#if PAR__OF_DEVICE
    return sqrtf(x);
#else
    x = x > 1e-30f ? x : 1e-30f;
    float r = par__bits_to_f32(0x5f375a86u - (par__f32_to_bits(x) >> 1));
    r = r * (1.5f - 0.5f * x * r * r);
    r = r * (1.5f - 0.5f * x * r * r);
    const float s = x * r;
    return s + 0.5f * r * (x - s * s);
#endif
}
// An optimizer updates an element's weight and moments by the function par__zero_NAME with the gradient g.
typedef struct par__zero_element {
    float w, m, v;
} par__zero_element;
PAR__HOST_DEVICE void par__zero_update_moments(const par_zero_update *a, par__zero_element *e, float g) {
    const float b1 = a->hyper.beta1, b2 = a->hyper.beta2, x = g * a->scale;
    e->m = b1 * e->m + (1 - b1) * x;
    e->v = b2 * e->v + (1 - b2) * x * x;
}
// root: of the corrected second moment
PAR__HOST_DEVICE float par__zero_direction_by(const par_zero_update *a, float m, float root) {
    return m * a->bias_correction1 / (root + a->hyper.epsilon);
}
PAR__HOST_DEVICE float par__zero_direction(const par_zero_update *a, const par__zero_element *e) {
    return par__zero_direction_by(a, e->m, par__zero_sqrt(e->v * a->bias_correction2));
}
PAR__HOST_DEVICE float par__zero_decayed_step(const par_zero_update *a, float w, float direction) {
    return w * (1 - a->hyper.lr * a->hyper.weight_decay) - a->hyper.lr * direction;
}
PAR__HOST_DEVICE void par__zero_adamw(const par_zero_update *a, par__zero_element *e, float g) {
    par__zero_update_moments(a, e, g);
    e->w = par__zero_decayed_step(a, e->w, par__zero_direction(a, e));
}
PAR__HOST_DEVICE void par__zero_sgd(const par_zero_update *a, par__zero_element *e, float g) {
    const float mu = a->hyper.momentum, x = g * a->scale + a->hyper.weight_decay * e->w;
    const int mixed = a->hyper.nesterov || mu == 0; // the step includes the gradient itself
    const float own = mixed ? 1.0f : 0.0f, past = mixed ? mu : 1.0f;
    e->m = mu * e->m + x;
    e->w -= a->hyper.lr * (own * x + past * e->m);
}
PAR__HOST_DEVICE void par__zero_lion(const par_zero_update *a, par__zero_element *e, float g) {
    const float b1 = a->hyper.beta1, b2 = a->hyper.beta2, lr = a->hyper.lr;
    const float x = g * a->scale, c = b1 * e->m + (1 - b1) * x, up = c > 0 ? lr : 0, down = c < 0 ? lr : 0;
    e->m = b2 * e->m + (1 - b2) * x;
    e->w = e->w * (1 - lr * a->hyper.weight_decay) - (up - down);
}
PAR__HOST_DEVICE float par__zero_lamb_direction(const par_zero_update *a, const par__zero_element *e) {
    return par__zero_direction(a, e) + a->hyper.weight_decay * e->w;
}
PAR__HOST_DEVICE void par__zero_lamb(const par_zero_update *a, par__zero_element *e, float g) {
    par__zero_update_moments(a, e, g);
    e->w -= a->hyper.lr * a->trust_ratio * par__zero_lamb_direction(a, e);
}
PAR__HOST_DEVICE void par__zero_muon(const par_zero_update *a, par__zero_element *e, float g) {
    e->w = par__zero_decayed_step(a, e->w, a->scale * g); // g: the orthogonalized direction
}
PAR__HOST_DEVICE float par__zero_muon_momentum(const par_zero_update *a, float *m, float g) {
    const float mu = a->hyper.momentum, x = g * a->scale, p = mu * *m + x;
    return *m = p, x + mu * p;
}
PAR__HOST_DEVICE void par__zero_step_element(par_zero_optimizer optimizer, const par_zero_update *a,
                                             par__zero_element *e, float g) {
    switch (optimizer) {
#define PAR__X(constant, name, states, reads, writes)                                                        \
    case constant: par__zero_##name(a, e, g); break;
        PAR_ZERO_OPTIMIZERS(PAR__X)
#undef PAR__X
    default: break;
    }
}
PAR__HOST_DEVICE float par__zero_average(float average, float x, float decay) {
    return decay * average + (1 - decay) * x;
}
PAR__HOST_DEVICE float par__zero_scale_factor(float factor, const double *squares) {
    return squares ? factor / ((float)sqrt(*squares) + 1e-7f) : factor;
}
// Rounds a float to bf16 by 16 random bits, so that the expected value is exact (Gupta et al. 2015).
PAR__HOST_DEVICE uint16_t par__zero_round_randomly(float x, uint32_t random) {
    const uint32_t bits = par__f32_to_bits(x), up = (bits + random) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40u : up); // a NaN stays one
}
// Rounds n <= 8 floats, each by 16 bits of one Philox block. first: the number of x[0], a multiple of 8.
PAR__HOST_DEVICE void par__zero_round_eight(uint16_t *to, const float *x, size_t n, uint64_t seed,
                                            uint64_t stream, uint64_t first) {
    uint32_t random[4];
    par__philox_at(seed, stream, first / 8, random);
    for (size_t i = 0; i < 8 && i < n; i++)
        to[i] = par__zero_round_randomly(x[i], random[i / 2] >> 16 * (i % 2) & 0xFFFFu);
}

// States of 8 bits. The highest one of a code k > 0 is its bit i, and the bits below it divide a decade:
//     k      0   1       2   3   4 ... 7   8 ... 15   ...   128 ... 255
//     i          0       1       2         3                7
//     m = (k + 1/2) / 2^i, from 1 to 2;   number = 10^(i - top) (0.9 m - 0.8), from 0.1 to 1 of 10^(i - top)
// top is 7. A code with a sign bit has seven other bits, and top is 6. The largest code is 1 instead, so that
// the largest element of a block is exact, and what has been a code once has the same code again. Every step
// is exact or one rounding that no compiler can fuse with another, so that all devices have the same bits.
enum { PAR__ZERO_STATE_BLOCK = 256, PAR__ZERO_STATE_BLOCK_BYTES = 4 + 256 };
// Selections are arithmetic of integers, which compilers vectorize.
PAR__HOST_DEVICE float par__zero_decode_state(uint32_t code, int sign, float scale) {
    const uint32_t top = sign ? 127 : 255, k = code & top, odd = 2 * k + 1;
    const uint32_t i = par__f32_to_bits((float)(int32_t)odd) >> 23, j = i - 127; // j: 0 for k = 0, to 8
    const uint32_t five = (1 + 4 * (j & 1u)) * (1 + 24 * (j >> 1 & 1u)) * (1 + 624 * (j >> 2 & 1u));
    const uint32_t part = (9 * odd - (8u << j)) * five * (1 + 390624 * (j >> 3)); // 10^8 or 10^9 times it
    const uint32_t some = 0u - (uint32_t)(k > 0), largest = 0u - (uint32_t)(k == top);
    const float number = (float)(int32_t)(part & some) * (scale * (sign ? 1e-8f : 1e-9f));
    const uint32_t size = (par__f32_to_bits(number) & ~largest) | (par__f32_to_bits(scale) & largest);
    return par__bits_to_f32(size | (sign ? (code & 0x80u) << 24 : 0u));
}
// The inverse is piecewise linear and concave: the least of a line for each decade, as a code without a sign;
// a signed one has a bit less. up: 1 / scale. What has no sign and is not 0 stays above 0, because an update
// divides by it. Positive floats compare like integers, and NaN is above all numbers.
PAR__HOST_DEVICE uint32_t par__zero_lesser_line(uint32_t least, float y, float shift, float slope) {
    const uint32_t line = par__f32_to_bits((y + shift) * slope);
    return line < least ? line : least;
}
PAR__HOST_DEVICE uint32_t par__zero_encode_state(float x, int sign, float up) {
    const uint32_t bits = par__f32_to_bits(x), one = 0x3F800000u;
    const uint32_t product = par__f32_to_bits(par__bits_to_f32(bits & 0x7FFFFFFFu) * up);
    const float y = par__bits_to_f32(product < one ? product : one);
    uint32_t line = par__zero_lesser_line(0x437F0000u, y, 8e-1f, 1.28e2f / 0.9f); // 255
    line = par__zero_lesser_line(line, y, 8e-2f, 6.4e2f / 0.9f);
    line = par__zero_lesser_line(line, y, 8e-3f, 3.2e3f / 0.9f);
    line = par__zero_lesser_line(line, y, 8e-4f, 1.6e4f / 0.9f);
    line = par__zero_lesser_line(line, y, 8e-5f, 8e4f / 0.9f);
    line = par__zero_lesser_line(line, y, 8e-6f, 4e5f / 0.9f);
    line = par__zero_lesser_line(line, y, 8e-7f, 2e6f / 0.9f);
    line = par__zero_lesser_line(line, y, 8e-8f, 1e7f / 0.9f);
    const uint32_t k = (uint32_t)(int32_t)par__bits_to_f32(line), least = product ? 1u : 0u;
    return sign ? k >> 1 | (bits >> 24 & 0x80u) : k > least ? k : least;
}
PAR__HOST_DEVICE float par__zero_state_inverse(float scale) { return scale > 1e-37f ? 1 / scale : 0; }
// The scale of a quantized block, of whose largest size these are the bits. It is rounded up to bf16, so that
// no code overflows; it is NaN if one of the numbers is.
PAR__HOST_DEVICE float par__zero_block_scale(uint32_t largest, float max_code) {
    const uint32_t bits = par__f32_to_bits(par__bits_to_f32(largest) / max_code);
    return par__bits_to_f32(bits >= 0x7F800000u ? 0x7FC00000u : (bits + 0xFFFFu) & 0xFFFF0000u);
}
PAR__HOST_DEVICE float par__zero_block_inverse(float scale) { return scale > 1e-37f ? 1 / scale : 0; }
PAR__HOST_DEVICE float par__zero_read_scale(const uint8_t *from) {
    return par__bits_to_f32((uint32_t)from[0] << 16 | (uint32_t)from[1] << 24);
}
PAR__HOST_DEVICE int par__zero_code_bits(int code) { // 0: not a par_zero_code
    switch (code) {
#define PAR__X(constant, value, bits, largest)                                                               \
    case constant: return bits;
        PAR_ZERO_CODES(PAR__X)
#undef PAR__X
    default: return 0;
    }
}
PAR__HOST_DEVICE float par__zero_largest_code(int code) {
    switch (code) {
#define PAR__X(constant, value, bits, largest)                                                               \
    case constant: return largest;
        PAR_ZERO_CODES(PAR__X)
#undef PAR__X
    default: return 0;
    }
}
PAR__HOST_DEVICE int par__zero_is_float_code(int code) {
    return code == PAR_ZERO_E4M3 || code == PAR_ZERO_E5M2;
}
PAR__HOST_DEVICE uint8_t par__zero_float_code(int code, float x) { // of a number divided by the scale
    return code == PAR_ZERO_E4M3 ? par__f8_e4m3_narrow(x) : par__f8_e5m2_narrow(x);
}
PAR__HOST_DEVICE float par__zero_decode(int code, unsigned bits) { // the number of a code, without the scale
    switch (code) {
    case PAR_ZERO_INT4: return (float)((int)(bits ^ 8u) - 8);
    case PAR_ZERO_INT8: return (float)(int8_t)bits;
    case PAR_ZERO_E4M3: return par__f8_e4m3_widen((uint8_t)bits);
    default: return par__f8_e5m2_widen((uint8_t)bits);
    }
}

// Norm, clipping, and whether the step is taken. The loss scale goes down after bad steps and up after many
// good ones (Micikevicius et al. 2018).
PAR__HOST_DEVICE void par__zero_decide_step(const par_zero_rules *r, par_zero_control *c) {
    double scale = 1 / r->microbatches / (double)c->loss_scale;
    c->grad_norm = sqrt(c->squares) * scale;
    c->skipped = !(c->grad_norm - c->grad_norm == 0); // not finite
    if (r->clip > 0 && c->grad_norm > (double)r->clip) scale *= (double)r->clip / c->grad_norm;
    c->scale = (float)scale;
    if (r->lr_factor >= 0) c->lr_factor = r->lr_factor;
    c->step += !c->skipped;
    for (int g = 0; g < PAR_ZERO_MAX_GROUPS; g++)
        for (int i = 0; i < 2; i++)
            c->bias_correction[g][i] = (float)(1 / (1 - par__power((double)r->beta[g][i], c->step)));
    if (r->loss_scale <= 0) return;
    c->good_steps = c->skipped ? 0 : c->good_steps + 1;
    c->bad_steps = c->skipped ? c->bad_steps + 1 : 0;
    if (c->bad_steps >= r->hysteresis) {
        if (c->loss_scale > 1) c->loss_scale = c->loss_scale / 2 > 1 ? c->loss_scale / 2 : 1;
        c->bad_steps = 0;
    }
    if (c->good_steps >= r->window) {
        if (c->loss_scale < 16777216.0f)
            c->loss_scale = c->loss_scale * 2 < 16777216.0f ? c->loss_scale * 2 : 16777216.0f;
        c->good_steps = 0;
    }
}
// Copies into an update what comes from its control. 0: the step is skipped.
PAR__HOST_DEVICE int par__zero_apply_control(par_zero_update *a) {
    const par_zero_control *c = a->control;
    if (a->trust_ratio_at) a->trust_ratio = *a->trust_ratio_at;
    if (!c) return 1;
    if (c->skipped) return 0;
    a->hyper.lr *= c->lr_factor;
    a->bias_correction1 = c->bias_correction[a->group][0];
    a->bias_correction2 = c->bias_correction[a->group][1];
    if (!a->unscaled) a->scale = c->scale;
    a->stream |= c->step << 24;
    return 1;
}
PAR__HOST_DEVICE float par__zero_trust_ratio(const double *sums, size_t pieces) {
    double ww = 0, uu = 0;
    for (size_t i = 0; i < pieces; i++) {
        ww += sums[2 * i];
        uu += sums[2 * i + 1];
    }
    return ww > 0 && uu > 0 ? (float)sqrt(ww / uu) : 1.0f;
}
PAR__EXACT_END
#endif

#if defined(PAR_ZERO_IMPLEMENTATION) && !defined(PAR_ZERO_IMPLEMENTED)
#define PAR_ZERO_IMPLEMENTED
#if PAR__X86 && !defined(__CUDACC__)
#include <immintrin.h>
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__GLIBC__) && !defined(__USE_MISC)
#error "with -std=c11, include par_zero.h before the system's headers, or compile with -D_DEFAULT_SOURCE"
#endif
#if !defined(PAR_ZERO_WINDOW)
#define PAR_ZERO_WINDOW 131072
#elif PAR_ZERO_WINDOW % 1024
#error "PAR_ZERO_WINDOW must be a multiple of 1024"
#endif

// Within the implementation the macros of this header's functions are these functions, and calls of other
// headers keep the call site of the program's call.
#pragma push_macro("PAR__ZERO_WITH_SITE")
#undef PAR__ZERO_WITH_SITE
#define PAR__ZERO_WITH_SITE(name, ...) par_zero_##name(__VA_ARGS__)
#pragma push_macro("PAR__ZERO_SITED")
#undef PAR__ZERO_SITED
#define PAR__ZERO_SITED(z) z
#pragma push_macro("PAR_SITE")
#undef PAR_SITE
#define PAR_SITE      NULL
#define par_fail(...) par__fail_in_layer(__VA_ARGS__)

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif
PAR__EXACT_BEGIN

// >>zero_structs --------------------------------------------------------------------------------------------

enum { PAR__ZERO_CHUNK = 1024 }; // elements at a time, so that converted values stay in the L1 cache
enum { PAR__ZERO_SUM_CHUNK = 256, PAR__ZERO_MAX_TREE_LEVELS = 20 };
#define PAR__ZERO_TRY(call)                                                                                  \
    do {                                                                                                     \
        const par_result par__r = (call);                                                                    \
        if (par__r) return par__r;                                                                           \
    } while (0)

static const float *par__zero_widen(float *wide, const void *x, par_dtype type, size_t at, size_t n) {
    if (type == PAR_F32) return (const float *)x + at;
    par_cast(wide, PAR_F32, (const uint16_t *)x + at, type, n);
    return wide;
}
// Bytes of n elements of a state, a multiple of 256 with u8.
static size_t par__zero_moment_bytes(par_dtype type, size_t n) {
    if (type == PAR_U8) return n / PAR__ZERO_STATE_BLOCK * PAR__ZERO_STATE_BLOCK_BYTES;
    return n * (type == PAR_BF16 ? 2 : 4);
}
// Elements [at, at + count) of a part of a tensor that are consecutive in the whole tensor and, in both, in
// one block of 256. Start with zeros. 0: there is none before n. What is behind the last element is none.
typedef struct par__zero_span {
    size_t at, count, number; // number: of the first in the whole tensor
} par__zero_span;
static int par__zero_span_after(const par_zero_update *a, size_t first, size_t n, par__zero_span *s) {
    const size_t block = PAR__ZERO_STATE_BLOCK;
    s->at += s->count;
    if (s->at >= n) return 0;
    const size_t left = PAR__MIN(n - s->at, block - (first + s->at) % block);
    s->count = PAR__MIN(par_shard_find(a->shard, first + s->at, &s->number, NULL), left);
    s->count = PAR__MIN(s->count, block - s->number % block);
    return s->count > 0;
}
// Bytes of n quantized elements; no code: 0.
static size_t par__zero_quantized_bytes(int code, size_t n) {
    return code ? n / 32 * (size_t)(2 + 4 * par__zero_code_bits(code)) : 0;
}
PAR__INLINE_LOOP float par__zero_largest_of(const float *x) { // of a block, without its sign
    uint32_t sizes[PAR__STRIP], largest = 0;
    memset(sizes, 0, sizeof sizes);
    for (size_t at = 0; at < PAR__ZERO_STATE_BLOCK; at += PAR__STRIP)
        PAR__LANES(i, at, PAR__STRIP, const uint32_t size = par__f32_to_bits(x[i]) & 0x7FFFFFFFu;
                   sizes[lane] = size > sizes[lane] ? size : sizes[lane])
    for (int i = 0; i < PAR__STRIP; i++) largest = sizes[i] > largest ? sizes[i] : largest;
    return par__bits_to_f32(largest);
}
// Moments are converted, and numbers rounded at random, by >>zero_kernels.
static float *par__zero_widen_moment(float *wide, void *x, const par_zero_update *a, int sign, size_t at,
                                     size_t n);
static void par__zero_narrow_moment(void *x, const float *wide, const par_zero_update *a, int sign, size_t at,
                                    size_t n);
static void par__zero_round_part(const par_zero_update *a, uint64_t seed, uint16_t *to, const float *x,
                                 size_t n, size_t first);

#if defined(__O_DIRECT) // O_DIRECT is declared for _GNU_SOURCE alone
#define PAR__ZERO_DIRECT __O_DIRECT
#else
#define PAR__ZERO_DIRECT O_DIRECT
#endif
enum {
    PAR__ZERO_ALIGN = 32,
    PAR__ZERO_MAX_GATHERED_UNITS = 8,
    PAR__ZERO_MAX_DEDICATED = 8,
    PAR__ZERO_MAX_SUM_COMMS = 8,
    PAR__ZERO_PAGE_ELEMENTS = 1024
};
enum { PAR__ZERO_TRAINABLE, PAR__ZERO_FROZEN }; // parts of a unit
enum { PAR__ZERO_FORWARD, PAR__ZERO_BACKWARD, PAR__ZERO_UPDATE, PAR__ZERO_SITES };

typedef struct par__zero_tensor {
    par_zero_tensor desc;
    par_shard shard; // desc.shard points to the program's
    char name[160];
    int unit, part;
    size_t count, offset; // elements; offset of the first in its part of the unit
    size_t split;         // this rank has a part of it, which it trains: elements of all of it; else 0
    size_t whole;         // with canonical_shards the same; else 0
    size_t blocks_at;     // of these and of 8-bit moments: the number of its first block of 256
} par__zero_tensor;

typedef struct par__zero_unit {
    char name[64], site[PAR__ZERO_SITES][96]; // its name in errors
    int first, last;                          // tensors first ... last - 1
    size_t used[2], count[2]; // elements of each part, without and with padding; a shard has count / ranks
    size_t unsharded_offset, shard_offset; // of its parameters in the array of all units: unsharded, sharded
    size_t grad_offset, grad_shard_offset; // of its gradients, likewise
    size_t state_offset;                   // of what this rank updates in its states
    size_t offload_offset;                 // of its states in the offload store
    int open_forwards, open_backwards;     // calls of begin without end
    int microbatches_done;                 // of this step, whose gradients are complete
    int *order;                            // microbatch of each backward pass; NULL: in order
    int use_of; // number, from 1 on, of the unit whose parameters it uses; 0: it has its own
    void **use_data;
    float **use_grad;
    int *use_owned;
    par_request reduction, param_gather, replica_reduction;
    par_request to_buddy[2], from_ward[2]; // gradients; Muon's directions
} par__zero_unit;

typedef struct par__zero_slot { // buffer for an unsharded unit: its parameters, or its gradients
    char *memory;
    char *quantized[2]; // of parameters: gathered; of gradients: sent, and received from all ranks
    int dequantized;
    int unit, use_count;              // unit: -1: none
    int fetching, fetch_transfers[2]; // offloaded shards are being read by these transfers
    par_request requests[2];
} par__zero_slot;

// The first slots are dedicated to one unit each, see par__zero_size_pool.
typedef struct par__zero_pool {
    int dedicated_count, count;
    int owner[PAR__ZERO_MAX_DEDICATED + 1];    // units
    size_t sizes[PAR__ZERO_MAX_DEDICATED + 1]; // elements of each dedicated slot, then of each shared slot
    par__zero_slot slots[PAR__ZERO_MAX_DEDICATED + PAR__ZERO_MAX_GATHERED_UNITS];
} par__zero_pool;

enum {
    PAR__ZERO_DIR_BYTES = 3901
}; // bytes of a directory's name, with its terminating 0; paths have at most 4095
typedef enum par__zero_placement { PAR__ZERO_IN_MEMORY, PAR__ZERO_HOST, PAR__ZERO_FILE } par__zero_placement;
typedef struct par__zero_store { // where offloaded arrays are
    par__zero_placement kind;
    char dir[PAR__ZERO_DIR_BYTES];
    int fd, direct; // direct: O_DIRECT, without the page cache
    char *host;
} par__zero_store;
// The kernel's asynchronous I/O (io_submit, io_getevents), whose header not every C library brings along.
typedef struct par__zero_iocb {
    uint64_t data; // comes back with the event
    uint32_t key, flags;
    uint16_t write; // IOCB_CMD_PREAD is 0, IOCB_CMD_PWRITE 1
    int16_t priority;
    uint32_t fd;
    uint64_t buf, nbytes;
    int64_t offset;
    uint64_t reserved;
    uint32_t more_flags, event_fd;
} par__zero_iocb;
typedef struct par__zero_io_event {
    uint64_t data, block;
    int64_t res, res2;
} par__zero_io_event;
typedef struct par__zero_transfer {
    int fd, write,
        state; // 0: free or done, 1: asynchronous, 2: a read that runs at the wait, 3: on a stream
    void *event;
    char *memory;
    size_t at, bytes;
    par__zero_iocb block;
} par__zero_transfer;
enum { PAR__ZERO_TRANSFERS = 32, PAR__ZERO_WINDOWS = 3, PAR__ZERO_STAGING = 65536 };
typedef struct par__zero_io {
    uint64_t context;
    int usable, error;
    void *stream, *ready; // for copies between a device and the host
    par__zero_transfer all[PAR__ZERO_TRANSFERS];
} par__zero_io;

enum { PAR__ZERO_MASTER, PAR__ZERO_M, PAR__ZERO_V, PAR__ZERO_EMA, PAR__ZERO_STATE_KINDS }; // kinds of states
// What a checkpoint appends to a tensor's name; master weights are saved as the tensor itself.
static const char *const par__zero_state_suffix[PAR__ZERO_STATE_KINDS] = {"", ".exp_avg", ".exp_avg_sq",
                                                                          ".ema"};

// Names a save in the names of its files: s000008-1a2b3c4d. id: random, so that no two runs use a name; 0: of
// a version before, which had none. number 0: no save.
typedef struct par__zero_key {
    int32_t number;
    uint32_t id;
} par__zero_key;
typedef struct par__zero_lock { // on the directory into which this run saves, see >>zero_lock
    uint64_t id;                // in the lock; 0: it has none
    par__zero_key seen;         // the checkpoint that was there when this run saw it last
    int owner;                  // this rank has made the lock, and deletes it
    int fresh;                  // and the directory, which it deletes if it is empty
    char dir[PAR__ZERO_DIR_BYTES];
} par__zero_lock;

struct par__zero_save;
struct par_zero {
    par_zero_desc desc;
    int ranks, rank, replica_count, replica; // of comm, of replica_comm
    int microbatches, tree_sum_count;
    // sharded gradients are unsharded only in slots
    int sharded_parameters, sharded_gradients, sharded_states;
    const par_zero_kernels *kernels;
    par_device *device;
    int on_cpu;                // 1: the device is the CPU
    size_t window;             // maximum elements of a window
    size_t align;              // tensors and shards begin at multiples of so many elements
    par_zero_control *control; // in device memory
    float *one;                // likewise: 1
    float *trust_ratios;       // LAMB: of each tensor
    float *staging;            // PAR__ZERO_STAGING floats of host memory for copies from and to the device
    par__zero_unit *units;
    par__zero_tensor *tensors;
    int unit_count, tensor_count, committed;
    int gradients_reduced;                        // the sums of the step are complete
    par_comm *sum_comms[PAR__ZERO_MAX_SUM_COMMS]; // those of the tensors' sums
    int sum_comm_count;
    int *names;           // hash table of names: number of the tensor + 1
    size_t name_capacity; // a power of two, or 0
    char add_error[600];  // the first error of par_zero_add_unit and _tensor
    par_result add_result;
    char *parameters, *gradients; // replicated or sharded
    char **tree_sums;             // partial sums, laid out like gradients
    int *tree_nodes;              // of each unit: the node of the tree that each of them has; 0: none
    int has_state[PAR__ZERO_STATE_KINDS];
    char *states[PAR__ZERO_STATE_KINDS]; // of the elements that this rank updates; NULL: none, or offloaded
    par__zero_store state_store, parameter_store;
    par__zero_io io;
    char *windows[PAR__ZERO_WINDOWS];
    int writing[PAR__ZERO_WINDOWS]; // transfers
    float *gathered_momentum;       // Muon's
    char *muon_scratch[4];          // of muon_dtype
    float *muon_whole[2];           // matrices of which this rank has a part: on its way, and this rank's own
    int parts_alike;                // tensor_parallel_comm's ranks have as large parts, at the same places
    // 8-bit moments of parts of tensors: scales of these tensors' blocks of 256, of m, then of v; twice:
    // those of now begin at block_scales[(2 now + moment) block_count]
    float *block_scales;
    float *host_scales; // a copy for the host, where a device has them; NULL: the CPU has
    size_t block_count;
    int now;
    uint64_t *lamb_digits; // canonical LAMB: of each tensor, two exact sums, in the host's memory
    float *lamb_steps;     // and steps
    double *sums;          // of squares, in device memory
    size_t pieces;         // pieces of a unit (canonical: C, else ranks), each with its own partial sums
    par__zero_pool gathered_parameters, unsharded_gradients; // slots of units in flight or in use
    par_zero_plan allocated;
    struct par__zero_save *save; // the save in progress, or NULL
    par__zero_lock lock;
    // The state of steps, see >>zero_step
    uint64_t steps_committed; // with skipped ones, of this run
    int prepared;             // this step needs no other rank any more, and others may have committed it
    int torn;                 // its update is under way, or has failed: the states are of no step
    par_result late;          // the error of a gather in the update
    par_zero_control *before; // of the last step, in device memory; of this one while it waits, prepared
    float *directions;        // Muon's, of what this rank updates; NULL: it computes them in the update
    // Buddies, see >>zero_buddies
    int buddy, ward; // ranks of comm; -1: there is none
    int stale;       // values were set that the buddy does not have
    char *ward_parameters, *ward_gradients, *ward_states[PAR__ZERO_STATE_KINDS];
    float *ward_directions;
    // Recovery, see >>zero_recover
    uint64_t layout;       // how often it was laid out anew
    struct par_zero *next; // the next layout, complete; nobody knows whether all ranks have it. Or NULL
    par_zero_control initial_control; // before commit
};

#define PAR__ZERO_FAIL(result, ...) par__zero_fail(z->desc.comm, result, __VA_ARGS__)
__attribute__((format(printf, 3, 4))) static par_result par__zero_fail(par_comm *comm, par_result result,
                                                                       const char *format, ...) {
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (comm) return par_fail(comm, result, "%s", text);
    PAR_LOG(text);
    return result;
}
static size_t par__zero_param_bytes(const par_zero *z) { return par_dtype_bytes(z->desc.param_dtype); }
static size_t par__zero_grad_bytes(const par_zero *z) { return par_dtype_bytes(z->desc.grad_dtype); }
static int par__zero_has_master(const par_zero *z) { return z->desc.param_dtype != PAR_F32; }
static par_dtype par__zero_state_dtype(const par_zero *z, int kind) {
    return kind == PAR__ZERO_M || kind == PAR__ZERO_V ? z->desc.state_dtype : PAR_F32;
}
// Bytes of n elements of a state; of all states.
static size_t par__zero_state_bytes(const par_zero *z, int kind, size_t n) {
    return z->has_state[kind] ? par__zero_moment_bytes(par__zero_state_dtype(z, kind), n) : 0;
}
static size_t par__zero_states_bytes(const par_zero *z, size_t n) {
    size_t sum = 0;
    for (int i = 0; i < PAR__ZERO_STATE_KINDS; i++) sum += par__zero_state_bytes(z, i, n);
    return sum;
}
static int par__zero_moment_count(const par_zero *z) {
    static const int moments[] = {
#define PAR__X(constant, name, states, reads, writes) states,
        PAR_ZERO_OPTIMIZERS(PAR__X)
#undef PAR__X
    };
    return moments[z->desc.optimizer];
}
static const char *const par__zero_optimizer_names[] = {
#define PAR__X(constant, name, states, reads, writes) #name,
    PAR_ZERO_OPTIMIZERS(PAR__X)
#undef PAR__X
};
const char *par_zero_optimizer_name(par_zero_optimizer o) {
    return (unsigned)o < PAR_ZERO_OPTIMIZER_COUNT ? par__zero_optimizer_names[o] : "(no par_zero_optimizer)";
}
par_suggestion par_zero_optimizer_suggest(const char *name) {
    return par_suggest(name, par__zero_optimizer_names, PAR_ZERO_OPTIMIZER_COUNT,
                       sizeof par__zero_optimizer_names[0]);
}
par_result par_zero_optimizer_parse(const char *name, par_zero_optimizer *optimizer) {
    for (int i = 0; i < PAR_ZERO_OPTIMIZER_COUNT; i++)
        if (!strcmp(name, par_zero_optimizer_name((par_zero_optimizer)i)))
            return *optimizer = (par_zero_optimizer)i, PAR_OK;
    return PAR_ERR_ARGUMENT;
}

// >>zero_plan -----------------------------------------------------------------------------------------------
//
//     unit, 2 ranks     | trained: w, b, padding               | frozen: e, padding       |
//                       | shard of rank 0  | shard of rank 1   | rank 0     | rank 1      |
// Each part is padded to a multiple of 32 x ranks elements (canonical: 32 x C), so that all shards have the
// same size; with states of 8 bits of 256 x.

static size_t par__zero_shape_product(const size_t *shape, int dims) { // SIZE_MAX: too large
    size_t n = 1;
    for (int i = 0; i < dims; i++) {
        if (shape[i] && n > SIZE_MAX / 64 / shape[i]) return SIZE_MAX;
        n *= shape[i];
    }
    return n;
}
static size_t par__zero_shard_count(const par_zero *z, const par__zero_unit *u, int part) {
    return u->count[part] / (size_t)z->ranks;
}
static size_t par__zero_unit_count(const par__zero_unit *u) { // of parameters that it has itself
    return u->use_of ? 0 : u->count[0] + u->count[1];
}
static int par__zero_owner(const par_zero *z, int unit) { // the unit that has a unit's parameters
    return unit >= 0 && unit < z->unit_count && z->units[unit].use_of ? z->units[unit].use_of - 1 : unit;
}
// The number of trained elements of a unit that this rank updates, and the first of them.
static size_t par__zero_updated_count(const par_zero *z, const par__zero_unit *u, size_t *first) {
    *first = z->sharded_states ? par__zero_shard_count(z, u, 0) * (size_t)z->rank : 0;
    if (z->desc.parameter_server) return z->rank == 0 ? u->count[0] : 0;
    return z->sharded_states ? par__zero_shard_count(z, u, 0) : u->count[0];
}
// Elements of the unit's offloaded states: each piece begins at a multiple of 1024 elements, which is a page.
static size_t par__zero_offloaded_count(const par_zero *z, const par__zero_unit *u) {
    const size_t piece = u->use_of ? 0 : u->count[0] / z->pieces;
    size_t first;
    return piece
               ? par__zero_updated_count(z, u, &first) / piece * par__round_up(piece, PAR__ZERO_PAGE_ELEMENTS)
               : 0;
}
// A unit begins where the previous one ends.
static void par__zero_place_unit(const par_zero *z, par__zero_unit *u) {
    const par__zero_unit *p = u - 1;
    size_t first;
    if (u == z->units) return;
    u->unsharded_offset = p->unsharded_offset + par__zero_unit_count(p);
    u->shard_offset = p->shard_offset + par__zero_unit_count(p) / (size_t)z->ranks;
    u->grad_offset = p->grad_offset + p->count[0];
    u->grad_shard_offset = p->grad_shard_offset + par__zero_shard_count(z, p, 0);
    u->offload_offset = p->offload_offset + par__zero_offloaded_count(z, p);
    u->state_offset = p->state_offset + (p->use_of ? 0 : par__zero_updated_count(z, p, &first));
}
// A tensor is appended to its unit, which is the last one.
static void par__zero_place_tensor(const par_zero *z, par__zero_unit *u, par__zero_tensor *t) {
    t->offset = u->used[t->part];
    u->used[t->part] += par__round_up(t->count, z->align);
    u->count[t->part] = par__round_up(u->used[t->part], z->align * z->pieces);
}
// 1: Muon updates it as a matrix.
static int par__zero_is_matrix(const par_zero *z, const par__zero_tensor *t) {
    return z->desc.optimizer == PAR_ZERO_MUON && t->part == 0 && t->desc.dims == 2 && !t->desc.use_adamw &&
           (t->count || t->split);
}
static int par__zero_has_matrix(const par_zero *z, const par__zero_unit *u) {
    for (int t = u->first; t < u->last; t++)
        if (par__zero_is_matrix(z, &z->tensors[t])) return 1;
    return 0;
}
typedef struct par__zero_sizes { // elements
    size_t elements, total, trained, updated, offloaded;
    size_t window; // of a window of states
    size_t matrix, side,
        matrix_unit; // the largest matrix, its shorter side squared, the largest unit with one
    size_t split;    // the largest matrix of which this rank has a part
} par__zero_sizes;
static par__zero_sizes par__zero_total_sizes(const par_zero *z) {
    par__zero_sizes s;
    size_t first;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < z->unit_count; i++) {
        const par__zero_unit *u = &z->units[i];
        s.total += par__zero_unit_count(u);
        s.trained += u->count[0];
        if (!u->use_of) s.updated += par__zero_updated_count(z, u, &first);
        s.offloaded += par__zero_offloaded_count(z, u);
        s.window = PAR__MAX(s.window, par__round_up(u->count[0] / z->pieces, PAR__ZERO_PAGE_ELEMENTS));
        if (par__zero_has_matrix(z, u)) s.matrix_unit = PAR__MAX(s.matrix_unit, u->count[0]);
    }
    s.window = s.updated ? PAR__MIN(s.window, z->window) : 0;
    for (int t = 0; t < z->tensor_count; t++) {
        const par__zero_tensor *x = &z->tensors[t];
        const size_t *n = x->split ? x->shard.global_shape : x->desc.shape;
        s.elements += x->count;
        if (!par__zero_is_matrix(z, x)) continue;
        s.matrix = PAR__MAX(s.matrix, n[0] * n[1]);
        s.split = PAR__MAX(s.split, x->split);
        s.side = PAR__MAX(s.side, PAR__MIN(n[0], n[1]) * PAR__MIN(n[0], n[1]));
    }
    return s;
}
// Sizes the slots so that any k = max_gathered_units units fit at a time. The d largest units get dedicated
// slots, and the other units share k slots of the size of the largest of them:
//     sizes 9 2 2 2 2, k = 3:    none of its own: 3 x 9 = 27    the largest: 9 + 3 x 2 = 15
// d is chosen so that the sum is smallest: an embedding counts once.
static void par__zero_size_pool(const par_zero *z, int trained, par__zero_pool *p) {
    size_t own = 0, least = SIZE_MAX;
    memset(p, 0, sizeof *p);
    for (int i = 0; i < z->unit_count; i++) { // sorted by size: the largest first
        const size_t n = trained ? z->units[i].count[0] : par__zero_unit_count(&z->units[i]);
        int at = PAR__MIN(i, PAR__ZERO_MAX_DEDICATED + 1);
        for (; at > 0 && p->sizes[at - 1] < n; at--)
            if (at <= PAR__ZERO_MAX_DEDICATED) {
                p->sizes[at] = p->sizes[at - 1];
                p->owner[at] = p->owner[at - 1];
            }
        if (at <= PAR__ZERO_MAX_DEDICATED) {
            p->sizes[at] = n;
            p->owner[at] = i;
        }
    }
    for (int d = 0; d <= PAR__MIN(PAR__ZERO_MAX_DEDICATED, z->unit_count); own += p->sizes[d++]) {
        const int shared = PAR__MIN(z->desc.max_gathered_units, z->unit_count - d);
        const size_t sum = own + (size_t)shared * p->sizes[d];
        if (sum < least) {
            least = sum;
            p->dedicated_count = d;
            p->count = d + shared;
        }
    }
}
static size_t par__zero_slot_elements(const par__zero_pool *p, int slot) { // elements
    return p->sizes[PAR__MIN(slot, p->dedicated_count)];
}
static size_t par__zero_pool_bytes(const par__zero_pool *p, size_t element, int packs, int code) {
    size_t sum = 0;
    for (int i = 0; i < p->count; i++) {
        const size_t n = par__zero_slot_elements(p, i);
        sum += n * element + (size_t)packs * par__zero_quantized_bytes(code, n);
    }
    return sum;
}
static void par__zero_plan_counts(const par_zero *z, par_zero_plan *p) { // elements sent in a step
    const size_t n = (size_t)z->ranks, g = (size_t)z->replica_count, m = (size_t)z->microbatches;
    for (int i = 0; i < z->unit_count; i++) {
        const par__zero_unit *u = &z->units[i];
        const size_t shard = par__zero_shard_count(z, u, 0), reach = (n - 1) * shard;
        const size_t held = z->sharded_states ? shard : u->count[0]; // what is summed over replica_comm
        if (z->desc.parameter_server) {
            p->reduce_count += z->rank ? u->count[0] : reach;
            p->gather_count += z->rank || n == 1 ? 0 : u->use_of ? 0 : u->count[0];
            continue;
        }
        p->reduce_count += reach * (z->sharded_gradients ? m : z->desc.stage == 0 ? 2u : 1u);
        if (z->sharded_parameters) // once for forward, once for backward; what is frozen, too
            p->gather_count += 2 * m * (n - 1) * (par__zero_unit_count(&z->units[par__zero_owner(z, i)]) / n);
        else if (z->sharded_states && !u->use_of)
            p->gather_count += reach;
        if (z->sharded_states && par__zero_has_matrix(z, u)) p->gather_count += reach; // Muon's momentum
        if (g > 1) p->replica_reduce_count += 2 * (held - held / g);
    }
}
static size_t *par__zero_plan_bytes_of(par_zero_plan *p, par__zero_placement kind,
                                       size_t *resident) { // of bytes
    return kind == PAR__ZERO_HOST ? &p->host_bytes : kind == PAR__ZERO_FILE ? &p->file_bytes : resident;
}
// Bytes of one window buffer for offloaded data.
static size_t par__zero_window_bytes(const par_zero *z, const par__zero_sizes *s) {
    return (z->state_store.kind ? par__zero_states_bytes(z, s->window) : 0) +
           (z->parameter_store.kind ? s->window * par__zero_param_bytes(z) : 0);
}
// Muon's momentum is gathered as f32, whatever the dtype of the parameters.
static void par__zero_plan_muon(const par_zero *z, const par__zero_unit *u, par_zero_plan *p) {
    const size_t n = (size_t)(z->ranks - 1) * par__zero_shard_count(z, u, 0), e = par__zero_param_bytes(z);
    p->gather_bytes += n * sizeof(float);
    p->gather_bytes -=
        z->desc.quantize_parameters ? par__zero_quantized_bytes(z->desc.quantize_parameters, n) : n * e;
}
static void par__zero_sum_buffers(par_zero_plan *p) {
    p->buffer_bytes = p->gathered_parameter_bytes + p->unsharded_gradient_bytes + p->tree_sum_bytes +
                      p->muon_bytes + p->window_bytes + p->buddy_bytes;
}
// Has this rank a ward? Where all ranks of comm or those of replica_comm have the same, these are copies.
static int par__zero_has_ward(const par_zero *z) {
    return z->desc.buddies && z->sharded_states && z->replica_count == 1 && z->ranks > 1;
}
// Does Muon compute its directions before the commit point, because they need other ranks?
static int par__zero_keeps_directions(const par_zero *z, const par__zero_sizes *s) {
    return z->desc.buddies && s->matrix && (z->sharded_states || z->desc.tensor_parallel_comm);
}
static void par__zero_plan_buddy(const par_zero *z, const par__zero_sizes *s, par_zero_plan *p) {
    const size_t n = (size_t)z->ranks, gradients = s->trained / n * par__zero_grad_bytes(z);
    const int keeps = par__zero_keeps_directions(z, s);
    if (keeps) p->buddy_bytes += s->updated * sizeof(float);
    if (!par__zero_has_ward(z)) return;
    p->buddy_bytes += s->total / n * par__zero_param_bytes(z) + gradients +
                      par__zero_states_bytes(z, s->updated) + (keeps ? s->updated * sizeof(float) : 0);
    for (int i = 0; i < z->unit_count; i++) {
        const par__zero_unit *u = &z->units[i];
        if (u->use_of) continue;
        p->buddy_sent_bytes += par__zero_shard_count(z, u, 0) * par__zero_grad_bytes(z);
        if (keeps && par__zero_has_matrix(z, u))
            p->buddy_sent_bytes += par__zero_shard_count(z, u, 0) * sizeof(float);
    }
}
par_result par_zero_plan_of(const par_zero *z, par_zero_plan *p) {
    const par__zero_sizes s = par__zero_total_sizes(z);
    const size_t n = (size_t)z->ranks, e = par__zero_param_bytes(z), ge = par__zero_grad_bytes(z);
    const size_t gradients = z->sharded_gradients ? s.trained / n : s.trained;
    memset(p, 0, sizeof *p);
    if (z->add_result) return PAR__ZERO_FAIL(z->add_result, "par_zero_plan_of: %s", z->add_error);
    p->elements = s.elements;
    const size_t parameters = (z->sharded_parameters ? s.total / n : s.total) * e;
    const par__zero_placement states_in = z->state_store.kind, parameters_in = z->parameter_store.kind;
    p->gradient_bytes = gradients * ge;
    *par__zero_plan_bytes_of(p, parameters_in, &p->parameter_bytes) += parameters;
    *par__zero_plan_bytes_of(p, states_in, &p->state_bytes) +=
        par__zero_states_bytes(z, states_in ? s.offloaded : s.updated);
    p->state_bytes += 4 * z->block_count * sizeof *z->block_scales;
    par__zero_pool pool;
    p->tree_sum_bytes = (size_t)z->tree_sum_count * gradients * ge;
    p->window_bytes = PAR__ZERO_WINDOWS * par__zero_window_bytes(z, &s);
    par__zero_size_pool(z, 1, &pool);
    if (z->sharded_gradients)
        p->unsharded_gradient_bytes = par__zero_pool_bytes(&pool, ge, 2, z->desc.quantize_gradients);
    par__zero_size_pool(z, 0, &pool);
    if (z->sharded_parameters)
        p->gathered_parameter_bytes = par__zero_pool_bytes(&pool, e, 1, z->desc.quantize_parameters);
    if (s.matrix)
        p->muon_bytes = (s.matrix_unit + 2 * s.split) * sizeof(float) +
                        2 * (s.matrix + s.side) * par_dtype_bytes(z->desc.muon_dtype);
    par__zero_plan_buddy(z, &s, p);
    par__zero_sum_buffers(p);
    par__zero_plan_counts(z, p);
    p->reduce_bytes = p->reduce_count * ge;
    p->gather_bytes = p->gather_count * e;
    if (z->desc.quantize_gradients)
        p->reduce_bytes = par__zero_quantized_bytes(z->desc.quantize_gradients, p->reduce_count);
    if (z->desc.quantize_parameters)
        p->gather_bytes = par__zero_quantized_bytes(z->desc.quantize_parameters, p->gather_count);
    if (z->sharded_states)
        for (int i = 0; i < z->unit_count; i++)
            if (par__zero_has_matrix(z, &z->units[i])) par__zero_plan_muon(z, &z->units[i], p);
    return PAR_OK;
}
const char *par_zero_format_bytes(size_t bytes, char text[16]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int i = 0;
    for (; value >= 1023.5; i++) value /= 1024;
    snprintf(text, 16, "%.*f %s", i == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, value, units[i]);
    return text;
}
static void par__zero_print_size(FILE *file, int indent, size_t bytes, const char *what) {
    char text[16];
    if (bytes) fprintf(file, "%*s%10s  %s\n", indent, "", par_zero_format_bytes(bytes, text), what);
}
// Prints what the slots of a pool are for, the largest first.
static void par__zero_print_pool(const par_zero *z, FILE *file, int trained, size_t element, size_t bytes) {
    par__zero_pool p;
    char text[16], what[700];
    size_t n = 0;
    par__zero_size_pool(z, trained, &p);
    for (int i = 0; i < p.dedicated_count && n < sizeof what; i++)
        n += (size_t)snprintf(what + n, sizeof what - n, "%s%s %s", n ? ", " : "", z->units[p.owner[i]].name,
                              par_zero_format_bytes(p.sizes[i] * element, text));
    if (p.count > p.dedicated_count && n < sizeof what)
        snprintf(what + n, sizeof what - n, "%sany %d%s, each up to %s (%s)", n ? ", and " : "",
                 p.count - p.dedicated_count, n ? " of the others" : " of the units",
                 par_zero_format_bytes(p.sizes[p.dedicated_count] * element, text),
                 z->units[p.owner[p.dedicated_count]].name);
    par__zero_print_size(file, 6, bytes,
                         trained ? "gradients of unsharded units:" : "parameters of gathered units:");
    if (bytes) fprintf(file, "%20s%s\n", "", what);
}
void par_zero_plan_print(const par_zero *z, FILE *file) {
    par_zero_plan p;
    if (par_zero_plan_of(z, &p)) {
        fprintf(file, "no plan: %s\n", z->add_error);
        return;
    }
    fprintf(file,
            "stage %d%s, %d ranks%s, %d microbatches a step, %s, parameters %s, gradients %s, states %s: %zu "
            "elements\n",
            z->desc.stage, z->desc.parameter_server ? " (parameter server)" : "", z->ranks,
            z->replica_count > 1 ? " (hybrid)" : "", z->microbatches,
            par_zero_optimizer_name(z->desc.optimizer), par_dtype_name(z->desc.param_dtype),
            par_dtype_name(z->desc.grad_dtype), par_dtype_name(z->desc.state_dtype), p.elements);
    par__zero_print_size(file, 2, p.parameter_bytes,
                         z->sharded_parameters ? "parameters, a shard" : "parameters");
    par__zero_print_size(file, 2, p.gradient_bytes,
                         z->sharded_gradients ? "gradients, a shard" : "gradients");
    par__zero_print_size(file, 2, p.state_bytes,
                         z->sharded_states ? "optimizer states, a shard" : "optimizer states");
    par__zero_print_size(file, 2, p.buffer_bytes, "buffers:");
    par__zero_print_pool(z, file, 0, par__zero_param_bytes(z), p.gathered_parameter_bytes);
    par__zero_print_pool(z, file, 1, par__zero_grad_bytes(z), p.unsharded_gradient_bytes);
    par__zero_print_size(file, 6, p.tree_sum_bytes, "sums of pairs of microbatches (canonical_shards)");
    par__zero_print_size(file, 6, p.muon_bytes, "Muon: gathered momentum, and matrices to work with");
    par__zero_print_size(file, 6, p.window_bytes, "what is offloaded, on its way");
    par__zero_print_size(file, 6, p.buddy_bytes, "buddies: a copy of another rank's shard");
    par__zero_print_size(file, 2, p.parameter_bytes + p.gradient_bytes + p.state_bytes + p.buffer_bytes,
                         "in all");
    par__zero_print_size(file, 2, p.host_bytes, "in the host's memory");
    par__zero_print_size(file, 2, p.file_bytes, "in files");
    par__zero_print_size(file, 2, p.reduce_bytes, "sent in a step for sums of gradients");
    par__zero_print_size(file, 2, p.gather_bytes, "sent in a step for gathers of parameters");
    par__zero_print_size(file, 2, p.replica_reduce_count * par__zero_grad_bytes(z),
                         "sent in a step over replica_comm");
    par__zero_print_size(file, 2, p.buddy_sent_bytes, "sent in a step to a buddy");
}

// >>zero_store ----------------------------------------------------------------------------------------------
//
// Offloaded arrays are in host memory or in a file. par__zero_transfer_begin returns a number from 1 on (0:
// the transfer is done already), and par__zero_transfer_wait waits for it. States use O_DIRECT and Linux's
// asynchronous I/O: a helper thread would have to wait for a processor before it could issue the next piece.
// Where these are not available, the page cache reads ahead and writes behind.

static int par__zero_transfer_all(const par__zero_transfer *t, size_t done) { // 0, or an errno
    if (t->write) return par_file_write(t->fd, t->memory + done, t->bytes - done, t->at + done);
    while (done < t->bytes) {
        const ssize_t n = pread(t->fd, t->memory + done, t->bytes - done, (off_t)(t->at + done));
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return n ? errno : EIO;
    }
    return 0;
}
static void par__zero_io_open(par_zero *z) {
    z->io.usable = z->io.usable || !syscall(SYS_io_setup, PAR__ZERO_TRANSFERS, &z->io.context);
}
static void par__zero_io_close(par_zero *z) { // waits for transfers in flight
    for (int i = 0; i < PAR__ZERO_TRANSFERS; i++) z->device->event_free(z->device, z->io.all[i].event);
    z->device->event_free(z->device, z->io.ready);
    if (z->io.stream) z->device->stream_close(z->device, z->io.stream);
    if (z->io.usable) syscall(SYS_io_destroy, z->io.context);
    z->io.usable = 0;
}
static void par__zero_io_reap(par__zero_io *io) { // waits for at least one transfer
    par__zero_io_event done[PAR__ZERO_TRANSFERS];
    const long n = syscall(SYS_io_getevents, io->context, 1L, (long)PAR__ZERO_TRANSFERS, done, NULL);
    for (long i = 0; i < n; i++) {
        par__zero_transfer *t = &io->all[done[i].data];
        const int e = done[i].res < 0 ? (int)-done[i].res : par__zero_transfer_all(t, (size_t)done[i].res);
        t->state = 0;
        if (e && !io->error) io->error = e;
    }
}
// Copies between a device and the host on a separate stream, after all that is enqueued so far.
static int par__zero_stream_begin(par_zero *z, par__zero_transfer *t, char *there, void *memory, size_t bytes,
                                  int write) {
    par_device *d = z->device;
    par__zero_io *io = &z->io;
    int bad = !io->stream && d->stream_open(d, &io->stream);
    bad = bad || d->event_record(d, NULL, &io->ready) || d->event_wait(d, io->stream, io->ready);
    bad =
        bad || d->copy(d, write ? there : (char *)memory, write ? (char *)memory : there, bytes, io->stream);
    if (bad || d->event_record(d, io->stream, &t->event)) io->error = EIO;
    return t->state = 3, (int)(t - io->all) + 1;
}
static int par__zero_transfer_begin(par_zero *z, const par__zero_store *store, void *memory, size_t at,
                                    size_t bytes, int write) {
    par__zero_io *io = &z->io;
    int i = 0;
    if (store->kind == PAR__ZERO_HOST && z->on_cpu) {
        char *there = store->host + at;
        memcpy(write ? there : (char *)memory, write ? (char *)memory : there, bytes);
        return 0;
    }
    while (io->all[i].state) i++; // one is free: see PAR__ZERO_TRANSFERS
    par__zero_transfer *t = &io->all[i];
    if (store->kind == PAR__ZERO_HOST)
        return par__zero_stream_begin(z, t, store->host + at, memory, bytes, write);
    t->fd = store->fd;
    t->write = write;
    t->memory = (char *)memory;
    t->at = at;
    t->bytes = bytes;
    if (store->direct && io->usable) {
        par__zero_iocb *block = &t->block;
        memset(block, 0, sizeof *block);
        block->data = (unsigned)i;
        block->write = (uint16_t)write;
        block->fd = (uint32_t)store->fd;
        block->buf = (uint64_t)(uintptr_t)memory;
        block->nbytes = bytes;
        block->offset = (int64_t)at;
        if (syscall(SYS_io_submit, io->context, 1L, &block) == 1) return t->state = 1, i + 1;
    }
    if (!write) {
        posix_fadvise(store->fd, (off_t)at, (off_t)bytes, POSIX_FADV_WILLNEED);
        return t->state = 2, i + 1;
    }
    const int e = par__zero_transfer_all(t, 0);
    if (e && !io->error) io->error = e;
    return 0;
}
static par_result par__zero_transfer_wait(par_zero *z, int number) {
    par__zero_io *io = &z->io;
    par__zero_transfer *t = &io->all[number ? number - 1 : 0];
    while (number && t->state == 1) par__zero_io_reap(io);
    if (number && t->state == 2) {
        const int e = par__zero_transfer_all(t, 0);
        if (e && !io->error) io->error = e;
        t->state = 0;
    }
    if (number && t->state == 3) { // later work of the device runs after it
        if (z->device->event_wait(z->device, NULL, t->event)) io->error = EIO;
        t->state = 0;
    }
    return io->error ? PAR__ZERO_FAIL(PAR_ERR_SYSTEM, "par_zero: cannot read or write offloaded data: %s",
                                      strerror(io->error))
                     : PAR_OK;
}
// Parses "none", "host" or "file:DIR". 0: it is none of these.
static int par__zero_parse_store(par__zero_store *store, const char *text) {
    store->kind = PAR__ZERO_IN_MEMORY;
    store->fd = -1;
    if (!text || !strcmp(text, "none")) return 1;
    if (!strcmp(text, "host")) return store->kind = PAR__ZERO_HOST, 1;
    if (strncmp(text, "file:", 5) || !text[5] || strlen(text) >= sizeof store->dir) return 0;
    snprintf(store->dir, sizeof store->dir, "%s", text + 5);
    return store->kind = PAR__ZERO_FILE, 1;
}
// Allocates a store of so many zero bytes. A file is unlinked at once, so that it never outlives the process.
// direct: use O_DIRECT, if the file system can; transfers are whole pages then.
static par_result par__zero_store_open(par_zero *z, par__zero_store *store, size_t bytes, int direct) {
    char path[sizeof store->dir + 32];
    void *host = NULL;
    if (store->kind == PAR__ZERO_HOST) {
        if (z->device->alloc_host(z->device, PAR__MAX(bytes, (size_t)64), &host))
            return PAR__ZERO_FAIL(PAR_ERR_MEMORY, "par_zero_commit: no host memory for %zu bytes", bytes);
        store->host = (char *)host;
        z->allocated.host_bytes += bytes;
    }
    if (store->kind != PAR__ZERO_FILE) return PAR_OK;
    par__zero_io_open(z);
    snprintf(path, sizeof path, "%s/par_zero.XXXXXX", store->dir);
    store->fd = par__safe_fd(mkstemp(path));
    if (store->fd < 0)
        return PAR__ZERO_FAIL(PAR_ERR_SYSTEM, "par_zero_commit: cannot make a file in %s: %s", store->dir,
                              strerror(errno));
    unlink(path);
    const int e = bytes ? posix_fallocate(store->fd, 0, (off_t)bytes) : 0;
    if (e)
        return PAR__ZERO_FAIL(PAR_ERR_SYSTEM, "par_zero_commit: no room for %zu bytes in %s: %s", bytes,
                              store->dir, strerror(e));
    store->direct = direct && !fcntl(store->fd, F_SETFL, O_RDWR | PAR__ZERO_DIRECT);
    return z->allocated.file_bytes += bytes, PAR_OK;
}
static void par__zero_store_close(par_zero *z, par__zero_store *store) {
    if (store->host) z->device->free_host(z->device, store->host);
    if (store->kind == PAR__ZERO_FILE && store->fd >= 0) close(store->fd);
}

// >>zero_open -----------------------------------------------------------------------------------------------

static int par__zero_is_power_of_two(size_t n) { return n && (n & (n - 1)) == 0; }
// Both return NULL, or what is wrong with the desc.
static const char *par__zero_check_stores(par_zero *z, char *why, size_t capacity) {
    const par_zero_desc *d = &z->desc;
    const char *const stores[2] = {d->offload_states, d->offload_parameters};
    for (int i = 0; i < 2; i++)
        if (!par__zero_parse_store(i ? &z->parameter_store : &z->state_store, stores[i]))
            return snprintf(why, capacity,
                            "offload_%s must be \"none\", \"host\" or \"file:DIR\", and is \"%.300s\"",
                            i ? "parameters" : "states", stores[i]),
                   why;
    if (!z->on_cpu && (z->state_store.kind == PAR__ZERO_FILE || z->parameter_store.kind == PAR__ZERO_FILE))
        return "a device offloads to \"host\"; \"file:DIR\" is for the CPU";
    if (!z->on_cpu && d->comm && z->ranks > 0 &&
        (!par_backend_of(d->comm) || (d->replica_comm && !par_backend_of(d->replica_comm)) ||
         (d->model_parallel_comm && !par_backend_of(d->model_parallel_comm))))
        return "comm (replica_comm, model_parallel_comm) must carry the device's memory: give it to "
               "par_cuda_open, or split it from one that was";
    if (z->parameter_store.kind && d->stage != 3) return "offload_parameters needs stage 3";
    return NULL;
}
static const char *par__zero_check_codes(const par_zero *z, char *why, size_t capacity) {
    const int p = z->desc.quantize_parameters, g = z->desc.quantize_gradients;
    if (p && (par__zero_code_bits(p) != 8 || z->desc.stage != 3))
        return snprintf(why, capacity,
                        "quantize_parameters must be 0, PAR_ZERO_INT8, PAR_ZERO_E4M3 or PAR_ZERO_E5M2, and "
                        "needs stage 3; it is %d, with stage %d",
                        p, z->desc.stage),
               why;
    if (g && (!par__zero_code_bits(g) || !z->sharded_gradients))
        return snprintf(why, capacity,
                        "quantize_gradients must be 0 or a par_zero_code, and needs stage 2 or 3 without "
                        "accumulate_unsharded; it is %d, with stage %d",
                        g, z->desc.stage),
               why;
    return NULL;
}
static int par__zero_is_empty_group(const par_zero_desc *d, int group) {
    const par_zero_hyper *h = &d->hyper[group];
    return h->lr == 0 && h->beta1 == 0 && h->beta2 == 0 && h->epsilon == 0 && h->weight_decay == 0 &&
           h->momentum == 0 && !h->nesterov;
}
static const char *par__zero_check_groups(const par_zero_desc *d, char *why, size_t capacity) {
    for (int i = 0; i < PAR_ZERO_MAX_GROUPS && d->comm; i++)
        if (!(d->hyper[i].lr > 0 || d->hyper[i].lr < 0) && (!i || !par__zero_is_empty_group(d, i)))
            return snprintf(why, capacity, "hyper[%d].lr is %g: give it a learning rate (below 0: 0)%s", i,
                            (double)d->hyper[i].lr,
                            i ? "; a group that is all zeros is as group 0, and this one is not" : ""),
                   why;
    return NULL;
}
static const char *par__zero_check_desc(par_zero *z, char *why, size_t capacity) {
    const par_zero_desc *d = &z->desc;
    const size_t all = (size_t)z->ranks * (size_t)z->replica_count * (size_t)z->microbatches;
    if (!d->comm && d->plan_ranks < 1)
        return "desc.comm is NULL: give it the ranks that train together (or, only to plan, plan_ranks)";
    if (d->stage < 0 || d->stage > 3)
        return snprintf(why, capacity, "stage must be 0, 1, 2 or 3, and is %d", d->stage), why;
    if (d->parameter_server && (d->stage || d->replica_comm))
        return "parameter_server needs stage 0, and no replica_comm";
    if (d->microbatches < 0)
        return snprintf(why, capacity, "microbatches must be 1 or more, and is %d", d->microbatches), why;
    if ((unsigned)d->optimizer >= PAR_ZERO_OPTIMIZER_COUNT)
        return snprintf(why, capacity,
                        "optimizer is %d: it must be PAR_ZERO_ADAMW (%d) to the last one, %s (%d)",
                        (int)d->optimizer, (int)PAR_ZERO_ADAMW,
                        par_zero_optimizer_name((par_zero_optimizer)(PAR_ZERO_OPTIMIZER_COUNT - 1)),
                        PAR_ZERO_OPTIMIZER_COUNT - 1),
               why;
    if (d->param_dtype != PAR_F32 && d->param_dtype != PAR_BF16 && d->param_dtype != PAR_F16)
        return "param_dtype must be f32, bf16 or f16";
    if (d->grad_dtype != PAR_F32 && d->grad_dtype != PAR_BF16 && d->grad_dtype != PAR_F16)
        return "grad_dtype must be f32, bf16 or f16";
    if (d->state_dtype != PAR_F32 && d->state_dtype != PAR_BF16 && d->state_dtype != PAR_U8)
        return "state_dtype must be f32, bf16 or u8";
    if (d->muon_dtype != PAR_F32 && d->muon_dtype != PAR_BF16) return "muon_dtype must be f32 or bf16";
    if (d->max_gathered_units < 0 || d->max_gathered_units > PAR__ZERO_MAX_GATHERED_UNITS)
        return snprintf(why, capacity, "max_gathered_units must be 0 to %d, and is %d",
                        PAR__ZERO_MAX_GATHERED_UNITS, d->max_gathered_units),
               why;
    if (d->canonical_shards && (size_t)d->canonical_shards != all)
        return snprintf(why, capacity,
                        "canonical_shards must be microbatches x the number of ranks = %zu, and is %d", all,
                        d->canonical_shards),
               why;
    if (d->canonical_shards &&
        (!par__zero_is_power_of_two(all) || !par__zero_is_power_of_two((size_t)z->ranks) ||
         all >> PAR__ZERO_MAX_TREE_LEVELS))
        return "canonical_shards and the number of ranks must be powers of two";
    if (d->canonical_shards && d->grad_dtype != PAR_F32)
        return "canonical_shards needs grad_dtype f32: sums of 16 bits are rounded on each rank, and would "
               "depend on the number of ranks";
    const char *codes = par__zero_check_codes(z, why, capacity);
    if (codes) return codes;
    if (d->reduction != PAR_ZERO_MEAN && d->reduction != PAR_ZERO_SUM)
        return snprintf(why, capacity, "reduction must be PAR_ZERO_MEAN or PAR_ZERO_SUM, and is %d",
                        (int)d->reduction),
               why;
    if (!(d->clip >= 0) || !(d->ema >= 0 && d->ema < 1) || !(d->loss_scale >= 0))
        return "clip, ema and loss_scale must not be negative, and ema must be less than 1";
    const char *stores = par__zero_check_stores(z, why, capacity);
    if (stores) return stores;
    if (d->buddies && (d->parameter_server || z->state_store.kind || z->parameter_store.kind))
        return "buddies hold shards in memory: not with parameter_server, offload_states and "
               "offload_parameters";
    return par__zero_check_groups(d, why, capacity);
}
par_zero *par__zero_called(par_zero *z, const char *site) {
    if (z && site) par__enter_layer(z->desc.comm, site);
    return z;
}
par_result par__zero_open_at(const char *site, const par_zero_desc *desc, par_zero **z) {
    par__enter_layer(desc ? desc->comm : NULL, site);
    return par_zero_open(desc, z);
}
// What follows from the desc, whose defaults it sets.
static void par__zero_derive(par_zero *z) {
    z->ranks = z->desc.comm ? par_size(z->desc.comm) : z->desc.plan_ranks;
    z->rank = z->desc.comm ? par_rank(z->desc.comm) : 0;
    z->replica_count = z->desc.replica_comm ? par_size(z->desc.replica_comm) : 1;
    z->replica = z->desc.replica_comm ? par_rank(z->desc.replica_comm) : 0;
    z->buddy = z->ward = -1;
    z->microbatches = z->desc.microbatches ? z->desc.microbatches : 1;
    z->desc.microbatches = z->microbatches;
    z->desc.max_gathered_units = z->desc.max_gathered_units ? z->desc.max_gathered_units : 2;
    if (z->desc.param_dtype == PAR_F64) z->desc.param_dtype = PAR_F32;
    if (z->desc.grad_dtype == PAR_F64) z->desc.grad_dtype = PAR_F32;
    if (z->desc.state_dtype == PAR_F64) z->desc.state_dtype = PAR_F32;
    if (z->desc.muon_dtype == PAR_F64)
        z->desc.muon_dtype = z->desc.param_dtype == PAR_BF16 ? PAR_BF16 : PAR_F32;
    z->align = z->desc.state_dtype == PAR_U8 ? (size_t)PAR__ZERO_STATE_BLOCK : (size_t)PAR__ZERO_ALIGN;
    if (z->desc.loss_scale_window <= 0) z->desc.loss_scale_window = 2000;
    if (z->desc.loss_scale_hysteresis <= 0) z->desc.loss_scale_hysteresis = 1;
    z->kernels = z->desc.kernels ? z->desc.kernels : par_zero_cpu();
    z->device = z->kernels->device ? z->kernels->device : par_cpu();
    z->on_cpu = z->device == par_cpu();
    z->initial_control.loss_scale = z->desc.loss_scale > 0 ? z->desc.loss_scale : 1;
    z->sharded_states = z->desc.stage >= 1;
    z->sharded_parameters = z->desc.stage == 3;
    z->sharded_gradients = z->desc.stage >= 2 && !z->desc.accumulate_unsharded;
    const int wanted[PAR__ZERO_STATE_KINDS] = {par__zero_has_master(z), 0, 0, z->desc.ema > 0};
    memcpy(z->has_state, wanted, sizeof wanted);
    const int offloads = z->desc.offload_states || z->desc.offload_parameters;
    z->window = z->on_cpu || offloads ? (size_t)PAR_ZERO_WINDOW
                                      : SIZE_MAX / 4 / PAR__ZERO_PAGE_ELEMENTS * PAR__ZERO_PAGE_ELEMENTS;
    z->pieces = (size_t)(z->desc.canonical_shards > 0 ? z->desc.canonical_shards : z->ranks);
    while (z->desc.canonical_shards && z->microbatches > 0 && z->microbatches >> (z->tree_sum_count + 1))
        z->tree_sum_count++;
}
par_result par_zero_open(const par_zero_desc *desc, par_zero **out) {
    if (!desc || !out) {
        PAR_LOG("par_zero_open: desc or zero is NULL");
        return PAR_ERR_ARGUMENT;
    }
    *out = NULL;
    par_zero *z = (par_zero *)PAR_MALLOC(sizeof *z);
    if (!z) return par__zero_fail(desc->comm, PAR_ERR_MEMORY, "par_zero_open: out of memory");
    memset(z, 0, sizeof *z);
    z->desc = *desc;
    par__zero_derive(z);
    char text[500];
    const char *why = par__zero_check_desc(z, text, sizeof text);
    if (why) {
        PAR_FREE(z);
        return par__zero_fail(desc->comm, PAR_ERR_ARGUMENT, "par_zero_open: %s", why);
    }
    z->has_state[PAR__ZERO_M] = par__zero_moment_count(z) > 0;
    z->has_state[PAR__ZERO_V] = par__zero_moment_count(z) > 1;
    *out = z;
    return PAR_OK;
}

// Grows an array, whose capacity doubles, by one element.
static void *par__zero_grow(void *array, size_t count, size_t bytes) {
    if (count & (count - 1)) return array;
    return PAR_REALLOC(array, (count ? 2 * count : 1) * bytes);
}
// Fails, and keeps the text of the first such error for par_zero_commit. Returns -1.
__attribute__((format(printf, 4, 5))) static int
par__zero_reject(par_zero *z, const char *call, par_result result, const char *format, ...) {
    char text[sizeof z->add_error];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!z->add_result && !z->committed) {
        memcpy(z->add_error, text, sizeof text);
        z->add_result = result;
    }
    PAR__ZERO_FAIL(result, "%s: %s", call, text);
    return -1;
}
int par_zero_add_unit(par_zero *z, const char *name) {
    static const char *const what[PAR__ZERO_SITES] = {"forward", "backward", "update"};
    if (!name) name = "";
    if (z->committed)
        return par__zero_reject(z, "par_zero_add_unit", PAR_ERR_ARGUMENT,
                                "unit %s was added after par_zero_commit", name);
    par__zero_unit *all = (par__zero_unit *)par__zero_grow(z->units, (size_t)z->unit_count, sizeof *all);
    if (!all)
        return par__zero_reject(z, "par_zero_add_unit", PAR_ERR_MEMORY, "out of memory for unit %s", name);
    z->units = all;
    par__zero_unit *u = &all[z->unit_count];
    memset(u, 0, sizeof *u);
    snprintf(u->name, sizeof u->name, "%s", name);
    for (int i = 0; i < PAR__ZERO_SITES; i++)
        snprintf(u->site[i], sizeof u->site[i], "%s of unit %s", what[i], name);
    u->first = u->last = z->tensor_count;
    par__zero_place_unit(z, u);
    return z->unit_count++;
}
// NULL, or why a layer of this dtype cannot compute on these parameters.
static const char *par__zero_check_dtype(const par_zero *z, par_dtype dtype, int frozen) {
    if (!dtype) return NULL; // PAR_F64: none was given
    if (dtype != z->desc.param_dtype)
        return z->desc.param_dtype == PAR_F32 ? "its layer does not have f32, and desc.param_dtype is f32"
                                              : "its layer does not have desc.param_dtype";
    return frozen || z->desc.grad_dtype == PAR_F32
               ? NULL
               : "its layer writes gradients in f32, and desc.grad_dtype has 16 bits: leave it 0";
}
static int par__zero_same_sums(const par_partial_sum *a, const par_partial_sum *b) {
    int same = 1;
    for (int i = 0; i < PAR_MAX_SUMS; i++)
        same &= a[i].comm == b[i].comm && a[i].op == b[i].op && a[i].first == b[i].first &&
                a[i].count == b[i].count;
    return same;
}
int par_zero_add_use(par_zero *z, const char *name, int unit, const par_parameter *use) {
    if (unit < 0 || unit >= z->unit_count || z->units[unit].last - z->units[unit].first != 1)
        return par__zero_reject(z, "par_zero_add_use", PAR_ERR_ARGUMENT,
                                "there is no unit %d, or it has not one tensor", unit);
    const char *why = use ? par__zero_check_dtype(z, use->dtype, 0) : NULL;
    if (why) return par__zero_reject(z, "par_zero_add_use", PAR_ERR_ARGUMENT, "unit %s: %s", name, why);
    if (use && !par__zero_same_sums(use->sums, z->tensors[z->units[unit].first].desc.sums))
        return par__zero_reject(
            z, "par_zero_add_use", PAR_ERR_ARGUMENT,
            "unit %s: the gradient of this use needs other sums over ranks than that of %s", name ? name : "",
            z->tensors[z->units[unit].first].name);
    const int n = par_zero_add_unit(z, name);
    if (n < 0) return n;
    par__zero_unit *u = &z->units[n];
    u->use_of = unit + 1;
    u->used[0] = z->units[unit].used[0];
    u->count[0] = z->units[unit].count[0];
    if (use) {
        u->use_data = use->data;
        u->use_grad = use->grad;
        u->use_owned = use->owned;
    }
    return n;
}
static uint64_t par__zero_name_hash(const char *name) { // FNV-1a
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = name; *c; c++) hash = (hash ^ (uint64_t)(unsigned char)*c) * 0x100000001b3u;
    return hash ^ hash >> 32;
}
// The slot of a name in the hash table, or the empty slot for it: open addressing, at most half full.
static int *par__zero_name_slot(const par_zero *z, const char *name) {
    size_t i = (size_t)par__zero_name_hash(name);
    while (z->names[i &= z->name_capacity - 1] && strcmp(z->tensors[z->names[i] - 1].name, name)) i++;
    return &z->names[i];
}
static int par__zero_grow_names(par_zero *z) { // 0: out of memory
    if (2 * ((size_t)z->tensor_count + 1) <= z->name_capacity) return 1;
    const size_t capacity = z->name_capacity ? 2 * z->name_capacity : 64;
    int *names = (int *)PAR_MALLOC(capacity * sizeof *names);
    if (!names) return 0;
    memset(names, 0, capacity * sizeof *names);
    PAR_FREE(z->names);
    z->names = names;
    z->name_capacity = capacity;
    for (int i = 0; i < z->tensor_count; i++) *par__zero_name_slot(z, z->tensors[i].name) = i + 1;
    return 1;
}
static const char *par__zero_check_runs(const par__zero_tensor *t) {
    size_t sum = 0, whole = 1;
    if (t->shard.run_count < 0 || t->shard.run_count > PAR_MAX_RUNS) return "run_count must be 0 to 8";
    for (int i = 0; i < t->desc.dims; i++) whole *= t->shard.global_shape[i];
    for (int i = 0; i < t->shard.run_count; i++) {
        const par_run *r = &t->shard.runs[i];
        const size_t n = r->count, width = r->width ? r->width : n, rows = n ? n / width : 0;
        sum += n;
        if (n && (n % width || r->offset + (rows - 1) * r->stride + width > whole))
            return "a run exceeds the global tensor";
    }
    return sum != t->count ? "the counts of its runs do not add up to its elements" : NULL;
}
// How many ranks of tensor_parallel_comm have this run; copies by a tied_comm are elsewhere. Is this rank the
// first one of them?
static int par__zero_sharers(const par__zero_tensor *t, const par_run *r) {
    return PAR__MAX(r->replicas / (t->desc.tied_comm ? par_size(t->desc.tied_comm) : 1), 1);
}
static int par__zero_is_first(const par__zero_tensor *t, const par_run *r) {
    return r->replica_id % par__zero_sharers(t, r) == 0;
}
// Does the update of a tensor depend on all of its elements, and this rank has a part of them?
static int par__zero_updates_whole(const par_zero *z, const par__zero_tensor *t) {
    return t->split && (z->desc.optimizer == PAR_ZERO_LAMB || par__zero_is_matrix(z, t) ||
                        (t->whole && z->desc.state_dtype == PAR_U8));
}
// NULL, or what the update of a part of a tensor lacks.
static const char *par__zero_check_part(const par_zero *z, const par__zero_tensor *t) {
    int copies = 0;
    if (t->split == SIZE_MAX) return "its global shape is too large";
    if (!par__zero_updates_whole(z, t) || !z->desc.comm) return NULL;
    if (!z->desc.tensor_parallel_comm)
        return "this rank has a part of it, and LAMB, Muon and (with canonical_shards) moments of 8 bits "
               "need all of it: set tensor_parallel_comm to the ranks that have the other parts";
    for (int i = 0; i < t->shard.run_count; i++) copies |= par__zero_sharers(t, &t->shard.runs[i]) > 1;
    if (copies && z->desc.optimizer == PAR_ZERO_LAMB && z->desc.state_dtype == PAR_U8)
        return "several ranks have some of its elements, and LAMB with moments of 8 bits needs each once: "
               "take another state_dtype, or fewer tensor-parallel ranks";
    return NULL;
}
// Copies a name with U+FFFD for each byte that is not UTF-8. 0: it does not fit.
static int par__zero_copy_name(char *to, size_t capacity, const char *from) {
    size_t at = 0;
    for (size_t n = strlen(from), used; n; from += used, n -= used) {
        char json[8];
        used = par_json_escape(from, n, json);
        const int valid = strcmp(json, "\\ufffd") != 0;
        const size_t length = valid ? used : 3;
        if (at + length >= capacity) return 0;
        memcpy(to + at, valid ? from : "\xEF\xBF\xBD", length);
        at += length;
    }
    return to[at] = 0, 1;
}
// Notes the comms of a tensor's sums. NULL, or what is wrong with them.
static const char *par__zero_check_sums(par_zero *z, const par__zero_tensor *t) {
    for (int i = 0, k = 0; i < PAR_MAX_SUMS; i++, k = 0) {
        const par_partial_sum *s = &t->desc.sums[i];
        if (!s->comm && s->count) return "one of its sums has no comm";
        if (!s->comm || t->part) continue;
        if (s->count > t->count || s->first > t->count - s->count) return "one of its sums exceeds it";
        if (!z->on_cpu && !par_backend_of(s->comm))
            return "the comm of its sums must carry the device's memory";
        while (k < z->sum_comm_count && z->sum_comms[k] != s->comm) k++;
        if (k == PAR__ZERO_MAX_SUM_COMMS) return "tensors have sums over more than 8 comms";
        z->sum_comms[k] = s->comm;
        z->sum_comm_count = PAR__MAX(z->sum_comm_count, k + 1);
    }
    return NULL;
}
// NULL, or what is wrong with a tensor.
static const char *par__zero_check_tensor(par_zero *z, const par__zero_tensor *t, const char *name, char *why,
                                          size_t capacity) {
    const par_zero_tensor *d = &t->desc;
    if (!t->name[0])
        return snprintf(why, capacity, "its name has %zu bytes, more than %zu", strlen(name),
                        sizeof t->name - 1),
               why;
    if (!strcmp(name, "__metadata__")) return "this name is reserved by safetensors";
    if (d->dims < 1 || d->dims > 4)
        return snprintf(why, capacity, "dims is %d, and must be 1 to 4", d->dims), why;
    if (d->group < 0 || d->group >= PAR_ZERO_MAX_GROUPS)
        return snprintf(why, capacity, "group is %d, and must be 0 to %d", d->group, PAR_ZERO_MAX_GROUPS - 1),
               why;
    if (t->count == SIZE_MAX) return "its shape is too large";
    const par__zero_unit *u = &z->units[t->unit];
    if (u->use_of || (u->first < z->tensor_count && (d->tied_comm || z->tensors[u->first].desc.tied_comm)))
        return "it is not alone in its unit, which is a use of another one or has a tensor with a tied_comm";
    const int other = *par__zero_name_slot(z, t->name) - 1;
    if (other >= 0)
        return snprintf(why, capacity, "unit %s has a tensor of this name already: names must be unique",
                        z->units[z->tensors[other].unit].name),
               why;
    const char *wrong = par__zero_check_dtype(z, d->dtype, t->part);
    if (!wrong) wrong = par__zero_check_runs(t);
    if (!wrong) wrong = par__zero_check_part(z, t);
    return wrong ? wrong : par__zero_check_sums(z, t);
}
par_zero_tensor par_zero_tensor_of(const par_parameter *p) {
    par_zero_tensor t;
    memset(&t, 0, sizeof t);
    t.name = p->name;
    t.shard = &p->shard;
    t.data = p->data;
    t.grad = p->grad;
    t.deviation = p->deviation;
    t.value = p->value;
    t.stream = p->stream;
    t.frozen = p->frozen;
    t.group = p->group;
    t.no_decay = p->no_decay;
    t.use_adamw = p->use_adamw;
    memcpy(t.sums, p->sums, sizeof t.sums);
    t.dtype = p->dtype;
    t.owned = p->owned;
    return t;
}
int par_zero_add_tensor(par_zero *z, const par_zero_tensor *desc) {
    static const char call[] = "par_zero_add_tensor";
    const char *name = desc->name && desc->name[0] ? desc->name : NULL;
    char text[300];
    if (z->committed || !z->unit_count)
        return par__zero_reject(z, call, PAR_ERR_ARGUMENT, "tensor %.160s was added %s",
                                name ? name : "(no name)",
                                z->committed ? "after par_zero_commit"
                                             : "before the first unit: call par_zero_add_unit before it");
    const par__zero_unit *last = &z->units[z->unit_count - 1];
    if (!name)
        return par__zero_reject(z, call, PAR_ERR_ARGUMENT,
                                "tensor number %d, of unit %s, has no name: errors and checkpoints need one",
                                z->tensor_count, last->name);
    par__zero_tensor *all =
        (par__zero_tensor *)par__zero_grow(z->tensors, (size_t)z->tensor_count, sizeof *all);
    if (all) z->tensors = all;
    if (!all || !par__zero_grow_names(z))
        return par__zero_reject(z, call, PAR_ERR_MEMORY, "out of memory for tensor %.160s", name);
    par__zero_tensor *t = &all[z->tensor_count];
    memset(t, 0, sizeof *t);
    t->desc = *desc;
    t->desc.name = NULL;
    t->unit = z->unit_count - 1;
    t->shard = desc->shard ? *desc->shard : par_shard_whole(desc->shape, desc->dims);
    t->desc.dims = t->shard.dims;
    memcpy(t->desc.shape, t->shard.shape, sizeof t->desc.shape);
    t->part = desc->frozen ? PAR__ZERO_FROZEN : PAR__ZERO_TRAINABLE;
    t->count =
        t->desc.dims > 0 && t->desc.dims <= 4 ? par__zero_shape_product(t->desc.shape, t->desc.dims) : 0;
    if (!par__zero_copy_name(t->name, sizeof t->name, name)) t->name[0] = 0;
    const size_t whole = par__zero_shape_product(t->shard.global_shape, PAR__MIN(t->desc.dims, 4));
    if (!t->part && t->count != whole) t->split = whole;
    if (z->desc.canonical_shards) t->whole = t->split;
    const char *why = par__zero_check_tensor(z, t, name, text, sizeof text);
    if (why)
        return par__zero_reject(z, call, PAR_ERR_ARGUMENT, "tensor %.160s of unit %s: %s", name, last->name,
                                why);
    *par__zero_name_slot(z, t->name) = z->tensor_count + 1;
    par__zero_place_tensor(z, &z->units[t->unit], t);
    t->blocks_at = z->block_count;
    if (t->whole && z->desc.state_dtype == PAR_U8)
        z->block_count += par__round_up(t->whole, PAR__ZERO_STATE_BLOCK) / PAR__ZERO_STATE_BLOCK;
    z->units[t->unit].last = ++z->tensor_count;
    return z->tensor_count - 1;
}
static void *par__zero_alloc_zeroed(size_t count, size_t bytes) { // NULL: out of memory
    void *memory = PAR_MALLOC((count + 1) * bytes);
    return memory ? memset(memory, 0, (count + 1) * bytes) : NULL;
}
// Where a node of the tree of gradients is among those that wait for their siblings; 0: a free place. -1:
// nowhere.
static int par__zero_find_node(const int *waiting, int count, int node) {
    for (int i = 0; i < count; i++)
        if (waiting[i] == node) return i;
    return -1;
}
// The most sums that wait for their siblings at a time in a step. waiting: zeros, one for each microbatch.
static int par__zero_most_waiting(const int *order, int *waiting, int m) {
    int most = 0;
    for (int i = 0, at; i < m; i++) {
        int node = m + order[i];
        for (; node > 1 && (at = par__zero_find_node(waiting, m, node ^ 1)) >= 0; node /= 2) waiting[at] = 0;
        if (node == 1) break;
        at = par__zero_find_node(waiting, m, 0);
        waiting[at] = node;
        most = PAR__MAX(most, at + 1);
    }
    return most;
}
// Which pass is of a microbatch that is out of range or has had one; m: none. seen: zeros, likewise.
static int par__zero_wrong_pass(const int *order, int *seen, int m, int *in_order) {
    *in_order = 1;
    for (int i = 0; i < m; i++) {
        if (order[i] < 0 || order[i] >= m || seen[order[i]]++) return i;
        *in_order &= order[i] == i;
    }
    return m;
}
par_result par_zero_set_order(par_zero *z, int unit, const int *order) {
    const int m = z->microbatches;
    int *copy = (int *)par__zero_alloc_zeroed((size_t)m, sizeof *copy),
        *marks = (int *)par__zero_alloc_zeroed((size_t)m, sizeof *marks), wrong = 0, in_order = 0;
    const char *why = NULL;
    if (!copy || !marks)
        why = "out of memory";
    else if (z->committed || unit < 0 || unit >= z->unit_count || z->units[unit].order)
        why = "there is no such unit, or it has an order, or par_zero_commit was called";
    else if ((wrong = par__zero_wrong_pass(order, marks, m, &in_order)) < m)
        why = "the microbatch of this pass is out of range, or has had one";
    else if (!in_order && z->desc.canonical_shards && z->sharded_gradients)
        why = "gradients are sharded: take stage 0 or 1, or accumulate_unsharded";
    else if (!in_order && z->desc.canonical_shards) {
        memset(marks, 0, (size_t)m * sizeof *marks);
        memcpy(copy, order, (size_t)m * sizeof *copy);
        z->tree_sum_count = PAR__MAX(z->tree_sum_count, par__zero_most_waiting(copy, marks, m));
        z->units[unit].order = copy;
        copy = NULL;
    }
    const par_result r = !why ? PAR_OK : copy && marks ? PAR_ERR_ARGUMENT : PAR_ERR_MEMORY;
    PAR_FREE(copy);
    PAR_FREE(marks);
    if (why) par__zero_reject(z, "par_zero_set_order", r, "unit %d, pass %d: %s", unit, wrong, why);
    return r;
}
int par_zero_add_layer(par_zero *z, const char *name, const par_parameter *parameters, int count) {
    const int unit = par_zero_add_unit(z, name);
    for (int i = 0; i < count && unit >= 0; i++) {
        const par_zero_tensor t = par_zero_tensor_of(&parameters[i]);
        if (par_zero_add_tensor(z, &t) < 0) return -1;
    }
    return unit;
}
// The first rank that failed broadcasts its error, so that all ranks return the same. Collective.
static par_result par__zero_share_error(par_zero *z, par_comm *comm, par_result r, const char *why) {
    struct {
        int32_t result;
        char why[700];
    } say;
    int32_t who = r ? par_size(comm) - par_rank(comm) : 0;
    memset(&say, 0, sizeof say);
    say.result = (int32_t)r;
    snprintf(say.why, sizeof say.why, "%s", why);
    char *site = strstr(say.why, " (called at "); // each rank appends its own call site
    if (site) *site = 0;
    PAR__ZERO_TRY(par_all_reduce(&who, &who, 1, PAR_I32, PAR_MAX, comm));
    if (!who) return PAR_OK;
    PAR__ZERO_TRY(par_broadcast(&say, &say, sizeof say, PAR_U8, par_size(comm) - who, comm));
    return PAR__ZERO_FAIL((par_result)say.result, "%s", say.why);
}
static par_zero_hyper par__zero_hyper_of(const par_zero *z, int group) { // with defaults
    par_zero_hyper h = z->desc.hyper[par__zero_is_empty_group(&z->desc, group) ? 0 : group];
    const par_zero_optimizer o = z->desc.optimizer;
    if (h.lr < 0) h.lr = 0;
    if (h.beta1 <= 0) h.beta1 = h.beta1 < 0 ? 0 : 0.9f;
    if (h.beta2 <= 0) h.beta2 = h.beta2 < 0 ? 0 : o == PAR_ZERO_LION ? 0.99f : 0.999f;
    if (h.epsilon <= 0) h.epsilon = o == PAR_ZERO_LAMB ? 1e-6f : 1e-8f;
    if (o == PAR_ZERO_MUON && h.momentum <= 0) h.momentum = 0.95f;
    return h;
}
// What must be the same on all ranks, in these lists alone: X(member of par_zero_desc, how it is printed),
// the same of par_zero_hyper, and X(what, its value) of a tensor t. Settings must be the same over
// model_parallel_comm, too, whose ranks may have other tensors. comm itself is what is compared over.
#define PAR__ZERO_SETTINGS(X)                                                                                \
    X(replica_comm, RANKS)                                                                                   \
    X(model_parallel_comm, RANKS)                                                                            \
    X(tensor_parallel_comm, RANKS)                                                                           \
    X(stage, INT)                                                                                            \
    X(parameter_server, INT)                                                                                 \
    X(accumulate_unsharded, INT)                                                                             \
    X(microbatches, INT)                                                                                     \
    X(canonical_shards, INT)                                                                                 \
    X(reduction, INT)                                                                                        \
    X(max_gathered_units, INT)                                                                               \
    X(param_dtype, DTYPE)                                                                                    \
    X(grad_dtype, DTYPE)                                                                                     \
    X(state_dtype, DTYPE)                                                                                    \
    X(muon_dtype, DTYPE)                                                                                     \
    X(optimizer, OPTIMIZER)                                                                                  \
    X(clip, FLOAT)                                                                                           \
    X(loss_scale, FLOAT)                                                                                     \
    X(loss_scale_window, INT)                                                                                \
    X(loss_scale_hysteresis, INT)                                                                            \
    X(stochastic_rounding, INT)                                                                              \
    X(ema, FLOAT)                                                                                            \
    X(seed, NUMBER)                                                                                          \
    X(quantize_parameters, INT)                                                                              \
    X(quantize_gradients, INT)                                                                               \
    X(offload_states, STORE)                                                                                 \
    X(offload_parameters, STORE)                                                                             \
    X(buddies, INT)                                                                                          \
    X(kernels, KERNELS)
#define PAR__ZERO_HYPERS(X)                                                                                  \
    X(lr, FLOAT)                                                                                             \
    X(beta1, FLOAT)                                                                                          \
    X(beta2, FLOAT)                                                                                          \
    X(epsilon, FLOAT)                                                                                        \
    X(weight_decay, FLOAT)                                                                                   \
    X(momentum, FLOAT)                                                                                       \
    X(nesterov, INT)
#define PAR__ZERO_SUM_FIELDS(X, i)                                                                           \
    X(sums[i].ranks, t->desc.sums[i].comm ? (uint64_t)par_size(t->desc.sums[i].comm) : 0)                    \
    X(sums[i].op, (uint64_t)t->desc.sums[i].op)                                                              \
    X(sums[i].first, t->desc.sums[i].first)                                                                  \
    X(sums[i].count, t->desc.sums[i].count)
#define PAR__ZERO_FIELDS(X)                                                                                  \
    X(unit, (uint64_t)t->unit)                                                                               \
    X(dims, (uint64_t)t->desc.dims)                                                                          \
    X(shape[0], t->desc.shape[0])                                                                            \
    X(shape[1], t->desc.dims > 1 ? t->desc.shape[1] : 0)                                                     \
    X(shape[2], t->desc.dims > 2 ? t->desc.shape[2] : 0)                                                     \
    X(shape[3], t->desc.dims > 3 ? t->desc.shape[3] : 0)                                                     \
    X(group, (uint64_t)t->desc.group)                                                                        \
    X(frozen, (uint64_t)t->part)                                                                             \
    X(no_decay, (uint64_t) !!t->desc.no_decay)                                                               \
    X(use_adamw, (uint64_t) !!t->desc.use_adamw)                                                             \
    X(shard, (uint64_t) !!t->desc.shard)                                                                     \
    X(shard->runs, par__zero_shard_hash(&t->shard))                                                          \
    X(tied_comm, t->desc.tied_comm ? (uint64_t)par_size(t->desc.tied_comm) : 0)                              \
    X(deviation, par__f32_to_bits(t->desc.deviation))                                                        \
    X(value, par__f32_to_bits(t->desc.value))                                                                \
    X(stream, t->desc.stream)                                                                                \
    PAR__ZERO_SUM_FIELDS(X, 0)                                                                               \
    PAR__ZERO_SUM_FIELDS(X, 1)                                                                               \
    PAR__ZERO_SUM_FIELDS(X, 2)                                                                               \
    PAR__ZERO_SUM_FIELDS(X, 3)
typedef enum par__zero_value_kind {
    PAR__ZERO_INT,
    PAR__ZERO_FLOAT,
    PAR__ZERO_NUMBER, // of 64 bits
    PAR__ZERO_DTYPE,
    PAR__ZERO_OPTIMIZER,
    PAR__ZERO_RANKS,  // a comm: how many ranks it has
    PAR__ZERO_STORE,  // where something is offloaded to
    PAR__ZERO_KERNELS // their name
} par__zero_value_kind;
typedef struct par__zero_setting {
    const char *name;
    size_t at;
    par__zero_value_kind as;
} par__zero_setting;
#define PAR__X(field, as) {#field, offsetof(par_zero_desc, field), PAR__ZERO_##as},
static const par__zero_setting par__zero_settings[] = {PAR__ZERO_SETTINGS(PAR__X)};
#undef PAR__X
#define PAR__X(field, as) {#field, offsetof(par_zero_hyper, field), PAR__ZERO_##as},
static const par__zero_setting par__zero_hypers[] = {PAR__ZERO_HYPERS(PAR__X)};
#undef PAR__X
#define PAR__X(field, value) #field,
static const char *const par__zero_fields[] = {PAR__ZERO_FIELDS(PAR__X)};
#undef PAR__X
enum {
    PAR__ZERO_SETTING_COUNT = (int)(sizeof par__zero_settings / sizeof par__zero_settings[0]),
    PAR__ZERO_HYPER_COUNT = (int)(sizeof par__zero_hypers / sizeof par__zero_hypers[0]),
    PAR__ZERO_FIELD_COUNT = (int)(sizeof par__zero_fields / sizeof par__zero_fields[0]),
    // Rows: one for each setting and hyperparameter, one for each tensor; then one for all units.
    PAR__ZERO_FIRST_TENSOR = PAR__ZERO_SETTING_COUNT + (int)PAR_ZERO_MAX_GROUPS * PAR__ZERO_HYPER_COUNT,
    PAR__ZERO_UNITS_ROW = -1
};
typedef struct par__zero_row {
    char name[160]; // of a tensor; empty: this rank has no such row. Of another row its text
    uint64_t values[PAR__ZERO_FIELD_COUNT];
} par__zero_row;
static uint64_t par__zero_mix(uint64_t hash, uint64_t x) { return (hash ^ x) * 0x100000001b3u; }
static uint64_t par__zero_shard_hash(const par_shard *s) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < s->dims; i++) hash = par__zero_mix(hash, s->global_shape[i]);
    for (int i = 0; i < s->run_count; i++) {
        const par_run *r = &s->runs[i];
        hash = par__zero_mix(par__zero_mix(hash, r->count), r->offset);
        hash = par__zero_mix(par__zero_mix(hash, r->width), r->stride);
        hash = par__zero_mix(par__zero_mix(hash, (uint64_t)r->replicas), (uint64_t)r->replica_id);
    }
    return hash & 0xffffffu; // is printed
}
static void par__zero_print_setting(const par__zero_setting *s, const void *of, char *text, size_t capacity) {
    const void *at = (const char *)of + s->at;
    switch (s->as) {
    case PAR__ZERO_INT: snprintf(text, capacity, "%d", *(const int *)at); break;
    case PAR__ZERO_FLOAT: snprintf(text, capacity, "%.9g", (double)*(const float *)at); break;
    case PAR__ZERO_NUMBER: snprintf(text, capacity, "%llu", (unsigned long long)*(const uint64_t *)at); break;
    case PAR__ZERO_DTYPE: snprintf(text, capacity, "%s", par_dtype_name(*(const par_dtype *)at)); break;
    case PAR__ZERO_OPTIMIZER:
        snprintf(text, capacity, "%s", par_zero_optimizer_name(*(const par_zero_optimizer *)at));
        break;
    case PAR__ZERO_RANKS: {
        const par_comm *comm = *(par_comm *const *)at;
        snprintf(text, capacity, comm ? "of %d ranks" : "NULL", comm ? par_size(comm) : 0);
        break;
    }
    case PAR__ZERO_STORE: {
        const char *where = *(const char *const *)at;
        snprintf(text, capacity, "%.4s", where ? where : "none"); // each rank may have a directory of its own
        break;
    }
    default: {
        const par_zero_kernels *k = *(const par_zero_kernels *const *)at;
        snprintf(text, capacity, "%s", k ? k->name : par_zero_cpu()->name);
    }
    }
}
// The setting of a row; NULL: the row of a tensor or of units. group: parameter group of the setting, or -1.
static const par__zero_setting *par__zero_setting_of(int row, int *group) {
    const int hyper = row - PAR__ZERO_SETTING_COUNT;
    *group = hyper < 0 ? -1 : hyper / PAR__ZERO_HYPER_COUNT;
    if (row < 0 || row >= PAR__ZERO_FIRST_TENSOR) return NULL;
    return hyper < 0 ? &par__zero_settings[row] : &par__zero_hypers[hyper % PAR__ZERO_HYPER_COUNT];
}
static void par__zero_print_units(const par_zero *z, char *text, size_t capacity) {
    uint64_t hash = 0xcbf29ce484222325u;
    int uses = 0;
    for (int i = 0; i < z->unit_count; i++) {
        hash = par__zero_mix(hash, (uint64_t)z->units[i].use_of);
        uses += z->units[i].use_of > 0;
    }
    snprintf(text, capacity, "%d with %d uses (%04x)", z->unit_count, uses, (unsigned)(hash & 0xffffu));
}
static void par__zero_row_of(const par_zero *z, int number, par__zero_row *row) {
    int group;
    const par__zero_setting *s = par__zero_setting_of(number, &group);
    memset(row, 0, sizeof *row);
    if (s) {
        const par_zero_hyper h = par__zero_hyper_of(z, PAR__MAX(group, 0));
        const void *of = group < 0 ? (const void *)&z->desc : (const void *)&h;
        par__zero_print_setting(s, of, row->name, sizeof row->name);
        return;
    }
    if (number == PAR__ZERO_UNITS_ROW) par__zero_print_units(z, row->name, sizeof row->name);
    number -= PAR__ZERO_FIRST_TENSOR;
    if (number < 0 || number >= z->tensor_count) return;
    const par__zero_tensor *t = &z->tensors[number];
#define PAR__X(field, value) value,
    const uint64_t values[PAR__ZERO_FIELD_COUNT] = {PAR__ZERO_FIELDS(PAR__X)};
#undef PAR__X
    memcpy(row->values, values, sizeof values);
    memcpy(row->name, t->name, sizeof row->name);
}
// Describes how this rank's row differs from rank 0's of the comm. The text has world ranks.
static void par__zero_print_difference(int number, const par__zero_row *mine, const par__zero_row *theirs,
                                       const par_comm *comm, char *why, size_t capacity) {
    char of[32] = "desc.";
    const int rank = par_world_rank(comm, par_rank(comm)), first = par_world_rank(comm, 0);
    int group, k = 0;
    const par__zero_setting *s = par__zero_setting_of(number, &group);
    if (s || number == PAR__ZERO_UNITS_ROW) {
        if (group >= 0) snprintf(of, sizeof of, "desc.hyper[%d].", group);
        snprintf(why, capacity, "%s%s is %s on rank %d and %s on rank %d: all ranks must give the same",
                 s ? of : "", s ? s->name : "the number of units", mine->name, rank, theirs->name, first);
        return;
    }
    number -= PAR__ZERO_FIRST_TENSOR;
    if (!mine->name[0] || !theirs->name[0]) {
        snprintf(why, capacity,
                 "tensor %s is on rank %d, and not on rank %d: all ranks must add the same tensors",
                 mine->name[0] ? mine->name : theirs->name, mine->name[0] ? rank : first,
                 mine->name[0] ? first : rank);
    } else if (strcmp(mine->name, theirs->name)) {
        snprintf(why, capacity,
                 "tensor number %d has the name %s on rank %d and %s on rank %d: all ranks must add the same "
                 "tensors in the same order",
                 number, mine->name, rank, theirs->name, first);
    } else {
        while (k + 1 < PAR__ZERO_FIELD_COUNT && mine->values[k] == theirs->values[k]) k++;
        const int runs = !strcmp(par__zero_fields[k], "shard->runs"); // their hash
        snprintf(why, capacity,
                 "tensor %s: %s is %llu on rank %d and %llu on rank %d: all ranks must give the same%s",
                 mine->name, par__zero_fields[k], (unsigned long long)mine->values[k], rank,
                 (unsigned long long)theirs->values[k], first,
                 runs ? "; ranks with other parts of a tensor are model_parallel_comm's" : "");
    }
}
// Have all ranks of a comm the same hash?
static par_result par__zero_is_same(par_comm *comm, uint64_t hash, int *same) {
    uint64_t pair[2] = {hash, ~hash};
    const par_result r = par_all_reduce(pair, pair, 2, PAR_U64, PAR_MAX, comm);
    return *same = pair[0] == ~pair[1], r;
}
// Checks that all ranks of a comm have the same settings and, with `tensors`, tensors: compares a checksum of
// all rows and, if it differs, each row with rank 0's.
static par_result par__zero_check_same(par_zero *z, par_comm *comm, int tensors) {
    uint64_t hash = 0xcbf29ce484222325u;
    par__zero_row mine, theirs;
    int same;
    char difference[500] = "", why[600];
    int row_count = (int)PAR__ZERO_FIRST_TENSOR + (tensors ? z->tensor_count : 0);
    for (int i = tensors ? (int)PAR__ZERO_UNITS_ROW : 0; i < row_count; i++) {
        par__zero_row_of(z, i, &mine);
        for (int k = 0; k < PAR__ZERO_FIELD_COUNT; k++) hash = par__zero_mix(hash, mine.values[k]);
        for (const char *c = mine.name; *c; c++) hash = par__zero_mix(hash, (uint64_t)(unsigned char)*c);
    }
    PAR__ZERO_TRY(par__zero_is_same(comm, hash, &same));
    if (same) return PAR_OK;
    PAR__ZERO_TRY(par_all_reduce(&row_count, &row_count, 1, PAR_I32, PAR_MAX, comm));
    for (int k = 0; k < row_count + tensors; k++) {
        const int i = k < row_count ? k : (int)PAR__ZERO_UNITS_ROW;
        par__zero_row_of(z, i, &mine);
        theirs = mine;
        PAR__ZERO_TRY(par_broadcast(&theirs, &theirs, sizeof theirs, PAR_U8, 0, comm));
        if (!difference[0] && memcmp(&mine, &theirs, sizeof mine))
            par__zero_print_difference(i, &mine, &theirs, comm, difference, sizeof difference);
    }
    snprintf(why, sizeof why, "par_zero_commit: %s", difference);
    return par__zero_share_error(z, comm, difference[0] ? PAR_ERR_MISMATCH : PAR_OK, why);
}
// Shares errors of par_zero_add_unit and par_zero_add_tensor. Also checks that no tensor has the name of a
// state.
static par_result par__zero_check_added(par_zero *z) {
    char name[PAR_FILE_NAME_BYTES];
    for (int i = 0; i < z->tensor_count && !z->add_result; i++)
        for (int k = 1; k < PAR__ZERO_STATE_KINDS; k++) {
            snprintf(name, sizeof name, "%s%s", z->tensors[i].name, par__zero_state_suffix[k]);
            if (z->has_state[k] && !z->tensors[i].part && *par__zero_name_slot(z, name))
                par__zero_reject(z, "par_zero_commit", PAR_ERR_ARGUMENT,
                                 "tensor %s has the name under which a state of tensor %s is saved", name,
                                 z->tensors[i].name);
        }
    if (!z->add_result) return PAR_OK;
    if (z->ranks * z->replica_count == 1 && !z->desc.model_parallel_comm)
        return PAR__ZERO_FAIL(z->add_result, "par_zero_commit: %s", z->add_error);
    return PAR__ZERO_FAIL(z->add_result, "par_zero_commit: on rank %d, %s",
                          par_world_rank(z->desc.comm, z->rank), z->add_error);
}
static uint64_t par__zero_triangle(uint64_t n) { // 0 + 1 + ... n - 1
    return n % 2 ? (n - 1) / 2 * n : n / 2 * (n - 1);
}
// Do the ranks of tensor_parallel_comm have the same tensors, and, of those that are updated as a whole and
// of which they have parts, each element once? Without canonical_shards several may have one, as of
// key-value heads that they share.
static par_result par__zero_check_parts(par_zero *z) {
    par_comm *const comm = z->desc.tensor_parallel_comm;
    uint64_t hash = (uint64_t)z->tensor_count, alike = 0;
    int same;
    if (!comm) return PAR_OK;
    for (int i = 0; i < z->tensor_count; i++) {
        const par__zero_tensor *t = &z->tensors[i];
        hash = par__zero_mix(hash, par__zero_name_hash(t->name)) ^ t->split;
        // Their comms cannot find that a rank has none: it would not take part.
        for (int k = 0; k < PAR_MAX_SUMS && !t->part; k++) hash = par__zero_mix(hash, t->desc.sums[k].count);
        alike = par__zero_mix(par__zero_mix(alike, t->offset), t->count) ^ z->units[t->unit].count[0];
    }
    PAR__ZERO_TRY(par__zero_is_same(comm, alike, &z->parts_alike));
    PAR__ZERO_TRY(par__zero_is_same(comm, hash, &same));
    if (!same)
        return PAR__ZERO_FAIL(PAR_ERR_MISMATCH,
                              "par_zero_commit: the ranks of tensor_parallel_comm must have "
                              "the same tensors in the same order, each in parts on all ranks or "
                              "on none, with the same sums");
    for (int i = 0; i < z->tensor_count; i++) {
        const par__zero_tensor *t = &z->tensors[i];
        uint64_t sums[2] = {0, 0}; // of elements, and of their numbers in the whole tensor
        if (!t->whole && !par__zero_updates_whole(z, t)) continue;
        size_t at = 0, until = 0, n, number;
        for (int k = 0; k < t->shard.run_count; k++) {
            const int counts = t->whole || par__zero_is_first(t, &t->shard.runs[k]);
            for (until += t->shard.runs[k].count; at < until; at += n) {
                n = par_shard_find(&t->shard, at, &number, NULL);
                sums[0] += counts ? n : 0;
                sums[1] += counts ? n * number + par__zero_triangle(n) : 0;
            }
        }
        PAR__ZERO_TRY(par_all_reduce(sums, sums, 2, PAR_U64, PAR_SUM, comm));
        if (sums[0] != t->split || sums[1] != par__zero_triangle(t->split))
            return PAR__ZERO_FAIL(PAR_ERR_MISMATCH,
                                  "par_zero_commit: tensor %s: the ranks of tensor_parallel_comm must have "
                                  "each of its %zu elements once",
                                  t->name, t->split);
    }
    return PAR_OK;
}
// Do the ranks of each comm over which gradients are summed have the same sums in the same order? After a
// difference the other comms go on, because some of their ranks do not know of it.
static par_result par__zero_check_partial_sums(par_zero *z) {
    par_result r = PAR_OK;
    for (int k = 0; k < z->sum_comm_count; k++) {
        uint64_t hash = 0xcbf29ce484222325u;
        int same;
        for (int i = 0; i < z->tensor_count; i++)
            for (int j = 0; j < PAR_MAX_SUMS && !z->tensors[i].part; j++) {
                const par_partial_sum *s = &z->tensors[i].desc.sums[j];
                if (s->comm != z->sum_comms[k]) continue;
                hash = par__zero_mix(hash, par__zero_name_hash(z->tensors[i].name));
                hash = par__zero_mix(par__zero_mix(hash, s->count), (uint64_t)s->op);
            }
        PAR__ZERO_TRY(par__zero_is_same(z->sum_comms[k], hash, &same));
        if (!same)
            r = PAR__ZERO_FAIL(
                PAR_ERR_MISMATCH,
                "par_zero_commit: the ranks of a comm over which partial sums of gradients are "
                "added (par_zero_tensor.sums) must have the same ones in the same order, "
                "with the same counts and operations");
    }
    return r;
}
// An error of any rank becomes the error of all.
static par_result par__zero_agree(par_zero *z, par_result r) {
    par_comm *const comms[3] = {z->desc.comm, z->desc.replica_comm, z->desc.model_parallel_comm};
    for (int i = 0; i < 3; i++)
        if (comms[i]) r = par__zero_share_error(z, comms[i], r, par_last_error(z->desc.comm));
    return r;
}
static par_result par__zero_check_same_all(par_zero *z) {
    par_comm *const comms[3] = {z->desc.comm, z->desc.replica_comm, z->desc.model_parallel_comm};
    PAR__ZERO_TRY(par__zero_agree(z, par__zero_check_added(z)));
    for (int i = 0; i < 3; i++)
        PAR__ZERO_TRY(par__zero_agree(z, comms[i] ? par__zero_check_same(z, comms[i], i < 2) : PAR_OK));
    PAR__ZERO_TRY(par__zero_agree(z, par__zero_check_parts(z)));
    return par__zero_agree(z, par__zero_check_partial_sums(z));
}
// Allocates, and adds the bytes to the tally. symmetric: memory that collectives use, of the same size on all
// ranks.
static char *par__zero_alloc(par_zero *z, size_t bytes, int symmetric, size_t *tally) {
    void *memory = NULL;
    const par_result r = symmetric && z->device->alloc_symmetric
                             ? z->device->alloc_symmetric(z->device, z->desc.comm, bytes, &memory)
                             : z->device->alloc(z->device, PAR__MAX(bytes, (size_t)64), &memory);
    if (r) memory = NULL;
    if (memory) *tally += bytes;
    return (char *)memory;
}
// Allocates whole pages, for O_DIRECT.
static char *par__zero_alloc_pages(par_zero *z, size_t bytes) {
    void *memory = NULL;
    if (!z->on_cpu) return par__zero_alloc(z, bytes, 0, &z->allocated.window_bytes);
    if (posix_memalign(&memory, 4096, bytes)) return NULL;
    z->allocated.window_bytes += bytes;
    return (char *)memset(memory, 0, bytes);
}
static void par__zero_free(par_zero *z, void *memory, int symmetric) {
    if (memory && symmetric && z->device->free_symmetric)
        z->device->free_symmetric(z->device, z->desc.comm, memory);
    else if (memory)
        z->device->free(z->device, memory);
}
static void *par__zero_alloc_small(par_zero *z, size_t bytes) { // not counted
    size_t tally = 0;
    return par__zero_alloc(z, bytes, 0, &tally);
}
enum { PAR__ZERO_DIGITS = 20 }; // of an exact sum, see >>zero_norm
static int par__zero_has_exact_lamb(const par_zero *z) {
    return z->desc.optimizer == PAR_ZERO_LAMB && z->desc.canonical_shards && z->kernels->canonical;
}
static size_t par__zero_sum_count(const par_zero *z) {
    return PAR__MAX((size_t)z->unit_count, 2 * (size_t)z->tensor_count) * z->pieces + 1;
}
static int par__zero_allocate_pool(par_zero *z, int trained, par__zero_pool *p, size_t element, int packs,
                                   int bits, size_t *tally) { // 0: out of memory
    int ok = 1;
    par__zero_size_pool(z, trained, p);
    for (int i = 0; i < p->count; i++) {
        const size_t n = par__zero_slot_elements(p, i), quantized = par__zero_quantized_bytes(bits, n);
        p->slots[i].unit = -1;
        ok &= (p->slots[i].memory = par__zero_alloc(z, n * element, 1, tally)) != NULL;
        for (int k = 0; k < packs && bits; k++)
            ok &= (p->slots[i].quantized[k] = par__zero_alloc(z, quantized, 1, tally)) != NULL;
    }
    return ok;
}
// What buddies add. 0: out of memory.
static int par__zero_allocate_buddy(par_zero *z, const par__zero_sizes *s) {
    const size_t n = (size_t)z->ranks;
    size_t *tally = &z->allocated.buddy_bytes;
    const int keeps = par__zero_keeps_directions(z, s), ward = par__zero_has_ward(z);
    int ok = 1;
    for (int i = 0; i < 1 + ward && keeps; i++)
        ok &= (*(i ? &z->ward_directions : &z->directions) =
                   (float *)(void *)par__zero_alloc(z, s->updated * sizeof(float), 1, tally)) != NULL;
    if (!ward) return ok;
    ok &=
        (z->ward_parameters = par__zero_alloc(z, s->total / n * par__zero_param_bytes(z), 0, tally)) != NULL;
    ok &=
        (z->ward_gradients = par__zero_alloc(z, s->trained / n * par__zero_grad_bytes(z), 1, tally)) != NULL;
    for (int i = 0; i < PAR__ZERO_STATE_KINDS; i++)
        if (z->has_state[i])
            ok &= (z->ward_states[i] =
                       par__zero_alloc(z, par__zero_state_bytes(z, i, s->updated), 0, tally)) != NULL;
    return ok;
}
static int par__zero_allocate(par_zero *z) { // 0: out of memory
    const par__zero_sizes s = par__zero_total_sizes(z);
    const size_t n = (size_t)z->ranks, e = par__zero_param_bytes(z), ge = par__zero_grad_bytes(z);
    const size_t gradients = (z->sharded_gradients ? s.trained / n : s.trained) * ge;
    par_zero_plan *a = &z->allocated;
    int ok = 1;
    if (!z->parameter_store.kind)
        ok &= (z->parameters = par__zero_alloc(z, (z->sharded_parameters ? s.total / n : s.total) * e, 1,
                                               &a->parameter_bytes)) != NULL;
    ok &= (z->gradients = par__zero_alloc(z, gradients, 1, &a->gradient_bytes)) != NULL;
    z->tree_sums = (char **)par__zero_alloc_zeroed((size_t)z->tree_sum_count, sizeof *z->tree_sums);
    z->tree_nodes = (int *)par__zero_alloc_zeroed((size_t)(z->tree_sum_count * z->unit_count), sizeof(int));
    if (!z->tree_sums || !z->tree_nodes) return 0;
    for (int i = 0; i < z->tree_sum_count; i++)
        ok &= (z->tree_sums[i] = par__zero_alloc(z, gradients, 0, &a->tree_sum_bytes)) != NULL;
    for (int i = 0; i < PAR__ZERO_STATE_KINDS; i++)
        if (z->has_state[i] && !z->state_store.kind)
            ok &= (z->states[i] = par__zero_alloc(z, par__zero_state_bytes(z, i, s.updated), 0,
                                                  &a->state_bytes)) != NULL;
    for (int i = 0; i < PAR__ZERO_WINDOWS && par__zero_window_bytes(z, &s); i++)
        ok &= (z->windows[i] = par__zero_alloc_pages(z, par__zero_window_bytes(z, &s))) != NULL;
    if (z->sharded_parameters)
        ok &= par__zero_allocate_pool(z, 0, &z->gathered_parameters, e, 1, z->desc.quantize_parameters,
                                      &a->gathered_parameter_bytes);
    if (z->sharded_gradients)
        ok &= par__zero_allocate_pool(z, 1, &z->unsharded_gradients, ge, 2, z->desc.quantize_gradients,
                                      &a->unsharded_gradient_bytes);
    if (s.matrix) {
        for (int i = 0; i < 2 && s.split; i++)
            ok &= (z->muon_whole[i] = (float *)(void *)par__zero_alloc(z, s.split * 4, 0, &a->muon_bytes)) !=
                  NULL;
        ok &= (z->gathered_momentum =
                   (float *)(void *)par__zero_alloc(z, s.matrix_unit * 4, 1, &a->muon_bytes)) != NULL;
        for (int i = 0; i < 4; i++)
            ok &= (z->muon_scratch[i] =
                       par__zero_alloc(z, (i < 2 ? s.matrix : s.side) * par_dtype_bytes(z->desc.muon_dtype),
                                       0, &a->muon_bytes)) != NULL;
    }
    const size_t scales = 4 * z->block_count * sizeof *z->block_scales;
    if (scales)
        ok &= (z->block_scales = (float *)(void *)par__zero_alloc(z, scales, 0, &a->state_bytes)) != NULL;
    if (scales && !z->on_cpu) ok &= (z->host_scales = (float *)PAR_MALLOC(scales)) != NULL;
    if (par__zero_has_exact_lamb(z))
        ok &= (z->lamb_digits = (uint64_t *)PAR_MALLOC((size_t)z->tensor_count * sizeof *z->lamb_digits * 2 *
                                                       PAR__ZERO_DIGITS)) != NULL &&
              (z->lamb_steps = (float *)par__zero_alloc_small(z, PAR__ZERO_STAGING * sizeof(float))) != NULL;
    z->sums = (double *)par__zero_alloc_small(z, par__zero_sum_count(z) * sizeof(double));
    z->trust_ratios = (float *)par__zero_alloc_small(z, ((size_t)z->tensor_count + 1) * sizeof(float));
    ok &= par__zero_allocate_buddy(z, &s);
    z->control = (par_zero_control *)par__zero_alloc_small(z, 2 * sizeof *z->control);
    z->before = z->control ? z->control + 1 : NULL;
    z->one = (float *)par__zero_alloc_small(z, sizeof *z->one);
    void *staging = NULL;
    if (!z->on_cpu && z->device->alloc_host(z->device, PAR__ZERO_STAGING * sizeof(float), &staging)) ok = 0;
    z->staging = (float *)staging;
    return ok && z->sums && z->trust_ratios && z->control && z->one;
}
// Copies between host and device memory; the host waits.
static par_result par__zero_copy_sync(const par_zero *z, void *to, const void *from, size_t bytes) {
    PAR__ZERO_TRY(z->device->copy(z->device, to, from, bytes, NULL));
    return z->on_cpu ? PAR_OK : z->device->stream_sync(z->device, NULL);
}
// Gives the host a pointer to the first *n of `left` elements in device memory, valid until the next call.
static par_result par__zero_read_staged(par_zero *z, const void *there, size_t element, size_t left,
                                        size_t *n, const void **here) {
    *n = left;
    *here = there;
    if (z->on_cpu) return PAR_OK;
    *n = PAR__MIN((size_t)PAR__ZERO_STAGING, left);
    *here = z->staging;
    return par__zero_copy_sync(z, z->staging, there, *n * element);
}
static par_zero_control par__zero_control_get(const par_zero *z) {
    par_zero_control c = z->initial_control;
    if (z->control && par__zero_copy_sync(z, &c, z->control, sizeof c)) return z->initial_control;
    return c;
}
static par_result par__zero_control_set(par_zero *z, const par_zero_control *c) {
    z->initial_control = *c;
    return z->control ? par__zero_copy_sync(z, z->control, c, sizeof *c) : PAR_OK;
}
static par_result par__zero_open_stores(par_zero *z) {
    const par__zero_sizes s = par__zero_total_sizes(z);
    const int pages = par__zero_states_bytes(z, PAR__ZERO_PAGE_ELEMENTS) % 4096 == 0;
    PAR__ZERO_TRY(par__zero_store_open(z, &z->state_store, par__zero_states_bytes(z, s.offloaded), pages));
    return par__zero_store_open(z, &z->parameter_store, s.total / (size_t)z->ranks * par__zero_param_bytes(z),
                                0);
}
// The buddy of a rank is the one that is so many further in comm: the least number for which the most ranks
// have theirs on another node. So all ranks have one buddy and one ward each.
static int par__zero_buddy_distance(const par_comm *comm) {
    const int n = par_size(comm);
    int best = 1, most = -1;
    for (int distance = 1; distance < n && most < n; distance++) {
        int away = 0;
        for (int r = 0; r < n; r++) away += par_node_of(comm, r) != par_node_of(comm, (r + distance) % n);
        if (away <= most) continue;
        most = away;
        best = distance;
        if (par_node_count(comm) == 1) break;
    }
    return best;
}
// Compares what all ranks have, and allocates. Collective.
static par_result par__zero_build(par_zero *z) {
    PAR__ZERO_TRY(par__zero_check_same_all(z));
    z->committed = 1;
    if (par__zero_has_ward(z)) {
        const int distance = par__zero_buddy_distance(z->desc.comm);
        z->buddy = (z->rank + distance) % z->ranks;
        z->ward = (z->rank + z->ranks - distance) % z->ranks;
        z->stale = 1;
    }
    par_result r = par__zero_allocate(z) ? par__zero_open_stores(z) : PAR_ERR_MEMORY;
    if (!r) r = par__zero_control_set(z, &z->initial_control);
    const float one = 1;
    if (!r) r = par__zero_copy_sync(z, z->one, &one, sizeof one);
    int failed = r != PAR_OK;
    // all ranks that hold a matrix compute Muon's products, and must get the same bits
    if (z->desc.optimizer == PAR_ZERO_MUON && z->on_cpu && !z->desc.canonical_shards)
        PAR__ZERO_TRY(par_gemm_select(NULL, 0, z->desc.comm));
    PAR__ZERO_TRY(par_all_reduce(&failed, &failed, 1, PAR_I32, PAR_MAX, z->desc.comm));
    if (r && r != PAR_ERR_MEMORY) return r; // the text is set already
    for (int i = 0; i < z->tensor_count && !failed; i++)
        if (z->tensors[i].desc.owned) *z->tensors[i].desc.owned = 1;
    for (int i = 0; i < z->unit_count && !failed; i++)
        if (z->units[i].use_owned) *z->units[i].use_owned = 1;
    return failed ? PAR__ZERO_FAIL(PAR_ERR_MEMORY,
                                   "par_zero_commit: out of memory for the model's states on some rank; see "
                                   "par_zero_plan_print")
                  : PAR_OK;
}
par_result par_zero_commit(par_zero *z) {
    if (!z->desc.comm)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                              "par_zero_commit: desc.comm is NULL: such a context can only plan");
    if (z->committed) return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_commit: called twice");
    return par__zero_build(z);
}
par_zero_plan par_zero_allocated(const par_zero *z) {
    par_zero_plan p = z->allocated;
    return par__zero_sum_buffers(&p), p;
}
static void par__zero_close_pool(par_zero *z, par__zero_pool *p, int symmetric) {
    for (int i = 0; i < p->count; i++) {
        if (symmetric) par__zero_free(z, p->slots[i].memory, 1);
        for (int k = 0; k < 2 && symmetric; k++) par__zero_free(z, p->slots[i].quantized[k], 1);
    }
}
// Waits for everything in flight, whose errors do not matter any more.
static void par__zero_wait_all(par_zero *z) {
    par__zero_pool *const pools[2] = {&z->gathered_parameters, &z->unsharded_gradients};
    for (int i = 0; i < z->unit_count; i++) {
        par__zero_unit *u = &z->units[i];
        par_wait(&u->reduction);
        par_wait(&u->replica_reduction);
        par_wait(&u->param_gather);
        par_wait_all(u->to_buddy, 2);
        par_wait_all(u->from_ward, 2);
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < pools[k]->count; i++) par_wait_all(pools[k]->slots[i].requests, 2);
}
// Frees all that par__zero_build has allocated. symmetric = 0: but for a CPU's symmetric memory, which is
// freed when its comm is closed.
static void par__zero_free_all(par_zero *z, int symmetric) {
    symmetric |= !z->on_cpu;
    char *const shared[] = {z->parameters,     z->gradients,          (char *)z->gathered_momentum,
                            z->ward_gradients, (char *)z->directions, (char *)z->ward_directions};
    par__zero_close_pool(z, &z->gathered_parameters, symmetric);
    par__zero_close_pool(z, &z->unsharded_gradients, symmetric);
    for (size_t i = 0; i < sizeof shared / sizeof *shared && symmetric; i++) par__zero_free(z, shared[i], 1);
    for (int i = 0; i < z->tree_sum_count && z->tree_sums; i++) par__zero_free(z, z->tree_sums[i], 0);
    PAR_FREE(z->tree_sums);
    PAR_FREE(z->tree_nodes);
    for (int i = 0; i < 4; i++) par__zero_free(z, z->muon_scratch[i], 0);
    for (int i = 0; i < 2; i++) par__zero_free(z, z->muon_whole[i], 0);
    par__zero_free(z, z->block_scales, 0);
    PAR_FREE(z->host_scales);
    PAR_FREE(z->lamb_digits);
    par__zero_free(z, z->lamb_steps, 0);
    for (int i = 0; i < PAR__ZERO_STATE_KINDS; i++) {
        par__zero_free(z, z->states[i], 0);
        par__zero_free(z, z->ward_states[i], 0);
    }
    par__zero_free(z, z->ward_parameters, 0);
    par__zero_io_close(z);
    par__zero_store_close(z, &z->state_store);
    par__zero_store_close(z, &z->parameter_store);
    for (int i = 0; i < PAR__ZERO_WINDOWS; i++)
        z->on_cpu ? free(z->windows[i]) : par__zero_free(z, z->windows[i], 0);
    par__zero_free(z, z->sums, 0);
    par__zero_free(z, z->trust_ratios, 0);
    par__zero_free(z, z->control, 0);
    par__zero_free(z, z->one, 0);
    if (z->staging) z->device->free_host(z->device, z->staging);
}
static void par__zero_drop_next(par_zero *z);
par_result par_zero_close(par_zero *z) {
    if (!z) return PAR_OK;
    const par_result saved = par_zero_unlock(z);
    par__zero_drop_next(z);
    par__zero_wait_all(z);
    par__zero_free_all(z, 1);
    for (int i = 0; i < z->unit_count; i++) PAR_FREE(z->units[i].order);
    PAR_FREE(z->units);
    PAR_FREE(z->tensors);
    PAR_FREE(z->names);
    PAR_FREE(z);
    return saved;
}

// >>zero_gather ---------------------------------------------------------------------------------------------
//
// Stage 3. A unit is gathered while it is in a slot whose use_count is above 0:
//     forward_begin(i)    wait for i, begin to gather i + 1   slots: [i] [i + 1]
//     forward_end(i)      free the slot of i                  slots: [ ] [i + 1]
// Backward runs in reverse order; the gather of i - 1 is issued before the reduce-scatter of i's gradients.

static par_comm *par__zero_unit_comm(par_zero *z, int unit,
                                     int what) { // comm, tagged with the unit's name and number
    par_tag(z->desc.comm, PAR__ZERO_SITES * unit + what + 1);
    return par__in_named_layer(z->desc.comm, z->units[unit].site[what]);
}
static par__zero_slot *par__zero_slot_of(par__zero_pool *p, int unit) { // the slot that has the unit, or NULL
    for (int i = 0; i < p->count; i++)
        if (p->slots[i].unit == unit) return &p->slots[i];
    return NULL;
}
static int par__zero_slots_in_use(const par__zero_pool *p) { // number of slots in use
    int held = 0;
    for (int i = 0; i < p->count; i++) held += p->slots[i].use_count > 0;
    return held;
}
// A slot for the unit; there is one if fewer than max_gathered_units are in use. ahead: prefetch, which takes
// only an empty slot; NULL: there is none.
static par__zero_slot *par__zero_free_slot(par__zero_pool *p, int unit, int ahead) {
    int first = p->dedicated_count, end = p->count;
    for (int i = 0; i < p->dedicated_count; i++)
        if (p->owner[i] == unit) {
            first = i;
            end = i + 1;
        }
    for (int i = first; i < end; i++)
        if (p->slots[i].unit < 0) return &p->slots[i];
    for (int i = first; i < end; i++)
        if (!p->slots[i].use_count && !ahead) return &p->slots[i];
    return NULL;
}
// Offset of this rank's shard of a part in its parameters.
static size_t par__zero_shard_at(const par_zero *z, const par__zero_unit *u, int part) {
    return u->shard_offset + (part ? par__zero_shard_count(z, u, 0) : 0);
}
static par_result par__zero_gather_begin(par_zero *z, par__zero_slot *s, int what) {
    const par__zero_unit *u = &z->units[s->unit];
    const size_t e = par__zero_param_bytes(z);
    const int bits = z->desc.quantize_parameters;
    s->dequantized = 0;
    for (int part = 0; part < 2; part++) {
        const size_t n = par__zero_shard_count(z, u, part);
        char *whole = s->memory + (part ? u->count[0] : 0) * e;
        const char *mine = z->parameters ? z->parameters + par__zero_shard_at(z, u, part) * e
                                         : whole + n * (size_t)z->rank * e;
        if (!n) continue;
        if (!bits) {
            PAR__ZERO_TRY((par_all_gather_begin)(mine, whole, n, z->desc.param_dtype,
                                                 par__zero_unit_comm(z, s->unit, what), &s->requests[part]));
            continue;
        }
        const size_t bytes = par__zero_quantized_bytes(bits, n);
        char *quantized = s->quantized[0] + (part ? par__zero_quantized_bytes(bits, u->count[0]) : 0);
        char *to = quantized + bytes * (size_t)z->rank;
        PAR__ZERO_TRY(z->kernels->quantize(z->kernels, bits, n, mine, z->desc.param_dtype, to));
        PAR__ZERO_TRY((par_all_gather_begin)(to, quantized, bytes, PAR_U8,
                                             par__zero_unit_comm(z, s->unit, what), &s->requests[part]));
    }
    return PAR_OK;
}
// Waits for the gather into a slot, and dequantizes.
static par_result par__zero_gather_end(par_zero *z, par__zero_slot *s) {
    const int bits = z->desc.quantize_parameters;
    PAR__ZERO_TRY(par_wait_all(s->requests, 2));
    if (!bits || s->dequantized) return PAR_OK;
    s->dequantized = 1; // both parts are contiguous, quantized and not
    return z->kernels->dequantize(z->kernels, bits, par__zero_unit_count(&z->units[s->unit]), s->quantized[0],
                                  s->memory, z->desc.param_dtype);
}
// Starts to bring a unit into a slot: offloaded shards are read to their place first, and gathered when the
// slot is acquired.
static par_result par__zero_fetch_begin(par_zero *z, par__zero_slot *s, int unit, int what) {
    const par__zero_unit *u = &z->units[unit];
    const size_t e = par__zero_param_bytes(z);
    s->unit = unit;
    s->use_count = 0;
    s->fetch_transfers[0] = s->fetch_transfers[1] = 0;
    if (!z->parameter_store.kind) return par__zero_gather_begin(z, s, what);
    for (int part = 0; part < 2; part++) {
        const size_t n = par__zero_shard_count(z, u, part),
                     at = (part ? u->count[0] : 0) + n * (size_t)z->rank;
        if (n)
            s->fetch_transfers[part] = par__zero_transfer_begin(z, &z->parameter_store, s->memory + at * e,
                                                                par__zero_shard_at(z, u, part) * e, n * e, 0);
    }
    return s->fetching = 1, PAR_OK;
}
static par_result par__zero_fetch_end(par_zero *z, par__zero_slot *s) {
    if (!s->fetching) return PAR_OK;
    s->fetching = 0;
    PAR__ZERO_TRY(par__zero_transfer_wait(z, s->fetch_transfers[0]));
    return par__zero_transfer_wait(z, s->fetch_transfers[1]);
}
static par_result par__zero_acquire(par_zero *z, int unit, int next, int what) {
    par__zero_pool *p = &z->gathered_parameters;
    unit = par__zero_owner(z, unit);
    next = par__zero_owner(z, next);
    par__zero_slot *s = par__zero_slot_of(p, unit);
    const int in_use = s && s->use_count;
    if (!in_use && par__zero_slots_in_use(p) >= z->desc.max_gathered_units)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                              "%s: %d other units are whole already, and have not been ended: end them, or "
                              "allow more by max_gathered_units",
                              z->units[unit].site[what], z->desc.max_gathered_units);
    if (!s) {
        s = par__zero_free_slot(p, unit, 0);
        PAR__ZERO_TRY(par_wait_all(s->requests, 2));
        PAR__ZERO_TRY(par__zero_fetch_end(z, s));
        PAR__ZERO_TRY(par__zero_fetch_begin(z, s, unit, what));
    }
    if (s->fetching) {
        PAR__ZERO_TRY(par__zero_fetch_end(z, s));
        PAR__ZERO_TRY(par__zero_gather_begin(z, s, what));
    }
    s->use_count++;
    PAR__ZERO_TRY(par__zero_gather_end(z, s));
    if (in_use || next < 0 || next >= z->unit_count || par__zero_slot_of(p, next)) return PAR_OK;
    par__zero_slot *spare = par__zero_free_slot(p, next, 1);
    return spare ? par__zero_fetch_begin(z, spare, next, what) : PAR_OK;
}
static void par__zero_release(par_zero *z, int unit) {
    par__zero_slot *s = par__zero_slot_of(&z->gathered_parameters, par__zero_owner(z, unit));
    if (s && --s->use_count == 0) s->unit = -1;
}

static par_result par__zero_check_unit(par_zero *z, const char *call, int unit) {
    if (z->committed && unit >= 0 && unit < z->unit_count) return PAR_OK;
    return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "%s: there is no unit %d, or par_zero_commit was not called",
                          call, unit);
}
static par_result par__zero_not_begun(par_zero *z, const char *call, int unit) {
    return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "%s: unit %s was not begun", call, z->units[unit].name);
}
// The gradients of a unit to which backward adds; NULL: they are sharded now.
static char *par__zero_unit_gradients(par_zero *z, int unit) {
    if (!z->sharded_gradients) return z->gradients + z->units[unit].grad_offset * par__zero_grad_bytes(z);
    const par__zero_slot *s = par__zero_slot_of(&z->unsharded_gradients, unit);
    return s && s->use_count ? s->memory : NULL;
}
static par_result par__zero_bind(par_zero *z, int unit) { // tells the program where a unit's tensors are now
    const par__zero_unit *u = &z->units[unit];
    if (u->use_data) *u->use_data = par_zero_data(z, z->units[u->use_of - 1].first);
    if (u->use_grad) *u->use_grad = (float *)(void *)par__zero_unit_gradients(z, unit);
    for (int i = u->first; i < u->last; i++) {
        const par_zero_tensor *t = &z->tensors[i].desc;
        if (t->data) *t->data = par_zero_data(z, i);
        if (t->grad) *t->grad = par_zero_grad(z, i);
    }
    return PAR_OK;
}
par_result par_zero_forward_begin(par_zero *z, int unit) {
    PAR__ZERO_TRY(par__zero_check_unit(z, "par_zero_forward_begin", unit));
    PAR__ZERO_TRY(par_wait(&z->units[par__zero_owner(z, unit)].param_gather));
    const int within = z->units[unit].open_backwards > 0; // recomputation: the next unit is not needed next
    if (z->sharded_parameters)
        PAR__ZERO_TRY(par__zero_acquire(z, unit, within ? -1 : unit + 1, PAR__ZERO_FORWARD));
    z->units[unit].open_forwards++;
    return par__zero_bind(z, unit);
}
par_result par_zero_forward_end(par_zero *z, int unit) {
    PAR__ZERO_TRY(par__zero_check_unit(z, "par_zero_forward_end", unit));
    if (!z->units[unit].open_forwards) return par__zero_not_begun(z, "par_zero_forward_end", unit);
    if (z->sharded_parameters) par__zero_release(z, unit);
    z->units[unit].open_forwards--;
    return par__zero_bind(z, unit);
}
void *par_zero_data(par_zero *z, int tensor) {
    if (tensor < 0 || tensor >= z->tensor_count) return NULL;
    const par__zero_tensor *t = &z->tensors[tensor];
    par__zero_unit *u = &z->units[t->unit];
    const size_t e = par__zero_param_bytes(z), at = t->offset + (t->part ? u->count[0] : 0);
    if (!z->committed || par_wait(&u->param_gather)) return NULL;
    if (!z->sharded_parameters) return z->parameters + (u->unsharded_offset + at) * e;
    const par__zero_slot *s = par__zero_slot_of(&z->gathered_parameters, t->unit);
    return s && s->use_count ? s->memory + at * e : NULL;
}

// >>zero_reduce ---------------------------------------------------------------------------------------------
//
// Stages 0 and 1: microbatches add to one unsharded array, which is reduced after the last one. Stages 2 and
// 3: each microbatch has a slot, which is reduce-scattered and then added to the shards. Canonical sums form
// a binary tree: node 1 is the sum of this rank's m microbatches, node k that of 2k and 2k + 1, and
// microbatch j is node m + j. A sum whose sibling is not there yet waits in one of the partial sums. In the
// order of microbatches these are a binary counter; any other order adds the same pairs.
//     stages 0, 1    microbatch number = rank x m + j             ranks are the upper levels of the tree
//     stages 2, 3    microbatch number = (group x m + j) x n + rank     ... the lower, groups the upper ones

uint64_t par_zero_global_microbatch(const par_zero *z, int i) {
    const uint64_t n = (uint64_t)z->ranks, m = (uint64_t)z->microbatches, j = (uint64_t)i;
    const uint64_t group = (uint64_t)z->replica, rank = (uint64_t)z->rank;
    if (i < 0 || j >= m) return UINT64_MAX;
    return z->sharded_gradients ? (group * m + j) * n + rank : (group * n + rank) * m + j;
}
static par_op par__zero_op(const par_zero *z) { return z->desc.canonical_shards ? PAR_TREE_SUM : PAR_SUM; }
static par_result par__zero_add_gradients(par_zero *z, void *sum, const void *x, size_t n) {
    const void *sources[2] = {sum, x};
    return z->device->reduce(z->device, sum, sources, 2, n, z->desc.grad_dtype, PAR_SUM, NULL);
}
// Accumulates gradients x of the unit's last backward pass into elements [at, at + n) of z->gradients, or of
// the partial sums. After the last pass of the step the sum is in z->gradients.
static par_result par__zero_accumulate(par_zero *z, const par__zero_unit *u, char *x, size_t at, size_t n) {
    const size_t e = par__zero_grad_bytes(z), bytes = n * e;
    const int pass = u->microbatches_done - 1, sums = z->tree_sum_count;
    char *sum = z->gradients + at * e;
    if (!z->desc.canonical_shards) {
        if (x == sum) return PAR_OK; // backward has added to it
        if (pass) return par__zero_add_gradients(z, sum, x, n);
        return z->device->copy(z->device, sum, x, bytes, NULL);
    }
    int *nodes = z->tree_nodes + (u - z->units) * sums,
        node = z->microbatches + (u->order ? u->order[pass] : pass);
    for (int i; node > 1 && (i = par__zero_find_node(nodes, sums, node ^ 1)) >= 0; node /= 2, nodes[i] = 0)
        PAR__ZERO_TRY(par__zero_add_gradients(z, x, z->tree_sums[i] + at * e, n));
    if (node > 1) {
        const int i = par__zero_find_node(nodes, sums, 0);
        nodes[i] = node;
        sum = z->tree_sums[i] + at * e;
    }
    return sum != x ? z->device->copy(z->device, sum, x, bytes, NULL) : PAR_OK;
}
// This rank's part of a unit's reduced gradients.
static char *par__zero_sum_of(const par_zero *z, const par__zero_unit *u, size_t *first, size_t *count) {
    const size_t e = par__zero_grad_bytes(z);
    *count = par__zero_updated_count(z, u, first);
    return z->gradients + (z->sharded_gradients ? u->grad_shard_offset : u->grad_offset + *first) * e;
}
// Sharded gradients: waits for the slot's reduce-scatter, and accumulates the result into the shards.
static par_result par__zero_drain_slot(par_zero *z, par__zero_slot *s) {
    if (s->unit < 0 || s->use_count) return PAR_OK;
    const par__zero_unit *u = &z->units[s->unit];
    const size_t n = par__zero_shard_count(z, u, 0);
    PAR__ZERO_TRY(par_wait(&s->requests[0]));
    char *mine = s->memory + n * (size_t)z->rank * par__zero_grad_bytes(z);
    if (z->desc.quantize_gradients && n)
        PAR__ZERO_TRY(z->kernels->sum_quantized(z->kernels, z->desc.quantize_gradients, z->ranks,
                                                z->desc.canonical_shards > 0, n, s->quantized[1], mine,
                                                z->desc.grad_dtype));
    s->unit = -1;
    return n ? par__zero_accumulate(z, u, mine, u->grad_shard_offset, n) : PAR_OK;
}
// Stages 0 and 1: starts the reduction of a unit's gradients after its last microbatch.
static par_result par__zero_reduce_begin(par_zero *z, int unit) {
    par__zero_unit *u = &z->units[unit];
    const par_dtype type = z->desc.grad_dtype;
    const par_op op = par__zero_op(z);
    const size_t shard = par__zero_shard_count(z, u, 0), e = par__zero_grad_bytes(z);
    char *x = z->gradients + u->grad_offset * e;
    if (z->ranks == 1 || !u->count[0]) return PAR_OK;
    if (z->desc.parameter_server) {
        par_comm *comm = par__in_named_layer(z->desc.comm, u->site[PAR__ZERO_BACKWARD]);
        return (par_reduce_begin)(x, z->rank ? NULL : x, u->count[0], type, op, 0, comm, &u->reduction);
    }
    par_comm *comm = par__zero_unit_comm(z, unit, PAR__ZERO_BACKWARD);
    if (!z->sharded_states) return (par_all_reduce_begin)(x, x, u->count[0], type, op, comm, &u->reduction);
    return (par_reduce_scatter_begin)(x, x + shard * (size_t)z->rank * e, shard, type, op, comm,
                                      &u->reduction);
}
// Completes those of a unit's gradients x that are partial sums on the ranks of a layer's comm, in one
// group of calls for each comm. A use has the sums of its weight. Shards begin elsewhere on each of these
// ranks, where units differ: so it is done before gradients are sharded.
static par_result par__zero_complete_sums(par_zero *z, int unit, char *x) {
    const par__zero_unit *has = &z->units[par__zero_owner(z, unit)];
    par_result r = PAR_OK;
    for (int k = 0, calls = 0; k < z->sum_comm_count && !r; k++, calls = 0) {
        par_comm *comm = z->sum_comms[k];
        for (int i = has->first; i < has->last; i++)
            for (int j = 0; j < PAR_MAX_SUMS; j++) {
                const par__zero_tensor *t = &z->tensors[i];
                const par_partial_sum *s = &t->desc.sums[j];
                char *sum = x + (t->offset + s->first) * par__zero_grad_bytes(z);
                if (s->comm != comm || t->part) continue;
                if (!calls++)
                    r = par_group_begin(par__in_named_layer(comm, z->units[unit].site[PAR__ZERO_BACKWARD]));
                if (!r) r = par_all_reduce(sum, sum, s->count, z->desc.grad_dtype, s->op, comm);
            }
        const par_result ended = calls ? par_group_end(comm) : PAR_OK;
        if (!r) r = ended;
    }
    return r;
}
// The gradients of one microbatch of a unit are complete: accumulates or reduces them.
static par_result par__zero_microbatch_end(par_zero *z, int unit, par__zero_slot *s) {
    par__zero_unit *u = &z->units[unit];
    const size_t e = par__zero_grad_bytes(z), shard = par__zero_shard_count(z, u, 0);
    u->microbatches_done++;
    char *x = s ? s->memory : z->gradients + u->grad_offset * e;
    if (s || z->desc.canonical_shards || u->microbatches_done == z->microbatches)
        PAR__ZERO_TRY(par__zero_complete_sums(z, unit, x));
    if (!s) {
        PAR__ZERO_TRY(par__zero_accumulate(z, u, x, u->grad_offset, u->count[0]));
        return u->microbatches_done == z->microbatches ? par__zero_reduce_begin(z, unit) : PAR_OK;
    }
    s->use_count = 0;
    if (!u->count[0]) return PAR_OK;
    if (z->desc.quantize_gradients) {
        const int bits = z->desc.quantize_gradients;
        PAR__ZERO_TRY(z->kernels->quantize(z->kernels, bits, u->count[0], s->memory, z->desc.grad_dtype,
                                           s->quantized[0]));
        return (par_all_to_all_begin)(s->quantized[0], s->quantized[1],
                                      par__zero_quantized_bytes(bits, shard), PAR_U8,
                                      par__zero_unit_comm(z, unit, PAR__ZERO_BACKWARD), &s->requests[0]);
    }
    if (z->ranks == 1) return PAR_OK;
    return (par_reduce_scatter_begin)(s->memory, s->memory + shard * (size_t)z->rank * e, shard,
                                      z->desc.grad_dtype, par__zero_op(z),
                                      par__zero_unit_comm(z, unit, PAR__ZERO_BACKWARD), &s->requests[0]);
}
// Prepares zeroed gradients of a unit for a microbatch.
static par_result par__zero_clear_gradients(par_zero *z, int unit, par__zero_slot **slot) {
    const par__zero_unit *u = &z->units[unit];
    const size_t bytes = u->count[0] * par__zero_grad_bytes(z);
    *slot = NULL;
    if (!z->sharded_gradients) { // else they add up in place; par_zero_step leaves zeros
        if (z->desc.canonical_shards && u->microbatches_done)
            return z->device->fill(z->device, z->gradients + u->grad_offset * par__zero_grad_bytes(z), 0,
                                   bytes, NULL);
        return PAR_OK;
    }
    if (par__zero_slots_in_use(&z->unsharded_gradients) >= z->desc.max_gathered_units)
        return PAR__ZERO_FAIL(
            PAR_ERR_ARGUMENT,
            "%s: %d other units are in backward, and have not been ended: end them, or allow "
            "more by max_gathered_units",
            u->site[PAR__ZERO_BACKWARD], z->desc.max_gathered_units);
    par__zero_slot *s = par__zero_slot_of(&z->unsharded_gradients, unit); // its last microbatch
    if (!s) s = par__zero_free_slot(&z->unsharded_gradients, unit, 0);
    PAR__ZERO_TRY(par__zero_drain_slot(z, s));
    s->unit = unit;
    s->use_count = 1;
    *slot = s;
    return z->device->fill(z->device, s->memory, 0, bytes, NULL);
}
par_result par_zero_backward_begin(par_zero *z, int unit) {
    par__zero_slot *s;
    PAR__ZERO_TRY(par__zero_check_unit(z, "par_zero_backward_begin", unit));
    par__zero_unit *u = &z->units[unit];
    if (!u->open_backwards && u->microbatches_done == z->microbatches)
        return PAR__ZERO_FAIL(
            PAR_ERR_ARGUMENT,
            "%s: its %d microbatches are done: call par_zero_step first, or set microbatches",
            u->site[PAR__ZERO_BACKWARD], z->microbatches);
    PAR__ZERO_TRY(par_wait(&z->units[par__zero_owner(z, unit)].param_gather));
    if (z->sharded_parameters) PAR__ZERO_TRY(par__zero_acquire(z, unit, unit - 1, PAR__ZERO_BACKWARD));
    if (!u->open_backwards) PAR__ZERO_TRY(par__zero_clear_gradients(z, unit, &s));
    u->open_backwards++;
    return par__zero_bind(z, unit);
}
par_result par_zero_backward_end(par_zero *z, int unit) {
    PAR__ZERO_TRY(par__zero_check_unit(z, "par_zero_backward_end", unit));
    par__zero_unit *u = &z->units[unit];
    if (!u->open_backwards) return par__zero_not_begun(z, "par_zero_backward_end", unit);
    if (z->sharded_parameters) par__zero_release(z, unit);
    if (--u->open_backwards == 0)
        PAR__ZERO_TRY(par__zero_microbatch_end(
            z, unit, z->sharded_gradients ? par__zero_slot_of(&z->unsharded_gradients, unit) : NULL));
    return par__zero_bind(z, unit);
}
float *par_zero_grad(par_zero *z, int tensor) {
    if (tensor < 0 || tensor >= z->tensor_count) return NULL;
    const par__zero_tensor *t = &z->tensors[tensor];
    char *all = z->committed && !t->part ? par__zero_unit_gradients(z, t->unit) : NULL;
    return all ? (float *)(void *)(all + t->offset * par__zero_grad_bytes(z)) : NULL;
}
// Checks that every unit with gradients has had all backward passes of the step.
static par_result par__zero_check_passes(par_zero *z, const char *call) {
    for (int i = 0; i < z->unit_count; i++) {
        const par__zero_unit *u = &z->units[i];
        if (u->open_backwards || u->open_forwards)
            return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "%s: unit %s was begun and not ended", call, u->name);
        if (u->microbatches_done < z->microbatches && u->count[0])
            return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                                  "%s: unit %s has had %d of the step's %d backward passes (microbatches): "
                                  "begin and end one even "
                                  "where the unit was not used, its gradients are zeros then",
                                  call, u->name, u->microbatches_done, z->microbatches);
    }
    return PAR_OK;
}
// Adds the gradients of other uses of a weight, and sums those of its copies. They may be complete at very
// different times: so it is done when the step is over, and no rank waits in its backward.
static par_result par__zero_add_uses(par_zero *z) {
    size_t first, count;
    for (int i = 0; i < z->unit_count; i++) {
        const par__zero_unit *u = &z->units[i];
        if (!u->use_of) continue;
        char *sum = par__zero_sum_of(z, &z->units[u->use_of - 1], &first, &count);
        PAR__ZERO_TRY(par__zero_add_gradients(z, sum, par__zero_sum_of(z, u, &first, &count), count));
    }
    for (int i = 0; i < z->unit_count; i++) {
        const par__zero_unit *u = &z->units[i];
        par_comm *copies = u->first < u->last ? z->tensors[u->first].desc.tied_comm : NULL;
        char *sum = par__zero_sum_of(z, u, &first, &count);
        if (copies && count)
            PAR__ZERO_TRY(par_all_reduce(sum, sum, count, z->desc.grad_dtype, PAR_SUM, copies));
    }
    return PAR_OK;
}
// Waits for all reductions, and reduces over replica_comm.
static par_result par__zero_finish_gradients(par_zero *z, const char *call) {
    const par_op op = par__zero_op(z);
    size_t first, count;
    if (z->gradients_reduced) return PAR_OK;
    PAR__ZERO_TRY(par__zero_check_passes(z, call));
    for (int i = 0; i < z->unsharded_gradients.count; i++)
        PAR__ZERO_TRY(par__zero_drain_slot(z, &z->unsharded_gradients.slots[i]));
    for (int i = 0; i < z->unit_count; i++) {
        par__zero_unit *u = &z->units[i];
        PAR__ZERO_TRY(par_wait(&u->reduction));
        char *mine = par__zero_sum_of(z, u, &first, &count);
        if (z->replica_count > 1 && count)
            PAR__ZERO_TRY(par_all_reduce_begin(mine, mine, count, z->desc.grad_dtype, op,
                                               z->desc.replica_comm, &u->replica_reduction));
    }
    for (int i = 0; i < z->unit_count; i++) PAR__ZERO_TRY(par_wait(&z->units[i].replica_reduction));
    PAR__ZERO_TRY(par__zero_add_uses(z));
    return z->gradients_reduced = 1, PAR_OK;
}

// >>zero_window ---------------------------------------------------------------------------------------------
//
// A unit's trained part has as many pieces as there are shards (canonical: C), and a piece consists of
// windows. All loops over elements run window by window, and in a window over runs that belong to one tensor
// each, so that sums do not depend on which rank has which piece. Offloaded states pass through three
// buffers:
//     updated       -          0                 1                 2
//     transfers     read 0     read 1            write 0, read 2   write 1, read 3

typedef struct par__zero_window { // elements [first, first + count) of a unit's trained part
    int unit;
    size_t piece, first, count;
} par__zero_window;
// Advances to the next window that this rank updates, in units below `end`. 0: there is none. Start with
// {unit}.
static int par__zero_window_after(const par_zero *z, par__zero_window *w, int end) {
    for (; w->unit < end; w->unit++, w->first = w->count = 0) {
        const par__zero_unit *u = &z->units[w->unit];
        size_t owned;
        const size_t until = par__zero_updated_count(z, u, &owned) + owned, piece = u->count[0] / z->pieces;
        const size_t at = PAR__MAX(w->first + w->count, owned);
        if (at >= until || u->use_of) continue;
        w->piece = at / piece;
        w->first = at;
        w->count = PAR__MIN(z->window, (w->piece + 1) * piece - at);
        return 1;
    }
    return 0;
}
static char *par__zero_gradients_of(const par_zero *z, const par__zero_window *w) {
    size_t first, count;
    char *g = par__zero_sum_of(z, &z->units[w->unit], &first, &count);
    return g + (w->first - first) * par__zero_grad_bytes(z);
}

// The walk over what this rank updates: runs, which are elements of one tensor in one window each.
//     par__zero_walk w = par__zero_walk_begin(0, z->unit_count, PAR__ZERO_READS);
//     while (par__zero_next(z, &w)) ... w.tensor, elements [w.at, w.at + w.count) of the trained part
//     return w.result;
// READS states, WRITES them, too; CLEARS gradients; GATHERS the parameters of a unit that it has left
enum { PAR__ZERO_READS = 1, PAR__ZERO_WRITES = 2, PAR__ZERO_CLEARS = 4, PAR__ZERO_GATHERS = 8 };
typedef struct par__zero_walk {
    par_result result; // the first error
    int tensor;
    size_t at, count;                             // the run
    par__zero_window now, next;                   // the window that it is in, and the next one
    char *states[PAR__ZERO_STATE_KINDS], *stored; // of the window; stored: weights of param_dtype
    int end, flags, started, more, slot;          // end: of the units
    int gathered;                                 // units before this one are
    size_t from, until;                           // only of these elements of a unit's trained part
    int next_reads[2];                            // transfers of the next window
} par__zero_walk;
static par__zero_walk par__zero_walk_begin(int unit, int end, int flags) {
    par__zero_walk w;
    memset(&w, 0, sizeof w);
    w.next.unit = w.gathered = unit;
    w.end = end;
    w.flags = flags;
    w.until = SIZE_MAX;
    return w;
}
// Elements [first, last) of a tensor; there are none where it is not trained.
static par__zero_walk par__zero_walk_tensor(const par__zero_tensor *t, size_t first, size_t last, int flags) {
    par__zero_walk w = par__zero_walk_begin(t->unit, t->part ? t->unit : t->unit + 1, flags);
    w.from = t->offset + first;
    w.until = t->offset + last;
    return w;
}
// Starts the transfers of a window's states and parameters between its buffer and the stores.
static void par__zero_move_window(par_zero *z, const par__zero_window *w, int slot, int write,
                                  int transfers[2]) {
    const par__zero_unit *u = &z->units[w->unit];
    const size_t piece = u->count[0] / z->pieces, e = par__zero_param_bytes(z);
    const size_t padded = par__round_up(w->count, PAR__ZERO_PAGE_ELEMENTS);
    const size_t bytes = z->state_store.kind ? par__zero_states_bytes(z, padded) : 0;
    size_t owned;
    par__zero_updated_count(z, u, &owned);
    const size_t before = (w->piece - owned / piece) * par__round_up(piece, PAR__ZERO_PAGE_ELEMENTS);
    const size_t at = u->offload_offset + before + w->first - w->piece * piece;
    transfers[0] = transfers[1] = 0;
    if (bytes)
        transfers[0] = par__zero_transfer_begin(z, &z->state_store, z->windows[slot],
                                                par__zero_states_bytes(z, at), bytes, write);
    if (z->parameter_store.kind)
        transfers[1] =
            par__zero_transfer_begin(z, &z->parameter_store, z->windows[slot] + bytes,
                                     (u->shard_offset + w->first - owned) * e, w->count * e, write);
}
// Prefetches the next window into the next buffer, after the previous contents of the buffer are written.
static par_result par__zero_prefetch_window(par_zero *z, par__zero_walk *w) {
    const int slot = (w->slot + 1) % PAR__ZERO_WINDOWS;
    do w->more = par__zero_window_after(z, &w->next, w->end);
    while (w->more && (w->next.first >= w->until || w->next.first + w->next.count <= w->from));
    if (!w->more || !z->windows[0] || !w->flags) return PAR_OK;
    PAR__ZERO_TRY(par__zero_transfer_wait(z, z->writing[slot]));
    z->writing[slot] = 0;
    par__zero_move_window(z, &w->next, slot, 0, w->next_reads);
    return PAR_OK;
}
static par_result par__zero_walk_start(par_zero *z, par__zero_walk *w) { // earlier writes are complete
    for (int i = 0; i < PAR__ZERO_WINDOWS && w->flags; i++) {
        PAR__ZERO_TRY(par__zero_transfer_wait(z, z->writing[i]));
        z->writing[i] = 0;
    }
    return w->started = 1, par__zero_prefetch_window(z, w);
}
static void par__zero_find_states(const par_zero *z, par__zero_walk *w) { // and parameters
    const par__zero_unit *u = &z->units[w->now.unit];
    const size_t padded = par__round_up(w->now.count, PAR__ZERO_PAGE_ELEMENTS);
    size_t owned;
    par__zero_updated_count(z, u, &owned);
    const size_t at = w->now.first - owned,
                 stored = z->sharded_parameters ? u->shard_offset : u->unsharded_offset + owned;
    char *buffer = z->windows[w->slot];
    for (int i = 0; i < PAR__ZERO_STATE_KINDS; i++) {
        w->states[i] = z->states[i] ? z->states[i] + par__zero_state_bytes(z, i, u->state_offset + at) : NULL;
        if (z->has_state[i] && z->state_store.kind) {
            w->states[i] = buffer;
            buffer += par__zero_state_bytes(z, i, padded);
        }
    }
    w->stored = z->parameter_store.kind ? buffer : z->parameters + (stored + at) * par__zero_param_bytes(z);
}
static par_result par__zero_param_gather_begin(par_zero *z, int unit);
// Leaves the present window, and enters the next one; there may be none: then now.count is 0.
static par_result par__zero_next_window(par_zero *z, par__zero_walk *w) {
    int transfers[2] = {0, 0};
    if (!w->started) PAR__ZERO_TRY(par__zero_walk_start(z, w));
    if (w->now.count && (w->flags & PAR__ZERO_WRITES) && z->windows[0]) {
        par__zero_move_window(z, &w->now, w->slot, 1, transfers);
        z->writing[w->slot] = transfers[0]; // parameters are written elsewhere
    }
    if (w->now.count && (w->flags & PAR__ZERO_CLEARS)) // while they are in the cache
        PAR__ZERO_TRY(z->device->fill(z->device, par__zero_gradients_of(z, &w->now), 0,
                                      w->now.count * par__zero_grad_bytes(z), NULL));
    w->now.count = 0;
    if (w->flags & PAR__ZERO_GATHERS) // before the host waits for what the next window reads
        for (const int next = w->more ? w->next.unit : w->end; w->gathered < next; w->gathered++) {
            const par_result r = z->late ? z->late : par__zero_param_gather_begin(z, w->gathered);
            if (!z->late) z->late = r; // the update goes on
        }
    if (!w->more) return PAR_OK;
    const int reads[2] = {w->next_reads[0], w->next_reads[1]};
    w->now = w->next;
    w->slot = (w->slot + 1) % PAR__ZERO_WINDOWS;
    PAR__ZERO_TRY(par__zero_prefetch_window(z, w));
    for (int i = 0; i < 2 && z->windows[0]; i++) PAR__ZERO_TRY(par__zero_transfer_wait(z, reads[i]));
    w->tensor = z->units[w->now.unit].first - 1;
    return par__zero_find_states(z, w), PAR_OK;
}
// Advances to the next run. 0: there is none, or an error.
static int par__zero_next(par_zero *z, par__zero_walk *w) {
    do {
        while (w->now.count && ++w->tensor < z->units[w->now.unit].last) {
            const par__zero_tensor *t = &z->tensors[w->tensor];
            const size_t end = PAR__MIN(t->offset + par__round_up(t->count, z->align), w->until);
            w->at = PAR__MAX(PAR__MAX(w->now.first, t->offset), w->from);
            w->count = PAR__MIN(end, w->now.first + w->now.count) - w->at;
            if (!t->part && w->at < PAR__MIN(end, w->now.first + w->now.count)) return 1;
        }
        w->result = par__zero_next_window(z, w);
    } while (!w->result && w->now.count);
    return 0;
}
// The gradients of a run, weights, and a state, all from its element `skip` on; a state is NULL where there
// is none.
static char *par__zero_run_gradients(const par_zero *z, const par__zero_walk *w, size_t skip) {
    return par__zero_gradients_of(z, &w->now) + (w->at + skip - w->now.first) * par__zero_grad_bytes(z);
}
static void *par__zero_run_state(const par_zero *z, const par__zero_walk *w, int kind, size_t skip) {
    char *state = w->states[kind];
    return state ? state + par__zero_state_bytes(z, kind, w->at + skip - w->now.first) : NULL;
}
static float *par__zero_run_weights(const par_zero *z, const par__zero_walk *w, size_t skip) {
    if (par__zero_has_master(z)) return (float *)par__zero_run_state(z, w, PAR__ZERO_MASTER, skip);
    return (float *)(void *)w->stored + (w->at + skip - w->now.first);
}
// The parts of a run that are in one run of its tensor's shard each: elements [skip, skip + count). Start
// with zeros. whole: the shard is not asked.
typedef struct par__zero_part {
    size_t skip, count, until; // until: elements of the tensor in the shard's runs so far
    int runs;                  // the part's is the last one of so many
} par__zero_part;
static int par__zero_next_part(const par_zero *z, const par__zero_walk *w, int whole, par__zero_part *p) {
    const par__zero_tensor *t = &z->tensors[w->tensor];
    const size_t start = w->at - t->offset;
    p->skip += p->count;
    p->count = 0;
    while (p->skip < w->count && p->runs < t->shard.run_count && !p->count) {
        p->until += t->shard.runs[p->runs++].count;
        const size_t until = whole ? w->count : PAR__MIN(PAR__MAX(p->until, start) - start, w->count);
        if (until > p->skip) p->count = until - p->skip;
    }
    return p->count > 0;
}

// >>zero_norm -----------------------------------------------------------------------------------------------
//
// Each piece of a unit has a sum of squares, which the rank that has the piece computes. All ranks gather
// these sums and add them in the same order, so that the norm has the same bits on all ranks and for every
// sharding.
//
// With canonical_shards and canonical kernels the squares are added exactly, so that neither the order nor
// the split of a tensor over model_parallel_comm matters. The square of an f32 is an integer of 48 bits times
// a power of 4. So squares of one exponent are added as integers (65536 of them fit into 64 bits), and their
// sums to a number of 19 digits in base 2^32, the lowest one in units of 2^-298.

static int par__zero_update_is_sharded(const par_zero *z) {
    return z->ranks > 1 && (z->sharded_states || z->desc.parameter_server);
}

// Over comm, where its ranks update parts, then over another one, or NULL.
static par_result par__zero_reduce_over(par_zero *z, void *x, size_t n, par_dtype type, par_op op,
                                        par_comm *other) {
    if (par__zero_update_is_sharded(z)) PAR__ZERO_TRY(par_all_reduce(x, x, n, type, op, z->desc.comm));
    return other ? par_all_reduce(x, x, n, type, op, other) : PAR_OK;
}

typedef struct par__zero_exact {
    uint64_t bins[256];                // by exponent; the last one: of what is not finite
    uint64_t digits[PAR__ZERO_DIGITS]; // the last one counts what is not finite
    size_t added;                      // to the bins
} par__zero_exact;
static void par__zero_exact_carry(uint64_t *digits) {
    for (int i = 0; i < PAR__ZERO_DIGITS - 2; i++) {
        digits[i + 1] += digits[i] >> 32;
        digits[i] &= 0xffffffffu;
    }
}
static void par__zero_exact_flush(par__zero_exact *x) {
    x->digits[PAR__ZERO_DIGITS - 1] += x->bins[255] != 0;
    for (unsigned e = 0; e < 255; e++) {
        const unsigned bit = e ? 2 * (e - 1) : 0, i = bit / 32, shift = bit % 32; // shift is at most 30
        const uint64_t low = (x->bins[e] & 0xffffffffu) << shift, high = (x->bins[e] >> 32) << shift;
        x->digits[i] += low & 0xffffffffu;
        x->digits[i + 1] += (low >> 32) + (high & 0xffffffffu);
        x->digits[i + 2] += high >> 32;
    }
    memset(x->bins, 0, sizeof x->bins);
    x->added = 0;
    par__zero_exact_carry(x->digits);
}
static void par__zero_exact_add(par__zero_exact *x, const void *numbers, par_dtype type, size_t n) {
    float wide[PAR__ZERO_CHUNK];
    for (size_t at = 0; at < n; at += PAR__ZERO_CHUNK) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_CHUNK, n - at);
        const float *f = par__zero_widen(wide, numbers, type, at, k);
        if (x->added + k > 65536) par__zero_exact_flush(x);
        x->added += k;
        for (size_t i = 0; i < k; i++) {
            const uint32_t bits = par__f32_to_bits(f[i]), e = bits >> 23 & 255u;
            const uint64_t mantissa = (bits & 0x7fffffu) | (e ? 0x800000u : 0);
            x->bins[e] += mantissa * mantissa;
        }
    }
}
static double par__zero_exact_value(const uint64_t *digits) { // the nearest double
    uint64_t top = 0; // the highest 57 bits or more; the last one also says whether any are below
    int below = 0;
    for (int bit = 32 * (PAR__ZERO_DIGITS - 1) - 8; bit >= 0; bit -= 8) {
        const uint64_t byte = digits[bit / 32] >> bit % 32 & 255u;
        if (top >> 56) {
            top |= byte ? 1 : 0;
            below += 8;
        } else {
            top = top << 8 | byte;
        }
    }
    return digits[PAR__ZERO_DIGITS - 1] ? (double)INFINITY : ldexp((double)top, below - 298);
}

static int par__zero_is_exact(const par_zero *z) { return z->desc.canonical_shards && z->kernels->canonical; }
// Adds numbers in the device's memory.
static par_result par__zero_exact_read(par_zero *z, par__zero_exact *x, const void *there, par_dtype type,
                                       size_t n) {
    const size_t e = par_dtype_bytes(type);
    const void *here;
    for (size_t at = 0, k; at < n; at += k) {
        PAR__ZERO_TRY(par__zero_read_staged(z, (const char *)there + at * e, e, n - at, &k, &here));
        par__zero_exact_add(x, here, type, k);
    }
    return PAR_OK;
}
// Adds the squares of a run, each divided by the number of ranks of model_parallel_comm that have the
// element; or exactly those of elements of which this rank has copy 0.
static par_result par__zero_run_squares(par_zero *z, const par__zero_walk *w, double *sum,
                                        par__zero_exact *exact) {
    const par__zero_tensor *t = &z->tensors[w->tensor];
    const par_dtype type = z->desc.grad_dtype;
    par__zero_part p = {0, 0, 0, 0};
    while (par__zero_next_part(z, w, !t->desc.shard, &p)) {
        const par_run *r = &t->shard.runs[p.runs - 1];
        const char *g = par__zero_run_gradients(z, w, p.skip);
        const double weight = t->desc.shard ? 1.0 / PAR__MAX(r->replicas, 1) : 1;
        if (!exact)
            PAR__ZERO_TRY(z->kernels->square_sum(z->kernels, g, type, p.count, weight, sum));
        else if (!t->desc.shard || !r->replica_id)
            PAR__ZERO_TRY(par__zero_exact_read(z, exact, g, type, p.count));
    }
    return PAR_OK;
}
static par_result par__zero_exact_squares(par_zero *z, const float *x, size_t n, double *squares) {
    par__zero_exact sum;
    memset(&sum, 0, sizeof sum);
    PAR__ZERO_TRY(par__zero_exact_read(z, &sum, x, PAR_F32, n));
    par__zero_exact_flush(&sum);
    const double rounded = par__zero_exact_value(sum.digits);
    return par__zero_copy_sync(z, squares, &rounded, sizeof rounded);
}
static par_result par__zero_clear_sums(par_zero *z, size_t n) {
    return z->device->fill(z->device, z->sums, 0, n * sizeof *z->sums, NULL);
}
// Adds the squares of all gradients that this rank updates, to the sums of their pieces or exactly.
static par_result par__zero_own_squares(par_zero *z, par__zero_exact *exact) {
    par__zero_walk w = par__zero_walk_begin(0, z->unit_count, 0);
    while (par__zero_next(z, &w))
        PAR__ZERO_TRY(
            par__zero_run_squares(z, &w, &z->sums[(size_t)w.now.unit * z->pieces + w.now.piece], exact));
    return w.result;
}
static par_result par__zero_exact_norm(par_zero *z) {
    par__zero_exact sum;
    memset(&sum, 0, sizeof sum);
    PAR__ZERO_TRY(par__zero_own_squares(z, &sum));
    par__zero_exact_flush(&sum);
    PAR__ZERO_TRY(par__zero_reduce_over(z, sum.digits, PAR__ZERO_DIGITS, PAR_U64, PAR_SUM,
                                        z->desc.model_parallel_comm));
    par__zero_exact_carry(sum.digits);
    const double squares = par__zero_exact_value(sum.digits);
    return par__zero_copy_sync(z, &z->control->squares, &squares, sizeof squares);
}
static par_result par__zero_square_norm(par_zero *z) { // to the control
    const size_t n = (size_t)z->unit_count * z->pieces;
    double *total = &z->control->squares; // an address only: the device's
    if (par__zero_is_exact(z)) return par__zero_exact_norm(z);
    PAR__ZERO_TRY(par__zero_clear_sums(z, n));
    PAR__ZERO_TRY(par__zero_own_squares(z, NULL));
    PAR__ZERO_TRY(par__zero_reduce_over(z, z->sums, n, PAR_F64, PAR_SUM, NULL));
    PAR__ZERO_TRY(z->kernels->total(z->kernels, z->sums, n, total));
    return z->desc.model_parallel_comm
               ? par_all_reduce(total, total, 1, PAR_F64, PAR_SUM, z->desc.model_parallel_comm)
               : PAR_OK;
}

// >>zero_step -----------------------------------------------------------------------------------------------

static float *par__zero_scales(const par_zero *z, const par__zero_tensor *t, int which, int moment) {
    return z->block_scales + (size_t)(2 * which + moment) * z->block_count + t->blocks_at;
}
static par_zero_update par__zero_rounding_of(const par_zero *z, const par__zero_tensor *t, uint64_t step) {
    par_zero_update a;
    memset(&a, 0, sizeof a);
    if (z->desc.stochastic_rounding) a.seed = z->desc.seed + 1;
    a.stream = step << 24 | (par__zero_name_hash(t->name) & 0xffffff); // on whichever rank the tensor is
    a.state_dtype = z->desc.state_dtype;
    a.state_seed = z->desc.seed + 2;
    a.shard = t->whole ? &t->shard : NULL;
    for (int i = 0; i < 2 && z->block_scales; i++) {
        a.scales[i] = par__zero_scales(z, t, z->now, i);
        a.new_scales[i] = par__zero_scales(z, t, !z->now, i);
    }
    return a;
}
// Lets the host read the scales of a tensor's present moments; write: and takes over what it has set.
static par_result par__zero_host_scales(const par_zero *z, const par__zero_tensor *t, int write,
                                        par_zero_update *a) {
    const size_t n = par__round_up(t->whole, PAR__ZERO_STATE_BLOCK) / PAR__ZERO_STATE_BLOCK;
    if (!z->host_scales || !a->shard) return PAR_OK;
    for (int i = 0; i < 2; i++) {
        float *device = par__zero_scales(z, t, z->now, i);
        float *host = z->host_scales + (device - z->block_scales);
        PAR__ZERO_TRY(par__zero_copy_sync(z, write ? device : host, write ? host : device, n * sizeof *host));
        a->scales[i] = host;
    }
    return PAR_OK;
}
// unscaled: the input is not the gradient (Muon's direction), and must not be scaled.
static par_zero_update par__zero_update_of(const par_zero *z, const par__zero_tensor *t, int unscaled) {
    par_zero_update a = par__zero_rounding_of(z, t, 0);
    a.optimizer = z->desc.optimizer;
    a.hyper = par__zero_hyper_of(z, t->desc.group);
    if (t->desc.no_decay) a.hyper.weight_decay = 0;
    a.scale = a.trust_ratio = a.bias_correction1 = a.bias_correction2 = 1;
    a.ema = z->desc.ema;
    a.control = z->control;
    a.group = t->desc.group;
    a.unscaled = unscaled;
    if (a.optimizer == PAR_ZERO_MUON && !par__zero_is_matrix(z, t)) a.optimizer = PAR_ZERO_ADAMW;
    return a;
}
static par_result par__zero_apply(par_zero *z, const par__zero_walk *w, par_zero_update *a,
                                  const float *direction) {
    const size_t k = w->at - w->now.first;
    const void *g = direction ? (const void *)direction : (const void *)par__zero_run_gradients(z, w, 0);
    a->first = w->at - z->tensors[w->tensor].offset;
    return z->kernels->update(
        z->kernels, a, w->count, par__zero_run_weights(z, w, 0),
        par__zero_has_master(z) ? w->stored + k * par__zero_param_bytes(z) : NULL, z->desc.param_dtype, g,
        direction ? PAR_F32 : z->desc.grad_dtype, par__zero_run_state(z, w, PAR__ZERO_M, 0),
        par__zero_run_state(z, w, PAR__ZERO_V, 0), (float *)par__zero_run_state(z, w, PAR__ZERO_EMA, 0));
}
static par_result par__zero_apply_momentum(par_zero *z, const par__zero_walk *w, par_zero_update *a,
                                           void *m) {
    a->first = w->at - z->tensors[w->tensor].offset;
    return z->kernels->momentum(z->kernels, a, w->count, par__zero_run_gradients(z, w, 0), z->desc.grad_dtype,
                                m, z->gathered_momentum + w->at);
}
// 8-bit moments of parts of tensors: ranks that share a block find the scale that it will have together, by
// an update that changes nothing else.
static par_result par__zero_find_scales(par_zero *z) {
    float *scales = z->block_scales + (size_t)(2 * !z->now) * z->block_count;
    par__zero_walk w = par__zero_walk_begin(0, z->unit_count, PAR__ZERO_READS);
    if (!z->block_count) return PAR_OK;
    PAR__ZERO_TRY(z->device->fill(z->device, scales, 0, 2 * z->block_count * sizeof *scales, NULL));
    while (par__zero_next(z, &w)) {
        const par__zero_tensor *t = &z->tensors[w.tensor];
        par_zero_update a = par__zero_update_of(z, t, 0);
        a.raise = 1;
        if (!a.shard) continue;
        PAR__ZERO_TRY(par__zero_is_matrix(z, t)
                          ? par__zero_apply_momentum(z, &w, &a, par__zero_run_state(z, &w, PAR__ZERO_M, 0))
                          : par__zero_apply(z, &w, &a, NULL));
    }
    PAR__ZERO_TRY(w.result);
    return par__zero_reduce_over(z, scales, 2 * z->block_count, PAR_U32, PAR_MAX, // as integers: no signs
                                 z->desc.tensor_parallel_comm);
}
// Canonical LAMB: the same by exact sums, so that it does not matter which rank has which elements. What is
// whole on each rank of tensor_parallel_comm counts on the first one.
static par_result par__zero_lamb_squares(par_zero *z, const par__zero_walk *w, par__zero_exact *sums) {
    const par__zero_tensor *t = &z->tensors[w->tensor];
    par_zero_update a = par__zero_update_of(z, t, 0);
    for (size_t i = 0, n; i < w->count; i += n) {
        const float *weights = par__zero_run_weights(z, w, i);
        n = PAR__MIN((size_t)PAR__ZERO_STAGING, w->count - i);
        a.first = w->at + i - t->offset;
        PAR__ZERO_TRY(z->kernels->lamb_norms(z->kernels, &a, n, weights, par__zero_run_gradients(z, w, i),
                                             z->desc.grad_dtype, par__zero_run_state(z, w, PAR__ZERO_M, i),
                                             par__zero_run_state(z, w, PAR__ZERO_V, i), z->sums,
                                             z->lamb_steps));
        PAR__ZERO_TRY(par__zero_exact_read(z, &sums[0], weights, PAR_F32, n));
        PAR__ZERO_TRY(par__zero_exact_read(z, &sums[1], z->lamb_steps, PAR_F32, n));
    }
    return PAR_OK;
}
static par_result par__zero_add_lamb_digits(par_zero *z) { // over ranks
    par_comm *const comms[2] = {par__zero_update_is_sharded(z) ? z->desc.comm : NULL,
                                z->desc.tensor_parallel_comm};
    const size_t n = (size_t)z->tensor_count * 2;
    for (int i = 0; i < 2; i++) {
        if (!comms[i]) continue;
        for (int t = 0; i == 1 && par_rank(comms[i]) && t < z->tensor_count; t++)
            if (!z->tensors[t].whole)
                memset(z->lamb_digits + (size_t)t * 2 * PAR__ZERO_DIGITS, 0,
                       2 * PAR__ZERO_DIGITS * sizeof *z->lamb_digits);
        PAR__ZERO_TRY(
            par_all_reduce(z->lamb_digits, z->lamb_digits, n * PAR__ZERO_DIGITS, PAR_U64, PAR_SUM, comms[i]));
        for (size_t t = 0; t < n; t++) par__zero_exact_carry(z->lamb_digits + t * PAR__ZERO_DIGITS);
    }
    return PAR_OK;
}
static par_result par__zero_exact_trust_ratios(par_zero *z) {
    const size_t n = (size_t)z->tensor_count * 2;
    par__zero_walk w = par__zero_walk_begin(0, z->unit_count, PAR__ZERO_READS);
    memset(z->lamb_digits, 0, n * PAR__ZERO_DIGITS * sizeof *z->lamb_digits);
    while (par__zero_next(z, &w)) {
        par__zero_exact sums[2];
        memset(sums, 0, sizeof sums);
        PAR__ZERO_TRY(par__zero_lamb_squares(z, &w, sums));
        for (size_t i = 0; i < 2; i++) {
            uint64_t *to = z->lamb_digits + ((size_t)w.tensor * 2 + i) * PAR__ZERO_DIGITS;
            par__zero_exact_flush(&sums[i]);
            for (int d = 0; d < PAR__ZERO_DIGITS; d++) to[d] += sums[i].digits[d];
            par__zero_exact_carry(to);
        }
    }
    PAR__ZERO_TRY(w.result);
    PAR__ZERO_TRY(par__zero_add_lamb_digits(z));
    for (size_t i = 0; i < n; i++) {
        const double squares = par__zero_exact_value(z->lamb_digits + i * PAR__ZERO_DIGITS);
        PAR__ZERO_TRY(par__zero_copy_sync(z, &z->sums[i], &squares, sizeof squares));
    }
    return z->kernels->lamb_trust_ratios(z->kernels, (size_t)z->tensor_count, 1, z->sums, z->trust_ratios);
}
// Adds the squares of a run to a pair of sums: of a part of a tensor those of elements of which this rank
// is the first one.
static par_result par__zero_lamb_sums(par_zero *z, const par__zero_walk *w, double *sums) {
    const par__zero_tensor *t = &z->tensors[w->tensor];
    const par_zero_update a = par__zero_update_of(z, t, 0);
    par__zero_part p = {0, 0, 0, 0};
    while (par__zero_next_part(z, w, !t->split, &p))
        if (!t->split || par__zero_is_first(t, &t->shard.runs[p.runs - 1]))
            PAR__ZERO_TRY(z->kernels->lamb_norms(z->kernels, &a, p.count, par__zero_run_weights(z, w, p.skip),
                                                 par__zero_run_gradients(z, w, p.skip), z->desc.grad_dtype,
                                                 par__zero_run_state(z, w, PAR__ZERO_M, p.skip),
                                                 par__zero_run_state(z, w, PAR__ZERO_V, p.skip), sums, NULL));
    return PAR_OK;
}
// LAMB: the trust ratio |w| / |u| of each tensor, from the sums of squares of its pieces on all ranks, of
// which those of tensor_parallel_comm have parts. What is whole on each of these counts as often in |w| as
// in |u|.
static par_result par__zero_lamb_trust_ratios(par_zero *z) {
    const size_t n = 2 * (size_t)z->tensor_count * z->pieces;
    const par_zero_kernels *k = z->kernels;
    if (par__zero_has_exact_lamb(z)) return par__zero_exact_trust_ratios(z);
    par__zero_walk w = par__zero_walk_begin(0, z->unit_count, PAR__ZERO_READS);
    PAR__ZERO_TRY(par__zero_clear_sums(z, n));
    while (par__zero_next(z, &w))
        PAR__ZERO_TRY(par__zero_lamb_sums(z, &w, z->sums + 2 * ((size_t)w.tensor * z->pieces + w.now.piece)));
    PAR__ZERO_TRY(w.result);
    PAR__ZERO_TRY(par__zero_reduce_over(z, z->sums, n, PAR_F64, PAR_SUM, z->desc.tensor_parallel_comm));
    return k->lamb_trust_ratios(k, (size_t)z->tensor_count, z->pieces, z->sums, z->trust_ratios);
}
// C = alpha op(A) op(B) + beta C of Muon's matrices, which are dense; on CPUs with canonical_shards as
// par_gemm_canonical adds.
static par_result par__zero_muon_gemm(par_zero *z, int ta, int tb, size_t m, size_t n, size_t depth,
                                      float alpha, const void *a, const void *b, float beta, void *c) {
    const par_result r =
        z->kernels->gemm(z->kernels, z->desc.muon_dtype, z->desc.canonical_shards != 0, ta, tb, m, n, depth,
                         alpha, a, ta ? m : depth, b, tb ? depth : n, beta, c, n);
    if (!r) return r; // else it has set no error text
    return par_fail(z->desc.comm, r, "par_zero_step: a matrix product: %s", par_result_text(r));
}
// Muon: replaces x (rows x cols) by approximately the nearest orthogonal matrix, by five Newton-Schulz steps
//     A = x x^T,  x = a x + (b A + c A A) x
// with A on the shorter side. All but the first and the last x are of muon_dtype.
static par_result par__zero_orthogonalize(par_zero *z, float *x, size_t rows, size_t cols) {
    par_device *d = z->device;
    const par_zero_kernels *k = z->kernels;
    const par_dtype type = z->desc.muon_dtype;
    const int tall = rows > cols;
    const size_t s = PAR__MIN(rows, cols), n = rows * cols, e = par_dtype_bytes(type);
    char *y = z->muon_scratch[0], *next = z->muon_scratch[1], *A = z->muon_scratch[2],
         *B = z->muon_scratch[3];
    double *squares = z->sums; // the norm is computed already
    if (par__zero_is_exact(z)) {
        PAR__ZERO_TRY(par__zero_exact_squares(z, x, n, squares));
    } else {
        PAR__ZERO_TRY(par__zero_clear_sums(z, 1));
        PAR__ZERO_TRY(k->square_sum(k, x, PAR_F32, n, 1, squares));
    }
    PAR__ZERO_TRY(k->scale(k, n, x, x, 1, squares));
    PAR__ZERO_TRY(d->cast(d, y, type, x, PAR_F32, n, NULL));
    for (int step = 0; step < 5; step++) {
        PAR__ZERO_TRY(par__zero_muon_gemm(z, tall, !tall, s, s, n / s, 1, y, y, 0, A));
        PAR__ZERO_TRY(d->copy(d, B, A, s * s * e, NULL));
        PAR__ZERO_TRY(par__zero_muon_gemm(z, 0, 0, s, s, s, 2.0315f, A, A, -4.7750f, B));
        PAR__ZERO_TRY(d->copy(d, next, y, n * e, NULL));
        PAR__ZERO_TRY(
            par__zero_muon_gemm(z, 0, 0, rows, cols, s, 1, tall ? y : B, tall ? B : y, 3.4445f, next));
        char *swap = y;
        y = next;
        next = swap;
    }
    PAR__ZERO_TRY(d->cast(d, x, PAR_F32, y, type, n, NULL));
    return k->scale(k, n, x, x, sqrtf(PAR__MAX(1.0f, (float)rows / (float)cols)), NULL);
}
// Copies this rank's part of a matrix to `whole`, or (back = 1) from there.
static par_result par__zero_muon_part(par_zero *z, const par__zero_tensor *t, float *whole, int back) {
    for (size_t at = 0, n, number; at < t->count; at += n) {
        float *mine = z->gathered_momentum + t->offset + at;
        n = par_shard_find(&t->shard, at, &number, NULL);
        float *there = whole + number;
        PAR__ZERO_TRY(
            z->device->copy(z->device, back ? mine : there, back ? there : mine, n * sizeof *mine, NULL));
    }
    return PAR_OK;
}
// Muon: up to as many matrices as tensor_parallel_comm, which splits them, has ranks. Each rank gets one of
// them whole, makes it orthogonal while the others do so with theirs, and all take their parts of the
// result.
static par_result par__zero_orthogonalize_split(par_zero *z, par__zero_tensor *const *matrices, int count) {
    par_comm *const comm = z->desc.tensor_parallel_comm;
    const int me = par_rank(comm);
    float *const passing = z->muon_whole[0], *const own = z->muon_whole[1];
    for (int i = 0; i < count; i++) { // the other ranks have zeros where this one has its part
        const par__zero_tensor *t = matrices[i];
        PAR__ZERO_TRY(z->device->fill(z->device, passing, 0, t->split * sizeof *passing, NULL));
        PAR__ZERO_TRY(par__zero_muon_part(z, t, passing, 0));
        PAR__ZERO_TRY((par_reduce)(passing, i == me ? own : NULL, t->split, PAR_U32, PAR_MAX, i, comm));
    }
    if (me < count)
        PAR__ZERO_TRY(par__zero_orthogonalize(z, own, matrices[me]->shard.global_shape[0],
                                              matrices[me]->shard.global_shape[1]));
    for (int i = 0; i < count; i++) {
        float *from = i == me ? own : passing;
        PAR__ZERO_TRY((par_broadcast)(from, from, matrices[i]->split, PAR_F32, i, comm));
        PAR__ZERO_TRY(par__zero_muon_part(z, matrices[i], from, 1));
    }
    return PAR_OK;
}
// Muon: makes those matrices of a unit orthogonal of which elements [first, first + count) have some. Where
// tensor parallelism splits them, its ranks must choose the same: if they cannot know, all.
static par_result par__zero_orthogonalize_unit(par_zero *z, int unit, size_t first, size_t count) {
    enum { MOST = 64 };
    par__zero_tensor *split[MOST];
    const par__zero_unit *u = &z->units[unit];
    const int most =
        z->desc.tensor_parallel_comm ? PAR__MIN(par_size(z->desc.tensor_parallel_comm), (int)MOST) : 1;
    int n = 0;
    for (int i = u->first; i < u->last; i++) {
        par__zero_tensor *t = &z->tensors[i];
        const int here = t->offset < first + count && t->offset + t->count > first;
        if (!par__zero_is_matrix(z, t) || (z->desc.parameter_server && z->rank)) continue;
        if (t->split && (here || !z->parts_alike)) split[n++] = t;
        if (n == most) {
            PAR__ZERO_TRY(par__zero_orthogonalize_split(z, split, n));
            n = 0;
        }
        if (!t->split && here)
            PAR__ZERO_TRY(par__zero_orthogonalize(z, z->gathered_momentum + t->offset, t->desc.shape[0],
                                                  t->desc.shape[1]));
    }
    return n ? par__zero_orthogonalize_split(z, split, n) : PAR_OK;
}
// Where a run's directions are kept.
static float *par__zero_run_directions(const par_zero *z, const par__zero_walk *w) {
    const par__zero_unit *u = &z->units[w->now.unit];
    size_t first;
    par__zero_updated_count(z, u, &first);
    return z->directions + u->state_offset + (w->at - first);
}
// Muon: gathers the momentum of a unit, and orthogonalizes the matrices of which this rank has a part. Where
// directions are kept, the momentum itself stays: that of the step is in their place meanwhile.
static par_result par__zero_muon_directions(par_zero *z, int unit) {
    const par__zero_unit *u = &z->units[unit];
    par__zero_walk w = par__zero_walk_begin(unit, unit + 1, PAR__ZERO_WRITES);
    size_t first;
    const size_t count = par__zero_updated_count(z, u, &first);
    while (par__zero_next(z, &w)) {
        const par__zero_tensor *t = &z->tensors[w.tensor];
        par_zero_update a = par__zero_update_of(z, t, 0);
        void *m = par__zero_run_state(z, &w, PAR__ZERO_M, 0);
        if (!par__zero_is_matrix(z, t)) continue;
        if (z->directions) {
            void *copy = par__zero_run_directions(z, &w);
            PAR__ZERO_TRY(
                z->device->copy(z->device, copy, m, par__zero_state_bytes(z, PAR__ZERO_M, w.count), NULL));
            m = copy;
        }
        PAR__ZERO_TRY(par__zero_apply_momentum(z, &w, &a, m));
    }
    PAR__ZERO_TRY(w.result);
    if (z->sharded_states && u->count[0])
        PAR__ZERO_TRY((par_all_gather)(z->gathered_momentum + first, z->gathered_momentum, count, PAR_F32,
                                       par__zero_unit_comm(z, unit, PAR__ZERO_UPDATE)));
    PAR__ZERO_TRY(par__zero_orthogonalize_unit(z, unit, first, count));
    return !z->directions || !count
               ? PAR_OK
               : z->device->copy(z->device, z->directions + u->state_offset, z->gathered_momentum + first,
                                 count * sizeof *z->directions, NULL);
}
// Starts the all-gather of a unit's parameters, of which each rank has set its shard. The unit's next use
// waits for it.
static par_result par__zero_shards_gather_begin(par_zero *z, int unit) {
    par__zero_unit *u = &z->units[unit];
    const size_t e = par__zero_param_bytes(z), shard = par__zero_shard_count(z, u, 0);
    char *whole = z->parameters + u->unsharded_offset * e;
    if (!shard || u->use_of) return PAR_OK;
    return (par_all_gather_begin)(whole + shard * (size_t)z->rank * e, whole, shard, z->desc.param_dtype,
                                  par__zero_unit_comm(z, unit, PAR__ZERO_UPDATE), &u->param_gather);
}
// The same, or of a parameter server the broadcast, of updated parameters.
static par_result par__zero_param_gather_begin(par_zero *z, int unit) {
    par__zero_unit *u = &z->units[unit];
    char *whole = z->parameters + u->unsharded_offset * par__zero_param_bytes(z);
    if (!par__zero_update_is_sharded(z) || z->sharded_parameters || !u->count[0] || u->use_of) return PAR_OK;
    if (z->desc.parameter_server)
        return (par_broadcast_begin)(whole, whole, u->count[0], z->desc.param_dtype, 0,
                                     par__in_named_layer(z->desc.comm, u->site[PAR__ZERO_UPDATE]),
                                     &u->param_gather);
    return par__zero_shards_gather_begin(z, unit);
}
// Updates units, and starts the gather of each when it is complete.
static par_result par__zero_update_units(par_zero *z, int unit, int end) {
    const int clears = z->sharded_gradients ? 0 : PAR__ZERO_CLEARS; // for the next step
    par__zero_walk w = par__zero_walk_begin(unit, end, PAR__ZERO_WRITES | PAR__ZERO_GATHERS | clears);
    while (par__zero_next(z, &w)) {
        const int matrix = par__zero_is_matrix(z, &z->tensors[w.tensor]);
        par_zero_update a = par__zero_update_of(z, &z->tensors[w.tensor], matrix);
        if (a.optimizer == PAR_ZERO_LAMB) a.trust_ratio_at = z->trust_ratios + w.tensor;
        const float *direction = matrix ? z->gathered_momentum + w.at : NULL;
        if (matrix && z->directions) { // the momentum follows
            par_zero_update b = par__zero_update_of(z, &z->tensors[w.tensor], 0);
            PAR__ZERO_TRY(par__zero_apply_momentum(z, &w, &b, par__zero_run_state(z, &w, PAR__ZERO_M, 0)));
            direction = par__zero_run_directions(z, &w);
        }
        PAR__ZERO_TRY(par__zero_apply(z, &w, &a, direction));
    }
    return w.result;
}
// Muon needs two walks over a unit with matrices, so the next unit is not prefetched.
static par_result par__zero_update_all(par_zero *z) {
    if (z->desc.optimizer != PAR_ZERO_MUON || z->directions)
        return par__zero_update_units(z, 0, z->unit_count);
    for (int i = 0; i < z->unit_count; i++) {
        if (par__zero_has_matrix(z, &z->units[i])) PAR__ZERO_TRY(par__zero_muon_directions(z, i));
        PAR__ZERO_TRY(par__zero_update_units(z, i, i + 1));
    }
    return PAR_OK;
}
// >>zero_buddies --------------------------------------------------------------------------------------------
//
// The buddy has a shard twice: its own, and its ward's with a copy of all that the ward needs for an update.
//     ward     reduced gradients    norm    commit point    update, gather
//                 |  send                       |
//     buddy    ward_gradients       norm    commit point    update, gather, update of the ward's shard
// Both updates have the same inputs, so the copy equals the ward's shard to the bit. A copy is seen as the
// context of a rank in stage 3: whatever reads, writes or updates a shard does so with the ward's, too.

static par_zero par__zero_ward_of(const par_zero *z) {
    par_zero w = *z;
    w.rank = z->ward;
    w.sharded_parameters = w.sharded_gradients = 1;
    w.parameters = z->ward_parameters;
    w.gradients = z->ward_gradients;
    w.directions = z->ward_directions;
    memcpy(w.states, z->ward_states, sizeof w.states);
    return w;
}
// Sends elements to the buddy and receives the ward's. what: 0: gradients, 1: directions.
static par_result par__zero_to_buddy(par_zero *z, int unit, int what, const void *mine, void *theirs,
                                     par_dtype type) {
    par__zero_unit *u = &z->units[unit];
    const size_t n = par__zero_shard_count(z, u, 0);
    par_comm *comm = par__in_named_layer(z->desc.comm, u->site[PAR__ZERO_UPDATE]);
    if (z->ward < 0 || !n || u->use_of) return PAR_OK;
    PAR__ZERO_TRY((par_recv_begin)(theirs, n, type, z->ward, comm, &u->from_ward[what]));
    return (par_send_begin)(mine, n, type, z->buddy, comm, &u->to_buddy[what]);
}
static par_result par__zero_gradients_to_buddy(par_zero *z) {
    size_t first, count;
    for (int i = 0; i < z->unit_count && z->ward >= 0; i++) {
        const par__zero_unit *u = &z->units[i];
        PAR__ZERO_TRY(par__zero_to_buddy(z, i, 0, par__zero_sum_of(z, u, &first, &count),
                                         z->ward_gradients + u->grad_shard_offset * par__zero_grad_bytes(z),
                                         z->desc.grad_dtype));
    }
    return PAR_OK;
}
static par_result par__zero_directions_to_buddy(par_zero *z, int unit) {
    const size_t at = z->units[unit].state_offset;
    if (z->ward < 0) return PAR_OK;
    return par__zero_to_buddy(z, unit, 1, z->directions + at, z->ward_directions + at, PAR_F32);
}
static par_result par__zero_wait_for_buddies(par_zero *z) {
    for (int i = 0; i < z->unit_count && z->ward >= 0; i++) {
        PAR__ZERO_TRY(par_wait_all(z->units[i].from_ward, 2));
        PAR__ZERO_TRY(par_wait_all(z->units[i].to_buddy, 2));
    }
    return PAR_OK;
}
static par_result par__zero_update_ward(par_zero *z) {
    if (z->ward < 0) return PAR_OK;
    par_zero ward = par__zero_ward_of(z);
    return par__zero_update_units(&ward, 0, z->unit_count);
}
static par_result par__zero_fill_ward(par_zero *z); // by messages: see >>zero_recover
// Brings values that were set to the buddies, if a rank has set some. Collective over comm.
static par_result par__zero_update_stale(par_zero *z) {
    if (z->ward < 0) return PAR_OK;
    PAR__ZERO_TRY(par_all_reduce(&z->stale, &z->stale, 1, PAR_I32, PAR_MAX, z->desc.comm));
    return z->stale ? par__zero_fill_ward(z) : PAR_OK;
}

// >>zero_commit ---------------------------------------------------------------------------------------------
//
// The step has a commit point, the comparison of factors: no rank passes it before all have arrived there.
// Before it nothing is changed, so the step can be made again; behind it each rank finishes by itself.

static void par__zero_forget_gathered(par_zero *z) { // prefetched, unused, and outdated
    for (int i = 0; i < z->gathered_parameters.count; i++) {
        par__zero_slot *s = &z->gathered_parameters.slots[i];
        par__zero_fetch_end(z, s);
        par_wait_all(s->requests, 2);
        s->unit = -1;
    }
}
par_result par_zero_flush(par_zero *z) {
    if (!z->committed)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_flush: par_zero_commit was not called");
    if (par__zero_slots_in_use(&z->gathered_parameters))
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                              "par_zero_flush: a unit was begun and not ended: call it between steps");
    par__zero_forget_gathered(z);
    for (int i = 0; i < z->unit_count; i++) PAR__ZERO_TRY(par_wait(&z->units[i].param_gather));
    return par__zero_update_stale(z);
}
// Prepares the next step. Gradients that the update has used are zeros already.
static par_result par__zero_reset_step(par_zero *z, int unused) {
    par_device *d = z->device;
    const size_t e = par__zero_grad_bytes(z);
    par__zero_forget_gathered(z);
    z->gradients_reduced = 0;
    for (int i = 0; i < z->unit_count; i++) {
        par__zero_unit *u = &z->units[i];
        char *g = z->gradients + u->grad_offset * e;
        size_t first, count;
        u->microbatches_done = 0;
        if (z->sharded_gradients) continue;
        par__zero_sum_of(z, u, &first, &count);
        if (unused || u->use_of) count = 0;
        PAR__ZERO_TRY(d->fill(d, g, 0, first * e, NULL));
        PAR__ZERO_TRY(d->fill(d, g + (first + count) * e, 0, (u->count[0] - first - count) * e, NULL));
    }
    return PAR_OK;
}
static par_zero_rules par__zero_rules_of(const par_zero *z, float lr_factor) {
    par_zero_rules r;
    memset(&r, 0, sizeof r);
    r.microbatches =
        z->desc.reduction == PAR_ZERO_MEAN ? (double)z->ranks * z->replica_count * z->microbatches : 1;
    r.lr_factor = lr_factor;
    r.clip = z->desc.clip;
    r.loss_scale = z->desc.loss_scale;
    r.window = z->desc.loss_scale_window;
    r.hysteresis = z->desc.loss_scale_hysteresis;
    for (int g = 0; g < PAR_ZERO_MAX_GROUPS; g++) {
        const par_zero_hyper h = par__zero_hyper_of(z, g);
        r.beta[g][0] = h.beta1;
        r.beta[g][1] = h.beta2;
    }
    return r;
}
// The commit point. With factors that differ replicas would differ for ever: compares the least and the
// largest of all ranks. A device's are not compared, because its host waits for nothing; with buddies it
// waits.
static par_result par__zero_compare_factors(par_zero *z, float factor, int *same) {
    par_comm *const comms[3] = {z->desc.comm, z->desc.replica_comm, z->desc.model_parallel_comm};
    const int compares = z->on_cpu || z->desc.buddies;
    if (factor < 0) factor = z->on_cpu ? z->control->lr_factor : 0;
    if (!(factor >= 0)) factor = INFINITY; // NaN is none
    float range[3] = {factor, factor < INFINITY ? -factor : INFINITY, (float)z->stale};
    if (!z->on_cpu && compares) PAR__ZERO_TRY(z->device->stream_sync(z->device, NULL));
    for (size_t i = 0, n = 2 + (size_t)z->desc.buddies; i < 3 && compares; i++)
        if (comms[i]) PAR__ZERO_TRY(par_all_reduce(range, range, n, PAR_F32, PAR_MAX, comms[i]));
    z->stale = range[2] > 0;
    *same = range[0] == -range[1];
    if (*same) return PAR_OK;
    return PAR__ZERO_FAIL(
        PAR_ERR_MISMATCH,
        "par_zero_step: lr_factor is %g here, and from %g to %g on all ranks: they must give the same finite "
        "number; nothing was changed",
        (double)factor, -(double)range[1], (double)range[0]);
}
// All that needs other ranks. Nothing of the last step is lost: its control is in `before`.
static par_result par__zero_prepare_parts(par_zero *z, const par_zero_rules *rules) {
    PAR__ZERO_TRY(par__zero_gradients_to_buddy(z));
    PAR__ZERO_TRY(par__zero_square_norm(z));
    PAR__ZERO_TRY(z->kernels->decide(z->kernels, rules, z->control));
    const int skip = z->on_cpu && z->control->skipped; // a device's kernels read the control themselves
    if (!skip && z->desc.optimizer == PAR_ZERO_LAMB) PAR__ZERO_TRY(par__zero_lamb_trust_ratios(z));
    if (!skip) PAR__ZERO_TRY(par__zero_find_scales(z));
    for (int i = 0; i < z->unit_count && !skip && z->directions; i++) {
        if (!par__zero_has_matrix(z, &z->units[i])) continue;
        PAR__ZERO_TRY(par__zero_muon_directions(z, i));
        PAR__ZERO_TRY(par__zero_directions_to_buddy(z, i));
    }
    return par__zero_wait_for_buddies(z);
}
// Exchanges this step's control and the last one's.
static void par__zero_swap_control(par_zero *z) {
    const par_zero_control now = par__zero_control_get(z);
    par_zero_control before = now;
    par__zero_copy_sync(z, &before, z->before, sizeof before);
    par__zero_copy_sync(z, z->before, &now, sizeof now);
    par__zero_control_set(z, &before);
}
// Up to the commit point. After an error the control is the last step's again.
static par_result par__zero_prepare(par_zero *z, float lr_factor) {
    const par_zero_rules rules = par__zero_rules_of(z, lr_factor);
    if (z->prepared || z->torn)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                              "par_zero_step: a step ended with an error before: call par_zero_recover");
    PAR__ZERO_TRY(par__zero_finish_gradients(z, "par_zero_step"));
    PAR__ZERO_TRY(z->device->copy(z->device, z->before, z->control, sizeof *z->control, NULL));
    par_result r = par__zero_prepare_parts(z, &rules);
    const int ready = !r;
    int same = 1;
    if (ready) r = par__zero_compare_factors(z, lr_factor, &same);
    if (r) par__zero_swap_control(z);
    z->prepared = r && ready && same; // others may have passed the commit point
    return r;
}
// What follows the commit point: each rank does it by itself, but for gathers of parameters.
// alone: there are none.
static par_result par__zero_finish_step(par_zero *z, int alone) {
    const int skip = z->on_cpu && z->control->skipped;
    z->prepared = 0;
    z->torn = 1;
    z->late = alone ? PAR_ERR_PEER_DIED : PAR_OK;
    z->steps_committed++;
    if (!skip) PAR__ZERO_TRY(par__zero_update_all(z));
    if (!skip && !z->stale) PAR__ZERO_TRY(par__zero_update_ward(z));
    if (!skip) z->now = !z->now;
    PAR__ZERO_TRY(par__zero_reset_step(z, skip));
    z->torn = 0;
    return z->late;
}
par_result par_zero_step(par_zero *z, float lr_factor, par_zero_report *report) {
    if (!z->committed)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_step: par_zero_commit was not called");
    PAR__ZERO_TRY(par__zero_check_passes(z, "par_zero_step"));
    PAR__ZERO_TRY(par__zero_prepare(z, lr_factor));
    PAR__ZERO_TRY(par__zero_finish_step(z, 0));
    if (z->stale) PAR__ZERO_TRY(par__zero_fill_ward(z));
    if (!report) return PAR_OK;
    const par_zero_control now = par__zero_control_get(z);
    report->grad_norm = now.grad_norm;
    report->skipped = now.skipped;
    report->loss_scale = now.loss_scale;
    return report->step = now.step, PAR_OK;
}
const par_zero_control *par_zero_control_of(const par_zero *z) { return z->control; }
float par_zero_loss_scale(const par_zero *z) { return par__zero_control_get(z).loss_scale; }
uint64_t par_zero_steps(const par_zero *z) { return par__zero_control_get(z).step; }
void par_zero_set_steps(par_zero *z, uint64_t steps) {
    par_zero_control now = par__zero_control_get(z);
    now.step = steps;
    par__zero_control_set(z, &now);
}
par_result par_zero_set_lr_factor(par_zero *z, float lr_factor) { // an argument of a kernel: nothing waits
    z->initial_control.lr_factor = lr_factor;
    if (!z->control) return PAR_OK;
    return z->kernels->scale(z->kernels, 1, &z->control->lr_factor, z->one, lr_factor, NULL);
}

// >>zero_values ---------------------------------------------------------------------------------------------

// The elements of a tensor that are in this rank's parameters, as offsets in the unit's part: from *begin to
// the result.
static size_t par__zero_stored_range(const par_zero *z, const par__zero_tensor *t, size_t *begin) {
    const size_t shard = par__zero_shard_count(z, &z->units[t->unit], t->part);
    const size_t first = z->sharded_parameters ? shard * (size_t)z->rank : 0;
    const size_t until = z->sharded_parameters ? first + shard : SIZE_MAX;
    *begin = PAR__MAX(first, t->offset);
    return PAR__MIN(until, t->offset + t->count);
}
// Where element `at` of a unit's part is in this rank's parameters, in bytes.
static size_t par__zero_parameter_at(const par_zero *z, const par__zero_unit *u, int part, size_t at) {
    const size_t shard = par__zero_shard_count(z, u, part),
                 first = z->sharded_parameters ? shard * (size_t)z->rank : 0;
    const size_t start = z->sharded_parameters ? par__zero_shard_at(z, u, part)
                                               : u->unsharded_offset + (part ? u->count[0] : 0);
    return (start + at - first) * par__zero_param_bytes(z);
}
// Copies n elements of a unit's part from or to this rank's parameters.
static par_result par__zero_move_parameters(par_zero *z, const par__zero_unit *u, int part, size_t at,
                                            size_t n, void *memory, int write) {
    const size_t e = par__zero_param_bytes(z), from = par__zero_parameter_at(z, u, part, at);
    if (z->parameter_store.kind)
        return par__zero_transfer_wait(
            z, par__zero_transfer_begin(z, &z->parameter_store, memory, from, n * e, write));
    return par__zero_copy_sync(z, write ? z->parameters + from : (char *)memory,
                               write ? (char *)memory : z->parameters + from, n * e);
}
static int par__zero_state_of_field(par_zero_field what) { // VALUE: the master weights, if there are any
    return what == PAR_ZERO_MOMENT1   ? PAR__ZERO_M
           : what == PAR_ZERO_MOMENT2 ? PAR__ZERO_V
           : what == PAR_ZERO_EMA     ? PAR__ZERO_EMA
                                      : PAR__ZERO_MASTER;
}
typedef struct par__zero_fill { // a fill of a whole tensor
    const par_shard *shard;
    par_zero_fill_fn fn;
    void *user;
    int shards;                      // of parameters that all ranks have, only this rank's shard
    const par_zero_initial *initial; // the values that fn draws, which a device may draw itself; NULL: others
} par__zero_fill;
// May a device draw the values itself? It waits then, as a copy would.
static int par__zero_draws_there(const par_zero *z, const par__zero_fill *fill) {
    return fill->initial && !z->on_cpu && z->kernels->init;
}
static par_result par__zero_draw_there(const par_zero *z, const par__zero_fill *fill, size_t first, size_t n,
                                       void *x, par_dtype type) {
    PAR__ZERO_TRY(z->kernels->init(z->kernels, fill->initial, first, n, x, type));
    return z->device->stream_sync(z->device, NULL);
}
static void par__zero_fill_spans(const par__zero_fill *f, size_t first, size_t count, float *values) {
    for (size_t done = 0, n; done < count; done += n) {
        size_t at;
        n = PAR__MIN(par_shard_find(f->shard, first + done, &at, NULL), count - done);
        f->fn(f->user, at, n, values + done);
    }
}
// Copies n elements of a state, from element `skip` of the run on, to f32. u8: whole blocks are read.
static par_result par__zero_read_state(const par_zero *z, const par__zero_walk *w, int kind, size_t skip,
                                       size_t n, float *values) {
    const par_dtype type = par__zero_state_dtype(z, kind);
    const par__zero_tensor *t = &z->tensors[w->tensor];
    par_zero_update a = par__zero_rounding_of(z, t, 0);
    const size_t unit = type == PAR_U8 ? (size_t)PAR__ZERO_STATE_BLOCK : 1, k = w->at - w->now.first + skip;
    float narrow[PAR__ZERO_CHUNK], wide[PAR__ZERO_CHUNK];
    if (type == PAR_F32) return par__zero_copy_sync(z, values, par__zero_run_state(z, w, kind, skip), n * 4);
    PAR__ZERO_TRY(par__zero_host_scales(z, t, 0, &a));
    for (size_t at = k, step; at < k + n; at += step) {
        const size_t from = at / unit * unit;
        const size_t count = PAR__MIN((size_t)PAR__ZERO_CHUNK, par__round_up(k + n - from, unit));
        step = PAR__MIN(from + count, k + n) - at;
        PAR__ZERO_TRY(par__zero_copy_sync(z, narrow, w->states[kind] + par__zero_state_bytes(z, kind, from),
                                          par__zero_state_bytes(z, kind, count)));
        a.first = w->now.first + from - t->offset;
        par__zero_widen_moment(wide, narrow, &a, kind == PAR__ZERO_M, 0, count);
        memcpy(values + (at - k), wide + (at - from), step * sizeof *values);
    }
    return PAR_OK;
}
// Finds the scales of the blocks of the whole tensor that have some of n elements of this rank's part.
static void par__zero_fill_scales(const par__zero_fill *fill, const par_zero_update *a, int moment,
                                  size_t n) {
    const size_t whole = par__zero_shape_product(fill->shard->global_shape, fill->shard->dims);
    par__zero_span s = {0, 0, 0};
    for (size_t last = SIZE_MAX; par__zero_span_after(a, a->first, n, &s);) {
        const size_t block = s.number / PAR__ZERO_STATE_BLOCK, at = block * PAR__ZERO_STATE_BLOCK;
        float values[PAR__ZERO_STATE_BLOCK] = {0};
        if (block == last) continue;
        fill->fn(fill->user, at, PAR__MIN((size_t)PAR__ZERO_STATE_BLOCK, whole - at), values);
        a->new_scales[moment][last = block] = par__zero_largest_of(values);
    }
}
// Values on their way to a device are collected in pinned memory, 64 chunks of them: a copy and a wait for
// 1024 numbers take longer than reading or drawing them.
static size_t par__zero_staged_count(const par_zero *z) {
    return z->on_cpu ? (size_t)PAR__ZERO_CHUNK : (size_t)PAR__ZERO_STAGING;
}
static void *par__zero_staged(const par_zero *z, float *own) { return z->on_cpu ? own : z->staging; }
// Some elements of a state, at most a chunk, as they are stored.
static void par__zero_fill_chunk(par_zero *z, const par__zero_fill *fill, par_zero_update *nearest, int kind,
                                 size_t first, size_t count, void *to) {
    float wide[PAR__ZERO_CHUNK];
    const size_t whole =
        nearest->state_dtype == PAR_U8 ? par__round_up(count, (size_t)PAR__ZERO_STATE_BLOCK) : count;
    memset(wide, 0, sizeof wide);
    nearest->first = first;
    if (nearest->state_dtype == PAR_U8 && nearest->shard) {
        memset(to, 0, par__zero_state_bytes(z, kind, whole));
        par__zero_fill_scales(fill, nearest, kind == PAR__ZERO_V, count);
    }
    par__zero_fill_spans(fill, first, count, wide);
    if (nearest->state_dtype == PAR_F32)
        memcpy(to, wide, count * sizeof *wide);
    else
        par__zero_narrow_moment(to, wide, nearest, kind == PAR__ZERO_M, 0, whole);
}
// Sets a state of a run. u8: it begins a block, and zeros follow the last element of a tensor.
static par_result par__zero_fill_state(par_zero *z, const par__zero_fill *fill, const par__zero_walk *w,
                                       int kind) {
    const par__zero_tensor *t = &z->tensors[w->tensor];
    const size_t first = w->at - t->offset, n = w->count;
    float staging[PAR__ZERO_CHUNK];
    par_zero_update nearest = par__zero_rounding_of(z, t, 0);
    nearest.state_seed = 0;
    nearest.state_dtype = par__zero_state_dtype(z, kind);
    PAR__ZERO_TRY(par__zero_host_scales(z, t, 0, &nearest));
    memcpy(nearest.new_scales, nearest.scales, sizeof nearest.scales);
    if (nearest.state_dtype == PAR_F32 && par__zero_draws_there(z, fill))
        return par__zero_draw_there(z, fill, first, n, par__zero_run_state(z, w, kind, 0), PAR_F32);
    if (z->on_cpu && nearest.state_dtype == PAR_F32)
        return par__zero_fill_spans(fill, first, n, (float *)par__zero_run_state(z, w, kind, 0)), PAR_OK;
    char *const to = (char *)par__zero_staged(z, staging);
    for (size_t at = 0, many; at < n; at += many) {
        many = PAR__MIN(par__zero_staged_count(z), n - at);
        for (size_t from = 0, count; from < many; from += count) {
            count = PAR__MIN((size_t)PAR__ZERO_CHUNK, many - from);
            par__zero_fill_chunk(z, fill, &nearest, kind, first + at + from, count,
                                 to + par__zero_state_bytes(z, kind, from));
        }
        const size_t whole = par__round_up(many, nearest.state_dtype == PAR_U8 ? PAR__ZERO_STATE_BLOCK : 1);
        PAR__ZERO_TRY(par__zero_copy_sync(z, par__zero_run_state(z, w, kind, at), to,
                                          par__zero_state_bytes(z, kind, whole)));
    }
    return par__zero_host_scales(z, t, 1, &nearest);
}
static par_result par__zero_fill_parameters(par_zero *z, const par__zero_tensor *t,
                                            const par__zero_fill *fill) {
    float values[PAR__ZERO_CHUNK] = {0}, own[PAR__ZERO_CHUNK];
    const par__zero_unit *u = &z->units[t->unit];
    const int rounds = z->desc.stochastic_rounding && !t->part && z->desc.param_dtype == PAR_BF16;
    const uint64_t step = rounds ? par_zero_steps(z) : 0; // a device is asked for it
    const int randomly = rounds && step;
    size_t begin;
    size_t end = par__zero_stored_range(z, t, &begin);
    if (fill->shards && !t->part) {
        const size_t shard = par__zero_shard_count(z, u, 0), first = shard * (size_t)z->rank;
        begin = PAR__MAX(begin, first);
        end = PAR__MIN(end, first + shard);
    }
    if (par__zero_draws_there(z, fill) && !z->parameter_store.kind && !randomly && begin < end)
        return par__zero_draw_there(z, fill, begin - t->offset, end - begin,
                                    z->parameters + par__zero_parameter_at(z, u, t->part, begin),
                                    z->desc.param_dtype);
    const par_zero_update last = par__zero_rounding_of(z, t, step); // rounds as the last step did
    char *const rounded = (char *)par__zero_staged(z, own);
    for (size_t at = begin, many; at < end; at += many) {
        many = PAR__MIN(par__zero_staged_count(z), end - at);
        for (size_t from = 0, n; from < many; from += n) {
            char *to = rounded + from * par__zero_param_bytes(z);
            const size_t first = at + from - t->offset;
            n = PAR__MIN((size_t)PAR__ZERO_CHUNK, many - from);
            par__zero_fill_spans(fill, first, n, values);
            if (randomly)
                par__zero_round_part(&last, last.seed, (uint16_t *)(void *)to, values, n, first);
            else
                par_cast(to, z->desc.param_dtype, values, PAR_F32, n);
        }
        PAR__ZERO_TRY(par__zero_move_parameters(z, u, t->part, at, many, rounded, 1));
    }
    return PAR_OK;
}
static par_result par__zero_fill_by(par_zero *z, const par__zero_tensor *t, par_zero_field what,
                                    const par__zero_fill *fill) {
    const int kinds[2] = {par__zero_state_of_field(what), what == PAR_ZERO_VALUE ? PAR__ZERO_EMA : 0};
    PAR__ZERO_TRY(par_wait(&z->units[t->unit].param_gather));
    if (what == PAR_ZERO_VALUE) PAR__ZERO_TRY(par__zero_fill_parameters(z, t, fill));
    par__zero_walk w = par__zero_walk_tensor(t, 0, t->count, PAR__ZERO_WRITES);
    while (par__zero_next(z, &w))
        for (int i = 0; i < 1 + (kinds[1] > 0); i++)
            if (w.states[kinds[i]]) PAR__ZERO_TRY(par__zero_fill_state(z, fill, &w, kinds[i]));
    z->stale = z->ward >= 0;
    return w.result;
}
static par_result par__zero_check_fill(par_zero *z, const char *call, int tensor, par_zero_field what) {
    if (z->committed && tensor >= 0 && tensor < z->tensor_count && what != PAR_ZERO_GRADIENT) return PAR_OK;
    return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "%s: there is no tensor %d, or par_zero_commit was not called",
                          call, tensor);
}
par_result par_zero_fill(par_zero *z, int tensor, par_zero_field what, par_zero_fill_fn fn, void *user) {
    PAR__ZERO_TRY(par__zero_check_fill(z, "par_zero_fill", tensor, what));
    const par__zero_fill fill = {&z->tensors[tensor].shard, fn, user, 0, NULL};
    return par__zero_fill_by(z, &z->tensors[tensor], what, &fill);
}
static void par__zero_copy_values(void *user, size_t first, size_t count, float *values) {
    memcpy(values, (const float *)user + first, count * sizeof *values);
}
par_result par_zero_broadcast(par_zero *z, int tensor, par_zero_fill_fn fn, void *user) {
    PAR__ZERO_TRY(par__zero_check_fill(z, "par_zero_broadcast", tensor, PAR_ZERO_VALUE));
    const par__zero_tensor *t = &z->tensors[tensor];
    // each passes on what it got from the one before
    par_comm *const comms[3] = {t->desc.tied_comm, z->desc.replica_comm, z->desc.comm};
    const int counts[3] = {z->rank == 0 && z->replica == 0, z->rank == 0, 1};
    float *values = (float *)PAR_MALLOC((t->count + 1) * sizeof *values);
    const par_shard here = par_shard_whole(t->desc.shape, t->desc.dims);
    const par__zero_fill theirs = {&t->shard, fn, user, 0, NULL},
                         mine = {&here, par__zero_copy_values, values, 0, NULL};
    par_result r = values ? PAR_OK : PAR_ERR_MEMORY;
    if (r) PAR__ZERO_FAIL(r, "par_zero_broadcast: out of memory for a tensor's values");
    for (int i = 2; i >= 0; i--)
        if (comms[i]) r = par__zero_share_error(z, comms[i], r, par_last_error(z->desc.comm));
    if (!r && z->rank == 0 && z->replica == 0) par__zero_fill_spans(&theirs, 0, t->count, values);
    for (int i = 0; i < 3 && !r; i++)
        if (comms[i] && counts[i]) r = par_broadcast(values, values, t->count, PAR_F32, 0, comms[i]);
    if (!r) r = par__zero_fill_by(z, t, PAR_ZERO_VALUE, &mine);
    return PAR_FREE(values), r;
}
static void par__zero_draw(void *user, size_t first, size_t count, float *values) {
    const par_zero_initial *v = (const par_zero_initial *)user;
    float narrow[256];
    if (v->deviation > 0) par_normals(v->seed, v->stream, first, count, values);
    for (size_t i = 0; i < count; i++) values[i] = v->deviation > 0 ? v->deviation * values[i] : v->value;
    for (size_t i = 0, n; i < count && v->dtype != PAR_F32; i += n) {
        n = PAR__MIN(count - i, sizeof narrow / sizeof narrow[0]);
        par_cast(narrow, v->dtype, values + i, PAR_F32, n);
        par_cast(values + i, PAR_F32, narrow, v->dtype, n);
    }
}
static par_result par__zero_init_tensor(par_zero *z, int tensor, uint64_t stream, float deviation,
                                        float value, int shards) {
    PAR__ZERO_TRY(par__zero_check_fill(z, "par_zero_init", tensor, PAR_ZERO_VALUE));
    const par_shard *shard = &z->tensors[tensor].shard;
    par_zero_initial v = {z->desc.seed, stream, deviation, value, z->desc.param_dtype, shard};
    const par__zero_fill fill = {shard, par__zero_draw, &v, shards, &v};
    return par__zero_fill_by(z, &z->tensors[tensor], PAR_ZERO_VALUE, &fill);
}
par_result par_zero_init(par_zero *z, int tensor, uint64_t stream, float deviation, float value) {
    return par__zero_init_tensor(z, tensor, stream, deviation, value, 0);
}
// Where ranks of one node each keep all parameters, they draw a shard each, and gather: a number takes 10 ns
// to draw, and 1 ns to copy.
par_result par_zero_init_all(par_zero *z) {
    const int shards = z->committed && z->on_cpu && z->ranks > 1 && !z->sharded_parameters &&
                       !z->parameter_store.kind && par_node_count(z->desc.comm) == 1;
    for (int i = 0; i < z->tensor_count; i++) {
        const par_zero_tensor *t = &z->tensors[i].desc;
        PAR__ZERO_TRY(par__zero_init_tensor(z, i, t->stream, t->deviation, t->value, shards));
    }
    for (int i = 0; i < z->unit_count && shards; i++) PAR__ZERO_TRY(par__zero_shards_gather_begin(z, i));
    return par__zero_update_stale(z);
}
// Reads elements [first, last) of a tensor to values[0] and on, as far as this rank holds them; the other
// elements of values stay as they are.
static par_result par__zero_read_parameters(par_zero *z, const par__zero_tensor *t, size_t first, size_t last,
                                            float *values) {
    float narrow[PAR__ZERO_CHUNK];
    const par__zero_unit *u = &z->units[t->unit];
    size_t begin, end = par__zero_stored_range(z, t, &begin);
    begin = PAR__MAX(begin, t->offset + first);
    end = PAR__MIN(end, t->offset + last);
    for (size_t at = begin; at < end; at += PAR__ZERO_CHUNK) {
        const size_t n = PAR__MIN((size_t)PAR__ZERO_CHUNK, end - at);
        PAR__ZERO_TRY(par__zero_move_parameters(z, u, t->part, at, n, narrow, 0));
        par_cast(values + (at - t->offset - first), PAR_F32, narrow, z->desc.param_dtype, n);
    }
    return PAR_OK;
}
// Are the values of a tensor its parameters, or (0) a state?
static int par__zero_is_parameter(const par_zero *z, const par__zero_tensor *t, par_zero_field what) {
    return what == PAR_ZERO_VALUE && (t->part || !par__zero_has_master(z));
}
static par_result par__zero_read_held(par_zero *z, const par__zero_tensor *t, par_zero_field what,
                                      size_t first, size_t last, float *values) {
    if (par__zero_is_parameter(z, t, what)) return par__zero_read_parameters(z, t, first, last, values);
    const int kind = par__zero_state_of_field(what);
    par__zero_walk w = par__zero_walk_tensor(t, first, last, PAR__ZERO_READS);
    while (par__zero_next(z, &w))
        if (w.states[kind])
            PAR__ZERO_TRY(par__zero_read_state(z, &w, kind, 0, w.count, values + (w.at - w.from)));
    return w.result;
}
static par_result par__zero_read_gradient(par_zero *z, const par__zero_tensor *t, float *values) {
    const size_t ge = par__zero_grad_bytes(z);
    size_t first, count;
    PAR__ZERO_TRY(par__zero_finish_gradients(z, "par_zero_read"));
    const char *g = par__zero_sum_of(z, &z->units[t->unit], &first, &count);
    const size_t begin = PAR__MAX(first, t->offset), end = PAR__MIN(first + count, t->offset + t->count);
    for (size_t at = begin, n; !t->part && at < end; at += n) {
        const void *here;
        PAR__ZERO_TRY(par__zero_read_staged(z, g + (at - first) * ge, ge, end - at, &n, &here));
        par_cast(values + (at - t->offset), PAR_F32, here, z->desc.grad_dtype, n);
    }
    return PAR_OK;
}
par_result par_zero_read(par_zero *z, int tensor, par_zero_field what, float *values) {
    if (!z->committed || tensor < 0 || tensor >= z->tensor_count)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                              "par_zero_read: there is no tensor %d, or par_zero_commit was not called",
                              tensor);
    const par__zero_tensor *t = &z->tensors[tensor];
    const int parameters = par__zero_is_parameter(z, t, what);
    memset(values, 0, t->count * sizeof *values);
    PAR__ZERO_TRY(par_wait(&z->units[t->unit].param_gather));
    PAR__ZERO_TRY(what == PAR_ZERO_GRADIENT ? par__zero_read_gradient(z, t, values)
                                            : par__zero_read_held(z, t, what, 0, t->count, values));
    if ((parameters && !z->sharded_parameters) || !par__zero_update_is_sharded(z))
        return PAR_OK; // every rank has all elements
    return par_all_reduce(values, values, t->count, PAR_U32, PAR_MAX,
                          z->desc.comm); // the other ranks have zeros
}

// >>zero_files ----------------------------------------------------------------------------------------------

par_dtype par_zero_file_dtype(const par_file_tensor *tensor) {
    int d = 0;
    while (d < PAR_DTYPE_COUNT && strcmp(tensor->dtype, par_dtype_traits_of((par_dtype)d)->safetensors)) d++;
    return (par_dtype)d;
}
static size_t par__zero_element_bytes(const par_file_tensor *t) {
    return par_dtype_bytes(par_zero_file_dtype(t));
}
__attribute__((format(printf, 3, 4))) static par_result par__zero_file_error(char *why, size_t capacity,
                                                                             const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(why, capacity, format, list);
    va_end(list);
    return PAR_ERR_FILE;
}
static par_result par__zero_file_result(int e) { // of an errno
    return !e ? PAR_OK : e == ENOMEM ? PAR_ERR_MEMORY : PAR_ERR_FILE;
}
void par_zero_safetensors_read(const par_file_tensor *tensor, size_t first, size_t count, float *values) {
    double aligned[256]; // data in a file may be unaligned
    const par_dtype dtype = par_zero_file_dtype(tensor);
    const size_t e = par_dtype_bytes(dtype);
    for (size_t at = 0; at < count; at += 256) {
        const size_t n = PAR__MIN((size_t)256, count - at);
        memcpy(aligned, (const char *)tensor->data + (first + at) * e, n * e);
        par_cast(values + at, PAR_F32, aligned, dtype, n);
    }
}

// Writes n values as elements from `first` on of a tensor in the file.
static void par__zero_put_values(par_safetensors_writer *w, size_t index, size_t first, const float *values,
                                 size_t n) {
    const par_dtype dtype = par_zero_file_dtype(&w->list[index]);
    double narrow[256];
    for (size_t at = 0, k; at < n && !w->error; at += k) {
        const int as_is = dtype == PAR_F32;
        k = as_is ? n : PAR__MIN(n - at, sizeof narrow / sizeof narrow[0]);
        if (!as_is) par_cast(narrow, dtype, values + at, PAR_F32, k);
        par_safetensors_put(w, index, first + at, k, as_is ? (const void *)values : (const void *)narrow);
    }
}
par_result par_zero_safetensors_put(par_safetensors_writer *w, size_t index, int transposed, size_t first,
                                    size_t count, const float *values) {
    enum { MAX_ROWS = 1024 };
    if (index >= w->count) return par__zero_file_result(par_safetensors_put(w, index, 0, 0, NULL));
    const par_file_tensor *t = &w->list[index];
    float column[MAX_ROWS];
    if (!w->error && !par_dtype_traits_of(par_zero_file_dtype(t))->is_float) {
        w->error = EINVAL;
        snprintf(w->why, sizeof w->why, "%s: numbers are written as floats, not as %s", t->name, t->dtype);
    }
    if (!transposed) par__zero_put_values(w, index, first, values, count);
    if (!transposed || w->error) return par__zero_file_result(w->error);
    const size_t cols = t->shape[0], rows = t->shape[1];
    for (size_t n; count; first += n, values += n, count -= n) { // a block: some whole rows, or a part of one
        const size_t row = first / cols, col = first % cols, whole = col ? 0 : count / cols;
        const size_t k = PAR__MAX(PAR__MIN(whole, (size_t)MAX_ROWS), (size_t)1);
        const size_t width = whole ? cols : PAR__MIN(count, cols - col);
        for (size_t c = 0; c < width; c++) {
            for (size_t r = 0; r < k; r++) column[r] = values[r * cols + c];
            par__zero_put_values(w, index, (col + c) * rows + row, column, k);
        }
        n = k * width;
    }
    return par__zero_file_result(w->error);
}
void par_zero_read_parts(const par_zero_part *p, size_t first, size_t count, float *values) {
    for (size_t n; count; first += n, values += n, count -= n) {
        while (first >= p->first + p->file->count) p++;
        const size_t cols = p->file->shape[0], rows = p->file->shape[1], at = first - p->first;
        n = PAR__MIN(count, p->file->count - at);
        if (!p->transposed) par_zero_safetensors_read(p->file, at, n, values);
        for (size_t i = 0; p->transposed && i < n; i++) {
            const size_t row = (at + i) / cols, col = (at + i) % cols;
            par_zero_safetensors_read(p->file, col * rows + row, 1, values + i);
        }
    }
}
static void par__zero_fill_from_parts(void *user, size_t first, size_t count, float *values) {
    const par_zero_part *const *parts = (const par_zero_part *const *)user;
    par_zero_read_parts(*parts, first, count, values);
}
par_result par_zero_import(par_zero *z, int tensor, const par_zero_part *parts, int count) {
    size_t sum = 0, whole = 1;
    if (!z->committed || tensor < 0 || tensor >= z->tensor_count)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                              "par_zero_import: there is no tensor %d, or par_zero_commit was not called",
                              tensor);
    const par__zero_tensor *t = &z->tensors[tensor];
    for (int i = 0; i < t->shard.dims; i++) whole *= t->shard.global_shape[i];
    for (int i = 0; i < count; sum += parts[i++].file->count) {
        const par_file_tensor *f = parts[i].file;
        if (!par_dtype_traits_of(par_zero_file_dtype(f))->is_float)
            return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_import: %s has no floating-point dtype",
                                  f->name);
        if (parts[i].first != sum || (parts[i].transposed && f->dims != 2))
            return PAR__ZERO_FAIL(
                PAR_ERR_ARGUMENT,
                "par_zero_import: %s, part %d of tensor %s, begins at element %zu, and must "
                "at %zu; transposed parts have two dimensions",
                f->name, i, t->name, parts[i].first, sum);
    }
    if (sum != whole)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                              "par_zero_import: the parts of tensor %s have %zu elements, and it has %zu",
                              t->name, sum, whole);
    return par_zero_fill(z, tensor, PAR_ZERO_VALUE, par__zero_fill_from_parts, &parts);
}

// >>zero_table ----------------------------------------------------------------------------------------------
//
// What a checkpoint holds: each tensor that any rank has, once, by name, and its states. Its items are the
// arrays in the files. All ranks compute the same table, so each knows where its elements lie in which file.

enum {
    PAR__ZERO_ITEM_KINDS = PAR__ZERO_STATE_KINDS
}; // item kinds of a tensor: weights (from master weights), and its states
typedef struct par__zero_tensor_info { // what ranks tell each other about a tensor
    char name[160];
    uint64_t shape[4];
    int32_t dims, dtype, trained, rank;
} par__zero_tensor_info;
typedef struct par__zero_file {
    char name[64];
    size_t first, count; // items
    size_t bytes;
    par_text header;
    int fd;
} par__zero_file;
typedef struct par__zero_table {
    par__zero_tensor_info *infos;
    size_t info_count;
    int *info_of;                    // index into infos of each of this rank's tensors
    par_file_tensor *items;          // in the order of the files
    size_t *item_at;                 // offset in its file
    int *item_file, *item_of;        // item_of: of tensor x kind; -1: there is none
    size_t item_count, weight_count; // items; those that are weights come first
    par__zero_file *files;
    int file_count;
} par__zero_table;

static void par__zero_table_close(par__zero_table *t) {
    for (int i = 0; i < t->file_count; i++) {
        PAR_FREE(t->files[i].header.text);
        if (t->files[i].fd >= 0) close(t->files[i].fd);
    }
    PAR_FREE(t->infos);
    PAR_FREE(t->info_of);
    PAR_FREE(t->items);
    PAR_FREE(t->item_at);
    PAR_FREE(t->item_file);
    PAR_FREE(t->item_of);
    PAR_FREE(t->files);
    memset(t, 0, sizeof *t);
}
static void par__zero_describe_tensor(const par_zero *z, const par__zero_tensor *t, int rank,
                                      par__zero_tensor_info *k) {
    memset(k, 0, sizeof *k);
    memcpy(k->name, t->name, sizeof k->name);
    for (int i = 0; i < t->desc.dims; i++) k->shape[i] = t->shard.global_shape[i];
    k->dims = t->desc.dims;
    k->trained = !t->part;
    k->rank = rank;
    k->dtype = (int32_t)(t->part ? z->desc.param_dtype : PAR_F32);
}
static int par__zero_by_info(const void *a, const void *b) { // by name, then by rank
    const par__zero_tensor_info *x = (const par__zero_tensor_info *)a, *y = (const par__zero_tensor_info *)b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}
// Sorts the tensors by name, so that the files are the same whichever rank has which tensor, and keeps one of
// each name.
static par_result par__zero_merge_infos(par__zero_table *t, char *why, size_t capacity) {
    const size_t size = offsetof(par__zero_tensor_info, rank) - offsetof(par__zero_tensor_info, shape);
    size_t kept = 0;
    if (t->info_count) qsort(t->infos, t->info_count, sizeof *t->infos, par__zero_by_info);
    for (size_t i = 0; i < t->info_count; i++) {
        const par__zero_tensor_info *b = &t->infos[i], *a = kept ? &t->infos[kept - 1] : NULL;
        if (!a || strcmp(a->name, b->name)) {
            t->infos[kept++] = *b;
            continue;
        }
        if (a->rank == b->rank)
            return par__zero_file_error(why, capacity,
                                        "two tensors are called \"%s\": a checkpoint needs names", a->name),
                   PAR_ERR_ARGUMENT;
        if (memcmp(a->shape, b->shape, size))
            return par__zero_file_error(why, capacity, "tensor %s is not the same on ranks %d and %d",
                                        a->name, a->rank, b->rank),
                   PAR_ERR_MISMATCH;
    }
    return t->info_count = kept, PAR_OK;
}
// Gathers the tensors of all ranks. If all ranks have the same (no pipeline), only a checksum is sent.
static par_result par__zero_gather_infos(par_zero *z, par_comm *comm, par__zero_table *t) {
    const size_t n = (size_t)z->tensor_count, e = sizeof *t->infos, ranks = (size_t)par_size(comm);
    uint64_t hash = 0xcbf29ce484222325u;
    int same;
    t->infos = (par__zero_tensor_info *)PAR_MALLOC((n + 1) * e);
    size_t *counts = (size_t *)PAR_MALLOC(ranks * sizeof *counts);
    if (!t->infos || !counts) return PAR_FREE(counts), PAR_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) par__zero_describe_tensor(z, &z->tensors[i], 0, &t->infos[i]);
    for (size_t i = 0; i < n * e; i++) hash = par__zero_mix(hash, ((const unsigned char *)t->infos)[i]);
    t->info_count = n;
    par_result r = par__zero_is_same(comm, hash, &same);
    if (r || same) return PAR_FREE(counts), r;
    counts[par_rank(comm)] = n * e;
    r = par_all_gather(&counts[par_rank(comm)], counts, 1, PAR_U64, comm);
    size_t all = 0;
    if (r) return PAR_FREE(counts), r;
    for (size_t i = 0; i < ranks; i++) all += counts[i];
    par__zero_tensor_info *more = (par__zero_tensor_info *)PAR_MALLOC(all + e);
    for (size_t i = 0; i < n; i++) t->infos[i].rank = par_rank(comm);
    r = more ? par_all_gatherv(t->infos, more, counts, NULL, PAR_U8, comm) : PAR_ERR_MEMORY;
    PAR_FREE(counts);
    PAR_FREE(t->infos);
    t->infos = more;
    t->info_count = r ? 0 : all / e;
    return r;
}
static void par__zero_add_items(const par_zero *z, par__zero_table *t, int kind, int trained) {
    for (size_t i = 0; i < t->info_count; i++) {
        const par__zero_tensor_info *k = &t->infos[i];
        par_file_tensor *a = &t->items[t->item_count];
        if (k->trained != trained || (kind && !z->has_state[kind])) continue;
        memset(a, 0, sizeof *a);
        snprintf(a->name, sizeof a->name, "%s%s", k->name, par__zero_state_suffix[kind]);
        a->dtype = par_dtype_traits_of(kind ? PAR_F32 : (par_dtype)k->dtype)->safetensors;
        a->dims = k->dims;
        for (int d = 0; d < k->dims; d++) a->shape[d] = (size_t)k->shape[d];
        a->count = par__zero_shape_product(a->shape, a->dims);
        a->bytes = a->count * par__zero_element_bytes(a);
        t->item_of[i * PAR__ZERO_ITEM_KINDS + (size_t)kind] = (int)t->item_count++;
    }
}
// Assigns items [first, last) to files of at most max_bytes, unless one tensor is larger.
static void par__zero_add_files(par__zero_table *t, const char *stem, par__zero_key key, size_t first,
                                size_t last, size_t max_bytes) {
    const int start = t->file_count;
    while (first < last) {
        par__zero_file *f = &t->files[t->file_count];
        size_t bytes = 0;
        memset(f, 0, sizeof *f);
        f->first = first;
        f->fd = -1;
        for (; first < last && (!f->count || bytes + t->items[first].bytes <= max_bytes);
             f->count++, first++) {
            t->item_file[first] = t->file_count;
            t->item_at[first] = bytes;
            bytes += t->items[first].bytes;
        }
        par__safetensors_header(&f->header, t->items + f->first, f->count);
        for (size_t i = f->first; i < first; i++) t->item_at[i] += f->header.count;
        f->bytes = bytes + f->header.count;
        t->file_count++;
    }
    for (int i = start; i < t->file_count; i++)
        snprintf(t->files[i].name, sizeof t->files[i].name, "%s-s%06d-%08x-%05d-of-%05d.safetensors", stem,
                 key.number, key.id, i - start + 1, t->file_count - start);
}
static int par__zero_by_key(const void *name, const void *info) { // whose first member is its name
    return strcmp((const char *)name, ((const par__zero_tensor_info *)info)->name);
}
static int par__zero_find_info(const par__zero_table *t, const char *name) { // the name is in the table
    const void *info = bsearch(name, t->infos, t->info_count, sizeof *t->infos, par__zero_by_key);
    return (int)((const par__zero_tensor_info *)info - t->infos);
}
// Makes the table without the placement of items in files. Collective over comm.
static par_result par__zero_table_open(par_zero *z, par_comm *comm, int weights_only, par__zero_table *t) {
    char why[512] = "out of memory for the table of tensors";
    memset(t, 0, sizeof *t);
    par_result r = par__zero_gather_infos(z, comm, t);
    const size_t n = t->info_count + 1, max_items = PAR__ZERO_ITEM_KINDS * n;
    t->info_of = (int *)PAR_MALLOC(((size_t)z->tensor_count + 1) * sizeof(int));
    t->items = (par_file_tensor *)PAR_MALLOC(max_items * sizeof *t->items);
    t->item_at = (size_t *)PAR_MALLOC(max_items * sizeof(size_t));
    t->item_file = (int *)PAR_MALLOC(max_items * sizeof(int));
    t->item_of = (int *)PAR_MALLOC(max_items * sizeof(int));
    t->files = (par__zero_file *)PAR_MALLOC(max_items * sizeof *t->files);
    if (!t->info_of || !t->items || !t->item_at || !t->item_file || !t->item_of || !t->files)
        r = r ? r : PAR_ERR_MEMORY;
    if (!r) r = par__zero_merge_infos(t, why, sizeof why);
    if (!r) {
        for (size_t i = 0; i < max_items; i++) t->item_of[i] = -1;
        for (int i = 0; i < z->tensor_count; i++) t->info_of[i] = par__zero_find_info(t, z->tensors[i].name);
        par__zero_add_items(z, t, 0, 1);
        par__zero_add_items(z, t, 0, 0); // f32 first: data are aligned
        t->weight_count = t->item_count;
        for (int kind = 1; kind < PAR__ZERO_ITEM_KINDS && !weights_only; kind++)
            par__zero_add_items(z, t, kind, 1);
    }
    r = par__zero_share_error(z, comm, r, why);
    if (r) par__zero_table_close(t);
    return r;
}
static void par__zero_place_items(par__zero_table *t, par__zero_key key, size_t max_bytes) {
    if (!max_bytes) max_bytes = 5000000000u;
    par__zero_add_files(t, "model", key, 0, t->weight_count, max_bytes);
    par__zero_add_files(t, "optimizer", key, t->weight_count, t->item_count, max_bytes);
}
static int par__zero_item_of(const par__zero_table *t, int tensor, int kind) {
    return t->item_of[t->info_of[tensor] * PAR__ZERO_ITEM_KINDS + kind];
}

// A sum of hashes of (element number, bits). So checksums of parts of a tensor add up, in any order.
static uint64_t par__zero_checksum(const void *data, size_t element, size_t first, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t x = (first + i) * 0x9E3779B97F4A7C15u;
        uint32_t bits = 0;
        for (size_t at = 0; at < element; at += 4) {
            memcpy(&bits, (const char *)data + i * element + at, PAR__MIN((size_t)4, element - at));
            x = (x ^ bits) * 0xBF58476D1CE4E5B9u;
            x ^= x >> 32;
        }
        sum += x;
    }
    return sum;
}
static uint64_t par__zero_hash(const char *text, size_t n) { return par__zero_checksum(text, 1, 0, n); }

// >>zero_manifest -------------------------------------------------------------------------------------------
//
// Files of a directory that are a save's, and which of them the manifest names.

typedef struct par__zero_manifest {
    char *text;                                               // of the file
    uint64_t number, step, loss_scale, good_steps, bad_steps; // loss_scale: its bits
    uint64_t scaled;                                          // the loss is; else it is not told
    char optimizer[16];
    const char *note, *files, *tensors; // pointers into the text
} par__zero_manifest;
static const char par__zero_self[] = ",\"self\":\""; // ends a manifest: a checksum of everything before
// Parses m->text, which has so many bytes and a terminating 0.
static par_result par__zero_parse_manifest(par__zero_manifest *m, size_t bytes, char *why, size_t capacity) {
    char key[32];
    char *self = NULL, tail[64];
    for (char *p = m->text; (p = strstr(p, par__zero_self)) != NULL; p++) self = p;
    if (self)
        snprintf(tail, sizeof tail, "%s%016llx\"}\n", par__zero_self,
                 (unsigned long long)par__zero_hash(m->text, (size_t)(self - m->text)));
    if (!self || strcmp(self, tail))
        return par__zero_file_error(why, capacity, "it is damaged, or no checkpoint's");
    const struct {
        const char *key;
        uint64_t *to;
    } numbers[] = {
        {"number", &m->number},         {"step", &m->step},           {"loss_scale_bits", &m->loss_scale},
        {"good_steps", &m->good_steps}, {"bad_steps", &m->bad_steps}, {"scaled", &m->scaled}};
    par_json j = {m->text, m->text + bytes, 0};
    for (size_t n = 0; par_json_member(&j, n, key, sizeof key, 0); n++) {
        par_json_peek(&j);
        const char *at = j.at;
        par_json_skip(&j);
        if (j.bad) break;
        if (!strcmp(key, "note")) m->note = at;
        if (!strcmp(key, "files")) m->files = at;
        if (!strcmp(key, "tensors")) m->tensors = at;
        par_json value = {at, j.end, 0};
        if (!strcmp(key, "optimizer")) par_json_string(&value, m->optimizer, sizeof m->optimizer, 0);
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            if (!strcmp(key, numbers[i].key)) *numbers[i].to = par_json_number(&value);
        j.bad |= value.bad;
    }
    if (!j.bad && m->note && m->files && m->tensors) return PAR_OK;
    return par__zero_file_error(why, capacity, "it is damaged");
}
static par_result par__zero_read_manifest(const char *dir, par__zero_manifest *m, char *why,
                                          size_t capacity) {
    char path[PAR__ZERO_DIR_BYTES + 20], wrong[64];
    size_t bytes = 0;
    memset(m, 0, sizeof *m);
    snprintf(path, sizeof path, "%.3900s/manifest.json", dir);
    m->text = par_file_read(path, &bytes, why, capacity);
    if (!m->text) return PAR_ERR_FILE;
    const par_result r = par__zero_parse_manifest(m, bytes, wrong, sizeof wrong);
    return r ? par__zero_file_error(why, capacity, "cannot read %s: %s", path, wrong) : PAR_OK;
}
// Parses the next {"name": ..., "word": "hex", "bytes": n} of a list. 0: there is none.
static int par__zero_next_row(par_json *j, size_t index, char *name, size_t capacity, const char *word,
                              uint64_t *hex, uint64_t *bytes) {
    char key[32], digits[20];
    if (!par_json_next(j, index, '[')) return 0;
    for (size_t i = 0; par_json_member(j, i, key, sizeof key, 0); i++)
        if (!strcmp(key, "name"))
            par_json_string(j, name, capacity, 0);
        else if (!strcmp(key, word)) {
            par_json_string(j, digits, sizeof digits, 0);
            *hex = strtoull(digits, NULL, 16);
        } else if (!strcmp(key, "bytes"))
            *bytes = par_json_number(j);
        else
            par_json_skip(j);
    return !j->bad;
}
// What a file of a save is for: data, or an intent, which the save's end renames. 0: another file.
enum { PAR__ZERO_DATA = 1, PAR__ZERO_INTENT };
static int par__zero_file_kind(const char *name, par__zero_key *key) {
    static const char *const stems[] = {"model-s", "optimizer-s", "manifest-s", "index-s"};
    for (int i = 0, end = 0, part, parts; i < 4; i++) {
        const char *s = name + strlen(stems[i]);
        if (strncmp(name, stems[i], strlen(stems[i])) || sscanf(s, "%6d%n", &key->number, &end) != 1)
            continue;
        s += end;
        end = 0;
        if (sscanf(s, "-%8x%n", &key->id, &end) == 1 && end == 9)
            s += end;
        else
            key->id = 0; // of a version before
        end = 0;
        if (i >= 2) return strcmp(s, ".tmp") ? 0 : PAR__ZERO_INTENT;
        if (sscanf(s, "-%5d-of-%5d.safetensors%n", &part, &parts, &end) < 2) return 0;
        return end && !s[end] ? PAR__ZERO_DATA : 0;
    }
    return 0;
}
static int par__zero_same_key(par__zero_key a, par__zero_key b) {
    return a.number == b.number && a.id == b.id;
}
// The save whose files the manifest of the directory names. number 0: there is no manifest.
static par_result par__zero_current_key(const char *dir, par__zero_key *key, char *why, size_t capacity) {
    par__zero_manifest m;
    char name[PAR_FILE_NAME_BYTES];
    uint64_t unused;
    memset(key, 0, sizeof *key);
    const par_result r = par__zero_read_manifest(dir, &m, why, capacity);
    const int none = r && !m.text && errno == ENOENT;
    if (!r) {
        par_json j = {m.files, m.files + strlen(m.files), 0};
        if (!par__zero_next_row(&j, 0, name, sizeof name, "header", &unused, &unused) ||
            !par__zero_file_kind(name, key))
            key->number = (int)(m.number % 1000000);
    }
    PAR_FREE(m.text);
    return none ? PAR_OK : r;
}
static void par__zero_unlink_in(const char *dir, const char *name) {
    char path[PAR__ZERO_DIR_BYTES + 256];
    snprintf(path, sizeof path, "%.3900s/%.255s", dir, name);
    unlink(path);
}
enum { PAR__ZERO_INTENT_BYTES = PAR__ZERO_DIR_BYTES + 64 };
static const char *par__zero_intent(char path[PAR__ZERO_INTENT_BYTES], const char *dir, const char *what,
                                    par__zero_key key) {
    snprintf(path, PAR__ZERO_INTENT_BYTES, "%.3900s/%s-s%06d-%08x.tmp", dir, what, key.number, key.id);
    return path;
}
static void par__zero_revoke(const char *dir, par__zero_key key) { // from here on this save cannot commit
    char path[PAR__ZERO_INTENT_BYTES];
    unlink(par__zero_intent(path, dir, "manifest", key));
    unlink(par__zero_intent(path, dir, "index", key));
}
// Lists the files of saves in a directory, of one save or (only NULL) of all. NULL, errno is set: out of
// memory, or it cannot be read.
static char (*par__zero_list_saves(const char *dir, const par__zero_key *only, size_t *count))[64] {
    char(*names)[64] = (char(*)[64])PAR_MALLOC(64), (*more)[64];
    par__zero_key key;
    DIR *d = opendir(dir);
    *count = 0;
    for (struct dirent *e; d && names && (e = readdir(d)) != NULL;) {
        const size_t n = strlen(e->d_name);
        if (n > 63 || !par__zero_file_kind(e->d_name, &key)) continue;
        if (only && !par__zero_same_key(*only, key)) continue;
        more = (char(*)[64])PAR_REALLOC(names, (*count + 2) * 64);
        if (!more) {
            PAR_FREE(names);
            names = NULL;
            break;
        }
        names = more;
        memcpy(names[(*count)++], e->d_name, n + 1);
    }
    if (d) closedir(d);
    return names;
}
// Deletes the files of a save, or (only NULL) of all saves, but for those that the manifest names. A save
// that another process is writing is revoked first, so that its manifest, which names these files, cannot
// become the current one: what was deleted is never named.
static par_result par__zero_remove_saves(const char *dir, const par__zero_key *only, par__zero_key *current,
                                         char *why, size_t capacity) {
    size_t count;
    par__zero_key key;
    char(*names)[64] = par__zero_list_saves(dir, only, &count);
    for (size_t i = 0; i < count && names; i++)
        if (par__zero_file_kind(names[i], &key)) par__zero_revoke(dir, key);
    const par_result r = par__zero_current_key(dir, current, why, capacity); // after the revocations
    for (size_t i = 0; i < count && names && !r; i++)
        if (par__zero_file_kind(names[i], &key) == PAR__ZERO_DATA && !par__zero_same_key(key, *current))
            par__zero_unlink_in(dir, names[i]);
    PAR_FREE(names);
    return r;
}

par_result par_zero_load_note(const char *dir, char *note, size_t note_bytes, uint64_t *steps, char *why,
                              size_t why_bytes) {
    par__zero_manifest m;
    const par_result r = par__zero_read_manifest(dir, &m, why, why_bytes);
    if (!r) {
        par_json j = {m.note, m.note + strlen(m.note), 0};
        par_json_string(&j, note, note_bytes, 1);
        if (steps) *steps = m.step;
    }
    return PAR_FREE(m.text), r;
}

// >>zero_lock -----------------------------------------------------------------------------------------------
//
// One run saves into a directory. lock.json names it.
//     first save, or par_zero_lock   lock-ID.tmp is linked as lock.json: of several runs one succeeds
//                                    it deletes what no manifest names
//     each save                      lock.json is still this run's own: its time is set (the heartbeat)
//     par_zero_close                 lock.json is deleted
// A lock that was made on this machine counts for nothing when its process has ended, or when it lies in a
// copy of its directory. Such a lock is moved away first: of several runs that find it one succeeds. With
// take_over any lock is replaced, and its run finds that out at its next save.
// So two runs do not replace each other's progress. That a checkpoint is whole does not depend on locks: see
// >>zero_save.

typedef struct par__zero_holder { // what lock.json says
    uint64_t id, pid, start, device, inode;
    char host[128], table[128], since[40], dir[1024];
    long long touched; // its time, by the file system's clock
} par__zero_holder;
enum { PAR__ZERO_UNLOCKED, PAR__ZERO_STALE, PAR__ZERO_LOCKED, PAR__ZERO_DAMAGED };
static const char par__zero_lock_name[] = "lock.json";

static void par__zero_lock_string(par_json *j, char *text, size_t capacity) { // safe to print
    par_json_string(j, text, capacity, 1);
    par__sanitize(text, "");
}
static int par__zero_lock_parse(par__zero_holder *h, const char *text, size_t bytes) { // 1: it is a lock
    char key[32];
    par_json j = {text, text + bytes, 0};
    const struct {
        const char *key;
        uint64_t *to;
    } numbers[] = {
        {"id", &h->id}, {"pid", &h->pid}, {"start", &h->start}, {"device", &h->device}, {"inode", &h->inode}};
    for (size_t n = 0; par_json_member(&j, n, key, sizeof key, 1); n++) {
        size_t i = 0;
        while (i < sizeof numbers / sizeof numbers[0] && strcmp(key, numbers[i].key)) i++;
        if (i < sizeof numbers / sizeof numbers[0])
            *numbers[i].to = par_json_number(&j);
        else if (!strcmp(key, "host"))
            par__zero_lock_string(&j, h->host, sizeof h->host);
        else if (!strcmp(key, "table"))
            par__zero_lock_string(&j, h->table, sizeof h->table);
        else if (!strcmp(key, "since"))
            par__zero_lock_string(&j, h->since, sizeof h->since);
        else if (!strcmp(key, "dir"))
            par__zero_lock_string(&j, h->dir, sizeof h->dir);
        else
            par_json_skip(&j);
    }
    return !j.bad && h->id && h->pid && h->pid <= INT_MAX && h->table[0];
}
// Does the lock count? The process table of another machine cannot be read: there it does.
static int par__zero_lock_state(const char *dir, const par__zero_holder *h) {
    char here[128];
    struct stat d;
    par__process_table(here, sizeof here);
    if (strcmp(here, h->table)) return PAR__ZERO_LOCKED;
    if (!stat(dir, &d) && ((uint64_t)d.st_dev != h->device || (uint64_t)d.st_ino != h->inode))
        return PAR__ZERO_STALE; // the directory was copied
    const uint64_t start = par__process_start((int)h->pid);
    const int unsaid = start == 1 || h->start == 1; // a process runs that has its pid: let it be this one
    return start && (unsaid || start == h->start) ? PAR__ZERO_LOCKED : PAR__ZERO_STALE;
}
static int par__zero_lock_read(const char *dir, const char *name, par__zero_holder *h) {
    char path[PAR__ZERO_DIR_BYTES + 256], text[16384];
    struct stat st;
    memset(h, 0, sizeof *h);
    snprintf(path, sizeof path, "%.3900s/%s", dir, name);
    const int fd = par__safe_fd(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    if (fd < 0) return errno == ENOENT ? PAR__ZERO_UNLOCKED : PAR__ZERO_DAMAGED;
    const int regular = !fstat(fd, &st) && S_ISREG(st.st_mode);
    const ssize_t n = regular ? read(fd, text, sizeof text) : -1;
    close(fd);
    h->touched = regular ? (long long)st.st_mtime : 0;
    if (n > 0 && (size_t)n < sizeof text && par__zero_lock_parse(h, text, (size_t)n))
        return par__zero_lock_state(dir, h);
    return h->id = 0, PAR__ZERO_DAMAGED;
}
static void par__zero_print_lock(const char *dir, uint64_t id, par_text *t) {
    char host[128] = "", table[128], since[40] = "", whole[PATH_MAX];
    struct stat d;
    struct tm tm;
    const time_t now = time(NULL);
    gethostname(host, sizeof host - 1);
    par__process_table(table, sizeof table);
    if (gmtime_r(&now, &tm)) strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", &tm);
    if (stat(dir, &d)) memset(&d, 0, sizeof d);
    par_text_print(t, "{\"format\":\"par_zero lock\",\"id\":%llu,\"pid\":%d,\"start\":%llu,\"host\":",
                   (unsigned long long)id, (int)getpid(),
                   (unsigned long long)par__process_start((int)getpid()));
    par_text_quote(t, host);
    par_text_print(t, ",\"table\":");
    par_text_quote(t, table);
    par_text_print(t,
                   ",\"device\":%llu,\"inode\":%llu,\"since\":\"%s\",\"dir\":", (unsigned long long)d.st_dev,
                   (unsigned long long)d.st_ino, since);
    par_text_quote(t, realpath(dir, whole) && strlen(whole) < 1024 ? whole : "");
    par_text_print(t, "}\n");
}
// Writes a lock under its temporary name. *now: the file's time, by the file system's clock. 0, or errno.
static int par__zero_lock_write(const char *dir, uint64_t id, const char *path, long long *now) {
    par_text t;
    struct stat st;
    memset(&t, 0, sizeof t);
    par__zero_print_lock(dir, id, &t);
    const int fd = t.failed ? -1 : par_file_replace(path);
    int e = t.failed ? ENOMEM : fd < 0 ? errno : par_file_write(fd, t.text, t.count, 0);
    if (!e && (fsync(fd) || fstat(fd, &st))) e = errno;
    if (fd >= 0 && close(fd) && !e) e = errno;
    *now = e ? 0 : (long long)st.st_mtime;
    return PAR_FREE(t.text), e;
}
static void par__zero_lock_who(const par__zero_holder *h, char *who, size_t capacity) {
    snprintf(who, capacity, "process %llu on %.100s, since %s by its clock", (unsigned long long)h->pid,
             h->host, h->since);
}
static par_result par__zero_lock_refused(const char *dir, const par__zero_holder *h, long long age, char *why,
                                         size_t capacity) {
    static const char advice[] = "take the directory over (take_over; --take_over of the trainer)";
    char who[240], moved[300] = "", whole[PATH_MAX];
    const long long unit = age < 180 ? 1 : age < 10800 ? 60 : 3600;
    if (!h->id)
        return par__zero_file_error(
            why, capacity,
            "%.150s/%s is no lock of this kit: delete it, or, if nobody saves there, %s; "
            "the previous checkpoint is untouched",
            dir, par__zero_lock_name, advice);
    par__zero_lock_who(h, who, sizeof who);
    if (realpath(dir, whole) && h->dir[0] && strcmp(whole, h->dir))
        snprintf(moved, sizeof moved, " (as %.120s)", h->dir);
    return par__zero_file_error(
        why, capacity,
        "another run saves into %.120s%s: %s; its last save, or its start, is %lld %s ago. Two runs would "
        "replace each other's checkpoint. End that one; if it has ended, %s; the previous checkpoint is "
        "untouched",
        dir, moved, who, PAR__MAX(age, 0) / unit,
        unit == 1    ? "s"
        : unit == 60 ? "minutes"
                     : "hours",
        advice);
}
// Moves the lock of a run that has ended out of the way. What it has moved may be another run's, which took
// the directory a moment ago: it puts such a lock back. EEXIST: look again; else errno.
static int par__zero_lock_clear(const char *dir, const char *path, uint64_t id, uint64_t stale) {
    char name[32], aside[PAR__ZERO_DIR_BYTES + 64];
    par__zero_holder h;
    snprintf(name, sizeof name, "lock-%016llx.tmp", (unsigned long long)(id ^ 1)); // nobody's: ids are odd
    snprintf(aside, sizeof aside, "%.3900s/%s", dir, name);
    if (rename(path, aside)) return errno;
    par__zero_lock_read(dir, name, &h);
    if (h.id != stale && link(aside, path) && errno != EEXIST && rename(aside, path)) return errno;
    return unlink(aside), EEXIST;
}
// Makes lock.json this run's. Where a file system has no hard links, the last of several runs that begin at
// the same moment has it.
static par_result par__zero_lock_take(const char *dir, uint64_t id, int take_over, char *why,
                                      size_t capacity) {
    char path[PAR__ZERO_DIR_BYTES + 64], own[PAR__ZERO_DIR_BYTES + 64];
    par__zero_holder h;
    long long now = 0;
    int e = ENOENT;
    snprintf(path, sizeof path, "%.3900s/%s", dir, par__zero_lock_name);
    snprintf(own, sizeof own, "%.3900s/lock-%016llx.tmp", dir, (unsigned long long)id);
    // ENOENT: another run has just deleted the temporary file; EEXIST: or its own lock
    for (int i = 0; i < 8 && (e == ENOENT || e == EEXIST); i++) {
        e = par__zero_lock_write(dir, id, own, &now);
        if (e) break;
        e = link(own, path) ? errno : 0;
        const int state = par__zero_lock_read(dir, par__zero_lock_name, &h);
        if (!e || h.id == id) return unlink(own), PAR_OK;
        if (state >= PAR__ZERO_LOCKED && !take_over)
            return unlink(own), par__zero_lock_refused(dir, &h, now - h.touched, why, capacity);
        if (state == PAR__ZERO_UNLOCKED && (e == EEXIST || e == ENOENT)) continue;
        if (state == PAR__ZERO_STALE) {
            e = par__zero_lock_clear(dir, path, id, h.id);
            continue;
        }
        e = rename(own, path) ? errno : 0;
        if (!e) return PAR_OK;
    }
    unlink(own);
    return par__zero_file_error(why, capacity,
                                "cannot make the lock %s: %s; the previous checkpoint is untouched", path,
                                strerror(e));
}
// Temporary files that are no save's: locks of runs that were killed, and files of versions before.
static void par__zero_remove_rest(const char *dir) {
    unsigned long long id;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        int end = 0;
        if ((sscanf(e->d_name, "lock-%16llx.tmp%n", &id, &end) == 1 && end && !e->d_name[end]) ||
            !strcmp(e->d_name, "manifest.json.tmp") || !strcmp(e->d_name, "model.safetensors.index.json.tmp"))
            par__zero_unlink_in(dir, e->d_name);
    }
    if (d) closedir(d);
}
static void par__zero_lock_release(par__zero_lock *k) { // local
    par__zero_holder h;
    if (k->id && k->owner && par__zero_lock_read(k->dir, par__zero_lock_name, &h) && h.id == k->id)
        par__zero_unlink_in(k->dir, par__zero_lock_name);
    if (k->fresh) rmdir(k->dir);
    memset(k, 0, sizeof *k);
}
// The run's lock names this process from here on: the one that had made it has died.
static void par__zero_lock_renew(par__zero_lock *k) {
    char path[PAR__ZERO_DIR_BYTES + 64], own[PAR__ZERO_DIR_BYTES + 64];
    par__zero_holder h;
    long long now;
    snprintf(path, sizeof path, "%.3900s/%s", k->dir, par__zero_lock_name);
    snprintf(own, sizeof own, "%.3900s/lock-%016llx.tmp", k->dir, (unsigned long long)k->id);
    par__zero_lock_read(k->dir, par__zero_lock_name, &h);
    k->owner = h.id == k->id && !par__zero_lock_write(k->dir, k->id, own, &now) && !rename(own, path);
    if (!k->owner) unlink(own); // the next save says what is wrong
}
// Is the lock that this run has made still its own? Sets its time if so.
static par_result par__zero_lock_keep(par__zero_lock *k, char *why, size_t capacity) {
    char path[PAR__ZERO_DIR_BYTES + 64], who[240];
    par__zero_holder h;
    par__zero_key now;
    const int state = par__zero_lock_read(k->dir, par__zero_lock_name, &h);
    snprintf(path, sizeof path, "%.3900s/%s", k->dir, par__zero_lock_name);
    if (h.id == k->id) return utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW), PAR_OK;
    if (h.id) {
        par__zero_lock_who(&h, who, sizeof who);
        return par__zero_file_error(
            why, capacity,
            "another run has taken over %.200s: %s. This run saves there no more; the "
            "checkpoint there is untouched",
            k->dir, who);
    }
    if (state == PAR__ZERO_DAMAGED) return par__zero_lock_refused(k->dir, &h, 0, why, capacity);
    const par_result r = par__zero_current_key(k->dir, &now, why, capacity); // the lock was deleted
    if (r) return r;
    if (now.number && !par__zero_same_key(now, k->seen))
        return par__zero_file_error(why, capacity,
                                    "another run has taken over %.200s, and has saved there. This run saves "
                                    "there no more; the checkpoint there is untouched",
                                    k->dir);
    return par__zero_lock_take(k->dir, k->id, 0, why, capacity);
}
// Rank 0, before a save: the directory is there, and this run's.
static par_result par__zero_lock_hold(par__zero_lock *k, const char *dir, int take_over, char *why,
                                      size_t capacity) {
    const int fresh = !mkdir(dir, 0777);
    if (!fresh && errno != EEXIST)
        return par__zero_file_error(why, capacity, "cannot make the directory %s: %s", dir, strerror(errno));
    par__file_sync_parent(dir);
    if (k->id) return par__zero_lock_keep(k, why, capacity);
    uint64_t id = 0;
    const int e = par__getrandom_u64(&id);
    if (e) return par__zero_file_error(why, capacity, "no random numbers: %s", strerror(e)), PAR_ERR_SYSTEM;
    par_result r = par__zero_lock_take(dir, id | 1, take_over, why, capacity);
    if (r) return r;
    k->id = id | 1;
    k->owner = 1;
    k->fresh = fresh;
    snprintf(k->dir, sizeof k->dir, "%s", dir);
    par__zero_remove_rest(dir);
    r = par__zero_remove_saves(dir, NULL, &k->seen, why, capacity);
    if (r) par__zero_lock_release(k); // keep whatever the manifest names
    return r;
}
// Collective over comm: all ranks know the lock, whichever of them is rank 0 of the next save's comm.
static par_result par__zero_lock_all(par_zero *z, par_comm *comm, const par_zero_checkpoint *how) {
    char why[700] = "";
    if (z->lock.id && strcmp(z->lock.dir, how->dir)) par__zero_lock_release(&z->lock);
    const int root = par_rank(comm) == 0, owner = z->lock.owner;
    const par_result r =
        root ? par__zero_lock_hold(&z->lock, how->dir, how->take_over, why, sizeof why) : PAR_OK;
    PAR__ZERO_TRY(par__zero_share_error(z, comm, r, why));
    PAR__ZERO_TRY(par_broadcast(&z->lock, &z->lock, offsetof(par__zero_lock, owner), PAR_U8, 0, comm));
    if (!root) z->lock.owner = owner;
    return snprintf(z->lock.dir, sizeof z->lock.dir, "%s", how->dir), PAR_OK;
}

// >>zero_save -----------------------------------------------------------------------------------------------
//
//     manifest.json  ->  model-s000007-ID... optimizer-s000007-ID...      the checkpoint
//     begin              rank 0 makes the intents, manifest-s000008-ID.tmp and index-s000008-ID.tmp; then
//                        model-s000008-ID... with their headers; all ranks write their elements
//     end                all data are on the disk; checksums are summed over ranks
//                        the manifest's intent is written, synced and renamed: s000008 is the checkpoint
//                        the files of s000007 are deleted
// Invariant: the files that manifest.json names are there, whichever processes write, wherever they stop. An
// intent is there before the data, and is the only way to become the checkpoint. Who deletes data of another
// process deletes its intents first, and then looks what the manifest names (par__zero_remove_saves): a save
// has either been committed by then, and is kept if it is the current one, or it will never be.
// Who takes the lock deletes what a save that was killed has left.

typedef struct par__zero_write_job { // a copy of contiguous elements of an item
    int item;
    size_t at, count;
    char *data;
} par__zero_write_job;
typedef struct par__zero_save {
    par_zero_checkpoint how;
    char dir[PAR__ZERO_DIR_BYTES];
    par_text note;
    par__zero_table table;
    par__zero_key key;
    int error, committed;
    uint64_t *sums; // checksums of this rank's elements of each item, then the numbers of these elements
    par__zero_write_job *jobs; // of a background save
    size_t job_count;
    int threaded;
    pthread_t thread;
    uint64_t step; // when the save began
    float loss_scale;
    int scaled, good_steps, bad_steps;
} par__zero_save;

static void par__zero_save_elements(par__zero_save *s, int item, size_t at, size_t count, const char *data) {
    par__zero_file *f = &s->table.files[s->table.item_file[item]];
    const size_t e = par__zero_element_bytes(&s->table.items[item]);
    char path[sizeof s->dir + 80];
    if (s->error) return;
    if (f->fd < 0) {
        snprintf(path, sizeof path, "%s/%s", s->dir, f->name);
        f->fd = par__safe_fd(open(path, O_WRONLY | O_CLOEXEC));
        if (f->fd < 0) {
            s->error = errno;
            return;
        }
    }
    s->error = par_file_write(f->fd, data, count * e, s->table.item_at[item] + at * e);
    s->sums[item] += par__zero_checksum(data, e, at, count);
    s->sums[s->table.item_count + (size_t)item] += count;
}
static void par__zero_save_flush(par__zero_save *s) { // syncs and closes this rank's files
    for (int i = 0; i < s->table.file_count; i++) {
        par__zero_file *f = &s->table.files[i];
        if (f->fd >= 0 && fsync(f->fd) && !s->error) s->error = errno;
        if (f->fd >= 0 && close(f->fd) && !s->error) s->error = errno;
        f->fd = -1;
    }
}
static void *par__zero_save_thread(void *user) {
    par__zero_save *s = (par__zero_save *)user;
    for (size_t i = 0; i < s->job_count; i++)
        par__zero_save_elements(s, s->jobs[i].item, s->jobs[i].at, s->jobs[i].count, s->jobs[i].data);
    return par__zero_save_flush(s), (void *)NULL;
}
static void par__zero_save_later(par__zero_save *s, int item, size_t at, size_t count, const char *data) {
    const size_t bytes = count * par__zero_element_bytes(&s->table.items[item]);
    par__zero_write_job *all = (par__zero_write_job *)par__zero_grow(s->jobs, s->job_count, sizeof *all);
    if (!all) {
        s->error = ENOMEM;
        return;
    }
    s->jobs = all;
    par__zero_write_job *j = &all[s->job_count];
    j->item = item;
    j->at = at;
    j->count = count;
    j->data = (char *)PAR_MALLOC(bytes + 1);
    if (!j->data) {
        s->error = ENOMEM;
        return;
    }
    memcpy(j->data, data, bytes);
    s->job_count++;
}
// Saves elements [first, first + count) of this rank's tensor.
static void par__zero_save_part(par_zero *z, par__zero_save *s, int tensor, int kind, size_t first,
                                size_t count, const void *data) {
    const int item = par__zero_item_of(&s->table, tensor, kind);
    if (item < 0) return;
    const size_t e = par__zero_element_bytes(&s->table.items[item]);
    for (size_t done = 0, n; done < count && !s->error; done += n) {
        size_t at;
        int replica_id;
        n = par_shard_find(&z->tensors[tensor].shard, first + done, &at, &replica_id);
        n = PAR__MIN(n, count - done);
        const char *from = (const char *)data + done * e;
        if (replica_id) continue;
        if (s->how.background)
            par__zero_save_later(s, item, at, n, from);
        else
            par__zero_save_elements(s, item, at, n, from);
    }
}
// Saves elements [skip, end) of a run: master weights or a state, as f32.
static par_result par__zero_save_state(par_zero *z, par__zero_save *s, const par__zero_walk *w, int kind,
                                       size_t skip, size_t end) {
    const int narrow = par__zero_state_dtype(z, kind) != PAR_F32;
    float wide[PAR__ZERO_CHUNK];
    if (kind && !w->states[kind]) return PAR_OK;
    for (size_t n; skip < end; skip += n) {
        const float *from =
            kind ? (const float *)par__zero_run_state(z, w, kind, skip) : par__zero_run_weights(z, w, skip);
        const void *here = wide;
        n = PAR__MIN((size_t)PAR__ZERO_CHUNK, end - skip);
        if (narrow)
            PAR__ZERO_TRY(par__zero_read_state(z, w, kind, skip, n, wide));
        else
            PAR__ZERO_TRY(par__zero_read_staged(z, from, sizeof *from, end - skip, &n, &here));
        par__zero_save_part(z, s, w->tensor, kind, w->at + skip - z->tensors[w->tensor].offset, n, here);
    }
    return PAR_OK;
}
static par_result par__zero_save_trained(par_zero *z, par__zero_save *s) {
    par__zero_walk w = par__zero_walk_begin(0, z->unit_count, PAR__ZERO_READS);
    while (par__zero_next(z, &w)) {
        const par__zero_tensor *t = &z->tensors[w.tensor];
        const size_t shard = par__zero_shard_count(z, &z->units[w.now.unit], 0);
        const size_t first = z->desc.parameter_server ? 0 : shard * (size_t)z->rank;
        const size_t until = z->desc.parameter_server ? SIZE_MAX : first + shard;
        const size_t begin = PAR__MAX(w.at, first);
        const size_t end = PAR__MIN(PAR__MIN(w.at + w.count, until), t->offset + t->count);
        for (int kind = 0; kind < PAR__ZERO_ITEM_KINDS && begin < end; kind++)
            PAR__ZERO_TRY(par__zero_save_state(z, s, &w, kind, begin - w.at, end - w.at));
    }
    return w.result;
}
static par_result par__zero_save_frozen(par_zero *z, par__zero_save *s, int tensor) {
    const par__zero_tensor *t = &z->tensors[tensor];
    const par__zero_unit *u = &z->units[t->unit];
    const size_t shard = par__zero_shard_count(z, u, t->part), first = shard * (size_t)z->rank;
    const size_t begin = PAR__MAX(first, t->offset), end = PAR__MIN(first + shard, t->offset + t->count);
    float values[PAR__ZERO_CHUNK];
    for (size_t at = begin; at < end; at += PAR__ZERO_CHUNK) {
        const size_t n = PAR__MIN((size_t)PAR__ZERO_CHUNK, end - at);
        PAR__ZERO_TRY(par__zero_move_parameters(z, u, t->part, at, n, values, 0));
        par__zero_save_part(z, s, tensor, 0, at - t->offset, n, values);
    }
    return PAR_OK;
}
static par_result par__zero_save_all(par_zero *z, par__zero_save *s) { // the first replica saves
    if (z->replica) return PAR_OK;
    PAR__ZERO_TRY(par__zero_save_trained(z, s));
    for (int i = 0; i < z->tensor_count; i++)
        if (z->tensors[i].part) PAR__ZERO_TRY(par__zero_save_frozen(z, s, i));
    return PAR_OK;
}

// Rank 0 chooses a name for the save, and makes its intents.
static par_result par__zero_save_prepare(par__zero_save *s, par__zero_key seen, char *why, size_t capacity) {
    static const char *const what[] = {"index", "manifest"};
    char path[PAR__ZERO_INTENT_BYTES];
    uint64_t random = 0;
    int e = par__getrandom_u64(&random);
    const par__zero_key key = {seen.number % 999999 + 1, (uint32_t)random | 1};
    for (int i = 0; i < 2 && !e; i++) {
        par__zero_intent(path, s->dir, what[i], key);
        const int fd = par__safe_fd(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (fd < 0 || close(fd)) e = errno;
        if (i == 0 && !e) s->key = key; // they are deleted if the save fails
    }
    if (!e) return PAR_OK;
    return par__zero_file_error(why, capacity,
                                "cannot make a file in %s: %s; the previous checkpoint is untouched", s->dir,
                                strerror(e));
}
// Creates the files in full size, with their headers.
static par_result par__zero_save_create(par__zero_save *s, char *why, size_t capacity) {
    char path[sizeof s->dir + 80];
    for (int i = 0; i < s->table.file_count; i++) {
        par__zero_file *f = &s->table.files[i];
        if (f->header.failed) return par__zero_file_error(why, capacity, "out of memory"), PAR_ERR_MEMORY;
        snprintf(path, sizeof path, "%s/%s", s->dir, f->name);
        f->fd = par_file_replace(path);
        int e = f->fd < 0 ? errno : posix_fallocate(f->fd, 0, (off_t)f->bytes);
        if (e == EOPNOTSUPP || e == EINVAL) e = ftruncate(f->fd, (off_t)f->bytes) ? errno : 0;
        if (!e) e = par_file_write(f->fd, f->header.text, f->header.count, 0);
        if (e)
            return par__zero_file_error(
                why, capacity, "cannot make %s of %zu bytes: %s; the previous checkpoint is untouched", path,
                f->bytes, strerror(e));
    }
    return PAR_OK;
}
// Writes an intent and syncs it. par__zero_rename renames it atomically. Neither makes one that is gone: then
// another run has revoked the save.
static par_result par__zero_write_intent(const par__zero_save *s, const char *what, const par_text *t,
                                         char *why, size_t capacity) {
    char path[PAR__ZERO_INTENT_BYTES];
    par__zero_intent(path, s->dir, what, s->key);
    const int fd = t->failed ? -1 : par__safe_fd(open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
    int e = t->failed ? ENOMEM : fd < 0 ? errno : par_file_write(fd, t->text, t->count, 0);
    if (!e && fsync(fd)) e = errno;
    if (fd >= 0 && close(fd) && !e) e = errno;
    if (!e) return PAR_OK;
    return par__zero_file_error(why, capacity, "cannot write %s: %s%s; the previous checkpoint is untouched",
                                path, strerror(e), e == ENOENT ? " (another run has deleted it)" : "");
}
static par_result par__zero_rename(const par__zero_save *s, const char *what, const char *to, char *why,
                                   size_t capacity) {
    char path[sizeof s->dir + 80], from[PAR__ZERO_INTENT_BYTES];
    par__zero_intent(from, s->dir, what, s->key);
    snprintf(path, sizeof path, "%s/%s", s->dir, to);
    if (!rename(from, path)) return par_file_sync_directory(s->dir), PAR_OK;
    return par__zero_file_error(why, capacity, "cannot rename %s to %s: %s", from, to, strerror(errno));
}
static void par__zero_print_manifest(const par_zero *z, const par__zero_save *s, par_text *m) {
    const par__zero_table *t = &s->table;
    uint32_t bits;
    memcpy(&bits, &s->loss_scale, sizeof bits);
    par_text_print(m, "{\"format\":\"par_zero checkpoint\",\"version\":1,\"number\":%d,\"step\":%llu,",
                   s->key.number, (unsigned long long)s->step);
    par_text_print(m, "\"loss_scale_bits\":%u,\"good_steps\":%d,\"bad_steps\":%d,%s", bits, s->good_steps,
                   s->bad_steps, s->scaled ? "\"scaled\":1," : "");
    par_text_print(m, "\"optimizer\":\"%s\",\n\"note\":", par_zero_optimizer_name(z->desc.optimizer));
    par_text_quote(m, s->note.text);
    par_text_print(m, ",\n\"files\":[");
    for (int i = 0; i < t->file_count; i++)
        par_text_print(m, "%s{\"name\":\"%s\",\"bytes\":%zu,\"header\":\"%016llx\"}", i ? ",\n" : "",
                       t->files[i].name, t->files[i].bytes,
                       (unsigned long long)par__zero_hash(t->files[i].header.text, t->files[i].header.count));
    par_text_print(m, "],\n\"tensors\":[");
    for (size_t i = 0; i < t->item_count; i++) {
        par_text_print(m, i ? ",\n{\"name\":" : "{\"name\":");
        par_text_quote(m, t->items[i].name);
        par_text_print(m, ",\"checksum\":\"%016llx\"}", (unsigned long long)s->sums[i]);
    }
    par_text_print(m, "]");
    const uint64_t self = m->failed ? 0 : par__zero_hash(m->text, m->count);
    par_text_print(m, "%s%016llx\"}\n", par__zero_self, (unsigned long long)self);
}
static void par__zero_print_index(const par__zero_table *t, par_text *index) { // of the weights
    size_t total = 0;
    for (size_t i = 0; i < t->weight_count; i++) total += t->items[i].bytes;
    par_text_print(index, "{\"metadata\":{\"total_size\":%zu},\"weight_map\":{", total);
    for (size_t i = 0; i < t->weight_count; i++) {
        par_text_print(index, i ? ",\n" : "\n");
        par_text_quote(index, t->items[i].name);
        par_text_print(index, ":\"%s\"", t->files[t->item_file[i]].name);
    }
    par_text_print(index, "}}\n");
}
static par_result par__zero_save_commit(par_zero *z, par__zero_save *s, char *why, size_t capacity) {
    par_text m, i;
    char unused[64];
    const par__zero_key before = z->lock.seen;
    memset(&m, 0, sizeof m);
    memset(&i, 0, sizeof i);
    par__zero_print_manifest(z, s, &m);
    par__zero_print_index(&s->table, &i);
    par_result r = par__zero_write_intent(s, "index", &i, why, capacity);
    if (!r) r = par__zero_write_intent(s, "manifest", &m, why, capacity);
    if (!r) par_file_sync_directory(s->dir);
    if (!r) r = par__zero_lock_keep(&z->lock, why, capacity);
    if (!r) r = par__zero_rename(s, "manifest", "manifest.json", why, capacity);
    s->committed = !r;
    if (!r) z->lock.seen = s->key;
    if (!r) r = par__zero_rename(s, "index", "model.safetensors.index.json", why, capacity);
    if (s->committed && before.number)
        par__zero_remove_saves(s->dir, &before, &z->lock.seen, unused, sizeof unused);
    return PAR_FREE(m.text), PAR_FREE(i.text), r;
}

static par_result par__zero_save_open(par_zero *z, const par_zero_checkpoint *how, par__zero_save **out) {
    par_comm *comm = how->comm ? how->comm : z->desc.comm;
    par__zero_save *s = (par__zero_save *)PAR_MALLOC(sizeof *s);
    char why[700] = "out of memory to save";
    if (s) {
        memset(s, 0, sizeof *s);
        s->how = *how;
        s->how.comm = comm;
        snprintf(s->dir, sizeof s->dir, "%s", how->dir);
        par_text_print(&s->note, "%s", how->note ? how->note : "");
        const par_zero_control now = par__zero_control_get(z);
        s->step = now.step;
        s->loss_scale = now.loss_scale;
        s->scaled = z->desc.loss_scale > 0;
        s->good_steps = now.good_steps;
        s->bad_steps = now.bad_steps;
    }
    *out = s;
    PAR__ZERO_TRY(par__zero_share_error(z, comm, s && !s->note.failed ? PAR_OK : PAR_ERR_MEMORY, why));
    par_result r = PAR_OK;
    PAR__ZERO_TRY(par__zero_lock_all(z, comm, how));
    if (par_rank(comm) == 0) r = par__zero_save_prepare(s, z->lock.seen, why, sizeof why);
    PAR__ZERO_TRY(par__zero_share_error(z, comm, r, why));
    PAR__ZERO_TRY(par_broadcast(&s->key, &s->key, sizeof s->key, PAR_U8, 0, comm));
    PAR__ZERO_TRY(par__zero_table_open(z, comm, how->weights_only, &s->table));
    par__zero_place_items(&s->table, s->key, how->max_file_bytes);
    const size_t sums = (2 * s->table.item_count + 1) * sizeof *s->sums;
    s->sums = (uint64_t *)PAR_MALLOC(sums);
    if (s->sums)
        memset(s->sums, 0, sums);
    else
        r = PAR_ERR_MEMORY;
    if (!r && par_rank(comm) == 0) r = par__zero_save_create(s, why, sizeof why);
    return par__zero_share_error(z, comm, r, why);
}
static void par__zero_save_close(par_zero *z, int failed) {
    par__zero_save *s = z->save;
    par__zero_key now;
    char unused[64];
    z->save = NULL;
    if (!s) return;
    if (failed && s->key.number && par_rank(s->how.comm) == 0)
        par__zero_remove_saves(s->dir, &s->key, &now, unused, sizeof unused);
    for (size_t i = 0; i < s->job_count; i++) PAR_FREE(s->jobs[i].data);
    par__zero_table_close(&s->table);
    PAR_FREE(s->jobs);
    PAR_FREE(s->sums);
    PAR_FREE(s->note.text);
    PAR_FREE(s);
}
static par_result par__zero_check_files(par_zero *z, const char *call, const par_zero_checkpoint *how) {
    if (!z->committed || !how || !how->dir || !how->dir[0])
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                              "%s: no directory was given, or par_zero_commit was not called", call);
    if (strlen(how->dir) >= PAR__ZERO_DIR_BYTES)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "%s: the directory's name has %zu bytes, more than %d", call,
                              strlen(how->dir), PAR__ZERO_DIR_BYTES - 1);
    if (!how->comm && (z->desc.replica_comm || z->desc.model_parallel_comm))
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT,
                              "%s: with replica_comm or model_parallel_comm it needs a comm of all ranks",
                              call);
    return PAR_OK;
}
par_result par_zero_save_begin(par_zero *z, const par_zero_checkpoint *how) {
    PAR__ZERO_TRY(par__zero_check_files(z, "par_zero_save", how));
    if (z->save) PAR__ZERO_TRY(par_zero_save_end(z));
    for (int i = 0; i < z->unit_count; i++) PAR__ZERO_TRY(par_wait(&z->units[i].param_gather));
    par_result r = par__zero_save_open(z, how, &z->save);
    if (r) return par__zero_save_close(z, 1), r;
    par__zero_save *s = z->save;
    if (par__zero_save_all(z, s) && !s->error) s->error = EIO; // par_zero_save_end tells the other ranks
    s->threaded =
        how->background && !s->error && !par__create_thread(&s->thread, NULL, par__zero_save_thread, s);
    if (how->background && !s->threaded && !s->error) par__zero_save_thread(s); // no thread: write now
    return PAR_OK;
}
// Another run that has taken the directory over has deleted files of this save: that is the error to report.
static par_result par__zero_find_lost(par_zero *z, par_result r, char *why, size_t capacity) {
    char lost[700];
    if (!par__zero_lock_keep(&z->lock, lost, sizeof lost)) return r;
    return par__zero_file_error(why, capacity, "%s", lost);
}
par_result par_zero_save_end(par_zero *z) {
    par__zero_save *s = z->save;
    char why[700];
    if (!s) return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_save_end: no save was begun");
    par_comm *comm = s->how.comm;
    if (s->threaded) pthread_join(s->thread, NULL);
    par__zero_save_flush(s);
    snprintf(why, sizeof why, "cannot write to %.500s: %s; the previous checkpoint is untouched", s->dir,
             strerror(s->error));
    par_result r = s->error ? PAR_ERR_FILE : PAR_OK;
    if (par_rank(comm) == 0) r = par__zero_find_lost(z, r, why, sizeof why);
    r = par__zero_share_error(z, comm, r, why);
    const size_t n = s->table.item_count;
    if (!r) r = par_all_reduce(s->sums, s->sums, 2 * n, PAR_U64, PAR_SUM, comm);
    for (size_t i = 0; i < n && !r; i++) // detects elements that no rank or several ranks saved
        if (s->sums[n + i] != s->table.items[i].count)
            r = PAR__ZERO_FAIL(
                PAR_ERR_ARGUMENT,
                "par_zero_save: tensor %s was saved with %llu elements instead of %zu: see `runs` and "
                "`replica_id` of par_zero_tensor, and `comm` of par_zero_checkpoint",
                s->table.items[i].name, (unsigned long long)s->sums[n + i], s->table.items[i].count);
    if (!r) {
        if (par_rank(comm) == 0) r = par__zero_save_commit(z, s, why, sizeof why);
        if (r) r = par__zero_find_lost(z, r, why, sizeof why);
        r = par__zero_share_error(z, comm, r, why);
        if (!r) z->lock.seen = s->key;
    }
    return par__zero_save_close(z, r != PAR_OK), r;
}
par_result par_zero_save(par_zero *z, const par_zero_checkpoint *how) {
    PAR__ZERO_TRY(par_zero_save_begin(z, how));
    return par_zero_save_end(z);
}
par_result par_zero_lock(par_zero *z, const par_zero_checkpoint *how) {
    PAR__ZERO_TRY(par__zero_check_files(z, "par_zero_lock", how));
    if (z->save) PAR__ZERO_TRY(par_zero_save_end(z));
    return par__zero_lock_all(z, how->comm ? how->comm : z->desc.comm, how);
}
par_result par_zero_unlock(par_zero *z) {
    const par_result r = z->save ? par_zero_save_end(z) : PAR_OK;
    return par__zero_lock_release(&z->lock), r;
}

// >>zero_load -----------------------------------------------------------------------------------------------

typedef struct par__zero_load {
    par__zero_manifest manifest;
    par_safetensors *files;
    int file_count;
    const par_file_tensor **names; // of all files, sorted by name
    uint64_t *sums, *want;         // checksums, computed and expected
    size_t count;
} par__zero_load;

static void par__zero_load_close(par__zero_load *l) {
    for (int i = 0; i < l->file_count; i++) par_safetensors_close(&l->files[i]);
    PAR_FREE(l->files);
    PAR_FREE(l->names);
    PAR_FREE(l->sums);
    PAR_FREE(l->want);
    PAR_FREE(l->manifest.text);
}
static size_t par__zero_find(const par__zero_load *l, const char *name) { // l->count: there is none
    return par__file_find(l->names, l->count, name);
}
// Opens the files that the manifest names, and checks their sizes and headers.
static par_result par__zero_load_files(par__zero_load *l, const char *dir, int weights_only, char *why,
                                       size_t capacity) {
    char name[PAR_FILE_NAME_BYTES], path[(int)PAR__ZERO_DIR_BYTES + PAR_FILE_NAME_BYTES];
    uint64_t hash = 0, bytes = 0, n;
    par__zero_key key;
    par_json j = {l->manifest.files, l->manifest.files + strlen(l->manifest.files), 0};
    for (size_t row = 0; par__zero_next_row(&j, row, name, sizeof name, "header", &hash, &bytes); row++) {
        if (par__zero_file_kind(name, &key) != PAR__ZERO_DATA)
            return par__zero_file_error(why, capacity, "it names %s, which is none of its files", name);
        if (weights_only && strncmp(name, "model-", 6)) continue;
        par_safetensors *more =
            (par_safetensors *)PAR_REALLOC(l->files, (size_t)(l->file_count + 1) * sizeof *more);
        if (!more) return par__zero_file_error(why, capacity, "out of memory to load"), PAR_ERR_MEMORY;
        l->files = more;
        par_safetensors *f = &l->files[l->file_count];
        snprintf(path, sizeof path, "%.3900s/%s", dir, name);
        const par_result r = par__zero_file_result(par_safetensors_open(path, f));
        if (r) return par__zero_file_error(why, capacity, "%s", f->why), r;
        l->file_count++;
        l->count += f->count;
        memcpy(&n, f->map, 8);
        if (f->bytes != bytes || par__zero_hash((const char *)f->map, (size_t)n + 8) != hash)
            return par__zero_file_error(why, capacity, "%s is not the file that was saved", path);
    }
    return PAR_OK;
}
static par_result par__zero_load_names(par__zero_load *l, char *why,
                                       size_t capacity) { // and expected checksums
    char name[PAR_FILE_NAME_BYTES];
    uint64_t sum = 0, unused;
    size_t n = 0;
    l->names = (const par_file_tensor **)PAR_MALLOC((l->count + 1) * sizeof *l->names);
    l->sums = (uint64_t *)PAR_MALLOC((l->count + 1) * sizeof *l->sums);
    l->want = (uint64_t *)PAR_MALLOC((l->count + 1) * sizeof *l->want);
    if (!l->names || !l->sums || !l->want)
        return par__zero_file_error(why, capacity, "out of memory to load"), PAR_ERR_MEMORY;
    memset(l->sums, 0, (l->count + 1) * sizeof *l->sums);
    memset(l->want, 0, (l->count + 1) * sizeof *l->want);
    for (int i = 0; i < l->file_count; i++)
        for (size_t k = 0; k < l->files[i].count; k++) l->names[n++] = &l->files[i].list[k];
    if (n) qsort(l->names, n, sizeof *l->names, par__file_by_name);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(l->names[i - 1]->name, l->names[i]->name))
            return par__zero_file_error(why, capacity, "tensor %s stands in two of its files",
                                        l->names[i]->name);
    par_json j = {l->manifest.tensors, l->manifest.tensors + strlen(l->manifest.tensors), 0};
    for (size_t row = 0; par__zero_next_row(&j, row, name, sizeof name, "checksum", &sum, &unused); row++) {
        const size_t i = par__zero_find(l, name);
        if (i < l->count) l->want[i] = sum;
    }
    return PAR_OK;
}
// Checks that the model and the checkpoint have the same tensors, as far as they must.
static par_result par__zero_load_check(const par__zero_load *l, const par__zero_table *t,
                                       const par_zero_checkpoint *how, char *why, size_t capacity) {
    for (size_t i = 0; i < t->item_count; i++) {
        const par_file_tensor *a = &t->items[i], *b;
        const size_t at = par__zero_find(l, a->name);
        if (at == l->count && how->allow_missing) continue;
        if (at == l->count)
            return par__zero_file_error(why, capacity, "tensor %s is missing (%sallow_missing begins it)",
                                        a->name,
                                        i < t->weight_count ? "" : "weights alone load with weights_only; ");
        b = l->names[at];
        if (a->dims != b->dims || memcmp(a->shape, b->shape, sizeof a->shape))
            return par__zero_file_error(
                why, capacity, "tensor %s has another shape: %zu x %zu instead of %zu x %zu", a->name,
                b->shape[0], b->dims > 1 ? b->shape[1] : 1, a->shape[0], a->dims > 1 ? a->shape[1] : 1);
        if (!par_dtype_traits_of(par_zero_file_dtype(b))->is_float)
            return par__zero_file_error(why, capacity, "tensor %s has no floating-point dtype", a->name);
        l->sums[at] = 1; // seen
    }
    for (size_t i = 0; i < l->count && !how->allow_extra; i++)
        if (!l->sums[i])
            return par__zero_file_error(why, capacity,
                                        "tensor %s is not one of the model's (allow_extra ignores it)",
                                        l->names[i]->name);
    return PAR_OK;
}
// Computes checksums; each rank sums its share of every tensor.
static par_result par__zero_load_verify(par__zero_load *l, par_comm *comm) {
    const size_t n = (size_t)par_size(comm), me = (size_t)par_rank(comm);
    for (size_t i = 0; i < l->count; i++) {
        const par_file_tensor *a = l->names[i];
        const size_t first = a->count / n * me + PAR__MIN(me, a->count % n), e = par__zero_element_bytes(a);
        l->sums[i] = par__zero_checksum((const char *)a->data + first * e, e, first,
                                        a->count / n + (me < a->count % n));
    }
    return par_all_reduce(l->sums, l->sums, l->count, PAR_U64, PAR_SUM, comm);
}

static void par__zero_fill_from_file(void *user, size_t first, size_t count, float *values) {
    const par_file_tensor *const *array = (const par_file_tensor *const *)user;
    par_zero_safetensors_read(*array, first, count, values);
}
static void par__zero_fill_zeros(void *user, size_t first, size_t count, float *values) {
    (void)user;
    (void)first;
    memset(values, 0, count * sizeof *values);
}
static par_result par__zero_load_all(par_zero *z, const par__zero_load *l, const par__zero_table *t) {
    static const par_zero_field what[PAR__ZERO_ITEM_KINDS] = {PAR_ZERO_VALUE, PAR_ZERO_MOMENT1,
                                                              PAR_ZERO_MOMENT2, PAR_ZERO_EMA};
    for (int i = 0; i < z->tensor_count; i++)
        for (int kind = 0; kind < PAR__ZERO_ITEM_KINDS; kind++) {
            const int item = par__zero_item_of(t, i, kind);
            if (item < 0) continue;
            const size_t at = par__zero_find(l, t->items[item].name);
            const int moment = kind == PAR__ZERO_M || kind == PAR__ZERO_V;
            if (at == l->count && !moment) continue; // a moving average has been set with the weight
            const par_file_tensor *array = at < l->count ? l->names[at] : NULL;
            PAR__ZERO_TRY(par_zero_fill(z, i, what[kind],
                                        array ? par__zero_fill_from_file : par__zero_fill_zeros, &array));
        }
    return PAR_OK;
}
static void par__zero_load_numbers(par_zero *z, const par__zero_manifest *m) {
    const uint32_t bits = (uint32_t)m->loss_scale;
    par_zero_control now = par__zero_control_get(z);
    now.step = m->step;
    // Checkpoints of a version before did not tell: a scale of 1 that nothing has changed is none.
    const int scaled = m->scaled || bits != par__f32_to_bits(1) || m->good_steps || m->bad_steps;
    if (z->desc.loss_scale > 0 && scaled) { // else the run keeps its own
        memcpy(&now.loss_scale, &bits, sizeof bits);
        now.good_steps = (int)m->good_steps;
        now.bad_steps = (int)m->bad_steps;
    }
    par__zero_control_set(z, &now);
}
// The local part of opening a checkpoint.
static par_result par__zero_load_open(const par_zero *z, const par_zero_checkpoint *how,
                                      const par__zero_table *t, par__zero_load *l, char *why,
                                      size_t capacity) {
    const char *optimizer = par_zero_optimizer_name(z->desc.optimizer);
    par_result r = par__zero_read_manifest(how->dir, &l->manifest, why, capacity);
    if (!r && !how->weights_only && strcmp(l->manifest.optimizer, optimizer))
        r = par__zero_file_error(why, capacity,
                                 "it was saved with %s, and the optimizer is %s: load it with weights_only",
                                 l->manifest.optimizer, optimizer);
    if (!r) r = par__zero_load_files(l, how->dir, how->weights_only, why, capacity);
    if (!r) r = par__zero_load_names(l, why, capacity);
    return r ? r : par__zero_load_check(l, t, how, why, capacity);
}
par_result par_zero_load(par_zero *z, const par_zero_checkpoint *how) {
    par__zero_table t;
    par__zero_load l;
    char wrong[512] = "", why[700];
    PAR__ZERO_TRY(par__zero_check_files(z, "par_zero_load", how));
    par_comm *comm = how->comm ? how->comm : z->desc.comm;
    memset(&l, 0, sizeof l);
    if (z->save) PAR__ZERO_TRY(par_zero_save_end(z));
    PAR__ZERO_TRY(par__zero_table_open(z, comm, how->weights_only, &t));
    par_result r = par__zero_load_open(z, how, &t, &l, wrong, sizeof wrong);
    snprintf(why, sizeof why, "cannot load the checkpoint %.150s: %s", how->dir, wrong);
    r = par__zero_share_error(z, comm, r, why);
    if (!r) r = par__zero_load_verify(&l, comm);
    for (size_t i = 0; i < l.count && !r; i++)
        if (l.sums[i] != l.want[i])
            r = PAR__ZERO_FAIL(
                PAR_ERR_FILE,
                "cannot load the checkpoint %s: the checksum of tensor %s is wrong: it is damaged", how->dir,
                l.names[i]->name);
    if (!r && !how->weights_only) par__zero_load_numbers(z, &l.manifest);
    if (!r) r = par__zero_load_all(z, &l, &t);
    if (!r) r = par__zero_update_stale(z);
    par__zero_load_close(&l);
    par__zero_table_close(&t);
    return r;
}

// >>zero_export ---------------------------------------------------------------------------------------------
//
// A piece of a tensor, some whole rows, on rank 0: every rank writes the elements that it holds into zeros,
// and the maximum over all ranks, of the bits as integers, has all elements. Copies have the same bits.
//     rank 0   a b 0 0 0 0     rank 1   0 0 c d 0 0     rank 2   0 0 0 0 e f     rank 0 gets   a b c d e f
// Cost: a reduce of all elements over comm. Memory of a rank: two pieces.

typedef struct par__zero_pieces {
    float *piece, *held; // of whole tensors; elements of this rank's part
    size_t first, count; // the piece
} par__zero_pieces;
// Copies what this rank holds of elements [begin, end) of its part of a tensor into the piece.
static par_result par__zero_add_held(par_zero *z, const par__zero_tensor *t, par_zero_field what,
                                     size_t begin, size_t end, par__zero_pieces *p) {
    for (size_t from = begin, n; from < end; from += n) {
        n = PAR__MIN(end - from, p->count);
        memset(p->held, 0, n * sizeof *p->held);
        PAR__ZERO_TRY(par__zero_read_held(z, t, what, from, from + n, p->held));
        for (size_t i = 0, k, at; i < n; i += k) {
            k = PAR__MIN(par_shard_find(&t->shard, from + i, &at, NULL), n - i);
            const size_t low = PAR__MAX(at, p->first), high = PAR__MIN(at + k, p->first + p->count);
            if (low < high)
                memcpy(p->piece + (low - p->first), p->held + i + (low - at), (high - low) * sizeof(float));
        }
    }
    return PAR_OK;
}
static par_result par__zero_fill_piece(par_zero *z, const par__zero_tensor *t, par_zero_field what,
                                       par__zero_pieces *p) {
    size_t start = 0; // of the run in this rank's part
    PAR__ZERO_TRY(par_wait(&z->units[t->unit].param_gather));
    for (int i = 0; i < t->shard.run_count; start += t->shard.runs[i++].count) {
        const par_run *r = &t->shard.runs[i];
        const size_t width = r->width ? r->width : 1, stride = r->width ? r->stride : 1;
        const size_t rows = r->count / width, end = p->first + p->count;
        const size_t from = p->first > r->offset ? (p->first - r->offset) / stride : 0;
        const size_t until = end > r->offset ? (end - r->offset + stride - 1) / stride : 0;
        PAR__ZERO_TRY(par__zero_add_held(z, t, what, start + width * PAR__MIN(from, rows),
                                         start + width * PAR__MIN(until, rows), p));
    }
    return PAR_OK;
}
// mine: the tensor, or NULL: this rank has nothing of it. block: elements of a piece.
static par_result par__zero_gather_tensor(par_zero *z, par_comm *comm, const par__zero_tensor_info *k,
                                          const par__zero_tensor *mine, par_zero_field what, size_t block,
                                          par__zero_pieces *p, par_zero_gather_fn fn, void *user) {
    size_t shape[4], whole;
    const int root = par_rank(comm) == 0;
    par_result r = PAR_OK;
    for (int d = 0; d < 4; d++) shape[d] = (size_t)k->shape[d];
    whole = par__zero_shape_product(shape, k->dims);
    for (p->first = 0; p->first < whole; p->first += p->count) {
        p->count = PAR__MIN(block, whole - p->first);
        memset(p->piece, 0, p->count * sizeof *p->piece);
        if (mine && !r) r = par__zero_fill_piece(z, mine, what, p);
        const par_result sent =
            par_reduce(p->piece, root ? p->piece : NULL, p->count, PAR_U32, PAR_MAX, 0, comm);
        if (sent) return sent;
        if (root && !r) r = fn(user, k->name, p->first, p->count, p->piece);
    }
    return par__zero_share_error(z, comm, r, r ? par_last_error(comm) : "");
}
// Elements of a piece of a tensor: whole rows.
static size_t par__zero_block_of(const par__zero_tensor_info *k, size_t max_count) {
    size_t row = 1;
    for (int d = 1; d < k->dims; d++) row *= (size_t)k->shape[d];
    return row ? PAR__MAX(max_count / row, (size_t)1) * row : 1;
}
par_result par_zero_gather(par_zero *z, par_comm *comm, par_zero_field what, size_t max_count,
                           par_zero_gather_fn fn, void *user) {
    par__zero_table t;
    par__zero_pieces p;
    size_t largest = 1;
    if (!z->committed || what == PAR_ZERO_GRADIENT || !comm)
        return PAR__ZERO_FAIL(PAR_ERR_ARGUMENT, "par_zero_gather: %s",
                              !comm          ? "comm is NULL: give it the comm of all ranks"
                              : z->committed ? "it gives values and states, no gradients"
                                             : "par_zero_commit was not called");
    if (!max_count) max_count = (size_t)1 << 20;
    PAR__ZERO_TRY(par__zero_table_open(z, comm, 1, &t));
    for (size_t i = 0; i < t.info_count; i++)
        largest = PAR__MAX(largest, par__zero_block_of(&t.infos[i], max_count));
    p.piece = (float *)PAR_MALLOC(largest * sizeof(float));
    p.held = (float *)PAR_MALLOC(largest * sizeof(float));
    const size_t mine_bytes = (t.info_count + 1) * sizeof(par__zero_tensor *);
    const par__zero_tensor **mine = (const par__zero_tensor **)PAR_MALLOC(mine_bytes);
    if (mine) memset(mine, 0, mine_bytes);
    par_result r = p.piece && p.held && mine ? PAR_OK : PAR_ERR_MEMORY;
    r = par__zero_share_error(z, comm, r, "par_zero_gather: out of memory for a piece of a tensor");
    for (int j = z->tensor_count; j-- > 0 && !r;) mine[t.info_of[j]] = &z->tensors[j]; // the first one stays
    for (size_t i = 0; i < t.info_count && !r; i++)
        r = par__zero_gather_tensor(z, comm, &t.infos[i], mine[i], what,
                                    par__zero_block_of(&t.infos[i], max_count), &p, fn, user);
    PAR_FREE(p.piece);
    PAR_FREE(p.held);
    PAR_FREE(mine);
    par__zero_table_close(&t);
    return r;
}

// >>zero_recover --------------------------------------------------------------------------------------------
//
// Every rank says what it holds and what it will hold: a row of a table that all have then. So all know who
// sends which elements of each array to whom:
//     old shards    | 0: rank 0         | 1: gone, its buddy is rank 2 | 2: rank 2         |
//     new shards    | 0: rank 0                      | 1: rank 2                           |
// The new layout is complete, in memory of its own, before the old one goes. The last agreement is a commit
// point as that of a step: whoever has passed it has the new layout, and all others have it ready.

typedef struct par__zero_member {
    uint64_t kin;              // of one kin are ranks with the same tensors and settings
    par_zero_control control;  // of the last step
    int32_t holds;             // it has states of the last step
    int32_t ranks, rank, ward; // whose: of its comm; ward -1: none, or a stale copy
    int32_t stale;
    int32_t new_ranks, new_rank, new_ward; // new_rank -1: a spare
    int32_t now, passes;                   // as in par_zero; backward passes of a step that is not done
    int32_t home;                          // world rank of the first rank of its comm
    int32_t checkpoint;                    // it was given one
    int32_t locks, owns;                   // knows of a lock on a directory; has made it
} par__zero_member;
// Moves of so many bytes run together: ranks wait for each other seldom, and a device's copies stay small.
enum { PAR__ZERO_MOVE_BYTES = 64 << 20 };
typedef struct par__zero_move {
    char *memory, *host; // host: the same, or a copy of a device's
    size_t bytes;
    int peer, receives;
    par_request request;
} par__zero_move;
typedef struct par__zero_exchange {
    par_zero *from, *to; // NULL: this rank holds nothing; will hold nothing
    par_zero from_ward, to_ward;
    const par_zero *any; // one of these: what does not depend on the layout
    par__zero_member *members;
    int count, me; // of comm
    par_comm *comm;
    int *givers;           // of this rank's kin: who has each old shard; -1: nobody
    int old_ranks, holder; // so many shards; any rank that has states, or -1
    par__zero_move *moves;
    size_t move_count, move_bytes;
} par__zero_exchange;

static uint64_t par__zero_kin(const par_zero *z) {
    const par_zero_desc *d = &z->desc;
    const uint64_t settings[] = {(uint64_t)d->stage,           (uint64_t)d->param_dtype,
                                 (uint64_t)d->state_dtype,     (uint64_t)d->optimizer,
                                 (uint64_t)(d->ema > 0),       (uint64_t)z->tensor_count,
                                 (uint64_t)d->canonical_shards};
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) hash = par__zero_mix(hash, settings[i]);
    for (int i = 0; i < z->unit_count; i++) hash = par__zero_mix(hash, (uint64_t)z->units[i].use_of);
    for (int i = 0; i < z->tensor_count; i++) {
        const par__zero_tensor *t = &z->tensors[i];
        hash =
            par__zero_mix(par__zero_mix(hash, par__zero_name_hash(t->name)), par__zero_shard_hash(&t->shard));
        hash = par__zero_mix(par__zero_mix(hash, t->count), (uint64_t)(2 * t->unit + t->part));
    }
    return hash;
}
static int par__zero_is_kin(const par__zero_exchange *x, int member) {
    return x->members[member].kin == x->members[x->me].kin;
}
// Finds who gives each shard to those that do not have it: its owner, or else its buddy. 0: out of memory.
static int par__zero_find_givers(par__zero_exchange *x) {
    x->holder = -1;
    for (int i = x->count - 1; i >= 0; i--)
        if (x->members[i].holds && par__zero_is_kin(x, i)) x->holder = i;
    x->old_ranks = x->holder < 0 ? 0 : x->members[x->holder].ranks;
    x->givers = (int *)par__zero_alloc_zeroed((size_t)x->old_ranks, sizeof *x->givers);
    for (int i = 0; i < x->old_ranks && x->givers; i++) x->givers[i] = -1;
    for (int owners = 0; owners < 2 && x->givers; owners++)
        for (int i = x->count - 1; i >= 0; i--) {
            const par__zero_member *m = &x->members[i];
            const int shard = owners ? m->rank : m->ward;
            if (m->holds && par__zero_is_kin(x, i) && shard >= 0 && m->ranks == x->old_ranks)
                x->givers[shard] = i;
        }
    return x->givers != NULL;
}
static int par__zero_giver(const par__zero_exchange *x, int to, int shard, int split) {
    const par__zero_member *m = &x->members[to];
    if (m->holds && (!split || m->rank == shard || m->ward == shard)) return to;
    return split ? x->givers[shard] : x->holder;
}
static par_result par__zero_add_move(par__zero_exchange *x, int from, int to, char *source, char *target,
                                     size_t bytes) {
    const par_zero *z = x->any;
    if (from == to || !bytes)
        return bytes && source != target ? z->device->copy(z->device, target, source, bytes, NULL) : PAR_OK;
    par__zero_move *all = (par__zero_move *)par__zero_grow(x->moves, x->move_count, sizeof *all);
    if (!all) return par_fail(x->comm, PAR_ERR_MEMORY, "par_zero_recover: out of memory");
    x->moves = all;
    par__zero_move *m = &all[x->move_count++];
    memset(m, 0, sizeof *m);
    m->receives = to == x->me;
    m->peer = m->receives ? from : to;
    m->memory = m->host = m->receives ? target : source;
    m->bytes = bytes;
    x->move_bytes += bytes;
    return PAR_OK;
}
// Sends and receives what was added. A device's memory goes through the host's.
static par_result par__zero_run_moves(par__zero_exchange *x) {
    const par_zero *z = x->any;
    par_result r = PAR_OK;
    for (size_t i = 0; i < x->move_count && !z->on_cpu; i++) {
        par__zero_move *m = &x->moves[i];
        m->host = (char *)PAR_MALLOC(m->bytes);
        if (!m->host && !r) r = par_fail(x->comm, PAR_ERR_MEMORY, "par_zero_recover: out of memory");
        if (!r && !m->receives) r = par__zero_copy_sync(z, m->host, m->memory, m->bytes);
    }
    for (size_t i = 0; i < x->move_count && !r; i++) {
        par__zero_move *m = &x->moves[i];
        r = m->receives ? (par_recv_begin)(m->host, m->bytes, PAR_U8, m->peer, x->comm, &m->request)
                        : (par_send_begin)(m->host, m->bytes, PAR_U8, m->peer, x->comm, &m->request);
    }
    for (size_t i = 0; i < x->move_count; i++) {
        par__zero_move *m = &x->moves[i];
        const par_result done = par_wait(&m->request);
        if (!r) r = done;
        if (m->host == m->memory) continue;
        if (!r && m->receives) r = par__zero_copy_sync(z, m->memory, m->host, m->bytes);
        PAR_FREE(m->host);
    }
    x->move_count = x->move_bytes = 0;
    return r;
}

// The arrays of a unit: both parts of its parameters, then its states.
enum { PAR__ZERO_ARRAYS = 2 + PAR__ZERO_STATE_KINDS };
static int par__zero_splits(const par_zero *z, int array) { // each rank has a shard of it
    return array == 1 ? z->sharded_parameters : z->sharded_states;
}
static size_t par__zero_array_bytes(const par_zero *z, int array, size_t n) {
    return array < 2 ? n * par__zero_param_bytes(z) : par__zero_state_bytes(z, array - 2, n);
}
static char *par__zero_array_at(const par_zero *z, int unit, int array, size_t at) {
    const par__zero_unit *u = &z->units[unit];
    size_t first;
    if (array < 2) return z->parameters + par__zero_parameter_at(z, u, array, at);
    par__zero_updated_count(z, u, &first);
    return z->states[array - 2] + par__zero_state_bytes(z, array - 2, u->state_offset + at - first);
}
static size_t par__zero_shard_of(const par_zero *z, size_t used, int ranks) { // elements, in any layout
    const int pieces = z->desc.canonical_shards > 0 ? z->desc.canonical_shards : ranks;
    return par__round_up(used, z->align * (size_t)pieces) / (size_t)ranks;
}
// Brings elements of an array to rank `to`: those of its own shard or of its ward's, or all.
static par_result par__zero_move_shard(par__zero_exchange *x, int unit, int array, int to, int ward) {
    const par_zero *z = x->any;
    const par__zero_member *m = &x->members[to];
    const int split = par__zero_splits(z, array), shard = ward ? m->new_ward : m->new_rank;
    const size_t used = z->units[unit].used[array == 1];
    if (shard < 0 || (ward && !split)) return PAR_OK;
    const size_t size = split ? par__zero_shard_of(z, used, m->new_ranks) : used;
    const size_t first = split ? (size_t)shard * size : 0, end = PAR__MIN(first + size, used);
    const size_t old_size = split ? par__zero_shard_of(z, used, x->old_ranks) : used;
    for (size_t at = first, until; at < end; at = until) {
        const int old = (int)(at / old_size), from = par__zero_giver(x, to, old, split);
        until = PAR__MIN(end, ((size_t)old + 1) * old_size);
        if (x->me != from && x->me != to) continue;
        const int own = !split || x->members[from].rank == old;
        const par_zero *source = own ? x->from : &x->from_ward, *target = ward ? &x->to_ward : x->to;
        PAR__ZERO_TRY(par__zero_add_move(x, from, to,
                                         x->me == from ? par__zero_array_at(source, unit, array, at) : NULL,
                                         x->me == to ? par__zero_array_at(target, unit, array, at) : NULL,
                                         par__zero_array_bytes(z, array, until - at)));
    }
    return PAR_OK;
}
// Scales of blocks of whole tensors are on all ranks.
static par_result par__zero_move_scales(par__zero_exchange *x) {
    const size_t bytes = 4 * x->any->block_count * sizeof(float);
    for (int to = 0; to < x->count && bytes; to++) {
        const int from = par__zero_giver(x, to, 0, 0);
        if (x->members[to].new_rank < 0 || !par__zero_is_kin(x, to)) continue;
        if (x->me == from || x->me == to)
            PAR__ZERO_TRY(par__zero_add_move(x, from, to,
                                             x->me == from ? (char *)x->from->block_scales : NULL,
                                             x->me == to ? (char *)x->to->block_scales : NULL, bytes));
    }
    return par__zero_run_moves(x);
}
static par_result par__zero_move_all(par__zero_exchange *x) {
    const par_zero *z = x->any;
    par_result r = PAR_OK;
    if (x->from && x->from->ward >= 0) x->from_ward = par__zero_ward_of(x->from);
    if (x->to && x->to->ward >= 0) x->to_ward = par__zero_ward_of(x->to);
    for (int i = 0; i < z->unit_count && !r; i++)
        for (int array = 0; array < PAR__ZERO_ARRAYS && !r; array++) {
            if (z->units[i].use_of || (array > 1 && !z->has_state[array - 2])) continue;
            for (int to = 0; to < 2 * x->count && !r; to++)
                if (par__zero_is_kin(x, to / 2)) r = par__zero_move_shard(x, i, array, to / 2, to % 2);
            if (!r && x->move_bytes >= PAR__ZERO_MOVE_BYTES) r = par__zero_run_moves(x);
        }
    if (!r) r = par__zero_move_scales(x);
    PAR_FREE(x->moves);
    return x->moves = NULL, r;
}
static void par__zero_close_exchange(par__zero_exchange *x) {
    PAR_FREE(x->members);
    PAR_FREE(x->givers);
    PAR_FREE(x->moves);
}
static par_result par__zero_fill_ward(par_zero *z) {
    par__zero_exchange x;
    memset(&x, 0, sizeof x);
    x.from = x.to = z;
    x.any = z;
    x.count = z->ranks;
    x.me = z->rank;
    x.comm = z->desc.comm;
    x.members = (par__zero_member *)par__zero_alloc_zeroed((size_t)x.count, sizeof *x.members);
    if (!x.members) return PAR__ZERO_FAIL(PAR_ERR_MEMORY, "par_zero: out of memory for a table of ranks");
    for (int i = 0; i < x.count; i++) {
        par__zero_member *m = &x.members[i];
        m->holds = 1;
        m->ranks = m->new_ranks = z->ranks;
        m->rank = i;
        m->ward = m->new_rank = -1;
        m->new_ward = (i + z->ward + z->ranks - z->rank) % z->ranks;
    }
    par_result r = par__zero_find_givers(&x) ? par__zero_move_all(&x) : PAR_ERR_MEMORY;
    z->stale = r != PAR_OK;
    return par__zero_close_exchange(&x), r;
}

static void par__zero_drop_next(par_zero *z) {
    if (!z->next) return;
    par__zero_wait_all(z->next);
    par__zero_free_all(z->next, 0);
    PAR_FREE(z->next->units);
    PAR_FREE(z->next->tensors);
    PAR_FREE(z->next);
    z->next = NULL;
}
// The next layout replaces the present one. symmetric: all ranks of its comm are here.
static void par__zero_adopt(par_zero *z, int symmetric) {
    par_zero *next = z->next;
    par__zero_free_all(z, symmetric);
    PAR_FREE(z->units);
    PAR_FREE(z->tensors);
    *z = *next;
    PAR_FREE(next);
}
// An empty context with the same tensors, for other ranks. NULL: out of memory.
static par_zero *par__zero_copy_of(const par_zero *z, par_comm *comm, const par_zero_comms *now) {
    par_zero *n = (par_zero *)par__zero_alloc_zeroed(1, sizeof *n);
    par__zero_unit *units = (par__zero_unit *)par__zero_alloc_zeroed((size_t)z->unit_count, sizeof *units);
    par__zero_tensor *tensors =
        (par__zero_tensor *)par__zero_alloc_zeroed((size_t)z->tensor_count, sizeof *tensors);
    if (!n || !units || !tensors) return PAR_FREE(n), PAR_FREE(units), PAR_FREE(tensors), (par_zero *)NULL;
    if (z->unit_count) memcpy(units, z->units, (size_t)z->unit_count * sizeof *units);
    if (z->tensor_count) memcpy(tensors, z->tensors, (size_t)z->tensor_count * sizeof *tensors);
    n->desc = z->desc;
    n->desc.comm = now->comm ? now->comm : comm; // for texts
    n->desc.replica_comm = now->comm ? now->replica_comm : NULL;
    n->desc.model_parallel_comm = now->comm ? now->model_parallel_comm : NULL;
    n->desc.tensor_parallel_comm = now->comm ? now->tensor_parallel_comm : NULL;
    const int all = par_size(n->desc.comm) * (n->desc.replica_comm ? par_size(n->desc.replica_comm) : 1);
    if (n->desc.canonical_shards) n->desc.microbatches = PAR__MAX(n->desc.canonical_shards / all, 1);
    if (now->microbatches > 0) n->desc.microbatches = now->microbatches;
    par__zero_derive(n);
    memcpy(n->has_state, z->has_state, sizeof n->has_state);
    n->units = units;
    n->tensors = tensors;
    n->unit_count = z->unit_count;
    n->tensor_count = z->tensor_count;
    n->names = z->names;
    n->name_capacity = z->name_capacity;
    n->block_count = z->block_count;
    n->tree_sum_count =
        PAR__MAX(n->tree_sum_count, z->microbatches == n->microbatches ? z->tree_sum_count : 0);
    n->lock = z->lock;
    n->initial_control = z->initial_control;
    return n;
}
// Places all units and tensors again, for the number of ranks.
static void par__zero_place_all(par_zero *z) {
    for (int i = 0; i < z->unit_count; i++) {
        par__zero_unit *u = &z->units[i];
        const par__zero_unit *of = u->use_of ? &z->units[u->use_of - 1] : NULL;
        par__zero_place_unit(z, u);
        for (int part = 0; part < 2; part++) {
            u->used[part] = of && !part ? of->used[0] : 0;
            u->count[part] = of && !part ? of->count[0] : 0;
        }
        u->open_forwards = u->open_backwards = u->microbatches_done = 0;
        for (int t = u->first; t < u->last; t++) par__zero_place_tensor(z, u, &z->tensors[t]);
    }
}
// Gives tensors their new comms. NULL, or what is wrong.
static const char *par__zero_replace_comms(par_zero *z, const par_zero_comms *now, int newcomer, char *why,
                                           size_t capacity) {
    for (int i = 0; i < z->tensor_count; i++) {
        par__zero_tensor *t = &z->tensors[i];
        par_comm **comms[1 + PAR_MAX_SUMS] = {&t->desc.tied_comm};
        for (int k = 0; k < PAR_MAX_SUMS; k++) comms[1 + k] = &t->desc.sums[k].comm;
        for (int k = 0; k < 1 + PAR_MAX_SUMS; k++) {
            par_comm *old = *comms[k], *next = old && now->replace ? now->replace(now->user, old) : NULL;
            if (!newcomer || next) *comms[k] = next; // a newcomer may have opened it for a call that failed
            if (old && !*comms[k])
                return snprintf(why, capacity,
                                "tensor %s has a %s: set par_zero_comms.replace, which gives the comm that "
                                "takes its place",
                                t->name, k ? "sum over a comm" : "tied_comm"),
                       why;
        }
        const char *wrong = par__zero_check_sums(z, t);
        if (wrong) return snprintf(why, capacity, "tensor %s: %s", t->name, wrong), why;
    }
    return NULL;
}
// Makes the next layout, without memory. NULL, or what is wrong.
static const char *par__zero_plan_next(par_zero *z, par_comm *comm, const par_zero_comms *now,
                                       uint64_t layout, char *why, size_t capacity) {
    par_zero *n = z->next = par__zero_copy_of(z, comm, now);
    if (!n) return "out of memory for tables of units and tensors";
    n->layout = layout;
    if (!now->comm) return NULL;
    const char *wrong = par__zero_check_desc(n, why, capacity);
    const int newcomer = !z->committed && !z->layout;
    if (!wrong) wrong = par__zero_replace_comms(n, now, newcomer, why, capacity);
    for (int i = 0; i < z->unit_count && !wrong && n->microbatches != z->microbatches; i++)
        if (z->units[i].order)
            wrong = "the number of microbatches changes, and a unit has an order of backward passes "
                    "(par_zero_set_order): close it, and open another one";
    if (!wrong) par__zero_place_all(n);
    return wrong;
}
// Ends the step that is under way: where another rank has committed it, so does this one; else nothing of it
// is left.
// top: the last layout, the last step.
static par_result par__zero_settle(par_zero *z, par_comm *comm, uint64_t *top, int *holds) {
    top[0] = z->layout;
    top[1] = 0;
    *holds = z->committed && !z->torn;
    if (*holds) top[1] = z->steps_committed;
    PAR__ZERO_TRY(par_all_reduce(top, top, 2, PAR_U64, PAR_MAX, comm));
    if (z->next && z->next->layout == top[0])
        par__zero_adopt(z, 0);
    else
        par__zero_drop_next(z);
    if (z->committed && z->prepared && z->steps_committed + 1 == top[1]) {
        par__zero_swap_control(z);
        par__zero_finish_step(z, 1);
    }
    *holds = z->committed && !z->torn && z->layout == top[0] && z->steps_committed == top[1];
    return PAR_OK;
}
static par__zero_member par__zero_member_of(par_zero *z, const par_zero_comms *now, int holds) {
    const par_zero *n = z->next;
    par__zero_member m;
    memset(&m, 0, sizeof m);
    m.kin = par__zero_kin(z);
    m.holds = holds;
    m.home = z->committed ? par_world_rank(z->desc.comm, 0) : -1;
    m.ranks = z->ranks;
    m.rank = z->rank;
    m.ward = z->stale ? -1 : z->ward;
    m.stale = z->stale;
    m.now = z->now;
    m.new_rank = now->comm ? n->rank : -1;
    m.new_ranks = n->ranks;
    m.new_ward = -1;
    if (now->comm && par__zero_has_ward(n))
        m.new_ward = (n->rank + n->ranks - par__zero_buddy_distance(now->comm)) % n->ranks;
    m.checkpoint = now->checkpoint != NULL;
    m.locks = z->lock.id != 0;
    m.owns = z->lock.owner;
    for (int i = 0; i < z->unit_count && holds; i++) m.passes += z->units[i].microbatches_done;
    if (holds) m.control = par__zero_control_get(z);
    return m;
}
// Has nobody something that this rank's kin need? why: what. ARGUMENT: nobody has had it, as far as is known.
static par_result par__zero_find_missing(const par__zero_exchange *x, char *why, size_t capacity) {
    int needed = 0;
    for (int i = 0; i < x->count; i++) needed |= par__zero_is_kin(x, i) && x->members[i].new_rank >= 0;
    if (needed && x->holder < 0)
        return snprintf(why, capacity, "no rank that has states has the tensors and settings of rank %d",
                        par_world_rank(x->comm, x->me)),
               PAR_ERR_ARGUMENT;
    for (int shard = 0; shard < x->old_ranks && needed && x->any->sharded_states; shard++)
        if (x->givers[shard] < 0)
            return snprintf(why, capacity, "the states of rank %d of %d are lost: it is gone, %s", shard,
                            x->old_ranks,
                            x->members[x->holder].stale ? "and values were set that its buddy does not have: "
                                                          "call par_zero_flush behind par_zero_fill"
                            : x->any->desc.buddies      ? "and so is its buddy"
                                                        : "and without desc.buddies nobody has a copy"),
                   PAR_ERR_LOST;
    return PAR_OK;
}
// Are all ranks of this rank's old comm here?
static int par__zero_is_whole(const par__zero_exchange *x) {
    const par__zero_member *me = &x->members[x->me];
    int count = 0;
    for (int i = 0; i < x->count; i++) count += x->members[i].home == me->home && me->home >= 0;
    return count == me->ranks;
}
static par_result par__zero_gather_next(par_zero *n) { // parameters, which stages 1 and 2 have whole
    par_result r = PAR_OK;
    if (!par__zero_update_is_sharded(n) || n->sharded_parameters) return PAR_OK;
    for (int i = 0; i < n->unit_count && !r; i++) r = par__zero_shards_gather_begin(n, i);
    for (int i = 0; i < n->unit_count; i++) {
        const par_result done = par_wait(&n->units[i].param_gather);
        if (!r) r = done;
    }
    return r;
}
static const char *par__zero_check_recover(const par_zero *z) {
    if (z->add_result) return z->add_error;
    if (!z->tensor_count) return "there are no tensors: add those that the other ranks have";
    if (z->desc.parameter_server) return "a parameter server's states are on one rank: take stage 1";
    return z->state_store.kind || z->parameter_store.kind ? "what is offloaded does not move between ranks"
                                                          : NULL;
}
// All ranks know the lock on the directory into which the run saves.
static par_result par__zero_pass_lock(par_zero *z, const par__zero_exchange *x) {
    par__zero_lock k = z->lock;
    int from = 0;
    while (from < x->count && !x->members[from].locks) from++;
    if (from == x->count) return PAR_OK;
    PAR__ZERO_TRY(par_broadcast(&k, &k, sizeof k, PAR_U8, from, x->comm));
    k.owner = z->lock.owner;
    k.fresh = z->lock.fresh;
    return z->next->lock = k, PAR_OK;
}
// Where the rank that had made it is gone, or is a spare now, the first one that trains on makes it its own.
static void par__zero_inherit_lock(par_zero *z, const par__zero_exchange *x) {
    int heir = -1, owned = 0;
    for (int i = x->count - 1; i >= 0; i--) {
        if (x->members[i].new_rank < 0) continue;
        owned |= x->members[i].owns;
        heir = i;
    }
    if (heir >= 0 && x->members[x->me].new_rank < 0) z->lock.owner = z->lock.fresh = 0;
    if (!owned && heir == x->me && z->lock.id) par__zero_lock_renew(&z->lock);
}
// Allocates the next layout and fills it. lost: its values come from elsewhere. All ranks know when all are
// ready.
static par_result par__zero_build_next(par_zero *z, par__zero_exchange *x, uint64_t steps, int lost) {
    par_zero *n = x->to;
    par_result r = PAR_OK;
    z->next->steps_committed = steps;
    if (n && x->holder >= 0) {
        n->initial_control = x->members[x->holder].control;
        n->now = x->members[x->holder].now;
    }
    if (n) r = par__zero_build(n);
    PAR__ZERO_TRY(par__zero_share_error(z, x->comm, r, par_last_error(x->comm)));
    PAR__ZERO_TRY(par__zero_pass_lock(z, x));
    if (lost) return PAR_OK;
    PAR__ZERO_TRY(par__zero_move_all(x));
    if (n) PAR__ZERO_TRY(par__zero_gather_next(n));
    if (n) n->stale = 0;
    return PAR_OK;
}
// Makes the table. why: of an error of this rank, or NULL.
static par_result par__zero_open_exchange(par_zero *z, const par_zero_comms *now, int holds, const char *why,
                                          par__zero_exchange *x) {
    char text[700];
    x->from = holds ? z : NULL;
    x->to = now->comm ? z->next : NULL;
    x->any = z;
    x->count = par_size(x->comm);
    x->me = par_rank(x->comm);
    x->members = (par__zero_member *)par__zero_alloc_zeroed((size_t)x->count, sizeof *x->members);
    if (!why && !x->members) why = "out of memory for a table of ranks";
    snprintf(text, sizeof text, "par_zero_recover: %.600s", why ? why : "");
    PAR__ZERO_TRY(par__zero_share_error(z, x->comm, why ? PAR_ERR_ARGUMENT : PAR_OK, text));
    x->members[x->me] = par__zero_member_of(z, now, holds);
    PAR__ZERO_TRY(par_all_gather(&x->members[x->me], x->members, sizeof *x->members, PAR_U8, x->comm));
    const par_result r = par__zero_find_givers(x) ? PAR_OK : PAR_ERR_MEMORY;
    return par__zero_share_error(z, x->comm, r, "par_zero_recover: out of memory for a table of shards");
}
// Is anything lost that a checkpoint must bring back? say: what.
static par_result par__zero_check_lost(par_zero *z, const par__zero_exchange *x, int *lost, char *say,
                                       size_t capacity) {
    char why[200] = "", text[400];
    int given = 1;
    const par_result mine = par__zero_find_missing(x, why, sizeof why);
    for (int i = 0; i < x->count; i++) given &= x->members[i].checkpoint || x->members[i].new_rank < 0;
    snprintf(text, sizeof text, "par_zero_recover: %s%s", why,
             given ? "" : "; set par_zero_comms.checkpoint to go on from the last one, on all ranks");
    const par_result r = par__zero_share_error(z, x->comm, mine, text);
    *lost = (r == PAR_ERR_LOST || r == PAR_ERR_ARGUMENT) && given;
    if (*lost) snprintf(say, capacity, "%.*s", (int)capacity - 1, par_last_error(x->comm));
    return *lost ? PAR_OK : r;
}
// Makes the next layout ready. lost: its values come from a checkpoint, and report->text says why.
static par_result par__zero_prepare_next(par_zero *z, par__zero_exchange *x, const par_zero_comms *now,
                                         par_zero_recovery *report, int *lost) {
    char why[600];
    uint64_t top[2];
    int holds = 0;
    memset(report, 0, sizeof *report);
    *lost = 0;
    par__zero_wait_all(z);
    PAR__ZERO_TRY(par__zero_settle(z, x->comm, top, &holds));
    const char *wrong = par__zero_plan_next(z, x->comm, now, top[0] + 1, why, sizeof why);
    par_result r = par__zero_open_exchange(z, now, holds, wrong, x);
    if (!r) r = par__zero_check_lost(z, x, lost, report->text, sizeof report->text);
    if (!r) r = par__zero_build_next(z, x, top[1], *lost);
    for (int i = 0; i < x->count && !r; i++) report->repeated |= x->members[i].passes > 0;
    report->from_checkpoint = *lost;
    if (r) par__zero_drop_next(z);
    return r;
}
par_result par_zero_recover(par_zero *z, par_comm *comm, const par_zero_comms *now) {
    par__zero_exchange x;
    par_zero_comms same;
    par_zero_recovery report;
    int lost;
    char text[700];
    memset(&x, 0, sizeof x);
    memset(&same, 0, sizeof same);
    same.comm = x.comm = comm;
    if (!now) now = &same;
    const char *why = par__zero_check_recover(z);
    snprintf(text, sizeof text, "par_zero_recover: %s", why ? why : "");
    PAR__ZERO_TRY(par__zero_share_error(z, comm, why ? PAR_ERR_ARGUMENT : PAR_OK, text));
    if (z->save) par_zero_save_end(z); // its error is that of the ranks that are gone
    par_result r = par__zero_prepare_next(z, &x, now, &report, &lost);
    if (!r) r = par__zero_share_error(z, comm, r, ""); // who has passed it knows that all are ready
    if (!r) par__zero_adopt(z, par__zero_is_whole(&x));
    if (!r) par__zero_inherit_lock(z, &x);
    par__zero_close_exchange(&x);
    if (!r && lost && now->comm) r = par_zero_load(z, now->checkpoint);
    if (r) return r;
    report.step = par_zero_steps(z);
    report.done = z->steps_committed;
    if (now->recovery) *now->recovery = report;
    return PAR_OK;
}

// >>zero_schedule -------------------------------------------------------------------------------------------

float par_zero_lr_factor(const par_zero_lr_schedule *s, uint64_t step) {
    if (step < s->warmup_steps) return (float)((double)(step + 1) / (double)(s->warmup_steps + 1));
    if (s->decay_style == PAR_ZERO_CONSTANT) return 1;
    const uint64_t decay_start = s->decay_style == PAR_ZERO_WSD
                                     ? (s->total_steps > s->decay_steps ? s->total_steps - s->decay_steps : 0)
                                     : s->warmup_steps;
    if (step >= s->total_steps) return s->min_factor;
    if (step < decay_start) return 1;
    const double done = (double)(step - decay_start) / (double)(s->total_steps - decay_start),
                 min_factor = (double)s->min_factor;
    const double left =
        s->decay_style == PAR_ZERO_COSINE ? 0.5 * (1 + par__cos(3.141592653589793 * done)) : 1 - done;
    return (float)(min_factor + (1 - min_factor) * left);
}

// >>zero_loops ----------------------------------------------------------------------------------------------
//
// The loops process whole vectors only: tensors and shards begin at multiples of 32 elements. So the result
// for an element does not depend on where shards end.

// AdamW's update in three loops: in one, each operation waits for the one before it, and a processor looks
// only a few elements ahead.
PAR__INLINE_LOOP void par__zero_adamw_loop(const par_zero_update *update, float *w, const float *g, float *m,
                                           float *v, size_t n) {
    enum { PART = 256 };
    const par_zero_update a = *update;
    float roots[PART];
    for (size_t k; n; n -= k, w += k, g += k, m += k, v += k) {
        k = PAR__MIN((size_t)PART, n);
        PAR__VECTOR(i, k, par__zero_element e; e.m = m[i]; e.v = v[i]; par__zero_update_moments(&a, &e, g[i]);
                    m[i] = e.m; v[i] = e.v);
        PAR__VECTOR(i, k, roots[i] = par__zero_sqrt(v[i] * a.bias_correction2));
        PAR__VECTOR(i, k, const float u = par__zero_direction_by(&a, m[i], roots[i]);
                    w[i] = par__zero_decayed_step(&a, w[i], u));
    }
}
// One optimizer's update of all elements. The copy of its arguments cannot overlap with the arrays.
PAR__INLINE_LOOP void par__zero_step_loop(par_zero_optimizer optimizer, int reads, int writes,
                                          const par_zero_update *update, float *w, const float *g, float *m,
                                          float *v, size_t n) {
    const par_zero_update a = *update;
    if (optimizer == PAR_ZERO_ADAMW) {
        par__zero_adamw_loop(update, w, g, m, v, n);
        return;
    }
    PAR__VECTOR(i, n, par__zero_element e; e.w = w[i]; e.m = reads > 0 ? m[i] : 0; e.v = reads > 1 ? v[i] : 0;
                par__zero_step_element(optimizer, &a, &e, g[i]); w[i] = e.w; if (writes > 0) m[i] = e.m;
                if (writes > 1) v[i] = e.v);
}
PAR__INLINE_LOOP void par__zero_step(const par_zero_update *a, float *w, const float *g, float *m, float *v,
                                     size_t n) {
    switch (a->optimizer) {
#define PAR__X(constant, name, states, reads, writes)                                                        \
    case constant: par__zero_step_loop(constant, reads, writes, a, w, g, m, v, n); break;
        PAR_ZERO_OPTIMIZERS(PAR__X)
#undef PAR__X
    default: break;
    }
}
PAR__INLINE_LOOP void par__zero_ema(float *ema, const float *w, float decay, size_t n) {
    PAR__VECTOR(i, n, ema[i] = par__zero_average(ema[i], w[i], decay));
}
PAR__INLINE_LOOP void par__zero_momentum(const par_zero_update *update, float *out, const float *g, float *m,
                                         size_t n) {
    const par_zero_update a = *update;
    PAR__VECTOR(i, n, out[i] = par__zero_muon_momentum(&a, &m[i], g[i]));
}
PAR__INLINE_LOOP double par__zero_sum_lanes(const double *lanes) {
    double sum = 0;
    for (int j = 0; j < PAR__STRIP; j++) sum += lanes[j];
    return sum;
}
PAR__INLINE_LOOP double par__zero_squares(const float *x, size_t n) {
    double lanes[PAR__STRIP] = {0};
    PAR__VECTOR(i, n, lanes[lane] += (double)x[i] * (double)x[i]);
    return par__zero_sum_lanes(lanes);
}
PAR__INLINE_LOOP void par__zero_lamb_steps(const par_zero_update *update, const float *w, const float *g,
                                           const float *m, const float *v, float *steps, size_t n) {
    const par_zero_update a = *update;
    PAR__VECTOR(i, n, par__zero_element e; e.w = w[i]; e.m = m[i]; e.v = v[i];
                par__zero_update_moments(&a, &e, g[i]); steps[i] = par__zero_lamb_direction(&a, &e));
}

// The bits of the largest size of 32 floats: without signs they compare like integers, and NaN is above all
// numbers.
PAR__INLINE_LOOP uint32_t par__zero_largest_bits(const float *x) {
    uint32_t largest = 0;
    PAR__LANES(i, 0, 32, const uint32_t size = par__f32_to_bits(x[i]) & 0x7FFFFFFFu;
               largest = size > largest ? size : largest)
    return largest;
}
// Adding 1.5 x 2^23 rounds to the nearest integer, which is then in the low bits of the float.
PAR__INLINE_LOOP uint32_t par__zero_integer_code(float x) { return par__f32_to_bits(x + 12582912.0f); }
// The scales of all blocks first: in one loop with the codes, each block would wait for its scale.
PAR__INLINE_LOOP void par__zero_quantize_blocks(int code, const float *x, uint8_t *out, size_t blocks) {
    enum { MOST = 16 }; // blocks at a time
    uint32_t largest[MOST] = {0}, codes[32];
    float scales[MOST], up[MOST];
    for (size_t n; blocks; blocks -= n) {
        n = PAR__MIN((size_t)MOST, blocks);
        for (size_t b = 0; b < n; b++) largest[b] = par__zero_largest_bits(x + 32 * b);
        PAR__LANES(b, 0, MOST, scales[b] = par__zero_block_scale(largest[b], par__zero_largest_code(code));
                   up[b] = par__zero_block_inverse(scales[b]))
        for (size_t b = 0; b < n; b++, x += 32, out += 2 + 4 * par__zero_code_bits(code)) {
            memcpy(out, (const char *)&scales[b] + 2, 2);
            PAR__LANES(i, 0, 32, const float y = x[i] * up[b]; codes[i] = par__zero_is_float_code(code)
                                                                              ? par__zero_float_code(code, y)
                                                                              : par__zero_integer_code(y))
            if (par__zero_code_bits(code) == 8)
                PAR__LANES(i, 0, 32, out[2 + i] = (uint8_t)(codes[i] & 0xFFu))
            else
                PAR__ROLLED PAR__LANES(i, 0, 16,
                                       out[2 + i] = (uint8_t)((codes[i] & 15u) | (codes[16 + i] & 15u) << 4))
        }
    }
}
PAR__INLINE_LOOP void par__zero_dequantize_blocks(int code, float *x, const uint8_t *in, size_t blocks) {
    for (size_t b = 0; b < blocks; b++, x += 32, in += 2 + 4 * par__zero_code_bits(code)) {
        const float scale = par__zero_read_scale(in);
        if (par__zero_code_bits(code) == 8)
            PAR__LANES(i, 0, 32, x[i] = scale * par__zero_decode(code, in[2 + i]))
        else
            PAR__ROLLED PAR__LANES(i, 0, 16, x[i] = scale * par__zero_decode(code, in[2 + i] & 15u);
                                   x[16 + i] = scale * par__zero_decode(code, (unsigned)in[2 + i] >> 4))
    }
}
PAR__INLINE_LOOP void par__zero_quantize(int code, const float *x, uint8_t *out, size_t blocks) {
    switch (code) {
#define PAR__X(constant, value, bits, largest)                                                               \
    case constant: par__zero_quantize_blocks(constant, x, out, blocks); break;
        PAR_ZERO_CODES(PAR__X)
#undef PAR__X
    default: break;
    }
}
PAR__INLINE_LOOP void par__zero_dequantize(int code, float *x, const uint8_t *in, size_t blocks) {
    switch (code) {
#define PAR__X(constant, value, bits, largest)                                                               \
    case constant: par__zero_dequantize_blocks(constant, x, in, blocks); break;
        PAR_ZERO_CODES(PAR__X)
#undef PAR__X
    default: break;
    }
}
// Rounds n floats to bf16, each by 16 random bits.
PAR__INLINE_LOOP void par__zero_round(uint16_t *to, const float *x, size_t n, const uint16_t *random) {
    PAR__VECTOR(i, n, to[i] = par__zero_round_randomly(x[i], random[i]));
}

// X(P, result, name, parameters, arguments), see PAR__LOOP_TABLES
#define PAR__ZERO_LOOPS(X, P)                                                                                \
    X(P, void, step, (const par_zero_update *a, float *w, const float *g, float *m, float *v, size_t n),     \
      (a, w, g, m, v, n))                                                                                    \
    X(P, void, ema, (float *ema, const float *w, float decay, size_t n), (ema, w, decay, n))                 \
    X(P, void, momentum, (const par_zero_update *a, float *out, const float *g, float *m, size_t n),         \
      (a, out, g, m, n))                                                                                     \
    X(P, double, squares, (const float *x, size_t n), (x, n))                                                \
    X(P, void, round, (uint16_t * to, const float *x, size_t n, const uint16_t *random), (to, x, n, random)) \
    X(P, void, quantize, (int code, const float *x, uint8_t *out, size_t blocks), (code, x, out, blocks))    \
    X(P, void, dequantize, (int code, float *x, const uint8_t *in, size_t blocks), (code, x, in, blocks))    \
    X(P, void, lamb_steps,                                                                                   \
      (const par_zero_update *a, const float *w, const float *g, const float *m, const float *v,             \
       float *steps, size_t n),                                                                              \
      (a, w, g, m, v, steps, n))

PAR__LOOP_TABLES(par__zero_, PAR__ZERO_LOOPS)

// >>zero_states ---------------------------------------------------------------------------------------------
//
// Moments of 8 bits in blocks. By AVX-512 AdamW's step with them is 1.4 times as fast as by AVX2, and by AVX2
// 1.4 times as fast as by loops that compilers vectorize.

PAR__INLINE_LOOP void par__zero_decode_blocks(int sign, float *x, const uint8_t *in, size_t blocks) {
    for (; blocks; blocks--, x += PAR__ZERO_STATE_BLOCK, in += PAR__ZERO_STATE_BLOCK_BYTES) {
        float scale;
        memcpy(&scale, in, sizeof scale);
        PAR__LANES(i, 0, PAR__ZERO_STATE_BLOCK, x[i] = par__zero_decode_state(in[4 + i], sign, scale))
    }
}
PAR__INLINE_LOOP void par__zero_encode_blocks(int sign, const float *x, uint8_t *out, size_t blocks) {
    for (; blocks; blocks--, x += PAR__ZERO_STATE_BLOCK, out += PAR__ZERO_STATE_BLOCK_BYTES) {
        const float scale = par__zero_largest_of(x), up = par__zero_state_inverse(scale);
        memcpy(out, &scale, sizeof scale);
        PAR__LANES(i, 0, PAR__ZERO_STATE_BLOCK, out[4 + i] = (uint8_t)par__zero_encode_state(x[i], sign, up))
    }
}
PAR__INLINE_LOOP void par__zero_state_decode(int sign, float *x, const uint8_t *in, size_t blocks) {
    if (sign)
        par__zero_decode_blocks(1, x, in, blocks);
    else
        par__zero_decode_blocks(0, x, in, blocks);
}
PAR__INLINE_LOOP void par__zero_state_encode(int sign, const float *x, uint8_t *out, size_t blocks) {
    if (sign)
        par__zero_encode_blocks(1, x, out, blocks);
    else
        par__zero_encode_blocks(0, x, out, blocks);
}
#define PAR__ZERO_STATE_LOOPS(X, P)                                                                          \
    X(P, void, decode, (int sign, float *x, const uint8_t *in, size_t blocks), (sign, x, in, blocks))        \
    X(P, void, encode, (int sign, const float *x, uint8_t *out, size_t blocks), (sign, x, out, blocks))

typedef struct par__zero_state_loops {
    PAR__ZERO_STATE_LOOPS(PAR__MEMBER, par__zero_state_)
} par__zero_state_loops;
PAR__LOOP_TABLE(base, par__zero_state_, PAR__ZERO_STATE_LOOPS)

#if PAR__X86 && !defined(__CUDACC__)
// The same bits by AVX2: no compiler turns these formulas into lookups. A code k is read as k + 1/2, whose
// exponent tells the decade, and whose fraction m from 1 to 2 the place in it: 9 m - 8 is exact. Of a code
// with a sign, 0 has an exponent of its own; 0 without one would be in the largest code's decade.
PAR__TARGET_avx2 PAR__INLINE_LOOP void par__zero_decode_avx2(int sign, float *x, const uint8_t *in,
                                                             size_t blocks) {
    const __m256 powers = _mm256_setr_ps(1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f, sign ? 0 : 1e8f, 1e1f);
    const __m256i integer = _mm256_set1_epi32(0x4B000000), size = _mm256_set1_epi32(0x7F);
    const __m256i largest = _mm256_set1_epi32(sign ? 0x4B00007F : 0x4B0000FF); // 2^23 + the largest code
    const __m256i fraction = _mm256_set1_epi32(0x7FFFFF), one = _mm256_set1_epi32(0x3F800000);
    const __m256i minus_zero = _mm256_set1_epi32((int)0x80000000u);
    for (; blocks; blocks--, x += PAR__ZERO_STATE_BLOCK, in += PAR__ZERO_STATE_BLOCK_BYTES) {
        float scale;
        memcpy(&scale, in, sizeof scale);
        const __m256 scales = _mm256_set1_ps(scale), unit = _mm256_set1_ps(scale * (sign ? 1e-8f : 1e-9f));
        for (size_t i = 0; i < PAR__ZERO_STATE_BLOCK; i += 8) {
            const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(in + 4 + i));
            const __m256i code = sign ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
            const __m256i k = _mm256_or_si256(sign ? _mm256_and_si256(code, size) : code, integer);
            const __m256i middle =
                _mm256_castps_si256(_mm256_sub_ps(_mm256_castsi256_ps(k), _mm256_set1_ps(8388607.5f)));
            const __m256i m = _mm256_or_si256(_mm256_and_si256(middle, fraction), one);
            const __m256 power = _mm256_permutevar8x32_ps(powers, _mm256_srli_epi32(middle, 23));
            const __m256 part = _mm256_mul_ps(
                _mm256_fmsub_ps(_mm256_castsi256_ps(m), _mm256_set1_ps(9), _mm256_set1_ps(8)), power);
            const __m256 some =
                sign ? part : _mm256_castsi256_ps(_mm256_sign_epi32(_mm256_castps_si256(part), code));
            const __m256 y = _mm256_blendv_ps(_mm256_mul_ps(some, unit), scales,
                                              _mm256_castsi256_ps(_mm256_cmpeq_epi32(k, largest)));
            const __m256 sign_bits = _mm256_castsi256_ps(_mm256_and_si256(code, minus_zero));
            _mm256_storeu_ps(x + i, sign ? _mm256_or_ps(y, sign_bits) : y);
        }
    }
}
PAR__TARGET_avx2 static void par__zero_state_decode_avx2(int sign, float *x, const uint8_t *in,
                                                         size_t blocks) {
    if (sign)
        par__zero_decode_avx2(1, x, in, blocks);
    else
        par__zero_decode_avx2(0, x, in, blocks);
}
// Eight numbers of a moment, without their signs if it has any.
PAR__TARGET_avx2 PAR__INLINE_LOOP __m256 par__zero_sizes_avx2(int sign, const float *x) {
    const __m256 positive = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)), y = _mm256_loadu_ps(x);
    return sign ? _mm256_and_ps(y, positive) : y;
}
// The bits of a block's largest number without its sign; of numbers without signs, more if one has a sign.
PAR__TARGET_avx2 PAR__INLINE_LOOP uint32_t par__zero_largest_avx2(int sign, const float *x) {
    __m256i even = _mm256_setzero_si256(), odd = even;
    uint32_t sizes[8], largest = 0;
    for (size_t i = 0; i < PAR__ZERO_STATE_BLOCK; i += 16) {
        even = _mm256_max_epu32(even, _mm256_castps_si256(par__zero_sizes_avx2(sign, x + i)));
        odd = _mm256_max_epu32(odd, _mm256_castps_si256(par__zero_sizes_avx2(sign, x + i + 8)));
    }
    _mm256_storeu_si256((__m256i *)(void *)sizes, _mm256_max_epu32(even, odd));
    for (int i = 0; i < 8; i++) largest = PAR__MAX(largest, sizes[i]);
    return largest;
}
// Numbers of decades. Near a power of ten the lines of two decades give the same code, so that a decade may
// begin where a float's bits say, which are about its logarithm: at even steps of those of (1.216 y)^3, whose
// exponent rises by ten in a decade, so that bits are off alike about all powers of ten. Rounded by the
// addition of 1.5 x 2^23, the number is in the lowest bits. root: 1.216 / scale.
PAR__TARGET_avx2 PAR__INLINE_LOOP void par__zero_decades_avx2(int sign, int32_t *to, const float *x,
                                                              float root) {
    const __m256 step = _mm256_set1_ps(1 / 83589857.0f), integer = _mm256_set1_ps(12582912);
    const __m256i lowest = _mm256_set1_epi32(445393285);
    for (size_t i = 0; i < PAR__ZERO_STATE_BLOCK; i += 8) {
        const __m256 r = _mm256_mul_ps(par__zero_sizes_avx2(sign, x + i), _mm256_set1_ps(root));
        const __m256 cube = _mm256_max_ps(_mm256_mul_ps(_mm256_mul_ps(r, r), r), _mm256_set1_ps(1e-23f));
        const __m256 above = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_castps_si256(cube), lowest));
        _mm256_storeu_ps((float *)(void *)(to + i), _mm256_fmadd_ps(above, step, integer));
    }
}
// Codes of eight numbers as integers. The first line is another one here, which is never below 1. Codes of
// 256, and of 128 with a sign, become the largest ones when they are packed.
PAR__TARGET_avx2 PAR__INLINE_LOOP __m256i par__zero_codes_avx2(int sign, const float *x,
                                                               const int32_t *decades, float up) {
    const __m256 shift = _mm256_setr_ps(2e-7f, 8e-7f, 8e-6f, 8e-5f, 8e-4f, 8e-3f, 8e-2f, 8e-1f);
    const __m256 slope =
        _mm256_mul_ps(_mm256_set1_ps(sign ? 0.5f : 1.0f),
                      _mm256_setr_ps(6666666.5f, 2e6f / 0.9f, 4e5f / 0.9f, 8e4f / 0.9f, 1.6e4f / 0.9f,
                                     3.2e3f / 0.9f, 6.4e2f / 0.9f, 1.28e2f / 0.9f));
    const __m256i decade = _mm256_loadu_si256((const __m256i *)(const void *)decades);
    const __m256 y = _mm256_mul_ps(par__zero_sizes_avx2(sign, x), _mm256_set1_ps(up));
    const __m256 line = _mm256_mul_ps(_mm256_add_ps(y, _mm256_permutevar8x32_ps(shift, decade)),
                                      _mm256_permutevar8x32_ps(slope, decade));
    const __m256i k = _mm256_cvttps_epi32(line);
    return sign ? k : _mm256_sign_epi32(k, _mm256_castps_si256(y)); // 0 stays 0
}
PAR__TARGET_avx2 PAR__INLINE_LOOP __m256i par__zero_load_avx2(const void *x) {
    return _mm256_loadu_si256((const __m256i *)x);
}
// 32 integers of 32 bits as bytes, those out of range as the nearest, in an order that
// par__zero_encode_avx2 undoes. sign: the bytes are signed.
PAR__TARGET_avx2 PAR__INLINE_LOOP __m256i par__zero_pack_avx2(int sign, __m256i a, __m256i b, __m256i c,
                                                              __m256i d) {
    const __m256i ab = _mm256_packs_epi32(a, b), cd = _mm256_packs_epi32(c, d);
    return sign ? _mm256_packs_epi16(ab, cd) : _mm256_packus_epi16(ab, cd);
}
PAR__TARGET_avx2 PAR__INLINE_LOOP void par__zero_encode_avx2(int sign, const float *x, uint8_t *out,
                                                             size_t blocks) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), signs = _mm256_set1_epi8((char)-128);
    int32_t decades[PAR__ZERO_STATE_BLOCK];
    for (; blocks; blocks--, x += PAR__ZERO_STATE_BLOCK, out += PAR__ZERO_STATE_BLOCK_BYTES) {
        const uint32_t largest = par__zero_largest_avx2(sign, x);
        const float scale = par__bits_to_f32(largest), up = par__zero_state_inverse(scale);
        if (largest >= 0x7F800000u) { // not finite
            par__zero_state_encode_base(sign, x, out, 1);
            continue;
        }
        memcpy(out, &scale, sizeof scale);
        par__zero_decades_avx2(sign, decades, x, up * 1.216f);
        for (size_t i = 0; i < PAR__ZERO_STATE_BLOCK; i += 32) {
            const float *y = x + i;
            const int32_t *d = decades + i;
            __m256i bytes = par__zero_pack_avx2(sign, par__zero_codes_avx2(sign, y, d, up),
                                                par__zero_codes_avx2(sign, y + 8, d + 8, up),
                                                par__zero_codes_avx2(sign, y + 16, d + 16, up),
                                                par__zero_codes_avx2(sign, y + 24, d + 24, up));
            if (sign)
                bytes = _mm256_or_si256(
                    bytes, _mm256_and_si256(signs, par__zero_pack_avx2(1, par__zero_load_avx2(y),
                                                                       par__zero_load_avx2(y + 8),
                                                                       par__zero_load_avx2(y + 16),
                                                                       par__zero_load_avx2(y + 24))));
            _mm256_storeu_si256((__m256i *)(void *)(out + 4 + i), _mm256_permutevar8x32_epi32(bytes, order));
        }
    }
}
PAR__TARGET_avx2 static void par__zero_state_encode_avx2(int sign, const float *x, uint8_t *out,
                                                         size_t blocks) {
    if (sign)
        par__zero_encode_avx2(1, x, out, blocks);
    else
        par__zero_encode_avx2(0, x, out, blocks);
}
static const par__zero_state_loops par__zero_state_loops_avx2 = {par__zero_state_decode_avx2,
                                                                 par__zero_state_encode_avx2};

// By AVX-512, too: there the number of a code is one line of k + 1/2, and one rounding of the line is exact.
PAR__TARGET_avx512 PAR__INLINE_LOOP void par__zero_decode_vectors(int sign, float *x, const uint8_t *in,
                                                                  size_t blocks) {
    const __m512 slopes = _mm512_setr_ps(450, 2250, 11250, 56250, 281250, 1406250, 7031250, 0, 0, 0, 0, 0, 0,
                                         0, 0, 90); // 18 x 5^j for j = 2 ... 8, and 1
    const __m512 minus =
        _mm512_setr_ps(-8e2f, -8e3f, -8e4f, -8e5f, -8e6f, -8e7f, -8e8f, 0, 0, 0, 0, 0, 0, 0, 0,
                       -80); // -8 x 10^j
    const __m512i integer = _mm512_set1_epi32(0x4B000000), size = _mm512_set1_epi32(sign ? 0x7F : 0xFF);
    const __m512i largest = _mm512_or_si512(integer, size); // 2^23 + the largest code
    const __m512i minus_zero = _mm512_set1_epi32((int)0x80000000u);
    for (; blocks; blocks--, x += PAR__ZERO_STATE_BLOCK, in += PAR__ZERO_STATE_BLOCK_BYTES) {
        float scale;
        memcpy(&scale, in, sizeof scale);
        const __m512 scales = _mm512_set1_ps(scale), unit = _mm512_set1_ps(scale * (sign ? 1e-8f : 1e-9f));
        for (size_t i = 0; i < PAR__ZERO_STATE_BLOCK; i += 16) {
            const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(in + 4 + i));
            const __m512i code = sign ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
            const __m512i k = _mm512_ternarylogic_epi32(code, size, integer, 0xEA); // code & size | integer
            const __m512 middle = _mm512_sub_ps(_mm512_castsi512_ps(k), _mm512_set1_ps(8388607.5f));
            const __m512i at =
                _mm512_srli_epi32(_mm512_castps_si512(middle), 23); // its lowest four bits count
            const __m512 line =
                _mm512_fmadd_ps(middle, _mm512_permutexvar_ps(at, slopes), _mm512_permutexvar_ps(at, minus));
            const __m512 y = _mm512_mask_mul_ps(scales, _mm512_cmpneq_epi32_mask(k, largest), line, unit);
            const __m512i signed_y =
                _mm512_ternarylogic_epi32(_mm512_castps_si512(y), code, minus_zero, 0xF8);
            _mm512_storeu_ps(x + i, sign ? _mm512_castsi512_ps(signed_y) : y); // y | code & minus_zero
        }
    }
}
PAR__TARGET_avx512 static void par__zero_state_decode_avx512(int sign, float *x, const uint8_t *in,
                                                             size_t blocks) {
    if (sign)
        par__zero_decode_vectors(1, x, in, blocks);
    else
        par__zero_decode_vectors(0, x, in, blocks);
}
// The bits of a block's largest number without its sign; of numbers without signs, more if one has a sign.
PAR__TARGET_avx512 PAR__INLINE_LOOP uint32_t par__zero_largest_vectors(int sign, const float *x) {
    const __m512i positive = _mm512_set1_epi32(sign ? 0x7FFFFFFF : -1);
    __m512i largest[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t i = 0; i < PAR__ZERO_STATE_BLOCK; i += 32)
        for (size_t j = 0; j < 2; j++)
            largest[j] = _mm512_max_epu32(
                largest[j], _mm512_and_si512(_mm512_loadu_si512((const void *)(x + i + 16 * j)), positive));
    return _mm512_reduce_max_epu32(_mm512_max_epu32(largest[0], largest[1]));
}
// 64 integers of 32 bits as bytes, those out of range as the nearest, in an order that
// par__zero_encode_vectors undoes. sign: the bytes are signed.
PAR__TARGET_avx512 PAR__INLINE_LOOP __m512i par__zero_pack_vectors(int sign, const __m512i x[4]) {
    const __m512i a = _mm512_packs_epi32(x[0], x[1]), b = _mm512_packs_epi32(x[2], x[3]);
    return sign ? _mm512_packs_epi16(a, b) : _mm512_packus_epi16(a, b);
}
// Of all lines the least one is that of the number's decade. Near a power of ten two of them give the same
// code, so that a decade may begin where the table says: added to the bits of a number, the entry of its
// binary exponent makes the exponent the number of the decade. The first line is another one here, which is
// never below 1. Codes of 256, and of 128 with a sign, become the largest ones when they are packed.
PAR__TARGET_avx512 PAR__INLINE_LOOP void par__zero_encode_vectors(int sign, const float *x, uint8_t *out,
                                                                  size_t blocks) {
    static const uint32_t decades[32] = {
        0xD0000000, 0xCF800000, 0xCF000000, 0xCE800000, 0xCE000000, 0xCD800000, 0xCD000000, 0xCC800000,
        0xCC7F2000, 0xCC000000, 0xCB800000, 0xCB772000, 0xCB000000, 0xCA800000, 0xCA5BA000, 0xCA000000,
        0xC9800000, 0xC9328000, 0xC9000000, 0xC8800000, 0xC8000000, 0xC7FBA000, 0xC7800000, 0xC7000000,
        0xC6DB6000, 0xC6800000, 0xC6000000, 0xC5B22000, 0xC5800000, 0xC5000000, 0xC4800000, 0xC4000000};
    const float half = sign ? 0.5f : 1.0f;
    const __m512 shift =
        _mm512_setr_ps(2e-7f, 8e-7f, 8e-6f, 8e-5f, 8e-4f, 8e-3f, 8e-2f, 8e-1f, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512 slope =
        _mm512_mul_ps(_mm512_set1_ps(half),
                      _mm512_setr_ps(6666666.5f, 2e6f / 0.9f, 4e5f / 0.9f, 8e4f / 0.9f, 1.6e4f / 0.9f,
                                     3.2e3f / 0.9f, 6.4e2f / 0.9f, 1.28e2f / 0.9f, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m512i low = _mm512_loadu_si512((const void *)decades);
    const __m512i high = _mm512_loadu_si512((const void *)(decades + 16));
    const __m512i positive = _mm512_set1_epi32(0x7FFFFFFF), sign_bits = _mm512_set1_epi8((char)-128);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (; blocks; blocks--, x += PAR__ZERO_STATE_BLOCK, out += PAR__ZERO_STATE_BLOCK_BYTES) {
        const uint32_t largest = par__zero_largest_vectors(sign, x);
        const float scale = par__bits_to_f32(largest);
        const __m512 up = _mm512_set1_ps(par__zero_state_inverse(scale));
        if (largest >= 0x7F800000u) { // not finite
            par__zero_state_encode_base(sign, x, out, 1);
            continue;
        }
        memcpy(out, &scale, sizeof scale);
        for (size_t i = 0; i < PAR__ZERO_STATE_BLOCK; i += 64) {
            __m512i number[4], code[4];
            for (size_t j = 0; j < 4; j++) {
                number[j] = _mm512_loadu_si512((const void *)(x + i + 16 * j));
                const __m512i size = sign ? _mm512_and_si512(number[j], positive) : number[j];
                const __m512 y = _mm512_mul_ps(_mm512_castsi512_ps(size), up);
                const __m512i bits = _mm512_castps_si512(_mm512_max_ps(y, _mm512_set1_ps(0x1p-31f)));
                const __m512i entry = _mm512_permutex2var_epi32(low, _mm512_srli_epi32(bits, 23), high);
                const __m512i decade = _mm512_srli_epi32(_mm512_add_epi32(bits, entry), 23);
                const __m512 line = _mm512_mul_ps(_mm512_add_ps(y, _mm512_permutexvar_ps(decade, shift)),
                                                  _mm512_permutexvar_ps(decade, slope));
                const __m512i some = _mm512_castps_si512(y);
                code[j] = sign ? _mm512_cvttps_epi32(line)
                               : _mm512_maskz_cvttps_epi32(_mm512_test_epi32_mask(some, some), line);
            }
            __m512i bytes = par__zero_pack_vectors(sign, code);
            if (sign)
                bytes =
                    _mm512_or_si512(bytes, _mm512_and_si512(par__zero_pack_vectors(1, number), sign_bits));
            _mm512_storeu_si512((void *)(out + 4 + i), _mm512_permutexvar_epi32(order, bytes));
        }
    }
}
PAR__TARGET_avx512 static void par__zero_state_encode_avx512(int sign, const float *x, uint8_t *out,
                                                             size_t blocks) {
    if (sign)
        par__zero_encode_vectors(1, x, out, blocks);
    else
        par__zero_encode_vectors(0, x, out, blocks);
}
static const par__zero_state_loops par__zero_state_loops_avx512 = {
    PAR__ZERO_STATE_LOOPS(PAR__CLONED_avx512, par__zero_state_)};
#endif

// >>zero_kernels --------------------------------------------------------------------------------------------

// Where the code of an element of 8-bit states is.
static size_t par__zero_code_at(size_t i) {
    return i / PAR__ZERO_STATE_BLOCK * PAR__ZERO_STATE_BLOCK_BYTES + 4 + i % PAR__ZERO_STATE_BLOCK;
}
// Converts n elements of a part of a tensor, from its element `first` on, from and to codes of 8 bits.
static void par__zero_decode_part(float *wide, const uint8_t *from, const par_zero_update *a, int sign,
                                  size_t first, size_t n) {
    par__zero_span s = {0, 0, 0};
    memset(wide, 0, n * sizeof *wide);
    while (par__zero_span_after(a, first, n, &s)) {
        const uint8_t *codes = from + par__zero_code_at(s.at);
        const float scale = a->scales[!sign][s.number / PAR__ZERO_STATE_BLOCK];
        for (size_t i = 0; i < s.count; i++) wide[s.at + i] = par__zero_decode_state(codes[i], sign, scale);
    }
}
static void par__zero_encode_part(uint8_t *to, const float *wide, const par_zero_update *a, int sign,
                                  size_t first, size_t n) {
    par__zero_span s = {0, 0, 0};
    while (par__zero_span_after(a, first, n, &s)) {
        uint8_t *codes = to + par__zero_code_at(s.at);
        float *scale = &a->new_scales[!sign][s.number / PAR__ZERO_STATE_BLOCK];
        const float *x = wide + s.at, up = par__zero_state_inverse(*scale);
        uint32_t largest = par__f32_to_bits(*scale); // without signs floats compare like integers
        for (size_t i = 0; i < s.count && a->raise; i++)
            largest = PAR__MAX(largest, par__f32_to_bits(x[i]) & 0x7FFFFFFFu);
        if (a->raise) *scale = par__bits_to_f32(largest);
        for (size_t i = 0; i < s.count && !a->raise; i++)
            codes[i] = (uint8_t)par__zero_encode_state(x[i], sign, up);
    }
}
// Rounds n floats to bf16 at random as par__zero_round_eight does.
static void par__zero_round_by(const par__zero_loops *l, uint16_t *to, const float *x, size_t n,
                               uint64_t seed, uint64_t stream, uint64_t first) {
    enum { MOST = 8 * PAR__PHILOX_BLOCKS };
    union {
        uint32_t words[MOST / 2];
        uint16_t halves[MOST]; // the lower one of a word first
    } random;
    for (size_t at = 0; at < n; at += MOST) {
        const size_t k = PAR__MIN(n - at, (size_t)MOST);
        par__philox_blocks(random.words, seed, stream, (first + at) / 8, (k + 7) / 8);
        l->round(to + at, x + at, k, random.halves);
    }
}
// Rounds n numbers to bf16 at random. first: the number of the first one in the tensor, or in its part.
static void par__zero_round_part(const par_zero_update *a, uint64_t seed, uint16_t *to, const float *x,
                                 size_t n, size_t first) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    par__zero_span s = {0, 0, 0};
    if (!a->shard) par__zero_round_by(l, to, x, n, seed, a->stream, first);
    while (a->shard && par__zero_span_after(a, first, n, &s)) {
        const size_t odd = s.number % 8, head = PAR__MIN(odd ? 8 - odd : 0, s.count);
        float eight[8] = {0};
        uint16_t rounded[8];
        memcpy(eight + odd, x + s.at, head * sizeof *x); // the rest of a Philox block
        par__zero_round_eight(rounded, eight, 8, seed, a->stream, s.number - odd);
        memcpy(to + s.at, rounded + odd, head * sizeof *to);
        if (s.count > head)
            par__zero_round_by(l, to + s.at + head, x + s.at + head, s.count - head, seed, a->stream,
                               s.number + head);
    }
}
// Converts n elements of a moment, from element `at` on, from and to f32. sign 0: the second moment.
static const float *par__zero_read_moment(float *wide, const void *x, const par_zero_update *a, int sign,
                                          size_t at, size_t n) {
    const char *from = (const char *)x + par__zero_moment_bytes(a->state_dtype, at);
    if (a->state_dtype == PAR_U8 && a->shard)
        par__zero_decode_part(wide, (const uint8_t *)from, a, sign, a->first + at, n);
    else if (a->state_dtype == PAR_U8)
        PAR__PICK(par__zero_state_loops)
            ->decode(sign, wide, (const uint8_t *)from, n / PAR__ZERO_STATE_BLOCK);
    else if (a->state_dtype == PAR_BF16)
        par_cast(wide, PAR_F32, from, PAR_BF16, n);
    else
        return (const float *)(const void *)from;
    return wide;
}
static float *par__zero_widen_moment(float *wide, void *x, const par_zero_update *a, int sign, size_t at,
                                     size_t n) { // to be written: moments in f32 where they are
    const int is_wide = par__zero_read_moment(wide, x, a, sign, at, n) == wide;
    return is_wide ? wide : (float *)x + at;
}
static void par__zero_narrow_moment(void *x, const float *wide, const par_zero_update *a, int sign, size_t at,
                                    size_t n) {
    char *to = (char *)x + par__zero_moment_bytes(a->state_dtype, at);
    if (a->state_dtype == PAR_U8 && a->shard)
        par__zero_encode_part((uint8_t *)to, wide, a, sign, a->first + at, n);
    else if (a->state_dtype == PAR_U8)
        PAR__PICK(par__zero_state_loops)->encode(sign, wide, (uint8_t *)to, n / PAR__ZERO_STATE_BLOCK);
    else if (a->state_dtype == PAR_BF16 && a->state_seed)
        par__zero_round_part(a, a->state_seed + !sign, (uint16_t *)(void *)to, wide, n, a->first + at);
    else if (a->state_dtype == PAR_BF16)
        par_cast(to, PAR_BF16, wide, PAR_F32, n);
}
static int par__zero_reads(par_zero_optimizer optimizer, int write) { // moments that an update uses
    static const int counts[][2] = {
#define PAR__X(constant, name, states, reads, writes) {reads, writes},
        PAR_ZERO_OPTIMIZERS(PAR__X)
#undef PAR__X
    };
    return counts[optimizer][write];
}
static par_result par__zero_cpu_update(const par_zero_kernels *kernels, const par_zero_update *given,
                                       size_t n, float *w, void *stored, par_dtype stored_type, const void *g,
                                       par_dtype g_type, void *m, void *v, float *ema) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    par_zero_update resolved = *given;
    const par_zero_update *a = &resolved;
    (void)kernels;
    if (!par__zero_apply_control(&resolved)) return PAR_OK;
    const int reads = par__zero_reads(a->optimizer, 0), writes = par__zero_reads(a->optimizer, 1);
    float wide[PAR__ZERO_CHUNK], ms[PAR__ZERO_CHUNK], vs[PAR__ZERO_CHUNK], ws[PAR__ZERO_CHUNK];
    for (size_t at = 0; at < n; at += PAR__ZERO_CHUNK) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_CHUNK, n - at);
        float *m_at = m && reads > 0 ? par__zero_widen_moment(ms, m, a, 1, at, k) : NULL;
        float *v_at = v && reads > 1 ? par__zero_widen_moment(vs, v, a, 0, at, k) : NULL;
        float *w_at = a->raise ? (float *)memcpy(ws, w + at, k * sizeof *w) : w + at;
        l->step(a, w_at, par__zero_widen(wide, g, g_type, at, k), m_at, v_at, k);
        if (m && writes > 0) par__zero_narrow_moment(m, m_at, a, 1, at, k);
        if (v && writes > 1) par__zero_narrow_moment(v, v_at, a, 0, at, k);
        if (a->raise) continue;
        if (ema) l->ema(ema + at, w + at, a->ema, k);
        if (!stored) continue;
        if (a->seed && stored_type == PAR_BF16)
            par__zero_round_part(a, a->seed, (uint16_t *)stored + at, w + at, k, a->first + at);
        else
            par_cast((uint16_t *)stored + at, stored_type, w + at, PAR_F32, k);
    }
    return PAR_OK;
}
static par_result par__zero_cpu_lamb_norms(const par_zero_kernels *kernels, const par_zero_update *given,
                                           size_t n, const float *w, const void *g, par_dtype g_type,
                                           const void *m, const void *v, double *to, float *steps) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    float wide[PAR__ZERO_CHUNK], u[PAR__ZERO_CHUNK], ms[PAR__ZERO_CHUNK], vs[PAR__ZERO_CHUNK];
    double sums[2] = {0, 0};
    par_zero_update resolved = *given;
    const par_zero_update *a = &resolved;
    (void)kernels;
    if (!par__zero_apply_control(&resolved)) return PAR_OK;
    for (size_t at = 0; at < n; at += PAR__ZERO_CHUNK) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_CHUNK, n - at);
        float *u_at = steps ? steps + at : u;
        const float *m_at = par__zero_read_moment(ms, m, a, 1, at, k);
        const float *v_at = par__zero_read_moment(vs, v, a, 0, at, k);
        l->lamb_steps(a, w + at, par__zero_widen(wide, g, g_type, at, k), m_at, v_at, u_at, k);
        sums[0] += l->squares(w + at, k);
        sums[1] += l->squares(u_at, k);
    }
    to[0] += sums[0];
    to[1] += sums[1];
    return PAR_OK;
}
static par_result par__zero_cpu_lamb_trust_ratios(const par_zero_kernels *kernels, size_t tensors,
                                                  size_t pieces, const double *sums, float *trust) {
    (void)kernels;
    for (size_t t = 0; t < tensors; t++) trust[t] = par__zero_trust_ratio(sums + 2 * t * pieces, pieces);
    return PAR_OK;
}
static par_result par__zero_cpu_scale(const par_zero_kernels *kernels, size_t n, float *y, const float *x,
                                      float factor, const double *squares) {
    const float f = par__zero_scale_factor(factor, squares);
    (void)kernels;
    for (size_t i = 0; i < n; i++) y[i] = f * x[i];
    return PAR_OK;
}
static par_result par__zero_cpu_gemm(const par_zero_kernels *k, par_dtype type, int canonical, int ta, int tb,
                                     size_t m, size_t n, size_t depth, float alpha, const void *a, size_t lda,
                                     const void *b, size_t ldb, float beta, void *c, size_t ldc) {
    const size_t of_a = (ta ? depth : m) * lda, of_b = (tb ? n : depth) * ldb, of_c = m * ldc;
    float *wide = NULL, *x = (float *)c;
    const float *xa = (const float *)a, *xb = (const float *)b;
    (void)k;
    if (type != PAR_F32) {
        wide = (float *)PAR_MALLOC((of_a + of_b + of_c) * sizeof *wide);
        if (!wide) return PAR_ERR_MEMORY;
        par_cast(wide, PAR_F32, a, type, of_a);
        par_cast(wide + of_a, PAR_F32, b, type, of_b);
        par_cast(wide + of_a + of_b, PAR_F32, c, type, of_c);
        xa = wide;
        xb = wide + of_a;
        x = wide + of_a + of_b;
    }
    const par__gemm_fn multiply = canonical ? par_gemm_canonical : par_gemm;
    const par_result r = multiply(ta, tb, m, n, depth, alpha, xa, lda, xb, ldb, beta, x, ldc);
    if (wide && !r) par_cast(c, type, x, PAR_F32, of_c);
    if (wide) PAR_FREE(wide);
    return r;
}
static par_result par__zero_cpu_momentum(const par_zero_kernels *kernels, const par_zero_update *given,
                                         size_t n, const void *g, par_dtype g_type, void *m, float *out) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    float wide[PAR__ZERO_CHUNK], ms[PAR__ZERO_CHUNK];
    par_zero_update resolved = *given;
    const par_zero_update *a = &resolved;
    (void)kernels;
    if (!par__zero_apply_control(&resolved)) return PAR_OK;
    for (size_t at = 0; at < n; at += PAR__ZERO_CHUNK) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_CHUNK, n - at);
        float *m_at = par__zero_widen_moment(ms, m, a, 1, at, k);
        l->momentum(a, out + at, par__zero_widen(wide, g, g_type, at, k), m_at, k);
        par__zero_narrow_moment(m, m_at, a, 1, at, k);
    }
    return PAR_OK;
}
static par_result par__zero_cpu_square_sum(const par_zero_kernels *kernels, const void *x, par_dtype type,
                                           size_t n, double weight, double *sum) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    float wide[PAR__ZERO_CHUNK];
    double squares = weight == 1 ? *sum : 0;
    (void)kernels;
    for (size_t at = 0; at < n; at += PAR__ZERO_CHUNK) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_CHUNK, n - at);
        squares += l->squares(par__zero_widen(wide, x, type, at, k), k);
    }
    *sum = weight == 1 ? squares : *sum + squares * weight;
    return PAR_OK;
}
static par_result par__zero_cpu_total(const par_zero_kernels *kernels, const double *sums, size_t n,
                                      double *total) {
    double sum = 0;
    (void)kernels;
    for (size_t i = 0; i < n; i++) sum += sums[i];
    return *total = sum, PAR_OK;
}
static par_result par__zero_cpu_decide_step(const par_zero_kernels *kernels, const par_zero_rules *rules,
                                            par_zero_control *control) {
    (void)kernels;
    return par__zero_decide_step(rules, control), PAR_OK;
}
static par_result par__zero_cpu_quantize(const par_zero_kernels *kernels, int code, size_t n, const void *x,
                                         par_dtype type, void *quantized) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    (void)kernels;
    float wide[PAR__ZERO_CHUNK];
    for (size_t at = 0; at < n; at += PAR__ZERO_CHUNK) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_CHUNK, n - at);
        l->quantize(code, par__zero_widen(wide, x, type, at, k),
                    (uint8_t *)quantized + par__zero_quantized_bytes(code, at), k / 32);
    }
    return PAR_OK;
}
static par_result par__zero_cpu_dequantize(const par_zero_kernels *kernels, int code, size_t n,
                                           const void *quantized, void *x, par_dtype type) {
    const par__zero_loops *l = PAR__PICK(par__zero_loops);
    (void)kernels;
    float wide[PAR__ZERO_CHUNK];
    for (size_t at = 0; at < n; at += PAR__ZERO_CHUNK) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_CHUNK, n - at);
        float *to = type == PAR_F32 ? (float *)x + at : wide;
        l->dequantize(code, to, (const uint8_t *)quantized + par__zero_quantized_bytes(code, at), k / 32);
        if (type != PAR_F32) par_cast((uint16_t *)x + at, type, wide, PAR_F32, k);
    }
    return PAR_OK;
}
static par_result par__zero_cpu_sum_quantized(const par_zero_kernels *kernels, int code, int ranks, int pairs,
                                              size_t n, const void *quantized, void *sum, par_dtype type) {
    float level[PAR__ZERO_MAX_TREE_LEVELS][PAR__ZERO_SUM_CHUNK];
    for (size_t at = 0; at < n; at += PAR__ZERO_SUM_CHUNK) {
        const size_t k = PAR__MIN((size_t)PAR__ZERO_SUM_CHUNK, n - at);
        int to = 0; // level of the tree that holds the sum
        for (int r = 0; r < ranks; r++) {
            float x[PAR__ZERO_SUM_CHUNK];
            const char *from = (const char *)quantized + par__zero_quantized_bytes(code, (size_t)r * n + at);
            PAR__ZERO_TRY(par__zero_cpu_dequantize(kernels, code, k, from, x, PAR_F32));
            for (to = 0; pairs && r >> to & 1; to++)
                for (size_t i = 0; i < k; i++) x[i] = level[to][i] + x[i];
            for (size_t i = 0; i < k && r && !pairs; i++) x[i] = level[0][i] + x[i];
            memcpy(level[to], x, k * sizeof *x);
        }
        par_cast((char *)sum + at * par_dtype_bytes(type), type, level[to], PAR_F32, k);
    }
    return PAR_OK;
}
static const par_zero_kernels par__zero_cpu_kernels = {"cpu",
                                                       NULL,
                                                       1,
                                                       par__zero_cpu_update,
                                                       par__zero_cpu_lamb_norms,
                                                       par__zero_cpu_lamb_trust_ratios,
                                                       par__zero_cpu_momentum,
                                                       par__zero_cpu_scale,
                                                       par__zero_cpu_gemm,
                                                       par__zero_cpu_square_sum,
                                                       par__zero_cpu_total,
                                                       par__zero_cpu_decide_step,
                                                       par__zero_cpu_quantize,
                                                       par__zero_cpu_dequantize,
                                                       par__zero_cpu_sum_quantized,
                                                       NULL};
const par_zero_kernels *par_zero_cpu(void) { return &par__zero_cpu_kernels; }

PAR__EXACT_END
#ifdef __cplusplus
}
#endif
PAR__API_END
#pragma pop_macro("PAR_SITE")
#pragma pop_macro("PAR__ZERO_WITH_SITE")
#pragma pop_macro("PAR__ZERO_SITED")
#undef par_fail
#endif // PAR_ZERO_IMPLEMENTATION

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

// par_plan.h - which strategy when: predicts step time and memory of every layout, and finds the best one.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_PLAN_IMPLEMENTATION)
#define PAR_PLAN_IMPLEMENTATION
#endif
// clang-format on

#include "par_pipe.h"
#include "par_tp.h"
#include "par_zero.h"
#if PAR_VERSION != 900
#error "par_plan.h is version 0.9.0, and par.h is of another version: take all headers from one version"
#endif

#ifndef PAR_PLAN_H
#define PAR_PLAN_H
/*
WHAT
    A model, a machine and a job go in; layouts come out, in order of their predicted seconds per step: how
    many ranks each of pp, dp, cp and tp has, ZeRO stage, microbatch, pipeline schedule, recomputation,
    offloading. Each prediction says where its seconds and its bytes go. The search is exact: branch and bound
    over the whole space, with lower bounds that hold. It needs no ranks, no GPU and no measurement.

USE
    #define PAR_IMPLEMENTATION        in one file
    #include "par_plan.h"             cc -O2 prog.c -pthread -lm
    As a program: examples/plan.c.

STEP BY STEP
    1. Fill a par_plan_problem. par_plan_model_get and par_plan_machine_get have tables by name;
       par_plan_model_read reads a config.json, par_plan_machine_read a text file. Set nodes, batch, sequence.
    2. par_plan_search finds the best configurations; par_plan_evaluate predicts one of yours.
    3. par_plan_explain gives the reason for each choice, with the best that another choice would reach.

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par_plan.h"

    int main(void) { // GPT-3 on 64 nodes of eight A100
        par_plan_problem problem = {0};
        par_plan_choice best;
        par_plan_report report;
        if (par_plan_model_get("gpt3-175b", &problem.model)) return 1;
        if (par_plan_machine_get("a100-80", &problem.machine)) return 1;
        problem.machine.nodes = 64;
        problem.job.batch = 2048;
        problem.job.sequence = 2048;
        if (par_plan_search(&problem, NULL, 0, 0, &best, 1, &report)) return puts(report.why), 1;
        printf("tp %d inside a node, pp %d across nodes\n", best.config.tp, best.config.pp);
        // with PAR_RANKS=1 it prints: tp 4 inside a node, pp 8 across nodes
        return 0;
    }

TABLE OF CONTENTS
    The API comes first: models, machines, jobs, configurations, predictions, search, explanations.
    Implementation, bottom-up:
    >>plan_tables    models and machines by name
    >>plan_text      readers of config.json, of machines and of configurations
    >>plan_links     collectives on the levels of a machine
    >>plan_kernels   seconds of products, attention and elementwise kernels
    >>plan_layer     what a layer, the embedding and the head cost in one microbatch
    >>plan_stages    the cut of layers over stages; schedules
    >>plan_memory    bytes of the rank that has most
    >>plan_step      the seconds of a step, by cause
    >>plan_fit       rates of a machine from its measurements
    >>plan_search    the space, branch and bound
    >>plan_simulate  schedules by simulation
    >>plan_explain   reasons

CONFIG
    PAR_IMPLEMENTATION (or PAR_PLAN_IMPLEMENTATION)   emit the code, in one file
    PAR_MALLOC, PAR_ASSERT ... as in par.h

MODEL
    Ranks are placed as par_mesh_open places "pp dp cp tp": tp innermost, so that neighbors share a node. A
    group with k ranks on a node has the network links of k GPUs; all groups of an axis work at once.
    Product     of matrices (GEMM): max(arithmetic, memory). The output is cut into tiles, as many at a time
                as there are SMs; the last wave may be partly empty. A tile reaches half of the rate at an
                inner size of tile_half (n_1/2, Hockney 1994); small tiles read more operands per operation.
                The fastest of six tile shapes counts. Without SMs (a processor) a product takes
                2 (rows + rows_half) (columns + columns_half) (inner + inner_half) / product_rate.
    Attention   fused (FlashAttention; causal: half of the scores), or as products and kernels that write the
                scores, as before 2022 (job.unfused).
    Others      bytes / memory_rate + kernel_seconds: norms, GELU or SwiGLU, dropout, residuals, loss, update.
    Messages    alpha-beta (Hockney 1994): latencies of the hops + bytes / bandwidth of the slowest level, and
                call_seconds for each collective: par_plan_collective_seconds. A ring over nodes, as NCCL's
                gathers, has a hop for every rank. Each layer is gathered and reduced by itself. Elements are
                those that par_tp.h and par_zero.h send. A message that overlaps costs overlap_cost of its
                time: its kernels take SMs.
    Pipeline    m x slowest stage + the other stages' share by the schedule's formula (see par_pipe.h).
                Layers are cut so that embedding and head count. Messages between stages wait, unless they
                overlap.
    Update      update_bytes per parameter at memory_rate, or of the host where states are offloaded.
    Activations as par_tp.h and Korthikanti et al. 2022 count them, times the microbatches in flight.
    Memory      is that of the rank with most. A configuration fits if it is at most the machine's memory less
                reserved_bytes.
    Machines    of the table: peaks, sizes and links are the vendors'. Programs reach 0.79 of the peak in
                products on A100, 0.61 on H100 (its power limit); 0.6 of the peak of 8 and 4 bits; 0.76 of
                the memory's rate; 0.8 of NVLink in a direction, 0.9 of a network link. A100 was fitted to 17
                published step times, H100 to ten; newer GPUs are scaled. update_bytes 58 is Megatron-LM's
                separate kernels (unscale, norm, clip, Adam, cast, zero); par_zero.h's update moves fewer.
    Bubbles     of 1F1B, GPipe, interleaved 1F1B, breadth first, ZB-H1, ZB-H2, interleaved ZB and ZB-V are
                exact; of DualPipe and DualPipeV at most half a forward too large; of V-Half, V-Min and auto
                estimates. par_plan_simulate replaces them; build/plan does so for the best hundred choices.
    All functions are pure and thread-safe. A search (also that of par_plan_explain) and par_plan_simulate
    allocate, and free it before they return.

DOES NOT
    No mixture of experts and no state-space layers: such a config.json is refused. No measurement: for a
    machine that the table lacks, par_plan_fit takes yours.

LIMITS
    `build/plan --validate` prints how far predictions are off the rows of tests/plan_published.csv; what
    networks decide is in tests/plan_network.csv. The latencies of a ring's hops and the time of its bytes are
    added: up to a third too long where both count. The 530 B runs of Smith et al. 2022 come out 14 to 17% too
    fast, by about 6 s a step; why is not known. No stragglers, no networks that others share. At most 65536
    ranks; microbatches are all divisors of a replica's batch.
*/

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// ---- problems ---------------------------------------------------------------------------------------------

// X(member, what it is). All are int.
#define PAR_PLAN_MODEL_FIELDS(X)                                                                             \
    X(layers, "transformer blocks")                                                                          \
    X(features, "width of the residual stream (hidden_size of a config.json)")                               \
    X(heads, "attention heads")                                                                              \
    X(kv_heads, "key-value heads; 0: heads")                                                                 \
    X(head_dim, "features of a head; 0: features / heads")                                                   \
    X(hidden, "width between the products of the MLP (intermediate_size); 0: 4 x features")                  \
    X(vocab, "tokens of the vocabulary")                                                                     \
    X(positions, "learned positions; 0: RoPE")                                                               \
    X(gated, "1: SwiGLU; 0: GELU")                                                                           \
    X(tied, "1: embedding and head are one weight")                                                          \
    X(has_bias, "1: products have biases")
typedef struct par_plan_model {
    char name[64];
#define PAR__X(member, what) int member;
    PAR_PLAN_MODEL_FIELDS(PAR__X)
#undef PAR__X
} par_plan_model;

// X(member, what it is). All are double, in operations, bytes and seconds.
#define PAR_PLAN_MACHINE_FIELDS(X)                                                                           \
    X(nodes, "nodes; 0: 1")                                                                                  \
    X(gpus_per_node, "GPUs (or ranks) that share a node's links")                                            \
    X(sm_count, "streaming multiprocessors of a GPU; 0: a processor, whose products have no tiles")          \
    X(peak, "FLOP/s of 16-bit matrix products, as the vendor has it: for MFU alone")                         \
    X(product_rate, "FLOP/s that large 16-bit products reach")                                               \
    X(fp8_rate, "FLOP/s that large 8-bit products reach; 0: there are none")                                 \
    X(fp8_peak, "FLOP/s of 8-bit products, as the vendor has it: for the share of it alone")                 \
    X(fp4_rate, "FLOP/s that large 4-bit products reach; 0: there are none")                                 \
    X(recipes, "sum of 2^r of the recipes r of par_tp.h that its kernels multiply by")                       \
    X(attention_rate, "FLOP/s that fused attention reaches, forward")                                        \
    X(tile_half, "inner size with which a tile of a product reaches half of the rate")                       \
    X(memory_bytes, "memory of a GPU")                                                                       \
    X(reserved_bytes, "of it: contexts, NCCL, fragmentation")                                                \
    X(memory_rate, "bytes/s that elementwise kernels reach")                                                 \
    X(random_rate, "random numbers/s that dropout draws; 0: they cost nothing")                              \
    X(kernel_seconds, "launch overhead: from the end of a kernel to the start of the next")                  \
    X(sync_seconds, "that a GPU idles when its host waits for a message before it goes on")                  \
    X(node_latency, "seconds of a message within a node")                                                    \
    X(node_bandwidth, "bytes/s of a GPU to others of its node, reached, in each direction")                  \
    X(net_latency, "seconds of a message between nodes")                                                     \
    X(net_bandwidth, "bytes/s of a network link, reached, in each direction")                                \
    X(host_bandwidth, "bytes/s of a GPU to its host's memory, in each direction")                            \
    X(host_bytes, "a GPU's share of the host's memory; 0: no limit")                                         \
    X(host_rate, "bytes/s of a GPU's share of the host's memory")                                            \
    X(disk_bytes, "a GPU's share of the node's disks; 0: there are none")                                    \
    X(disk_rate, "bytes/s of a GPU's share of the disks, read and written together")                         \
    X(overlap_cost, "share of a GPU that a message in flight takes from computation, at most 1")             \
    X(rows_half, "without SMs: rows with which a product reaches half of the rate")                          \
    X(columns_half, "without SMs: columns likewise")                                                         \
    X(inner_half, "without SMs: inner size likewise")                                                        \
    X(loss_rate, "logits/s of the loss, forward and backward; 0: as memory_rate says")                       \
    X(update_rate, "bytes/s of the optimizer's kernel; 0: memory_rate")                                      \
    X(cores, "processors of a node that its ranks oversubscribe; 0: each rank has its own")                  \
    X(block_seconds, "without SMs: of attention's block of 128 queries and keys, besides its scores")        \
    X(score_seconds, "without SMs: of each score; both 0: as long as attention's products")                  \
    X(call_seconds, "of each collective, besides latency: its start, and waiting for the last rank")         \
    X(tp_bandwidth,                                                                                          \
      "node_bandwidth of tensor parallel layers, whose ranks wait for each other; 0: the same")              \
    X(cp_bandwidth, "of context parallel layers that exchange heads (Ulysses), likewise")                    \
    X(ring_bandwidth, "of context parallel layers in a ring, likewise")                                      \
    X(wake_seconds, "from the arrival of what a waiting stage needs until it computes")                      \
    X(split_cost, "share by which a layer takes longer where a schedule has B and W apart")                  \
    X(net_links, "network links of a node, which its GPUs share; 0: one for each GPU")
typedef struct par_plan_machine {
    char name[64];
#define PAR__X(member, what) double member;
    PAR_PLAN_MACHINE_FIELDS(PAR__X)
#undef PAR__X
} par_plan_machine;

// X(member, what it is). All are double.
#define PAR_PLAN_JOB_FIELDS(X)                                                                               \
    X(batch, "sequences of a step")                                                                          \
    X(sequence, "tokens of a sequence")                                                                      \
    X(element_bytes, "of parameters and activations; 0: 2")                                                  \
    X(gradient_bytes, "of a gradient, in memory and in messages; 0: 4")                                      \
    X(state_bytes, "of master weight and moments of a parameter; 0: 12")                                     \
    X(update_bytes, "that an update reads and writes per parameter; 0: 58")                                  \
    X(memory_bytes, "limit of a GPU's memory; 0: the machine's")                                             \
    X(fp8, "1: layers may use recipes of 8 bits; 2: also of 4 bits")                                         \
    X(unfused, "1: attention writes its scores, the loss has many kernels; as before 2022")                  \
    X(separate_gradients, "1: a kernel of its own adds gradients of microbatches; as before 2022")           \
    X(dropout, "1: dropout, with masks of a byte")                                                           \
    X(equal_layers, "1: every stage has the same number of layers")                                          \
    X(whole_shards, "1: ZeRO shards over all of dp x cp: no smaller groups")                                 \
    X(whole_messages, "1: each tp rank sends a stage's whole output; as before 2021")                        \
    X(f32_sums, "1: sums over tp travel in f32, also those of 2 bytes (par_tp_desc.sum_dtype 0)")            \
    X(gathers_again, "1: ZeRO-3 gathers a layer once more where it is recomputed; as DeepSpeed of 2021")     \
    X(sums_copies_early, "1: hybrid sharding sums over copies beside backward; as InternLM, FSDP")
typedef struct par_plan_job {
#define PAR__X(member, what) double member;
    PAR_PLAN_JOB_FIELDS(PAR__X)
#undef PAR__X
} par_plan_job;

typedef struct par_plan_problem {
    par_plan_model model;
    par_plan_machine machine;
    par_plan_job job;
} par_plan_problem;

const char *par_plan_model_name(int i);                                 // of the table; NULL after the last
par_suggestion par_plan_model_suggest(const char *name);                // as par_suggest
par_result par_plan_model_get(const char *name, par_plan_model *model); // Error: ARGUMENT (no such name)
const char *par_plan_machine_name(int i);                               // of the table; NULL after the last
par_suggestion par_plan_machine_suggest(const char *name);              // as par_suggest
par_result par_plan_machine_get(const char *name,
                                par_plan_machine *row); // Error: ARGUMENT (no such name); nodes is 1
// Reads the model's sizes from a Hugging Face config.json of a dense decoder (GPT-2, GPT-NeoX, Llama,
// Mistral, Qwen, Gemma, Phi, Falcon, and those with the same names). `ignored` receives the names of members
// that it does not know, and the model's type if it does not know that (it is taken for Llama's), separated
// by spaces, as many as fit. Without hidden_act the MLP is gated if the model's type has a gate by default.
// Errors, with a text in why: FILE (not JSON; a size is missing or out of range; a mixture of experts, or
// what else is no dense decoder).
par_result par_plan_model_read(const char *json, size_t bytes, par_plan_model *model, char *ignored,
                               size_t ignored_capacity, char *why, size_t capacity);
// Reads a machine from lines "member = number", # starting a comment; "gpu = h100" first takes a row of the
// table. Errors, with a text in why: FILE (it names the line).
par_result par_plan_machine_read(const char *text, size_t bytes, par_plan_machine *machine, char *why,
                                 size_t capacity);
// Writes such lines, of the members that are not 0, as much as fits: read again, they are the same machine.
void par_plan_machine_format(const par_plan_machine *machine, char *text, size_t capacity);
double par_plan_parameters(const par_plan_model *model); // of the whole model
// Operations of a step as Megatron counts them for MFU: without recomputation, attention not halved.
double par_plan_flops(const par_plan_problem *problem);

// ---- configurations ---------------------------------------------------------------------------------------

// config.schedule is a constant of PAR_PIPE_SCHEDULES (0: 1F1B), of a row that has rounds >= 0; "auto" fills
// the memory that is left.
typedef enum par_plan_recompute { // SELECTIVE: scores, or (with fused attention) norms and GELU or SwiGLU
    PAR_PLAN_RECOMPUTE_NONE,
    PAR_PLAN_RECOMPUTE_SELECTIVE,
    PAR_PLAN_RECOMPUTE_FULL
} par_plan_recompute;
// Bits of offload: to the host's memory, and (DISK, instead of STATES) optimizer states to disks.
enum { PAR_PLAN_OFFLOAD_STATES = 1, PAR_PLAN_OFFLOAD_ACTIVATIONS = 2, PAR_PLAN_OFFLOAD_DISK = 4 };
enum { PAR_PLAN_OVERLAP_TP = 1, PAR_PLAN_OVERLAP_DP = 2, PAR_PLAN_OVERLAP_PP = 4 }; // bits of overlap

// X(member, names of its values (NULL: a number), what it is). Numbers of ranks, sequences, chunks: 0 is 1.
#define PAR_PLAN_AXES(X)                                                                                     \
    X(tp, NULL, "tensor parallel ranks")                                                                     \
    X(pp, NULL, "pipeline stages' ranks")                                                                    \
    X(cp, NULL, "context parallel ranks")                                                                    \
    X(dp, NULL, "data parallel ranks")                                                                       \
    X(microbatch, NULL, "sequences of a microbatch")                                                         \
    X(schedule, par_plan_schedule_names, "of the pipeline")                                                  \
    X(chunks, NULL, "stages of a rank (v)")                                                                  \
    X(zero, NULL, "ZeRO stage")                                                                              \
    X(shard, NULL, "ranks that share states (hybrid sharding); 1 with stage 0")                              \
    X(sp, NULL, "1: sequence parallel")                                                                      \
    X(ulysses, NULL, "1: context parallel by all-to-all; 0: by a ring")                                      \
    X(recompute, par_plan_recompute_names, "activations that backward computes again")                       \
    X(offload, par_plan_offload_names, "what is in the host's memory, or on disks")                          \
    X(overlap, par_plan_overlap_names, "messages that computation hides")                                    \
    X(fp8, par_plan_recipe_names, "recipe of the layers' products")
typedef struct par_plan_config {
#define PAR__X(member, names, what) int member;
    PAR_PLAN_AXES(PAR__X)
#undef PAR__X
} par_plan_config;
enum { // bits of the members, for par_plan_search
#define PAR__X(member, names, what) PAR_PLAN_AXIS_##member,
    PAR_PLAN_AXES(PAR__X)
#undef PAR__X
        PAR_PLAN_AXIS_COUNT
};
const char *par_plan_axis_name(int axis); // "tp", ...; NULL after the last
int par_plan_axis_get(const par_plan_config *config, int axis);
// Writes "pp=8 dp=8 tp=8 ..." into text: every member, or, with brief = 1, those that are not 0, nor numbers
// of ranks, sequences or chunks that are 1.
void par_plan_format(const par_plan_config *config, int brief, char *text, size_t capacity);
// Reads such a text into members of *config; mask gets the bits (1 << axis) of those that it names. Errors,
// with a text in why: ARGUMENT.
par_result par_plan_parse(const char *text, par_plan_config *config, unsigned *mask, char *why,
                          size_t capacity);
// Is this a configuration of the problem? Errors, with a text in why: ARGUMENT (which member of the problem
// or the configuration is wrong; what does not divide what, and the nearest value that does).
par_result par_plan_check(const par_plan_problem *p, const par_plan_config *c, char *why, size_t capacity);

// ---- predictions ------------------------------------------------------------------------------------------

// X(member, what it is). All are double.
#define PAR_PLAN_TIMES(X)                                                                                    \
    X(compute, "kernels of forward and backward")                                                            \
    X(recompute, "forwards that backward runs again")                                                        \
    X(tp, "messages of tensor and sequence parallel layers")                                                 \
    X(cp, "messages of context parallel attention")                                                          \
    X(pp, "messages between stages")                                                                         \
    X(bubble, "waiting for other stages")                                                                    \
    X(dp, "gradients and parameters")                                                                        \
    X(update, "the optimizer")                                                                               \
    X(offload, "messages to and from the host")
#define PAR_PLAN_BYTES(X)                                                                                    \
    X(parameters, "on the rank that needs most memory")                                                      \
    X(gradients, "on that rank")                                                                             \
    X(states, "on that rank: master weights and moments")                                                    \
    X(activations, "on that rank, of the microbatches in flight")                                            \
    X(buffers, "on that rank: of messages, logits, gathered units, recomputation")                           \
    X(host, "in the host's memory, for one rank")                                                            \
    X(disk, "on disks, for one rank")
typedef struct par_plan_prediction {
    double seconds; // of a step: the sum of times
    struct {        // that no computation hides, on the slowest stage
#define PAR__X(member, what) double member;
        PAR_PLAN_TIMES(PAR__X)
#undef PAR__X
    } times;
    double bytes; // the sum of the first five of memory
    struct {
#define PAR__X(member, what) double member;
        PAR_PLAN_BYTES(PAR__X)
#undef PAR__X
    } memory;
    double mean_state_bytes;       // parameters, gradients and states, averaged over ranks
    double layer_activation_bytes; // activations of the first stage's layers alone, as papers count them
    double tokens_per_second, flops_per_gpu, mfu;
    double forward, backward, weight; // of a microbatch on a stage of mean size: F, B and W of par_pipe.h
    int fits;                         // 1: memory suffices
    int microbatches;                 // of a rank: m
    double in_flight;                 // microbatches of which the first rank has activations, of its layers
} par_plan_prediction;
typedef struct par_plan_choice {
    par_plan_config config;
    par_plan_prediction prediction;
} par_plan_choice;

// Predicts a configuration that par_plan_check accepts. Below a microsecond; no allocation.
void par_plan_evaluate(const par_plan_problem *problem, const par_plan_config *config,
                       par_plan_prediction *prediction);
const char *par_plan_bound_by(const par_plan_prediction *prediction); // the largest of times: "bubble", ...
// Bytes that activations may have beside what else a prediction needs: of par_pipe_desc.max_activation_bytes.
double par_plan_activation_room(const par_plan_problem *problem, const par_plan_prediction *prediction);

// ---- measured machines ------------------------------------------------------------------------------------

typedef struct par_plan_product { // rows x inner by inner x columns, in the model's element type
    double rows, columns, inner, seconds;
} par_plan_product;
typedef struct par_plan_shorter {
    double sequence, layer_seconds;
} par_plan_shorter;
typedef struct par_plan_message { // an all_reduce of so many bytes, and one of a few
    double ranks, bytes, seconds, small_seconds;
} par_plan_message;
typedef struct par_plan_measured { // seconds of one rank's processor, while all ranks work
    // A large product; with fewer rows; with fewer columns; with a smaller inner; and a tiny one.
    par_plan_product products[5];
    double microbatch;    // sequences of the following
    double layer_seconds; // forward and backward of one layer on one rank, nothing recomputed
    // The same with as many tokens in shorter sequences: only attention has less to do. 0: not measured.
    par_plan_shorter shorter[2];
    double split_layer_seconds;    // the same as layer_seconds, with B and then W; 0: not measured
    double embedding_head_seconds; // of embedding, last norm, head and loss, forward and backward
    double update_seconds;         // of the optimizer, for each parameter
    double oversubscription;       // ranks of a node for each processor: at least 1; 0: 1
    // How many times longer these took by the clock: ranks, other programs and a hypervisor's other guests
    // take turns on a processor. 0: as oversubscription says.
    double slowdown;
    // The following are by the clock. Forward and backward of a layer of shared_microbatch sequences that the
    // `node.ranks` ranks of a node share, tensor parallel; 0: not measured.
    double shared_microbatch, shared_layer_seconds;
    // The same of a layer whose sequences they share, context parallel: by all-to-all, and in a ring.
    double ulysses_layer_seconds, ring_layer_seconds;
    // Embedding and head of `microbatch` sequences, then a message of their tokens to the next rank of the
    // node, which waits for it: from their begin on one rank to that on the next. As many at once as there
    // are processors for, but fewer than ranks. 0: not measured.
    double relay_seconds;
    // An all_reduce of so many bytes, and one of a few: over ranks of a node, and over those of all nodes (0
    // ranks: not measured).
    par_plan_message node, net;
} par_plan_measured;
// Sets the rates of problem->machine so that the planner's formulas give what was measured: product_rate
// (with sm_count 0 also the sizes of half the rate), memory_rate, loss_rate, update_rate, cores, and the
// links. The model, the job's sequence and element sizes, and the machine's sm_count and gpus_per_node must
// be set. Pure.
void par_plan_fit(par_plan_problem *problem, const par_plan_measured *measured);

// ---- collectives ------------------------------------------------------------------------------------------

// X(constant, name, how often the bytes pass, hops within a node, hops between nodes, where it is from), of n
// ranks, k on each of `nodes` nodes; ring: those between nodes that a block passes. A byte passes (n-1)/n
// times, and waits for the latency of each hop.
#define PAR_PLAN_COLLECTIVES(X)                                                                              \
    X(RING_GATHER, "ring gather", 1, n - 1 - ring, ring, "Thakur et al. 2005; NCCL")                         \
    X(RING_SUM, "ring sum", 2, n - 1 - ring, ring, "Patarasuk and Yuan 2009; NCCL")                          \
    X(TREE_SUM, "tree sum", 2, k - 1, par__plan_levels(nodes), "two trees, Sanders et al. 2009; NCCL 2.4")   \
    X(LEVELS_GATHER, "two-level gather", 1, k - 1, nodes - 1, "par.h, whose levels work at once")            \
    X(LEVELS_SUM, "two-level sum", 2, k - 1, nodes - 1, "par.h, likewise")
typedef enum par_plan_collective {
#define PAR__X(constant, name, times, inside, between, source) PAR_PLAN_##constant,
    PAR_PLAN_COLLECTIVES(PAR__X)
#undef PAR__X
        PAR_PLAN_COLLECTIVE_COUNT
} par_plan_collective;
// Seconds in which `ranks`, so many on each node, gather (reduce and scatter) or sum an array of so many
// bytes, while all such groups of the machine do so. Pure.
double par_plan_collective_seconds(const par_plan_machine *machine, par_plan_collective kind, double bytes,
                                   double ranks, double ranks_per_node);

// ---- search -----------------------------------------------------------------------------------------------

typedef struct par_plan_report {
    double configurations; // of the space
    double evaluated;      // predicted completely
    double bounded;        // left out, because a bound shows that they are slower or do not fit
    double seconds;        // of processor time
    int count;             // choices returned
    int proved;            // 1: the choices are the fastest of the space
    char why[320];         // error text
} par_plan_report;
// Finds the `capacity` fastest configurations that fit, fastest first, among all with product of ranks equal
// to the machine's GPUs. fixed, mask: members whose bits are in mask have the values of *fixed (mask 0: fixed
// may be NULL). distinct: of those that are equal in these members only the fastest is returned (0: all are).
// Exact: branch and bound. Errors, with a text in report->why: ARGUMENT (no configuration
// exists; what to change), MEMORY (none fits; how much memory the smallest needs).
par_result par_plan_search(const par_plan_problem *problem, const par_plan_config *fixed, unsigned mask,
                           unsigned distinct, par_plan_choice *choices, int capacity,
                           par_plan_report *report);
// Replaces the bubbles of choices that have a pipeline with those that par_pipe_simulate finds for the cut of
// the layers, and sorts again. Tables of more than max_actions actions keep their formula (0: 100000).
// Errors: MEMORY.
par_result par_plan_simulate(const par_plan_problem *problem, par_plan_choice *choices, int count,
                             size_t max_actions);
// Calls fn with one sentence for each choice of `best`, which a search found: the reason, with numbers, what
// the fastest configuration with another value costs, and the rule of the field that the choice contradicts.
// Where memory for that is missing, or a member of the problem is wrong, one sentence tells.
typedef void (*par_plan_reason_fn)(void *user, const char *axis, const char *sentence);
void par_plan_explain(const par_plan_problem *problem, const par_plan_choice *best, par_plan_reason_fn fn,
                      void *user);

extern const char *const par_plan_schedule_names[],
    *const par_plan_recompute_names[], *const par_plan_offload_names[],
                                           *const par_plan_overlap_names[],
                                               *const par_plan_recipe_names[]; // NULL after the last

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_PLAN_H

// Stop here if you only use it. -----------------------------------------------------------------------------

#if defined(PAR_PLAN_IMPLEMENTATION) && !defined(PAR_PLAN_IMPLEMENTED)
#define PAR_PLAN_IMPLEMENTED
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// >>plan_tables ---------------------------------------------------------------------------------------------

// cuBLASLt's scale modes: of rows and of blocks of 128 on sm_90 alone, of 32 and of 16 from sm_100 on.
enum {
    PAR__PLAN_SM_90 = 1 << PAR_TP_DELAYED | 1 << PAR_TP_CURRENT | 1 << PAR_TP_ROWWISE | 1 << PAR_TP_BLOCKS,
    PAR__PLAN_SM_100 = 1 << PAR_TP_DELAYED | 1 << PAR_TP_CURRENT | 1 << PAR_TP_MXFP8 | 1 << PAR_TP_NVFP4
};
enum { // members that GPUs have: those before rows_half
    PAR__PLAN_GPU_FIRST = offsetof(par_plan_machine, nodes),
    PAR__PLAN_GPU_BYTES = offsetof(par_plan_machine, rows_half) - PAR__PLAN_GPU_FIRST
};
typedef struct par__plan_gpu {
    const char *name;
    double members[PAR__PLAN_GPU_BYTES / sizeof(double)];
} par__plan_gpu;
// clang-format off
// name, layers, features, heads, kv_heads, head_dim, hidden, vocab, positions, gated, tied, has_bias
static const par_plan_model par__plan_models[] = {
    {"gpt2", 12, 768, 12, 12, 64, 3072, 50257, 1024, 0, 1, 1},
    {"gpt2-medium", 24, 1024, 16, 16, 64, 4096, 50257, 1024, 0, 1, 1},
    {"gpt2-large", 36, 1280, 20, 20, 64, 5120, 50257, 1024, 0, 1, 1},
    {"gpt2-xl", 48, 1600, 25, 25, 64, 6400, 50257, 1024, 0, 1, 1},
    {"gpt3-6.7b", 32, 4096, 32, 32, 128, 16384, 51200, 2048, 0, 1, 1},
    {"gpt3-13b", 40, 5120, 40, 40, 128, 20480, 51200, 2048, 0, 1, 1},
    {"gpt3-175b", 96, 12288, 96, 96, 128, 49152, 51200, 2048, 0, 1, 1},
    {"megatron-1.7b", 24, 2304, 24, 24, 96, 9216, 51200, 2048, 0, 1, 1},
    {"megatron-3.6b", 30, 3072, 32, 32, 96, 12288, 51200, 2048, 0, 1, 1},
    {"megatron-7.5b", 36, 4096, 32, 32, 128, 16384, 51200, 2048, 0, 1, 1},
    {"megatron-18b", 40, 6144, 48, 48, 128, 24576, 51200, 2048, 0, 1, 1},
    {"megatron-22b", 48, 6144, 64, 64, 96, 24576, 51200, 2048, 0, 1, 1},
    {"megatron-39b", 48, 8192, 64, 64, 128, 32768, 51200, 2048, 0, 1, 1},
    {"megatron-76b", 60, 10240, 80, 80, 128, 40960, 51200, 2048, 0, 1, 1},
    {"megatron-145b", 80, 12288, 96, 96, 128, 49152, 51200, 2048, 0, 1, 1},
    {"megatron-310b", 96, 16384, 128, 128, 128, 65536, 51200, 2048, 0, 1, 1},
    {"megatron-530b", 105, 20480, 128, 128, 160, 81920, 51200, 2048, 0, 1, 1},
    {"megatron-1t", 128, 25600, 160, 160, 160, 102400, 51200, 2048, 0, 1, 1},
    {"llama2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 0, 1, 0, 0},
    {"llama2-13b", 40, 5120, 40, 40, 128, 13824, 32000, 0, 1, 0, 0},
    {"llama2-70b", 80, 8192, 64, 8, 128, 28672, 32000, 0, 1, 0, 0},
    {"llama3-8b", 32, 4096, 32, 8, 128, 14336, 128256, 0, 1, 0, 0},
    {"llama3-70b", 80, 8192, 64, 8, 128, 28672, 128256, 0, 1, 0, 0},
    {"llama3-405b", 126, 16384, 128, 8, 128, 53248, 128256, 0, 1, 0, 0},
};

// nodes, gpus_per_node, sm_count, peak, product_rate, fp8_rate, fp8_peak, fp4_rate, recipes, attention_rate,
// tile_half, memory_bytes, reserved_bytes, memory_rate, random_rate, kernel_seconds, sync_seconds,
// node_latency, node_bandwidth, net_latency, net_bandwidth, host_bandwidth, host_bytes, host_rate,
// disk_bytes, disk_rate (of one NVMe drive for each GPU), overlap_cost. Peaks, sizes and links are the
// vendors'. What is reached of them is for A100 fitted to 17 step times of Narayanan et al. 2021 and
// Korthikanti et al. 2022, for H100 set by hand between ten runs that NVIDIA and Meta published, for the
// newer ones in proportion to peaks: see docs/plan.md. net_latency is NCCL's, of a step of its rings
// (its tuning model, Ring and Simple: 14 us between nodes; 3.4 by NVLink, where the fit has 3).
static const par__plan_gpu par__plan_machines[] = {
    {"a100-40", {1, 8, 108, 312e12, 248e12, 0, 0, 0, 0, 160e12, 128,
     42.9e9, 2.5e9, 1.18e12, 4e11, 3e-6, 2e-4,
     3e-6, 235e9, 14e-6, 22e9, 12e9, 120e9, 20e9, 3.84e12, 3e9, .2}},
    {"a100-80", {1, 8, 108, 312e12, 248e12, 0, 0, 0, 0, 160e12, 128,
     85.9e9, 2.5e9, 1.55e12, 4e11, 3e-6, 2e-4,
     3e-6, 235e9, 14e-6, 22e9, 12e9, 240e9, 20e9, 3.84e12, 3e9, .2}},
    {"h100", {1, 8, 132, 989e12, 600e12, 1200e12, 1979e12, 0, PAR__PLAN_SM_90, 400e12, 128,
     85.9e9, 3e9, 2.55e12, 8e11, 3e-6, 2e-4,
     3e-6, 360e9, 14e-6, 45e9, 50e9, 240e9, 35e9, 3.84e12, 5e9, .2}},
    {"h200", {1, 8, 132, 989e12, 600e12, 1200e12, 1979e12, 0, PAR__PLAN_SM_90, 400e12, 128,
     151e9, 3e9, 3.65e12, 8e11, 3e-6, 2e-4,
     3e-6, 360e9, 14e-6, 45e9, 50e9, 240e9, 35e9, 3.84e12, 5e9, .2}},
    {"b200", {1, 8, 148, 2250e12, 1500e12, 2800e12, 4500e12, 5600e12, PAR__PLAN_SM_100, 900e12, 128,
     193e9, 4e9, 6.10e12, 10e11, 3e-6, 2e-4,
     3e-6, 720e9, 14e-6, 45e9, 50e9, 240e9, 35e9, 3.84e12, 5e9, .2}},
    {"gb200-nvl72", {1, 72, 148, 2500e12, 1650e12, 3100e12, 5000e12, 6200e12, PAR__PLAN_SM_100, 1000e12, 128,
     199e9, 4e9, 6.10e12, 10e11, 3e-6, 2e-4,
     4e-6, 720e9, 14e-6, 45e9, 350e9, 240e9, 100e9, 3.84e12, 5e9, .2}},
};
// clang-format on
enum {
    PAR__PLAN_MODELS = sizeof par__plan_models / sizeof par__plan_models[0],
    PAR__PLAN_MACHINES = sizeof par__plan_machines / sizeof par__plan_machines[0]
};

#define PAR__X(constant, name, ...) name,
const char *const par_plan_schedule_names[] = {PAR_PIPE_SCHEDULES(PAR__X) NULL};
#undef PAR__X
static const par_pipe_traits *par__plan_schedule(const par_plan_config *c) {
    return &par_pipe_schedules[c->schedule];
}
static int par__plan_splits(const par_plan_config *c) { return par__plan_schedule(c)->splits_backward; }
static int par__plan_is_bidirectional(const par_plan_config *c) {
    return par__plan_schedule(c)->placement == PAR_PIPE_BIDIRECTIONAL;
}
static int par__plan_has_both_ends(const par_plan_config *c) { // embedding and head on the first rank
    return par__plan_schedule(c)->placement != PAR_PIPE_LOOP;
}
const char *const par_plan_recompute_names[] = {"none", "selective", "full", NULL};
const char *const par_plan_offload_names[] = {
    "none", "states",      "activations",      "states+activations",
    "disk", "states+disk", "disk+activations", "states+disk+activations",
    NULL};
#define PAR__X(constant, name, ...) name,
const char *const par_plan_recipe_names[] = {PAR_TP_RECIPES(PAR__X) NULL};
#undef PAR__X
const char *const par_plan_overlap_names[] = {"none",  "tp",    "dp",       "tp+dp", "pp",
                                              "tp+pp", "dp+pp", "tp+dp+pp", NULL};

const char *par_plan_model_name(int i) {
    return i >= 0 && i < PAR__PLAN_MODELS ? par__plan_models[i].name : NULL;
}
const char *par_plan_machine_name(int i) {
    return i >= 0 && i < PAR__PLAN_MACHINES ? par__plan_machines[i].name : NULL;
}
static par_suggestion par__plan_suggest(const char *name, const char *(*get)(int)) {
    const char *names[64];
    size_t count = 0;
    while (count < 64 && get((int)count)) {
        names[count] = get((int)count);
        count++;
    }
    return par_suggest(name, names, count, sizeof names[0]);
}
par_suggestion par_plan_model_suggest(const char *name) {
    return par__plan_suggest(name, par_plan_model_name);
}
par_suggestion par_plan_machine_suggest(const char *name) {
    return par__plan_suggest(name, par_plan_machine_name);
}
par_result par_plan_model_get(const char *name, par_plan_model *model) {
    for (int i = 0; i < PAR__PLAN_MODELS; i++)
        if (!strcmp(par__plan_models[i].name, name)) {
            *model = par__plan_models[i];
            return PAR_OK;
        }
    return PAR_ERR_ARGUMENT;
}
par_result par_plan_machine_get(const char *name, par_plan_machine *machine) {
    for (int i = 0; i < PAR__PLAN_MACHINES; i++)
        if (!strcmp(par__plan_machines[i].name, name)) {
            memset(machine, 0, sizeof *machine);
            snprintf(machine->name, sizeof machine->name, "%s", name);
            memcpy((char *)machine + PAR__PLAN_GPU_FIRST, par__plan_machines[i].members, PAR__PLAN_GPU_BYTES);
            return PAR_OK;
        }
    return PAR_ERR_ARGUMENT;
}

// >>plan_text -----------------------------------------------------------------------------------------------

static par_result par__plan_fail(par_result result, char *why, size_t capacity, const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (capacity) vsnprintf(why, capacity, format, list);
    va_end(list);
    return result;
}

// The sizes with what a 0 stands for.
static void par__plan_model_defaults(par_plan_model *m) {
    if (!m->kv_heads) m->kv_heads = m->heads;
    if (!m->head_dim && m->heads) m->head_dim = m->features / m->heads;
    if (!m->hidden) m->hidden = 4 * m->features;
}
static par_plan_problem par__plan_with_defaults(const par_plan_problem *problem) {
    par_plan_problem p = *problem;
    par__plan_model_defaults(&p.model);
    return p;
}

typedef struct par__plan_field { // a member of a struct, by name
    const char *name;
    size_t offset;
    double min, max;
} par__plan_field;

// The names that the models of Hugging Face's transformers use for one size.
static const par__plan_field par__plan_model_names[] = {
    {"n_layer", offsetof(par_plan_model, layers), 1, 1e4},
    {"num_layers", offsetof(par_plan_model, layers), 1, 1e4},
    {"n_layers", offsetof(par_plan_model, layers), 1, 1e4},
    {"num_hidden_layers", offsetof(par_plan_model, layers), 1, 1e4},
    {"n_embd", offsetof(par_plan_model, features), 1, 1e6},
    {"n_embed", offsetof(par_plan_model, features), 1, 1e6},
    {"d_model", offsetof(par_plan_model, features), 1, 1e6},
    {"hidden_size", offsetof(par_plan_model, features), 1, 1e6},
    {"n_head", offsetof(par_plan_model, heads), 1, 1e4},
    {"n_heads", offsetof(par_plan_model, heads), 1, 1e4},
    {"num_attention_heads", offsetof(par_plan_model, heads), 1, 1e4},
    {"n_head_kv", offsetof(par_plan_model, kv_heads), 1, 1e4},
    {"num_kv_heads", offsetof(par_plan_model, kv_heads), 1, 1e4},
    {"num_key_value_heads", offsetof(par_plan_model, kv_heads), 1, 1e4},
    {"head_dim", offsetof(par_plan_model, head_dim), 1, 1e4},
    {"n_inner", offsetof(par_plan_model, hidden), 1, 1e7},
    {"intermediate_size", offsetof(par_plan_model, hidden), 1, 1e7},
    {"ffn_dim", offsetof(par_plan_model, hidden), 1, 1e7},
    {"ffn_hidden_size", offsetof(par_plan_model, hidden), 1, 1e7},
    {"vocab_size", offsetof(par_plan_model, vocab), 1, 1e8},
    {"n_positions", offsetof(par_plan_model, positions), 1, 1e8},
    {"max_position_embeddings", offsetof(par_plan_model, positions), 1, 1e8},
};
enum { PAR__PLAN_MODEL_NAMES = sizeof par__plan_model_names / sizeof par__plan_model_names[0] };

// Members that make a model another than a dense decoder, if their number is at least so large (true is 1;
// a list is large).
static const struct {
    const char *name;
    double least;
    const char *what;
} par__plan_refused[] = {
    {"num_experts", 2, "a mixture of experts"},
    {"num_local_experts", 2, "a mixture of experts"},
    {"n_routed_experts", 2, "a mixture of experts"},
    {"moe_num_experts", 2, "a mixture of experts"},
    {"kv_lora_rank", 1, "attention with compressed keys and values"},
    {"linear_num_value_heads", 1, "linear attention"},
    {"mamba_d_state", 1, "state-space layers"},
    {"ssm_state_size", 1, "state-space layers"},
    {"state_size", 1, "state-space layers"},
    {"lru_width", 1, "recurrent layers"},
    {"block_configs", 1, "layers of different sizes"},
    {"is_encoder_decoder", 1, "an encoder beside the decoder"},
};
static const char par__plan_encoder[] = "an encoder instead of a decoder";
// Types that are encoders, besides those whose names contain "bert".
static const char par__plan_encoders[] =
    "electra mpnet nomic_bert longformer big_bird roformer funnel ernie ernie_m nezha splinter fnet "
    "xlm xlnet yoso ibert data2vec-text esm eurobert vit clip_text_model";

enum { PAR__PLAN_REFUSED = sizeof par__plan_refused / sizeof par__plan_refused[0] };

static void par__plan_ignore(char *ignored, size_t capacity, const char *name) {
    const size_t used = capacity ? strlen(ignored) : 0;
    if (used + strlen(name) + 2 < capacity)
        snprintf(ignored + used, capacity - used, "%s%s", used ? " " : "", name);
}
typedef struct par__plan_reader { // of a config.json
    par_plan_model *model;
    char *ignored, *why;
    size_t ignored_capacity, capacity;
    int tied;        // 1: tied; 0: not; -1: it does not say
    int silu;        // 1: the activation function is SiLU, as also where none is named
    int multi_query; // 1: all heads share a key-value head,
    int grouped;     // but (1) not in this generation of Falcon
    int says_experts;
    int hints_experts; // another member is named after experts: with a number of at least 2, or with members
    const char *refused; // what of the model is not planned
    char type[48];       // of text_config, if it has one
    int nested_type;
} par__plan_reader;

static double par__plan_amount(par_json *j) { // a number; 1: true; 0: false or null; 1e9: anything else
    const char c = par_json_peek(j);
    if (c >= '0' && c <= '9') return (double)par_json_number(j);
    par_json_skip(j);
    return c == 't' ? 1 : c == 'f' || c == 'n' ? 0 : 1e9;
}
static int par__plan_read_refused(par__plan_reader *r, par_json *j, const char *name) { // 1: it is one
    for (int i = 0; i < PAR__PLAN_REFUSED; i++) {
        if (strcmp(name, par__plan_refused[i].name)) continue;
        if (par__plan_amount(j) >= par__plan_refused[i].least) r->refused = par__plan_refused[i].what;
        if (par__plan_refused[i].least > 1) r->says_experts = 1;
        return 1;
    }
    return 0;
}
static par_result par__plan_read_size(par__plan_reader *r, par_json *j, const par__plan_field *field) {
    if (par_json_peek(j) == 'n') { // null: the default
        par_json_skip(j);
        return PAR_OK;
    }
    const uint64_t number = par_json_number(j);
    if (j->bad || (double)number < field->min || (double)number > field->max)
        return par__plan_fail(PAR_ERR_FILE, r->why, r->capacity,
                              "\"%s\" of the config.json must be a whole number from %g to %g", field->name,
                              field->min, field->max);
    int value = (int)number;
    memcpy((char *)r->model + field->offset, &value, sizeof value);
    return PAR_OK;
}
static int par__plan_is_one_of(const char *word, const char *words) { // words: with a space between two
    const size_t length = strlen(word);
    for (const char *at = words; length && (at = strstr(at, word)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return 1;
    return 0;
}
static par_result par__plan_read_members(par__plan_reader *r, par_json *j, int nested);
static par_result par__plan_read_member(par__plan_reader *r, par_json *j, const char *name, int nested) {
    char text[48];
    const char c = par_json_peek(j);
    for (int i = 0; i < PAR__PLAN_MODEL_NAMES; i++)
        if (!strcmp(name, par__plan_model_names[i].name))
            return par__plan_read_size(r, j, &par__plan_model_names[i]);
    if (par__plan_read_refused(r, j, name)) return PAR_OK;
    if (par__plan_is_one_of(name, "text_config llm_config language_config") && c == '{' && !nested)
        return par__plan_read_members(r, j, 1); // of a model that also sees or hears
    if (!strcmp(name, "model_type") && c == '"') {
        par_json_string(j, text, sizeof text, 1);
        if (nested || !r->nested_type) snprintf(r->type, sizeof r->type, "%s", text);
        r->nested_type |= nested;
    } else if (par__plan_is_one_of(name, "hidden_act hidden_activation activation_function") && c == '"') {
        par_json_string(j, text, sizeof text, 1);
        r->silu = par__plan_is_one_of(text, "silu swiglu swish");
    } else if (!strcmp(name, "tie_word_embeddings")) {
        r->tied = par__plan_amount(j) > 0;
    } else if (!strcmp(name, "attention_bias") || !strcmp(name, "bias")) {
        r->model->has_bias = par__plan_amount(j) > 0;
    } else if (!strcmp(name, "multi_query")) {
        r->multi_query = par__plan_amount(j) > 0;
    } else if (!strcmp(name, "new_decoder_architecture")) {
        r->grouped = par__plan_amount(j) > 0;
    } else if (!strcmp(name, "architectures") && c == '[') {
        const char *from = j->at;
        par_json_skip(j);
        for (; from + 9 <= j->at; from++)
            if (!memcmp(from, "ForMasked", 9)) r->refused = par__plan_encoder;
        par__plan_ignore(r->ignored, r->ignored_capacity, name);
    } else {
        if ((strstr(name, "moe") || strstr(name, "expert")) &&
            (c == '{' || c == '[' || (c >= '2' && c <= '9') ||
             (c == '1' && j->end - j->at > 1 && isdigit((unsigned char)j->at[1]))))
            r->hints_experts = 1;
        par_json_skip(j);
        par__plan_ignore(r->ignored, r->ignored_capacity, name);
    }
    return PAR_OK;
}
static par_result par__plan_read_members(par__plan_reader *r, par_json *j, int nested) {
    char name[64];
    for (size_t i = 0; par_json_member(j, i, name, sizeof name, 1); i++) {
        const par_result result = par__plan_read_member(r, j, name, nested);
        if (result) return result;
    }
    return PAR_OK;
}
// What the type of a model says, and its config.json often does not. Of other types: as of Llama.
static void par__plan_apply_type(par__plan_reader *r) {
    static const struct {
        const char *names;
        int positions, has_bias, gated, tied; // learned positions; gated: -1: the activation function says it
    } types[] = {{"gpt2 opt gpt_bigcode biogpt", 1, 1, 0, 1},
                 {"gpt_neox phi", 0, 1, 0, 0},
                 {"bloom starcoder2", 0, 1, 0, 1},
                 {"falcon RefinedWeb RefinedWebModel mpt", 0, 0, 0, 1},
                 {"gemma gemma2 gemma3 gemma3_text", 0, 0, 1, 1},
                 {"cohere cohere2", 0, 0, 1, 1},
                 {"nemotron gptj codegen", 0, 0, 0, 0},
                 {"llama mistral mistral3 qwen2 qwen3 phi3 olmo olmo2 granite smollm3 stablelm internlm2 "
                  "glm glm4",
                  0, 0, 1, 0},
                 {NULL, 0, 0, -1, 0}};
    char unknown[64];
    int i = 0;
    while (types[i].names && !par__plan_is_one_of(r->type, types[i].names)) i++;
    if (!types[i].positions) r->model->positions = 0;
    if (types[i].has_bias) r->model->has_bias = 1;
    r->model->tied = r->tied < 0 ? types[i].tied : r->tied;
    r->model->gated = types[i].gated < 0 ? r->silu : types[i].gated;
    if (r->multi_query && !r->grouped) r->model->kv_heads = 1;
    snprintf(unknown, sizeof unknown, "model_type=%s", r->type);
    if (!types[i].names && r->type[0]) par__plan_ignore(r->ignored, r->ignored_capacity, unknown);
    if (!r->says_experts &&
        (r->hints_experts || strstr(r->type, "moe") || par__plan_is_one_of(r->type, "mixtral dbrx")))
        r->refused = "a mixture of experts";
    if (strstr(r->type, "bert") || par__plan_is_one_of(r->type, par__plan_encoders))
        r->refused = par__plan_encoder;
}
par_result par_plan_model_read(const char *json, size_t bytes, par_plan_model *model, char *ignored,
                               size_t ignored_capacity, char *why, size_t capacity) {
    par_json j;
    par__plan_reader r;
    memset(model, 0, sizeof *model);
    memset(&r, 0, sizeof r);
    j.at = json;
    j.end = json + bytes;
    j.bad = 0;
    r.model = model;
    r.ignored = ignored;
    r.ignored_capacity = ignored_capacity;
    r.why = why;
    r.capacity = capacity;
    r.tied = -1;
    r.silu = 1;
    if (ignored_capacity) ignored[0] = 0;
    const par_result result = par__plan_read_members(&r, &j, 0);
    if (result) return result;
    par_json_peek(&j); // skips blanks
    if (j.bad || j.at < j.end)
        return par__plan_fail(PAR_ERR_FILE, why, capacity, "the config.json is not valid JSON");
    par__plan_apply_type(&r);
    if (r.refused)
        return par__plan_fail(PAR_ERR_FILE, why, capacity,
                              "the config.json has %s, which is not planned: dense decoders are", r.refused);
    const struct {
        const char *what;
        int value;
    } need[] = {{"num_hidden_layers", model->layers},
                {"hidden_size", model->features},
                {"num_attention_heads", model->heads},
                {"vocab_size", model->vocab}};
    for (int i = 0; i < 4; i++)
        if (!need[i].value)
            return par__plan_fail(PAR_ERR_FILE, why, capacity,
                                  "the config.json has no \"%s\", nor another name of it", need[i].what);
    snprintf(model->name, sizeof model->name, "%.40s", r.type[0] ? r.type : "model");
    if (!model->head_dim && model->features % model->heads)
        return par__plan_fail(PAR_ERR_FILE, why, capacity, "hidden_size %d is not divisible by %d heads",
                              model->features, model->heads);
    par__plan_model_defaults(model);
    if (model->heads % model->kv_heads)
        return par__plan_fail(PAR_ERR_FILE, why, capacity, "%d heads cannot share %d key-value heads",
                              model->heads, model->kv_heads);
    return PAR_OK;
}

#define PAR__X(member, what) {#member, offsetof(par_plan_machine, member), 0, 1e30},
static const par__plan_field par__plan_machine_names[] = {PAR_PLAN_MACHINE_FIELDS(PAR__X)};
#undef PAR__X
enum { PAR__PLAN_MACHINE_NAMES = sizeof par__plan_machine_names / sizeof par__plan_machine_names[0] };
#define PAR__X(member, what) {#member, offsetof(par_plan_job, member), 0, 1e30},
static const par__plan_field par__plan_job_names[] = {PAR_PLAN_JOB_FIELDS(PAR__X)};
#undef PAR__X
enum { PAR__PLAN_JOB_NAMES = sizeof par__plan_job_names / sizeof par__plan_job_names[0] };
static const char *par__plan_machine_field(int i) {
    return i < PAR__PLAN_MACHINE_NAMES ? par__plan_machine_names[i].name : NULL;
}
// One line without its comment: "member = number" or "gpu = name".
static par_result par__plan_read_line(char *line, int number, par_plan_machine *machine, char *why,
                                      size_t capacity) {
    static const char blanks[] = " \t\r";
    char *equals = strchr(line, '='), *end = line + strlen(line);
    if (line[strspn(line, blanks)] == 0) return PAR_OK;
    if (!equals)
        return par__plan_fail(PAR_ERR_FILE, why, capacity, "line %d: \"%.60s\": expected member = number",
                              number, line);
    char *name = line + strspn(line, blanks), *value = equals + 1 + strspn(equals + 1, blanks);
    for (*equals = 0; equals > name && strchr(blanks, equals[-1]); *--equals = 0) {
    }
    while (end > value && strchr(blanks, end[-1])) *--end = 0;
    if (!strcmp(name, "gpu")) {
        const double nodes = machine->nodes;
        if (par_plan_machine_get(value, machine))
            return par__plan_fail(PAR_ERR_FILE, why, capacity, "line %d: unknown gpu %.60s%s", number, value,
                                  par_plan_machine_suggest(value).text);
        if (nodes > 0) machine->nodes = nodes;
        return PAR_OK;
    }
    for (int i = 0; i < PAR__PLAN_MACHINE_NAMES; i++) {
        if (strcmp(name, par__plan_machine_names[i].name)) continue;
        const double x = strtod(value, &end);
        if (end == value || *end || !(x >= 0) || x > par__plan_machine_names[i].max)
            return par__plan_fail(PAR_ERR_FILE, why, capacity,
                                  "line %d: %s = \"%.60s\": expected a number from 0", number, name, value);
        memcpy((char *)machine + par__plan_machine_names[i].offset, &x, sizeof x);
        return PAR_OK;
    }
    return par__plan_fail(PAR_ERR_FILE, why, capacity, "line %d: unknown member %.60s%s", number, name,
                          par__plan_suggest(name, par__plan_machine_field).text);
}
par_result par_plan_machine_read(const char *text, size_t bytes, par_plan_machine *machine, char *why,
                                 size_t capacity) {
    char line[256];
    int number = 0;
    memset(machine, 0, sizeof *machine);
    for (size_t at = 0; at < bytes;) {
        const char *newline = (const char *)memchr(text + at, '\n', bytes - at);
        size_t length = newline ? (size_t)(newline - text) - at : bytes - at;
        number++;
        if (length >= sizeof line || memchr(text + at, 0, length))
            return par__plan_fail(PAR_ERR_FILE, why, capacity, "line %d: too long, or not text", number);
        memcpy(line, text + at, length);
        line[length] = 0;
        line[strcspn(line, "#")] = 0;
        const par_result r = par__plan_read_line(line, number, machine, why, capacity);
        if (r) return r;
        at += length + 1;
    }
    if (machine->product_rate <= 0 || machine->memory_rate <= 0 || machine->memory_bytes <= 0)
        return par__plan_fail(
            PAR_ERR_FILE, why, capacity,
            "the machine needs product_rate, memory_rate and memory_bytes, or gpu = a name");
    if (!machine->name[0]) snprintf(machine->name, sizeof machine->name, "machine");
    return PAR_OK;
}

void par_plan_machine_format(const par_plan_machine *machine, char *text, size_t capacity) {
    size_t used = 0;
    if (capacity) text[0] = 0;
    for (int i = 0; i < PAR__PLAN_MACHINE_NAMES && used < capacity; i++) {
        double value;
        memcpy(&value, (const char *)machine + par__plan_machine_names[i].offset, sizeof value);
        if (value > 0)
            used += (size_t)snprintf(text + used, capacity - used, "%s = %.17g\n",
                                     par__plan_machine_names[i].name, value);
    }
}

typedef struct par__plan_axis {
    const char *name;
    const char *const *values;
    size_t offset;
} par__plan_axis;
#define PAR__X(member, names, what) {#member, names, offsetof(par_plan_config, member)},
static const par__plan_axis par__plan_axes[] = {PAR_PLAN_AXES(PAR__X)};
#undef PAR__X
const char *par_plan_axis_name(int axis) {
    return axis >= 0 && axis < PAR_PLAN_AXIS_COUNT ? par__plan_axes[axis].name : NULL;
}
int par_plan_axis_get(const par_plan_config *config, int axis) {
    int value;
    memcpy(&value, (const char *)config + par__plan_axes[axis].offset, sizeof value);
    return value;
}
static void par__plan_axis_set(par_plan_config *config, int axis, int value) {
    memcpy((char *)config + par__plan_axes[axis].offset, &value, sizeof value);
}
static int par__plan_value_count(int axis) {
    int count = 0;
    if (!par__plan_axes[axis].values) return 1000001;
    while (par__plan_axes[axis].values[count]) count++;
    return count;
}
static void par__plan_value(int axis, int value, char *text, size_t capacity) { // as text
    if (par__plan_axes[axis].values)
        snprintf(text, capacity, "%s", par__plan_axes[axis].values[value]);
    else
        snprintf(text, capacity, "%d", value);
}
static const unsigned par__plan_counts =
    1u << PAR_PLAN_AXIS_tp | 1u << PAR_PLAN_AXIS_pp | 1u << PAR_PLAN_AXIS_cp | 1u << PAR_PLAN_AXIS_dp |
    1u << PAR_PLAN_AXIS_microbatch | 1u << PAR_PLAN_AXIS_chunks | 1u << PAR_PLAN_AXIS_shard;
static par_plan_config par__plan_config_of(const par_plan_config *config) { // with what a 0 stands for
    par_plan_config c = *config;
    for (int i = 0; i < PAR_PLAN_AXIS_COUNT; i++)
        if (par__plan_counts >> i & 1 && !par_plan_axis_get(&c, i)) par__plan_axis_set(&c, i, 1);
    return c;
}
void par_plan_format(const par_plan_config *config, int brief, char *text, size_t capacity) {
    size_t used = 0;
    if (capacity) text[0] = 0;
    for (int i = 0; i < PAR_PLAN_AXIS_COUNT; i++) {
        const int value = par_plan_axis_get(config, i);
        char is[48];
        if (brief && (value == 0 || (value == 1 && par__plan_counts >> i & 1))) continue;
        par__plan_value(i, value, is, sizeof is);
        if (used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s=%s", used ? " " : "",
                                     par__plan_axes[i].name, is);
    }
}
static par_result par__plan_parse_word(const char *name, const char *value, par_plan_config *config,
                                       unsigned *mask, char *why, size_t capacity) {
    char *end;
    for (int i = 0; i < PAR_PLAN_AXIS_COUNT; i++) {
        const par__plan_axis *axis = &par__plan_axes[i];
        if (strcmp(axis->name, name)) continue;
        const int count = par__plan_value_count(i);
        long number = strtol(value, &end, 10);
        if (end == value || *end) number = -1;
        for (int k = 0; axis->values && k < count; k++)
            if (!strcmp(axis->values[k], value)) number = k;
        if (number < 0 || number >= count)
            return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity, "%s cannot be \"%s\"%s%s", name, value,
                                  axis->values ? "; one of its values is " : "",
                                  axis->values ? axis->values[0] : "");
        par__plan_axis_set(config, i, (int)number);
        *mask |= 1u << i;
        return PAR_OK;
    }
    return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity, "unknown choice \"%s\"%s", name,
                          par__plan_suggest(name, par_plan_axis_name).text);
}
par_result par_plan_parse(const char *text, par_plan_config *config, unsigned *mask, char *why,
                          size_t capacity) {
    char word[96];
    *mask = 0;
    while (*(text += strspn(text, " ,\t\n"))) {
        const size_t length = strcspn(text, " ,\t\n");
        if (length >= sizeof word)
            return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity, "\"%.60s\" is too long", text);
        memcpy(word, text, length);
        word[length] = 0;
        text += length;
        char *equals = strchr(word, '=');
        if (!equals)
            return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity, "\"%s\": expected name=value", word);
        *equals = 0;
        const par_result r = par__plan_parse_word(word, equals + 1, config, mask, why, capacity);
        if (r) return r;
    }
    return PAR_OK;
}

// >>plan_links ----------------------------------------------------------------------------------------------
// A group of n ranks, k of them on each of its nodes, gathers B bytes: each rank receives (n-1)/n B. A
// reduce-scatter is the same in reverse, and an all-reduce both. Four ranks on two nodes, in a ring:
//
//      node 0      node 1        each link carries (n-1)/n B; the k ranks of a node have the network links of
//     0 -> 1  ==> 2 -> 3         k GPUs, so the network takes (n-1)/n B / (k links of a GPU), and the slower
//     ^                |         level decides. A block waits for each hop to the rank that is farthest.
//     +================+

static double par__plan_min(double a, double b) { return a < b ? a : b; }
static double par__plan_max(double a, double b) { return a > b ? a : b; }
static double par__plan_ceil(double a, double b) { // of positive a / b, without a library call
    const double q = a / b, whole = (double)(int64_t)q;
    return whole < q ? whole + 1 : whole;
}
static double par__plan_levels(double n) { // of a binary tree of n
    double levels = 0;
    for (double m = 1; m < n; m *= 2) levels++;
    return levels;
}
static double par__plan_link(const par_plan_machine *x) { // bytes/s of the network that a GPU has
    const double gpus = par__plan_max(x->gpus_per_node, 1);
    return x->net_bandwidth * (x->net_links > 0 ? par__plan_min(x->net_links / gpus, 1) : 1);
}
// `calls` collectives, of so many bytes together.
static double par__plan_collective(const par_plan_machine *x, par_plan_collective kind, double bytes,
                                   double calls, double n, double k) {
    if (n < 2) return 0;
    const double nodes = par__plan_ceil(n, k), ring = nodes > 1 ? par__plan_min(nodes, n - 1) : 0;
    double passes = 0, within = 0, between = 0;
    switch (kind) {
#define PAR__X(constant, name, times, inside, across, source)                                                \
    case PAR_PLAN_##constant: passes = times, within = inside, between = across; break;
        PAR_PLAN_COLLECTIVES(PAR__X)
#undef PAR__X
    default: break;
    }
    double rate = k > 1 ? x->node_bandwidth : 1e300;
    if (nodes > 1) rate = par__plan_min(rate, k * par__plan_link(x));
    const double latency = within * x->node_latency + between * x->net_latency;
    return passes * (bytes * (n - 1) / n / rate + calls * latency) + calls * x->call_seconds;
}
double par_plan_collective_seconds(const par_plan_machine *machine, par_plan_collective kind, double bytes,
                                   double ranks, double ranks_per_node) {
    return par__plan_collective(machine, kind, bytes, 1, ranks, par__plan_min(ranks, ranks_per_node));
}

typedef struct par__plan_group {
    double ranks, inside; // inside: on one node
} par__plan_group;

static par__plan_group par__plan_group_of(const par_plan_machine *x, double ranks, double stride) {
    par__plan_group g;
    const double room = floor(x->gpus_per_node / stride);
    g.ranks = ranks;
    g.inside = room < 1 ? 1 : par__plan_min(ranks, room);
    return g;
}
// GPUs communicate by NCCL, which takes the faster of its algorithms; processors by par.h.
static double par__plan_gather(const par_plan_machine *x, par__plan_group g, double bytes, double calls) {
    return par__plan_collective(x, x->sm_count < 1 ? PAR_PLAN_LEVELS_GATHER : PAR_PLAN_RING_GATHER, bytes,
                                calls, g.ranks, g.inside);
}
static double par__plan_all_reduce(const par_plan_machine *x, par__plan_group g, double bytes, double calls) {
    if (x->sm_count < 1) return par__plan_collective(x, PAR_PLAN_LEVELS_SUM, bytes, calls, g.ranks, g.inside);
    return par__plan_min(par__plan_collective(x, PAR_PLAN_RING_SUM, bytes, calls, g.ranks, g.inside),
                         par__plan_collective(x, PAR_PLAN_TREE_SUM, bytes, calls, g.ranks, g.inside));
}
static double par__plan_send(const par_plan_machine *x, int between_nodes, double bytes) {
    return between_nodes ? x->net_latency + bytes / par__plan_link(x)
                         : x->node_latency + bytes / x->node_bandwidth;
}

// >>plan_kernels --------------------------------------------------------------------------------------------

// Rows of a tile's output, its columns, and how much longer it takes per operation than the largest: reading
// operands takes a share that grows with 1/rows + 1/columns.
static const struct {
    double rows, columns, factor;
} par__plan_tiles[] = {{256, 128, 1},   {128, 256, 1},   {128, 128, 1.05},
                       {128, 64, 1.16}, {64, 128, 1.16}, {64, 64, 1.28}};

// `batch` products, rows x inner by inner x columns, which move `bytes` in all. A processor without tiles is
// measured with its own products, so bytes are in them.
static double par__plan_product(const par_plan_machine *x, double rate, double rows, double columns,
                                double inner, double batch, double bytes) {
    double best = 1e300;
    if (x->sm_count < 1)
        return 2 * (rows + x->rows_half) * (columns + x->columns_half) * (inner + x->inner_half) * batch /
                   rate +
               x->kernel_seconds;
    for (int i = 0; i < 6; i++) {
        const double m = par__plan_tiles[i].rows, n = par__plan_tiles[i].columns;
        const double tiles = par__plan_ceil(rows, m) * par__plan_ceil(columns, n) * batch;
        const double waves = par__plan_ceil(tiles, x->sm_count);
        best = par__plan_min(best, waves * m * n * par__plan_tiles[i].factor);
    }
    const double seconds = best * 2 * (inner + x->tile_half) / (rate / x->sm_count);
    return par__plan_max(seconds, bytes / x->memory_rate) + x->kernel_seconds;
}
static double par__plan_pass(const par_plan_machine *x, double bytes) { // an elementwise kernel
    return bytes / x->memory_rate + x->kernel_seconds;
}

// >>plan_layer ----------------------------------------------------------------------------------------------

typedef struct par__plan_case { // a problem and a configuration, in numbers that formulas use
    const par_plan_machine *x;
    const par_plan_model *m;
    const par_plan_job *j;
    double t, p, c, d, v, n, microbatches;     // tp, pp, cp, dp, chunks, sequences of a microbatch, m
    double rows, split;                        // tokens of a microbatch on a rank; ranks that share them
    double e, gradient_bytes, state_bytes;     // bytes of an element, of a gradient, of states
    double q, kv, hidden, rate, capacity;      // features of a rank; FLOP/s; bytes of memory
    double code, quantize;                     // bytes of a number in codes, and of making two copies of it
    par__plan_group tp, cp, dp, shard, copies; // dp: with cp; copies: groups of `shard` ranks
    int pp_between_nodes;
    double live;             // with schedule "auto": microbatches in flight
    double oversubscription; // ranks of a node for each of its processors, at least 1
} par__plan_case;

static double par__plan_capacity(const par_plan_problem *p) { // bytes of a GPU that a configuration may need
    return (p->job.memory_bytes > 0 ? p->job.memory_bytes : p->machine.memory_bytes) -
           p->machine.reserved_bytes;
}
// A recipe's codes, with their scales, are written as they are and transposed, for the other product; numbers
// are read once more where the scale is not known, nor that of a block that a kernel has at once.
static const struct {
    double code;
    int reads, four_bits;
} par__plan_recipes[] = {
#define PAR__X(constant, name, code, gradients, scale, rows, cols, weight_rows, flags)                       \
    {(code == PAR_TP_E2M1 ? .5 : 1) + (rows && cols ? (scale == PAR_TP_SCALE_POWER ? 4. : 1.) / cols : 0),   \
     ((flags)&PAR_TP_HAS_HISTORY) || (cols && code != PAR_TP_E2M1) ? 1 : 2, code == PAR_TP_E2M1},
    PAR_TP_RECIPES(PAR__X)
#undef PAR__X
};
static void par__plan_recipe_of(const par_plan_machine *x, int recipe, par__plan_case *k) {
    k->rate = x->product_rate;
    k->code = k->quantize = 0;
    if (!recipe) return;
    k->rate = par__plan_recipes[recipe].four_bits ? x->fp4_rate : x->fp8_rate;
    k->code = par__plan_recipes[recipe].code;
    k->quantize = par__plan_recipes[recipe].reads * k->e + 2 * k->code;
}
static par__plan_case par__plan_case_of(const par_plan_problem *problem, const par_plan_config *config) {
    par__plan_case k;
    const par_plan_machine *x = &problem->machine;
    const par_plan_model *m = &problem->model;
    const par_plan_job *j = &problem->job;
    k.x = x;
    k.m = m;
    k.j = j;
    k.t = config->tp;
    k.p = config->pp;
    k.c = config->cp;
    k.d = config->dp;
    k.v = config->chunks;
    k.n = config->microbatch;
    k.microbatches = j->batch / (k.d * k.n);
    k.rows = k.n * j->sequence / k.c;
    k.split = config->sp ? k.t : 1;
    k.e = j->element_bytes > 0 ? j->element_bytes : 2;
    k.gradient_bytes = j->gradient_bytes > 0 ? j->gradient_bytes : 4;
    k.state_bytes = j->state_bytes > 0 ? j->state_bytes : 12;
    k.q = (double)m->heads * m->head_dim / k.t;
    k.kv = par__plan_max(m->kv_heads / k.t, 1) * m->head_dim;
    k.hidden = m->hidden / k.t;
    k.live = par__plan_min(2 * k.p - 1, k.microbatches); // what memory allows of it: par__plan_auto
    par__plan_recipe_of(x, config->fp8, &k);
    k.oversubscription = x->cores > 0 ? par__plan_max(x->gpus_per_node / x->cores, 1) : 1;
    k.capacity = par__plan_capacity(problem);
    k.tp = par__plan_group_of(x, k.t, 1);
    k.cp = par__plan_group_of(x, k.c, k.t);
    k.dp = par__plan_group_of(x, k.d * k.c, k.t);
    k.shard = par__plan_group_of(x, config->shard, k.t);
    k.copies = par__plan_group_of(x, k.d * k.c / config->shard, k.t * config->shard);
    k.pp_between_nodes = k.t * k.c * k.d >= x->gpus_per_node;
    return k;
}

// par__plan_gather by ranks that share a layer, and reach this bandwidth within a node (0: node_bandwidth).
static double par__plan_shared_gather(const par_plan_machine *x, par__plan_group g, double bandwidth,
                                      double bytes) {
    const double more = bandwidth > 0 && g.ranks > 1 ? 1 / bandwidth - 1 / x->node_bandwidth : 0;
    return par__plan_gather(x, g, bytes, 1) + bytes * (g.ranks - 1) / g.ranks * more;
}
static double par__plan_tp_gather(const par__plan_case *k, double bytes) {
    return par__plan_shared_gather(k->x, k->tp, k->x->tp_bandwidth, bytes);
}
static double par__plan_cp_gather(const par__plan_case *k, double bytes) {
    return par__plan_shared_gather(k->x, k->cp, k->x->cp_bandwidth, bytes);
}
static double par__plan_ring_gather(const par__plan_case *k, double bytes) {
    return par__plan_shared_gather(k->x, k->cp, k->x->ring_bandwidth, bytes);
}

typedef struct par__plan_layer {       // of one microbatch on one rank; seconds of kernels, and of messages
    double f, b, w;                    // a layer's kernels
    double recompute[3];               // by par_plan_recompute; b does not include it
    double tp_f, tp_b, late_b, hide_b; // messages; tp_b can run beside hide_b seconds of products
    double cp_f, cp_b, hide_cp_f, hide_cp_b;
    double saved[3], transient[3]; // bytes, by par_plan_recompute; transient: while backward recomputes
    double weights;                // elements of a layer
    double first_f, first_b, first_weights;      // embedding, with messages
    double last_f, last_b, last_w, last_weights; // final norm, head and loss, with messages
    double message, regather, logits; // bytes between stages, seconds to gather them; bytes of logits
} par__plan_layer;

// The product of a linear layer: y = x W forward, then dx and dW. Adds seconds to t[0], t[1], t[2].
static void par__plan_linear(const par__plan_case *k, double rate, double in, double out, double t[3]) {
    const double x = k->e * k->rows * in, y = k->e * k->rows * out, w = in * out;
    t[0] += par__plan_product(k->x, rate, k->rows, out, in, 1, x + y + k->e * w);
    t[1] += par__plan_product(k->x, rate, k->rows, in, out, 1, x + y + k->e * w);
    t[2] += par__plan_product(k->x, rate, in, out, k->rows, 1, x + y + 2 * k->gradient_bytes * w);
    if (rate > k->x->product_rate) { // by a recipe; where it is measured its codes are in the rate
        t[0] += par__plan_pass(k->x, k->quantize * k->rows * in);
        t[1] += par__plan_pass(k->x, k->quantize * k->rows * out);
    }
}
// On a processor without tiles fused attention is products of blocks of `size` queries by as many keys.
typedef struct par__plan_blocks {
    double size, count; // of a head
} par__plan_blocks;
// Of a sequence: causal, so those on and below the diagonal. A ring divides it into 2 c parts, of which a
// rank has two, and each pair of parts is a square of blocks or, of a part with itself, causal.
static par__plan_blocks par__plan_blocks_of(double sequence, double ring) {
    const double part = ring > 1 ? sequence / (2 * ring) : sequence, size = par__plan_min(part, 128);
    const double side = par__plan_ceil(part, size), causal = side * (side + 1) / 2;
    par__plan_blocks b;
    b.size = size;
    b.count = ring > 1 ? 2 * causal + (2 * ring - 1) * side * side : causal;
    return b;
}
static double par__plan_block_attention(const par__plan_case *k, int ulysses) { // seconds, forward
    const int ring = k->c > 1 && !ulysses;
    const par__plan_blocks b = par__plan_blocks_of(k->j->sequence, ring ? k->c : 1);
    const double size = b.size, blocks = b.count;
    const double heads = k->n * k->q / k->m->head_dim / (ring ? 1 : k->c), rate = k->x->product_rate;
    if (k->x->block_seconds + k->x->score_seconds > 0)
        return heads * blocks * (k->x->block_seconds + size * size * k->x->score_seconds);
    return heads * blocks *
           (par__plan_product(k->x, rate, size, size, k->m->head_dim, 1, 0) +
            par__plan_product(k->x, rate, size, k->m->head_dim, size, 1, 0));
}
// Attention itself, forward and backward. Causal.
static void par__plan_attention(const par__plan_case *k, int ulysses, double t[2]) {
    const double s = k->j->sequence, heads = k->n * k->q / k->m->head_dim, dim = k->m->head_dim;
    const double scores = heads * s * s / k->c, vectors = k->e * heads * dim * (s / k->c + s);
    if (!(k->j->unfused > 0)) {
        const double rate = k->x->attention_rate > 0 ? k->x->attention_rate : k->x->product_rate;
        const double fused = par__plan_max(2 * scores * dim / rate, 2 * vectors / k->x->memory_rate);
        t[0] = k->x->sm_count < 1 ? par__plan_block_attention(k, ulysses) : fused + k->x->kernel_seconds;
        t[1] = 2.5 * t[0];
        return;
    }
    const double bytes = k->e * scores + vectors, drop = k->j->dropout > 0 ? 2 * k->e + 1 : 0;
    const double product = par__plan_product(k->x, k->x->product_rate, s / k->c, s, dim, heads, bytes) +
                           par__plan_product(k->x, k->x->product_rate, s / k->c, dim, s, heads, bytes);
    t[0] = product + par__plan_pass(k->x, scores * 1.5 * k->e);
    t[1] = 2 * product + par__plan_pass(k->x, scores * 3 * k->e);
    if (drop > 0) {
        t[0] +=
            par__plan_pass(k->x, scores * drop) + (k->x->random_rate > 0 ? scores / k->x->random_rate : 0);
        t[1] += par__plan_pass(k->x, scores * drop);
    }
}
static void par__plan_layer_bytes(const par__plan_case *k, par__plan_layer *l) {
    const double tokens = k->rows * k->m->features / k->split, e = k->e; // of the residual stream
    const double mask = k->j->dropout > 0 ? tokens : 0;
    const double heads = k->n * k->q / k->m->head_dim;
    const double scores = heads * k->j->sequence * k->j->sequence / k->c;
    const double norms = 2 * e * tokens, up = k->m->gated ? 2 * k->hidden : k->hidden;
    const double act = e * k->rows * k->hidden;
    double *saved = l->saved;
    saved[0] =
        2 * e * tokens + norms + e * k->rows * (2 * k->q + 2 * k->kv) + 2 * mask + e * k->rows * up + act;
    if (k->code > 0) // inputs of products are kept in codes; attention's output in both
        saved[0] += k->code * k->rows * k->q - (e - k->code) / e * (norms + act);
    saved[1] = saved[0];
    if (k->j->unfused > 0) {
        saved[0] += scores * (k->j->dropout > 0 ? 2 * e + 1 : e);
    } else {
        saved[0] += 4 * k->rows * k->q / k->m->head_dim;
        saved[1] = saved[0] - (k->code > 0 ? k->code / e : 1) * (norms + act);
    }
    saved[2] = e * tokens;
    l->transient[0] = 0;
    l->transient[1] = saved[0] - saved[1];
    l->transient[2] = saved[0];
    const int whole = k->j->whole_messages > 0 && k->split <= 1;
    l->message = e * k->rows * k->m->features / (whole ? 1 : k->t); // else scattered, and gathered on arrival
    l->regather = k->split > 1 || whole ? 0 : par__plan_tp_gather(k, e * k->rows * k->m->features);
}
static void par__plan_ends(const par__plan_case *k, double gather, double scatter,
                           par__plan_layer *l) { // first and last stage
    const double tokens = k->rows * k->m->features / k->split, vocab = ceil(k->m->vocab / k->t);
    // reduce-scatters or all-reduces: of the embedding, which has one number that is not 0, of logits' inputs
    const double call = k->t > 1 ? k->x->call_seconds : 0, times = k->split > 1 ? 1 : 2;
    const double embedding = times * gather - (times - 1) * call, sums = times * scatter - (times - 1) * call;
    double t[3] = {0, 0, 0};
    par__plan_linear(k, k->x->product_rate, k->m->features, vocab, t);
    // the loss: one kernel reads logits, or many read and write them in f32
    const double loss_f = k->j->unfused > 0 ? 38 : 4 + k->e, loss_b = k->j->unfused > 0 ? 14 : 4 + k->e;
    const double logits = k->rows * vocab, rate = k->x->loss_rate;
    const double loss = rate > 0
                            ? logits / rate
                            : par__plan_pass(k->x, loss_f * logits) + par__plan_pass(k->x, loss_b * logits);
    l->first_f = par__plan_pass(k->x, 3 * k->e * tokens) + embedding;
    l->first_b = par__plan_pass(k->x, 10 * tokens) + (k->split > 1 ? gather : 0);
    l->last_f = par__plan_pass(k->x, 2 * k->e * tokens) + t[0] + loss / 2 + (k->split > 1 ? gather : 0) +
                3 * par__plan_tp_gather(k, 4 * k->t * k->rows);
    l->last_b = par__plan_pass(k->x, 5 * k->e * tokens) + t[1] + loss / 2 + sums;
    l->last_w = t[2];
    l->logits = k->rows * vocab * (4 + k->e);
    l->first_weights = vocab * k->m->features + (double)k->m->positions * k->m->features;
    l->last_weights = k->m->tied && k->p < 2 ? 0 : vocab * k->m->features;
}
static void par__plan_messages(const par__plan_case *k, double gather, double scatter, double dgrad,
                               double wgrad, par__plan_layer *l) {
    const double reduce = k->t > 1 ? 2 * scatter - k->x->call_seconds : 0; // an all-reduce
    l->tp_f = k->split > 1 ? 2 * (gather + scatter) : 2 * reduce;
    l->tp_b = l->tp_f; // all-reduces beside weight gradients
    l->late_b = 0;
    l->hide_b = wgrad;
    if (k->split > 1) {         // reduce-scatters beside them; the inputs are gathered again, beside dgrad;
        l->late_b = 2 * gather; // but nothing can run before the gradients of outputs are gathered
        l->hide_b += dgrad;
    }
}
// An all-to-all of Ulysses, with the copies that pack what is sent and unpack what is received.
static double par__plan_all_to_all(const par__plan_case *k, double bytes) {
    return par__plan_cp_gather(k, bytes) + 2 * par__plan_pass(k->x, 2 * bytes);
}
// The seconds that a GPU hides of a ring's hops in backward. key: of a hop of keys and values; gradient: of
// one of their gradients; block: of the backward of a block of attention. It has two kernels: for the
// gradients of keys and for those of queries (4 and 3 products of 7). The keys' first hop is beside these
// for its own keys; then each next hop of keys is beside both kernels of a block, that of gradients beside
// the second.
static double par__plan_ring_hides(double hops, double key, double gradient, double block) {
    const double queries = 3.0 / 7 * block; // seconds
    const double late = par__plan_max(block - queries, key) + gradient - block;
    return par__plan_min(key, queries) + (hops - 1) * (key + gradient - par__plan_max(late, 0)) +
           par__plan_min(gradient, queries);
}
// Context parallelism: keys and values go round a ring beside the blocks of attention, and their gradients in
// backward; or all-to-alls exchange sequence for heads (Ulysses), which nothing hides.
static void par__plan_context(const par__plan_case *k, int ulysses, const double attention[2],
                              par__plan_layer *l) {
    const double queries = k->e * k->rows * k->q, keys = k->e * k->rows * 2 * k->kv;
    const int is_gpu = k->x->sm_count >= 1;
    l->cp_f = 0;
    l->cp_b = 0;
    l->hide_cp_f = 0;
    l->hide_cp_b = 0;
    if (k->c < 2) return;
    if (ulysses) { // queries, keys and values, then the output; in backward again, and all of their gradients
        const double in = par__plan_all_to_all(k, queries + keys), out = par__plan_all_to_all(k, queries);
        const int whole = is_gpu && k->e < 4 && !(k->j->unfused > 0) && !(k->j->dropout > 0); // by cuDNN
        l->cp_f = in + out;
        l->cp_b = 2 * in + out; // with the outputs, or their dot products with their gradients
        l->cp_b += whole ? out : par__plan_cp_gather(k, 4 * k->rows * k->q / k->m->head_dim);
        return;
    }
    // c - 1 hops of keys and values, in backward again and as many of their gradients, in f32; each block
    // after the first is merged into the output, in f32, too
    const double hops = k->c - 1, merge = hops * par__plan_pass(k->x, 12 * k->rows * k->q);
    l->cp_f = par__plan_ring_gather(k, keys * k->c);
    const double gradients = par__plan_ring_gather(k, 4 / k->e * keys * k->c);
    l->cp_b = l->cp_f + gradients;
    l->hide_cp_f = attention[0] * hops / k->c;
    l->hide_cp_b = is_gpu ? par__plan_ring_hides(hops, l->cp_f / hops, gradients / hops, attention[1] / k->c)
                          : attention[1] * hops / k->c;
    l->f += merge;
    l->recompute[2] += merge;
    if (!is_gpu) { // a processor packs keys and values, and each hop is a call
        const double pack = par__plan_pass(k->x, 2 * keys), calls = (hops - 1) * k->x->call_seconds;
        l->cp_f += calls;
        l->cp_b += 2 * calls;
        l->f += pack;
        l->recompute[2] += pack;
        l->b += merge + pack;
    }
}
// Elements of a layer whose rank has q and kv features of queries and of keys, and `hidden` of the MLP.
static double par__plan_layer_weights(const par_plan_model *m, double q, double kv, double hidden) {
    const double h = m->features, up = m->gated ? 2 * hidden : hidden, norm = m->positions ? 2 * h : h;
    return h * (2 * q + 2 * kv + up + hidden) + 2 * norm + (m->has_bias ? q + 2 * kv + up + 2 * h : 0);
}
static par__plan_layer par__plan_layer_of(const par__plan_case *k, int ulysses) {
    par__plan_layer l;
    const par_plan_model *m = k->m;
    const double h = m->features, e = k->e, tokens = k->rows * h / k->split;
    const double up = m->gated ? 2 * k->hidden : k->hidden, mask = k->j->dropout > 0 ? 1 : 0;
    const double gather = par__plan_tp_gather(k, e * k->rows * h),
                 scatter = k->j->f32_sums > 0 && e < 4 ? par__plan_tp_gather(k, 4 * k->rows * h) : gather;
    double t[3] = {0, 0, 0}, attention[2];
    par__plan_linear(k, k->rate, h, k->q + 2 * k->kv, t);
    par__plan_linear(k, k->rate, k->q, h, t);
    par__plan_linear(k, k->rate, h, up, t);
    par__plan_linear(k, k->rate, k->hidden, h, t);
    par__plan_attention(k, ulysses, attention);
    const double norm = par__plan_pass(k->x, 2 * e * tokens);
    const double act = par__plan_pass(k->x, e * k->rows * (up + k->hidden));
    const double residual = par__plan_pass(k->x, (3 * e + mask) * tokens);
    const double rope = m->positions ? 0 : par__plan_pass(k->x, 2 * e * k->rows * (k->q + k->kv));
    const double forward = t[0] + attention[0] + 2 * norm + act + 2 * residual + rope;
    l.f = forward;
    l.b = t[1] + attention[1] + 2 * par__plan_pass(k->x, 8 * e * tokens) +
          par__plan_pass(k->x, e * k->rows * (2 * up + k->hidden)) + rope;
    if (mask > 0) l.b += 2 * par__plan_pass(k->x, (2 * e + 1) * tokens);
    if (m->has_bias) l.b += par__plan_pass(k->x, e * (k->rows * (k->q + 2 * k->kv + up) + 2 * tokens));
    l.w = t[2];
    l.recompute[0] = 0;
    l.recompute[1] = k->j->unfused > 0 ? attention[0] : 2 * norm + act;
    l.recompute[2] = forward;
    l.weights = par__plan_layer_weights(m, k->q, k->kv, k->hidden);
    if (k->j->separate_gradients > 0 && k->microbatches > 1)
        l.w += par__plan_pass(k->x, (2 * k->gradient_bytes + e) * l.weights);
    par__plan_layer_bytes(k, &l);
    par__plan_ends(k, gather, scatter, &l);
    par__plan_messages(k, gather, scatter, t[1], t[2], &l);
    par__plan_context(k, ulysses, attention, &l);
    return l;
}

// >>plan_stages ---------------------------------------------------------------------------------------------

typedef struct par__plan_times { // of a stage or a layer, for one microbatch: exposed seconds
    double f, r, b, w;           // F, recomputation, B, W as par_pipe.h has them: with their messages
    double tp, cp, offload;      // of these: messages
} par__plan_times;

static double par__plan_hidden(double message, double work, int overlaps) {
    return overlaps ? par__plan_min(message, work) : 0;
}
// A layer with its messages.
static par__plan_times par__plan_layer_times(const par__plan_case *k, const par__plan_layer *l,
                                             const par_plan_config *config) {
    par__plan_times t;
    const int full = config->recompute == PAR_PLAN_RECOMPUTE_FULL;
    const double cost = k->x->overlap_cost;
    const double beside = l->hide_b - (par__plan_splits(config) ? l->w : 0);
    const double hidden = par__plan_hidden(l->tp_b, beside, config->overlap & PAR_PLAN_OVERLAP_TP);
    const double ring_f = par__plan_hidden(l->cp_f, l->hide_cp_f, 1);
    const double ring_b = par__plan_hidden(l->cp_b, l->hide_cp_b, 1);
    const double tp_f = l->tp_f, tp_b = l->tp_b + l->late_b - hidden;
    const double cp_f = l->cp_f - ring_f, cp_b = l->cp_b - ring_b;
    t.tp = tp_f + tp_b + (full ? tp_f : 0);
    t.cp = cp_f + cp_b + (full ? cp_f : 0);
    t.f = l->f + tp_f + cp_f + cost * ring_f;
    t.r = l->recompute[config->recompute] + (full ? tp_f + cp_f + cost * ring_f : 0);
    t.b = l->b + tp_b + cp_b + cost * (hidden + ring_b);
    t.w = l->w + (par__plan_splits(config) ? k->x->split_cost * (l->f + l->b + l->w) : 0);
    t.offload = 0;
    if (config->offload & PAR_PLAN_OFFLOAD_ACTIVATIONS) { // out in forward, back in backward
        const double bytes = l->saved[config->recompute], copy = bytes / k->x->memory_rate;
        const double rate =
            k->x->host_rate > 0 ? par__plan_min(k->x->host_bandwidth, k->x->host_rate) : k->x->host_bandwidth;
        const double out = par__plan_max(bytes / rate - t.f, 0) + copy;
        const double back = par__plan_max(bytes / rate - t.b - t.w, 0) + copy;
        t.f += out;
        t.b += back;
        t.offload = out + back;
    }
    return t;
}

typedef struct par__plan_cut { // layers of the first, a middle and the last rank; the slowest of them
    double first, middle, last;
    double slowest_layers, ends; // of the slowest rank: layers; seconds of embedding or head
    double slowest, sum;         // seconds of a microbatch: on the slowest rank, of all ranks
    double less_last;            // layers that the last of several chunks gives up
    int at;                      // 0: first, 1: middle, 2: last
} par__plan_cut;

static double par__plan_layers_within(double seconds, double layer) { // layers that take at most so long
    const double n = seconds / layer + 1e-9;
    return n < 0 ? 0 : (double)(int64_t)n;
}
// Cuts layers for ranks with v chunks each. Ranks go through their chunks in step, so what the first or the
// last chunk has more than others keeps all ranks waiting: the longer of them gives up layers, at most all
// that it has.
static void par__plan_cut_chunks(double layers, double p, double v, int both, int equal, double layer,
                                 double first, double last, par__plan_cut *cut) {
    const double fewest = par__plan_ceil(layers, p);
    cut->slowest = 1e300;
    cut->at = 1;
    for (double n = fewest; n < fewest + 3 && n * layer < cut->slowest; n++) {
        const double chunk = equal ? 0 : par__plan_layers_within(n * layer / v, layer);
        double ends[2] = {first, last}, less[2] = {0, 0}; // seconds besides n layers; layers given up
        for (double spare = n * p - layers; spare >= 1; spare--) {
            const int longer = ends[1] >= ends[0];
            if (ends[longer] <= 0 || less[longer] >= chunk) break;
            ends[longer] -= layer;
            less[longer]++;
        }
        const double more = par__plan_max(par__plan_max(ends[0], ends[1]), 0);
        if (n * layer + more >= cut->slowest) continue;
        cut->slowest = n * layer + more;
        cut->slowest_layers = n;
        cut->ends = more;
        cut->less_last = less[1];
        cut->first = n - less[0] - (both ? less[1] : 0);
        cut->middle = n;
        cut->last = n - (both ? 0 : less[1]);
    }
}
// Cuts L layers of `layer` seconds, with `first` and `last` seconds for embedding and head, over p ranks so
// that the slowest rank is as fast as possible. both: embedding and head are on the first rank.
static par__plan_cut par__plan_cut_of(double layers, double p, double v, int both, int equal, double layer,
                                      double first, double last) {
    par__plan_cut cut;
    cut.less_last = 0;
    cut.sum = layers * layer + first + last;
    if (p < 2) {
        cut.first = cut.middle = cut.last = cut.slowest_layers = layers;
        cut.slowest = cut.sum;
        cut.ends = first + last;
        cut.at = 0;
        return cut;
    }
    if (v > 1) {
        par__plan_cut_chunks(layers, p, v, both, equal, layer, first, last, &cut);
        return cut;
    }
    cut.first = cut.middle = cut.last = par__plan_ceil(layers, p);
    if (!equal) { // the slowest rank has whole layers, and perhaps embedding or head
        const double least = par__plan_max(first, last);
        const double x = first - layer * par__plan_layers_within(first, layer),
                     y = last - layer * par__plan_layers_within(last, layer);
        const double rest[3] = {0, par__plan_min(x, y), par__plan_max(x, y)};
        double n = par__plan_max(cut.middle, par__plan_layers_within(least, layer));
        for (int found = 0; !found; n++)
            for (int i = 0; i < 3 && !found; i++) {
                const double limit = n * layer + rest[i];
                if (limit < least) continue;
                cut.middle = par__plan_layers_within(limit, layer);
                cut.first = par__plan_layers_within(limit - first, layer);
                cut.last = par__plan_layers_within(limit - last, layer);
                found = (p - 2) * cut.middle + cut.first + cut.last >= layers;
            }
    }
    const double at[3] = {cut.first * layer + first, p > 2 ? cut.middle * layer : 0, cut.last * layer + last};
    const double count[3] = {cut.first, cut.middle, cut.last};
    cut.at = at[1] >= at[0] ? 1 : 0;
    if (at[2] > at[cut.at]) cut.at = 2;
    cut.slowest = at[cut.at];
    cut.slowest_layers = count[cut.at];
    cut.ends = cut.at == 0 ? first : cut.at == 2 ? last : 0;
    return cut;
}

// The cut of a configuration. Where every stage is on two ranks, each end has half of the microbatches, and
// stages are equal.
static par__plan_cut par__plan_cut_for(const par__plan_case *k, const par_plan_config *c, double layer,
                                       double first, double last) {
    const int bidirectional = par__plan_is_bidirectional(c);
    const double half = (first + last) / 2;
    return par__plan_cut_of(k->m->layers, k->p, k->v, par__plan_has_both_ends(c),
                            bidirectional || k->j->equal_layers > 0, layer, bidirectional ? half : first,
                            bidirectional ? half : last);
}

typedef struct par__plan_halves { // seconds of a microbatch: forward, and the halves of backward
    double f, b, w;
} par__plan_halves;
// What formulas of schedules count with: x is a microbatch on all ranks but the slowest, own_f its forward
// there.
static par_pipe_costs par__plan_costs(const par__plan_case *k, double v, par__plan_halves x, double own_f) {
    par_pipe_costs costs;
    costs.ranks = k->p;
    costs.microbatches = k->microbatches;
    costs.chunks = v;
    costs.f = x.f;
    costs.b = x.b;
    costs.w = x.w;
    costs.own_f = own_f;
    costs.message = 0;
    costs.in_flight = k->live;
    return costs;
}
// Messages of activations between stages, c seconds each. Blocking sends cost two messages per microbatch and
// chunk, and the host's waits.
static double par__plan_between(const par__plan_case *k, const par_plan_config *config, double c) {
    const par__plan_halves none = {0, 0, 0};
    par_pipe_costs costs = par__plan_costs(k, k->v, none, 0);
    costs.message = c;
    if (k->p < 2) return 0;
    if (config->overlap & PAR_PLAN_OVERLAP_PP) return par__plan_schedule(config)->messages(&costs);
    return 2 * k->microbatches * k->v * (c + k->x->sync_seconds) + 2 * (k->p - 1) * c;
}
// Microbatches of which rank r has activations, in units of its whole share of the model. Where backward is
// split the weight halves keep what they need.
static double par__plan_in_flight(const par__plan_case *k, const par_plan_config *c, double r) {
    const par__plan_halves none = {0, 0, 0};
    const par_pipe_costs costs = par__plan_costs(k, k->v, none, 0);
    return par__plan_schedule(c)->in_flight(&costs, r);
}

// >>plan_memory ---------------------------------------------------------------------------------------------

// ZeRO stages 2 and 3 reduce the gradients of each microbatch, and keep shards; but where a schedule splits
// backward a rank adds up whole gradients, and reduces them once, as stage 1 does.
static int par__plan_shards_gradients(const par_plan_config *c) {
    return c->zero >= 2 && !par__plan_splits(c);
}
static double par__plan_copies(const par_plan_config *c) { // ranks of a pipeline that have a stage
    return par__plan_is_bidirectional(c) ? 2 : 1;
}
typedef struct par__plan_held { // elements that a rank has of the model, before ZeRO shards them
    double parameters, gradients;
} par__plan_held;
// A rank with both ends of a pipeline has a tied weight once, but two gradients of it: they come at different
// times.
static par__plan_held par__plan_held_of(const par__plan_case *k, const par__plan_layer *l,
                                        const par_plan_config *c, double layers, int is_first, int is_last) {
    const double head = is_last ? l->last_weights : 0;
    par__plan_held held;
    held.gradients = par__plan_copies(c) * layers * l->weights + (is_first ? l->first_weights : 0) + head;
    held.parameters = held.gradients - (k->m->tied && is_first ? head : 0);
    return held;
}
static double par__plan_memory_of(const par__plan_case *k, const par__plan_layer *l, const par_plan_config *c,
                                  double layers, double rank, int is_first, int is_last,
                                  par_plan_prediction *p) {
    const par__plan_held held = par__plan_held_of(k, l, c, layers, is_first, is_last);
    const double ends = (is_first ? l->first_weights : 0) + (is_last ? l->last_weights : 0);
    const double copies = par__plan_copies(c), shard = copies * c->shard, params = c->zero >= 3 ? shard : 1;
    const int shards_gradients = par__plan_shards_gradients(c);
    const double live = par__plan_in_flight(k, c, rank);
    double saved = l->saved[c->recompute] * layers * live;
    const double states = k->state_bytes * held.parameters / (c->zero >= 1 ? shard : 1);
    const int whole = par__plan_splits(c) || k->j->unfused > 0; // else par_tp_head_forward_...
    const double logits = l->logits * (whole ? 1 : par__plan_min(1, (double)PAR_TP_CHUNK_ROWS / k->rows));
    double buffers = l->transient[c->recompute] + 4 * l->message * k->split + (is_last ? logits : 0);
    p->memory.host = 0;
    if (c->offload & PAR_PLAN_OFFLOAD_ACTIVATIONS) { // two layers are under way
        p->memory.host = saved;
        saved = par__plan_min(saved, 2 * l->saved[c->recompute]);
    }
    if (c->offload & PAR_PLAN_OFFLOAD_STATES) p->memory.host += states;
    p->memory.disk = c->offload & PAR_PLAN_OFFLOAD_DISK ? states : 0;
    if (shards_gradients) buffers += 2 * k->gradient_bytes * par__plan_max(l->weights, ends / 2);
    if (c->zero >= 3) buffers += 2 * k->e * par__plan_max(l->weights, ends / 2);
    if (is_first && k->j->dropout > 0) saved += k->rows * k->m->features / k->split * live;
    p->memory.parameters = (k->e * held.parameters + copies * 2 * k->code * layers * l->weights) / params;
    p->memory.gradients = k->gradient_bytes * held.gradients / (shards_gradients ? shard : 1);
    p->memory.states = c->offload & (PAR_PLAN_OFFLOAD_STATES | PAR_PLAN_OFFLOAD_DISK) ? 0 : states;
    p->memory.activations = saved;
    p->memory.buffers = buffers;
    p->bytes = p->memory.parameters + p->memory.gradients + p->memory.states + saved + buffers;
    return p->bytes;
}
static void par__plan_memory(const par__plan_case *k, const par__plan_layer *l, const par_plan_config *c,
                             const par__plan_cut *cut, par_plan_prediction *p) {
    par_plan_prediction other;
    const int ranks = (int)par__plan_min(k->p, 3), both = par__plan_has_both_ends(c);
    const double layers[3] = {cut->first, ranks < 3 ? cut->last : cut->middle, cut->last};
    double host = 0, disk = 0;
    p->bytes = 0;
    for (int i = 0; i < ranks; i++) { // the first rank, one in the middle, the last
        const int is_last = both || ranks < 2 ? i == 0 : i == ranks - 1;
        par__plan_memory_of(k, l, c, layers[i], i < 2 ? i : k->p - 1, i == 0, is_last, &other);
        host = par__plan_max(host, other.memory.host);
        disk = par__plan_max(disk, other.memory.disk);
        if (other.bytes <= p->bytes) continue;
        p->bytes = other.bytes;
        p->memory = other.memory;
    }
    p->memory.host = host;
    p->memory.disk = disk;
    const double live = par__plan_in_flight(k, c, 0);
    p->in_flight = live;
    const double all = (k->m->layers * l->weights + l->first_weights + l->last_weights) / k->p;
    p->layer_activation_bytes = l->saved[c->recompute] * cut->first * live;
    p->mean_state_bytes = all * (k->e / (c->zero >= 3 ? c->shard : 1) +
                                 k->gradient_bytes / (par__plan_shards_gradients(c) ? c->shard : 1) +
                                 k->state_bytes / (c->zero >= 1 ? c->shard : 1));
    p->fits = p->bytes <= k->capacity && (k->x->host_bytes <= 0 || p->memory.host <= k->x->host_bytes) &&
              p->memory.disk <= k->x->disk_bytes;
}

// With schedule "auto": as many microbatches in flight as the memory allows that is left.
static double par__plan_auto_live(const par__plan_case *k, const par__plan_layer *l, const par_plan_config *c,
                                  const par__plan_cut *cut) {
    const double most = par__plan_min(2 * k->p - 1, k->microbatches);
    par__plan_case one = *k;
    par_plan_prediction p, q;
    memset(&p, 0, sizeof p);
    memset(&q, 0, sizeof q);
    one.live = 1;
    par__plan_memory(&one, l, c, cut, &p);
    one.live = 2;
    par__plan_memory(&one, l, c, cut, &q);
    const double each = q.bytes - p.bytes, room = k->capacity - p.bytes;
    return !(each > 0) ? most : par__plan_max(par__plan_min(1 + floor(room / each), most), 1);
}

// >>plan_step -----------------------------------------------------------------------------------------------

static double par__plan_gathers(const par_plan_job *j, const par_plan_config *c) { // of ZeRO-3, a microbatch
    return j->gathers_again > 0 && c->recompute == PAR_PLAN_RECOMPUTE_FULL ? 3 : 2;
}
// Gradients and parameters of a rank: exposed seconds of a step. Where they overlap, the gradients of a layer
// are reduced beside the backward of the others, in the last microbatch (where gradients are sharded: in
// each), and parameters are gathered beside computation that does not need them yet.
static double par__plan_gradients(const par__plan_case *k, const par_plan_config *c, double layers,
                                  par__plan_held held, const par__plan_times *layer) {
    const par_plan_machine *x = k->x;
    const int overlaps = (c->overlap & PAR_PLAN_OVERLAP_DP) != 0;
    par__plan_group group = c->zero ? k->shard : k->dp;
    group.ranks *= par__plan_copies(c);
    const double bytes = k->gradient_bytes * held.gradients;
    const double calls = layers + 2;                             // of the units: layers, embedding, head
    const double passes = k->microbatches / par__plan_copies(c); // of a stage on a rank
    const double used = c->zero >= 3 ? held.gradients : held.parameters; // a tied head is gathered again
    const double sums = c->zero ? par__plan_all_reduce(x, k->copies, bytes / group.ranks, calls) : 0;
    const int early = k->j->sums_copies_early > 0; // then with each reduction
    const double reduce =
        (c->zero ? par__plan_gather(x, group, bytes, calls) : par__plan_all_reduce(x, group, bytes, calls)) +
        (early ? sums : 0);
    const double gather = c->zero ? par__plan_gather(x, group, k->e * used, calls) : 0;
    const double again = par__plan_gathers(k->j, c) - 1; // in backward
    const double units = par__plan_max(layers, 1), backward = (layer->r + layer->b + layer->w) * (units - 1);
    const double reductions = par__plan_shards_gradients(c) ? passes : 1;
    const double gathers = c->zero >= 3 ? (1 + again) * passes : 1;
    const double forward = layer->f * (units - 1);
    double exposed = reductions * reduce + (early ? 0 : sums) + gathers * gather;
    if (group.ranks < 2) return 0;
    if (!overlaps) return exposed;
    // one unit has nothing left to hide behind
    const double hidden_reduce = par__plan_min(reduce * (units - 1) / units, backward);
    const double busy = c->zero >= 3 ? par__plan_max(backward - hidden_reduce, 0) : 0;
    const double hidden_gather = par__plan_min(gather * (units - 1) / units, forward);
    const double hidden_again = par__plan_min(again * gather * (units - 1) / units, busy);
    const double hidden =
        reductions * hidden_reduce + (c->zero >= 3 ? passes * (hidden_gather + hidden_again) : hidden_gather);
    return exposed - hidden * (1 - x->overlap_cost);
}
// The first and the last stage have copies of a tied weight, each rank with its part: they add up the
// gradients.
static double par__plan_tied(const par__plan_case *k, const par_plan_config *c, double elements) {
    par__plan_group ends;
    if (!k->m->tied || k->p < 2 || par__plan_has_both_ends(c)) return 0;
    ends.ranks = 2;
    ends.inside = k->x->nodes > 1 ? 1 : 2;
    return par__plan_all_reduce(k->x, ends, k->gradient_bytes * elements / (c->zero ? c->shard : 1), 1);
}
// The update, and what moves for it: to the host gradients, back parameters; states on disks are read and
// written beside the update.
static double par__plan_update(const par__plan_case *k, const par_plan_config *c, double weights,
                               double *offload) {
    const double mine = weights / (c->zero >= 1 ? par__plan_copies(c) * c->shard : 1);
    const double bytes = k->j->update_bytes > 0 ? k->j->update_bytes : 58;
    const double rate = k->x->update_rate > 0 ? k->x->update_rate : k->x->memory_rate;
    *offload = 0;
    if (!(c->offload & (PAR_PLAN_OFFLOAD_STATES | PAR_PLAN_OFFLOAD_DISK))) return mine * bytes / rate;
    const double update = mine * bytes / k->x->host_rate;
    *offload =
        mine * par__plan_max(k->gradient_bytes, k->e) / k->x->host_bandwidth; // both directions at once
    if (c->offload & PAR_PLAN_OFFLOAD_DISK)
        *offload += par__plan_max(mine * 2 * k->state_bytes / k->x->disk_rate - update, 0);
    return update;
}
typedef struct par__plan_base { // what does not depend on the ZeRO stage and its group
    par__plan_times layer;
    par__plan_cut cut;
    par__plan_held held;     // of the rank that has most of embedding and head
    double tied;             // elements of a weight of which the first and the last stage may have copies
    par__plan_halves others; // of a microbatch: what ranks but the slowest compute
    double own_f;            // forward of the slowest
    double compute;          // of the slowest: times.compute if ranks do not share processors
    double host, messages;   // seconds of activations: to and from the host; between stages
    par_plan_prediction p;   // times but those of gradients, parameters and the update; the sum of these
} par__plan_base;

static double par__plan_sum(const par_plan_prediction *p) {
    double sum = 0;
#define PAR__X(member, what) sum += p->times.member;
    PAR_PLAN_TIMES(PAR__X)
#undef PAR__X
    return sum;
}
// What all ranks but the slowest compute of a microbatch.
static par__plan_halves par__plan_others(const par__plan_case *k, const par__plan_layer *l,
                                         const par__plan_times *t, const par__plan_cut *cut) {
    const double layers = k->m->layers - cut->slowest_layers;
    par__plan_halves x;
    x.f = layers * t->f + (cut->at == 0 ? 0 : l->first_f) + (cut->at == 2 ? 0 : l->last_f);
    x.w = layers * t->w + (cut->at == 2 ? 0 : l->last_w);
    x.b = par__plan_max(cut->sum - cut->slowest - x.f - x.w, 0);
    return x;
}
// Where ranks share processors a rank that waits leaves its time to the others: of the slowest rank's `busy`
// seconds and the bubble remain `all`.
static void par__plan_share_time(par_plan_prediction *p, double busy, double all) {
    p->times.bubble = par__plan_max(all - busy, 0);
    p->times.compute += par__plan_min(all - busy, 0);
}
static void par__plan_add_bubble(const par__plan_case *k, const par_plan_config *c, par__plan_base *base) {
    par_plan_prediction *p = &base->p;
    const double m = k->microbatches, busy = m * base->cut.slowest;
    p->times.compute = base->compute;
    p->times.bubble = 0;
    if (k->p > 1) {
        const par_pipe_costs costs = par__plan_costs(k, k->v, base->others, base->own_f);
        p->times.bubble = par__plan_schedule(c)->bubble(&costs);
    }
    if (k->oversubscription > 1 && k->p > 1) {
        // no less than all work, nor than the longest chain at a rank's full speed, there and back
        const double chain = (busy + p->times.bubble) / k->oversubscription,
                     wakes = 2 * (k->p - 1) * k->x->wake_seconds;
        par__plan_share_time(p, busy, par__plan_max(m * base->cut.sum / k->p, chain + wakes));
    }
    p->seconds = par__plan_sum(p);
}
static void par__plan_base_of(const par__plan_case *k, const par__plan_layer *l, const par_plan_config *c,
                              par__plan_base *base) {
    par_plan_prediction *p = &base->p;
    const par__plan_times t = par__plan_layer_times(k, l, c);
    const double layer = t.f + t.r + t.b + t.w, m = k->microbatches, layers = k->m->layers;
    const double first = l->first_f + l->first_b, last = l->last_f + l->last_b + l->last_w;
    const par__plan_cut cut = par__plan_cut_for(k, c, layer, first, last);
    const double n = cut.slowest_layers;
    const par__plan_halves others = par__plan_others(k, l, &t, &cut);
    const int both = par__plan_has_both_ends(c);
    const double wake = k->oversubscription > 1 ? 0 : k->x->wake_seconds; // else: par__plan_add_bubble
    const double message = par__plan_send(k->x, k->pp_between_nodes, l->message) + l->regather + wake;
    memset(p, 0, sizeof *p);
    base->layer = t;
    base->cut = cut;
    const par__plan_held at_first = par__plan_held_of(k, l, c, cut.first, 1, k->p < 2 || both),
                         at_last = par__plan_held_of(k, l, c, cut.last, k->p < 2, !both);
    base->held.parameters = par__plan_max(at_first.parameters, at_last.parameters);
    base->held.gradients = par__plan_max(at_first.gradients, at_last.gradients);
    base->tied = l->last_weights;
    base->host = m * n * t.offload;
    p->times.recompute = m * n * l->recompute[c->recompute];
    p->times.tp = m * n * t.tp;
    p->times.cp = m * n * t.cp;
    p->times.offload = base->host;
    p->times.compute =
        m * (n * layer + cut.ends) - p->times.recompute - p->times.tp - p->times.cp - base->host;
    base->others = others;
    base->own_f = n * t.f + (cut.at == 0 ? l->first_f : cut.at == 2 ? l->last_f : 0);
    base->compute = p->times.compute;
    p->times.pp = par__plan_between(k, c, message);
    base->messages = p->times.pp;
    p->forward = (layers * t.f + l->first_f + l->last_f) / k->p;
    p->backward = (layers * (t.r + t.b) + l->first_b + l->last_b) / k->p;
    p->weight = (layers * t.w + l->last_w) / k->p;
    p->microbatches = (int)m;
    par__plan_add_bubble(k, c, base);
}
// The times of a ZeRO stage and its group.
static void par__plan_finish(const par__plan_case *k, const par_plan_config *c, par__plan_base *base) {
    par_plan_prediction *p = &base->p;
    double host;
    p->times.pp = base->messages + par__plan_tied(k, c, base->tied);
    p->times.dp = par__plan_gradients(k, c, base->cut.slowest_layers, base->held, &base->layer);
    p->times.update = par__plan_update(k, c, base->held.parameters, &host);
    p->times.offload = base->host + host;
    p->seconds = par__plan_sum(p);
}
double par_plan_parameters(const par_plan_model *model) {
    par_plan_model m = *model;
    par__plan_model_defaults(&m);
    const double h = m.features, q = (double)m.heads * m.head_dim;
    const double layer = par__plan_layer_weights(&m, q, (double)m.kv_heads * m.head_dim, m.hidden);
    return layer * m.layers + h * ((m.tied ? 1.0 : 2.0) * m.vocab + m.positions) + h * (m.positions ? 2 : 1);
}
double par_plan_flops(const par_plan_problem *problem) {
    const par_plan_problem with = par__plan_with_defaults(problem);
    const par_plan_model *m = &with.model;
    const double q = (double)m->heads * m->head_dim, kv = (double)m->kv_heads * m->head_dim;
    const double tokens = problem->job.batch * problem->job.sequence;
    const double layer = (double)m->features * (2 * q + 2 * kv + (m->gated ? 3.0 : 2.0) * m->hidden);
    return 6 * tokens *
           (m->layers * (layer + 2 * q * problem->job.sequence) + (double)m->features * m->vocab);
}
static int par__plan_ranks(const par_plan_problem *p) {
    return (int)(par__plan_max(p->machine.nodes, 1) * par__plan_max(p->machine.gpus_per_node, 1));
}
static void par__plan_rates(const par_plan_problem *problem, par_plan_prediction *p) {
    p->tokens_per_second = problem->job.batch * problem->job.sequence / p->seconds;
    p->flops_per_gpu = par_plan_flops(problem) / p->seconds / par__plan_ranks(problem);
    p->mfu = problem->machine.peak > 0 ? p->flops_per_gpu / problem->machine.peak : 0;
}
void par_plan_evaluate(const par_plan_problem *problem, const par_plan_config *config,
                       par_plan_prediction *prediction) {
    const par_plan_problem p = par__plan_with_defaults(problem);
    const par_plan_config c = par__plan_config_of(config);
    par__plan_case k = par__plan_case_of(&p, &c);
    const par__plan_layer l = par__plan_layer_of(&k, c.ulysses);
    par__plan_base base;
    par__plan_base_of(&k, &l, &c, &base);
    if (c.schedule == PAR_PIPE_AUTO) {
        k.live = par__plan_auto_live(&k, &l, &c, &base.cut);
        par__plan_add_bubble(&k, &c, &base);
    }
    par__plan_finish(&k, &c, &base);
    par__plan_memory(&k, &l, &c, &base.cut, &base.p);
    *prediction = base.p;
    par__plan_rates(&p, prediction);
}
typedef struct par__plan_time {
    const char *name;
    double seconds;
} par__plan_time;
static par__plan_time par__plan_largest(const par_plan_prediction *p) { // of times
    par__plan_time t = {"compute", 0};
#define PAR__X(member, what)                                                                                 \
    if (p->times.member > t.seconds) {                                                                       \
        t.name = #member;                                                                                    \
        t.seconds = p->times.member;                                                                         \
    }
    PAR_PLAN_TIMES(PAR__X)
#undef PAR__X
    return t;
}
const char *par_plan_bound_by(const par_plan_prediction *p) { return par__plan_largest(p).name; }

double par_plan_activation_room(const par_plan_problem *problem, const par_plan_prediction *p) {
    return par__plan_max(par__plan_capacity(problem) - p->bytes + p->memory.activations, 0);
}

// >>plan_fit ------------------------------------------------------------------------------------------------
// Each rate follows from one measurement and from the rates before it, so none is guessed. What the measured
// layer takes beyond its products is bytes over memory_rate.

// The size f with which half of the rate is reached, from two products that differ in one size, n and a part
// of it: the ratio of their times is (part + f) / (n + f).
static double par__plan_half(double n, double part, double ratio) {
    const double half = ratio < 1 ? (ratio * n - part) / (1 - ratio) : 0;
    return par__plan_min(par__plan_max(half, 0), 4 * n);
}
static int par__plan_ulysses_divides(const par_plan_model *m, const par_plan_config *c) {
    const int kv = m->kv_heads / c->tp < 1 ? 1 : m->kv_heads / c->tp;
    return c->cp > 1 && m->heads / c->tp % c->cp == 0 && kv % c->cp == 0;
}
typedef struct par__plan_probe { // seconds on one rank: of a layer, and of what is before and after them
    double layer, ends;
} par__plan_probe;
static par__plan_probe par__plan_probe_of(const par_plan_problem *problem, double microbatch, int tp, int cp,
                                          int ulysses) {
    par_plan_problem one = *problem;
    par_plan_config c;
    par__plan_probe t;
    memset(&c, 0, sizeof c);
    c.tp = tp;
    c.cp = cp;
    c.pp = c.dp = c.chunks = c.shard = 1;
    c.microbatch = (int)microbatch;
    one.machine.nodes = 1;
    one.machine.gpus_per_node = tp * cp;
    one.job.batch = microbatch;
    const par__plan_case k = par__plan_case_of(&one, &c);
    const par__plan_layer l = par__plan_layer_of(&k, ulysses);
    const par__plan_times s = par__plan_layer_times(&k, &l, &c);
    t.layer = s.f + s.b + s.w;
    t.ends = l.first_f + l.first_b + l.last_f + l.last_b + l.last_w;
    return t;
}
static void par__plan_fit_products(par_plan_machine *x, const par_plan_measured *m) {
    const par_plan_product *p = m->products;
    x->product_rate = 1e12;
    x->memory_rate = 1e30;
    if (x->sm_count < 1) {
        const double call = par__plan_min(p[4].seconds, p[0].seconds / 2), large = p[0].seconds - call;
        x->rows_half = par__plan_half(p[0].rows, p[1].rows, (p[1].seconds - call) / large);
        x->columns_half = par__plan_half(p[0].columns, p[2].columns, (p[2].seconds - call) / large);
        x->inner_half = par__plan_half(p[0].inner, p[3].inner, (p[3].seconds - call) / large);
        x->kernel_seconds = call;
    }
    const double seconds =
        par__plan_product(x, x->product_rate, p[0].rows, p[0].columns, p[0].inner, 1, 0) - x->kernel_seconds;
    x->product_rate *= seconds / par__plan_max(p[0].seconds - x->kernel_seconds, 1e-12);
}
static double par__plan_bandwidth(const par_plan_message *m) { // of the ring that an all_reduce stands for
    return 2 * m->bytes * (m->ranks - 1) / m->ranks /
           par__plan_max(m->seconds - m->small_seconds, m->seconds / 10);
}
// Sets *rate, at most `most`, so that a layer that ranks share takes so many seconds. The layer's time is
// linear in the seconds of a byte: tries none and one.
static void par__plan_fit_rate(const par_plan_problem *problem, double *rate, double most,
                               const par_plan_measured *m, int tp, int cp, int ulysses, double seconds) {
    if (!(seconds > 0) || tp * cp < 2) return;
    *rate = 1e30;
    const double without = par__plan_probe_of(problem, m->shared_microbatch, tp, cp, ulysses).layer;
    *rate = 1;
    const double with = par__plan_probe_of(problem, m->shared_microbatch, tp, cp, ulysses).layer;
    const double byte = (seconds - without) / (with - without);
    *rate = byte * most > 1 ? 1 / byte : most;
}
// What embedding and head, handed from rank to rank, take beside themselves, on a processor of their own, and
// their message.
static double par__plan_wake(const par_plan_problem *problem, const par_plan_measured *m) {
    const double tokens = m->microbatch * problem->job.sequence, e = problem->job.element_bytes;
    const double bytes = tokens * problem->model.features * (e > 0 ? e : 2);
    const double work = m->embedding_head_seconds / par__plan_max(m->oversubscription, 1);
    return par__plan_max(m->relay_seconds - work - par__plan_send(&problem->machine, 0, bytes), 0);
}
static void par__plan_fit_links(par_plan_problem *problem, const par_plan_measured *m) {
    par_plan_machine *x = &problem->machine;
    if (m->node.ranks > 1) {
        x->node_latency = 0;
        x->node_bandwidth = par__plan_bandwidth(&m->node);
        x->call_seconds = m->node.small_seconds;
    }
    const int ranks = (int)m->node.ranks;
    const double most = x->node_bandwidth;
    par__plan_fit_rate(problem, &x->tp_bandwidth, most, m, ranks, 1, 0, m->shared_layer_seconds);
    par__plan_fit_rate(problem, &x->cp_bandwidth, most, m, 1, ranks, 1, m->ulysses_layer_seconds);
    par__plan_fit_rate(problem, &x->ring_bandwidth, most, m, 1, ranks, 0, m->ring_layer_seconds);
    if (m->relay_seconds > 0) x->wake_seconds = par__plan_wake(problem, m);
    x->net_latency = x->node_latency; // one node: nothing crosses a network
    x->net_bandwidth = x->node_bandwidth;
    if (m->net.ranks < 2) return;
    const double inside = par__plan_max(x->gpus_per_node, 1), nodes = par__plan_max(m->net.ranks / inside, 2);
    x->net_latency = par__plan_max(m->net.small_seconds - m->node.small_seconds, 0) / 2 / (nodes - 1);
    x->net_bandwidth = par__plan_bandwidth(&m->net) / inside; // its ranks share the link
}
// The rate at which a layer on one rank takes so long. A higher rate is faster.
static void par__plan_bisect(par_plan_problem *problem, double *rate, double microbatch, double seconds) {
    double low = 0, high = 30; // powers of ten
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        *rate = pow(10, middle);
        if (par__plan_probe_of(problem, microbatch, 1, 1, 0).layer > seconds)
            low = middle;
        else
            high = middle;
    }
}
// The seconds of a layer are a rest + blocks x block_seconds + scores x score_seconds: three measurements,
// with sequences of different lengths, tell them apart. Backward is 2.5 times forward.
static void par__plan_fit_blocks(par_plan_problem *problem, const par_plan_measured *m) {
    par_plan_machine *x = &problem->machine;
    double blocks[3], scores[3], seconds[3];
    x->block_seconds = x->score_seconds = 0;
    if (x->sm_count >= 1 || !(m->shorter[0].layer_seconds > 0) || !(m->shorter[1].layer_seconds > 0)) return;
    for (int i = 0; i < 3; i++) {
        const double s = i ? m->shorter[i - 1].sequence : problem->job.sequence;
        const par__plan_blocks b = par__plan_blocks_of(s, 1);
        blocks[i] = m->microbatch * problem->job.sequence / s * problem->model.heads * b.count;
        scores[i] = blocks[i] * b.size * b.size;
        seconds[i] = (i ? m->shorter[i - 1].layer_seconds : m->layer_seconds) / 3.5;
    }
    const double b[2] = {blocks[0] - blocks[1], blocks[1] - blocks[2]},
                 c[2] = {scores[0] - scores[1], scores[1] - scores[2]},
                 t[2] = {seconds[0] - seconds[1], seconds[1] - seconds[2]};
    const double determinant = b[0] * c[1] - b[1] * c[0];
    if (fabs(determinant) <= 0) return;
    x->block_seconds = par__plan_max((t[0] * c[1] - t[1] * c[0]) / determinant, 0);
    x->score_seconds = par__plan_max((b[0] * t[1] - b[1] * t[0]) / determinant, 0);
    const double all = blocks[0] * x->block_seconds + scores[0] * x->score_seconds;
    if (all > seconds[0] / 2) { // noise: attention is not most of a layer's blocks of 128
        x->block_seconds *= seconds[0] / 2 / all;
        x->score_seconds *= seconds[0] / 2 / all;
    }
}
// Measurements whose seconds of a processor have become seconds by the clock.
static par_plan_measured par__plan_by_the_clock(const par_plan_measured *measured) {
    par_plan_measured m = *measured;
    const double slowdown = par__plan_max(m.slowdown, par__plan_max(m.oversubscription, 1));
    for (int i = 0; i < 5; i++) m.products[i].seconds *= slowdown;
    for (int i = 0; i < 2; i++) m.shorter[i].layer_seconds *= slowdown;
    m.layer_seconds *= slowdown;
    m.split_layer_seconds *= slowdown;
    m.embedding_head_seconds *= slowdown;
    m.update_seconds *= slowdown;
    return m;
}
void par_plan_fit(par_plan_problem *problem, const par_plan_measured *measured) {
    const par_plan_model given = problem->model;
    par_plan_machine *x = &problem->machine;
    par__plan_model_defaults(&problem->model);
    const par_plan_measured scaled = par__plan_by_the_clock(measured), *m = &scaled;
    const double layer = m->layer_seconds;
    par__plan_fit_products(x, m);
    par__plan_fit_blocks(problem, m);
    const double products = par__plan_probe_of(problem, m->microbatch, 1, 1, 0).layer;
    if (products > .95 * layer) { // a layer's products are faster than the one that was measured
        x->product_rate *= products / (.95 * layer);
        x->kernel_seconds *= .95 * layer / products;
    }
    par__plan_bisect(problem, &x->memory_rate, m->microbatch, layer);
    x->split_cost = par__plan_max(m->split_layer_seconds / layer - 1, 0);
    x->loss_rate = 1e30;
    const double rest = m->embedding_head_seconds - par__plan_probe_of(problem, m->microbatch, 1, 1, 0).ends;
    if (rest > 1e-3 * m->embedding_head_seconds)
        x->loss_rate = m->microbatch * problem->job.sequence * problem->model.vocab / rest;
    const double bytes = problem->job.update_bytes > 0 ? problem->job.update_bytes : 58;
    x->update_rate = bytes / par__plan_max(m->update_seconds, 1e-15);
    x->cores = m->oversubscription > 1 ? x->gpus_per_node / m->oversubscription : 0;
    par__plan_fit_links(problem, m);
    problem->model = given;
}

// >>plan_search ---------------------------------------------------------------------------------------------
// The space is a tree. Its nodes have tp, cp, pp, dp, microbatch, ulysses, sp and fp8: what decides a layer's
// kernels. Below each are all combinations of recomputation, overlap, offloading, schedule with chunks, and
// ZeRO stage with its group. Bounds, each below all of its configurations:
//     node    m x (the layers without recomputation, with the fewest exposed messages) / p; the mean of its
//             parameters and gradients, by ZeRO stage
//     group   all times but those of gradients, parameters and the update; the memory of its largest shards
// Nodes are visited by their bounds, so that the search ends at the first that is slower than what it has.

enum { PAR__PLAN_DIVISORS = 512, PAR__PLAN_MAX_CHUNKS = 16 };

static int par__plan_divisors(int n, int divisors[PAR__PLAN_DIVISORS]) { // in order; returns how many
    int count = 0;
    for (int i = 1; (int64_t)i * i <= n && count < PAR__PLAN_DIVISORS / 2; i++)
        if (n % i == 0) divisors[count++] = i;
    for (int i = count - 1; i >= 0; i--)
        if (divisors[i] != n / divisors[i]) divisors[count++] = n / divisors[i];
    return count;
}

typedef struct par__plan_node {
    par_plan_config config;
    double bound;
} par__plan_node;
// What par_plan_explain asks for: the fastest configuration whose value of an axis is below (side -1) or
// above (side 1) that of another configuration, or is another one (side 0).
typedef struct par__plan_alternative {
    int axis, side, found;
    unsigned same; // bits of the members that are as in that configuration
    par_plan_choice choice;
} par__plan_alternative;
typedef struct par__plan_walk {
    const par_plan_problem *problem;
    const par_plan_config *best; // whose alternatives are searched, instead of choices; or NULL
    par__plan_alternative *alternatives;
    int alternative_count;
    par_plan_config fixed;
    unsigned mask, distinct;
    par_plan_choice *choices;
    int capacity;
    par_plan_report *report;
    par__plan_node *nodes;
    size_t count, room;
    int node_fits[4]; // by ZeRO stage: 0: parameters and gradients alone are more than a GPU has
    int no_memory;
    double parameters;  // of the model
    double least_bytes; // that a group was seen to need, or a node at least
    double tolerance;   // bounds are multiplied with it: rounding does not make them wrong
} par__plan_walk;

static int par__plan_allows(const par__plan_walk *w, int axis, int value) {
    return !(w->mask >> axis & 1) || par_plan_axis_get(&w->fixed, axis) == value;
}
// Rules of single members: 1, or 0: there is no such configuration. par_plan_check says why.
static int par__plan_tp_divides(const par_plan_model *m, int tp) {
    return m->heads % tp == 0 && m->hidden % tp == 0 && (m->kv_heads % tp == 0 || tp % m->kv_heads == 0);
}
static int par__plan_cp_divides(const par_plan_problem *p, int cp) {
    return cp == 1 || (int64_t)p->job.sequence % (2 * cp) == 0;
}
static int par__plan_sp_divides(const par_plan_problem *p, const par_plan_config *c) {
    return c->tp > 1 && (int64_t)p->job.sequence / c->cp % c->tp == 0;
}
static int par__plan_schedule_allows(const par_plan_problem *p, const par_plan_config *c) {
    const int m = (int)(p->job.batch / c->dp / c->microbatch), v = c->chunks;
    if (v < 1 || c->schedule < 0 || c->schedule >= PAR_PIPE_SCHEDULE_COUNT) return 0;
    if (p->job.equal_layers > 0 && p->model.layers % (c->pp * v)) return 0;
    if (c->pp == 1) return c->schedule == PAR_PIPE_1F1B && v == 1;
    const par_pipe_traits *t = par__plan_schedule(c);
    if (t->rounds < 0) return 0;
    if (t->chunks ? v != t->chunks : v < 2 || v > PAR__PLAN_MAX_CHUNKS) return 0;
    // a chunk has a layer, but for those of embedding and head
    if (v > 1 && (v > (p->model.layers + c->pp - 1) / c->pp || v * c->pp > p->model.layers + 2)) return 0;
    if (par__plan_is_bidirectional(c) && (m % 2 || c->pp % 2)) return 0;
    return m >= t->rounds * c->pp && !(t->multiple && m % c->pp);
}
static int par__plan_zero_allows(const par_plan_problem *p, const par_plan_config *c, int replicas) {
    if (c->zero == 0) return c->shard == 1;
    if (p->job.whole_shards > 0 && c->shard != replicas) return 0;
    return c->zero > 0 && c->zero <= 3 && c->shard > 1 && replicas % c->shard == 0;
}
static int par__plan_offload_allows(const par_plan_machine *x, int offload) {
    const int both = PAR_PLAN_OFFLOAD_STATES | PAR_PLAN_OFFLOAD_DISK;
    if (offload < 0 || offload > 7 || (offload & both) == both) return 0;
    if (offload & PAR_PLAN_OFFLOAD_DISK && !(x->disk_bytes > 0 && x->disk_rate > 0)) return 0;
    return !offload || (x->host_bandwidth > 0 && x->host_rate > 0);
}
static int par__plan_recipe_allows(const par_plan_problem *p, const par_plan_config *c) {
    const par_plan_model *m = &p->model;
    if (c->fp8 <= 0 || c->fp8 >= PAR_TP_RECIPE_COUNT) return c->fp8 == 0;
    const int four = par__plan_recipes[c->fp8].four_bits;
    if (!((four ? p->machine.fp4_rate : p->machine.fp8_rate) > 0) || !(p->job.fp8 > four) ||
        !(fmod(floor(p->machine.recipes / (1 << c->fp8)), 2) >= 1))
        return 0;
    // weights of a rank are multiples of 16, as par_tp_linear_open wants them
    const double q = (double)m->heads * m->head_dim / c->tp, kv = (double)m->kv_heads * m->head_dim / c->tp;
    return m->features % 16 == 0 && m->hidden / c->tp % 16 == 0 && fmod(q, 16) <= 0 &&
           fmod(q + 2 * kv, 16) <= 0;
}
static int par__plan_overlap_allows(const par_plan_config *c) {
    return !((c->overlap & PAR_PLAN_OVERLAP_TP && c->tp < 2) ||
             (c->overlap & PAR_PLAN_OVERLAP_DP && c->dp * c->cp < 2) ||
             (c->overlap & PAR_PLAN_OVERLAP_PP && c->pp < 2));
}

// ZeRO stages, each with the sizes of its groups.
typedef struct par__plan_shards {
    int zero[4 * PAR__PLAN_DIVISORS], shard[4 * PAR__PLAN_DIVISORS], count;
} par__plan_shards;
static void par__plan_shards_of(const par__plan_walk *w, int replicas, par__plan_shards *s) {
    int divisors[PAR__PLAN_DIVISORS];
    const int count = par__plan_divisors(replicas, divisors);
    s->count = 0;
    for (int zero = 0; zero < 4; zero++)
        for (int i = 0; i < count; i++) {
            par_plan_config c;
            c.zero = zero;
            c.shard = divisors[i];
            if (!par__plan_zero_allows(w->problem, &c, replicas) ||
                !par__plan_allows(w, PAR_PLAN_AXIS_zero, zero) ||
                !par__plan_allows(w, PAR_PLAN_AXIS_shard, c.shard))
                continue;
            s->zero[s->count] = zero;
            s->shard[s->count++] = divisors[i];
        }
}

// Members that a node decides, and those that a group does; the others are a leaf's.
enum {
    PAR__PLAN_OF_NODE = 1 << PAR_PLAN_AXIS_tp | 1 << PAR_PLAN_AXIS_pp | 1 << PAR_PLAN_AXIS_cp |
                        1 << PAR_PLAN_AXIS_dp | 1 << PAR_PLAN_AXIS_microbatch | 1 << PAR_PLAN_AXIS_sp |
                        1 << PAR_PLAN_AXIS_ulysses | 1 << PAR_PLAN_AXIS_fp8,
    PAR__PLAN_OF_GROUP = PAR__PLAN_OF_NODE | 1 << PAR_PLAN_AXIS_recompute | 1 << PAR_PLAN_AXIS_offload |
                         1 << PAR_PLAN_AXIS_overlap | 1 << PAR_PLAN_AXIS_schedule | 1 << PAR_PLAN_AXIS_chunks,
    PAR__PLAN_OF_LEAF = (1 << PAR_PLAN_AXIS_COUNT) - 1
};
static int par__plan_on_side(int side, int value, int of) {
    return side < 0 ? value < of : side > 0 ? value > of : value != of;
}
// May a configuration, of which the members in `known` are decided, be this alternative?
static int par__plan_may_be_alternative(const par__plan_walk *w, const par__plan_alternative *r,
                                        const par_plan_config *c, unsigned known) {
    const int value = par_plan_axis_get(c, r->axis), mine = par_plan_axis_get(w->best, r->axis);
    if (known >> r->axis & 1 && !par__plan_on_side(r->side, value, mine)) return 0;
    for (int i = 0; i < PAR_PLAN_AXIS_COUNT; i++)
        if (r->same & known & 1u << i && par_plan_axis_get(c, i) != par_plan_axis_get(w->best, i)) return 0;
    if (known >> PAR_PLAN_AXIS_zero & 1) return 1;
    for (int zero = 0; zero < 4; zero++) { // a stage that it may have fits
        const int may = r->axis != PAR_PLAN_AXIS_zero || par__plan_on_side(r->side, zero, w->best->zero);
        if (may && w->node_fits[zero]) return 1;
    }
    return 0;
}
// What a configuration, of which the members in `known` are decided, has to beat.
static double par__plan_worst(const par__plan_walk *w, const par_plan_config *c, unsigned known) {
    double worst = -1;
    if (!w->best)
        return w->report->count < w->capacity ? 1e300 : w->choices[w->report->count - 1].prediction.seconds;
    for (int i = 0; i < w->alternative_count; i++) {
        const par__plan_alternative *r = &w->alternatives[i];
        const double seconds = r->found ? r->choice.prediction.seconds : 1e300;
        if (seconds > worst && par__plan_may_be_alternative(w, r, c, known)) worst = seconds;
    }
    return worst;
}
static void par__plan_keep_alternatives(par__plan_walk *w, const par_plan_config *c,
                                        const par_plan_prediction *p) {
    for (int i = 0; i < w->alternative_count; i++) {
        par__plan_alternative *r = &w->alternatives[i];
        if ((r->found && p->seconds >= r->choice.prediction.seconds) ||
            !par__plan_may_be_alternative(w, r, c, PAR__PLAN_OF_LEAF))
            continue;
        r->found = 1;
        r->choice.config = *c;
        r->choice.prediction = *p;
    }
}
static int par__plan_same(const par__plan_walk *w, const par_plan_config *a, const par_plan_config *b) {
    for (int i = 0; i < PAR_PLAN_AXIS_COUNT; i++)
        if (w->distinct >> i & 1 && par_plan_axis_get(a, i) != par_plan_axis_get(b, i)) return 0;
    return 1;
}
static void par__plan_keep(par__plan_walk *w, const par_plan_config *c, const par_plan_prediction *p) {
    int *count = &w->report->count, at = 0, same = -1;
    if (!p->fits || p->seconds >= par__plan_worst(w, c, PAR__PLAN_OF_LEAF)) return;
    if (w->best) {
        par__plan_keep_alternatives(w, c, p);
        return;
    }
    while (at < *count && w->choices[at].prediction.seconds <= p->seconds) at++;
    for (int i = 0; i < *count && same < 0 && w->distinct; i++)
        if (par__plan_same(w, &w->choices[i].config, c)) same = i;
    if (same >= 0 && same < at) return; // there is a faster one of its kind
    int end = same >= 0 ? same : *count < w->capacity ? (*count)++ : *count - 1;
    for (; end > at; end--) w->choices[end] = w->choices[end - 1];
    w->choices[at].config = *c;
    w->choices[at].prediction = *p;
}

typedef struct par__plan_sums { // of a whole microbatch over all stages
    double all, weight, forward;
} par__plan_sums;
static par__plan_sums par__plan_sums_of(const par__plan_case *k, const par__plan_layer *l,
                                        const par_plan_config *c) {
    par__plan_sums s;
    const par__plan_times t = par__plan_layer_times(k, l, c);
    s.weight = k->m->layers * t.w + l->last_w;
    s.forward = k->m->layers * t.f + l->first_f + l->last_f;
    s.all =
        k->m->layers * (t.f + t.r + t.b + t.w) + l->first_f + l->first_b + l->last_f + l->last_b + l->last_w;
    return s;
}
// A bound of the bubble, whatever the cut: a slowest rank with more than its share of the work takes longer
// itself; one with more than its share of F or W is not known, so their formulas count by half.
static double par__plan_bubble_bound(const par__plan_case *k, int schedule, double v, par__plan_sums s) {
    const par_pipe_traits *t = &par_pipe_schedules[schedule];
    const double share = 1 - 1 / k->p;
    par__plan_halves x;
    if (k->p < 2 || k->oversubscription > 1) return 0;
    if (!t->splits_backward) return s.all * share / (t->chunks == 1 ? 1 : v);
    x.f = s.forward * share;
    x.w = s.weight;
    x.b = par__plan_max(s.all * share - x.f - x.w, 0);
    par_pipe_costs costs = par__plan_costs(k, v, x, 0);
    costs.microbatches = 0;
    costs.in_flight = 1e300;
    return par__plan_max(t->bubble(&costs), 0) / 2;
}
// A bound of a group: the slowest rank has at least 1/p of the work, and waits for the bubble.
static double par__plan_group_bound(const par__plan_case *k, const par_plan_config *c, par__plan_sums s) {
    return k->microbatches * s.all / k->p + par__plan_bubble_bound(k, c->schedule, k->v, s);
}
// The fewest bytes of a group's configurations: those of the largest shards of each ZeRO stage.
static double par__plan_least_memory(par__plan_case k, const par__plan_layer *l, par_plan_config c,
                                     const par__plan_cut *cut, const par__plan_shards *s, int *fits) {
    par_plan_prediction p;
    double least = 1e300;
    *fits = 0;
    k.live = 1;
    memset(&p, 0, sizeof p);
    for (int i = 0; i < s->count; i++) {
        if (i + 1 < s->count && s->zero[i + 1] == s->zero[i]) continue;
        c.zero = s->zero[i];
        c.shard = s->shard[i];
        par__plan_memory(&k, l, &c, cut, &p);
        *fits |= p.fits;
        least = par__plan_min(least, p.bytes);
    }
    return least;
}
static void par__plan_visit(par__plan_walk *w, const par__plan_case *k, const par__plan_layer *l,
                            par_plan_config *c, const par__plan_shards *s) {
    const double bound = par__plan_group_bound(k, c, par__plan_sums_of(k, l, c)) * w->tolerance;
    if (bound > par__plan_worst(w, c, PAR__PLAN_OF_GROUP)) {
        w->report->bounded += s->count;
        return;
    }
    int fits = 0;
    par__plan_base base;
    par__plan_base_of(k, l, c, &base);
    if (base.p.seconds * w->tolerance <= par__plan_worst(w, c, PAR__PLAN_OF_GROUP))
        w->least_bytes =
            par__plan_min(w->least_bytes, par__plan_least_memory(*k, l, *c, &base.cut, s, &fits));
    if (!fits) {
        w->report->bounded += s->count;
        return;
    }
    par__plan_case each = *k;
    for (int i = 0; i < s->count; i++) {
        c->zero = s->zero[i];
        c->shard = s->shard[i];
        each.shard = par__plan_group_of(k->x, c->shard, k->t);
        each.copies = par__plan_group_of(k->x, k->d * k->c / c->shard, k->t * c->shard);
        if (c->schedule == PAR_PIPE_AUTO) {
            each.live = par__plan_auto_live(&each, l, c, &base.cut);
            par__plan_add_bubble(&each, c, &base);
        }
        par__plan_finish(&each, c, &base);
        if (base.p.seconds >= par__plan_worst(w, c, PAR__PLAN_OF_LEAF)) continue; // whatever it needs
        par__plan_memory(&each, l, c, &base.cut, &base.p);
        par__plan_keep(w, c, &base.p);
    }
    w->report->evaluated += s->count;
}
// Without recomputation and offloading, and with the messages hidden that can be: overlap_cost is at most 1,
// so that hiding never takes longer. (It lets ZB_V's bubble grow by a quarter of the seconds that it hides of
// a microbatch, but ZB_V needs 2p microbatches, each of which hides them.)
static double par__plan_node_bound(const par__plan_case *k, const par__plan_layer *l, par_plan_config c) {
    double bubble = 1e300;
    c.recompute = PAR_PLAN_RECOMPUTE_NONE;
    c.offload = 0;
    c.overlap = PAR_PLAN_OVERLAP_TP;
    const par__plan_sums s = par__plan_sums_of(k, l, &c);
    for (int i = 0; i < PAR_PIPE_SCHEDULE_COUNT; i++)
        if (par_pipe_schedules[i].rounds >= 0)
            bubble = par__plan_min(bubble, par__plan_bubble_bound(k, i, PAR__PLAN_MAX_CHUNKS, s));
    return k->microbatches * s.all / k->p + bubble;
}
// What may be below a node, in the order of visits: `kinds` of recomputation, overlap and offloading, each
// with `schedules` and chunks.
typedef struct par__plan_leaves {
    par_plan_config kinds[3 * 8 * 8], schedules[(int)PAR_PIPE_SCHEDULE_COUNT * PAR__PLAN_MAX_CHUNKS];
    int kind_count, schedule_count;
} par__plan_leaves;
static void par__plan_leaves_of(const par__plan_walk *w, par_plan_config c, par__plan_leaves *l) {
    l->kind_count = l->schedule_count = 0;
    for (c.recompute = 0; c.recompute < 3; c.recompute++)
        for (c.overlap = 7; c.overlap >= 0; c.overlap--)
            for (c.offload = 0; c.offload < 8; c.offload++)
                if (par__plan_allows(w, PAR_PLAN_AXIS_recompute, c.recompute) &&
                    par__plan_allows(w, PAR_PLAN_AXIS_overlap, c.overlap) && par__plan_overlap_allows(&c) &&
                    par__plan_allows(w, PAR_PLAN_AXIS_offload, c.offload) &&
                    par__plan_offload_allows(&w->problem->machine, c.offload))
                    l->kinds[l->kind_count++] = c;
    for (c.schedule = 0; c.schedule < PAR_PIPE_SCHEDULE_COUNT; c.schedule++)
        for (c.chunks = 1; c.chunks <= PAR__PLAN_MAX_CHUNKS; c.chunks++)
            if (par__plan_allows(w, PAR_PLAN_AXIS_schedule, c.schedule) &&
                par__plan_allows(w, PAR_PLAN_AXIS_chunks, c.chunks) &&
                par__plan_schedule_allows(w->problem, &c))
                l->schedules[l->schedule_count++] = c;
}
static void par__plan_push(par__plan_walk *w, const par_plan_config *c) {
    if (w->count == w->room) {
        const size_t room = w->room ? 2 * w->room : 1024;
        void *nodes = PAR_REALLOC(w->nodes, room * sizeof *w->nodes);
        if (!nodes) {
            w->no_memory = 1;
            return;
        }
        w->nodes = (par__plan_node *)nodes;
        w->room = room;
    }
    const par__plan_case k = par__plan_case_of(w->problem, c);
    const par__plan_layer l = par__plan_layer_of(&k, c->ulysses);
    w->nodes[w->count].config = *c;
    w->nodes[w->count++].bound = par__plan_node_bound(&k, &l, *c) * w->tolerance;
}
// The kinds of a layout: ulysses, sp, fp8.
static void par__plan_each_kind(par__plan_walk *w, par_plan_config *c) {
    const par_plan_problem *p = w->problem;
    for (c->ulysses = 0; c->ulysses < 2; c->ulysses++) {
        if (!par__plan_allows(w, PAR_PLAN_AXIS_ulysses, c->ulysses)) continue;
        if (c->ulysses && !par__plan_ulysses_divides(&p->model, c)) continue;
        for (c->sp = 0; c->sp < 2; c->sp++) {
            if (!par__plan_allows(w, PAR_PLAN_AXIS_sp, c->sp)) continue;
            if (c->sp && !par__plan_sp_divides(p, c)) continue;
            for (c->fp8 = 0; c->fp8 < PAR_TP_RECIPE_COUNT; c->fp8++)
                if (par__plan_allows(w, PAR_PLAN_AXIS_fp8, c->fp8) && par__plan_recipe_allows(p, c))
                    par__plan_push(w, c);
        }
    }
}
static void par__plan_each_microbatch(par__plan_walk *w, par_plan_config *c) {
    int divisors[PAR__PLAN_DIVISORS];
    const int batch = (int)w->problem->job.batch;
    if (batch % c->dp || !par__plan_allows(w, PAR_PLAN_AXIS_dp, c->dp)) return;
    const int count = par__plan_divisors(batch / c->dp, divisors);
    for (int i = 0; i < count; i++) {
        c->microbatch = divisors[i];
        if (par__plan_allows(w, PAR_PLAN_AXIS_microbatch, c->microbatch)) par__plan_each_kind(w, c);
    }
}
static void par__plan_nodes(par__plan_walk *w) {
    int tp[PAR__PLAN_DIVISORS], cp[PAR__PLAN_DIVISORS], pp[PAR__PLAN_DIVISORS];
    const int ranks = par__plan_ranks(w->problem), tps = par__plan_divisors(ranks, tp);
    par_plan_config c;
    memset(&c, 0, sizeof c);
    c.chunks = c.shard = 1;
    for (int i = 0; i < tps; i++) {
        c.tp = tp[i];
        if (!par__plan_tp_divides(&w->problem->model, c.tp) || !par__plan_allows(w, PAR_PLAN_AXIS_tp, c.tp))
            continue;
        const int cps = par__plan_divisors(ranks / c.tp, cp);
        for (int j = 0; j < cps; j++) {
            c.cp = cp[j];
            if (!par__plan_cp_divides(w->problem, c.cp) || !par__plan_allows(w, PAR_PLAN_AXIS_cp, c.cp))
                continue;
            const int pps = par__plan_divisors(ranks / c.tp / c.cp, pp);
            for (int n = 0; n < pps && pp[n] <= w->problem->model.layers; n++) {
                c.pp = pp[n];
                c.dp = ranks / c.tp / c.cp / c.pp;
                if (par__plan_allows(w, PAR_PLAN_AXIS_pp, c.pp)) par__plan_each_microbatch(w, &c);
            }
        }
    }
}
static int par__plan_compare_nodes(const void *a, const void *b) {
    const par__plan_node *x = (const par__plan_node *)a, *y = (const par__plan_node *)b;
    if (x->bound < y->bound || x->bound > y->bound) return x->bound < y->bound ? -1 : 1;
    return memcmp(&x->config, &y->config, sizeof x->config);
}
// Which ZeRO stages a node may have: the rank with most of parameters and gradients has at least the mean.
// Returns the fewest bytes of those that are allowed.
static double par__plan_fit_node(par__plan_walk *w, const par__plan_case *k) {
    const double mean = w->parameters / (k->t * k->p), replicas = k->d * k->c;
    double least = 1e300;
    for (int zero = 0; zero < 4; zero++) {
        const double bytes =
            mean * (k->e / (zero >= 3 ? replicas : 1) + k->gradient_bytes / (zero >= 2 ? replicas : 1));
        w->node_fits[zero] = bytes * w->tolerance <= k->capacity;
        if (par__plan_allows(w, PAR_PLAN_AXIS_zero, zero)) least = par__plan_min(least, bytes);
    }
    return least;
}
static void par__plan_visit_node(par__plan_walk *w, par__plan_node *node) {
    par_plan_config c = node->config;
    par__plan_shards shards;
    par__plan_leaves leaves;
    par__plan_shards_of(w, c.dp * c.cp, &shards);
    par__plan_leaves_of(w, c, &leaves);
    const double below = (double)leaves.kind_count * leaves.schedule_count * shards.count;
    par__plan_case k = par__plan_case_of(w->problem, &c);
    w->report->configurations += below;
    const double bytes = par__plan_fit_node(w, &k);
    const int fits = bytes * w->tolerance <= k.capacity;
    if (!fits && shards.count) w->least_bytes = par__plan_min(w->least_bytes, bytes);
    if (!fits || node->bound > par__plan_worst(w, &c, PAR__PLAN_OF_NODE)) {
        w->report->bounded += below;
        return;
    }
    const par__plan_layer l = par__plan_layer_of(&k, c.ulysses);
    for (int i = 0; i < leaves.kind_count; i++)
        for (int n = 0; n < leaves.schedule_count; n++) {
            c = leaves.kinds[i];
            c.schedule = leaves.schedules[n].schedule;
            c.chunks = leaves.schedules[n].chunks;
            k.v = c.chunks;
            par__plan_visit(w, &k, &l, &c, &shards);
        }
}
// The first member of a struct of doubles that is out of its range, or NaN; NULL: there is none.
static const char *par__plan_bad_number(const void *numbers, const par__plan_field *fields, int count) {
    for (int i = 0; i < count; i++) {
        double x;
        memcpy(&x, (const char *)numbers + fields[i].offset, sizeof x);
        if (!(x >= fields[i].min && x <= fields[i].max)) return fields[i].name;
    }
    return NULL;
}
static par_result par__plan_check_model(const par_plan_model *m, char *why, size_t capacity) {
    const struct {
        const char *name;
        int value, least;
    } sizes[] = {{"layers", m->layers, 1},     {"features", m->features, 1},  {"heads", m->heads, 1},
                 {"kv_heads", m->kv_heads, 0}, {"head_dim", m->head_dim, 0},  {"hidden", m->hidden, 0},
                 {"vocab", m->vocab, 1},       {"positions", m->positions, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < sizes[i].least)
            return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity, "model.%s is %d: it must be at least %d",
                                  sizes[i].name, sizes[i].value, sizes[i].least);
    if (m->kv_heads && m->heads % m->kv_heads)
        return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity,
                              "model.kv_heads is %d, which does not divide heads = %d", m->kv_heads,
                              m->heads);
    if (!m->head_dim && m->features % m->heads)
        return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity,
                              "model.heads is %d, which does not divide features = %d: set head_dim",
                              m->heads, m->features);
    return PAR_OK;
}
static par_result par__plan_check_problem(const par_plan_problem *p, char *why, size_t capacity) {
    const par_plan_machine *x = &p->machine;
    const double ranks = par__plan_max(x->nodes, 1) * par__plan_max(x->gpus_per_node, 1);
    const char *bad = par__plan_bad_number(x, par__plan_machine_names, PAR__PLAN_MACHINE_NAMES);
    const char *job = par__plan_bad_number(&p->job, par__plan_job_names, PAR__PLAN_JOB_NAMES);
    const par_result r = par__plan_check_model(&p->model, why, capacity);
    if (r) return r;
    if (bad || job)
        return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity, "%s.%s must be a number that is not negative",
                              bad ? "machine" : "job", bad ? bad : job);
    const struct {
        int right;
        const char *wrong;
    } rules[] = {
        {p->job.batch >= 1 && p->job.batch <= 1e8 && floor(p->job.batch) >= p->job.batch,
         "job.batch must be a whole number of sequences, from 1 to 1e8"},
        {p->job.sequence >= 1 && p->job.sequence <= 1e8 && floor(p->job.sequence) >= p->job.sequence,
         "job.sequence must be a whole number of tokens, from 1 to 1e8"},
        {ranks <= 65536 && floor(ranks) >= ranks, "machine.nodes x gpus_per_node must be 1 to 65536"},
        {x->product_rate > 0 && x->memory_rate > 0, "the machine needs product_rate and memory_rate"},
        {ranks <= 1 || (x->node_bandwidth > 0 && x->net_bandwidth > 0),
         "the machine needs node_bandwidth and net_bandwidth"},
        {x->overlap_cost <= 1, "machine.overlap_cost is a share of a GPU: at most 1"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!rules[i].right) return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity, "%s", rules[i].wrong);
    return PAR_OK;
}
static int par__plan_nearest_divisor(int n, int ranks, int to) { // of both
    int divisors[PAR__PLAN_DIVISORS], best = 1;
    const int count = par__plan_divisors(n, divisors);
    for (int i = 0; i < count; i++)
        if (ranks % divisors[i] == 0 && abs(divisors[i] - to) < abs(best - to)) best = divisors[i];
    return best;
}
static par_result par__plan_check_schedule(const par_plan_config *c, char *why, size_t capacity) {
    const int known = c->schedule >= 0 && c->schedule < PAR_PIPE_SCHEDULE_COUNT;
    if (known && par__plan_schedule(c)->rounds >= 0) return PAR_OK;
    return par__plan_fail(PAR_ERR_ARGUMENT, why, capacity,
                          "schedule %d (%s) is not planned: take another one", c->schedule,
                          known ? par__plan_schedule(c)->name : "there is none");
}
// par_plan_check of the members that are no sizes of groups.
static par_result par__plan_check_kind(const par_plan_problem *p, const par_plan_config *c, char *why,
                                       size_t capacity) {
    const par_result bad = PAR_ERR_ARGUMENT;
    if (c->sp > 1 || (c->sp && !par__plan_sp_divides(p, c)))
        return par__plan_fail(bad, why, capacity,
                              "sp %d with tp %d: sp is 0 or 1, and needs tp ranks that divide the tokens",
                              c->sp, c->tp);
    if (c->ulysses > 1 || (c->ulysses && !par__plan_ulysses_divides(&p->model, c)))
        return par__plan_fail(
            bad, why, capacity,
            "ulysses %d with cp %d: it is 0 or 1, and needs cp ranks that divide the heads of a rank",
            c->ulysses, c->cp);
    if (par__plan_check_schedule(c, why, capacity)) return bad;
    if (!par__plan_schedule_allows(p, c))
        return par__plan_fail(
            bad, why, capacity,
            "this schedule does not have %d chunks with pp %d here: interleaved ones and looped_bfs take "
            "2 to %d, V shapes and dualpipe 2, the others 1, with enough microbatches and layers",
            c->chunks, c->pp, PAR__PLAN_MAX_CHUNKS);
    if (!par__plan_zero_allows(p, c, c->dp * c->cp))
        return par__plan_fail(
            bad, why, capacity,
            "zero %d with shard %d: stage 0 has shard 1; stages 1 to 3 have a divisor of dp x cp from 2 on",
            c->zero, c->shard);
    if (!par__plan_overlap_allows(c))
        return par__plan_fail(bad, why, capacity, "overlap %d is of an axis that has one rank", c->overlap);
    if (!par__plan_recipe_allows(p, c))
        return par__plan_fail(bad, why, capacity,
                              "recipe %d with tp %d: job.fp8, the machine's recipes and its fp8_rate or "
                              "fp4_rate must allow it, and a rank's weights must be multiples of 16",
                              c->fp8, c->tp);
    if (!par__plan_offload_allows(&p->machine, c->offload))
        return par__plan_fail(
            bad, why, capacity,
            "offload %d: states go to the host (1) or to disks (4), activations to the host (2), where the "
            "machine has host_bandwidth and host_rate, disk_bytes and disk_rate",
            c->offload);
    return PAR_OK;
}
// par_plan_check of a problem that is right, with defaults in place of zeros.
static par_result par__plan_check_config(const par_plan_problem *p, const par_plan_config *c, char *why,
                                         size_t capacity) {
    const par_result bad = PAR_ERR_ARGUMENT;
    const par_plan_model *m = &p->model;
    const int ranks = par__plan_ranks(p), batch = (int)p->job.batch, sequence = (int)p->job.sequence;
    for (int i = 0; i < PAR_PLAN_AXIS_COUNT; i++) {
        const int value = par_plan_axis_get(c, i), values = par__plan_value_count(i);
        if (value < 0 || value >= values)
            return par__plan_fail(bad, why, capacity, "%s is %d: it must be at least 0%s",
                                  par__plan_axes[i].name, value, value < 0 ? "" : ", and one of its values");
    }
    if (!par__plan_tp_divides(m, c->tp))
        return par__plan_fail(bad, why, capacity, "tp %d does not divide %d heads (and the MLP); try tp=%d",
                              c->tp, m->heads, par__plan_nearest_divisor(m->heads, ranks, c->tp));
    if (!par__plan_cp_divides(p, c->cp))
        return par__plan_fail(bad, why, capacity,
                              "2 x cp, with cp %d, does not divide a sequence of %d; try cp=%d", c->cp,
                              sequence, par__plan_nearest_divisor(sequence / 2, ranks, c->cp));
    if (c->pp > m->layers)
        return par__plan_fail(bad, why, capacity, "pp %d is more than %d layers; at most pp=%d", c->pp,
                              m->layers, m->layers);
    if (batch % c->dp)
        return par__plan_fail(bad, why, capacity, "dp %d does not divide a batch of %d; try dp=%d", c->dp,
                              batch, par__plan_nearest_divisor(batch, ranks, c->dp));
    const double product = (double)c->tp * c->pp * c->cp * c->dp;
    if (product < ranks || product > ranks)
        return par__plan_fail(bad, why, capacity,
                              "tp x pp x cp x dp = %.0f, but there are %d GPUs; make it %d", product, ranks,
                              ranks);
    const int replica = batch / c->dp;
    if (replica % c->microbatch)
        return par__plan_fail(
            bad, why, capacity, "microbatch %d does not divide a replica's batch of %d; try microbatch=%d",
            c->microbatch, replica, par__plan_nearest_divisor(replica, replica, c->microbatch));
    return par__plan_check_kind(p, c, why, capacity);
}
par_result par_plan_check(const par_plan_problem *p, const par_plan_config *c, char *why, size_t capacity) {
    const par_result r = par__plan_check_problem(p, why, capacity);
    const par_plan_problem with = par__plan_with_defaults(p);
    const par_plan_config config = par__plan_config_of(c);
    return r ? r : par__plan_check_config(&with, &config, why, capacity);
}
static par_result par__plan_nothing_found(const par__plan_walk *w) {
    const par_plan_problem *p = w->problem;
    const double capacity = p->job.memory_bytes > 0 ? p->job.memory_bytes : p->machine.memory_bytes;
    par_plan_report *r = w->report;
    if (r->configurations > 0 && !(par__plan_capacity(p) > 0))
        return par__plan_fail(
            PAR_ERR_MEMORY, r->why, sizeof r->why,
            "nothing fits: of the %.4g GB that a GPU may need %.4g are reserved; allow more", capacity / 1e9,
            p->machine.reserved_bytes / 1e9);
    if (r->configurations > 0)
        return par__plan_fail(
            PAR_ERR_MEMORY, r->why, sizeof r->why,
            "none of %.0f configurations fits: a GPU has %.4g GB, %.4g GB of them reserved, "
            "and the smallest needs at least %.4g; use more GPUs or a shorter sequence",
            r->configurations, capacity / 1e9, p->machine.reserved_bytes / 1e9, w->least_bytes / 1e9);
    return par__plan_fail(
        PAR_ERR_ARGUMENT, r->why, sizeof r->why,
        "no configuration of %d GPUs, which are tp x pp x cp x dp: tp must divide %d heads, "
        "pp is at most %d layers, dp must divide a batch of %.0f; use a number of GPUs that divides the "
        "batch times %d",
        par__plan_ranks(p), p->model.heads, p->model.layers, p->job.batch, p->model.heads);
}
static int par__plan_walk_all(par__plan_walk *w) { // 0: out of memory
    w->least_bytes = 1e300;
    w->tolerance = 1 - 1e-9;
    w->parameters = par_plan_parameters(&w->problem->model);
    par__plan_nodes(w);
    if (!w->no_memory && w->count) qsort(w->nodes, w->count, sizeof *w->nodes, par__plan_compare_nodes);
    for (size_t i = 0; i < w->count && !w->no_memory; i++) par__plan_visit_node(w, &w->nodes[i]);
    PAR_FREE(w->nodes);
    return !w->no_memory;
}
par_result par_plan_search(const par_plan_problem *problem, const par_plan_config *fixed, unsigned mask,
                           unsigned distinct, par_plan_choice *choices, int capacity,
                           par_plan_report *report) {
    const par_plan_problem with = par__plan_with_defaults(problem);
    par__plan_walk w;
    struct timespec begin, end;
    memset(&w, 0, sizeof w);
    memset(report, 0, sizeof *report);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    w.problem = &with;
    w.mask = fixed ? mask : 0;
    if (fixed) w.fixed = par__plan_config_of(fixed);
    w.distinct = distinct;
    w.choices = choices;
    w.capacity = capacity;
    w.report = report;
    const par_result wrong = capacity < 1 ? par__plan_fail(PAR_ERR_ARGUMENT, report->why, sizeof report->why,
                                                           "choices has no room")
                                          : par__plan_check_problem(problem, report->why, sizeof report->why);
    if (wrong) return wrong;
    if (w.mask >> PAR_PLAN_AXIS_schedule & 1 &&
        par__plan_check_schedule(&w.fixed, report->why, sizeof report->why))
        return PAR_ERR_ARGUMENT;
    if (!par__plan_walk_all(&w))
        return par__plan_fail(PAR_ERR_MEMORY, report->why, sizeof report->why,
                              "out of memory for the search");
    for (int i = 0; i < report->count; i++) par__plan_rates(&with, &choices[i].prediction);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    report->seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    report->proved = report->evaluated + report->bounded == report->configurations;
    return report->count ? PAR_OK : par__plan_nothing_found(&w);
}

// >>plan_simulate -------------------------------------------------------------------------------------------

// The layers of each stage of a configuration: rank r's are divided among its chunks. Where the cut has room
// for more layers than there are, ranks without embedding and head have fewer, then those with them.
static void par__plan_stage_layers(const par__plan_case *k, const par_plan_config *c,
                                   const par__plan_cut *cut, int *layers) {
    const int p = c->pp, v = c->chunks, both = par__plan_has_both_ends(c), last = p * v - 1;
    const int bidirectional = par__plan_is_bidirectional(c);
    int spare = (int)(cut->first + (both ? cut->middle : cut->last) + (p - 2) * cut->middle) - k->m->layers;
    for (int i = 0; bidirectional && i < p; i++)
        layers[i] = k->m->layers * (i + 1) / p - k->m->layers * i / p;
    if (bidirectional) return;
    for (int r = 0, givers = both ? p - 1 : p - 2; r < p; r++) {
        const int gives = r > 0 && (both || r < p - 1);
        const int less = gives ? PAR__MIN((spare + givers - 1) / givers, (int)cut->middle) : 0;
        const int n = (int)cut->middle - less;
        givers -= gives;
        spare -= less;
        for (int i = 0; i < v; i++) {
            const int stage = both && i ? 2 * p - 1 - r : i * p + r;
            layers[stage] = n * (i + 1) / v - n * i / v;
        }
    }
    layers[0] += (int)(cut->first - cut->middle + (both ? cut->less_last : 0));
    layers[last] += (int)(both ? -cut->less_last : cut->last - cut->middle);
    for (int i = 0; spare > 0; i = last) {
        const int less = PAR__MIN(spare, layers[i]);
        layers[i] -= less;
        spare -= less;
    }
}
// The stages of a configuration, for par_pipe.h.
static void par__plan_pipe_stages(const par__plan_case *k, const par__plan_layer *l, const par_plan_config *c,
                                  int count, int *layers, par_pipe_stage *stages) {
    const par__plan_times t = par__plan_layer_times(k, l, c);
    const double layer = t.f + t.r + t.b + t.w, last = l->last_f + l->last_b + l->last_w;
    const par__plan_cut cut = par__plan_cut_for(k, c, layer, l->first_f + l->first_b, last);
    par__plan_stage_layers(k, c, &cut, layers);
    for (int i = 0; i < count; i++) {
        par_pipe_stage *s = &stages[i];
        const int n = layers[i] < 0 ? 0 : layers[i];
        memset(s, 0, sizeof *s);
        s->f = n * t.f + (i == 0 ? l->first_f : 0) + (i == count - 1 ? l->last_f : 0);
        s->b = n * (t.r + t.b) + (i == 0 ? l->first_b : 0) + (i == count - 1 ? l->last_b : 0);
        s->w = n * t.w + (i == count - 1 ? l->last_w : 0);
        s->f = par__plan_max(s->f, 1e-9);
        s->w_bytes = 1000; // "auto": in units of a microbatch
    }
}
// A table on ranks that share processors. A rank waits, then wakes, then is in its action.
typedef struct par__plan_shared {
    const par_pipe_schedule *s;
    size_t *next;         // of each rank
    double *left, *wakes; // seconds of its action; until it begins that
    char *begun, *waited; // it has an action; it had to wait for what that needs
    char *done;           // by par__plan_cell: forward, backward
    double share, wake;   // ranks for each processor; seconds from what a rank waited for to its action
} par__plan_shared;

static size_t par__plan_cell(const par_pipe_schedule *s, int back, int stage, int microbatch) {
    return ((size_t)back * (size_t)s->stages + (size_t)stage) * (size_t)s->microbatches + (size_t)microbatch;
}
static int par__plan_is_backward(int kind) { return kind == PAR_PIPE_BW || kind == PAR_PIPE_B; }
// Begins a rank's next action if its input is there. 0: it waits, or is at its end.
static int par__plan_shared_begin(par__plan_shared *x, int rank) {
    const par_pipe_schedule *s = x->s;
    while (x->next[rank] < s->first[rank + 1] && s->actions[x->next[rank]].kind > PAR_PIPE_R) x->next[rank]++;
    if (x->next[rank] == s->first[rank + 1]) return 0;
    const par_pipe_action a = s->actions[x->next[rank]];
    const par_pipe_stage *c = &s->desc.stages[s->desc.stage_count == 1 ? 0 : a.stage];
    const int back = par__plan_is_backward(a.kind), from = back ? a.stage + 1 : a.stage - 1;
    if ((back || a.kind == PAR_PIPE_F) && from >= 0 && from < s->stages &&
        !x->done[par__plan_cell(s, back, from, a.microbatch)]) {
        x->waited[rank] = 1;
        return 0;
    }
    x->left[rank] = a.kind == PAR_PIPE_F ? c->f : a.kind == PAR_PIPE_W ? c->w : c->b;
    if (a.kind == PAR_PIPE_BW) x->left[rank] += c->w;
    if (a.kind == PAR_PIPE_R) x->left[rank] = 0;
    x->wakes[rank] = x->waited[rank] ? x->wake : 0;
    x->waited[rank] = 0;
    return x->begun[rank] = 1;
}
static void par__plan_shared_end(par__plan_shared *x, int rank) { // of its action
    const par_pipe_schedule *s = x->s;
    const par_pipe_action a = s->actions[x->next[rank]++];
    const int back = par__plan_is_backward(a.kind);
    if (back || a.kind == PAR_PIPE_F) x->done[par__plan_cell(s, back, a.stage, a.microbatch)] = 1;
    x->begun[rank] = 0;
}
static double par__plan_shared_run(par__plan_shared *x) {
    const int ranks = x->s->ranks;
    for (double now = 0;;) {
        double least = 1e300;
        int begun = 0, computing = 0;
        for (int r = 0; r < ranks; r++) {
            if (!x->begun[r] && !par__plan_shared_begin(x, r)) continue;
            begun++;
            computing += x->wakes[r] <= 0;
        }
        if (!begun) return now;
        const double speed = par__plan_min(x->share, (double)ranks / PAR__MAX(computing, 1));
        for (int r = 0; r < ranks; r++)
            if (x->begun[r]) least = par__plan_min(least, x->wakes[r] > 0 ? x->wakes[r] : x->left[r] / speed);
        now += least;
        for (int r = 0; r < ranks; r++) {
            if (!x->begun[r]) continue;
            double *left = x->wakes[r] > 0 ? &x->wakes[r] : &x->left[r];
            const double passed = left == &x->left[r] ? least * speed : least;
            *left -= passed;
            if (*left > 1e-12 * passed) continue;
            *left = 0;
            if (left == &x->left[r]) par__plan_shared_end(x, r);
        }
    }
}
// The seconds of a table; -1: out of memory. Of `ranks` ranks that share processors, `a` that compute at a
// time run at min(share, ranks/a) times the speed that costs are measured at, when all compute. A rank that
// waits costs nothing. Messages are in the costs of stages.
static double par__plan_shared_seconds(const par_pipe_schedule *s, double share, double wake) {
    const size_t ranks = (size_t)s->ranks, cells = 2 * (size_t)s->stages * (size_t)s->microbatches;
    const size_t bytes = ranks * (sizeof(size_t) + 2 * sizeof(double) + 2) + cells;
    char *memory = (char *)PAR_MALLOC(bytes);
    par__plan_shared x;
    if (!memory) return -1;
    memset(memory, 0, bytes);
    x.s = s;
    x.share = share;
    x.wake = wake;
    x.next = (size_t *)(void *)memory;
    x.left = (double *)(void *)(x.next + ranks);
    x.wakes = x.left + ranks;
    x.begun = (char *)(x.wakes + ranks);
    x.waited = x.begun + ranks;
    x.done = x.waited + ranks;
    for (size_t r = 0; r < ranks; r++) x.next[r] = s->first[r];
    const double seconds = par__plan_shared_run(&x);
    PAR_FREE(memory);
    return seconds;
}
// Sets the bubble of a choice from its table.
static par_result par__plan_simulate_table(const par__plan_case *k, const par__plan_layer *l,
                                           par_pipe_schedule *s, par_plan_choice *choice) {
    par_plan_prediction *p = &choice->prediction;
    par_pipe_timeline line;
    if (k->oversubscription > 1) {
        par__plan_case whole = *k;
        par__plan_base base;
        const double all = par__plan_shared_seconds(s, k->oversubscription, k->x->wake_seconds);
        if (all < 0) return PAR_ERR_MEMORY;
        whole.oversubscription = 1; // the slowest rank's seconds without what it gives to others
        par__plan_base_of(&whole, l, &choice->config, &base);
        p->times.compute = base.p.times.compute;
        par__plan_share_time(p, k->microbatches * base.cut.slowest, all);
        p->seconds = par__plan_sum(p);
        return PAR_OK;
    }
    const par_result r = par_pipe_simulate(s, PAR_PIPE_NONBLOCKING, &line);
    if (r) return r;
    double busiest = 0;
    for (int i = 0; i < line.rank_count; i++) busiest = par__plan_max(busiest, line.ranks[i].busy);
    const double bubble = par__plan_max(line.makespan - busiest, 0);
    p->seconds += bubble - p->times.bubble;
    p->times.bubble = bubble;
    par_pipe_timeline_close(&line);
    return PAR_OK;
}
static par_result par__plan_simulate_one(const par_plan_problem *problem, par_plan_choice *choice,
                                         size_t max_actions) {
    const par_plan_config *c = &choice->config;
    const par__plan_case k = par__plan_case_of(problem, c);
    const par__plan_layer l = par__plan_layer_of(&k, c->ulysses);
    const int bidirectional = par__plan_is_bidirectional(c), m = choice->prediction.microbatches;
    const int stages = bidirectional ? c->pp : c->pp * c->chunks;
    par_pipe_desc desc;
    par_pipe_schedule s;
    if (c->pp < 2 || (double)stages * m * 6 > (double)max_actions) return PAR_OK;
    par_pipe_stage *costs = (par_pipe_stage *)PAR_MALLOC((size_t)stages * (sizeof *costs + sizeof(int)));
    if (!costs) return PAR_ERR_MEMORY;
    par__plan_pipe_stages(&k, &l, c, stages, (int *)(void *)(costs + stages), costs);
    memset(&desc, 0, sizeof desc);
    desc.schedule = par_plan_schedule_names[c->schedule];
    desc.ranks = c->pp;
    desc.chunks = c->chunks;
    desc.microbatches = m;
    desc.stages = costs;
    desc.stage_count = stages;
    if (c->schedule == PAR_PIPE_AUTO)
        desc.max_activation_bytes = (size_t)(1000 * choice->prediction.in_flight);
    par_result r = par_pipe_schedule_open(&desc, &s);
    if (!r) r = par__plan_simulate_table(&k, &l, &s, choice);
    par_pipe_schedule_close(&s);
    PAR_FREE(costs);
    return r;
}
par_result par_plan_simulate(const par_plan_problem *problem, par_plan_choice *choices, int count,
                             size_t max_actions) {
    const par_plan_problem with = par__plan_with_defaults(problem);
    for (int i = 0; i < count; i++) {
        const par_result r = par__plan_simulate_one(&with, &choices[i], max_actions ? max_actions : 100000);
        if (r) return r;
        par__plan_rates(&with, &choices[i].prediction);
        const par_plan_choice choice = choices[i];
        int at = i;
        for (; at > 0 && choices[at - 1].prediction.seconds > choice.prediction.seconds; at--)
            choices[at] = choices[at - 1];
        choices[at] = choice;
    }
    return PAR_OK;
}

// >>plan_explain --------------------------------------------------------------------------------------------

// The choices that are explained, each with the sides on which others are compared.
static const struct {
    int axis, both; // both: the best with less and the best with more; else the best with another value
} par__plan_explained[] = {{PAR_PLAN_AXIS_tp, 1},        {PAR_PLAN_AXIS_sp, 0},
                           {PAR_PLAN_AXIS_pp, 1},        {PAR_PLAN_AXIS_cp, 1},
                           {PAR_PLAN_AXIS_zero, 1},      {PAR_PLAN_AXIS_microbatch, 1},
                           {PAR_PLAN_AXIS_recompute, 0}, {PAR_PLAN_AXIS_offload, 0}};
enum { PAR__PLAN_EXPLAINED = sizeof par__plan_explained / sizeof par__plan_explained[0] };
typedef struct par__plan_explanation {
    const par_plan_problem *problem;
    const par_plan_choice *best;
    par_plan_reason_fn fn;
    void *user;
    par__plan_alternative alternatives[2 * PAR__PLAN_EXPLAINED];
    int alternative_count;
} par__plan_explanation;

// Finds all alternatives in one search: each configuration is compared with all that it may be. 0: out of
// memory.
static int par__plan_find_alternatives(par__plan_explanation *s) {
    par__plan_walk w;
    par_plan_report report;
    memset(&w, 0, sizeof w);
    memset(&report, 0, sizeof report);
    s->alternative_count = 0;
    for (int i = 0; i < PAR__PLAN_EXPLAINED; i++)
        for (int side = par__plan_explained[i].both ? -1 : 0; side < 2; side += 2) {
            par__plan_alternative *r = &s->alternatives[s->alternative_count++];
            memset(r, 0, sizeof *r);
            r->axis = par__plan_explained[i].axis;
            r->side = side;
            if (r->axis == PAR_PLAN_AXIS_sp) r->same = 1u << PAR_PLAN_AXIS_tp; // what it is a choice for
        }
    w.problem = s->problem;
    w.report = &report;
    w.best = &s->best->config;
    w.alternatives = s->alternatives;
    w.alternative_count = s->alternative_count;
    return par__plan_walk_all(&w);
}
// The time by which a prediction is worst beside another one, as text: "bubble takes 1.2 s instead of 0.3".
static void par__plan_difference(const par_plan_prediction *a, const par_plan_prediction *b, char *text,
                                 size_t capacity) {
    const char *name = "compute";
    double most = 0, from = 0, to = 0;
#define PAR__X(member, what)                                                                                 \
    if (b->times.member - a->times.member > most) {                                                          \
        most = b->times.member - a->times.member;                                                            \
        name = #member;                                                                                      \
        from = a->times.member;                                                                              \
        to = b->times.member;                                                                                \
    }
    PAR_PLAN_TIMES(PAR__X)
#undef PAR__X
    if (most > 0)
        snprintf(text, capacity, "%s takes %.4g s instead of %.4g", name, to, from);
    else
        snprintf(text, capacity, "no time differs");
}
// The rule of the field that a choice contradicts; NULL: none.
static const char *par__plan_broken_rule(const par_plan_machine *x, const par_plan_config *c, int axis) {
    if (axis == PAR_PLAN_AXIS_tp && c->tp > x->gpus_per_node) return "tensor parallelism inside a node";
    if (axis == PAR_PLAN_AXIS_sp && c->tp > 1 && !c->sp) return "sequence with tensor parallelism";
    if (axis == PAR_PLAN_AXIS_pp && c->pp == 1 && c->zero == 3 && c->shard * c->tp > x->gpus_per_node)
        return "pipelines across nodes";
    if (axis == PAR_PLAN_AXIS_zero && c->pp > 1 && c->zero > 1) return "ZeRO-1 with pipelines";
    if (axis == PAR_PLAN_AXIS_recompute && c->recompute == PAR_PLAN_RECOMPUTE_FULL)
        return "selective before full recomputation";
    return NULL;
}
static void par__plan_say_axis(const par__plan_explanation *s, int axis, const char *reason) {
    const par_plan_prediction *mine = &s->best->prediction;
    char sentence[1400], is[48], why[96], layout[256];
    int found = 0;
    const char *rule = par__plan_broken_rule(&s->problem->machine, &s->best->config, axis);
    par__plan_value(axis, par_plan_axis_get(&s->best->config, axis), is, sizeof is);
    size_t n =
        (size_t)snprintf(sentence, sizeof sentence, "%s=%s%s%s%s: %s", par__plan_axes[axis].name, is,
                         rule ? ", which contradicts \"" : "", rule ? rule : "", rule ? "\"" : "", reason);
    for (int i = 0; i < s->alternative_count; i++) {
        const par__plan_alternative *r = &s->alternatives[i];
        const par_plan_prediction *p = &r->choice.prediction;
        if (r->axis != axis || !r->found) continue;
        found = 1;
        par__plan_value(axis, par_plan_axis_get(&r->choice.config, axis), is, sizeof is);
        par__plan_difference(mine, p, why, sizeof why);
        par_plan_format(&r->choice.config, 1, layout, sizeof layout);
        n += (size_t)snprintf(
            sentence + n, sizeof sentence - n, "; the best with %s=%s takes %.4g s, %.1f%% %s (%s): %s",
            par__plan_axes[axis].name, is, p->seconds, fabs(100 * (p->seconds / mine->seconds - 1)),
            p->seconds < mine->seconds ? "less" : "longer", why, layout);
    }
    if (!found) snprintf(sentence + n, sizeof sentence - n, "; no other value exists or fits");
    s->fn(s->user, par__plan_axes[axis].name, sentence);
}
static void par__plan_say_tp(const par__plan_explanation *s) {
    const par_plan_config *c = &s->best->config;
    const par__plan_case k = par__plan_case_of(s->problem, c);
    const double bytes = 4 * k.e * k.rows * k.m->features, gpus = k.x->gpus_per_node;
    const double inside = par__plan_gather(k.x, par__plan_group_of(k.x, par__plan_max(k.t, 2), 1), bytes, 1);
    par__plan_group across;
    char reason[320];
    across.ranks = par__plan_max(k.t, 2);
    across.inside = 1;
    if (c->tp > 1)
        snprintf(
            reason, sizeof reason,
            "%s a node of %.0f GPUs: in a layer's forward %.3g MB are gathered and scattered in %.3g ms, "
            "and over the network alone it would be %.3g ms at %.3g GB/s",
            c->tp <= gpus ? "it stays inside" : "it leaves", gpus, bytes / 1e6, 1e3 * inside,
            1e3 * par__plan_gather(k.x, across, bytes, 1), par__plan_link(k.x) / 1e9);
    else
        snprintf(reason, sizeof reason,
                 "layers are whole: with tp 2 a layer's forward would wait %.3g ms for %.3g MB", 1e3 * inside,
                 bytes / 1e6);
    par__plan_say_axis(s, PAR_PLAN_AXIS_tp, reason);
}
static void par__plan_say_pp(const par__plan_explanation *s) {
    const par_plan_config *c = &s->best->config;
    const par_plan_prediction *p = &s->best->prediction;
    char reason[256];
    if (c->pp > 1)
        snprintf(
            reason, sizeof reason,
            "%d microbatches on %d ranks, %s with %d chunks: the bubble is %.1f%% of the step, and messages "
            "between stages %.2g s",
            p->microbatches, c->pp, par_plan_schedule_names[c->schedule], c->chunks,
            100 * p->times.bubble / p->seconds, p->times.pp);
    else
        snprintf(reason, sizeof reason, "no stages, so no bubble; %.1f GB suffice", p->bytes / 1e9);
    par__plan_say_axis(s, PAR_PLAN_AXIS_pp, reason);
}
static void par__plan_say_zero(const par__plan_explanation *s) {
    const par_plan_config *c = &s->best->config;
    const par_plan_prediction *p = &s->best->prediction;
    char reason[256];
    const double gathers = par__plan_gathers(&s->problem->job, c) * p->microbatches / par__plan_copies(c);
    const int splits = par__plan_splits(c), reductions = splits ? 1 : p->microbatches;
    const double sent[] = {2, 2, 1.0 + reductions, reductions + gathers};
    snprintf(
        reason, sizeof reason,
        "each of %d ranks sends %.0f times its parameters in a step (ZeRO-1: 2, ZeRO-2: %.0f, ZeRO-3: %.0f, "
        "with %d microbatches%s), and has %.1f GB of parameters, gradients and states",
        c->dp * c->cp, sent[c->zero], sent[2], sent[3], p->microbatches,
        splits ? ", whose gradients a rank adds up where backward is split" : "",
        (p->memory.parameters + p->memory.gradients + p->memory.states) / 1e9);
    par__plan_say_axis(s, PAR_PLAN_AXIS_zero, reason);
}
static void par__plan_say_recompute(const par__plan_explanation *s) {
    const par_plan_config *c = &s->best->config;
    const par_plan_prediction *p = &s->best->prediction;
    const par__plan_case k = par__plan_case_of(s->problem, c);
    const par__plan_layer l = par__plan_layer_of(&k, c->ulysses);
    char reason[256];
    snprintf(reason, sizeof reason,
             "activations take %.1f GB and %.2g s of recomputation; a layer keeps %.0f, %.0f or %.0f MB of a "
             "microbatch (none, selective, full)",
             p->memory.activations / 1e9, p->times.recompute, l.saved[0] / 1e6, l.saved[1] / 1e6,
             l.saved[2] / 1e6);
    par__plan_say_axis(s, PAR_PLAN_AXIS_recompute, reason);
}
// What the limit of memory costs: the fastest without it.
static void par__plan_say_memory(const par__plan_explanation *s) {
    const par_plan_prediction *p = &s->best->prediction;
    par_plan_problem problem = *s->problem;
    par_plan_prediction mine;
    par_plan_choice fastest;
    par_plan_report report;
    char sentence[512], layout[256];
    const double limit = par__plan_capacity(&problem);
    problem.job.memory_bytes = 1e18;
    if (par_plan_search(&problem, NULL, 0, 0, &fastest, 1, &report)) return;
    par_plan_evaluate(&problem, &s->best->config, &mine); // by the formulas, as the search has it
    par_plan_format(&fastest.config, 1, layout, sizeof layout);
    if (fastest.prediction.seconds < mine.seconds)
        snprintf(sentence, sizeof sentence,
                 "it needs %.1f of %.1f GB; without this limit the fastest takes %.4g s, %.1f%% less: %s",
                 p->bytes / 1e9, limit / 1e9, fastest.prediction.seconds,
                 100 * (1 - fastest.prediction.seconds / mine.seconds), layout);
    else
        snprintf(sentence, sizeof sentence, "it needs %.1f of %.1f GB; more memory would not make it faster",
                 p->bytes / 1e9, limit / 1e9);
    s->fn(s->user, "memory", sentence);
}
static void par__plan_say_bound(const par__plan_explanation *s) {
    const par_plan_prediction *p = &s->best->prediction;
    char sentence[320];
    snprintf(sentence, sizeof sentence,
             "it is bound by %s, %.4g of %.4g s; while it computes a GPU reaches %.4g of the %.4g TFLOP/s of "
             "large products",
             par_plan_bound_by(p), par__plan_largest(p).seconds, p->seconds,
             p->flops_per_gpu * p->seconds / par__plan_max(p->times.compute, 1e-300) / 1e12,
             s->problem->machine.product_rate / 1e12);
    s->fn(s->user, "bound", sentence);
}
void par_plan_explain(const par_plan_problem *problem, const par_plan_choice *best, par_plan_reason_fn fn,
                      void *user) {
    const par_plan_config *c = &best->config;
    const par_plan_problem with = par__plan_with_defaults(problem);
    char why[160];
    par__plan_explanation s;
    s.problem = &with;
    s.best = best;
    s.fn = fn;
    s.user = user;
    if (par__plan_check_problem(problem, why, sizeof why)) {
        fn(user, "problem", why);
        return;
    }
    if (!par__plan_find_alternatives(&s)) {
        fn(user, "memory", "out of memory for the reasons");
        return;
    }
    par__plan_say_tp(&s);
    if (c->tp > 1)
        par__plan_say_axis(&s, PAR_PLAN_AXIS_sp,
                           c->sp ? "the same bytes as without, and norms and residuals are divided over tp"
                                 : "whole tokens on every rank");
    par__plan_say_pp(&s);
    par__plan_say_axis(&s, PAR_PLAN_AXIS_cp,
                       c->cp > 1 ? "a sequence is divided over ranks" : "a sequence fits on a rank");
    par__plan_say_zero(&s);
    par__plan_say_axis(&s, PAR_PLAN_AXIS_microbatch, "products are large enough, and microbatches enough");
    par__plan_say_recompute(&s);
    par__plan_say_axis(&s, PAR_PLAN_AXIS_offload,
                       c->offload ? "the host's link has time for it" : "everything fits");
    par__plan_say_memory(&s);
    par__plan_say_bound(&s);
}

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_PLAN_IMPLEMENTATION

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

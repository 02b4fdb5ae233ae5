// par_tp.h - tensor, sequence and context parallel layers: forward and backward, on buffers you own.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_TP_IMPLEMENTATION)
#define PAR_TP_IMPLEMENTATION
#endif
// clang-format on

#include "par.h"
#include "par_math.h"
#if PAR_VERSION != 900
#error "par_tp.h is version 0.9.0, and par.h is of another version: take all headers from one version"
#endif

#ifndef PAR_TP_H
#define PAR_TP_H
/*
WHAT
    The layers of a transformer, split over ranks: each matrix product over t ranks (tensor parallelism),
    norms and residuals over the same ranks by tokens (sequence parallelism), each sequence over c ranks
    (context parallelism). Every layer is a forward and a backward function that you call; there is no
    autograd. Initial values and dropout do not depend on the split.

USE
    #define PAR_IMPLEMENTATION        in one source file, best one that has nothing else: it takes 10 s
    #include "par_tp.h"               cc -O2 prog.c -pthread -lm    (-DPAR_DNNL: see par_gemm_select)

STEP BY STEP (you have forward and backward of a transformer in one process)
    1. par_mesh_open makes the grid of ranks; par_tp_open takes its tp (and cp) comm.
    2. Give each layer the sizes of the whole layer and call its _open function. It says which part of each
       parameter this rank has. Allocate that; par_tp_init fills it.
    3. Replace each product, norm, attention and loss by the _forward function here; call the _backward
       functions in reverse order. A matrix states its layout, and a wrong one is an error.
    4. If your blocks are GPT-2's or Llama's, par_tp_block is all of their layers: open it, add its parameters
       to par_zero.h (par_tp_describe), call its _forward and _backward. examples/gpt/model.h does.
    5. Without par_zero.h call par_tp_finalize_gradients once a step, before the optimizer.

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par_tp.h"

    int main(void) { // a row-parallel product after a column-parallel one: one sum over the ranks
        par_comm *world;
        par_tp *tp;
        if (par_open(NULL, &world) != PAR_OK) return 1;
        par_tp_desc desc = {0};
        par_tp_linear up = {0}, down = {0};
        desc.tp = world;
        up.in = down.out = 8, up.out = down.in = 24, down.row_parallel = 1;
        if (par_tp_open(&desc, &tp) || par_tp_linear_open(tp, &up) || par_tp_linear_open(tp, &down)) return 1;
        float w1[24 * 8], w2[8 * 24], data[3][4 * 24];
        up.weight.data = w1, down.weight.data = w2;
        if (par_tp_fill(tp, &up.weight, 0.5f) || par_tp_fill(tp, &down.weight, 0.25f)) return 1;
        par_tp_matrix x = {data[0], 4, 8, PAR_TP_REPLICATED}, h = x, y = x; // 4 tokens
        h.data = data[1], y.data = data[2];
        for (int i = 0; i < 32; i++) data[0][i] = 1;
        if (par_tp_linear_forward(tp, &up, &x, NULL, &h) || par_tp_linear_forward(tp, &down, &h, NULL, &y))
            return 1;
        if (par_rank(world) == 0) printf("each feature is %g\n", (double)data[2][0]);
        // with PAR_RANKS=3 it prints: each feature is 24
        par_tp_close(tp);
        return par_close(world) != PAR_OK;
    }

TABLE OF CONTENTS
    The API comes first: contexts, matrices, parameters, layers, memory. Implementation, bottom-up, and behind
    the layers the CPU's kernels, of which these see the table:
    >>tp_context    contexts, scratch memory, errors, checks of layouts
    >>tp_canonical  sums by leaves, whose bits do not depend on the number of ranks
    >>tp_layouts    conversions between layouts
    >>tp_parameters shapes, initial values, gradients, the norm
    >>tp_linear     column- and row-parallel products
    >>tp_local      norms, activations, dropout, residuals, rotary positions
    >>tp_embedding  vocabulary-parallel embedding and cross entropy
    >>tp_attention  causal attention: on one rank, ring attention, Ulysses
    >>tp_kv_cache   attention with a key-value cache, for generation
    >>tp_save_bytes bytes that a layer keeps between forward and backward, and memory for them
    >>tp_block      the transformer block, made of the layers above
    >>tp_loops      inner loops, compiled once per instruction set
    >>tp_bf16       products of bf16 by the processor's own instructions
    >>tp_kernels    the CPU's kernels
    >>tp_codes      products in 8 and 4 bits; the table of the CPU's kernels

CONFIG
    PAR_IMPLEMENTATION (or PAR_TP_IMPLEMENTATION)   emit the code, in one file
    PAR_DNNL, PAR_CBLAS as in par_math.h; PAR_MALLOC, PAR_ASSERT ... as in par.h

MODEL
    A context (par_tp) has t tensor-parallel ranks (desc.tp) and c context-parallel ranks (desc.cp). A row of
    a matrix is a token, a column a feature. The rows are B sequences of s/c tokens, one after the other:
    R = B s/c rows. Each matrix carries its layout, and every call checks it:
        REPLICATED   R x h         every rank of tp has the same values
        SEQUENCE     R/t x h       rank r has rows r R/t to (r+1) R/t - 1
        HIDDEN       R x h/t       each rank has some columns (whole heads), in the order of the segments
        VOCABULARY   R x V/t       each rank has some columns, counts differ by at most one; ld: see par_tp_ld
        PARTIAL      R x h         the value is the sum of all ranks' matrices
    Between two products a matrix is SEQUENCE if desc.sequence_parallel is 1, else REPLICATED. The comments
    below call this layout "tokens".
    Context parallelism. Ring: rank r of cp has chunks r and 2c-1-r of the 2c chunks of every sequence; all
    ranks have the same work under the causal mask. par_tp_position tells which token a row is. Ulysses: rank
    r has chunk r of c, and each rank computes attention for some of the heads.
    Storage is f32 or bf16 (desc.dtype). Sums, statistics and gradients of parameters are f32; partial sums
    may travel over tp in bf16 (desc.sum_dtype). Backward adds to the gradients of parameters and overwrites
    the gradients of inputs.
    Memory. The caller owns all matrices and parameters (par_tp_alloc lays out matrices), and keeps between
    forward and backward what ..._save_bytes counts. A context owns scratch memory, which grows during the
    first step and then stays. par_tp_head_forward_backward has logits there, some rows at a time.
    Gradients. Where tokens are split, a rank computes gradients of replicated parameters (norms, biases) from
    its own tokens alone; where ranks share a key-value head, from its own query heads alone. par_zero.h sums
    these by itself, as par_tp_describe tells it; without it par_tp_finalize_gradients does. The caller sums
    all gradients over cp and dp, as over data-parallel ranks.
    Errors. par_last_error(desc.tp) has the text: what is wrong, where the program made the call, and the
    layer's name. A name is not copied: keep it valid.
    Reproducibility. Results are the same to the bit for one binary on one kind of processor. Another
    compiler, matrix product library or instruction set rounds differently; another t adds in another order.
    desc.canonical_leaves = L makes results the same to the bit for t = 1, 2, 4 ... L, on every processor and
    with every compiler. Its definition (docs/bits.md has that of arithmetic and functions):
        Leaves       of a sum of n terms: leaf i has the terms from ceil(i n/L) to ceil((i+1) n/L) - 1. Leaves
                     are added as by PAR_TREE_SUM: pairs of neighbors, then pairs of pairs.
        Products     are par_gemm_canonical's, in f32; of bf16 rounded once, a row-parallel bias added after.
                     Row-parallel outputs are sums over `in`, by leaves; gradients of a column-parallel input
                     are sums over `out`, by leaves: leaf i of the first segment + leaf i of the second + ...
        Norms        gradients of weight and bias are sums over the rows of a backward, by leaves; a leaf's
                     rows from first to last. All other gradients add rows (products: as those do) in order.
        Loss         max, sum of e^(x - max) and the others are computed for each of L blocks of the
                     vocabulary, cut as leaves are, and combined in f64 from the first block to the last.
        Attention    is that of one rank: heads are not split.
        Over cp      backward gathers tokens for the gradients of parameters: one rank computes an element,
                     the others add nothing to it, so the sum over cp is exact.
    Products of bf16. A CPU with avx512_bf16, amx_bf16 or (Arm) bf16 can multiply bf16 and add in f32, also in
    attention, whose weights it rounds to bf16. Such instructions need not be fast: par_tp_gemm_select
    measures them against f32's products of converted operands, and takes the fastest.
    Threads. A context is not thread-safe: it belongs to one rank.

DOES NOT
    No autograd. No mixture of experts, no cross attention.

LIMITS
    Where tokens are split, t must divide R. t must divide heads; key-value heads must divide t or be divided
    by it. 2c (ring) or c (Ulysses) must divide s. Attention is causal. A key-value cache does not support
    documents.
*/

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// ---- contexts ---------------------------------------------------------------------------------------------

typedef struct par_tp par_tp;
typedef struct par_tp_kernels par_tp_kernels; // one table for each kind of device; see below

typedef struct par_tp_desc {
    par_comm *tp;          // tensor-parallel ranks, best of one node; must not be NULL
    par_comm *cp;          // context-parallel ranks; NULL: this rank alone
    int sequence_parallel; // 1: tokens are split over tp between the products
    int ulysses;           // 1: context parallelism by all-to-all; 0: by a ring
    // Pieces into which rows are split, at most 8, so that the communication of one runs beside the product
    // of another; 1: never. 0: by size, up to 4 on GPUs, and 1 on CPUs, which do not compute while they copy,
    // and where tokens are split and the parts of a piece, one of each rank's tokens, are not one product:
    // without cuBLASLt, and with GELU in the product. The bits are the same, unless a library multiplies
    // fewer rows in another way.
    int row_pieces;
    // L, a power of two that t divides, at most 64: every such t and every c, with and without sequence
    // parallelism, gets the same bits; see MODEL. 0: sums in rank order. For kernels that are canonical, and
    // heads and key-value heads that t c divides; with t c > 1 no recipe. Attention is by all-to-all, as by
    // `ulysses`.
    int canonical_leaves;
    size_t canonical_batch; // with canonical_leaves and c > 1: B, the sequences of a microbatch
    par_dtype dtype;        // of activations and weights: f32 or bf16; 0: f32
    // The type in which partial sums of products travel over tp: row-parallel outputs and the gradients of
    // column-parallel inputs. 0: f32. PAR_BF16, with dtype bf16: half of the bytes, as Megatron has it. Each
    // rank's partial x_r is rounded to bf16, the t of them are added in f32, and the sum is rounded once. So
    // it is off by at most 2^-8 of the sum of the |x_r|, and by 2^-8 of the result; with f32 by the latter
    // alone. (NCCL adds so between windows, where the layers' memory is; without windows it may round after
    // each addition.) Not with canonical_leaves.
    par_dtype sum_dtype;
    uint64_t seed;                 // for initial values and dropout; the same on all ranks
    const par_tp_kernels *kernels; // NULL: the CPU's kernels
} par_tp_desc;

// Opens a context. Collective over tp and cp. Errors: ARGUMENT (desc.tp is NULL: the text goes to PAR_LOG;
// too many ranks, or another dtype), MISMATCH (ranks gave different descs), MEMORY, and the errors of a
// collective.
par_result par_tp_open(const par_tp_desc *desc, par_tp **tp);
// Frees the context and its scratch memory. Collective over tp. NULL is PAR_OK.
par_result par_tp_close(par_tp *tp);
// Goes on in other comms of the same sizes, those of par_shrink, say. This rank has its number in tp again,
// and any one in cp. Layers and parameters stay; scratch memory is made anew. Between steps; close the old
// comms afterwards. Collective over tp_comm and cp: ranks that are new there call par_tp_open, and open their
// layers. Errors: ARGUMENT (another size or number), UNSUPPORTED (a ring of devices: open another context),
// MISMATCH, those of par_split.
par_result par_tp_set_comms(par_tp *tp, par_comm *tp_comm, par_comm *cp);
// The comm that has taken the place of one that par_tp_describe gave for sums (par_zero_comms.replace): the
// same one where it is still in use. NULL: it was none of this context's.
par_comm *par_tp_comm_after(const par_tp *tp, const par_comm *old);
size_t par_tp_element_bytes(const par_tp *tp); // 4, or 2 with bf16

// As par_gemm_select, which it calls, and also how bf16 is multiplied, if dtype is bf16: by instructions for
// it, by a library's own product, or converted to f32 and multiplied by the library that f32 has, or by the
// built-in kernel. Attention takes the instructions where they are faster than the built-in kernel. Rank 0
// measures, and all ranks take its choice; a rank without the instructions converts. par_tp_open calls this
// if nobody has. PAR_GEMM=NAME,HOW chooses: HOW is tile (the instructions), library, widen or widen-built-in;
// PAR_GEMM=NAME alone also means tile. canonical_leaves needs no choice. Collective; errors as there.
par_result par_tp_gemm_select(const par_gemm_shape *shapes, size_t shape_count, par_dtype dtype,
                              par_comm *comm);
// How bf16 is multiplied: candidates in that order, by the names that PAR_GEMM takes, but a tile by that of
// its instructions. Note "not there": this processor or these libraries have none.
par_gemm_report par_tp_gemm_get(void);

// Describes a microbatch: it tells which token each row of a matrix is.
typedef struct par_tp_tokens {
    size_t batch;    // B: sequences
    size_t sequence; // s: tokens of a whole sequence
    uint64_t
        first_sequence; // number of the first of these sequences among all of the step; keys random numbers
    size_t
        position; // of the first token here of each sequence: so many are in a par_tp_kv_cache; training: 0
    // NULL: each sequence is one document. Else what par_tp_documents_map made, in the device's memory: a
    // token attends to tokens of its own document only. Valid until backward has used it.
    const uint32_t *documents;
} par_tp_tokens;

size_t par_tp_rows(const par_tp *tp, const par_tp_tokens *tokens); // R = B s/c
// The position in its sequence of local token i, 0 <= i < s/c. It is the same for every sequence.
size_t par_tp_position(const par_tp *tp, size_t sequence, size_t i);

// Describes sequences that consist of several documents, which is attention of variable lengths as
// FlashAttention (Dao 2023, cu_seqlens) and Transformer Engine (the THD format) have it. Document d has
// tokens offsets[d] to offsets[d + 1] - 1 of all B s tokens of the whole sequences, one after the other: so
// offsets has count + 1 numbers, from 0 to B s, none less than the one before. A document ends at the latest
// with its sequence; where documents follow each other without sequences, give B = 1 and s = all tokens.
// Positions of tables and random numbers stay those of the sequence; so do RoPE's, which is the same as if
// each document began at 0, since scores depend on differences of positions alone (Su et al. 2021). Writes 2
// B s numbers to map, in the host's memory: copy them to the device, as ids are, and set tokens.documents to
// the copy. With cp, all ranks give the same whole sequences. One map serves all layers. Local. Errors:
// ARGUMENT (offsets as above are not; 2^32 tokens or more).
par_result par_tp_documents_map(par_tp *tp, const par_tp_tokens *tokens, const size_t *offsets, size_t count,
                                uint32_t *map);

// ---- matrices ---------------------------------------------------------------------------------------------

#define PAR_TP_LAYOUTS(X)                                                                                    \
    X(PAR_TP_REPLICATED, "replicated")                                                                       \
    X(PAR_TP_SEQUENCE, "split by tokens")                                                                    \
    X(PAR_TP_HIDDEN, "split by features")                                                                    \
    X(PAR_TP_VOCABULARY, "split by vocabulary")                                                              \
    X(PAR_TP_PARTIAL, "a partial sum")
typedef enum par_tp_layout {
#define PAR__X(name, text) name,
    PAR_TP_LAYOUTS(PAR__X)
#undef PAR__X
        PAR_TP_LAYOUT_COUNT
} par_tp_layout;

// A row-major matrix, dense except in layout VOCABULARY. For an output the caller sets data to memory for
// rows x par_tp_ld elements, and the call sets the other members.
typedef struct par_tp_matrix {
    void *data;
    size_t rows, cols; // on this rank
    par_tp_layout layout;
} par_tp_matrix;
// The leading dimension: elements from one row to the next. It is cols, and for VOCABULARY the next multiple
// of 64, because a vocabulary may be odd, but matrix products and 16-byte loads need aligned rows. The
// padding is never read.
size_t par_tp_ld(par_tp_layout layout, size_t cols);

// Conversions between layouts, the conjugate operators f and g of Megatron (Shoeybi et al. 2019; Korthikanti
// et al. 2022). Without sequence parallelism f does nothing forward and all_reduce backward, and g the
// reverse. With it f is all_gather forward and reduce_scatter backward, and g the reverse. In place (y = x)
// is allowed for all_reduce only. all_gather and reduce_scatter send n = R h (t-1)/t elements per rank,
// all_reduce 2n. Errors: ARGUMENT (a wrong layout or size), and the errors of a collective.
par_result par_tp_all_reduce(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y); // PARTIAL -> REPLICATED
par_result par_tp_all_gather_rows(par_tp *tp, const par_tp_matrix *x,
                                  par_tp_matrix *y); // SEQUENCE -> REPLICATED
par_result par_tp_reduce_scatter_rows(par_tp *tp, const par_tp_matrix *x,
                                      par_tp_matrix *y);                            // PARTIAL -> SEQUENCE
par_result par_tp_split_rows(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y); // REPLICATED -> SEQUENCE

// ---- parameters -------------------------------------------------------------------------------------------

enum { PAR_TP_SEGMENTS = 4 };
typedef struct par_tp_segment { // one part of the output of a fused product, as q, k or v
    size_t count;               // its features on all ranks together
    size_t unit;                // features that stay on one rank: the size of a head; 0: 1
} par_tp_segment;

typedef enum par_tp_split {
    PAR_TP_SPLIT_NONE,
    PAR_TP_SPLIT_ROWS,
    PAR_TP_SPLIT_COLS,
    PAR_TP_SPLIT_VOCABULARY
} par_tp_split;

// A parameter and this rank's shard of it. The ..._open function of its layer sets all members but data, grad
// and frozen, which the caller sets.
typedef struct par_tp_parameter {
    void *data;        // local_rows x local_cols of the context's type
    float *grad;       // the same shape, in f32; backward adds to it
    size_t rows, cols; // of the whole parameter
    size_t local_rows, local_cols;
    par_tp_split split;
    int frozen; // 1: not trained, and grad may be NULL; else backward needs grad (ARGUMENT)
    int owned;  // 1: a par_zero completes its gradient and updates it; 0 again when the layer is opened again
    int use_adamw; // 1: of an embedding or a head, which Muon leaves to AdamW (Jordan 2024)
    int partial;   // 1: grad covers this rank's tokens only, and is to be summed over tp
    int segment_count;
    par_tp_segment segments[PAR_TP_SEGMENTS]; // of the rows, for SPLIT_ROWS; none: one segment
    char name[64];                            // of the layer, and ".weight", ".bias" or ".position"
    float deviation, value; // initially: normal numbers of this deviation; 0: each element is `value`
} par_tp_parameter;

// The shard of a parameter that this rank has is one or more ranges of rows (SPLIT_COLS: of columns). Range
// number `index` begins at row `first` of the shard, which is row `global` of the whole parameter, and has
// `count` rows; `replicas` ranks have it. Returns 0 if there is no range of this number, else 1.
int par_tp_shard(const par_tp *tp, const par_tp_parameter *p, int index, size_t *first, size_t *global,
                 size_t *count, int *replicas);

// The same as a par_shard, with the ranges as its runs: par_zero_tensor.shard takes it, and so par_zero.h
// initializes, saves, loads and exports the parameter as one tensor, whatever t is.
par_shard par_tp_parameter_shard(const par_tp *tp, const par_tp_parameter *p);
// Describes parameters of opened layers as par_zero.h needs it: their names, shards, initial values and sums,
// whether they are frozen, and where data and grad are. Norms and biases have no weight decay; embeddings and
// heads are for AdamW where the others are Muon's. Change in `out` what shall be otherwise. NULLs in the list
// are left out. Number i of the list has the random stream `stream` + i. Returns how many are in `out`.
int par_tp_describe(const par_tp *tp, par_tp_parameter *const *list, int count, uint64_t stream,
                    par_parameter *out);

// par_tp_init draws normal numbers with mean 0; number i of the whole parameter depends on desc.seed, stream
// and i alone, so that initial values are the same for every t, and on each device. par_tp_fill sets all
// elements to one value. Errors: ARGUMENT (the layer is not open, data is NULL, the deviation is not
// positive).
par_result par_tp_init(par_tp *tp, par_tp_parameter *p, uint64_t stream, float standard_deviation);
par_result par_tp_fill(par_tp *tp, par_tp_parameter *p, float value);

// Completes gradients of parameters that no par_zero has. Call it once a step, after the last backward. It
// sums over tp the gradients that cover a rank's own tokens only, and the gradients of a key-value head
// over the ranks that share it, in one group of calls for each comm. Collective over tp. Errors: ARGUMENT
// (on any rank, of a GPU on this one: a par_zero has a parameter, and so sums its gradient itself; grad is
// NULL and the parameter not frozen), and those of the collectives.
par_result par_tp_finalize_gradients(par_tp *tp, par_tp_parameter *const *parameters, size_t count);
// *norm = the L2 norm of all gradients as one vector; an element that several ranks have counts once. Call it
// after par_tp_finalize_gradients and the sum over cp and dp. Collective over tp; all ranks get the same
// bits. Errors: MEMORY, those of par_tp_finalize_gradients (par_zero_step reports the norm of what a par_zero
// has).
par_result par_tp_global_norm(par_tp *tp, par_tp_parameter *const *parameters, size_t count, double *norm);

// ---- low precision ----------------------------------------------------------------------------------------

// Products of codes of 8 or 4 bits, which tensor cores multiply two to four times as fast as bf16. An operand
// is multiplied by an encode scale, so that its largest element becomes about the code's largest number, and
// rounded to nearest even; numbers beyond that one become it. The product multiplies codes, adds in f32, and
// multiplies by both operands' decode scales. Weights, activations and gradients stay what they are: each
// product quantizes its operands anew, along the dimension that it adds over (K).
// The codes, X(constant, bits, largest number). E4M3 and E5M2 are par.h's 8-bit floats. E2M1 is 0, 0.5, 1,
// 1.5, 2, 3, 4, 6 and their negatives (OCP Microscaling Formats 1.0), two in a byte, the first in the low
// half.
#define PAR_TP_CODES(X)                                                                                      \
    X(PAR_TP_E4M3, 8, 448.0f)                                                                                \
    X(PAR_TP_E5M2, 8, 57344.0f)                                                                              \
    X(PAR_TP_E2M1, 4, 6.0f)
typedef enum par_tp_code {
#define PAR__X(name, bits, max) name,
    PAR_TP_CODES(PAR__X)
#undef PAR__X
        PAR_TP_CODE_COUNT
} par_tp_code;

// How scales are stored. F32: max/amax, where amax is the largest absolute value of the block; the decode
// scale is 1 over it, both rounded to f32; 1 for a block that is 0, infinite or NaN. POWER: the same, with
// max/amax rounded down to a power of 2. E8M0: the power of 2 from amax/max on, as its exponent in 8 bits
// (Mishra et al. 2025; the specification of MX would round down, which saturates). E4M3: two levels (NVFP4):
// with s = 448 max / amax of the tensor, the block's decode scale is s amax/max rounded to E4M3, over s.
typedef enum par_tp_scale {
    PAR_TP_SCALE_F32,
    PAR_TP_SCALE_POWER,
    PAR_TP_SCALE_E8M0,
    PAR_TP_SCALE_E4M3
} par_tp_scale;

// The recipes, X(constant, name, codes of x and weights, codes of gradients, scales, rows and columns (along
// K) of the blocks of x and gradients, 0 for all; rows of the blocks of weights, flags).
//     delayed   Transformer Engine's DelayedScaling: one scale a tensor, from the largest amax of the last
//               PAR_TP_AMAX_STEPS steps (before there are any, the tensor's own)
//     current   its Float8CurrentScaling: one scale a tensor, from its own amax
//     rowwise   a scale for each row of either operand (torch._scaled_mm, torchao)
//     blocks    blocks of 1 x 128, of weights 128 x 128 (DeepSeek-V3, 2024), with powers of 2 as
//               Transformer Engine's Float8BlockScaling has them
//     mxfp8     blocks of 32 (OCP Microscaling Formats; Mishra et al. 2025)
//     nvfp4     blocks of 16, of weights 16 x 16; operands of wgrad are rotated by a Hadamard matrix, and
//               gradients rounded at random (Abecassis et al. 2025)
enum { PAR_TP_AMAX_STEPS = 16 };
enum { PAR_TP_HAS_HISTORY = 1, PAR_TP_HADAMARD = 2, PAR_TP_ROUNDS_AT_RANDOM = 4 }; // flags
// clang-format off
#define PAR_TP_RECIPES(X)                                                                                    \
    X(PAR_TP_NO_RECIPE, "none",    PAR_TP_E4M3, PAR_TP_E4M3, PAR_TP_SCALE_F32,   0, 0,   0,   0)             \
    X(PAR_TP_DELAYED,   "delayed", PAR_TP_E4M3, PAR_TP_E5M2, PAR_TP_SCALE_F32,   0, 0,   0,                  \
      PAR_TP_HAS_HISTORY)                                                                                    \
    X(PAR_TP_CURRENT,   "current", PAR_TP_E4M3, PAR_TP_E5M2, PAR_TP_SCALE_F32,   0, 0,   0,   0)             \
    X(PAR_TP_ROWWISE,   "rowwise", PAR_TP_E4M3, PAR_TP_E4M3, PAR_TP_SCALE_F32,   1, 0,   1,   0)             \
    X(PAR_TP_BLOCKS,    "blocks",  PAR_TP_E4M3, PAR_TP_E4M3, PAR_TP_SCALE_POWER, 1, 128, 128, 0)             \
    X(PAR_TP_MXFP8,     "mxfp8",   PAR_TP_E4M3, PAR_TP_E4M3, PAR_TP_SCALE_E8M0,  1, 32,  1,   0)             \
    X(PAR_TP_NVFP4,     "nvfp4",   PAR_TP_E2M1, PAR_TP_E2M1, PAR_TP_SCALE_E4M3,  1, 16,  16,                 \
      PAR_TP_HADAMARD | PAR_TP_ROUNDS_AT_RANDOM)
// clang-format on
typedef enum par_tp_recipe {
#define PAR__X(constant, ...) constant,
    PAR_TP_RECIPES(PAR__X)
#undef PAR__X
        PAR_TP_RECIPE_COUNT
} par_tp_recipe;
const char *par_tp_recipe_name(par_tp_recipe recipe);                    // "delayed", ...
par_result par_tp_recipe_parse(const char *name, par_tp_recipe *recipe); // Error: ARGUMENT (no such name)
// Call it once a step, after the last backward, where a layer has the recipe delayed or nvfp4: the scales of
// the next step follow from the largest amax of the last ones (each rank's of its own operands), and rounding
// takes other random numbers. Within a step neither changes, so that the order of microbatches and halves of
// backward does not matter. Backward takes the amax, so evaluation changes nothing; what backward does not
// multiply (x where the weight is frozen) has its own scale. A checkpoint does not have the history: a
// resumed run begins one. Local.
par_result par_tp_update_scales(par_tp *tp);
typedef struct par__tp_scaled_layer par__tp_scaled_layer;

// ---- linear -----------------------------------------------------------------------------------------------

// A linear layer, Y = X W^T + b (Shoeybi et al. 2019). Zero-initialize it, set the members up to name, and
// open it; then set weight.data and weight.grad (out/t x in if column-parallel, out x in/t if row-parallel),
// and those of bias.
typedef struct par_tp_linear {
    size_t in, out;   // features of the whole layer
    int row_parallel; // 0: column-parallel (out is split); 1: row-parallel (in is split)
    int has_bias;
    int gather_output;  // column-parallel: every rank gets all columns of the output
    int vocab_parallel; // column-parallel: the output is split by vocabulary; t need not divide out
    int segment_count;
    par_tp_segment segments[PAR_TP_SEGMENTS]; // column-parallel: the parts of a fused output
    float deviation;                          // of the initial weight; 0: 0.02
    par_tp_recipe recipe;                     // of its three products; 0: they are of the storage type
    const char *name; // shown in errors, recorder, ledger and trace; NULL: none. Not copied: keep it valid
    par_tp_parameter weight, bias;
    par__tp_scaled_layer *scaled; // its scales: the context's
} par_tp_linear;

// Errors: ARGUMENT (a size or the recipe does not fit), MEMORY, UNSUPPORTED (the kernels have no codes).
par_result par_tp_linear_open(par_tp *tp, par_tp_linear *linear);

// Column-parallel: x is tokens, R x in; y is HIDDEN (VOCABULARY with vocab_parallel, REPLICATED with
// gather_output), R x out/t. With sequence parallelism forward gathers x. If `gathered` is not NULL it
// receives the result, R x in: pass it to backward instead of x, and backward does not gather again.
// Row-parallel: x is HIDDEN, R x in/t; y is tokens, R x out; `gathered` is ignored, pass NULL. The bias is
// added once, after the sum over ranks. Not in place. Elements sent per rank: column-parallel 0, with
// sequence parallelism R in (t-1)/t; row-parallel 2 R out (t-1)/t, with sequence parallelism half of it.
// Errors: ARGUMENT (a layout or size does not fit, data is NULL), MEMORY, and the errors of a collective.
par_result par_tp_linear_forward(par_tp *tp, const par_tp_linear *linear, const par_tp_matrix *x,
                                 par_tp_matrix *gathered, par_tp_matrix *y);
// dy has the shape and layout of y, dx of x. Backward adds to weight.grad and bias.grad. x is the x of
// forward, or what forward gathered. dx NULL: the input needs no gradient. Gathers overlap the first matrix
// product, sums over ranks the second. The other gathers and sums are split by desc.row_pieces.
par_result par_tp_linear_backward(par_tp *tp, par_tp_linear *linear, const par_tp_matrix *dy,
                                  const par_tp_matrix *x, par_tp_matrix *dx);
// The two halves of backward, for pipelines that defer the second (Qi et al. 2023): the gradient of the
// input, and the gradients of the weights. dy is as above; for a row-parallel layer it may also be what
// par_tp_all_gather_rows made of it.
par_result par_tp_linear_backward_input(par_tp *tp, par_tp_linear *linear, const par_tp_matrix *dy,
                                        par_tp_matrix *dx);
par_result par_tp_linear_backward_weight(par_tp *tp, par_tp_linear *linear, const par_tp_matrix *dy,
                                         const par_tp_matrix *x);

// ---- layers that need no other rank -----------------------------------------------------------------------

// Layer norm (Ba et al. 2016), or with rms RMSNorm (Zhang and Sennrich 2019). x and y are tokens. Forward
// writes stats for backward: 2 floats a row (mean, 1/sigma), 1 with rms (1/sigma). Backward adds to
// weight.grad and bias.grad. y must not be x; dx may be dy. Errors: ARGUMENT.
typedef struct par_tp_norm {
    size_t features;
    int rms;
    int has_bias;
    float epsilon;    // 0: 1e-5
    const char *name; // as par_tp_linear's
    par_tp_parameter weight, bias;
} par_tp_norm;
par_result par_tp_norm_open(par_tp *tp, par_tp_norm *norm);
par_result par_tp_norm_forward(par_tp *tp, const par_tp_norm *norm, const par_tp_matrix *x, float *stats,
                               par_tp_matrix *y);
par_result par_tp_norm_backward(par_tp *tp, par_tp_norm *norm, const par_tp_matrix *dy,
                                const par_tp_matrix *x, const float *stats, par_tp_matrix *dx);
// The same with an addition, in one pass over memory where kernels have it. Forward: sum = x + residual, and
// y is sum's norm; sum may be x or residual. Backward: x is that sum, and residual is added to dx; dx may be
// dy or residual. The bits are those of par_tp_add and the norm, one after the other.
par_result par_tp_add_norm_forward(par_tp *tp, const par_tp_norm *norm, const par_tp_matrix *x,
                                   const par_tp_matrix *residual, float *stats, par_tp_matrix *sum,
                                   par_tp_matrix *y);
par_result par_tp_norm_backward_add(par_tp *tp, par_tp_norm *norm, const par_tp_matrix *dy,
                                    const par_tp_matrix *x, const float *stats, const par_tp_matrix *residual,
                                    par_tp_matrix *dx);

// GELU, approximated by tanh (Hendrycks and Gimpel 2016). Any layout but PARTIAL. In place is allowed.
par_result par_tp_gelu_forward(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y);
par_result par_tp_gelu_backward(par_tp *tp, const par_tp_matrix *dy, const par_tp_matrix *x,
                                par_tp_matrix *dx);
// SwiGLU, y = silu(gate) up (Shazeer 2020). x is HIDDEN or REPLICATED with the segments [gate; up]; y has
// half as many columns. Backward needs x. Not in place.
par_result par_tp_swiglu_forward(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y);
par_result par_tp_swiglu_backward(par_tp *tp, const par_tp_matrix *dy, const par_tp_matrix *x,
                                  par_tp_matrix *dx);
// z = x + y, for residuals. x and y have one layout and one shape. z may be x or y.
par_result par_tp_add(par_tp *tp, const par_tp_matrix *x, const par_tp_matrix *y, par_tp_matrix *z);
// Dropout: sets elements to 0 with the given probability p and scales the others by 1/(1 - p). Whether an
// element is dropped depends on desc.seed, stream, token and feature alone. Backward is the same call on the
// gradient. x and y are tokens; y may be x. Errors: ARGUMENT (p is not in [0, 1), the rows are not `tokens`).
par_result par_tp_dropout(par_tp *tp, const par_tp_tokens *tokens, uint64_t stream, float probability,
                          const par_tp_matrix *x, par_tp_matrix *y);
// From now on *offset, in the device's memory, is added to the stream of each dropout (also of attention)
// when a kernel runs: so each replay of a captured CUDA graph can drop other elements, and round other ones
// up (see PAR_TP_NVFP4). NULL, the default: 0.
void par_tp_set_dropout_offset(par_tp *tp, const uint64_t *offset);
// Rotary position embedding, RoPE (Su et al. 2021): pair i of a head is rotated by position base^(-2i/dim).
// With factor 0 nothing is scaled. Otherwise frequencies are scaled as in Llama 3.1 (Grattafiori et al.
// 2024): pairs that make fewer than `low` rotations in `original` tokens rotate `factor` times slower, pairs
// that make more than `high` keep their speed, and those between are interpolated.
typedef struct par_tp_rotary {
    float base;   // 0: 10000
    float factor; // 0: no scaling
    float low, high, original;
} par_tp_rotary;
// Rotates the pairs (j, j + dim/2) of the first `heads` heads of each row of x, in place. x is HIDDEN or
// REPLICATED. backward 1 rotates back: use it on the gradient. Errors: ARGUMENT (dim is odd, heads do not
// fit).
par_result par_tp_rope(par_tp *tp, const par_tp_tokens *tokens, size_t heads, size_t dim,
                       const par_tp_rotary *rotary, int backward, par_tp_matrix *x);

// ---- embedding and loss -----------------------------------------------------------------------------------

// Token embedding: y[row] = weight[ids[row]], plus a learned position embedding if max_positions is not 0.
// The table's `vocabulary` rows are split over tp (Shoeybi et al. 2019); t need not divide them. ids are R
// integers, the same on every rank of tp. y is tokens, R x features. Backward adds to the gradients. Errors:
// ARGUMENT (on the CPU also an id beyond the vocabulary), MEMORY, and the errors of a collective.
typedef struct par_tp_embedding {
    size_t vocabulary, features;
    size_t max_positions; // tokens of the longest sequence; 0: no learned positions
    float deviation;      // of the initial weights; 0: 0.02
    const char *name;     // as par_tp_linear's
    par_tp_parameter weight, position_weight;
} par_tp_embedding;
par_result par_tp_embedding_open(par_tp *tp, par_tp_embedding *embedding);
par_result par_tp_embedding_forward(par_tp *tp, const par_tp_embedding *embedding,
                                    const par_tp_tokens *tokens, const int32_t *ids, par_tp_matrix *y);
par_result par_tp_embedding_backward(par_tp *tp, par_tp_embedding *embedding, const par_tp_tokens *tokens,
                                     const int32_t *ids, const par_tp_matrix *dy);

// Cross entropy of logits that are split by vocabulary (Shoeybi et al. 2019), with label smoothing e and
// z-loss z. The loss of a row with logits x, target y and lse = log sum e^x is
//     loss = (1 - e)(lse - x_y) + e (lse - mean of x) + z lse^2
// Rows whose target is negative or ignore_index do not count.
typedef struct par_tp_loss {
    size_t vocabulary;
    float label_smoothing; // e
    float z_loss;          // z
    int32_t ignore_index;  // a target that does not count; negative targets never do
    const char *name;      // as par_tp_linear's
} par_tp_loss;
// logits are VOCABULARY, R x V/t; targets are R ids, the same on every rank of tp. Writes R floats to losses
// (NULL: none), R floats to lse (for backward), the sum of the losses to *sum and the number of rows that
// count to *target_count, for this rank of cp. All pointers are to the device's memory. Sends one all_gather
// of 4 floats a row. Errors: ARGUMENT (on the CPU also a target beyond the vocabulary), MEMORY, and the
// collective's.
par_result par_tp_loss_forward(par_tp *tp, const par_tp_loss *loss, const par_tp_matrix *logits,
                               const int32_t *targets, float *lse, float *losses, double *sum,
                               size_t *target_count);
// dlogits = scale x the gradient of the sum. dlogits may be logits. Sends nothing.
par_result par_tp_loss_backward(par_tp *tp, const par_tp_loss *loss, const par_tp_matrix *logits,
                                const int32_t *targets, const float *lse, float scale,
                                par_tp_matrix *dlogits);
// Forward and backward in one call, with the same bits as two calls, for when the scale is known in advance.
// With one rank of tp each logit is read once instead of twice. dlogits may be logits.
par_result par_tp_loss_forward_backward(par_tp *tp, const par_tp_loss *loss, const par_tp_matrix *logits,
                                        const int32_t *targets, float *lse, float *losses, double *sum,
                                        size_t *target_count, float scale, par_tp_matrix *dlogits);

// The head and its loss in one call, so that logits of some rows at a time exist (FusedLinearCrossEntropy,
// Hsu et al. 2024): R x V of them are a model's largest matrix, and nothing else needs them. `head` is
// column-parallel with vocab_parallel; x is tokens, as for par_tp_linear_forward, and is gathered once.
// Logits of a chunk of chunk_rows rows (the last of 2 at least, so one may have one more) are in the
// context's scratch memory, and become their gradient there; no product is made twice. chunk_rows 0:
// PAR_TP_CHUNK_ROWS; with canonical_leaves all rows. forward: the loss alone. forward_backward: also dx =
// scale x the gradient of x (NULL: none; not x itself, which later chunks read), and adds to the gradients of
// weight and bias. Call that one in backward, where gradients have memory, and keep x until then. losses,
// *sum, *target_count and dx have the bits of par_tp_linear_forward, par_tp_loss_forward_backward and
// par_tp_linear_backward, unless a library multiplies fewer rows in another way; so have gradients of one
// chunk. Of several they are the chunks' sums, added in their order in f32. Errors: ARGUMENT (as of those
// functions; a recipe, whose scales are of all rows; chunk_rows with canonical_leaves, but for all rows; dx
// is x), MEMORY, and the collectives'.
enum { PAR_TP_CHUNK_ROWS = 16384 };
par_result par_tp_head_forward(par_tp *tp, const par_tp_linear *head, const par_tp_loss *loss,
                               const par_tp_matrix *x, const int32_t *targets, size_t chunk_rows,
                               float *losses, double *sum, size_t *target_count);
par_result par_tp_head_forward_backward(par_tp *tp, par_tp_linear *head, const par_tp_loss *loss,
                                        const par_tp_matrix *x, const int32_t *targets, size_t chunk_rows,
                                        float *losses, double *sum, size_t *target_count, float scale,
                                        par_tp_matrix *dx);
// The bytes of scratch memory that these take for logits and statistics of R rows.
size_t par_tp_head_bytes(const par_tp *tp, const par_tp_linear *head, size_t rows, size_t chunk_rows);
// Gathers one row of logits, all loss->vocabulary columns, as f32 in the host's memory: the same on every
// rank, to choose the next token by. Collective over tp; sends one all_gatherv. Waits for the device. Errors:
// ARGUMENT (another layout or size, no such row), MEMORY, and the collective's.
par_result par_tp_logits_gather(par_tp *tp, const par_tp_loss *loss, const par_tp_matrix *logits, size_t row,
                                float *whole);

// ---- attention --------------------------------------------------------------------------------------------

// Causal attention. x is the HIDDEN output of a column-parallel layer with the segments [q; k; v], each of
// heads of `dim` features. With kv_heads < heads several query heads share a key-value head (GQA, Ainslie et
// al. 2023; kv_heads 1 is MQA). Scores are computed block by block with an online softmax (FlashAttention,
// Dao et al. 2022), so that no s x s matrix is stored. With c context-parallel ranks keys and values travel
// around a ring (Liu et al. 2023, in the order of Brandon et al. 2023), or heads are exchanged (Ulysses,
// Jacobs et al. 2023). Blocks of keys that no query sees are skipped: with a window (Beltagy et al. 2020),
// and with documents (par_tp_tokens), whose keys then cost what attention of each document alone would.
typedef struct par_tp_attention {
    size_t heads, kv_heads, dim; // of the whole layer; kv_heads 0: as many as heads
    float dropout;               // probability that an attention weight is dropped
    float scale;                 // factor of the scores; 0: 1/sqrt(dim)
    const char *name;            // as par_tp_linear's
    size_t window;               // a query sees so many tokens, its own and those right before it; 0: all
} par_tp_attention;
// y is HIDDEN, R x heads/t dim. lse receives R x heads/t floats. Backward needs x, y and lse. Dropout depends
// on desc.seed, stream and the pair of tokens. Not in place. Elements sent per rank over cp: ring 2(c-1) R
// kv_heads/t dim; Ulysses (2 heads + 2 kv_heads)/t dim R (c-1)/c. Errors: ARGUMENT (heads or tokens do not
// divide), MEMORY, and the errors of a collective.
par_result par_tp_attention_forward(par_tp *tp, const par_tp_attention *attention,
                                    const par_tp_tokens *tokens, uint64_t stream, const par_tp_matrix *x,
                                    float *lse, par_tp_matrix *y);
par_result par_tp_attention_backward(par_tp *tp, const par_tp_attention *attention,
                                     const par_tp_tokens *tokens, uint64_t stream, const par_tp_matrix *dy,
                                     const par_tp_matrix *x, const par_tp_matrix *y, const float *lse,
                                     par_tp_matrix *dx);
// Sets the segments of the linear layer that makes q, k and v: for par_tp_linear.segments (segment_count =
// 3).
void par_tp_attention_segments(const par_tp_attention *attention, par_tp_segment segments[3]);

// The key-value cache of one attention layer, for generating text token by token. Each rank has the keys and
// values of its own kv_heads/t heads (at least one). Zero-initialize it; set data, batch and capacity.
typedef struct par_tp_kv_cache {
    void *data;      // batch x [k; v] x heads x capacity x dim: par_tp_kv_cache_bytes of the device's memory
    size_t batch;    // B: sequences, all of one length
    size_t capacity; // the most tokens of a sequence
    size_t count;    // tokens of each sequence that are in the cache
} par_tp_kv_cache;
size_t par_tp_kv_cache_bytes(const par_tp *tp, const par_tp_attention *attention, size_t batch,
                             size_t capacity);
// Attention of s = tokens->sequence new tokens of each of B sequences, to themselves and to all tokens in the
// cache. x and y are as in par_tp_attention_forward; apply par_tp_rope first. tokens->position is the number
// of tokens before them: 0 for a prompt, then the number of tokens so far. The call writes their keys and
// values to the cache from `position` on and sets cache->count to position + s, so that generation can also
// go back. Cost: at most 2 s (position + s) heads/t dim multiply-adds per sequence; sends nothing. Pass the
// same `tokens` to the other layers. There is no backward. Errors: ARGUMENT (dropout is not 0, cp has more
// than one rank, the cache is too small). Where the training context splits tokens (sequence_parallel or cp),
// generate with a second context of the same tp that does not: it has the same shards of the parameters.
par_result par_tp_attention_cached(par_tp *tp, const par_tp_attention *attention, const par_tp_tokens *tokens,
                                   par_tp_kv_cache *cache, const par_tp_matrix *x, par_tp_matrix *y);

// ---- memory -----------------------------------------------------------------------------------------------

// The bytes that the caller keeps between forward and backward on this rank, for R rows (see par_tp_rows),
// without ids and par_tp_documents_map's, which are the same for all layers.
size_t par_tp_linear_save_bytes(const par_tp *tp, const par_tp_linear *linear, size_t rows, int gathered);
size_t par_tp_norm_save_bytes(const par_tp *tp, const par_tp_norm *norm, size_t rows); // its input and stats
size_t par_tp_attention_save_bytes(const par_tp *tp, const par_tp_attention *attention, size_t rows);

// Memory from which the matrices of a microbatch are taken one after the other. To reuse it, set used to 0
// and take the same again.
typedef struct par_tp_arena {
    void *data;   // of the device; NULL: nothing is taken, `used` only counts
    size_t bytes; // of data
    size_t used;  // so far; more than bytes: it was full
} par_tp_arena;
// Takes memory for a matrix and sets all members of *x: rows x cols on this rank, of the context's type, in
// this layout. Each begins at a multiple of 64 bytes of the arena; contents are as they were. Where data is
// NULL, so is x->data, and `used` tells how large the arena must be. Local. Errors: ARGUMENT (the arena is
// full: x->data is NULL, and every later call fails, too, so that the last result tells of all).
par_result par_tp_alloc(par_tp *tp, par_tp_arena *arena, size_t rows, size_t cols, par_tp_layout layout,
                        par_tp_matrix *x);
par_result par_tp_alloc_floats(par_tp *tp, par_tp_arena *arena, size_t count, float **floats); // stats, lse
// Allocates as many bytes of the device's memory as an arena without data has counted: then take the same
// again. Local. Errors: MEMORY.
par_result par_tp_arena_open(par_tp *tp, par_tp_arena *arena);
void par_tp_arena_close(par_tp *tp, par_tp_arena *arena); // frees it

typedef enum par_tp_recompute { // of what a layer's backward needs: nothing, attention, all
    PAR_TP_RECOMPUTE_NONE,
    PAR_TP_RECOMPUTE_SELECTIVE,
    PAR_TP_RECOMPUTE_FULL
} par_tp_recompute;

// ---- transformer block ------------------------------------------------------------------------------------

// A transformer block, y = m + mlp(norm2(m)) with m = x + attention(norm1(x)): ParallelTransformerLayer of
// Megatron-LM (Shoeybi et al. 2019) with its norms in front. Without the flags it is GPT-2's (Radford et al.
// 2019), who also give it biases; Llama's (Touvron et al. 2023) has rms, gated and rope. Zero-initialize it,
// set the members up to name, and open it; then set data and grad of its parameters. It must stay where it
// is, because its layers point to its names.
typedef struct par_tp_block {
    size_t features;            // of x and y
    size_t hidden;              // features between the two products of the MLP; 0: 4 x features
    par_tp_attention attention; // heads, kv_heads, dropout of attention weights; dim 0: features / heads
    int has_bias;               // 1: products and layer norms have biases
    int rms;                    // 1: RMSNorm; 0: layer norm
    int gated;                  // 1: SwiGLU, and up has 2 x hidden outputs; 0: GELU
    int rope;                   // 1: queries and keys are rotated, as `rotary` says
    par_tp_rotary rotary;
    float epsilon;        // of the norms; 0: 1e-5
    float dropout;        // probability for the outputs of proj and down; it and attention.dropout may change
    float deviation;      // of the initial weights; 0: 0.02
    par_tp_recipe recipe; // of its four products; 0: none
    int depth;     // blocks of the model: proj and down begin smaller by sqrt(2 depth), as GPT-2; 0: not
    char name[32]; // "layers.3"; its layers are then layers.3.attn.qkv, ... Empty: attn.qkv, ...
    par_tp_norm norm1, norm2;
    par_tp_linear qkv, proj, up, down;
    char names[7][48];
} par_tp_block;
// Collective over tp. Errors: ARGUMENT (features or heads do not divide), and the errors of a collective.
par_result par_tp_block_open(par_tp *tp, par_tp_block *block);

// Lists the parameters of an opened block: weight and bias of ln1, attn.qkv, attn.proj, ln2, mlp.up and
// mlp.down. NULL: a bias that the block does not have. A loop adds them to par_zero.h: see par_tp_describe.
enum { PAR_TP_BLOCK_PARAMETERS = 12 };
void par_tp_block_parameters(par_tp_block *block, par_tp_parameter *list[PAR_TP_BLOCK_PARAMETERS]);

// Where par_tp_block_alloc takes memory from. One arena may serve for several.
typedef struct par_tp_block_memory {
    par_tp_arena *input;        // what is kept until the gradient of the input
    par_tp_arena *weight;       // what is kept until the gradients of weights; NULL: input
    par_tp_arena *between;      // what is kept between these two; NULL: backward is one call
    par_tp_arena *scratch;      // used within a call, always from its beginning: for all blocks; NULL: input
    par_tp_recompute recompute; // what backward computes again, instead of keeping it (Chen et al. 2016)
} par_tp_block_memory;
// What a block has of one microbatch, between forward and backward. x is not in it: keep that, too.
typedef struct par_tp_block_saved {
    par_tp_matrix norm1, qkv, att, mid, norm2, up, act; // outputs of the layers; mid: m above
    float *stats1, *stats2, *lse;
    par_tp_matrix ddown, dup, dproj, dqkv; // gradients of the products' outputs
    par_tp_matrix dy, wide;                // scratch
    par_tp_recompute recompute;
    int halves; // 1: backward may be two calls
} par_tp_block_saved;
// Takes memory for R rows (see par_tp_rows) and sets all of *saved. As with par_tp_alloc, arenas without data
// only count. Recomputation SELECTIVE: norms and GELU or SwiGLU (scores are never kept); FULL: everything
// but x. Local. Errors: ARGUMENT (an arena is full).
par_result par_tp_block_alloc(par_tp *tp, const par_tp_block *block, size_t rows,
                              const par_tp_block_memory *memory, par_tp_block_saved *saved);

// x and y are tokens, R x features; y must not be x. Dropout takes the random streams `stream` to stream + 2.
// Errors and elements sent are those of the layers.
par_result par_tp_block_forward(par_tp *tp, const par_tp_block *block, const par_tp_tokens *tokens,
                                uint64_t stream, const par_tp_matrix *x, par_tp_block_saved *saved,
                                par_tp_matrix *y);
// Forward with a key-value cache, for generation: see par_tp_attention_cached. Dropout must be 0.
par_result par_tp_block_cached(par_tp *tp, const par_tp_block *block, const par_tp_tokens *tokens,
                               par_tp_kv_cache *cache, const par_tp_matrix *x, par_tp_block_saved *saved,
                               par_tp_matrix *y);
// dy and dx are tokens, R x features; dx may be dy. tokens, stream and x are those of forward. Adds to the
// gradients of the parameters.
par_result par_tp_block_backward(par_tp *tp, par_tp_block *block, const par_tp_tokens *tokens,
                                 uint64_t stream, const par_tp_matrix *dy, const par_tp_matrix *x,
                                 par_tp_block_saved *saved, par_tp_matrix *dx);
// Its two halves, for pipelines that defer the second (Qi et al. 2023): the gradient of the input, with those
// of the norms' parameters, then the gradients of the products' weights and biases. Together they give the
// bits of par_tp_block_backward. Errors: also ARGUMENT (memory.between was NULL).
par_result par_tp_block_backward_input(par_tp *tp, par_tp_block *block, const par_tp_tokens *tokens,
                                       uint64_t stream, const par_tp_matrix *dy, const par_tp_matrix *x,
                                       par_tp_block_saved *saved, par_tp_matrix *dx);
par_result par_tp_block_backward_weight(par_tp *tp, par_tp_block *block, const par_tp_block_saved *saved);

// ---- kernels ----------------------------------------------------------------------------------------------

// Tells a kernel which token each row of a matrix is.
typedef struct par_tp_row_map {
    size_t first_row, local_sequence, sequence; // of this rank's R rows; tokens of a sequence here; in all
    size_t chunk[2], chunk_count;               // which of 2c (ring) or c (Ulysses) chunks it has
    size_t chunk_tokens;
    uint64_t first_sequence;
    size_t position; // is added to that of each token
} par_tp_row_map;

enum { PAR_TP_QUERIES = 1, PAR_TP_KEYS = 2 }; // gradients of a block of attention; those of values are KEYS
// The arguments of one block of attention: queries of some tokens of each of `batch` sequences, and keys and
// values of some others.
typedef struct par_tp_attention_block {
    size_t batch, heads, kv_heads, dim;
    // Storage type; head h of row r of sequence b: + ((b x stride + r) ld + h dim), but of k and v, of which
    // heads may lie apart, + ((b x stride + r) ld + h kv_head_stride)
    const void *q, *k, *v, *dy;
    size_t q_ld, q_stride, kv_ld, kv_stride, kv_head_stride, dy_ld;
    size_t q_row, q_count, q_position, kv_row, kv_count, kv_position;
    // Forward: the softmax's state so far, per query row and head (ld = heads), and the output so far, not
    // yet divided by the sum. first: there is none, and it is not read. y: NULL; of the last keys the output
    // (ld = heads x dim, storage type; of f32 it may be acc): then row_max becomes lse, and the others mean
    // nothing.
    int first;
    void *y;
    float *row_max, *row_sum, *acc;
    size_t acc_ld;
    // Backward: of each query row and head; then the gradients so far. first (of dq) and first_queries (of dk
    // and dv): there are none, and they are not read. dx_q, dx_kv: NULL; with the last keys, or queries,
    // where the gradient of x begins, in which they are where q, k and v are in x (storage type; of f32 dx_q
    // may be dq).
    const float *lse, *dot;
    float *dq, *dk, *dv;
    size_t dq_ld, dkv_ld;
    int first_queries;
    void *dx_q, *dx_kv;
    int without; // 0: all gradients; with attention_apart one of PAR_TP_QUERIES, PAR_TP_KEYS: without these
    float scale, dropout;
    uint64_t stream, first_sequence;
    size_t sequence, first_head, total_heads; // key random numbers
    size_t window;                            // as in par_tp_attention
    // NULL, or of the token at each position of each sequence: how many tokens of its document end with it
    // (batch x sequence), and how many begin with it (likewise)
    const uint32_t *documents;
} par_tp_attention_block;

// An operand of a product in codes: rows x cols, where the product adds over the columns. A row's codes begin
// at a multiple of ld elements, which is cols rounded up to 128; codes beyond cols are those of zeros. The
// layouts of `scales` are cuBLASLt's:
//     one a tensor, one a row       f32, in order
//     blocks of 1 x 128             f32, [column][row], rows padded to a multiple of 4
//     blocks of 128 x 128           f32, [row][column], columns padded to a multiple of 4
//     E8M0, E4M3                    bytes, of each row (blocks of several rows repeat them), in tiles of 128
//                                   rows x 4 columns: scale (r, c) of a tile at 16 (r % 32) + 4 (r / 32) + c
typedef struct par_tp_operand {
    par_tp_code code;
    par_tp_scale scale;
    size_t block_rows, block_cols; // that share a scale; 0: all
    int hadamard; // each 16 columns by a Hadamard matrix and fixed signs, which keeps products
    int random;   // E2M1: element i rounds by random number i of `stream`, not to nearest
    uint64_t stream;
    size_t rows, cols, ld;
    void *codes, *scales;
    float *amax;    // of the tensor, or of each row that has a scale: memory for rows + 1 floats, at least 64
    float *history; // NULL, or an amax history: the amax in use, the step's so far, those of the last steps
    int observed;   // 1: the history takes the operand's amax; 0: it only gives the one in use
} par_tp_operand;

typedef enum par_tp_elementwise {
    PAR_TP_GELU,            // o0 = gelu(a)
    PAR_TP_GELU_BACKWARD,   // o0 = a gelu'(b)
    PAR_TP_SWIGLU,          // o0 = silu(a) b
    PAR_TP_SWIGLU_BACKWARD, // o0 = a silu'(b) c, o1 = a silu(b)
    PAR_TP_ADD,             // o0 = a + b
    PAR_TP_ELEMENTWISE_COUNT
} par_tp_elementwise;

typedef enum par_tp_fused {    // the products that gemm_fused has
    PAR_TP_FUSED_GELU,         // C = A B^T + bias (or NULL), other = gelu(C): forward
    PAR_TP_FUSED_GELU_BACKWARD // C = (A B) gelu'(other): for the input, before the GELU that made it
} par_tp_fused;

// The table of kernels of a device. Matrices are of the context's storage type unless they are float. Leading
// dimensions (ld) are in elements. All arrays, ids and sums are in the device's memory. Calls are ordered as
// on one stream.
struct par_tp_kernels {
    const char *name;
    const char *gemm_name; // the library of its products; NULL: par_gemm_name's
    par_device *device;    // NULL: the CPU
    int canonical;         // 1: with canonical_leaves they add as MODEL and docs/bits.md define
    int attention_apart;   // 1: attention_block_backward takes m->without, by kernels for each gradient
    par_result (*alloc)(par_tp *tp, size_t bytes, void **memory);
    par_result (*free)(par_tp *tp, void *memory);
    int (*captured)(par_tp *tp); // NULL, or: is there a CUDA graph, which may use scratch memory at any time?
    // C = op(A) op(B) + beta C. A and B are of the storage type, C of c_type. bias NULL, or n numbers that
    // are added to each row; then beta is 0 and C is of the storage type.
    par_result (*gemm)(par_tp *tp, int trans_a, int trans_b, size_t m, size_t n, size_t k, const void *a,
                       size_t lda, const void *b, size_t ldb, float beta, void *c, par_dtype c_type,
                       size_t ldc, const void *bias);
    par_result (*cast)(par_tp *tp, void *dst, par_dtype dst_type, const void *src, par_dtype src_type,
                       size_t n);
    par_result (*copy)(par_tp *tp, void *dst, size_t dst_ld, const void *src, size_t src_ld, size_t rows,
                       size_t row_bytes); // ld in bytes
    par_result (*add_bias)(par_tp *tp, void *y, size_t ld, const void *bias, size_t rows, size_t cols);
    par_result (*sum_rows)(par_tp *tp, float *sum, const void *x, size_t ld, size_t rows,
                           size_t cols); // sum += ...
    par_result (*elementwise)(par_tp *tp, par_tp_elementwise what, size_t rows, size_t cols, void *o0,
                              void *o1, size_t out_ld, const void *a, size_t a_ld, const void *b,
                              const void *c, size_t bc_ld);
    // add NULL, or what is added to x first, to `sum`
    par_result (*norm_forward)(par_tp *tp, void *y, float *stats, const void *x, const void *add, void *sum,
                               const void *weight, const void *bias, size_t rows, size_t cols, int rms,
                               float epsilon);
    // add NULL, or what is added to dx, after that is rounded
    par_result (*norm_backward)(par_tp *tp, void *dx, float *dweight, float *dbias, const void *dy,
                                const void *x, const void *add, const void *weight, const float *stats,
                                size_t rows, size_t cols, int rms);
    par_result (*dropout)(par_tp *tp, void *y, const void *x, size_t rows, size_t cols,
                          const par_tp_row_map *map, uint64_t stream, float probability);
    par_result (*rope)(par_tp *tp, void *x, size_t rows, size_t ld, size_t heads, size_t dim,
                       const par_tp_row_map *map, const par_tp_rotary *rotary, int backward);
    // y[row] = table[ids[row] - first] for ids in [first, first + count), else zeros
    par_result (*embed)(par_tp *tp, void *y, const int32_t *ids, size_t rows, const void *table, size_t first,
                        size_t count, size_t cols);
    par_result (*embed_backward)(par_tp *tp, float *grad, const int32_t *ids, size_t rows, const void *dy,
                                 size_t first, size_t count, size_t cols);
    par_result (*positions)(par_tp *tp, void *y, const void *table, size_t rows, size_t cols,
                            const par_tp_row_map *map); // y += table[position]
    par_result (*positions_backward)(par_tp *tp, float *grad, const void *dy, size_t rows, size_t cols,
                                     const par_tp_row_map *map);
    // writes 4 floats a row: max, sum of e^(x - max), x of the target or 0, sum of x
    par_result (*loss_stats)(par_tp *tp, float *stats, const void *logits, size_t ld, const int32_t *targets,
                             size_t rows, size_t first, size_t cols);
    // writes lse, losses (or NULL), *sum and *target_count from the stats of all ranks, ranks x rows x 4
    par_result (*loss_combine)(par_tp *tp, const float *stats, size_t ranks, size_t rows,
                               const int32_t *targets, const par_tp_loss *loss, float *lse, float *losses,
                               double *sum, size_t *target_count);
    par_result (*loss_backward)(par_tp *tp, void *dlogits, const void *logits, size_t ld,
                                const int32_t *targets, const float *lse, size_t rows, size_t first,
                                size_t cols, const par_tp_loss *loss, float scale);
    // The three above for one rank, a row at a time. stats: of each row, as loss_stats writes them.
    par_result (*loss_forward_backward)(par_tp *tp, void *dlogits, float *stats, const void *logits,
                                        size_t ld, const int32_t *targets, size_t rows, size_t cols,
                                        const par_tp_loss *loss, float *lse, float *losses, double *sum,
                                        size_t *target_count, float scale);
    par_result (*attention_block_forward)(par_tp *tp, const par_tp_attention_block *m);
    par_result (*attention_block_backward)(par_tp *tp, const par_tp_attention_block *m);
    // Optional (both may be NULL): attention of whole sequences in one call, forward to y and lse, backward
    // from m->dy to dx (laid out as x). They set *handled to 1, or leave it 0 and do nothing for a shape that
    // they do not support; then the two above are called. y NULL: backward does nothing, and sets *handled
    // where it may be faster than the block, which takes m->dot instead of y. All ranks answer alike.
    par_result (*attention_fused_forward)(par_tp *tp, const par_tp_attention_block *m, void *y, float *lse,
                                          int *handled);
    par_result (*attention_fused_backward)(par_tp *tp, const par_tp_attention_block *m, const void *y,
                                           void *dx, int *handled);
    par_result (*row_dots)(par_tp *tp, float *dot, const void *a, const void *b, size_t rows, size_t dim);
    par_result (*init)(par_tp *tp, void *dst, uint64_t stream, uint64_t first, size_t n, float deviation,
                       float value); // deviation > 0: normal numbers from number `first` on; else value
    par_result (*square_sum)(par_tp *tp, const float *x, size_t n, double *sum); // *sum += ...
    par_result (*set)(par_tp *tp, float *x, size_t n, float value);
    // Optional (all three may be NULL, then there are no recipes). quantize sets amax, scales and codes of an
    // operand from x, rows x cols of the storage type, or if transposed cols x rows. With a history it takes
    // the scale from the amax in use, if that is not 0, and if observed the operand's into the step's.
    par_result (*quantize)(par_tp *tp, const par_tp_operand *q, const void *x, size_t x_ld, int transposed);
    // C = A B^T + beta C; C of c_type, the bias of the storage type or NULL.
    par_result (*gemm_codes)(par_tp *tp, const par_tp_operand *a, const par_tp_operand *b, float beta,
                             void *c, par_dtype c_type, size_t ldc, const void *bias);
    // Of each tensor's history: the step's amax becomes the newest of the last steps, their largest the one
    // in use.
    par_result (*roll_amax)(par_tp *tp, float *histories, size_t tensors);
    // Optional (may be NULL): a product and what follows it, as one kernel. other has C's shape and ld. Sets
    // *handled to 1, or leaves it 0 and does nothing where there is no such kernel; then gemm and elementwise
    // are called. A fused GELU is that of a sum that is not rounded yet.
    par_result (*gemm_fused)(par_tp *tp, par_tp_fused what, size_t m, size_t n, size_t k, const void *a,
                             size_t lda, const void *b, size_t ldb, void *c, size_t ldc, const void *bias,
                             void *other, int *handled);
    // Optional (may be NULL): so many products C_i = A_i op(B) as one kernel, each as gemm's with the bias.
    // A_i begins i a_step elements after A, C_i likewise.
    par_result (*gemm_blocks)(par_tp *tp, int trans_b, size_t blocks, size_t m, size_t n, size_t k,
                              const void *a, size_t a_step, size_t lda, const void *b, size_t ldb, void *c,
                              size_t c_step, par_dtype c_type, size_t ldc, const void *bias);
};
const par_tp_kernels *par_tp_cpu(void);

// For kernels and for layers of your own.
par_comm *par_tp_comm(const par_tp *tp);
const par_tp_kernels *par_tp_kernels_of(const par_tp *tp);
uint64_t par_tp_seed(const par_tp *tp);
const uint64_t *par_tp_dropout_offset(const par_tp *tp); // or NULL
par_dtype par_tp_dtype(const par_tp *tp);
// Scratch memory number `slot`, of at least so many bytes, kept until close. Slots 0 to 15 are for the
// layers, 16 to 23 for the CPU's kernels, 24 to 31 for you, 32 and 33 for operands in codes. Where a CUDA
// graph may use it, memory that a larger one has replaced is kept, too. NULL: out of memory, or no such slot.
void *par_tp_scratch(par_tp *tp, int slot, size_t bytes);
uint64_t par_tp_token_index(const par_tp_row_map *map, size_t row); // of a row's token, in the whole step
size_t par_tp_row_position(const par_tp_row_map *map, size_t row);
typedef struct par__tp_recipe { // a row of PAR_TP_RECIPES
    const char *name;
    par_tp_code code, gradients;
    par_tp_scale scale;
    size_t rows, cols, weight_rows;
    int flags;
} par__tp_recipe;
const par__tp_recipe *par__tp_recipe_of(par_tp_recipe recipe); // which is a valid one

// ---- call sites -------------------------------------------------------------------------------------------
// A layer's communication is reported at the place where the program called the layer (see par.h).

par_tp *par__tp_set_site(par_tp *tp, const char *site); // site NULL: within the layer itself
par_result par__tp_open_at(const char *site, const par_tp_desc *desc, par_tp **tp);

#define PAR__TP_SITED(tp)                      par__tp_set_site(tp, PAR_SITE)
#define PAR__TP_WITH_SITE(name, ...)           par__tp_##name##_at(PAR_SITE, __VA_ARGS__)
#define par_tp_open(...)                       PAR__TP_WITH_SITE(open, __VA_ARGS__)
#define par_tp_close(tp)                       par_tp_close(PAR__TP_SITED(tp))
#define par_tp_all_reduce(tp, ...)             par_tp_all_reduce(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_all_gather_rows(tp, ...)        par_tp_all_gather_rows(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_reduce_scatter_rows(tp, ...)    par_tp_reduce_scatter_rows(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_split_rows(tp, ...)             par_tp_split_rows(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_documents_map(tp, ...)          par_tp_documents_map(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_init(tp, ...)                   par_tp_init(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_fill(tp, ...)                   par_tp_fill(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_finalize_gradients(tp, ...)     par_tp_finalize_gradients(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_global_norm(tp, ...)            par_tp_global_norm(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_linear_open(tp, ...)            par_tp_linear_open(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_linear_forward(tp, ...)         par_tp_linear_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_linear_backward(tp, ...)        par_tp_linear_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_linear_backward_input(tp, ...)  par_tp_linear_backward_input(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_linear_backward_weight(tp, ...) par_tp_linear_backward_weight(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_norm_open(tp, ...)              par_tp_norm_open(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_norm_forward(tp, ...)           par_tp_norm_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_norm_backward(tp, ...)          par_tp_norm_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_add_norm_forward(tp, ...)       par_tp_add_norm_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_norm_backward_add(tp, ...)      par_tp_norm_backward_add(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_gelu_forward(tp, ...)           par_tp_gelu_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_gelu_backward(tp, ...)          par_tp_gelu_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_swiglu_forward(tp, ...)         par_tp_swiglu_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_swiglu_backward(tp, ...)        par_tp_swiglu_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_add(tp, ...)                    par_tp_add(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_dropout(tp, ...)                par_tp_dropout(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_rope(tp, ...)                   par_tp_rope(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_embedding_open(tp, ...)         par_tp_embedding_open(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_embedding_forward(tp, ...)      par_tp_embedding_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_embedding_backward(tp, ...)     par_tp_embedding_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_loss_forward(tp, ...)           par_tp_loss_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_loss_backward(tp, ...)          par_tp_loss_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_loss_forward_backward(tp, ...)  par_tp_loss_forward_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_head_forward(tp, ...)           par_tp_head_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_head_forward_backward(tp, ...)  par_tp_head_forward_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_arena_open(tp, ...)             par_tp_arena_open(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_logits_gather(tp, ...)          par_tp_logits_gather(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_attention_forward(tp, ...)      par_tp_attention_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_attention_cached(tp, ...)       par_tp_attention_cached(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_attention_backward(tp, ...)     par_tp_attention_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_alloc(tp, ...)                  par_tp_alloc(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_alloc_floats(tp, ...)           par_tp_alloc_floats(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_block_open(tp, ...)             par_tp_block_open(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_block_alloc(tp, ...)            par_tp_block_alloc(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_block_forward(tp, ...)          par_tp_block_forward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_block_cached(tp, ...)           par_tp_block_cached(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_block_backward(tp, ...)         par_tp_block_backward(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_block_backward_input(tp, ...)   par_tp_block_backward_input(PAR__TP_SITED(tp), __VA_ARGS__)
#define par_tp_block_backward_weight(tp, ...)  par_tp_block_backward_weight(PAR__TP_SITED(tp), __VA_ARGS__)

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_TP_H

// Stop here if you only use it. -----------------------------------------------------------------------------

// Formulas that the CPU's loops and a device's kernels share.
#if !defined(PAR__TP_SHARED) && (defined(PAR_TP_IMPLEMENTATION) || defined(PAR_CUDA_IMPLEMENTATION))
#define PAR__TP_SHARED
PAR__FORMULAS_BEGIN
// e^x to 2 ulp without branches: x = n ln 2 + r, 2^n by exponent bits, e^r by a polynomial (Cephes' expf). A
// device has an instruction for 2^x, to 2^-22 of the result, where the rounding of x log2 e adds |x| 2^-24.
PAR__HOST_DEVICE float par__tp_max(float x, float y) { return x > y ? x : y; } // y where one is NaN
PAR__HOST_DEVICE float par__tp_min(float x, float y) { return x < y ? x : y; }
PAR__HOST_DEVICE float par__tp_exp_between(float x) { // for x from -88, where n is -127 and 2^n 0, to 88
#if PAR__OF_DEVICE
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
#else
    const float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f; // rounded to an integer
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * par__bits_to_f32((par__f32_to_bits(shifted) + 127) << 23);   // whose last bits are n
#endif
}
PAR__HOST_DEVICE float par__tp_exp(float x) {
#if PAR__OF_DEVICE
    return par__tp_exp_between(x);
#else
    return par__tp_exp_between(par__tp_min(88.0f, par__tp_max(-87.0f, x))); // of NaN: NaN
#endif
}

// x / y of a y of at least 1; a device has an instruction for 1 / y, to one ulp.
PAR__HOST_DEVICE float par__tp_quotient(float x, float y) {
#if PAR__OF_DEVICE
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(y));
    return x * inverse;
#else
    return x / y;
#endif
}

// GELU: x s(x), s = 1/2 (1 + tanh u) = 1 - 1/(e^2u + 1), u = sqrt(2/pi) (x + 0.044715 x^3)
PAR__HOST_DEVICE float par__tp_gelu_gate(float x) {
    const float u = 0.797884561f * (x + 0.044715f * x * x * x);
    return 1.0f - par__tp_quotient(1.0f, par__tp_exp(2.0f * u) + 1.0f);
}
PAR__HOST_DEVICE float par__tp_gelu_gradient(float dy, float x) {
    const float s = par__tp_gelu_gate(x), du = 0.797884561f * (1.0f + 0.134145f * x * x);
    return dy * (s + x * 2.0f * s * (1.0f - s) * du);
}
PAR__HOST_DEVICE float par__tp_silu(float x) { return par__tp_quotient(x, 1.0f + par__tp_exp(-x)); }
PAR__HOST_DEVICE float par__tp_swiglu_gradient(float dy, float gate, float up, float *dup) { // returns dgate
    const float s = par__tp_quotient(1.0f, 1.0f + par__tp_exp(-gate)), y = gate * s;
    *dup = dy * y;
    return dy * up * (s + y * (1.0f - s));
}

// LayerNorm, and RMSNorm with a mean of 0: y = xhat w + b, xhat = (x - mean) rstd; with g = dy w
// dx = rstd (g - mean(g) - xhat mean(g xhat)), rms: without mean(g)
PAR__HOST_DEVICE float par__tp_rstd(float squares, size_t n, float epsilon) {
    return 1.0f / sqrtf(squares / (float)n + epsilon);
}
PAR__HOST_DEVICE float par__tp_normalized(float x, float mean, float rstd) { return (x - mean) * rstd; }
PAR__HOST_DEVICE float par__tp_norm_gradient(float dy, float w, float xhat, float rstd, float g_mean,
                                             float gx_mean) {
    return rstd * (dy * w - g_mean - xhat * gx_mean);
}

// Attention: e^(score - max) for a score of at most max, 0 for a masked one (-inf) even if max is -inf, too;
// the gradient of a score of probability p.
PAR__HOST_DEVICE float par__tp_softmax_weight(float score, float max) {
#if PAR__OF_DEVICE
    const float e = par__tp_exp(score - max);
    return score > -INFINITY ? e : 0.0f;
#else
    return par__tp_exp_between(par__tp_max(score - max, -88.0f));
#endif
}
PAR__HOST_DEVICE float par__tp_score_gradient(float p, float dp, float dot, float scale) {
    return p * (dp - dot) * scale;
}

// Dropout: element i of a stream is dropped if its 32 random bits are less than p 2^32. A Philox block serves
// four elements: element i has word i mod 4 of block i / 4.
PAR__HOST_DEVICE uint32_t par__tp_dropout_limit(float p) { return (uint32_t)((double)p * 4294967296.0); }
PAR__HOST_DEVICE float par__tp_dropout_scale(float p) { return 1.0f / (1.0f - p); }
PAR__HOST_DEVICE int par__tp_is_dropped(uint32_t bits, uint32_t limit) { return bits < limit; }
// The block of whole sequences, whose gradients go to dx.
static inline par_tp_attention_block par__tp_whole_gradients(const par_tp_attention_block *m, void *dx) {
    par_tp_attention_block whole = *m;
    whole.first = whole.first_queries = 1;
    whole.dx_q = whole.dx_kv = dx;
    return whole;
}
// The element of the score of (query, key) = (0, 0), for the dropout of attention. Queries are rows.
PAR__HOST_DEVICE uint64_t par__tp_first_score(const par_tp_attention_block *m, size_t sequence, size_t head) {
    return ((m->first_sequence + sequence) * m->total_heads + m->first_head + head) * m->sequence *
           m->sequence;
}

// Attention: the query at a position of a sequence sees the keys from this one on.
PAR__HOST_DEVICE size_t par__tp_first_key(const par_tp_attention_block *m, size_t sequence, size_t query) {
    size_t seen = m->window;
    if (m->documents) {
        const size_t own = m->documents[sequence * m->sequence + query];
        if (!seen || own < seen) seen = own;
    }
    return seen && query >= seen ? query - seen + 1 : 0;
}

// Which token a row is.
PAR__HOST_DEVICE size_t par__tp_map_position(const par_tp_row_map *m, size_t i) {
    return m->position + m->chunk[i / m->chunk_tokens] * m->chunk_tokens + i % m->chunk_tokens;
}
PAR__HOST_DEVICE size_t par__tp_row_position(const par_tp_row_map *m, size_t row) {
    return par__tp_map_position(m, (m->first_row + row) % m->local_sequence);
}
PAR__HOST_DEVICE uint64_t par__tp_token_index(const par_tp_row_map *m, size_t row) {
    return (m->first_sequence + (m->first_row + row) / m->local_sequence) * m->sequence +
           par__tp_row_position(m, row);
}

// RoPE: pair i of a head of `dim` features turns by this angle from one token to the next.
PAR__HOST_DEVICE double par__tp_rope_frequency(const par_tp_rotary *rotary, size_t i, size_t dim) {
    const double base = rotary->base > 0 ? (double)rotary->base : 10000;
    const double f = par__pow(base, -2.0 * (double)i / (double)dim), factor = (double)rotary->factor;
    const double low = (double)rotary->low, high = (double)rotary->high;
    const double rotations = (double)rotary->original * f / 6.283185307179586;
    if (factor <= 0 || rotations > high) return f;
    const double part = rotations < low ? 0 : (rotations - low) / (high - low);
    return (1 - part) * f / factor + part * f;
}
PAR__HOST_DEVICE float par__tp_rotate_first(float u, float v, float c, float s) { return u * c - v * s; }
PAR__HOST_DEVICE float par__tp_rotate_second(float u, float v, float c, float s) { return v * c + u * s; }

// Cross-entropy. A rank's statistics of a row: maximum, sum of e^(x - maximum), the target's logit or 0, sum
// of x. row_loss combines those of all ranks, `stride` numbers apart.
PAR__HOST_DEVICE int par__tp_ignored(const par_tp_loss *loss, int32_t target) {
    return target < 0 || target == loss->ignore_index;
}
PAR__HOST_DEVICE double par__tp_log_sum_exp(float max, double sum) { return (double)max + par__log(sum); }
PAR__HOST_DEVICE double par__tp_row_loss(const par_tp_loss *loss, const float *stats, size_t ranks,
                                         size_t stride, float *lse) {
    const double e = (double)loss->label_smoothing;
    float max = -INFINITY;
    double sum = 0, wanted = 0, total = 0;
    for (size_t q = 0; q < ranks; q++) max = PAR__MAX(max, stats[q * stride]);
    for (size_t q = 0; q < ranks; q++) {
        const float *s = stats + q * stride;
        sum += (double)s[1] * par__exp((double)s[0] - (double)max);
        wanted += (double)s[2];
        total += (double)s[3];
    }
    const double x = par__tp_log_sum_exp(max, sum);
    *lse = (float)x;
    return (1 - e) * (x - wanted) + e * (x - total / (double)loss->vocabulary) + (double)loss->z_loss * x * x;
}
// The gradient of a logit is factor e^(x - lse) - smooth; from the target's, target_gradient takes more.
PAR__HOST_DEVICE float par__tp_loss_factor(const par_tp_loss *loss, float scale, float lse) {
    return scale * (1.0f + 2.0f * loss->z_loss * lse);
}
PAR__HOST_DEVICE float par__tp_loss_smooth(const par_tp_loss *loss, float scale) {
    return scale * loss->label_smoothing / (float)loss->vocabulary;
}
PAR__HOST_DEVICE float par__tp_logit_gradient(float x, float lse, float factor, float smooth) {
    return factor * par__tp_exp(x - lse) - smooth;
}
PAR__HOST_DEVICE float par__tp_target_gradient(const par_tp_loss *loss, float scale, float gradient) {
    return gradient - scale * (1.0f - loss->label_smoothing);
}

// Operands in codes: a code's number, and the code of a number that was scaled. An E2M1 code is that of a
// float of 8 bits with 2 of exponent and 1 of mantissa, without the zeros after its sign; it has no NaN.
PAR__HOST_DEVICE float par__tp_code_max(par_tp_code code) {
#define PAR__X(name, bits, max) code == name ? max:
    return PAR_TP_CODES(PAR__X) 0;
#undef PAR__X
}
PAR__HOST_DEVICE float par__tp_e2m1_widen(uint32_t code) {
    return par__f8_widen((uint8_t)((code & 7u) | (code & 8u) << 4), 1, 1, 8);
}
PAR__HOST_DEVICE uint32_t par__tp_e2m1_sign(uint32_t code) { return (code & 7u) | (code >> 4 & 8u); }
PAR__HOST_DEVICE uint32_t par__tp_e2m1_narrow(float x) {
    return par__tp_e2m1_sign(par__f8_narrow(x, 1, 1, 8, 7));
}
// Rounds up with the probability of how far x is from the code below; `bits` are random.
PAR__HOST_DEVICE uint32_t par__tp_e2m1_narrow_random(float x, uint32_t bits) {
    const float size = fabsf(x);
    uint32_t code = size >= 4 ? 6 : size >= 3 ? 5 : size >= 2 ? 4 : size >= 0 ? (uint32_t)(size * 2) : 7;
    if (size < 6) {
        const float gap = code >= 6 ? 2.0f : code >= 4 ? 1.0f : 0.5f;
        code += (float)(bits >> 8) * 5.9604644775390625e-8f * gap < size - par__tp_e2m1_widen(code);
    } else {
        code = 7;
    }
    return code | (par__f32_to_bits(x) >> 28 & 8u);
}
// The larger of two absolute values as bits; NaN is the largest.
PAR__HOST_DEVICE float par__tp_amax(float amax, float x) {
    const uint32_t a = par__f32_to_bits(amax), b = par__f32_to_bits(x) & 0x7fffffffu;
    return par__bits_to_f32(PAR__MAX(a, b));
}
// The rotation of 16 numbers, x S H / 4: S has fixed random signs, H is Sylvester's Hadamard matrix. Applied
// to both operands it leaves their product as it is, because S H / 4 is orthogonal.
PAR__HOST_DEVICE void par__tp_hadamard_step(float *x, int d) {
    for (int i = 0; i < 16; i++) {
        const float a = x[i & ~d], b = x[i | d];
        if (i & d) continue;
        x[i] = a + b;
        x[i | d] = a - b;
    }
}
PAR__HOST_DEVICE void par__tp_hadamard(float *x) {
    for (int i = 0; i < 16; i++) x[i] = 0x9a3cu >> i & 1u ? -x[i] : x[i];
    par__tp_hadamard_step(x, 1);
    par__tp_hadamard_step(x, 2);
    par__tp_hadamard_step(x, 4);
    par__tp_hadamard_step(x, 8);
    for (int i = 0; i < 16; i++) x[i] *= 0.25f;
}
// An E8M0 scale is 2^(code - 127), and the code 255 is NaN.
PAR__HOST_DEVICE float par__tp_e8m0_widen(uint32_t code) {
    return par__bits_to_f32(code == 255 ? 0x7fc00000u : code ? code << 23 : 0x00400000u);
}
PAR__HOST_DEVICE uint32_t par__tp_e8m0_narrow(float x) { // up; x >= 0
    const uint32_t bits = par__f32_to_bits(x), exponent = bits >> 23, mantissa = bits & 0x7fffffu;
    if (x != x) return 255;
    if (exponent == 255) return 254;
    return exponent + (exponent < 254 && (exponent ? mantissa > 0 : mantissa > 0x400000u));
}
// E4M3's second level: the encode scale of a tensor.
PAR__HOST_DEVICE float par__tp_tensor_scale(par_tp_code code, float amax) {
    const float s = 448.0f * par__tp_code_max(code) / amax,
                limited = s < 3.402823466e38f ? s : 3.402823466e38f;
    return amax > 0 && limited > 0 ? limited : 1.0f;
}
// The scales of a block from its amax: what its numbers are multiplied by, what codes are multiplied by, and
// that as it is stored (f32: its bits). tensor_amax: of all blocks, for E4M3.
typedef struct par__tp_block_scale {
    float encode, decode;
    uint32_t stored;
} par__tp_block_scale;
PAR__HOST_DEVICE par__tp_block_scale par__tp_scale_block(par_tp_code code, par_tp_scale scale, float amax,
                                                         float tensor_amax) {
    const float max = par__tp_code_max(code), largest = 3.402823466e38f;
    par__tp_block_scale s;
    if (scale == PAR_TP_SCALE_E8M0) {
        s.stored = par__tp_e8m0_narrow(amax * (1.0f / max));
        s.decode = par__tp_e8m0_widen(s.stored);
        s.encode = s.stored == 255 ? s.decode : par__tp_e8m0_widen(254 - s.stored);
    } else if (scale == PAR_TP_SCALE_E4M3) {
        const float whole = par__tp_tensor_scale(code, tensor_amax);
        s.stored = par__f8_e4m3_narrow(amax / max * whole);
        s.decode = par__f8_e4m3_widen((uint8_t)s.stored);
        s.encode = 1.0f / (s.decode * (1.0f / whole));
        s.encode = s.encode > largest ? largest : s.encode;
    } else {
        s.encode = amax > 0 && amax <= largest ? max / amax : 1.0f;
        s.encode = s.encode > largest ? largest : s.encode;
        if (scale == PAR_TP_SCALE_POWER)
            s.encode = par__bits_to_f32(par__f32_to_bits(s.encode) & 0x7f800000u);
        s.decode = 1.0f / s.encode;
        s.stored = par__f32_to_bits(s.decode);
    }
    return s;
}
// Where the scale of an element is, in scales; how many there are.
PAR__HOST_DEVICE size_t par__tp_scale_at(const par_tp_operand *q, size_t row, size_t col) {
    if (!q->block_cols) return q->block_rows ? row : 0;
    const size_t k = col / q->block_cols, columns = q->ld / q->block_cols;
    if (q->scale >= PAR_TP_SCALE_E8M0)
        return (row / 128 * ((columns + 3) / 4) + k / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + k % 4;
    if (q->block_rows > 1) return row / q->block_rows * ((columns + 3) / 4 * 4) + k;
    return k * ((q->rows + 3) / 4 * 4) + row;
}
PAR__HOST_DEVICE size_t par__tp_scale_bytes(const par_tp_operand *q) {
    const size_t columns = q->block_cols ? q->ld / q->block_cols : 1, four = (columns + 3) / 4 * 4;
    if (q->scale >= PAR_TP_SCALE_E8M0) return (q->rows + 127) / 128 * 128 * four;
    if (!q->block_cols) return (q->block_rows ? q->rows : 1) * sizeof(float);
    if (q->block_rows > 1) return (q->rows + q->block_rows - 1) / q->block_rows * four * sizeof(float);
    return columns * ((q->rows + 3) / 4 * 4) * sizeof(float);
}
// An E2M1 code of element at + i of an operand, which was scaled; 4 divides `at`. Elements come in order: a
// Philox block of the operand's stream serves four of them.
PAR__HOST_DEVICE uint32_t par__tp_e2m1_code(const par_tp_operand *q, uint64_t seed, uint64_t stream,
                                            uint64_t at, unsigned i, float x, uint32_t *bits) {
    if (!q->random) return par__tp_e2m1_narrow(x);
    if ((i & 3u) == 0) par__philox_at(seed, stream, (at >> 2) + (i >> 2), bits);
    return par__tp_e2m1_narrow_random(x, bits[i & 3u]);
}
// A tensor's amax history: the amax in use, the step's so far, and those of the last steps, the newest first.
enum { PAR__TP_HISTORY = 2 + PAR_TP_AMAX_STEPS };
PAR__HOST_DEVICE void par__tp_roll_amax(float *h) {
    for (int i = PAR__TP_HISTORY - 1; i > 1; i--) h[i] = h[i - 1];
    h[0] = h[1] = 0;
    for (int i = 2; i < PAR__TP_HISTORY; i++) h[0] = par__tp_amax(h[0], h[i]);
}
PAR__FORMULAS_END
#endif

#if defined(PAR_TP_IMPLEMENTATION) && !defined(PAR_TP_IMPLEMENTED)
#define PAR_TP_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if PAR__X86 && !defined(__CUDACC__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(__CUDACC__) &&                                                        \
    (defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 10)
#define PAR__TP_BFMMLA 1
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

// Within the implementation the macros of this header's functions are these functions, and calls of other
// headers keep the call site of the program's call.
#pragma push_macro("PAR__TP_WITH_SITE")
#undef PAR__TP_WITH_SITE
#define PAR__TP_WITH_SITE(name, ...) par_tp_##name(__VA_ARGS__)
#pragma push_macro("PAR__TP_SITED")
#undef PAR__TP_SITED
#define PAR__TP_SITED(tp) tp
#pragma push_macro("PAR_SITE")
#undef PAR_SITE
#define PAR_SITE      NULL
#define par_fail(...) par__fail_in_layer(__VA_ARGS__)

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif
PAR__EXACT_BEGIN

// >>tp_context ----------------------------------------------------------------------------------------------

#define PAR__TP_TRY(call)                                                                                    \
    do {                                                                                                     \
        const par_result par__r = (call);                                                                    \
        if (par__r) return par__r;                                                                           \
    } while (0)

typedef struct par__tp_loops par__tp_loops;
typedef struct par__tp_dot par__tp_dot;
typedef struct par__tp_rope_key { // what the table of rotary positions is for
    par_tp_rotary rotary;
    size_t dim, sequence, position;
    int is_set;
} par__tp_rope_key;

struct par__tp_scaled_layer { // of an open layer with a recipe
    par__tp_scaled_layer *next;
    float *history; // of x, weights and dy, in the device's memory; NULL: the recipe has none
    uint64_t number, steps;
};

typedef struct par__tp_kept par__tp_kept;
struct par__tp_kept { // scratch that was replaced, and that a captured graph may use
    par__tp_kept *next;
    void *memory;
    int symmetric;
};
typedef struct par__tp_former {
    struct par__tp_former *next;
    const par_comm *comm;
    int role; // of replicas; < 0: desc.tp
} par__tp_former;
struct par_tp {
    par_tp_desc desc;
    int t, tp_rank, c, cp_rank;
    const par_tp_kernels *kernels;
    par_device *device;
    const par__tp_loops *loops;
    const par__tp_dot *dot;     // NULL: attention's products, and those of layers, are computed in f32
    int product;                // of layers with bf16: PAR__BF16_TILE ...
    const par__gemm_tile *tile; // for those of attention
    const uint64_t *dropout_offset;
    struct {
        void *memory;
        size_t bytes;
        int symmetric; // par_alloc's
    } scratch[36];
    par__tp_kept *kept; // replaced scratch
    struct {
        int count; // ranks that have the same key-value head
        par_comm *comm;
    } replicas[4];
    par__tp_former *former; // comms that others have replaced, the last ones first

    par__tp_rope_key rope_key;
    par__tp_scaled_layer *scaled; // a list
    size_t *piece_counts;         // counts and displs of the gathers in flight, t of each for every piece
};
enum { // scratch slots
    PAR__TP_GATHERED,
    PAR__TP_GATHERED_GRAD,
    PAR__TP_PARTIAL,
    PAR__TP_RESULT,
    PAR__TP_STATS,
    PAR__TP_STATE,
    PAR__TP_ACC,
    PAR__TP_KV,
    PAR__TP_KV_NEXT,
    PAR__TP_DKV,
    PAR__TP_DKV_NEXT,
    PAR__TP_DQ,
    PAR__TP_PACK_SEND,
    PAR__TP_PACK_RECV,
    PAR__TP_HEADS,
    PAR__TP_HEADS_GRAD,
    PAR__TP_OPERAND_A = 16, // from here on: the CPU's kernels'
    PAR__TP_OPERAND_B,
    PAR__TP_F32_C,
    PAR__TP_ROWS,
    PAR__TP_SCORES,
    PAR__TP_HEAD_SLICES,
    PAR__TP_ROPE_TABLE,
    PAR__TP_SQUARE_SUM,
    PAR__TP_CODES_A = 32, // operands of products by a recipe
    PAR__TP_CODES_B,
    PAR__TP_LOGITS, // of a chunk
    PAR__TP_ROW_STATS,
    PAR__TP_MAX_RANKS = 1024,
    PAR__TP_MAX_LEAVES = 64,
    PAR__TP_MAX_PIECES = 8
};
static size_t par__tp_matrix_ld(const par_tp_matrix *x) { return par_tp_ld(x->layout, x->cols); }
static int par__tp_is_f32(const par_tp *tp) { return tp->desc.dtype == PAR_F32; }
static const char *par__tp_const_element(const par_tp *tp, const void *x, size_t element) {
    return (const char *)x + element * par_tp_element_bytes(tp);
}
static char *par__tp_element(const par_tp *tp, void *x, size_t element) {
    return (char *)x + element * par_tp_element_bytes(tp);
}

#define PAR__TP_FAIL(...) par_fail(tp->desc.tp, PAR_ERR_ARGUMENT, __VA_ARGS__)
// A check of what the program gave, in a function that has `tp` and `call`, its name.
#define PAR__TP_CHECK(what, ...) PAR__TP_TRY(par__tp_check_##what(tp, call, __VA_ARGS__))

par_tp *par__tp_set_site(par_tp *tp, const char *site) {
    if (tp && site) par__enter_layer(tp->desc.tp, site);
    return tp;
}
par_result par__tp_open_at(const char *site, const par_tp_desc *desc, par_tp **tp) {
    par__enter_layer(desc ? desc->tp : NULL, site);
    return par_tp_open(desc, tp);
}
static void par__tp_set_layer_name(const par_tp *tp, const char *name) {
    par__set_layer_name(tp->desc.tp, name);
}

par_comm *par_tp_comm(const par_tp *tp) { return tp->desc.tp; }
const par_tp_kernels *par_tp_kernels_of(const par_tp *tp) { return tp->kernels; }
uint64_t par_tp_seed(const par_tp *tp) { return tp->desc.seed; }
void par_tp_set_dropout_offset(par_tp *tp, const uint64_t *offset) { tp->dropout_offset = offset; }
const uint64_t *par_tp_dropout_offset(const par_tp *tp) { return tp->dropout_offset; }
par_dtype par_tp_dtype(const par_tp *tp) { return tp->desc.dtype; }
size_t par_tp_element_bytes(const par_tp *tp) { return par_dtype_bytes(tp->desc.dtype); }
size_t par_tp_ld(par_tp_layout layout, size_t cols) {
    return layout == PAR_TP_VOCABULARY ? (cols + 63) / 64 * 64 : cols;
}

// Is this slot used in collectives over tp, with one size on all ranks? Then it is symmetric memory.
static int par__tp_slot_is_symmetric(const par_tp *tp, int slot) {
    const int own = tp->kernels == par_tp_cpu() || tp->device != par_cpu(); // not kernels of another's
    return tp->t > 1 && slot <= PAR__TP_STATS && own && tp->device->alloc_symmetric;
}
static void par__tp_free_scratch(par_tp *tp, void *memory, int symmetric) {
    if (memory && symmetric)
        tp->device->free_symmetric(tp->device, tp->desc.tp, memory);
    else if (memory)
        tp->kernels->free(tp, memory);
}
// Gives up a slot's memory: it is freed, or kept for graphs that may use it until the context is closed. 0:
// no memory for that.
static int par__tp_replace_scratch(par_tp *tp, int slot, int captured) {
    par__tp_kept *kept = NULL;
    if (captured && tp->scratch[slot].memory) {
        if (!(kept = (par__tp_kept *)PAR_MALLOC(sizeof *kept))) return 0;
        kept->memory = tp->scratch[slot].memory;
        kept->symmetric = tp->scratch[slot].symmetric;
        kept->next = tp->kept;
        tp->kept = kept;
    } else {
        par__tp_free_scratch(tp, tp->scratch[slot].memory, tp->scratch[slot].symmetric);
    }
    tp->scratch[slot].memory = NULL;
    tp->scratch[slot].bytes = 0;
    return 1;
}
static void par__tp_close_scratch(par_tp *tp) {
    for (int i = 0; i < (int)(sizeof tp->scratch / sizeof tp->scratch[0]); i++)
        (void)par__tp_replace_scratch(tp, i, 0);
    tp->rope_key.is_set = 0; // its table was there
    while (tp->kept) {
        par__tp_kept *kept = tp->kept;
        tp->kept = kept->next;
        par__tp_free_scratch(tp, kept->memory, kept->symmetric);
        PAR_FREE(kept);
    }
}
void *par_tp_scratch(par_tp *tp, int slot, size_t bytes) {
    if (slot < 0 || slot >= (int)(sizeof tp->scratch / sizeof tp->scratch[0])) {
        PAR__TP_FAIL("par_tp_scratch: there is no slot %d, only 0 to %d", slot,
                     (int)(sizeof tp->scratch / sizeof tp->scratch[0]) - 1);
        return NULL;
    }
    const int captured = tp->kernels->captured && tp->kernels->captured(tp);
    if (tp->scratch[slot].memory && tp->scratch[slot].bytes >= bytes) return tp->scratch[slot].memory;
    bytes = bytes ? bytes : 64;
    if (!par__tp_replace_scratch(tp, slot, captured)) {
        par_fail(tp->desc.tp, PAR_ERR_MEMORY, "par_tp: no memory for %zu bytes of scratch", bytes);
        return NULL;
    }
    void *memory = NULL;
    tp->scratch[slot].symmetric = par__tp_slot_is_symmetric(tp, slot);
    const par_result r = tp->scratch[slot].symmetric
                             ? tp->device->alloc_symmetric(tp->device, tp->desc.tp, bytes, &memory)
                             : tp->kernels->alloc(tp, bytes, &memory);
    tp->scratch[slot].memory = r ? NULL : memory;
    if (r && !tp->scratch[slot].symmetric) // which has said what is wrong itself
        par_fail(tp->desc.tp, PAR_ERR_MEMORY, "par_tp: no memory for %zu bytes of scratch", bytes);
    if (!tp->scratch[slot].memory) return NULL;
    tp->scratch[slot].bytes = bytes;
    return tp->scratch[slot].memory;
}

static par_result par__tp_check_canonical(const par_tp *tp) {
    const int leaves = tp->desc.canonical_leaves;
    if (leaves < 0 || leaves > PAR__TP_MAX_LEAVES || (leaves & (leaves - 1)))
        return PAR__TP_FAIL("par_tp_open: canonical_leaves is %d, but must be 0 or a power of two up to %d",
                            leaves, PAR__TP_MAX_LEAVES);
    if (leaves % tp->t)
        return PAR__TP_FAIL(
            "par_tp_open: canonical_leaves is %d: tensor-parallel ranks can be 1, 2 ... %d, all "
            "powers of two, but are %d",
            leaves, leaves, tp->t);
    if (tp->c > 1 && !tp->desc.canonical_batch)
        return PAR__TP_FAIL("par_tp_open: canonical_leaves is %d: set canonical_batch to the sequences of a "
                            "microbatch, for %d context-parallel ranks",
                            leaves, tp->c);
    if (tp->kernels->canonical) return PAR_OK;
    return par_fail(
        tp->desc.tp, PAR_ERR_UNSUPPORTED,
        "par_tp_open: canonical_leaves needs kernels that add so: the CPU's, or those of a par_cuda "
        "with desc.canonical; these are \"%s\"",
        tp->kernels->name);
}
// All ranks must have the same options, because these decide who communicates, and how.
static par_result par__tp_check_desc(const par_tp *tp) {
    const par_tp_desc *desc = &tp->desc;
    uint64_t mine[4] = {(uint64_t)(desc->sequence_parallel != 0) | (uint64_t)(desc->ulysses != 0) << 1 |
                            (uint64_t)(desc->dtype & 127) << 2 | (uint64_t)(desc->sum_dtype & 127) << 9 |
                            (uint64_t)(uint16_t)desc->canonical_leaves << 16 |
                            (uint64_t)(uint32_t)desc->row_pieces << 32,
                        desc->seed, 0, 0};
    mine[2] = ~mine[0];
    mine[3] = ~mine[1];
    par_result r = par_all_reduce(mine, mine, 4, PAR_U64, PAR_MAX, desc->tp);
    if (!r && desc->cp) r = par_all_reduce(mine, mine, 4, PAR_U64, PAR_MAX, desc->cp);
    if (!r && (mine[0] != ~mine[2] || mine[1] != ~mine[3]))
        r = par_fail(
            desc->tp, PAR_ERR_MISMATCH,
            "par_tp_open: sequence_parallel, ulysses, row_pieces, canonical_leaves, dtype, sum_dtype "
            "or seed differ between the ranks: give all the same");
    if (r) return r;
    if (desc->canonical_leaves) PAR__TP_TRY(par__tp_check_canonical(tp));
    if (desc->row_pieces < 0 || desc->row_pieces > PAR__TP_MAX_PIECES)
        return PAR__TP_FAIL("par_tp_open: row_pieces is %d, but must be 0 (by size) to %d", desc->row_pieces,
                            PAR__TP_MAX_PIECES);
    if (tp->t > PAR__TP_MAX_RANKS)
        return PAR__TP_FAIL("par_tp_open: %d tensor-parallel ranks, but at most %d can be", tp->t,
                            PAR__TP_MAX_RANKS);
    if (desc->dtype != PAR_F32 && desc->dtype != PAR_BF16)
        return PAR__TP_FAIL(
            "par_tp_open: desc.dtype is %s: layers compute on f32 or bf16; convert by par_cast",
            par_dtype_name(desc->dtype));
    if (desc->sum_dtype != PAR_F32 && (desc->sum_dtype != PAR_BF16 || desc->dtype != PAR_BF16))
        return PAR__TP_FAIL(
            "par_tp_open: desc.sum_dtype is %s, and dtype %s: sums travel in f32, or in bf16 where "
            "dtype is bf16, too",
            par_dtype_name(desc->sum_dtype), par_dtype_name(desc->dtype));
    if (desc->sum_dtype != PAR_F32 && desc->canonical_leaves)
        return PAR__TP_FAIL(
            "par_tp_open: sum_dtype bf16 rounds what each rank has, so that bits depend on their "
            "number: leave it 0 with canonical_leaves");
    return PAR_OK;
}
// A device's first message between two ranks may connect them (NCCL): it is launched when both have begun it,
// and so perhaps behind something that waits for it, in a hardware queue of several streams. So the ring gets
// its first messages here, one after the other in an order that all ranks have.
static par_result par__tp_connect_ring(par_tp *tp) {
    void *x = par_tp_scratch(tp, PAR__TP_STATS, 64);
    par_result r = x ? PAR_OK : par_fail(tp->desc.tp, PAR_ERR_MEMORY, "par_tp_open: out of memory");
    for (int i = 0; i < tp->c && !r; i++) { // even ranks send first: many pairs are at work at a time
        const int from = 2 * i < tp->c ? 2 * i : 2 * (i - (tp->c + 1) / 2) + 1, to = (from + 1) % tp->c;
        if (tp->cp_rank == from) r = (par_send)(x, 1, PAR_U8, to, par__in_layer(tp->desc.cp));
        if (tp->cp_rank == to) r = (par_recv)(x, 1, PAR_U8, from, par__in_layer(tp->desc.cp));
    }
    return r;
}
static void par__tp_pick_loops(par_tp *tp);
static void par__tp_adopt_product(par_tp *tp);
// What all ranks of tp and cp have alike: settings, and who multiplies. In the same calls for ranks that open
// a context, and for those that come with one.
static par_result par__tp_join(par_tp *tp) {
    par_result r = par__tp_check_desc(tp);
    if (r || tp->device != par_cpu() || tp->desc.canonical_leaves) return r;
    r = par_tp_gemm_select(NULL, 0, tp->desc.dtype, tp->desc.tp);
    if (!r && tp->desc.dtype == PAR_BF16) par__tp_adopt_product(tp);
    return r;
}
par_result par_tp_open(const par_tp_desc *desc, par_tp **out) {
    if (!desc || !out) {
        PAR_LOG("par_tp_open: desc or tp is NULL");
        return PAR_ERR_ARGUMENT;
    }
    *out = NULL;
    if (!desc->tp) { // no comm to keep the text
        PAR_LOG("par_tp_open: desc.tp is NULL: give it the ranks that share a layer (perhaps one)");
        return PAR_ERR_ARGUMENT;
    }
    const size_t counts = 2 * PAR__TP_MAX_PIECES * (size_t)par_size(desc->tp);
    par_tp *tp = (par_tp *)PAR_MALLOC(sizeof *tp + counts * sizeof(size_t));
    if (!tp) return par_fail(desc->tp, PAR_ERR_MEMORY, "par_tp_open: out of memory");
    memset(tp, 0, sizeof *tp);
    tp->piece_counts = (size_t *)(void *)(tp + 1);
    tp->desc = *desc;
    if (!desc->dtype) tp->desc.dtype = PAR_F32;
    if (!desc->sum_dtype) tp->desc.sum_dtype = PAR_F32;
    if (desc->canonical_leaves) tp->desc.ulysses = 1;
    tp->t = par_size(desc->tp);
    tp->tp_rank = par_rank(desc->tp);
    tp->c = desc->cp ? par_size(desc->cp) : 1;
    tp->cp_rank = desc->cp ? par_rank(desc->cp) : 0;
    tp->kernels = desc->kernels ? desc->kernels : par_tp_cpu();
    tp->device = tp->kernels->device ? tp->kernels->device : par_cpu();
    par__tp_pick_loops(tp);
    if (tp->device != par_cpu() &&
        ((tp->t > 1 && !par_backend_of(desc->tp)) || (tp->c > 1 && !par_backend_of(desc->cp)))) {
        PAR_FREE(tp);
        return par_fail(
            desc->tp, PAR_ERR_ARGUMENT,
            "par_tp_open: tp or cp has no backend for device memory: call par_cuda_open on their parent "
            "before you split it");
    }
    par_result r = par__tp_join(tp);
    if (!r && tp->device != par_cpu() && tp->c > 1 && !tp->desc.ulysses) r = par__tp_connect_ring(tp);
    if (r)
        par_tp_close(tp);
    else
        *out = tp;
    return r;
}
static void par__tp_close_recipes(par_tp *tp);
par_result par_tp_close(par_tp *tp) {
    par_result r = PAR_OK;
    if (!tp) return PAR_OK;
    par__tp_close_scratch(tp);
    par__tp_close_recipes(tp);
    for (int i = 0; i < 4; i++)
        if (tp->replicas[i].comm && par_close(tp->replicas[i].comm)) r = PAR_ERR_PEER_DIED;
    while (tp->former) {
        par__tp_former *f = tp->former;
        tp->former = f->next;
        PAR_FREE(f);
    }
    PAR_FREE(tp);
    return r;
}

static const char *par__tp_layout_name(par_tp_layout layout) {
    static const char *const texts[] = {
#define PAR__X(name, text) text,
        PAR_TP_LAYOUTS(PAR__X)
#undef PAR__X
    };
    return (unsigned)layout < PAR_TP_LAYOUT_COUNT ? texts[layout] : "of no layout";
}
#define PAR__TP_IN(layout) (1u << PAR_TP_##layout) // sets of layouts
static par_tp_layout par__tp_token_layout(const par_tp *tp) {
    return tp->desc.sequence_parallel ? PAR_TP_SEQUENCE : PAR_TP_REPLICATED;
}

static par_result par__tp_wrong_layout(const par_tp *tp, const char *call, const char *name,
                                       par_tp_layout layout, unsigned layouts) {
    char wanted[128] = "";
    size_t at = 0;
    for (int i = 0; i < PAR_TP_LAYOUT_COUNT; i++)
        if (layouts & (1u << i))
            at += (size_t)snprintf(wanted + at, sizeof wanted - at, "%s%s", at ? " or " : "",
                                   par__tp_layout_name((par_tp_layout)i));
    const char *why = "";
    if (layout == PAR_TP_PARTIAL) why = ": reduce it first";
    if (layout == PAR_TP_SEQUENCE && !tp->desc.sequence_parallel)
        why = ": this context has no sequence parallelism";
    return PAR__TP_FAIL("%s: %s is %s, but must be %s%s", call, name, par__tp_layout_name(layout), wanted,
                        why);
}
// Checks that a matrix has one of these layouts and so many columns (0: any).
static par_result par__tp_check_matrix(const par_tp *tp, const char *call, const char *name,
                                       const par_tp_matrix *m, unsigned layouts, size_t cols) {
    if (!m || (m->rows && m->cols && !m->data)) return PAR__TP_FAIL("%s: %s has no data", call, name);
    if ((unsigned)m->layout >= PAR_TP_LAYOUT_COUNT || !(layouts & (1u << m->layout)))
        return par__tp_wrong_layout(tp, call, name, m->layout, layouts);
    if (cols && m->cols != cols)
        return PAR__TP_FAIL("%s: %s has %zu columns on this rank, but must have %zu", call, name, m->cols,
                            cols);
    return PAR_OK;
}
static par_result par__tp_check_rows(const par_tp *tp, const char *call, size_t a, size_t b) {
    return a == b ? PAR_OK
                  : PAR__TP_FAIL("%s: the matrices have %zu and %zu rows, but must have as many", call, a, b);
}
// Checks that a pointer to `count` elements, an output's memory, and a parameter's values are not NULL.
static par_result par__tp_check_pointer(const par_tp *tp, const char *call, const char *name, const void *p,
                                        size_t count) {
    return p || !count ? PAR_OK : PAR__TP_FAIL("%s: %s is NULL", call, name);
}
static par_result par__tp_check_output(const par_tp *tp, const char *call, const char *name,
                                       const par_tp_matrix *m, size_t rows) {
    if (!m) return PAR__TP_FAIL("%s: %s is NULL", call, name);
    return m->data || !rows
               ? PAR_OK
               : PAR__TP_FAIL("%s: %s.data is NULL: set it to memory for the output", call, name);
}
static par_result par__tp_check_parameter(const par_tp *tp, const char *call, const char *name,
                                          const par_tp_parameter *p) {
    if (!p || !p->rows) return PAR__TP_FAIL("%s: %s has no shape: open the layer first", call, name);
    if (p->data || !p->local_rows || !p->local_cols) return PAR_OK;
    return PAR__TP_FAIL("%s: %s.data is NULL, but this rank has %zu x %zu values of it", call, name,
                        p->local_rows, p->local_cols);
}
static par_result par__tp_check_weight_and_bias(const par_tp *tp, const char *call,
                                                const par_tp_parameter *weight, int has_bias,
                                                const par_tp_parameter *bias) {
    PAR__TP_CHECK(parameter, "weight", weight);
    return has_bias ? par__tp_check_parameter(tp, call, "bias", bias) : PAR_OK;
}
static void par__tp_set_shape(par_tp_matrix *m, size_t rows, size_t cols, par_tp_layout layout) {
    m->rows = rows;
    m->cols = cols;
    m->layout = layout;
}

size_t par_tp_rows(const par_tp *tp, const par_tp_tokens *tokens) {
    return tokens->batch * (tokens->sequence / (size_t)tp->c);
}
static par_tp_row_map par__tp_row_map_from(const par_tp *tp, const par_tp_tokens *tokens, size_t first_row) {
    par_tp_row_map m;
    const size_t c = (size_t)tp->c, r = (size_t)tp->cp_rank;
    const int zigzag = tp->c > 1 && !tp->desc.ulysses;
    m.first_row = first_row;
    m.sequence = tokens->sequence;
    m.local_sequence = tokens->sequence / c;
    m.first_sequence = tokens->first_sequence;
    m.position = tokens->position;
    m.chunk_count = zigzag ? 2 : 1;
    m.chunk_tokens = m.local_sequence / m.chunk_count;
    m.chunk[0] = r;
    m.chunk[1] = 2 * c - 1 - r;
    return m;
}
size_t par_tp_position(const par_tp *tp, size_t sequence, size_t i) {
    par_tp_tokens tokens;
    tokens.batch = 1;
    tokens.sequence = sequence;
    tokens.first_sequence = tokens.position = 0;
    tokens.documents = NULL;
    const par_tp_row_map m = par__tp_row_map_from(tp, &tokens, 0);
    return par__tp_map_position(&m, i);
}
par_result par_tp_documents_map(par_tp *tp, const par_tp_tokens *tokens, const size_t *offsets, size_t count,
                                uint32_t *map) {
    static const char *const call = "par_tp_documents_map";
    PAR__TP_CHECK(pointer, "tokens", tokens, 1);
    PAR__TP_CHECK(pointer, "offsets", offsets, 1);
    const size_t s = tokens->sequence, all = tokens->batch * s;
    PAR__TP_CHECK(pointer, "map", map, all);
    if (all > UINT32_MAX) return PAR__TP_FAIL("%s: %zu tokens, but at most 2^32 - 1 are possible", call, all);
    if (offsets[0] || offsets[count] != all)
        return PAR__TP_FAIL("%s: offsets go from %zu to %zu, but must go from 0 to %zu, which are all tokens",
                            call, offsets[0], offsets[count], all);
    for (size_t d = 0; d < count; d++) {
        const size_t first = offsets[d], end = offsets[d + 1];
        if (end < first || end > all)
            return PAR__TP_FAIL("%s: document %zu goes from token %zu to %zu of %zu: offsets must not fall",
                                call, d, first, end, all);
        if (end > first && first / s != (end - 1) / s)
            return PAR__TP_FAIL("%s: document %zu, from token %zu to %zu, is of two sequences of %zu tokens: "
                                "cut it there, or give one sequence of all tokens",
                                call, d, first, end, s);
        for (size_t i = first; i < end; i++) {
            map[i] = (uint32_t)(i - first + 1);
            map[all + i] = (uint32_t)(end - i);
        }
    }
    return PAR_OK;
}
size_t par_tp_row_position(const par_tp_row_map *m, size_t row) { return par__tp_row_position(m, row); }
uint64_t par_tp_token_index(const par_tp_row_map *m, size_t row) { return par__tp_token_index(m, row); }
// Makes the row map of a matrix, and checks that the matrix has as many rows as `tokens` says.
static par_result par__tp_make_row_map(const par_tp *tp, const char *call, const par_tp_tokens *tokens,
                                       size_t rows, par_tp_layout layout, par_tp_row_map *map) {
    const size_t c = (size_t)tp->c, split = tp->c > 1 && !tp->desc.ulysses ? 2 * c : c;
    if (!tokens || !tokens->sequence || tokens->sequence % split)
        return PAR__TP_FAIL(
            "%s: sequences of %zu tokens do not divide by %zu, over %d context-parallel ranks", call,
            tokens ? tokens->sequence : 0, split, tp->c);
    if (tokens->position && tp->c > 1)
        return PAR__TP_FAIL("%s: tokens from position %zu on, but %d context-parallel ranks: generate in a "
                            "context with cp NULL",
                            call, tokens->position, tp->c);
    const size_t all = par_tp_rows(tp, tokens), own = layout == PAR_TP_SEQUENCE ? all / (size_t)tp->t : all;
    if (rows != own || (layout == PAR_TP_SEQUENCE && all % (size_t)tp->t))
        return PAR__TP_FAIL("%s: %zu sequences of %zu tokens are %zu rows here%s, but the matrix has %zu",
                            call, tokens->batch, tokens->sequence, own,
                            layout == PAR_TP_SEQUENCE ? " (tokens split over tp)" : "", rows);
    *map = par__tp_row_map_from(tp, tokens, layout == PAR_TP_SEQUENCE ? own * (size_t)tp->tp_rank : 0);
    return PAR_OK;
}

// >>tp_canonical --------------------------------------------------------------------------------------------
//
// A sum that tp may split has L = desc.canonical_leaves leaves. Rank r of t computes the leaves r L/t to
// (r+1) L/t - 1 and adds them in the tree, so that its sum is a node; PAR_TREE_SUM over tp adds those.
//     leaves           0   1   2   3   4   5   6   7
//                       \+/     \+/     \+/     \+/
//     ranks of t = 2      \ + /             \ + /
//     PAR_TREE_SUM             \    +     /

enum { PAR__TP_LEVELS = 7, PAR__TP_LEAF_ROWS = 128 }; // levels: of PAR__TP_MAX_LEAVES
// Where part i of n things begins, if they are split evenly: part i of p is parts i k to (i+1) k - 1 of p k.
static size_t par__tp_split_at(size_t n, size_t parts, size_t i) {
    return n / parts * i + (n % parts * i + parts - 1) / parts;
}
static size_t par__tp_own_leaves(const par_tp *tp) { return (size_t)(tp->desc.canonical_leaves / tp->t); }
// Where this rank's leaf i of n terms begins, after the rank's first term.
static size_t par__tp_leaf_at(const par_tp *tp, size_t n, size_t i) {
    const size_t all = (size_t)tp->desc.canonical_leaves,
                 first = par__tp_own_leaves(tp) * (size_t)tp->tp_rank;
    return par__tp_split_at(n, all, first + i) - par__tp_split_at(n, all, first);
}
// Does a rank add up the gradients of biases and positions for its own tokens only? Else for all of them.
static int par__tp_sums_own_rows(const par_tp *tp) {
    return tp->desc.sequence_parallel && !tp->desc.canonical_leaves;
}
static int par__tp_gathers_cp(const par_tp *tp) { return tp->desc.canonical_leaves && tp->c > 1; }
static par_op par__tp_op(const par_tp *tp) { return tp->desc.canonical_leaves ? PAR_TREE_SUM : PAR_SUM; }

// Sums of 2^k leaves that wait for their right halves, the oldest first. A leaf is written to sums[used] and
// pushed; after 2^k leaves the sum is in sums[0].
typedef struct par__tp_tree {
    float *sums[PAR__TP_LEVELS];
    size_t count, leaves; // floats of a sum; leaves so far
    int used;
} par__tp_tree;
static par_result par__tp_tree_open(par_tp *tp, par__tp_tree *tree, float *whole, size_t count,
                                    size_t leaves) { // whole NULL: sums[0] is scratch, too
    size_t levels = 1;
    while (leaves >> levels) levels++;
    float *scratch = (float *)par_tp_scratch(tp, PAR__TP_ACC, levels * count * sizeof *scratch);
    if (!scratch) return PAR_ERR_MEMORY;
    for (size_t i = 0; i < levels; i++) tree->sums[i] = i || !whole ? scratch + i * count : whole;
    tree->count = count;
    tree->leaves = 0;
    return tree->used = 0, PAR_OK;
}
static par_result par__tp_tree_push(par_tp *tp, par__tp_tree *tree) {
    tree->used++;
    for (size_t n = ++tree->leaves; n % 2 == 0; n /= 2, tree->used--) {
        float *sum = tree->sums[tree->used - 2];
        const void *pair[2] = {sum, tree->sums[tree->used - 1]};
        PAR__TP_TRY(tp->device->reduce(tp->device, sum, pair, 2, tree->count, PAR_F32, PAR_SUM, NULL));
    }
    return PAR_OK;
}

// Gathers rows of `bytes` bytes, `ld` apart, over cp, and before over tp if that splits them: *all has the
// rows of whole sequences, in their order.
static par_result par__tp_gather_tokens(par_tp *tp, int slot, const void *x, size_t ld, size_t rows,
                                        size_t bytes, int split, const void **all) {
    const size_t c = (size_t)tp->c, whole = split ? rows * (size_t)tp->t : rows,
                 batch = tp->desc.canonical_batch, sequence = whole / batch * bytes;
    char *packed = (char *)par_tp_scratch(tp, PAR__TP_KV, rows * bytes), *of_tp = packed;
    if (split) of_tp = (char *)par_tp_scratch(tp, PAR__TP_HEADS, whole * bytes);
    char *of_cp = (char *)par_tp_scratch(tp, PAR__TP_KV_NEXT, c * whole * bytes);
    char *to = (char *)par_tp_scratch(tp, slot, c * whole * bytes);
    if (!packed || !of_tp || !of_cp || !to) return PAR_ERR_MEMORY;
    if (whole % batch)
        return PAR__TP_FAIL("par_tp: %zu rows are not of %zu sequences, which canonical_batch says", whole,
                            batch);
    PAR__TP_TRY(tp->kernels->copy(tp, packed, bytes, x, ld, rows, bytes));
    if (split) PAR__TP_TRY(par_all_gather(packed, of_tp, rows * bytes, PAR_U8, tp->desc.tp));
    PAR__TP_TRY(par_all_gather(of_tp, of_cp, whole * bytes, PAR_U8, tp->desc.cp));
    for (size_t q = 0; q < c; q++)
        PAR__TP_TRY(tp->kernels->copy(tp, to + q * sequence, c * sequence, of_cp + q * whole * bytes,
                                      sequence, batch, sequence));
    return *all = to, PAR_OK;
}

// >>tp_layouts ----------------------------------------------------------------------------------------------
//
//     REPLICATED  --split_rows-->  SEQUENCE  --gather_rows-->  REPLICATED
//     PARTIAL     --all_reduce-->  REPLICATED        PARTIAL  --scatter_rows-->  SEQUENCE

static par_result par__tp_check_divisible(const par_tp *tp, const char *call, size_t rows) {
    if (rows % (size_t)tp->t == 0) return PAR_OK;
    return PAR__TP_FAIL("%s: %zu rows do not divide by %d tensor-parallel ranks", call, rows, tp->t);
}

static par_result par__tp_convert(par_tp *tp, const char *call, const par_tp_matrix *x, par_tp_layout from,
                                  par_tp_matrix *y, par_tp_layout to) {
    const size_t t = (size_t)tp->t;
    PAR__TP_CHECK(matrix, "x", x, 1u << from, 0);
    PAR__TP_CHECK(output, "y", y, x->rows);
    if (to == PAR_TP_SEQUENCE) PAR__TP_CHECK(divisible, x->rows);
    const size_t rows = to == PAR_TP_SEQUENCE ? x->rows / t : from == PAR_TP_SEQUENCE ? x->rows * t : x->rows;
    return par__tp_set_shape(y, rows, x->cols, to), PAR_OK;
}
par_result par_tp_all_reduce(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y) {
    PAR__TP_TRY(par__tp_convert(tp, "par_tp_all_reduce", x, PAR_TP_PARTIAL, y, PAR_TP_REPLICATED));
    return par_all_reduce(x->data, y->data, x->rows * x->cols, par_tp_dtype(tp), par__tp_op(tp), tp->desc.tp);
}
par_result par_tp_all_gather_rows(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y) {
    PAR__TP_TRY(par__tp_convert(tp, "par_tp_all_gather_rows", x, PAR_TP_SEQUENCE, y, PAR_TP_REPLICATED));
    return par_all_gather(x->data, y->data, x->rows * x->cols, par_tp_dtype(tp), tp->desc.tp);
}
par_result par_tp_reduce_scatter_rows(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y) {
    PAR__TP_TRY(par__tp_convert(tp, "par_tp_reduce_scatter_rows", x, PAR_TP_PARTIAL, y, PAR_TP_SEQUENCE));
    return par_reduce_scatter(x->data, y->data, y->rows * y->cols, par_tp_dtype(tp), par__tp_op(tp),
                              tp->desc.tp);
}
par_result par_tp_split_rows(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y) {
    PAR__TP_TRY(par__tp_convert(tp, "par_tp_split_rows", x, PAR_TP_REPLICATED, y, PAR_TP_SEQUENCE));
    const size_t bytes = y->rows * y->cols * par_tp_element_bytes(tp);
    return tp->kernels->copy(tp, y->data, bytes, (const char *)x->data + bytes * (size_t)tp->tp_rank, bytes,
                             1, bytes);
}

// Pieces of rows, so that the communication of one runs beside the product of another. A block is the rows of
// one rank if tokens are split, else all rows; piece j has the rows [at(j), at(j + 1)) of each block:
//     column-parallel, forward     gather 0 | gather 1  | gather 2
//                                           | product 0 | product 1 | product 2
//     row-parallel, forward        product 0 | product 1 | product 2
//                                            | reduce 0  | reduce 1  | reduce 2
// Of p pieces 1/p of the communication stays exposed; the bytes are the same. Each element is the sum of the
// same products in the same order, so that the bits do not depend on p.
typedef struct par__tp_pieces {
    size_t blocks, block_rows, count;
} par__tp_pieces;
static size_t par__tp_piece_at(const par__tp_pieces *p, size_t j) { return p->block_rows * j / p->count; }
static size_t par__tp_piece_rows(const par__tp_pieces *p, size_t j) {
    return par__tp_piece_at(p, j + 1) - par__tp_piece_at(p, j);
}
// Splits so many rows, of row_bytes each in messages. A piece has at least 2 rows of each block, because a
// product of one row adds in another order; by a recipe all rows are one, because they may share a scale.
// apart: the blocks of a piece are a product each, and these are small: then rows are not split by size.
static par__tp_pieces par__tp_split_pieces(const par_tp *tp, const par_tp_linear *l, size_t rows,
                                           size_t row_bytes, int apart) {
    const size_t min_rows = 256, min_bytes = (size_t)512 << 10;
    par__tp_pieces p;
    p.blocks = tp->desc.sequence_parallel ? (size_t)tp->t : 1;
    p.block_rows = rows / p.blocks;
    p.count = (size_t)tp->desc.row_pieces;
    if (!p.count && tp->device != par_cpu() && (p.blocks == 1 || (tp->kernels->gemm_blocks && !apart)))
        p.count = PAR__MIN((size_t)4, PAR__MIN(p.block_rows / min_rows, rows * row_bytes / min_bytes));
    p.count = tp->t == 1 || (l && l->recipe) ? 1 : PAR__MAX((size_t)1, PAR__MIN(p.count, p.block_rows / 2));
    return p;
}
static par__tp_pieces par__tp_one_piece(const par__tp_pieces *p) {
    par__tp_pieces one = *p;
    one.count = 1;
    return one;
}

// The sum over tp that turns a partial sum, of desc.sum_dtype, into tokens: the matrix product writes to
// `partial`, piece after piece, each block after block; then the all_reduce or reduce_scatter of the piece
// begins. NCCL adds bf16 in f32 between symmetric memory alone, which y is not: on a device the sum takes the
// place of its part, and is copied to y.
typedef struct par__tp_reduction {
    void *partial, *result; // result NULL: the sum of a piece takes the place of this rank's part of it
    par_dtype type;         // of both; where there is no sum, the product writes to y
    size_t cols;
    par__tp_pieces pieces;
    size_t begun;
    par_request requests[PAR__TP_MAX_PIECES];
} par__tp_reduction;

static par_result par__tp_reduction_open(par_tp *tp, const par_tp_linear *l, par__tp_reduction *s,
                                         size_t rows, size_t cols, par_tp_matrix *y) {
    const size_t t = (size_t)tp->t, mine = tp->desc.sequence_parallel ? rows / t : rows;
    if (tp->desc.sequence_parallel) PAR__TP_TRY(par__tp_check_divisible(tp, "par_tp", rows));
    par__tp_set_shape(y, mine, cols, par__tp_token_layout(tp));
    memset(s, 0, sizeof *s);
    s->type = tp->t == 1 && !tp->desc.canonical_leaves ? par_tp_dtype(tp) : tp->desc.sum_dtype;
    const size_t e = par_dtype_bytes(s->type);
    s->pieces = par__tp_split_pieces(tp, l, rows, cols * e, 0);
    s->cols = cols;
    const int same = s->type == par_tp_dtype(tp), in_place = same && !par__tp_is_f32(tp);
    if (!same)
        s->result = par_tp_scratch(tp, PAR__TP_RESULT, mine * cols * e);
    else if (tp->t == 1 || !in_place || tp->device == par_cpu())
        s->result = y->data;
    s->partial = tp->t == 1 ? s->result : par_tp_scratch(tp, PAR__TP_PARTIAL, rows * cols * e);
    return s->partial && (s->result || in_place) ? PAR_OK : PAR_ERR_MEMORY;
}
// A piece, and where its sum goes.
static char *par__tp_reduction_piece(const par_tp *tp, const par__tp_reduction *s, size_t piece,
                                     char **result) {
    const size_t at = par__tp_piece_at(&s->pieces, piece), row = s->cols * par_dtype_bytes(s->type);
    char *partial = (char *)s->partial + at * s->pieces.blocks * row;
    *result = s->result ? (char *)s->result + at * row : partial;
    if (!s->result && tp->desc.sequence_parallel)
        *result += par__tp_piece_rows(&s->pieces, piece) * (size_t)tp->tp_rank * row;
    return partial;
}
static par_result par__tp_reduction_begin(par_tp *tp, par__tp_reduction *s, size_t piece) {
    const size_t count = par__tp_piece_rows(&s->pieces, piece) * s->cols;
    char *result;
    const char *partial = par__tp_reduction_piece(tp, s, piece, &result);
    s->begun = piece + 1;
    if (tp->t == 1) return PAR_OK;
    if (tp->desc.sequence_parallel)
        return par_reduce_scatter_begin(partial, result, count, s->type, par__tp_op(tp), tp->desc.tp,
                                        &s->requests[piece]);
    return par_all_reduce_begin(partial, result, count, s->type, par__tp_op(tp), tp->desc.tp,
                                &s->requests[piece]);
}
// Also after an error: no request stays in flight.
static par_result par__tp_reduction_end(par_tp *tp, par__tp_reduction *s, par_tp_matrix *y) {
    par_result r = PAR_OK;
    for (size_t j = 0; j < s->begun; j++) {
        const par_result waited = par_wait(&s->requests[j]);
        if (!r) r = waited;
        if (r || s->result == y->data) continue;
        const size_t count = par__tp_piece_rows(&s->pieces, j) * s->cols, bytes = count * 2;
        char *from, *to = par__tp_element(tp, y->data, par__tp_piece_at(&s->pieces, j) * s->cols);
        par__tp_reduction_piece(tp, s, j, &from);
        r = s->type == PAR_F32 ? tp->kernels->cast(tp, to, PAR_BF16, from, PAR_F32, count)
                               : tp->kernels->copy(tp, to, bytes, from, bytes, 1, bytes);
    }
    return r;
}

// Gathers so many elements of each rank. NCCL has its fastest kernels, and copy engines, where both arrays
// lie in symmetric memory. So on a device this rank's elements are first copied to their place in `into`, if
// that is scratch memory; the call does not copy them then.
static par_result par__tp_gather_into(par_tp *tp, const void *mine, size_t count, void *into, int is_scratch,
                                      par_request *request) {
    const size_t bytes = count * par_tp_element_bytes(tp);
    if (is_scratch && tp->device != par_cpu()) {
        void *place = (char *)into + (size_t)tp->tp_rank * bytes;
        PAR__TP_TRY(tp->kernels->copy(tp, place, bytes, mine, bytes, 1, bytes));
        mine = place;
    }
    return par_all_gather_begin(mine, into, count, par_tp_dtype(tp), tp->desc.tp, request);
}
// Begins the all_gather of a SEQUENCE matrix; *all is complete after par_wait. For a REPLICATED x it does
// nothing.
static par_result par__tp_all_gather_begin(par_tp *tp, int slot, const par_tp_matrix *x, void *into,
                                           const void **all, par_request *request) {
    request->operation = NULL;
    request->ticket = 0;
    *all = x->data;
    if (x->layout != PAR_TP_SEQUENCE || (tp->t == 1 && !into)) return PAR_OK;
    const size_t count = x->rows * x->cols;
    const int is_scratch = !into;
    if (!into) into = par_tp_scratch(tp, slot, count * (size_t)tp->t * par_tp_element_bytes(tp));
    if (!into) return PAR_ERR_MEMORY;
    *all = into;
    return par__tp_gather_into(tp, x->data, count, into, is_scratch, request);
}
static size_t par__tp_full_rows(const par_tp *tp, const par_tp_matrix *x) {
    return x ? x->rows * (x->layout == PAR_TP_SEQUENCE ? (size_t)tp->t : 1) : 0;
}
// The same in pieces of rows, which are complete one after the other; gather_end waits for all of them, also
// after an error. Where products alone read the rows they are packed, as a reduction's partial sums are:
// piece after piece, each block after block. So each piece is an all_gather. Rows that are also an output,
// or an operand of the product for the weights, have their order, and a piece is a gatherv of all blocks'
// parts: packed ones would have to be put in order, a pass of memory.
typedef struct par__tp_gather {
    const void *all;
    par__tp_pieces pieces;
    int packed;
    par_request requests[PAR__TP_MAX_PIECES];
} par__tp_gather;
static par_result par__tp_gather_end(par__tp_gather *g) {
    par_result r = PAR_OK;
    for (size_t j = 0; j < PAR__TP_MAX_PIECES; j++) {
        const par_result waited = par_wait(&g->requests[j]);
        if (!r) r = waited;
    }
    return r;
}
static par_result par__tp_gather_begin(par_tp *tp, const par_tp_linear *l, int slot, const par_tp_matrix *x,
                                       void *into, int packed, int apart, par__tp_gather *g) {
    const size_t t = (size_t)tp->t, rows = par__tp_full_rows(tp, x);
    par_result r = PAR_OK;
    memset(g, 0, sizeof *g);
    g->packed = packed;
    g->pieces = par__tp_split_pieces(tp, l, rows, x->cols * par_tp_element_bytes(tp), apart);
    if (x->layout != PAR_TP_SEQUENCE) { // there is nothing to gather
        g->pieces.blocks = g->pieces.count = 1;
        g->pieces.block_rows = rows;
    }
    if (g->pieces.count == 1) return par__tp_all_gather_begin(tp, slot, x, into, &g->all, &g->requests[0]);
    if (!into) into = par_tp_scratch(tp, slot, rows * x->cols * par_tp_element_bytes(tp));
    if (!into) return PAR_ERR_MEMORY;
    g->all = into;
    for (size_t j = 0; j < g->pieces.count && !r; j++) {
        const size_t at = par__tp_piece_at(&g->pieces, j), n = par__tp_piece_rows(&g->pieces, j) * x->cols;
        const void *mine = par__tp_const_element(tp, x->data, at * x->cols);
        size_t *counts = tp->piece_counts + 2 * j * t, *displs = counts + t;
        for (size_t q = 0; q < t && !packed; q++) {
            counts[q] = n;
            displs[q] = (q * g->pieces.block_rows + at) * x->cols;
        }
        r = packed ? par__tp_gather_into(tp, mine, n, par__tp_element(tp, into, t * at * x->cols), 1,
                                         &g->requests[j])
                   : par_all_gatherv_begin(mine, into, counts, displs, par_tp_dtype(tp), tp->desc.tp,
                                           &g->requests[j]);
    }
    if (r) (void)par__tp_gather_end(g);
    return r;
}

// >>tp_parameters -------------------------------------------------------------------------------------------
//
// Which shard of a parameter a rank has. Fused products are split segment by segment, each into whole units:
//     [q0 q1 q2 q3 | k0 k1 | v0 v1]  over t = 2:   rank 0 [q0 q1 k0 v0]   rank 1 [q2 q3 k1 v1]
//                                    over t = 4:   rank 0 [q0 k0 v0]  rank 1 [q1 k0 v0]  rank 2 [q2 k1 v1]
// With t = 4 two ranks have replicas of k0: their gradients are summed, and count once in the norm.

static int par__tp_shard_of(int t, int rank, const par_tp_parameter *p, int index, size_t *first,
                            size_t *global, size_t *count, int *replicas) {
    const size_t n = (size_t)t, r = (size_t)rank;
    const size_t whole = p->split == PAR_TP_SPLIT_COLS ? p->cols : p->rows;
    *replicas = 1;
    *first = *global = *count = 0;
    if (p->split == PAR_TP_SPLIT_NONE) return *global = 0, *count = whole, *replicas = t, index == 0;
    if (p->split == PAR_TP_SPLIT_VOCABULARY) {
        *global = par__tp_split_at(whole, n, r);
        *count = par__tp_split_at(whole, n, r + 1) - *global;
        return index == 0;
    }
    if (p->segment_count == 0) return *global = whole / n * r, *count = whole / n, index == 0;
    size_t base = 0;
    for (int i = 0; i < p->segment_count; i++) {
        const size_t unit = p->segments[i].unit ? p->segments[i].unit : 1,
                     units = p->segments[i].count / unit;
        const size_t each = units >= n ? units / n : 1;
        *count = each * unit;
        *global = base + (units >= n ? r * each : r * units / n) * unit;
        *replicas = units >= n ? 1 : (int)(n / PAR__MAX(units, (size_t)1));
        if (i == index) return 1;
        *first += *count;
        base += p->segments[i].count;
    }
    return 0;
}
int par_tp_shard(const par_tp *tp, const par_tp_parameter *p, int index, size_t *first, size_t *global,
                 size_t *count, int *replicas) {
    return par__tp_shard_of(tp->t, tp->tp_rank, p, index, first, global, count, replicas);
}

par_shard par_tp_parameter_shard(const par_tp *tp, const par_tp_parameter *p) {
    const int cols = p->split == PAR_TP_SPLIT_COLS;
    par_shard s;
    size_t first, global, count;
    int replicas;
    memset(&s, 0, sizeof s);
    s.dims = p->cols > 1 ? 2 : 1;
    s.shape[0] = p->local_rows;
    s.shape[1] = p->local_cols;
    s.global_shape[0] = p->rows;
    s.global_shape[1] = p->cols;
    while (par_tp_shard(tp, p, s.run_count, &first, &global, &count, &replicas)) {
        par_run *r = &s.runs[s.run_count++];
        r->count = cols ? p->rows * count : count * p->cols;
        r->offset = cols ? global : global * p->cols;
        r->width = cols ? count : 0;
        r->stride = cols ? p->cols : 0;
        r->replicas = replicas;
        r->replica_id = tp->tp_rank % replicas;
    }
    return s;
}

static par_comm *par__tp_replica_comm(const par_tp *tp, int replicas) {
    for (int i = 0; i < 4; i++)
        if (tp->replicas[i].count == replicas) return tp->replicas[i].comm;
    return replicas == tp->t ? tp->desc.tp : NULL;
}
// The sums that a parameter's gradient needs: over tp, or of each segment over the ranks that share it.
// Others have no comm.
static void par__tp_sums_of(const par_tp *tp, const par_tp_parameter *p, par_partial_sum sums[PAR_MAX_SUMS]) {
    size_t first, global, n;
    int replicas;
    memset(sums, 0, PAR_MAX_SUMS * sizeof *sums);
    if (p->partial) {
        sums->comm = tp->desc.tp;
        sums->op = par__tp_op(tp);
        sums->count = p->local_rows * p->local_cols;
    }
    for (int i = 0; i < p->segment_count && !p->partial; i++) {
        par_tp_shard(tp, p, i, &first, &global, &n, &replicas);
        if (replicas == 1) continue;
        sums[i].comm = par__tp_replica_comm(tp, replicas);
        sums[i].op = PAR_SUM;
        sums[i].first = first * p->local_cols;
        sums[i].count = n * p->local_cols;
    }
}

int par_tp_describe(const par_tp *tp, par_tp_parameter *const *list, int count, uint64_t stream,
                    par_parameter *out) {
    int n = 0;
    for (int i = 0; i < count; i++) {
        par_tp_parameter *p = list[i];
        if (!p) continue;
        par_parameter *d = &out[n++];
        memset(d, 0, sizeof *d);
        d->name = p->name;
        d->shard = par_tp_parameter_shard(tp, p);
        d->data = &p->data;
        d->grad = &p->grad;
        d->deviation = p->deviation;
        d->value = p->value;
        d->stream = stream + (uint64_t)i;
        d->frozen = p->frozen;
        d->dtype = par_tp_dtype(tp);
        d->no_decay = d->shard.dims == 1;
        d->use_adamw = p->use_adamw;
        par__tp_sums_of(tp, p, d->sums);
        d->owned = &p->owned;
    }
    return n;
}

static par_result par__tp_split_replicas(par_tp *tp, int i, int replicas) {
    return par_split(tp->desc.tp, tp->tp_rank / replicas, tp->tp_rank, &tp->replicas[i].comm);
}
static par_result par__tp_open_replica_comm(par_tp *tp, int replicas) { // collective
    int i = 0;
    if (replicas == 1 || par__tp_replica_comm(tp, replicas)) return PAR_OK;
    while (i < 4 && tp->replicas[i].count) i++;
    if (i == 4) return PAR__TP_FAIL("par_tp: more than 4 different numbers of ranks share heads");
    PAR__TP_TRY(par__tp_split_replicas(tp, i, replicas));
    return tp->replicas[i].count = replicas, PAR_OK;
}
par_result par_tp_set_comms(par_tp *tp, par_comm *tp_comm, par_comm *cp) {
    const int fits = tp_comm && par_size(tp_comm) == tp->t && par_rank(tp_comm) == tp->tp_rank &&
                     (cp ? par_size(cp) : 1) == tp->c;
    if (!fits)
        return PAR__TP_FAIL("par_tp_set_comms: tp and cp need the sizes of before, %d and %d, and this rank "
                            "its number in tp, %d",
                            tp->t, tp->c, tp->tp_rank);
    if (tp->device != par_cpu() && tp->c > 1 && !tp->desc.ulysses)
        return par_fail(
            tp->desc.tp, PAR_ERR_UNSUPPORTED,
            "par_tp_set_comms: cp is a ring of devices, which map each other's memory: open another "
            "context");
    par__tp_close_scratch(tp);
    for (int i = -1; i < 4 && (i < 0 || tp->replicas[i].count); i++) {
        par__tp_former *f = (par__tp_former *)PAR_MALLOC(sizeof *f);
        if (!f) return par_fail(tp->desc.tp, PAR_ERR_MEMORY, "par_tp_set_comms: out of memory");
        f->comm = i < 0 ? tp->desc.tp : tp->replicas[i].comm;
        f->role = i;
        f->next = tp->former;
        tp->former = f;
        if (i < 0) {
            tp->desc.tp = tp_comm;
            tp->desc.cp = cp;
            tp->cp_rank = cp ? par_rank(cp) : 0;
            PAR__TP_TRY(par__tp_join(tp));
        } else {
            par_comm *before = tp->replicas[i].comm;
            PAR__TP_TRY(par__tp_split_replicas(tp, i, tp->replicas[i].count));
            PAR__TP_TRY(par_close(before));
        }
    }
    return PAR_OK;
}
par_comm *par_tp_comm_after(const par_tp *tp, const par_comm *old) {
    if (old == tp->desc.tp) return tp->desc.tp;
    for (int i = 0; i < 4; i++)
        if (tp->replicas[i].comm && tp->replicas[i].comm == old) return tp->replicas[i].comm;
    for (const par__tp_former *f = tp->former; f; f = f->next)
        if (f->comm == old) return f->role < 0 ? tp->desc.tp : tp->replicas[f->role].comm;
    return NULL;
}

// Sets the shape of this rank's shard; an error if the units do not divide over the ranks.
static par_result par__tp_open_parameter(par_tp *tp, const char *call, par_tp_parameter *p, size_t rows,
                                         size_t cols, par_tp_split split, const par_tp_segment *segments,
                                         int segment_count, int partial) {
    const size_t t = (size_t)tp->t;
    void *data = p->data;
    float *grad = p->grad;
    const int frozen = p->frozen;
    memset(p, 0, sizeof *p);
    p->data = data;
    p->grad = grad;
    p->frozen = frozen;
    p->rows = rows;
    p->cols = cols;
    p->split = split;
    p->partial = partial && tp->t > 1;
    p->segment_count = segment_count;
    if (segment_count < 0 || segment_count > PAR_TP_SEGMENTS)
        return PAR__TP_FAIL("%s: segment_count is %d, but must be 0 to %d", call, segment_count,
                            PAR_TP_SEGMENTS);
    size_t sum = 0;
    for (int i = 0; i < segment_count; i++) {
        const size_t unit = segments[i].unit ? segments[i].unit : 1, units = segments[i].count / unit;
        p->segments[i] = segments[i];
        sum += segments[i].count;
        if (segments[i].count % unit || !units || (units % t && t % units))
            return PAR__TP_FAIL(
                "%s: segment %d has %zu features in units of %zu: %zu units and %d tensor-parallel ranks do "
                "not divide one another",
                call, i, segments[i].count, unit, units, tp->t);
        if (units < t && tp->desc.canonical_leaves)
            return PAR__TP_FAIL("%s: %zu key-value heads: with canonical_leaves at most %zu tensor-parallel "
                                "ranks, as a head's gradient is not split",
                                call, units, units);
        if (units < t) PAR__TP_TRY(par__tp_open_replica_comm(tp, (int)(t / units)));
    }
    if (segment_count && sum != rows)
        return PAR__TP_FAIL("%s: the segments have %zu features together, but the layer %zu", call, sum,
                            rows);
    const size_t whole = split == PAR_TP_SPLIT_COLS ? cols : rows;
    if (!segment_count && (split == PAR_TP_SPLIT_ROWS || split == PAR_TP_SPLIT_COLS) && whole % t)
        return PAR__TP_FAIL("%s: %zu features do not divide by %d tensor-parallel ranks", call, whole, tp->t);
    size_t first, global, count, local = 0;
    int replicas;
    for (int i = 0; par_tp_shard(tp, p, i, &first, &global, &count, &replicas); i++) local += count;
    p->local_rows = split == PAR_TP_SPLIT_COLS ? rows : local;
    p->local_cols = split == PAR_TP_SPLIT_COLS ? local : cols;
    return PAR_OK;
}

static par_result par__tp_fill_shard(par_tp *tp, par_tp_parameter *p, uint64_t stream, float deviation,
                                     float value) {
    size_t first, global, count;
    int replicas;
    for (int i = 0; par_tp_shard(tp, p, i, &first, &global, &count, &replicas); i++)
        if (p->split == PAR_TP_SPLIT_COLS) {
            for (size_t r = 0; r < p->rows; r++)
                PAR__TP_TRY(tp->kernels->init(tp, par__tp_element(tp, p->data, r * p->local_cols), stream,
                                              r * p->cols + global, count, deviation, value));
        } else {
            PAR__TP_TRY(tp->kernels->init(tp, par__tp_element(tp, p->data, first * p->cols), stream,
                                          global * p->cols, count * p->cols, deviation, value));
        }
    return PAR_OK;
}
par_result par_tp_init(par_tp *tp, par_tp_parameter *p, uint64_t stream, float standard_deviation) {
    if (!(standard_deviation > 0)) return PAR__TP_FAIL("par_tp_init: the deviation must be positive");
    PAR__TP_TRY(par__tp_check_parameter(tp, "par_tp_init", "the parameter", p));
    return par__tp_fill_shard(tp, p, stream, standard_deviation, 0);
}
par_result par_tp_fill(par_tp *tp, par_tp_parameter *p, float value) {
    PAR__TP_TRY(par__tp_check_parameter(tp, "par_tp_fill", "the parameter", p));
    return par__tp_fill_shard(tp, p, 0, 0, value);
}

static par_result par__tp_check_gradient(const par_tp *tp, const char *call, const par_tp_parameter *p) {
    if (p->grad || p->frozen) return PAR_OK;
    return PAR__TP_FAIL(
        "%s: %s: grad is NULL: give it memory (par_zero.h does so from par_zero_backward_begin to "
        "_end), or set frozen if it is not trained",
        call, p->name);
}
static par_result par__tp_check_trained(const par_tp *tp, const char *call, const par_tp_parameter *weight,
                                        int has_bias, const par_tp_parameter *bias) {
    PAR__TP_CHECK(gradient, weight);
    return has_bias ? par__tp_check_gradient(tp, call, bias) : PAR_OK;
}
// Gradients that this context completes itself: what this rank can find out.
static par_result par__tp_check_own_gradients(const par_tp *tp, const char *call,
                                              par_tp_parameter *const *parameters, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (parameters[i]->owned)
            return PAR__TP_FAIL(
                "%s: %s belongs to a par_zero, which sums its gradient and computes the norm by "
                "itself: do not call this for it",
                call, parameters[i]->name);
        PAR__TP_CHECK(gradient, parameters[i]);
    }
    return PAR_OK;
}
// Collective over tp, so that all ranks hear of a mistake. A device's host, which waits for nobody, hears of
// its own ones.
static par_result par__tp_check_gradients(const par_tp *tp, const char *call,
                                          par_tp_parameter *const *parameters, size_t count) {
    const par_result mine = par__tp_check_own_gradients(tp, call, parameters, count);
    int worst = (int)mine;
    if (tp->device == par_cpu())
        PAR__TP_TRY(par_all_reduce(&worst, &worst, 1, PAR_I32, PAR_MAX, tp->desc.tp));
    return mine || !worst ? mine
                          : PAR__TP_FAIL("%s: it failed on another rank of tp; its text says why", call);
}
// Sums gradients over one comm, because a group of calls belongs to one comm.
static par_result par__tp_finalize_over(par_tp *tp, par_tp_parameter *const *parameters, size_t count,
                                        par_comm *comm) {
    par_partial_sum sums[PAR_MAX_SUMS];
    par_result r = par_group_begin(comm);
    for (size_t i = 0; i < count && !r; i++) {
        const par_tp_parameter *p = parameters[i];
        par__tp_sums_of(tp, p, sums);
        for (int j = 0; j < PAR_MAX_SUMS && p->grad && !r; j++) {
            float *g = p->grad + sums[j].first;
            if (sums[j].comm == comm) r = par_all_reduce(g, g, sums[j].count, PAR_F32, sums[j].op, comm);
        }
    }
    const par_result ended = par_group_end(comm);
    return r ? r : ended;
}
par_result par_tp_finalize_gradients(par_tp *tp, par_tp_parameter *const *parameters, size_t count) {
    PAR__TP_TRY(par__tp_check_gradients(tp, "par_tp_finalize_gradients", parameters, count));
    if (tp->t == 1) return PAR_OK;
    PAR__TP_TRY(par__tp_finalize_over(tp, parameters, count, tp->desc.tp));
    for (int i = 0; i < 4 && tp->replicas[i].count; i++)
        PAR__TP_TRY(par__tp_finalize_over(tp, parameters, count, tp->replicas[i].comm));
    return PAR_OK;
}
par_result par_tp_global_norm(par_tp *tp, par_tp_parameter *const *parameters, size_t count, double *norm) {
    double *squares = (double *)par_tp_scratch(tp, PAR__TP_SQUARE_SUM, sizeof *squares), sum;
    if (!squares) return PAR_ERR_MEMORY;
    PAR__TP_TRY(par__tp_check_gradients(tp, "par_tp_global_norm", parameters, count));
    PAR__TP_TRY(tp->device->fill(tp->device, squares, 0, sizeof *squares, NULL));
    for (size_t i = 0; i < count; i++) {
        const par_tp_parameter *p = parameters[i];
        size_t first, global, n;
        int replicas;
        for (int j = 0; p->grad && par_tp_shard(tp, p, j, &first, &global, &n, &replicas); j++) {
            if (tp->tp_rank % replicas) continue; // another rank counts it
            const size_t row_length = p->split == PAR_TP_SPLIT_COLS ? p->rows : p->cols;
            PAR__TP_TRY(tp->kernels->square_sum(tp, p->grad + first * row_length, n * row_length, squares));
        }
    }
    PAR__TP_TRY(tp->device->copy(tp->device, &sum, squares, sizeof sum, NULL));
    PAR__TP_TRY(tp->device->stream_sync(tp->device, NULL));
    PAR__TP_TRY(par_all_reduce(&sum, &sum, 1, PAR_F64, PAR_SUM, tp->desc.tp));
    return *norm = sqrt(sum), PAR_OK;
}

// >>tp_linear -----------------------------------------------------------------------------------------------
//
//     column     rank i:  Y_i = X W_i^T + b_i     back:  dX = sum of dY_i W_i,   dW_i = dY_i^T X
//     row        rank i:  Y = sum of X_i W_i^T + b        dX_i = dY W_i,          dW_i = dY^T X_i
// With sequence parallelism X and dY are all-gathered and the sums reduce-scattered along the tokens.

// What a parameter is called, and how it begins.
static void par__tp_set_initial(par_tp_parameter *p, const char *layer, const char *of, float deviation,
                                float value) {
    snprintf(p->name, sizeof p->name, "%s%s%s", layer ? layer : "", layer && *layer ? "." : "", of);
    p->deviation = deviation;
    p->value = value;
}
static float par__tp_deviation(float asked) { return asked > 0 ? asked : 0.02f; }

// Products by a recipe. An operand belongs to x, to the weights or to the gradient dy:
//     Y = X W^T     A = X      B = W         dX = dY W     A = dY     B = W^T
//     dW = dY^T X   A = dY^T   B = X^T
typedef enum par__tp_role { PAR__TP_ROLE_X, PAR__TP_ROLE_W, PAR__TP_ROLE_DY } par__tp_role;
enum { // products, the first two numbered as par_tp_fused has them; the last two are also flags
    PAR__TP_FORWARD = PAR_TP_FUSED_GELU,
    PAR__TP_DGRAD = PAR_TP_FUSED_GELU_BACKWARD,
    PAR__TP_WGRAD = 2
};

// Describes an operand and takes memory for it, whatever the recipe: amax, scales and codes, one after the
// other.
static par_result par__tp_open_operand(par_tp *tp, const par_tp_linear *l, int product, par__tp_role role,
                                       size_t rows, size_t cols, int slot, par_tp_operand *q) {
    const par__tp_recipe *recipe = par__tp_recipe_of(l->recipe);
    const par__tp_scaled_layer *layer = l->scaled;
    memset(q, 0, sizeof *q);
    q->code = role == PAR__TP_ROLE_DY ? recipe->gradients : recipe->code;
    q->scale = recipe->scale;
    q->block_rows = role == PAR__TP_ROLE_W ? recipe->weight_rows : recipe->rows;
    q->block_cols = recipe->cols;
    q->hadamard = (recipe->flags & PAR_TP_HADAMARD) && product == PAR__TP_WGRAD;
    q->random = (recipe->flags & PAR_TP_ROUNDS_AT_RANDOM) && role == PAR__TP_ROLE_DY;
    const uint64_t steps = tp->dropout_offset ? 0 : layer->steps; // else the offset tells them apart
    q->stream = UINT64_C(0x8000000000000000) | steps << 24 | layer->number << 2 | (uint64_t)product;
    q->rows = rows;
    q->cols = cols;
    q->ld = (cols + 127) / 128 * 128;
    q->history = layer->history ? layer->history + (size_t)role * PAR__TP_HISTORY : NULL;
    // Backward multiplies the same x and weights again. A forward without one (evaluation) changes nothing.
    q->observed = q->history && product != PAR__TP_FORWARD;
    const size_t amax = ((rows + 1) * sizeof(float) + 255) / 256 * 256,
                 scales = (par__tp_scale_bytes(q) + 255) / 256 * 256;
    char *memory = (char *)par_tp_scratch(tp, slot, amax + scales + rows * q->ld);
    if (!memory) return PAR_ERR_MEMORY;
    q->amax = (float *)(void *)memory;
    q->scales = memory + amax;
    q->codes = memory + amax + scales;
    return PAR_OK;
}
static par_result par__tp_open_recipe(par_tp *tp, par_tp_linear *l, const char *call) {
    const size_t floats = 3 * PAR__TP_HISTORY, m = l->weight.local_rows, n = l->weight.local_cols;
    par__tp_scaled_layer *x;
    void *memory = NULL;
    l->scaled = NULL;
    if (!l->recipe) return PAR_OK;
    const char *name = par_tp_recipe_name(l->recipe);
    if ((unsigned)l->recipe >= PAR_TP_RECIPE_COUNT)
        return PAR__TP_FAIL("%s: recipe is %d, but there are %d: see PAR_TP_RECIPES", call, (int)l->recipe,
                            (int)PAR_TP_RECIPE_COUNT);
    if (tp->desc.canonical_leaves && tp->t * tp->c > 1)
        return PAR__TP_FAIL(
            "%s: the recipe %s takes scales from what each rank has: with canonical_leaves and "
            "%d ranks of tp x cp leave it out",
            call, name, tp->t * tp->c);
    if (!tp->kernels->quantize || !tp->kernels->gemm_codes || !tp->kernels->roll_amax)
        return par_fail(tp->desc.tp, PAR_ERR_UNSUPPORTED,
                        "%s: the kernels \"%s\" multiply no codes: leave out the recipe %s", call,
                        tp->kernels->name, name);
    if (m % 16 || n % 16)
        return PAR__TP_FAIL("%s: this rank has %zu x %zu of the weight, but the recipe %s wants multiples of "
                            "16: take other sizes, or fewer ranks of tp",
                            call, m, n, name);
    x = (par__tp_scaled_layer *)PAR_MALLOC(sizeof *x);
    if (!x) return par_fail(tp->desc.tp, PAR_ERR_MEMORY, "%s: out of memory", call);
    memset(x, 0, sizeof *x);
    x->number = tp->scaled ? tp->scaled->number + 1 : 0;
    x->next = tp->scaled;
    tp->scaled = l->scaled = x;
    if (!(par__tp_recipe_of(l->recipe)->flags & PAR_TP_HAS_HISTORY)) return PAR_OK;
    if (tp->kernels->alloc(tp, floats * sizeof(float), &memory))
        return par_fail(tp->desc.tp, PAR_ERR_MEMORY, "%s: no memory for the history of amax", call);
    x->history = (float *)memory;
    return tp->kernels->set(tp, x->history, floats, 0);
}
static void par__tp_close_recipes(par_tp *tp) {
    while (tp->scaled) {
        par__tp_scaled_layer *x = tp->scaled;
        tp->scaled = x->next;
        if (x->history) tp->kernels->free(tp, x->history);
        PAR_FREE(x);
    }
}
par_result par_tp_update_scales(par_tp *tp) {
    for (par__tp_scaled_layer *x = tp->scaled; x; x = x->next) {
        x->steps++;
        if (x->history) PAR__TP_TRY(tp->kernels->roll_amax(tp, x->history, 3));
    }
    return PAR_OK;
}

par_result par_tp_linear_open(par_tp *tp, par_tp_linear *l) {
    par__tp_set_layer_name(tp, l->name);
    static const char *const call = "par_tp_linear_open";
    const par_tp_split split = l->row_parallel     ? PAR_TP_SPLIT_COLS
                               : l->vocab_parallel ? PAR_TP_SPLIT_VOCABULARY
                                                   : PAR_TP_SPLIT_ROWS;
    if (!l->in || !l->out) return PAR__TP_FAIL("%s: in and out must not be 0", call);
    if (l->row_parallel && (l->segment_count || l->gather_output || l->vocab_parallel))
        return PAR__TP_FAIL("%s: segments, gather and vocabulary are for column-parallel layers", call);
    if (l->vocab_parallel && l->segment_count) return PAR__TP_FAIL("%s: a vocabulary has no segments", call);
    PAR__TP_TRY(
        par__tp_open_parameter(tp, call, &l->weight, l->out, l->in, split, l->segments, l->segment_count, 0));
    par__tp_set_initial(&l->weight, l->name, "weight", par__tp_deviation(l->deviation), 0);
    l->weight.use_adamw = l->vocab_parallel;
    PAR__TP_TRY(par__tp_open_recipe(tp, l, call));
    if (!l->has_bias) return memset(&l->bias, 0, sizeof l->bias), PAR_OK;
    if (l->row_parallel)
        PAR__TP_TRY(par__tp_open_parameter(tp, call, &l->bias, l->out, 1, PAR_TP_SPLIT_NONE, NULL, 0,
                                           par__tp_sums_own_rows(tp)));
    else
        PAR__TP_TRY(
            par__tp_open_parameter(tp, call, &l->bias, l->out, 1, split, l->segments, l->segment_count, 0));
    par__tp_set_initial(&l->bias, l->name, "bias", 0, 0);
    return PAR_OK;
}

static size_t par__tp_rank_cols(const par_tp *tp, const par_tp_linear *l, int rank) {
    size_t first, global, count, sum = 0;
    int replicas;
    for (int i = 0; par__tp_shard_of(tp->t, rank, &l->weight, i, &first, &global, &count, &replicas); i++)
        sum += count;
    return sum;
}
// Copies between the whole output, R x out, and a dense block of rank `rank`'s columns: to the block or from
// it.
static par_result par__tp_copy_cols(par_tp *tp, const par_tp_linear *l, int rank, void *whole, void *block,
                                    size_t rows, int to_block) {
    const size_t e = par_tp_element_bytes(tp), whole_ld = l->out * e, ld = par__tp_rank_cols(tp, l, rank) * e;
    size_t first, global, count;
    int replicas;
    for (int i = 0; par__tp_shard_of(tp->t, rank, &l->weight, i, &first, &global, &count, &replicas); i++) {
        char *a = (char *)whole + global * e, *b = (char *)block + first * e;
        PAR__TP_TRY(to_block ? tp->kernels->copy(tp, b, ld, a, whole_ld, rows, count * e)
                             : tp->kernels->copy(tp, a, whole_ld, b, ld, rows, count * e));
    }
    return PAR_OK;
}
static size_t par__tp_col_counts(const par_tp *tp, const par_tp_linear *l, size_t rows, size_t *counts) {
    size_t sum = 0;
    for (int q = 0; q < tp->t; q++) sum += counts[q] = rows * par__tp_rank_cols(tp, l, q);
    return sum;
}
static par_result par__tp_all_gather_cols(par_tp *tp, const par_tp_linear *l, const void *mine, size_t rows,
                                          void *whole) {
    size_t counts[PAR__TP_MAX_RANKS], at = 0;
    const size_t e = par_tp_element_bytes(tp), sum = par__tp_col_counts(tp, l, rows, counts);
    char *packed = (char *)par_tp_scratch(tp, PAR__TP_PACK_RECV, sum * e);
    if (!packed) return PAR_ERR_MEMORY;
    PAR__TP_TRY(par_all_gatherv(mine, packed, counts, NULL, par_tp_dtype(tp), tp->desc.tp));
    for (int q = 0; q < tp->t; at += counts[q++] * e)
        PAR__TP_TRY(par__tp_copy_cols(tp, l, q, whole, packed + at, rows, 0));
    return PAR_OK;
}
// The gradient of this rank's columns. Of a gathered output they are copied out of dy if dy is REPLICATED,
// and reduce-scattered if dy is PARTIAL.
static par_result par__tp_local_cols(par_tp *tp, const par_tp_linear *l, const par_tp_matrix *dy,
                                     const void **mine) {
    const size_t e = par_tp_element_bytes(tp), own = dy->rows * l->weight.local_rows;
    size_t counts[PAR__TP_MAX_RANKS], at = 0;
    *mine = dy->data;
    if (!l->gather_output) return PAR_OK;
    char *block = (char *)par_tp_scratch(tp, PAR__TP_PACK_SEND, own * e);
    if (!block) return PAR_ERR_MEMORY;
    *mine = block;
    if (dy->layout == PAR_TP_REPLICATED)
        return par__tp_copy_cols(tp, l, tp->tp_rank, dy->data, block, dy->rows, 1);
    const size_t sum = par__tp_col_counts(tp, l, dy->rows, counts);
    char *packed = (char *)par_tp_scratch(tp, PAR__TP_PACK_RECV, sum * e);
    if (!packed) return PAR_ERR_MEMORY;
    for (int q = 0; q < tp->t; at += counts[q++] * e)
        PAR__TP_TRY(par__tp_copy_cols(tp, l, q, dy->data, packed + at, dy->rows, 1));
    return par_reduce_scatterv(packed, block, counts, par_tp_dtype(tp), par__tp_op(tp), tp->desc.tp);
}

// One of a layer's three products, C = op(A) op(B) + beta C: how it is multiplied, and what follows.
typedef struct par__tp_product {
    const par_tp_linear *layer; // its recipe, and the segments of its sums by leaves
    int what;                   // PAR__TP_FORWARD ...
    const void *a, *b, *bias;   // bias: or NULL
    void *c, *other; // other: NULL; GELU(C); the input of the GELU whose gradient C is; sums of op(A)
    size_t n, k, lda, ldb, ldc; // columns of C, terms of its sums
    float beta;
    par_dtype c_type;
    par__tp_pieces pieces;  // of the rows of C
    int a_packed, c_packed; // A is what a gather packed; C is a reduction's `partial`
} par__tp_product;
// Y = X W^T or dX = dY W, with rows of A and C that are as long as what is multiplied of them.
static par__tp_product par__tp_product_of(const par_tp_linear *l, int what, const void *a, void *c,
                                          par_dtype c_type, const par__tp_pieces *pieces) {
    const size_t rows = l->weight.local_rows, cols = l->weight.local_cols;
    par__tp_product p;
    memset(&p, 0, sizeof p);
    p.layer = l;
    p.what = what;
    p.a = a;
    p.b = l->weight.data;
    p.c = c;
    p.n = p.ldc = what == PAR__TP_FORWARD ? rows : cols;
    p.k = p.lda = what == PAR__TP_FORWARD ? cols : rows;
    p.ldb = cols;
    p.c_type = c_type;
    p.pieces = *pieces;
    return p;
}
// Where the sum is over features that are split over tp: one leaf of it, segment after segment.
static par_result par__tp_multiply_leaf(par_tp *tp, const par__tp_product *p, size_t leaf, size_t rows,
                                        const void *a, float *sum) {
    const par_tp_parameter *w = &p->layer->weight;
    const int dgrad = p->what == PAR__TP_DGRAD;
    size_t first, global, count;
    int replicas;
    for (int i = 0; par_tp_shard(tp, w, i, &first, &global, &count, &replicas); i++) {
        const size_t n = w->segment_count ? w->segments[i].count : dgrad ? w->rows : w->cols;
        const size_t at = first + par__tp_leaf_at(tp, n, leaf);
        PAR__TP_TRY(tp->kernels->gemm(tp, 0, !dgrad, rows, p->n,
                                      first + par__tp_leaf_at(tp, n, leaf + 1) - at,
                                      par__tp_const_element(tp, a, at), p->lda,
                                      par__tp_const_element(tp, p->b, dgrad ? at * p->ldb : at), p->ldb,
                                      i > 0, sum, PAR_F32, p->ldc, NULL));
    }
    return PAR_OK;
}
// All of this rank's leaves, of some rows at a time, so that their sums stay in the caches.
static par_result par__tp_multiply_leaves(par_tp *tp, const par__tp_product *p, size_t rows) {
    const size_t leaves = par__tp_own_leaves(tp), some = PAR__TP_LEAF_ROWS;
    for (size_t r = 0; r < rows; r += some) {
        const size_t n = PAR__MIN(some, rows - r);
        par__tp_tree tree;
        PAR__TP_TRY(par__tp_tree_open(tp, &tree, (float *)p->c + r * p->ldc, n * p->ldc, leaves));
        for (size_t i = 0; i < leaves; i++) {
            PAR__TP_TRY(par__tp_multiply_leaf(tp, p, i, n, par__tp_const_element(tp, p->a, r * p->lda),
                                              tree.sums[tree.used]));
            PAR__TP_TRY(par__tp_tree_push(tp, &tree));
        }
    }
    return PAR_OK;
}
// By the layer's recipe. The roles of A and B are those of the product.
static par_result par__tp_multiply_codes(par_tp *tp, const par__tp_product *p, size_t rows) {
    const int wgrad = p->what == PAR__TP_WGRAD, forward = p->what == PAR__TP_FORWARD;
    par_tp_operand x, y;
    PAR__TP_TRY(par__tp_open_operand(tp, p->layer, p->what, forward ? PAR__TP_ROLE_X : PAR__TP_ROLE_DY, rows,
                                     p->k, PAR__TP_CODES_A, &x));
    PAR__TP_TRY(par__tp_open_operand(tp, p->layer, p->what, wgrad ? PAR__TP_ROLE_X : PAR__TP_ROLE_W, p->n,
                                     p->k, PAR__TP_CODES_B, &y));
    PAR__TP_TRY(tp->kernels->quantize(tp, &x, p->a, p->lda, wgrad));
    PAR__TP_TRY(tp->kernels->quantize(tp, &y, p->b, p->ldb, !forward));
    return tp->kernels->gemm_codes(tp, &x, &y, p->beta, p->c, p->c_type, p->ldc, p->bias);
}
// What follows a product where its kernel does not do it.
static par_result par__tp_follow(par_tp *tp, const par__tp_product *p, size_t rows) {
    if (p->what == PAR__TP_WGRAD)
        return tp->kernels->sum_rows(tp, (float *)p->other, p->a, p->lda, p->k, rows);
    return p->what == PAR__TP_DGRAD
               ? tp->kernels->elementwise(tp, PAR_TP_GELU_BACKWARD, rows, p->n, p->c, NULL, p->ldc, p->c,
                                          p->ldc, p->other, NULL, p->ldc)
               : tp->kernels->elementwise(tp, PAR_TP_GELU, rows, p->n, p->other, NULL, p->ldc, p->c, p->ldc,
                                          NULL, NULL, 0);
}
// Multiplies piece j: from here to the kernel. Its blocks are one product of each, or one kernel's.
static par_result par__tp_multiply(par_tp *tp, const par__tp_product *p, size_t j) {
    const par_tp_kernels *const k = tp->kernels;
    const par__tp_pieces *const s = &p->pieces;
    const int whole = s->count == 1, wgrad = p->what == PAR__TP_WGRAD, trans_b = p->what == PAR__TP_FORWARD;
    const size_t at = par__tp_piece_at(s, j), blocks = whole ? 1 : s->blocks;
    const size_t rows = whole ? s->blocks * s->block_rows : par__tp_piece_rows(s, j);
    const size_t a_step = p->a_packed ? rows : s->block_rows, c_step = p->c_packed ? rows : s->block_rows;
    const size_t a_first = p->a_packed ? blocks * at : at, c_first = p->c_packed ? blocks * at : at;
    const int recipe = p->layer->recipe && rows && p->n && p->k, row_parallel = p->layer->row_parallel;
    const int leaves = tp->desc.canonical_leaves && !p->layer->recipe && !wgrad && trans_b == !!row_parallel;
    const int as_one = blocks > 1 && k->gemm_blocks && !leaves && !p->other;
    const int fuse = p->other && !wgrad && k->gemm_fused && !p->layer->recipe && rows && p->n && p->k;
    par_result r = PAR_OK;
    if (p->what != PAR__TP_FORWARD) par_trace_begin(tp->desc.tp, wgrad ? "wgrad" : "dgrad");
    for (size_t b = 0; b < (as_one ? 1 : blocks) && !r; b++) {
        const size_t to = (c_first + b * c_step) * p->ldc * par_dtype_bytes(p->c_type);
        par__tp_product m = *p;
        int done = 0;
        m.a = par__tp_const_element(tp, p->a, (a_first + b * a_step) * p->lda);
        m.c = (char *)p->c + to;
        if (p->other && !wgrad) m.other = (char *)p->other + to;
        if (fuse)
            r = k->gemm_fused(tp, (par_tp_fused)m.what, rows, m.n, m.k, m.a, m.lda, m.b, m.ldb, m.c, m.ldc,
                              m.bias, m.other, &done);
        if (r || done) continue;
        if (as_one)
            r = k->gemm_blocks(tp, trans_b, blocks, rows, m.n, m.k, m.a, a_step * m.lda, m.lda, m.b, m.ldb,
                               m.c, c_step * m.ldc, m.c_type, m.ldc, m.bias);
        else if (leaves)
            r = par__tp_multiply_leaves(tp, &m, rows);
        else if (recipe)
            r = par__tp_multiply_codes(tp, &m, rows);
        else
            r = k->gemm(tp, wgrad, trans_b, rows, m.n, m.k, m.a, m.lda, m.b, m.ldb, m.beta, m.c, m.c_type,
                        m.ldc, m.bias);
        if (!r && m.other) r = par__tp_follow(tp, &m, rows);
    }
    if (p->what != PAR__TP_FORWARD) par_trace_end(tp->desc.tp);
    return r;
}
// gelu NULL, or for a column-parallel layer whose output is not gathered: y's GELU.
static par_result par__tp_linear_gelu(par_tp *tp, const par_tp_linear *l, const par_tp_matrix *x,
                                      par_tp_matrix *gathered, par_tp_matrix *y, par_tp_matrix *gelu) {
    static const char *const call = "par_tp_linear_forward";
    const par_tp_layout layout = l->gather_output    ? PAR_TP_REPLICATED
                                 : l->vocab_parallel ? PAR_TP_VOCABULARY
                                                     : PAR_TP_HIDDEN;
    const int row = l->row_parallel, alone = tp->t == 1 && !tp->desc.canonical_leaves;
    const size_t n = l->weight.local_rows, k = l->weight.local_cols, rows = par__tp_full_rows(tp, x);
    par__tp_gather g;
    par__tp_reduction s;
    memset(&g, 0, sizeof g);
    par__tp_set_layer_name(tp, l->name);
    PAR__TP_CHECK(weight_and_bias, &l->weight, l->has_bias, &l->bias);
    PAR__TP_CHECK(output, "y", y, x ? x->rows : 0);
    if (gelu) PAR__TP_CHECK(output, "gelu(y)", gelu, x ? x->rows : 0);
    PAR__TP_CHECK(matrix, "x", x, 1u << (row ? PAR_TP_HIDDEN : par__tp_token_layout(tp)), k);
    void *mine = l->gather_output ? par_tp_scratch(tp, PAR__TP_PACK_SEND, rows * n * par_tp_element_bytes(tp))
                                  : y->data;
    if (!mine && rows) return PAR_ERR_MEMORY;
    if (row)
        PAR__TP_TRY(par__tp_reduction_open(tp, l, &s, rows, n, y));
    else
        PAR__TP_TRY(par__tp_gather_begin(tp, l, PAR__TP_GATHERED, x, gathered ? gathered->data : NULL,
                                         !gathered, gelu != NULL, &g));
    par__tp_product m =
        row ? par__tp_product_of(l, PAR__TP_FORWARD, x->data, s.partial, s.type, &s.pieces)
            : par__tp_product_of(l, PAR__TP_FORWARD, g.all, mine, par_tp_dtype(tp), &g.pieces);
    if (l->has_bias && (!row || alone)) m.bias = l->bias.data; // else once, after the sum
    m.other = gelu ? gelu->data : NULL;
    m.ldc = row ? n : par_tp_ld(layout, n);
    m.a_packed = g.packed;
    m.c_packed = row;
    par_result r = PAR_OK;
    for (size_t j = 0; j < m.pieces.count && !r; j++) {
        r = par_wait(&g.requests[j]);
        if (!r) r = par__tp_multiply(tp, &m, j);
        if (!r && row) r = par__tp_reduction_begin(tp, &s, j);
    }
    const par_result ended = row ? par__tp_reduction_end(tp, &s, y) : par__tp_gather_end(&g);
    if (r || ended) return r ? r : ended;
    if (row && l->has_bias && !m.bias)
        return tp->kernels->add_bias(tp, y->data, y->cols, l->bias.data, y->rows, y->cols);
    if (row) return PAR_OK;
    if (gathered) par__tp_set_shape(gathered, rows, k, PAR_TP_REPLICATED);
    if (gelu) par__tp_set_shape(gelu, rows, n, layout);
    if (l->gather_output) PAR__TP_TRY(par__tp_all_gather_cols(tp, l, mine, rows, y->data));
    return par__tp_set_shape(y, rows, l->gather_output ? l->out : n, layout), PAR_OK;
}
par_result par_tp_linear_forward(par_tp *tp, const par_tp_linear *l, const par_tp_matrix *x,
                                 par_tp_matrix *gathered, par_tp_matrix *y) {
    return par__tp_linear_gelu(tp, l, x, gathered, y, NULL);
}

// The gradients of the weight, and if `bias` of the bias, from these rows. Canonical: each rank of cp
// computes some output features, from the rows of all.
static par_result par__tp_wgrad(par_tp *tp, par_tp_linear *l, const void *dy, size_t ld, const void *x,
                                size_t rows, int bias) {
    const size_t n = l->weight.local_cols, e = par_tp_element_bytes(tp);
    size_t m = l->weight.local_rows, first = 0;
    if (par__tp_gathers_cp(tp)) {
        const size_t c = (size_t)tp->c, q = (size_t)tp->cp_rank;
        PAR__TP_TRY(par__tp_gather_tokens(tp, PAR__TP_DKV, dy, ld * e, rows, m * e, 0, &dy));
        PAR__TP_TRY(par__tp_gather_tokens(tp, PAR__TP_DKV_NEXT, x, n * e, rows, n * e, 0, &x));
        ld = m;
        first = par__tp_split_at(ld, c, q);
        m = par__tp_split_at(ld, c, q + 1) - first;
        rows *= c;
    }
    dy = par__tp_const_element(tp, dy, first);
    float *sums = bias && l->has_bias && l->bias.grad ? l->bias.grad + first : NULL;
    if (!l->weight.grad) return sums ? tp->kernels->sum_rows(tp, sums, dy, ld, rows, m) : PAR_OK;
    const par__tp_pieces one = {1, m, 1};
    par__tp_product p = par__tp_product_of(l, PAR__TP_WGRAD, dy, l->weight.grad + first * n, PAR_F32, &one);
    p.b = x;
    p.k = rows;
    p.lda = ld;
    p.beta = 1;
    p.other = sums;
    return par__tp_multiply(tp, &p, 0);
}
static par_result par__tp_check_backward(const par_tp *tp, const par_tp_linear *l, const par_tp_matrix *dy,
                                         const par_tp_matrix *x, const par_tp_matrix *dx, int grads) {
    static const char *const call = "par_tp_linear_backward";
    const unsigned hidden = PAR__TP_IN(HIDDEN),
                   tokens = (1u << par__tp_token_layout(tp)) | PAR__TP_IN(REPLICATED);
    const unsigned out = l->row_parallel     ? tokens
                         : l->gather_output  ? PAR__TP_IN(REPLICATED) | PAR__TP_IN(PARTIAL)
                         : l->vocab_parallel ? PAR__TP_IN(VOCABULARY)
                                             : hidden;
    if (grads & PAR__TP_DGRAD) {
        PAR__TP_CHECK(parameter, "weight", &l->weight);
        PAR__TP_CHECK(output, "dx", dx, dy ? dy->rows : 0);
    }
    PAR__TP_CHECK(matrix, "dy", dy, out, l->gather_output ? l->out : l->weight.local_rows);
    if (!(grads & PAR__TP_WGRAD)) return PAR_OK;
    PAR__TP_CHECK(trained, &l->weight, l->has_bias, &l->bias);
    PAR__TP_CHECK(matrix, "x", x, l->row_parallel ? hidden : tokens, l->weight.local_cols);
    return par__tp_check_rows(tp, call, par__tp_full_rows(tp, x), par__tp_full_rows(tp, dy));
}
// gelu_input NULL, or the matrix of which the input of a row-parallel layer, x, is the GELU; then dx is its
// gradient. Of both gradients a gather is beside the first product: of x, or of dy; a sum of dx beside the
// second one. Of one gradient they are split in pieces.
static par_result par__tp_linear_gradients(par_tp *tp, par_tp_linear *l, const par_tp_matrix *dy,
                                           const par_tp_matrix *x, const par_tp_matrix *gelu_input,
                                           par_tp_matrix *dx, int grads) {
    const int row = l->row_parallel, wgrad = grads & PAR__TP_WGRAD;
    const int own_rows = row && tp->t > 1 && par__tp_sums_own_rows(tp);
    const size_t n = l->weight.local_cols, k = l->weight.local_rows, rows = par__tp_full_rows(tp, dy);
    const size_t ld = l->vocab_parallel && !l->gather_output ? par_tp_ld(PAR_TP_VOCABULARY, k) : k;
    const void *grad = NULL; // column-parallel: of this rank's columns
    par__tp_gather g;
    par__tp_reduction s;
    memset(&g, 0, sizeof g);
    memset(&s, 0, sizeof s);
    par__tp_set_layer_name(tp, l->name);
    PAR__TP_TRY(par__tp_check_backward(tp, l, dy, x, dx, grads));
    if (!row) PAR__TP_TRY(par__tp_local_cols(tp, l, dy, &grad));
    if (row)
        PAR__TP_TRY(
            par__tp_gather_begin(tp, l, PAR__TP_GATHERED_GRAD, dy, NULL, !wgrad, gelu_input != NULL, &g));
    else if (wgrad)
        PAR__TP_TRY(par__tp_all_gather_begin(tp, PAR__TP_GATHERED, x, NULL, &g.all, &g.requests[0]));
    par_result r = PAR_OK;
    if (own_rows && wgrad && l->has_bias && l->bias.grad) { // beside the gather
        const int whole = dy->layout == PAR_TP_REPLICATED;
        const size_t own = rows / (size_t)tp->t, skip = whole ? own * (size_t)tp->tp_rank * k : 0;
        r = tp->kernels->sum_rows(tp, l->bias.grad, par__tp_const_element(tp, dy->data, skip), k, own, k);
    }
    if (grads & PAR__TP_DGRAD) {
        if (row)
            par__tp_set_shape(dx, rows, n, PAR_TP_HIDDEN);
        else
            r = par__tp_reduction_open(tp, l, &s, rows, n, dx);
        if (wgrad) s.pieces = par__tp_one_piece(&s.pieces);
        par__tp_product m =
            row ? par__tp_product_of(l, PAR__TP_DGRAD, g.all, dx->data, par_tp_dtype(tp), &g.pieces)
                : par__tp_product_of(l, PAR__TP_DGRAD, grad, s.partial, s.type, &s.pieces);
        m.other = row && gelu_input ? gelu_input->data : NULL;
        m.lda = ld;
        m.a_packed = g.packed;
        m.c_packed = !row;
        for (size_t j = 0; j < m.pieces.count && !r; j++) {
            if (row) r = par_wait(&g.requests[j]);
            if (!r) r = par__tp_multiply(tp, &m, j);
            if (!r && !row) r = par__tp_reduction_begin(tp, &s, j);
        }
    }
    const par_result gathered = par__tp_gather_end(&g); // also after an error: no request stays in flight
    if (!r) r = gathered;
    if (!r && wgrad) r = par__tp_wgrad(tp, l, row ? g.all : grad, ld, row ? x->data : g.all, rows, !own_rows);
    const par_result summed = par__tp_reduction_end(tp, &s, dx);
    return r ? r : summed;
}
par_result par_tp_linear_backward(par_tp *tp, par_tp_linear *l, const par_tp_matrix *dy,
                                  const par_tp_matrix *x, par_tp_matrix *dx) {
    return par__tp_linear_gradients(tp, l, dy, x, NULL, dx, PAR__TP_WGRAD | (dx ? PAR__TP_DGRAD : 0));
}
par_result par_tp_linear_backward_input(par_tp *tp, par_tp_linear *l, const par_tp_matrix *dy,
                                        par_tp_matrix *dx) {
    return par__tp_linear_gradients(tp, l, dy, NULL, NULL, dx, PAR__TP_DGRAD);
}
par_result par_tp_linear_backward_weight(par_tp *tp, par_tp_linear *l, const par_tp_matrix *dy,
                                         const par_tp_matrix *x) {
    return par__tp_linear_gradients(tp, l, dy, x, NULL, NULL, PAR__TP_WGRAD);
}

// >>tp_local ------------------------------------------------------------------------------------------------

par_result par_tp_norm_open(par_tp *tp, par_tp_norm *norm) {
    par__tp_set_layer_name(tp, norm->name);
    static const char *const call = "par_tp_norm_open";
    if (!norm->features) return PAR__TP_FAIL("%s: features must not be 0", call);
    if (norm->rms && norm->has_bias) return PAR__TP_FAIL("%s: a root mean square norm has no bias", call);
    PAR__TP_TRY(par__tp_open_parameter(tp, call, &norm->weight, norm->features, 1, PAR_TP_SPLIT_NONE, NULL, 0,
                                       tp->desc.sequence_parallel && !par__tp_gathers_cp(tp)));
    par__tp_set_initial(&norm->weight, norm->name, "weight", 0, 1);
    if (!norm->has_bias) return memset(&norm->bias, 0, sizeof norm->bias), PAR_OK;
    PAR__TP_TRY(par__tp_open_parameter(tp, call, &norm->bias, norm->features, 1, PAR_TP_SPLIT_NONE, NULL, 0,
                                       tp->desc.sequence_parallel && !par__tp_gathers_cp(tp)));
    par__tp_set_initial(&norm->bias, norm->name, "bias", 0, 0);
    return PAR_OK;
}
static par_result par__tp_norm_forward(par_tp *tp, const char *call, const par_tp_norm *norm,
                                       const par_tp_matrix *x, const par_tp_matrix *residual, float *stats,
                                       par_tp_matrix *sum, par_tp_matrix *y) {
    const unsigned layout = 1u << par__tp_token_layout(tp);
    par__tp_set_layer_name(tp, norm->name);
    PAR__TP_CHECK(matrix, "x", x, layout, norm->features);
    if (residual) {
        PAR__TP_CHECK(matrix, "residual", residual, layout, norm->features);
        PAR__TP_CHECK(rows, residual->rows, x->rows);
        PAR__TP_CHECK(output, "sum", sum, x->rows);
        par__tp_set_shape(sum, x->rows, x->cols, x->layout);
    }
    PAR__TP_CHECK(weight_and_bias, &norm->weight, norm->has_bias, &norm->bias);
    PAR__TP_CHECK(pointer, "stats", stats, x->rows);
    PAR__TP_CHECK(output, "y", y, x->rows);
    par__tp_set_shape(y, x->rows, x->cols, x->layout);
    return tp->kernels->norm_forward(tp, y->data, stats, x->data, residual ? residual->data : NULL,
                                     residual ? sum->data : NULL, norm->weight.data,
                                     norm->has_bias ? norm->bias.data : NULL, x->rows, x->cols, norm->rms,
                                     norm->epsilon > 0 ? norm->epsilon : 1e-5f);
}
par_result par_tp_norm_forward(par_tp *tp, const par_tp_norm *norm, const par_tp_matrix *x, float *stats,
                               par_tp_matrix *y) {
    return par__tp_norm_forward(tp, "par_tp_norm_forward", norm, x, NULL, stats, NULL, y);
}
par_result par_tp_add_norm_forward(par_tp *tp, const par_tp_norm *norm, const par_tp_matrix *x,
                                   const par_tp_matrix *residual, float *stats, par_tp_matrix *sum,
                                   par_tp_matrix *y) {
    return par__tp_norm_forward(tp, "par_tp_add_norm_forward", norm, x, residual, stats, sum, y);
}
// What a norm's backward reads and writes, of some rows.
typedef struct par__tp_norm_rows {
    const void *dy, *x, *residual; // residual: or NULL
    const float *stats;
    void *dx;
    size_t rows;
} par__tp_norm_rows;
static par_result par__tp_norm_rows_backward(par_tp *tp, const par_tp_norm *norm, const par__tp_norm_rows *m,
                                             float *weight_grad, float *bias_grad) {
    return tp->kernels->norm_backward(tp, m->dx, weight_grad, bias_grad, m->dy, m->x, m->residual,
                                      norm->weight.data, m->stats, m->rows, norm->features, norm->rms);
}
// Canonical: the gradients of weight and bias, side by side, are sums over the tokens by leaves.
static par_result par__tp_norm_leaves(par_tp *tp, const par_tp_norm *norm, const par__tp_norm_rows *m,
                                      size_t leaves) {
    const size_t n = norm->features;
    float *const grads[2] = {norm->weight.grad, norm->has_bias ? norm->bias.grad : NULL};
    par__tp_tree tree;
    PAR__TP_TRY(par__tp_tree_open(tp, &tree, NULL, 2 * n, leaves));
    for (size_t i = 0; i < leaves; i++) {
        const size_t row = par__tp_split_at(m->rows, leaves, i), at = row * n;
        float *leaf = tree.sums[tree.used];
        PAR__TP_TRY(tp->kernels->set(tp, leaf, 2 * n, 0));
        const par__tp_norm_rows part = {par__tp_const_element(tp, m->dy, at),
                                        par__tp_const_element(tp, m->x, at),
                                        m->residual ? par__tp_const_element(tp, m->residual, at) : NULL,
                                        m->stats + row * (norm->rms ? 1 : 2),
                                        par__tp_element(tp, m->dx, at),
                                        par__tp_split_at(m->rows, leaves, i + 1) - row};
        PAR__TP_TRY(par__tp_norm_rows_backward(tp, norm, &part, leaf, norm->has_bias ? leaf + n : NULL));
        PAR__TP_TRY(par__tp_tree_push(tp, &tree));
    }
    for (size_t i = 0; i < 2; i++) {
        const void *pair[2] = {grads[i], tree.sums[0] + i * n};
        if (grads[i])
            PAR__TP_TRY(tp->device->reduce(tp->device, grads[i], pair, 2, n, PAR_F32, PAR_SUM, NULL));
    }
    return PAR_OK;
}
// Of several ranks of cp the first one computes the gradients, from the rows of all.
static par_result par__tp_norm_canonical(par_tp *tp, const par_tp_norm *norm, const par__tp_norm_rows *m,
                                         int split) {
    const size_t bytes = norm->features * par_tp_element_bytes(tp), t = split ? (size_t)tp->t : 1,
                 leaves = (size_t)tp->desc.canonical_leaves, stats = (norm->rms ? 1 : 2) * sizeof(float);
    const void *all_stats;
    par__tp_norm_rows all = *m;
    if (!par__tp_gathers_cp(tp)) return par__tp_norm_leaves(tp, norm, m, leaves / t);
    PAR__TP_TRY(par__tp_gather_tokens(tp, PAR__TP_DKV, m->dy, bytes, m->rows, bytes, split, &all.dy));
    PAR__TP_TRY(par__tp_gather_tokens(tp, PAR__TP_DKV_NEXT, m->x, bytes, m->rows, bytes, split, &all.x));
    PAR__TP_TRY(par__tp_gather_tokens(tp, PAR__TP_DQ, m->stats, stats, m->rows, stats, split, &all_stats));
    PAR__TP_TRY(par__tp_norm_rows_backward(tp, norm, m, NULL, NULL));
    if (tp->cp_rank) return PAR_OK;
    all.stats = (const float *)all_stats;
    all.residual = NULL;
    all.rows = m->rows * t * (size_t)tp->c;
    all.dx = par_tp_scratch(tp, PAR__TP_HEADS_GRAD, all.rows * bytes);
    return all.dx ? par__tp_norm_leaves(tp, norm, &all, leaves) : PAR_ERR_MEMORY;
}
static par_result par__tp_norm_backward(par_tp *tp, const char *call, par_tp_norm *norm,
                                        const par_tp_matrix *dy, const par_tp_matrix *x, const float *stats,
                                        const par_tp_matrix *residual, par_tp_matrix *dx) {
    par__tp_set_layer_name(tp, norm->name);
    PAR__TP_CHECK(matrix, "x", x, 1u << par__tp_token_layout(tp), norm->features);
    PAR__TP_CHECK(matrix, "dy", dy, 1u << x->layout, norm->features);
    PAR__TP_CHECK(rows, dy->rows, x->rows);
    if (residual) {
        PAR__TP_CHECK(matrix, "residual", residual, 1u << x->layout, norm->features);
        PAR__TP_CHECK(rows, residual->rows, x->rows);
    }
    PAR__TP_CHECK(parameter, "weight", &norm->weight);
    PAR__TP_CHECK(pointer, "stats", stats, x->rows);
    PAR__TP_CHECK(output, "dx", dx, x->rows);
    PAR__TP_CHECK(trained, &norm->weight, norm->has_bias, &norm->bias);
    par__tp_set_shape(dx, x->rows, x->cols, x->layout);
    const par__tp_norm_rows rows = {dy->data, x->data,  residual ? residual->data : NULL,
                                    stats,    dx->data, x->rows};
    if (tp->desc.canonical_leaves)
        return par__tp_norm_canonical(tp, norm, &rows, x->layout == PAR_TP_SEQUENCE);
    return par__tp_norm_rows_backward(tp, norm, &rows, norm->weight.grad,
                                      norm->has_bias ? norm->bias.grad : NULL);
}
par_result par_tp_norm_backward(par_tp *tp, par_tp_norm *norm, const par_tp_matrix *dy,
                                const par_tp_matrix *x, const float *stats, par_tp_matrix *dx) {
    return par__tp_norm_backward(tp, "par_tp_norm_backward", norm, dy, x, stats, NULL, dx);
}
par_result par_tp_norm_backward_add(par_tp *tp, par_tp_norm *norm, const par_tp_matrix *dy,
                                    const par_tp_matrix *x, const float *stats, const par_tp_matrix *residual,
                                    par_tp_matrix *dx) {
    return par__tp_norm_backward(tp, "par_tp_norm_backward_add", norm, dy, x, stats, residual, dx);
}

#define PAR__TP_NOT_PARTIAL (~PAR__TP_IN(PARTIAL) & (PAR__TP_IN(LAYOUT_COUNT) - 1))
// z = what(x, y), all of one shape; GELU has no y.
static par_result par__tp_same_shape(par_tp *tp, const char *call, par_tp_elementwise what,
                                     const par_tp_matrix *x, const par_tp_matrix *y, unsigned layouts,
                                     par_tp_matrix *z) {
    const int binary = what != PAR_TP_GELU;
    PAR__TP_CHECK(matrix, "x", x, layouts, 0);
    if (binary) PAR__TP_CHECK(matrix, "y", y, 1u << x->layout, x->cols);
    if (binary) PAR__TP_CHECK(rows, y->rows, x->rows);
    PAR__TP_CHECK(output, binary ? "the result" : "y", z, x->rows);
    const size_t ld = par__tp_matrix_ld(x);
    par__tp_set_shape(z, x->rows, x->cols, x->layout);
    return tp->kernels->elementwise(tp, what, x->rows, x->cols, z->data, NULL, ld, x->data, ld,
                                    binary ? y->data : NULL, NULL, ld);
}
par_result par_tp_add(par_tp *tp, const par_tp_matrix *x, const par_tp_matrix *y, par_tp_matrix *z) {
    return par__tp_same_shape(tp, "par_tp_add", PAR_TP_ADD, x, y, PAR__TP_NOT_PARTIAL | PAR__TP_IN(PARTIAL),
                              z);
}
par_result par_tp_gelu_forward(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y) {
    return par__tp_same_shape(tp, "par_tp_gelu_forward", PAR_TP_GELU, x, NULL, PAR__TP_NOT_PARTIAL, y);
}
par_result par_tp_gelu_backward(par_tp *tp, const par_tp_matrix *dy, const par_tp_matrix *x,
                                par_tp_matrix *dx) {
    return par__tp_same_shape(tp, "par_tp_gelu_backward", PAR_TP_GELU_BACKWARD, dy, x, PAR__TP_NOT_PARTIAL,
                              dx);
}
par_result par_tp_swiglu_forward(par_tp *tp, const par_tp_matrix *x, par_tp_matrix *y) {
    static const char *const call = "par_tp_swiglu_forward";
    PAR__TP_CHECK(matrix, "x", x, PAR__TP_IN(HIDDEN) | PAR__TP_IN(REPLICATED), 0);
    if (x->cols % 2) return PAR__TP_FAIL("%s: x has %zu columns, but must have two halves", call, x->cols);
    const size_t n = x->cols / 2;
    PAR__TP_CHECK(output, "y", y, x->rows);
    par__tp_set_shape(y, x->rows, n, x->layout);
    return tp->kernels->elementwise(tp, PAR_TP_SWIGLU, x->rows, n, y->data, NULL, n, x->data, 2 * n,
                                    par__tp_const_element(tp, x->data, n), NULL, 2 * n);
}
par_result par_tp_swiglu_backward(par_tp *tp, const par_tp_matrix *dy, const par_tp_matrix *x,
                                  par_tp_matrix *dx) {
    static const char *const call = "par_tp_swiglu_backward";
    PAR__TP_CHECK(matrix, "dy", dy, PAR__TP_IN(HIDDEN) | PAR__TP_IN(REPLICATED), 0);
    const size_t n = dy->cols;
    PAR__TP_CHECK(matrix, "x", x, 1u << dy->layout, 2 * n);
    PAR__TP_CHECK(rows, dy->rows, x->rows);
    PAR__TP_CHECK(output, "dx", dx, x->rows);
    par__tp_set_shape(dx, x->rows, 2 * n, x->layout);
    return tp->kernels->elementwise(tp, PAR_TP_SWIGLU_BACKWARD, x->rows, n, dx->data,
                                    par__tp_element(tp, dx->data, n), 2 * n, dy->data, n, x->data,
                                    par__tp_const_element(tp, x->data, n), 2 * n);
}

par_result par_tp_dropout(par_tp *tp, const par_tp_tokens *tokens, uint64_t stream, float probability,
                          const par_tp_matrix *x, par_tp_matrix *y) {
    static const char *const call = "par_tp_dropout";
    par_tp_row_map map;
    PAR__TP_CHECK(matrix, "x", x, 1u << par__tp_token_layout(tp), 0);
    PAR__TP_TRY(par__tp_make_row_map(tp, call, tokens, x->rows, x->layout, &map));
    if (!(probability >= 0 && probability < 1))
        return PAR__TP_FAIL("%s: the probability is %g, but must be in [0, 1)", call, (double)probability);
    if (probability > 0 && tokens->position)
        return PAR__TP_FAIL("%s: tokens from position %zu on: dropout is for whole sequences", call,
                            tokens->position);
    PAR__TP_CHECK(output, "y", y, x->rows);
    par__tp_set_shape(y, x->rows, x->cols, x->layout);
    const size_t bytes = x->rows * x->cols * par_tp_element_bytes(tp);
    if (probability > 0)
        return tp->kernels->dropout(tp, y->data, x->data, x->rows, x->cols, &map, stream, probability);
    return y->data == x->data ? PAR_OK : tp->kernels->copy(tp, y->data, bytes, x->data, bytes, 1, bytes);
}
par_result par_tp_rope(par_tp *tp, const par_tp_tokens *tokens, size_t heads, size_t dim,
                       const par_tp_rotary *rotary, int backward, par_tp_matrix *x) {
    static const char *const call = "par_tp_rope";
    par_tp_row_map map;
    PAR__TP_CHECK(matrix, "x", x, PAR__TP_IN(HIDDEN) | PAR__TP_IN(REPLICATED), 0);
    PAR__TP_TRY(par__tp_make_row_map(tp, call, tokens, x->rows, x->layout, &map));
    PAR__TP_CHECK(pointer, "rotary", rotary, 1);
    if (dim % 2 || heads * dim > x->cols)
        return PAR__TP_FAIL("%s: %zu heads of %zu features (an even number) do not fit %zu columns", call,
                            heads, dim, x->cols);
    return tp->kernels->rope(tp, x->data, x->rows, x->cols, heads, dim, &map, rotary, backward);
}

// >>tp_embedding --------------------------------------------------------------------------------------------
//
// Embedding: each rank looks up the ids of its shard and writes zeros for the others; the sum over ranks is
// the embedding. Loss: for each row every rank computes over its columns the maximum m, d = sum of e^(x - m),
// the logit of the target, and the sum of the logits. After an all_gather every rank computes lse = M +
// log(sum of d e^(m - M)) with M the maximum of all m, and gets the same bits.

par_result par_tp_embedding_open(par_tp *tp, par_tp_embedding *e) {
    par__tp_set_layer_name(tp, e->name);
    static const char *const call = "par_tp_embedding_open";
    if (!e->vocabulary || !e->features)
        return PAR__TP_FAIL("%s: vocabulary and features must not be 0", call);
    PAR__TP_TRY(par__tp_open_parameter(tp, call, &e->weight, e->vocabulary, e->features,
                                       PAR_TP_SPLIT_VOCABULARY, NULL, 0, 0));
    par__tp_set_initial(&e->weight, e->name, "weight", par__tp_deviation(e->deviation), 0);
    e->weight.use_adamw = 1;
    if (!e->max_positions) return memset(&e->position_weight, 0, sizeof e->position_weight), PAR_OK;
    PAR__TP_TRY(par__tp_open_parameter(tp, call, &e->position_weight, e->max_positions, e->features,
                                       PAR_TP_SPLIT_NONE, NULL, 0, par__tp_sums_own_rows(tp)));
    par__tp_set_initial(&e->position_weight, e->name, "position", par__tp_deviation(e->deviation), 0);
    e->position_weight.use_adamw = 1;
    return PAR_OK;
}
static par_result par__tp_check_ids(const par_tp *tp, const char *call, const par_tp_embedding *e,
                                    const par_tp_tokens *tokens, const int32_t *ids, size_t rows) {
    if (tokens->position + tokens->sequence > e->max_positions && e->max_positions)
        return PAR__TP_FAIL("%s: sequences of %zu tokens, but only %zu positions", call,
                            tokens->position + tokens->sequence, e->max_positions);
    if (tp->kernels != par_tp_cpu()) return PAR_OK; // ids are in the device's memory
    for (size_t r = 0; r < rows; r++)
        if (ids[r] < 0 || (size_t)ids[r] >= e->vocabulary)
            return PAR__TP_FAIL("%s: ids[%zu] is %d, but the vocabulary has %zu", call, r, (int)ids[r],
                                e->vocabulary);
    return PAR_OK;
}
par_result par_tp_embedding_forward(par_tp *tp, const par_tp_embedding *e, const par_tp_tokens *tokens,
                                    const int32_t *ids, par_tp_matrix *y) {
    par__tp_set_layer_name(tp, e->name);
    static const char *const call = "par_tp_embedding_forward";
    PAR__TP_CHECK(pointer, "tokens", tokens, 1);
    const size_t rows = par_tp_rows(tp, tokens), h = e->features;
    size_t first, global, count;
    int replicas;
    par_tp_row_map map;
    par_tp_matrix x;
    PAR__TP_TRY(par__tp_make_row_map(tp, call, tokens, rows, PAR_TP_REPLICATED, &map));
    PAR__TP_CHECK(parameter, "weight", &e->weight);
    if (e->max_positions) PAR__TP_CHECK(parameter, "position_weight", &e->position_weight);
    PAR__TP_CHECK(pointer, "ids", ids, rows);
    PAR__TP_CHECK(output, "y", y, rows);
    PAR__TP_CHECK(ids, e, tokens, ids, rows);
    par_tp_shard(tp, &e->weight, 0, &first, &global, &count, &replicas);
    par__tp_set_shape(&x, rows, h, PAR_TP_PARTIAL);
    x.data = tp->t == 1 ? y->data : par_tp_scratch(tp, PAR__TP_PARTIAL, rows * h * sizeof(float));
    if (!x.data) return PAR_ERR_MEMORY;
    PAR__TP_TRY(tp->kernels->embed(tp, x.data, ids, rows, e->weight.data, global, count, h));
    if (tp->t == 1)
        par__tp_set_shape(y, rows, h, par__tp_token_layout(tp));
    else
        PAR__TP_TRY(tp->desc.sequence_parallel ? par_tp_reduce_scatter_rows(tp, &x, y)
                                               : par_tp_all_reduce(tp, &x, y));
    PAR__TP_TRY(par__tp_make_row_map(tp, call, tokens, y->rows, y->layout, &map));
    return e->max_positions ? tp->kernels->positions(tp, y->data, e->position_weight.data, y->rows, h, &map)
                            : PAR_OK;
}
par_result par_tp_embedding_backward(par_tp *tp, par_tp_embedding *e, const par_tp_tokens *tokens,
                                     const int32_t *ids, const par_tp_matrix *dy) {
    par__tp_set_layer_name(tp, e->name);
    static const char *const call = "par_tp_embedding_backward";
    size_t first, global, count;
    int replicas;
    par_tp_row_map map;
    par_request request;
    const void *all;
    PAR__TP_CHECK(matrix, "dy", dy, 1u << par__tp_token_layout(tp), e->features);
    PAR__TP_TRY(par__tp_make_row_map(tp, call, tokens, dy->rows, dy->layout, &map));
    PAR__TP_CHECK(pointer, "ids", ids, dy->rows);
    PAR__TP_CHECK(trained, &e->weight, e->max_positions > 0, &e->position_weight);
    PAR__TP_TRY(par__tp_all_gather_begin(tp, PAR__TP_GATHERED_GRAD, dy, NULL, &all, &request));
    par_result r = PAR_OK;
    const size_t rows = par_tp_rows(tp, tokens);
    const int positions = e->max_positions && e->position_weight.grad, own_rows = par__tp_sums_own_rows(tp);
    if (positions && own_rows) // beside the gather
        r = tp->kernels->positions_backward(tp, e->position_weight.grad, dy->data, dy->rows, e->features,
                                            &map);
    const par_result gathered = par_wait(&request);
    if (r || gathered) return r ? r : gathered;
    if (positions && !own_rows) {
        map.first_row = 0;
        PAR__TP_TRY(
            tp->kernels->positions_backward(tp, e->position_weight.grad, all, rows, e->features, &map));
    }
    par_tp_shard(tp, &e->weight, 0, &first, &global, &count, &replicas);
    if (!e->weight.grad) return PAR_OK;
    if (!par__tp_gathers_cp(tp))
        return tp->kernels->embed_backward(tp, e->weight.grad, ids, rows, all, global, count, e->features);
    const size_t c = (size_t)tp->c, q = (size_t)tp->cp_rank, bytes = e->features * par_tp_element_bytes(tp);
    const void *all_ids = NULL;
    first = par__tp_split_at(count, c, q);
    PAR__TP_TRY(par__tp_gather_tokens(tp, PAR__TP_DKV, ids, sizeof *ids, rows, sizeof *ids, 0, &all_ids));
    PAR__TP_TRY(par__tp_gather_tokens(tp, PAR__TP_DKV_NEXT, all, bytes, rows, bytes, 0, &all));
    return tp->kernels->embed_backward(tp, e->weight.grad + first * e->features, (const int32_t *)all_ids,
                                       rows * c, all, global + first,
                                       par__tp_split_at(count, c, q + 1) - first, e->features);
}

static par_result par__tp_loss_check(const par_tp *tp, const char *call, const par_tp_loss *loss,
                                     const par_tp_matrix *logits, const int32_t *targets, size_t *first) {
    const size_t n = (size_t)tp->t, r = (size_t)tp->tp_rank, v = loss->vocabulary;
    *first = par__tp_split_at(v, n, r);
    PAR__TP_CHECK(matrix, "logits", logits, PAR__TP_IN(VOCABULARY), par__tp_split_at(v, n, r + 1) - *first);
    PAR__TP_CHECK(pointer, "targets", targets, logits->rows);
    for (size_t i = 0; i < logits->rows && tp->kernels == par_tp_cpu(); i++)
        if (targets[i] >= 0 && targets[i] != loss->ignore_index && (size_t)targets[i] >= v)
            return PAR__TP_FAIL("%s: targets[%zu] is %d, but the vocabulary has %zu", call, i,
                                (int)targets[i], v);
    return PAR_OK;
}
static par_result par__tp_loss_outputs(const par_tp *tp, const char *call, size_t rows, const float *lse,
                                       const double *sum, const size_t *target_count) {
    PAR__TP_CHECK(pointer, "lse", lse, rows);
    PAR__TP_CHECK(pointer, "sum", sum, 1);
    return par__tp_check_pointer(tp, call, "target_count", target_count, 1);
}
par_result par_tp_loss_forward(par_tp *tp, const par_tp_loss *loss, const par_tp_matrix *logits,
                               const int32_t *targets, float *lse, float *losses, double *sum,
                               size_t *target_count) {
    static const char *const call = "par_tp_loss_forward";
    par__tp_set_layer_name(tp, loss->name);
    size_t first;
    PAR__TP_TRY(par__tp_loss_check(tp, call, loss, logits, targets, &first));
    const size_t rows = logits->rows, t = (size_t)tp->t, v = loss->vocabulary, n = rows * 4;
    const size_t leaves = (size_t)tp->desc.canonical_leaves, blocks = PAR__MAX(t, leaves), own = blocks / t;
    PAR__TP_TRY(par__tp_loss_outputs(tp, call, rows, lse, sum, target_count));
    float *all = (float *)par_tp_scratch(tp, PAR__TP_STATS, blocks * n * sizeof(float));
    if (!all) return PAR_ERR_MEMORY;
    float *mine = all + (size_t)tp->tp_rank * own * n;
    for (size_t i = 0, block = (size_t)tp->tp_rank * own; i < own; i++, block++) {
        const size_t from = par__tp_split_at(v, blocks, block), to = par__tp_split_at(v, blocks, block + 1);
        PAR__TP_TRY(tp->kernels->loss_stats(tp, mine + i * n,
                                            par__tp_const_element(tp, logits->data, from - first),
                                            par__tp_matrix_ld(logits), targets, rows, from, to - from));
    }
    PAR__TP_TRY(par_all_gather(mine, all, own * n, PAR_F32, tp->desc.tp));
    return tp->kernels->loss_combine(tp, all, blocks, rows, targets, loss, lse, losses, sum, target_count);
}
par_result par_tp_loss_backward(par_tp *tp, const par_tp_loss *loss, const par_tp_matrix *logits,
                                const int32_t *targets, const float *lse, float scale,
                                par_tp_matrix *dlogits) {
    static const char *const call = "par_tp_loss_backward";
    par__tp_set_layer_name(tp, loss->name);
    size_t first;
    PAR__TP_TRY(par__tp_loss_check(tp, call, loss, logits, targets, &first));
    PAR__TP_CHECK(pointer, "lse", lse, logits->rows);
    PAR__TP_CHECK(output, "dlogits", dlogits, logits->rows);
    par__tp_set_shape(dlogits, logits->rows, logits->cols, PAR_TP_VOCABULARY);
    return tp->kernels->loss_backward(tp, dlogits->data, logits->data, par__tp_matrix_ld(logits), targets,
                                      lse, logits->rows, first, logits->cols, loss, scale);
}
par_result par_tp_loss_forward_backward(par_tp *tp, const par_tp_loss *loss, const par_tp_matrix *logits,
                                        const int32_t *targets, float *lse, float *losses, double *sum,
                                        size_t *target_count, float scale, par_tp_matrix *dlogits) {
    static const char *const call = "par_tp_loss_forward_backward";
    par__tp_set_layer_name(tp, loss->name);
    size_t first;
    if (tp->t > 1 || tp->desc.canonical_leaves) {
        PAR__TP_TRY(par_tp_loss_forward(tp, loss, logits, targets, lse, losses, sum, target_count));
        return par_tp_loss_backward(tp, loss, logits, targets, lse, scale, dlogits);
    }
    PAR__TP_TRY(par__tp_loss_check(tp, call, loss, logits, targets, &first));
    PAR__TP_TRY(par__tp_loss_outputs(tp, call, logits->rows, lse, sum, target_count));
    PAR__TP_CHECK(output, "dlogits", dlogits, logits->rows);
    float *stats = (float *)par_tp_scratch(tp, PAR__TP_STATS, logits->rows * 4 * sizeof(float));
    if (!stats) return PAR_ERR_MEMORY;
    par__tp_set_shape(dlogits, logits->rows, logits->cols, PAR_TP_VOCABULARY);
    return tp->kernels->loss_forward_backward(tp, dlogits->data, stats, logits->data,
                                              par__tp_matrix_ld(logits), targets, logits->rows, logits->cols,
                                              loss, lse, losses, sum, target_count, scale);
}

// The head and its loss, chunk by chunk of rows:
//     logits = x W^T + b    statistics, all_gather, lse, loss; logits become their gradient
//     dx = logits W         the sum over tp begins after the last chunk's
//     dW += logits^T x      beside that
// A weight's gradient is read and written once for each chunk: 8 V h bytes, beside 6 r V h operations of its
// r rows. With 16384 rows that is 2% of the head's time on an H100, 0.3% of a step of GPT-2 124M.
typedef struct par__tp_head {
    const par_tp_linear *layer;
    par_tp_linear *trained; // the same; NULL: forward alone
    const par_tp_loss *loss;
    const int32_t *targets;
    const void *x; // all rows
    size_t rows, chunk_rows, chunks;
    size_t blocks;       // of the vocabulary, as par_tp_loss_forward has them
    float *lse, *losses; // of all rows; losses: or NULL
    float *stats;        // blocks x rows x 4: of all chunks, for their sum; NULL: there is one chunk
    double *sum, *chunk_sum;
    size_t *target_count, *chunk_targets;
    float scale;
    par_tp_matrix logits; // of a chunk
} par__tp_head;

// Into how many chunks of at most chunk_rows rows so many are cut. A chunk has at least 2, because a product
// of one row adds in another order.
static size_t par__tp_head_chunks(size_t rows, size_t chunk_rows) {
    return PAR__MAX((size_t)1, PAR__MIN((rows + chunk_rows - 1) / chunk_rows, rows / 2));
}
static size_t par__tp_chunk_rows(const par_tp *tp, size_t rows, size_t asked) {
    const size_t most = asked ? asked : tp->desc.canonical_leaves ? SIZE_MAX : (size_t)PAR_TP_CHUNK_ROWS;
    return PAR__MAX((size_t)1, PAR__MIN(most, rows));
}
static size_t par__tp_loss_blocks(const par_tp *tp) {
    return (size_t)PAR__MAX(tp->t, tp->desc.canonical_leaves);
}
// Bytes of logits of the longest of so many chunks; of what is kept of each row.
static size_t par__tp_logits_bytes(const par_tp *tp, const par_tp_linear *l, size_t rows, size_t chunks) {
    return (rows + chunks - 1) / chunks * par_tp_ld(PAR_TP_VOCABULARY, l->weight.local_rows) *
           par_tp_element_bytes(tp);
}
static size_t par__tp_row_stats_bytes(const par_tp *tp, size_t rows, int in_chunks) {
    const size_t floats = in_chunks ? 4 * par__tp_loss_blocks(tp) : 0;
    return 2 * sizeof(double) + rows * (floats + 1) * sizeof(float);
}
size_t par_tp_head_bytes(const par_tp *tp, const par_tp_linear *head, size_t rows, size_t chunk_rows) {
    const size_t chunks = par__tp_head_chunks(rows, par__tp_chunk_rows(tp, rows, chunk_rows));
    return par__tp_logits_bytes(tp, head, rows, chunks) + par__tp_row_stats_bytes(tp, rows, chunks > 1);
}
static par_result par__tp_head_open(par_tp *tp, par__tp_head *h) {
    const int in_chunks = h->chunks > 1;
    double *stats =
        (double *)par_tp_scratch(tp, PAR__TP_ROW_STATS, par__tp_row_stats_bytes(tp, h->rows, in_chunks));
    if (!stats) return PAR_ERR_MEMORY;
    h->stats = in_chunks ? (float *)(void *)(stats + 2) : NULL;
    h->lse = (float *)(void *)(stats + 2) + (in_chunks ? 4 * h->blocks * h->rows : 0);
    h->chunk_sum = stats;
    h->chunk_targets = (size_t *)(void *)(stats + 1);
    h->logits.data =
        par_tp_scratch(tp, PAR__TP_LOGITS, par__tp_logits_bytes(tp, h->layer, h->rows, h->chunks));
    return h->logits.data ? PAR_OK : PAR_ERR_MEMORY;
}
// Rows [from, from + n): logits, and their loss, of which they become the gradient.
static par_result par__tp_head_loss(par_tp *tp, par__tp_head *h, size_t from, size_t n) {
    const par_tp_linear *l = h->layer;
    const size_t cols = l->weight.local_rows, row = 4 * sizeof(float);
    const par__tp_pieces rows = {1, n, 1};
    par__tp_product m = par__tp_product_of(l, PAR__TP_FORWARD, par__tp_const_element(tp, h->x, from * l->in),
                                           h->logits.data, par_tp_dtype(tp), &rows);
    m.bias = l->has_bias ? l->bias.data : NULL;
    m.ldc = par_tp_ld(PAR_TP_VOCABULARY, cols);
    const int32_t *targets = h->targets + from;
    float *lse = h->lse + from, *losses = h->losses ? h->losses + from : NULL;
    double *sum = h->stats ? h->chunk_sum : h->sum;
    size_t *count = h->stats ? h->chunk_targets : h->target_count;
    par__tp_set_layer_name(tp, l->name);
    PAR__TP_TRY(par__tp_multiply(tp, &m, 0));
    par__tp_set_shape(&h->logits, n, cols, PAR_TP_VOCABULARY);
    PAR__TP_TRY(h->trained ? par_tp_loss_forward_backward(tp, h->loss, &h->logits, targets, lse, losses, sum,
                                                          count, h->scale, &h->logits)
                           : par_tp_loss_forward(tp, h->loss, &h->logits, targets, lse, losses, sum, count));
    par__tp_set_layer_name(tp, l->name);
    if (!h->stats) return PAR_OK;
    return tp->kernels->copy(tp, h->stats + 4 * from, h->rows * row, tp->scratch[PAR__TP_STATS].memory,
                             n * row, h->blocks, n * row);
}
// All of these rows; s NULL: without dx.
static par_result par__tp_head_chunk(par_tp *tp, par__tp_head *h, size_t i, par__tp_reduction *s) {
    const par_tp_linear *l = h->layer;
    const size_t cols = l->weight.local_rows, ld = par_tp_ld(PAR_TP_VOCABULARY, cols),
                 from = par__tp_split_at(h->rows, h->chunks, i),
                 n = par__tp_split_at(h->rows, h->chunks, i + 1) - from;
    const par__tp_pieces rows = {1, n, 1};
    PAR__TP_TRY(par__tp_head_loss(tp, h, from, n));
    if (s) {
        char *y = (char *)s->partial + from * l->in * par_dtype_bytes(s->type);
        par__tp_product m = par__tp_product_of(l, PAR__TP_DGRAD, h->logits.data, y, s->type, &rows);
        m.lda = ld;
        PAR__TP_TRY(par__tp_multiply(tp, &m, 0));
        if (i + 1 == h->chunks) PAR__TP_TRY(par__tp_reduction_begin(tp, s, 0));
    }
    const void *x = par__tp_const_element(tp, h->x, from * l->in);
    return h->trained ? par__tp_wgrad(tp, h->trained, h->logits.data, ld, x, n, 1) : PAR_OK;
}
static par_result par__tp_head_check(par_tp *tp, const char *call, const par__tp_head *h,
                                     const par_tp_matrix *x) {
    const par_tp_linear *l = h->layer;
    size_t first;
    PAR__TP_CHECK(weight_and_bias, &l->weight, l->has_bias, &l->bias);
    if (l->row_parallel || !l->vocab_parallel || l->gather_output || l->out != h->loss->vocabulary)
        return PAR__TP_FAIL("%s: the head must be column-parallel with vocab_parallel, without "
                            "gather_output, and as wide as the loss's vocabulary of %zu",
                            call, h->loss->vocabulary);
    if (l->recipe)
        return PAR__TP_FAIL("%s: the recipe %s takes scales from all rows: give the head none, or call "
                            "par_tp_linear_forward and par_tp_loss_forward_backward",
                            call, par_tp_recipe_name(l->recipe));
    if (tp->desc.canonical_leaves && h->chunk_rows < h->rows)
        return PAR__TP_FAIL(
            "%s: chunks of %zu of %zu rows: with canonical_leaves the weight's gradient is one "
            "sum over all rows: set chunk_rows to 0",
            call, h->chunk_rows, h->rows);
    if (h->trained) PAR__TP_CHECK(trained, &l->weight, l->has_bias, &l->bias);
    PAR__TP_CHECK(matrix, "x", x, 1u << par__tp_token_layout(tp), l->in);
    PAR__TP_CHECK(pointer, "sum", h->sum, 1);
    PAR__TP_CHECK(pointer, "target_count", h->target_count, 1);
    const par_tp_matrix logits = {x->data, h->rows, l->weight.local_rows, PAR_TP_VOCABULARY};
    return par__tp_loss_check(tp, call, h->loss, &logits, h->targets, &first);
}
static par_result par__tp_head_run(par_tp *tp, const char *call, par__tp_head *h, const par_tp_matrix *x,
                                   par_tp_matrix *dx) {
    par_request gathering;
    par__tp_reduction s;
    memset(&s, 0, sizeof s);
    par__tp_set_layer_name(tp, h->layer->name);
    h->rows = par__tp_full_rows(tp, x);
    h->blocks = par__tp_loss_blocks(tp);
    h->chunk_rows = par__tp_chunk_rows(tp, h->rows, h->chunk_rows);
    h->chunks = par__tp_head_chunks(h->rows, h->chunk_rows);
    PAR__TP_TRY(par__tp_head_check(tp, call, h, x));
    if (dx) {
        PAR__TP_CHECK(output, "dx", dx, x->rows);
        if (dx->data == x->data) return PAR__TP_FAIL("%s: dx must not be x, which later chunks read", call);
        PAR__TP_TRY(par__tp_reduction_open(tp, h->layer, &s, h->rows, h->layer->in, dx));
        s.pieces = par__tp_one_piece(&s.pieces);
    }
    PAR__TP_TRY(par__tp_head_open(tp, h));
    PAR__TP_TRY(par__tp_all_gather_begin(tp, PAR__TP_GATHERED, x, NULL, &h->x, &gathering));
    par_result r = par_wait(&gathering);
    for (size_t i = 0; i < h->chunks && !r; i++) r = par__tp_head_chunk(tp, h, i, dx ? &s : NULL);
    const par_result summed = par__tp_reduction_end(tp, &s, dx);
    if (!r) r = summed;
    if (r || !h->stats) return r;
    return tp->kernels->loss_combine(tp, h->stats, h->blocks, h->rows, h->targets, h->loss, h->lse, h->losses,
                                     h->sum, h->target_count);
}
static par__tp_head par__tp_head_of(const par_tp_linear *head, const par_tp_loss *loss,
                                    const int32_t *targets, size_t chunk_rows, float *losses, double *sum,
                                    size_t *target_count) {
    par__tp_head h;
    memset(&h, 0, sizeof h);
    h.layer = head;
    h.loss = loss;
    h.targets = targets;
    h.chunk_rows = chunk_rows;
    h.losses = losses;
    h.sum = sum;
    h.target_count = target_count;
    return h;
}
par_result par_tp_head_forward(par_tp *tp, const par_tp_linear *head, const par_tp_loss *loss,
                               const par_tp_matrix *x, const int32_t *targets, size_t chunk_rows,
                               float *losses, double *sum, size_t *target_count) {
    par__tp_head h = par__tp_head_of(head, loss, targets, chunk_rows, losses, sum, target_count);
    return par__tp_head_run(tp, "par_tp_head_forward", &h, x, NULL);
}
par_result par_tp_head_forward_backward(par_tp *tp, par_tp_linear *head, const par_tp_loss *loss,
                                        const par_tp_matrix *x, const int32_t *targets, size_t chunk_rows,
                                        float *losses, double *sum, size_t *target_count, float scale,
                                        par_tp_matrix *dx) {
    par__tp_head h = par__tp_head_of(head, loss, targets, chunk_rows, losses, sum, target_count);
    h.trained = head;
    h.scale = scale;
    return par__tp_head_run(tp, "par_tp_head_forward_backward", &h, x, dx);
}

par_result par_tp_logits_gather(par_tp *tp, const par_tp_loss *loss, const par_tp_matrix *logits, size_t row,
                                float *whole) {
    static const char *const call = "par_tp_logits_gather";
    const size_t n = (size_t)tp->t, r = (size_t)tp->tp_rank, v = loss->vocabulary,
                 e = par_tp_element_bytes(tp);
    const size_t first = par__tp_split_at(v, n, r), mine = par__tp_split_at(v, n, r + 1) - first;
    par__tp_set_layer_name(tp, loss->name);
    PAR__TP_CHECK(matrix, "logits", logits, PAR__TP_IN(VOCABULARY), mine);
    PAR__TP_CHECK(pointer, "whole", whole, v);
    if (row >= logits->rows)
        return PAR__TP_FAIL("%s: there is no row %zu: logits have %zu", call, row, logits->rows);
    size_t *counts = (size_t *)PAR_MALLOC(n * sizeof *counts + mine * e);
    if (!counts) return par_fail(tp->desc.tp, PAR_ERR_MEMORY, "%s: out of memory", call);
    void *stored = counts + n; // this rank's columns, in the type of the logits
    for (size_t q = 0; q < n; q++) counts[q] = par__tp_split_at(v, n, q + 1) - par__tp_split_at(v, n, q);
    const char *from = (const char *)logits->data + row * par__tp_matrix_ld(logits) * e;
    par_result result = tp->device->copy(tp->device, stored, from, mine * e, NULL);
    if (!result) result = tp->device->stream_sync(tp->device, NULL);
    if (!result) par_cast(whole + first, PAR_F32, stored, par_tp_dtype(tp), mine);
    if (!result) result = par_all_gatherv(whole + first, whole, counts, NULL, PAR_F32, tp->desc.tp);
    PAR_FREE(counts);
    return result;
}

// >>tp_attention --------------------------------------------------------------------------------------------
//
// A rank has heads/t query heads and kv_heads/t key-value heads (at least one, then shared with neighbors).
// With c context-parallel ranks:
//     ring       In step j rank r computes attention to the keys of rank r-j, and sends them on to r+1 in all
//                steps but the last. Backward does so from step 1 on, and its own keys at the end: their
//                gradients follow the keys and end at their owner, after c-1 hops, too. Where gradients of
//                keys and of queries are two kernels, each hop is hidden: the keys' first one behind those of
//                the queries from its own keys, that of gradients behind those of queries from the same keys.
//                Rank r has chunks r and 2c-1-r, so that all ranks do equal work in each step:
//                    rank 0 [0 7]   rank 1 [1 6]   rank 2 [2 5]   rank 3 [3 4]
//     Ulysses    tokens x all heads --all_to_all--> all tokens x heads/c --attention, all_to_all--> as before

typedef struct par__tp_attention_dims {
    size_t rows, heads, kv_heads, dim, q_cols, kv_cols, cols; // on this rank
    size_t first_head;
    int ring_size; // ranks that keys go round
    float scale;
    par_tp_row_map map;
} par__tp_attention_dims;

void par_tp_attention_segments(const par_tp_attention *a, par_tp_segment segments[3]) {
    const size_t kv = a->kv_heads ? a->kv_heads : a->heads;
    segments[0].count = a->heads * a->dim;
    segments[1].count = segments[2].count = kv * a->dim;
    segments[0].unit = segments[1].unit = segments[2].unit = a->dim;
}
static par_result par__tp_attention_check(const par_tp *tp, const char *call, const par_tp_attention *a,
                                          const par_tp_tokens *tokens, const par_tp_matrix *x, int cached,
                                          par__tp_attention_dims *s) {
    const size_t t = (size_t)tp->t, c = (size_t)tp->c, kv = a->kv_heads ? a->kv_heads : a->heads;
    if (!a->heads || !a->dim || a->heads % kv || a->heads % t || (kv % t && t % kv))
        return PAR__TP_FAIL("%s: %zu heads and %zu key-value heads of %zu features do not divide over %d "
                            "tensor-parallel ranks",
                            call, a->heads, kv, a->dim, tp->t);
    s->heads = a->heads / t;
    s->kv_heads = kv >= t ? kv / t : 1;
    s->dim = a->dim;
    s->q_cols = s->heads * a->dim;
    s->kv_cols = s->kv_heads * a->dim;
    s->cols = s->q_cols + 2 * s->kv_cols;
    s->first_head = (size_t)tp->tp_rank * s->heads;
    s->ring_size = tp->c;
    s->scale = a->scale > 0 ? a->scale : 1.0f / sqrtf((float)a->dim);
    if (tp->desc.ulysses && (s->heads % c || s->kv_heads % c))
        return PAR__TP_FAIL(
            "%s: %zu heads and %zu key-value heads per rank do not divide over %d context-parallel "
            "ranks by all-to-all: %s",
            call, s->heads, s->kv_heads, tp->c,
            tp->desc.canonical_leaves ? "with canonical_leaves take fewer ranks" : "use the ring");
    PAR__TP_CHECK(matrix, "x", x, PAR__TP_IN(HIDDEN), s->cols);
    s->rows = x->rows;
    PAR__TP_TRY(par__tp_make_row_map(tp, call, tokens, x->rows, PAR_TP_HIDDEN, &s->map));
    if (tokens->position && !cached)
        return PAR__TP_FAIL("%s: tokens from position %zu on: their keys are in no cache, "
                            "par_tp_attention_cached takes one",
                            call, tokens->position);
    if (tokens->documents && cached)
        return PAR__TP_FAIL("%s: a cache is of sequences of one document: set tokens.documents to NULL",
                            call);
    return PAR_OK;
}
static void par__tp_attention_block_init(const par__tp_attention_dims *s, const par_tp_attention *a,
                                         const par_tp_tokens *tokens, uint64_t stream,
                                         par_tp_attention_block *m) {
    memset(m, 0, sizeof *m);
    m->batch = tokens->batch;
    m->heads = s->heads;
    m->kv_heads = s->kv_heads;
    m->dim = m->kv_head_stride = s->dim;
    m->scale = s->scale;
    m->dropout = a->dropout;
    m->stream = stream;
    m->first_sequence = tokens->first_sequence;
    m->sequence = tokens->sequence;
    m->first_head = s->first_head;
    m->total_heads = a->heads;
    m->window = a->window;
    m->documents = tokens->documents;
}

// How many chunks of queries see chunk number `chunk` of the keys of rank `owner` before those of rank `rank`
// do, in backward, which begins at the rank behind the owner.
static size_t par__tp_seen_before(const par__tp_attention_dims *s, int owner, int rank, size_t chunk) {
    const int c = s->ring_size;
    size_t seen = 0;
    for (int r = (owner + 1) % c; r != rank; r = (r + 1) % c)
        for (int i = 0; i < 2; i++) seen += (size_t)(i ? 2 * c - 1 - r : r) >= chunk ? 1 : 0;
    return seen;
}
// Computes attention of this rank's queries to the keys of rank `owner`, chunk by chunk. A chunk of queries
// sees as many chunks as there are up to its own (seen: so far), and with the last of them its part of `out`
// is written: of y or dx. In backward each rank's own keys are the last ones whose gradients it computes, and
// its last queries the last ones that these see.
static par_result par__tp_attention_step(par_tp *tp, par_tp_attention_block *m,
                                         const par__tp_attention_dims *s, int owner, size_t seen[2],
                                         void *out) {
    const par_tp_row_map *map = &s->map;
    const int rank = (int)map->chunk[0], own = owner == rank, queries = !(m->without & PAR_TP_QUERIES);
    const size_t theirs[2] = {(size_t)owner, 2 * (size_t)s->ring_size - 1 - (size_t)owner};
    size_t before[2] = {0, 0};
    for (size_t j = 0; j < map->chunk_count && m->dy; j++)
        before[j] = par__tp_seen_before(s, owner, rank, theirs[j]);
    m->q_stride = m->kv_stride = map->local_sequence;
    m->q_count = m->kv_count = map->chunk_tokens;
    for (size_t i = 0; i < map->chunk_count; i++)
        for (size_t j = 0; j < map->chunk_count; j++) {
            if (theirs[j] > map->chunk[i]) continue;
            m->q_row = i * map->chunk_tokens;
            m->q_position = map->chunk[i] * map->chunk_tokens;
            m->kv_row = j * map->chunk_tokens;
            m->kv_position = theirs[j] * map->chunk_tokens;
            m->first = queries && seen[i]++ == 0;
            m->first_queries = before[j]++ == 0;
            m->y = m->dx_q = queries && seen[i] > map->chunk[i] ? out : NULL;
            m->dx_kv = own && i + 1 == map->chunk_count ? out : NULL;
            PAR__TP_TRY(m->dy ? tp->kernels->attention_block_backward(tp, m)
                              : tp->kernels->attention_block_forward(tp, m));
        }
    return PAR_OK;
}

// Begins one shift of the ring: sends `current` to the next rank and receives `next` from the previous one.
static par_result par__tp_ring_shift_begin(par_tp *tp, const void *current, void *next, size_t count,
                                           par_dtype type, par_request requests[2]) {
    const int right = (tp->cp_rank + 1) % tp->c, left = (tp->cp_rank + tp->c - 1) % tp->c;
    PAR__TP_TRY(par_send_begin(current, count, type, right, tp->desc.cp, &requests[0]));
    return par_recv_begin(next, count, type, left, tp->desc.cp, &requests[1]);
}
static void par__tp_swap(void **a, void **b) {
    void *x = *a;
    *a = *b;
    *b = x;
}

// The keys and values of one rank, dense: rows x [k; v]. With one rank they are used in place, in x.
typedef struct par__tp_ring_kv {
    void *current, *next;
    size_t ld, count;
} par__tp_ring_kv;
static par_result par__tp_ring_kv_open(par_tp *tp, const par__tp_attention_dims *s, const par_tp_matrix *x,
                                       par__tp_ring_kv *k) {
    const size_t e = par_tp_element_bytes(tp);
    k->ld = s->cols;
    k->count = 2 * s->rows * s->kv_cols;
    k->current = par__tp_element(tp, x->data, s->q_cols);
    k->next = NULL;
    if (s->ring_size == 1) return PAR_OK;
    void *from = k->current;
    k->ld = 2 * s->kv_cols;
    k->current = par_tp_scratch(tp, PAR__TP_KV, k->count * e);
    k->next = par_tp_scratch(tp, PAR__TP_KV_NEXT, k->count * e);
    if (!k->current || !k->next) return PAR_ERR_MEMORY;
    return tp->kernels->copy(tp, k->current, k->ld * e, from, s->cols * e, s->rows, k->ld * e);
}

// The arguments for whole sequences on one rank, for a fused kernel.
static void par__tp_whole_sequence(par_tp *tp, par_tp_attention_block *m, const par__tp_attention_dims *s,
                                   const par_tp_matrix *x) {
    m->q_count = m->kv_count = m->q_stride = m->kv_stride = s->map.local_sequence;
    m->q = x->data;
    m->k = par__tp_element(tp, x->data, s->q_cols);
    m->v = par__tp_element(tp, x->data, s->q_cols + s->kv_cols);
    m->q_ld = m->kv_ld = s->cols;
}

// Sets the queries of a block, and where the online softmax's state is kept between keys.
static par_result par__tp_softmax_init(par_tp *tp, const par__tp_attention_dims *s, par_tp_attention_block *m,
                                       const par_tp_matrix *x, float *lse, par_tp_matrix *y) {
    const size_t states = s->rows * s->heads, n = s->rows * s->q_cols;
    m->row_sum = (float *)par_tp_scratch(tp, PAR__TP_STATE, states * sizeof(float));
    m->acc =
        par__tp_is_f32(tp) ? (float *)y->data : (float *)par_tp_scratch(tp, PAR__TP_ACC, n * sizeof(float));
    if (!m->row_sum || !m->acc) return PAR_ERR_MEMORY;
    m->q = x->data;
    m->q_ld = s->cols;
    m->row_max = lse; // most: lse, for now
    m->acc_ld = s->q_cols;
    return PAR_OK;
}
static par_result par__tp_ring_forward(par_tp *tp, const par__tp_attention_dims *s, par_tp_attention_block *m,
                                       const par_tp_matrix *x, float *lse, par_tp_matrix *y) {
    size_t seen[2] = {0, 0};
    int handled = 0;
    par__tp_ring_kv k;
    if (s->ring_size == 1 && tp->kernels->attention_fused_forward) {
        par__tp_whole_sequence(tp, m, s, x);
        PAR__TP_TRY(tp->kernels->attention_fused_forward(tp, m, y->data, lse, &handled));
    }
    if (handled) return PAR_OK;
    PAR__TP_TRY(par__tp_ring_kv_open(tp, s, x, &k));
    PAR__TP_TRY(par__tp_softmax_init(tp, s, m, x, lse, y));
    m->kv_ld = k.ld;
    for (int j = 0; j < s->ring_size; j++) {
        par_request requests[2] = {{NULL, 0}, {NULL, 0}};
        par_result r = PAR_OK;
        if (j + 1 < s->ring_size)
            r = par__tp_ring_shift_begin(tp, k.current, k.next, k.count, par_tp_dtype(tp), requests);
        m->k = k.current;
        m->v = par__tp_const_element(tp, k.current, s->kv_cols);
        const int owner = (tp->cp_rank - j + s->ring_size) % s->ring_size;
        if (!r) r = par__tp_attention_step(tp, m, s, owner, seen, y->data);
        const par_result moved = par_wait_all(requests, 2);
        if (r || moved) return r ? r : moved;
        par__tp_swap(&k.current, &k.next);
    }
    return PAR_OK;
}

// The sums of gradients between blocks, and the arguments that are the same for all blocks. Those of the keys
// and values travel in a block of their own.
static par_result par__tp_gradients_init(par_tp *tp, const par__tp_attention_dims *s,
                                         par_tp_attention_block *m, const par_tp_matrix *x, par_tp_matrix *dx,
                                         void *sums[2]) {
    const size_t nkv = 2 * s->rows * s->kv_cols;
    const int in_place = par__tp_is_f32(tp) || s->ring_size == 1; // or not at all
    m->q = x->data;
    m->q_ld = s->cols;
    m->dq_ld = in_place ? s->cols : s->q_cols;
    m->dkv_ld = 2 * s->kv_cols;
    m->dq =
        (float *)(in_place ? dx->data : par_tp_scratch(tp, PAR__TP_DQ, s->rows * s->q_cols * sizeof(float)));
    sums[0] = sums[1] = NULL;
    if (!m->dq) return PAR_ERR_MEMORY;
    if (s->ring_size == 1) return PAR_OK;
    sums[0] = par_tp_scratch(tp, PAR__TP_DKV, nkv * sizeof(float));
    sums[1] = par_tp_scratch(tp, PAR__TP_DKV_NEXT, nkv * sizeof(float));
    return sums[0] && sums[1] ? PAR_OK : PAR_ERR_MEMORY;
}
static par_result par__tp_gradient_dots(par_tp *tp, size_t states, size_t dim, const void *dy, const void *y,
                                        float **dot) {
    *dot = (float *)par_tp_scratch(tp, PAR__TP_STATE, states * sizeof(float));
    return *dot ? tp->kernels->row_dots(tp, *dot, dy, y, states, dim) : PAR_ERR_MEMORY;
}
static int par__tp_is_apart(const par_tp *tp, const par__tp_attention_dims *s) {
    return s->ring_size > 1 && tp->kernels->attention_apart;
}
static void par__tp_ring_keys(par_tp *tp, const par__tp_attention_dims *s, par_tp_attention_block *m,
                              const par_tp_matrix *x, const par__tp_ring_kv *k) { // k NULL: its own, in x
    m->k = k ? k->current : par__tp_const_element(tp, x->data, s->q_cols);
    m->v = par__tp_const_element(tp, m->k, s->kv_cols);
    m->kv_ld = k ? k->ld : s->cols;
}
// The gradients by the keys of rank `owner`. Those of the keys travel on beside those of the queries.
static par_result par__tp_ring_turn(par_tp *tp, const par__tp_attention_dims *s, par_tp_attention_block *m,
                                    int owner, size_t seen[2], void *sums[2], par_tp_matrix *dx) {
    const int own = owner == (int)s->map.chunk[0], apart = par__tp_is_apart(tp, s);
    par_request back[2] = {{NULL, 0}, {NULL, 0}};
    m->dk = (float *)sums[0];
    m->dv = sums[0] ? m->dk + s->kv_cols : NULL;
    m->without = apart ? PAR_TP_QUERIES : 0;
    par_result r = par__tp_attention_step(tp, m, s, owner, seen, dx->data);
    if (!r && !own)
        r = par__tp_ring_shift_begin(tp, sums[0], sums[1], 2 * s->rows * s->kv_cols, PAR_F32, back);
    m->without = PAR_TP_KEYS;
    if (!r && !own && apart) r = par__tp_attention_step(tp, m, s, owner, seen, dx->data);
    const par_result moved = par_wait_all(back, 2);
    par__tp_swap(&sums[0], &sums[1]);
    return r ? r : moved;
}
static par_result par__tp_ring_backward(par_tp *tp, const par__tp_attention_dims *s,
                                        par_tp_attention_block *m, const par_tp_matrix *x,
                                        const par_tp_matrix *y, par_tp_matrix *dx) {
    const int c = s->ring_size, rank = (int)s->map.chunk[0];
    size_t seen[2] = {0, 0};
    par_request keys[2] = {{NULL, 0}, {NULL, 0}};
    par__tp_ring_kv k;
    void *sums[2]; // here, and those that arrive
    float *dot;
    int handled = 0;
    if (c == 1 && y && tp->kernels->attention_fused_backward) {
        par__tp_whole_sequence(tp, m, s, x);
        PAR__TP_TRY(tp->kernels->attention_fused_backward(tp, m, y->data, dx->data, &handled));
    }
    if (handled) return PAR_OK;
    if (y) {
        PAR__TP_TRY(par__tp_gradient_dots(tp, s->rows * s->heads, s->dim, m->dy, y->data, &dot));
        m->dot = dot;
    }
    PAR__TP_TRY(par__tp_ring_kv_open(tp, s, x, &k));
    PAR__TP_TRY(par__tp_gradients_init(tp, s, m, x, dx, sums));
    par_result r =
        c > 1 ? par__tp_ring_shift_begin(tp, k.current, k.next, k.count, par_tp_dtype(tp), keys) : PAR_OK;
    if (!r && par__tp_is_apart(tp, s)) {
        par__tp_ring_keys(tp, s, m, x, NULL);
        m->without = PAR_TP_KEYS;
        r = par__tp_attention_step(tp, m, s, rank, seen, dx->data);
    }
    for (int j = 1; j <= c && !r; j++) {
        r = par_wait_all(keys, 2);
        par__tp_swap(&k.current, &k.next);
        if (!r && j + 1 < c)
            r = par__tp_ring_shift_begin(tp, k.current, k.next, k.count, par_tp_dtype(tp), keys);
        par__tp_ring_keys(tp, s, m, x, j < c ? &k : NULL);
        if (!r) r = par__tp_ring_turn(tp, s, m, (rank - j + c) % c, seen, sums, dx);
    }
    const par_result moved = par_wait_all(keys, 2); // after an error
    return r ? r : moved;
}

// Ulysses: exchanges this rank's tokens of all heads with all tokens of this rank's heads, or back, for
// matrices of up to 3 segments.
static par_result par__tp_ulysses_all_to_all(par_tp *tp, const par__tp_attention_dims *s,
                                             const size_t *widths, int segments, size_t e, par_dtype type,
                                             void *by_tokens, void *by_heads, int to_heads) {
    const size_t c = (size_t)tp->c, local_sequence = s->map.local_sequence, batch = s->rows / local_sequence;
    size_t width = 0;
    for (int i = 0; i < segments; i++) width += widths[i];
    const size_t mine = width / c * e, block = s->rows * mine; // of a row; to one rank
    char *out = (char *)par_tp_scratch(tp, PAR__TP_PACK_SEND, block * c);
    char *in = (char *)par_tp_scratch(tp, PAR__TP_PACK_RECV, block * c);
    if (!out || !in) return PAR_ERR_MEMORY;
    for (int pass = 0; pass < 2; pass++) { // before and after the all_to_all
        for (size_t q = 0; q < c; q++) {
            char *packed = (pass == 0 ? out : in) + q * block;
            if ((pass == 0) == to_heads) { // rank q's columns of my rows
                size_t at = 0, column = 0;
                for (int i = 0; i < segments; i++) {
                    const size_t w = widths[i] / c * e;
                    char *rows = (char *)by_tokens + column + q * w;
                    PAR__TP_TRY(pass == 0
                                    ? tp->kernels->copy(tp, packed + at, mine, rows, width * e, s->rows, w)
                                    : tp->kernels->copy(tp, rows, width * e, packed + at, mine, s->rows, w));
                    at += w;
                    column += widths[i] * e;
                }
            } else { // rank q's tokens of each sequence, of my columns
                char *rows = (char *)by_heads + q * local_sequence * mine;
                PAR__TP_TRY(pass == 0
                                ? tp->kernels->copy(tp, packed, local_sequence * mine, rows,
                                                    c * local_sequence * mine, batch, local_sequence * mine)
                                : tp->kernels->copy(tp, rows, c * local_sequence * mine, packed,
                                                    local_sequence * mine, batch, local_sequence * mine));
            }
        }
        if (pass == 0) PAR__TP_TRY(par_all_to_all(out, in, block / e, type, tp->desc.cp));
    }
    return PAR_OK;
}
static void par__tp_ulysses_dims(const par_tp *tp, const par__tp_attention_dims *s, par__tp_attention_dims *h,
                                 par_tp_attention_block *m) {
    const size_t c = (size_t)tp->c;
    *h = *s;
    h->rows = s->rows * c;
    h->heads = s->heads / c;
    h->kv_heads = s->kv_heads / c;
    h->q_cols = s->q_cols / c;
    h->kv_cols = s->kv_cols / c;
    h->cols = s->cols / c;
    h->ring_size = 1; // what follows is one rank's work
    h->first_head = s->first_head + (size_t)tp->cp_rank * h->heads;
    h->map.local_sequence = h->map.chunk_tokens = s->map.sequence;
    h->map.chunk[0] = 0;
    h->map.chunk_count = 1;
    m->heads = h->heads;
    m->kv_heads = h->kv_heads;
    m->first_head = h->first_head;
    m->q_count = m->kv_count = s->map.sequence;
}
static par_result par__tp_ulysses_forward(par_tp *tp, const par__tp_attention_dims *s,
                                          par_tp_attention_block *m, const par_tp_matrix *x, float *lse,
                                          par_tp_matrix *y) {
    const size_t e = par_tp_element_bytes(tp), widths[3] = {s->q_cols, s->kv_cols, s->kv_cols};
    par__tp_attention_dims h;
    par_tp_matrix hx, hy;
    par__tp_ulysses_dims(tp, s, &h, m);
    hx.data = par_tp_scratch(tp, PAR__TP_HEADS, h.rows * h.cols * e);
    hy.data = par_tp_scratch(tp, PAR__TP_HEADS_GRAD, h.rows * h.cols * e);
    if (!hx.data || !hy.data) return PAR_ERR_MEMORY;
    PAR__TP_TRY(par__tp_ulysses_all_to_all(tp, s, widths, 3, e, par_tp_dtype(tp), x->data, hx.data, 1));
    PAR__TP_TRY(par__tp_ring_forward(tp, &h, m, &hx, lse, &hy));
    return par__tp_ulysses_all_to_all(tp, s, widths, 1, e, par_tp_dtype(tp), y->data, hy.data, 0);
}
static par_result par__tp_ulysses_backward(par_tp *tp, const par__tp_attention_dims *s,
                                           par_tp_attention_block *m, const par_tp_matrix *dy,
                                           const par_tp_matrix *x, const par_tp_matrix *y,
                                           par_tp_matrix *dx) {
    const size_t e = par_tp_element_bytes(tp), widths[3] = {s->q_cols, s->kv_cols, s->kv_cols},
                 dots = s->heads;
    par__tp_attention_dims h;
    par_tp_matrix hx, hy, hdx;
    float *dot = NULL;
    int takes_y = 0;
    par__tp_ulysses_dims(tp, s, &h, m);
    m->dy = NULL; // the answer is for sizes, not for arrays
    if (tp->kernels->attention_fused_backward)
        PAR__TP_TRY(tp->kernels->attention_fused_backward(tp, m, NULL, NULL, &takes_y));
    const size_t wide = (h.rows * h.cols * e + 15) / 16 * 16, narrow = (h.rows * h.q_cols * e + 15) / 16 * 16;
    char *scratch =
        (char *)par_tp_scratch(tp, PAR__TP_HEADS, wide + narrow + (takes_y ? narrow : h.rows * h.heads * 4));
    hdx.data = par_tp_scratch(tp, PAR__TP_HEADS_GRAD, h.rows * h.cols * e);
    if (!scratch || !hdx.data) return PAR_ERR_MEMORY;
    char *hdy = scratch + wide;
    hx.data = scratch;
    hy.data = hdy + narrow;
    PAR__TP_TRY(par__tp_ulysses_all_to_all(tp, s, widths, 3, e, par_tp_dtype(tp), x->data, hx.data, 1));
    PAR__TP_TRY(par__tp_ulysses_all_to_all(tp, s, widths, 1, e, par_tp_dtype(tp), dy->data, hdy, 1));
    if (takes_y) {
        PAR__TP_TRY(par__tp_ulysses_all_to_all(tp, s, widths, 1, e, par_tp_dtype(tp), y->data, hy.data, 1));
    } else {
        PAR__TP_TRY(par__tp_gradient_dots(tp, s->rows * s->heads, s->dim, dy->data, y->data, &dot));
        PAR__TP_TRY(par__tp_ulysses_all_to_all(tp, s, &dots, 1, 4, PAR_F32, dot, hy.data, 1));
        m->dot = (const float *)hy.data;
    }
    m->dy = hdy;
    m->dy_ld = h.q_cols;
    PAR__TP_TRY(par__tp_ring_backward(tp, &h, m, &hx, takes_y ? &hy : NULL, &hdx));
    return par__tp_ulysses_all_to_all(tp, s, widths, 3, e, par_tp_dtype(tp), dx->data, hdx.data, 0);
}

static par_result par__tp_attention_dispatch(par_tp *tp, const par__tp_attention_dims *s,
                                             par_tp_attention_block *m, const par_tp_matrix *x, float *lse,
                                             par_tp_matrix *y) {
    return tp->desc.ulysses && tp->c > 1 ? par__tp_ulysses_forward(tp, s, m, x, lse, y)
                                         : par__tp_ring_forward(tp, s, m, x, lse, y);
}
par_result par_tp_attention_forward(par_tp *tp, const par_tp_attention *a, const par_tp_tokens *tokens,
                                    uint64_t stream, const par_tp_matrix *x, float *lse, par_tp_matrix *y) {
    static const char *const call = "par_tp_attention_forward";
    par__tp_set_layer_name(tp, a->name);
    par__tp_attention_dims s;
    par_tp_attention_block m;
    PAR__TP_TRY(par__tp_attention_check(tp, call, a, tokens, x, 0, &s));
    PAR__TP_CHECK(pointer, "lse", lse, s.rows);
    PAR__TP_CHECK(output, "y", y, s.rows);
    par__tp_attention_block_init(&s, a, tokens, stream, &m);
    par__tp_set_shape(y, s.rows, s.q_cols, PAR_TP_HIDDEN);
    return par__tp_attention_dispatch(tp, &s, &m, x, lse, y);
}
par_result par_tp_attention_backward(par_tp *tp, const par_tp_attention *a, const par_tp_tokens *tokens,
                                     uint64_t stream, const par_tp_matrix *dy, const par_tp_matrix *x,
                                     const par_tp_matrix *y, const float *lse, par_tp_matrix *dx) {
    par__tp_set_layer_name(tp, a->name);
    static const char *const call = "par_tp_attention_backward";
    par__tp_attention_dims s;
    par_tp_attention_block m;
    PAR__TP_TRY(par__tp_attention_check(tp, call, a, tokens, x, 0, &s));
    PAR__TP_CHECK(matrix, "dy", dy, PAR__TP_IN(HIDDEN), s.q_cols);
    PAR__TP_CHECK(matrix, "y", y, PAR__TP_IN(HIDDEN), s.q_cols);
    PAR__TP_CHECK(pointer, "lse", lse, s.rows);
    PAR__TP_CHECK(output, "dx", dx, s.rows);
    PAR__TP_CHECK(rows, dy->rows, x->rows);
    par__tp_attention_block_init(&s, a, tokens, stream, &m);
    m.dy = dy->data;
    m.dy_ld = s.q_cols;
    m.lse = lse;
    par__tp_set_shape(dx, s.rows, s.cols, PAR_TP_HIDDEN);
    return tp->desc.ulysses && tp->c > 1 ? par__tp_ulysses_backward(tp, &s, &m, dy, x, y, dx)
                                         : par__tp_ring_backward(tp, &s, &m, x, y, dx);
}

// >>tp_kv_cache ---------------------------------------------------------------------------------------------
//
// A cache after four tokens of a prompt, at the fifth token: its key and value are appended, then its query
// attends to all five. The cost is proportional to the number of tokens so far, instead of a whole forward of
// them. Memory is read in order only where a head's keys lie behind each other, and so its values: each head
// has `capacity` rows.
//     rows of a head   0  1  2  3 | 4 |    ...    capacity - 1

static size_t par__tp_kv_cols(const par_tp *tp, const par_tp_attention *a) { // of keys, on this rank
    const size_t t = (size_t)tp->t, kv = a->kv_heads ? a->kv_heads : a->heads;
    return (kv >= t ? kv / t : 1) * a->dim;
}
size_t par_tp_kv_cache_bytes(const par_tp *tp, const par_tp_attention *a, size_t batch, size_t capacity) {
    return batch * capacity * 2 * par__tp_kv_cols(tp, a) * par_tp_element_bytes(tp);
}
static par_result par__tp_kv_cache_check(const par_tp *tp, const char *call, const par_tp_attention *a,
                                         const par_tp_tokens *tokens, const par_tp_kv_cache *c) {
    if (tp->c > 1)
        return PAR__TP_FAIL("%s: a cache is of one context-parallel rank, not of %d: generate in a context "
                            "with cp NULL",
                            call, tp->c);
    if (a->dropout > 0)
        return PAR__TP_FAIL("%s: dropout is %g, but must be 0: it is for training", call, (double)a->dropout);
    if (!c || !c->data || !c->capacity)
        return PAR__TP_FAIL("%s: the cache has no data: give it par_tp_kv_cache_bytes of memory", call);
    if (c->batch != tokens->batch)
        return PAR__TP_FAIL("%s: %zu sequences, but the cache is of %zu", call, tokens->batch, c->batch);
    if (tokens->position > c->count)
        return PAR__TP_FAIL("%s: tokens from position %zu on, but the cache has only %zu before", call,
                            tokens->position, c->count);
    if (tokens->position > c->capacity || tokens->sequence > c->capacity - tokens->position)
        return PAR__TP_FAIL("%s: %zu tokens from position %zu on do not fit the cache's %zu", call,
                            tokens->sequence, tokens->position, c->capacity);
    return PAR_OK;
}
// Appends the keys and values in x, with as few copies as possible: of a token's heads, or a head's tokens.
static par_result par__tp_kv_cache_append(par_tp *tp, const par__tp_attention_dims *s,
                                          const par_tp_tokens *tokens, par_tp_kv_cache *c,
                                          const par_tp_matrix *x) {
    const size_t e = par_tp_element_bytes(tp), n = tokens->sequence, parts = 2 * s->kv_heads;
    const size_t row = s->dim * e, head = c->capacity * row, ld = s->cols * e;
    for (size_t b = 0; b < tokens->batch; b++) {
        char *to = (char *)c->data + b * parts * head + tokens->position * row;
        const char *from = (const char *)x->data + b * n * ld + s->q_cols * e;
        for (size_t i = 0; i < n && n < parts; i++)
            PAR__TP_TRY(tp->kernels->copy(tp, to + i * row, head, from + i * ld, row, parts, row));
        for (size_t i = 0; i < parts && n >= parts; i++)
            PAR__TP_TRY(tp->kernels->copy(tp, to + i * head, row, from + i * row, ld, n, row));
    }
    c->count = tokens->position + n;
    return PAR_OK;
}
par_result par_tp_attention_cached(par_tp *tp, const par_tp_attention *a, const par_tp_tokens *tokens,
                                   par_tp_kv_cache *cache, const par_tp_matrix *x, par_tp_matrix *y) {
    par__tp_set_layer_name(tp, a->name);
    static const char *const call = "par_tp_attention_cached";
    par__tp_attention_dims s;
    par_tp_attention_block m;
    PAR__TP_TRY(par__tp_attention_check(tp, call, a, tokens, x, 1, &s));
    PAR__TP_CHECK(output, "y", y, s.rows);
    PAR__TP_TRY(par__tp_kv_cache_check(tp, call, a, tokens, cache));
    PAR__TP_TRY(par__tp_kv_cache_append(tp, &s, tokens, cache, x));
    float *lse = (float *)par_tp_scratch(tp, PAR__TP_DQ, s.rows * s.heads * sizeof(float));
    if (!lse) return PAR_ERR_MEMORY;
    par__tp_attention_block_init(&s, a, tokens, 0, &m);
    par__tp_set_shape(y, s.rows, s.q_cols, PAR_TP_HIDDEN);
    if (!tokens->position) return par__tp_attention_dispatch(tp, &s, &m, x, lse, y); // all keys are in x
    PAR__TP_TRY(par__tp_softmax_init(tp, &s, &m, x, lse, y));
    m.q_stride = m.q_count = tokens->sequence;
    m.q_position = tokens->position;
    m.k = cache->data;
    m.v = par__tp_const_element(tp, cache->data, s.kv_cols * cache->capacity);
    m.kv_ld = s.dim;
    m.kv_stride = 2 * s.kv_heads * cache->capacity; // rows of all heads
    m.kv_head_stride = cache->capacity * s.dim;
    m.kv_count = cache->count;
    m.first = 1;
    m.y = y->data;
    return tp->kernels->attention_block_forward(tp, &m);
}

// >>tp_save_bytes -------------------------------------------------------------------------------------------

size_t par_tp_linear_save_bytes(const par_tp *tp, const par_tp_linear *l, size_t rows, int gathered) {
    const size_t t = (size_t)tp->t, e = par_tp_element_bytes(tp);
    if (l->row_parallel) return rows * l->weight.local_cols * e;
    return (tp->desc.sequence_parallel && !gathered ? rows / t : rows) * l->in * e;
}
size_t par_tp_norm_save_bytes(const par_tp *tp, const par_tp_norm *norm, size_t rows) {
    const size_t own = tp->desc.sequence_parallel ? rows / (size_t)tp->t : rows;
    return own * (norm->features * par_tp_element_bytes(tp) + (norm->rms ? 1 : 2) * sizeof(float));
}
size_t par_tp_attention_save_bytes(const par_tp *tp, const par_tp_attention *a, size_t rows) {
    const size_t heads = a->heads / (size_t)tp->t;
    return rows *
           (2 * (heads * a->dim + par__tp_kv_cols(tp, a)) * par_tp_element_bytes(tp) + heads * sizeof(float));
}

static par_result par__tp_take(par_tp *tp, const char *call, par_tp_arena *arena, size_t bytes,
                               void **memory) {
    const size_t at = arena->used;
    arena->used += (bytes + 63) / 64 * 64;
    *memory = NULL;
    if (!arena->data) return PAR_OK;
    if (arena->used > arena->bytes)
        return PAR__TP_FAIL(
            "%s: the arena is full: it has %zu bytes, and %zu are needed so far: take everything "
            "once with data NULL, which counts them",
            call, arena->bytes, arena->used);
    *memory = (char *)arena->data + at;
    return PAR_OK;
}
par_result par_tp_alloc(par_tp *tp, par_tp_arena *arena, size_t rows, size_t cols, par_tp_layout layout,
                        par_tp_matrix *x) {
    par__tp_set_shape(x, rows, cols, layout);
    return par__tp_take(tp, "par_tp_alloc", arena, rows * par_tp_ld(layout, cols) * par_tp_element_bytes(tp),
                        &x->data);
}
par_result par_tp_alloc_floats(par_tp *tp, par_tp_arena *arena, size_t count, float **floats) {
    void *memory;
    const par_result r = par__tp_take(tp, "par_tp_alloc_floats", arena, count * sizeof(float), &memory);
    *floats = (float *)memory;
    return r;
}

par_result par_tp_arena_open(par_tp *tp, par_tp_arena *arena) {
    arena->bytes = arena->used;
    arena->used = 0;
    if (!arena->bytes || !tp->kernels->alloc(tp, arena->bytes, &arena->data)) return PAR_OK;
    arena->data = NULL;
    return par_fail(tp->desc.tp, PAR_ERR_MEMORY, "par_tp_arena_open: no memory for %zu bytes", arena->bytes);
}
void par_tp_arena_close(par_tp *tp, par_tp_arena *arena) {
    if (arena->data) tp->kernels->free(tp, arena->data);
    memset(arena, 0, sizeof *arena);
}

// >>tp_block ------------------------------------------------------------------------------------------------
//
//     x -+- norm1 - qkv - rope - attention - proj - dropout -(+)-> mid
//        +----------------------------------------------------+
//     mid -+- norm2 - up - GELU or SwiGLU - down - dropout -(+)-> y
//          +--------------------------------------------------+
//
// Backward goes from right to left. A product needs its input for its weights' gradient and the gradient of
// its output for both halves. What is kept until when:
//     until the gradient of the input    qkv, lse, mid, up, statistics
//     until the gradients of weights     norm1, att, norm2, act: the products' inputs
//     between the two                    ddown, dup, dproj, dqkv: the gradients of the products' outputs

static void par__tp_block_set_names(par_tp_block *b) {
    static const char *const parts[7] = {"ln1", "attn.qkv", "attn.proj", "ln2", "mlp.up", "mlp.down", "attn"};
    const char **const names[7] = {&b->norm1.name, &b->qkv.name,  &b->proj.name,     &b->norm2.name,
                                   &b->up.name,    &b->down.name, &b->attention.name};
    for (int i = 0; i < 7; i++) {
        snprintf(b->names[i], sizeof b->names[i], "%s%s%s", b->name, b->name[0] ? "." : "", parts[i]);
        *names[i] = b->names[i];
    }
}
static void par__tp_block_set_shapes(par_tp_block *b) {
    const par_tp_attention *a = &b->attention;
    const float deviation = par__tp_deviation(b->deviation);
    const float shrink = b->depth ? sqrtf(2.0f * (float)b->depth) : 1; // of those that end a residual branch
    par_tp_norm *const norms[2] = {&b->norm1, &b->norm2};
    par_tp_linear *const products[4] = {&b->qkv, &b->proj, &b->up, &b->down};
    for (int i = 0; i < 2; i++) {
        memset(norms[i], 0, sizeof *norms[i]);
        norms[i]->features = b->features;
        norms[i]->rms = b->rms;
        norms[i]->epsilon = b->epsilon;
        norms[i]->has_bias = b->has_bias && !b->rms;
    }
    for (int i = 0; i < 4; i++) {
        memset(products[i], 0, sizeof *products[i]);
        products[i]->has_bias = b->has_bias;
        products[i]->recipe = b->recipe;
        products[i]->row_parallel = i % 2;
        products[i]->deviation = i % 2 ? deviation / shrink : deviation;
    }
    par_tp_attention_segments(a, b->qkv.segments);
    b->qkv.segment_count = 3;
    b->qkv.in = b->features;
    for (int i = 0; i < 3; i++) b->qkv.out += b->qkv.segments[i].count;
    b->proj.in = a->heads * a->dim;
    b->proj.out = b->features;
    b->up.in = b->features;
    b->up.out = b->gated ? 2 * b->hidden : b->hidden;
    b->down.in = b->hidden;
    b->down.out = b->features;
    if (b->gated) {
        b->up.segment_count = 2;
        b->up.segments[0].count = b->up.segments[1].count = b->hidden;
    }
}
par_result par_tp_block_open(par_tp *tp, par_tp_block *b) {
    par_tp_attention *a = &b->attention;
    par__tp_set_layer_name(tp, b->name);
    if (!b->features || !a->heads)
        return PAR__TP_FAIL("par_tp_block_open: %zu features and %zu heads: neither may be 0", b->features,
                            a->heads);
    if (!a->dim && b->features % a->heads)
        return PAR__TP_FAIL("par_tp_block_open: %zu features do not divide by %zu heads: set attention.dim",
                            b->features, a->heads);
    if (!a->dim) a->dim = b->features / a->heads;
    if (!b->hidden) b->hidden = 4 * b->features;
    par__tp_block_set_shapes(b);
    par__tp_block_set_names(b);
    PAR__TP_TRY(par_tp_norm_open(tp, &b->norm1));
    PAR__TP_TRY(par_tp_norm_open(tp, &b->norm2));
    PAR__TP_TRY(par_tp_linear_open(tp, &b->qkv));
    PAR__TP_TRY(par_tp_linear_open(tp, &b->proj));
    PAR__TP_TRY(par_tp_linear_open(tp, &b->up));
    return par_tp_linear_open(tp, &b->down);
}
void par_tp_block_parameters(par_tp_block *b, par_tp_parameter *list[PAR_TP_BLOCK_PARAMETERS]) {
    par_tp_parameter *const all[PAR_TP_BLOCK_PARAMETERS] = {
        &b->norm1.weight, &b->norm1.bias, &b->qkv.weight, &b->qkv.bias, &b->proj.weight, &b->proj.bias,
        &b->norm2.weight, &b->norm2.bias, &b->up.weight,  &b->up.bias,  &b->down.weight, &b->down.bias};
    for (int i = 0; i < PAR_TP_BLOCK_PARAMETERS; i++) list[i] = all[i]->rows ? all[i] : NULL;
}

// The memory of what is kept, and of what is computed again.
static par_result par__tp_block_alloc_saved(par_tp *tp, const par_tp_block *b, size_t rows,
                                            const par_tp_block_memory *m, par_tp_arena *scratch,
                                            par_tp_block_saved *s) {
    const int full = m->recompute == PAR_TP_RECOMPUTE_FULL, some = m->recompute != PAR_TP_RECOMPUTE_NONE;
    const size_t own = tp->desc.sequence_parallel ? rows / (size_t)tp->t : rows;
    const par_tp_layout tokens = par__tp_token_layout(tp);
    par_tp_arena *weight = m->weight ? m->weight : m->input, *again = m->between ? m->between : scratch;
    const struct {
        par_tp_matrix *x;
        par_tp_arena *arena;
        size_t cols;
        par_tp_layout layout;
    } list[] = {
        {&s->norm1, some ? again : weight, b->features, tokens},
        {&s->qkv, full ? scratch : m->input, b->qkv.weight.local_rows, PAR_TP_HIDDEN},
        {&s->att, full ? again : weight, b->proj.weight.local_cols, PAR_TP_HIDDEN},
        {&s->mid, full ? scratch : m->input, b->features, tokens},
        {&s->norm2, some ? again : weight, b->features, tokens},
        {&s->up, full ? scratch : m->input, b->up.weight.local_rows, PAR_TP_HIDDEN},
        {&s->act, some ? again : weight, b->down.weight.local_cols, PAR_TP_HIDDEN},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        PAR__TP_TRY(par_tp_alloc(tp, list[i].arena, list[i].layout == PAR_TP_HIDDEN ? rows : own,
                                 list[i].cols, list[i].layout, list[i].x));
    PAR__TP_TRY(par_tp_alloc_floats(tp, some ? scratch : m->input, 2 * own, &s->stats1));
    PAR__TP_TRY(par_tp_alloc_floats(tp, some ? scratch : m->input, 2 * own, &s->stats2));
    return par_tp_alloc_floats(tp, full ? scratch : m->input, rows * (b->attention.heads / (size_t)tp->t),
                               &s->lse);
}
// The memory of gradients. Those of the products' outputs are scratch where backward is one call.
static par_result par__tp_block_alloc_gradients(par_tp *tp, const par_tp_block *b, par_tp_arena *between,
                                                par_tp_arena *scratch, par_tp_block_saved *s) {
    const size_t rows = s->qkv.rows, up = s->up.cols, qkv = s->qkv.cols;
    const size_t wide = PAR__MAX(s->att.cols, s->act.cols);
    PAR__TP_TRY(par_tp_alloc(tp, scratch, s->mid.rows, b->features, s->mid.layout, &s->dy));
    PAR__TP_TRY(par_tp_alloc(tp, scratch, rows, wide, PAR_TP_HIDDEN, &s->wide));
    if (!between) {
        PAR__TP_TRY(par_tp_alloc(tp, scratch, rows, PAR__MAX(up, qkv), PAR_TP_HIDDEN, &s->dup));
        s->dqkv = s->dup;
        s->dqkv.cols = qkv;
        s->dup.cols = up;
        s->ddown = s->dproj = s->dy;
        return PAR_OK;
    }
    PAR__TP_TRY(par_tp_alloc(tp, between, s->mid.rows, b->features, s->mid.layout, &s->ddown));
    PAR__TP_TRY(par_tp_alloc(tp, between, rows, up, PAR_TP_HIDDEN, &s->dup));
    PAR__TP_TRY(par_tp_alloc(tp, between, s->mid.rows, b->features, s->mid.layout, &s->dproj));
    return par_tp_alloc(tp, between, rows, qkv, PAR_TP_HIDDEN, &s->dqkv);
}
par_result par_tp_block_alloc(par_tp *tp, const par_tp_block *b, size_t rows, const par_tp_block_memory *m,
                              par_tp_block_saved *s) {
    par_tp_arena scratch;
    memset(&scratch, 0, sizeof scratch);
    if (m->scratch) {
        scratch.data = m->scratch->data;
        scratch.bytes = m->scratch->bytes;
    }
    par_tp_arena *const arena = m->scratch ? &scratch : m->input;
    memset(s, 0, sizeof *s);
    s->recompute = m->recompute;
    s->halves = m->between != NULL;
    par_result r = par__tp_block_alloc_saved(tp, b, rows, m, arena, s);
    if (!r) r = par__tp_block_alloc_gradients(tp, b, m->between, arena, s);
    if (m->scratch) m->scratch->used = PAR__MAX(m->scratch->used, scratch.used);
    return r;
}

static par_result par__tp_block_rope(par_tp *tp, const par_tp_block *b, const par_tp_tokens *tokens,
                                     int backward, par_tp_matrix *qkv) {
    const size_t kv_heads = par__tp_kv_cols(tp, &b->attention) / b->attention.dim;
    if (!b->rope) return PAR_OK;
    return par_tp_rope(tp, tokens, b->attention.heads / (size_t)tp->t + kv_heads, b->attention.dim,
                       &b->rotary, backward, qkv);
}
static par_result par__tp_block_activate(par_tp *tp, const par_tp_block *b, par_tp_block_saved *s) {
    return b->gated ? par_tp_swiglu_forward(tp, &s->up, &s->act) : par_tp_gelu_forward(tp, &s->up, &s->act);
}
static par_result par__tp_block_dropout(par_tp *tp, const par_tp_block *b, const par_tp_tokens *tokens,
                                        uint64_t stream, par_tp_matrix *x) {
    return b->dropout > 0 ? par_tp_dropout(tp, tokens, stream, b->dropout, x, x) : PAR_OK;
}
// Forward up to the input of the last product: what a full recomputation does again.
static par_result par__tp_block_inner(par_tp *tp, const par_tp_block *b, const par_tp_tokens *tokens,
                                      uint64_t stream, par_tp_kv_cache *cache, const par_tp_matrix *x,
                                      par_tp_block_saved *s) {
    PAR__TP_TRY(par_tp_norm_forward(tp, &b->norm1, x, s->stats1, &s->norm1));
    PAR__TP_TRY(par_tp_linear_forward(tp, &b->qkv, &s->norm1, NULL, &s->qkv));
    PAR__TP_TRY(par__tp_block_rope(tp, b, tokens, 0, &s->qkv));
    if (cache)
        PAR__TP_TRY(par_tp_attention_cached(tp, &b->attention, tokens, cache, &s->qkv, &s->att));
    else
        PAR__TP_TRY(par_tp_attention_forward(tp, &b->attention, tokens, stream, &s->qkv, s->lse, &s->att));
    PAR__TP_TRY(par_tp_linear_forward(tp, &b->proj, &s->att, NULL, &s->mid));
    PAR__TP_TRY(par__tp_block_dropout(tp, b, tokens, stream + 1, &s->mid));
    PAR__TP_TRY(par_tp_add_norm_forward(tp, &b->norm2, &s->mid, x, s->stats2, &s->mid, &s->norm2));
    // a GELU that is computed again is that of the rounded input
    const int fuse = !b->gated && s->recompute != PAR_TP_RECOMPUTE_SELECTIVE;
    PAR__TP_TRY(par__tp_linear_gelu(tp, &b->up, &s->norm2, NULL, &s->up, fuse ? &s->act : NULL));
    return fuse ? PAR_OK : par__tp_block_activate(tp, b, s);
}
static par_result par__tp_block_run(par_tp *tp, const par_tp_block *b, const par_tp_tokens *tokens,
                                    uint64_t stream, par_tp_kv_cache *cache, const par_tp_matrix *x,
                                    par_tp_block_saved *s, par_tp_matrix *y) {
    PAR__TP_TRY(par__tp_block_inner(tp, b, tokens, stream, cache, x, s));
    PAR__TP_TRY(par_tp_linear_forward(tp, &b->down, &s->act, NULL, y));
    PAR__TP_TRY(par__tp_block_dropout(tp, b, tokens, stream + 2, y));
    return par_tp_add(tp, y, &s->mid, y);
}
par_result par_tp_block_forward(par_tp *tp, const par_tp_block *b, const par_tp_tokens *tokens,
                                uint64_t stream, const par_tp_matrix *x, par_tp_block_saved *s,
                                par_tp_matrix *y) {
    return par__tp_block_run(tp, b, tokens, stream, NULL, x, s, y);
}
par_result par_tp_block_cached(par_tp *tp, const par_tp_block *b, const par_tp_tokens *tokens,
                               par_tp_kv_cache *cache, const par_tp_matrix *x, par_tp_block_saved *s,
                               par_tp_matrix *y) {
    par__tp_set_layer_name(tp, b->name);
    if (!cache) return PAR__TP_FAIL("par_tp_block_cached: cache is NULL");
    return par__tp_block_run(tp, b, tokens, 0, cache, x, s, y);
}

static par_result par__tp_block_recompute(par_tp *tp, const par_tp_block *b, const par_tp_tokens *tokens,
                                          uint64_t stream, const par_tp_matrix *x, par_tp_block_saved *s) {
    if (s->recompute == PAR_TP_RECOMPUTE_NONE) return PAR_OK;
    if (s->recompute == PAR_TP_RECOMPUTE_FULL) return par__tp_block_inner(tp, b, tokens, stream, NULL, x, s);
    PAR__TP_TRY(par_tp_norm_forward(tp, &b->norm1, x, s->stats1, &s->norm1));
    PAR__TP_TRY(par_tp_norm_forward(tp, &b->norm2, &s->mid, s->stats2, &s->norm2));
    return par__tp_block_activate(tp, b, s);
}
static par_result par__tp_block_check_halves(const par_tp *tp, const char *call, const par_tp_block *b,
                                             const par_tp_block_saved *s) {
    par__tp_set_layer_name(tp, b->name);
    return s->halves ? PAR_OK
                     : PAR__TP_FAIL("%s: there is no memory for gradients between the halves of backward: "
                                    "set par_tp_block_memory.between",
                                    call);
}
// The gradient of a product's output, from that of the sum after it: the same where nothing is dropped, and a
// copy for the second half of backward.
static par_result par__tp_block_before_sum(par_tp *tp, const par_tp_block *b, const par_tp_tokens *tokens,
                                           uint64_t stream, const par_tp_matrix *sum, int halves,
                                           par_tp_matrix *own, const par_tp_matrix **gradient) {
    *gradient = halves || b->dropout > 0 ? own : sum;
    return *gradient == own ? par_tp_dropout(tp, tokens, stream, b->dropout, sum, own) : PAR_OK;
}
static par_result par__tp_block_gradients(par_tp *tp, par_tp_block *b, const par_tp_tokens *tokens,
                                          uint64_t stream, const par_tp_matrix *dy, const par_tp_matrix *x,
                                          par_tp_block_saved *s, par_tp_matrix *dx, int grads) {
    const par_tp_matrix *gradient;
    PAR__TP_TRY(par__tp_block_recompute(tp, b, tokens, stream, x, s));
    PAR__TP_TRY(par__tp_block_before_sum(tp, b, tokens, stream + 2, dy, s->halves, &s->ddown, &gradient));
    PAR__TP_TRY(par__tp_linear_gradients(tp, &b->down, gradient, &s->act, b->gated ? NULL : &s->up,
                                         b->gated ? &s->wide : &s->dup, grads));
    if (b->gated) PAR__TP_TRY(par_tp_swiglu_backward(tp, &s->wide, &s->up, &s->dup));
    PAR__TP_TRY(par__tp_linear_gradients(tp, &b->up, &s->dup, &s->norm2, NULL, &s->dy, grads));
    PAR__TP_TRY(par_tp_norm_backward_add(tp, &b->norm2, &s->dy, &s->mid, s->stats2, dy, dx));
    PAR__TP_TRY(par__tp_block_before_sum(tp, b, tokens, stream + 1, dx, s->halves, &s->dproj, &gradient));
    PAR__TP_TRY(par__tp_linear_gradients(tp, &b->proj, gradient, &s->att, NULL, &s->wide, grads));
    PAR__TP_TRY(par_tp_attention_backward(tp, &b->attention, tokens, stream, &s->wide, &s->qkv, &s->att,
                                          s->lse, &s->dqkv));
    PAR__TP_TRY(par__tp_block_rope(tp, b, tokens, 1, &s->dqkv));
    PAR__TP_TRY(par__tp_linear_gradients(tp, &b->qkv, &s->dqkv, &s->norm1, NULL, &s->dy, grads));
    return par_tp_norm_backward_add(tp, &b->norm1, &s->dy, x, s->stats1, dx, dx);
}
par_result par_tp_block_backward(par_tp *tp, par_tp_block *b, const par_tp_tokens *tokens, uint64_t stream,
                                 const par_tp_matrix *dy, const par_tp_matrix *x, par_tp_block_saved *s,
                                 par_tp_matrix *dx) {
    return par__tp_block_gradients(tp, b, tokens, stream, dy, x, s, dx, PAR__TP_DGRAD | PAR__TP_WGRAD);
}
par_result par_tp_block_backward_input(par_tp *tp, par_tp_block *b, const par_tp_tokens *tokens,
                                       uint64_t stream, const par_tp_matrix *dy, const par_tp_matrix *x,
                                       par_tp_block_saved *s, par_tp_matrix *dx) {
    PAR__TP_TRY(par__tp_block_check_halves(tp, "par_tp_block_backward_input", b, s));
    return par__tp_block_gradients(tp, b, tokens, stream, dy, x, s, dx, PAR__TP_DGRAD);
}
par_result par_tp_block_backward_weight(par_tp *tp, par_tp_block *b, const par_tp_block_saved *s) {
    PAR__TP_TRY(par__tp_block_check_halves(tp, "par_tp_block_backward_weight", b, s));
    PAR__TP_TRY(par_tp_linear_backward_weight(tp, &b->down, &s->ddown, &s->act));
    PAR__TP_TRY(par_tp_linear_backward_weight(tp, &b->up, &s->dup, &s->norm2));
    PAR__TP_TRY(par_tp_linear_backward_weight(tp, &b->proj, &s->dproj, &s->att));
    return par_tp_linear_backward_weight(tp, &b->qkv, &s->dqkv, &s->norm1);
}

PAR__EXACT_END
PAR__FORMULAS_BEGIN

// >>tp_loops ------------------------------------------------------------------------------------------------
//
// The loops over elements, as inline functions in plain C. PAR__LOOP_TABLES compiles each once per
// instruction set. Inner loops have a fixed length, because gcc -O2 vectorizes only those. A sum runs in
// PAR__STRIP lanes, which are added at the end in an order that does not depend on the instruction set.

PAR__INLINE_LOOP float par__tp_sum_lanes(float *lanes,
                                         size_t n) { // fewer than a strip are all in the first 16
    for (int d = n < PAR__STRIP ? 8 : PAR__STRIP / 2; d; d /= 2)
        for (int j = 0; j < d; j++) lanes[j] += lanes[j + d];
    return lanes[0];
}

// Loops over matrices of the storage type: bf16 or f32. Their arithmetic is f32; results are rounded once.
PAR__INLINE_LOOP float par__tp_get(const void *x, size_t i, int bf16) {
    return bf16 ? par__bf16_widen(((const par_bf16 *)x)[i]) : ((const float *)x)[i];
}
PAR__INLINE_LOOP void par__tp_put(void *x, size_t i, float value, int bf16) {
    if (bf16)
        ((par_bf16 *)x)[i] = par__bf16_narrow(value);
    else
        ((float *)x)[i] = value;
}
// A statement in which `name` is a constant, 1 or 0, as the flag is: so it is compiled for each.
#define PAR__TP_EACH(flag, name, ...)                                                                        \
    do {                                                                                                     \
        if (flag) {                                                                                          \
            const int name = 1;                                                                              \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            const int name = 0;                                                                              \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    } while (0)
// PAR__VECTOR for each type; its statements read and write by get and put, with `bf16`. Not by PAR__TP_EACH:
// gcc may forget pragmas of loops in a macro's arguments.
#define PAR__TP_VECTOR(i, n, is_bf16, ...)                                                                   \
    do {                                                                                                     \
        if (is_bf16) {                                                                                       \
            const int bf16 = 1;                                                                              \
            PAR__VECTOR(i, n, __VA_ARGS__);                                                                  \
        } else {                                                                                             \
            const int bf16 = 0;                                                                              \
            PAR__VECTOR(i, n, __VA_ARGS__);                                                                  \
        }                                                                                                    \
    } while (0)
// The loops of par_tp_elementwise, by the names of its list: o0, o1 from a, b, c.
#define PAR__TP_ELEMENTWISE                                                                                  \
    (void *o0, void *o1, const void *a, const void *b, const void *c, size_t n, int is_bf16)
#define PAR__TP_ELEMENTWISE_LOOP(name, ...)                                                                  \
    PAR__INLINE_LOOP void par__tp_##name PAR__TP_ELEMENTWISE {                                               \
        (void)o1;                                                                                            \
        (void)b;                                                                                             \
        (void)c;                                                                                             \
        PAR__TP_VECTOR(i, n, is_bf16, const float x = par__tp_get(a, i, bf16); __VA_ARGS__);                 \
    }
PAR__TP_ELEMENTWISE_LOOP(gelu, par__tp_put(o0, i, par__tp_gelu_gate(x) * x, bf16))
PAR__TP_ELEMENTWISE_LOOP(gelu_backward,
                         par__tp_put(o0, i, par__tp_gelu_gradient(x, par__tp_get(b, i, bf16)), bf16))
PAR__TP_ELEMENTWISE_LOOP(swiglu, par__tp_put(o0, i, par__tp_silu(x) * par__tp_get(b, i, bf16), bf16))
PAR__TP_ELEMENTWISE_LOOP(swiglu_backward, float dup; // x: dy, b: gate, c: up
                         const float dgate = par__tp_swiglu_gradient(x, par__tp_get(b, i, bf16),
                                                                     par__tp_get(c, i, bf16), &dup);
                         par__tp_put(o0, i, dgate, bf16); par__tp_put(o1, i, dup, bf16))
PAR__TP_ELEMENTWISE_LOOP(add, par__tp_put(o0, i, x + par__tp_get(b, i, bf16), bf16))

// Drops each element with probability p, by 32 random bits.
PAR__INLINE_LOOP void par__tp_drop(float *y, const float *x, const uint32_t *words, size_t n, float p) {
    const uint32_t limit = par__tp_dropout_limit(p);
    const float scale = par__tp_dropout_scale(p);
    PAR__VECTOR(i, n, const float kept = x[i] * scale;
                y[i] = par__tp_is_dropped(words[i], limit) ? 0.0f : kept);
}
PAR__INLINE_LOOP void par__tp_axpy(float *y, const void *x, float f, size_t n, int is_bf16) { // y += f x
    PAR__TP_VECTOR(i, n, is_bf16, y[i] += f * par__tp_get(x, i, bf16));
}
PAR__INLINE_LOOP void par__tp_scale(float *y, const float *x, float f, size_t n) {
    PAR__VECTOR(i, n, y[i] = f * x[i]);
}
// Dot products of short rows, in 16 lanes each.
PAR__INLINE_LOOP void par__tp_row_dots(float *dot, const float *a, const float *b, size_t rows, size_t n) {
    for (size_t r = 0; r < rows; r++, a += n, b += n) {
        float lanes[16] = {0};
        size_t i = 0;
        for (; i + 16 <= n; i += 16)
            PAR__IVDEP for (size_t j = 0; j < 16; j++) lanes[j] += a[i + j] * b[i + j];
        for (; i < n; i++) lanes[i & 15u] += a[i] * b[i];
        dot[r] = par__tp_sum_lanes(lanes, 16);
    }
}
// Products of a row x and rows w[k] of a matrix, f32 or bf16, in 16 lanes each, a cache line after the other.
// Lines of bf16 are read as 16 pairs, so x is as par__tp_pairs leaves it: of each 32 numbers first those of
// even index, then the others.
PAR__INLINE_LOOP void par__tp_pairs(float *to, const par_bf16 *x, size_t n) {
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (size_t j = 0; j < 32; j++) to[i + j / 2 + j % 2 * 16] = par__bf16_widen(x[i + j]);
    for (; i < n; i++) to[i] = par__bf16_widen(x[i]);
}
PAR__INLINE_LOOP void par__tp_unpair(float *x, size_t n) { // back to their order
    for (size_t i = 0; i + 32 <= n; i += 32) {
        float even[16], odd[16];
        memcpy(even, x + i, sizeof even);
        memcpy(odd, x + i + 16, sizeof odd);
        for (size_t j = 0; j < 16; j++) {
            x[i + 2 * j] = even[j];
            x[i + 2 * j + 1] = odd[j];
        }
    }
}
#if defined(__has_builtin) && !defined(__CUDACC__)
#if __has_builtin(__builtin_shufflevector)
#define PAR__TP_HAS_SHUFFLE
#endif
#endif
#if !defined(__CUDACC__)
typedef float par__tp_f32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef float par__tp_f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float par__tp_f32x4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t par__tp_u32x16 __attribute__((vector_size(64), aligned(2), may_alias)); // pairs of bf16
typedef uint32_t par__tp_u32x8 __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t par__tp_u32x4 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint16_t par__tp_u16x16 __attribute__((vector_size(32), aligned(2), may_alias));
// sums[k] = the products of x and row k, of which each has whole lines. A line is multiplied in vectors of N
// lanes, as the processor has them, because gcc keeps wider ones in memory: V of them at a time, of so many
// rows that their sums stay in registers.
#define PAR__TP_4_ROWS(X) X(0) X(1) X(2) X(3)
#define PAR__TP_8_ROWS(X) PAR__TP_4_ROWS(X) X(4) X(5) X(6) X(7)
#define PAR__TP_ROW_OPEN(k)                                                                                  \
    const char *const w##k = w[k] + 4 * first;                                                               \
    vector s##k = {0}, t##k = {0};
#define PAR__TP_ROW_AHEAD(k) __builtin_prefetch(w##k + i + PAR__TP_AHEAD);
#define PAR__TP_ROW_F32(k)                                                                                   \
    s##k += x0 * *(const vector *)(const void *)(w##k + i);                                                  \
    if (two) t##k += x1 * *(const vector *)(const void *)(w##k + i + 4 * lanes);
#define PAR__TP_ROW_BF16(k)                                                                                  \
    p = *(const pairs *)(const void *)(w##k + i);                                                            \
    s##k += x0 * (vector)(p << 16);                                                                          \
    s##k += y0 * (vector)(p & 0xffff0000u);                                                                  \
    if (two) {                                                                                               \
        p = *(const pairs *)(const void *)(w##k + i + 4 * lanes);                                            \
        t##k += x1 * (vector)(p << 16);                                                                      \
        t##k += y1 * (vector)(p & 0xffff0000u);                                                              \
    }
#define PAR__TP_ROW_CLOSE(k)                                                                                 \
    *(vector *)(sums + 16 * k + first) = s##k;                                                               \
    if (two) *(vector *)(sums + 16 * k + first + lanes) = t##k;
#define PAR__TP_DOT_ROWS(N, V, ROWS)                                                                         \
    PAR__INLINE_LOOP void par__tp_dot_rows_##N(float *sums, const float *x, const char *const *w,            \
                                               size_t bytes, int bf16) {                                     \
        typedef par__tp_f32x##N vector;                                                                      \
        typedef par__tp_u32x##N pairs;                                                                       \
        enum { lanes = N, two = V == 2 };                                                                    \
        for (size_t first = 0; first < 16; first += N * V) {                                                 \
            const float *from = x + first;                                                                   \
            ROWS(PAR__TP_ROW_OPEN)                                                                           \
            for (size_t i = 0; i < bytes; i += 64, from += bf16 ? 32 : 16) {                                 \
                const vector x0 = *(const vector *)from, x1 = *(const vector *)(from + (two ? N : 0));       \
                if (bf16) {                                                                                  \
                    const vector y0 = *(const vector *)(from + 16);                                          \
                    const vector y1 = *(const vector *)(from + 16 + (two ? N : 0));                          \
                    pairs p;                                                                                 \
                    if (!first) {                                                                            \
                        ROWS(PAR__TP_ROW_AHEAD)                                                              \
                    }                                                                                        \
                    ROWS(PAR__TP_ROW_BF16)                                                                   \
                } else {                                                                                     \
                    ROWS(PAR__TP_ROW_F32)                                                                    \
                }                                                                                            \
            }                                                                                                \
            ROWS(PAR__TP_ROW_CLOSE)                                                                          \
        }                                                                                                    \
    }
// y += the sum of p[k] times row k, of eight rows w[k], each of whole lines
#define PAR__TP_ADD_8_ROWS(N)                                                                                \
    PAR__INLINE_LOOP void par__tp_add_8_rows_##N(float *y, const float *p, const char *const *w,             \
                                                 size_t bytes, int bf16) {                                   \
        typedef par__tp_f32x##N vector;                                                                      \
        typedef par__tp_u32x##N pairs;                                                                       \
        for (size_t at = 0; at < bytes; at += 4 * N) {                                                       \
            float *const to = y + at / 64 * (bf16 ? 32 : 16) + at % 64 / 4;                                  \
            vector t0 = *(const vector *)to, t1 = t0;                                                        \
            if (bf16) t1 = *(const vector *)(to + 16);                                                       \
            for (size_t k = 0; k < 8; k++) {                                                                 \
                const void *from = w[k] + at;                                                                \
                if (bf16) {                                                                                  \
                    const pairs two = *(const pairs *)from;                                                  \
                    t0 += p[k] * (vector)(two << 16);                                                        \
                    t1 += p[k] * (vector)(two & 0xffff0000u);                                                \
                } else {                                                                                     \
                    t0 += p[k] * *(const vector *)from;                                                      \
                }                                                                                            \
            }                                                                                                \
            *(vector *)to = t0;                                                                              \
            if (bf16) *(vector *)(to + 16) = t1;                                                             \
        }                                                                                                    \
    }
enum { PAR__TP_AHEAD = 256 }; // bytes of a row from what is multiplied to what is prefetched, of bf16
PAR__TP_DOT_ROWS(4, 2, PAR__TP_4_ROWS)
PAR__TP_DOT_ROWS(8, 2, PAR__TP_4_ROWS)
PAR__TP_DOT_ROWS(16, 1, PAR__TP_8_ROWS)
PAR__TP_ADD_8_ROWS(4)
PAR__TP_ADD_8_ROWS(8)
PAR__TP_ADD_8_ROWS(16)
#define PAR__TP_PICK_LANES(name, lanes, ...)                                                                 \
    if ((lanes) == 16)                                                                                       \
        par__tp_##name##_16(__VA_ARGS__);                                                                    \
    else if ((lanes) == 8)                                                                                   \
        par__tp_##name##_8(__VA_ARGS__);                                                                     \
    else                                                                                                     \
        par__tp_##name##_4(__VA_ARGS__)
#else
#define PAR__TP_PICK_LANES(name, lanes, ...) (void)(lanes), par__tp_##name(__VA_ARGS__)
// Where number i of a row is in x: as par__tp_pairs leaves those of bf16.
static size_t par__tp_paired(size_t i, int bf16) { return bf16 ? i - i % 32 + i % 32 / 2 + i % 2 * 16 : i; }
static void par__tp_dot_rows(float *sums, const float *x, const char *const *w, size_t bytes, int bf16) {
    memset(sums, 0, 4 * 16 * sizeof *sums);
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0, n = bf16 ? bytes / 2 : bytes / 4; i < n; i++) {
            const size_t j = par__tp_paired(i, bf16);
            sums[16 * k + j % 16] += x[j] * par__tp_get(w[k], i, bf16);
        }
}
static void par__tp_add_8_rows(float *y, const float *p, const char *const *w, size_t bytes, int bf16) {
    for (size_t k = 0; k < 8; k++)
        for (size_t i = 0, n = bf16 ? bytes / 2 : bytes / 4; i < n; i++)
            y[par__tp_paired(i, bf16)] += p[k] * par__tp_get(w[k], i, bf16);
}
#endif
// y = the sums of the 16 lanes of each of four rows, added by halves
#ifdef PAR__TP_HAS_SHUFFLE
PAR__INLINE_LOOP par__tp_f32x4 par__tp_quarter_sum(const float *lanes) {
    const par__tp_f32x8 *s = (const par__tp_f32x8 *)lanes, half = s[0] + s[1];
    return __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
}
PAR__INLINE_LOOP void par__tp_sum_4_rows(float *y, const float *lanes) {
    const par__tp_f32x4 i = par__tp_quarter_sum(lanes), j = par__tp_quarter_sum(lanes + 16);
    const par__tp_f32x4 k = par__tp_quarter_sum(lanes + 32), l = par__tp_quarter_sum(lanes + 48);
    const par__tp_f32x4 ij = // i0 + i2, j0 + j2, i1 + i3, j1 + j3
        __builtin_shufflevector(i, j, 0, 4, 1, 5) + __builtin_shufflevector(i, j, 2, 6, 3, 7);
    const par__tp_f32x4 kl =
        __builtin_shufflevector(k, l, 0, 4, 1, 5) + __builtin_shufflevector(k, l, 2, 6, 3, 7);
    *(par__tp_f32x4 *)(void *)y =
        __builtin_shufflevector(ij, kl, 0, 1, 4, 5) + __builtin_shufflevector(ij, kl, 2, 3, 6, 7);
}
#else
PAR__INLINE_LOOP void par__tp_sum_4_rows(float *y, float *lanes) {
    for (size_t r = 0; r < 4; r++) y[r] = par__tp_sum_lanes(lanes + 16 * r, 16);
}
#endif
// Adds the products of the numbers behind the last whole line, up to 31.
PAR__INLINE_LOOP void par__tp_fma_rest(float *sums, const float *x, const void *w, size_t n, int bf16) {
    const size_t whole = n / (bf16 ? 32 : 16) * (bf16 ? 32 : 16);
    for (size_t i = whole; i < n; i++) sums[i % 16] += x[i] * par__tp_get(w, i, bf16);
}
PAR__INLINE_LOOP void par__tp_gemv_of(float *y, size_t y_ld, const float *x, size_t count, const void *w,
                                      int bf16, size_t ld, size_t rows, size_t n, int lanes) {
    const size_t e = bf16 ? 2 : 4, bytes = n * e / 64 * 64;
    const size_t parts = lanes == 16 ? 8 : 4, part = (rows + parts - 1) / parts;
    for (size_t r = 0; r < part; r++) {
        const char *at[8]; // the last row again where there are fewer
        for (size_t k = 0; k < parts; k++)
            at[k] = (const char *)w + PAR__MIN(r + k * part, rows - 1) * ld * e;
        for (size_t i = 0; i < count; i++) {
            float sums[8 * 16], out[8];
            PAR__TP_PICK_LANES(dot_rows, lanes, sums, x + i * n, at, bytes, bf16);
            for (size_t k = 0; k < parts && bytes < n * e; k++)
                par__tp_fma_rest(sums + 16 * k, x + i * n, at[k], n, bf16);
            for (size_t k = 0; k < parts; k += 4) par__tp_sum_4_rows(out + k, sums + 16 * k);
            for (size_t k = 0; k < parts && r + k * part < rows; k++) y[i * y_ld + r + k * part] = out[k];
        }
    }
}
// y[i][r] = the dot product of x[i] and row r of w, for `count` rows x[i] of n numbers. W is read once, so
// the memory's speed counts: of four or eight parts, each in order, processors fetch more at once than of
// one.
PAR__INLINE_LOOP void par__tp_gemv(float *y, size_t y_ld, const float *x, size_t count, const void *w,
                                   int bf16, size_t ld, size_t rows, size_t n, int lanes) {
    PAR__TP_EACH(bf16, of_bf16, par__tp_gemv_of(y, y_ld, x, count, w, of_bf16, ld, rows, n, lanes));
}
PAR__INLINE_LOOP void par__tp_add_weighted_of(float *y, const float *p, size_t p_ld, size_t count,
                                              const void *w, int bf16, size_t ld, size_t rows, size_t n,
                                              int lanes) {
    const size_t e = bf16 ? 2 : 4, bytes = n * e / 64 * 64, part = (rows + 7) / 8 * 2;
    for (size_t r = 0; r < part; r += 2) {
        size_t row[8]; // the last one again where there are fewer
        const char *at[8];
        for (size_t k = 0; k < 8; k++) {
            row[k] = PAR__MIN(k / 2 * part + r + k % 2, rows - 1);
            at[k] = (const char *)w + row[k] * ld * e;
        }
        for (size_t i = 0; i < count; i++) {
            float f[8], *to = y + i * n;
            for (size_t k = 0; k < 8; k++) f[k] = k / 2 * part + r + k % 2 < rows ? p[i * p_ld + row[k]] : 0;
            PAR__TP_PICK_LANES(add_8_rows, lanes, to, f, at, bytes, bf16);
            for (size_t j = bytes / e; j < n; j++)
                for (size_t k = 0; k < 8; k++) to[j] += f[k] * par__tp_get(at[k], j, bf16);
        }
    }
}
// y[i] += the sum over the rows r of w of p[i][r] times row r, eight after eight: two of each quarter, for
// the same reason. Of bf16 y is as par__tp_pairs leaves it.
PAR__INLINE_LOOP void par__tp_add_weighted(float *y, const float *p, size_t p_ld, size_t count, const void *w,
                                           int bf16, size_t ld, size_t rows, size_t n, int lanes) {
    PAR__TP_EACH(bf16, of_bf16, par__tp_add_weighted_of(y, p, p_ld, count, w, of_bf16, ld, rows, n, lanes));
}
PAR__INLINE_LOOP float par__tp_row_sum(const float *x, size_t n) {
    float lanes[PAR__STRIP] = {0};
    PAR__VECTOR(i, n, lanes[lane] += x[i]);
    return par__tp_sum_lanes(lanes, n);
}
PAR__INLINE_LOOP float par__tp_row_max(const float *x, size_t n) {
    float lanes[PAR__STRIP];
    for (int j = 0; j < PAR__STRIP; j++) lanes[j] = -INFINITY;
    PAR__VECTOR(i, n, lanes[lane] = x[i] > lanes[lane] ? x[i] : lanes[lane]);
    for (int d = PAR__STRIP / 2; d; d /= 2)
        for (int j = 0; j < d; j++) lanes[j] = lanes[j] > lanes[j + d] ? lanes[j] : lanes[j + d];
    return lanes[0];
}
PAR__INLINE_LOOP float par__tp_row_exp_sum(const float *x, float row_max, size_t n) {
    float lanes[PAR__STRIP] = {0};
    PAR__VECTOR(i, n, lanes[lane] += par__tp_exp(x[i] - row_max));
    return par__tp_sum_lanes(lanes, n);
}
PAR__INLINE_LOOP void par__tp_logit_gradients(float *y, const float *x, float lse, float factor, float smooth,
                                              size_t n) {
    PAR__VECTOR(i, n, y[i] = par__tp_logit_gradient(x[i], lse, factor, smooth));
}

// *sum = the sum of s[i] = e^(scale s[i] - max), where max is the maximum of scale s[i].
PAR__INLINE_LOOP float par__tp_softmax_row(float *s, float scale, size_t n, float *sum) {
    const float max = scale * par__tp_row_max(s, n);
    float lanes[PAR__STRIP] = {0};
    PAR__VECTOR(i, n, const float p = par__tp_exp(scale * s[i] - max); s[i] = p; lanes[lane] += p);
    *sum = par__tp_sum_lanes(lanes, n);
    return max;
}
// Attention computes the scores of PAR__TP_STRIP queries at a time, s[key][query], so that maxima and sums
// run down columns. Its loops take a whole strip; `keys` is even.
enum { PAR__TP_STRIP = 32 };
// y[r][j] = f[j] x[r][j]
PAR__INLINE_LOOP void par__tp_scale_strip(float *y, const float *x, const float *f, size_t rows) {
    for (size_t r = 0; r < rows; r++, x += PAR__TP_STRIP, y += PAR__TP_STRIP)
        PAR__LANES(j, 0, (size_t)PAR__TP_STRIP, y[j] = f[j] * x[j])
}
// Two numbers rounded to bf16, as products of bf16 take them: x in the low half. A NaN that was computed from
// bf16 stays one, as its low bits are 0.
PAR__INLINE_LOOP uint32_t par__tp_two_bf16(float x, float y) {
    const uint32_t a = par__f32_to_bits(x), b = par__f32_to_bits(y);
    const uint32_t low = (a + 0x7fffu + ((a >> 16) & 1u)) >> 16;
    return low | ((b + 0x7fffu + ((b >> 16) & 1u)) & 0xffff0000u);
}
// One step of the online softmax: updates the maximum over the keys, replaces s by e^(s - max), updates the
// sums, and writes to rescale the factor e^(old max - new max) for what was summed before. Masked scores
// (-inf) become 0. mask (or NULL) has a factor for each e^(s - max), after the sums. pairs (or NULL) receives
// the results rounded to bf16, two keys together, instead of s.
PAR__INLINE_LOOP void par__tp_softmax_strip(float *s, size_t ld, size_t keys, float *row_max, float *sum,
                                            float *rescale, const float *mask, uint32_t *pairs, int masked,
                                            int narrow) {
    float max[PAR__TP_STRIP], total[PAR__TP_STRIP] = {0};
    size_t k = 0;
    memcpy(max, row_max, sizeof max);
    for (; k + 4 <= keys; k += 4) {
        const float *a = s + k * ld, *b = a + ld, *c = b + ld, *d = c + ld;
        PAR__LANES(j, 0, (size_t)PAR__TP_STRIP, const float x = par__tp_max(a[j], b[j]);
                   const float y = par__tp_max(c[j], d[j]); max[j] = par__tp_max(par__tp_max(x, y), max[j]))
    }
    for (; k < keys; k++) PAR__LANES(j, 0, (size_t)PAR__TP_STRIP, max[j] = par__tp_max(s[k * ld + j], max[j]))
    PAR__LANES(j, 0, (size_t)PAR__TP_STRIP, rescale[j] = par__tp_softmax_weight(row_max[j], max[j]))
    for (k = 0; k < keys; k += 2, s += 2 * ld) {
        float *a = s, *b = s + ld;
        PAR__LANES(
            j, 0, (size_t)PAR__TP_STRIP, float x = par__tp_softmax_weight(a[j], max[j]);
            float y = par__tp_softmax_weight(b[j], max[j]); total[j] += x + y; if (masked) {
                x *= mask[j];
                y *= mask[PAR__TP_STRIP + j];
            } if (narrow) pairs[j] = par__tp_two_bf16(x, y);
            else {
                a[j] = x;
                b[j] = y;
            })
        if (masked) mask += 2 * PAR__TP_STRIP;
        if (narrow) pairs += PAR__TP_STRIP;
    }
    PAR__LANES(j, 0, (size_t)PAR__TP_STRIP, row_max[j] = max[j]; sum[j] = sum[j] * rescale[j] + total[j])
}
PAR__INLINE_LOOP void par__tp_online_softmax(float *s, size_t ld, size_t keys, float *row_max, float *sum,
                                             float *rescale, const float *mask, uint32_t *pairs) {
    PAR__TP_EACH(
        mask != NULL, masked,
        PAR__TP_EACH(pairs != NULL, narrow,
                     par__tp_softmax_strip(s, ld, keys, row_max, sum, rescale, mask, pairs, masked, narrow)));
}
// The softmax backward: s becomes the probabilities p = e^(s - lse), and g becomes ds = (g - dot) p scale.
// With a mask g is multiplied by it first, and p after its last use. For products of bf16, rows of p and ds
// are written to narrow[0] and narrow[1], narrow_ld numbers apart, and ds to pairs, instead of s and g.
typedef struct par__tp_softmax_gradient {
    float *s, *g;
    size_t ld, keys;
    const float *lse, *dot, *mask; // mask: or NULL
    float scale;
    par_bf16 *narrow[2]; // or NULL
    size_t narrow_ld;
    uint32_t *pairs;
} par__tp_softmax_gradient;
PAR__INLINE_LOOP void par__tp_softmax_backward_rows(const par__tp_softmax_gradient *o, size_t k, int masked,
                                                    int narrow) {
    float *s0 = o->s + k * o->ld, *s1 = s0 + o->ld, *g0 = o->g + k * o->ld, *g1 = g0 + o->ld;
    const float *lse = o->lse, *dot = o->dot, *m0 = masked ? o->mask + k * PAR__TP_STRIP : NULL,
                *m1 = masked ? m0 + PAR__TP_STRIP : NULL;
    par_bf16 *p0 = narrow ? o->narrow[0] + k * o->narrow_ld : NULL, *p1 = narrow ? p0 + o->narrow_ld : NULL;
    par_bf16 *d0 = narrow ? o->narrow[1] + k * o->narrow_ld : NULL, *d1 = narrow ? d0 + o->narrow_ld : NULL;
    uint32_t *pairs = narrow ? o->pairs + k / 2 * PAR__TP_STRIP : NULL;
    const float scale = o->scale;
    PAR__LANES(
        j, 0, (size_t)PAR__TP_STRIP, float x = par__tp_softmax_weight(s0[j], lse[j]);
        float y = par__tp_softmax_weight(s1[j], lse[j]); const float gx = masked ? g0[j] * m0[j] : g0[j];
        const float gy = masked ? g1[j] * m1[j] : g1[j];
        const float dx = par__tp_score_gradient(x, gx, dot[j], scale);
        const float dy = par__tp_score_gradient(y, gy, dot[j], scale); if (masked) {
            x *= m0[j];
            y *= m1[j];
        } if (narrow) {
            const uint32_t p = par__tp_two_bf16(x, y), d = par__tp_two_bf16(dx, dy);
            p0[j] = (par_bf16)p;
            p1[j] = (par_bf16)(p >> 16);
            d0[j] = (par_bf16)d;
            d1[j] = (par_bf16)(d >> 16);
            pairs[j] = d;
        } else {
            s0[j] = x;
            s1[j] = y;
            g0[j] = dx;
            g1[j] = dy;
        })
}
PAR__INLINE_LOOP void par__tp_softmax_backward(const par__tp_softmax_gradient *o) {
    const par__tp_softmax_gradient m = *o;
    for (size_t k = 0; k < m.keys; k += 2)
        PAR__TP_EACH(
            m.mask != NULL, masked,
            PAR__TP_EACH(m.pairs != NULL, narrow, par__tp_softmax_backward_rows(&m, k, masked, narrow)));
}

PAR__INLINE_LOOP void par__tp_norm_row_of(void *y, float *stats, const void *x, const float *w,
                                          const float *b, size_t n, int rms, float epsilon, int bf16) {
    float sums[PAR__STRIP] = {0}, lanes[PAR__STRIP] = {0};
    if (!rms) PAR__VECTOR(i, n, sums[lane] += par__tp_get(x, i, bf16));
    const float mean = rms ? 0 : par__tp_sum_lanes(sums, n) / (float)n;
    PAR__VECTOR(i, n, const float d = par__tp_get(x, i, bf16) - mean; lanes[lane] += d * d);
    const float rstd = par__tp_rstd(par__tp_sum_lanes(lanes, n), n, epsilon);
    if (b) {
        PAR__VECTOR(i, n, const float h = par__tp_normalized(par__tp_get(x, i, bf16), mean, rstd);
                    par__tp_put(y, i, h * w[i] + b[i], bf16));
    } else {
        PAR__VECTOR(i, n, const float h = par__tp_normalized(par__tp_get(x, i, bf16), mean, rstd);
                    par__tp_put(y, i, h * w[i], bf16));
    }
    if (!rms) *stats++ = mean;
    *stats = rstd;
}
PAR__INLINE_LOOP void par__tp_norm_row(void *y, float *stats, const void *x, const float *w, const float *b,
                                       size_t n, int rms, float epsilon, int is_bf16) {
    PAR__TP_EACH(is_bf16, bf16, par__tp_norm_row_of(y, stats, x, w, b, n, rms, epsilon, bf16));
}
PAR__INLINE_LOOP void par__tp_norm_row_backward_of(void *dx, float *dw, float *db, const void *dy,
                                                   const void *x, const float *w, const float *stats,
                                                   size_t n, int rms, int bf16) {
    const float mean = rms ? 0 : stats[0], rstd = stats[rms ? 0 : 1];
    float sums[PAR__STRIP] = {0}, dots[PAR__STRIP] = {0};
    PAR__VECTOR(i, n, const float g = par__tp_get(dy, i, bf16) * w[i];
                const float h = par__tp_normalized(par__tp_get(x, i, bf16), mean, rstd); sums[lane] += g;
                dots[lane] += g * h);
    const float sum = rms ? 0 : par__tp_sum_lanes(sums, n) / (float)n,
                dot = par__tp_sum_lanes(dots, n) / (float)n;
    if (dw) {
        PAR__VECTOR(i, n, dw[i] += par__tp_get(dy, i, bf16) * (par__tp_get(x, i, bf16) - mean) * rstd);
    }
    if (db) {
        PAR__VECTOR(i, n, db[i] += par__tp_get(dy, i, bf16));
    }
    PAR__VECTOR(i, n, const float h = par__tp_normalized(par__tp_get(x, i, bf16), mean, rstd); par__tp_put(
                    dx, i, par__tp_norm_gradient(par__tp_get(dy, i, bf16), w[i], h, rstd, sum, dot), bf16));
}
PAR__INLINE_LOOP void par__tp_norm_row_backward(void *dx, float *dw, float *db, const void *dy, const void *x,
                                                const float *w, const float *stats, size_t n, int rms,
                                                int is_bf16) {
    PAR__TP_EACH(is_bf16, bf16, par__tp_norm_row_backward_of(dx, dw, db, dy, x, w, stats, n, rms, bf16));
}
// Transposes: to[c][r] = x[r][c], in squares of 4 x 4 by vector shuffles, the edges element by element.
#ifdef PAR__TP_HAS_SHUFFLE
PAR__INLINE_LOOP void par__tp_transpose_4x4(float *to, size_t to_ld, const float *x, size_t ld) {
    const par__tp_f32x4 a = *(const par__tp_f32x4 *)x, b = *(const par__tp_f32x4 *)(x + ld);
    const par__tp_f32x4 c = *(const par__tp_f32x4 *)(x + 2 * ld), d = *(const par__tp_f32x4 *)(x + 3 * ld);
    const par__tp_f32x4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5); // a0 b0 a1 b1
    const par__tp_f32x4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const par__tp_f32x4 ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7); // a2 b2 a3 b3
    const par__tp_f32x4 cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(par__tp_f32x4 *)to = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
    *(par__tp_f32x4 *)(to + to_ld) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
    *(par__tp_f32x4 *)(to + 2 * to_ld) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    *(par__tp_f32x4 *)(to + 3 * to_ld) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}
#endif
PAR__INLINE_LOOP void par__tp_transpose(float *to, size_t to_ld, const float *x, size_t ld, size_t rows,
                                        size_t cols) {
    size_t squares = 0, c = 0; // rows that whole squares cover; columns done
#ifdef PAR__TP_HAS_SHUFFLE
    for (squares = rows / 4 * 4; c + 4 <= cols; c += 4)
        for (size_t r = 0; r < squares; r += 4)
            par__tp_transpose_4x4(to + c * to_ld + r, to_ld, x + r * ld + c, ld);
#endif
    for (size_t i = 0; i < cols; i++)
        for (size_t r = i < c ? squares : 0; r < rows; r++) to[i * to_ld + r] = x[r * ld + i];
}
// Packing for products of bf16, see >>tp_bf16. A panel has PAR__TP_DOT_COLS columns of B, `group` consecutive
// k of a column together: to[k / group][column][group].
enum { PAR__TP_DOT_COLS = 32 };
#if !defined(__CUDACC__)
PAR__INLINE_LOOP void par__tp_pack_two_rows(par_bf16 *to, const par_bf16 *b, size_t ld) { // k and k + 1
    for (size_t j = 0; j < PAR__TP_DOT_COLS; j += 16) {
        const par__tp_u16x16 even = *(const par__tp_u16x16 *)(const void *)(b + j);
        const par__tp_u16x16 odd = *(const par__tp_u16x16 *)(const void *)(b + ld + j);
        *(par__tp_u32x16 *)(void *)(to + 2 * j) = __builtin_convertvector(even, par__tp_u32x16) |
                                                  __builtin_convertvector(odd, par__tp_u32x16) << 16;
    }
}
#endif
#ifdef PAR__TP_HAS_SHUFFLE
typedef uint32_t par__tp_u32x4 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint16_t par__tp_u16x8 __attribute__((vector_size(16), aligned(2), may_alias));
PAR__INLINE_LOOP par__tp_u32x4 par__tp_load_pairs(const par_bf16 *x) {
    return *(const par__tp_u32x4 *)(const void *)x;
}
PAR__INLINE_LOOP void par__tp_pack_four_columns(par_bf16 *to, const par_bf16 *b, size_t ld) { // 8 k of each
    const par__tp_u32x4 w = par__tp_load_pairs(b), x = par__tp_load_pairs(b + ld);
    const par__tp_u32x4 y = par__tp_load_pairs(b + 2 * ld), z = par__tp_load_pairs(b + 3 * ld);
    const par__tp_u32x4 wx0 = __builtin_shufflevector(w, x, 0, 4, 1, 5); // w0 x0 w1 x1
    const par__tp_u32x4 yz0 = __builtin_shufflevector(y, z, 0, 4, 1, 5);
    const par__tp_u32x4 wx2 = __builtin_shufflevector(w, x, 2, 6, 3, 7); // w2 x2 w3 x3
    const par__tp_u32x4 yz2 = __builtin_shufflevector(y, z, 2, 6, 3, 7);
    const size_t row = 2 * PAR__TP_DOT_COLS;
    *(par__tp_u32x4 *)(void *)to = __builtin_shufflevector(wx0, yz0, 0, 1, 4, 5);
    *(par__tp_u32x4 *)(void *)(to + row) = __builtin_shufflevector(wx0, yz0, 2, 3, 6, 7);
    *(par__tp_u32x4 *)(void *)(to + 2 * row) = __builtin_shufflevector(wx2, yz2, 0, 1, 4, 5);
    *(par__tp_u32x4 *)(void *)(to + 3 * row) = __builtin_shufflevector(wx2, yz2, 2, 3, 6, 7);
}
// Turns eight rows of eight numbers in three rounds; each interleaves rows i and i + 4.
#define PAR__TP_LOW(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define PAR__TP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
PAR__INLINE_LOOP void par__tp_interleave_rows(par__tp_u16x8 *to, const par__tp_u16x8 *x) {
    to[0] = PAR__TP_LOW(x[0], x[4]);
    to[1] = PAR__TP_HIGH(x[0], x[4]);
    to[2] = PAR__TP_LOW(x[1], x[5]);
    to[3] = PAR__TP_HIGH(x[1], x[5]);
    to[4] = PAR__TP_LOW(x[2], x[6]);
    to[5] = PAR__TP_HIGH(x[2], x[6]);
    to[6] = PAR__TP_LOW(x[3], x[7]);
    to[7] = PAR__TP_HIGH(x[3], x[7]);
}
PAR__INLINE_LOOP void par__tp_transpose_8x8(par_bf16 *to, size_t to_ld, const par_bf16 *x, size_t ld) {
    par__tp_u16x8 a[8], b[8];
    for (size_t i = 0; i < 8; i++) a[i] = *(const par__tp_u16x8 *)(const void *)(x + i * ld);
    par__tp_interleave_rows(b, a);
    par__tp_interleave_rows(a, b);
    par__tp_interleave_rows(b, a);
    for (size_t i = 0; i < 8; i++) *(par__tp_u16x8 *)(void *)(to + i * to_ld) = b[i];
}
#endif
// Packs rows p (even, or of a panel with fewer columns 0) to k of one panel; what is missing up to
// PAR__TP_DOT_COLS columns and `padded` rows is zeros.
PAR__INLINE_LOOP void par__tp_pack_panel(par_bf16 *to, const par_bf16 *b, size_t k_ld, size_t j_ld, size_t p,
                                         size_t k, size_t padded, size_t width, size_t group) {
    const size_t cols = PAR__TP_DOT_COLS;
#ifdef PAR__TP_HAS_SHUFFLE
    if (group == 2 && k_ld == 1 && width == cols)
        for (; p + 8 <= k; p += 8)
            for (size_t j = 0; j < cols; j += 4)
                par__tp_pack_four_columns(to + p * cols + 2 * j, b + p + j * j_ld, j_ld);
#endif
    for (; p < padded; p += group)
        for (size_t j = 0; j < cols; j++)
            for (size_t g = 0; g < group; g++)
                to[p * cols + j * group + g] =
                    (par_bf16)(p + g < k && j < width ? b[(p + g) * k_ld + j * j_ld] : 0);
}
// Packs `width` columns of k rows to panels that are `panel` numbers apart. Element (p, j) of B is
// b[p k_ld + j j_ld]. Rows are read whole, because each line of memory that is read alone is waited for.
PAR__INLINE_LOOP void par__tp_pack_panels(par_bf16 *to, size_t panel, const par_bf16 *b, size_t k_ld,
                                          size_t j_ld, size_t k, size_t padded, size_t width, size_t group) {
    const size_t cols = PAR__TP_DOT_COLS;
    size_t whole = 0, p = 0; // columns of whole panels, rows of these that are packed
#if !defined(__CUDACC__)
    if (group == 2 && j_ld == 1) {
        whole = width / cols * cols;
        for (; p + 2 <= k; p += 2)
            for (size_t j = 0; j < whole; j += cols)
                par__tp_pack_two_rows(to + j / cols * panel + p * cols, b + p * k_ld + j, k_ld);
    }
#endif
    for (size_t j = 0; j < width; j += cols)
        par__tp_pack_panel(to + j / cols * panel, b + j * j_ld, k_ld, j_ld, j < whole ? p : 0, k, padded,
                           PAR__MIN(cols, width - j), group);
}
// Copies `rows` rows of A with k numbers each to rows of `padded` numbers; what is missing up to all_rows
// rows is zeros. Element (i, p) of A is a[i i_ld + p k_ld].
PAR__INLINE_LOOP void par__tp_pack_rows(par_bf16 *to, const par_bf16 *a, size_t i_ld, size_t k_ld, size_t k,
                                        size_t padded, size_t rows, size_t all_rows) {
    size_t i8 = 0, k8 = 0; // rows and k's that whole squares cover
#ifdef PAR__TP_HAS_SHUFFLE
    if (i_ld == 1) {
        i8 = rows / 8 * 8;
        k8 = k / 8 * 8;
        for (size_t p = 0; p < k8; p += 8)
            for (size_t i = 0; i < i8; i += 8)
                par__tp_transpose_8x8(to + i * padded + p, padded, a + p * k_ld + i, k_ld);
    }
#endif
    for (size_t i = 0; i < all_rows; i++)
        for (size_t p = i < i8 ? k8 : 0; p < padded; p++)
            to[i * padded + p] = (par_bf16)(i < rows && p < k ? a[i * i_ld + p * k_ld] : 0);
}
// Where the sums of a tile go: C = alpha sums + beta C + bias, in f32, rounded once.
typedef struct par__tp_output {
    float alpha, beta;
    const float *bias; // or NULL; then beta is 0
    void *c;
    int bf16; // else f32
    size_t ldc;
} par__tp_output;
PAR__INLINE_LOOP void par__tp_store_tile(const par__tp_output *o, const float *acc, size_t rows,
                                         size_t cols) {
    const float alpha = o->alpha, beta = o->beta, *bias = o->bias;
    for (size_t r = 0; r < rows; r++, acc += PAR__TP_DOT_COLS) {
        par_bf16 *narrow = (par_bf16 *)o->c + r * o->ldc;
        float *wide = (float *)o->c + r * o->ldc;
        if (o->bf16 && beta != 0) {
            PAR__VECTOR(j, cols,
                        narrow[j] = par__bf16_narrow(alpha * acc[j] + beta * par__bf16_widen(narrow[j])));
        } else if (o->bf16 && bias) {
            PAR__VECTOR(j, cols, narrow[j] = par__bf16_narrow(alpha * acc[j] + bias[j]));
        } else if (o->bf16) {
            PAR__VECTOR(j, cols, narrow[j] = par__bf16_narrow(alpha * acc[j]));
        } else if (beta != 0) {
            PAR__VECTOR(j, cols, wide[j] = alpha * acc[j] + beta * wide[j]);
        } else {
            PAR__VECTOR(j, cols, wide[j] = alpha * acc[j]);
        }
    }
}
// Rotates the pairs (i, half + i). cos_sin has the cosines of the angles, then their sines. sign is 1, or -1
// to rotate back. y may be x.
PAR__INLINE_LOOP void par__tp_rotate(float *y, const float *x, const float *cos_sin, size_t half,
                                     float sign) {
    PAR__VECTOR(i, half, const float u = x[i], v = x[half + i], c = cos_sin[i], s = sign * cos_sin[half + i];
                y[i] = par__tp_rotate_first(u, v, c, s); y[half + i] = par__tp_rotate_second(u, v, c, s));
}
PAR__INLINE_LOOP double par__tp_sum_squares(const float *x, size_t n) {
    double lanes[PAR__STRIP] = {0}, sum = 0;
    PAR__VECTOR(i, n, lanes[lane] += (double)x[i] * (double)x[i]);
    for (int j = 0; j < PAR__STRIP; j++) sum += lanes[j];
    return sum;
}

// X(P, result, name, parameters, arguments), see PAR__LOOP_TABLES
#define PAR__TP_LOOPS(X, P)                                                                                  \
    X(P, void, gelu, PAR__TP_ELEMENTWISE, (o0, o1, a, b, c, n, is_bf16))                                     \
    X(P, void, gelu_backward, PAR__TP_ELEMENTWISE, (o0, o1, a, b, c, n, is_bf16))                            \
    X(P, void, swiglu, PAR__TP_ELEMENTWISE, (o0, o1, a, b, c, n, is_bf16))                                   \
    X(P, void, swiglu_backward, PAR__TP_ELEMENTWISE, (o0, o1, a, b, c, n, is_bf16))                          \
    X(P, void, add, PAR__TP_ELEMENTWISE, (o0, o1, a, b, c, n, is_bf16))                                      \
    X(P, void, axpy, (float *y, const void *x, float f, size_t n, int is_bf16), (y, x, f, n, is_bf16))       \
    X(P, void, drop, (float *y, const float *x, const uint32_t *words, size_t n, float p),                   \
      (y, x, words, n, p))                                                                                   \
    X(P, void, scale, (float *y, const float *x, float f, size_t n), (y, x, f, n))                           \
    X(P, void, row_dots, (float *dot, const float *a, const float *b, size_t rows, size_t n),                \
      (dot, a, b, rows, n))                                                                                  \
    X(P, void, gemv,                                                                                         \
      (float *y, size_t y_ld, const float *x, size_t count, const void *w, int bf16, size_t ld, size_t rows, \
       size_t n),                                                                                            \
      (y, y_ld, x, count, w, bf16, ld, rows, n, PAR__ISA_LANES))                                             \
    X(P, float, row_sum, (const float *x, size_t n), (x, n))                                                 \
    X(P, float, row_max, (const float *x, size_t n), (x, n))                                                 \
    X(P, float, row_exp_sum, (const float *x, float row_max, size_t n), (x, row_max, n))                     \
    X(P, void, logit_gradients, (float *y, const float *x, float lse, float factor, float smooth, size_t n), \
      (y, x, lse, factor, smooth, n))                                                                        \
    X(P, float, softmax_row, (float *s, float scale, size_t n, float *sum), (s, scale, n, sum))              \
    X(P, void, add_weighted,                                                                                 \
      (float *y, const float *p, size_t p_ld, size_t count, const void *w, int bf16, size_t ld, size_t rows, \
       size_t n),                                                                                            \
      (y, p, p_ld, count, w, bf16, ld, rows, n, PAR__ISA_LANES))                                             \
    X(P, void, scale_strip, (float *y, const float *x, const float *f, size_t rows), (y, x, f, rows))        \
    X(P, void, online_softmax,                                                                               \
      (float *s, size_t ld, size_t keys, float *row_max, float *sum, float *rescale, const float *mask,      \
       uint32_t *pairs),                                                                                     \
      (s, ld, keys, row_max, sum, rescale, mask, pairs))                                                     \
    X(P, void, softmax_backward, (const par__tp_softmax_gradient *o), (o))                                   \
    X(P, void, norm_row,                                                                                     \
      (void *y, float *stats, const void *x, const float *w, const float *b, size_t n, int rms,              \
       float epsilon, int is_bf16),                                                                          \
      (y, stats, x, w, b, n, rms, epsilon, is_bf16))                                                         \
    X(P, void, norm_row_backward,                                                                            \
      (void *dx, float *dw, float *db, const void *dy, const void *x, const float *w, const float *stats,    \
       size_t n, int rms, int is_bf16),                                                                      \
      (dx, dw, db, dy, x, w, stats, n, rms, is_bf16))                                                        \
    X(P, void, transpose, (float *to, size_t to_ld, const float *x, size_t ld, size_t rows, size_t cols),    \
      (to, to_ld, x, ld, rows, cols))                                                                        \
    X(P, void, pack_panels,                                                                                  \
      (par_bf16 * to, size_t panel, const par_bf16 *b, size_t k_ld, size_t j_ld, size_t k, size_t padded,    \
       size_t width, size_t group),                                                                          \
      (to, panel, b, k_ld, j_ld, k, padded, width, group))                                                   \
    X(P, void, pack_rows,                                                                                    \
      (par_bf16 * to, const par_bf16 *a, size_t i_ld, size_t k_ld, size_t k, size_t padded, size_t rows,     \
       size_t all_rows),                                                                                     \
      (to, a, i_ld, k_ld, k, padded, rows, all_rows))                                                        \
    X(P, void, store_tile, (const par__tp_output *o, const float *acc, size_t rows, size_t cols),            \
      (o, acc, rows, cols))                                                                                  \
    X(P, void, rotate, (float *y, const float *x, const float *cos_sin, size_t half, float sign),            \
      (y, x, cos_sin, half, sign))                                                                           \
    X(P, double, sum_squares, (const float *x, size_t n), (x, n))

PAR__LOOP_TABLES(par__tp_, PAR__TP_LOOPS)
PAR__LOOP_EXACT(par__tp_, PAR__TP_LOOPS) // of canonical contexts
PAR__FORMULAS_END

// >>tp_bf16 -------------------------------------------------------------------------------------------------
//
// Products of bf16 matrices by instructions that multiply bf16 and add in f32. A tile of C stays in registers
// while k runs through a slice of K. Rows of A are read where they are, unless A is transposed or K odd;
// columns of B are packed, as many as stay in the second-level cache:
//     for each slice of k -> for each block of columns: pack B -> for each block of rows: (pack A) -> tiles
//
// Rounding. Sums are f32, from zero in each slice; alpha, beta C and the bias are f32, and C is rounded to
// its type once. Within a slice the instruction decides; denormal operands and sums count as zero. (a0, b0)
// and (a1, b1) belong to k and k + 1:
//     avx512_bf16   s = fma(a1, b1, s), then s = fma(a0, b0, s), each rounded to nearest even
//     amx_bf16      chains of fma for even and for odd k, from zero, 16 pairs each; then s = s + (even + odd)
//     bfmmla        s = s + (a0 b0 + a1 b1), both sums rounded to odd: cut, then the last bit 1 if inexact
// A denormal result in bf16 may become zero, too. Processors without such an instruction convert the operands
// to f32 and multiply those.

enum {
    PAR__TP_DOT_ROWS = 32,          // at most, of a tile
    PAR__TP_DOT_K = 4096,           // of a slice
    PAR__TP_DOT_K_TRANSPOSED = 512, // the same where A is transposed: blocks have more columns
    PAR__TP_DOT_A = PAR__TP_DOT_ROWS * PAR__TP_DOT_K, // numbers of a packed block of A
    PAR__TP_DOT_B = 2 * PAR__TP_DOT_A
};
typedef struct par__tp_dot { // an instruction set's tile
    const char *name;
    size_t rows, group, unit; // rows of a tile; consecutive k in a panel; what k is a multiple of
    int outputs; // 1: tile writes any output in f32, and in bf16 with beta 0. 0: only sums as they are
    int strides; // 1: A may be packed as panels of B are. 0: its rows are contiguous
    void (*begin)(void); // around the tiles of a product; or NULL
    void (*end)(void);
    // `rows` rows of A times a panel; the numbers (i, p) and (i, p + 1) of A are at a[i lda + p / 2 a_pair]
    void (*tile)(size_t k, const par_bf16 *a, size_t lda, size_t a_pair, const par_bf16 *panel,
                 const par__tp_output *o);
} par__tp_dot;
typedef struct par__tp_dot_product { // C = alpha op(A) op(B) + beta C + bias
    int ta, tb;
    size_t m, n, k;
    const void *a, *b; // bf16
    size_t lda, ldb;
    float alpha, beta;
    const float *bias; // of n numbers, or NULL; only with beta 0 and K of one slice
    void *c;
    par_dtype c_type; // f32; or bf16, with K of one slice
    size_t ldc;
} par__tp_dot_product;

#if PAR__X86 && !defined(__CUDACC__) && (__GNUC__ >= 11 || (defined(__clang__) && __clang_major__ >= 12))
#define PAR__TP_DOT_ROW(i)                                                                                   \
    x = (__m512bh)_mm512_set1_epi32(*(const par__tp_pair *)(const void *)(a + (i)*lda));                     \
    c##i = _mm512_dpbf16_ps(c##i, x, y);                                                                     \
    d##i = _mm512_dpbf16_ps(d##i, x, z);
#define PAR__TP_DOT_SCALE(i)                                                                                 \
    c##i = _mm512_fmadd_ps(alpha, c##i, bias);                                                               \
    d##i = _mm512_fmadd_ps(alpha, d##i, bias16);
#define PAR__TP_DOT_NARROW(i)                                                                                \
    _mm256_storeu_si256((__m256i *)(void *)(narrow + (i)*o->ldc), (__m256i)_mm512_cvtneps_pbh(c##i));        \
    _mm256_storeu_si256((__m256i *)(void *)(narrow + (i)*o->ldc + 16), (__m256i)_mm512_cvtneps_pbh(d##i));
#define PAR__TP_DOT_ADD(i)                                                                                   \
    c##i = _mm512_fmadd_ps(beta, _mm512_loadu_ps(wide + (i)*o->ldc), c##i);                                  \
    d##i = _mm512_fmadd_ps(beta, _mm512_loadu_ps(wide + (i)*o->ldc + 16), d##i);
#define PAR__TP_DOT_STORE(i)                                                                                 \
    _mm512_storeu_ps(wide + (i)*o->ldc, c##i);                                                               \
    _mm512_storeu_ps(wide + (i)*o->ldc + 16, d##i);
typedef int par__tp_pair __attribute__((aligned(2), may_alias));
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static void
par__tp_tile_avx512(size_t k, const par_bf16 *a, size_t lda, size_t a_pair, const par_bf16 *panel,
                    const par__tp_output *o) {
    __m512 c0 = _mm512_setzero_ps(), c1 = c0, c2 = c0, c3 = c0, c4 = c0, c5 = c0, c6 = c0, c7 = c0;
    __m512 d0 = c0, d1 = c0, d2 = c0, d3 = c0, d4 = c0, d5 = c0, d6 = c0, d7 = c0;
    for (size_t p = 0; p < k; p += 2, a += a_pair, panel += 2 * PAR__TP_DOT_COLS) {
        const __m512bh y = (__m512bh)_mm512_loadu_si512(panel);
        const __m512bh z = (__m512bh)_mm512_loadu_si512(panel + PAR__TP_DOT_COLS);
        __m512bh x;
        PAR__TP_8_ROWS(PAR__TP_DOT_ROW)
    }
    const __m512 alpha = _mm512_set1_ps(o->alpha), beta = _mm512_set1_ps(o->beta);
    const __m512 bias = o->bias ? _mm512_loadu_ps(o->bias) : _mm512_setzero_ps();
    const __m512 bias16 = o->bias ? _mm512_loadu_ps(o->bias + 16) : bias;
    par_bf16 *narrow = (par_bf16 *)o->c;
    float *wide = (float *)o->c;
    PAR__TP_8_ROWS(PAR__TP_DOT_SCALE)
    if (o->bf16) {
        PAR__TP_8_ROWS(PAR__TP_DOT_NARROW)
        return;
    }
    if (o->beta != 0) {
        PAR__TP_8_ROWS(PAR__TP_DOT_ADD)
    }
    PAR__TP_8_ROWS(PAR__TP_DOT_STORE)
}
// Tile registers have 16 rows of 64 bytes. 0 to 3 are C, 4 and 5 rows of A, 6 and 7 columns of the panel.
#define PAR__TP_AMX __attribute__((target("amx-tile,amx-bf16")))
PAR__TP_AMX static void par__tp_amx_begin(void) {
    unsigned char config[64] = {1}; // palette 1; bytes of a row from 16 on, in 16 bits; rows from 48 on
    for (int i = 0; i < 8; i++) {
        config[16 + 2 * i] = 64;
        config[48 + i] = 16;
    }
    __asm__ volatile("" : : "r"(config) : "memory"); // compilers do not see that all of it is read
    _tile_loadconfig(config);
}
PAR__TP_AMX static void par__tp_amx_end(void) { _tile_release(); }
PAR__TP_AMX static void par__tp_tile_amx(size_t k, const par_bf16 *a, size_t lda, size_t a_pair,
                                         const par_bf16 *panel, const par__tp_output *o) {
    const size_t a_row = lda * sizeof *a, row = 2 * PAR__TP_DOT_COLS * sizeof *a,
                 c_row = o->ldc * sizeof(float);
    float *c = (float *)o->c;
    (void)a_pair;                        // 2
    __asm__ volatile("" : : : "memory"); // the same of operands
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t p = 0; p < k; p += 32, panel += 32 * PAR__TP_DOT_COLS) {
        _tile_loadd(4, a + p, a_row);
        _tile_loadd(6, panel, row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, panel + PAR__TP_DOT_COLS, row);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * lda + p, a_row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_row);
    _tile_stored(1, c + 16, c_row);
    _tile_stored(2, c + 16 * o->ldc, c_row);
    _tile_stored(3, c + 16 * o->ldc + 16, c_row);
}
static const par__tp_dot par__tp_dots[] = {
    {"amx_bf16", 32, 2, 32, 0, 0, par__tp_amx_begin, par__tp_amx_end, par__tp_tile_amx},
    {"avx512_bf16", 8, 2, 2, 1, 1, NULL, NULL, par__tp_tile_avx512}};
// Has the processor tiles, and does the kernel let this process use them? Processes forked later may, too.
static int par__tp_has_amx(void) {
    unsigned a, b, c, d;
    const unsigned bf16 = 1u << 22, tile = 1u << 24;
    const long arch_prctl = 158, request_permission = 0x1023, tile_data = 18; // ARCH_REQ_XCOMP_PERM
    long result;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & bf16) || !(d & tile)) return 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(arch_prctl), "D"(request_permission), "S"(tile_data)
                     : "rcx", "r11", "memory");
    return result == 0;
}
static const par__tp_dot *par__tp_pick_dot(void) {
    if (par__isa() < 3) return NULL; // PAR_ISA
    if (par__isa() > 3 && par__tp_has_amx()) return &par__tp_dots[0];
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") ? &par__tp_dots[1]
                                                                                      : NULL;
}
#elif defined(PAR__TP_BFMMLA)
// BFMMLA adds 2 x 4 numbers of A times 4 x 2 of B to a square of four sums. Rows 2 i and 2 i + 1 of the tile
// by columns 2 j and 2 j + 1 of the panel's next eight are s[i][j], row after row.
#define PAR__TP_BF16         __attribute__((target("arch=armv8.2-a+bf16")))
PAR__TP_BF16 static inline void par__tp_load_squares(bfloat16x8_t *y, const par_bf16 *panel) {
    for (int j = 0; j < 4; j += 2, panel += 8) { // four columns: pairs of k and k + 1, of k + 2 and k + 3
        const uint32x4_t low = vreinterpretq_u32_u16(vld1q_u16(panel));
        const uint32x4_t high = vreinterpretq_u32_u16(vld1q_u16(panel + 2 * PAR__TP_DOT_COLS));
        y[j] = vreinterpretq_bf16_u32(vzip1q_u32(low, high));
        y[j + 1] = vreinterpretq_bf16_u32(vzip2q_u32(low, high));
    }
}
#define PAR__TP_ZERO_ROWS(i) s[i][0] = s[i][1] = s[i][2] = s[i][3] = vdupq_n_f32(0);
#define PAR__TP_ADD_ROWS(i)                                                                                  \
    x = vreinterpretq_bf16_u16(                                                                              \
        vcombine_u16(vld1_u16(row + 2 * (i)*lda), vld1_u16(row + (2 * (i) + 1) * lda)));                     \
    s[i][0] = vbfmmlaq_f32(s[i][0], x, y[0]);                                                                \
    s[i][1] = vbfmmlaq_f32(s[i][1], x, y[1]);                                                                \
    s[i][2] = vbfmmlaq_f32(s[i][2], x, y[2]);                                                                \
    s[i][3] = vbfmmlaq_f32(s[i][3], x, y[3]);
#define PAR__TP_STORE_ROWS(i)                                                                                \
    vst1q_f32(c, vcombine_f32(vget_low_f32(s[i][0]), vget_low_f32(s[i][1])));                                \
    vst1q_f32(c + 4, vcombine_f32(vget_low_f32(s[i][2]), vget_low_f32(s[i][3])));                            \
    vst1q_f32(c + o->ldc, vcombine_f32(vget_high_f32(s[i][0]), vget_high_f32(s[i][1])));                     \
    vst1q_f32(c + o->ldc + 4, vcombine_f32(vget_high_f32(s[i][2]), vget_high_f32(s[i][3])));                 \
    c += 2 * o->ldc;
#define PAR__TP_8_ROWS_BY_2(ROWS) ROWS(0) ROWS(1) ROWS(2) ROWS(3)
PAR__TP_BF16 static void par__tp_tile_bfmmla(size_t k, const par_bf16 *a, size_t lda, size_t a_pair,
                                             const par_bf16 *panel, const par__tp_output *o) {
    (void)a_pair; // 2
    for (size_t at = 0; at < PAR__TP_DOT_COLS; at += 8) {
        float32x4_t s[4][4];
        bfloat16x8_t x, y[4];
        float *c = (float *)o->c + at;
        PAR__TP_8_ROWS_BY_2(PAR__TP_ZERO_ROWS)
        for (size_t p = 0; p < k; p += 4) {
            const par_bf16 *row = a + p;
            par__tp_load_squares(y, panel + p * PAR__TP_DOT_COLS + 2 * at);
            PAR__TP_8_ROWS_BY_2(PAR__TP_ADD_ROWS)
        }
        PAR__TP_8_ROWS_BY_2(PAR__TP_STORE_ROWS)
    }
}
static const par__tp_dot par__tp_dots[] = {{"bfmmla", 8, 2, 4, 0, 0, NULL, NULL, par__tp_tile_bfmmla}};
static const par__tp_dot *par__tp_pick_dot(void) {
    const unsigned long has_bf16 = 1u << 14; // HWCAP2_BF16
    return getauxval(AT_HWCAP2) & has_bf16 ? &par__tp_dots[0] : NULL;
}
#else
static const par__tp_dot *par__tp_pick_dot(void) { return NULL; }
#endif

static size_t par__tp_dot_slice(int ta) { return ta ? PAR__TP_DOT_K_TRANSPOSED : PAR__TP_DOT_K; }

typedef struct par__tp_dot_block { // what is multiplied at a time
    size_t p, k, padded;           // the slice: its first k, how many, rounded up to dot->unit
    size_t i, rows, j, cols;
    par_bf16 *a, *b; // packed
} par__tp_dot_block;

// The operands of A: rows where they are, packed rows, or panels, in which row i is column i.
static void par__tp_pack_a(const par__tp_loops *loops, const par__tp_dot *dot, const par__tp_dot_product *m,
                           const par__tp_dot_block *s, size_t direct) {
    const size_t i_ld = m->ta ? 1 : m->lda, k_ld = m->ta ? m->lda : 1;
    const par_bf16 *a = (const par_bf16 *)m->a + s->i * i_ld + s->p * k_ld;
    if (m->ta && dot->strides)
        loops->pack_panels(s->a, PAR__TP_DOT_COLS * s->padded, a, k_ld, 1, s->k, s->padded, s->rows,
                           dot->group);
    else if (direct < s->rows)
        loops->pack_rows(s->a, a + direct * i_ld, i_ld, k_ld, s->k, s->padded, s->rows - direct,
                         par__round_up(s->rows - direct, dot->rows));
}
static void par__tp_dot_multiply_block(const par__tp_loops *loops, const par__tp_dot *dot,
                                       const par__tp_dot_product *m, const par__tp_dot_block *s) {
    const size_t tile = dot->rows, cols = PAR__TP_DOT_COLS;
    const size_t direct =
        m->ta || s->k != s->padded ? 0 : s->rows / tile * tile; // rows that are read in place
    const int panels = m->ta && dot->strides;
    const par_bf16 *in_place = (const par_bf16 *)m->a + s->i * m->lda + s->p;
    float acc[(int)PAR__TP_DOT_ROWS * PAR__TP_DOT_COLS];
    par__tp_pack_a(loops, dot, m, s, direct);
    for (size_t i = 0; i < s->rows; i += tile) {
        const par_bf16 *a = i < direct ? in_place + i * m->lda
                            : panels   ? s->a + i / cols * cols * s->padded + i % cols * dot->group
                                       : s->a + (i - direct) * s->padded;
        const size_t lda = i < direct ? m->lda : panels ? dot->group : s->padded;
        for (size_t j = 0; j < s->cols; j += cols) {
            const size_t at = (s->i + i) * m->ldc + s->j + j, rows = PAR__MIN(tile, s->rows - i);
            const size_t width = PAR__MIN(cols, s->cols - j);
            const int bf16 = m->c_type != PAR_F32,
                      whole = dot->outputs && rows == tile && width == cols && !(bf16 && m->beta != 0);
            const par__tp_output to_acc = {1, 0, NULL, acc, 0, PAR__TP_DOT_COLS};
            const par__tp_output to_c = {m->alpha,
                                         s->p ? 1 : m->beta,
                                         m->bias ? m->bias + s->j + j : NULL,
                                         bf16 ? (void *)((par_bf16 *)m->c + at)
                                              : (void *)((float *)m->c + at),
                                         bf16,
                                         m->ldc};
            dot->tile(s->padded, a, lda, panels ? cols * dot->group : dot->group, s->b + j * s->padded,
                      whole ? &to_c : &to_acc);
            if (!whole) loops->store_tile(&to_c, acc, rows, width);
        }
    }
}
// pack: memory for PAR__TP_DOT_A + PAR__TP_DOT_B numbers.
static void par__tp_dot_multiply(const par__tp_loops *loops, const par__tp_dot *dot,
                                 const par__tp_dot_product *m, par_bf16 *pack) {
    const size_t slice = par__tp_dot_slice(m->ta), cols = PAR__TP_DOT_COLS;
    const size_t k_ld = m->tb ? 1 : m->ldb, j_ld = m->tb ? m->ldb : 1;
    const par_bf16 *b = (const par_bf16 *)m->b;
    par__tp_dot_block s;
    s.a = pack;
    s.b = pack + PAR__TP_DOT_A;
    if (dot->begin) dot->begin();
    for (s.p = 0; s.p < m->k; s.p += slice) {
        s.k = PAR__MIN(slice, m->k - s.p);
        s.padded = (s.k + dot->unit - 1) / dot->unit * dot->unit;
        const size_t most_cols = PAR__TP_DOT_B / s.padded / cols * cols;
        const size_t most_rows = PAR__TP_DOT_A / s.padded / cols * cols;
        for (s.j = 0; s.j < m->n; s.j += most_cols) {
            s.cols = PAR__MIN(most_cols, m->n - s.j);
            loops->pack_panels(s.b, cols * s.padded, b + s.p * k_ld + s.j * j_ld, k_ld, j_ld, s.k, s.padded,
                               s.cols, dot->group);
            for (s.i = 0; s.i < m->m; s.i += most_rows) {
                s.rows = PAR__MIN(most_rows, m->m - s.i);
                par__tp_dot_multiply_block(loops, dot, m, &s);
            }
        }
    }
    if (dot->end) dot->end();
}

static par_result par__tp_tile_product(const void *user, int ta, int tb, size_t m, size_t n, size_t k,
                                       const par_bf16 *a, size_t lda, const par_bf16 *b, size_t ldb, float *c,
                                       void *scratch) {
    const par__tp_dot_product p = {ta, tb, m, n, k, a, b, lda, ldb, 1, 0, NULL, c, PAR_F32, n};
    par__tp_dot_multiply(PAR__PICK(par__tp_loops), (const par__tp_dot *)user, &p, (par_bf16 *)scratch);
    return PAR_OK;
}
par_result par_tp_gemm_select(const par_gemm_shape *shapes, size_t count, par_dtype dtype, par_comm *comm) {
    const par__tp_dot *dot = dtype == PAR_BF16 ? par__tp_pick_dot() : NULL;
    if (dtype != PAR_BF16) return par_gemm_select(shapes, count, comm);
    return par__gemm_select_bf16(shapes, count, comm, dot ? par__tp_tile_product : NULL, dot);
}
par_gemm_report par_tp_gemm_get(void) {
    const par__tp_dot *dot = par__tp_pick_dot();
    par_gemm_report r = par__gemm_get_bf16();
    if (dot) r.name[PAR__BF16_TILE] = dot->name;
    if (!dot && r.chosen == PAR__BF16_TILE) r.chosen = PAR__BF16_WIDEN;
    return r;
}
// Takes the process's choice, which all ranks have.
static void par__tp_adopt_product(par_tp *tp) {
    const par_gemm_report r = par__gemm_get_bf16();
    const int builtin = r.flops[PAR__BF16_WIDEN_BUILTIN] > 0 ? PAR__BF16_WIDEN_BUILTIN : PAR__BF16_WIDEN;
    const int faster = r.flops[PAR__BF16_TILE] > r.flops[builtin]; // for attention
    tp->product = r.chosen;
    if (r.chosen >= PAR__BF16_WIDEN && !faster) tp->dot = NULL;
    if (r.chosen == PAR__BF16_LIBRARY && r.flops[builtin] > 0 && !faster) tp->dot = NULL;
}
// The loops and tiles of this processor.
static void par__tp_pick_loops(par_tp *tp) {
    const int canonical = tp->desc.canonical_leaves;
    tp->loops = canonical ? PAR__PICK_EXACT(par__tp_loops) : PAR__PICK(par__tp_loops);
    tp->tile = canonical ? par__canonical_tile_get() : par__gemm_tile_get();
    tp->dot = tp->desc.dtype == PAR_BF16 && !canonical ? par__tp_pick_dot() : NULL;
}

// >>tp_kernels ----------------------------------------------------------------------------------------------
//
// The CPU's kernels. Products of bf16 are >>tp_bf16's. The other inner loops compute in f32: rows of bf16 are
// converted into scratch memory, and results are rounded when they are stored.
PAR__EXACT_BEGIN

// Returns n elements from `at` on as f32: in place if they are f32, else converted into `scratch`.
static const float *par__tp_as_f32(const par_tp *tp, const void *x, size_t at, size_t n, float *scratch) {
    if (!x) return NULL;
    if (par__tp_is_f32(tp)) return (const float *)x + at;
    par_cast(scratch, PAR_F32, (const par_bf16 *)x + at, PAR_BF16, n);
    return scratch;
}
static float *par__tp_f32_output(const par_tp *tp, void *x, size_t at, float *scratch) { // to be written
    return par__tp_is_f32(tp) ? (float *)x + at : scratch;
}
static void par__tp_store_f32(const par_tp *tp, void *x, size_t at, size_t n, const float *scratch) {
    if (!par__tp_is_f32(tp)) par_cast((par_bf16 *)x + at, PAR_BF16, scratch, PAR_F32, n);
}
// Sets the error text for a failed matrix product, because par_gemm sets none.
static par_result par__tp_gemm_result(par_tp *tp, par_result r) {
    return r ? par_fail(tp->desc.tp, r, "par_tp: a matrix product: %s", par_result_text(r)) : r;
}
static float *par__tp_row_scratch(par_tp *tp, size_t rows, size_t cols) {
    return (float *)par_tp_scratch(tp, PAR__TP_ROWS, rows * cols * sizeof(float) + 64);
}

static par_result par__tp_cpu_alloc(par_tp *tp, size_t bytes, void **memory) {
    return (void)tp, par_cpu()->alloc(par_cpu(), bytes, memory);
}
static par_result par__tp_cpu_free(par_tp *tp, void *memory) {
    return (void)tp, par_cpu()->free(par_cpu(), memory);
}
static par_result par__tp_cpu_cast(par_tp *tp, void *dst, par_dtype dt, const void *src, par_dtype st,
                                   size_t n) {
    return (void)tp, par_cast(dst, dt, src, st, n);
}
static par_result par__tp_cpu_copy(par_tp *tp, void *dst, size_t dst_ld, const void *src, size_t src_ld,
                                   size_t rows, size_t row_bytes) {
    (void)tp;
    for (size_t r = 0; r < rows; r++)
        memcpy((char *)dst + r * dst_ld, (const char *)src + r * src_ld, row_bytes);
    return PAR_OK;
}

// Converts rows: in one call where there is nothing between them.
static void par__tp_cast_rows(void *to, par_dtype to_type, size_t to_ld, const void *from, par_dtype type,
                              size_t ld, size_t rows, size_t cols) {
    const size_t to_bytes = to_ld * par_dtype_bytes(to_type), bytes = ld * par_dtype_bytes(type);
    if (to_ld == cols && ld == cols) {
        cols *= rows;
        rows = rows > 0;
    }
    for (size_t r = 0; r < rows; r++)
        par_cast((char *)to + r * to_bytes, to_type, (const char *)from + r * bytes, type, cols);
}
// Returns rows from element `at` on as f32: in place, or a dense copy in `scratch`.
static const float *par__tp_f32_rows(par_tp *tp, float *scratch, const void *x, size_t at, size_t rows,
                                     size_t cols, size_t *ld) {
    if (par__tp_is_f32(tp)) return (const float *)x + at;
    if (scratch)
        par__tp_cast_rows(scratch, PAR_F32, cols, (const par_bf16 *)x + at, PAR_BF16, *ld, rows, cols);
    *ld = cols;
    return scratch;
}
static const float *par__tp_gemm_operand(par_tp *tp, int slot, const void *x, size_t rows, size_t cols,
                                         size_t *ld) {
    float *scratch =
        par__tp_is_f32(tp) ? NULL : (float *)par_tp_scratch(tp, slot, rows * cols * sizeof(float));
    return par__tp_f32_rows(tp, scratch, x, 0, rows, cols, ld);
}
static void par__tp_add_row(par_tp *tp, void *y, size_t at, const void *x, size_t x_at, size_t cols) {
    char *to = par__tp_element(tp, y, at);
    tp->loops->add(to, NULL, to, par__tp_const_element(tp, x, x_at), NULL, cols, !par__tp_is_f32(tp));
}
static par_result par__tp_cpu_add_bias(par_tp *tp, void *y, size_t ld, const void *bias, size_t rows,
                                       size_t cols) {
    for (size_t r = 0; r < rows; r++) par__tp_add_row(tp, y, r * ld, bias, 0, cols);
    return PAR_OK;
}
static const float *par__tp_gemv_operand(const par_tp *tp, const void *x, size_t at, size_t n,
                                         float *scratch) {
    if (par__tp_is_f32(tp)) return (const float *)x + at;
    return par__tp_pairs(scratch, (const par_bf16 *)x + at, n), scratch;
}
// One row times W^T, as for a token that is generated. A general matrix product would convert or pack all of
// W; this reads each row of W once.
static par_result par__tp_cpu_gemv(par_tp *tp, size_t n, size_t k, const void *a, const void *b, size_t ldb,
                                   float *c) {
    float *scratch = par__tp_row_scratch(tp, 1, k);
    if (!scratch) return PAR_ERR_MEMORY;
    tp->loops->gemv(c, n, par__tp_gemv_operand(tp, a, 0, k, scratch), 1, b, !par__tp_is_f32(tp), ldb, n, k);
    return PAR_OK;
}
// A product of bf16 by the processor's instructions for them. PAR_ERR_MEMORY is the only error.
static par_result par__tp_dot_gemm(par_tp *tp, const par__tp_dot_product *m) {
    const size_t bytes = (PAR__TP_DOT_A + PAR__TP_DOT_B) * sizeof(par_bf16);
    par_bf16 *pack = (par_bf16 *)par_tp_scratch(tp, PAR__TP_OPERAND_A, bytes);
    if (!pack) return PAR_ERR_MEMORY;
    par__tp_dot_multiply(tp->loops, tp->dot, m, pack);
    return PAR_OK;
}
// The same of bf16 that are converted to f32, and of f32; or a library's product of bf16.
static par_result par__tp_f32_gemm(par_tp *tp, const par__tp_dot_product *m) {
    const par__gemm_fn multiply = tp->desc.canonical_leaves                ? par_gemm_canonical
                                  : tp->product == PAR__BF16_WIDEN_BUILTIN ? par__gemm_builtin
                                                                           : par_gemm;
    size_t lda = m->lda, ldb = m->ldb;
    par_result r = PAR_ERR_UNSUPPORTED;
    if (tp->product == PAR__BF16_LIBRARY && m->k)
        r = par__gemm_library_bf16(m->ta, m->tb, m->m, m->n, m->k, (const par_bf16 *)m->a, lda,
                                   (const par_bf16 *)m->b, ldb, m->beta, (float *)m->c, m->ldc);
    if (r != PAR_ERR_UNSUPPORTED) return par__tp_gemm_result(tp, r);
    const float *a =
        par__tp_gemm_operand(tp, PAR__TP_OPERAND_A, m->a, m->ta ? m->k : m->m, m->ta ? m->m : m->k, &lda);
    const float *b =
        par__tp_gemm_operand(tp, PAR__TP_OPERAND_B, m->b, m->tb ? m->n : m->k, m->tb ? m->k : m->n, &ldb);
    if (!a || !b) return PAR_ERR_MEMORY;
    return par__tp_gemm_result(
        tp, multiply(m->ta, m->tb, m->m, m->n, m->k, 1.0f, a, lda, b, ldb, m->beta, (float *)m->c, m->ldc));
}
static par_result par__tp_cpu_gemm(par_tp *tp, int ta, int tb, size_t m, size_t n, size_t k, const void *a,
                                   size_t lda, const void *b, size_t ldb, float beta, void *c,
                                   par_dtype c_type, size_t ldc, const void *bias) {
    const int one = m == 1 && !ta && tb && beta == 0 && !tp->desc.canonical_leaves,
              dot = tp->dot && tp->product == PAR__BF16_TILE && !one && k;
    const int direct = c_type == PAR_F32 || (dot && k <= par__tp_dot_slice(ta));
    float *z = direct ? (float *)c : (float *)par_tp_scratch(tp, PAR__TP_F32_C, m * n * sizeof(float));
    float *scratch = par__tp_row_scratch(tp, 1, PAR__MAX(n, k));
    const size_t ldz = direct ? ldc : n;
    par_result e;
    if (!z || !scratch) return PAR_ERR_MEMORY;
    if (!direct && beta != 0) par__tp_cast_rows(z, PAR_F32, n, c, c_type, ldc, m, n);
    if (one) {
        e = par__tp_cpu_gemv(tp, n, k, a, b, ldb, z);
    } else {
        par__tp_dot_product p = {ta, tb, m, n, k, a, b, lda, ldb, 1, beta, NULL, z, PAR_F32, ldz};
        if (dot && direct) p.bias = par__tp_as_f32(tp, bias, 0, n, scratch);
        if (direct) p.c_type = c_type;
        e = dot ? par__tp_dot_gemm(tp, &p) : par__tp_f32_gemm(tp, &p);
        if (p.bias) bias = NULL; // added already
    }
    if (e) return e;
    const float *row = par__tp_as_f32(tp, bias, 0, n, scratch);
    for (size_t r = 0; row && r < m; r++) tp->loops->add(z + r * ldz, NULL, z + r * ldz, row, NULL, n, 0);
    if (!direct) par__tp_cast_rows(c, c_type, ldc, z, PAR_F32, n, m, n);
    return PAR_OK;
}

static par_result par__tp_cpu_sum_rows(par_tp *tp, float *sum, const void *x, size_t ld, size_t rows,
                                       size_t cols) {
    for (size_t r = 0; r < rows; r++)
        tp->loops->axpy(sum, par__tp_const_element(tp, x, r * ld), 1.0f, cols, !par__tp_is_f32(tp));
    return PAR_OK;
}

static par_result par__tp_cpu_elementwise(par_tp *tp, par_tp_elementwise what, size_t rows, size_t cols,
                                          void *o0, void *o1, size_t out_ld, const void *a, size_t a_ld,
                                          const void *b, const void *c, size_t bc_ld) {
    const par__tp_loops *l = tp->loops;
    void(*const loops[PAR_TP_ELEMENTWISE_COUNT])
        PAR__TP_ELEMENTWISE = {l->gelu, l->gelu_backward, l->swiglu, l->swiglu_backward, l->add};
    if (out_ld == cols && a_ld == cols && (!b || bc_ld == cols)) {
        cols *= rows;
        rows = rows ? 1 : 0;
    }
    for (size_t r = 0; r < rows; r++)
        loops[what](par__tp_element(tp, o0, r * out_ld), o1 ? par__tp_element(tp, o1, r * out_ld) : NULL,
                    par__tp_const_element(tp, a, r * a_ld),
                    b ? par__tp_const_element(tp, b, r * bc_ld) : NULL,
                    c ? par__tp_const_element(tp, c, r * bc_ld) : NULL, cols, !par__tp_is_f32(tp));
    return PAR_OK;
}

static par_result par__tp_cpu_norm_forward(par_tp *tp, void *y, float *stats, const void *x, const void *add,
                                           void *sum, const void *weight, const void *bias, size_t rows,
                                           size_t cols, int rms, float epsilon) {
    float *scratch = par__tp_row_scratch(tp, 2, cols);
    if (!scratch) return PAR_ERR_MEMORY;
    if (add) {
        PAR__TP_TRY(
            par__tp_cpu_elementwise(tp, PAR_TP_ADD, rows, cols, sum, NULL, cols, x, cols, add, NULL, cols));
        x = sum;
    }
    const float *w = par__tp_as_f32(tp, weight, 0, cols, scratch);
    const float *b = par__tp_as_f32(tp, bias, 0, cols, scratch + cols);
    for (size_t r = 0; r < rows; r++)
        tp->loops->norm_row(par__tp_element(tp, y, r * cols), stats + r * (rms ? 1 : 2),
                            par__tp_const_element(tp, x, r * cols), w, b, cols, rms, epsilon,
                            !par__tp_is_f32(tp));
    return PAR_OK;
}
static par_result par__tp_cpu_norm_backward(par_tp *tp, void *dx, float *dweight, float *dbias,
                                            const void *dy, const void *x, const void *add,
                                            const void *weight, const float *stats, size_t rows, size_t cols,
                                            int rms) {
    float *scratch = par__tp_row_scratch(tp, 2, cols);
    if (!scratch) return PAR_ERR_MEMORY;
    const float *w = par__tp_as_f32(tp, weight, 0, cols, scratch);
    const int bf16 = !par__tp_is_f32(tp);
    for (size_t r = 0; r < rows; r++) {
        void *to = par__tp_element(tp, dx, r * cols), *gradient = add ? (void *)(scratch + cols) : to;
        tp->loops->norm_row_backward(gradient, dweight, dbias, par__tp_const_element(tp, dy, r * cols),
                                     par__tp_const_element(tp, x, r * cols), w, stats + r * (rms ? 1 : 2),
                                     cols, rms, bf16);
        if (add)
            tp->loops->add(to, NULL, gradient, par__tp_const_element(tp, add, r * cols), NULL, cols, bf16);
    }
    return PAR_OK;
}

static void par__tp_dropout_row(const par_tp *tp, float *y, const float *x, size_t n, uint64_t stream,
                                uint64_t first, float p) {
    enum { MOST = 4 * PAR__PHILOX_BLOCKS };
    const uint64_t drop = stream + (tp->dropout_offset ? *tp->dropout_offset : 0);
    uint32_t words[MOST];
    for (size_t i = 0, count; i < n; i += count) {
        const size_t skip = (first + i) % 4;
        count = PAR__MIN(n - i, MOST - skip);
        par__philox_blocks(words, tp->desc.seed, drop, (first + i) / 4, (skip + count + 3) / 4);
        tp->loops->drop(y + i, x + i, words + skip, count, p);
    }
}
static par_result par__tp_cpu_dropout(par_tp *tp, void *y, const void *x, size_t rows, size_t cols,
                                      const par_tp_row_map *map, uint64_t stream, float probability) {
    float *scratch = par__tp_row_scratch(tp, 2, cols);
    if (!scratch) return PAR_ERR_MEMORY;
    for (size_t r = 0; r < rows; r++) {
        par__tp_dropout_row(tp, par__tp_f32_output(tp, y, r * cols, scratch),
                            par__tp_as_f32(tp, x, r * cols, cols, scratch + cols), cols, stream,
                            par_tp_token_index(map, r) * cols, probability);
        par__tp_store_f32(tp, y, r * cols, cols, scratch);
    }
    return PAR_OK;
}

// The table of cosines, then sines, for each token of a sequence on this rank. It is kept, because all layers
// of a step need the same one.
static const float *par__tp_rope_table(par_tp *tp, const par_tp_row_map *map, const par_tp_rotary *rotary,
                                       size_t dim) {
    const size_t half = dim / 2;
    par__tp_rope_key key;
    memset(&key, 0, sizeof key);
    key.rotary = *rotary;
    key.dim = dim;
    key.sequence = map->sequence;
    key.position = map->position;
    key.is_set = 1;
    if (!memcmp(&key, &tp->rope_key, sizeof key))
        return (const float *)tp->scratch[PAR__TP_ROPE_TABLE].memory;
    tp->rope_key.is_set = 0;
    float *table = (float *)par_tp_scratch(tp, PAR__TP_ROPE_TABLE, map->local_sequence * dim * sizeof(float));
    for (size_t i = 0; i < half && table; i++) {
        const double f = par__tp_rope_frequency(rotary, i, dim);
        for (size_t r = 0; r < map->local_sequence; r++) {
            const double angle = (double)par__tp_map_position(map, r) * f;
            table[r * dim + i] = (float)par__cos(angle);
            table[r * dim + half + i] = (float)par__sin(angle);
        }
    }
    if (table) memcpy(&tp->rope_key, &key, sizeof key);
    return table;
}
static par_result par__tp_cpu_rope(par_tp *tp, void *x, size_t rows, size_t ld, size_t heads, size_t dim,
                                   const par_tp_row_map *map, const par_tp_rotary *rotary, int backward) {
    const float *table = par__tp_rope_table(tp, map, rotary, dim);
    float *scratch = par__tp_row_scratch(tp, 1, dim);
    if (!scratch || !table) return PAR_ERR_MEMORY;
    for (size_t r = 0; r < rows; r++)
        for (size_t h = 0; h < heads; h++) {
            const size_t at = r * ld + h * dim, token = (map->first_row + r) % map->local_sequence;
            tp->loops->rotate(par__tp_f32_output(tp, x, at, scratch), par__tp_as_f32(tp, x, at, dim, scratch),
                              table + token * dim, dim / 2, backward ? -1.0f : 1.0f);
            par__tp_store_f32(tp, x, at, dim, scratch);
        }
    return PAR_OK;
}

static par_result par__tp_cpu_embed(par_tp *tp, void *y, const int32_t *ids, size_t rows, const void *table,
                                    size_t first, size_t count, size_t cols) {
    const size_t bytes = cols * par_tp_element_bytes(tp);
    for (size_t r = 0; r < rows; r++) {
        const size_t id = (size_t)ids[r] - first; // wraps around below
        if (id < count)
            memcpy((char *)y + r * bytes, (const char *)table + id * bytes, bytes);
        else
            memset((char *)y + r * bytes, 0, bytes);
    }
    return PAR_OK;
}
static par_result par__tp_cpu_embed_backward(par_tp *tp, float *grad, const int32_t *ids, size_t rows,
                                             const void *dy, size_t first, size_t count, size_t cols) {
    for (size_t r = 0; r < rows; r++) {
        const size_t id = (size_t)ids[r] - first;
        if (id < count)
            tp->loops->axpy(grad + id * cols, par__tp_const_element(tp, dy, r * cols), 1.0f, cols,
                            !par__tp_is_f32(tp));
    }
    return PAR_OK;
}
static par_result par__tp_cpu_positions(par_tp *tp, void *y, const void *table, size_t rows, size_t cols,
                                        const par_tp_row_map *map) {
    for (size_t r = 0; r < rows; r++)
        par__tp_add_row(tp, y, r * cols, table, par_tp_row_position(map, r) * cols, cols);
    return PAR_OK;
}
static par_result par__tp_cpu_positions_backward(par_tp *tp, float *grad, const void *dy, size_t rows,
                                                 size_t cols, const par_tp_row_map *map) {
    for (size_t r = 0; r < rows; r++)
        tp->loops->axpy(grad + par_tp_row_position(map, r) * cols, par__tp_const_element(tp, dy, r * cols),
                        1.0f, cols, !par__tp_is_f32(tp));
    return PAR_OK;
}

static par_result par__tp_cpu_loss_stats(par_tp *tp, float *stats, const void *logits, size_t ld,
                                         const int32_t *targets, size_t rows, size_t first, size_t cols) {
    float *scratch = par__tp_row_scratch(tp, 1, cols);
    if (!scratch) return PAR_ERR_MEMORY;
    for (size_t r = 0; r < rows; r++, stats += 4) {
        const float *x = par__tp_as_f32(tp, logits, r * ld, cols, scratch);
        const size_t target = (size_t)targets[r] - first;
        stats[0] = cols ? tp->loops->row_max(x, cols) : -INFINITY;
        stats[1] = cols ? tp->loops->row_exp_sum(x, stats[0], cols) : 0;
        stats[2] = target < cols ? x[target] : 0;
        stats[3] = tp->loops->row_sum(x, cols);
    }
    return PAR_OK;
}
static par_result par__tp_cpu_loss_combine(par_tp *tp, const float *all, size_t t, size_t rows,
                                           const int32_t *targets, const par_tp_loss *loss, float *lse,
                                           float *losses, double *sum, size_t *target_count) {
    (void)tp;
    *sum = 0;
    *target_count = 0;
    for (size_t r = 0; r < rows; r++) {
        const double one = par__tp_row_loss(loss, all + 4 * r, t, 4 * rows, &lse[r]);
        const int ignored = par__tp_ignored(loss, targets[r]);
        if (losses) losses[r] = ignored ? 0 : (float)one;
        if (!ignored) {
            *sum += one;
            *target_count += 1;
        }
    }
    return PAR_OK;
}
static par_result par__tp_cpu_set(par_tp *tp, float *x, size_t n, float value) {
    (void)tp;
    for (size_t i = 0; i < n; i++) x[i] = value;
    return PAR_OK;
}
static par_result par__tp_cpu_loss_backward(par_tp *tp, void *dlogits, const void *logits, size_t ld,
                                            const int32_t *targets, const float *lse, size_t rows,
                                            size_t first, size_t cols, const par_tp_loss *loss, float scale) {
    float *scratch = par__tp_row_scratch(tp, 2, cols);
    const float smooth = par__tp_loss_smooth(loss, scale);
    if (!scratch) return PAR_ERR_MEMORY;
    for (size_t r = 0; r < rows; r++) {
        float *y = par__tp_f32_output(tp, dlogits, r * ld, scratch);
        const float *x = par__tp_as_f32(tp, logits, r * ld, cols, scratch + cols);
        const size_t target = (size_t)targets[r] - first;
        if (par__tp_ignored(loss, targets[r])) {
            memset(y, 0, cols * sizeof *y);
        } else {
            tp->loops->logit_gradients(y, x, lse[r], par__tp_loss_factor(loss, scale, lse[r]), smooth, cols);
            if (target < cols) y[target] = par__tp_target_gradient(loss, scale, y[target]);
        }
        par__tp_store_f32(tp, dlogits, r * ld, cols, scratch);
    }
    return PAR_OK;
}
static par_result par__tp_cpu_loss_forward_backward(par_tp *tp, void *dlogits, float *stats,
                                                    const void *logits, size_t ld, const int32_t *targets,
                                                    size_t rows, size_t cols, const par_tp_loss *loss,
                                                    float *lse, float *losses, double *sum,
                                                    size_t *target_count, float scale) {
    *sum = 0;
    *target_count = 0;
    for (size_t r = 0; r < rows; r++) { // the row stays in the caches
        const char *x = par__tp_const_element(tp, logits, r * ld);
        double one;
        size_t counts;
        PAR__TP_TRY(par__tp_cpu_loss_stats(tp, stats + 4 * r, x, ld, targets + r, 1, 0, cols));
        PAR__TP_TRY(par__tp_cpu_loss_combine(tp, stats + 4 * r, 1, 1, targets + r, loss, lse + r,
                                             losses ? losses + r : NULL, &one, &counts));
        PAR__TP_TRY(par__tp_cpu_loss_backward(tp, par__tp_element(tp, dlogits, r * ld), x, ld, targets + r,
                                              lse + r, 1, 0, cols, loss, scale));
        *sum += one;
        *target_count += counts;
    }
    return PAR_OK;
}

// ---- attention. For each sequence and head, blocks of queries x blocks of keys (Dao et al. 2022), scores s:
//     s = scale q k^T;  new max m' = max(m, s);  sum = sum e^(m - m') + sum of e^(s - m');
//     acc = acc e^(m - m') + e^(s - m') v
// and backward, with p = e^(s - lse):
//     dv += p^T dy;  dp = dy v^T;  ds = p (dp - dot) scale;  dq += ds k;  dk += ds^T q
// Within a block a strip of 32 queries is computed at a time, whose scores stay in the first-level cache.
// Scores are stored turned, keys x queries, so that vectors hold queries; acc and dq are queries x features
// in f32, features x queries with products of bf16. A strip's keys end with the last one that its queries
// see, rounded up to a tile's rows.
//
// The products are made of the matrix products' tiles, of par__gemm_tile in f32 or of par__tp_dot. Keys and
// values of a head are copied to dense rows; a block's queries are packed in strips.

enum {
    PAR__TP_BLOCK = 128, // tokens of a block
    PAR__TP_STRIPS = PAR__TP_BLOCK / PAR__TP_STRIP,
    PAR__TP_BLOCK_ROWS = PAR__TP_BLOCK + PAR__TP_DOT_ROWS, // a tile may read and write beyond the last row
    PAR__TP_SCORES_LD = PAR__TP_BLOCK + 16,                // no power of two: rows differ in their cache set
    PAR__TP_NARROW_LD = PAR__TP_BLOCK + 32
};
// What is computed now, its operands (bf16 with tp->dot, else f32) and scratch memory.
typedef struct par__tp_core {
    const par_tp_attention_block *m;
    void *y;            // whole sequences: the output goes here; else NULL
    float *lse;         // of y
    size_t bytes;       // of an operand's element
    size_t tile, unit;  // rows of a tile; what its k is a multiple of
    size_t pad, width;  // what a strip's keys are rounded up to; queries whose scores end with the same key
    size_t beyond;      // keys behind the seen ones whose weights are read, and are 0
    size_t depth, wide; // features of a head, rounded up to `unit`, and to whole strips
    size_t key_ld;      // of k and v
    size_t keys;        // m->kv_count, rounded up to strips
    size_t ld, step;    // of s and g: from one key to the next, from one strip to the next
    size_t sequence, kv_head, head;
    char *k, *v;   // keys x features
    char *kt, *vt; // the same turned, wide x keys; of bf16 alone
    char *q, *dy;  // the block's queries, strip by strip: depth x 32
    char *q_rows,
        *dy_rows; // the same as right operands: for each 32 features, or (f32) all: queries x features
    float *s, *g, *mask, *random;
    par_bf16 *narrow[2]; // p and ds rounded, keys x queries
    uint32_t *pairs;     // p or ds of a strip, rounded, two keys together
    float *out;          // strip by strip: acc or dq
    float *dk, *dv;      // keys x wide: sums of the gradients so far
    float *rows;         // 32 x wide
    float row_max[PAR__TP_BLOCK], sum[PAR__TP_BLOCK], log_sum[PAR__TP_BLOCK], dot[PAR__TP_BLOCK];
    int started[PAR__TP_STRIPS];         // out has a value
    size_t q_at, q_count, k_at, k_count; // the block
} par__tp_core;

// C = alpha A B, or C += it: `rows` x `cols`. f32: alpha is 1, element (i, p) of A is a[i a_row + p a_k] and
// B has rows of ldb; those of A are zeros from p = seen + i + 1 on, where the sum does not wrap around. bf16:
// at most 32 columns, A is as par__tp_dot.tile's, and B is packed.
typedef struct par__tp_strip_product {
    size_t rows, cols, k, seen;
    const char *a;
    size_t a_row, a_k;
    const char *b;
    size_t ldb;
    float alpha, *c;
    size_t ldc;
    int add;
} par__tp_strip_product;
static void par__tp_multiply_strip(const par_tp *tp, const par__tp_strip_product *m) {
    if (tp->dot) {
        float acc[(int)PAR__TP_DOT_ROWS * PAR__TP_DOT_COLS];
        for (size_t i = 0, tile = tp->dot->rows; i < m->rows; i += tile) {
            const size_t rows = PAR__MIN(tile, m->rows - i);
            const int whole = tp->dot->outputs && rows == tile && m->cols == PAR__TP_DOT_COLS;
            const par__tp_output to_acc = {1, 0, NULL, acc, 0, PAR__TP_DOT_COLS};
            const par__tp_output to_c = {m->alpha, m->add ? 1.0f : 0.0f, NULL, m->c + i * m->ldc, 0, m->ldc};
            tp->dot->tile(m->k, (const par_bf16 *)(const void *)m->a + i * m->a_row, m->a_row, m->a_k,
                          (const par_bf16 *)(const void *)m->b, whole ? &to_c : &to_acc);
            if (!whole) tp->loops->store_tile(&to_c, acc, rows, m->cols);
        }
        return;
    }
    for (size_t i = 0, rows; i < m->rows; i += rows) {
        const par__gemm_tile *tile = par__gemm_tile_for(tp->tile, m->rows - i);
        rows = PAR__MIN(tile->rows, m->rows - i);
        for (size_t j = 0; j < m->cols; j += tile->cols)
            par__gemm_edge(tile, rows, PAR__MIN(tile->cols, m->cols - j), PAR__MIN(m->k, m->seen + i + rows),
                           (const float *)(const void *)m->a + i * m->a_row, m->a_row, m->a_k,
                           (const float *)(const void *)m->b + j, m->ldb, m->c + i * m->ldc + j, m->ldc,
                           m->add);
    }
}

static void *par__tp_carve(char *base, size_t *at, size_t bytes) { // base NULL: only counts
    void *memory = base ? base + *at : NULL;
    *at += par__round_up(bytes, 64);
    return memory;
}
// Lays out scratch memory from `base` on and returns its size.
static size_t par__tp_core_layout(const par_tp *tp, par__tp_core *o, char *base) {
    const size_t e = o->bytes, block = PAR__TP_BLOCK_ROWS, backward = o->m->dy != NULL;
    const size_t keys = o->keys + PAR__TP_DOT_ROWS, turned = tp->dot ? o->wide * o->keys * e : 0;
    const size_t strips = PAR__MAX(o->depth, o->wide) * PAR__TP_BLOCK * e;
    size_t at = 0;
    o->k = (char *)par__tp_carve(base, &at, keys * o->key_ld * e);
    o->v = (char *)par__tp_carve(base, &at, keys * o->key_ld * e);
    o->kt = (char *)par__tp_carve(base, &at, backward ? turned : 0);
    o->vt = (char *)par__tp_carve(base, &at, backward ? 0 : turned);
    o->q = (char *)par__tp_carve(base, &at, strips);
    o->dy = (char *)par__tp_carve(base, &at, backward ? strips : 0);
    o->q_rows = (char *)par__tp_carve(base, &at, strips);
    o->dy_rows = (char *)par__tp_carve(base, &at, backward ? strips : 0);
    o->s = (float *)par__tp_carve(base, &at, block * o->ld * sizeof(float));
    o->g = (float *)par__tp_carve(base, &at, backward ? block * o->ld * sizeof(float) : 0);
    o->mask = (float *)par__tp_carve(base, &at, block * PAR__TP_STRIP * sizeof(float));
    o->random = (float *)par__tp_carve(base, &at, block * PAR__TP_STRIP * sizeof(float));
    for (int i = 0; i < 2; i++)
        o->narrow[i] = (par_bf16 *)par__tp_carve(
            base, &at, backward && tp->dot ? block * PAR__TP_NARROW_LD * sizeof(par_bf16) : 0);
    o->pairs =
        (uint32_t *)par__tp_carve(base, &at, tp->dot ? block / 2 * PAR__TP_STRIP * sizeof(uint32_t) : 0);
    o->out = (float *)par__tp_carve(base, &at, o->wide * PAR__TP_BLOCK * sizeof(float));
    o->dk = (float *)par__tp_carve(base, &at, backward ? keys * o->wide * sizeof(float) : 0);
    o->dv = (float *)par__tp_carve(base, &at, backward ? keys * o->wide * sizeof(float) : 0);
    o->rows = (float *)par__tp_carve(base, &at, o->wide * PAR__TP_STRIP * sizeof(float));
    return at;
}
static int par__tp_core_open(par_tp *tp, const par_tp_attention_block *m, void *y, float *lse,
                             par__tp_core *o) {
    const int apart = m->dy && !tp->dot; // all strips of a block are kept
    o->m = m;
    o->y = y;
    o->lse = lse;
    o->bytes = tp->dot ? sizeof(par_bf16) : sizeof(float);
    o->tile = tp->dot ? tp->dot->rows : tp->tile->rows;
    o->unit = tp->dot ? tp->dot->unit : 1;
    o->pad = tp->dot ? o->tile : 2;
    o->width = tp->dot ? (size_t)PAR__TP_STRIP : tp->tile->cols;
    o->beyond = apart ? o->tile - 1 : 0; // tiles of par__tp_keys_add
    o->depth = par__round_up(m->dim, o->unit);
    o->wide = par__round_up(m->dim, PAR__TP_STRIP);
    o->key_ld = tp->dot ? o->depth : o->wide;
    o->keys = par__round_up(m->kv_count, PAR__TP_STRIP);
    o->ld = apart ? (size_t)PAR__TP_SCORES_LD : (size_t)PAR__TP_STRIP;
    o->step = apart ? PAR__TP_STRIP : 0;
    const size_t bytes = par__tp_core_layout(tp, o, NULL);
    char *memory = (char *)par_tp_scratch(tp, PAR__TP_SCORES, bytes);
    if (memory) par__tp_core_layout(tp, o, memory);
    return memory != NULL;
}

// Copies rows of a head to dense rows of `to_ld` operands; what is missing is zeros.
static void par__tp_load_rows(const par_tp *tp, char *to, size_t to_ld, const void *x, size_t at, size_t ld,
                              size_t rows, size_t dim) {
    const size_t e = tp->dot ? sizeof(par_bf16) : sizeof(float);
    for (size_t r = 0; r < rows; r++, to += to_ld * e) {
        if (tp->dot || par__tp_is_f32(tp))
            memcpy(to, par__tp_const_element(tp, x, at + r * ld), dim * e);
        else
            par_cast(to, PAR_F32, (const par_bf16 *)x + at + r * ld, PAR_BF16, dim);
        if (dim < to_ld) memset(to + dim * e, 0, (to_ld - dim) * e);
    }
}
// The gradients of keys and values begin with those of earlier queries.
static void par__tp_begin_keys(const par__tp_core *o) {
    const par_tp_attention_block *m = o->m;
    const size_t row = o->sequence * m->kv_stride + m->kv_row, bytes = m->dim * sizeof *o->dk;
    for (size_t k = 0; k < m->kv_count; k++) {
        float *dk = o->dk + k * o->wide, *dv = o->dv + k * o->wide;
        const size_t from = (row + k) * m->dkv_ld + o->kv_head * m->dim;
        if (m->first_queries) {
            memset(dk, 0, bytes);
            memset(dv, 0, bytes);
        } else {
            memcpy(dk, m->dk + from, bytes);
            memcpy(dv, m->dv + from, bytes);
        }
    }
}
static void par__tp_load_keys(const par_tp *tp, par__tp_core *o) {
    const par_tp_attention_block *m = o->m;
    const size_t first = (o->sequence * m->kv_stride + m->kv_row) * m->kv_ld + o->kv_head * m->kv_head_stride;
    par__tp_load_rows(tp, o->k, o->key_ld, m->k, first, m->kv_ld, m->kv_count, m->dim);
    par__tp_load_rows(tp, o->v, o->key_ld, m->v, first, m->kv_ld, m->kv_count, m->dim);
    par_bf16 *turned = (par_bf16 *)(void *)(m->dy ? o->kt : o->vt);
    const par_bf16 *rows = (const par_bf16 *)(const void *)(m->dy ? o->k : o->v);
    if (tp->dot && !tp->dot->strides)
        tp->loops->pack_rows(turned, rows, 1, o->depth, m->kv_count, o->keys, m->dim, o->wide);
    if (tp->dot && tp->dot->strides)
        tp->loops->pack_panels(turned, PAR__TP_STRIP * o->keys, rows, o->depth, 1, m->kv_count, o->keys,
                               m->dim, tp->dot->group);
    if (m->dy) par__tp_begin_keys(o);
}
// Packs the block's queries (or gradients of the output): as strips, and as rows for products over queries.
static void par__tp_load_queries(const par_tp *tp, const par__tp_core *o, const void *x, size_t ld,
                                 float scale, char *strips, char *rows) {
    const size_t dim = o->m->dim, strip = o->depth * PAR__TP_STRIP, n = o->q_count;
    const size_t at = (o->sequence * o->m->q_stride + o->m->q_row + o->q_at) * ld + o->head * dim;
    const int in_place = par__tp_is_f32(tp) && !o->m->dy;
    const float *from = in_place ? (const float *)x + at : (const float *)(const void *)rows;
    const size_t from_ld = in_place ? ld : o->wide;
    if (!tp->dot && !in_place) par__tp_load_rows(tp, rows, o->wide, x, at, ld, n, dim);
    for (size_t i = 0; i < n; i += PAR__TP_STRIP, strips += strip * o->bytes) {
        const size_t count = PAR__MIN((size_t)PAR__TP_STRIP, n - i);
        if (tp->dot) {
            tp->loops->pack_panels((par_bf16 *)(void *)strips, 0, (const par_bf16 *)x + at + i * ld, 1, ld,
                                   dim, o->depth, count, tp->dot->group);
            continue;
        }
        float *to = (float *)(void *)strips;
        if (count < PAR__TP_STRIP) memset(to, 0, strip * sizeof *to);
        tp->loops->transpose(to, PAR__TP_STRIP, from + i * from_ld, from_ld, count, dim);
        if (scale != 1) tp->loops->scale(to, to, scale, strip);
    }
    if (tp->dot && o->m->dy)
        tp->loops->pack_panels((par_bf16 *)(void *)rows, (int)PAR__TP_STRIP * PAR__TP_BLOCK,
                               (const par_bf16 *)x + at, ld, 1, n, par__round_up(n, PAR__TP_STRIP), dim,
                               tp->dot->group);
}

// The keys of the block that at least one of the queries before `end` sees.
static size_t par__tp_seen_keys(const par__tp_core *o, size_t end) {
    const size_t query = o->m->q_position + o->q_at + PAR__MIN(end, o->q_count);
    const size_t key = o->m->kv_position + o->k_at;
    return query <= key ? 0 : PAR__MIN(o->k_count, query - key);
}
// y = alpha rows x strip: scores, or the gradients of their weights. Those of keys that none of `width`
// queries sees are left as they are.
static void par__tp_strip_scores(const par_tp *tp, const par__tp_core *o, size_t strip, float alpha,
                                 const char *rows, const char *strips, float *y) {
    for (size_t j = 0; j < PAR__TP_STRIP; j += o->width) {
        const size_t seen = par__tp_seen_keys(o, strip * PAR__TP_STRIP + j + o->width);
        par__tp_strip_product p;
        p.rows = par__round_up(seen, o->pad);
        p.cols = o->width;
        p.k = o->depth;
        p.seen = o->depth;
        p.a = rows + o->k_at * o->key_ld * o->bytes;
        p.a_row = o->key_ld;
        p.a_k = tp->dot ? tp->dot->group : 1;
        p.b = strips + (strip * PAR__TP_STRIP * o->depth + j) * o->bytes;
        p.ldb = PAR__TP_STRIP;
        p.alpha = alpha;
        p.c = y + strip * o->step + j;
        p.ldc = o->ld;
        p.add = 0;
        par__tp_multiply_strip(tp, &p);
    }
}
// The mask of a strip by window and documents: scores of keys before the first one that a query sees become
// -inf.
static void par__tp_window_mask(const par__tp_core *o, size_t strip, size_t keys) {
    const size_t query = o->m->q_position + o->q_at + strip * PAR__TP_STRIP,
                 key = o->m->kv_position + o->k_at;
    const size_t count = PAR__MIN((size_t)PAR__TP_STRIP, o->q_count - strip * PAR__TP_STRIP);
    for (size_t q = 0; (o->m->window || o->m->documents) && q < count; q++)
        for (size_t k = 0, first = par__tp_first_key(o->m, o->sequence, query + q);
             k < keys && key + k < first; k++)
            o->s[k * o->ld + strip * o->step + q] = -INFINITY;
}
// The causal mask of a strip: a query sees the keys up to its own position; the other scores become -inf, and
// the gradients of their weights 0.
static void par__tp_causal_mask(const par__tp_core *o, size_t strip, size_t keys) {
    const size_t query = o->m->q_position + o->q_at + strip * PAR__TP_STRIP,
                 key = o->m->kv_position + o->k_at;
    const size_t seen_by_all = query < key ? 0 : query - key + 1;
    for (size_t k = PAR__MIN(seen_by_all, o->k_count); k < keys; k++) {
        const size_t at = k * o->ld + strip * o->step;
        const size_t hidden =
            k < o->k_count ? PAR__MIN(key + k - query, (size_t)PAR__TP_STRIP) : (size_t)PAR__TP_STRIP;
        for (size_t q = 0; q < hidden; q++) o->s[at + q] = -INFINITY;
        for (size_t q = 0; o->m->dy && q < hidden; q++) o->g[at + q] = 0;
    }
    par__tp_window_mask(o, strip, keys);
}
// The dropout factors of a strip: 0 or 1/(1 - p), from the random number of each pair (query, key). Returns
// NULL where nothing is dropped.
static const float *par__tp_dropout_mask(par_tp *tp, const par__tp_core *o, size_t strip, size_t keys) {
    const par_tp_attention_block *m = o->m;
    const size_t first = strip * PAR__TP_STRIP, key = m->kv_position + o->k_at;
    if (m->dropout <= 0) return NULL;
    for (size_t q = 0; q < PAR__TP_STRIP; q++) {
        float *row = o->random + q * PAR__TP_BLOCK_ROWS;
        const uint64_t query = m->q_position + o->q_at + first + q;
        for (size_t k = 0; k < keys; k++) row[k] = 1;
        if (first + q < o->q_count)
            par__tp_dropout_row(tp, row, row, PAR__MIN(keys, o->k_count), m->stream,
                                par__tp_first_score(m, o->sequence, o->head) + query * m->sequence + key,
                                m->dropout);
    }
    tp->loops->transpose(o->mask, PAR__TP_STRIP, o->random, PAR__TP_BLOCK_ROWS, PAR__TP_STRIP, keys);
    return o->mask;
}
// out += x turned times `rows`, the keys or values; x is a strip of weights or of gradients of scores. With
// products of bf16 out += (rows turned) x, for 32 features at a time.
static void par__tp_strip_add(const par_tp *tp, par__tp_core *o, size_t strip, size_t keys, const char *rows,
                              const char *turned, const float *x) {
    const int panels = tp->dot && tp->dot->strides, add = o->started[strip];
    float *out = o->out + strip * PAR__TP_STRIP * o->wide;
    o->started[strip] = 1;
    if (!tp->dot) {
        par__tp_strip_product p;
        p.rows = PAR__TP_STRIP;
        p.cols = o->m->dim;
        p.k = keys;
        p.seen = o->m->q_position + o->q_at + strip * PAR__TP_STRIP - o->m->kv_position - o->k_at;
        p.a = (const char *)(x + strip * o->step);
        p.a_row = 1;
        p.a_k = o->ld;
        p.b = rows + o->k_at * o->key_ld * o->bytes;
        p.ldb = o->key_ld;
        p.alpha = 1;
        p.c = out;
        p.ldc = o->wide;
        p.add = add;
        par__tp_multiply_strip(tp, &p);
        return;
    }
    for (size_t j = 0; j < o->m->dim; j += PAR__TP_STRIP) {
        par__tp_strip_product p;
        p.rows = PAR__MIN((size_t)PAR__TP_STRIP, o->m->dim - j);
        p.cols = PAR__TP_STRIP;
        p.k = par__round_up(keys, o->unit);
        p.seen = keys;
        p.a = turned + (j * o->keys + o->k_at * (panels ? PAR__TP_STRIP : 1)) * o->bytes;
        p.a_row = panels ? tp->dot->group : o->keys;
        p.a_k = tp->dot->group * (panels ? PAR__TP_STRIP : 1);
        p.b = (const char *)o->pairs;
        p.ldb = o->ld;
        p.alpha = 1;
        p.c = out + j * PAR__TP_STRIP;
        p.ldc = PAR__TP_STRIP;
        p.add = add;
        par__tp_multiply_strip(tp, &p);
    }
}
// Multiplies what each query of a strip has in out by a factor.
static void par__tp_scale_queries(const par_tp *tp, const par__tp_core *o, size_t strip,
                                  const float *factor) {
    float *out = o->out + strip * PAR__TP_STRIP * o->wide;
    int same = 1;
    for (size_t q = 0; q < PAR__TP_STRIP; q++) {
        same &= factor[q] == 1;
        if (!tp->dot && factor[q] != 1)
            tp->loops->scale(out + q * o->wide, out + q * o->wide, factor[q], o->m->dim);
    }
    if (tp->dot && !same) tp->loops->scale_strip(out, out, factor, o->m->dim);
}

// The keys of which a strip makes weights: `seen`, and those whose weights, 0, are read with theirs.
static size_t par__tp_weighted_keys(const par__tp_core *o, size_t seen) {
    return par__round_up(PAR__MIN(seen + o->beyond, o->k_count), o->pad);
}
static void par__tp_strip_forward(par_tp *tp, par__tp_core *o, size_t strip) {
    float rescale[PAR__TP_STRIP];
    const size_t seen = par__tp_seen_keys(o, (strip + 1) * PAR__TP_STRIP);
    const size_t keys = par__tp_weighted_keys(o, seen);
    if (!seen) return;
    par__tp_strip_scores(tp, o, strip, o->m->scale, o->k, o->q, o->s);
    par__tp_causal_mask(o, strip, keys);
    tp->loops->online_softmax(o->s, o->ld, keys, o->row_max + strip * PAR__TP_STRIP,
                              o->sum + strip * PAR__TP_STRIP, rescale,
                              par__tp_dropout_mask(tp, o, strip, keys), tp->dot ? o->pairs : NULL);
    if (o->started[strip]) par__tp_scale_queries(tp, o, strip, rescale);
    par__tp_strip_add(tp, o, strip, seen, o->v, o->vt, o->s);
}
static void par__tp_strip_backward(par_tp *tp, par__tp_core *o, size_t strip) {
    const size_t seen = par__tp_seen_keys(o, (strip + 1) * PAR__TP_STRIP);
    const size_t keys = par__tp_weighted_keys(o, seen);
    const size_t first = strip * PAR__TP_STRIP;
    if (!seen) return;
    par__tp_strip_scores(tp, o, strip, o->m->scale, o->k, o->q, o->s);
    par__tp_strip_scores(tp, o, strip, 1, o->v, o->dy, o->g);
    par__tp_causal_mask(o, strip, keys);
    par__tp_softmax_gradient g = {o->s + strip * o->step,
                                  o->g + strip * o->step,
                                  o->ld,
                                  keys,
                                  o->log_sum + first,
                                  o->dot + first,
                                  par__tp_dropout_mask(tp, o, strip, keys),
                                  o->m->scale,
                                  {o->narrow[0] + first, o->narrow[1] + first},
                                  PAR__TP_NARROW_LD,
                                  tp->dot ? o->pairs : NULL};
    tp->loops->softmax_backward(&g);
    par__tp_strip_add(tp, o, strip, seen, o->k, o->kt, o->g);
}
// dk or dv += x times queries, of a block: x are the gradients of the scores or the weights.
static void par__tp_keys_add(const par_tp *tp, const par__tp_core *o, const float *x, const par_bf16 *narrow,
                             const char *rows, float *y) {
    const size_t query = o->m->q_position + o->q_at, key = o->m->kv_position + o->k_at;
    const size_t n = tp->dot ? par__round_up(o->q_count, PAR__TP_STRIP) : o->q_count;
    for (size_t i = 0, count; i < o->k_count; i += count) {
        const size_t left = o->k_count - i;
        count = PAR__MIN(tp->dot ? o->tile : par__gemm_tile_for(tp->tile, left)->rows, left);
        const size_t first =
            key + i > query ? (key + i - query) / o->unit * o->unit : 0; // query that sees it
        const char *a = tp->dot ? (const char *)(narrow + i * PAR__TP_NARROW_LD + first)
                                : (const char *)(x + i * o->ld + first);
        for (size_t j = 0; first < o->q_count && j < o->m->dim; j += PAR__TP_STRIP) {
            const char *b =
                rows + (tp->dot ? j * PAR__TP_BLOCK + first * PAR__TP_STRIP : first * o->wide + j) * o->bytes;
            par__tp_strip_product p;
            p.rows = count;
            p.cols = PAR__MIN((size_t)PAR__TP_STRIP, o->m->dim - j);
            p.k = n - first;
            p.seen = n - first;
            p.a = a;
            p.a_row = tp->dot ? (size_t)PAR__TP_NARROW_LD : o->ld;
            p.a_k = tp->dot ? tp->dot->group : 1;
            p.b = b;
            p.ldb = o->wide;
            p.alpha = 1;
            p.c = y + (o->k_at + i) * o->wide + j;
            p.ldc = o->wide;
            p.add = 1;
            par__tp_multiply_strip(tp, &p);
        }
    }
}

// Where rows of sums go, of a head: `to`, f32 or of the storage type, = rows + `sums`. sums NULL: none.
typedef struct par__tp_rows_to {
    const float *sums;
    size_t sums_ld;
    void *to;
    size_t ld;
    int is_f32;
} par__tp_rows_to;
static void par__tp_put_rows(const par_tp *tp, float *rows, size_t row_ld, const par__tp_rows_to *p,
                             size_t count, size_t dim) {
    for (size_t r = 0; r < count; r++, rows += row_ld) {
        float *sum = p->is_f32 ? (float *)p->to + r * p->ld : rows;
        if (p->sums)
            tp->loops->add(sum, NULL, p->sums + r * p->sums_ld, rows, NULL, dim, 0);
        else if (p->is_f32)
            memcpy(sum, rows, dim * sizeof *rows);
        if (!p->is_f32) par_cast((par_bf16 *)p->to + r * p->ld, PAR_BF16, sum, PAR_F32, dim);
    }
}
// Puts a strip of `out` there, with products of bf16 turned.
static void par__tp_put_strip(const par_tp *tp, const par__tp_core *o, size_t strip, const par__tp_rows_to *p,
                              size_t count) {
    float *out = o->out + strip * PAR__TP_STRIP * o->wide;
    if (tp->dot) tp->loops->transpose(o->rows, o->wide, out, PAR__TP_STRIP, o->m->dim, count);
    par__tp_put_rows(tp, tp->dot ? o->rows : out, o->wide, p, count, o->m->dim);
}
// The factor of one query's output after these keys: 1 / sum with y; else the softmax's state is merged with
// that of earlier keys, whose part of acc is scaled here.
static float par__tp_merge_state(const par_tp *tp, const par__tp_core *o, size_t query, size_t row) {
    const par_tp_attention_block *m = o->m;
    const size_t state = row * m->heads + o->head;
    const float max = o->row_max[query], sum = o->sum[query];
    if (o->y) {
        o->lse[state] = max + (float)par__log((double)sum);
        return 1 / sum;
    }
    float *acc = m->acc + row * m->acc_ld + o->head * m->dim;
    const float old = m->row_max[state], both = PAR__MAX(old, max);
    const float before = par__tp_softmax_weight(old, both), now = par__tp_softmax_weight(max, both);
    m->row_max[state] = both;
    m->row_sum[state] = m->row_sum[state] * before + sum * now;
    if (before != 1) tp->loops->scale(acc, acc, before, m->dim);
    return now;
}
// What queries from row `row` on have: an output or gradients, so far or (y, dx_q) after the last keys.
static par__tp_rows_to par__tp_rows_of_queries(const par_tp *tp, const par__tp_core *o, size_t row) {
    const par_tp_attention_block *m = o->m;
    const size_t column = o->head * m->dim;
    float *sums = m->dy ? m->dq : m->acc;
    par__tp_rows_to p = {NULL, m->dy ? m->dq_ld : m->acc_ld, m->dy ? m->dx_q : o->y, 0, par__tp_is_f32(tp)};
    if (m->dy ? !m->first : !o->y) p.sums = sums + row * p.sums_ld + column;
    p.ld = m->dy ? m->q_ld : m->heads * m->dim;
    if (!p.to) {
        p.to = sums;
        p.ld = p.sums_ld;
        p.is_f32 = 1;
    }
    p.to = (char *)p.to + (row * p.ld + column) * (p.is_f32 ? sizeof(float) : sizeof(par_bf16));
    return p;
}
static void par__tp_finish_queries(const par_tp *tp, par__tp_core *o) {
    const par_tp_attention_block *m = o->m;
    for (size_t i = 0; i < o->q_count; i += PAR__TP_STRIP) {
        const size_t strip = i / PAR__TP_STRIP, count = PAR__MIN((size_t)PAR__TP_STRIP, o->q_count - i);
        const size_t row = o->sequence * m->q_stride + m->q_row + o->q_at + i;
        float factor[PAR__TP_STRIP] = {0}, *out = o->out + strip * PAR__TP_STRIP * o->wide;
        if (!o->started[strip] && !m->dy) continue;
        if (!o->started[strip]) memset(out, 0, PAR__TP_STRIP * o->wide * sizeof *out); // they see no key here
        const par__tp_rows_to p = par__tp_rows_of_queries(tp, o, row);
        for (size_t j = 0; j < count && !m->dy; j++) factor[j] = par__tp_merge_state(tp, o, i + j, row + j);
        if (!m->dy) par__tp_scale_queries(tp, o, strip, factor);
        par__tp_put_strip(tp, o, strip, &p, count);
    }
}
static void par__tp_finish_keys(const par_tp *tp, const par__tp_core *o) {
    const par_tp_attention_block *m = o->m;
    const size_t row = o->sequence * m->kv_stride + m->kv_row, column = o->kv_head * m->dim;
    const size_t at = row * m->kv_ld + m->heads * m->dim + column;
    const int is_f32 = !m->dx_kv || par__tp_is_f32(tp);
    for (size_t v = 0; v < 2; v++) {
        const size_t bytes = (at + v * m->kv_heads * m->dim) * (is_f32 ? sizeof(float) : sizeof(par_bf16));
        par__tp_rows_to p = {NULL, 0, NULL, m->dx_kv ? m->kv_ld : m->dkv_ld, is_f32};
        p.to = m->dx_kv ? (char *)m->dx_kv + bytes : (char *)((v ? m->dv : m->dk) + row * m->dkv_ld + column);
        par__tp_put_rows(tp, v ? o->dv : o->dk, o->wide, &p, m->kv_count, m->dim);
    }
}

static void par__tp_begin_queries(const par_tp *tp, par__tp_core *o) {
    const par_tp_attention_block *m = o->m;
    const size_t row = o->sequence * m->q_stride + m->q_row + o->q_at;
    memset(o->started, 0, sizeof o->started);
    par__tp_load_queries(tp, o, m->q, m->q_ld, m->scale, o->q, o->q_rows);
    if (m->dy) par__tp_load_queries(tp, o, m->dy, m->dy_ld, 1, o->dy, o->dy_rows);
    for (size_t i = 0; i < PAR__TP_BLOCK; i++) {
        const int there = m->dy && i < o->q_count;
        o->row_max[i] = -INFINITY;
        o->sum[i] = 0;
        o->log_sum[i] = there ? m->lse[(row + i) * m->heads + o->head] : 0;
        o->dot[i] = there ? m->dot[(row + i) * m->heads + o->head] : 0;
    }
}
static void par__tp_core_block(par_tp *tp, par__tp_core *o) {
    const size_t strips = (o->q_count + PAR__TP_STRIP - 1) / PAR__TP_STRIP;
    if (!o->m->dy) {
        for (size_t i = 0; i < strips; i++) par__tp_strip_forward(tp, o, i);
        return;
    }
    for (size_t i = 0; i < strips; i++) par__tp_strip_backward(tp, o, i);
    par__tp_keys_add(tp, o, o->s, o->narrow[0], o->dy_rows, o->dv);
    par__tp_keys_add(tp, o, o->g, o->narrow[1], o->q_rows, o->dk);
}
static void par__tp_core_head(par_tp *tp, par__tp_core *o) {
    const size_t block = PAR__TP_BLOCK;
    const par_tp_attention_block *m = o->m;
    for (o->q_at = 0; o->q_at < m->q_count; o->q_at += block) {
        o->q_count = PAR__MIN(block, m->q_count - o->q_at);
        par__tp_begin_queries(tp, o);
        for (o->k_at = 0; o->k_at < m->kv_count; o->k_at += block) {
            o->k_count = PAR__MIN(block, m->kv_count - o->k_at);
            const size_t key = m->kv_position + o->k_at, query = m->q_position + o->q_at;
            if (key < query + o->q_count && key + o->k_count > par__tp_first_key(m, o->sequence, query))
                par__tp_core_block(tp, o); // the last query sees the first key, and the first the last
        }
        par__tp_finish_queries(tp, o);
    }
}
// Forward, or backward where there is m->dy, of all sequences and heads.
static par_result par__tp_core_attention(par_tp *tp, const par_tp_attention_block *m, void *y, float *lse) {
    const size_t group = m->heads / m->kv_heads;
    par__tp_core o;
    if (!par__tp_core_open(tp, m, y, lse, &o)) return PAR_ERR_MEMORY;
    if (tp->dot && tp->dot->begin) tp->dot->begin();
    for (o.sequence = 0; o.sequence < m->batch; o.sequence++)
        for (o.kv_head = 0; o.kv_head < m->kv_heads; o.kv_head++) {
            par__tp_load_keys(tp, &o);
            for (o.head = o.kv_head * group; o.head < (o.kv_head + 1) * group; o.head++)
                par__tp_core_head(tp, &o);
            if (m->dy) par__tp_finish_keys(tp, &o);
        }
    if (tp->dot && tp->dot->end) tp->dot->end();
    return PAR_OK;
}
// One query of each sequence, as for a token that is generated: reads keys and values once, where they are, a
// head after the other.
enum { PAR__TP_KEYS_AT_ONCE = 2048 };
static void par__tp_one_query_block(par_tp *tp, const par_tp_attention_block *m, size_t row, size_t kv_head,
                                    size_t at, size_t n, const float *q, float *s) {
    const size_t ld = PAR__TP_KEYS_AT_ONCE, group = m->heads / m->kv_heads, d = m->dim;
    const size_t first = kv_head * group, state = row * m->heads + first;
    const int bf16 = !par__tp_is_f32(tp);
    float *sum_of = s + group * ld, *now = sum_of + group * d, *acc = m->acc + row * m->acc_ld + first * d;
    tp->loops->gemv(s, ld, q + first * d, group, par__tp_const_element(tp, m->k, at), bf16, m->kv_ld, n, d);
    for (size_t h = 0; h < group; h++) {
        float sum, *row_max = &m->row_max[state + h], *row_sum = &m->row_sum[state + h];
        const float max = tp->loops->softmax_row(s + h * ld, m->scale, n, &sum);
        const float both = PAR__MAX(*row_max, max), before = par__tp_softmax_weight(*row_max, both);
        now[h] = par__tp_softmax_weight(max, both);
        tp->loops->scale(acc + h * d, acc + h * d, before, d);
        *row_max = both;
        *row_sum = *row_sum * before + sum * now[h];
    }
    memset(sum_of, 0, group * d * sizeof *sum_of);
    tp->loops->add_weighted(sum_of, s, ld, group, par__tp_const_element(tp, m->v, at), bf16, m->kv_ld, n, d);
    for (size_t h = 0; h < group; h++) {
        if (bf16) par__tp_unpair(sum_of + h * d, d);
        tp->loops->axpy(acc + h * d, sum_of + h * d, now[h], d, 0);
    }
}
static par_result par__tp_core_one_query(par_tp *tp, const par_tp_attention_block *m) {
    const size_t heads = m->heads, d = m->dim, step = PAR__TP_KEYS_AT_ONCE, group = heads / m->kv_heads;
    const size_t end = PAR__MIN(m->kv_count, m->q_position - m->kv_position + 1);
    const size_t first = PAR__MAX(par__tp_first_key(m, 0, m->q_position), m->kv_position) - m->kv_position;
    float *s = (float *)par_tp_scratch(tp, PAR__TP_SCORES, (group * (step + d + 1) + heads * d) * sizeof *s);
    if (!s) return PAR_ERR_MEMORY;
    float *scratch = s + group * (step + d + 1);
    for (size_t b = 0; b < m->batch; b++) {
        const size_t row = b * m->q_stride + m->q_row, at = b * m->kv_stride + m->kv_row;
        const float *q = par__tp_gemv_operand(tp, m->q, row * m->q_ld, d, scratch); // all heads' afterwards
        for (size_t h = 1; h < heads; h++)
            par__tp_gemv_operand(tp, m->q, row * m->q_ld + h * d, d, scratch + h * d);
        for (size_t h = 0; h < m->kv_heads; h++)
            for (size_t r = first; r < end; r += step)
                par__tp_one_query_block(tp, m, row, h, (at + r) * m->kv_ld + h * m->kv_head_stride,
                                        PAR__MIN(step, end - r), q, s);
    }
    return PAR_OK;
}
// The state before the first key, and what follows from it after the last one, of the queries of a sequence.
static void par__tp_core_begin_state(const par_tp_attention_block *m, size_t row) {
    for (size_t i = row * m->heads; i < (row + m->q_count) * m->heads; i++) {
        m->row_max[i] = -INFINITY;
        m->row_sum[i] = 0;
        memset(m->acc + i / m->heads * m->acc_ld + i % m->heads * m->dim, 0, m->dim * sizeof(float));
    }
}
static par_result par__tp_core_end_state(par_tp *tp, const par_tp_attention_block *m, size_t row) {
    float *scratch = par__tp_row_scratch(tp, 1, m->dim);
    if (!scratch) return PAR_ERR_MEMORY;
    for (size_t i = row * m->heads; i < (row + m->q_count) * m->heads; i++) {
        const float *acc = m->acc + i / m->heads * m->acc_ld + i % m->heads * m->dim;
        tp->loops->scale(par__tp_f32_output(tp, m->y, i * m->dim, scratch), acc, 1.0f / m->row_sum[i],
                         m->dim);
        par__tp_store_f32(tp, m->y, i * m->dim, m->dim, scratch);
        m->row_max[i] += (float)par__log((double)m->row_sum[i]);
    }
    return PAR_OK;
}
static par_result par__tp_cpu_attention_block_forward(par_tp *tp, const par_tp_attention_block *m) {
    const int one = m->q_count == 1 && m->q_position >= m->kv_position && m->dropout <= 0 && !m->documents;
    for (size_t b = 0; b < m->batch && m->first; b++) par__tp_core_begin_state(m, b * m->q_stride + m->q_row);
    PAR__TP_TRY(one ? par__tp_core_one_query(tp, m) : par__tp_core_attention(tp, m, NULL, NULL));
    for (size_t b = 0; b < m->batch && m->y; b++)
        PAR__TP_TRY(par__tp_core_end_state(tp, m, b * m->q_stride + m->q_row));
    return PAR_OK;
}
static par_result par__tp_cpu_attention_block_backward(par_tp *tp, const par_tp_attention_block *m) {
    return par__tp_core_attention(tp, m, NULL, NULL);
}
static par_result par__tp_cpu_attention_fused_forward(par_tp *tp, const par_tp_attention_block *m, void *y,
                                                      float *lse, int *handled) {
    *handled = 1;
    return par__tp_core_attention(tp, m, y, lse);
}

static par_result par__tp_cpu_row_dots(par_tp *tp, float *dot, const void *a, const void *b, size_t rows,
                                       size_t dim) {
    const size_t piece = par__tp_is_f32(tp) ? rows : 64; // rows at once
    float *scratch = par__tp_row_scratch(tp, par__tp_is_f32(tp) ? 0 : 2 * piece, dim);
    if (!scratch) return PAR_ERR_MEMORY;
    for (size_t r = 0; r < rows; r += piece) {
        const size_t n = PAR__MIN(piece, rows - r), count = n * dim;
        tp->loops->row_dots(dot + r, par__tp_as_f32(tp, a, r * dim, count, scratch),
                            par__tp_as_f32(tp, b, r * dim, count, scratch + count), n, dim);
    }
    return PAR_OK;
}

static par_result par__tp_cpu_attention_fused_backward(par_tp *tp, const par_tp_attention_block *m,
                                                       const void *y, void *dx, int *handled) {
    const size_t states = m->batch * m->q_count * m->heads;
    par_tp_attention_block whole = par__tp_whole_gradients(m, dx);
    if (!y) return PAR_OK;
    float *dot = (float *)par_tp_scratch(tp, PAR__TP_STATE, states * sizeof *dot);
    if (!dot) return PAR_ERR_MEMORY;
    *handled = 1;
    whole.dot = dot;
    PAR__TP_TRY(par__tp_cpu_row_dots(tp, dot, m->dy, y, states, m->dim));
    return par__tp_core_attention(tp, &whole, NULL, NULL);
}

static par_result par__tp_cpu_init(par_tp *tp, void *dst, uint64_t stream, uint64_t first, size_t n,
                                   float deviation, float value) {
    enum { PIECE = 1024 };
    float scratch[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t count = PAR__MIN((size_t)PIECE, n - at);
        float *x = par__tp_f32_output(tp, dst, at, scratch);
        if (deviation > 0) par_normals(tp->desc.seed, stream, first + at, count, x);
        for (size_t i = 0; i < count; i++) x[i] = deviation > 0 ? deviation * x[i] : value;
        par__tp_store_f32(tp, dst, at, count, x);
    }
    return PAR_OK;
}
static par_result par__tp_cpu_square_sum(par_tp *tp, const float *x, size_t n, double *sum) {
    return *sum += tp->loops->sum_squares(x, n), PAR_OK;
}

// >>tp_codes ------------------------------------------------------------------------------------------------
//
//     X (storage type) -- as f32, rotated --> amax of each block --> scale --> codes      an operand
//     codes of A, codes of B^T ------------> sums in f32 x both scales (+ beta C + bias)  a product
//
// The formulas are beside those of the activations; a GPU's kernels share them, so that codes and scales are
// the same to the bit. The CPU converts codes back and multiplies f32.

const par__tp_recipe *par__tp_recipe_of(par_tp_recipe r) {
#define PAR__X(constant, name, code, gradients, scale, rows, cols, weight_rows, flags)                       \
    {name, code, gradients, scale, rows, cols, weight_rows, flags},
    static const par__tp_recipe recipes[] = {PAR_TP_RECIPES(PAR__X)};
#undef PAR__X
    return &recipes[r];
}
const char *par_tp_recipe_name(par_tp_recipe r) {
    return (unsigned)r < PAR_TP_RECIPE_COUNT ? par__tp_recipe_of(r)->name : "(no par_tp_recipe)";
}
par_result par_tp_recipe_parse(const char *name, par_tp_recipe *recipe) {
    for (int i = 0; i < PAR_TP_RECIPE_COUNT; i++)
        if (!strcmp(name, par__tp_recipe_of((par_tp_recipe)i)->name))
            return *recipe = (par_tp_recipe)i, PAR_OK;
    return PAR_ERR_ARGUMENT;
}

// The operand's elements as f32, rows x ld, with zeros beyond cols; rotated if the operand is.
static float *par__tp_operand_f32(par_tp *tp, const par_tp_operand *q, const void *x, size_t x_ld,
                                  int transposed) {
    float *v = (float *)par_tp_scratch(tp, PAR__TP_OPERAND_A, q->rows * q->ld * sizeof *v);
    float *row = par__tp_row_scratch(tp, 1, q->rows);
    if (!v || !row) return NULL;
    for (size_t r = 0; r < q->rows; r++) memset(v + r * q->ld + q->cols, 0, (q->ld - q->cols) * sizeof *v);
    for (size_t i = 0; i < (transposed ? q->cols : q->rows); i++) {
        const size_t n = transposed ? q->rows : q->cols;
        const char *from = par__tp_const_element(tp, x, i * x_ld);
        par_cast(transposed ? row : v + i * q->ld, PAR_F32, from, par_tp_dtype(tp), n);
        for (size_t r = 0; transposed && r < n; r++) v[r * q->ld + i] = row[r];
    }
    for (size_t i = 0; q->hadamard && i < q->rows * q->ld; i += 16) par__tp_hadamard(v + i);
    return v;
}
static float par__tp_block_amax(const par_tp_operand *q, const float *v, size_t row, size_t rows, size_t col,
                                size_t cols) {
    float amax = 0;
    for (size_t r = row; r < row + rows; r++)
        for (size_t c = col; c < col + cols; c++) amax = par__tp_amax(amax, v[r * q->ld + c]);
    return amax;
}
// Codes of the elements from (row, col) on, of one row.
static void par__tp_encode(const par_tp *tp, const par_tp_operand *q, const float *v, float encode,
                           size_t row, size_t col, size_t cols) {
    enum { PIECE = 128 };
    float scaled[PIECE];
    uint32_t bits[4] = {0, 0, 0, 0};
    uint8_t *codes = (uint8_t *)q->codes;
    const uint64_t stream = q->stream + (tp->dropout_offset ? *tp->dropout_offset << 24 : 0);
    for (size_t at = row * q->ld + col, end = at + cols; at < end; at += PIECE) {
        const size_t n = PAR__MIN((size_t)PIECE, end - at);
        for (size_t i = 0; i < n; i++) scaled[i] = v[at + i] * encode;
        if (q->code != PAR_TP_E2M1) {
            par_cast(codes + at, q->code == PAR_TP_E4M3 ? PAR_F8_E4M3 : PAR_F8_E5M2, scaled, PAR_F32, n);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            const uint32_t code =
                par__tp_e2m1_code(q, tp->desc.seed, stream, at, (unsigned)i, scaled[i], bits);
            uint8_t *pair = &codes[(at + i) / 2];
            *pair = (uint8_t)(i % 2 ? *pair | code << 4 : code);
        }
    }
}
static void par__tp_quantize_block(const par_tp *tp, const par_tp_operand *q, const float *v, float amax,
                                   size_t row, size_t rows, size_t col, size_t cols) {
    const par__tp_block_scale s = par__tp_scale_block(q->code, q->scale, amax, q->amax[0]);
    for (size_t r = row; r < row + rows; r++) {
        const size_t at = par__tp_scale_at(q, r, col);
        par__tp_encode(tp, q, v, s.encode, r, col, cols);
        if (q->scale >= PAR_TP_SCALE_E8M0)
            ((uint8_t *)q->scales)[at] = (uint8_t)s.stored;
        else
            ((float *)q->scales)[at] = s.decode;
    }
}
static par_result par__tp_cpu_quantize(par_tp *tp, const par_tp_operand *q, const void *x, size_t x_ld,
                                       int transposed) {
    const size_t rows = q->block_rows ? q->block_rows : q->rows, cols = q->block_cols ? q->block_cols : q->ld;
    const float *v = par__tp_operand_f32(tp, q, x, x_ld, transposed);
    if (!v) return PAR_ERR_MEMORY;
    memset(q->scales, 0, par__tp_scale_bytes(q));
    q->amax[0] = par__tp_block_amax(q, v, 0, q->rows, 0, q->ld);
    if (q->observed) q->history[1] = par__tp_amax(q->history[1], q->amax[0]);
    if (q->history && q->history[0] > 0) q->amax[0] = q->history[0];
    const int whole = rows == q->rows && cols == q->ld;
    for (size_t r = 0; r < q->rows; r += rows)
        for (size_t c = 0; c < q->ld; c += cols) {
            const size_t n = PAR__MIN(rows, q->rows - r);
            const float amax = whole ? q->amax[0] : par__tp_block_amax(q, v, r, n, c, cols);
            par__tp_quantize_block(tp, q, v, amax, r, n, c, cols);
        }
    return PAR_OK;
}
// The numbers that codes stand for, rows x ld; a tensor's scale is left to the product's alpha.
static const float *par__tp_decode(par_tp *tp, int slot, const par_tp_operand *q, float *alpha) {
    float *v = (float *)par_tp_scratch(tp, slot, q->rows * q->ld * sizeof *v);
    const uint8_t *codes = (const uint8_t *)q->codes;
    const size_t piece = q->block_cols ? q->block_cols : q->ld;
    const int whole = !q->block_cols && !q->block_rows;
    if (!v) return NULL;
    if (whole) *alpha *= *(const float *)q->scales;
    if (q->scale == PAR_TP_SCALE_E4M3) *alpha *= 1.0f / par__tp_tensor_scale(q->code, q->amax[0]);
    for (size_t at = 0; at < q->rows * q->ld; at += piece) {
        const size_t scale = par__tp_scale_at(q, at / q->ld, at % q->ld);
        const float decode =
            whole                           ? 1.0f
            : q->scale == PAR_TP_SCALE_E8M0 ? par__tp_e8m0_widen(((uint8_t *)q->scales)[scale])
            : q->scale == PAR_TP_SCALE_E4M3 ? par__f8_e4m3_widen(((uint8_t *)q->scales)[scale])
                                            : ((const float *)q->scales)[scale];
        if (q->code != PAR_TP_E2M1)
            par_cast(v + at, PAR_F32, codes + at, q->code == PAR_TP_E4M3 ? PAR_F8_E4M3 : PAR_F8_E5M2, piece);
        for (size_t i = at; i < at + piece; i++)
            v[i] = (q->code == PAR_TP_E2M1 ? par__tp_e2m1_widen((unsigned)codes[i / 2] >> i % 2 * 4 & 15u)
                                           : v[i]) *
                   decode;
    }
    return v;
}
static par_result par__tp_cpu_gemm_codes(par_tp *tp, const par_tp_operand *a, const par_tp_operand *b,
                                         float beta, void *c, par_dtype c_type, size_t ldc,
                                         const void *bias) {
    float alpha = 1;
    const float *x = par__tp_decode(tp, PAR__TP_OPERAND_A, a, &alpha);
    const float *y = par__tp_decode(tp, PAR__TP_OPERAND_B, b, &alpha);
    float *z = c_type == PAR_F32 ? (float *)c
                                 : (float *)par_tp_scratch(tp, PAR__TP_F32_C, a->rows * b->rows * sizeof *z);
    const size_t ldz = c_type == PAR_F32 ? ldc : b->rows;
    float *scratch = par__tp_row_scratch(tp, 1, b->rows);
    if (!x || !y || !z || !scratch) return PAR_ERR_MEMORY;
    PAR__TP_TRY(par__tp_gemm_result(
        tp, par_gemm(0, 1, a->rows, b->rows, a->ld, alpha, x, a->ld, y, b->ld, beta, z, ldz)));
    const float *row = par__tp_as_f32(tp, bias, 0, b->rows, scratch);
    for (size_t r = 0; r < a->rows; r++) {
        if (row) tp->loops->add(z + r * ldz, NULL, z + r * ldz, row, NULL, b->rows, 0);
        if (c_type != PAR_F32)
            par_cast((char *)c + r * ldc * par_dtype_bytes(c_type), c_type, z + r * ldz, PAR_F32, b->rows);
    }
    return PAR_OK;
}
static par_result par__tp_cpu_roll_amax(par_tp *tp, float *history, size_t tensors) {
    for (size_t i = 0; i < tensors; i++) par__tp_roll_amax(history + i * PAR__TP_HISTORY);
    return (void)tp, PAR_OK;
}

// In the table's order, from gemm to roll_amax.
// clang-format off
#define PAR__TP_CPU_KERNELS(X)                                                                               \
    X(gemm) X(cast) X(copy) X(add_bias) X(sum_rows) X(elementwise) X(norm_forward) X(norm_backward)          \
    X(dropout) X(rope) X(embed) X(embed_backward) X(positions) X(positions_backward)                         \
    X(loss_stats) X(loss_combine) X(loss_backward) X(loss_forward_backward)                                  \
    X(attention_block_forward) X(attention_block_backward)                                                   \
    X(attention_fused_forward) X(attention_fused_backward) X(row_dots)                                       \
    X(init) X(square_sum) X(set) X(quantize) X(gemm_codes) X(roll_amax)
// clang-format on
const par_tp_kernels *par_tp_cpu(void) {
#define PAR__X(name) par__tp_cpu_##name,
    static const par_tp_kernels cpu = {
        "cpu", NULL, NULL, 1, 0, PAR__X(alloc) PAR__X(free) NULL, PAR__TP_CPU_KERNELS(PAR__X) NULL, NULL};
#undef PAR__X
    return &cpu;
}

PAR__EXACT_END
#ifdef __cplusplus
}
#endif
PAR__API_END
#pragma pop_macro("PAR_SITE")
#pragma pop_macro("PAR__TP_WITH_SITE")
#pragma pop_macro("PAR__TP_SITED")
#undef par_fail
#endif // PAR_TP_IMPLEMENTATION

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

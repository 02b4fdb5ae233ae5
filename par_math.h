// par_math.h - matrix products, the library that computes them, and random numbers for any layout.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_MATH_IMPLEMENTATION)
#define PAR_MATH_IMPLEMENTATION
#endif
// clang-format on

#include "par.h"
#if PAR_VERSION != 900
#error "par_math.h is version 0.9.0, and par.h is of another version: take all headers from one version"
#endif

#ifndef PAR_MATH_H
#define PAR_MATH_H
/*
WHAT
    What the layers compute with on a CPU. Products of f32 matrices run by the fastest library that the
    program was built with, or by a kernel of this header. par_gemm_canonical has the same bits on every
    processor. Random numbers depend on their keys alone. par_tp.h and par_zero.h include this header.

USE
    #define PAR_IMPLEMENTATION        in one file
    #include "par_math.h"             cc -O2 prog.c -pthread -lm
    With libraries:                   cc -O2 -DPAR_DNNL -DPAR_CBLAS prog.c -ldnnl -lopenblas -pthread -lm

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par_math.h"

    int main(void) { // the rows of a product, shared out over the ranks
        enum { N = 6 };
        par_comm *world;
        float a[N * N], b[N * N], c[N * N], all[N * N];
        if (par_open(NULL, &world) || par_gemm_select(NULL, 0, world)) return 1;
        for (int i = 0; i < N * N; i++) a[i] = i / N == i % N ? 2.0f : 0.0f, b[i] = (float)(i + 1);
        const size_t rows = (size_t)(N / par_size(world)), at = (size_t)par_rank(world) * rows * N;
        if (par_gemm(0, 0, rows, N, N, 1, a + at, N, b, N, 0, c, N)) return 1;
        if (par_all_gather(c, all, rows * N, PAR_F32, world)) return 1;
        if (par_rank(world) == 0) printf("%g %g, %g\n", all[0], all[N * N - 1], par_uniform(1, 2, 3));
        // with PAR_RANKS=3 it prints: 2 72, 0.867321
        return par_close(world) != PAR_OK;
    }

TABLE OF CONTENTS
    The API comes first: matrix products, random numbers. Implementation, bottom-up:
    >>math_tiles     the innermost kernels, one for each instruction set; packing
    >>math_gemm      the built-in product; the canonical one
    >>math_libraries oneDNN and CBLAS libraries; the list of who can compute products
    >>math_select    the choice among them: PAR_GEMM, or the fastest in a measurement
    >>math_philox    counter-based random numbers

CONFIG
    PAR_IMPLEMENTATION (or PAR_MATH_IMPLEMENTATION)   emit the code, in one file
    PAR_DNNL          use oneDNN for matrix products (link -ldnnl); see par_gemm_select
    PAR_CBLAS         use a CBLAS library with int sizes (link -lopenblas, for example). Either library runs
                      one thread a rank; par_open stops the threads of OpenBLAS, with which it could not fork
    PAR_MALLOC, PAR_ASSERT ... as in par.h
    Environment: PAR_GEMM chooses, PAR_ISA limits the instruction set; see par.h

MODEL
    Matrices are row-major and yours. A product, also a library's, runs on the thread that calls it: ranks are
    the parallelism. The process chooses its library once, at par_gemm_select or at its first product. Any
    thread may call everything but par_gemm_select, which is a collective call. Devices have products of their
    own, in the layers' tables of kernels.
    A random number is a function of seed, stream and index. You number streams (a tensor, a step); an index
    is an element. So no result depends on who draws it, or in which order.

LIMITS
    Products are of f32. Libraries differ in the last bits: one binary and one choice give the same bits.
    par_gemm_canonical gives them everywhere.
*/

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// ---- matrix products --------------------------------------------------------------------------------------

// C = alpha op(A) op(B) + beta C, f32, row-major; op(A) is M x K, op(B) is K x N. trans_a: A is stored K x M.
// By the library that was chosen. Errors: MEMORY; ARGUMENT (PAR_GEMM names a library that is not linked).
par_result par_gemm(int trans_a, int trans_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                    size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);
const char *par_gemm_name(void); // of that library: "oneDNN"; "not chosen yet"

// Which library computes par_gemm: one that this program was built with (PAR_DNNL, PAR_CBLAS), or the
// built-in kernel. Being linked does not mean being fast on this machine. So where there are several, they
// are measured, once for the process, for some 50 ms, with one thread each; the first in the list that is at
// most 5% slower than the fastest computes all products from then on, also in processes that are forked
// later. A library whose results differ from the built-in kernel's is excluded, with a line on PAR_LOG.
// PAR_GEMM=name chooses without a measurement. Libraries differ in the last bits: "the same bits" holds for
// one binary and one choice.
enum { PAR_GEMM_SHAPES = 16, PAR_GEMM_MAX = 5 };
typedef struct par_gemm_shape { // of future products, with par_gemm's arguments
    int trans_a, trans_b;
    size_t m, n, k;
    double weight; // relative number of such products; 0: 1
} par_gemm_shape;
// Choose one library for all ranks of comm: rank 0 measures alone, while the others sleep, on at most
// PAR_GEMM_SHAPES shapes (large ones are shrunk; NULL: products of medium size), and all ranks take its
// choice, also one that it made before. Collective. par_tp_open and, with Muon, par_zero_commit call it if
// nobody has. Without it each process chooses at its first product. Errors: ARGUMENT (PAR_GEMM names a
// library that is not linked, or differs between ranks; too many shapes or an empty one), UNSUPPORTED (this
// rank's program lacks the library that rank 0 has chosen), MEMORY.
par_result par_gemm_select(const par_gemm_shape *shapes, size_t shape_count, par_comm *comm);

typedef struct par_gemm_report {
    int count, chosen; // candidates in order of preference; the chosen one, -1: none
    const char *name
        [PAR_GEMM_MAX]; // "oneDNN", "OpenBLAS", "MKL", "BLIS", "CBLAS" (any other), "built-in", "canonical"
    double flops[PAR_GEMM_MAX]; // per second; 0: not measured to the end (PAR_GEMM, one candidate, a note)
    const char *note[PAR_GEMM_MAX]; // "", "wrong results", "cut early": slower by far, or "not there"
} par_gemm_report;
par_gemm_report par_gemm_get(void); // of this process; names live as long as the process
// The product that PAR_GEMM=canonical chooses, with par_gemm's arguments: its bits depend
// neither on the processor nor on the compiler. An element's sum runs over blocks of 256, each from left to
// right by fused multiply-adds, and their sums are added in a tree as by PAR_TREE_SUM. Errors: MEMORY.
par_result par_gemm_canonical(int ta, int tb, size_t m, size_t n, size_t k, float alpha, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

// ---- random numbers ---------------------------------------------------------------------------------------

// Philox4x32-10 (Salmon et al., SC'11): 128 random bits that depend only on counter and key. A number keyed
// by {parameter, element, step} is the same in any layout.
void par_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
float par_uniform(uint64_t seed, uint64_t stream, uint64_t index); // [0, 1), 24 bits
float par_normal(uint64_t seed, uint64_t stream, uint64_t index);  // mean 0, variance 1 (Box-Muller)
// values[i] = par_normal(seed, stream, first + i), the same bits, by vector instructions: several times as
// fast.
void par_normals(uint64_t seed, uint64_t stream, uint64_t first, size_t count, float *values);
uint64_t par_random(uint64_t seed, uint64_t stream, uint64_t index);

// Names with par__ are internal to the kit.
enum { PAR__PHILOX_BLOCKS = 64 }; // at most at a time
// The words of `count` Philox blocks of a stream, from block `index` on, in order. Up to a multiple of 16 are
// written.
void par__philox_blocks(uint32_t *words, uint64_t seed, uint64_t stream, uint64_t index, size_t count);
// Products of bf16. Candidates: a tile of a layer's, by the processor's instructions for bf16; a library's
// own product; the operands converted to f32 and multiplied by the library that was chosen for f32, or by the
// built-in kernel. All have sums and C in f32.
enum { PAR__BF16_TILE, PAR__BF16_LIBRARY, PAR__BF16_WIDEN, PAR__BF16_WIDEN_BUILTIN, PAR__BF16_COUNT };
typedef par_result (*par__gemm_bf16_fn)(const void *user, int ta, int tb, size_t m, size_t n, size_t k,
                                        const par_bf16 *a, size_t lda, const par_bf16 *b, size_t ldb,
                                        float *c, void *scratch); // of 4 MiB
// As par_gemm_select, of products of bf16, after that of f32. tile: NULL: the processor has none.
par_result par__gemm_select_bf16(const par_gemm_shape *shapes, size_t count, par_comm *comm,
                                 par__gemm_bf16_fn tile, const void *user);
par_gemm_report par__gemm_get_bf16(void); // names: "tile" ... as PAR_GEMM has them
par_result par__gemm_library_bf16(int ta, int tb, size_t m, size_t n, size_t k, const par_bf16 *a, size_t lda,
                                  const par_bf16 *b, size_t ldb, float beta, float *c, size_t ldc);
typedef par_result (*par__gemm_fn)(int ta, int tb, size_t m, size_t n, size_t k, float alpha, const float *a,
                                   size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);
par_result par__gemm_builtin(int ta, int tb, size_t m, size_t n, size_t k, float alpha, const float *a,
                             size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);
typedef struct par__gemm_tile { // an instruction set's innermost kernel
    size_t rows, cols;
    // c[i ldc + j] = the sum over the k numbers p of a[i a_row + p a_k] b[p ldb + j], or with add += it
    void (*run)(size_t k, const float *a, size_t a_row, size_t a_k, const float *b, size_t ldb, float *c,
                size_t ldc, int add);
} par__gemm_tile;
const par__gemm_tile *par__gemm_tile_get(void);      // of this processor
const par__gemm_tile *par__canonical_tile_get(void); // that adds as par_gemm_canonical does within a block
// The tile for the first of the rows that are left: one of fewer rows where the other would end beyond them.
const par__gemm_tile *par__gemm_tile_for(const par__gemm_tile *tile, size_t rows);
// The first rows and columns of a tile. What it reads beyond them must be readable.
void par__gemm_edge(const par__gemm_tile *tile, size_t rows, size_t cols, size_t k, const float *a,
                    size_t a_row, size_t a_k, const float *b, size_t ldb, float *c, size_t ldc, int add);

// par_gemm_select is also a macro, which notes the place of the call for errors and traces (see par.h).
static inline par_result par__gemm_select_at(const char *site, const par_gemm_shape *shapes,
                                             size_t shape_count, par_comm *comm) {
    if (site) par__enter_layer(comm, site);
    return par_gemm_select(shapes, shape_count, comm);
}
#define par_gemm_select(...) par__gemm_select_at(PAR_SITE, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_MATH_H

// Stop here if you only use it. -----------------------------------------------------------------------------

// Functions that the CPU and devices share, wherever par.h has its own.
#if defined(PAR__X86) && !defined(PAR__MATH_SHARED)
#define PAR__MATH_SHARED
PAR__HOST_DEVICE void par__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// 128 bits for number `index` of a stream.
PAR__HOST_DEVICE void par__philox_at(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]) {
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    par__philox(counter, key, out);
}
// A normal number of 64 random bits, by Box and Muller's method: a device draws the CPU's.
PAR__HOST_DEVICE float par__normal_of(uint32_t a, uint32_t b) {
    const double u = (par__u32_to_f64(a) + 0.5) * 0x1p-32;
    const double angle = PAR__TIMES(6.283185307179586, par__u32_to_f64(b) * 0x1p-32);
    const uint64_t quarter = ((uint64_t)b + (1u << 29)) >> 30;
    return (float)(par__sqrt(-2 * par__log_finite(u)) *
                   par__cos_about(angle, par__u32_to_f64(quarter), quarter));
}
PAR__HOST_DEVICE float par__normal(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t r[4];
    par__philox_at(seed, stream, index, r);
    return par__normal_of(r[0], r[1]);
}
#endif

#if defined(PAR_MATH_IMPLEMENTATION) && !defined(PAR_MATH_IMPLEMENTED)
#define PAR_MATH_IMPLEMENTED
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#if defined(PAR_DNNL)
#include <dnnl.h>
#endif
// Within the implementation this is the function, and calls of par.h keep the program's call site.
#pragma push_macro("par_gemm_select")
#undef par_gemm_select
#pragma push_macro("PAR_SITE")
#undef PAR_SITE
#define PAR_SITE      NULL
#define par_fail(...) par__fail_in_layer(__VA_ARGS__)

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// >>math_tiles ----------------------------------------------------------------------------------------------
//
// The built-in kernel packs panels of A (as many rows as a tile) and B (as many columns), so that the
// innermost loop reads both in order, and keeps a tile of C in registers (Goto and van de Geijn 2008):
//     for each KC slice of K: pack B (KC x NC) -> for each MC rows: pack A (MC x KC) -> tiles
// Sums run over k in order within a slice and slice after slice.

enum {
    PAR__KC = 256,
    PAR__MC = 96,
    PAR__NC = 1024,
    PAR__TILE_ROWS = 8,
    PAR__TILE_COLS = 32
}; // tiles: at most
#if defined(__CUDACC__)
static void par__tile_base(size_t k, const float *a, size_t a_row, size_t a_k, const float *b, size_t ldb,
                           float *c, size_t ldc, int add) {
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 8; j++) {
            float sum = 0;
            for (size_t p = 0; p < k; p++) sum += a[i * a_row + p * a_k] * b[p * ldb + j];
            c[i * ldc + j] = add ? c[i * ldc + j] + sum : sum;
        }
}
#else
// A tile has 5 to 12 rows of two vectors: c0 and d0 are the first row.
typedef float par__f32x4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float par__f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float par__f32x16 __attribute__((vector_size(64), aligned(4), may_alias));
#define PAR__TILE_4(X)  X(0) X(1) X(2) X(3)
#define PAR__TILE_5(X)  PAR__TILE_4(X) X(4)
#define PAR__TILE_6(X)  PAR__TILE_5(X) X(5)
#define PAR__TILE_8(X)  PAR__TILE_6(X) X(6) X(7)
#define PAR__TILE_12(X) PAR__TILE_8(X) X(8) X(9) X(10) X(11)
#define PAR__TILE_ZERO(i)                                                                                    \
    vector c##i = {0};                                                                                       \
    vector d##i = {0};
#define PAR__TILE_STEP(i)                                                                                    \
    c##i = PAR__TILE_FMA(a[(i)*a_row], x, c##i);                                                             \
    d##i = PAR__TILE_FMA(a[(i)*a_row], y, d##i);
#define PAR__TILE_COLUMN(ROWS)                                                                               \
    {                                                                                                        \
        const vector x = *(const vector *)b, y = *(const vector *)(b + width);                               \
        ROWS(PAR__TILE_STEP)                                                                                 \
        a = (const float *)(const void *)((const char *)a + a_step);                                         \
        b += ldb;                                                                                            \
    }
#define PAR__TILE_ADD(i)                                                                                     \
    c##i += *(const vector *)(c + (i)*ldc);                                                                  \
    d##i += *(const vector *)(c + (i)*ldc + width);
#define PAR__TILE_STORE(i)                                                                                   \
    *(vector *)(c + (i)*ldc) = c##i;                                                                         \
    *(vector *)(c + (i)*ldc + width) = d##i;
#define PAR__TILE_REST(ROWS) /* k columns more; then the sums go to C */                                     \
    for (size_t p = 0; p < k; p++) PAR__TILE_COLUMN(ROWS)                                                    \
    if (add) {                                                                                               \
        ROWS(PAR__TILE_ADD)                                                                                  \
    }                                                                                                        \
    ROWS(PAR__TILE_STORE)
// The bytes from one k to the next, which gcc must not trace back to a_k: with -O3 it would make a second
// loop for an a_k of 1, and both would store most of their sums at each step, 40 GFLOP/s instead of 96.
PAR__INLINE_LOOP size_t par__tile_step(size_t a_k) {
    size_t bytes = a_k * sizeof(float);
    __asm__("" : "+r"(bytes));
    return bytes;
}
#define PAR__TILE_ANY(I, TARGET, VECTOR, ROWS)                                                               \
    TARGET PAR__INLINE_LOOP void par__tile_any_##I(size_t k, const float *a, size_t a_row, size_t a_k,       \
                                                   const float *b, size_t ldb, float *c, size_t ldc,         \
                                                   int add) {                                                \
        typedef VECTOR vector;                                                                               \
        enum { width = sizeof(vector) / sizeof(float) };                                                     \
        const size_t a_step = par__tile_step(a_k);                                                           \
        ROWS(PAR__TILE_ZERO)                                                                                 \
        PAR__TILE_REST(ROWS)                                                                                 \
    }
#define PAR__TILE(I, TARGET, VECTOR, ROWS)                                                                   \
    PAR__TILE_ANY(I, TARGET, VECTOR, ROWS)                                                                   \
    TARGET static void par__tile_##I(size_t k, const float *a, size_t a_row, size_t a_k, const float *b,     \
                                     size_t ldb, float *c, size_t ldc, int add) {                            \
        par__tile_any_##I(k, a, a_row, a_k, b, ldb, c, ldc, add);                                            \
    }
#define PAR__TILE_FMA(s, x, sum) ((sum) + (s) * (x))
PAR__TILE(base, , par__f32x4, PAR__TILE_6)
#undef PAR__TILE_FMA
#if PAR__X86
#define PAR__TILE_FMA(s, x, sum) ((vector)_mm256_fmadd_ps(_mm256_set1_ps(s), (__m256)(x), (__m256)(sum)))
// Four k at a time in assembler, 21 instructions for each: compilers make 26, as they keep an address for
// each row and move sums. Where a core runs another thread, too, each gets three instructions a cycle, and
// these, not the multiply-adds, are what limits. In A the next k lies beside a k, and rows are `step` bytes
// apart, or the next row lies beside a row, and k's are.
#if defined(__SANITIZE_ADDRESS__)
#define PAR__TILE_BY_FOURS 0 // a sanitizer does not see what assembler reads
#else
#define PAR__TILE_BY_FOURS 1
#endif
#define PAR__TILE_AT_0 "(%[a])"
#define PAR__TILE_AT_1 "(%[a],%[step])"
#define PAR__TILE_AT_2 "(%[a],%[step],2)"
#define PAR__TILE_AT_3 "(%[a3])"
#define PAR__TILE_AT_4 "(%[a3],%[step])"
#define PAR__TILE_AT_5 "(%[a3],%[step],2)"
#define PAR__TILE_ROW(at, i)                                                                                 \
    "vbroadcastss " at ", %%ymm15\n\t"                                                                       \
    "vfmadd231ps %%ymm13, %%ymm15, %[c" #i "]\n\t"                                                           \
    "vfmadd231ps %%ymm14, %%ymm15, %[d" #i "]\n\t"
#define PAR__TILE_ROWS_0(i)  PAR__TILE_ROW(PAR__TILE_AT_##i, i)
#define PAR__TILE_ROWS_1(i)  PAR__TILE_ROW("4" PAR__TILE_AT_##i, i)
#define PAR__TILE_ROWS_2(i)  PAR__TILE_ROW("8" PAR__TILE_AT_##i, i)
#define PAR__TILE_ROWS_3(i)  PAR__TILE_ROW("12" PAR__TILE_AT_##i, i)
#define PAR__TILE_PANEL_0(i) PAR__TILE_ROW("4*" #i PAR__TILE_AT_0, i)
#define PAR__TILE_PANEL_1(i) PAR__TILE_ROW("4*" #i PAR__TILE_AT_1, i)
#define PAR__TILE_PANEL_2(i) PAR__TILE_ROW("4*" #i PAR__TILE_AT_2, i)
#define PAR__TILE_PANEL_3(i) PAR__TILE_ROW("4*" #i "(%[a],%[step3])", i)
#define PAR__TILE_B(at)      "vmovups " at ", %%ymm13\n\tvmovups 32" at ", %%ymm14\n\t"
#define PAR__TILE_CLEAR(i)                                                                                   \
    "vxorps %[c" #i "], %[c" #i "], %[c" #i "]\n\tvxorps %[d" #i "], %[d" #i "], %[d" #i "]\n\t"
#define PAR__TILE_SUMS(i) [c##i] "=&x"(c##i), [d##i] "=&x"(d##i),
#define PAR__TILE_FOURS(ROWS, A, NEXT, ...)                                                                  \
    __asm__ volatile(                                                                                        \
        ROWS(PAR__TILE_CLEAR) "test %[fours], %[fours]\n\tje 2f\n\t.p2align 5\n1:\n\t" PAR__TILE_B("(%[b])") \
            ROWS(A##_0) PAR__TILE_B("(%[b],%[b_step])") ROWS(A##_1) PAR__TILE_B("(%[b],%[b_step],2)")        \
                ROWS(A##_2) PAR__TILE_B("(%[b],%[b_step3])") ROWS(A##_3) NEXT                                \
        "lea (%[b],%[b_step],4), %[b]\n\tdec %[fours]\n\tjne 1b\n2:\n"                                       \
        : ROWS(PAR__TILE_SUMS) __VA_ARGS__, [b] "+r"(b), [fours] "+r"(fours)                                 \
        : [step] "r"(step), [step3] "r"(3 * step), [b_step] "r"(b_step), [b_step3] "r"(3 * b_step)           \
        : "xmm13", "xmm14", "xmm15", "cc", "memory")
#define PAR__TILE_AVX2(I, ROWS)                                                                              \
    PAR__TARGET_avx2 static void par__tile_##I(size_t k, const float *a, size_t a_row, size_t a_k,           \
                                               const float *b, size_t ldb, float *c, size_t ldc, int add) {  \
        typedef par__f32x8 vector;                                                                           \
        enum { width = 8 };                                                                                  \
        const size_t a_step = a_k * sizeof *a, b_step = ldb * sizeof *b;                                     \
        const size_t step = a_row == 1 ? a_step : a_row * sizeof *a;                                         \
        const float *a3 = a + 3 * a_row;                                                                     \
        size_t fours = PAR__TILE_BY_FOURS && (a_row == 1 || a_k == 1) ? k / 4 : 0;                           \
        k -= 4 * fours;                                                                                      \
        ROWS(PAR__TILE_ZERO)                                                                                 \
        if (a_row == 1)                                                                                      \
            PAR__TILE_FOURS(ROWS, PAR__TILE_PANEL, "lea (%[a],%[step],4), %[a]\n\t", [a] "+r"(a));           \
        else                                                                                                 \
            PAR__TILE_FOURS(ROWS, PAR__TILE_ROWS,                                                            \
                            "add $16, %[a]\n\tadd $16, %[a3]\n\t", [a] "+r"(a), [a3] "+r"(a3));              \
        PAR__TILE_REST(ROWS)                                                                                 \
    }
PAR__TILE_AVX2(avx2, PAR__TILE_6)
PAR__TILE_AVX2(few, PAR__TILE_5)
#undef PAR__TILE_FMA
#define PAR__TILE_FMA(s, x, sum) ((vector)_mm512_fmadd_ps(_mm512_set1_ps(s), (__m512)(x), (__m512)(sum)))
PAR__TILE(avx512, PAR__TARGET_avx512, par__f32x16, PAR__TILE_8)
PAR__TILE_ANY(panels, PAR__TARGET_avx512, par__f32x16, PAR__TILE_12)
#undef PAR__TILE_FMA
// More rows need fewer loads. Their strides are those of packed panels, as constants.
PAR__TARGET_avx512 static void par__tile_panels(size_t k, const float *a, size_t a_row, size_t a_k,
                                                const float *b, size_t ldb, float *c, size_t ldc, int add) {
    (void)a_row, (void)a_k, (void)ldb, (void)ldc;
    par__tile_any_panels(k, a, 1, 12, b, 32, c, ldc, add);
}
static const par__gemm_tile par__tiles_avx2 = {6, 16, par__tile_avx2};
static const par__gemm_tile par__tile_of_few = {5, 16, par__tile_few};
static const par__gemm_tile par__tiles_avx512 = {8, 32, par__tile_avx512};
#endif
#endif
static const par__gemm_tile par__tiles_base = {6, 8, par__tile_base};
const par__gemm_tile *par__gemm_tile_get(void) { return PAR__PICK(par__tiles); }
const par__gemm_tile *par__gemm_tile_for(const par__gemm_tile *tile, size_t rows) {
#if PAR__X86 && !defined(__CUDACC__)
    const size_t fives = (6 - rows % 6) % 6; // so many tiles of five rows leave a multiple of six
    if (tile->run == par__tile_avx2 && fives && (rows < 6 || 5 * fives <= rows)) return &par__tile_of_few;
#else
    (void)rows;
#endif
    return tile;
}
// out[p][i] = scale src[i][p], 4 x 4 numbers; and 4 x 2
PAR__INLINE_LOOP void par__gemm_transpose(float *out, size_t width, const float *src, size_t stride,
                                          float scale) {
#if PAR__X86 && !defined(__CUDACC__)
    const __m128 s = _mm_set1_ps(scale);
    __m128 x0 = _mm_mul_ps(s, _mm_loadu_ps(src)), x1 = _mm_mul_ps(s, _mm_loadu_ps(src + stride)),
           x2 = _mm_mul_ps(s, _mm_loadu_ps(src + 2 * stride)),
           x3 = _mm_mul_ps(s, _mm_loadu_ps(src + 3 * stride));
    _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
    _mm_storeu_ps(out, x0);
    _mm_storeu_ps(out + width, x1);
    _mm_storeu_ps(out + 2 * width, x2);
    _mm_storeu_ps(out + 3 * width, x3);
#else
    for (size_t p = 0; p < 4; p++)
        for (size_t i = 0; i < 4; i++) out[p * width + i] = scale * src[i * stride + p];
#endif
}
PAR__INLINE_LOOP void par__gemm_transpose_2(float *out, size_t width, const float *src, size_t stride,
                                            float scale) {
#if PAR__X86 && !defined(__CUDACC__)
    const __m128 s = _mm_set1_ps(scale), x0 = _mm_mul_ps(s, _mm_loadu_ps(src)),
                 x1 = _mm_mul_ps(s, _mm_loadu_ps(src + stride)), low = _mm_unpacklo_ps(x0, x1),
                 high = _mm_unpackhi_ps(x0, x1);
    _mm_storel_pi((__m64 *)(void *)out, low);
    _mm_storeh_pi((__m64 *)(void *)(out + width), low);
    _mm_storel_pi((__m64 *)(void *)(out + 2 * width), high);
    _mm_storeh_pi((__m64 *)(void *)(out + 3 * width), high);
#else
    for (size_t p = 0; p < 4; p++)
        for (size_t i = 0; i < 2; i++) out[p * width + i] = scale * src[i * stride + p];
#endif
}
// Pack panels of `width` columns: out[panel][k][width]; a short panel is padded with zeros. Element (k, j) of
// the source is at k*k_stride + j*j_stride. Eight rows are read to their end beside each other, so that lines
// of out are written whole; where k lies side by side, 16 x width numbers: all of their cache lines.
PAR__INLINE_LOOP void par__gemm_pack_panels(float *out, const float *src, size_t k_count, size_t j_count,
                                            size_t k_stride, size_t j_stride, size_t width, float scale) {
    const size_t turned = k_stride == 1 ? k_count / 16 * 16 : 0, whole = j_count / width * width;
    for (size_t j = 0; j < whole; j += width)
        for (size_t p = 0; p < turned; p += 16)
            for (size_t i = 0; i < width; i += 4)
                for (size_t q = p; q < p + 16; q += 4) {
                    float *to = out + j * k_count + q * width + i;
                    const float *from = src + (j + i) * j_stride + q;
                    if (i + 4 > width)
                        par__gemm_transpose_2(to, width, from, j_stride, scale);
                    else
                        par__gemm_transpose(to, width, from, j_stride, scale);
                }
    for (size_t p = 0; p < k_count; p += 8)
        for (size_t j = p < turned ? whole : 0; j < j_count; j += width)
            for (size_t q = p; q < PAR__MIN(p + 8, k_count); q++) {
                float *to = out + j * k_count + q * width;
                const float *from = src + q * k_stride + j * j_stride;
                const size_t w = PAR__MIN(width, j_count - j);
                if (w == width && j_stride == 1)
                    PAR__IVDEP for (size_t i = 0; i < width; i++) to[i] = scale * from[i];
                else
                    for (size_t i = 0; i < width; i++) to[i] = i < w ? scale * from[i * j_stride] : 0;
            }
}
static void par__gemm_pack(float *out, const float *src, size_t k_count, size_t j_count, size_t k_stride,
                           size_t j_stride, size_t width, float scale) {
#define PAR__GEMM_PACK(n)                                                                                    \
    case n: par__gemm_pack_panels(out, src, k_count, j_count, k_stride, j_stride, n, scale); break;
    switch (width) { // of the tiles: loops of a known length
        PAR__GEMM_PACK(6)
        PAR__GEMM_PACK(8)
        PAR__GEMM_PACK(12)
        PAR__GEMM_PACK(16)
        PAR__GEMM_PACK(32)
    default: PAR_ASSERT(0 && "no tile has this width");
    }
#undef PAR__GEMM_PACK
}
void par__gemm_edge(const par__gemm_tile *tile, size_t rows, size_t cols, size_t k, const float *a,
                    size_t a_row, size_t a_k, const float *b, size_t ldb, float *c, size_t ldc, int add) {
    float acc[PAR__TILE_ROWS * PAR__TILE_COLS];
    if (rows < tile->rows) tile = par__gemm_tile_for(tile, rows);
    if (rows == tile->rows && cols == tile->cols) {
        tile->run(k, a, a_row, a_k, b, ldb, c, ldc, add);
        return;
    }
    tile->run(k, a, a_row, a_k, b, ldb, acc, tile->cols, 0);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            const float sum = acc[i * tile->cols + j];
            c[i * ldc + j] = add ? c[i * ldc + j] + sum : sum;
        }
}

// >>math_gemm -----------------------------------------------------------------------------------------------

// A product, where element (i, p) of A is a[i a_i + p a_p], and element (p, j) of B is b[p b_p + j b_j].
typedef struct par__gemm_operands {
    const par__gemm_tile *tile;
    const float *a, *b;
    size_t a_i, a_p, b_p, b_j;
    float alpha;
    float *pack_a, *pack_b; // panels of alpha A, and of B
    void *memory;
} par__gemm_operands;
static float *par__gemm_align(void *memory) { // at a cache line, 64 bytes further at most
    return (float *)(void *)((char *)memory + (64 - (uintptr_t)memory % 64) % 64);
}
// rows, columns: of KC numbers, for which there is room
static par_result par__gemm_open(par__gemm_operands *o, const par__gemm_tile *tile, int ta, int tb,
                                 size_t rows, size_t columns, float alpha, const float *a, size_t lda,
                                 const float *b, size_t ldb) {
    o->tile = tile;
    o->alpha = alpha;
    o->a = a;
    o->b = b;
    o->a_p = ta ? lda : 1;
    o->a_i = ta ? 1 : lda;
    o->b_p = tb ? 1 : ldb;
    o->b_j = tb ? ldb : 1;
    o->memory = PAR_MALLOC(sizeof(float) * PAR__KC * (rows + columns) + 64);
    o->pack_a = par__gemm_align(o->memory);
    o->pack_b = o->pack_a + PAR__KC * rows;
    return o->memory ? PAR_OK : PAR_ERR_MEMORY;
}
static void par__gemm_pack_b(const par__gemm_operands *o, float *to, size_t p, size_t k, size_t j, size_t n) {
    par__gemm_pack(to, o->b + p * o->b_p + j * o->b_j, k, n, o->b_p, o->b_j, o->tile->cols, 1);
}
static void par__gemm_pack_a(const par__gemm_operands *o, float *to, size_t p, size_t k, size_t i, size_t m) {
    par__gemm_pack(to, o->a + p * o->a_p + i * o->a_i, k, m, o->a_p, o->a_i, o->tile->rows, o->alpha);
}
// c = rows i ... i + m - 1 of alpha A, times what is packed of B (k x n, from row p on), or c += it.
static void par__gemm_multiply(const par__gemm_operands *o, size_t i, size_t m, size_t p, size_t k, size_t n,
                               float *c, size_t ldc, int add) {
    const size_t rows = o->tile->rows, cols = o->tile->cols;
    for (size_t ic = 0; ic < m; ic += PAR__MC) {
        const size_t mc = PAR__MIN(m - ic, (size_t)PAR__MC);
        par__gemm_pack_a(o, o->pack_a, p, k, i + ic, mc);
        for (size_t y = 0; y < n; y += cols)
            for (size_t x = 0; x < mc; x += rows)
                par__gemm_edge(o->tile, PAR__MIN(mc - x, rows), PAR__MIN(n - y, cols), k, o->pack_a + x * k,
                               1, rows, o->pack_b + y * k, cols, c + (ic + x) * ldc + y, ldc, add);
    }
}

par_result par__gemm_builtin(int ta, int tb, size_t m, size_t n, size_t k, float alpha, const float *a,
                             size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    par__gemm_operands o;
    const par__gemm_tile *tile = par__gemm_tile_get();
    const size_t columns = PAR__MIN(par__round_up(n, tile->cols), (size_t)PAR__NC);
    if (par__gemm_open(&o, tile, ta, tb, PAR__MC, columns, alpha, a, lda, b, ldb)) return PAR_ERR_MEMORY;
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
    for (size_t j = 0; j < n; j += PAR__NC)
        for (size_t p = 0; p < k; p += PAR__KC) {
            const size_t nc = PAR__MIN(n - j, (size_t)PAR__NC), kc = PAR__MIN(k - p, (size_t)PAR__KC);
            par__gemm_pack_b(&o, o.pack_b, p, kc, j, nc);
            par__gemm_multiply(&o, 0, m, p, kc, nc, c + j, ldc, 1);
        }
    PAR_FREE(o.memory);
    return PAR_OK;
}

// The canonical product (PAR_GEMM=canonical) has the same bits on every processor, with every compiler. k is
// cut into blocks of KC = 256. The sum of a block runs from left to right, by fused multiply-adds from 0 on;
// the sums of blocks are added in a tree, as PAR_TREE_SUM adds ranks:
//     blocks  0   1   2   3   4
//              \+/     \+/    |
//                 \   /       |
//                   +        |
//                      \   /
//                        +
// Tiles run over rows and columns, never over k, so their size changes nothing. When block b is added, the
// set bits of b are the levels of the sums that wait for their right halves, as in a binary counter.
//
// Four blocks are packed at once, and added to the tiles of 96 rows and a panel of B, whose sums of one and
// of two blocks stay in the cache. Those of four and more are kept for all tiles:
//     for each 1024 rows and 1024 columns of C: for each 4 blocks: pack A and B ->
//         for each 96 rows, for each panel of B: for each block: tiles
enum { PAR__CANONICAL_ROWS = 1024, PAR__CANONICAL_RUN = 4, PAR__CANONICAL_NEAR = 2 };
static void par__tile_canonical(size_t k, const float *a, size_t a_row, size_t a_k, const float *b,
                                size_t ldb, float *c, size_t ldc, int add) {
    float sums[6][8];
    memset(sums, 0, sizeof sums);
    for (size_t p = 0; p < k; p++)
        for (size_t i = 0; i < 6; i++)
            for (size_t j = 0; j < 8; j++)
                sums[i][j] = fmaf(a[i * a_row + p * a_k], b[p * ldb + j], sums[i][j]);
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 8; j++) c[i * ldc + j] = add ? c[i * ldc + j] + sums[i][j] : sums[i][j];
}
static const par__gemm_tile par__canonical_base = {6, 8, par__tile_canonical};
#if PAR__X86 && !defined(__CUDACC__)
static const par__gemm_tile par__canonical_panels = {12, 32, par__tile_panels};
#endif
const par__gemm_tile *par__canonical_tile_get(void) { // those of other instruction sets fuse anyway
    return par__isa() ? par__gemm_tile_get() : &par__canonical_base;
}
static const par__gemm_tile *par__canonical_panels_get(void) {
#if PAR__X86 && !defined(__CUDACC__)
    if (par__isa() >= 2) return &par__canonical_panels;
#endif
    return par__canonical_tile_get();
}

typedef struct par__canonical {
    par__gemm_operands o;
    size_t k, blocks, m, n, rows, columns; // m x n of C, which are packed as `rows` and `columns`
    size_t levels;                         // of sums that are kept
    float *near, *kept;
} par__canonical;
// c = beta c + sum, each `rows` x `cols`.
static void par__canonical_store(float *c, size_t ldc, float beta, const float *sum, size_t ld, size_t rows,
                                 size_t cols) {
    for (size_t i = 0; i < rows; i++, c += ldc, sum += ld)
        if (beta == 0)
            memcpy(c, sum, cols * sizeof *c);
        else
            for (size_t j = 0; j < cols; j++) c[j] = beta == 1 ? c[j] + sum[j] : fmaf(beta, c[j], sum[j]);
}
// The sum of 2^level blocks of a tile: number x of those that are computed now, number `tile` of all.
static float *par__canonical_sum(const par__canonical *s, size_t x, size_t tile, size_t level) {
    const size_t n = s->o.tile->rows * s->o.tile->cols;
    return level < PAR__CANONICAL_NEAR ? s->near + (x * PAR__CANONICAL_NEAR + level) * n
                                       : s->kept + (tile * s->levels + level - PAR__CANONICAL_NEAR) * n;
}
// Adds block b to the sums of a tile that wait for it as their right half; to the last block, to all. The
// result waits for its own right half.
static const float *par__canonical_add(const par__canonical *s, size_t x, size_t tile, size_t b, size_t k,
                                       const float *panel_a, const float *panel_b) {
    const par__gemm_tile *of = s->o.tile;
    const size_t n = of->rows * of->cols;
    const int last = b + 1 == s->blocks;
    const size_t waiting = last ? b : b & ~(b + 1);
    float *const sum = par__canonical_sum(s, x, tile, 0);
    size_t level = 1;
    of->run(k, panel_a, 1, of->rows, panel_b, of->cols, sum, of->cols, b & 1);
    for (; waiting >> level; level++)
        if (waiting >> level & 1) par__add_f32(sum, par__canonical_sum(s, x, tile, level), n);
    if (b & 1 && !last) memcpy(par__canonical_sum(s, x, tile, level), sum, n * sizeof *sum);
    return sum;
}
// The packed blocks, of which b is the first: for at most MC rows from row i on, and a panel of B.
static void par__canonical_strip(const par__canonical *s, size_t first, size_t i, size_t j, float beta,
                                 float *c, size_t ldc) {
    const size_t rows = s->o.tile->rows, cols = s->o.tile->cols, until = PAR__MIN(i + PAR__MC, s->m);
    for (size_t b = first; b < PAR__MIN(first + PAR__CANONICAL_RUN, s->blocks); b++) {
        const size_t at = (b - first) * PAR__KC, k = PAR__MIN((size_t)PAR__KC, s->k - b * PAR__KC);
        for (size_t x = i; x < until; x += rows) {
            const float *sum =
                par__canonical_add(s, (x - i) / rows, j / cols * (s->rows / rows) + x / rows, b, k,
                                   s->o.pack_a + at * s->rows + x * k, s->o.pack_b + at * s->columns + j * k);
            if (b + 1 == s->blocks)
                par__canonical_store(c + x * ldc + j, ldc, beta, sum, cols, PAR__MIN(until - x, rows),
                                     PAR__MIN(s->n - j, cols));
        }
    }
}
// m x n elements of C, from row i and column j on.
static void par__canonical_part(par__canonical *s, size_t i, size_t m, size_t j, size_t n, float beta,
                                float *c, size_t ldc) {
    s->m = m;
    s->n = n;
    for (size_t first = 0; first < s->blocks; first += PAR__CANONICAL_RUN) {
        for (size_t b = first; b < PAR__MIN(first + PAR__CANONICAL_RUN, s->blocks); b++) {
            const size_t at = (b - first) * PAR__KC, k = PAR__MIN((size_t)PAR__KC, s->k - b * PAR__KC);
            par__gemm_pack_a(&s->o, s->o.pack_a + at * s->rows, b * PAR__KC, k, i, m);
            par__gemm_pack_b(&s->o, s->o.pack_b + at * s->columns, b * PAR__KC, k, j, n);
        }
        for (size_t x = 0; x < m; x += PAR__MC)
            for (size_t y = 0; y < n; y += s->o.tile->cols)
                par__canonical_strip(s, first, x, y, beta, c + i * ldc + j, ldc);
    }
}
static par_result par__canonical_product(const par__gemm_tile *tile, int ta, int tb, size_t m, size_t n,
                                         size_t k, float alpha, const float *a, size_t lda, const float *b,
                                         size_t ldb, float beta, float *c, size_t ldc) {
    if (!k) return par__gemm_builtin(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    const size_t most = PAR__CANONICAL_ROWS;
    par__canonical s;
    memset(&s, 0, sizeof s);
    s.k = k;
    s.blocks = (k + PAR__KC - 1) / PAR__KC;
    s.rows = par__round_up(PAR__MIN(m, most), tile->rows);
    s.columns = par__round_up(PAR__MIN(n, most), tile->cols);
    while ((s.blocks - 1) >> (s.levels + PAR__CANONICAL_NEAR)) s.levels++;
    const size_t run = PAR__MIN(s.blocks, (size_t)PAR__CANONICAL_RUN);
    if (par__gemm_open(&s.o, tile, ta, tb, run * s.rows, run * s.columns, alpha, a, lda, b, ldb))
        return PAR_ERR_MEMORY;
    const size_t near = PAR__MC * tile->cols * PAR__CANONICAL_NEAR;
    void *memory = PAR_MALLOC(sizeof(float) * (near + s.rows * s.columns * s.levels) + 64);
    s.near = par__gemm_align(memory);
    s.kept = s.near + near;
    for (size_t j = 0; memory && j < n; j += most)
        for (size_t i = 0; i < m; i += most)
            par__canonical_part(&s, i, PAR__MIN(m - i, most), j, PAR__MIN(n - j, most), beta, c, ldc);
    PAR_FREE(memory);
    PAR_FREE(s.o.memory);
    return memory ? PAR_OK : PAR_ERR_MEMORY;
}
par_result par_gemm_canonical(int ta, int tb, size_t m, size_t n, size_t k, float alpha, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    return par__canonical_product(par__canonical_panels_get(), ta, tb, m, n, k, alpha, a, lda, b, ldb, beta,
                                  c, ldc);
}

// >>math_libraries ------------------------------------------------------------------------------------------
//
// Each gets one thread: the ranks are the parallelism here, and ranks that share a machine must
// not compete. Functions that only some libraries have are weak symbols. All are declared under names of this
// file, so that a program may include the libraries' headers, too.
PAR__API_END
#if defined(PAR_DNNL)
dnnl_status_t par__dnnl_bf16(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float, const par_bf16 *,
                             dnnl_dim_t, const par_bf16 *, dnnl_dim_t, float, float *,
                             dnnl_dim_t) __asm__("dnnl_gemm_bf16bf16f32") __attribute__((weak));
#endif
#if defined(PAR_DNNL) || defined(PAR_CBLAS)
int par__omp_threads(void) __asm__("omp_get_max_threads") __attribute__((weak));
void par__omp_set_threads(int) __asm__("omp_set_num_threads") __attribute__((weak));
#endif
#if defined(PAR_CBLAS)
void par__cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float,
                      float *, int) __asm__("cblas_sgemm");
void par__openblas_bf16(int, int, int, int, int, int, float, const par_bf16 *, int, const par_bf16 *, int,
                        float, float *, int) __asm__("cblas_sbgemm") __attribute__((weak));
void par__mkl_bf16(int, int, int, int, int, int, float, const par_bf16 *, int, const par_bf16 *, int, float,
                   float *, int) __asm__("cblas_gemm_bf16bf16f32") __attribute__((weak));
int par__openblas_threads(void) __asm__("openblas_get_num_threads") __attribute__((weak));
void par__openblas_set_threads(int) __asm__("openblas_set_num_threads") __attribute__((weak));
int par__openblas_stop_threads(void) __asm__("blas_thread_shutdown_") __attribute__((weak));
int par__mkl_set_threads(int) __asm__("MKL_Set_Num_Threads_Local") __attribute__((weak));
void par__blis_set_threads(long) __asm__("bli_thread_set_num_threads") __attribute__((weak));
#endif
PAR__API_BEGIN

#if defined(PAR_CBLAS)
static const char *par__cblas_name(void) {
    if (par__mkl_set_threads) return "MKL";
    if (par__blis_set_threads) return "BLIS";
    return par__openblas_set_threads ? "OpenBLAS" : "CBLAS";
}
#endif
// OpenBLAS starts a thread for each processor when the program is loaded, and par_open does not fork a
// process that has threads.
void par__stop_library_threads(void) {
#if defined(PAR_CBLAS)
    if (!par__openblas_threads || !par__openblas_set_threads) return;
    if (par__openblas_threads() > 1) par__openblas_set_threads(1); // first, as it starts them
    if (par__openblas_stop_threads) par__openblas_stop_threads();
#endif
}

// A product takes this thread alone. The ..._alone functions return what their ..._restore takes.
#if defined(PAR_DNNL) || defined(PAR_CBLAS)
static int par__omp_alone(void) {
    const int threads = par__omp_threads ? par__omp_threads() : 0;
    if (threads > 1 && par__omp_set_threads) par__omp_set_threads(1);
    return threads;
}
static void par__omp_restore(int threads) {
    if (threads > 1 && par__omp_set_threads) par__omp_set_threads(threads);
}
#endif
#if defined(PAR_CBLAS)
static int par__cblas_alone(void) {
    if (par__openblas_set_threads && par__openblas_threads && par__openblas_threads() > 1)
        par__openblas_set_threads(1);
    if (par__blis_set_threads) par__blis_set_threads(1);
    return par__mkl_set_threads ? par__mkl_set_threads(1) : 0; // of this thread alone
}
static void par__cblas_restore(int mkl) {
    if (par__mkl_set_threads) par__mkl_set_threads(mkl);
}
#endif
#if defined(PAR_DNNL)
static par_result par__gemm_dnnl(int ta, int tb, size_t m, size_t n, size_t k, float alpha, const float *a,
                                 size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    if (!k) return par__gemm_builtin(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    const int threads = par__omp_alone();
    const dnnl_status_t status =
        dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, alpha, a,
                   (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, beta, c, (dnnl_dim_t)ldc);
    par__omp_restore(threads);
    return status == dnnl_success ? PAR_OK : PAR_ERR_ARGUMENT;
}
#endif
#if defined(PAR_CBLAS)
static par_result par__gemm_cblas(int ta, int tb, size_t m, size_t n, size_t k, float alpha, const float *a,
                                  size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    if (!k || (m | n | k | lda | ldb | ldc) > INT_MAX) // CBLAS sizes are int
        return par__gemm_builtin(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    const int threads = par__omp_alone(), mkl = par__cblas_alone();
    const int row_major = 101, plain = 111, transposed = 112;
    par__cblas_sgemm(row_major, ta ? transposed : plain, tb ? transposed : plain, (int)m, (int)n, (int)k,
                     alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
    par__cblas_restore(mkl);
    par__omp_restore(threads);
    return PAR_OK;
}
#endif

// A product of bf16 matrices, with sums and C in f32, by a library's own kernels for them. UNSUPPORTED: there
// is none, or not for this processor.
par_result par__gemm_library_bf16(int ta, int tb, size_t m, size_t n, size_t k, const par_bf16 *a, size_t lda,
                                  const par_bf16 *b, size_t ldb, float beta, float *c, size_t ldc) {
    par_result r = PAR_ERR_UNSUPPORTED;
#if defined(PAR_DNNL) || defined(PAR_CBLAS)
    const int threads = par__omp_alone();
#endif
#if defined(PAR_DNNL)
    if (par__dnnl_bf16 &&
        par__dnnl_bf16(ta ? 'T' : 'N', tb ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1, a,
                       (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, beta, c, (dnnl_dim_t)ldc) == dnnl_success)
        r = PAR_OK;
#endif
#if defined(PAR_CBLAS)
    if (r && (par__mkl_bf16 || par__openblas_bf16) && (m | n | k | lda | ldb | ldc) <= INT_MAX) {
        const int mkl = par__cblas_alone(), row_major = 101;
        (par__mkl_bf16 ? par__mkl_bf16 : par__openblas_bf16)(row_major, ta ? 112 : 111, tb ? 112 : 111,
                                                             (int)m, (int)n, (int)k, 1, a, (int)lda, b,
                                                             (int)ldb, beta, c, (int)ldc);
        par__cblas_restore(mkl);
        r = PAR_OK;
    }
#endif
#if defined(PAR_DNNL) || defined(PAR_CBLAS)
    par__omp_restore(threads);
#else
    (void)(ta + tb + (int)(m + n + k + lda + ldb));
    (void)(a == b && beta == 0 && c && ldc);
#endif
    return r;
}

typedef struct par__gemm_library {
    const char *name;
    par__gemm_fn run;
} par__gemm_library;
static const par__gemm_library par__gemm_libraries[] = { // in order of preference
#if defined(PAR_DNNL)
    {"oneDNN", par__gemm_dnnl},
#endif
#if defined(PAR_CBLAS)
    {"CBLAS", par__gemm_cblas},
#endif
    {"built-in", par__gemm_builtin},
    {"canonical", par_gemm_canonical}}; // only where PAR_GEMM asks for it
enum {
    PAR__GEMM_CANONICAL = sizeof par__gemm_libraries / sizeof par__gemm_libraries[0] - 1,
    PAR__GEMM_COUNT = PAR__GEMM_CANONICAL, // of those that are measured
    PAR__GEMM_BUILTIN = PAR__GEMM_COUNT - 1
};

enum { PAR__GEMM_F32, PAR__GEMM_BF16, PAR__GEMM_RACES }; // what is chosen
static const char *const par__bf16_names[PAR__BF16_COUNT] = {"tile", "library", "widen", "widen-built-in"};
static const char *par__gemm_name(int race, int i) {
    if (race == PAR__GEMM_BF16) return par__bf16_names[i];
#if defined(PAR_CBLAS)
    if (par__gemm_libraries[i].run == par__gemm_cblas) return par__cblas_name();
#endif
    return par__gemm_libraries[i].name;
}
static int par__gemm_find(int race, const char *name) { // until a comma; -1: not linked
    const size_t n = strcspn(name, ",");
    for (int i = 0; i < (race ? (int)PAR__BF16_COUNT : (int)PAR__GEMM_CANONICAL + 1); i++) {
        const char *const names[] = {par__gemm_name(race, i), race ? "" : par__gemm_libraries[i].name};
        for (int k = 0; k < 2; k++)
            if (strlen(names[k]) == n && n && !strncasecmp(name, names[k], n)) return i;
    }
    return -1;
}

// >>math_select ---------------------------------------------------------------------------------------------
//
// First every candidate computes small products of all four forms, which are compared with the built-in
// kernel's and timed; then the given shapes, all candidates in turn, for a few rounds. The shortest time of
// each counts, in processor time of this thread, because other programs may be running. After a few rounds a
// candidate at less than a third of the best speed is excluded, so that a very slow one costs only a few
// milliseconds; small products, of which overheads are a large part, exclude one at less than a tenth.
// Products of bf16 include the conversions that they need: of operands, and of a result that is no gradient.

enum { PAR__AUTOTUNE_ROUNDS = 12, PAR__AUTOTUNE_MIN_ROUNDS = 4, PAR__AUTOTUNE_MAX = 1 << 20 };
enum { PAR__GEMM_CHOSEN = 1, PAR__GEMM_BUSY = 16 }; // par__gemm_state: 0, CHOSEN + index, or BUSY + pid
enum { PAR__GEMM_WRONG = 1, PAR__GEMM_CUT, PAR__GEMM_ABSENT };
static const char *const par__gemm_notes[] = {"", "wrong results", "cut early", "not there"};

typedef struct par__gemm_choice {
    char name[24];
    uint32_t failed, note[PAR_GEMM_MAX];
    double flops[PAR_GEMM_MAX];
} par__gemm_choice;
// The process's choices, global state as par__isa's: a product has no comm to keep it, and all threads want
// the same library. The thread that changes the state to BUSY writes it; others read it when the state is
// CHOSEN. A process that was forked meanwhile does not have that thread: BUSY with another pid counts as
// free.
static uint32_t par__gemm_state[PAR__GEMM_RACES];
static par__gemm_choice par__gemm_chosen[PAR__GEMM_RACES];

static int par__gemm_chosen_index(uint32_t state) { // -1: not chosen yet
    return state - PAR__GEMM_CHOSEN < PAR_GEMM_MAX ? (int)(state - PAR__GEMM_CHOSEN) : -1;
}

typedef struct par__gemm_ask { // what is to be chosen, for which products
    int race;
    const par_gemm_shape *shapes;
    size_t count;
    par__gemm_bf16_fn tile;
    const void *user;
} par__gemm_ask;
typedef struct par__autotune {
    const par__gemm_ask *ask;
    int count_of, reference; // candidates; which of them the others are compared with
    int widen;               // which library multiplies f32
    double slowest;          // how much slower than the best a candidate may be
    par__gemm_choice *choice;
    const par_gemm_shape *shapes;   // of this stage
    double weight[PAR_GEMM_SHAPES]; // the operations that each represents
    size_t count;
    double min_seconds[PAR_GEMM_MAX][PAR_GEMM_SHAPES]; // seconds
    par_bf16 narrow_a[PAR__AUTOTUNE_MAX], narrow_b[PAR__AUTOTUNE_MAX];
    float a[PAR__AUTOTUNE_MAX], b[PAR__AUTOTUNE_MAX], c[PAR__AUTOTUNE_MAX], expected[PAR__AUTOTUNE_MAX];
} par__autotune;

static double par__thread_cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double par__gemm_flop_count(const par_gemm_shape *s) {
    return 2 * (double)s->m * (double)s->n * (double)s->k;
}
static par_result par__autotune_run(par__autotune *r, int i, const par_gemm_shape *s, float *c) {
    const size_t lda = s->trans_a ? s->m : s->k, ldb = s->trans_b ? s->k : s->n;
    const par_bf16 *a = r->narrow_a, *b = r->narrow_b;
    const int ta = s->trans_a, tb = s->trans_b, bf16 = r->ask->race == PAR__GEMM_BF16;
    if (bf16 && i == PAR__BF16_TILE)
        return r->ask->tile ? r->ask->tile(r->ask->user, ta, tb, s->m, s->n, s->k, a, lda, b, ldb, c, r->a)
                            : PAR_ERR_UNSUPPORTED;
    par_result result;
    if (bf16 && i == PAR__BF16_LIBRARY) {
        result = par__gemm_library_bf16(ta, tb, s->m, s->n, s->k, a, lda, b, ldb, 0, c, s->n);
    } else {
        const int wide = i == PAR__BF16_WIDEN ? r->widen : (int)PAR__GEMM_BUILTIN;
        if (bf16) par_cast(r->a, PAR_F32, a, PAR_BF16, s->m * s->k);
        if (bf16) par_cast(r->b, PAR_F32, b, PAR_BF16, s->n * s->k);
        result = par__gemm_libraries[bf16 ? wide : i].run(ta, tb, s->m, s->n, s->k, 1, r->a, lda, r->b, ldb,
                                                          0, c, s->n);
    }
    if (bf16 && !ta && !result) par_cast(r->a, PAR_BF16, c, PAR_F32, s->m * s->n);
    return result;
}
// Compare a candidate's product with the built-in kernel's, up to rounding. Numbers are in [-1/2, 1/2).
static void par__autotune_check(par__autotune *r, const par_gemm_shape *s, int i) {
    const double allowed = 1e-5 + 1e-5 * sqrt((double)s->k);
    double off = 0;
    for (size_t j = 0; j < s->m * s->n; j++) r->c[j] = NAN;
    const par_result result = par__autotune_run(r, i, s, r->c);
    if (result == PAR_ERR_UNSUPPORTED) {
        r->choice->note[i] = PAR__GEMM_ABSENT;
        return;
    }
    for (size_t j = 0; j < s->m * s->n && off <= allowed; j++)
        off = fabs((double)r->c[j] - (double)r->expected[j]);
    if (result == PAR_OK && off <= allowed) return;
    char text[256];
    snprintf(text, sizeof text,
             "%s is not used for matrix products: a product of %zu x %zu x %zu differs from the built-in "
             "kernel's by %g, but rounding explains at most %g",
             par__gemm_name(r->ask->race, i), s->m, s->n, s->k, result ? (double)NAN : off, allowed);
    PAR_LOG(text);
    r->choice->note[i] = PAR__GEMM_WRONG;
}
static void par__autotune_time(par__autotune *r, size_t s, int i) {
    const par_gemm_shape *shape = &r->shapes[s];
    const int runs = (int)PAR__MAX(1.0, PAR__MIN(64.0, 1e6 / par__gemm_flop_count(shape)));
    const double start = par__thread_cpu_seconds();
    for (int run = 0; run < runs; run++) par__autotune_run(r, i, shape, r->c);
    r->min_seconds[i][s] = PAR__MIN(r->min_seconds[i][s], (par__thread_cpu_seconds() - start) / runs);
}
// Compute the speeds from the shortest times, and exclude candidates that are far slower.
static void par__autotune_compare(par__autotune *r) {
    double best = 0;
    for (int i = 0; i < r->count_of; i++) {
        double operations = 0, seconds = 0;
        if (r->choice->note[i]) continue;
        for (size_t s = 0; s < r->count; s++) {
            operations += r->weight[s];
            seconds += r->weight[s] / par__gemm_flop_count(&r->shapes[s]) * r->min_seconds[i][s];
        }
        r->choice->flops[i] = operations / PAR__MAX(seconds, 1e-12);
        best = PAR__MAX(best, r->choice->flops[i]);
    }
    for (int i = 0; i < r->count_of; i++)
        if (!r->choice->note[i] && r->choice->flops[i] < best / r->slowest)
            r->choice->note[i] = PAR__GEMM_CUT;
}
static void par__autotune_stage(par__autotune *r, const par_gemm_shape *shapes, size_t count,
                                double budget_s) {
    const double start = par__thread_cpu_seconds();
    r->shapes = shapes;
    r->count = count;
    for (size_t s = 0; s < count; s++) {
        par__autotune_run(r, r->reference, &shapes[s], r->expected);
        for (int i = 0; i < r->count_of; i++) {
            r->min_seconds[i][s] = 1e9;
            if (i != r->reference && !r->choice->note[i]) par__autotune_check(r, &shapes[s], i);
        }
    }
    for (int round = 0; round < PAR__AUTOTUNE_ROUNDS; round++) {
        for (size_t s = 0; s < count; s++)
            for (int i = 0; i < r->count_of; i++)
                if (!r->choice->note[i]) par__autotune_time(r, s, i);
        if (round + 1 < PAR__AUTOTUNE_MIN_ROUNDS) continue;
        par__autotune_compare(r);
        if (par__thread_cpu_seconds() - start > budget_s) return;
    }
}
// Shrink a shape to a product of about a millisecond, with matrices of at most 4 MiB.
static par_gemm_shape par__gemm_shrink(par_gemm_shape s) {
    const double max = (double)(1 << 20);
    for (;;) {
        const double m = (double)s.m, n = (double)s.n, k = (double)s.k;
        if (m * n * k <= 32 * max && m * n <= max && m * k <= max && n * k <= max) return s;
        size_t *largest = s.m >= s.n && s.m >= s.k ? &s.m : s.n >= s.k ? &s.n : &s.k;
        *largest /= 2;
    }
}
static void par__autotune_fill(par__autotune *r, size_t used) { // numbers in [-1/2, 1/2)
    uint32_t bits = 1;
    for (size_t i = 0; i < used; i++) {
        bits = bits * 1664525u + 1013904223u;
        r->a[i] = (float)(bits >> 8) * 5.9604644775390625e-8f - 0.5f;
        bits = bits * 1664525u + 1013904223u;
        r->b[i] = (float)(bits >> 8) * 5.9604644775390625e-8f - 0.5f;
    }
    par_cast(r->narrow_a, PAR_BF16, r->a, PAR_F32, used);
    par_cast(r->narrow_b, PAR_BF16, r->b, PAR_F32, used);
}
static par_result par__gemm_autotune(const par__gemm_ask *ask, par__gemm_choice *choice) {
    const par_gemm_shape *shapes = ask->shapes;
    const size_t count = ask->count;
    static const par_gemm_shape small[] = {
        {0, 0, 61, 83, 47, 1}, {0, 1, 61, 83, 47, 1}, {1, 0, 61, 83, 47, 1}, {1, 1, 61, 83, 47, 1}};
    par_gemm_shape cut[PAR_GEMM_SHAPES];
    par__autotune *r = (par__autotune *)PAR_MALLOC(sizeof *r);
    if (!r) return PAR_ERR_MEMORY;
    size_t used = 8192;
    for (size_t s = 0; s < count; s++) {
        const par_gemm_shape c = cut[s] = par__gemm_shrink(shapes[s]);
        used = PAR__MAX(used, PAR__MAX(c.m * c.n, PAR__MAX(c.m * c.k, c.n * c.k)));
    }
    r->ask = ask;
    r->count_of = ask->race ? (int)PAR__BF16_COUNT : (int)PAR__GEMM_COUNT;
    r->reference = ask->race ? (int)PAR__BF16_WIDEN_BUILTIN : (int)PAR__GEMM_BUILTIN;
    r->widen = PAR__MAX(par__gemm_chosen_index(PAR__LOAD(&par__gemm_state[PAR__GEMM_F32])), 0);
    if (ask->race && r->widen == PAR__GEMM_BUILTIN) choice->note[PAR__BF16_WIDEN_BUILTIN] = PAR__GEMM_ABSENT;
    r->choice = choice;
    par__autotune_fill(r, used);
    for (size_t s = 0; s < 4; s++) r->weight[s] = 1;
    r->slowest = 10;
    par__autotune_stage(r, small, 4, 0.002);
    r->slowest = 3;
    for (size_t s = 0; s < count; s++)
        r->weight[s] = par__gemm_flop_count(&shapes[s]) * (shapes[s].weight > 0 ? shapes[s].weight : 1);
    par__autotune_stage(r, cut, count, 0.04);
    double best = 0;
    int chosen = 0;
    for (int i = 0; i < r->count_of; i++)
        if (!choice->note[i]) best = PAR__MAX(best, choice->flops[i]);
    while (choice->note[chosen] || choice->flops[chosen] * 1.05 < best) chosen++;
    snprintf(choice->name, sizeof choice->name, "%s", par__gemm_name(ask->race, chosen));
    PAR_FREE(r);
    return PAR_OK;
}

static par_result par__gemm_fail(par_comm *comm, par_result result, const char *text) {
    if (comm) return par_fail(comm, result, "%s", text);
    PAR_LOG(text);
    return result;
}
// PAR_GEMM's choice; -1: it leaves it open. A library's name alone is also a choice for bf16: without a
// measurement, the tile, where there is one.
static par_result par__gemm_forced(int race, par_comm *comm, int *index) {
    const char *name = par__setting_text("PAR_GEMM");
    char text[512];
    int known = 0;
    *index = -1;
    for (const char *word = name; word && *word; word += strcspn(word, ","), word += *word == ',') {
        const int f32 = par__gemm_find(PAR__GEMM_F32, word), bf16 = par__gemm_find(PAR__GEMM_BF16, word);
        known += f32 >= 0 || bf16 >= 0;
        if (race == PAR__GEMM_F32 && f32 >= 0) *index = f32;
        if (race == PAR__GEMM_BF16 && bf16 >= 0) *index = bf16;
        if (race == PAR__GEMM_BF16 && f32 >= 0 && *index < 0) *index = PAR__BF16_TILE;
    }
    if (!name || known == 1 + (strchr(name, ',') != NULL)) return PAR_OK;
    size_t at = (size_t)snprintf(text, sizeof text, "PAR_GEMM=%.60s: this program can use", name);
    for (int i = 0; i <= PAR__GEMM_CANONICAL; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s %s", i ? " or" : "",
                               par__gemm_name(PAR__GEMM_F32, i));
    snprintf(text + at, sizeof text - at,
             "; for bf16, after a comma: tile, library, widen or widen-built-in");
    return par__gemm_fail(comm, PAR_ERR_ARGUMENT, text);
}
// 1: this thread chooses. 0: the state is not `seen`, or another thread chooses; then this one waits a
// millisecond.
static int par__gemm_claim(int race, uint32_t seen) {
    const uint32_t busy = PAR__GEMM_BUSY + (uint32_t)getpid();
    if (seen != busy)
        return __atomic_compare_exchange_n(&par__gemm_state[race], &seen, busy, 0, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE);
    usleep(1000);
    return 0;
}
// The only candidate, without a measurement; -1: there are several.
static int par__gemm_only(const par__gemm_ask *ask) {
    if (ask->race == PAR__GEMM_F32) return PAR__GEMM_COUNT == 1 ? 0 : -1;
    return PAR__GEMM_COUNT == 1 && !ask->tile ? (int)PAR__BF16_WIDEN : -1;
}
// The process's choice, which is made now if there is none. Threads that call this meanwhile wait for it.
static par_result par__gemm_decide(const par__gemm_ask *ask, par_comm *comm, int *chosen) {
    const int race = ask->race;
    uint32_t seen;
    do {
        seen = PAR__LOAD(&par__gemm_state[race]);
        if ((*chosen = par__gemm_chosen_index(seen)) >= 0) return PAR_OK;
    } while (!par__gemm_claim(race, seen));
    memset(&par__gemm_chosen[race], 0, sizeof par__gemm_chosen[race]);
    par_result r = par__gemm_forced(race, comm, chosen);
    if (!r && *chosen < 0) *chosen = par__gemm_only(ask);
    if (!r && *chosen < 0) {
        r = par__gemm_autotune(ask, &par__gemm_chosen[race]);
        *chosen = r ? -1 : par__gemm_find(race, par__gemm_chosen[race].name);
        if (r) par__gemm_fail(comm, r, "out of memory to compare matrix product libraries");
    }
    PAR__STORE(&par__gemm_state[race], r ? 0 : (uint32_t)(PAR__GEMM_CHOSEN + *chosen));
    return r;
}
static void par__gemm_adopt(int race, const par__gemm_choice *choice, int index) { // rank 0's choice
    const uint32_t chosen = (uint32_t)(PAR__GEMM_CHOSEN + index);
    uint32_t seen;
    do {
        seen = PAR__LOAD(&par__gemm_state[race]);
        if (seen == chosen) return;
    } while (!par__gemm_claim(race, seen));
    par__gemm_chosen[race] = *choice;
    PAR__STORE(&par__gemm_state[race], chosen);
}
// The three products of a linear layer: output, gradient of the input, gradient of the weight.
static void par__gemm_linear_shapes(size_t m, size_t n, size_t k, par_gemm_shape shapes[3]) {
    const par_gemm_shape all[3] = {{0, 1, m, n, k, 1}, {0, 0, m, k, n, 1}, {1, 0, n, k, m, 1}};
    memcpy(shapes, all, sizeof all);
}

static par_gemm_report par__gemm_report(int race) {
    par_gemm_report report;
    memset(&report, 0, sizeof report);
    report.chosen = par__gemm_chosen_index(PAR__LOAD(&par__gemm_state[race]));
    report.count = race ? (int)PAR__BF16_COUNT : PAR__GEMM_COUNT + (report.chosen == PAR__GEMM_CANONICAL);
    for (int i = 0; i < report.count; i++) {
        const par__gemm_choice *k = report.chosen < 0 ? NULL : &par__gemm_chosen[race];
        report.name[i] = par__gemm_name(race, i);
        report.note[i] = k ? par__gemm_notes[k->note[i]] : "";
        report.flops[i] = k && !k->note[i] ? k->flops[i] : 0; // of one that was cut early nothing is known
    }
    return report;
}
par_gemm_report par_gemm_get(void) { return par__gemm_report(PAR__GEMM_F32); }
par_gemm_report par__gemm_get_bf16(void) { return par__gemm_report(PAR__GEMM_BF16); }

const char *par_gemm_name(void) {
    const int chosen = par__gemm_chosen_index(PAR__LOAD(&par__gemm_state[PAR__GEMM_F32]));
    return chosen < 0 ? "not chosen yet" : par__gemm_name(PAR__GEMM_F32, chosen);
}
par_result par_gemm(int ta, int tb, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
                    const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    if (!m || !n) return PAR_OK;
    int chosen = par__gemm_chosen_index(PAR__LOAD(&par__gemm_state[PAR__GEMM_F32]));
    if (chosen < 0) { // not chosen yet: measure products of about this size
        par_gemm_shape linear[3];
        const size_t min = 64, max = 1024;
        par__gemm_linear_shapes(PAR__MIN(PAR__MAX(m, min), max), PAR__MIN(PAR__MAX(n, min), max),
                                PAR__MIN(PAR__MAX(k, min), max), linear);
        const par__gemm_ask ask = {PAR__GEMM_F32, linear, 3, NULL, NULL};
        const par_result r = par__gemm_decide(&ask, NULL, &chosen);
        if (r) return r;
    }
    return par__gemm_libraries[chosen].run(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static par_result par__gemm_check_shapes(const par_gemm_shape *shapes, size_t count, par_comm *comm) {
    if (count && !shapes)
        return par_fail(comm, PAR_ERR_ARGUMENT, "par_gemm_select: shapes is NULL, but shape_count is %zu",
                        count);
    if (count > PAR_GEMM_SHAPES)
        return par_fail(comm, PAR_ERR_ARGUMENT, "par_gemm_select: %zu shapes, but it compares at most %d",
                        count, (int)PAR_GEMM_SHAPES);
    for (size_t s = 0; s < count; s++)
        if (!shapes[s].m || !shapes[s].n || !shapes[s].k)
            return par_fail(comm, PAR_ERR_ARGUMENT,
                            "par_gemm_select: shape %zu is %zu x %zu x %zu; each must be 1 or more", s,
                            shapes[s].m, shapes[s].n, shapes[s].k);
    return PAR_OK;
}
static par_result par__gemm_select(par__gemm_ask ask, par_comm *comm) {
    par__gemm_choice choice;
    par_gemm_shape linear[3];
    if (!comm) { // to keep the text
        PAR_LOG("par_gemm_select: comm is NULL");
        return PAR_ERR_ARGUMENT;
    }
    int chosen = -1, forced;
    memset(&choice, 0, sizeof choice);
    const par_result wrong = par__gemm_check_shapes(ask.shapes, ask.count, comm);
    if (wrong) return wrong;
    par_result r = par__gemm_forced(ask.race, comm, &forced);
    if (!ask.race && PAR__GEMM_COUNT == 1) return r ? r : par__gemm_decide(&ask, comm, &chosen);
    par__gemm_linear_shapes(256, 512, 256, linear);
    if (!ask.count) {
        ask.shapes = linear;
        ask.count = 3;
    }
    if (!r && par_rank(comm) == 0) {
        r = par__gemm_decide(&ask, comm, &chosen);
        if (!r) choice = par__gemm_chosen[ask.race];
        if (!r) snprintf(choice.name, sizeof choice.name, "%s", par__gemm_name(ask.race, chosen));
    }
    choice.failed = r != PAR_OK;
    const par_result told = par_broadcast(&choice, &choice, sizeof choice, PAR_U8, 0, comm);
    if (told) return told;
    choice.name[sizeof choice.name - 1] = 0;
    for (int i = 0; i < PAR_GEMM_MAX; i++) choice.note[i] %= sizeof par__gemm_notes / sizeof *par__gemm_notes;
    chosen = par__gemm_find(ask.race, choice.name);
    if (!r && choice.failed)
        r = par_fail(comm, PAR_ERR_ARGUMENT,
                     "par_gemm_select: rank 0 could not choose; its own error says why");
    if (!r && chosen < 0)
        r = par_fail(
            comm, PAR_ERR_UNSUPPORTED,
            "par_gemm_select: rank 0 has chosen %s, which this rank's program was built without: run "
            "the same program on all ranks",
            choice.name);
    if (!r && forced >= 0 && forced != chosen)
        r = par_fail(comm, PAR_ERR_ARGUMENT,
                     "PAR_GEMM=%s on rank %d, but rank 0 has chosen %s: give all ranks the same",
                     par__gemm_name(ask.race, forced), par_rank(comm), choice.name);
    if (!r) par__gemm_adopt(ask.race, &choice, chosen);
    int failed = r != PAR_OK;
    const par_result agreed = par_all_reduce(&failed, &failed, 1, PAR_I32, PAR_MAX, comm);
    if (agreed || r) return r ? r : agreed;
    return failed
               ? par_fail(comm, PAR_ERR_ARGUMENT,
                          "par_gemm_select: another rank cannot use %s; its own error says why", choice.name)
               : PAR_OK;
}
par_result par_gemm_select(const par_gemm_shape *shapes, size_t count, par_comm *comm) {
    const par__gemm_ask ask = {PAR__GEMM_F32, shapes, count, NULL, NULL};
    return par__gemm_select(ask, comm);
}
par_result par__gemm_select_bf16(const par_gemm_shape *shapes, size_t count, par_comm *comm,
                                 par__gemm_bf16_fn tile, const void *user) {
    const par__gemm_ask ask = {PAR__GEMM_BF16, shapes, count, tile, user};
    const par_result r = par_gemm_select(shapes, count, comm);
    return r ? r : par__gemm_select(ask, comm);
}

// >>math_philox ---------------------------------------------------------------------------------------------

PAR__EXACT_BEGIN
void par_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    par__philox(counter, key, out);
}
uint64_t par_random(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t r[4];
    par__philox_at(seed, stream, index, r);
    return (uint64_t)r[1] << 32 | r[0];
}
float par_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t r[4];
    par__philox_at(seed, stream, index, r);
    return (float)(r[0] >> 8) * 5.9604644775390625e-8f; // 2^-24
}
float par_normal(uint64_t seed, uint64_t stream, uint64_t index) { return par__normal(seed, stream, index); }

// Philox for 16 blocks of a stream, from block `index` on: c[i] has word i of each.
PAR__INLINE_LOOP void par__philox_lanes(uint32_t c[4][16], uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    PAR__LANES(i, 0, 16, c[0][i] = (uint32_t)(index + i); c[1][i] = (uint32_t)((index + i) >> 32);
               c[2][i] = (uint32_t)stream; c[3][i] = (uint32_t)(stream >> 32))
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        PAR__LANES(i, 0, 16, const uint64_t p0 = (uint64_t)0xD2511F53u * c[0][i];
                   const uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2][i];
                   c[0][i] = (uint32_t)(p1 >> 32) ^ c[1][i] ^ k0; c[1][i] = (uint32_t)p1;
                   c[2][i] = (uint32_t)(p0 >> 32) ^ c[3][i] ^ k1; c[3][i] = (uint32_t)p0)
}
PAR__INLINE_LOOP void par__random_blocks(uint32_t *words, uint64_t seed, uint64_t stream, uint64_t index,
                                         size_t count) {
    for (size_t at = 0; at < count; at += 16) {
        uint32_t c[4][16];
        par__philox_lanes(c, seed, stream, index + at);
        for (size_t i = 0; i < 16; i++)
            for (size_t word = 0; word < 4; word++) words[4 * (at + i) + word] = c[word][i];
    }
}
// Of the first two words of each of PAR__PHILOX_BLOCKS blocks.
PAR__INLINE_LOOP void par__random_normals(float *x, const uint32_t *words) {
    uint64_t both[PAR__PHILOX_BLOCKS];
    for (size_t i = 0; i < PAR__PHILOX_BLOCKS; i++) both[i] = (uint64_t)words[4 * i + 1] << 32 | words[4 * i];
    PAR__LANES(i, 0, PAR__PHILOX_BLOCKS, x[i] = par__normal_of((uint32_t)both[i], (uint32_t)(both[i] >> 32)))
}

#define PAR__RANDOM_LOOPS(X, P)                                                                              \
    X(P, void, blocks, (uint32_t * words, uint64_t seed, uint64_t stream, uint64_t index, size_t count),     \
      (words, seed, stream, index, count))                                                                   \
    X(P, void, normals, (float *x, const uint32_t *words), (x, words))
typedef struct par__random_loops {
    PAR__RANDOM_LOOPS(PAR__MEMBER, par__random_)
} par__random_loops;
PAR__LOOP_TABLE(base, par__random_, PAR__RANDOM_LOOPS)
#if PAR__X86 && !defined(__CUDACC__)
// The keys of all rounds.
typedef struct par__philox_keys {
    uint32_t k[10][2];
} par__philox_keys;
static inline par__philox_keys par__philox_keys_of(uint64_t seed) {
    par__philox_keys keys;
    for (uint32_t i = 0; i < 10; i++) {
        keys.k[i][0] = (uint32_t)seed + 0x9E3779B9u * i;
        keys.k[i][1] = (uint32_t)(seed >> 32) + 0xBB67AE85u * i;
    }
    return keys;
}
// The same in vector registers, blocks in 64 bits each. A product takes the lower halves of its operands,
// which are the words that count; upper halves may be anything.
typedef struct par__philox_x4 { // words 0 to 3 of four numbers
    __m256i w0, w1, w2, w3;
} par__philox_x4;
PAR__TARGET_avx2 PAR__INLINE_LOOP par__philox_x4 par__philox_x4_of(uint64_t stream, __m256i number) {
    const par__philox_x4 x = {number, _mm256_srli_epi64(number, 32), _mm256_set1_epi64x((long long)stream),
                              _mm256_set1_epi64x((long long)(stream >> 32))};
    return x;
}
PAR__TARGET_avx2 PAR__INLINE_LOOP par__philox_x4 par__philox_x4_round(par__philox_x4 x, __m256i k0,
                                                                      __m256i k1) {
    const __m256i p0 = _mm256_mul_epu32(x.w0, _mm256_set1_epi64x((long long)0xD2511F53u));
    const __m256i p1 = _mm256_mul_epu32(x.w2, _mm256_set1_epi64x((long long)0xCD9E8D57u));
    x.w0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(x.w1, k0));
    x.w2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(x.w3, k1));
    x.w1 = p1;
    x.w3 = p0;
    return x;
}
// Words 0 and 1, 2 and 3 of each number as one of 64 bits.
PAR__TARGET_avx2 PAR__INLINE_LOOP void par__philox_x4_pairs(__m256i pairs[2], par__philox_x4 x) {
    pairs[0] = _mm256_blend_epi32(x.w0, _mm256_slli_epi64(x.w1, 32), 0xAA);
    pairs[1] = _mm256_blend_epi32(x.w2, _mm256_slli_epi64(x.w3, 32), 0xAA);
}
// Of eight numbers from `number` on, four in each vector.
PAR__TARGET_avx2 PAR__INLINE_LOOP void par__philox_avx2(__m256i pairs[2][2], const par__philox_keys *keys,
                                                        uint64_t stream, uint64_t number) {
    const __m256i first = _mm256_set1_epi64x((long long)number), four = _mm256_setr_epi64x(0, 1, 2, 3);
    par__philox_x4 x = par__philox_x4_of(stream, _mm256_add_epi64(first, four));
    par__philox_x4 y =
        par__philox_x4_of(stream, _mm256_add_epi64(first, _mm256_add_epi64(four, _mm256_set1_epi64x(4))));
    for (int round = 0; round < 10; round++) {
        const __m256i k0 = _mm256_set1_epi32((int)keys->k[round][0]);
        const __m256i k1 = _mm256_set1_epi32((int)keys->k[round][1]);
        x = par__philox_x4_round(x, k0, k1);
        y = par__philox_x4_round(y, k0, k1);
    }
    par__philox_x4_pairs(pairs[0], x);
    par__philox_x4_pairs(pairs[1], y);
}
PAR__TARGET_avx2 static void par__random_blocks_avx2(uint32_t *words, uint64_t seed, uint64_t stream,
                                                     uint64_t index, size_t count) {
    const par__philox_keys keys = par__philox_keys_of(seed);
    for (size_t at = 0; at < count; at += 8) {
        __m256i pairs[2][2];
        par__philox_avx2(pairs, &keys, stream, index + at);
        for (size_t h = 0; h < 2; h++) {
            __m256i *to = (__m256i *)(void *)(words + 4 * at + 16 * h);
            const __m256i even = _mm256_unpacklo_epi64(pairs[h][0], pairs[h][1]); // blocks 0 and 2
            const __m256i odd = _mm256_unpackhi_epi64(pairs[h][0], pairs[h][1]);
            _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
            _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
        }
    }
}
PAR__TARGET_avx2 static void par__random_normals_avx2(float *x, const uint32_t *words) {
    par__random_normals(x, words);
}
static const par__random_loops par__random_loops_avx2 = {par__random_blocks_avx2, par__random_normals_avx2};
// By AVX-512 each round rotates its two products, whose halves change places:
//     64 bits of   w[0]: words 0, 1    w[1]: word 1, any    w[2]: words 2, 3    w[3]: word 3, any
PAR__TARGET_avx512 PAR__INLINE_LOOP void par__philox_avx512(__m512i out[2][2], const par__philox_keys *keys,
                                                            uint64_t stream, const __m512i number[2]) {
    const __mmask16 lower = 0x5555;
    __m512i w[2][4];
    for (int h = 0; h < 2; h++) {
        w[h][0] = number[h];
        w[h][1] = _mm512_srli_epi64(number[h], 32);
        w[h][2] = _mm512_set1_epi64((long long)stream);
        w[h][3] = _mm512_set1_epi64((long long)(stream >> 32));
    }
    for (int round = 0; round < 10; round++)
        for (int h = 0; h < 2; h++) {
            const __m512i k0 = _mm512_set1_epi32((int)keys->k[round][0]);
            const __m512i k1 = _mm512_set1_epi32((int)keys->k[round][1]);
            const __m512i p0 = _mm512_mul_epu32(w[h][0], _mm512_set1_epi64((long long)0xD2511F53u));
            const __m512i p1 = _mm512_mul_epu32(w[h][2], _mm512_set1_epi64((long long)0xCD9E8D57u));
            w[h][0] = _mm512_mask_ternarylogic_epi32(_mm512_rol_epi64(p1, 32), lower, w[h][1], k0, 0x96);
            w[h][2] = _mm512_mask_ternarylogic_epi32(_mm512_rol_epi64(p0, 32), lower, w[h][3], k1, 0x96);
            w[h][1] = p1; // 0x96: exclusive or
            w[h][3] = p0;
        }
    for (int h = 0; h < 2; h++) {
        out[h][0] = w[h][0];
        out[h][1] = w[h][2];
    }
}
PAR__TARGET_avx512 static void par__random_blocks_avx512(uint32_t *words, uint64_t seed, uint64_t stream,
                                                         uint64_t index, size_t count) {
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const par__philox_keys keys = par__philox_keys_of(seed);
    for (size_t at = 0; at < count; at += 16) {
        __m512i number[2], pairs[2][2];
        for (size_t h = 0; h < 2; h++)
            number[h] = _mm512_add_epi64(_mm512_set1_epi64((long long)(index + at + 8 * h)), order);
        par__philox_avx512(pairs, &keys, stream, number);
        for (size_t h = 0; h < 2; h++) {
            uint32_t *to = words + 4 * at + 32 * h;
            _mm512_storeu_si512((void *)to, _mm512_unpacklo_epi64(pairs[h][0], pairs[h][1]));
            _mm512_storeu_si512((void *)(to + 16), _mm512_unpackhi_epi64(pairs[h][0], pairs[h][1]));
        }
    }
}
PAR__TARGET_avx512 static void par__random_normals_avx512(float *x, const uint32_t *words) {
    par__random_normals(x, words);
}
static const par__random_loops par__random_loops_avx512 = {
    PAR__RANDOM_LOOPS(PAR__CLONED_avx512, par__random_)};
#endif

void par__philox_blocks(uint32_t *words, uint64_t seed, uint64_t stream, uint64_t index, size_t count) {
    PAR__PICK(par__random_loops)->blocks(words, seed, stream, index, count);
}
void par_normals(uint64_t seed, uint64_t stream, uint64_t first, size_t count, float *values) {
    const par__random_loops *loops = PAR__PICK(par__random_loops);
    uint32_t words[4 * PAR__PHILOX_BLOCKS];
    float x[PAR__PHILOX_BLOCKS];
    for (size_t at = 0; at < count; at += PAR__PHILOX_BLOCKS) {
        const size_t n = PAR__MIN((size_t)PAR__PHILOX_BLOCKS, count - at);
        loops->blocks(words, seed, stream, first + at, PAR__PHILOX_BLOCKS);
        loops->normals(x, words);
        memcpy(values + at, x, n * sizeof *x);
    }
}

PAR__EXACT_END

#ifdef __cplusplus
}
#endif
PAR__API_END
#pragma pop_macro("PAR_SITE")
#pragma pop_macro("par_gemm_select")
#undef par_fail
#endif // PAR_MATH_IMPLEMENTATION

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

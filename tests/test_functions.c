// test_functions.c - the functions of one number on which the bits of canonical training depend: prints a
// checksum of each one's results, for each way in which this program has it compiled. tests/bits.sh compares
// them with tests/golden/functions.txt, on all instruction sets.
//     test_functions          of 2^18 floats: for all 13 highest bits some that follow them, and come before
//     test_functions --all    of all 2^32 floats, half an hour; --all NAME: of one function
#define PAR_CUDA_IMPLEMENTATION // formulas alone, which need no other part of the kit
#include "par.h"
#include "par_tp.h"
#include "par_zero.h"
#include <stdio.h>

// V(X, P, name, a float that is computed of the float x); folded: from all bits of a double
#define LAYERS(V, X, P) /* of par_tp.h */                                                                    \
    V(X, P, exp, par__tp_exp(x))                                                                             \
    V(X, P, softmax_weight, par__tp_softmax_weight(x, 0.5f))                                                 \
    V(X, P, gelu, x *par__tp_gelu_gate(x))                                                                   \
    V(X, P, gelu_gradient, par__tp_gelu_gradient(0.75f, x))                                                  \
    V(X, P, silu, par__tp_silu(x))                                                                           \
    V(X, P, swiglu_gradient, swiglu_gradients(x))                                                            \
    V(X, P, rstd, par__tp_rstd(x, 3, 1e-5f))                                                                 \
    V(X, P, logit_gradient, par__tp_logit_gradient(x, 0.5f, 0.75f, 1e-3f))
#define EXACT(V, X, P) /* of par.h and par_zero.h: each operation is rounded by itself in all tables */      \
    V(X, P, log, x == 0 || x >= 0x1p-64f ? folded(par__log((double)x)) : 0.0f)                               \
    V(X, P, exp_f64, folded(par__exp((double)x)))                                                            \
    V(X, P, pow, folded(par__pow(10000, -(double)x)))                                                        \
    V(X, P, sqrt_f64, x > 0 ? folded(par__sqrt((double)x)) : 0.0f)                                           \
    V(X, P, cos, fabsf(x) <= 0x1p20f ? folded(par__cos((double)x)) : 0.0f)                                   \
    V(X, P, sin, fabsf(x) <= 0x1p20f ? folded(par__sin((double)x)) : 0.0f)                                   \
    V(X, P, normal_radius, par__normal_of(par__f32_to_bits(x), 0x12345678u))                                 \
    V(X, P, normal_angle, par__normal_of(0x12345678u, par__f32_to_bits(x)))                                  \
    V(X, P, zero_sqrt, par__zero_sqrt(x))                                                                    \
    V(X, P, bf16, par__bf16_widen(par__bf16_narrow(x)))                                                      \
    V(X, P, round_randomly, par__bf16_widen(par__zero_round_randomly(x, 0x9E37u)))                           \
    V(X, P, u8_signed, state(x, 1))                                                                          \
    V(X, P, u8, state(x, 0))

#define LOOP(X, P, name, ...)                                                                                \
    PAR__INLINE_LOOP void P##name(float *y, const float *in, size_t n) {                                     \
        PAR__VECTOR(i, n, const float x = in[i]; y[i] = __VA_ARGS__);                                        \
    }
#define ROW(X, P, name, ...)       X(P, void, name, (float *y, const float *in, size_t n), (y, in, n))
#define LAYER_LOOPS(X, P)          LAYERS(ROW, X, P)
#define EXACT_LOOPS(X, P)          EXACT(ROW, X, P)
#define NAME(P, result, name, ...) #name,

PAR__FORMULAS_BEGIN
PAR__INLINE_LOOP float swiglu_gradients(float x) {
    float dup;
    const float dgate = par__tp_swiglu_gradient(0.75f, x, 1.5f, &dup);
    return dgate + dup;
}
LAYERS(LOOP, , layer_)
typedef struct layer_loops {
    LAYER_LOOPS(PAR__MEMBER, )
} layer_loops;
#if PAR__BASE_FUSES
PAR__LOOP_TABLE(exact, layer_, LAYER_LOOPS)
#else
PAR__LOOP_TABLE(base, layer_, LAYER_LOOPS)
#endif
PAR__FORMULAS_END
PAR__EXACT_BEGIN
PAR__INLINE_LOOP float folded(double y) {
    const uint64_t bits = y == y ? par__f64_to_bits(y) : 0;
    return par__bits_to_f32((uint32_t)(bits ^ bits >> 32) & 0xBFFFFFFFu); // no NaN
}
PAR__INLINE_LOOP float state(float x, int sign) { // there and back again
    return par__zero_decode_state(par__zero_encode_state(x, sign, par__zero_state_inverse(3.0f)), sign, 3.0f);
}
EXACT(LOOP, , exact_)
PAR__LOOP_TABLES(exact_, EXACT_LOOPS)
PAR__EXACT_END

typedef void (*function)(float *y, const float *x, size_t n);
enum { CHUNK = 8192 };
// Of 2^32 floats: a sum in which the number of a result counts. All NaNs are the same one, because
// processors choose different bits.
static uint64_t checksum(function f, int all) {
    static float x[CHUNK], y[CHUNK];
    uint64_t sum = 0;
    for (uint32_t chunk = 0; chunk < (all ? 1u << 19 : 32); chunk++) {
        for (uint32_t i = 0; i < CHUNK; i++)
            x[i] = par__bits_to_f32(all ? chunk * CHUNK + i
                                        : (i << 19) + (chunk - 16) * (chunk % 2 ? 1u : 16007u));
        f(y, x, CHUNK);
        uint64_t part = 0;
        for (uint32_t i = 0; i < CHUNK; i++) {
            const uint32_t bits = par__f32_to_bits(y[i]), nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
            part += (uint64_t)(nan ? 0x7FC00000u : bits) * (2 * i + 1);
        }
        sum = (sum ^ part) * 1099511628211u;
    }
    return sum ^ sum >> 32;
}
// Prints the functions of a table, in their order.
static void print(const char *const *names, const void *loops, int all, const char *only) {
    for (int i = 0; names[i]; i++) {
        function f;
        memcpy(&f, (const char *)loops + (size_t)i * sizeof f, sizeof f);
        if (only && strcmp(only, names[i])) continue;
        printf("%s %016llx\n", names[i], (unsigned long long)checksum(f, all));
    }
}
int main(int argc, char **argv) {
    static const char *const layer_names[] = {LAYER_LOOPS(NAME, ) NULL}, *const exact_names[] = {
                                                                             EXACT_LOOPS(NAME, ) NULL};
    const int all = argc > 1;
    const char *only = argc > 2 ? argv[2] : NULL;
    print(layer_names, PAR__PICK_EXACT(layer_loops), all, only);
    print(exact_names, &exact_loops_base, all, only);
#if PAR__X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        print(exact_names, &exact_loops_avx2, all, only);
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        print(exact_names, &exact_loops_avx512, all, only);
#endif
    return 0;
}

// ops.h - what each instruction does to a warp. A part of ptx.cpp.
//
// Floating point is IEEE's, as the PTX ISA wants; NaNs that f32, f16 and bf16 make are 0x7fffffff and 0x7fff.

template <class T> static inline T *ptx_out(ptx_warp &w, int32_t at) {
    return (T *)(void *)(w.registers + at);
}
template <class T> static inline const T *ptx_in(const ptx_warp &w, int32_t at) {
    return at >= 0 ? (const T *)(const void *)(w.registers + at)
                   : (const T *)(const void *)(w.constants - 1 - at);
}
template <class F> static inline __attribute__((always_inline)) void ptx_lanes(uint32_t mask, F f) {
    if (mask == ~0u) {
#pragma GCC ivdep
        for (int l = 0; l < PTX_LANES; l++) f(l);
    } else
        for (; mask; mask &= mask - 1) f(__builtin_ctz(mask));
}

// ---- arithmetic

static inline float ptx_float(uint32_t bits) {
    float x;
    return memcpy(&x, &bits, 4), x;
}
static inline uint32_t ptx_bits(float x) {
    uint32_t bits;
    return memcpy(&bits, &x, 4), bits;
}
static inline float ptx_made(float x) {
    return x == x ? x : ptx_float(0x7fffffff);
} // its NaN is the canonical one
static inline double ptx_made(double x) { return x; }
template <class T> static inline T ptx_made(T x) { return x; }

template <class T> static T ptx_add(T a, T b) { return ptx_made((T)(a + b)); }
template <class T> static T ptx_sub(T a, T b) { return ptx_made((T)(a - b)); }
template <class T> static T ptx_mul(T a, T b) { return ptx_made((T)(a * b)); }
static uint16_t ptx_mul16(uint16_t a, uint16_t b) { return (uint16_t)((uint32_t)a * b); }
static uint32_t ptx_high(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
template <class T> static T ptx_quotient(T a, T b) { return ptx_made((T)(a / b)); }
template <class T> static T ptx_div(T a, T b) { // by 0: all ones, as hardware
    if (!b) return (T) ~(T)0;
    return b == (T) ~(T)0 && std::is_signed<T>::value ? (T)(0 - (std::make_unsigned_t<T>)a) : (T)(a / b);
}
template <class T> static T ptx_rem(T a, T b) { return b ? (T)(a % b) : a; }
template <class T> static T ptx_and(T a, T b) { return a & b; }
template <class T> static T ptx_or(T a, T b) { return a | b; }
template <class T> static T ptx_xor(T a, T b) { return a ^ b; }
template <class T> static T ptx_not(T a) { return (T)~a; }
template <class T> static T ptx_neg(T a) { return (T)-a; }
template <class T> static T ptx_abs(T a) { return std::fabs(a); }
template <class T> static T ptx_copy_of(T a) { return a; }
template <class T> static T ptx_min(T a, T b) { return a < b ? a : b; }
template <class T> static T ptx_max(T a, T b) { return a > b ? a : b; }
static float ptx_fmin(float a, float b) {
    if (a != a || b != b) return ptx_made(a != a ? b : a);
    return a < b || (a == b && std::signbit(a)) ? a : b;
}
static float ptx_fmax(float a, float b) {
    if (a != a || b != b) return ptx_made(a != a ? b : a);
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}
static uint32_t ptx_max_u16x2(uint32_t a, uint32_t b) {
    return std::max(a & 0xFFFFu, b & 0xFFFFu) | std::max(a >> 16, b >> 16) << 16;
}
template <class T> static T ptx_shl(T a, uint32_t n) { return n < 8 * sizeof(T) ? (T)(a << n) : 0; }
template <class T> static T ptx_shr(T a, uint32_t n) { // a signed one: its sign comes in
    return (T)(n < 8 * sizeof(T) ? a >> n : a >> (8 * sizeof(T) - 1) >> 1);
}
template <class D, class T> static D ptx_wide(T a, T b) { return (D)((D)a * (D)b); }
template <class T> static T ptx_mad(T a, T b, T c) { return (T)(a * b + c); }
static float ptx_fma(float a, float b, float c) { return ptx_made(std::fma(a, b, c)); }
static double ptx_fma(double a, double b, double c) { return std::fma(a, b, c); }
static float ptx_rcp(float a) { return ptx_made(1 / a); }
static double ptx_rcp(double a) { return 1 / a; }
static float ptx_sqrt(float a) { return ptx_made(std::sqrt(a)); }
static double ptx_sqrt(double a) { return std::sqrt(a); }
static uint32_t ptx_clz(uint64_t a) { return a ? (uint32_t)__builtin_clzll(a) : 64; }
static uint32_t ptx_prmt(uint32_t a, uint32_t b, uint32_t select) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t d = 0;
    for (int k = 0; k < 4; k++) {
        const uint32_t s = select >> 4 * k, x = (uint32_t)(bytes >> 8 * (s & 7)) & 0xFF;
        d |= (s & 8 ? (x & 0x80 ? 0xFFu : 0u) : x) << 8 * k;
    }
    return d;
}

// ---- approximate functions: exact, or by what the ISA allows beside it

static int ptx_approximates;
static float ptx_beside(float y, uint32_t x, int ulps) {
    if (!ptx_approximates || !std::isfinite(y) || std::fabs(y) < 1e-37f) return y;
    const int by = (int)(x * 2654435761u >> 16) % (2 * ulps + 1) - ulps;
    return ptx_float(ptx_bits(y) + (uint32_t)by);
}
static float ptx_flushed(float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }
static float ptx_ex2(float x) { // .ftz; 2 ulp
    x = ptx_flushed(x);
    const float y = ptx_made(ptx_flushed((float)std::exp2((double)x)));
    return x == 0 ? y : ptx_beside(y, ptx_bits(x), 2);
}
static float ptx_rcp_approximate(float x) { // .ftz; 1 ulp
    return ptx_beside(ptx_made(ptx_flushed((float)(1 / (double)ptx_flushed(x)))), ptx_bits(x), 1);
}
// The reciprocal of the upper half; only the upper half of the result.
static double ptx_rcp_gross(double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8), bits &= ~0xFFFFFFFFull, memcpy(&x, &bits, 8);
    const double y = 1 / x;
    if (y != y || std::fabs(y) < DBL_MIN) return y != y ? y : std::copysign(0.0, y);
    memcpy(&bits, &y, 8);
    if (ptx_approximates && std::isfinite(y)) bits += (bits >> 32 & 1) << 32;
    bits &= ~0xFFFFFFFFull;
    double z;
    return memcpy(&z, &bits, 8), z;
}

// ---- conversions

// Rounded to odd, so that it can be rounded once more.
static float ptx_odd(double x) {
    const float f = (float)x;
    uint32_t bits = ptx_bits(f);
    if ((double)f == x || f != f || std::isinf(f) || bits & 1) return f;
    bits += std::fabs((double)f) < std::fabs(x) ? 1u : ~0u;
    return ptx_float(bits);
}
static uint32_t ptx_to_bf16(float x) {
    const uint32_t bits = ptx_bits(x);
    return x != x ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
static uint32_t ptx_to_f16(float x) {
    const _Float16 h = (_Float16)x;
    uint16_t bits;
    memcpy(&bits, &h, 2);
    return x != x ? 0x7FFF : bits;
}
static double ptx_of_bf16(uint32_t bits) { return (double)ptx_float(bits << 16); }
static double ptx_of_f16(uint32_t bits) {
    const uint16_t low = (uint16_t)bits;
    _Float16 h;
    memcpy(&h, &low, 2);
    return (double)(float)h;
}
static uint32_t ptx_to_bf16x2(float high, float low) { return ptx_to_bf16(high) << 16 | ptx_to_bf16(low); }
static uint32_t ptx_to_f16x2(float high, float low) { return ptx_to_f16(high) << 16 | ptx_to_f16(low); }
static uint32_t ptx_fma_bf16(uint32_t a, uint32_t b, uint32_t c) {
    return ptx_to_bf16(ptx_odd(ptx_of_bf16(a) * ptx_of_bf16(b) + ptx_of_bf16(c)));
}
static uint32_t ptx_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    return ptx_fma_bf16(a >> 16, b >> 16, c >> 16) << 16 | ptx_fma_bf16(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF);
}
static uint32_t ptx_add_f16(uint32_t a, uint32_t b) {
    return ptx_to_f16(ptx_odd(ptx_of_f16(a) + ptx_of_f16(b)));
}
static uint32_t ptx_add_f16x2(uint32_t a, uint32_t b) {
    return ptx_add_f16(a >> 16, b >> 16) << 16 | ptx_add_f16(a, b);
}
// A number of 8 bits, no larger than the largest finite one.
static uint32_t ptx_to_f8(float x, int mantissa, int bias, uint32_t largest) {
    const uint32_t sign = std::signbit(x) ? 0x80 : 0;
    if (x != x) return 0x7F;
    if (std::isinf(x)) return sign | largest;
    const int e = x == 0 ? 1 - bias : std::max(std::ilogb(x), 1 - bias);
    const double units = std::nearbyint(std::ldexp(std::fabs((double)x), mantissa - e));
    const uint32_t code = ((uint32_t)(e + bias - 1) << mantissa) + (uint32_t)units;
    return sign | std::min(code, largest);
}
static uint16_t ptx_to_e4m3x2(float high, float low) {
    return (uint16_t)(ptx_to_f8(high, 3, 7, 0x7E) << 8 | ptx_to_f8(low, 3, 7, 0x7E));
}
static uint16_t ptx_to_e5m2x2(float high, float low) {
    return (uint16_t)(ptx_to_f8(high, 2, 15, 0x7B) << 8 | ptx_to_f8(low, 2, 15, 0x7B));
}
// NaN is 0 if neither has 64 bits, else the highest bit alone (PTX ISA, cvt). Saturates.
template <class D, class S, bool NEAREST> static D ptx_to_integer(S x) {
    if (x != x) return sizeof(S) == 8 || sizeof(D) == 8 ? (D)((uint64_t)1 << (8 * sizeof(D) - 1)) : 0;
    const double y = NEAREST ? std::nearbyint((double)x) : std::trunc((double)x);
    if (y >= std::ldexp(1, 8 * (int)sizeof(D) - (std::is_signed<D>::value ? 1 : 0)))
        return std::numeric_limits<D>::max();
    return y <= (double)std::numeric_limits<D>::min() ? std::numeric_limits<D>::min() : (D)y;
}
template <class D, class S> static D ptx_convert(S x) { return ptx_made((D)x); }
static double ptx_truncate(double x) { return std::trunc(x); }

// ---- forms: a function of one, two or three values

template <class D, class A, D (*F)(A)> static void ptx_one(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    D *d = ptx_out<D>(w, i.d);
    const A *a = ptx_in<A>(w, i.a);
    ptx_lanes(m, [=](int l) { d[l] = F(a[l]); });
}
template <class D, class A, class B, D (*F)(A, B)>
static void ptx_two(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    D *d = ptx_out<D>(w, i.d);
    const A *a = ptx_in<A>(w, i.a);
    const B *b = ptx_in<B>(w, i.b);
    ptx_lanes(m, [=](int l) { d[l] = F(a[l], b[l]); });
}
template <class T, T (*F)(T, T, T)> static void ptx_three(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    T *d = ptx_out<T>(w, i.d);
    const T *a = ptx_in<T>(w, i.a), *b = ptx_in<T>(w, i.b), *c = ptx_in<T>(w, i.c);
    ptx_lanes(m, [=](int l) { d[l] = F(a[l], b[l], c[l]); });
}
// To an integer, from one of so many bits in a register of R.
template <class D, class S, class R> static void ptx_integer_of(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    D *d = ptx_out<D>(w, i.d);
    const R *a = ptx_in<R>(w, i.a);
    ptx_lanes(m, [=](int l) { d[l] = (D)(S)a[l]; });
}
template <class T> static void ptx_select(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    T *d = ptx_out<T>(w, i.d);
    const T *a = ptx_in<T>(w, i.a), *b = ptx_in<T>(w, i.b);
    const uint32_t p = *ptx_in<uint32_t>(w, i.c);
    ptx_lanes(m, [=](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}
// Predicates are masks of lanes.
static void ptx_set_predicate(ptx_warp &w, const ptx_ins &i, uint32_t m, uint32_t x) {
    uint32_t *d = ptx_out<uint32_t>(w, i.d);
    *d = (*d & ~m) | (x & m);
}
template <uint32_t (*F)(uint32_t, uint32_t)>
static void ptx_predicates(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    ptx_set_predicate(w, i, m, F(*ptx_in<uint32_t>(w, i.a), *ptx_in<uint32_t>(w, i.b)));
}
template <uint32_t (*F)(uint32_t)> static void ptx_predicate(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    ptx_set_predicate(w, i, m, F(*ptx_in<uint32_t>(w, i.a)));
}
enum ptx_comparison { PTX_EQ, PTX_NE, PTX_LT, PTX_LE, PTX_GT, PTX_GE, PTX_NUM }; // of floats: false for NaNs
template <class T, int C> static bool ptx_compares(T a, T b) {
    return C == PTX_EQ   ? a == b
           : C == PTX_NE ? a < b || a > b
           : C == PTX_LT ? a < b
           : C == PTX_LE ? a <= b
           : C == PTX_GT ? a > b
           : C == PTX_GE ? a >= b
                         : a == a && b == b;
}
template <class T, int C, bool UNLESS> static void ptx_compare(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    const T *a = ptx_in<T>(w, i.a), *b = ptx_in<T>(w, i.b);
    uint32_t x = 0;
    ptx_lanes(m, [=, &x](int l) { x |= (uint32_t)(ptx_compares<T, C>(a[l], b[l]) != UNLESS) << l; });
    ptx_set_predicate(w, i, m, x);
}
// With the carry of the lanes: a x b (its high half) + c + carry, or a - b - borrow.
enum { PTX_ADDS = 1, PTX_SUBS = 2, PTX_HIGH = 4, PTX_IN = 8, PTX_OUT = 16 };
template <int HOW> static void ptx_carry(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    uint32_t *d = ptx_out<uint32_t>(w, i.d);
    const uint32_t *a = ptx_in<uint32_t>(w, i.a), *b = ptx_in<uint32_t>(w, i.b),
                   *c = HOW & (PTX_ADDS | PTX_SUBS) ? NULL : ptx_in<uint32_t>(w, i.c);
    for (; m; m &= m - 1) {
        const int l = __builtin_ctz(m);
        const uint64_t in = HOW & PTX_IN ? w.carry >> l & 1 : 0, product = c ? (uint64_t)a[l] * b[l] : 0;
        const uint64_t x = HOW & PTX_SUBS ? (uint64_t)a[l] - b[l] - in
                           : HOW & PTX_ADDS
                               ? (uint64_t)a[l] + b[l] + in
                               : (HOW & PTX_HIGH ? product >> 32 : (uint32_t)product) + c[l] + in;
        d[l] = (uint32_t)x;
        if (HOW & PTX_OUT) w.carry = (w.carry & ~(1u << l)) | (x >> 32 ? 1u << l : 0);
    }
}
// Of a vector in braces, whose registers are in the list: the parts of one register, or one of its parts.
static void ptx_unpack(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    const int32_t *list = w.block->kernel->lists.data() + i.list;
    const size_t part = i.width / i.count;
    const char *from = ptx_in<char>(w, i.a);
    ptx_lanes(m, [=, &w](int l) {
        for (size_t k = 0; k < i.count; k++)
            if (list[k] != PTX_NONE)
                memcpy(ptx_out<char>(w, list[k]) + (size_t)l * part, from + (size_t)l * i.width + k * part,
                       part);
    });
}
static void ptx_pack(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    const int32_t *list = w.block->kernel->lists.data() + i.list;
    const size_t part = i.width / i.count;
    char *to = ptx_out<char>(w, i.d);
    ptx_lanes(m, [=, &w](int l) {
        for (size_t k = 0; k < i.count; k++)
            memcpy(to + (size_t)l * i.width + k * part, ptx_in<char>(w, list[k]) + (size_t)l * part, part);
    });
}

// ---- memory

static inline uint64_t ptx_address(const ptx_warp &w, int32_t a, int bytes_of, int32_t plus, int lane) {
    return (bytes_of == 8 ? ptx_in<uint64_t>(w, a)[lane] : ptx_in<uint32_t>(w, a)[lane]) +
           (uint64_t)(int64_t)plus;
}
static inline void ptx_put(ptx_warp &w, const ptx_ins &i, int32_t at, int lane, uint64_t x) {
    switch (i.width) {
    case 2: ptx_out<uint16_t>(w, at)[lane] = (uint16_t)x; break;
    case 4: ptx_out<uint32_t>(w, at)[lane] = (uint32_t)x; break;
    default: ptx_out<uint64_t>(w, at)[lane] = x;
    }
}
// M: the type in memory; the register may be wider.
template <ptx_space S, class M> static void ptx_load(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    const int32_t *list = w.block->kernel->lists.data() + i.list;
    for (; m; m &= m - 1) {
        const int l = __builtin_ctz(m);
        const uint64_t address = ptx_address(w, i.a, i.a_width, i.target, l);
        const unsigned char *p = ptx_memory<S>(w, i, l, address, i.count * sizeof(M), false);
        for (int k = 0; k < i.count; k++) {
            M x;
            memcpy(&x, p + (size_t)k * sizeof(M), sizeof x);
            ptx_put(w, i, list[k], l, (uint64_t)(int64_t)x);
        }
    }
}
template <ptx_space S, class M> static void ptx_store(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    const int32_t *list = w.block->kernel->lists.data() + i.list;
    for (; m; m &= m - 1) {
        const int l = __builtin_ctz(m);
        const uint64_t address = ptx_address(w, i.a, i.a_width, i.target, l);
        unsigned char *p = ptx_memory<S>(w, i, l, address, i.count * sizeof(M), true);
        for (int k = 0; k < i.count; k++)
            memcpy(p + (size_t)k * sizeof(M), ptx_in<char>(w, list[k]) + (size_t)l * i.width, sizeof(M));
    }
}
template <ptx_space S> static ptx_handler ptx_access(bool stores, size_t n, bool is_signed) {
    if (stores)
        return n == 1   ? ptx_store<S, uint8_t>
               : n == 2 ? ptx_store<S, uint16_t>
               : n == 4 ? ptx_store<S, uint32_t>
                        : ptx_store<S, uint64_t>;
    if (is_signed && n < 8)
        return n == 1 ? ptx_load<S, int8_t> : n == 2 ? ptx_load<S, int16_t> : ptx_load<S, int32_t>;
    return n == 1   ? ptx_load<S, uint8_t>
           : n == 2 ? ptx_load<S, uint16_t>
           : n == 4 ? ptx_load<S, uint32_t>
                    : ptx_load<S, uint64_t>;
}
template <class T, T (*F)(T, T)> static void ptx_atomic(ptx_warp &w, const ptx_ins &i, uint32_t m) { // global
    for (; m; m &= m - 1) {
        const int l = __builtin_ctz(m);
        const uint64_t address = ptx_address(w, i.a, i.a_width, i.target, l);
        w.block->atomic = true;
        ptx_global(w, i, l, address, sizeof(T), false);
        T *p = (T *)(void *)ptx_global(w, i, l, address, sizeof(T), true), old = *p;
        w.block->atomic = false;
        *p = F(old, ptx_in<T>(w, i.b)[l]);
        ptx_out<T>(w, i.d)[l] = old;
    }
}
// list: the address in shared memory and what to add, the one in global memory and what to add, the bytes of
// a copy, how many of them are there.
static void ptx_copy_async(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    const int32_t *o = w.block->kernel->lists.data() + i.list;
    for (; m; m &= m - 1) {
        const int l = __builtin_ctz(m);
        ptx_copy c;
        c.to = (uint32_t)ptx_address(w, o[0], 4, o[1], l), c.from = ptx_address(w, o[2], 8, o[3], l);
        c.bytes = (uint32_t)o[4], c.there = o[5] == PTX_NONE ? c.bytes : ptx_in<uint32_t>(w, o[5])[l];
        ptx_begin_copy(w, i, l, c);
    }
}
// At both ends up to 15 bytes may be of no array, because it takes whole pieces of 16.
static void ptx_prefetch(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    for (; m; m &= m - 1) {
        const int l = __builtin_ctz(m);
        const uint64_t address = ptx_address(w, i.a, i.a_width, i.target, l);
        const uint32_t bytes = ptx_in<uint32_t>(w, i.b)[l];
        if (address % 16 || bytes % 16 || !bytes) ptx_fault(w, i, l, "a prefetch takes whole pieces of 16");
        for (uint64_t at : {address, address + bytes - 16}) {
            const unsigned char *p = (const unsigned char *)(uintptr_t)at;
            if (!emu_is_accessible(p, 1) && !emu_is_accessible(p + 15, 1))
                ptx_fault(w, i, l, "a prefetch is out of bounds: " + ptx_hex(at));
        }
    }
}
static void ptx_wait_all(ptx_warp &w, const ptx_ins &, uint32_t m) {
    for (; m; m &= m - 1) ptx_end_copies(w, __builtin_ctz(m));
}

// ---- instructions of a warp: the mask is of the lanes that take part

enum { PTX_IDX, PTX_BFLY, PTX_UP, PTX_DOWN };
template <int HOW> static void ptx_shuffle(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    const int32_t *o = w.block->kernel->lists.data() + i.list; // predicate, mask
    const uint32_t *b = ptx_in<uint32_t>(w, i.b), *c = ptx_in<uint32_t>(w, i.c);
    uint32_t x[PTX_LANES], in_range = 0;
    memcpy(x, ptx_in<uint32_t>(w, i.a), sizeof x);
    for (uint32_t k = m; k; k &= k - 1) {
        const int l = __builtin_ctz(k);
        const int segment = (int)(c[l] >> 8 & 31), clamp = (int)(c[l] & 31), by = (int)(b[l] & 31);
        const int most = (l & segment) | (clamp & ~segment);
        int from = HOW == PTX_IDX    ? (l & segment) | (by & ~segment)
                   : HOW == PTX_BFLY ? l ^ by
                   : HOW == PTX_UP   ? l - by
                                     : l + by;
        if (HOW == PTX_UP ? from >= most : from <= most)
            in_range |= 1u << l;
        else
            from = l;
        if (!(m >> from & 1)) ptx_fault(w, i, l, "a shuffle reads a lane that is not there");
        ptx_out<uint32_t>(w, i.d)[l] = x[from];
    }
    uint32_t *p = o[0] == PTX_NONE ? NULL : ptx_out<uint32_t>(w, o[0]);
    if (p) *p = (*p & ~m) | in_range;
}
static void ptx_vote_any(ptx_warp &w, const ptx_ins &i, uint32_t m) {
    ptx_set_predicate(w, i, m, *ptx_in<uint32_t>(w, i.a) & m ? m : 0);
}
static void ptx_sync_warp(ptx_warp &w, const ptx_ins &, uint32_t m) {
    w.block->time++;
    for (; m; m &= m - 1) w.synced[__builtin_ctz(m)] = w.block->time;
}
template <bool COLUMNS> static void ptx_ldmatrix(ptx_warp &w, const ptx_ins &i, uint32_t) {
    const int32_t *list = w.block->kernel->lists.data() + i.list;
    uint32_t rows[PTX_LANES];
    const unsigned char *p[PTX_LANES];
    for (int l = 0; l < PTX_LANES; l++) {
        rows[l] = (uint32_t)ptx_address(w, i.a, i.a_width, i.target, l);
        if (rows[l] % 16) ptx_fault(w, i, l, "ldmatrix: the address of a row is no multiple of 16");
        p[l] = ptx_shared(w, i, l, rows[l], 16, false);
    }
    for (int k = 0; k < 4; k++) {
        uint32_t *d = ptx_out<uint32_t>(w, list[k]);
        emu_count_bank_cycles(rows + 8 * k);
        for (int l = 0; l < PTX_LANES; l++) {
            uint16_t pair[2];
            for (int h = 0; h < 2; h++) {
                const int row = COLUMNS ? l % 4 * 2 + h : l / 4, column = COLUMNS ? l / 4 : l % 4 * 2 + h;
                memcpy(&pair[h], p[8 * k + row] + 2 * column, 2);
            }
            d[l] = pair[0] | (uint32_t)pair[1] << 16;
        }
    }
}
// m16n8k16. Lane 4 g + t has of a the rows g and g + 8 and the columns 2 t, 2 t + 1 and these + 8; of b these
// as rows, and column g; of sums the rows g and g + 8, the columns 2 t and 2 t + 1.
static void ptx_mma_bf16(ptx_warp &w, const ptx_ins &i, uint32_t) {
    const int32_t *list = w.block->kernel->lists.data() + i.list; // d, a, b, c
    float a[16][16], b[16][8], sums[16][8];
    for (int l = 0; l < PTX_LANES; l++) {
        const int g = l / 4, t = l % 4;
        for (int k = 0; k < 6; k++) {
            const uint32_t pair = ptx_in<uint32_t>(w, list[4 + k])[l];
            for (int h = 0; h < 2; h++) {
                const float x = ptx_float(h ? pair & 0xFFFF0000u : pair << 16);
                if (k < 4)
                    a[g + k % 2 * 8][2 * t + h + k / 2 * 8] = x;
                else
                    b[2 * t + h + (k - 4) * 8][g] = x;
            }
        }
    }
    for (int row = 0; row < 16; row++) {
        double sum[8] = {0};
        for (int n = 0; n < 16; n++)
            for (int k = ptx_approximates ? 15 - n : n, column = 0; column < 8; column++) {
                sum[column] += (double)a[row][k] * (double)b[k][column];
                if (ptx_approximates) sum[column] = (float)sum[column];
            }
        for (int column = 0; column < 8; column++) {
            const int l = row % 8 * 4 + column / 2, k = row / 8 * 2 + column % 2;
            sums[row][column] = ptx_made((float)(sum[column] + (double)ptx_in<float>(w, list[10 + k])[l]));
        }
    }
    for (int l = 0; l < PTX_LANES; l++)
        for (int k = 0; k < 4; k++)
            ptx_out<float>(w, list[k])[l] = sums[l / 4 + k / 2 * 8][l % 4 * 2 + k % 2];
}

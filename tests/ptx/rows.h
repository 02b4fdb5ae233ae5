// rows.h - the table of instructions. A part of ptx.cpp.
//
// A row: the name; the bytes of the registers of the result and of the operands, p for a predicate; what it
// does. Loads, stores and instructions that branch, meet or have vectors are read by decode.h.
struct ptx_row {
    const char *name, *widths;
    ptx_handler run;
};

#define PTX_ONE(T, F)   ptx_one<T, T, F>
#define PTX_TWO(T, F)   ptx_two<T, T, T, F>
#define PTX_SHIFT(T, F) ptx_two<T, T, uint32_t, F>
// Of integers of 16, 32 and 64 bits: signed, unsigned and bits.
#define PTX_SIGNED(name, F)                                                                                  \
    {name ".s16", "222", PTX_TWO(int16_t, F)}, {name ".s32", "444", PTX_TWO(int32_t, F)}, {                  \
        name ".s64", "888", PTX_TWO(int64_t, F)                                                              \
    }
#define PTX_UNSIGNED(name, F)                                                                                \
    {name ".u16", "222", PTX_TWO(uint16_t, F)}, {name ".u32", "444", PTX_TWO(uint32_t, F)}, {                \
        name ".u64", "888", PTX_TWO(uint64_t, F)                                                             \
    }
#define PTX_LOGIC(name, F)                                                                                   \
    {name ".b16", "222", PTX_TWO(uint16_t, F)}, {name ".b32", "444", PTX_TWO(uint32_t, F)},                  \
        {name ".b64", "888", PTX_TWO(uint64_t, F)}, {                                                        \
        name ".pred", "ppp", ptx_predicates<F>                                                               \
    }
// Wrap around, as hardware; only C++ says that signed ones do not.
#define PTX_WRAPS(name, F)                                                                                   \
    {name ".s16", "222", PTX_TWO(uint16_t, F)}, {name ".s32", "444", PTX_TWO(uint32_t, F)},                  \
        {name ".s64", "888", PTX_TWO(uint64_t, F)}, PTX_UNSIGNED(name, F)
#define PTX_FLOATS(name, F)                                                                                  \
    {name ".f32", "444", PTX_TWO(float, F)}, {name ".rn.f32", "444", PTX_TWO(float, F)},                     \
        {name ".f64", "888", PTX_TWO(double, F)}, {                                                          \
        name ".rn.f64", "888", PTX_TWO(double, F)                                                            \
    }
#define PTX_SELECT(type, w, T)                                                                               \
    { "selp." type, w w w "p", ptx_select<T> }
#define PTX_MOVE(type, w, T)                                                                                 \
    { "mov." type, w w, PTX_ONE(T, ptx_copy_of) }
#define PTX_SETP(type, w, T, name, C, unless)                                                                \
    { "setp." name "." type, "p" w w, ptx_compare<T, C, unless> }
#define PTX_SETP_INTEGER(type, w, T)                                                                         \
    PTX_SETP(type, w, T, "eq", PTX_EQ, false), PTX_SETP(type, w, T, "ne", PTX_EQ, true),                     \
        PTX_SETP(type, w, T, "lt", PTX_LT, false), PTX_SETP(type, w, T, "le", PTX_LE, false),                \
        PTX_SETP(type, w, T, "gt", PTX_GT, false), PTX_SETP(type, w, T, "ge", PTX_GE, false)
#define PTX_SETP_FLOAT(type, w, T)                                                                           \
    PTX_SETP(type, w, T, "eq", PTX_EQ, false), PTX_SETP(type, w, T, "ne", PTX_NE, false),                    \
        PTX_SETP(type, w, T, "lt", PTX_LT, false), PTX_SETP(type, w, T, "le", PTX_LE, false),                \
        PTX_SETP(type, w, T, "gt", PTX_GT, false), PTX_SETP(type, w, T, "ge", PTX_GE, false),                \
        PTX_SETP(type, w, T, "equ", PTX_NE, true), PTX_SETP(type, w, T, "neu", PTX_EQ, true),                \
        PTX_SETP(type, w, T, "ltu", PTX_GE, true), PTX_SETP(type, w, T, "leu", PTX_GT, true),                \
        PTX_SETP(type, w, T, "gtu", PTX_LE, true), PTX_SETP(type, w, T, "geu", PTX_LT, true),                \
        PTX_SETP(type, w, T, "num", PTX_NUM, false), PTX_SETP(type, w, T, "nan", PTX_NUM, true)
#define PTX_EXTEND(d, dw, D, s, S, sw, R)                                                                    \
    { "cvt." d "." s, dw sw, ptx_integer_of<D, S, R> }
// From integers of all registers, to one of so many bits.
#define PTX_EXTEND_TO(d, dw, D)                                                                              \
    PTX_EXTEND(d, dw, D, "s8", int8_t, "2", uint16_t), PTX_EXTEND(d, dw, D, "u8", uint8_t, "2", uint16_t),   \
        PTX_EXTEND(d, dw, D, "s8", int8_t, "4", uint32_t),                                                   \
        PTX_EXTEND(d, dw, D, "u8", uint8_t, "4", uint32_t),                                                  \
        PTX_EXTEND(d, dw, D, "s16", int16_t, "2", uint16_t),                                                 \
        PTX_EXTEND(d, dw, D, "u16", uint16_t, "2", uint16_t),                                                \
        PTX_EXTEND(d, dw, D, "s16", int16_t, "4", uint32_t),                                                 \
        PTX_EXTEND(d, dw, D, "u16", uint16_t, "4", uint32_t),                                                \
        PTX_EXTEND(d, dw, D, "s32", int32_t, "4", uint32_t),                                                 \
        PTX_EXTEND(d, dw, D, "u32", uint32_t, "4", uint32_t),                                                \
        PTX_EXTEND(d, dw, D, "s32", int32_t, "8", uint64_t),                                                 \
        PTX_EXTEND(d, dw, D, "u32", uint32_t, "8", uint64_t),                                                \
        PTX_EXTEND(d, dw, D, "s64", int64_t, "8", uint64_t),                                                 \
        PTX_EXTEND(d, dw, D, "u64", uint64_t, "8", uint64_t)
#define PTX_CONVERT(name, w, D, S)                                                                           \
    { "cvt.rn." name, w, ptx_one<D, S, ptx_convert<D, S>> }
#define PTX_OF_INTEGERS(d, dw, D)                                                                            \
    PTX_CONVERT(d ".s16", dw "2", D, int16_t), PTX_CONVERT(d ".u16", dw "2", D, uint16_t),                   \
        PTX_CONVERT(d ".s32", dw "4", D, int32_t), PTX_CONVERT(d ".u32", dw "4", D, uint32_t),               \
        PTX_CONVERT(d ".s64", dw "8", D, int64_t), PTX_CONVERT(d ".u64", dw "8", D, uint64_t)
#define PTX_TO_INTEGER(d, dw, D, s, sw, S)                                                                   \
    {"cvt.rzi." d "." s, dw sw, ptx_one<D, S, ptx_to_integer<D, S, false>>}, {                               \
        "cvt.rni." d "." s, dw sw, ptx_one<D, S, ptx_to_integer<D, S, true>>                                 \
    }
#define PTX_TO_INTEGERS(s, sw, S)                                                                            \
    PTX_TO_INTEGER("s32", "4", int32_t, s, sw, S), PTX_TO_INTEGER("u32", "4", uint32_t, s, sw, S),           \
        PTX_TO_INTEGER("s64", "8", int64_t, s, sw, S), PTX_TO_INTEGER("u64", "8", uint64_t, s, sw, S)
#define PTX_CARRIES(name, HOW, w)                                                                            \
    {name ".u32", w, ptx_carry<HOW>}, { name ".s32", w, ptx_carry<HOW> }

static const ptx_row ptx_rows[] = {
    PTX_WRAPS("add", ptx_add),
    PTX_WRAPS("sub", ptx_sub),
    PTX_FLOATS("add", ptx_add),
    PTX_FLOATS("sub", ptx_sub),
    PTX_FLOATS("mul", ptx_mul),
    {"add.rn.f16x2", "444", PTX_TWO(uint32_t, ptx_add_f16x2)},
    {"mul.lo.s16", "222", PTX_TWO(uint16_t, ptx_mul16)},
    {"mul.lo.u16", "222", PTX_TWO(uint16_t, ptx_mul16)},
    {"mul.lo.s32", "444", PTX_TWO(uint32_t, ptx_mul)},
    {"mul.lo.u32", "444", PTX_TWO(uint32_t, ptx_mul)},
    {"mul.lo.s64", "888", PTX_TWO(uint64_t, ptx_mul)},
    {"mul.lo.u64", "888", PTX_TWO(uint64_t, ptx_mul)},
    {"mul.wide.u16", "422", ptx_two<uint32_t, uint16_t, uint16_t, ptx_wide>},
    {"mul.wide.s16", "422", ptx_two<int32_t, int16_t, int16_t, ptx_wide>},
    {"mul.wide.u32", "844", ptx_two<uint64_t, uint32_t, uint32_t, ptx_wide>},
    {"mul.wide.s32", "844", ptx_two<int64_t, int32_t, int32_t, ptx_wide>},
    {"mul.hi.u32", "444", PTX_TWO(uint32_t, ptx_high)},
    {"mad.lo.s32", "4444", ptx_three<uint32_t, ptx_mad>},
    {"mad.lo.u32", "4444", ptx_three<uint32_t, ptx_mad>},
    {"mad.lo.s64", "8888", ptx_three<uint64_t, ptx_mad>},
    {"fma.rn.f32", "4444", ptx_three<float, ptx_fma>},
    {"fma.rn.f64", "8888", ptx_three<double, ptx_fma>},
    {"fma.rn.bf16x2", "4444", ptx_three<uint32_t, ptx_fma_bf16x2>},
    PTX_SIGNED("div", ptx_div),
    PTX_UNSIGNED("div", ptx_div),
    PTX_UNSIGNED("rem", ptx_rem),
    {"div.rn.f32", "444", PTX_TWO(float, ptx_quotient)},
    {"div.rn.f64", "888", PTX_TWO(double, ptx_quotient)},
    {"rcp.rn.f32", "44", PTX_ONE(float, ptx_rcp)},
    {"rcp.rn.f64", "88", PTX_ONE(double, ptx_rcp)},
    {"sqrt.rn.f32", "44", PTX_ONE(float, ptx_sqrt)},
    {"sqrt.rn.f64", "88", PTX_ONE(double, ptx_sqrt)},
    {"ex2.approx.ftz.f32", "44", PTX_ONE(float, ptx_ex2)},
    {"rcp.approx.ftz.f32", "44", PTX_ONE(float, ptx_rcp_approximate)},
    {"rcp.approx.ftz.f64", "88", PTX_ONE(double, ptx_rcp_gross)},
    {"neg.s32", "44", PTX_ONE(uint32_t, ptx_neg)},
    {"neg.s64", "88", PTX_ONE(uint64_t, ptx_neg)},
    {"neg.f32", "44", PTX_ONE(float, ptx_neg)},
    {"neg.f64", "88", PTX_ONE(double, ptx_neg)},
    {"abs.f32", "44", PTX_ONE(float, ptx_abs)},
    {"abs.f64", "88", PTX_ONE(double, ptx_abs)},
    PTX_SIGNED("min", ptx_min),
    PTX_UNSIGNED("min", ptx_min),
    {"min.f32", "444", PTX_TWO(float, ptx_fmin)},
    PTX_SIGNED("max", ptx_max),
    PTX_UNSIGNED("max", ptx_max),
    {"max.f32", "444", PTX_TWO(float, ptx_fmax)},
    {"max.u16x2", "444", PTX_TWO(uint32_t, ptx_max_u16x2)},
    PTX_LOGIC("and", ptx_and),
    PTX_LOGIC("or", ptx_or),
    PTX_LOGIC("xor", ptx_xor),
    {"not.b16", "22", PTX_ONE(uint16_t, ptx_not)},
    {"not.b32", "44", PTX_ONE(uint32_t, ptx_not)},
    {"not.b64", "88", PTX_ONE(uint64_t, ptx_not)},
    {"not.pred", "pp", ptx_predicate<ptx_not>},
    {"mov.pred", "pp", ptx_predicate<ptx_copy_of>},
    {"shl.b16", "224", PTX_SHIFT(uint16_t, ptx_shl)},
    {"shl.b32", "444", PTX_SHIFT(uint32_t, ptx_shl)},
    {"shl.b64", "884", PTX_SHIFT(uint64_t, ptx_shl)},
    {"shr.u16", "224", PTX_SHIFT(uint16_t, ptx_shr)},
    {"shr.u32", "444", PTX_SHIFT(uint32_t, ptx_shr)},
    {"shr.u64", "884", PTX_SHIFT(uint64_t, ptx_shr)},
    {"shr.b32", "444", PTX_SHIFT(uint32_t, ptx_shr)},
    {"shr.s16", "224", PTX_SHIFT(int16_t, ptx_shr)},
    {"shr.s32", "444", PTX_SHIFT(int32_t, ptx_shr)},
    {"shr.s64", "884", PTX_SHIFT(int64_t, ptx_shr)},
    {"prmt.b32", "4444", ptx_three<uint32_t, ptx_prmt>},
    {"clz.b64", "48", ptx_one<uint32_t, uint64_t, ptx_clz>},
    PTX_SELECT("b16", "2", uint16_t),
    PTX_SELECT("u16", "2", uint16_t),
    PTX_SELECT("s16", "2", uint16_t),
    PTX_SELECT("b32", "4", uint32_t),
    PTX_SELECT("u32", "4", uint32_t),
    PTX_SELECT("s32", "4", uint32_t),
    PTX_SELECT("f32", "4", uint32_t),
    PTX_SELECT("b64", "8", uint64_t),
    PTX_SELECT("u64", "8", uint64_t),
    PTX_SELECT("s64", "8", uint64_t),
    PTX_SELECT("f64", "8", uint64_t),
    PTX_MOVE("b16", "2", uint16_t),
    PTX_MOVE("u16", "2", uint16_t),
    PTX_MOVE("s16", "2", uint16_t),
    PTX_MOVE("b32", "4", uint32_t),
    PTX_MOVE("u32", "4", uint32_t),
    PTX_MOVE("s32", "4", uint32_t),
    PTX_MOVE("f32", "4", uint32_t),
    PTX_MOVE("b64", "8", uint64_t),
    PTX_MOVE("u64", "8", uint64_t),
    PTX_MOVE("s64", "8", uint64_t),
    PTX_MOVE("f64", "8", uint64_t),
    {"cvta.to.global.u64", "88", PTX_ONE(uint64_t, ptx_copy_of)}, // addresses are the host's
    PTX_SETP_INTEGER("s16", "2", int16_t),
    PTX_SETP_INTEGER("u16", "2", uint16_t),
    PTX_SETP_INTEGER("b16", "2", uint16_t),
    PTX_SETP_INTEGER("s32", "4", int32_t),
    PTX_SETP_INTEGER("u32", "4", uint32_t),
    PTX_SETP_INTEGER("b32", "4", uint32_t),
    PTX_SETP_INTEGER("s64", "8", int64_t),
    PTX_SETP_INTEGER("u64", "8", uint64_t),
    PTX_SETP_INTEGER("b64", "8", uint64_t),
    PTX_SETP_FLOAT("f32", "4", float),
    PTX_SETP_FLOAT("f64", "8", double),
    PTX_EXTEND_TO("s16", "2", uint16_t),
    PTX_EXTEND_TO("u16", "2", uint16_t),
    PTX_EXTEND_TO("s32", "4", uint32_t),
    PTX_EXTEND_TO("u32", "4", uint32_t),
    PTX_EXTEND_TO("s64", "8", uint64_t),
    PTX_EXTEND_TO("u64", "8", uint64_t),
    PTX_OF_INTEGERS("f32", "4", float),
    PTX_OF_INTEGERS("f64", "8", double),
    PTX_CONVERT("f32.f64", "48", float, double),
    {"cvt.f64.f32", "84", ptx_one<double, float, ptx_convert>},
    PTX_TO_INTEGERS("f32", "4", float),
    PTX_TO_INTEGERS("f64", "8", double),
    {"cvt.rzi.f64.f64", "88", PTX_ONE(double, ptx_truncate)},
    {"cvt.rn.bf16x2.f32", "444", ptx_two<uint32_t, float, float, ptx_to_bf16x2>},
    {"cvt.rn.f16x2.f32", "444", ptx_two<uint32_t, float, float, ptx_to_f16x2>},
    {"cvt.rn.satfinite.e4m3x2.f32", "244", ptx_two<uint16_t, float, float, ptx_to_e4m3x2>},
    {"cvt.rn.satfinite.e5m2x2.f32", "244", ptx_two<uint16_t, float, float, ptx_to_e5m2x2>},
    PTX_CARRIES("add.cc", PTX_ADDS | PTX_OUT, "444"),
    PTX_CARRIES("addc.cc", PTX_ADDS | PTX_IN | PTX_OUT, "444"),
    PTX_CARRIES("addc", PTX_ADDS | PTX_IN, "444"),
    PTX_CARRIES("sub.cc", PTX_SUBS | PTX_OUT, "444"),
    PTX_CARRIES("subc.cc", PTX_SUBS | PTX_IN | PTX_OUT, "444"),
    PTX_CARRIES("subc", PTX_SUBS | PTX_IN, "444"),
    PTX_CARRIES("mad.lo.cc", PTX_OUT, "4444"),
    PTX_CARRIES("madc.lo.cc", PTX_IN | PTX_OUT, "4444"),
    PTX_CARRIES("mad.hi.cc", PTX_HIGH | PTX_OUT, "4444"),
    PTX_CARRIES("madc.lo", PTX_IN, "4444"),
    PTX_CARRIES("madc.hi.cc", PTX_HIGH | PTX_IN | PTX_OUT, "4444"),
    PTX_CARRIES("madc.hi", PTX_HIGH | PTX_IN, "4444"),
    {"cp.async.wait_all", "", ptx_wait_all},
};

// emu_cublas.h - test-only definitions of the cuBLASLt calls that par_cuda.cuh makes; a part of emu.cpp.
// Matrices are column-major. Sizes and leading dimensions that the real library refuses are refused.
#include <cublasLt.h>

struct emu_matrix {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
    int batch;    // matrices
    int64_t step; // elements from one to the next
};
static int64_t emu_step_bytes(const emu_matrix &m) {
    return m.step * (m.type == CUDA_R_32F ? 4 : m.type == CUDA_R_16BF || m.type == CUDA_R_16F ? 2 : 1);
}
struct emu_preference { // what heuristics go by: alignments of A, B, C, D, the bias, aux; the workspace
    uint32_t align[4], bias_align, aux_align, schemes; // schemes: how parts of a sum may be added
    size_t workspace_bytes;
    int algorithm; // which one was found
};
// What there is for each product, in the order of the heuristics. Times are pretended, so that it is known
// which is the fastest; by another order of a sum, one has other bits each time.
static const struct {
    double seconds;
    size_t workspace_bytes; // that it needs
    int differs, valid;
} emu_algorithms[] = {
    {40e-6, 0, 0, 1}, {20e-6, 8 << 20, 0, 1}, {10e-6, 0, 1, 1}, {5e-6, 0, 0, 0}, {30e-6, 0, 0, 1}};
static int emu_algorithms_missing;
void emu_no_algorithms(int none) { emu_algorithms_missing = none; }
static size_t emu_most_elements = 0x7FFFFFFF;
void emu_narrow_counts(size_t most) { emu_most_elements = most; }
static size_t emu_elements(const emu_matrix &m) { return (size_t)m.ld * m.cols; }
struct emu_matmul {
    int trans_a, trans_b, epilogue, sm_count; // sm_count: that it may use; 0: all
    const void *bias;                         // for each row
    const void *aux;                          // GELU's input
    int64_t aux_ld;
    int mode[2], device_factors; // how A and B are scaled; alpha and beta in device memory
    const void *scales[2];
};
// Codes of 8 and 4 bits, decoded by tables of their definition instead of the kit's functions.
static int emu_is_code(cudaDataType_t t) {
    return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2 || (int)t == 33; // CUDA_R_4F_E2M1
}
static double emu_float_of(unsigned code, int exponent_bits, int mantissa_bits) { // no infinities, no NaN
    const int exponent = (int)code >> mantissa_bits & ((1 << exponent_bits) - 1);
    const int fraction = (int)code & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
    const double size = ldexp(fraction + (exponent ? 1 << mantissa_bits : 0),
                              (exponent ? exponent : 1) - bias - mantissa_bits);
    return code >> (exponent_bits + mantissa_bits) & 1 ? -size : size;
}
static double emu_code(const void *p, const emu_matrix &m, uint64_t row, uint64_t col) {
    const uint64_t at = row + col * (uint64_t)m.ld;
    const int four = m.type != CUDA_R_8F_E4M3 && m.type != CUDA_R_8F_E5M2;
    const unsigned code = *emu_access((const uint8_t *)p + (four ? at / 2 : at));
    if (m.type == CUDA_R_8F_E4M3) return (code & 0x7f) == 0x7f ? NAN : emu_float_of(code, 4, 3);
    if (m.type == CUDA_R_8F_E5M2) return (code & 0x7f) > 0x7c ? NAN : emu_float_of(code, 5, 2);
    return emu_float_of(code >> at % 2 * 4 & 15u, 2, 1);
}
// The scale of an element by the layouts of cuBLAS's manual, "Scaling Factors Layouts"; its k-th along K.
static double emu_scale(int mode, const void *scales, const emu_matrix &m, uint64_t outer, uint64_t k) {
    const float *f = (const float *)scales;
    const uint64_t per = mode == 1   ? 16
                         : mode == 2 ? 32
                                     : 128,
                   columns = (m.rows + per - 1) / per, c = k / per;
    const uint64_t tile = outer / 128 * ((columns + 3) / 4) + c / 4;
    const unsigned byte = mode == 1 || mode == 2 ? *emu_access((const uint8_t *)scales + tile * 512 +
                                                               outer % 32 * 16 + outer % 128 / 32 * 4 + c % 4)
                                                 : 0;
    switch (mode) {
    case 0: return *emu_access(f);
    case 1: return emu_float_of(byte, 4, 3);
    case 2: return ldexp(1, (int)byte - 127);
    case 3: return *emu_access(f + outer);
    case 4: return *emu_access(f + c * m.cols + outer);
    default: return *emu_access(f + outer / 128 * ((columns + 3) / 4 * 4) + c);
    }
}
static double emu_element(const void *p, const emu_matrix &m, uint64_t row, uint64_t col) {
    const ncclDataType_t type = m.type == CUDA_R_32F    ? ncclFloat32
                                : m.type == CUDA_R_16BF ? ncclBfloat16
                                                        : ncclFloat16;
    return emu_get_element(p, type, row + col * (uint64_t)m.ld);
}
enum { EMU_GELU = 32, EMU_DGELU = 64 };          // bits of epilogues
static double emu_gelu(double x, int gradient) { // approximated by tanh
    const double c = sqrt(2 / M_PI), t = tanh(c * (x + 0.044715 * x * x * x));
    return gradient ? (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x) : x / 2 * (1 + t);
}
// narrow_parts: the sum of each half of K is rounded to C's type (CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE).
static void emu_multiply(emu_matmul how, int differs, bool narrow_parts, float alpha, const void *a,
                         emu_matrix ma, const void *b, emu_matrix mb, float beta, void *c, emu_matrix mc) {
    const uint64_t k = how.trans_a ? ma.rows : ma.cols;
    const ncclDataType_t type = mc.type == CUDA_R_32F    ? ncclFloat32
                                : mc.type == CUDA_R_16BF ? ncclBfloat16
                                                         : ncclFloat16;
    for (uint64_t col = 0; col < mc.cols; col++)
        for (uint64_t row = 0; row < mc.rows; row++) {
            double sum = 0, first = 0;
            for (uint64_t i = 0; i < k; i++) {
                if (narrow_parts && i == k / 2) {
                    emu_set_element(c, type, row + col * (uint64_t)mc.ld, sum);
                    first = emu_element(c, mc, row, col);
                    sum = 0;
                }
                if (emu_is_code(ma.type)) // A transposed, B not
                    sum += emu_code(a, ma, i, row) * emu_scale(how.mode[0], how.scales[0], ma, row, i) *
                           emu_code(b, mb, i, col) * emu_scale(how.mode[1], how.scales[1], mb, col, i);
                else
                    sum += (how.trans_a ? emu_element(a, ma, i, row) : emu_element(a, ma, row, i)) *
                           (how.trans_b ? emu_element(b, mb, col, i) : emu_element(b, mb, i, col));
            }
            sum += first;
            sum = (double)alpha * sum + (beta != 0 ? (double)beta * emu_element(c, mc, row, col) : 0);
            if (differs) sum *= 1 + ldexp((double)(emu_random() % 3), -6);
            if (how.epilogue & CUBLASLT_EPILOGUE_BIAS) sum += emu_get_element(how.bias, type, row);
            const uint64_t at = row + col * (uint64_t)how.aux_ld;
            if (how.epilogue & EMU_GELU) emu_set_element((void *)how.aux, type, at, sum);
            if (how.epilogue & EMU_GELU) sum = emu_gelu(sum, 0);
            if (how.epilogue & EMU_DGELU) sum *= emu_gelu(emu_get_element(how.aux, type, at), 1);
            emu_set_element(c, type, row + col * (uint64_t)mc.ld, sum);
        }
}
// Which epilogues there are, and what they need (cublasLt.h, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
static int emu_has_epilogue(const emu_matmul &how, const emu_matrix &a, const emu_matrix &c) {
    const int e = how.epilogue, gelu = e & (EMU_GELU | EMU_DGELU);
    if (e && e != CUBLASLT_EPILOGUE_BIAS && e != CUBLASLT_EPILOGUE_GELU_AUX &&
        e != CUBLASLT_EPILOGUE_GELU_AUX_BIAS && e != CUBLASLT_EPILOGUE_DGELU)
        return 0;
    if (gelu && (!how.aux || how.aux_ld % 8 || how.aux_ld < (int64_t)c.rows)) return 0;
    if (e & CUBLASLT_EPILOGUE_BIAS && !how.bias) return 0;
    return !emu_is_code(a.type) || !e || e == CUBLASLT_EPILOGUE_BIAS;
}
// Which products of codes cuBLASLt has (its manual, cublasLtMatmul, tables of FP8 and FP4 kernels).
static int emu_has_codes(const emu_matmul &how, const emu_matrix &a, const emu_matrix &b,
                         const emu_matrix &c) {
    const int sm = emu_sm(), x = how.mode[0], y = how.mode[1], four = (int)a.type == 33;
    if (!emu_is_code(a.type) && !emu_is_code(b.type)) return 1;
    if (!emu_is_code(a.type) || !emu_is_code(b.type) || !how.scales[0] || !how.scales[1]) return 0;
    if (sm < 89 || !how.trans_a || how.trans_b) return 0; // rows of both operands are along K
    if (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) return 0;
    if (four != ((int)b.type == 33) || four != (x == 1) || four != (y == 1)) return 0;
    if ((x == 1 || x == 2) ? sm < 100 || x != y : 0) return 0;
    if (x >= 3 ? sm != 90 || y < 3 || (x == 3) != (y == 3) || (x == 5 && y == 5) : y >= 3 || x != y) return 0;
    const uint64_t per = four ? 32 : 16; // elements in 16 bytes
    if (a.rows % per || a.cols % 16 || (uint64_t)a.ld % per || (uint64_t)b.ld % per) return 0;
    if ((x == 4 && a.cols % 4) || (y == 4 && b.cols % 4)) return 0; // columns of scales of 16 bytes
    if (c.type != CUDA_R_32F && c.type != CUDA_R_16BF && c.type != CUDA_R_16F) return 0;
    return !how.epilogue || c.type == CUDA_R_16BF; // of this bias
}
extern "C" {
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
const char *cublasLtGetStatusString(cublasStatus_t) { return "emulated cuBLASLt error"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    return *handle = (cublasLtHandle_t)(void *)new char[1], CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return delete[](char *)(void *) handle, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    return *out = (cublasLtMatmulDesc_t)(void *)new emu_matmul(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes) {
    emu_matmul *m = (emu_matmul *)(void *)desc;
    const int is_pointer =
        what == CUBLASLT_MATMUL_DESC_BIAS_POINTER || what == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ||
        what == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER || what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER;
    const int is_wide = is_pointer || what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD;
    if (bytes != (is_wide ? sizeof(int64_t) : sizeof(int32_t))) return CUBLAS_STATUS_INVALID_VALUE;
    const int number = *(const int *)value;
    switch ((int)what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: m->trans_a = number == CUBLAS_OP_T; break;
    case CUBLASLT_MATMUL_DESC_TRANSB: m->trans_b = number == CUBLAS_OP_T; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: m->epilogue = number; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: memcpy(&m->aux_ld, value, sizeof m->aux_ld); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: m->aux = *(const void *const *)value; break;
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        if (number < 1 || number > 4) return CUBLAS_STATUS_INVALID_VALUE; // of an emulated GPU
        m->sm_count = number;
        break;
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: m->device_factors = number == CUBLASLT_POINTER_MODE_DEVICE; break;
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: m->scales[0] = *(const void *const *)value; break;
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: m->scales[1] = *(const void *const *)value; break;
    case 31: m->mode[0] = number; break; // A_SCALE_MODE, from cuBLAS 12.8 on
    case 32: m->mode[1] = number; break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: m->bias = *(const void *const *)value; break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    return delete (emu_matmul *)(void *)desc, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
    if (!rows || !cols || ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    return *out = (cublasLtMatrixLayout_t)(void *)new emu_matrix{type, rows, cols, ld, 1, 0},
           CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t what, const void *value,
                                                size_t bytes) {
    emu_matrix *m = (emu_matrix *)(void *)layout;
    if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(int32_t))
        return memcpy(&m->batch, value, bytes), CUBLAS_STATUS_SUCCESS;
    if (what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof(int64_t))
        return memcpy(&m->step, value, bytes), CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return delete (emu_matrix *)(void *)layout, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    return *out = (cublasLtMatmulPreference_t)(void *)new emu_preference{{256, 256, 256, 256}, 1, 1, 7, 0, 0},
           CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes) {
    const int which = (int)what - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    emu_preference *p = (emu_preference *)(void *)preference;
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof(uint64_t))
        return memcpy(&p->workspace_bytes, value, sizeof(size_t)), CUBLAS_STATUS_SUCCESS;
    if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == sizeof p->schemes)
        return memcpy(&p->schemes, value, bytes), CUBLAS_STATUS_SUCCESS;
    if (which < 0 || which > 3 || bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
    return memcpy(&p->align[which], value, bytes), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return delete (emu_preference *)(void *)preference, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t la, cublasLtMatrixLayout_t lb,
                                              cublasLtMatrixLayout_t lc, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int *count) {
    const emu_matmul how = *(const emu_matmul *)(const void *)desc;
    const uintptr_t bias = (uintptr_t)how.bias, aux = (uintptr_t)how.aux;
    emu_preference can = *(const emu_preference *)(const void *)preference;
    memset(found, 0, sizeof *found);
    *count = 1;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const emu_matrix &ma = *(emu_matrix *)(void *)la, &mc = *(emu_matrix *)(void *)lc;
    const int has = emu_has_codes(how, ma, *(emu_matrix *)(void *)lb, mc) && emu_has_epilogue(how, ma, mc);
    if (emu_algorithms_missing || !has)
        return found->state = CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_SUCCESS;
    while (bias && can.bias_align < 256 && bias % (2 * can.bias_align) == 0) can.bias_align *= 2;
    while (aux && can.aux_align < 256 && aux % (2 * can.aux_align) == 0) can.aux_align *= 2;
    *count = 0;
    for (const auto &x : emu_algorithms) {
        if (x.workspace_bytes > can.workspace_bytes || *count == wanted) continue;
        cublasLtMatmulHeuristicResult_t *f = &found[(*count)++];
        memset(f, 0, sizeof *f);
        can.algorithm = (int)(&x - emu_algorithms);
        memcpy(&f->algo, &can, sizeof can);                   // it can do no less aligned arrays
        f->workspaceSize = can.workspace_bytes;               // all that there is
        if (!x.valid) f->state = CUBLAS_STATUS_NOT_SUPPORTED; // nothing else of it means anything
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb,
                              const void *beta, const void *c, cublasLtMatrixLayout_t lc, void *d,
                              cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    const void *const arrays[4] = {a, b, c, d};
    emu_preference can;
    const emu_matmul how = *(emu_matmul *)(void *)desc;
    const emu_matrix ma = *(emu_matrix *)(void *)la, mb = *(emu_matrix *)(void *)lb,
                     mc = *(emu_matrix *)(void *)lc;
    const int64_t steps[4] = {emu_step_bytes(ma), emu_step_bytes(mb), emu_step_bytes(mc), emu_step_bytes(mc)};
    const float *x = (const float *)alpha, *y = (const float *)beta;
    const float host_x = how.device_factors ? 0 : *x, host_y = how.device_factors ? 0 : *y;
    const uint64_t k = how.trans_b ? mb.cols : mb.rows;
    if (c != d || lc != ld || (how.trans_a ? ma.cols : ma.rows) != mc.rows ||
        (how.trans_b ? mb.rows : mb.cols) != mc.cols || (how.trans_a ? ma.rows : ma.cols) != k)
        return CUBLAS_STATUS_INVALID_VALUE;
    // Measured on H200 (cuBLASLt 13.1): gemv kernels wrote 4 GiB before C.
    const bool few = std::min({mc.rows, mc.cols, k}) < 8;
    if (few && std::max({emu_elements(ma), emu_elements(mb), emu_elements(mc)}) > emu_most_elements)
        emu_die("a product of few rows, columns or terms, of more elements than its kernels count");
    memcpy(&can, algo, sizeof can);
    if (!can.bias_align) emu_die("a product by an algorithm that the heuristics did not find");
    const auto &algorithm = emu_algorithms[can.algorithm];
    if (!algorithm.valid) emu_die("a product by a result of the heuristics whose state says that it is none");
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)arrays[i] % can.align[i] || steps[i] % can.align[i])
            return CUBLAS_STATUS_INVALID_VALUE;
    if (ma.batch != mc.batch || mb.batch != mc.batch || (mc.batch > 1 && (emu_is_code(ma.type) || how.aux)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((uintptr_t)how.bias % can.bias_align || (uintptr_t)how.aux % can.aux_align)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!emu_has_codes(how, ma, mb, mc) || !emu_has_epilogue(how, ma, mc)) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < 2 && emu_is_code(ma.type); i++)
        if ((uintptr_t)how.scales[i] % 16 || (uintptr_t)arrays[i] % 16) return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace_bytes < can.workspace_bytes || (uintptr_t)workspace % 256)
        return CUBLAS_STATUS_INVALID_VALUE;
    // Until the product has ended its workspace is its own.
    static std::atomic<uint64_t> products{0};
    const uint64_t number = ++products;
    uint64_t *mine = workspace_bytes >= sizeof number ? (uint64_t *)workspace : NULL;
    if (mine) emu_enqueue_host(stream, [=] { *emu_access(mine) = number; });
    const auto multiply = [=] {
        if (mine && *emu_access(mine) != number) emu_die("two products use one workspace at a time");
        const int device = how.device_factors;
        if (emu_streams.count(stream)) stream->pretended += algorithm.seconds;
        for (int i = 0; i < mc.batch; i++)
            emu_multiply(how, algorithm.differs, !device && host_y == 0 && can.schemes & 4,
                         device ? *emu_access(x) : host_x, (const char *)a + i * emu_step_bytes(ma), ma,
                         (const char *)b + i * emu_step_bytes(mb), mb, device ? *emu_access(y) : host_y,
                         (char *)d + i * emu_step_bytes(mc), mc);
    };
    emu_enqueue_host(stream, multiply, how.sm_count ? "product on some SMs" : "product", desc);
    return CUBLAS_STATUS_SUCCESS;
}
} // extern "C"

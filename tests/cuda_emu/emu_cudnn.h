// emu_cudnn.h - test-only definitions of the cuDNN calls that par_cuda.cuh makes; a part of emu.cpp. A graph
// runs operation by operation on whole arrays, and values are rounded to their tensor's type. Engines are
// proposed in this order: a nondeterministic one, whose results are wrong so that a test sees its use, and
// deterministic ones: one cannot be built, one needs too much workspace, one can be taken, as could those
// that are slower, with less workspace or more. What they support is what cuDNN's support matrix says of
// attention on sm_80.
#include <cudnn.h>
#include <map>
#include <memory>
#include <vector>

struct emu_descriptor {
    cudnnBackendDescriptorType_t type;
    bool finished;
    std::map<int, std::vector<char>> values;                                 // by attribute
    std::map<int, std::vector<std::shared_ptr<emu_descriptor>>> descriptors; // by attribute
};
typedef std::shared_ptr<emu_descriptor> emu_shared_descriptor;
static emu_shared_descriptor &emu_of(cudnnBackendDescriptor_t d) { return *(emu_shared_descriptor *)d; }
template <class T> static T emu_value(const emu_shared_descriptor &d, int name, size_t i = 0) {
    T x = T();
    auto found = d->values.find(name);
    if (found != d->values.end() && (i + 1) * sizeof(T) <= found->second.size())
        memcpy(&x, found->second.data() + i * sizeof(T), sizeof(T));
    return x;
}
static emu_shared_descriptor emu_part(const emu_shared_descriptor &d, int name) {
    auto found = d->descriptors.find(name);
    return found == d->descriptors.end() ? nullptr : found->second[0];
}

struct emu_array { // a tensor's shape
    int64_t id, size[4], step[4];
    cudnnDataType_t type;
    bool inside, by_value;
    int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }
    int64_t at(int64_t i) const { // where element i of the dense order lies
        int64_t where = 0;
        for (int k = 3; k >= 0; k--) where += i % size[k] * step[k], i /= size[k];
        return where;
    }
    double rounded(double x) const {
        uint16_t half;
        if (type == CUDNN_DATA_BFLOAT16)
            return emu_set_element(&half, ncclBfloat16, 0, x), emu_get_element(&half, ncclBfloat16, 0);
        return type == CUDNN_DATA_FLOAT ? (double)(float)x : x;
    }
    ncclDataType_t stored() const { return type == CUDNN_DATA_BFLOAT16 ? ncclBfloat16 : ncclFloat32; }
};
static emu_array emu_tensor(const emu_shared_descriptor &t) {
    emu_array a;
    a.id = emu_value<int64_t>(t, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    a.type = emu_value<cudnnDataType_t>(t, CUDNN_ATTR_TENSOR_DATA_TYPE);
    a.inside = emu_value<bool>(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    a.by_value = emu_value<bool>(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    for (size_t i = 0; i < 4; i++) {
        a.size[i] = emu_value<int64_t>(t, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        a.step[i] = emu_value<int64_t>(t, CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    return a;
}
typedef std::map<int64_t, std::vector<double>> emu_arrays; // dense, by number

// Element i of y's dense order in an array that may have one element, or fewer heads, along an axis.
static double emu_get_broadcast(const std::vector<double> &x, const emu_array &ax, const emu_array &y,
                                int64_t i) {
    int64_t index[4], at = 0;
    for (int k = 3; k >= 0; k--) index[k] = i % y.size[k], i /= y.size[k];
    for (int k = 0; k < 4; k++) at = at * ax.size[k] + index[k] * ax.size[k] / y.size[k];
    return x[(size_t)at];
}
static double emu_pointwise(cudnnPointwiseMode_t mode, double x, double b, double t) {
    switch (mode) {
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: return NAN;
    }
}
static emu_shared_descriptor emu_role(const emu_shared_descriptor &o,
                                      char role) { // x, b, t or y of any operation
    const bool product = o->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
               sum = o->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
               view = o->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
    switch (role) {
    case 'x':
        return emu_part(o, product ? CUDNN_ATTR_OPERATION_MATMUL_ADESC
                           : sum   ? CUDNN_ATTR_OPERATION_REDUCTION_XDESC
                           : view  ? CUDNN_ATTR_OPERATION_RESHAPE_XDESC
                                   : CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    case 'b':
        return emu_part(o,
                        product ? CUDNN_ATTR_OPERATION_MATMUL_BDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    case 't': return emu_part(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    default:
        return emu_part(o, product ? CUDNN_ATTR_OPERATION_MATMUL_CDESC
                           : sum   ? CUDNN_ATTR_OPERATION_REDUCTION_YDESC
                           : view  ? CUDNN_ATTR_OPERATION_RESHAPE_YDESC
                                   : CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    }
}
static void emu_batched_gemm(const emu_array &ay, std::vector<double> &y, const emu_array &ax,
                             const std::vector<double> &x, const emu_array &ab,
                             const std::vector<double> &b) {
    const int64_t m = ay.size[2], n = ay.size[3], k = ax.size[3];
    for (int64_t i = 0; i < ay.count(); i++) {
        const int64_t col = i % n, row = i / n % m, head = i / n / m % ay.size[1],
                      batch = i / n / m / ay.size[1];
        const int64_t xs = ((batch * ax.size[1] + head * ax.size[1] / ay.size[1]) * m + row) * k,
                      bs = (batch * ab.size[1] + head * ab.size[1] / ay.size[1]) * k * n + col;
        for (int64_t j = 0; j < k; j++) y[(size_t)i] += x[(size_t)(xs + j)] * b[(size_t)(bs + j * n)];
    }
}
static void emu_run_operation(const emu_shared_descriptor &o, emu_arrays &all) {
    const emu_array ay = emu_tensor(emu_role(o, 'y')), ax = emu_tensor(emu_role(o, 'x'));
    const emu_shared_descriptor db = emu_role(o, 'b'), dt = emu_role(o, 't');
    const std::vector<double> x = all[ax.id], b = db ? all[emu_tensor(db).id] : x,
                              t = dt ? all[emu_tensor(dt).id] : x;
    const emu_array ab = db ? emu_tensor(db) : ax, at = dt ? emu_tensor(dt) : ax;
    std::vector<double> y((size_t)ay.count(), 0.0);
    if (o->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        emu_batched_gemm(ay, y, ax, x, ab, b);
    } else if (o->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) { // the same bytes, seen otherwise
        std::map<int64_t, double> bytes;
        for (int64_t i = 0; i < ax.count(); i++) bytes[ax.at(i)] = x[(size_t)i];
        for (int64_t i = 0; i < ay.count(); i++) y[(size_t)i] = bytes.at(ay.at(i));
    } else if (o->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        const emu_shared_descriptor how = emu_part(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
        const bool is_max =
            emu_value<cudnnReduceTensorOp_t>(how, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
        std::vector<double> from((size_t)ay.count());
        for (int64_t i = 0; i < ay.count(); i++) from[(size_t)i] = (double)i;
        if (is_max) y.assign(y.size(), -INFINITY);
        for (int64_t i = 0; i < ax.count(); i++) {
            double &to = y[(size_t)emu_get_broadcast(from, ay, ax, i)];
            to = is_max ? fmax(to, x[(size_t)i]) : to + x[(size_t)i];
        }
    } else {
        const emu_shared_descriptor how = emu_part(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        const cudnnPointwiseMode_t mode = emu_value<cudnnPointwiseMode_t>(how, CUDNN_ATTR_POINTWISE_MODE);
        const int64_t axis = emu_value<int64_t>(how, CUDNN_ATTR_POINTWISE_AXIS);
        int64_t below = 1;
        for (int k = 3; k > axis; k--) below *= ay.size[k];
        for (int64_t i = 0; i < ay.count(); i++)
            y[(size_t)i] =
                mode == CUDNN_POINTWISE_GEN_INDEX
                    ? (double)(i / below % ay.size[axis])
                    : emu_pointwise(mode, emu_get_broadcast(x, ax, ay, i), emu_get_broadcast(b, ab, ay, i),
                                    emu_get_broadcast(t, at, ay, i));
    }
    for (double &v : y) v = ay.rounded(v);
    all[ay.id] = y;
}

struct cudnnContext {
    cudaStream_t stream;
};
enum { EMU_DNN_WORKSPACE = 512, EMU_DNN_NONDETERMINISTIC = 0, EMU_DNN_UNBUILDABLE = 1 };
static const int64_t emu_engine_workspaces[] = {
    0, 0, (int64_t)1 << 40, EMU_DNN_WORKSPACE, EMU_DNN_WORKSPACE / 2, 2 * EMU_DNN_WORKSPACE};
enum { EMU_DNN_ENGINES = sizeof emu_engine_workspaces / sizeof *emu_engine_workspaces };
static std::vector<emu_shared_descriptor> emu_operations(const emu_shared_descriptor &config) { // or plan
    emu_shared_descriptor c = config->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
                                  ? emu_part(config, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                                  : config;
    return emu_part(emu_part(c, CUDNN_ATTR_ENGINECFG_ENGINE), CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
        ->descriptors[CUDNN_ATTR_OPERATIONGRAPH_OPS];
}
static int64_t emu_engine(const emu_shared_descriptor &plan) {
    return emu_value<int64_t>(
        emu_part(emu_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE),
        CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}
// Attention (cudnn-frontend, docs/operations/Attention.md, "Support Matrix"): heads are a multiple of 8 wide,
// at most 256, backward on sm_80 at most 128. The numbers of a head lie side by side; tokens and heads are a
// multiple of 16 bytes apart, as arrays begin (CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT).
static bool emu_supports_graph(const std::vector<emu_shared_descriptor> &operations) {
    int64_t dim = 0, products = 0;
    for (const emu_shared_descriptor &o : operations)
        if (o->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !products++)
            dim = emu_tensor(emu_role(o, 'x')).size[3];
    for (const emu_shared_descriptor &o : operations)
        for (const char *role = "xby"; *role; role++) {
            const emu_shared_descriptor t = emu_role(o, *role);
            const emu_array a = t ? emu_tensor(t) : emu_array();
            if (!t || a.inside || a.by_value || a.type != CUDNN_DATA_BFLOAT16) continue;
            const int inner = a.size[3] == dim && a.step[3] == 1 ? 3 : 2;
            for (int i = 0; i < 4; i++)
                if (i == inner ? a.step[i] != 1 : a.step[i] % 8) return false;
        }
    return dim % 8 == 0 && dim <= (products > 2 ? 128 : 256);
}
struct emu_bound { // a tensor outside the kernel
    emu_array array;
    void *memory;
    float value;
    bool written;
};
static void emu_run_graph(const std::vector<emu_shared_descriptor> &operations, std::vector<emu_bound> bound,
                          int64_t engine, void *workspace) {
    emu_arrays all;
    memset(workspace, 0xee, (size_t)emu_engine_workspaces[engine]);
    for (emu_bound &t : bound) {
        std::vector<double> &x = all[t.array.id];
        x.resize((size_t)t.array.count());
        for (size_t i = 0; i < x.size(); i++)
            x[i] = t.array.by_value ? (double)t.value
                   : t.written      ? 0
                               : emu_get_element(t.memory, t.array.stored(), (size_t)t.array.at((int64_t)i));
    }
    for (const emu_shared_descriptor &o : operations) emu_run_operation(o, all);
    for (emu_bound &t : bound)
        for (int64_t i = 0; t.written && i < t.array.count(); i++)
            emu_set_element(t.memory, t.array.stored(), (size_t)t.array.at(i),
                            all[t.array.id][(size_t)i] + (engine == EMU_DNN_NONDETERMINISTIC ? 1 : 0));
}

extern "C" {
size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t) { return "emulated cuDNN error"; }
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    emu_lock hold;
    if (emu_unsafe()) return CUDNN_STATUS_INTERNAL_ERROR; // it allocates
    return *handle = new cudnnContext(), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return delete handle, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    return handle->stream = stream, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
    emu_shared_descriptor d(new emu_descriptor());
    d->type = type;
    return *out = (cudnnBackendDescriptor_t) new emu_shared_descriptor(d), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    return delete (emu_shared_descriptor *)d, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (emu_of(d)->finished || count < 1) return CUDNN_STATUS_BAD_PARAM;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        emu_of(d)->descriptors[name].clear();
        for (int64_t i = 0; i < count; i++) {
            const cudnnBackendDescriptor_t part = ((const cudnnBackendDescriptor_t *)values)[i];
            if (!part || !emu_of(part)->finished) return CUDNN_STATUS_BAD_PARAM;
            emu_of(d)->descriptors[name].push_back(emu_of(part));
        }
        return CUDNN_STATUS_SUCCESS;
    }
    const size_t bytes =
        type == CUDNN_TYPE_BOOLEAN                                                             ? 1
        : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_HANDLE ? 8
                                                                                               : 4;
    emu_of(d)->values[name].assign((const char *)values, (const char *)values + bytes * (size_t)count);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
    const emu_shared_descriptor d = emu_of(handle);
    if (d->finished) return CUDNN_STATUS_BAD_PARAM;
    if (d->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
        const emu_array a = emu_tensor(d);
        const bool ok = a.id && a.size[0] > 0 && a.size[1] > 0 && a.size[2] > 0 && a.size[3] > 0;
        if (!ok || (a.inside && a.by_value) || !emu_value<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT))
            return CUDNN_STATUS_BAD_PARAM;
    }
    if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        const emu_array x = emu_tensor(emu_role(d, 'x')), b = emu_tensor(emu_role(d, 'b')),
                        y = emu_tensor(emu_role(d, 'y'));
        if (x.size[2] != y.size[2] || x.size[3] != b.size[2] || b.size[3] != y.size[3])
            return CUDNN_STATUS_BAD_PARAM;
    }
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) { // compiles, and loads what it has compiled
        if (!emu_supports_graph(emu_operations(d)) || emu_engine(d) == EMU_DNN_UNBUILDABLE)
            return CUDNN_STATUS_NOT_SUPPORTED;
        emu_lock hold;
        if (emu_unsafe()) return CUDNN_STATUS_INTERNAL_ERROR;
    }
    return d->finished = true, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t,
                                       int64_t capacity, int64_t *count, void *values) {
    const emu_shared_descriptor d = emu_of(handle);
    if (!d->finished) return CUDNN_STATUS_BAD_PARAM;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        for (*count = 0; *count < EMU_DNN_ENGINES && *count < capacity; ++*count) {
            const int64_t number = *count;
            emu_shared_descriptor engine(new emu_descriptor()),
                c = emu_of(((cudnnBackendDescriptor_t *)values)[*count]);
            engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine->finished = c->finished = true;
            engine->descriptors[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] =
                d->descriptors[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH];
            engine->values[CUDNN_ATTR_ENGINE_GLOBAL_INDEX].assign((char *)&number, (char *)&number + 8);
            c->descriptors[CUDNN_ATTR_ENGINECFG_ENGINE] = {engine};
        }
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        *emu_of(*(cudnnBackendDescriptor_t *)values) = *emu_part(d, name), *count = 1;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        cudnnBackendNumericalNote_t *notes = (cudnnBackendNumericalNote_t *)values;
        notes[0] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE, *count = 1;
        if (emu_value<int64_t>(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX) == EMU_DNN_NONDETERMINISTIC)
            notes[1] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, *count = 2;
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *(int64_t *)values = emu_engine_workspaces[emu_engine(d)], *count = 1;
    } else {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t p,
                                  cudnnBackendDescriptor_t v) {
    const emu_shared_descriptor plan = emu_of(p), pack = emu_of(v);
    if (!plan->finished || !pack->finished) return CUDNN_STATUS_BAD_PARAM;
    const std::vector<emu_shared_descriptor> operations = emu_operations(plan);
    const size_t given = pack->values[CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS].size() / 8;
    std::map<int64_t, emu_bound> bound;
    for (const emu_shared_descriptor &o : operations)
        for (const char *role = "xbty"; *role; role++) {
            const emu_shared_descriptor t = emu_role(o, *role);
            const emu_array a = t ? emu_tensor(t) : emu_array();
            if (!t || a.inside) continue;
            emu_bound &b = bound[a.id];
            b.array = a, b.written = b.written || *role == 'y';
            for (size_t i = 0; i < given; i++)
                if (emu_value<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) == a.id)
                    b.memory = emu_value<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
            if (!b.memory || (!a.by_value && (uintptr_t)b.memory % 16)) return CUDNN_STATUS_BAD_PARAM;
            if (a.by_value) b.value = *(float *)b.memory;
        }
    void *workspace = emu_value<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (!workspace || bound.size() != given) return CUDNN_STATUS_BAD_PARAM;
    std::vector<emu_bound> tensors;
    for (auto &b : bound) tensors.push_back(b.second);
    const int64_t engine = emu_engine(plan);
    // Until a plan's execution has ended its workspace is its own.
    static std::atomic<uint64_t> executions{0};
    const uint64_t number = ++executions;
    emu_enqueue_host(handle->stream, [=] { *emu_access((uint64_t *)workspace) = number; });
    const auto run = [=] {
        if (*emu_access((uint64_t *)workspace) != number) emu_die("two plans use one workspace at a time");
        emu_run_graph(operations, tensors, engine, workspace);
    };
    emu_enqueue_host(handle->stream, run, "attention", plan.get());
    return CUDNN_STATUS_SUCCESS;
}
} // extern "C"

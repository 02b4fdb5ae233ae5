// emu_nccl.h - test-only definitions of the NCCL calls that par_cuda.cuh makes; a part of emu.cpp. Ranks are
// threads; those of another process are refused.
//
// A collective runs when it is next on all ranks' streams, as NCCL's kernels wait for each other; a send
// waits for its receive. Calls that ranks make in different orders never run. Sums start at the last rank, so
// that no test relies on rank order. Communicators are nonblocking.
#include <nccl.h>

struct emu_participant { // a rank's side of something done together
    CUstream_st *stream;
    uint64_t op;
    int in;
    const void *send;
    void *recv;
};
struct emu_collective_op { // a collective
    std::vector<emu_participant> parties;
    int kind, root, done;
    size_t count;
    ncclDataType_t type;
    int op;
    double factor;
};
struct emu_group;
struct emu_transfer { // a message
    emu_participant from, to;
    size_t bytes;
    int done;
};
struct ncclComm {
    emu_group *group;
    int rank, sequence, aborted, windows;
    std::map<int, double> scales; // operators of its own
};
struct emu_group {
    int size = 0, joined = 0;
    std::map<int, std::shared_ptr<emu_collective_op>> joints;
    std::map<std::pair<int, int>, std::vector<std::shared_ptr<emu_transfer>>>
        messages; // by sender and receiver
    std::map<std::pair<int, int>, size_t> sent, received;
    struct split {
        int arrived = 0;
        std::map<int, std::pair<int, int>> wanted; // rank: color, key
        std::map<int, ncclComm *> made;
    };
    std::map<int, split> splits;
    std::map<int, std::pair<int, size_t>> windows; // by number: who has registered, bytes
    std::map<int, int> split_count;                // by rank
};
static std::map<uint64_t, emu_group *> &emu_groups = *new std::map<uint64_t, emu_group *>();
struct emu_group_call {
    ncclComm *comm;
    cudaStream_t stream;
    int sends, peer;
    void *memory;
    size_t bytes;
};
static thread_local int emu_group_depth;
static thread_local std::vector<emu_group_call> emu_group_calls;

static int emu_at_head(const emu_participant &p) {
    return p.in && !p.stream->work.empty() && p.stream->work.front().id == p.op;
}
// The emulated GPU stands for every one from sm_80 on, and only from sm_90 on NCCL adds 8-bit floats: "FP8
// reduction support begins with sm90 capable devices" (its src/enqueue.cc, ncclInvalidArgument).
static int emu_nccl_is_f8(ncclDataType_t t) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    return t == ncclFloat8e4m3 || t == ncclFloat8e5m2;
#else
    return (void)t, 0;
#endif
}
static size_t emu_nccl_bytes(ncclDataType_t t) {
    return t == ncclInt8 || t == ncclUint8 || emu_nccl_is_f8(t)    ? 1
           : t == ncclFloat16 || t == ncclBfloat16                 ? 2
           : t == ncclInt32 || t == ncclUint32 || t == ncclFloat32 ? 4
                                                                   : 8;
}
static double emu_get_element(const void *p, ncclDataType_t t, size_t i) {
    uint32_t bits;
    float f;
    switch (t) {
    case ncclInt8: return ((const int8_t *)p)[i];
    case ncclUint8: return ((const uint8_t *)p)[i];
    case ncclInt32: return ((const int32_t *)p)[i];
    case ncclUint32: return ((const uint32_t *)p)[i];
    case ncclInt64: return (double)((const int64_t *)p)[i];
    case ncclUint64: return (double)((const uint64_t *)p)[i];
    case ncclFloat16: return (double)((const _Float16 *)p)[i];
    case ncclFloat32: return (double)((const float *)p)[i];
    case ncclBfloat16:
        bits = (uint32_t)((const uint16_t *)p)[i] << 16, memcpy(&f, &bits, 4);
        return (double)f;
    default: return ((const double *)p)[i];
    }
}
static void emu_set_element(void *p, ncclDataType_t t, size_t i, double x) {
    uint32_t bits;
    const float f = (float)x;
    switch (t) {
    case ncclInt8: ((int8_t *)p)[i] = (int8_t)(int64_t)x; break;
    case ncclUint8: ((uint8_t *)p)[i] = (uint8_t)(int64_t)x; break;
    case ncclInt32: ((int32_t *)p)[i] = (int32_t)(int64_t)x; break;
    case ncclUint32: ((uint32_t *)p)[i] = (uint32_t)(int64_t)x; break;
    case ncclInt64: ((int64_t *)p)[i] = (int64_t)x; break;
    case ncclUint64: ((uint64_t *)p)[i] = (uint64_t)x; break;
    case ncclFloat16: ((_Float16 *)p)[i] = (_Float16)x; break;
    case ncclFloat32: ((float *)p)[i] = f; break;
    case ncclBfloat16:
        memcpy(&bits, &f, 4), ((uint16_t *)p)[i] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
        break;
    default: ((double *)p)[i] = x; break;
    }
}
enum { EMU_ALL_REDUCE, EMU_REDUCE, EMU_REDUCE_SCATTER, EMU_ALL_GATHER, EMU_BROADCAST };
static void emu_collective_run(emu_collective_op *j) {
    const int n = (int)j->parties.size(), block = j->kind == EMU_REDUCE_SCATTER;
    const size_t e = emu_nccl_bytes(j->type), c = j->count;
    if (j->done++) return;
    if (j->kind == EMU_BROADCAST || j->kind == EMU_ALL_GATHER) {
        for (int r = 0; r < n; r++)
            for (int s = 0; s < n; s++) {
                char *to =
                    (char *)j->parties[(size_t)r].recv + (j->kind == EMU_ALL_GATHER ? (size_t)s * c * e : 0);
                if ((j->kind == EMU_ALL_GATHER || s == j->root) && c)
                    memmove(to, j->parties[(size_t)s].send, c * e);
            }
        return;
    }
    std::vector<double> sum((block ? (size_t)n : 1) * c);
    for (size_t i = 0; i < sum.size(); i++) {
        double x = 0;
        for (int r = n - 1; r >= 0; r--) {
            const double y = emu_get_element(j->parties[(size_t)r].send, j->type, i) * j->factor;
            x = r == n - 1          ? y
                : j->op == ncclProd ? x * y
                : j->op == ncclMin  ? fmin(x, y)
                : j->op == ncclMax  ? fmax(x, y)
                                    : x + y;
        }
        if (j->type < ncclFloat16) { // NCCL adds integers in their type, where sums wrap, and divides the sum
            uint64_t wrapped;
            emu_set_element(&wrapped, j->type, 0, x);
            x = emu_get_element(&wrapped, j->type, 0);
        }
        sum[i] = j->op == ncclAvg ? x / n : x;
    }
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < c && (j->kind != EMU_REDUCE || r == j->root); i++)
            emu_set_element(j->parties[(size_t)r].recv, j->type, i, sum[(block ? (size_t)r * c : 0) + i]);
}
static ncclResult_t emu_collective(ncclComm *comm, int kind, const void *send, void *recv, size_t count,
                                   ncclDataType_t type, int op, int root, cudaStream_t stream) {
    emu_lock hold;
    emu_group *g = comm->group;
    CUstream_st *s = emu_stream(stream);
    if (comm->aborted) return ncclInvalidUsage;
    if (emu_nccl_is_f8(type) && kind != EMU_ALL_GATHER && kind != EMU_BROADCAST) return ncclInvalidArgument;
    std::shared_ptr<emu_collective_op> &j = g->joints[comm->sequence++];
    if (!j) {
        j.reset(new emu_collective_op());
        j->parties.resize((size_t)g->size), j->kind = kind, j->root = root, j->count = count, j->type = type;
        j->op = comm->scales.count(op) ? ncclSum : op,
        j->factor = comm->scales.count(op) ? comm->scales[op] : 1;
    }
    if (j->kind != kind || j->root != root || j->count != count || j->type != type)
        emu_die("ranks make different NCCL calls");
    emu_op work;
    std::shared_ptr<emu_collective_op> held = j;
    work.id = ++emu_op_count;
    j->parties[(size_t)comm->rank] = {s, work.id, 1, send, recv};
    work.ready = [held](CUstream_st *) {
        int all = 1;
        for (const emu_participant &p : held->parties) all &= emu_at_head(p);
        return held->done || all;
    };
    work.run = [held] { emu_collective_run(held.get()); };
    emu_add(s, std::move(work));
    return ncclSuccess;
}
// Launches a group of sends and receives: one piece of work for each stream, ready when all its peers are.
static ncclResult_t emu_group_launch(void) {
    emu_lock hold;
    std::map<CUstream_st *, std::vector<std::shared_ptr<emu_transfer>>> by_stream;
    std::map<CUstream_st *, uint64_t> ids;
    for (const emu_group_call &x : emu_group_calls) {
        emu_group *g = x.comm->group;
        CUstream_st *s = emu_stream(x.stream);
        const std::pair<int, int> ends =
            x.sends ? std::make_pair(x.comm->rank, x.peer) : std::make_pair(x.peer, x.comm->rank);
        std::vector<std::shared_ptr<emu_transfer>> &list = g->messages[ends];
        const size_t number = x.sends ? g->sent[ends]++ : g->received[ends]++;
        while (list.size() <= number) list.emplace_back(new emu_transfer());
        if (!ids[s]) ids[s] = ++emu_op_count;
        emu_transfer *t = list[number].get();
        if (t->bytes && t->bytes != x.bytes && (t->from.in || t->to.in))
            emu_die("a send and its receive have other sizes");
        t->bytes = x.bytes;
        (x.sends ? t->from : t->to) = {s, ids[s], 1, x.memory, x.memory};
        by_stream[s].push_back(list[number]);
    }
    emu_group_calls.clear();
    for (auto &entry : by_stream) {
        std::vector<std::shared_ptr<emu_transfer>> all = entry.second;
        emu_op work;
        work.id = ids[entry.first];
        work.ready = [all](CUstream_st *) {
            for (const auto &t : all)
                if (!t->done && !(emu_at_head(t->from) && emu_at_head(t->to))) return 0;
            return 1;
        };
        work.run = [all] {
            for (const auto &t : all)
                if (!t->done++ && t->bytes) memmove(t->to.recv, t->from.send, t->bytes);
        };
        emu_add(entry.first, std::move(work));
    }
    return ncclSuccess;
}
static ncclResult_t emu_message(ncclComm *comm, int sends, void *memory, size_t bytes, int peer,
                                cudaStream_t stream) {
    emu_group_calls.push_back({comm, stream, sends, peer, memory, bytes});
    return emu_group_depth ? ncclSuccess : emu_group_launch();
}

extern "C" {
const char *ncclGetErrorString(ncclResult_t e) {
    return e == ncclSuccess ? "no error" : "emulated NCCL error";
}
const char *ncclGetLastError(ncclComm_t) { return ""; }
// An id is a number and the process that made it.
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static std::atomic<uint64_t> next{1};
    const uint64_t words[2] = {next++, (uint64_t)getpid()};
    return memcpy(id, words, sizeof words), ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, ncclConfig_t *) {
    emu_lock hold;
    uint64_t words[2];
    memcpy(words, &id, sizeof words);
    if (words[1] != (uint64_t)getpid()) {
        fprintf(stderr, "cuda_emu: emulated NCCL joins threads; ranks that are processes share a GPU "
                        "(EMU_DEVICES=1) or choose another backend\n");
        return ncclInvalidUsage;
    }
    emu_group *&g = emu_groups[words[0]];
    if (!g) g = new emu_group();
    g->size = n, g->joined++;
    *comm = new ncclComm();
    (*comm)->group = g, (*comm)->rank = rank;
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    emu_lock hold;
    emu_run_one(); // as if the device worked meanwhile
    emu_group *g = comm->group;
    *state = g && g->joined >= g->size ? ncclSuccess : ncclInProgress;
    for (int i = 0; g && i < comm->windows; i++)
        if (g->windows[i].first < g->size) *state = ncclInProgress;
    return ncclSuccess;
}
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
// A window is a number, of memory that ncclMemAlloc gave; registered when all ranks have come.
static std::map<void *, size_t> &emu_nccl_memory = *new std::map<void *, size_t>();
ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
    if (cudaMalloc(memory, bytes)) return ncclUnhandledCudaError;
    emu_lock hold;
    return emu_nccl_memory[*memory] = bytes, ncclSuccess;
}
ncclResult_t ncclMemFree(void *memory) {
    {
        emu_lock hold;
        if (!emu_nccl_memory.erase(memory)) return ncclInvalidArgument;
    }
    return cudaFree(memory) ? ncclUnhandledCudaError : ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window, int) {
    emu_lock hold;
    auto found = emu_nccl_memory.find(memory);
    std::pair<int, size_t> &w = comm->group->windows[comm->windows];
    if (found == emu_nccl_memory.end() || found->second < bytes || (w.first && w.second != bytes))
        return ncclInvalidArgument;
    w.first++, w.second = bytes;
    return *window = (ncclWindow_t)(uintptr_t)++comm->windows, ncclInProgress;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclSuccess; }
#endif
ncclResult_t ncclCommCount(const ncclComm_t comm, int *n) { return *n = comm->group->size, ncclSuccess; }
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *) {
    emu_lock hold;
    emu_group *g = comm->group;
    emu_group::split &s = g->splits[g->split_count[comm->rank]++];
    s.wanted[comm->rank] = {color, key}, s.arrived++;
    *out = s.made[comm->rank] = color == NCCL_SPLIT_NOCOLOR ? NULL : new ncclComm();
    if (s.arrived < g->size) return ncclInProgress;
    std::map<int, std::vector<std::pair<int, int>>> members; // color: (key, rank)
    for (auto &w : s.wanted)
        if (w.second.first >= 0) members[w.second.first].push_back({w.second.second, w.first});
    for (auto &m : members) {
        std::sort(m.second.begin(), m.second.end());
        emu_group *part = new emu_group();
        emu_groups[(uint64_t)(uintptr_t)part] = part; // kept to the end
        part->size = part->joined = (int)m.second.size();
        for (size_t i = 0; i < m.second.size(); i++) {
            ncclComm *c = s.made[m.second[i].second];
            c->rank = (int)i, c->group = part;
        }
    }
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return delete comm, ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return delete comm, ncclSuccess; }
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t, ncclComm_t comm) {
    const int number = 100 + (int)comm->scales.size();
    comm->scales[number] = emu_get_element(scalar, type, 0);
    return *op = (ncclRedOp_t)number, ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclGroupStart(void) { return emu_group_depth++, ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return --emu_group_depth ? ncclSuccess : emu_group_launch(); }
ncclResult_t ncclAllReduce(const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream) {
    return emu_collective(c, EMU_ALL_REDUCE, s, r, n, t, op, 0, stream);
}
ncclResult_t ncclReduce(const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t stream) {
    return emu_collective(c, EMU_REDUCE, s, r, n, t, op, root, stream);
}
ncclResult_t ncclReduceScatter(const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream) {
    return emu_collective(c, EMU_REDUCE_SCATTER, s, r, n, t, op, 0, stream);
}
ncclResult_t ncclAllGather(const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t stream) {
    return emu_collective(c, EMU_ALL_GATHER, s, r, n, t, ncclSum, 0, stream);
}
ncclResult_t ncclBroadcast(const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                           cudaStream_t stream) {
    return emu_collective(c, EMU_BROADCAST, s, r, n, t, ncclSum, root, stream);
}
ncclResult_t ncclSend(const void *s, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t stream) {
    return emu_message(c, 1, (void *)(uintptr_t)s, n * emu_nccl_bytes(t), peer, stream);
}
ncclResult_t ncclRecv(void *r, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t stream) {
    return emu_message(c, 0, r, n * emu_nccl_bytes(t), peer, stream);
}
} // extern "C"

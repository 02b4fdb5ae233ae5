// emu_nccl.h - test-only definitions of the NCCL calls that par_cuda.cuh makes; a part of emu.cpp. Ranks are
// threads; those of another process are refused.
//
// A collective runs when it is next on all ranks' streams, as NCCL's kernels wait for each other. Calls that
// ranks make in different orders never run. Sums start at the last rank, so that no test relies on rank
// order. Narrow floats are rounded after each addition, as in NCCL's rings; between windows once, because
// kernels there add in f32 (src/device/symmetric/primitives.cuh, ncclSymkAccumType). Communicators are
// nonblocking: while a call on one is in progress, other calls on it are refused.
//
// Messages. A group is one kernel on each rank (src/enqueue.cc, scheduleP2pTasksToPlan): round k of it has
// the k-th send and the k-th receive of each peer, and begins when round k-1 has ended. A message moves when
// both ends are in its round. The kernel ends when all its messages have moved. Kernels of a communicator run
// in the order of their launch, on whichever streams (also of those that share resources with it:
// splitShare). The first message between two ranks is launched when both have called, because they connect
// first; so is the first collective of a kind, when all ranks have (NCCL connects what an algorithm needs
// when it is used first).
//
// Copy engines (NCCL_CTA_POLICY_ZERO) take collectives between windows, as each rank decides alone. What they
// do is no kernel: a stream waits for words of other ranks, and so does all that comes later in its hardware
// queue.
//
// An abort ends the kernels of a communicator that look at its flag, and waits for all of them, and for all
// graphs that were captured with it (src/init.cc, commDestroySync). Kernels between windows look at it since
// 2.29.7 (src/include/nccl_device/impl/lsa_barrier__funcs.h); what streams wait for with copy engines stays.
//
// Deadlocks are found in the state alone: when no work is ready, a cycle of kernels and events that wait for
// each other ends the program, and each part of the cycle is named.
#include <nccl.h>

#include <list>
#include <string>

struct ncclComm;
struct emu_kernel;
struct emu_collective_op { // a collective
    std::vector<std::shared_ptr<emu_kernel>> parties;
    int kind, root, done;
    size_t count;
    ncclDataType_t type;
    int op;
    double factor;
};
struct emu_transfer { // a message; ends: of the receiver, of the sender
    std::shared_ptr<emu_kernel> ends[2];
    void *memory[2];
    size_t bytes;
    int from, to, called[2], done;
};
struct emu_part { // of a kernel: a message in one direction
    std::shared_ptr<emu_transfer> transfer;
    int sends, round;
};
typedef std::deque<uint64_t> emu_launch_order;
struct emu_kernel { // of NCCL, on one rank
    ncclComm *comm;
    std::string name;
    CUstream_st *stream;
    uint64_t id;
    std::shared_ptr<emu_launch_order> order; // of kernels of the communicator that have not ended
    const void *send;
    void *recv;
    std::shared_ptr<emu_collective_op> collective;
    std::vector<emu_part> parts;
    int aborted, by_copy_engines;
    struct {
        int number; // of the window; 0: in none
        size_t offset;
    } window[2]; // of send, of recv
};
struct emu_group;
struct ncclComm {
    emu_group *group;
    int rank, sequence, windows, finalized, failed, launching; // launching: groups that wait for their peers
    std::map<int, double> scales;                              // operators of its own
    std::shared_ptr<emu_launch_order> order;
    int by_copy_engines;                                 // NCCL_CTA_POLICY_ZERO
    std::vector<std::pair<const char *, size_t>> window; // by number - 1; deregistered: NULL
    std::shared_ptr<std::atomic<int>> graphs;            // its calls in graphs that are alive
};
static std::map<const void *, int> &emu_open_windows = *new std::map<const void *, int>(); // by memory
static int emu_communicator_count;                                                         // all that exist
static int emu_failing_communicators; // the next ones fail; 2: ids, too
int emu_communicators(void) {
    emu_lock hold;
    return emu_communicator_count;
}
void emu_fail_communicators(int fail) {
    emu_lock hold;
    emu_failing_communicators = fail;
}
static std::atomic<int> emu_nccl_version_now{NCCL_VERSION_CODE};
void emu_nccl_version(int version) { emu_nccl_version_now = version; }
static int emu_max_ctas;
int emu_newest_max_ctas(void) {
    emu_lock hold;
    return emu_max_ctas;
}
static ncclComm *emu_new_communicator(const ncclConfig_t *config) {
    ncclComm *comm = new ncclComm();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    comm->by_copy_engines = config && config->CTAPolicy == NCCL_CTA_POLICY_ZERO;
#endif
    comm->graphs.reset(new std::atomic<int>(0));
    emu_max_ctas = config && config->maxCTAs != NCCL_CONFIG_UNDEF_INT ? config->maxCTAs : 0;
    emu_communicator_count++;
    return comm->failed = emu_failing_communicators, comm;
}
struct emu_group {
    int number, size = 0, joined = 0;
    std::map<int, std::shared_ptr<emu_collective_op>> joints;
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<emu_transfer>>>
        messages; // by sender and receiver
    std::map<std::pair<int, int>, size_t> sent, received, removed;
    std::map<std::pair<int, int>, int> connected; // 1: the receiver has called, 2: the sender
    struct split {
        int arrived = 0;
        std::map<int, std::pair<int, int>> wanted; // rank: color, key
        std::map<int, ncclComm *> made;
    };
    std::map<int, split> splits;
    std::map<int, std::set<int>> called;           // collectives by kind: the ranks that have
    std::map<std::pair<int, int>, int> ways;       // by kind and number: by messages, by copy engines
    std::map<std::pair<int, int>, int> way_count;  // by kind and rank
    std::map<int, std::pair<int, size_t>> windows; // by number: who has registered, bytes
    std::map<int, int> split_count;                // by rank
};
static std::map<uint64_t, emu_group *> &emu_groups = *new std::map<uint64_t, emu_group *>();
static emu_group *emu_new_group(void) {
    static int count;
    emu_group *g = new emu_group();
    return g->number = ++count, g;
}
struct emu_group_call {
    ncclComm *comm;
    cudaStream_t stream;
    int sends, peer;
    void *memory;
    size_t bytes;
};
static thread_local int emu_group_depth;
static thread_local std::vector<emu_group_call> emu_group_calls;
static thread_local std::vector<ncclComm *> emu_aborts; // begun, in a group
struct emu_waiting_launch {                             // a group of messages that waits for its peers
    ncclComm *comm;
    CUstream_st *stream;
    std::vector<emu_group_call> calls;
};
static std::list<emu_waiting_launch> &emu_waiting_launches = *new std::list<emu_waiting_launch>();
struct emu_waiting_collective { // waits for all ranks
    ncclComm *comm;
    int kind;
    std::function<void()> launch;
};
static std::list<emu_waiting_collective> &emu_waiting_collectives = *new std::list<emu_waiting_collective>();

// Can it run? It is next on its stream, and in its communicator.
static int emu_runs(const std::shared_ptr<emu_kernel> &k) {
    return k && !k->aborted && !k->stream->work.empty() && k->stream->work.front().id == k->id &&
           (k->order->empty() || k->order->front() == k->id) && emu_reached(k->stream);
}
static int emu_can_start(const emu_op &op) {
    return op.kernel && !op.kernel->by_copy_engines &&
           (op.kernel->order->empty() || op.kernel->order->front() == op.id);
}
static int emu_last_round(const emu_kernel *k) { return k->parts.empty() ? 0 : k->parts.back().round; }
static int emu_round(const emu_kernel *k) { // the one it is in
    for (const emu_part &p : k->parts)      // in order
        if (!p.transfer->done) return p.round;
    return emu_last_round(k) + 1;
}
static const emu_part *emu_part_of(const emu_kernel *k, const emu_transfer *t) {
    for (const emu_part &p : k->parts)
        if (p.transfer.get() == t) return &p;
    return NULL;
}
// Devices of one process that can access each other read and write each other's arrays directly
// (NCCL_P2P_DIRECT_DISABLE). NCCL enables that for memory of cudaMalloc, and cannot for memory of pools.
static void emu_check_direct(int device, const void *memory) {
    const emu_allocation *a = emu_find(memory);
    if (a && a->pool && !emu_apart[a->device][device] && !emu_can_access(device, a))
        emu_die("NCCL accesses a pool of another device, without cudaMemPoolSetAccess");
}
// Moves what both ends are ready for. 1: the kernel has ended.
static int emu_advance(const std::shared_ptr<emu_kernel> &k) {
    for (int moved = 1; moved && emu_runs(k);) {
        moved = 0;
        const int round = emu_round(k.get());
        for (emu_part &p : k->parts) {
            emu_transfer *t = p.transfer.get();
            const std::shared_ptr<emu_kernel> other = t->ends[!p.sends];
            if (t->done || p.round != round || !emu_runs(other)) continue;
            if (emu_part_of(other.get(), t)->round != emu_round(other.get())) continue;
            for (int i = 0; i < 2 && t->bytes; i++)
                emu_check_direct(k->stream->device, t->memory[i]),
                    emu_check_direct(other->stream->device, t->memory[i]);
            emu_memory(1);
            emu_move(t->memory[0], t->memory[1], t->bytes);
            emu_memory(0);
            t->done = moved = emu_moved = 1;
        }
    }
    return k->aborted || (emu_runs(k) && emu_round(k.get()) > emu_last_round(k.get()));
}
static void emu_end_kernel(const std::shared_ptr<emu_kernel> &k) {
    for (size_t i = 0; i < k->order->size(); i++)
        if ((*k->order)[i] == k->id) {
            k->order->erase(k->order->begin() + (ptrdiff_t)i);
            break;
        }
    for (emu_part &p : k->parts) p.transfer->ends[p.sends].reset();
}
static std::shared_ptr<emu_kernel> emu_new_kernel(ncclComm *comm, CUstream_st *s, const std::string &what) {
    std::shared_ptr<emu_kernel> k(new emu_kernel());
    k->comm = comm, k->stream = s, k->id = ++emu_op_count, k->order = comm->order;
    k->name = "rank " + std::to_string(comm->rank) + " of communicator " +
              std::to_string(comm->group->number) + ": " + what;
    if (!s->capture) k->order->push_back(k->id);
    return k;
}
// A communicator can be called when its last call has ended.
static int emu_can_call(ncclComm *comm) {
    return comm->group && comm->group->joined >= comm->group->size && !comm->launching;
}

// ---- deadlocks

typedef std::pair<uint64_t, int> emu_node; // of the graph of what waits for what: a kernel's round
enum { EMU_STARTED = -1 };                 // ... that it has started
struct emu_place {
    CUstream_st *stream;
    size_t at;
};
struct emu_search {
    std::map<uint64_t, emu_place> places;
    std::map<emu_node, int> seen; // 1: on the path, 2: no cycle from here
    std::vector<emu_node> path;
    const emu_op &op(uint64_t id) { return places[id].stream->work[places[id].at]; }
    void add(std::vector<emu_node> &to, uint64_t id) { // a kernel must have ended
        if (places.count(id)) to.push_back({id, op(id).kernel ? emu_last_round(op(id).kernel.get()) : 0});
    }
    void add_start(std::vector<emu_node> &to, uint64_t id) { // what must have ended before it starts
        if (!places.count(id)) return;
        const emu_place p = places[id];
        if (p.at) add(to, p.stream->work[p.at - 1].id);
        const std::shared_ptr<emu_kernel> k = op(id).kernel;
        for (size_t i = 1; k && i < k->order->size(); i++)
            if ((*k->order)[i] == id) add(to, (*k->order)[i - 1]);
        for (CUstream_st *s : emu_streams) // what its queue comes to before it
            for (const emu_op &o : s->work)
                if (emu_queues && s->device == p.stream->device && s->queue == p.stream->queue && o.id < id)
                    to.push_back({o.id, o.kernel && !o.kernel->by_copy_engines ? EMU_STARTED : 0});
    }
    void add_round(std::vector<emu_node> &to, const emu_kernel *k, int round) { // what comes before it
        if (round > emu_round(k))
            to.push_back({k->id, round - 1});
        else
            add_start(to, k->id);
    }
    std::vector<emu_node> needs(emu_node n) {
        std::vector<emu_node> to;
        const emu_op &o = op(n.first);
        const emu_kernel *k = o.kernel.get();
        if (!k || k->parts.empty() || n.second == EMU_STARTED) add_start(to, n.first);
        for (CUstream_st *s : emu_streams)
            for (const emu_op &r : s->work)
                if (o.wait && r.record == o.wait && r.version == o.version) add(to, r.id);
        if (!k || n.second == EMU_STARTED) return to;
        for (size_t i = 0; k->collective && i < k->collective->parties.size(); i++)
            if (k->collective->parties[i]) add_start(to, k->collective->parties[i]->id);
        if (!k->parts.empty()) add_round(to, k, n.second);
        for (const emu_part &p : k->parts) {
            const emu_kernel *other = p.transfer->ends[!p.sends].get();
            if (p.round == n.second && !p.transfer->done && other)
                add_round(to, other, emu_part_of(other, p.transfer.get())->round);
        }
        return to;
    }
    int cycle(emu_node n) { // path: the cycle
        seen[n] = 1;
        path.push_back(n);
        for (const emu_node &m : needs(n)) {
            if (seen[m] == 1) {
                while (path.front() != m) path.erase(path.begin());
                return 1;
            }
            if (!seen[m] && cycle(m)) return 1;
        }
        seen[n] = 2;
        path.pop_back();
        return 0;
    }
};
static std::string emu_describe(const emu_op &o, int round) {
    std::string text = o.kernel ? o.kernel->name : o.wait ? "a wait for an event" : "a kernel or copy";
    for (size_t i = 0; o.kernel && i < o.kernel->parts.size(); i++) {
        const emu_part &p = o.kernel->parts[i];
        text += std::string(i ? ", " : " ") + (p.sends ? "send to " : "receive from ") +
                std::to_string(p.sends ? p.transfer->to : p.transfer->from) +
                (p.transfer->done   ? " (done)"
                 : p.round == round ? " (waits)"
                                    : "");
    }
    return text;
}
// Called when no work is ready.
static void emu_check_deadlock(void) {
    emu_search x;
    int kernels = 0;
    for (CUstream_st *s : emu_streams)
        for (size_t i = 0; i < s->work.size(); i++) {
            x.places[s->work[i].id] = {s, i};
            kernels += !i && s->work[i].kernel;
        }
    if (!kernels) return;
    for (CUstream_st *s : emu_streams) {
        if (s->work.empty() || !s->work.front().kernel) continue;
        const emu_kernel *k = s->work.front().kernel.get();
        const emu_node n(k->id, k->parts.empty() ? 0 : emu_round(k));
        if (x.seen[n] || !x.cycle(n)) continue;
        std::string text = "deadlock of NCCL kernels, each waits for the next, and the last for the first:";
        for (const emu_node &m : x.path) text += "\n    " + emu_describe(x.op(m.first), m.second);
        emu_die(text.c_str());
    }
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
    case ncclInt8: return *emu_access((const int8_t *)p + i);
    case ncclUint8: return *emu_access((const uint8_t *)p + i);
    case ncclInt32: return *emu_access((const int32_t *)p + i);
    case ncclUint32: return *emu_access((const uint32_t *)p + i);
    case ncclInt64: return (double)*emu_access((const int64_t *)p + i);
    case ncclUint64: return (double)*emu_access((const uint64_t *)p + i);
    case ncclFloat16: return (double)*emu_access((const _Float16 *)p + i);
    case ncclFloat32: return (double)*emu_access((const float *)p + i);
    case ncclBfloat16:
        bits = (uint32_t)*emu_access((const uint16_t *)p + i) << 16, memcpy(&f, &bits, 4);
        return (double)f;
    default: return *emu_access((const double *)p + i);
    }
}
static void emu_set_element(void *p, ncclDataType_t t, size_t i, double x) {
    uint32_t bits;
    const float f = (float)x;
    switch (t) {
    case ncclInt8: *emu_access((int8_t *)p + i) = (int8_t)(int64_t)x; break;
    case ncclUint8: *emu_access((uint8_t *)p + i) = (uint8_t)(int64_t)x; break;
    case ncclInt32: *emu_access((int32_t *)p + i) = (int32_t)(int64_t)x; break;
    case ncclUint32: *emu_access((uint32_t *)p + i) = (uint32_t)(int64_t)x; break;
    case ncclInt64: *emu_access((int64_t *)p + i) = (int64_t)x; break;
    case ncclUint64: *emu_access((uint64_t *)p + i) = (uint64_t)x; break;
    case ncclFloat16: *emu_access((_Float16 *)p + i) = (_Float16)x; break;
    case ncclFloat32: *emu_access((float *)p + i) = f; break;
    case ncclBfloat16:
        memcpy(&bits, &f, 4),
            *emu_access((uint16_t *)p + i) = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
        break;
    default: *emu_access((double *)p + i) = x; break;
    }
    emu_note_written((char *)p + i * emu_nccl_bytes(t), emu_nccl_bytes(t));
}
enum {
    EMU_ALL_REDUCE,
    EMU_REDUCE,
    EMU_REDUCE_SCATTER,
    EMU_ALL_GATHER,
    EMU_BROADCAST,
    EMU_ALL_TO_ALL,
    EMU_GATHER,
    EMU_SCATTER
};
// Symmetric kernels and copy engines read send (sums) and write recv (all_reduce, all_gather) of other
// ranks, by this rank's window and offset: NCCL_WIN_COLL_SYMMETRIC demands that they are the same on all
// ranks. NCCL asks each rank alone whether its arrays are in windows. An array that no other rank accesses
// may be anywhere in one.
static void emu_check_windows(const emu_collective_op *j) {
    const emu_kernel *first = j->parties[0].get();
    for (const auto &k : j->parties)
        for (int side = 0; side < 2; side++) {
            const auto &mine = k->window[side], &its = first->window[side];
            if (!mine.number != !its.number)
                emu_die("NCCL: an array is in a window on one rank, and on another it is not");
            const int remote = j->kind == EMU_ALL_REDUCE || (j->kind != EMU_REDUCE_SCATTER) == side;
            if (remote && (mine.number != its.number || mine.offset != its.offset))
                emu_die("NCCL: arrays are in other windows, or at other offsets there, on other ranks");
        }
}
static int emu_sums_in_windows(int kind, ncclDataType_t type, int op) {
    return (kind == EMU_ALL_REDUCE || kind == EMU_REDUCE_SCATTER) && op == ncclSum &&
           (type == ncclFloat32 || type == ncclFloat16 || type == ncclBfloat16);
}
// The name of a collective: how it runs.
static const char *emu_name_of(const ncclComm *comm, const emu_kernel *k, int kind, ncclDataType_t type,
                               int op) {
    static const char *const names[][3] = {
        {"all_reduce", "all_reduce in windows", "all_reduce in windows"},
        {"reduce", "reduce", "reduce"},
        {"reduce_scatter", "reduce_scatter in windows", "reduce_scatter in windows"},
        {"all_gather", "all_gather in windows", "all_gather by copy engines"},
        {"broadcast", "broadcast", "broadcast"},
        {"", "", "all_to_all by copy engines"},
        {"", "", "gather by copy engines"},
        {"", "", "scatter by copy engines"}};
    const int in_windows =
        k->window[0].number && k->window[1].number &&
        (kind == EMU_ALL_GATHER || kind >= EMU_ALL_TO_ALL || emu_sums_in_windows(kind, type, op));
    return names[kind][in_windows ? 1 + comm->by_copy_engines : 0];
}
static void emu_find_windows(const ncclComm *comm, emu_kernel *k) {
    const char *const arrays[2] = {(const char *)k->send, (const char *)k->recv};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < comm->window.size(); i++) {
            const char *begin = comm->window[i].first;
            if (!begin || arrays[side] < begin || arrays[side] >= begin + comm->window[i].second) continue;
            k->window[side].number = (int)i + 1;
            k->window[side].offset = (size_t)(arrays[side] - begin);
        }
}
// What copy engines do on each rank: they write into windows of other ranks, at the offset of this rank's own
// array (src/ce_coll.cc).
static char *emu_window_of(const emu_collective_op *j, int rank,
                           int whose) { // recv of `whose` as `rank` sees it
    const emu_kernel *k = j->parties[(size_t)rank].get(), *theirs = j->parties[(size_t)whose].get();
    return (char *)(uintptr_t)theirs->comm->window[(size_t)k->window[1].number - 1].first +
           k->window[1].offset;
}
static void emu_copy_engines_run(const emu_collective_op *j, size_t bytes) {
    const int n = (int)j->parties.size();
    for (int me = 0; me < n; me++)
        for (int r = 0; r < n; r++) {
            const char *send = (const char *)j->parties[(size_t)me]->send;
            if (j->kind == EMU_ALL_TO_ALL)
                emu_move(emu_window_of(j, me, r) + (size_t)me * bytes, send + (size_t)r * bytes, bytes);
            if (j->kind == EMU_GATHER && r == j->root)
                emu_move(emu_window_of(j, me, r) + (size_t)me * bytes, send, bytes);
            if (j->kind != EMU_SCATTER || me != j->root) continue;
            emu_move(emu_window_of(j, me, r), send + (size_t)r * bytes, bytes);
        }
}
static void emu_collective_run(emu_collective_op *j) {
    const int n = (int)j->parties.size(), block = j->kind == EMU_REDUCE_SCATTER;
    const size_t e = emu_nccl_bytes(j->type), c = j->count;
    if (j->done++) return;
    if (c && (j->kind == EMU_ALL_GATHER || j->kind >= EMU_ALL_TO_ALL ||
              emu_sums_in_windows(j->kind, j->type, j->op)))
        emu_check_windows(j);
    for (int i = 0; i < n * n && c; i++) {
        const emu_kernel *k = j->parties[(size_t)(i / n)].get();
        emu_check_direct(j->parties[(size_t)(i % n)]->stream->device, k->send);
        emu_check_direct(j->parties[(size_t)(i % n)]->stream->device, k->recv);
    }
    if (j->kind >= EMU_ALL_TO_ALL) {
        emu_copy_engines_run(j, c * e);
        return;
    }
    if (j->kind == EMU_BROADCAST || j->kind == EMU_ALL_GATHER) {
        for (int r = 0; r < n; r++)
            for (int s = 0; s < n; s++) {
                char *to =
                    (char *)j->parties[(size_t)r]->recv + (j->kind == EMU_ALL_GATHER ? (size_t)s * c * e : 0);
                if (j->kind == EMU_ALL_GATHER || s == j->root)
                    emu_move(to, j->parties[(size_t)s]->send, c * e);
            }
        return;
    }
    const emu_kernel *k = j->parties[0].get();
    const int narrow = j->type >= ncclFloat16 && emu_nccl_bytes(j->type) < 4,
              rounds = narrow && !(k->window[0].number && k->window[1].number);
    std::vector<double> sum((block ? (size_t)n : 1) * c);
    for (size_t i = 0; i < sum.size(); i++) {
        double x = 0;
        for (int r = n - 1; r >= 0; r--) {
            const double y = emu_get_element(j->parties[(size_t)r]->send, j->type, i) * j->factor;
            x = r == n - 1          ? y
                : j->op == ncclProd ? x * y
                : j->op == ncclMin  ? fmin(x, y)
                : j->op == ncclMax  ? fmax(x, y)
                                    : x + y;
            if (!rounds) continue;
            uint16_t stored;
            emu_set_element(&stored, j->type, 0, x);
            x = emu_get_element(&stored, j->type, 0);
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
            emu_set_element(j->parties[(size_t)r]->recv, j->type, i, sum[(block ? (size_t)r * c : 0) + i]);
}
static void emu_keep_graph(const ncclComm *comm, CUgraph_st *graph) {
    const std::shared_ptr<std::atomic<int>> graphs = comm->graphs;
    ++*graphs;
    graph->objects.emplace_back(graphs.get(), [graphs](void *) { --*graphs; });
}
// The caller holds the mutex.
static void emu_launch_collective(ncclComm *comm, int kind, const void *send, void *recv, size_t count,
                                  ncclDataType_t type, int op, double factor, int root, CUstream_st *s) {
    emu_group *g = comm->group;
    if (s->capture) { // each replay launches it
        emu_keep_graph(comm, s->capture);
        s->capture->nodes.push_back({EMU_NODE_AGAIN, s, 0, nullptr, [=](CUstream_st *lane) {
                                         emu_launch_collective(comm, kind, send, recv, count, type, op,
                                                               factor, root, lane);
                                     }});
        return;
    }
    std::shared_ptr<emu_collective_op> &j = g->joints[comm->sequence++];
    if (!j) {
        j.reset(new emu_collective_op());
        j->parties.resize((size_t)g->size), j->kind = kind, j->root = root, j->count = count, j->type = type;
        j->op = op, j->factor = factor;
    }
    if (j->kind != kind || j->root != root || j->count != count || j->type != type)
        emu_die("ranks make different NCCL calls");
    emu_op work;
    const std::shared_ptr<emu_collective_op> held = j;
    const std::shared_ptr<emu_kernel> k = emu_new_kernel(comm, s, "");
    k->send = send, k->recv = recv, k->collective = held;
    emu_find_windows(comm, k.get());
    work.what = emu_name_of(comm, k.get(), kind, type, op);
    k->by_copy_engines = strstr(work.what, "by copy engines") != NULL;
    k->name += work.what;
    held->parties[(size_t)comm->rank] = k;
    work.id = k->id, work.kernel = k;
    work.ready = [k, held](CUstream_st *) {
        if (k->aborted) return 1;
        int all = emu_runs(k);
        for (const auto &party : held->parties) all &= held->done || emu_runs(party);
        return all;
    };
    work.run = [k, held] {
        if (!k->aborted) emu_collective_run(held.get());
        emu_end_kernel(k);
    };
    emu_add(s, std::move(work));
}
static ncclResult_t emu_collective(ncclComm *comm, int kind, const void *send, void *recv, size_t count,
                                   ncclDataType_t type, int op, int root, cudaStream_t stream) {
    emu_lock hold;
    const int scaled = comm->scales.count(op) > 0;
    if (!emu_can_call(comm) && !emu_group_depth) return ncclInvalidArgument;
    if (emu_nccl_is_f8(type) && kind < EMU_ALL_GATHER) return ncclInvalidArgument;
    CUstream_st *s = emu_stream(stream);
    const double factor = scaled ? comm->scales[op] : 1;
    if (!count) return ncclSuccess;
    comm->group->called[kind].insert(comm->rank);
    comm->launching++;
    emu_waiting_collectives.push_back({comm, kind, [=] {
                                           emu_launch_collective(comm, kind, send, recv, count, type,
                                                                 scaled ? (int)ncclSum : op, factor, root, s);
                                       }});
    for (auto w = emu_waiting_collectives.begin(); w != emu_waiting_collectives.end();) {
        emu_group *g = w->comm->group;
        if ((int)g->called[w->kind].size() < g->size) {
            ++w;
            continue;
        }
        w->comm->launching--;
        w->launch();
        w = emu_waiting_collectives.erase(w);
    }
    return comm->launching ? ncclInProgress : ncclSuccess;
}
static std::pair<int, int> emu_ends(const emu_group_call &x) {
    return x.sends ? std::make_pair(x.comm->rank, x.peer) : std::make_pair(x.peer, x.comm->rank);
}
static void emu_launch_messages(const emu_waiting_launch &l) {
    emu_group *g = l.comm->group;
    if (l.stream->capture) { // each replay launches them
        emu_keep_graph(l.comm, l.stream->capture);
        l.stream->capture->nodes.push_back({EMU_NODE_AGAIN, l.stream, 0, nullptr, [=](CUstream_st *lane) {
                                                emu_launch_messages({l.comm, lane, l.calls});
                                            }});
        return;
    }
    const std::shared_ptr<emu_kernel> k = emu_new_kernel(l.comm, l.stream, "messages,");
    std::map<std::pair<int, int>, int> rounds; // by peer and direction
    emu_op work;
    for (const emu_group_call &x : l.calls) {
        const std::pair<int, int> ends = emu_ends(x);
        std::deque<std::shared_ptr<emu_transfer>> &list = g->messages[ends];
        size_t &removed = g->removed[ends];
        while (!list.empty() && list.front()->done) list.pop_front(), removed++;
        const size_t number = (x.sends ? g->sent[ends]++ : g->received[ends]++) - removed;
        while (list.size() <= number) list.emplace_back(new emu_transfer());
        emu_transfer *t = list[number].get();
        if (t->called[!x.sends] && t->bytes != x.bytes) emu_die("a send and its receive have other sizes");
        t->bytes = x.bytes, t->from = ends.first, t->to = ends.second, t->called[x.sends] = 1;
        t->ends[x.sends] = k, t->memory[x.sends] = x.memory;
        k->parts.push_back({list[number], x.sends, rounds[{x.peer, x.sends}]++});
    }
    std::stable_sort(k->parts.begin(), k->parts.end(),
                     [](const emu_part &a, const emu_part &b) { return a.round < b.round; });
    work.id = k->id, work.kernel = k, work.what = "messages";
    work.ready = [k](CUstream_st *) { return emu_advance(k); };
    work.run = [k] { emu_end_kernel(k); };
    emu_add(l.stream, std::move(work));
}
// Launches a group of sends and receives: a kernel for each communicator. It waits until all its peers have
// called, once: they connect.
static ncclResult_t emu_group_launch(void) {
    emu_lock hold;
    std::vector<emu_group_call> calls;
    calls.swap(emu_group_calls);
    while (!calls.empty()) {
        emu_waiting_launch l = {calls[0].comm, emu_stream(calls[0].stream), {}};
        std::vector<emu_group_call> others;
        for (const emu_group_call &x : calls) (x.comm == l.comm ? l.calls : others).push_back(x);
        for (const emu_group_call &x : l.calls) l.comm->group->connected[emu_ends(x)] |= 1 << x.sends;
        l.comm->launching++;
        emu_waiting_launches.push_back(l);
        calls = others;
    }
    for (auto l = emu_waiting_launches.begin(); l != emu_waiting_launches.end();) {
        int missing = 0;
        for (const emu_group_call &x : l->calls) missing |= l->comm->group->connected[emu_ends(x)] != 3;
        if (missing) {
            ++l;
            continue;
        }
        l->comm->launching--;
        emu_launch_messages(*l);
        l = emu_waiting_launches.erase(l);
    }
    return emu_waiting_launches.empty() ? ncclSuccess : ncclInProgress;
}
static ncclResult_t emu_message(ncclComm *comm, int sends, void *memory, size_t bytes, int peer,
                                cudaStream_t stream) {
    {
        emu_lock hold;
        if (!emu_can_call(comm) || peer < 0 || peer >= comm->group->size) return ncclInvalidArgument;
    }
    emu_group_calls.push_back({comm, stream, sends, peer, memory, bytes});
    return emu_group_depth ? ncclSuccess : emu_group_launch();
}
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
// all_to_all, gather and scatter: by copy engines where the policy says so and both arrays lie in windows,
// also on ranks whose array the call does not use; else a group of messages. Each rank decides alone
// (src/enqueue.cc, taskAppend), and ranks that decide differently wait for each other for ever.
static ncclResult_t emu_exchange_blocks(ncclComm *comm, int kind, const void *send, void *recv, size_t count,
                                        ncclDataType_t type, int root, cudaStream_t stream) {
    const size_t bytes = count * emu_nccl_bytes(type);
    emu_kernel k = {};
    {
        emu_lock hold;
        if (!emu_can_call(comm) || root < 0 || root >= comm->group->size) return ncclInvalidArgument;
        if (!count) return ncclSuccess;
        k.send = send, k.recv = recv;
        emu_find_windows(comm, &k);
        const int engines = comm->by_copy_engines && k.window[0].number && k.window[1].number;
        int &way = comm->group->ways[{kind, comm->group->way_count[{kind, comm->rank}]++}];
        if (way && way != 1 + engines)
            emu_die(
                "NCCL: copy engines on one rank, and messages on another, because an array is in no window");
        way = 1 + engines;
        k.by_copy_engines = engines;
    }
    if (k.by_copy_engines) return emu_collective(comm, kind, send, recv, count, type, ncclSum, root, stream);
    emu_group_depth++;
    for (int r = 0; r < comm->group->size; r++) {
        char *from = (char *)(uintptr_t)send + (kind == EMU_GATHER ? 0 : (size_t)r * bytes),
             *to = (char *)recv + (kind == EMU_SCATTER ? 0 : (size_t)r * bytes);
        if (kind == EMU_ALL_TO_ALL || (kind == EMU_GATHER ? r == root : comm->rank == root))
            emu_message(comm, 1, from, bytes, r, stream);
        if (kind == EMU_ALL_TO_ALL || (kind == EMU_SCATTER ? r == root : comm->rank == root))
            emu_message(comm, 0, to, bytes, r, stream);
    }
    return ncclGroupEnd();
}
#endif
static int emu_sees_abort(const emu_op &o) {
    return !o.kernel->by_copy_engines &&
           (emu_nccl_version_now >= NCCL_VERSION(2, 29, 7) || !strstr(o.what, "in windows"));
}
// Kernels of a communicator that have not ended.
static int emu_kernels_of(const ncclComm *comm, int abort) {
    int count = 0;
    for (CUstream_st *s : emu_streams)
        for (emu_op &o : s->work)
            if (o.kernel && o.kernel->comm == comm) count++, o.kernel->aborted |= abort && emu_sees_abort(o);
    if (abort) pthread_cond_broadcast(&emu_changed);
    return count;
}
static void emu_forget(ncclComm *comm) {
    for (const auto &w : comm->window)
        if (w.first) emu_open_windows[w.first]--;
    emu_waiting_launches.remove_if([=](const emu_waiting_launch &l) { return l.comm == comm; });
    emu_waiting_collectives.remove_if([=](const emu_waiting_collective &w) { return w.comm == comm; });
    emu_communicator_count--;
    delete comm;
}
static void emu_end_aborts(void) { // the caller holds the mutex
    for (ncclComm *comm : emu_aborts) {
        emu_work_until([=] { return !*comm->graphs; }, "ncclCommAbort waits for graphs, and");
        emu_work_until([=] { return !emu_kernels_of(comm, 0); }, "ncclCommAbort waits for kernels, and");
        emu_forget(comm);
    }
    emu_aborts.clear();
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
    if (emu_failing_communicators > 1) return ncclSystemError; // as where NCCL finds no interface
    return memcpy(id, words, sizeof words), ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    emu_lock hold;
    uint64_t words[2];
    if (emu_unsafe()) return ncclUnhandledCudaError; // it allocates
    memcpy(words, &id, sizeof words);
    if (words[1] != (uint64_t)getpid()) {
        fprintf(stderr, "cuda_emu: emulated NCCL joins threads; ranks that are processes share a GPU "
                        "(EMU_DEVICES=1) or choose another backend\n");
        return ncclInvalidUsage;
    }
    emu_group *&g = emu_groups[words[0]];
    if (!g) g = emu_new_group();
    g->size = n, g->joined++;
    *comm = emu_new_communicator(config);
    (*comm)->group = g, (*comm)->rank = rank, (*comm)->order.reset(new emu_launch_order());
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    emu_lock hold;
    emu_run_one(); // as if the device worked meanwhile
    emu_group *g = comm->group;
    if (comm->failed) return *state = ncclSystemError, ncclSuccess;
    const int ends = comm->finalized && (emu_kernels_of(comm, 0) || *comm->graphs);
    *state = emu_can_call(comm) && !ends ? ncclSuccess : ncclInProgress;
    if (g && g->split_count[comm->rank] && g->splits[g->split_count[comm->rank] - 1].arrived < g->size)
        *state = ncclInProgress;
    for (int i = 0; g && i < comm->windows; i++)
        if (g->windows[i].first < g->size) *state = ncclInProgress;
    return ncclSuccess;
}
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
// A window is a number, of memory that ncclMemAlloc gave; registered when all ranks have come.
enum { EMU_WINDOW_ALIGNMENT = 4096 };
struct emu_nccl_block {
    void *allocation;
    size_t bytes;
};
static std::map<char *, emu_nccl_block> &emu_nccl_memory = *new std::map<char *, emu_nccl_block>();
ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
    void *p;
    if (cudaMalloc(&p, bytes + EMU_WINDOW_ALIGNMENT)) return ncclUnhandledCudaError;
    *memory = (char *)p + (EMU_WINDOW_ALIGNMENT - (uintptr_t)p % EMU_WINDOW_ALIGNMENT) % EMU_WINDOW_ALIGNMENT;
    emu_lock hold;
    return emu_nccl_memory[(char *)*memory] = {p, bytes}, ncclSuccess;
}
ncclResult_t ncclMemFree(void *memory) {
    void *p;
    {
        emu_lock hold;
        if (emu_open_windows[memory]) emu_die("memory is freed that is in an open window");
        auto found = emu_nccl_memory.find((char *)memory);
        if (found == emu_nccl_memory.end()) return ncclInvalidArgument;
        p = found->second.allocation;
        emu_nccl_memory.erase(found);
    }
    return cudaFree(p) ? ncclUnhandledCudaError : ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window, int) {
    emu_lock hold;
    auto found = emu_nccl_memory.upper_bound((char *)memory);
    std::pair<int, size_t> &w = comm->group->windows[comm->windows];
    if (found == emu_nccl_memory.begin()) return ncclInvalidArgument;
    const size_t offset = (size_t)((char *)memory - (--found)->first);
    if (offset + bytes > found->second.bytes || offset % EMU_WINDOW_ALIGNMENT ||
        (w.first && w.second != bytes))
        return ncclInvalidArgument;
    if (emu_unsafe()) return ncclUnhandledCudaError; // it allocates
    w.first++, w.second = bytes;
    comm->window.push_back({(const char *)memory, bytes});
    emu_open_windows[memory]++;
    return *window = (ncclWindow_t)(uintptr_t)++comm->windows, ncclInProgress;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    emu_lock hold;
    if (emu_unsafe()) return ncclUnhandledCudaError; // it unmaps
    const size_t i = (size_t)(uintptr_t)window - 1;
    if (i >= comm->window.size() || !comm->window[i].first) return ncclInvalidArgument;
    emu_open_windows[comm->window[i].first]--;
    return comm->window[i].first = NULL, ncclSuccess;
}
#endif
ncclResult_t ncclCommCount(const ncclComm_t comm, int *n) { return *n = comm->group->size, ncclSuccess; }
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    emu_lock hold;
    if (!emu_can_call(comm)) return ncclInvalidArgument;
    if (emu_kernels_of(comm, 0)) return ncclInvalidUsage; // "Otherwise, it might cause a deadlock"
    if (emu_unsafe()) return ncclUnhandledCudaError;      // it allocates
    emu_group *g = comm->group;
    emu_group::split &s = g->splits[g->split_count[comm->rank]++];
    s.wanted[comm->rank] = {color, key}, s.arrived++;
    *out = s.made[comm->rank] = color == NCCL_SPLIT_NOCOLOR ? NULL : emu_new_communicator(config);
    if (*out) (*out)->order = comm->order;
    if (*out && !(config && config->splitShare == 1)) (*out)->order.reset(new emu_launch_order());
    if (s.arrived < g->size) return ncclInProgress;
    std::map<int, std::vector<std::pair<int, int>>> members; // color: (key, rank)
    for (auto &w : s.wanted)
        if (w.second.first >= 0) members[w.second.first].push_back({w.second.second, w.first});
    for (auto &m : members) {
        std::sort(m.second.begin(), m.second.end());
        emu_group *part = emu_new_group();
        emu_groups[(uint64_t)(uintptr_t)part] = part; // kept to the end
        part->size = part->joined = (int)m.second.size();
        for (size_t i = 0; i < m.second.size(); i++) {
            ncclComm *c = s.made[m.second[i].second];
            c->rank = (int)i, c->group = part;
        }
    }
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    emu_lock hold;
    if (!emu_can_call(comm)) return ncclInvalidArgument;
    comm->finalized = 1;
    return emu_kernels_of(comm, 0) || *comm->graphs ? ncclInProgress : ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    emu_lock hold;
    if (emu_kernels_of(comm, 0) || *comm->graphs) return ncclInvalidUsage; // after ncclCommFinalize has ended
    return emu_forget(comm), ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { // its kernels end, and it waits for that, in a group at its end
    emu_lock hold;
    emu_kernels_of(comm, 1);
    emu_aborts.push_back(comm);
    if (!emu_group_depth) emu_end_aborts();
    return ncclSuccess;
}
ncclResult_t ncclGetVersion(int *version) { return *version = emu_nccl_version_now, ncclSuccess; }
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t, ncclComm_t comm) {
    const int number = 100 + (int)comm->scales.size();
    comm->scales[number] = emu_get_element(scalar, type, 0);
    return *op = (ncclRedOp_t)number, ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclGroupStart(void) { return emu_group_depth++, ncclSuccess; }
ncclResult_t ncclGroupEnd(void) {
    if (--emu_group_depth) return ncclSuccess;
    {
        emu_lock hold;
        emu_end_aborts();
    }
    return emu_group_launch();
}
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
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
ncclResult_t ncclAlltoAll(const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c,
                          cudaStream_t stream) {
    return emu_exchange_blocks(c, EMU_ALL_TO_ALL, s, r, n, t, 0, stream);
}
ncclResult_t ncclGather(const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                        cudaStream_t stream) {
    return emu_exchange_blocks(c, EMU_GATHER, s, r, n, t, root, stream);
}
ncclResult_t ncclScatter(const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                         cudaStream_t stream) {
    return emu_exchange_blocks(c, EMU_SCATTER, s, r, n, t, root, stream);
}
#endif
} // extern "C"

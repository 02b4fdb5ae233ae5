// emu_trace.h - what may run at the same time on an emulated GPU; a part of emu.cpp.
//
// A piece of work comes after the piece before it on its stream, after the event that it waits for, and after
// what the host had waited for when it enqueued it. Two pieces overlap if neither comes after the other, on
// any machine. Work of graphs is not traced.
struct emu_traced {
    const char *what; // NULL: an event
    CUstream_st *stream;
    std::vector<uint64_t> after;
};
static int emu_tracing;
static std::map<uint64_t, emu_traced> &emu_traced_work = *new std::map<uint64_t, emu_traced>(); // by number
static std::map<const emu_times *, uint64_t> &emu_traced_events =
    *new std::map<const emu_times *, uint64_t>();
static thread_local std::vector<uint64_t> emu_host_after;

void emu_trace(int on) {
    emu_lock hold;
    emu_tracing = on;
    if (!on) return;
    emu_traced_work.clear(), emu_traced_events.clear();
}
// The caller holds the mutex.
static void emu_trace_add(const CUstream_st *s, const emu_op &op) { // s->newest is of what comes before it
    if (!emu_tracing) return;
    emu_traced t = {op.record || op.wait ? NULL : op.what, (CUstream_st *)(uintptr_t)s, emu_host_after};
    t.after.push_back(s->newest);
    if (op.wait && emu_traced_events.count(op.wait)) t.after.push_back(emu_traced_events[op.wait]);
    if (op.record) emu_traced_events[op.record] = op.id;
    emu_traced_work[op.id] = t;
}
static void emu_trace_host(uint64_t number) { // this thread has seen that it is done
    if (emu_tracing && (emu_host_after.empty() || emu_host_after.back() != number))
        emu_host_after.push_back(number);
}
static int emu_comes_after(uint64_t number, uint64_t first, std::set<uint64_t> *seen) {
    if (number == first) return 1;
    auto found = emu_traced_work.find(number);
    if (number < first || found == emu_traced_work.end() || !seen->insert(number).second) return 0;
    for (uint64_t n : found->second.after)
        if (emu_comes_after(n, first, seen)) return 1;
    return 0;
}
int emu_overlaps(cudaStream_t a, const char *what_a, cudaStream_t b, const char *what_b) {
    emu_lock hold;
    int count = 0;
    for (const auto &x : emu_traced_work) {
        int found = 0;
        if (x.second.stream != a || !x.second.what || strcmp(x.second.what, what_a)) continue;
        for (const auto &y : emu_traced_work) {
            std::set<uint64_t> seen;
            if (found || y.second.stream != b || !y.second.what || strcmp(y.second.what, what_b)) continue;
            found = !emu_comes_after(std::max(x.first, y.first), std::min(x.first, y.first), &seen);
        }
        count += found;
    }
    return count;
}
int emu_traced_count(cudaStream_t stream, const char *what) {
    emu_lock hold;
    int count = 0;
    for (const auto &x : emu_traced_work)
        count += x.second.stream == stream && x.second.what && !strcmp(x.second.what, what);
    return count;
}

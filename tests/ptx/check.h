// check.h - the state of a block that runs, and the rules of each access. A part of ptx.cpp.
//
// Global memory: a live allocation that this device can access, an address that is a multiple of the access's
// size, bytes that were written; no two threads at the same bytes without a barrier between them, if one
// writes; blocks have no barrier. Shared memory: the same. Time is a number that each barrier raises; each
// two bytes of shared memory, and each word of global memory, have the times of the newest write and read.
// Only bar.sync, for the block, and bar.warp.sync, for its lanes, order accesses; shfl.sync does not. What
// cp.async copies is nobody's until its thread has waited.

struct ptx_touch {
    uint32_t written, read;  // when
    uint16_t writer, reader; // threads; or PTX_SEVERAL + a warp, or PTX_MANY; a writer's copy: PTX_COPY
};
enum { PTX_COPY = 0x8000, PTX_SEVERAL = 0x4000, PTX_MANY = 0xFFFF };
struct ptx_copy { // by cp.async, under way
    uint32_t to, bytes, there;
    uint64_t from;
};
struct ptx_block;
struct ptx_warp {
    char *registers;
    const unsigned char *constants;
    ptx_block *block;
    int number;                          // in its block
    uint32_t alive, at_meet, at_barrier; // lanes
    uint32_t carry;
    int32_t pc[PTX_LANES];
    uint32_t asked[PTX_LANES];  // for which lanes each one waits
    uint32_t synced[PTX_LANES]; // time of the latest bar.warp.sync
    uint8_t part[PTX_LANES];    // lanes of the same part run together
    unsigned char *local;
    std::vector<ptx_copy> copies[PTX_LANES];
};
struct ptx_block {
    const ptx_kernel *kernel;
    const unsigned char *parameters;
    uint32_t index[3];
    std::unique_ptr<unsigned char[]> shared, shared_written;
    size_t shared_bytes;
    std::vector<ptx_touch> touches;         // kept from block to block: older times are before all barriers
    uint32_t time, launched, begun, synced; // now; when the grid, the block began; the latest bar.sync
    bool atomic;                            // the access of just now is
    std::vector<ptx_warp> warps;
    std::vector<std::vector<char>> memory; // of the warps' registers and local arrays
};
static ptx_file *ptx_text; // the file that is run

static std::string ptx_line(int line) {
    const char *p = ptx_text->memory.c_str();
    for (int k = 1; k < line && p; k++) p = strchr(p, '\n'), p = p ? p + 1 : NULL;
    if (!p) return "";
    while (*p == ' ' || *p == '\t') p++;
    std::string text(p, strcspn(p, "\n"));
    for (char &c : text) c = c == '\t' ? ' ' : c;
    return text.substr(0, 200);
}
[[noreturn]] static void ptx_fault(const ptx_warp &w, const ptx_ins &i, int lane, const std::string &what) {
    const ptx_block &b = *w.block;
    const std::string &source = ptx_text->sources[i.file];
    ptx_die(what + "\n    kernel " + b.kernel->name + ", " + source.substr(source.rfind('/') + 1) + ":" +
            std::to_string(i.source_line) + ", block " + std::to_string(b.index[0]) + " " +
            std::to_string(b.index[1]) + " " + std::to_string(b.index[2]) + ", thread " +
            std::to_string(w.number * PTX_LANES + lane) + "\n    " + ptx_text->path + ":" +
            std::to_string(i.line) + ": " + ptx_line(i.line));
}
static std::string ptx_hex(uint64_t x) {
    char text[30];
    snprintf(text, sizeof text, "%#llx", (unsigned long long)x);
    return text;
}

// ---- who was here before

// Is what a thread did at a time over for this lane, by a barrier between them?
static bool ptx_is_over(const ptx_warp &w, int lane, uint32_t when, unsigned thread) {
    if (when < w.block->synced) return true;
    const int other = (int)(thread & (PTX_SEVERAL - 1));
    if (thread == PTX_MANY) return false;
    if (thread & PTX_SEVERAL) return other == w.number && when < w.synced[lane];
    return other / PTX_LANES == w.number && when < w.synced[lane] && when < w.synced[other % PTX_LANES];
}
static void ptx_race(const ptx_warp &w, const ptx_ins &i, int lane, const char *what, unsigned thread) {
    const std::string who = thread == PTX_MANY     ? "threads of several warps"
                            : thread & PTX_SEVERAL ? "threads of warp " + std::to_string(thread % PTX_SEVERAL)
                                                   : "thread " + std::to_string(thread & ~(unsigned)PTX_COPY);
    ptx_fault(w, i, lane, "no barrier between this and " + std::string(what) + " of " + who);
}
// Who has read, with this thread.
static uint16_t ptx_readers(const ptx_warp &w, unsigned me, unsigned reader) {
    const int warp = (int)(reader & PTX_SEVERAL ? reader % PTX_SEVERAL : reader / PTX_LANES);
    if (reader == me) return (uint16_t)me;
    return (uint16_t)(reader == PTX_MANY || warp != w.number ? (int)PTX_MANY : PTX_SEVERAL + w.number);
}

// ---- global memory

// The memory of a .global array of the file that holds these bytes; NULL: none.
static bool ptx_in_globals(const unsigned char *p, size_t n) {
    for (const auto &g : ptx_text->globals)
        if (p >= g.second->data() && p + n <= g.second->data() + g.second->size()) return true;
    return false;
}
static bool ptx_all_written(const unsigned char *flags, size_t n) {
    uint64_t x[2] = {0x0101010101010101u, 0x0101010101010101u};
    memcpy(x, flags, n);
    return (x[0] & x[1]) == 0x0101010101010101u;
}
// What libraries write is not noted. Memory that was never written is of 0xFF.
static bool ptx_never_written(unsigned char *flags, const unsigned char *p, size_t n) {
    for (size_t k = 0; k < n; k++)
        if (!flags[k] && p[k] != 0xFF) return memset(flags, 1, n), false;
    return true;
}
// Words of the memory of all devices. What one block writes, no other block of the same launch reads or
// writes.
struct ptx_word {
    uint32_t written, read;        // when
    uint16_t writer[4], reader[4]; // threads of the block, for each byte
    uint8_t writes, reads, before; // which bytes; those that other blocks have read
};
static ptx_word *ptx_word_of(const unsigned char *p) {
    static const unsigned char *base;
    static ptx_word *words;
    if (!words) {
        size_t n;
        base = (const unsigned char *)emu_device_memory(&n);
        words = (ptx_word *)mmap(NULL, n / 4 * sizeof(ptx_word), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (words == MAP_FAILED) ptx_die("no address space");
    }
    return words + (p - base) / 4;
}
// bytes: a mask of those of the word that are accessed.
static void ptx_check_word(const ptx_warp &w, const ptx_ins &i, int lane, const ptx_word *t, unsigned bytes,
                           bool writes) {
    const ptx_block &b = *w.block;
    const unsigned me = (unsigned)(w.number * PTX_LANES + lane);
    if (t->writes & bytes && t->written < b.begun)
        ptx_fault(w, i, lane, "another block of the grid has written to this memory");
    if (writes && t->before & bytes) ptx_fault(w, i, lane, "another block of the grid has read this memory");
    for (int k = 0; k < 4; k++) {
        if (t->writes & bytes & 1u << k && t->writer[k] != me &&
            !ptx_is_over(w, lane, t->written, t->writer[k]))
            ptx_race(w, i, lane, "a write", t->writer[k]);
        if (writes && t->reads & bytes & 1u << k && t->reader[k] != me &&
            !ptx_is_over(w, lane, t->read, t->reader[k]))
            ptx_race(w, i, lane, "a read", t->reader[k]);
    }
}
static inline void ptx_touch_word(const ptx_warp &w, const ptx_ins &i, int lane, ptx_word *t, unsigned bytes,
                                  bool writes) {
    const ptx_block &b = *w.block;
    const unsigned me = (unsigned)(w.number * PTX_LANES + lane);
    if (t->written < b.launched) t->writes = 0;
    if (t->read < b.launched) t->reads = t->before = 0;
    if (t->read < b.begun) t->before |= t->reads, t->reads = 0;
    if ((t->writes | (writes ? t->reads | t->before : 0)) & bytes)
        ptx_check_word(w, i, lane, t, bytes, writes);
    for (int k = 0; k < 4; k++) {
        if (!(bytes >> k & 1)) continue;
        if (writes)
            t->writer[k] = (uint16_t)me;
        else
            t->reader[k] =
                t->reads >> k & 1 && t->read >= b.synced ? ptx_readers(w, me, t->reader[k]) : (uint16_t)me;
    }
    (writes ? t->writes : t->reads) |= (uint8_t)bytes;
    (writes ? t->written : t->read) = b.time;
}
static void ptx_touch_global(const ptx_warp &w, const ptx_ins &i, int lane, const unsigned char *p, size_t n,
                             bool writes) {
    if (w.block->atomic) return;
    ptx_word *t = ptx_word_of(p);
    if (n < 4) return ptx_touch_word(w, i, lane, t, ((1u << n) - 1) << (uintptr_t)p % 4, writes);
    for (size_t k = 0; k < n / 4; k++) ptx_touch_word(w, i, lane, t + k, 15, writes);
}
static inline unsigned char *ptx_global(const ptx_warp &w, const ptx_ins &i, int lane, uint64_t address,
                                        size_t n, bool writes) {
    unsigned char *p = (unsigned char *)(uintptr_t)address;
    if (address % n) ptx_fault(w, i, lane, "the address " + ptx_hex(address) + " is not aligned");
    if (!emu_is_accessible(p, n)) {
        if (!writes && ptx_in_globals(p, n)) return p;
        ptx_fault(w, i, lane, "memory is accessed out of bounds: " + ptx_hex(address));
    }
    unsigned char *flags = emu_written(p);
    if (!flags) return p;
    ptx_touch_global(w, i, lane, p, n, writes);
    if (writes)
        memset(flags, 1, n);
    else if (!ptx_all_written(flags, n) && ptx_never_written(flags, p, n))
        ptx_fault(w, i, lane, "memory is read that was never written: " + ptx_hex(address));
    return p;
}

// ---- shared memory

static void ptx_touch_two(const ptx_warp &w, const ptx_ins &i, int lane, ptx_touch *t, bool writes) {
    const unsigned me = (unsigned)(w.number * PTX_LANES + lane);
    if (t->writer & PTX_COPY)
        ptx_fault(w, i, lane,
                  "cp.async: a thread has not waited for its copies, and this accesses one of thread " +
                      std::to_string(t->writer & ~PTX_COPY));
    if (t->writer != me && !ptx_is_over(w, lane, t->written, t->writer))
        ptx_race(w, i, lane, "a write", t->writer);
    if (writes) {
        if (t->reader != me && !ptx_is_over(w, lane, t->read, t->reader))
            ptx_race(w, i, lane, "a read", t->reader);
        t->writer = (uint16_t)me, t->written = w.block->time;
        return;
    }
    t->reader = t->read < w.block->synced ? (uint16_t)me : ptx_readers(w, me, t->reader);
    t->read = w.block->time;
}
static inline unsigned char *ptx_shared(const ptx_warp &w, const ptx_ins &i, int lane, uint64_t address,
                                        size_t n, bool writes) {
    ptx_block &b = *w.block;
    if (address % n)
        ptx_fault(w, i, lane, "shared memory: the address " + ptx_hex(address) + " is not aligned");
    if (address > b.shared_bytes || address + n > b.shared_bytes)
        ptx_fault(w, i, lane,
                  ptx_hex(address) + " is not in the block's shared memory of " +
                      std::to_string(b.shared_bytes) + " bytes");
    if (n < 2) ptx_fault(w, i, lane, "shared memory is accessed by bytes, which ptx does not know");
    if (writes)
        memset(b.shared_written.get() + address, 1, n);
    else if (!ptx_all_written(b.shared_written.get() + address, n))
        ptx_fault(w, i, lane, "shared memory is read that was never written: " + ptx_hex(address));
    for (size_t k = 0; k < n; k += 2) ptx_touch_two(w, i, lane, &b.touches[(address + k) / 2], writes);
    return b.shared.get() + address;
}

// ---- local arrays and parameters

// nvcc reads arrays in words of 16 bytes, also before all of them are written: that is no mistake.
static inline unsigned char *ptx_local(const ptx_warp &w, const ptx_ins &i, int lane, uint64_t address,
                                       size_t n) {
    const size_t all = w.block->kernel->local_bytes;
    if (address % n || address > all - n) ptx_fault(w, i, lane, "a local array is accessed out of bounds");
    return w.local + (size_t)lane * all + address;
}
static inline unsigned char *ptx_parameter_at(const ptx_warp &w, const ptx_ins &i, int lane, uint64_t address,
                                              size_t n, bool writes) {
    if (writes || address % n || address + n > w.block->kernel->parameter_bytes)
        ptx_fault(w, i, lane, "parameters are accessed out of bounds, or written");
    return (unsigned char *)(uintptr_t)w.block->parameters + address;
}
template <ptx_space S>
static inline unsigned char *ptx_memory(const ptx_warp &w, const ptx_ins &i, int lane, uint64_t address,
                                        size_t n, bool writes) {
    switch (S) {
    case PTX_GLOBAL: return ptx_global(w, i, lane, address, n, writes);
    case PTX_SHARED: return ptx_shared(w, i, lane, address, n, writes);
    case PTX_LOCAL: return ptx_local(w, i, lane, address, n);
    default: return ptx_parameter_at(w, i, lane, address, n, writes);
    }
}

// ---- asynchronous copies

static void ptx_begin_copy(ptx_warp &w, const ptx_ins &i, int lane, const ptx_copy &c) {
    ptx_block &b = *w.block;
    if (c.to % c.bytes || c.from % c.bytes) ptx_fault(w, i, lane, "cp.async: an address is not aligned");
    if (c.there > c.bytes) ptx_fault(w, i, lane, "cp.async: it has fewer bytes than it takes");
    ptx_shared(w, i, lane, c.to, c.bytes, true);
    if (c.there) ptx_global(w, i, lane, c.from, c.there, false);
    for (uint32_t k = 0; k < c.bytes; k += 2) b.touches[(c.to + k) / 2].writer |= PTX_COPY;
    memset(b.shared.get() + c.to, 0xFF, c.bytes);
    w.copies[lane].push_back(c);
}
static void ptx_end_copies(ptx_warp &w, int lane) {
    ptx_block &b = *w.block;
    for (const ptx_copy &c : w.copies[lane]) {
        memset(b.shared.get() + c.to, 0, c.bytes);
        if (c.there) memcpy(b.shared.get() + c.to, (const void *)(uintptr_t)c.from, c.there);
        for (uint32_t k = 0; k < c.bytes; k += 2) {
            ptx_touch &t = b.touches[(c.to + k) / 2];
            t.writer &= (uint16_t)~PTX_COPY, t.written = b.time;
        }
    }
    w.copies[lane].clear();
}

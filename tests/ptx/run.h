// run.h - runs the blocks of a grid, one after the other. A part of ptx.cpp.
//
// Lanes with the same next instruction run together. In lockstep the lanes that are furthest behind run
// first, so that they join the others where branches come together again. That is the kindest schedule. At
// random (the emulation's order) lanes are dealt to parts, of one lane or of several; each part runs on its
// own, as far as chance lets it, between the instructions at which lanes wait for each other.

struct ptx_run { // of the lanes that run now
    uint32_t mask;
    int32_t pc, limit; // at this instruction other lanes may join
    int budget;        // branches, before others run
};

// The lanes that run next; false: all wait, or have ended.
static bool ptx_pick(ptx_warp &w, bool random, ptx_run *r) {
    const uint32_t ready = w.alive & ~w.at_meet & ~w.at_barrier;
    if (!ready) return false;
    int chosen = __builtin_ctz(ready);
    r->limit = INT32_MAX, r->mask = 0;
    if (random) {
        for (int skip = (int)(emu_next_random() % (uint64_t)__builtin_popcount(ready)); skip--;) {
            uint32_t rest = ready & ~((2u << chosen) - 1);
            chosen = __builtin_ctz(rest);
        }
    } else
        for (uint32_t k = ready; k; k &= k - 1)
            if (w.pc[__builtin_ctz(k)] < w.pc[chosen]) chosen = __builtin_ctz(k);
    r->pc = w.pc[chosen];
    for (uint32_t k = ready; k; k &= k - 1) {
        const int l = __builtin_ctz(k);
        if (w.pc[l] == r->pc && (!random || w.part[l] == w.part[chosen]))
            r->mask |= 1u << l;
        else if (!random)
            r->limit = std::min(r->limit, w.pc[l]);
    }
    r->budget = random ? (int)(emu_next_random() % 32) : INT32_MAX;
    return true;
}
static void ptx_keep(ptx_warp &w, const ptx_run &r) { // where the lanes are
    for (uint32_t k = r.mask; k; k &= k - 1) w.pc[__builtin_ctz(k)] = r.pc;
}
static uint32_t ptx_asked(const ptx_warp &w, const ptx_ins &i, int lane) {
    return i.kind == PTX_WHOLE ? ~0u : ptx_in<uint32_t>(w, w.block->kernel->lists[(size_t)i.list + 1])[lane];
}
// The lanes that wait as this one execute the instruction at which they wait, when all are there, or have
// ended.
static void ptx_try_all_here(ptx_warp &w, int lane) {
    const int32_t pc = w.pc[lane];
    const uint32_t asked = w.asked[lane];
    const ptx_ins &i = w.block->kernel->code[(size_t)pc];
    uint32_t here = 0;
    for (uint32_t k = w.at_meet; k; k &= k - 1) {
        const int l = __builtin_ctz(k);
        if (w.pc[l] == pc && w.asked[l] == asked) here |= 1u << l;
    }
    if (i.kind == PTX_WHOLE && w.alive != ~0u)
        ptx_fault(w, i, lane, "an instruction of a whole warp, but it is not whole");
    if (asked & w.alive & ~here) return;
    i.run(w, i, here);
    w.at_meet &= ~here;
    for (; here; here &= here - 1) w.pc[__builtin_ctz(here)] = pc + 1;
}
static void ptx_meet(ptx_warp &w, const ptx_ins &i, int32_t pc, uint32_t mask) {
    for (uint32_t k = mask; k; k &= k - 1) {
        const int l = __builtin_ctz(k);
        w.pc[l] = pc, w.asked[l] = ptx_asked(w, i, l);
        if (!(w.asked[l] >> l & 1)) ptx_fault(w, i, l, "a lane waits for others, and not for itself");
    }
    w.at_meet |= mask;
    for (uint32_t k = mask; k; k &= k - 1) // those with the same mask meet at once
        if (w.at_meet >> __builtin_ctz(k) & 1 && w.pc[__builtin_ctz(k)] == pc)
            ptx_try_all_here(w, __builtin_ctz(k));
}
static void ptx_end(ptx_warp &w, const ptx_ins &i, uint32_t mask) {
    for (uint32_t k = mask; k; k &= k - 1)
        if (!w.copies[__builtin_ctz(k)].empty())
            ptx_fault(w, i, __builtin_ctz(k), "cp.async: a thread ends and has not waited for its copies");
    w.alive &= ~mask;
    const uint32_t waited = w.at_meet; // some may have waited for these lanes alone
    for (uint32_t k = waited; k; k &= k - 1)
        if (w.at_meet >> __builtin_ctz(k) & 1) ptx_try_all_here(w, __builtin_ctz(k));
}
// A branch, or what lanes wait for. Returns false when other lanes are to be picked.
static bool ptx_leave(ptx_warp &w, const ptx_ins &i, uint32_t taken, ptx_run *r) {
    const uint32_t rest = r->mask & ~taken;
    if (!taken) return r->pc++, true;
    if (i.kind == PTX_BRANCH && !rest) return r->pc = i.target, --r->budget >= 0;
    const int32_t pc = r->pc;
    r->pc++, r->mask = rest;
    ptx_keep(w, *r);
    r->mask = taken, r->pc = pc;
    switch (i.kind) {
    case PTX_BRANCH: r->pc = i.target, ptx_keep(w, *r); break;
    case PTX_EXIT: ptx_end(w, i, taken); break;
    case PTX_BARRIER: ptx_keep(w, *r), w.at_barrier |= taken; break;
    default: ptx_meet(w, i, pc, taken);
    }
    return false;
}
// Runs a warp until all its lanes wait or have ended; at random for so many turns.
static void ptx_run_warp(ptx_warp &w, bool random, int turns) {
    const ptx_ins *code = w.block->kernel->code.data();
    ptx_run r;
    while (turns-- && ptx_pick(w, random, &r))
        for (;;) {
            const ptx_ins &i = code[r.pc];
            uint32_t m = r.mask;
            if (i.predicate != PTX_NONE) {
                const uint32_t p = *ptx_in<uint32_t>(w, i.predicate);
                m &= i.unless ? ~p : p;
            }
            if (i.kind == PTX_PLAIN) {
                if (m) i.run(w, i, m);
                r.pc++;
            } else if (i.kind >= PTX_MEET && i.kind <= PTX_WHOLE && m == ~0u && ptx_asked(w, i, 0) == m) {
                i.run(w, i, m); // the whole warp is here
                r.pc++;
            } else if (!ptx_leave(w, i, m, &r)) {
                if (i.kind == PTX_BRANCH && m == r.mask) ptx_keep(w, r);
                break;
            }
            if (r.pc >= r.limit) {
                ptx_keep(w, r);
                break;
            }
        }
}
[[noreturn]] static void ptx_stuck(const ptx_block &b) {
    std::string where;
    const ptx_warp *w = NULL;
    int lane = 0;
    std::set<int32_t> places;
    bool whole = false;
    for (const ptx_warp &x : b.warps)
        for (uint32_t k = x.alive; k; k &= k - 1) {
            const int l = __builtin_ctz(k);
            w = &x, lane = l, whole |= b.kernel->code[(size_t)x.pc[l]].kind == PTX_WHOLE;
            if (places.insert(x.pc[l]).second && places.size() < 5) {
                const int line = b.kernel->code[(size_t)x.pc[l]].line;
                where += "\n    thread " + std::to_string(x.number * PTX_LANES + l) + " waits at line " +
                         std::to_string(line) + ": " + ptx_line(line);
            }
        }
    ptx_fault(*w, b.kernel->code[(size_t)w->pc[lane]], lane,
              (whole ? "lanes of a warp are at different instructions"
                     : "threads wait for each other at different places of a kernel") +
                  where);
}
// When all threads that have not ended wait at one barrier, they go on.
static bool ptx_open_barrier(ptx_block &b) {
    int32_t pc = -1;
    for (const ptx_warp &w : b.warps) {
        if (w.alive & ~w.at_barrier) ptx_stuck(b);
        for (uint32_t k = w.at_barrier; k; k &= k - 1) {
            const int32_t at = w.pc[__builtin_ctz(k)];
            if (pc >= 0 && at != pc) ptx_stuck(b);
            pc = at;
        }
    }
    b.synced = ++b.time;
    for (ptx_warp &w : b.warps) {
        for (uint32_t k = w.at_barrier; k; k &= k - 1) w.pc[__builtin_ctz(k)]++;
        w.at_barrier = 0;
    }
    return pc >= 0;
}
static void ptx_begin_warp(ptx_block &b, int number, const ptx_grid &g, bool random) {
    ptx_warp &w = b.warps[(size_t)number];
    const ptx_kernel &k = *b.kernel;
    const int threads = (int)(g.block[0] * g.block[1] * g.block[2]),
              lanes = std::min(threads - number * PTX_LANES, 32);
    w.alive = lanes == 32 ? ~0u : (1u << lanes) - 1, w.at_meet = w.at_barrier = w.carry = 0;
    const uint64_t chance = random ? emu_next_random() : 0;
    const unsigned parts = chance % 4 == 0 ? 1 : chance % 4 == 1 ? 2 : chance % 4 == 2 ? 5 : 32;
    for (int l = 0; l < PTX_LANES; l++) {
        w.pc[l] = 0, w.synced[l] = b.time;
        w.part[l] = (uint8_t)(parts == 32 ? (uint64_t)l : random ? emu_next_random() % parts : 0);
    }
    if (k.local_bytes) memset(w.local, 0xFF, PTX_LANES * k.local_bytes);
    for (const ptx_special &s : k.specials)
        for (int l = 0; l < PTX_LANES; l++) {
            const uint32_t t = (uint32_t)(number * PTX_LANES + l);
            const uint32_t thread[] = {t % g.block[0], t / g.block[0] % g.block[1],
                                       t / g.block[0] / g.block[1]};
            const int axis = s.name.back() - 'x';
            ptx_out<uint32_t>(w, s.at)[l] = s.name == "%laneid"                ? (uint32_t)l
                                            : s.name.compare(0, 2, "%t") == 0  ? thread[axis]
                                            : s.name.compare(0, 3, "%nt") == 0 ? g.block[axis]
                                            : s.name.compare(0, 2, "%c") == 0  ? b.index[axis]
                                                                               : g.grid[axis];
        }
}
static void ptx_run_block(ptx_block &b, const ptx_grid &g, int order) {
    const int n = (int)b.warps.size();
    b.begun = b.synced = ++b.time;
    if (b.shared_bytes)
        memset(b.shared.get(), 0xFF, b.shared_bytes), memset(b.shared_written.get(), 0, b.shared_bytes);
    for (int k = 0; k < n; k++) ptx_begin_warp(b, k, g, order == 2);
    for (int left = 1; left;) {
        for (int ready = 1; ready;) {
            ready = 0;
            for (int k = 0; k < n; k++) {
                const int at = order == 1   ? n - 1 - k
                               : order == 2 ? (int)(emu_next_random() % (uint64_t)n)
                                            : k;
                ptx_run_warp(b.warps[(size_t)at], order == 2,
                             order == 2 ? 1 + (int)(emu_next_random() % 8) : -1);
            }
            for (const ptx_warp &w : b.warps) ready |= (w.alive & ~w.at_meet & ~w.at_barrier) != 0;
        }
        left = 0;
        for (const ptx_warp &w : b.warps) left |= w.alive != 0;
        if (left) ptx_open_barrier(b);
    }
}
// Registers are not cleared from block to block.
static void ptx_make_block(ptx_block *b, const ptx_kernel &k, const ptx_grid &g,
                           const ptx_arguments &arguments) {
    const size_t threads = (size_t)g.block[0] * g.block[1] * g.block[2],
                 n = (threads + PTX_LANES - 1) / PTX_LANES;
    const size_t local = PTX_LANES * ((k.local_bytes + 15) / 16 * 16), bytes_taken = k.registers + local + 64;
    b->launched = ++b->time;
    b->kernel = &k, b->parameters = arguments.bytes.data();
    b->shared_bytes = k.shared_bytes + g.shared;
    b->shared.reset(new unsigned char[b->shared_bytes + 1]),
        b->shared_written.reset(new unsigned char[b->shared_bytes + 1]);
    if (b->touches.size() < b->shared_bytes / 2 + 1) b->touches.resize(b->shared_bytes / 2 + 1);
    b->warps.resize(n);
    if (b->memory.size() < n) b->memory.resize(n);
    for (size_t i = 0; i < n; i++) {
        ptx_warp &w = b->warps[i];
        if (b->memory[i].size() < bytes_taken) b->memory[i].resize(bytes_taken);
        w.registers = b->memory[i].data() + (64 - (uintptr_t)b->memory[i].data() % 64) % 64;
        w.local = (unsigned char *)w.registers + k.registers;
        w.constants = k.constants.data(), w.block = b, w.number = (int)i;
    }
}

// emu.cpp - test-only definitions of the CUDA runtime calls that par_cuda.cuh makes. See emu.h.
#include "emu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

// Of ASan, if the program has it: this file is compiled once, without, for all. It accesses device memory by
// memcpy and its like, which ASan replaces, or says so by emu_access.
extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void *p, size_t n);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *p, size_t n);
__attribute__((weak)) void *__asan_region_is_poisoned(void *p, size_t n);
__attribute__((weak)) void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *size);
}

static void emu_die(const char *what) {
    fprintf(stderr, "cuda_emu: %s\n", what);
    abort();
}
static void emu_poison(const void *p, size_t n) {
    if (__asan_poison_memory_region) __asan_poison_memory_region(p, n);
}
static void emu_unpoison(const void *p, size_t n) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(p, n);
}
template <class T> static T *emu_access(T *p, size_t n = 1) {
    if ((uintptr_t)p % alignof(T)) emu_die("a library accesses memory that is not aligned");
    if (__asan_region_is_poisoned && __asan_region_is_poisoned((void *)(uintptr_t)p, n * sizeof *p))
        emu_die("a library accesses memory out of bounds");
    return p;
}

// ---- random choices

static std::atomic<uint64_t> emu_state{88172645463325252u};
static std::atomic<int> emu_thread_order{EMU_FORWARD}, emu_failing{0};
static std::atomic<uint64_t> emu_launch_count{0};
static std::atomic<size_t> emu_sampled_blocks{0};
static uint64_t emu_random(void) { // xorshift; races between ranks only add to the chance
    uint64_t x = emu_state.load(std::memory_order_relaxed);
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    emu_state.store(x, std::memory_order_relaxed);
    return x * 0x2545F4914F6CDD1Du;
}
void emu_seed(uint64_t seed, emu_order threads) {
    emu_state = seed * 0x9E3779B97F4A7C15u + 88172645463325252u, emu_thread_order = threads;
}
uint64_t emu_launches(void) { return emu_launch_count; }
void emu_fail_launches(int after) { emu_failing = after; }
uint64_t emu_next_random(void) { return emu_random(); }
int emu_current_order(void) { return emu_thread_order; }
size_t emu_current_sample(void) { return emu_sampled_blocks; }
void emu_sample(size_t blocks) { emu_sampled_blocks = blocks; }

// ---- devices

enum { EMU_MAX_DEVICES = 16 };
struct CUmemPoolHandle_st { // the default pool of a device; readers: who can access its memory
    int readers[EMU_MAX_DEVICES];
};
static CUmemPoolHandle_st emu_pools[EMU_MAX_DEVICES];
static int emu_enabled[EMU_MAX_DEVICES][EMU_MAX_DEVICES]; // the first can access the second's memory
static int emu_apart[EMU_MAX_DEVICES][EMU_MAX_DEVICES];   // there is no way between them
static std::atomic<unsigned> emu_context_set{0};  // bits: of the devices on which this process has a context
static int emu_initialized, emu_used_before_fork; // by a call; CUDA cannot be used in this process
static thread_local int emu_device;
static thread_local cudaError_t emu_last;
static std::atomic<int> emu_device_count{0};
void emu_devices(int n) { emu_device_count = n; }
void emu_separate(int a, int b, int apart) { emu_apart[a][b] = emu_apart[b][a] = apart; }
void emu_allow_fork(void) { emu_used_before_fork = 0; }
int emu_contexts(void) { return __builtin_popcount(emu_context_set); }
static void emu_touch(int device) { emu_context_set |= 1u << device, emu_initialized = 1; } // makes a context

// ---- memory
//
// Device memory is one address range, mapped before main so that forked ranks have it at the same addresses;
// each process has a slice of it. It is accessible only while device work runs. Large blocks (workspaces of
// libraries) come from the slice's end and are always accessible, because changing the protection takes time
// for every page.

static const size_t EMU_SLICE = (size_t)512 << 20, EMU_SLICES = 48, EMU_GAP = 256, EMU_LARGE = 2 << 20;
struct emu_times { // of an event, which things in flight keep
    std::atomic<uint64_t> recorded, completed;
    double at, pretended; // pretended: of the stream's work
};
enum { EMU_IPC_EVENTS = 1 << 18 };
enum { EMU_MAPPED = 1 << 12 };
struct emu_mapped { // an allocation that other processes have opened, and how often each one
    std::atomic<uintptr_t> base;
    std::atomic<int> opens[EMU_SLICES];
};
struct emu_header { // shared by processes
    emu_mapped mapped[EMU_MAPPED];
    std::atomic<uint32_t> slices, events;
    std::atomic<int> pids[EMU_SLICES]; // whose slice it is
    emu_times times[EMU_IPC_EVENTS];   // of events that processes share
};
static char *emu_base;
static emu_header *emu_shared_header;
static unsigned char *emu_written_flags;      // a byte for each one of device memory, where PTX runs
static uint64_t emu_fork_group;               // the same in all processes that were forked from one
static size_t emu_slice, emu_used, emu_large; // bytes from its begin, and from its end
struct emu_allocation {
    size_t bytes;
    int device, pool; // pool: by cudaMallocAsync
};
static std::map<char *, emu_allocation> emu_blocks;    // in use, of this process
static int emu_block_count[EMU_MAX_DEVICES][2];        // of each device, of cudaMalloc and of pools
static std::multimap<size_t, char *> emu_free_blocks;  // by size
static std::map<const char *, size_t> emu_host_blocks; // pinned
static pthread_mutex_t emu_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t emu_changed = PTHREAD_COND_INITIALIZER;
static int emu_open, emu_protects = 1;
static int emu_has_device_thread, emu_ending;
static std::map<void *, std::pair<int, size_t>> emu_opened; // of other processes: how often, bytes

static void emu_take_slice(void) {
    emu_slice = emu_shared_header->slices++, emu_used = emu_large = 0;
    if (emu_slice >= EMU_SLICES) emu_die("more processes than slices of device memory");
    emu_shared_header->pids[emu_slice] = (int)getpid();
}
// Has the process of a slice not ended? What it had open is closed when it ends (CUDA runtime's manual).
static int emu_lives(size_t slice) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", emu_shared_header->pids[slice].load());
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *state = strrchr(text, ')'); // then: a space, and Z or X when it has ended
    return state && state[1] && !strchr("ZX", state[2]);
}
static size_t emu_slice_of(const void *p) { return (size_t)((const char *)p - emu_base) / EMU_SLICE; }
static void emu_forked(void) {
    pthread_mutex_init(&emu_mutex, NULL);
    emu_slice = EMU_SLICES; // none yet
    emu_blocks.clear(), emu_free_blocks.clear();
    memset(emu_block_count, 0, sizeof emu_block_count);
    emu_used_before_fork |= emu_initialized, emu_context_set = 0;
    emu_has_device_thread = 0;
}
__attribute__((constructor)) static void emu_begin(void) {
    const int fd = memfd_create("cuda_emu", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(EMU_SLICE * EMU_SLICES))) emu_die("no memory file");
    emu_base = (char *)mmap(NULL, EMU_SLICE * EMU_SLICES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    emu_shared_header = (emu_header *)mmap(NULL, sizeof(emu_header), PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (emu_base == MAP_FAILED || emu_shared_header == MAP_FAILED) emu_die("no address space");
    emu_protects = !getenv("EMU_PROTECT") || atoi(getenv("EMU_PROTECT"));
    if (ptx_is_wanted && ptx_is_wanted())
        emu_written_flags = (unsigned char *)mmap(NULL, EMU_SLICE * EMU_SLICES, PROT_READ | PROT_WRITE,
                                                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (emu_written_flags == MAP_FAILED) emu_die("no address space");
    emu_slice = EMU_SLICES, emu_fork_group = (uint64_t)getpid();
    pthread_atfork(NULL, NULL, emu_forked);
    if (!emu_protects) mprotect(emu_base, EMU_SLICE * EMU_SLICES, PROT_READ | PROT_WRITE);
}
// The caller holds the mutex.
static void emu_set_access(int open) {
    if (emu_protects && emu_used)
        mprotect(emu_base + emu_slice * EMU_SLICE, (emu_used + 4095) / 4096 * 4096,
                 open ? PROT_READ | PROT_WRITE : PROT_NONE);
}
static void emu_memory(int open) {
    emu_open += open ? 1 : -1;
    if (emu_open == open) emu_set_access(open);
}
// Takes new memory from the slice; NULL: the slice is full. The caller holds the mutex.
static char *emu_grow(size_t bytes_taken) {
    char *slice = emu_base + emu_slice * EMU_SLICE, *p = slice + emu_used;
    if (emu_used + emu_large + bytes_taken + 4096 > EMU_SLICE) return NULL;
    if (bytes_taken >= EMU_LARGE) {
        emu_large += (bytes_taken + 4095) / 4096 * 4096;
        p = slice + EMU_SLICE - emu_large;
        mprotect(p, bytes_taken, PROT_READ | PROT_WRITE);
    } else {
        emu_used += bytes_taken;
        if (emu_open) emu_set_access(1); // somebody works, and waits just now
    }
    emu_poison(p, bytes_taken);
    return p;
}
static emu_mapped *emu_mapped_at(const void *base, int add) { // NULL: never opened
    for (int i = 0; i < EMU_MAPPED; i++) {
        emu_mapped *m = &emu_shared_header->mapped[i];
        uintptr_t none = 0;
        if (add && !m->base) m->base.compare_exchange_strong(none, (uintptr_t)base);
        if (m->base == (uintptr_t)base) return m;
        if (!m->base) return NULL;
    }
    emu_die("too many mapped allocations");
    return NULL;
}
static int emu_is_device(const void *p) {
    return (const char *)p >= emu_base && (const char *)p < emu_base + EMU_SLICE * EMU_SLICES;
}
const char *emu_device_memory(size_t *bytes_of_all) {
    return *bytes_of_all = EMU_SLICE * EMU_SLICES, emu_base;
}
unsigned char *emu_written(const void *p) {
    return emu_written_flags && emu_is_device(p) ? emu_written_flags + ((const char *)p - emu_base) : NULL;
}
static void emu_note_written(const void *p, size_t n, int written = 1) {
    if (n && emu_written(p)) memset(emu_written(p), written, n);
}
// A copy of memory that nobody has written is not written, either.
static void emu_move(void *to, const void *from, size_t n) {
    if (!n) return;
    memmove(to, from, n);
    if (emu_written(to) && emu_written(from))
        memmove(emu_written(to), emu_written(from), n);
    else
        emu_note_written(to, n);
}
struct emu_lock {
    emu_lock() { pthread_mutex_lock(&emu_mutex); }
    ~emu_lock() { pthread_mutex_unlock(&emu_mutex); }
};

int emu_mapped_of_dead(void) {
    emu_lock hold;
    int n = 0;
    for (const auto &x : emu_opened) n += !emu_lives(emu_slice_of(x.first));
    return n;
}
static cudaError_t emu_unsafe(void);
static void emu_wait_implicitly(int device, const char *what);
static cudaError_t emu_alloc(void **out, size_t bytes, int device, int pool) {
    emu_lock hold;
    if (emu_used_before_fork) return emu_last = cudaErrorInitializationError;
    if (emu_unsafe()) return emu_last;
    emu_touch(device);
    const size_t bytes_taken = (bytes + 255) / 256 * 256 + EMU_GAP;
    *out = NULL;
    if (emu_slice == EMU_SLICES) emu_take_slice();
    char *p = NULL;
    auto found = emu_free_blocks.find(bytes_taken);
    if (found != emu_free_blocks.end()) {
        p = found->second;
        emu_free_blocks.erase(found);
    } else
        p = emu_grow(bytes_taken);
    if (!p) return cudaErrorMemoryAllocation;
    emu_unpoison(p, bytes);
    emu_blocks[p] = {bytes, device, pool};
    emu_block_count[device][pool]++;
    if (!pool) emu_wait_implicitly(device, "an allocation waits");
    emu_memory(1);
    memset(p, 0xFF, bytes); // not numbers
    if (emu_written(p)) memset(emu_written(p), 0, bytes);
    emu_memory(0);
    *out = p;
    return cudaSuccess;
}
static cudaError_t emu_release(void *p) { // the caller holds the mutex
    auto found = emu_blocks.find((char *)p);
    if (!p) return cudaSuccess;
    if (found == emu_blocks.end()) return cudaErrorInvalidValue;
    const emu_mapped *m = emu_mapped_at(p, 0);
    for (size_t i = 0; m && i < EMU_SLICES; i++)
        if (m->opens[i] > 0 && emu_lives(i)) emu_die("memory is freed that another process has open");
    const size_t bytes = found->second.bytes, bytes_taken = (bytes + 255) / 256 * 256 + EMU_GAP;
    emu_poison(p, bytes);
    emu_block_count[found->second.device][found->second.pool]--;
    emu_free_blocks.insert({bytes_taken, (char *)p});
    emu_blocks.erase(found);
    return cudaSuccess;
}

// By a kernel: memory of a device of this process, or of another one that is open here, or pinned memory of
// the host. The caller holds the mutex.
int emu_is_accessible(const void *p, size_t n) {
    const char *at = (const char *)p;
    if (!emu_is_device(p)) {
        auto found = emu_host_blocks.upper_bound(at);
        return found != emu_host_blocks.begin() && (--found)->first + found->second >= at + n;
    }
    const size_t slice = (size_t)(at - emu_base) / EMU_SLICE, in_slice = (size_t)(at - emu_base) % EMU_SLICE;
    if (slice == emu_slice && in_slice >= emu_used && in_slice < EMU_SLICE - emu_large) return 0;
    if (slice != emu_slice) {
        auto found = emu_opened.upper_bound((void *)(uintptr_t)p);
        if (found == emu_opened.begin()) return 0;
        --found;
        if (at + n > (char *)found->first + found->second.second) return 0;
    }
    return !__asan_region_is_poisoned || !__asan_region_is_poisoned((void *)(uintptr_t)p, n);
}
static const emu_allocation *emu_find(const void *p) { // of this process; NULL: none
    auto found = emu_blocks.upper_bound((char *)(uintptr_t)p);
    if (found == emu_blocks.begin()) return NULL;
    --found;
    return (const char *)p < found->first + found->second.bytes ? &found->second : NULL;
}
// Can work on a device access it? Peer access is for memory of cudaMalloc, a pool's own is for its memory.
static int emu_can_access(int device, const emu_allocation *a) {
    return a->device == device ||
           (a->pool ? emu_pools[a->device].readers[device] : emu_enabled[device][a->device]);
}
// While work of a device runs, what it cannot access is out of bounds.
static void emu_hide(int device, int hidden) {
    int any = 0;
    for (int i = 0; i < EMU_MAX_DEVICES; i++)
        for (int pool = 0; pool < 2 && i != device; pool++) {
            const emu_allocation a = {0, i, pool};
            any |= emu_block_count[i][pool] && !emu_can_access(device, &a);
        }
    if (!any) return;
    for (auto &b : emu_blocks)
        if (!emu_can_access(device, &b.second)) {
            if (hidden)
                emu_poison(b.first, b.second.bytes);
            else
                emu_unpoison(b.first, b.second.bytes);
        }
}

// ---- fibers

static const size_t EMU_STACK = 128 << 10;
enum { EMU_EXCHANGE = 32 };
enum { EMU_FREE, EMU_RUNNING, EMU_AT_BLOCK, EMU_AT_WARP, EMU_DONE };
struct emu_copy { // to shared memory
    uint32_t to;
    const void *from;
    int bytes;
};
struct emu_fiber {
    void *sp, *fake;
    char *stack;
    int state;
    unsigned exchanges;  // with its warp, so far
    const void *site[2]; // of the latest ones, of even and odd number
    const void *barrier; // the place of the latest one
    uint3 thread;
    std::vector<emu_copy> copies; // under way
};
struct emu_block { // on a host thread
    std::vector<emu_fiber> fibers;
    std::vector<int> order;
    std::vector<unsigned char> exchange; // twice EMU_EXCHANGE bytes a thread
    size_t shared;                       // bytes
    void *main_sp, *main_fake;
    const void *main_bottom;
    size_t main_size;
    int current, threads;
    const std::function<void()> *body;
};
thread_local emu_thread_state emu_thread;
static thread_local emu_block *emu_current_block;

extern "C" void emu_switch(void **from, void *to);
#if defined(__x86_64__)
asm(".text\n.globl emu_switch\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#else
#error "cuda_emu switches fibers on x86-64 only"
#endif

static const char emu_different_places[] = "threads wait for each other at different places of a kernel";
// What a thread does at each barrier and exchange is not checked, but fast.
#define EMU_FAST __attribute__((optimize("O3"), no_sanitize("address", "undefined")))
EMU_FAST static void emu_to_main(int over) {
    emu_block *b = emu_current_block;
    emu_fiber *f = b->fibers.data() + b->current;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(over ? NULL : &f->fake, b->main_bottom, b->main_size);
    emu_switch(&f->sp, b->main_sp);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(f->fake, &b->main_bottom, &b->main_size);
}
static void emu_enter(void) {
    emu_block *b = emu_current_block;
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(NULL, &b->main_bottom, &b->main_size);
    (*b->body)();
    if (!b->fibers[(size_t)b->current].copies.empty())
        emu_die("cp.async: a thread ends and has not waited for its copies");
    b->fibers[(size_t)b->current].state = EMU_DONE;
    emu_to_main(1);
    abort();
}
EMU_FAST static void emu_to_fiber(emu_block *b, int i) {
    emu_fiber *f = b->fibers.data() + i;
    b->current = i;
    emu_thread.thread = f->thread;
    if (f->state == EMU_FREE) {
        if (!f->stack) {
            f->stack =
                (char *)mmap(NULL, EMU_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (f->stack == MAP_FAILED) emu_die("no memory for a stack");
        }
        void **top = (void **)(void *)(f->stack + EMU_STACK - 64);
        *--top = NULL;
        *--top = (void *)emu_enter;
        for (int k = 0; k < 6; k++) *--top = NULL;
        f->sp = top;
    }
    f->state = EMU_RUNNING;
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&b->main_fake, f->stack, EMU_STACK);
    emu_switch(&b->main_sp, f->sp);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(b->main_fake, NULL, NULL);
}
__attribute__((noinline)) EMU_FAST void emu_barrier(void) {
    emu_fiber *f = emu_current_block->fibers.data() + emu_current_block->current;
    f->barrier = __builtin_return_address(0);
    f->state = EMU_AT_BLOCK;
    emu_to_main(0);
}
int emu_lane(void) { return emu_current_block->current % 32; }
// What the threads of a warp give each other has two places, for exchanges of even and odd numbers. So they
// wait once: they give to a place again when all have read it, because all have given to the other one.
EMU_FAST static unsigned char *emu_given(emu_block *b, size_t thread, unsigned number) {
    return b->exchange.data() + (number % 2 * (size_t)b->threads + thread) * EMU_EXCHANGE;
}
// site: of the exchange, the same for all. Returns its number.
EMU_FAST static unsigned emu_give(emu_block *b, const void *mine, size_t n, const void *site) {
    emu_fiber *f = b->fibers.data() + b->current;
    const unsigned number = ++f->exchanges;
    __builtin_memcpy(emu_given(b, (size_t)b->current, number), mine, n);
    f->site[number % 2] = site;
    f->state = EMU_AT_WARP;
    emu_to_main(0);
    return number;
}
// Whether the lanes of a warp that took part in an exchange were at one place. all: and all 32 did.
EMU_FAST static bool emu_same_site(const emu_block *b, size_t warp, unsigned number, bool all) {
    const size_t end = std::min(warp + 32, (size_t)b->threads);
    const emu_fiber *f = b->fibers.data();
    const void *site = f[b->current].site[number % 2];
    for (size_t i = warp; i < end; i++)
        if (f[i].exchanges < number ? all : f[i].site[number % 2] != site) return false;
    return !all || end == warp + 32;
}
__attribute__((noinline)) EMU_FAST void emu_exchange(const void *mine, void *theirs, size_t n, int lane) {
    emu_block *b = emu_current_block;
    const size_t warp = (size_t)b->current / 32 * 32, from = warp + (size_t)lane;
    if (n > 16) emu_die("a shuffle of more than 16 bytes");
    const unsigned number = emu_give(b, mine, n, __builtin_return_address(0));
    if (!emu_same_site(b, warp, number, false)) emu_die(emu_different_places);
    if (from >= (size_t)b->threads || b->fibers.data()[from].exchanges < number)
        emu_die("a shuffle reads a lane that is not there");
    __builtin_memcpy(theirs, emu_given(b, from, number), n);
}

// ---- tensor cores and asynchronous copies

struct emu_operands { // what a lane gives to an instruction of the warp
    uint32_t word[8];
};
static std::atomic<uint64_t> emu_matrix_reads{0}, emu_matrix_cycles{0};
void emu_bank_cycles(uint64_t *reads, uint64_t *cycles) {
    *reads = emu_matrix_reads;
    *cycles = emu_matrix_cycles;
}
uint32_t emu_shared_address(const void *p) {
    return (uint32_t)((const unsigned char *)p - emu_thread.shared);
}
void *emu_shared_pointer(uint32_t address) { return emu_thread.shared + address; }
// All lanes give their operands for one instruction, and each gets those of all.
EMU_FAST static const emu_operands *emu_gather(const emu_operands *mine, const char *instruction) {
    emu_block *b = emu_current_block;
    const size_t warp = (size_t)b->current / 32 * 32;
    static_assert(sizeof *mine == EMU_EXCHANGE, "operands are of the size that is exchanged");
    if (warp + 32 > (size_t)b->threads) emu_die("an instruction of a whole warp, but it is not whole");
    const unsigned number = emu_give(b, mine, sizeof *mine, instruction);
    if (!emu_same_site(b, warp, number, true)) emu_die("lanes of a warp are at different instructions");
    return (const emu_operands *)(const void *)emu_given(b, warp, number);
}
// Cycles in which 32 banks of 4 bytes deliver the rows of 16 bytes of 8 lanes.
EMU_FAST static int emu_cycles_of_rows(const emu_operands *rows) {
    int most = 0;
    for (int i = 0; i < 8; i++) { // different rows in the four banks of this one
        int here = 0;
        for (int k = 0; k < 8; k++) {
            int again = rows[k].word[0] % 128 != rows[i].word[0] % 128;
            for (int j = 0; j < k; j++) again |= rows[j].word[0] == rows[k].word[0];
            here += !again;
        }
        most = std::max(most, here);
    }
    return most;
}
void emu_count_bank_cycles(const uint32_t *addresses) {
    emu_operands rows[8];
    for (int i = 0; i < 8; i++) rows[i].word[0] = addresses[i];
    emu_matrix_reads++, emu_matrix_cycles += (uint64_t)emu_cycles_of_rows(rows);
}
EMU_FAST void emu_ldmatrix(uint32_t *r, uint32_t address, int transposed) {
    static const char rows[] = "ldmatrix", columns[] = "ldmatrix.trans";
    const emu_operands mine = {{address}};
    const int lane = emu_lane(), g = lane / 4, t = lane % 4;
    if (address % 16) emu_die("ldmatrix: the address of a row is no multiple of 16");
    if (address + 16 > emu_current_block->shared)
        emu_die("ldmatrix: a row is not in the block's shared memory");
    const emu_operands *all = emu_gather(&mine, transposed ? columns : rows);
    for (int i = 0; i < 4; i++) {
        uint16_t x[2];
        for (int k = 0; k < 2; k++) {
            const int row = transposed ? 2 * t + k : g, col = transposed ? g : 2 * t + k;
            __builtin_memcpy(&x[k], emu_thread.shared + all[8 * i + row].word[0] + 2 * col, 2);
        }
        r[i] = x[0] | (uint32_t)x[1] << 16;
        if (lane == 0) emu_matrix_reads++, emu_matrix_cycles += (uint64_t)emu_cycles_of_rows(all + 8 * i);
    }
}
// Lane 4 g + t: c has rows g (0, 1) and g + 8 (2, 3), columns 2 t and 2 t + 1. a has rows g (0, 2) and g + 8
// (1, 3), columns 2 t and on (0, 1) and 2 t + 8 and on (2, 3); b has column g, rows as a's columns.
EMU_FAST void emu_mma_bf16(float *c, const uint32_t *a, const uint32_t *b) {
    static const char name[] = "mma";
    const emu_operands mine = {{a[0], a[1], a[2], a[3], b[0], b[1]}};
    const int lane = emu_lane(), g = lane / 4, t = lane % 4;
    const emu_operands *all = emu_gather(&mine, name);
    float x[4][16]; // rows g and g + 8 of a, columns 2 t and 2 t + 1 of b
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) {
            const emu_operands *from = &all[4 * (i < 2 ? g : 2 * t + i - 2) + k % 8 / 2];
            const uint32_t pair = from->word[i < 2 ? i + k / 8 * 2 : 4 + k / 8];
            const uint32_t bits = k % 2 ? pair & 0xFFFF0000u : pair << 16;
            __builtin_memcpy(&x[i][k], &bits, 4);
        }
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 16; k++) c[e] += x[e / 2][k] * x[2 + e % 2][k];
}
static void emu_copy_now(const emu_copy &c) {
    if (c.from)
        memcpy(emu_thread.shared + c.to, c.from, (size_t)c.bytes);
    else
        memset(emu_thread.shared + c.to, 0, (size_t)c.bytes);
}
// A copy happens at any time between its begin and the end that somebody waits for: here at one of the two.
void emu_copy_async(uint32_t to, const void *from, bool there, int n) {
    emu_block *b = emu_current_block;
    const emu_copy c = {to, there ? from : NULL, n};
    if (to % (uint32_t)n || (uintptr_t)from % (size_t)n) emu_die("cp.async: an address is not aligned");
    if (to + (uint32_t)n > b->shared) emu_die("cp.async: beyond the block's shared memory");
    if (emu_random() % 2)
        emu_copy_now(c);
    else
        b->fibers[(size_t)b->current].copies.push_back(c);
}
void emu_copies_end(void) {
    std::vector<emu_copy> &copies = emu_current_block->fibers[(size_t)emu_current_block->current].copies;
    for (const emu_copy &c : copies) emu_copy_now(c);
    copies.clear();
}
// Lets the threads of a warp go on, when all that have not ended wait for an exchange. 0: not all do.
EMU_FAST static int emu_open_warp(emu_block *b, int w) {
    const int end = std::min(w + 32, b->threads);
    emu_fiber *f = b->fibers.data();
    int here = 0, over = 0;
    for (int i = w; i < end; i++) here += f[i].state == EMU_AT_WARP, over += f[i].state == EMU_DONE;
    if (!here || here + over < end - w) return 0;
    for (int i = w; i < end; i++)
        if (f[i].state == EMU_AT_WARP) f[i].state = EMU_RUNNING;
    return 1;
}
// The same of a block and a barrier.
EMU_FAST static int emu_open_block(emu_block *b) {
    emu_fiber *f = b->fibers.data(), *first = NULL;
    for (int i = 0; i < b->threads; i++) {
        if (f[i].state == EMU_DONE) continue;
        if (f[i].state != EMU_AT_BLOCK) return 0;
        if (!first) first = &f[i];
        if (f[i].barrier != first->barrier) emu_die(emu_different_places);
    }
    for (int i = 0; i < b->threads; i++)
        if (f[i].state == EMU_AT_BLOCK) f[i].state = EMU_RUNNING;
    return first != NULL;
}
EMU_FAST static int emu_run_thread(emu_block *b, int i) { // if it can run. 1: it has ended
    const int state = b->fibers.data()[i].state;
    if (state != EMU_FREE && state != EMU_RUNNING) return 0;
    emu_to_fiber(b, i);
    return b->fibers.data()[i].state == EMU_DONE;
}
// Run threads until none can run, and return how many have ended. Forward or back each warp runs as far as
// it can before the next one begins, so it is as far ahead as barriers allow; at random all go on together,
// an exchange at a time.
EMU_FAST static int emu_run_warps(emu_block *b, int back) {
    const int n = b->threads;
    int ended = 0;
    for (int k = 0; k < n; k += 32) {
        const int w = back ? (n - 1) / 32 * 32 - k : k, end = std::min(w + 32, n);
        do {
            for (int i = w; i < end; i++) ended += emu_run_thread(b, back ? w + end - 1 - i : i);
        } while (emu_open_warp(b, w));
    }
    return ended;
}
EMU_FAST static int emu_run_at_random(emu_block *b) {
    const int n = b->threads;
    int *at = b->order.data(), ended = 0, opened;
    do {
        for (int i = n - 1; i > 0; i--) std::swap(at[i], at[emu_random() % ((size_t)i + 1)]);
        for (int k = 0; k < n; k++) ended += emu_run_thread(b, at[k]);
        opened = 0;
        for (int w = 0; w < n; w += 32) opened |= emu_open_warp(b, w);
    } while (opened);
    return ended;
}
EMU_FAST static void emu_run_block(emu_block *b, dim3 size) {
    const int n = (int)(size.x * size.y * size.z), order = emu_thread_order;
    if (b->fibers.size() < (size_t)n) b->fibers.resize((size_t)n); // stacks are kept
    b->threads = n;
    b->exchange.assign(2 * (size_t)n * EMU_EXCHANGE, 0xFF), b->order.resize((size_t)n);
    emu_fiber *f = b->fibers.data();
    for (int i = 0; i < n; i++) {
        f[i].state = EMU_FREE, f[i].exchanges = 0;
        f[i].thread.x = (unsigned)i % size.x, f[i].thread.y = (unsigned)i / size.x % size.y;
        f[i].thread.z = (unsigned)i / size.x / size.y;
        b->order[(size_t)i] = i;
    }
    for (int left = n; left;) {
        left -= order == EMU_RANDOM ? emu_run_at_random(b) : emu_run_warps(b, order == EMU_REVERSED);
        if (left && !emu_open_block(b)) emu_die("threads of a block wait at different barriers");
    }
}
static void emu_run_grid(dim3 grid, dim3 size, size_t shared, const std::function<void()> &body) {
    static thread_local std::unique_ptr<emu_block> own;
    if (!own) own.reset(new emu_block());
    emu_current_block = own.get();
    emu_current_block->body = &body;
    std::unique_ptr<unsigned char[]> memory; // exactly so much, for ASan
    const size_t blocks = (size_t)grid.x * grid.y * grid.z;
    emu_thread.grid = grid, emu_thread.size = size;
    const size_t sampled = emu_sampled_blocks;
    for (size_t k = 0; k < blocks; k++) {
        if (sampled && k == sampled && blocks > 2 * sampled) k = blocks - sampled;
        const size_t i = emu_thread_order == EMU_REVERSED ? blocks - 1 - k : k;
        if (shared && !memory) memory.reset(new unsigned char[shared]);
        if (shared) memset(memory.get(), 0xFF, shared);
        emu_thread.shared = memory.get();
        emu_current_block->shared = shared;
        emu_thread.block.x = (unsigned)(i % grid.x), emu_thread.block.y = (unsigned)(i / grid.x % grid.y);
        emu_thread.block.z = (unsigned)(i / grid.x / grid.y);
        emu_run_block(emu_current_block, size);
    }
}

// ---- streams and events

struct CUevent_st {
    emu_times *times;
    uint64_t newest; // work when it was recorded
    CUstream_st *stream;
    int interprocess, device, untimed;
    uint64_t nccl;    // of the stream, see CUstream_st
    uint64_t capture; // the number of the capture in which it was recorded last; 0: in none
    size_t node;      // then: which node of the graph it is
};
struct emu_kernel; // of NCCL, see emu_nccl.h
struct emu_op {
    std::function<void()> run;
    emu_times *record = NULL, *wait = NULL;
    uint64_t version = 0, id = 0;
    const char *what = "copy";
    std::function<int(CUstream_st *)> ready; // of work that several streams do together
    std::shared_ptr<emu_kernel> kernel;
};
// Work that was captured. A wait names the node that it waits for; `again` launches NCCL's kernel anew.
enum emu_node_kind { EMU_NODE_RUN, EMU_NODE_RECORD, EMU_NODE_WAIT, EMU_NODE_AGAIN };
struct emu_graph_node {
    emu_node_kind kind;
    CUstream_st *stream;
    size_t from;
    std::function<void()> run;
    std::function<void(CUstream_st *)> again;
};
struct CUgraph_st {
    std::vector<emu_graph_node> nodes;
    CUstream_st *origin;
    std::set<CUstream_st *> streams;
    uint64_t number;
    int invalid; // a call that a capture does not take
    int mode;
    pthread_t thread;
    std::vector<std::shared_ptr<void>> objects; // that it keeps: with its copies, and what is made of it
};
struct CUgraphExec_st { // each captured stream has one of its own: only events order them
    CUgraph_st graph;
    std::map<CUstream_st *, CUstream_st *> lanes;
};
static std::map<uint64_t, CUgraph_st *> &emu_captures = *new std::map<uint64_t, CUgraph_st *>(); // under way
struct CUstream_st {
    std::deque<emu_op> work;
    CUgraph_st *capture = NULL;
    int device = 0, blocking = 0; // blocking: the legacy stream waits for it
    int queue = 0;                // see emu_reached
    double pretended = 0;         // seconds that its products so far say they took
    pthread_t owner = pthread_self();
    uint64_t newest = 0; // work that was added
    uint64_t nccl = 0;   // the newest kernel of NCCL that its work comes after; 0: none
};
static std::set<CUstream_st *> emu_streams;
static std::vector<emu_times *> &emu_all_times =
    *new std::vector<emu_times *>(); // kept to the end: something may wait for them
static std::atomic<uint64_t> emu_op_count{0};
static CUstream_st emu_default;

static int emu_moved; // something has, without the end of any work
static void emu_check_deadlock(void);

// What CUDA refuses while a stream is captured breaks the capture (programming guide, "Prohibited and
// Unhandled Operations"). Memory nodes are not emulated: cudaMallocAsync is refused, too.
static cudaError_t emu_break(CUgraph_st *g, cudaError_t e) { return g->invalid = 1, emu_last = e; }
// Calls that might conflict with a capture: of this thread, or a global one of any thread.
static cudaError_t emu_unsafe(void) {
    cudaError_t e = cudaSuccess;
    for (auto &c : emu_captures)
        if (c.second->mode == cudaStreamCaptureModeGlobal ||
            (c.second->mode == cudaStreamCaptureModeThreadLocal &&
             pthread_equal(c.second->thread, pthread_self())))
            e = emu_break(c.second, cudaErrorStreamCaptureUnsupported);
    return e;
}
// Can work be added? Not to the legacy stream while a stream that it waits for is captured.
static cudaError_t emu_can_add(cudaStream_t stream) {
    for (auto &c : emu_captures)
        for (CUstream_st *s : c.second->streams)
            if (!stream && s->blocking) return emu_break(c.second, cudaErrorStreamCaptureImplicit);
    return stream && stream->capture && stream->capture->invalid
               ? emu_last = cudaErrorStreamCaptureInvalidated
               : cudaSuccess;
}
static CUstream_st *emu_stream(cudaStream_t s) {
    CUstream_st *stream = s ? s : &emu_default;
    if (stream == &emu_default) emu_streams.insert(stream);
    if (!emu_streams.count(stream)) emu_die("a stream that does not exist");
    return stream;
}
static double emu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
// Streams share the device's hardware queues (CUDA_DEVICE_MAX_CONNECTIONS; unset: each stream has its own).
// A queue comes to an operation when all that was put into it before has started, and a wait for an event
// starts when the event has fired. Only NCCL's kernels start and then take time.
static int emu_queues =
    getenv("CUDA_DEVICE_MAX_CONNECTIONS") ? atoi(getenv("CUDA_DEVICE_MAX_CONNECTIONS")) : 0;
void emu_connections(int n) { emu_queues = n; }
static int emu_can_start(const emu_op &op); // a kernel of NCCL, which then takes time
static void emu_take_queue(CUstream_st *s) {
    static int streams[EMU_MAX_DEVICES];
    if (emu_queues) s->queue = 1 + streams[s->device]++ % emu_queues;
}
static int emu_reached(const CUstream_st *s) {    // the stream's first operation
    std::map<uint64_t, const CUstream_st *> next; // of each stream the first that has not started
    if (!emu_queues) return 1;
    for (const CUstream_st *x : emu_streams)
        if (x->device == s->device && x->queue == s->queue && !x->work.empty()) next[x->work.front().id] = x;
    for (;;) {
        const CUstream_st *x = next.begin()->second;
        const emu_op &op = x->work.front();
        if (x == s) return 1;
        if (next.begin()->first != op.id || !emu_can_start(op)) return 0;
        next.erase(next.begin()); // it has started
        if (x->work.size() > 1) next[x->work[1].id] = x;
    }
}
static int emu_is_ready(CUstream_st *s) {
    if (s->work.empty() || !emu_reached(s)) return 0;
    emu_op &op = s->work.front();
    if (op.wait) return op.wait->completed >= op.version;
    return !op.ready || op.ready(s);
}
// Runs one piece of work of a random ready stream; 0: there is none. The caller holds the mutex.
static int emu_run_one(void) {
    static uint64_t checked; // the last work added, when a deadlock was looked for
    std::vector<CUstream_st *> ready;
    do {
        emu_moved = 0;
        ready.clear();
        for (CUstream_st *s : emu_streams)
            if (emu_is_ready(s)) ready.push_back(s);
    } while (ready.empty() && emu_moved);
    if (ready.empty() && checked != emu_op_count) checked = emu_op_count, emu_check_deadlock();
    if (ready.empty()) return 0;
    CUstream_st *s = ready[emu_random() % ready.size()];
    emu_op op = std::move(s->work.front());
    s->work.pop_front();
    if (op.run) {
        emu_memory(1);
        if (!op.kernel) emu_hide(s->device, 1); // NCCL's kernels run on several devices at once
        op.run();
        if (!op.kernel) emu_hide(s->device, 0);
        emu_memory(0);
    }
    if (op.record) op.record->at = emu_seconds(), op.record->pretended = s->pretended;
    if (op.record) op.record->completed = op.version;
    pthread_cond_broadcast(&emu_changed);
    return 1;
}
static void emu_pause(int milliseconds) { // or until something changes; the caller holds the mutex
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += milliseconds * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&emu_changed, &emu_mutex, &t);
}
// Runs work until a condition holds. Work that is not ready may become ready when other host threads enqueue
// more.
static double emu_patience_seconds = 60;
void emu_patience(double seconds) { emu_patience_seconds = seconds; }
static std::string emu_describe(const emu_op &o, int round);
static void emu_work_until(const std::function<bool()> &so, const char *what = "waiting") {
    const double until = emu_seconds() + emu_patience_seconds;
    emu_memory(1); // once for all of it: opening much memory takes long
    while (!so()) {
        if (emu_run_one()) continue;
        emu_pause(emu_has_device_thread ? 1 : 20);
        if (emu_seconds() < until) continue;
        std::string text = std::string(what) + " for work that nobody enqueues. Streams are at:";
        for (const CUstream_st *s : emu_streams)
            if (!s->work.empty())
                text +=
                    "\n    device " + std::to_string(s->device) + ", " + emu_describe(s->work.front(), -1);
        emu_die(text.c_str());
    }
    emu_memory(0);
}
// Some calls wait for all that the device was given before them, though they need not. Here it is what the
// thread gave it, as NCCL's ranks share a device in the emulation alone.
static void emu_wait_implicitly(int device, const char *what) { // the caller holds the mutex
    const uint64_t last = emu_op_count;
    const pthread_t self = pthread_self();
    emu_work_until(
        [=] {
            for (const CUstream_st *s : emu_streams)
                if (s->device == device && pthread_equal(s->owner, self) && !s->work.empty() &&
                    s->work.front().id <= last)
                    return false;
            return true;
        },
        what);
}
// A kernel is loaded when it is launched first (CUDA_MODULE_LOADING=LAZY, the default), which may wait for
// the device. kernel: any address that only it has. With EMU_RELOADS every launch is a first one.
static void emu_load(cudaStream_t stream, const void *kernel) { // the caller holds the mutex
    static std::set<std::pair<int, const void *>> &loaded = *new std::set<std::pair<int, const void *>>();
    static const int reloads = getenv("EMU_RELOADS") != NULL;
    const int device = stream ? stream->device : emu_device;
    if ((loaded.insert({device, kernel}).second || reloads) && emu_captures.empty())
        emu_wait_implicitly(device, "the first launch of a kernel waits");
}
// The host begins to wait for work of a stream, or asks whether it is done. Does the device have no other
// work?
static uint64_t emu_drain_count, emu_last_drain;
static void emu_wait_begins(const CUstream_st *s, uint64_t newest) {
    for (const CUstream_st *other : emu_streams)
        if (other->device == s->device && other->newest > newest) return;
    if (newest != emu_last_drain) emu_drain_count++; // asking again is the same wait
    emu_last_drain = newest;
}
uint64_t emu_drains(void) {
    emu_lock hold;
    return emu_drain_count;
}
__attribute__((destructor)) static void emu_print_drains(void) {
    if (getenv("EMU_DRAINS")) fprintf(stderr, "cuda_emu: %llu drains\n", (unsigned long long)emu_drain_count);
}
#include "emu_trace.h"
static void emu_add(CUstream_st *s, emu_op op) { // the caller holds the mutex
    if (s->capture) {
        s->capture->nodes.push_back({EMU_NODE_RUN, s, 0, std::move(op.run), nullptr});
        return;
    }
    if (!op.id) op.id = ++emu_op_count;
    emu_trace_add(s, op);
    s->newest = op.id;
    if (op.kernel) s->nccl = op.id;
    s->work.push_back(std::move(op));
    pthread_cond_broadcast(&emu_changed);
    if (emu_random() % 8 == 0) emu_run_one(); // the device may be quick
}
static cudaError_t emu_enqueue_host(cudaStream_t stream, std::function<void()> run, const char *what = "copy",
                                    const void *kernel = NULL) {
    emu_lock hold;
    emu_op op;
    const cudaError_t e = emu_can_add(stream);
    if (e) return e;
    if (kernel) emu_load(stream, kernel);
    op.run = std::move(run), op.what = what;
    emu_add(emu_stream(stream), std::move(op));
    return cudaSuccess;
}
// Dynamic shared memory beyond 48 KiB that a kernel was allowed, on each device, and the thread that said so.
struct emu_allowance {
    size_t bytes;
    pthread_t thread;
};
static std::map<std::pair<int, const void *>, emu_allowance> &emu_kernel_shared =
    *new std::map<std::pair<int, const void *>, emu_allowance>();
static size_t emu_allowed_shared(const void *kernel) {
    emu_lock hold;
    auto found = emu_kernel_shared.find({emu_device, kernel});
    return found == emu_kernel_shared.end() ? (size_t)48 << 10 : found->second.bytes;
}
cudaError_t emu_enqueue(cudaStream_t stream, const void *kernel, dim3 grid, dim3 block, size_t shared,
                        const ptx_arguments &arguments, std::function<void()> body) {
    const size_t threads = (size_t)block.x * block.y * block.z;
    if (!threads || threads > 1024 || block.z > 64 || !grid.x || !grid.y || !grid.z || grid.x > 0x7FFFFFFF ||
        grid.y > 65535 || grid.z > 65535)
        return emu_last = cudaErrorInvalidConfiguration;
    if (shared > emu_allowed_shared(kernel)) return emu_last = cudaErrorInvalidValue;
    if (stream && stream->device != emu_device) return emu_last = cudaErrorInvalidResourceHandle;
    if (emu_failing > 0 && --emu_failing == 0) return emu_last = cudaErrorLaunchOutOfResources;
    const auto run = [=] {
        const ptx_grid g = {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared};
        emu_launch_count++;
        if (ptx_launch && ptx_launch(kernel, arguments, g)) return;
        emu_run_grid(grid, block, shared, body);
    };
    return emu_enqueue_host(stream, run, "kernel", kernel);
}
void emu_sort_pairs(const uint32_t *keys, uint32_t *sorted, const uint32_t *values, uint32_t *order, size_t n,
                    int bits, cudaStream_t stream) { // the library's, stable
    emu_enqueue_host(stream, [=] {
        std::vector<uint32_t> at(n);
        emu_access(keys, n), emu_access(values, n), emu_access(sorted, n), emu_access(order, n);
        for (size_t i = 0; i < n; i++) {
            if ((uint64_t)keys[i] >> bits) emu_die("a key has more bits than it is sorted by");
            at[i] = (uint32_t)i;
        }
        std::stable_sort(at.begin(), at.end(), [=](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
        for (size_t i = 0; i < n; i++) sorted[i] = keys[at[i]], order[i] = values[at[i]];
    });
}
static std::atomic<int> emu_capability_now{0};
void emu_capability(int sm) { emu_capability_now = sm; }
static int emu_sm(void) {
    const char *text = getenv("EMU_CAPABILITY");
    return emu_capability_now ? (int)emu_capability_now : text ? atoi(text) : 80;
}
int emu_shared_limit(void) { return 227 << 10; } // of a block, as Hopper's

// Events of processes fire at any time: a thread runs the device's work, as long as the process lives.
static void *emu_device_main(void *) {
    for (;;) {
        emu_lock hold;
        if (emu_ending) return NULL;
        int waits = 0; // for another process's event
        for (const CUstream_st *s : emu_streams) waits |= !s->work.empty();
        if (!emu_run_one()) emu_pause(waits ? 1 : 500);
    }
}
static void emu_end(void) { // before what the thread uses is destroyed
    emu_lock hold;
    emu_ending = 1;
    pthread_cond_broadcast(&emu_changed);
}
static emu_times *emu_new_shared_times(void) {
    pthread_t thread;
    const uint32_t i = emu_shared_header->events++;
    if (i >= EMU_IPC_EVENTS) emu_die("too many events of processes");
    if (!emu_has_device_thread) atexit(emu_end);
    if (!emu_has_device_thread && pthread_create(&thread, NULL, emu_device_main, NULL)) emu_die("no thread");
    emu_has_device_thread = 1;
    return &emu_shared_header->times[i];
}
void emu_stall(cudaStream_t stream) {
    emu_lock hold;
    emu_op op;
    op.ready = [](CUstream_st *) { return 0; };
    emu_add(emu_stream(stream), std::move(op));
}
// ---- the calls

extern "C" {
cudaError_t cudaGetLastError(void) {
    const cudaError_t e = emu_last;
    return emu_last = cudaSuccess, e;
}
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaSuccess                 ? "no error"
           : e == cudaErrorMemoryAllocation ? "out of memory"
                                            : "emulated error";
}
const char *cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }
cudaError_t cudaGetDeviceCount(int *n) {
    const char *text = getenv("EMU_DEVICES");
    *n = emu_device_count ? (int)emu_device_count : text ? atoi(text) : 1;
    emu_initialized = 1;
    return emu_used_before_fork ? emu_last = cudaErrorInitializationError : cudaSuccess;
}
cudaError_t cudaSetDevice(int d) { // makes its context
    int n;
    if (cudaGetDeviceCount(&n)) return emu_last;
    if (d < 0 || d >= n) return emu_last = cudaErrorInvalidDevice;
    emu_touch(d);
    return emu_device = d, cudaSuccess;
}
cudaError_t cudaGetDevice(int *d) { return *d = emu_device, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int) {
    *value = what == cudaDevAttrMultiProcessorCount            ? 4
             : what == cudaDevAttrMaxSharedMemoryPerBlockOptin ? emu_shared_limit()
             : what == cudaDevAttrComputeCapabilityMajor       ? emu_sm() / 10
             : what == cudaDevAttrComputeCapabilityMinor       ? emu_sm() % 10
             : what == cudaDevAttrL2CacheSize                  ? 1 << 20
                                                               : 0;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "an emulated GPU");
    p->multiProcessorCount = 4, p->sharedMemPerBlockOptin = (size_t)emu_shared_limit();
    p->major = emu_sm() / 10, p->minor = emu_sm() % 10;
    p->uuid.bytes[0] = (char)(1 + device);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *unused, size_t *all) {
    emu_touch(emu_device);
    return *unused = *all = (size_t)1 << 30, cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    return *can = device != peer && !emu_apart[device][peer], cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) { // makes the peer's context, too
    if (peer == emu_device) return emu_last = cudaErrorInvalidDevice;
    if (emu_apart[emu_device][peer]) return emu_last = cudaErrorPeerAccessUnsupported;
    if (emu_enabled[emu_device][peer]) return emu_last = cudaErrorPeerAccessAlreadyEnabled;
    emu_touch(emu_device), emu_touch(peer);
    return emu_enabled[emu_device][peer] = 1, cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    return *pool = &emu_pools[device], cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count) {
    const int owner = (int)(pool - emu_pools);
    emu_lock hold;
    for (size_t i = 0; i < count; i++) {
        const int device = list[i].location.id;
        if (list[i].location.type != cudaMemLocationTypeDevice || device < 0 || device >= EMU_MAX_DEVICES)
            return emu_last = cudaErrorInvalidValue;
        if (emu_apart[owner][device]) return emu_last = cudaErrorPeerAccessUnsupported;
        pool->readers[device] = list[i].flags == cudaMemAccessFlagsProtReadWrite;
    }
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what, int value) {
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > emu_shared_limit())
        return emu_last = cudaErrorInvalidValue;
    emu_lock hold;
    const emu_allowance now = {(size_t)value, pthread_self()};
    auto before = emu_kernel_shared.insert({{emu_device, kernel}, now}).first;
    if (before->second.bytes != now.bytes && !pthread_equal(before->second.thread, now.thread))
        emu_die("two threads allow a kernel other sizes of shared memory: one's launch may find the other's");
    return before->second = now, cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *kernel) { // loads it
    emu_lock hold;
    memset(a, 0, sizeof *a);
    return emu_load(NULL, kernel), cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes_taken, int device) {
    return snprintf(text, (size_t)bytes_taken, "emulated %d", device), cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text) {
    return sscanf(text, "emulated %d", device) == 1 ? cudaSuccess : emu_last = cudaErrorInvalidDevice;
}
static int emu_address_range(unsigned long long *base, size_t *bytes, unsigned long long p) { // the driver's
    emu_lock hold;
    auto found = emu_blocks.upper_bound((char *)(uintptr_t)p);
    if (found == emu_blocks.begin()) return 1;
    --found;
    *base = (unsigned long long)(uintptr_t)found->first, *bytes = found->second.bytes;
    return p >= *base + *bytes && *bytes;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *found) {
    // Base names, without _v2; an unknown name is no error of the call.
    *fn = strcmp(name, "cuMemGetAddressRange") ? NULL : (void *)emu_address_range;
    return *found = *fn ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound, cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes) { return emu_alloc(p, bytes, emu_device, 0); }
cudaError_t cudaFree(void *p) { // waits for all of the device's streams, as the real one
    emu_lock hold;
    const int device = emu_device;
    if (emu_unsafe()) return emu_last;
    emu_work_until([=] {
        for (CUstream_st *s : emu_streams)
            if (s->device == device && !s->work.empty()) return false;
        return true;
    });
    return emu_release(p);
}
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream) { // of the device's pool
    return emu_alloc(p, bytes, stream ? stream->device : emu_device, 1);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream) {
    {
        emu_lock hold;
        const emu_allocation *a = emu_find(p);
        if (!a || !a->pool) return emu_last = cudaErrorInvalidValue;
        if (emu_unsafe()) return emu_last;
    }
    return emu_enqueue_host(stream, [=] { emu_release(p); });
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
    emu_lock hold;
    if (emu_unsafe()) return emu_last;
    emu_wait_implicitly(emu_device, "an allocation waits");
    if (posix_memalign(p, 4096, bytes ? bytes : 1)) return cudaErrorMemoryAllocation;
    return emu_host_blocks[(const char *)*p] = bytes ? bytes : 1, cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
    emu_lock hold;
    if (emu_unsafe()) return emu_last;
    if (p && !emu_host_blocks.erase((const char *)p)) return cudaErrorInvalidValue;
    return free(p), cudaSuccess;
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned) {
    emu_lock hold;
    return emu_host_blocks[(const char *)p] = bytes, cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p) {
    emu_lock hold;
    return emu_host_blocks.erase((const char *)p) ? cudaSuccess : cudaErrorInvalidValue;
}
static int emu_is_pinned(const void *p) {
    auto found = emu_host_blocks.upper_bound((const char *)p);
    return found != emu_host_blocks.begin() && (--found)->first + found->second > (const char *)p;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    emu_lock hold;
    memset(a, 0, sizeof *a);
    a->type = emu_is_device(p)   ? cudaMemoryTypeDevice
              : emu_is_pinned(p) ? cudaMemoryTypeHost
                                 : cudaMemoryTypeUnregistered;
    a->device = emu_device;
    return cudaSuccess;
}
// A copy of memory that is not page-locked goes through the driver's own, and the call may return when the
// stream has come to its end: if NCCL's kernels come before it, that may be never, and the host has no
// deadline. What the host has waited for before has ended.
static std::set<uint64_t> &emu_waited_for = *new std::set<uint64_t>(); // kernels of NCCL
static void emu_host_waited(uint64_t nccl) { emu_waited_for.insert(nccl); }
static void emu_check_pageable(const void *a, const void *b,
                               const CUstream_st *s) { // the caller holds the mutex
    const int pageable = (!emu_is_device(a) && !emu_is_pinned(a)) || (!emu_is_device(b) && !emu_is_pinned(b));
    if (pageable && s->nccl && !s->capture && !emu_waited_for.count(s->nccl))
        emu_die("a copy of memory that is not page-locked waits for NCCL without a deadline");
}
static void emu_check_range(const void *p, size_t n) {
    if (emu_is_device(p) && n) // ASan looks at the first and the last byte, and all between
        for (size_t i = 0; i<n; i += n> 1 ? n - 1 : 1) (void)*emu_access((volatile const char *)p + i);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind, cudaStream_t stream) {
    if (n) {
        emu_lock hold;
        emu_check_pageable(to, from, emu_stream(stream));
    }
    return emu_enqueue_host(stream, [=] {
        emu_check_range(to, n), emu_check_range(from, n);
        emu_move(to, from, n);
    });
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t rows, cudaMemcpyKind, cudaStream_t stream) {
    if (width > to_pitch || width > from_pitch || to_pitch > 0x7FFFFFFF || from_pitch > 0x7FFFFFFF)
        return cudaErrorInvalidPitchValue;
    return emu_enqueue_host(stream, [=] {
        for (size_t r = 0; r < rows; r++)
            emu_move((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
    });
}
// Tests fill with 0xFF what a kernel is to write: that counts as not written.
cudaError_t cudaMemsetAsync(void *to, int byte, size_t n, cudaStream_t stream) {
    return emu_enqueue_host(stream, [=] {
        memset(to, byte, n);
        emu_note_written(to, n, byte != 0xFF);
    });
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind) {
    {
        emu_lock hold;
        if (emu_can_add(NULL) || emu_unsafe()) return emu_last;
    }
    cudaMemcpyAsync(to, from, n, kind, NULL);
    return cudaStreamSynchronize(NULL);
}
cudaError_t cudaMemset(void *to, int byte, size_t n) { return cudaMemsetAsync(to, byte, n, NULL); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int) {
    emu_lock hold;
    *s = new CUstream_st();
    (*s)->device = emu_device, (*s)->blocking = !(flags & cudaStreamNonBlocking);
    emu_take_queue(*s);
    emu_touch(emu_device);
    emu_streams.insert(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) {
    return cudaStreamCreateWithPriority(s, f, 0);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    emu_lock hold;
    CUstream_st *s = emu_stream(stream);
    if (s->capture) return emu_break(s->capture, cudaErrorStreamCaptureUnsupported);
    if (emu_unsafe()) return emu_last;
    emu_wait_begins(s, s->newest);
    emu_work_until([=] { return s->work.empty(); });
    emu_host_waited(s->nccl);
    emu_trace_host(s->newest);
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    emu_lock hold;
    for (auto &c : emu_captures) emu_break(c.second, cudaErrorStreamCaptureUnsupported);
    if (!emu_captures.empty()) return emu_last;
    emu_drain_count++;
    emu_work_until([] {
        for (CUstream_st *s : emu_streams)
            if (!s->work.empty()) return false;
        return true;
    });
    for (CUstream_st *s : emu_streams) emu_host_waited(s->nccl);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    emu_lock hold;
    CUstream_st *s = emu_stream(stream);
    if (s->capture) return emu_break(s->capture, cudaErrorStreamCaptureUnsupported);
    emu_work_until([=] { return s->work.empty(); });
    emu_streams.erase(s);
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    emu_lock hold;
    CUgraph_st *g = emu_stream(stream)->capture;
    if (g ? emu_break(g, cudaErrorStreamCaptureUnsupported) : emu_unsafe()) return emu_last;
    emu_wait_begins(emu_stream(stream), emu_stream(stream)->newest);
    emu_run_one();
    if (!emu_stream(stream)->work.empty()) return cudaErrorNotReady;
    emu_host_waited(emu_stream(stream)->nccl);
    return emu_trace_host(emu_stream(stream)->newest), cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    emu_lock hold;
    CUevent_st *e = new CUevent_st();
    e->interprocess = (flags & cudaEventInterprocess) != 0, e->device = emu_device;
    e->untimed = (flags & cudaEventDisableTiming) != 0;
    emu_touch(emu_device);
    if (e->interprocess)
        e->times = emu_new_shared_times();
    else
        e->times = new emu_times(), emu_all_times.push_back(e->times);
    e->times->recorded = e->times->completed = 0;
    return *out = e, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
    emu_lock hold;
    CUstream_st *s = emu_stream(stream);
    if (stream && s->device != e->device) return emu_last = cudaErrorInvalidResourceHandle;
    e->capture = s->capture ? s->capture->number : 0;
    if (s->capture) {
        e->node = s->capture->nodes.size();
        s->capture->nodes.push_back({EMU_NODE_RECORD, s, 0, nullptr, nullptr});
        return cudaSuccess;
    }
    emu_op op;
    op.record = e->times, op.version = ++e->times->recorded;
    emu_add(s, std::move(op));
    e->stream = s, e->newest = s->newest, e->nccl = s->nccl;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned) {
    emu_lock hold;
    CUstream_st *s = emu_stream(stream);
    if (e->capture) { // the stream joins the capture
        auto found = emu_captures.find(e->capture);
        if (found == emu_captures.end()) return emu_last = cudaErrorCapturedEvent;
        if (s->capture && s->capture != found->second) return emu_last = cudaErrorStreamCaptureMerge;
        s->capture = found->second, s->capture->streams.insert(s);
        s->capture->nodes.push_back({EMU_NODE_WAIT, s, e->node, nullptr, nullptr});
        return cudaSuccess;
    }
    if (s->capture && !e->times->recorded) return cudaSuccess;
    if (s->capture) return s->capture->invalid = 1, emu_last = cudaErrorStreamCaptureIsolation;
    emu_op op;
    op.wait = e->times, op.version = e->times->recorded;
    s->nccl = std::max(s->nccl, e->nccl);
    emu_add(s, std::move(op));
    return cudaSuccess;
}
static cudaError_t emu_refuses_event(cudaEvent_t e) { // to ask for it, or to wait for it
    auto found = emu_captures.find(e->capture);
    if (found != emu_captures.end()) emu_break(found->second, cudaErrorCapturedEvent);
    return e->capture ? emu_last = cudaErrorCapturedEvent : emu_unsafe();
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    emu_lock hold;
    const uint64_t version = e->times->recorded;
    if (emu_refuses_event(e)) return emu_last;
    if (e->stream) emu_wait_begins(e->stream, e->newest);
    emu_work_until([=] { return e->times->completed >= version; });
    emu_host_waited(e->nccl);
    emu_trace_host(e->newest);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    emu_lock hold;
    if (emu_refuses_event(e)) return emu_last;
    if (e->stream) emu_wait_begins(e->stream, e->newest);
    emu_run_one();
    if (e->times->completed < e->times->recorded) return cudaErrorNotReady;
    emu_host_waited(e->nccl);
    return emu_trace_host(e->newest), cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    if (a->untimed || b->untimed || !a->times->recorded || !b->times->recorded)
        return emu_last = cudaErrorInvalidResourceHandle;
    if (a->times->completed < a->times->recorded || b->times->completed < b->times->recorded)
        return cudaErrorNotReady;
    const double pretended = b->times->pretended - a->times->pretended;
    return *ms = (float)(1e3 * (pretended > 0 ? pretended : b->times->at - a->times->at)), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { // what waits for it keeps its times: they are few, in tests
    delete e;
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p) {
    emu_lock hold;
    auto found = emu_blocks.find((char *)p); // the first byte of what cudaMalloc gave
    if (found == emu_blocks.end() || found->second.pool) return emu_last = cudaErrorInvalidValue;
    memset(h, 0, sizeof *h);
    memcpy(h, &p, sizeof p), memcpy((char *)h + 8, &found->second.bytes, 8);
    memcpy((char *)h + 16, &emu_fork_group, 8), memcpy((char *)h + 24, &found->second.device, sizeof(int));
    return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned) {
    size_t bytes;
    int owner;
    memcpy(&owner, (char *)&h + 24, sizeof owner);
    if (emu_apart[owner][emu_device]) return emu_last = cudaErrorPeerAccessUnsupported;
    if (memcmp((char *)&h + 16, &emu_fork_group, 8)) {
        fprintf(stderr,
                "cuda_emu: emulated IPC is for processes that were forked from one, not started apart\n");
        return cudaErrorInvalidValue;
    }
    memcpy(p, &h, sizeof *p), memcpy(&bytes, (char *)&h + 8, 8);
    char *slice = emu_base + emu_slice_of(*p) * EMU_SLICE; // of its owner, from now on
    mprotect(slice, EMU_SLICE, PROT_READ | PROT_WRITE);
    emu_unpoison(*p, bytes);
    emu_lock hold;
    if (emu_slice == EMU_SLICES) emu_take_slice();
    emu_opened[*p] = {emu_opened[*p].first + 1, bytes};
    emu_mapped_at(*p, 1)->opens[emu_slice]++;
    return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void *p) { // from now on it cannot be accessed
    emu_lock hold;
    auto found = emu_opened.find(p);
    if (found == emu_opened.end()) return cudaErrorInvalidValue;
    emu_mapped_at(p, 0)->opens[emu_slice]--;
    if (--found->second.first) return cudaSuccess;
    emu_poison(p, found->second.second);
    emu_opened.erase(found);
    return cudaSuccess;
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *h, cudaEvent_t e) {
    if (!e->interprocess) return cudaErrorInvalidResourceHandle;
    memset(h, 0, sizeof *h);
    const size_t i = (size_t)(e->times - emu_shared_header->times);
    return memcpy(h, &i, sizeof i), cudaSuccess;
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *e, cudaIpcEventHandle_t h) {
    size_t i;
    memcpy(&i, &h, sizeof i);
    if (i >= emu_shared_header->events) return cudaErrorInvalidValue;
    *e = new CUevent_st();
    return (*e)->times = &emu_shared_header->times[i], cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    emu_lock hold;
    const CUgraph_st *g = emu_stream(stream)->capture;
    *status = !g           ? cudaStreamCaptureStatusNone
              : g->invalid ? cudaStreamCaptureStatusInvalidated
                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    emu_lock hold;
    static uint64_t captures;
    CUstream_st *s = emu_stream(stream);
    if (!stream) return emu_last = cudaErrorStreamCaptureUnsupported;
    if (s->capture) return emu_last = cudaErrorIllegalState;
    s->capture = new CUgraph_st();
    s->capture->origin = s, s->capture->streams.insert(s), s->capture->number = ++captures;
    s->capture->mode = mode, s->capture->thread = pthread_self();
    emu_captures[captures] = s->capture;
    return cudaSuccess;
}
// Does all that was captured come before the end of the stream that began the capture?
static bool emu_is_joined(const CUgraph_st *g) {
    std::vector<char> before(g->nodes.size());
    std::set<CUstream_st *> joined;
    for (size_t i = g->nodes.size(); i--;) {
        const emu_graph_node &n = g->nodes[i];
        before[i] |= (char)(n.stream == g->origin || joined.count(n.stream));
        if (!before[i] && (n.kind == EMU_NODE_RUN || n.kind == EMU_NODE_AGAIN)) return false;
        if (!before[i]) continue; // no work
        joined.insert(n.stream);
        if (n.kind == EMU_NODE_WAIT) before[n.from] = 1;
    }
    return true;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    emu_lock hold;
    CUgraph_st *g = emu_stream(stream)->capture;
    *graph = NULL;
    if (!g) return emu_last = cudaErrorIllegalState;
    if (g->origin != emu_stream(stream)) return emu_last = cudaErrorStreamCaptureUnmatched;
    for (CUstream_st *s : g->streams) s->capture = NULL;
    emu_captures.erase(g->number);
    if (!g->invalid && emu_is_joined(g)) return *graph = g, cudaSuccess;
    emu_last = g->invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
    return delete g, emu_last;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    emu_lock hold;
    *out = new CUgraphExec_st{*graph, {}};
    for (CUstream_st *s : graph->streams) {
        CUstream_st *lane = (*out)->lanes[s] = new CUstream_st();
        lane->device = s->device;
        emu_take_queue(lane);
        emu_streams.insert(lane);
    }
    return cudaSuccess;
}
static emu_times *emu_new_times(void) {
    emu_times *t = new emu_times();
    emu_all_times.push_back(t);
    return t->recorded = 1, t->completed = 0, t;
}
static void emu_add_event(CUstream_st *s, emu_times *times, int records) {
    emu_op op;
    (records ? op.record : op.wait) = times, op.version = 1;
    emu_add(s, std::move(op));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    emu_lock hold;
    CUstream_st *s = emu_stream(stream);
    if (s->capture) return emu_last = cudaErrorStreamCaptureUnsupported;
    emu_times *begin = emu_new_times();
    std::map<size_t, emu_times *> times;
    emu_add_event(s, begin, 1);
    for (auto &lane : exec->lanes) emu_add_event(lane.second, begin, 0);
    for (size_t i = 0; i < exec->graph.nodes.size(); i++) {
        const emu_graph_node &n = exec->graph.nodes[i];
        CUstream_st *lane = exec->lanes[n.stream];
        emu_op op;
        op.run = n.run;
        if (n.kind == EMU_NODE_RECORD) emu_add_event(lane, times[i] = emu_new_times(), 1);
        if (n.kind == EMU_NODE_WAIT) emu_add_event(lane, times[n.from], 0);
        if (n.kind == EMU_NODE_RUN) emu_add(lane, std::move(op));
        if (n.kind == EMU_NODE_AGAIN) n.again(lane);
    }
    for (auto &lane : exec->lanes) {
        emu_times *end = emu_new_times();
        emu_add_event(lane.second, end, 1), emu_add_event(s, end, 0);
        s->nccl = std::max(s->nccl, lane.second->nccl);
    }
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    emu_lock hold;
    for (auto &lane : exec->lanes) {
        CUstream_st *s = lane.second;
        emu_work_until([=] { return s->work.empty(); });
        emu_streams.erase(s);
        delete s;
    }
    return delete exec, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
// An object's end is called by a thread of the driver, some time after the last graph that has it.
struct CUuserObject_st {
    std::shared_ptr<void> held;
};
cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *p, cudaHostFn_t end, unsigned, unsigned) {
    *object = new CUuserObject_st();
    (*object)->held.reset(p, [end](void *x) {
        std::thread([=] {
            usleep(1000);
            end(x);
        }).detach();
    });
    return cudaSuccess;
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned) { return delete object, cudaSuccess; }
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned, unsigned flags) {
    emu_lock hold;
    if (flags != cudaGraphUserObjectMove) return emu_last = cudaErrorInvalidValue; // else its maker keeps one
    graph->objects.push_back(object->held);
    return delete object, cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **,
#if CUDART_VERSION >= 13000
                                     const cudaGraphEdgeData **,
#endif
                                     size_t *) {
    const cudaError_t e = cudaStreamIsCapturing(stream, status);
    emu_lock hold;
    *graph = emu_stream(stream)->capture;
    if (*graph) *id = (*graph)->number;
    return e;
}
} // extern "C"

#if defined(EMU_NCCL)
#include "emu_nccl.h"
#if defined(EMU_CUBLASLT)
#include "emu_cublas.h"
#endif
#if defined(EMU_CUDNN)
#include "emu_cudnn.h"
#endif
#else
static void emu_check_deadlock(void) {}
static int emu_can_start(const emu_op &) { return 0; }
static std::string emu_describe(const emu_op &o, int) {
    return o.wait ? "a wait for an event" : "a kernel or copy";
}
#endif

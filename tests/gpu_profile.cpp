// gpu_profile.cpp - what a CUDA program's time on the GPU goes to: a library that CUDA loads into the program
// (CUDA_INJECTION64_PATH=build/libgpu_profile.so), by CUPTI's activity records. When the program ends, it
// writes a JSON object a line to the file GPU_PROFILE, the longest first, of the last GPU_PROFILE_PART (0.4)
// of the time between the first and the last kernel, where a training has left its start behind:
//
//     {"kernel":"void par__cuda_k_norm<...>","calls":26,"us":905.3}      all calls together
//     {"kernel":"all","calls":1200,"us":98000.0,"of_us":100000.0}        busy microseconds, of all in this part
#include <cupti.h>
#include <cxxabi.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

struct record {
    const std::string *name;
    uint64_t start, end;
};
static std::mutex lock;
static std::map<std::string, int> names;
static std::vector<record> records;

static void add(const char *name, uint64_t start, uint64_t end) {
    records.push_back({&names.insert({name, 0}).first->first, start, end});
}
static void take(const CUpti_Activity *a) {
    if (a->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel10 *k = (const CUpti_ActivityKernel10 *)a;
        add(k->name, k->start, k->end);
    } else if (a->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *m = (const CUpti_ActivityMemcpy6 *)a;
        static const char *const kinds[] = {"copy",
                                            "copy, host to device",
                                            "copy, device to host",
                                            "copy, to array",
                                            "copy, from array",
                                            "copy, array to array",
                                            "copy, from array",
                                            "copy, to array",
                                            "copy, device to device"};
        add(kinds[m->copyKind < 9 ? m->copyKind : 0], m->start, m->end);
    } else if (a->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *m = (const CUpti_ActivityMemset4 *)a;
        add("memset", m->start, m->end);
    }
}
static void CUPTIAPI wanted(uint8_t **buffer, size_t *size, size_t *count) {
    *size = 4 << 20, *count = 0;
    *buffer = (uint8_t *)aligned_alloc(8, *size);
}
static void CUPTIAPI completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    const std::lock_guard<std::mutex> held(lock);
    CUpti_Activity *a = NULL;
    while (cuptiActivityGetNextRecord(buffer, valid, &a) == CUPTI_SUCCESS) take(a);
    free(buffer);
}
static std::string readable(const std::string &name) { // of C++, without what a JSON string does not hold
    int status;
    char *text = abi::__cxa_demangle(name.c_str(), NULL, NULL, &status);
    std::string s = (text ? text : name).substr(0, 160);
    free(text);
    s.erase(std::remove_if(s.begin(), s.end(), [](char c) { return c == '"' || c == '\\' || c < ' '; }),
            s.end());
    return s;
}
struct sum {
    int calls;
    uint64_t ns;
    const std::string *name;
};
static void report() {
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const char *path = getenv("GPU_PROFILE"), *part = getenv("GPU_PROFILE_PART");
    FILE *f = path ? fopen(path, "w") : stderr;
    if (!f || records.empty()) return;
    std::sort(records.begin(), records.end(),
              [](const record &a, const record &b) { return a.start < b.start; });
    const uint64_t first = records.front().start;
    uint64_t end = first, busy = 0;
    for (const record &r : records) end = std::max(end, r.end);
    const uint64_t begin = end - (uint64_t)((part ? atof(part) : 0.4) * (double)(end - first));
    std::map<const std::string *, sum> sums;
    int calls = 0;
    uint64_t seen = begin; // streams run beside each other: what is covered counts once
    for (const record &r : records) {
        if (r.start < begin) continue;
        sum &s = sums[r.name];
        s.calls++, s.ns += r.end - r.start, s.name = r.name, calls++;
        if (r.end > seen) busy += r.end - std::max(r.start, seen), seen = r.end;
    }
    std::vector<sum> all;
    for (const auto &s : sums) all.push_back(s.second);
    std::sort(all.begin(), all.end(), [](const sum &a, const sum &b) { return a.ns > b.ns; });
    fprintf(f, "{\"kernel\":\"all\",\"calls\":%d,\"us\":%.1f,\"of_us\":%.1f}\n", calls, (double)busy / 1e3,
            (double)(end - begin) / 1e3);
    for (const sum &s : all)
        fprintf(f, "{\"kernel\":\"%s\",\"calls\":%d,\"us\":%.1f}\n", readable(*s.name).c_str(), s.calls,
                (double)s.ns / 1e3);
    if (path) fclose(f);
}
extern "C" int InitializeInjection(void) {
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
    if (cuptiActivityRegisterCallbacks(wanted, completed)) return 0;
    for (const CUpti_ActivityKind kind : kinds)
        if (cuptiActivityEnable(kind)) return 0;
    return atexit(report) == 0;
}

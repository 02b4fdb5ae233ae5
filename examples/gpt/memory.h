// memory.h - how much memory this process may use. gpt.c and gpt_auto.c include it.

// The number in a file; 0: there is none.
static uint64_t machine_number_in(const char *path) {
    unsigned long long n = 0;
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%llu", &n) != 1) n = 0;
    if (f) fclose(f);
    return n;
}
// The smallest limit of a control group and its parents; 0: there is none.
static uint64_t machine_cgroup_limit(const char *root, char *group, const char *file) {
    char path[4400];
    uint64_t least = 0;
    for (;;) {
        snprintf(path, sizeof path, "%s%.4000s/%s", root, group, file);
        const uint64_t n = machine_number_in(path);
        if (n && (!least || n < least)) least = n;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}
// The bytes of memory that this process may use: the machine's, or the limit of a control group (of a
// container or a batch job). name: which of them.
static uint64_t machine_memory(char *name, size_t capacity) {
    char line[4200];
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t least = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    FILE *f = fopen("/proc/self/cgroup", "r");
    snprintf(name, capacity, "the machine's memory");
    while (f && fgets(line, sizeof line, f)) { // number:controllers:group
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        const int two = !controllers[1]; // version 2 has one tree for all controllers
        if (!two && !strstr(controllers, "memory")) continue;
        const uint64_t n =
            two ? machine_cgroup_limit("/sys/fs/cgroup", group, "memory.max")
                : machine_cgroup_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        if (n && (!least || n < least)) {
            least = n;
            snprintf(name, capacity, "the limit of its control group");
        }
    }
    if (f) fclose(f);
    return least;
}

// plan.h - what each rank will hold and send, before any of it is allocated: what --plan prints.
#ifndef PLAN_H
#define PLAN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../output.h"

typedef struct plan_rank {      // one rank's
    char what[160], zero[3072]; // its part of the model; what par_zero_plan_print says
    uint64_t parameter_bytes, gradient_bytes, state_bytes, buffer_bytes, host_bytes, file_bytes, sum_bytes,
        gather_bytes;
    uint64_t activation_bytes, scratch_bytes; // of microbatches under way; of an action
    uint64_t total_bytes;                     // of the memory below
    uint64_t memory_id, memory_bytes;         // which memory that is, and how much it has; 0: nobody knows
    char name[64];                            // of that memory
} plan_rank;

// The number in a file; 0: there is none.
static uint64_t plan_number_in(const char *path) {
    unsigned long long n = 0;
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%llu", &n) != 1) n = 0;
    if (f) fclose(f);
    return n;
}
// The smallest limit of a control group and its parents; 0: there is none.
static uint64_t plan_cgroup_limit(const char *root, char *group, const char *file) {
    char path[4400];
    uint64_t least = 0;
    for (;;) {
        snprintf(path, sizeof path, "%s%.4000s/%s", root, group, file);
        const uint64_t n = plan_number_in(path);
        if (n && (!least || n < least)) least = n;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}
// The bytes of memory that this process may use: the machine's, or the limit of a control group (of a
// container or a batch job). name: which of them.
static uint64_t plan_machine_memory(char *name, size_t capacity) {
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
        const uint64_t n = two ? plan_cgroup_limit("/sys/fs/cgroup", group, "memory.max")
                               : plan_cgroup_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        if (n && (!least || n < least)) {
            least = n;
            snprintf(name, capacity, "the limit of its control group");
        }
    }
    if (f) fclose(f);
    return least;
}

// "0-3, 8": those r < count with of[r] == kind.
static void plan_ranges(char *text, size_t capacity, const int *of, int count, int kind) {
    size_t n = 0;
    text[0] = 0;
    for (int r = 0; r < count && n < capacity; r++) {
        int end = r;
        if (of[r] != kind) continue;
        while (end + 1 < count && of[end + 1] == kind) end++;
        n += (size_t)snprintf(text + n, capacity - n, end > r ? "%s%d-%d" : "%s%d", n ? ", " : "", r, end);
        r = end;
    }
}
static void plan_print_kind(const plan_rank *p, const char *ranks, int one, FILE *out) {
    char text[16];
    fprintf(out, "%s %s: %s\n  ", one ? "rank" : "ranks", ranks, p->what);
    for (const char *c = p->zero; *c; c++) { // by lines, moved to the right
        fputc(*c, out);
        if (*c == '\n' && c[1]) fputs("  ", out);
    }
    fprintf(out, "    %10s  activations of microbatches under way\n",
            par_zero_format_bytes(p->activation_bytes, text));
    fprintf(out, "    %10s  what one forward or backward needs besides\n",
            par_zero_format_bytes(p->scratch_bytes, text));
    fprintf(out, "    %10s  with activations%s\n", par_zero_format_bytes(p->total_bytes, text),
            one ? "" : ", on each of these ranks");
}
static void plan_print_kind_json(const plan_rank *p, const char *ranks, int count) {
    json_line j = json_begin(stdout);
    json_add(&j, "plan:%b ranks:%s count:%d what:%s", 1, ranks, count, p->what);
    const struct {
        const char *name;
        uint64_t bytes;
    } classes[] = {{"parameter", p->parameter_bytes},
                   {"gradient", p->gradient_bytes},
                   {"state", p->state_bytes},
                   {"buffer", p->buffer_bytes},
                   {"host", p->host_bytes},
                   {"file", p->file_bytes},
                   {"activation", p->activation_bytes},
                   {"scratch", p->scratch_bytes},
                   {"total", p->total_bytes},
                   {"sum", p->sum_bytes},
                   {"gather", p->gather_bytes}};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        char field[40];
        snprintf(field, sizeof field, "%s_bytes:%%llu", classes[i].name);
        json_add(&j, field, (unsigned long long)classes[i].bytes);
    }
    json_end(&j);
}
// Prints the ranks that share a memory, and how much of it they need together. 1: it is enough.
static int plan_print_memory(const plan_rank *all, int count, const int *memory_of, int memory_id, FILE *out,
                             int json) {
    char ranks[200], text[2][16];
    uint64_t sum = 0;
    int members = 0;
    const uint64_t memory = all[memory_id].memory_bytes;
    for (int r = 0; r < count; r++)
        if (memory_of[r] == memory_id) {
            sum += all[r].total_bytes;
            members++;
        }
    plan_ranges(ranks, sizeof ranks, memory_of, count, memory_id);
    if (json)
        json_print("plan:%b memory:%s of_ranks:%s total_bytes:%llu memory_bytes:%llu", 1, all[memory_id].name,
                   ranks, (unsigned long long)sum, (unsigned long long)memory);
    else
        fprintf(out, "%s %s: %s%s of %s, which has %s%s\n", members > 1 ? "ranks" : "rank", ranks,
                members > 1 ? "together " : "", par_zero_format_bytes(sum, text[0]), all[memory_id].name,
                memory ? par_zero_format_bytes(memory, text[1]) : "a size that is not known",
                memory && sum > memory ? ": MORE THAN THERE IS" : "");
    return !memory || sum <= memory;
}
// Prints each kind of rank, then each memory. 1: all memories are large enough; 0: not; -1: out of memory for
// the plan.
static int plan_print(const plan_rank *all, int count, FILE *out, int json) {
    int *kind_of = (int *)calloc(2 * (size_t)count, sizeof *kind_of), *memory_of = kind_of + count;
    char ranks[200];
    int fits = 1;
    if (!kind_of) return -1;
    for (int r = 0; r < count; r++) {
        while (memcmp(&all[kind_of[r]], &all[r], offsetof(plan_rank, memory_id))) kind_of[r]++;
        while (all[memory_of[r]].memory_id != all[r].memory_id) memory_of[r]++;
    }
    for (int r = 0; r < count; r++) {
        int members = 0;
        if (kind_of[r] != r) continue;
        for (int q = r; q < count; q++) members += kind_of[q] == r;
        plan_ranges(ranks, sizeof ranks, kind_of, count, r);
        if (json)
            plan_print_kind_json(&all[r], ranks, members);
        else
            plan_print_kind(&all[r], ranks, members == 1, out);
    }
    for (int r = 0; r < count; r++)
        if (memory_of[r] == r) fits &= plan_print_memory(all, count, memory_of, r, out, json);
    return free(kind_of), fits;
}

#endif

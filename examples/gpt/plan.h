// plan.h - what each rank will hold and send, before any of it is allocated: what --plan prints. Part of
// gpt.c.

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

// Writes which part of the model a rank has: "embedding, layers 0-2, 9-11, head".
static void print_part(const trainer *t, char *text, size_t capacity) {
    const int head = t->o.model.n_layer + 1;
    int of[2] = {0, 0}, *layers = (int *)calloc((size_t)t->o.model.n_layer, sizeof *layers);
    size_t n = (size_t)snprintf(text, capacity, "%s", has_unit(t, 0) ? "embedding" : "");
    for (int l = 0; l < t->o.model.n_layer && layers; l++) of[1] += layers[l] = has_unit(t, l + 1);
    if (of[1]) {
        n += (size_t)snprintf(text + n, capacity - n, "%slayer%s ", n ? ", " : "", of[1] > 1 ? "s" : "");
        plan_ranges(text + n, capacity - n - 8, layers, t->o.model.n_layer, 1);
    }
    if (!text[0] && !has_unit(t, head)) snprintf(text, capacity, "no layers");
    if (has_unit(t, head))
        snprintf(text + strlen(text), capacity - strlen(text), "%shead", text[0] ? ", " : "");
    free(layers);
}
// Finds the memory that this rank uses, and its size.
static void find_memory(const trainer *t, plan_rank *p) {
    p->memory_id = (uint64_t)par_node_of(t->grid.world, par_rank(t->grid.world)) << 16;
    p->total_bytes = p->parameter_bytes + p->gradient_bytes + p->state_bytes + p->buffer_bytes +
                     p->activation_bytes + p->scratch_bytes;
#if defined(GPT_CUDA)
    size_t unused, all;
    int device;
    if (t->grid.cuda && cudaGetDevice(&device) == cudaSuccess &&
        cudaMemGetInfo(&unused, &all) == cudaSuccess) {
        p->memory_id += (uint64_t)device + 1;
        p->memory_bytes = all;
        snprintf(p->name, sizeof p->name, "GPU %d", device);
        return;
    }
#endif
    p->total_bytes += p->host_bytes;
    p->memory_bytes = machine_memory(p->name, sizeof p->name);
}
// Plans what this rank will hold and send. p: all zero.
static par_result plan_this_rank(trainer *t, plan_rank *p) {
    par_zero_plan z;
    GPT_TRY(par_zero_plan_of(t->part.zero, &z));
    par_pipe_memory *pipe = (par_pipe_memory *)calloc((size_t)t->part.schedule.ranks, sizeof *pipe);
    if (!pipe) return par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory to plan");
    const par_result r = par_pipe_verify(&t->part.schedule, PAR_PIPE_NONBLOCKING, pipe);
    t->part.planned_bytes = pipe[par_rank(t->grid.pp)].pool_bytes;
    free(pipe);
    if (r) return par_fail(t->grid.world, PAR_ERR_ARGUMENT, "%s", t->part.schedule.why);
    p->parameter_bytes = z.parameter_bytes;
    p->gradient_bytes = z.gradient_bytes;
    p->state_bytes = z.state_bytes;
    p->buffer_bytes = z.buffer_bytes;
    p->host_bytes = z.host_bytes;
    p->file_bytes = z.file_bytes;
    p->sum_bytes = z.reduce_bytes;
    p->gather_bytes = z.gather_bytes;
    p->activation_bytes = t->part.planned_bytes;
    p->scratch_bytes = t->part.scratch_bytes;
    if (t->part.model.head_in_chunks && has_unit(t, t->o.model.n_layer + 1))
        p->scratch_bytes +=
            par_tp_head_bytes(t->part.tp, &t->part.model.head, rows_of(t), t->part.model.chunk_rows);
    print_part(t, p->what, sizeof p->what);
    FILE *text = fmemopen(p->zero, sizeof p->zero, "w");
    if (text) {
        par_zero_plan_print(t->part.zero, text);
        fclose(text);
    }
    find_memory(t, p);
    return PAR_OK;
}
// Prints the plan before anything is allocated. Collective. MEMORY if the plan does not fit.
static par_result print_plan(trainer *t) {
    if (!t->o.plan) return PAR_OK;
    const int ranks = par_size(t->grid.world), root = par_rank(t->grid.world) == 0;
    plan_rank mine, *all = root ? (plan_rank *)calloc((size_t)ranks, sizeof *all) : NULL;
    memset(&mine, 0, sizeof mine);
    par_result r = root && !all ? par_fail(t->grid.world, PAR_ERR_MEMORY, "out of memory to plan") : PAR_OK;
    if (!r) r = plan_this_rank(t, &mine);
    if (!r) r = par_gather(&mine, all, sizeof mine, PAR_U8, 0, t->grid.world);
    if (!r && root && t->o.json) json_print("plan:%b parameters:%zu", 1, t->part.model.total_count);
    if (!r && root && !t->o.json) printf("a model of %.4g parameters\n", (double)t->part.model.total_count);
    int fits = !r && root ? plan_print(all, ranks, stdout, t->o.json) : 0;
    free(all);
    if (r) return r;
    GPT_TRY(par_broadcast(&fits, &fits, 1, PAR_I32, 0, t->grid.world));
    if (fits > 0) return PAR_OK;
    return par_fail(
        t->grid.world, PAR_ERR_MEMORY,
        fits ? "out of memory to plan"
             : "the plan takes more memory than there is: nothing was allocated (fewer bytes: --zero, "
               "--pp, --tp, --recompute, a smaller --batch_size, --offload)");
}
// Did the run allocate exactly what --plan printed?
static int plan_is_exact(const trainer *t) {
    const par_zero_plan real = par_zero_allocated(t->part.zero);
    par_zero_plan p;
    return !par_zero_plan_of(t->part.zero, &p) && p.parameter_bytes == real.parameter_bytes &&
           p.gradient_bytes == real.gradient_bytes && p.state_bytes == real.state_bytes &&
           p.buffer_bytes == real.buffer_bytes && p.host_bytes == real.host_bytes &&
           p.file_bytes == real.file_bytes && t->part.planned_bytes == par_pipe_allocated(t->part.pipe);
}

// roofline.c - what compiled kernels cost, counted in their instructions, and what a GPU would make of it.
//
//     nvdisasm -c -ndf CUBIN | build/roofline --count PTXAS    the tables of bench/results/kernels.md
//     build/roofline --check bench/results/kernels.md    1: a kernel is below its share of the roofline
//     build/roofline --step bench/results/kernels.md     a step of GPT-2 124M, predicted from the table
//     build/roofline --layer bench/results/kernels.md    a layer of Llama 7B on 8 GPUs, with its messages
//
// PTXAS: what nvcc -Xptxas -v said. An element's cost is that of the loops that its row names, each on the
// way through it with most accesses of 128 bits, and then with fewest instructions: 'o', the best outermost
// loop, without loops within it; 'i', the sum over innermost loops; 'm', over those of them with at least
// half of the accesses of the one that has most, which leaves out what handles a rest; 'w', over outermost
// loops with accesses of 128 bits; 'a', over all loops.
#define PAR_IMPLEMENTATION
#include "par_plan.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Kernels: a name, and how the symbol begins; loops; elements of a thread's iteration, and which part of the
// counted way they take (rows of 768 columns have 3 eights of 4); warps of a block; bytes of memory read and
// written for an element; bytes that a thread has in flight while it waits.
typedef struct kernel_row {
    const char *name, *symbol;
    char loops;
    double elements, part, block_warps, read, written, in_flight;
} kernel_row;
#define BF16 "I14par__cuda_bf16"
#define NORM BF16 "L19par__cuda_norm_size"
#define WHAT "elementwise" BF16 "L18par_tp_elementwise"
static const kernel_row kernels[] = {
    {"bias", "add_bias" BF16, 'o', 8, 1, 8, 2, 2, 16},
    {"sum over rows", "sum_rows" BF16, 'i', 32, 1, 8, 2, 0, 64},
    {"GELU", WHAT "0", 'o', 8, 1, 8, 2, 2, 16},
    {"GELU backward", WHAT "1", 'o', 8, 1, 8, 4, 2, 32},
    {"SwiGLU", WHAT "2", 'o', 8, 1, 8, 4, 2, 32},
    {"SwiGLU backward", WHAT "3", 'o', 8, 1, 8, 6, 4, 48},
    {"sum", WHAT "4", 'o', 8, 1, 8, 4, 2, 32},
    {"norm, 768", "norm" NORM "0ELb0", 'o', 24, 0.8, 4, 2, 2, 48},
    {"norm, 4096", "norm" NORM "1ELb0", 'o', 32, 1, 4, 2, 2, 64},
    {"sum and norm, 768", "norm" NORM "0ELb1", 'o', 24, 0.8, 4, 4, 4, 96},
    {"sum and norm, 4096", "norm" NORM "1ELb1", 'o', 32, 1, 4, 4, 4, 128},
    {"norm backward, 768", "norm_backward" NORM "0ELb0", 'o', 24, 1, 4, 4, 2, 96},
    {"norm backward, 4096", "norm_backward" NORM "1ELb0", 'o', 16, 1, 8, 4, 2, 64},
    {"norm backward and sum, 768", "norm_backward" NORM "0ELb1", 'o', 24, 1, 4, 6, 2, 96},
    {"norm backward and sum, 4096", "norm_backward" NORM "1ELb1", 'o', 16, 1, 8, 6, 2, 64},
    {"dropout", "dropout" BF16 "Lb1", 'o', 8, 1, 8, 2, 2, 16},
    {"RoPE", "rope" BF16, 'o', 16, 1, 8, 2, 2, 32},
    {"embedding", "embed" BF16, 'o', 8, 1, 8, 2, 2, 16},
    {"positions", "positions" BF16, 'o', 8, 1, 8, 2, 2, 16},
    {"positions backward", "positions_backward" BF16, 'i', 32, 1, 8, 2, 0, 64},
    {"cross-entropy, both ways", "loss_forward_backward" BF16, 'm', 32, 1, 16, 2, 2, 64},
    {"cross-entropy statistics", "loss_stats" BF16, 'm', 32, 1, 16, 2, 0, 64},
    {"cross-entropy backward", "loss_backward" BF16, 'm', 32, 1, 16, 2, 2, 64},
    {"AdamW", "updateILi0", 'o', 8, 1, 8, 14, 14, 112},
    {"sum of squares", "sum_squaresIf", 'o', 8, 1, 8, 4, 0, 32},
    {"quantize to 8 bits", "pack" BF16 "Li8E", 'o', 8, 1, 8, 2, 1.0625, 16},
    {"dequantize 8 bits", "unpack" BF16 "Li8EL20par__cuda_packed_sum0", 'a', 8, 1, 8, 1.0625, 2, 9},
    {"reduction of two, f32", "reduceIfLi4", 'i', 4, 1, 8, 8, 4, 32},
    {"reduction of two, bf16", "reduce" BF16 "Li8", 'i', 8, 1, 8, 4, 2, 32},
    {"cast, f32 to bf16", "cast" BF16 "f", 'o', 8, 1, 8, 4, 2, 32},
    {"amax of a tensor", "codes_amax" BF16, 'o', 16, 1, 8, 2, 0, 32},
    {"codes of 8 bits", "codes" BF16 "E", 'w', 16, 1, 8, 2, 1, 32},
};
enum { KERNELS = sizeof kernels / sizeof kernels[0], GPUS = 3 };

// What the vendor says: multiprocessors, cycles a second, bytes a second. Seconds from a load to its data,
// measured by others on idle chips. 64 warps and 65536 registers a multiprocessor, on all of them.
static const struct {
    const char *name, *target; // of whose code the kernels are
    double units, clock, memory_rate, latency;
} gpus[GPUS] = {{"H100", "sm_90a", 132, 1.83e9, 3.35e12, 6e-7},
                {"H200", "sm_90a", 132, 1.83e9, 4.8e12, 6e-7},
                {"B200", "sm_100", 148, 1.86e9, 8e12, 8e-7}};
// A multiprocessor has four schedulers, and for a warp's instruction these take so many cycles of its own:
// the issue slot, f32, integer products, the other integers and conversions, special functions, f64, and
// loads, stores and shuffles, by their 32 x 4 bytes (CUDA C++ Programming Guide, Arithmetic Instructions,
// capability 9.0).
// Beside them: calls, and stores of less than 128 bits.
enum { ISSUE, FMA, PRODUCT, INTEGER, SPECIAL, DOUBLE, MEMORY, TENSOR, PIPES, CALLS = PIPES, NARROW, COSTS };
static const char *const pipe_names[PIPES] = {"issue",   "f32", "products", "integers",
                                              "special", "f64", "accesses", "tensor"};
// A tensor core's cycles for a warp's mma.sync.m16n8k16: 512 products and sums a cycle by the instructions of
// whole warp groups, of which those of one warp reach 0.63 (Luo et al. 2024: 62.9% over all types, on H800).
static const double mma_cycles = 16 * 8 * 16 / (512 * 0.63);

// ---- instructions

typedef struct instruction {
    char code[32];
    long address, target; // target: where it branches to, or -1
    int conditional;
} instruction;
typedef struct function {
    char *name;
    instruction *list;
    int count, capacity;
    int registers;
} function;

enum { SLOW = 10000 }; // instructions that the call of a slow path counts as, where another way is there
static int begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

static void add_costs(const char *code, double *cost) {
    static const char *const fma[] = {"FADD", "FMUL", "FFMA", "HADD2", "HMUL2", "HFMA2"},
                             *const special[] = {"MUFU", "F2F.F64", "F2F.F32.F64", "F2I",
                                                 "FRND", "FLO",     "POPC",        "I2F"},
                             *const memory[] = {"LD", "ST", "SHFL", "ATOM", "RED"},
                             *const none[] = {"BRA",  "BSSY", "BSYNC", "EXIT", "BAR",  "NOP",
                                              "WARP", "U",    "R2U",   "S2",   "CALL", "RET"};
    const char *const *lists[] = {fma, special, memory, none};
    const size_t counts[] = {sizeof fma / sizeof *fma, sizeof special / sizeof *special,
                             sizeof memory / sizeof *memory, sizeof none / sizeof *none};
    int kind = -1;
    cost[ISSUE] += 0.25;
    cost[CALLS] += begins(code, "CALL");
    cost[NARROW] += begins(code, "STG") && !strstr(code, ".128");
    for (int l = 0; l < 4 && kind < 0; l++)
        for (size_t i = 0; i < counts[l]; i++)
            if (begins(code, lists[l][i])) kind = l;
    if (begins(code, "LDC") || begins(code, "LEA")) kind = begins(code, "LEA") ? -1 : 3;
    if (kind == 0)
        cost[FMA] += 0.25;
    else if (kind == 1)
        cost[SPECIAL] += 2;
    else if (kind == 2)
        cost[MEMORY] += strstr(code, ".128") || begins(code, "LDSM") ? 4 : strstr(code, ".64") ? 2 : 1;
    else if (begins(code, "HMMA"))
        cost[TENSOR] += mma_cycles / 4;
    else if (begins(code, "IMAD"))
        cost[PRODUCT] += strstr(code, "WIDE") || strstr(code, "HI") ? 1 : 0.5;
    else if (code[0] == 'D')
        cost[DOUBLE] += 0.5;
    else if (kind < 0)
        cost[INTEGER] += 0.5;
}
// What elements cannot do without, and slow paths have less of: accesses of 128 bits, exponentials, roots.
static int is_work(const instruction *x) {
    return begins(x->code, "MUFU.EX2") || begins(x->code, "MUFU.RSQ") ||
           (strstr(x->code, ".128") && (begins(x->code, "LD") || begins(x->code, "ST")));
}

// ---- nvdisasm's text

static void *grown(void *list, int count, int *capacity, size_t bytes) {
    if (count < *capacity) return list;
    *capacity = *capacity ? 2 * *capacity : 64;
    list = realloc(list, (size_t)*capacity * bytes);
    if (!list) exit(3);
    return list;
}
typedef struct label {
    char name[32];
    long address;
} label;
static label *labels;
static int label_count, label_capacity;

static void resolve(function *f, char (*targets)[32]) { // names of labels to addresses
    for (int i = 0; i < f->count; i++)
        for (int k = 0; k < label_count && targets[i][0]; k++)
            if (!strcmp(labels[k].name, targets[i])) f->list[i].target = labels[k].address;
    label_count = 0;
}
static void read_instruction(function *f, const char *line, char (**targets)[32], int *target_capacity) {
    instruction x;
    char *text;
    memset(&x, 0, sizeof x);
    x.address = strtol(strstr(line, "/*") + 2, &text, 16);
    x.target = -1;
    text += 2;
    while (*text == ' ') text++;
    if (*text == '@') {
        x.conditional = strncmp(text, "@PT", 3) != 0;
        while (*text && *text != ' ') text++;
        while (*text == ' ') text++;
    }
    sscanf(text, "%31[^ ;]", x.code);
    f->list = (instruction *)grown(f->list, f->count, &f->capacity, sizeof x);
    *targets = (char(*)[32])grown(*targets, f->count, target_capacity, sizeof **targets);
    (*targets)[f->count][0] = 0;
    const char *to = strstr(text, "`(");
    if (to && begins(x.code, "BRA")) {
        sscanf(to + 2, "%31[^)]", (*targets)[f->count]);
        x.conditional |= strcspn(text, "UP") < (size_t)(to - text); // by a register beside the target
    }
    f->list[f->count++] = x;
}
static function *functions;
static int function_count, function_capacity;

static char target[16]; // the architecture
static void read_code(FILE *in) {
    static char line[4096];
    char(*targets)[32] = NULL;
    int target_capacity = 0, waiting = 0;
    function *f = NULL;
    while (fgets(line, sizeof line, in)) {
        const char *symbol = strstr(line, "par__cuda_k_");
        sscanf(line, " .target %15s", target);
        if (begins(line, ".text.")) {
            if (f) resolve(f, targets);
            f = NULL;
            label_count = waiting = 0;
            if (!symbol) continue;
            functions = (function *)grown(functions, function_count, &function_capacity, sizeof *functions);
            f = &functions[function_count++];
            memset(f, 0, sizeof *f);
            line[strcspn(line, "\n:")] = 0;
            f->name = strdup(line + 6);
        } else if (f && line[0] == '.' && strchr(line, ':')) {
            labels = (label *)grown(labels, label_count, &label_capacity, sizeof *labels);
            sscanf(line, "%31[^:]", labels[label_count].name);
            labels[label_count++].address = -1;
            waiting++;
        } else if (f && strstr(line, "/*") && isxdigit((unsigned char)strstr(line, "/*")[2]) &&
                   strchr(line, ';')) {
            read_instruction(f, line, &targets, &target_capacity);
            for (; waiting; waiting--) labels[label_count - waiting].address = f->list[f->count - 1].address;
        }
    }
    if (f) resolve(f, targets);
    free(targets);
}
static void read_registers(const char *path) {
    static char line[4096];
    char name[1024] = "";
    int registers;
    FILE *in = fopen(path, "r");
    if (!in) return;
    while (fgets(line, sizeof line, in)) {
        const char *entry = strstr(line, "entry function '"), *used = strstr(line, "Used ");
        if (entry) sscanf(entry + 16, "%1023[^']", name);
        if (used && sscanf(used, "Used %d registers", &registers) == 1)
            for (int i = 0; i < function_count; i++)
                if (!strcmp(functions[i].name, name)) functions[i].registers = registers;
    }
    fclose(in);
}

// ---- loops

typedef struct loop {
    int first, last; // instructions; the last one branches back to the first one
} loop;
static int index_of(const function *f, long address) {
    int low = 0, high = f->count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (f->list[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
static int find_loops(const function *f, loop *loops,
                      int most) { // the longest one for each first instruction
    int count = 0;
    for (int i = 0; i < f->count && count < most; i++) {
        const instruction *x = &f->list[i];
        if (x->target < 0 || x->target >= x->address) continue;
        const loop l = {index_of(f, x->target), i};
        int k = 0;
        while (k < count && loops[k].first != l.first) k++;
        loops[k] = l;
        if (k == count) count++;
    }
    return count;
}
static int is_within(const loop *inner, const loop *outer) {
    return inner != outer && inner->first >= outer->first && inner->last <= outer->last;
}
// The best path through a loop: from each instruction on, its wide accesses and its instructions. Branches
// back are not followed. around: loops within it are not entered. Returns the wide accesses, or -1: no way.
static int walk(const function *f, const loop *loops, int count, const loop *l, int around, double *cost) {
    const size_t n = (size_t)f->count;
    int *work = (int *)malloc(n * sizeof *work), *length = (int *)malloc(n * sizeof *length),
        *next = (int *)malloc(n * sizeof *next);
    if (!work || !length || !next) exit(3);
    for (int i = l->last; i >= l->first; i--) {
        const instruction *x = &f->list[i];
        const int ends = begins(x->code, "BRA") || begins(x->code, "EXIT") || begins(x->code, "RET");
        int ways[2] = {-1, -1}, within = 0;
        for (int k = 0; k < count; k++)
            within |= is_within(&loops[k], l) && i >= loops[k].first && i <= loops[k].last;
        work[i] = i == l->last ? 0 : -1, length[i] = 1, next[i] = -1;
        if (i == l->last || (around && within)) continue;
        if (!ends || x->conditional) ways[0] = i + 1;
        if (x->target > x->address) ways[1] = index_of(f, x->target);
        for (int k = 0; k < 2; k++) {
            const int to = ways[k], w = to < 0 || to > l->last || work[to] < 0 ? -1 : work[to] + is_work(x);
            if (w < 0 || w < work[i] || (w == work[i] && length[to] + 1 >= length[i] && next[i] >= 0))
                continue;
            work[i] = w, length[i] = length[to] + 1 + SLOW * begins(x->code, "CALL"), next[i] = to;
        }
    }
    const int found = work[l->first];
    for (int i = l->first; i >= 0 && found >= 0; i = next[i]) add_costs(f->list[i].code, cost);
    free(work), free(length), free(next);
    return found;
}
static int path_of(const function *f, const loop *loops, int count, const loop *l, double *cost) {
    double around[COSTS] = {0}, through[COSTS] = {0};
    const int a = walk(f, loops, count, l, 1, around), b = a < 0 ? walk(f, loops, count, l, 0, through) : -1;
    memcpy(cost, a < 0 ? through : around, sizeof around);
    return a < 0 ? b : a;
}
enum { MAX_LOOPS = 256 };
// The cost of a warp's iteration, by pipes. Returns the number of wide accesses of it.
static int cost_of(const function *f, char which, double *cost) {
    static double costs[MAX_LOOPS][COSTS];
    loop loops[MAX_LOOPS];
    int wide[MAX_LOOPS], wides = -1, most = 0;
    const int count = find_loops(f, loops, MAX_LOOPS), innermost = which == 'i' || which == 'm';
    for (int p = 0; p < COSTS; p++) cost[p] = 0;
    for (int i = 0; i < count; i++) {
        int inner = 0, outer = 0;
        for (int k = 0; k < count; k++) {
            inner += is_within(&loops[k], &loops[i]);
            outer += is_within(&loops[i], &loops[k]);
        }
        wide[i] = -1;
        if (((which == 'o' || which == 'w') && outer) || (innermost && inner)) continue;
        for (int p = 0; p < COSTS; p++) costs[i][p] = 0;
        wide[i] = path_of(f, loops, count, &loops[i], costs[i]);
        most = wide[i] > most ? wide[i] : most;
    }
    for (int i = 0; i < count; i++) {
        const double *one = costs[i];
        if (wide[i] < (innermost || which == 'w') || (which == 'm' && 2 * wide[i] < most)) continue;
        if (which == 'o' && (wide[i] < wides || (wide[i] == wides && one[ISSUE] >= cost[ISSUE]))) continue;
        for (int p = 0; p < COSTS; p++) cost[p] = (which == 'o' ? 0 : cost[p]) + one[p];
        wides = which == 'o' || wides < 0 ? wide[i] : wides + wide[i];
    }
    return wides;
}

// ---- the table

typedef struct counted {
    const kernel_row *row;
    double bytes, instructions, share[GPUS];
    char busiest[16];
    int registers, warps;
} counted;
static double least(double a, double b) { return a < b ? a : b; }

// Which part of its memory's time a kernel needs at least. cost: multiprocessor cycles of a warp's iteration.
// A warp loads, waits, and works alone at two cycles for an instruction: eight elements are independent of
// each other.
static double share_of(const kernel_row *k, const double *cost, int warps, int gpu) {
    const double bytes = 32 * k->elements * (k->read + k->written);
    const double rate = gpus[gpu].memory_rate / gpus[gpu].units / gpus[gpu].clock; // bytes a cycle
    const double cycles = bytes / rate, wait = gpus[gpu].latency * gpus[gpu].clock;
    const double waits = k->elements * k->read / k->in_flight;
    const double alone = (waits * wait + 2 * 4 * cost[ISSUE]) / warps;
    double busy = alone;
    for (int p = 0; p < PIPES; p++) busy = cost[p] > busy ? cost[p] : busy;
    return least(1, cycles / busy);
}
static const function *kernel_of(const char *symbol) {
    for (int i = 0; i < function_count; i++)
        if (begins(strstr(functions[i].name, "par__cuda_k_") + 12, symbol)) return &functions[i];
    return NULL;
}
static int registers_of_warps(const function *f, int block) { // how many warps' registers fit
    const int allocated = (f->registers + 7) / 8 * 8;
    return (int)least(64, allocated ? 65536 / 32 / allocated : 64) / block * block;
}
// 0: there is no such kernel, or elements take calls or stores one by one. A row may store some numbers.
static int count_kernel(const kernel_row *k, counted *c) {
    double cost[COSTS];
    const function *f = kernel_of(k->symbol);
    int busiest = 0;
    if (!f || cost_of(f, k->loops, cost) < 0) return printf("%s: no such kernel, or no loop\n", k->name), 0;
    if (cost[CALLS] > 0 || cost[NARROW] > 4)
        return printf("%s: %.0f calls and %.0f stores of less than 128 bits in its loops\n", k->name,
                      cost[CALLS], cost[NARROW]),
               0;
    for (int p = 0; p < PIPES; p++) {
        cost[p] *= k->part;
        if (cost[p] > cost[busiest]) busiest = p;
    }
    c->row = k;
    c->registers = f->registers;
    c->warps = registers_of_warps(f, (int)k->block_warps);
    c->bytes = k->read + k->written;
    c->instructions = 4 * cost[ISSUE] / k->elements;
    snprintf(c->busiest, sizeof c->busiest, "%s", pipe_names[busiest]);
    for (int g = 0; g < GPUS; g++) c->share[g] = share_of(k, cost, c->warps, g);
    return 1;
}
// Attention: the tile of queries and keys that a warp multiplies in an iteration; warps and shared memory of
// a block; FLOPs for a score and a feature.
typedef struct attention_row {
    const char *name, *symbol;
    double dim, rows, columns, warps, shared, flops;
} attention_row;
static const attention_row attentions[] = {
    {"forward, 64", "flash_forwardILi64", 64, 32, 64, 4, 49664, 4},
    {"backward of keys, 64", "flash_backward_kvILi64", 64, 32, 32, 4, 51712, 8},
    {"backward of queries, 64", "flash_backward_qILi64", 64, 32, 32, 4, 49664, 6},
    {"forward, 128", "flash_forwardILi128", 128, 32, 32, 4, 66048, 4},
    {"backward of keys, 128", "flash_backward_kvILi128", 128, 16, 32, 8, 100864, 8},
    {"backward of queries, 128", "flash_backward_qILi128", 128, 16, 32, 8, 98816, 6},
};
// What the counts allow a kernel where it is full of whole tiles.
static int count_attention(const attention_row *a) {
    double cost[COSTS];
    const function *f = kernel_of(a->symbol);
    int busiest = 0;
    if (!f || cost_of(f, 'o', cost) < 0) return printf("%s: no such kernel, or no loop\n", a->name), 0;
    for (int p = 0; p < PIPES; p++)
        if (cost[p] > cost[busiest]) busiest = p;
    const double warps =
        least(registers_of_warps(f, (int)a->warps), floor(232448 / (a->shared + 1024)) * a->warps);
    const double cycles = fmax(cost[busiest], 2 * 4 * cost[ISSUE] / warps), scores = a->rows * a->columns;
    printf("| %s | %.0f | %.2f | %s | %d | %.0f |", a->name, a->flops * a->dim, 4 * 32 * cost[ISSUE] / scores,
           cycles > cost[busiest] ? "latency" : pipe_names[busiest], f->registers, warps);
    for (int g = 0; g < GPUS; g++)
        if (!strcmp(gpus[g].target, target))
            printf(" %.0f |", a->flops * a->dim * scores * gpus[g].units * gpus[g].clock / cycles / 1e12);
    printf(" |\n");
    return 1;
}
static void print_head(const char *first) { // with a column for each GPU that runs this code
    int columns = 0;
    printf("| %s | instructions | most of | registers | warps |", first);
    for (int g = 0; g < GPUS; g++)
        if (!strcmp(gpus[g].target, target)) printf(" %s |", gpus[g].name), columns++;
    printf(" measured |\n|---|--:|--:|---|--:|--:|");
    for (int k = 0; k <= columns; k++) printf("--:|");
    printf("\n");
}
static int count_kernels(const char *ptxas) {
    int bad = 0;
    read_code(stdin);
    read_registers(ptxas);
    print_head("kernel | bytes");
    for (int i = 0; i < KERNELS; i++) {
        counted c;
        if (!count_kernel(&kernels[i], &c)) {
            bad = 1;
            continue;
        }
        printf("| %s | %.4g | %.1f | %s | %d | %d |", kernels[i].name, c.bytes, c.instructions, c.busiest,
               c.registers, c.warps);
        for (int g = 0; g < GPUS; g++)
            if (!strcmp(gpus[g].target, target)) printf(" %.0f%% |", 100 * c.share[g]);
        printf(" |\n");
    }
    printf("\n");
    print_head("attention | FLOPs");
    for (size_t i = 0; i < sizeof attentions / sizeof attentions[0]; i++)
        bad |= !count_attention(&attentions[i]);
    return bad;
}
// The rows of the tables in a page: that of H100's code, then the shares of that of B200's. A share that is
// not there is -1. Returns their number.
static int read_table(const char *path, counted *rows) {
    char line[512], name[64];
    int count = 0, first = 0, end = 0; // the GPUs of the table
    FILE *in = fopen(path, "r");
    if (!in) return perror(path), 0;
    while (fgets(line, sizeof line, in)) {
        counted c;
        double percent[2];
        if (begins(line, "| kernel |")) {
            const int later = !strstr(line, "| H100 |");
            first = later ? 2 : 0;
            end = later ? GPUS : 2;
        }
        const int got =
            sscanf(line, "| %63[^|] | %lf | %lf | %15s | %d | %d | %lf%% | %lf%% |", name, &c.bytes,
                   &c.instructions, c.busiest, &c.registers, &c.warps, &percent[0], &percent[1]);
        if (got < 6 + end - first || end == first) continue;
        name[strcspn(name, "|")] = 0;
        for (size_t n = strlen(name); n && name[n - 1] == ' '; n--) name[n - 1] = 0;
        c.row = NULL;
        for (int i = 0; i < KERNELS; i++)
            if (!strcmp(kernels[i].name, name)) c.row = &kernels[i];
        int at = 0;
        while (at < count && rows[at].row != c.row) at++;
        if (!c.row || (at == count && first > 0)) continue;
        for (int g = 0; g < GPUS && at == count; g++) c.share[g] = -1;
        if (at == count) rows[count++] = c;
        for (int g = first; g < end; g++) rows[at].share[g] = percent[g - first] / 100;
    }
    fclose(in);
    return count;
}
// The goals: 85% of what memory allows, AdamW 90%.
static int check_table(const char *path) {
    counted rows[KERNELS];
    const int count = read_table(path, rows);
    int bad = count < KERNELS;
    if (bad) printf("%s has %d rows of %d kernels\n", path, count, KERNELS);
    for (int i = 0; i < count; i++)
        for (int g = 0; g < GPUS; g++) {
            const double goal = strcmp(rows[i].row->name, "AdamW") ? 0.85 : 0.9;
            if (rows[i].share[g] >= goal) continue;
            printf("%s: %.0f%% of what %s's memory allows, and the goal is %.0f%%\n", rows[i].row->name,
                   100 * rows[i].share[g], gpus[g].name, 100 * goal);
            bad = 1;
        }
    return bad;
}

// ---- a step

// GPT-2 124M (n_layer 12, n_embd 768, 12 heads, a vocabulary of 50304) with 64 x 1024 tokens, in bf16 on one
// H100, as examples/gpt trains it without recomputation. GELU is in the products.
enum { LAYERS = 12, FEATURES = 768, VOCABULARY = 50304, TOKENS = 65536, SEQUENCE = 1024 };
static const double parameters = 124475904;
static const struct {
    const char *kernel;
    double calls, columns; // of TOKENS rows; 0: the parameters
} passes[] = {
    {"embedding", 1, FEATURES},
    {"positions", 1, FEATURES},
    {"norm, 768", LAYERS + 1, FEATURES},
    {"sum and norm, 768", LAYERS, FEATURES},
    {"sum", LAYERS, FEATURES},
    {"cross-entropy, both ways", 1, VOCABULARY},
    {"norm backward, 768", 1, FEATURES},
    {"norm backward and sum, 768", 2 * LAYERS, FEATURES},
    {"positions backward", 2, FEATURES},     // and the embedding's
    {"sum over rows", LAYERS, 9 * FEATURES}, // for biases: of 3, 1, 4 and 1 times the features
    {"sum of squares", 1, 0},
    {"AdamW", 1, 0},
};
static const struct {
    double calls, rows, columns, inner; // one of a product's three directions
    const char *epilogue;               // the kernel that the product has in it; NULL: none
} products[] = {{LAYERS, TOKENS, 3 * FEATURES, FEATURES, NULL},
                {LAYERS, TOKENS, FEATURES, 3 * FEATURES, NULL},
                {LAYERS, 3 * FEATURES, FEATURES, TOKENS, NULL},
                {2 * LAYERS, TOKENS, FEATURES, FEATURES, NULL},
                {LAYERS, FEATURES, FEATURES, TOKENS, NULL},
                {LAYERS, TOKENS, 4 * FEATURES, FEATURES, "GELU"},
                {LAYERS, TOKENS, 4 * FEATURES, FEATURES, "GELU backward"},
                {2 * LAYERS, TOKENS, FEATURES, 4 * FEATURES, NULL},
                {2 * LAYERS, 4 * FEATURES, FEATURES, TOKENS, NULL},
                {1, TOKENS, VOCABULARY, FEATURES, NULL},
                {1, TOKENS, FEATURES, VOCABULARY, NULL},
                {1, VOCABULARY, FEATURES, TOKENS, NULL}};
// As on an H200: streams reach this part of the memory's rate; attention of heads of 64 features and 1024
// tokens reaches so many FLOP/s of its causal half, forward and backward, by cuDNN, and by kernels with
// mma.sync (0.85 of what these reach at 2048 tokens).
static const double stream_rate = 0.88, attention_rates[2][2] = {{284e12, 216e12}, {171e12, 120e12}};

static const counted *row_of(const counted *rows, int count, const char *kernel) {
    for (int k = 0; k < count; k++)
        if (!strcmp(rows[k].row->name, kernel)) return &rows[k];
    return fprintf(stderr, "there is no row %s\n", kernel), (const counted *)NULL;
}
// GELU's instructions in a product take the time that they take to be issued: tensor cores hide none of it.
// Returns seconds; < 0: a row is missing.
static double epilogue_seconds(const counted *rows, int count) {
    double seconds = 0;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        if (!products[i].epilogue) continue;
        const counted *c = row_of(rows, count, products[i].epilogue);
        if (!c) return -1;
        seconds += products[i].calls * products[i].rows * products[i].columns * c->instructions /
                   (gpus[0].units * gpus[0].clock * 4 * 32);
    }
    return seconds;
}
static double product_seconds(const par_plan_machine *gpu) {
    double seconds = 0;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const double m = products[i].rows, n = products[i].columns, k = products[i].inner;
        // weights' gradients are cut along the tokens, so that all multiprocessors have work
        const double parts = k == TOKENS ? 8 : 1;
        seconds +=
            products[i].calls *
            par__plan_product(gpu, gpu->product_rate, m, n, k / parts, parts,
                              2 * (m * k + k * n + m * n * parts + (products[i].epilogue ? m * n : 0)));
    }
    return seconds;
}
static int predict_step(const char *path) {
    counted rows[KERNELS];
    par_plan_machine gpu;
    const int count = read_table(path, rows);
    double pass_seconds = 0;
    if (!count || par_plan_machine_get("h100", &gpu)) return 1;
    printf("%-28s %6s %8s %8s\n", "", "calls", "GB", "ms");
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        const counted *c = row_of(rows, count, passes[i].kernel);
        if (!c) return 1;
        const double elements = passes[i].columns > 0 ? TOKENS * passes[i].columns : parameters;
        const double bytes = elements * passes[i].calls * c->bytes;
        const double seconds = bytes / gpus[0].memory_rate / least(stream_rate, c->share[0]) +
                               passes[i].calls * gpu.kernel_seconds;
        pass_seconds += seconds;
        printf("%-28s %6.0f %8.2f %8.2f\n", passes[i].kernel, passes[i].calls, bytes / 1e9, 1e3 * seconds);
    }
    const double forward = LAYERS * 2.0 * SEQUENCE * FEATURES * TOKENS, multiply = product_seconds(&gpu);
    const double epilogues = epilogue_seconds(rows, count);
    const double flops = TOKENS * (6 * parameters + 12.0 * LAYERS * FEATURES * SEQUENCE);
    printf("%-28s %6s %8s %8.2f\n", "passes over memory", "", "", 1e3 * pass_seconds);
    if (epilogues < 0) return 1;
    printf("%-28s %6s %8s %8.2f\n", "products", "", "", 1e3 * multiply);
    printf("%-28s %6s %8s %8.2f\n", "GELU in products", "", "", 1e3 * epilogues);
    for (int own = 0; own < 2; own++) {
        const double attention = forward / attention_rates[own][0] + 2.5 * forward / attention_rates[own][1];
        const double all = pass_seconds + multiply + epilogues + attention;
        printf("%-28s %6s %8s %8.2f\n", own ? "attention, own kernels" : "attention, cuDNN", "", "",
               1e3 * attention);
        printf("%-28s %6s %8s %8.2f   %.1f%% of 989 TFLOP/s, %.0f tokens/s\n", "a step", "", "", 1e3 * all,
               100 * flops / all / 989e12, TOKENS / all);
    }
    return 0;
}
// ---- a layer of tensor parallel ranks

// Llama 7B: 4096 features, 32 heads of 128, an MLP of 11008; tp 8 with sequence parallelism. Of a rank: each
// product's features, and their sum's inner size; row: row-parallel.
enum { LLAMA = 4096, RANKS = 8, HEAD = LLAMA / RANKS, MLP = 11008 / RANKS, LAYER_SEQUENCE = 4096 };
static const struct {
    const char *name;
    int row;
    double split; // the features that are split over ranks, on this one
} linears[] = {{"qkv", 0, 3 * HEAD}, {"proj", 1, HEAD}, {"up", 0, 2 * MLP}, {"down", 1, MLP}};
static const struct {
    const char *kernel;
    double calls, columns; // of all tokens; of a rank's own tokens: by RANKS fewer
} layer_passes[] = {{"norm, 4096", 1, HEAD},
                    {"sum and norm, 4096", 1, HEAD},
                    {"sum", 1, HEAD},
                    {"norm backward and sum, 4096", 2, HEAD},
                    {"SwiGLU", 1, MLP},
                    {"SwiGLU backward", 1, MLP},
                    {"RoPE", 2, 2.0 * LLAMA / RANKS}};
// How the kit does it: bytes of an element of a sum, and of the pass that brings it to its place; rows in
// pieces by size; the blocks of a piece, one of each rank's rows, as one product.
typedef struct way {
    const char *name;
    double sum_bytes, pass_bytes;
    int in_pieces, blocks_as_one;
} way;
static const way ways[] = {{"sums in f32, a product for each block", 4, 6, 1, 0},
                           {"rows not in pieces", 4, 6, 0, 0},
                           {"blocks as one product", 4, 6, 1, 1},
                           {"and sums in bf16", 2, 4, 1, 1}};
// Attention's rates at 4096 tokens, forward and backward: cuDNN on an H200 has 484 and 370 TFLOP/s at 2048.
static const double layer_attention[2] = {484e12, 370e12};

static double least_of(double a, double b) { return a < b ? a : b; }
static double most_of(double a, double b) { return a > b ? a : b; }
// An all_gather or a reduce_scatter of all tokens' features, over NVLink.
static double exchange(const par_plan_machine *gpu, double tokens, double element_bytes) {
    return element_bytes * tokens * LLAMA * (RANKS - 1) / RANKS / gpu->node_bandwidth +
           (RANKS - 1) * gpu->node_latency;
}
static double layer_product(const par_plan_machine *gpu, double m, double n, double k, double batch) {
    return par__plan_product(gpu, gpu->product_rate, m, n, k, batch, 2 * (batch * (m * k + m * n) + k * n));
}
// A product whose rows come, or whose sums go, in pieces: of each kind one is beside one of the other.
static double beside(const par_plan_machine *gpu, const way *w, double tokens, double element_bytes, double n,
                     double k) {
    const double block = tokens / RANKS, size = tokens * LLAMA * element_bytes / 524288;
    const double p = w->in_pieces ? most_of(1, least_of(4, least_of(floor(block / 256), floor(size)))) : 1;
    const double one = p <= 1             ? layer_product(gpu, tokens, n, k, 1)
                       : w->blocks_as_one ? layer_product(gpu, block / p, n, k, RANKS)
                                          : RANKS * layer_product(gpu, block / p, n, k, 1);
    const double message = exchange(gpu, tokens / p, element_bytes);
    return one + message + (p - 1) * most_of(one, message);
}
static double weights_product(const par_plan_machine *gpu, double tokens, double n) { // cut in up to eight
    double best = 1e9;
    for (double parts = 1; parts <= 8; parts *= 2)
        best = least_of(best, par__plan_product(gpu, gpu->product_rate, LLAMA, n, tokens / parts, parts,
                                                2 * tokens * (LLAMA + n) + 4 * LLAMA * n * parts));
    return best;
}
// Seconds of a layer, forward and backward: products, and messages that are not beside one.
static double layer_products(const par_plan_machine *gpu, const way *w, double tokens) {
    const double gather = exchange(gpu, tokens, 2), sum = exchange(gpu, tokens, w->sum_bytes);
    double seconds = 0;
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        const double n = linears[i].split, weights = weights_product(gpu, tokens, n);
        if (linears[i].row) { // product | sum; gather | gradient of the input, gradient of the weights
            seconds += beside(gpu, w, tokens, w->sum_bytes, LLAMA, n);
            seconds += beside(gpu, w, tokens, 2, n, LLAMA) + weights;
            seconds += tokens * LLAMA / RANKS * w->pass_bytes / gpu->memory_rate + gpu->kernel_seconds;
        } else { // gather | product; gather beside the gradient of the input, sum beside that of the weights
            seconds += beside(gpu, w, tokens, 2, n, LLAMA);
            seconds += most_of(gather, layer_product(gpu, tokens, LLAMA, n, 1)) + most_of(sum, weights);
            seconds += tokens * LLAMA / RANKS * w->pass_bytes / gpu->memory_rate + gpu->kernel_seconds;
        }
    }
    return seconds;
}
static int predict_layer(const char *path) {
    counted rows[KERNELS];
    par_plan_machine gpu;
    const int count = read_table(path, rows);
    if (!count || par_plan_machine_get("h100", &gpu)) return 1;
    printf("%-40s", "ms, of so many tokens");
    for (double tokens = 4096; tokens <= 16384; tokens *= 2) printf(" %8.0f %8s", tokens, "times");
    printf("\n");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        printf("%-40s", ways[i].name);
        for (double tokens = 4096; tokens <= 16384; tokens *= 2) {
            const double flops = 2.0 * LAYER_SEQUENCE * HEAD * tokens;
            double others = flops / layer_attention[0] + 2.5 * flops / layer_attention[1];
            for (size_t k = 0; k < sizeof layer_passes / sizeof layer_passes[0]; k++) {
                const counted *c = row_of(rows, count, layer_passes[k].kernel);
                if (!c) return 1;
                others += layer_passes[k].calls * (tokens * layer_passes[k].columns * c->bytes /
                                                       gpus[0].memory_rate / least(stream_rate, c->share[0]) +
                                                   gpu.kernel_seconds);
            }
            const double first = layer_products(&gpu, &ways[0], tokens) + others;
            const double seconds = layer_products(&gpu, &ways[i], tokens) + others;
            printf(" %8.2f %8.2f", 1e3 * seconds, first / seconds);
        }
        printf("\n");
    }
    return 0;
}
int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--count")) return count_kernels(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "--check")) return check_table(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "--step")) return predict_step(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "--layer")) return predict_layer(argv[2]);
    fprintf(stderr,
            "usage: nvdisasm -c -ndf CUBIN | %s --count PTXAS\n       %s --check|--step|--layer "
            "bench/results/kernels.md\n",
            argv[0], argv[0]);
    return 2;
}

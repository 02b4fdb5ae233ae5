// products.h - who multiplies matrices: the choice, what is said of it, and a checkpoint's note of it. gpt.c
// and gpt_auto.c include it.

// Chooses the fastest matrix product library on the CPU, and how bf16 is multiplied, on the products of a
// step: those of the linear layers (the MLP's first stands for all), of the head and of attention.
static par_result choose_gemm(const settings *o, const gpt_grid *grid, size_t rows) {
    const gpt_config *g = &o->model;
    const size_t R = rows, C = (size_t)g->n_embd, F = gpt_hidden(g), tp = (size_t)o->tp, d = gpt_head_dim(g),
                 block = MIN((size_t)128, (size_t)(g->block_size / o->cp)), f = MAX(F / tp, (size_t)1),
                 v = MAX((size_t)g->vocab_size / tp, (size_t)1);
    const double layers = g->n_layer, blocks = (double)(R / block), heads = (double)g->n_head / o->tp,
                 pairs = layers * heads * blocks * ((double)g->block_size / (double)block + 1) / 2,
                 linear = layers * (4 * (double)C / (double)F + (g->llama ? 3 : 2));
    const par_gemm_shape shapes[] = {{0, 1, R, f, C, linear},
                                     {0, 0, R, C, f, linear},
                                     {1, 0, f, C, R, linear},
                                     {0, 1, R, v, C, 1},
                                     {0, 0, R, C, v, 1},
                                     {1, 0, v, C, R, 1},
                                     {0, 0, block, block, d, 3 * pairs},
                                     {1, 0, block, d, block, 2 * pairs},
                                     {0, 0, block, d, block, 2 * pairs}};
    par_dtype dtype = PAR_F32;
    if (grid->device != par_cpu() || o->canonical) return PAR_OK;
    par_dtype_parse(o->dtype, &dtype);
    return par_tp_gemm_select(shapes, sizeof shapes / sizeof *shapes, dtype, grid->world);
}
static const char *gemm_name(const settings *o, const gpt_grid *g) {
    if (canonical_leaves(o)) return "canonical";
    return g->tp_kernels ? g->tp_kernels->gemm_name : par_gemm_name();
}
static double gemm_rate(const settings *o, const gpt_grid *g) { // GFLOP/s; NaN: not measured
    const par_gemm_report r = par_gemm_get();
    const int raced = g->device == par_cpu() && !o->canonical && r.chosen >= 0 && r.flops[r.chosen] > 0;
    return raced ? r.flops[r.chosen] * 1e-9 : (double)NAN;
}
// Appends the name of what was chosen, and what was measured.
static size_t add_choice(char *text, size_t bytes, const char *name, const par_gemm_report *r) {
    size_t at = (size_t)snprintf(text, bytes, "%s", name);
    if (r->chosen < 0 || r->flops[r->chosen] <= 0) return at;
    at += (size_t)snprintf(text + at, bytes - at, " (%.1f GFLOP/s", r->flops[r->chosen] * 1e-9);
    for (int i = 0; i < r->count; i++)
        if (i != r->chosen && r->flops[i] > 0)
            at += (size_t)snprintf(text + at, bytes - at, "; %s %.1f", r->name[i], r->flops[i] * 1e-9);
        else if (i != r->chosen && strcmp(r->note[i], "not there"))
            at += (size_t)snprintf(text + at, bytes - at, "; %s %s", r->name[i],
                                   strcmp(r->note[i], "cut early") ? r->note[i] : "slower");
    return at + (size_t)snprintf(text + at, bytes - at, ")");
}
// How bf16 is multiplied; NULL: nothing is, or there is no choice.
static const char *bf16_name(const settings *o, const gpt_grid *g) {
    const par_gemm_report r = par_tp_gemm_get();
    return g->device == par_cpu() && !o->canonical && r.chosen >= 0 ? r.name[r.chosen] : NULL;
}
static const char *gemm_text(const settings *o, const gpt_grid *g, char *text,
                             size_t bytes) { // and the others
    par_gemm_report r = par_gemm_get();
    if (isnan(gemm_rate(o, g))) r.chosen = -1;
    size_t at = add_choice(text, bytes, gemm_name(o, g), &r);
    r = par_tp_gemm_get();
    if (!bf16_name(o, g)) return text;
    at += (size_t)snprintf(text + at, bytes - at, ", of bf16 by ");
    return add_choice(text + at, bytes - at, bf16_name(o, g), &r), text;
}

// Who multiplies, for a checkpoint's note: " gemm=built-in bf16=amx_bf16"; "": the bits do not depend on it.
static void print_products(const settings *o, const gpt_grid *g, char *text, size_t bytes) {
    text[0] = 0;
    if (o->canonical) return;
    const size_t at = (size_t)snprintf(text, bytes, " gemm=%s", gemm_name(o, g));
    if (bf16_name(o, g)) snprintf(text + at, bytes - at, " bf16=%s", bf16_name(o, g));
}
// Says what multiplied in the run that saved, where it is another one.
static void compare_products(const settings *o, const gpt_grid *g, const char *note) {
    static const char *const keys[] = {" gemm=", " bf16="};
    char now[128];
    print_products(o, g, now, sizeof now);
    for (int i = 0; i < 2; i++) {
        const char *a = strstr(note, keys[i]), *b = strstr(now, keys[i]);
        char was[32], is[32];
        if (!a || !b || sscanf(a + 6, "%31[A-Za-z0-9_-]", was) != 1 || sscanf(b + 6, "%31s", is) != 1)
            continue;
        if (strcmp(was, is) && par_rank(g->world) == 0)
            fprintf(
                stderr,
                "gpt: the checkpoint was saved with products%s by %s, and this run has %s: results differ in "
                "the last bits (PAR_GEMM chooses)\n",
                i ? " of bf16" : "", was, is);
    }
}

// published.h - reads rows of published measurements: a line of names, then a line for each row, with commas.
// See tests/plan_published.csv for the columns. plan.c and tests/fuzz_plan.c include it, after par_plan.h.
#ifndef PUBLISHED_H
#define PUBLISHED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h> // MIN, MAX

typedef struct row {
    char name[64];
    par_plan_problem problem;
    par_plan_config config;
    unsigned mask;                                             // members of config that are given
    double gpus, seconds, tflops, states_gib, activations_gib; // measured, but for gpus; 0: not measured
} row;
enum { ROW_COLUMNS = 64 };

// Sets nodes for so many GPUs: whole nodes, or a part of one. Returns the GPUs that it has then.
static int set_gpus(par_plan_machine *machine, int gpus) {
    const int per_node = machine->gpus_per_node >= 1 ? (int)machine->gpus_per_node : 1;
    if (gpus < per_node) {
        machine->gpus_per_node = gpus;
        machine->nodes = 1;
        return gpus;
    }
    machine->nodes = gpus / per_node;
    return gpus / per_node * per_node;
}
static double *row_number(row *r, const char *name) { // a column that is a double; NULL: there is none
    if (!strcmp(name, "gpus")) return &r->gpus;
    if (!strcmp(name, "seconds")) return &r->seconds;
    if (!strcmp(name, "tflops")) return &r->tflops;
    if (!strcmp(name, "states_gib")) return &r->states_gib;
    if (!strcmp(name, "activations_gib")) return &r->activations_gib;
#define X(member, what)                                                                                      \
    if (!strcmp(name, #member)) return &r->problem.job.member;
    PAR_PLAN_JOB_FIELDS(X)
#undef X
#define X(member, what)                                                                                      \
    if (!strcmp(name, #member)) return &r->problem.machine.member;
    PAR_PLAN_MACHINE_FIELDS(X)
#undef X
    return NULL;
}
static int *row_size(row *r, const char *name) { // a column that is a size of the model
#define X(member, what)                                                                                      \
    if (!strcmp(name, #member)) return &r->problem.model.member;
    PAR_PLAN_MODEL_FIELDS(X)
#undef X
    return NULL;
}
// Sets a column. NULL, or what is wrong.
static const char *row_set(row *r, const char *name, const char *value, char *why, size_t capacity) {
    char word[160], *end;
    unsigned mask = 0;
    if (!value[0] || !strcmp(name, "source")) return NULL;
    if (!strcmp(name, "name")) return snprintf(r->name, sizeof r->name, "%s", value), (const char *)NULL;
    if (!strcmp(name, "gpu"))
        return par_plan_machine_get(value, &r->problem.machine) ? "no such gpu in the table" : NULL;
    if (!strcmp(name, "model"))
        return par_plan_model_get(value, &r->problem.model) ? "no such model in the table" : NULL;
    double *number = row_number(r, name);
    int *size = row_size(r, name);
    if (number || size) {
        const double v = strtod(value, &end);
        if (end == value || *end || !(v >= 0) || v > (number ? 1e16 : 1e8))
            return number ? "expected a number from 0 to 1e16" : "expected a number from 0 to 1e8";
        if (number) *number = v;
        if (size) *size = (int)v;
        return NULL;
    }
    snprintf(word, sizeof word, "%s=%s", name, value);
    if (par_plan_parse(word, &r->config, &mask, why, capacity)) return why;
    r->mask |= mask;
    return NULL;
}
// What a row leaves out: sizes that follow from others, dp, the schedule. NULL, or what is wrong.
static const char *row_complete(row *r, char *why, size_t capacity) {
    par_plan_model *m = &r->problem.model;
    par_plan_config *c = &r->config;
    if (m->heads < 1 || m->layers < 1 || m->features < 1) return "the model needs layers, features and heads";
    if (!m->kv_heads) m->kv_heads = m->heads;
    if (!m->head_dim) m->head_dim = m->features / m->heads;
    if (!m->hidden) m->hidden = 4 * m->features;
    if (!m->positions && !m->gated) m->positions = (int)r->problem.job.sequence;
    if (!(r->problem.machine.product_rate > 0)) return "the row needs a gpu";
    if (!(r->gpus >= 1) || r->gpus > 65536) return "gpus must be from 1 to 65536";
    set_gpus(&r->problem.machine, (int)r->gpus);
    int *const ones[] = {&c->tp, &c->pp, &c->cp, &c->microbatch, &c->chunks};
    for (int i = 0; i < 5; i++) *ones[i] = MAX(*ones[i], 1);
    if (!c->dp) c->dp = (int)(r->gpus / ((double)c->tp * c->pp * c->cp));
    if (!c->shard) c->shard = c->zero ? (int)MIN((double)c->dp * c->cp, r->gpus) : 1;
    if (c->chunks > 1 && !(r->mask >> PAR_PLAN_AXIS_schedule & 1)) c->schedule = PAR_PIPE_INTERLEAVED;
    if (c->tp < 2) c->overlap &= ~PAR_PLAN_OVERLAP_TP;
    if (c->pp < 2) c->overlap &= ~PAR_PLAN_OVERLAP_PP;
    if (c->dp * (double)c->cp < 2) c->overlap &= ~PAR_PLAN_OVERLAP_DP;
    r->problem.job.fp8 = c->fp8 ? 2 : 0;
    return par_plan_check(&r->problem, c, why, capacity) ? why : NULL;
}
// Seconds of a step, or from TFLOP/s per GPU, as Narayanan et al. 2021 count operations: with those of full
// recomputation. 0: not measured.
static inline double row_seconds(const row *r) {
    const par_plan_problem *p = &r->problem;
    if (r->seconds > 0 || !(r->tflops > 0)) return r->seconds;
    const double head = 6 * p->job.batch * p->job.sequence * p->model.features * p->model.vocab;
    const double once = par_plan_flops(p);
    const double flops = r->config.recompute == PAR_PLAN_RECOMPUTE_FULL ? once + (once - head) / 3 : once;
    return flops / (r->gpus * r->tflops * 1e12);
}
static char *row_next_cell(char **at) { // of a line, which it changes
    char *cell = *at, *comma = strchr(cell, ',');
    *at = comma ? comma + 1 : cell + strlen(cell);
    if (comma) *comma = 0;
    cell += strspn(cell, " \t");
    for (size_t n = strlen(cell); n && strchr(" \t\r", cell[n - 1]); n--) cell[n - 1] = 0;
    return cell;
}
// Reads one row from a line, which it changes. NULL, or what is wrong; *column is where, or "": in all of it.
static const char *row_read(row *r, char *line, char *const *columns, int count, const char **column,
                            char *why, size_t capacity) {
    const char *wrong = NULL;
    memset(r, 0, sizeof *r);
    for (int i = 0; i < count && !wrong; i++)
        wrong = row_set(r, *column = columns[i], row_next_cell(&line), why, capacity);
    if (wrong) return wrong;
    *column = "";
    return *line ? "it has more cells than there are columns" : row_complete(r, why, capacity);
}
// Reads a text, which it changes, and calls fn for each of its rows. 1: a row is wrong, and why has its line.
static int rows_read(char *text, void (*fn)(void *user, const row *r), void *user, char *why,
                     size_t capacity) {
    char *columns[ROW_COLUMNS], problem[320];
    int count = 0, number = 0;
    row r;
    for (char *line = text, *next; line && *line; line = next) {
        const char *column = "";
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        number++;
        if (line[0] == '#' || !line[strspn(line, " \t\r")]) continue;
        if (!count) { // the names of columns
            for (char *at = line; *at && count < ROW_COLUMNS;) columns[count++] = row_next_cell(&at);
            continue;
        }
        const char *wrong = row_read(&r, line, columns, count, &column, problem, sizeof problem);
        if (wrong) {
            snprintf(why, capacity, "line %d%s%s: %s", number, *column ? ", column " : "", column, wrong);
            return 1;
        }
        fn(user, &r);
    }
    return 0;
}

#endif

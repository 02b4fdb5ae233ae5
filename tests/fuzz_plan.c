// fuzz_plan.c - libFuzzer's target for the planner's readers: a config.json, a file of a machine, a text of
// choices, rows of measurements. What is read is in range, or an error with a text; and what is read can be
// planned.
//
//     clang -fsanitize=fuzzer,address,undefined -I. tests/fuzz_plan.c -o build/fuzz_plan -pthread -lm
#define PAR_IMPLEMENTATION
#include "par_plan.h"

#include "../examples/published.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan_it(par_plan_problem *p) {
    par_plan_choice best;
    par_plan_report report;
    p->job.batch = 8;
    p->job.sequence = 64;
    if (!(p->machine.nodes * p->machine.gpus_per_node <= 16)) return; // larger ones only take longer
    const par_result r = par_plan_search(p, NULL, 0, 0, &best, 1, &report);
    if ((r == PAR_OK) != (report.count == 1) || (r != PAR_OK) != (report.why[0] != 0)) abort();
    if (r == PAR_OK && (!report.proved || isnan(best.prediction.seconds))) abort();
}
static void read_choices(const char *text, size_t size) {
    char copy[1024], again[512], why[128];
    par_plan_config c, d;
    unsigned mask;
    memset(&c, 0, sizeof c);
    if (size >= sizeof copy) return;
    if (size) memcpy(copy, text, size);
    copy[size] = 0;
    why[0] = 0;
    if (par_plan_parse(copy, &c, &mask, why, sizeof why)) {
        if (!why[0]) abort();
        return;
    }
    par_plan_format(&c, 0, again, sizeof again);
    if (par_plan_parse(again, &d, &mask, why, sizeof why) || memcmp(&c, &d, sizeof c)) abort();
}
static void predict_row(void *user, const row *r) {
    par_plan_prediction p;
    (void)user;
    par_plan_evaluate(&r->problem, &r->config, &p);
    if (!(p.seconds > 0) || !(p.bytes > 0) || isnan(row_seconds(r))) abort();
}
static void read_rows(const char *text, size_t size) {
    char *copy = (char *)malloc(size + 1), why[400] = "";
    if (size) memcpy(copy, text, size);
    copy[size] = 0;
    if (rows_read(copy, predict_row, NULL, why, sizeof why) != (why[0] != 0)) abort();
    free(copy);
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    par_plan_problem p;
    char ignored[40], why[128] = "";
    if (!size) return 0;
    char *text = (char *)malloc(size); // the readers must not need a 0
    if (size > 1) memcpy(text, data + 1, size - 1);
    memset(&p, 0, sizeof p);
    if (data[0] % 4 == 0) {
        const par_result r =
            par_plan_model_read(text, size - 1, &p.model, ignored, sizeof ignored, why, sizeof why);
        if ((r != PAR_OK) != (why[0] != 0)) abort();
        par_plan_machine_get("a100-40", &p.machine);
        p.machine.gpus_per_node = 4;
        if (r == PAR_OK) plan_it(&p);
    } else if (data[0] % 4 == 1) {
        const par_result r = par_plan_machine_read(text, size - 1, &p.machine, why, sizeof why);
        if ((r != PAR_OK) != (why[0] != 0)) abort();
        par_plan_model_get("gpt2", &p.model);
        if (r == PAR_OK) plan_it(&p);
    } else if (data[0] % 4 == 2) {
        read_choices(text, size - 1);
    } else {
        read_rows(text, size - 1);
    }
    free(text);
    return 0;
}

// fuzz_pipe.c - libFuzzer's target for tables of pipelines: what is read is right, or an error; and what is
// right can be simulated, planned and turned into forwards.
//
//     clang -fsanitize=fuzzer,address,undefined -I. tests/fuzz_pipe.c -o build/fuzz_pipe -pthread -lm
#define PAR_IMPLEMENTATION
#include "par_pipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    par_pipe_schedule s, forwards;
    par_pipe_timeline t;
    par_pipe_desc d;
    par_pipe_stage stage;
    memset(&d, 0, sizeof d), memset(&stage, 0, sizeof stage);
    stage.input_bytes = 64, stage.b_bytes = 100, d.stages = &stage, d.stage_count = 1;
    if (size && data[0] & 1)
        d.recompute = PAR_PIPE_RECOMPUTE_FUSED, d.max_gathered_stages = 1, d.reduce = 1, d.tied = 1;
    char *text = (char *)malloc(size + 1); // the reader must not need a 0
    if (size) memcpy(text, data, size);
    const par_result r = par_pipe_parse(text, size, &d, &s);
    if ((r == PAR_OK) == (s.why[0] != 0)) abort();
    if (r == PAR_OK && s.ranks <= 64) {
        par_pipe_memory memory[64];
        if (par_pipe_verify(&s, PAR_PIPE_NONBLOCKING, memory)) abort();
        if (par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t)) abort();
        par_pipe_timeline_close(&t);
        if (par_pipe_forward_only(&s, 0, &forwards) ||
            par_pipe_verify(&forwards, PAR_PIPE_NONBLOCKING, memory))
            abort();
        par_pipe_schedule_close(&forwards);
    }
    par_pipe_schedule_close(&s);
    free(text);
    return 0;
}

// fuzz_par.c - the targets fuzz_settings.c and fuzz_tcp.c in one program, since par.h compiles long: its name
// says which one it is.
#include <stddef.h>
#include <stdint.h>
int fuzz_settings(const uint8_t *data, size_t size);
int fuzz_tcp(const uint8_t *data, size_t size);
#define LLVMFuzzerTestOneInput fuzz_settings
#include "fuzz_settings.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_tcp
#include "fuzz_tcp.c"
#undef LLVMFuzzerTestOneInput

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is_tcp;
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    is_tcp = strstr((*argv)[0], "fuzz_tcp") != NULL;
    return 0;
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return is_tcp ? fuzz_tcp(data, size) : fuzz_settings(data, size);
}

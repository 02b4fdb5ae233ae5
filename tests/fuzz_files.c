// fuzz_files.c - libFuzzer's target for what par_zero.h reads: safetensors, and manifests of checkpoints; and
// for the trainer's tokenizer files.
//
//     clang -fsanitize=fuzzer,address,undefined -I. tests/fuzz_files.c -o build/fuzz_files -pthread -lm
//     build/fuzz_files -max_total_time=60 CORPUS
#define PAR_IMPLEMENTATION
#include "par_zero.h"
#include "../examples/gpt/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// A file as it is; then as a header whose length fits, so that fewer inputs end at the length.
static void try_safetensors(const uint8_t *data, size_t size, int framed) {
    par_zero_safetensors s;
    memset(&s, 0, sizeof s);
    const size_t bytes = framed ? size + 8 + 64 : size;
    char *file = (char *)calloc(bytes + 1, 1);
    const uint64_t n = size;
    if (framed) memcpy(file, &n, 8);
    if (size) memcpy(file + (framed ? 8 : 0), data, size);
    if (!par__zero_parse(&s, file, bytes))
        for (size_t i = 0; i < s.count; i++) { // then everything in it can be read
            float x;
            const par_zero_array *a = &s.list[i];
            const volatile char *last = (const char *)a->data + a->bytes - 1;
            if (a->bytes) (void)*last;
            if (a->count && a->dtype <= PAR_BF16) par_zero_safetensors_read(a, a->count - 1, 1, &x);
            if (par_zero_safetensors_find(&s, a->name) != a) abort();
        }
    par_zero_safetensors_close(&s);
    free(file);
}
static void try_manifest(const uint8_t *data, size_t size) { // with the checksum that it needs
    par__zero_manifest m;
    char why[128], name[PAR_ZERO_NAME], note[64];
    uint64_t hex = 0, bytes = 0;
    memset(&m, 0, sizeof m);
    m.text = (char *)calloc(size + 64, 1);
    if (size) memcpy(m.text, data, size);
    const size_t n = strlen(m.text);
    sprintf(m.text + n, "%s%016llx\"}\n", par__zero_self, (unsigned long long)par__zero_hash(m.text, n));
    if (!par__zero_parse_manifest(&m, strlen(m.text), why, sizeof why)) {
        par__json j = {m.files, m.files + strlen(m.files), 0};
        par__json_need(&j, '[');
        while (par__zero_next_row(&j, name, sizeof name, "header", &hex, &bytes)) continue;
        par__json k = {m.note, m.note + strlen(m.note), 0};
        par__json_text(&k, note, sizeof note, 1);
    }
    free(m.text);
}
static void try_tokenizer(const uint8_t *data, size_t size) { // behind a header of so many tokens
    const uint32_t header[3] = {20240328, 2, (uint32_t)(size / 3 + 1)};
    const int count = (int)header[2];
    tokenizer k = {(unsigned char *)calloc(1024 + size, 1), (size_t *)calloc((size_t)count, sizeof(size_t))};
    size_t length, sum = 1024;
    memcpy(k.file, header, sizeof header);
    if (size) memcpy(k.file + 1024, data, size);
    if (!tokenizer_parse(&k, "x", 1024 + size, count))
        for (int i = 0; i < count; i++, sum += length + 1) {
            unsigned char byte;
            const volatile unsigned char *text = tokenizer_text(&k, count, i, &byte, &length);
            if (length) (void)text[length - 1];
            if (sum + 1 + length > 1024 + size) abort();
        }
    tokenizer_close(&k);
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_safetensors(data, size, 0);
    try_safetensors(data, size, 1);
    try_manifest(data, size);
    try_tokenizer(data, size);
    return 0;
}

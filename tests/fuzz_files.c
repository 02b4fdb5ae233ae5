// fuzz_files.c - libFuzzer's target for what the kit reads, safetensors and manifests of checkpoints; and for
// what the trainer reads: tokenizer files, files of tokens, config.json, indexes and llm.c's models.
//
//     clang -fsanitize=fuzzer,address,undefined -I. -Iexamples/gpt tests/fuzz_files.c
//         -o build/fuzz_files -pthread -lm
//     build/fuzz_files -max_total_time=60 CORPUS
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PAR_IMPLEMENTATION
#include "par_zero.h"
#include "par_tp.h"
#include "model.h"
#include "data.h"
#include "files.h"
#include "tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// A file as it is; then as a header whose length fits, so that fewer inputs end at the length.
static void try_safetensors(const uint8_t *data, size_t size, int framed) {
    par_safetensors s;
    memset(&s, 0, sizeof s);
    const size_t bytes = framed ? size + 8 + 64 : size;
    char *file = (char *)calloc(bytes + !bytes, 1); // no byte behind it
    const uint64_t n = size;
    if (framed) memcpy(file, &n, 8);
    if (size) memcpy(file + (framed ? 8 : 0), data, size);
    if (!par__safetensors_parse(&s, file, bytes))
        for (size_t i = 0; i < s.count; i++) { // then everything in it can be read
            float x;
            const par_file_tensor *a = &s.list[i];
            const volatile char *last = (const char *)a->data + a->bytes - 1;
            if (a->bytes) (void)*last;
            if (a->count && par_dtype_traits_of(par_zero_file_dtype(a))->is_float)
                par_zero_safetensors_read(a, a->count - 1, 1, &x);
            if (par_safetensors_find(&s, a->name) != a) abort();
        }
    par_safetensors_close(&s);
    free(file);
}
static void try_manifest(const uint8_t *data, size_t size) { // with the checksum that it needs
    par__zero_manifest m;
    char why[128], name[PAR_FILE_NAME_BYTES], note[64];
    uint64_t hex = 0, bytes = 0;
    memset(&m, 0, sizeof m);
    m.text = (char *)calloc(size + 64, 1);
    if (size) memcpy(m.text, data, size);
    const size_t n = strlen(m.text);
    sprintf(m.text + n, "%s%016llx\"}\n", par__zero_self, (unsigned long long)par__zero_hash(m.text, n));
    if (!par__zero_parse_manifest(&m, strlen(m.text), why, sizeof why)) {
        par_json j = {m.files, m.files + strlen(m.files), 0};
        for (size_t i = 0; par__zero_next_row(&j, i, name, sizeof name, "header", &hex, &bytes); i++)
            continue;
        par_json k = {m.note, m.note + strlen(m.note), 0};
        par_json_string(&k, note, sizeof note, 1);
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
// As one of the formats whose headers lie; for Megatron's it is the index of a file of 64 bytes.
static void try_tokens(const uint8_t *data, size_t size, data_type type) {
    unsigned char tokens[64] = {1, 2, 3};
    dataset d;
    data_desc how;
    data_file f;
    data_index x;
    int from[4], to[4];
    memset(&d, 0, sizeof d), memset(&how, 0, sizeof how), memset(&f, 0, sizeof f), memset(&x, 0, sizeof x);
    char name[] = "x.bin";
    unsigned char *copy = (unsigned char *)malloc(size + !size);
    if (!copy) return;
    if (size) memcpy(copy, data, size);
    const int index = type == DATA_MEGATRON;
    f.path = name, f.type = type, f.map = index ? tokens : copy, f.bytes = index ? sizeof tokens : size;
    x.map = copy, x.bytes = size;
    d.files = &f, d.file_count = 1, how.data = name, how.block_size = 4;
    const int read = type == DATA_LLMC  ? data_read_llmc(&d, 0)
                     : type == DATA_NPY ? data_read_npy(&d, 0)
                                        : data_index_parse(&d, name, &x) && data_index_runs(&d, 0, name, &x);
    if (read && data_hold_out(&d) && data_count_starts(&d, 0, &how, 1) && data_count_starts(&d, 1, &how, 1) &&
        data_vocabulary(&d, &how)) // then all of it can be drawn
        for (uint64_t i = 0; i < 64; i++)
            if (data_sequence(&d, i & 1, 1, 0, i, 4, from, to)) abort();
    free(d.subsets[0].runs), free(d.subsets[1].runs), free(copy);
}
static void try_config(const char *text) { // what is read is a model that can be counted
    char why[640];
    gpt_config g;
    files_huggingface h;
    memset(&h, 0, sizeof h);
    why[0] = 0;
    const char *wrong = files_config_of(text, "config.json", NULL, &g, why, sizeof why);
    if ((wrong != NULL) != (why[0] != 0)) abort();
    if (!wrong && (gpt_check(&g) || !gpt_parameter_count(&g))) abort();
    h.shards = (par_safetensors *)calloc(1000, sizeof *h.shards);
    files_shards(&h, "/nonexistent", text);
    files_close(&h);
}
static void try_llmc(const uint8_t *data, size_t size) { // a header, and no weights: never a model that fits
    static int fd = -1;
    uint8_t head[1024] = {0};
    const int32_t magic = FILES_LLMC;
    char path[64], why[640] = "";
    gpt_config g;
    if (fd < 0) fd = memfd_create("model", 0);
    memcpy(head, data, PAR__MIN(size, sizeof head));
    memcpy(head, &magic, sizeof magic), head[4] = head[4] & 1 ? 3 : 5, head[5] = head[6] = head[7] = 0;
    if (ftruncate(fd, 0) || pwrite(fd, head, sizeof head, 0) != sizeof head) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!files_llmc_config(path, &g, why, sizeof why) || !why[0]) abort();
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = (char *)calloc(size + 1, 1);
    if (size) memcpy(text, data, size);
    try_config(text), free(text);
    try_llmc(data, size);
    try_tokens(data, size, DATA_LLMC), try_tokens(data, size, DATA_NPY),
        try_tokens(data, size, DATA_MEGATRON);
    try_safetensors(data, size, 0);
    try_safetensors(data, size, 1);
    try_manifest(data, size);
    try_tokenizer(data, size);
    return 0;
}

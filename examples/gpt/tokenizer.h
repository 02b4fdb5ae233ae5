// tokenizer.h - what a vocabulary's tokens stand for, from llm.c's tokenizer files (gpt2_tokenizer.bin).
//
// The format: 256 words of 32 bits, the first of which are 20240328, the version (1 or 2) and the number of
// tokens; then for each token a byte with its length, and so many bytes. It converts tokens to text only.
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "par_files.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tokenizer {
    unsigned char *file; // the whole of it; NULL: none
    size_t *at;          // of each token's length byte
} tokenizer;

// Finds the tokens in k->file. NULL, or what is wrong.
static const char *tokenizer_parse(tokenizer *k, const char *path, size_t bytes, int vocab_size) {
    static char why[4500];
    uint32_t header[3];
    size_t at = 1024;
    if (bytes >= at) memcpy(header, k->file, sizeof header);
    if (bytes < at || header[0] != 20240328 || header[1] < 1 || header[1] > 2) {
        snprintf(why, sizeof why, "%.4000s is no tokenizer file of llm.c's, version 1 or 2", path);
        return why;
    }
    if (header[2] != (uint32_t)vocab_size) {
        snprintf(why, sizeof why, "the tokenizer file %.4000s has %lu tokens, but the model %d", path,
                 (unsigned long)header[2], vocab_size);
        return why;
    }
    for (int i = 0; i < vocab_size; at += 1u + k->file[at], i++) {
        if (at >= bytes || k->file[at] > bytes - at - 1) {
            snprintf(why, sizeof why, "the tokenizer file %.4000s ends within token %d of %d", path, i,
                     vocab_size);
            return why;
        }
        k->at[i] = at;
    }
    return NULL;
}
// NULL, or what is wrong. It must have the model's vocabulary.
static inline const char *tokenizer_open(tokenizer *k, const char *path, int vocab_size) {
    static char why[4500];
    size_t bytes;
    memset(k, 0, sizeof *k);
    k->file = (unsigned char *)par_file_read(path, &bytes, why, sizeof why);
    if (!k->file) return why;
    k->at = (size_t *)calloc((size_t)vocab_size, sizeof *k->at);
    return k->at ? tokenizer_parse(k, path, bytes, vocab_size) : "out of memory for the tokenizer";
}
static void tokenizer_close(tokenizer *k) {
    free(k->file);
    free(k->at);
    memset(k, 0, sizeof *k);
}

// The bytes of a token, `*length` of them; NULL: the token has no text. Without a file, and with a vocabulary
// of 256, the token is the byte in `byte`.
static const unsigned char *tokenizer_text(const tokenizer *k, int vocab_size, int32_t token,
                                           unsigned char *byte, size_t *length) {
    if (k->file) return *length = k->file[k->at[token]], k->file + k->at[token] + 1;
    return *byte = (unsigned char)token, *length = 1, vocab_size == 256 ? byte : NULL;
}

#endif

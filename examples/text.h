// text.h - the text that 05_gpt_simple.c and those after it learn, character by character.
#ifndef TEXT_H
#define TEXT_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct gpt_text {
    unsigned char bytes[1 << 20], character[256]; // character[i] is number i of the vocabulary
    size_t length, vocabulary;
    int32_t number[256]; // of a character
} gpt_text;

static const char text_own[] = "one rank reads a page, and another rank reads the next page\n"
                               "each rank knows what its page says, and no rank knows it all\n"
                               "so they pass their sums around the ring, from rank to rank\n"
                               "when the sums come home, every rank has learned every page\n"
                               "then they turn the pages, and the ring goes round again\n";

// Reads a file, or of a larger one the first megabyte; path NULL: the lines above. NULL, or what is wrong.
static const char *text_read(gpt_text *t, const char *path, size_t tokens) {
    FILE *f = path ? fopen(path, "rb") : NULL;
    const char *why = path && !f ? strerror(errno) : NULL;
    if (f) {
        t->length = fread(t->bytes, 1, sizeof t->bytes, f);
        if (ferror(f)) why = strerror(errno);
        fclose(f);
    }
    if (!path) memcpy(t->bytes, text_own, t->length = sizeof text_own - 1);
    if (why) return why;
    for (size_t i = 0; i < t->length; i++) t->number[t->bytes[i]] = 1;
    for (int c = 0; c < 256; c++) {
        if (!t->number[c]) continue;
        t->character[t->vocabulary] = (unsigned char)c;
        t->number[c] = (int32_t)t->vocabulary++;
    }
    return t->length > tokens ? NULL : "it is shorter than a sequence";
}
// Sequences from anywhere in the text, and as targets the same one character later. `first` is the number of
// the first sequence among all of a training.
static void text_batch(const gpt_text *t, uint64_t seed, uint64_t first, size_t sequences, size_t tokens,
                       int32_t *ids, int32_t *targets) {
    for (size_t i = 0; i < sequences * tokens; i++) {
        const float where = par_uniform(seed, 0, first + i / tokens) * (float)(t->length - tokens);
        const unsigned char *from = t->bytes + (size_t)where + i % tokens;
        ids[i] = t->number[from[0]];
        targets[i] = t->number[from[1]];
    }
}

#endif

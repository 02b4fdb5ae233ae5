// data.h - tokens: a file of raw bytes, or llm.c's token files, split into training and held-out parts.
#ifndef DATA_H
#define DATA_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct dataset {
    const unsigned char *bytes; // the mapped file
    size_t file_bytes, first;   // where tokens begin
    int width;                  // bytes per token: 1, 2 or 4
    size_t count;               // tokens
    int vocab_size;
    size_t train_count; // the first 9/10; the rest is held out
} dataset;

static int data_token(const dataset *d, size_t i) {
    const unsigned char *p = d->bytes + d->first + i * (size_t)d->width;
    if (d->width == 1) return p[0];
    if (d->width == 2) return p[0] | p[1] << 8;
    return (int)(p[0] | p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

// NULL, or what is wrong. block_size + 1 tokens must fit both parts.
static const char *data_open(dataset *d, const char *path, int block_size) {
    static char why[512];
    uint32_t header[3];
    memset(d, 0, sizeof *d);
    const int fd = par_open_file(path, &d->file_bytes, why, sizeof why);
    if (fd < 0) return why;
    if (d->file_bytes) {
        void *p = mmap(NULL, d->file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        d->bytes = p == MAP_FAILED ? NULL : (const unsigned char *)p;
    }
    close(fd);
    if (!d->bytes) {
        snprintf(why, sizeof why, "the data file %s is empty", path);
        return why;
    }
    d->width = 1, d->vocab_size = 256, d->count = d->file_bytes;
    if (d->file_bytes >= 1024) {
        memcpy(header, d->bytes, sizeof header);
        if (header[0] == 20240520 && header[1] == 1) d->width = 2, d->vocab_size = 50257;
        if (header[0] == 20240801 && header[1] == 7) d->width = 4, d->vocab_size = 128256;
    }
    if (d->width > 1) {
        d->first = 1024, d->count = header[2];
        if ((d->file_bytes - 1024) / (size_t)d->width < d->count) {
            snprintf(why, sizeof why, "the token file %s says %zu tokens but holds %zu: it is truncated",
                     path, d->count, (d->file_bytes - 1024) / (size_t)d->width);
            return why;
        }
        for (size_t i = 0; i < d->count; i++)
            if (data_token(d, i) < 0 || data_token(d, i) >= d->vocab_size) {
                snprintf(why, sizeof why, "the token file %s: token %zu is %d, beyond the vocabulary of %d",
                         path, i, data_token(d, i), d->vocab_size);
                return why;
            }
    }
    d->train_count = d->count / 10 * 9;
    if (d->count - d->train_count < (size_t)block_size + 1 || d->train_count < (size_t)block_size + 1) {
        snprintf(why, sizeof why, "the data file %s has %zu tokens; block_size %d needs at least %d", path,
                 d->count, block_size, 10 * (block_size + 2));
        return why;
    }
    return NULL;
}

// Sequence `index` of a step: the same for every number of ranks.
static void data_sequence(const dataset *d, int held_out, uint64_t seed, uint64_t step, uint64_t index, int t,
                          int *x, int *y) {
    const size_t first = held_out ? d->train_count : 0,
                 count = held_out ? d->count - d->train_count : d->train_count;
    const size_t at = first + (size_t)(par_random(seed ^ 0x5eed, step << 1 | (uint64_t)held_out, index) %
                                       (count - (size_t)t));
    for (int i = 0; i < t; i++)
        x[i] = data_token(d, at + (size_t)i), y[i] = data_token(d, at + (size_t)i + 1);
}

#endif

// checkpoint.h - one file DIR/checkpoint.bin: header, weights, both AdamW moments, checksum, all whole, so
// that any other number of ranks goes on from it. Written beside the old one and renamed over it, so that at
// every moment a whole one exists.
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include <libgen.h>

typedef struct checkpoint_header {
    char magic[8]; // "PARGPT3"
    int64_t step;
    uint64_t count; // floats in each of the three arrays
    gpt_config config;
    uint64_t checksum; // of the arrays
} checkpoint_header;

static uint64_t checkpoint_sum(uint64_t h, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 0x100000001b3u;
    }
    return h;
}

// NULL, or what is wrong.
static const char *checkpoint_save(const char *dir, const gpt_config *g, int64_t step, float *const arrays[3],
                                   size_t count) {
    static char why[4400];
    char path[4096], temporary[4200];
    checkpoint_header h;
    memset(&h, 0, sizeof h);
    memcpy(h.magic, "PARGPT3", 8);
    h.step = step, h.count = count, h.config = *g, h.checksum = 0xcbf29ce484222325u;
    for (int i = 0; i < 3; i++) h.checksum = checkpoint_sum(h.checksum, arrays[i], count);
    snprintf(path, sizeof path, "%s/checkpoint.bin", dir);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (mkdir(dir, 0777) && errno != EEXIST) {
        snprintf(why, sizeof why, "cannot make the directory %s: %s", dir, strerror(errno));
        return why;
    }
    FILE *f = fopen(temporary, "wb");
    int ok = f && fwrite(&h, sizeof h, 1, f) == 1;
    for (int i = 0; i < 3 && ok; i++) ok = fwrite(arrays[i], sizeof(float), count, f) == count;
    ok = ok && !fflush(f) && !fsync(fileno(f));
    const int error = errno;
    if (f && fclose(f)) ok = 0;
    ok = ok && !rename(temporary, path);
    const int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d >= 0) fsync(d), close(d);
    if (ok) return NULL;
    unlink(temporary);
    snprintf(why, sizeof why, "cannot write the checkpoint %s: %s; the previous one is untouched", path,
             strerror(error ? error : errno));
    return why;
}

// The header only (arrays NULL), or all of it.
static const char *checkpoint_load(const char *dir, checkpoint_header *h, float *const *arrays) {
    static char why[4400];
    char path[4096];
    struct stat s;
    snprintf(path, sizeof path, "%s/checkpoint.bin", dir);
    FILE *f = fopen(path, "rb");
    if (!f) {
        snprintf(why, sizeof why, "cannot open the checkpoint %s: %s", path, strerror(errno));
        return why;
    }
    const gpt_config *g = &h->config;
    const char *problem = NULL;
    if (fread(h, sizeof *h, 1, f) != 1 || memcmp(h->magic, "PARGPT3", 8))
        problem = "it is not a checkpoint of this program";
    else if (g->n_layer < 1 || g->n_head < 1 || g->n_embd < 1 || g->block_size < 1 || g->vocab_size < 1 ||
             h->step < 0 || g->n_layer > 10000 || g->n_embd > 1 << 20 || g->block_size > 1 << 24 ||
             g->vocab_size > 1 << 24 || g->n_embd % g->n_head || g->n_kv_head < 0 ||
             g->n_kv_head > g->n_head || h->count != gpt_whole_count(g))
        problem = "its header is damaged";
    else if (fstat(fileno(f), &s) || (uint64_t)s.st_size != sizeof *h + 3 * h->count * sizeof(float))
        problem = "it is truncated";
    uint64_t sum = 0xcbf29ce484222325u;
    for (int i = 0; i < 3 && arrays && !problem; i++) {
        if (fread(arrays[i], sizeof(float), h->count, f) != h->count)
            problem = "it is truncated";
        else
            sum = checkpoint_sum(sum, arrays[i], h->count);
    }
    if (!problem && arrays && sum != h->checksum) problem = "its checksum is wrong: it is damaged";
    fclose(f);
    if (!problem) return NULL;
    snprintf(why, sizeof why, "cannot load the checkpoint %s: %s", path, problem);
    return why;
}

#endif

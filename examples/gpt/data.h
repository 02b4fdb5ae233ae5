// data.h - reads tokens for training and for evaluation.
//
// Formats: raw bytes; uint16 without a header, as in nanoGPT's .bin, or uint32 or uint64, if data_type says
// so; llm.c's token files; Megatron's .bin with an .idx of either version; NumPy's .npy. Several files, a
// pattern, or a directory of shards are one dataset; a sequence never crosses from one file into another.
// Files are not trusted: lengths and offsets are compared with the file, and each token with the vocabulary
// before it is used.
#ifndef DATA_H
#define DATA_H

#include "par_files.h"
#include "par_math.h"
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/param.h> // MIN, MAX
#include <sys/stat.h>
#include <unistd.h>

#define DATA_TYPES(X)                                                                                        \
    X(AUTO, "auto")         /* what the file's first bytes say, or its name */                               \
    X(BYTES, "bytes")       /* a byte is a token */                                                          \
    X(U16, "u16")           /* nothing but tokens: uint16 */                                                 \
    X(U32, "u32")           /* uint32 */                                                                     \
    X(U64, "u64")           /* uint64 */                                                                     \
    X(LLMC, "llmc")         /* 256 int32, of which magic, version and count; then uint16 or uint32 */        \
    X(NPY, "npy")           /* NumPy's, of one dimension */                                                  \
    X(MEGATRON, "megatron") /* NAME.bin, and where its sequences are: NAME.idx */
#define X(name, text) DATA_##name,
typedef enum data_type { DATA_TYPES(X) DATA_TYPE_COUNT } data_type;
#undef X
#define X(name, text) text,
static const char *const data_type_names[] = {DATA_TYPES(X)};
#undef X

enum { DATA_MAX_VOCABULARY = 1 << 24 }; // in a vocabulary

typedef struct data_file {
    char *path;
    unsigned char *map;
    size_t bytes, first;  // first: the byte from which tokens are counted
    data_type type;       // as read
    int width, is_signed; // of a token: 1, 2, 4 or 8 bytes
    int vocab_size;       // that the format has; 0: it has none
} data_file;
typedef struct data_run {   // tokens side by side
    size_t file, at, count; // at: its first byte in the file
    size_t starts;          // of sequences, in the runs before it
} data_run;
typedef struct data_subset { // training, or held out
    data_run *runs;
    size_t run_count, token_count, starts;
} data_subset;
typedef struct dataset {
    data_file *files;
    size_t file_count;
    data_subset subsets[2];
    int vocab_size;
    char why[4600];
} dataset;
typedef struct data_desc {
    const char *data, *val_data; // val_data NULL: a directory's val shards, else the last tenth of data
    const char *type;            // of data_type_names
    int vocab_size;              // the model's; 0: what the data says
    int block_size;
    size_t check_bytes; // of more the tokens are compared with the vocabulary when drawn; 0: 1 GiB
} data_desc;

__attribute__((format(printf, 2, 3))) static int data_fail(dataset *d, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(d->why, sizeof d->why, format, list);
    va_end(list);
    return 0;
}

// ---- bytes of files ---------------------------------------------------------------------------------------

static uint64_t data_read_uint(const unsigned char *p, int width) { // little-endian
    uint16_t h;
    uint32_t w;
    uint64_t v;
    switch (width) {
    case 1: return *p;
    case 2: return memcpy(&h, p, 2), h;
    case 4: return memcpy(&w, p, 4), w;
    default: return memcpy(&v, p, 8), v;
    }
}
static const unsigned char *data_token_address(const dataset *d, const data_run *r, size_t token) {
    const data_file *f = &d->files[r->file];
    return f->map + r->at + token * (size_t)f->width;
}
// Maps a whole file. NULL: d->why has the error.
static unsigned char *data_map(dataset *d, const char *path, size_t *bytes) {
    const int fd = par_file_open(path, bytes, d->why, sizeof d->why);
    if (fd < 0) return NULL;
    void *map = *bytes ? mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (!*bytes) data_fail(d, "the data file %s is empty", path);
    if (*bytes && map == MAP_FAILED) data_fail(d, "cannot map the data file %s: %s", path, strerror(errno));
    close(fd);
    return map == MAP_FAILED ? NULL : (unsigned char *)map;
}
static void data_unmap(unsigned char *map, size_t bytes) {
    if (map) munmap(map, bytes);
}
// Adds a run of count tokens from byte `at` of the last file on, or extends the run before it.
static int data_add_run(dataset *d, int part, size_t at, size_t count) {
    data_subset *p = &d->subsets[part];
    data_run *last = p->run_count ? &p->runs[p->run_count - 1] : NULL;
    const size_t file = d->file_count - 1, width = (size_t)d->files[file].width;
    if (!count) return 1;
    p->token_count += count;
    if (last && last->file == file && last->at + last->count * width == at) return last->count += count, 1;
    if (!(p->run_count & (p->run_count - 1))) { // full: all powers of two are
        const size_t capacity = p->run_count ? 2 * p->run_count : 1;
        data_run *more = (data_run *)realloc(p->runs, capacity * sizeof *more);
        if (!more) return data_fail(d, "out of memory for the data's index");
        p->runs = more;
    }
    memset(&p->runs[p->run_count], 0, sizeof *p->runs);
    p->runs[p->run_count].file = file;
    p->runs[p->run_count].at = at;
    p->runs[p->run_count].count = count;
    return p->run_count++, 1;
}

// ---- formats: each sets the last file's members from its header, and adds its runs ------------------------

// Adds the tokens from byte `first` to the end of the file. count: the header's; SIZE_MAX: there is no
// header.
static int data_read_tokens(dataset *d, int part, size_t first, size_t count, int width) {
    data_file *f = &d->files[d->file_count - 1];
    const size_t here = (f->bytes - first) / (size_t)width, odd = (f->bytes - first) % (size_t)width;
    f->first = first;
    f->width = width;
    if (count == SIZE_MAX && odd)
        return data_fail(d, "%s has %zu bytes, which are no whole number of %s tokens: --data_type?", f->path,
                         f->bytes, data_type_names[f->type]);
    if (count != SIZE_MAX && (count != here || odd))
        return data_fail(d, "the token file %s says %zu tokens but holds %zu%s: it is %s", f->path, count,
                         here, odd ? " and a part of one" : "",
                         count > here ? "truncated" : "longer than its header says");
    return data_add_run(d, part, first, here);
}
static int data_read_llmc(dataset *d, int part) {
    static const struct {
        uint32_t magic, version;
        int width, vocab_size;
    } kinds[] = {{20240520, 1, 2, 50257}, {20240801, 7, 4, 128256}};
    data_file *f = &d->files[d->file_count - 1];
    uint32_t h[3] = {0, 0, 0};
    memcpy(h, f->map, MIN(f->bytes, sizeof h));
    for (size_t i = 0; i < 2; i++) {
        if (h[0] != kinds[i].magic || h[1] != kinds[i].version) continue;
        if (f->bytes < 1024) return data_fail(d, "the token file %s is truncated", f->path);
        f->vocab_size = kinds[i].vocab_size;
        return data_read_tokens(d, part, 1024, h[2], kinds[i].width);
    }
    return data_fail(d, "%s is no token file of llm.c's (magic %u, version %u)", f->path, h[0], h[1]);
}
// The value of a key in the header of a .npy, which is a Python dictionary.
static const char *data_npy_value(const char *header, const char *key) {
    const char *p = strstr(header, key);
    if (!p) return "";
    p += strlen(key);
    return p + strspn(p, ": ");
}
static int data_read_npy(dataset *d, int part) {
    static const struct {
        const char *name;
        int width, is_signed;
    } types[] = {{"'|u1'", 1, 0}, {"'<u2'", 2, 0}, {"'<u4'", 4, 0},
                 {"'<i4'", 4, 1}, {"'<u8'", 8, 0}, {"'<i8'", 8, 1}};
    data_file *f = &d->files[d->file_count - 1];
    char text[1024] = "", *end = NULL;
    if (f->bytes < 12 || memcmp(f->map, "\x93NUMPY", 6))
        return data_fail(d, "%s is no .npy file of NumPy's", f->path);
    const int version = f->map[6], wide = version > 1;
    const size_t begin = wide ? 12 : 10, n = (size_t)data_read_uint(f->map + 8, wide ? 4 : 2);
    if (version < 1 || version > 3 || f->map[7])
        return data_fail(d, "%s is of version %d.%d of NumPy's format; 1.0 to 3.0 can be read", f->path,
                         version, f->map[7]);
    if (n >= sizeof text || n > f->bytes - begin)
        return data_fail(d, "%s: its header of %zu bytes is damaged", f->path, n);
    memcpy(text, f->map + begin, n);
    const char *descr = data_npy_value(text, "'descr'"), *shape = data_npy_value(text, "'shape'");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strncmp(descr, types[i].name, 5)) {
            f->width = types[i].width;
            f->is_signed = types[i].is_signed;
        }
    if (!f->width)
        return data_fail(d,
                         "%s has elements of type %.12s; tokens are u1, u2, u4, i4, u8 or i8, little-endian",
                         f->path, *descr ? descr : "(none)");
    if (strncmp(data_npy_value(text, "'fortran_order'"), "False", 5))
        return data_fail(d, "%s is not in C order", f->path);
    errno = 0;
    const unsigned long long count = *shape == '(' ? strtoull(shape + 1, &end, 10) : 0;
    if (!end || end == shape + 1 || shape[1] == '-' || errno || strncmp(end, ",)", 2))
        return data_fail(d, "%s has the shape %.24s; tokens have one dimension", f->path, shape);
    // SIZE_MAX would be a count that the header does not have
    return data_read_tokens(d, part, begin + n, (size_t)MIN(count, SIZE_MAX - 1ull), f->width);
}

// Megatron's index. Both versions tell where sequence i begins, in bytes, and how many tokens it has.
typedef struct data_index {
    unsigned char *map;
    const unsigned char *lengths, *offsets, *dims; // dims: of version TNTIDX
    size_t bytes, count;
    int old;
} data_index;
static int data_index_type(dataset *d, const char *path, uint64_t code) { // that of the last file's tokens
    static const struct {
        uint64_t code;
        int width, is_signed;
    } types[] = {{1, 1, 0}, {4, 4, 1}, {5, 8, 1}, {8, 2, 0}};
    data_file *f = &d->files[d->file_count - 1];
    for (size_t i = 0; i < 4; i++)
        if (types[i].code == code) return f->width = types[i].width, f->is_signed = types[i].is_signed, 1;
    return data_fail(d,
                     "%s has elements of type %llu; tokens are 1 (uint8), 4 (int32), 5 (int64), 8 (uint16)",
                     path, (unsigned long long)code);
}
static int data_index_parse(dataset *d, const char *path, data_index *x) {
    const unsigned char *m = x->map;
    const size_t bytes = x->bytes;
    x->old = bytes >= 56 && !memcmp(m, "TNTIDX\0", 8);
    if (!x->old && (bytes < 34 || memcmp(m, "MMIDIDX\0", 9)))
        return data_fail(d, "%s is no index of Megatron's: it begins with neither MMIDIDX nor TNTIDX", path);
    if (data_read_uint(m + (x->old ? 8 : 9), 8) != 1) return data_fail(d, "%s is not of version 1", path);
    if (!data_index_type(d, path, data_read_uint(m + (x->old ? 16 : 17), x->old ? 8 : 1))) return 0;
    const uint64_t n = data_read_uint(m + (x->old ? 32 : 18), 8),
                   docs = data_read_uint(m + (x->old ? 48 : 26), 8);
    const uint64_t sizes = x->old ? data_read_uint(m + 40, 8) : n, row = x->old ? 24 : 12;
    const size_t rest = bytes - (x->old ? 56 : 34), ends = x->old ? 16 : 0; // two rows have n + 1 entries
    // 64-bit sums cannot overflow once each term is compared; modes, a byte each, may follow the documents.
    if (rest < ends || n > (rest - ends) / row || docs > (rest - ends - n * row) / 8 || sizes != n)
        return data_fail(d, "%s says %llu sequences and %llu documents, which its %zu bytes do not hold",
                         path, (unsigned long long)n, (unsigned long long)docs, bytes);
    const uint64_t more = rest - ends - n * row - docs * 8;
    if (more && (x->old || more != n)) return data_fail(d, "%s is longer than its header says", path);
    if (x->old && data_read_uint(m + 24, 8) != (uint64_t)d->files[d->file_count - 1].width)
        return data_fail(d, "%s says %llu bytes an element, which its type has not", path,
                         (unsigned long long)data_read_uint(m + 24, 8));
    x->count = (size_t)n;
    x->dims = m + 56;
    x->offsets = x->old ? x->dims + 8 * (n + 1) : m + 34 + 4 * n;
    x->lengths = x->old ? x->offsets + 8 * (n + 1) : m + 34;
    return 1;
}
static int data_index_runs(dataset *d, int part, const char *path, const data_index *x) {
    const data_file *f = &d->files[d->file_count - 1];
    const size_t width = (size_t)f->width;
    for (size_t i = 0; i < x->count; i++) {
        const uint64_t length = data_read_uint(x->lengths + i * (x->old ? 8 : 4), x->old ? 8 : 4);
        const uint64_t offset = data_read_uint(x->offsets + i * 8, 8), at = x->old ? offset * width : offset;
        if (x->old &&
            (data_read_uint(x->dims + i * 8, 8) != i || data_read_uint(x->dims + i * 8 + 8, 8) != i + 1))
            return data_fail(d, "%s: sequence %zu has not one dimension", path, i);
        if (offset > f->bytes || at > f->bytes || length > (f->bytes - at) / width)
            return data_fail(d, "%s: sequence %zu, %llu tokens from %llu on, goes beyond the end of %s", path,
                             i, (unsigned long long)length, (unsigned long long)offset, f->path);
        if (at % width) return data_fail(d, "%s: sequence %zu begins within a token", path, i);
        if (!data_add_run(d, part, (size_t)at, (size_t)length)) return 0;
    }
    return 1;
}
static int data_read_megatron(dataset *d, int part) {
    char path[4200];
    data_index x;
    const char *bin = d->files[d->file_count - 1].path;
    memset(&x, 0, sizeof x);
    snprintf(path, sizeof path, "%.*s.idx", (int)(strlen(bin) - 4), bin);
    x.map = data_map(d, path, &x.bytes);
    const int ok = x.map && data_index_parse(d, path, &x) && data_index_runs(d, part, path, &x);
    data_unmap(x.map, x.bytes);
    return ok;
}

// ---- which files ------------------------------------------------------------------------------------------

static int data_has_suffix(const char *path, const char *ending) {
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && !strcmp(path + n - m, ending);
}
static int data_has_index(const char *bin) {
    char path[4200];
    struct stat st;
    if (!data_has_suffix(bin, ".bin")) return 0;
    snprintf(path, sizeof path, "%.*s.idx", (int)(strlen(bin) - 4), bin);
    return !stat(path, &st);
}
static data_type data_type_of(const data_file *f) {
    const uint32_t magic = f->bytes >= 4 ? (uint32_t)data_read_uint(f->map, 4) : 0;
    if (data_has_index(f->path)) return DATA_MEGATRON;
    if (f->bytes >= 6 && !memcmp(f->map, "\x93NUMPY", 6)) return DATA_NPY;
    // llm.c's: tokens; and its models, debug states and tokenizers, which are none
    if (magic == 20240520 || magic == 20240801 || (magic >= 20240326 && magic <= 20240328)) return DATA_LLMC;
    return data_has_suffix(f->path, ".bin") ? DATA_U16 : DATA_BYTES;
}
// What else than uint16 a file without a header looks like; NULL: nothing else. Of tokens of 32 or 64 bits
// every second number of 16 bits is an upper half: 0, or tiny in a vocabulary beyond 65536, or 65535 of a
// negative one, which the lower halves are not. Of big-endian ones the first is the upper half, and of 16
// bits the low byte is 0. It looks at no more than 65536 places, and not at zeros.
static const char *data_looks_like(const unsigned char *map, size_t bytes) {
    const size_t quads = bytes / 8, step = quads / 65536 + 1;
    size_t n = 0, wide = 0, no_low_byte = 0, tiny[2][2] = {{0, 0}, {0, 0}}, zero[2][2] = {{0, 0}, {0, 0}};
    for (size_t q = 0; q < quads; q += step) {
        uint16_t h[2][4]; // as they are, and turned around
        memcpy(h[0], map + 8 * q, sizeof h[0]);
        if (!(h[0][0] | h[0][1] | h[0][2] | h[0][3])) continue;
        for (int i = 0; i < 4; i++) h[1][i] = (uint16_t)(h[0][i] >> 8 | h[0][i] << 8);
        n++;
        no_low_byte += !((h[0][0] | h[0][1] | h[0][2] | h[0][3]) & 255);
        for (int big = 0; big < 2; big++)
            for (int upper = 0; upper < 2; upper++) {
                const unsigned a = h[big][big ? 1 - upper : upper], b = h[big][big ? 3 - upper : 2 + upper];
                tiny[big][upper] += (a < 16 || a == 65535) && (b < 16 || b == 65535);
                zero[big][upper] += !a && !b;
            }
        wide += h[0][2] == h[0][3] && (!h[0][2] || h[0][2] == 65535);
    }
    const size_t most = n - n / 100;
    if (n < 8) return NULL;
    for (int big = 0; big < 2; big++) {
        const int told_apart = tiny[big][0] < most || (zero[big][1] >= most && zero[big][0] < most);
        if (tiny[big][1] < most || !told_apart) continue;
        return big ? "big-endian integers" : wide >= most ? "u64" : "u32";
    }
    return no_low_byte >= most ? "big-endian integers" : NULL;
}
static int data_check_width(dataset *d, const data_file *f) {
    const char *like = data_looks_like(f->map, f->bytes);
    if (!like) return 1;
    if (like[0] != 'u')
        return data_fail(d,
                         "%s looks like %s: turn them around, or say --data_type u16 if it has such tokens",
                         f->path, like);
    return data_fail(d,
                     "%s looks like tokens of %s bits, because nearly every second number of 16 bits is 0 or "
                     "tiny: say --data_type %s, or u16 if it has such tokens",
                     f->path, like + 1, like);
}
static int data_add_file(dataset *d, int part, const char *path, data_type type) {
    char bin[4200];
    const int index = data_has_suffix(path, ".idx"),
              prefix = !index && type == DATA_MEGATRON && !data_has_suffix(path, ".bin");
    snprintf(bin, sizeof bin, "%.*s%s", (int)MIN(strlen(path) - (index ? 4 : 0), (size_t)4100), path,
             index || prefix ? ".bin" : "");
    data_file *more = (data_file *)realloc(d->files, (d->file_count + 1) * sizeof *more), *f;
    if (!more) return data_fail(d, "out of memory for %s", path);
    d->files = more;
    f = &more[d->file_count++];
    memset(f, 0, sizeof *f);
    f->path = (char *)malloc(strlen(bin) + 1);
    if (!f->path) return data_fail(d, "out of memory for %s", path);
    strcpy(f->path, bin);
    f->map = data_map(d, f->path, &f->bytes);
    if (!f->map) return 0;
    f->type = type == DATA_AUTO ? data_type_of(f) : type;
    if (type == DATA_AUTO && f->type == DATA_U16 && !data_check_width(d, f)) return 0;
    switch (f->type) {
    case DATA_U16: return data_read_tokens(d, part, 0, SIZE_MAX, 2);
    case DATA_U32: return data_read_tokens(d, part, 0, SIZE_MAX, 4);
    case DATA_U64: return data_read_tokens(d, part, 0, SIZE_MAX, 8);
    case DATA_LLMC: return data_read_llmc(d, part);
    case DATA_NPY: return data_read_npy(d, part);
    case DATA_MEGATRON: return data_read_megatron(d, part);
    default: return f->vocab_size = 256, data_read_tokens(d, part, 0, SIZE_MAX, 1);
    }
}
// 0 for train.bin, train_*.bin and *_train_*.bin, 1 for the same with val, -1 for others; .npy likewise.
static int data_shard(const char *name) {
    if (!data_has_suffix(name, ".bin") && !data_has_suffix(name, ".npy")) return -1;
    if (!strncmp(name, "train", 5) || strstr(name, "_train")) return 0;
    return !strncmp(name, "val", 3) || strstr(name, "_val") ? 1 : -1;
}
// Adds a directory: its training shards for training and its val shards as held-out data, unless there is
// val_data. Of val_data's directory it adds the val shards only.
static int data_add_directory(dataset *d, int part, const char *dir, const data_desc *desc, data_type type) {
    struct dirent **list = NULL;
    const int n = scandir(dir, &list, NULL, alphasort);
    int ok = n >= 0 || data_fail(d, "cannot read the directory %s: %s", dir, strerror(errno)), found = 0;
    for (int i = 0; i < n; i++) {
        char path[4200];
        const int shard = data_shard(list[i]->d_name);
        snprintf(path, sizeof path, "%.3800s/%s", dir, list[i]->d_name);
        free(list[i]);
        if (!ok || shard < part || (shard == 1 && part == 0 && desc->val_data)) continue;
        found += shard == part;
        ok = data_add_file(d, shard, path, type);
    }
    free(list);
    if (ok && !found)
        return data_fail(d, "the directory %s has no %s*.bin or *_%s*.bin (or .npy)", dir,
                         part ? "val" : "train", part ? "val" : "train");
    return ok;
}
static int data_add_pattern(dataset *d, int part, const char *pattern, data_type type) {
    glob_t g;
    int ok = 1;
    const int r = glob(pattern, GLOB_ERR, NULL, &g); // in the order of names
    if (r) return data_fail(d, "no file matches %s", pattern);
    for (size_t i = 0; i < g.gl_pathc && ok; i++) ok = data_add_file(d, part, g.gl_pathv[i], type);
    globfree(&g);
    return ok;
}
// Adds a file, a directory, a pattern, or one of Megatron's names without its ending.
static int data_add_item(dataset *d, int part, const char *text, const data_desc *desc, data_type type) {
    char bin[4210];
    struct stat st;
    if (!stat(text, &st))
        return S_ISDIR(st.st_mode) ? data_add_directory(d, part, text, desc, type)
                                   : data_add_file(d, part, text, type);
    if (strpbrk(text, "*?[")) return data_add_pattern(d, part, text, type);
    snprintf(bin, sizeof bin, "%s.bin", text);
    return data_add_file(d, part, text, type == DATA_AUTO && data_has_index(bin) ? DATA_MEGATRON : type);
}
static int data_add(dataset *d, int part, const char *text, const data_desc *desc, data_type type) {
    char item[4001];
    struct stat st;
    const char *between = stat(text, &st) ? "," : ""; // a comma may be part of a file's name
    for (;; text++) {
        const size_t n = strcspn(text, between);
        if (n >= sizeof item) return data_fail(d, "the name of a data file is too long");
        snprintf(item, sizeof item, "%.*s", (int)n, text);
        if (!data_add_item(d, part, item, desc, type)) return 0;
        text += n;
        if (!*text) return 1;
    }
}

// ---- the whole --------------------------------------------------------------------------------------------

static void data_close(dataset *d) {
    for (size_t i = 0; i < d->file_count; i++) {
        data_unmap(d->files[i].map, d->files[i].bytes);
        free(d->files[i].path);
    }
    free(d->files);
    free(d->subsets[0].runs);
    free(d->subsets[1].runs);
    d->files = NULL;
    d->subsets[0].runs = d->subsets[1].runs = NULL;
    d->file_count = 0;
}
// Keeps the first 9/10 for training and holds out the rest.
static int data_hold_out(dataset *d) {
    data_subset *from = &d->subsets[0], *to = &d->subsets[1];
    const size_t keep = from->token_count / 10 * 9;
    size_t before = 0, runs = 0;
    to->runs = (data_run *)calloc(from->run_count + 1, sizeof *to->runs);
    if (!to->runs) return data_fail(d, "out of memory for the data's index");
    for (size_t i = 0; i < from->run_count; i++) {
        data_run *r = &from->runs[i], rest = *r;
        const size_t here = before < keep ? MIN(keep - before, r->count) : 0;
        before += r->count;
        rest.at += here * (size_t)d->files[r->file].width;
        rest.count -= here;
        if (rest.count) to->runs[to->run_count++] = rest;
        if (here) {
            r->count = here;
            runs = i + 1;
        }
    }
    to->token_count = from->token_count - keep;
    from->token_count = keep;
    from->run_count = runs;
    return 1;
}
// Counts the tokens at which a sequence can begin.
static int data_count_starts(dataset *d, int part, const data_desc *desc, int split) {
    data_subset *p = &d->subsets[part];
    size_t longest = 0;
    for (size_t i = 0; i < p->run_count; i++) {
        const size_t n = p->runs[i].count, t = (size_t)desc->block_size;
        p->runs[i].starts = p->starts;
        p->starts += n > t ? n - t : 0;
        longest = MAX(longest, n);
    }
    if (p->starts) return 1;
    return data_fail(
        d, "the %s data %s has %zu tokens, %zu of them side by side; block_size %d needs at least %d",
        part ? "held-out" : "training", part && desc->val_data ? desc->val_data : desc->data, p->token_count,
        longest, desc->block_size, split ? 10 * (desc->block_size + 2) : desc->block_size + 1);
}
static int data_fail_vocabulary(dataset *d, const data_run *r, size_t token) { // what it says of that one
    const data_file *f = &d->files[r->file];
    const uint64_t v = data_read_uint(data_token_address(d, r, token), f->width);
    const long long shown = f->is_signed && f->width == 4 ? (int32_t)(uint32_t)v : (long long)v;
    return data_fail(d, "%s: token %zu is %lld, beyond the vocabulary of %d (read as %s; --data_type forces)",
                     f->path, (r->at - f->first) / (size_t)f->width + token, shown, d->vocab_size,
                     data_type_names[f->type]);
}
// Compares every token of a run with the vocabulary, and finds the largest.
static int data_check_run(dataset *d, const data_run *r, uint64_t *largest) {
    const int width = d->files[r->file].width;
    const unsigned char *p = data_token_address(d, r, 0);
    uint64_t max = 0;
    for (size_t i = 0; i < r->count; i++) {
        const uint64_t v = data_read_uint(p + i * (size_t)width, width);
        max = v > max ? v : max;
    }
    *largest = max;
    if (max < (uint64_t)d->vocab_size) return 1;
    for (size_t i = 0;; i++)
        if (data_read_uint(p + i * (size_t)width, width) == max) return data_fail_vocabulary(d, r, i);
}
// Finds the vocabulary if the caller does not know it: that of the format, else the largest token + 1,
// rounded up to a multiple of 64, which is fast in matrix products (50304 for GPT-2's tokens, as in nanoGPT).
static int data_vocabulary(dataset *d, const data_desc *desc) {
    const size_t check_bytes = desc->check_bytes ? desc->check_bytes : (size_t)1 << 30;
    const int known = desc->vocab_size;
    size_t bytes = 0;
    uint64_t largest = 0;
    int declared = 0;
    for (size_t i = 0; i < d->file_count; i++) {
        bytes += d->files[i].bytes;
        declared = MAX(declared, d->files[i].vocab_size);
    }
    for (int part = 0; part < 2; part++)
        for (size_t i = 0; i < d->subsets[part].run_count; i++) {
            const data_run *r = &d->subsets[part].runs[i];
            const data_file *f = &d->files[r->file];
            const int must_scan = !known && !f->vocab_size;
            d->vocab_size = known ? known : must_scan ? (int)DATA_MAX_VOCABULARY : f->vocab_size;
            if (!must_scan && (bytes > check_bytes || (f->width <= 2 && d->vocab_size >> 8 * f->width)))
                continue;
            if (!data_check_run(d, r, &largest)) return 0;
            if (must_scan) declared = MAX(declared, (int)(largest / 64 + 1) * 64);
        }
    d->vocab_size = known ? known : declared;
    return 1;
}
// Opens a dataset. NULL, or an error text, in d->why.
static const char *data_open(dataset *d, const data_desc *desc) {
    memset(d, 0, sizeof *d);
    int type = 0;
    while (type < DATA_TYPE_COUNT && strcmp(desc->type, data_type_names[type])) type++;
    int ok = type < DATA_TYPE_COUNT ||
             data_fail(d, "there is no data_type %s%s", desc->type,
                       par_suggest(desc->type, data_type_names, DATA_TYPE_COUNT, sizeof(char *)).text);
    ok = ok && data_add(d, 0, desc->data, desc, (data_type)type);
    if (ok && desc->val_data) ok = data_add(d, 1, desc->val_data, desc, (data_type)type);
    const int split = ok && !desc->val_data && !d->subsets[1].run_count;
    ok = ok && (!split || data_hold_out(d)) && data_count_starts(d, 0, desc, split) &&
         data_count_starts(d, 1, desc, split) && data_vocabulary(d, desc);
    if (!ok) data_close(d);
    return ok ? NULL : d->why;
}

// Reads sequence `index` of a step, which is the same for every number of ranks. NULL, or an error text, in
// d->why.
static const char *data_sequence(dataset *d, int held_out, uint64_t seed, uint64_t step, uint64_t index,
                                 int t, int *x, int *y) {
    const data_subset *p = &d->subsets[held_out];
    size_t at = (size_t)(par_random(seed ^ 0x5eed, step << 1 | (uint64_t)held_out, index) % p->starts);
    size_t low = 0, high = p->run_count; // the last run with no more starts before it
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (p->runs[middle].starts <= at)
            low = middle;
        else
            high = middle;
    }
    const data_run *r = &p->runs[low];
    const int width = d->files[r->file].width;
    at -= r->starts;
    for (int i = 0; i <= t; i++) {
        const uint64_t v = data_read_uint(data_token_address(d, r, at + (size_t)i), width);
        if (v >= (uint64_t)d->vocab_size) return data_fail_vocabulary(d, r, at + (size_t)i), d->why;
        if (i < t) x[i] = (int)v;
        if (i) y[i - 1] = (int)v;
    }
    return NULL;
}
// Where the documents of t tokens begin: at the first token, and at each `token`. Writes these places,
// counted from `first` on, and returns how many there are.
static size_t data_documents(const int *x, int t, int token, size_t first, size_t *offsets) {
    size_t count = 0;
    for (int i = 0; i < t; i++)
        if (!i || x[i] == token) offsets[count++] = first + (size_t)i;
    return count;
}

#endif

// test_data.c - the trainer's data: every format against the tokens that were written, several files, and
// files that lie.
#define PAR_IMPLEMENTATION
#include "par.h"
#include "data.h"

enum { TOKENS = 1000, BLOCK = 16 };
typedef struct content { // of a file
    unsigned char *b;
    size_t n;
} content;
static char dir[64];
static int bad;

static void expect(int right, const char *what, const char *said) {
    if (right) return;
    fprintf(stderr, "test_data: %s: %s\n", what, said);
    bad++;
}
static const char *in_dir(const char *name) {
    static char path[4][4300];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

// ---- writing ----------------------------------------------------------------------------------------------

static void put(content *c, uint64_t value, int width) { // little-endian
    c->b = (unsigned char *)realloc(c->b, c->n + 8);
    if (!c->b) exit(1);
    for (int i = 0; i < width; i++) c->b[c->n++] = (unsigned char)(value >> 8 * i);
}
static void put_text(content *c, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) put(c, (unsigned char)text[i], 1);
}
static void set(content *c, size_t at, uint64_t value, int width) {
    for (int i = 0; i < width && at + (size_t)i < c->n; i++)
        c->b[at + (size_t)i] = (unsigned char)(value >> 8 * i);
}
static void write_file(const char *name, content c) {
    FILE *f = fopen(in_dir(name), "wb");
    if (!f || fwrite(c.b, 1, c.n, f) != c.n || fclose(f)) exit(1);
    free(c.b);
}
static int token_of(size_t i) { return (int)(par_random(9, 9, i) % 250); }
static content plain(int width, size_t from, size_t count) {
    content c = {NULL, 0};
    put(&c, 0, 0);
    for (size_t i = from; i < from + count; i++) put(&c, (uint64_t)token_of(i), width);
    return c;
}
static content llmc(uint32_t magic, uint32_t version, int width) {
    content c = {NULL, 0}, t = plain(width, 0, TOKENS);
    put(&c, magic, 4), put(&c, version, 4), put(&c, TOKENS, 4);
    for (int i = 3; i < 256; i++) put(&c, 0, 4);
    put_text(&c, (const char *)t.b, t.n);
    return free(t.b), c;
}
static content npy(int version, const char *type, int width, const char *shape) {
    content c = {NULL, 0}, t = plain(width, 0, TOKENS);
    char header[160];
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type,
                     shape);
    while ((10 + n + 1) % 64) header[n++] = ' ';
    header[n++] = '\n';
    put_text(&c, "\x93NUMPY", 6), put(&c, (uint64_t)version, 1), put(&c, 0, 1);
    put(&c, (uint64_t)n, version > 1 ? 4 : 2), put_text(&c, header, (size_t)n);
    put_text(&c, (const char *)t.b, t.n);
    return free(t.b), c;
}
// Three sequences of 400, 0 and 600 tokens; two documents.
static const uint64_t lengths[3] = {400, 0, 600}, offsets[3] = {0, 400, 400};
static content mmididx(int code, int width, int modes) {
    content c = {NULL, 0};
    put_text(&c, "MMIDIDX\0\0", 9), put(&c, 1, 8), put(&c, (uint64_t)code, 1), put(&c, 3, 8), put(&c, 3, 8);
    for (int i = 0; i < 3; i++) put(&c, lengths[i], 4);
    for (int i = 0; i < 3; i++) put(&c, offsets[i] * (uint64_t)width, 8);
    put(&c, 0, 8), put(&c, 2, 8), put(&c, 3, 8);
    for (int i = 0; i < 3 && modes; i++) put(&c, 0, 1);
    return c;
}
static content tntidx(int code, int width) {
    content c = {NULL, 0};
    put_text(&c, "TNTIDX\0\0", 8), put(&c, 1, 8), put(&c, (uint64_t)code, 8), put(&c, (uint64_t)width, 8);
    put(&c, 3, 8), put(&c, 3, 8), put(&c, 3, 8);
    for (uint64_t i = 0; i < 4; i++) put(&c, i, 8);
    for (int i = 0; i < 3; i++) put(&c, offsets[i], 8);
    put(&c, TOKENS, 8);
    for (int i = 0; i < 3; i++) put(&c, lengths[i], 8);
    put(&c, 0, 8), put(&c, 2, 8), put(&c, 3, 8);
    return c;
}

// ---- reading ----------------------------------------------------------------------------------------------

static const char *open_as(dataset *d, const char *data, const char *val, const char *type, int vocab_size) {
    data_desc how;
    memset(&how, 0, sizeof how);
    how.data = data, how.val_data = val, how.type = type, how.vocab_size = vocab_size, how.block_size = BLOCK;
    return data_open(d, &how);
}
// Sequences of both parts are where they have always been, in one file: drawn by one number among all places.
static void drawn(dataset *d, const char *what) {
    int x[BLOCK], y[BLOCK], right = d->subsets[0].token_count == 900 && d->subsets[1].token_count == 100;
    for (uint64_t k = 0; k < 200; k++) {
        const int held = k % 3 == 0;
        const char *why = data_sequence(d, held, 7, k, k * k, BLOCK, x, y);
        const size_t at = (held ? 900u : 0u) + par_random(7 ^ 0x5eed, k << 1 | (uint64_t)held, k * k) %
                                                   ((held ? 100u : 900u) - BLOCK);
        for (size_t i = 0; i < BLOCK && right && !why; i++)
            right = x[i] == token_of(at + i) && y[i] == token_of(at + i + 1);
        right = right && !why;
    }
    expect(right, what, "other tokens than were written, or in another order");
}
static void format(const char *name, content c, content index, const char *type, int vocab_size) {
    dataset d;
    write_file(name, c);
    if (index.b) {
        char path[100];
        snprintf(path, sizeof path, "%.*s.idx", (int)strlen(name) - 4, name);
        write_file(path, index);
    }
    for (int pass = 0; pass < 2; pass++) { // recognized, and forced
        const char *why = open_as(&d, in_dir(name), NULL, pass ? type : "auto", 0);
        expect(!why, name, why ? why : "");
        if (why) continue;
        expect(d.vocab_size == vocab_size && !strcmp(data_type_names[d.files[0].type], type), name,
               "misread");
        drawn(&d, name);
        data_close(&d);
    }
}
static void formats(void) {
    const content none = {NULL, 0};
    format("bytes.txt", plain(1, 0, TOKENS), none, "bytes", 256);
    format("plain.bin", plain(2, 0, TOKENS), none, "u16", 256); // 250 up to a multiple of 64
    format("llmc.bin", llmc(20240520, 1, 2), none, "llmc", 50257);
    format("llmc3.bin", llmc(20240801, 7, 4), none, "llmc", 128256);
    format("v1.npy", npy(1, "<u2", 2, "(1000,)"), none, "npy", 256);
    format("v2.npy", npy(2, "<u4", 4, "(1000,)"), none, "npy", 256);
    format("v3.npy", npy(3, "<i4", 4, "(1000,)"), none, "npy", 256);
    format("i8.npy", npy(1, "<i8", 8, "(1000,)"), none, "npy", 256);
    format("m16.bin", plain(2, 0, TOKENS), mmididx(8, 2, 0), "megatron", 256);
    format("m32.bin", plain(4, 0, TOKENS), mmididx(4, 4, 1), "megatron", 256);
    format("t16.bin", plain(2, 0, TOKENS), tntidx(8, 2), "megatron", 256);
    format("t64.bin", plain(8, 0, TOKENS), tntidx(5, 8), "megatron", 256);
    dataset d;
    const char *why = open_as(&d, in_dir("m16"), NULL, "auto", 300); // Megatron's own way to name it
    expect(!why && d.files[0].type == DATA_MEGATRON && d.vocab_size == 300, "m16", "misread");
    if (!why) drawn(&d, "m16"), data_close(&d);
    why = open_as(&d, in_dir("m16.idx"), NULL, "auto", 300);
    expect(!why && d.files[0].type == DATA_MEGATRON, "m16.idx", "misread");
    if (!why) data_close(&d);
    write_file("wide.u32", plain(4, 0, TOKENS));
    why = open_as(&d, in_dir("wide.u32"), NULL, "u32", 250);
    expect(!why && d.vocab_size == 250, "u32", "misread");
    if (!why) drawn(&d, "u32"), data_close(&d);
}

// A file whose tokens are all `value`.
static void constant(const char *name, uint64_t value, size_t count) {
    content c = {NULL, 0};
    put(&c, 0, 0);
    for (size_t i = 0; i < count; i++) put(&c, value, 2);
    write_file(name, c);
}
// No sequence crosses from a file into another; each file but those that are too short is drawn from.
static void pure(const char *data, const char *val, const char *type, unsigned train, unsigned held) {
    dataset d;
    int x[BLOCK], y[BLOCK];
    unsigned seen[2] = {0, 0};
    const char *why = open_as(&d, data, val, type, 32);
    expect(!why, data, why ? why : "");
    if (why) return;
    for (uint64_t k = 0; k < 4000; k++) {
        why = data_sequence(&d, k & 1, 1, 2, k, BLOCK, x, y);
        int same = !why;
        for (int i = 0; i < BLOCK; i++) same = same && x[i] == x[0] && y[i] == x[0];
        if (!same) return expect(0, data, why ? why : "a sequence crosses from a file into another");
        seen[k & 1] |= 1u << x[0];
    }
    expect(seen[0] == train && seen[1] == held, data, "other files than these are drawn from");
    data_close(&d);
}
// What these hold: tokens of both parts, and a vocabulary that nobody has named.
static void sizes(const char *data, const char *type, size_t train, size_t held, int vocab_size) {
    dataset d;
    const char *why = open_as(&d, data, NULL, type, 0);
    expect(!why, data, why ? why : "");
    if (why) return;
    expect(d.subsets[0].token_count == train && d.subsets[1].token_count == held &&
               d.vocab_size == vocab_size,
           data, "other numbers of tokens, or another vocabulary");
    data_close(&d);
}
static void several(void) {
    char list[600];
    mkdir(in_dir("shards"), 0700);
    constant("shards/a_train_000002.bin", 3, 400), constant("shards/a_train_000001.bin", 2, 300);
    constant("shards/train.bin", 4, BLOCK), constant("shards/a_val_000000.bin", 5, 90),
        constant("shards/x.bin", 6, 99);
    mkdir(in_dir("plain"), 0700);
    constant("plain/train.bin", 8, 300), constant("plain/train_1.npy", 9, 300),
        constant("plain/val.bin", 10, 90);
    constant("one.bin", 1, 500), constant("63.bin", 63, 500), constant("64.bin", 64, 500);
    pure(in_dir("shards"), NULL, "auto", 1 << 2 | 1 << 3, 1 << 5);
    pure(in_dir("shards"), in_dir("one.bin"), "u16", 1 << 2 | 1 << 3, 1 << 1);
    pure(in_dir("one.bin"), in_dir("shards"), "auto", 1 << 1, 1 << 5);
    pure(in_dir("shards/a_train_*.bin"), in_dir("shards/x.bin"), "auto", 1 << 2 | 1 << 3, 1 << 6);
    snprintf(list, sizeof list, "%s,%s,%s", in_dir("one.bin"), in_dir("shards/a_train_*"),
             in_dir("shards/x.bin"));
    pure(list, NULL, "auto", 1 << 1 | 1 << 2 | 1 << 3, 1 << 3 | 1 << 6); // 1299 tokens: 1161 and 138
    sizes(list, "auto", 1161, 138, 64), sizes(in_dir("63.bin"), "auto", 450, 50, 64);
    sizes(in_dir("64.bin"), "auto", 450, 50, 128); // tokens from 0 to 64
    snprintf(list, sizeof list, "%s,%s", in_dir("llmc.bin"), in_dir("bytes.txt"));
    sizes(list, "auto", 1800, 200, 50257);
    pure(in_dir("plain"), NULL, "u16", 1 << 8 | 1 << 9, 1 << 10);
    constant("a,b.bin", 7, 500);
    pure(in_dir("a,b.bin"), in_dir("one.bin"), "auto", 1 << 7, 1 << 1);
}

// ---- what is wrong ----------------------------------------------------------------------------------------

static void refused(const char *what, const char *type, int vocab_size, const char *says) {
    dataset d;
    const char *why = open_as(&d, what, NULL, type, vocab_size);
    expect(why && strstr(why, says), what, why ? why : "opened, instead of:");
    if (!why || !strstr(why, says)) fprintf(stderr, "    \"%s\"\n", says);
    if (!why) data_close(&d);
}
// Files that are cut to so many bytes (0: they are whole), or have another value of so many bytes somewhere.
typedef enum kind { LLMC, NPY, MMID, TNT } kind;
static const struct damage {
    kind k;
    size_t cut, at;
    int width;
    uint64_t value;
    const char *says;
} damages[] = {
    {LLMC, 0, 8, 4, TOKENS + 1, "says 1001 tokens but holds 1000: it is truncated"},
    {LLMC, 0, 8, 4, 0x80000000u, "it is truncated"},
    {LLMC, 0, 8, 4, TOKENS - 1, "longer than its header"},
    {LLMC, 2001, 0, 0, 0, "and a part of one"},
    {LLMC, 3025, 0, 0, 0, "and a part of one: it is longer than its header says"},
    {LLMC, 500, 0, 0, 0, "is truncated"},
    {LLMC, 0, 4, 4, 2, "no token file of llm.c's (magic 20240520, version 2)"},
    {LLMC, 0, 0, 4, 20240326, "no token file of llm.c's"},
    {LLMC, 0, 1024 + 34, 2, 60000, "token 17 is 60000, beyond the vocabulary of 50257"},
    {NPY, 0, 6, 1, 9, "version 9.0"},
    {NPY, 0, 7, 1, 3, "version 1.3"},
    {NPY, 0, 8, 2, 65535, "header of 65535 bytes is damaged"},
    {NPY, 11, 0, 0, 0, "no .npy file"},
    {NPY, 60, 0, 0, 0, "is damaged"},
    {NPY, 0, 21, 1, '>', "elements of type '>u2'"},
    {NPY, 0, 22, 1, 'f', "elements of type '<f2'"},
    {NPY, 0, 44, 1, 'T', "not in C order"},
    {NPY, 0, 61, 1, '-', "one dimension"},
    {NPY, 0, 65, 2, '1' | ',' << 8, "one dimension"},
    {NPY, 0, 61, 1, '9', "says 9000 tokens but holds 1000"},
    {NPY, 2000, 0, 0, 0, "truncated"},
    {MMID, 0, 0, 1, 'X', "neither MMIDIDX nor TNTIDX"},
    {MMID, 33, 0, 0, 0, "neither MMIDIDX nor TNTIDX"},
    {MMID, 0, 9, 8, 2, "not of version 1"},
    {MMID, 0, 17, 1, 3, "elements of type 3"},
    {MMID, 0, 17, 1, 255, "elements of type 255"},
    {MMID, 0, 18, 8, 4, "do not hold"},
    {MMID, 0, 18, 8, (uint64_t)1 << 60, "do not hold"},
    {MMID, 0, 18, 8, UINT64_MAX, "do not hold"},
    {MMID, 0, 26, 8, 4, "do not hold"},
    {MMID, 0, 26, 8, ((uint64_t)1 << 61) + 3, "do not hold"},
    {MMID, 0, 26, 8, 2, "longer than its header"},
    {MMID, 90, 0, 0, 0, "do not hold"},
    {MMID, 0, 34, 4, 0xffffffffu, "beyond the end"},
    {MMID, 0, 42, 4, 601, "sequence 2, 601 tokens from 800 on, goes beyond the end"},
    {MMID, 0, 46, 8, 1, "begins within a token"},
    {MMID, 0, 62, 8, 802, "beyond the end"},
    {MMID, 0, 62, 8, UINT64_MAX, "beyond the end"},
    {MMID, 0, 18, 8, 0, "longer than its header"},
    {TNT, 55, 0, 0, 0, "neither MMIDIDX nor TNTIDX"},
    {TNT, 0, 8, 8, 7, "not of version 1"},
    {TNT, 0, 16, 8, 6, "elements of type 6"},
    {TNT, 0, 24, 8, 4, "bytes an element"},
    {TNT, 0, 32, 8, (uint64_t)1 << 61, "do not hold"},
    {TNT, 0, 40, 8, 4, "do not hold"},
    {TNT, 0, 48, 8, 4, "do not hold"},
    {TNT, 0, 48, 8, 2, "longer than its header"},
    {TNT, 0, 64, 8, 2, "not one dimension"},
    {TNT, 0, 104, 8, (uint64_t)1 << 63, "beyond the end"},
    {TNT, 0, 104, 8, 401, "beyond the end"},
    {TNT, 0, 136, 8, UINT64_MAX, "beyond the end"},
};
static void damaged(void) {
    static const char *const names[] = {"d.bin", "d.npy", "x.idx", "x.idx"};
    static const char *const types[] = {"llmc", "npy", "auto", "auto"};
    write_file("x.bin", plain(2, 0, TOKENS));
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *d = &damages[i];
        content c = d->k == LLMC  ? llmc(20240520, 1, 2)
                    : d->k == NPY ? npy(1, "<u2", 2, "(1000,)")
                    : d->k == TNT ? tntidx(8, 2)
                                  : mmididx(8, 2, 0);
        while (c.n < d->cut) put(&c, 0, 1);
        if (d->cut) c.n = d->cut;
        set(&c, d->at, d->value, d->width);
        write_file(names[d->k], c);
        refused(in_dir(d->k == LLMC || d->k == NPY ? names[d->k] : "x.bin"), types[d->k], 0, d->says);
    }
}
// Files without a header: what is not of 16 bits, or the other way round, is seen, and what is, is read.
static const struct shape {
    const char *name;
    int width, big;              // bytes of a token; 1: the upper ones first
    uint64_t times, modulo, pad; // a token is that of `plain` x times % modulo; every tenth is `pad`
    int zeros;                   // 1: all but forty are zeros, at the end
    const char *like;            // what it is taken for; NULL: uint16
} shapes[] = {
    {"u16", 2, 0, 1, 250, 1, 0, NULL},
    {"u16 to 50257", 2, 0, 201, 50257, 50256, 0, NULL},
    {"u16, nearly all zeros", 2, 0, 201, 50257, 7, 1, NULL},
    {"u16 of three tokens", 2, 0, 1, 3, 1, 0, NULL},
    {"u16 of two tokens", 2, 0, 1, 2, 1, 0, NULL},
    {"u32", 4, 0, 1, 250, 1, 0, "u32"},
    {"u32 to 50257", 4, 0, 201, 50257, 50256, 0, "u32"},
    {"u32 to 128256", 4, 0, 513, 128256, 128001, 0, "u32"},
    {"u32, nearly all zeros", 4, 0, 201, 50257, 7, 1, "u32"},
    {"u32 of three tokens", 4, 0, 1, 3, 1, 0, "u32"},
    {"i32 with -100", 4, 0, 513, 128256, (uint64_t)-100, 0, "u32"},
    {"u64", 8, 0, 201, 50257, 7, 0, "u64"},
    {"u64 to 128256", 8, 0, 513, 128256, 7, 0, "u64"},
    {"i64 with -1", 8, 0, 513, 128256, (uint64_t)-1, 0, "u64"},
    {"u64 of three tokens", 8, 0, 1, 3, 1, 0, "u64"},
    {"u16, big-endian", 2, 1, 1, 250, 1, 0, "big-endian"},
    {"u32, big-endian", 4, 1, 513, 128256, 7, 0, "big-endian"},
    {"u64, big-endian", 8, 1, 201, 50257, 7, 0, "big-endian"},
};
static void widths(void) {
    char says[160];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        content c = {NULL, 0};
        for (size_t k = 0; k < 10 * TOKENS; k++) {
            uint64_t v = k % 10 ? (uint64_t)token_of(k) * s->times % s->modulo : s->pad;
            if (s->zeros && k >= 40) v = 0;
            if (s->big) v = __builtin_bswap64(v) >> (64 - 8 * s->width);
            put(&c, v, s->width);
        }
        write_file("wide.bin", c);
        dataset d;
        const char *why = open_as(&d, in_dir("wide.bin"), NULL, "auto", 0);
        expect(s->like ? !!why : !why, s->name, why ? why : "taken for u16");
        snprintf(says, sizeof says, s->like && s->like[0] == 'u' ? "say --data_type %s" : "looks like %s",
                 s->like ? s->like : "");
        if (s->like && why) expect(strstr(why, says) != NULL, s->name, why);
        if (!why) data_close(&d);
        why = open_as(&d, in_dir("wide.bin"), NULL, "u16", 65536); // as it is told to
        expect(!why, s->name, why ? why : "");
        if (!why) data_close(&d);
    }
    write_file("plain64.bin", plain(8, 0, TOKENS));
    dataset d;
    const char *why = open_as(&d, in_dir("plain64.bin"), NULL, "u64", 250);
    expect(!why, "u64", why ? why : "");
    if (!why) drawn(&d, "u64"), data_close(&d);
}
static void no_tokens(void) { // of llm.c's files: a model, and a tokenizer
    write_file("model.bin", llmc(20240326, 3, 2)), write_file("words.bin", llmc(20240328, 1, 2));
    refused(in_dir("model.bin"), "auto", 0, "no token file of llm.c's");
    refused(in_dir("words.bin"), "auto", 0, "no token file of llm.c's");
}
static void tokens_beyond(void) { // found at once; or when they are drawn, if that would take long
    data_desc how;
    dataset d;
    int x[BLOCK], y[BLOCK];
    content c = plain(2, 0, TOKENS), n = npy(1, "<i4", 4, "(1000,)"), w = npy(1, "<i8", 8, "(1000,)");
    set(&c, 2 * 17, 400, 2), set(&n, n.n - 4, 0xffffffffu, 4), set(&w, w.n - 8, (uint64_t)-100, 8);
    write_file("far.bin", c), write_file("minus.npy", n), write_file("minus8.npy", w);
    refused(in_dir("far.bin"), "auto", 300,
            "far.bin: token 17 is 400, beyond the vocabulary of 300 (read as u16");
    refused(in_dir("minus.npy"), "auto", 300, "token 999 is -1, beyond the vocabulary of 300");
    refused(in_dir("minus.npy"), "auto", 0, "token 999 is -1, beyond");
    refused(in_dir("minus8.npy"), "auto", 0, "token 999 is -100, beyond");
    refused(in_dir("bytes.txt"), "auto", 100, "beyond the vocabulary of 100");
    memset(&how, 0, sizeof how);
    const char *data = in_dir("far.bin"), *why = NULL;
    how.data = how.val_data = data, how.type = "auto", how.vocab_size = 300, how.block_size = BLOCK,
    how.check_bytes = 1;
    why = data_open(&d, &how);
    expect(!why, "a large file", "checked at once");
    int found = 0;
    for (uint64_t k = 0; k < 2000 && !found; k++) {
        why = data_sequence(&d, 0, 1, 1, k, BLOCK, x, y);
        for (int i = 0; i < BLOCK && !why; i++)
            expect(x[i] < 300 && y[i] < 300, "a token", "used though too large");
        found = why && strstr(why, "token 17 is 400");
    }
    expect(found, "a large file", "its bad token was never found");
    data_close(&d);
}
static void no_data(void) {
    char two[300];
    write_file("empty", plain(1, 0, 0)), write_file("few", plain(1, 0, 100)),
        write_file("odd.bin", plain(1, 0, 999));
    expect(!mkfifo(in_dir("fifo"), 0600) && !mkdir(in_dir("bare"), 0700), "mkfifo", strerror(errno));
    refused(in_dir("nothing"), "auto", 0, "No such file");
    refused(in_dir("fifo"), "auto", 0, "is a FIFO");
    refused("/dev/zero", "auto", 0, "not a regular file");
    refused(in_dir("empty"), "auto", 0, "is empty");
    refused(in_dir("bare"), "auto", 0, "has no train*.bin or *_train*.bin");
    refused(in_dir("*.nothing"), "auto", 0, "no file matches");
    refused(in_dir("few"), "auto", 0, "needs at least 180");
    refused(in_dir("odd.bin"), "auto", 0, "999 bytes, which are no whole number of u16 tokens");
    write_file("huge.npy", npy(1, "<u2", 2, "(18446744073709551615,)"));
    refused(in_dir("huge.npy"), "auto", 0, "it is truncated");
    refused(in_dir("bytes.txt"), "u61", 0, "did you mean u16?");
    refused(in_dir("bytes.txt"), "npy", 0, "no .npy file");
    refused(in_dir("bytes.txt"), "megatron", 0, "No such file");
    snprintf(two, sizeof two, "%s,%s", in_dir("bytes.txt"), in_dir("fifo"));
    refused(two, "auto", 0, "is a FIFO");
    refused(",,", "auto", 0, "No such file");
}
// A document begins with its token, and where a sequence does.
static void documents(void) {
    const int x[] = {1, 5, 7, 5, 5, 2};
    const size_t want[] = {10, 11, 13, 14};
    size_t offsets[6] = {0};
    expect(data_documents(x, 6, 5, 10, offsets) == 4 && !memcmp(offsets, want, sizeof want), "documents",
           "begin elsewhere");
    expect(data_documents(x + 1, 5, 5, 0, offsets) == 3 && offsets[1] == 2, "documents", "begin twice");
    expect(data_documents(x, 6, 9, 0, offsets) == 1 && !offsets[0], "documents",
           "without a token are not one");
}

int main(void) {
    char clean[100];
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%.40s/par_data.XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(dir)) return 1;
    formats(), several(), damaged(), widths(), no_tokens(), tokens_beyond(), no_data(), documents();
    snprintf(clean, sizeof clean, "rm -rf '%s'", dir);
    if (system(clean)) bad++;
    printf("test_data: %d wrong\n", bad);
    return bad != 0;
}

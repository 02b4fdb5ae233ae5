// safetensors.h - tensors by name in one file, as Hugging Face has it: 8 bytes of length, a JSON header, the
// data.
//
// Reading maps the file and checks everything before anything is used: sizes, types, shapes, offsets that
// overlap or leave the file. Writing goes beside the old file and is renamed over it.
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct safetensor {
    char name[160];
    par_dtype dtype;
    int dims;
    size_t shape[4], count; // elements
    const void *data;
} safetensor;
typedef struct safetensors {
    safetensor *list;
    size_t count;
    void *map; // the file
    size_t bytes;
    char why[512]; // what is wrong with it
} safetensors;

// ---- a JSON header: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__":
// {...}}

typedef struct json {
    const char *at, *end;
    int bad;
} json;
static void json_skip(json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t')) j->at++;
}
static int json_take(json *j, char c) { // 1: it stood there
    json_skip(j);
    if (j->at < j->end && *j->at == c) return j->at++, 1;
    return 0;
}
static void json_need(json *j, char c) {
    if (!json_take(j, c)) j->bad = 1;
}
static void json_string(json *j, char *text,
                        size_t room) { // escapes but \uXXXX; what is too long is an error
    size_t n = 0;
    json_need(j, '"');
    while (!j->bad && j->at < j->end && *j->at != '"') {
        char c = *j->at++;
        if (c == '\\') {
            static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            const char *e = j->at < j->end && *j->at ? strchr(from, *j->at) : NULL;
            if (!e) return (void)(j->bad = 1);
            c = to[e - from], j->at++;
        }
        if (n + 1 >= room) return (void)(j->bad = 1);
        text[n++] = c;
    }
    text[n] = 0;
    json_need(j, '"');
}
static size_t json_number(json *j) { // a size
    size_t v = 0;
    json_skip(j);
    if (j->at >= j->end || *j->at < '0' || *j->at > '9') return j->bad = 1, (size_t)0;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') {
        const size_t digit = (size_t)(*j->at++ - '0');
        if (v > (SIZE_MAX - digit) / 10) return j->bad = 1, (size_t)0;
        v = v * 10 + digit;
    }
    return v;
}
static void json_ignore(json *j, int depth) { // any value
    char text[4096];
    json_skip(j);
    if (j->at >= j->end || depth > 32) return (void)(j->bad = 1);
    if (*j->at == '"') return json_string(j, text, sizeof text);
    const char open = *j->at, close = open == '{' ? '}' : ']';
    if (open == '{' || open == '[') {
        j->at++;
        if (json_take(j, close)) return;
        do {
            if (open == '{') json_string(j, text, sizeof text), json_need(j, ':');
            json_ignore(j, depth + 1);
        } while (!j->bad && json_take(j, ','));
        return json_need(j, close);
    }
    const char *begun = j->at;
    while (j->at < j->end &&
           (strchr("+-.eE", *j->at) || (*j->at >= '0' && *j->at <= '9') || (*j->at >= 'a' && *j->at <= 'z')))
        if (!*j->at++) break;
    if (j->at == begun) j->bad = 1;
}

// ---- reading ----------------------------------------------------------------------------------------------

static const struct {
    const char *name;
    par_dtype dtype;
} safetensors_types[] = {{"F64", PAR_F64}, {"F32", PAR_F32}, {"F16", PAR_F16}, {"BF16", PAR_BF16},
                         {"I8", PAR_I8},   {"U8", PAR_U8},   {"I32", PAR_I32}, {"U32", PAR_U32},
                         {"I64", PAR_I64}, {"U64", PAR_U64}};
enum { SAFETENSORS_TYPES = (int)(sizeof safetensors_types / sizeof safetensors_types[0]) };

// One tensor's value in the header. 0: it is not sound.
static int safetensors_entry(json *j, safetensor *t, const char *data, size_t data_bytes) {
    char key[32], type[16] = "";
    size_t from = 0, until = 0;
    int seen = 0, k = 0;
    json_need(j, '{');
    do {
        json_string(j, key, sizeof key);
        json_need(j, ':');
        if (!strcmp(key, "dtype")) {
            json_string(j, type, sizeof type), seen |= 1;
        } else if (!strcmp(key, "shape")) {
            seen |= 2;
            json_need(j, '[');
            if (!json_take(j, ']')) {
                do {
                    if (t->dims == 4) return 0;
                    t->shape[t->dims++] = json_number(j);
                } while (!j->bad && json_take(j, ','));
                json_need(j, ']');
            }
        } else if (!strcmp(key, "data_offsets")) {
            seen |= 4;
            json_need(j, '['), from = json_number(j), json_need(j, ','), until = json_number(j),
                               json_need(j, ']');
        } else {
            return 0;
        }
    } while (!j->bad && json_take(j, ','));
    json_need(j, '}');
    while (k < SAFETENSORS_TYPES && strcmp(type, safetensors_types[k].name)) k++;
    if (j->bad || seen != 7 || k == SAFETENSORS_TYPES || from > until || until > data_bytes) return 0;
    t->dtype = safetensors_types[k].dtype, t->data = data + from, t->count = 1;
    for (int i = 0; i < t->dims; i++) {
        if (t->shape[i] && t->count > SIZE_MAX / 16 / t->shape[i]) return 0;
        t->count *= t->shape[i];
    }
    return t->count * par_dtype_bytes(t->dtype) == until - from;
}
static int safetensors_by_data(const void *a, const void *b) {
    const char *x = (const char *)((const safetensor *)a)->data,
               *y = (const char *)((const safetensor *)b)->data;
    return x < y ? -1 : x > y;
}
static void safetensors_close(safetensors *s) {
    if (s->map) munmap(s->map, s->bytes);
    free(s->list);
    s->map = NULL, s->list = NULL, s->count = 0;
}
// NULL, or what is wrong (in s->why).
static const char *safetensors_open(safetensors *s, const char *path) {
    struct stat st;
    uint64_t n = 0;
    memset(s, 0, sizeof *s);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        snprintf(s->why, sizeof s->why, "cannot open %s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return s->why;
    }
    s->bytes = S_ISREG(st.st_mode) ? (size_t)st.st_size : 0;
    void *map = s->bytes > 8 ? mmap(NULL, s->bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    s->map = map == MAP_FAILED ? NULL : map;
    if (s->map) memcpy(&n, s->map, 8);
    const char *problem = NULL;
    if (!s->map || n > s->bytes - 8 || n > (size_t)100 << 20)
        problem = "it is truncated, or no safetensors file";
    json j = {(const char *)s->map + 8, (const char *)s->map + 8 + n, 0};
    const char *data = j.end;
    const size_t data_bytes = problem ? 0 : s->bytes - 8 - n;
    if (!problem) json_need(&j, '{');
    for (int more = !problem && !json_take(&j, '}'); more && !problem; more = json_take(&j, ',')) {
        safetensor t;
        memset(&t, 0, sizeof t);
        json_string(&j, t.name, sizeof t.name);
        json_need(&j, ':');
        if (!j.bad && !strcmp(t.name, "__metadata__")) {
            json_ignore(&j, 0);
        } else if (j.bad || !safetensors_entry(&j, &t, data, data_bytes)) {
            problem = "its header is damaged";
        } else {
            if ((s->count & (s->count - 1)) == 0) {
                safetensor *list = (safetensor *)realloc(s->list, (2 * s->count + 1) * sizeof t);
                if (!list) problem = "out of memory";
                if (list) s->list = list;
            }
            if (!problem) s->list[s->count++] = t;
        }
        if (j.bad) problem = "its header is damaged";
    }
    if (!problem && s->count) qsort(s->list, s->count, sizeof *s->list, safetensors_by_data);
    for (size_t i = 1; i < s->count && !problem; i++) {
        const safetensor *a = &s->list[i - 1], *b = &s->list[i];
        if ((const char *)a->data + a->count * par_dtype_bytes(a->dtype) > (const char *)b->data)
            problem = "two of its tensors overlap";
    }
    if (!problem) return NULL;
    snprintf(s->why, sizeof s->why, "cannot read %s: %s", path, problem);
    safetensors_close(s);
    return s->why;
}
static const safetensor *safetensors_find(const safetensors *s, const char *name) {
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->list[i].name, name)) return &s->list[i];
    return NULL;
}

// ---- writing ----------------------------------------------------------------------------------------------

// NULL, or what is wrong (in why). The tensors' data are written in their order.
static const char *safetensors_write(const char *path, const safetensor *list, size_t count, char *why,
                                     size_t room) {
    char temporary[4300], *header = (char *)malloc(512 * count + 64);
    size_t at = 0, offset = 0;
    snprintf(temporary, sizeof temporary, "%.4200s.tmp", path);
    FILE *f = header ? fopen(temporary, "wb") : NULL;
    if (header) at = (size_t)sprintf(header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < count && header; i++) {
        const size_t bytes = list[i].count * par_dtype_bytes(list[i].dtype);
        int k = 0;
        while (safetensors_types[k].dtype != list[i].dtype) k++;
        at += (size_t)sprintf(header + at, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", list[i].name,
                              safetensors_types[k].name);
        for (int d = 0; d < list[i].dims; d++)
            at += (size_t)sprintf(header + at, "%s%zu", d ? "," : "", list[i].shape[d]);
        at += (size_t)sprintf(header + at, "],\"data_offsets\":[%zu,%zu]}", offset, offset + bytes);
        offset += bytes;
    }
    if (header) at += (size_t)sprintf(header + at, "}");
    while (header && at % 8) header[at++] = ' ';
    const uint64_t n = at;
    int ok = f && fwrite(&n, 8, 1, f) == 1 && fwrite(header, 1, at, f) == at;
    for (size_t i = 0; i < count && ok; i++)
        ok = fwrite(list[i].data, par_dtype_bytes(list[i].dtype), list[i].count, f) == list[i].count;
    ok = ok && !fflush(f) && !fsync(fileno(f));
    const int error = errno;
    if (f && fclose(f)) ok = 0;
    ok = ok && !rename(temporary, path);
    free(header);
    if (ok) return NULL;
    unlink(temporary);
    snprintf(why, room, "cannot write %s: %s", path, strerror(error ? error : errno));
    return why;
}

#endif

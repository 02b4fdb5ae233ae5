// par_files.h - JSON and safetensors: readers and writers without a library, for programs with ranks or none.
//
// Public domain or MIT-0, as you choose: see the end of this file.

// clang-format off
#if defined(PAR_IMPLEMENTATION) && !defined(PAR_FILES_IMPLEMENTATION)
#define PAR_FILES_IMPLEMENTATION
#endif
#if defined(PAR_FILES_IMPLEMENTATION) && !defined(_DEFAULT_SOURCE) && !defined(_GNU_SOURCE)
#define _DEFAULT_SOURCE // for -std=c11: what Linux adds to C; before the first system header
#endif
// clang-format on

#ifndef PAR_FILES_H
#define PAR_FILES_H
/*
WHAT
    Reads JSON, grows texts, reads files whole and replaces them safely. Maps, checks and writes safetensors
    files (Hugging Face), also tensor by tensor where no memory holds all. It needs no other header.
    par_zero.h's checkpoints and imports use it.

USE
    #define PAR_IMPLEMENTATION        in one file
    #include "par_files.h"            cc -O2 prog.c

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par_files.h"
    #include <string.h>

    int main(void) { // writes a file of two numbers, and reads them again
        const float x[2] = {3, 4};
        par_file_tensor t = {"x", "F32", 1, {2}, 2, sizeof x, x};
        par_safetensors_writer w;
        par_safetensors s;
        par_safetensors_create("x.safetensors", &t, 1, &w);
        par_safetensors_put(&w, 0, 0, 2, x); // end returns its error again
        if (par_safetensors_end(&w, 1)) return fprintf(stderr, "%s\n", w.why), 1;
        if (par_safetensors_open("x.safetensors", &s)) return fprintf(stderr, "%s\n", s.why), 1;
        float y[2];
        memcpy(y, par_safetensors_find(&s, "x")->data, sizeof y);
        printf("%zu tensor, %s: %g %g\n", s.count, s.list[0].dtype, y[0], y[1]);
        // with PAR_RANKS=1 it prints: 1 tensor, F32: 3 4
        par_safetensors_close(&s);
        return remove("x.safetensors");
    }

TABLE OF CONTENTS
    The API comes first: JSON, texts, files, safetensors. Implementation, bottom-up:
    >>files_json        reading and escaping JSON
    >>files_text        strings that grow
    >>files_files       opening, reading, replacing
    >>files_safetensors their header; reading, writing

CONFIG
    PAR_IMPLEMENTATION (or PAR_FILES_IMPLEMENTATION)   emit the code, in one file
    PAR_MALLOC(n) PAR_REALLOC(p,n) PAR_FREE(p)         all or none; default: the C library
    PAR_API                                            as in par.h

MODEL
    Nothing is global: your structs hold all state, and each thread uses what it has opened. A function that
    can fail returns 0, or an errno (EINVAL: the file is not what it should be; ENOMEM), and leaves a text
    that names the file. What a file says is compared with its size before it is used.

LIMITS
    Linux, 64 bits, little endian. A header of safetensors has at most 100 MiB, a tensor 8 dimensions and a
    name of 191 bytes. JSON's numbers are read if they are whole and not negative; others can be skipped.
*/
#if !defined(__LP64__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error                                                                                                       \
    "par_files.h is for 64-bit little-endian machines (x86-64, aarch64, riscv64, ppc64le), and this is none"
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PAR_FILES_VERSION 900 // as PAR_VERSION: par_zero.h takes no other

#define PAR__PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(PAR_API) // as in par.h
#define PAR__VISIBILITY(kind) PAR__PRAGMA(GCC visibility push(kind))
#define PAR__API_BEGIN        PAR__VISIBILITY(PAR_API)
#define PAR__API_END          _Pragma("GCC visibility pop")
#else
#define PAR__API_BEGIN
#define PAR__API_END
#endif
PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// ---- JSON -------------------------------------------------------------------------------------------------
// A reader of a JSON text in memory, one value after the other, without allocation. Where the text is not
// valid, or the next value is of another kind than the function reads, `bad` is set. It stays set, and loops
// over members end: one look at it after the last value is enough. Escapes in strings become UTF-8.
//     par_json j = {text, text + strlen(text), 0};
//     for (size_t i = 0; par_json_member(&j, i, name, sizeof name, 0); i++)
//         if (!strcmp(name, "step"))
//             step = par_json_number(&j);
//         else
//             par_json_skip(&j);
typedef struct par_json {
    const char *at;  // the next value, or white space before it
    const char *end; // of the text
    int bad;
} par_json;
// Skips white space. Returns the first character of what is next, which tells its kind; 0: the text ends.
char par_json_peek(par_json *j);
// Enters an array (open is '[') or an object ('{') where index is 0, and goes on to its next element
// otherwise. 1: the element is next. 0: there is none, and what follows the array is next; or bad. Of an
// object par_json_member also reads the name: its value is next.
int par_json_next(par_json *j, size_t index, char open);
int par_json_member(par_json *j, size_t index, char *name, size_t capacity, int cut);
// Reads a string into `text`, which gets a 0 at its end (text may be NULL with capacity 0). One of capacity
// bytes or more is cut off if cut is 1, and else bad.
void par_json_string(par_json *j, char *text, size_t capacity, int cut);
uint64_t par_json_number(par_json *j); // a whole number from 0 on; others are bad
void par_json_skip(par_json *j);       // any value; nested deeper than 32: bad
// Escapes the first character of `text`, which has at least 1 byte, for a JSON string; a byte that is not
// UTF-8 becomes U+FFFD. Returns the number of bytes of text that it used.
size_t par_json_escape(const char *text, size_t bytes, char json[8]);

// ---- texts ------------------------------------------------------------------------------------------------

typedef struct par_text { // a string that grows; all zero: an empty one
    char *text;           // the caller frees it, as what par_file_read returns
    size_t count, capacity;
    int failed; // 1: out of memory, something is missing
} par_text;
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void par_text_print(par_text *t, const char *format, ...);
void par_text_quote(par_text *t, const char *s); // as a JSON string

// ---- files ------------------------------------------------------------------------------------------------
// Descriptors are 3 or more, and closed on exec: where a program was started without stdout, its output must
// not get into a file.

// Opens a file for reading. Returns its descriptor, and its size; or -1, with errno, and what is wrong in
// `why`. Only regular files are accepted (others: EINVAL): a FIFO would block until it has a writer, a device
// may never end.
int par_file_open(const char *path, size_t *bytes, char *why, size_t why_bytes);
// Reads a whole file of less than 1 GiB, and appends a 0. The caller frees it, by free or a PAR_FREE of its
// own. NULL: an error: errno, and a text in why.
char *par_file_read(const char *path, size_t *bytes, char *why, size_t why_bytes);
// Creates a file for writing. One of that name is unlinked first: it could be a symbolic link through which
// another file would be overwritten. -1: see errno.
int par_file_replace(const char *path);
int par_file_write(int fd, const void *data, size_t bytes, size_t at); // all of them; 0, or an errno
void par_file_sync_directory(const char *path); // so that names of files in it outlive a crash

// ---- safetensors ------------------------------------------------------------------------------------------

// 8 bytes of length, a JSON header, the data of tensors by name.
enum { PAR_FILE_NAME_BYTES = 192, PAR_FILE_MAX_DIMS = 8 };
typedef struct par_file_tensor { // one tensor in a file
    char name[PAR_FILE_NAME_BYTES];
    const char *dtype; // "F32", "BF16" ...; what is written may have any
    int dims;
    size_t shape[PAR_FILE_MAX_DIMS], count, bytes;
    const void *data; // perhaps not aligned
} par_file_tensor;
typedef struct par_safetensors {
    par_file_tensor *list; // in the order of their data in the file
    size_t count;
    const par_file_tensor **by_name; // the same tensors, sorted by name
    void *map;                       // the file
    size_t bytes;
    char why[512]; // error text
} par_safetensors;
// Maps a file and checks its header: sizes, dtypes, shapes, duplicate names, and data that overlap, leave
// gaps or exceed the file. 0, or an errno, with a text in s->why; s is closed then.
int par_safetensors_open(const char *path, par_safetensors *s);
void par_safetensors_close(par_safetensors *s);
const par_file_tensor *par_safetensors_find(const par_safetensors *s, const char *name); // or NULL
// Writes a file whose tensors are never in memory together. create makes a temporary file with the header of
// the list (all but data; it must stay valid until the end). put writes elements [first, first + count) of
// tensor `index`, in any order. end syncs the file, and renames it to path; keep 0: removes it. All return 0,
// or the first errno, with a text in w->why (EINVAL: elements that the tensor has not). Call end also after
// an error, of create too: it removes the file.
typedef struct par_safetensors_writer {
    const par_file_tensor *list;
    size_t count;
    size_t *at; // of each tensor's data in the file, and of the end
    int fd, error;
    char path[4200], temporary[4204], why[4400];
} par_safetensors_writer;
int par_safetensors_create(const char *path, const par_file_tensor *list, size_t count,
                           par_safetensors_writer *w);
int par_safetensors_put(par_safetensors_writer *w, size_t index, size_t first, size_t count,
                        const void *data);
int par_safetensors_end(par_safetensors_writer *w, int keep);

// Names with par__ are internal to the kit. A file's header, as create writes it: data begin at a multiple of
// 64 bytes, in the order of the list.
void par__safetensors_header(par_text *t, const par_file_tensor *list, size_t count);
// The number of a name in a sorted list of tensors; count: there is none.
size_t par__file_find(const par_file_tensor *const *sorted, size_t count, const char *name);
int par__file_by_name(const void *a, const void *b); // compares for qsort
void par__file_sync_parent(const char *path);        // the directory of a path

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_FILES_H

// Stop here if you only use it. -----------------------------------------------------------------------------

#if defined(PAR_FILES_IMPLEMENTATION) && !defined(PAR_FILES_IMPLEMENTED)
#define PAR_FILES_IMPLEMENTED
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__GLIBC__) && !defined(__USE_MISC)
#error "with -std=c11, include par_files.h before the system's headers, or compile with -D_DEFAULT_SOURCE"
#endif
#if !defined(PAR_MALLOC) && !defined(PAR_REALLOC) && !defined(PAR_FREE)
#define PAR_MALLOC(n)     malloc(n)
#define PAR_REALLOC(p, n) realloc(p, n)
#define PAR_FREE(p)       free(p)
#elif !defined(PAR_MALLOC) || !defined(PAR_REALLOC) || !defined(PAR_FREE)
#error "define all of PAR_MALLOC, PAR_REALLOC and PAR_FREE, or none"
#endif

PAR__API_BEGIN
#ifdef __cplusplus
extern "C" {
#endif

// >>files_json ----------------------------------------------------------------------------------------------

char par_json_peek(par_json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t')) j->at++;
    return j->at < j->end ? *j->at : (char)0;
}
static int par__json_accept(par_json *j, char c) { // 1: it was the next character
    if (par_json_peek(j) != c) return 0;
    j->at++;
    return 1;
}
static void par__json_expect(par_json *j, char c) {
    if (!par__json_accept(j, c)) j->bad = 1;
}
static unsigned par__json_hex(par_json *j) { // four digits
    unsigned v = 0;
    for (int i = 0; i < 4; i++, j->at++) {
        const char c = j->at < j->end ? *j->at : '!';
        const int digit = c >= '0' && c <= '9'                 ? c - '0'
                          : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                               : -1;
        if (digit < 0) return j->bad = 1, 0u;
        v = v << 4 | (unsigned)digit;
    }
    return v;
}
// Parses an escape after its backslash; returns the number of bytes.
static int par__json_unescape(par_json *j, char utf8[4]) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = j->at < j->end ? *j->at++ : 0;
    const char *e = c ? strchr(from, c) : NULL;
    if (e) return utf8[0] = to[e - from], 1;
    if (c != 'u') return j->bad = 1, 0;
    unsigned v = par__json_hex(j);
    if (v >= 0xD800 && v < 0xDC00 && j->end - j->at > 6 && j->at[0] == '\\' && j->at[1] == 'u') {
        j->at += 2; // the low surrogate
        const unsigned low = par__json_hex(j);
        if (low < 0xDC00 || low > 0xDFFF) return j->bad = 1, 0;
        v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
    }
    if (v == 0) return j->bad = 1, 0;
    if (v < 0x80) return utf8[0] = (char)v, 1;
    const int n = v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, v >>= 6) utf8[i] = (char)(0x80 | (v & 0x3F));
    return utf8[0] = (char)((0xF00 >> n & 0xF0) | v), n;
}
void par_json_string(par_json *j, char *text, size_t capacity, int cut) {
    size_t n = 0;
    par__json_expect(j, '"');
    while (!j->bad && j->at < j->end && *j->at != '"') {
        char bytes[4];
        int count = 1;
        bytes[0] = *j->at++;
        if (bytes[0] == '\\') count = par__json_unescape(j, bytes);
        if (!bytes[0] || (n + (size_t)count >= capacity && !cut)) j->bad = 1;
        for (int i = 0; i < count && n + 1 < capacity; i++) text[n++] = bytes[i];
    }
    if (capacity) text[n] = 0;
    par__json_expect(j, '"');
}
uint64_t par_json_number(par_json *j) {
    uint64_t v = 0;
    par_json_peek(j);
    if (j->at >= j->end || *j->at < '0' || *j->at > '9') return j->bad = 1, (uint64_t)0;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') {
        const uint64_t digit = (uint64_t)(*j->at++ - '0');
        if (v > (UINT64_MAX - digit) / 10) return j->bad = 1, (uint64_t)0;
        v = v * 10 + digit;
    }
    if (j->at < j->end && (*j->at == '.' || *j->at == 'e' || *j->at == 'E')) j->bad = 1;
    return v;
}
int par_json_next(par_json *j, size_t index, char open) {
    if (index == 0) par__json_expect(j, open);
    if (j->bad || par__json_accept(j, open == '{' ? '}' : ']')) return 0;
    if (index) par__json_expect(j, ',');
    return !j->bad;
}
int par_json_member(par_json *j, size_t index, char *name, size_t capacity, int cut) {
    if (!par_json_next(j, index, '{')) return 0;
    par_json_string(j, name, capacity, cut);
    par__json_expect(j, ':');
    return !j->bad;
}
static void par__json_skip_value(par_json *j, int depth) {
    const char open = par_json_peek(j);
    if (!open || depth > 32) {
        j->bad = 1;
        return;
    }
    if (open == '"') {
        par_json_string(j, NULL, 0, 1);
        return;
    }
    if (open == '{' || open == '[') {
        for (size_t i = 0; open == '{' ? par_json_member(j, i, NULL, 0, 1) : par_json_next(j, i, open); i++)
            par__json_skip_value(j, depth + 1);
        return;
    }
    const char *start = j->at;
    while (j->at < j->end && ((*j->at >= '0' && *j->at <= '9') || (*j->at >= 'a' && *j->at <= 'z') ||
                              *j->at == '+' || *j->at == '-' || *j->at == '.' || *j->at == 'E'))
        j->at++;
    if (j->at == start) j->bad = 1;
}
void par_json_skip(par_json *j) { par__json_skip_value(j, 0); }
// The bytes of the character that s begins with, of n bytes; 0: it is not UTF-8.
static size_t par__json_utf8(const unsigned char *s, size_t n) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = s[0] < 0x80 ? 1 : s[0] < 0xC0 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    uint32_t v = length > 1 ? s[0] & 0x7Fu >> length : s[0];
    if (length > n) return 0;
    for (size_t i = 1; i < length; i++, v = v << 6 | (s[i - 1] & 0x3Fu))
        if ((s[i] & 0xC0) != 0x80) return 0;
    return v < least[length] || v > 0x10FFFF || v >> 11 == 0x1B || s[0] > 0xF4 ? 0 : length;
}
size_t par_json_escape(const char *text, size_t bytes, char json[8]) {
    const unsigned char *s = (const unsigned char *)text;
    const size_t length = par__json_utf8(s, bytes);
    if (!length)
        snprintf(json, 8, "\\ufffd");
    else if (s[0] < 32 || s[0] == 127)
        snprintf(json, 8, "\\u%04x", s[0]);
    else
        snprintf(json, 8, "%s%.*s", s[0] == '"' || s[0] == '\\' ? "\\" : "", (int)length, text);
    return length ? length : 1;
}

// >>files_text ----------------------------------------------------------------------------------------------

void par_text_print(par_text *t, const char *format, ...) {
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (n < 0) {
        t->failed = 1;
        return;
    }
    if (t->count + (size_t)n + 1 > t->capacity) {
        const size_t capacity = 2 * t->capacity + (size_t)n + 256;
        char *more = (char *)PAR_REALLOC(t->text, capacity);
        if (!more) {
            t->failed = 1;
            return;
        }
        t->text = more;
        t->capacity = capacity;
    }
    va_start(list, format);
    vsnprintf(t->text + t->count, (size_t)n + 1, format, list);
    va_end(list);
    t->count += (size_t)n;
}
void par_text_quote(par_text *t, const char *s) { // as a JSON string
    char json[8];
    par_text_print(t, "\"");
    for (size_t n = strlen(s), used; n; s += used, n -= used) {
        used = par_json_escape(s, n, json);
        par_text_print(t, "%s", json);
    }
    par_text_print(t, "\"");
}

// >>files_files ---------------------------------------------------------------------------------------------

static int par__file_safe(int fd) { // at least 3
    const int own = fd < 0 || fd > 2 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own != fd) close(fd);
    return own;
}
int par_file_open(const char *path, size_t *bytes, char *why, size_t why_bytes) {
    struct stat st;
    const int fd = par__file_safe(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    const char *why_not = NULL;
    int e = EINVAL;
    *bytes = 0;
    if (fd < 0 || fstat(fd, &st))
        why_not = strerror(e = errno);
    else if (!S_ISREG(st.st_mode))
        why_not = S_ISDIR(st.st_mode)    ? "it is a directory, not a regular file"
                  : S_ISFIFO(st.st_mode) ? "it is a FIFO, not a regular file"
                                         : "it is not a regular file";
    else
        return *bytes = (size_t)st.st_size, fd;
    snprintf(why, why_bytes, "cannot open %s: %s", path, why_not);
    if (fd >= 0) close(fd);
    return errno = e, -1;
}
char *par_file_read(const char *path, size_t *bytes, char *why, size_t why_bytes) {
    const int fd = par_file_open(path, bytes, why, why_bytes);
    if (fd < 0) return NULL;
    char *text = *bytes < (size_t)1 << 30 ? (char *)PAR_MALLOC(*bytes + 1) : NULL;
    size_t got = 0;
    int e = text ? 0 : *bytes >> 30 ? EFBIG : ENOMEM;
    while (!e && got < *bytes) {
        const ssize_t n = read(fd, text + got, *bytes - got);
        if (n <= 0 && (n == 0 || errno != EINTR)) e = n ? errno : EIO;
        got += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (!e) return text[got] = 0, text;
    snprintf(why, why_bytes, "cannot read %s: %s", path, strerror(e));
    PAR_FREE(text);
    errno = e;
    return NULL;
}
int par_file_replace(const char *path) {
    unlink(path);
    return par__file_safe(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}
int par_file_write(int fd, const void *data, size_t bytes, size_t at) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(at + done));
        if (n <= 0 && (n == 0 || errno != EINTR)) return n ? errno : EIO;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}
void par_file_sync_directory(const char *path) {
    const int fd = par__file_safe(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}
void par__file_sync_parent(const char *path) { // the directory of a path
    char dir[4200];
    snprintf(dir, sizeof dir, "%.4190s", path);
    char *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = 0;
    par_file_sync_directory(slash ? dir : ".");
}

// >>files_safetensors ---------------------------------------------------------------------------------------

// The bytes of an element, and a name that stays; 0: not known.
static size_t par__file_element(const char *dtype, const char **name) {
    static const char *const known[] = {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "BOOL", "I64",
                                        "U64", "I32", "U32", "I16",  "U16",     "I8",      "U8"};
    size_t i = 0;
    while (i < sizeof known / sizeof known[0] && strcmp(dtype, known[i])) i++;
    if (i == sizeof known / sizeof known[0]) return 0;
    *name = known[i];
    return strcmp(dtype, "BOOL") ? strtoul(dtype + strcspn(dtype, "1234568"), NULL, 10) / 8 : 1;
}

// Parses a tensor's entry of the header: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}. Returns
// NULL, or what is wrong.
static const char *par__safetensors_entry(par_json *j, par_file_tensor *t, const char *data,
                                          size_t data_bytes) {
    char key[32], type[16] = "";
    uint64_t from = 0, until = 0;
    int seen = 0, overflows = 0;
    for (size_t i = 0; par_json_member(j, i, key, sizeof key, 0); i++) {
        const int which = !strcmp(key, "dtype")          ? 1
                          : !strcmp(key, "shape")        ? 2
                          : !strcmp(key, "data_offsets") ? 4
                                                         : 8;
        if (which == 8 || seen & which) return "its header is damaged";
        seen |= which;
        if (which == 1) par_json_string(j, type, sizeof type, 0);
        for (size_t d = 0; which == 2 && par_json_next(j, d, '['); d++) {
            if (t->dims == PAR_FILE_MAX_DIMS) return "it has more than 8 dimensions";
            t->shape[t->dims++] = (size_t)par_json_number(j);
        }
        if (which == 4) {
            par__json_expect(j, '[');
            from = par_json_number(j);
            par__json_expect(j, ',');
            until = par_json_number(j);
            par__json_expect(j, ']');
        }
    }
    if (j->bad || seen != 7 || from > until) return "its header is damaged";
    const size_t element = par__file_element(type, &t->dtype);
    if (!element) return "its dtype is not known";
    if (until > data_bytes) return "its data lie beyond the end of the file, which is truncated";
    t->data = data + from;
    t->bytes = (size_t)(until - from);
    t->count = 1;
    for (int i = 0; i < t->dims; i++) overflows |= __builtin_mul_overflow(t->count, t->shape[i], &t->count);
    if (overflows || t->count > SIZE_MAX / 8 || t->count * element != t->bytes)
        return "its shape and its data do not agree";
    return NULL;
}
static int par__file_by_data(const void *a, const void *b) {
    const par_file_tensor *x = (const par_file_tensor *)a, *y = (const par_file_tensor *)b;
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}
int par__file_by_name(const void *a, const void *b) {
    return strcmp((*(const par_file_tensor *const *)a)->name, (*(const par_file_tensor *const *)b)->name);
}
static int par__safetensors_append(par_safetensors *s, const par_file_tensor *t) {
    if ((s->count & (s->count - 1)) == 0) {
        par_file_tensor *list = (par_file_tensor *)PAR_REALLOC(s->list, (2 * s->count + 1) * sizeof *t);
        if (!list) return ENOMEM;
        s->list = list;
    }
    return s->list[s->count++] = *t, 0;
}
// Checks that data are contiguous from the first byte to the last, and that names are unique.
static int par__safetensors_check(par_safetensors *s, const char *data, const char *end) {
    const char *at = data;
    const par_file_tensor **names = (const par_file_tensor **)PAR_MALLOC((s->count + 1) * sizeof *names);
    s->by_name = names;
    if (!names) return snprintf(s->why, sizeof s->why, "out of memory"), ENOMEM;
    if (s->count) qsort(s->list, s->count, sizeof *s->list, par__file_by_data);
    for (size_t i = 0; i < s->count; at += s->list[i++].bytes) {
        names[i] = &s->list[i];
        if (s->list[i].data == at) continue;
        snprintf(s->why, sizeof s->why, "tensor %s does not begin where the one before it ends",
                 s->list[i].name);
        return EINVAL;
    }
    if (at != end) return snprintf(s->why, sizeof s->why, "there is more data than its tensors have"), EINVAL;
    if (s->count) qsort(names, s->count, sizeof *names, par__file_by_name);
    for (size_t i = 1; i < s->count; i++)
        if (!strcmp(names[i - 1]->name, names[i]->name))
            return snprintf(s->why, sizeof s->why, "tensor %s stands there twice", names[i]->name), EINVAL;
    return 0;
}
// Parses a mapped file.
static int par__safetensors_parse(par_safetensors *s, const char *file, size_t bytes) {
    uint64_t n = 0;
    if (bytes > 8) memcpy(&n, file, 8);
    if (bytes <= 8 || n > bytes - 8 || n > (uint64_t)100 << 20)
        return snprintf(s->why, sizeof s->why, "it is truncated, or no safetensors file"), EINVAL;
    par_json j = {file + 8, file + 8 + n, 0};
    const char *data = j.end, *wrong = NULL;
    par_file_tensor t;
    memset(&t, 0, sizeof t);
    for (size_t i = 0; par_json_member(&j, i, t.name, sizeof t.name, 0); i++) {
        if (!strcmp(t.name, "__metadata__")) {
            par_json_skip(&j);
            continue;
        }
        t.dims = 0;
        memset(t.shape, 0, sizeof t.shape);
        wrong = par__safetensors_entry(&j, &t, data, bytes - 8 - (size_t)n);
        if (wrong) return snprintf(s->why, sizeof s->why, "tensor %s: %s", t.name, wrong), EINVAL;
        if (par__safetensors_append(s, &t)) return snprintf(s->why, sizeof s->why, "out of memory"), ENOMEM;
    }
    par_json_peek(&j);
    if (j.bad || j.at != j.end) return snprintf(s->why, sizeof s->why, "its header is damaged"), EINVAL;
    return par__safetensors_check(s, data, file + bytes);
}
void par_safetensors_close(par_safetensors *s) {
    if (s->map) munmap(s->map, s->bytes);
    PAR_FREE(s->list);
    PAR_FREE(s->by_name);
    s->map = NULL;
    s->list = NULL;
    s->by_name = NULL;
    s->count = 0;
}
int par_safetensors_open(const char *path, par_safetensors *s) {
    char problem[sizeof s->why];
    memset(s, 0, sizeof *s);
    const int fd = par_file_open(path, &s->bytes, s->why, sizeof s->why);
    if (fd < 0) return errno;
    void *map = s->bytes ? mmap(NULL, s->bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int r = map == MAP_FAILED ? errno : 0;
    close(fd);
    s->map = map == MAP_FAILED ? NULL : map;
    if (r)
        snprintf(s->why, sizeof s->why, "%s", strerror(r));
    else
        r = par__safetensors_parse(s, (const char *)s->map, s->map ? s->bytes : 0);
    if (!r) return 0;
    memcpy(problem, s->why, sizeof problem);
    snprintf(s->why, sizeof s->why, "cannot read %.200s: %.280s", path, problem);
    return par_safetensors_close(s), r;
}
size_t par__file_find(const par_file_tensor *const *sorted, size_t count, const char *name) {
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const int order = strcmp(sorted[middle]->name, name);
        if (!order) return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return count;
}
const par_file_tensor *par_safetensors_find(const par_safetensors *s, const char *name) {
    const size_t i = par__file_find(s->by_name, s->count, name);
    return i < s->count ? s->by_name[i] : NULL;
}

void par__safetensors_header(par_text *t, const par_file_tensor *list, size_t count) {
    size_t offset = 0;
    par_text_print(t, "12345678{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < count; i++) {
        par_text_print(t, ",");
        par_text_quote(t, list[i].name);
        par_text_print(t, ":{\"dtype\":\"%s\",\"shape\":[", list[i].dtype);
        for (int d = 0; d < list[i].dims; d++) par_text_print(t, "%s%zu", d ? "," : "", list[i].shape[d]);
        par_text_print(t, "],\"data_offsets\":[%zu,%zu]}", offset, offset + list[i].bytes);
        offset += list[i].bytes;
    }
    par_text_print(t, "}%*s", (int)((64 - (t->count + 1) % 64) % 64), "");
    const uint64_t n = t->count - 8;
    if (!t->failed) memcpy(t->text, &n, 8);
}
static void par__safetensors_failed(par_safetensors_writer *w, int error) { // 0: no; the first error counts
    if (w->error || !error) return;
    w->error = error;
    snprintf(w->why, sizeof w->why, "cannot write %s: %s", w->path, strerror(error));
}
int par_safetensors_create(const char *path, const par_file_tensor *list, size_t count,
                           par_safetensors_writer *w) {
    par_text header;
    memset(&header, 0, sizeof header);
    memset(w, 0, sizeof *w);
    w->list = list;
    w->count = count;
    w->fd = -1;
    snprintf(w->path, sizeof w->path, "%s", path);
    snprintf(w->temporary, sizeof w->temporary, "%s.tmp", w->path);
    par__safetensors_header(&header, list, count);
    w->at = (size_t *)PAR_MALLOC((count + 1) * sizeof *w->at);
    if (header.failed || !w->at) par__safetensors_failed(w, ENOMEM);
    if (w->at) w->at[0] = header.count;
    for (size_t i = 0; w->at && i < count; i++) w->at[i + 1] = w->at[i] + list[i].bytes;
    if (!w->error) w->fd = par_file_replace(w->temporary);
    if (!w->error && (w->fd < 0 || ftruncate(w->fd, (off_t)w->at[count]))) par__safetensors_failed(w, errno);
    par__safetensors_failed(w, w->error ? 0 : par_file_write(w->fd, header.text, header.count, 0));
    PAR_FREE(header.text);
    return w->error;
}
int par_safetensors_put(par_safetensors_writer *w, size_t index, size_t first, size_t count,
                        const void *data) {
    const size_t room = index < w->count && first < w->list[index].count ? w->list[index].count - first : 0;
    if (index >= w->count || count > room) // never into another tensor
        return par__safetensors_failed(w, EINVAL), w->error;
    const par_file_tensor *t = &w->list[index];
    const size_t bytes = t->count ? t->bytes / t->count : 0; // of an element
    if (!w->error)
        par__safetensors_failed(w, par_file_write(w->fd, data, count * bytes, w->at[index] + first * bytes));
    return w->error;
}
int par_safetensors_end(par_safetensors_writer *w, int keep) {
    if (w->fd >= 0 && keep && !w->error && fsync(w->fd)) par__safetensors_failed(w, errno);
    if (w->fd >= 0 && close(w->fd)) par__safetensors_failed(w, errno);
    if (w->fd >= 0 && keep && !w->error && rename(w->temporary, w->path)) par__safetensors_failed(w, errno);
    if (w->fd >= 0 && (!keep || w->error)) unlink(w->temporary);
    if (w->fd >= 0 && keep && !w->error) par__file_sync_parent(w->path);
    PAR_FREE(w->at);
    w->at = NULL;
    w->fd = -1;
    return w->error;
}

#ifdef __cplusplus
}
#endif
PAR__API_END
#endif // PAR_FILES_IMPLEMENTATION

// Public domain where that is possible: anyone may use, change and give this away for any purpose, without
// conditions. Elsewhere, and if you prefer, under MIT-0:
//
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction, including
// without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is furnished to do so.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
// LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
// EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
// IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE
// USE OR OTHER DEALINGS IN THE SOFTWARE.

// output.h - the output of programs: JSON, tests that files can be written before the work begins, and a
// check that everything was written. Used by examples and benchmarks, which include par.h before it.
#ifndef OUTPUT_H
#define OUTPUT_H

#include "par_files.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- JSON, one object a line ------------------------------------------------------------------------------

typedef struct json_line {
    FILE *file;
    int count;           // of fields
    char nonfinite[512]; // names of numbers that were not finite, quoted
} json_line;

// Bytes as a JSON string: characters of UTF-8 as they are, U+FFFD for each byte that belongs to none.
static void json_bytes(FILE *f, const void *bytes, size_t n) {
    const char *s = (const char *)bytes;
    char json[8];
    fputc('"', f);
    for (size_t used; n; s += used, n -= used) {
        used = par_json_escape(s, n, json);
        fputs(json, f);
    }
    fputc('"', f);
}
static void json_text(FILE *f, const char *s) { // likewise; NULL: null
    if (!s) return (void)fputs("null", f);
    json_bytes(f, s, strlen(s));
}
static void json_real(json_line *j, const char *name, const char *format, int may_miss, double v) {
    if (isfinite(v)) return (void)fprintf(j->file, format, v);
    fputs("null", j->file);
    const size_t n = strlen(j->nonfinite), capacity = sizeof j->nonfinite - n;
    if (!(may_miss && isnan(v)) && strlen(name) + 4 < capacity)
        snprintf(j->nonfinite + n, capacity, "%s\"%s\"", n ? "," : "", name);
}
// Fields, separated by spaces: a name, a colon, and one of %d, %zu, %llu, %s (which is quoted), %b (an int:
// true or false), or %g, %e and %f with flags and precision as for printf. A number that is not finite is
// null, and json_end adds its name to a field "nonfinite"; %?g, %?.6f ...: a NaN stands for a value that is
// missing, and is null alone.
static void json_add_list(json_line *j, const char *format, va_list list) {
    while (*(format += strspn(format, " "))) {
        char name[64], how[32];
        const size_t named = strcspn(format, ":"), length = strcspn(format + named, " ");
        const int may_miss = !strncmp(format + named, ":%?", 3);
        snprintf(name, sizeof name, "%.*s", (int)named, format);
        snprintf(how, sizeof how, "%%%.*s", (int)length - 2 - may_miss, format + named + 2 + may_miss);
        format += named + length;
        fprintf(j->file, "%s\"%s\":", j->count++ ? "," : "{", name);
        switch (how[strlen(how) - 1]) {
        case 's': json_text(j->file, va_arg(list, const char *)); break;
        case 'b': fputs(va_arg(list, int) ? "true" : "false", j->file); break;
        case 'd': fprintf(j->file, "%d", va_arg(list, int)); break;
        case 'u':
            if (how[1] == 'z')
                fprintf(j->file, "%zu", va_arg(list, size_t));
            else
                fprintf(j->file, "%llu", va_arg(list, unsigned long long));
            break;
        default: json_real(j, name, how, may_miss, va_arg(list, double)); break;
        }
    }
}
static inline json_line json_begin(FILE *file) {
    json_line j;
    memset(&j, 0, sizeof j);
    return j.file = file, j;
}
static inline void json_add(json_line *j, const char *format, ...) {
    va_list list;
    va_start(list, format);
    json_add_list(j, format, list);
    va_end(list);
}
static void json_end(json_line *j) {
    if (j->nonfinite[0]) fprintf(j->file, "%s\"nonfinite\":[%s]", j->count++ ? "," : "{", j->nonfinite);
    fputs(j->count ? "}\n" : "{}\n", j->file);
}
static inline void json_print(const char *format, ...) { // a whole line on stdout
    json_line j = json_begin(stdout);
    va_list list;
    va_start(list, format);
    json_add_list(&j, format, list);
    va_end(list);
    json_end(&j);
}

// ---- checks of output -------------------------------------------------------------------------------------

// The last thing that a program does with stdout. 0, or 1 with a complaint: something was not written.
static inline int output_failed(const char *program) {
    const int before = ferror(stdout);
    errno = 0;
    if (!fflush(stdout) && !before) return 0;
    fprintf(stderr, "%s: cannot write all of the output%s%s\n", program, errno ? ": " : "",
            errno ? strerror(errno) : "");
    return 1;
}

static inline const char *output_why(char *why, size_t capacity, const char *what, const char *path) {
    snprintf(why, capacity, "cannot %s %.1000s: %s", what, path, strerror(errno));
    return why;
}
// Tests that a file can be created in a directory. `made` receives its name; the caller removes it. NULL, or
// an error text.
static inline const char *output_try_in(const char *dir, char *made, size_t made_capacity, char *why,
                                        size_t capacity) {
    snprintf(made, made_capacity, "%s/try.XXXXXX", dir);
    const int fd = mkstemp(made);
    if (fd < 0) {
        snprintf(why, capacity, "cannot make a file in %.1000s: %s", dir, strerror(errno));
        return made[0] = 0, why;
    }
    return close(fd), (const char *)NULL;
}
// Tests that a file can be written to this path when the work is done. An existing file does not change, and
// a new one is removed. NULL, or an error text (in `why`).
static inline const char *output_try(const char *path, char *why, size_t capacity) {
    struct stat st;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return close(fd), unlink(path), (const char *)NULL;
    if (errno == EEXIST && !stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return access(path, W_OK) ? output_why(why, capacity, "write", path) : NULL; // a FIFO or a device
    if (errno == EEXIST) fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    return fd < 0 ? output_why(why, capacity, "write", path) : (close(fd), (const char *)NULL);
}
// The same for a file that is written under another name beside it, and renamed.
static inline const char *output_try_beside(const char *path, char *why, size_t capacity) {
    char dir[4200], made[4300];
    struct stat st;
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = 0;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
        snprintf(why, capacity, "cannot write %.1000s: it is not a regular file", path);
        return why;
    }
    const char *problem = output_try_in(slash ? dir : ".", made, sizeof made, why, capacity);
    if (!problem) unlink(made);
    return problem;
}

#endif

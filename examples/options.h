// options.h - command lines from a table: --name value, --name=value, -x value; flags also alone, and as
// --no-name. An option may have several names. Examples and benchmarks use it; they include par.h before it.
#ifndef OPTIONS_H
#define OPTIONS_H

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/param.h> // MIN, MAX
#include <unistd.h>

#include "output.h"

typedef enum option_type {
    OPTION_INT,
    OPTION_SIZE,
    OPTION_REAL,
    OPTION_TEXT,
    OPTION_FLAG,
    OPTION_TITLE // no option, but the name of those that follow, for --help
} option_type;

// Every number has its range, which its row tells: from low to high, or, of a real number, below high. Other
// rows leave out what follows the help.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
typedef struct option {
    const char *name; // "--batch_size", or several: "-b, --minbytes"
    option_type type; // of *value: int, size_t (8, 64K, 1M, 2G), double, const char *, int
    void *value;      // holds the default
    const char *help;
    double low, high; // INFINITY: as its type can be; of a real number 1e38, as a float can be
    int given;        // options_parse: 1 if the command line has the option
} option;

// 1 or 0, as a flag's value says it, in any case; -1: it says neither.
static int option_flag(const char *text) {
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (int i = 0; i < 8; i++)
        if (!strcasecmp(text, words[i])) return i % 2;
    return -1;
}
static int option_is_number(const option *o) { return o->type <= OPTION_REAL; }
static double option_low(const option *o) { return fmax(o->low, o->type == OPTION_INT ? INT_MIN : -1e38); }
static double option_high(const option *o) {
    return fmin(o->high, o->type == OPTION_INT ? INT_MAX : o->type == OPTION_SIZE ? 0x1p63 : 1e38);
}
// What an option takes: after "it takes".
static void option_describe(const option *o, char *text, size_t capacity) {
    const char *const formats[] = {"a whole number from %.0f to %.0f",
                                   "a size (8, 64K, 1M, 2G) from %.0f to %.0f",
                                   "a number from %g to below %g"};
    snprintf(text, capacity, "a value");
    if (option_is_number(o)) snprintf(text, capacity, formats[o->type], option_low(o), option_high(o));
    if (o->type == OPTION_FLAG) snprintf(text, capacity, "0 or 1, false or true, no or yes, off or on");
}
// Sets the value; 0: the text is none that it takes.
static int option_set(const option *o, const char *text) {
    const double low = option_low(o), high = option_high(o);
    char *end = NULL;
    errno = 0;
    switch (o->type) {
    case OPTION_INT: {
        const long v = strtol(text, &end, 10);
        if (end == text || *end || errno || (double)v < low || (double)v > high) return 0;
        return *(int *)o->value = (int)v, 1;
    }
    case OPTION_SIZE: {
        static const char units[] = "KMG";
        unsigned long long v = strtoull(text, &end, 10), scale = 1;
        if (end == text || strchr(text, '-') || errno) return 0;
        for (const char *u = units; *u; u++) {
            scale *= 1024;
            if (*end == *u || *end == *u + 32) {
                if (v > UINT64_MAX / scale) return 0;
                v *= scale;
                end++;
                break;
            }
        }
        if (*end || v < (unsigned long long)low || v > (unsigned long long)high) return 0;
        return *(size_t *)o->value = (size_t)v, 1;
    }
    case OPTION_REAL: {
        const double v = strtod(text, &end);
        if (end == text || *end || !(v >= low && v < high)) return 0;
        return *(double *)o->value = v, 1;
    }
    case OPTION_TEXT: return *(const char **)o->value = text, 1;
    case OPTION_FLAG: {
        const int on = option_flag(text);
        if (on >= 0) *(int *)o->value = on;
        return on >= 0;
    }
    case OPTION_TITLE: break;
    }
    return 0;
}

static int option_columns(void) { // of the terminal, from 40 to 100; 80 where there is none
    struct winsize terminal;
    const char *columns = getenv("COLUMNS");
    int width = columns ? atoi(columns) : 0;
    if (width <= 0 && isatty(1) && !ioctl(1, TIOCGWINSZ, &terminal)) width = terminal.ws_col;
    return MAX(40, MIN(100, width > 0 ? width : 80));
}
static void option_print(const option *o, int width) {
    const int help = width < 70 ? 7 : 43; // its column; in a narrow terminal it begins a line
    char value[64] = "";
    switch (o->type) {
    case OPTION_INT: snprintf(value, sizeof value, "%d", *(int *)o->value); break;
    case OPTION_SIZE: snprintf(value, sizeof value, "%zu", *(size_t *)o->value); break;
    case OPTION_REAL: snprintf(value, sizeof value, "%g", *(double *)o->value); break;
    case OPTION_TEXT:
        snprintf(value, sizeof value, "%s", *(const char **)o->value ? *(const char **)o->value : "");
        break;
    case OPTION_FLAG: snprintf(value, sizeof value, "%s", *(int *)o->value ? "on" : "off"); break;
    case OPTION_TITLE: printf("\n%s\n", o->name); return;
    }
    int column = printf("  %-29s %-10s", o->name, value);
    if (width < 70) column = printf("\n%*s", help - 1, "") - 1;
    for (const char *word = o->help; *word;) {
        const int n = (int)strcspn(word, " ");
        if (column >= help && column + 1 + n > width) column = printf("\n%*s", help - 1, "") - 1;
        column += printf(" %.*s", n, word);
        word += n;
        word += strspn(word, " ");
    }
    printf("\n");
}

// The next name of a list, which it goes on to behind; *length is the name's. NULL: there is none.
static const char *option_next_name(const char **list, size_t *length) {
    const char *name = *list + strspn(*list, ", ");
    *length = strcspn(name, ",");
    *list = name + *length;
    return *length ? name : NULL;
}
// The option that an argument's first `length` characters name, or NULL.
static const option *option_find(const option *options, size_t count, const char *text, size_t length) {
    size_t n;
    for (size_t k = 0; k < count; k++)
        for (const char *list = options[k].name, *name;
             options[k].type != OPTION_TITLE && (name = option_next_name(&list, &n)) != NULL;)
            if (n == length && !memcmp(name, text, n)) return &options[k];
    return NULL;
}
static inline const option *option_named(const option *options, size_t count, const char *name) {
    return option_find(options, count, name, strlen(name));
}
static par_suggestion option_suggest(const option *options, size_t count, const char *text) {
    enum { MOST = 256 };
    char copies[MOST][48];
    const char *names[MOST];
    size_t n = 0, length;
    for (size_t k = 0; k < count; k++)
        for (const char *list = options[k].name, *name;
             options[k].type != OPTION_TITLE && n < MOST && (name = option_next_name(&list, &length)) != NULL;
             n++) {
            snprintf(copies[n], sizeof copies[n], "%.*s", (int)length, name);
            names[n] = copies[n];
        }
    return par_suggest(text, names, n, sizeof names[0]);
}

// A table as torch's pipelining writes it; else it is a name.
static inline int is_schedule_file(const char *schedule) {
    const char *ending = strrchr(schedule, '.');
    return ending && !strcmp(ending, ".csv");
}

// Another answer of a program than its usual one: the option that asks for it, and those that it uses
// besides, by their first names with a space before and behind each.
typedef struct option_answer {
    const char *mode, *uses;
} option_answer;
// Does the command line have an option that such an answer would drop? 1: an error was printed.
static inline int options_unused(const char *program, const option *options, size_t count,
                                 const option_answer *answers, size_t answer_count) {
    char word[64];
    for (size_t a = 0; a < answer_count; a++) {
        const option *mode = option_named(options, count, answers[a].mode);
        if (!mode->given || (mode->type == OPTION_FLAG && !*(const int *)mode->value)) continue;
        for (size_t k = 0; k < count; k++) {
            const int n = (int)strcspn(options[k].name, ",");
            snprintf(word, sizeof word, " %.*s ", n, options[k].name);
            if (options[k].given && &options[k] != mode && !strstr(answers[a].uses, word))
                return fprintf(stderr, "%s: %s makes no use of %.*s\n", program, mode->name, n,
                               options[k].name),
                       1;
        }
    }
    return 0;
}
// Is an array, whose size is a product of options, small enough? `elements` is a floating-point number, so
// that the product does not overflow. 0: an error was printed.
static inline int options_fit(const char *program, double elements, const char *of) {
    if (elements <= 1e12) return 1;
    fprintf(stderr, "%s: %s: %.4g elements are too many; at most 1e+12\n", program, of, elements);
    return 0;
}

// 0: go on; 1: help was printed; 2: an error was printed.
static int options_parse(int argc, char **argv, option *options, size_t count, const char *about) {
    char takes[128];
    for (size_t k = 0; k < count; k++)
        if (option_is_number(&options[k]) && !(options[k].low < options[k].high))
            return fprintf(stderr, "%s: option %s has no range\n", argv[0], options[k].name), 2;
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i], *equals = strchr(text, '='), *value = equals ? equals + 1 : NULL;
        const size_t length = equals ? (size_t)(equals - text) : strlen(text);
        if (!strcmp(text, "--help") || !strcmp(text, "-h")) {
            printf("%s\n\n  %-29s %-10s --name value, --name=value, --no-name\n", about, "option", "default");
            for (size_t k = 0; k < count; k++) option_print(&options[k], option_columns());
            return output_failed(argv[0]) ? 2 : 1;
        }
        const option *o = option_find(options, count, text, length);
        if (!o && !equals && !strncmp(text, "--no-", 5)) { // the same as --name=0
            char name[64];
            snprintf(name, sizeof name, "--%s", text + 5);
            o = option_find(options, count, name, strlen(name));
            value = "0";
            if (o && o->type != OPTION_FLAG) o = NULL;
        }
        if (!o) {
            fprintf(stderr, "%s: unknown option %s%s (--help lists all)\n", argv[0], text,
                    option_suggest(options, count, text).text);
            return 2;
        }
        if (!value && o->type == OPTION_FLAG) // alone, or with its value behind it
            value = i + 1 < argc && option_flag(argv[i + 1]) >= 0 ? argv[++i] : "1";
        if (!value && i + 1 < argc) value = argv[++i];
        if (!value || !option_set(o, value)) {
            option_describe(o, takes, sizeof takes);
            fprintf(stderr, "%s: option %.*s: cannot use \"%s\"; it takes %s\n", argv[0], (int)length, text,
                    value ? value : "(nothing)", takes);
            return 2;
        }
        options[o - options].given = 1;
    }
    return 0;
}

#endif

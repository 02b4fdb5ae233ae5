// strict_json.h - is a text JSON, to the letter of RFC 8259, in valid UTF-8?
#ifndef STRICT_JSON_H
#define STRICT_JSON_H

#include <stdio.h>
#include <string.h>

typedef struct strict_json {
    const unsigned char *at, *end;
    int bad;
} strict_json;

static void strict_space(strict_json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t')) j->at++;
}
static int strict_take(strict_json *j, int c) {
    if (j->at >= j->end || *j->at != c) return 0;
    return j->at++, 1;
}
static void strict_need(strict_json *j, int c) {
    if (!strict_take(j, c)) j->bad = 1;
}
static unsigned strict_hex(strict_json *j) {
    unsigned v = 0;
    for (int i = 0; i < 4 && !j->bad; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *d = NULL;
        if (j->at < j->end && *j->at) d = strchr(digits, *j->at++);
        if (!d) return j->bad = 1, 0u;
        v = v << 4 | (unsigned)((d - digits) & 15);
    }
    return v;
}
static void strict_escape(strict_json *j) {
    const int c = j->at < j->end ? *j->at++ : 0;
    if (c != 'u') {
        j->bad |= !c || !strchr("\"\\/bfnrt", c);
        return;
    }
    const unsigned v = strict_hex(j);
    if (v < 0xD800 || v > 0xDFFF) return;
    strict_need(j, '\\'), strict_need(j, 'u');
    const unsigned low = strict_hex(j);
    j->bad |= v > 0xDBFF || low < 0xDC00 || low > 0xDFFF;
}
// Behind the first byte of a character of several: its code point must need as many, and be none of a pair.
static void strict_more(strict_json *j, unsigned first) {
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    unsigned v = first & (0x3Fu >> more);
    for (int i = 0; i < more; i++) {
        if (j->at >= j->end || *j->at >> 6 != 2) return (void)(j->bad = 1);
        v = v << 6 | (*j->at++ & 0x3F);
    }
    static const unsigned least[4] = {0, 0x80, 0x800, 0x10000};
    j->bad |= first < 0xC0 || first > 0xF7 || v < least[more] || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000);
}
static void strict_string(strict_json *j) {
    strict_need(j, '"');
    while (!j->bad && j->at < j->end && *j->at != '"') {
        const unsigned c = *j->at++;
        if (c < 32) j->bad = 1;
        if (c == '\\') strict_escape(j);
        if (c >= 128) strict_more(j, c);
    }
    strict_need(j, '"');
}
static void strict_digits(strict_json *j) { // one or more
    const unsigned char *start = j->at;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') j->at++;
    j->bad |= j->at == start;
}
static void strict_number(strict_json *j) {
    strict_take(j, '-');
    if (!strict_take(j, '0')) strict_digits(j);
    if (strict_take(j, '.')) strict_digits(j);
    if (strict_take(j, 'e') || strict_take(j, 'E')) {
        if (!strict_take(j, '+')) strict_take(j, '-');
        strict_digits(j);
    }
}
static void strict_value(strict_json *j, int depth);
static void strict_list(strict_json *j, int depth, int open) {
    const int close = open == '{' ? '}' : ']';
    j->at++, strict_space(j);
    if (strict_take(j, close)) return;
    do {
        strict_space(j);
        if (open == '{') strict_string(j), strict_space(j), strict_need(j, ':');
        strict_value(j, depth + 1);
    } while (!j->bad && strict_take(j, ','));
    strict_need(j, close);
}
static void strict_value(strict_json *j, int depth) {
    static const char *const words[] = {"true", "false", "null"};
    strict_space(j);
    if (j->at >= j->end || depth > 100) return (void)(j->bad = 1);
    const int c = *j->at;
    if (c == '{' || c == '[')
        strict_list(j, depth, c);
    else if (c == '"')
        strict_string(j);
    else if (c == '-' || (c >= '0' && c <= '9'))
        strict_number(j);
    else {
        j->bad = 1;
        for (int i = 0; i < 3; i++) {
            const size_t n = strlen(words[i]);
            if ((size_t)(j->end - j->at) < n || memcmp(j->at, words[i], n)) continue;
            j->at += n, j->bad = 0;
            break;
        }
    }
    strict_space(j);
}
// NULL, or where it stops being JSON.
static const char *strict_check(const void *text, size_t bytes) {
    strict_json j = {(const unsigned char *)text, (const unsigned char *)text + bytes, 0};
    strict_value(&j, 0);
    return j.bad || j.at != j.end ? (const char *)j.at : NULL;
}

#endif

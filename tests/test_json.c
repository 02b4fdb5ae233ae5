// test_json.c - what the kit writes as JSON is JSON, whatever names it is given: a trace, a pipeline's
// timeline, a checkpoint, a safetensors file, a program's lines; and what its reader takes.
//
//     cc -I. -Iexamples tests/test_json.c -o build/test_json -pthread -lm && build/test_json DIRECTORY
#define PAR_IMPLEMENTATION
#include "par_pipe.h"
#include "par_zero.h"
#include "output.h"
#include "strict_json.h"
#include <glob.h>

static const char *const names[] = {
    "quote\" back\\slash / </script>", "controls \x01\x1f\x7f\t\n\r\x1b[31m",
    "no UTF-8 \xff \xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xf5\x80\x80\x80 \xe2\x82",
    "UTF-8 \xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80",
    "long \xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"
    "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"
    "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"};
enum { NAMES = sizeof names / sizeof names[0] };
static int failed;

#define CHECK(c) ((c) ? (void)0 : (void)(fprintf(stderr, "%d: %s\n", __LINE__, #c), failed = 1))

// From byte `skip` of a file on (length: so many bytes; 0: all). It must say `word`.
static void check_file(const char *dir, const char *name, size_t skip, size_t length, const char *word) {
    static char text[1 << 16];
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    const size_t bytes = length ? length : n - skip;
    const char *wrong = n > skip + bytes - 1 && bytes ? strict_check(text + skip, bytes) : "nothing is there";
    if (wrong) fprintf(stderr, "%s is not JSON at: %.40s\n", path, wrong);
    char end = text[skip + bytes];
    text[skip + bytes] = 0;
    if (wrong || !strstr(text + skip, word)) failed = 1, fprintf(stderr, "%s: \"%s\"?\n", path, word);
    text[skip + bytes] = end;
}
static void check_header(const char *dir, const char *name, const char *word) {
    char path[4200];
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    CHECK(f && fread(&n, sizeof n, 1, f) == 1 && n < 60000);
    if (f) fclose(f);
    check_file(dir, name, 8, (size_t)n, word);
}
static void check_the_checker(void) {
    static const char *const good[] = {"{}", " [1, -0.5e+3, 0, \"\\u00e9\\ud83d\\ude00\\n\", null] ",
                                       "\"\xc3\xa9\"", "{\"a\":{\"b\":[true,false]}}"};
    static const char *const bad[] = {"",
                                      "{",
                                      "[1,]",
                                      "{\"a\" 1}",
                                      "01",
                                      "1.",
                                      "\"\x01\"",
                                      "\"\\x\"",
                                      "\"\\ud800\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\\udc00\\udc00\"",
                                      "\"\xff\"",
                                      "\"\xc0\xaf\"",
                                      "nul",
                                      "[1] 2",
                                      "\"\\u12g4\"",
                                      "{a:1}",
                                      "\"",
                                      "\"\xe2\x82\"",
                                      "\"\xed\xa0\x80\"",
                                      "'a'",
                                      "\"\xf5\x80\x80\x80\""};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) CHECK(!strict_check(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!strict_check(bad[i], strlen(bad[i]))) failed = 1, fprintf(stderr, "%s is JSON?\n", bad[i]);
}
// What a reader gets, in words, of an object or of a value: what is bad ends with "!".
static const char *read_json(const char *text, char *said) {
    par_json j = {text, text + strlen(text), 0};
    char name[8], value[8];
    char *at = said;
    *at = 0;
    for (size_t i = 0; par_json_member(&j, i, name, sizeof name, 1); i++) switch (par_json_peek(&j)) {
        case '[':
            for (size_t k = 0; par_json_next(&j, k, '['); k++)
                at += sprintf(at, "%s[%zu]=%llu ", name, k, (unsigned long long)par_json_number(&j));
            break;
        case '"':
            par_json_string(&j, value, sizeof value, 0);
            at += sprintf(at, "%s=%s ", name, value);
            break;
        default: par_json_skip(&j); at += sprintf(at, "%s ", name);
        }
    strcpy(at, j.bad || par_json_peek(&j) ? "!" : ".");
    return said;
}
static void check_reader(void) {
    static const struct {
        const char *text, *said;
    } rows[] = {
        {" {} ", "."},
        {"{\"a\":[1, 18446744073709551615],\"b\" : \"x\\u00e9\\n\",\"c\":{\"d\":[{},null]},\"e\":[]}",
         "a[0]=1 a[1]=18446744073709551615 b=x\xc3\xa9\n c ."},
        {"{\"long name\":\"fits as\"}", "long na=fits as ."}, // names are cut here, and values are not
        {"{\"a\":\"too long\"}", "a=too lon !"},
        {"{\"a\":[18446744073709551616]}", "a[0]=0 !"},
        {"{\"a\":[-1]}", "a[0]=0 !"},
        {"{\"a\":[2.5]}", "a[0]=2 !"},
        {"{\"a\":[2e3]}", "a[0]=2 !"},
        {"{\"a\":[1}", "a[0]=1 !"},
        {"{\"a\":1,}", "a !"},
        {"{\"a\":\"\\u0000\"}", "a= !"},
        {"{\"a\":1} x", "a !"},
        {"[]", "!"},
        {"", "!"},
        {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", "a[0]=0 !"},
    };
    char said[256];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(read_json(rows[i].text, said), rows[i].said))
            failed = 1, fprintf(stderr, "%s is read as %s\n", rows[i].text, said);
    char deep[80]; // 32 arrays in each other are skipped, 33 are not
    for (int n = 32; n <= 33; n++) {
        memset(deep, '[', (size_t)n + 1), memset(deep + n + 1, ']', (size_t)n + 1);
        par_json j = {deep, deep + 2 * (n + 1), 0};
        par_json_skip(&j);
        CHECK(j.bad == (n > 32));
    }
}
static void check_trace(const char *dir) {
    char path[4200], text[600];
    par_comm *w;
    par_desc d;
    float x = 1;
    memset(&d, 0, sizeof d);
    snprintf(path, sizeof path, "%s/trace", dir);
    d.trace = path;
    if (par_open(&d, &w)) return (void)(failed = 1);
    for (int i = 0; i < NAMES; i++) {
        par_trace_begin(w, names[i]), par_trace_end(w);
        par__enter_layer(w, names[i]), par__set_layer_name(w, names[i]);
        CHECK(!(par_all_reduce)(&x, &x, 1, PAR_F32, PAR_SUM, par__in_layer(w)));
        CHECK(!(par_all_reduce)(&x, &x, 1, PAR_F32, PAR_SUM, par__at_site(w, names[i])));
        par_fail(w, PAR_ERR_ARGUMENT, "%s", names[i]); // errors keep newlines, and no other control character
        snprintf(text, sizeof text, "\"%s\"", par_last_error(w));
        for (char *p = text + 1; p[1]; p++)
            if (strchr("\"\\\n\t", *p)) *p = '.';
        CHECK(!strict_check(text, strlen(text)) && !strpbrk(text, "\x1b\r\x7f\x01"));
    }
    FILE *f = fopen(strcat(strcpy(text, dir), "/printed"), "w+");
    par_recorder_print(w, f), par_ledger_print(w, f), rewind(f);
    for (int c; (c = fgetc(f)) != EOF;) CHECK(c != 0x1b && c != 1 && c != 0xff);
    fclose(f);
    CHECK(!par_close(w));
    check_file(dir, "trace", 0, 0, "no UTF-8 \\ufffd \\ufffd\\ufffd \\ufffd\\ufffd\\ufffd");
}
static void check_timeline(const char *dir) {
    char path[4200];
    par_pipe_desc d;
    par_pipe_schedule s;
    par_pipe_timeline t;
    memset(&d, 0, sizeof d);
    d.schedule = "1f1b", d.ranks = 2, d.microbatches = 2;
    if (par_pipe_schedule_open(&d, &s)) return (void)(failed = 1, puts(s.why));
    CHECK(!par_pipe_simulate(&s, PAR_PIPE_NONBLOCKING, &t));
    const par_pipe_timeline *all[NAMES];
    for (int i = 0; i < NAMES; i++) all[i] = &t;
    snprintf(path, sizeof path, "%s/timeline", dir);
    CHECK(!par_pipe_perfetto(&s, all, names, NAMES, path));
    check_file(dir, "timeline", 0, 0, "\\u001b[31m");
    CHECK(!par_pipe_perfetto(&s, all, names, 0, path));
    check_file(dir, "timeline", 0, 0, "traceEvents");
    CHECK(!par_pipe_svg(&s, all, names, NAMES, path));
    FILE *f = fopen(path, "r");
    for (int c; f && (c = fgetc(f)) != EOF;) CHECK(c != 0xff && c != 0xc0 && c != 1);
    if (f) fclose(f);
    par_pipe_timeline_close(&t), par_pipe_schedule_close(&s);
}
static void check_checkpoint(const char *dir) {
    par_comm *w;
    par_zero *z;
    par_zero_desc d;
    par_zero_checkpoint files;
    char note[300], why[300], path[4200];
    uint64_t steps;
    memset(&d, 0, sizeof d), memset(&files, 0, sizeof files);
    if (par_open(NULL, &w)) return (void)(failed = 1);
    d.comm = w, d.hyper[0].lr = 1;
    CHECK(!par_zero_open(&d, &z));
    par_zero_add_unit(z, names[2]);
    for (int i = 0; i < NAMES; i++) {
        par_zero_tensor t;
        memset(&t, 0, sizeof t);
        t.name = names[i], t.dims = 1, t.shape[0] = 3;
        CHECK(par_zero_add_tensor(z, &t) == i);
    }
    CHECK(!par_zero_commit(z));
    files.dir = dir, files.note = names[2], files.max_file_bytes = 40; // several files, and so an index
    CHECK(!par_zero_save(z, &files) && !par_zero_load(z, &files));
    if (par_last_error(w)[0]) fprintf(stderr, "%s\n", par_last_error(w));
    CHECK(!par_zero_load_note(dir, note, sizeof note, &steps, why, sizeof why) &&
          strstr(note, "no UTF-8 \xEF\xBF\xBD"));
    check_file(dir, "manifest.json", 0, 0, "no UTF-8 ");
    check_file(dir, "model.safetensors.index.json", 0, 0, "quote\\\" back\\\\slash");
    glob_t found; // a part of the name is random
    snprintf(path, sizeof path, "%s/model-s000001-*-00001-of-00002.safetensors", dir);
    CHECK(!glob(path, 0, NULL, &found) && found.gl_pathc == 1);
    check_header(dir, strrchr(found.gl_pathv[0], '/') + 1, "controls \\u0001\\u001f\\u007f\\u0009");
    globfree(&found);
    CHECK(!par_zero_close(z) && !par_close(w));
    par_file_tensor list[NAMES];
    par_safetensors s;
    static par_safetensors_writer out;
    const float x[3] = {1, 2, 3};
    memset(list, 0, sizeof list);
    for (int i = 0; i < NAMES; i++) {
        snprintf(list[i].name, sizeof list[i].name, "%s", names[i]);
        list[i].dtype = "F32", list[i].dims = 1, list[i].shape[0] = list[i].count = 3, list[i].bytes = 12;
    }
    snprintf(path, sizeof path, "%s/export.safetensors", dir);
    CHECK(!par_safetensors_create(path, list, NAMES, &out));
    for (size_t i = 0; i < NAMES; i++) CHECK(!par_safetensors_put(&out, i, 0, 3, x));
    CHECK(!par_safetensors_end(&out, 1));
    check_header(dir, "export.safetensors", "no UTF-8 \\ufffd");
    CHECK(!par_safetensors_open(path, &s) && par_safetensors_find(&s, names[1]));
    par_safetensors_close(&s);
}
static void check_lines(const char *dir) {
    char path[4200];
    snprintf(path, sizeof path, "%s/line", dir);
    FILE *f = fopen(path, "w");
    json_line j = json_begin(f);
    for (int i = 0; i < NAMES; i++) json_add(&j, "name:%s", names[i]);
    json_add(&j, "zero:%g nothing:%s", (double)NAN, (const char *)NULL);
    json_end(&j);
    CHECK(!fclose(f));
    check_file(dir, "line", 0, 0, "no UTF-8 \\ufffd");
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: test_json DIRECTORY\n"), 2;
    alarm(120); // a loop that goes on for ever fails, too
    check_the_checker();
    check_reader();
    check_trace(argv[1]);
    check_timeline(argv[1]);
    check_checkpoint(argv[1]);
    check_lines(argv[1]);
    return failed;
}

// fuzz_settings.c - libFuzzer's target for what comes from the environment: every variable, launchers, lists
// of hosts, PAR_ALGO, PAR_TUNE's table; and for texts from outside on their way to JSON and to errors. The
// first byte chooses; what is read lies within its bounds, all else is an error with a text.
//
//     clang -fsanitize=fuzzer,address,undefined -I. -Itests tests/fuzz_settings.c
//         -o build/fuzz_settings -pthread -lm
#define PAR_IMPLEMENTATION
#define PAR_LOG(text) (void)(text)
#include "par.h"
#include "strict_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_variable(const par__setting *s, const char *text) {
    char why[512] = "", shown[600];
    double value = -7;
    setenv(s->name, text, 1);
    const par_result r = par__setting_read(s, &value, why, sizeof why);
    if ((r != PAR_OK) != (why[0] != 0)) abort();
    if (r && (value != s->default_value || strncmp(why, s->name, strlen(s->name)))) abort();
    if (!r && *text && s->kind < PAR__SETTING_CHOICE && !(value >= s->min && value <= s->max)) abort();
    snprintf(shown, sizeof shown, "\"%s\"", r ? why : "");
    for (char *p = shown + 1; *p && p[1]; p++)
        if (*p == '"' || *p == '\\') *p = '.';
    if (strict_check(shown, strlen(shown))) abort(); // no control characters, valid UTF-8
    unsetenv(s->name);
}
static void try_launch(const char *text) { // a line for each of a launcher's variables
    static const char *const names[] = {
        "RANK",        "WORLD_SIZE",  "LOCAL_RANK",   "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "PMI_RANK",    "PMI_SIZE",    "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_TASK_PID",
        "MASTER_PORT", "MASTER_ADDR", "PAR_PORT",     "SLURM_STEP_NODELIST"};
    enum { NAMES = sizeof names / sizeof names[0] };
    char line[300];
    par__launch l;
    for (int i = 0; i < NAMES; i++) {
        const size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)PAR__MIN(n, sizeof line - 1), text);
        setenv(names[i], line, 1);
        text += n + (text[n] != 0);
    }
    par__find_launch(&l);
    const int fine = l.launcher >= 0 && !l.problem[0];
    if (fine && (l.rank < 0 || l.rank >= l.size)) abort();
    if (fine && par__find_rendezvous(&l) == PAR_OK &&
        (!l.host[0] || atoi(l.port) < 1 || atoi(l.port) > 65535))
        abort();
    for (int i = 0; i < NAMES; i++) unsetenv(names[i]);
}
static void try_world(const uint8_t *data, size_t size, const char *text) {
    static int fd = -1;
    char path[64];
    par__world *w = (par__world *)par__zalloc(sizeof *w);
    if ((par__apply_force(w, "PAR_ALGO", text) != PAR_OK) != (w->error[0] != 0)) abort();
    for (int k = 0; k < PAR_KIND_COUNT; k++)
        if (w->forced[k] < 0 || w->forced[k] > PAR__ALGORITHM_COUNT) abort();
    if (fd < 0) fd = par__memfd_create("tuned");
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    w->error[0] = 0;
    if ((par__load_tune_file(w, path) != PAR_OK) != (w->error[0] != 0)) abort();
    for (size_t i = 0; i < w->tune_row_count; i++) {
        const par__tune_row *t = &w->tune_rows[i];
        if (t->algorithm < 0 || t->algorithm >= PAR__ALGORITHM_COUNT || t->ranks < 1 || t->nodes < 1) abort();
    }
    PAR_FREE(w->tune_rows);
    PAR_FREE(w);
}
static void try_text(const char *text, size_t size) {
    char json[8], host[64], *line = (char *)calloc(6 * size + 8, 1), *clean = strdup(text);
    size_t at = 1;
    line[0] = '"';
    for (size_t i = 0; i < size; at += strlen(json)) {
        const size_t used = par__json_escape(text + i, size - i, json);
        if (!used || used > size - i) abort();
        strcpy(line + at, json), i += used;
    }
    line[at] = '"';
    if (strict_check(line, at + 1)) abort();
    par__json_escape_text(host, sizeof host, text);
    snprintf(line, 6 * size + 8, "\"%s\"", host);
    if (size > 20 && strict_check(line, strlen(line))) abort();
    par__sanitize(clean, "");
    if (strlen(clean) != strlen(text)) abort();
    for (const char *p = clean; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127) abort();
    if (par__first_host(text, host, sizeof host) && (!host[0] || strpbrk(host, "[], "))) abort();
    free(line), free(clean);
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    char *text = (char *)calloc(size, 1);
    memcpy(text, data + 1, size - 1);
    if (data[0] < PAR__SETTING_COUNT)
        try_variable(&par__settings[data[0]], text);
    else if (data[0] < 128)
        try_launch(text);
    else if (data[0] < 192)
        try_world(data + 1, size - 1, text);
    else
        try_text(text, strlen(text));
    free(text);
    return 0;
}

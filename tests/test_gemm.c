// test_gemm.c - who makes matrix products: test_gemm MODE, linked with a CBLAS (tests/programs.sh has some
// of its own). Rank 0 prints "NAME, threads N: CANDIDATE MEASURED NOTE; ..." if all ranks agree.
#define PAR_IMPLEMENTATION
#include "par_math.h"

static const par_gemm_shape shapes[] = {{0, 1, 128, 128, 128, 1}, {1, 0, 128, 96, 64, 3}};

static float product(void) { // of matrices of 1/2 and 2: the size that they have in common, or -1
    float a[30 * 20], b[20 * 10], c[30 * 10];
    for (int i = 0; i < 600; i++) a[i] = 0.5f;
    for (int i = 0; i < 200; i++) b[i] = 2;
    if (par_gemm(0, 0, 30, 10, 20, 1, a, 20, b, 10, 0, c, 10)) return -1;
    return c[0] == c[299] ? c[0] : -2;
}
static int canonical(void) { // prints a checksum of the bits of products of all forms
    static const size_t shapes[][3] = {{13, 37, 300}, {3, 1030, 1281}, {1027, 5, 9}, {8, 32, 2049}};
    uint64_t sum = 1469598103934665603u; // FNV-1a
    for (int form = 0; form < 16; form++) {
        const size_t m = shapes[form / 4][0], n = shapes[form / 4][1], k = shapes[form / 4][2];
        const int ta = form & 1, tb = form >> 1 & 1;
        float *a = (float *)malloc(m * k * sizeof *a), *b = (float *)malloc(k * n * sizeof *b),
              *c = (float *)malloc(m * n * sizeof *c);
        for (size_t i = 0; i < m * k; i++) a[i] = par_uniform(1, 1, i) - 0.5f;
        for (size_t i = 0; i < k * n; i++) b[i] = par_uniform(1, 2, i) - 0.5f;
        for (size_t i = 0; i < m * n; i++) c[i] = par_uniform(1, 3, i);
        const float alpha = form % 3 ? 1 : 0.3f, beta = (float)(form % 5) * 0.25f;
        if (par_gemm(ta, tb, m, n, k, alpha, a, ta ? m : k, b, tb ? k : n, beta, c, n)) return 1;
        for (size_t i = 0; i < m * n * sizeof *c; i++)
            sum = (sum ^ ((const unsigned char *)c)[i]) * 1099511628211u;
        free(a), free(b), free(c);
    }
    printf("%s %d %016llx\n", par_gemm_name(), par__isa(), (unsigned long long)sum);
    return 0;
}
// A tile of bf16, which $TILE makes slow, wrong, or fast: then it gives what it has computed before.
static par_result tile(const void *user, int ta, int tb, size_t m, size_t n, size_t k, const par_bf16 *a,
                       size_t lda, const par_bf16 *b, size_t ldb, float *c, void *scratch) {
    static float *known[16];
    static size_t key[16];
    const char *how = (const char *)user;
    const size_t this = (size_t)(ta + 2 * tb) + 4 * (m + 4096 * (n + 4096 * k));
    (void)scratch;
    for (int i = 0; i < 16 && !strcmp(how, "fast"); i++)
        if (key[i] == this) return memcpy(c, known[i], m * n * sizeof *c), PAR_OK;
    float *x = (float *)malloc(m * k * sizeof *x), *y = (float *)malloc(n * k * sizeof *y);
    for (int again = 0; again < (strcmp(how, "slow") ? 1 : 40); again++) {
        par_cast(x, PAR_F32, a, PAR_BF16, m * k), par_cast(y, PAR_F32, b, PAR_BF16, n * k);
        if (par__gemm_builtin(ta, tb, m, n, k, 1, x, lda, y, ldb, 0, c, n)) return PAR_ERR_MEMORY;
    }
    free(x), free(y);
    if (!strcmp(how, "wrong")) c[m * n - 1] += 0.01f;
    for (int i = 0; i < 16 && !strcmp(how, "fast"); i++)
        if (!key[i]) {
            key[i] = this, known[i] = (float *)malloc(m * n * sizeof *c);
            return memcpy(known[i], c, m * n * sizeof *c), PAR_OK;
        }
    return PAR_OK;
}
static int print_report(par_comm *w, const par_gemm_report r) {
    int chosen[64], threads = par__thread_count(), all = 1;
    if (par_all_gather(&r.chosen, chosen, 1, PAR_I32, w)) return 1;
    if (par_all_reduce(&threads, &threads, 1, PAR_I32, PAR_MAX, w)) return 1;
    for (int i = 0; i < par_size(w); i++) all = all && chosen[i] == chosen[0];
    if (par_rank(w)) return !all;
    printf("%s, threads %d:", all ? r.chosen < 0 ? "not chosen yet" : r.name[r.chosen] : "ranks differ",
           threads);
    for (int i = 0; i < r.count; i++)
        printf(" %s %s%s%s;", r.name[i], r.flops[i] > 0 ? "measured" : "-", *r.note[i] ? " " : "", r.note[i]);
    printf("\n");
    return !all;
}
static int report(par_comm *w) { return print_report(w, par_gemm_get()); }
static int select_bf16(par_comm *w) {
    char *how = getenv("TILE");
    if (par__gemm_select_bf16(shapes, 2, w, how ? tile : NULL, how) == PAR_OK)
        return print_report(w, par__gemm_get_bf16());
    fprintf(stderr, "rank %d: %s\n", par_rank(w), par_last_error(w));
    return 3;
}
static int select_all(par_comm *w) {
    if (par_gemm_select(shapes, 2, w) == PAR_OK) return product() != 20 || report(w);
    fprintf(stderr, "rank %d: %s\n", par_rank(w), par_last_error(w));
    return 3;
}
static int forked(void) { // while a thread of this process chooses, which the child does not have
    int status = 1;
    par__gemm_state[PAR__GEMM_F32] = PAR__GEMM_BUSY + (uint32_t)getpid();
    const pid_t child = fork();
    if (child == 0) alarm(60), _exit(product() != 20);
    par__gemm_state[PAR__GEMM_F32] = 0;
    return child < 0 || waitpid(child, &status, 0) != child || status;
}
static int thread_main(par_comm *w, void *user) { // all make their first product at once
    return (strcmp((const char *)user, "lazy") == 0 ? product() != 20 : select_all(w)) || report(w);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    par_comm *w;
    int bad = 0;
    if (!strcmp(mode, "canonical")) return canonical();
    if (!strcmp(mode, "lazy") || !strcmp(mode, "threads")) {
        par_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.rank_count = 4;
        return par_run_threads(&desc, thread_main, argv[1]) != 0;
    }
    if (!strcmp(mode, "inherit")) bad = product() != 20; // the choice of a process is its forks'
    if (!strcmp(mode, "forked")) bad = forked();
    if (par_open(NULL, &w)) return 1;
    if (!strcmp(mode, "differ")) setenv("PAR_GEMM", par_rank(w) ? "built-in" : "CBLAS", 1);
    if (!strcmp(mode, "shapes")) { // of no size; too many
        const par_gemm_shape empty = {0, 0, 8, 0, 8, 1};
        bad = par_gemm_select(&empty, 1, w) != PAR_ERR_ARGUMENT;
        if (strstr(par_last_error(w), "8 x 0 x 8")) bad |= par_gemm_select(&empty, 17, w) != PAR_ERR_ARGUMENT;
        bad |= !strstr(par_last_error(w), "17");
    }
    if (!strcmp(mode, "select") || !strcmp(mode, "differ")) bad = select_all(w);
    if (!strcmp(mode, "product")) bad = product() != 20;
    if (!strcmp(mode, "bf16")) bad = select_bf16(w);
    if (strcmp(mode, "select") && strcmp(mode, "differ") && strcmp(mode, "bf16"))
        bad |= report(w); // "none": no products
    const par_result closed = par_close(w);
    return bad ? bad : closed != PAR_OK;
}

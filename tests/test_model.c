// test_model.c - the trainer's models: their gradients against finite differences, with and without dropout
// and biases, GPT-2 and Llama. And which of its ranks are named as slow.
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_tp.h"
#include "par_zero.h"
#include "../median.h"
#include "model.h"
#include "pace.h"

enum { BATCH = 3, TOKENS = 6, VOCABULARY = 11, ROWS = BATCH * TOKENS };
typedef struct test {
    gpt_model m;
    gpt_buffers b;
    par_tp_tokens tokens;
    gpt_dropout drop;
    int32_t x[ROWS], y[ROWS];
    uint32_t map[2 * ROWS];
} test;

static void must(const test *t, par_result r) {
    if (r == PAR_OK) return;
    fprintf(stderr, "test_model: %s\n", par_last_error(par_tp_comm(t->m.tp)));
    exit(1);
}
static double loss_of(test *t) {
    double sum;
    size_t target_count;
    must(t, gpt_forward(&t->m, &t->b, &t->tokens, t->x, &t->drop));
    must(t,
         par_tp_loss_forward(t->m.tp, &t->m.loss, &t->b.logits, t->y, t->b.lse, NULL, &sum, &target_count));
    return sum / ROWS;
}

static int compare(par_comm *world, int llama, int bias, float p, int documents) {
    const size_t offsets[] = {0, 2, 6, 6, 12, 15, 18};
    const gpt_config g = {.n_layer = 2,
                          .n_head = 2,
                          .n_embd = 8,
                          .block_size = TOKENS,
                          .vocab_size = VOCABULARY,
                          .bias = bias,
                          .llama = llama,
                          .epsilon = 0.01f,
                          .n_kv_head = llama ? 1 : 0};
    static test t;
    par_tp_desc d;
    par_tp *tp;
    int bad = 0;
    memset(&t, 0, sizeof t);
    memset(&d, 0, sizeof d);
    d.tp = world, d.seed = 5;
    if (par_tp_open(&d, &tp) || gpt_open(&t.m, &g, tp, 0) || !gpt_buffers_open(&t.m, &t.b, ROWS)) return 1;
    bad += t.m.final_norm.epsilon != g.epsilon;
    for (int l = 0; l < g.n_layer; l++)
        bad += t.m.layers[l].norm1.epsilon != g.epsilon || t.m.layers[l].norm2.epsilon != g.epsilon;
    const size_t n = t.m.count;
    float *flat = (float *)calloc(n, 4), *grad = (float *)calloc(n, 4);
    if (n != gpt_parameter_count(&g))
        return fprintf(stderr, "%zu parameters, but they say %zu\n", n, gpt_parameter_count(&g)), 1;
    for (int i = 1; i < t.m.tensor_count; i++) // each tensor begins with random numbers of its own
        for (int j = 0; j < i; j++) bad += t.m.tensors[i].stream == t.m.tensors[j].stream;
    gpt_set_memory(&t.m, flat, grad);
    t.tokens.batch = BATCH, t.tokens.sequence = TOKENS, t.tokens.first_sequence = 2, t.drop.p = p,
    t.drop.step = 7;
    for (size_t i = 0; i < n; i++)
        flat[i] = 0.5f * par_normal(3, 4, i); // larger than a real start: livelier gradients
    for (int i = 0; i < ROWS; i++)
        t.x[i] = (int)(par_random(1, 1, (uint64_t)i) % 11),
        t.y[i] = (int)(par_random(1, 2, (uint64_t)i) % 11);
    if (documents) must(&t, par_tp_documents_map(tp, &t.tokens, offsets, 6, t.map));
    if (documents) t.tokens.documents = t.map;
    loss_of(&t);
    must(&t, par_tp_loss_backward(tp, &t.m.loss, &t.b.logits, t.y, t.b.lse, 1.0f / ROWS, &t.b.logits));
    must(&t, gpt_backward(&t.m, &t.b, &t.tokens, t.x, &t.drop));
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const float keep = flat[i], h = 1e-2f;
        double l[4];
        for (int k = 0; k < 4; k++) { // fourth-order difference
            flat[i] = keep + h * (float)(k < 2 ? k - 2 : k - 1);
            l[k] = loss_of(&t);
        }
        flat[i] = keep;
        const double want = (l[0] - 8 * l[1] + 8 * l[2] - l[3]) / (12 * (double)h);
        const double error = fabs(want - (double)grad[i]) / (1e-2 + fabs(want));
        worst = fmax(worst, error);
        bad += !(error <= 2e-2); // nor NaN
    }
    printf("%s, bias %d, dropout %g, documents %d: %zu gradients, worst relative error %.2e\n",
           llama ? "llama" : "gpt2", bias, (double)p, documents, n, worst);
    gpt_buffers_close(&t.m, &t.b), gpt_close(&t.m), free(flat), free(grad);
    return bad + (par_tp_close(tp) != PAR_OK);
}

// Each dropout of each step has a random stream of its own: where a few are the same, the last of them.
static int same_sites(void) {
    enum { STEPS = 4, LAYERS = 5, PLACES = 3, SITES = STEPS * LAYERS * PLACES };
    uint64_t sites[SITES];
    int same = 0;
    for (int i = 0; i < SITES; i++) {
        const gpt_dropout drop = {0.1f, (uint64_t)(i / (LAYERS * PLACES))};
        sites[i] = gpt_dropout_stream(&drop, i / PLACES % LAYERS - 1) + (uint64_t)(i % PLACES);
        for (int j = 0; j < i; j++)
            if (sites[i] == sites[j]) same = i;
    }
    if (same) fprintf(stderr, "dropout %d of %d takes another's random stream\n", same, SITES);
    return same;
}

// Are those ranks named that compute for much longer than others of their place, once, and until they do no
// more? Intervals add up.
static int wrong_paces(void) {
    enum { RANKS = 6, INTERVALS = 5 };
    static const struct {
        double own[RANKS];
        int change[RANKS];
    } in[INTERVALS] = {{{1, 1.4, 1, 9, 9, 9}, {0}},
                       {{1, 1, 1.6, 9, 14, 9}, {0, 0, 1, 0, 1, 0}},
                       {{1, 1.1, 1.4, 9, 30, 9}, {0}}, // what is said stays
                       {{2, 2, 2.2, 3, 6, 7}, {0, 0, -1, 0, -1, 0}},
                       {{2, 1, 2, 6, 3, 6}, {0}}}; // two that are alike: none is slow, but one is fast
    pace_table p;
    int wrong = 0;
    memset(&p, 0, sizeof p);
    if (!open_paces(&p, RANKS, 0, 0)) return 1;
    for (int i = 0; i < INTERVALS; i++) {
        for (int r = 0; r < RANKS; r++) p.now[r] = (pace){p.last[r].own + in[i].own[r], r / 3};
        for (int r = 0; r < RANKS; r++) {
            const int change = slow_change(&p, r, times_the_median(&p, r));
            if (change != in[i].change[r])
                wrong = fprintf(stderr, "interval %d, rank %d: %d\n", i, r, change);
        }
        memcpy(p.last, p.now, RANKS * sizeof *p.last);
    }
    p.now[0].place = 7;
    wrong |= times_the_median(&p, 0) > 0; // alone
    return close_paces(&p), wrong;
}

int main(int argc, char **argv) {
    par_comm *world;
    if (argc > 1) // it has no options
        return fprintf(stderr, "%s: compares gradients with finite differences\n", argv[0]),
               strcmp(argv[1], "--help") ? 2 : 0;
    if (par_open(NULL, &world)) return 1;
    const int bad = compare(world, 0, 1, 0, 0) + compare(world, 0, 0, 0, 0) + compare(world, 0, 1, 0.3f, 0) +
                    compare(world, 1, 0, 0, 1) + compare(world, 1, 0, 0.3f, 0);
    return bad || same_sites() || wrong_paces() || par_close(world) != PAR_OK;
}

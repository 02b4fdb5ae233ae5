// test_model.c - the trainer's model: its gradients against finite differences, with and without dropout and
// biases.
#define PAR_IMPLEMENTATION
#include "par.h"
#include "model.h"

static double loss_of(const gpt_config *g, const gpt_weights *w, gpt_buffers *b, const int *x, const int *y,
                      size_t batch, const gpt_dropout *drop) {
    const size_t rows = batch * (size_t)g->block_size;
    gpt_forward(g, w, b, x, batch, (size_t)g->block_size, drop);
    return cross_entropy(b->logits, y, rows, (size_t)g->vocab_size, 1.0f / (float)rows) / (double)rows;
}

static int compare(int bias, double p) {
    const gpt_config g = {2, 2, 8, 6, 11, bias};
    const size_t batch = 3, n = gpt_walk(&g, NULL, NULL, NULL);
    gpt_weights w, d;
    gpt_buffers b;
    gpt_dropout drop = {(float)p, 5, 7, 12};
    float *flat = (float *)calloc(n, 4), *grad = (float *)calloc(n, 4);
    int x[18], y[18], bad = 0;
    if (!gpt_view(&g, &w, flat) || !gpt_view(&g, &d, grad) || !gpt_buffers_open(&g, &b, batch, p > 0))
        return 1;
    for (size_t i = 0; i < n; i++)
        flat[i] = 0.5f * par_normal(3, 4, i); // larger than a real start: livelier gradients
    for (int i = 0; i < 18; i++)
        x[i] = (int)(par_random(1, 1, (uint64_t)i) % 11), y[i] = (int)(par_random(1, 2, (uint64_t)i) % 11);
    loss_of(&g, &w, &b, x, y, batch, &drop);
    gpt_backward(&g, &w, &d, &b, x, batch, 6, &drop, NULL, NULL);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const float keep = flat[i], h = 1e-2f;
        double l[4];
        for (int k = 0; k < 4; k++) { // fourth-order difference
            flat[i] = keep + h * (float)(k < 2 ? k - 2 : k - 1);
            l[k] = loss_of(&g, &w, &b, x, y, batch, &drop);
        }
        flat[i] = keep;
        const double want = (l[0] - 8 * l[1] + 8 * l[2] - l[3]) / (12 * (double)h);
        const double error = fabs(want - (double)grad[i]) / (1e-2 + fabs(want));
        worst = fmax(worst, error);
        bad += error > 2e-2;
    }
    printf("bias %d, dropout %g: %zu gradients, worst relative error %.2e\n", bias, p, n, worst);
    return bad;
}

int main(void) {
    float worst = 0;
    for (float x = -80; x < 80; x += 0.013f) worst = fmaxf(worst, fabsf(fast_exp(x) / expf(x) - 1));
    printf("fast_exp: worst relative error %.2e\n", (double)worst);
    return compare(1, 0) + compare(0, 0) + compare(1, 0.3) + (worst > 3e-7f) != 0;
}

// published_bytes.h - what a layer keeps for its backward, as published.
#ifndef PUBLISHED_BYTES_H
#define PUBLISHED_BYTES_H

// The bytes of 16-bit activations per transformer layer and rank as published for Megatron (Korthikanti et
// al. 2022, table 2), with dropout masks of a byte and, unless recomputation is selective, the attention
// scores. par_tp.h keeps less: neither masks nor scores.
typedef struct published_shape {
    double s, b, h, a;        // tokens of a sequence, sequences, features, heads
    int t, sequence_parallel; // tensor-parallel ranks; sequence parallelism
} published_shape;
static double published_save_bytes(const published_shape *shape, par_tp_recompute recompute) {
    const double s = shape->s, b = shape->b, h = shape->h, t = (double)shape->t;
    // What is kept, in bytes per s b h: inputs of norms and products, and masks, that all ranks have, 10;
    // what products over t ranks keep, 24; scores: softmax 2, its mask 1, after dropout 2, per a s / h.
    const double common = 2 * 2 + 2 + 2 + 1 + 1, split = 2 * 2 + 2 + 2 + 8 + 8, scores = 5 * shape->a * s / h;
    if (recompute == PAR_TP_RECOMPUTE_FULL) return 2 * s * b * h;
    return s * b * h *
           (common / (shape->sequence_parallel ? t : 1) + split / t +
            (recompute == PAR_TP_RECOMPUTE_SELECTIVE ? 0 : scores / t));
}

#endif

// patterns.h - messages of other libraries' algorithms, for bench_coll --simulate --pattern: what is known of
// their times says how far off the simulator is. Included by simulate.h.
#ifndef PATTERNS_H
#define PATTERNS_H

// A rank's messages on a track; peer < 0: none.
static void pattern_message(simulation *s, int track, net_verb verb, int me, int peer, int n, size_t bytes) {
    if (peer < 0 || !bytes) return;
    net_step *a = sim_add(s, track, verb, bytes);
    a->peer = (peer - me + n) % n;
    a->lane = (uint8_t)track;
    s->messages += verb == NET_SEND;
}
static void pattern_join(simulation *s, int track) { sim_add(s, track, NET_JOIN, 0); }

// Ranks 0 and 1 send to ranks n/2 and n/2 + 1.
static void pattern_pair(simulation *s, int me, int n, int k, size_t bytes) {
    (void)k;
    if (me < 2) pattern_message(s, 0, NET_SEND, me, n / 2 + me, n, bytes);
    if (me == n / 2 || me == n / 2 + 1) pattern_message(s, 0, NET_RECV, me, me - n / 2, n, bytes);
    pattern_join(s, 0);
}
// broadcast by a binomial tree from rank 0 (MPICH, Open MPI)
static void pattern_binomial(simulation *s, int me, int n, int k, size_t bytes) {
    int low = me & -me; // the bit that the message came by
    (void)k;
    if (!me)
        for (low = 1; low < n; low *= 2) {
        }
    if (me) pattern_message(s, 0, NET_RECV, me, me - low, n, bytes);
    pattern_join(s, 0);
    for (int d = low / 2; d; d /= 2)
        if (me + d < n) pattern_message(s, 0, NET_SEND, me, me + d, n, bytes);
    pattern_join(s, 0);
}
// all_reduce around a ring of all ranks: reduce_scatter, then all_gather (NCCL, baidu-allreduce)
static void pattern_ring(simulation *s, int me, int n, int k, size_t bytes) {
    (void)k;
    for (int i = 0; i < 2 * (n - 1); i++) {
        pattern_message(s, 0, NET_SEND, me, (me + 1) % n, n, (bytes + (size_t)n - 1) / (size_t)n);
        pattern_message(s, 0, NET_RECV, me, (me + n - 1) % n, n, (bytes + (size_t)n - 1) / (size_t)n);
        pattern_join(s, 0);
    }
}
// all_reduce of short arrays by recursive doubling (MPICH, Open MPI); n: a power of two, or the ranks beyond
// have no part
static void pattern_doubling(simulation *s, int me, int n, int k, size_t bytes) {
    (void)k;
    for (int d = 1; 2 * d <= n; d *= 2) {
        if ((me ^ d) >= n) continue;
        pattern_message(s, 0, NET_SEND, me, me ^ d, n, bytes);
        pattern_message(s, 0, NET_RECV, me, me ^ d, n, bytes);
        pattern_join(s, 0);
    }
}

// The parent of node x in a binary tree in order of the nodes, 0 at its top; -1: none.
static int pattern_parent(int x, int nodes) {
    const int low = x & -x, up = (x ^ low) | (low * 2);
    return !x ? -1 : up < nodes ? up : x ^ low;
}
// all_reduce by two binary trees of nodes, each of which has half of the data, with a chain within each node
// (NCCL's Tree): the second tree is the first one, mirrored, or moved by one where nodes are odd in number.
static void pattern_double_tree(simulation *s, int me, int n, int k, size_t bytes) {
    const int nodes = n / k, node = me / k, first = node * k, last = first + k - 1;
    for (int t = 0; t < 2; t++) {
        const size_t half = (bytes + (size_t)t) / 2;
        const int odd = nodes % 2, x = !t ? node : odd ? (node + 1) % nodes : nodes - 1 - node;
        int peers[4], count = 0, parents = 0; // the parent, then the children
        if (me == first && x) peers[count++] = pattern_parent(x, nodes), parents = 1;
        for (int d = 1; me == first && d < nodes; d *= 2) // a child is at distance 2^i
            for (int side = -1; side <= 1; side += 2) {
                const int y = x + side * d;
                if (y > 0 && y < nodes && pattern_parent(y, nodes) == x && count < 4) peers[count++] = y;
            }
        for (int i = 0; i < count; i++)
            peers[i] = (!t ? peers[i] : odd ? (peers[i] + nodes - 1) % nodes : nodes - 1 - peers[i]) * k;
        for (int down = 0; down < 2; down++) {
            const net_verb up_verb = down ? NET_RECV : NET_SEND, down_verb = down ? NET_SEND : NET_RECV;
            for (int step = 0; step < 2; step++) { // up: from the children, then to the parent; down: reverse
                if (step == down) pattern_message(s, t, down_verb, me, me < last ? me + 1 : -1, n, half);
                for (int i = parents; step == down && i < count; i++)
                    pattern_message(s, t, down_verb, me, peers[i], n, half);
                if (step != down)
                    pattern_message(s, t, up_verb, me,
                                    me > first ? me - 1
                                    : parents  ? peers[0]
                                               : -1,
                                    n, half);
                pattern_join(s, t);
            }
        }
    }
}

typedef struct pattern_row {
    const char *name;
    void (*emit)(simulation *s, int me, int n, int k, size_t bytes); // k: ranks of a node
} pattern_row;
static const pattern_row patterns[] = {
    {"pair", pattern_pair},         {"binomial", pattern_binomial},       {"ring", pattern_ring},
    {"doubling", pattern_doubling}, {"double_tree", pattern_double_tree},
};
enum { PATTERNS = (int)(sizeof patterns / sizeof patterns[0]) };

#endif

// The way of a call: every function of par.h that rank 0 enters in it, in order. The other rank has begun the
// call before, and looks for nothing meanwhile, so that the way of a small call is the same on any machine.
// Built by -finstrument-functions -no-pie; tests/walk.awk counts what this prints.
#define PAR_IMPLEMENTATION
#include "par.h"
#include <stdio.h>

#define UNCOUNTED __attribute__((no_instrument_function))
enum { MOST = 1 << 16, WORDS = 1 << 16 };
static void *entered[MOST];
static size_t entered_count;
static int counting;
#ifdef __cplusplus
extern "C" {
#endif
UNCOUNTED void __cyg_profile_func_enter(void *function, void *caller);
UNCOUNTED void __cyg_profile_func_exit(void *function, void *caller);
void __cyg_profile_func_enter(void *function, void *caller) {
    (void)caller;
    if (counting && entered_count < MOST) entered[entered_count++] = function;
}
void __cyg_profile_func_exit(void *function, void *caller) { (void)function, (void)caller; }
#ifdef __cplusplus
}
#endif

typedef struct way {
    const char *name;
    size_t count;  // of f32
    int exchanges; // messages instead of a sum
    int waits;     // the other rank goes on at once: it is needed for the call's end
} way;
static const way ways[] = {{"all_reduce of 4 KiB", 1024, 0, 0},
                           {"sendrecv of 4 KiB", 1024, 1, 0},
                           {"all_reduce of 256 KiB", 65536, 0, 1}};
static float sent[WORDS], received[WORDS];

UNCOUNTED static par_result call(par_comm *w, const way *x, int peer) {
    return x->exchanges ? par_sendrecv(sent, x->count, peer, received, x->count, peer, PAR_F32, w)
                        : par_all_reduce(sent, received, x->count, PAR_F32, PAR_SUM, w);
}
UNCOUNTED static par_result begin(par_comm *w, const way *x, par_request *q) {
    return x->exchanges ? par_send_begin(sent, x->count, PAR_F32, 0, w, q)
                        : par_all_reduce_begin(sent, received, x->count, PAR_F32, PAR_SUM, w, q);
}
UNCOUNTED static void await_turn(const int *turn, int value) {
    while (__atomic_load_n(turn, __ATOMIC_SEQ_CST) != value) sched_yield();
}
UNCOUNTED static par_result follow(par_comm *w, const way *x, int *turn) {
    const int peer = 1 - par_rank(w);
    par_request q;
    par_result r = PAR_OK;
    for (int i = 0; i < 4 && !r; i++) r = call(w, x, peer);
    if (r) return r;
    if (peer == 1) {
        await_turn(turn, 1);
        counting = 1;
        r = call(w, x, peer);
        counting = 0;
        __atomic_store_n(turn, 2, __ATOMIC_SEQ_CST);
        printf("way %s\n", x->name);
        for (size_t i = 0; i < entered_count; i++) printf("%p\n", entered[i]);
        entered_count = 0;
    } else {
        r = begin(w, x, &q);
        __atomic_store_n(turn, 1, __ATOMIC_SEQ_CST);
        if (!x->waits) await_turn(turn, 2);
        if (!r && x->exchanges) r = par_recv(received, x->count, PAR_F32, 0, w);
        if (!r) r = par_wait(&q);
    }
    if (!r) r = par_barrier(w);
    __atomic_store_n(turn, 0, __ATOMIC_SEQ_CST);
    return r ? r : par_barrier(w);
}

int main(void) {
    par_comm *w;
    if (par_open(NULL, &w)) return 1;
    int *turn = (int *)par_alloc(w, sizeof *turn);
    par_result r = turn && par_size(w) == 2 ? par_barrier(w) : PAR_ERR_ARGUMENT;
    turn = turn ? (int *)par_peer(w, turn, 0) : turn; // rank 0's, for both
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !r; i++) r = follow(w, &ways[i], turn);
    return par_close(w) != PAR_OK || r;
}

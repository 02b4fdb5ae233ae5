#define PAR_IMPLEMENTATION
#include "par.h"

int main(void) {
    par_comm *world;
    if (par_open(NULL, &world) != PAR_OK) return 1;           // from here on PAR_RANKS ranks run
    float x[3] = {1, (float)par_rank(world), 0.5f};
    if (par_all_reduce(x, x, 3, PAR_F32, PAR_SUM, world) != PAR_OK) return 1;
    if (par_rank(world) == 0) printf("%d ranks, sum of ranks %g\n", par_size(world), x[1]);
    // with PAR_RANKS=4 it prints: 4 ranks, sum of ranks 6
    return par_close(world) != PAR_OK;
}

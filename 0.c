#define PAR_IMPLEMENTATION
#include "par.h"

int main(void) {
    par_comm *world;
    if (par_open(NULL, &world) != PAR_OK) return 1; // the text of the error is on stderr already
    double sums[2] = {1, (double)par_rank(world)};
    if (par_all_reduce(sums, sums, 2, PAR_F64, PAR_SUM, world) != PAR_OK) {
        fprintf(stderr, "rank %d: %s\n", par_rank(world), par_last_error(world));
        return 1; // the other ranks notice, and end with an error that names this rank
    }
    if (par_rank(world) == 0) printf("%g ranks, sum of their numbers %g\n", sums[0], sums[1]);
    // with PAR_RANKS=4 it prints: 4 ranks, sum of their numbers 6
    return par_close(world) != PAR_OK;
}

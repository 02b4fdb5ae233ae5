// 01_hello.c - the shortest useful program: every rank contributes numbers, and every rank gets the sums.
//
//     cc -O2 -I. examples/01_hello.c -o hello -pthread -lm && PAR_RANKS=4 ./hello
#define PAR_IMPLEMENTATION
#include "par.h"

int main(void) {
    par_comm *world;
    if (par_open(NULL, &world) != PAR_OK) return 1; // from here on PAR_RANKS ranks run

    float mine[3] = {1, (float)par_rank(world), 0.5f}, sum[3];
    if (par_all_reduce(mine, sum, 3, PAR_F32, PAR_SUM, world) != PAR_OK) {
        fprintf(stderr, "%s\n", par_last_error(world));
        return 1;
    }
    if (par_rank(world) == 0)
        printf("%d ranks; their numbers add up to %g; %g halves\n", par_size(world), sum[1], sum[2] * 2);
    const int lost = fflush(stdout); // the disk may be full
    if (lost) perror("hello");
    return par_close(world) != PAR_OK || lost;
}

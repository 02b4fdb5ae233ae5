// 01_hello.c - the shortest useful program: every rank gives three numbers, and every rank gets their sums.
//
//     $ cc -O2 -I. examples/01_hello.c -o hello -pthread -lm
//     $ PAR_RANKS=4 ./hello
//     4 ranks; their numbers add up to 6; 4 halves
//
// PAR_RANKS says how many ranks to start. Each is a process that runs this same program from par_open on. Try
// 1, or 12 (they may outnumber your processors), or `mpiexec` and `srun`: the source stays as it is.
#define PAR_IMPLEMENTATION // in one file of a program
#include "par.h"

int main(void) {
    par_comm *world;
    if (par_open(NULL, &world) != PAR_OK) return 1; // from here on PAR_RANKS ranks run

    float mine[3] = {1, (float)par_rank(world), 0.5f}, sum[3];
    if (par_all_reduce(mine, sum, 3, PAR_F32, PAR_SUM, world) != PAR_OK) {
        fprintf(stderr, "%s\n", par_last_error(world)); // says which rank did what, and where
        return 1;
    }
    if (par_rank(world) == 0) // one rank prints for all
        printf("%d ranks; their numbers add up to %g; %g halves\n", par_size(world), sum[1], sum[2] * 2);
    const int lost = fflush(stdout); // the disk may be full
    if (lost) perror("hello");
    return par_close(world) != PAR_OK || lost;
}

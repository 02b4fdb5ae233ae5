// 10_fault.c - two faults on purpose: ranks that make different calls, and a rank that passes another count.
//
//     $ cc -O2 -I. examples/10_fault.c -o fault -pthread -lm
//     $ PAR_RANKS=2 ./fault | fold -s -w 100
//     PAR_ERR_MISMATCH: rank 1 called par_all_reduce(count=8, f32, op=sum) at examples/10_fault.c:41, but
//     rank 0 called par_broadcast(count=8, f32, op=sum, root=0) at examples/10_fault.c:39 (call 1 on comm
//     world): all ranks must make the same calls in the same order
//     2 of 2 ranks got this error
//     PAR_ERR_MISMATCH: rank 1 called par_all_reduce(count=5, f32, op=sum) at examples/10_fault.c:45, but
//     rank 0 called par_all_reduce(count=8, f32, op=sum) at examples/10_fault.c:45 (call 3 on comm
//     world): all ranks must make the same calls in the same order
//     2 of 2 ranks got this error
//     then, as if nothing had happened: the sum is 2
//
// Both mistakes are common: an `if` around a call that only some ranks pass, and a last batch that is shorter
// on one rank. Elsewhere the first hangs for ever, and the second gives wrong numbers. Here every call is
// compared with those of the other ranks before any data moves. All ranks get an error, its text names both
// places in the program, and the comm works on.
#define PAR_IMPLEMENTATION
#include "par.h"

static par_comm *world;

static void report(par_result r) { // rank 0 prints the text, which all ranks have, and how many have it
    const int got_error = r == PAR_ERR_MISMATCH;
    int ranks;
    if (par_rank(world) == 0) printf("%s: %s\n", par_result_name(r), par_last_error(world));
    if (par_all_reduce(&got_error, &ranks, 1, PAR_I32, PAR_SUM, world)) exit(1);
    if (par_rank(world) == 0) printf("%d of %d ranks got this error\n", ranks, par_size(world));
}

int main(void) {
    if (par_open(NULL, &world)) return 1;
    if (par_size(world) < 2) return fprintf(stderr, "start it on PAR_RANKS=2 or more\n"), 2;
    float x[8] = {0}, y[8];
    par_result r;

    if (par_rank(world) == 0) // only rank 0 has something to tell
        r = par_broadcast(x, x, 8, PAR_F32, 0, world);
    else
        r = par_all_reduce(x, y, 8, PAR_F32, PAR_SUM, world);
    report(r);

    const size_t count = par_rank(world) == 0 ? 8 : 5; // the last batch is shorter
    r = par_all_reduce(x, y, count, PAR_F32, PAR_SUM, world);
    report(r);

    x[0] = 1;
    if (par_all_reduce(x, y, 8, PAR_F32, PAR_SUM, world)) return 1; // the same on all ranks: it works
    if (par_rank(world) == 0) printf("then, as if nothing had happened: the sum is %g\n", (double)y[0]);
    return par_close(world) != PAR_OK || fflush(stdout);
}

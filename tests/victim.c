// victim.c - what tests/hostile.sh attacks: opens its world, says so, waits until the file $GO is there, and
// computes.
#define PAR_IMPLEMENTATION
#include "par.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
enum { CAPACITY = 100000 };
static float x[CAPACITY], y[CAPACITY];
int main(void) {
    par_comm *w;
    if (par_open(NULL, &w)) return 1;
    const int n = par_size(w), r = par_rank(w);
    fprintf(stderr, "open\n");
    for (const char *go = getenv("GO"); go && access(go, F_OK);) usleep(5000);
    const size_t counts[3] = {1, 1000, CAPACITY};
    for (int round = 0; round < 12; round++) {
        const size_t count = counts[round % 3];
        for (size_t i = 0; i < count; i++) x[i] = (float)(r + 1 + round), y[i] = 0;
        if (par_all_reduce(x, y, count, PAR_F32, PAR_SUM, w))
            return fprintf(stderr, "%s\n", par_last_error(w)), 1;
        for (size_t i = 0; i < count; i++)
            if (y[i] != (float)(n * (n + 1) / 2 + n * round)) return fprintf(stderr, "wrong\n"), 3;
    }
    if (r == 0) puts("right");
    return par_close(w) != PAR_OK || fflush(stdout);
}

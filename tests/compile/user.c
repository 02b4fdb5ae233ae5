/* Uses par.h without its implementation, which another file has. */
#include "par.h"
#include "par.h"

int main(void) {
    par_comm *world;
    int one = 1;
    if (par_open(NULL, &world) != PAR_OK) return 1;
    if (par_all_reduce(&one, &one, 1, PAR_I32, PAR_SUM, world) != PAR_OK) return 1;
    if (one != par_size(world)) return 2;
    return par_close(world) != PAR_OK;
}

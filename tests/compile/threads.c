/* Ranks as threads add numbers of every dtype, on machines where nothing else is run. */
#define PAR_IMPLEMENTATION
#include "par.h"

enum { COUNT = 1000 };
static int sums(par_comm *comm, void *user) {
    double numbers[COUNT], wide[COUNT];
    (void)user;
    for (int d = 0; d < PAR_DTYPE_COUNT; d++) {
        const par_dtype dtype = (par_dtype)d;
        for (int i = 0; i < COUNT; i++) numbers[i] = i % 3;
        if (par_cast(wide, dtype, numbers, PAR_F64, COUNT)) return 1;
        if (par_all_reduce(wide, wide, COUNT, dtype, PAR_SUM, comm)) return puts(par_last_error(comm)), 1;
        if (par_cast(numbers, PAR_F64, wide, dtype, COUNT)) return 1;
        for (int i = 0; i < COUNT; i++)
            if (numbers[i] != i % 3 * par_size(comm))
                return printf("%s: %g\n", par_dtype_name(dtype), numbers[i]), 1;
    }
    return 0;
}
int main(void) {
    par_desc desc = {0};
    desc.rank_count = 3;
    return par_run_threads(&desc, sums, NULL) != PAR_OK;
}

// kit.c - par.h's implementation for test programs; see kit.h.
#define PAR_H_IMPLEMENTATION
#include "kit.h"
#include <stdlib.h>
int test_processors(void) { return par__available_cpus(); }
unsigned *test_spin_limit(par_comm *world) { return &world->world->spin_limit; }
double *test_opened_at(par_comm *world) { return &world->world->opened_at; }
#if defined(TEST_ALLOCATES)
__attribute__((weak)) void *test_malloc(size_t bytes) { return malloc(bytes); }
__attribute__((weak)) void *test_realloc(void *old, size_t bytes) { return realloc(old, bytes); }
#endif

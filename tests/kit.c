// kit.c - the implementation of par.h and par_math.h for test programs; see kit.h.
#define PAR_H_IMPLEMENTATION
#define PAR_MATH_IMPLEMENTATION
#include "kit.h"
#include <stdlib.h>
int test_processors(void) { return par__available_cpus(); }
unsigned *test_spin_limit(par_comm *world) { return &world->world->spin_limit; }
double *test_opened_at(par_comm *world) { return &world->world->opened_at; }
int test_site_max(void) { return PAR__SITE_MAX; }
int test_memory_file(void) { return par__memfd_create("test"); }
const par__gemm_tile *test_gemm_tile(int isa) {
#if PAR__X86
    if (isa) return isa == 1 ? &par__tiles_avx2 : &par__tiles_avx512;
#endif
    return isa ? NULL : &par__tiles_base;
}
const par__operation *test_idle_operation(const par_comm *comm, int i) {
    const par__operation *op = comm->world->idle_operations;
    while (op && i--) op = op->next;
    return op;
}
int test_kind_of(const par__operation *operation) {
    return operation->ticket ? (int)operation->call.kind : -1;
}
int test_is_active(const par_comm *comm) { return comm->world->active != NULL; }
#if defined(TEST_ALLOCATES)
static __thread long allocations; // of this thread, by par.h
__attribute__((weak)) void *test_malloc(size_t bytes) {
    allocations++;
    return malloc(bytes);
}
__attribute__((weak)) void *test_realloc(void *old, size_t bytes) {
    allocations++;
    return realloc(old, bytes);
}
#endif

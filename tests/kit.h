// kit.h - par.h and par_math.h for test programs, with what they need of their insides. Those that test the
// insides include tests/kit.c. Most link it: the Makefile takes it from the object of test_par.c, once for
// each sanitizer and MPI.
#ifndef TEST_KIT_H
#define TEST_KIT_H
#include <stddef.h>
#if !defined(PAR_MALLOC) // a program that links kit.c may have functions of these names: the kit takes them
#ifdef __cplusplus
extern "C" {
#endif
void *test_malloc(size_t bytes);
void *test_realloc(void *old, size_t bytes);
#ifdef __cplusplus
}
#endif
#define PAR_MALLOC(n)     test_malloc(n)
#define PAR_REALLOC(p, n) test_realloc(p, n)
#define PAR_FREE(p)       free(p)
#define TEST_ALLOCATES
#endif
#include "par_math.h"
#ifdef __cplusplus
extern "C" {
#endif
int test_processors(void);                     // that this process may use
unsigned *test_spin_limit(par_comm *world);    // how often a wait looks before it yields
double *test_opened_at(par_comm *world);       // the clock when the world was opened
int test_site_max(void);                       // call sites that have names
int test_memory_file(void);                    // a file's descriptor
const par__gemm_tile *test_gemm_tile(int isa); // 0: base, 1: avx2, 2: avx512; NULL: not here
// Number i of the operations that were idle; NULL: there are fewer. The kind of the call that it is in now;
// -1: of none.
const struct par__operation *test_idle_operation(const par_comm *comm, int i);
int test_kind_of(const struct par__operation *operation);
int test_is_active(const par_comm *comm); // operations are in flight
#ifdef __cplusplus
}
#endif
#endif

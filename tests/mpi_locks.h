// par_mpi.h as the tests preload it: at each call of par.h it looks whether this thread has its turn, where
// threads may call at a time, and at each error handler and each call of MPI that waits, whether it has none.
#define PAR_MPI
#define _GNU_SOURCE
#include "par.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static __thread int has_turn;
static int threads_may_call(void) {
    int level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE;
}
static void check_turn(int wanted, const char *function) {
    if (has_turn == wanted || !threads_may_call()) return;
    printf("CHECK: %s is called %s a turn\n", function, has_turn ? "in" : "without");
    abort();
}
#define PAR__PMPI_NOTE_TURN(begins) (has_turn = (begins))
#define IN_TURN(function)           (check_turn(1, #function), function)
#define WITHOUT_TURN(function)      (check_turn(0, #function), function)
#define PMPI_Comm_call_errhandler   WITHOUT_TURN(PMPI_Comm_call_errhandler)
#define PMPI_Allreduce(...)         (check_turn(0, "PMPI_Allreduce"), PMPI_Allreduce(__VA_ARGS__))
#define PMPI_Barrier(...)           (check_turn(0, "PMPI_Barrier"), PMPI_Barrier(__VA_ARGS__))
#undef par_begin
#define par_begin         IN_TURN(par_begin)
#define par_test          IN_TURN(par_test)
#define par_wait          IN_TURN(par_wait)
#define par_last_error    IN_TURN(par_last_error)
#define par__run_in_turn  IN_TURN(par__run_in_turn)
#define par__use_progress IN_TURN(par__use_progress)
#include "par_mpi.h"

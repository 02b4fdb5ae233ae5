// par_mpi.h as the tests preload it: at each call of par.h it looks whether this thread holds the lock of the
// communicator, where threads may call at a time, and at each error handler, whether it holds none.
#define PAR_MPI
#define _GNU_SOURCE
#include "par.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static __thread const void *locks_held[4];
static __thread int lock_count;
static int lock_and_note(pthread_mutex_t *lock) {
    const int error = pthread_mutex_lock(lock);
    locks_held[lock_count++] = lock;
    return error;
}
static int note_and_unlock(pthread_mutex_t *lock) { // the last one locked comes first
    if (!lock_count || locks_held[--lock_count] != lock) abort();
    return pthread_mutex_unlock(lock);
}
static void check_locks(int right, const char *function) {
    if (right) return;
    printf("CHECK: %s is called with %d locks\n", function, lock_count);
    abort();
}
static int holds(const void *lock) { // the first, which is locked before others
    int level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    return level < MPI_THREAD_MULTIPLE || (lock_count && locks_held[0] == lock);
}
#define pthread_mutex_lock        lock_and_note
#define pthread_mutex_unlock      note_and_unlock
#define WITH_LOCK(function)       (check_locks(holds(&s->lock), #function), function)
#define PMPI_Comm_call_errhandler (check_locks(!lock_count, "an error handler"), PMPI_Comm_call_errhandler)
#undef par_begin
#define par_begin          WITH_LOCK(par_begin)
#define par_test           WITH_LOCK(par_test)
#define par_wait           WITH_LOCK(par_wait)
#define par_last_error     WITH_LOCK(par_last_error)
#define par__want_progress WITH_LOCK(par__want_progress)
#include "par_mpi.h"

// 04_mpi_adopt.c - an MPI program adopts the kit: it keeps its main, its communicator and its messages, and
// gives the kit the calls that it chooses. What was added is marked with +.
//
//     $ mpicc -DPAR_MPI -O2 -I. examples/04_mpi_adopt.c -o adopt -pthread -lm
//     $ mpiexec -n 2 ./adopt
//     64 x 64 points, 2 ranks, 200 sweeps: change 2.670971e+00; 0 sums differ
//
// The program solves the heat equation on a square that is cut into rows. MPI exchanges the halos, as before.
// The sum that tells how far it has come is computed twice, by MPI_Allreduce and by par_all_reduce. The
// kit adds in rank order. On one node it adds in shared memory; between nodes your MPI carries its messages.
#include <mpi.h>
#define PAR_IMPLEMENTATION // +
#include "par.h"           // +

#include <math.h>
#include <stdlib.h>

// One sweep over the inner points of rows 1..rows; returns the squared change.
static double sweep(double *next, const double *now, int rows, int n, int top, int bottom) {
    double change = 0;
    for (int i = 1 + top; i <= rows - bottom; i++)
        for (int j = 1; j < n - 1; j++) {
            const double *p = now + (size_t)i * (size_t)n + j;
            const double value = 0.25 * (p[-1] + p[1] + p[-n] + p[n]);
            change += (value - *p) * (value - *p);
            next[(size_t)i * (size_t)n + (size_t)j] = value;
        }
    return change;
}

static void exchange_halos(double *u, int rows, int n, int rank, int ranks) {
    const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    const MPI_Comm all = MPI_COMM_WORLD;
    double *last = u + (size_t)rows * (size_t)n;
    MPI_Sendrecv(u + n, n, MPI_DOUBLE, up, 0, last + n, n, MPI_DOUBLE, down, 0, all, MPI_STATUS_IGNORE);
    MPI_Sendrecv(last, n, MPI_DOUBLE, down, 1, u, n, MPI_DOUBLE, up, 1, all, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int n = 64, sweeps = 200;

    par_comm *comm;                                                                        // +
    if (par_open_mpi(NULL, MPI_COMM_WORLD, &comm) != PAR_OK) MPI_Abort(MPI_COMM_WORLD, 1); // + said why

    const int rows = n / ranks + (rank < n % ranks); // of this rank; row 0 and the one behind are halos
    double *u = (double *)calloc((size_t)(rows + 2) * (size_t)n, sizeof *u);
    double *next = (double *)calloc((size_t)(rows + 2) * (size_t)n, sizeof *next), by_mpi, by_par = 0;
    if (!u || !next) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int j = 0; j < n && rank == 0; j++) u[n + j] = next[n + j] = 100; // the hot edge
    int differ = 0;
    for (int s = 0; s < sweeps; s++) {
        exchange_halos(u, rows, n, rank, ranks);
        const double change = sweep(next, u, rows, n, rank == 0, rank == ranks - 1);
        MPI_Allreduce(&change, &by_mpi, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (par_all_reduce(&change, &by_par, 1, PAR_F64, PAR_SUM, comm) != PAR_OK) { // +
            fprintf(stderr, "rank %d: %s\n", rank, par_last_error(comm));            // +
            MPI_Abort(MPI_COMM_WORLD, 1);                                            // +
        }                                                                            // +
        differ += !(fabs(by_mpi - by_par) <= 1e-12 * fabs(by_mpi)); // MPI may add in another order
        double *swap = u;
        u = next;
        next = swap;
    }
    if (rank == 0)
        printf("%d x %d points, %d ranks, %d sweeps: change %.6e; %d sums differ\n", n, n, ranks, sweeps,
               sqrt(by_par), differ);
    free(u);
    free(next);
    const int failed = par_close(comm) != PAR_OK || differ || fflush(stdout); // + before MPI_Finalize
    MPI_Finalize();
    return failed;
}

// 02_mpi_adopt.c - an MPI program that opens the kit on its own communicator: a Jacobi solver of the heat
// equation on a square, split by rows. MPI still exchanges the halos. Both MPI_Allreduce and par_all_reduce
// sum the residual, and the program compares their values and their times.
//
//     mpicc -DPAR_MPI -O2 -I. examples/02_mpi_adopt.c -o adopt -pthread -lm
//     mpiexec -n 4 ./adopt
#include <mpi.h>
#define PAR_IMPLEMENTATION
#include "par.h"

#include <math.h>
#include <stdlib.h>

static int own_rows(int n, int ranks, int rank) { return n / ranks + (rank < n % ranks); }

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

static void exchange_halos(double *u, int rows, int n, int rank, int ranks, MPI_Comm mpi) {
    const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    double *last = u + (size_t)rows * (size_t)n;
    MPI_Sendrecv(u + n, n, MPI_DOUBLE, up, 0, last + n, n, MPI_DOUBLE, down, 0, mpi, MPI_STATUS_IGNORE);
    MPI_Sendrecv(last, n, MPI_DOUBLE, down, 1, u, n, MPI_DOUBLE, up, 1, mpi, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int n = argc > 1 ? atoi(argv[1]) : 256, sweeps = argc > 2 ? atoi(argv[2]) : 2000;
    if (n < 3 * ranks || sweeps < 1) {
        if (rank == 0) fprintf(stderr, "usage: %s [side, at least 3 x ranks] [sweeps]\n", argv[0]);
        return MPI_Finalize(), 2;
    }

    par_comm *comm; // with the next line the program can use the kit
    if (par_open_mpi(NULL, MPI_COMM_WORLD, &comm) != PAR_OK) MPI_Abort(MPI_COMM_WORLD, 1);

    const int rows = own_rows(n, ranks, rank);
    double *u = (double *)calloc((size_t)(rows + 2) * (size_t)n, sizeof *u), *next, seconds[2] = {0, 0},
           residual = 0;
    next = (double *)calloc((size_t)(rows + 2) * (size_t)n, sizeof *next);
    if (!u || !next) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int j = 0; j < n && rank == 0; j++) u[n + j] = next[n + j] = 100; // the hot edge
    int differences = 0;
    for (int s = 0; s < sweeps; s++) {
        exchange_halos(u, rows, n, rank, ranks, MPI_COMM_WORLD);
        const double change = sweep(next, u, rows, n, rank == 0, rank == ranks - 1);
        double by_mpi, by_par, t0, t1;
        MPI_Barrier(MPI_COMM_WORLD);
        t0 = MPI_Wtime();
        MPI_Allreduce(&change, &by_mpi, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        seconds[0] += MPI_Wtime() - t0;
        MPI_Barrier(MPI_COMM_WORLD);
        t1 = MPI_Wtime();
        if (par_all_reduce(&change, &by_par, 1, PAR_F64, PAR_SUM, comm) != PAR_OK) {
            fprintf(stderr, "rank %d: %s\n", rank, par_last_error(comm));
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        seconds[1] += MPI_Wtime() - t1;
        differences += !(fabs(by_mpi - by_par) <= 1e-12 * fabs(by_mpi));
        residual = by_par;
        double *swap = u;
        u = next;
        next = swap;
    }
    if (rank == 0) {
        printf("%d x %d, %d ranks, %d sweeps: residual %.6e\n", n, n, ranks, sweeps, sqrt(residual));
        printf(
            "8-byte sum: MPI_Allreduce %.2f us, par_all_reduce %.2f us, %.1f times as fast; %d sums differ\n",
            1e6 * seconds[0] / sweeps, 1e6 * seconds[1] / sweeps, seconds[0] / seconds[1], differences);
    }
    free(u);
    free(next);
    const int lost = fflush(stdout); // the disk may be full
    if (lost) perror("adopt");
    const int failed = par_close(comm) != PAR_OK || differences || lost;
    MPI_Finalize();
    return failed;
}

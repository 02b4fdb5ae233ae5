// The blocking collectives of an MPI program, timed: run it as it is and with par_mpi.h preloaded.
// bench/mpi_programs.sh does both. With a number N: what N communicators of all ranks take.
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *send, *recv;
static int ranks;

static void barrier(int n) { (void)n, MPI_Barrier(MPI_COMM_WORLD); }
static void all_reduce(int n) { MPI_Allreduce(send, recv, n / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void reduce(int n) { MPI_Reduce(send, recv, n / 8, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD); }
static void broadcast(int n) { MPI_Bcast(send, n, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void all_gather(int n) {
    MPI_Allgather(send, n / ranks, MPI_BYTE, recv, n / ranks, MPI_BYTE, MPI_COMM_WORLD);
}
static void all_to_all(int n) {
    MPI_Alltoall(send, n / ranks, MPI_BYTE, recv, n / ranks, MPI_BYTE, MPI_COMM_WORLD);
}
static void minimum(int n) { MPI_Allreduce(send, recv, n / 16, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD); }

static long status(const char *name) { // a number of /proc/self/status
    char line[256];
    long value = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name))) value = atol(line + strlen(name) + 1);
    if (f) fclose(f);
    return value;
}
static int descriptors(void) {
    int n = -3; // this directory's, . and ..
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}
static int communicators(int n) {
    enum { N = 5000 };
    MPI_Comm *c = malloc((size_t)n * sizeof *c);
    const long private_kib = status("RssAnon"), shared_kib = status("RssShmem");
    int rank;
    if (!c) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < n; i++) {
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &c[i]);
        MPI_Allreduce(send, recv, 1, MPI_DOUBLE, MPI_SUM, c[i]);
        MPI_Iallreduce(send, recv, N, MPI_DOUBLE, MPI_SUM, c[i], &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!rank)
        printf(
            "%d communicators of %d ranks: %ld threads, %d descriptors, %ld MiB of address space; each %ld "
            "KiB private, %ld KiB shared\n",
            n, ranks, status("Threads"), descriptors(), status("VmSize") / 1024,
            (status("RssAnon") - private_kib) / n, (status("RssShmem") - shared_kib) / n);
    for (int i = 0; i < n; i++) MPI_Comm_free(&c[i]);
    return MPI_Finalize();
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(int bytes);
    } rows[] = {{"MPI_Barrier", barrier},           {"MPI_Allreduce", all_reduce},
                {"MPI_Allreduce(MINLOC)", minimum}, {"MPI_Reduce", reduce},
                {"MPI_Bcast", broadcast},           {"MPI_Allgather", all_gather},
                {"MPI_Alltoall", all_to_all}};
    static const int sizes[] = {16, 4096, 65536, 1048576};
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    send = calloc(1048576, 1);
    recv = calloc(1048576, 1);
    if (!send || !recv) MPI_Abort(MPI_COMM_WORLD, 1);
    if (argc > 1 && atoi(argv[1]) > 0) return communicators(atoi(argv[1]));
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int s = 0; s < (r ? 4 : 1); s++) {
            const int runs = sizes[s] > 1000000 ? 40 : sizes[s] > 10000 ? 200 : 1000;
            double took = 0, most;
            for (int i = -runs / 4; i < runs; i++) { // the first quarter is not timed
                if (i == 0) took = -MPI_Wtime();
                rows[r].run(sizes[s]);
            }
            took += MPI_Wtime();
            MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            if (!rank) printf("%s %d %.3f\n", rows[r].name, r ? sizes[s] : 0, most / runs * 1e6);
        }
    return MPI_Finalize();
}

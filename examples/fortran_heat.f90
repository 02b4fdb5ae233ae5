! fortran_heat.f90 - an MPI program of Fortran that opens the kit on its own communicator: the heat equation on a
! square, split by columns. The kit exchanges the edges and sums the change of each sweep; MPI sums it, too, and
! the program compares both.
!
!     mpicc -DPAR_MPI -DPAR_IMPLEMENTATION -O2 -x c -c par.h -o kit.o
!     mpifort -O2 -cpp -ffree-line-length-none -Ibindings bindings/par.f90 bindings/par_mpi.f90 \
!         examples/fortran_heat.f90 kit.o -pthread -lm -o heat
!     mpiexec -n 4 ./heat
#include "par_site.h"
program fortran_heat
    use mpi_f08
    use par
    use par_mpi
    implicit none
    integer, parameter :: n = 64, sweeps = 200
    type(par_comm) :: comm
    type(par_request) :: requests(5)
    double precision, pointer, asynchronous :: u(:, :), next(:, :), swap(:, :)
    double precision, asynchronous :: change, total
    double precision :: by_mpi
    integer :: rank, ranks, columns, sweep, i, j, edges, differ

    call MPI_Init()
    call par_open_mpi(MPI_COMM_WORLD, comm) ! with this line the program can use the kit
    rank = par_rank(comm)
    ranks = par_size(comm)

    columns = n/ranks + merge(1, 0, rank < mod(n, ranks))
    call par_alloc(comm, u, [n + 1, n/ranks + 2], lower=[0, 0]) ! the same size on all ranks
    call par_alloc(comm, next, [n + 1, n/ranks + 2], lower=[0, 0])
    if (rank == 0) u(:, 0) = 100 ! the hot edge
    if (rank == 0) next(:, 0) = 100

    differ = 0
    do sweep = 1, sweeps
        edges = 0
        if (rank > 0) then
            call par_send_begin(u(1:n, 1), n, PAR_F64, rank - 1, comm, requests(1), PAR_SITE)
            call par_recv_begin(u(1:n, 0), n, PAR_F64, rank - 1, comm, requests(2), PAR_SITE)
            edges = 2
        end if
        if (rank + 1 < ranks) then
            call par_send_begin(u(1:n, columns), n, PAR_F64, rank + 1, comm, requests(edges + 1), PAR_SITE)
            call par_recv_begin(u(1:n, columns + 1), n, PAR_F64, rank + 1, comm, requests(edges + 2), PAR_SITE)
            edges = edges + 2
        end if
        call par_wait_all(requests, edges)

        change = 0
        do j = 1, columns
            do i = 1, n
                next(i, j) = 0.25d0*(u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1))
                change = change + (next(i, j) - u(i, j))**2
            end do
        end do
        call par_all_reduce_begin(change, total, 1, PAR_F64, PAR_SUM, comm, requests(5), PAR_SITE)
        call MPI_Allreduce(change, by_mpi, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
        call par_wait(requests(5))
        if (abs(by_mpi - total) > 1d-12*abs(total)) differ = differ + 1
        swap => u
        u => next
        next => swap
    end do
    if (rank == 0) print '(i0, a, i0, a, es14.7, a, i0, a)', ranks, ' ranks, ', sweeps, ' sweeps: change', &
        sqrt(total), ', ', differ, ' sums differ'

    call par_free(comm, next)
    call par_free(comm, u)
    call par_close(comm)
    call MPI_Finalize()
end program

! A Fortran program over MPI, by the interface that -DHOW chooses: 1 mpif.h, 2 use mpi, 3 use mpi_f08. It knows
! nothing of the kit.
program mpi_shim
#if HOW == 2
    use mpi
#elif HOW == 3
    use mpi_f08
#endif
    implicit none
#if HOW == 1
    include 'mpif.h'
#endif
    integer :: rank, ranks, error, i
    integer :: counts(64), displs(64), all(64), mine(3)
    double precision :: x(5)
    complex :: z
    logical :: yes, done
    integer :: which, some, places(6)
#if HOW == 3
    type(MPI_Request) :: q(6)
    type(MPI_Status) :: status, statuses(6)
#else
    integer :: q(6), status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 6)
#endif
    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
    x = rank + 1
    call MPI_Allreduce(MPI_IN_PLACE, x, 5, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    if (any(x /= ranks * (ranks + 1) / 2)) call wrong("allreduce")
    z = cmplx(rank, 1)
    call MPI_Allreduce(MPI_IN_PLACE, z, 1, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, error)
    if (z /= cmplx(ranks * (ranks - 1) / 2, ranks)) call wrong("complex")
    yes = rank /= 1
    call MPI_Allreduce(MPI_IN_PLACE, yes, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
    if (yes .neqv. (ranks == 1)) call wrong("logical")
    if (rank == 0) x = 7
    call MPI_Bcast(x, 5, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, error)
    if (any(x /= 7)) call wrong("bcast")
    do i = 1, ranks
        counts(i) = mod(i, 3) + 1
        displs(i) = 4 * (i - 1)
    end do
    mine = rank
    all = -1
    call MPI_Allgatherv(mine, counts(rank + 1), MPI_INTEGER, all, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, error)
    do i = 1, ranks
        if (any(all(displs(i) + 1:displs(i) + counts(i)) /= i - 1)) call wrong("allgatherv")
        if (all(displs(i) + 4) /= -1) call wrong("allgatherv: a gap")
    end do
    all(1:ranks) = rank
    call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
    if (any(all(1:ranks) /= [(i - 1, i = 1, ranks)])) call wrong("alltoall")
    all(1) = rank
    if (rank == 0) then
        call MPI_Gather(MPI_IN_PLACE, 0, MPI_INTEGER, all, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
        if (any(all(1:ranks) /= [(i - 1, i = 1, ranks)])) call wrong("gather")
    else
        call MPI_Gather(all, 1, MPI_INTEGER, all, 0, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    end if
    call MPI_Barrier(MPI_COMM_WORLD, error)
    call others()
    mine = rank
    call MPI_Iallreduce(MPI_IN_PLACE, mine, 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, q(1), error)
    call MPI_Wait(q(1), status, error)
    if (any(mine /= ranks * (ranks - 1) / 2)) call wrong("iallreduce")
    do i = 1, 6
        call MPI_Ibarrier(MPI_COMM_WORLD, q(i), error)
    end do
    done = .false.
    do while (.not. done)
        call MPI_Test(q(1), done, status, error)
    end do
    call MPI_Waitany(6, q, which, status, error)
    if (which < 1 .or. which > 6) call wrong("waitany") ! by mpi_f08 MPICH 4.0.2 counts from 0
    call MPI_Waitsome(6, q, some, places, statuses, error)
    if (some < 1 .or. some > 4) call wrong("waitsome")
    done = .false.
    do while (.not. done)
        call MPI_Testany(6, q, which, done, status, error)
    end do
    call MPI_Testsome(6, q, some, places, statuses, error)
    done = .false.
    do while (.not. done)
        call MPI_Request_get_status(q(6), done, status, error)
    end do
    done = .false.
    do while (.not. done)
        call MPI_Testall(6, q, done, MPI_STATUSES_IGNORE, error)
    end do
    call MPI_Ibarrier(MPI_COMM_WORLD, q(1), error)
    call MPI_Waitall(6, q, statuses, error)
    call asks()
    call MPI_Finalize(error)
    if (rank == 0) print '(a)', "fortran done"
contains
    subroutine others() ! each call with arguments that all differ, then the same as a nonblocking one
        integer :: i, n, how, to(64), from(64), part(2, 64), expected(2, 64), lengths(64)
        integer(kind=MPI_ADDRESS_KIND) :: at(2)
#if HOW == 3
        type(MPI_Datatype) :: pair, gap, absolute
#else
        integer :: pair, gap, absolute
#endif
        n = ranks
        call MPI_Type_contiguous(2, MPI_INTEGER, pair, error)
        call MPI_Type_commit(pair, error)
        at = [0, 8]
        call MPI_Type_create_resized(MPI_INTEGER, at(1), at(2), gap, error)
        call MPI_Type_commit(gap, error)
        do how = 0, 1
            mine = rank + 1
            all = -1
            if (how == 0) then
                call MPI_Reduce(mine, all, 2, MPI_INTEGER, MPI_PROD, 2, MPI_COMM_WORLD, error)
            else
                call MPI_Ireduce(mine, all, 2, MPI_INTEGER, MPI_PROD, 2, MPI_COMM_WORLD, q(1), error)
                call MPI_Wait(q(1), status, error)
            end if
            if (rank == 2 .and. any(all(1:3) /= [6, 6, -1])) call wrong("reduce")
            part(1, 1:n) = [(100 * i + rank, i = 1, n)]
            part(2, 1:n) = [(200 * i + rank, i = 1, n)]
            if (how == 0) then
                call MPI_Reduce_scatter_block(part, all, 2, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
            else
                call MPI_Ireduce_scatter_block(part, all, 2, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, q(1), error)
                call MPI_Wait(q(1), status, error)
            end if
            if (any(all(1:2) /= [100, 200] * (rank + 1) + n - 1)) call wrong("reduce_scatter_block")
            lengths(1:n) = [(modulo(i, 2) + 1, i = 1, n)]
            part(:, 1) = 1
            part(:, 2:n) = 7
            if (how == 0) then
                call MPI_Reduce_scatter(part, all, lengths, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, error)
            else
                call MPI_Ireduce_scatter(part, all, lengths, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, q(1), error)
                call MPI_Wait(q(1), status, error)
            end if
            if (any(all(1:lengths(rank + 1)) /= merge(1, 7, rank == 0))) call wrong("reduce_scatter")
            expected(1, 1:n) = [(10 * (i - 1), i = 1, n)]
            expected(2, 1:n) = expected(1, 1:n) + 1
            mine(1:2) = expected(:, rank + 1)
            part = -1
            if (how == 0) then
                call MPI_Allgather(mine, 2, MPI_INTEGER, part, 1, pair, MPI_COMM_WORLD, error)
            else
                call MPI_Iallgather(mine, 2, MPI_INTEGER, part, 1, pair, MPI_COMM_WORLD, q(1), error)
                call MPI_Wait(q(1), status, error)
            end if
            if (any(part(:, 1:n) /= expected(:, 1:n))) call wrong("allgather")
            lengths(1:n) = 1
            from(1:n) = [(n - i, i = 1, n)]
            part = -1
            if (how == 0) then
                call MPI_Gatherv(mine, 2, MPI_INTEGER, part, lengths, from, pair, 2, MPI_COMM_WORLD, error)
            else
                call MPI_Igatherv(mine, 2, MPI_INTEGER, part, lengths, from, pair, 2, MPI_COMM_WORLD, q(1), error)
                call MPI_Wait(q(1), status, error)
            end if
            if (rank == 2 .and. any(part(:, 1:n) /= expected(:, n:1:-1))) call wrong("gatherv")
            mine = -1
            if (how == 0) then
                call MPI_Scatterv(expected, lengths, from, pair, mine, 2, MPI_INTEGER, 1, MPI_COMM_WORLD, error)
            else
                call MPI_Iscatterv(expected, lengths, from, pair, mine, 2, MPI_INTEGER, 1, MPI_COMM_WORLD, q(1), &
                    error)
                call MPI_Wait(q(1), status, error)
            end if
            if (any(mine /= [expected(:, n - rank), -1])) call wrong("scatterv")
            mine = -1
            if (how == 0) then
                call MPI_Scatter(expected, 1, gap, mine, 1, MPI_INTEGER, 1, MPI_COMM_WORLD, error)
            else
                call MPI_Iscatter(expected, 1, gap, mine, 1, MPI_INTEGER, 1, MPI_COMM_WORLD, q(1), error)
                call MPI_Wait(q(1), status, error)
            end if
            if (any(mine /= [expected(1, rank + 1), -1, -1])) call wrong("scatter")
            to(1:n) = [(i - 1, i = 1, n)]
            part = -1
            expected = expected + 1000 * rank
            if (how == 0) then
                call MPI_Alltoallv(expected, lengths, to, pair, part, lengths, from, pair, MPI_COMM_WORLD, error)
            else
                call MPI_Ialltoallv(expected, lengths, to, pair, part, lengths, from, pair, MPI_COMM_WORLD, q(1), &
                    error)
                call MPI_Wait(q(1), status, error)
            end if
            do i = 1, n
                if (any(part(:, n + 1 - i) /= 1000 * (i - 1) + 10 * rank + [0, 1])) call wrong("alltoallv")
            end do
        end do
        call MPI_Get_address(mine(2), at(1), error) ! an array by its address in its type
        call MPI_Type_create_hindexed(1, [1], at(1:1), MPI_INTEGER, absolute, error)
        call MPI_Type_commit(absolute, error)
        mine = rank
        call MPI_Bcast(MPI_BOTTOM, 1, absolute, 1, MPI_COMM_WORLD, error)
        if (any(mine /= [rank, 1, rank])) call wrong("bottom")
        call MPI_Type_free(absolute, error)
        call MPI_Type_free(pair, error)
        call MPI_Type_free(gap, error)
    end subroutine
    subroutine asks() ! what is sent before a barrier is there after it
#if HOW == 3
        type(MPI_Message) :: message
#else
        integer :: message
#endif
        all(1) = rank
        call MPI_Isend(all(1), 1, MPI_INTEGER, mod(rank + 1, ranks), 5, MPI_COMM_WORLD, q(1), error)
        call MPI_Barrier(MPI_COMM_WORLD, error)
        done = .false.
        call MPI_Iprobe(mod(rank + ranks - 1, ranks), 5, MPI_COMM_WORLD, done, status, error)
        if (.not. done) call wrong("iprobe")
        call MPI_Iprobe(mod(rank + ranks - 1, ranks), 6, MPI_COMM_WORLD, done, status, error)
        if (done) call wrong("iprobe of another tag")
        call MPI_Improbe(mod(rank + ranks - 1, ranks), 5, MPI_COMM_WORLD, done, message, status, error)
        if (.not. done) call wrong("improbe")
        call MPI_Mrecv(all(2), 1, MPI_INTEGER, message, status, error)
        if (all(2) /= mod(rank + ranks - 1, ranks)) call wrong("mrecv")
        call MPI_Wait(q(1), status, error)
    end subroutine
    subroutine wrong(what)
        character(*), intent(in) :: what
        print '(a, i3, 2a)', "rank", rank, ": CHECK ", what
        call MPI_Abort(MPI_COMM_WORLD, 1, error)
    end subroutine
end program

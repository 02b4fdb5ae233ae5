! bindings/par.f90 without MPI: calls in place and not, with counts of 4 and 8 bytes, arrays with gaps, memory with
! bounds, requests, call sites, the text of an error. With the argument "ends": a call whose error nobody takes.
#include "par_site.h"
program test_f90
    use, intrinsic :: iso_c_binding
    use par
    implicit none
    type(par_comm) :: world, part
    type(par_request) :: requests(2)
    integer :: ranks, me, i, failures = 0
    integer(c_int) :: r
    double precision :: x(2, 3), y(2, 3)
    double precision, pointer :: u(:, :)
    integer(c_int32_t), allocatable :: counts(:), row(:)
    integer(c_int64_t), allocatable :: long_counts(:)
    integer(c_int64_t), pointer :: words(:)
    type(par_neighbors) :: ring
    double precision :: own(3), halo(3)
    real, asynchronous :: put, got
    character(8) :: argument

    call par_open(world)
    ranks = par_size(world)
    me = par_rank(world)
    call get_command_argument(1, argument)
    if (argument == 'ends') call par_broadcast(x, x, 6, PAR_F64, 99, world, PAR_SITE)

    x = me
    call par_all_reduce(x, y, size(x), PAR_F64, PAR_SUM, world)
    call check(y(2, 3) == ranks*(ranks - 1)/2, __LINE__)
    call par_all_reduce(PAR_IN_PLACE, x, 6_c_int64_t, PAR_F64, PAR_MAX, world)
    call check(x(1, 1) == ranks - 1, __LINE__)
    call par_all_reduce(x(1, :), y(1, :), 3, PAR_F64, PAR_SUM, world, r, PAR_SITE)
    call check(r == PAR_ERR_ARGUMENT .and. index(par_last_error(world), 'send is an array that has gaps') > 0, __LINE__)
    call par_broadcast(x, x, 6, PAR_F64, 99, world, r, PAR_SITE)
    call check(r == PAR_ERR_ARGUMENT .and. index(par_last_error(world), 'test_f90.f90:') > 0, __LINE__)
    call check(par_result_name(r) == 'PAR_ERR_ARGUMENT', __LINE__)

    allocate (row(ranks), source=-1)
    row(me + 1) = me
    call par_all_gather(PAR_IN_PLACE, row, 1, PAR_I32, world)
    call check(all(row == [(i, i=0, ranks - 1)]), __LINE__)
    counts = [(i, i=1, ranks)]
    deallocate (row)
    allocate (row(sum(counts)))
    call par_all_gatherv(spread(me, 1, me + 1), row, counts, PAR_I32, world)
    call check(row(1) == 0 .and. row(size(row)) == ranks - 1, __LINE__)
    long_counts = counts
    row = -1
    call par_all_gatherv(spread(me, 1, me + 1), row, long_counts, PAR_I32, world, &
        recv_displs=[(int(sum(counts(:i - 1)), c_int64_t), i=1, ranks)])
    call check(row(1) == 0 .and. row(size(row)) == ranks - 1, __LINE__)

    put = me
    call par_recv_begin(got, 1, PAR_F32, modulo(me - 1, ranks), world, requests(1), PAR_SITE)
    call par_send_begin(put, 1, PAR_F32, modulo(me + 1, ranks), world, requests(2), PAR_SITE)
    call par_wait_all(requests, 2)
    call check(nint(got) == modulo(me - 1, ranks), __LINE__)

    call par_alloc(world, u, [4, 5], lower=[0, -1], file='x')
    call check(all(lbound(u) == [0, -1]) .and. all(ubound(u) == [4, 5]) .and. all(u == 0), __LINE__)
    u(:, 3) = 1
    call par_all_reduce(PAR_IN_PLACE, u(:, 3), 5, PAR_F64, PAR_SUM, world)
    call check(all(u(:, 3) == ranks) .and. all(u(:, 4) == 0), __LINE__)
    call check(c_associated(par_peer(world, u, me), c_loc(u)), __LINE__)
    call par_free(world, u)
    call par_neighbors_open(world, 2, [modulo(me + 1, ranks), modulo(me - 1, ranks)], ring, &
        [modulo(me - 1, ranks), modulo(me + 1, ranks)], r, PAR_SITE)
    own = [me, 10 + me, 20 + me]
    call par_neighbor_exchange(own, [2, 1], halo, [2, 1], PAR_F64, ring, recv_displs=[1, 0])
    call check(nint(halo(1)) == 20 + modulo(me + 1, ranks) .and. nint(halo(3)) == 10 + modulo(me - 1, ranks), __LINE__)
    call par_neighbor_exchange(own, [2, 1], halo, [2, 1], -1, ring, result=r, PAR_SITE)
    call check(r == PAR_ERR_ARGUMENT .and. index(par_last_error(par_neighbors_comm(ring)), 'test_f90.f90:') > 0, __LINE__)
    call par_neighbors_close(ring)
    call par_alloc(world, words, [8])
    call par_signal(words(3), 1_c_int64_t, 0, world)
    if (me == 0) call par_wait_signal(words(3), int(ranks, c_int64_t), world)
    call par_barrier(world)
    call check(words(3) == merge(ranks, 0, me == 0), __LINE__)
    call par_free(world, words)
    call par_split(world, merge(0, -1, me == 0), 0, part)
    call check(c_associated(part%handle) .eqv. me == 0, __LINE__)
    if (me == 0) call par_close(part)
    call par_barrier(world)
    call nothing_passed()
    call too_short()
    call par_close(world)
    if (failures > 0) error stop 1
contains
    ! What C may get NULL for is left out, and arrays that another rank alone uses are none.
    subroutine nothing_passed()
        double precision :: block(2), offset
        double precision, allocatable :: blocks(:)
        integer(c_int) :: r
        block = me
        call check(par_launched() == 0, __LINE__)
        call par_clock_offset(world, offset)
        allocate (blocks(2*ranks))
        blocks = 0
        if (me == 0) then
            call par_gatherv(block, 2, blocks, PAR_F64, 0, world, [(2, i=1, ranks)])
            call check(nint(blocks(2*ranks)) == ranks - 1, __LINE__)
            call par_scatterv(blocks, block, 2, PAR_F64, 0, world, send_counts=[(2, i=1, ranks)])
            blocks(1:2) = 7
            call par_gather(PAR_IN_PLACE, blocks, 2, PAR_F64, 0, world)
            call check(nint(blocks(2)) == 7 .and. nint(blocks(2*ranks)) == ranks - 1, __LINE__)
            call par_scatter(blocks, PAR_IN_PLACE, 2, PAR_F64, 0, world)
        else
            call par_gatherv(block, 2, PAR_IN_PLACE, PAR_F64, 0, world)
            call par_scatterv(PAR_IN_PLACE, block, 2, PAR_F64, 0, world)
            call par_gather(block, PAR_IN_PLACE, 2, PAR_F64, 0, world)
            call par_scatter(PAR_IN_PLACE, block, 2, PAR_F64, 0, world)
        end if
        call check(nint(block(2)) == me, __LINE__)
        call par_gather(PAR_IN_PLACE, blocks, 2, PAR_F64, 0, world, r) ! in place is at the root
        call check(r /= PAR_OK .or. ranks == 1, __LINE__)
        call of_any_size(blocks)
    end subroutine
    ! An array that is shorter than what its call reads or writes is an error on all ranks, before data move.
    subroutine too_short()
        double precision :: block(2), whole(2*ranks), behind(4)
        complex(kind(0d0)) :: one(1)
        character(8) :: text(4)
        integer(c_int) :: r, two(ranks)
        two = 2
        block = 1
        whole = 1
        behind = 1
        call par_all_reduce(whole, behind(2:3), 2*ranks, PAR_F64, PAR_SUM, world, r)
        call refused(r, 'recv has 16 bytes, but the call needs', __LINE__)
        call check(all(abs(behind - 1) <= 0), __LINE__)
        call par_all_gather(block, block, 2, PAR_F64, world, r, PAR_SITE)
        call refused(r, 'recv has 16 bytes', __LINE__)
        call par_all_gatherv(block, whole(2:), two, PAR_F64, world, result=r)
        call refused(r, 'recv has', __LINE__)
        call par_all_gatherv(block, whole, two(2:), PAR_F64, world, result=r)
        call refused(r, 'counts has', __LINE__)
        call par_reduce_scatter(block, block, 2, PAR_F64, PAR_SUM, world, r)
        call refused(r, 'send has', __LINE__)
        call par_all_to_allv(whole, two, whole, two, PAR_F64, world, send_displs=two(2:), result=r)
        call refused(r, 'send_displs has', __LINE__)
        call par_broadcast(block, block, 3, PAR_F64, 0, world, r)
        call refused(r, 'has 16 bytes, but the call needs 24', __LINE__)
        call par_reduce(block, behind(:1), 2, PAR_F64, PAR_SUM, 0, world, r) ! the root alone writes recv
        call refused(r, merge('recv has 8 bytes          ', 'rank 0 called par_reduce( ', me == 0), __LINE__)
        call par_neighbor_exchange(block, [3], whole, [3], PAR_F64, ring_of_one(), result=r)
        call check(r == PAR_ERR_ARGUMENT, __LINE__)
        call par_cast(behind(:1), PAR_F64, whole, PAR_F64, 2, r)
        call check(r == PAR_ERR_ARGUMENT .and. all(abs(behind - 1) <= 0), __LINE__)
        one = (1, 2)
        call par_all_reduce(PAR_IN_PLACE, one, 2, PAR_F64, PAR_SUM, world) ! a complex number is two
        call check(nint(aimag(one(1))) == 2*ranks, __LINE__)
        text = achar(me + 1)
        call par_all_reduce(PAR_IN_PLACE, text, 32, PAR_U8, PAR_MAX, world)
        call check(text(4) == repeat(achar(ranks), 1), __LINE__)
        block = me
        call par_all_reduce(PAR_IN_PLACE, block(1), 2, PAR_F64, PAR_MAX, world) ! from an element on
        call check(nint(block(2)) == ranks - 1, __LINE__)
        call par_all_reduce(PAR_IN_PLACE, text, 33, PAR_U8, PAR_MAX, world, r)
        call refused(r, 'recv has 32 bytes', __LINE__)
    end subroutine
    function ring_of_one() result(self)
        type(par_neighbors) :: self
        call par_neighbors_open(world, 1, [me], self)
    end function
    subroutine refused(r, text, line)
        integer(c_int), intent(in) :: r
        character(*), intent(in) :: text
        integer, intent(in) :: line
        call check(r /= PAR_OK .and. index(par_last_error(world), trim(text)) > 0, line)
    end subroutine
    subroutine of_any_size(x)
        double precision, intent(inout) :: x(*)
        x(1:2) = me
        call par_all_reduce(PAR_IN_PLACE, x, 2, PAR_F64, PAR_MAX, world)
        call check(nint(x(2)) == ranks - 1, __LINE__)
    end subroutine
    subroutine check(ok, line)
        logical, intent(in) :: ok
        integer, intent(in) :: line
        if (ok) return
        failures = failures + 1
        print '(a, i0)', 'check failed at line ', line
    end subroutine
end program

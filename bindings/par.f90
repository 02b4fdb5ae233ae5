! par.f90 - par.h for Fortran 2018: ranks, groups, shared memory and collectives.
!
! Public domain or MIT-0, as par.h.
!
! USE
!     Compile par.h once as C, and this file before your own (here all lie in one directory):
!         gcc -O2 -DPAR_IMPLEMENTATION -x c -c par.h -o kit.o
!         gfortran -O2 par.f90 prog.f90 kit.o -pthread -lm -o prog
!         PAR_RANKS=4 ./prog
!     Each Fortran file by itself: gfortran -c makes par.o of this one, so the kit's object has another name.
!     Programs of MPI: bindings/par_mpi.f90.
!
! EXAMPLE
!     program hello
!         use par
!         implicit none
!         type(par_comm) :: world
!         double precision :: x(3)
!         call par_open(world)
!         x = par_rank(world)
!         call par_all_reduce(PAR_IN_PLACE, x, 3, PAR_F64, PAR_SUM, world)
!         if (par_rank(world) == 0) print *, par_size(world), 'ranks, sum of ranks', x(1)
!         call par_close(world)
!     end program
!
! Arguments are those of C in C's order, and mean what par.h says; those that C may get NULL for (displs, counts
! that the root alone needs, desc, sources, error, par_launched's rank) come last and are optional. Instead of an array that the root alone reads or writes the others may pass any, or PAR_IN_PLACE.
! Then come, all optional:
!     result      PAR_OK or an error. Without it an error prints par_last_error and ends the program.
!     file, line  the call site, for errors. In a file that is preprocessed, #include "par_site.h" and pass
!                 PAR_SITE, which expands to both: call par_barrier(world, PAR_SITE). Compile with
!                 -ffree-line-length-none, since paths are long.
! Arrays are of any type and rank, also scalars, and sections without gaps: x(:, 2). Nothing is copied behind your
! back, so a section with gaps is PAR_ERR_ARGUMENT. So is an array, or a list of counts, that is shorter than what
! the call reads or writes; where it begins at an element, x(3), or is of assumed size, nobody knows.
! Declare arrays of calls that return before they are done (_begin, calls of a group) ASYNCHRONOUS, so that the
! compiler keeps no value of them across par_wait.
! Counts and displacements are of 4 or 8 bytes; arrays of them in calls that return before they are done are
! of 8 bytes, since they stay in use.
! PAR_IN_PLACE, as MPI's: instead of send in all_reduce, reduce, broadcast, all_gather and (at the root) gather,
! instead of recv in reduce_scatter and (at the root) scatter: this rank's block is where the other array has it.
! par_alloc gives an array with bounds: call par_alloc(world, u, upper=[n, m], lower=[0, 1]), for a pointer
! with 1 to 4 dimensions. par_alloc_bytes gives an address for c_f_pointer, as par_peer does.
! Elements of PAR_F16, PAR_BF16 and the unsigned types are in integers of their size.

module par
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    private
    ! GENERATED constants by make bindings
    integer, parameter, public :: PAR_VERSION = 900
    integer(c_int), parameter, public :: PAR_OK = 0
    integer(c_int), parameter, public :: PAR_ERR_ARGUMENT = 1
    integer(c_int), parameter, public :: PAR_ERR_MEMORY = 2
    integer(c_int), parameter, public :: PAR_ERR_SYSTEM = 3
    integer(c_int), parameter, public :: PAR_ERR_MPI = 4
    integer(c_int), parameter, public :: PAR_ERR_UNSUPPORTED = 5
    integer(c_int), parameter, public :: PAR_ERR_MISMATCH = 6
    integer(c_int), parameter, public :: PAR_ERR_TIMEOUT = 7
    integer(c_int), parameter, public :: PAR_ERR_PEER_DIED = 8
    integer(c_int), parameter, public :: PAR_ERR_ABORTED = 9
    integer(c_int), parameter, public :: PAR_ERR_REVOKED = 10
    integer(c_int), parameter, public :: PAR_ERR_FILE = 11
    integer(c_int), parameter, public :: PAR_ERR_LOST = 12
    integer(c_int), parameter, public :: PAR_F64 = 0
    integer(c_int), parameter, public :: PAR_F32 = 1
    integer(c_int), parameter, public :: PAR_F16 = 2
    integer(c_int), parameter, public :: PAR_BF16 = 3
    integer(c_int), parameter, public :: PAR_F8_E4M3 = 4
    integer(c_int), parameter, public :: PAR_F8_E5M2 = 5
    integer(c_int), parameter, public :: PAR_I8 = 6
    integer(c_int), parameter, public :: PAR_U8 = 7
    integer(c_int), parameter, public :: PAR_I32 = 8
    integer(c_int), parameter, public :: PAR_U32 = 9
    integer(c_int), parameter, public :: PAR_I64 = 10
    integer(c_int), parameter, public :: PAR_U64 = 11
    integer(c_int), parameter, public :: PAR_KIND_BARRIER = 0
    integer(c_int), parameter, public :: PAR_KIND_ALL_REDUCE = 1
    integer(c_int), parameter, public :: PAR_KIND_REDUCE_SCATTER = 2
    integer(c_int), parameter, public :: PAR_KIND_REDUCE_SCATTERV = 3
    integer(c_int), parameter, public :: PAR_KIND_ALL_GATHER = 4
    integer(c_int), parameter, public :: PAR_KIND_ALL_GATHERV = 5
    integer(c_int), parameter, public :: PAR_KIND_BROADCAST = 6
    integer(c_int), parameter, public :: PAR_KIND_REDUCE = 7
    integer(c_int), parameter, public :: PAR_KIND_GATHER = 8
    integer(c_int), parameter, public :: PAR_KIND_GATHERV = 9
    integer(c_int), parameter, public :: PAR_KIND_SCATTER = 10
    integer(c_int), parameter, public :: PAR_KIND_SCATTERV = 11
    integer(c_int), parameter, public :: PAR_KIND_ALL_TO_ALL = 12
    integer(c_int), parameter, public :: PAR_KIND_ALL_TO_ALLV = 13
    integer(c_int), parameter, public :: PAR_KIND_SEND = 14
    integer(c_int), parameter, public :: PAR_KIND_RECV = 15
    integer(c_int), parameter, public :: PAR_KIND_NEIGHBOR_EXCHANGE = 16
    integer(c_int64_t), parameter, public :: PAR_SUM = 0
    integer(c_int64_t), parameter, public :: PAR_AVG = 1
    integer(c_int64_t), parameter, public :: PAR_PROD = 2
    integer(c_int64_t), parameter, public :: PAR_MIN = 3
    integer(c_int64_t), parameter, public :: PAR_MAX = 4
    integer(c_int64_t), parameter, public :: PAR_TREE_SUM = 6
    ! END GENERATED
    integer(c_int), target, save, public :: PAR_IN_PLACE = 0

    ! GENERATED types by make bindings
    type, public :: par_comm
        type(c_ptr) :: handle = c_null_ptr ! C's par_comm *
    end type
    type, public :: par_neighbors
        type(c_ptr) :: handle = c_null_ptr ! C's par_neighbors *
    end type
    type, bind(c), public :: par_desc
        integer(c_int) :: rank_count = 0
        integer(c_int) :: node_ranks = 0
        integer(c_int) :: run_again = 0
        real(c_double) :: timeout_s = 0
        integer(c_int64_t) :: arena_bytes = 0
        integer(c_int64_t) :: stage_bytes = 0
        type(c_ptr) :: trace = c_null_ptr
        integer(c_int) :: progress = 0
        integer(c_int) :: keep_cpus = 0
        integer(c_int) :: elastic = 0
    end type
    type, bind(c) :: par_call
        type(c_ptr) :: send = c_null_ptr
        type(c_ptr) :: recv = c_null_ptr
        integer(c_int64_t) :: count = 0
        type(c_ptr) :: send_counts = c_null_ptr
        type(c_ptr) :: send_displs = c_null_ptr
        type(c_ptr) :: recv_counts = c_null_ptr
        type(c_ptr) :: recv_displs = c_null_ptr
        integer(c_int) :: kind = 0
        integer(c_int) :: dtype = 0
        integer(c_int64_t) :: op = 0
        integer(c_int) :: root = 0
        integer(c_int) :: tag = 0
        type(c_ptr) :: site = c_null_ptr
    end type
    type, bind(c), public :: par__round_trip
        real(c_double) :: sent = 0
        real(c_double) :: remote = 0
        real(c_double) :: received = 0
    end type
    ! END GENERATED
    type, bind(c), public :: par_request
        type(c_ptr) :: operation = c_null_ptr
        integer(c_int64_t) :: ticket = 0
    end type

    public :: par_alloc, par_alloc_bytes
    type :: misfit ! what does not fit: 0 nothing, 1 an array has gaps, 2 it is too short, 3 a list is
        integer :: what = 0
        character(16) :: name = ''
        integer(c_int64_t) :: has = 0, needs = 0
    end type

    ! GENERATED public by make bindings
    public :: par_result_name
    public :: par_result_text
    public :: par_last_error
    public :: par_scaled_sum
    public :: par_op_factor
    public :: par_dtype_bytes
    public :: par_dtype_name
    public :: par_op_name
    public :: par_dtype_parse
    public :: par_op_parse
    public :: par_cast
    public :: par_open
    public :: par_defaults
    public :: par_launched
    public :: par_close
    public :: par_abort
    public :: par_rank
    public :: par_size
    public :: par_world_rank
    public :: par_node_count
    public :: par_node_of
    public :: par_launch_method
    public :: par_set_timeout
    public :: par_timeout
    public :: par_seconds
    public :: par_clock_offset
    public :: par_split
    public :: par_revoke
    public :: par_agree
    public :: par_shrink
    public :: par_grow
    public :: par_join_at
    public :: par_rank_before
    public :: par_free
    public :: par_peer
    public :: par_wait
    public :: par_test
    public :: par_wait_all
    public :: par_group_begin
    public :: par_group_end
    public :: par_group_end_begin
    public :: par_kind_name
    public :: par_all_reduce
    public :: par_reduce_scatter
    public :: par_reduce_scatterv
    public :: par_all_gather
    public :: par_all_gatherv
    public :: par_broadcast
    public :: par_reduce
    public :: par_gather
    public :: par_gatherv
    public :: par_scatter
    public :: par_scatterv
    public :: par_all_to_all
    public :: par_all_to_allv
    public :: par_barrier
    public :: par_tag
    public :: par_send
    public :: par_recv
    public :: par_sendrecv
    public :: par_all_reduce_begin
    public :: par_reduce_scatter_begin
    public :: par_reduce_scatterv_begin
    public :: par_all_gather_begin
    public :: par_all_gatherv_begin
    public :: par_broadcast_begin
    public :: par_reduce_begin
    public :: par_gather_begin
    public :: par_gatherv_begin
    public :: par_scatter_begin
    public :: par_scatterv_begin
    public :: par_all_to_all_begin
    public :: par_all_to_allv_begin
    public :: par_barrier_begin
    public :: par_send_begin
    public :: par_recv_begin
    public :: par_neighbors_open
    public :: par_neighbor_exchange
    public :: par_neighbor_exchange_begin
    public :: par_neighbors_comm
    public :: par_neighbors_degree
    public :: par_neighbors_close
    public :: par_signal
    public :: par_wait_signal
    public :: par_ledger_reset
    public :: par_calibrate
    public :: par_predict
    public :: par_last_algorithm
    public :: par_algorithm_name
    public :: par_force_algorithm
    public :: par_alive
    public :: par_at
    public :: par_trace_begin
    public :: par_trace_end
    ! END GENERATED

    interface par_alloc
        ! GENERATED alloc_names by make bindings
        module procedure alloc_f64_1
        module procedure alloc_f64_2
        module procedure alloc_f64_3
        module procedure alloc_f64_4
        module procedure alloc_f32_1
        module procedure alloc_f32_2
        module procedure alloc_f32_3
        module procedure alloc_f32_4
        module procedure alloc_i8_1
        module procedure alloc_i8_2
        module procedure alloc_i8_3
        module procedure alloc_i8_4
        module procedure alloc_i32_1
        module procedure alloc_i32_2
        module procedure alloc_i32_3
        module procedure alloc_i32_4
        module procedure alloc_i64_1
        module procedure alloc_i64_2
        module procedure alloc_i64_3
        module procedure alloc_i64_4
        ! END GENERATED
    end interface
    ! GENERATED generics by make bindings
    interface par_cast
        module procedure par_cast_i64, par_cast_i32
    end interface
    interface par_all_reduce
        module procedure par_all_reduce_i64, par_all_reduce_i32
    end interface
    interface par_reduce_scatter
        module procedure par_reduce_scatter_i64, par_reduce_scatter_i32
    end interface
    interface par_reduce_scatterv
        module procedure par_reduce_scatterv_i64, par_reduce_scatterv_i32
    end interface
    interface par_all_gather
        module procedure par_all_gather_i64, par_all_gather_i32
    end interface
    interface par_all_gatherv
        module procedure par_all_gatherv_i64, par_all_gatherv_i32
    end interface
    interface par_broadcast
        module procedure par_broadcast_i64, par_broadcast_i32
    end interface
    interface par_reduce
        module procedure par_reduce_i64, par_reduce_i32
    end interface
    interface par_gather
        module procedure par_gather_i64, par_gather_i32
    end interface
    interface par_gatherv
        module procedure par_gatherv_i64, par_gatherv_i32
    end interface
    interface par_scatter
        module procedure par_scatter_i64, par_scatter_i32
    end interface
    interface par_scatterv
        module procedure par_scatterv_i64, par_scatterv_i32
    end interface
    interface par_all_to_all
        module procedure par_all_to_all_i64, par_all_to_all_i32
    end interface
    interface par_all_to_allv
        module procedure par_all_to_allv_i64, par_all_to_allv_i32
    end interface
    interface par_send
        module procedure par_send_i64, par_send_i32
    end interface
    interface par_recv
        module procedure par_recv_i64, par_recv_i32
    end interface
    interface par_sendrecv
        module procedure par_sendrecv_i64, par_sendrecv_i32
    end interface
    interface par_all_reduce_begin
        module procedure par_all_reduce_begin_i64, par_all_reduce_begin_i32
    end interface
    interface par_reduce_scatter_begin
        module procedure par_reduce_scatter_begin_i64, par_reduce_scatter_begin_i32
    end interface
    interface par_reduce_scatterv_begin
        module procedure par_reduce_scatterv_begin_i64
    end interface
    interface par_all_gather_begin
        module procedure par_all_gather_begin_i64, par_all_gather_begin_i32
    end interface
    interface par_all_gatherv_begin
        module procedure par_all_gatherv_begin_i64
    end interface
    interface par_broadcast_begin
        module procedure par_broadcast_begin_i64, par_broadcast_begin_i32
    end interface
    interface par_reduce_begin
        module procedure par_reduce_begin_i64, par_reduce_begin_i32
    end interface
    interface par_gather_begin
        module procedure par_gather_begin_i64, par_gather_begin_i32
    end interface
    interface par_gatherv_begin
        module procedure par_gatherv_begin_i64
    end interface
    interface par_scatter_begin
        module procedure par_scatter_begin_i64, par_scatter_begin_i32
    end interface
    interface par_scatterv_begin
        module procedure par_scatterv_begin_i64
    end interface
    interface par_all_to_all_begin
        module procedure par_all_to_all_begin_i64, par_all_to_all_begin_i32
    end interface
    interface par_all_to_allv_begin
        module procedure par_all_to_allv_begin_i64
    end interface
    interface par_send_begin
        module procedure par_send_begin_i64, par_send_begin_i32
    end interface
    interface par_recv_begin
        module procedure par_recv_begin_i64, par_recv_begin_i32
    end interface
    interface par_neighbor_exchange
        module procedure par_neighbor_exchange_i64, par_neighbor_exchange_i32
    end interface
    interface par_neighbor_exchange_begin
        module procedure par_neighbor_exchange_begin_i64
    end interface
    interface par_predict
        module procedure par_predict_i64, par_predict_i32
    end interface
    ! END GENERATED

    interface
        function c_alloc(comm, bytes) bind(c, name='par_alloc') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_size_t), value :: bytes
            type(c_ptr) :: r
        end function
        function c_at_site(comm, file, line) bind(c, name='par_at') result(r)
            import
            type(c_ptr), value :: comm, file
            integer(c_int), value :: line
            type(c_ptr) :: r
        end function
        function c_fail(comm, result, text) bind(c, name='par_fail') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: result
            character(kind=c_char), intent(in) :: text(*)
            integer(c_int) :: r
        end function
        subroutine c_call_spans(comm, call, send_count, recv_count) bind(c, name='par_call_spans')
            import
            type(c_ptr), value :: comm
            type(par_call), intent(in) :: call
            integer(c_size_t), intent(out) :: send_count, recv_count
        end subroutine
        ! The first bytes of an array's descriptor, which begins with its address and the bytes of an element.
        subroutine c_describe(to, array, bytes) bind(c, name='memcpy')
            import
            type(c_ptr), value :: to
            type(*), dimension(..), intent(in) :: array
            integer(c_size_t), value :: bytes
        end subroutine
        function c_strlen(text) bind(c, name='strlen') result(r)
            import
            type(c_ptr), value :: text
            integer(c_size_t) :: r
        end function
        ! GENERATED interfaces by make bindings
        function c_result_name(result) bind(c, name='par_result_name') result(r)
            import
            integer(c_int), value :: result
            type(c_ptr) :: r
        end function
        function c_result_text(result) bind(c, name='par_result_text') result(r)
            import
            integer(c_int), value :: result
            type(c_ptr) :: r
        end function
        function c_last_error(comm) bind(c, name='par_last_error') result(r)
            import
            type(c_ptr), value :: comm
            type(c_ptr) :: r
        end function
        function c_scaled_sum(factor) bind(c, name='par_scaled_sum') result(r)
            import
            real(c_double), value :: factor
            integer(c_int64_t) :: r
        end function
        function c_op_factor(op) bind(c, name='par_op_factor') result(r)
            import
            integer(c_int64_t), value :: op
            real(c_double) :: r
        end function
        function c_dtype_bytes(dtype) bind(c, name='par_dtype_bytes') result(r)
            import
            integer(c_int), value :: dtype
            integer(c_size_t) :: r
        end function
        function c_dtype_name(dtype) bind(c, name='par_dtype_name') result(r)
            import
            integer(c_int), value :: dtype
            type(c_ptr) :: r
        end function
        function c_op_name(op) bind(c, name='par_op_name') result(r)
            import
            integer(c_int64_t), value :: op
            type(c_ptr) :: r
        end function
        function c_dtype_parse(name, d) bind(c, name='par_dtype_parse') result(r)
            import
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), intent(out) :: d
            integer(c_int) :: r
        end function
        function c_op_parse(name, op) bind(c, name='par_op_parse') result(r)
            import
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int64_t), intent(out) :: op
            integer(c_int) :: r
        end function
        function c_cast(dst, dst_type, src, src_type, count) bind(c, name='par_cast') result(r)
            import
            type(c_ptr), value :: dst
            integer(c_int), value :: dst_type
            type(c_ptr), value :: src
            integer(c_int), value :: src_type
            integer(c_size_t), value :: count
            integer(c_int) :: r
        end function
        function c_open(desc, comm) bind(c, name='par_open') result(r)
            import
            type(c_ptr), value :: desc
            type(c_ptr), intent(out) :: comm
            integer(c_int) :: r
        end function
        function c_defaults(desc, out) bind(c, name='par_defaults') result(r)
            import
            type(c_ptr), value :: desc
            type(par_desc), intent(out) :: out
            integer(c_int) :: r
        end function
        function c_launched(rank) bind(c, name='par_launched') result(r)
            import
            type(c_ptr), value :: rank
            integer(c_int) :: r
        end function
        function c_close(comm) bind(c, name='par_close') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_abort(comm, text) bind(c, name='par_abort') result(r)
            import
            type(c_ptr), value :: comm
            character(kind=c_char), intent(in) :: text(*)
            integer(c_int) :: r
        end function
        function c_rank(comm) bind(c, name='par_rank') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_size(comm) bind(c, name='par_size') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_world_rank(comm, rank) bind(c, name='par_world_rank') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: rank
            integer(c_int) :: r
        end function
        function c_node_count(comm) bind(c, name='par_node_count') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_node_of(comm, rank) bind(c, name='par_node_of') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: rank
            integer(c_int) :: r
        end function
        function c_launch_method(comm) bind(c, name='par_launch_method') result(r)
            import
            type(c_ptr), value :: comm
            type(c_ptr) :: r
        end function
        subroutine c_set_timeout(comm, seconds) bind(c, name='par_set_timeout')
            import
            type(c_ptr), value :: comm
            real(c_double), value :: seconds
        end subroutine
        function c_timeout(comm) bind(c, name='par_timeout') result(r)
            import
            type(c_ptr), value :: comm
            real(c_double) :: r
        end function
        function c_seconds(comm) bind(c, name='par_seconds') result(r)
            import
            type(c_ptr), value :: comm
            real(c_double) :: r
        end function
        function c_clock_offset(comm, offset, error) bind(c, name='par_clock_offset') result(r)
            import
            type(c_ptr), value :: comm
            real(c_double), intent(out) :: offset
            type(c_ptr), value :: error
            integer(c_int) :: r
        end function
        function c_split(comm, color, key, out) bind(c, name='par_split') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: color
            integer(c_int), value :: key
            type(c_ptr), intent(out) :: out
            integer(c_int) :: r
        end function
        function c_revoke(comm) bind(c, name='par_revoke') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_agree(comm, value) bind(c, name='par_agree') result(r)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: value
            integer(c_int) :: r
        end function
        function c_shrink(comm, out) bind(c, name='par_shrink') result(r)
            import
            type(c_ptr), value :: comm
            type(c_ptr), intent(out) :: out
            integer(c_int) :: r
        end function
        function c_grow(comm, count, out) bind(c, name='par_grow') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: count
            type(c_ptr), intent(out) :: out
            integer(c_int) :: r
        end function
        function c_join_at(comm) bind(c, name='par_join_at') result(r)
            import
            type(c_ptr), value :: comm
            type(c_ptr) :: r
        end function
        function c_rank_before(comm, rank) bind(c, name='par_rank_before') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: rank
            integer(c_int) :: r
        end function
        function c_free(comm, memory) bind(c, name='par_free') result(r)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: memory
            integer(c_int) :: r
        end function
        function c_peer(comm, mine, rank) bind(c, name='par_peer') result(r)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: mine
            integer(c_int), value :: rank
            type(c_ptr) :: r
        end function
        function c_wait(request) bind(c, name='par_wait') result(r)
            import
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_test(request, done) bind(c, name='par_test') result(r)
            import
            type(par_request), intent(inout) :: request
            integer(c_int), intent(out) :: done
            integer(c_int) :: r
        end function
        function c_wait_all(requests, count) bind(c, name='par_wait_all') result(r)
            import
            type(par_request), intent(inout) :: requests(*)
            integer(c_int), value :: count
            integer(c_int) :: r
        end function
        function c_group_begin(comm) bind(c, name='par_group_begin') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_group_end(comm) bind(c, name='par_group_end') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_group_end_begin(comm, request) bind(c, name='par_group_end_begin') result(r)
            import
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_kind_name(kind) bind(c, name='par_kind_name') result(r)
            import
            integer(c_int), value :: kind
            type(c_ptr) :: r
        end function
        function c_all_reduce(send, recv, count, dtype, op, comm) bind(c, name='par_all_reduce') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int64_t), value :: op
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_reduce_scatter(send, recv, count, dtype, op, comm) bind(c, &
            name='par_reduce_scatter') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int64_t), value :: op
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_reduce_scatterv(send, recv, recv_counts, dtype, op, comm) bind(c, &
            name='par_reduce_scatterv') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            integer(c_int), value :: dtype
            integer(c_int64_t), value :: op
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_all_gather(send, recv, count, dtype, comm) bind(c, name='par_all_gather') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_all_gatherv(send, recv, recv_counts, recv_displs, dtype, comm) bind(c, &
            name='par_all_gatherv') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_displs
            integer(c_int), value :: dtype
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_broadcast(send, recv, count, dtype, root, comm) bind(c, name='par_broadcast') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_reduce(send, recv, count, dtype, op, root, comm) bind(c, name='par_reduce') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int64_t), value :: op
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_gather(send, recv, count, dtype, root, comm) bind(c, name='par_gather') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_gatherv(send, count, recv, recv_counts, recv_displs, dtype, root, comm) bind(c, &
            name='par_gatherv') result(r)
            import
            type(c_ptr), value :: send
            integer(c_size_t), value :: count
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_displs
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_scatter(send, recv, count, dtype, root, comm) bind(c, name='par_scatter') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_scatterv(send, send_counts, send_displs, recv, count, dtype, root, comm) bind(c, &
            name='par_scatterv') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_displs
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_all_to_all(send, recv, count, dtype, comm) bind(c, name='par_all_to_all') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_all_to_allv(send, send_counts, send_displs, recv, recv_counts, recv_displs, dtype, &
            comm) bind(c, name='par_all_to_allv') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_displs
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_displs
            integer(c_int), value :: dtype
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_barrier(comm) bind(c, name='par_barrier') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        subroutine c_tag(comm, tag) bind(c, name='par_tag')
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: tag
        end subroutine
        function c_send(send, count, dtype, peer, comm) bind(c, name='par_send') result(r)
            import
            type(c_ptr), value :: send
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: peer
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_recv(recv, count, dtype, peer, comm) bind(c, name='par_recv') result(r)
            import
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: peer
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_sendrecv(send, send_count, dest, recv, recv_count, source, dtype, comm) bind(c, &
            name='par_sendrecv') result(r)
            import
            type(c_ptr), value :: send
            integer(c_size_t), value :: send_count
            integer(c_int), value :: dest
            type(c_ptr), value :: recv
            integer(c_size_t), value :: recv_count
            integer(c_int), value :: source
            integer(c_int), value :: dtype
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_all_reduce_begin(send, recv, count, dtype, op, comm, request) bind(c, &
            name='par_all_reduce_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int64_t), value :: op
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_reduce_scatter_begin(send, recv, count, dtype, op, comm, request) bind(c, &
            name='par_reduce_scatter_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int64_t), value :: op
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_reduce_scatterv_begin(send, recv, recv_counts, dtype, op, comm, request) bind(c, &
            name='par_reduce_scatterv_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            integer(c_int), value :: dtype
            integer(c_int64_t), value :: op
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_all_gather_begin(send, recv, count, dtype, comm, request) bind(c, &
            name='par_all_gather_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_all_gatherv_begin(send, recv, recv_counts, recv_displs, dtype, comm, request) bind(c, &
            name='par_all_gatherv_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_displs
            integer(c_int), value :: dtype
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_broadcast_begin(send, recv, count, dtype, root, comm, request) bind(c, &
            name='par_broadcast_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_reduce_begin(send, recv, count, dtype, op, root, comm, request) bind(c, &
            name='par_reduce_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int64_t), value :: op
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_gather_begin(send, recv, count, dtype, root, comm, request) bind(c, &
            name='par_gather_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_gatherv_begin(send, count, recv, recv_counts, recv_displs, dtype, root, comm, &
            request) bind(c, name='par_gatherv_begin') result(r)
            import
            type(c_ptr), value :: send
            integer(c_size_t), value :: count
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_displs
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_scatter_begin(send, recv, count, dtype, root, comm, request) bind(c, &
            name='par_scatter_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_scatterv_begin(send, send_counts, send_displs, recv, count, dtype, root, comm, &
            request) bind(c, name='par_scatterv_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_displs
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: root
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_all_to_all_begin(send, recv, count, dtype, comm, request) bind(c, &
            name='par_all_to_all_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_all_to_allv_begin(send, send_counts, send_displs, recv, recv_counts, recv_displs, dtype, &
            comm, request) bind(c, name='par_all_to_allv_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_displs
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_displs
            integer(c_int), value :: dtype
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_barrier_begin(comm, request) bind(c, name='par_barrier_begin') result(r)
            import
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_send_begin(send, count, dtype, peer, comm, request) bind(c, &
            name='par_send_begin') result(r)
            import
            type(c_ptr), value :: send
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: peer
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_recv_begin(recv, count, dtype, peer, comm, request) bind(c, &
            name='par_recv_begin') result(r)
            import
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype
            integer(c_int), value :: peer
            type(c_ptr), value :: comm
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_neighbors_open(comm, degree, peers, sources, neighbors) bind(c, &
            name='par_neighbors_open') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: degree
            integer(c_int), intent(in) :: peers(*)
            type(c_ptr), value :: sources
            type(c_ptr), intent(out) :: neighbors
            integer(c_int) :: r
        end function
        function c_neighbor_exchange(send, send_counts, send_displs, recv, recv_counts, recv_displs, dtype, &
            neighbors) bind(c, name='par_neighbor_exchange') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_displs
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_displs
            integer(c_int), value :: dtype
            type(c_ptr), value :: neighbors
            integer(c_int) :: r
        end function
        function c_neighbor_exchange_begin(send, send_counts, send_displs, recv, recv_counts, recv_displs, &
            dtype, neighbors, request) bind(c, name='par_neighbor_exchange_begin') result(r)
            import
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_displs
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_displs
            integer(c_int), value :: dtype
            type(c_ptr), value :: neighbors
            type(par_request), intent(inout) :: request
            integer(c_int) :: r
        end function
        function c_neighbors_comm(neighbors) bind(c, name='par_neighbors_comm') result(r)
            import
            type(c_ptr), value :: neighbors
            type(c_ptr) :: r
        end function
        function c_neighbors_degree(neighbors) bind(c, name='par_neighbors_degree') result(r)
            import
            type(c_ptr), value :: neighbors
            integer(c_int) :: r
        end function
        function c_neighbors_close(neighbors) bind(c, name='par_neighbors_close') result(r)
            import
            type(c_ptr), value :: neighbors
            integer(c_int) :: r
        end function
        function c_signal(word, value, rank, comm) bind(c, name='par_signal') result(r)
            import
            type(c_ptr), value :: word
            integer(c_int64_t), value :: value
            integer(c_int), value :: rank
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_wait_signal(word, value, comm) bind(c, name='par_wait_signal') result(r)
            import
            type(c_ptr), value :: word
            integer(c_int64_t), value :: value
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        subroutine c_ledger_reset(comm) bind(c, name='par_ledger_reset')
            import
            type(c_ptr), value :: comm
        end subroutine
        function c_calibrate(comm) bind(c, name='par_calibrate') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_predict(comm, kind, bytes) bind(c, name='par_predict') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: kind
            integer(c_size_t), value :: bytes
            real(c_double) :: r
        end function
        function c_last_algorithm(comm) bind(c, name='par_last_algorithm') result(r)
            import
            type(c_ptr), value :: comm
            type(c_ptr) :: r
        end function
        function c_algorithm_name(comm, kind, index) bind(c, name='par_algorithm_name') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: kind
            integer(c_int), value :: index
            type(c_ptr) :: r
        end function
        function c_force_algorithm(comm, op_and_name) bind(c, name='par_force_algorithm') result(r)
            import
            type(c_ptr), value :: comm
            character(kind=c_char), intent(in) :: op_and_name(*)
            integer(c_int) :: r
        end function
        function c_alive(comm) bind(c, name='par_alive') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        function c_at(comm, file, line) bind(c, name='par_at') result(r)
            import
            type(c_ptr), value :: comm
            character(kind=c_char), intent(in) :: file(*)
            integer(c_int), value :: line
            type(c_ptr) :: r
        end function
        function c_trace_begin(comm, name) bind(c, name='par_trace_begin') result(r)
            import
            type(c_ptr), value :: comm
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int) :: r
        end function
        function c_trace_end(comm) bind(c, name='par_trace_end') result(r)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: r
        end function
        ! END GENERATED
    end interface

contains

    ! The text at an address of C.
    function string_at(address) result(text)
        type(c_ptr), intent(in) :: address
        character(:), allocatable :: text
        character(kind=c_char), pointer :: bytes(:)
        integer :: i
        text = ''
        if (.not. c_associated(address)) return
        call c_f_pointer(address, bytes, [c_strlen(address)])
        text = repeat(' ', size(bytes))
        do i = 1, size(bytes)
            text(i:i) = bytes(i)
        end do
    end function

    ! End a call: give its result to the caller, or end the program where nobody takes an error.
    subroutine finish(r, comm, result)
        integer(c_int), intent(in) :: r
        type(c_ptr), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(:), allocatable :: text
        if (present(result)) then
            result = r
        else if (r /= PAR_OK) then
            text = ''
            if (c_associated(comm)) text = string_at(c_last_error(comm))
            if (text == '') text = string_at(c_result_text(r))
            write (error_unit, '(a)') text
            flush (error_unit)
            error stop 1
        end if
    end subroutine

    ! The next call on comm is of this line of the program. A file's name that ends with a null character is a
    ! constant, which stays where it is.
    subroutine set_site(comm, file, line)
        type(c_ptr), intent(in) :: comm
        character(*), intent(in), optional, target :: file
        integer, intent(in), optional :: line
        type(c_ptr) :: unused
        if (present(file) .and. present(line)) then
            if (len(file) > 0) then
                if (file(len(file):) == c_null_char) unused = c_at_site(comm, c_loc(file), line)
            end if
        end if
    end subroutine

    ! An array with gaps is NULL for C, so that the other ranks hear of the mistake, too; this is its error.
    function without_gaps(address, contiguous) result(r)
        type(c_ptr), intent(in) :: address
        logical, intent(in) :: contiguous
        type(c_ptr) :: r
        r = address
        if (.not. contiguous) r = c_null_ptr
    end function
    function gaps(comm, where) result(r)
        type(c_ptr), intent(in) :: comm
        character(*), intent(in) :: where
        integer(c_int) :: r
        r = PAR_ERR_ARGUMENT
        if (c_associated(comm)) &
            r = c_fail(comm, r, where//': an array has gaps; copy the section to an array'//c_null_char)
    end function

    ! The bytes of send and recv that a call reads and writes on this rank; 0 where something is wrong already.
    function bytes_touched(wrong, comm, kind, root, count, dtype, send_counts, send_displs, recv_counts, &
        recv_displs) result(bytes)
        type(misfit), intent(in) :: wrong
        type(c_ptr), intent(in) :: comm, send_counts, send_displs, recv_counts, recv_displs
        integer(c_int), intent(in) :: kind, root, dtype
        integer(c_int64_t), intent(in) :: count
        integer(c_int64_t) :: bytes(2)
        type(par_call) :: call
        bytes = 0
        if (wrong%what /= 0 .or. .not. c_associated(comm)) return
        call%kind = kind
        call%root = root
        call%count = count
        call%send_counts = send_counts
        call%send_displs = send_displs
        call%recv_counts = recv_counts
        call%recv_displs = recv_displs
        call c_call_spans(comm, call, bytes(1), bytes(2))
        bytes = bytes*c_dtype_bytes(dtype)
    end function

    ! Is there something wrong with an array of which a call reads or writes so many bytes? An element may be the
    ! first of many, and nobody knows how long an array of assumed size is.
    subroutine compare(wrong, name, array, needs)
        type(misfit), intent(inout) :: wrong
        character(*), intent(in) :: name
        type(*), dimension(..), intent(in), target :: array
        integer(c_int64_t), intent(in) :: needs
        integer(c_intptr_t), target :: head(2)
        integer(c_int64_t) :: elements
        if (wrong%what /= 0 .or. c_associated(c_loc(array), c_loc(PAR_IN_PLACE))) return
        elements = size(array, kind=c_int64_t)
        call c_describe(c_loc(head), array, c_sizeof(head))
        if (.not. is_contiguous(array)) then
            wrong = misfit(1, name)
        else if (rank(array) > 0 .and. elements >= 0 .and. elements*head(2) < needs) then
            wrong = misfit(2, name, elements*head(2), needs)
        end if
    end subroutine
    subroutine compare_list(wrong, name, has, needs)
        type(misfit), intent(inout) :: wrong
        character(*), intent(in) :: name
        integer, intent(in) :: has
        integer(c_int), intent(in) :: needs
        if (wrong%what == 0 .and. has < needs) wrong = misfit(3, name, has, needs)
    end subroutine
    function refuse(wrong, comm, where) result(r)
        type(misfit), intent(in) :: wrong
        type(c_ptr), intent(in) :: comm
        character(*), intent(in) :: where
        integer(c_int) :: r
        character(200) :: text
        r = PAR_ERR_ARGUMENT
        if (wrong%what == 1) then
            text = ' is an array that has gaps; copy the section to an array'
        else
            write (text, '(a, i0, 2a, i0)') ' has ', wrong%has, &
                trim(merge(' bytes  ', ' entries', wrong%what == 2)), ', but the call needs ', wrong%needs
        end if
        if (c_associated(comm)) &
            r = c_fail(comm, r, where//': '//trim(wrong%name)//trim(text)//c_null_char)
    end function

    ! Bytes from the beginning of an array of all ranks' blocks to this rank's; -1: the root alone has the array.
    function own_block(comm, count, dtype, root) result(bytes)
        type(par_comm), intent(in) :: comm
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in), optional :: root
        integer(c_int64_t) :: bytes
        bytes = c_rank(comm%handle)*count*c_dtype_bytes(dtype)
        if (present(root)) bytes = merge(bytes, -1_c_int64_t, root == c_rank(comm%handle))
    end function

    ! The address of an array, or where that is PAR_IN_PLACE, so many bytes into the other one (-1: NULL).
    function or_in_place(array, other, bytes) result(address)
        type(c_ptr), intent(in) :: array, other
        integer(c_int64_t), intent(in) :: bytes
        type(c_ptr) :: address
        address = array
        if (.not. c_associated(array, c_loc(PAR_IN_PLACE))) return
        address = c_null_ptr
        if (bytes >= 0) address = transfer(transfer(other, 0_c_intptr_t) + bytes, c_null_ptr)
    end function

    function par_alloc_bytes(comm, bytes) result(memory)
        type(par_comm), intent(in) :: comm
        integer(c_int64_t), intent(in) :: bytes
        type(c_ptr) :: memory
        memory = c_alloc(comm%handle, bytes)
    end function
    ! GENERATED alloc by make bindings

    subroutine alloc_f64_1(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        real(c_double), pointer, intent(out) :: array(:)
        integer, intent(in) :: upper(1)
        integer, intent(in), optional :: lower(1)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        real(c_double), pointer :: whole(:)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(1), bytes
        integer :: first(1)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_f64_2(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        real(c_double), pointer, intent(out) :: array(:, :)
        integer, intent(in) :: upper(2)
        integer, intent(in), optional :: lower(2)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        real(c_double), pointer :: whole(:, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(2), bytes
        integer :: first(2)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_f64_3(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        real(c_double), pointer, intent(out) :: array(:, :, :)
        integer, intent(in) :: upper(3)
        integer, intent(in), optional :: lower(3)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        real(c_double), pointer :: whole(:, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(3), bytes
        integer :: first(3)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_f64_4(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        real(c_double), pointer, intent(out) :: array(:, :, :, :)
        integer, intent(in) :: upper(4)
        integer, intent(in), optional :: lower(4)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        real(c_double), pointer :: whole(:, :, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(4), bytes
        integer :: first(4)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):, first(4):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_f32_1(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        real(c_float), pointer, intent(out) :: array(:)
        integer, intent(in) :: upper(1)
        integer, intent(in), optional :: lower(1)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        real(c_float), pointer :: whole(:)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(1), bytes
        integer :: first(1)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_f32_2(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        real(c_float), pointer, intent(out) :: array(:, :)
        integer, intent(in) :: upper(2)
        integer, intent(in), optional :: lower(2)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        real(c_float), pointer :: whole(:, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(2), bytes
        integer :: first(2)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_f32_3(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        real(c_float), pointer, intent(out) :: array(:, :, :)
        integer, intent(in) :: upper(3)
        integer, intent(in), optional :: lower(3)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        real(c_float), pointer :: whole(:, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(3), bytes
        integer :: first(3)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_f32_4(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        real(c_float), pointer, intent(out) :: array(:, :, :, :)
        integer, intent(in) :: upper(4)
        integer, intent(in), optional :: lower(4)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        real(c_float), pointer :: whole(:, :, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(4), bytes
        integer :: first(4)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):, first(4):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i8_1(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int8_t), pointer, intent(out) :: array(:)
        integer, intent(in) :: upper(1)
        integer, intent(in), optional :: lower(1)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int8_t), pointer :: whole(:)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(1), bytes
        integer :: first(1)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i8_2(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int8_t), pointer, intent(out) :: array(:, :)
        integer, intent(in) :: upper(2)
        integer, intent(in), optional :: lower(2)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int8_t), pointer :: whole(:, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(2), bytes
        integer :: first(2)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i8_3(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int8_t), pointer, intent(out) :: array(:, :, :)
        integer, intent(in) :: upper(3)
        integer, intent(in), optional :: lower(3)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int8_t), pointer :: whole(:, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(3), bytes
        integer :: first(3)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i8_4(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int8_t), pointer, intent(out) :: array(:, :, :, :)
        integer, intent(in) :: upper(4)
        integer, intent(in), optional :: lower(4)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int8_t), pointer :: whole(:, :, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(4), bytes
        integer :: first(4)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):, first(4):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i32_1(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int32_t), pointer, intent(out) :: array(:)
        integer, intent(in) :: upper(1)
        integer, intent(in), optional :: lower(1)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int32_t), pointer :: whole(:)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(1), bytes
        integer :: first(1)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i32_2(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int32_t), pointer, intent(out) :: array(:, :)
        integer, intent(in) :: upper(2)
        integer, intent(in), optional :: lower(2)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int32_t), pointer :: whole(:, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(2), bytes
        integer :: first(2)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i32_3(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int32_t), pointer, intent(out) :: array(:, :, :)
        integer, intent(in) :: upper(3)
        integer, intent(in), optional :: lower(3)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int32_t), pointer :: whole(:, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(3), bytes
        integer :: first(3)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i32_4(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int32_t), pointer, intent(out) :: array(:, :, :, :)
        integer, intent(in) :: upper(4)
        integer, intent(in), optional :: lower(4)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int32_t), pointer :: whole(:, :, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(4), bytes
        integer :: first(4)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):, first(4):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i64_1(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int64_t), pointer, intent(out) :: array(:)
        integer, intent(in) :: upper(1)
        integer, intent(in), optional :: lower(1)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), pointer :: whole(:)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(1), bytes
        integer :: first(1)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i64_2(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int64_t), pointer, intent(out) :: array(:, :)
        integer, intent(in) :: upper(2)
        integer, intent(in), optional :: lower(2)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), pointer :: whole(:, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(2), bytes
        integer :: first(2)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i64_3(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int64_t), pointer, intent(out) :: array(:, :, :)
        integer, intent(in) :: upper(3)
        integer, intent(in), optional :: lower(3)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), pointer :: whole(:, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(3), bytes
        integer :: first(3)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine

    subroutine alloc_i64_4(comm, array, upper, lower, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int64_t), pointer, intent(out) :: array(:, :, :, :)
        integer, intent(in) :: upper(4)
        integer, intent(in), optional :: lower(4)
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), pointer :: whole(:, :, :, :)
        type(c_ptr) :: memory
        integer(c_size_t) :: extents(4), bytes
        integer :: first(4)
        first = 1
        if (present(lower)) first = lower
        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)
        bytes = product(extents)*(storage_size(array)/8)
        call set_site(comm%handle, file, line)
        memory = c_alloc(comm%handle, bytes)
        array => null()
        if (c_associated(memory)) then
            call c_f_pointer(memory, whole, extents)
            array(first(1):, first(2):, first(3):, first(4):) => whole
        end if
        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)
    end subroutine
    ! END GENERATED
    ! GENERATED procedures by make bindings

    function par_result_name(result) result(r)
        integer(c_int), intent(in) :: result
        character(:), allocatable :: r
        r = string_at(c_result_name(result))
    end function

    function par_result_text(result) result(r)
        integer(c_int), intent(in) :: result
        character(:), allocatable :: r
        r = string_at(c_result_text(result))
    end function

    function par_last_error(comm) result(r)
        type(par_comm), intent(in) :: comm
        character(:), allocatable :: r
        r = string_at(c_last_error(comm%handle))
    end function

    function par_scaled_sum(factor) result(r)
        real(c_double), intent(in) :: factor
        integer(c_int64_t) :: r
        r = c_scaled_sum(factor)
    end function

    function par_op_factor(op) result(r)
        integer(c_int64_t), intent(in) :: op
        real(c_double) :: r
        r = c_op_factor(op)
    end function

    function par_dtype_bytes(dtype) result(r)
        integer(c_int), intent(in) :: dtype
        integer(c_size_t) :: r
        r = c_dtype_bytes(dtype)
    end function

    function par_dtype_name(dtype) result(r)
        integer(c_int), intent(in) :: dtype
        character(:), allocatable :: r
        r = string_at(c_dtype_name(dtype))
    end function

    function par_op_name(op) result(r)
        integer(c_int64_t), intent(in) :: op
        character(:), allocatable :: r
        r = string_at(c_op_name(op))
    end function

    subroutine par_dtype_parse(name, d, result)
        character(*), intent(in) :: name
        integer(c_int), intent(out) :: d
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_dtype_parse(trim(name)//c_null_char, d)
        call finish(r, c_null_ptr, result)
    end subroutine

    subroutine par_op_parse(name, op, result)
        character(*), intent(in) :: name
        integer(c_int64_t), intent(out) :: op
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_op_parse(trim(name)//c_null_char, op)
        call finish(r, c_null_ptr, result)
    end subroutine

    subroutine par_cast_i64(dst, dst_type, src, src_type, count, result)
        type(*), dimension(..), intent(inout), target :: dst
        integer(c_int), intent(in) :: dst_type
        type(*), dimension(..), intent(in), target :: src
        integer(c_int), intent(in) :: src_type
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        type(misfit) :: wrong
        call compare(wrong, 'dst', dst, count*c_dtype_bytes(dst_type))
        call compare(wrong, 'src', src, count*c_dtype_bytes(src_type))
        r = c_cast(c_loc(dst), merge(-1_c_int, dst_type, wrong%what /= 0), c_loc(src), merge(-1_c_int, &
            src_type, wrong%what /= 0), int(count, c_size_t))
        if (wrong%what /= 0) r = refuse(wrong, c_null_ptr, 'par_cast')
        call finish(r, c_null_ptr, result)
    end subroutine

    subroutine par_cast_i32(dst, dst_type, src, src_type, count, result)
        type(*), dimension(..), intent(inout), target :: dst
        integer(c_int), intent(in) :: dst_type
        type(*), dimension(..), intent(in), target :: src
        integer(c_int), intent(in) :: src_type
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(out), optional :: result
        call par_cast_i64(dst, dst_type, src, src_type, int(count, c_int64_t), result)
    end subroutine

    subroutine par_open(comm, desc, result)
        type(par_desc), intent(in), optional, target :: desc
        type(par_comm), intent(out) :: comm
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        type(c_ptr) :: desc_or_null
        desc_or_null = c_null_ptr
        if (present(desc)) desc_or_null = c_loc(desc)
        r = c_open(desc_or_null, comm%handle)
        call finish(r, c_null_ptr, result)
    end subroutine

    subroutine par_defaults(out, desc, result)
        type(par_desc), intent(in), optional, target :: desc
        type(par_desc), intent(out) :: out
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        type(c_ptr) :: desc_or_null
        desc_or_null = c_null_ptr
        if (present(desc)) desc_or_null = c_loc(desc)
        r = c_defaults(desc_or_null, out)
        call finish(r, c_null_ptr, result)
    end subroutine

    function par_launched(rank) result(r)
        integer(c_int), intent(out), target, optional :: rank
        integer(c_int) :: r
        type(c_ptr) :: rank_or_null
        rank_or_null = c_null_ptr
        if (present(rank)) rank_or_null = c_loc(rank)
        r = c_launched(rank_or_null)
    end function

    subroutine par_close(comm, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        call set_site(comm%handle, file, line)
        r = c_close(comm%handle)
        call finish(r, c_null_ptr, result)
    end subroutine

    subroutine par_abort(comm, text, result)
        type(par_comm), intent(in) :: comm
        character(*), intent(in) :: text
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_abort(comm%handle, trim(text)//c_null_char)
        call finish(r, comm%handle, result)
    end subroutine

    function par_rank(comm) result(r)
        type(par_comm), intent(in) :: comm
        integer(c_int) :: r
        r = c_rank(comm%handle)
    end function

    function par_size(comm) result(r)
        type(par_comm), intent(in) :: comm
        integer(c_int) :: r
        r = c_size(comm%handle)
    end function

    function par_world_rank(comm, rank) result(r)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: rank
        integer(c_int) :: r
        r = c_world_rank(comm%handle, rank)
    end function

    function par_node_count(comm) result(r)
        type(par_comm), intent(in) :: comm
        integer(c_int) :: r
        r = c_node_count(comm%handle)
    end function

    function par_node_of(comm, rank) result(r)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: rank
        integer(c_int) :: r
        r = c_node_of(comm%handle, rank)
    end function

    function par_launch_method(comm) result(r)
        type(par_comm), intent(in) :: comm
        character(:), allocatable :: r
        r = string_at(c_launch_method(comm%handle))
    end function

    subroutine par_set_timeout(comm, seconds)
        type(par_comm), intent(in) :: comm
        real(c_double), intent(in) :: seconds
        call c_set_timeout(comm%handle, seconds)
    end subroutine

    function par_timeout(comm) result(r)
        type(par_comm), intent(in) :: comm
        real(c_double) :: r
        r = c_timeout(comm%handle)
    end function

    function par_seconds(comm) result(r)
        type(par_comm), intent(in) :: comm
        real(c_double) :: r
        r = c_seconds(comm%handle)
    end function

    subroutine par_clock_offset(comm, offset, error, result, file, line)
        type(par_comm), intent(in) :: comm
        real(c_double), intent(out) :: offset
        real(c_double), intent(out), target, optional :: error
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(c_ptr) :: error_or_null
        error_or_null = c_null_ptr
        if (present(error)) error_or_null = c_loc(error)
        call set_site(comm%handle, file, line)
        r = c_clock_offset(comm%handle, offset, error_or_null)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_split(comm, color, key, out, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: color
        integer(c_int), intent(in) :: key
        type(par_comm), intent(out) :: out
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        call set_site(comm%handle, file, line)
        r = c_split(comm%handle, color, key, out%handle)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_revoke(comm, result)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_revoke(comm%handle)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_agree(comm, value, result)
        type(par_comm), intent(in) :: comm
        integer(c_int64_t), intent(inout), target :: value
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_agree(comm%handle, c_loc(value))
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_shrink(comm, out, result)
        type(par_comm), intent(in) :: comm
        type(par_comm), intent(out) :: out
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_shrink(comm%handle, out%handle)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_grow(comm, count, out, result)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: count
        type(par_comm), intent(out) :: out
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_grow(comm%handle, count, out%handle)
        call finish(r, comm%handle, result)
    end subroutine

    function par_join_at(comm) result(r)
        type(par_comm), intent(in) :: comm
        character(:), allocatable :: r
        r = string_at(c_join_at(comm%handle))
    end function

    function par_rank_before(comm, rank) result(r)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: rank
        integer(c_int) :: r
        r = c_rank_before(comm%handle, rank)
    end function

    subroutine par_free(comm, memory, result, file, line)
        type(par_comm), intent(in) :: comm
        type(*), dimension(..), intent(inout), target :: memory
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        call set_site(comm%handle, file, line)
        r = c_free(comm%handle, without_gaps(c_loc(memory), is_contiguous(memory)))
        if (.not. (is_contiguous(memory))) &
            r = gaps(comm%handle, 'par_free')
        call finish(r, comm%handle, result)
    end subroutine

    function par_peer(comm, mine, rank) result(r)
        type(par_comm), intent(in) :: comm
        type(*), dimension(..), intent(in), target :: mine
        integer(c_int), intent(in) :: rank
        type(c_ptr) :: r
        r = c_peer(comm%handle, without_gaps(c_loc(mine), is_contiguous(mine)), rank)
    end function

    subroutine par_wait(request, result)
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_wait(request)
        call finish(r, c_null_ptr, result)
    end subroutine

    subroutine par_test(request, done, result)
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out) :: done
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_test(request, done)
        call finish(r, c_null_ptr, result)
    end subroutine

    subroutine par_wait_all(requests, count, result)
        type(par_request), intent(inout) :: requests(*)
        integer(c_int), intent(in) :: count
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_wait_all(requests, count)
        call finish(r, c_null_ptr, result)
    end subroutine

    subroutine par_group_begin(comm, result)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_group_begin(comm%handle)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_group_end(comm, result)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_group_end(comm%handle)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_group_end_begin(comm, request, result)
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_group_end_begin(comm%handle, request)
        call finish(r, comm%handle, result)
    end subroutine

    function par_kind_name(kind) result(r)
        integer(c_int), intent(in) :: kind
        character(:), allocatable :: r
        r = string_at(c_kind_name(kind))
    end function

    subroutine par_all_reduce_i64(send, recv, count, dtype, op, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_REDUCE, 0, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_reduce(or_in_place(c_loc(send), c_loc(recv), 0_c_int64_t), c_loc(recv), int(count, &
            c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), op, comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_reduce')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_reduce_i32(send, recv, count, dtype, op, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_all_reduce_i64(send, recv, int(count, c_int64_t), dtype, op, comm, result, file, line)
    end subroutine

    subroutine par_reduce_scatter_i64(send, recv, count, dtype, op, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_REDUCE_SCATTER, 0, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_reduce_scatter(c_loc(send), or_in_place(c_loc(recv), c_loc(send), own_block(comm, count, &
            dtype)), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), op, comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_reduce_scatter')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_reduce_scatter_i32(send, recv, count, dtype, op, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_reduce_scatter_i64(send, recv, int(count, c_int64_t), dtype, op, comm, result, file, line)
    end subroutine

    subroutine par_reduce_scatterv_i64(send, recv, recv_counts, dtype, op, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in), target, contiguous :: recv_counts(:)
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        call compare_list(wrong, 'recv_counts', size(recv_counts), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_REDUCE_SCATTERV, 0, 0_c_int64_t, dtype, &
            c_null_ptr, c_null_ptr, c_loc(recv_counts), c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_reduce_scatterv(c_loc(send), c_loc(recv), c_loc(recv_counts), merge(-1_c_int, dtype, &
            wrong%what /= 0), op, comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_reduce_scatterv')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_reduce_scatterv_i32(send, recv, recv_counts, dtype, op, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in), target, contiguous :: recv_counts(:)
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), allocatable :: wide_recv_counts(:)
        allocate (wide_recv_counts, source=int(recv_counts, c_int64_t))
        call par_reduce_scatterv_i64(send, recv, wide_recv_counts, dtype, op, comm, result, file, line)
    end subroutine

    subroutine par_all_gather_i64(send, recv, count, dtype, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_GATHER, 0, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_gather(or_in_place(c_loc(send), c_loc(recv), own_block(comm, count, dtype)), c_loc(recv), &
            int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_gather')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_gather_i32(send, recv, count, dtype, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_all_gather_i64(send, recv, int(count, c_int64_t), dtype, comm, result, file, line)
    end subroutine

    subroutine par_all_gatherv_i64(send, recv, recv_counts, dtype, comm, recv_displs, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in), target, contiguous :: recv_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: recv_displs_or_null
        recv_displs_or_null = c_null_ptr
        if (present(recv_displs)) recv_displs_or_null = c_loc(recv_displs)
        call compare_list(wrong, 'recv_counts', size(recv_counts), c_size(comm%handle))
        if (present(recv_displs)) call compare_list(wrong, 'recv_displs', size(recv_displs), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_GATHERV, 0, 0_c_int64_t, dtype, c_null_ptr, &
            c_null_ptr, c_loc(recv_counts), recv_displs_or_null)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_gatherv(c_loc(send), c_loc(recv), c_loc(recv_counts), recv_displs_or_null, merge(-1_c_int, &
            dtype, wrong%what /= 0), comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_gatherv')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_gatherv_i32(send, recv, recv_counts, dtype, comm, recv_displs, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in), target, contiguous :: recv_counts(:)
        integer(c_int32_t), intent(in), target, contiguous, optional :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), allocatable :: wide_recv_counts(:)
        integer(c_int64_t), allocatable :: wide_recv_displs(:)
        allocate (wide_recv_counts, source=int(recv_counts, c_int64_t))
        if (present(recv_displs)) allocate (wide_recv_displs, source=int(recv_displs, c_int64_t))
        call par_all_gatherv_i64(send, recv, wide_recv_counts, dtype, comm, wide_recv_displs, result, file, &
            line)
    end subroutine

    subroutine par_broadcast_i64(send, recv, count, dtype, root, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_BROADCAST, root, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_broadcast(or_in_place(c_loc(send), c_loc(recv), 0_c_int64_t), c_loc(recv), int(count, &
            c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_broadcast')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_broadcast_i32(send, recv, count, dtype, root, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_broadcast_i64(send, recv, int(count, c_int64_t), dtype, root, comm, result, file, line)
    end subroutine

    subroutine par_reduce_i64(send, recv, count, dtype, op, root, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_REDUCE, root, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_reduce(or_in_place(c_loc(send), c_loc(recv), 0_c_int64_t), c_loc(recv), int(count, c_size_t), &
            merge(-1_c_int, dtype, wrong%what /= 0), op, root, comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_reduce')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_reduce_i32(send, recv, count, dtype, op, root, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_reduce_i64(send, recv, int(count, c_int64_t), dtype, op, root, comm, result, file, line)
    end subroutine

    subroutine par_gather_i64(send, recv, count, dtype, root, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_GATHER, root, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_gather(or_in_place(c_loc(send), c_loc(recv), own_block(comm, count, dtype, root)), &
            c_loc(recv), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_gather')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_gather_i32(send, recv, count, dtype, root, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_gather_i64(send, recv, int(count, c_int64_t), dtype, root, comm, result, file, line)
    end subroutine

    subroutine par_gatherv_i64(send, count, recv, dtype, root, comm, recv_counts, recv_displs, result, file, &
        line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int64_t), intent(in) :: count
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in), target, contiguous, optional :: recv_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: recv_counts_or_null
        type(c_ptr) :: recv_displs_or_null
        recv_counts_or_null = c_null_ptr
        if (present(recv_counts)) recv_counts_or_null = c_loc(recv_counts)
        recv_displs_or_null = c_null_ptr
        if (present(recv_displs)) recv_displs_or_null = c_loc(recv_displs)
        if (present(recv_counts)) call compare_list(wrong, 'recv_counts', size(recv_counts), c_size(comm%handle))
        if (present(recv_displs)) call compare_list(wrong, 'recv_displs', size(recv_displs), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_GATHERV, root, count, dtype, c_null_ptr, &
            c_null_ptr, recv_counts_or_null, recv_displs_or_null)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_gatherv(c_loc(send), int(count, c_size_t), c_loc(recv), recv_counts_or_null, &
            recv_displs_or_null, merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_gatherv')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_gatherv_i32(send, count, recv, dtype, root, comm, recv_counts, recv_displs, result, file, &
        line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int32_t), intent(in) :: count
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in), target, contiguous, optional :: recv_counts(:)
        integer(c_int32_t), intent(in), target, contiguous, optional :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), allocatable :: wide_recv_counts(:)
        integer(c_int64_t), allocatable :: wide_recv_displs(:)
        if (present(recv_counts)) allocate (wide_recv_counts, source=int(recv_counts, c_int64_t))
        if (present(recv_displs)) allocate (wide_recv_displs, source=int(recv_displs, c_int64_t))
        call par_gatherv_i64(send, int(count, c_int64_t), recv, dtype, root, comm, wide_recv_counts, &
            wide_recv_displs, result, file, line)
    end subroutine

    subroutine par_scatter_i64(send, recv, count, dtype, root, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_SCATTER, root, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_scatter(c_loc(send), or_in_place(c_loc(recv), c_loc(send), own_block(comm, count, dtype, &
            root)), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_scatter')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_scatter_i32(send, recv, count, dtype, root, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_scatter_i64(send, recv, int(count, c_int64_t), dtype, root, comm, result, file, line)
    end subroutine

    subroutine par_scatterv_i64(send, recv, count, dtype, root, comm, send_counts, send_displs, result, &
        file, line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int64_t), intent(in), target, contiguous, optional :: send_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional :: send_displs(:)
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: send_counts_or_null
        type(c_ptr) :: send_displs_or_null
        send_counts_or_null = c_null_ptr
        if (present(send_counts)) send_counts_or_null = c_loc(send_counts)
        send_displs_or_null = c_null_ptr
        if (present(send_displs)) send_displs_or_null = c_loc(send_displs)
        if (present(send_counts)) call compare_list(wrong, 'send_counts', size(send_counts), c_size(comm%handle))
        if (present(send_displs)) call compare_list(wrong, 'send_displs', size(send_displs), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_SCATTERV, root, count, dtype, &
            send_counts_or_null, send_displs_or_null, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_scatterv(c_loc(send), send_counts_or_null, send_displs_or_null, c_loc(recv), int(count, &
            c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_scatterv')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_scatterv_i32(send, recv, count, dtype, root, comm, send_counts, send_displs, result, &
        file, line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int32_t), intent(in), target, contiguous, optional :: send_counts(:)
        integer(c_int32_t), intent(in), target, contiguous, optional :: send_displs(:)
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), allocatable :: wide_send_counts(:)
        integer(c_int64_t), allocatable :: wide_send_displs(:)
        if (present(send_counts)) allocate (wide_send_counts, source=int(send_counts, c_int64_t))
        if (present(send_displs)) allocate (wide_send_displs, source=int(send_displs, c_int64_t))
        call par_scatterv_i64(send, recv, int(count, c_int64_t), dtype, root, comm, wide_send_counts, &
            wide_send_displs, result, file, line)
    end subroutine

    subroutine par_all_to_all_i64(send, recv, count, dtype, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_TO_ALL, 0, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_to_all(c_loc(send), c_loc(recv), int(count, c_size_t), merge(-1_c_int, dtype, &
            wrong%what /= 0), comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_to_all')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_to_all_i32(send, recv, count, dtype, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_all_to_all_i64(send, recv, int(count, c_int64_t), dtype, comm, result, file, line)
    end subroutine

    subroutine par_all_to_allv_i64(send, send_counts, recv, recv_counts, dtype, comm, send_displs, &
        recv_displs, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int64_t), intent(in), target, contiguous :: send_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional :: send_displs(:)
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in), target, contiguous :: recv_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: send_displs_or_null
        type(c_ptr) :: recv_displs_or_null
        send_displs_or_null = c_null_ptr
        if (present(send_displs)) send_displs_or_null = c_loc(send_displs)
        recv_displs_or_null = c_null_ptr
        if (present(recv_displs)) recv_displs_or_null = c_loc(recv_displs)
        call compare_list(wrong, 'send_counts', size(send_counts), c_size(comm%handle))
        if (present(send_displs)) call compare_list(wrong, 'send_displs', size(send_displs), c_size(comm%handle))
        call compare_list(wrong, 'recv_counts', size(recv_counts), c_size(comm%handle))
        if (present(recv_displs)) call compare_list(wrong, 'recv_displs', size(recv_displs), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_TO_ALLV, 0, 0_c_int64_t, dtype, &
            c_loc(send_counts), send_displs_or_null, c_loc(recv_counts), recv_displs_or_null)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_to_allv(c_loc(send), c_loc(send_counts), send_displs_or_null, c_loc(recv), &
            c_loc(recv_counts), recv_displs_or_null, merge(-1_c_int, dtype, wrong%what /= 0), comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_to_allv')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_to_allv_i32(send, send_counts, recv, recv_counts, dtype, comm, send_displs, &
        recv_displs, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int32_t), intent(in), target, contiguous :: send_counts(:)
        integer(c_int32_t), intent(in), target, contiguous, optional :: send_displs(:)
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in), target, contiguous :: recv_counts(:)
        integer(c_int32_t), intent(in), target, contiguous, optional :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), allocatable :: wide_send_counts(:)
        integer(c_int64_t), allocatable :: wide_send_displs(:)
        integer(c_int64_t), allocatable :: wide_recv_counts(:)
        integer(c_int64_t), allocatable :: wide_recv_displs(:)
        allocate (wide_send_counts, source=int(send_counts, c_int64_t))
        if (present(send_displs)) allocate (wide_send_displs, source=int(send_displs, c_int64_t))
        allocate (wide_recv_counts, source=int(recv_counts, c_int64_t))
        if (present(recv_displs)) allocate (wide_recv_displs, source=int(recv_displs, c_int64_t))
        call par_all_to_allv_i64(send, wide_send_counts, recv, wide_recv_counts, dtype, comm, &
            wide_send_displs, wide_recv_displs, result, file, line)
    end subroutine

    subroutine par_barrier(comm, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        call set_site(comm%handle, file, line)
        r = c_barrier(comm%handle)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_tag(comm, tag)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: tag
        call c_tag(comm%handle, tag)
    end subroutine

    subroutine par_send_i64(send, count, dtype, peer, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: peer
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_SEND, 0, count, dtype, c_null_ptr, c_null_ptr, &
            c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call set_site(comm%handle, file, line)
        r = c_send(c_loc(send), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), peer, &
            comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_send')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_send_i32(send, count, dtype, peer, comm, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: peer
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_send_i64(send, int(count, c_int64_t), dtype, peer, comm, result, file, line)
    end subroutine

    subroutine par_recv_i64(recv, count, dtype, peer, comm, result, file, line)
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: peer
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_RECV, 0, count, dtype, c_null_ptr, c_null_ptr, &
            c_null_ptr, c_null_ptr)
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_recv(c_loc(recv), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), peer, &
            comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_recv')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_recv_i32(recv, count, dtype, peer, comm, result, file, line)
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: peer
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_recv_i64(recv, int(count, c_int64_t), dtype, peer, comm, result, file, line)
    end subroutine

    subroutine par_sendrecv_i64(send, send_count, dest, recv, recv_count, source, dtype, comm, result, file, &
        line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int64_t), intent(in) :: send_count
        integer(c_int), intent(in) :: dest
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in) :: recv_count
        integer(c_int), intent(in) :: source
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        call compare(wrong, 'send', send, send_count*c_dtype_bytes(dtype))
        call compare(wrong, 'recv', recv, recv_count*c_dtype_bytes(dtype))
        call set_site(comm%handle, file, line)
        r = c_sendrecv(c_loc(send), int(send_count, c_size_t), dest, c_loc(recv), int(recv_count, c_size_t), &
            source, merge(-1_c_int, dtype, wrong%what /= 0), comm%handle)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_sendrecv')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_sendrecv_i32(send, send_count, dest, recv, recv_count, source, dtype, comm, result, file, &
        line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int32_t), intent(in) :: send_count
        integer(c_int), intent(in) :: dest
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in) :: recv_count
        integer(c_int), intent(in) :: source
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_sendrecv_i64(send, int(send_count, c_int64_t), dest, recv, int(recv_count, c_int64_t), &
            source, dtype, comm, result, file, line)
    end subroutine

    subroutine par_all_reduce_begin_i64(send, recv, count, dtype, op, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_REDUCE, 0, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_reduce_begin(or_in_place(c_loc(send), c_loc(recv), 0_c_int64_t), c_loc(recv), int(count, &
            c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), op, comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_reduce_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_reduce_begin_i32(send, recv, count, dtype, op, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_all_reduce_begin_i64(send, recv, int(count, c_int64_t), dtype, op, comm, request, result, &
            file, line)
    end subroutine

    subroutine par_reduce_scatter_begin_i64(send, recv, count, dtype, op, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_REDUCE_SCATTER, 0, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_reduce_scatter_begin(c_loc(send), or_in_place(c_loc(recv), c_loc(send), own_block(comm, count, &
            dtype)), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), op, comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_reduce_scatter_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_reduce_scatter_begin_i32(send, recv, count, dtype, op, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_reduce_scatter_begin_i64(send, recv, int(count, c_int64_t), dtype, op, comm, request, &
            result, file, line)
    end subroutine

    subroutine par_reduce_scatterv_begin_i64(send, recv, recv_counts, dtype, op, comm, request, result, &
        file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in), target, contiguous, asynchronous :: recv_counts(:)
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        call compare_list(wrong, 'recv_counts', size(recv_counts), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_REDUCE_SCATTERV, 0, 0_c_int64_t, dtype, &
            c_null_ptr, c_null_ptr, c_loc(recv_counts), c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_reduce_scatterv_begin(c_loc(send), c_loc(recv), c_loc(recv_counts), merge(-1_c_int, dtype, &
            wrong%what /= 0), op, comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_reduce_scatterv_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_gather_begin_i64(send, recv, count, dtype, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_GATHER, 0, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_gather_begin(or_in_place(c_loc(send), c_loc(recv), own_block(comm, count, dtype)), &
            c_loc(recv), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_gather_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_gather_begin_i32(send, recv, count, dtype, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_all_gather_begin_i64(send, recv, int(count, c_int64_t), dtype, comm, request, result, file, &
            line)
    end subroutine

    subroutine par_all_gatherv_begin_i64(send, recv, recv_counts, dtype, comm, request, recv_displs, result, &
        file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in), target, contiguous, asynchronous :: recv_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional, asynchronous :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: recv_displs_or_null
        recv_displs_or_null = c_null_ptr
        if (present(recv_displs)) recv_displs_or_null = c_loc(recv_displs)
        call compare_list(wrong, 'recv_counts', size(recv_counts), c_size(comm%handle))
        if (present(recv_displs)) call compare_list(wrong, 'recv_displs', size(recv_displs), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_GATHERV, 0, 0_c_int64_t, dtype, c_null_ptr, &
            c_null_ptr, c_loc(recv_counts), recv_displs_or_null)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_gatherv_begin(c_loc(send), c_loc(recv), c_loc(recv_counts), recv_displs_or_null, &
            merge(-1_c_int, dtype, wrong%what /= 0), comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_gatherv_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_broadcast_begin_i64(send, recv, count, dtype, root, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_BROADCAST, root, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_broadcast_begin(or_in_place(c_loc(send), c_loc(recv), 0_c_int64_t), c_loc(recv), int(count, &
            c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_broadcast_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_broadcast_begin_i32(send, recv, count, dtype, root, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_broadcast_begin_i64(send, recv, int(count, c_int64_t), dtype, root, comm, request, result, &
            file, line)
    end subroutine

    subroutine par_reduce_begin_i64(send, recv, count, dtype, op, root, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_REDUCE, root, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_reduce_begin(or_in_place(c_loc(send), c_loc(recv), 0_c_int64_t), c_loc(recv), int(count, &
            c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), op, root, comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_reduce_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_reduce_begin_i32(send, recv, count, dtype, op, root, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: op
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_reduce_begin_i64(send, recv, int(count, c_int64_t), dtype, op, root, comm, request, result, &
            file, line)
    end subroutine

    subroutine par_gather_begin_i64(send, recv, count, dtype, root, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_GATHER, root, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_gather_begin(or_in_place(c_loc(send), c_loc(recv), own_block(comm, count, dtype, root)), &
            c_loc(recv), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle, &
            request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_gather_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_gather_begin_i32(send, recv, count, dtype, root, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_gather_begin_i64(send, recv, int(count, c_int64_t), dtype, root, comm, request, result, &
            file, line)
    end subroutine

    subroutine par_gatherv_begin_i64(send, count, recv, dtype, root, comm, request, recv_counts, &
        recv_displs, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        integer(c_int64_t), intent(in) :: count
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in), target, contiguous, optional, asynchronous :: recv_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional, asynchronous :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: recv_counts_or_null
        type(c_ptr) :: recv_displs_or_null
        recv_counts_or_null = c_null_ptr
        if (present(recv_counts)) recv_counts_or_null = c_loc(recv_counts)
        recv_displs_or_null = c_null_ptr
        if (present(recv_displs)) recv_displs_or_null = c_loc(recv_displs)
        if (present(recv_counts)) call compare_list(wrong, 'recv_counts', size(recv_counts), c_size(comm%handle))
        if (present(recv_displs)) call compare_list(wrong, 'recv_displs', size(recv_displs), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_GATHERV, root, count, dtype, c_null_ptr, &
            c_null_ptr, recv_counts_or_null, recv_displs_or_null)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_gatherv_begin(c_loc(send), int(count, c_size_t), c_loc(recv), recv_counts_or_null, &
            recv_displs_or_null, merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_gatherv_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_scatter_begin_i64(send, recv, count, dtype, root, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_SCATTER, root, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_scatter_begin(c_loc(send), or_in_place(c_loc(recv), c_loc(send), own_block(comm, count, dtype, &
            root)), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_scatter_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_scatter_begin_i32(send, recv, count, dtype, root, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_scatter_begin_i64(send, recv, int(count, c_int64_t), dtype, root, comm, request, result, &
            file, line)
    end subroutine

    subroutine par_scatterv_begin_i64(send, recv, count, dtype, root, comm, request, send_counts, &
        send_displs, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        integer(c_int64_t), intent(in), target, contiguous, optional, asynchronous :: send_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional, asynchronous :: send_displs(:)
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: root
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: send_counts_or_null
        type(c_ptr) :: send_displs_or_null
        send_counts_or_null = c_null_ptr
        if (present(send_counts)) send_counts_or_null = c_loc(send_counts)
        send_displs_or_null = c_null_ptr
        if (present(send_displs)) send_displs_or_null = c_loc(send_displs)
        if (present(send_counts)) call compare_list(wrong, 'send_counts', size(send_counts), c_size(comm%handle))
        if (present(send_displs)) call compare_list(wrong, 'send_displs', size(send_displs), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_SCATTERV, root, count, dtype, &
            send_counts_or_null, send_displs_or_null, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_scatterv_begin(c_loc(send), send_counts_or_null, send_displs_or_null, c_loc(recv), int(count, &
            c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), root, comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_scatterv_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_to_all_begin_i64(send, recv, count, dtype, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_TO_ALL, 0, count, dtype, c_null_ptr, &
            c_null_ptr, c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_to_all_begin(c_loc(send), c_loc(recv), int(count, c_size_t), merge(-1_c_int, dtype, &
            wrong%what /= 0), comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_to_all_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_all_to_all_begin_i32(send, recv, count, dtype, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_all_to_all_begin_i64(send, recv, int(count, c_int64_t), dtype, comm, request, result, file, &
            line)
    end subroutine

    subroutine par_all_to_allv_begin_i64(send, send_counts, recv, recv_counts, dtype, comm, request, &
        send_displs, recv_displs, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        integer(c_int64_t), intent(in), target, contiguous, asynchronous :: send_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional, asynchronous :: send_displs(:)
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in), target, contiguous, asynchronous :: recv_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional, asynchronous :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: send_displs_or_null
        type(c_ptr) :: recv_displs_or_null
        send_displs_or_null = c_null_ptr
        if (present(send_displs)) send_displs_or_null = c_loc(send_displs)
        recv_displs_or_null = c_null_ptr
        if (present(recv_displs)) recv_displs_or_null = c_loc(recv_displs)
        call compare_list(wrong, 'send_counts', size(send_counts), c_size(comm%handle))
        if (present(send_displs)) call compare_list(wrong, 'send_displs', size(send_displs), c_size(comm%handle))
        call compare_list(wrong, 'recv_counts', size(recv_counts), c_size(comm%handle))
        if (present(recv_displs)) call compare_list(wrong, 'recv_displs', size(recv_displs), c_size(comm%handle))
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_ALL_TO_ALLV, 0, 0_c_int64_t, dtype, &
            c_loc(send_counts), send_displs_or_null, c_loc(recv_counts), recv_displs_or_null)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_all_to_allv_begin(c_loc(send), c_loc(send_counts), send_displs_or_null, c_loc(recv), &
            c_loc(recv_counts), recv_displs_or_null, merge(-1_c_int, dtype, wrong%what /= 0), comm%handle, &
            request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_all_to_allv_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_barrier_begin(comm, request, result, file, line)
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        call set_site(comm%handle, file, line)
        r = c_barrier_begin(comm%handle, request)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_send_begin_i64(send, count, dtype, peer, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: peer
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_SEND, 0, count, dtype, c_null_ptr, c_null_ptr, &
            c_null_ptr, c_null_ptr)
        call compare(wrong, 'send', send, needs(1))
        call set_site(comm%handle, file, line)
        r = c_send_begin(c_loc(send), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), peer, &
            comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_send_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_send_begin_i32(send, count, dtype, peer, comm, request, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: peer
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_send_begin_i64(send, int(count, c_int64_t), dtype, peer, comm, request, result, file, line)
    end subroutine

    subroutine par_recv_begin_i64(recv, count, dtype, peer, comm, request, result, file, line)
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: peer
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        needs = bytes_touched(wrong, comm%handle, PAR_KIND_RECV, 0, count, dtype, c_null_ptr, c_null_ptr, &
            c_null_ptr, c_null_ptr)
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(comm%handle, file, line)
        r = c_recv_begin(c_loc(recv), int(count, c_size_t), merge(-1_c_int, dtype, wrong%what /= 0), peer, &
            comm%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, comm%handle, 'par_recv_begin')
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_recv_begin_i32(recv, count, dtype, peer, comm, request, result, file, line)
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int32_t), intent(in) :: count
        integer(c_int), intent(in) :: dtype
        integer(c_int), intent(in) :: peer
        type(par_comm), intent(in) :: comm
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        call par_recv_begin_i64(recv, int(count, c_int64_t), dtype, peer, comm, request, result, file, line)
    end subroutine

    subroutine par_neighbors_open(comm, degree, peers, neighbors, sources, result, file, line)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: degree
        integer(c_int), intent(in) :: peers(*)
        integer(c_int), intent(in), target, contiguous, optional :: sources(:)
        type(par_neighbors), intent(out) :: neighbors
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(c_ptr) :: sources_or_null
        sources_or_null = c_null_ptr
        if (present(sources)) sources_or_null = c_loc(sources)
        call set_site(comm%handle, file, line)
        r = c_neighbors_open(comm%handle, degree, peers, sources_or_null, neighbors%handle)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_neighbor_exchange_i64(send, send_counts, recv, recv_counts, dtype, neighbors, &
        send_displs, recv_displs, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int64_t), intent(in), target, contiguous :: send_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional :: send_displs(:)
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int64_t), intent(in), target, contiguous :: recv_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        type(par_neighbors), intent(in) :: neighbors
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: send_displs_or_null
        type(c_ptr) :: recv_displs_or_null
        send_displs_or_null = c_null_ptr
        if (present(send_displs)) send_displs_or_null = c_loc(send_displs)
        recv_displs_or_null = c_null_ptr
        if (present(recv_displs)) recv_displs_or_null = c_loc(recv_displs)
        call compare_list(wrong, 'send_counts', size(send_counts), c_neighbors_degree(neighbors%handle))
        if (present(send_displs)) call compare_list(wrong, 'send_displs', size(send_displs), c_neighbors_degree(neighbors%handle))
        call compare_list(wrong, 'recv_counts', size(recv_counts), c_neighbors_degree(neighbors%handle))
        if (present(recv_displs)) call compare_list(wrong, 'recv_displs', size(recv_displs), c_neighbors_degree(neighbors%handle))
        needs = bytes_touched(wrong, c_neighbors_comm(neighbors%handle), PAR_KIND_NEIGHBOR_EXCHANGE, 0, &
            0_c_int64_t, dtype, c_loc(send_counts), send_displs_or_null, c_loc(recv_counts), &
            recv_displs_or_null)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(c_neighbors_comm(neighbors%handle), file, line)
        r = c_neighbor_exchange(c_loc(send), c_loc(send_counts), send_displs_or_null, c_loc(recv), &
            c_loc(recv_counts), recv_displs_or_null, merge(-1_c_int, dtype, wrong%what /= 0), &
            neighbors%handle)
        if (wrong%what /= 0) r = refuse(wrong, c_neighbors_comm(neighbors%handle), 'par_neighbor_exchange')
        call finish(r, c_neighbors_comm(neighbors%handle), result)
    end subroutine

    subroutine par_neighbor_exchange_i32(send, send_counts, recv, recv_counts, dtype, neighbors, &
        send_displs, recv_displs, result, file, line)
        type(*), dimension(..), intent(in), target :: send
        integer(c_int32_t), intent(in), target, contiguous :: send_counts(:)
        integer(c_int32_t), intent(in), target, contiguous, optional :: send_displs(:)
        type(*), dimension(..), intent(inout), target :: recv
        integer(c_int32_t), intent(in), target, contiguous :: recv_counts(:)
        integer(c_int32_t), intent(in), target, contiguous, optional :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        type(par_neighbors), intent(in) :: neighbors
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int64_t), allocatable :: wide_send_counts(:)
        integer(c_int64_t), allocatable :: wide_send_displs(:)
        integer(c_int64_t), allocatable :: wide_recv_counts(:)
        integer(c_int64_t), allocatable :: wide_recv_displs(:)
        allocate (wide_send_counts, source=int(send_counts, c_int64_t))
        if (present(send_displs)) allocate (wide_send_displs, source=int(send_displs, c_int64_t))
        allocate (wide_recv_counts, source=int(recv_counts, c_int64_t))
        if (present(recv_displs)) allocate (wide_recv_displs, source=int(recv_displs, c_int64_t))
        call par_neighbor_exchange_i64(send, wide_send_counts, recv, wide_recv_counts, dtype, neighbors, &
            wide_send_displs, wide_recv_displs, result, file, line)
    end subroutine

    subroutine par_neighbor_exchange_begin_i64(send, send_counts, recv, recv_counts, dtype, neighbors, &
        request, send_displs, recv_displs, result, file, line)
        type(*), dimension(..), intent(in), target, asynchronous :: send
        integer(c_int64_t), intent(in), target, contiguous, asynchronous :: send_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional, asynchronous :: send_displs(:)
        type(*), dimension(..), intent(inout), target, asynchronous :: recv
        integer(c_int64_t), intent(in), target, contiguous, asynchronous :: recv_counts(:)
        integer(c_int64_t), intent(in), target, contiguous, optional, asynchronous :: recv_displs(:)
        integer(c_int), intent(in) :: dtype
        type(par_neighbors), intent(in) :: neighbors
        type(par_request), intent(inout) :: request
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        type(misfit) :: wrong
        integer(c_int64_t) :: needs(2)
        type(c_ptr) :: send_displs_or_null
        type(c_ptr) :: recv_displs_or_null
        send_displs_or_null = c_null_ptr
        if (present(send_displs)) send_displs_or_null = c_loc(send_displs)
        recv_displs_or_null = c_null_ptr
        if (present(recv_displs)) recv_displs_or_null = c_loc(recv_displs)
        call compare_list(wrong, 'send_counts', size(send_counts), c_neighbors_degree(neighbors%handle))
        if (present(send_displs)) call compare_list(wrong, 'send_displs', size(send_displs), c_neighbors_degree(neighbors%handle))
        call compare_list(wrong, 'recv_counts', size(recv_counts), c_neighbors_degree(neighbors%handle))
        if (present(recv_displs)) call compare_list(wrong, 'recv_displs', size(recv_displs), c_neighbors_degree(neighbors%handle))
        needs = bytes_touched(wrong, c_neighbors_comm(neighbors%handle), PAR_KIND_NEIGHBOR_EXCHANGE, 0, &
            0_c_int64_t, dtype, c_loc(send_counts), send_displs_or_null, c_loc(recv_counts), &
            recv_displs_or_null)
        call compare(wrong, 'send', send, needs(1))
        call compare(wrong, 'recv', recv, needs(2))
        call set_site(c_neighbors_comm(neighbors%handle), file, line)
        r = c_neighbor_exchange_begin(c_loc(send), c_loc(send_counts), send_displs_or_null, c_loc(recv), &
            c_loc(recv_counts), recv_displs_or_null, merge(-1_c_int, dtype, wrong%what /= 0), &
            neighbors%handle, request)
        if (wrong%what /= 0) r = refuse(wrong, c_neighbors_comm(neighbors%handle), 'par_neighbor_exchange_begin')
        call finish(r, c_neighbors_comm(neighbors%handle), result)
    end subroutine

    function par_neighbors_comm(neighbors) result(r)
        type(par_neighbors), intent(in) :: neighbors
        type(par_comm) :: r
        r%handle = c_neighbors_comm(neighbors%handle)
    end function

    function par_neighbors_degree(neighbors) result(r)
        type(par_neighbors), intent(in) :: neighbors
        integer(c_int) :: r
        r = c_neighbors_degree(neighbors%handle)
    end function

    subroutine par_neighbors_close(neighbors, result, file, line)
        type(par_neighbors), intent(in) :: neighbors
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        call set_site(c_neighbors_comm(neighbors%handle), file, line)
        r = c_neighbors_close(neighbors%handle)
        call finish(r, c_null_ptr, result)
    end subroutine

    subroutine par_signal(word, value, rank, comm, result)
        integer(c_int64_t), intent(inout), target :: word
        integer(c_int64_t), intent(in) :: value
        integer(c_int), intent(in) :: rank
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_signal(c_loc(word), value, rank, comm%handle)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_wait_signal(word, value, comm, result, file, line)
        integer(c_int64_t), intent(inout), target :: word
        integer(c_int64_t), intent(in) :: value
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        character(*), intent(in), optional :: file
        integer, intent(in), optional :: line
        integer(c_int) :: r
        call set_site(comm%handle, file, line)
        r = c_wait_signal(c_loc(word), value, comm%handle)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_ledger_reset(comm)
        type(par_comm), intent(in) :: comm
        call c_ledger_reset(comm%handle)
    end subroutine

    subroutine par_calibrate(comm, result)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_calibrate(comm%handle)
        call finish(r, comm%handle, result)
    end subroutine

    function par_predict_i64(comm, kind, bytes) result(r)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: kind
        integer(c_int64_t), intent(in) :: bytes
        real(c_double) :: r
        r = c_predict(comm%handle, kind, int(bytes, c_size_t))
    end function

    function par_predict_i32(comm, kind, bytes) result(r)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: kind
        integer(c_int32_t), intent(in) :: bytes
        real(c_double) :: r
        r = par_predict_i64(comm, kind, int(bytes, c_int64_t))
    end function

    function par_last_algorithm(comm) result(r)
        type(par_comm), intent(in) :: comm
        character(:), allocatable :: r
        r = string_at(c_last_algorithm(comm%handle))
    end function

    function par_algorithm_name(comm, kind, index) result(r)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(in) :: kind
        integer(c_int), intent(in) :: index
        character(:), allocatable :: r
        r = string_at(c_algorithm_name(comm%handle, kind, index))
    end function

    subroutine par_force_algorithm(comm, op_and_name, result)
        type(par_comm), intent(in) :: comm
        character(*), intent(in) :: op_and_name
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_force_algorithm(comm%handle, trim(op_and_name)//c_null_char)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_alive(comm, result)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_alive(comm%handle)
        call finish(r, comm%handle, result)
    end subroutine

    function par_at(comm, file, line) result(r)
        type(par_comm), intent(in) :: comm
        character(*), intent(in) :: file
        integer(c_int), intent(in) :: line
        type(par_comm) :: r
        r%handle = c_at(comm%handle, trim(file)//c_null_char, line)
    end function

    subroutine par_trace_begin(comm, name, result)
        type(par_comm), intent(in) :: comm
        character(*), intent(in) :: name
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_trace_begin(comm%handle, trim(name)//c_null_char)
        call finish(r, comm%handle, result)
    end subroutine

    subroutine par_trace_end(comm, result)
        type(par_comm), intent(in) :: comm
        integer(c_int), intent(out), optional :: result
        integer(c_int) :: r
        r = c_trace_end(comm%handle)
        call finish(r, comm%handle, result)
    end subroutine
    ! END GENERATED
end module

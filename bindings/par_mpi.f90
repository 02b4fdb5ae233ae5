! par_mpi.f90 - par.h adopts a communicator of a Fortran program of MPI, as an integer (mpif.h, use mpi) or of
! mpi_f08. Compile par.f90 and this file by mpifort, and par.h by mpicc -DPAR_MPI.
!
! Public domain or MIT-0, as par.h.

module par_mpi
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    use mpi_f08, only: MPI_Comm
    use par
    implicit none
    private
    public :: par_open_mpi

    ! As in C: par_open_mpi(mpi, comm [, desc] [, result]).
    interface par_open_mpi
        module procedure open_integer, open_f08
    end interface
    interface
        function c_open_mpi(desc, mpi, comm) bind(c, name='par_open_mpi_f') result(r)
            import
            type(c_ptr), value :: desc
            integer(c_int), value :: mpi
            type(c_ptr), intent(out) :: comm
            integer(c_int) :: r
        end function
    end interface

contains

    subroutine open_integer(mpi, comm, desc, result)
        integer, intent(in) :: mpi
        type(par_comm), intent(out) :: comm
        type(par_desc), intent(in), optional, target :: desc
        integer(c_int), intent(out), optional :: result
        type(c_ptr) :: desc_or_null
        integer(c_int) :: r
        desc_or_null = c_null_ptr
        if (present(desc)) desc_or_null = c_loc(desc)
        r = c_open_mpi(desc_or_null, mpi, comm%handle)
        if (present(result)) then
            result = r
        else if (r /= PAR_OK) then
            write (error_unit, '(2a)') 'par_open_mpi: ', par_result_text(r)
            error stop 1
        end if
    end subroutine

    subroutine open_f08(mpi, comm, desc, result)
        type(MPI_Comm), intent(in) :: mpi
        type(par_comm), intent(out) :: comm
        type(par_desc), intent(in), optional, target :: desc
        integer(c_int), intent(out), optional :: result
        call open_integer(mpi%mpi_val, comm, desc, result)
    end subroutine
end module

! C and Fortran in one program: handles, statuses, attributes (MPI 5.0 §19.3).
! ranks: 1 2
program languages
  use mpi_f08
  use checks
  implicit none
  interface
    subroutine c_part(comm, key, status) bind(C)
      import :: MPI_Comm, MPI_Status
      type(MPI_Comm) :: comm
      integer :: key
      type(MPI_Status) :: status
    end subroutine
    function c_ignores(status) bind(C)
      import :: MPI_Status
      type(MPI_Status) :: status
      integer :: c_ignores
    end function
  end interface
  type(MPI_Comm) :: dup
  type(MPI_Status) :: status
  integer :: key
  integer(kind=MPI_ADDRESS_KIND) :: value
  logical :: flag
  call MPI_Init()
  call MPI_Comm_dup(MPI_COMM_WORLD, dup)
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, &
      0_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(dup, key, 42_MPI_ADDRESS_KIND)
  status%MPI_SOURCE = 3
  call c_part(dup, key, status)
  ! What C has set.
  call MPI_Comm_get_attr(dup, key, value, flag)
  call check(flag .and. value == 4096, 'an attribute that C has set')
  call check(status%MPI_TAG == 77, 'a status that C has set')
  call check(c_ignores(MPI_STATUS_IGNORE) == 1 .and. c_ignores(status) == 0, 'MPI_STATUS_IGNORE')
  call MPI_Comm_free(dup)
  call MPI_Finalize()
end program

#include "mpi.inc"
! The environment, sessions, generalized requests, the ABI (MPI 5.0 chapters 9, 11, 13, 21).
! ranks: 1 3
program environment
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer, parameter :: AK = MPI_ADDRESS_KIND
  integer :: ierr, provided, n
  logical :: flag
  external :: query, free, cancel

  call MPI_Initialized(flag, ierr)
  call check(.not. flag, 'not initialized')
  call session()
  call MPI_Init_thread(MPI_THREAD_SERIALIZED, provided, ierr)
  call check(provided >= MPI_THREAD_SERIALIZED, 'thread level')
  call MPI_Query_thread(n, ierr)
  call check(n == provided, 'query_thread')
  call MPI_Is_thread_main(flag, ierr)
  call check(flag, 'the main thread')
  call versions()
  call memory()
  call generalized()
  call abi()
  call MPI_Pcontrol(0)
  call MPI_Finalize(ierr)
  call MPI_Finalized(flag, ierr)
  call check(flag, 'finalized')

contains

  subroutine session()
    integer :: one, group, comm, length, sets
    character(len=MPI_MAX_PSET_NAME_LEN) :: name
    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, one, ierr)
    call check(ierr == MPI_SUCCESS, 'session_init')
    call MPI_Session_get_num_psets(one, MPI_INFO_NULL, sets, ierr)
    call check(sets >= 2, 'process sets')
    length = 0
    call MPI_Session_get_nth_pset(one, MPI_INFO_NULL, 0, length, name, ierr)
    call check(length >= 10, 'length of a process set')
    call MPI_Session_get_nth_pset(one, MPI_INFO_NULL, 0, length, name, ierr)
    call check(len_trim(name) == length .and. name(:6) == 'mpi://', 'name of a process set')
    call MPI_Group_from_session_pset(one, 'mpi://SELF', group, ierr)
    call MPI_Comm_create_from_group(group, 'a tag', MPI_INFO_NULL, MPI_ERRORS_RETURN, comm, ierr)
    call MPI_Comm_size(comm, n, ierr)
    call check(n == 1, 'a communicator of a session')
    call MPI_Comm_free(comm, ierr)
    call MPI_Group_free(group, ierr)
    call MPI_Session_finalize(one, ierr)
    call check(one == MPI_SESSION_NULL, 'session_finalize')
  end subroutine

  subroutine versions()
    integer :: minor
    character(len=MPI_MAX_PROCESSOR_NAME) :: host
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: text
    double precision :: start
    call MPI_Get_version(n, minor, ierr)
    call check(n == MPI_VERSION .and. minor == MPI_SUBVERSION, 'version')
    call MPI_Get_library_version(text, n, ierr)
    call check(len_trim(text) == n .and. n > 0, 'library version')
    call MPI_Get_processor_name(host, n, ierr)
    call check(len_trim(host) == n .and. n > 0, 'processor name')
    start = MPI_Wtime()
    call check(MPI_Wtime() >= start .and. MPI_Wtick() > 0 .and. MPI_Wtick() < 1, 'time')
  end subroutine

  subroutine memory()
    use, intrinsic :: iso_c_binding
    integer(kind=AK) :: address
    double precision, pointer :: d(:)
    type(c_ptr) :: at
    call MPI_Alloc_mem(800_AK, MPI_INFO_NULL, address, ierr)
    call check(address /= 0, 'memory')
    at = transfer(address, at)
    call c_f_pointer(at, d, [100])
    d = 1
    call MPI_Free_mem(d, ierr)
#ifdef WITH_MODULE
    call MPI_Alloc_mem(800_AK, MPI_INFO_NULL, at, ierr)
    call c_f_pointer(at, d, [100])
    d = 1
    call MPI_Free_mem(d, ierr)
#endif
  end subroutine

  subroutine generalized()
    integer :: request, status(MPI_STATUS_SIZE), count
    logical :: done
    call MPI_Grequest_start(query, free, cancel, 5_AK, request, ierr)
    call MPI_Test(request, done, MPI_STATUS_IGNORE, ierr)
    call check(.not. done, 'an operation under way')
    call MPI_Cancel(request, ierr)
    call MPI_Grequest_complete(request, ierr)
    call MPI_Wait(request, status, ierr)
    call MPI_Get_count(status, MPI_INTEGER, count, ierr)
    call check(count == 5 .and. status(MPI_TAG) == 4, 'status of a generalized request')
    call MPI_Test_cancelled(status, done, ierr)
    call check(done, 'it was cancelled')
  end subroutine

  ! The C library knows how LOGICALs look, and which types there are.
  subroutine abi()
    integer :: info, minor, length
    logical :: yes, no, is_set
    character(len=10) :: value
    call MPI_Abi_get_version(n, minor, ierr)
    call check(n == MPI_ABI_VERSION .and. minor == MPI_ABI_SUBVERSION, 'version of the ABI')
    call MPI_Abi_get_fortran_booleans(4, yes, no, is_set, ierr)
    call check(is_set .and. yes .and. .not. no, 'booleans')
    call MPI_Abi_get_fortran_info(info, ierr)
    call check(info /= MPI_INFO_NULL, 'info about Fortran')
    length = 10
    call MPI_Info_get_string(info, 'mpi_integer_size', length, value, is_set, ierr)
    call check(is_set .and. value == '4', 'size of INTEGER')
    call MPI_Info_free(info, ierr)
  end subroutine
end program

subroutine query(extra, status, ierr)
  USE_MPI
  implicit none
  INCLUDE_MPI
  integer(kind=MPI_ADDRESS_KIND) :: extra
  integer :: status(MPI_STATUS_SIZE), ierr
  status(MPI_SOURCE) = MPI_UNDEFINED
  status(MPI_TAG) = 4
  call MPI_Status_set_elements(status, MPI_INTEGER, int(extra), ierr)
  call MPI_Status_set_cancelled(status, .true., ierr)
  ierr = MPI_SUCCESS
end subroutine

subroutine free(extra, ierr)
  USE_MPI
  implicit none
  INCLUDE_MPI
  integer(kind=MPI_ADDRESS_KIND) :: extra
  integer :: ierr
  ierr = merge(MPI_SUCCESS, MPI_ERR_OTHER, extra == 5)
end subroutine

subroutine cancel(extra, complete, ierr)
  USE_MPI
  implicit none
  INCLUDE_MPI
  integer(kind=MPI_ADDRESS_KIND) :: extra
  logical :: complete
  integer :: ierr
  ierr = merge(MPI_ERR_OTHER, MPI_SUCCESS, complete .or. extra /= 5)
end subroutine

#include "mpi.inc"
! One-sided communication (MPI 5.0 chapter 12).
! ranks: 1 2 5
program windows
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer, parameter :: AK = MPI_ADDRESS_KIND
  integer :: rank, ranks, next, before, ierr
  external :: handler

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  next = mod(rank + 1, ranks)
  before = mod(rank - 1 + ranks, ranks)
  call fences()
  call locks()
  call shared()
  call MPI_Finalize(ierr)

contains

  subroutine fences()
    integer SHARED_WITH_MPI :: mine(4), got(4)
    integer :: win, n, errhandler
    integer(kind=AK) :: value
    logical :: flag
    character(len=MPI_MAX_OBJECT_NAME) :: name
    mine = rank
    call MPI_Win_create(mine, 16_AK, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    call MPI_Win_get_attr(win, MPI_WIN_SIZE, value, flag, ierr)
    call check(flag .and. value == 16, 'MPI_WIN_SIZE')
    call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, value, flag, ierr)
    call check(flag .and. value == 4, 'MPI_WIN_DISP_UNIT')
    call MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, value, flag, ierr)
    call check(flag .and. value == MPI_WIN_FLAVOR_CREATE, 'MPI_WIN_CREATE_FLAVOR')
    call MPI_Win_get_attr(win, MPI_WIN_BASE, value, flag, ierr)
    call MPI_Win_set_name(win, 'a window', ierr)
    call MPI_Win_get_name(win, name, n, ierr)
    call check(name == 'a window' .and. n == 8, 'name of a window')
    call MPI_Win_create_errhandler(handler, errhandler, ierr)
    call MPI_Win_set_errhandler(win, errhandler, ierr)
    call MPI_Win_fence(0, win, ierr)
    call MPI_Put([rank * 10, rank * 10 + 1], 2, MPI_INTEGER, next, 1_AK, 2, MPI_INTEGER, win, ierr)
    call MPI_Win_fence(0, win, ierr)
    call MPI_F_sync_reg(mine)
    call check(all(mine == [rank, before * 10, before * 10 + 1, rank]), 'put')
    call MPI_Get(got, 4, MPI_INTEGER, next, 0_AK, 4, MPI_INTEGER, win, ierr)
    call MPI_Win_fence(0, win, ierr)
    call check(all(got == [next, rank * 10, rank * 10 + 1, next]), 'get')
    call MPI_Accumulate(1, 1, MPI_INTEGER, 0, 0_AK, 1, MPI_INTEGER, MPI_SUM, win, ierr)
    call MPI_Win_fence(0, win, ierr)
    if (rank == 0) call check(mine(1) == ranks, 'accumulate')
    call MPI_Win_free(win, ierr)
    call check(win == MPI_WIN_NULL, 'a freed window')
    call MPI_Errhandler_free(errhandler, ierr)
  end subroutine

  subroutine locks()
    use, intrinsic :: iso_c_binding
    integer :: win, old, request
    integer(kind=AK) :: base
    integer, pointer :: mine(:)
    type(c_ptr) :: at
    call MPI_Win_allocate(8_AK, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, win, ierr)
    at = transfer(base, at)
    call c_f_pointer(at, mine, [2])
    mine = 0
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_lock_all(0, win, ierr)
    call MPI_Fetch_and_op(1, old, MPI_INTEGER, 0, 0_AK, MPI_SUM, win, ierr)
    call MPI_Win_flush(0, win, ierr)
    call check(old >= 0 .and. old < ranks, 'fetch_and_op')
    call MPI_Rput(rank, 1, MPI_INTEGER, next, 1_AK, 1, MPI_INTEGER, win, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_Win_unlock_all(win, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win, ierr)
    call check(mine(2) == before, 'rput')
    if (rank == 0) call check(mine(1) == ranks, 'sum of all')
    call MPI_Win_unlock(rank, win, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, win, ierr)
    call MPI_Compare_and_swap(-7, rank, old, MPI_INTEGER, next, 1_AK, win, ierr)
    call MPI_Win_unlock(next, win, ierr)
    call check(old == rank, 'compare_and_swap')
    call MPI_Win_free(win, ierr)
  end subroutine

  subroutine shared()
    use, intrinsic :: iso_c_binding
    integer :: node, win, unit, n, me
    integer(kind=AK) :: base, size
    integer, pointer :: first(:)
    type(c_ptr) :: at
    call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, node, ierr)
    call MPI_Comm_rank(node, me, ierr)
    call MPI_Comm_size(node, n, ierr)
    call MPI_Win_allocate_shared(4_AK, 4, MPI_INFO_NULL, node, base, win, ierr)
    call MPI_Win_shared_query(win, 0, size, unit, base, ierr)
    call check(size == 4 .and. unit == 4, 'shared_query')
    at = transfer(base, at)
    call c_f_pointer(at, first, [1])
    call MPI_Win_fence(0, win, ierr)
    if (me == n - 1) first(1) = 321
    call MPI_Win_fence(0, win, ierr)
    call check(first(1) == 321, 'shared memory')
    call MPI_Win_free(win, ierr)
    call MPI_Comm_free(node, ierr)
  end subroutine
end program

subroutine handler(win, code)
  implicit none
  integer :: win, code
  if (win == code) error stop 2
end subroutine

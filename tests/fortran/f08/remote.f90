! Windows, files and collectives of neighbours with mpi_f08 (MPI 5.0 chapters 12, 14 and 8).
! ranks: 1 2
program remote
  use mpi_f08
  use checks
  implicit none
  integer, parameter :: AK = MPI_ADDRESS_KIND, OK = MPI_OFFSET_KIND
  integer :: rank, ranks, next, before, handled = MPI_SUCCESS

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  next = mod(rank + 1, ranks)
  before = mod(rank - 1 + ranks, ranks)
  call fences()
  call locks()
  call posts()
  call neighbours()
  call files()
  call views()
  call MPI_Finalize()

contains

  subroutine window_handler(win, error_code)
    type(MPI_Win) :: win
    integer :: error_code
    call check(win /= MPI_WIN_NULL, 'the window of a handler')
    call MPI_Error_class(error_code, handled)
  end subroutine

  subroutine fences()
    integer, asynchronous :: mine(4), got(4)
    type(MPI_Win) :: win
    type(MPI_Errhandler) :: errhandler
    type(MPI_Group) :: group
    integer :: n, ierr
    integer(kind=AK) :: value
    logical :: flag
    character(len=MPI_MAX_OBJECT_NAME) :: name
    mine = rank
    call MPI_Win_create(mine, 16_AK, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win)
    call MPI_Win_get_attr(win, MPI_WIN_SIZE, value, flag)
    call check(flag .and. value == 16, 'MPI_WIN_SIZE')
    call MPI_Win_set_name(win, 'a window')
    call MPI_Win_get_name(win, name, n)
    call check(name == 'a window' .and. n == 8, 'name of a window')
    call MPI_Win_get_group(win, group)
    call MPI_Group_size(group, n)
    call check(n == ranks, 'group of a window')
    call MPI_Group_free(group)
    call MPI_Win_create_errhandler(window_handler, errhandler)
    call MPI_Win_set_errhandler(win, errhandler)
    call MPI_Errhandler_free(errhandler)
    call MPI_Win_fence(0, win)
    call MPI_Put([rank * 10, rank * 10 + 1], 2, MPI_INTEGER, next, 1_AK, 2, MPI_INTEGER, win)
    call MPI_Win_fence(0, win)
    call MPI_F_sync_reg(mine)
    call check(all(mine == [rank, before * 10, before * 10 + 1, rank]), 'put')
    call MPI_Get(got, 4, MPI_INTEGER, next, 0_AK, 4, MPI_INTEGER, win)
    call MPI_Win_fence(0, win)
    call check(all(got == [next, rank * 10, rank * 10 + 1, next]), 'get')
    call MPI_Accumulate(1, 1, MPI_INTEGER, 0, 0_AK, 1, MPI_INTEGER, MPI_SUM, win)
    call MPI_Win_fence(0, win)
    if (rank == 0) call check(mine(1) == ranks, 'accumulate')
    call MPI_Put(1, 1, MPI_INTEGER, ranks, 0_AK, 1, MPI_INTEGER, win, ierr)
    call check(handled == MPI_ERR_RANK, 'a put to nobody')
    call MPI_Win_fence(0, win)
    call MPI_Win_free(win)
    call check(win == MPI_WIN_NULL, 'a freed window')
  end subroutine

  subroutine locks()
    use, intrinsic :: iso_c_binding
    type(MPI_Win) :: win
    type(MPI_Request) :: request
    type(c_ptr) :: base
    integer :: old
    integer, pointer, asynchronous :: mine(:)
    call MPI_Win_allocate(8_AK, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, win)
    call c_f_pointer(base, mine, [2])
    mine = 0
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_Win_lock_all(0, win)
    call MPI_Fetch_and_op(1, old, MPI_INTEGER, 0, 0_AK, MPI_SUM, win)
    call MPI_Win_flush(0, win)
    call check(old >= 0 .and. old < ranks, 'fetch_and_op')
    call MPI_Rput(rank, 1, MPI_INTEGER, next, 1_AK, 1, MPI_INTEGER, win, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call MPI_Win_unlock_all(win)
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win)
    call check(mine(2) == before, 'rput')
    if (rank == 0) call check(mine(1) == ranks, 'sum of all')
    call MPI_Win_unlock(rank, win)
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, win)
    call MPI_Compare_and_swap(-7, rank, old, MPI_INTEGER, next, 1_AK, win)
    call MPI_Win_unlock(next, win)
    call check(old == rank, 'compare_and_swap')
    call MPI_Win_free(win)
  end subroutine

  subroutine posts()
    use, intrinsic :: iso_c_binding
    type(MPI_Win) :: win
    type(MPI_Group) :: world, origin, target_
    integer, asynchronous :: mine(2)
    integer(kind=AK) :: at
    mine = -1
    call MPI_Comm_group(MPI_COMM_WORLD, world)
    call MPI_Group_incl(world, 1, [before], origin)
    call MPI_Group_incl(world, 1, [next], target_)
    call MPI_Win_create(mine, 8_AK, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win)
    call MPI_Win_post(origin, 0, win)
    call MPI_Win_start(target_, 0, win)
    call MPI_Put(rank, 1, MPI_INTEGER, next, 1_AK, 1, MPI_INTEGER, win)
    call MPI_Win_complete(win)
    call MPI_Win_wait(win)
    call MPI_F_sync_reg(mine)
    call check(all(mine == [-1, before]), 'post and start')
    call MPI_Win_free(win)
    call MPI_Group_free(world)
    call MPI_Group_free(origin)
    call MPI_Group_free(target_)
    call MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_SELF, win)
    call MPI_Win_attach(win, mine, 8_AK)
    call MPI_Get_address(mine(1), at)
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win)
    call MPI_Put(77, 1, MPI_INTEGER, 0, at, 1, MPI_INTEGER, win)
    call MPI_Win_unlock(0, win)
    call MPI_F_sync_reg(mine)
    call check(mine(1) == 77, 'attached memory')
    call MPI_Win_detach(win, mine)
    call MPI_Win_free(win)
  end subroutine

  subroutine neighbours()
    type(MPI_Comm) :: ring
    type(MPI_Request) :: request
    integer, asynchronous :: out(2), in(2)
    call MPI_Cart_create(MPI_COMM_WORLD, 1, [ranks], [.true.], .false., ring)
    out = [10 * rank, 10 * rank + 1]
    call MPI_Neighbor_allgather(rank, 1, MPI_INTEGER, in, 1, MPI_INTEGER, ring)
    call check(all(in == [before, next]), 'neighbor_allgather')
    call MPI_Ineighbor_alltoall(out, 1, MPI_INTEGER, in, 1, MPI_INTEGER, ring, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call check(all(in == [10 * before + 1, 10 * next]), 'ineighbor_alltoall')
    call MPI_Comm_free(ring)
  end subroutine

  subroutine files()
    type(MPI_File) :: file
    type(MPI_Status) :: status
    type(MPI_Request) :: request
    integer, asynchronous :: out(5), in(5), block(2, 3)
    integer :: n, amode, ierr
    integer(kind=OK) :: size, place
    amode = MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE
    call MPI_File_open(MPI_COMM_WORLD, 'a file of mpi_f08  ', amode, MPI_INFO_NULL, file)
    out = rank
    place = rank * 20
    call MPI_File_iwrite_at(file, place, out, 5, MPI_INTEGER, request)
    call MPI_Wait(request, status)
    call MPI_Get_count(status, MPI_INTEGER, n)
    call check(n == 5, 'iwrite_at')
    call MPI_File_sync(file)
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_File_sync(file)
    call MPI_File_get_size(file, size)
    call check(size == 20 * ranks, 'get_size')
    call MPI_File_read_at_all(file, next * 20_OK, in, 5, MPI_INTEGER, status)
    call check(all(in == next), 'read_at_all')
    block = -1
    call MPI_File_read_at(file, place, block(1, :), 3, MPI_INTEGER, status)
    call check(all(block(1, :) == rank) .and. all(block(2, :) == -1), 'a row is read')
    call MPI_File_seek_shared(file, 0_OK, MPI_SEEK_SET)
    call MPI_File_read_ordered(file, in, 20, MPI_BYTE, status)
    call check(all(in == rank), 'read_ordered')
    call MPI_File_get_amode(file, n)
    call check(n == amode, 'amode')
    call MPI_File_close(file)
    call check(file == MPI_FILE_NULL, 'a closed file')
    call MPI_File_open(MPI_COMM_SELF, 'no such file', MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierr)
    call MPI_Error_class(ierr, n)
    call check(n == MPI_ERR_NO_SUCH_FILE, 'no such file')
  end subroutine

  ! Each rank has every other number of the file.
  subroutine views()
    type(MPI_File) :: file
    type(MPI_Datatype) :: one, spread_, etype, filetype
    integer, asynchronous :: numbers(4)
    integer :: amode, i
    integer(kind=OK) :: place
    character(len=MPI_MAX_DATAREP_STRING) :: datarep
    amode = MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE
    call MPI_Type_dup(MPI_INTEGER, one)
    call MPI_Type_create_resized(one, 0_AK, 4_AK * ranks, spread_)
    call MPI_Type_commit(spread_)
    call MPI_File_open(MPI_COMM_WORLD, 'views of mpi_f08', amode, MPI_INFO_NULL, file)
    place = 4 * rank
    call MPI_File_set_view(file, place, MPI_INTEGER, spread_, 'native', MPI_INFO_NULL)
    call MPI_File_get_view(file, place, etype, filetype, datarep)
    call check(place == 4 * rank .and. etype == MPI_INTEGER .and. datarep == 'native', 'view')
    numbers = [(ranks * i + rank, i = 0, 3)]
    call MPI_File_write_all(file, numbers, 4, MPI_INTEGER, MPI_STATUS_IGNORE)
    call MPI_File_set_view(file, 0_OK, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL)
    call MPI_File_read_at_all(file, 0_OK, numbers, 4, MPI_INTEGER, MPI_STATUS_IGNORE)
    call check(all(numbers == [0, 1, 2, 3]), 'written in turns')
    call MPI_File_close(file)
    call MPI_Type_free(one)
    call MPI_Type_free(spread_)
  end subroutine
end program

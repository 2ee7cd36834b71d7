#include "mpi.inc"
! Files (MPI 5.0 chapter 14).
! ranks: 1 3
program files
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer, parameter :: OK = MPI_OFFSET_KIND
  integer :: rank, ranks, ierr, file, class, n, status(MPI_STATUS_SIZE), out(5), in(5), amode
  integer(kind=OK) :: size, place
  character(len=MPI_MAX_DATAREP_STRING) :: datarep
  integer :: etype, filetype, info
  logical :: flag

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  amode = MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE
  call MPI_File_open(MPI_COMM_WORLD, 'a file  ', amode, MPI_INFO_NULL, file, ierr)
  call MPI_Error_class(ierr, class, n)
  if (class == MPI_ERR_UNSUPPORTED_OPERATION) then
    call MPI_Finalize(ierr)
    stop
  end if
  call check(ierr == MPI_SUCCESS, 'open')
  out = rank
  place = rank * 20
  call MPI_File_write_at(file, place, out, 5, MPI_INTEGER, status, ierr)
  call MPI_Get_count(status, MPI_INTEGER, n, ierr)
  call check(n == 5, 'write_at')
  call MPI_File_sync(file, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_File_sync(file, ierr)
  call MPI_File_get_size(file, size, ierr)
  call check(size == 20 * ranks, 'get_size')
  place = mod(rank + 1, ranks) * 20
  call MPI_File_read_at_all(file, place, in, 5, MPI_INTEGER, status, ierr)
  call check(all(in == mod(rank + 1, ranks)), 'read_at_all')
  call MPI_File_set_view(file, place, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, ierr)
  call MPI_File_get_view(file, size, etype, filetype, datarep, ierr)
  call check(size == place .and. etype == MPI_INTEGER .and. datarep == 'native', 'view')
  in = -1
  call MPI_File_read(file, in, 2, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  call check(all(in(:2) == mod(rank + 1, ranks)) .and. in(3) == -1, 'read')
  call MPI_File_get_position(file, place, ierr)
  call check(place == 2, 'position')
  call MPI_File_seek(file, 0_OK, MPI_SEEK_SET, ierr)
  call MPI_File_get_atomicity(file, flag, ierr)
  call check(.not. flag, 'atomicity')
  call MPI_File_get_amode(file, n, ierr)
  call check(n == amode, 'amode')
  call MPI_File_get_info(file, info, ierr)
  call MPI_Info_free(info, ierr)
  call MPI_File_close(file, ierr)
  call check(file == MPI_FILE_NULL, 'a closed file')
  call MPI_File_open(MPI_COMM_SELF, 'no such file', MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierr)
  call MPI_Error_class(ierr, class, n)
  call check(class == MPI_ERR_NO_SUCH_FILE, 'no such file')
  call MPI_Finalize(ierr)
end program

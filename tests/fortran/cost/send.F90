! Many sends of eight bytes to nobody, for counting instructions.
program send
#ifdef WITH_F08
  use mpi_f08
#else
  use mpi
#endif
  implicit none
  integer :: i, ierr
  double precision :: x(8)
  x = 0
  call MPI_Init(ierr)
  do i = 1, 10000
    call MPI_Send(x(1), 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, ierr)
    call MPI_Send(x, 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, ierr)
  end do
  call MPI_Finalize(ierr)
end program

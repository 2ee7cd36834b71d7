! Mistakes that `use mpi_f08` must refuse: each WRONG_n is one. Without any the program compiles.
module wrong
  use mpi_f08
contains
  subroutine no_handler(comm)
    type(MPI_Comm) :: comm
  end subroutine
end module
program misuse
  use wrong
  implicit none
  integer :: ierr, n, old(MPI_STATUS_SIZE)
  type(MPI_Comm) :: comm
  type(MPI_Status) :: status
  type(MPI_Request) :: request
  type(MPI_Errhandler) :: errhandler
  real :: a(3)
#ifdef WRONG_1 /* an INTEGER is no handle */
  call MPI_Comm_rank(0, n)
#endif
#ifdef WRONG_2 /* a handle of another kind */
  call MPI_Send(a, 3, MPI_SUM, 0, 0, MPI_COMM_WORLD)
#endif
#ifdef WRONG_3 /* no status */
  call MPI_Recv(a, 3, MPI_REAL, 0, 0, MPI_COMM_WORLD, ierr)
#endif
#ifdef WRONG_4 /* a status as an array */
  call MPI_Recv(a, 3, MPI_REAL, 0, 0, MPI_COMM_WORLD, old)
#endif
#ifdef WRONG_5 /* handles of different kinds are not comparable */
  if (MPI_COMM_WORLD == MPI_INTEGER) n = 1
#endif
#ifdef WRONG_6 /* a constant cannot be freed */
  call MPI_Comm_free(MPI_COMM_WORLD)
#endif
#ifdef WRONG_7 /* a procedure with other arguments */
  call MPI_Comm_create_errhandler(no_handler, errhandler)
#endif
#ifdef WRONG_8 /* the status's inside */
  n = status%MPI_internal(1)
#endif
#ifdef WRONG_9 /* one LOGICAL too few */
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [1], .true., .false., comm)
#endif
  call MPI_Init()
  call MPI_Isend(a, 3, MPI_REAL, 0, 0, MPI_COMM_WORLD, request, ierr)
  call MPI_Recv(a, 3_MPI_COUNT_KIND, MPI_REAL, 0, 0, MPI_COMM_WORLD, status)
end program

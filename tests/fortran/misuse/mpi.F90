! Mistakes that `use mpi` must refuse: each WRONG_n is one. Without any the program compiles.
program misuse
  use mpi
  implicit none
  integer :: ierr, comm, status(MPI_STATUS_SIZE), request
  real :: a(3)
#ifdef WRONG_1 /* ierror is missing */
  call MPI_Init()
#endif
#ifdef WRONG_2 /* too many arguments */
  call MPI_Send(a, 3, MPI_REAL, 0, 0, MPI_COMM_WORLD, status, ierr)
#endif
#ifdef WRONG_3 /* no status */
  call MPI_Recv(a, 3, MPI_REAL, 0, 0, MPI_COMM_WORLD, ierr)
#endif
#ifdef WRONG_4 /* a REAL is no count */
  call MPI_Send(a, 3.0, MPI_REAL, 0, 0, MPI_COMM_WORLD, ierr)
#endif
#ifdef WRONG_5 /* a LOGICAL is no INTEGER */
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [1], [1], .false., comm, ierr)
#endif
#ifdef WRONG_6 /* an address has another kind */
  call MPI_Get_address(a, comm, ierr)
#endif
#ifdef WRONG_7 /* a function, not a subroutine */
  call MPI_Wtime()
#endif
#ifdef WRONG_8 /* the name of the argument */
  call MPI_Comm_rank(MPI_COMM_WORLD, number=comm, ierror=ierr)
#endif
  call MPI_Init(ierr)
  call MPI_Isend(a, 3, MPI_REAL, 0, 0, MPI_COMM_WORLD, request, ierr)
  call MPI_Isend(a(1), 3, MPI_REAL, 0, 0, MPI_COMM_WORLD, request, ierr)
  call MPI_Isend(comm, 1, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, request, ierror=ierr)
  call MPI_Recv(a, 3, MPI_REAL, 0, 0, MPI_COMM_WORLD, status, ierr)
end program

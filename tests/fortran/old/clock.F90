#include "mpi.inc"
! MPI_Wtime and MPI_Wtick in a program whose flags make REAL eight bytes wide. The same flag makes
! DOUBLE PRECISION sixteen bytes wide, of which the library returns eight.
! ranks: 1
! flags: -fdefault-real-8
program clock
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: ierr
  real :: before, after

  call MPI_Init(ierr)
  before = MPI_Wtime()
  call check(before > 0, 'the clock runs')
  after = MPI_Wtime()
  do while (after <= before)
    after = MPI_Wtime()
  end do
  call check(after - before < 60, 'no minute has passed')
  call check(MPI_Wtick() > 1e-12 .and. MPI_Wtick() < 1, 'the resolution')
  call MPI_Finalize(ierr)
end program

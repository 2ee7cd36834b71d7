#include "mpi.inc"
! Dynamic processes (MPI 5.0 chapter 10): arguments with blanks around them.
! ranks: 1 2
program spawned
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: parent, ierr, inter, codes(2), class, n, sum
  character(len=12) :: arguments(3), argument
  character(len=400) :: command

  call MPI_Init(ierr)
  call MPI_Comm_get_parent(parent, ierr)
  if (parent == MPI_COMM_NULL) then
    call get_command_argument(0, command(2:))
    command(1:1) = ' '
    arguments = [character(len=12) :: 'first', ' second one ', '']
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
    call MPI_Comm_spawn(command, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, inter, codes, ierr)
    call MPI_Error_class(ierr, class, n)
    if (class == MPI_ERR_UNSUPPORTED_OPERATION) then
      call MPI_Finalize(ierr)
      stop
    end if
    call check(ierr == MPI_SUCCESS .and. all(codes == MPI_SUCCESS), 'spawn')
    call MPI_Allreduce(1, sum, 1, MPI_INTEGER, MPI_SUM, inter, ierr)
    call check(sum == 2, 'a sum over the children')
  else
    call check(command_argument_count() == 2, 'number of arguments')
    call get_command_argument(1, argument)
    call check(argument == 'first', 'the first argument')
    call get_command_argument(2, argument)
    call check(argument == 'second one', 'the second argument')
    call MPI_Allreduce(1, sum, 1, MPI_INTEGER, MPI_SUM, parent, ierr)
    inter = parent
  end if
  call MPI_Comm_disconnect(inter, ierr)
  call MPI_Finalize(ierr)
end program

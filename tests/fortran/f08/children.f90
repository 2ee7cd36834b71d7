! Spawned processes with mpi_f08 (MPI 5.0 chapter 11), with arguments and without.
! ranks: 1 2
! MPICH: no, on a busy machine its connections to them time out
program children
  use mpi_f08
  use checks
  implicit none
  type(MPI_Comm) :: parent

  call MPI_Init()
  call MPI_Comm_get_parent(parent)
  if (parent == MPI_COMM_NULL) then
    call spawn()
  else
    call spawned()
  end if
  call MPI_Finalize()

contains

  subroutine spawn()
    type(MPI_Comm) :: family
    integer :: codes(2), total
    character(len=400) :: command
    call get_command_argument(0, command)
    call MPI_Comm_spawn(command, [character(len=8) :: 'one', ' two', ''], 2, MPI_INFO_NULL, 0, &
        MPI_COMM_WORLD, family, codes)
    call check(all(codes == MPI_SUCCESS), 'codes of spawned processes')
    call MPI_Allreduce(1, total, 1, MPI_INTEGER, MPI_SUM, family)
    call check(total == 2, 'a sum over the children')
    call MPI_Comm_disconnect(family)
    call MPI_Comm_spawn(command, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, family, &
        MPI_ERRCODES_IGNORE)
    call MPI_Comm_disconnect(family)
  end subroutine

  subroutine spawned()
    integer :: total, parents
    character(len=8) :: argument
    if (command_argument_count() > 0) then
      call get_command_argument(2, argument)
      call check(command_argument_count() == 2 .and. argument == 'two', 'arguments')
      call MPI_Comm_remote_size(parent, parents)
      call MPI_Allreduce(1, total, 1, MPI_INTEGER, MPI_SUM, parent)
      call check(total == parents, 'a sum over the parents')
    end if
    call MPI_Comm_disconnect(parent)
  end subroutine
end program

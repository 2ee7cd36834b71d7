! Parts of a program with mpi, others with mpi_f08: their types are the same (MPI 5.0 §A.1.2), and
! a status of one is that of the other once converted (§19.3.5).
! ranks: 1 2
module old_part
  use mpi
  use checks
  implicit none
contains
  ! What mpi_f08 has received, as mpi knows it, and back again.
  subroutine old_reads(comm, status, again)
    type(MPI_Comm), intent(in) :: comm
    type(MPI_Status), intent(in) :: status
    type(MPI_Status), intent(out) :: again
    integer :: numbers(MPI_STATUS_SIZE), ranks, count, ierr
    call MPI_Status_f082f(status, numbers, ierr)
    call check(ierr == MPI_SUCCESS, 'MPI_Status_f082f')
    call MPI_Comm_size(comm%MPI_VAL, ranks, ierr)
    call check(numbers(MPI_SOURCE) >= 0 .and. numbers(MPI_SOURCE) < ranks, 'a source')
    call check(numbers(MPI_SOURCE) == status%MPI_SOURCE, 'the same source')
    call check(numbers(MPI_TAG) == 17, 'a tag')
    call MPI_Get_count(numbers, MPI_INTEGER, count, ierr)
    call check(count == 3, 'a count')
    numbers(MPI_TAG) = 18
    call MPI_Status_f2f08(numbers, again, ierr)
    call check(ierr == MPI_SUCCESS, 'MPI_Status_f2f08')
  end subroutine

  ! Handles of every type that mpi_f08 has.
  subroutine old_handles(kinds)
    integer, intent(out) :: kinds
    type(MPI_Datatype) :: datatype
    type(MPI_Errhandler) :: errhandler
    type(MPI_File) :: file
    type(MPI_Group) :: group
    type(MPI_Info) :: info
    type(MPI_Message) :: message
    type(MPI_Op) :: op
    type(MPI_Request) :: request
    type(MPI_Session) :: session
    type(MPI_Win) :: window
    datatype%MPI_VAL = MPI_INTEGER
    errhandler%MPI_VAL = MPI_ERRORS_RETURN
    file%MPI_VAL = MPI_FILE_NULL
    group%MPI_VAL = MPI_GROUP_EMPTY
    info%MPI_VAL = MPI_INFO_NULL
    message%MPI_VAL = MPI_MESSAGE_NULL
    op%MPI_VAL = MPI_SUM
    request%MPI_VAL = MPI_REQUEST_NULL
    session%MPI_VAL = MPI_SESSION_NULL
    window%MPI_VAL = MPI_WIN_NULL
    kinds = count([datatype%MPI_VAL == MPI_INTEGER, errhandler%MPI_VAL == MPI_ERRORS_RETURN, &
        file%MPI_VAL == MPI_FILE_NULL, group%MPI_VAL == MPI_GROUP_EMPTY, &
        info%MPI_VAL == MPI_INFO_NULL, message%MPI_VAL == MPI_MESSAGE_NULL, &
        op%MPI_VAL == MPI_SUM, request%MPI_VAL == MPI_REQUEST_NULL, &
        session%MPI_VAL == MPI_SESSION_NULL, window%MPI_VAL == MPI_WIN_NULL])
  end subroutine
end module

program both
  use mpi_f08
  use mpi, only: MPI_Status, MPI_Comm ! no other types than those of mpi_f08
  use old_part, only: old_reads, old_handles
  use checks
  implicit none
  integer :: rank, ranks, sent(3), got(3), count, kinds
  type(MPI_Status) :: status, again
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  sent = rank
  call MPI_Sendrecv(sent, 3, MPI_INTEGER, mod(rank + 1, ranks), 17, got, 3, MPI_INTEGER, &
      MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, status)
  call old_reads(MPI_COMM_WORLD, status, again)
  call check(again%MPI_SOURCE == status%MPI_SOURCE .and. again%MPI_TAG == 18, 'back again')
  call MPI_Get_count(again, MPI_INTEGER, count)
  call check(count == 3, 'the count, back again')
  call old_handles(kinds)
  call check(kinds == 10, 'handles of mpi_f08 in a part with mpi')
  call MPI_Finalize()
end program

! Types of handles and statuses, optional ierror, callbacks, large counts (MPI 5.0 §19.1.2).
! ranks: 1 2 5
module procedures
  use mpi_f08
  implicit none
  integer :: copies = 0, deletes = 0, errors = 0
contains
  subroutine add(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: from(:), to(:)
    if (datatype /= MPI_INTEGER) error stop 2
    call c_f_pointer(invec, from, [len])
    call c_f_pointer(inoutvec, to, [len])
    to = to + from
  end subroutine

  subroutine add_large(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding
    type(c_ptr), value :: invec, inoutvec
    integer(kind=MPI_COUNT_KIND) :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: from(:), to(:)
    call c_f_pointer(invec, from, [len])
    call c_f_pointer(inoutvec, to, [len])
    if (datatype == MPI_DATATYPE_NULL) error stop 2
    to = to + from
  end subroutine

  subroutine copy(oldcomm, comm_keyval, extra_state, attribute_val_in, attribute_val_out, flag, &
      ierror)
    type(MPI_Comm) :: oldcomm
    integer :: comm_keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    copies = copies + 1
    flag = oldcomm == MPI_COMM_SELF
    attribute_val_out = attribute_val_in + extra_state
    ierror = MPI_SUCCESS
  end subroutine

  subroutine delete(comm, comm_keyval, attribute_val, extra_state, ierror)
    type(MPI_Comm) :: comm
    integer :: comm_keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: attribute_val, extra_state
    deletes = deletes + 1
    ierror = MPI_SUCCESS
  end subroutine

  subroutine handler(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code
    if (comm /= MPI_COMM_SELF) error stop 3
    if (error_code == MPI_SUCCESS) error stop 4
    errors = errors + 1
    error_code = MPI_ERR_OTHER
  end subroutine

  subroutine query(extra_state, status, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
    status%MPI_SOURCE = int(extra_state)
    status%MPI_TAG = 12
    call MPI_Status_set_elements(status, MPI_BYTE, 3)
    call MPI_Status_set_cancelled(status, .false.)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine release(extra_state, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    ierror = MPI_SUCCESS
  end subroutine

  subroutine cancel(extra_state, complete, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    ierror = MPI_SUCCESS
  end subroutine
end module

program handles
  use procedures
  use checks
  implicit none
  integer, parameter :: AK = MPI_ADDRESS_KIND, CK = MPI_COUNT_KIND
  integer :: rank, ranks, error

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call check(error == MPI_SUCCESS, 'ierror')
  call MPI_Comm_size(comm=MPI_COMM_WORLD, size=ranks, ierror=error)
  call compared()
  call statuses()
  call callbacks()
  call large()
  call pointers()
  call MPI_Finalize()

contains

  subroutine compared()
    type(MPI_Comm) :: comm, list(2)
    type(MPI_Group) :: group
    type(MPI_Info) :: info
    type(MPI_Win) :: win
    type(MPI_File) :: file
    call check(MPI_COMM_WORLD /= MPI_COMM_SELF .and. MPI_COMM_SELF == MPI_COMM_SELF, 'operators')
    call check(MPI_COMM_WORLD%MPI_VAL == 257, 'the value of a handle')
    comm = MPI_COMM_WORLD
    list = [MPI_COMM_WORLD, MPI_COMM_NULL]
    call check(all([comm, MPI_COMM_NULL] == list), 'operators on arrays')
    call MPI_Comm_dup(MPI_COMM_WORLD, comm)
    call check(comm /= MPI_COMM_WORLD, 'dup')
    call MPI_Comm_free(comm)
    call check(comm == MPI_COMM_NULL, 'free')
    group = MPI_GROUP_EMPTY
    info = MPI_INFO_NULL
    win = MPI_WIN_NULL
    file = MPI_FILE_NULL
    call check(group == MPI_GROUP_EMPTY .and. info == MPI_INFO_NULL .and. win == MPI_WIN_NULL &
        .and. file == MPI_FILE_NULL .and. MPI_SUM /= MPI_MAX .and. MPI_INTEGER /= MPI_REAL &
        .and. MPI_ERRORS_RETURN /= MPI_ERRORS_ARE_FATAL .and. MPI_MESSAGE_NULL /= &
        MPI_MESSAGE_NO_PROC .and. MPI_REQUEST_NULL == MPI_REQUEST_NULL .and. MPI_SESSION_NULL == &
        MPI_SESSION_NULL, 'operators of every type')
  end subroutine

  subroutine statuses()
    type(MPI_Status) :: status, again, several(3)
    type(MPI_Request) :: requests(3)
    integer, asynchronous :: in(3)
    integer :: old(MPI_STATUS_SIZE), i, n, index, indices(3)
    logical :: flag
    do i = 1, 3
      call MPI_Irecv(in(i), 1, MPI_INTEGER, MPI_ANY_SOURCE, i, MPI_COMM_SELF, requests(i))
    end do
    call MPI_Send(5, 1, MPI_INTEGER, 0, 2, MPI_COMM_SELF)
    call MPI_Waitany(3, requests, index, status)
    call check(index == 2 .and. status%MPI_TAG == 2 .and. status%MPI_SOURCE == 0, 'waitany')
    call MPI_Status_f082f(status, old)
    call check(old(MPI_TAG) == 2 .and. old(MPI_SOURCE) == 0, 'status_f082f')
    call MPI_Status_f2f08(old, again)
    call MPI_Get_count(again, MPI_INTEGER, n)
    call check(n == 1, 'status_f2f08')
    call MPI_Send(6, 1, MPI_INTEGER, 0, 3, MPI_COMM_SELF)
    call MPI_Waitsome(3, requests, n, indices, several)
    call check(n == 1 .and. indices(1) == 3 .and. several(1)%MPI_TAG == 3, 'waitsome')
    call MPI_Testany(3, requests, index, flag, MPI_STATUS_IGNORE)
    call check(.not. flag .and. index == MPI_UNDEFINED, 'testany')
    call MPI_Send(7, 1, MPI_INTEGER, 0, 1, MPI_COMM_SELF)
    call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE)
    call check(all(in == [7, 5, 6]) .and. all(requests == MPI_REQUEST_NULL), 'waitall')
    call MPI_Status_set_source(status, 9)
    call MPI_Status_get_source(status, n)
    call check(n == 9, 'status_get_source')
  end subroutine

  subroutine callbacks()
    type(MPI_Op) :: op
    type(MPI_Errhandler) :: errhandler
    type(MPI_Comm) :: dup
    type(MPI_Request) :: request
    type(MPI_Status) :: status
    integer :: total(2), key, other, code
    integer(kind=AK) :: value
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: library
    logical :: flag
    call MPI_Op_create(add, .true., op)
    call MPI_Allreduce([rank, 1], total, 2, MPI_INTEGER, op, MPI_COMM_WORLD)
    call check(all(total == [ranks * (ranks - 1) / 2, ranks]), 'an operation')
    call MPI_Op_free(op)
    call MPI_Op_create_c(add_large, .false., op)
    call MPI_Allreduce([rank, 1], total, 2_CK, MPI_INTEGER, op, MPI_COMM_WORLD)
    call check(all(total == [ranks * (ranks - 1) / 2, ranks]), 'an operation of large counts')
    call MPI_Op_free(op)
    call MPI_Comm_create_errhandler(handler, errhandler)
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, errhandler)
    call MPI_Recv(total, 1, MPI_INTEGER, 3, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE, code)
    call check(errors == 1, 'an error handler')
    ! MPICH has that too, except in its library of the standard ABI.
    call MPI_Get_library_version(library, other)
    call check(code == MPI_ERR_OTHER .or. library(:5) /= 'Ferry', 'the code of a handler')
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL)
    call MPI_Errhandler_free(errhandler)
    call MPI_Comm_create_keyval(copy, delete, key, 7_AK)
    call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, other, 7_AK)
    call MPI_Comm_set_attr(MPI_COMM_SELF, key, 100_AK)
    call MPI_Comm_set_attr(MPI_COMM_SELF, other, 100_AK)
    call MPI_Comm_dup(MPI_COMM_SELF, dup)
    call MPI_Comm_get_attr(dup, key, value, flag)
    call check(copies == 1 .and. flag .and. value == 107, 'an attribute that was copied')
    call MPI_Comm_get_attr(dup, other, value, flag)
    call check(.not. flag, 'MPI_COMM_NULL_COPY_FN')
    call MPI_Comm_free(dup)
    call MPI_Comm_delete_attr(MPI_COMM_SELF, key)
    call check(deletes == 2, 'deleted attributes')
    call MPI_Grequest_start(query, release, cancel, 33_AK, request)
    call MPI_Grequest_complete(request)
    call MPI_Wait(request, status)
    call check(status%MPI_SOURCE == 33 .and. status%MPI_TAG == 12, 'a generalized request')
  end subroutine

  subroutine large()
    integer(kind=CK) :: n, lb, extent
    integer(kind=CK) :: counts(ranks)
    integer(kind=AK) :: places(ranks)
    type(MPI_Datatype) :: type
    type(MPI_Status) :: status
    integer :: in(4), all_of(ranks), i
    call MPI_Sendrecv([1, 2, 3, 4], 4_CK, MPI_INTEGER, 0, 0, in, 4_CK, MPI_INTEGER, 0, 0, &
        MPI_COMM_SELF, status)
    call MPI_Get_count(status, MPI_INTEGER, n)
    call check(n == 4 .and. all(in == [1, 2, 3, 4]), 'sendrecv')
    call MPI_Type_contiguous(3000000000_CK, MPI_INTEGER, type)
    call MPI_Type_size(type, n)
    call check(n == 12000000000_CK, 'size of a large type')
    call MPI_Type_get_extent(type, lb, extent)
    call check(lb == 0 .and. extent == 12000000000_CK, 'extent of a large type')
    call MPI_Type_free(type)
    counts = 1
    places = [(i - 1, i = 1, ranks)]
    call MPI_Allgatherv(rank, 1_CK, MPI_INTEGER, all_of, counts, places, MPI_INTEGER, &
        MPI_COMM_WORLD)
    call check(all(all_of == [(i, i = 0, ranks - 1)]), 'allgatherv')
  end subroutine

  subroutine pointers()
    use, intrinsic :: iso_c_binding
    type(c_ptr) :: at
    double precision, pointer :: d(:)
    integer, asynchronous :: space(1000)
    integer(kind=AK) :: size, place
    type(MPI_Win) :: win
    integer :: unit, n
    call MPI_Alloc_mem(80_AK, MPI_INFO_NULL, at)
    call c_f_pointer(at, d, [10])
    d = 2
    call MPI_Free_mem(d)
    call MPI_Get_address(space, place)
    call MPI_Buffer_attach(space, 4000)
    call MPI_Buffer_detach(at, n)
    call check(n == 4000 .and. transfer(at, place) == place, 'buffer_detach')
    call MPI_Win_allocate(8_AK, 4, MPI_INFO_NULL, MPI_COMM_SELF, at, win)
    call check(c_associated(at), 'win_allocate')
    call MPI_Win_free(win)
    call MPI_Win_allocate_shared(8_AK, 4, MPI_INFO_NULL, MPI_COMM_SELF, at, win)
    call MPI_Win_shared_query(win, 0, size, unit, at)
    call check(size == 8 .and. unit == 4, 'win_shared_query')
    call MPI_Win_free(win)
    call MPI_Sizeof(d, n)
    call check(n == 8, 'sizeof')
    call MPI_Sizeof('four', n)
    call check(n == 4, 'sizeof a string')
  end subroutine
end program

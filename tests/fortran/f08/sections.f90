! Array sections in choice buffers (MPI 5.0 §19.1.12): every way in which one can lie, in blocking
! and nonblocking calls.
! ranks: 1 2 5
program sections
  use mpi_f08
  use checks
  implicit none
  integer :: rank, ranks, next, before

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  next = mod(rank + 1, ranks)
  before = mod(rank - 1 + ranks, ranks)
  call check(MPI_SUBARRAYS_SUPPORTED, 'sections are supported')
  call messages()
  call part_of_a_section()
  call other_types()
  call pointers(reshape([1, 2, 3, 4], [2, 2]))
  call gathered()
  call reduced()
  call packed()
  call windows()
  call persistent()
  call MPI_Finalize()

contains

  subroutine messages()
    integer, asynchronous :: a(10, 6, 4), b(10, 6, 4)
    type(MPI_Request) :: requests(2)
    type(MPI_Status) :: status
    integer :: i, count
    a = reshape([(1000 * rank + i, i = 1, 240)], [10, 6, 4])
    b = 0
    call MPI_Irecv(b(2:10:3, ::2, 4:1:-1), 36, MPI_INTEGER, before, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a(2:10:3, ::2, 4:1:-1), 36, MPI_INTEGER, next, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Wait(requests(1), status)
    call MPI_Wait(requests(2), MPI_STATUS_IGNORE)
    call MPI_Get_count(status, MPI_INTEGER, count)
    call check(count == 36, 'count of a section')
    call check(all(b(2:10:3, ::2, :) == a(2:10:3, ::2, :) + 1000 * (before - rank)), &
        'elements of a section')
    call check(sum(b) == sum(b(2:10:3, ::2, :)), 'nothing beside a section is written')
    b = 0
    call MPI_Sendrecv(a(:, 3, :), 40, MPI_INTEGER, next, 2, b(:, :, 1), 40, MPI_INTEGER, before, &
        2, MPI_COMM_WORLD, status)
    call check(all(reshape(b(:, :4, 1), [40]) == reshape(a(:, 3, :), [40]) &
        + 1000 * (before - rank)), 'from a section to a dense array')
    call MPI_Bcast(a(1, ::5, :), 8, MPI_INTEGER, 0, MPI_COMM_WORLD)
    call check(all(a(1, ::5, :) < 1000), 'bcast of a section')
  end subroutine

  ! Fewer elements than the section has, whole planes or not; one element; none.
  subroutine part_of_a_section()
    integer :: a(8, 8, 3), b(200), n, i
    a = reshape([(i, i = 1, 192)], [8, 8, 3])
    do n = 0, 48
      b = 0
      call MPI_Sendrecv(a(1:8:2, ::2, :), n, MPI_INTEGER, 0, n, b, 200, MPI_INTEGER, 0, n, &
          MPI_COMM_SELF, MPI_STATUS_IGNORE)
      call check(all(b(:n) == reshape(a(1:8:2, ::2, :), [48], pad=[0])) .or. n < 48, 'all')
      call check(all(b(:n) == first(a(1:8:2, ::2, :), n)), 'the first elements of a section')
      call check(all(b(n + 1:) == 0), 'no more than these')
    end do
  end subroutine

  function first(a, n) result(out)
    integer, intent(in) :: a(:, :, :), n
    integer :: out(n), all_of(size(a))
    all_of = reshape(a, [size(a)])
    out = all_of(:n)
  end function

  ! Datatypes that are shorter or longer than an element, or have gaps.
  subroutine other_types()
    complex :: z(10)
    real :: r(20), x(12)
    type(MPI_Datatype) :: pairs, gaps
    type(MPI_Status) :: status
    integer :: i, count
    z = [(cmplx(i, -i), i = 1, 10)]
    r = 0
    call MPI_Sendrecv(z(1:10:3), 7, MPI_REAL, 0, 0, r, 20, MPI_REAL, 0, 0, MPI_COMM_SELF, status)
    call check(all(r(:7) == [1., -1., 4., -4., 7., -7., 10.]), 'halves of elements')
    x = [(real(i), i = 1, 12)]
    call MPI_Type_contiguous(2, MPI_REAL, pairs)
    call MPI_Type_commit(pairs)
    r = 0
    call MPI_Sendrecv(x(1:12:2), 3, pairs, 0, 0, r, 20, MPI_REAL, 0, 0, MPI_COMM_SELF, status)
    call check(all(r(:6) == [1., 3., 5., 7., 9., 11.]), 'two elements to a datatype')
    call MPI_Type_vector(2, 1, 2, MPI_REAL, gaps)
    call MPI_Type_commit(gaps)
    r = 0
    call MPI_Sendrecv(x(1:12:2), 2, gaps, 0, 0, r, 20, MPI_REAL, 0, 0, MPI_COMM_SELF, status)
    call MPI_Get_count(status, MPI_REAL, count)
    call check(count == 4 .and. all(r(:4) == [1., 5., 7., 11.]), 'a datatype with gaps')
    x = 0
    call MPI_Sendrecv([1., 2., 3., 4.], 4, MPI_REAL, 0, 0, x(1:12:2), 2, gaps, 0, 0, &
        MPI_COMM_SELF, status)
    call check(all(x(1:12:2) == [1., 0., 2., 3., 0., 4.]), 'into a datatype with gaps')
    call check(sum(x) == 10, 'and nowhere else')
    call MPI_Type_free(pairs)
    call MPI_Type_free(gaps)
  end subroutine

  ! Arrays of assumed shape, pointers, strings, derived types.
  subroutine pointers(shape_)
    integer, intent(in) :: shape_(:, :)
    type pair
      sequence
      integer :: first, second
    end type
    type(pair) :: pairs(6)
    integer, target :: a(10)
    integer, pointer :: p(:)
    integer, allocatable :: q(:)
    character(len=3) :: words(4), got(2)
    integer :: b(6), i
    call MPI_Sendrecv(shape_(2, :), 2, MPI_INTEGER, 0, 0, b, 2, MPI_INTEGER, 0, 0, MPI_COMM_SELF, &
        MPI_STATUS_IGNORE)
    call check(all(b(:2) == [2, 4]), 'assumed shape')
    a = [(i, i = 1, 10)]
    p => a(10:1:-3)
    call MPI_Sendrecv(p, 4, MPI_INTEGER, 0, 0, b, 4, MPI_INTEGER, 0, 0, MPI_COMM_SELF, &
        MPI_STATUS_IGNORE)
    call check(all(b(:4) == [10, 7, 4, 1]), 'a pointer')
    allocate(q(5))
    q = 3
    call MPI_Sendrecv(q, 5, MPI_INTEGER, 0, 0, b, 5, MPI_INTEGER, 0, 0, MPI_COMM_SELF, &
        MPI_STATUS_IGNORE)
    call check(all(b(:5) == 3), 'an allocatable array')
    pairs = [(pair(i, -i), i = 1, 6)]
    call MPI_Sendrecv(pairs(:)%second, 6, MPI_INTEGER, 0, 0, b, 6, MPI_INTEGER, 0, 0, &
        MPI_COMM_SELF, MPI_STATUS_IGNORE)
    call check(all(b == [(-i, i = 1, 6)]), 'a component of an array')
    words = ['one', 'two', 'thr', 'fou']
    call MPI_Sendrecv(words(2::2), 6, MPI_CHARACTER, 0, 0, got, 6, MPI_CHARACTER, 0, 0, &
        MPI_COMM_SELF, MPI_STATUS_IGNORE)
    call check(all(got == ['two', 'fou']), 'strings')
  end subroutine

  subroutine gathered()
    integer, asynchronous :: a(4), b(3 * ranks, 2), wide(2, 2 * ranks)
    integer :: i, counts(ranks), places(ranks)
    type(MPI_Request) :: request
    a = [(10 * rank + i, i = 1, 4)]
    b = 0
    call MPI_Allgather(a(1:4:3), 2, MPI_INTEGER, wide(2, :), 2, MPI_INTEGER, MPI_COMM_WORLD)
    call check(all(wide(2, 1::2) == [(10 * i + 1, i = 0, ranks - 1)]), 'allgather')
    call check(all(wide(2, 2::2) == [(10 * i + 4, i = 0, ranks - 1)]), 'allgather, the second')
    counts = 1
    places = [(2 * (i - 1), i = 1, ranks)]
    wide = 0
    call MPI_Gatherv(rank, 1, MPI_INTEGER, wide(1, :), counts, places, MPI_INTEGER, 0, &
        MPI_COMM_WORLD)
    if (rank == 0) call check(all(wide(1, 1::2) == [(i, i = 0, ranks - 1)]), 'gatherv')
    wide = 0
    wide(1, :ranks) = rank
    ! No common stride: the elements are copied, and back when the operation is complete.
    call MPI_Ialltoall(wide(1, :ranks), 1, MPI_INTEGER, b(2::3, :), 1, MPI_INTEGER, &
        MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call check(all(b(2::3, 1) == [(i, i = 0, ranks - 1)]) .and. all(b(2::3, 2) == 0), 'ialltoall')
    call check(sum(b) == ranks * (ranks - 1) / 2, 'and nothing else')
  end subroutine

  subroutine reduced()
    integer, asynchronous :: a(6), b(6, 2)
    type(MPI_Request) :: requests(1)
    integer :: i
    a = [(i, i = 1, 6)]
    b = 0
    call MPI_Allreduce(a(::2), b(::2, 2), 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call check(all(b(::2, 2) == ranks * a(::2)) .and. sum(b) == 9 * ranks, 'allreduce')
    call MPI_Iallreduce(MPI_IN_PLACE, a(::2), 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
    call MPI_Waitall(1, requests, MPI_STATUSES_IGNORE)
    call check(all(a == [ranks, 2, 3 * ranks, 4, 5 * ranks, 6]), 'iallreduce in place')
  end subroutine

  subroutine packed()
    integer :: a(6), b(6), position
    character(len=1) :: bytes(200)
    a = [1, 2, 3, 4, 5, 6]
    b = 0
    position = 0
    call MPI_Pack(a(::2), 3, MPI_INTEGER, bytes(1:200:2), 100, position, MPI_COMM_SELF)
    position = 0
    call MPI_Unpack(bytes(1:200:2), 100, position, b(2::2), 3, MPI_INTEGER, MPI_COMM_SELF)
    call check(all(b == [0, 1, 0, 3, 0, 5]), 'pack')
  end subroutine

  subroutine windows()
    integer, asynchronous :: memory(6), a(6)
    type(MPI_Win) :: win
    memory = 0
    a = rank + 1
    call MPI_Win_create(memory, 24_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win)
    call MPI_Win_fence(0, win)
    call MPI_Put(a(::2), 3, MPI_INTEGER, next, 2_MPI_ADDRESS_KIND, 3, MPI_INTEGER, win)
    call MPI_Win_fence(0, win)
    call check(all(memory(3:) == [before + 1, before + 1, before + 1, 0]), 'put')
    call MPI_Accumulate(a(::3), 2, MPI_INTEGER, next, 0_MPI_ADDRESS_KIND, 2, MPI_INTEGER, &
        MPI_SUM, win)
    call MPI_Win_fence(0, win)
    call check(all(memory(:2) == before + 1), 'accumulate')
    a = 0
    call MPI_Get(a(2::2), 3, MPI_INTEGER, rank, 1_MPI_ADDRESS_KIND, 3, MPI_INTEGER, win)
    call MPI_Win_fence(0, win)
    call check(all(a == [0, before + 1, 0, before + 1, 0, before + 1]), 'get')
    call MPI_Win_free(win)
  end subroutine

  ! A datatype can describe it; a copy cannot.
  subroutine persistent()
    integer, asynchronous :: a(6), b(6)
    type(MPI_Request) :: requests(2)
    integer :: i, error
    b = 0
    call MPI_Send_init(a(::2), 3, MPI_INTEGER, next, 3, MPI_COMM_WORLD, requests(1))
    call MPI_Recv_init(b(2::2), 3, MPI_INTEGER, before, 3, MPI_COMM_WORLD, requests(2))
    do i = 1, 3
      a = 10 * rank + i
      call MPI_Startall(2, requests)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      call check(all(b(2::2) == 10 * before + i) .and. all(b(::2) == 0), 'a persistent request')
    end do
    call MPI_Request_free(requests(1))
    call MPI_Request_free(requests(2))
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN)
    call MPI_Allreduce_init(a(::2), b(::2), 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, &
        MPI_INFO_NULL, requests(1), error)
    call check(error == MPI_ERR_UNSUPPORTED_OPERATION, 'a persistent reduction of a section')
  end subroutine
end program

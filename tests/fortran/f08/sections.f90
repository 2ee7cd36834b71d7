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
  call persistent_copies()
  call persistent_reductions()
  call partitions()
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

  ! A datatype describes the section.
  subroutine persistent()
    integer, asynchronous :: a(6), b(6)
    type(MPI_Request) :: requests(2)
    integer :: i
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
  end subroutine

  ! A datatype with gaps lies across the borders of the elements: they are copied at each start,
  ! and back at each completion, whichever call finds it.
  subroutine persistent_copies()
    integer, asynchronous :: a(6, 2), b(12, 2), c(8)
    type(MPI_Request) :: requests(2), freed
    type(MPI_Datatype) :: gaps
    integer :: i, n, indices(2), which
    logical :: flag
    call MPI_Type_vector(2, 1, 2, MPI_INTEGER, gaps)
    call MPI_Type_commit(gaps)
    call MPI_Send_init(a(::2, :), 2, gaps, next, 4, MPI_COMM_WORLD, requests(1))
    call MPI_Recv_init(b(::4, :), 2, gaps, before, 4, MPI_COMM_WORLD, requests(2))
    do i = 1, 8
      b = -1
      a(::2, :) = reshape([(100 * rank + 10 * i + n, n = 1, 6)], [3, 2])
      call MPI_Start(requests(2))
      call MPI_Barrier(MPI_COMM_WORLD)
      call MPI_Start(requests(1))
      select case (mod(i, 4))
      case (0)
        call MPI_Wait(requests(2), MPI_STATUS_IGNORE)
      case (1)
        flag = .false.
        do while (.not. flag)
          call MPI_Test(requests(2), flag, MPI_STATUS_IGNORE)
        end do
      case (2)
        flag = .false.
        do while (.not. flag)
          call MPI_Request_get_status(requests(2), flag, MPI_STATUS_IGNORE)
        end do
      case (3)
        which = 0
        do while (which /= 2)
          call MPI_Waitany(2, requests, which, MPI_STATUS_IGNORE)
        end do
      end select
      n = 100 * before + 10 * i
      call check(all(b(::4, 1) == [n + 1, -1, n + 3]) .and. all(b(::4, 2) == [n + 4, -1, n + 6]), &
          'a persistent copy')
      call check(count(b /= -1) == 4, 'only these elements')
      ! What the program stores after the completion stays.
      b(1, 1) = -2
      call MPI_Waitsome(2, requests, n, indices, MPI_STATUSES_IGNORE)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      call check(b(1, 1) == -2, 'copied back once')
    end do
    call MPI_Request_free(requests(1))
    call MPI_Request_free(requests(2))
    ! Requests that have the same numbers, maybe, have nothing to do with them.
    call MPI_Irecv(c, 8, MPI_INTEGER, before, 5, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a(::2, 1), 3, MPI_INTEGER, next, 5, MPI_COMM_WORLD, freed)
    call MPI_Request_free(freed)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    call check(b(1, 1) == -2, 'freed')
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_Bcast_init(b(::4, :), 2, gaps, 0, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1))
    do i = 1, 3
      b = -1
      if (rank == 0) b(::4, :) = i
      call MPI_Start(requests(1))
      call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
      call check(all(b([1, 9], :) == i) .and. all(b(2:4, :) == -1), 'a persistent broadcast')
    end do
    call MPI_Request_free(requests(1))
    call MPI_Type_free(gaps)
  end subroutine

  subroutine persistent_reductions()
    integer, asynchronous :: a(6), b(6), c(4, 4)
    type(MPI_Request) :: requests(2)
    integer :: i
    call MPI_Allreduce_init(a(::2), b(::2), 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, &
        MPI_INFO_NULL, requests(1))
    call MPI_Allreduce_init(MPI_IN_PLACE, c(::3, ::3), 4, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, &
        MPI_INFO_NULL, requests(2))
    do i = 1, 3
      a = rank + i
      b = 0
      c = -rank
      c(4, :) = i + rank
      call MPI_Startall(2, requests)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      call check(all(b(::2) == ranks * i + (ranks * (ranks - 1)) / 2) .and. all(b(2::2) == 0), &
          'a persistent reduction')
      call check(all(c(1, ::3) == 0) .and. all(c(4, ::3) == i + ranks - 1), 'one in place')
      call check(all(c(2:3, :) == -rank) .and. all(c(4, 2:3) == i + rank), 'and nothing else')
    end do
    call MPI_Request_free(requests(1))
    call MPI_Request_free(requests(2))
  end subroutine

  ! Partitions of a section whose elements have no common stride.
  subroutine partitions()
    integer, parameter :: parts = 4
    integer, asynchronous :: a(8, 3), b(6, 4)
    type(MPI_Request) :: requests(2)
    integer :: i, at, n
    logical :: flag
    call MPI_Psend_init(a(::2, :), parts, 3_MPI_COUNT_KIND, MPI_INTEGER, next, 6, MPI_COMM_WORLD, &
        MPI_INFO_NULL, requests(1))
    call MPI_Precv_init(b(::2, :), parts, 3_MPI_COUNT_KIND, MPI_INTEGER, before, 6, &
        MPI_COMM_WORLD, MPI_INFO_NULL, requests(2))
    do i = 1, 4
      a = 0
      b = -1
      call MPI_Startall(2, requests)
      a(::2, :) = reshape([(100 * rank + 20 * i + n, n = 1, 12)], [4, 3])
      if (mod(i, 2) == 0) then
        call MPI_Pready_range(0, 2, requests(1))
        call MPI_Pready_list(1, [3], requests(1))
      else
        do at = parts - 1, 0, -1
          call MPI_Pready(at, requests(1))
        end do
      end if
      n = 100 * before + 20 * i
      if (i > 2) then
        flag = .false.
        do while (.not. flag)
          call MPI_Parrived(requests(2), 1, flag)
        end do
        call check(all(b(::2, 2) == [n + 4, n + 5, n + 6]), 'a partition')
        b(1, 2) = 0
      end if
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      if (i > 2) then
        call check(b(1, 2) == 0, 'a partition is copied back once')
        b(1, 2) = n + 4
      end if
      call check(all(reshape(b(::2, :), [12]) == [(n + at, at = 1, 12)]), 'all partitions')
      call check(all(b(2::2, :) == -1), 'and nothing between them')
    end do
    call MPI_Request_free(requests(1))
    call MPI_Request_free(requests(2))
  end subroutine
end program

#include "mpi.inc"
! Collectives, operations of the user (MPI 5.0 chapter 6).
! ranks: 1 2 3 5
program collectives
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: rank, ranks, ierr
  external :: largest

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call moves()
  call different()
  call reductions()
  call of_the_user()
  call nonblocking()
  call neighbours()
  call MPI_Finalize(ierr)

contains

  subroutine moves()
    integer :: one(2), all_of(2 * ranks), i
    character(len=5) :: text
    text = merge('hello', '-----', rank == 0)
    call MPI_Bcast(text, 5, MPI_CHARACTER, 0, MPI_COMM_WORLD, ierr)
    call check(text == 'hello', 'bcast of text')
    one = [rank, -rank]
    all_of = 77
    call MPI_Gather(one, 2, MPI_INTEGER, all_of, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    if (rank == 0) call check(all(all_of(1::2) == [(i, i = 0, ranks - 1)]), 'gather')
    call MPI_Scatter(all_of, 2, MPI_INTEGER, one, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    call check(all(one == [rank, -rank]), 'scatter')
    all_of(2 * rank + 1:2 * rank + 2) = one
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all_of, 2, MPI_INTEGER, &
        MPI_COMM_WORLD, ierr)
    call check(all(all_of(2::2) == [(-i, i = 0, ranks - 1)]), 'allgather in place')
    all_of = [(rank * 100 + i, i = 1, 2 * ranks)]
    call MPI_Alltoall(MPI_IN_PLACE, 2, MPI_INTEGER, all_of, 2, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    call check(all(all_of(1::2) == [(i * 100 + 2 * rank + 1, i = 0, ranks - 1)]), 'alltoall')
  end subroutine

  ! As many elements for each rank as its number and one more.
  subroutine different()
    integer :: counts(ranks), places(ranks), i, j, total, types(ranks)
    integer, allocatable :: own(:), all_of(:)
    counts = [(i, i = 1, ranks)]
    places = [(i * (i - 1) / 2, i = 1, ranks)]
    total = sum(counts)
    allocate(own(rank + 1), all_of(total))
    own = rank
    call MPI_Allgatherv(own, rank + 1, MPI_INTEGER, all_of, counts, places, MPI_INTEGER, &
        MPI_COMM_WORLD, ierr)
    call check(all(all_of == [((i - 1, j = 1, i), i = 1, ranks)]), 'allgatherv')
    own = -1
    call MPI_Scatterv(all_of, counts, places, MPI_INTEGER, own, rank + 1, MPI_INTEGER, 0, &
        MPI_COMM_WORLD, ierr)
    call check(all(own == rank), 'scatterv')
    all_of = -1
    call MPI_Gatherv(own, rank + 1, MPI_INTEGER, all_of, counts, places, MPI_INTEGER, ranks - 1, &
        MPI_COMM_WORLD, ierr)
    if (rank == ranks - 1) call check(sum(all_of) == sum([(i * (i - 1), i = 1, ranks)]), 'gatherv')
    deallocate(own, all_of)
    allocate(own(ranks), all_of(ranks))
    own = [(rank * 10 + i, i = 1, ranks)]
    counts = 1
    types = MPI_INTEGER
    places = [(4 * (i - 1), i = 1, ranks)]
    call MPI_Alltoallw(own, counts, places, types, all_of, counts, places, types, &
        MPI_COMM_WORLD, ierr)
    call check(all(all_of == [(i * 10 + rank + 1, i = 0, ranks - 1)]), 'alltoallw')
    places = [(i - 1, i = 1, ranks)]
    call MPI_Alltoallv(own, counts, places, MPI_INTEGER, all_of, counts, places, MPI_INTEGER, &
        MPI_COMM_WORLD, ierr)
    call check(all(all_of == [(i * 10 + rank + 1, i = 0, ranks - 1)]), 'alltoallv')
  end subroutine

  subroutine reductions()
    integer :: pair(2), best(2), part, i
    logical :: one, both
    double precision :: d
    complex :: z, sum_z
    call MPI_Allreduce(rank + 1, part, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    call check(part == ranks * (ranks + 1) / 2, 'sum')
    one = rank /= 0
    call MPI_Allreduce(one, both, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
    call check(both .eqv. (ranks > 1), 'logical or')
    call MPI_Allreduce(.true., both, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
    call check(both .eqv. .true., 'logical and')
    call MPI_Allreduce(.true., both, 1, MPI_LOGICAL, MPI_LXOR, MPI_COMM_WORLD, ierr)
    call check(both .eqv. (mod(ranks, 2) == 1), 'logical exclusive or')
    pair = [abs(rank - 1), rank]
    call MPI_Allreduce(pair, best, 1, MPI_2INTEGER, MPI_MINLOC, MPI_COMM_WORLD, ierr)
    call check(best(2) == min(1, ranks - 1), 'minloc')
    z = (1.0, 2.0)
    call MPI_Reduce(z, sum_z, 1, MPI_COMPLEX, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
    if (rank == 0) call check(sum_z == ranks * z, 'sum of complex numbers')
    d = rank
    call MPI_Scan(MPI_IN_PLACE, d, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
    call check(d == rank, 'scan')
    part = -1
    call MPI_Exscan(rank, part, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (rank > 0) call check(part == sum([(i, i = 0, rank - 1)]), 'exscan')
    call MPI_Reduce_scatter_block([(i, i = 1, ranks)], part, 1, MPI_INTEGER, MPI_SUM, &
        MPI_COMM_WORLD, ierr)
    call check(part == ranks * (rank + 1), 'reduce_scatter_block')
    part = 5
    call MPI_Reduce_local(7, part, 1, MPI_INTEGER, MPI_PROD, ierr)
    call check(part == 35, 'reduce_local')
  end subroutine

  subroutine of_the_user()
    integer :: op, out(2)
    logical :: commutes
    call MPI_Op_create(largest, .true., op, ierr)
    call MPI_Op_commutative(op, commutes, ierr)
    call check(commutes, 'an operation commutes')
    call MPI_Allreduce([rank, -rank], out, 2, MPI_INTEGER, op, MPI_COMM_WORLD, ierr)
    call check(all(out == [ranks - 1, 0]), 'an operation of the user')
    call MPI_Op_free(op, ierr)
    call check(op == MPI_OP_NULL, 'a freed operation is null')
    call MPI_Op_commutative(MPI_SUM, commutes, ierr)
    call check(commutes, 'MPI_SUM commutes')
  end subroutine

  subroutine nonblocking()
    integer SHARED_WITH_MPI :: values(3), total(3)
    integer :: requests(3), i
    values = rank
    call MPI_Iallreduce(values, total, 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Ibarrier(MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    call check(all(total == ranks * (ranks - 1) / 2), 'iallreduce')
    call MPI_Bcast_init(values, 3, MPI_INTEGER, 0, MPI_COMM_WORLD, MPI_INFO_NULL, requests(3), &
        ierr)
    do i = 1, 2
      values = rank + i
      call MPI_Start(requests(3), ierr)
      call MPI_Wait(requests(3), MPI_STATUS_IGNORE, ierr)
      call check(all(values == i), 'a persistent bcast')
    end do
    call MPI_Request_free(requests(3), ierr)
  end subroutine

  subroutine neighbours()
    integer :: ring, in(2), left, right
    call MPI_Cart_create(MPI_COMM_WORLD, 1, [ranks], [.true.], .false., ring, ierr)
    call MPI_Cart_shift(ring, 0, 1, left, right, ierr)
    call MPI_Neighbor_allgather(rank, 1, MPI_INTEGER, in, 1, MPI_INTEGER, ring, ierr)
    call check(all(in == [left, right]), 'neighbor_allgather')
    call MPI_Neighbor_alltoallw([rank, rank], [1, 1], [0_MPI_ADDRESS_KIND, 4_MPI_ADDRESS_KIND], &
        [MPI_INTEGER, MPI_INTEGER], in, [1, 1], [4_MPI_ADDRESS_KIND, 0_MPI_ADDRESS_KIND], &
        [MPI_INTEGER, MPI_INTEGER], ring, ierr)
    call check(all(in == [right, left]), 'neighbor_alltoallw')
    call MPI_Comm_free(ring, ierr)
  end subroutine
end program

! The operation.
subroutine largest(from, to, n, type)
  USE_MPI
  implicit none
  INCLUDE_MPI
  integer :: n, type, from(n), to(n)
  if (type /= MPI_INTEGER) error stop 2
  to = max(to, from)
end subroutine

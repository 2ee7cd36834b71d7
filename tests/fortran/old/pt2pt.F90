#include "mpi.inc"
! Point-to-point communication (MPI 5.0 chapters 3 and 4).
! ranks: 1 2 3 5
program pt2pt
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: rank, ranks, next, before, ierr

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  next = mod(rank + 1, ranks)
  before = mod(rank - 1 + ranks, ranks)
  call modes()
  call several()
  call probes()
  call persistent()
  call partitioned()
  call nothing()
  call MPI_Finalize(ierr)

contains

  ! Every mode of sending, with what the status says.
  subroutine modes()
    integer SHARED_WITH_MPI :: out(3), in(3)
    integer :: status(MPI_STATUS_SIZE), requests(2), count, mode, size
    integer, allocatable :: space(:)
    logical :: flag
    allocate(space((MPI_BSEND_OVERHEAD + 100) / 4))
    size = 4 * (MPI_BSEND_OVERHEAD + 100) / 4
    call MPI_Buffer_attach(space, size, ierr)
    do mode = 1, 5
      out = [rank, mode, 7]
      in = -1
      call MPI_Irecv(in, 3, MPI_INTEGER, before, mode, MPI_COMM_WORLD, requests(1), ierr)
      select case (mode)
      case (1)
        call MPI_Send(out, 3, MPI_INTEGER, next, mode, MPI_COMM_WORLD, ierr)
      case (2)
        call MPI_Issend(out, 3, MPI_INTEGER, next, mode, MPI_COMM_WORLD, requests(2), ierr)
        call MPI_Wait(requests(2), MPI_STATUS_IGNORE, ierr)
      case (3)
        call MPI_Bsend(out, 3, MPI_INTEGER, next, mode, MPI_COMM_WORLD, ierr)
      case (4)
        call MPI_Barrier(MPI_COMM_WORLD, ierr)
        call MPI_Rsend(out, 3, MPI_INTEGER, next, mode, MPI_COMM_WORLD, ierr)
      case (5)
        call MPI_Isend(out, 3, MPI_INTEGER, next, mode, MPI_COMM_WORLD, requests(2), ierr)
        call MPI_Wait(requests(2), status, ierr)
      end select
      call MPI_Wait(requests(1), status, ierr)
      call check(ierr == MPI_SUCCESS, 'a wait succeeds')
      call check(requests(1) == MPI_REQUEST_NULL, 'a request is null when complete')
      call check(all(in == [before, mode, 7]), 'data of a message')
      call check(status(MPI_SOURCE) == before .and. status(MPI_TAG) == mode, 'a status')
      call MPI_Get_count(status, MPI_INTEGER, count, ierr)
      call check(count == 3, 'count of a message')
      call MPI_Test_cancelled(status, flag, ierr)
      call check(.not. flag, 'nothing was cancelled')
    end do
    call MPI_Buffer_detach(space, size, ierr)
    call check(size == 4 * (MPI_BSEND_OVERHEAD + 100) / 4, 'size of the buffer')
    out = rank
    call MPI_Sendrecv(out, 3, MPI_INTEGER, next, 9, in, 3, MPI_INTEGER, before, MPI_ANY_TAG, &
        MPI_COMM_WORLD, status, ierr)
    call check(all(in == before) .and. status(MPI_TAG) == 9, 'sendrecv')
    call MPI_Sendrecv_replace(out, 3, MPI_INTEGER, next, 9, before, 9, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE, ierr)
    call check(all(out == before), 'sendrecv_replace')
  end subroutine

  ! Indices count from one.
  subroutine several()
    integer SHARED_WITH_MPI :: in(4)
    integer :: requests(4), statuses(MPI_STATUS_SIZE, 4), status(MPI_STATUS_SIZE)
    integer :: indices(4), seen(4), index, i, n, k, done
    logical :: flag
    do k = 1, 4
      seen = 0
      do i = 1, 4
        call MPI_Irecv(in(i), 1, MPI_INTEGER, before, i, MPI_COMM_WORLD, requests(i), ierr)
      end do
      do i = 4, 1, -1
        call MPI_Send(10 * i + rank, 1, MPI_INTEGER, next, i, MPI_COMM_WORLD, ierr)
      end do
      done = 0
      do while (done < 4)
        select case (k)
        case (1)
          call MPI_Waitany(4, requests, index, status, ierr)
          indices(1) = index
          n = 1
          call check(status(MPI_TAG) == index, 'tag of waitany')
        case (2)
          call MPI_Testany(4, requests, index, flag, MPI_STATUS_IGNORE, ierr)
          n = merge(1, 0, flag)
          indices(1) = index
        case (3)
          call MPI_Waitsome(4, requests, n, indices, statuses, ierr)
          do i = 1, n
            call check(statuses(MPI_TAG, i) == indices(i), 'tag of waitsome')
          end do
        case (4)
          call MPI_Testsome(4, requests, n, indices, MPI_STATUSES_IGNORE, ierr)
        end select
        do i = 1, n
          call check(indices(i) >= 1 .and. indices(i) <= 4, 'an index counts from one')
          seen(indices(i)) = seen(indices(i)) + 1
        end do
        done = done + n
      end do
      call check(all(seen == 1), 'each request completes once')
      call check(all(in == [(10 * i + before, i = 1, 4)]), 'data of several')
      call MPI_Waitany(4, requests, index, status, ierr)
      call check(index == MPI_UNDEFINED, 'no index without requests')
      call MPI_Waitsome(4, requests, n, indices, statuses, ierr)
      call check(n == MPI_UNDEFINED, 'no count without requests')
      call MPI_Testall(4, requests, flag, MPI_STATUSES_IGNORE, ierr)
      call check(flag, 'testall of null requests')
    end do
  end subroutine

  subroutine probes()
    integer :: status(MPI_STATUS_SIZE), message, count, in(5)
    logical :: flag
    call MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, flag, status, ierr)
    call check(.not. flag, 'nothing to probe')
    call MPI_Sendrecv([1, 2, 3, 4, 5], 5, MPI_INTEGER, MPI_PROC_NULL, 0, in, 5, MPI_INTEGER, &
        MPI_PROC_NULL, 0, MPI_COMM_WORLD, status, ierr)
    call check(status(MPI_SOURCE) == MPI_PROC_NULL, 'MPI_PROC_NULL')
    call send_to_next()
    call MPI_Probe(before, 78, MPI_COMM_WORLD, status, ierr)
    call MPI_Get_count(status, MPI_INTEGER, count, ierr)
    call check(count == 5, 'count of a probe')
    call MPI_Mprobe(before, 78, MPI_COMM_WORLD, message, status, ierr)
    call check(message /= MPI_MESSAGE_NULL, 'a matched message')
    call MPI_Mrecv(in, 5, MPI_INTEGER, message, status, ierr)
    call check(message == MPI_MESSAGE_NULL .and. all(in == before), 'mrecv')
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end subroutine

  ! A small message, which need not wait for its receive.
  subroutine send_to_next()
    integer :: request
    integer, save SHARED_WITH_MPI :: out(5)
    out = rank
    call MPI_Isend(out, 5, MPI_INTEGER, next, 78, MPI_COMM_WORLD, request, ierr)
    call MPI_Request_free(request, ierr)
  end subroutine

  subroutine persistent()
    integer SHARED_WITH_MPI :: out, in
    integer :: requests(2), statuses(MPI_STATUS_SIZE, 2), i
    logical :: flag
    call MPI_Send_init(out, 1, MPI_INTEGER, next, 3, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Recv_init(in, 1, MPI_INTEGER, before, 3, MPI_COMM_WORLD, requests(2), ierr)
    do i = 1, 3
      out = 100 * i + rank
      call MPI_Startall(2, requests, ierr)
      call MPI_Waitall(2, requests, statuses, ierr)
      call check(in == 100 * i + before, 'data of a persistent request')
      call check(all(requests /= MPI_REQUEST_NULL), 'a persistent request stays')
    end do
    call MPI_Request_get_status(requests(1), flag, MPI_STATUS_IGNORE, ierr)
    call check(flag, 'an inactive request is complete')
    call MPI_Request_free(requests(1), ierr)
    call MPI_Request_free(requests(2), ierr)
    call check(all(requests == MPI_REQUEST_NULL), 'freed requests')
    call MPI_Irecv(in, 1, MPI_INTEGER, before, 99, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Cancel(requests(1), ierr)
    call MPI_Wait(requests(1), statuses(:, 1), ierr)
    call MPI_Test_cancelled(statuses(:, 1), flag, ierr)
    call check(flag, 'a receive was cancelled')
  end subroutine

  subroutine partitioned()
    integer SHARED_WITH_MPI :: out(8), in(8)
    integer :: requests(2), i
    logical :: flag
    integer(kind=MPI_COUNT_KIND) :: two
    two = 2
    out = [(rank * 10 + i, i = 1, 8)]
    call MPI_Psend_init(out, 4, two, MPI_INTEGER, next, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &
        requests(1), ierr)
    call MPI_Precv_init(in, 4, two, MPI_INTEGER, before, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &
        requests(2), ierr)
    call MPI_Startall(2, requests, ierr)
    call MPI_Pready_range(0, 1, requests(1), ierr)
    call MPI_Pready_list(2, [3, 2], requests(1), ierr)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    call MPI_Parrived(requests(2), 3, flag, ierr)
    call check(all(in == [(before * 10 + i, i = 1, 8)]), 'data of partitions')
    call MPI_Request_free(requests(1), ierr)
    call MPI_Request_free(requests(2), ierr)
  end subroutine

  ! MPI_BOTTOM with addresses in a datatype.
  subroutine nothing()
    integer :: type, request
    integer SHARED_WITH_MPI :: here(2), there(2)
    integer(kind=MPI_ADDRESS_KIND) :: places(1)
    here = [rank, 5]
    there = 0
    call MPI_Get_address(there, places(1), ierr)
    call MPI_Type_create_hindexed(1, [2], places, MPI_INTEGER, type, ierr)
    call MPI_Type_commit(type, ierr)
    call MPI_Irecv(MPI_BOTTOM, 1, type, before, 5, MPI_COMM_WORLD, request, ierr)
    call MPI_Send(here, 2, MPI_INTEGER, next, 5, MPI_COMM_WORLD, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_F_sync_reg(there)
    call check(all(there == [before, 5]), 'data at MPI_BOTTOM')
    call MPI_Type_free(type, ierr)
  end subroutine
end program

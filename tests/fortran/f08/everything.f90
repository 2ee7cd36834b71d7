! A call of most functions with mpi_f08, without ierror: what `handles` and `sections` leave out.
! ranks: 1 2 5
program everything
  use mpi_f08
  use checks
  implicit none
  integer, parameter :: AK = MPI_ADDRESS_KIND
  integer :: rank, ranks, provided

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call types()
  call texts()
  call topologies()
  call groups()
  call collectives()
  call matched()
  call partitioned()
  call sessions()
  call MPI_Finalize()

contains

  subroutine types()
    type(MPI_Datatype) :: t, u, list(1)
    integer :: combiner, ints, adds, n, i(4), size
    integer(kind=AK) :: a(1), lb, extent
    call MPI_Type_create_subarray(2, [4, 4], [2, 2], [1, 1], MPI_ORDER_FORTRAN, MPI_REAL, t)
    call MPI_Type_commit(t)
    call MPI_Type_get_extent(t, lb, extent)
    call check(extent == 64, 'extent')
    call MPI_Type_get_envelope(t, ints, adds, n, combiner)
    call check(combiner == MPI_COMBINER_SUBARRAY .and. n == 1, 'envelope')
    call MPI_Type_free(t)
    call MPI_Type_indexed(1, [2], [3], MPI_INTEGER, t)
    call MPI_Type_get_contents(t, 4, 1, 1, i, a, list)
    call check(all(i(:3) == [1, 2, 3]) .and. list(1) == MPI_INTEGER, 'contents')
    call MPI_Type_create_struct(2, [1, 1], [0_AK, 16_AK], [MPI_INTEGER, t], u)
    call MPI_Type_size(u, size)
    call check(size == 12, 'struct')
    call MPI_Type_free(t)
    call MPI_Type_free(u)
    call MPI_Type_create_f90_integer(9, t)
    call MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 4, u)
    call MPI_Type_size(u, size)
    call check(size == 4 .and. t /= MPI_DATATYPE_NULL, 'kinds')
  end subroutine

  subroutine texts()
    character(len=MPI_MAX_OBJECT_NAME) :: name
    character(len=MPI_MAX_PROCESSOR_NAME) :: host
    character(len=MPI_MAX_ERROR_STRING) :: text
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: version
    character(len=5) :: short
    type(MPI_Info) :: info
    integer :: n, position, in(2)
    integer(kind=AK) :: where
    character(len=64) :: buffer
    logical :: flag
    call MPI_Comm_get_name(MPI_COMM_WORLD, name, n)
    call check(name == 'MPI_COMM_WORLD' .and. n == 14, 'name of the world')
    call MPI_Comm_get_name(MPI_COMM_WORLD, short, n)
    call check(short == 'MPI_C', 'a name is cut')
    call MPI_Get_processor_name(host, n)
    call MPI_Error_string(MPI_ERR_TAG, text, n)
    call MPI_Get_library_version(version, n)
    call check(len_trim(version) == n, 'version')
    call MPI_Info_create(info)
    call MPI_Info_set(info, 'k', 'v')
    n = 5
    call MPI_Info_get_string(info, 'k', n, short, flag)
    call check(flag .and. short == 'v' .and. n == 1, 'get_string')
    call MPI_Info_free(info)
    position = 0
    call MPI_Pack([3, 4], 2, MPI_INTEGER, buffer, 64, position, MPI_COMM_SELF)
    position = 0
    call MPI_Unpack(buffer, 64, position, in, 2, MPI_INTEGER, MPI_COMM_SELF)
    call check(all(in == [3, 4]), 'unpack')
    where = 0
    call MPI_Pack_external('external32', [3, 4], 2, MPI_INTEGER, buffer, 64_AK, where)
    call check(where == 8, 'pack_external')
    where = 0
    in = 0
    call MPI_Unpack_external('external32  ', buffer, 64_AK, where, in, 2, MPI_INTEGER)
    call check(all(in == [3, 4]), 'unpack_external')
  end subroutine

  subroutine topologies()
    type(MPI_Comm) :: comm
    integer :: dims(1), coords(1), n, kind, in(1), out(1)
    logical :: periods(1), weighted
    dims = ranks
    call MPI_Cart_create(MPI_COMM_WORLD, 1, dims, [.true.], .false., comm)
    call MPI_Cart_get(comm, 1, dims, periods, coords)
    call check(periods(1) .and. coords(1) == rank, 'cart_get')
    call MPI_Topo_test(comm, kind)
    call check(kind == MPI_CART, 'topo_test')
    call MPI_Comm_free(comm)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [rank], MPI_UNWEIGHTED, 1, [rank], &
        MPI_UNWEIGHTED, MPI_INFO_NULL, .false., comm)
    call MPI_Dist_graph_neighbors_count(comm, n, kind, weighted)
    call check(n == 1 .and. .not. weighted, 'a graph')
    call MPI_Dist_graph_neighbors(comm, 1, in, MPI_UNWEIGHTED, 1, out, MPI_UNWEIGHTED)
    call check(in(1) == rank .and. out(1) == rank, 'neighbours')
    call MPI_Comm_free(comm)
  end subroutine

  subroutine groups()
    type(MPI_Group) :: world, part
    type(MPI_Comm) :: comm
    integer :: n, ranges(3, 1), result
    call MPI_Comm_group(MPI_COMM_WORLD, world)
    ranges(:, 1) = [0, ranks - 1, 1]
    call MPI_Group_range_incl(world, 1, ranges, part)
    call MPI_Group_compare(world, part, result)
    call check(result == MPI_IDENT, 'compare')
    call MPI_Comm_create(MPI_COMM_WORLD, part, comm)
    call MPI_Comm_compare(comm, MPI_COMM_WORLD, result)
    call check(result == MPI_CONGRUENT, 'congruent')
    call MPI_Comm_free(comm)
    call MPI_Group_free(part)
    call MPI_Group_free(world)
    call MPI_Comm_split(MPI_COMM_WORLD, rank, 0, comm)
    call MPI_Comm_size(comm, n)
    call check(n == 1, 'split')
    call MPI_Comm_free(comm)
  end subroutine

  subroutine collectives()
    integer, asynchronous :: a(ranks), b(ranks)
    integer :: counts(ranks), places(ranks), i
    type(MPI_Datatype) :: kinds(ranks)
    type(MPI_Request) :: request
    logical :: all_true
    a = [(10 * rank + i, i = 1, ranks)]
    counts = 1
    places = [(4 * (i - 1), i = 1, ranks)]
    kinds = MPI_INTEGER
    call MPI_Ialltoallw(a, counts, places, kinds, b, counts, places, kinds, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call check(all(b == [(10 * i + rank + 1, i = 0, ranks - 1)]), 'ialltoallw')
    call MPI_Alltoallw(MPI_IN_PLACE, counts, places, kinds, b, counts, places, kinds, &
        MPI_COMM_WORLD)
    call check(all(b == a), 'alltoallw in place')
    call MPI_Reduce_scatter(a, b, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call check(b(1) == sum([(10 * i + rank + 1, i = 0, ranks - 1)]), 'reduce_scatter')
    call MPI_Allreduce(.true., all_true, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD)
    call check(all_true, 'logical and')
    call MPI_Ibcast(a, ranks, MPI_INTEGER, 0, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call check(all(a == [(i, i = 1, ranks)]), 'ibcast')
    call MPI_Barrier(MPI_COMM_WORLD)
  end subroutine

  subroutine matched()
    integer, asynchronous :: out(2), in(2)
    type(MPI_Message) :: message
    type(MPI_Request) :: request
    type(MPI_Status) :: status
    logical :: flag
    call MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, flag, message, status)
    call check(.not. flag, 'no message')
    out = [1, 2]
    call MPI_Isend(out, 2, MPI_INTEGER, 0, 6, MPI_COMM_SELF, request)
    call MPI_Mprobe(0, 6, MPI_COMM_SELF, message, status)
    call MPI_Mrecv(in, 2, MPI_INTEGER, message, status)
    call check(message == MPI_MESSAGE_NULL .and. all(in == [1, 2]), 'mrecv')
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call MPI_Mprobe(MPI_PROC_NULL, 6, MPI_COMM_SELF, message, status)
    call check(message == MPI_MESSAGE_NO_PROC, 'MPI_MESSAGE_NO_PROC')
  end subroutine

  subroutine partitioned()
    integer, asynchronous :: out(4), in(4)
    type(MPI_Request) :: requests(2)
    integer :: i
    out = [1, 2, 3, 4]
    call MPI_Psend_init(out, 2, 2_MPI_COUNT_KIND, MPI_INTEGER, 0, 1, MPI_COMM_SELF, &
        MPI_INFO_NULL, requests(1))
    call MPI_Precv_init(in, 2, 2_MPI_COUNT_KIND, MPI_INTEGER, 0, 1, MPI_COMM_SELF, &
        MPI_INFO_NULL, requests(2))
    call MPI_Startall(2, requests)
    do i = 0, 1
      call MPI_Pready(i, requests(1))
    end do
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call check(all(in == out), 'partitions')
    call MPI_Request_free(requests(1))
    call MPI_Request_free(requests(2))
  end subroutine

  subroutine sessions()
    type(MPI_Session) :: session
    type(MPI_Group) :: group
    integer :: n, length
    character(len=MPI_MAX_PSET_NAME_LEN) :: name
    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session)
    length = 0
    call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, length, name)
    call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, length, name)
    call check(len_trim(name) == length, 'a process set')
    call MPI_Group_from_session_pset(session, name, group)
    call MPI_Group_size(group, n)
    call check(n >= 1, 'its group')
    call MPI_Group_free(group)
    call MPI_Session_finalize(session)
  end subroutine
end program

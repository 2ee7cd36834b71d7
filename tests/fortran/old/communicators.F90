#include "mpi.inc"
! Groups, communicators, attributes, topologies (MPI 5.0 chapters 7 and 8), info, error handlers.
! ranks: 1 2 4 5
module seen
  integer :: copies = 0, deletes = 0, errors = 0, class_seen = -1
end module

program communicators
  USE_MPI
  use checks
  use seen
  implicit none
  INCLUDE_MPI
  integer, parameter :: AK = MPI_ADDRESS_KIND
  integer :: rank, ranks, ierr
  external :: copy, delete, handler

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call groups()
  call splits()
  call attributes()
  call topologies()
  call infos()
  call errors_()
  call MPI_Finalize(ierr)

contains

  subroutine groups()
    integer :: world, part, other, n, ranges(3, 1), translated(1), result
    call MPI_Comm_group(MPI_COMM_WORLD, world, ierr)
    call MPI_Group_incl(world, 1, [ranks - 1], part, ierr)
    call MPI_Group_translate_ranks(part, 1, [0], world, translated, ierr)
    call check(translated(1) == ranks - 1, 'translate_ranks')
    ranges(:, 1) = [0, ranks - 1, 2]
    call MPI_Group_range_incl(world, 1, ranges, other, ierr)
    call MPI_Group_size(other, n, ierr)
    call check(n == (ranks + 1) / 2, 'range_incl')
    call MPI_Group_compare(world, other, result, ierr)
    call check(result == merge(MPI_IDENT, MPI_UNEQUAL, ranks == 1), 'compare')
    call MPI_Group_rank(part, n, ierr)
    call check(n == merge(0, MPI_UNDEFINED, rank == ranks - 1), 'rank in a group')
    call MPI_Group_free(part, ierr)
    call MPI_Group_free(other, ierr)
    call MPI_Group_free(world, ierr)
    call check(world == MPI_GROUP_NULL, 'a freed group')
  end subroutine

  subroutine splits()
    integer :: half, n, inter, merged, leader
    logical :: flag
    character(len=MPI_MAX_OBJECT_NAME) :: name
    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, half, ierr)
    call MPI_Comm_size(half, n, ierr)
    call check(n == (ranks + 1 - mod(rank, 2)) / 2, 'split')
    call MPI_Comm_test_inter(half, flag, ierr)
    call check(.not. flag, 'no intercommunicator')
    if (ranks > 1) then
      leader = merge(ranks - 1, ranks - 2, mod(ranks - 1, 2) /= mod(rank, 2))
      call MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, leader, 5, inter, ierr)
      call MPI_Comm_test_inter(inter, flag, ierr)
      call check(flag, 'an intercommunicator')
      call MPI_Comm_remote_size(inter, n, ierr)
      call check(n == ranks / 2 .or. n == (ranks + 1) / 2, 'remote_size')
      call MPI_Intercomm_merge(inter, mod(rank, 2) == 0, merged, ierr)
      call MPI_Comm_size(merged, n, ierr)
      call check(n == ranks, 'merge')
      call MPI_Comm_free(merged, ierr)
      call MPI_Comm_free(inter, ierr)
    end if
    call MPI_Comm_set_name(half, 'half', ierr)
    call MPI_Comm_get_name(half, name, n, ierr)
    call check(name == 'half' .and. n == 4, 'a name')
    call MPI_Comm_free(half, ierr)
    call check(half == MPI_COMM_NULL, 'a freed communicator')
    call MPI_Comm_split(MPI_COMM_WORLD, merge(0, MPI_UNDEFINED, rank == 0), 0, half, ierr)
    call check((half == MPI_COMM_NULL) .eqv. (rank /= 0), 'MPI_UNDEFINED')
    if (half /= MPI_COMM_NULL) call MPI_Comm_free(half, ierr)
    call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, half, ierr)
    call MPI_Comm_size(half, n, ierr)
    call check(n >= 1, 'split_type')
    call MPI_Comm_free(half, ierr)
  end subroutine

  subroutine attributes()
    integer :: key, other, dup, old
    integer(kind=AK) :: value, extra
    logical :: flag
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierr)
    call check(flag .and. value >= 32767, 'MPI_TAG_UB')
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, value, flag, ierr)
    call check(flag .and. (value == 0 .or. value == 1), 'MPI_WTIME_IS_GLOBAL')
    extra = 1000
    call MPI_Comm_create_keyval(copy, delete, key, extra, ierr)
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, other, extra, ierr)
    call MPI_Comm_get_attr(MPI_COMM_SELF, key, value, flag, ierr)
    call check(.not. flag, 'no attribute')
    value = 2_AK**40 + rank
    call MPI_Comm_set_attr(MPI_COMM_SELF, key, value, ierr)
    call MPI_Comm_set_attr(MPI_COMM_SELF, other, -3_AK, ierr)
    call MPI_Comm_dup(MPI_COMM_SELF, dup, ierr)
    call check(copies == 1, 'a copy')
    call MPI_Comm_get_attr(dup, key, value, flag, ierr)
    call check(flag .and. value == 2_AK**40 + rank + 1000, 'an attribute that was copied')
    call MPI_Comm_get_attr(dup, other, value, flag, ierr)
    call check(flag .and. value == -3, 'MPI_COMM_DUP_FN')
    call MPI_Comm_free(dup, ierr)
    call check(deletes == 1, 'a deletion')
    call MPI_Comm_delete_attr(MPI_COMM_SELF, key, ierr)
    call check(deletes == 2, 'another deletion')
    call MPI_Comm_free_keyval(key, ierr)
    call check(key == MPI_KEYVAL_INVALID, 'a freed keyval')
    ! As in MPI-1: INTEGERs.
    call MPI_Keyval_create(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, old, 0, ierr)
    call MPI_Attr_put(MPI_COMM_SELF, old, 17, ierr)
    call MPI_Attr_get(MPI_COMM_SELF, old, dup, flag, ierr)
    call check(flag .and. dup == 17, 'MPI_Attr_get')
    call MPI_Attr_delete(MPI_COMM_SELF, old, ierr)
    call MPI_Keyval_free(old, ierr)
    call MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, dup, flag, ierr)
    call check(flag .and. dup >= 32767, 'MPI_TAG_UB as an INTEGER')
  end subroutine

  subroutine topologies()
    integer :: comm, dims(2), coords(2), n, source, dest, kind, in(2), out(2), weights(2), row
    logical :: periods(2), weighted
    dims = 0
    call MPI_Dims_create(ranks, 2, dims, ierr)
    call check(product(dims) == ranks, 'dims_create')
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.true., .false.], .false., comm, ierr)
    call MPI_Topo_test(comm, kind, ierr)
    call check(kind == MPI_CART, 'topo_test')
    call MPI_Cart_get(comm, 2, dims, periods, coords, ierr)
    call check(periods(1) .and. .not. periods(2), 'periods')
    call MPI_Cart_rank(comm, coords, n, ierr)
    call check(n == rank, 'cart_rank')
    call MPI_Cart_shift(comm, 1, 1, source, dest, ierr)
    if (coords(2) == 0) call check(source == MPI_PROC_NULL, 'cart_shift')
    call MPI_Cart_sub(comm, [.true., .false.], row, ierr)
    call MPI_Comm_size(row, n, ierr)
    call check(n == dims(1), 'cart_sub')
    call MPI_Comm_free(row, ierr)
    call MPI_Comm_free(comm, ierr)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [mod(rank + ranks - 1, ranks)], &
        MPI_UNWEIGHTED, 1, [mod(rank + 1, ranks)], MPI_UNWEIGHTED, MPI_INFO_NULL, .false., comm, &
        ierr)
    call MPI_Dist_graph_neighbors_count(comm, n, kind, weighted, ierr)
    call check(n == 1 .and. kind == 1 .and. .not. weighted, 'a graph without weights')
    call MPI_Dist_graph_neighbors(comm, 1, in, MPI_UNWEIGHTED, 1, out, MPI_UNWEIGHTED, ierr)
    call check(in(1) == mod(rank + ranks - 1, ranks) .and. out(1) == mod(rank + 1, ranks), &
        'neighbours')
    call MPI_Comm_free(comm, ierr)
    call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [rank], [1], [mod(rank + 1, ranks)], [7], &
        MPI_INFO_NULL, .false., comm, ierr)
    call MPI_Dist_graph_neighbors_count(comm, n, kind, weighted, ierr)
    call check(weighted, 'a graph with weights')
    call MPI_Dist_graph_neighbors(comm, 1, in, weights, 1, out, weights(2), ierr)
    call check(all(weights == 7), 'weights')
    call MPI_Comm_free(comm, ierr)
  end subroutine

  subroutine infos()
    integer :: info, n, length, copy_
    character(len=MPI_MAX_INFO_KEY) :: key
    character(len=20) :: value
    logical :: flag
    call MPI_Info_create(info, ierr)
    call MPI_Info_set(info, ' key ', '  a value ', ierr)
    call MPI_Info_set(info, 'other', 'x', ierr)
    call MPI_Info_get_nkeys(info, n, ierr)
    call check(n == 2, 'nkeys')
    call MPI_Info_get_nthkey(info, 0, key, ierr)
    call check(key == 'key' .or. key == 'other', 'nthkey')
    value = '--------------------'
    call MPI_Info_get(info, 'key', 20, value, flag, ierr)
    call check(flag .and. value == 'a value', 'info_get')
    call MPI_Info_get_valuelen(info, 'key', length, flag, ierr)
    call check(flag .and. length == 7, 'valuelen')
    length = 0
    call MPI_Info_get_string(info, 'key', length, value, flag, ierr)
    call check(flag .and. length == 7, 'length of get_string')
    value = ''
    call MPI_Info_get_string(info, 'key', length, value, flag, ierr)
    call check(flag .and. length == 7 .and. value == 'a value', 'get_string')
    length = 3
    call MPI_Info_get_string(info, 'key', length, value, flag, ierr)
    call check(length == 7 .and. value == 'a v', 'get_string, cut')
    call MPI_Info_get(info, 'nothing', 20, value, flag, ierr)
    call check(.not. flag, 'no such key')
    call MPI_Info_dup(info, copy_, ierr)
    call MPI_Info_delete(info, 'key', ierr)
    call MPI_Info_get_nkeys(copy_, n, ierr)
    call check(n == 2, 'a copy of an info')
    call MPI_Info_free(copy_, ierr)
    call MPI_Info_free(info, ierr)
    call check(info == MPI_INFO_NULL, 'a freed info')
  end subroutine

  subroutine errors_()
    integer :: errhandler, n, class, code, old
    character(len=MPI_MAX_ERROR_STRING) :: text
    call MPI_Comm_create_errhandler(handler, errhandler, ierr)
    call MPI_Comm_get_errhandler(MPI_COMM_SELF, old, ierr)
    call check(old == MPI_ERRORS_ARE_FATAL, 'the first error handler')
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, errhandler, ierr)
    call MPI_Send(0, 1, MPI_INTEGER, 99, 0, MPI_COMM_SELF, ierr)
    call check(errors == 1, 'an error handler of the user')
    call check(class_seen == MPI_ERR_RANK, 'class of an error')
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN, ierr)
    call MPI_Send(0, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF, ierr)
    call check(ierr /= MPI_SUCCESS, 'an error is returned')
    call MPI_Error_string(ierr, text, n, ierr)
    call check(n > 0 .and. len_trim(text) == n, 'text of an error')
    call MPI_Errhandler_free(errhandler, ierr)
    call MPI_Add_error_class(class, ierr)
    call MPI_Add_error_code(class, code, ierr)
    call MPI_Add_error_string(code, 'of our own', ierr)
    call MPI_Error_string(code, text, n, ierr)
    call check(text == 'of our own', 'an error of the user')
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL, ierr)
  end subroutine
end program

subroutine copy(comm, key, extra, in, out, flag, ierr)
  USE_MPI
  use seen
  implicit none
  INCLUDE_MPI
  integer :: comm, key, ierr
  integer(kind=MPI_ADDRESS_KIND) :: extra, in, out
  logical :: flag
  copies = copies + 1
  out = in + extra
  flag = .true.
  ierr = MPI_SUCCESS
end subroutine

subroutine delete(comm, key, value, extra, ierr)
  USE_MPI
  use seen
  implicit none
  INCLUDE_MPI
  integer :: comm, key, ierr
  integer(kind=MPI_ADDRESS_KIND) :: value, extra
  deletes = deletes + 1
  if (extra /= 1000) error stop 2
  ierr = MPI_SUCCESS
end subroutine

subroutine handler(comm, code)
  USE_MPI
  use seen
  implicit none
  INCLUDE_MPI
  integer :: comm, code, ierr
  if (comm /= MPI_COMM_SELF) error stop 3
  call MPI_Error_class(code, class_seen, ierr)
  errors = errors + 1
end subroutine

#include "mpi.inc"
! Datatypes (MPI 5.0 chapter 5) and types of Fortran (§19.1.9, §19.1.11).
! ranks: 1
program types
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer, parameter :: AK = MPI_ADDRESS_KIND
  integer :: ierr

  call MPI_Init(ierr)
  call layouts()
  call decoded()
  call kinds()
  call packed()
  call named()
  call MPI_Finalize(ierr)

contains

  ! Sends `a` with a type to itself and receives dense integers.
  subroutine dense(a, type, n, out)
    integer, intent(in) :: a(*), type, n
    integer, intent(out) :: out(n)
    integer :: t, status(MPI_STATUS_SIZE), count
    t = type
    call MPI_Type_commit(t, ierr)
    call MPI_Sendrecv(a, 1, t, 0, 0, out, n, MPI_INTEGER, 0, 0, MPI_COMM_SELF, status, ierr)
    call MPI_Get_elements(status, MPI_INTEGER, count, ierr)
    call check(count == n, 'elements of a type')
    call MPI_Type_free(t, ierr)
    call check(t == MPI_DATATYPE_NULL, 'a freed type is null')
  end subroutine

  subroutine layouts()
    integer :: a(6, 6), out(12), t, u, i, size
    integer(kind=AK) :: lb, extent, places(2)
    a = reshape([(i, i = 1, 36)], [6, 6])
    call MPI_Type_vector(3, 2, 6, MPI_INTEGER, t, ierr)
    call dense(a, t, 6, out)
    call check(all(out(:6) == [1, 2, 7, 8, 13, 14]), 'vector')
    call MPI_Type_create_hvector(2, 1, 24_AK, MPI_INTEGER, t, ierr)
    call dense(a, t, 2, out)
    call check(all(out(:2) == [1, 7]), 'hvector')
    call MPI_Type_indexed(2, [1, 2], [4, 0], MPI_INTEGER, t, ierr)
    call dense(a, t, 3, out)
    call check(all(out(:3) == [5, 1, 2]), 'indexed')
    call MPI_Type_create_indexed_block(2, 2, [3, 0], MPI_INTEGER, t, ierr)
    call dense(a, t, 4, out)
    call check(all(out(:4) == [4, 5, 1, 2]), 'indexed_block')
    places = [8_AK, 0_AK]
    call MPI_Type_create_hindexed_block(2, 1, places, MPI_INTEGER, t, ierr)
    call dense(a, t, 2, out)
    call check(all(out(:2) == [3, 1]), 'hindexed_block')
    call MPI_Type_create_struct(2, [1, 2], places, [MPI_INTEGER, MPI_INTEGER], t, ierr)
    call dense(a, t, 3, out)
    call check(all(out(:3) == [3, 1, 2]), 'struct')
    call MPI_Type_create_subarray(2, [6, 6], [2, 3], [1, 2], MPI_ORDER_FORTRAN, MPI_INTEGER, t, &
        ierr)
    call dense(a, t, 6, out)
    call check(all(out(:6) == [14, 15, 20, 21, 26, 27]), 'subarray')
    call MPI_Type_create_darray(2, 0, 2, [6, 6], [MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE], &
        [MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG], [2, 1], MPI_ORDER_FORTRAN, &
        MPI_INTEGER, t, ierr)
    call MPI_Type_size(t, size, ierr)
    call check(size == 4 * 18, 'darray')
    call MPI_Type_free(t, ierr)
    call MPI_Type_create_resized(MPI_INTEGER, -4_AK, 40_AK, t, ierr)
    call MPI_Type_get_extent(t, lb, extent, ierr)
    call check(lb == -4 .and. extent == 40, 'resized')
    call MPI_Type_get_true_extent(t, lb, extent, ierr)
    call check(lb == 0 .and. extent == 4, 'true extent')
    call MPI_Type_contiguous(3, t, u, ierr)
    call MPI_Type_dup(u, t, ierr)
    call MPI_Type_get_extent(t, lb, extent, ierr)
    call check(extent == 120, 'contiguous and dup')
  end subroutine

  subroutine decoded()
    integer :: t, ints, adds, types, combiner, i(3), d(1)
    integer(kind=AK) :: a(1)
    call MPI_Type_vector(3, 2, 6, MPI_REAL, t, ierr)
    call MPI_Type_get_envelope(t, ints, adds, types, combiner, ierr)
    call check(ints == 3 .and. adds == 0 .and. types == 1, 'envelope')
    call check(combiner == MPI_COMBINER_VECTOR, 'combiner')
    call MPI_Type_get_contents(t, 3, 1, 1, i, a, d, ierr)
    call check(all(i == [3, 2, 6]) .and. d(1) == MPI_REAL, 'contents')
    call MPI_Type_free(t, ierr)
  end subroutine

  subroutine kinds()
    integer :: t, size, combiner, ints, adds, types
    integer, parameter :: wide = selected_real_kind(12, 100), long = selected_int_kind(15)
    double precision :: d
    complex(kind=wide) :: z
    d = 0
    call MPI_Type_create_f90_real(12, 100, t, ierr)
    call MPI_Type_size(t, size, ierr)
    call check(size == storage_size(1.0_wide) / 8, 'f90_real')
    call MPI_Type_get_envelope(t, ints, adds, types, combiner, ierr)
    call check(combiner == MPI_COMBINER_F90_REAL .and. ints == 2, 'combiner of f90_real')
    call MPI_Type_create_f90_complex(12, 100, t, ierr)
    call MPI_Type_size(t, size, ierr)
    z = 0
    call check(size == storage_size(z) / 8, 'f90_complex')
    call MPI_Type_create_f90_integer(15, t, ierr)
    call MPI_Type_size(t, size, ierr)
    call check(size == storage_size(1_long) / 8, 'f90_integer')
    call MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, t, ierr)
    call check(t == MPI_REAL8 .or. t == MPI_DOUBLE_PRECISION, 'match_size')
#ifdef WITH_MODULE
    call MPI_Sizeof(d, size, ierr)
    call check(size == 8, 'sizeof a number')
    call MPI_Sizeof([1_2, 2_2], size, ierr)
    call check(size == 2, 'sizeof an array')
    call MPI_Sizeof('x', size, ierr)
    call check(size == 1, 'sizeof a character')
#endif
    call MPI_Type_size(MPI_LOGICAL, size, ierr)
    call check(size == 4, 'size of LOGICAL')
    call MPI_Type_size(MPI_CHARACTER, size, ierr)
    call check(size == 1, 'size of CHARACTER')
    call MPI_Type_size(MPI_2DOUBLE_PRECISION, size, ierr)
    call check(size == 16, 'size of MPI_2DOUBLE_PRECISION')
  end subroutine

  subroutine packed()
    character(len=100) :: buffer
    integer :: position, size, in(3)
    integer(kind=AK) :: where, room
    double precision :: d
    call MPI_Pack_size(3, MPI_INTEGER, MPI_COMM_SELF, size, ierr)
    call check(size >= 12, 'pack_size')
    position = 0
    call MPI_Pack([1, 2, 3], 3, MPI_INTEGER, buffer, 100, position, MPI_COMM_SELF, ierr)
    call MPI_Pack(2.5d0, 1, MPI_DOUBLE_PRECISION, buffer, 100, position, MPI_COMM_SELF, ierr)
    call check(position >= 20, 'position')
    position = 0
    call MPI_Unpack(buffer, 100, position, in, 3, MPI_INTEGER, MPI_COMM_SELF, ierr)
    call MPI_Unpack(buffer, 100, position, d, 1, MPI_DOUBLE_PRECISION, MPI_COMM_SELF, ierr)
    call check(all(in == [1, 2, 3]) .and. d == 2.5d0, 'unpack')
    where = 0
    room = 100
    call MPI_Pack_external('external32', [258, 1, 2], 3, MPI_INTEGER, buffer, room, where, ierr)
    call check(where == 12 .and. ichar(buffer(3:3)) == 1, 'pack_external')
    where = 0
    call MPI_Unpack_external('external32', buffer, room, where, in, 3, MPI_INTEGER, ierr)
    call check(all(in == [258, 1, 2]), 'unpack_external')
    call MPI_Pack_external_size('external32 ', 3, MPI_DOUBLE_PRECISION, room, ierr)
    call check(room == 24, 'pack_external_size')
  end subroutine

  ! Names are filled with blanks, and lose those at the end.
  subroutine named()
    integer :: t, length
    character(len=MPI_MAX_OBJECT_NAME) :: name
    integer(kind=AK) :: sum
    call MPI_Type_get_name(MPI_DOUBLE_PRECISION, name, length, ierr)
    call check(name == 'MPI_DOUBLE_PRECISION' .and. length == 20, 'a predefined name')
    call MPI_Type_dup(MPI_REAL, t, ierr)
    call MPI_Type_set_name(t, ' a name   ', ierr)
    call MPI_Type_get_name(t, name, length, ierr)
    call check(name == ' a name' .and. length == 7, 'a name')
    call MPI_Type_free(t, ierr)
    sum = MPI_Aint_add(100_AK, 20_AK)
    call check(sum == 120 .and. MPI_Aint_diff(sum, 100_AK) == 20, 'sums of addresses')
  end subroutine
end program

/* MPI_Sizeof of MPICH's and Open MPI's modules, which have a procedure for each type and rank. Its
 * first argument is an element or a descriptor, of which nothing is read: the name says the type.
 * Both declare characters of length 1. */
#include "mpifort.h"

#define SIZE_FUNCTION(name, bytes)                                                                 \
    void name(void *x, fint *size, fint *ierror)                                                   \
    {                                                                                              \
        (void) x;                                                                                  \
        *size = bytes;                                                                             \
        error_out(ierror, MPI_SUCCESS);                                                            \
    }

#ifdef MPIFORT_OPENMPI
#define OF_RANK(type, bytes, rank) SIZE_FUNCTION(N(mpi_sizeof_##type##_##rank##_), bytes)
#define OF_TYPE(type, bytes)                                                                       \
    OF_RANK(type, bytes, scalar)                                                                   \
    OF_RANK(type, bytes, r1)                                                                       \
    OF_RANK(type, bytes, r2)                                                                       \
    OF_RANK(type, bytes, r3)                                                                       \
    OF_RANK(type, bytes, r4)                                                                       \
    OF_RANK(type, bytes, r5)                                                                       \
    OF_RANK(type, bytes, r6)                                                                       \
    OF_RANK(type, bytes, r7)                                                                       \
    OF_RANK(type, bytes, r8)                                                                       \
    OF_RANK(type, bytes, r9)                                                                       \
    OF_RANK(type, bytes, r10)                                                                      \
    OF_RANK(type, bytes, r11)                                                                      \
    OF_RANK(type, bytes, r12)                                                                      \
    OF_RANK(type, bytes, r13)                                                                      \
    OF_RANK(type, bytes, r14)                                                                      \
    OF_RANK(type, bytes, r15)
OF_TYPE(complex32, 8)
OF_TYPE(complex64, 16)
OF_TYPE(complex128, 32)
OF_TYPE(int8, 1)
OF_TYPE(int16, 2)
OF_TYPE(int32, 4)
OF_TYPE(int64, 8)
OF_TYPE(logical, 4)
OF_TYPE(real32, 4)
OF_TYPE(real64, 8)
OF_TYPE(real128, 16)
OF_TYPE(character, 1)
#elif defined MPIFORT_MPICH && !defined MPIFORT_PROFILE
#define OF_TYPE(type, bytes)                                                                       \
    SIZE_FUNCTION(__mpi_sizeofs_MOD_mpi_sizeof_##type, bytes)                                      \
    SIZE_FUNCTION(__mpi_sizeofs_MOD_mpi_sizeof_##type##v, bytes)
OF_TYPE(i, 4)
OF_TYPE(r, 4)
OF_TYPE(d, 8)
OF_TYPE(l, 4)
OF_TYPE(cx, 8)
OF_TYPE(i1, 1)
OF_TYPE(i2, 2)
OF_TYPE(i8, 8)
OF_TYPE(ch, 1)
#define OF_F08_TYPE(type, bytes) SIZE_FUNCTION(__mpi_f08_types_MOD_mpi_sizeof_##type, bytes)
OF_F08_TYPE(xcomplex32, 8)
OF_F08_TYPE(xcomplex64, 16)
OF_F08_TYPE(xcomplex128, 32)
OF_F08_TYPE(xint8, 1)
OF_F08_TYPE(xint16, 2)
OF_F08_TYPE(xint32, 4)
OF_F08_TYPE(xint64, 8)
OF_F08_TYPE(xreal32, 4)
OF_F08_TYPE(xreal64, 8)
OF_F08_TYPE(xreal128, 16)
OF_F08_TYPE(logical, 4)
OF_F08_TYPE(character, 1)
#endif

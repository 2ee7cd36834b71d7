/* What the C library learns about Fortran. */
#include "mpifort.h"

/* Tells it how LOGICALs look and which types there are (MPI 5.0 §21.4.1), after the first call
 * that initializes MPI: not every library can be told before. The values are those of GCC and LLVM.
 * A program that is compiled with options that change the kinds cannot use this library anyway. */
void register_fortran(void)
{
    static int registered;
    if (__atomic_exchange_n(&registered, 1, __ATOMIC_RELAXED))
        return;
    fint yes = 1, no = 0, known_yes, known_no;
    int is_set = 0;
    if (PMPI_Abi_get_fortran_booleans(sizeof yes, &known_yes, &known_no, &is_set) ==
            MPI_SUCCESS &&
        !is_set)
        PMPI_Abi_set_fortran_booleans(sizeof yes, &yes, &no);
    MPI_Info info = MPI_INFO_NULL;
    if (PMPI_Abi_get_fortran_info(&info) != MPI_SUCCESS)
        return;
    if (info != MPI_INFO_NULL) {
        PMPI_Info_free(&info);
        return;
    }
#ifdef __SIZEOF_INT128__
#define WIDE_INTEGERS "true"
#else
#define WIDE_INTEGERS "false"
#endif
#if defined(__SIZEOF_FLOAT128__) || __LDBL_MANT_DIG__ == 113
#define WIDE_REALS "true"
#else
#define WIDE_REALS "false"
#endif
    static const char *const properties[][2] = {
        {"mpi_logical_size", "4"},
        {"mpi_integer_size", "4"},
        {"mpi_real_size", "4"},
        {"mpi_double_precision_size", "8"},
        {"mpi_logical1_supported", "true"},
        {"mpi_logical2_supported", "true"},
        {"mpi_logical4_supported", "true"},
        {"mpi_logical8_supported", "true"},
        {"mpi_logical16_supported", WIDE_INTEGERS},
        {"mpi_integer1_supported", "true"},
        {"mpi_integer2_supported", "true"},
        {"mpi_integer4_supported", "true"},
        {"mpi_integer8_supported", "true"},
        {"mpi_integer16_supported", WIDE_INTEGERS},
        {"mpi_real2_supported", "false"},
        {"mpi_real4_supported", "true"},
        {"mpi_real8_supported", "true"},
        {"mpi_real16_supported", WIDE_REALS},
        {"mpi_complex4_supported", "false"},
        {"mpi_complex8_supported", "true"},
        {"mpi_complex16_supported", "true"},
        {"mpi_complex32_supported", WIDE_REALS},
        {"mpi_double_complex_supported", "true"},
    };
    if (PMPI_Info_create(&info) != MPI_SUCCESS)
        return;
    for (size_t at = 0; at < sizeof properties / sizeof *properties; at++)
        PMPI_Info_set(info, properties[at][0], properties[at][1]);
    PMPI_Abi_set_fortran_info(info);
    PMPI_Info_free(&info);
}

/* This library may be loaded by a program that has initialized MPI in C. */
__attribute__((constructor)) static void register_late(void)
{
    int initialized = 0, finalized = 0;
    PMPI_Initialized(&initialized);
    PMPI_Finalized(&finalized);
    if (initialized && !finalized)
        register_fortran();
}

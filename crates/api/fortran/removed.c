/* Procedures of MPI-1 that MPI-3.0 has removed. Old programs call them, and other MPIs still have
 * them; C's functions of these names are not in the ABI. An INTEGER holds an address here, so what
 * does not fit is cut, as it always was. */
#include "mpifort.h"

#include <stdlib.h>

void N(mpi_address_)(void *location, fint *address, fint *ierror)
{
    MPI_Aint at = 0;
    int err = M(Get_address)(address_in(location), &at);
    *address = (fint) at;
    error_out(ierror, err);
}
ALIASES(address, ADDRESS)

static void bounds(fint *datatype, MPI_Aint *lb, MPI_Aint *extent, fint *ierror)
{
    error_out(ierror, M(Type_get_extent)(type_in(*datatype), lb, extent));
}

void N(mpi_type_extent_)(fint *datatype, fint *extent, fint *ierror)
{
    MPI_Aint lb = 0, wide = 0;
    bounds(datatype, &lb, &wide, ierror);
    *extent = (fint) wide;
}
ALIASES(type_extent, TYPE_EXTENT)

void N(mpi_type_lb_)(fint *datatype, fint *displacement, fint *ierror)
{
    MPI_Aint lb = 0, extent = 0;
    bounds(datatype, &lb, &extent, ierror);
    *displacement = (fint) lb;
}
ALIASES(type_lb, TYPE_LB)

void N(mpi_type_ub_)(fint *datatype, fint *displacement, fint *ierror)
{
    MPI_Aint lb = 0, extent = 0;
    bounds(datatype, &lb, &extent, ierror);
    *displacement = (fint) (lb + extent);
}
ALIASES(type_ub, TYPE_UB)

void N(mpi_type_hvector_)(fint *count, fint *blocklength, fint *stride, fint *oldtype,
                          fint *newtype, fint *ierror)
{
    MPI_Datatype made = MPI_DATATYPE_NULL;
    int err = M(Type_create_hvector)(*count, *blocklength, *stride, type_in(*oldtype), &made);
    *newtype = type_out(made);
    error_out(ierror, err);
}
ALIASES(type_hvector, TYPE_HVECTOR)

static MPI_Aint *wide_displacements(int count, const fint *displacements)
{
    size_t n = count > 0 ? (size_t) count : 0;
    MPI_Aint *wide = calloc(n + 1, sizeof *wide);
    if (wide == NULL)
        abort();
    for (size_t at = 0; at < n; at++)
        wide[at] = displacements[at];
    return wide;
}

void N(mpi_type_hindexed_)(fint *count, fint *blocklengths, fint *displacements, fint *oldtype,
                           fint *newtype, fint *ierror)
{
    MPI_Datatype made = MPI_DATATYPE_NULL;
    MPI_Aint *wide = wide_displacements(*count, displacements);
    int err = M(Type_create_hindexed)(*count, blocklengths, wide, type_in(*oldtype), &made);
    free(wide);
    *newtype = type_out(made);
    error_out(ierror, err);
}
ALIASES(type_hindexed, TYPE_HINDEXED)

void N(mpi_type_struct_)(fint *count, fint *blocklengths, fint *displacements, fint *types,
                         fint *newtype, fint *ierror)
{
    MPI_Datatype made = MPI_DATATYPE_NULL, few[FEW];
    MPI_Datatype *types_c = types_in(*count, types, few);
    MPI_Aint *wide = wide_displacements(*count, displacements);
#ifdef MPIFORT_OTHER_ABI
    /* Knows MPI_LB and MPI_UB. */
    int err = M(Type_struct)(*count, blocklengths, wide, types_c, &made);
#else
    int err = M(Type_create_struct)(*count, blocklengths, wide, types_c, &made);
#endif
    free(wide);
    few_free(types_c, few);
    *newtype = type_out(made);
    error_out(ierror, err);
}
ALIASES(type_struct, TYPE_STRUCT)

void N(mpi_errhandler_create_)(procedure *user, fint *errhandler, fint *ierror)
{
    MPI_Errhandler made = MPI_ERRHANDLER_NULL;
    int err = M(Comm_create_errhandler)(comm_error_function(user), &made);
    *errhandler = errhandler_out(made);
    error_out(ierror, err);
}
ALIASES(errhandler_create, ERRHANDLER_CREATE)

void N(mpi_errhandler_get_)(fint *comm, fint *errhandler, fint *ierror)
{
    MPI_Errhandler found = MPI_ERRHANDLER_NULL;
    int err = M(Comm_get_errhandler)(comm_in(*comm), &found);
    *errhandler = errhandler_out(found);
    error_out(ierror, err);
}
ALIASES(errhandler_get, ERRHANDLER_GET)

void N(mpi_errhandler_set_)(fint *comm, fint *errhandler, fint *ierror)
{
    error_out(ierror, M(Comm_set_errhandler)(comm_in(*comm), errhandler_in(*errhandler)));
}
ALIASES(errhandler_set, ERRHANDLER_SET)

/* The part of languages.f90 in C. */
#include <mpi.h>
#include <stdlib.h>

static void require(int ok)
{
    if (!ok)
        exit(3);
}

void c_part(MPI_Fint *comm, int *key, MPI_F08_status *status)
{
    MPI_Comm own = MPI_Comm_f2c(*comm);
    MPI_Status in_c;
    MPI_Aint *value;
    int flag, size;
    require(MPI_Comm_c2f(own) == *comm);
    require(MPI_Comm_size(own, &size) == MPI_SUCCESS);
    require(MPI_Type_f2c(MPI_Type_c2f(MPI_DOUBLE)) == MPI_DOUBLE);
    /* An attribute of Fortran is the address of its value in C. */
    require(MPI_Comm_get_attr(own, *key, &value, &flag) == MPI_SUCCESS && flag && *value == 42);
    MPI_Comm_set_attr(own, *key, (void *) 4096);
    require(MPI_Status_f082c(status, &in_c) == MPI_SUCCESS && in_c.MPI_SOURCE == 3);
    in_c.MPI_TAG = 77;
    MPI_Status_c2f08(&in_c, status);
}

int c_ignores(MPI_F08_status *status)
{
    return status == MPI_F08_STATUS_IGNORE;
}

/* Functions that MPI 3 has removed. Headers of today no longer declare them, or refuse them; old
 * binaries call them. */
#define OMPI_OMIT_MPI1_COMPAT_DECLS 1
#include "check.h"

#undef MPI_Address
#undef MPI_Type_extent
#undef MPI_Type_lb
#undef MPI_Type_ub
#undef MPI_Type_hvector
#undef MPI_Type_hindexed
#undef MPI_Type_struct
#undef MPI_Errhandler_create
#undef MPI_Errhandler_get
#undef MPI_Errhandler_set
int MPI_Address(void *, MPI_Aint *);
int MPI_Type_extent(MPI_Datatype, MPI_Aint *);
int MPI_Type_lb(MPI_Datatype, MPI_Aint *);
int MPI_Type_ub(MPI_Datatype, MPI_Aint *);
int MPI_Type_hvector(int, int, MPI_Aint, MPI_Datatype, MPI_Datatype *);
int MPI_Type_hindexed(int, int[], MPI_Aint[], MPI_Datatype, MPI_Datatype *);
int MPI_Type_struct(int, int[], MPI_Aint[], MPI_Datatype[], MPI_Datatype *);
int MPI_Errhandler_create(void (*)(MPI_Comm *, int *, ...), MPI_Errhandler *);
int MPI_Errhandler_get(MPI_Comm, MPI_Errhandler *);
int MPI_Errhandler_set(MPI_Comm, MPI_Errhandler);

#ifdef MPICH
#define OLD_LB ((MPI_Datatype)0x4c000010)
#define OLD_UB ((MPI_Datatype)0x4c000011)
#else
extern struct ompi_predefined_datatype_t ompi_mpi_lb, ompi_mpi_ub;
#define OLD_LB ((MPI_Datatype)(void *)&ompi_mpi_lb)
#define OLD_UB ((MPI_Datatype)(void *)&ompi_mpi_ub)
#endif

static int calls, is_world;

static void handler(MPI_Comm *comm, int *code, ...)
{
    int class = 0;
    calls++;
    is_world = *comm == MPI_COMM_WORLD;
    MPI_Error_class(*code, &class);
    CHECK(class == MPI_ERR_RANK);
}

int main(int argc, char **argv)
{
    int lengths[3] = {1, 2, 1}, x[2];
    MPI_Aint at[3] = {-8, 0, 40}, a, b, value;
    MPI_Datatype types[3] = {OLD_LB, MPI_INT, OLD_UB}, made;
    MPI_Errhandler mine, found;

    MPI_Init(&argc, &argv);
    MPI_Address(&x[0], &a);
    MPI_Address(&x[1], &b);
    CHECK(b - a == sizeof x[0]);
    CHECK(MPI_Type_struct(3, lengths, at, types, &made) == MPI_SUCCESS);
    CHECK(MPI_Type_extent(made, &value) == MPI_SUCCESS && value == 48);
    CHECK(MPI_Type_lb(made, &value) == MPI_SUCCESS && value == -8);
    CHECK(MPI_Type_ub(made, &value) == MPI_SUCCESS && value == 40);
    MPI_Type_free(&made);
    CHECK(made == MPI_DATATYPE_NULL);
    CHECK(MPI_Type_hvector(2, 1, 16, MPI_INT, &made) == MPI_SUCCESS);
    CHECK(MPI_Type_extent(made, &value) == MPI_SUCCESS && value == 20);
    MPI_Type_free(&made);
    CHECK(MPI_Type_hindexed(2, lengths, at + 1, MPI_INT, &made) == MPI_SUCCESS);
    CHECK(MPI_Type_extent(made, &value) == MPI_SUCCESS && value == 48);
    MPI_Type_free(&made);

    CHECK(MPI_Errhandler_create(handler, &mine) == MPI_SUCCESS);
    CHECK(MPI_Errhandler_set(MPI_COMM_WORLD, mine) == MPI_SUCCESS);
    CHECK(MPI_Errhandler_get(MPI_COMM_WORLD, &found) == MPI_SUCCESS && found == mine);
    CHECK(MPI_Send(x, 1, MPI_INT, 77, 0, MPI_COMM_WORLD) != MPI_SUCCESS);
    CHECK(calls == 1 && is_world);
    MPI_Errhandler_free(&found);
    MPI_Errhandler_free(&mine);

    CHECK(MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
    MPI_Finalize();
    return wrong;
}

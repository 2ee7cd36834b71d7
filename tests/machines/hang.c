/* Two ranks that each wait for the other first. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int me, value;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (me < 2)
        MPI_Recv(&value, 1, MPI_INT, 1 - me, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}

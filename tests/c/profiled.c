/* A profiler linked in front of the library: it defines MPI_Send and MPI_Allreduce and calls their
 * PMPI names. */
#include "check.h"

static int sends, reductions;

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    sends++;
    return PMPI_Send(buffer, count, type, to, tag, comm);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    reductions++;
    return PMPI_Allreduce(in, out, count, type, op, comm);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    int value = -1, sum = -1;
    MPI_Request request;
    OK(MPI_Irecv(&value, 1, MPI_INT, ring(-1), 1, MPI_COMM_WORLD, &request));
    OK(MPI_Send(&world_rank, 1, MPI_INT, ring(1), 1, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    SAME(value, ring(-1));
    OK(MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    OK(PMPI_Barrier(MPI_COMM_WORLD));
    MPI_Comm copy;
    OK(MPI_Comm_dup(MPI_COMM_WORLD,
                    &copy)); /* what the library does inside is not the program's call */
    OK(MPI_Bcast(&sum, 1, MPI_INT, 0, copy));
    OK(MPI_Comm_free(&copy));
    SAME(sends, 1);
    SAME(reductions, 1);
    return check_end();
}

/* Which library does the program get, and do its ranks find each other? The argument is the number
 * of ranks, 2 without one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0, size = 0, rank = 0, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Get_library_version(version, &length);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    int expected = argc > 1 ? atoi(argv[1]) : 2;
    if (strstr(version, "Ferry") == NULL || size != expected || sum != size * (size - 1) / 2) {
        printf("rank %d of %d, sum %d, on %s\n", rank, size, sum, version);
        return 1;
    }
    return 0;
}

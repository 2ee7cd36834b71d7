/* The time of a spawn of N processes and its first barrier: `spawn N`. Prints milliseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    MPI_Comm parent, inter;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        MPI_Barrier(parent);
        MPI_Comm_disconnect(&parent);
    } else {
        double start = MPI_Wtime();
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, atoi(argv[1]), MPI_INFO_NULL, 0, MPI_COMM_SELF,
                       &inter, MPI_ERRCODES_IGNORE);
        MPI_Barrier(inter);
        printf("%.3f\n", (MPI_Wtime() - start) * 1e3);
        MPI_Comm_disconnect(&inter);
    }
    MPI_Finalize();
    return 0;
}

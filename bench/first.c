/* The first round trip between two ranks that have not spoken before, and the one after it, in microseconds: what a connection costs. For 8 ranks
 * on two hosts: 0 and 5 are on different ones, and no barrier makes them partners. */
#include "measure.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    char *byte = buffer(1);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        double start = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(byte, 1, MPI_BYTE, 5, 1, MPI_COMM_WORLD);
            MPI_Recv(byte, 1, MPI_BYTE, 5, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 5) {
            MPI_Recv(byte, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(byte, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
        say(i == 0 ? "first" : "second", 1, (MPI_Wtime() - start) * 1e6);
    }
    MPI_Finalize();
    return 0;
}

/* Half a round trip between two ranks, as the papers measured it: `pingpong ROUNDS BYTES...` prints
 * `latency_us,BYTES,value` and `throughput_Mbit_s,BYTES,value` lines. On a modelled machine
 * MPI_Wtime is virtual, so a few rounds say all. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    for (int i = 2; i < argc; i++) {
        int bytes = atoi(argv[i]);
        char *buffer = calloc(bytes + 1, 1);
        double begin = 0;
        for (int round = -2; round < rounds; round++) {
            if (round == 0)
                begin = MPI_Wtime();
            if (rank == 0) {
                MPI_Send(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
                MPI_Recv(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else if (rank == 1) {
                MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
            }
        }
        double us = (MPI_Wtime() - begin) / rounds / 2 * 1e6;
        if (rank == 0) {
            printf("latency_us,%d,%.6f\n", bytes, us);
            printf("throughput_Mbit_s,%d,%.6f\n", bytes, bytes * 8 / us);
        }
        free(buffer);
    }
    MPI_Finalize();
    return 0;
}

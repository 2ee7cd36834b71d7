/* Messages between ranks 0 and 1 with WINDOW of them in flight, as bandwidth.c and
 * abis/operations.c time them. */
#ifndef FERRY_BENCH_WINDOW_H
#define FERRY_BENCH_WINDOW_H

#include <mpi.h>
#include <stddef.h>

enum { WINDOW = 64 };

/* Rank 0 sends WINDOW messages, `times` times, and waits until all have been received. Rank 1
 * receives them by MPI_Irecv, or `one_by_one` by MPI_Recv. */
static void window_one_way(int rank, char *out, char *in, int bytes, int times, int one_by_one)
{
    MPI_Request requests[WINDOW];
    for (int i = 0; i < times; i++) {
        for (int k = 0; k < WINDOW; k++)
            if (rank == 0)
                MPI_Isend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[k]);
            else if (one_by_one)
                MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else
                MPI_Irecv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[k]);
        if (rank == 0 || !one_by_one)
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
}

/* Both ranks send WINDOW messages to each other, `times` times. */
static void window_both_ways(int rank, char *out, char *in, int bytes, int times)
{
    MPI_Request requests[2 * WINDOW];
    for (int i = 0; i < times; i++) {
        for (int k = 0; k < WINDOW; k++)
            MPI_Irecv(in, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[k]);
        for (int k = 0; k < WINDOW; k++)
            MPI_Isend(out, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[WINDOW + k]);
        MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    }
}

#endif

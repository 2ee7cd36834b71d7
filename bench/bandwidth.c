/* Bandwidth from rank 0 to rank 1, and in both directions at once, with 64 messages in flight, in
 * GB/s. Then the same where all messages are sent at once and received one by one. Then the rate of
 * small messages, in millions a second. */
#include "measure.h"

enum { WINDOW = 64 };
static char *out, *in;
static int bytes;

static int one_by_one;

static void one_way(int times)
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

static void both_ways(int times)
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

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int rates[] = {1, 8, 64};
    static const int sizes[] = {256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304};
    out = buffer(4194304), in = buffer(4194304);
    for (int i = 0; i < 3; i++) {
        bytes = rates[i];
        say("rate", bytes, WINDOW / timed(one_way) / 1e6);
    }
    for (int i = 0; i < 8 && sizes[i] <= most; i++) {
        bytes = sizes[i];
        say("bandwidth", bytes, (double)bytes * WINDOW / timed(one_way) / 1e9);
    }
    for (int i = 0; i < 8 && sizes[i] <= most; i++) {
        bytes = sizes[i];
        say("bidirectional", bytes, 2.0 * bytes * WINDOW / timed(both_ways) / 1e9);
    }
    one_by_one = 1;
    for (int i = 0; i < 8 && sizes[i] <= most; i++) {
        bytes = sizes[i];
        say("onebyone", bytes, (double)bytes * WINDOW / timed(one_way) / 1e9);
    }
    finish();
    return 0;
}

/* All ranks of the lower half with their partners in the upper half, at once. First half the round
 * trip of a message, in microseconds. Then the bandwidth from the lower to the upper half, with 32
 * messages in flight for each pair, in GB/s for all pairs together. */
#include "measure.h"

enum { WINDOW = 32 };
static char *out, *in;
static int bytes, partner;

static void ping_pong(int times)
{
    for (int i = 0; i < times; i++)
        if (rank < ranks / 2) {
            MPI_Send(out, bytes, MPI_BYTE, partner, 3, MPI_COMM_WORLD);
            MPI_Recv(in, bytes, MPI_BYTE, partner, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, bytes, MPI_BYTE, partner, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, bytes, MPI_BYTE, partner, 3, MPI_COMM_WORLD);
        }
}

static void all_at_once(int times)
{
    MPI_Request requests[WINDOW];
    int sends = rank < ranks / 2;
    for (int i = 0; i < times; i++) {
        for (int k = 0; k < WINDOW; k++)
            if (sends)
                MPI_Isend(out, bytes, MPI_BYTE, partner, 1, MPI_COMM_WORLD, &requests[k]);
            else
                MPI_Irecv(in, bytes, MPI_BYTE, partner, 1, MPI_COMM_WORLD, &requests[k]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (sends)
            MPI_Recv(NULL, 0, MPI_BYTE, partner, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, partner, 2, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int sizes[] = {65536, 262144, 1048576, 4194304};
    out = buffer(4194304), in = buffer(4194304);
    partner = (rank + ranks / 2) % ranks;
    static const int small[] = {1, 1024, 4096};
    for (int i = 0; i < 3; i++) {
        bytes = small[i];
        say("turns", bytes, timed(ping_pong) / 2 * 1e6);
    }
    for (int i = 0; i < 4; i++) {
        bytes = sizes[i];
        say("pairs", bytes, (double)bytes * WINDOW * (ranks / 2) / timed(all_at_once) / 1e9);
    }
    finish();
    return 0;
}

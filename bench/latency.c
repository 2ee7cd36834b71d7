/* Half the round trip of a message between ranks 2i and 2i+1, in microseconds. With more than two
 * ranks all pairs run at the same time, and the slowest counts. Then the same with MPI_Test in a
 * loop. */
#include "measure.h"

static char *out, *in;
static int bytes, peer;

static void ping_pong(int times)
{
    for (int i = 0; i < times; i++)
        if (rank % 2 == 0) {
            MPI_Send(out, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
            MPI_Recv(in, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        }
}

static void until(MPI_Request *request)
{
    for (int there = 0; !there;)
        MPI_Test(request, &there, MPI_STATUS_IGNORE);
}

static void asking_ping_pong(int times)
{
    for (int i = 0; i < times; i++)
        for (int turn = 0; turn < 2; turn++) {
            MPI_Request request;
            if (rank % 2 == turn)
                MPI_Isend(out, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request);
            else
                MPI_Irecv(in, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request);
            until(&request);
        }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int pair_sizes[] = {1,     8,     64,     256,     1024,   4096,
                                     16384, 65536, 262144, 1048576, 4194304};
    int count = ranks == 2 ? (int)(sizeof pair_sizes / sizeof *pair_sizes) : 1;
    out = buffer(4194304), in = buffer(4194304);
    peer = rank ^ 1;
    for (int i = 0; i < count && pair_sizes[i] <= most; i++) {
        bytes = ranks == 2 ? pair_sizes[i] : 8;
        say("latency", bytes, timed(ping_pong) / 2 * 1e6);
    }
    bytes = 8;
    say("asked", bytes, timed(asking_ping_pong) / 2 * 1e6);
    finish();
    return 0;
}

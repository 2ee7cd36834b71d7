/* Matching in long queues: microseconds for a message of 8 bytes, while many receives are posted or
 * many messages wait, each with its own tag. They match in order, in the opposite order, and in
 * random order. Waiting messages are also received from any source. In each line the column before
 * the last is the number of entries, not of bytes. */
#include "measure.h"

enum { MOST = 8192, GO = 30000 };
enum { ALONG, BACK, MIXED };
static char data[MOST][8];
static MPI_Request requests[MOST];
static int entries, order, source;

/* The k-th tag in this order; entries is a power of two, so that any odd step meets each. */
static int tag(int k)
{
    return order == ALONG  ? k
           : order == BACK ? entries - 1 - k
                           : (int)((unsigned)k * 2654435761u % (unsigned)entries);
}

static void go(int from, int to)
{
    if (rank == from)
        MPI_Send(NULL, 0, MPI_BYTE, to, GO, MPI_COMM_WORLD);
    else
        MPI_Recv(NULL, 0, MPI_BYTE, from, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void posted(int times)
{
    for (int i = 0; i < times; i++) {
        if (rank == 1)
            for (int k = 0; k < entries; k++)
                MPI_Irecv(data[k], 8, MPI_BYTE, 0, k, MPI_COMM_WORLD, &requests[k]);
        go(1, 0);
        if (rank == 0)
            for (int k = 0; k < entries; k++)
                MPI_Isend(data[k], 8, MPI_BYTE, 1, tag(k), MPI_COMM_WORLD, &requests[k]);
        MPI_Waitall(entries, requests, MPI_STATUSES_IGNORE);
    }
}

static void waiting(int times)
{
    for (int i = 0; i < times; i++) {
        if (rank == 0) {
            for (int k = 0; k < entries; k++)
                MPI_Isend(data[k], 8, MPI_BYTE, 1, k, MPI_COMM_WORLD, &requests[k]);
            MPI_Waitall(entries, requests, MPI_STATUSES_IGNORE);
        }
        go(0, 1);
        if (rank == 1)
            for (int k = 0; k < entries; k++)
                MPI_Recv(data[k], 8, MPI_BYTE, source, tag(k), MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        go(1, 0);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const char *const names[][3] = {{"posted", "postedback", "postedmixed"},
                                           {"waiting", "waitingback", "waitingmixed"}};
    for (int f = 0; f < 2; f++)
        for (order = ALONG; order <= MIXED; order++)
            for (entries = 16; entries <= MOST; entries *= 8) {
                source = 0;
                say(names[f][order], entries, timed(f ? waiting : posted) / entries * 1e6);
            }
    for (entries = 16, order = BACK; entries <= MOST; entries *= 8) {
        source = MPI_ANY_SOURCE;
        say("anyback", entries, timed(waiting) / entries * 1e6);
    }
    finish();
    return 0;
}

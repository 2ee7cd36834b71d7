// ranks: 2 3
/* Large messages that are announced together and received one by one: between hosts the receiver
 * requests their bytes before their receives are posted (early CTS). What is received, and in which
 * order, must be the same for receives in order, out of order and too short, by probe and from any
 * source. A synchronous send must not complete before its receive is posted. */
#include "check.h"

enum { COUNT = 12, MOST = 1100000, TAG = 3, OTHER = 4, GO = 5 };

static unsigned char *out[COUNT], *in;
static MPI_Request requests[COUNT];

static size_t size_of(Random *r)
{
    static const size_t around[] = {66000, 150000, 262144, 700000, 1048576};
    return around[random_below(r, 5)] + (size_t)random_below(r, 4096);
}

/* Receives a message of rank 0 in one of several ways. */
static void receive(int way, int tag, size_t bytes, uint64_t seed)
{
    MPI_Status status;
    MPI_Message message;
    int count;
    switch (way) {
    case 0:
        OK(MPI_Recv(in, MOST, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &status));
        break;
    case 1:
        OK(MPI_Recv(in, MOST, MPI_BYTE, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status));
        break;
    case 2:
        OK(MPI_Probe(0, tag, MPI_COMM_WORLD, &status));
        OK(MPI_Recv(in, MOST, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &status));
        break;
    default:
        OK(MPI_Mprobe(0, tag, MPI_COMM_WORLD, &message, &status));
        OK(MPI_Mrecv(in, MOST, MPI_BYTE, &message, &status));
    }
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    SAME(count, (int)bytes);
    SAME(status.MPI_SOURCE, 0);
    SAME(status.MPI_TAG, tag);
    FILLED(in, bytes, seed);
}

/* Windows of one length or of many, in order, or with messages of another tag received before those
 * whose bytes come first. */
static void windows(Random *shared)
{
    for (int round = 0; round < 16; round++) {
        int alike = (int)random_below(shared, 2), way = (int)random_below(shared, 4);
        int crossed = round % 4 == 3;
        size_t bytes[COUNT];
        for (int k = 0; k < COUNT; k++)
            bytes[k] = alike && k > 0 ? bytes[0] : size_of(shared);
        if (world_rank == 0)
            for (int to = 1; to < world_size; to++) {
                for (int k = 0; k < COUNT; k++) {
                    fill(out[k], bytes[k], (uint64_t)(100 * round + k));
                    int tag = crossed && k % 2 ? OTHER : TAG;
                    OK(MPI_Isend(out[k], (int)bytes[k], MPI_BYTE, to, tag, MPI_COMM_WORLD,
                                 &requests[k]));
                }
                OK(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
            }
        else if (!crossed)
            for (int k = 0; k < COUNT; k++)
                receive(way, TAG, bytes[k], (uint64_t)(100 * round + k));
        else {
            receive(way, TAG, bytes[0], (uint64_t)(100 * round));
            for (int k = 1; k < COUNT; k += 2)
                receive(way, OTHER, bytes[k], (uint64_t)(100 * round + k));
            for (int k = 2; k < COUNT; k += 2)
                receive(way, TAG, bytes[k], (uint64_t)(100 * round + k));
        }
    }
}

/* The second of two messages is a synchronous one: it waits for its receive. */
static void synchronous(void)
{
    size_t bytes = 200000;
    for (int round = 0; round < 4; round++) {
        if (world_rank == 0) {
            int there = 0;
            for (int k = 0; k < 2; k++)
                fill(out[k], bytes, (uint64_t)k);
            OK(MPI_Isend(out[0], (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[0]));
            OK(MPI_Issend(out[1], (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[1]));
            OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
            /* Round trips in which the first receive has come, and what it would have asked for. */
            for (int i = 0; i < 20; i++)
                OK(MPI_Sendrecv(NULL, 0, MPI_BYTE, 1, GO, NULL, 0, MPI_BYTE, 1, GO, MPI_COMM_WORLD,
                                MPI_STATUS_IGNORE));
            OK(MPI_Test(&requests[1], &there, MPI_STATUS_IGNORE));
            SAME(there, 0);
            OK(MPI_Send(NULL, 0, MPI_BYTE, 1, GO, MPI_COMM_WORLD));
            OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        } else if (world_rank == 1) {
            receive(0, TAG, bytes, 0);
            for (int i = 0; i < 20; i++)
                OK(MPI_Sendrecv(NULL, 0, MPI_BYTE, 0, GO, NULL, 0, MPI_BYTE, 0, GO, MPI_COMM_WORLD,
                                MPI_STATUS_IGNORE));
            OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            receive(0, TAG, bytes, 1);
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
}

/* A receive that is too short, of a message whose bytes were requested early. */
static void truncated(void)
{
    enum { ROOM = 1000 };
    size_t bytes = 300000;
    if (world_rank == 0)
        for (int to = 1; to < world_size; to++) {
            for (int k = 0; k < 3; k++) {
                fill(out[k], bytes, (uint64_t)k);
                OK(MPI_Isend(out[k], (int)bytes, MPI_BYTE, to, TAG, MPI_COMM_WORLD, &requests[k]));
            }
            OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
        }
    if (world_rank == 0)
        return;
    receive(0, TAG, bytes, 0);
    memset(in, 0, ROOM + 1);
    CLASS(MPI_Recv(in, ROOM, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
          MPI_ERR_TRUNCATE);
    FILLED(in, ROOM, 1);
    SAME(in[ROOM], 0);
    receive(0, TAG, bytes, 2);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    Random shared = random_from(21);
    for (int k = 0; k < COUNT; k++)
        out[k] = malloc(MOST);
    in = malloc(MOST);
    windows(&shared);
    synchronous();
    truncated();
    for (int k = 0; k < COUNT; k++)
        free(out[k]);
    free(in);
    return check_end();
}

// ranks: 1 2 3 4
/* Unexpected messages: many are sent to a rank that receives them one by one, so most arrive before
 * their receive is posted. They come from one sender, in its order, and from any sender, in any
 * order. Then receives one after another for large messages that have been announced. */
#include "check.h"

enum { MANY = 24, SIZES = 5, TAG = 3, GO = 4 };
static const size_t sizes[SIZES] = {100, 8192, 16384, 65536, 150000};

static unsigned char *out[MANY], *in[MANY];

static uint64_t seed(int from, int which, int round)
{
    return (uint64_t)from * 1000003 + (uint64_t)which * 101 + (uint64_t)round;
}

/* Sizes differ from message to message, not from rank to rank. */
static int length(int which, int round)
{
    return (int)(sizes[(which + round) % SIZES] + (size_t)which);
}

static void start(MPI_Request *requests, int round)
{
    for (int i = 0; i < MANY; i++) {
        fill(out[i], (size_t)length(i, round), seed(world_rank, i, round));
        OK(MPI_Isend(out[i], length(i, round), MPI_BYTE, (world_rank + 1) % world_size, TAG,
                     MPI_COMM_WORLD, &requests[i]));
    }
}

static void came(const unsigned char *bytes, int which, int round, int from, MPI_Status *status)
{
    int count;
    OK(MPI_Get_count(status, MPI_BYTE, &count));
    CHECK(count == length(which, round) && status->MPI_SOURCE == from,
          "message %d of round %d: %d bytes from %d", which, round, count, status->MPI_SOURCE);
    FILLED(bytes, (size_t)length(which, round), seed(from, which, round));
}

/* How it is received: MPI_Recv from its sender, or from any; MPI_Mprobe and MPI_Mrecv; all receives
 * at once, when the sender has long begun. */
static void receive(int how, int round)
{
    int from = (world_rank + world_size - 1) % world_size, most = (int)sizes[SIZES - 1] + MANY;
    MPI_Request requests[MANY];
    MPI_Status statuses[MANY];
    for (int i = 0; i < MANY; i++) {
        if (how < 2)
            OK(MPI_Recv(in[i], most, MPI_BYTE, how == 0 ? from : MPI_ANY_SOURCE, TAG,
                        MPI_COMM_WORLD, &statuses[i]));
        else if (how == 2) {
            MPI_Message message;
            OK(MPI_Mprobe(from, TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
            OK(MPI_Mrecv(in[i], most, MPI_BYTE, &message, &statuses[i]));
        } else
            OK(MPI_Irecv(in[i], most, MPI_BYTE, from, TAG, MPI_COMM_WORLD, &requests[i]));
    }
    if (how == 3)
        OK(MPI_Waitall(MANY, requests, statuses));
    for (int i = 0; i < MANY; i++)
        came(in[i], i, round, from, &statuses[i]);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    for (int i = 0; i < MANY; i++) {
        out[i] = malloc(sizes[SIZES - 1] + MANY);
        in[i] = malloc(sizes[SIZES - 1] + MANY);
    }
    for (int round = 0; round < 20; round++) {
        MPI_Request requests[MANY];
        start(requests, round);
        if (round % 5 == 4) /* All have been announced, or have come, before the first receive. */
            OK(MPI_Sendrecv(NULL, 0, MPI_BYTE, (world_rank + 1) % world_size, GO, NULL, 0, MPI_BYTE,
                            MPI_ANY_SOURCE, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        receive(round % 4, round);
        OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
    }
    for (int i = 0; i < MANY; i++) {
        free(out[i]);
        free(in[i]);
    }
    return check_end();
}

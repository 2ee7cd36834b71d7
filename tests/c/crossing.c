// ranks: 2 3
/* Messages of both processes of a pair that cross on their way, in turns with such that do not: the
 * path of those from half a KiB to 16 KiB depends on it. */
#include "check.h"

enum { MAX = 20000, FLIGHT = 12, TAG = 3, LENGTHS = 9, STRIDE = 3 };
static const int lengths[LENGTHS] = {8, 500, 513, 1024, 4096, 5000, 12000, 16384, MAX};
static unsigned char *out[FLIGHT], *in[FLIGHT], *spread;
static int to, from;

static uint64_t seed(int rank, int which, int round)
{
    return (uint64_t)rank * 1000003 + (uint64_t)which * 101 + (uint64_t)round;
}

static int length(int which, int round)
{
    return lengths[(which + round) % LENGTHS];
}

static void make(int which, int round)
{
    fill(out[which], (size_t)length(which, round), seed(world_rank, which, round));
}

static void arrived(int which, int round)
{
    FILLED(in[which], (size_t)length(which, round), seed(from, which, round));
}

/* Each rank sends `flight` messages before it receives. */
static void exchange(int flight, int round)
{
    MPI_Request requests[2 * FLIGHT];
    for (int i = 0; i < flight; i++) {
        make(i, round);
        OK(MPI_Irecv(in[i], MAX, MPI_BYTE, from, TAG, MPI_COMM_WORLD, &requests[i]));
    }
    for (int i = 0; i < flight; i++)
        OK(MPI_Isend(out[i], length(i, round), MPI_BYTE, to, TAG, MPI_COMM_WORLD,
                     &requests[flight + i]));
    OK(MPI_Waitall(2 * flight, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < flight; i++)
        arrived(i, round);
}

/* MPI_Sendrecv from and to memory with gaps. */
static void exchange_strided(int round)
{
    int n = length(0, round);
    MPI_Datatype type;
    OK(MPI_Type_vector(n, 1, STRIDE, MPI_BYTE, &type));
    OK(MPI_Type_commit(&type));
    make(0, round);
    for (int i = 0; i < n; i++)
        spread[i * STRIDE] = out[0][i];
    OK(MPI_Sendrecv(spread, 1, type, to, TAG, in[0], MAX, MPI_BYTE, from, TAG, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    arrived(0, round);
    OK(MPI_Type_free(&type));
}

/* A message goes around all ranks, one at a time. */
static void in_turns(int round)
{
    int first = world_rank == 0;
    make(0, round);
    if (first)
        OK(MPI_Send(out[0], length(0, round), MPI_BYTE, to, TAG, MPI_COMM_WORLD));
    OK(MPI_Recv(in[0], MAX, MPI_BYTE, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    arrived(0, round);
    if (!first)
        OK(MPI_Send(out[0], length(0, round), MPI_BYTE, to, TAG, MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    to = (world_rank + 1) % world_size;
    from = (world_rank + world_size - 1) % world_size;
    spread = calloc(MAX, STRIDE);
    for (int i = 0; i < FLIGHT; i++) {
        out[i] = malloc(MAX);
        in[i] = malloc(MAX);
    }
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 5; i++)
            exchange(1, round + i);
        exchange(1 + round % FLIGHT, round);
        exchange_strided(round);
        for (int i = 0; i < round % 7; i++)
            in_turns(round + i);
    }
    for (int i = 0; i < FLIGHT; i++) {
        free(out[i]);
        free(in[i]);
    }
    free(spread);
    return check_end();
}

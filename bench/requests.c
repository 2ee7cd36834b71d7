/* Time of operations that a request stands for, on all ranks, in microseconds: non-blocking
 * collectives (started and waited for), neighbourhood collectives on a ring, persistent point to
 * point and collective operations, and partitioned messages. The number of bytes is what one rank
 * sends to one other. */
#include "measure.h"

enum { PARTITIONS = 16 };

static char *out, *in;
static int bytes;
static MPI_Comm ring;
static MPI_Request started[2];

static void ibarrier(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Ibarrier(MPI_COMM_WORLD, started);
        MPI_Wait(started, MPI_STATUS_IGNORE);
    }
}

static void ibcast(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Ibcast(out, bytes, MPI_BYTE, i % ranks, MPI_COMM_WORLD, started);
        MPI_Wait(started, MPI_STATUS_IGNORE);
    }
}

static void iallreduce(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Iallreduce(out, in, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD,
                       started);
        MPI_Wait(started, MPI_STATUS_IGNORE);
    }
}

static void iallgather(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Iallgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, started);
        MPI_Wait(started, MPI_STATUS_IGNORE);
    }
}

static void ialltoall(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Ialltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, started);
        MPI_Wait(started, MPI_STATUS_IGNORE);
    }
}

static void neighbor_allgather(int times)
{
    for (int i = 0; i < times; i++)
        MPI_Neighbor_allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, ring);
}

static void neighbor_alltoall(int times)
{
    for (int i = 0; i < times; i++)
        MPI_Neighbor_alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, ring);
}

static void start_one(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Start(started);
        MPI_Wait(started, MPI_STATUS_IGNORE);
    }
}

static void start_two(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Startall(2, started);
        MPI_Waitall(2, started, MPI_STATUSES_IGNORE);
    }
}

/* Each rank sends in 16 partitions to the next one of the ring. */
static void partitioned(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Startall(2, started);
        for (int k = 0; k < PARTITIONS; k++)
            MPI_Pready(k, started[0]);
        MPI_Waitall(2, started, MPI_STATUSES_IGNORE);
    }
}

static void free_requests(int count)
{
    for (int i = 0; i < count; i++)
        MPI_Request_free(&started[i]);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int sizes[] = {8, 1024, 65536, 1048576};
    int count = ranks == 2 ? 4 : 1, periodic = 1;
    size_t largest = (size_t)sizes[count - 1] * (size_t)(ranks < 2 ? 2 : ranks);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    out = buffer(largest), in = buffer(largest);
    memset(out, 0, largest);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
    say("ibarrier", 0, timed(ibarrier) * 1e6);
    for (int i = 0; i < count; i++) {
        bytes = sizes[i];
        int doubles = bytes / (int)sizeof(double);
        say("ibcast", bytes, timed(ibcast) * 1e6);
        say("iallreduce", bytes, timed(iallreduce) * 1e6);
        say("iallgather", bytes, timed(iallgather) * 1e6);
        say("ialltoall", bytes, timed(ialltoall) * 1e6);
        say("neighbor_allgather", bytes, timed(neighbor_allgather) * 1e6);
        say("neighbor_alltoall", bytes, timed(neighbor_alltoall) * 1e6);
        MPI_Send_init(out, bytes, MPI_BYTE, next, 0, MPI_COMM_WORLD, &started[0]);
        MPI_Recv_init(in, bytes, MPI_BYTE, previous, 0, MPI_COMM_WORLD, &started[1]);
        say("persistent", bytes, timed(start_two) * 1e6);
        free_requests(2);
        MPI_Allreduce_init(out, in, doubles, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL,
                           started);
        say("allreduce_init", bytes, timed(start_one) * 1e6);
        free_requests(1);
        if (bytes < PARTITIONS)
            continue;
        MPI_Psend_init(out, PARTITIONS, bytes / PARTITIONS, MPI_BYTE, next, 0, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &started[0]);
        MPI_Precv_init(in, PARTITIONS, bytes / PARTITIONS, MPI_BYTE, previous, 0, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &started[1]);
        say("partitioned", bytes, timed(partitioned) * 1e6);
        free_requests(2);
    }
    MPI_Comm_free(&ring);
    finish();
    return 0;
}

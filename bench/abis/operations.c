/* The operations of bench/run that take a message, as one shared object for each ABI: compiled by
 * that ABI's mpicc, linked with its library. Two ranks. */
#include "operations.h"
#include "../window.h"
#include <mpi.h>

enum { PARTITIONS = 16 };

static char *out, *in;
static int rank;
static MPI_Comm ring;

/* Requests that are started again and again, and the bytes that they were made for. */
struct persistent {
    int bytes, count;
    MPI_Request requests[2];
};

static void to_nobody(int bytes, int times)
{
    for (int i = 0; i < times; i++)
        MPI_Send(out, bytes, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
}

static void latency(int bytes, int times)
{
    for (int i = 0; i < times; i++)
        if (rank == 0) {
            MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
}

static void in_flight(int bytes, int times)
{
    window_one_way(rank, out, in, bytes, times, 0);
}

static void one_by_one(int bytes, int times)
{
    window_one_way(rank, out, in, bytes, times, 1);
}

static void both_ways(int bytes, int times)
{
    window_both_ways(rank, out, in, bytes, times);
}

static void bcast(int bytes, int times)
{
    for (int i = 0; i < times; i++)
        MPI_Bcast(out, bytes, MPI_BYTE, i & 1, MPI_COMM_WORLD);
}

static void allreduce(int bytes, int times)
{
    for (int i = 0; i < times; i++)
        MPI_Allreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(int bytes, int times)
{
    for (int i = 0; i < times; i++)
        MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoall(int bytes, int times)
{
    for (int i = 0; i < times; i++)
        MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void ibcast(int bytes, int times)
{
    MPI_Request request;
    for (int i = 0; i < times; i++) {
        MPI_Ibcast(out, bytes, MPI_BYTE, i & 1, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void iallreduce(int bytes, int times)
{
    MPI_Request request;
    for (int i = 0; i < times; i++) {
        MPI_Iallreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void iallgather(int bytes, int times)
{
    MPI_Request request;
    for (int i = 0; i < times; i++) {
        MPI_Iallgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void ialltoall(int bytes, int times)
{
    MPI_Request request;
    for (int i = 0; i < times; i++) {
        MPI_Ialltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void neighbor_allgather(int bytes, int times)
{
    for (int i = 0; i < times; i++)
        MPI_Neighbor_allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, ring);
}

static void neighbor_alltoall(int bytes, int times)
{
    for (int i = 0; i < times; i++)
        MPI_Neighbor_alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, ring);
}

/* Are there none for this many bytes yet? Those for others are freed. */
static int is_new(struct persistent *made, int bytes)
{
    if (made->bytes == bytes)
        return 0;
    while (made->count > 0)
        MPI_Request_free(&made->requests[--made->count]);
    made->bytes = bytes;
    return 1;
}

static void persistent(int bytes, int times)
{
    static struct persistent made;
    if (is_new(&made, bytes)) {
        MPI_Send_init(out, bytes, MPI_BYTE, 1 - rank, 3, MPI_COMM_WORLD, &made.requests[0]);
        MPI_Recv_init(in, bytes, MPI_BYTE, 1 - rank, 3, MPI_COMM_WORLD, &made.requests[1]);
        made.count = 2;
    }
    for (int i = 0; i < times; i++) {
        MPI_Startall(2, made.requests);
        MPI_Waitall(2, made.requests, MPI_STATUSES_IGNORE);
    }
}

static void allreduce_init(int bytes, int times)
{
    static struct persistent made;
    if (is_new(&made, bytes)) {
        MPI_Allreduce_init(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                           made.requests);
        made.count = 1;
    }
    for (int i = 0; i < times; i++) {
        MPI_Start(made.requests);
        MPI_Wait(made.requests, MPI_STATUS_IGNORE);
    }
}

static void partitioned(int bytes, int times)
{
    static struct persistent made;
    if (is_new(&made, bytes)) {
        MPI_Psend_init(out, PARTITIONS, bytes / PARTITIONS, MPI_BYTE, 1 - rank, 4, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &made.requests[0]);
        MPI_Precv_init(in, PARTITIONS, bytes / PARTITIONS, MPI_BYTE, 1 - rank, 4, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &made.requests[1]);
        made.count = 2;
    }
    for (int i = 0; i < times; i++) {
        MPI_Startall(2, made.requests);
        for (int k = 0; k < PARTITIONS; k++)
            MPI_Pready(k, made.requests[0]);
        MPI_Waitall(2, made.requests, MPI_STATUSES_IGNORE);
    }
}

static const struct operation all[] = {
    {"MPI_Send to MPI_PROC_NULL", 8, 8, to_nobody},
    {"latency", 8, 65536, latency},
    {"64 in flight", 8, 65536, in_flight},
    {"both ways", 8, 65536, both_ways},
    {"received one by one", 8, 65536, one_by_one},
    {"MPI_Bcast", 8, 65536, bcast},
    {"MPI_Allreduce", 8, 65536, allreduce},
    {"MPI_Allgather", 8, 65536, allgather},
    {"MPI_Alltoall", 8, 65536, alltoall},
    {"MPI_Ibcast and its Wait", 8, 65536, ibcast},
    {"MPI_Iallreduce and its Wait", 8, 65536, iallreduce},
    {"MPI_Iallgather and its Wait", 8, 65536, iallgather},
    {"MPI_Ialltoall and its Wait", 8, 65536, ialltoall},
    {"MPI_Neighbor_allgather on a ring", 8, 65536, neighbor_allgather},
    {"MPI_Neighbor_alltoall on a ring", 8, 65536, neighbor_alltoall},
    {"persistent send and receive", 8, 65536, persistent},
    {"persistent MPI_Allreduce", 8, 65536, allreduce_init},
    {"16 partitions", 1024, 65536, partitioned},
};

static void begin(int *argc, char ***argv, char *send, char *receive)
{
    int there, ranks = 2, periodic = 1;
    MPI_Initialized(&there);
    if (!there)
        MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
    out = send;
    in = receive;
}

static int get_rank(void)
{
    return rank;
}

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static double greatest(double value)
{
    double found;
    MPI_Allreduce(&value, &found, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return found;
}

static void end(void)
{
    MPI_Finalize();
}

const struct operations ferry_bench_operations = {
    begin, get_rank, barrier, greatest, end, sizeof all / sizeof *all, all,
};

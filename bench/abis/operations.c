/* The operations of bench/run that take a message, as one shared object for each ABI: compiled by
 * that ABI's mpicc, linked with its library. Two ranks. */
#include "operations.h"
#include "../window.h"
#include <mpi.h>

static char *out, *in;
static int rank;

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

static void iallreduce(int bytes, int times)
{
    MPI_Request request;
    for (int i = 0; i < times; i++) {
        MPI_Iallreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
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
    {"MPI_Iallreduce and its Wait", 8, 65536, iallreduce},
};

static void begin(int *argc, char ***argv, char *send, char *receive)
{
    int there;
    MPI_Initialized(&there);
    if (!there)
        MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
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

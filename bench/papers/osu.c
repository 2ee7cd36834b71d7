/* Latency, bandwidth and bidirectional bandwidth of two ranks as the OSU Micro-Benchmarks define
 * them: `osu TEST LOOPS BYTES...` with TEST latency, bw or bibw prints `TEST,BYTES,value` lines (us,
 * MB/s of 1e6 bytes). On a modelled machine MPI_Wtime is virtual, so a few loops say all. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Messages under way before an answer is awaited: the benchmarks' own default. */
enum { WINDOW = 64, SKIPPED_LOOPS = 1, PAGE_BYTES = 4096 };

static MPI_Request requests[2 * WINDOW];

static void *pages(int bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, PAGE_BYTES, bytes + PAGE_BYTES) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(memory, 1, bytes + PAGE_BYTES);
    return memory;
}

static void ping_pong(int rank, char *out, char *in, int bytes)
{
    if (rank == 0)
        MPI_Send(out, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(in, bytes, MPI_CHAR, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(out, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
}

/* A window of messages from rank 0 to rank 1, or both ways, and an answer of 4 bytes. */
static void window(int rank, char *out, char *in, int bytes, int both)
{
    int count = 0;
    if (rank == 1 || both)
        for (int i = 0; i < WINDOW; i++)
            MPI_Irecv(in, bytes, MPI_CHAR, !rank, 100, MPI_COMM_WORLD, &requests[count++]);
    if (rank == 0 || both)
        for (int i = 0; i < WINDOW; i++)
            MPI_Isend(out, bytes, MPI_CHAR, !rank, 100, MPI_COMM_WORLD, &requests[count++]);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(in, 4, MPI_CHAR, 1, 101, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(out, 4, MPI_CHAR, 0, 101, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const char *test = argc > 1 ? argv[1] : "latency";
    int is_latency = strcmp(test, "latency") == 0, both = strcmp(test, "bibw") == 0;
    int loops = argc > 2 ? atoi(argv[2]) : 1;
    for (int i = 3; i < argc; i++) {
        int bytes = atoi(argv[i]);
        char *out = pages(bytes), *in = pages(bytes);
        double begin = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        for (int loop = -SKIPPED_LOOPS; loop < loops; loop++) {
            if (loop == 0)
                begin = MPI_Wtime();
            if (is_latency)
                ping_pong(rank, out, in, bytes);
            else
                window(rank, out, in, bytes, both);
        }
        double us = (MPI_Wtime() - begin) * 1e6;
        if (rank == 0 && is_latency)
            printf("%s,%d,%.6f\n", test, bytes, us / loops / 2);
        else if (rank == 0)
            printf("%s,%d,%.6f\n", test, bytes, (both + 1.0) * bytes * WINDOW * loops / us);
        free(out);
        free(in);
    }
    MPI_Finalize();
    return 0;
}

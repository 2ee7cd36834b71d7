/* Latency, bandwidth and bidirectional bandwidth between two ranks, with the patterns of the OSU
 * Micro-Benchmarks: `osu SMALL LARGE [+OFFSET] BYTES...` prints `latency_us,BYTES,value`,
 * `bw_MB_s,BYTES,value` and `bibw_MB_s,BYTES,value` lines.
 *
 * Latency is half a round trip. Bandwidth is that of windows of 64 messages, each window answered
 * by one short message; both ways, each rank has a window of its own. Buffers begin at a page;
 * those that are sent begin OFFSET bytes behind, from 0 to 4095.
 * SMALL and LARGE are the repetitions of messages up to 8 KiB and of longer ones. On a modelled
 * machine MPI_Wtime is virtual, so a few say all. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64, PAGE = 4096, LARGE_MIN = 8 * 1024 + 1, WARM_UP = 1, DATA = 1, ANSWER = 2 };

static char *source, *sink;
static int rank;

static double latency(int bytes, int rounds)
{
    double begin = 0;
    for (int round = -WARM_UP; round < rounds; round++) {
        if (round == 0)
            begin = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(source, bytes, MPI_CHAR, 1, DATA, MPI_COMM_WORLD);
            MPI_Recv(sink, bytes, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(sink, bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(source, bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - begin) / rounds / 2 * 1e6;
}

/* Megabytes (10^6) a second from rank 0 to rank 1. */
static double bandwidth(int bytes, int rounds)
{
    MPI_Request requests[WINDOW];
    double begin = 0;
    for (int round = -WARM_UP; round < rounds; round++) {
        if (round == 0)
            begin = MPI_Wtime();
        for (int i = 0; i < WINDOW; i++)
            if (rank == 0)
                MPI_Isend(source, bytes, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(sink, bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(sink, 4, MPI_CHAR, 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(source, 4, MPI_CHAR, 0, ANSWER, MPI_COMM_WORLD);
    }
    return (double)bytes * WINDOW * rounds / (MPI_Wtime() - begin) / 1e6;
}

/* Megabytes (10^6) a second, both directions together. */
static double both_ways(int bytes, int rounds)
{
    MPI_Request requests[2 * WINDOW];
    int peer = 1 - rank;
    double begin = 0;
    for (int round = -WARM_UP; round < rounds; round++) {
        if (round == 0)
            begin = MPI_Wtime();
        for (int i = 0; i < WINDOW; i++)
            MPI_Irecv(sink, bytes, MPI_CHAR, peer, DATA, MPI_COMM_WORLD, &requests[i]);
        for (int i = 0; i < WINDOW; i++)
            MPI_Isend(source, bytes, MPI_CHAR, peer, DATA, MPI_COMM_WORLD, &requests[WINDOW + i]);
        MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    }
    return (double)bytes * WINDOW * rounds * 2 / (MPI_Wtime() - begin) / 1e6;
}

static const struct {
    const char *name;
    double (*of)(int bytes, int rounds);
} figures[] = {{"latency_us", latency}, {"bw_MB_s", bandwidth}, {"bibw_MB_s", both_ways}};

static void measure(int bytes, int rounds)
{
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double value = figures[i].of(bytes, rounds);
        if (rank == 0)
            printf("%s,%d,%.6f\n", figures[i].name, bytes, value);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int size, longest = PAGE, offset = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 3; i < argc; i++) {
        if (argv[i][0] == '+')
            offset = atoi(argv[i]) % PAGE;
        longest = atoi(argv[i]) > longest ? atoi(argv[i]) : longest;
    }
    size_t room = ((size_t)longest + 2 * PAGE - 1) / PAGE * PAGE;
    source = aligned_alloc(PAGE, room);
    sink = aligned_alloc(PAGE, room);
    if (argc < 4 || size != 2 || !source || !sink) {
        fprintf(stderr, "usage: mpiexec -n 2 osu SMALL LARGE [+OFFSET] BYTES...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    char *memory = source;
    source += offset;
    memset(memory, 1, room);
    memset(sink, 0, room);
    for (int i = 3; i < argc; i++) {
        if (argv[i][0] == '+')
            continue;
        int bytes = atoi(argv[i]);
        measure(bytes, atoi(argv[bytes < LARGE_MIN ? 1 : 2]));
    }
    MPI_Finalize();
    free(memory);
    free(sink);
    return 0;
}

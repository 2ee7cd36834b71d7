/* One call of rank 1, for tests/instructions/stalls to step through.
 *
 *     stalls CALL FIFO      CALL: receive, send, bcast, allreduce or barrier
 *
 * Both ranks make the call many times, so that connections and boards are set up. Then rank 1 waits
 * for rank 0's byte in FIFO, stops for its debugger, makes the call once more and stops again.
 */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TAG = 7, WARM_UP = 3000 };

static void call(const char *what, int rank)
{
    long value = 1, sum = 0;
    int receives = strcmp(what, "receive") == 0, sends = strcmp(what, "send") == 0;
    if ((receives && rank == 0) || (sends && rank == 1))
        MPI_Send(&value, 1, MPI_LONG, 1 - rank, TAG, MPI_COMM_WORLD);
    else if (receives || sends)
        MPI_Recv(&value, 1, MPI_LONG, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(what, "bcast") == 0)
        MPI_Bcast(&value, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    else if (strcmp(what, "allreduce") == 0)
        MPI_Allreduce(&value, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank;
    char byte = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; i < WARM_UP; i++) {
        call(argv[1], rank);
        /* So that no send is far ahead of its receive. */
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) {
        /* A message is sent before the byte. A collective may wait for rank 1. */
        int sends = strcmp(argv[1], "receive") == 0;
        if (sends)
            call(argv[1], rank);
        int fifo = open(argv[2], O_WRONLY);
        if (write(fifo, &byte, 1) != 1)
            MPI_Abort(MPI_COMM_WORLD, 3);
        if (!sends)
            call(argv[1], rank);
    } else {
        int fifo = open(argv[2], O_RDONLY);
        if (read(fifo, &byte, 1) != 1)
            MPI_Abort(MPI_COMM_WORLD, 3);
        raise(SIGTRAP);
        call(argv[1], rank);
        raise(SIGTRAP);
    }
    return MPI_Finalize();
}

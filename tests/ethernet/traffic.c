/* traffic FILE: messages of all sizes around a ring, checked, until the file exists. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LONGEST 200000

static unsigned char out[LONGEST], in[LONGEST];

static unsigned char byte(int rank, int round, int at)
{
    return (unsigned char)(rank * 31 + round * 7 + at * 13 + at / 256);
}

int main(int count, char **arguments)
{
    int rank, size, stop = 0, rounds = 0;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (; !stop; rounds++) {
        const int length = rounds % 4 == 3 ? LONGEST : 1 << (rounds % 14);
        const int to = (rank + 1) % size, from = (rank + size - 1) % size;
        MPI_Status status;
        int got;
        for (int at = 0; at < length; at++)
            out[at] = byte(rank, rounds, at);
        MPI_Sendrecv(out, length, MPI_BYTE, to, 5, in, LONGEST, MPI_BYTE, from, 5, MPI_COMM_WORLD,
                     &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        if (got != length)
            MPI_Abort(MPI_COMM_WORLD, 9);
        for (int at = 0; at < length; at++) {
            if (in[at] != byte(from, rounds, at)) {
                fprintf(stderr, "rank %d, round %d: byte %d is wrong\n", rank, rounds, at);
                MPI_Abort(MPI_COMM_WORLD, 10);
            }
        }
        stop = rank == 0 && access(arguments[1], F_OK) == 0;
        MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%d rounds of messages\n", rounds);
    MPI_Finalize();
    return 0;
}

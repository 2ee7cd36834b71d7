// Forks while an all-to-all is under way behind guards: child and parent must see what was sent,
// each byte of it. forks ROUNDS A child that is not known of when pages are put back would find
// zeros in their place.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 106551 };

static int rank, size, turn;

static char sent(int from, int to, size_t at)
{
    return (char)(at * 7 + (size_t)from * 13 + (size_t)to * 5 + (size_t)turn);
}

static size_t wrong(const char *in)
{
    size_t bad = 0;
    for (int from = 0; from < size; from++)
        for (size_t i = 0; i < BLOCK; i++)
            bad += in[(size_t)from * BLOCK + i] != sent(from, rank, i);
    return bad;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    char *out = malloc((size_t)size * BLOCK), *in = malloc((size_t)size * BLOCK);
    for (turn = 0; turn < rounds; turn++) {
        for (int to = 0; to < size; to++)
            for (size_t i = 0; i < BLOCK; i++)
                out[(size_t)to * BLOCK + i] = sent(rank, to, i);
        MPI_Alltoall(out, BLOCK, MPI_BYTE, in, BLOCK, MPI_BYTE, MPI_COMM_WORLD);
        if (turn % size == rank) {
            pid_t child = fork();
            if (child == 0)
                _exit(wrong(in) ? 1 : 0);
            int status = 0;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
                fprintf(stderr, "rank %d, round %d: the child saw something else\n", rank, turn);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        if (wrong(in)) {
            fprintf(stderr, "rank %d, round %d: wrong bytes\n", rank, turn);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    MPI_Finalize();
    return 0;
}

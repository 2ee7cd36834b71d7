/* Work for a modelled machine, to see how fast it is simulated (bench/machines).
 *     machines pingpong ROUNDS | stream ROUNDS | together ROUNDS [BYTES]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 8, BURST = 64 };

static int me, all, each = 64;
static char *out, *in;

/* Each message is waited for. */
static void pingpong(void)
{
    if (me == 0) {
        MPI_Send(out, SMALL, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(in, SMALL, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (me == 1) {
        MPI_Recv(in, SMALL, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, SMALL, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

/* A burst of messages, one answer. */
static void stream(void)
{
    for (int i = 0; i < BURST; i++) {
        if (me == 0)
            MPI_Send(out, SMALL, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        else if (me == 1)
            MPI_Recv(in, SMALL, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    pingpong();
}

/* Everybody at once. */
static void together(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Alltoall(out, each, MPI_BYTE, in, each, MPI_BYTE, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    const char *what = argc > 1 ? argv[1] : "";
    int rounds = argc > 2 ? atoi(argv[2]) : 0;
    if (argc > 3 && atoi(argv[3]) >= SMALL)
        each = atoi(argv[3]);
    void (*work)(void) = strcmp(what, "pingpong") == 0 ? pingpong
                         : strcmp(what, "stream") == 0 ? stream
                                                       : together;
    out = calloc((size_t)each, (size_t)all);
    in = calloc((size_t)each, (size_t)all);
    for (int i = 0; i < rounds; i++)
        work();
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}

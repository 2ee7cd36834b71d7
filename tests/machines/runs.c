/* Reference runs on modelled machines: prints how long something takes on rank 0, in picoseconds of
 * virtual time. runs pingpong BYTES | ring BYTES | barrier | bcast BYTES | allreduce DOUBLES |
 * alltoall BYTES | test BYTES | compute MILLISECONDS | between MILLISECONDS | until |
 * column BYTES HEAP
 * With HEAP: allocates so many bytes in small pieces first; all that follows lies elsewhere then.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 20 };

static int me, all;

/* Computes for so much processor time of this thread, however long that takes. */
static void compute(int milliseconds)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    double end = now.tv_sec * 1e3 + now.tv_nsec * 1e-6 + milliseconds;
    while (now.tv_sec * 1e3 + now.tv_nsec * 1e-6 < end)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
}

/* There and back; rank 0 computes between its two calls. */
static void pingpong(char *buffer, int bytes, int milliseconds)
{
    if (me == 0) {
        MPI_Send(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        compute(milliseconds);
        MPI_Recv(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (me == 1) {
        MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

static void once(const char *what, char *buffer, char *other, int n)
{
    int right = (me + 1) % all, left = (me + all - 1) % all, done = 0;
    MPI_Request request;
    if (strcmp(what, "pingpong") == 0)
        pingpong(buffer, n, 0);
    else if (strcmp(what, "ring") == 0)
        MPI_Sendrecv(buffer, n, MPI_BYTE, right, 0, other, n, MPI_BYTE, left, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    else if (strcmp(what, "barrier") == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    else if (strcmp(what, "bcast") == 0)
        MPI_Bcast(buffer, n, MPI_BYTE, 0, MPI_COMM_WORLD);
    else if (strcmp(what, "allreduce") == 0)
        MPI_Allreduce(buffer, other, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    else if (strcmp(what, "alltoall") == 0)
        MPI_Alltoall(buffer, n, MPI_BYTE, other, n, MPI_BYTE, MPI_COMM_WORLD);
    else if (strcmp(what, "compute") == 0) {
        if (me == 0)
            compute(n);
        pingpong(buffer, 8, 0);
    } else if (strcmp(what, "between") == 0) {
        pingpong(buffer, 8, n);
    } else if (strcmp(what, "column") == 0) {
        /* Blocks of 8 bytes at every 64th, there and back. */
        MPI_Datatype column;
        MPI_Type_vector(n / 8, 8, 64, MPI_BYTE, &column);
        MPI_Type_commit(&column);
        if (me == 0)
            MPI_Send(buffer, 1, column, 1, 0, MPI_COMM_WORLD);
        else if (me == 1)
            MPI_Recv(other, 1, column, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Type_free(&column);
    } else if (strcmp(what, "until") == 0) {
        /* Until standard input ends. */
        while (me == 0 && getchar() != EOF)
            ;
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(what, "test") == 0) {
        /* A program that polls. */
        MPI_Irecv(other, n, MPI_BYTE, left, 0, MPI_COMM_WORLD, &request);
        MPI_Send(buffer, n, MPI_BYTE, right, 0, MPI_COMM_WORLD);
        while (!done)
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    } else {
        fprintf(stderr, "there is no run \"%s\"\n", what);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

int main(int argc, char **argv)
{
    for (int heap = argc > 3 ? atoi(argv[3]) : 0; heap > 0; heap -= 80)
        *(volatile char *)malloc(heap < 80 ? (size_t)heap : 80) = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    if (argc < 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int n = argc > 2 ? atoi(argv[2]) : 0;
    size_t room = 8 * ((size_t)n * (size_t)all + 8);
    char *buffer = calloc(1, room), *other = calloc(1, room);
    once(argv[1], buffer, other, n);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int i = 0; i < ROUNDS; i++)
        once(argv[1], buffer, other, n);
    double took = MPI_Wtime() - began;
    if (me == 0)
        printf("%lld\n", llround(took * 1e12));
    free(buffer);
    free(other);
    MPI_Finalize();
    return 0;
}

// One job under any launcher: every rank speaks with every other, all agree about a sum, and each
// says where it is.
//
//   job             the whole of it
//   job abort       rank 1 calls MPI_Abort(7), the others wait for it
//   job node        only within the node (for launchers whose hosts cannot reach each other)
//   job hang        every rank waits for the one before it
//   job mute        without MPI_Init, exits with the rank's number
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void wrong(const char *what, int rank)
{
    fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void talk(MPI_Comm comm, int rank, int size)
{
    for (int far = 1; far < size; far++) {
        int to = (rank + far) % size, from = (rank - far + size) % size;
        enum { BIG = 40000 };
        static int out[BIG], in[BIG];
        for (int i = 0; i < BIG; i++)
            out[i] = rank * 31 + i;
        MPI_Sendrecv(out, BIG, MPI_INT, to, far, in, BIG, MPI_INT, from, far, comm,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < BIG; i++)
            if (in[i] != from * 31 + i)
                wrong("a message", rank);
    }
    long mine = rank + 1, sum = 0;
    for (int i = 0; i < 10; i++) {
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
        if (sum != (long)size * (size + 1) / 2)
            wrong("a sum", rank);
    }
    int word = rank == size - 1 ? 4711 : 0;
    MPI_Bcast(&word, 1, MPI_INT, size - 1, comm);
    if (word != 4711)
        wrong("a broadcast", rank);
    MPI_Barrier(comm);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "mute"))
        return atoi(getenv("FERRY_RANK") ? getenv("FERRY_RANK") : "99");
    MPI_Init(&argc, &argv);
    int rank, size, local_rank, local_size, len;
    char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &len);
    MPI_Comm node;
    if (!strcmp(what, "abort")) {
        if (rank == 1)
            MPI_Abort(MPI_COMM_WORLD, 7);
        MPI_Recv(&len, 1, MPI_INT, 1 % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (!strcmp(what, "hang"))
        MPI_Recv(&len, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!strcmp(what, "node")) {
        printf("rank %d of %d on %s\n", rank, size, name);
        MPI_Finalize();
        return 0;
    }
    talk(MPI_COMM_WORLD, rank, size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local_rank);
    MPI_Comm_size(node, &local_size);
    printf("rank %d of %d, %d of %d on its node\n", rank, size, local_rank, local_size);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}

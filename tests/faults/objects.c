/* Collective calls that make or free objects, where one rank does something else. The first
 * argument names the call, the second what the odd rank does instead: "recv", "barrier" or "end".
 * The third is the odd rank, by default the last one. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, value;
static const char *call, *instead;

static int is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* What the odd rank does. */
static void other(void)
{
    if (is(instead, "recv"))
        MPI_Recv(&value, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (is(instead, "barrier"))
        MPI_Barrier(MPI_COMM_WORLD);
    if (is(call, "counts")) { /* the odd rank gives as many doubles as the argument says */
        static double in[8192], out[8192];
        int count = rank == size - 1 ? atoi(instead) : 1;
        MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    call = argv[1], instead = argv[2];
    int who = argc > 3 ? atoi(argv[3]) : size - 1, odd = rank == who;
    MPI_Comm comm, half;
    MPI_Group group;
    MPI_Win win;
    MPI_File file;
    static long memory[8];
    static char large[1 << 20];
    MPI_Request request;
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : 1, 0, &half);
    MPI_Comm_set_name(half, "half");
    if (is(call, "free"))
        MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (is(call, "close"))
        MPI_File_open(MPI_COMM_WORLD, "objects.data", MPI_MODE_CREATE | MPI_MODE_RDWR,
                      MPI_INFO_NULL, &file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is(call, "overlap")) { /* the other group's leader is in this one */
        MPI_Intercomm_create(MPI_COMM_WORLD, 0, MPI_COMM_WORLD, who, 3, &comm);
    } else if (odd) {
        other();
    } else if (is(call, "dup")) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    } else if (is(call, "half")) {
        if (rank >= 2)
            MPI_Comm_dup(half, &comm);
    } else if (is(call, "split")) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &comm);
    } else if (is(call, "create")) {
        MPI_Comm_group(MPI_COMM_WORLD, &group);
        MPI_Comm_create(MPI_COMM_WORLD, group, &comm);
    } else if (is(call, "group")) {
        MPI_Comm_group(half, &group);
        if (rank >= 2)
            MPI_Comm_create_group(MPI_COMM_WORLD, group, 7, &comm);
    } else if (is(call, "window")) {
        MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    } else if (is(call, "allocate")) {
        MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    } else if (is(call, "free")) {
        MPI_Win_free(&win);
    } else if (is(call, "open")) {
        MPI_File_open(MPI_COMM_WORLD, "objects.data", MPI_MODE_CREATE | MPI_MODE_RDWR,
                      MPI_INFO_NULL, &file);
    } else if (is(call, "close")) {
        MPI_File_close(&file);
    } else if (is(call, "spawn")) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, size - 1, MPI_COMM_WORLD, &comm,
                       MPI_ERRCODES_IGNORE);
    } else if (is(call, "inter")) {
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < 2 ? 2 : 0, 3, &comm);
    } else if (is(call, "cart")) {
        MPI_Cart_create(MPI_COMM_WORLD, 1, &size, (int[]){0}, 0, &comm);
    } else if (is(call, "tags")) {
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < 2 ? 2 : 0, rank < 2 ? 3 : 4, &comm);
    } else if (is(call, "finalize")) { /* nobody receives what rank 0 has sent */
        if (rank == 0)
            MPI_Isend(large, sizeof large, MPI_CHAR, size - 1, 9, MPI_COMM_WORLD, &request);
    } else if (is(call, "counts")) {
        other();
    } else if (is(call, "idup")) {
        MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}

/* Messages of 8 bytes, whose instructions callgrind counts.
 *
 *     count self N      one rank: MPI_Send and MPI_Recv N times with itself
 *     count window N    one rank: MPI_Irecv, MPI_Isend and two MPI_Waitall, 64 under way at a time
 *     count isend N     two ranks: MPI_Isend and MPI_Irecv, 64 under way at a time
 *     count irecv N     the same
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 7, WINDOW = 64 };

static void windows(int n)
{
    MPI_Request requests[WINDOW];
    static long values[WINDOW];
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < n; i += WINDOW) {
        for (int k = 0; k < WINDOW; k++)
            if (rank == 0)
                MPI_Isend(&values[k], 1, MPI_LONG, 1, TAG, MPI_COMM_WORLD, &requests[k]);
            else
                MPI_Irecv(&values[k], 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD, &requests[k]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void windows_with_itself(int n)
{
    MPI_Request receives[WINDOW], sends[WINDOW];
    static long in[WINDOW], out[WINDOW];
    for (int i = 0; i < n; i += WINDOW) {
        for (int k = 0; k < WINDOW; k++)
            MPI_Irecv(&in[k], 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD, &receives[k]);
        for (int k = 0; k < WINDOW; k++)
            MPI_Isend(&out[k], 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD, &sends[k]);
        MPI_Waitall(WINDOW, sends, MPI_STATUSES_IGNORE);
        MPI_Waitall(WINDOW, receives, MPI_STATUSES_IGNORE);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int n = atoi(argv[2]);
    if (strcmp(argv[1], "window") == 0) {
        windows_with_itself(n);
        return MPI_Finalize();
    }
    if (strcmp(argv[1], "self") != 0) {
        windows(n);
        return MPI_Finalize();
    }
    long value = 1;
    for (int i = 0; i < n; i++) {
        MPI_Send(&value, 1, MPI_LONG, 0, TAG, MPI_COMM_SELF);
        MPI_Recv(&value, 1, MPI_LONG, 0, TAG, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    }
    return MPI_Finalize();
}

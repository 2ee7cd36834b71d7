/* MPI_Send and MPI_Recv of 8 bytes, whose instructions callgrind counts.
 *
 *     count self N      one rank: N times with itself
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 7 };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 3 || strcmp(argv[1], "self") != 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int n = atoi(argv[2]);
    long value = 1;
    for (int i = 0; i < n; i++) {
        MPI_Send(&value, 1, MPI_LONG, 0, TAG, MPI_COMM_SELF);
        MPI_Recv(&value, 1, MPI_LONG, 0, TAG, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    }
    return MPI_Finalize();
}

/* Time of a blocking collective on all ranks, in microseconds. The number of bytes is what one rank
 * sends to one other. */
#include "measure.h"

static char *out, *in;
static int bytes;

static void barrier(int times)
{
    for (int i = 0; i < times; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(int times)
{
    for (int i = 0; i < times; i++)
        MPI_Bcast(out, bytes, MPI_BYTE, i % ranks, MPI_COMM_WORLD);
}

static void allreduce(int times)
{
    for (int i = 0; i < times; i++)
        MPI_Allreduce(out, in, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void allgather(int times)
{
    for (int i = 0; i < times; i++)
        MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoall(int times)
{
    for (int i = 0; i < times; i++)
        MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int pair_sizes[] = {8, 1024, 65536, 1048576};
    int count = ranks == 2 ? 4 : 1;
    size_t most = (size_t)pair_sizes[count - 1] * (size_t)ranks;
    out = buffer(most), in = buffer(most);
    memset(out, 0, most);
    say("barrier", 0, timed(barrier) * 1e6);
    for (int i = 0; i < count; i++) {
        bytes = pair_sizes[i];
        say("bcast", bytes, timed(bcast) * 1e6);
        say("allreduce", bytes, timed(allreduce) * 1e6);
        say("allgather", bytes, timed(allgather) * 1e6);
        say("alltoall", bytes, timed(alltoall) * 1e6);
    }
    finish();
    return 0;
}

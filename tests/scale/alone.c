/* One rank of a job of any size: prints the job's size and its own rank, and in KiB of private
 * pages what MPI_Init and then groups have taken. It ends without MPI_Finalize: the other ranks do
 * not exist. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long private_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file) && kib < 0)
        sscanf(line, "Private_Dirty: %ld kB", &kib);
    if (file)
        fclose(file);
    if (kib < 0)
        exit(2);
    return kib;
}

int main(int argc, char **argv)
{
    long before = private_kib(), started;
    int ranks, rank;
    MPI_Group world, odd;
    MPI_Init(&argc, &argv);
    started = private_kib();
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int every_second[1][3] = {{1, ranks - 1, 2}};
    MPI_Group_range_incl(world, 1, every_second, &odd);
    printf("%d %d %ld %ld\n", ranks, rank, started - before, private_kib() - started);
    fflush(stdout);
    _exit(0);
}

/* The time in which two jobs meet at a port, first barrier included: `meet accept FILE` and
 * `meet connect FILE`. The job that accepts prints milliseconds, the median of several meetings. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMES = 21 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    char port[MPI_MAX_PORT_NAME] = "", other[4096];
    double times[TIMES];
    int rank, accepts = !strcmp(argv[1], "accept");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && accepts) {
        MPI_Open_port(MPI_INFO_NULL, port);
        snprintf(other, sizeof other, "%s.new", argv[2]);
        FILE *file = fopen(other, "w");
        fputs(port, file);
        fclose(file);
        rename(other, argv[2]);
    } else if (rank == 0) {
        FILE *file;
        while (!(file = fopen(argv[2], "r")))
            usleep(1000);
        if (!fgets(port, sizeof port, file))
            return 1;
        fclose(file);
    }
    for (int i = 0; i < TIMES; i++) {
        MPI_Comm inter;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        if (accepts)
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        else
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        MPI_Barrier(inter);
        times[i] = (MPI_Wtime() - start) * 1e3;
        MPI_Comm_disconnect(&inter);
    }
    qsort(times, TIMES, sizeof *times, compare);
    if (rank == 0 && accepts) {
        printf("%.3f\n", times[TIMES / 2]);
        MPI_Close_port(port);
    }
    MPI_Finalize();
    return 0;
}

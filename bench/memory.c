/* Memory of a rank when all have started, in MB: the mean proportional set size of all ranks. */
#include "measure.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    long kilobytes = 0, sum = 0;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %ld", &kilobytes) == 1)
            break;
    MPI_Reduce(&kilobytes, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    say("memory", 0, (double)sum / ranks / 1024);
    MPI_Barrier(MPI_COMM_WORLD);
    finish();
    return 0;
}

/* A profiler as a library of its own, for LD_PRELOAD: counts MPI_Send and MPI_Init in a program
 * that knows nothing of it, and tells by an environment variable that the program can read. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

static int sends;

int MPI_Init(int *argc, char ***argv)
{
    setenv("COUNTER_SAW_INIT", "yes", 1);
    return PMPI_Init(argc, argv);
}

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    char text[16];
    snprintf(text, sizeof text, "%d", ++sends);
    setenv("COUNTER_SENDS", text, 1);
    return PMPI_Send(buffer, count, type, to, tag, comm);
}

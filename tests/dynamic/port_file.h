/* The name of a port in a file, by which two jobs meet. Include check.h or dyn.h before. */
#include <unistd.h>

/* Opens a port and writes its name: the file is there when all of it is. */
static inline void write_port(const char *path, char *port)
{
    char made[4096];
    OK(MPI_Open_port(MPI_INFO_NULL, port));
    snprintf(made, sizeof made, "%s.new", path);
    FILE *file = fopen(made, "w");
    if (!file)
        FAIL("%s cannot be written", made);
    fputs(port, file);
    fclose(file);
    rename(made, path);
}

/* Reads the name that the other job writes, once it is there. */
static inline void read_port(const char *path, char *port)
{
    FILE *file;
    while (!(file = fopen(path, "r")))
        usleep(1000);
    if (!fgets(port, MPI_MAX_PORT_NAME, file))
        FAIL("no name of a port in %s", path);
    fclose(file);
}

/* Meets the other job at the port of this file. */
static inline MPI_Comm meet_by(const char *path, int accepts)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    if (world_rank == 0 && accepts)
        write_port(path, port);
    else if (world_rank == 0)
        read_port(path, port);
    if (accepts)
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    else
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    return inter;
}

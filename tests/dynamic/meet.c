/* Two jobs meet: `meet accept FILE [TIMES]` writes a port's name to FILE, `meet connect FILE
 * [TIMES]` reads it. */
#include "../c/dyn.h"
#include "port_file.h"

#include <signal.h>

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    int accepts = !strcmp(argv[1], "accept"), times = argc > 3 ? atoi(argv[3]) : 2;
    char port[MPI_MAX_PORT_NAME] = "";
    if (world_rank == 0 && accepts)
        write_port(argv[2], port);
    else if (world_rank == 0)
        read_port(argv[2], port);
    const char *dies = getenv("DIES");
    for (int i = 0; i < times; i++) {
        MPI_Comm inter;
        if (accepts)
            OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
        else
            OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
        if (dies) {
            /* The other job dies, and this one waits for it. */
            int word;
            if (!strcmp(dies, argv[1]))
                raise(SIGKILL);
            MPI_Recv(&word, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
        }
        use(inter, accepts);
        if (i % 2)
            OK(MPI_Comm_disconnect(&inter));
        else
            OK(MPI_Comm_free(&inter));
    }
    if (world_rank == 0 && accepts)
        OK(MPI_Close_port(port));
    return check_end();
}

/* A rank that waits at a port until a time limit does not make the job hang, though all others wait
 * for it (MPI 5.0 section 11.9.3: MPI_ERR_PORT once the time is over). */
// ranks: 2
// machines: no
#include "dyn.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char port[MPI_MAX_PORT_NAME] = "";
    if (world_rank == 0)
        OK(MPI_Open_port(MPI_INFO_NULL, port));
    OK(MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD));
    if (world_rank == 1) {
        MPI_Info info;
        MPI_Comm inter;
        int class = -1;
        OK(MPI_Info_create(&info));
        /* Longer than it takes to tell that a job hangs. */
        OK(MPI_Info_set(info, "timeout", "3"));
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        MPI_Error_class(MPI_Comm_connect(port, info, 0, MPI_COMM_SELF, &inter), &class);
        SAME(class, MPI_ERR_PORT);
        OK(MPI_Info_free(&info));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0)
        OK(MPI_Close_port(port));
    return check_end();
}

/* Two jobs of one mpiexec that wait for each other: `hang all`. Or one of them computes for longer
 * than a hang takes, and then answers: `hang not`. */
#include "../c/check.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char *arguments[] = {argv[1], NULL};
    int word = 0, hangs = !strcmp(argv[1], "all");
    MPI_Comm inter;
    OK(MPI_Comm_get_parent(&inter));
    if (inter == MPI_COMM_NULL) {
        OK(MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                          MPI_ERRCODES_IGNORE));
        OK(MPI_Recv(&word, 1, MPI_INT, 1, 3, inter, MPI_STATUS_IGNORE));
        SAME(word, 4711);
    } else if (hangs) {
        OK(MPI_Recv(&word, 1, MPI_INT, world_rank, 4, inter, MPI_STATUS_IGNORE));
    } else if (world_rank == 1) {
        int others;
        OK(MPI_Comm_remote_size(inter, &others));
        sleep(3);
        word = 4711;
        for (int i = 0; i < others; i++)
            OK(MPI_Send(&word, 1, MPI_INT, i, 3, inter));
    }
    OK(MPI_Comm_disconnect(&inter));
    return check_end();
}

/* Two jobs that wait for each other: `hang all`, one of which has started the other; `hang all
 * accept FILE` and `hang all connect FILE`, which were started apart. Or one of them computes for
 * longer than a hang takes, and then answers: `hang not` in place of `hang all`. */
#include "../c/check.h"
#include "port_file.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char *arguments[] = {argv[1], NULL};
    int word = 0, hangs = !strcmp(argv[1], "all"), waits = 1;
    MPI_Comm inter;
    OK(MPI_Comm_get_parent(&inter));
    if (argc > 3) {
        waits = !strcmp(argv[2], "accept");
        inter = meet_by(argv[3], waits);
    } else if (inter != MPI_COMM_NULL) {
        waits = 0;
    } else {
        OK(MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                          MPI_ERRCODES_IGNORE));
    }
    if (waits) {
        OK(MPI_Recv(&word, 1, MPI_INT, 1, 3, inter, MPI_STATUS_IGNORE));
        SAME(word, 4711);
    } else if (hangs) {
        OK(MPI_Recv(&word, 1, MPI_INT, world_rank, 4, inter, MPI_STATUS_IGNORE));
    } else if (world_rank == 1) {
        int others;
        OK(MPI_Comm_remote_size(inter, &others));
        sleep(2);
        word = 4711;
        for (int i = 0; i < others; i++)
            OK(MPI_Send(&word, 1, MPI_INT, i, 3, inter));
    }
    OK(MPI_Comm_disconnect(&inter));
    return check_end();
}

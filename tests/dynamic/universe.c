/* MPI_UNIVERSE_SIZE is what `universe N` says, also for a process that is started. */
#include "../c/check.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char *arguments[] = {argv[1], NULL};
    int *size = NULL, found = 0;
    MPI_Comm inter;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &size, &found));
    CHECK(found, "MPI_UNIVERSE_SIZE is not set");
    SAME(found ? *size : -1, atoi(argv[1]));
    OK(MPI_Comm_get_parent(&inter));
    if (inter == MPI_COMM_NULL)
        OK(MPI_Comm_spawn(argv[0], arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                          MPI_ERRCODES_IGNORE));
    OK(MPI_Comm_disconnect(&inter));
    return check_end();
}

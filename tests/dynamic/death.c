/* Parents and children of which some die: `death HOW`. */
#include "../c/check.h"

#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    const char *how = argv[1];
    char *arguments[] = {argv[1], NULL};
    MPI_Comm parent, inter;
    int word = 0;
    OK(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL) {
        if (!strcmp(how, "child-killed"))
            raise(SIGKILL);
        if (!strcmp(how, "child-aborts"))
            MPI_Abort(MPI_COMM_WORLD, 7);
        if (!strcmp(how, "child-exits"))
            _exit(5);
        if (!strcmp(how, "parent-killed") || !strcmp(how, "parent-aborts"))
            MPI_Recv(&word, 1, MPI_INT, 0, 0, parent, MPI_STATUS_IGNORE);
        if (!strcmp(how, "parent-killed-child-computes"))
            sleep(100);
        if (!strcmp(how, "child-finishes"))
            return check_end();
        OK(MPI_Comm_disconnect(&parent));
        if (!strcmp(how, "independent-child-killed"))
            raise(SIGKILL);
        if (!strcmp(how, "independent-parent-killed")) {
            sleep(1);
            puts("the child goes on");
        }
        return check_end();
    }
    OK(MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                      MPI_ERRCODES_IGNORE));
    if (!strncmp(how, "parent-killed", 13) && world_rank == 0)
        raise(SIGKILL);
    if (!strcmp(how, "parent-aborts") && world_rank == 0)
        MPI_Abort(MPI_COMM_WORLD, 9);
    if (!strncmp(how, "child", 5) || !strncmp(how, "parent", 6))
        MPI_Recv(&word, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
    OK(MPI_Comm_disconnect(&inter));
    if (!strcmp(how, "independent-parent-killed") && world_rank == 0)
        raise(SIGKILL);
    if (!strcmp(how, "independent-child-killed")) {
        sleep(1);
        MPI_Barrier(MPI_COMM_WORLD);
        if (world_rank == 0)
            puts("the parent goes on");
    }
    return check_end();
}

/* Processes that a foreign launcher starts for those that it has started: `spawn VARIABLE`, which
 * that launcher sets for them. */
#include "../c/dyn.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char *arguments[] = {argv[1], "two words", NULL};
    int *size = NULL, found = 0, codes[2] = {-1, -1};
    MPI_Comm inter;
    OK(MPI_Comm_get_parent(&inter));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &size, &found));
    CHECK(found && *size >= world_size, "MPI_UNIVERSE_SIZE is %d", found ? *size : -1);
    if (inter != MPI_COMM_NULL) {
        CHECK(argc == 3 && !strcmp(argv[2], "two words"), "other arguments: %d", argc);
        CHECK(getenv(argv[1]), "%s is not set: another launcher has started this", argv[1]);
        use(inter, 0);
        OK(MPI_Comm_disconnect(&inter));
        return check_end();
    }
    for (int i = 0; i < 2; i++) {
        OK(MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, i % world_size, MPI_COMM_WORLD,
                          &inter, codes));
        SAME(codes[0], MPI_SUCCESS);
        SAME(codes[1], MPI_SUCCESS);
        use(inter, 1);
        OK(MPI_Comm_disconnect(&inter));
    }
    if (world_rank == 0)
        puts("spawned");
    return check_end();
}

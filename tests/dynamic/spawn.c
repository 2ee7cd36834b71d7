/* Spawns itself: `spawn [COUNT [TIMES]]`. */
#include "../c/dyn.h"

static void child(MPI_Comm parent)
{
    int size, remote, told = -1;
    MPI_Comm again;
    OK(MPI_Comm_get_parent(&again));
    SAME(!!(again == parent), 1);
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_remote_size(parent, &remote));
    OK(MPI_Bcast(&told, 1, MPI_INT, 0, parent));
    SAME(told, size);
    use(parent, 0);
    OK(MPI_Comm_disconnect(&parent));
    OK(MPI_Comm_get_parent(&again));
    SAME(!!(again == MPI_COMM_NULL), 1);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm parent;
    OK(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL) {
        SAME(argc, 3);
        SAME(strcmp(argv[1], "two words"), 0);
        SAME(strcmp(argv[2], ""), 0);
        child(parent);
        return check_end();
    }
    int count = argc > 1 ? atoi(argv[1]) : 2, times = argc > 2 ? atoi(argv[2]) : 2;
    char *arguments[] = {"two words", "", NULL};
    /* SPAWN_HOSTS: the hosts of the info. */
    MPI_Info info;
    OK(MPI_Info_create(&info));
    if (getenv("SPAWN_HOSTS"))
        OK(MPI_Info_set(info, "host", getenv("SPAWN_HOSTS")));
    for (int i = 0; i < times; i++) {
        MPI_Comm inter;
        int *codes = malloc(count * sizeof *codes), root = i % world_size;
        memset(codes, -1, count * sizeof *codes);
        OK(MPI_Comm_spawn(world_rank == root ? argv[0] : NULL, arguments, count, info, root,
                          MPI_COMM_WORLD, &inter, codes));
        for (int j = 0; j < count; j++)
            SAME(codes[j], MPI_SUCCESS);
        free(codes);
        int n;
        OK(MPI_Comm_remote_size(inter, &n));
        SAME(n, count);
        OK(MPI_Bcast(&count, 1, MPI_INT, world_rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter));
        use(inter, 1);
        OK(MPI_Comm_disconnect(&inter));
    }
    OK(MPI_Info_free(&info));
    return check_end();
}

/* Two programs of one spawn, each with an info of its own: `multiple FOLDER FILE`. The folder has
 * this program as "again"; the file names hosts. */
#include "../c/dyn.h"

#include <unistd.h>

static int number_of(MPI_Comm comm, int key)
{
    int *value = NULL, found = 0;
    OK(MPI_Comm_get_attr(comm, key, &value, &found));
    return found ? *value : -1;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char here[4096];
    MPI_Comm inter;
    OK(MPI_Comm_get_parent(&inter));
    if (inter != MPI_COMM_NULL) {
        /* Two of the first program, which soft allows, and one of the second. */
        int appnum = number_of(MPI_COMM_WORLD, MPI_APPNUM);
        SAME(world_size, 3);
        SAME(appnum, world_rank == 2);
        SAME(argc, 2);
        SAME(strcmp(argv[1], appnum ? "second" : "first"), 0);
        if (appnum == 0) {
            CHECK(getcwd(here, sizeof here) && !strcmp(here, getenv("EXPECTED")),
                  "the first runs in %s", here);
            CHECK(getenv("COLOUR") && !strcmp(getenv("COLOUR"), "deep blue"), "no variable");
        }
        use(inter, 0);
        OK(MPI_Comm_disconnect(&inter));
        return check_end();
    }
    char variables[8192];
    char *first[] = {"first", NULL}, *second[] = {"second", NULL}, **arguments[] = {first, second};
    char *commands[] = {"again", argv[0]};
    int counts[] = {5, 1}, codes[6];
    MPI_Info infos[2];
    OK(MPI_Info_create(&infos[0]));
    OK(MPI_Info_create(&infos[1]));
    snprintf(variables, sizeof variables, "EXPECTED=%s\nCOLOUR=deep blue", argv[1]);
    OK(MPI_Info_set(infos[0], "wdir", argv[1]));
    OK(MPI_Info_set(infos[0], "path", "/no/such:."));
    OK(MPI_Info_set(infos[0], "env", variables));
    OK(MPI_Info_set(infos[0], "soft", "2,7:9"));
    OK(MPI_Info_set(infos[1], "file", argv[2]));
    OK(MPI_Comm_spawn_multiple(2, commands, arguments, counts, infos, 0, MPI_COMM_WORLD, &inter,
                               codes));
    for (int i = 0; i < 6; i++) {
        int class;
        OK(MPI_Error_class(codes[i], &class));
        SAME(class, i < 2 || i == 5 ? MPI_SUCCESS : MPI_ERR_SPAWN);
    }
    use(inter, 1);
    OK(MPI_Comm_disconnect(&inter));
    OK(MPI_Info_free(&infos[0]));
    OK(MPI_Info_free(&infos[1]));
    return check_end();
}

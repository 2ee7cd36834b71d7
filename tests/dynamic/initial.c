/* The error handler that processes begin with (MPI 5.0 section 11.8.4): that of mpiexec's option
 * -initial-errhandler, or of the spawn's info: `initial NAME [later]`. */
#include "../c/dyn.h"

#include <unistd.h>

/* The handler of a name, null for another one. */
static MPI_Errhandler named(const char *name)
{
    if (!strcmp(name, "mpi_errors_return"))
        return MPI_ERRORS_RETURN;
    if (!strcmp(name, "mpi_errors_abort"))
        return MPI_ERRORS_ABORT;
    return strcmp(name, "mpi_errors_are_fatal") ? MPI_ERRHANDLER_NULL : MPI_ERRORS_ARE_FATAL;
}

static void begins_with(MPI_Comm comm, const char *name)
{
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    OK(MPI_Comm_get_errhandler(comm, &handler));
    CHECK(handler == named(name), "another handler than %s", name);
}

/* A process more, by an info with this name, or without one. */
static int spawn_one(char *command, const char *name, MPI_Comm *inter)
{
    char *arguments[] = {(char *)(name ? name : "mpi_errors_are_fatal"), "later", NULL};
    MPI_Info info = MPI_INFO_NULL;
    if (name) {
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "mpi_initial_errhandler", name));
    }
    int code = MPI_Comm_spawn(command, arguments, 1, info, 0, MPI_COMM_WORLD, inter,
                              MPI_ERRCODES_IGNORE);
    if (name)
        OK(MPI_Info_free(&info));
    return code;
}

int main(int argc, char **argv)
{
    const char *name = argv[1];
    int class = -1, returns = !strcmp(name, "mpi_errors_return");
    /* What is wrong before MPI_Init and after MPI_Finalize is the same handler's. */
    if (returns)
        CHECK(MPI_Error_class(-1, &class) != MPI_SUCCESS, "a wrong code is accepted");
    check_begin(&argc, &argv);
    begins_with(MPI_COMM_WORLD, name);
    begins_with(MPI_COMM_SELF, name);

    char value[64] = "";
    int length = sizeof value, found = 0;
    OK(MPI_Info_get_string(MPI_INFO_ENV, "mpi_initial_errhandler", &length, value, &found));
    CHECK(found && !strcmp(value, name), "MPI_INFO_ENV has \"%s\", not %s", value, name);

    MPI_Comm inter;
    OK(MPI_Comm_get_parent(&inter));
    CHECK((inter != MPI_COMM_NULL) == (argc == 3), "a parent that is not there");
    if (inter != MPI_COMM_NULL) {
        begins_with(inter, name);
        OK(MPI_Comm_disconnect(&inter));
    } else {
        OK(spawn_one(argv[0], NULL, &inter));
        OK(MPI_Comm_disconnect(&inter));
        OK(spawn_one(argv[0], "mpi_errors_abort", &inter));
        OK(MPI_Comm_disconnect(&inter));
        OK(spawn_one(argv[0], "mpi_errors_return", &inter));
        OK(MPI_Comm_disconnect(&inter));
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        OK(MPI_Error_class(spawn_one(argv[0], "mpi_errors_forgive", &inter), &class));
        SAME(class, MPI_ERR_INFO_VALUE);
    }
    OK(MPI_Finalize());
    if (returns)
        CHECK(MPI_Error_class(-1, &class) != MPI_SUCCESS, "a wrong code is accepted");
    return check_failures != 0;
}

/* Spawns what does not come: `fail COMMAND [ARGUMENT]` prints the error's class and text. */
#include "../c/check.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm inter;
    int codes[3] = {-1, -1, -1}, class = -1, length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code =
        MPI_Comm_spawn(argv[1], argv + 2, 3, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
    OK(MPI_Error_class(code, &class));
    SAME(class, MPI_ERR_SPAWN);
    SAME(!!(inter == MPI_COMM_NULL), 1);
    for (int i = 0; i < 3; i++) {
        OK(MPI_Error_class(codes[i], &class));
        SAME(class, MPI_ERR_SPAWN);
    }
    OK(MPI_Error_string(code, text, &length));
    if (world_rank == 0)
        puts(text);
    /* The next one works. */
    return check_end();
}

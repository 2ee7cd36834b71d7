/* Every rank of a job that has met another one is told when that dies: `told accept FILE` goes on
 * without the job of `told connect FILE`; `told spawn` without the processes that it starts. */
#include "../c/check.h"

#include <signal.h>
#include <unistd.h>

/* Messages of the processes that have died are errors, on all ranks and more than once. */
static void is_told(MPI_Comm inter)
{
    int word = 0;
    char text[MPI_MAX_ERROR_STRING] = "success";
    int length;
    OK(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
    OK(MPI_Send(&word, 1, MPI_INT, 0, 1, inter));
    for (int i = 0; i < 2; i++) {
        int code = MPI_Recv(&word, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
        CHECK(code != MPI_SUCCESS, "a message of the dead has come");
        if (code)
            OK(MPI_Error_string(code, text, &length));
        CHECK(strstr(text, "died"), "the text is [%s]", text);
    }
    /* The rest of the job works. */
    int sum = 0, one = 1;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    SAME(sum, world_size);
    if (world_rank == 0)
        puts("all are told");
    OK(MPI_Comm_free(&inter));
}

/* Dies when all of the other group wait. */
static void die(MPI_Comm inter)
{
    int others, word;
    OK(MPI_Comm_remote_size(inter, &others));
    for (int i = 0; i < others; i++)
        OK(MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 1, inter, MPI_STATUS_IGNORE));
    if (world_rank == 0)
        raise(SIGKILL);
    OK(MPI_Recv(&word, 1, MPI_INT, 0, 2, inter, MPI_STATUS_IGNORE));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char port[MPI_MAX_PORT_NAME] = "";
    char *arguments[] = {"child", NULL};
    MPI_Comm inter;
    OK(MPI_Comm_get_parent(&inter));
    if (inter != MPI_COMM_NULL) {
        die(inter);
    } else if (!strcmp(argv[1], "spawn")) {
        OK(MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                          MPI_ERRCODES_IGNORE));
        is_told(inter);
    } else if (!strcmp(argv[1], "accept")) {
        if (world_rank == 0) {
            char made[4096];
            OK(MPI_Open_port(MPI_INFO_NULL, port));
            snprintf(made, sizeof made, "%s.new", argv[2]);
            FILE *file = fopen(made, "w");
            fputs(port, file);
            fclose(file);
            rename(made, argv[2]);
        }
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
        is_told(inter);
    } else {
        FILE *file = world_rank ? NULL : fopen(argv[2], "r");
        if (world_rank == 0 && (!file || !fgets(port, sizeof port, file)))
            FAIL("no name of a port in %s", argv[2]);
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
        die(inter);
    }
    return check_end();
}

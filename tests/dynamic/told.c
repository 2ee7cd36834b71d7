/* Every rank of a job that has met another one hears that it has died, also while the root is not
 * in MPI: `told accept FIFO FILE` goes on without the job of `told connect FIFO FILE`; `told spawn
 * FIFO` without the processes that it starts; `told joined FIFO listen|call PATH` without the job
 * of `told dies FIFO call|listen PATH`, each rank of which has joined one of it (MPI_Comm_join). */
#include "../c/check.h"
#include "port_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Until all others have been told, the root waits outside of MPI: for a byte of each of them. */
static void hears_later(const char *fifo)
{
    char byte = 0;
    int file = open(fifo, world_rank == 0 ? O_RDONLY : O_WRONLY);
    CHECK(file >= 0, "%s cannot be opened", fifo);
    if (world_rank == 0)
        for (int told = 0; told < world_size - 1;)
            told += read(file, &byte, 1) == 1;
    else if (write(file, &byte, 1) != 1)
        FAIL("%s cannot be written", fifo);
    close(file);
}

/* Messages of the processes that have died are errors, on all ranks and more than once. */
static void is_told(MPI_Comm inter, const char *fifo)
{
    int word = 0;
    char text[MPI_MAX_ERROR_STRING] = "success";
    int length;
    OK(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
    OK(MPI_Send(&word, 1, MPI_INT, 0, 1, inter));
    if (world_rank == 0)
        hears_later(fifo);
    for (int i = 0; i < 2; i++) {
        int code = MPI_Recv(&word, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
        CHECK(code != MPI_SUCCESS, "a message of the dead has come");
        if (code)
            OK(MPI_Error_string(code, text, &length));
        CHECK(strstr(text, "died"), "the text is [%s]", text);
    }
    if (world_rank != 0)
        hears_later(fifo);
    /* The rest of the job works. */
    int sum = 0, one = 1;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    SAME(sum, world_size);
    if (world_rank == 0)
        puts("all are told");
    OK(MPI_Comm_free(&inter));
}

/* Dies when all of the other group wait; those of all ranks, if each has another group (`each`). */
static void die(MPI_Comm inter, int each)
{
    int others, word;
    OK(MPI_Comm_remote_size(inter, &others));
    for (int i = 0; i < others; i++)
        OK(MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 1, inter, MPI_STATUS_IGNORE));
    if (each)
        OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0)
        raise(SIGKILL);
    OK(MPI_Recv(&word, 1, MPI_INT, 0, 2, inter, MPI_STATUS_IGNORE));
}

/* The process of the same rank in the other job, by a socket at PATH.RANK. */
static MPI_Comm joined(int listens, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX}, made = at;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), connection = fd;
    MPI_Comm inter;
    snprintf(at.sun_path, sizeof at.sun_path, "%s.%d", path, world_rank);
    snprintf(made.sun_path, sizeof made.sun_path, "%s.%d.new", path, world_rank);
    if (listens) {
        CHECK(bind(fd, (struct sockaddr *)&made, sizeof made) == 0 && listen(fd, 1) == 0,
              "%s cannot be listened at", path);
        rename(made.sun_path, at.sun_path);
        connection = accept(fd, NULL, NULL);
    } else {
        while (connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
            usleep(1000);
    }
    OK(MPI_Comm_join(connection, &inter));
    close(connection);
    return inter;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char *arguments[] = {"child", NULL};
    MPI_Comm inter;
    OK(MPI_Comm_get_parent(&inter));
    if (inter != MPI_COMM_NULL) {
        die(inter, 0);
    } else if (!strcmp(argv[1], "spawn")) {
        OK(MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                          MPI_ERRCODES_IGNORE));
        is_told(inter, argv[2]);
    } else if (!strcmp(argv[1], "joined")) {
        is_told(joined(!strcmp(argv[3], "listen"), argv[4]), argv[2]);
    } else if (!strcmp(argv[1], "dies")) {
        die(joined(!strcmp(argv[3], "listen"), argv[4]), 1);
    } else if (!strcmp(argv[1], "accept")) {
        is_told(meet_by(argv[3], 1), argv[2]);
    } else {
        die(meet_by(argv[3], 0), 0);
    }
    return check_end();
}

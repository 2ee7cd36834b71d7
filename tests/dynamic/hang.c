/* Jobs that wait for each other, and what is none of it. `hang KIND HOW …`, where KIND is "all",
 * or "not": the side that would answer computes for longer than a hang takes, then answers. HOW:
 *
 * nothing             a job that has started the other one
 * accept|connect FILE  two jobs that were started apart
 * spawned FILE        a job whose child meets a third job (connect FILE)
 * first FILE FILE2, second FILE, third FILE2   the first two meet and merge, and meet the third
 *                     together: by the first one's root, so that the second knows it only by that
 * left FIFO           a child that disconnects, and then waits for itself, while its parent goes on
 * parts FIFO FILE, meets FILE FILE2   two jobs meet and disconnect; the second meets another one
 *                     (connect FILE2), with which it hangs; the first goes on
 * own accept|spawn|connect   one rank is in the call, and the other in MPI_Recv */
#include "../c/check.h"
#include "port_file.h"

#include <fcntl.h>
#include <unistd.h>

static int hangs;

/* Sends more than is received: what went between jobs that have parted must not be taken for
 * messages under way. */
static void uneven(MPI_Comm inter, int sends)
{
    int word = 1;
    for (int i = 0; i < 3 && sends; i++)
        OK(MPI_Send(&word, 1, MPI_INT, world_rank, 9, inter));
    for (int i = 0; i < 3 && !sends; i++)
        OK(MPI_Recv(&word, 1, MPI_INT, world_rank, 9, inter, MPI_STATUS_IGNORE));
    OK(MPI_Comm_disconnect(&inter));
}

/* Waits outside of MPI until the test closes the other end. */
static void goes_on(const char *fifo)
{
    char byte;
    if (world_rank == 0) {
        int file = open(fifo, O_RDONLY);
        CHECK(file >= 0 && read(file, &byte, 1) == 0, "%s cannot be read", fifo);
        close(file);
        puts("goes on");
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void waits(MPI_Comm comm, int rank, int tag)
{
    int word;
    OK(MPI_Recv(&word, 1, MPI_INT, rank, tag, comm, MPI_STATUS_IGNORE));
    SAME(word, 4711);
}

static MPI_Comm started(const char *program, char **arguments)
{
    MPI_Comm inter;
    OK(MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                      MPI_ERRCODES_IGNORE));
    return inter;
}

/* The side that is waited for: it waits, too, or answers. */
static void awaited(MPI_Comm inter)
{
    int word = 4711, others;
    if (hangs) {
        waits(inter, world_rank, 4);
    } else if (world_rank == 1) {
        OK(MPI_Comm_remote_size(inter, &others));
        sleep(2);
        for (int i = 0; i < others; i++)
            OK(MPI_Send(&word, 1, MPI_INT, i, 3, inter));
    }
}

static void child(MPI_Comm parent, const char *how, char **argv)
{
    if (!strcmp(how, "left")) {
        uneven(parent, 1);
        waits(MPI_COMM_WORLD, 1 - world_rank, 4);
    } else if (!strcmp(how, "spawned")) {
        waits(meet_by(argv[3], 1), 1, 3);
    } else {
        awaited(parent);
        OK(MPI_Comm_disconnect(&parent));
    }
}

/* The three that know each other through the first one's root. */
static void of_three(const char *how, char **argv)
{
    int is_first = !strcmp(how, "first");
    MPI_Comm inter = meet_by(argv[3], is_first), merged, third;
    char port[MPI_MAX_PORT_NAME] = "";
    OK(MPI_Intercomm_merge(inter, !is_first, &merged));
    if (is_first && world_rank == 0)
        write_port(argv[4], port);
    OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, merged, &third));
    waits(is_first ? inter : third, 1, 3);
}

static void of_one(const char *how)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    if (world_rank == 0)
        OK(MPI_Open_port(MPI_INFO_NULL, port));
    OK(MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD));
    if (world_rank == 0)
        waits(MPI_COMM_WORLD, 1, 3);
    else if (!strcmp(how, "accept"))
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    else if (!strcmp(how, "spawn"))
        OK(MPI_Comm_spawn("true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                          MPI_ERRCODES_IGNORE));
    else
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    const char *how = argc > 2 ? argv[2] : "";
    MPI_Comm inter;
    hangs = !strcmp(argv[1], "all");
    OK(MPI_Comm_get_parent(&inter));
    if (inter != MPI_COMM_NULL) {
        child(inter, how, argv);
        return check_end();
    }
    if (!strcmp(how, "accept")) {
        inter = meet_by(argv[3], 1);
        waits(inter, 1, 3);
    } else if (!strcmp(how, "connect")) {
        inter = meet_by(argv[3], 0);
        awaited(inter);
    } else if (!strcmp(how, "first") || !strcmp(how, "second")) {
        of_three(how, argv);
    } else if (!strcmp(how, "third")) {
        waits(meet_by(argv[3], 0), 1, 3);
    } else if (!strcmp(how, "left")) {
        uneven(started(argv[0], argv + 1), 0);
        goes_on(argv[3]);
        return check_end();
    } else if (!strcmp(how, "parts")) {
        uneven(meet_by(argv[4], 1), 1);
        goes_on(argv[3]);
        return check_end();
    } else if (!strcmp(how, "meets")) {
        uneven(meet_by(argv[3], 0), 0);
        waits(meet_by(argv[4], 1), 1, 3);
    } else if (!strcmp(how, "own")) {
        of_one(argv[3]);
    } else {
        inter = started(argv[0], argv + 1);
        waits(inter, 1, 3);
    }
    OK(MPI_Comm_disconnect(&inter));
    return check_end();
}

/* Published names and MPI_Comm_join (MPI 5.0 §11.10). */
// machines: no
#include "dyn.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* Rank 0 listens, rank 1 connects. */
static void join_by_socket(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    MPI_Comm inter;
    int fd;
    if (world_rank == 0) {
        int listener = socket(AF_UNIX, SOCK_STREAM, 0);
        snprintf(at.sun_path, sizeof at.sun_path, "join-%d", (int)getpid());
        SAME(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
        SAME(listen(listener, 1), 0);
        OK(MPI_Send(at.sun_path, sizeof at.sun_path, MPI_CHAR, 1, 0, MPI_COMM_WORLD));
        fd = accept(listener, NULL, NULL);
        close(listener);
        unlink(at.sun_path);
    } else {
        OK(MPI_Recv(at.sun_path, sizeof at.sun_path, MPI_CHAR, 0, 0, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        SAME(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    }
    for (int i = 0; i < 3; i++) {
        OK(MPI_Comm_join(fd, &inter));
        use(inter, world_rank == 0);
        OK(MPI_Comm_disconnect(&inter));
        /* The socket is the program's again. */
        char byte = 'a' + i;
        SAME(write(fd, &byte, 1), 1);
        SAME(read(fd, &byte, 1), 1);
        SAME(byte, 'a' + i);
    }
    close(fd);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char port[MPI_MAX_PORT_NAME], found[MPI_MAX_PORT_NAME], name[64];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    snprintf(name, sizeof name, "ocean of rank %d", world_rank);
    SAME(class_of(MPI_Lookup_name(name, MPI_INFO_NULL, found)), MPI_ERR_NAME);
    OK(MPI_Open_port(MPI_INFO_NULL, port));
    OK(MPI_Publish_name(name, MPI_INFO_NULL, port));
    SAME(class_of(MPI_Publish_name(name, MPI_INFO_NULL, port)), MPI_ERR_SERVICE);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    char next[64];
    snprintf(next, sizeof next, "ocean of rank %d", (world_rank + 1) % world_size);
    OK(MPI_Lookup_name(next, MPI_INFO_NULL, found));
    SAME(!strcmp(found, port), world_size == 1);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    SAME(class_of(MPI_Unpublish_name(name, MPI_INFO_NULL, "another")), MPI_ERR_SERVICE);
    OK(MPI_Unpublish_name(name, MPI_INFO_NULL, port));
    SAME(class_of(MPI_Unpublish_name(name, MPI_INFO_NULL, port)), MPI_ERR_SERVICE);
    SAME(class_of(MPI_Lookup_name(name, MPI_INFO_NULL, found)), MPI_ERR_NAME);
    OK(MPI_Close_port(port));
    if (world_rank < 2 && world_size > 1)
        join_by_socket();
    MPI_Comm inter;
    SAME(class_of(MPI_Comm_join(-1, &inter)), MPI_ERR_ARG);
    return check_end();
}

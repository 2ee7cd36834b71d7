/* A rank waits at a guarded page for data that will never come: its peer's connections break. It
 * must be let go, and told by its next call. Two ranks over TCP, FERRY_OVERLAP=always. Exits by
 * MPI_Abort with 7 if all is as it should be. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 4 << 20 };

/* Breaks all of this process's connections to other ranks. */
static int break_connections(void)
{
    int broken = 0;
    for (int fd = 3; fd < 1024; fd++) {
        int domain = 0, type = 0;
        socklen_t len = sizeof domain;
        struct sockaddr_storage peer;
        socklen_t room = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
            (domain != AF_INET && domain != AF_INET6))
            continue;
        len = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) || type != SOCK_STREAM)
            continue;
        if (getpeername(fd, (struct sockaddr *)&peer, &room) == 0 && shutdown(fd, SHUT_RDWR) == 0)
            broken++;
    }
    return broken;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int mine = rank;
    MPI_Sendrecv_replace(&mine, 1, MPI_INT, 1 - rank, 0, 1 - rank, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    if (rank == 1) {
        if (break_connections() == 0) {
            fprintf(stderr, "there is no connection to break\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        for (;;)
            pause();
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* Whole pages: the call returns at once. */
    char *in = aligned_alloc(PAGE, BYTES), *out = aligned_alloc(PAGE, BYTES);
    memset(in, 1, BYTES);
    memset(out, 2, BYTES);
    int sent[2] = {0, 0}, got[2] = {0, BYTES}, at[2] = {0, 0};
    int first = MPI_Alltoallv(out, sent, at, MPI_BYTE, in, got, at, MPI_BYTE, MPI_COMM_WORLD);
    volatile char *touched = in;
    int sum = touched[0] + touched[BYTES - 1];
    int second = MPI_Barrier(MPI_COMM_SELF);
    if (first == MPI_SUCCESS && second == MPI_SUCCESS) {
        fprintf(stderr, "no call said that the peer is lost (read %d)\n", sum);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    printf("told by %s\n", first == MPI_SUCCESS ? "the next call" : "the call itself");
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 7);
}

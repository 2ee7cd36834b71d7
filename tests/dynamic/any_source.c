/* A child is killed: what its parent awaits from any source in their communicator fails, each once,
 * whether it began before the loss or after it. A wait for a living child goes on. The argument
 * says by which call the loss is to be told. */
#include "../c/check.h"

#include <signal.h>
#include <unistd.h>

/* A child, joined by two communicators. */
static MPI_Comm child(const char *program, MPI_Comm *second)
{
    MPI_Comm made;
    char *arguments[] = {"child", NULL};
    OK(MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &made,
                      MPI_ERRCODES_IGNORE));
    OK(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN));
    OK(MPI_Comm_dup(made, second));
    return made;
}

/* Waits by one call for any message; returns its error. */
static int await(const char *call, MPI_Comm comm)
{
    int flag = 0, value, error = MPI_SUCCESS;
    MPI_Message message;
    if (!strcmp(call, "probe"))
        return MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE);
    if (!strcmp(call, "mprobe"))
        return MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &message, MPI_STATUS_IGNORE);
    if (!strcmp(call, "recv"))
        return MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE);
    while (!flag && error == MPI_SUCCESS)
        error = strcmp(call, "iprobe") ? MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag,
                                                     &message, MPI_STATUS_IGNORE)
                                       : MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag,
                                                    MPI_STATUS_IGNORE);
    return error;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm parent, dies, lives, dies_too, lives_too;
    int word = 0, value = 4711;
    OK(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL) {
        int pid = getpid();
        OK(MPI_Comm_dup(parent, &dies_too));
        OK(MPI_Send(&pid, 1, MPI_INT, 0, 0, parent));
        while (word != 4711) {
            OK(MPI_Recv(&word, 1, MPI_INT, 0, 0, parent, MPI_STATUS_IGNORE));
            if (word != 4711)
                SAME(kill(word, SIGKILL), 0);
        }
        OK(MPI_Send(&word, 1, MPI_INT, 0, 1, parent));
        OK(MPI_Comm_disconnect(&dies_too));
        OK(MPI_Comm_disconnect(&parent));
        return check_end();
    }
    dies = child(argv[0], &dies_too);
    lives = child(argv[0], &lives_too);
    OK(MPI_Recv(&word, 1, MPI_INT, 0, 0, dies, MPI_STATUS_IGNORE));
    /* The living child kills the other one while this rank waits, or before. */
    int pid = word;
    OK(MPI_Recv(&word, 1, MPI_INT, 0, 0, lives, MPI_STATUS_IGNORE));
    OK(MPI_Send(&pid, 1, MPI_INT, 0, 0, lives));
    if (await(argv[1], dies) == MPI_SUCCESS)
        FAIL("%s: a message of a child that was killed has come", argv[1]);
    /* The loss is known now; this communicator was not told. */
    if (await(argv[1], dies_too) == MPI_SUCCESS)
        FAIL("%s, after the loss: a message of a child that was killed has come", argv[1]);
    OK(MPI_Send(&value, 1, MPI_INT, 0, 0, lives));
    OK(await("probe", lives));
    OK(MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 1, lives, MPI_STATUS_IGNORE));
    SAME(word, 4711);
    printf("all told\n");
    OK(MPI_Comm_disconnect(&lives_too));
    OK(MPI_Comm_disconnect(&lives));
    return check_end();
}

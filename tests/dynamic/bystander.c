/* Two children, of which one is killed: what is awaited from the other one, or from the parent
 * itself, still comes. */
#include "../c/check.h"

#include <signal.h>
#include <unistd.h>

static MPI_Comm child(const char *program, char *how)
{
    MPI_Comm made;
    char *arguments[] = {how, NULL};
    OK(MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &made,
                      MPI_ERRCODES_IGNORE));
    OK(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN));
    return made;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm parent, dies, lives, own;
    MPI_Request from_child, from_self;
    int word = 0, own_word = 0, value = 4711;
    OK(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL) {
        OK(MPI_Recv(&word, 1, MPI_INT, 0, 0, parent, MPI_STATUS_IGNORE));
        if (!strcmp(argv[1], "dies"))
            kill(getpid(), SIGKILL);
        OK(MPI_Send(&word, 1, MPI_INT, 0, 1, parent));
        OK(MPI_Comm_disconnect(&parent));
        return check_end();
    }
    dies = child(argv[0], "dies");
    lives = child(argv[0], "lives");
    OK(MPI_Comm_dup(MPI_COMM_SELF, &own));
    OK(MPI_Irecv(&word, 1, MPI_INT, 0, 1, lives, &from_child));
    OK(MPI_Irecv(&own_word, 1, MPI_INT, 0, 1, own, &from_self));
    OK(MPI_Send(&value, 1, MPI_INT, 0, 0, dies));
    int never = MPI_Recv(&value, 1, MPI_INT, 0, 1, dies, MPI_STATUS_IGNORE);
    if (never == MPI_SUCCESS)
        FAIL("a message of a child that was killed has come");
    OK(MPI_Send(&value, 1, MPI_INT, 0, 0, lives));
    OK(MPI_Send(&value, 1, MPI_INT, 0, 1, own));
    OK(MPI_Wait(&from_child, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&from_self, MPI_STATUS_IGNORE));
    SAME(word, 4711);
    SAME(own_word, 4711);
    printf("both have come\n");
    OK(MPI_Comm_free(&own));
    OK(MPI_Comm_disconnect(&lives));
    return check_end();
}

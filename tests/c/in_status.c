/* Errors in arrays of requests. The call returns MPI_ERR_IN_STATUS, and each status has its own
 * error. Calls for one request return the error itself. Error handlers, fatal or returning, are
 * those of the request's communicator. */
#include "check.h"

static MPI_Request r[3];
static int small, fine[2], other[2];
static int handled, handled_class;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    handled++;
    MPI_Error_class(*code, &handled_class);
}

/* Three receives, of which the middle one is too short for its message. */
static void post(MPI_Comm comm, int tag)
{
    int pair[2] = {world_rank, tag};
    small = fine[0] = other[0] = -1;
    OK(MPI_Irecv(fine, 2, MPI_INT, ring(-1), tag, comm, &r[0]));
    OK(MPI_Irecv(&small, 1, MPI_INT, ring(-1), tag + 1, comm, &r[1]));
    OK(MPI_Irecv(other, 2, MPI_INT, ring(-1), tag + 2, comm, &r[2]));
    for (int i = 0; i < 3; i++)
        OK(MPI_Send(pair, 2, MPI_INT, ring(1), tag + i, comm));
    /* All are there: messages of one sender come in order. */
    OK(MPI_Send(pair, 0, MPI_INT, ring(1), 99, comm));
    OK(MPI_Recv(pair, 0, MPI_INT, ring(-1), 99, comm, MPI_STATUS_IGNORE));
}

static void check_statuses(const MPI_Status *statuses, const int *places)
{
    int class = -1;
    for (int i = 0; i < 3; i++) {
        OK(MPI_Error_class(statuses[places[i]].MPI_ERROR, &class));
        SAME(class, i == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
        SAME(r[i] == MPI_REQUEST_NULL, 1);
    }
    SAME(fine[0], ring(-1));
    SAME(other[0], ring(-1));
    SAME(small, ring(-1));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    MPI_Status statuses[3];
    static const int straight[3] = {0, 1, 2};
    int flag = 0, count = -1, indices[3], places[3], index = -1;

    post(comm, 10);
    CLASS(MPI_Waitall(3, r, statuses), MPI_ERR_IN_STATUS);
    check_statuses(statuses, straight);

    post(comm, 20);
    int code = MPI_Testall(3, r, &flag, statuses);
    SAME(code, MPI_ERR_IN_STATUS);
    SAME(flag, 1);
    check_statuses(statuses, straight);

    post(comm, 30);
    CLASS(MPI_Waitsome(3, r, &count, indices, statuses), MPI_ERR_IN_STATUS);
    SAME(count, 3);
    for (int i = 0; i < 3; i++)
        places[indices[i]] = i;
    check_statuses(statuses, places);

    post(comm, 40);
    CLASS(MPI_Testsome(3, r, &count, indices, statuses), MPI_ERR_IN_STATUS);
    SAME(count, 3);
    for (int i = 0; i < 3; i++)
        places[indices[i]] = i;
    check_statuses(statuses, places);

    /* No statuses: the call says so all the same. */
    post(comm, 50);
    CLASS(MPI_Waitall(3, r, MPI_STATUSES_IGNORE), MPI_ERR_IN_STATUS);
    for (int i = 0; i < 3; i++)
        SAME(r[i] == MPI_REQUEST_NULL, 1);

    /* One at a time: the error itself. */
    post(comm, 60);
    OK(MPI_Wait(&r[0], MPI_STATUS_IGNORE));
    OK(MPI_Wait(&r[2], MPI_STATUS_IGNORE));
    CLASS(MPI_Waitany(3, r, &index, &statuses[0]), MPI_ERR_TRUNCATE);
    SAME(index, 1);
    SAME(r[1] == MPI_REQUEST_NULL, 1);
    post(comm, 70);
    CLASS(MPI_Test(&r[1], &flag, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    SAME(flag, 1);
    OK(MPI_Waitall(3, r, statuses));

    /* Where nothing went wrong, MPI_ERROR stays as it was. */
    post(comm, 80);
    CLASS(MPI_Wait(&r[1], MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    for (int i = 0; i < 3; i++)
        statuses[i].MPI_ERROR = 4711;
    OK(MPI_Waitall(3, r, statuses));
    for (int i = 0; i < 3; i++)
        SAME(statuses[i].MPI_ERROR, 4711);

    /* The handler of the requests' communicator hears of it, once. */
    MPI_Errhandler handler;
    OK(MPI_Comm_create_errhandler(on_error, &handler));
    OK(MPI_Comm_set_errhandler(comm, handler));
    OK(MPI_Errhandler_free(&handler));
    post(comm, 90);
    CLASS(MPI_Waitall(3, r, statuses), MPI_ERR_IN_STATUS);
    SAME(handled, 1);
    SAME(handled_class, MPI_ERR_IN_STATUS);
    check_statuses(statuses, straight);

    /* MPI_ERRORS_ABORT is another handler than MPI_ERRORS_ARE_FATAL, and can be asked for. */
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_ABORT));
    OK(MPI_Comm_get_errhandler(comm, &handler));
    SAME(handler == MPI_ERRORS_ABORT, 1);
    SAME(handler == MPI_ERRORS_ARE_FATAL, 0);
    OK(MPI_Comm_free(&comm));

    /* Codes and classes go in order: strings, then codes, then classes. */
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    int ours = -1, its_code = -1, class = -1;
    OK(MPI_Add_error_class(&ours));
    OK(MPI_Add_error_code(ours, &its_code));
    OK(MPI_Add_error_string(its_code, "ours"));
    CHECK(MPI_Remove_error_class(ours) != MPI_SUCCESS, "a class with a code was removed");
    CHECK(MPI_Remove_error_code(its_code) != MPI_SUCCESS, "a code with a string was removed");
    OK(MPI_Error_class(its_code, &class));
    SAME(class, ours);
    OK(MPI_Remove_error_string(its_code));
    OK(MPI_Remove_error_code(its_code));
    OK(MPI_Remove_error_class(ours));
    CHECK(MPI_Remove_error_class(ours) != MPI_SUCCESS, "a class was removed twice");
    CHECK(MPI_Remove_error_class(MPI_ERR_RANK) != MPI_SUCCESS, "MPI_ERR_RANK was removed");
    CHECK(MPI_Remove_error_code(MPI_ERR_RANK) != MPI_SUCCESS, "MPI_ERR_RANK was removed as a code");
    CHECK(MPI_Remove_error_string(MPI_ERR_RANK) != MPI_SUCCESS,
          "the text of MPI_ERR_RANK was removed");
    return check_end();
}

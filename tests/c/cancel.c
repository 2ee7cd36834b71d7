/* Cancelling receives: a cancelled one takes nothing, one that has matched is not cancelled. */
#include "check.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    int value = -1, flag = -1, done = 0, count = -1;
    MPI_Request request;
    MPI_Status status;
    /* Nothing was sent: the cancel must succeed. */
    for (int any = 0; any < 2; any++) {
        OK(MPI_Irecv(&value, 1, MPI_INT, any ? MPI_ANY_SOURCE : ring(-1), any ? MPI_ANY_TAG : 4,
                     MPI_COMM_WORLD, &request));
        OK(MPI_Cancel(&request));
        CHECK(request != MPI_REQUEST_NULL, "cancel alone freed the request");
        OK(MPI_Wait(&request, &status));
        OK(MPI_Test_cancelled(&status, &flag));
        SAME(flag, 1);
        SAME(value, -1);
    }
    /* A later message with that envelope goes to a later receive. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Irecv(&value, 1, MPI_INT, ring(-1), 5, MPI_COMM_WORLD, &request));
    OK(MPI_Cancel(&request));
    while (!done)
        OK(MPI_Test(&request, &done, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 1);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int out = world_rank + 1000;
    MPI_Request send;
    OK(MPI_Isend(&out, 1, MPI_INT, ring(1), 5, MPI_COMM_WORLD, &send));
    OK(MPI_Recv(&value, 1, MPI_INT, ring(-1), 5, MPI_COMM_WORLD, &status));
    SAME(value, ring(-1) + 1000);
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 0);
    OK(MPI_Wait(&send, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 0);
    /* Among several posted receives the right one goes. */
    int values[3] = {-1, -1, -1};
    MPI_Request three[3];
    for (int i = 0; i < 3; i++)
        OK(MPI_Irecv(&values[i], 1, MPI_INT, ring(-1), 6, MPI_COMM_WORLD, &three[i]));
    OK(MPI_Cancel(&three[1]));
    OK(MPI_Wait(&three[1], &status));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 1);
    OK(MPI_Barrier(MPI_COMM_WORLD)); /* nobody sends before everybody has cancelled */
    for (int i = 0; i < 2; i++)
        OK(MPI_Send(&i, 1, MPI_INT, ring(1), 6, MPI_COMM_WORLD));
    OK(MPI_Waitall(3, three, MPI_STATUSES_IGNORE));
    SAME(values[0], 0);
    SAME(values[1], -1);
    SAME(values[2], 1);
    /* Already matched: the cancel has no effect. */
    OK(MPI_Irecv(&value, 1, MPI_INT, ring(-1), 7, MPI_COMM_WORLD, &request));
    OK(MPI_Send(&out, 1, MPI_INT, ring(1), 7, MPI_COMM_WORLD));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    done = 0;
    while (!done) {
        OK(MPI_Request_get_status(request, &done, &status));
    }
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 0);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    SAME(count, 1);
    SAME(value, ring(-1) + 1000);
    /* A persistent receive can be cancelled and used again. */
    value = -1;
    OK(MPI_Recv_init(&value, 1, MPI_INT, ring(-1), 8, MPI_COMM_WORLD, &request));
    OK(MPI_Start(&request));
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 1);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Start(&request));
    OK(MPI_Send(&out, 1, MPI_INT, ring(1), 8, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 0);
    SAME(value, ring(-1) + 1000);
    OK(MPI_Request_free(&request));
    /* A collective operation can be neither cancelled nor, before it has ended, freed; and goes on
     * as if nobody had asked. */
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (world_size > 1 && world_rank == 0) {
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
        CLASS(MPI_Cancel(&request), MPI_ERR_REQUEST);
        CLASS(MPI_Request_free(&request), MPI_ERR_REQUEST);
        for (int to = 1; to < world_size; to++)
            OK(MPI_Send(NULL, 0, MPI_INT, to, 9, MPI_COMM_WORLD));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else if (world_size > 1) {
        OK(MPI_Recv(NULL, 0, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    return check_end();
}

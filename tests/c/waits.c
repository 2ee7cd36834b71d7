/* Every form of Wait and Test on pending, complete, null and inactive requests. Then
 * MPI_Request_get_status, and statuses. */
#include "check.h"

enum { N = 8 };

static void post(MPI_Request *receives, int *values, int tag)
{
    for (int i = 0; i < N; i++) {
        values[i] = -1;
        OK(MPI_Irecv(&values[i], 1, MPI_INT, ring(-1), tag + i, MPI_COMM_WORLD, &receives[i]));
    }
}

static void send_one(int tag, int i)
{
    int value = world_rank * 100 + i;
    OK(MPI_Send(&value, 1, MPI_INT, ring(1), tag + i, MPI_COMM_WORLD));
}

static void check_one(const int *values, int i, const MPI_Status *status, int tag)
{
    int count = -1;
    SAME(values[i], ring(-1) * 100 + i);
    SAME(status->MPI_SOURCE, ring(-1));
    SAME(status->MPI_TAG, tag + i);
    OK(MPI_Get_count(status, MPI_INT, &count));
    SAME(count, 1);
}

static void check_empty(const MPI_Status *status)
{
    int count = -1, cancelled = -1;
    SAME(status->MPI_SOURCE, MPI_ANY_SOURCE);
    SAME(status->MPI_TAG, MPI_ANY_TAG);
    OK(MPI_Get_count(status, MPI_BYTE, &count));
    SAME(count, 0);
    OK(MPI_Test_cancelled(status, &cancelled));
    SAME(cancelled, 0);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Request r[N];
    MPI_Status statuses[N], status;
    int values[N], index = -2, flag = -1, count = -1, indices[N];

    /* Nothing to wait for. */
    for (int i = 0; i < N; i++)
        r[i] = MPI_REQUEST_NULL;
    OK(MPI_Wait(&r[0], &status));
    check_empty(&status);
    OK(MPI_Test(&r[0], &flag, &status));
    SAME(flag, 1);
    check_empty(&status);
    OK(MPI_Waitany(N, r, &index, &status));
    SAME(index, MPI_UNDEFINED);
    check_empty(&status);
    OK(MPI_Testany(N, r, &index, &flag, &status));
    SAME(index, MPI_UNDEFINED);
    SAME(flag, 1);
    check_empty(&status);
    OK(MPI_Waitall(N, r, statuses));
    for (int i = 0; i < N; i++)
        check_empty(&statuses[i]);
    flag = 0;
    OK(MPI_Testall(N, r, &flag, statuses));
    SAME(flag, 1);
    OK(MPI_Waitsome(N, r, &count, indices, statuses));
    SAME(count, MPI_UNDEFINED);
    OK(MPI_Testsome(N, r, &count, indices, statuses));
    SAME(count, MPI_UNDEFINED);
    OK(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
    OK(MPI_Request_get_status(r[0], &flag, &status));
    SAME(flag, 1);
    check_empty(&status);
    OK(MPI_Waitany(0, NULL, &index, &status));
    SAME(index, MPI_UNDEFINED);

    /* Waitany: each exactly once. */
    post(r, values, 10);
    OK(MPI_Testany(N, r, &index, &flag, &status));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = N - 1; i >= 0; i--)
        send_one(10, i);
    int seen = 0;
    if (flag && index != MPI_UNDEFINED)
        seen |= 1 << index;
    for (int k = seen ? 1 : 0; k < N; k++) {
        OK(MPI_Waitany(N, r, &index, &status));
        CHECK(index >= 0 && index < N && !(seen & 1 << index), "Waitany gave %d again", index);
        seen |= 1 << index;
        check_one(values, index, &status, 10);
        SAME(r[index] == MPI_REQUEST_NULL, 1);
    }
    OK(MPI_Waitany(N, r, &index, MPI_STATUS_IGNORE));
    SAME(index, MPI_UNDEFINED);
    OK(MPI_Barrier(MPI_COMM_WORLD));

    /* Waitsome and Testsome. */
    for (int test = 0; test < 2; test++) {
        post(r, values, 30);
        seen = 0;
        for (int i = 0; i < N; i++)
            send_one(30, i);
        int done = 0;
        while (done < N) {
            if (test)
                OK(MPI_Testsome(N, r, &count, indices, statuses));
            else
                OK(MPI_Waitsome(N, r, &count, indices, statuses));
            CHECK(count >= (test ? 0 : 1) && count <= N - done, "%d of at most %d are done", count,
                  N - done);
            for (int k = 0; k < count; k++) {
                CHECK(!(seen & 1 << indices[k]), "request %d came twice", indices[k]);
                seen |= 1 << indices[k];
                check_one(values, indices[k], &statuses[k], 30);
            }
            if (count < 0)
                break;
            done += count;
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }

    /* Testall touches nothing until all are done. */
    post(r, values, 50);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 1; i < N; i++)
        send_one(50, i);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < 50; i++) {
        OK(MPI_Testall(N, r, &flag, statuses));
        SAME(flag, 0);
        for (int k = 0; k < N; k++)
            CHECK(r[k] != MPI_REQUEST_NULL, "Testall took request %d although not all were done",
                  k);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    send_one(50, 0);
    flag = 0;
    while (!flag)
        OK(MPI_Testall(N, r, &flag, statuses));
    for (int i = 0; i < N; i++)
        check_one(values, i, &statuses[i], 50);

    /* Testany, and Request_get_status that leaves the request. */
    post(r, values, 70);
    for (int i = 0; i < N; i++)
        send_one(70, i);
    flag = 0;
    while (!flag)
        OK(MPI_Request_get_status(r[3], &flag, &status));
    check_one(values, 3, &status, 70);
    CHECK(r[3] != MPI_REQUEST_NULL, "Request_get_status freed the request");
    flag = 0;
    while (!flag)
        OK(MPI_Request_get_status_all(N, r, &flag, statuses));
    for (int i = 0; i < N; i++)
        check_one(values, i, &statuses[i], 70);
    OK(MPI_Request_get_status_any(N, r, &index, &flag, &status));
    SAME(flag, 1);
    check_one(values, index, &status, 70);
    OK(MPI_Request_get_status_some(N, r, &count, indices, statuses));
    SAME(count, N);
    seen = 0;
    for (int done = 0; done < N;) {
        OK(MPI_Testany(N, r, &index, &flag, &status));
        if (!flag)
            continue;
        CHECK(!(seen & 1 << index), "Testany gave %d again", index);
        seen |= 1 << index;
        check_one(values, index, &status, 70);
        done++;
    }

    /* Waitall with statuses ignored, with nulls among the requests. */
    post(r, values, 90);
    for (int i = 0; i < N; i++)
        send_one(90, i);
    OK(MPI_Wait(&r[2], &status));
    check_one(values, 2, &status, 90);
    OK(MPI_Waitall(N, r, MPI_STATUSES_IGNORE));
    for (int i = 0; i < N; i++)
        SAME(values[i], ring(-1) * 100 + i);

    /* One truncated among several: MPI_ERR_IN_STATUS, and its status says which. */
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    int small = -1, fine[2] = {-1, -1}, pair[2] = {world_rank, 1};
    MPI_Request two[2];
    OK(MPI_Irecv(&small, 1, MPI_INT, ring(-1), 111, MPI_COMM_WORLD, &two[0]));
    OK(MPI_Irecv(fine, 2, MPI_INT, ring(-1), 112, MPI_COMM_WORLD, &two[1]));
    OK(MPI_Send(pair, 2, MPI_INT, ring(1), 111, MPI_COMM_WORLD));
    OK(MPI_Send(pair, 2, MPI_INT, ring(1), 112, MPI_COMM_WORLD));
    CLASS(MPI_Waitall(2, two, statuses), MPI_ERR_IN_STATUS);
    int class = -1;
    OK(MPI_Error_class(statuses[0].MPI_ERROR, &class));
    SAME(class, MPI_ERR_TRUNCATE);
    OK(MPI_Error_class(statuses[1].MPI_ERROR, &class));
    CHECK(class == MPI_SUCCESS || class == MPI_ERR_PENDING, "the other status has class %d", class);
    if (class == MPI_ERR_PENDING)
        OK(MPI_Wait(&two[1], MPI_STATUS_IGNORE));
    SAME(fine[0], ring(-1));
    OK(MPI_Barrier(MPI_COMM_WORLD));

    /* What a user may write into a status, and the accessors. */
    OK(MPI_Status_set_elements(&status, MPI_INT, 5));
    OK(MPI_Get_elements(&status, MPI_INT, &count));
    SAME(count, 5);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    SAME(count, 5);
    OK(MPI_Status_set_cancelled(&status, 1));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 1);
    OK(MPI_Status_set_cancelled(&status, 0));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 0);
    OK(MPI_Status_set_source(&status, 3));
    OK(MPI_Status_set_tag(&status, 4));
    OK(MPI_Status_set_error(&status, MPI_ERR_TAG));
    int source = -1, tag = -1, error = -1;
    OK(MPI_Status_get_source(&status, &source));
    OK(MPI_Status_get_tag(&status, &tag));
    OK(MPI_Status_get_error(&status, &error));
    SAME(source, 3);
    SAME(tag, 4);
    SAME(error, MPI_ERR_TAG);
    return check_end();
}

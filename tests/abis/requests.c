/* Requests, which the calls that start and complete them take as the program has them: errors have
 * the ABI's codes, what is no request is told, persistent ones stay, and other calls know them. */
#include "check.h"

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* The class of the error is that of the ABI, and the request stays as it was. */
static void errors(void)
{
    int value = 0, flag = 0, index = 0;
    MPI_Request untouched = MPI_REQUEST_NULL, request = MPI_REQUEST_NULL;
    CHECK(class_of(MPI_Isend(&value, 1, MPI_INT, 7, 0, MPI_COMM_SELF, &request)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Irecv(&value, 1, MPI_INT, 0, -7, MPI_COMM_SELF, &request)) == MPI_ERR_TAG);
    CHECK(class_of(MPI_Irsend(&value, -1, MPI_INT, 0, 0, MPI_COMM_SELF, &request)) ==
          MPI_ERR_COUNT);
    CHECK(class_of(MPI_Issend(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF, &request)) ==
          MPI_ERR_TYPE);
    CHECK(class_of(MPI_Ibsend(&value, 1, MPI_INT, 0, 0, MPI_COMM_NULL, &request)) ==
          MPI_ERR_COMM);
    CHECK(request == untouched);

    /* Two copies of a request: the second is none when the first has been completed. */
    MPI_Request copies[2];
    MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, &copies[0]);
    copies[1] = copies[0];
    CHECK(MPI_Wait(&copies[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(copies[0] == MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Wait(&copies[1], MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Waitall(2, copies, MPI_STATUSES_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Test(&copies[1], &flag, MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Waitany(2, copies, &index, MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(copies[1] != MPI_REQUEST_NULL);
    /* What is predefined, but no request. */
    copies[1] = (MPI_Request)MPI_COMM_SELF;
    CHECK(class_of(MPI_Wait(&copies[1], MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Waitall(-1, copies, MPI_STATUSES_IGNORE)) == MPI_ERR_COUNT);
}

/* An error of one request is in its status. */
static void in_status(void)
{
    int two[2] = {1, 2}, one = 0, other = 0;
    MPI_Request requests[3];
    MPI_Status statuses[3];
    MPI_Irecv(&one, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[0]);
    MPI_Irecv(&other, 1, MPI_INT, 0, 2, MPI_COMM_SELF, &requests[1]);
    requests[2] = MPI_REQUEST_NULL;
    MPI_Send(two, 2, MPI_INT, 0, 1, MPI_COMM_SELF);
    MPI_Send(two, 1, MPI_INT, 0, 2, MPI_COMM_SELF);
    CHECK(class_of(MPI_Waitall(3, requests, statuses)) == MPI_ERR_IN_STATUS);
    CHECK(class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
    CHECK(statuses[1].MPI_ERROR == MPI_SUCCESS && statuses[1].MPI_TAG == 2 && other == 1);
    for (int i = 0; i < 3; i++)
        CHECK(requests[i] == MPI_REQUEST_NULL);
}

/* A persistent request stays the same; one that was started and completed is null. */
static void persistent(void)
{
    int in = 0, out = 5;
    MPI_Request requests[2], again, converted;
    MPI_Recv_init(&in, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[0]);
    again = requests[0];
    for (int i = 0; i < 3; i++) {
        MPI_Status status;
        int flag = 0;
        MPI_Start(&requests[0]);
        MPI_Request_get_status(requests[0], &flag, &status);
        CHECK(!flag);
        out++;
        MPI_Isend(&out, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[1]);
        CHECK(requests[1] != MPI_REQUEST_NULL && requests[1] != requests[0]);
        converted = MPI_Request_f2c(MPI_Request_c2f(requests[0]));
        CHECK(converted == requests[0]);
        if (i == 0)
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        else if (i == 1)
            while (!flag)
                MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
        else {
            MPI_Wait(&requests[0], &status);
            CHECK(status.MPI_TAG == 3 && status.MPI_SOURCE == 0);
            while (!flag)
                MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE);
        }
        CHECK(in == out && requests[0] == again && requests[1] == MPI_REQUEST_NULL);
    }
    MPI_Startall(1, requests);
    MPI_Cancel(&requests[0]);
    MPI_Status status;
    int flag = 0;
    PMPI_Wait(&requests[0], &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag && requests[0] == again);
    MPI_Request_free(&requests[0]);
    CHECK(requests[0] == MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Start(&again)) == MPI_ERR_REQUEST);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    errors();
    in_status();
    persistent();
    MPI_Finalize();
    return wrong;
}

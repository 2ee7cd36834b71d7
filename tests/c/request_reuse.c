/* Reuse of requests: nothing of a request's earlier operation may show in its next one. Sends and
 * receives alternate, some communicators are freed before their receives have completed, more
 * requests are active than the library keeps, and errors must go to the handler of the right
 * communicator. */
#include "check.h"

enum { MOST = 700, COMMS = 5 };
static MPI_Request r[2 * MOST];
static MPI_Status statuses[2 * MOST];
static int in[MOST], out[MOST];
static MPI_Comm handled;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)code;
    handled = *comm;
}

/* n messages around the ring, receives and sends by turns; the communicator may be freed before
 * they have completed. */
static void around(MPI_Comm comm, int n, int tag, int free_first)
{
    for (int i = 0; i < n; i++) {
        in[i] = -1, out[i] = world_rank * 1000 + i;
        OK(MPI_Irecv(&in[i], 1, MPI_INT, ring(-1), tag + i, comm, &r[2 * i]));
        OK(MPI_Isend(&out[i], 1, MPI_INT, ring(1), tag + i, comm, &r[2 * i + 1]));
    }
    if (free_first)
        OK(MPI_Comm_free(&comm));
    OK(MPI_Waitall(2 * n, r, statuses));
    for (int i = 0; i < n; i++) {
        SAME(in[i], ring(-1) * 1000 + i);
        SAME(statuses[2 * i].MPI_SOURCE, ring(-1));
        SAME(statuses[2 * i].MPI_TAG, tag + i);
        SAME(r[2 * i] == MPI_REQUEST_NULL && r[2 * i + 1] == MPI_REQUEST_NULL, 1);
    }
}

/* A receive that is too short for its message. */
static void short_one(MPI_Comm comm)
{
    int pair[2] = {1, 2}, one = -1;
    MPI_Request receive;
    handled = MPI_COMM_NULL;
    OK(MPI_Irecv(&one, 1, MPI_INT, ring(-1), 1, comm, &receive));
    OK(MPI_Send(pair, 2, MPI_INT, ring(1), 1, comm));
    CLASS(MPI_Wait(&receive, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    SAME(handled == comm, 1);
    SAME(one, 1);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm comms[COMMS];
    MPI_Errhandler handler;
    OK(MPI_Comm_create_errhandler(on_error, &handler));
    for (int turn = 0; turn < 3; turn++) {
        for (int c = 0; c < COMMS; c++) {
            OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]));
            OK(MPI_Comm_set_errhandler(comms[c], handler));
        }
        for (int c = 0; c < COMMS; c++) {
            around(comms[c], 1 + 20 * c, 10, 0);
            short_one(comms[(c + 1) % COMMS]);
        }
        around(MPI_COMM_WORLD, MOST, 10, 0);
        for (int c = 0; c < COMMS; c++) {
            short_one(comms[c]);
            around(comms[c], 30, 10, 1);
        }
    }
    OK(MPI_Errhandler_free(&handler));

    /* What was a send is a receive now: it can be cancelled. */
    for (int i = 0; i < 50; i++) {
        MPI_Request request;
        MPI_Status status;
        int cancelled = -1;
        OK(MPI_Isend(&out[0], 0, MPI_INT, ring(1), 3, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, &status));
        OK(MPI_Test_cancelled(&status, &cancelled));
        SAME(cancelled, 0);
        OK(MPI_Irecv(&in[0], 1, MPI_INT, ring(-1), 4, MPI_COMM_WORLD, &request));
        OK(MPI_Cancel(&request));
        OK(MPI_Wait(&request, &status));
        OK(MPI_Test_cancelled(&status, &cancelled));
        SAME(cancelled, 1);
        OK(MPI_Recv(NULL, 0, MPI_INT, ring(-1), 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }

    /* A handle that was let go stays invalid when its request is used again. */
    MPI_Request old, now;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Irecv(&in[0], 1, MPI_INT, ring(-1), 5, MPI_COMM_WORLD, &old));
    now = old;
    OK(MPI_Send(&out[0], 1, MPI_INT, ring(1), 5, MPI_COMM_WORLD));
    OK(MPI_Wait(&now, MPI_STATUS_IGNORE));
    OK(MPI_Irecv(&in[0], 1, MPI_INT, ring(-1), 6, MPI_COMM_WORLD, &now));
    CLASS(MPI_Wait(&old, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
    OK(MPI_Send(&out[0], 1, MPI_INT, ring(1), 6, MPI_COMM_WORLD));
    OK(MPI_Wait(&now, MPI_STATUS_IGNORE));
    return check_end();
}

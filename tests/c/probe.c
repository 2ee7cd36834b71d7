/* Probe and matched probe, blocking and not: what they report, and that a matched message is nobody
 * else's. */
#include "check.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    static const int sizes[] = {0, 3, 100, 5000, 70000, 400000};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    static unsigned char out[SIZES][400000], in[400000];
    MPI_Request sends[SIZES];
    for (int i = 0; i < SIZES; i++) {
        fill(out[i], (size_t)sizes[i], (uint64_t)(world_rank * 100 + i));
        OK(MPI_Isend(out[i], sizes[i], MPI_BYTE, ring(1), 20 + i, MPI_COMM_WORLD, &sends[i]));
    }
    int from = ring(-1), flag = -1, count = -1;
    MPI_Status status;
    /* Blocking probe by exact tag, in an order that is not the sending order. */
    for (int k = 0; k < SIZES; k++) {
        int i = (k * 5 + 2) % SIZES;
        OK(MPI_Probe(from, 20 + i, MPI_COMM_WORLD, &status));
        SAME(status.MPI_SOURCE, from);
        SAME(status.MPI_TAG, 20 + i);
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        SAME(count, sizes[i]);
        /* A probe takes nothing: a second one sees the same. */
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 20 + i, MPI_COMM_WORLD, &flag, &status));
        SAME(flag, 1);
        OK(MPI_Recv(in, count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                    &status));
        FILLED(in, (size_t)sizes[i], (uint64_t)(from * 100 + i));
    }
    OK(MPI_Waitall(SIZES, sends, MPI_STATUSES_IGNORE));
    OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
    OK(MPI_Barrier(MPI_COMM_WORLD));

    /* Matched probes: two messages with the same envelope; take both, receive the second first. */
    for (int i = 0; i < SIZES; i++) {
        int second = (i + 1) % SIZES;
        OK(MPI_Isend(out[i], sizes[i], MPI_BYTE, ring(1), 7, MPI_COMM_WORLD, &sends[0]));
        OK(MPI_Isend(out[second], sizes[second], MPI_BYTE, ring(1), 7, MPI_COMM_WORLD, &sends[1]));
        MPI_Message first_message, second_message;
        MPI_Status first_status, second_status;
        OK(MPI_Mprobe(from, 7, MPI_COMM_WORLD, &first_message, &first_status));
        flag = 0;
        while (!flag)
            OK(MPI_Improbe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &flag, &second_message,
                           &second_status));
        OK(MPI_Get_count(&first_status, MPI_BYTE, &count));
        SAME(count, sizes[i]);
        OK(MPI_Get_count(&second_status, MPI_BYTE, &count));
        SAME(count, sizes[second]);
        OK(MPI_Iprobe(from, 7, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        SAME(flag, 0);
        OK(MPI_Mrecv(in, sizes[second], MPI_BYTE, &second_message, &status));
        SAME(second_message == MPI_MESSAGE_NULL, 1);
        FILLED(in, (size_t)sizes[second], (uint64_t)(from * 100 + second));
        MPI_Request receive;
        OK(MPI_Imrecv(in, sizes[i], MPI_BYTE, &first_message, &receive));
        SAME(first_message == MPI_MESSAGE_NULL, 1);
        OK(MPI_Wait(&receive, &status));
        FILLED(in, (size_t)sizes[i], (uint64_t)(from * 100 + i));
        SAME(status.MPI_SOURCE, from);
        SAME(status.MPI_TAG, 7);
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        SAME(count, sizes[i]);
        OK(MPI_Waitall(2, sends, MPI_STATUSES_IGNORE));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }

    /* Nobody: always there, always empty. */
    MPI_Message message;
    OK(MPI_Probe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status));
    SAME(status.MPI_SOURCE, MPI_PROC_NULL);
    SAME(status.MPI_TAG, MPI_ANY_TAG);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    SAME(count, 0);
    flag = 0;
    OK(MPI_Iprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &flag, &status));
    SAME(flag, 1);
    OK(MPI_Mprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &message, &status));
    SAME(message == MPI_MESSAGE_NO_PROC, 1);
    OK(MPI_Mrecv(in, 1, MPI_BYTE, &message, &status));
    SAME(message == MPI_MESSAGE_NULL, 1);
    SAME(status.MPI_SOURCE, MPI_PROC_NULL);
    flag = 0;
    OK(MPI_Improbe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &flag, &message, &status));
    SAME(flag, 1);
    SAME(message == MPI_MESSAGE_NO_PROC, 1);
    MPI_Request request;
    OK(MPI_Imrecv(in, 1, MPI_BYTE, &message, &request));
    OK(MPI_Wait(&request, &status));
    SAME(status.MPI_SOURCE, MPI_PROC_NULL);

    /* Everybody to rank 0, which learns sizes by probing. */
    if (world_rank == 0) {
        for (int i = 0; i < world_size - 1; i++) {
            OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
            OK(MPI_Get_count(&status, MPI_BYTE, &count));
            SAME(count, status.MPI_SOURCE * 501);
            SAME(status.MPI_TAG, status.MPI_SOURCE);
            int source = status.MPI_SOURCE;
            OK(MPI_Mrecv(in, count, MPI_BYTE, &message, &status));
            FILLED(in, (size_t)count, (uint64_t)source);
        }
    } else {
        fill(in, (size_t)world_rank * 501, (uint64_t)world_rank);
        OK(MPI_Send(in, world_rank * 501, MPI_BYTE, 0, world_rank, MPI_COMM_WORLD));
    }
    return check_end();
}

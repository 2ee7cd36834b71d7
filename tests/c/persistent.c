/* Persistent requests: all modes, started one by one and together, reused many times, freed,
 * inactive in waits. */
#include "check.h"

typedef int Initialise(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
static Initialise *const initialise[] = {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init,
                                         MPI_Rsend_init};

static void rounds(int mode, int bytes, int count)
{
    unsigned char *out = malloc((size_t)bytes + 1), *in = malloc((size_t)bytes + 1);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    OK(MPI_Recv_init(in, bytes, MPI_BYTE, ring(-1), 3, MPI_COMM_WORLD, &requests[0]));
    OK(initialise[mode](out, bytes, MPI_BYTE, ring(1), 3, MPI_COMM_WORLD, &requests[1]));
    MPI_Request kept[2] = {requests[0], requests[1]};
    for (int round = 0; round < count; round++) {
        uint64_t key = (uint64_t)round * 31 + (uint64_t)mode;
        fill(out, (size_t)bytes, key + (uint64_t)world_rank * 1009);
        if (mode == 3) {
            OK(MPI_Start(&requests[0]));
            OK(MPI_Barrier(MPI_COMM_WORLD));
            OK(MPI_Start(&requests[1]));
        } else if (round % 2) {
            OK(MPI_Startall(2, requests));
        } else {
            OK(MPI_Start(&requests[1]));
            OK(MPI_Start(&requests[0]));
        }
        OK(MPI_Waitall(2, requests, statuses));
        SAME(requests[0] == kept[0] && requests[1] == kept[1], 1); /* stay, inactive */
        FILLED(in, (size_t)bytes, key + (uint64_t)ring(-1) * 1009);
        SAME(statuses[0].MPI_SOURCE, ring(-1));
        SAME(statuses[0].MPI_TAG, 3);
        int got = -1;
        OK(MPI_Get_count(&statuses[0], MPI_BYTE, &got));
        SAME(got, bytes);
    }
    /* An inactive request is done at once, with an empty status. */
    int flag = 0, got = -1, index = 0;
    OK(MPI_Test(&requests[0], &flag, &statuses[0]));
    SAME(flag, 1);
    SAME(statuses[0].MPI_SOURCE, MPI_ANY_SOURCE);
    SAME(statuses[0].MPI_TAG, MPI_ANY_TAG);
    OK(MPI_Get_count(&statuses[0], MPI_BYTE, &got));
    SAME(got, 0);
    OK(MPI_Wait(&requests[1], &statuses[1]));
    OK(MPI_Waitany(2, requests, &index, &statuses[0]));
    SAME(index, MPI_UNDEFINED);
    OK(MPI_Waitsome(2, requests, &got, &index, statuses));
    SAME(got, MPI_UNDEFINED);
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    SAME(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL, 1);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    static char buffer[4 << 20];
    OK(MPI_Buffer_attach(buffer, sizeof buffer));
    for (int mode = 0; mode < 4; mode++) {
        rounds(mode, 0, 3);
        rounds(mode, 8, 30);
        rounds(mode, 5000, 10);
        rounds(mode, 200000, 4);
    }
    /* To and from nobody. */
    MPI_Request nobody[2];
    int value = 77;
    MPI_Status status;
    OK(MPI_Send_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &nobody[0]));
    OK(MPI_Recv_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &nobody[1]));
    for (int i = 0; i < 3; i++) {
        OK(MPI_Startall(2, nobody));
        OK(MPI_Wait(&nobody[1], &status));
        SAME(status.MPI_SOURCE, MPI_PROC_NULL);
        SAME(status.MPI_TAG, MPI_ANY_TAG);
        OK(MPI_Wait(&nobody[0], MPI_STATUS_IGNORE));
    }
    SAME(value, 77);
    OK(MPI_Request_free(&nobody[0]));
    OK(MPI_Request_free(&nobody[1]));
    /* A persistent receive from anybody, and one freed while active. */
    MPI_Request any;
    int got = -1;
    OK(MPI_Recv_init(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any));
    for (int i = 0; i < 5; i++) {
        OK(MPI_Start(&any));
        OK(MPI_Send(&i, 1, MPI_INT, ring(1), 100 + i, MPI_COMM_WORLD));
        OK(MPI_Wait(&any, &status));
        SAME(got, i);
        SAME(status.MPI_TAG, 100 + i);
        SAME(status.MPI_SOURCE, ring(-1));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Request_free(&any));
    MPI_Request send;
    static int last;
    last = world_rank + 5;
    OK(MPI_Send_init(&last, 1, MPI_INT, ring(1), 9, MPI_COMM_WORLD, &send));
    OK(MPI_Start(&send));
    OK(MPI_Request_free(&send));
    OK(MPI_Recv(&got, 1, MPI_INT, ring(-1), 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(got, ring(-1) + 5);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    void *where;
    int size;
    OK(MPI_Buffer_detach(&where, &size));
    return check_end();
}

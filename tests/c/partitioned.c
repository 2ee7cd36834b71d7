/* Partitioned communication (MPI 5.0 chapter 4): sides that cut the same bytes differently, several
 * rounds, derived types, parts that arrive before the whole, nobody, and wrong partition numbers.
 */
#include "check.h"

enum { TOTAL = 840, ROUNDS = 3 };

static int value(int round, int from, int at)
{
    return round * 1000003 + from * 10007 + at;
}

/* A ring: each rank sends TOTAL ints to the next in `out` parts and receives them from the previous
 * in `in` parts. */
static void exchange_parts(int out, int in, int backwards)
{
    int next = (world_rank + 1) % world_size, previous = (world_rank + world_size - 1) % world_size;
    int sent[TOTAL], got[TOTAL];
    MPI_Request requests[2];
    OK(MPI_Psend_init(sent, out, TOTAL / out, MPI_INT, next, 7, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[0]));
    OK(MPI_Precv_init(got, in, TOTAL / in, MPI_INT, previous, 7, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[1]));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < TOTAL; i++)
            got[i] = -1;
        OK(MPI_Startall(2, requests));
        for (int p = 0; p < out; p++) {
            int part = backwards ? out - 1 - p : p;
            for (int i = part * (TOTAL / out); i < (part + 1) * (TOTAL / out); i++)
                sent[i] = value(round, world_rank, i);
            OK(MPI_Pready(part, requests[0]));
        }
        for (int p = 0, flag = 0; p < in; p++, flag = 0) {
            while (!flag)
                OK(MPI_Parrived(requests[1], p, &flag));
            for (int i = p * (TOTAL / in); i < (p + 1) * (TOTAL / in); i++)
                SAME(got[i], value(round, previous, i));
        }
        MPI_Status statuses[2];
        OK(MPI_Waitall(2, requests, statuses));
        SAME(statuses[1].MPI_SOURCE, previous);
        SAME(statuses[1].MPI_TAG, 7);
        int count = -1;
        OK(MPI_Get_count(&statuses[1], MPI_INT, &count));
        SAME(count, TOTAL);
    }
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
}

/* A sender that releases a partition only when the one before has arrived: none waits for others to
 * share a message with. `bytes` a partition, released in steps of 5. */
static void one_after_the_other(int bytes)
{
    enum { PARTITIONS = 12, BYTES_MAX = 8192 };
    static char sent[PARTITIONS * BYTES_MAX], got[PARTITIONS * BYTES_MAX];
    MPI_Request request;
    if (world_rank > 1 || world_size < 2)
        return;
    if (world_rank == 0)
        OK(MPI_Psend_init(sent, PARTITIONS, bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                          &request));
    else
        OK(MPI_Precv_init(got, PARTITIONS, bytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                          &request));
    for (int round = 0; round < ROUNDS; round++) {
        OK(MPI_Start(&request));
        for (int i = 0; i < PARTITIONS; i++) {
            int p = i * 5 % PARTITIONS, flag = 0;
            if (world_rank == 0) {
                memset(sent + p * bytes, 16 * round + i, (size_t)bytes);
                OK(MPI_Pready(p, request));
                OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            } else {
                while (!flag)
                    OK(MPI_Parrived(request, p, &flag));
                for (int at = p * bytes; at < (p + 1) * bytes; at++)
                    SAME(got[at], 16 * round + i);
                OK(MPI_Send(NULL, 0, MPI_BYTE, 0, 4, MPI_COMM_WORLD));
            }
        }
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    OK(MPI_Request_free(&request));
}

/* Partitions that fill several messages, released in an order with gaps. */
static void many_small(void)
{
    enum { PARTITIONS = 1000, INTS = 25 };
    static int sent[PARTITIONS * INTS], got[PARTITIONS * INTS];
    int next = (world_rank + 1) % world_size, previous = (world_rank + world_size - 1) % world_size;
    MPI_Request requests[2];
    OK(MPI_Psend_init(sent, PARTITIONS, INTS, MPI_INT, next, 5, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[0]));
    OK(MPI_Precv_init(got, 10, PARTITIONS * INTS / 10, MPI_INT, previous, 5, MPI_COMM_WORLD,
                      MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PARTITIONS * INTS; i++)
            sent[i] = value(round, world_rank, i), got[i] = -1;
        OK(MPI_Startall(2, requests));
        for (int i = 0; i < PARTITIONS; i++)
            OK(MPI_Pready(i * 37 % PARTITIONS, requests[0]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < PARTITIONS * INTS; i++)
            SAME(got[i], value(round, previous, i));
    }
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
}

/* Partitions that travel together, more than one message has room for, released in one go: upwards,
 * downwards, from the middle on, every seventh, and with progress now and then. The receive buffer
 * is longer than what is sent, and has gaps if `spread`. */
static void in_one_go(int spread)
{
    enum { PARTITIONS = 40, INTS = 1024, ALL = PARTITIONS * INTS, MORE = ALL + 4 * INTS };
    static int sent[ALL], got[2 * MORE];
    int next = ring(1), previous = ring(-1), gap = spread ? 2 : 1;
    MPI_Request requests[2];
    MPI_Datatype type = MPI_INT;
    if (spread) {
        OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &type));
        OK(MPI_Type_commit(&type));
    }
    OK(MPI_Psend_init(sent, PARTITIONS, INTS, MPI_INT, next, 6, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[0]));
    OK(MPI_Precv_init(got, 11, MORE / 11, type, previous, 6, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[1]));
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < ALL; i++)
            sent[i] = value(round, world_rank, i);
        for (int i = 0; i < 2 * MORE; i++)
            got[i] = -1;
        OK(MPI_Startall(2, requests));
        for (int i = 0, flag; i < PARTITIONS; i++) {
            int p = (int[]){i, PARTITIONS - 1 - i, (i + PARTITIONS / 2) % PARTITIONS,
                            i * 7 % PARTITIONS, i ^ 1}[round % 5];
            OK(MPI_Pready(p, requests[0]));
            if (round >= 5 && i % 3 == 0)
                OK(MPI_Parrived(requests[1], 0, &flag));
        }
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < gap * MORE; i++)
            SAME(got[i], i % gap || i >= gap * ALL ? -1 : value(round, previous, i / gap));
    }
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    if (spread)
        OK(MPI_Type_free(&type));
}

/* Columns of a matrix as partitions of a derived type, released by range and by list. */
static void columns(void)
{
    enum { ROWS = 6, COLUMNS = 10 };
    int next = (world_rank + 1) % world_size, previous = (world_rank + world_size - 1) % world_size;
    int sent[ROWS][COLUMNS], got[ROWS * COLUMNS];
    MPI_Datatype column, resized;
    OK(MPI_Type_vector(ROWS, 1, COLUMNS, MPI_INT, &column));
    OK(MPI_Type_create_resized(column, 0, sizeof(int), &resized));
    OK(MPI_Type_commit(&resized));
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            sent[r][c] = value(r, world_rank, c);
    MPI_Request requests[2];
    OK(MPI_Psend_init(sent, COLUMNS, 1, resized, next, 1, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[0]));
    OK(MPI_Precv_init(got, 1, ROWS * COLUMNS, MPI_INT, previous, 1, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[1]));
    OK(MPI_Startall(2, requests));
    int rest[3] = {9, 0, 1};
    OK(MPI_Pready_range(2, 8, requests[0]));
    OK(MPI_Pready_list(3, rest, requests[0]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    for (int c = 0; c < COLUMNS; c++)
        for (int r = 0; r < ROWS; r++)
            SAME(got[c * ROWS + r], value(r, previous, c));
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    OK(MPI_Type_free(&resized));
    OK(MPI_Type_free(&column));
}

static void mistakes_and_nobody(void)
{
    int data[4] = {1, 2, 3, 4};
    MPI_Request request;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CLASS(MPI_Psend_init(data, 0, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                         &request),
          MPI_ERR_ARG);
    CLASS(MPI_Precv_init(data, 0, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                         &request),
          MPI_ERR_ARG);
    OK(MPI_Psend_init(data, 4, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &request));
    CLASS(MPI_Pready(0, request), MPI_ERR_REQUEST);
    OK(MPI_Start(&request));
    OK(MPI_Pready(0, request));
    /* What has not ended can be neither cancelled nor freed. */
    CLASS(MPI_Cancel(&request), MPI_ERR_REQUEST);
    CLASS(MPI_Request_free(&request), MPI_ERR_REQUEST);
    CLASS(MPI_Pready(0, request), MPI_ERR_ARG);
    CLASS(MPI_Pready(4, request), MPI_ERR_ARG);
    CLASS(MPI_Pready(-1, request), MPI_ERR_ARG);
    OK(MPI_Pready_range(1, 3, request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    int flag = 0;
    OK(MPI_Irecv(data, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request));
    CLASS(MPI_Parrived(request, 0, &flag), MPI_ERR_REQUEST);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* An announcement and the messages of MPI_Comm_create_group have one context and the same tag. */
static void beside_create_group(void)
{
    enum { TAG = 7 };
    int in = -1, out = world_rank;
    int next = (world_rank + 1) % world_size, previous = (world_rank + world_size - 1) % world_size;
    MPI_Request receive, send;
    MPI_Group all;
    MPI_Comm comm;
    OK(MPI_Precv_init(&in, 1, 1, MPI_INT, previous, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &receive));
    OK(MPI_Start(&receive));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    OK(MPI_Comm_create_group(MPI_COMM_WORLD, all, TAG, &comm));
    OK(MPI_Psend_init(&out, 1, 1, MPI_INT, next, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &send));
    OK(MPI_Start(&send));
    OK(MPI_Pready(0, send));
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    SAME(in, previous);
    OK(MPI_Request_free(&send));
    OK(MPI_Request_free(&receive));
    OK(MPI_Group_free(&all));
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    static const int cuts[][2] = {{1, 1}, {4, 4}, {8, 3}, {3, 8}, {840, 1}, {1, 840}, {7, 60}};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        exchange_parts(cuts[i][0], cuts[i][1], i % 2);
    columns();
    one_after_the_other(1);
    one_after_the_other(4096);
    one_after_the_other(8192);
    many_small();
    in_one_go(0);
    in_one_go(1);
    mistakes_and_nobody();
    beside_create_group();
    return check_end();
}

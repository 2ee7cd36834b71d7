/* Order: messages with the same envelope never overtake each other, whatever their sizes. */
#include "check.h"

enum { MESSAGES = 120 };

/* Sizes jump across every protocol border; receives are posted early or late; sources and tags may
 * be wildcards. */
static void in_order(int wild_source, int wild_tag, int early, uint64_t seed)
{
    Random random = random_from(seed);
    int sizes[MESSAGES];
    static const int choices[] = {8, 8, 40, 500, 5000, 20000, 100000};
    for (int i = 0; i < MESSAGES; i++)
        sizes[i] = choices[random_below(&random, 7)];
    int from = ring(-1), tag = 9;
    unsigned char *in[MESSAGES], *out[MESSAGES];
    MPI_Request receives[MESSAGES], sends[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) {
        in[i] = calloc(100000, 1);
        out[i] = malloc((size_t)sizes[i]);
        fill(out[i], (size_t)sizes[i], (uint64_t)(world_rank * 1000 + i));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int posted = 0;
    if (early)
        for (; posted < MESSAGES / 2; posted++)
            OK(MPI_Irecv(in[posted], 100000, MPI_BYTE, wild_source ? MPI_ANY_SOURCE : from,
                         wild_tag ? MPI_ANY_TAG : tag, MPI_COMM_WORLD, &receives[posted]));
    for (int i = 0; i < MESSAGES; i++)
        OK(MPI_Isend(out[i], sizes[i], MPI_BYTE, ring(1), tag, MPI_COMM_WORLD, &sends[i]));
    for (; posted < MESSAGES; posted++)
        OK(MPI_Irecv(
            in[posted], 100000, MPI_BYTE, wild_source && posted % 3 ? MPI_ANY_SOURCE : from,
            wild_tag && posted % 2 ? MPI_ANY_TAG : tag, MPI_COMM_WORLD, &receives[posted]));
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Status status;
        int count = -1;
        OK(MPI_Wait(&receives[i], &status));
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        SAME(count, sizes[i]);
        SAME(status.MPI_SOURCE, from);
        SAME(status.MPI_TAG, tag);
        if (count == sizes[i])
            FILLED(in[i], (size_t)sizes[i], (uint64_t)(from * 1000 + i));
    }
    OK(MPI_Waitall(MESSAGES, sends, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MESSAGES; i++) {
        free(in[i]);
        free(out[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Everybody sends to rank 0, which takes from anybody: order within each sender. */
static void many_to_one(void)
{
    enum { EACH = 200 };
    if (world_rank == 0) {
        int *next = calloc((size_t)world_size, sizeof *next);
        for (int i = 0; i < (world_size - 1) * EACH; i++) {
            int value = -1;
            MPI_Status status;
            OK(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
            SAME(value, next[status.MPI_SOURCE]);
            SAME(status.MPI_TAG, value % 3);
            next[status.MPI_SOURCE]++;
        }
        for (int i = 1; i < world_size; i++)
            SAME(next[i], EACH);
        free(next);
    } else {
        for (int i = 0; i < EACH; i++)
            OK(MPI_Send(&i, 1, MPI_INT, 0, i % 3, MPI_COMM_WORLD));
    }
}

/* A wildcard receive and a specific one posted for the same message: the earlier posted one gets
 * it. */
static void earlier_receive_first(void)
{
    int a = -1, b = -1, c = -1;
    MPI_Request r[3];
    MPI_Comm other;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    OK(MPI_Irecv(&a, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &r[0]));
    OK(MPI_Irecv(&b, 1, MPI_INT, ring(-1), MPI_ANY_TAG, MPI_COMM_WORLD, &r[1]));
    OK(MPI_Irecv(&c, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, other, &r[2]));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int values[3] = {10, 20, 30};
    OK(MPI_Send(&values[2], 1, MPI_INT, ring(1), 1, other));
    OK(MPI_Send(&values[0], 1, MPI_INT, ring(1), 1, MPI_COMM_WORLD));
    OK(MPI_Send(&values[1], 1, MPI_INT, ring(1), 1, MPI_COMM_WORLD));
    OK(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
    SAME(a, 10);
    SAME(b, 20);
    SAME(c, 30);
    OK(MPI_Comm_free(&other));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    for (int variant = 0; variant < 8; variant++)
        in_order(variant & 1, variant >> 1 & 1, variant >> 2 & 1, (uint64_t)variant + 3);
    many_to_one();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    earlier_receive_first();
    return check_end();
}

/* Each blocking collective, at sizes from one element to megabytes, with values that are easy to
 * check. Then long runs without synchronisation, collectives on several communicators at once, and
 * what a barrier guarantees. */
// time: 120
#include "check.h"

static void sizes(int n)
{
    int p = world_size;
    size_t bytes = (size_t)n * sizeof(int);
    int *one = malloc(bytes + sizeof(int)), *other = malloc(bytes + sizeof(int));
    int *all = malloc(bytes * (size_t)p + sizeof(int)),
        *back = malloc(bytes * (size_t)p + sizeof(int));
    for (int root = 0; root < p; root += p > 4 ? p - 1 : 1) {
        for (int i = 0; i < n; i++)
            one[i] = world_rank == root ? root * 7 + i : -1;
        OK(MPI_Bcast(one, n, MPI_INT, root, MPI_COMM_WORLD));
        for (int i = 0; i < n; i++)
            if (one[i] != root * 7 + i) {
                FAIL("Bcast of %d from %d: element %d is %d", n, root, i, one[i]);
                break;
            }
        for (int i = 0; i < n; i++)
            one[i] = world_rank + i;
        memset(other, 0, bytes);
        OK(MPI_Reduce(one, other, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD));
        for (int i = 0; i < n && world_rank == root; i++)
            if (other[i] != p * (p - 1) / 2 + p * i) {
                FAIL("Reduce of %d to %d: element %d is %d", n, root, i, other[i]);
                break;
            }
        OK(MPI_Gather(one, n, MPI_INT, all, n, MPI_INT, root, MPI_COMM_WORLD));
        for (int i = 0; i < n * p && world_rank == root; i++)
            if (all[i] != i / n + i % n) {
                FAIL("Gather of %d to %d: element %d is %d", n, root, i, all[i]);
                break;
            }
        memset(other, 0, bytes);
        OK(MPI_Scatter(all, n, MPI_INT, other, n, MPI_INT, root, MPI_COMM_WORLD));
        for (int i = 0; i < n; i++)
            if (other[i] != world_rank + i) {
                FAIL("Scatter of %d from %d: element %d is %d", n, root, i, other[i]);
                break;
            }
    }
    for (int i = 0; i < n; i++)
        one[i] = world_rank + i;
    OK(MPI_Allreduce(one, other, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        if (other[i] != p * (p - 1) / 2 + p * i) {
            FAIL("Allreduce of %d: element %d is %d", n, i, other[i]);
            break;
        }
    memset(all, 0, bytes * (size_t)p);
    OK(MPI_Allgather(one, n, MPI_INT, all, n, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < n * p; i++)
        if (all[i] != i / n + i % n) {
            FAIL("Allgather of %d: element %d is %d", n, i, all[i]);
            break;
        }
    for (int i = 0; i < n * p; i++)
        all[i] = world_rank * 1000 + i / n + i % n;
    OK(MPI_Alltoall(all, n, MPI_INT, back, n, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < n * p; i++)
        if (back[i] != i / n * 1000 + world_rank + i % n) {
            FAIL("Alltoall of %d: element %d is %d", n, i, back[i]);
            break;
        }
    OK(MPI_Reduce_scatter_block(all, other, n, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        if (other[i] != (p - 1) * 1000 + world_rank + i) {
            FAIL("Reduce_scatter_block of %d: element %d is %d", n, i, other[i]);
            break;
        }
    OK(MPI_Scan(one, other, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        if (other[i] != world_rank * (world_rank + 1) / 2 + (world_rank + 1) * i) {
            FAIL("Scan of %d: element %d is %d", n, i, other[i]);
            break;
        }
    OK(MPI_Exscan(one, other, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < n && world_rank > 0; i++)
        if (other[i] != world_rank * (world_rank - 1) / 2 + world_rank * i) {
            FAIL("Exscan of %d: element %d is %d", n, i, other[i]);
            break;
        }
    free(one), free(other), free(all), free(back);
}

/* Roots change at each call and nobody waits: a fast rank may be many collectives ahead of a slow
 * one. */
static void runaway(void)
{
    for (int i = 0; i < 300; i++) {
        int value = world_rank == i % world_size ? i : -1, sum = -1;
        OK(MPI_Bcast(&value, 1, MPI_INT, i % world_size, MPI_COMM_WORLD));
        SAME(value, i);
        OK(MPI_Reduce(&value, &sum, 1, MPI_INT, MPI_SUM, (i + 1) % world_size, MPI_COMM_WORLD));
        if (world_rank == (i + 1) % world_size)
            SAME(sum, i * world_size);
    }
}

/* The same ranks, several communicators, point-to-point messages with any tag in between: nothing
 * mixes. */
static void side_by_side(void)
{
    enum { COMMS = 5 };
    MPI_Comm comms[COMMS];
    for (int i = 0; i < COMMS; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    MPI_Request request;
    int in = -1;
    OK(MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < COMMS; i++) {
            int value = world_rank + i, sum = -1;
            OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comms[i]));
            SAME(sum, world_size * (world_size - 1) / 2 + i * world_size);
            OK(MPI_Barrier(comms[(i + 1) % COMMS]));
        }
    SAME(in, -1);
    OK(MPI_Barrier(comms[0]));
    OK(MPI_Send(&world_rank, 1, MPI_INT, ring(1), 3, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    SAME(in, ring(-1));
    OK(MPI_Barrier(comms[0]));
    for (int i = 0; i < COMMS; i++)
        OK(MPI_Comm_free(&comms[i]));
}

/* Nobody leaves a barrier before everybody has entered it: a message sent before entering must be
 * there after. */
static void barrier_means(void)
{
    for (int round = 0; round < 30; round++) {
        int late = round % world_size;
        if (world_rank == late) {
            for (int to = 0; to < world_size; to++)
                if (to != late)
                    OK(MPI_Send(&round, 1, MPI_INT, to, 70, MPI_COMM_WORLD));
            OK(MPI_Barrier(MPI_COMM_WORLD));
        } else {
            OK(MPI_Barrier(MPI_COMM_WORLD));
            int value = -1;
            OK(MPI_Recv(&value, 1, MPI_INT, late, 70, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            SAME(value, round);
        }
    }
}

/* An empty vector may lie anywhere: some languages put it at address 1, which is MPI_IN_PLACE. */
static void empty_at_one(void)
{
    void *at = MPI_IN_PLACE;
    int position = 0;
    MPI_Request request;
    OK(MPI_Sendrecv(at, 0, MPI_BYTE, ring(1), 1, at, 0, MPI_BYTE, ring(-1), 1, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    OK(MPI_Bcast(at, 0, MPI_BYTE, 0, MPI_COMM_WORLD));
    OK(MPI_Ibcast(at, 0, MPI_BYTE, 0, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Gather(at, 0, MPI_BYTE, at, 0, MPI_BYTE, 0, MPI_COMM_WORLD));
    OK(MPI_Scatter(at, 0, MPI_BYTE, at, 0, MPI_BYTE, 0, MPI_COMM_WORLD));
    OK(MPI_Reduce(at, at, 0, MPI_BYTE, MPI_BOR, 0, MPI_COMM_WORLD));
    OK(MPI_Pack(NULL, 0, MPI_BYTE, at, 0, &position, MPI_COMM_WORLD));
    OK(MPI_Unpack(at, 0, &position, at, 0, MPI_BYTE, MPI_COMM_WORLD));
    SAME(position, 0);
}

/* Zero elements everywhere; null buffers are fine then. */
static void nothing(void)
{
    empty_at_one();
    OK(MPI_Bcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD));
    OK(MPI_Reduce(NULL, NULL, 0, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
    OK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Gather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, 0, MPI_COMM_WORLD));
    OK(MPI_Allgather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Alltoall(NULL, 0, MPI_INT, NULL, 0, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Scan(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    int *zeros = calloc((size_t)world_size, sizeof *zeros);
    OK(MPI_Alltoallv(NULL, zeros, zeros, MPI_INT, NULL, zeros, zeros, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Reduce_scatter(NULL, NULL, zeros, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    free(zeros);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    for (int n = 1; n <= (world_size <= 4    ? 1 << 19
                          : world_size <= 16 ? 1 << 15
                                             : 1 << 10);
         n *= 8) {
        sizes(n);
        if (n > 1)
            sizes(n - 1);
    }
    runaway();
    side_by_side();
    barrier_means();
    nothing();
    return check_end();
}

/* Small collectives, which may go by memory that a node's ranks share: more communicators than
 * there is such memory for, made and freed while slow ranks still read; roots that run ahead; sizes
 * around every limit; collectives in the background meanwhile; and threads with a communicator
 * each. */
// time: 120
#include "check.h"

#include <pthread.h>
#include <unistd.h>

enum { COMMS = 12, THREADS = 3 };

/* From each root in turn, some rounds from the same, so that who only sends runs ahead; in place as
 * well. */
static void rooted(MPI_Comm comm, int round, int slow)
{
    int rank, size;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    long *all = malloc(sizeof(long) * 3 * (size_t)size);
    for (int i = 0; i < 20 + size; i++) {
        int root = i < 20 ? round % size : i % size, in_place = i % 3 == 0;
        long key = round * 1000L + i * 10, mine[3] = {key + rank, key - rank, 7};
        void *out = mine;
        if (in_place && rank == root) {
            memcpy(all + 3 * rank, mine, sizeof mine);
            out = MPI_IN_PLACE;
        }
        OK(MPI_Gather(out, 3, MPI_LONG, rank == root ? all : NULL, 3, MPI_LONG, root, comm));
        if (slow == rank && i % 7 == 0)
            usleep(200);
        for (int r = 0; r < size && rank == root; r++)
            CHECK(all[3 * r] == key + r && all[3 * r + 1] == key - r && all[3 * r + 2] == 7,
                  "gather %d: %ld of rank %d", i, all[3 * r], r);
        memset(mine, 0, sizeof mine);
        OK(MPI_Scatter(rank == root ? all : NULL, 3, MPI_LONG,
                       in_place && rank == root ? MPI_IN_PLACE : mine, 3, MPI_LONG, root, comm));
        if (!in_place || rank != root)
            CHECK(mine[0] == key + rank && mine[1] == key - rank && mine[2] == 7, "scatter %d: %ld",
                  i, mine[0]);
        long sums[2] = {key + rank, 1L << rank % 60};
        OK(MPI_Reduce(in_place && rank == root ? MPI_IN_PLACE : sums,
                      rank == root ? (in_place ? sums : all) : NULL, 2, MPI_LONG, MPI_SUM, root,
                      comm));
        long *sum = in_place ? sums : all;
        if (rank == root)
            CHECK(sum[0] == size * key + (long)size * (size - 1) / 2 &&
                      (size > 60 || sum[1] == (1L << size) - 1),
                  "reduce %d: %ld, %ld", i, sum[0], sum[1]);
    }
    free(all);
}

/* One of each on a communicator, with values that depend on the round, so that stale data show. */
static void each(MPI_Comm comm, int round, int slow)
{
    int rank, size;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Barrier(comm));
    long key = round * 1000L, sum = -1, pre = -1;
    long mine = key + rank;
    OK(MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm));
    SAME(sum, size * key + (long)size * (size - 1) / 2);
    for (int root = 0; root < size; root++) {
        long word = rank == root ? key + root : -1;
        OK(MPI_Bcast(&word, 1, MPI_LONG, root, comm));
        if (slow == rank)
            usleep(200);
        SAME(word, key + root);
    }
    OK(MPI_Scan(&mine, &pre, 1, MPI_LONG, MPI_SUM, comm));
    SAME(pre, (rank + 1) * key + (long)rank * (rank + 1) / 2);
    long *all = malloc(sizeof(long) * (size_t)size), *out = malloc(sizeof(long) * (size_t)size);
    OK(MPI_Allgather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, comm));
    for (int i = 0; i < size; i++) {
        SAME(all[i], key + i);
        out[i] = key + 100L * rank + i;
    }
    OK(MPI_Alltoall(out, 1, MPI_LONG, all, 1, MPI_LONG, comm));
    for (int i = 0; i < size; i++)
        SAME(all[i], key + 100L * i + rank);
    for (int i = 0; i < size; i++)
        all[i] = key + i;
    OK(MPI_Allreduce(MPI_IN_PLACE, all, size, MPI_LONG, MPI_MAX, comm));
    for (int i = 0; i < size; i++)
        SAME(all[i], key + i);
    long own = -1;
    for (int i = 0; i < size; i++)
        out[i] = key + i;
    OK(MPI_Reduce_scatter_block(out, &own, 1, MPI_LONG, MPI_SUM, comm));
    SAME(own, size * (key + rank));
    OK(MPI_Exscan(&mine, &pre, 1, MPI_LONG, MPI_MAX, comm));
    if (rank > 0)
        SAME(pre, key + rank - 1);
    free(all);
    free(out);
    rooted(comm, round, slow);
}

/* Sizes around the limits of every way to carry data. */
static void sizes(MPI_Comm comm)
{
    static const int bytes[] = {0,  1,    7,    8,    55,   56,   57,   63,   64,
                                65, 1000, 2047, 2048, 2103, 2104, 2105, 4096, 20000};
    int size, rank;
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Comm_rank(comm, &rank));
    unsigned char *out = malloc(20000), *in = malloc(20000u * (size_t)size);
    for (int s = 0; s < (int)(sizeof bytes / sizeof *bytes); s++)
        for (int root = 0; root < size; root += 1 + size / 3) {
            size_t n = (size_t)bytes[s];
            uint64_t key = (uint64_t)s * 100 + (uint64_t)root;
            fill(out, n, rank == root ? key : 9999);
            OK(MPI_Bcast(out, bytes[s], MPI_BYTE, root, comm));
            FILLED(out, n, key);
            fill(out, n, key + (uint64_t)rank);
            OK(MPI_Allgather(out, bytes[s], MPI_BYTE, in, bytes[s], MPI_BYTE, comm));
            for (int i = 0; i < size; i++)
                FILLED(in + (size_t)i * n, n, key + (uint64_t)i);
            OK(MPI_Allreduce(out, in, bytes[s], MPI_BYTE, MPI_BOR, comm));
            OK(MPI_Gather(out, bytes[s], MPI_BYTE, in, bytes[s], MPI_BYTE, root, comm));
            for (int i = 0; i < size && rank == root; i++)
                FILLED(in + (size_t)i * n, n, key + (uint64_t)i);
            OK(MPI_Scatter(in, bytes[s], MPI_BYTE, out, bytes[s], MPI_BYTE, root, comm));
            FILLED(out, n, key + (uint64_t)rank);
            memset(in, 0xa5, n);
            OK(MPI_Reduce(out, in, bytes[s], MPI_BYTE, MPI_BXOR, root, comm));
            if (size == 1)
                FILLED(in, n, key);
        }
    free(out);
    free(in);
}

/* Collectives in the background beside those that block. */
static void beside(MPI_Comm comm)
{
    int size, rank;
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Comm_rank(comm, &rank));
    for (int round = 0; round < 20; round++) {
        int one = rank + round, sum = -1, word = rank == 0 ? round : -1;
        MPI_Request requests[3];
        OK(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[0]));
        OK(MPI_Ibcast(&word, 1, MPI_INT, 0, comm, &requests[1]));
        OK(MPI_Ibarrier(comm, &requests[2]));
        each(comm, round, -1);
        OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
        SAME(sum, size * (size - 1) / 2 + size * round);
        SAME(word, round);
    }
}

static MPI_Comm own[THREADS];

static void *in_thread(void *arg)
{
    int me = (int)(intptr_t)arg;
    for (int round = 0; round < 15; round++)
        each(own[me], round + me * 1000, -1);
    return NULL;
}

/* A communicator gets the memory of one that has been freed, and makes the same calls. What the
 * earlier one left there must not be taken for another rank's call. */
static void again_in_the_same_memory(void)
{
    for (int again = 0; again < 6; again++) {
        MPI_Comm comm;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        for (int i = 0; i < 7; i++) { /* fewer than the board has parts */
            long word = world_rank == (i + again) % world_size ? i : -1;
            OK(MPI_Bcast(&word, 1, MPI_LONG, (i + again) % world_size, comm));
            SAME(word, i);
        }
        OK(MPI_Comm_free(&comm));
    }
}

int main(int argc, char **argv)
{
    int provided;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));

    for (int round = 0; round < 5; round++)
        each(MPI_COMM_WORLD, round, round % world_size);
    sizes(MPI_COMM_WORLD);
    beside(MPI_COMM_WORLD);

    MPI_Comm many[COMMS];
    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < COMMS; i++) {
            int part = i % 3 == 0 ? 0 : world_rank % (i % 3 + 1);
            OK(MPI_Comm_split(MPI_COMM_WORLD, part, i % 2 ? -world_rank : world_rank, &many[i]));
            for (int round = 0; round < 4; round++)
                each(many[i], again * 100 + round, i % 4);
        }
        for (int i = 0; i < COMMS; i++)
            each(many[i], again * 100 + i, -1);
        for (int i = 0; i < COMMS; i++) {
            /* The last thing before the end of a communicator is one in which ranks run ahead. */
            long word = 7;
            OK(MPI_Bcast(&word, 1, MPI_LONG, 0, many[i]));
            if (world_rank % 3 == i % 3)
                usleep(300);
            OK(MPI_Comm_free(&many[i]));
        }
    }

    again_in_the_same_memory();
    for (int i = 0; i < THREADS; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &own[i]));
    if (provided == MPI_THREAD_MULTIPLE) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, in_thread, (void *)(intptr_t)i);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++)
        OK(MPI_Comm_free(&own[i]));
    return check_end();
}

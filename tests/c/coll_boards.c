/* Small collectives, which may go by memory that a node's ranks share: more communicators than
 * there is such memory for, made and freed while slow ranks still read; roots that run ahead; sizes
 * around every limit; collectives in the background meanwhile; neighbours in grids; and threads
 * with a communicator each. */
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
                                65, 1000, 2047, 2048, 2049, 2104, 2105, 4096, 20000};
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

/* What rank `from` sends in `round` in a grid's direction `to` (2d: down in dimension d, 2d + 1:
 * up); allgather: the same in all. */
static uint64_t towards(int round, int from, int to)
{
    return (uint64_t)round * 100000 + (uint64_t)from * 100 + (uint64_t)to;
}

enum { BLOCK_MAX = 3000, DIRECTIONS = 6 };

/* An exchange of blocks of `bytes` bytes with the neighbours of a grid: by form 0 blocking, 1
 * non-blocking, 2 persistent, 3 blocking from every other byte to every other byte. */
static void neighbours(MPI_Comm comm, int dims, int all_to_all, int form, int bytes, int round)
{
    static unsigned char out[DIRECTIONS * BLOCK_MAX * 2], in[DIRECTIONS * BLOCK_MAX * 2];
    int rank, stride = form == 3 ? 2 : 1;
    OK(MPI_Comm_rank(comm, &rank));
    unsigned char one[BLOCK_MAX];
    memset(in, 0xa5, sizeof in);
    memset(out, 0x5a, sizeof out);
    for (int i = 0; i < 2 * dims; i++) {
        fill(one, (size_t)bytes, towards(round, rank, all_to_all ? i : 0));
        for (int k = 0; k < bytes; k++)
            if (all_to_all || i == 0)
                out[(i * bytes + k) * stride] = one[k];
    }
    MPI_Datatype type = MPI_BYTE;
    if (form == 3) {
        OK(MPI_Type_create_resized(MPI_BYTE, 0, 2, &type));
        OK(MPI_Type_commit(&type));
    }
    MPI_Request request;
    switch (form * 2 + all_to_all) {
    case 2:
        OK(MPI_Ineighbor_allgather(out, bytes, type, in, bytes, type, comm, &request));
        break;
    case 3:
        OK(MPI_Ineighbor_alltoall(out, bytes, type, in, bytes, type, comm, &request));
        break;
    case 4:
        OK(MPI_Neighbor_allgather_init(out, bytes, type, in, bytes, type, comm, MPI_INFO_NULL,
                                       &request));
        break;
    case 5:
        OK(MPI_Neighbor_alltoall_init(out, bytes, type, in, bytes, type, comm, MPI_INFO_NULL,
                                      &request));
        break;
    case 0:
    case 6:
        OK(MPI_Neighbor_allgather(out, bytes, type, in, bytes, type, comm));
        break;
    default:
        OK(MPI_Neighbor_alltoall(out, bytes, type, in, bytes, type, comm));
    }
    for (int i = 0; i < (form == 2 ? 3 : 0); i++) {
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    if (form == 1)
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (form == 2)
        OK(MPI_Request_free(&request));
    if (form == 3)
        OK(MPI_Type_free(&type));
    for (int i = 0; i < 2 * dims; i++) {
        int down, up;
        OK(MPI_Cart_shift(comm, i / 2, 1, &down, &up));
        int from = i % 2 ? up : down;
        if (from == MPI_PROC_NULL)
            memset(one, 0xa5, (size_t)bytes);
        else
            fill(one, (size_t)bytes, towards(round, from, all_to_all ? i ^ 1 : 0));
        for (int k = 0; k < bytes; k++) {
            int at = (i * bytes + k) * stride;
            CHECK(in[at] == one[k] && (stride == 1 || in[at + 1] == 0xa5),
                  "%d dimensions, form %d, %d bytes from %d in direction %d: byte %d is %d", dims,
                  form, bytes, from, i, k, in[at]);
        }
    }
}

/* In a line, ranks with even numbers send short blocks and receive long ones; the others do the
 * reverse. */
static void unequal_neighbours(void)
{
    MPI_Comm line;
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, (int[]){0}, 0, &line));
    int is_odd = world_rank % 2;
    for (int round = 0; round < 12; round++) {
        int small = round % 4, big = round % 5 + 9;
        int sent = is_odd ? big : small, received = is_odd ? small : big, all_to_all = round % 2;
        long out[2 * 16], in[2 * 16];
        for (int i = 0; i < 2 * 16; i++)
            out[i] = round * 10000 + world_rank * 100 + i, in[i] = -1;
        if (all_to_all)
            OK(MPI_Neighbor_alltoall(out, sent, MPI_LONG, in, received, MPI_LONG, line));
        else
            OK(MPI_Neighbor_allgather(out, sent, MPI_LONG, in, received, MPI_LONG, line));
        for (int i = 0; i < 2 * received; i++) {
            int from = world_rank + (i < received ? -1 : 1);
            int at = i % received + (all_to_all && i < received ? received : 0);
            int is_there = from >= 0 && from < world_size;
            SAME(in[i], is_there ? round * 10000 + from * 100 + at : -1);
        }
        SAME(in[2 * received], -1);
    }
    /* One that expects more than its neighbour sends gets an error, and nobody waits. */
    OK(MPI_Comm_set_errhandler(line, MPI_ERRORS_RETURN));
    for (int round = 0; round < 2; round++) {
        long out[4] = {0}, in[8];
        int wrong = world_rank == world_size - 1 && world_size > 1;
        int code = round == 0 ? MPI_Neighbor_alltoall(out, 2, MPI_LONG, in, wrong ? 4 : 2, MPI_LONG,
                                                      line)
                              : MPI_Neighbor_allgather(out, 2, MPI_LONG, in, wrong ? 4 : 2,
                                                       MPI_LONG, line);
        CLASS(code, wrong ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
    }
    OK(MPI_Comm_free(&line));
}

/* Grids of any size, also with two ways to one neighbour, to oneself and to nobody. Other
 * collectives between, in which all wait for all or none for some, and ranks that are late. */
static void grids(void)
{
    static const int bytes[] = {8,   0,   1,    256,  257,  341,  342,
                                512, 513, 1024, 1025, 2048, 2049, 3000};
    for (int dims = 1; dims <= 3; dims++)
        for (int mask = 0; mask < 1 << dims; mask++) {
            int places[3] = {0, 0, 0}, periods[3] = {mask & 1, mask & 2, mask & 4}, rank, round = 0;
            MPI_Comm comm;
            OK(MPI_Dims_create(world_size, dims, places));
            OK(MPI_Cart_create(MPI_COMM_WORLD, dims, places, periods, 0, &comm));
            OK(MPI_Comm_rank(comm, &rank));
            for (int i = 0; i < (int)(sizeof bytes / sizeof *bytes); i++)
                for (int form = 0; form < 4; form++) {
                    if ((i + form) % 9 == rank)
                        usleep(300);
                    neighbours(comm, dims, 0, form, bytes[i], ++round);
                    neighbours(comm, dims, 1, form, bytes[i], ++round);
                    if (i % 4 == 1 && form == 0)
                        each(comm, round, -1);
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
    grids();
    unequal_neighbours();
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

/* Operations under way go on while no rank is in MPI: each rank starts something and then reads
 * plain memory until the result stands there. That all ranks have seen theirs they tell each other
 * through a mapped file, not through MPI. */
// env: FERRY_PROGRESS=thread
// ranks: 2 3 4 7
// time: 120
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 200000, PATIENCE = 30 };

static volatile int *seen; /* one a rank: how many trials it has seen to their end */
static int trial;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Computes until memory says that all ranks have what they wait for; false if that takes too long.
 */
static int arrives(const volatile int *at, int wanted)
{
    double end = now() + PATIENCE;
    while (at && *at != wanted)
        if (now() > end)
            return 0;
    __sync_synchronize();
    seen[world_rank] = trial;
    for (int r = 0; r < world_size; r++)
        while (seen[r] < trial)
            if (now() > end)
                return 0;
    return 1;
}

#define EXPECT(at, wanted, ...)                                                                    \
    do {                                                                                           \
        trial++;                                                                                   \
        int came_ = arrives(at, wanted);                                                           \
        CHECK(came_, __VA_ARGS__);                                                                 \
        seen[world_rank] = trial;                                                                  \
    } while (0)

static int sum_of_ranks(void)
{
    return world_size * (world_size - 1) / 2;
}

static void collectives(int count)
{
    int *in = malloc(sizeof(int) * (size_t)count * (size_t)world_size),
        *out = calloc((size_t)count * (size_t)world_size, sizeof(int));
    volatile int *last = out + count - 1;
    MPI_Request request;

    for (int root = 0; root < 2; root++) {
        for (int i = 0; i < count; i++)
            in[i] = world_rank + i, out[i] = -1;
        OK(MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
        EXPECT(last, sum_of_ranks() + world_size * (count - 1), "MPI_Iallreduce of %d stands still",
               count);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));

        for (int i = 0; i < count; i++)
            out[i] = world_rank == root ? 5 + i : -1;
        OK(MPI_Ibcast(out, count, MPI_INT, root, MPI_COMM_WORLD, &request));
        EXPECT(last, 5 + count - 1, "MPI_Ibcast of %d stands still", count);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));

        out[count - 1] = -1;
        OK(MPI_Ireduce(in, out, count, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD, &request));
        EXPECT(world_rank == root ? last : NULL, world_size - 1 + count - 1,
               "MPI_Ireduce of %d stands still", count);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }

    for (int i = 0; i < count * world_size; i++)
        in[i] = world_rank * 10 + i / count, out[i] = -1;
    OK(MPI_Ialltoall(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD, &request));
    for (int r = 0; r < world_size; r++)
        EXPECT(out + (r + 1) * count - 1, r * 10 + world_rank,
               "MPI_Ialltoall of %d: rank %d's block does not come", count, r);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));

    memset(out, -1, sizeof(int) * (size_t)count * (size_t)world_size);
    OK(MPI_Allgather_init(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL,
                          &request));
    for (int times = 0; times < 3; times++) {
        out[count * world_size - 1] = -1;
        OK(MPI_Start(&request));
        EXPECT(out + count * world_size - 1, (world_size - 1) * 10,
               "MPI_Allgather_init of %d stands still", count);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    OK(MPI_Request_free(&request));
    free(in);
    free(out);
}

/* Messages around the ring of ranks, all kinds at once. */
static void messages(void)
{
    enum { SMALL = 256, MANY = 2000, ROWS = 2000, COLUMNS = 17 };
    int to = (world_rank + 1) % world_size, from = (world_rank + world_size - 1) % world_size;
    int *large = malloc(sizeof(int) * LARGE), *got = calloc(LARGE, sizeof(int));
    int(*small)[SMALL] = calloc(MANY, sizeof *small), (*come)[SMALL] = calloc(MANY, sizeof *come);
    int(*matrix)[COLUMNS] = calloc(ROWS, sizeof *matrix),
    (*columns)[COLUMNS] = calloc(ROWS, sizeof *columns);
    MPI_Request *requests = malloc(sizeof(MPI_Request) * 2 * MANY);
    MPI_Datatype column;

    for (int i = 0; i < LARGE; i++)
        large[i] = i + world_rank;
    OK(MPI_Irecv(got, LARGE, MPI_INT, from, 1, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend(large, LARGE, MPI_INT, to, 1, MPI_COMM_WORLD, &requests[1]));
    EXPECT((volatile int *)got + LARGE - 1, LARGE - 1 + from, "a large message does not come");
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));

    /* The message is there before its receive. */
    got[LARGE - 1] = -1;
    OK(MPI_Isend(large, LARGE, MPI_INT, to, 2, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Probe(from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Irecv(got, LARGE, MPI_INT, from, 2, MPI_COMM_WORLD, &requests[0]));
    EXPECT((volatile int *)got + LARGE - 1, LARGE - 1 + from,
           "a large message that was there first does not come");
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));

    /* More small messages than the wire has room for: the receiver must empty it. */
    for (int i = 0; i < MANY; i++)
        OK(MPI_Irecv(come[i], SMALL, MPI_INT, from, 3, MPI_COMM_WORLD, &requests[i]));
    for (int i = 0; i < MANY; i++) {
        small[i][SMALL - 1] = i + 1;
        OK(MPI_Isend(small[i], SMALL, MPI_INT, to, 3, MPI_COMM_WORLD, &requests[MANY + i]));
    }
    EXPECT((volatile int *)&come[MANY - 1][SMALL - 1], MANY, "many small messages do not come");
    OK(MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE));

    /* One small message: nobody but the program waits for it. */
    come[0][0] = 0;
    small[0][0] = 77;
    OK(MPI_Irecv(come[0], 1, MPI_INT, from, 4, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Issend(small[0], 1, MPI_INT, to, 4, MPI_COMM_WORLD, &requests[1]));
    EXPECT((volatile int *)&come[0][0], 77, "a small message does not come");
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));

    OK(MPI_Type_vector(ROWS, 1, COLUMNS, MPI_INT, &column));
    OK(MPI_Type_create_resized(column, 0, sizeof(int), &column));
    OK(MPI_Type_commit(&column));
    matrix[ROWS - 1][8] = 1 + world_rank;
    OK(MPI_Irecv(columns, 9, column, from, 5, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend(matrix, 9, column, to, 5, MPI_COMM_WORLD, &requests[1]));
    EXPECT((volatile int *)&columns[ROWS - 1][8], 1 + from,
           "a large message of columns does not come");
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Type_free(&column));

    int room = LARGE * (int)sizeof(int) + MPI_BSEND_OVERHEAD;
    void *buffer = malloc((size_t)room);
    OK(MPI_Buffer_attach(buffer, room));
    got[LARGE - 1] = -1;
    OK(MPI_Irecv(got, LARGE, MPI_INT, from, 6, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Bsend(large, LARGE, MPI_INT, to, 6, MPI_COMM_WORLD));
    EXPECT((volatile int *)got + LARGE - 1, LARGE - 1 + from,
           "a large buffered message does not come");
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Buffer_detach(&buffer, &room));

    enum { PARTS = 4 };
    got[LARGE - 1] = -1;
    OK(MPI_Precv_init(got, PARTS, LARGE / PARTS, MPI_INT, from, 7, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[0]));
    OK(MPI_Psend_init(large, PARTS, LARGE / PARTS, MPI_INT, to, 7, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[1]));
    for (int times = 0; times < 2; times++) {
        got[LARGE - 1] = -1;
        OK(MPI_Startall(2, requests));
        for (int p = 0; p < PARTS; p++)
            OK(MPI_Pready(p, requests[1]));
        EXPECT((volatile int *)got + LARGE - 1, LARGE - 1 + from,
               "a partitioned message does not come");
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    }
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    free(buffer), free(large), free(got), free(small), free(come), free(matrix), free(columns),
        free(requests);
}

static pthread_t program;
static volatile int by_others;

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    if (!pthread_equal(pthread_self(), program))
        by_others++;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

/* The program's functions are called by its own threads only. */
static void own_operation(void)
{
    enum { COUNT = 1000 };
    static int in[COUNT], out[COUNT];
    MPI_Op op;
    MPI_Request request;
    program = pthread_self();
    OK(MPI_Op_create(add, 1, &op));
    for (int times = 0; times < 20; times++) {
        for (int i = 0; i < COUNT; i++)
            in[i] = world_rank + times;
        OK(MPI_Iallreduce(in, out, COUNT, MPI_INT, op, MPI_COMM_WORLD, &request));
        for (double end = now() + 0.002; now() < end;)
            ;
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        SAME(out[COUNT - 1], sum_of_ranks() + world_size * times);
    }
    SAME(by_others, 0);
    OK(MPI_Op_free(&op));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    int file = open("seen", O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096) != 0)
        FAIL("no file to map");
    seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    collectives(1);
    collectives(1000);
    collectives(LARGE);
    messages();
    own_operation();
    return check_end();
}

/* Ranks whose computing threads share one core, on which none of them may poll: what one waits for,
 * another has to do there, or a progress thread elsewhere. The ranks meet on the first core of rank
 * 0's as soon as MPI runs, whatever they were bound to. A user's operation is called in the
 * program's threads, although they sleep. */
// env: FERRY_PROGRESS=thread
// ranks: 2 3
// time: 120
#include "one_core.h"

enum { ROUNDS = 30, COPIES = 300, LONG = 150000 };

static void user_sum(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void compute(int turns)
{
    static volatile double x = 2;
    for (int i = 0; i < turns; i++)
        x = x * 0.999 + 1e-3;
}

/* A copy that the progress thread is told of, but the program does itself because it waits at once,
 * does not keep the thread from the next one, for which nobody waits. */
static void left_alone(void)
{
    unsigned char *from = malloc(LONG), *to = malloc(LONG);
    volatile unsigned char *last = to + LONG - 1;
    MPI_Request request;
    for (int i = 0; i < COPIES; i++) {
        memset(from, 1 + i % 200, LONG);
        OK(MPI_Ialltoall(from, LONG, MPI_BYTE, to, LONG, MPI_BYTE, MPI_COMM_SELF, &request));
        double since = MPI_Wtime();
        while (i % 3 == 2 && *last != 1 + i % 200 && MPI_Wtime() - since < 20)
            sched_yield();
        SAME(i % 3 == 2 ? *last : 1 + i % 200, 1 + i % 200);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        SAME(memcmp(from, to, LONG), 0);
    }
    free(from), free(to);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    meet_on_one_core(); /* where they do not, the rest holds all the same */
    MPI_Op op;
    OK(MPI_Op_create(user_sum, 1, &op));
    Random shared = random_from(5);
    int most = 300000, expected = world_size * (world_size - 1) / 2;
    int *in = malloc(sizeof(int) * (size_t)most), *sums = malloc(sizeof(int) * (size_t)most),
        *users = malloc(sizeof(int) * (size_t)most);
    unsigned char *bytes = malloc((size_t)most);
    for (int i = 0; i < most; i++)
        in[i] = world_rank + i;
    for (int round = 0; round < ROUNDS; round++) {
        int count = 1 + random_size(&shared, most - 1), root = random_below(&shared, world_size),
            turns = random_below(&shared, 100000);
        MPI_Request requests[4];
        int said = -1, next = (world_rank + 1) % world_size,
            last = (world_rank + world_size - 1) % world_size;
        if (world_rank == root)
            fill(bytes, (size_t)count, (uint64_t)round);
        else
            memset(bytes, 0, (size_t)count);
        OK(MPI_Iallreduce(in, sums, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Iallreduce(in, users, count, MPI_INT, op, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Ibcast(bytes, count, MPI_BYTE, root, MPI_COMM_WORLD, &requests[2]));
        compute(world_rank == root ? turns : turns / 3);
        if (round % 3 == 0) /* a blocking call while all that is under way */
            OK(MPI_Sendrecv(&round, 1, MPI_INT, next, 1, &said, 1, MPI_INT, last, 1, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
        else {
            OK(MPI_Irecv(&said, 1, MPI_INT, last, 1, MPI_COMM_WORLD, &requests[3]));
            OK(MPI_Send(&round, 1, MPI_INT, next, 1, MPI_COMM_WORLD));
        }
        OK(MPI_Waitall(round % 3 == 0 ? 3 : 4, requests, MPI_STATUSES_IGNORE));
        SAME(said, round);
        FILLED(bytes, (size_t)count, (uint64_t)round);
        for (int i = 0; i < count; i++)
            if (sums[i] != expected + world_size * i || users[i] != expected + world_size * i) {
                FAIL("round %d: sum %d of %d is %d and, by the user's operation, %d; should be %d",
                     round, i, count, sums[i], users[i], expected + world_size * i);
                break;
            }
    }
    left_alone();
    OK(MPI_Op_free(&op));
    free(in), free(sums), free(users), free(bytes);
    return check_end();
}

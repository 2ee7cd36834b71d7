/* MPI_THREAD_MULTIPLE under load: threads with a communicator each, threads that share one, threads
 * that compete for the same wildcard messages, and threads that wait while others send. */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 60, SHARED_TAGS = 100 };

static MPI_Comm own[THREADS], shared;

/* Each thread: a ring on its own communicator, then collectives there. */
static void *ring_and_collectives(void *arg)
{
    int me = (int)(intptr_t)arg;
    Random random = random_from(77 + (uint64_t)me);
    static const int most = 40000;
    unsigned char *out = malloc(most), *in = malloc(most);
    for (int round = 0; round < ROUNDS; round++) {
        int bytes = random_size(&random, most);
        uint64_t key = (uint64_t)(round * 1000 + me * 100);
        fill(out, (size_t)bytes, key + (uint64_t)world_rank * 7919);
        MPI_Request requests[2];
        OK(MPI_Irecv(in, bytes, MPI_BYTE, ring(-1), round, own[me], &requests[0]));
        OK(MPI_Isend(out, bytes, MPI_BYTE, ring(1), round, own[me], &requests[1]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        FILLED(in, (size_t)bytes, key + (uint64_t)ring(-1) * 7919);
        if (round % 10 == 0) {
            long one = world_rank + me, sum = -1;
            OK(MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, own[me]));
            SAME(sum, (long)world_size * (world_size - 1) / 2 + (long)me * world_size);
        }
    }
    free(out);
    free(in);
    return NULL;
}

/* Threads on one communicator, told apart by tags only; blocking calls, so each must sleep without
 * harming the others. */
static void *tags_apart(void *arg)
{
    int me = (int)(intptr_t)arg;
    for (int round = 0; round < ROUNDS; round++) {
        int out[3] = {world_rank, me, round}, in[3] = {-1, -1, -1};
        MPI_Status status;
        OK(MPI_Sendrecv(out, 3, MPI_INT, ring(1), SHARED_TAGS + me, in, 3, MPI_INT, ring(-1),
                        SHARED_TAGS + me, shared, &status));
        SAME(in[0], ring(-1));
        SAME(in[1], me);
        SAME(in[2], round);
        SAME(status.MPI_TAG, SHARED_TAGS + me);
    }
    return NULL;
}

/* Even threads send, odd threads take whatever comes by matched probe; together they must see each
 * message once. */
static long taken_sum, taken_count;
static int wanted_count;

static void *competing(void *arg)
{
    int me = (int)(intptr_t)arg;
    if (me % 2 == 0) {
        for (int i = 0; i < ROUNDS; i++) {
            int value = world_rank * 100000 + me * 1000 + i;
            OK(MPI_Send(&value, 1, MPI_INT, ring(1), 5, shared));
        }
        return NULL;
    }
    while (__sync_add_and_fetch(&taken_count, 1) <= wanted_count) {
        MPI_Message message;
        MPI_Status status;
        int value = -1;
        OK(MPI_Mprobe(MPI_ANY_SOURCE, 5, shared, &message, &status));
        OK(MPI_Mrecv(&value, 1, MPI_INT, &message, &status));
        SAME(status.MPI_SOURCE, ring(-1));
        SAME(value / 100000, ring(-1));
        __sync_add_and_fetch(&taken_sum, value % 100000);
    }
    return NULL;
}

/* One thread waits, asleep, for a message that only another thread of the same process sends. */
static void *waits_for_self(void *arg)
{
    int me = (int)(intptr_t)arg, value = -1;
    for (int round = 0; round < 6 && me < 2; round++) {
        if (me == 0) {
            MPI_Status status;
            if (round % 3 == 1)
                OK(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &status));
            OK(MPI_Recv(&value, 1, MPI_INT, 0, round, MPI_COMM_SELF, &status));
            SAME(value, 42 + round);
        } else {
            usleep(10000);
            value = 42 + round;
            OK((round % 2 ? MPI_Send : MPI_Ssend)(&value, 1, MPI_INT, 0, round, MPI_COMM_SELF));
        }
    }
    return NULL;
}

/* Threads make, use and free objects at the same time. */
static void *objects(void *arg)
{
    int me = (int)(intptr_t)arg;
    for (int i = 0; i < 50; i++) {
        MPI_Datatype type;
        OK(MPI_Type_vector(3 + me, 1, 2, MPI_INT, &type));
        OK(MPI_Type_commit(&type));
        int size = -1;
        OK(MPI_Type_size(type, &size));
        SAME(size, (3 + me) * (int)sizeof(int));
        OK(MPI_Type_free(&type));
        MPI_Info info;
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "k", "v"));
        OK(MPI_Info_free(&info));
        MPI_Group group;
        OK(MPI_Comm_group(own[me], &group));
        OK(MPI_Group_size(group, &size));
        SAME(size, world_size);
        OK(MPI_Group_free(&group));
        if (i % 10 == 0) {
            MPI_Comm copy;
            OK(MPI_Comm_dup(own[me], &copy));
            OK(MPI_Barrier(copy));
            OK(MPI_Comm_free(&copy));
        }
    }
    return NULL;
}

static void run(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, body, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    int provided = -1;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    check_know_world();
    SAME(provided, MPI_THREAD_MULTIPLE);
    for (int i = 0; i < THREADS; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &own[i]));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &shared));
    run(ring_and_collectives);
    run(tags_apart);
    wanted_count = ROUNDS * (THREADS / 2);
    run(competing);
    long expected = 0;
    for (int me = 0; me < THREADS; me += 2)
        for (int i = 0; i < ROUNDS; i++)
            expected += me * 1000 + i;
    SAME(taken_sum, expected);
    run(waits_for_self);
    run(objects);
    for (int i = 0; i < THREADS; i++)
        OK(MPI_Comm_free(&own[i]));
    OK(MPI_Comm_free(&shared));
    return check_end();
}

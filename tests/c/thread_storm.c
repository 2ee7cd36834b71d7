/* MPI_THREAD_MULTIPLE under load. Half of the threads take each other's messages by wildcards and
 * matched probes. The others have a communicator each and share one; what they do is made up at
 * random, so that all of it happens at once: requests that another thread completes, collectives in
 * the background, communicators and other objects made and freed, receives cancelled as they match.
 * At last all make partitions ready.
 *
 *     thread_storm [SEED|fresh [ROUNDS [THREADS]]]
 */
// run: 1
// run: fresh
// ranks: 1 2 3 4
// time: 120
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 8, MOST = 40000, STASH = 4096 };

static uint64_t seed = 1;
static int rounds, threads, takers;
static MPI_Comm own[MOST_THREADS], shared, pool;

typedef void Play(int me, Random *random, int round);

/* A ring on the thread's own communicator, in one of the ways to complete it. */
static void ring_messages(int me, Random *random, int round)
{
    enum { PAIRS = 3 };
    static _Thread_local unsigned char out[PAIRS][MOST], in[PAIRS][MOST];
    MPI_Request requests[2 * PAIRS];
    int bytes[PAIRS], index, done = 0, some[2 * PAIRS], flag;
    Random common = random_from(seed * 1000003 + (uint64_t)(me * 100003 + round));
    for (int i = 0; i < PAIRS; i++) {
        bytes[i] = random_size(&common, MOST);
        OK(MPI_Irecv(in[i], MOST, MPI_BYTE, ring(-1), i, own[me], &requests[i]));
    }
    for (int i = 0; i < PAIRS; i++) {
        fill(out[i], (size_t)bytes[i], (uint64_t)(round * 64 + me * 8 + i + world_rank * 131));
        OK((random_below(random, 2) ? MPI_Isend : MPI_Issend)(out[i], bytes[i], MPI_BYTE, ring(1),
                                                              i, own[me], &requests[PAIRS + i]));
    }
    switch (random_below(random, 4)) {
    case 0:
        OK(MPI_Waitall(2 * PAIRS, requests, MPI_STATUSES_IGNORE));
        break;
    case 1:
        for (int i = 0; i < 2 * PAIRS; i++)
            OK(MPI_Waitany(2 * PAIRS, requests, &index, MPI_STATUS_IGNORE));
        break;
    case 2:
        while (done < 2 * PAIRS) {
            OK(MPI_Testsome(2 * PAIRS, requests, &flag, some, MPI_STATUSES_IGNORE));
            done += flag == MPI_UNDEFINED ? 0 : flag;
            sched_yield();
        }
        break;
    default:
        for (flag = 0; !flag; sched_yield())
            OK(MPI_Testall(2 * PAIRS, requests, &flag, MPI_STATUSES_IGNORE));
    }
    for (int i = 0; i < PAIRS; i++)
        FILLED(in[i], (size_t)bytes[i], (uint64_t)(round * 64 + me * 8 + i + ring(-1) * 131));
}

/* Collectives on the thread's own communicator: blocking, in the background, persistent; the same
 * on every rank. */
static void collectives(int me, Random *random, int round)
{
    Random common = random_from(seed * 7 + (uint64_t)(me * 1009 + round * 13));
    long mine = world_rank + me + round, sum = -1, gathered[64],
         word = world_rank == round % world_size ? round : -1;
    long total = (long)world_size * (world_size - 1) / 2 + (long)world_size * (me + round);
    MPI_Request request[3];
    int n = 0, flag, form = random_below(&common, 3);
    if (form == 0) {
        OK(MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, own[me]));
        OK(MPI_Bcast(&word, 1, MPI_LONG, round % world_size, own[me]));
        OK(MPI_Allgather(&mine, 1, MPI_LONG, gathered, 1, MPI_LONG, own[me]));
    } else if (form == 1) {
        OK(MPI_Iallreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, own[me], &request[n++]));
        OK(MPI_Ibcast(&word, 1, MPI_LONG, round % world_size, own[me], &request[n++]));
        OK(MPI_Iallgather(&mine, 1, MPI_LONG, gathered, 1, MPI_LONG, own[me], &request[n++]));
        if (random_below(random, 2))
            for (flag = 0; !flag; sched_yield())
                OK(MPI_Testall(n, request, &flag, MPI_STATUSES_IGNORE));
        else
            OK(MPI_Waitall(n, request, MPI_STATUSES_IGNORE));
    } else {
        OK(MPI_Allreduce_init(&mine, &sum, 1, MPI_LONG, MPI_SUM, own[me], MPI_INFO_NULL,
                              &request[n++]));
        OK(MPI_Bcast_init(&word, 1, MPI_LONG, round % world_size, own[me], MPI_INFO_NULL,
                          &request[n++]));
        OK(MPI_Allgather_init(&mine, 1, MPI_LONG, gathered, 1, MPI_LONG, own[me], MPI_INFO_NULL,
                              &request[n++]));
        for (int i = 0; i < 2; i++) {
            OK(MPI_Startall(n, request));
            OK(MPI_Waitall(n, request, MPI_STATUSES_IGNORE));
        }
        for (int i = 0; i < n; i++)
            OK(MPI_Request_free(&request[i]));
    }
    SAME(sum, total);
    SAME(word, round);
    for (int i = 0; i < world_size; i++)
        SAME(gathered[i], i + me + round);
}

/* The takers of all ranks send numbers to each other on one communicator and take whatever comes,
 * by every kind of receive. Each thread sends TAKEN messages to its successor's process and takes
 * as many from its own, whosever they are. As messages go out before any are taken, somebody always
 * finds one. */
enum { TAKEN = 6 };
static atomic_long sent_sum, taken_sum;

static void wildcards(int me, Random *random, int round)
{
    int value, flag, from = ring(-1);
    MPI_Request requests[TAKEN];
    static _Thread_local int out[TAKEN];
    (void)round;
    for (int i = 0; i < TAKEN; i++) {
        out[i] = random_below(random, 1000000);
        atomic_fetch_add(&sent_sum, out[i]);
        OK((random_below(random, 2) ? MPI_Isend : MPI_Issend)(&out[i], 1, MPI_INT, ring(1), 10 + me,
                                                              pool, &requests[i]));
    }
    for (int i = 0; i < TAKEN; i++) {
        MPI_Status status;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Request request;
        int source = random_below(random, 2) ? MPI_ANY_SOURCE : from;
        value = -1;
        switch (random_below(random, 5)) {
        case 0:
            OK(MPI_Recv(&value, 1, MPI_INT, source, MPI_ANY_TAG, pool, &status));
            break;
        case 1:
            OK(MPI_Mprobe(source, MPI_ANY_TAG, pool, &message, &status));
            OK(MPI_Mrecv(&value, 1, MPI_INT, &message, &status));
            break;
        case 2:
            for (flag = 0; !flag; sched_yield())
                OK(MPI_Improbe(source, MPI_ANY_TAG, pool, &flag, &message, &status));
            OK(MPI_Imrecv(&value, 1, MPI_INT, &message, &request));
            OK(MPI_Wait(&request, &status));
            break;
        case 3:
            OK(MPI_Irecv(&value, 1, MPI_INT, source, MPI_ANY_TAG, pool, &request));
            for (flag = 0; !flag; sched_yield())
                OK(MPI_Test(&request, &flag, &status));
            break;
        default: /* the probe tells nothing for sure, as another thread may take the message */
            OK(MPI_Iprobe(source, MPI_ANY_TAG, pool, &flag, MPI_STATUS_IGNORE));
            OK(MPI_Irecv(&value, 1, MPI_INT, source, MPI_ANY_TAG, pool, &request));
            OK(MPI_Wait(&request, &status));
        }
        SAME(status.MPI_SOURCE, from);
        CHECK(status.MPI_TAG >= 10 && status.MPI_TAG < 10 + takers, "tag %d came by a wildcard",
              status.MPI_TAG);
        atomic_fetch_add(&taken_sum, value);
    }
    OK(MPI_Waitall(TAKEN, requests, MPI_STATUSES_IGNORE));
}

/* Requests that one thread starts and another completes: each puts its own into a stash and tries
 * to complete somebody's out of it. While all play, nobody may block on one, as its message may
 * come from a thread that waits for this one; at the end they drain it. */
typedef struct {
    MPI_Request request;
    unsigned char *in, *out;
    int bytes;
    uint64_t key;
} Stashed;
static Stashed stash[STASH];
static int stashed;
static pthread_mutex_t stash_lock = PTHREAD_MUTEX_INITIALIZER;

static void put(Stashed one)
{
    pthread_mutex_lock(&stash_lock);
    if (stashed == STASH)
        FAIL("the stash is too small");
    else
        stash[stashed++] = one;
    pthread_mutex_unlock(&stash_lock);
}

static int take(Stashed *one, Random *random)
{
    pthread_mutex_lock(&stash_lock);
    int found = stashed > 0;
    if (found) {
        int i = random_below(random, stashed);
        *one = stash[i];
        stash[i] = stash[--stashed];
    }
    pthread_mutex_unlock(&stash_lock);
    return found;
}

static void finished(const Stashed *one)
{
    if (one->in)
        FILLED(one->in, (size_t)one->bytes, one->key);
    free(one->in);
    free(one->out);
}

static void pass_on(int me, Random *random, int round)
{
    Random common = random_from(seed * 31 + (uint64_t)(me * 4099 + round));
    int bytes = random_size(&common, MOST), tag = me * 4096 + round, flag;
    Stashed in = {.in = malloc((size_t)bytes + 1),
                  .bytes = bytes,
                  .key = (uint64_t)(tag + ring(-1) * 77)},
            other;
    Stashed out = {
        .out = malloc((size_t)bytes + 1), .bytes = bytes, .key = (uint64_t)(tag + world_rank * 77)};
    fill(out.out, (size_t)bytes, out.key);
    OK(MPI_Irecv(in.in, bytes, MPI_BYTE, ring(-1), tag, shared, &in.request));
    OK(MPI_Isend(out.out, bytes, MPI_BYTE, ring(1), tag, shared, &out.request));
    put(in);
    put(out);
    for (int tries = 0; tries < 4 && take(&other, random); tries++) {
        OK(MPI_Test(&other.request, &flag, MPI_STATUS_IGNORE));
        if (flag)
            finished(&other);
        else
            put(other);
    }
}

/* All threads at once wait for what is left, each for some. */
static void *drain(void *arg)
{
    int me = (int)(intptr_t)arg, index;
    Random mine = random_from(seed + (uint64_t)(world_rank * 64 + me));
    Stashed one[4];
    MPI_Request requests[4];
    for (;;) {
        int n = 0;
        while (n < 4 && take(&one[n], &mine))
            requests[n] = one[n].request, n++;
        if (n == 0)
            return NULL;
        for (int i = 0; i < n; i++) {
            OK(MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE));
            finished(&one[index]);
        }
    }
}

/* Communicators, groups, types and the like, made and freed while others use theirs. */
static void objects(int me, Random *random, int round)
{
    Random common = random_from(seed * 77 + (uint64_t)(me * 1013 + round));
    MPI_Comm copy[3], part;
    MPI_Request request[3];
    MPI_Datatype type;
    MPI_Info info;
    MPI_Group group;
    int flag, size = -1, key, how = random_below(&common, 4), *attribute;
    switch (how) {
    case 0:
        OK(MPI_Comm_dup(own[me], &copy[0]));
        OK(MPI_Barrier(copy[0]));
        OK(MPI_Comm_free(&copy[0]));
        break;
    case 1: /* several at once, used in another order */
        for (int i = 0; i < 3; i++)
            OK(MPI_Comm_idup(own[me], &copy[i], &request[i]));
        if (random_below(random, 2))
            for (flag = 0; !flag; sched_yield())
                OK(MPI_Testall(3, request, &flag, MPI_STATUSES_IGNORE));
        else
            OK(MPI_Waitall(3, request, MPI_STATUSES_IGNORE));
        for (int i = 2; i >= 0; i--) {
            int one = 1;
            OK(MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, copy[i]));
            SAME(one, world_size);
            OK(MPI_Comm_free(&copy[i]));
        }
        break;
    case 2:
        OK(MPI_Comm_split(own[me], world_rank % 2, -world_rank, &part));
        OK(MPI_Comm_size(part, &size));
        SAME(size, (world_size + 1 - world_rank % 2) / 2);
        OK(MPI_Barrier(part));
        OK(MPI_Comm_free(&part));
        break;
    default:
        OK(MPI_Comm_group(own[me], &group));
        OK(MPI_Comm_create_group(own[me], group, me, &part));
        OK(MPI_Barrier(part));
        OK(MPI_Comm_free(&part));
        OK(MPI_Group_free(&group));
    }
    OK(MPI_Type_vector(3 + me, 1, 2, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Type_size(type, &size));
    SAME(size, (3 + me) * (int)sizeof(int));
    OK(MPI_Type_free(&type));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "k", "v"));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Comm_set_attr(shared, key, &seed));
    OK(MPI_Comm_get_attr(shared, key, &attribute, &flag));
    CHECK(flag && (void *)attribute == (void *)&seed,
          "an attribute that this thread set is not there");
    OK(MPI_Comm_delete_attr(shared, key));
    OK(MPI_Comm_free_keyval(&key));
}

/* A receive cancelled while its message may be coming: either it is cancelled, and another receive
 * takes the message, or it is not. */
static void cancelled(int me, Random *random, int round)
{
    int out = round * 100 + me, in = -1, flag;
    MPI_Request receive, send;
    MPI_Status status;
    OK(MPI_Irecv(&in, 1, MPI_INT, ring(-1), 900, own[me], &receive));
    OK(MPI_Isend(&out, 1, MPI_INT, ring(1), 900, own[me], &send));
    if (random_below(random, 2))
        sched_yield();
    OK(MPI_Cancel(&receive));
    OK(MPI_Wait(&receive, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    if (flag) {
        SAME(in, -1);
        OK(MPI_Recv(&in, 1, MPI_INT, ring(-1), 900, own[me], MPI_STATUS_IGNORE));
    }
    SAME(in, round * 100 + me);
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
}

/* One thread waits, asleep, for what this process itself sends later, from another thread. */
static void own_process(int me, Random *random, int round)
{
    (void)random;
    int out = round, in = -1, partner = takers + ((me - takers) ^ 1);
    if (partner >= threads)
        return;
    if (me < partner)
        OK(MPI_Send(&out, 1, MPI_INT, 0, 100 + me, MPI_COMM_SELF));
    OK(MPI_Recv(&in, 1, MPI_INT, 0, 100 + partner, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    SAME(in, round);
    if (me > partner)
        OK(MPI_Ssend(&out, 1, MPI_INT, 0, 100 + me, MPI_COMM_SELF));
}

static Play *const plays[] = {ring_messages, collectives, pass_on, objects, cancelled, own_process};
enum { PLAYS = sizeof plays / sizeof *plays };

/* Thread `me` plays the same as its fellows on the other ranks, in the same order; threads of one
 * rank play different things. The takers do nothing else, so that whom they starve never waits for
 * another. */
static void *play(void *arg)
{
    int me = (int)(intptr_t)arg;
    Random mine = random_from(seed * 65537 + (uint64_t)(world_rank * 64 + me));
    for (int round = 0; round < rounds; round++) {
        int pair = (me - takers) / 2; /* own_process goes in pairs of threads */
        Random common = random_from(seed * 131 + (uint64_t)(round * 64 + pair));
        Play *what = me < takers ? wildcards : plays[random_below(&common, PLAYS)];
        what(me, &mine, round);
    }
    return NULL;
}

/* One partitioned message in a ring, made ready by all threads at once and watched by all of them.
 */
enum { PARTS = 64, PART = 50 };
static int partitions_out[PARTS * PART], partitions_in[PARTS * PART];
static MPI_Request partitioned[2];

static void *ready(void *arg)
{
    int me = (int)(intptr_t)arg, flag;
    for (int p = me; p < PARTS; p += threads) {
        for (int i = 0; i < PART; i++)
            partitions_out[p * PART + i] = world_rank * 100000 + p * PART + i + rounds;
        OK(MPI_Pready(p, partitioned[0]));
    }
    for (int p = PARTS - 1 - me; p >= 0; p -= threads) {
        for (flag = 0; !flag; sched_yield())
            OK(MPI_Parrived(partitioned[1], p, &flag));
        for (int i = 0; i < PART; i++)
            SAME(partitions_in[p * PART + i], ring(-1) * 100000 + p * PART + i + rounds);
    }
    return NULL;
}

static void run(void *(*body)(void *))
{
    pthread_t thread[MOST_THREADS];
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, body, (void *)(intptr_t)i);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
}

int main(int argc, char **argv)
{
    int provided = -1;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    check_know_world();
    SAME(provided, MPI_THREAD_MULTIPLE);
    if (argc > 1 && strcmp(argv[1], "fresh") == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = ((uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec + (uint64_t)getpid()) %
               1000000000u;
    } else if (argc > 1) {
        seed = strtoull(argv[1], NULL, 0);
    }
    OK(MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
    rounds = argc > 2 ? atoi(argv[2]) : 120;
    threads = argc > 3 ? atoi(argv[3]) : MOST_THREADS;
    takers = threads / 2;
    char name[64];
    snprintf(name, sizeof name, "seed %" PRIu64, seed);
    for (int i = 0; i < threads; i++) {
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &own[i]));
        OK(MPI_Comm_set_name(own[i], name)); /* a hang's report shows it */
    }
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &shared));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &pool));
    run(play);
    run(drain);
    long sums[2] = {sent_sum, taken_sum};
    OK(MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    SAME(sums[0], sums[1]);

    OK(MPI_Psend_init(partitions_out, PARTS, PART, MPI_INT, ring(1), 1, MPI_COMM_WORLD,
                      MPI_INFO_NULL, &partitioned[0]));
    OK(MPI_Precv_init(partitions_in, PARTS, PART, MPI_INT, ring(-1), 1, MPI_COMM_WORLD,
                      MPI_INFO_NULL, &partitioned[1]));
    for (rounds = 0; rounds < 10; rounds++) {
        memset(partitions_in, -1, sizeof partitions_in);
        OK(MPI_Startall(2, partitioned));
        run(ready);
        OK(MPI_Waitall(2, partitioned, MPI_STATUSES_IGNORE));
    }
    OK(MPI_Request_free(&partitioned[0]));
    OK(MPI_Request_free(&partitioned[1]));
    for (int i = 0; i < threads; i++)
        OK(MPI_Comm_free(&own[i]));
    OK(MPI_Comm_free(&shared));
    OK(MPI_Comm_free(&pool));
    if (check_failures)
        fprintf(stderr, "rank %d of %d: again with: thread_storm %" PRIu64 "\n", world_rank,
                world_size, seed);
    return check_end();
}

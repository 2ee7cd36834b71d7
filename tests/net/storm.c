/* Everything at once between random pairs, for a while: `storm SECONDS [MOST [WORD]]`, or `storm Nx
 * …` for N rounds, or `storm /FILE …` until there is that file. Each round is a plan that all ranks
 * compute alike: messages of 0 to MOST bytes (2 MiB), taken by name or by wildcards, before or
 * after they come, and collectives between them. All contents are checked. Rank 0 says "begun"
 * after the first round and "R rounds" at the end. With a WORD every message is filled with it
 * again and again. */
#include "../c/check.h"

#include <time.h>
#include <unistd.h>

enum { MESSAGES = 24 };

typedef struct {
    int from, to, bytes, synchronous, wild;
} Message;

static const char *word;

static void write_message(unsigned char *buffer, int bytes, uint64_t key)
{
    if (!word) {
        fill(buffer, (size_t)bytes, key);
        return;
    }
    for (int i = 0; i < bytes; i++)
        buffer[i] = (unsigned char)word[(size_t)i % strlen(word)];
}

static void read_message(const unsigned char *buffer, int bytes, uint64_t key, int from)
{
    int at = bytes;
    if (!word)
        at = (int)differs(buffer, (size_t)bytes, key);
    else
        for (int i = bytes; i-- > 0;)
            if (buffer[i] != (unsigned char)word[(size_t)i % strlen(word)])
                at = i;
    CHECK(at == bytes, "message %llu from rank %d: byte %d of %d is wrong", (unsigned long long)key,
          from, at, bytes);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Messages by name go on one communicator, those taken by wildcards on the other, where the tag is
 * the message's number. */
static void messages(Random *shared, int round, int most, MPI_Comm named, MPI_Comm wild)
{
    Message plan[MESSAGES];
    MPI_Request requests[2 * MESSAGES];
    unsigned char *buffers[2 * MESSAGES];
    int taken[2 * MESSAGES], used = 0, expected = 0;
    for (int i = 0; i < MESSAGES; i++)
        plan[i] = (Message){random_below(shared, world_size), random_below(shared, world_size),
                            random_size(shared, most), random_below(shared, 4) == 0,
                            random_below(shared, 3) == 0};
    int late = random_below(shared, 2); /* receives that come after the sends */
    OK(MPI_Barrier(wild));              /* or wildcards would take a later round's messages */
    for (int pass = 0; pass < 2; pass++) {
        int receive = pass == late;
        for (int i = 0; i < MESSAGES; i++) {
            const Message *m = &plan[i];
            uint64_t key = (uint64_t)round * MESSAGES + (uint64_t)i;
            if (receive && m->to == world_rank && m->wild)
                expected++;
            if (receive && m->to == world_rank && !m->wild) {
                buffers[used] = malloc((size_t)m->bytes + 1);
                taken[used] = i;
                OK(MPI_Irecv(buffers[used], m->bytes, MPI_BYTE, m->from, i, named,
                             &requests[used]));
                used++;
            }
            if (!receive && m->from == world_rank) {
                buffers[used] = malloc((size_t)m->bytes + 1);
                taken[used] = -1;
                write_message(buffers[used], m->bytes, key);
                OK((m->synchronous ? MPI_Issend : MPI_Isend)(buffers[used], m->bytes, MPI_BYTE,
                                                             m->to, i, m->wild ? wild : named,
                                                             &requests[used]));
                used++;
            }
        }
    }
    for (; expected > 0; expected--) {
        MPI_Status status;
        MPI_Message message;
        int bytes = -1;
        OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, wild, &message, &status));
        OK(MPI_Get_count(&status, MPI_BYTE, &bytes));
        int i = status.MPI_TAG;
        CHECK(i >= 0 && i < MESSAGES && plan[i].wild && plan[i].to == world_rank,
              "round %d: a message nobody sent, tag %d", round, i);
        if (i < 0 || i >= MESSAGES)
            MPI_Abort(MPI_COMM_WORLD, 3);
        SAME(status.MPI_SOURCE, plan[i].from);
        SAME(bytes, plan[i].bytes);
        unsigned char *buffer = malloc((size_t)bytes + 1);
        OK(MPI_Mrecv(buffer, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE));
        read_message(buffer, bytes, (uint64_t)round * MESSAGES + (uint64_t)i, plan[i].from);
        free(buffer);
    }
    OK(MPI_Waitall(used, requests, MPI_STATUSES_IGNORE));
    for (int k = 0; k < used; k++) {
        if (taken[k] >= 0)
            read_message(buffers[k], plan[taken[k]].bytes,
                         (uint64_t)round * MESSAGES + (uint64_t)taken[k], plan[taken[k]].from);
        free(buffers[k]);
    }
}

static void collectives(Random *shared, int round)
{
    int count = random_size(shared, 1 << 16), root = random_below(shared, world_size);
    int *mine = malloc(((size_t)count * (size_t)world_size + 1) * sizeof *mine);
    int *all = malloc(((size_t)count * (size_t)world_size + 1) * sizeof *all);
    switch (random_below(shared, 5)) {
    case 0:
        for (int i = 0; i < count; i++)
            mine[i] = world_rank * 3 + i + round;
        OK(MPI_Allreduce(mine, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        for (int i = 0; i < count; i++)
            if (all[i] != 3 * world_size * (world_size - 1) / 2 + world_size * (i + round)) {
                FAIL("round %d: sum %d of %d is wrong", round, i, count);
                break;
            }
        break;
    case 1:
        if (world_rank == root)
            fill(mine, (size_t)count * sizeof *mine, (uint64_t)round);
        OK(MPI_Bcast(mine, count, MPI_INT, root, MPI_COMM_WORLD));
        FILLED(mine, (size_t)count * sizeof *mine, (uint64_t)round);
        break;
    case 2:
        fill(mine, (size_t)count * sizeof *mine, (uint64_t)(round * 64 + world_rank));
        OK(MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD));
        for (int r = 0; r < world_size; r++)
            FILLED(all + (size_t)r * (size_t)count, (size_t)count * sizeof *all,
                   (uint64_t)(round * 64 + r));
        break;
    case 3:
        for (int r = 0; r < world_size; r++)
            fill(mine + (size_t)r * (size_t)count, (size_t)count * sizeof *mine,
                 (uint64_t)((round * 64 + world_rank) * 64 + r));
        OK(MPI_Alltoall(mine, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD));
        for (int r = 0; r < world_size; r++)
            FILLED(all + (size_t)r * (size_t)count, (size_t)count * sizeof *all,
                   (uint64_t)((round * 64 + r) * 64 + world_rank));
        break;
    default:
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    free(mine);
    free(all);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    int rounds = argc > 1 && strchr(argv[1], 'x') ? atoi(argv[1]) : 0;
    const char *file = argc > 1 && argv[1][0] == '/' ? argv[1] : NULL;
    int most = argc > 2 ? atoi(argv[2]) : 2 << 20, round = 0, on = 1;
    word = argc > 3 ? argv[3] : NULL;
    MPI_Comm wild;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &wild));
    Random shared = random_from(77);
    double end = now() + seconds;
    while (on) {
        messages(&shared, round, most, MPI_COMM_WORLD, wild);
        collectives(&shared, round);
        if (round++ == 0 && world_rank == 0) {
            puts("begun");
            fflush(stdout);
        }
        on = rounds ? round < rounds : file ? access(file, F_OK) != 0 : now() < end;
        OK(MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD));
    }
    if (world_rank == 0)
        printf("%d rounds\n", round);
    OK(MPI_Comm_free(&wild));
    return check_end();
}

/* MPI_Alltoall among so many ranks that the blocks of one fill several slots of the memory that a
 * node's ranks share: block sizes around each limit, in place, of a derived datatype, between other
 * collectives of which some let a root run ahead, with ranks that come late, on communicators in
 * another order. Every byte depends on sender, receiver, call and place, so stale data show. */
// ranks: 9 16
// time: 60
#include "check.h"

#include <unistd.h>

enum { SLOT = 2048, PHASES = 4 }; /* POST_MAX_BYTES, RUN_MAX_PHASES */

static unsigned char cell(int from, int to, int call, int at)
{
    return (unsigned char)(from * 7 + to * 13 + call * 5 + at * 3 + at / 256);
}

static int calls;

/* Contiguous blocks, or in place. */
static void blocks(MPI_Comm comm, int bytes, int in_place)
{
    int rank, size, call = ++calls, wrong = 0;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    size_t all = (size_t)size * (size_t)bytes;
    unsigned char *out = malloc(all), *in = calloc(all, 1), *from = in_place ? in : out;
    for (size_t i = 0; i < all; i++)
        from[i] = cell(rank, (int)i / bytes, call, (int)i % bytes);
    if (call % 5 == rank % 5)
        usleep(200); /* a rank that comes late */
    OK(MPI_Alltoall(in_place ? MPI_IN_PLACE : out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, comm));
    for (size_t i = 0; i < all; i++)
        wrong += in[i] != cell((int)i / bytes, rank, call, (int)i % bytes);
    CHECK(!wrong, "%d of %zu bytes are wrong: blocks of %d, in place %d", wrong, all, bytes,
          in_place);
    free(out);
    free(in);
}

/* Every second element is sent; what comes has no gaps. */
static void with_gaps(MPI_Comm comm, int count)
{
    int rank, size, call = ++calls;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    MPI_Datatype gaps;
    OK(MPI_Type_vector(1, 1, 1, MPI_LONG, &gaps));
    MPI_Datatype wide;
    OK(MPI_Type_create_resized(gaps, 0, 2 * sizeof(long), &wide));
    OK(MPI_Type_commit(&wide));
    long *out = malloc(sizeof(long) * 2 * (size_t)(size * count));
    long *in = calloc((size_t)(size * count), sizeof(long));
    for (int i = 0; i < 2 * size * count; i++)
        out[i] = i % 2 ? -1 : call * 1000000L + rank * 10000 + i / 2;
    OK(MPI_Alltoall(out, count, wide, in, count, MPI_LONG, comm));
    for (int i = 0; i < size * count; i++) {
        long wanted = call * 1000000L + i / count * 10000 + rank * count + i % count;
        CHECK(in[i] == wanted, "element %d is %ld, should be %ld", i, in[i], wanted);
    }
    free(out);
    free(in);
    OK(MPI_Type_free(&gaps));
    OK(MPI_Type_free(&wide));
}

/* A root that runs ahead as far as it can, or another collective. */
static void between(MPI_Comm comm, int round)
{
    int rank, size;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    long sum, value = rank + round;
    switch (round % 4) {
    case 0:
        OK(MPI_Barrier(comm));
        break;
    case 1:
        for (int i = 0; i < round % 12; i++) {
            long news = rank == round % size ? round * 100L + i : -1;
            OK(MPI_Bcast(&news, 1, MPI_LONG, round % size, comm));
            SAME(news, round * 100L + i);
        }
        break;
    case 2:
        OK(MPI_Allreduce(&value, &sum, 1, MPI_LONG, MPI_SUM, comm));
        SAME(sum, (long)size * round + size * (size - 1L) / 2);
        break;
    default:
        OK(MPI_Scan(&value, &sum, 1, MPI_LONG, MPI_SUM, comm));
        SAME(sum, (rank + 1L) * round + rank * (rank + 1L) / 2);
    }
}

static void all_sizes(MPI_Comm comm)
{
    int size;
    OK(MPI_Comm_size(comm, &size));
    for (int slots = 1; slots <= PHASES + 1; slots++) {
        /* The longest block of which the ranks' blocks fill this many slots, and one byte more. */
        int bytes = SLOT / ((size + slots - 1) / slots);
        for (int more = -1; more <= 1; more++) {
            blocks(comm, bytes + more, (slots + more) % 2);
            between(comm, slots * 5 + more);
        }
        with_gaps(comm, bytes / 8 + 1);
    }
    /* Twice and more in a row, of equal and unequal numbers of parts. */
    for (int round = 0; round < 30; round++) {
        blocks(comm, SLOT / size * (1 + round % 7), round % 3 == 0);
        if (round % 5 == 0)
            between(comm, round);
    }
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    all_sizes(MPI_COMM_WORLD);
    MPI_Comm reversed;
    OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &reversed));
    for (int round = 0; round < 10; round++) {
        blocks(reversed, 300 + round, round % 2);
        blocks(MPI_COMM_WORLD, 400, 0);
        between(reversed, round);
    }
    OK(MPI_Comm_free(&reversed));
    return check_end();
}

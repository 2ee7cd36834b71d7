/* Many small non-blocking and persistent collectives under way at once, more than a board has room
 * for. Blocking ones on the same communicator come between, in the order that all ranks keep, and
 * messages that are received from any rank. Sizes lie around the limits of boards. Each rank
 * completes in an order of its own, some ranks late. Persistent operations are started in another
 * order on each rank. Communicators are freed while operations are under way. */
// ranks: 2 3 5 8
// time: 120
#include "check.h"

#include <unistd.h>

enum { AT_ONCE = 40, KINDS = 7, LIMIT = 2048, PERSISTENT = 12, MESSAGES = 5 };

/* One operation: its kind, its length in bytes, and its buffers, of which there are as many for
 * each rank. */
typedef struct {
    int kind, len, root, persistent;
    unsigned char *out, *in, *want;
} Operation;

static int rank, size;
static MPI_Comm comm;

static unsigned char byte(int of, int key, int at)
{
    return (unsigned char)(of * 31 + key * 7 + at);
}

/* How many bytes an operation receives. */
static int received(const Operation *o)
{
    switch (o->kind) {
    case 0:
        return 0;
    case 3:
    case 4:
        return o->len * size;
    default:
        return o->len;
    }
}

static void prepare(Operation *o, int key)
{
    int all = received(o);
    for (int i = 0; i < o->len * size; i++)
        o->out[i] = byte(rank, key, i);
    memset(o->in, 0xee, (size_t)o->len * (size_t)size + 1);
    memset(o->want, 0xee, (size_t)o->len * (size_t)size + 1);
    for (int i = 0; i < all; i++)
        switch (o->kind) {
        case 1:
            o->want[i] = byte(o->root, key, i);
            break;
        case 3:
            o->want[i] = byte(i / o->len, key, i % o->len);
            break;
        case 4:
            o->want[i] = byte(i / o->len, key, rank * o->len + i % o->len);
            break;
        default:
            o->want[i] = 0;
            for (int r = 0; r < (o->kind == 6 ? rank + 1 : size); r++)
                o->want[i] ^= byte(r, key, o->kind == 5 ? rank * o->len + i : i);
        }
    if (o->kind == 1 && rank == o->root)
        memcpy(o->in, o->out, (size_t)o->len);
}

static void make(Operation *o, int kind, int len, int root)
{
    size_t room = (size_t)len * (size_t)size + 1;
    *o = (Operation){.kind = kind, .len = len, .root = root};
    o->out = malloc(room), o->in = malloc(room), o->want = malloc(room);
}

static void drop(Operation *o)
{
    free(o->out), free(o->in), free(o->want);
}

static void start(Operation *o, MPI_Request *request)
{
    switch (o->kind) {
    case 0:
        OK(MPI_Ibarrier(comm, request));
        break;
    case 1:
        OK(MPI_Ibcast(o->in, o->len, MPI_BYTE, o->root, comm, request));
        break;
    case 2:
        OK(MPI_Iallreduce(o->out, o->in, o->len, MPI_BYTE, MPI_BXOR, comm, request));
        break;
    case 3:
        OK(MPI_Iallgather(o->out, o->len, MPI_BYTE, o->in, o->len, MPI_BYTE, comm, request));
        break;
    case 4:
        OK(MPI_Ialltoall(o->out, o->len, MPI_BYTE, o->in, o->len, MPI_BYTE, comm, request));
        break;
    case 5:
        OK(MPI_Ireduce_scatter_block(o->out, o->in, o->len, MPI_BYTE, MPI_BXOR, comm, request));
        break;
    default:
        OK(MPI_Iscan(o->out, o->in, o->len, MPI_BYTE, MPI_BXOR, comm, request));
    }
}

static void init(Operation *o, MPI_Request *request)
{
    MPI_Info none = MPI_INFO_NULL;
    switch (o->kind) {
    case 0:
        OK(MPI_Barrier_init(comm, none, request));
        break;
    case 1:
        OK(MPI_Bcast_init(o->in, o->len, MPI_BYTE, o->root, comm, none, request));
        break;
    case 2:
        OK(MPI_Allreduce_init(o->out, o->in, o->len, MPI_BYTE, MPI_BXOR, comm, none, request));
        break;
    case 3:
        OK(MPI_Allgather_init(o->out, o->len, MPI_BYTE, o->in, o->len, MPI_BYTE, comm, none,
                              request));
        break;
    case 4:
        OK(MPI_Alltoall_init(o->out, o->len, MPI_BYTE, o->in, o->len, MPI_BYTE, comm, none,
                             request));
        break;
    case 5:
        OK(MPI_Reduce_scatter_block_init(o->out, o->in, o->len, MPI_BYTE, MPI_BXOR, comm, none,
                                         request));
        break;
    default:
        OK(MPI_Scan_init(o->out, o->in, o->len, MPI_BYTE, MPI_BXOR, comm, none, request));
    }
}

static void check(const Operation *o, int turn, int which)
{
    int all = received(o);
    /* One byte behind the data must have been left alone. */
    for (int i = 0; i <= all; i++)
        if (o->in[i] != o->want[i] && !(o->kind == 1 && i == all)) {
            FAIL("turn %d, operation %d (kind %d, %d bytes, root %d), byte %d: %d, not %d", turn,
                 which, o->kind, o->len, o->root, i, o->in[i], o->want[i]);
            return;
        }
}

/* Completes all, in an order of this rank's own, in one of several ways. */
static void complete(MPI_Request *requests, int n, int turn)
{
    int flag = 0, index;
    switch ((turn + rank) % 5) {
    case 0:
        OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
        break;
    case 1:
        for (int k = n - 1; k >= 0; k--)
            OK(MPI_Wait(&requests[k], MPI_STATUS_IGNORE));
        break;
    case 2:
        for (int k = 0; k < n; k++)
            OK(MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE));
        break;
    case 3:
        while (!flag)
            OK(MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE));
        break;
    default:
        for (int k = 0; k < n; k++)
            for (flag = 0; !flag;)
                OK(MPI_Test(&requests[(k + turn) % n], &flag, MPI_STATUS_IGNORE));
    }
}

static int length_of(int turn, int k)
{
    static const int lengths[] = {8, 1, 57, 256, 257, LIMIT, LIMIT + 1, 5000};
    return lengths[(turn * 3 + k) % 8];
}

/* Messages around the ring, received from any rank. */
static void send_some(char *text, MPI_Request *requests)
{
    for (int k = 0; k < MESSAGES; k++) {
        OK(MPI_Irecv(&text[k], 1, MPI_CHAR, MPI_ANY_SOURCE, k, comm, &requests[k]));
        char one = (char)('a' + k);
        OK(MPI_Send(&one, 1, MPI_CHAR, (rank + 1) % size, k, comm));
    }
}

static void blocking_ones(int turn)
{
    long sum = -1, mine = rank + turn;
    OK(MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm));
    SAME(sum, size * (size - 1L) / 2 + (long)size * turn);
    long from = rank == turn % size ? turn : -1;
    OK(MPI_Bcast(&from, 1, MPI_LONG, turn % size, comm));
    SAME(from, turn);
    if (turn % 3 == 0)
        OK(MPI_Barrier(comm));
}

/* Starts many, with blocking collectives and messages between, and completes them late. */
static void started(int turn)
{
    static Operation all[AT_ONCE];
    static MPI_Request requests[AT_ONCE], messages[MESSAGES];
    char text[MESSAGES] = {0};
    int n = turn % 4 == 0 ? AT_ONCE : 1 + turn % 12;
    for (int k = 0; k < n; k++) {
        /* One kind in turns of their own, so that many of a root's run ahead. */
        int kind = turn % 5 == 1 ? 1 : (turn + k) % KINDS;
        make(&all[k], kind, length_of(turn, k), turn % 2 ? turn % size : (turn + k) % size);
        prepare(&all[k], turn + k);
        start(&all[k], &requests[k]);
        if (k == n / 2)
            send_some(text, messages);
        if (k % 9 == 4)
            blocking_ones(turn + k);
        if (turn % 6 == 2 && k == rank)
            usleep(300);
    }
    if (turn % 7 == rank)
        usleep(1000);
    if (turn % 2)
        OK(MPI_Waitall(MESSAGES, messages, MPI_STATUSES_IGNORE));
    complete(requests, n, turn);
    OK(MPI_Waitall(MESSAGES, messages, MPI_STATUSES_IGNORE));
    for (int k = 0; k < MESSAGES; k++)
        SAME(text[k], 'a' + k);
    for (int k = 0; k < n; k++) {
        SAME(requests[k] == MPI_REQUEST_NULL, 1);
        check(&all[k], turn, k);
        drop(&all[k]);
    }
}

/* Persistent operations, of which there are more than parts of a board, started again and again,
 * on each rank in another order. */
static void persistent(int turns)
{
    Operation all[PERSISTENT], other;
    MPI_Request requests[PERSISTENT], one;
    for (int k = 0; k < PERSISTENT; k++) {
        make(&all[k], k % KINDS, length_of(0, k), k % size);
        init(&all[k], &requests[k]);
    }
    for (int turn = 0; turn < turns; turn++) {
        for (int k = 0; k < PERSISTENT; k++) {
            int which = (k * 5 + rank + turn) % PERSISTENT;
            prepare(&all[which], turn + which);
            OK(MPI_Start(&requests[which]));
        }
        make(&other, turn % KINDS, 16, 0);
        prepare(&other, turn);
        start(&other, &one);
        blocking_ones(turn);
        if (turn % 5 == rank)
            usleep(500);
        complete(requests, PERSISTENT, turn);
        OK(MPI_Wait(&one, MPI_STATUS_IGNORE));
        check(&other, turn, -1);
        drop(&other);
        for (int k = 0; k < PERSISTENT; k++) {
            SAME(requests[k] == MPI_REQUEST_NULL, 0);
            check(&all[k], turn, k);
        }
    }
    for (int k = 0; k < PERSISTENT; k++) {
        OK(MPI_Request_free(&requests[k]));
        drop(&all[k]);
    }
}

/* A communicator is freed while its collectives are under way. Many have their turn, so that boards
 * are used again. */
static void freed(void)
{
    for (int turn = 0; turn < 30; turn++) {
        Operation all[9];
        MPI_Request requests[9];
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        for (int k = 0; k < 9; k++) {
            make(&all[k], (turn + k) % KINDS, 24, k % size);
            prepare(&all[k], turn + k);
            start(&all[k], &requests[k]);
        }
        OK(MPI_Comm_free(&comm));
        complete(requests, 9, turn);
        for (int k = 0; k < 9; k++) {
            check(&all[k], turn, k);
            drop(&all[k]);
        }
    }
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    comm = MPI_COMM_WORLD;
    for (int turn = 0; turn < 120; turn++)
        started(turn);
    persistent(60);
    freed();
    comm = MPI_COMM_WORLD;
    persistent(10);
    return check_end();
}

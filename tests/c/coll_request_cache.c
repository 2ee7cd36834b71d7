/* The request cache: the same non-blocking collective is called many times. The calls differ in
 * their buffers, several are active at once, and they are completed in any order and in several
 * ways. Other calls come in between. Communicators are freed while they may cache requests. Each
 * call must have its own result. */
// ranks: 1 2 3 4
#include "check.h"

enum { AT_ONCE = 11, LEN = 300 };

static int sent[AT_ONCE][LEN], got[AT_ONCE][LEN];
static long wide[AT_ONCE][LEN];
static int always_sent[2], always_got[2], always_sum[2];

static void prepare(int rank, int turn)
{
    for (int k = 0; k < AT_ONCE; k++)
        for (int i = 0; i < LEN; i++) {
            sent[k][i] = turn * 7 + k * 1000 + rank * 3 + i;
            got[k][i] = -1;
            wide[k][i] = sent[k][i];
        }
}

/* What element i of the k-th is on rank r. */
static int value(int r, int turn, int k, int i)
{
    return turn * 7 + k * 1000 + r * 3 + i;
}

static void complete(MPI_Request *requests, int n, int turn)
{
    int index, flag = 0;
    switch (turn % 4) {
    case 0:
        MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
        break;
    case 1:
        for (int k = n - 1; k >= 0; k--)
            MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
        break;
    case 2:
        for (int k = 0; k < n; k++)
            MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE);
        break;
    default:
        while (!flag)
            MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE);
    }
    for (int k = 0; k < n; k++)
        CHECK(requests[k] == MPI_REQUEST_NULL, "request %d of turn %d", k, turn);
}

/* The same on a ring: neighbours, of whom both may be one rank, or this one. Persistent ones, which
 * start the request of their last start again, are under way meanwhile. */
static void ring_turn(MPI_Comm ring, MPI_Request persistent[2], int turn)
{
    static MPI_Request requests[AT_ONCE];
    int rank, size, n = 1 + turn % AT_ONCE, each = turn % 3 == 0 ? 1 : LEN / 2;
    MPI_Comm_rank(ring, &rank);
    MPI_Comm_size(ring, &size);
    int down = (rank + size - 1) % size, up = (rank + 1) % size;
    prepare(rank, turn);
    for (int i = 0; i < 2; i++) {
        always_sent[i] = value(rank, turn, 0, i);
        always_got[i] = always_sum[i] = -1;
    }
    MPI_Startall(2, persistent);
    for (int k = 0; k < n; k++)
        if (k % 2)
            MPI_Ineighbor_allgather(sent[k], each, MPI_INT, got[k], each, MPI_INT, ring,
                                    &requests[k]);
        else
            MPI_Ineighbor_alltoall(sent[k], each, MPI_INT, got[k], each, MPI_INT, ring,
                                   &requests[k]);
    complete(requests, n, turn);
    MPI_Waitall(2, persistent, MPI_STATUSES_IGNORE);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < each; i++)
            CHECK(got[k][i] == value(down, turn, k, k % 2 ? i : each + i) &&
                      got[k][each + i] == value(up, turn, k, i),
                  "turn %d, neighbours %d, element %d: %d, %d", turn, k, i, got[k][i],
                  got[k][each + i]);
    SAME(always_got[0], value(down, turn, 0, 1));
    SAME(always_got[1], value(up, turn, 0, 0));
    for (int i = 0; i < 2; i++)
        SAME(always_sum[i], size * value(0, turn, 0, i) + 3 * size * (size - 1) / 2);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Request requests[AT_ONCE];
    check_begin(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm comm = MPI_COMM_WORLD, ring;
    MPI_Request persistent[2];
    MPI_Cart_create(comm, 1, &size, (int[]){1}, 0, &ring);
    MPI_Neighbor_alltoall_init(always_sent, 1, MPI_INT, always_got, 1, MPI_INT, ring, MPI_INFO_NULL,
                               &persistent[0]);
    MPI_Allreduce_init(always_sent, always_sum, 2, MPI_INT, MPI_SUM, ring, MPI_INFO_NULL,
                       &persistent[1]);
    for (int turn = 0; turn < 200; turn++) {
        if (turn % 20 == 10)
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        int n = 1 + turn % AT_ONCE, len = turn % 3 == 0 ? 1 : LEN;
        prepare(rank, turn);
        for (int k = 0; k < n; k++)
            MPI_Iallreduce(sent[k], got[k], len, MPI_INT, k % 2 ? MPI_MAX : MPI_SUM, comm,
                           &requests[k]);
        complete(requests, n, turn);
        for (int k = 0; k < n; k++)
            for (int i = 0; i < len; i++) {
                int sum = 0;
                for (int r = 0; r < size; r++)
                    sum += value(r, turn, k, i);
                CHECK(got[k][i] == (k % 2 ? value(size - 1, turn, k, i) : sum),
                      "turn %d, reduction %d, element %d: %d", turn, k, i, got[k][i]);
            }

        for (int k = 0; k < n;
             k++) /* the root changes, and the type, whose length is the same for every second */
            MPI_Ibcast(k % 2 ? (void *)wide[k] : sent[k], k % 2 ? len : 2 * (len / 2),
                       k % 2 ? MPI_LONG : MPI_INT, k % size, comm, &requests[k]);
        complete(requests, n, turn + 1);
        for (int k = 0; k < n; k++)
            for (int i = 0; i < (k % 2 ? len : 2 * (len / 2)); i++)
                CHECK((k % 2 ? wide[k][i] : sent[k][i]) == value(k % size, turn, k, i),
                      "turn %d, bcast %d, element %d", turn, k, i);

        MPI_Ibarrier(comm, &requests[0]);
        MPI_Ibarrier(comm, &requests[1]);
        complete(requests, 2, turn + 2);

        int each = LEN / size < len ? LEN / size : len;
        prepare(rank, turn);
        for (int k = 0; k < 3;
             k++) /* one while the one before is under way, one that is in place */
            k == 2
                ? MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INT,
                                 memcpy(got[k] + rank * each, sent[k], sizeof(int) * each) ? got[k]
                                                                                           : NULL,
                                 each, MPI_INT, comm, &requests[k])
                : MPI_Iallgather(sent[k], each, MPI_INT, got[k], each, MPI_INT, comm, &requests[k]);
        complete(requests, 3, turn + 3);
        for (int k = 0; k < 3; k++)
            for (int r = 0; r < size; r++)
                for (int i = 0; i < each; i++)
                    CHECK(got[k][r * each + i] == value(r, turn, k, i),
                          "turn %d, allgather %d, element %d of rank %d", turn, k, i, r);

        if (turn % 20 == 19) { /* one is under way while the communicator is freed */
            MPI_Iallreduce(sent[0], got[0], LEN, MPI_INT, MPI_SUM, comm, &requests[0]);
            MPI_Comm_free(&comm);
            comm = MPI_COMM_WORLD;
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            CHECK(got[0][LEN - 1] == size * value(0, turn, 0, LEN - 1) + 3 * size * (size - 1) / 2,
                  "turn %d: %d", turn, got[0][LEN - 1]);
        }
        ring_turn(ring, persistent, turn);
    }
    MPI_Comm_free(&ring);
    MPI_Request_free(&persistent[0]);
    MPI_Request_free(&persistent[1]);
    return check_end();
}

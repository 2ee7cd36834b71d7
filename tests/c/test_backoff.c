/* Test backoff: ranks that share one core call MPI_Test in a loop instead of waiting. A rank whose
 * tests fail yields its core soon. So an answer takes some tens of tests, and not as many as fit
 * the time slice of the system. All ranks bind themselves to one core when MPI runs. Ranks know of
 * each other's core by shared memory. Over other transports the answers are checked and the tests
 * are not counted. */
// ranks: 2 4
// machines: no
#include "one_core.h"

/* A system takes the core away after 1 ms or more, which is 10000 questions. */
enum { ROUNDS = 40, MANY = 4000 };

static int peer, got;

static int by_test(MPI_Request *request)
{
    int flag;
    OK(MPI_Test(request, &flag, MPI_STATUS_IGNORE));
    return flag;
}

static int by_testall(MPI_Request *request)
{
    int flag;
    OK(MPI_Testall(1, request, &flag, MPI_STATUSES_IGNORE));
    return flag;
}

static int by_testany(MPI_Request *request)
{
    int index, flag;
    OK(MPI_Testany(1, request, &index, &flag, MPI_STATUS_IGNORE));
    return flag;
}

static int by_testsome(MPI_Request *request)
{
    int count, index;
    OK(MPI_Testsome(1, request, &count, &index, MPI_STATUSES_IGNORE));
    return count == 1;
}

static int by_get_status(MPI_Request *request)
{
    int flag;
    OK(MPI_Request_get_status(*request, &flag, MPI_STATUS_IGNORE));
    if (flag)
        OK(MPI_Wait(request, MPI_STATUS_IGNORE));
    return flag;
}

static int by_iprobe(UNUSED MPI_Request *request)
{
    int flag;
    OK(MPI_Iprobe(peer, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    if (flag)
        OK(MPI_Recv(&got, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return flag;
}

static int by_improbe(UNUSED MPI_Request *request)
{
    int flag;
    MPI_Message message;
    OK(MPI_Improbe(peer, 1, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE));
    if (flag)
        OK(MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    return flag;
}

static const struct {
    const char *call;
    int (*answered)(MPI_Request *request);
    int posts; /* the receive is posted before it is asked for */
} WAYS[] = {{"MPI_Test", by_test, 1},
            {"MPI_Testall", by_testall, 1},
            {"MPI_Testany", by_testany, 1},
            {"MPI_Testsome", by_testsome, 1},
            {"MPI_Request_get_status", by_get_status, 1},
            {"MPI_Iprobe", by_iprobe, 0},
            {"MPI_Improbe", by_improbe, 0}};

/* Receives the peer's message; returns how many questions were in vain. */
static long receive(size_t way, int value)
{
    MPI_Request request = MPI_REQUEST_NULL;
    long vain = 0;
    got = -1;
    if (WAYS[way].posts)
        OK(MPI_Irecv(&got, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, &request));
    while (!WAYS[way].answered(&request))
        vain++;
    SAME(got, value);
    return vain;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    int counts = meet_on_one_core() && !getenv("FERRY_TRANSPORTS");
    peer = world_rank ^ 1;
    /* The first time by MPI_Test does not count: until each has waited on the core once, and for a
     * millisecond after, the other does not know. */
    for (size_t turn = 0; turn <= sizeof WAYS / sizeof *WAYS; turn++) {
        size_t way = turn == 0 ? 0 : turn - 1;
        long vain = 0;
        for (int i = 0; i < ROUNDS; i++) {
            if (world_rank > peer)
                vain += receive(way, i);
            OK(MPI_Send(&i, 1, MPI_INT, peer, 1, MPI_COMM_WORLD));
            if (world_rank < peer)
                vain += receive(way, i);
        }
        CHECK(!counts || turn == 0 || vain < (long)ROUNDS * MANY,
              "%s: %ld questions in vain for %d messages, on a core that the ranks share",
              WAYS[way].call, vain, ROUNDS);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    return check_end();
}

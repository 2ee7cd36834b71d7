// ranks: 1 2 3
/* Sends that are complete before their call returns. They may all have the same handle. They are
 * completed by every call of MPI, alone and together with operations that take longer. */
#include "check.h"

enum { MANY = 5, TAG = 7, GO = 8, LARGE = 3000000 };
static int value[MANY], got[MANY], next, last;
static char *large;

static void start(MPI_Request *sends, MPI_Request *receives)
{
    for (int i = 0; i < MANY; i++) {
        value[i] = world_rank * 100 + i;
        OK(MPI_Irecv(&got[i], 1, MPI_INT, last, TAG, MPI_COMM_WORLD, &receives[i]));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < MANY; i++)
        OK(MPI_Isend(&value[i], 1, MPI_INT, next, TAG, MPI_COMM_WORLD, &sends[i]));
}

static void end(MPI_Request *sends, MPI_Request *receives)
{
    OK(MPI_Waitall(MANY, receives, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++) {
        SAME(got[i], last * 100 + i);
        CHECK(sends[i] == MPI_REQUEST_NULL, "request %d is not null", i);
    }
}

static void is_empty(MPI_Status *status)
{
    int count = -1, cancelled = -1;
    OK(MPI_Get_count(status, MPI_INT, &count));
    OK(MPI_Test_cancelled(status, &cancelled));
    SAME(count, 0);
    SAME(cancelled, 0);
}

static void one_by_one(void)
{
    MPI_Request sends[MANY], receives[MANY];
    MPI_Status status;
    int flag = 0;
    start(sends, receives);
    OK(MPI_Wait(&sends[0], &status));
    is_empty(&status);
    while (!flag)
        OK(MPI_Test(&sends[1], &flag, &status));
    is_empty(&status);
    flag = 0;
    while (!flag)
        OK(MPI_Request_get_status(sends[2], &flag, &status));
    is_empty(&status);
    CHECK(sends[2] != MPI_REQUEST_NULL, "asking for its status has completed the request");
    MPI_Request same = MPI_Request_fromint(MPI_Request_toint(sends[2]));
    CHECK(same == sends[2], "there and back by an int it is another request");
    OK(MPI_Request_free(&sends[2]));
    OK(MPI_Cancel(&sends[3]));
    OK(MPI_Wait(&sends[3], &status));
    is_empty(&status);
    OK(MPI_Wait(&sends[4], MPI_STATUS_IGNORE));
    OK(MPI_Wait(&sends[4], &status));
    is_empty(&status);
    end(sends, receives);
}

/* Each place is told once, and none when all have been. */
static void any_and_some(int some)
{
    MPI_Request sends[MANY + 1], receives[MANY];
    MPI_Status statuses[MANY + 1];
    int places[MANY + 1], told = 0, seen[MANY + 1] = {0};
    start(sends + 1, receives);
    sends[0] = MPI_REQUEST_NULL;
    for (;;) {
        int n = 1, flag = 1;
        switch (some) {
        case 0:
            OK(MPI_Waitany(MANY + 1, sends, places, statuses));
            break;
        case 1:
            OK(MPI_Testany(MANY + 1, sends, places, &flag, statuses));
            break;
        case 2:
            OK(MPI_Waitsome(MANY + 1, sends, &n, places, statuses));
            break;
        default:
            OK(MPI_Testsome(MANY + 1, sends, &n, places, statuses));
            break;
        }
        if (!flag || n == 0)
            continue;
        if (n == MPI_UNDEFINED || places[0] == MPI_UNDEFINED)
            break;
        for (int i = 0; i < n; i++) {
            is_empty(&statuses[i]);
            seen[places[i]]++;
            CHECK(sends[places[i]] == MPI_REQUEST_NULL, "place %d is told, and is not null",
                  places[i]);
        }
        told += n;
        if (told > MANY)
            break;
    }
    SAME(told, MANY);
    SAME(seen[0], 0);
    end(sends + 1, receives);
}

/* Beside a large message, which is under way until its receive is there. */
static void beside_a_large_one(int test)
{
    MPI_Request sends[MANY + 1], receives[MANY + 1];
    MPI_Status statuses[MANY + 1];
    int flag = 0;
    memset(large, world_rank + 1, LARGE);
    OK(MPI_Isend(large, LARGE, MPI_BYTE, next, GO, MPI_COMM_WORLD, &sends[MANY]));
    start(sends, receives);
    if (world_size > 1) {
        OK(MPI_Testall(MANY + 1, sends, &flag, statuses));
        for (int i = 0; i < MANY && !flag; i++)
            CHECK(sends[i] != MPI_REQUEST_NULL, "not all have ended, and request %d is null", i);
    }
    OK(MPI_Irecv(large + LARGE, LARGE, MPI_BYTE, last, GO, MPI_COMM_WORLD, &receives[MANY]));
    while (test && !flag)
        OK(MPI_Testall(MANY + 1, sends, &flag, statuses));
    if (!test)
        OK(MPI_Waitall(MANY + 1, sends, statuses));
    for (int i = 0; i <= MANY; i++)
        is_empty(&statuses[i]);
    OK(MPI_Wait(&receives[MANY], MPI_STATUS_IGNORE));
    for (int i = 0; i < LARGE; i += LARGE / 3 - 1)
        SAME(large[LARGE + i], last + 1);
    end(sends, receives);
}

static void not_persistent(void)
{
    MPI_Request request;
    OK(MPI_Isend(NULL, 0, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &request));
    CLASS(MPI_Start(&request), MPI_ERR_REQUEST);
    MPI_Request copy = request;
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Isend(NULL, 0, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &request));
    CHECK(copy != MPI_REQUEST_NULL && request != MPI_REQUEST_NULL, "a send has a null handle");
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    next = (world_rank + 1) % world_size;
    last = (world_rank + world_size - 1) % world_size;
    large = malloc(2 * LARGE);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    for (int round = 0; round < 20; round++) {
        one_by_one();
        for (int some = 0; some < 4; some++)
            any_and_some(some);
        beside_a_large_one(round % 2);
        not_persistent();
    }
    free(large);
    return check_end();
}

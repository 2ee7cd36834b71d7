/* Arrays of requests and statuses of all lengths: each request is converted, waited for and made
 * null, and each status is that of its message, by all calls that take such arrays. */
#include "check.h"
#include <stdlib.h>

enum { LONGEST = 300 };

static MPI_Request requests[LONGEST];
static MPI_Status statuses[LONGEST];
static int values[LONGEST], indices[LONGEST], seen[LONGEST];

/* Receives from itself into the first `n` values; every third request stays null. */
static int start(int n)
{
    int active = 0;
    for (int i = 0; i < n; i++) {
        values[i] = -1;
        seen[i] = 0;
        requests[i] = MPI_REQUEST_NULL;
        if (i % 3 == 2)
            continue;
        MPI_Irecv(&values[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]);
        active++;
    }
    return active;
}

static void send_all(int n)
{
    for (int i = 0; i < n; i++)
        if (i % 3 != 2)
            MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_SELF);
}

/* Message `i` has come, its request is null and its status says so. */
static void is_done(int i, const MPI_Status *status)
{
    int count = -1;
    MPI_Get_count(status, MPI_INT, &count);
    if (i % 3 == 2)
        CHECK(status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && count == 0);
    else
        CHECK(status->MPI_SOURCE == 0 && status->MPI_TAG == i && count == 1 && values[i] == i);
    CHECK(requests[i] == MPI_REQUEST_NULL);
}

static void all(int n)
{
    start(n);
    send_all(n);
    MPI_Waitall(n, requests, statuses);
    for (int i = 0; i < n; i++)
        is_done(i, &statuses[i]);

    start(n);
    int flag = 1;
    MPI_Testall(n, requests, &flag, statuses);
    CHECK(!flag);
    for (int i = 0; i < n; i++)
        CHECK((requests[i] == MPI_REQUEST_NULL) == (i % 3 == 2));
    send_all(n);
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < n; i++)
        CHECK(requests[i] == MPI_REQUEST_NULL && values[i] == (i % 3 == 2 ? -1 : i));
}

static void some(int n, int may_block)
{
    int left = start(n);
    send_all(n);
    while (left > 0) {
        int done = 0;
        if (may_block)
            MPI_Waitsome(n, requests, &done, indices, statuses);
        else
            MPI_Testsome(n, requests, &done, indices, statuses);
        CHECK(done != MPI_UNDEFINED && done <= left);
        for (int k = 0; k < done; k++) {
            CHECK(!seen[indices[k]]++);
            is_done(indices[k], &statuses[k]);
        }
        left -= done;
    }
}

static void any(int n)
{
    int left = start(n);
    send_all(n);
    while (left-- > 0) {
        int index = -1;
        MPI_Waitany(n, requests, &index, &statuses[0]);
        CHECK(index >= 0 && index < n && !seen[index]++);
        is_done(index, &statuses[0]);
    }
    int index = -1;
    MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE);
    CHECK(index == MPI_UNDEFINED);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    static const int lengths[] = {1, 31, 32, 33, 127, 128, 129, LONGEST};
    for (unsigned k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        all(lengths[k]);
        some(lengths[k], 1);
        some(lengths[k], 0);
        any(lengths[k]);
    }
    MPI_Finalize();
    return wrong;
}

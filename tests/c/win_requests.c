/* Operations with a request (MPI 5.0 section 12.3.6): waited for one by one, tested, and mixed with
 * requests of other kinds, all before the lock is given back. */
#include "windows.h"

#include <sched.h>

enum { SLOTS = 8, ROUNDS = 20, LARGE = 120000 };

static void each_kind(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 8 * SLOTS * world_size, 8, MPI_INFO_NULL);
    int target = ring(1), slot = 8 * SLOTS * world_rank;
    OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win));
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Status status;
        long out[SLOTS], in[SLOTS], got[SLOTS];
        for (int i = 0; i < SLOTS; i++)
            out[i] = round * 100 + i, in[i] = got[i] = -1;
        OK(MPI_Rput(out, SLOTS, MPI_LONG, target, place(&w, target, slot), SLOTS, MPI_LONG, w.win,
                    &request));
        OK(MPI_Wait(&request, &status));
        CHECK(request == MPI_REQUEST_NULL, "a request that was waited for is still there");
        for (int i = 0; i < SLOTS; i++)
            out[i] = i; /* the origin's buffer is free */
        OK(MPI_Win_flush(target, w.win));
        OK(MPI_Rget(in, SLOTS, MPI_LONG, target, place(&w, target, slot), SLOTS, MPI_LONG, w.win,
                    &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < SLOTS; i++)
            SAME(in[i], round * 100 + i);
        OK(MPI_Raccumulate(out, SLOTS, MPI_LONG, target, place(&w, target, slot), SLOTS, MPI_LONG,
                           MPI_SUM, w.win, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < SLOTS; i++)
            out[i] = 1000;
        OK(MPI_Rget_accumulate(out, SLOTS, MPI_LONG, got, SLOTS, MPI_LONG, target,
                               place(&w, target, slot), SLOTS, MPI_LONG, MPI_SUM, w.win, &request));
        for (int flag = 0; !flag; sched_yield())
            OK(MPI_Test(&request, &flag, &status));
        CHECK(request == MPI_REQUEST_NULL, "a request that was tested is still there");
        for (int i = 0; i < SLOTS; i++)
            SAME(got[i], round * 100 + 2 * i);
        OK(MPI_Rget_accumulate(NULL, 0, MPI_LONG, in, SLOTS, MPI_LONG, target,
                               place(&w, target, slot), SLOTS, MPI_LONG, MPI_NO_OP, w.win,
                               &request));
        OK(MPI_Waitall(1, &request, MPI_STATUSES_IGNORE));
        for (int i = 0; i < SLOTS; i++)
            SAME(in[i], round * 100 + 2 * i + 1000);
        OK(MPI_Win_flush(target, w.win));
    }
    OK(MPI_Win_unlock(target, w.win));
    window_free(&w);
}

/* Many requests at once, beside sends, receives and a collective, ended by waitall, waitsome and
 * waitany. */
static void mixed(int flavor)
{
    enum { MANY = 24 };
    Window w = window_make(flavor, MPI_COMM_WORLD, 8 * MANY * world_size, 8, MPI_INFO_NULL);
    OK(MPI_Win_lock_all(0, w.win));
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request requests[MANY + 3];
        long out[MANY], message = round * 10 + world_rank, received = -1, sum = -1, in[MANY];
        int n = 0;
        for (int i = 0; i < MANY; i++) {
            int target = (world_rank + i) % world_size;
            MPI_Aint at = place(&w, target, 8 * (MANY * world_rank + i));
            out[i] = round * 1000 + i;
            OK(MPI_Rput(&out[i], 1, MPI_LONG, target, at, 1, MPI_LONG, w.win, &requests[n++]));
            if (i == 5)
                OK(MPI_Irecv(&received, 1, MPI_LONG, ring(-1), 3, MPI_COMM_WORLD, &requests[n++]));
            if (i == 9)
                OK(MPI_Iallreduce(&message, &sum, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD,
                                  &requests[n++]));
            if (i == 12)
                OK(MPI_Isend(&message, 1, MPI_LONG, ring(1), 3, MPI_COMM_WORLD, &requests[n++]));
        }
        int index = -1, done = 0, indices[MANY + 3];
        if (round % 3 == 0) {
            OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
        } else if (round % 3 == 1) {
            for (int i = 0; i < n; i++) {
                OK(MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE));
                CHECK(index >= 0 && index < n, "MPI_Waitany gave %d", index);
            }
        } else {
            for (int left = n; left > 0; left -= done) {
                OK(MPI_Waitsome(n, requests, &done, indices, MPI_STATUSES_IGNORE));
                CHECK(done > 0 && done <= left, "MPI_Waitsome gave %d of %d", done, left);
                if (done <= 0)
                    break;
            }
        }
        for (int i = 0; i < n; i++)
            CHECK(requests[i] == MPI_REQUEST_NULL, "request %d is left", i);
        SAME(received, round * 10 + ring(-1));
        SAME(sum, round * 10 + world_size - 1);
        OK(MPI_Win_flush_all(w.win));
        for (int i = 0; i < MANY; i++) {
            int target = (world_rank + i) % world_size;
            MPI_Aint at = place(&w, target, 8 * (MANY * world_rank + i));
            in[i] = -1;
            OK(MPI_Rget(&in[i], 1, MPI_LONG, target, at, 1, MPI_LONG, w.win, &requests[i]));
        }
        for (int flag = 0; !flag; sched_yield())
            OK(MPI_Testall(MANY, requests, &flag, MPI_STATUSES_IGNORE));
        for (int i = 0; i < MANY; i++)
            SAME(in[i], round * 1000 + i);
    }
    OK(MPI_Win_unlock_all(w.win));
    window_free(&w);
}

/* Large ones, several under way, the last of them ended by the unlock alone. */
static void large(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 2 * LARGE, 1, MPI_INFO_NULL);
    unsigned char *out = malloc(2 * LARGE), *in = malloc(LARGE);
    int target = ring(1);
    MPI_Request requests[3];
    fill(out, LARGE, (uint64_t)world_rank);
    fill(out + LARGE, LARGE, 100 + (uint64_t)world_rank);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win));
    OK(MPI_Rput(out, LARGE, MPI_BYTE, target, place(&w, target, 0), LARGE, MPI_BYTE, w.win,
                &requests[0]));
    OK(MPI_Raccumulate(out + LARGE, LARGE, MPI_BYTE, target, place(&w, target, LARGE), LARGE,
                       MPI_BYTE, MPI_BXOR, w.win, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    memset(out, 0, 2 * LARGE);
    OK(MPI_Win_flush(target, w.win));
    OK(MPI_Rget(in, LARGE, MPI_BYTE, target, place(&w, target, 0), LARGE, MPI_BYTE, w.win,
                &requests[0]));
    OK(MPI_Rget(out, LARGE, MPI_BYTE, target, place(&w, target, LARGE), LARGE, MPI_BYTE, w.win,
                &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Win_unlock(target, w.win));
    FILLED(in, LARGE, (uint64_t)world_rank);
    FILLED(out, LARGE, 100 + (uint64_t)world_rank);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    /* The unlock completes the operation; the request is waited for after it. */
    fill(out, LARGE, 200 + (uint64_t)world_rank);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win));
    OK(MPI_Rput(out, LARGE, MPI_BYTE, target, place(&w, target, 0), LARGE, MPI_BYTE, w.win,
                &requests[2]));
    OK(MPI_Win_unlock(target, w.win));
    OK(MPI_Wait(&requests[2], MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, world_rank, 0, w.win));
    FILLED(w.base, LARGE, 200 + (uint64_t)ring(-1));
    OK(MPI_Win_unlock(world_rank, w.win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
    free(out), free(in);
}

/* The status of a request, one without effect, one that is freed, and the forms with large counts.
 */
static void forms(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 8 * 8 * world_size, 8, MPI_INFO_NULL);
    int target = ring(1), flag = 0;
    MPI_Request requests[4];
    MPI_Aint at = place(&w, target, 64 * world_rank);
    long out[4] = {1, 2, 3, 4}, in[4] = {0}, got[4] = {0};
    OK(MPI_Win_lock_all(0, w.win));
    OK(MPI_Rput_c(out, 4, MPI_LONG, target, at, 4, MPI_LONG, w.win, &requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Win_flush(target, w.win));
    OK(MPI_Raccumulate_c(out, 4, MPI_LONG, target, at, 4, MPI_LONG, MPI_SUM, w.win, &requests[0]));
    OK(MPI_Rget_accumulate_c(out, 4, MPI_LONG, got, 4, MPI_LONG, target, at, 4, MPI_LONG, MPI_SUM,
                             w.win, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Win_flush(target, w.win));
    OK(MPI_Rget_c(in, 4, MPI_LONG, target, at, 4, MPI_LONG, w.win, &requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    for (int i = 0; i < 4; i++) {
        SAME(got[i], 2 * (i + 1));
        SAME(in[i], 3 * (i + 1));
    }
    /* None of them moves anything. */
    OK(MPI_Rput(out, 0, MPI_LONG, target, at, 0, MPI_LONG, w.win, &requests[0]));
    OK(MPI_Rget(in, 0, MPI_LONG, target, at, 0, MPI_LONG, w.win, &requests[1]));
    OK(MPI_Raccumulate(out, 0, MPI_LONG, target, at, 0, MPI_LONG, MPI_SUM, w.win, &requests[2]));
    OK(MPI_Rput(out, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, w.win, &requests[3]));
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    /* One may look at it and wait afterwards. */
    OK(MPI_Rget(in, 4, MPI_LONG, target, at, 4, MPI_LONG, w.win, &requests[0]));
    while (!flag) {
        OK(MPI_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE));
        sched_yield();
    }
    SAME(in[3], 12);
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Rput(out, 4, MPI_LONG, target, at, 4, MPI_LONG, w.win, &requests[0]));
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Win_flush(target, w.win));
    OK(MPI_Get(in, 4, MPI_LONG, target, at, 4, MPI_LONG, w.win));
    OK(MPI_Win_unlock_all(w.win));
    SAME(in[3], 4);
    window_free(&w);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    for (int flavor = 0; flavor < FLAVORS; flavor++) {
        if (!has_flavor(flavor))
            continue;
        each_kind(flavor);
        mixed(flavor);
        large(flavor);
        forms(flavor);
    }
    return check_end();
}

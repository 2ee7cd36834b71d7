/* What is stored in a window after an epoch is not what an MPI_Get of that epoch fetches, however
 * long its data are on their way (MPI 5.0 section 12.7). Rank 1 gets; rank 0 stores as soon as it
 * may. */
// ranks: 2
#include "windows.h"

/* More than a connection holds. */
enum { BYTES = 1 << 20, ROUNDS = 2, MARK = BYTES, WINDOW = BYTES + 8 };

enum { GROUPS, LOCKS, FENCES, ENDS };

static unsigned char *got;

/* Rank 0's part of an epoch: it returns when the window is rank 0's again. */
static void expose(const Window *w, int end, MPI_Group other)
{
    if (end == GROUPS) {
        OK(MPI_Win_post(other, 0, w->win));
        OK(MPI_Win_wait(w->win));
    } else if (end == FENCES) {
        OK(MPI_Win_fence(0, w->win));
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    } else {
        /* Rank 1 sets the mark in the epoch of its get. */
        for (int over = 0; !over;) {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w->win));
            over = w->base[MARK];
            if (over)
                memset(w->base, 255, BYTES);
            OK(MPI_Win_unlock(0, w->win));
        }
    }
}

static void fetch(const Window *w, int end, MPI_Group other)
{
    static const unsigned char mark = 1;
    if (end == GROUPS)
        OK(MPI_Win_start(other, 0, w->win));
    else if (end == FENCES)
        OK(MPI_Win_fence(0, w->win));
    else
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w->win));
    OK(MPI_Get(got, BYTES, MPI_BYTE, 0, place(w, 0, 0), BYTES, MPI_BYTE, w->win));
    OK(MPI_Put(&mark, 1, MPI_BYTE, 0, place(w, 0, MARK), 1, MPI_BYTE, w->win));
    if (end == GROUPS)
        OK(MPI_Win_complete(w->win));
    else if (end == FENCES)
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    else
        OK(MPI_Win_unlock(0, w->win));
}

static void gets(int flavor, int end)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, WINDOW, 1, MPI_INFO_NULL);
    MPI_Group world, other;
    int rank = !world_rank;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 1, &rank, &other));
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t seed = (uint64_t)(flavor * 100 + end * 10 + round);
        if (world_rank == 0) {
            fill(w.base, BYTES, seed);
            w.base[MARK] = 0;
            OK(MPI_Win_sync(w.win));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (world_rank == 0) {
            expose(&w, end, other);
            memset(w.base, 255, BYTES);
            OK(MPI_Win_sync(w.win));
        } else {
            memset(got, 0, BYTES);
            fetch(&w, end, other);
            FILLED(got, BYTES, seed);
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&other));
    window_free(&w);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    got = malloc(BYTES);
    for (int flavor = 0; flavor < FLAVORS; flavor++)
        for (int end = 0; end < ENDS && has_flavor(flavor); end++)
            gets(flavor, end);
    free(got);
    return check_end();
}

/* Who waits for another rank's operation on its own memory, in epochs with MPI_MODE_NOCHECK, sees
 * it: such epochs make progress, though they take no lock. */
// ranks: 2 3
#include "windows.h"

enum { ROUNDS = 10, SECONDS_MAX = 20 };

/* One atomic operation in an epoch of its own. */
static int swap(Window *w, int rank, int value, MPI_Op op, int all)
{
    int found = -1;
    if (all)
        OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, w->win));
    else
        OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, MPI_MODE_NOCHECK, w->win));
    OK(MPI_Fetch_and_op(&value, &found, MPI_INT, rank, place(w, rank, 0), op, w->win));
    if (all)
        OK(MPI_Win_unlock_all(w->win));
    else
        OK(MPI_Win_unlock(rank, w->win));
    return found;
}

static void wait_for_previous(int flavor)
{
    int next = (world_rank + 1) % world_size;
    int previous = (world_rank + world_size - 1) % world_size;
    Window w = window_make(flavor, MPI_COMM_WORLD, sizeof(int), 1, MPI_INFO_NULL);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int round = 1; round <= ROUNDS; round++) {
        int all = round % 2, value = 0;
        double end = MPI_Wtime() + SECONDS_MAX;
        /* Rank 0 begins when its own memory has been looked at for a while. */
        if (world_rank == 0) {
            for (double begin = MPI_Wtime(); MPI_Wtime() < begin + 0.002;)
                swap(&w, world_rank, 0, MPI_NO_OP, all);
            swap(&w, next, 100 * round, MPI_REPLACE, all);
        }
        while (value != 100 * round + previous && MPI_Wtime() < end)
            value = swap(&w, world_rank, 0, MPI_NO_OP, all);
        if (value != 100 * round + previous)
            FAIL("%s, round %d: found %d", flavor_names[flavor], round, value);
        if (world_rank != 0)
            swap(&w, next, 100 * round + world_rank, MPI_REPLACE, all);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    for (int flavor = 0; flavor < FLAVORS; flavor++)
        if (has_flavor(flavor))
            wait_for_previous(flavor);
    return check_end();
}

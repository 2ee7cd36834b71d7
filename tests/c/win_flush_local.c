/* What was put is at the target soon after MPI_Win_flush_local, with no other call for it: ranks
 * wait for each other's small puts by looking at their own memory. */
// ranks: 2 3
#include "windows.h"

enum { ROUNDS = 20, SECONDS_MAX = 20 };

static void flush_local(MPI_Win win, int rank, int all)
{
    if (all)
        OK(MPI_Win_flush_local_all(win));
    else
        OK(MPI_Win_flush_local(rank, win));
}

static void puts_arrive(int flavor)
{
    int next = (world_rank + 1) % world_size;
    int previous = (world_rank + world_size - 1) % world_size;
    Window w = window_make(flavor, MPI_COMM_WORLD, sizeof(int), 1, MPI_INFO_NULL);
    OK(MPI_Win_lock_all(0, w.win));
    for (int round = 1; round <= ROUNDS; round++) {
        int all = round % 2, out = 100 * round + world_rank, value = 0;
        MPI_Aint there = place(&w, next, 0), here = place(&w, world_rank, 0);
        OK(MPI_Put(&out, 1, MPI_INT, next, there, 1, MPI_INT, w.win));
        flush_local(w.win, next, all);
        double end = MPI_Wtime() + SECONDS_MAX;
        while (value != 100 * round + previous && MPI_Wtime() < end) {
            OK(MPI_Fetch_and_op(NULL, &value, MPI_INT, world_rank, here, MPI_NO_OP, w.win));
            flush_local(w.win, world_rank, all);
        }
        if (value != 100 * round + previous)
            FAIL("%s, round %d: found %d", flavor_names[flavor], round, value);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Win_unlock_all(w.win));
    window_free(&w);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    for (int flavor = 0; flavor < FLAVORS; flavor++)
        if (has_flavor(flavor))
            puts_arrive(flavor);
    return check_end();
}

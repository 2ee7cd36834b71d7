/* Many threads of all other ranks do short operations on the memory of one rank, which waits in
 * MPI. Where each rank has a core, it polls there and does in created windows what the origins
 * leave with it; they come at the same time, are refused, and go other ways. None of that may lose
 * an update, do one twice, or mix two up. */
// ranks: 2 3 4
#include "windows.h"

#include <pthread.h>

enum { THREADS = 3, ROUNDS = 200, TARGET = 1, COUNTER, SWAPPED, SUM, OWN };

static Window w;
static long swaps[THREADS];

static MPI_Aint at(int word)
{
    return place(&w, TARGET, 8 * word);
}

static void *originate(void *arg)
{
    int me = (int)(intptr_t)arg, own = OWN + world_rank * THREADS + me;
    long one = 1, last = -1, old = -1, seen = 0;
    for (int round = 0; round < ROUNDS; round++) {
        long value = (long)own << 32 | round, got = -1;
        double half = 0.5;
        OK(MPI_Put(&value, 1, MPI_LONG, TARGET, at(own), 1, MPI_LONG, w.win));
        OK(MPI_Fetch_and_op(&one, &old, MPI_LONG, TARGET, at(COUNTER), MPI_SUM, w.win));
        OK(MPI_Win_flush(TARGET, w.win));
        CHECK(old > last, "the counter gave %ld after %ld", old, last);
        last = old;
        OK(MPI_Get(&got, 1, MPI_LONG, TARGET, at(own), 1, MPI_LONG, w.win));
        OK(MPI_Accumulate(&half, 1, MPI_DOUBLE, TARGET, at(SUM), 1, MPI_DOUBLE, MPI_SUM, w.win));
        OK(MPI_Win_flush(TARGET, w.win));
        SAME(got, value);
        value = seen + 1;
        OK(MPI_Compare_and_swap(&value, &seen, &got, MPI_LONG, TARGET, at(SWAPPED), w.win));
        OK(MPI_Win_flush(TARGET, w.win));
        swaps[me] += got == seen;
        seen = got == seen ? value : got;
    }
    return NULL;
}

static void run(int flavor)
{
    const int words = OWN + world_size * THREADS, origins = world_size - 1;
    const long updates = (long)origins * THREADS * ROUNDS;
    long mine = 0, all = 0;
    w = window_make(flavor, MPI_COMM_WORLD, 8 * (MPI_Aint)words, 8, MPI_INFO_NULL);
    memset(swaps, 0, sizeof swaps);
    OK(MPI_Win_lock_all(0, w.win));
    if (world_rank != TARGET) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, originate, (void *)(intptr_t)i);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            mine += swaps[i];
        }
    }
    OK(MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Win_unlock_all(w.win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == TARGET) {
        const long *base = (long *)w.base;
        double sum;
        memcpy(&sum, &base[SUM], sizeof sum);
        SAME(base[COUNTER], updates);
        SAME(base[SWAPPED], all);
        CHECK(all >= ROUNDS, "%ld swaps of %ld tries", all, updates);
        CHECK(sum == 0.5 * (double)updates, "the sum is %g of %ld halves", sum, updates);
        for (int rank = 0; rank < world_size; rank++)
            for (int i = 0; i < THREADS && rank != TARGET; i++) {
                int own = OWN + rank * THREADS + i;
                SAME(base[own], (long)own << 32 | (ROUNDS - 1));
            }
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
}

int main(int argc, char **argv)
{
    int provided = -1;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    check_know_world();
    SAME(provided, MPI_THREAD_MULTIPLE);
    for (int flavor = 0; flavor < FLAVORS; flavor++)
        if (has_flavor(flavor))
            run(flavor);
    return check_end();
}

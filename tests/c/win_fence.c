/* Epochs between fences (MPI 5.0 section 12.5.1), with each assertion that is true. */
#include "windows.h"

enum { SLOTS = 16, LARGE = 300000, ROUNDS = 12 };

static long said(int round, int rank, int at)
{
    return round * 100000L + rank * 100 + at;
}

/* Everybody puts to everybody, each to its own slots, and gets what was put the round before. */
static void all_to_all(int flavor, int asserts)
{
    Window w =
        window_make(flavor, MPI_COMM_WORLD, (MPI_Aint)world_size * SLOTS * 8, 8, MPI_INFO_NULL);
    long *slots = (long *)w.base, *out = malloc((size_t)w.bytes), *in = malloc((size_t)w.bytes);
    OK(MPI_Win_fence(asserts ? MPI_MODE_NOPRECEDE : 0, w.win));
    for (int round = 0; round < ROUNDS; round++) {
        for (int rank = 0; rank < world_size; rank++)
            for (int i = 0; i < SLOTS; i++)
                out[rank * SLOTS + i] = said(round, world_rank, i) + rank;
        for (int i = 0; i < world_size; i++) {
            int target = (world_rank + i) % world_size;
            OK(MPI_Put(out + target * SLOTS, SLOTS, MPI_LONG, target,
                       place(&w, target, world_rank * SLOTS * 8), SLOTS, MPI_LONG, w.win));
        }
        OK(MPI_Win_fence(asserts ? MPI_MODE_NOPUT : 0, w.win));
        for (int rank = 0; rank < world_size; rank++)
            for (int i = 0; i < SLOTS; i++)
                SAME(slots[rank * SLOTS + i], said(round, rank, i) + world_rank);
        for (int target = 0; target < world_size; target++)
            OK(MPI_Get(in + target * SLOTS, SLOTS, MPI_LONG, target,
                       place(&w, target, world_rank * SLOTS * 8), SLOTS, MPI_LONG, w.win));
        int last = round == ROUNDS - 1;
        OK(MPI_Win_fence(!asserts ? 0 : MPI_MODE_NOSTORE | (last ? MPI_MODE_NOSUCCEED : 0), w.win));
        for (int i = 0; i < world_size * SLOTS; i++)
            SAME(in[i], out[i]);
    }
    if (!asserts)
        OK(MPI_Win_fence(0, w.win));
    window_free(&w);
    free(out), free(in);
}

/* What the target stores before a fence is got after it, what is put is loaded after the next. */
static void stores_and_loads(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 3 * 8, 8, MPI_INFO_NULL);
    long *mine = (long *)w.base, got = -1, put;
    for (int round = 0; round < ROUNDS; round++) {
        mine[0] = said(round, world_rank, 0);
        OK(MPI_Win_fence(round ? 0 : MPI_MODE_NOPRECEDE, w.win));
        put = said(round, world_rank, 1);
        OK(MPI_Get(&got, 1, MPI_LONG, ring(1), place(&w, ring(1), 0), 1, MPI_LONG, w.win));
        OK(MPI_Put(&put, 1, MPI_LONG, ring(1), place(&w, ring(1), 8), 1, MPI_LONG, w.win));
        OK(MPI_Accumulate(&put, 1, MPI_LONG, ring(1), place(&w, ring(1), 16), 1, MPI_LONG, MPI_MAX,
                          w.win));
        OK(MPI_Win_fence(0, w.win));
        SAME(got, said(round, ring(1), 0));
        SAME(mine[1], said(round, ring(-1), 1));
        SAME(mine[2], said(round, ring(-1), 1));
    }
    window_free(&w);
}

/* Puts, gets and sums that are larger than any packet, several of them to one target. */
static void large(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 3 * LARGE * 4, 1, MPI_INFO_NULL);
    unsigned char *out = malloc(LARGE * 4), *in = malloc(LARGE * 4);
    int *numbers = malloc(LARGE * 4);
    int third = LARGE * 4, cut = third / 3;
    fill(out, (size_t)third, (uint64_t)world_rank);
    fill(w.base, (size_t)third, 1000 + (uint64_t)world_rank);
    for (int i = 0; i < LARGE; i++)
        numbers[i] = world_rank * 3 + i;
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Put(out, cut, MPI_BYTE, ring(1), place(&w, ring(1), third), cut, MPI_BYTE, w.win));
    OK(MPI_Put(out + cut, third - cut, MPI_BYTE, ring(1), place(&w, ring(1), third + cut),
               third - cut, MPI_BYTE, w.win));
    OK(MPI_Get(in, third, MPI_BYTE, ring(-1), place(&w, ring(-1), 0), third, MPI_BYTE, w.win));
    OK(MPI_Accumulate(numbers, LARGE, MPI_INT, 0, place(&w, 0, 2 * third), LARGE, MPI_INT, MPI_SUM,
                      w.win));
    OK(MPI_Win_fence(0, w.win));
    FILLED(w.base + third, (size_t)third, (uint64_t)ring(-1));
    FILLED(in, (size_t)third, 1000 + (uint64_t)ring(-1));
    if (world_rank == 0) {
        int *sums = (int *)(w.base + 2 * third), wrong = 0;
        for (int i = 0; i < LARGE; i++)
            wrong += sums[i] != 3 * world_size * (world_size - 1) / 2 + i * world_size;
        SAME(wrong, 0);
    }
    OK(MPI_Win_fence(0, w.win));
    window_free(&w);
    free(out), free(in), free(numbers);
}

/* Epochs in which only some ranks do something, and some in which nobody does. */
static void some_are_silent(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 8 * 8, 8, MPI_INFO_NULL);
    Random shared = random_from(12);
    long *mine = (long *)w.base, expected[8] = {0}, values[64];
    OK(MPI_Win_fence(0, w.win));
    for (int round = 0; round < 40; round++) {
        int origin = random_below(&shared, world_size), target = random_below(&shared, world_size);
        int slot = random_below(&shared, 8), times = random_below(&shared, 5);
        for (int i = 0; i < times; i++) {
            values[i] = round + i;
            if (origin == world_rank)
                OK(MPI_Accumulate(&values[i], 1, MPI_LONG, target, place(&w, target, 8 * slot), 1,
                                  MPI_LONG, MPI_SUM, w.win));
            if (target == world_rank)
                expected[slot] += values[i];
        }
        OK(MPI_Win_fence(0, w.win));
        for (int i = 0; i < 8; i++)
            SAME(mine[i], expected[i]);
        OK(MPI_Win_fence(0, w.win)); /* the sums of the next round come after these loads */
    }
    OK(MPI_Win_fence(0, w.win));
    window_free(&w);
}

/* The window's own memory is the origin's buffer, and a rank's target is itself. */
static void within_the_window(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 4 * 8, 8, MPI_INFO_NULL);
    long *mine = (long *)w.base;
    mine[0] = 10 + world_rank;
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
    OK(MPI_Put(mine, 1, MPI_LONG, ring(1), place(&w, ring(1), 8), 1, MPI_LONG, w.win));
    OK(MPI_Put(mine, 1, MPI_LONG, world_rank, place(&w, world_rank, 16), 1, MPI_LONG, w.win));
    OK(MPI_Get(mine + 3, 1, MPI_LONG, ring(-1), place(&w, ring(-1), 0), 1, MPI_LONG, w.win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    SAME(mine[1], 10 + ring(-1));
    SAME(mine[2], 10 + world_rank);
    SAME(mine[3], 10 + ring(-1));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
}

/* Fences, locks, and post and start in turn on one window. */
static void beside_others(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 3 * 8, 8, MPI_INFO_NULL);
    long *mine = (long *)w.base, value;
    MPI_Group all, next, previous;
    OK(MPI_Win_get_group(w.win, &all));
    OK(MPI_Group_incl(all, 1, (int[]){ring(1)}, &next));
    OK(MPI_Group_incl(all, 1, (int[]){ring(-1)}, &previous));
    for (int round = 0; round < 6; round++) {
        value = said(round, world_rank, 0);
        OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
        OK(MPI_Put(&value, 1, MPI_LONG, ring(1), place(&w, ring(1), 0), 1, MPI_LONG, w.win));
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
        SAME(mine[0], said(round, ring(-1), 0));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, ring(1), 0, w.win));
        OK(MPI_Put(&value, 1, MPI_LONG, ring(1), place(&w, ring(1), 8), 1, MPI_LONG, w.win));
        OK(MPI_Win_unlock(ring(1), w.win));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        SAME(mine[1], said(round, ring(-1), 0));
        OK(MPI_Win_post(previous, 0, w.win));
        OK(MPI_Win_start(next, 0, w.win));
        OK(MPI_Put(&value, 1, MPI_LONG, ring(1), place(&w, ring(1), 16), 1, MPI_LONG, w.win));
        OK(MPI_Win_complete(w.win));
        OK(MPI_Win_wait(w.win));
        SAME(mine[2], said(round, ring(-1), 0));
    }
    OK(MPI_Group_free(&all));
    OK(MPI_Group_free(&next));
    OK(MPI_Group_free(&previous));
    window_free(&w);
}

/* What one rank puts before a fence, a third one finds behind it, however soon it is there: by a
 * get, by accumulates, by a lock. What it puts itself stays. */
static void before_and_behind(int flavor)
{
    enum { ROUNDS = 60 };
    Window w = window_make(flavor, MPI_COMM_WORLD, 4 * 8, 8, MPI_INFO_NULL);
    int owner = ring(1), reader = ring(2);
    long *mine = (long *)w.base;
    for (int round = 0; round < ROUNDS; round++) {
        long value[3], got = -1, is = -1, add = 1, none = 0, last = round % 4;
        for (int at = 0; at < 3; at++)
            value[at] = said(round, world_rank, at);
        OK(MPI_Win_fence(0, w.win));
        OK(MPI_Put(value, 3, MPI_LONG, owner, place(&w, owner, 0), 3, MPI_LONG, w.win));
        int locks = round % 3 == 2;
        OK(MPI_Win_fence(locks ? MPI_MODE_NOSUCCEED : 0, w.win));
        /* Now this rank comes to the memory where its left neighbour's right one has put. */
        int from = ring(1);
        if (locks)
            OK(MPI_Win_lock(MPI_LOCK_SHARED, reader, 0, w.win));
        OK(MPI_Fetch_and_op(&add, &got, MPI_LONG, reader, place(&w, reader, 0), MPI_SUM, w.win));
        if (round % 2)
            OK(MPI_Get(&is, 1, MPI_LONG, reader, place(&w, reader, 8), 1, MPI_LONG, w.win));
        else
            OK(MPI_Compare_and_swap(&none, &none, &is, MPI_LONG, reader, place(&w, reader, 8),
                                    w.win));
        OK(MPI_Put(&last, 1, MPI_LONG, reader, place(&w, reader, 16), 1, MPI_LONG, w.win));
        if (locks) {
            OK(MPI_Win_unlock(reader, w.win));
            OK(MPI_Barrier(MPI_COMM_WORLD));
            OK(MPI_Win_lock(MPI_LOCK_SHARED, world_rank, 0, w.win));
        } else {
            OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
        }
        SAME(got, said(round, from, 0));
        SAME(is, said(round, from, 1));
        SAME(mine[0], said(round, ring(-1), 0) + 1);
        SAME(mine[1], said(round, ring(-1), 1));
        SAME(mine[2], last);
        if (locks)
            OK(MPI_Win_unlock(world_rank, w.win));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    window_free(&w);
}

/* MPI_Win_free completes the epoch of a fence that no other one ends. */
static void freed_without_a_fence(void)
{
    long mine[2] = {-1, -1}, value[2] = {said(0, world_rank, 0), said(0, world_rank, 1)};
    MPI_Win win;
    OK(MPI_Win_create(mine, sizeof mine, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_fence(0, win));
    for (int at = 0; at < 2; at++)
        OK(MPI_Put(&value[at], 1, MPI_LONG, ring(1), at, 1, MPI_LONG, win));
    OK(MPI_Win_free(&win));
    for (int at = 0; at < 2; at++)
        SAME(mine[at], said(0, ring(-1), at));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    freed_without_a_fence();
    for (int flavor = 0; flavor < FLAVORS; flavor++) {
        if (!has_flavor(flavor))
            continue;
        all_to_all(flavor, 0);
        all_to_all(flavor, 1);
        stores_and_loads(flavor);
        large(flavor);
        some_are_silent(flavor);
        within_the_window(flavor);
        beside_others(flavor);
        before_and_behind(flavor);
    }
    return check_end();
}

/* Post, start, complete, wait and test (MPI 5.0 section 12.5.2) with groups of some of the ranks.
 */
#include "windows.h"

#include <sched.h>

enum { ROUNDS = 10 };

static MPI_Group world;

static MPI_Group group_of(const int *members)
{
    int ranks[64], n = 0;
    MPI_Group group;
    for (int i = 0; i < world_size; i++)
        if (members[i])
            ranks[n++] = i;
    OK(MPI_Group_incl(world, n, ranks, &group));
    return group;
}

static MPI_Group group_of_one(int rank)
{
    MPI_Group group;
    OK(MPI_Group_incl(world, 1, &rank, &group));
    return group;
}

/* The end of an exposure epoch, by wait or by tests. */
static void end_exposure(const Window *w, int by_test)
{
    int flag = 0;
    if (!by_test) {
        OK(MPI_Win_wait(w->win));
        return;
    }
    for (;;) {
        OK(MPI_Win_test(w->win, &flag));
        if (flag)
            return;
        sched_yield();
    }
}

/* A ring: exposed to the left, access to the right. */
static void around(int flavor, int asserts)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 3 * 8, 8, MPI_INFO_NULL);
    long *mine = (long *)w.base;
    MPI_Group left = group_of_one(ring(-1)), right = group_of_one(ring(1));
    for (int round = 0; round < ROUNDS; round++) {
        long value = round * 1000 + world_rank, got = -1;
        mine[1] = value + 500;
        OK(MPI_Win_post(left, asserts ? MPI_MODE_NOCHECK | MPI_MODE_NOSTORE : 0, w.win));
        if (asserts) /* without a check, each post must have been made before its start */
            OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Win_start(right, asserts ? MPI_MODE_NOCHECK : 0, w.win));
        OK(MPI_Put(&value, 1, MPI_LONG, ring(1), place(&w, ring(1), 0), 1, MPI_LONG, w.win));
        OK(MPI_Get(&got, 1, MPI_LONG, ring(1), place(&w, ring(1), 8), 1, MPI_LONG, w.win));
        OK(MPI_Accumulate(&value, 1, MPI_LONG, ring(1), place(&w, ring(1), 16), 1, MPI_LONG,
                          MPI_REPLACE, w.win));
        OK(MPI_Win_complete(w.win));
        SAME(got, round * 1000 + ring(1) + 500);
        end_exposure(&w, round % 2);
        SAME(mine[0], round * 1000 + ring(-1));
        SAME(mine[2], round * 1000 + ring(-1));
    }
    OK(MPI_Group_free(&left));
    OK(MPI_Group_free(&right));
    window_free(&w);
}

/* Rank 0 exposes its part to all others, who run ahead of it as far as they may; then they only
 * get.
 */
static void star(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 8 * world_size, 8, MPI_INFO_NULL);
    long *mine = (long *)w.base;
    int members[64];
    for (int i = 0; i < world_size; i++)
        members[i] = i != 0;
    MPI_Group others = group_of(members), centre = group_of_one(0);
    for (int round = 0; round < ROUNDS; round++) {
        long value = round * 1000 + world_rank, got = -1;
        if (world_rank == 0) {
            mine[0] = -round;
            OK(MPI_Win_post(others, 0, w.win));
            end_exposure(&w, round % 3 == 1);
            for (int i = 1; i < world_size; i++)
                SAME(mine[i], round * 1000 + i);
            OK(MPI_Win_post(others, MPI_MODE_NOPUT, w.win));
            OK(MPI_Win_wait(w.win));
        } else {
            OK(MPI_Win_start(centre, 0, w.win));
            OK(MPI_Put(&value, 1, MPI_LONG, 0, place(&w, 0, 8 * world_rank), 1, MPI_LONG, w.win));
            OK(MPI_Win_complete(w.win));
            OK(MPI_Win_start(centre, 0, w.win));
            OK(MPI_Get(&got, 1, MPI_LONG, 0, place(&w, 0, 0), 1, MPI_LONG, w.win));
            OK(MPI_Win_complete(w.win));
            SAME(got, -round);
        }
    }
    OK(MPI_Group_free(&others));
    OK(MPI_Group_free(&centre));
    window_free(&w);
}

/* Who reaches whom is random in each epoch; oneself, and nobody at all, among them. */
static void random_groups(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 8 * world_size, 8, MPI_INFO_NULL);
    long *mine = (long *)w.base, values[64], expected[64] = {0};
    Random shared = random_from(31 + (uint64_t)flavor);
    for (int round = 0; round < 4 * ROUNDS; round++) {
        int reaches[64][64], to[64], from[64], dense = 1 + random_below(&shared, 4),
                                               by_test = random_below(&shared, 2);
        for (int i = 0; i < world_size; i++)
            for (int k = 0; k < world_size; k++)
                reaches[i][k] = random_below(&shared, dense) == 0;
        int empty = 1;
        for (int i = 0; i < world_size; i++) {
            to[i] = reaches[world_rank][i];
            from[i] = reaches[i][world_rank];
            empty &= !from[i];
        }
        MPI_Group targets = group_of(to), origins = group_of(from);
        if (!empty || round % 2)
            OK(MPI_Win_post(origins, 0, w.win));
        OK(MPI_Win_start(targets, 0, w.win));
        OK(MPI_Group_free(&targets)); /* the epoch needs the handles no more */
        OK(MPI_Group_free(&origins));
        for (int i = 0; i < world_size; i++) {
            values[i] = round * 10000 + world_rank * 100 + i;
            if (to[i] && (round + i) % 5) /* a target can be left without any operation */
                OK(MPI_Put(&values[i], 1, MPI_LONG, i, place(&w, i, 8 * world_rank), 1, MPI_LONG,
                           w.win));
        }
        OK(MPI_Win_complete(w.win));
        if (!empty || round % 2)
            end_exposure(&w, by_test);
        for (int i = 0; i < world_size; i++)
            if (from[i] && (round + world_rank) % 5)
                expected[i] = round * 10000 + i * 100 + world_rank;
        for (int i = 0; i < world_size; i++)
            SAME(mine[i], expected[i]);
    }
    window_free(&w);
}

/* Two windows whose epochs overlap, ended in another order than they began. */
static void two_windows(int flavor)
{
    Window a = window_make(flavor, MPI_COMM_WORLD, 8, 8, MPI_INFO_NULL),
           b = window_make(flavor, MPI_COMM_WORLD, 8, 8, MPI_INFO_NULL);
    MPI_Group left = group_of_one(ring(-1)), right = group_of_one(ring(1));
    for (int round = 0; round < ROUNDS; round++) {
        long out[2] = {round + world_rank, round - world_rank};
        OK(MPI_Win_post(left, 0, a.win));
        OK(MPI_Win_post(right, 0, b.win));
        OK(MPI_Win_start(right, 0, a.win));
        OK(MPI_Win_start(left, 0, b.win));
        OK(MPI_Put(&out[1], 1, MPI_LONG, ring(-1), place(&b, ring(-1), 0), 1, MPI_LONG, b.win));
        OK(MPI_Put(&out[0], 1, MPI_LONG, ring(1), place(&a, ring(1), 0), 1, MPI_LONG, a.win));
        OK(MPI_Win_complete(a.win));
        OK(MPI_Win_complete(b.win));
        OK(MPI_Win_wait(b.win));
        OK(MPI_Win_wait(a.win));
        SAME(*(long *)a.base, round + ring(-1));
        SAME(*(long *)b.base, round - ring(1));
    }
    OK(MPI_Group_free(&left));
    OK(MPI_Group_free(&right));
    window_free(&a);
    window_free(&b);
}

/* Pairs of even and odd ranks; those without a partner do nothing. Data of many packets. */
static void pairs(int flavor)
{
    enum { BYTES = 200000 };
    Window w = window_make(flavor, MPI_COMM_WORLD, BYTES, 1, MPI_INFO_NULL);
    int partner = world_rank ^ 1;
    unsigned char *data = malloc(BYTES);
    for (int round = 0; round < 4 && partner < world_size; round++) {
        MPI_Group group = group_of_one(partner);
        if ((world_rank + round) % 2) {
            fill(data, BYTES, (uint64_t)(round * 64 + world_rank));
            OK(MPI_Win_start(group, 0, w.win));
            OK(MPI_Put(data, BYTES, MPI_BYTE, partner, place(&w, partner, 0), BYTES, MPI_BYTE,
                       w.win));
            OK(MPI_Win_complete(w.win));
            memset(data, 0, BYTES); /* it is the origin's again */
        } else {
            OK(MPI_Win_post(group, 0, w.win));
            end_exposure(&w, round / 2);
            FILLED(w.base, BYTES, (uint64_t)(round * 64 + partner));
        }
        OK(MPI_Group_free(&group));
    }
    window_free(&w);
    free(data);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int flavor = 0; flavor < FLAVORS; flavor++) {
        if (!has_flavor(flavor))
            continue;
        around(flavor, 0);
        around(flavor, 1);
        star(flavor);
        random_groups(flavor);
        two_windows(flavor);
        pairs(flavor);
    }
    OK(MPI_Group_free(&world));
    return check_end();
}

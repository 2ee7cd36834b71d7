/* Long puts and gets by several origins, whose targets wait in MPI, where they may help, or compute
 * and do not. Lengths and places are even and odd, and nothing beside them changes. */
#include "windows.h"

/* Each origin of a target has a place of its own there, with a gap behind it. */
enum { BYTES = (1 << 20) + 4096, GAP = 64, PLACE = BYTES + GAP };

static const int lengths[] = {1, 4096, 32767, 32768, 65537, 262144, 524289, 1048577, BYTES};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static unsigned char *bytes;

static uint64_t key(int round, int origin, int target)
{
    return (uint64_t)(round * 10000 + origin * 100 + target);
}

/* Puts to each target and gets back. `length` bytes begin at `first` in the origin's place. */
static void put_and_get(const Window *w, int round, MPI_Aint first, int length)
{
    OK(MPI_Win_lock_all(0, w->win));
    for (int target = 1; target < world_size; target += 2) {
        MPI_Aint at = place(w, target, (MPI_Aint)world_rank / 2 * PLACE + first);
        fill(bytes + 1, (size_t)length, key(round, world_rank, target));
        OK(MPI_Put(bytes + 1, length, MPI_BYTE, target, at, length, MPI_BYTE, w->win));
        OK(MPI_Win_flush(target, w->win));
        memset(bytes, 255, (size_t)length + 2);
        OK(MPI_Get(bytes + 1, length, MPI_BYTE, target, at, length, MPI_BYTE, w->win));
        OK(MPI_Win_flush(target, w->win));
        SAME(bytes[0], 255);
        SAME(bytes[length + 1], 255);
        FILLED(bytes + 1, (size_t)length, key(round, world_rank, target));
    }
    OK(MPI_Win_unlock_all(w->win));
}

/* What all origins have put into this target. */
static void check_places(const Window *w, int round, MPI_Aint first, int length)
{
    for (int origin = 0; origin < world_size; origin += 2) {
        const unsigned char *at = w->base + (size_t)(origin / 2) * PLACE;
        for (MPI_Aint i = 0; i < first; i++)
            SAME(at[i], 0);
        for (int i = 0; i < GAP; i++)
            SAME(at[first + length + i], 0);
        FILLED(at + first, (size_t)length, key(round, origin, world_rank));
    }
    memset(w->base, 0, (size_t)w->bytes);
}

static void rounds(int flavor)
{
    int origins = (world_size + 1) / 2, is_target = world_rank % 2;
    Window w = window_make(flavor, MPI_COMM_WORLD, (MPI_Aint)origins * PLACE, 1, MPI_INFO_NULL);
    for (int i = 0; i < 2 * LENGTHS; i++) {
        int length = lengths[i / 2], computes = i % 2;
        MPI_Aint first = length < BYTES ? i % 3 : 0;
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (!is_target)
            put_and_get(&w, i, first, length);
        else if (computes)
            for (double until = MPI_Wtime() + 0.002; MPI_Wtime() < until;)
                continue;
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (is_target) {
            OK(MPI_Win_sync(w.win));
            check_places(&w, i, first, length);
            OK(MPI_Win_sync(w.win));
        }
    }
    window_free(&w);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    bytes = malloc(BYTES + 2);
    for (int flavor = 0; flavor < FLAVORS; flavor++)
        if (has_flavor(flavor))
            rounds(flavor);
    free(bytes);
    return check_end();
}

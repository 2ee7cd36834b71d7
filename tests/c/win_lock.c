/* Locks, flushes and MPI_Win_sync (MPI 5.0 sections 12.5.3 and 12.5.4). */
#include "windows.h"

enum { TURNS = 60, WORDS = 64 };

/* Each adds one by get and put under an exclusive lock: nobody's turn may be lost. */
static void read_modify_write(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 2 * 8, 8, MPI_INFO_NULL);
    int home = world_size - 1;
    for (int i = 0; i < TURNS; i++) {
        long value[2] = {-1, -1};
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, home, 0, w.win));
        if (home == world_rank && i % 2) { /* the owner's loads and stores are covered as well */
            ((volatile long *)w.base)[0] += 1;
            ((volatile long *)w.base)[1] += 2;
        } else {
            OK(MPI_Get(value, 2, MPI_LONG, home, place(&w, home, 0), 2, MPI_LONG, w.win));
            OK(MPI_Win_flush(home, w.win));
            SAME(value[1], 2 * value[0]);
            value[0] += 1;
            value[1] += 2;
            OK(MPI_Put(value, 1, MPI_LONG, home, place(&w, home, 0), 1, MPI_LONG, w.win));
            OK(MPI_Put(value + 1, 1, MPI_LONG, home, place(&w, home, 8), 1, MPI_LONG, w.win));
        }
        OK(MPI_Win_unlock(home, w.win));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == home) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, home, 0, w.win));
        SAME(((long *)w.base)[0], (long)TURNS * world_size);
        OK(MPI_Win_unlock(home, w.win));
    }
    window_free(&w);
}

/* Some write all words the same under an exclusive lock, others read them under shared ones, of
 * this target alone or of all: they must never see two kinds of word. */
static void readers_and_writers(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, WORDS * 8, 8, MPI_INFO_NULL);
    long words[WORDS];
    int wrong = 0;
    for (int i = 0; i < TURNS; i++) {
        int home = i % world_size;
        if ((i + world_rank) % 3 == 0) {
            for (int k = 0; k < WORDS; k++)
                words[k] = world_rank * 1000 + i;
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, home, 0, w.win));
            for (int k = 0; k < WORDS; k += 16) {
                OK(MPI_Put(words + k, 16, MPI_LONG, home, place(&w, home, 8 * k), 16, MPI_LONG,
                           w.win));
                OK(MPI_Win_flush(home, w.win));
            }
            OK(MPI_Win_unlock(home, w.win));
            continue;
        }
        int all = (i + world_rank) % 3 == 1;
        if (all)
            OK(MPI_Win_lock_all(0, w.win));
        else
            OK(MPI_Win_lock(MPI_LOCK_SHARED, home, 0, w.win));
        for (int k = WORDS - 16; k >= 0; k -= 16) {
            OK(MPI_Get(words + k, 16, MPI_LONG, home, place(&w, home, 8 * k), 16, MPI_LONG, w.win));
            OK(MPI_Win_flush_local(home, w.win));
        }
        if (all)
            OK(MPI_Win_unlock_all(w.win));
        else
            OK(MPI_Win_unlock(home, w.win));
        for (int k = 1; k < WORDS; k++)
            wrong += words[k] != words[0];
    }
    SAME(wrong, 0);
    window_free(&w);
}

/* Locks of several targets held at once, taken in the order of ranks and given back in another. */
static void several_targets(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 8 * world_size + 8, 8, MPI_INFO_NULL);
    long *mine = (long *)w.base;
    Random random = random_from(3 + (uint64_t)world_rank);
    long added = 0, total = 0, everywhere = 0;
    for (int i = 0; i < TURNS / 2; i++) {
        int held[64], exclusive = random_below(&random, 2);
        for (int rank = 0; rank < world_size; rank++) {
            held[rank] = random_below(&random, 2);
            if (held[rank])
                OK(MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, rank, 0, w.win));
        }
        long one = 1, values[64];
        for (int rank = 0; rank < world_size; rank++)
            if (held[rank]) {
                values[rank] = i * 100 + rank;
                OK(MPI_Put(&values[rank], 1, MPI_LONG, rank, place(&w, rank, 8 * world_rank), 1,
                           MPI_LONG, w.win));
                OK(MPI_Accumulate(&one, 1, MPI_LONG, rank, place(&w, rank, 8 * world_size), 1,
                                  MPI_LONG, MPI_SUM, w.win));
                added++;
            }
        for (int k = 0; k < world_size; k++) {
            int rank = (k * 5 + i) % world_size;
            if (world_size % 5 == 0)
                rank = world_size - 1 - k;
            if (held[rank])
                OK(MPI_Win_unlock(rank, w.win));
        }
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, world_rank, 0, w.win));
    total = mine[world_size];
    for (int rank = 0; rank < world_size; rank++)
        SAME(mine[rank] % 100, mine[rank] ? world_rank : 0);
    OK(MPI_Win_unlock(world_rank, w.win));
    long sums[2] = {added, total}, all[2];
    OK(MPI_Allreduce(sums, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    everywhere = all[0];
    SAME(all[1], everywhere);
    window_free(&w);
}

/* What each flush promises: the origin's buffer is free, or the data are at the target. */
static void flushes(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 8 * 8, 8, MPI_INFO_NULL);
    volatile long *mine = (volatile long *)w.base;
    OK(MPI_Win_lock_all(0, w.win));
    for (int i = 1; i <= TURNS; i++) {
        long out = i * 1000 + world_rank, in = -1, got[64];
        int next = ring(1), last = ring(-1), said = -1;
        OK(MPI_Put(&out, 1, MPI_LONG, next, place(&w, next, 0), 1, MPI_LONG, w.win));
        OK(MPI_Accumulate(&out, 1, MPI_LONG, next, place(&w, next, 8), 1, MPI_LONG, MPI_REPLACE,
                          w.win));
        if (i % 2)
            OK(MPI_Win_flush_local(next, w.win));
        else
            OK(MPI_Win_flush_local_all(w.win));
        out = -7; /* the buffer is ours again */
        if (i % 3)
            OK(MPI_Win_flush(next, w.win));
        else
            OK(MPI_Win_flush_all(w.win));
        /* The neighbour is told by a message, and loads what was put. */
        OK(MPI_Sendrecv(&i, 1, MPI_INT, next, 4, &said, 1, MPI_INT, last, 4, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
        OK(MPI_Win_sync(w.win));
        SAME(said, i);
        SAME(mine[0], i * 1000 + last);
        SAME(mine[1], i * 1000 + last);
        mine[2] = i * 500 + world_rank;
        OK(MPI_Win_sync(w.win));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Get(&in, 1, MPI_LONG, last, place(&w, last, 16), 1, MPI_LONG, w.win));
        OK(MPI_Win_flush_local(last, w.win));
        SAME(in, i * 500 + last);
        for (int rank = 0; rank < world_size; rank++)
            OK(MPI_Get(&got[rank], 1, MPI_LONG, rank, place(&w, rank, 8), 1, MPI_LONG, w.win));
        OK(MPI_Win_flush_all(w.win));
        for (int rank = 0; rank < world_size; rank++)
            SAME(got[rank], i * 1000 + (rank + world_size - 1) % world_size);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Win_flush_all(w.win)); /* with nothing to flush */
    OK(MPI_Win_flush(world_rank, w.win));
    OK(MPI_Win_unlock_all(w.win));
    window_free(&w);
}

/* Puts before the unlock are at the target after it, however large they are. */
static void unlock_completes(int flavor)
{
    enum { BYTES = 150000 };
    Window w = window_make(flavor, MPI_COMM_WORLD, BYTES, 1, MPI_INFO_NULL);
    unsigned char *out = malloc(BYTES), *in = malloc(BYTES);
    for (int round = 0; round < 6; round++) {
        int next = ring(1), last = ring(-1), bytes = round % 2 ? BYTES : 1000 + round;
        int type = round < 3 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED;
        fill(out, (size_t)bytes, (uint64_t)(round * 100 + world_rank));
        OK(MPI_Win_lock(type, next, 0, w.win));
        OK(MPI_Put(out, bytes, MPI_BYTE, next, place(&w, next, 0), bytes, MPI_BYTE, w.win));
        OK(MPI_Win_unlock(next, w.win));
        memset(out, 0, (size_t)bytes);
        OK(MPI_Win_lock(type, next, 0, w.win));
        OK(MPI_Get(in, bytes, MPI_BYTE, next, place(&w, next, 0), bytes, MPI_BYTE, w.win));
        OK(MPI_Win_unlock(next, w.win));
        FILLED(in, (size_t)bytes, (uint64_t)(round * 100 + world_rank));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Win_lock(MPI_LOCK_SHARED, world_rank, 0, w.win));
        FILLED(w.base, (size_t)bytes, (uint64_t)(round * 100 + last));
        OK(MPI_Win_unlock(world_rank, w.win));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    window_free(&w);
    free(out), free(in);
}

/* Locks that the program says nobody else holds, locks of oneself, and epochs without operations.
 */
static void plain(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 16, 8, MPI_INFO_NULL);
    long value = world_rank + 5, got = -1;
    for (int rank = 0; rank < world_size; rank++) {
        if (rank == world_rank) {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, ring(1), MPI_MODE_NOCHECK, w.win));
            OK(MPI_Put(&value, 1, MPI_LONG, ring(1), place(&w, ring(1), 0), 1, MPI_LONG, w.win));
            OK(MPI_Win_unlock(ring(1), w.win));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, w.win));
    OK(MPI_Get(&got, 1, MPI_LONG, world_rank, place(&w, world_rank, 0), 1, MPI_LONG, w.win));
    OK(MPI_Win_unlock_all(w.win));
    SAME(got, ring(-1) + 5);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world_rank, 0, w.win));
    ((long *)w.base)[1] = 44;
    OK(MPI_Get(&got, 1, MPI_LONG, world_rank, place(&w, world_rank, 8), 1, MPI_LONG, w.win));
    OK(MPI_Win_flush(world_rank, w.win));
    SAME(got, 44);
    OK(MPI_Put(&value, 1, MPI_LONG, world_rank, place(&w, world_rank, 8), 1, MPI_LONG, w.win));
    OK(MPI_Win_unlock(world_rank, w.win));
    SAME(((long *)w.base)[1], value);
    for (int i = 0; i < TURNS; i++) {
        int target = (world_rank + i) % world_size;
        OK(MPI_Win_lock(i % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, w.win));
        OK(MPI_Win_unlock(target, w.win));
        OK(MPI_Win_lock_all(0, w.win));
        OK(MPI_Win_unlock_all(w.win));
    }
    window_free(&w);
}

/* A lock of one window is none of another's. */
static void windows_apart(int flavor)
{
    Window a = window_make(flavor, MPI_COMM_WORLD, 8, 8, MPI_INFO_NULL),
           b = window_make(flavor, MPI_COMM_WORLD, 8, 8, MPI_INFO_NULL);
    long one = 1;
    if (world_rank == 0) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, a.win));
        OK(MPI_Barrier(MPI_COMM_WORLD)); /* the others lock b meanwhile */
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Win_unlock(0, a.win));
    } else {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, b.win));
        OK(MPI_Accumulate(&one, 1, MPI_LONG, 0, place(&b, 0, 0), 1, MPI_LONG, MPI_SUM, b.win));
        OK(MPI_Win_unlock(0, b.win));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    if (world_rank == 0) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, b.win));
        SAME(*(long *)b.base, world_size - 1);
        OK(MPI_Win_unlock(0, b.win));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&a);
    window_free(&b);
}

/* Two ranks each store a word at the other and flush, then read what the other has stored: one of
 * them at least must see it, whatever the operation stores by. Where the processor only queues
 * stores, a flush that lets them wait shows here. */
static void flushes_order(int flavor)
{
    enum { ROUNDS = 600, WAYS = 4 };
    Window w = window_make(flavor, MPI_COMM_WORLD, (ROUNDS + 1) * 8, 8, MPI_INFO_NULL);
    MPI_Datatype resized;
    MPI_Comm pair;
    const long one = 1;
    long seen[ROUNDS], theirs[ROUNDS], swapped;
    unsigned delay = 1 + (unsigned)world_rank;
    OK(MPI_Type_create_resized(MPI_LONG, 0, 16, &resized));
    OK(MPI_Type_commit(&resized));
    memset(w.base, 0, (ROUNDS + 1) * 8);
    OK(MPI_Win_sync(w.win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank < 2 ? 0 : MPI_UNDEFINED, 0, &pair));
    if (pair != MPI_COMM_NULL) {
        int other = 1 - world_rank;
        OK(MPI_Win_lock_all(0, w.win));
        for (long i = 0; i < ROUNDS; i++) {
            MPI_Aint at = place(&w, other, 8 * i);
            volatile long *arrived = (volatile long *)w.base + ROUNDS;
            long next = i + 1;
            OK(MPI_Put(&next, 1, MPI_LONG, other, place(&w, other, 8 * ROUNDS), 1, MPI_LONG,
                       w.win));
            OK(MPI_Win_flush(other, w.win));
            for (int spins = 0, flag; *arrived < next; spins++)
                if (spins > 1000)
                    OK(MPI_Iprobe(other, 1, pair, &flag, MPI_STATUS_IGNORE));
            delay = delay * 1103515245 + 12345;
            for (volatile unsigned k = delay >> 16 & 127; k > 0;)
                k--;
            switch (i % WAYS) {
            case 0:
                OK(MPI_Put(&one, 1, MPI_LONG, other, at, 1, MPI_LONG, w.win));
                break;
            case 1:
                OK(MPI_Put(&one, 1, resized, other, at, 1, resized, w.win));
                break;
            case 2:
                OK(MPI_Accumulate(&one, 1, MPI_LONG, other, at, 1, MPI_LONG, MPI_REPLACE, w.win));
                break;
            default:
                OK(MPI_Fetch_and_op(&one, &swapped, MPI_LONG, other, at, MPI_SUM, w.win));
            }
            OK(MPI_Win_flush(other, w.win));
            seen[i] = ((volatile long *)w.base)[i];
        }
        OK(MPI_Win_unlock_all(w.win));
        OK(MPI_Sendrecv(seen, ROUNDS, MPI_LONG, other, 0, theirs, ROUNDS, MPI_LONG, other, 0, pair,
                        MPI_STATUS_IGNORE));
        for (int i = 0; i < ROUNDS; i++)
            if (!seen[i] && !theirs[i])
                FAIL("round %d, way %d: neither rank sees what the other has flushed", i, i % WAYS);
        OK(MPI_Comm_free(&pair));
    }
    OK(MPI_Type_free(&resized));
    window_free(&w);
}

/* Are all ranks on one node? */
static int one_node(void)
{
    MPI_Comm node;
    int size;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    OK(MPI_Comm_size(node, &size));
    OK(MPI_Comm_free(&node));
    return size == world_size;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    int mapped = one_node() && world_size > 1;
    for (int flavor = 0; flavor < FLAVORS; flavor++) {
        if (!has_flavor(flavor))
            continue;
        read_modify_write(flavor);
        readers_and_writers(flavor);
        several_targets(flavor);
        flushes(flavor);
        unlock_completes(flavor);
        plain(flavor);
        windows_apart(flavor);
        if (mapped && (flavor == ALLOCATED || flavor == SHARED))
            flushes_order(flavor);
    }
    return check_end();
}

// machines: no
/* Many puts and gets of 8 bytes to 64 KiB between two synchronizations: one after the other in
 * memory, apart, or backwards. Each kind of synchronization completes them, where the standard says
 * so, and then their buffers can be used again (MPI 5.0 section 12.5). */
#include "windows.h"

enum { COUNT = 100, MOST = 65536, GAP = 16, ROOM = 768 * 1024 };
enum { ADJACENT, APART, BACKWARDS, ORDERS };
enum { FLUSH, FLUSH_LOCAL, FLUSH_ALL, FLUSH_LOCAL_ALL, UNLOCK, FENCE, GROUPS, WAYS };

static const int lengths[] = {8, 513, 4096, 20000, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static unsigned char *origin;

/* As many as 700 KiB have: more than is copied at a time. */
static int count_of(int length)
{
    int count = 700 * 1024 / length;
    return count < COUNT ? count : COUNT;
}

/* Where transfer `i` is, at the origin and at the target. */
static MPI_Aint offset(int order, int length, int i)
{
    if (order == BACKWARDS)
        i = count_of(length) - 1 - i;
    return (MPI_Aint)i * (length + (order == ADJACENT ? 0 : GAP));
}

static uint64_t key(int round, int from, int i)
{
    return (uint64_t)(round * 100000 + from * 1000 + i);
}

/* Opens an epoch to `target`; `exposed_to` has one to this rank. */
static void begin_epoch(int how, const Window *w, int target, MPI_Group to, MPI_Group from)
{
    if (how == FENCE) {
        OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, w->win));
    } else if (how == GROUPS) {
        OK(MPI_Win_post(from, 0, w->win));
        OK(MPI_Win_start(to, 0, w->win));
    } else {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w->win));
    }
}

/* From here on the origin's buffers can be used again. */
static void end_of_buffers(int how, const Window *w, int target)
{
    if (how == FLUSH)
        OK(MPI_Win_flush(target, w->win));
    else if (how == FLUSH_LOCAL)
        OK(MPI_Win_flush_local(target, w->win));
    else if (how == FLUSH_ALL)
        OK(MPI_Win_flush_all(w->win));
    else if (how == FLUSH_LOCAL_ALL)
        OK(MPI_Win_flush_local_all(w->win));
    else if (how == FENCE)
        OK(MPI_Win_fence(0, w->win));
    else if (how == GROUPS)
        OK(MPI_Win_complete(w->win));
    else
        OK(MPI_Win_unlock(target, w->win));
}

static void end_epoch(int how, const Window *w, int target)
{
    if (how == GROUPS)
        OK(MPI_Win_wait(w->win));
    else if (how == FENCE)
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    else if (how != UNLOCK)
        OK(MPI_Win_unlock(target, w->win));
}

static void round_of(const Window *w, int round, int how, int order, int length, MPI_Group to,
                     MPI_Group from)
{
    int target = ring(1), count = count_of(length);
    for (int i = 0; i < count; i++)
        fill(origin + offset(order, length, i), (size_t)length, key(round, world_rank, i));
    begin_epoch(how, w, target, to, from);
    for (int i = 0; i < count; i++) {
        MPI_Aint at = offset(order, length, i);
        OK(MPI_Put(origin + at, length, MPI_BYTE, target, place(w, target, at), length, MPI_BYTE,
                   w->win));
    }
    end_of_buffers(how, w, target);
    memset(origin, 255, ROOM);
    end_epoch(how, w, target);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_sync(w->win));
    for (int i = 0; i < count; i++) {
        const unsigned char *at = w->base + offset(order, length, i);
        FILLED(at, (size_t)length, key(round, ring(-1), i));
        for (int k = 0; order != ADJACENT && k < GAP; k++)
            SAME(at[length + k], 0);
    }
    OK(MPI_Win_sync(w->win));
    OK(MPI_Barrier(MPI_COMM_WORLD));

    begin_epoch(how, w, target, to, from);
    for (int i = 0; i < count; i++) {
        MPI_Aint at = offset(order, length, i);
        OK(MPI_Get(origin + at, length, MPI_BYTE, target, place(w, target, at), length, MPI_BYTE,
                   w->win));
    }
    end_of_buffers(how, w, target);
    for (int i = 0; i < count; i++) {
        const unsigned char *at = origin + offset(order, length, i);
        FILLED(at, (size_t)length, key(round, world_rank, i));
        for (int k = 0; order != ADJACENT && k < GAP; k++)
            SAME(at[length + k], 255);
    }
    end_epoch(how, w, target);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    memset(w->base, 0, (size_t)w->bytes);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Puts and gets in turns, and those with a request among them, each at a place of its own. */
static void mixed(const Window *w, int round)
{
    enum { LONG = 3000, SHORT = 100 };
    int target = ring(1);
    MPI_Request request;
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world_rank, 0, w->win));
    for (int i = 0; i < 2 * COUNT; i++)
        fill(w->base + i * LONG, LONG, key(round, world_rank, i));
    OK(MPI_Win_unlock(world_rank, w->win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, w->win));
    for (int i = 0; i < COUNT; i++) {
        int length = i % 3 ? LONG : SHORT;
        unsigned char *from = origin + (2 * i) * LONG, *to = from + LONG;
        MPI_Aint put = place(w, target, 2 * i * LONG), get = place(w, target, (2 * i + 1) * LONG);
        fill(from, LONG, key(round + 1, world_rank, 2 * i));
        memset(to, 0, LONG);
        OK(MPI_Put(from, length, MPI_BYTE, target, put, length, MPI_BYTE, w->win));
        if (i % 10 == 7) {
            OK(MPI_Rget(to, LONG, MPI_BYTE, target, get, LONG, MPI_BYTE, w->win, &request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            FILLED(to, LONG, key(round, target, 2 * i + 1));
        } else {
            OK(MPI_Get(to, LONG, MPI_BYTE, target, get, LONG, MPI_BYTE, w->win));
        }
    }
    OK(MPI_Win_flush_local_all(w->win));
    for (int i = 0; i < COUNT; i++)
        FILLED(origin + (2 * i + 1) * LONG, LONG, key(round, target, 2 * i + 1));
    memset(origin, 255, 2 * COUNT * LONG);
    OK(MPI_Win_unlock_all(w->win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world_rank, 0, w->win));
    for (int i = 0; i < COUNT; i++)
        FILLED(w->base + 2 * i * LONG, i % 3 ? LONG : SHORT, key(round + 1, ring(-1), 2 * i));
    memset(w->base, 0, (size_t)w->bytes);
    OK(MPI_Win_unlock(world_rank, w->win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    origin = malloc(ROOM);
    MPI_Group world, to, from;
    int next = ring(1), before = ring(-1), round = 0;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 1, &next, &to));
    OK(MPI_Group_incl(world, 1, &before, &from));
    memset(origin, 255, ROOM);
    for (int i = 0; i < 2; i++) {
        Window w = window_make(i ? DYNAMIC : CREATED, MPI_COMM_WORLD, ROOM, 1, MPI_INFO_NULL);
        for (int how = 0; how < WAYS; how++)
            for (int k = 0; k < LENGTHS; k++, round++)
                round_of(&w, round, how, (how + k) % ORDERS, lengths[k], to, from);
        mixed(&w, round);
        round += 2;
        window_free(&w);
    }
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&to));
    OK(MPI_Group_free(&from));
    free(origin);
    return check_end();
}

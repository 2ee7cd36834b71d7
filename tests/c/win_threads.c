/* MPI_THREAD_MULTIPLE: threads with a window each, threads that share one, threads that make and
 * free windows, and one that sleeps for a lock while others communicate. */
#include "windows.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 30, SLOTS = 64 };

static Window own[THREADS], shared;
static MPI_Comm comms[THREADS];

/* Each thread on its own window: every kind of epoch in turn. */
static void *a_window_each(void *arg) {
  int me = (int)(intptr_t)arg, target = ring(1);
  Window *w = &own[me];
  long *mine = (long *)w->base;
  MPI_Group all, left, right;
  OK(MPI_Win_get_group(w->win, &all));
  OK(MPI_Group_incl(all, 1, (int[]){ring(-1)}, &left));
  OK(MPI_Group_incl(all, 1, (int[]){target}, &right));
  for (int round = 0; round < ROUNDS; round++) {
    long value = me * 1000000 + round * 1000 + world_rank, got = -1, one = 1;
    OK(MPI_Win_fence(0, w->win));
    OK(MPI_Put(&value, 1, MPI_LONG, target, place(w, target, 0), 1, MPI_LONG,
               w->win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    SAME(mine[0], me * 1000000 + round * 1000 + ring(-1));
    OK(MPI_Win_post(left, 0, w->win));
    OK(MPI_Win_start(right, 0, w->win));
    OK(MPI_Put(&value, 1, MPI_LONG, target, place(w, target, 8), 1, MPI_LONG,
               w->win));
    OK(MPI_Get(&got, 1, MPI_LONG, target, place(w, target, 0), 1, MPI_LONG,
               w->win));
    OK(MPI_Win_complete(w->win));
    OK(MPI_Win_wait(w->win));
    SAME(got, value);
    SAME(mine[1], me * 1000000 + round * 1000 + ring(-1));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w->win));
    OK(MPI_Get(&got, 1, MPI_LONG, 0, place(w, 0, 16), 1, MPI_LONG, w->win));
    OK(MPI_Win_flush(0, w->win));
    got++;
    OK(MPI_Put(&got, 1, MPI_LONG, 0, place(w, 0, 16), 1, MPI_LONG, w->win));
    OK(MPI_Win_unlock(0, w->win));
    OK(MPI_Win_lock_all(0, w->win));
    OK(MPI_Fetch_and_op(&one, &got, MPI_LONG, 0, place(w, 0, 24), MPI_SUM,
                        w->win));
    OK(MPI_Win_unlock_all(w->win));
    OK(MPI_Barrier(comms[me]));
  }
  if (world_rank == 0) {
    SAME(mine[2], ROUNDS * world_size);
    SAME(mine[3], ROUNDS * world_size);
  }
  OK(MPI_Barrier(comms[me]));
  OK(MPI_Group_free(&all));
  OK(MPI_Group_free(&left));
  OK(MPI_Group_free(&right));
  return NULL;
}

/* One lock_all by the process, operations of all its threads in it. */
static void *one_for_all(void *arg) {
  int me = (int)(intptr_t)arg;
  long last = -1, one = 1;
  for (int round = 0; round < ROUNDS; round++) {
    int target = (world_rank + me + round) % world_size,
        slot = world_rank * THREADS + me;
    long value = round * 100 + me, got = -1, old = -1;
    MPI_Aint at = place(&shared, target, 8 * (SLOTS + slot));
    MPI_Request request;
    OK(MPI_Put(&value, 1, MPI_LONG, target, at, 1, MPI_LONG, shared.win));
    OK(MPI_Win_flush(target, shared.win));
    if (round % 2) {
      OK(MPI_Rget(&got, 1, MPI_LONG, target, at, 1, MPI_LONG, shared.win,
                  &request));
      OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
      OK(MPI_Get(&got, 1, MPI_LONG, target, at, 1, MPI_LONG, shared.win));
      OK(MPI_Win_flush_all(shared.win));
    }
    SAME(got, value);
    OK(MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, place(&shared, 0, 0), MPI_SUM,
                        shared.win));
    OK(MPI_Win_flush(0, shared.win));
    CHECK(old > last, "the counter gave %ld after %ld", old, last);
    last = old;
  }
  return NULL;
}

/* Threads that lock different targets of one window at the same time. */
static void *a_target_each(void *arg) {
  int me = (int)(intptr_t)arg;
  long one = 1;
  for (int round = 0; round < ROUNDS; round++)
    for (int target = me; target < world_size; target += THREADS) {
      OK(MPI_Win_lock(round % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target,
                      0, shared.win));
      OK(MPI_Accumulate(&one, 1, MPI_LONG, target,
                        place(&shared, target, 8 * (SLOTS - 1)), 1, MPI_LONG,
                        MPI_SUM, shared.win));
      OK(MPI_Win_unlock(target, shared.win));
    }
  return NULL;
}

static void *made_and_freed(void *arg) {
  int me = (int)(intptr_t)arg;
  for (int i = 0; i < 6; i++) {
    Window w = window_make((me + i) % 2 ? CREATED : ALLOCATED, comms[me], 64, 8,
                           MPI_INFO_NULL);
    long value = me * 100 + i;
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Put(&value, 1, MPI_LONG, ring(1), 3, 1, MPI_LONG, w.win));
    OK(MPI_Win_fence(0, w.win));
    SAME(((long *)w.base)[3], value);
    OK(MPI_Win_free(&w.win));
    if (w.flavor == CREATED)
      free(w.base);
  }
  return NULL;
}

/* A thread sleeps for a lock that another rank holds, while other threads of
 * its process communicate.
 */
static void *one_waits(void *arg) {
  int me = (int)(intptr_t)arg;
  long value = -1;
  for (int round = 0; round < ROUNDS / 2; round++) {
    int holder = round % world_size == world_rank;
    if (me == 0 && holder) {
      OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, own[0].win));
      /* Between hosts the lock may be taken as late as the first operation. */
      OK(MPI_Get(&value, 1, MPI_LONG, 0, place(&own[0], 0, 32), 1, MPI_LONG,
                 own[0].win));
      OK(MPI_Win_flush(0, own[0].win));
      OK(MPI_Barrier(comms[0]));
      value = round;
      OK(MPI_Put(&value, 1, MPI_LONG, 0, place(&own[0], 0, 32), 1, MPI_LONG,
                 own[0].win));
      OK(MPI_Win_unlock(0, own[0].win));
    } else if (me == 0) {
      OK(MPI_Barrier(comms[0]));
      OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0,
                      own[0].win)); /* not before the holder's put */
      OK(MPI_Get(&value, 1, MPI_LONG, 0, place(&own[0], 0, 32), 1, MPI_LONG,
                 own[0].win));
      OK(MPI_Win_unlock(0, own[0].win));
      SAME(value, round);
    } else {
      long sum = -1, one = 1;
      OK(MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, comms[me]));
      SAME(sum, world_size);
    }
    if (me == 0)
      OK(MPI_Barrier(comms[0]));
  }
  return NULL;
}

static void run(void *(*body)(void *)) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, body, (void *)(intptr_t)i);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
  int provided = -1;
  OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  check_know_world();
  SAME(provided, MPI_THREAD_MULTIPLE);
  for (int i = 0; i < THREADS; i++)
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
  for (int flavor = 0; flavor < FLAVORS; flavor++) {
    if (!has_flavor(flavor))
      continue;
    for (int i = 0; i < THREADS; i++)
      own[i] = window_make(flavor, MPI_COMM_WORLD, 5 * 8, 8, MPI_INFO_NULL);
    shared = window_make(flavor, MPI_COMM_WORLD,
                         8 * (SLOTS + THREADS * (MPI_Aint)world_size), 8,
                         MPI_INFO_NULL);
    run(a_window_each);
    OK(MPI_Win_lock_all(0, shared.win));
    run(one_for_all);
    OK(MPI_Win_unlock_all(shared.win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0)
      SAME(*(long *)shared.base, (long)ROUNDS * THREADS * world_size);
    long before = ((long *)shared.base)[SLOTS - 1];
    OK(MPI_Barrier(MPI_COMM_WORLD));
    run(a_target_each);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    SAME(((long *)shared.base)[SLOTS - 1], before + ROUNDS * world_size);
    run(made_and_freed);
    run(one_waits);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < THREADS; i++)
      window_free(&own[i]);
    window_free(&shared);
  }
  for (int i = 0; i < THREADS; i++)
    OK(MPI_Comm_free(&comms[i]));
  return check_end();
}

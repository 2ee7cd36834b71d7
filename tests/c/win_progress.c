/* Targets that call nothing: what the others do to their memory is complete all
 * the same, where ranks share a node. The target sleeps in the operating
 * system, in a read of a pipe, until an origin tells it through that pipe that
 * all is done; an origin that needed the target's help would wait for ever.
 */
// machines: no
#include "windows.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGS = 4096, TURNS = 50, PATIENCE_MS = 30000 };

static int pipe_in, pipe_out; /* this rank's own, and that of rank 0 */

static void pipe_name(int rank, char *name, size_t room) {
  snprintf(name, room, "pipe-%d", rank);
}

/* Each rank makes its pipe in the directory that all share, and opens rank 0's.
 */
static void pipes_open(void) {
  char name[32];
  pipe_name(world_rank, name, sizeof name);
  CHECK(mkfifo(name, 0600) == 0, "there is no pipe %s", name);
  pipe_in = open(name, O_RDWR);
  OK(MPI_Barrier(MPI_COMM_WORLD));
  pipe_name(0, name, sizeof name);
  pipe_out = open(name, O_RDWR);
  CHECK(pipe_in >= 0 && pipe_out >= 0, "a pipe cannot be opened");
  OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void tell(int fd) {
  CHECK(write(fd, "x", 1) == 1, "the pipe takes nothing");
}

/* Sleeps outside MPI until as many others have told of their end. */
static void sleep_until_told(int times) {
  char byte;
  for (int i = 0; i < times; i++) {
    struct pollfd fd = {pipe_in, POLLIN, 0};
    if (poll(&fd, 1, PATIENCE_MS) != 1) {
      FAIL("told by %d of %d: operations wait for their target", i, times);
      return;
    }
    CHECK(read(pipe_in, &byte, 1) == 1, "the pipe gives nothing");
  }
}

/* Every kind of operation on rank 0's memory, while rank 0 sleeps. */
static void on_a_sleeper(int flavor, int exclusive) {
  Window w =
      window_make(flavor, MPI_COMM_WORLD,
                  LONGS * 8 * (1 + (MPI_Aint)world_size), 8, MPI_INFO_NULL);
  long *out = malloc(LONGS * 8), *in = malloc(LONGS * 8);
  MPI_Datatype strided;
  OK(MPI_Type_vector(LONGS / 4, 1, 4, MPI_LONG, &strided));
  OK(MPI_Type_commit(&strided));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  if (world_rank == 0) {
    sleep_until_told(world_size - 1);
  } else {
    MPI_Aint slot = (MPI_Aint)LONGS * 8 * (1 + world_rank);
    long one = 1, got = -1, zero = 0;
    for (int i = 0; i < TURNS; i++) {
      int longs = i % 5 ? 1 + i : LONGS;
      for (int k = 0; k < longs; k++)
        out[k] = i * 1000 + k, in[k] = -1;
      OK(MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, 0, 0,
                      w.win));
      OK(MPI_Put(out, longs, MPI_LONG, 0, place(&w, 0, slot), longs, MPI_LONG,
                 w.win));
      OK(MPI_Win_flush(0, w.win));
      OK(MPI_Get(in, longs, MPI_LONG, 0, place(&w, 0, slot), longs, MPI_LONG,
                 w.win));
      OK(MPI_Accumulate(&one, 1, MPI_LONG, 0, place(&w, 0, 0), 1, MPI_LONG,
                        MPI_SUM, w.win));
      OK(MPI_Fetch_and_op(&one, &got, MPI_LONG, 0, place(&w, 0, 8), MPI_SUM,
                          w.win));
      OK(MPI_Compare_and_swap(&one, &zero, &got, MPI_LONG, 0, place(&w, 0, 16),
                              w.win));
      OK(MPI_Win_flush(0, w.win));
      for (int k = 0; k < longs; k++)
        SAME(in[k], i * 1000 + k);
      OK(MPI_Accumulate(out, LONGS / 4, MPI_LONG, 0, place(&w, 0, slot), 1,
                        strided, MPI_MAX, w.win));
      OK(MPI_Win_unlock(0, w.win));
    }
    OK(MPI_Win_lock_all(0, w.win));
    MPI_Request requests[2];
    OK(MPI_Rput(out, 8, MPI_LONG, 0, place(&w, 0, slot), 8, MPI_LONG, w.win,
                &requests[0]));
    OK(MPI_Rget(in, 8, MPI_LONG, 0, place(&w, 0, slot + 64), 8, MPI_LONG, w.win,
                &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Win_unlock_all(w.win));
    tell(pipe_out);
  }
  if (world_rank == 0) {
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
    SAME(((long *)w.base)[0], TURNS * (world_size - 1));
    SAME(((long *)w.base)[1], TURNS * (world_size - 1));
    SAME(((long *)w.base)[2], world_size > 1);
    OK(MPI_Win_unlock(0, w.win));
  }
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Type_free(&strided));
  window_free(&w);
  free(out), free(in);
}

/* The data reach an epoch's target while it sleeps between post and wait, or
 * between fences. */
static void within_epochs(int flavor) {
  Window w = window_make(flavor, MPI_COMM_WORLD, 8 * (MPI_Aint)world_size, 8,
                         MPI_INFO_NULL);
  long value = 70 + world_rank;
  MPI_Group all, others, first;
  OK(MPI_Win_get_group(w.win, &all));
  OK(MPI_Group_incl(all, 1, (int[]){0}, &first));
  OK(MPI_Group_difference(all, first, &others));
  for (int i = 0; i < 5; i++) {
    if (world_rank == 0) {
      OK(MPI_Win_post(others, 0, w.win));
      sleep_until_told(world_size - 1);
      OK(MPI_Win_wait(w.win));
      for (int rank = 1; rank < world_size; rank++)
        SAME(((long *)w.base)[rank], 70 + rank);
    } else {
      OK(MPI_Win_start(first, 0, w.win));
      OK(MPI_Put(&value, 1, MPI_LONG, 0, place(&w, 0, 8 * world_rank), 1,
                 MPI_LONG, w.win));
      OK(MPI_Win_complete(w.win));
      tell(pipe_out);
    }
  }
  OK(MPI_Group_free(&all));
  OK(MPI_Group_free(&first));
  OK(MPI_Group_free(&others));
  window_free(&w);
}

/* A rank that sleeps outside MPI with a lock in its hands keeps only those out
 * who want the same. */
static void asleep_with_a_lock(int flavor) {
  Window w = window_make(flavor, MPI_COMM_WORLD, 16, 8, MPI_INFO_NULL);
  long one = 1;
  if (world_rank == 0) {
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world_size - 1, 0, w.win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    sleep_until_told(world_size - 1);
    OK(MPI_Win_unlock(world_size - 1, w.win));
  } else {
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < TURNS; i++) {
      OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
      OK(MPI_Accumulate(&one, 1, MPI_LONG, 0, place(&w, 0, 0), 1, MPI_LONG,
                        MPI_SUM, w.win));
      OK(MPI_Win_unlock(0, w.win));
    }
    tell(pipe_out);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, world_size - 1, 0, w.win));
    OK(MPI_Win_unlock(world_size - 1, w.win));
  }
  OK(MPI_Barrier(MPI_COMM_WORLD));
  if (world_rank == 0) {
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
    SAME(*(long *)w.base, TURNS * (world_size - 1));
    OK(MPI_Win_unlock(0, w.win));
  }
  OK(MPI_Barrier(MPI_COMM_WORLD));
  window_free(&w);
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  if (target_need_not_help()) {
    pipes_open();
    for (int flavor = 0; flavor < FLAVORS; flavor++) {
      if (argc > 1 && flavor != atoi(argv[1]))
        continue; /* for an MPI whose target has to help with the others */
      on_a_sleeper(flavor, 0);
      on_a_sleeper(flavor, 1);
      within_epochs(flavor);
      if (world_size > 1)
        asleep_with_a_lock(flavor);
    }
  }
  return check_end();
}

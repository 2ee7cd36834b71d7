/* What must work on an intercommunicator, however the two groups have met. */
#ifndef FERRY_TESTS_DYN_H
#define FERRY_TESTS_DYN_H

#include "check.h"

#include <unistd.h>

// Files on a merged communicator: the shared pointer, order, and collective access.
UNUSED static void use_files(MPI_Comm merged, int where, int total) {
  enum { RECORD = 16, RECORDS = 10, PIECES = 64 };
  char path[] = "/tmp/ferry-merged-XXXXXX";
  int record[RECORD], is[PIECES], *all, *seen;
  MPI_File fh;
  MPI_Info info;
  MPI_Offset at, size;
  MPI_Request request;
  if (where == 0)
    close(mkstemp(path));
  MPI_Bcast(path, sizeof path, MPI_CHAR, 0, merged);
  OK(MPI_Info_create(&info));
  OK(MPI_Info_set(info, "collective_buffering", "true"));
  OK(MPI_File_open(merged, path, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &fh));
  OK(MPI_Info_free(&info));
  OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));

  // Each record is written once and whole, wherever.
  for (int n = 0; n < RECORDS; n++) {
    for (int i = 0; i < RECORD; i++)
      record[i] = where * RECORDS + n;
    OK(MPI_File_write_shared(fh, record, RECORD, MPI_INT, MPI_STATUS_IGNORE));
  }
  OK(MPI_File_sync(fh));
  MPI_Barrier(merged);
  OK(MPI_File_sync(fh));
  OK(MPI_File_get_position_shared(fh, &at));
  SAME(at, total * RECORDS * RECORD);
  all = malloc(total * RECORDS * sizeof record);
  seen = calloc(total * RECORDS, sizeof *seen);
  OK(MPI_File_read_at(fh, 0, all, total * RECORDS * RECORD, MPI_INT, MPI_STATUS_IGNORE));
  for (int n = 0; n < total * RECORDS; n++) {
    for (int i = 1; i < RECORD; i++)
      SAME(all[n * RECORD + i], all[n * RECORD]);
    if (all[n * RECORD] >= 0 && all[n * RECORD] < total * RECORDS)
      seen[all[n * RECORD]]++;
  }
  for (int n = 0; n < total * RECORDS; n++)
    SAME(seen[n], 1);
  free(all), free(seen);

  // In the order of the ranks, each one more than the one before.
  OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
  for (int i = 0; i <= where % RECORD; i++)
    record[i] = -where;
  OK(MPI_File_write_ordered(fh, record, where % RECORD + 1, MPI_INT, MPI_STATUS_IGNORE));
  OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
  memset(record, 1, sizeof record);
  OK(MPI_File_read_ordered(fh, record, where % RECORD + 1, MPI_INT, MPI_STATUS_IGNORE));
  for (int i = 0; i <= where % RECORD; i++)
    SAME(record[i], -where);

  // In turns, in two phases: by all, and in the background.
  MPI_Datatype turns;
  OK(MPI_Type_create_resized(MPI_INT, 0, total * (MPI_Aint)sizeof(int), &turns));
  OK(MPI_Type_commit(&turns));
  OK(MPI_File_set_view(fh, where * (MPI_Offset)sizeof(int), MPI_INT, turns, "native",
                       MPI_INFO_NULL));
  for (int i = 0; i < PIECES; i++)
    is[i] = i * total + where;
  OK(MPI_File_write_all(fh, is, PIECES, MPI_INT, MPI_STATUS_IGNORE));
  memset(is, 1, sizeof is);
  OK(MPI_File_iread_at_all(fh, 0, is, PIECES, MPI_INT, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  for (int i = 0; i < PIECES; i++)
    SAME(is[i], i * total + where);
  OK(MPI_Type_free(&turns));
  OK(MPI_File_set_size(fh, 100));
  OK(MPI_File_get_size(fh, &size));
  SAME(size, 100);
  OK(MPI_File_close(&fh));
  MPI_Barrier(merged);
  CHECK(access(path, F_OK) != 0, "%s has not been deleted", path);
}

// What works on an intercommunicator whose remote group has `remote` ranks.
UNUSED static void use(MPI_Comm inter, int low) {
  int mine, others, remote, flag;
  MPI_Comm_test_inter(inter, &flag);
  SAME(!!(flag), 1);
  MPI_Comm_rank(inter, &mine);
  MPI_Comm_size(inter, &others);
  MPI_Comm_remote_size(inter, &remote);
  // Each rank sends to each remote rank, short and long.
  for (int len = 1; len <= 1 << 20; len <<= 10) {
    char *out = malloc(len), *in = malloc((size_t)len * remote);
    memset(out, low ? mine + 1 : 100 + mine, len);
    MPI_Request *requests = malloc(2 * remote * sizeof *requests);
    for (int i = 0; i < remote; i++) {
      MPI_Irecv(in + (size_t)i * len, len, MPI_CHAR, i, 7, inter, &requests[i]);
      MPI_Isend(out, len, MPI_CHAR, i, 7, inter, &requests[remote + i]);
    }
    MPI_Waitall(2 * remote, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < remote; i++) {
      SAME(in[(size_t)i * len], (low ? 100 + i : i + 1));
      SAME(in[(size_t)i * len + len - 1], (low ? 100 + i : i + 1));
    }
    free(out), free(in), free(requests);
  }
  MPI_Barrier(inter);
  int value = low ? 10 + mine : 1000 + mine, sum = 0, expected = 0;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, inter);
  for (int i = 0; i < remote; i++)
    expected += low ? 1000 + i : 10 + i;
  SAME(sum, expected);
  int word = low && mine == 0 ? 4711 : 0;
  MPI_Bcast(&word, 1, MPI_INT, low ? (mine == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0, inter);
  SAME(!!(word == (low && mine ? 0 : 4711)), 1);
  int *all = malloc(remote * sizeof *all);
  MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, inter);
  for (int i = 0; i < remote; i++)
    SAME(all[i], (low ? 1000 + i : 10 + i));
  free(all);

  // A duplicate, also non-blocking, and a split.
  MPI_Comm dup, idup, half;
  MPI_Request request;
  MPI_Comm_dup(inter, &dup);
  MPI_Comm_idup(inter, &idup, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(dup);
  MPI_Barrier(idup);
  MPI_Comm_free(&dup);
  MPI_Comm_free(&idup);
  MPI_Comm_split(inter, mine == 0 ? 0 : MPI_UNDEFINED, 0, &half);
  if (mine == 0) {
    int got = -1;
    MPI_Sendrecv(&value, 1, MPI_INT, 0, 1, &got, 1, MPI_INT, 0, 1, half, MPI_STATUS_IGNORE);
    SAME(got, (low ? 1000 : 10));
    MPI_Comm_free(&half);
  }

  // Merged: an ordinary communicator, with windows.
  MPI_Comm merged;
  int where, total;
  MPI_Intercomm_merge(inter, !low, &merged);
  MPI_Comm_rank(merged, &where);
  MPI_Comm_size(merged, &total);
  SAME(!!(total == others + remote && where == (low ? mine : remote + mine)), 1);
  sum = 0;
  MPI_Allreduce(&where, &sum, 1, MPI_INT, MPI_SUM, merged);
  SAME(sum, total * (total - 1) / 2);
  MPI_Comm turned;
  MPI_Comm_split(merged, where % 2, -where, &turned);
  MPI_Barrier(turned);
  MPI_Comm_free(&turned);
  int *memory;
  MPI_Win win;
  MPI_Win_allocate(total * sizeof *memory, sizeof *memory, MPI_INFO_NULL, merged, &memory, &win);
  memset(memory, 0, total * sizeof *memory);
  MPI_Win_fence(0, win);
  for (int i = 0; i < total; i++) {
    int mark = 1 + where * 100 + i;
    MPI_Put(&mark, 1, MPI_INT, i, where, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
  }
  for (int i = 0; i < total; i++)
    SAME(memory[i], 1 + i * 100 + where);
  MPI_Win_free(&win);
  MPI_Comm node;
  MPI_Comm_split_type(merged, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Barrier(node);
  MPI_Comm_free(&node);
  use_files(merged, where, total);
  MPI_Comm_free(&merged);
}

#endif

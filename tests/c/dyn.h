/* What must work on an intercommunicator, however the two groups have met. */
#ifndef FERRY_TESTS_DYN_H
#define FERRY_TESTS_DYN_H

#include "check.h"

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
  MPI_Comm_free(&merged);
}

#endif

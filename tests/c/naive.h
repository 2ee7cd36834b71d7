/* Collectives as a child would write them, of sends and receives only: what the real ones are
 * compared with. All run on a communicator of their own, so that they can never mix with what is
 * tested. */
#ifndef FERRY_TESTS_NAIVE_H
#define FERRY_TESTS_NAIVE_H

#include "check.h"

/* One message's end: where, how many of which type. A negative count stands for no message at all.
 */
typedef struct {
    void *at;
    int count;
    MPI_Datatype type;
} Part;

/* Everybody sends out[i] to rank i of the remote group (the group itself for an intracommunicator)
 * and receives in[i]. */
UNUSED static void naive_exchange(MPI_Comm comm, int peers, const Part *out, const Part *in)
{
    MPI_Request *requests = malloc((size_t)(2 * peers) * sizeof *requests);
    int n = 0;
    for (int i = 0; i < peers; i++)
        if (in[i].count >= 0)
            OK(MPI_Irecv(in[i].at, in[i].count, in[i].type, i, 0, comm, &requests[n++]));
    for (int i = 0; i < peers; i++)
        if (out[i].count >= 0)
            OK(MPI_Isend(out[i].at, out[i].count, out[i].type, i, 0, comm, &requests[n++]));
    OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
    free(requests);
}

/* into = inputs[first] op inputs[first + 1] op ... op inputs[last], in the order of ranks. */
UNUSED static void naive_fold(void *const *inputs, int first, int last, void *into, size_t bytes,
                              int count, MPI_Datatype type, MPI_Op op)
{
    memcpy(into, inputs[last], bytes);
    for (int i = last - 1; i >= first; i--)
        OK(MPI_Reduce_local(inputs[i], into, count, type, op));
}

UNUSED static Part *no_parts(int peers)
{
    Part *parts = malloc((size_t)peers * sizeof *parts);
    for (int i = 0; i < peers; i++)
        parts[i] = (Part){NULL, -1, MPI_BYTE};
    return parts;
}

#endif

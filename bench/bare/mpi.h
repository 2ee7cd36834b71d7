/* The few calls of MPI that latency.c and bandwidth.c make, without MPI: see bare.c. */
#ifndef FERRY_BENCH_BARE_H
#define FERRY_BENCH_BARE_H

#define MPI_COMM_WORLD 0
#define MPI_BYTE 1
#define MPI_DOUBLE 2
#define MPI_UINT64_T 3
#define MPI_MAX 0
#define MPI_STATUS_IGNORE ((void *)0)
#define MPI_STATUSES_IGNORE ((void *)0)

typedef struct {
    char *at;       /* what is left: where, bytes */
    unsigned long left;
    int peer, sends, by_cell, done;
} MPI_Request;

int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);
void MPI_Abort(int comm, int code);
int MPI_Comm_rank(int comm, int *rank);
int MPI_Comm_size(int comm, int *size);
int MPI_Barrier(int comm);
int MPI_Allreduce(const void *in, void *out, int count, int type, int op, int comm);
int MPI_Send(const void *at, int bytes, int type, int peer, int tag, int comm);
int MPI_Recv(void *at, int bytes, int type, int peer, int tag, int comm, void *status);
int MPI_Isend(const void *at, int bytes, int type, int peer, int tag, int comm, MPI_Request *to);
int MPI_Irecv(void *at, int bytes, int type, int peer, int tag, int comm, MPI_Request *to);
int MPI_Test(MPI_Request *request, int *done, void *status);
int MPI_Waitall(int count, MPI_Request *requests, void *statuses);

#endif

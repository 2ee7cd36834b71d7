/* What a message and one-sided operations take between two ranks (scripts/papers).
 *     onesided ROUNDS BYTES ...
 * Rank 0 writes lines "way,bytes,us". Buffers lie in ordinary memory at a page, windows where
 * MPI_Win_allocate puts them. Ways, one way each:
 *   message    MPI_Send and MPI_Recv
 *   put        MPI_Put, MPI_Win_flush; the target looks for the last byte (MPI_Win_sync)
 *   pscw       MPI_Put between MPI_Win_start and MPI_Win_complete; MPI_Win_post and MPI_Win_wait
 *   fence      MPI_Put between two MPI_Win_fence
 *   flush      MPI_Put and MPI_Win_flush, until the origin knows that the bytes are there; the
 *              target waits in MPI_Barrier
 *   get        MPI_Get and MPI_Win_flush, in the same way
 *   column     MPI_Put of blocks of 8 bytes at every 64th byte, and MPI_Win_flush
 *   column by message   the same sent and received
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8, STRIDE = 64 };

static int me, peer, bytes;
static unsigned char *window, *buffer;
static MPI_Win win;
static MPI_Group peers;
static MPI_Datatype column;

static void send(int round)
{
    buffer[bytes - 1] = (unsigned char)round;
    MPI_Send(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
}

static void receive(int round)
{
    (void)round;
    MPI_Recv(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void put(int round)
{
    buffer[bytes - 1] = (unsigned char)round;
    MPI_Put(buffer, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, win);
}

static void put_and_flush(int round)
{
    put(round);
    MPI_Win_flush(peer, win);
}

static void look(int round)
{
    volatile unsigned char *last = window + bytes - 1;
    while (*last != (unsigned char)round)
        MPI_Win_sync(win);
}

static void put_and_complete(int round)
{
    MPI_Win_start(peers, 0, win);
    put(round);
    MPI_Win_complete(win);
}

static void expose(int round)
{
    (void)round;
    MPI_Win_post(peers, 0, win);
    MPI_Win_wait(win);
}

static void put_and_fence(int round)
{
    put(round);
    MPI_Win_fence(0, win);
}

static void fence(int round)
{
    (void)round;
    MPI_Win_fence(0, win);
}

static void get(int round)
{
    (void)round;
    MPI_Get(buffer, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, win);
    MPI_Win_flush(peer, win);
}

static void put_column(int round)
{
    (void)round;
    MPI_Put(buffer, bytes, MPI_BYTE, peer, 0, 1, column, win);
    MPI_Win_flush(peer, win);
}

static void receive_column(int round)
{
    (void)round;
    MPI_Recv(window, 1, column, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* There and back; one way's time. Without `other` rank 0 alone works. */
static void measure(const char *way, int rounds, void (*mine)(int), void (*other)(int))
{
    double began = 0;
    memset(window, 0, (size_t)bytes / BLOCK * STRIDE);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round <= rounds; round++) {
        if (round == 1)
            began = MPI_Wtime();
        if (me == 0)
            mine(round + 1);
        if (other)
            other(round + 1);
        if (me == 1 && other)
            mine(round + 1);
    }
    double us = (MPI_Wtime() - began) / rounds * 1e6;
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0)
        printf("%s,%d,%.3f\n", way, bytes, other ? us / 2 : us);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    peer = 1 - me;
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &peer, &peers);
    for (int i = 2; i < argc; i++) {
        bytes = atoi(argv[i]);
        MPI_Aint length = (MPI_Aint)bytes / BLOCK * STRIDE;
        MPI_Win_allocate(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
        if (posix_memalign((void **)&buffer, 4096, (size_t)bytes) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_Type_vector(bytes / BLOCK, BLOCK, STRIDE, MPI_BYTE, &column);
        MPI_Type_commit(&column);
        measure("message", rounds, send, receive);
        measure("column by message", rounds, send, receive_column);
        MPI_Win_fence(0, win);
        measure("fence", rounds, put_and_fence, fence);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        measure("pscw", rounds, put_and_complete, expose);
        MPI_Win_lock_all(0, win);
        measure("put", rounds, put_and_flush, look);
        measure("flush", rounds, put_and_flush, NULL);
        measure("get", rounds, get, NULL);
        measure("column", rounds, put_column, NULL);
        MPI_Win_unlock_all(win);
        MPI_Type_free(&column);
        free(buffer);
        MPI_Win_free(&win);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&peers);
    return MPI_Finalize();
}

/* What the machine can do without MPI, for the rows where an MPI falls short of its aim: the same
 * benchmarks on bare shared memory. Nothing is matched, checked or waited for beyond what moves the
 * bytes: both sides know each message's length, messages of a pair come in order, and a process
 * serves one peer at a time. A limit, then, not an MPI.
 *
 *     cc -O2 -Ibench/bare bench/latency.c bench/bare/bare.c -o latency
 *     BARE_COPIES=1 ./latency 2
 *
 * Messages of up to 48 bytes go in cells of one cache line, longer ones through a ring of bytes, or
 * (BARE_COPIES=1) the receiver reads them out of the sender's memory (process_vm_readv). The first
 * process makes the others by fork; each has a core to itself if there are enough, and else gives
 * its core away (sched_yield) whenever it finds nothing to do. */
#define _GNU_SOURCE
#include "mpi.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CELLS = 256, CELL_BYTES = 48, RING_BYTES = 1 << 17, PIECE_BYTES = 1 << 14, MOST_RANKS = 32 };

/* A message, or where a long one is: `turn` tells which lap of the ring wrote it. */
struct cell {
    _Alignas(64) char data[CELL_BYTES];
    _Atomic uint64_t turn;
};

/* From one process to another. */
struct channel {
    struct cell cells[CELLS];
    _Alignas(128) _Atomic uint64_t cells_read;
    _Alignas(128) _Atomic uint64_t written; /* bytes of the ring */
    _Alignas(128) _Atomic uint64_t read;
    _Alignas(128) _Atomic uint64_t messages_read; /* those read out of the sender's memory */
    _Alignas(4096) char ring[RING_BYTES];
};

/* What this process knows of a channel without looking. */
struct position {
    uint64_t next_cell, cells_read, done_bytes, known_bytes, announced;
};

struct shared {
    _Alignas(64) _Atomic int arrived;
    _Alignas(64) _Atomic int epoch;
    pid_t process[MOST_RANKS];
    _Alignas(64) uint64_t values[MOST_RANKS][8];
    struct channel channels[];
};

static struct shared *shared;
static struct position out[MOST_RANKS], in[MOST_RANKS];
/* Receives and sends of each peer that are not done. */
static int waiting[2][MOST_RANKS];
static int me, size = 2, gives_core_away, one_copy;

static struct channel *channel(int from, int to)
{
    return &shared->channels[from * size + to];
}

static void idle(void)
{
    if (gives_core_away)
        sched_yield();
    else
        __builtin_ia32_pause();
}

int MPI_Init(int *argc, char ***argv)
{
    cpu_set_t cores;
    if (*argc > 1)
        size = atoi((*argv)[1]);
    one_copy = getenv("BARE_COPIES") && atoi(getenv("BARE_COPIES")) == 1;
    if (size < 1 || size > MOST_RANKS)
        MPI_Abort(0, 2);
    size_t bytes = sizeof *shared + (size_t)size * size * sizeof(struct channel);
    shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || sched_getaffinity(0, sizeof cores, &cores))
        MPI_Abort(0, 1);
    for (int rank = 1; rank < size && me == 0; rank++) {
        pid_t child = fork();
        if (child < 0)
            MPI_Abort(0, 1);
        if (child == 0)
            me = rank;
    }
    shared->process[me] = getpid();
    gives_core_away = size > CPU_COUNT(&cores);
    if (!gives_core_away) {
        int core = 0;
        for (int left = me; !CPU_ISSET(core, &cores) || left-- > 0;)
            core++;
        CPU_ZERO(&cores);
        CPU_SET(core, &cores);
        sched_setaffinity(0, sizeof cores, &cores);
    }
    return MPI_Barrier(0);
}

int MPI_Finalize(void)
{
    MPI_Barrier(0);
    while (me == 0 && wait(NULL) > 0)
        ;
    return 0;
}

void MPI_Abort(int comm, int code)
{
    (void)comm;
    perror("bare");
    exit(code);
}

int MPI_Comm_rank(int comm, int *rank)
{
    (void)comm;
    *rank = me;
    return 0;
}

int MPI_Comm_size(int comm, int *count)
{
    (void)comm;
    *count = size;
    return 0;
}

int MPI_Barrier(int comm)
{
    (void)comm;
    int epoch = atomic_load(&shared->epoch);
    if (atomic_fetch_add(&shared->arrived, 1) == size - 1) {
        atomic_store(&shared->arrived, 0);
        atomic_store(&shared->epoch, epoch + 1);
    }
    while (atomic_load(&shared->epoch) == epoch)
        idle();
    return 0;
}

/* The greatest of each element. */
int MPI_Allreduce(const void *mine, void *all, int count, int type, int op, int comm)
{
    (void)op, (void)comm;
    memcpy(shared->values[me], mine, 8 * (size_t)count);
    MPI_Barrier(0);
    for (int i = 0; i < count; i++) {
        uint64_t best = shared->values[0][i];
        for (int rank = 1; rank < size; rank++) {
            uint64_t other = shared->values[rank][i];
            double a, b;
            memcpy(&a, &best, 8), memcpy(&b, &other, 8);
            if (type == MPI_DOUBLE ? b > a : other > best)
                best = other;
        }
        memcpy((char *)all + 8 * i, &best, 8);
    }
    return MPI_Barrier(0);
}

/* Writes a cell if one is free. */
static int put_cell(int to, const void *at, size_t bytes)
{
    struct channel *c = channel(me, to);
    struct position *p = &out[to];
    if (p->next_cell - p->cells_read == CELLS) {
        p->cells_read = atomic_load_explicit(&c->cells_read, memory_order_acquire);
        if (p->next_cell - p->cells_read == CELLS)
            return 0;
    }
    struct cell *cell = &c->cells[p->next_cell++ % CELLS];
    memcpy(cell->data, at, bytes);
    atomic_store_explicit(&cell->turn, p->next_cell, memory_order_release);
    return 1;
}

static int take_cell(int from, void *at, size_t bytes)
{
    struct channel *c = channel(from, me);
    struct position *p = &in[from];
    struct cell *cell = &c->cells[p->next_cell % CELLS];
    if (atomic_load_explicit(&cell->turn, memory_order_acquire) != p->next_cell + 1)
        return 0;
    memcpy(at, cell->data, bytes);
    if (++p->next_cell % (CELLS / 4) == 0)
        atomic_store_explicit(&c->cells_read, p->next_cell, memory_order_release);
    return 1;
}

/* Writes or reads a piece of a ring, at most up to its end. */
static size_t piece_of(uint64_t position, uint64_t there, uint64_t left)
{
    uint64_t piece = left < there ? left : there;
    uint64_t to_end = RING_BYTES - position % RING_BYTES;
    piece = piece < to_end ? piece : to_end;
    return piece < PIECE_BYTES ? piece : PIECE_BYTES;
}

static void put_piece(MPI_Request *r)
{
    struct channel *c = channel(me, r->peer);
    struct position *p = &out[r->peer];
    uint64_t room = RING_BYTES - (p->done_bytes - p->known_bytes);
    if (room < r->left && room < PIECE_BYTES) {
        p->known_bytes = atomic_load_explicit(&c->read, memory_order_acquire);
        room = RING_BYTES - (p->done_bytes - p->known_bytes);
    }
    size_t piece = piece_of(p->done_bytes, room, r->left);
    if (piece == 0)
        return;
    memcpy(c->ring + p->done_bytes % RING_BYTES, r->at, piece);
    p->done_bytes += piece, r->at += piece, r->left -= piece;
    atomic_store_explicit(&c->written, p->done_bytes, memory_order_release);
    r->done = r->left == 0;
}

static void take_piece(MPI_Request *r)
{
    struct channel *c = channel(r->peer, me);
    struct position *p = &in[r->peer];
    if (p->known_bytes == p->done_bytes)
        p->known_bytes = atomic_load_explicit(&c->written, memory_order_acquire);
    size_t piece = piece_of(p->done_bytes, p->known_bytes - p->done_bytes, r->left);
    if (piece == 0)
        return;
    memcpy(r->at, c->ring + p->done_bytes % RING_BYTES, piece);
    p->done_bytes += piece, r->at += piece, r->left -= piece;
    atomic_store_explicit(&c->read, p->done_bytes, memory_order_release);
    r->done = r->left == 0;
}

/* Says where a long message is, and then waits until the other has read it. `left` becomes the
 * number of the message. */
static void offer(MPI_Request *r)
{
    struct position *p = &out[r->peer];
    if (r->at) {
        while (!put_cell(r->peer, &r->at, sizeof r->at))
            idle();
        r->at = NULL, r->left = ++p->announced;
    }
    if (p->known_bytes < r->left)
        p->known_bytes =
            atomic_load_explicit(&channel(me, r->peer)->messages_read, memory_order_acquire);
    r->done = p->known_bytes >= r->left;
}

static void fetch(MPI_Request *r)
{
    struct channel *c = channel(r->peer, me);
    char *there;
    if (!take_cell(r->peer, &there, sizeof there))
        return;
    struct iovec to = {r->at, r->left}, from = {there, r->left};
    while (to.iov_len) {
        ssize_t got = process_vm_readv(shared->process[r->peer], &to, 1, &from, 1, 0);
        if (got <= 0)
            MPI_Abort(0, 1);
        to.iov_base = (char *)to.iov_base + got, to.iov_len -= (size_t)got;
        from.iov_base = (char *)from.iov_base + got, from.iov_len -= (size_t)got;
    }
    atomic_fetch_add_explicit(&c->messages_read, 1, memory_order_release);
    r->done = 1;
}

/* Does what can be done of it now. */
static int advance(MPI_Request *r)
{
    if (r->by_cell)
        r->done = r->sends ? put_cell(r->peer, r->at, r->left) : take_cell(r->peer, r->at, r->left);
    else if (one_copy)
        r->sends ? offer(r) : fetch(r);
    else
        r->sends ? put_piece(r) : take_piece(r);
    return r->done;
}

static void start(MPI_Request *r, char *at, size_t bytes, int peer, int sends)
{
    *r = (MPI_Request){at, bytes, peer, sends, bytes <= CELL_BYTES, 0};
    /* One after the other: it begins if nothing before it is left. But all that are read in place
     * are offered at once. */
    int begins = waiting[sends][peer] == 0 || (one_copy && sends && !r->by_cell);
    if (begins && advance(r))
        return;
    waiting[sends][peer]++;
}

/* Advances one that has begun to wait. */
static int complete(MPI_Request *r)
{
    if (r->done)
        return 1;
    if (!advance(r))
        return 0;
    waiting[r->sends][r->peer]--;
    return 1;
}

int MPI_Isend(const void *at, int bytes, int type, int peer, int tag, int comm, MPI_Request *r)
{
    (void)type, (void)tag, (void)comm;
    start(r, (char *)at, (size_t)bytes, peer, 1);
    return 0;
}

int MPI_Irecv(void *at, int bytes, int type, int peer, int tag, int comm, MPI_Request *r)
{
    (void)type, (void)tag, (void)comm;
    start(r, at, (size_t)bytes, peer, 0);
    return 0;
}

int MPI_Test(MPI_Request *request, int *done, void *status)
{
    (void)status;
    *done = complete(request);
    if (!*done)
        idle();
    return 0;
}

/* The requests of each direction are in order and of one peer. */
int MPI_Waitall(int count, MPI_Request *requests, void *statuses)
{
    (void)statuses;
    int next[2] = {0, 0};
    for (;;) {
        int before = next[0] + next[1];
        for (int sends = 0; sends < 2; sends++)
            for (; next[sends] < count; next[sends]++)
                if (requests[next[sends]].sends == sends && !complete(&requests[next[sends]]))
                    break;
        if (next[0] == count && next[1] == count)
            return 0;
        if (next[0] + next[1] == before)
            idle();
    }
}

int MPI_Send(const void *at, int bytes, int type, int peer, int tag, int comm)
{
    MPI_Request r;
    MPI_Isend(at, bytes, type, peer, tag, comm, &r);
    while (!complete(&r))
        idle();
    return 0;
}

int MPI_Recv(void *at, int bytes, int type, int peer, int tag, int comm, void *status)
{
    (void)status;
    MPI_Request r;
    MPI_Irecv(at, bytes, type, peer, tag, comm, &r);
    while (!complete(&r))
        idle();
    return 0;
}

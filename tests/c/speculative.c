// ranks: 2 3 4
// run:
// run: pieces
/* Speculative rendezvous: large messages between ranks whose receives were posted before so far.
 * Then receives that are posted late, are too short, are probed for, or are for any source. What is
 * received, and in which order, must be the same. `pieces`: on one node large messages go by
 * pipelined copy, even if single copy is faster here, so they are sent without RTS, too. */
#include "check.h"

enum { ROUNDS = 24, MOST = 1 << 20, KEEPS_UP = 7, TAG = 5, READY = 6, SENT = 7 };

static unsigned char *out, *in;

static size_t size_of(Random *r, int class)
{
    static const size_t around[] = {65536, 100000, 262144, 700000, 1000000};
    return around[class] + (size_t)random_below(r, 4096);
}

/* The buffer is used again at once: what arrives must be what it held. */
static void send(size_t bytes, uint64_t seed, int tag, int peer, int how)
{
    fill(out, bytes, seed);
    if (how == 0)
        OK(MPI_Send(out, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD));
    else if (how == 1)
        OK(MPI_Ssend(out, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD));
    else {
        MPI_Request request;
        OK(MPI_Isend(out, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    memset(out, 0, bytes);
}

/* Receives that are there when their message comes. */
static void keep_up(Random *shared, int peer)
{
    int class = (int)random_below(shared, 5);
    for (int i = 0; i < KEEPS_UP; i++) {
        size_t bytes = size_of(shared, class);
        int turn = i % 2 == (world_rank > peer);
        if (turn) {
            OK(MPI_Recv(NULL, 0, MPI_BYTE, peer, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            send(bytes, bytes, TAG, peer, 0);
        } else {
            MPI_Request request;
            OK(MPI_Irecv(in, MOST + 4096, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
            OK(MPI_Send(NULL, 0, MPI_BYTE, peer, READY, MPI_COMM_WORLD));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            FILLED(in, bytes, bytes);
        }
    }
}

/* Messages of the same tag, in their order, and how they are received. */
static void be_late(Random *shared, int peer)
{
    enum { EACH = 4 };
    int sends = random_below(shared, 2) == (world_rank > peer);
    int how[EACH], ways[EACH];
    size_t bytes[EACH];
    for (int k = 0; k < EACH; k++) {
        bytes[k] = k % 2 == 0 ? size_of(shared, (int)random_below(shared, 5))
                              : (size_t)random_below(shared, 5000);
        how[k] = random_below(shared, 3), ways[k] = random_below(shared, 5);
    }
    if (sends) {
        OK(MPI_Send(NULL, 0, MPI_BYTE, peer, SENT, MPI_COMM_WORLD));
        for (int k = 0; k < EACH; k++)
            send(bytes[k], (uint64_t)k, TAG, peer, how[k]);
        return;
    }
    OK(MPI_Recv(NULL, 0, MPI_BYTE, peer, SENT, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int k = 0; k < EACH; k++) {
        MPI_Status status = {.MPI_SOURCE = -5};
        MPI_Message message;
        int there = 0, count = -1, wanted = (int)bytes[k], room = MOST + 4096;
        memset(in, 0, bytes[k]);
        switch (ways[k]) {
        case 0: /* It may have come in part. */
            for (int i = 0; i < 50; i++)
                OK(MPI_Iprobe(peer, 12345, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE));
            OK(MPI_Recv(in, room, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status));
            break;
        case 1:
            OK(MPI_Probe(peer, TAG, MPI_COMM_WORLD, &status));
            OK(MPI_Get_count(&status, MPI_BYTE, &count));
            SAME(count, wanted);
            OK(MPI_Recv(in, count, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status));
            break;
        case 2:
            OK(MPI_Mprobe(peer, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
            OK(MPI_Mrecv(in, room, MPI_BYTE, &message, &status));
            break;
        case 3: { /* The beginning alone. */
            room = wanted / 2;
            int code = MPI_Recv(in, room, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status),
                class = MPI_SUCCESS;
            OK(MPI_Error_class(code, &class));
            SAME(class, wanted > room ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
            wanted = room;
            break;
        }
        default:
            OK(MPI_Recv(in, room, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        }
        if (ways[k] != 3) {
            SAME(status.MPI_SOURCE, peer);
            SAME(status.MPI_TAG, TAG);
            OK(MPI_Get_count(&status, MPI_BYTE, &count));
            SAME(count, wanted);
        }
        FILLED(in, (size_t)wanted, (uint64_t)k);
    }
}

/* How many messages of this rank's have been announced. */
static unsigned long long announced(MPI_T_pvar_session session, MPI_T_pvar_handle handle)
{
    unsigned long long n = ~0ull;
    SAME(MPI_T_pvar_read(session, handle, &n), MPI_SUCCESS);
    return n;
}

/* Of messages in a row for which the receives are there the first two are announced, and then no
 * more. */
static void asks_no_more(int peer)
{
    enum { MESSAGES = 12, BYTES = 262144 };
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    int provided, index, count;
    SAME(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), MPI_SUCCESS);
    SAME(MPI_T_pvar_session_create(&session), MPI_SUCCESS);
    SAME(MPI_T_pvar_get_index("sent_announced", MPI_T_PVAR_CLASS_COUNTER, &index), MPI_SUCCESS);
    SAME(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count), MPI_SUCCESS);
    SAME(MPI_T_pvar_start(session, handle), MPI_SUCCESS);
    unsigned long long before = announced(session, handle);
    for (int i = 0; i < MESSAGES; i++) {
        if (world_rank < peer) {
            OK(MPI_Recv(NULL, 0, MPI_BYTE, peer, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            send(BYTES, (uint64_t)i, TAG, peer, 0);
        } else {
            MPI_Request request;
            OK(MPI_Irecv(in, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
            OK(MPI_Send(NULL, 0, MPI_BYTE, peer, READY, MPI_COMM_WORLD));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            FILLED(in, BYTES, (uint64_t)i);
        }
    }
    SAME(announced(session, handle) - before, world_rank < peer ? 2ull : 0ull);
    SAME(MPI_T_pvar_session_free(&session), MPI_SUCCESS);
    SAME(MPI_T_finalize(), MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    int pieces = argc > 1 && strcmp(argv[1], "pieces") == 0;
    if (pieces)
        setenv("FERRY_SHM_READ_MIN", "1000000000", 1);
    check_begin(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    out = malloc(MOST + 4096), in = malloc(MOST + 4096);
    int peer = world_rank ^ 1;
    Random shared = random_from((uint64_t)(world_rank / 2));
    /* Neither on a modelled machine, nor where a progress thread sends, nor where messages may
     * overlap with what follows. */
    int may = !getenv("TEST_MACHINE") && !getenv("FERRY_PROGRESS") && !getenv("FERRY_OVERLAP");
    if (pieces && may && peer < world_size)
        asks_no_more(peer);
    for (int round = 0; round < ROUNDS && peer < world_size; round++) {
        keep_up(&shared, peer);
        be_late(&shared, peer);
    }
    free(out), free(in);
    return check_end();
}

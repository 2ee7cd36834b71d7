/* MPI_T performance variables: exact counts after known traffic, sessions, handles, starting,
 * stopping, resetting. */
// ranks: 1 2 3 4 7
#include "check.h"

#define CODE(call, wanted) SAME(call, wanted)

typedef unsigned long long Number;

static MPI_T_pvar_session session;

/* The variable of that name, whatever its class. */
static int find(const char *name, int *class)
{
    int n = -1;
    CODE(MPI_T_pvar_get_num(&n), MPI_SUCCESS);
    for (int i = 0; i < n; i++) {
        char is[256];
        int room = sizeof is;
        CODE(MPI_T_pvar_get_info(i, is, &room, NULL, class, NULL, NULL, NULL, NULL, NULL, NULL,
                                 NULL, NULL),
             MPI_SUCCESS);
        if (strcmp(is, name) == 0)
            return i;
    }
    FAIL("there is no variable %s", name);
    return 0;
}

static MPI_T_pvar_handle handle_of(const char *name, MPI_Comm comm)
{
    int class = -1, count = -1;
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    CODE(MPI_T_pvar_handle_alloc(session, find(name, &class), &comm, &handle, &count), MPI_SUCCESS);
    SAME(count, 1);
    return handle;
}

static Number value_of(MPI_T_pvar_handle handle)
{
    Number value = ~0ull;
    CODE(MPI_T_pvar_read(session, handle, &value), MPI_SUCCESS);
    return value;
}

enum { SMALL = 100, LARGE = 1 << 20, TIMES = 5 };

/* Which transport carries messages between this job's ranks: all are on one node. */
static const char *wire(void)
{
    const char *set = getenv("FERRY_TRANSPORTS");
    if (getenv("TEST_MACHINE"))
        return "model";
    return set && strstr(set, "tcp") && !strstr(set, "shm") ? "tcp" : "shm";
}

/* A handle for `wire()`'s variable of this name. */
static MPI_T_pvar_handle wire_handle(const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s", wire(), what);
    return handle_of(name, MPI_COMM_NULL);
}

/* Each rank sends TIMES small messages and one large one to the next, and as many to itself. */
static void traffic(void)
{
    static char in[LARGE], own[LARGE], out[LARGE];
    MPI_T_pvar_handle sent = wire_handle("messages_sent"), sent_bytes = wire_handle("bytes_sent");
    MPI_T_pvar_handle got = wire_handle("messages_received"),
                      got_bytes = wire_handle("bytes_received");
    MPI_T_pvar_handle self = handle_of("self_messages_sent", MPI_COMM_NULL),
                      self_got = handle_of("self_bytes_received", MPI_COMM_NULL);
    MPI_T_pvar_handle eager = handle_of("sent_eager", MPI_COMM_NULL),
                      announced = handle_of("sent_announced", MPI_COMM_NULL);
    MPI_T_pvar_handle came = handle_of("received_announced", MPI_COMM_NULL),
                      idle = handle_of("sleeps", MPI_COMM_NULL);
    int next = ring(1), last = ring(-1);
    /* Nobody sends before all count, nor anything else before all have stopped. After a few
     * barriers they need no messages. */
    for (int i = 0; i < 4; i++)
        OK(MPI_Barrier(MPI_COMM_WORLD));
    CODE(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES), MPI_SUCCESS);
    CODE(MPI_T_pvar_stop(session, idle), MPI_SUCCESS);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < TIMES; i++) {
        MPI_Request r[2];
        OK(MPI_Irecv(in, SMALL, MPI_CHAR, last, i, MPI_COMM_WORLD, &r[0]));
        OK(MPI_Irecv(own, SMALL, MPI_CHAR, 0, i, MPI_COMM_SELF, &r[1]));
        OK(MPI_Send(out, SMALL, MPI_CHAR, next, i, MPI_COMM_WORLD));
        OK(MPI_Send(out, SMALL, MPI_CHAR, 0, i, MPI_COMM_SELF));
        OK(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    }
    OK(MPI_Sendrecv(out, LARGE, MPI_CHAR, next, 7, in, LARGE, MPI_CHAR, last, 7, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    OK(MPI_Sendrecv(out, LARGE, MPI_CHAR, 0, 7, own, LARGE, MPI_CHAR, 0, 7, MPI_COMM_SELF,
                    MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    CODE(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES), MPI_SUCCESS);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int own_ring = world_size == 1; /* then the next rank is this one */
    int n = TIMES + 1;
    Number bytes = TIMES * SMALL + LARGE;
    /* Barriers need no messages in shared memory. Elsewhere the two counted ones do, without a byte
     * in them: of each at most two with every other rank. */
    Number more = strcmp(wire(), "shm") == 0 ? 0 : 4 * (Number)(world_size - 1);
    Number wired = own_ring ? 0 : n;
    CHECK(value_of(sent) >= wired && value_of(sent) <= wired + more, "%llu messages sent, not %llu",
          value_of(sent), wired);
    CHECK(value_of(got) >= wired && value_of(got) <= wired + more,
          "%llu messages received, not %llu", value_of(got), wired);
    SAME(value_of(sent_bytes), own_ring ? 0 : bytes);
    SAME(value_of(got_bytes), own_ring ? 0 : bytes);
    SAME(value_of(self), own_ring ? 2 * n : n);
    SAME(value_of(self_got), own_ring ? 2 * bytes : bytes);
    SAME(value_of(eager) + value_of(announced), value_of(sent) + value_of(self));
    SAME(value_of(came), value_of(announced));
    CHECK(own_ring || value_of(announced) >= 1, "no large message was announced");
    /* Stopped: more messages change nothing. Reset: zero. Started again: from there on. */
    MPI_T_pvar_handle one = own_ring ? self : sent;
    Number stood = value_of(one);
    OK(MPI_Sendrecv(out, 8, MPI_CHAR, next, 8, in, 8, MPI_CHAR, last, 8, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    Number before = value_of(one), value = 0;
    SAME(before, stood);
    CODE(MPI_T_pvar_start(session, one), MPI_SUCCESS);
    OK(MPI_Sendrecv(out, 8, MPI_CHAR, next, 8, in, 8, MPI_CHAR, last, 8, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    SAME(value_of(one), before + 1);
    CODE(MPI_T_pvar_readreset(session, one, &value), MPI_SUCCESS);
    SAME(value, before + 1);
    SAME(value_of(one), 0);
    value = 1000;
    CODE(MPI_T_pvar_write(session, one, &value), MPI_SUCCESS);
    OK(MPI_Sendrecv(out, 8, MPI_CHAR, next, 8, in, 8, MPI_CHAR, last, 8, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    SAME(value_of(one), 1001);
    CODE(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES), MPI_SUCCESS);
    SAME(value_of(one), 0);
    SAME(value_of(eager), 0);
    MPI_T_pvar_handle freed = idle;
    CODE(MPI_T_pvar_handle_free(session, &idle), MPI_SUCCESS);
    SAME(idle == MPI_T_PVAR_HANDLE_NULL, 1);
    CODE(MPI_T_pvar_start(session, freed), MPI_T_ERR_INVALID_HANDLE);
}

/* Messages that nobody has asked for yet, on all communicators and on one. */
static void unexpected(void)
{
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_T_pvar_handle length = handle_of("unexpected_queue_length", MPI_COMM_NULL),
                      bytes = handle_of("unexpected_queue_bytes", MPI_COMM_NULL);
    MPI_T_pvar_handle most = handle_of("unexpected_queue_length_max", MPI_COMM_NULL),
                      here = handle_of("comm_unexpected_queue_length", comm);
    MPI_T_pvar_handle posted = handle_of("comm_posted_receives", comm),
                      total = handle_of("unexpected_messages", MPI_COMM_NULL);
    CODE(MPI_T_pvar_start(session, length), MPI_T_ERR_PVAR_NO_STARTSTOP);
    CODE(MPI_T_pvar_stop(session, most), MPI_T_ERR_PVAR_NO_STARTSTOP);
    CODE(MPI_T_pvar_reset(session, length), MPI_T_ERR_PVAR_NO_WRITE);
    Number nothing = 0;
    CODE(MPI_T_pvar_write(session, length, &nothing), MPI_T_ERR_PVAR_NO_WRITE);
    CODE(MPI_T_pvar_readreset(session, length, &nothing), MPI_T_ERR_PVAR_NO_WRITE);
    CODE(MPI_T_pvar_start(session, total), MPI_SUCCESS);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int data[3] = {1, 2, 3}, in = -1, flag = 0;
    for (int i = 0; i < 4; i++)
        OK(MPI_Send(data, 3, MPI_INT, ring(1), i, comm));
    /* The last one is there, so the others are, too. */
    OK(MPI_Probe(ring(-1), 3, comm, MPI_STATUS_IGNORE));
    SAME(value_of(here), 4);
    CHECK(value_of(length) >= 4, "%llu messages wait", value_of(length));
    CHECK(value_of(bytes) >= 4 * sizeof data, "%llu bytes wait", value_of(bytes));
    CHECK(value_of(most) >= value_of(length), "the most is %llu", value_of(most));
    CHECK(value_of(total) >= 4, "%llu messages had no receive", value_of(total));
    for (int i = 0; i < 4; i++)
        OK(MPI_Recv(data, 3, MPI_INT, ring(-1), 3 - i, comm, MPI_STATUS_IGNORE));
    SAME(value_of(here), 0);
    CHECK(value_of(most) >= 4, "the most is %llu", value_of(most));
    MPI_Request r;
    SAME(value_of(posted), 0);
    OK(MPI_Irecv(&in, 1, MPI_INT, ring(-1), 9, comm, &r));
    SAME(value_of(posted), 1);
    OK(MPI_Test(&r, &flag, MPI_STATUS_IGNORE));
    SAME(flag, 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Send(data, 1, MPI_INT, ring(1), 9, comm));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    SAME(value_of(posted), 0);
    CODE(MPI_T_pvar_reset(session, most), MPI_SUCCESS);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Comm_free(&comm));
    /* The handle keeps the communicator. */
    SAME(value_of(here), 0);
}

/* Collectives, by communicator and by algorithm. */
static void collectives(void)
{
    MPI_Comm comm;
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "ferry_coll_allreduce", "ring"));
    OK(MPI_Info_set(info, "ferry_coll_barrier", "messages"));
    OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
    OK(MPI_Info_free(&info));
    MPI_T_pvar_handle called = handle_of("comm_collectives", comm),
                      by_ring = handle_of("coll_by_ring", MPI_COMM_NULL);
    MPI_T_pvar_handle board = handle_of("coll_by_board", MPI_COMM_NULL);
    CODE(MPI_T_pvar_start(session, called), MPI_SUCCESS);
    CODE(MPI_T_pvar_start(session, by_ring), MPI_SUCCESS);
    CODE(MPI_T_pvar_start(session, board), MPI_SUCCESS);
    double in[64] = {1}, out[64];
    for (int i = 0; i < 6; i++) {
        OK(MPI_Allreduce(in, out, 64, MPI_DOUBLE, MPI_SUM, comm));
        SAME(out[0], world_size);
    }
    OK(MPI_Barrier(comm));
    SAME(value_of(called), 7);
    SAME(value_of(by_ring), world_size > 1 ? 6 : value_of(by_ring));
    SAME(value_of(board), 0);
    OK(MPI_Comm_free(&comm));
}

static void waiting(void)
{
    int class = -1, count = -1;
    MPI_T_pvar_handle time;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int index = find("time_waiting", &class);
    SAME(class, MPI_T_PVAR_CLASS_TIMER);
    CODE(MPI_T_pvar_get_info(index, NULL, NULL, NULL, NULL, &type, NULL, NULL, NULL, NULL, NULL,
                             NULL, NULL),
         MPI_SUCCESS);
    SAME(type == MPI_DOUBLE, 1);
    CODE(MPI_T_pvar_handle_alloc(session, index, NULL, &time, &count), MPI_SUCCESS);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    CODE(MPI_T_pvar_start(session, time), MPI_SUCCESS);
    /* Rank 0 lets the others wait for at least a tenth of a second. */
    double began = MPI_Wtime(), waited = -1;
    while (world_rank == 0 && MPI_Wtime() - began < 0.2)
        ;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    double whole = MPI_Wtime() - began;
    CODE(MPI_T_pvar_read(session, time, &waited), MPI_SUCCESS);
    CHECK(waited >= 0 && waited <= whole, "%g of %g seconds were waited", waited, whole);
    CHECK(world_rank == 0 || waited >= whole * 0.5, "only %g of %g seconds were waited", waited,
          whole);
}

static void sessions(void)
{
    MPI_T_pvar_session other = MPI_T_PVAR_SESSION_NULL, old;
    MPI_T_pvar_handle mine = handle_of("sleeps", MPI_COMM_NULL), handle;
    int class = -1, count = -1, index = -1;
    Number value = 0;
    CODE(MPI_T_pvar_session_create(&other), MPI_SUCCESS);
    CODE(MPI_T_pvar_read(other, mine, &value), MPI_T_ERR_INVALID_HANDLE);
    CODE(MPI_T_pvar_read(MPI_T_PVAR_SESSION_NULL, mine, &value), MPI_T_ERR_INVALID_SESSION);
    CODE(MPI_T_pvar_read(session, MPI_T_PVAR_ALL_HANDLES, &value), MPI_T_ERR_INVALID_HANDLE);
    CODE(MPI_T_pvar_read(session, MPI_T_PVAR_HANDLE_NULL, &value), MPI_T_ERR_INVALID_HANDLE);
    CODE(MPI_T_pvar_handle_alloc(other, find("sleeps", &class), NULL, &handle, &count),
         MPI_SUCCESS);
    old = other;
    CODE(MPI_T_pvar_session_free(&other), MPI_SUCCESS);
    SAME(other == MPI_T_PVAR_SESSION_NULL, 1);
    CODE(MPI_T_pvar_start(old, handle), MPI_T_ERR_INVALID_SESSION);
    CODE(MPI_T_pvar_session_free(&old), MPI_T_ERR_INVALID_SESSION);
    CODE(MPI_T_pvar_start(session, handle), MPI_T_ERR_INVALID_HANDLE);
    CODE(MPI_T_pvar_handle_alloc(session, find("comm_collectives", &class), NULL, &handle, &count),
         MPI_T_ERR_INVALID_HANDLE);
    CODE(MPI_T_pvar_handle_alloc(session, -1, NULL, &handle, &count), MPI_T_ERR_INVALID_INDEX);
    CODE(MPI_T_pvar_get_index("sleeps", MPI_T_PVAR_CLASS_COUNTER, &index), MPI_SUCCESS);
    CODE(MPI_T_pvar_get_index("sleeps", MPI_T_PVAR_CLASS_TIMER, &index), MPI_T_ERR_INVALID_NAME);
    CODE(MPI_T_pvar_get_index("sleeps", MPI_T_PVAR_CLASS_STATE, &index), MPI_T_ERR_INVALID_NAME);
}

int main(int argc, char **argv)
{
    int provided = -1;
    CODE(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), MPI_SUCCESS);
    CODE(MPI_T_pvar_session_create(&session), MPI_SUCCESS);
    /* Before MPI_Init there is nothing to count, but a tool may begin. */
    MPI_T_pvar_handle early = handle_of("sent_eager", MPI_COMM_NULL);
    CODE(MPI_T_pvar_start(session, early), MPI_SUCCESS);
    SAME(value_of(early), 0);
    check_begin(&argc, &argv);
    int in = -1;
    OK(MPI_Sendrecv(&world_rank, 1, MPI_INT, ring(1), 0, &in, 1, MPI_INT, ring(-1), 0,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(value_of(early), 1);
    MPI_T_pvar_session first = session;
    CODE(MPI_T_pvar_session_create(&session), MPI_SUCCESS);
    traffic();
    unexpected();
    collectives();
    waiting();
    sessions();
    int status = check_end();
    CODE(MPI_T_pvar_session_free(&session), MPI_SUCCESS);
    session = first;
    CHECK(value_of(early) > TIMES, "counts are gone after MPI_Finalize");
    CODE(MPI_T_pvar_session_free(&session), MPI_SUCCESS);
    CODE(MPI_T_finalize(), MPI_SUCCESS);
    return status || check_failures;
}

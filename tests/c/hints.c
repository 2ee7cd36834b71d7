/* Hints of communicators (MPI 5.0 §7.4.4): which are reported, who inherits them, what breaks a
 * promise, how they ask for algorithms. */
#include "check.h"

static int holds(MPI_Comm comm, const char *key, const char *wanted)
{
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL] = "";
    int room = sizeof value, flag = 0;
    OK(MPI_Comm_get_info(comm, &info));
    OK(MPI_Info_get_string(info, key, &room, value, &flag));
    OK(MPI_Info_free(&info));
    if (!wanted)
        return !flag;
    return flag && strcmp(value, wanted) == 0;
}

#define HOLDS(comm, key, value)                                                                    \
    CHECK(holds(comm, key, value), "%s of %s is not %s", key, #comm, value ? value : "unset")
#define NONE ((const char *)NULL)

static MPI_Info made(const char *key, const char *value)
{
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, key, value));
    return info;
}

static void set(MPI_Comm comm, const char *key, const char *value)
{
    MPI_Info info = made(key, value);
    OK(MPI_Comm_set_info(comm, info));
    OK(MPI_Info_free(&info));
}

static const char *const promises[] = {"mpi_assert_no_any_tag", "mpi_assert_no_any_source",
                                       "mpi_assert_exact_length", "mpi_assert_allow_overtaking"};

static void reported(void)
{
    MPI_Comm comm, copy, third;
    MPI_Request request;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < 4; i++) {
        HOLDS(comm, promises[i], "false");
        set(comm, promises[i], "true");
        HOLDS(comm, promises[i], "true");
        HOLDS(MPI_COMM_WORLD, promises[i], "false");
        set(comm, promises[i], "perhaps");
        HOLDS(comm, promises[i], "true");
    }
    set(comm, "colour", "red");
    HOLDS(comm, "colour", NONE);
    OK(MPI_Comm_set_info(comm, MPI_INFO_NULL));
    HOLDS(comm, promises[0], "true");
    /* No copy inherits them (since MPI 4.0) ... */
    OK(MPI_Comm_dup(comm, &copy));
    HOLDS(copy, promises[0], "false");
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_idup(comm, &copy, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    HOLDS(copy, promises[1], "false");
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_split(comm, 0, world_rank, &copy));
    HOLDS(copy, promises[1], "false");
    OK(MPI_Comm_free(&copy));
    /* ... but it has those that it is given. */
    MPI_Info info = made(promises[2], "true");
    OK(MPI_Comm_dup_with_info(comm, info, &copy));
    HOLDS(copy, promises[2], "true");
    HOLDS(copy, promises[0], "false");
    OK(MPI_Comm_idup_with_info(copy, info, &third, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    HOLDS(third, promises[2], "true");
    OK(MPI_Comm_free(&third));
    OK(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, info, &third));
    HOLDS(third, promises[2], "true");
    OK(MPI_Comm_free(&third));
    int next = ring(1), last = ring(-1);
    OK(MPI_Dist_graph_create_adjacent(comm, 1, &last, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED,
                                      info, 0, &third));
    HOLDS(third, promises[2], "true");
    OK(MPI_Comm_free(&third));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_free(&copy));
    set(comm, promises[0], "false");
    HOLDS(comm, promises[0], "false");
    HOLDS(comm, promises[1], "true");
    OK(MPI_Comm_free(&comm));
}

/* Every call that could use a wildcard refuses it while the promise stands; MPI_PROC_NULL is none.
 */
static void wildcards(void)
{
    MPI_Comm comm;
    int value = -1, flag = 0;
    MPI_Request r;
    MPI_Message m;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    set(comm, "mpi_assert_no_any_source", "true");
    set(comm, "mpi_assert_no_any_tag", "true");
    CLASS(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, MPI_STATUS_IGNORE), MPI_ERR_RANK);
    CLASS(MPI_Recv(&value, 1, MPI_INT, 0, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE), MPI_ERR_TAG);
    CLASS(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &r), MPI_ERR_RANK);
    CLASS(MPI_Recv_init(&value, 1, MPI_INT, 0, MPI_ANY_TAG, comm, &r), MPI_ERR_TAG);
    CLASS(MPI_Probe(MPI_ANY_SOURCE, 1, comm, MPI_STATUS_IGNORE), MPI_ERR_RANK);
    CLASS(MPI_Iprobe(0, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE), MPI_ERR_TAG);
    CLASS(MPI_Mprobe(MPI_ANY_SOURCE, 1, comm, &m, MPI_STATUS_IGNORE), MPI_ERR_RANK);
    CLASS(MPI_Improbe(0, MPI_ANY_TAG, comm, &flag, &m, MPI_STATUS_IGNORE), MPI_ERR_TAG);
    CLASS(MPI_Sendrecv(&value, 1, MPI_INT, 0, 1, &value, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm,
                       MPI_STATUS_IGNORE),
          MPI_ERR_RANK);
    CLASS(MPI_Sendrecv_replace(&value, 1, MPI_INT, 0, 1, 0, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE),
          MPI_ERR_TAG);
    CLASS(MPI_Isendrecv_replace(&value, 1, MPI_INT, 0, 1, MPI_ANY_SOURCE, 1, comm, &r),
          MPI_ERR_RANK);
    OK(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE));
    int code = MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, MPI_STATUS_IGNORE), length = 0;
    char text[MPI_MAX_ERROR_STRING];
    OK(MPI_Error_string(code, text, &length));
    CHECK(strstr(text, "mpi_assert_no_any_source") != NULL, "the text is [%s]", text);
    OK(MPI_Barrier(comm));
    set(comm, "mpi_assert_no_any_source", "false");
    set(comm, "mpi_assert_no_any_tag", "false");
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &r));
    OK(MPI_Send(&world_rank, 1, MPI_INT, ring(1), 3, comm));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    SAME(value, ring(-1));
    OK(MPI_Comm_free(&comm));
}

/* Long queues, with the promise made before, made with receives waiting, taken back in between, and
 * broken by a persistent receive that is older than the promise: every message goes where it
 * belongs. */
enum { MANY = 1000 };

static void long_queues(void)
{
    static int in[MANY], out[MANY];
    static MPI_Request r[MANY];
    MPI_Comm comm;
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_assert_no_any_source", "true"));
    OK(MPI_Info_set(info, "mpi_assert_no_any_tag", "true"));
    for (int round = 0; round < 4; round++) {
        if (round % 2)
            OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
        else
            OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        int wild = -1;
        MPI_Request older;
        if (round == 2)
            OK(MPI_Recv_init(&wild, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &older));
        /* Every tag twice, so that order counts; half of the receives come first. */
        for (int i = 0; i < MANY; i++)
            out[i] = world_rank * MANY + i, in[i] = -1;
        for (int i = 0; i < MANY / 2; i++) {
            OK(MPI_Irecv(&in[i], 1, MPI_INT, ring(-1), i / 2, comm, &r[i]));
            if (i == MANY / 4)
                OK(MPI_Comm_set_info(comm, info));
        }
        OK(MPI_Barrier(comm));
        for (int i = MANY - 2; i >= 0; i -= 2) {
            OK(MPI_Send(&out[i], 1, MPI_INT, ring(1), i / 2, comm));
            OK(MPI_Send(&out[i + 1], 1, MPI_INT, ring(1), i / 2, comm));
        }
        if (round == 3)
            set(comm, "mpi_assert_no_any_tag", "false");
        for (int i = MANY / 2; i < MANY; i++)
            OK(MPI_Irecv(&in[i], 1, MPI_INT, ring(-1), i / 2, comm, &r[i]));
        OK(MPI_Waitall(MANY, r, MPI_STATUSES_IGNORE));
        for (int i = 0; i < MANY; i++)
            CHECK(in[i] == ring(-1) * MANY + i, "round %d: message %d has %d", round, i, in[i]);
        if (round == 2) {
            /* Many receives wait; then one that takes anything, which was made before the promise.
             */
            for (int i = 0; i < MANY; i++)
                OK(MPI_Irecv(&in[i], 1, MPI_INT, ring(-1), i, comm, &r[i]));
            OK(MPI_Start(&older));
            OK(MPI_Barrier(comm));
            OK(MPI_Send(&world_rank, 1, MPI_INT, ring(1), MANY + 5, comm));
            OK(MPI_Wait(&older, MPI_STATUS_IGNORE));
            SAME(wild, ring(-1));
            for (int i = 0; i < MANY; i++)
                OK(MPI_Send(&out[i], 1, MPI_INT, ring(1), i, comm));
            OK(MPI_Waitall(MANY, r, MPI_STATUSES_IGNORE));
            for (int i = 0; i < MANY; i++)
                SAME(in[i], ring(-1) * MANY + i);
            OK(MPI_Request_free(&older));
        }
        /* Receives that are cancelled while many wait. */
        for (int i = 0; i < MANY; i++)
            OK(MPI_Irecv(&in[i], 1, MPI_INT, ring(-1), i, comm, &r[i]));
        for (int i = MANY; i-- > 0;) {
            MPI_Status status;
            int gone = 0;
            OK(MPI_Cancel(&r[i]));
            OK(MPI_Wait(&r[i], &status));
            OK(MPI_Test_cancelled(&status, &gone));
            SAME(gone, 1);
        }
        OK(MPI_Barrier(comm));
        OK(MPI_Comm_free(&comm));
    }
    OK(MPI_Info_free(&info));
}

static void exact_lengths(void)
{
    MPI_Comm comm;
    int in[4] = {-1, -1, -1, -1}, count = -1, class = -1;
    MPI_Status status;
    MPI_Request r[2];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    set(comm, "mpi_assert_exact_length", "true");
    OK(MPI_Irecv(in, 2, MPI_INT, ring(-1), 1, comm, &r[0]));
    OK(MPI_Irecv(in + 2, 2, MPI_INT, ring(-1), 2, comm, &r[1]));
    OK(MPI_Send(&world_rank, 1, MPI_INT, ring(1), 1, comm));
    int two[2] = {world_rank, 7};
    OK(MPI_Send(two, 2, MPI_INT, ring(1), 2, comm));
    OK(MPI_Wait(&r[1], MPI_STATUS_IGNORE));
    SAME(in[3], 7);
    CLASS(MPI_Wait(&r[0], &status), MPI_ERR_TRUNCATE);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    SAME(count, 1);
    SAME(in[0], ring(-1));
    /* In an array: the status tells. */
    MPI_Status both[2];
    OK(MPI_Irecv(in, 2, MPI_INT, ring(-1), 1, comm, &r[0]));
    OK(MPI_Irecv(in + 2, 2, MPI_INT, ring(-1), 2, comm, &r[1]));
    OK(MPI_Send(&world_rank, 1, MPI_INT, ring(1), 1, comm));
    OK(MPI_Send(two, 2, MPI_INT, ring(1), 2, comm));
    CLASS(MPI_Waitall(2, r, both), MPI_ERR_IN_STATUS);
    OK(MPI_Error_class(both[0].MPI_ERROR, &class));
    SAME(class, MPI_ERR_TRUNCATE);
    SAME(both[1].MPI_ERROR, MPI_SUCCESS);
    /* Collectives do not mind. */
    OK(MPI_Allreduce(&world_rank, in, 1, MPI_INT, MPI_SUM, comm));
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free(&comm));
}

static void algorithms(void)
{
    MPI_Comm comm, copy;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    HOLDS(comm, "ferry_coll_bcast", NONE);
    static const char *const ways[] = {"flat",         "binomial", "chain",
                                       "scatter_ring", "messages", "auto"};
    for (int i = 0; i < 6; i++) {
        set(comm, "ferry_coll_bcast", ways[i]);
        HOLDS(comm, "ferry_coll_bcast", ways[i]);
        for (int times = 0; times < 5; times++) {
            int root = times % world_size, data[300];
            for (int j = 0; j < 300; j++)
                data[j] = world_rank == root ? i * 1000 + j : -1;
            OK(MPI_Bcast(data, 300, MPI_INT, root, comm));
            for (int j = 0; j < 300; j++)
                SAME(data[j], i * 1000 + j);
        }
    }
    MPI_Info info = made("ferry_coll_bcast", "bruck");
    CLASS(MPI_Comm_set_info(comm, info), MPI_ERR_INFO_VALUE);
    CLASS(MPI_Comm_dup_with_info(comm, info, &copy), MPI_ERR_INFO_VALUE);
    OK(MPI_Info_free(&info));
    HOLDS(comm, "ferry_coll_bcast", "auto");
    set(comm, "ferry_coll_juggle", "chain");
    HOLDS(comm, "ferry_coll_juggle", NONE);
    OK(MPI_Comm_dup(comm, &copy));
    HOLDS(copy, "ferry_coll_bcast", NONE);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    reported();
    wildcards();
    long_queues();
    exact_lengths();
    algorithms();
    return check_end();
}

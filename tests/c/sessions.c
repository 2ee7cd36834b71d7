// Sessions without, before, beside and after the world model; process sets; error handlers and
// buffers of sessions.
// run: alone
// run: world-inside
// run: world-first
// run: world-around
// run: threads
#include "check.h"

#include <pthread.h>

/* A session that returns its errors, on a program that has no world model yet. */
static MPI_Session open_session(const char *level)
{
    MPI_Info info = MPI_INFO_NULL;
    MPI_Session session = MPI_SESSION_NULL;
    if (level) {
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "thread_level", level));
    }
    OK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session));
    CHECK(session != MPI_SESSION_NULL, "the session is null");
    if (level)
        OK(MPI_Info_free(&info));
    return session;
}

static void close_session(MPI_Session *session)
{
    OK(MPI_Session_finalize(session));
    CHECK(*session == MPI_SESSION_NULL, "the handle is not null after MPI_Session_finalize");
}

static MPI_Comm comm_of(MPI_Session session, const char *set, const char *tag)
{
    MPI_Group group;
    MPI_Comm comm;
    OK(MPI_Group_from_session_pset(session, set, &group));
    OK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Group_free(&group));
    return comm;
}

/* Collectives and a ring on any communicator. */
static void use(MPI_Comm comm)
{
    int rank, size, sum, got = -1;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    SAME(sum, size * (size - 1) / 2);
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 3, &got, 1, MPI_INT,
                    (rank + size - 1) % size, 3, comm, MPI_STATUS_IGNORE));
    SAME(got, (rank + size - 1) % size);
}

static void expect_level(MPI_Session session, const char *level)
{
    MPI_Info info;
    char value[64] = "";
    int length = sizeof value, flag;
    OK(MPI_Session_get_info(session, &info));
    OK(MPI_Info_get_string(info, "thread_level", &length, value, &flag));
    CHECK(flag && strcmp(value, level) == 0, "thread_level is %s, should be %s", value, level);
    OK(MPI_Info_free(&info));
}

static void process_sets(MPI_Session session)
{
    int sets, sizes[3] = {0};
    const char *const names[] = {"mpi://WORLD", "mpi://SELF", "mpi://SHARED"};
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &sets));
    CHECK(sets >= 2, "there are %d process sets", sets);
    for (int n = 0; n < sets; n++) {
        char name[64], cut[5];
        int need = 0, length = sizeof name, short_length = sizeof cut;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &need, NULL));
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, name));
        SAME(length, need);
        SAME(strlen(name) + 1, need);
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &short_length, cut));
        SAME(short_length, need);
        CHECK(strncmp(cut, name, 4) == 0 && cut[4] == 0, "%s was cut to %.5s", name, cut);

        MPI_Info info;
        MPI_Group group;
        char text[16] = "";
        int flag, size, room = sizeof text;
        OK(MPI_Session_get_pset_info(session, name, &info));
        OK(MPI_Info_get_string(info, "mpi_size", &room, text, &flag));
        OK(MPI_Info_free(&info));
        OK(MPI_Group_from_session_pset(session, name, &group));
        OK(MPI_Group_size(group, &size));
        OK(MPI_Group_free(&group));
        SAME(atoi(text), size);
        for (int i = 0; i < 3; i++)
            if (strcmp(name, names[i]) == 0)
                sizes[i] = size;
    }
    SAME(sizes[1], 1);
    CHECK(sizes[0] >= 1, "%s has %d processes", names[0], sizes[0]);

    MPI_Group none = MPI_GROUP_EMPTY;
    MPI_Info info;
    int length = 0;
    CLASS(MPI_Group_from_session_pset(session, "mpi://NOWHERE", &none), MPI_ERR_ARG);
    CHECK(none == MPI_GROUP_NULL, "a set that there is not has a group");
    CLASS(MPI_Session_get_pset_info(session, "mpi://NOWHERE", &info), MPI_ERR_ARG);
    CLASS(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, sets, &length, NULL), MPI_ERR_ARG);
    CLASS(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, -1, &length, NULL), MPI_ERR_ARG);
}

static int seen_code, seen_calls;
static MPI_Session seen_session;

static void remember(MPI_Session *session, int *code, ...)
{
    seen_session = *session;
    seen_code = *code;
    seen_calls++;
}

static void error_handlers(void)
{
    MPI_Errhandler mine, got;
    MPI_Session session;
    MPI_Info wrong;
    OK(MPI_Session_create_errhandler(remember, &mine));
    OK(MPI_Session_init(MPI_INFO_NULL, mine, &session));
    seen_calls = 0;
    OK(MPI_Session_call_errhandler(session, MPI_ERR_OTHER));
    SAME(seen_calls, 1);
    SAME(seen_code, MPI_ERR_OTHER);
    CHECK(seen_session == session, "the handler heard of another session");
    CLASS(MPI_Session_get_pset_info(session, "nothing", &wrong), MPI_ERR_ARG);
    SAME(seen_calls, 2);

    OK(MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN));
    OK(MPI_Session_get_errhandler(session, &got));
    CHECK(got == MPI_ERRORS_RETURN, "the handler is not MPI_ERRORS_RETURN");
    CLASS(MPI_Session_get_pset_info(session, "nothing", &wrong), MPI_ERR_ARG);
    SAME(seen_calls, 2);

    /* The handler that is passed hears of what cannot be made. */
    MPI_Session bad = MPI_SESSION_NULL;
    OK(MPI_Info_create(&wrong));
    OK(MPI_Info_set(wrong, "thread_level", "MPI_THREAD_PLENTY"));
    CLASS(MPI_Session_init(wrong, mine, &bad), MPI_ERR_INFO_VALUE);
    SAME(seen_calls, 3);
    CHECK(seen_session == MPI_SESSION_NULL, "the handler heard of a session that was not made");
    OK(MPI_Info_free(&wrong));
    MPI_Comm none;
    CLASS(MPI_Comm_create_from_group(MPI_GROUP_NULL, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &none),
          MPI_ERR_GROUP);
    OK(MPI_Errhandler_free(&mine));
    close_session(&session);
}

static void conversion(MPI_Session session)
{
    int number = MPI_Session_toint(session);
    CHECK(MPI_Session_fromint(number) == session, "a session's number is not its own");
    CHECK(MPI_Session_fromint(MPI_Session_toint(MPI_SESSION_NULL)) == MPI_SESSION_NULL,
          "the null session is not null");
}

static void buffers(MPI_Session session, MPI_Comm comm)
{
    static char buffer[4096 + MPI_BSEND_OVERHEAD];
    MPI_Comm child;
    MPI_Request request;
    int rank, size, got, flag, length;
    void *address;
    OK(MPI_Session_attach_buffer(session, buffer, sizeof buffer));
    CLASS(MPI_Session_attach_buffer(session, buffer, sizeof buffer), MPI_ERR_BUFFER);
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    /* What is made of the session's communicators buffers there, too. */
    OK(MPI_Comm_split(comm, 0, -rank, &child));
    MPI_Comm both[] = {comm, child};
    for (int i = 0; i < 2; i++) {
        OK(MPI_Comm_rank(both[i], &rank));
        OK(MPI_Bsend(&rank, 1, MPI_INT, (rank + 1) % size, i, both[i]));
        OK(MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, i, both[i], MPI_STATUS_IGNORE));
        SAME(got, (rank + size - 1) % size);
    }
    OK(MPI_Session_flush_buffer(session));
    OK(MPI_Session_iflush_buffer(session, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Session_detach_buffer(session, &address, &length));
    CHECK(address == buffer && length == sizeof buffer, "another buffer was detached");
    CLASS(MPI_Bsend(&rank, 1, MPI_INT, 0, 0, comm), MPI_ERR_BUFFER);
    OK(MPI_Comm_free(&child));
    OK(MPI_Initialized(&flag));
}

/* A bridge between the even and the odd processes of the world. */
static void intercomm(MPI_Session session)
{
    MPI_Group all, half[2];
    MPI_Comm bridge;
    int size, rank, far, sum = -1;
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &all));
    OK(MPI_Group_size(all, &size));
    OK(MPI_Group_rank(all, &rank));
    if (size >= 2) {
        for (int i = 0; i < 2; i++) {
            int range[1][3] = {{i, size - 1, 2}};
            OK(MPI_Group_range_incl(all, 1, range, &half[i]));
        }
        OK(MPI_Intercomm_create_from_groups(half[rank % 2], 0, half[1 - rank % 2], 0, "bridge",
                                            MPI_INFO_NULL, MPI_ERRORS_RETURN, &bridge));
        OK(MPI_Comm_remote_size(bridge, &far));
        SAME(far, rank % 2 ? (size + 1) / 2 : size / 2);
        OK(MPI_Allreduce(&(int){1}, &sum, 1, MPI_INT, MPI_SUM, bridge));
        SAME(sum, far);
        OK(MPI_Comm_free(&bridge));
        OK(MPI_Group_free(&half[0]));
        OK(MPI_Group_free(&half[1]));
    }
    OK(MPI_Group_free(&all));
}

static void expect_flags(int initialized, int finalized)
{
    int flag;
    OK(MPI_Initialized(&flag));
    SAME(flag != 0, initialized);
    OK(MPI_Finalized(&flag));
    SAME(flag != 0, finalized);
}

/* What comes from different sessions, or from a session and the world model, must not meet in a
 * call (MPI 5.0 11.3.1). */
static void meet(MPI_Comm a, MPI_Comm b)
{
    MPI_Group first, second, other = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    int result, zero = 0;
    OK(MPI_Comm_group(a, &first));
    OK(MPI_Comm_group(b, &second));
    CLASS(MPI_Comm_compare(a, b, &result), MPI_ERR_COMM);
    MPI_Request requests[2];
    OK(MPI_Isend(&zero, 1, MPI_INT, MPI_PROC_NULL, 0, a, &requests[0]));
    OK(MPI_Isend(&zero, 1, MPI_INT, MPI_PROC_NULL, 0, b, &requests[1]));
    CLASS(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_ERR_REQUEST);
    CLASS(MPI_Testany(2, requests, &result, &result, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    CLASS(MPI_Group_compare(first, second, &result), MPI_ERR_GROUP);
    CLASS(MPI_Group_translate_ranks(first, 1, &zero, second, &result), MPI_ERR_GROUP);
    CLASS(MPI_Group_union(first, second, &other), MPI_ERR_GROUP);
    CLASS(MPI_Group_intersection(second, first, &other), MPI_ERR_GROUP);
    CLASS(MPI_Group_difference(first, second, &other), MPI_ERR_GROUP);
    CLASS(MPI_Comm_create(a, second, &comm), MPI_ERR_GROUP);
    CLASS(MPI_Comm_create_group(a, second, 0, &comm), MPI_ERR_GROUP);
    CHECK(other == MPI_GROUP_NULL && comm == MPI_COMM_NULL, "something came of a mixture");
    /* The group without members comes from nowhere. */
    OK(MPI_Group_union(first, MPI_GROUP_EMPTY, &other));
    OK(MPI_Group_compare(first, other, &result));
    SAME(result, MPI_IDENT);
    OK(MPI_Group_free(&other));
    OK(MPI_Group_free(&first));
    OK(MPI_Group_free(&second));
}

static void sessions(const char *level, const char *granted, const char *tag)
{
    MPI_Session a = open_session(level), b = open_session(NULL);
    CHECK(a != b, "two sessions have the same handle");
    expect_level(a, granted);
    process_sets(a);
    conversion(a);
    MPI_Comm world = comm_of(a, "mpi://WORLD", tag), itself = comm_of(b, "mpi://self", tag),
             node = comm_of(b, "mpi://SHARED", "node");
    OK(MPI_Comm_rank(world, &world_rank));
    OK(MPI_Comm_size(world, &world_size));
    int *value, flag;
    OK(MPI_Comm_get_attr(world, MPI_TAG_UB, &value, &flag));
    CHECK(flag && *value >= 32767, "a session's communicator knows no largest tag");
    OK(MPI_Comm_get_attr(world, MPI_IO, &value, &flag));
    SAME(flag, 0);
    use(world);
    use(itself);
    use(node);
    buffers(a, world);
    intercomm(b);
    OK(MPI_Comm_free(&itself));
    OK(MPI_Comm_free(&node));
    close_session(&b);
    use(world);
    OK(MPI_Comm_free(&world));
    close_session(&a);
}

/* A large send that is under way when its sender ends the last session must still arrive. */
static void last_words(const char *tag)
{
    enum { BIG = 1 << 20 };
    static unsigned char out[BIG], in[BIG];
    MPI_Session session = open_session(NULL);
    MPI_Comm comm = comm_of(session, "mpi://WORLD", tag);
    int rank, size;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Session_attach_buffer(session, MPI_BUFFER_AUTOMATIC, 0));
    fill(out, BIG, (uint64_t)rank);
    if (rank % 2 == 0 && rank + 1 < size)
        OK(MPI_Bsend(out, BIG, MPI_BYTE, rank + 1, 9, comm));
    if (rank % 2 == 1) {
        OK(MPI_Recv(in, BIG, MPI_BYTE, rank - 1, 9, comm, MPI_STATUS_IGNORE));
        FILLED(in, BIG, (uint64_t)rank - 1);
    }
    OK(MPI_Comm_free(&comm));
    close_session(&session);
}

static void *library(void *argument)
{
    char tag[32];
    int number = *(int *)argument;
    for (int round = 0; round < 20; round++) {
        snprintf(tag, sizeof tag, "library %d", number);
        MPI_Session session = open_session("MPI_THREAD_MULTIPLE");
        expect_level(session, "MPI_THREAD_MULTIPLE");
        MPI_Comm comm = comm_of(session, number % 2 ? "mpi://WORLD" : "mpi://SHARED", tag);
        use(comm);
        OK(MPI_Comm_free(&comm));
        close_session(&session);
    }
    return NULL;
}

static void threads(void)
{
    enum { THREADS = 3 };
    pthread_t thread[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&thread[i], NULL, library, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "alone";
    int provided, main_thread;
    expect_flags(0, 0);
    if (strcmp(how, "alone") == 0) {
        for (int round = 0; round < 3; round++) {
            sessions("MPI_THREAD_SERIALIZED", "MPI_THREAD_SERIALIZED", "round");
            error_handlers();
        }
        sessions(NULL, "MPI_THREAD_MULTIPLE", "more");
        last_words("last");
        last_words("very last");
        expect_flags(0, 0);
    } else if (strcmp(how, "world-inside") == 0) {
        /* A session started MPI, so any level can be had. */
        MPI_Session outer = open_session(NULL);
        MPI_Comm comm = comm_of(outer, "mpi://WORLD", "outer");
        expect_flags(0, 0);
        OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
        SAME(provided, MPI_THREAD_MULTIPLE);
        check_know_world();
        OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
        expect_flags(1, 0);
        use(MPI_COMM_WORLD);
        use(comm);
        OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
        meet(comm, MPI_COMM_WORLD);
        sessions(NULL, "MPI_THREAD_MULTIPLE", "inner");
        OK(MPI_Finalize());
        expect_flags(1, 1);
        use(comm);
        int rank;
        CLASS(MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_ERR_COMM);
        OK(MPI_Comm_free(&comm));
        close_session(&outer);
        CLASS(MPI_Barrier(MPI_COMM_WORLD), MPI_ERR_OTHER);
        sessions(NULL, "MPI_THREAD_MULTIPLE", "after");
        expect_flags(1, 1);
    } else if (strcmp(how, "world-first") == 0) {
        OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided));
        check_know_world();
        sessions("MPI_THREAD_MULTIPLE", "MPI_THREAD_FUNNELED", "first");
        sessions("MPI_THREAD_SINGLE", "MPI_THREAD_SINGLE", "second");
        error_handlers();
        OK(MPI_Is_thread_main(&main_thread));
        CHECK(main_thread, "the thread that called MPI_Init_thread is not the main thread");
        use(MPI_COMM_WORLD);
        OK(MPI_Finalize());
    } else if (strcmp(how, "world-around") == 0) {
        /* A session that outlives the world model, and one after both. */
        OK(MPI_Init(&argc, &argv));
        check_know_world();
        MPI_Session session = open_session(NULL);
        MPI_Comm comm = comm_of(session, "mpi://WORLD", "beside");
        use(comm);
        OK(MPI_Finalize());
        use(comm);
        OK(MPI_Comm_free(&comm));
        close_session(&session);
        last_words("after all");
    } else {
        threads();
        OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
        check_know_world();
        threads();
        OK(MPI_Finalize());
        threads();
    }
    return check_failures ? 1 : 0;
}

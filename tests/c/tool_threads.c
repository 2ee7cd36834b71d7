/* A tool with threads of its own (MPI_T_init_thread with MPI_THREAD_MULTIPLE) beside a program that
 * has one thread: before MPI_Init, and while the program sends and receives, the tool's threads
 * read all variables, among them those under the library's lock. */
// ranks: 1 2 3
#include "check.h"

#include <pthread.h>

#define CODE(call, wanted) SAME(call, wanted)

enum { THREADS = 3, ROUNDS = 300, WINDOW = 8 };

static volatile int done;

/* Reads every performance variable once, those of communicators only where there is `comm`. */
static void read_all(MPI_T_pvar_session session, MPI_Comm *comm)
{
    int n = -1;
    CODE(MPI_T_pvar_get_num(&n), MPI_SUCCESS);
    for (int i = 0; i < n; i++) {
        int class = -1, bind = -1, count = -1;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
        CODE(MPI_T_pvar_get_info(i, NULL, NULL, NULL, &class, &type, NULL, NULL, NULL, &bind, NULL,
                                 NULL, NULL),
             MPI_SUCCESS);
        if (bind != MPI_T_BIND_NO_OBJECT && !comm)
            continue;
        CODE(MPI_T_pvar_handle_alloc(session, i, comm, &handle, &count), MPI_SUCCESS);
        union {
            unsigned long long number;
            double seconds;
        } value = {~0ull};
        CODE(MPI_T_pvar_read(session, handle, &value), MPI_SUCCESS);
        if (bind != MPI_T_BIND_NO_OBJECT && class == MPI_T_PVAR_CLASS_LEVEL)
            CHECK(value.number <= 2 * WINDOW, "variable %d is %llu", i, value.number);
        CODE(MPI_T_pvar_handle_free(session, &handle), MPI_SUCCESS);
    }
}

static void *tool(void *arg)
{
    MPI_Comm *comm = arg;
    MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
    CODE(MPI_T_pvar_session_create(&session), MPI_SUCCESS);
    do
        read_all(session, comm);
    while (comm && !__sync_add_and_fetch(&done, 0));
    CODE(MPI_T_pvar_session_free(&session), MPI_SUCCESS);
    return NULL;
}

static void begin(pthread_t *threads, MPI_Comm *comm)
{
    for (int i = 0; i < THREADS; i++)
        SAME(pthread_create(&threads[i], NULL, tool, comm), 0);
}

static void join(pthread_t *threads)
{
    for (int i = 0; i < THREADS; i++)
        SAME(pthread_join(threads[i], NULL), 0);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int provided = -1;
    CODE(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided), MPI_SUCCESS);
    SAME(provided, MPI_THREAD_MULTIPLE);
    begin(threads, NULL);
    join(threads);
    /* What the program is given does not change. */
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided));
    SAME(provided, MPI_THREAD_SINGLE);
    check_know_world();
    OK(MPI_Query_thread(&provided));
    SAME(provided, MPI_THREAD_SINGLE);
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    begin(threads, &comm);
    for (int round = 0; round < ROUNDS; round++) {
        int out[WINDOW], in[WINDOW];
        MPI_Request r[2 * WINDOW];
        /* Every other round's messages come before their receives, where that can be. */
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < WINDOW; i++)
                if (half == round % 2) {
                    OK(MPI_Irecv(&in[i], 1, MPI_INT, ring(-1), i, comm, &r[i]));
                } else {
                    out[i] = round * WINDOW + i + world_rank;
                    OK(MPI_Isend(&out[i], 1, MPI_INT, ring(1), i, comm, &r[WINDOW + i]));
                }
        OK(MPI_Waitall(2 * WINDOW, r, MPI_STATUSES_IGNORE));
        for (int i = 0; i < WINDOW; i++)
            SAME(in[i], round * WINDOW + i + ring(-1));
        OK(MPI_Barrier(comm)); /* nobody is ahead by more than one round */
    }
    __sync_add_and_fetch(&done, 1);
    join(threads);
    OK(MPI_Comm_free(&comm));
    /* The process has been started for all levels, so another tool may have any. */
    CODE(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided), MPI_SUCCESS);
    SAME(provided, MPI_THREAD_MULTIPLE);
    CODE(MPI_T_finalize(), MPI_SUCCESS);
    int status = check_end();
    CODE(MPI_T_finalize(), MPI_SUCCESS);
    return status;
}

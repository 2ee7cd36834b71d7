/* Ends badly in the way that the first argument names. The second argument names the rank that does
 * it, by default the last one. */
#include <mpi.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static volatile int stdin_locked;

static void *hold_stdin(void *unused)
{
    flockfile(stdin);
    stdin_locked = 1;
    pause();
    return unused;
}

static int other; /* the rank that a second thread receives from or sends to */

static volatile pid_t receiver; /* the thread that has begun to receive last */

/* Waits until a thread that begins to receive sleeps in MPI_Recv. */
static void await_sleeping_receiver(void)
{
    char path[64], state = 0;
    do {
        sched_yield();
        if (receiver == 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)receiver);
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        if (file)
            fclose(file);
    } while (state != 'S');
    receiver = 0;
}

/* Waits for the message that is sent last, and ends. */
static void *receive_last(void *unused)
{
    int value;
    receiver = (pid_t)syscall(SYS_gettid);
    MPI_Recv(&value, 1, MPI_INT, other, 18, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return unused;
}

static void *receive(void *unused)
{
    int value;
    receiver = (pid_t)syscall(SYS_gettid);
    MPI_Recv(&value, 1, MPI_INT, other, 17, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return unused;
}

static void *send_late(void *unused)
{
    int value = 0;
    sleep(3);
    MPI_Send(&value, 1, MPI_INT, other, 17, MPI_COMM_WORLD);
    return unused;
}

static int query(void *unused, MPI_Status *status)
{
    (void)unused, (void)status;
    return MPI_SUCCESS;
}

static int let_go(void *unused)
{
    (void)unused;
    return MPI_SUCCESS;
}

static int cancel(void *unused, int complete)
{
    (void)unused, (void)complete;
    return MPI_SUCCESS;
}

static void own_handler(int signal)
{
    static const char text[] = "own handler\n";
    (void)signal;
    _exit(write(2, text, sizeof text - 1) > 0 ? 3 : 4);
}

static int overflow(volatile char *above)
{
    volatile char frame[4096];
    frame[0] = above[0];
    return overflow(frame) + frame[0];
}

static void *fault(void *unused)
{
    *(volatile int *)8 = 1;
    return unused;
}

/* A lock that nobody releases, also because its holder has finished, a start without a post, a post
 * without a complete, and a rank that dies with a lock while the others wait for it. */
static void window(const char *how, int who, int rank, int size)
{
    MPI_Win win;
    MPI_Group all, one;
    int *memory, token = 0;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_set_name(win, "grid");
    MPI_Win_get_group(win, &all);
    MPI_Group_incl(all, 1, &who, &one);
    int finishes = !strcmp(how, "window-lock-finished");
    if (!strcmp(how, "window-lock") || !strcmp(how, "window-death") || finishes) {
        if (rank == who) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
            for (int i = 0; i < size; i++)
                if (i != who)
                    MPI_Send(&token, 1, MPI_INT, i, 0, MPI_COMM_WORLD);
            if (!strcmp(how, "window-death"))
                raise(SIGKILL);
            if (finishes) {
                MPI_Finalize();
                exit(0);
            }
            MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_INT, who, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
            MPI_Win_unlock(0, win);
            MPI_Send(&token, 1, MPI_INT, who, 1, MPI_COMM_WORLD);
        }
    } else if (!strcmp(how, "window-start")) {
        if (rank != who)
            MPI_Win_start(one, 0, win);
        else
            MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strncmp(how, "window-wait", 11)) {
        if (rank != who) {
            MPI_Win_post(strcmp(how, "window-wait") ? one : all, 0, win);
            MPI_Win_wait(win);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    if (is(how, "own-handler"))
        signal(SIGSEGV, own_handler);
    if (is(how, "before-init")) {
        const char *text = getenv("DIE");
        if (text)
            _exit(3);
    }
    if (strncmp(how, "threads", 7) == 0) {
        int level, few = is(how, "threads-serialized");
        MPI_Init_thread(&argc, &argv, few ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, &level);
    } else {
        MPI_Init(&argc, &argv);
    }
    if (is(how, "own-handler-later"))
        signal(SIGSEGV, own_handler);
    int rank, size, value = 0;
    void *memory;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int who = argc > 2 ? atoi(argv[2]) : size - 1, next = (rank + 1) % size,
        last = (rank + size - 1) % size;
    if (!is(how, "early") && !is(how, "closes") && !is(how, "reopens"))
        MPI_Barrier(MPI_COMM_WORLD);
    if (is(how, "pids")) {
        printf("%d\n", (int)getpid());
        fflush(stdout);
        MPI_Recv(&value, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (is(how, "face")) { /* two receives facing each other */
        if (rank < 2 && size > 1)
            MPI_Recv(&value, 1, MPI_INT, 1 - rank, 17, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strncmp(how, "threads", 7) == 0) {
        pthread_t second;
        other = rank ^ 1;
        if (is(how, "threads-face")) { /* the only thread of each waits for the other's */
            receive(NULL);
        } else if (is(how, "threads-last")) { /* the first to sleep sleeps for ever, the last one
                                                 gets its message */
            pthread_create(&second, NULL, receive, NULL);
            await_sleeping_receiver();
            pthread_t last_one;
            pthread_create(&last_one, NULL, receive_last, NULL);
            await_sleeping_receiver();
            MPI_Barrier(MPI_COMM_WORLD); /* no message before both last ones sleep */
            MPI_Send(&value, 1, MPI_INT, other, 18, MPI_COMM_WORLD);
            pthread_join(last_one, NULL);
            pthread_join(second, NULL);
        } else if (pthread_create(&second, NULL, is(how, "threads-late") ? send_late : receive,
                                  NULL) == 0) {
            if (is(how, "threads-serialized")) /* two wait at once, and only one may be in MPI */
                await_sleeping_receiver();
            if (!is(how, "threads-join")) /* nobody sends, or the second thread does, late */
                receive(NULL);
            pthread_join(second, NULL);
        }
    } else if (is(how, "closes") || is(how, "reopens")) { /* closes what is MPI's; opens others */
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        for (int i = 0; is(how, "reopens") && i < 64; i++)
            if (!tmpfile())
                return 7;
        MPI_Allreduce(&rank, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } else if (is(how, "ring")) { /* everybody receives first */
        MPI_Recv(&value, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&value, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
    } else if (is(how, "missing")) { /* one rank does not enter the collective */
        if (rank == who)
            MPI_Recv(&value, 1, MPI_INT, next, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Allreduce(&rank, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } else if (is(how, "other")) { /* one rank enters another collective */
        if (rank == who)
            MPI_Barrier(MPI_COMM_WORLD);
        else
            MPI_Bcast(&value, 1, MPI_INT, who, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (is(how, "mixed") || is(how, "forms")) { /* one rank calls another collective of as
                                                          many bytes, or its other form */
        int values[64] = {0};
        MPI_Request request;
        if (is(how, "forms"))
            rank == who ? MPI_Barrier(MPI_COMM_WORLD) : MPI_Ibarrier(MPI_COMM_WORLD, &request);
        else if (rank == who)
            MPI_Iallgather(&rank, 1, MPI_INT, values, 1, MPI_INT, MPI_COMM_WORLD, &request);
        else
            MPI_Iallreduce(&rank, values, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        if (is(how, "mixed") || rank != who)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (is(how, "missing-request")) {
        MPI_Request request;
        if (rank == who)
            MPI_Recv(&value, 1, MPI_INT, next, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else if (MPI_Ibarrier(MPI_COMM_WORLD, &request) == MPI_SUCCESS)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (strncmp(how, "lengths-", 8) == 0) {
        /* One rank gives more data than a board has room for, and so goes by messages. With a third
         * argument errors return, and each rank tells its own. */
        static double in[2048], out[8 * 2048];
        const char *call = how + 8;
        int count = rank == who ? 512 : 1, code = MPI_SUCCESS, class;
        MPI_Request request = MPI_REQUEST_NULL;
        if (argc > 3)
            MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        for (int i = 0; i < 4; i++) { /* then small collectives have their boards */
            MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            MPI_Iallreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        if (is(call, "allreduce"))
            code = MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        else if (is(call, "alltoall"))
            code = MPI_Alltoall(in, count, MPI_DOUBLE, out, count, MPI_DOUBLE, MPI_COMM_WORLD);
        else if (is(call, "bcast"))
            code = MPI_Bcast(in, count, MPI_DOUBLE, who, MPI_COMM_WORLD);
        else if (is(call, "iallreduce"))
            MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        if (request != MPI_REQUEST_NULL)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Error_class(code, &class);
        if (argc > 3)
            printf("rank %d: %s\n", rank, class == MPI_ERR_TRUNCATE ? "truncated" : "not told");
    } else if (strncmp(how, "mismatch-", 9) == 0) {
        /* One rank makes another call than the others, after some in which all agree. In most of
         * these no rank waits for another. */
        const char *calls = how + 9;
        int all[64] = {0}, sum;
        int root = 0, own = rank == who;
        for (int i = 0; i < (argc > 3 ? atoi(argv[3]) : 0); i++)
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (is(calls, "bcast-reduce")) {
            own ? MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD)
                : MPI_Bcast(&sum, 1, MPI_INT, root, MPI_COMM_WORLD);
        } else if (is(calls, "bcast-roots")) {
            root = own ? who : 0;
            MPI_Bcast(&sum, 1, MPI_INT, root, MPI_COMM_WORLD);
        } else if (is(calls, "gather-roots")) {
            root = own ? 0 : 1;
            MPI_Gather(&rank, 1, MPI_INT, all, 1, MPI_INT, root, MPI_COMM_WORLD);
        } else if (is(calls, "allreduce-barrier")) {
            own ? MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD)
                : MPI_Barrier(MPI_COMM_WORLD);
        } else if (is(calls, "alltoall-barrier")) { /* so long that a slot has no room for it */
            static int blocks[2][16 * 64];
            own ? MPI_Barrier(MPI_COMM_WORLD)
                : MPI_Alltoall(blocks[0], 64, MPI_INT, blocks[1], 64, MPI_INT, MPI_COMM_WORLD);
        } else if (is(calls, "window")) { /* as many bytes as what ranks of one node agree about */
            long terms[8] = {0}, sums[8];
            MPI_Win win;
            own ? MPI_Win_create(terms, 64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win)
                : MPI_Allreduce(terms, sums, 8, MPI_LONG, MPI_BOR, MPI_COMM_WORLD);
        } else if (is(calls, "dup")) {
            MPI_Comm dup;
            MPI_Comm_dup(MPI_COMM_WORLD, &dup);
            MPI_Comm_set_name(dup, "my own");
            own ? MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, root, dup)
                : MPI_Bcast(&sum, 1, MPI_INT, root, dup);
        }
        /* A message that comes after MPI_Finalize is not found there. What the one rank has sent in
         * the collective has come when this later message of its has. It stays until rank 0 has
         * ended the job, since the others would be told that it has left. */
        for (int i = 0; size > 2 && own && i < size; i++)
            if (i != who)
                MPI_Send(&rank, 1, MPI_INT, i, 77, MPI_COMM_WORLD);
        if (size > 2)
            MPI_Recv(&sum, 1, MPI_INT, own ? 0 : who, own ? 78 : 77, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    } else if (is(how, "unreceived")) { /* nobody receives these two */
        if (rank == who) {
            MPI_Send(&value, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);
            MPI_Send(&value, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (is(how, "leaks")) { /* one rank does not free what it has made */
        MPI_Comm dup, halves;
        MPI_Win win;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        MPI_Comm_set_name(dup, "my own");
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &halves);
        MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_set_name(win, "grid");
        MPI_Recv_init(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
        if (rank != who) {
            MPI_Comm_free(&dup);
            MPI_Comm_free(&halves);
            MPI_Request_free(&request);
        }
        MPI_Win_free(&win);
        if (rank == who)
            MPI_Win_allocate(8, 1, MPI_INFO_NULL, MPI_COMM_SELF, &memory, &win);
    } else if (is(how, "general")) { /* nobody completes the generalised requests of one rank */
        MPI_Request two[2];
        if (rank == who) {
            MPI_Grequest_start(query, let_go, cancel, NULL, &two[0]);
            MPI_Grequest_start(query, let_go, cancel, NULL, &two[1]);
            MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
        }
    } else if (is(how, "awaited")) { /* everybody waits for what it has started to receive */
        MPI_Request request;
        MPI_Irecv(&value, 1, MPI_INT, next, 23, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (is(how, "several")) { /* nobody sends the last two of what everybody waits for */
        MPI_Request requests[4];
        int values[4];
        for (int i = 0; i < 3; i++)
            MPI_Irecv(&values[i], 1, MPI_INT, last, 30 + i, MPI_COMM_WORLD, &requests[i]);
        MPI_Issend(&value, 1, MPI_INT, next, 30, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    } else if (is(how, "not-ready")) { /* one partition of a send is not released */
        MPI_Request request = MPI_REQUEST_NULL;
        int parts[4];
        if (rank == who)
            MPI_Precv_init(parts, 4, 1, MPI_INT, 0, 24, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        else if (rank == 0)
            MPI_Psend_init(parts, 4, 1, MPI_INT, who, 24, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        if (request != MPI_REQUEST_NULL)
            MPI_Start(&request);
        if (rank == 0)
            MPI_Pready_range(0, 2, request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (is(how, "merge")) { /* one rank says otherwise than its group's leader which group
                                      comes first */
        MPI_Comm half, between, all;
        MPI_Comm_split(MPI_COMM_WORLD, rank >= size / 2, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank >= size / 2 ? 0 : size / 2, 3, &between);
        MPI_Intercomm_merge(between, rank == who, &all);
    } else if (strncmp(how, "window-", 7) == 0) { /* one-sided communication that cannot go on */
        window(how, who, rank, size);
    } else if (is(how, "gone")) { /* the peer has finished */
        if (rank != who)
            MPI_Recv(&value, 1, MPI_INT, who, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (is(how, "tag")) { /* the message that came has another tag */
        if (rank == who)
            MPI_Send(&value, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&value, 1, MPI_INT, who, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (is(how, "sleep")) {
        sleep(argc > 3 ? (unsigned)atoi(argv[3]) : 30);
    } else if (is(how, "busy")) {
        for (;;)
            pause();
    } else if (is(how, "wait-long")) { /* a legal wait of some seconds: nobody may call it a hang */
        if (rank == who) {
            sleep(3);
            for (int i = 0; i < size; i++)
                if (i != who)
                    MPI_Send(&value, 1, MPI_INT, i, 0, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&value, 1, MPI_INT, who, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    } else if (rank == who) {
        if (is(how, "kill"))
            raise(SIGKILL);
        else if (is(how, "segv"))
            *(volatile int *)8 = 1;
        else if (is(how, "own-handler") || is(how, "own-handler-later"))
            *(volatile int *)8 = 1;
        else if (is(how, "segv-thread")) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, fault, NULL) == 0)
                pthread_join(thread, NULL);
        } else if (is(how, "overflow")) {
            char first[1] = {0};
            value = overflow(first);
        } else if (is(how, "fpe"))
            raise(SIGFPE);
        else if (is(how, "bus"))
            raise(SIGBUS);
        else if (is(how, "ill"))
            __builtin_trap();
        else if (is(how, "exit"))
            exit(0);
        else if (is(how, "exit7"))
            _exit(7);
        else if (is(how, "return")) /* finalized, but not successful */
            value = 9;
        else if (is(how, "abort"))
            MPI_Abort(MPI_COMM_WORLD, 42);
        else if (is(how, "abort-said")) { /* after words that nobody has flushed, while another
                                             thread has standard input's lock */
            pthread_t reader;
            if (pthread_create(&reader, NULL, hold_stdin, NULL) == 0)
                while (!stdin_locked)
                    sched_yield();
            printf("last words");
            MPI_Abort(MPI_COMM_WORLD, 42);
        } else if (is(how, "abort0"))
            MPI_Abort(MPI_COMM_WORLD, 0);
        else if (is(how, "abort-self"))
            MPI_Abort(MPI_COMM_SELF, 5);
        else if (is(how, "assert"))
            abort();
        else if (is(how, "children")) { /* leaves a child of its own behind */
            if (fork() == 0) {
                sleep(60);
                _exit(0);
            }
            raise(SIGKILL);
        }
    } else if (!is(how, "return") && !is(how, "fine") && !is(how, "early")) {
        /* The others wait for the one that goes; some sleep in MPI, some work. */
        if (rank % 2)
            MPI_Recv(&value, 1, MPI_INT, who, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            for (;;)
                value++;
    }
    MPI_Finalize();
    return value == 9 ? 9 : 0;
}

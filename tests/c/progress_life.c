/* The progress thread's life: it is there between the first start and the last end of MPI's use,
 * takes no signals, and stays out of a forked child. */
// env: FERRY_PROGRESS=thread
// ranks: 1 2 4
#include <dirent.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

static void same(const char *what, unsigned long long is, unsigned long long wanted)
{
    if (is != wanted) {
        fprintf(stderr, "%s is %llx, should be %llx\n", what, is, wanted);
        failures++;
    }
}

/* A line of /proc/self/task/ID/FILE that starts with `key`. */
static int line_of(const char *id, const char *name, const char *key, char *line, int room)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/%s", id, name);
    FILE *file = fopen(path, "r");
    int found = 0;
    while (file && !found && fgets(line, room, file))
        found = strncmp(line, key, strlen(key)) == 0;
    if (file)
        fclose(file);
    return found;
}

/* How many progress threads there are; `blocked`: the signals that the last of them blocks. */
static int count_threads(unsigned long long *blocked)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        char line[200];
        if (line_of(task->d_name, "comm", "ferry-progress", line, sizeof line)) {
            count++;
            if (line_of(task->d_name, "status", "SigBlk:", line, sizeof line))
                *blocked = strtoull(line + 7, NULL, 16);
        }
    }
    closedir(tasks);
    return count;
}

/* A thread takes its name as the first thing it does, which may be after the call that starts it.
 */
static int threads(unsigned long long *blocked, int wanted)
{
    int count = count_threads(blocked);
    for (int patience = 0; count != wanted && patience < 20000; patience++) {
        sched_yield();
        count = count_threads(blocked);
    }
    return count;
}

static void use(MPI_Comm comm)
{
    int one = 1, sum = 0, size;
    MPI_Request request;
    MPI_Comm_size(comm, &size);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    same("the sum", (unsigned long long)sum, (unsigned long long)size);
}

static void session(void)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    unsigned long long blocked = 0;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    same("progress threads in a session", (unsigned long long)threads(&blocked, 1), 1);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "life", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    use(comm);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
}

int main(int argc, char **argv)
{
    unsigned long long blocked = 0;
    sigset_t before, after;
    int provided;
    same("progress threads before", (unsigned long long)threads(&blocked, 0), 0);
    session();
    same("progress threads after a session", (unsigned long long)threads(&blocked, 0), 0);
    sigprocmask(SIG_SETMASK, NULL, &before);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    sigprocmask(SIG_SETMASK, NULL, &after);
    same("the program's signal mask changed", memcmp(&before, &after, sizeof(long)) != 0, 0);
    same("the level of thread support", (unsigned long long)provided, MPI_THREAD_SERIALIZED);
    MPI_Query_thread(&provided);
    same("MPI_Query_thread", (unsigned long long)provided, MPI_THREAD_SERIALIZED);
    same("progress threads in the world", (unsigned long long)threads(&blocked, 1), 1);
    /* All but SIGKILL, SIGSTOP and the two that the C library keeps for itself. */
    same("blocked signals", blocked | 1ull << 31 | 1ull << 32,
         ~0ull & ~(1ull << (SIGKILL - 1)) & ~(1ull << (SIGSTOP - 1)));
    session();
    same("progress threads in the world, after a session", (unsigned long long)threads(&blocked, 1),
         1);
    for (int i = 0; i < 3; i++) {
        use(MPI_COMM_WORLD);
        pid_t child = fork();
        if (child == 0)
            exit(count_threads(&blocked) == 0 ? 42 : 1);
        int status = 0;
        waitpid(child, &status, 0);
        same("the child's exit status", (unsigned long long)WEXITSTATUS(status), 42);
    }
    if (system("true") != 0)
        same("system", 1, 0);
    use(MPI_COMM_WORLD);
    MPI_Finalize();
    same("progress threads after the end", (unsigned long long)threads(&blocked, 0), 0);
    session();
    same("progress threads after the last session", (unsigned long long)threads(&blocked, 0), 0);
    return failures != 0;
}

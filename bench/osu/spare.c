/* Preloaded into each rank, whichever MPI it uses, so that OSU's programs can be measured with a
 * core to spare. When MPI has started, the computing thread is put on core SPARE_RANKS and every
 * other thread of the process on core SPARE_OTHERS. OSU's programs compute for a span of time by
 * the clock, not for an amount of work; so that ranks that share a core are all within their spans
 * at once, as they would be with a core each, who looks at the clock hands the core over when it
 * has had it for SPARE_SLICE microseconds. */
#define _GNU_SOURCE
#include <dirent.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static double slice; /* seconds */

static void put(pid_t thread, const char *variable)
{
    const char *core = getenv(variable);
    if (!core)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(core), &set);
    sched_setaffinity(thread, sizeof set, &set);
}

static void place(void)
{
    pid_t self = (pid_t)syscall(SYS_gettid);
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *one; threads && (one = readdir(threads));) {
        pid_t thread = (pid_t)atoi(one->d_name);
        if (thread > 0 && thread != self)
            put(thread, "SPARE_OTHERS");
    }
    if (threads)
        closedir(threads);
    put(self, "SPARE_RANKS");
    const char *asked = getenv("SPARE_SLICE");
    slice = 1e-6 * (asked ? atof(asked) : 5);
}

int MPI_Init(int *argc, char ***argv)
{
    int code = PMPI_Init(argc, argv);
    place();
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int code = PMPI_Init_thread(argc, argv, required, provided);
    place();
    return code;
}

double MPI_Wtime(void)
{
    static double since;
    double now = PMPI_Wtime();
    if (now - since < slice)
        return now;
    sched_yield();
    return since = PMPI_Wtime();
}

/* What the benchmarks share. Each prints lines of `figure,ranks,bytes,value` on rank 0. The units
 * are in bench/run, with the names of the figures. The number of repetitions follows from the time
 * of one, so that one setting serves fast and oversubscribed machines. */
#ifndef FERRY_BENCH_MEASURE_H
#define FERRY_BENCH_MEASURE_H

#include <mpi.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, ranks;
static double budget = 0.25; /* seconds for one figure at one size */
static int most = 4194304;   /* bytes of the largest message */
static int turns = -1;       /* from where this job's turns come */

static void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (getenv("BENCH_BUDGET"))
        budget = atof(getenv("BENCH_BUDGET"));
    if (getenv("BENCH_MOST"))
        most = atoi(getenv("BENCH_MOST"));
    if (getenv("BENCH_TURNS") && (turns = open(getenv("BENCH_TURNS"), O_RDONLY)) < 0) {
        perror(getenv("BENCH_TURNS"));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Where several MPIs take turns (bench/turns.py): waits for this job's, outside of MPI, so that no
 * rank needs its core meanwhile. A byte for each rank comes by the pipe; nobody can take a second
 * one before all have had theirs. Without BENCH_TURNS it does nothing. */
static void take_turn(void)
{
    char one;
    if (turns < 0)
        return;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        puts("waiting");
        fflush(stdout);
    }
    if (read(turns, &one, 1) != 1)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The end, which is nobody else's turn either. */
static void finish(void)
{
    take_turn();
    MPI_Finalize();
}

static char *buffer(size_t bytes)
{
    char *at = NULL;
    if (posix_memalign((void **)&at, 4096, bytes ? bytes : 1))
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(at, rank + 1, bytes);
    return at;
}

/* Different under each kernel, or (where it does not say) in each rank. */
static uint64_t kernel(void)
{
    char id[37] = "";
    uint64_t sum = 14695981039346656037u;
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY);
    ssize_t length = file < 0 ? 0 : read(file, id, 36);
    if (file >= 0)
        close(file);
    if (length != 36)
        return (uint64_t)rank + 1;
    for (int i = 0; i < 36; i++)
        sum = (sum ^ (unsigned char)id[i]) * 1099511628211u;
    return sum;
}

/* Do all ranks run under one kernel, be it as several hosts, so that they have one clock? */
static int one_clock(void)
{
    static int known = -1;
    if (known < 0) {
        uint64_t mine[2] = {kernel(), ~kernel()}, all[2];
        MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
        known = all[0] == ~all[1];
    }
    return known;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds from when the first rank began (`begun` is this one's `now`) until the last has ended,
 * the same on all. Ranks that share a core do not leave a barrier together, and one that begins
 * late, when others are half done, has it easier than all at once. A second barrier would show
 * that, too, but it costs some MPIs as much as what is measured. Under several kernels, whose
 * clocks differ, it is the longest time that a rank sees by itself. */
static double together(double begun)
{
    double end = now(), mine[2] = {-begun, end}, all[2];
    if (!one_clock())
        mine[0] = 0, mine[1] = end - begun;
    MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all[0] + all[1];
}

/* Runs `body(times)` until it takes the budget, agreed by all ranks; returns seconds for one time:
 * the best of three timed runs, so that another process's moment on the core does not count. Where
 * one time alone takes most of the budget (ranks that poll, and share a core), less is repeated: no
 * run is begun once three budgets are over. All ranks decide by the same figures, and every MPI by
 * the same rule. */
static double timed(void (*body)(int times))
{
    int times = 1;
    double took = 0, spent = 0;
    take_turn();
    body(1);
    for (;;) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = now();
        body(times);
        took = together(begun);
        if (took > budget / 10 || times > 1 << 22)
            break;
        times *= took > budget / 100 ? 4 : 10;
    }
    int wanted = took > 0 ? (int)(times * (budget / 3) / took) : times;
    if (wanted < 3)
        wanted = took > times * budget ? 1 : 3;
    double best = 1e30;
    for (int i = 0; i < 3 && spent < 3 * budget; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = now();
        body(wanted);
        took = together(begun);
        spent += took;
        if (took / wanted < best)
            best = took / wanted;
    }
    return best;
}

static void say(const char *figure, long bytes, double value)
{
    if (rank == 0) {
        printf("%s,%d,%ld,%.6g\n", figure, ranks, bytes, value);
        fflush(stdout);
    }
}

#endif

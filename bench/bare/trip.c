/* How long a cache line takes from one core to another, in nanoseconds: a machine whose cores are
 * far from each other at times has slow phases. It takes turns with the MPIs (bench/turns.py), and
 * prints `trip,2,0,value` in each: the median of nine runs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 9, TRIPS = 2000 };

struct shared {
    _Alignas(128) _Atomic uint32_t trips; /* that the line has made */
    _Alignas(128) _Atomic int waits;      /* the second process waits for the line */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void on_core(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* Passes the line on whenever it has come. `first`: the number of this side's first trip. */
static void pass(struct shared *shared, uint32_t first)
{
    for (uint32_t trip = first; trip < TRIPS; trip += 2) {
        while (atomic_load_explicit(&shared->trips, memory_order_acquire) != trip)
            ;
        atomic_store_explicit(&shared->trips, trip + 1, memory_order_release);
    }
}

static void second_process(struct shared *shared, int go)
{
    char one;
    prctl(PR_SET_PDEATHSIG, 9);
    while (read(go, &one, 1) == 1) {
        atomic_store(&shared->waits, 1);
        pass(shared, 1);
    }
}

/* Nanoseconds a trip. */
static double measured(struct shared *shared, int go)
{
    atomic_store(&shared->trips, 0);
    atomic_store(&shared->waits, 0);
    if (write(go, "", 1) != 1)
        exit(1);
    while (!atomic_load(&shared->waits))
        ;
    double begun = now();
    pass(shared, 0);
    while (atomic_load(&shared->trips) != TRIPS)
        ;
    return (now() - begun) / TRIPS;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    cpu_set_t allowed;
    int cores[2], found = 0, turns = -1, go[2];
    const char *name = getenv("BENCH_TURNS");
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &allowed))
            cores[found++] = core;
    if (name != NULL)
        turns = open(name, O_RDONLY);
    if (found < 2 || turns < 0 || pipe(go) != 0) {
        fputs("trip: needs two cores, and a pipe's name in BENCH_TURNS\n", stderr);
        return 1;
    }
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("trip: mmap");
        return 1;
    }
    on_core(cores[1]);
    if (fork() == 0) {
        close(go[1]);
        second_process(shared, go[0]);
        return 0;
    }
    on_core(cores[0]);
    for (;;) {
        double took[RUNS];
        char one;
        puts("waiting");
        fflush(stdout);
        if (read(turns, &one, 1) != 1)
            return 0;
        for (int run = 0; run < RUNS; run++)
            took[run] = measured(shared, go[1]);
        qsort(took, RUNS, sizeof *took, by_value);
        printf("trip,2,0,%.1f\n", took[RUNS / 2]);
        fflush(stdout);
    }
}

/* The copies of bench/onesided without MPI, for its rows that may be bound by them. Nothing is
 * checked, and no epoch is opened:
 *
 *     cc -O2 -Ibench/bare bench/bare/onesided.c bench/bare/bare.c -o bare-onesided
 *     ./bare-onesided 2 bandwidth busy
 *
 * Allocated windows are memory that both processes map, and memcpy copies. Created ones are memory
 * of one process, to which the other has process_vm_readv and process_vm_writev. An accumulate is
 * one of each. The arguments behind the number of processes are the parts, as in onesided.c. */
#define _GNU_SOURCE
#include "../measure.h"

#include <sys/mman.h>
#include <sys/uio.h>

enum { REGION = 4194304, IN_FLIGHT = 32, BUSY_SAMPLES = 500 };

static const double BUSY_SECONDS = 0.010;

/* What both processes map. */
static struct {
    char memory[REGION];
    char *created; /* where the target's own memory is */
    pid_t target;
} *shared;

static char *origin;
static size_t bytes;

static void copy_vm(int put, char *here, char *there, size_t length)
{
    while (length > 0) {
        struct iovec near = {here, length}, far = {there, length};
        ssize_t done = put ? process_vm_writev(shared->target, &near, 1, &far, 1, 0)
                           : process_vm_readv(shared->target, &near, 1, &far, 1, 0);
        if (done <= 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        here += done, there += done, length -= (size_t)done;
    }
}

static void put_mapped(char *here, size_t at) { memcpy(shared->memory + at, here, bytes); }
static void get_mapped(char *here, size_t at) { memcpy(here, shared->memory + at, bytes); }
static void put_vm(char *here, size_t at) { copy_vm(1, here, shared->created + at, bytes); }
static void get_vm(char *here, size_t at) { copy_vm(0, here, shared->created + at, bytes); }

static void (*copy)(char *here, size_t at);

static void copies(int times)
{
    if (rank != 0)
        return;
    for (int i = 0; i < times; i++)
        for (size_t k = 0; k < IN_FLIGHT; k++) {
            size_t at = k * bytes % REGION;
            copy(origin + at, at);
        }
}

static void bandwidth(const char *figure, void (*way)(char *here, size_t at))
{
    copy = way;
    for (bytes = 4096; bytes <= REGION && bytes <= (size_t)most; bytes *= 4)
        say(figure, (long)bytes, (double)bytes * IN_FLIGHT / timed(copies) / 1e9);
}

static void compute(double until)
{
    volatile double sum = 0;
    while (now() < until)
        for (int i = 0; i < 100; i++)
            sum += i;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void accumulate(void)
{
    copy_vm(0, origin, shared->created, 8);
    ++*(int64_t *)origin;
    copy_vm(1, origin, shared->created, 8);
}

/* The median of those that begin while the target computes, as in onesided.c. */
static void busy(void)
{
    static double samples[BUSY_SAMPLES];
    take_turn();
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = now();
    if (rank == 1)
        compute(begun + BUSY_SECONDS);
    else if (rank == 0) {
        compute(begun + BUSY_SECONDS * 0.1);
        for (int i = 0; i < BUSY_SAMPLES; i++) {
            double start = now();
            accumulate();
            samples[i] = now() - start;
            compute(now() + BUSY_SECONDS / 1000);
        }
        qsort(samples, BUSY_SAMPLES, sizeof *samples, ascending);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    say("busy_accumulate_created", 8, samples[BUSY_SAMPLES / 2] * 1e6);
}

int main(int argc, char **argv)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    memset(shared->memory, 0, REGION);
    begin(&argc, &argv);
    origin = buffer(REGION);
    if (rank == 1) {
        shared->created = buffer(REGION);
        shared->target = getpid();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "bandwidth") == 0) {
            bandwidth("put_bandwidth_allocated", put_mapped);
            bandwidth("get_bandwidth_allocated", get_mapped);
            bandwidth("put_bandwidth_created", put_vm);
            bandwidth("get_bandwidth_created", get_vm);
        } else if (strcmp(argv[i], "busy") == 0)
            busy();
        else
            MPI_Abort(MPI_COMM_WORLD, 2);
    finish();
    return 0;
}

/* How much of a non-blocking collective's time a computation hides. The computation is a fixed
 * number of turns of a loop: as many as take twice as long as the collective alone. Where there are
 * two cores, the computing threads of all ranks run on the first one, and the other one is left to
 * progress threads. This is so for each MPI. There are two figures: the overlap, 100 * (1 - (total
 * - compute) / pure), and the total time divided by the computation's. */
#define _GNU_SOURCE
#include "measure.h"

#include <sched.h>

enum { KINDS = 7, TIMES = 9 };
static const char *const names[KINDS] = {"ibcast",  "iallreduce", "ialltoall", "iallgather",
                                         "igather", "iscatter",   "ireduce"};
static char *out, *in;
static int bytes;
static volatile double sink = 2;

static MPI_Request start(int kind)
{
    MPI_Request r = MPI_REQUEST_NULL;
    int n = bytes / (int)sizeof(double);
    MPI_Comm c = MPI_COMM_WORLD;
    switch (kind) {
    case 0:
        MPI_Ibcast(out, bytes, MPI_BYTE, 0, c, &r);
        break;
    case 1:
        MPI_Iallreduce(out, in, n, MPI_DOUBLE, MPI_SUM, c, &r);
        break;
    case 2:
        MPI_Ialltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, c, &r);
        break;
    case 3:
        MPI_Iallgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, c, &r);
        break;
    case 4:
        MPI_Igather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, c, &r);
        break;
    case 5:
        MPI_Iscatter(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, c, &r);
        break;
    default:
        MPI_Ireduce(out, in, n, MPI_DOUBLE, MPI_SUM, 0, c, &r);
        break;
    }
    return r;
}

/* The compiler does not know where it begins, or it would do it all beforehand. */
static void compute(long turns)
{
    double x = sink;
    for (long i = 0; i < turns; i++)
        x = x * 0.999999 + 1e-6;
    sink = x;
}

/* Seconds for one collective and `turns` of work: the median of some. Ranks that share a core
 * compute one after the other, and what each one sees by itself depends on who comes first. */
static double one(int kind, long turns)
{
    double took[TIMES];
    for (int i = 0; i < TIMES; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = now();
        MPI_Request r = kind < 0 ? MPI_REQUEST_NULL : start(kind);
        compute(turns);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        took[i] = together(begun);
        for (int k = i; k > 0 && took[k] < took[k - 1]; k--) {
            double swap = took[k];
            took[k] = took[k - 1], took[k - 1] = swap;
        }
    }
    return took[TIMES / 2];
}

static void first_core(void)
{
    cpu_set_t may;
    if (sched_getaffinity(0, sizeof may, &may) != 0 || CPU_COUNT(&may) < 2)
        return;
    int core = 0;
    while (!CPU_ISSET(core, &may))
        core++;
    CPU_ZERO(&may);
    CPU_SET(core, &may);
    sched_setaffinity(0, sizeof may, &may);
}

int main(int argc, char **argv)
{
    int given;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE,
                    &given); /* some want it for their progress thread */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    first_core();
    static const int sizes[] = {65536, 1048576};
    out = buffer((size_t)sizes[1] * (size_t)ranks), in = buffer((size_t)sizes[1] * (size_t)ranks);
    memset(out, 0, (size_t)sizes[1] * (size_t)ranks);
    double turn = one(-1, 1000000) / 1000000;
    MPI_Bcast(&turn, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int s = 0; s < 2; s++) {
        bytes = sizes[s];
        for (int kind = 0; kind < KINDS; kind++) {
            one(kind, 0);
            double pure = one(kind, 0);
            double wanted = pure * 2 < 500e-6 ? 500e-6 : pure * 2;
            MPI_Bcast(&wanted, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            long turns = (long)(wanted / turn);
            double alone = one(-1, turns), total = one(kind, turns);
            double overlap = 100 * (1 - (total - alone) / pure);
            char figure[64];
            snprintf(figure, sizeof figure, "overlap_%s", names[kind]);
            say(figure, bytes, overlap < 0 ? 0 : overlap > 100 ? 100 : overlap);
            snprintf(figure, sizeof figure, "pure_%s", names[kind]);
            say(figure, bytes, pure * 1e6);
            snprintf(figure, sizeof figure, "beyond_%s", names[kind]);
            say(figure, bytes, (total - alone) * 1e6);
        }
    }
    finish();
    return 0;
}

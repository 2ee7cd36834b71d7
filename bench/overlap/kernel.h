// What the kernels of bench/overlap have in common: fixed work, two communicators that differ in
// nothing but overlap, least times.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 128 };
static MPI_Comm comms[2]; // blocking; overlapping where the job runs with --overlap=comm
static int rank, size;
static double t[2][ROUNDS],
    call[2]
        [ROUNDS]; // seconds of each round, of the slowest rank; of these in the calls that overlap

static void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int on = 0; on < 2; on++) {
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "ferry_overlap", on ? "on" : "off");
        MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comms[on]);
        MPI_Info_free(&info);
    }
}

static double longest(double mine)
{
    double all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

/* The least of some times: the work is fixed, so what is above it is somebody else's doing (the
 * machine is shared). */
static double least(const double *t, int n)
{
    double x = t[0];
    for (int i = 1; i < n; i++)
        x = t[i] < x ? t[i] : x;
    return x;
}

/* Which way comes first and second in a round: as if by chance, so that nothing that comes again
 * every few rounds always meets the same one. */
static inline int way(int round, int nth)
{
    unsigned x = (unsigned)round + 1;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return nth ^ (int)((x ^ x >> 16) & 1);
}

/* One line of JSON: the least of the rounds, and all of them. */
static inline void say(const char *kernel, int rounds)
{
    if (rank != 0)
        return;
    printf("{\"kernel\": \"%s\", \"ranks\": %d, \"blocking\": %.5f, \"overlap\": %.5f, "
           "\"call_blocking\": %.5f, \"call_overlap\": %.5f",
           kernel, size, least(t[0], rounds), least(t[1], rounds), least(call[0], rounds),
           least(call[1], rounds));
    for (int on = 0; on < 2; on++)
        for (int of = 0; of < 2; of++) {
            printf(", \"%s_%s\": [", of ? "calls" : "rounds", on ? "overlap" : "blocking");
            for (int i = 0; i < rounds; i++)
                printf("%s%.5f", i ? ", " : "", of ? call[on][i] : t[on][i]);
            printf("]");
        }
    printf("}\n");
}

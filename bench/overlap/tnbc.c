/* The micro-benchmark of the paper (T-NBC, 2011): an all-to-all, computation that does not touch
 * its buffers (T_CURC), then computation that reads what has been received, from the buffer's
 * beginning on, at a fixed rate (CRC). A rank's own block, which no message brings, is left out: of
 * the paper's 64 it is one, of two it is half. The same with and without overlap, in turn. tnbc
 * BYTES TURNS CURC CRC     bytes of a block; repetitions; the two computations as parts of the
 * blocking collective's time Prints one line of JSON, times in milliseconds: the least over the
 * repetitions, of the slowest rank. Computations are turns of a loop, so what progress takes of a
 * core is in them. */
#include "kernel.h"

#include <sys/resource.h>

#define PAGE 4096
static volatile unsigned long sink = 1;

static void work(long turns)
{
    unsigned long x = sink;
    for (long i = 0; i < turns; i++) {
        x = x * 6364136223846793005UL + 1442695040888963407UL;
        __asm__ volatile("" : "+r"(x)); /* the compiler shall not find a shorter way */
    }
    sink = x;
}

static long turns_a_ms(void)
{
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        double t = MPI_Wtime();
        work(1000000);
        t = MPI_Wtime() - t;
        if (t < best)
            best = t;
    }
    return (long)(1000000 * 1e-3 / best);
}

static char *out, *in;
static int block;
static double in_call;

/* Seconds that this process has used of cores, its threads and the system on its behalf. */
static double used(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double once(int on, long curc, long crc_a_page)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double t = MPI_Wtime();
    MPI_Alltoall(out, block, MPI_BYTE, in, block, MPI_BYTE, comms[on]);
    in_call = MPI_Wtime() - t;
    work(curc);
    size_t bytes = (size_t)block * (size_t)size, pages = 0;
    long right = 0;
    if (crc_a_page)
        for (size_t at = 0; at < bytes; at += PAGE) {
            if ((int)(at / (size_t)block) == rank)
                continue;
            pages++;
            right += in[at] == (char)(at / (size_t)block * 7 + (size_t)rank);
            work(crc_a_page);
        }
    MPI_Barrier(MPI_COMM_SELF); /* whatever still goes on has ended then */
    t = MPI_Wtime() - t;
    if (crc_a_page && right != (long)pages) {
        fprintf(stderr, "rank %d read wrong bytes\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return t;
}

/* What the computations take when nothing goes on. */
static double computes(long curc, long crc_a_page)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double t = MPI_Wtime();
    work(curc);
    size_t bytes = (size_t)block * (size_t)size;
    for (size_t at = 0; crc_a_page && at < bytes; at += PAGE)
        if ((int)(at / (size_t)block) != rank)
            work(crc_a_page);
    return MPI_Wtime() - t;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    block = atoi(argv[1]);
    int reps = atoi(argv[2]) < ROUNDS - 2 ? atoi(argv[2]) : ROUNDS - 2;
    size_t bytes = (size_t)block * (size_t)size;
    out = malloc(bytes);
    in = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        out[i] = (char)(rank * 7 + (int)(i / (size_t)block));
    memset(in, 1, bytes);
    double pure[ROUNDS];
    long ms = turns_a_ms();
    double slowest = longest(1.0 / (double)ms);
    ms = (long)(1 / slowest);
    for (int i = 0; i < 2; i++)
        pure[i] = longest(once(0, 0, 0));
    double cpu = used();
    for (int i = 2; i < reps + 2; i++)
        pure[i] = longest(once(0, 0, 0));
    cpu = longest(used() - cpu) / reps;
    double tc = least(pure + 2, reps) * 1e3;
    long curc = (long)(atof(argv[3]) * tc * (double)ms),
         crc = (long)(atof(argv[4]) * tc * (double)ms / ((double)(bytes - (size_t)block) / PAGE));
    for (int i = 0; i < 6; i++)
        once(1, curc, crc); /* the site is learnt */
    /* All in turn, so that a machine that becomes slower or faster does so for all: the collective
     * alone, each computation alone, and both ways. */
    double curc_alone[ROUNDS], crc_alone[ROUNDS];
    for (int i = 0; i < reps; i++) {
        pure[i] = longest(once(0, 0, 0));
        curc_alone[i] = longest(computes(curc, 0));
        crc_alone[i] = longest(computes(0, crc));
        for (int on = 0; on < 2; on++) {
            t[on][i] = longest(once(on, curc, crc));
            call[on][i] = longest(in_call);
        }
    }
    if (rank == 0)
        printf("{\"ranks\": %d, \"block\": %d, \"tc\": %.3f, \"curc\": %.3f, \"crc\": %.3f, "
               "\"blocking\": %.3f, \"overlap\": %.3f, \"init\": %.3f, \"cpu\": %.3f}\n",
               size, block, least(pure, reps) * 1e3, least(curc_alone, reps) * 1e3,
               least(crc_alone, reps) * 1e3, least(t[0], reps) * 1e3, least(t[1], reps) * 1e3,
               least(call[1], reps) * 1e3, cpu * 1e3);
    MPI_Finalize();
    return 0;
}

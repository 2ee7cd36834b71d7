/* Solves a linear system by Gauss elimination in stochastic arithmetic, and tells how many digits
 * of the result are to be trusted.
 *
 *     gauss [N] [pivot|none] [SEED]
 *
 * Each number is three samples; after every operation each sample is rounded up or down at random.
 * What the three have in common is right, what they differ in is round-off (the CESTAC method of J.
 * Vignes; CADNA is a library of it). Rows are dealt out to the ranks in turn. Without pivoting a
 * step broadcasts one row; with pivoting the ranks first agree on the largest element of the
 * column, which is many short messages, and two rows may change places. Prints the time of the
 * elimination by MPI_Wtime, in seconds, and the digits. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 3 };
typedef struct {
    double sample[SAMPLES];
} number;

static uint64_t state;

static int coin(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 40 & 1;
}

/* One unit in the last place up or down, or not at all: the exact result lies between two doubles.
 */
static double rounded(double x)
{
    return coin() ? x : x * (1 + (coin() ? 0x1p-52 : -0x1p-52));
}

static number minus_product(number a, number b, number c)
{
    for (int i = 0; i < SAMPLES; i++)
        a.sample[i] = rounded(a.sample[i] - rounded(b.sample[i] * c.sample[i]));
    return a;
}

static number quotient(number a, number b)
{
    for (int i = 0; i < SAMPLES; i++)
        a.sample[i] = rounded(a.sample[i] / b.sample[i]);
    return a;
}

static double mean(number a)
{
    return (a.sample[0] + a.sample[1] + a.sample[2]) / SAMPLES;
}

/* Decimal digits that the samples have in common, by Student's t for a confidence of 95 %. */
static double digits(number a)
{
    double m = mean(a), sum = 0;
    for (int i = 0; i < SAMPLES; i++)
        sum += (a.sample[i] - m) * (a.sample[i] - m);
    double sigma = sqrt(sum / (SAMPLES - 1));
    if (sigma == 0)
        return 15.95;
    double found = log10(sqrt((double)SAMPLES) * fabs(m) / (sigma * 4.303));
    return found > 0 ? found : 0;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int n = argc > 1 ? atoi(argv[1]) : 100;
    int pivoting = argc <= 2 || strcmp(argv[2], "none") != 0;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (n < 1) {
        fprintf(stderr, "gauss: N is %s; it must be 1 at least\n", argv[1]);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Datatype row_type;
    MPI_Type_contiguous((n + 1) * SAMPLES, MPI_DOUBLE, &row_type);
    MPI_Type_commit(&row_type);

    /* The same matrix on any number of ranks: row i depends on seed and i. Diagonally light, so
     * that pivoting matters. */
    int mine = (n - rank + ranks - 1) / ranks;
    number(*rows)[n + 1] = malloc((mine + 1) * sizeof *rows), *pivot = malloc(sizeof *rows),
                      *other = malloc(sizeof *rows);
    for (int k = 0; k < mine; k++) {
        int i = k * ranks + rank;
        state = seed * 0x9e3779b97f4a7c15 + (i + 1) * 0xbf58476d1ce4e5b9;
        double sum = 0;
        for (int warm = 0; warm < 8; warm++)
            coin();
        for (int j = 0; j < n; j++) {
            coin();
            double x = (double)(state >> 11) * 0x1p-53 - 0.5;
            sum += x;
            for (int s = 0; s < SAMPLES; s++)
                rows[k][j].sample[s] = rounded(x);
        }
        for (int s = 0; s < SAMPLES; s++)
            rows[k][n].sample[s] = rounded(sum); /* the solution is 1 everywhere */
    }
    state = seed * 0x94d049bb133111eb + rank + 1;

    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int step = 0; step < n; step++) {
        int owner = step % ranks, first = (step - rank + ranks - 1) / ranks;
        if (step < rank)
            first = 0;
        if (pivoting) {
            struct {
                double value;
                int row;
            } best = {-1, step};
            for (int k = first; k < mine; k++)
                if (fabs(mean(rows[k][step])) > best.value) {
                    best.value = fabs(mean(rows[k][step]));
                    best.row = k * ranks + rank;
                }
            MPI_Allreduce(MPI_IN_PLACE, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
            int from = best.row % ranks;
            if (best.row != step && (rank == owner || rank == from)) {
                number *here = rows[(rank == owner ? step : best.row) / ranks];
                if (owner == from) {
                    number *there = rows[best.row / ranks];
                    memcpy(other, here, sizeof *rows);
                    memcpy(here, there, sizeof *rows);
                    memcpy(there, other, sizeof *rows);
                } else
                    MPI_Sendrecv_replace(here, 1, row_type, rank == owner ? from : owner, 0,
                                         rank == owner ? from : owner, 0, MPI_COMM_WORLD,
                                         MPI_STATUS_IGNORE);
            }
        }
        if (rank == owner)
            memcpy(pivot, rows[step / ranks], sizeof *rows);
        MPI_Bcast(pivot, 1, row_type, owner, MPI_COMM_WORLD);
        for (int k = first; k < mine; k++) {
            if (k * ranks + rank <= step)
                continue;
            number factor = quotient(rows[k][step], pivot[step]);
            for (int j = step; j <= n; j++)
                rows[k][j] = minus_product(rows[k][j], factor, pivot[j]);
        }
    }
    double took = MPI_Wtime() - begin;

    /* Back substitution, not timed: each unknown goes to all as it is found. */
    number *x = malloc(n * sizeof *x);
    double least = 16, error = 0;
    for (int i = n - 1; i >= 0; i--) {
        if (i % ranks == rank) {
            number sum = rows[i / ranks][n];
            for (int j = i + 1; j < n; j++)
                sum = minus_product(sum, rows[i / ranks][j], x[j]);
            x[i] = quotient(sum, rows[i / ranks][i]);
        }
        MPI_Bcast(x[i].sample, SAMPLES, MPI_DOUBLE, i % ranks, MPI_COMM_WORLD);
        least = fmin(least, digits(x[i]));
        error = fmax(error, fabs(mean(x[i]) - 1));
    }
    if (rank == 0)
        printf("gauss,%d,%s,%.9f,%.1f,%.3g\n", n, pivoting ? "pivot" : "none", took, least, error);
    MPI_Type_free(&row_type);
    free(rows);
    free(pivot);
    free(other);
    free(x);
    MPI_Finalize();
    return 0;
}

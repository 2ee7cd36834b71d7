/* Sorts integers that are spread over all ranks, and proves that they are sorted.
 *
 *     mpicc -O2 examples/isort.c -o isort && mpiexec -n 4 ./isort [MILLIONS OF KEYS]
 *
 * Sample sort: each rank sorts its keys and gives a sample; from all samples everybody chooses the
 * same borders (MPI_Allgather), each rank sends every other the keys that belong between that one's
 * borders (MPI_Alltoall for the numbers, MPI_Alltoallv for the keys), and sorts what it got. */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Least significant byte first, four rounds; `other` is room of the same size. */
static void radix_sort(uint32_t *keys, uint32_t *other, size_t n)
{
    for (int shift = 0; shift < 32; shift += 8) {
        size_t place[257] = {0};
        for (size_t i = 0; i < n; i++)
            place[(keys[i] >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++)
            place[i + 1] += place[i];
        for (size_t i = 0; i < n; i++)
            other[place[keys[i] >> shift & 255]++] = keys[i];
        uint32_t *swap = keys;
        keys = other, other = swap;
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double millions = argc > 1 ? atof(argv[1]) : 16;
    size_t n = (size_t)(millions * 1e6 / ranks);
    uint32_t *keys = malloc(n * sizeof *keys + 4), *room = malloc(n * sizeof *room + 4);
    uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(rank + 1), sums[3] = {0, 0, n};
    for (size_t i = 0; i < n; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        uint32_t a = (uint32_t)state, b = (uint32_t)(state >> 32);
        keys[i] = a / 2 + b / 2; /* not evenly spread: the middle is twice as full */
        sums[0] += keys[i];
        sums[1] += (uint64_t)keys[i] * keys[i];
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();

    radix_sort(keys, room, n);
    enum { SAMPLE = 64 };
    uint32_t sample[SAMPLE], *samples = malloc(SAMPLE * (size_t)ranks * sizeof *samples);
    for (int i = 0; i < SAMPLE; i++)
        sample[i] = n ? keys[n * (size_t)i / SAMPLE] : UINT32_MAX;
    MPI_Allgather(sample, SAMPLE, MPI_UINT32_T, samples, SAMPLE, MPI_UINT32_T, MPI_COMM_WORLD);
    uint32_t *spare = malloc(SAMPLE * (size_t)ranks * sizeof *spare);
    radix_sort(samples, spare, SAMPLE * (size_t)ranks);

    int *give = calloc((size_t)ranks, sizeof *give), *given = calloc((size_t)ranks, sizeof *given);
    int *take = calloc((size_t)ranks, sizeof *take), *taken = calloc((size_t)ranks, sizeof *taken);
    size_t at = 0;
    for (int to = 0; to < ranks; to++) {
        given[to] = (int)at;
        while (at < n && (to == ranks - 1 || keys[at] < samples[SAMPLE * (to + 1)]))
            at++;
        give[to] = (int)at - given[to];
    }
    MPI_Alltoall(give, 1, MPI_INT, take, 1, MPI_INT, MPI_COMM_WORLD);
    size_t mine = 0;
    for (int from = 0; from < ranks; from++) {
        taken[from] = (int)mine;
        mine += (size_t)take[from];
    }
    uint32_t *sorted = malloc(mine * sizeof *sorted + 4), *more = malloc(mine * sizeof *more + 4);
    MPI_Alltoallv(keys, give, given, MPI_UINT32_T, sorted, take, taken, MPI_UINT32_T,
                  MPI_COMM_WORLD);
    radix_sort(sorted, more, mine);
    MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime() - start;

    /* Sorted here, not above the first key of any later rank, and the same keys as before. */
    uint64_t after[3] = {0, 0, mine}, before[3], now[3];
    int wrong = 0, all_wrong = 0;
    for (size_t i = 0; i < mine; i++) {
        after[0] += sorted[i];
        after[1] += (uint64_t)sorted[i] * sorted[i];
        wrong += i > 0 && sorted[i - 1] > sorted[i];
    }
    uint32_t greatest = mine ? sorted[mine - 1] : 0, below = 0;
    MPI_Exscan(&greatest, &below, 1, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
    wrong += rank > 0 && mine && sorted[0] < below;
    MPI_Reduce(sums, before, 3, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(after, now, 3, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        all_wrong += memcmp(before, now, sizeof now) != 0;
        printf("%.1f million keys on %d ranks in %.3f s, %.0f million a second: %s\n",
               (double)now[2] / 1e6, ranks, took, (double)now[2] / 1e6 / took,
               all_wrong ? "NOT SORTED" : "sorted, and all keys are there");
    }
    MPI_Bcast(&all_wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(keys), free(room), free(samples), free(spare), free(give), free(given), free(take),
        free(taken), free(sorted), free(more);
    MPI_Finalize();
    return all_wrong != 0;
}

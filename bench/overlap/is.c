/* Integer sort, after the public specification of the NAS parallel benchmarks (IS): keys by its
 * generator, sorted by buckets; each of ten iterations changes two keys and ranks all. Verified:
 * all keys are there, in order across all ranks; for class A (23 19) NAS's own ranks of five keys,
 * too. is LOG2KEYS LOG2MAX ROUNDS [ITERATIONS]    both ways in turn, ROUNDS times; prints one line
 * of JSON, seconds (the least of the rounds, of the slowest rank) */
#include "kernel.h"

#include <limits.h>
#include <stdint.h>

enum { BUCKETS = 1024 };
static int iterations = 10;
static int64_t keys_all, mine, largest;
static int *keys, *buffer, *inbox, *counts;
static double in_calls;

/* x <- a x mod 2^46, as a number in (0, 1). */
static uint64_t power(uint64_t a, uint64_t n)
{
    uint64_t r = 1;
    for (; n; n >>= 1, a = a * a & ((1ULL << 46) - 1))
        if (n & 1)
            r = r * a & ((1ULL << 46) - 1);
    return r;
}

static void generate(void)
{
    const uint64_t a = 1220703125, mask = (1ULL << 46) - 1;
    uint64_t x = 314159265 * power(a, 4 * (uint64_t)mine * (uint64_t)rank) & mask;
    for (int64_t i = 0; i < mine; i++) {
        double s = 0;
        for (int k = 0; k < 4; k++) {
            x = x * a & mask;
            s += (double)x / 70368744177664.0;
        }
        keys[i] = (int)((double)(largest / 4) * s);
    }
}

/* NAS's own check for its class A (2^23 keys up to 2^19): keys by their places at the beginning,
 * their ranks in the first iteration, and by how much these change with each further one (partial
 * verification, is.c of NPB 3.4). */
enum { KNOWN = 5 };
static const int places[KNOWN] = {2112377, 662041, 5336171, 3642833, 4250760},
                 ranks_known[KNOWN] = {104, 17523, 123928, 8288932, 8388264},
                 step[KNOWN] = {1, 1, 1, -1, -1};
static int key_at[KNOWN];

static int is_class_a(void)
{
    return keys_all == 1LL << 23 && largest == 1LL << 19;
}

static void find_known(void)
{
    for (int k = 0; k < KNOWN; k++) {
        int64_t place = places[k] - mine * rank;
        key_at[k] = is_class_a() && place >= 0 && place < mine ? keys[place] : 0;
    }
    MPI_Allreduce(MPI_IN_PLACE, key_at, KNOWN, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
}

static int64_t got; /* keys in the inbox */
static int lowest, count_of;

static void rank_keys(int iteration, MPI_Comm comm)
{
    static int sizes[BUCKETS], total[BUCKETS];
    int shift = 0;
    while (largest >> shift > BUCKETS)
        shift++;
    if (rank == 0) {
        keys[iteration] = iteration;
        keys[iteration + iterations] = (int)largest - iteration;
    }
    memset(sizes, 0, sizeof sizes);
    for (int64_t i = 0; i < mine; i++) {
        int b = keys[i] >> shift;
        sizes[b < BUCKETS ? b : BUCKETS - 1]++;
    }
    MPI_Allreduce(sizes, total, BUCKETS, MPI_INT, MPI_SUM, comm);
    /* Buckets go to ranks so that each has about as many keys. */
    int out[64], outs[64], ins[64], in[64], first[65];
    int64_t sum = 0, b = 0, place = 0;
    for (int r = 0; r < size; r++) {
        first[r] = (int)b;
        outs[r] = (int)place + r;
        while (b < BUCKETS && (r == size - 1 || sum + total[b] <= (r + 1) * keys_all / size)) {
            sum += total[b];
            place += sizes[b];
            b++;
        }
        out[r] = (int)place + r - outs[r];
    }
    first[size] = BUCKETS;
    /* Keys are parted by the rank that they go to and no further: one pass for two ranks, without a
     * branch. Behind each rank's keys one more is written. */
    for (int r = 0; r < size; r += 2) {
        int both = r + 1 < size ? r + 1 : r;
        unsigned from = (unsigned)first[r] << shift, from2 = (unsigned)first[both] << shift;
        unsigned many = (r == size - 1 ? INT_MAX : (unsigned)first[r + 1] << shift) - from,
                 many2 = (both == size - 1 ? INT_MAX : (unsigned)first[both + 1] << shift) - from2;
        int *next = buffer + outs[r], *next2 = buffer + outs[both];
        for (int64_t i = 0; i < mine; i++) {
            int key = keys[i];
            *next = key;
            *next2 = key;
            next += (unsigned)key - from < many;
            next2 += (unsigned)key - from2 < many2;
        }
    }
    MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, comm);
    got = 0;
    for (int r = 0; r < size; r++)
        ins[r] = (int)got, got += in[r];
    double t = MPI_Wtime();
    MPI_Alltoallv(buffer, out, outs, MPI_INT, inbox, in, ins, MPI_INT, comm);
    in_calls += MPI_Wtime() - t;
    lowest = first[rank] << shift;
    count_of = (int)((rank == size - 1 ? largest + 1 : (int64_t)first[rank + 1] << shift) - lowest);
    if (count_of < 1)
        count_of = 1;
    memset(counts, 0, sizeof *counts * (size_t)count_of);
    /* A rank's own keys first, which are there already. */
    for (int k = 0; k < size; k++) {
        int r = (rank + k) % size;
        for (int i = ins[r]; i < ins[r] + in[r]; i++)
            counts[inbox[i] - lowest]++;
    }
    for (int i = 1; i < count_of; i++)
        counts[i] += counts[i - 1];
}

static void verify(void)
{
    int *sorted = malloc(sizeof(int) * (size_t)(got + 1));
    for (int64_t i = 0; i < got; i++)
        sorted[--counts[inbox[i] - lowest]] = inbox[i];
    /* Where this rank's keys begin among all, and now where each value begins among this rank's. */
    int64_t below_all = 0;
    MPI_Exscan(&got, &below_all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        below_all = 0;
    int failed = 0;
    for (int k = 0; is_class_a() && k < KNOWN; k++)
        if (key_at[k] >= lowest && key_at[k] < lowest + count_of)
            failed += below_all + counts[key_at[k] - lowest] !=
                      ranks_known[k] + step[k] * (iterations - 1);
    int64_t wrong = failed, sums[2] = {0, 0}, all[2], before[2] = {mine, 0}, had[2];
    for (int64_t i = 1; i < got; i++)
        wrong += sorted[i] < sorted[i - 1];
    sums[0] = got;
    for (int64_t i = 0; i < got; i++)
        sums[1] += sorted[i];
    for (int64_t i = 0; i < mine; i++)
        before[1] += keys[i];
    MPI_Allreduce(sums, all, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(before, had, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    int last = got ? sorted[got - 1] : lowest, below = -1;
    MPI_Sendrecv(&last, 1, MPI_INT, (rank + 1) % size, 0, &below, 1, MPI_INT,
                 (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong += rank > 0 && got && sorted[0] < below;
    if (wrong || all[0] != had[0] || all[1] != had[1]) {
        fprintf(stderr, "rank %d: the keys are not sorted\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(sorted);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    keys_all = 1LL << atoi(argv[1]);
    largest = 1LL << atoi(argv[2]);
    int rounds = atoi(argv[3]) < ROUNDS ? atoi(argv[3]) : ROUNDS;
    iterations = argc > 4 ? atoi(argv[4]) : iterations;
    mine = keys_all / size;
    keys = malloc(sizeof(int) * (size_t)mine);
    buffer = malloc(sizeof(int) * (size_t)(mine + size));
    inbox = malloc(sizeof(int) * (size_t)(2 * mine + BUCKETS));
    counts = malloc(sizeof(int) * (size_t)(largest + 2));
    for (int round = 0; round <= rounds; round++) /* the first one is not counted */
        for (int nth = 0; nth < 2; nth++) {
            int on = way(round, nth);
            generate();
            find_known();
            in_calls = 0;
            MPI_Barrier(MPI_COMM_WORLD);
            double a = MPI_Wtime();
            for (int i = 1; i <= iterations; i++)
                rank_keys(i, comms[on]);
            double took = MPI_Wtime() - a;
            verify();
            took = longest(took);
            double calls = longest(in_calls);
            if (round > 0)
                t[on][round - 1] = took, call[on][round - 1] = calls;
        }
    say("IS", rounds);
    MPI_Finalize();
    return 0;
}

/* What bench/abis measures, as each ABI's shared object offers it to the program that has no MPI
 * itself. */
#ifndef FERRY_BENCH_ABIS_OPERATIONS_H
#define FERRY_BENCH_ABIS_OPERATIONS_H

/* One figure of one ABI: `run` does it `times` times on both ranks. */
struct operation {
    const char *name;
    /* The least and the greatest message, in bytes. */
    int least, most;
    void (*run)(int bytes, int times);
};

/* The only symbol of a shared object that the program looks up. */
struct operations {
    void (*begin)(int *argc, char ***argv, char *out, char *in);
    int (*rank)(void);
    /* So that both ranks begin a turn together, by whatever ABI it is. */
    void (*barrier)(void);
    /* The greater of the values of all ranks, on all. */
    double (*greatest)(double value);
    void (*end)(void);
    int count;
    const struct operation *all;
};

#endif

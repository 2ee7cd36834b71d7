/* Ranks that share a core, whatever they were bound to. */
#ifndef FERRY_TESTS_ONE_CORE_H
#define FERRY_TESTS_ONE_CORE_H

#include "check.h"

#include <sched.h>

/* Puts this thread of every rank on the first core of rank 0's. Collective over MPI_COMM_WORLD.
 * Returns whether all are there: a cpuset may refuse. */
UNUSED static int meet_on_one_core(void)
{
    cpu_set_t mine;
    int core = 0;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0)
        while (core < CPU_SETSIZE - 1 && !CPU_ISSET(core, &mine))
            core++;
    OK(MPI_Bcast(&core, 1, MPI_INT, 0, MPI_COMM_WORLD));
    CPU_ZERO(&mine);
    CPU_SET(core, &mine);
    int met = sched_setaffinity(0, sizeof mine, &mine) == 0, all = 0;
    OK(MPI_Allreduce(&met, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD));
    return all;
}

#endif

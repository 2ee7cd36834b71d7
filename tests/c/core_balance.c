/* Core balance: where ranks outnumber cores, ranks that wait for each other spread over the cores.
 * All go to one core, and are free again then: after some hundred barriers at least one has moved.
 * The system alone may leave them there for many thousands, if it has other work for the other
 * cores. For the sake of such work it may also bring them back, so not every trial must succeed.
 *
 * Ranks know of each other's core by shared memory. Over other transports nothing is counted, nor
 * where all ranks have a core of their own and none yields. */
// ranks: 4
// machines: no
#include "one_core.h"

enum { TRIALS = 10, STEP = 50, MOST = 4000 };

/* Barriers until the ranks are on more than one core, in steps. */
static int barriers_until_spread(void)
{
    int done = 0, mine[2], most[2];
    do {
        for (int i = 0; i < STEP; i++)
            OK(MPI_Barrier(MPI_COMM_WORLD));
        done += STEP;
        mine[0] = sched_getcpu();
        mine[1] = -mine[0];
        OK(MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    } while (most[0] == -most[1] && done < MOST);
    return done;
}

int main(int argc, char **argv)
{
    cpu_set_t allowed;
    int fits, fits_all;
    check_begin(&argc, &argv);
    SAME(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    fits = CPU_COUNT(&allowed) == 1 || CPU_COUNT(&allowed) >= world_size;
    OK(MPI_Allreduce(&fits, &fits_all, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    int counts = !fits_all && !getenv("FERRY_TRANSPORTS") && !getenv("FERRY_PROGRESS");
    int spread = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        int met = meet_on_one_core();
        SAME(sched_setaffinity(0, sizeof allowed, &allowed), 0);
        spread += barriers_until_spread() < MOST;
        counts &= met;
        /* It leaves them free. */
        cpu_set_t now;
        SAME(sched_getaffinity(0, sizeof now, &now), 0);
        CHECK(CPU_EQUAL(&now, &allowed), "a rank is bound to other cores than before");
    }
    CHECK(!counts || spread >= TRIALS - 4,
          "in %d of %d trials all ranks stayed on the core where they were put for %d barriers",
          TRIALS - spread, TRIALS, MOST);
    return check_end();
}

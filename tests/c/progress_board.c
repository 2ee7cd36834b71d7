/* A rank that waits in a small collective on a core that another rank wants, while a large receive
 * is under way, must see that the other has come: its progress thread, to which it would leave a
 * wait for messages, sees none. The other sends nothing before it has an answer. */
// ranks: 2
// env: FERRY_PROGRESS=thread
// machines: no
// time: 20
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

static char large[1 << 20];

/* All cores for the progress thread, then one, the same for both ranks, for the program. */
static void use_cores(int most)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int core = 0; core < most; core++)
        CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

int main(int argc, char **argv)
{
    int rank, word = 0;
    use_cores((int)sysconf(_SC_NPROCESSORS_ONLN));
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    use_cores(1);
    for (int times = 0; times < 5; times++) {
        /* Each learns where the other waits. */
        for (int i = 0; i < 20; i++) {
            MPI_Barrier(MPI_COMM_WORLD);
            usleep(500);
        }
        if (rank == 0) {
            MPI_Request request;
            MPI_Irecv(large, sizeof large, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Send(&word, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            usleep(20000);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(large, sizeof large, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
    MPI_Finalize();
    return 0;
}

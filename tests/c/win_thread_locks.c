/* MPI_THREAD_MULTIPLE: a thread takes a lock while another of its process waits for one that a rank
 * holds which does the same. No thread waits for what its own rank's other thread has asked for. */
// ranks: 2
#include "windows.h"

#include <pthread.h>

enum { PROBES_MAX = 100000 };

static Window windows[3];
static volatile int asked;

/* Asks for the lock of the other rank's part, which that rank holds. */
static void *ask(void *nothing)
{
    int other = 1 - world_rank;
    long value = 10 + world_rank;
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, other, 0, windows[other].win));
    asked = 1;
    OK(MPI_Put(&value, 1, MPI_LONG, other, 0, 1, MPI_LONG, windows[other].win));
    OK(MPI_Win_unlock(other, windows[other].win));
    return nothing;
}

int main(int argc, char **argv)
{
    int provided = -1, flag = 0;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    check_know_world();
    int other = 1 - world_rank;
    long value = 20 + world_rank;
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        windows[i] = window_make(ALLOCATED, MPI_COMM_WORLD, 8, 8, MPI_INFO_NULL);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world_rank, 0, windows[world_rank].win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    pthread_create(&thread, NULL, ask, NULL);
    /* Where MPI_Win_lock blocks until it has the lock, this is as good as any moment. */
    for (int i = 0; i < PROBES_MAX && !asked; i++)
        OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, other, 0, windows[2].win));
    OK(MPI_Put(&value, 1, MPI_LONG, other, 0, 1, MPI_LONG, windows[2].win));
    OK(MPI_Win_unlock(other, windows[2].win));
    SAME(*(long *)windows[world_rank].base, 0);
    OK(MPI_Win_unlock(world_rank, windows[world_rank].win));
    pthread_join(thread, NULL);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    SAME(*(long *)windows[world_rank].base, 10 + other);
    SAME(*(long *)windows[2].base, 20 + other);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < 3; i++)
        window_free(&windows[i]);
    return check_end();
}

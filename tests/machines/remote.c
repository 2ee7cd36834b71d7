/* One-sided communication from rank 0 to rank 1, so many times: a put of 80 bytes between fences, a
 * put of 16 bytes between post and wait, a get of 64 bytes under a lock. Each is checked where it
 * arrives. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { PUT = 80, POSTED = 16, GOT = 64, ALL = PUT + POSTED + GOT };

static void check(const unsigned char *bytes, int count, int want, const char *what)
{
    for (int i = 0; i < count; i++)
        if (bytes[i] != (unsigned char)(want + i)) {
            fprintf(stderr, "%s: byte %d is %d, not %d\n", what, i, bytes[i],
                    (unsigned char)(want + i));
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

int main(int argc, char **argv)
{
    int rank, times = argc > 1 ? atoi(argv[1]) : 1;
    unsigned char *memory, origin[ALL];
    MPI_Win win;
    MPI_Group all, peer;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, (int[]){!rank}, &peer);
    MPI_Win_allocate(ALL, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    for (int time = 0; time < times; time++) {
        for (int i = 0; i < ALL; i++)
            origin[i] = (unsigned char)(3 * time + i);
        MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
        if (rank == 0)
            MPI_Put(origin, PUT, MPI_BYTE, 1, 0, PUT, MPI_BYTE, win);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        if (rank == 1)
            check(memory, PUT, 3 * time, "put and fence");
        if (rank == 1) {
            for (int i = 0; i < GOT; i++)
                memory[PUT + POSTED + i] = (unsigned char)(7 * time + i);
            MPI_Win_post(peer, 0, win);
            MPI_Win_wait(win);
            check(memory + PUT, POSTED, 3 * time + PUT, "put, complete and wait");
        } else if (rank == 0) {
            MPI_Win_start(peer, 0, win);
            MPI_Put(origin + PUT, POSTED, MPI_BYTE, 1, PUT, POSTED, MPI_BYTE, win);
            MPI_Win_complete(win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Win_lock_all(0, win);
            MPI_Get(origin, 1, MPI_BYTE, 1, 0, 1, MPI_BYTE, win); /* has the lock then */
            MPI_Win_flush(1, win);
            MPI_Get(origin, GOT, MPI_BYTE, 1, PUT + POSTED, GOT, MPI_BYTE, win);
            MPI_Win_flush(1, win);
            check(origin, GOT, 7 * time, "get and flush");
            MPI_Win_unlock_all(win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Group_free(&peer);
    MPI_Group_free(&all);
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}

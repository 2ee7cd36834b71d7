/* A receiver that does not look for a while, and a sender that does not wait: every message comes,
 * whole and in order. `slow SECONDS`: rank 0 has sent what it can, of 1 byte to 200 KiB each, when
 * rank 1 wakes up. */
#include "../c/check.h"

#include <time.h>

enum { MESSAGES = 300 };

static int size_of(int i)
{
    return i % 7 == 0 ? 200000 + i : i % 3 == 0 ? 60000 + i : 1 + 37 * i;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    static unsigned char *buffers[MESSAGES];
    static MPI_Request requests[MESSAGES];
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0) {
        for (int i = 0; i < MESSAGES; i++) {
            buffers[i] = malloc((size_t)size_of(i));
            fill(buffers[i], (size_t)size_of(i), (uint64_t)i);
            OK(MPI_Isend(buffers[i], size_of(i), MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]));
        }
        OK(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
    } else if (world_rank == 1) {
        struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        nanosleep(&t, NULL);
        unsigned char *buffer = malloc(400000);
        for (int i = 0; i < MESSAGES; i++) {
            MPI_Status status;
            int count;
            OK(MPI_Recv(buffer, 400000, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &status));
            OK(MPI_Get_count(&status, MPI_BYTE, &count));
            CHECK(count == size_of(i), "message %d has %d bytes, should have %d", i, count,
                  size_of(i));
            int at = (int)differs(buffer, (size_t)count, (uint64_t)i);
            CHECK(at == count, "message %d: byte %d is wrong", i, at);
        }
    }
    return check_end();
}

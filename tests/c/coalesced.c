// Short messages that follow each other, as they may go together: what is sent arrives while the
// sender calls nothing, and in order with long ones, probes and collectives.
// ranks: 2 4
// machines: no
// time: 60
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { RUN = 40, ROUNDS = 30 };

// A word in a file that the ranks of this test map; the ranks are on one host.
static volatile int *shared_word(char *path)
{
    if (world_rank == 0) {
        snprintf(path, 32, "/tmp/coalesced.%d", getpid());
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        SAME(ftruncate(fd, 4096), 0);
        close(fd);
    }
    MPI_Bcast(path, 32, MPI_CHAR, 0, MPI_COMM_WORLD);
    int fd = open(path, O_RDWR);
    SAME(fd >= 0, 1);
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    SAME(at != MAP_FAILED, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0)
        unlink(path);
    return at;
}

// Rank 0 sends, and calls nothing until all have said, through the file, that they have received.
static void without_calls(volatile int *word)
{
    int numbers[RUN];
    MPI_Request requests[RUN];
    for (int round = 1; round <= ROUNDS; round++) {
        if (world_rank == 0) {
            for (int to = 1; to < world_size; to++)
                for (int k = 0; k < RUN; k++) {
                    numbers[k] = round * 1000 + k;
                    if (round % 2)
                        MPI_Send(&numbers[k], 1, MPI_INT, to, k, MPI_COMM_WORLD);
                    else
                        MPI_Isend(&numbers[k], 1, MPI_INT, to, k, MPI_COMM_WORLD, &requests[k]);
                    if (round % 2 == 0 && k == RUN - 1 && to < world_size - 1)
                        MPI_Waitall(RUN, requests, MPI_STATUSES_IGNORE);
                }
            while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < round * (world_size - 1))
                usleep(100);
            if (round % 2 == 0)
                MPI_Waitall(RUN, requests, MPI_STATUSES_IGNORE);
        } else {
            for (int k = 0; k < RUN; k++) {
                int got = -1;
                MPI_Recv(&got, 1, MPI_INT, 0, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                SAME(got, round * 1000 + k);
            }
            __atomic_add_fetch(word, 1, __ATOMIC_RELEASE);
        }
    }
}

// Runs of short messages among long ones, to the next rank, with any tag.
static void in_order(void)
{
    static char out[200000], in[200000];
    int next = (world_rank + 1) % world_size, before = (world_rank + world_size - 1) % world_size;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request requests[RUN];
        for (int k = 0; k < RUN; k++) {
            int bytes = k % 7 == 6 ? 1000 * k * (round % 5 + 1) : k * round;
            memset(out + k, k, 1);
            MPI_Isend(out + k, bytes, MPI_BYTE, next, 100 + k, MPI_COMM_WORLD, &requests[k]);
        }
        for (int k = 0; k < RUN; k++) {
            int bytes = k % 7 == 6 ? 1000 * k * (round % 5 + 1) : k * round, got;
            MPI_Status status;
            if (k % 3 == 0)
                MPI_Probe(before, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Recv(in, sizeof in, MPI_BYTE, before, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &got);
            SAME(status.MPI_TAG, 100 + k);
            SAME(got, bytes);
        }
        MPI_Waitall(RUN, requests, MPI_STATUSES_IGNORE);
        if (round % 3 == 0)
            MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char path[32];
    volatile int *word = shared_word(path);
    without_calls(word);
    in_order();
    return check_end();
}

/* Files under MPI_THREAD_MULTIPLE: several threads of a rank use one file, by explicit offsets, the
 * shared pointer and in the background, and files of their own, while others send messages. */
// ranks: 2 4
#include "files.h"

#include <pthread.h>

enum { THREADS = 4, TURNS = 30, BYTES = 3000 };

static MPI_File common;

typedef struct {
    int thread;
    MPI_Comm comm;
} Task;

/* A place in the common file that no other thread of any rank uses. */
static MPI_Offset place(int rank, int thread, int turn)
{
    return (((MPI_Offset)turn * world_size + rank) * THREADS + thread) * BYTES;
}

static void *work(void *argument)
{
    Task *task = argument;
    unsigned char *out = malloc(2 * BYTES), *in = malloc(BYTES);
    char name[64];
    MPI_File own;
    MPI_Datatype every_other;
    snprintf(name, sizeof name, "own-%d-%d", world_rank, task->thread);
    OK(MPI_File_open(MPI_COMM_SELF, name,
                     MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &own));
    OK(MPI_Type_create_resized(MPI_BYTE, 0, 2, &every_other));
    OK(MPI_Type_commit(&every_other));
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t key = (uint64_t)((world_rank * THREADS + task->thread) * TURNS + turn);
        MPI_Offset at = place(world_rank, task->thread, turn);
        MPI_Request requests[4];
        int token = turn, got = -1, done = 0;
        for (int i = 0; i < BYTES; i++)
            out[2 * i] = pattern(key, (size_t)i);
        OK(MPI_Irecv(&got, 1, MPI_INT, ring(-1), task->thread, task->comm, &requests[0]));
        OK(MPI_Isend(&token, 1, MPI_INT, ring(1), task->thread, task->comm, &requests[1]));
        if (turn % 3 == 0)
            OK(MPI_File_write_at(common, at, out, BYTES, every_other, MPI_STATUS_IGNORE));
        OK(turn % 3 == 1 ? MPI_File_iwrite_at(common, at, out, BYTES, every_other, &requests[2])
                         : MPI_File_iwrite(own, out, BYTES, every_other, &requests[2]));
        if (turn % 3 == 2) {
            OK(MPI_File_iwrite_at(common, at, out, BYTES, every_other, &requests[3]));
            while (!done)
                OK(MPI_Test(&requests[3], &done, MPI_STATUS_IGNORE));
        }
        OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
        SAME(got, turn);
        OK(MPI_File_iread_at(common, at, in, BYTES, MPI_BYTE, &requests[0]));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        FILLED(in, BYTES, key);
    }
    OK(MPI_Type_free(&every_other));
    OK(MPI_File_close(&own));
    free(out);
    free(in);
    return NULL;
}

static void *share(void *argument)
{
    (void)argument;
    for (int turn = 0; turn < TURNS; turn++) {
        int record[2] = {world_rank, turn};
        MPI_Request request;
        if (turn % 2) {
            OK(MPI_File_write_shared(common, record, 8, MPI_BYTE, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_File_iwrite_shared(common, record, 8, MPI_BYTE, &request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
    }
    return NULL;
}

static void run(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    Task tasks[THREADS];
    for (int t = 0; t < THREADS; t++) {
        tasks[t].thread = t;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &tasks[t].comm));
        pthread_create(&threads[t], NULL, body, &tasks[t]);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        OK(MPI_Comm_free(&tasks[t].comm));
    }
}

int main(int argc, char **argv)
{
    int provided = -1;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    check_know_world();
    if (provided < MPI_THREAD_MULTIPLE)
        return check_end();
    for (int atomic = 0; atomic < 2; atomic++) {
        const char *name = file_name();
        common = file_create(name);
        OK(MPI_File_set_atomicity(common, atomic));
        run(work);
        OK(MPI_File_close(&common));
        SAME(file_length(name), place(0, 0, TURNS));
        file_remove(name);
    }
    const char *name = file_name();
    common = file_create(name);
    run(share);
    MPI_Offset position = -1;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_get_position_shared(common, &position));
    SAME(position, 8 * TURNS * THREADS * world_size);
    int *records = malloc((size_t)position), counts[64] = {0};
    SAME(file_contents(name, records, (size_t)position, 0), position);
    for (long long i = 0; i < position / 8; i++)
        counts[records[2 * i] & 63]++;
    for (int r = 0; r < world_size; r++)
        SAME(counts[r], TURNS * THREADS);
    free(records);
    OK(MPI_File_close(&common));
    file_remove(name);
    return check_end();
}

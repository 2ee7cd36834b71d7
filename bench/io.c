/* Files. The arguments name the parts to measure, in this order:
 *
 *   contiguous  one rank writes and reads 32 MiB in calls of one size; the same by pwrite and pread
 *   rows        all ranks write and read a matrix, each its block of columns, collectively
 *   strided     each rank writes and reads every other piece of 64 bytes of a part of its own
 *   shared      all ranks write and read records by the shared file pointer; the same by a number
 *               in shared memory that each adds to, and pwrite and pread
 *   open        all ranks open and close the file
 *   overlap     a write that is started, then computation, then completion; the same by a thread of
 *               the program on another core, which calls pwrite
 *
 * BENCH_FILE names the file, which is deleted in the end. */
#define _GNU_SOURCE
#include "measure.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

enum {
    WHOLE = 33554432,   /* bytes of the file in `contiguous` and of the matrix in `rows` */
    PIECE = 64,         /* bytes of a piece in `strided` */
    STRIDED = 1048576,  /* bytes that a rank transfers by a call in `strided` */
    RECORD = 1024,      /* bytes of a record in `shared` */
    RECORDS = 64,       /* of a rank in `shared` */
    OVERLAP = 16777216, /* bytes of a write in `overlap` */
    OVERLAP_SAMPLES = 9
};

static const char *path;
static MPI_File file;
static char *memory;
static int bytes, plain;
static MPI_Offset total;

static void check(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s: %s\n", call, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define OK(call) check(call, #call)

static void make(MPI_Comm comm)
{
    OK(MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
}

static void unmake(void)
{
    OK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        unlink(path);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Contiguous access by one rank. */

static void plain_calls(int times, int writes)
{
    for (int i = 0; i < times && rank == 0; i++)
        for (long at = 0; at < WHOLE; at += bytes)
            if ((writes ? pwrite(plain, memory, (size_t)bytes, at)
                        : pread(plain, memory, (size_t)bytes, at)) != bytes)
                MPI_Abort(MPI_COMM_WORLD, 1);
}

static void plain_write(int times)
{
    plain_calls(times, 1);
}

static void plain_read(int times)
{
    plain_calls(times, 0);
}

static void write_at(int times)
{
    for (int i = 0; i < times && rank == 0; i++)
        for (long at = 0; at < WHOLE; at += bytes)
            OK(MPI_File_write_at(file, at, memory, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void read_at(int times)
{
    for (int i = 0; i < times && rank == 0; i++)
        for (long at = 0; at < WHOLE; at += bytes)
            OK(MPI_File_read_at(file, at, memory, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
}

static double speed(double seconds, double moved)
{
    return moved / seconds * 1e-9;
}

static void contiguous(void)
{
    make(MPI_COMM_WORLD);
    plain = open(path, O_RDWR);
    if (plain < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (bytes = 4096; bytes <= 16777216; bytes *= 8) {
        say("write", bytes, speed(timed(write_at), WHOLE));
        say("plain_write", bytes, speed(timed(plain_write), WHOLE));
        say("read", bytes, speed(timed(read_at), WHOLE));
        say("plain_read", bytes, speed(timed(plain_read), WHOLE));
    }
    close(plain);
    unmake();
}

/* Collective access to a matrix by columns. */

static void write_all(int times)
{
    for (int i = 0; i < times; i++)
        OK(MPI_File_write_at_all(file, 0, memory, (int)(total / ranks), MPI_BYTE,
                                 MPI_STATUS_IGNORE));
}

static void read_all(int times)
{
    for (int i = 0; i < times; i++)
        OK(MPI_File_read_at_all(file, 0, memory, (int)(total / ranks), MPI_BYTE,
                                MPI_STATUS_IGNORE));
}

static void rows(void)
{
    for (bytes = 64; bytes <= 65536; bytes *= 4) {
        MPI_Datatype block;
        int lines = WHOLE / 4 / (bytes * ranks);
        int sizes[2] = {lines, bytes * ranks}, part[2] = {lines, bytes}, at[2] = {0, bytes * rank};
        total = (MPI_Offset)lines * bytes * ranks;
        make(MPI_COMM_WORLD);
        MPI_Type_create_subarray(2, sizes, part, at, MPI_ORDER_C, MPI_BYTE, &block);
        MPI_Type_commit(&block);
        OK(MPI_File_set_view(file, 0, MPI_BYTE, block, "native", MPI_INFO_NULL));
        say("write_all", bytes, speed(timed(write_all), (double)total));
        say("read_all", bytes, speed(timed(read_all), (double)total));
        MPI_Type_free(&block);
        unmake();
    }
}

/* Independent access to pieces. */

static void write_pieces(int times)
{
    for (int i = 0; i < times; i++)
        OK(MPI_File_write_at(file, 0, memory, STRIDED, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void read_pieces(int times)
{
    for (int i = 0; i < times; i++)
        OK(MPI_File_read_at(file, 0, memory, STRIDED, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void strided(void)
{
    MPI_Datatype pieces;
    make(MPI_COMM_WORLD);
    MPI_Type_vector(STRIDED / PIECE, PIECE, 2 * PIECE, MPI_BYTE, &pieces);
    MPI_Type_commit(&pieces);
    OK(MPI_File_set_view(file, (MPI_Offset)rank * 2 * STRIDED, MPI_BYTE, pieces, "native",
                         MPI_INFO_NULL));
    say("write_strided", PIECE, speed(timed(write_pieces), (double)STRIDED * ranks));
    say("read_strided", PIECE, speed(timed(read_pieces), (double)STRIDED * ranks));
    MPI_Type_free(&pieces);
    unmake();
}

/* The shared file pointer. */

static void write_records(int times)
{
    for (int i = 0; i < times; i++) {
        OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
        for (int n = 0; n < RECORDS; n++)
            OK(MPI_File_write_shared(file, memory, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
    }
}

static void read_records(int times)
{
    for (int i = 0; i < times; i++) {
        OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
        for (int n = 0; n < RECORDS; n++)
            OK(MPI_File_read_shared(file, memory, RECORD, MPI_BYTE, MPI_STATUS_IGNORE));
    }
}

/* The least that a shared pointer takes. */

static _Atomic MPI_Offset *pointer;

static void plain_records(int times, int writes)
{
    for (int i = 0; i < times; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            atomic_store(pointer, 0);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int n = 0; n < RECORDS; n++) {
            MPI_Offset at = atomic_fetch_add(pointer, RECORD);
            if ((writes ? pwrite(plain, memory, RECORD, at) : pread(plain, memory, RECORD, at)) !=
                RECORD)
                MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static void plain_write_records(int times)
{
    plain_records(times, 1);
}

static void plain_read_records(int times)
{
    plain_records(times, 0);
}

static void shared(void)
{
    MPI_Win window;
    MPI_Aint length;
    int unit;
    make(MPI_COMM_WORLD);
    plain = open(path, O_RDWR);
    if (plain < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Win_allocate_shared(rank == 0 ? sizeof *pointer : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                            &pointer, &window);
    MPI_Win_shared_query(window, 0, &length, &unit, &pointer);
    say("write_shared", RECORD, timed(write_records) / RECORDS / ranks * 1e6);
    say("plain_write_shared", RECORD, timed(plain_write_records) / RECORDS / ranks * 1e6);
    say("read_shared", RECORD, timed(read_records) / RECORDS / ranks * 1e6);
    say("plain_read_shared", RECORD, timed(plain_read_records) / RECORDS / ranks * 1e6);
    MPI_Win_free(&window);
    close(plain);
    unmake();
}

/* Opening and closing. */

static void open_and_close(int times)
{
    for (int i = 0; i < times; i++) {
        make(MPI_COMM_WORLD);
        OK(MPI_File_close(&file));
    }
}

static void opened(void)
{
    say("open", 0, timed(open_and_close) * 1e6);
    make(MPI_COMM_WORLD);
    unmake();
}

/* Computation beside a write, by rank 0. */

static double computed(double seconds)
{
    volatile double x = 1;
    double begun = now(), end = begun + seconds;
    while (now() < end)
        for (int i = 0; i < 1000; i++)
            x = x * 0.999999 + 1e-6;
    return now() - begun;
}

static int compare(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static void start_by_mpi(MPI_Request *request)
{
    OK(MPI_File_iwrite_at(file, 0, memory, OVERLAP, MPI_BYTE, request));
}

static void complete_by_mpi(MPI_Request *request)
{
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

/* A thread that leaves the core of its creator, and writes. */

static sem_t to_write, written;
static int core, stopped;

static void *writer(void *unused)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (long i = 0; i < sysconf(_SC_NPROCESSORS_ONLN); i++)
        if (i != core)
            CPU_SET((int)i, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
    for (;;) {
        sem_wait(&to_write);
        if (stopped)
            return unused;
        if (pwrite(plain, memory, OVERLAP, 0) != OVERLAP)
            abort();
        sem_post(&written);
    }
}

static void start_by_thread(MPI_Request *request)
{
    (void)request;
    sem_post(&to_write);
}

static void complete_by_thread(MPI_Request *request)
{
    (void)request;
    sem_wait(&written);
}

/* The part of the write's time that computation hides, percent; the median of several. */
static double overlapped(void (*start)(MPI_Request *), void (*complete)(MPI_Request *))
{
    double hidden[OVERLAP_SAMPLES];
    take_turn();
    for (int i = -1; i < OVERLAP_SAMPLES; i++) {
        MPI_Request request;
        double alone, begun, both;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank != 0)
            continue;
        begun = now();
        start(&request);
        complete(&request);
        alone = now() - begun;
        begun = now();
        start(&request);
        computed(2 * alone);
        complete(&request);
        both = now() - begun;
        if (i >= 0)
            hidden[i] = 100 * (3 * alone - both) / alone;
    }
    qsort(hidden, OVERLAP_SAMPLES, sizeof *hidden, compare);
    return hidden[OVERLAP_SAMPLES / 2] > 100 ? 100 : hidden[OVERLAP_SAMPLES / 2];
}

static void overlap(void)
{
    pthread_t thread;
    make(MPI_COMM_WORLD);
    say("hidden", OVERLAP, overlapped(start_by_mpi, complete_by_mpi));
    plain = open(path, O_RDWR);
    core = sched_getcpu();
    sem_init(&to_write, 0, 0);
    sem_init(&written, 0, 0);
    if (plain < 0 || pthread_create(&thread, NULL, writer, NULL))
        MPI_Abort(MPI_COMM_WORLD, 1);
    say("plain_hidden", OVERLAP, overlapped(start_by_thread, complete_by_thread));
    stopped = 1;
    sem_post(&to_write);
    pthread_join(thread, NULL);
    close(plain);
    unmake();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    path = getenv("BENCH_FILE");
    if (!path) {
        fprintf(stderr, "BENCH_FILE is not set.\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memory = buffer(WHOLE);
    for (int i = 1; i < argc; i++) {
        const char *part = argv[i];
        if (strcmp(part, "contiguous") == 0)
            contiguous();
        else if (strcmp(part, "rows") == 0)
            rows();
        else if (strcmp(part, "strided") == 0)
            strided();
        else if (strcmp(part, "shared") == 0)
            shared();
        else if (strcmp(part, "open") == 0)
            opened();
        else if (strcmp(part, "overlap") == 0)
            overlap();
        else {
            fprintf(stderr, "There is no part \"%s\".\n", part);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    finish();
    return 0;
}

/* The four send modes, blocking and not, at sizes on both sides of every protocol limit. Also
 * checks the fields of statuses. */
#include "check.h"

enum { MODES = 4 };
static const char *const mode_name[MODES] = {"standard", "synchronous", "buffered", "ready"};

typedef int Blocking(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int Starting(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
static Blocking *const blocking[MODES] = {MPI_Send, MPI_Ssend, MPI_Bsend, MPI_Rsend};
static Starting *const starting[MODES] = {MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend};

static void one(int mode, int wait_style, size_t bytes)
{
    unsigned char *out = malloc(bytes + 1), *in = malloc(bytes + 1);
    uint64_t key = bytes * 8 + (uint64_t)mode;
    fill(out, bytes, key + (uint64_t)world_rank * 1000003);
    memset(in, 0xee, bytes + 1);
    MPI_Request receive, send = MPI_REQUEST_NULL, ready;
    MPI_Status status;
    int tag = 10 + mode, token = 0, go = 0;
    OK(MPI_Irecv(in, (int)bytes, MPI_BYTE, ring(-1), tag, MPI_COMM_WORLD, &receive));
    if (mode == 3) { /* a ready send needs to know that its receive is posted */
        OK(MPI_Irecv(&go, 1, MPI_INT, ring(1), 99, MPI_COMM_WORLD, &ready));
        OK(MPI_Send(&token, 1, MPI_INT, ring(-1), 99, MPI_COMM_WORLD));
        OK(MPI_Wait(&ready, MPI_STATUS_IGNORE));
    }
    if (wait_style == 0) {
        OK(blocking[mode](out, (int)bytes, MPI_BYTE, ring(1), tag, MPI_COMM_WORLD));
        OK(MPI_Wait(&receive, &status));
    } else {
        OK(starting[mode](out, (int)bytes, MPI_BYTE, ring(1), tag, MPI_COMM_WORLD, &send));
        if (wait_style == 1) {
            OK(MPI_Wait(&receive, &status));
            OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
        } else {
            int done = 0;
            while (!done)
                OK(MPI_Test(&receive, &done, &status));
            done = 0;
            while (!done)
                OK(MPI_Test(&send, &done, MPI_STATUS_IGNORE));
        }
        SAME(send == MPI_REQUEST_NULL, 1);
    }
    SAME(receive == MPI_REQUEST_NULL, 1);
    size_t at = differs(in, bytes, key + (uint64_t)ring(-1) * 1000003);
    CHECK(at == bytes, "%s send of %zu bytes: byte %zu is wrong", mode_name[mode], bytes, at);
    SAME(in[bytes], 0xee);
    SAME(status.MPI_SOURCE, ring(-1));
    SAME(status.MPI_TAG, tag);
    int count = -1;
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    SAME(count, bytes);
    free(out);
    free(in);
}

/* A synchronous send must not end before its receive begins. */
static void synchronous_waits(void)
{
    if (world_size < 2 || world_rank > 1)
        return;
    int value = 5, done = 1;
    if (world_rank == 0) {
        MPI_Request request;
        OK(MPI_Issend(&value, 1, MPI_INT, 1, 50, MPI_COMM_WORLD, &request));
        OK(MPI_Recv(&value, 1, MPI_INT, 1, 51, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE)); /* rank 1 has polled for a while */
        OK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        SAME(done, 0);
        OK(MPI_Send(&value, 1, MPI_INT, 1, 52, MPI_COMM_WORLD));
        if (!done)
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        int flag;
        for (int i = 0; i < 100; i++)
            OK(MPI_Iprobe(0, 12345, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        OK(MPI_Send(&value, 1, MPI_INT, 0, 51, MPI_COMM_WORLD));
        OK(MPI_Recv(&value, 1, MPI_INT, 0, 52, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Recv(&value, 1, MPI_INT, 0, 50, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
}

/* Many small standard sends that nobody receives yet must not need the receiver's help, up to a
 * reasonable number. */
static void eager_backlog(void)
{
    enum { MESSAGES = 200 };
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Request request;
        static int values[MESSAGES];
        values[i] = world_rank * 1000 + i;
        OK(MPI_Isend(&values[i], 1, MPI_INT, ring(1), 60 + i, MPI_COMM_WORLD, &request));
        OK(MPI_Request_free(&request));
    }
    for (int i = MESSAGES - 1; i >= 0; i--) { /* in the reverse order: all are unexpected */
        int value = -1;
        OK(MPI_Recv(&value, 1, MPI_INT, ring(-1), 60 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        SAME(value, ring(-1) * 1000 + i);
    }
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    static const size_t sizes[] = {0,    1,     7,     8,     9,     31,     32,    40,   48,
                                   63,   64,    65,    255,   1000,  4000,   4096,  8191, 8192,
                                   8193, 16384, 32767, 65536, 65537, 131073, 300000};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    static char buffer[3 << 20]; /* room for every buffered send of this program at once */
    OK(MPI_Buffer_attach(buffer, sizeof buffer));
    for (int mode = 0; mode < MODES; mode++)
        for (int style = 0; style < 3; style++)
            for (int i = 0; i < SIZES; i++)
                one(mode, style, sizes[i]); /* a blocking synchronous ring works: each rank posts
                                               its receive first */
    void *detached = NULL;
    int detached_size = 0;
    OK(MPI_Buffer_detach(&detached, &detached_size));
    SAME(detached == buffer, 1);
    SAME(detached_size, sizeof buffer);
    synchronous_waits();
    eager_backlog();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    return check_end();
}

/* Each call that reads or writes (MPI 5.0 section 14.4), with counts of either kind: where the data
 * are, what the status says, what becomes of the pointers. Short reads at the end of a file, zero
 * counts, offsets beyond 4 GiB, memory with gaps, and messages larger than a buffer. */
#include "files.h"

enum { INTS = 5 };

typedef int Write(MPI_File, MPI_Offset, const int *, MPI_Status *);
typedef int Read(MPI_File, MPI_Offset, int *, MPI_Status *);

/* The calls with and without an offset, in one shape. */
#define WRITE_AT(name)                                                                             \
    static int name##_(MPI_File f, MPI_Offset at, const int *b, MPI_Status *s)                     \
    {                                                                                              \
        return MPI_File_##name(f, at, b, INTS, MPI_INT, s);                                        \
    }
#define WRITE(name)                                                                                \
    static int name##_(MPI_File f, MPI_Offset at, const int *b, MPI_Status *s)                     \
    {                                                                                              \
        (void)at;                                                                                  \
        return MPI_File_##name(f, b, INTS, MPI_INT, s);                                            \
    }
#define READ_AT(name)                                                                              \
    static int name##_(MPI_File f, MPI_Offset at, int *b, MPI_Status *s)                           \
    {                                                                                              \
        return MPI_File_##name(f, at, b, INTS, MPI_INT, s);                                        \
    }
#define READ(name)                                                                                 \
    static int name##_(MPI_File f, MPI_Offset at, int *b, MPI_Status *s)                           \
    {                                                                                              \
        (void)at;                                                                                  \
        return MPI_File_##name(f, b, INTS, MPI_INT, s);                                            \
    }
#define PENDING(name, pointer, arguments)                                                          \
    static int name##_(MPI_File f, MPI_Offset at, pointer b, MPI_Status *s)                        \
    {                                                                                              \
        MPI_Request request = MPI_REQUEST_NULL;                                                    \
        (void)at;                                                                                  \
        int code = MPI_File_##name arguments;                                                      \
        return code == MPI_SUCCESS ? MPI_Wait(&request, s) : code;                                 \
    }
#define WITH_OFFSET (f, at, b, INTS, MPI_INT, &request)
#define WITHOUT (f, b, INTS, MPI_INT, &request)
#define SPLIT(name, c, pointer, arguments)                                                         \
    static int name##_begin##c##_(MPI_File f, MPI_Offset at, pointer b, MPI_Status *s)             \
    {                                                                                              \
        (void)at;                                                                                  \
        int code = MPI_File_##name##_begin##c arguments;                                           \
        return code == MPI_SUCCESS ? MPI_File_##name##_end(f, b, s) : code;                        \
    }
#define BEGIN_AT (f, at, b, INTS, MPI_INT)
#define BEGIN (f, b, INTS, MPI_INT)

#define BOTH(macro, name) macro(name) macro(name##_c)
#define BOTH_PENDING(name, pointer, arguments)                                                     \
    PENDING(name, pointer, arguments) PENDING(name##_c, pointer, arguments)
#define BOTH_SPLIT(name, pointer, arguments)                                                       \
    SPLIT(name, , pointer, arguments) SPLIT(name, _c, pointer, arguments)

BOTH(WRITE_AT, write_at)
BOTH(WRITE_AT, write_at_all)
BOTH(WRITE, write)
BOTH(WRITE, write_all)
BOTH(WRITE, write_shared)
BOTH(WRITE, write_ordered)
BOTH_PENDING(iwrite_at, const int *, WITH_OFFSET)
BOTH_PENDING(iwrite_at_all, const int *, WITH_OFFSET)
BOTH_PENDING(iwrite, const int *, WITHOUT)
BOTH_PENDING(iwrite_all, const int *, WITHOUT)
BOTH_PENDING(iwrite_shared, const int *, WITHOUT)
BOTH_SPLIT(write_at_all, const int *, BEGIN_AT)
BOTH_SPLIT(write_all, const int *, BEGIN)
BOTH_SPLIT(write_ordered, const int *, BEGIN)
BOTH(READ_AT, read_at)
BOTH(READ_AT, read_at_all)
BOTH(READ, read)
BOTH(READ, read_all)
BOTH(READ, read_shared)
BOTH(READ, read_ordered)
BOTH_PENDING(iread_at, int *, WITH_OFFSET)
BOTH_PENDING(iread_at_all, int *, WITH_OFFSET)
BOTH_PENDING(iread, int *, WITHOUT)
BOTH_PENDING(iread_all, int *, WITHOUT)
BOTH_PENDING(iread_shared, int *, WITHOUT)
BOTH_SPLIT(read_at_all, int *, BEGIN_AT)
BOTH_SPLIT(read_all, int *, BEGIN)
BOTH_SPLIT(read_ordered, int *, BEGIN)

/* Which pointer a call uses; by the shared one, ranks may come in any order or in their own. */
enum { EXPLICIT, INDIVIDUAL, SHARED, ORDERED };

typedef struct {
    const char *name;
    Write *write;
    Read *read;
    int position;
} Call;

#define TWO(kind, position)                                                                        \
    {#kind, write##kind##_, read##kind##_, position},                                              \
    {                                                                                              \
        #kind "_c", write##kind##_c_, read##kind##_c_, position                                    \
    }
#define TWO_PENDING(kind, position)                                                                \
    {"i" #kind, iwrite##kind##_, iread##kind##_, position},                                        \
    {                                                                                              \
        "i" #kind "_c", iwrite##kind##_c_, iread##kind##_c_, position                              \
    }

static const Call calls[] = {{"", write_, read_, INDIVIDUAL},
                             {"_c", write_c_, read_c_, INDIVIDUAL},
                             {"i", iwrite_, iread_, INDIVIDUAL},
                             {"i_c", iwrite_c_, iread_c_, INDIVIDUAL},
                             TWO(_at, EXPLICIT),
                             TWO(_at_all, EXPLICIT),
                             TWO(_all, INDIVIDUAL),
                             TWO(_shared, SHARED),
                             TWO(_ordered, ORDERED),
                             TWO_PENDING(_at, EXPLICIT),
                             TWO_PENDING(_at_all, EXPLICIT),
                             TWO_PENDING(_all, INDIVIDUAL),
                             TWO_PENDING(_shared, SHARED),
                             TWO(_at_all_begin, EXPLICIT),
                             TWO(_all_begin, INDIVIDUAL),
                             TWO(_ordered_begin, ORDERED)};
enum { CALLS = sizeof calls / sizeof calls[0] };

static MPI_Offset position_of(MPI_File fh, int kind)
{
    MPI_Offset at = -1;
    if (kind == INDIVIDUAL)
        OK(MPI_File_get_position(fh, &at));
    else if (kind >= SHARED)
        OK(MPI_File_get_position_shared(fh, &at));
    return at;
}

/* Each rank's ints, after a first one that nobody writes. */
static void one_call(const Call *call)
{
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Status status;
    int out[INTS], in[INTS], count = -1, failures = check_failures;
    for (int i = 0; i < INTS; i++)
        out[i] = 1000 * world_rank + i, in[i] = -1;
    OK(MPI_File_set_view(fh, 4, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    MPI_Offset mine = INTS * world_rank;
    for (int step = 0; step < 2; step++) {
        OK(MPI_File_seek(fh, mine, MPI_SEEK_SET));
        OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
        memset(&status, 0x55, sizeof status);
        if (step == 0)
            OK(call->write(fh, mine, out, &status));
        else
            OK(call->read(fh, mine, in, &status));
        OK(MPI_Get_count(&status, MPI_INT, &count));
        SAME(count, INTS);
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (call->position == INDIVIDUAL)
            SAME(position_of(fh, INDIVIDUAL), mine + INTS);
        else
            SAME(position_of(fh, INDIVIDUAL), mine);
        SAME(position_of(fh, SHARED), call->position >= SHARED ? INTS * world_size : 0);
        file_publish(fh);
        if (step == 0) {
            /* The same with no status: what is there is written again. */
            OK(MPI_File_seek(fh, mine, MPI_SEEK_SET));
            OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
            if (call->position != SHARED)
                OK(call->write(fh, mine, out, MPI_STATUS_IGNORE));
            file_publish(fh);
        }
    }
    if (call->position == SHARED) {
        /* Somebody's ints, in one piece. */
        SAME(in[0] % 1000, 0);
        for (int i = 1; i < INTS; i++)
            SAME(in[i], in[0] + i);
        int sum = 0;
        OK(MPI_Allreduce(in, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        SAME(sum, 1000 * (world_size - 1) * world_size / 2);
    } else {
        for (int i = 0; i < INTS; i++)
            SAME(in[i], out[i]);
    }
    SAME(file_length(name), 4 + 4 * INTS * world_size);
    CHECK(failures == check_failures, "these were the calls [%s]", call->name);
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* A read ends where the file does. */
static void short_reads(const Call *call)
{
    int numbers[3] = {1, 2, 3}, in[INTS], count = -1, failures = check_failures;
    const char *name = file_name();
    file_make(name, numbers, 10); /* two ints and a half */
    MPI_File fh = file_open(name, MPI_MODE_RDWR, MPI_INFO_NULL);
    OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int begin = 0; begin < 5; begin++) {
        int left = begin < 3 ? 10 - 4 * begin : 0, all = call->position >= SHARED;
        MPI_Status status;
        for (int i = 0; i < INTS; i++)
            in[i] = -7;
        OK(MPI_File_seek(fh, begin, MPI_SEEK_SET));
        OK(MPI_File_seek_shared(fh, begin, MPI_SEEK_SET));
        OK(call->read(fh, begin, in, &status));
        OK(MPI_Get_count(&status, MPI_INT, &count));
        if (all) {
            /* One rank has what there is, the others nothing. */
            int bytes = (int)bytes_of(&status), sum = 0;
            CHECK(bytes == left || (world_size > 1 && bytes == 0), "%d bytes, should be %d", bytes,
                  left);
            OK(MPI_Allreduce(&bytes, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
            SAME(sum, left);
            left = bytes;
        }
        SAME(bytes_of(&status), left);
        SAME(count, left % 4 ? MPI_UNDEFINED : left / 4);
        for (int i = 0; i < left / 4; i++)
            SAME(in[i], begin + i + 1);
        /* The pointer goes on as far as was asked for. */
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (call->position == INDIVIDUAL)
            SAME(position_of(fh, INDIVIDUAL), begin + INTS);
        if (all)
            SAME(position_of(fh, SHARED), begin + INTS * world_size);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    CHECK(failures == check_failures, "these were short reads by [%s]", call->name);
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* Nothing is transferred, whatever the address. */
static void nothing(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Status status;
    MPI_Request requests[4];
    OK(MPI_File_write(fh, NULL, 0, MPI_INT, &status));
    SAME(bytes_of(&status), 0);
    OK(MPI_File_write_at_all(fh, 1000, NULL, 0, MPI_INT, &status));
    SAME(bytes_of(&status), 0);
    OK(MPI_File_read_all(fh, NULL, 0, MPI_INT, &status));
    SAME(bytes_of(&status), 0);
    OK(MPI_File_write_ordered(fh, NULL, 0, MPI_INT, &status));
    OK(MPI_File_iread(fh, NULL, 0, MPI_INT, &requests[0]));
    OK(MPI_File_iwrite_at(fh, 50, NULL, 0, MPI_INT, &requests[1]));
    OK(MPI_File_iwrite_all(fh, NULL, 0, MPI_INT, &requests[2]));
    OK(MPI_File_iread_shared(fh, NULL, 0, MPI_INT, &requests[3]));
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    /* One rank alone has data. */
    int value = 4711, in = -1;
    OK(MPI_File_write_at_all(fh, 3, &value, world_rank == world_size - 1, MPI_INT, &status));
    SAME(bytes_of(&status), world_rank == world_size - 1 ? 4 : 0);
    file_publish(fh);
    SAME(file_length(name), 7);
    OK(MPI_File_read_at_all(fh, 3, &in, world_rank == 0, MPI_INT, &status));
    SAME(in, world_rank == 0 ? 4711 : -1);
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* Offsets that 32 bits do not hold, in a file with little in it. */
static void far_away(void)
{
    enum { BYTES = 3000 };
    static const MPI_Offset far = (MPI_Offset)6 << 30, step = (MPI_Offset)3 << 30;
    unsigned char out[BYTES], in[BYTES];
    const char *name = file_name();
    MPI_File fh = file_create(name);
    fill(out, BYTES, (uint64_t)world_rank);
    OK(MPI_File_write_at_all(fh, far + BYTES * world_rank, out, BYTES, MPI_BYTE,
                             MPI_STATUS_IGNORE));
    file_publish(fh);
    MPI_Offset size = -1;
    OK(MPI_File_get_size(fh, &size));
    SAME(size, far + BYTES * world_size);
    OK(MPI_File_read_at(fh, far + BYTES * ring(1), in, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
    FILLED(in, BYTES, (uint64_t)ring(1));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    /* A view whose tiles are that large, and a displacement behind them. */
    MPI_Datatype tile;
    OK(MPI_Type_create_resized(MPI_INT, 0, step, &tile));
    OK(MPI_Type_commit(&tile));
    OK(MPI_File_set_view(fh, far + 4 * world_rank, MPI_INT, tile, "native", MPI_INFO_NULL));
    int numbers[3] = {world_rank, -world_rank, 17}, back[3] = {0};
    MPI_Offset at = -1;
    OK(MPI_File_get_byte_offset(fh, 2, &at));
    SAME(at, far + 4 * world_rank + 2 * step);
    OK(MPI_File_write_all(fh, numbers, 3, MPI_INT, MPI_STATUS_IGNORE));
    file_publish(fh);
    OK(MPI_File_read_at_all(fh, 0, back, 3, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(memcmp(numbers, back, sizeof back) == 0, "numbers far apart do not come back");
    OK(MPI_File_seek(fh, 0, MPI_SEEK_END));
    SAME(position_of(fh, INDIVIDUAL), 3);
    CHECK(MPI_File_read_at(fh, INT64_MAX / 2, back, 1, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS,
          "an offset beyond 63 bits is taken");
    OK(MPI_Type_free(&tile));
    OK(MPI_File_close(&fh));
    SAME(file_length(name), far + 2 * step + 4 * world_size);
    file_remove(name);
}

/* More than is packed at a time, from and to memory with gaps. */
static void large(void)
{
    enum { NUMBERS = 1500 * 1000 };
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Datatype every_other;
    int *memory = malloc(2 * NUMBERS * sizeof(int)), *back = malloc(NUMBERS * sizeof(int));
    OK(MPI_Type_create_resized(MPI_INT, 0, 8, &every_other));
    OK(MPI_Type_commit(&every_other));
    for (int i = 0; i < 2 * NUMBERS; i++)
        memory[i] = i;
    MPI_Offset mine = (MPI_Offset)world_rank * NUMBERS * 4;
    MPI_Status status;
    MPI_Request requests[2];
    MPI_Count count = -1;
    OK(MPI_File_write_at(fh, mine, memory, NUMBERS, every_other, &status));
    OK(MPI_Get_count_c(&status, every_other, &count));
    SAME(count, NUMBERS);
    OK(MPI_File_read_at(fh, mine, back, NUMBERS, MPI_INT, MPI_STATUS_IGNORE));
    for (int i = 0; i < NUMBERS; i += 997)
        SAME(back[i], 2 * i);
    OK(MPI_File_iwrite_at(fh, mine, memory + 1, NUMBERS / 2, every_other, &requests[0]));
    OK(MPI_File_iwrite_at(fh, mine + NUMBERS / 2 * 4, memory + NUMBERS + 1, NUMBERS / 2,
                          every_other, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    int done = 0;
    OK(MPI_File_iread_at_all(fh, mine, back, NUMBERS, MPI_INT, &requests[0]));
    while (!done)
        OK(MPI_Test(&requests[0], &done, &status));
    SAME(bytes_of(&status), 4ll * NUMBERS);
    for (int i = 0; i < NUMBERS; i += 997)
        SAME(back[i], 2 * i + 1);
    OK(MPI_Type_free(&every_other));
    OK(MPI_File_close(&fh));
    free(memory);
    free(back);
    file_remove(name);
}

/* Many operations at a time complete in any order, beside messages. */
static void many_pending(void)
{
    enum { MANY = 60, BYTES = 2000 };
    static unsigned char out[MANY][BYTES], in[MANY][BYTES];
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Request requests[MANY + 2];
    int token = world_rank, got = -1;
    for (int i = 0; i < MANY; i++) {
        fill(out[i], BYTES, (uint64_t)(world_rank * MANY + i));
        OK(MPI_File_iwrite_at(fh, (MPI_Offset)(world_rank * MANY + i) * BYTES, out[i], BYTES,
                              MPI_BYTE, &requests[i]));
    }
    OK(MPI_Irecv(&got, 1, MPI_INT, ring(-1), 3, MPI_COMM_WORLD, &requests[MANY]));
    OK(MPI_Isend(&token, 1, MPI_INT, ring(1), 3, MPI_COMM_WORLD, &requests[MANY + 1]));
    for (int i = 0; i < MANY + 2; i++) {
        int which = -1;
        OK(MPI_Waitany(MANY + 2, requests, &which, MPI_STATUS_IGNORE));
        CHECK(which >= 0 && which < MANY + 2, "Waitany gives %d", which);
    }
    SAME(got, ring(-1));
    file_publish(fh);
    OK(MPI_File_seek(fh, (MPI_Offset)ring(1) * MANY * BYTES, MPI_SEEK_SET));
    for (int i = 0; i < MANY; i++)
        OK(MPI_File_iread(fh, in[i], BYTES, MPI_BYTE, &requests[i]));
    OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++)
        FILLED(in[i], BYTES, (uint64_t)(ring(1) * MANY + i));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* Collectives in the background, several at a time, in the same order on all ranks. */
static void pending_collectives(void)
{
    enum { TURNS = 8, EACH = 40 };
    const char *name = file_name();
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "romio_cb_write", "enable"));
    OK(MPI_Info_set(info, "romio_cb_read", "enable"));
    OK(MPI_Info_set(info, "cb_buffer_size", "100"));
    MPI_File fh = file_open(name, MPI_MODE_CREATE | MPI_MODE_RDWR, info);
    OK(MPI_Info_free(&info));
    MPI_Datatype tile;
    OK(MPI_Type_create_resized(MPI_INT, 0, 4 * world_size, &tile));
    OK(MPI_Type_commit(&tile));
    OK(MPI_File_set_view(fh, 4 * world_rank, MPI_INT, tile, "native", MPI_INFO_NULL));
    int out[TURNS][EACH], in[TURNS][EACH];
    MPI_Request requests[TURNS + 1];
    for (int t = 0; t < TURNS; t++) {
        for (int i = 0; i < EACH; i++)
            out[t][i] = t * 100000 + i * 100 + world_rank;
        OK(MPI_File_iwrite_all(fh, out[t], EACH, MPI_INT, &requests[t]));
    }
    OK(MPI_Ibarrier(MPI_COMM_WORLD, &requests[TURNS]));
    OK(MPI_Waitall(TURNS + 1, requests, MPI_STATUSES_IGNORE));
    file_publish(fh);
    for (int t = TURNS - 1; t >= 0; t--)
        OK(MPI_File_iread_at_all(fh, t * EACH, in[t], EACH, MPI_INT, &requests[t]));
    OK(MPI_Waitall(TURNS, requests, MPI_STATUSES_IGNORE));
    CHECK(memcmp(in, out, sizeof in) == 0, "what was written does not come back");
    MPI_Offset position = position_of(fh, INDIVIDUAL);
    SAME(position, TURNS * EACH);
    OK(MPI_Type_free(&tile));
    OK(MPI_File_close(&fh));
    SAME(file_length(name), 4 * TURNS * EACH * world_size);
    file_remove(name);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    for (int c = 0; c < CALLS; c++)
        one_call(&calls[c]);
    for (int c = 0; c < CALLS; c++)
        short_reads(&calls[c]);
    nothing();
    far_away();
    large();
    many_pending();
    pending_collectives();
    return check_end();
}

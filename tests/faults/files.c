/* What goes wrong with files: `files HOW` makes it happen in the working directory, or in the
 * folder `small` of it, checks the class on each rank, and prints the text of each error. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    PIECE = 64,
    PIECES = 16 * 1024,
    BYTES = PIECE * PIECES,
    RDWR = MPI_MODE_CREATE | MPI_MODE_RDWR
};

static unsigned char *data;

/* An error of this class on each rank. */
static void fails(const char *call, int code, int wanted)
{
    char text[MPI_MAX_ERROR_STRING] = "success";
    int length = 0, class = -1;
    MPI_Error_class(code, &class);
    if (code != MPI_SUCCESS)
        MPI_Error_string(code, text, &length);
    CHECK(class == wanted, "%s gave class %d, should give %d: %s", call, class, wanted, text);
    printf("rank %d: %s: %s\n", world_rank, call, text);
    fflush(stdout);
}

/* An information object of `count` pairs. */
static MPI_Info hints(int count, const char *const *pairs)
{
    MPI_Info info;
    OK(MPI_Info_create(&info));
    for (int i = 0; i < count; i++)
        OK(MPI_Info_set(info, pairs[2 * i], pairs[2 * i + 1]));
    return info;
}

static MPI_Info two_phases(void)
{
    static const char *const pairs[] = {"romio_cb_write", "enable", "romio_cb_read", "enable",
                                        "cb_buffer_size", "10000",  "cb_nodes",      "2"};
    return hints(4, pairs);
}

static MPI_Info none(void)
{
    static const char *const pairs[] = {"romio_cb_write", "disable", "romio_cb_read", "disable"};
    return hints(2, pairs);
}

static MPI_File open_with(const char *name, int amode, MPI_Info info)
{
    MPI_File fh = MPI_FILE_NULL;
    OK(MPI_File_open(MPI_COMM_WORLD, name, amode, info, &fh));
    OK(MPI_Info_free(&info));
    return fh;
}

/* Pieces of the ranks in turn; after those of the last rank one that belongs to nobody. */
static void view(MPI_File fh, MPI_Offset displacement)
{
    MPI_Datatype piece, tile;
    OK(MPI_Type_contiguous(PIECE, MPI_BYTE, &piece));
    OK(MPI_Type_create_resized(piece, 0, PIECE * (world_size + 1), &tile));
    OK(MPI_Type_commit(&tile));
    OK(MPI_File_set_view(fh, displacement + PIECE * world_rank, MPI_BYTE, tile, "native",
                         MPI_INFO_NULL));
    OK(MPI_Type_free(&piece));
    OK(MPI_Type_free(&tile));
}

static void missing(void)
{
    MPI_File fh;
    fails("open", MPI_File_open(MPI_COMM_WORLD, "missing", MPI_MODE_RDWR, MPI_INFO_NULL, &fh),
          MPI_ERR_NO_SUCH_FILE);
    fails("delete", MPI_File_delete("missing", MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
}

/* The rank may open no file of root's any more. */
static void give_up_rights(void)
{
    if (geteuid() == 0)
        CHECK(setresuid(65534, 65534, 65534) == 0, "setresuid: %s", strerror(errno));
}

static void permission(int on_last_only)
{
    MPI_File fh;
    if (!on_last_only || world_rank == world_size - 1)
        give_up_rights();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    fails("open", MPI_File_open(MPI_COMM_WORLD, "closed", MPI_MODE_RDWR, MPI_INFO_NULL, &fh),
          MPI_ERR_ACCESS);
}

static void read_only(void)
{
    MPI_File fh;
    fails("open", MPI_File_open(MPI_COMM_WORLD, "small/file", RDWR, MPI_INFO_NULL, &fh),
          MPI_ERR_READ_ONLY);
    fails("delete", MPI_File_delete("small/here", MPI_INFO_NULL), MPI_ERR_READ_ONLY);
    OK(MPI_File_open(MPI_COMM_WORLD, "small/here", MPI_MODE_RDONLY, MPI_INFO_NULL, &fh));
    OK(MPI_File_close(&fh));
}

/* The file system is full in the middle of a write by all. What was written before stands, and the
 * file can be used again when there is space. */
static void full(const char *how)
{
    enum { KEPT = 5000 };
    int pending = strcmp(how, "pending") == 0, apart = strcmp(how, "independent") == 0;
    MPI_File fh = open_with("small/file", RDWR, apart ? none() : two_phases());
    unsigned char kept[KEPT], *back = malloc(BYTES);
    fill(kept, KEPT, 77);
    OK(MPI_File_write_at_all(fh, 0, kept, world_rank == 0 ? KEPT : 0, MPI_BYTE, MPI_STATUS_IGNORE));
    view(fh, KEPT);
    int code = -1;
    MPI_Request request;
    if (strcmp(how, "preallocate") == 0) {
        code = MPI_File_preallocate(fh, 100 << 20);
    } else if (pending) {
        OK(MPI_File_iwrite_all(fh, data, BYTES, MPI_BYTE, &request));
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (strcmp(how, "split") == 0) {
        OK(MPI_File_write_all_begin(fh, data, BYTES, MPI_BYTE));
        code = MPI_File_write_all_end(fh, data, MPI_STATUS_IGNORE);
    } else if (strcmp(how, "ordered") == 0) {
        code = MPI_File_write_ordered(fh, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    } else {
        code = MPI_File_write_all(fh, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    fails("write", code, MPI_ERR_NO_SPACE);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_set_size(fh, KEPT));
    OK(MPI_File_write_at_all(fh, 0, data, PIECE * 3, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(fh));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_read_at_all(fh, 0, back, PIECE * 3, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(memcmp(back, data, PIECE * 3) == 0, "what was written afterwards does not come back");
    OK(MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at_all(fh, 0, back, KEPT, MPI_BYTE, MPI_STATUS_IGNORE));
    FILLED(back, KEPT, 77);
    OK(MPI_File_close(&fh));
    free(back);
}

/* A limit of the shell. */
static void too_long(void)
{
    struct rlimit limit = {100000, 100000};
    MPI_File fh = open_with("long", RDWR, two_phases());
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit: %s", strerror(errno));
    view(fh, 0);
    fails("write", MPI_File_write_all(fh, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_IO);
    OK(MPI_File_close(&fh));
}

/* Somebody shortens the file when it is known who reads what. */
static void shortened(void)
{
    MPI_File fh = open_with("shortened", RDWR, two_phases());
    MPI_Request request = MPI_REQUEST_NULL;
    int last = world_rank == world_size - 1;
    OK(MPI_File_set_size(fh, (MPI_Offset)BYTES * (world_size + 1)));
    view(fh, 0);
    if (!last)
        OK(MPI_File_iread_all(fh, data, BYTES, MPI_BYTE, &request));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (last) {
        CHECK(truncate("shortened", BYTES / 2) == 0, "truncate: %s", strerror(errno));
        OK(MPI_File_iread_all(fh, data, BYTES, MPI_BYTE, &request));
    }
    fails("read", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_IO);
    /* The file is as good as before. */
    MPI_Status status;
    MPI_Count bytes = -1;
    OK(MPI_File_read_at_all(fh, 0, data, PIECE, MPI_BYTE, &status));
    OK(MPI_Get_elements_c(&status, MPI_BYTE, &bytes));
    SAME(bytes, PIECE);
    OK(MPI_File_close(&fh));
}

/* The last rank dies in a write by all, after it has made progress so many times. */
static void killed(int progress, int sieve)
{
    static const char *const pairs[] = {"romio_cb_write",     "disable", "romio_ds_write", "enable",
                                        "ind_wr_buffer_size", "5000"};
    MPI_File fh = open_with("killed", MPI_MODE_RDWR, sieve ? hints(3, pairs) : two_phases());
    MPI_Request request;
    int done = 0;
    view(fh, 1000);
    memset(data, 'A' + world_rank, BYTES);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_iwrite_all(fh, data, BYTES, MPI_BYTE, &request));
    if (world_rank == world_size - 1) {
        for (int i = 0; i < progress && !done; i++)
            OK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        raise(SIGKILL);
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void note(int number)
{
    (void)number;
}

/* Signals come all the time, and interrupt what waits. */
static void interrupted(void)
{
    struct sigaction action = {.sa_handler = note};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    MPI_File fh = open_with("interrupted", RDWR, two_phases());
    unsigned char *back = malloc(BYTES);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int turn = 0; turn < 6; turn++) {
        OK(MPI_File_set_atomicity(fh, turn % 2));
        view(fh, turn);
        fill(data, BYTES, (uint64_t)(world_rank + 100 * turn));
        if (turn < 4)
            OK(MPI_File_write_at_all(fh, 0, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        else
            OK(MPI_File_write_at(fh, 0, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_File_sync(fh));
        memset(back, 0, BYTES);
        OK(MPI_File_read_at_all(fh, 0, back, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        FILLED(back, BYTES, (uint64_t)(world_rank + 100 * turn));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    setitimer(ITIMER_REAL, &never, NULL);
    OK(MPI_File_close(&fh));
    free(back);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    const char *how = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : "";
    data = malloc(BYTES);
    fill(data, BYTES, (uint64_t)world_rank);
    if (strcmp(how, "missing") == 0)
        missing();
    else if (strcmp(how, "permission") == 0)
        permission(0);
    else if (strcmp(how, "permission-of-one") == 0)
        permission(1);
    else if (strcmp(how, "read-only") == 0)
        read_only();
    else if (strcmp(how, "full") == 0)
        full(more);
    else if (strcmp(how, "too-long") == 0)
        too_long();
    else if (strcmp(how, "shortened") == 0)
        shortened();
    else if (strcmp(how, "killed") == 0)
        killed(atoi(more), argc > 3);
    else if (strcmp(how, "interrupted") == 0)
        interrupted();
    else
        FAIL("files: how is [%s]?", how);
    free(data);
    return check_end();
}

/* Files as a whole (MPI 5.0 section 14.2): opening in every mode, closing, deleting, sizes, groups,
 * hints, and many files one after the other. */
#include "files.h"

static void modes(void)
{
    static const int accesses[] = {MPI_MODE_RDONLY, MPI_MODE_WRONLY, MPI_MODE_RDWR};
    const char *name = file_name();
    MPI_File fh = MPI_FILE_NULL;
    CLASS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &fh),
          MPI_ERR_NO_SUCH_FILE);
    CLASS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR, MPI_INFO_NULL, &fh),
          MPI_ERR_NO_SUCH_FILE);
    CHECK(fh == MPI_FILE_NULL, "a file that cannot be opened has a handle");
    fh = file_open(name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY, MPI_INFO_NULL);
    SAME(file_length(name), 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_write_at(fh, 4 * world_rank, &world_rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&fh));
    CHECK(fh == MPI_FILE_NULL, "a closed file's handle is not MPI_FILE_NULL");
    CLASS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR,
                        MPI_INFO_NULL, &fh),
          MPI_ERR_FILE_EXISTS);
    for (int a = 0; a < 3; a++) {
        int amode = 0, value = -1;
        fh = file_open(name, accesses[a] | MPI_MODE_UNIQUE_OPEN, MPI_INFO_NULL);
        OK(MPI_File_get_amode(fh, &amode));
        SAME(amode, accesses[a] | MPI_MODE_UNIQUE_OPEN);
        if (accesses[a] == MPI_MODE_WRONLY) {
            CLASS(MPI_File_read_at(fh, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_ACCESS);
            CLASS(MPI_File_read_at_all(fh, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE),
                  MPI_ERR_ACCESS);
        } else {
            OK(MPI_File_read_at(fh, 4 * ring(1), &value, 1, MPI_INT, MPI_STATUS_IGNORE));
            SAME(value, ring(1));
        }
        if (accesses[a] == MPI_MODE_RDONLY) {
            CLASS(MPI_File_write_at(fh, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE),
                  MPI_ERR_READ_ONLY);
            CLASS(MPI_File_write_all(fh, &value, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
            CLASS(MPI_File_set_size(fh, 5), MPI_ERR_READ_ONLY);
            CLASS(MPI_File_preallocate(fh, 5), MPI_ERR_READ_ONLY);
        }
        OK(MPI_File_close(&fh));
    }
    /* Pointers begin at the end. */
    fh = file_open(name, MPI_MODE_RDWR | MPI_MODE_APPEND, MPI_INFO_NULL);
    MPI_Offset position = -1;
    OK(MPI_File_get_position(fh, &position));
    SAME(position, 4 * world_size);
    OK(MPI_File_get_position_shared(fh, &position));
    SAME(position, 4 * world_size);
    OK(MPI_File_close(&fh));
    fh = file_open(name, MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL);
    SAME(file_length(name), 4 * world_size);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_close(&fh));
    SAME(file_length(name), -1);
}

/* Combinations that the standard excludes, and numbers that are no modes. */
static void bad_modes(void)
{
    static const int bad[] = {0,
                              MPI_MODE_CREATE,
                              MPI_MODE_RDONLY | MPI_MODE_WRONLY,
                              MPI_MODE_RDONLY | MPI_MODE_RDWR,
                              MPI_MODE_WRONLY | MPI_MODE_RDWR,
                              MPI_MODE_RDONLY | MPI_MODE_CREATE,
                              MPI_MODE_RDONLY | MPI_MODE_EXCL,
                              MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL,
                              1 << 28 | MPI_MODE_RDWR};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        MPI_File fh = MPI_FILE_NULL;
        CLASS(MPI_File_open(MPI_COMM_WORLD, "never", bad[i], MPI_INFO_NULL, &fh), MPI_ERR_AMODE);
        CHECK(fh == MPI_FILE_NULL, "amode %d gives a handle", bad[i]);
    }
    SAME(file_length("never"), -1);
}

/* All ranks get an error if one of them makes a mistake, and go on. */
static void different(void)
{
    const char *name = file_name();
    MPI_File fh = MPI_FILE_NULL;
    if (world_size > 1) {
        int amode = world_rank == world_size - 1 ? MPI_MODE_WRONLY : MPI_MODE_RDWR, class = -1;
        int code = MPI_File_open(MPI_COMM_WORLD, name, amode | MPI_MODE_CREATE, MPI_INFO_NULL, &fh);
        OK(MPI_Error_class(code, &class));
        CHECK(class == MPI_ERR_NOT_SAME || class == MPI_ERR_AMODE, "different modes give class %d",
              class);
        CHECK(fh == MPI_FILE_NULL, "different modes give a handle");
    }
    fh = file_create(name);
    if (world_size > 1) {
        CLASS(MPI_File_set_size(fh, world_rank), MPI_ERR_NOT_SAME);
        CLASS(MPI_File_preallocate(fh, world_rank), MPI_ERR_NOT_SAME);
        CLASS(MPI_File_set_atomicity(fh, world_rank == 0), MPI_ERR_NOT_SAME);
        CLASS(MPI_File_seek_shared(fh, world_rank, MPI_SEEK_SET), MPI_ERR_NOT_SAME);
    }
    CLASS(MPI_File_set_size(fh, -1), MPI_ERR_ARG);
    CLASS(MPI_File_preallocate(fh, -1), MPI_ERR_ARG);
    SAME(file_length(name), 0);
    OK(MPI_File_close(&fh));
    file_remove(name);
}

static void sizes(void)
{
    static const MPI_Offset big = ((MPI_Offset)5 << 30) + 17;
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Offset size = -1;
    OK(MPI_File_set_size(fh, 1000));
    OK(MPI_File_get_size(fh, &size));
    SAME(size, 1000);
    OK(MPI_File_preallocate(fh, 500));
    OK(MPI_File_get_size(fh, &size));
    SAME(size, 1000);
    OK(MPI_File_preallocate(fh, 70000));
    OK(MPI_File_get_size(fh, &size));
    SAME(size, 70000);
    struct stat status;
    CHECK(stat(name, &status) == 0 && status.st_blocks * 512ll >= 70000,
          "%lld bytes are reserved of 70000", (long long)status.st_blocks * 512);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    /* Beyond what 32 bits hold, without storage. */
    OK(MPI_File_set_size(fh, big));
    OK(MPI_File_get_size(fh, &size));
    SAME(size, big);
    OK(MPI_File_set_size(fh, 3));
    OK(MPI_File_get_size(fh, &size));
    SAME(size, 3);
    OK(MPI_File_set_size(fh, 0));
    SAME(file_length(name), 0);
    OK(MPI_File_close(&fh));
    file_remove(name);
}

static void deleting(void)
{
    const char *name = file_name();
    CLASS(MPI_File_delete("there-is-no-such-file", MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
    file_make(name, "x", 1);
    if (world_rank == 0)
        OK(MPI_File_delete(name, MPI_INFO_NULL));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    SAME(file_length(name), -1);
    MPI_File fh;
    CLASS(MPI_File_open(MPI_COMM_SELF, "no-folder/file", MPI_MODE_CREATE | MPI_MODE_RDWR,
                        MPI_INFO_NULL, &fh),
          MPI_ERR_NO_SUCH_FILE);
    CLASS(MPI_File_open(MPI_COMM_SELF, "/", MPI_MODE_RDWR, MPI_INFO_NULL, &fh), MPI_ERR_BAD_FILE);
}

/* Each rank clears the file away before it opens it: nobody creates it before all have come. */
static void cleared_away(void)
{
    const char *name = file_name();
    for (int turn = 0; turn < 50; turn++) {
        MPI_File fh = MPI_FILE_NULL;
        int code = MPI_File_delete(name, MPI_INFO_NULL), class = MPI_SUCCESS;
        OK(MPI_Error_class(code, &class));
        CHECK(class == MPI_SUCCESS || class == MPI_ERR_NO_SUCH_FILE, "class %d", class);
        fh = file_create(name);
        SAME(file_length(name), 0);
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_File_set_size(fh, 5));
        OK(MPI_File_close(&fh));
    }
    file_remove(name);
}

/* Files of some ranks, and one for each. */
static void groups(void)
{
    const char *name = file_name();
    MPI_Comm half;
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &half));
    char own[64];
    snprintf(own, sizeof own, "%s-%d", name, world_rank % 2);
    MPI_File fh;
    OK(MPI_File_open(half, own, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                     MPI_INFO_NULL, &fh));
    MPI_Group of_file, of_comm;
    OK(MPI_File_get_group(fh, &of_file));
    OK(MPI_Comm_group(half, &of_comm));
    int same = -1, rank = -1;
    OK(MPI_Group_compare(of_file, of_comm, &same));
    SAME(same, MPI_IDENT);
    OK(MPI_Group_rank(of_file, &rank));
    OK(MPI_Group_free(&of_file));
    OK(MPI_Group_free(&of_comm));
    /* The file needs its communicator no more. */
    OK(MPI_Comm_free(&half));
    int back = -1;
    OK(MPI_File_write_at_all(fh, 4 * rank, &world_rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at(fh, 4 * rank, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
    SAME(back, world_rank);
    OK(MPI_File_close(&fh));
    snprintf(own, sizeof own, "%s-self-%d", name, world_rank);
    OK(MPI_File_open(MPI_COMM_SELF, own, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &fh));
    OK(MPI_File_write_shared(fh, &world_rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&fh));
    SAME(file_length(own), 4);
    OK(MPI_File_delete(own, MPI_INFO_NULL));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void hint_is(MPI_File fh, const char *key, const char *wanted)
{
    MPI_Info info;
    char value[64] = "";
    int length = sizeof value, flag = 0;
    OK(MPI_File_get_info(fh, &info));
    CHECK(info != MPI_INFO_NULL, "a file has no hints");
    OK(MPI_Info_get_string(info, key, &length, value, &flag));
    CHECK(flag && strcmp(value, wanted) == 0, "hint %s is [%s], should be [%s]", key, value,
          wanted);
    OK(MPI_Info_free(&info));
}

static void hints(void)
{
    const char *name = file_name();
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "cb_buffer_size", "12345"));
    OK(MPI_Info_set(info, "cb_nodes", "1"));
    OK(MPI_Info_set(info, "romio_cb_write", "enable"));
    OK(MPI_Info_set(info, "nobody_knows_this", "at all"));
    MPI_File fh = file_open(name, MPI_MODE_CREATE | MPI_MODE_RDWR, info);
    hint_is(fh, "cb_buffer_size", "12345");
    hint_is(fh, "romio_cb_write", "enable");
    OK(MPI_Info_set(info, "cb_buffer_size", "777"));
    OK(MPI_File_set_info(fh, info));
    hint_is(fh, "cb_buffer_size", "777");
    OK(MPI_Info_set(info, "cb_buffer_size", "888"));
    OK(MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", info));
    hint_is(fh, "cb_buffer_size", "888");
    hint_is(fh, "cb_nodes", "1");
    OK(MPI_File_set_info(fh, MPI_INFO_NULL));
    hint_is(fh, "cb_buffer_size", "888");
    OK(MPI_File_close(&fh));
    OK(MPI_Info_free(&info));
    file_remove(name);
}

/* Nothing is left of files that are closed. */
static void many(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name), some[20];
    int before = descriptors();
    for (int i = 0; i < 300; i++) {
        MPI_File again = file_open(name, MPI_MODE_RDWR, MPI_INFO_NULL);
        OK(MPI_File_write_at_all(again, 4 * world_rank, &i, 1, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_write_shared(again, &i, 0, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_close(&again));
    }
    SAME(descriptors(), before);
    for (int i = 0; i < 20; i++) {
        some[i] = file_open(name, MPI_MODE_RDWR, MPI_INFO_NULL);
        OK(MPI_File_seek_shared(some[i], i, MPI_SEEK_SET));
    }
    for (int i = 0; i < 20; i++) {
        MPI_Offset position = -1;
        OK(MPI_File_get_position_shared(some[i], &position));
        SAME(position, i);
    }
    for (int i = 19; i >= 0; i--)
        OK(MPI_File_close(&some[i]));
    SAME(descriptors(), before);
    for (int i = 0; i < 50; i++) {
        MPI_File never;
        CLASS(MPI_File_open(MPI_COMM_WORLD, "missing", MPI_MODE_RDONLY, MPI_INFO_NULL, &never),
              MPI_ERR_NO_SUCH_FILE);
    }
    SAME(descriptors(), before);
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* A handle is a number, too. */
static void numbers(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name);
    CHECK(MPI_File_fromint(MPI_File_toint(fh)) == fh, "a file's number is not its own");
    CHECK(MPI_File_fromint(MPI_File_toint(MPI_FILE_NULL)) == MPI_FILE_NULL,
          "the number of MPI_FILE_NULL is not its own");
    OK(MPI_File_close(&fh));
    file_remove(name);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    modes();
    bad_modes();
    different();
    sizes();
    deleting();
    cleared_away();
    groups();
    hints();
    many();
    numbers();
    return check_end();
}

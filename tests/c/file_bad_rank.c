/* Collective calls on files of which one rank's arguments are bad: all ranks return, that one with
 * the class of its mistake, and the file works afterwards (MPI 5.0 chapter 14). */
#include "files.h"

/* A mistake in a call, and its class. */
struct mistake {
    const char *name;
    int count, type, buffer, offset, class;
};

/* Bytes between the ranks' parts of a file, more than any of them writes. */
enum { APART = 65536 };

enum { VALID_TYPE, NULL_TYPE, UNCOMMITTED_TYPE };

static const struct mistake mistakes[] = {
    {"count", -1, VALID_TYPE, 0, 0, MPI_ERR_COUNT},
    {"null type", 1, NULL_TYPE, 0, 0, MPI_ERR_TYPE},
    {"uncommitted type", 1, UNCOMMITTED_TYPE, 0, 0, MPI_ERR_TYPE},
    {"buffer", 1, VALID_TYPE, 1, 0, MPI_ERR_BUFFER},
    {"offset", 1, VALID_TYPE, 0, 1, MPI_ERR_ARG},
};

enum form {
    WRITE_ALL, WRITE_AT_ALL, IWRITE_ALL, IWRITE_AT_ALL, WRITE_ORDERED, WRITE_ALL_BEGIN,
    WRITE_AT_ALL_BEGIN, WRITE_ORDERED_BEGIN, READ_ALL, READ_AT_ALL, IREAD_ALL, IREAD_AT_ALL,
    READ_ORDERED, READ_ALL_BEGIN, READ_AT_ALL_BEGIN, READ_ORDERED_BEGIN, FORMS
};

static int has_offset(enum form form)
{
    return form == WRITE_AT_ALL || form == IWRITE_AT_ALL || form == WRITE_AT_ALL_BEGIN ||
           form == READ_AT_ALL || form == IREAD_AT_ALL || form == READ_AT_ALL_BEGIN;
}

static int is_ordered(enum form form)
{
    return form == WRITE_ORDERED || form == WRITE_ORDERED_BEGIN || form == READ_ORDERED ||
           form == READ_ORDERED_BEGIN;
}

/* One collective access from its begin to its end. */
static int access_file(enum form form, MPI_File fh, MPI_Offset at, void *buf, int count,
                       MPI_Datatype type)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status *none = MPI_STATUS_IGNORE;
    int code = MPI_ERR_OTHER;
    switch (form) {
#define BLOCKING(FORM, call)                                                                       \
    case FORM: return MPI_File_##call(fh, buf, count, type, none);                                 \
    case FORM##_BEGIN:                                                                             \
        code = MPI_File_##call##_begin(fh, buf, count, type);                                      \
        return code ? code : MPI_File_##call##_end(fh, buf, none);
#define BLOCKING_AT(FORM, call)                                                                    \
    case FORM: return MPI_File_##call(fh, at, buf, count, type, none);                             \
    case FORM##_BEGIN:                                                                             \
        code = MPI_File_##call##_begin(fh, at, buf, count, type);                                  \
        return code ? code : MPI_File_##call##_end(fh, buf, none);
        BLOCKING(WRITE_ALL, write_all)
        BLOCKING(WRITE_ORDERED, write_ordered)
        BLOCKING(READ_ALL, read_all)
        BLOCKING(READ_ORDERED, read_ordered)
        BLOCKING_AT(WRITE_AT_ALL, write_at_all)
        BLOCKING_AT(READ_AT_ALL, read_at_all)
    case IWRITE_ALL: code = MPI_File_iwrite_all(fh, buf, count, type, &request); break;
    case IREAD_ALL: code = MPI_File_iread_all(fh, buf, count, type, &request); break;
    case IWRITE_AT_ALL: code = MPI_File_iwrite_at_all(fh, at, buf, count, type, &request); break;
    case IREAD_AT_ALL: code = MPI_File_iread_at_all(fh, at, buf, count, type, &request); break;
    case FORMS: break;
    }
    return code ? code : MPI_Wait(&request, none);
}

/* Each form with each mistake. `interleaved`: the ranks' pieces interleave, so that two phases are
 * used. */
static void accesses(int interleaved)
{
    const char *name = file_name();
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "collective_buffering", interleaved ? "true" : "false"));
    MPI_File fh = file_open(name, MPI_MODE_CREATE | MPI_MODE_RDWR, info);
    OK(MPI_Info_free(&info));
    MPI_Datatype pieces, uncommitted;
    OK(MPI_Type_create_resized(MPI_INT, 0, 4 * world_size, &pieces));
    OK(MPI_Type_commit(&pieces));
    OK(MPI_Type_contiguous(1, MPI_INT, &uncommitted));
    // Ranks are not in step, so no two may write the same bytes.
    MPI_Offset begin = (interleaved ? 4 : APART) * world_rank;
    OK(MPI_File_set_view(fh, begin, MPI_INT, interleaved ? pieces : MPI_INT, "native",
                         MPI_INFO_NULL));
    for (enum form form = 0; form < FORMS; form++) {
        for (size_t m = 0; m < sizeof mistakes / sizeof mistakes[0]; m++) {
            const struct mistake *it = &mistakes[m];
            int bad = (int)m % world_size == world_rank, value = world_rank;
            MPI_Datatype type = MPI_INT;
            if ((it->offset && !has_offset(form)) || world_size == 1)
                continue;
            if (bad && it->type)
                type = it->type == NULL_TYPE ? MPI_DATATYPE_NULL : uncommitted;
            int code = access_file(form, fh, bad && it->offset ? -1 : 0,
                                   bad && it->buffer ? NULL : &value, bad ? it->count : 1, type);
            int class = 0;
            OK(MPI_Error_class(code, &class));
            int wanted = bad || is_ordered(form) ? it->class : MPI_SUCCESS;
            CHECK(class == wanted, "form %d, %s: class %d, should be %d", form, it->name, class,
                  wanted);
        }
        int value = 100 * world_rank + (int)form, is = -1;
        OK(MPI_File_write_at_all(fh, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at_all(fh, 0, &is, 1, MPI_INT, MPI_STATUS_IGNORE));
        SAME(is, value);
    }
    OK(MPI_Type_free(&pieces));
    OK(MPI_Type_free(&uncommitted));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* Other collective calls give the class of the bad rank on all. */
static void others(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name), none = MPI_FILE_NULL;
    MPI_Datatype uncommitted;
    OK(MPI_Type_contiguous(1, MPI_INT, &uncommitted));
    for (int rank = 0; rank < world_size; rank++) {
        int bad = rank == world_rank;
        MPI_Info info = MPI_INFO_NULL, freed;
        OK(MPI_Info_create(&freed));
        MPI_Info invalid = freed;
        OK(MPI_Info_free(&freed));
        CLASS(MPI_File_set_view(fh, 0, bad ? uncommitted : MPI_INT, MPI_INT, "native", info),
              MPI_ERR_TYPE);
        CLASS(MPI_File_set_view(fh, 0, MPI_INT, bad ? MPI_DATATYPE_NULL : MPI_INT, "native", info),
              MPI_ERR_TYPE);
        CLASS(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, bad ? NULL : "native", info), MPI_ERR_ARG);
        CLASS(MPI_File_set_view(fh, bad ? -1 : 0, MPI_INT, MPI_INT, "native", info), MPI_ERR_ARG);
        CLASS(MPI_File_set_info(fh, bad ? invalid : info), MPI_ERR_INFO);
        CLASS(MPI_File_seek_shared(fh, 0, bad ? 12345 : MPI_SEEK_SET), MPI_ERR_ARG);
        CLASS(MPI_File_open(MPI_COMM_WORLD, bad ? NULL : name, MPI_MODE_RDWR, info, &none),
              MPI_ERR_ARG);
        CLASS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR, bad ? invalid : info, &none),
              MPI_ERR_INFO);
        CLASS(MPI_File_open(MPI_COMM_WORLD, "missing", MPI_MODE_RDWR | MPI_MODE_CREATE, info,
                            bad ? NULL : &none),
              MPI_ERR_ARG);
        CHECK(none == MPI_FILE_NULL && file_length("missing") == -1, "a file has been made");
    }
    int value = world_rank, is = -1;
    OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_at_all(fh, world_rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all(fh, world_rank, &is, 1, MPI_INT, MPI_STATUS_IGNORE));
    SAME(is, value);
    OK(MPI_Type_free(&uncommitted));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    accesses(0);
    accesses(1);
    others();
    return check_end();
}

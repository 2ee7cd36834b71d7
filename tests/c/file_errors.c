/* Errors of files (MPI 5.0 sections 9.3 and 14.7): the handlers of files and of MPI_FILE_NULL, bad
 * arguments of each kind, and what the texts say. */
#include "files.h"

static int calls, code_seen;
static MPI_File file_seen;

static void note(MPI_File *fh, int *code, ...)
{
    calls++;
    code_seen = *code;
    file_seen = *fh;
}

/* A call whose error goes to the handler once, with this file and class. */
#define NOTED(fh, wanted, call)                                                                    \
    do {                                                                                           \
        calls = 0;                                                                                 \
        int code_ = call, class_ = -1;                                                             \
        MPI_Error_class(code_, &class_);                                                           \
        CHECK(class_ == (wanted), "%s gives class %d, should give %d", #call, class_, wanted);     \
        CHECK(calls == 1 && code_seen == code_ && file_seen == (fh),                               \
              "%s: %d calls of the handler, with code %d of %d", #call, calls, code_seen, code_);  \
    } while (0)

/* Files return errors until they are told otherwise; those that are opened later get the handler of
 * MPI_FILE_NULL. */
static void handlers(void)
{
    const char *name = file_name();
    MPI_Errhandler noted, is;
    MPI_File fh = file_create(name), later, missing = MPI_FILE_NULL;
    OK(MPI_File_create_errhandler(note, &noted));
    OK(MPI_File_get_errhandler(fh, &is));
    CHECK(is == MPI_ERRORS_RETURN, "a file's handler is not MPI_ERRORS_RETURN");
    OK(MPI_Errhandler_free(&is));
    OK(MPI_File_get_errhandler(MPI_FILE_NULL, &is));
    CHECK(is == MPI_ERRORS_RETURN, "that of MPI_FILE_NULL is not MPI_ERRORS_RETURN");
    OK(MPI_Errhandler_free(&is));
    OK(MPI_File_set_errhandler(fh, noted));
    NOTED(fh, MPI_ERR_ARG, MPI_File_seek(fh, -1, MPI_SEEK_SET));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, noted));
    later = file_open(name, MPI_MODE_RDWR, MPI_INFO_NULL);
    NOTED(later, MPI_ERR_ARG, MPI_File_seek(later, -1, MPI_SEEK_SET));
    NOTED(MPI_FILE_NULL, MPI_ERR_NO_SUCH_FILE,
          MPI_File_open(MPI_COMM_WORLD, "missing", MPI_MODE_RDONLY, MPI_INFO_NULL, &missing));
    NOTED(MPI_FILE_NULL, MPI_ERR_AMODE,
          MPI_File_open(MPI_COMM_WORLD, name, 0, MPI_INFO_NULL, &missing));
    NOTED(MPI_FILE_NULL, MPI_ERR_NO_SUCH_FILE, MPI_File_delete("missing", MPI_INFO_NULL));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    calls = 0;
    CLASS(MPI_File_delete("missing", MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
    SAME(calls, 0);
    calls = 0;
    OK(MPI_File_call_errhandler(fh, MPI_ERR_IO));
    SAME(calls, 1);
    CHECK(file_seen == fh && code_seen == MPI_ERR_IO, "the handler is called with other values");
    OK(MPI_Errhandler_free(&noted));
    /* It lives as long as a file has it. */
    NOTED(fh, MPI_ERR_ARG, MPI_File_seek(fh, 0, 12345));
    OK(MPI_File_set_errhandler(fh, MPI_ERRORS_RETURN));
    OK(MPI_File_close(&later));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

static void arguments(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name), null = MPI_FILE_NULL;
    MPI_Offset at;
    MPI_Request request;
    MPI_Datatype uncommitted;
    int value = 0;
    OK(MPI_Type_contiguous(2, MPI_INT, &uncommitted));
    CLASS(MPI_File_write(null, &value, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_FILE);
    CLASS(MPI_File_get_size(null, &at), MPI_ERR_FILE);
    CLASS(MPI_File_close(&null), MPI_ERR_FILE);
    CLASS(MPI_File_write(fh, &value, -1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_COUNT);
    CLASS(MPI_File_read_at_c(fh, 0, &value, -1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_COUNT);
    CLASS(MPI_File_write(fh, &value, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE), MPI_ERR_TYPE);
    CLASS(MPI_File_write(fh, &value, 1, uncommitted, MPI_STATUS_IGNORE), MPI_ERR_TYPE);
    CLASS(MPI_File_write_at(fh, -1, &value, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_ARG);
    CLASS(MPI_File_iwrite_at(fh, -1, &value, 1, MPI_INT, &request), MPI_ERR_ARG);
    CLASS(MPI_File_write(fh, NULL, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_BUFFER);
    OK(MPI_Type_free(&uncommitted));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* A collective of which one rank's arguments are bad comes to its end on all. */
static void one_rank(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name);
    int bad = world_rank == world_size - 1, value = world_rank + 1;
    MPI_Offset at = bad ? -1 : 4 * world_rank;
    for (int turn = 0; turn < 2; turn++) {
        int code = turn ? MPI_File_read_at_all(fh, at, &value, 1, MPI_INT, MPI_STATUS_IGNORE)
                        : MPI_File_write_at_all(fh, at, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
        if (bad)
            CLASS(code, MPI_ERR_ARG);
        else
            OK(code);
        file_publish(fh);
    }
    /* Also in the background, where another rank's request shows nothing of it. */
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_File_iwrite_at_all(fh, at, &value, 1, MPI_INT, &request);
    if (code == MPI_SUCCESS)
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (bad)
        CLASS(code, MPI_ERR_ARG);
    else
        OK(code);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* What a text says of a file that is not there. */
static void texts(void)
{
    MPI_File fh = MPI_FILE_NULL;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    int code = MPI_File_open(MPI_COMM_WORLD, "not/here", MPI_MODE_RDONLY, MPI_INFO_NULL, &fh);
    OK(MPI_Error_string(code, text, &length));
    CHECK(strstr(text, "not/here") && strstr(text, "No such file") && strstr(text, "MPI_File_open"),
          "a text does not say enough: [%s]", text);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    handlers();
    arguments();
    one_rank();
    texts();
    return check_end();
}

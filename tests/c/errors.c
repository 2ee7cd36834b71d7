/* Error handlers, codes, classes and strings. */
#include "check.h"

static int calls, last_code;
static MPI_Comm last_comm;

static void count_it(MPI_Comm *comm, int *code, ...)
{
    calls++;
    last_comm = *comm;
    last_code = *code;
}

/* Errors of ranks are no errors, all others MPI_ERR_OTHER. */
static void forgive_ranks(MPI_Comm *comm, int *code, ...)
{
    int class = -1;
    (void)comm;
    MPI_Error_class(*code, &class);
    *code = class == MPI_ERR_RANK ? MPI_SUCCESS : MPI_ERR_OTHER;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);

    /* Every standard class is its own code, has a text and its own class. */
    for (int class = 0; class <= MPI_ERR_ABI; class ++) {
        char text[MPI_MAX_ERROR_STRING];
        int length = -1, is = -1;
        OK(MPI_Error_string(class, text, &length));
        SAME(length, strlen(text));
        CHECK(length > 0, "class %d has no text", class);
        OK(MPI_Error_class(class, &is));
        SAME(is, class);
    }

    /* The default is fatal; it can be asked for and put back. */
    MPI_Errhandler before, handler;
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before));
    SAME(before == MPI_ERRORS_ARE_FATAL, 1);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF,
                               MPI_ERRORS_RETURN)); /* for calls that have no communicator */
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler));
    SAME(handler == MPI_ERRORS_RETURN, 1);
    int one = 1;
    CLASS(MPI_Send(&one, 1, MPI_INT, world_size, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
    /* A handle where its address is wanted, which a compiler lets pass. */
    CLASS(MPI_Comm_group(MPI_COMM_WORLD, (MPI_Group *)MPI_GROUP_NULL), MPI_ERR_ARG);
    CLASS(MPI_Wait((MPI_Request *)MPI_REQUEST_NULL, MPI_STATUS_IGNORE), MPI_ERR_ARG);

    /* A user's handler is called with the communicator and the code, and the call still returns the
     * code. */
    OK(MPI_Comm_create_errhandler(count_it, &handler));
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, handler));
    int code = MPI_Send(&one, 1, MPI_INT, world_size + 7, 0, comm), class = -1;
    SAME(calls, 1);
    SAME(last_comm == comm, 1);
    SAME(last_code, code);
    OK(MPI_Error_class(code, &class));
    SAME(class, MPI_ERR_RANK);
    /* The handle that was set is the one that is got, and each that is got is to be freed. */
    MPI_Errhandler got, again;
    OK(MPI_Comm_get_errhandler(comm, &got));
    OK(MPI_Comm_get_errhandler(comm, &again));
    SAME(got == handler && again == handler, 1);
    OK(MPI_Errhandler_free(&again));
    SAME(again == MPI_ERRHANDLER_NULL, 1);
    OK(MPI_Errhandler_free(&got));
    MPI_Errhandler freed = handler;
    /* The handler survives its handle, and a copy inherits it. */
    OK(MPI_Errhandler_free(&handler));
    SAME(handler == MPI_ERRHANDLER_NULL, 1);
    CLASS(MPI_Errhandler_free(&freed), MPI_ERR_ERRHANDLER);
    MPI_Comm copy;
    OK(MPI_Comm_dup(comm, &copy));
    CLASS(MPI_Recv(&one, -1, MPI_INT, 0, 0, copy, MPI_STATUS_IGNORE), MPI_ERR_COUNT);
    SAME(calls, 2);
    SAME(last_comm == copy, 1);
    OK(MPI_Comm_get_errhandler(copy, &handler));
    MPI_Comm third;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &third));
    OK(MPI_Comm_set_errhandler(third, handler));
    OK(MPI_Errhandler_free(&handler));
    CLASS(MPI_Send(&one, 1, MPI_INT, 0, -5, third), MPI_ERR_TAG);
    SAME(calls, 3);
    OK(MPI_Comm_free(&third));
    OK(MPI_Comm_call_errhandler(copy, MPI_ERR_OTHER));
    SAME(calls, 4);
    SAME(last_code, MPI_ERR_OTHER);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free(&comm));

    /* A handler gets the address of the code: the call returns what it leaves there. */
    OK(MPI_Comm_create_errhandler(forgive_ranks, &handler));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, handler));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Send(&one, 1, MPI_INT, world_size, 0, comm));
    CLASS(MPI_Send(&one, 1, MPI_INT, 0, -5, comm), MPI_ERR_OTHER);
    OK(MPI_Comm_free(&comm));

    /* Errors without an open file return, whatever the communicator's handler does. */
    MPI_File file = MPI_FILE_NULL;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    CHECK(MPI_File_open(MPI_COMM_WORLD, "no/such/file", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) !=
              MPI_SUCCESS,
          "a file that is not there was opened");
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));

    /* Classes and codes of the user's own. */
    int *used = NULL, flag = 0;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &used, &flag));
    SAME(flag, 1);
    int first_used = *used;
    CHECK(first_used >= MPI_ERR_LASTCODE, "MPI_LASTUSEDCODE is %d, MPI_ERR_LASTCODE %d", first_used,
          MPI_ERR_LASTCODE);
    int new_class = -1, new_code = -1, other_class = -1;
    OK(MPI_Add_error_class(&new_class));
    CHECK(new_class > MPI_ERR_LASTCODE, "the new class is %d", new_class);
    OK(MPI_Add_error_code(new_class, &new_code));
    CHECK(new_code > MPI_ERR_LASTCODE && new_code != new_class, "the new code is %d, its class %d",
          new_code, new_class);
    OK(MPI_Add_error_string(new_class, "a class of ours"));
    OK(MPI_Add_error_string(new_code, "a code of ours"));
    OK(MPI_Error_class(new_code, &class));
    SAME(class, new_class);
    OK(MPI_Error_class(new_class, &class));
    SAME(class, new_class);
    char text[MPI_MAX_ERROR_STRING];
    int length = -1;
    OK(MPI_Error_string(new_code, text, &length));
    CHECK(strcmp(text, "a code of ours") == 0, "the code's text is [%s]", text);
    OK(MPI_Error_string(new_class, text, &length));
    CHECK(strcmp(text, "a class of ours") == 0, "the class's text is [%s]", text);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &used, &flag));
    CHECK(*used >= new_code && *used >= new_class && *used > first_used, "MPI_LASTUSEDCODE is %d",
          *used);
    OK(MPI_Add_error_class(&other_class));
    CHECK(other_class != new_class && other_class != new_code, "class %d was given twice",
          other_class);
    OK(MPI_Error_string(other_class, text, &length));
    CLASS(MPI_Add_error_string(MPI_ERR_RANK, "not allowed"), MPI_ERR_ARG);
    OK(MPI_Remove_error_string(new_code));
    OK(MPI_Remove_error_code(new_code));
    OK(MPI_Remove_error_string(new_class));
    OK(MPI_Remove_error_class(new_class));

    /* Handlers can be made and thrown away freely; a bad one is refused. */
    for (int i = 0; i < 1000; i++) {
        OK(MPI_Comm_create_errhandler(count_it, &handler));
        OK(MPI_Errhandler_free(&handler));
    }
    CLASS(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRHANDLER_NULL), MPI_ERR_ERRHANDLER);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, before));
    return check_end();
}

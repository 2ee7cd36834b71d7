/* Handles: their integers, values that stand for nothing, and what the ABI lets a program ask at
 * any time. */
#include "check.h"

/* A conversion there and back, which gives predefined handles their own value. */
#define SMALL(kind, handle)                                                                        \
    do {                                                                                           \
        SAME(MPI_##kind##_toint(handle), (intptr_t)(handle));                                      \
        CHECK(MPI_##kind##_fromint(MPI_##kind##_toint(handle)) == (handle),                        \
              #handle " does not come back");                                                      \
    } while (0)

#define LARGE(kind, handle)                                                                        \
    do {                                                                                           \
        int number_ = MPI_##kind##_toint(handle);                                                  \
        CHECK(number_ < 0 || number_ > 4095, #handle " has the integer %d", number_);              \
        CHECK(MPI_##kind##_fromint(number_) == (handle), #handle " does not come back");           \
        CHECK((uintptr_t)(handle) > 4095, #handle " is %p", (void *)(handle));                     \
    } while (0)

static void at_any_time(void)
{
    int major = -1, minor = -1, flag = -1;
    OK(MPI_Abi_get_version(&major, &minor));
    SAME(major, MPI_ABI_VERSION);
    SAME(minor, MPI_ABI_SUBVERSION);
    MPI_Info info, copy;
    OK(MPI_Abi_get_info(&info));
    char value[16];
    int room = sizeof value;
    OK(MPI_Info_get_string(info, "mpi_count_size", &room, value, &flag));
    SAME(flag, 1);
    SAME(atoi(value), (int)sizeof(MPI_Count));
    LARGE(Info, info);
    OK(MPI_Info_dup(info, &copy));
    CHECK(copy != info, "a copy has the same handle");
    OK(MPI_Info_free(&info));
    OK(MPI_Info_free(&copy));
    SAME((intptr_t)info, (intptr_t)MPI_INFO_NULL);
    SMALL(Comm, MPI_COMM_NULL);
    SMALL(Comm, MPI_COMM_WORLD);
    SMALL(Group, MPI_GROUP_EMPTY);
    SMALL(Type, MPI_DOUBLE);
    SMALL(Op, MPI_MAXLOC);
    SMALL(Info, MPI_INFO_ENV);
    SMALL(Errhandler, MPI_ERRORS_RETURN);
    SMALL(Request, MPI_REQUEST_NULL);
    SMALL(Message, MPI_MESSAGE_NO_PROC);
    SMALL(File, MPI_FILE_NULL);
    SMALL(Win, MPI_WIN_NULL);
    SMALL(Session, MPI_SESSION_NULL);
    int length;
    char text[MPI_MAX_ERROR_STRING];
    OK(MPI_Error_string(MPI_ERR_RANK, text, &length));
    SAME(length, strlen(text));
}

static void added(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void while_running(void)
{
    MPI_Comm comm, old;
    MPI_Group group;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Request request;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_group(comm, &group));
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    OK(MPI_Op_create(added, 1, &op));
    int number = 0;
    OK(MPI_Recv_init(&number, 1, MPI_INT, MPI_PROC_NULL, 0, comm, &request));
    LARGE(Comm, comm);
    LARGE(Group, group);
    LARGE(Type, type);
    LARGE(Op, op);
    LARGE(Request, request);

    /* Freed, of another kind, null, never set, made up. */
    int size;
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF,
                               MPI_ERRORS_RETURN)); /* errors without a communicator come here */
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    old = comm;
    OK(MPI_Request_free(&request));
    OK(MPI_Comm_free(&comm));
    SAME((intptr_t)comm, (intptr_t)MPI_COMM_NULL);
    CLASS(MPI_Comm_size(old, &size), MPI_ERR_COMM);
    CLASS(MPI_Comm_free(&old), MPI_ERR_COMM);
    CLASS(MPI_Comm_size((MPI_Comm)group, &size), MPI_ERR_COMM);
    CLASS(MPI_Comm_size((MPI_Comm)0, &size), MPI_ERR_COMM);
    CLASS(MPI_Comm_size((MPI_Comm)MPI_INT, &size), MPI_ERR_COMM);
    CLASS(MPI_Comm_size((MPI_Comm)&size, &size), MPI_ERR_COMM);
    CLASS(MPI_Comm_size((MPI_Comm)UINTPTR_MAX, &size), MPI_ERR_COMM);
    CLASS(MPI_Group_size(MPI_GROUP_NULL, &size), MPI_ERR_GROUP);
    CLASS(MPI_Type_size((MPI_Datatype)op, &size), MPI_ERR_TYPE);
    CLASS(MPI_Comm_size(MPI_COMM_WORLD, NULL), MPI_ERR_ARG);
    MPI_Op sum = MPI_SUM;
    CLASS(MPI_Op_free(&sum), MPI_ERR_OP);
    int one = 1;
    CLASS(MPI_Bcast(&one, 1, type, 0, MPI_COMM_WORLD), MPI_ERR_TYPE); /* not committed */
    CLASS(MPI_Bcast(&one, 1, MPI_INT, world_size, MPI_COMM_WORLD), MPI_ERR_ROOT);
    CLASS(MPI_Bcast(&one, -1, MPI_INT, 0, MPI_COMM_WORLD), MPI_ERR_COUNT);
    CLASS(MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    CLASS(MPI_Allreduce(&one, &one, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD), MPI_ERR_OP);
    CLASS(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);
    OK(MPI_Group_free(&group));
    OK(MPI_Type_free(&type));
    OK(MPI_Op_free(&op));

    /* The text of a code tells what was wrong in the call. */
    char text[MPI_MAX_ERROR_STRING];
    int length, code = MPI_Send(&one, 1, MPI_INT, world_size, 0, MPI_COMM_WORLD);
    CLASS(code, MPI_ERR_RANK);
    OK(MPI_Error_string(code, text, &length));
    CHECK(strstr(text, "MPI_Send on MPI_COMM_WORLD") && strstr(text, "dest is "),
          "the text is [%s]", text);

    /* Fortran's booleans are told once. */
    int32_t yes = -1, no = 0, is_set = -1, got_yes = 5, got_no = 5;
    OK(MPI_Abi_get_fortran_booleans(4, &got_yes, &got_no, &is_set));
    SAME(is_set, 0);
    OK(MPI_Abi_set_fortran_booleans(4, &yes, &no));
    CLASS(MPI_Abi_set_fortran_booleans(4, &yes, &no), MPI_ERR_ABI);
    OK(MPI_Abi_get_fortran_booleans(4, &got_yes, &got_no, &is_set));
    SAME(is_set, 1);
    SAME(got_yes, yes);
    SAME(got_no, no);
}

int main(int argc, char **argv)
{
    at_any_time();
    check_begin(&argc, &argv);
    at_any_time();
    while_running();
    return check_end();
}

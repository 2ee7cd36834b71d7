/* Mistakes in arguments. `misuse` alone makes them all under a handler that returns and checks the
 * error class; `misuse NAME` makes one under the fatal handler, on the last rank, and should not
 * live to the end; `misuse NAME abort` the same under MPI_ERRORS_ABORT. */
#include "check.h"

#include <limits.h>

static int value = 5, many[64];
static const int one_each[] = {1};
static MPI_Datatype uncommitted;
static MPI_Comm inter_like_null = MPI_COMM_NULL;

static int bad_rank(void)
{
    return MPI_Send(&value, 1, MPI_INT, world_size + 3, 0, MPI_COMM_WORLD);
}
static int negative_rank(void)
{
    return MPI_Send(&value, 1, MPI_INT, -77, 0, MPI_COMM_WORLD);
}
static int any_source_send(void)
{
    return MPI_Send(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD);
}
static int bad_source(void)
{
    return MPI_Recv(&value, 1, MPI_INT, world_size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static int bad_tag(void)
{
    return MPI_Send(&value, 1, MPI_INT, 0, -9, MPI_COMM_WORLD);
}
static int any_tag_send(void)
{
    return MPI_Send(&value, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD);
}
static int bad_receive_tag(void)
{
    return MPI_Recv(&value, 1, MPI_INT, 0, -9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static int bad_count(void)
{
    return MPI_Send(&value, -4, MPI_INT, 0, 0, MPI_COMM_WORLD);
}
static int null_type(void)
{
    return MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD);
}
static int not_committed(void)
{
    return MPI_Send(&value, 1, uncommitted, 0, 0, MPI_COMM_WORLD);
}
static int zero_type(void)
{
    return MPI_Send(&value, 1, (MPI_Datatype)0, 0, 0, MPI_COMM_WORLD);
}
static int null_comm(void)
{
    return MPI_Send(&value, 1, MPI_INT, 0, 0, inter_like_null);
}
static int zero_comm(void)
{
    return MPI_Barrier((MPI_Comm)0);
}
static int wild_comm(void)
{
    return MPI_Barrier((MPI_Comm)(uintptr_t)0x7f123456789a);
}
static int type_as_comm(void)
{
    return MPI_Barrier((MPI_Comm)MPI_INT);
}
static int null_buffer(void)
{
    return MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
}
static int bad_root(void)
{
    return MPI_Bcast(&value, 1, MPI_INT, world_size + 1, MPI_COMM_WORLD);
}
static int root_of_intercommunicators(void)
{
    return MPI_Bcast(&value, 1, MPI_INT, MPI_ROOT, MPI_COMM_WORLD);
}
static int any_source_dest(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    return MPI_Sendrecv_replace(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, 0, 0, comm,
                                MPI_STATUS_IGNORE);
}
static int null_pready(void)
{
    return MPI_Pready(0, MPI_REQUEST_NULL);
}
static int truncated_matched(void)
{
    MPI_Request request;
    MPI_Message message;
    MPI_Isend(many, 10, MPI_INT, 0, 1, MPI_COMM_SELF, &request);
    MPI_Mprobe(0, 1, MPI_COMM_SELF, &message, MPI_STATUS_IGNORE);
    int code = MPI_Mrecv(many + 20, 4, MPI_INT, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return code;
}
static void window_handler(MPI_Win *win, int *code, ...)
{
    (void)win, (void)code;
}
static int handler_of_windows(void)
{
    MPI_Errhandler handler;
    MPI_Win_create_errhandler(window_handler, &handler);
    int code = MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Errhandler_free(&handler);
    return code;
}
static int negative_root(void)
{
    return MPI_Reduce(&value, many, 1, MPI_INT, MPI_SUM, -8, MPI_COMM_WORLD);
}
static int null_op(void)
{
    return MPI_Allreduce(&value, many, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD);
}
static int op_for_type(void)
{
    return MPI_Allreduce(&value, many, 1, MPI_FLOAT, MPI_BXOR, MPI_COMM_WORLD);
}
static int op_derived(void)
{
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    int code = MPI_Allreduce(many, many + 8, 1, pair, MPI_SUM, MPI_COMM_WORLD);
    MPI_Type_free(&pair);
    return code;
}
static int aliased(void)
{
    return MPI_Allreduce(many, many, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}
static int collective_count(void)
{
    return MPI_Bcast(&value, -1, MPI_INT, 0, MPI_COMM_WORLD);
}
static int null_request(void)
{
    return MPI_Start(&(MPI_Request){MPI_REQUEST_NULL});
}
static int wild_request(void)
{
    return MPI_Wait(&(MPI_Request){(MPI_Request)(uintptr_t)0x7f00deadbeef}, MPI_STATUS_IGNORE);
}
static int freed_request(void)
{
    MPI_Request request;
    MPI_Recv_init(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
    MPI_Request stale = request;
    MPI_Request_free(&request);
    return MPI_Start(&stale);
}
static int freed_comm(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm stale = comm;
    MPI_Comm_free(&comm);
    return MPI_Barrier(stale);
}
static int freed_type(void)
{
    MPI_Datatype type;
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Datatype stale = type;
    MPI_Type_free(&type);
    return MPI_Send(many, 1, stale, 0, 0, MPI_COMM_SELF);
}
static int null_displs(void)
{
    return MPI_Allgatherv(&value, 1, MPI_INT, many, one_each, NULL, MPI_INT, MPI_COMM_SELF);
}
static int null_rdispls(void)
{
    MPI_Datatype types[] = {MPI_INT};
    return MPI_Alltoallw(many, one_each, many, types, many + 16, one_each, NULL, types,
                         MPI_COMM_SELF);
}
static int null_in_startall(void)
{
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Recv_init(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[0]);
    int code = MPI_Startall(2, requests);
    MPI_Request_free(&requests[0]);
    return code;
}
static int active_in_startall(void)
{
    MPI_Request requests[2];
    for (int i = 0; i < 2; i++)
        MPI_Recv_init(&value, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, &requests[i]);
    MPI_Start(&requests[1]);
    int code = MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
    return code;
}
static int own_block(void)
{
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int code = MPI_Ialltoall(many, 4, MPI_INT, many + 8, 2, MPI_INT, MPI_COMM_SELF, &requests[1]);
    return code == MPI_SUCCESS ? MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) : code;
}
static int free_world(void)
{
    return MPI_Comm_free(&(MPI_Comm){MPI_COMM_WORLD});
}
static int free_int(void)
{
    return MPI_Type_free(&(MPI_Datatype){MPI_INT});
}
static int free_sum(void)
{
    return MPI_Op_free(&(MPI_Op){MPI_SUM});
}
static int truncated(void)
{
    MPI_Request request;
    MPI_Isend(many, 10, MPI_INT, 0, 1, MPI_COMM_SELF, &request);
    MPI_Comm comm = MPI_COMM_SELF;
    int code = MPI_Recv(many + 20, 4, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return code;
}
static int truncated_large(void)
{
    static char large[400000], small[1000];
    MPI_Request request;
    MPI_Isend(large, sizeof large, MPI_BYTE, 0, 1, MPI_COMM_SELF, &request);
    int code = MPI_Recv(small, sizeof small, MPI_BYTE, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return code;
}
static int bad_group(void)
{
    int n;
    return MPI_Group_size(MPI_GROUP_NULL, &n);
}
static int bad_incl(void)
{
    MPI_Group world, out;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int code = MPI_Group_incl(world, 1, (int[]){world_size + 5}, &out);
    MPI_Group_free(&world);
    return code;
}
static int double_incl(void)
{
    MPI_Group world, out;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int code = MPI_Group_incl(world, 2, (int[]){0, 0}, &out);
    MPI_Group_free(&world);
    return code;
}
static int bad_dims(void)
{
    int dims[2] = {world_size + 1, 1}, periods[2] = {0, 0};
    MPI_Comm c;
    return MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &c);
}
static int no_topology(void)
{
    int n;
    return MPI_Cartdim_get(MPI_COMM_WORLD, &n);
}
static int bad_color(void)
{
    MPI_Comm c;
    return MPI_Comm_split(MPI_COMM_WORLD, -6, 0, &c);
}
static int negative_vector(void)
{
    MPI_Datatype t;
    return MPI_Type_vector(-1, 1, 1, MPI_INT, &t);
}
static int null_status_index(void)
{
    int n;
    return MPI_Comm_rank(MPI_COMM_NULL, &n);
}
static int null_out(void)
{
    return MPI_Comm_rank(MPI_COMM_WORLD, NULL);
}
static int bad_errhandler(void)
{
    return MPI_Comm_set_errhandler(MPI_COMM_SELF, (MPI_Errhandler)0);
}
static int predefined_keyval(void)
{
    return MPI_Comm_set_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value);
}
static int bad_keyval(void)
{
    void *v;
    int flag;
    return MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_KEYVAL_INVALID, &v, &flag);
}

/* A window of this rank alone, with the error handler of MPI_COMM_SELF. */
static MPI_Win own_window(void)
{
    static long memory[8];
    MPI_Win win;
    MPI_Errhandler handler;
    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_SELF, &win);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &handler);
    MPI_Win_set_errhandler(win, handler);
    MPI_Errhandler_free(&handler);
    return win;
}
static int put_without_epoch(void)
{
    MPI_Win win = own_window();
    int code = MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_free(&win);
    return code;
}
static int put_behind_window(void)
{
    MPI_Win win = own_window();
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    int code = MPI_Put(&value, 1, MPI_INT, 0, 8, 1, MPI_INT, win);
    MPI_Win_unlock(0, win);
    MPI_Win_free(&win);
    return code;
}
static int locked_twice(void)
{
    MPI_Win win = own_window();
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    int code = MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Win_unlock(0, win);
    MPI_Win_free(&win);
    return code;
}
static int freed_while_locked(void)
{
    MPI_Win win = own_window();
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    int code = MPI_Win_free(&win);
    MPI_Win_unlock(0, win);
    MPI_Win_free(&win);
    return code;
}
static int negative_coordinate(void)
{
    int dims[] = {1}, periods[] = {0}, coords[] = {-1}, rank;
    MPI_Comm line;
    MPI_Cart_create(MPI_COMM_SELF, 1, dims, periods, 0, &line);
    int code = MPI_Cart_rank(line, coords, &rank);
    MPI_Comm_free(&line);
    return code;
}
static int no_neighbours(void)
{
    return MPI_Neighbor_allgather(&value, 1, MPI_INT, many, 1, MPI_INT, MPI_COMM_SELF);
}
static int subarray_too_long(void)
{
    int sizes[] = {4}, subsizes[] = {3}, starts[] = {2};
    MPI_Datatype type;
    return MPI_Type_create_subarray(1, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &type);
}
static int packed_too_long(void)
{
    char small[2];
    int position = 0;
    return MPI_Pack(&value, 1, MPI_INT, small, sizeof small, &position, MPI_COMM_SELF);
}
static int no_key(void)
{
    MPI_Info info;
    MPI_Info_create(&info);
    int code = MPI_Info_delete(info, "colour");
    MPI_Info_free(&info);
    return code;
}
static int no_process_set(void)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Errhandler handler;
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &handler);
    MPI_Session_init(MPI_INFO_NULL, handler, &session);
    MPI_Errhandler_free(&handler);
    int code = MPI_Group_from_session_pset(session, "mpi://NOBODY", &group);
    MPI_Session_finalize(&session);
    return code;
}
static int ready_twice(void)
{
    int parts[2] = {0};
    MPI_Request requests[2];
    MPI_Psend_init(parts, 2, 1, MPI_INT, 0, 5, MPI_COMM_SELF, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(parts, 2, 1, MPI_INT, 0, 5, MPI_COMM_SELF, MPI_INFO_NULL, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Pready(1, requests[0]);
    int code = MPI_Pready(1, requests[0]);
    MPI_Pready(0, requests[0]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
    return code;
}
static int overlapping_groups(void)
{
    MPI_Comm between;
    return MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, world_rank, 3, &between);
}
static int no_port(void)
{
    MPI_Comm other;
    return MPI_Comm_connect("nowhere", MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
}

/* Words that the fatal message must have besides the rank. */
static const struct {
    const char *name;
    int (*make)(void);
    int class, other_class; /* a second class that is as good */
} mistakes[] = {
    {"bad_rank", bad_rank, MPI_ERR_RANK, 0},
    {"negative_rank", negative_rank, MPI_ERR_RANK, 0},
    {"any_source_send", any_source_send, MPI_ERR_RANK, 0},
    {"bad_source", bad_source, MPI_ERR_RANK, 0},
    {"bad_tag", bad_tag, MPI_ERR_TAG, 0},
    {"any_tag_send", any_tag_send, MPI_ERR_TAG, 0},
    {"bad_receive_tag", bad_receive_tag, MPI_ERR_TAG, 0},
    {"bad_count", bad_count, MPI_ERR_COUNT, 0},
    {"null_type", null_type, MPI_ERR_TYPE, 0},
    {"not_committed", not_committed, MPI_ERR_TYPE, 0},
    {"zero_type", zero_type, MPI_ERR_TYPE, 0},
    {"null_comm", null_comm, MPI_ERR_COMM, 0},
    {"zero_comm", zero_comm, MPI_ERR_COMM, 0},
    {"wild_comm", wild_comm, MPI_ERR_COMM, 0},
    {"type_as_comm", type_as_comm, MPI_ERR_COMM, 0},
    {"null_buffer", null_buffer, MPI_ERR_BUFFER, 0},
    {"bad_root", bad_root, MPI_ERR_ROOT, 0},
    {"negative_root", negative_root, MPI_ERR_ROOT, 0},
    {"root_of_intercommunicators", root_of_intercommunicators, MPI_ERR_ROOT, 0},
    {"any_source_dest", any_source_dest, MPI_ERR_RANK, 0},
    {"null_pready", null_pready, MPI_ERR_REQUEST, 0},
    {"truncated_matched", truncated_matched, MPI_ERR_TRUNCATE, 0},
    {"handler_of_windows", handler_of_windows, MPI_ERR_ERRHANDLER, 0},
    {"null_op", null_op, MPI_ERR_OP, 0},
    {"op_for_type", op_for_type, MPI_ERR_OP, 0},
    {"op_derived", op_derived, MPI_ERR_OP, 0},
    {"aliased", aliased, MPI_ERR_BUFFER, 0},
    {"collective_count", collective_count, MPI_ERR_COUNT, 0},
    {"null_request", null_request, MPI_ERR_REQUEST, 0},
    {"wild_request", wild_request, MPI_ERR_REQUEST, 0},
    {"freed_request", freed_request, MPI_ERR_REQUEST, 0},
    {"freed_comm", freed_comm, MPI_ERR_COMM, 0},
    {"freed_type", freed_type, MPI_ERR_TYPE, 0},
    {"free_world", free_world, MPI_ERR_COMM, 0},
    {"free_int", free_int, MPI_ERR_TYPE, 0},
    {"free_sum", free_sum, MPI_ERR_OP, 0},
    {"truncated", truncated, MPI_ERR_TRUNCATE, 0},
    {"truncated_large", truncated_large, MPI_ERR_TRUNCATE, 0},
    {"null_displs", null_displs, MPI_ERR_ARG, 0},
    {"null_rdispls", null_rdispls, MPI_ERR_ARG, 0},
    {"null_in_startall", null_in_startall, MPI_ERR_REQUEST, 0},
    {"active_in_startall", active_in_startall, MPI_ERR_REQUEST, 0},
    {"own_block", own_block, MPI_ERR_IN_STATUS, 0},
    {"bad_group", bad_group, MPI_ERR_GROUP, 0},
    {"bad_incl", bad_incl, MPI_ERR_RANK, 0},
    {"double_incl", double_incl, MPI_ERR_RANK, 0},
    {"bad_dims", bad_dims, MPI_ERR_DIMS, MPI_ERR_ARG},
    {"no_topology", no_topology, MPI_ERR_TOPOLOGY, 0},
    {"bad_color", bad_color, MPI_ERR_ARG, 0},
    {"negative_vector", negative_vector, MPI_ERR_COUNT, MPI_ERR_ARG},
    {"null_status_index", null_status_index, MPI_ERR_COMM, 0},
    {"null_out", null_out, MPI_ERR_ARG, 0},
    {"bad_errhandler", bad_errhandler, MPI_ERR_ERRHANDLER, MPI_ERR_ARG},
    {"predefined_keyval", predefined_keyval, MPI_ERR_KEYVAL, 0},
    {"bad_keyval", bad_keyval, MPI_ERR_KEYVAL, 0},
    {"put_without_epoch", put_without_epoch, MPI_ERR_RMA_SYNC, 0},
    {"put_behind_window", put_behind_window, MPI_ERR_RMA_RANGE, 0},
    {"locked_twice", locked_twice, MPI_ERR_RMA_SYNC, 0},
    {"freed_while_locked", freed_while_locked, MPI_ERR_RMA_SYNC, 0},
    {"negative_coordinate", negative_coordinate, MPI_ERR_ARG, 0},
    {"no_neighbours", no_neighbours, MPI_ERR_TOPOLOGY, 0},
    {"subarray_too_long", subarray_too_long, MPI_ERR_ARG, 0},
    {"packed_too_long", packed_too_long, MPI_ERR_ARG, 0},
    {"no_key", no_key, MPI_ERR_INFO_NOKEY, 0},
    {"no_process_set", no_process_set, MPI_ERR_ARG, 0},
    {"ready_twice", ready_twice, MPI_ERR_ARG, 0},
    {"overlapping_groups", overlapping_groups, MPI_ERR_COMM, 0},
    {"no_port", no_port, MPI_ERR_PORT, 0},
};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Type_contiguous(2, MPI_INT, &uncommitted);
    if (argc > 1) {
        if (argc > 2)
            OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ABORT));
        for (int i = 0; i < MISTAKES; i++)
            if (strcmp(argv[1], mistakes[i].name) == 0 && world_rank == world_size - 1)
                mistakes[i].make();
        MPI_Barrier(MPI_COMM_WORLD);
        puts("still alive");
        return check_end();
    }
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    for (int i = 0; i < MISTAKES; i++) {
        int code = mistakes[i].make(), class = -1, length = 0;
        char text[MPI_MAX_ERROR_STRING] = "";
        MPI_Error_class(code, &class);
        MPI_Error_string(code, text, &length);
        CHECK(code != MPI_SUCCESS, "%s was not noticed", mistakes[i].name);
        CHECK(class == mistakes[i].class ||
                  (mistakes[i].other_class && class == mistakes[i].other_class),
              "%s gave class %d [%s], should give %d", mistakes[i].name, class, text,
              mistakes[i].class);
        CHECK(length > 0 && length == (int)strlen(text), "%s has no text", mistakes[i].name);
    }
    /* All is still well. */
    int sum = -1, one = 1;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    SAME(sum, world_size);
    OK(MPI_Type_free(&uncommitted));
    return check_end();
}

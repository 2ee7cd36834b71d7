/* Windows: how they are made and freed, and what they tell of themselves. */
#include "windows.h"

/* What the predefined attributes of a window say (MPI 5.0 section 12.2.6). */
static void predefined_attributes(const Window *w, int flavor)
{
    void *base = NULL;
    MPI_Aint *size = NULL;
    int *unit = NULL, *is = NULL, *model = NULL, flag = 0;
    OK(MPI_Win_get_attr(w->win, MPI_WIN_BASE, &base, &flag));
    SAME(flag, 1);
    if (w->bytes > 0)
        SAME((intptr_t)base, (intptr_t)(flavor == MPI_WIN_FLAVOR_DYNAMIC ? MPI_BOTTOM : w->base));
    OK(MPI_Win_get_attr(w->win, MPI_WIN_SIZE, &size, &flag));
    SAME(flag, 1);
    SAME(*size, flavor == MPI_WIN_FLAVOR_DYNAMIC ? 0 : w->bytes);
    OK(MPI_Win_get_attr(w->win, MPI_WIN_DISP_UNIT, &unit, &flag));
    SAME(flag, 1);
    SAME(*unit, flavor == MPI_WIN_FLAVOR_DYNAMIC ? 1 : w->unit);
    OK(MPI_Win_get_attr(w->win, MPI_WIN_CREATE_FLAVOR, &is, &flag));
    SAME(flag, 1);
    SAME(*is, flavor);
    OK(MPI_Win_get_attr(w->win, MPI_WIN_MODEL, &model, &flag));
    SAME(flag, 1);
    SAME(*model, MPI_WIN_UNIFIED);
}

/* Each rank has another size and another displacement unit, rank 1 has nothing. */
static void sizes_and_units(int flavor)
{
    static const int flavors[FLAVORS] = {MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_ALLOCATE,
                                         MPI_WIN_FLAVOR_SHARED, MPI_WIN_FLAVOR_DYNAMIC};
    int longs = world_rank == 1 ? 0 : 3 + world_rank % 5, unit = 1 << world_rank % 4;
    if (flavor == DYNAMIC)
        unit = 1;
    Window w = window_make(flavor, MPI_COMM_WORLD, longs * 8, unit, MPI_INFO_NULL);
    predefined_attributes(&w, flavors[flavor]);
    int target = ring(1), has = target == 1 ? 0 : 3 + target % 5, units = 1 << target % 4;
    long last = world_rank + 1000, first = world_rank + 2000, old = -1;
    OK(MPI_Win_fence(0, w.win));
    if (has) {
        Window there = w; /* only its unit is another */
        there.unit = units;
        OK(MPI_Put(&last, 1, MPI_LONG, target, place(&there, target, (has - 1) * 8), 1, MPI_LONG,
                   w.win));
        OK(MPI_Put(&first, 1, MPI_LONG, target, place(&there, target, 0), 1, MPI_LONG, w.win));
        OK(MPI_Get(&old, 1, MPI_LONG, target, place(&there, target, 8), 1, MPI_LONG, w.win));
    }
    OK(MPI_Win_fence(0, w.win));
    SAME(old, has ? 0 : -1);
    if (longs) {
        SAME(((long *)w.base)[longs - 1], ring(-1) + 1000);
        SAME(((long *)w.base)[0], ring(-1) + 2000);
        SAME(((long *)w.base)[1], 0);
    }
    OK(MPI_Win_fence(0, w.win));
    window_free(&w);
}

/* The parts of a shared window, in one piece or not (MPI 5.0 section 12.2.3). */
static void shared_parts(const char *noncontiguous)
{
    MPI_Info info = MPI_INFO_NULL;
    if (noncontiguous) {
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "alloc_shared_noncontig", noncontiguous));
    }
    MPI_Aint bytes = world_rank == 0 ? 0 : 8 * world_rank;
    long *mine = NULL;
    MPI_Win win;
    OK(MPI_Win_allocate_shared(bytes, 8, info, MPI_COMM_WORLD, &mine, &win));
    int pieces = noncontiguous && strcmp(noncontiguous, "true") == 0;
    for (int i = 0; i < world_rank; i++)
        mine[i] = world_rank * 100 + i;
    OK(MPI_Win_fence(0, win));
    char *end = NULL;
    for (int rank = 0; rank < world_size; rank++) {
        MPI_Aint size = -1, unit_c = -1;
        int unit = -1;
        long *part = NULL, *part_c = NULL;
        OK(MPI_Win_shared_query(win, rank, &size, &unit, &part));
        SAME(size, 8 * rank);
        SAME(unit, 8);
        OK(MPI_Win_shared_query_c(win, rank, &size, &unit_c, &part_c));
        SAME(size, 8 * rank);
        SAME(unit_c, 8);
        if (rank == 0)
            continue;
        CHECK(part == part_c, "two answers about rank %d", rank);
        if (rank == world_rank)
            CHECK(part == mine, "its own part is at two places");
        if (rank > 1 && !pieces)
            CHECK((char *)part == end, "the part of rank %d does not follow that of %d", rank,
                  rank - 1);
        end = (char *)part + size;
        CHECK((uintptr_t)part % 8 == 0, "the part of rank %d is at %p", rank, (void *)part);
        for (int i = 0; i < rank; i++)
            SAME(part[i], rank * 100 + i);
    }
    /* Nobody's part: that of the lowest rank which has one. */
    MPI_Aint size = -1;
    int unit = -1;
    long *part = NULL, *first = NULL;
    OK(MPI_Win_shared_query(win, MPI_PROC_NULL, &size, &unit, &part));
    SAME(size, world_size > 1 ? 8 : 0);
    if (world_size > 1) {
        SAME(unit, 8);
        OK(MPI_Win_shared_query(win, 1, &size, &unit, &first));
        CHECK(part == first, "MPI_PROC_NULL does not stand for rank 1");
    }
    OK(MPI_Win_fence(0, win));
    /* A store by one is a load by another, and so is a put. */
    long one = 7000 + world_rank;
    if (ring(1) != 0) {
        OK(MPI_Win_shared_query(win, ring(1), &size, &unit, &part));
        if (world_rank % 2)
            part[0] = one;
        else
            OK(MPI_Put(&one, 1, MPI_LONG, ring(1), 0, 1, MPI_LONG, win));
    }
    OK(MPI_Win_fence(0, win));
    if (world_rank != 0)
        SAME(mine[0], 7000 + ring(-1));
    OK(MPI_Win_free(&win));
    if (info != MPI_INFO_NULL)
        OK(MPI_Info_free(&info));
}

static void nothing_shared(void)
{
    MPI_Win win;
    void *base = NULL;
    MPI_Aint size = -1;
    int unit = -1;
    OK(MPI_Win_allocate_shared(0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_shared_query(win, MPI_PROC_NULL, &size, &unit, &base));
    SAME(size, 0);
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_free(&win));
}

/* An allocated window says whether another's part can be reached by load and store. */
static void query_of_allocated(void)
{
    long *mine = NULL, *part = NULL;
    MPI_Win win;
    MPI_Aint size = -1;
    int unit = -1;
    OK(MPI_Win_allocate(64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win));
    mine[3] = 31 + world_rank;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    if (MPI_Win_shared_query(win, ring(1), &size, &unit, &part) == MPI_SUCCESS && size > 0) {
        SAME(size, 64);
        SAME(unit, 8);
        SAME(part[3], 31 + ring(1));
    }
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_free(&win));
}

/* Memory comes and goes; displacements are addresses (MPI 5.0 section 12.2.4). */
static void attached(void)
{
    enum { PIECES = 20, LONGS = 5 };
    MPI_Win win;
    long *piece[PIECES];
    MPI_Aint mine[PIECES], there[PIECES];
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PIECES; i++) {
            piece[i] = malloc(LONGS * sizeof(long));
            for (int k = 0; k < LONGS; k++)
                piece[i][k] = i;
            OK(MPI_Win_attach(win, piece[i], LONGS * sizeof(long)));
            OK(MPI_Get_address(piece[i], &mine[i]));
        }
        OK(MPI_Sendrecv(mine, PIECES, MPI_AINT, ring(-1), 1, there, PIECES, MPI_AINT, ring(1), 1,
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Win_fence(0, win));
        long out[PIECES], in[PIECES];
        for (int i = 0; i < PIECES; i++) {
            out[i] = world_rank * 1000 + i;
            OK(MPI_Put(&out[i], 1, MPI_LONG, ring(1), MPI_Aint_add(there[i], 4 * sizeof(long)), 1,
                       MPI_LONG, win));
            OK(MPI_Get(&in[i], 1, MPI_LONG, ring(1), MPI_Aint_add(there[i], sizeof(long)), 1,
                       MPI_LONG, win));
        }
        OK(MPI_Win_fence(0, win));
        for (int i = 0; i < PIECES; i++) {
            SAME(in[i], i);
            SAME(piece[i][4], ring(-1) * 1000 + i);
        }
        for (int i = PIECES - 1; i >= 0; i--) {
            OK(MPI_Win_detach(win, piece[(i * 7) % PIECES]));
            free(piece[(i * 7) % PIECES]);
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    /* Several pieces side by side, and memory that is still attached when the window is freed. */
    long *whole = calloc(4, sizeof(long)), value = 5 + world_rank, sum = -1;
    MPI_Aint at, next;
    /* Pieces without bytes overlap nothing, wherever they are. */
    OK(MPI_Win_attach(win, whole, 0));
    OK(MPI_Win_attach(win, whole, 0));
    OK(MPI_Win_attach(win, whole, 4 * sizeof(long)));
    OK(MPI_Win_attach(win, whole + 1, 0));
    for (int i = 0; i < 3; i++)
        OK(MPI_Win_detach(win, whole));
    OK(MPI_Win_detach(win, whole + 1));
    OK(MPI_Win_attach(win, whole, 2 * sizeof(long)));
    OK(MPI_Win_attach(win, whole + 2, 2 * sizeof(long)));
    OK(MPI_Get_address(whole, &at));
    OK(MPI_Sendrecv(&at, 1, MPI_AINT, ring(-1), 2, &next, 1, MPI_AINT, ring(1), 2, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    OK(MPI_Win_lock_all(0, win));
    long both[4] = {0}; /* over the two pieces, which are all attached */
    OK(MPI_Get(both, 4, MPI_LONG, ring(1), next, 4, MPI_LONG, win));
    OK(MPI_Win_flush(ring(1), win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    SAME(both[0] + both[3], 0);
    OK(MPI_Accumulate(&value, 1, MPI_LONG, ring(1), MPI_Aint_add(next, 3 * sizeof(long)), 1,
                      MPI_LONG, MPI_SUM, win));
    OK(MPI_Fetch_and_op(&value, &sum, MPI_LONG, ring(1), next, MPI_SUM, win));
    OK(MPI_Win_flush(ring(1), win));
    SAME(sum, 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_sync(win));
    SAME(whole[3], 5 + ring(-1));
    SAME(whole[0], 5 + ring(-1));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));
    free(whole);
}

static void names_and_groups(void)
{
    Window w = window_make(CREATED, MPI_COMM_WORLD, 8, 1, MPI_INFO_NULL);
    char name[MPI_MAX_OBJECT_NAME] = "x";
    int length = -1, result = -1;
    OK(MPI_Win_get_name(w.win, name, &length));
    SAME(length, strlen(name));
    SAME(length, 0);
    OK(MPI_Win_set_name(w.win, "halo of the lattice"));
    OK(MPI_Win_get_name(w.win, name, &length));
    SAME(length, 19);
    SAME(strcmp(name, "halo of the lattice"), 0);
    MPI_Group group, world;
    OK(MPI_Win_get_group(w.win, &group));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_compare(group, world, &result));
    SAME(result, MPI_IDENT);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&world));
    CHECK(MPI_Win_fromint(MPI_Win_toint(w.win)) == w.win, "the handle does not come back");
    CHECK(MPI_Win_toint(w.win) != MPI_Win_toint(MPI_WIN_NULL), "the integer is MPI_WIN_NULL's");
    window_free(&w);
}

static int copies, deletes;
static intptr_t last_deleted;

static int win_copy(MPI_Win win, int key, void *extra, void *in, void *out, int *flag)
{
    (void)win, (void)key, (void)extra;
    copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int win_drop(MPI_Win win, int key, void *value, void *extra)
{
    (void)key;
    CHECK(win != MPI_WIN_NULL, "the delete function got MPI_WIN_NULL");
    SAME((intptr_t)extra, 17);
    deletes++;
    last_deleted = (intptr_t)value;
    return MPI_SUCCESS;
}

static int win_keep(MPI_Win win, int key, void *value, void *extra)
{
    (void)win, (void)key, (void)value, (void)extra;
    return MPI_ERR_OTHER;
}

static void user_attributes(void)
{
    int key, plain, keeping, flag = -1;
    void *value = NULL;
    OK(MPI_Win_create_keyval(win_copy, win_drop, &key, (void *)17));
    OK(MPI_Win_create_keyval(MPI_WIN_DUP_FN, MPI_WIN_NULL_DELETE_FN, &plain, NULL));
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, win_keep, &keeping, NULL));
    Window w = window_make(ALLOCATED, MPI_COMM_WORLD, 8, 1, MPI_INFO_NULL);
    OK(MPI_Win_get_attr(w.win, key, &value, &flag));
    SAME(flag, 0);
    OK(MPI_Win_set_attr(w.win, key, (void *)100));
    OK(MPI_Win_set_attr(w.win, plain, (void *)200));
    OK(MPI_Win_set_attr(w.win, key, (void *)101)); /* the old value is deleted */
    SAME(deletes, 1);
    SAME(last_deleted, 100);
    OK(MPI_Win_get_attr(w.win, key, &value, &flag));
    SAME(flag, 1);
    SAME((intptr_t)value, 101);
    OK(MPI_Win_get_attr(w.win, plain, &value, &flag));
    SAME((intptr_t)value, 200);
    OK(MPI_Win_delete_attr(w.win, key));
    SAME(deletes, 2);
    OK(MPI_Win_get_attr(w.win, key, &value, &flag));
    SAME(flag, 0);
    /* A delete function that refuses keeps the value. */
    OK(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    OK(MPI_Win_set_attr(w.win, keeping, (void *)300));
    CHECK(MPI_Win_delete_attr(w.win, keeping) != MPI_SUCCESS, "a refusal was passed over");
    OK(MPI_Win_get_attr(w.win, keeping, &value, &flag));
    SAME(flag, 1);
    /* A freed key lives until its last value is gone, and freeing the window deletes that. */
    OK(MPI_Win_set_attr(w.win, key, (void *)102));
    int freed = key;
    OK(MPI_Win_free_keyval(&key));
    SAME(key, MPI_KEYVAL_INVALID);
    OK(MPI_Win_get_attr(w.win, freed, &value, &flag));
    SAME(flag, 1);
    SAME((intptr_t)value, 102);
    Window other = window_make(ALLOCATED, MPI_COMM_WORLD, 8, 1, MPI_INFO_NULL);
    OK(MPI_Win_get_attr(other.win, freed, &value, &flag));
    SAME(flag, 0);
    window_free(&other);
    SAME(deletes, 2);
    MPI_Win third;
    OK(MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &third));
    OK(MPI_Win_set_attr(third, plain, NULL));
    OK(MPI_Win_get_attr(third, plain, &value, &flag));
    SAME(flag, 1);
    SAME(value == NULL, 1);
    OK(MPI_Win_free(&third));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, win_drop, &key, (void *)17));
    OK(MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &third));
    OK(MPI_Win_set_attr(third, key, (void *)104));
    OK(MPI_Win_free(&third));
    SAME(deletes, 3);
    SAME(last_deleted, 104);
    OK(MPI_Win_free_keyval(&key));
    /* The window itself cannot go while a delete function refuses, so that value goes unrefused. */
    OK(MPI_Win_delete_attr(w.win, freed));
    SAME(deletes, 4);
    SAME(copies, 0);
    CHECK(MPI_Win_free(&w.win) != MPI_SUCCESS, "the refusal did not keep MPI_Win_free");
    OK(MPI_Win_free_keyval(&plain));
    OK(MPI_Win_free_keyval(&keeping));
}

/* Keys may be left out of what is got, but what is there is what was asked for. */
static void hint(MPI_Win win, const char *key, const char *wanted)
{
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL + 1];
    int room = sizeof value, flag = 0;
    OK(MPI_Win_get_info(win, &info));
    OK(MPI_Info_get_string(info, key, &room, value, &flag));
    if (flag)
        CHECK(strcmp(value, wanted) == 0, "the hint %s is %s, should be %s", key, value, wanted);
    OK(MPI_Info_free(&info));
}

static void hints(void)
{
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "no_locks", "true"));
    OK(MPI_Info_set(info, "same_size", "true"));
    OK(MPI_Info_set(info, "same_disp_unit", "true"));
    OK(MPI_Info_set(info, "accumulate_ordering", "none"));
    OK(MPI_Info_set(info, "accumulate_ops", "same_op"));
    OK(MPI_Info_set(info, "mpi_accumulate_granularity", "4"));
    OK(MPI_Info_set(info, "mpi_assert_memory_alloc_kinds", "system"));
    OK(MPI_Info_set(info, "a key of nobody's", "1"));
    for (int flavor = 0; flavor < FLAVORS; flavor++) {
        if (!has_flavor(flavor))
            continue;
        Window w = window_make(flavor, MPI_COMM_WORLD, 64, 8, info);
        hint(w.win, "no_locks", "true");
        hint(w.win, "accumulate_ordering", "none");
        hint(w.win, "accumulate_ops", "same_op");
        long one = 1;
        OK(MPI_Win_fence(0, w.win));
        for (int i = 0; i < 10; i++)
            OK(MPI_Accumulate(&one, 1, MPI_LONG, 0, place(&w, 0, 8), 1, MPI_LONG, MPI_SUM, w.win));
        OK(MPI_Win_fence(0, w.win));
        if (world_rank == 0)
            SAME(((long *)w.base)[1], 10 * world_size);
        /* The hint is one that Ferry does not need. */
        OK(MPI_Win_lock_all(0, w.win));
        OK(MPI_Win_unlock_all(w.win));
        window_free(&w);
    }
    OK(MPI_Info_free(&info));

    Window w = window_make(ALLOCATED, MPI_COMM_WORLD, 64, 8, MPI_INFO_NULL);
    hint(w.win, "no_locks", "false");
    hint(w.win, "accumulate_ops", "same_op_no_op");
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "accumulate_ordering", "rar,waw"));
    OK(MPI_Win_set_info(w.win, info));
    OK(MPI_Info_free(&info));
    window_free(&w);
    /* Aligned memory on request. */
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_minimum_memory_alignment", "64"));
    w = window_make(ALLOCATED, MPI_COMM_WORLD, 8 + world_rank, 1, info);
    CHECK((uintptr_t)w.base % 16 == 0, "allocated memory is at %p", (void *)w.base);
    window_free(&w);
    OK(MPI_Info_free(&info));
}

static int handler_calls, handler_code;
static MPI_Win handler_win;

static void on_error(MPI_Win *win, int *code, ...)
{
    handler_calls++;
    handler_code = *code;
    handler_win = *win;
}

static void error_handlers(void)
{
    Window w = window_make(CREATED, MPI_COMM_WORLD, 8, 1, MPI_INFO_NULL),
           other = window_make(CREATED, MPI_COMM_WORLD, 8, 1, MPI_INFO_NULL);
    MPI_Errhandler handler, got;
    OK(MPI_Win_get_errhandler(w.win, &got));
    CHECK(got == MPI_ERRORS_ARE_FATAL, "the default error handler is not MPI_ERRORS_ARE_FATAL");
    OK(MPI_Win_create_errhandler(on_error, &handler));
    OK(MPI_Win_set_errhandler(w.win, handler));
    OK(MPI_Win_get_errhandler(w.win, &got));
    CHECK(got == handler, "another handler is got than was set");
    OK(MPI_Errhandler_free(&got));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Win_call_errhandler(w.win, MPI_ERR_RMA_SYNC));
    SAME(handler_calls, 1);
    SAME(handler_code, MPI_ERR_RMA_SYNC);
    CHECK(handler_win == w.win, "the handler was called with another window");
    long value = 1;
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
    int code = MPI_Put(&value, 1, MPI_LONG, world_size + 3, 0, 1, MPI_LONG, w.win), class = -1;
    OK(MPI_Error_class(code, &class));
    SAME(class, MPI_ERR_RANK);
    SAME(handler_calls, 2);
    SAME(handler_code, code);
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    OK(MPI_Win_set_errhandler(other.win, MPI_ERRORS_RETURN));
    OK(MPI_Win_call_errhandler(other.win, MPI_ERR_OTHER));
    window_free(&w);
    window_free(&other);
}

/* Operations on nobody are over at once, in every kind of epoch. */
static void nobody(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 16, 8, MPI_INFO_NULL);
    for (int locks = 0; locks < 2; locks++) {
        if (locks)
            OK(MPI_Win_lock_all(0, w.win));
        else
            OK(MPI_Win_fence(0, w.win));
        long out = 4, compared = 5, in = 6;
        OK(MPI_Put(&out, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, w.win));
        OK(MPI_Get(&in, 1, MPI_LONG, MPI_PROC_NULL, 99999, 1, MPI_LONG, w.win));
        OK(MPI_Accumulate(&out, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, MPI_SUM, w.win));
        OK(MPI_Get_accumulate(&out, 1, MPI_LONG, &in, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG,
                              MPI_SUM, w.win));
        OK(MPI_Fetch_and_op(&out, &in, MPI_LONG, MPI_PROC_NULL, 0, MPI_SUM, w.win));
        OK(MPI_Compare_and_swap(&out, &compared, &in, MPI_LONG, MPI_PROC_NULL, 0, w.win));
        if (locks) {
            MPI_Request requests[4];
            OK(MPI_Rput(&out, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, w.win, &requests[0]));
            OK(MPI_Rget(&in, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, w.win, &requests[1]));
            OK(MPI_Raccumulate(&out, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, MPI_SUM, w.win,
                               &requests[2]));
            OK(MPI_Rget_accumulate(&out, 1, MPI_LONG, &in, 1, MPI_LONG, MPI_PROC_NULL, 0, 1,
                                   MPI_LONG, MPI_SUM, w.win, &requests[3]));
            OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
            OK(MPI_Win_unlock_all(w.win));
        } else {
            OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
        }
        SAME(in, 6);
        SAME(out, 4);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    SAME(((long *)w.base)[0], 0);
    window_free(&w);
}

/* Windows over parts of the world, many at once, longer-lived than their communicators. */
static void many(void)
{
    enum { MANY = 24 };
    Window w[MANY];
    int ranks = -1, rank = -1;
    for (int i = 0; i < MANY; i++) {
        MPI_Comm comm;
        OK(MPI_Comm_split(MPI_COMM_WORLD, i % 3 ? world_rank % 2 : 0, i % 2 ? -world_rank : 0,
                          &comm));
        w[i] = window_make(i % 2 ? CREATED : ALLOCATED, comm, 8 * (1 + i), 8, MPI_INFO_NULL);
        OK(MPI_Comm_free(&comm));
    }
    for (int i = 0; i < MANY; i++)
        OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, w[i].win));
    long value[MANY];
    for (int i = MANY - 1; i >= 0; i--) {
        MPI_Group group;
        OK(MPI_Win_get_group(w[i].win, &group));
        OK(MPI_Group_size(group, &ranks));
        OK(MPI_Group_rank(group, &rank));
        OK(MPI_Group_free(&group));
        value[i] = 100 * i + rank;
        OK(MPI_Put(&value[i], 1, MPI_LONG, (rank + 1) % ranks, i, 1, MPI_LONG, w[i].win));
    }
    for (int i = 0; i < MANY; i++)
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w[i].win));
    for (int i = MANY - 1; i >= 0; i--) {
        MPI_Group group;
        OK(MPI_Win_get_group(w[i].win, &group));
        OK(MPI_Group_size(group, &ranks));
        OK(MPI_Group_rank(group, &rank));
        OK(MPI_Group_free(&group));
        SAME(((long *)w[i].base)[i], 100 * i + (rank + ranks - 1) % ranks);
    }
    for (int i = 0; i < MANY; i += 2)
        OK(MPI_Win_free(&w[i].win));
    for (int i = 1; i < MANY; i += 2) {
        OK(MPI_Win_free(&w[i].win));
        free(w[i].base);
    }
    Window self = window_make(ALLOCATED, MPI_COMM_SELF, 1 << 20, 1, MPI_INFO_NULL);
    unsigned char *bytes = malloc(1 << 20);
    fill(bytes, 1 << 20, 5);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, self.win));
    OK(MPI_Put(bytes, 1 << 20, MPI_BYTE, 0, 0, 1 << 20, MPI_BYTE, self.win));
    OK(MPI_Win_unlock(0, self.win));
    FILLED(self.base, 1 << 20, 5);
    window_free(&self);
    free(bytes);
    for (int i = 0; i < 50; i++) { /* windows that nobody uses */
        Window brief = window_make(i % 2, MPI_COMM_WORLD, i, 1, MPI_INFO_NULL);
        window_free(&brief);
    }
}

static void large_count_forms(void)
{
    MPI_Win win;
    long memory[4] = {0}, *base = NULL, value = 9 + world_rank;
    OK(MPI_Win_create_c(memory, sizeof memory, (MPI_Aint)sizeof(long), MPI_INFO_NULL,
                        MPI_COMM_WORLD, &win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_LONG, ring(1), 3, 1, MPI_LONG, win));
    OK(MPI_Win_fence(0, win));
    SAME(memory[3], 9 + ring(-1));
    OK(MPI_Win_free(&win));
    OK(MPI_Win_allocate_c(32, 16, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_LONG, ring(1), 1, 1, MPI_LONG, win));
    OK(MPI_Win_fence(0, win));
    SAME(base[2], 9 + ring(-1));
    OK(MPI_Win_free(&win));
    if (has_flavor(SHARED)) {
        OK(MPI_Win_allocate_shared_c(32, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
        OK(MPI_Win_fence(0, win));
        OK(MPI_Put(&value, 1, MPI_LONG, ring(1), 1, 1, MPI_LONG, win));
        OK(MPI_Win_fence(0, win));
        SAME(base[1], 9 + ring(-1));
        OK(MPI_Win_free(&win));
    }
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    for (int flavor = 0; flavor < FLAVORS; flavor++)
        if (has_flavor(flavor)) {
            sizes_and_units(flavor);
            nobody(flavor);
        }
    if (has_flavor(SHARED)) {
        shared_parts(NULL);
        shared_parts("false");
        shared_parts("true");
        nothing_shared();
    }
    query_of_allocated();
    attached();
    names_and_groups();
    user_attributes();
    hints();
    error_handlers();
    many();
    large_count_forms();
    return check_end();
}

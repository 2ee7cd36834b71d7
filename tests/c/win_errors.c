/* Bad use of windows: the class, the window's error handler, and a text that names the call, the
 * rank and the values (MPI 5.0 sections 9.4 and 12.6). What is right afterwards works as before. */
#include "windows.h"

enum { LONGS = 16, SIZE = 8 * LONGS };

static int handler_calls, handler_code;
static MPI_Win handler_win;
static MPI_Errhandler noted;

static void note(MPI_Win *win, int *code, ...)
{
    handler_calls++;
    handler_code = *code;
    handler_win = *win;
}

/* What a failed call should have said: its class, to this window's handler once, with these words,
 * of which the last is NULL. Another MPI chooses its own words. */
static void said(int line, const char *call, int code, MPI_Win win, int wanted,
                 const char *const *words)
{
    int class = -1, length = 0;
    char text[MPI_MAX_ERROR_STRING] = "", should[MPI_MAX_ERROR_STRING];
    OK(MPI_Error_class(code, &class));
    OK(MPI_Error_string(code, text, &length));
    OK(MPI_Error_string(wanted, should, &length));
    if (class != wanted)
        check_fail(__FILE__, line, "%s gave [%s], should give [%s]", call, text, should);
    else if (handler_calls != 1 || handler_win != win || handler_code != code)
        check_fail(__FILE__, line, "%s: %d calls of the handler, code %d of %d", call,
                   handler_calls, handler_code, code);
    for (; class == wanted && *words; words++)
        if (!strstr(text, *words))
            check_fail(__FILE__, line, "%s: no [%s] in [%s]", call, *words, text);
    handler_calls = 0;
}

#define BAD(win, class, call, ...)                                                                 \
    said(__LINE__, #call, call, win, class, (const char *const[]){__VA_ARGS__, NULL})

/* A call whose error may come with the flush that follows it. */
#define BAD_BY_FLUSH(w, target, class, call, ...)                                                  \
    do {                                                                                           \
        int code__ = call, flushed__ = MPI_Win_flush(target, (w)->win);                            \
        said(__LINE__, #call, code__ != MPI_SUCCESS ? code__ : flushed__, (w)->win, class,         \
             (const char *const[]){__VA_ARGS__, NULL});                                            \
    } while (0)

static Window make(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, SIZE, 8, MPI_INFO_NULL);
    OK(MPI_Win_set_errhandler(w.win, noted));
    return w;
}

static const char *number(int n)
{
    static char texts[4][16];
    static int next;
    next = (next + 1) % 4;
    snprintf(texts[next], sizeof texts[next], "%d", n);
    return texts[next];
}

/* Beyond the window, before it, and in memory that is not attached. */
static void ranges(int flavor)
{
    Window w = make(flavor);
    long out[4] = {1, 2, 3, 4}, in[4] = {0}, compared = 0;
    int target = ring(1);
    const char *rank = number(target), *size = number(SIZE);
    MPI_Datatype backwards;
    OK(MPI_Type_create_hvector(2, 1, -16, MPI_LONG, &backwards));
    OK(MPI_Type_commit(&backwards));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win));
    if (flavor != DYNAMIC) {
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Put(out, 1, MPI_LONG, target, 77, 1, MPI_LONG, w.win), "MPI_Put", rank,
                     "77", size);
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Put(out, 4, MPI_LONG, target, 13, 4, MPI_LONG, w.win), "MPI_Put", rank,
                     "13", "32", size);
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Get(in, 4, MPI_LONG, target, 13, 4, MPI_LONG, w.win), "MPI_Get", rank,
                     "13", "32", size);
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Accumulate(out, 4, MPI_LONG, target, 14, 4, MPI_LONG, MPI_SUM, w.win),
                     "MPI_Accumulate", rank, "14", size);
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Get_accumulate(out, 4, MPI_LONG, in, 4, MPI_LONG, target, 15, 4, MPI_LONG,
                                        MPI_SUM, w.win),
                     "MPI_Get_accumulate", rank, "15", size);
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Fetch_and_op(out, in, MPI_LONG, target, 16, MPI_SUM, w.win),
                     "MPI_Fetch_and_op", rank, "16", size);
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Compare_and_swap(out, &compared, in, MPI_LONG, target, 16, w.win),
                     "MPI_Compare_and_swap", rank, "16", size);
        /* The bounds are those of the bytes that the type touches. */
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Put(out, 2, MPI_LONG, target, 1, 1, backwards, w.win), "MPI_Put", rank,
                     size);
        OK(MPI_Put(out, 2, MPI_LONG, target, 15, 1, backwards, w.win));
        OK(MPI_Put(out, 0, MPI_LONG, target, 16, 0, MPI_LONG, w.win));
        /* Far enough to come round through the end of the address space. */
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Put(out, 1, MPI_LONG, target, (MPI_Aint)1 << 61, 1, MPI_LONG, w.win),
                     "MPI_Put", rank);
        BAD_BY_FLUSH(
            &w, target, MPI_ERR_RMA_RANGE,
            MPI_Get_c(in, 1, MPI_LONG, target, ((MPI_Aint)1 << 60) + 5, 1, MPI_LONG, w.win),
            "MPI_Get", rank);
    } else {
        BAD_BY_FLUSH(
            &w, target, MPI_ERR_RMA_RANGE,
            MPI_Put(out, 4, MPI_LONG, target, place(&w, target, SIZE - 24), 4, MPI_LONG, w.win),
            "MPI_Put", rank, "32");
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Get(in, 1, MPI_LONG, target, MPI_Aint_add(place(&w, target, 0), -8), 1,
                             MPI_LONG, w.win),
                     "MPI_Get", rank);
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Accumulate(out, 1, MPI_LONG, target, 64, 1, MPI_LONG, MPI_SUM, w.win),
                     "MPI_Accumulate", rank, "0x40");
    }
    out[0] = 1000 + world_rank;
    OK(MPI_Put(out, 1, MPI_LONG, target, place(&w, target, 0), 1, MPI_LONG, w.win));
    OK(MPI_Win_unlock(target, w.win));
    SAME(handler_calls, 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, world_rank, 0, w.win));
    SAME(((long *)w.base)[0], 1000 + ring(-1));
    for (int i = 1; i < 13; i++)
        SAME(((long *)w.base)[i], 0);
    OK(MPI_Win_unlock(world_rank, w.win));
    OK(MPI_Type_free(&backwards));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
}

/* Operations and synchronization outside an epoch or in the wrong one. */
static void epochs(int flavor)
{
    Window w = make(flavor);
    long out = 1, in = 0;
    int target = ring(1), other = ring(2), flag = 0;
    const char *rank = number(target);
    MPI_Aint at = place(&w, target, 0);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Group all, next, nobody = MPI_GROUP_EMPTY;
    OK(MPI_Win_get_group(w.win, &all));
    OK(MPI_Group_incl(all, 1, &target, &next));

    /* No epoch at all. */
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Put(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win),
        "MPI_Put", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Get(&in, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win),
        "MPI_Get", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC,
        MPI_Accumulate(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, MPI_SUM, w.win),
        "MPI_Accumulate", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC,
        MPI_Get_accumulate(&out, 1, MPI_LONG, &in, 1, MPI_LONG, target, at, 1, MPI_LONG, MPI_SUM,
                           w.win),
        "MPI_Get_accumulate", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Fetch_and_op(&out, &in, MPI_LONG, target, at, MPI_SUM, w.win),
        "MPI_Fetch_and_op", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Compare_and_swap(&out, &in, &in, MPI_LONG, target, at, w.win),
        "MPI_Compare_and_swap", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC,
        MPI_Rput(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win, &request), "MPI_Rput", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_unlock(target, w.win), "MPI_Win_unlock", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_unlock_all(w.win), "MPI_Win_unlock_all");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_flush(target, w.win), "MPI_Win_flush");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_flush_all(w.win), "MPI_Win_flush_all");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_flush_local(target, w.win), "MPI_Win_flush_local");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_flush_local_all(w.win), "MPI_Win_flush_local_all");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_complete(w.win), "MPI_Win_complete");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_wait(w.win), "MPI_Win_wait");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_test(w.win, &flag), "MPI_Win_test");

    /* Within a lock. */
    OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win));
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win), "MPI_Win_lock",
        rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win), "MPI_Win_lock",
        rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, w.win), "MPI_Win_lock_all");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_unlock_all(w.win), "MPI_Win_unlock_all");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_fence(0, w.win), "MPI_Win_fence");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_start(next, 0, w.win), "MPI_Win_start");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_complete(w.win), "MPI_Win_complete");
    if (other != target) {
        BAD(w.win, MPI_ERR_RMA_SYNC,
            MPI_Put(&out, 1, MPI_LONG, other, place(&w, other, 0), 1, MPI_LONG, w.win), "MPI_Put",
            number(other));
        BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_unlock(other, w.win), "MPI_Win_unlock", number(other));
        BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_flush(other, w.win), "MPI_Win_flush", number(other));
    }
    MPI_Win kept = w.win;
    BAD(kept, MPI_ERR_RMA_SYNC, MPI_Win_free(&w.win), "MPI_Win_free");
    CHECK(w.win == kept, "a window that was not freed is %p", (void *)w.win);
    OK(MPI_Win_unlock(target, w.win));
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Put(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win),
        "MPI_Put", rank);

    /* Within lock_all. */
    OK(MPI_Win_lock_all(0, w.win));
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, w.win), "MPI_Win_lock_all");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win), "MPI_Win_lock");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_unlock(target, w.win), "MPI_Win_unlock", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_fence(0, w.win), "MPI_Win_fence");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_start(next, 0, w.win), "MPI_Win_start");
    OK(MPI_Win_unlock_all(w.win));

    /* Within fences; requests are for passive targets. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Put(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win));
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_flush(target, w.win), "MPI_Win_flush");
    BAD(w.win, MPI_ERR_RMA_SYNC,
        MPI_Rput(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win, &request), "MPI_Rput", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win), "MPI_Win_lock");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_complete(w.win), "MPI_Win_complete");
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Put(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win),
        "MPI_Put", rank);

    /* Within start and post. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_start(nobody, 0, w.win));
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_start(nobody, 0, w.win), "MPI_Win_start");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Put(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win),
        "MPI_Put", rank);
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, w.win), "MPI_Win_lock_all");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_fence(0, w.win), "MPI_Win_fence");
    OK(MPI_Win_complete(w.win));
    OK(MPI_Win_post(nobody, 0, w.win));
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_post(nobody, 0, w.win), "MPI_Win_post");
    OK(MPI_Win_wait(w.win));
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_wait(w.win), "MPI_Win_wait");
    OK(MPI_Group_free(&all));
    OK(MPI_Group_free(&next));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
}

/* Operations on a few bytes where the one before was right: the library must not be in such a hurry
 * that it forgets a check. */
static void short_ones(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, SIZE, 1, MPI_INFO_NULL);
    OK(MPI_Win_set_errhandler(w.win, noted));
    long out = 7, in = 0, zero = 0;
    int target = ring(1);
    const MPI_Aint end = place(&w, target, SIZE), most = (MPI_Aint)(~0ULL >> 1);
    OK(MPI_Win_lock_all(0, w.win));
    OK(MPI_Put(&out, 1, MPI_LONG, target, place(&w, target, 0), 1, MPI_LONG, w.win));
    OK(MPI_Win_flush(target, w.win));
    /* The last bytes, and one too far. */
    OK(MPI_Put(&out, 1, MPI_LONG, target, end - 8, 1, MPI_LONG, w.win));
    OK(MPI_Put(&zero, 1, MPI_SHORT, target, end - 2, 1, MPI_SHORT, w.win));
    OK(MPI_Win_flush(target, w.win));
    for (int past = 1; past <= 8; past++) {
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Put(&out, 1, MPI_LONG, target, end - 8 + past, 1, MPI_LONG, w.win),
                     "MPI_Put");
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Get(&in, 8, MPI_CHAR, target, end - 8 + past, 8, MPI_CHAR, w.win),
                     "MPI_Get");
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Fetch_and_op(&out, &in, MPI_LONG, target, end - 8 + past, MPI_SUM, w.win),
                     number(target));
        BAD_BY_FLUSH(
            &w, target, MPI_ERR_RMA_RANGE,
            MPI_Compare_and_swap(&out, &zero, &in, MPI_LONG, target, end - 8 + past, w.win),
            "MPI_Compare_and_swap");
    }
    if (flavor != DYNAMIC) {
        const MPI_Aint far[] = {-1, -8, most, most - 7, -most - 1};
        for (int i = 0; i < (int)(sizeof far / sizeof *far); i++)
            BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                         MPI_Put(&out, 1, MPI_LONG, target, far[i], 1, MPI_LONG, w.win), "MPI_Put");
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Put(&out, 1 << 29, MPI_LONG, target, 0, 1 << 29, MPI_LONG, w.win),
                     "MPI_Put");
    }
    /* Sides that differ. */
    OK(MPI_Put(&out, 1, MPI_LONG, target, place(&w, target, 8), 8, MPI_BYTE, w.win));
    BAD_BY_FLUSH(&w, target, MPI_ERR_TRUNCATE,
                 MPI_Put(&out, 1, MPI_LONG, target, place(&w, target, 8), 1, MPI_INT, w.win),
                 "MPI_Put");
    BAD_BY_FLUSH(&w, target, MPI_ERR_TRUNCATE,
                 MPI_Accumulate(&out, 2, MPI_INT, target, place(&w, target, 8), 1, MPI_INT, MPI_SUM,
                                w.win),
                 "MPI_Accumulate");
    /* No buffer, where one is read or written. */
    BAD(w.win, MPI_ERR_BUFFER,
        MPI_Put(NULL, 1, MPI_LONG, target, place(&w, target, 8), 1, MPI_LONG, w.win), "MPI_Put");
    BAD(w.win, MPI_ERR_BUFFER,
        MPI_Get(NULL, 1, MPI_LONG, target, place(&w, target, 8), 1, MPI_LONG, w.win), "MPI_Get");
    BAD(w.win, MPI_ERR_BUFFER,
        MPI_Fetch_and_op(NULL, &in, MPI_LONG, target, place(&w, target, 8), MPI_SUM, w.win),
        "MPI_Fetch_and_op");
    BAD(w.win, MPI_ERR_BUFFER,
        MPI_Fetch_and_op(&out, NULL, MPI_LONG, target, place(&w, target, 8), MPI_SUM, w.win),
        "MPI_Fetch_and_op");
    BAD(w.win, MPI_ERR_BUFFER,
        MPI_Compare_and_swap(&out, NULL, &in, MPI_LONG, target, place(&w, target, 8), w.win),
        "MPI_Compare_and_swap");
    OK(MPI_Fetch_and_op(NULL, &in, MPI_LONG, target, place(&w, target, 8), MPI_NO_OP, w.win));
    OK(MPI_Win_flush(target, w.win));
    SAME(in, out);
    /* Nobody, and nothing. */
    OK(MPI_Put(&out, 1, MPI_LONG, MPI_PROC_NULL, most, 1, MPI_LONG, w.win));
    OK(MPI_Fetch_and_op(&out, &in, MPI_LONG, MPI_PROC_NULL, -1, MPI_SUM, w.win));
    OK(MPI_Win_flush(MPI_PROC_NULL, w.win));
    OK(MPI_Put(NULL, 0, MPI_LONG, target, place(&w, target, 0), 0, MPI_LONG, w.win));
    /* An integer that lies askew. */
    for (int askew = 17; askew < 24; askew++) {
        long one = 1, two = 2;
        MPI_Aint at = place(&w, target, askew);
        OK(MPI_Put(&zero, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win));
        OK(MPI_Accumulate(&one, 1, MPI_LONG, target, at, 1, MPI_LONG, MPI_SUM, w.win));
        OK(MPI_Fetch_and_op(&two, &in, MPI_LONG, target, at, MPI_SUM, w.win));
        OK(MPI_Win_flush(target, w.win));
        SAME(in, 1);
        in = 3;
        OK(MPI_Compare_and_swap(&zero, &in, &two, MPI_LONG, target, at, w.win));
        OK(MPI_Win_flush(target, w.win));
        SAME(two, 3);
        OK(MPI_Get(&in, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win));
        OK(MPI_Win_flush(target, w.win));
        SAME(in, 0);
    }
    OK(MPI_Win_unlock_all(w.win));
    BAD(w.win, MPI_ERR_RMA_SYNC,
        MPI_Get(&in, 1, MPI_LONG, target, place(&w, target, 0), 1, MPI_LONG, w.win), "MPI_Get");
    BAD(w.win, MPI_ERR_RMA_SYNC, MPI_Win_flush(target, w.win), "MPI_Win_flush");
    OK(MPI_Barrier(MPI_COMM_WORLD));
    SAME(((long *)w.base)[0], out);
    SAME(((long *)w.base)[1], out);
    SAME(((long *)w.base)[LONGS - 1], out);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
}

/* Ranks, counts, types, operations, lock types, assertions and groups. */
static void arguments(int flavor)
{
    Window w = make(flavor);
    const MPI_Aint at = place(&w, 0, 0);
    long out = 1, in = 0;
    double real = 1;
    MPI_Datatype uncommitted, mixed;
    MPI_Group foreign;
    OK(MPI_Type_contiguous(2, MPI_LONG, &uncommitted));
    OK(MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8},
                              (MPI_Datatype[]){MPI_LONG, MPI_DOUBLE}, &mixed));
    OK(MPI_Type_commit(&mixed));
    BAD(w.win, MPI_ERR_LOCKTYPE, MPI_Win_lock(4711, 0, 0, w.win), "MPI_Win_lock", "4711");
    BAD(w.win, MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, world_size + 40, 0, w.win),
        "MPI_Win_lock", number(world_size + 40));
    BAD(w.win, MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, -9, 0, w.win), "MPI_Win_lock", "-9");
    BAD(w.win, MPI_ERR_ASSERT, MPI_Win_lock(MPI_LOCK_SHARED, 0, 3, w.win), "MPI_Win_lock", "3");
    BAD(w.win, MPI_ERR_ASSERT, MPI_Win_lock_all(5, w.win), "MPI_Win_lock_all", "5");
    BAD(w.win, MPI_ERR_ASSERT, MPI_Win_fence(7, w.win), "MPI_Win_fence", "7");
    BAD(w.win, MPI_ERR_ASSERT, MPI_Win_post(MPI_GROUP_EMPTY, 9, w.win), "MPI_Win_post", "9");
    BAD(w.win, MPI_ERR_ASSERT, MPI_Win_start(MPI_GROUP_EMPTY, 6, w.win), "MPI_Win_start", "6");
    BAD(w.win, MPI_ERR_GROUP, MPI_Win_post(MPI_GROUP_NULL, 0, w.win), "MPI_Win_post");
    BAD(w.win, MPI_ERR_GROUP, MPI_Win_start(MPI_GROUP_NULL, 0, w.win), "MPI_Win_start");
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
    BAD(w.win, MPI_ERR_RANK, MPI_Put(&out, 1, MPI_LONG, world_size, at, 1, MPI_LONG, w.win),
        "MPI_Put", number(world_size));
    BAD(w.win, MPI_ERR_RANK, MPI_Get(&in, 1, MPI_LONG, -8, at, 1, MPI_LONG, w.win), "MPI_Get",
        "-8");
    BAD(w.win, MPI_ERR_RANK, MPI_Win_flush(world_size + 1, w.win), "MPI_Win_flush",
        number(world_size + 1));
    BAD(w.win, MPI_ERR_COUNT, MPI_Put(&out, -3, MPI_LONG, 0, at, 1, MPI_LONG, w.win), "MPI_Put",
        "-3");
    BAD(w.win, MPI_ERR_COUNT, MPI_Put(&out, 1, MPI_LONG, 0, at, -4, MPI_LONG, w.win), "MPI_Put",
        "-4");
    if (flavor != DYNAMIC)
        BAD(w.win, MPI_ERR_RMA_RANGE, MPI_Put(&out, 1, MPI_LONG, 0, -6, 1, MPI_LONG, w.win),
            "MPI_Put", "-6");
    BAD(w.win, MPI_ERR_TYPE, MPI_Put(&out, 1, MPI_DATATYPE_NULL, 0, at, 1, MPI_LONG, w.win),
        "MPI_Put");
    BAD(w.win, MPI_ERR_TYPE, MPI_Put(&out, 1, MPI_LONG, 0, at, 1, uncommitted, w.win), "MPI_Put");
    BAD(w.win, MPI_ERR_OP,
        MPI_Accumulate(&out, 1, MPI_LONG, 0, at, 1, MPI_LONG, MPI_OP_NULL, w.win),
        "MPI_Accumulate");
    BAD(w.win, MPI_ERR_OP,
        MPI_Accumulate(&real, 1, MPI_DOUBLE, 0, at, 1, MPI_DOUBLE, MPI_BAND, w.win),
        "MPI_Accumulate");
    BAD(w.win, MPI_ERR_OP, MPI_Fetch_and_op(&out, &in, MPI_LONG, 0, at, MPI_MAXLOC, w.win),
        "MPI_Fetch_and_op");
    BAD(w.win, MPI_ERR_TYPE, MPI_Accumulate(&out, 1, mixed, 0, at, 1, mixed, MPI_SUM, w.win),
        "MPI_Accumulate");
    BAD(w.win, MPI_ERR_TYPE, MPI_Fetch_and_op(&out, &in, mixed, 0, at, MPI_SUM, w.win),
        "MPI_Fetch_and_op");
    BAD(w.win, MPI_ERR_TYPE, MPI_Compare_and_swap(&real, &real, &real, MPI_DOUBLE, 0, at, w.win),
        "MPI_Compare_and_swap");
    OK(MPI_Win_unlock(0, w.win));
    /* A group with a member that is not the window's. */
    if (world_size > 1) {
        MPI_Group all;
        Window self = window_make(ALLOCATED, MPI_COMM_SELF, 8, 1, MPI_INFO_NULL);
        OK(MPI_Win_set_errhandler(self.win, noted));
        OK(MPI_Win_get_group(w.win, &all));
        OK(MPI_Group_incl(all, 1, (int[]){ring(1)}, &foreign));
        BAD(self.win, MPI_ERR_GROUP, MPI_Win_post(foreign, 0, self.win), "MPI_Win_post");
        BAD(self.win, MPI_ERR_GROUP, MPI_Win_start(foreign, 0, self.win), "MPI_Win_start");
        OK(MPI_Group_free(&all));
        OK(MPI_Group_free(&foreign));
        window_free(&self);
    }
    OK(MPI_Type_free(&uncommitted));
    OK(MPI_Type_free(&mixed));
    window_free(&w);
}

/* An operation of the program's own is none for accumulates. */
static void plus(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)count, (void)type;
}

static void own_operation(int flavor)
{
    Window w = make(flavor);
    const MPI_Aint at = place(&w, 0, 0);
    long out = 1, in = 0;
    MPI_Op op;
    OK(MPI_Op_create(plus, 1, &op));
    OK(MPI_Win_fence(0, w.win));
    BAD(w.win, MPI_ERR_OP, MPI_Accumulate(&out, 1, MPI_LONG, 0, at, 1, MPI_LONG, op, w.win),
        "MPI_Accumulate");
    BAD(w.win, MPI_ERR_OP, MPI_Fetch_and_op(&out, &in, MPI_LONG, 0, at, op, w.win),
        "MPI_Fetch_and_op");
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Op_free(&op));
    window_free(&w);
}

/* Attach, detach and queries on windows that are not for them. */
static void flavors(void)
{
    Window fixed = make(CREATED), dynamic = make(DYNAMIC);
    long more[8];
    MPI_Aint size;
    int unit;
    void *base;
    BAD(fixed.win, MPI_ERR_RMA_FLAVOR, MPI_Win_attach(fixed.win, more, sizeof more),
        "MPI_Win_attach");
    BAD(fixed.win, MPI_ERR_RMA_FLAVOR, MPI_Win_detach(fixed.win, more), "MPI_Win_detach");
    BAD(dynamic.win, MPI_ERR_RMA_FLAVOR, MPI_Win_shared_query(dynamic.win, 0, &size, &unit, &base),
        "MPI_Win_shared_query");
    BAD(dynamic.win, MPI_ERR_RMA_ATTACH, MPI_Win_attach(dynamic.win, dynamic.base + 8, 16),
        "MPI_Win_attach", "16");
    BAD(dynamic.win, MPI_ERR_RMA_ATTACH, MPI_Win_attach(dynamic.win, dynamic.base, SIZE),
        "MPI_Win_attach");
    BAD(dynamic.win, MPI_ERR_SIZE, MPI_Win_attach(dynamic.win, more, -5), "MPI_Win_attach", "-5");
    CHECK(MPI_Win_detach(dynamic.win, more) != MPI_SUCCESS,
          "what was not attached could be detached");
    SAME(handler_calls, 1);
    handler_calls = 0;
    OK(MPI_Win_attach(dynamic.win, more, sizeof more));
    OK(MPI_Win_detach(dynamic.win, more));
    window_free(&dynamic);
    window_free(&fixed);
}

/* Errors while a window is made go to the communicator, those without a window to MPI_COMM_SELF. */
static void made_and_freed(void)
{
    MPI_Win win = MPI_WIN_NULL;
    long memory[4], out = 1;
    void *base;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    CLASS(MPI_Win_create(memory, -1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_SIZE);
    CLASS(MPI_Win_create(memory, 32, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_DISP);
    CLASS(MPI_Win_create(memory, 32, -8, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_DISP);
    CLASS(MPI_Win_create(NULL, 32, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_BASE);
    CLASS(MPI_Win_allocate(-2, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win), MPI_ERR_SIZE);
    CLASS(MPI_Win_allocate(8, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win), MPI_ERR_DISP);
    CLASS(MPI_Win_create(memory, 32, 1, MPI_INFO_NULL, MPI_COMM_NULL, &win), MPI_ERR_COMM);
    CHECK(win == MPI_WIN_NULL, "a call that failed gave a window");
    CLASS(MPI_Put(&out, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_WIN_NULL), MPI_ERR_WIN);
    CLASS(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);
    CLASS(MPI_Win_free(&win), MPI_ERR_WIN);
    Window w = window_make(ALLOCATED, MPI_COMM_WORLD, 32, 1, MPI_INFO_NULL);
    MPI_Win freed = w.win;
    window_free(&w);
    CLASS(MPI_Put(&out, 1, MPI_LONG, 0, 0, 1, MPI_LONG, freed), MPI_ERR_WIN);
    CLASS(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, freed), MPI_ERR_WIN);
    CLASS(MPI_Win_free(&freed), MPI_ERR_WIN);
    SAME(handler_calls, 0);
}

/* The same with counts of type MPI_Count. The bytes of a count may be more than 64 bits hold. What
 * the target finds wrong is told in a flush, by the name of the operation. */
static void large_counts(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, SIZE, 1, MPI_INFO_NULL);
    OK(MPI_Win_set_errhandler(w.win, noted));
    long out = 7, in = 0;
    int target = ring(1);
    const MPI_Aint at = place(&w, target, 8), end = place(&w, target, SIZE);
    const MPI_Count wraps = ((MPI_Count)1 << 61) + 1;
    OK(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < 3; i++) {
        OK(MPI_Put_c(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win));
        OK(MPI_Win_flush(target, w.win));
        OK(MPI_Accumulate_c(&out, 1, MPI_LONG, target, at, 1, MPI_LONG, MPI_SUM, w.win));
        OK(MPI_Win_flush(target, w.win));
        OK(MPI_Get_c(&in, 8, MPI_BYTE, target, at, 8, MPI_BYTE, w.win));
        OK(MPI_Win_flush(target, w.win));
        SAME(in, 14);
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Put_c(&out, 1, MPI_LONG, target, end - 7, 1, MPI_LONG, w.win),
                     "MPI_Put");
        BAD_BY_FLUSH(&w, target, MPI_ERR_RMA_RANGE,
                     MPI_Get_c(&in, 1, MPI_LONG, target, end - 7, 1, MPI_LONG, w.win),
                     "MPI_Get");
        BAD_BY_FLUSH(&w, target, MPI_ERR_VALUE_TOO_LARGE,
                     MPI_Put_c(&out, wraps, MPI_LONG, target, at, wraps, MPI_LONG, w.win),
                     "MPI_Put_c");
        BAD(w.win, MPI_ERR_COUNT, MPI_Get_c(&in, -1, MPI_LONG, target, at, -1, MPI_LONG, w.win),
            "MPI_Get_c");
        BAD(w.win, MPI_ERR_BUFFER, MPI_Put_c(NULL, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win),
            "MPI_Put_c");
    }
    OK(MPI_Win_unlock_all(w.win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    OK(MPI_Win_create_errhandler(note, &noted));
    for (int flavor = 0; flavor < FLAVORS; flavor++) {
        if (!has_flavor(flavor))
            continue;
        ranges(flavor);
        epochs(flavor);
        short_ones(flavor);
        large_counts(flavor);
        arguments(flavor);
        own_operation(flavor);
    }
    flavors();
    made_and_freed();
    OK(MPI_Errhandler_free(&noted));
    return check_end();
}

/* Accumulates: each predefined operation on each predefined type, many origins at once, and the
 * order of those from one origin (MPI 5.0 sections 12.3.4 and 12.7.1). */
#include "windows.h"

enum { COUNT = 3, ROOM = 32 * COUNT, TURNS = 100 };

/* An operation on this rank's own slot at its neighbour: each result is known. */
static void one_after_another(const Window *w, const Element *e, const Operation *o)
{
    int target = ring(1), slot = ROOM * (1 + world_rank);
    char start[ROOM], value[ROOM], result[ROOM], expected[ROOM], none[ROOM];
    for (int i = 0; i < COUNT; i++) {
        element_store(e, start + i * e->size, 3 + i, 1);
        element_store(e, value + i * e->size, i == 1 ? 0 : 2 + i % 2, 2);
        element_store(e, none + i * e->size, 9, 9);
    }
    OK(MPI_Put(start, COUNT, e->type, target, place(w, target, slot), COUNT, e->type, w->win));
    OK(MPI_Win_flush(target, w->win));
    memcpy(expected, start, sizeof start);
    /* MPI_Get_accumulate */
    memcpy(result, none, sizeof none);
    OK(MPI_Get_accumulate(value, COUNT, e->type, result, COUNT, e->type, target,
                          place(w, target, slot), COUNT, e->type, o->op, w->win));
    OK(MPI_Win_flush(target, w->win));
    CHECK(elements_same(e, result, expected, COUNT), "MPI_Get_accumulate of %s on %s got another",
          o->name, e->name);
    accumulate_here(value, expected, COUNT, e, o->op);
    /* MPI_Accumulate; MPI_NO_OP is not for it */
    if (o->op != MPI_NO_OP) {
        OK(MPI_Accumulate(value, COUNT, e->type, target, place(w, target, slot), COUNT, e->type,
                          o->op, w->win));
        accumulate_here(value, expected, COUNT, e, o->op);
    }
    /* MPI_Fetch_and_op, on the last element */
    int last = (COUNT - 1) * e->size;
    memcpy(result, none, sizeof none);
    OK(MPI_Fetch_and_op(value + last, result, e->type, target, place(w, target, slot + last), o->op,
                        w->win));
    OK(MPI_Win_flush(target, w->win));
    CHECK(element_same(e, result, expected + last), "MPI_Fetch_and_op of %s on %s got another",
          o->name, e->name);
    accumulate_here(value + last, expected + last, 1, e, o->op);
    /* No origin's buffer for MPI_NO_OP. */
    OK(MPI_Get_accumulate(NULL, COUNT, MPI_DATATYPE_NULL, result, COUNT, e->type, target,
                          place(w, target, slot), COUNT, e->type, MPI_NO_OP, w->win));
    OK(MPI_Win_flush(target, w->win));
    CHECK(elements_same(e, result, expected, COUNT), "%s on %s left something else", o->name,
          e->name);
}

/* What a rank gives to the operation of all: floating-point products stay exact. */
static void given(const Element *e, void *at, int rank, int i)
{
    if (e->use == COMPLEX)
        element_store(e, at, (rank + i) % 3 ? 2 : 0, (rank + i) % 3 ? 0 : 1);
    else
        element_store(e, at, 1 + (rank + i) % 2, rank);
}

/* The same operation of all ranks on the same elements of rank 0. */
static void all_at_once(const Window *w, const Element *e, const Operation *o)
{
    char value[ROOM], expected[ROOM], result[ROOM];
    for (int i = 0; i < COUNT; i++) {
        element_store(e, expected + i * e->size, 3 + i, 50);
        given(e, value + i * e->size, world_rank, i);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0) {
        OK(MPI_Put(expected, COUNT, e->type, 0, place(w, 0, 0), COUNT, e->type, w->win));
        OK(MPI_Win_flush(0, w->win));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Accumulate(value, COUNT, e->type, 0, place(w, 0, 0), COUNT, e->type, o->op, w->win));
    OK(MPI_Win_flush(0, w->win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Get(result, COUNT, e->type, 0, place(w, 0, 0), COUNT, e->type, w->win));
    OK(MPI_Win_flush(0, w->win));
    for (int rank = 0; rank < world_size; rank++) {
        for (int i = 0; i < COUNT; i++)
            given(e, value + i * e->size, rank, i);
        accumulate_here(value, expected, COUNT, e, o->op);
    }
    CHECK(elements_same(e, result, expected, COUNT), "%s of all ranks on %s is wrong", o->name,
          e->name);
}

static void swaps(const Window *w, const Element *e)
{
    int target = ring(1), slot = ROOM * (1 + world_rank);
    char value[3][32], result[32];
    for (int i = 0; i < 3; i++)
        element_store(e, value[i], e->use == LOGICAL ? i == 1 : 5 + i, 0);
    OK(MPI_Put(value[0], 1, e->type, target, place(w, target, slot), 1, e->type, w->win));
    OK(MPI_Win_flush(target, w->win));
    OK(MPI_Compare_and_swap(value[1], value[0], result, e->type, target, place(w, target, slot),
                            w->win));
    OK(MPI_Win_flush(target, w->win));
    CHECK(element_same(e, result, value[0]), "the first swap of %s got another", e->name);
    OK(MPI_Compare_and_swap(value[2], value[0], result, e->type, target, place(w, target, slot),
                            w->win));
    OK(MPI_Win_flush(target, w->win));
    CHECK(element_same(e, result, value[1]), "the second swap of %s got another", e->name);
    OK(MPI_Get(result, 1, e->type, target, place(w, target, slot), 1, e->type, w->win));
    OK(MPI_Win_flush(target, w->win));
    CHECK(element_same(e, result, value[1]), "a swap of %s that should not be was made", e->name);
}

static void every_type(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, ROOM * (1 + world_size), 1, MPI_INFO_NULL);
    OK(MPI_Win_lock_all(0, w.win));
    for (int t = 0; t < element_count; t++) {
        const Element *e = &elements[t];
        int size = -1;
        MPI_Aint lb = -1, extent = -1;
        OK(MPI_Type_size(e->type, &size));
        OK(MPI_Type_get_extent(e->type, &lb, &extent));
        if (size == 0)
            continue; /* a Fortran type of an MPI without Fortran */
        SAME(extent, e->size);
        for (int k = 0; k < OPERATIONS; k++) {
            const Operation *o = &operations[k];
            if (!(o->uses >> e->use & 1))
                continue;
            one_after_another(&w, e, o);
            if (o->op != MPI_REPLACE && o->op != MPI_NO_OP)
                all_at_once(&w, e, o);
        }
        if (e->use == INTEGER || e->use == COUNTS || e->use == LOGICAL || e->use == BITWISE)
            swaps(&w, e);
    }
    OK(MPI_Win_unlock_all(w.win));
    window_free(&w);
}

/* One counter that all ranks raise: each value is given once. */
static void counter(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 16, 8, MPI_INFO_NULL);
    int64_t one = 1, last = -1, sum = 0, total = 0, n = (int64_t)TURNS * world_size;
    OK(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < TURNS; i++) {
        int64_t got = -1;
        if (i % 2)
            OK(MPI_Fetch_and_op(&one, &got, MPI_INT64_T, 0, place(&w, 0, 0), MPI_SUM, w.win));
        else
            OK(MPI_Get_accumulate(&one, 1, MPI_INT64_T, &got, 1, MPI_INT64_T, 0, place(&w, 0, 0), 1,
                                  MPI_INT64_T, MPI_SUM, w.win));
        OK(MPI_Win_flush(0, w.win));
        CHECK(got > last && got < n, "the counter gave %lld after %lld", (long long)got,
              (long long)last);
        last = got;
        sum += got;
    }
    OK(MPI_Allreduce(&sum, &total, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    SAME(total, n * (n - 1) / 2);
    /* The same by swaps, which may have to be tried again, and by sums without a result. */
    for (int i = 0; i < TURNS / 4; i++) {
        int32_t old, next, is = 0;
        do {
            old = is;
            next = old + 1;
            OK(MPI_Compare_and_swap(&next, &old, &is, MPI_INT32_T, 0, place(&w, 0, 8), w.win));
            OK(MPI_Win_flush(0, w.win));
        } while (is != old);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0) {
        int32_t is = -1;
        OK(MPI_Fetch_and_op(NULL, &is, MPI_INT32_T, 0, place(&w, 0, 8), MPI_NO_OP, w.win));
        OK(MPI_Win_flush(0, w.win));
        SAME(is, TURNS / 4 * world_size);
    }
    OK(MPI_Win_unlock_all(w.win));
    window_free(&w);
}

/* Sums of long vectors from all origins at once, in shared locks and in fences. */
static void vectors(int flavor)
{
    enum { LONG = 20000 };
    Window w = window_make(flavor, MPI_COMM_WORLD, 2 * LONG * 8, 8, MPI_INFO_NULL);
    double *values = malloc(LONG * sizeof *values);
    for (int i = 0; i < LONG; i++)
        values[i] = i % 100 + world_rank;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < 4; i++) {
        int from = i * 1000, count = LONG - from;
        OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
        OK(MPI_Accumulate(values + from, count, MPI_DOUBLE, 0, place(&w, 0, 8 * from), count,
                          MPI_DOUBLE, MPI_SUM, w.win));
        OK(MPI_Win_unlock(0, w.win));
    }
    OK(MPI_Win_fence(0, w.win));
    for (int i = 0; i < 4; i++)
        OK(MPI_Accumulate(values, LONG, MPI_DOUBLE, 0, place(&w, 0, 8 * LONG), LONG, MPI_DOUBLE,
                          MPI_MAX, w.win));
    OK(MPI_Win_fence(0, w.win));
    if (world_rank == 0) {
        double *sums = (double *)w.base;
        int wrong = 0;
        for (int i = 0; i < LONG; i++) {
            int times = i < 3000 ? i / 1000 + 1 : 4;
            double all = (i % 100) * world_size + world_size * (world_size - 1) / 2.0;
            wrong += sums[i] != times * all;
            wrong += sums[LONG + i] != i % 100 + world_size - 1;
        }
        SAME(wrong, 0);
    }
    OK(MPI_Win_fence(0, w.win));
    window_free(&w);
    free(values);
}

/* An element is replaced and read as a whole, although it is no number of the CPU's. */
static void whole_elements(int flavor)
{
    const Element *wide[4];
    int n = 0;
    for (int t = 0; t < element_count; t++)
        if (elements[t].type == MPI_2INT || elements[t].type == MPI_DOUBLE_INT ||
            elements[t].type == MPI_C_DOUBLE_COMPLEX || elements[t].type == MPI_LONG_DOUBLE_INT)
            wide[n++] = &elements[t];
    SAME(n, 4);
    Window w = window_make(flavor, MPI_COMM_WORLD, 4 * 32, 1, MPI_INFO_NULL);
    OK(MPI_Win_lock_all(0, w.win));
    int torn = 0;
    for (int i = 0; i < TURNS; i++)
        for (int k = 0; k < 4; k++) {
            const Element *e = wide[k];
            char value[32], result[32], same[32];
            int number = 1 + (world_rank * TURNS + i) % 1000;
            element_store(e, value, number, number);
            memset(result, 0, sizeof result);
            OK(MPI_Fetch_and_op(value, result, e->type, 0, place(&w, 0, 32 * k),
                                (i + world_rank) % 2 ? MPI_REPLACE : MPI_NO_OP, w.win));
            OK(MPI_Win_flush(0, w.win));
            for (number = 0; number <= 1000; number++) {
                element_store(e, same, number, number);
                if (element_same(e, same, result))
                    break;
            }
            torn += number > 1000;
        }
    SAME(torn, 0);
    OK(MPI_Win_unlock_all(w.win));
    window_free(&w);
}

/* Accumulates of one origin to one place happen in program order, without a flush between them. */
static void in_order(int flavor)
{
    enum { STEPS = 200, SLOTS = 4 };
    Window w =
        window_make(flavor, MPI_COMM_WORLD, (MPI_Aint)8 * SLOTS * world_size, 8, MPI_INFO_NULL);
    static int64_t values[STEPS][SLOTS], results[STEPS][SLOTS], expected[STEPS][SLOTS];
    static const Element e = {"MPI_INT64_T", MPI_INT64_T, INTEGER, 8, 'i', 0, 8, 0, 0};
    const MPI_Op ops[] = {MPI_SUM, MPI_REPLACE, MPI_PROD, MPI_BXOR, MPI_MIN, MPI_MAX, MPI_NO_OP};
    Random random = random_from(900 + (uint64_t)world_rank);
    int64_t model[SLOTS] = {0};
    int target = ring(1), counts[STEPS], kinds[STEPS];
    OK(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < STEPS; i++) {
        int first = random_below(&random, SLOTS), count = 1 + random_below(&random, SLOTS - first);
        MPI_Op op = ops[random_below(&random, 7)];
        int kind = random_below(&random, 4);
        MPI_Aint at = place(&w, target, 8 * (SLOTS * world_rank + first));
        for (int k = 0; k < count; k++)
            values[i][k] = random_below(&random, 50) - 25;
        if (kind == 0 || kind == 3)
            count = 1;
        memcpy(expected[i], model + first, (size_t)count * 8);
        if (kind == 0) {
            OK(MPI_Fetch_and_op(values[i], results[i], MPI_INT64_T, target, at, op, w.win));
        } else if (kind == 1 && op != MPI_NO_OP) {
            OK(MPI_Accumulate(values[i], count, MPI_INT64_T, target, at, count, MPI_INT64_T, op,
                              w.win));
            memcpy(results[i], expected[i], (size_t)count * 8);
        } else if (kind == 3) {
            int64_t *compared = &values[i][1]; /* half of the swaps are made */
            *compared = model[first] + i % 2;
            OK(MPI_Compare_and_swap(values[i], compared, results[i], MPI_INT64_T, target, at,
                                    w.win));
            op = i % 2 ? MPI_NO_OP : MPI_REPLACE;
        } else {
            OK(MPI_Get_accumulate(values[i], count, MPI_INT64_T, results[i], count, MPI_INT64_T,
                                  target, at, count, MPI_INT64_T, op, w.win));
        }
        accumulate_here(values[i], model + first, count, &e, op);
        counts[i] = count;
        kinds[i] = kind;
    }
    OK(MPI_Win_flush(target, w.win));
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < counts[i]; k++)
            if (results[i][k] != expected[i][k]) {
                FAIL("step %d (kind %d): element %d is %lld, should be %lld", i, kinds[i], k,
                     (long long)results[i][k], (long long)expected[i][k]);
                i = STEPS;
                break;
            }
    int64_t last[SLOTS];
    OK(MPI_Get(last, SLOTS, MPI_INT64_T, target, place(&w, target, 8 * SLOTS * world_rank), SLOTS,
               MPI_INT64_T, w.win));
    OK(MPI_Win_flush(target, w.win));
    SAME(memcmp(last, model, sizeof last), 0);
    OK(MPI_Win_unlock_all(w.win));
    window_free(&w);
}

/* Keeps the processor for so many seconds. */
static void compute(double seconds)
{
    for (double end = MPI_Wtime() + seconds; MPI_Wtime() < end;)
        ;
}

/* All ranks update rank 0's memory in two windows, while it waits in MPI, computes, and updates the
 * same elements itself: a target that polls may do what others want. */
static void busy_and_polling_target(int flavor)
{
    enum { ROUNDS = 30, UPDATES = 20 };
    Window w[2];
    for (int k = 0; k < 2; k++) {
        w[k] = window_make(flavor, MPI_COMM_WORLD, 32, 1, MPI_INFO_NULL);
        OK(MPI_Win_lock_all(0, w[k].win));
    }
    int64_t one = 1, last[2] = {-1, -1};
    int16_t three = 3;
    for (int round = 0; round < ROUNDS; round++) {
        if (world_rank == 0) {
            const Window *own = &w[round % 2];
            if (round % 3 == 1)
                compute(100e-6);
            OK(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, place(own, 0, 0), 1, MPI_INT64_T, MPI_SUM,
                              own->win));
            for (int from = 1; from < world_size; from++)
                OK(MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, round, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
            continue;
        }
        if (round % 5 == 1)
            compute(300e-6); /* rank 0 has gone to sleep */
        for (int i = 0; i < UPDATES; i++) {
            int k = (i + world_rank) % 2;
            int64_t got = -1;
            int32_t old, next, is = 0;
            OK(MPI_Fetch_and_op(&one, &got, MPI_INT64_T, 0, place(&w[k], 0, 0), MPI_SUM, w[k].win));
            /* Not aligned. */
            OK(MPI_Accumulate(&three, 1, MPI_INT16_T, 0, place(&w[k], 0, 13), 1, MPI_INT16_T,
                              MPI_SUM, w[k].win));
            OK(MPI_Win_flush(0, w[k].win));
            CHECK(got > last[k], "the counter gave %lld after %lld", (long long)got,
                  (long long)last[k]);
            last[k] = got;
            do {
                old = is;
                next = old + 1;
                OK(MPI_Compare_and_swap(&next, &old, &is, MPI_INT32_T, 0, place(&w[k], 0, 20),
                                        w[k].win));
                OK(MPI_Win_flush(0, w[k].win));
            } while (is != old);
        }
        OK(MPI_Send(NULL, 0, MPI_BYTE, 0, round, MPI_COMM_WORLD));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int k = 0; k < 2; k++) {
        int64_t sum = -1, all = (int64_t)ROUNDS * UPDATES / 2 * (world_size - 1);
        int32_t swaps = -1;
        int16_t threes = -1;
        OK(MPI_Fetch_and_op(NULL, &sum, MPI_INT64_T, 0, place(&w[k], 0, 0), MPI_NO_OP, w[k].win));
        OK(MPI_Fetch_and_op(NULL, &threes, MPI_INT16_T, 0, place(&w[k], 0, 13), MPI_NO_OP,
                            w[k].win));
        OK(MPI_Fetch_and_op(NULL, &swaps, MPI_INT32_T, 0, place(&w[k], 0, 20), MPI_NO_OP,
                            w[k].win));
        OK(MPI_Win_flush(0, w[k].win));
        SAME(sum, all + ROUNDS / 2);
        SAME(threes, (int16_t)(3 * all));
        SAME(swaps, all);
        OK(MPI_Win_unlock_all(w[k].win));
        window_free(&w[k]);
    }
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    elements_make();
    operations_make();
    for (int flavor = 0; flavor < FLAVORS; flavor++) {
        if (!has_flavor(flavor))
            continue;
        every_type(flavor);
        counter(flavor);
        vectors(flavor);
        whole_elements(flavor);
        in_order(flavor);
        busy_and_polling_target(flavor);
    }
    return check_end();
}

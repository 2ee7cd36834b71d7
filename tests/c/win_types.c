/* Derived datatypes on both sides of one-sided operations (MPI 5.0 section 12.3): what moves is
 * what MPI_Pack and MPI_Unpack would move. */
#include "windows.h"

enum { TYPES = 12, BYTES = 4096, MIDDLE = 1536 };

/* Types of whole signatures of `ints` ints, all within MIDDLE bytes to both sides of where they are
 * placed. */
static MPI_Datatype types[TYPES], record;
static const char *const type_names[TYPES] = {
    "ints",           "vector",    "indexed blocks", "indexed",    "columns of a matrix",
    "backwards",      "resized",   "negative bound", "a subarray", "a struct of ints",
    "nested vectors", "contiguous"};
enum { INTS = 12 };

typedef struct {
    char c;
    double d;
    short s[3];
    int i;
} Record;

static void types_make(void)
{
    MPI_Datatype inner, other;
    OK(MPI_Type_contiguous(INTS, MPI_INT, &types[0]));
    OK(MPI_Type_vector(4, 3, 7, MPI_INT, &types[1]));
    OK(MPI_Type_create_indexed_block(6, 2, (int[]){3, 10, 0, 20, 31, 6}, MPI_INT, &types[2]));
    OK(MPI_Type_indexed(4, (int[]){1, 5, 0, 6}, (int[]){40, 3, 2, 20}, MPI_INT, &types[3]));
    OK(MPI_Type_vector(3, 1, 13, MPI_INT, &inner));
    OK(MPI_Type_create_resized(inner, 0, sizeof(int), &other));
    OK(MPI_Type_contiguous(4, other, &types[4]));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_free(&other));
    OK(MPI_Type_create_hvector(INTS, 1, -12, MPI_INT, &types[5]));
    OK(MPI_Type_contiguous(INTS, MPI_INT, &inner));
    OK(MPI_Type_create_resized(inner, 0, 200, &types[6]));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_vector(6, 2, 4, MPI_INT, &inner));
    OK(MPI_Type_create_resized(inner, -64, 240, &types[7]));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_create_subarray(2, (int[]){8, 10}, (int[]){3, 4}, (int[]){2, 5}, MPI_ORDER_C,
                                MPI_INT, &types[8]));
    OK(MPI_Type_create_struct(3, (int[]){2, 4, 6}, (MPI_Aint[]){100, -40, 8},
                              (MPI_Datatype[]){MPI_INT, MPI_INT, MPI_INT}, &types[9]));
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &inner));
    OK(MPI_Type_vector(2, 1, 3, inner, &other));
    OK(MPI_Type_create_hvector(3, 1, 100, other, &types[10]));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_free(&other));
    OK(MPI_Type_vector(3, 4, 4, MPI_INT, &types[11]));
    for (int i = 0; i < TYPES; i++) {
        int size = -1;
        OK(MPI_Type_commit(&types[i]));
        OK(MPI_Type_size(types[i], &size));
        SAME(size, INTS * sizeof(int));
    }
    OK(MPI_Type_create_struct(4, (int[]){1, 1, 3, 1},
                              (MPI_Aint[]){offsetof(Record, c), offsetof(Record, d),
                                           offsetof(Record, s), offsetof(Record, i)},
                              (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT}, &inner));
    OK(MPI_Type_create_resized(inner, 0, sizeof(Record), &record));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_commit(&record));
}

static void types_free(void)
{
    for (int i = 0; i < TYPES; i++)
        OK(MPI_Type_free(&types[i]));
    OK(MPI_Type_free(&record));
}

/* Moves data from one typed buffer to another as an operation should. */
static void move_here(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                      MPI_Datatype to_type)
{
    static char packed[1 << 20];
    int at = 0, bytes = 0;
    OK(MPI_Pack(from, count, type, packed, sizeof packed, &at, MPI_COMM_SELF));
    OK(MPI_Unpack(packed, at, &bytes, to, to_count, to_type, MPI_COMM_SELF));
}

/* Each type at the origin with each at the target, by put, get, accumulate and get_accumulate. */
static void pairs(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, BYTES, 1, MPI_INFO_NULL);
    unsigned char *out = malloc(BYTES), *in = malloc(BYTES), *expected = malloc(BYTES),
                  *model = malloc(BYTES), *there = malloc(BYTES);
    int target = ring(1);
    for (int a = 0; a < TYPES; a++)
        for (int b = 0; b < TYPES; b++) {
            uint64_t key = (uint64_t)(a * TYPES + b) * 64;
            int count = 1 + (a + b) % 3;
            MPI_Aint middle = place(&w, target, MIDDLE);
            fill(out, BYTES, key + (uint64_t)world_rank);
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world_rank, 0, w.win));
            fill(w.base, BYTES, key + 1000 + (uint64_t)world_rank);
            OK(MPI_Win_unlock(world_rank, w.win));
            fill(model, BYTES, key + 1000 + (uint64_t)target);
            OK(MPI_Barrier(MPI_COMM_WORLD));
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win));
            OK(MPI_Put(out + MIDDLE, count, types[a], target, middle, count, types[b], w.win));
            OK(MPI_Win_flush(target, w.win));
            move_here(out + MIDDLE, count, types[a], model + MIDDLE, count, types[b]);
            OK(MPI_Get(there, BYTES, MPI_BYTE, target, place(&w, target, 0), BYTES, MPI_BYTE,
                       w.win));
            OK(MPI_Win_flush(target, w.win));
            CHECK(memcmp(there, model, BYTES) == 0, "a put of %d [%s] to [%s] is wrong", count,
                  type_names[a], type_names[b]);
            /* back, in the other types */
            memset(in, 7, BYTES);
            memset(expected, 7, BYTES);
            OK(MPI_Get(in + MIDDLE, count, types[b], target, middle, count, types[a], w.win));
            OK(MPI_Win_flush(target, w.win));
            move_here(model + MIDDLE, count, types[a], expected + MIDDLE, count, types[b]);
            CHECK(memcmp(in, expected, BYTES) == 0, "a get of %d [%s] to [%s] is wrong", count,
                  type_names[a], type_names[b]);
            /* sums, and what was there before them */
            int *before = calloc((size_t)(count * INTS), sizeof(int)),
                *added = calloc((size_t)(count * INTS), sizeof(int));
            move_here(model + MIDDLE, count, types[b], before, count * INTS, MPI_INT);
            move_here(out + MIDDLE, count, types[a], added, count * INTS, MPI_INT);
            memset(in, 7, BYTES);
            memset(expected, 7, BYTES);
            move_here(before, count * INTS, MPI_INT, expected + MIDDLE, count, types[a]);
            OK(MPI_Get_accumulate(out + MIDDLE, count, types[a], in + MIDDLE, count, types[a],
                                  target, middle, count, types[b], MPI_SUM, w.win));
            OK(MPI_Accumulate(out + MIDDLE, count, types[a], target, middle, count, types[b],
                              MPI_BXOR, w.win));
            OK(MPI_Win_flush(target, w.win));
            CHECK(memcmp(in, expected, BYTES) == 0,
                  "a get_accumulate of %d [%s] at [%s] got another", count, type_names[a],
                  type_names[b]);
            for (int i = 0; i < count * INTS; i++)
                before[i] = (int)((unsigned)before[i] + (unsigned)added[i]) ^ added[i];
            move_here(before, count * INTS, MPI_INT, model + MIDDLE, count, types[b]);
            OK(MPI_Get(there, BYTES, MPI_BYTE, target, place(&w, target, 0), BYTES, MPI_BYTE,
                       w.win));
            OK(MPI_Win_unlock(target, w.win));
            CHECK(memcmp(there, model, BYTES) == 0, "accumulates of %d [%s] to [%s] are wrong",
                  count, type_names[a], type_names[b]);
            free(before), free(added);
            OK(MPI_Barrier(MPI_COMM_WORLD));
        }
    window_free(&w);
    free(out), free(in), free(expected), free(model), free(there);
}

/* Structs of several types; what lies in their gaps stays. Types that were freed in between. */
static void structs(int flavor)
{
    enum { N = 10 };
    Window w = window_make(flavor, MPI_COMM_WORLD, N * sizeof(Record), 1, MPI_INFO_NULL);
    Record out[N], in[N], model[N];
    int target = ring(1);
    MPI_Datatype copy;
    memset(w.base, 0x55, N * sizeof(Record));
    memset(model, 0x55, sizeof model);
    memset(in, 0, sizeof in);
    OK(MPI_Win_fence(0, w.win));
    fill(out, sizeof out, 9 + (uint64_t)world_rank);
    OK(MPI_Type_dup(record, &copy));
    OK(MPI_Put(out, N, copy, target, place(&w, target, 0), N, record, w.win));
    OK(MPI_Type_free(&copy)); /* the operation keeps the type */
    OK(MPI_Win_fence(0, w.win));
    fill(in, sizeof in, 9 + (uint64_t)ring(-1));
    move_here(in, N, record, model, N, record);
    SAME(memcmp(w.base, model, sizeof model), 0);
    memset(in, 0, sizeof in);
    OK(MPI_Type_dup(record, &copy));
    OK(MPI_Get(in + 2, N - 2, record, target, place(&w, target, 0), N - 2, copy, w.win));
    OK(MPI_Type_free(&copy));
    OK(MPI_Win_fence(0, w.win));
    for (int i = 2; i < N; i++) {
        SAME(in[i].c, out[i - 2].c);
        SAME(memcmp(&in[i].d, &out[i - 2].d, 8), 0);
        SAME(memcmp(in[i].s, out[i - 2].s, 6), 0);
        SAME(in[i].i, out[i - 2].i);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    window_free(&w);
}

/* Accumulates of many elements in strided places, from everybody at once. */
static void strided_sums(int flavor)
{
    enum { ROWS = 500, COLUMNS = 40 };
    Window w = window_make(flavor, MPI_COMM_WORLD, ROWS * COLUMNS * 8, 8, MPI_INFO_NULL);
    MPI_Datatype column;
    OK(MPI_Type_vector(ROWS, 1, COLUMNS, MPI_DOUBLE, &column));
    OK(MPI_Type_commit(&column));
    double *values = malloc(ROWS * sizeof *values), *got = malloc(ROWS * sizeof *got);
    for (int i = 0; i < ROWS; i++)
        values[i] = i + world_rank;
    OK(MPI_Win_fence(0, w.win));
    for (int c = 0; c < COLUMNS; c += 3)
        OK(MPI_Accumulate(values, ROWS, MPI_DOUBLE, 0, place(&w, 0, 8 * c), 1, column, MPI_SUM,
                          w.win));
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Get(got, ROWS, MPI_DOUBLE, 0, place(&w, 0, 8 * 3), 1, column, w.win));
    OK(MPI_Win_fence(0, w.win));
    double ranks = world_size * (world_size - 1) / 2.0;
    int wrong = 0;
    for (int i = 0; i < ROWS; i++)
        wrong += got[i] != (double)i * world_size + ranks;
    if (world_rank == 0)
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            double should = i % COLUMNS % 3 ? 0 : (double)(i / COLUMNS) * world_size + ranks;
            wrong += ((double *)w.base)[i] != should;
        }
    SAME(wrong, 0);
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Type_free(&column));
    window_free(&w);
    free(values), free(got);
}

/* The forms with large counts, counts of zero, and types of no bytes. */
static void forms(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
    int out[8], in[8], got[8], target = ring(1), *mine = (int *)w.base;
    MPI_Datatype nothing;
    for (int i = 0; i < 8; i++)
        out[i] = i + 1, in[i] = got[i] = -1;
    OK(MPI_Type_contiguous(0, MPI_INT, &nothing));
    OK(MPI_Type_commit(&nothing));
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Put_c(out, 8, MPI_INT, target, place(&w, target, 0), 8, MPI_INT, w.win));
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Accumulate_c(out, 4, MPI_INT, target, place(&w, target, 0), 4, MPI_INT, MPI_PROD,
                        w.win));
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Get_accumulate_c(out, 8, MPI_INT, got, 8, MPI_INT, target, place(&w, target, 0), 8,
                            MPI_INT, MPI_SUM, w.win));
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Get_c(in, 8, MPI_INT, target, place(&w, target, 0), 8, MPI_INT, w.win));
    OK(MPI_Win_fence(0, w.win));
    for (int i = 0; i < 8; i++) {
        int product = i < 4 ? (i + 1) * (i + 1) : i + 1;
        SAME(got[i], product);
        SAME(in[i], product + i + 1);
        SAME(mine[i], product + i + 1);
    }
    OK(MPI_Put(out, 0, MPI_INT, target, place(&w, target, 0), 0, MPI_INT, w.win));
    OK(MPI_Put(NULL, 0, MPI_INT, target, place(&w, target, 64), 0, MPI_INT, w.win));
    OK(MPI_Get(in, 0, MPI_INT, target, place(&w, target, 0), 0, MPI_INT, w.win));
    OK(MPI_Put(out, 3, nothing, target, place(&w, target, 0), 3, nothing, w.win));
    OK(MPI_Get(in, 3, nothing, target, place(&w, target, 0), 3, nothing, w.win));
    OK(MPI_Accumulate(out, 0, MPI_INT, target, place(&w, target, 0), 0, MPI_INT, MPI_SUM, w.win));
    OK(MPI_Get_accumulate(out, 0, MPI_INT, got, 0, MPI_INT, target, place(&w, target, 0), 0,
                          MPI_INT, MPI_SUM, w.win));
    OK(MPI_Win_fence(0, w.win));
    for (int i = 0; i < 8; i++)
        SAME(mine[i], (i < 4 ? (i + 1) * (i + 1) : i + 1) + i + 1);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Type_free(&nothing));
    window_free(&w);
}

/* A datatype of absolute addresses at the origin, from MPI_BOTTOM. */
static void from_bottom(int flavor)
{
    Window w = window_make(flavor, MPI_COMM_WORLD, 32, 1, MPI_INFO_NULL);
    int a[3] = {1 + world_rank, 2, 3}, b[2] = {4, 5 + world_rank}, got[5] = {0};
    MPI_Aint at[2];
    MPI_Datatype both;
    OK(MPI_Get_address(a, &at[0]));
    OK(MPI_Get_address(b, &at[1]));
    OK(MPI_Type_create_hindexed(2, (int[]){3, 2}, at, MPI_INT, &both));
    OK(MPI_Type_commit(&both));
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Put(MPI_BOTTOM, 1, both, ring(1), place(&w, ring(1), 4), 5, MPI_INT, w.win));
    OK(MPI_Win_fence(0, w.win));
    memcpy(got, w.base + 4, sizeof got);
    SAME(got[0], 1 + ring(-1));
    SAME(got[4], 5 + ring(-1));
    memset(a, 0, sizeof a);
    OK(MPI_Get(MPI_BOTTOM, 1, both, ring(-1), place(&w, ring(-1), 4), 5, MPI_INT, w.win));
    OK(MPI_Win_fence(0, w.win));
    SAME(a[0], 1 + ring(-2));
    SAME(b[1], 5 + ring(-2));
    OK(MPI_Type_free(&both));
    window_free(&w);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    types_make();
    for (int flavor = 0; flavor < FLAVORS; flavor++) {
        if (!has_flavor(flavor))
            continue;
        pairs(flavor);
        structs(flavor);
        strided_sums(flavor);
        forms(flavor);
        from_bottom(flavor);
    }
    types_free();
    return check_end();
}

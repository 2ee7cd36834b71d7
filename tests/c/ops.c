/* Predefined operations on the types that C can say, operations of the program's own, and what is
 * refused. */
#include "check.h"

#include <complex.h>
#include <math.h>
#include <stdbool.h>

/* MPI_Allreduce of a value that depends on the rank, against the same done here. */
#define REDUCED(ctype, type, op, value, start, step)                                               \
    do {                                                                                           \
        ctype in[3], out[3], wanted;                                                               \
        for (int rank = 0; rank < world_size; rank++) {                                            \
            ctype next = (ctype)(value);                                                           \
            wanted = rank ? (step) : next;                                                         \
            if (rank == world_rank)                                                                \
                in[0] = in[1] = in[2] = next;                                                      \
        }                                                                                          \
        memset(out, 0, sizeof out);                                                                \
        OK(MPI_Allreduce(in, out, 3, type, op, MPI_COMM_WORLD));                                   \
        for (int i = 0; i < 3; i++)                                                                \
            CHECK(out[i] == wanted, #op " on " #type ": element %d is wrong", i);                  \
    } while (0)

#define INTEGER_OPS(ctype, type)                                                                   \
    do {                                                                                           \
        REDUCED(ctype, type, MPI_SUM, rank + 1, 0, (ctype)(wanted + next));                        \
        REDUCED(ctype, type, MPI_PROD, rank % 3 + 1, 1, (ctype)(wanted * next));                   \
        REDUCED(ctype, type, MPI_MIN, (rank * 7 + 3) % 11, 0, next < wanted ? next : wanted);      \
        REDUCED(ctype, type, MPI_MAX, (rank * 7 + 3) % 11, 0, next > wanted ? next : wanted);      \
        REDUCED(ctype, type, MPI_BAND, ~(1 << rank % 7), 0, (ctype)(wanted & next));               \
        REDUCED(ctype, type, MPI_BOR, 1 << rank % 7, 0, (ctype)(wanted | next));                   \
        REDUCED(ctype, type, MPI_BXOR, rank * 5 + 1, 0, (ctype)(wanted ^ next));                   \
        REDUCED(ctype, type, MPI_LAND, rank % 4 + 2, 0, (ctype)(wanted && next));                  \
        REDUCED(ctype, type, MPI_LOR, rank == 1, 0, (ctype)(wanted || next));                      \
        REDUCED(ctype, type, MPI_LXOR, rank % 3, 0, (ctype)(!wanted != !next));                    \
    } while (0)

#define FLOAT_OPS(ctype, type)                                                                     \
    do {                                                                                           \
        REDUCED(ctype, type, MPI_SUM, rank + 0.5, 0, wanted + next);                               \
        REDUCED(ctype, type, MPI_PROD, rank % 2 + 0.5, 0, wanted * next);                          \
        REDUCED(ctype, type, MPI_MIN, 3.5 - (rank * 7) % 11, 0, next < wanted ? next : wanted);    \
        REDUCED(ctype, type, MPI_MAX, 3.5 - (rank * 7) % 11, 0, next > wanted ? next : wanted);    \
    } while (0)

/* Powers of i, so that every product is exact. */
#define COMPLEX_OPS(ctype, type)                                                                   \
    do {                                                                                           \
        REDUCED(ctype, type, MPI_SUM, rank + 2 * rank * I, 0, wanted + next);                      \
        REDUCED(ctype, type, MPI_PROD, rank % 3 ? 1.0 * I : 2.0, 0, wanted * next);                \
    } while (0)

static void numbers(void)
{
    INTEGER_OPS(signed char, MPI_SIGNED_CHAR);
    INTEGER_OPS(unsigned char, MPI_UNSIGNED_CHAR);
    INTEGER_OPS(short, MPI_SHORT);
    INTEGER_OPS(unsigned short, MPI_UNSIGNED_SHORT);
    INTEGER_OPS(int, MPI_INT);
    INTEGER_OPS(unsigned, MPI_UNSIGNED);
    INTEGER_OPS(long, MPI_LONG);
    INTEGER_OPS(unsigned long, MPI_UNSIGNED_LONG);
    INTEGER_OPS(long long, MPI_LONG_LONG);
    INTEGER_OPS(unsigned long long, MPI_UNSIGNED_LONG_LONG);
    INTEGER_OPS(int8_t, MPI_INT8_T);
    INTEGER_OPS(uint8_t, MPI_UINT8_T);
    INTEGER_OPS(int16_t, MPI_INT16_T);
    INTEGER_OPS(uint16_t, MPI_UINT16_T);
    INTEGER_OPS(int32_t, MPI_INT32_T);
    INTEGER_OPS(uint32_t, MPI_UINT32_T);
    INTEGER_OPS(int64_t, MPI_INT64_T);
    INTEGER_OPS(uint64_t, MPI_UINT64_T);
    FLOAT_OPS(float, MPI_FLOAT);
    FLOAT_OPS(double, MPI_DOUBLE);
    FLOAT_OPS(long double, MPI_LONG_DOUBLE);
    FLOAT_OPS(float, MPI_REAL);
    FLOAT_OPS(double, MPI_DOUBLE_PRECISION);
    COMPLEX_OPS(float complex, MPI_C_FLOAT_COMPLEX);
    COMPLEX_OPS(double complex, MPI_C_DOUBLE_COMPLEX);
    COMPLEX_OPS(long double complex, MPI_C_LONG_DOUBLE_COMPLEX);
    COMPLEX_OPS(double complex, MPI_CXX_DOUBLE_COMPLEX);
    REDUCED(bool, MPI_C_BOOL, MPI_LAND, rank != 1, 0, wanted && next);
    REDUCED(bool, MPI_C_BOOL, MPI_LOR, rank == 1, 0, wanted || next);
    REDUCED(bool, MPI_CXX_BOOL, MPI_LXOR, rank != 2, 0, wanted != next);
    REDUCED(int, MPI_LOGICAL, MPI_LXOR, rank != 2, 0, wanted != next);
    REDUCED(unsigned char, MPI_BYTE, MPI_BXOR, rank * 3 + 1, 0, (unsigned char)(wanted ^ next));
    REDUCED(MPI_Aint, MPI_AINT, MPI_SUM, rank + 1, 0, wanted + next);
    REDUCED(MPI_Count, MPI_COUNT, MPI_MAX, (rank * 7) % 11, 0, next > wanted ? next : wanted);
    REDUCED(MPI_Offset, MPI_OFFSET, MPI_BOR, 1 << rank % 30, 0, wanted | next);
}

/* The extreme value, and of ranks that share it the lowest. */
#define LOCATED(ctype, itype, type)                                                                \
    do {                                                                                           \
        struct {                                                                                   \
            ctype value;                                                                           \
            itype index;                                                                           \
        } in, least, most;                                                                         \
        memset(&in, 0, sizeof in);                                                                 \
        int low = 0, high = 0;                                                                     \
        for (int rank = 0; rank < world_size; rank++) {                                            \
            int value = (rank * 5 + 3) % 4;                                                        \
            low = value < (low * 5 + 3) % 4 ? rank : low;                                          \
            high = value > (high * 5 + 3) % 4 ? rank : high;                                       \
        }                                                                                          \
        in.value = (ctype)((world_rank * 5 + 3) % 4);                                              \
        in.index = (itype)world_rank;                                                              \
        OK(MPI_Allreduce(&in, &least, 1, type, MPI_MINLOC, MPI_COMM_WORLD));                       \
        OK(MPI_Allreduce(&in, &most, 1, type, MPI_MAXLOC, MPI_COMM_WORLD));                        \
        CHECK(least.value == (ctype)((low * 5 + 3) % 4),                                           \
              "MPI_MINLOC on " #type ": the value is wrong");                                      \
        CHECK(most.value == (ctype)((high * 5 + 3) % 4),                                           \
              "MPI_MAXLOC on " #type ": the value is wrong");                                      \
        SAME(least.index, low);                                                                    \
        SAME(most.index, high);                                                                    \
    } while (0)

static void locations(void)
{
    LOCATED(float, int, MPI_FLOAT_INT);
    LOCATED(double, int, MPI_DOUBLE_INT);
    LOCATED(long, int, MPI_LONG_INT);
    LOCATED(int, int, MPI_2INT);
    LOCATED(short, int, MPI_SHORT_INT);
    LOCATED(long double, int, MPI_LONG_DOUBLE_INT);
    LOCATED(float, float, MPI_2REAL);
    LOCATED(double, double, MPI_2DOUBLE_PRECISION);
    LOCATED(int, int, MPI_2INTEGER);
    MPI_Datatype pair;
    OK(MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT64_T, &pair));
    CHECK(pair != MPI_DATATYPE_NULL, "no pair of MPI_DOUBLE and MPI_INT64_T");
    if (pair != MPI_DATATYPE_NULL)
        LOCATED(double, int64_t, pair);
    OK(MPI_Type_get_value_index(MPI_FLOAT, MPI_INT, &pair));
    CHECK(pair == MPI_FLOAT_INT, "MPI_FLOAT with MPI_INT is not MPI_FLOAT_INT");
}

/* Two by two matrices: associative, not commutative. */
typedef struct {
    long m[4];
} Matrix;

static Matrix times(Matrix a, Matrix b)
{
    Matrix c = {{a.m[0] * b.m[0] + a.m[1] * b.m[2], a.m[0] * b.m[1] + a.m[1] * b.m[3],
                 a.m[2] * b.m[0] + a.m[3] * b.m[2], a.m[2] * b.m[1] + a.m[3] * b.m[3]}};
    for (int i = 0; i < 4; i++)
        c.m[i] %= 1009;
    return c;
}

static MPI_Datatype matrix;
static int wrong_types;

static void multiply(void *in, void *inout, int *len, MPI_Datatype *type)
{
    MPI_Aint lb, extent;
    if (MPI_Type_get_extent(*type, &lb, &extent) != MPI_SUCCESS || extent != sizeof(Matrix) ||
        *type != matrix)
        wrong_types++;
    Matrix *a = in, *b = inout;
    for (int i = 0; i < *len; i++)
        b[i] = times(a[i], b[i]);
    *len = -1; /* it is the function's to spoil */
}

static void multiply_c(void *in, void *inout, MPI_Count *len, MPI_Datatype *type)
{
    int n = (int)*len;
    multiply(in, inout, &n, type);
}

static Matrix of_rank(int rank, int i)
{
    return (Matrix){{rank % 5 + i, 1, rank % 3, 2}};
}

static void own(void)
{
    OK(MPI_Type_contiguous(4, MPI_LONG, &matrix));
    OK(MPI_Type_commit(&matrix));
    for (int large = 0; large < 2; large++) {
        MPI_Op op;
        if (large)
            OK(MPI_Op_create_c(multiply_c, 0, &op));
        else
            OK(MPI_Op_create(multiply, 0, &op));
        int commute = -1;
        OK(MPI_Op_commutative(op, &commute));
        SAME(commute, 0);
        enum { N = 5 };
        Matrix in[N], out[N], wanted[N];
        for (int i = 0; i < N; i++) {
            in[i] = of_rank(world_rank, i);
            wanted[i] = of_rank(0, i);
            for (int rank = 1; rank < world_size; rank++)
                wanted[i] = times(wanted[i], of_rank(rank, i));
        }
        OK(MPI_Allreduce(in, out, N, matrix, op, MPI_COMM_WORLD));
        CHECK(memcmp(out, wanted, sizeof wanted) == 0, "the product is not in the order of ranks");
        Matrix local[2] = {of_rank(2, 7), of_rank(3, 8)}, other[2] = {of_rank(4, 1), of_rank(5, 2)};
        Matrix product[2] = {times(local[0], other[0]), times(local[1], other[1])};
        OK(MPI_Reduce_local(local, other, 2, matrix, op));
        CHECK(memcmp(other, product, sizeof product) == 0, "MPI_Reduce_local is wrong");
        OK(MPI_Op_free(&op));
        CHECK(op == MPI_OP_NULL, "a freed operation is not MPI_OP_NULL");
    }
    SAME(wrong_types, 0);
    OK(MPI_Type_free(&matrix));
}

static void refused(void)
{
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    char a[64] = {0}, b[64] = {0};
    CLASS(MPI_Reduce_local(a, b, 1, MPI_DOUBLE, MPI_BAND), MPI_ERR_OP);
    CLASS(MPI_Reduce_local(a, b, 1, MPI_INT, MPI_MINLOC), MPI_ERR_OP);
    CLASS(MPI_Reduce_local(a, b, 1, MPI_2INT, MPI_SUM), MPI_ERR_OP);
    CLASS(MPI_Reduce_local(a, b, 1, MPI_BYTE, MPI_MAX), MPI_ERR_OP);
    CLASS(MPI_Reduce_local(a, b, 1, MPI_C_DOUBLE_COMPLEX, MPI_MIN), MPI_ERR_OP);
    CLASS(MPI_Reduce_local(a, b, 1, MPI_WCHAR, MPI_SUM), MPI_ERR_OP);
    CLASS(MPI_Reduce_local(a, b, 1, MPI_INT, MPI_REPLACE), MPI_ERR_OP);
    CLASS(MPI_Reduce_local(a, b, 1, MPI_INT, MPI_OP_NULL), MPI_ERR_OP);
    CLASS(MPI_Reduce_local(a, b, -1, MPI_INT, MPI_SUM), MPI_ERR_COUNT);
    CLASS(MPI_Reduce_local(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM), MPI_ERR_TYPE);
    CLASS(MPI_Allreduce(a, b, 1, MPI_DOUBLE, MPI_LAND, MPI_COMM_WORLD), MPI_ERR_OP);
    MPI_Datatype two;
    OK(MPI_Type_contiguous(2, MPI_INT, &two));
    OK(MPI_Type_commit(&two));
    CLASS(MPI_Reduce_local(a, b, 1, two, MPI_SUM), MPI_ERR_OP);
    OK(MPI_Type_free(&two));
    MPI_Op op = MPI_SUM;
    CLASS(MPI_Op_free(&op), MPI_ERR_OP);
    CHECK(op == MPI_SUM, "a predefined operation was freed");
    int commute = 0;
    OK(MPI_Op_commutative(MPI_MAXLOC, &commute));
    SAME(commute, 1);
    CLASS(MPI_Op_commutative(MPI_OP_NULL, &commute), MPI_ERR_OP);
    /* Odd addresses are allowed. */
    double x = 1.5, y = 2.25, sum;
    memcpy(a + 1, &x, sizeof x);
    memcpy(b + 3, &y, sizeof y);
    OK(MPI_Reduce_local(a + 1, b + 3, 1, MPI_DOUBLE, MPI_SUM));
    memcpy(&sum, b + 3, sizeof sum);
    CHECK(sum == 3.75, "the sum at odd addresses is %g", sum);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    numbers();
    locations();
    own();
    refused();
    return check_end();
}

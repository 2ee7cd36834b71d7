/* Datatypes as objects: sizes and bounds, how they were made, predefined ones, Fortran kinds,
 * pairs, attributes and names of duplicates, counts of elements, external32, and wrong arguments.
 */
// ranks: 1 2
#include "check.h"

static void bounds_are(int line, MPI_Datatype type, long size, long lb, long extent, long true_lb,
                       long true_extent)
{
    MPI_Count is[5];
    OK(MPI_Type_size_c(type, &is[0]));
    OK(MPI_Type_get_extent_c(type, &is[1], &is[2]));
    OK(MPI_Type_get_true_extent_c(type, &is[3], &is[4]));
    long should[] = {size, lb, extent, true_lb, true_extent};
    const char *what[] = {"size", "lb", "extent", "true lb", "true extent"};
    for (int i = 0; i < 5; i++)
        CHECK(is[i] == should[i], "line %d: %s is %lld, should be %ld", line, what[i],
              (long long)is[i], should[i]);
}
#define BOUNDS(type, ...) bounds_are(__LINE__, type, __VA_ARGS__)

static void bounds(void)
{
    MPI_Datatype t, wide;
    BOUNDS(MPI_INT, 4, 0, 4, 0, 4);
    BOUNDS(MPI_DOUBLE_INT, 12, 0, 16, 0, 12);
    BOUNDS(MPI_SHORT_INT, 6, 0, 8, 0, 8);
    BOUNDS(MPI_LONG_DOUBLE, sizeof(long double), 0, sizeof(long double), 0, sizeof(long double));

    /* A structure is padded as the compiler would. */
    struct {
        double d;
        char c;
    } s[2];
    int lengths[] = {1, 1};
    MPI_Aint places[] = {0, offsetof(__typeof__(s[0]), c)};
    MPI_Datatype types[] = {MPI_DOUBLE, MPI_CHAR};
    OK(MPI_Type_create_struct(2, lengths, places, types, &t));
    BOUNDS(t, 9, 0, (long)sizeof s[0], 0, 9);
    OK(MPI_Type_free(&t));

    /* Bounds that were set outweigh data, also from inside. */
    OK(MPI_Type_create_resized(MPI_INT, -4, 32, &wide));
    BOUNDS(wide, 4, -4, 32, 0, 4);
    OK(MPI_Type_contiguous(3, wide, &t));
    BOUNDS(t, 12, -4, 96, 0, 68);
    OK(MPI_Type_free(&t));
    OK(MPI_Type_vector(2, 1, -3, wide, &t));
    BOUNDS(t, 8, -100, 128, -96, 100);
    OK(MPI_Type_free(&t));
    OK(MPI_Type_free(&wide));

    /* No elements, no bounds. */
    OK(MPI_Type_contiguous(0, MPI_DOUBLE, &t));
    BOUNDS(t, 0, 0, 0, 0, 0);
    OK(MPI_Type_free(&t));

    /* Larger than an int, and than memory. */
    OK(MPI_Type_vector(1 << 30, 1, 1 << 20, MPI_DOUBLE, &t));
    BOUNDS(t, 8L << 30, 0, (((1L << 30) - 1) << 23) + 8, 0, (((1L << 30) - 1) << 23) + 8);
    int size = 0;
    OK(MPI_Type_size(t, &size));
    SAME(size, MPI_UNDEFINED);
    OK(MPI_Type_commit(&t));
    OK(MPI_Type_free(&t));
    SAME(t == MPI_DATATYPE_NULL, 1);
}

static void contents(void)
{
    MPI_Datatype t, inner;
    int combiner, ni, na, nd;
    MPI_Count lni, lna, lnc, lnd;
    OK(MPI_Type_get_envelope(MPI_INT, &ni, &na, &nd, &combiner));
    SAME(combiner, MPI_COMBINER_NAMED);
    CLASS(MPI_Type_get_contents(MPI_INT, 0, 0, 0, NULL, NULL, NULL), MPI_ERR_TYPE);

    int integers[16], lengths[] = {1, 2}, places[] = {5, 0};
    MPI_Aint addresses[16], far[] = {40, 0};
    MPI_Count counts[16];
    MPI_Datatype datatypes[16];
    OK(MPI_Type_contiguous(3, MPI_INT, &inner));
    OK(MPI_Type_create_hindexed(2, lengths, far, inner, &t));
    OK(MPI_Type_get_envelope(t, &ni, &na, &nd, &combiner));
    SAME(combiner, MPI_COMBINER_HINDEXED);
    SAME(ni, 3);
    SAME(na, 2);
    SAME(nd, 1);
    CLASS(MPI_Type_get_contents(t, 2, 2, 1, integers, addresses, datatypes), MPI_ERR_ARG);
    OK(MPI_Type_get_contents(t, 16, 16, 16, integers, addresses, datatypes));
    SAME(integers[0], 2);
    SAME(integers[1], 1);
    SAME(integers[2], 2);
    SAME(addresses[0], 40);
    SAME(addresses[1], 0);
    OK(MPI_Type_get_envelope(datatypes[0], &ni, &na, &nd, &combiner));
    SAME(combiner, MPI_COMBINER_CONTIGUOUS);
    OK(MPI_Type_free(&datatypes[0]));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_free(&t));

    OK(MPI_Type_indexed(2, lengths, places, MPI_INT, &t));
    OK(MPI_Type_get_contents(t, 16, 16, 16, integers, addresses, datatypes));
    SAME(integers[3], 5);
    SAME(datatypes[0] == MPI_INT, 1);
    OK(MPI_Type_free(&t));

    /* Made with large counts, it must be asked with large counts. */
    OK(MPI_Type_vector_c(3, 1, 1L << 40, MPI_INT, &t));
    CLASS(MPI_Type_get_envelope(t, &ni, &na, &nd, &combiner), MPI_ERR_TYPE);
    OK(MPI_Type_get_envelope_c(t, &lni, &lna, &lnc, &lnd, &combiner));
    SAME(lni, 0);
    SAME(lna, 0);
    SAME(lnc, 3);
    SAME(lnd, 1);
    SAME(combiner, MPI_COMBINER_VECTOR);
    OK(MPI_Type_get_contents_c(t, lni, lna, lnc, lnd, integers, addresses, counts, datatypes));
    SAME(counts[2], 1L << 40);
    OK(MPI_Type_free(&t));
}

static void predefined(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, size;
    OK(MPI_Type_get_name(MPI_DOUBLE, name, &length));
    CHECK(!strcmp(name, "MPI_DOUBLE") && length == 10, "the name is %s", name);
    MPI_Datatype t = MPI_INT, u;
    CLASS(MPI_Type_free(&t), MPI_ERR_TYPE);
    SAME(t == MPI_INT, 1);
    OK(MPI_Type_commit(&t));
    t = MPI_DATATYPE_NULL;
    CLASS(MPI_Type_commit(&t), MPI_ERR_TYPE);
    OK(MPI_Type_size(MPI_INTEGER16, &size));
    CHECK(size == 16 || size == MPI_UNDEFINED, "MPI_INTEGER16 has %d bytes", size);

    OK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 2, &t));
    OK(MPI_Type_size(t, &size));
    SAME(size, 2);
    OK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &t));
    OK(MPI_Type_size(t, &size));
    SAME(size, 8);
    CLASS(MPI_Type_match_size(MPI_TYPECLASS_REAL, 7, &t), MPI_ERR_ARG);
    OK(MPI_Type_create_f90_real(15, MPI_UNDEFINED, &t));
    OK(MPI_Type_create_f90_real(15, MPI_UNDEFINED, &u));
    SAME(t == u, 1);
    int combiner, ni, na, nd, integers[2];
    OK(MPI_Type_get_envelope(t, &ni, &na, &nd, &combiner));
    SAME(combiner, MPI_COMBINER_F90_REAL);
    SAME(ni, 2);
    SAME(nd, 0);
    OK(MPI_Type_get_contents(t, 2, 0, 0, integers, NULL, NULL));
    SAME(integers[0], 15);
    SAME(integers[1], MPI_UNDEFINED);
    CLASS(MPI_Type_free(&u), MPI_ERR_TYPE);
    CLASS(MPI_Type_create_f90_real(99, 99999, &t), MPI_ERR_ARG);
    double one = 1.5, sum = 0;
    OK(MPI_Allreduce(&one, &sum, 1, u, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == 1.5 * world_size, "the sum is %g", sum);

    OK(MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &t));
    SAME(t == MPI_DOUBLE_INT, 1);
    OK(MPI_Type_get_value_index(MPI_C_DOUBLE_COMPLEX, MPI_INT, &t));
    SAME(t == MPI_DATATYPE_NULL, 1);
}

static int copies, deletes;
static int copy(MPI_Datatype type, int key, void *extra, void *value, void *out, int *flag)
{
    (void)type, (void)key, (void)extra;
    *(void **)out = value;
    *flag = 1;
    copies++;
    return MPI_SUCCESS;
}
static int delete(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type, (void)key, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static void duplicates(void)
{
    MPI_Datatype t, u;
    int key, flag, length;
    void *value = NULL;
    char name[MPI_MAX_OBJECT_NAME] = "x";
    OK(MPI_Type_create_keyval(copy, delete, &key, NULL));
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &t));
    OK(MPI_Type_set_name(t, "every second"));
    OK(MPI_Type_set_attr(t, key, name));
    OK(MPI_Type_commit(&t));
    OK(MPI_Type_dup(t, &u));
    SAME(copies, 1);
    OK(MPI_Type_get_attr(u, key, &value, &flag));
    SAME(flag, 1);
    SAME(value == name, 1);
    OK(MPI_Type_get_name(u, name, &length));
    SAME(length, 0);
    OK(MPI_Type_free(&t));
    SAME(deletes, 1);
    int from[] = {1, 2, 3}, to[] = {0, 0, 0};
    /* The duplicate is committed, as its original was. */
    OK(MPI_Sendrecv(from, 1, u, 0, 0, to, 1, u, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    SAME(to[0], 1);
    SAME(to[1], 0);
    SAME(to[2], 3);
    OK(MPI_Type_free(&u));
    SAME(deletes, 2);
    OK(MPI_Type_free_keyval(&key));
}

static void elements(void)
{
    /* Two ints and three doubles of which only a part arrives. */
    MPI_Datatype t, types[] = {MPI_INT, MPI_DOUBLE};
    int lengths[] = {2, 3}, count;
    MPI_Aint places[] = {0, 8};
    MPI_Count large;
    MPI_Status status;
    char buffer[64] = {0}, in[64];
    OK(MPI_Type_create_struct(2, lengths, places, types, &t));
    OK(MPI_Type_commit(&t));
    int bytes[] = {32, 16, 18}, wanted[] = {5, 3, MPI_UNDEFINED};
    for (int i = 0; i < 3; i++) {
        OK(MPI_Sendrecv(buffer, bytes[i], MPI_PACKED, 0, 0, in, 2, t, 0, 0, MPI_COMM_SELF,
                        &status));
        OK(MPI_Get_count(&status, t, &count));
        SAME(count, i == 0 ? 1 : MPI_UNDEFINED);
        OK(MPI_Get_elements(&status, t, &count));
        SAME(count, wanted[i]);
    }
    OK(MPI_Status_set_elements_c(&status, MPI_DOUBLE, (MPI_Count)1 << 40));
    OK(MPI_Get_elements_c(&status, MPI_DOUBLE, &large));
    SAME(large, (MPI_Count)1 << 40);
    OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
    SAME(count, MPI_UNDEFINED);
    OK(MPI_Status_set_elements(&status, t, 7));
    OK(MPI_Get_elements(&status, t, &count));
    SAME(count, 7);
    OK(MPI_Type_free(&t));
}

static void portable(void)
{
    MPI_Aint size = 0, at = 0;
    int in[] = {1, -2}, back[2] = {0};
    unsigned char packed[16] = {0}, should[] = {0, 0, 0, 1, 255, 255, 255, 254};
    OK(MPI_Pack_external_size("external32", 2, MPI_INT, &size));
    SAME(size, 8);
    OK(MPI_Pack_external("external32", in, 2, MPI_INT, packed, 16, &at));
    SAME(at, 8);
    CHECK(!memcmp(packed, should, 8), "integers are not big-endian");
    at = 0;
    OK(MPI_Unpack_external("external32", packed, 16, &at, back, 2, MPI_INT));
    SAME(back[0], 1);
    SAME(back[1], -2);
    CLASS(MPI_Pack_external_size("internal", 2, MPI_INT, &size), MPI_ERR_ARG);
    long double pi = 3.14159265358979323846264338327950288L, got = 0;
    at = 0;
    OK(MPI_Pack_external("external32", &pi, 1, MPI_LONG_DOUBLE, packed, 16, &at));
    SAME(at, 16);
    SAME(packed[0], 0x40);
    SAME(packed[1], 0);
    SAME(packed[2], 0x92);
    SAME(packed[3], 0x1f);
    at = 0;
    OK(MPI_Unpack_external("external32", packed, 16, &at, &got, 1, MPI_LONG_DOUBLE));
    CHECK(got == pi, "pi came back as %.20Lg", got);
    at = 12;
    CLASS(MPI_Pack_external("external32", in, 2, MPI_INT, packed, 16, &at), MPI_ERR_ARG);
}

static void mistakes(void)
{
    MPI_Datatype t;
    int sizes[] = {4}, parts[] = {5}, starts[] = {0}, buffer[4] = {0};
    CLASS(MPI_Type_contiguous(-1, MPI_INT, &t), MPI_ERR_COUNT);
    CLASS(MPI_Type_contiguous(1, MPI_DATATYPE_NULL, &t), MPI_ERR_TYPE);
    CLASS(MPI_Type_contiguous(1, MPI_INT, NULL), MPI_ERR_ARG);
    CLASS(MPI_Type_create_subarray(1, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &t), MPI_ERR_ARG);
    CLASS(MPI_Type_create_subarray(1, sizes, sizes, starts, 0, MPI_INT, &t), MPI_ERR_ARG);
    CHECK(MPI_Type_contiguous_c((MPI_Count)1 << 62, MPI_DOUBLE, &t) != MPI_SUCCESS,
          "a size beyond 63 bits was taken");
    OK(MPI_Type_contiguous(2, MPI_INT, &t));
    CLASS(MPI_Send(buffer, 1, t, 0, 0, MPI_COMM_SELF), MPI_ERR_TYPE);
    OK(MPI_Type_free(&t));
    int position = 0;
    char room[8];
    CLASS(MPI_Pack(buffer, 4, MPI_INT, room, 8, &position, MPI_COMM_SELF), MPI_ERR_ARG);
    SAME(position, 0);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    bounds();
    contents();
    predefined();
    duplicates();
    elements();
    portable();
    mistakes();
    return check_end();
}

/* Attributes on communicators and datatypes: copying, deleting, predefined ones. */
#include "check.h"

static int copies, deletes;
static long extra_mark = 17;

static int copy_plus(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm;
    (void)key;
    SAME(*(long *)extra, 17);
    copies++;
    *(void **)out = (void *)((intptr_t)in + 1);
    *flag = 1;
    return MPI_SUCCESS;
}

static int drop(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    SAME(*(long *)extra, 17);
    deletes++;
    return MPI_SUCCESS;
}

static int refuse_copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra, (void)in, (void)out;
    *flag = 0;
    return MPI_ERR_OTHER;
}

static int type_copies, type_deletes;

static int type_copy(MPI_Datatype type, int key, void *extra, void *in, void *out, int *flag)
{
    (void)type, (void)key, (void)extra;
    type_copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int type_drop(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type, (void)key, (void)value, (void)extra;
    type_deletes++;
    return MPI_SUCCESS;
}

static void predefined(void)
{
    int *value = NULL, flag = 0;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag));
    SAME(flag, 1);
    CHECK(*value >= 32767, "MPI_TAG_UB is %d", *value);
    int ub = *value;
    if (world_size >= 1) {
        int in = 0;
        OK(MPI_Sendrecv(&world_rank, 1, MPI_INT, ring(1), ub, &in, 1, MPI_INT, ring(-1), ub,
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        SAME(in, ring(-1));
    }
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag));
    SAME(flag, 1);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &value, &flag));
    if (flag)
        CHECK(*value == 0 || *value == 1, "MPI_WTIME_IS_GLOBAL is %d", *value);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &value, &flag));
    if (flag)
        CHECK(*value >= 0, "MPI_APPNUM is %d", *value);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &flag));
    if (flag)
        CHECK(*value >= world_size, "MPI_UNIVERSE_SIZE is %d", *value);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    int code = MPI_Comm_set_attr(MPI_COMM_WORLD, MPI_TAG_UB, &ub);
    CHECK(code != MPI_SUCCESS, "MPI_TAG_UB could be overwritten");
    code = MPI_Comm_delete_attr(MPI_COMM_WORLD, MPI_TAG_UB);
    CHECK(code != MPI_SUCCESS, "MPI_TAG_UB could be deleted");
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    predefined();

    int plus, none, dup;
    OK(MPI_Comm_create_keyval(copy_plus, drop, &plus, &extra_mark));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &none, NULL));
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &dup, NULL));
    CHECK(plus != none && none != dup && plus != dup, "two key values are the same");
    MPI_Comm a, b, c;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &a));
    OK(MPI_Comm_set_errhandler(a, MPI_ERRORS_RETURN));
    void *value = NULL;
    int flag = -1;
    OK(MPI_Comm_get_attr(a, plus, &value, &flag));
    SAME(flag, 0);
    OK(MPI_Comm_set_attr(a, plus, (void *)(intptr_t)100));
    OK(MPI_Comm_set_attr(a, none, (void *)(intptr_t)200));
    OK(MPI_Comm_set_attr(a, dup, (void *)(intptr_t)300));
    SAME(deletes, 0);
    OK(MPI_Comm_set_attr(a, plus, (void *)(intptr_t)101)); /* overwriting deletes the old value */
    SAME(deletes, 1);
    OK(MPI_Comm_dup(a, &b));
    SAME(copies, 1);
    OK(MPI_Comm_get_attr(b, plus, &value, &flag));
    SAME(flag, 1);
    SAME((intptr_t)value, 102);
    OK(MPI_Comm_get_attr(b, none, &value, &flag));
    SAME(flag, 0);
    OK(MPI_Comm_get_attr(b, dup, &value, &flag));
    SAME(flag, 1);
    SAME((intptr_t)value, 300);
    /* A split does not copy attributes. */
    OK(MPI_Comm_split(a, 0, 0, &c));
    SAME(copies, 1);
    OK(MPI_Comm_get_attr(c, plus, &value, &flag));
    SAME(flag, 0);
    OK(MPI_Comm_free(&c));
    /* A freed key still works for those who hold values. */
    int freed = plus;
    OK(MPI_Comm_free_keyval(&plus));
    SAME(plus, MPI_KEYVAL_INVALID);
    OK(MPI_Comm_dup(b, &c));
    SAME(copies, 2);
    OK(MPI_Comm_get_attr(c, freed, &value, &flag));
    SAME(flag, 1);
    SAME((intptr_t)value, 103);
    OK(MPI_Comm_delete_attr(b, freed));
    SAME(deletes, 2);
    OK(MPI_Comm_free(&c));
    SAME(deletes, 3);
    OK(MPI_Comm_free(&b));
    SAME(deletes, 3);
    /* A copy function that fails makes the dup fail. */
    int refusing;
    OK(MPI_Comm_create_keyval(refuse_copy, MPI_COMM_NULL_DELETE_FN, &refusing, NULL));
    OK(MPI_Comm_set_attr(a, refusing, NULL));
    int code = MPI_Comm_dup(a, &b);
    CHECK(code != MPI_SUCCESS, "a dup succeeded although an attribute's copy function failed");
    OK(MPI_Comm_delete_attr(a, refusing));
    OK(MPI_Comm_free_keyval(&refusing));
    OK(MPI_Comm_free(&a));
    SAME(deletes, 4);
    OK(MPI_Comm_free_keyval(&none));
    OK(MPI_Comm_free_keyval(&dup));
    CLASS(MPI_Comm_set_attr(MPI_COMM_WORLD, MPI_KEYVAL_INVALID, NULL), MPI_ERR_KEYVAL);

    /* Datatypes. */
    int key;
    MPI_Datatype type, copy;
    OK(MPI_Type_create_keyval(type_copy, type_drop, &key, NULL));
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, key, &extra_mark));
    OK(MPI_Type_dup(type, &copy));
    SAME(type_copies, 1);
    OK(MPI_Type_get_attr(copy, key, &value, &flag));
    SAME(flag, 1);
    SAME(value == &extra_mark, 1);
    OK(MPI_Type_delete_attr(copy, key));
    SAME(type_deletes, 1);
    OK(MPI_Type_get_attr(copy, key, &value, &flag));
    SAME(flag, 0);
    OK(MPI_Type_free(&copy));
    OK(MPI_Type_free(&type));
    SAME(type_deletes, 2);
    /* A predefined type can carry one as well. */
    OK(MPI_Type_set_attr(MPI_INT, key, &extra_mark));
    OK(MPI_Type_get_attr(MPI_INT, key, &value, &flag));
    SAME(flag, 1);
    OK(MPI_Type_delete_attr(MPI_INT, key));
    OK(MPI_Type_free_keyval(&key));
    return check_end();
}

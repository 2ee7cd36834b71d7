/* More objects of one kind than are likely: each handle stands for its object, also where numbers
 * are used again; one that has been freed, or has never been given, is an error. */
#include "check.h"

enum { COUNT = 40000 };

static MPI_Datatype types[COUNT];

/* Types that have not `first` bytes more than their place in the array. */
static int of_wrong_size(int first)
{
    int differ = 0;
    for (int i = 0; i < COUNT; i++) {
        int bytes = -1;
        MPI_Type_size(types[i], &bytes);
        differ += bytes != i + (i % 2 ? 1 : first);
    }
    return differ;
}

static int class_of(MPI_Datatype type)
{
    int bytes, class = MPI_SUCCESS;
    int code = MPI_Type_size(type, &bytes);
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &class);
    return class;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int i = 0; i < COUNT; i++)
        MPI_Type_contiguous(i + 1, MPI_BYTE, &types[i]);
    CHECK(of_wrong_size(1) == 0);

    for (int i = 0; i < COUNT; i += 2)
        MPI_Type_free(&types[i]);
    for (int i = 0; i < COUNT; i += 2)
        MPI_Type_contiguous(i + 7, MPI_BYTE, &types[i]);
    CHECK(of_wrong_size(7) == 0);

    MPI_Datatype last = types[COUNT - 1];
    MPI_Type_free(&types[COUNT - 1]);
    CHECK(class_of(last) == MPI_ERR_TYPE);
#ifdef MPICH
    CHECK(class_of(last + 1000) == MPI_ERR_TYPE);
    CHECK(class_of(last + (1 << 22)) == MPI_ERR_TYPE);
    CHECK(class_of(-1) == MPI_ERR_TYPE);
#endif
    for (int i = 0; i < COUNT - 1; i++)
        MPI_Type_free(&types[i]);
    MPI_Finalize();
    return wrong;
}

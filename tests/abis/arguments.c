/* Arguments whose values are numbers here and constants there: those of an array's distribution,
 * and MPI_IN_PLACE where it is a mistake. */
#include "check.h"

/* Every number that is a constant of some ABI's distributions. */
static void distributed(int argument)
{
    int sizes[2] = {400, 4}, distributions[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    int arguments[2] = {argument, MPI_DISTRIBUTE_DFLT_DARG}, processes[2] = {2, 1};
    int integers[12], bytes, own = 0;
    MPI_Aint addresses[1];
    MPI_Datatype type, types[1];
    for (int at = 0; at < 400; at++)
        own += at / argument % 2 == 0;
    MPI_Type_create_darray(2, 0, 2, sizes, distributions, arguments, processes, MPI_ORDER_C,
                           MPI_INT, &type);
    MPI_Type_size(type, &bytes);
    CHECK(bytes == own * 4 * (int) sizeof(int));
    MPI_Type_get_contents(type, 12, 0, 1, integers, addresses, types);
    CHECK(integers[5] == MPI_DISTRIBUTE_CYCLIC && integers[6] == MPI_DISTRIBUTE_BLOCK);
    CHECK(integers[7] == argument && integers[8] == MPI_DISTRIBUTE_DFLT_DARG);
    CHECK(integers[9] == 2 && integers[10] == 1 && integers[11] == MPI_ORDER_C);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    int a = 1, b = 2, class = MPI_SUCCESS;
    MPI_Init(&argc, &argv);
    /* 19 is the standard ABI's MPI_DISTRIBUTE_DFLT_DARG, so it cannot be said as a number. */
    for (int argument = 1; argument < 130; argument++)
        if (argument != 19)
            distributed(argument);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Reduce_local(MPI_IN_PLACE, &b, 1, MPI_INT, MPI_SUM), &class);
    CHECK(class == MPI_ERR_BUFFER);
    MPI_Error_class(MPI_Reduce_local(&a, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM), &class);
    CHECK(class == MPI_ERR_BUFFER);
    MPI_Finalize();
    return wrong;
}

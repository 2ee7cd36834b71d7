/* Starts, meets once, ends: what a job of very many ranks must at least do. */
#include "check.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    return check_end();
}

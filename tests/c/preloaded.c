/* A program under a profiler that is loaded by LD_PRELOAD (lib_counter.c). */
// preload: lib_counter.c
#include "check.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    const char *init = getenv("COUNTER_SAW_INIT");
    CHECK(init != NULL, "the profiler did not see MPI_Init");
    for (int i = 0; i < 5; i++) {
        int value = -1;
        MPI_Request request;
        OK(MPI_Irecv(&value, 1, MPI_INT, ring(-1), i, MPI_COMM_WORLD, &request));
        OK(MPI_Send(&i, 1, MPI_INT, ring(1), i, MPI_COMM_WORLD));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        SAME(value, i);
    }
    const char *sends = getenv("COUNTER_SENDS");
    CHECK(sends && atoi(sends) == 5, "the profiler saw %s sends, should see 5",
          sends ? sends : "no");
    return check_end();
}

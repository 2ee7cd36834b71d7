/* Clocks, memory, addresses, handles as numbers, control of profiling, the ABI's own questions. */
// machines: no (its own sleep must show on the clock)
#include "check.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    /* Time goes forward at the speed of the day. */
    double before = MPI_Wtime(), last = before, tick = MPI_Wtick();
    CHECK(tick > 0 && tick <= 1e-3, "a tick is %g s", tick);
    for (int i = 0; i < 100000; i++) {
        double now = MPI_Wtime();
        CHECK(now >= last, "the clock went back by %g s", last - now);
        last = now;
    }
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    double start = MPI_Wtime();
    usleep(100000);
    double took = MPI_Wtime() - start;
    clock_gettime(CLOCK_MONOTONIC, &b);
    double real = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    CHECK(took >= 0.0999 && took <= real + 1e-3,
          "0.1 s of sleep took %g s on one clock, %g s on the other", took, real);

    /* Memory. */
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_minimum_memory_alignment", "4096"));
    char *memory = NULL;
    OK(MPI_Alloc_mem(100000, info, &memory));
    SAME((uintptr_t)memory % 4096, 0);
    memset(memory, 1, 100000);
    OK(MPI_Free_mem(memory));
    OK(MPI_Alloc_mem(0, MPI_INFO_NULL, &memory));
    OK(MPI_Free_mem(memory));
    /* Where it lies, on a modelled machine. */
    OK(MPI_Info_set(info, "ferry_memory", "system"));
    OK(MPI_Alloc_mem(10, info, &memory));
    OK(MPI_Free_mem(memory));
    OK(MPI_Info_free(&info));

    /* Addresses: bottom-relative types work, and their arithmetic is plain. */
    int numbers[10], got[3] = {-1, -1, -1};
    for (int i = 0; i < 10; i++)
        numbers[i] = i * i;
    MPI_Aint places[3], base;
    int lengths[3] = {1, 1, 1}, at[3] = {2, 5, 9};
    OK(MPI_Get_address(numbers, &base));
    for (int i = 0; i < 3; i++) {
        OK(MPI_Get_address(&numbers[at[i]], &places[i]));
        SAME(MPI_Aint_diff(places[i], base), at[i] * (int)sizeof(int));
        SAME(MPI_Aint_add(base, at[i] * (MPI_Aint)sizeof(int)) == places[i], 1);
    }
    MPI_Datatype absolute;
    OK(MPI_Type_create_hindexed(3, lengths, places, MPI_INT, &absolute));
    OK(MPI_Type_commit(&absolute));
    OK(MPI_Sendrecv(MPI_BOTTOM, 1, absolute, 0, 1, got, 3, MPI_INT, 0, 1, MPI_COMM_SELF,
                    MPI_STATUS_IGNORE));
    for (int i = 0; i < 3; i++)
        SAME(got[i], at[i] * at[i]);
    OK(MPI_Type_free(&absolute));

    /* Handles as ints, both ways; predefined ones keep their values. */
    SAME(MPI_Comm_toint(MPI_COMM_WORLD), (int)(intptr_t)MPI_COMM_WORLD);
    SAME(MPI_Type_fromint(MPI_Type_toint(MPI_DOUBLE)) == MPI_DOUBLE, 1);
    SAME(MPI_Op_fromint(MPI_Op_toint(MPI_MAX)) == MPI_MAX, 1);
    SAME(MPI_Request_fromint(MPI_Request_toint(MPI_REQUEST_NULL)) == MPI_REQUEST_NULL, 1);
    SAME(MPI_Errhandler_fromint(MPI_Errhandler_toint(MPI_ERRORS_RETURN)) == MPI_ERRORS_RETURN, 1);
    MPI_Comm comms[20];
    MPI_Datatype types[20];
    int number[40];
    for (int i = 0; i < 20; i++) {
        OK(MPI_Comm_dup(MPI_COMM_SELF, &comms[i]));
        OK(MPI_Type_contiguous(i + 1, MPI_INT, &types[i]));
        number[i] = MPI_Comm_toint(comms[i]);
        number[20 + i] = MPI_Type_toint(types[i]);
    }
    for (int i = 0; i < 20; i++) {
        SAME(MPI_Comm_fromint(number[i]) == comms[i], 1);
        SAME(MPI_Type_fromint(number[20 + i]) == types[i], 1);
        OK(MPI_Comm_free(&comms[i]));
        OK(MPI_Type_free(&types[i]));
    }
    MPI_Request request;
    OK(MPI_Recv_init(got, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
    SAME(MPI_Request_fromint(MPI_Request_toint(request)) == request, 1);
    OK(MPI_Request_free(&request));
    MPI_Group group;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
    SAME(MPI_Group_fromint(MPI_Group_toint(group)) == group, 1);
    OK(MPI_Group_free(&group));

    OK(MPI_Pcontrol(0));
    OK(MPI_Pcontrol(1));
    OK(MPI_Pcontrol(2, "anything", 3.0));

    /* Zero bytes where a handle should be are no valid handle. */
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "ferry_memory", "somewhere"));
    CLASS(MPI_Alloc_mem(10, info, &memory), MPI_ERR_INFO_VALUE);
    OK(MPI_Info_free(&info));
    MPI_Comm zero;
    memset(&zero, 0, sizeof zero);
    int size;
    CLASS(MPI_Comm_size(zero, &size), MPI_ERR_COMM);
    MPI_Info details = MPI_INFO_NULL;
    OK(MPI_Abi_get_info(&details));
    if (details != MPI_INFO_NULL)
        OK(MPI_Info_free(&details));
    return check_end();
}

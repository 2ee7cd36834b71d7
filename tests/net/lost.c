/* Two ranks on two hosts, between which the cable is pulled once rank 0 has said "begun": whatever
 * then waits for the other rank, or is asked of it later, fails with an error that is returned.
 * Each rank says "rank R: N calls failed as they should" and waits to be ended. */
#include "../c/check.h"

#include <unistd.h>

static int failed;

/* A call, or a request's end, that must be a failure of the transport. */
static void fails(int code, const char *what)
{
    int class = -1, length;
    char text[MPI_MAX_ERROR_STRING];
    if (code == MPI_SUCCESS) {
        FAIL("%s succeeded", what);
        return;
    }
    OK(MPI_Error_class(code, &class));
    OK(MPI_Error_string(code, text, &length));
    CHECK(class == MPI_ERR_OTHER, "%s: class %d: %s", what, class, text);
    failed++;
}

static void ends_badly(MPI_Request *request, const char *what)
{
    fails(MPI_Wait(request, MPI_STATUS_IGNORE), what);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    int other = 1 - world_rank, word = 0, own = 1;
    int halves[2] = {0, 0}, sent[2] = {1, 2};
    MPI_Comm between, early_copy = MPI_COMM_NULL, late_copy = MPI_COMM_NULL;
    OK(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, other, 5, &between));
    OK(MPI_Comm_set_errhandler(between, MPI_ERRORS_RETURN));

    /* A partition that has come and one that never will; a partitioned message of which nothing is
     * known; a duplicate that the other side does not make. */
    MPI_Request sending, half, nothing, copying, both;
    OK(MPI_Psend_init(sent, 2, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &sending));
    OK(MPI_Precv_init(halves, 2, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &half));
    OK(MPI_Precv_init(&word, 1, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_INFO_NULL, &nothing));
    OK(MPI_Start(&sending));
    OK(MPI_Pready(0, sending));
    OK(MPI_Start(&half));
    OK(MPI_Start(&nothing));
    for (int here = 0; !here;)
        OK(MPI_Parrived(half, 0, &here));
    SAME(halves[0], 1);
    if (world_rank == 1)
        OK(MPI_Comm_idup(between, &early_copy, &copying));
    OK(MPI_Isendrecv(&own, 1, MPI_INT, other, 3, &word, 1, MPI_INT, other, 4, MPI_COMM_WORLD,
                     &both));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0) {
        puts("begun");
        fflush(stdout);
    }

    fails(MPI_Recv(&word, 1, MPI_INT, other, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "a receive");
    ends_badly(&half, "a partitioned receive, half here");
    ends_badly(&nothing, "a partitioned receive, nothing here");
    ends_badly(&both, "a non-blocking send and receive");
    if (world_rank == 1)
        ends_badly(&copying, "MPI_Comm_idup");

    /* The same, asked for now. */
    OK(MPI_Start(&half));
    ends_badly(&half, "a partitioned receive started again");
    OK(MPI_Start(&nothing));
    ends_badly(&nothing, "a partitioned receive of an unknown message started again");
    MPI_Request late;
    OK(MPI_Precv_init(&word, 1, 1, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &late));
    OK(MPI_Start(&late));
    ends_badly(&late, "a later partitioned receive");
    if (world_rank == 1) {
        OK(MPI_Comm_idup(between, &late_copy, &late));
        ends_badly(&late, "a later MPI_Comm_idup");
    }

    if (check_failures == 0) {
        printf("rank %d: %d calls failed as they should\n", world_rank, failed);
        fflush(stdout);
    }
    pause();
    return 1;
}

/* Intercommunicators: making, asking, talking across, copying, splitting, merging in both orders.
 */
#include "check.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    if (world_size < 2)
        return check_end();
    for (int split = 1; split < world_size; split += 1 + world_size / 4) {
        int side = world_rank < split ? 0 : 1, flag = -1, rank, size, remote, result = -1;
        MPI_Comm half, inter, copy, merged;
        OK(MPI_Comm_split(MPI_COMM_WORLD, side, world_rank, &half));
        /* The leaders find each other over a communicator that others use as well, at the same
         * time. */
        int leader = side ? world_size - split - 1 : 0;
        OK(MPI_Intercomm_create(half, leader, MPI_COMM_WORLD, side ? 0 : world_size - 1, 12,
                                &inter));
        OK(MPI_Comm_test_inter(inter, &flag));
        SAME(flag, 1);
        OK(MPI_Comm_rank(inter, &rank));
        OK(MPI_Comm_size(inter, &size));
        OK(MPI_Comm_remote_size(inter, &remote));
        SAME(rank, side ? world_rank - split : world_rank);
        SAME(size, side ? world_size - split : split);
        SAME(remote, world_size - size);
        /* The remote group is who it should be. */
        MPI_Group theirs, world;
        OK(MPI_Comm_remote_group(inter, &theirs));
        OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
        for (int i = 0; i < remote; i++) {
            int there = -1;
            OK(MPI_Group_translate_ranks(theirs, 1, &i, world, &there));
            SAME(there, side ? i : split + i);
        }
        OK(MPI_Group_free(&theirs));
        OK(MPI_Group_free(&world));
        /* Everybody to everybody across; ranks are those of the other group. */
        int *in = calloc((size_t)remote, sizeof *in);
        MPI_Request *r = malloc(2 * (size_t)remote * sizeof *r);
        int out = side * 1000 + rank;
        for (int i = 0; i < remote; i++) {
            OK(MPI_Irecv(&in[i], 1, MPI_INT, i, 4, inter, &r[i]));
            OK(MPI_Isend(&out, 1, MPI_INT, i, 4, inter, &r[remote + i]));
        }
        OK(MPI_Waitall(2 * remote, r, MPI_STATUSES_IGNORE));
        for (int i = 0; i < remote; i++)
            SAME(in[i], (1 - side) * 1000 + i);
        /* From anybody: the status names the rank in the remote group. */
        OK(MPI_Isend(&out, 1, MPI_INT, rank % remote, 5, inter, &r[0]));
        int expected = 0;
        for (int i = 0; i < remote; i++)
            expected += i % size == rank;
        for (int i = 0; i < expected; i++) {
            MPI_Status status;
            int value = -1;
            OK(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 5, inter, &status));
            SAME(value, (1 - side) * 1000 + status.MPI_SOURCE);
        }
        OK(MPI_Wait(&r[0], MPI_STATUS_IGNORE));
        free(in), free(r);
        /* Copies and comparison. */
        OK(MPI_Comm_dup(inter, &copy));
        OK(MPI_Comm_compare(inter, copy, &result));
        SAME(result, MPI_CONGRUENT);
        OK(MPI_Comm_compare(inter, half, &result));
        SAME(result, MPI_UNEQUAL);
        OK(MPI_Barrier(copy));
        OK(MPI_Comm_free(&copy));
        /* Merged, either side first. */
        for (int first = 0; first < 2; first++) {
            OK(MPI_Intercomm_merge(inter, side == first ? 0 : 1, &merged));
            OK(MPI_Comm_test_inter(merged, &flag));
            SAME(flag, 0);
            OK(MPI_Comm_size(merged, &size));
            SAME(size, world_size);
            int me = -1, sum = -1;
            OK(MPI_Comm_rank(merged, &me));
            SAME(me, side == first ? rank : remote + rank);
            OK(MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, merged));
            SAME(sum, world_size * (world_size - 1) / 2);
            OK(MPI_Comm_free(&merged));
        }
        /* Split: those with the same colour stay together across; where one side has none of a
         * colour nobody gets any. */
        OK(MPI_Comm_size(inter, &size));
        OK(MPI_Comm_split(inter, rank % 2, rank, &copy));
        int theirs_too = rank % 2 == 0 || remote > 1;
        SAME(copy != MPI_COMM_NULL, theirs_too);
        if (copy != MPI_COMM_NULL) {
            OK(MPI_Comm_test_inter(copy, &flag));
            SAME(flag, 1);
            int there = -1;
            OK(MPI_Comm_remote_size(copy, &there));
            SAME(there, (remote - rank % 2 + 1) / 2);
            OK(MPI_Barrier(copy));
            OK(MPI_Comm_free(&copy));
        }
        /* A part of each side. */
        MPI_Group own, part;
        OK(MPI_Comm_group(inter, &own));
        int zero = 0;
        OK(MPI_Group_incl(own, 1, &zero, &part));
        OK(MPI_Comm_create(inter, part, &copy));
        SAME(copy != MPI_COMM_NULL, rank == 0);
        if (copy != MPI_COMM_NULL) {
            int value = side, got = -1;
            OK(MPI_Sendrecv(&value, 1, MPI_INT, 0, 1, &got, 1, MPI_INT, 0, 1, copy,
                            MPI_STATUS_IGNORE));
            SAME(got, 1 - side);
            OK(MPI_Comm_free(&copy));
        }
        OK(MPI_Group_free(&own));
        OK(MPI_Group_free(&part));
        OK(MPI_Comm_free(&inter));
        OK(MPI_Comm_free(&half));
    }
    return check_end();
}

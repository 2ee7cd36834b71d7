/* Communicators of one group: copies, splits of every kind, parts of them, comparison, isolation,
 * many of them. */
#include "check.h"

static void talks(MPI_Comm comm)
{
    int rank, size, in = -1, sum = -1;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 3, &in, 1, MPI_INT,
                    (rank + size - 1) % size, 3, comm, MPI_STATUS_IGNORE));
    SAME(in, (rank + size - 1) % size);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    SAME(sum, size * (size - 1) / 2);
}

static void same_group(MPI_Comm a, MPI_Comm b, int wanted)
{
    int result = -1;
    OK(MPI_Comm_compare(a, b, &result));
    SAME(result, wanted);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm a, b, c;
    int flag = -1, rank, size;
    same_group(MPI_COMM_WORLD, MPI_COMM_WORLD, MPI_IDENT);
    same_group(MPI_COMM_WORLD, MPI_COMM_SELF, world_size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL);
    OK(MPI_Comm_test_inter(MPI_COMM_WORLD, &flag));
    SAME(flag, 0);

    /* Copies. */
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &a));
    same_group(MPI_COMM_WORLD, a, MPI_CONGRUENT);
    talks(a);
    MPI_Info info, back;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "ferry_test_hint", "7"));
    OK(MPI_Comm_dup_with_info(a, info, &b));
    talks(b);
    OK(MPI_Comm_set_info(b, info));
    OK(MPI_Comm_get_info(b, &back));
    OK(MPI_Info_free(&back));
    OK(MPI_Info_free(&info));
    MPI_Request request;
    OK(MPI_Comm_idup(b, &c, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    talks(c);
    /* What is sent on one does not arrive on another. */
    int in[3] = {-1, -1, -1}, out[3] = {10, 20, 30};
    MPI_Request r[6];
    MPI_Comm three[3] = {a, b, c};
    for (int i = 0; i < 3; i++)
        OK(MPI_Irecv(&in[i], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, three[i], &r[i]));
    for (int i = 2; i >= 0; i--)
        OK(MPI_Isend(&out[i], 1, MPI_INT, ring(1), i == 1 ? 0 : 4, three[i], &r[3 + i]));
    OK(MPI_Waitall(6, r, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 3; i++)
        SAME(in[i], out[i]);
    /* A communicator freed with a receive pending stays until it is done. */
    OK(MPI_Irecv(&in[0], 1, MPI_INT, ring(-1), 5, c, &r[0]));
    MPI_Comm last = c;
    OK(MPI_Isend(&out[1], 1, MPI_INT, ring(1), 5, c, &r[1]));
    OK(MPI_Comm_free(&c));
    SAME(c == MPI_COMM_NULL, 1);
    (void)last;
    OK(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    SAME(in[0], 20);

    /* Splits. */
    for (int colours = 1; colours <= 3; colours++) {
        OK(MPI_Comm_split(a, world_rank % colours, 0, &c));
        OK(MPI_Comm_rank(c, &rank));
        OK(MPI_Comm_size(c, &size));
        SAME(rank, world_rank / colours);
        SAME(size, (world_size - world_rank % colours + colours - 1) / colours);
        talks(c);
        OK(MPI_Comm_free(&c));
    }
    OK(MPI_Comm_split(a, 5, -world_rank, &c));
    OK(MPI_Comm_rank(c, &rank));
    SAME(rank, world_size - 1 - world_rank);
    same_group(a, c, world_size > 1 ? MPI_SIMILAR : MPI_CONGRUENT);
    talks(c);
    OK(MPI_Comm_free(&c));
    OK(MPI_Comm_split(a, world_rank == 0 ? MPI_UNDEFINED : 1, 0, &c));
    SAME(c == MPI_COMM_NULL, world_rank == 0);
    if (c != MPI_COMM_NULL) {
        OK(MPI_Comm_size(c, &size));
        SAME(size, world_size - 1);
        talks(c);
        OK(MPI_Comm_free(&c));
    }
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_rank, MPI_INFO_NULL, &c));
    OK(MPI_Comm_size(c, &size));
    /* This test runs on one node. Ranks of a modelled machine share no memory. */
    SAME(size, getenv("TEST_MACHINE") ? 1 : world_size);
    talks(c);
    OK(MPI_Comm_free(&c));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_UNDEFINED, 0, MPI_INFO_NULL, &c));
    SAME(c == MPI_COMM_NULL, 1);

    /* From groups: by everybody, by several disjoint groups at once, by the members alone. */
    MPI_Group world, part;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    int evens[3] = {0, (world_size - 1) / 2 * 2, 2};
    OK(MPI_Group_range_incl(world, 1, &evens, &part));
    OK(MPI_Comm_create(MPI_COMM_WORLD, part, &c));
    SAME(c == MPI_COMM_NULL, world_rank % 2);
    if (c != MPI_COMM_NULL) {
        talks(c);
        OK(MPI_Comm_free(&c));
    }
    OK(MPI_Group_free(&part));
    int half[3] = {world_rank < world_size / 2 ? 0 : world_size / 2,
                   world_rank < world_size / 2 ? world_size / 2 - 1 : world_size - 1, 1};
    OK(MPI_Group_range_incl(world, 1, &half, &part));
    OK(MPI_Comm_create(MPI_COMM_WORLD, part, &c));
    OK(MPI_Comm_size(c, &size));
    SAME(size, half[1] - half[0] + 1);
    talks(c);
    OK(MPI_Comm_free(&c));
    OK(MPI_Comm_create_group(MPI_COMM_WORLD, part, 99, &c));
    talks(c);
    OK(MPI_Comm_free(&c));
    OK(MPI_Group_free(&part));
    if (world_rank > 0 || world_size == 1) {
        int rest[3] = {world_size == 1 ? 0 : 1, world_size - 1, 1};
        OK(MPI_Group_range_incl(world, 1, &rest, &part));
        OK(MPI_Comm_create_group(MPI_COMM_WORLD, part, 7, &c)); /* rank 0 takes no part */
        talks(c);
        OK(MPI_Comm_free(&c));
        OK(MPI_Group_free(&part));
    }
    OK(MPI_Group_free(&world));

    /* Many at once, and many one after the other. */
    enum { MANY = 100 };
    MPI_Comm many[MANY];
    for (int i = 0; i < MANY; i++)
        OK(MPI_Comm_dup(i ? many[i - 1] : MPI_COMM_WORLD, &many[i]));
    talks(many[MANY - 1]);
    talks(many[0]);
    for (int i = 0; i < MANY; i += 2)
        OK(MPI_Comm_free(&many[i]));
    for (int i = 1; i < MANY; i += 2) {
        if (i % 20 == 1)
            talks(many[i]);
        OK(MPI_Comm_free(&many[i]));
    }
    for (int i = 0; i < 400; i++) {
        OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank & 1, world_rank, &c));
        OK(MPI_Comm_free(&c));
    }
    /* Different ranks make different numbers of communicators; later ones still agree. */
    for (int i = 0; i < world_rank % 3; i++) {
        OK(MPI_Comm_dup(MPI_COMM_SELF, &c));
        talks(c);
        OK(MPI_Comm_free(&c));
    }
    OK(MPI_Comm_dup(a, &c));
    talks(c);
    OK(MPI_Comm_disconnect(&c));
    SAME(c == MPI_COMM_NULL, 1);
    OK(MPI_Comm_free(&a));
    OK(MPI_Comm_free(&b));
    return check_end();
}

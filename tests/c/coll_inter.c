/* Every collective that intercommunicators have, on two groups of unequal size, in both directions,
 * for each root. */
#include "naive.h"

static MPI_Comm inter;
static int side, rank, local, remote;

/* The value that rank r of a side gives at place i. */
static int value(int of_side, int r, int i)
{
    return of_side * 100000 + r * 1000 + i;
}

static void rooted(int root_side, int root, int n)
{
    int is_root = side == root_side && rank == root;
    int who = side != root_side ? root : is_root ? MPI_ROOT : MPI_PROC_NULL;
    int *one = calloc((size_t)n + 1, sizeof(int)),
        *all = calloc((size_t)(n * remote) + 1, sizeof(int));

    for (int i = 0; i < n; i++)
        one[i] = is_root ? value(root_side, root, i) : -1;
    OK(MPI_Bcast(one, n, MPI_INT, who, inter));
    for (int i = 0; i < n && side != root_side; i++)
        SAME(one[i], value(root_side, root, i));

    for (int i = 0; i < n; i++)
        one[i] = value(side, rank, i);
    if (is_root) {
        OK(MPI_Gather(NULL, 0, MPI_INT, all, n, MPI_INT, who, inter));
        for (int r = 0; r < remote; r++)
            for (int i = 0; i < n; i++)
                SAME(all[r * n + i], value(1 - side, r, i));
    } else {
        OK(MPI_Gather(one, n, MPI_INT, NULL, 0, MPI_INT, who, inter));
    }

    int *counts = calloc((size_t)(local > remote ? local : remote), sizeof(int));
    int *places = calloc((size_t)(local > remote ? local : remote), sizeof(int));
    int at = 0;
    for (int r = 0; r < remote; r++) {
        counts[r] = r % (n + 1);
        places[r] = at;
        at += counts[r];
    }
    if (is_root) {
        memset(all, 0xff, (size_t)(n * remote) * sizeof(int));
        OK(MPI_Gatherv(NULL, 0, MPI_INT, all, counts, places, MPI_INT, who, inter));
        for (int r = 0; r < remote; r++)
            for (int i = 0; i < counts[r]; i++)
                SAME(all[places[r] + i], value(1 - side, r, i));
    } else {
        OK(MPI_Gatherv(one, side != root_side ? rank % (n + 1) : 0, MPI_INT, NULL, NULL, NULL,
                       MPI_INT, who, inter));
    }

    if (is_root) {
        for (int r = 0; r < remote; r++)
            for (int i = 0; i < n; i++)
                all[r * n + i] = r * 77 + i;
        OK(MPI_Scatter(all, n, MPI_INT, NULL, 0, MPI_INT, who, inter));
        for (int r = 0; r < remote; r++)
            for (int i = 0; i < counts[r]; i++)
                all[places[r] + i] = r * 99 + i;
        OK(MPI_Scatterv(all, counts, places, MPI_INT, NULL, 0, MPI_INT, who, inter));
    } else {
        OK(MPI_Scatter(NULL, 0, MPI_INT, one, n, MPI_INT, who, inter));
        for (int i = 0; i < n && side != root_side; i++)
            SAME(one[i], rank * 77 + i);
        OK(MPI_Scatterv(NULL, NULL, NULL, MPI_INT, one, side != root_side ? rank % (n + 1) : 0,
                        MPI_INT, who, inter));
        for (int i = 0; i < rank % (n + 1) && side != root_side; i++)
            SAME(one[i], rank * 99 + i);
    }

    for (int i = 0; i < n; i++)
        one[i] = rank + i;
    if (is_root) {
        memset(all, 0xff, (size_t)n * sizeof(int));
        OK(MPI_Reduce(NULL, all, n, MPI_INT, MPI_SUM, who, inter));
        for (int i = 0; i < n; i++)
            SAME(all[i], remote * (remote - 1) / 2 + remote * i);
    } else {
        OK(MPI_Reduce(one, NULL, n, MPI_INT, MPI_SUM, who, inter));
    }
    free(one), free(all), free(counts), free(places);
}

static void symmetric(int n)
{
    int *one = calloc((size_t)(n * remote) + 1, sizeof(int)),
        *all = calloc((size_t)(n * remote) + 1, sizeof(int));
    for (int i = 0; i < n; i++)
        one[i] = value(side, rank, i);
    OK(MPI_Allgather(one, n, MPI_INT, all, n, MPI_INT, inter));
    for (int r = 0; r < remote; r++)
        for (int i = 0; i < n; i++)
            SAME(all[r * n + i], value(1 - side, r, i));
    int *counts = calloc((size_t)remote, sizeof(int)),
        *places = calloc((size_t)remote, sizeof(int)), at = 0;
    for (int r = 0; r < remote; r++) {
        counts[r] = r % (n + 1);
        places[r] = at;
        at += counts[r];
    }
    memset(all, 0xff, (size_t)(n * remote) * sizeof(int));
    OK(MPI_Allgatherv(one, rank % (n + 1), MPI_INT, all, counts, places, MPI_INT, inter));
    for (int r = 0; r < remote; r++)
        for (int i = 0; i < counts[r]; i++)
            SAME(all[places[r] + i], value(1 - side, r, i));
    for (int r = 0; r < remote; r++)
        for (int i = 0; i < n; i++)
            one[r * n + i] = side * 10000 + rank * 100 + r;
    OK(MPI_Alltoall(one, n, MPI_INT, all, n, MPI_INT, inter));
    for (int r = 0; r < remote; r++)
        for (int i = 0; i < n; i++)
            SAME(all[r * n + i], (1 - side) * 10000 + r * 100 + rank);
    int *even = calloc((size_t)remote, sizeof(int)), *bytes = calloc((size_t)remote, sizeof(int));
    MPI_Datatype *types = calloc((size_t)remote, sizeof *types);
    for (int r = 0; r < remote; r++) {
        even[r] = n;
        places[r] = r * n;
        bytes[r] = r * n * (int)sizeof(int);
        types[r] = MPI_INT;
    }
    memset(all, 0xff, (size_t)(n * remote) * sizeof(int));
    OK(MPI_Alltoallv(one, even, places, MPI_INT, all, even, places, MPI_INT, inter));
    for (int r = 0; r < remote; r++)
        for (int i = 0; i < n; i++)
            SAME(all[r * n + i], (1 - side) * 10000 + r * 100 + rank);
    memset(all, 0xff, (size_t)(n * remote) * sizeof(int));
    OK(MPI_Alltoallw(one, even, bytes, types, all, even, bytes, types, inter));
    for (int r = 0; r < remote; r++)
        for (int i = 0; i < n; i++)
            SAME(all[r * n + i], (1 - side) * 10000 + r * 100 + rank);
    free(even), free(bytes), free(types), free(counts), free(places);

    for (int i = 0; i < n; i++)
        one[i] = rank + i;
    OK(MPI_Allreduce(one, all, n, MPI_INT, MPI_SUM, inter)); /* each side gets the other's sum */
    for (int i = 0; i < n; i++)
        SAME(all[i], remote * (remote - 1) / 2 + remote * i);
    free(one), free(all);

    /* Reduce_scatter: the other side's sum, dealt out over this side's ranks. */
    int block = remote, total = local * block; /* both sides give local * remote elements */
    one = calloc((size_t)total, sizeof(int)), all = calloc((size_t)block, sizeof(int));
    for (int i = 0; i < total; i++)
        one[i] = rank + i;
    OK(MPI_Reduce_scatter_block(one, all, block, MPI_INT, MPI_SUM, inter));
    for (int i = 0; i < block; i++)
        SAME(all[i], remote * (remote - 1) / 2 + remote * (rank * block + i));
    counts = calloc((size_t)local, sizeof(int));
    for (int r = 0; r < local; r++)
        counts[r] = block;
    memset(all, 0xff, (size_t)block * sizeof(int));
    OK(MPI_Reduce_scatter(one, all, counts, MPI_INT, MPI_SUM, inter));
    for (int i = 0; i < block; i++)
        SAME(all[i], remote * (remote - 1) / 2 + remote * (rank * block + i));
    free(one), free(all), free(counts);
    OK(MPI_Barrier(inter));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    if (world_size < 2)
        return check_end();
    for (int split = 1; split < world_size; split = split * 2 + 1) {
        side = world_rank < split ? 0 : 1;
        MPI_Comm half;
        OK(MPI_Comm_split(MPI_COMM_WORLD, side, world_rank, &half));
        OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side ? 0 : split, 5, &inter));
        OK(MPI_Comm_rank(inter, &rank));
        OK(MPI_Comm_size(inter, &local));
        OK(MPI_Comm_remote_size(inter, &remote));
        static const int sizes[] = {1, 7, 900};
        for (int k = 0; k < 3; k++) {
            for (int of = 0; of < 2; of++) {
                int there = of == side ? local : remote;
                for (int root = 0; root < there; root += there > 3 ? there - 1 : 1)
                    rooted(of, root, sizes[k]);
            }
            symmetric(sizes[k]);
        }
        OK(MPI_Comm_free(&inter));
        OK(MPI_Comm_free(&half));
    }
    return check_end();
}

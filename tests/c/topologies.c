/* Cartesian grids, graphs and distributed graphs: coordinates, neighbours, shifts, sub-grids, and
 * messages along them. */
#include "check.h"

static void dimensions(void)
{
    for (int n = 1; n <= 64; n++)
        for (int d = 1; d <= 4; d++) {
            int dims[4] = {0, 0, 0, 0}, product = 1;
            OK(MPI_Dims_create(n, d, dims));
            for (int i = 0; i < d; i++) {
                product *= dims[i];
                CHECK(i == 0 || dims[i] <= dims[i - 1], "Dims_create(%d, %d): dimensions grow", n,
                      d);
            }
            SAME(product, n);
        }
    int some[3] = {0, 3, 0};
    OK(MPI_Dims_create(12, 3, some));
    SAME(some[1], 3);
    SAME(some[0] * some[2], 4);
    SAME(some[0], 2);
    int none[2] = {3, 4};
    OK(MPI_Dims_create(12, 2, none));
    SAME(none[0], 3);
}

static void grid(int dims_count, int mask)
{
    int dims[3] = {0, 0, 0}, periods[3], coords[3], got_dims[3], got_periods[3];
    for (int i = 0; i < dims_count; i++)
        periods[i] = mask >> i & 1;
    OK(MPI_Dims_create(world_size, dims_count, dims));
    MPI_Comm comm, line;
    OK(MPI_Cart_create(MPI_COMM_WORLD, dims_count, dims, periods, 0, &comm));
    int status = -1, count = -1, rank = -1, back = -1;
    OK(MPI_Topo_test(comm, &status));
    SAME(status, MPI_CART);
    OK(MPI_Cartdim_get(comm, &count));
    SAME(count, dims_count);
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Cart_get(comm, 3, got_dims, got_periods, coords));
    for (int i = 0; i < dims_count; i++) {
        SAME(got_dims[i], dims[i]);
        SAME(got_periods[i], periods[i]);
    }
    for (int r = 0; r < world_size; r++) {
        int at[3], place = 0;
        OK(MPI_Cart_coords(comm, r, dims_count, at));
        for (int i = 0; i < dims_count; i++) {
            CHECK(at[i] >= 0 && at[i] < dims[i], "coordinate %d of rank %d is %d", i, r, at[i]);
            place = place * dims[i] + at[i];
        }
        SAME(place, r); /* row after row */
        OK(MPI_Cart_rank(comm, at, &back));
        SAME(back, r);
        for (int i = 0; i < dims_count; i++)
            if (periods[i]) {
                at[i] -= 3 * dims[i]; /* out of range means round and round */
                OK(MPI_Cart_rank(comm, at, &back));
                SAME(back, r);
                at[i] += 3 * dims[i];
            }
    }
    for (int i = 0; i < dims_count; i++)
        for (int distance = -2; distance <= 2; distance++) {
            int from = -9, to = -9;
            OK(MPI_Cart_shift(comm, i, distance, &from, &to));
            int there[3] = {coords[0], coords[1], coords[2]}, wanted = MPI_PROC_NULL;
            there[i] = coords[i] + distance;
            if (periods[i] || (there[i] >= 0 && there[i] < dims[i])) {
                there[i] = (there[i] + 4 * dims[i]) % dims[i];
                OK(MPI_Cart_rank(comm, there, &wanted));
            }
            SAME(to, wanted);
            int in = -1;
            OK(MPI_Sendrecv(&rank, 1, MPI_INT, to, 3, &in, 1, MPI_INT, from, 3, comm,
                            MPI_STATUS_IGNORE));
            SAME(in, from == MPI_PROC_NULL ? -1 : from);
        }
    /* Lines along each dimension. */
    for (int i = 0; i < dims_count; i++) {
        int keep[3] = {i == 0, i == 1, i == 2}, size, at, of_dims, of_periods;
        OK(MPI_Cart_sub(comm, keep, &line));
        OK(MPI_Comm_size(line, &size));
        SAME(size, dims[i]);
        OK(MPI_Cart_get(line, 1, &of_dims, &of_periods, &at));
        SAME(of_dims, dims[i]);
        SAME(of_periods, periods[i]);
        SAME(at, coords[i]);
        OK(MPI_Comm_free(&line));
    }
    /* Copies keep the grid. */
    OK(MPI_Comm_dup(comm, &line));
    OK(MPI_Topo_test(line, &status));
    SAME(status, MPI_CART);
    OK(MPI_Cartdim_get(line, &count));
    SAME(count, dims_count);
    OK(MPI_Comm_free(&line));
    OK(MPI_Comm_free(&comm));
}

static void small_grid(void)
{
    /* Fewer places than ranks: the rest gets nothing. */
    MPI_Comm comm;
    int dims[1] = {world_size > 1 ? world_size - 1 : 1}, periods[1] = {0};
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 1, &comm));
    if (comm != MPI_COMM_NULL)
        OK(MPI_Comm_free(&comm));
    /* No places at all. */
    int none[2] = {2, 0}, rank = -1;
    OK(MPI_Cart_map(MPI_COMM_WORLD, 2, none, (int[]){0, 0}, &rank));
    SAME(rank, MPI_UNDEFINED);
    OK(MPI_Cart_map(MPI_COMM_WORLD, 1, dims, periods, &rank));
    SAME(rank, world_rank < dims[0] ? world_rank : MPI_UNDEFINED);
    /* No dimensions at all: one rank has it. */
    OK(MPI_Cart_create(MPI_COMM_WORLD, 0, NULL, NULL, 0, &comm));
    if (comm != MPI_COMM_NULL) {
        int count = -1, size = -1;
        OK(MPI_Cartdim_get(comm, &count));
        SAME(count, 0);
        OK(MPI_Comm_size(comm, &size));
        SAME(size, 1);
        OK(MPI_Comm_free(&comm));
    } else {
        CHECK(world_rank != 0, "rank 0 is not in the grid without dimensions");
    }
}

/* A ring with a chord to rank 0. */
static void graph(void)
{
    int n = world_size, *index = malloc((size_t)n * sizeof *index),
        *edges = malloc(3 * (size_t)n * sizeof *edges), total = 0;
    for (int i = 0; i < n; i++) {
        edges[total++] = (i + n - 1) % n;
        edges[total++] = (i + 1) % n;
        if (i > 1)
            edges[total++] = 0;
        index[i] = total;
    }
    MPI_Comm comm;
    OK(MPI_Graph_create(MPI_COMM_WORLD, n, index, edges, 0, &comm));
    int status = -1, nodes = -1, arcs = -1, count = -1, near[3] = {-1, -1, -1};
    OK(MPI_Topo_test(comm, &status));
    SAME(status, MPI_GRAPH);
    OK(MPI_Graphdims_get(comm, &nodes, &arcs));
    SAME(nodes, n);
    SAME(arcs, total);
    int *got_index = malloc((size_t)n * sizeof *got_index),
        *got_edges = malloc((size_t)total * sizeof *got_edges);
    OK(MPI_Graph_get(comm, n, total, got_index, got_edges));
    for (int i = 0; i < n; i++)
        SAME(got_index[i], index[i]);
    for (int i = 0; i < total; i++)
        SAME(got_edges[i], edges[i]);
    for (int r = 0; r < n; r++) {
        OK(MPI_Graph_neighbors_count(comm, r, &count));
        SAME(count, r > 1 ? 3 : 2);
        OK(MPI_Graph_neighbors(comm, r, count, near));
        SAME(near[0], (r + n - 1) % n);
        SAME(near[1], (r + 1) % n);
        if (count == 3)
            SAME(near[2], 0);
    }
    OK(MPI_Comm_free(&comm));
    free(index), free(edges), free(got_index), free(got_edges);
}

static int sorted(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Each rank points to the next two; made from both sides, and from edges that anybody names. */
static void distributed(void)
{
    int n = world_size, out[2] = {ring(1), ring(2)}, in[2] = {ring(-1), ring(-2)},
        weights[2] = {3, 4}, other[2] = {3, 4};
    for (int made = 0; made < 2; made++) {
        MPI_Comm comm;
        if (made == 0) {
            OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, in, weights, 2, out, other,
                                              MPI_INFO_NULL, 0, &comm));
        } else {
            /* Rank r names the edges of rank r + 1. */
            int source = ring(1), degree = 2, to[2] = {(source + 1) % n, (source + 2) % n};
            OK(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &source, &degree, to, weights,
                                     MPI_INFO_NULL, 0, &comm));
        }
        int status = -1, in_count = -1, out_count = -1, weighted = -1;
        OK(MPI_Topo_test(comm, &status));
        SAME(status, MPI_DIST_GRAPH);
        OK(MPI_Dist_graph_neighbors_count(comm, &in_count, &out_count, &weighted));
        SAME(in_count, 2);
        SAME(out_count, 2);
        SAME(weighted != 0, 1);
        int sources[2], source_weights[2], targets[2], target_weights[2];
        OK(MPI_Dist_graph_neighbors(comm, 2, sources, source_weights, 2, targets, target_weights));
        for (int i = 0; i < 2; i++) {
            int at = targets[i] == out[0] && !(i == 1 && targets[0] == out[0]) ? 0 : 1;
            SAME(targets[i], out[at]);
            if (out[0] != out[1])
                SAME(target_weights[i], weights[at]);
        }
        if (made == 0) { /* in this form the order is the program's own */
            SAME(targets[0], out[0]);
            SAME(sources[0], in[0]);
            SAME(sources[1], in[1]);
        }
        int wanted[2] = {in[0], in[1]};
        qsort(sources, 2, sizeof(int), sorted);
        qsort(wanted, 2, sizeof(int), sorted);
        SAME(sources[0], wanted[0]);
        SAME(sources[1], wanted[1]);
        OK(MPI_Comm_free(&comm));
    }
    MPI_Comm comm;
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_WEIGHTS_EMPTY, 0, NULL,
                                      MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0, &comm));
    int a = -1, b = -1, weighted = -1;
    OK(MPI_Dist_graph_neighbors_count(comm, &a, &b, &weighted));
    SAME(a, 0);
    SAME(b, 0);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, in, MPI_UNWEIGHTED, 2, out, MPI_UNWEIGHTED,
                                      MPI_INFO_NULL, 1, &comm));
    OK(MPI_Dist_graph_neighbors_count(comm, &a, &b, &weighted));
    SAME(weighted, 0);
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    int status = -1;
    OK(MPI_Topo_test(MPI_COMM_WORLD, &status));
    SAME(status, MPI_UNDEFINED);
    dimensions();
    for (int d = 1; d <= 3; d++)
        for (int mask = 0; mask < 1 << d; mask++)
            grid(d, mask);
    small_grid();
    graph();
    distributed();
    return check_end();
}

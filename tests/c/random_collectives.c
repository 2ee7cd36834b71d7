/* Collectives made up at random against naive forms of sends: all functions, forms and datatypes of
 * random_problem.h on communicators of many shapes, several under way at once, with point-to-point
 * traffic between, completed in an order that each rank makes up for itself; persistent ones are
 * started again.
 *
 *     random_collectives [SEED|fresh [BATCHES]]     fresh: another seed in each run
 *
 * An even seed chooses the algorithms at random, too; with an odd one, and so with a fresh one, the
 * library does. The seed stands in each failure's text and in the communicators' names, so that a
 * hang's report tells it, too. */
// run: 1
// run: 2
// run: 4
// run: fresh
// ranks: 1 2 3 4 5 7 16
// time: 150
#include "random_problem.h"

#include <time.h>
#include <unistd.h>

enum { MOST = 6, MESSAGES = 12, MESSAGE = 30000 };

static uint64_t seed;
static Ground grounds[12];
static int ground_count;

static void add(const char *name, MPI_Comm comm)
{
    Ground *g = &grounds[ground_count++];
    int between, kind;
    char label[MPI_MAX_OBJECT_NAME];
    *g = (Ground){.name = name, .comm = comm, .remote = -1, .sources = -1, .dests = -1};
    snprintf(label, sizeof label, "%s, seed %" PRIu64, name, seed);
    OK(MPI_Comm_set_name(comm, label));
    OK(MPI_Comm_rank(comm, &g->rank));
    OK(MPI_Comm_size(comm, &g->size));
    OK(MPI_Comm_test_inter(comm, &between));
    if (between)
        OK(MPI_Comm_remote_size(comm, &g->remote));
    OK(MPI_Topo_test(comm, &kind));
    if (kind == MPI_CART) {
        OK(MPI_Cartdim_get(comm, &g->sources));
        g->grid = 1;
        g->dests = g->sources *= 2;
        g->source = malloc((size_t)g->sources * sizeof(int)),
        g->dest = malloc((size_t)g->sources * sizeof(int));
        for (int d = 0; d < g->sources / 2; d++)
            OK(MPI_Cart_shift(comm, d, 1, &g->source[2 * d], &g->source[2 * d + 1]));
        memcpy(g->dest, g->source, (size_t)g->sources * sizeof(int));
    } else if (kind == MPI_DIST_GRAPH) {
        int weighted;
        OK(MPI_Dist_graph_neighbors_count(comm, &g->sources, &g->dests, &weighted));
        g->source = malloc((size_t)(g->sources + 1) * sizeof(int)),
        g->dest = malloc((size_t)(g->dests + 1) * sizeof(int));
        OK(MPI_Dist_graph_neighbors(comm, g->sources, g->source, MPI_UNWEIGHTED, g->dests, g->dest,
                                    MPI_UNWEIGHTED));
    }
    OK(MPI_Comm_dup(comm, &g->beside));
}

static void choose_algorithms(void)
{
    static const char *const choices[][8] = {
        {"BARRIER", "dissemination", "binomial"},
        {"BCAST", "flat", "binomial", "scatter_doubling", "scatter_ring", "chain", "binary_tree",
         "two_trees"},
        {"REDUCE", "flat", "binomial", "halving", "binary_tree", "two_trees"},
        {"ALLREDUCE", "doubling", "halving", "ring", "reduce_bcast"},
        {"GATHER", "flat", "binomial"},
        {"SCATTER", "flat", "binomial"},
        {"ALLGATHER", "doubling", "bruck", "ring", "gather_bcast"},
        {"ALLGATHERV", "bruck", "ring"},
        {"ALLTOALL", "bruck", "spread", "pairwise"},
        {"REDUCE_SCATTER", "halving", "pairwise", "reduce_scatter"},
        {"SCAN", "doubling", "chain", "binary_tree"}};
    Random random = random_from(seed);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        char name[40];
        int n = 1;
        while (n < 8 && choices[i][n])
            n++;
        snprintf(name, sizeof name, "FERRY_COLL_%s", choices[i][0]);
        setenv(name, choices[i][1 + random_below(&random, n - 1)], 0);
    }
}

/* Communicators of the same shape on every rank: the whole world in two orders, parts of it, grids,
 * a graph, two groups. */
static void make_grounds(void)
{
    MPI_Comm comm, part;
    Random random = random_from(seed ^ 0x5eed);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    add("the world", comm);
    OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm));
    add("the world turned round", comm);
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comm));
    add("even or odd", comm);
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank < (2 * world_size + 2) / 3, (world_rank * 7) % 5,
                      &comm));
    add("a part", comm);
    int dims[2] = {0, 0}, periods[2] = {random_below(&random, 2), 1};
    OK(MPI_Dims_create(world_size, 2, dims));
    OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &comm));
    add("a grid", comm);

    enum { EDGES = 40 };
    int from[EDGES], to[EDGES], sources[EDGES], dests[EDGES], in = 0, out = 0,
                                                              edges = random_below(&random, EDGES);
    for (int i = 0; i < edges; i++) { /* loops and double edges among them */
        from[i] = random_below(&random, world_size), to[i] = random_below(&random, world_size);
        if (to[i] == world_rank)
            sources[in++] = from[i];
        if (from[i] == world_rank)
            dests[out++] = to[i];
    }
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in, sources, MPI_UNWEIGHTED, out, dests,
                                      MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm));
    add("a graph", comm);

    if (world_size > 1) {
        int cut = 1 + random_below(&random, world_size - 1), side = world_rank >= cut;
        OK(MPI_Comm_split(MPI_COMM_WORLD, side, side ? -world_rank : world_rank, &part));
        OK(MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, side ? 0 : world_size - 1, 3, &comm));
        OK(MPI_Comm_free(&part));
        add("two groups", comm);
        grounds[ground_count - 1].side = side;
    }
}

/* Messages between pairs, the same plan on every rank, on a communicator where collectives are
 * under way. */
typedef struct {
    MPI_Request requests[2 * MESSAGES];
    unsigned char *in[MESSAGES], *out[MESSAGES];
    int bytes[MESSAGES], count;
    uint64_t key;
} Traffic;

static void traffic_start(Traffic *t, uint64_t key)
{
    Random random = random_from(key);
    const Ground *g = &grounds[random_below(&random, 2)]; /* the two with everybody in them */
    int messages = random_below(&random, MESSAGES + 1);
    memset(t, 0, sizeof *t);
    t->key = key;
    for (int i = 0; i < messages; i++) {
        int from = random_below(&random, world_size), to = random_below(&random, world_size),
            synchronous = random_below(&random, 2);
        t->bytes[i] = random_size(&random, MESSAGE);
        if (g->rank == to) {
            t->in[i] = malloc((size_t)t->bytes[i] + 1);
            OK(MPI_Irecv(t->in[i], t->bytes[i], MPI_BYTE, from, i, g->comm,
                         &t->requests[t->count++]));
        }
        if (g->rank == from) {
            t->out[i] = malloc((size_t)t->bytes[i] + 1);
            fill(t->out[i], (size_t)t->bytes[i], key + (uint64_t)i);
            OK((synchronous ? MPI_Issend : MPI_Isend)(t->out[i], t->bytes[i], MPI_BYTE, to, i,
                                                      g->comm, &t->requests[t->count++]));
        }
    }
}

static void traffic_check(Traffic *t)
{
    for (int i = 0; i < MESSAGES; i++) {
        if (t->in[i])
            CHECK(differs(t->in[i], (size_t)t->bytes[i], t->key + (uint64_t)i) ==
                      (size_t)t->bytes[i],
                  "seed %" PRIu64 ": message %d of %d bytes beside the collectives came wrong",
                  seed, i, t->bytes[i]);
        free(t->in[i]), free(t->out[i]);
    }
}

/* Completes all requests in one of the ways there are, chosen by this rank alone. */
static void complete(int n, MPI_Request *requests, Random *own)
{
    int left = n, some[MOST + 2 * MESSAGES];
    switch (random_below(own, 5)) {
    case 0:
        OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
        break;
    case 1:
        for (int i = n - 1; i >= 0; i--)
            OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        break;
    case 2:
        for (int index = 0; index != MPI_UNDEFINED;)
            OK(MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE));
        break;
    case 3:
        for (int done = 0; done != MPI_UNDEFINED;)
            OK(MPI_Waitsome(n, requests, &done, some, MPI_STATUSES_IGNORE));
        break;
    default:
        while (left > 0) {
            int i = random_below(own, n), flag = 0;
            if (requests[i] == MPI_REQUEST_NULL) {
                left = 0;
                for (int k = 0; k < n; k++)
                    left += requests[k] != MPI_REQUEST_NULL;
                continue;
            }
            OK(MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE));
            if (flag) { /* a persistent one stays, inactive */
                requests[i] = MPI_REQUEST_NULL;
            } else if (random_below(own, 4) == 0) {
                OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
                requests[i] = MPI_REQUEST_NULL;
            }
        }
    }
}

static void batch(int number)
{
    uint64_t key = seed * 0x9e3779b97f4a7c15u + (uint64_t)number * 7919;
    Random random = random_from(key), own = random_from(key ^ (uint64_t)(world_rank + 1) * 104729);
    int n = 1 + random_below(&random, MOST), rounds = 1;
    Problem problems[MOST];
    Traffic traffic;
    for (int i = 0; i < n; i++) {
        int which = random_below(&random, ground_count), form = random_below(&random, FORMS);
        problem_make(&problems[i], &grounds[which], key + (uint64_t)i * 131, form);
        rounds = form == PERSISTENT ? 2 : rounds;
    }
    for (int round = 0; round < rounds; round++) {
        MPI_Request requests[MOST + 2 * MESSAGES];
        int active[MOST], under_way = 0;
        traffic_start(&traffic, key + (uint64_t)round * 17);
        for (int i = 0; i < n; i++) {
            Problem *p = &problems[i];
            if (round == 0)
                problem_call(p);
            else if (p->form == PERSISTENT)
                problem_reset(p);
            if (p->form == PERSISTENT)
                OK(MPI_Start(&p->request));
            if (p->form == BLOCKING || (round > 0 && p->form == NONBLOCKING))
                continue;
            active[under_way] = i;
            requests[under_way++] = p->request;
            int flag;
            if (random_below(&own, 3) == 0)
                OK(MPI_Request_get_status(requests[random_below(&own, under_way)], &flag,
                                          MPI_STATUS_IGNORE));
        }
        memcpy(requests + under_way, traffic.requests, (size_t)traffic.count * sizeof *requests);
        complete(under_way + traffic.count, requests, &own);
        for (int i = 0; i < under_way; i++)
            if (problems[active[i]].form == NONBLOCKING)
                problems[active[i]].request = MPI_REQUEST_NULL;
        traffic_check(&traffic);
        for (int i = 0; i < n; i++)
            if (round == 0 || problems[i].form == PERSISTENT)
                problem_check(&problems[i]);
    }
    for (int i = 0; i < n; i++) {
        if (problems[i].form == PERSISTENT)
            OK(MPI_Request_free(&problems[i].request));
        problem_free(&problems[i]);
    }
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    int fresh = argc > 1 && strcmp(argv[1], "fresh") == 0;
    if (!fresh && seed % 2 == 0)
        choose_algorithms();
    check_begin(&argc, &argv);
    if (fresh) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = ((uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec + (uint64_t)getpid()) %
                   1000000000u |
               1;
    }
    OK(MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
    int batches = argc > 2           ? atoi(argv[2])
                  : world_size <= 4  ? 1200
                  : world_size <= 8  ? 600
                  : world_size <= 16 ? 200
                                     : 25;
    random_types_make();
    make_grounds();
    for (int i = 0; i < batches; i++) {
        batch(i);
        if (check_failures) {
            fprintf(stderr, "rank %d of %d: again with: random_collectives %" PRIu64 " %d\n",
                    world_rank, world_size, seed, batches);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    for (int i = 0; i < ground_count; i++) {
        OK(MPI_Comm_free(&grounds[i].comm));
        OK(MPI_Comm_free(&grounds[i].beside));
        free(grounds[i].source), free(grounds[i].dest);
    }
    random_types_free();
    return check_end();
}

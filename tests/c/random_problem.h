/* One collective call made up at random, what it must give by naive sends, and the call itself in
 * all its forms: blocking, non-blocking and persistent, with ints and with MPI_Counts, on intra-
 * and intercommunicators and in neighbourhoods. */
#ifndef FERRY_TESTS_RANDOM_PROBLEM_H
#define FERRY_TESTS_RANDOM_PROBLEM_H

#include "random_types.h"

enum {
    BCAST,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    ALLTOALLW,
    REDUCE,
    ALLREDUCE,
    REDUCE_SCATTER_BLOCK,
    REDUCE_SCATTER,
    BARRIER,
    BETWEEN_GROUPS, /* those before are for intercommunicators, too */
    SCAN = BETWEEN_GROUPS,
    EXSCAN,
    NEAR_ALLGATHER,
    NEAR_ALLGATHERV,
    NEAR_ALLTOALL,
    NEAR_ALLTOALLV,
    NEAR_ALLTOALLW,
    KINDS
};
static const char *const kind_names[KINDS] = {"Bcast",
                                              "Gather",
                                              "Gatherv",
                                              "Scatter",
                                              "Scatterv",
                                              "Allgather",
                                              "Allgatherv",
                                              "Alltoall",
                                              "Alltoallv",
                                              "Alltoallw",
                                              "Reduce",
                                              "Allreduce",
                                              "Reduce_scatter_block",
                                              "Reduce_scatter",
                                              "Barrier",
                                              "Scan",
                                              "Exscan",
                                              "Neighbor_allgather",
                                              "Neighbor_allgatherv",
                                              "Neighbor_alltoall",
                                              "Neighbor_alltoallv",
                                              "Neighbor_alltoallw"};
enum { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };
static const char *const form_names[FORMS] = {"blocking", "non-blocking", "persistent"};

/* A communicator to play on; the naive form has one of its own. */
typedef struct {
    const char *name;
    MPI_Comm comm, beside;
    int rank, size, remote; /* remote: of the other group, or -1 */
    int side;               /* which of an intercommunicator's groups this process is in */
    int sources, dests, *source, *dest; /* neighbours; -1, -1 if it has no topology */
    int grid; /* Cartesian: neighbour 2d of one is neighbour 2d + 1 of the other */
} Ground;

typedef struct {
    int peer, tag, count, place, known; /* known: the data are there already (in place) */
} Edge;

/* One buffer: a block for each edge, in elements of `type`. */
typedef struct {
    int edges, many;
    Edge *edge;
    MPI_Datatype type;
    MPI_Aint extent;
    size_t bytes;
    unsigned char *at, *first; /* the buffer, and what is in it before the call */
    int *counts, *displs;
    MPI_Count *big_counts;
    MPI_Aint *big_displs;
    MPI_Datatype *types;
} Side;

typedef struct {
    const Ground *on;
    uint64_t seed;
    int kind, form, large, in_place, root, root_side, is_root;
    Side send, recv;
    const Reduction *reduction;
    int count, *counts;
    MPI_Count *big_counts;
    unsigned char *wanted;
    size_t compared;
    MPI_Request request;
    char context[320];
} Problem;

static int root_argument(const Problem *p)
{
    if (p->on->remote < 0 || p->on->side != p->root_side)
        return p->root;
    return p->is_root ? MPI_ROOT : MPI_PROC_NULL;
}

/* Elements that one gives to another; `side` is the giver's. */
static int amount(const Problem *p, int most, int side, int from, int to)
{
    uint64_t key = p->seed + (uint64_t)side * 77777;
    switch (p->kind) {
    case GATHERV:
    case ALLGATHERV:
    case NEAR_ALLGATHERV:
        key += (uint64_t)from * 8191;
        break;
    case SCATTERV:
        key += (uint64_t)to * 8191;
        break;
    case ALLTOALLV:
    case ALLTOALLW:
    case NEAR_ALLTOALLV:
    case NEAR_ALLTOALLW:
        if (p->in_place && from > to) {
            int swap = from;
            from = to;
            to = swap;
        }
        key += (uint64_t)from * 8191 + (uint64_t)to * 131071;
    }
    Random random = random_from(key);
    return random_below(&random, 4) == 0 ? 0 : random_size(&random, most);
}

static void side_edges(Problem *p, Side *s, int sending, int most, int scale)
{
    const Ground *on = p->on;
    int between = on->remote >= 0, near = p->kind >= NEAR_ALLGATHER,
        other = between && on->side != p->root_side;
    int peers = between ? on->remote : on->size, only = -1, n;
    switch (p->kind) {
    case BCAST:
    case SCATTER:
    case SCATTERV:
        n = sending ? (p->is_root ? peers : 0) : !between || other;
        only = sending ? -1 : p->root;
        break;
    case GATHER:
    case GATHERV:
        n = sending ? !between || other : (p->is_root ? peers : 0);
        only = sending ? p->root : -1;
        break;
    default:
        n = near ? (sending ? on->dests : on->sources) : peers;
    }
    s->edges = n;
    s->edge = calloc((size_t)n + 1, sizeof *s->edge);
    int theirs = between ? 1 - on->side : 0, mine = between ? on->side : 0;
    for (int i = 0; i < n; i++) {
        Edge *e = &s->edge[i];
        e->peer = near ? (sending ? on->dest : on->source)[i] : only >= 0 ? only : i;
        e->tag = near && on->grid ? (sending ? i ^ 1 : i) : 0;
        if (e->peer ==
            MPI_PROC_NULL) /* the edge of a grid: the block is there and stays as it is */
            e->known = 1;
        int self = !between && e->peer == on->rank;
        e->known |= self && !near && (p->kind == BCAST || (p->in_place && p->kind < ALLTOALL));
        e->count =
            scale * (sending ? amount(p, most, mine, on->rank, e->peer < 0 ? on->rank : e->peer)
                             : amount(p, most, theirs, e->peer < 0 ? on->rank : e->peer, on->rank));
    }
}

/* Gives each edge its place: v and w forms in a random order with gaps. */
static void side_places(Problem *p, Side *s, int packed, uint64_t key)
{
    MPI_Aint lb;
    OK(MPI_Type_get_extent(s->type, &lb, &s->extent));
    Random random = random_from(p->seed + key);
    int at = 0, n = s->edges, start = packed || n == 0 ? 0 : random_below(&random, n);
    for (int k = 0; k < n; k++) {
        Edge *e = &s->edge[(start + k) % n];
        if (!s->many) {
            e->place = 0;
            at = e->count;
        } else {
            e->place = at;
            at += e->count + (packed ? 0 : random_below(&random, 3));
        }
    }
    s->bytes = (size_t)at * (size_t)s->extent + 64;
    s->at = malloc(s->bytes), s->first = malloc(s->bytes);
    fill(s->first, s->bytes, p->seed * 3 + key * 7 + (uint64_t)world_rank);
    memcpy(s->at, s->first, s->bytes);
    int is_w = p->kind == ALLTOALLW || p->kind == NEAR_ALLTOALLW;
    size_t room = (size_t)n + 1;
    s->counts = calloc(room, sizeof *s->counts), s->displs = calloc(room, sizeof *s->displs);
    s->big_counts = calloc(room, sizeof *s->big_counts),
    s->big_displs = calloc(room, sizeof *s->big_displs);
    s->types = malloc(room * sizeof *s->types);
    for (int i = 0; i < n; i++) {
        s->counts[i] = s->edge[i].count;
        s->displs[i] = s->edge[i].place * (is_w ? (int)s->extent : 1);
        s->big_counts[i] = s->counts[i];
        s->big_displs[i] = s->displs[i];
        s->types[i] = s->type;
    }
}

static void side_free(Side *s)
{
    free(s->edge), free(s->at), free(s->first), free(s->counts), free(s->displs),
        free(s->big_counts), free(s->big_displs);
    free(s->types);
}

/* The naive form: every block from its sender to its place in `wanted`. */
static void move_blocks(Problem *p)
{
    const Side *s = &p->send, *r = &p->recv;
    MPI_Request *requests = malloc((size_t)(s->edges + r->edges + 1) * sizeof *requests);
    int n = 0;
    for (int i = 0; i < r->edges; i++) {
        const Edge *e = &r->edge[i];
        if (!e->known)
            OK(MPI_Irecv(p->wanted + e->place * r->extent, e->count, r->type, e->peer, e->tag,
                         p->on->beside, &requests[n++]));
    }
    for (int i = 0; i < s->edges; i++) {
        const Edge *e = &s->edge[i];
        if (!e->known)
            OK(MPI_Isend(s->first + e->place * s->extent, e->count, s->type, e->peer, e->tag,
                         p->on->beside, &requests[n++]));
    }
    OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
    free(requests);
}

static void make_moving(Problem *p, Random *random)
{
    const Pairing *pairing = &pairings[random_below(random, PAIRINGS)];
    int swap = random_below(random, 2), between = p->on->remote >= 0;
    p->in_place =
        random_below(random, 3) == 0 && !between && p->kind != BCAST && p->kind < NEAR_ALLGATHER;
    if (p->kind == GATHER || p->kind == GATHERV || p->kind == SCATTER || p->kind == SCATTERV)
        p->in_place &= p->is_root;
    int most = random_below(random, 6) == 0
                   ? 3000 / (p->on->size + (between ? p->on->remote : 0)) + 700
                   : 40;
    Side *s = &p->send, *r = &p->recv;
    s->type = swap ? pairing->b : pairing->a, r->type = swap ? pairing->a : pairing->b;
    int sscale = swap ? pairing->b_per_a : 1, rscale = swap ? 1 : pairing->b_per_a;
    side_edges(p, s, 1, most, sscale);
    side_edges(p, r, 0, most, rscale);
    int of_many[] = {SCATTER,   SCATTERV,      ALLTOALL,       ALLTOALLV,
                     ALLTOALLW, NEAR_ALLTOALL, NEAR_ALLTOALLV, NEAR_ALLTOALLW};
    for (size_t i = 0; i < sizeof of_many / sizeof *of_many; i++)
        s->many |= p->kind == of_many[i];
    r->many = p->kind != BCAST && p->kind != SCATTER && p->kind != SCATTERV;
    int packed = p->kind == GATHER || p->kind == SCATTER || p->kind == ALLGATHER ||
                 p->kind == ALLTOALL || p->kind == NEAR_ALLGATHER || p->kind == NEAR_ALLTOALL;
    side_places(p, s, packed, 1);
    side_places(p, r, packed, 2);
    p->compared = r->bytes;
    if (p->in_place &&
        p->kind >=
            ALLTOALL) { /* what is sent lies where it is received, so in its type and places */
        side_free(s);
        *s = *r;
        s->edge = malloc(((size_t)r->edges + 1) * sizeof(Edge));
        memcpy(s->edge, r->edge, (size_t)r->edges * sizeof(Edge));
        s->at = malloc(s->bytes), s->first = malloc(s->bytes);
        memcpy(s->first, r->first, r->bytes), memcpy(s->at, r->first, r->bytes);
        s->counts = s->displs = NULL, s->big_counts = NULL, s->big_displs = NULL, s->types = NULL;
    }
    if (p->in_place && (p->kind == ALLGATHER || p->kind == ALLGATHERV || p->kind == GATHER ||
                        p->kind == GATHERV)) {
        const Edge *own = &r->edge[p->on->rank]; /* the own block is sent from where it lies */
        for (int i = 0; i < s->edges; i++)
            s->edge[i].count = own->count, s->edge[i].place = own->place;
        free(s->at), free(s->first);
        s->type = r->type, s->extent = r->extent, s->bytes = r->bytes;
        s->at = malloc(r->bytes), s->first = malloc(r->bytes);
        memcpy(s->first, r->first, r->bytes), memcpy(s->at, r->first, r->bytes);
    }
    p->wanted = malloc(r->bytes);
    memcpy(p->wanted, r->first, r->bytes);
    snprintf(p->context, sizeof p->context,
             "%s, %s%s, problem seed %llu, on %s of %d%s, root %d of group %d, %s%s, up to %d "
             "elements%s",
             kind_names[p->kind], form_names[p->form], p->large ? ", large counts" : "",
             (unsigned long long)p->seed, p->on->name, p->on->size, between ? " and others" : "",
             p->root, p->root_side, pairing->name, swap ? " (swapped)" : "", most,
             p->in_place ? ", in place" : "");
    move_blocks(p);
    if (p->kind == BCAST && p->is_root) { /* one buffer, which stays as it is */
        side_free(r);
        *r = *s;
        memset(s, 0, sizeof *s);
        free(p->wanted);
        p->wanted = malloc(r->bytes);
        memcpy(p->wanted, r->first, r->bytes);
        p->compared = r->bytes;
    }
}

static void make_reducing(Problem *p, Random *random)
{
    const Ground *on = p->on;
    const Reduction *of = p->reduction = &reductions[random_below(random, REDUCTIONS)];
    int between = on->remote >= 0, peers = between ? on->remote : on->size;
    int in_place = random_below(random, 3) == 0 && !between;
    p->in_place = in_place && (p->kind != REDUCE || p->is_root);
    int asked = random_size(random, random_below(random, 6) == 0 ? 9000 : 60), before = 0,
        total = asked;
    p->counts = calloc((size_t)on->size, sizeof(int)),
    p->big_counts = calloc((size_t)on->size, sizeof(MPI_Count));
    if (p->kind == REDUCE_SCATTER_BLOCK)
        total = asked / (on->size * peers) * on->size * peers; /* both groups share out as much */
    for (int i = 0, left = total; i < on->size; i++) {
        Random own = random_from(p->seed + (uint64_t)i * 31 + (uint64_t)on->side);
        p->counts[i] = p->kind == REDUCE_SCATTER_BLOCK ? total / on->size
                       : i == on->size - 1             ? left
                                                       : random_below(&own, left + 1);
        left -= p->counts[i];
        p->big_counts[i] = p->counts[i];
        before += i < on->rank ? p->counts[i] : 0;
    }
    p->count = p->kind == REDUCE_SCATTER_BLOCK ? total / on->size : total;
    Side *s = &p->send, *r = &p->recv;
    MPI_Aint lb;
    s->type = r->type = of->type;
    OK(MPI_Type_get_extent(of->type, &lb, &s->extent));
    r->extent = s->extent;
    size_t bytes = (size_t)total * (size_t)s->extent;
    s->bytes = r->bytes = bytes + 64;
    s->at = malloc(s->bytes), s->first = malloc(s->bytes), r->at = malloc(r->bytes),
    r->first = malloc(r->bytes);
    fill(s->first, s->bytes, p->seed);
    make_values(s->first, bytes, of->values, p->seed * 3 + (uint64_t)world_rank);
    memcpy(s->at, s->first, s->bytes);
    fill(r->first, r->bytes, p->seed * 5 + (uint64_t)world_rank);
    if (p->in_place)
        memcpy(r->first, s->first, bytes);
    memcpy(r->at, r->first, r->bytes);
    snprintf(p->context, sizeof p->context,
             "%s, %s%s, problem seed %llu, on %s of %d%s, root %d of group %d, %s, %d elements%s",
             kind_names[p->kind], form_names[p->form], p->large ? ", large counts" : "",
             (unsigned long long)p->seed, on->name, on->size, between ? " and others" : "", p->root,
             p->root_side, of->name, total, p->in_place ? ", in place" : "");

    void **inputs = malloc((size_t)peers * sizeof *inputs);
    Part *out = no_parts(peers), *in = no_parts(peers);
    for (int i = 0; i < peers; i++) {
        inputs[i] = calloc(r->bytes, 1);
        in[i] = (Part){inputs[i], total, of->type};
        out[i] = (Part){s->first, total, of->type};
    }
    naive_exchange(on->beside, peers, out, in);
    p->wanted = malloc(r->bytes);
    memcpy(p->wanted, r->first, r->bytes);
    p->compared = r->bytes;
    unsigned char *folded = malloc(r->bytes);
    switch (p->kind) {
    case REDUCE:
        if (p->is_root)
            naive_fold(inputs, 0, peers - 1, p->wanted, bytes, total, of->type, of->op);
        break;
    case ALLREDUCE:
        naive_fold(inputs, 0, peers - 1, p->wanted, bytes, total, of->type, of->op);
        break;
    case REDUCE_SCATTER_BLOCK:
    case REDUCE_SCATTER: {
        size_t share = (size_t)p->counts[on->rank] * (size_t)s->extent;
        naive_fold(inputs, 0, peers - 1, folded, bytes, total, of->type, of->op);
        memcpy(p->wanted, folded + (size_t)before * (size_t)s->extent, share);
        if (p->in_place) /* what lies after the result is not said by the standard */
            p->compared = share;
        break;
    }
    case SCAN:
        naive_fold(inputs, 0, on->rank, p->wanted, bytes, total, of->type, of->op);
        break;
    default:
        if (on->rank > 0)
            naive_fold(inputs, 0, on->rank - 1, p->wanted, bytes, total, of->type, of->op);
        else
            p->compared = 0; /* undefined on rank 0 */
    }
    for (int i = 0; i < peers; i++)
        free(inputs[i]);
    free(inputs), free(out), free(in), free(folded);
}

/* Makes the problem and its solution; collective over the ground. */
static void problem_make(Problem *p, const Ground *on, uint64_t seed, int form)
{
    Random random = random_from(seed);
    memset(p, 0, sizeof *p);
    p->on = on, p->seed = seed, p->form = form, p->large = random_below(&random, 4) == 0;
    p->request = MPI_REQUEST_NULL;
    p->kind = random_below(&random, on->remote >= 0    ? BETWEEN_GROUPS
                                    : on->sources >= 0 ? KINDS
                                                       : NEAR_ALLGATHER);
    if (on->sources >= 0 && random_below(&random, 3) > 0) /* a topology is there to be used */
        p->kind = NEAR_ALLGATHER + random_below(&random, KINDS - NEAR_ALLGATHER);
    p->root_side = on->remote >= 0 ? random_below(&random, 2) : 0;
    p->root =
        random_below(&random, on->remote >= 0 && on->side != p->root_side ? on->remote : on->size);
    p->is_root = on->rank == p->root && (on->remote < 0 || on->side == p->root_side);
    if (p->kind == BARRIER)
        snprintf(p->context, sizeof p->context, "Barrier, %s, on %s", form_names[form], on->name);
    else if (p->kind >= NEAR_ALLGATHER || p->kind < REDUCE)
        make_moving(p, &random);
    else
        make_reducing(p, &random);
}

#define BY_FORM(Name, iname, ...)                                                                  \
    (p->form == BLOCKING      ? MPI_##Name(__VA_ARGS__)                                            \
     : p->form == NONBLOCKING ? MPI_I##iname(__VA_ARGS__, &p->request)                             \
                              : MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, &p->request))
#define BY_FORM_C(Name, iname, ...)                                                                \
    (p->form == BLOCKING      ? MPI_##Name##_c(__VA_ARGS__)                                        \
     : p->form == NONBLOCKING ? MPI_I##iname##_c(__VA_ARGS__, &p->request)                         \
                              : MPI_##Name##_init_c(__VA_ARGS__, MPI_INFO_NULL, &p->request))
#define UNIFORM(Name, iname, ...)                                                                  \
    do {                                                                                           \
        if (p->large)                                                                              \
            OK(BY_FORM_C(Name, iname, __VA_ARGS__));                                               \
        else                                                                                       \
            OK(BY_FORM(Name, iname, __VA_ARGS__));                                                 \
    } while (0)
#define LISTS(side) side->counts, side->displs
#define BIG_LISTS(side) side->big_counts, side->big_displs
/* A v-form: its arguments once with int lists and once with large ones. */
#define VARYING(Name, iname, small, big)                                                           \
    do {                                                                                           \
        if (p->large)                                                                              \
            OK(BY_FORM_C(Name, iname, UNPACK big));                                                \
        else                                                                                       \
            OK(BY_FORM(Name, iname, UNPACK small));                                                \
    } while (0)
#define UNPACK(...) __VA_ARGS__

/* Calls it; a non-blocking or persistent one leaves its request. */
static void problem_call(Problem *p)
{
    Side *s = &p->send, *r = &p->recv;
    MPI_Comm comm = p->on->comm;
    int root = root_argument(p);
    void *from = p->in_place ? MPI_IN_PLACE : (void *)s->at, *to = r->at;
    int one = s->edges ? s->edge[0].count : 0, got = r->edges ? r->edge[0].count : 0;
    int by_root = p->kind == SCATTER || p->kind == SCATTERV;
    if (by_root && p->in_place)
        from = s->at, to = MPI_IN_PLACE;
    MPI_Op op = p->reduction ? p->reduction->op : MPI_OP_NULL;
    switch (p->kind) {
    case BARRIER:
        OK(BY_FORM(Barrier, barrier, comm));
        break;
    case BCAST:
        UNIFORM(Bcast, bcast, r->at, got, r->type, root, comm);
        break;
    case GATHER:
        UNIFORM(Gather, gather, from, one, s->type, to, got, r->type, root, comm);
        break;
    case SCATTER:
        UNIFORM(Scatter, scatter, from, one, s->type, to, got, r->type, root, comm);
        break;
    case ALLGATHER:
        UNIFORM(Allgather, allgather, from, one, s->type, to, got, r->type, comm);
        break;
    case ALLTOALL:
        UNIFORM(Alltoall, alltoall, from, one, s->type, to, got, r->type, comm);
        break;
    case NEAR_ALLGATHER:
        UNIFORM(Neighbor_allgather, neighbor_allgather, from, one, s->type, to, got, r->type, comm);
        break;
    case NEAR_ALLTOALL:
        UNIFORM(Neighbor_alltoall, neighbor_alltoall, from, one, s->type, to, got, r->type, comm);
        break;
    case GATHERV:
        VARYING(Gatherv, gatherv, (from, one, s->type, to, LISTS(r), r->type, root, comm),
                (from, one, s->type, to, BIG_LISTS(r), r->type, root, comm));
        break;
    case SCATTERV:
        VARYING(Scatterv, scatterv, (from, LISTS(s), s->type, to, got, r->type, root, comm),
                (from, BIG_LISTS(s), s->type, to, got, r->type, root, comm));
        break;
    case ALLGATHERV:
        VARYING(Allgatherv, allgatherv, (from, one, s->type, to, LISTS(r), r->type, comm),
                (from, one, s->type, to, BIG_LISTS(r), r->type, comm));
        break;
    case NEAR_ALLGATHERV:
        VARYING(Neighbor_allgatherv, neighbor_allgatherv,
                (from, one, s->type, to, LISTS(r), r->type, comm),
                (from, one, s->type, to, BIG_LISTS(r), r->type, comm));
        break;
    case ALLTOALLV:
        VARYING(Alltoallv, alltoallv, (from, LISTS(s), s->type, to, LISTS(r), r->type, comm),
                (from, BIG_LISTS(s), s->type, to, BIG_LISTS(r), r->type, comm));
        break;
    case NEAR_ALLTOALLV:
        VARYING(Neighbor_alltoallv, neighbor_alltoallv,
                (from, LISTS(s), s->type, to, LISTS(r), r->type, comm),
                (from, BIG_LISTS(s), s->type, to, BIG_LISTS(r), r->type, comm));
        break;
    case ALLTOALLW:
        VARYING(Alltoallw, alltoallw, (from, LISTS(s), s->types, to, LISTS(r), r->types, comm),
                (from, BIG_LISTS(s), s->types, to, BIG_LISTS(r), r->types, comm));
        break;
    case NEAR_ALLTOALLW: /* its displacements are addresses in both forms */
        VARYING(Neighbor_alltoallw, neighbor_alltoallw,
                (from, s->counts, s->big_displs, s->types, to, r->counts, r->big_displs, r->types,
                 comm),
                (from, BIG_LISTS(s), s->types, to, BIG_LISTS(r), r->types, comm));
        break;
    case REDUCE:
        UNIFORM(Reduce, reduce, from, to, p->count, s->type, op, root, comm);
        break;
    case ALLREDUCE:
        UNIFORM(Allreduce, allreduce, from, to, p->count, s->type, op, comm);
        break;
    case SCAN:
        UNIFORM(Scan, scan, from, to, p->count, s->type, op, comm);
        break;
    case EXSCAN:
        UNIFORM(Exscan, exscan, from, to, p->count, s->type, op, comm);
        break;
    case REDUCE_SCATTER_BLOCK:
        UNIFORM(Reduce_scatter_block, reduce_scatter_block, from, to, p->count, s->type, op, comm);
        break;
    default:
        VARYING(Reduce_scatter, reduce_scatter, (from, to, p->counts, s->type, op, comm),
                (from, to, p->big_counts, s->type, op, comm));
    }
}

/* Puts the buffers back as they were, for another round of a persistent one. */
static void problem_reset(Problem *p)
{
    if (p->recv.at)
        memcpy(p->recv.at, p->recv.first, p->recv.bytes);
}

static void problem_check(Problem *p)
{
    unsigned char *got = p->recv.at;
    if (p->kind == BARRIER)
        return;
    if (p->reduction && p->reduction->values == PAIRS)
        for (size_t i = 12; i + 4 <= p->recv.bytes - 64;
             i += 16) /* the gap after the int is nobody's */
            memset(got + i, 0, 4), memset(p->wanted + i, 0, 4);
    for (size_t i = 0; i < p->compared; i++)
        if (got[i] != p->wanted[i]) {
            FAIL("%s: byte %zu of %zu is %d, should be %d", p->context, i, p->compared, got[i],
                 p->wanted[i]);
            break;
        }
    if (p->send.at && memcmp(p->send.at, p->send.first, p->send.bytes) != 0)
        FAIL("%s: the send buffer has changed", p->context);
}

static void problem_free(Problem *p)
{
    side_free(&p->send);
    side_free(&p->recv);
    free(p->counts), free(p->big_counts), free(p->wanted);
}

#endif

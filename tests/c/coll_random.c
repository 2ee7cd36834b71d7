/* Every blocking collective with random sizes, roots, datatypes, operations and communicators, in place and not,
 * against the naive forms of naive.h. The whole receive buffer is compared, gaps included. */
// time: 120
#include "naive.h"

enum {
    BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW,
    REDUCE, ALLREDUCE, REDUCE_SCATTER_BLOCK, REDUCE_SCATTER, SCAN, EXSCAN, BARRIER, KINDS
};
static const char *const names[KINDS] = {
    "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Alltoallw",
    "Reduce", "Allreduce", "Reduce_scatter_block", "Reduce_scatter", "Scan", "Exscan", "Barrier"};

/* A type to send with and a type to receive with that have the same signature per element. */
typedef struct {
    const char *name;
    MPI_Datatype a, b;
    int b_per_a;
} Pairing;

enum { PAIRINGS = 6 };
static Pairing pairings[PAIRINGS];

typedef struct {
    char c;
    double d;
} Gapped;

static void make_types(void)
{
    MPI_Datatype vector, resized, gapped, triple;
    OK(MPI_Type_vector(2, 1, 3, MPI_INT, &vector));
    OK(MPI_Type_create_resized(vector, 0, 20, &resized));
    OK(MPI_Type_commit(&resized));
    OK(MPI_Type_free(&vector));
    int lengths[2] = {1, 1};
    MPI_Aint places[2] = {offsetof(Gapped, c), offsetof(Gapped, d)};
    MPI_Datatype fields[2] = {MPI_CHAR, MPI_DOUBLE};
    OK(MPI_Type_create_struct(2, lengths, places, fields, &gapped));
    OK(MPI_Type_commit(&gapped));
    OK(MPI_Type_contiguous(3, MPI_SHORT, &triple));
    OK(MPI_Type_commit(&triple));
    pairings[0] = (Pairing){"char", MPI_CHAR, MPI_CHAR, 1};
    pairings[1] = (Pairing){"int", MPI_INT, MPI_INT, 1};
    pairings[2] = (Pairing){"double", MPI_DOUBLE, MPI_DOUBLE, 1};
    pairings[3] = (Pairing){"strided ints", resized, MPI_INT, 2};
    pairings[4] = (Pairing){"struct with a gap", gapped, gapped, 1};
    pairings[5] = (Pairing){"three shorts", triple, MPI_SHORT, 3};
}

/* x -> ax + b, composed: associative, not commutative. */
static void compose(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    unsigned *f = in, *g = inout;
    for (int i = 0; i < *count; i++) {
        unsigned a = f[2 * i] * g[2 * i], b = f[2 * i] * g[2 * i + 1] + f[2 * i + 1];
        g[2 * i] = a;
        g[2 * i + 1] = b;
    }
}

typedef struct {
    const char *name;
    MPI_Datatype type;
    MPI_Op op;
    int kind; /* how values are made: 0 any bits, 1 small doubles, 2 double and int */
} Reduction;

enum { REDUCTIONS = 7 };
static Reduction reductions[REDUCTIONS];

static void make_reductions(void)
{
    MPI_Datatype affine;
    MPI_Op composition;
    OK(MPI_Type_contiguous(2, MPI_UNSIGNED, &affine));
    OK(MPI_Type_commit(&affine));
    OK(MPI_Op_create(compose, 0, &composition));
    reductions[0] = (Reduction){"unsigned sum", MPI_UNSIGNED, MPI_SUM, 0};
    reductions[1] = (Reduction){"int max", MPI_INT, MPI_MAX, 0};
    reductions[2] = (Reduction){"byte xor", MPI_BYTE, MPI_BXOR, 0};
    reductions[3] = (Reduction){"double sum", MPI_DOUBLE, MPI_SUM, 1};
    reductions[4] = (Reduction){"long min", MPI_LONG, MPI_MIN, 0};
    reductions[5] = (Reduction){"double-int maxloc", MPI_DOUBLE_INT, MPI_MAXLOC, 2};
    reductions[6] = (Reduction){"affine maps, not commutative", affine, composition, 0};
}

static MPI_Comm comm, beside; /* the collective's, and the naive form's */
static int rank, size;

/* Elements of the larger type that rank `from` sends to rank `to` in this round. */
static int elements(uint64_t seed, int from, int to, int most, int symmetric)
{
    if (symmetric && from > to) {
        int swap = from;
        from = to;
        to = swap;
    }
    Random random = random_from(seed + (uint64_t)from * 8191 + (uint64_t)to * 131071);
    return random_below(&random, 4) == 0 ? 0 : random_below(&random, most + 1);
}

static void values(void *buffer, size_t bytes, int kind, uint64_t key)
{
    if (kind == 0) {
        fill(buffer, bytes, key);
    } else if (kind == 1) {
        double *d = buffer;
        for (size_t i = 0; i < bytes / sizeof *d; i++)
            d[i] = (double)(pattern(key, i) % 16); /* sums stay exact */
    } else {
        struct {
            double d;
            int i;
        } *p = buffer;
        memset(buffer, 0, bytes);
        for (size_t i = 0; i < bytes / sizeof *p; i++) {
            p[i].d = (double)(pattern(key, i) % 3);
            p[i].i = pattern(key, i + 9999) % 5;
        }
    }
}

static char context[256];

static void compare(const unsigned char *got, const unsigned char *wanted, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != wanted[i]) {
            FAIL("%s: byte %zu of %zu is %d, should be %d", context, i, bytes, got[i], wanted[i]);
            return;
        }
}

/* Layout of one buffer with a block for each peer: blocks in random order with small gaps between. */
typedef struct {
    int *counts, *places; /* in elements */
    MPI_Datatype type;
    MPI_Aint extent;
    size_t bytes;
} Layout;

static Layout layout(uint64_t seed, int blocks, int (*count)(int, void *), void *with, MPI_Datatype type, int packed)
{
    Layout l = {malloc((size_t)blocks * sizeof(int)), malloc((size_t)blocks * sizeof(int)), type, 0, 0};
    MPI_Aint lb;
    OK(MPI_Type_get_extent(type, &lb, &l.extent));
    Random random = random_from(seed);
    int at = 0, start = packed ? 0 : random_below(&random, blocks);
    for (int k = 0; k < blocks; k++) {
        int i = (start + k) % blocks;
        l.counts[i] = count(i, with);
        l.places[i] = at;
        at += l.counts[i] + (packed ? 0 : random_below(&random, 3));
    }
    l.bytes = (size_t)at * (size_t)l.extent + 64;
    return l;
}

static Part part(const Layout *l, void *buffer, int i)
{
    return (Part){(char *)buffer + (MPI_Aint)l->places[i] * l->extent, l->counts[i], l->type};
}

static void release(Layout *l)
{
    free(l->counts);
    free(l->places);
}

typedef struct {
    uint64_t seed;
    int most, symmetric, fixed, scale, sending;
} Counting;

static int counted(int i, void *with)
{
    const Counting *c = with;
    int n = c->fixed >= 0 ? c->fixed
                          : c->sending ? elements(c->seed, rank, i, c->most, c->symmetric)
                                       : elements(c->seed, i, rank, c->most, c->symmetric);
    return n * c->scale;
}

/* Gatherv, Allgatherv: how much rank i gives, whoever asks. */
static int given(int i, void *with)
{
    const Counting *c = with;
    return c->scale * (c->fixed >= 0 ? c->fixed : elements(c->seed, i, 0, c->most, 0));
}

static void moving(int kind, uint64_t seed, Random *random)
{
    const Pairing *pairing = &pairings[random_below(random, PAIRINGS)];
    int swap = random_below(random, 2), root = random_below(random, size);
    MPI_Datatype stype = swap ? pairing->b : pairing->a, rtype = swap ? pairing->a : pairing->b;
    int sscale = swap ? pairing->b_per_a : 1, rscale = swap ? 1 : pairing->b_per_a;
    int in_place = kind != BCAST && random_below(random, 3) == 0;
    int most = random_below(random, 6) == 0 ? 3000 / size + 700 : 40;
    int fixed = random_size(random, most);
    int even = kind == GATHER || kind == SCATTER || kind == ALLGATHER || kind == ALLTOALL;
    snprintf(context, sizeof context, "%s, seed %llu, %d ranks, root %d, %s, %s, up to %d elements%s", names[kind],
             (unsigned long long)seed, size, root, pairing->name, swap ? "swapped" : "straight", even ? fixed : most,
             in_place ? ", in place" : "");
    Counting sending = {seed, most, in_place, even ? fixed : -1, sscale, 1};
    Counting receiving = {seed, most, in_place, even ? fixed : -1, rscale, 0};

    Part *out = no_parts(size), *in = no_parts(size);
    Layout sends, receives;
    unsigned char *sbuf, *got, *wanted;
    switch (kind) {
    case BCAST: {
        MPI_Datatype mine = rank == root ? stype : rtype;
        int n = fixed * (rank == root ? sscale : rscale);
        MPI_Aint lb, extent;
        OK(MPI_Type_get_extent(mine, &lb, &extent));
        size_t bytes = (size_t)n * (size_t)extent + 64;
        got = malloc(bytes), wanted = malloc(bytes);
        fill(got, bytes, seed + (uint64_t)rank);
        memcpy(wanted, got, bytes);
        if (rank == root) {
            for (int i = 0; i < size; i++)
                if (i != root)
                    out[i] = (Part){wanted, n, mine};
        } else {
            in[root] = (Part){wanted, n, mine};
        }
        naive_exchange(beside, size, out, in);
        OK(MPI_Bcast(got, n, mine, root, comm));
        compare(got, wanted, bytes);
        free(got), free(wanted), free(out), free(in);
        return;
    }
    case GATHER: case GATHERV: case ALLGATHER: case ALLGATHERV: {
        int all = kind == ALLGATHER || kind == ALLGATHERV, receiver = all || rank == root;
        receives = layout(seed + 5, size, given, &receiving, rtype, even);
        int mine = given(rank, &sending);
        MPI_Aint lb, extent;
        OK(MPI_Type_get_extent(stype, &lb, &extent));
        size_t bytes = (size_t)mine * (size_t)extent + 64;
        sbuf = malloc(bytes), got = malloc(receives.bytes), wanted = malloc(receives.bytes);
        fill(sbuf, bytes, seed * 3 + (uint64_t)rank);
        fill(got, receives.bytes, seed * 5 + (uint64_t)rank);
        memcpy(wanted, got, receives.bytes);
        int placed = in_place && receiver;
        Part own = placed ? part(&receives, wanted, rank) : (Part){sbuf, mine, stype};
        for (int i = 0; i < size; i++) {
            if ((all || i == root) && !(i == rank && placed))
                out[i] = own;
            if (receiver && !(i == rank && placed))
                in[i] = part(&receives, wanted, i);
        }
        naive_exchange(beside, size, out, in);
        const void *from = placed ? MPI_IN_PLACE : sbuf;
        if (kind == GATHER)
            OK(MPI_Gather(from, mine, stype, got, receives.counts[0], rtype, root, comm));
        else if (kind == GATHERV)
            OK(MPI_Gatherv(from, mine, stype, got, receives.counts, receives.places, rtype, root, comm));
        else if (kind == ALLGATHER)
            OK(MPI_Allgather(from, mine, stype, got, receives.counts[0], rtype, comm));
        else
            OK(MPI_Allgatherv(from, mine, stype, got, receives.counts, receives.places, rtype, comm));
        compare(got, wanted, receives.bytes);
        free(sbuf), free(got), free(wanted), free(out), free(in);
        release(&receives);
        return;
    }
    case SCATTER: case SCATTERV: {
        sends = layout(seed + 5, size, given, &sending, stype, even);
        int mine = given(rank, &receiving), placed = in_place && rank == root;
        MPI_Aint lb, extent;
        OK(MPI_Type_get_extent(rtype, &lb, &extent));
        size_t bytes = (size_t)mine * (size_t)extent + 64;
        sbuf = malloc(sends.bytes), got = malloc(bytes), wanted = malloc(bytes);
        fill(sbuf, sends.bytes, seed * 3);
        fill(got, bytes, seed * 5 + (uint64_t)rank);
        memcpy(wanted, got, bytes);
        for (int i = 0; i < size && rank == root; i++)
            if (!(i == rank && placed))
                out[i] = part(&sends, sbuf, i);
        if (!placed)
            in[root] = (Part){wanted, mine, rtype};
        naive_exchange(beside, size, out, in);
        if (kind == SCATTER)
            OK(MPI_Scatter(sbuf, sends.counts[0], stype, placed ? MPI_IN_PLACE : (void *)got, mine, rtype, root, comm));
        else
            OK(MPI_Scatterv(sbuf, sends.counts, sends.places, stype, placed ? MPI_IN_PLACE : (void *)got, mine, rtype,
                            root, comm));
        compare(got, wanted, bytes);
        free(sbuf), free(got), free(wanted), free(out), free(in);
        release(&sends);
        return;
    }
    default: { /* the alltoall family */
        receives = layout(seed + 7 + (uint64_t)rank, size, counted, &receiving, rtype, even);
        sends = in_place ? layout(seed + 7 + (uint64_t)rank, size, counted, &receiving, rtype, even)
                         : layout(seed + 8 + (uint64_t)rank, size, counted, &sending, stype, even);
        sbuf = malloc(sends.bytes), got = malloc(receives.bytes), wanted = malloc(receives.bytes);
        fill(sbuf, sends.bytes, seed * 3 + (uint64_t)rank);
        fill(got, receives.bytes, seed * 5 + (uint64_t)rank);
        if (in_place)
            memcpy(got, sbuf, sends.bytes);
        memcpy(wanted, got, receives.bytes);
        for (int i = 0; i < size; i++) {
            out[i] = part(&sends, sbuf, i);
            in[i] = part(&receives, wanted, i);
        }
        naive_exchange(beside, size, out, in);
        const void *from = in_place ? MPI_IN_PLACE : sbuf;
        if (kind == ALLTOALL) {
            OK(MPI_Alltoall(from, sends.counts[0], sends.type, got, receives.counts[0], rtype, comm));
        } else if (kind == ALLTOALLV) {
            OK(MPI_Alltoallv(from, sends.counts, sends.places, sends.type, got, receives.counts, receives.places, rtype,
                             comm));
        } else {
            int *sbytes = malloc((size_t)size * sizeof(int)), *rbytes = malloc((size_t)size * sizeof(int));
            MPI_Datatype *stypes = malloc((size_t)size * sizeof *stypes), *rtypes = malloc((size_t)size * sizeof *rtypes);
            for (int i = 0; i < size; i++) {
                sbytes[i] = sends.places[i] * (int)sends.extent;
                rbytes[i] = receives.places[i] * (int)receives.extent;
                stypes[i] = sends.type;
                rtypes[i] = rtype;
            }
            OK(MPI_Alltoallw(from, sends.counts, sbytes, stypes, got, receives.counts, rbytes, rtypes, comm));
            free(sbytes), free(rbytes), free(stypes), free(rtypes);
        }
        compare(got, wanted, receives.bytes);
        free(sbuf), free(got), free(wanted), free(out), free(in);
        release(&sends);
        release(&receives);
        return;
    }
    }
}

static void reducing(int kind, uint64_t seed, Random *random)
{
    const Reduction *r = &reductions[random_below(random, REDUCTIONS)];
    int root = random_below(random, size), in_place = random_below(random, 3) == 0;
    int count = random_size(random, random_below(random, 6) == 0 ? 9000 : 60);
    MPI_Aint lb, extent;
    OK(MPI_Type_get_extent(r->type, &lb, &extent));
    int *counts = malloc((size_t)size * sizeof(int)), before = 0, total = 0;
    if (kind == REDUCE_SCATTER_BLOCK || kind == REDUCE_SCATTER) {
        for (int i = 0; i < size; i++) {
            counts[i] = kind == REDUCE_SCATTER_BLOCK ? count / size : elements(seed, i, 0, count / size + 2, 0);
            if (i < rank)
                before += counts[i];
            total += counts[i];
        }
    } else {
        total = count;
    }
    snprintf(context, sizeof context, "%s, seed %llu, %d ranks, root %d, %s, %d elements%s", names[kind],
             (unsigned long long)seed, size, root, r->name, total, in_place ? ", in place" : "");
    size_t bytes = (size_t)total * (size_t)extent, room = bytes + 64;
    void **inputs = malloc((size_t)size * sizeof *inputs);
    Part *out = no_parts(size), *in = no_parts(size);
    unsigned char *sbuf = malloc(room), *got = malloc(room), *wanted = malloc(room), *folded = malloc(room);
    values(sbuf, bytes, r->kind, seed * 3 + (uint64_t)rank);
    for (int i = 0; i < size; i++) {
        inputs[i] = calloc(room, 1);
        in[i] = (Part){inputs[i], total, r->type};
        out[i] = (Part){sbuf, total, r->type};
    }
    naive_exchange(beside, size, out, in);
    fill(got, room, seed * 5 + (uint64_t)rank);
    if (in_place && (kind != REDUCE || rank == root))
        memcpy(got, sbuf, bytes);
    memcpy(wanted, got, room);
    const void *from = in_place && (kind != REDUCE || rank == root) ? MPI_IN_PLACE : sbuf;
    size_t compared = room;
    switch (kind) {
    case REDUCE:
        if (rank == root)
            naive_fold(inputs, 0, size - 1, wanted, bytes, total, r->type, r->op);
        OK(MPI_Reduce(from, got, total, r->type, r->op, root, comm));
        break;
    case ALLREDUCE:
        naive_fold(inputs, 0, size - 1, wanted, bytes, total, r->type, r->op);
        OK(MPI_Allreduce(from, got, total, r->type, r->op, comm));
        break;
    case REDUCE_SCATTER_BLOCK: case REDUCE_SCATTER:
        naive_fold(inputs, 0, size - 1, folded, bytes, total, r->type, r->op);
        memcpy(wanted, folded + (size_t)before * (size_t)extent, (size_t)counts[rank] * (size_t)extent);
        if (in_place) /* what lies after the result is not said by the standard */
            compared = (size_t)counts[rank] * (size_t)extent;
        if (kind == REDUCE_SCATTER_BLOCK)
            OK(MPI_Reduce_scatter_block(from, got, counts[0], r->type, r->op, comm));
        else
            OK(MPI_Reduce_scatter(from, got, counts, r->type, r->op, comm));
        break;
    case SCAN:
        naive_fold(inputs, 0, rank, wanted, bytes, total, r->type, r->op);
        OK(MPI_Scan(from, got, total, r->type, r->op, comm));
        break;
    default:
        if (rank > 0)
            naive_fold(inputs, 0, rank - 1, wanted, bytes, total, r->type, r->op);
        else
            compared = 0; /* undefined on rank 0 */
        OK(MPI_Exscan(from, got, total, r->type, r->op, comm));
    }
    for (size_t i = 12; r->kind == 2 && i < bytes; i += 16) /* the gap after the int is nobody's */
        memset(got + i, 0, 4), memset(wanted + i, 0, 4);
    compare(got, wanted, compared);
    for (int i = 0; i < size; i++)
        free(inputs[i]);
    free(inputs), free(counts), free(sbuf), free(got), free(wanted), free(folded), free(out), free(in);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    make_types();
    make_reductions();
    enum { COMMS = 4 };
    MPI_Comm comms[COMMS], besides[COMMS];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]));
    OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comms[1])); /* everybody, turned round */
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comms[2]));
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank < (2 * world_size + 2) / 3, (world_rank * 7) % 5, &comms[3]));
    for (int i = 0; i < COMMS; i++)
        OK(MPI_Comm_dup(comms[i], &besides[i]));
    int rounds = argc > 1 ? atoi(argv[1]) : world_size <= 4 ? 600 : world_size <= 16 ? 200 : 60;
    for (int round = 0; round < rounds; round++) {
        uint64_t seed = (uint64_t)round * 977 + 11;
        Random random = random_from(seed);
        int kind = random_below(&random, KINDS), which = random_below(&random, COMMS);
        comm = comms[which], beside = besides[which];
        OK(MPI_Comm_rank(comm, &rank));
        OK(MPI_Comm_size(comm, &size));
        if (kind == BARRIER)
            OK(MPI_Barrier(comm));
        else if (kind >= REDUCE)
            reducing(kind, seed, &random);
        else
            moving(kind, seed, &random);
    }
    for (int i = 0; i < COMMS; i++) {
        OK(MPI_Comm_free(&comms[i]));
        OK(MPI_Comm_free(&besides[i]));
    }
    OK(MPI_Type_free(&pairings[3].a));
    OK(MPI_Type_free(&pairings[4].a));
    OK(MPI_Type_free(&pairings[5].a));
    OK(MPI_Type_free(&reductions[6].type));
    OK(MPI_Op_free(&reductions[6].op));
    return check_end();
}

/* Random nested datatypes against an explicit list of their bytes: packed, unpacked in pieces of a
 * message, sent as a layout and received as bytes, the other way round, and from one layout into
 * another. Small messages and large ones. */
// ranks: 1 2 4
// time: 120
#include "check.h"

/* Where each byte of an element lies, in the type map's order, and the element's extent. */
typedef struct {
    MPI_Datatype type;
    long *at;
    int bytes;
    long lb, ub;
} Layout;

static Layout basic(Random *random)
{
    MPI_Datatype types[] = {MPI_CHAR, MPI_SHORT, MPI_INT, MPI_DOUBLE, MPI_C_DOUBLE_COMPLEX};
    int sizes[] = {1, 2, 4, 8, 16}, i = random_below(random, 5);
    Layout l = {types[i], malloc(16 * sizeof(long)), sizes[i], 0, sizes[i]};
    for (int k = 0; k < sizes[i]; k++)
        l.at[k] = k;
    return l;
}

static void place(Layout *out, const Layout *part, long by)
{
    out->at = realloc(out->at, (size_t)(out->bytes + part->bytes + 1) * sizeof(long));
    for (int k = 0; k < part->bytes; k++)
        out->at[out->bytes + k] = part->at[k] + by;
    out->bytes += part->bytes;
}

static Layout resized(Layout inner, long lb, long extent)
{
    MPI_Datatype type;
    OK(MPI_Type_create_resized(inner.type, lb, extent, &type));
    inner.type = type;
    inner.lb = lb;
    inner.ub = lb + extent;
    return inner;
}

/* Nothing of a type lies over anything else of it, so that it may be received into. Each
 * constructor's result is resized: bounds are tested elsewhere. */
static Layout nested(Random *random, int depth)
{
    if (depth == 0)
        return basic(random);
    Layout inner = nested(random, depth - 1), out = {MPI_DATATYPE_NULL, NULL, 0, 0, 0};
    long extent = inner.ub - inner.lb;
    int n = 1 + random_below(random, 4), ends = 0;
    int lengths[4], places[4];
    MPI_Aint far[4];
    MPI_Datatype types[4];
    switch (random_below(random, 6)) {
    case 0:
        OK(MPI_Type_contiguous(n, inner.type, &out.type));
        for (int i = 0; i < n; i++)
            place(&out, &inner, i * extent);
        ends = n;
        break;
    case 1: {
        int block = 1 + random_below(random, 3), stride = block + random_below(random, 3);
        int back = random_below(random, 2);
        OK(MPI_Type_vector(n, block, back ? -stride : stride, inner.type, &out.type));
        for (int i = 0; i < n; i++)
            for (int j = 0; j < block; j++)
                place(&out, &inner, ((back ? -1 : 1) * i * stride + j) * extent);
        ends = n * stride + block;
        break;
    }
    case 2:
        for (int i = 0; i < n; i++) {
            places[i] = ends + random_below(random, 3);
            lengths[i] = random_below(random, 4);
            ends = places[i] + lengths[i];
        }
        OK(MPI_Type_indexed(n, lengths, places, inner.type, &out.type));
        for (int i = 0; i < n; i++)
            for (int j = 0; j < lengths[i]; j++)
                place(&out, &inner, (places[i] + j) * extent);
        break;
    case 3:
        for (int i = 0; i < n; i++) {
            /* Descending, so memory order and packed order differ. */
            far[i] = (n - i) * (2 * extent + 4);
            lengths[i] = 1 + i % 2;
            types[i] = inner.type;
        }
        OK(MPI_Type_create_struct(n, lengths, far, types, &out.type));
        for (int i = 0; i < n; i++)
            for (int j = 0; j < lengths[i]; j++)
                place(&out, &inner, far[i] + j * extent);
        ends = 2 * n + 6;
        break;
    case 4: {
        int sizes[] = {3, 2, 4}, parts[] = {2, 1, 3}, starts[] = {1, 0, 1};
        int fortran = random_below(random, 2);
        OK(MPI_Type_create_subarray(3, sizes, parts, starts,
                                    fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, inner.type,
                                    &out.type));
        for (int slow = 0; slow < (fortran ? 3 : 2); slow++)
            for (int fast = 0; fast < (fortran ? 2 : 3); fast++)
                place(&out, &inner, ((slow + 1) * 2 * (fortran ? 3 : 4) + fast + 1) * extent);
        ends = 24;
        break;
    }
    default:
        for (int i = 0; i < n; i++)
            far[i] = (3 * i + i % 2) * extent;
        OK(MPI_Type_create_hindexed_block(n, 2, far, inner.type, &out.type));
        for (int i = 0; i < n; i++)
            for (int j = 0; j < 2; j++)
                place(&out, &inner, far[i] + j * extent);
        ends = 3 * n + 2;
    }
    free(inner.at);
    /* Vectors that go backwards and structures reach to both sides: leave room enough on both. */
    long room = (ends + 2) * (extent > 0 ? extent : 1) + 64;
    return resized(out, -room, 2 * room);
}

static unsigned char *memory(const Layout *l, int count, unsigned char **base)
{
    long low = 0, high = 0, extent = l->ub - l->lb;
    for (int k = 0; k < l->bytes; k++) {
        low = l->at[k] < low ? l->at[k] : low;
        high = l->at[k] > high ? l->at[k] : high;
    }
    size_t bytes = (size_t)(high - low + extent * count + 64);
    unsigned char *all = calloc(bytes, 1);
    *base = all - low;
    return all;
}

static void spread(const Layout *l, int count, unsigned char *base, const unsigned char *packed)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < l->bytes; k++)
            base[i * (l->ub - l->lb) + l->at[k]] = packed[(size_t)i * (size_t)l->bytes + (size_t)k];
}

static int same(const Layout *l, int count, const unsigned char *base, const unsigned char *packed)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < l->bytes; k++)
            if (base[i * (l->ub - l->lb) + l->at[k]] !=
                packed[(size_t)i * (size_t)l->bytes + (size_t)k])
                return 0;
    return 1;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    Random random = random_from(11);
    for (int round = 0; round < 120; round++) {
        Layout l = nested(&random, 1 + random_below(&random, 3));
        OK(MPI_Type_commit(&l.type));
        int size = -1;
        OK(MPI_Type_size(l.type, &size));
        SAME(size, l.bytes);
        int count = 1 + random_below(&random, round % 10 ? 40 : 3000);
        while (count > 1 && (long)count * (l.ub - l.lb) > 32 << 20)
            count /= 2;
        size_t bytes = (size_t)count * (size_t)l.bytes;
        unsigned char *packed = malloc(bytes + 1), *got = malloc(bytes + 1), *out, *in;
        unsigned char *out_memory = memory(&l, count, &out), *in_memory = memory(&l, count, &in);
        uint64_t key = (uint64_t)round * 64 + (uint64_t)world_rank,
                 from = (uint64_t)round * 64 + (uint64_t)ring(-1);
        fill(packed, bytes, key);
        spread(&l, count, out, packed);

        int position = 0;
        OK(MPI_Pack(out, count, l.type, got, (int)bytes, &position, MPI_COMM_WORLD));
        SAME(position, bytes);
        FILLED(got, bytes, key);
        position = 0;
        OK(MPI_Unpack(packed, (int)bytes, &position, in, count, l.type, MPI_COMM_WORLD));
        CHECK(same(&l, count, in, packed), "round %d: unpacked bytes are wrong", round);

        MPI_Status status;
        memset(got, 0, bytes);
        OK(MPI_Sendrecv(out, count, l.type, ring(1), 1, got, (int)bytes, MPI_PACKED, ring(-1), 1,
                        MPI_COMM_WORLD, &status));
        FILLED(got, bytes, from);

        free(in_memory);
        in_memory = memory(&l, count, &in);
        OK(MPI_Sendrecv(packed, (int)bytes, MPI_PACKED, ring(1), 2, in, count, l.type, ring(-1), 2,
                        MPI_COMM_WORLD, &status));
        fill(got, bytes, from);
        CHECK(same(&l, count, in, got), "round %d: bytes received into a layout are wrong", round);
        int n = -1;
        OK(MPI_Get_count(&status, l.type, &n));
        SAME(n, bytes ? count : 0);

        free(in_memory);
        in_memory = memory(&l, count, &in);
        OK(MPI_Sendrecv(out, count, l.type, ring(1), 3, in, count, l.type, ring(-1), 3,
                        MPI_COMM_WORLD, &status));
        CHECK(same(&l, count, in, got), "round %d: a layout received into a layout is wrong",
              round);

        free(in_memory), free(out_memory), free(packed), free(got), free(l.at);
        OK(MPI_Type_free(&l.type));
    }
    return check_end();
}

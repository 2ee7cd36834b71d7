/* Random accesses of all ranks to one file, against an array of bytes. What each rank does is drawn
 * from numbers that all ranks share, so each knows what all have written. CHECK_SEED and an
 * argument, the number of rounds, change it.
 *
 * In a round the file is opened with random hints. In a step all ranks set views, or resize the
 * file, or write through views that are disjoint, or read. Reads and writes are independent or
 * collective, blocking or not, with explicit offsets or by the individual file pointer, from and to
 * memory with gaps. */
// run: 60
// time: 60
#include "files.h"

enum { FILE_MOST = 40000, STEPS = 24, MOST = 64, BATCH = 3, MEMORY_UNITS = 5 };

/* A predefined type of which etypes are made. */
typedef struct {
    MPI_Datatype type;
    int bytes;
} Leaf;

/* The view of a rank. */
typedef struct {
    MPI_Datatype filetype;
    Map map;
    long long displacement, limit; /* it may write before this byte of the file */
    long long pointer;             /* in etypes */
} RankView;

static unsigned char *model;
static long long model_length;
static RankView views[MOST];
static MPI_Datatype etype;
static Leaf leaf;
static const char *representation;
static int etype_bytes, swapped, disjoint;
static MPI_File fh;
static Random all, own; /* numbers that all ranks share, and those of one */

enum { AT, POINTER };
enum { BLOCKING, PENDING, SPLIT };

/* One way to read or to write. */
typedef struct {
    int collective, at, form;
} Method;

/* An access under way. */
typedef struct {
    MPI_Datatype type;
    Map map;
    int count;
    long long bytes, offset; /* in memory; in the view, bytes */
    unsigned char *memory, *before, *base;
    size_t memory_bytes;
    uint64_t key;
    MPI_Request request;
    MPI_Status status;
} Access;

/* Which byte of its leaf a byte of memory is in the file. */
static long long stored(long long n)
{
    return swapped ? n - n % leaf.bytes + leaf.bytes - 1 - n % leaf.bytes : n;
}

static long long place_of(int rank, long long n)
{
    return views[rank].displacement + map_place(&views[rank].map, stored(n));
}

/* A type of `units` elements of a type, with gaps that `random` chooses, in rising order. */
static MPI_Datatype with_gaps(Random *random, MPI_Datatype unit, int unit_bytes, int units,
                              int aligned)
{
    MPI_Aint at[MOST * 4];
    int lengths[MOST * 4], blocks = 0;
    MPI_Aint next = random_below(random, 3) * unit_bytes;
    for (int left = units; left > 0; left -= lengths[blocks - 1]) {
        int length = 1 + random_below(random, left);
        at[blocks] = next;
        lengths[blocks++] = length;
        next += (MPI_Aint)length * unit_bytes;
        next += random_below(random, 4) * (aligned ? unit_bytes : 1);
    }
    MPI_Datatype packed, result;
    OK(MPI_Type_create_hindexed(blocks, lengths, at, unit, &packed));
    OK(MPI_Type_create_resized(packed, 0, next + random_below(random, 3) * unit_bytes, &result));
    OK(MPI_Type_free(&packed));
    return result;
}

/* Filetypes of all ranks that have no bytes in common, and the same extent. */
static void partition(MPI_Datatype *types)
{
    int kind = random_below(&all, 4), n = world_size;
    if (kind == 0) {
        /* Each unit of a tile belongs to a rank or to nobody. */
        int units = n + random_below(&all, 40), owner[MOST + 40], at[MOST + 40];
        for (int u = 0; u < units; u++)
            owner[u] = u < n ? u : random_below(&all, n + 2);
        for (int u = units - 1; u > 0; u--) {
            int other = random_below(&all, u + 1), kept = owner[u];
            owner[u] = owner[other], owner[other] = kept;
        }
        for (int r = 0; r < n; r++) {
            int count = 0;
            MPI_Datatype inner;
            for (int u = 0; u < units; u++)
                if (owner[u] == r)
                    at[count++] = u;
            OK(MPI_Type_create_indexed_block(count, 1, at, etype, &inner));
            OK(MPI_Type_create_resized(inner, 0, (MPI_Aint)units * etype_bytes, &types[r]));
            OK(MPI_Type_free(&inner));
        }
    } else if (kind == 1) {
        /* Blocks in turn, several turns a tile. */
        int block = 1 + random_below(&all, 9), turns = 1 + random_below(&all, 5);
        int stride = block * n + random_below(&all, 3);
        for (int r = 0; r < n; r++) {
            MPI_Datatype vector, moved;
            MPI_Aint at = (MPI_Aint)r * block * etype_bytes;
            int one = 1;
            OK(MPI_Type_vector(turns, block, stride, etype, &vector));
            OK(MPI_Type_create_struct(1, &one, &at, &vector, &moved));
            OK(MPI_Type_create_resized(moved, 0, (MPI_Aint)turns * stride * etype_bytes,
                                       &types[r]));
            OK(MPI_Type_free(&vector));
            OK(MPI_Type_free(&moved));
        }
    } else {
        int grid[2] = {0, 0}, sizes[2];
        OK(MPI_Dims_create(n, 2, grid));
        for (int d = 0; d < 2; d++)
            sizes[d] = grid[d] * (1 + random_below(&all, 6));
        int order = random_below(&all, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
        int spread[2], argument[2];
        for (int d = 0; d < 2; d++) {
            int cyclic = random_below(&all, 2);
            spread[d] = cyclic ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK;
            argument[d] = cyclic && sizes[d] >= 2 * grid[d] ? 1 + random_below(&all, 2)
                                                            : MPI_DISTRIBUTE_DFLT_DARG;
            if (cyclic && argument[d] == 2)
                sizes[d] = 2 * grid[d] * (1 + random_below(&all, 3));
        }
        for (int r = 0; r < n; r++) {
            int part[2] = {sizes[0] / grid[0], sizes[1] / grid[1]};
            int start[2] = {r / grid[1] * part[0], r % grid[1] * part[1]};
            if (kind == 2)
                OK(MPI_Type_create_subarray(2, sizes, part, start, order, etype, &types[r]));
            else
                OK(MPI_Type_create_darray(n, r, 2, sizes, spread, argument, grid, order, etype,
                                          &types[r]));
        }
    }
}

static void set_views(void)
{
    static const Leaf leaves[] = {
        {MPI_BYTE, 1}, {MPI_SHORT, 2}, {MPI_INT, 4}, {MPI_DOUBLE, 8}, {MPI_CHAR, 1}};
    static const char *const representations[] = {"native", "native", "internal", "external32"};
    MPI_Datatype old = etype, types[MOST];
    leaf = leaves[random_below(&all, 5)];
    int leaves_each = 1 + random_below(&all, 3);
    OK(MPI_Type_contiguous(leaves_each, leaf.type, &etype));
    OK(MPI_Type_commit(&etype));
    etype_bytes = leaves_each * leaf.bytes;
    representation = representations[random_below(&all, 4)];
    swapped = representation[0] == 'e';
    int segments = random_below(&all, 4) == 0;
    disjoint = segments || random_below(&all, 4) != 0;
    long long begin = random_below(&all, 60), segment = FILE_MOST / world_size;
    if (!segments && disjoint)
        partition(types);
    for (int r = 0; r < world_size; r++) {
        RankView *view = &views[r];
        view->displacement = segments ? r * segment : begin;
        view->limit = segments ? (r + 1) * segment : FILE_MOST;
        if (segments)
            OK(MPI_Type_dup(etype, &types[r]));
        else if (!disjoint)
            types[r] = with_gaps(&all, etype, etype_bytes, 1 + random_below(&all, 12), 0);
        OK(MPI_Type_commit(&types[r]));
        if (view->map.offsets)
            map_free(&view->map);
        if (view->filetype != MPI_DATATYPE_NULL)
            OK(MPI_Type_free(&view->filetype));
        view->filetype = types[r];
        view->map = map_of(types[r]);
        view->pointer = 0;
    }
    RankView *mine = &views[world_rank];
    OK(MPI_File_set_view(fh, mine->displacement, etype, mine->filetype, representation,
                         MPI_INFO_NULL));
    MPI_Offset at = -1;
    long long far = random_below(&own, 100);
    OK(MPI_File_get_byte_offset(fh, far, &at));
    SAME(at, mine->displacement + map_place(&mine->map, far * etype_bytes));
    if (old != MPI_DATATYPE_NULL)
        OK(MPI_Type_free(&old));
}

/* How many etypes lie in front of a byte of the file, in a rank's view. */
static long long etypes_before(int rank, long long limit)
{
    RankView *view = &views[rank];
    long long tiles = (limit - view->displacement) / view->map.extent;
    long long n = (tiles > 1 ? tiles - 1 : 0) * (view->map.bytes / etype_bytes);
    while (view->displacement + map_place(&view->map, (n + 1) * etype_bytes - 1) < limit)
        n++;
    return n;
}

/* The memory of an access of `units` etypes at a time, `count` times. */
static void make_memory(Access *a, int units, int count)
{
    int plain = random_below(&own, 3) == 0;
    if (plain) {
        OK(MPI_Type_contiguous(units, etype, &a->type));
    } else {
        MPI_Datatype inner = with_gaps(&own, etype, etype_bytes, units, 1);
        MPI_Aint before = random_below(&own, 3) * (MPI_Aint)etype_bytes, lb, extent;
        OK(MPI_Type_get_extent(inner, &lb, &extent));
        OK(MPI_Type_create_resized(inner, -before, extent + before, &a->type));
        OK(MPI_Type_free(&inner));
    }
    OK(MPI_Type_commit(&a->type));
    a->map = map_of(a->type);
    a->count = count;
    a->bytes = (long long)count * a->map.bytes;
    a->memory_bytes = (size_t)(count * a->map.extent + a->map.high + 64);
    a->memory = malloc(a->memory_bytes);
    a->before = malloc(a->memory_bytes);
    a->base = a->memory + 32 - (a->map.low < 0 ? a->map.low : 0);
}

static void free_memory(Access *a)
{
    OK(MPI_Type_free(&a->type));
    map_free(&a->map);
    free(a->memory);
    free(a->before);
}

#define FORMS(name)                                                                                \
    do {                                                                                           \
        MPI_Offset offset = a->offset / etype_bytes;                                               \
        if (m.form == PENDING && m.collective)                                                     \
            OK(m.at == AT ? MPI_File_i##name##_at_all(fh, offset, a->base, a->count, a->type,      \
                                                      &a->request)                                 \
                          : MPI_File_i##name##_all(fh, a->base, a->count, a->type, &a->request));  \
        else if (m.form == PENDING)                                                                \
            OK(m.at == AT                                                                          \
                   ? MPI_File_i##name##_at(fh, offset, a->base, a->count, a->type, &a->request)    \
                   : MPI_File_i##name(fh, a->base, a->count, a->type, &a->request));               \
        else if (m.form == SPLIT)                                                                  \
            OK(m.at == AT ? MPI_File_##name##_at_all_begin(fh, offset, a->base, a->count, a->type) \
                          : MPI_File_##name##_all_begin(fh, a->base, a->count, a->type));          \
        else if (m.collective)                                                                     \
            OK(m.at == AT                                                                          \
                   ? MPI_File_##name##_at_all(fh, offset, a->base, a->count, a->type, &a->status)  \
                   : MPI_File_##name##_all(fh, a->base, a->count, a->type, &a->status));           \
        else                                                                                       \
            OK(m.at == AT                                                                          \
                   ? MPI_File_##name##_at(fh, offset, a->base, a->count, a->type, &a->status)      \
                   : MPI_File_##name(fh, a->base, a->count, a->type, &a->status));                 \
        if (m.form == SPLIT)                                                                       \
            OK(m.at == AT ? MPI_File_##name##_at_all_end(fh, a->base, &a->status)                  \
                          : MPI_File_##name##_all_end(fh, a->base, &a->status));                   \
    } while (0)

static void start(Access *a, Method m, int writing)
{
    if (writing)
        FORMS(write);
    else
        FORMS(read);
}

static const char *name_of(Method m, int writing)
{
    static char text[64];
    snprintf(text, sizeof text, "MPI_File_%s%s%s%s%s", m.form == PENDING ? "i" : "",
             writing ? "write" : "read", m.at == AT ? "_at" : "", m.collective ? "_all" : "",
             m.form == SPLIT ? "_begin" : "");
    return text;
}

/* What a read should have found: the model's bytes, up to the end of the file. */
static void check_read(Access *a, Method m, int round, int step)
{
    long long found = 0;
    while (found < a->bytes && place_of(world_rank, a->offset + found) < model_length)
        found++;
    /* A number whose bytes are swapped is read whole or not at all: its first byte is the last. */
    long long got = bytes_of(&a->status);
    CHECK(got == found,
          "round %d step %d: %s of %lld bytes (%d at a time, etype of %d, %s) at %lld read %lld, "
          "should read %lld",
          round, step, name_of(m, 0), a->bytes, a->map.bytes, etype_bytes, representation,
          a->offset, got, found);
    for (long long n = 0; n < a->bytes; n++) {
        size_t at = (size_t)(a->base - a->memory + map_place(&a->map, n));
        long long place = place_of(world_rank, a->offset + n);
        unsigned char is = a->memory[at];
        if (n < got && is != model[place]) {
            FAIL("round %d step %d: %s: byte %lld of %lld (%lld of the file of %lld) is %d, should "
                 "be %d",
                 round, step, name_of(m, 0), n, a->bytes, place, model_length, is, model[place]);
            return;
        }
        a->before[at] = is;
    }
    CHECK(memcmp(a->memory, a->before, a->memory_bytes) == 0,
          "round %d step %d: %s has stored bytes outside of its type", round, step, name_of(m, 0));
}

static void access_file(int writing, int round, int step)
{
    Method m = {random_below(&all, 2), random_below(&all, 2), random_below(&all, 3)};
    if (m.form == SPLIT)
        m.collective = 1;
    int batch = m.form == PENDING ? 1 + random_below(&all, BATCH) : 1;
    Access accesses[BATCH];
    memset(accesses, 0, sizeof accesses);
    for (int r = 0; r < world_size; r++) {
        RankView *view = &views[r];
        long long most = etypes_before(r, writing ? view->limit : FILE_MOST);
        if (random_below(&all, 2) || m.at == AT || view->pointer >= most)
            view->pointer = random_below(&all, (int)most + 1);
    }
    if (m.at == POINTER)
        OK(MPI_File_seek(fh, views[world_rank].pointer, MPI_SEEK_SET));
    for (int b = 0; b < batch; b++) {
        Access *a = &accesses[b];
        a->request = MPI_REQUEST_NULL;
        for (int r = 0; r < world_size; r++) {
            RankView *view = &views[r];
            long long left = etypes_before(r, writing ? view->limit : FILE_MOST) - view->pointer;
            int units = 1 + random_below(&all, MEMORY_UNITS);
            int count = left > 0 ? random_size(&all, (int)(left / units)) : 0;
            uint64_t key = random_next(&all);
            long long bytes = (long long)count * units * etype_bytes;
            long long offset = view->pointer * etype_bytes;
            view->pointer += (long long)count * units;
            if (r == world_rank) {
                make_memory(a, units, count);
                a->offset = offset, a->key = key;
            }
            for (long long n = 0; writing && n < bytes; n++) {
                long long place = place_of(r, offset + n);
                model[place] = pattern(key, (size_t)n);
                if (place >= model_length)
                    model_length = place + 1;
            }
        }
        fill(a->memory, a->memory_bytes, a->key + 1);
        for (long long n = 0; writing && n < a->bytes; n++)
            a->base[map_place(&a->map, n)] = pattern(a->key, (size_t)n);
        memcpy(a->before, a->memory, a->memory_bytes);
        start(a, m, writing);
    }
    MPI_Request requests[BATCH];
    MPI_Status statuses[BATCH];
    for (int b = 0; b < batch; b++)
        requests[b] = accesses[b].request;
    if (m.form == PENDING)
        OK(MPI_Waitall(batch, requests, statuses));
    for (int b = 0; b < batch; b++) {
        Access *a = &accesses[b];
        if (m.form == PENDING)
            a->status = statuses[b];
        if (!writing) {
            check_read(a, m, round, step);
        } else {
            SAME(bytes_of(&a->status), a->bytes);
            CHECK(memcmp(a->memory, a->before, a->memory_bytes) == 0,
                  "round %d step %d: %s has changed its buffer", round, step, name_of(m, 1));
        }
        free_memory(a);
    }
    if (m.at == POINTER) {
        MPI_Offset pointer = -1;
        OK(MPI_File_get_position(fh, &pointer));
        SAME(pointer, views[world_rank].pointer);
    }
    if (writing)
        file_publish(fh);
}

static void resize(void)
{
    int size = random_below(&all, FILE_MOST), preallocate = random_below(&all, 3) == 0;
    if (preallocate)
        OK(MPI_File_preallocate(fh, size));
    else
        OK(MPI_File_set_size(fh, size));
    if (!preallocate || size > model_length) {
        if (size < model_length)
            memset(model + size, 0, (size_t)(model_length - size));
        model_length = size;
    }
    file_publish(fh);
    MPI_Offset is = -1;
    OK(MPI_File_get_size(fh, &is));
    SAME(is, model_length);
}

static MPI_Info random_hints(void)
{
    static const char *const choices[] = {"automatic", "enable", "disable"};
    static const char *const keys[] = {"romio_cb_read", "romio_cb_write", "romio_ds_read",
                                       "romio_ds_write"};
    static const char *const sizes[] = {"1", "16", "100", "1000", "4096", "1048576"};
    static const char *const buffers[] = {"cb_buffer_size", "ind_rd_buffer_size",
                                          "ind_wr_buffer_size"};
    MPI_Info info;
    OK(MPI_Info_create(&info));
    for (int k = 0; k < 4; k++)
        OK(MPI_Info_set(info, keys[k], choices[random_below(&all, 3)]));
    for (int k = 0; k < 3; k++)
        if (random_below(&all, 3))
            OK(MPI_Info_set(info, buffers[k], sizes[random_below(&all, 6)]));
    char number[16];
    snprintf(number, sizeof number, "%d", 1 + random_below(&all, world_size));
    OK(MPI_Info_set(info, "cb_nodes", number));
    if (random_below(&all, 2))
        OK(MPI_Info_set(info, "striping_unit", sizes[random_below(&all, 6)]));
    return info;
}

static void play(int round)
{
    const char *name = file_name();
    MPI_Info hints = random_hints();
    memset(model, 0, FILE_MOST);
    model_length = 0;
    fh = file_open(name, MPI_MODE_CREATE | MPI_MODE_RDWR, hints);
    OK(MPI_Info_free(&hints));
    set_views();
    for (int step = 0; step < STEPS; step++) {
        int what = random_below(&all, 10);
        if (what == 0)
            resize();
        else if (what == 1)
            OK(MPI_File_set_atomicity(fh, random_below(&all, 2)));
        else if (what < 4)
            set_views();
        else
            access_file(disjoint && what < 7, round, step);
        OK(MPI_Barrier(MPI_COMM_WORLD)); /* nobody writes yet what another is reading */
    }
    OK(MPI_File_close(&fh));
    SAME(file_length(name), model_length);
    unsigned char *bytes = malloc(FILE_MOST);
    size_t found = file_contents(name, bytes, FILE_MOST, 0);
    for (size_t at = 0; at < found; at++)
        if (bytes[at] != model[at]) {
            FAIL("round %d: byte %zu of the file is %d, should be %d", round, at, bytes[at],
                 model[at]);
            break;
        }
    free(bytes);
    file_remove(name);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 4;
    model = malloc(FILE_MOST);
    etype = MPI_DATATYPE_NULL;
    for (int r = 0; r < MOST; r++)
        views[r].filetype = MPI_DATATYPE_NULL;
    for (int round = 0; round < rounds; round++) {
        all = random_from((uint64_t)round + 28);
        own = random_from((uint64_t)(round * MOST + world_rank) + 14);
        play(round);
    }
    for (int r = 0; r < world_size; r++) {
        OK(MPI_Type_free(&views[r].filetype));
        map_free(&views[r].map);
    }
    OK(MPI_Type_free(&etype));
    free(model);
    return check_end();
}

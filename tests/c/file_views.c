/* Views (MPI 5.0 sections 14.3 and 14.5): filetypes of every constructor, displacements, offsets
 * and extents, and data representations, also those that the program registers. */
#include "files.h"

enum { ROWS = 12, COLUMNS = 10 };

/* What get_view returns is what was set. */
static void view_is(MPI_File fh, MPI_Offset disp, MPI_Datatype etype, const char *representation)
{
    MPI_Offset is = -1;
    MPI_Datatype element = MPI_DATATYPE_NULL, filetype = MPI_DATATYPE_NULL;
    char name[MPI_MAX_DATAREP_STRING] = "";
    int integers, addresses, types, combiner = -1;
    OK(MPI_File_get_view(fh, &is, &element, &filetype, name));
    SAME(is, disp);
    CHECK(strcmp(name, representation) == 0, "the representation is [%s], should be [%s]", name,
          representation);
    if (etype != MPI_DATATYPE_NULL)
        CHECK(element == etype, "the etype is another one");
    OK(MPI_Type_get_envelope(element, &integers, &addresses, &types, &combiner));
    if (combiner != MPI_COMBINER_NAMED)
        OK(MPI_Type_free(&element));
    OK(MPI_Type_get_envelope(filetype, &integers, &addresses, &types, &combiner));
    if (combiner != MPI_COMBINER_NAMED)
        OK(MPI_Type_free(&filetype));
}

/* Every `n`-th kind of filetype of ints, such that ranks have different ones. */
static MPI_Datatype kind(int n)
{
    MPI_Datatype type = MPI_DATATYPE_NULL, inner;
    int sizes[2] = {ROWS * world_size, COLUMNS}, part[2] = {ROWS, COLUMNS - 3};
    int start[2] = {ROWS * world_rank, 2};
    switch (n) {
    case 0:
        OK(MPI_Type_contiguous(3, MPI_INT, &type));
        break;
    case 1:
        OK(MPI_Type_vector(4, 2, 5, MPI_INT, &type));
        break;
    case 2:
        OK(MPI_Type_create_hvector(3, 1, 11, MPI_INT, &type));
        break;
    case 3:
        OK(MPI_Type_indexed(3, (int[]){1, 0, 3},
                            (int[]){world_rank, 1 + world_rank, 4 + world_rank}, MPI_INT, &type));
        break;
    case 4:
        OK(MPI_Type_create_hindexed(2, (int[]){2, 1}, (MPI_Aint[]){3, 40 + world_rank}, MPI_INT,
                                    &type));
        break;
    case 5:
        OK(MPI_Type_create_indexed_block(3, 2, (int[]){0, 3, 9}, MPI_INT, &type));
        break;
    case 6:
        OK(MPI_Type_create_hindexed_block(2, 2, (MPI_Aint[]){1, 33}, MPI_INT, &type));
        break;
    case 7:
        OK(MPI_Type_create_struct(2, (int[]){1, 2},
                                  (MPI_Aint[]){4 * world_rank, 4 * world_rank + 9},
                                  (MPI_Datatype[]){MPI_INT, MPI_INT}, &type));
        break;
    case 8:
        OK(MPI_Type_create_subarray(2, sizes, part, start, MPI_ORDER_C, MPI_INT, &type));
        break;
    case 9:
        OK(MPI_Type_create_subarray(2, (int[]){COLUMNS, ROWS * world_size},
                                    (int[]){COLUMNS - 3, ROWS}, (int[]){2, ROWS * world_rank},
                                    MPI_ORDER_FORTRAN, MPI_INT, &type));
        break;
    case 10:
        OK(MPI_Type_create_darray(world_size, world_rank, 2, sizes,
                                  (int[]){MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE},
                                  (int[]){2, MPI_DISTRIBUTE_DFLT_DARG}, (int[]){world_size, 1},
                                  MPI_ORDER_C, MPI_INT, &type));
        break;
    case 11:
        OK(MPI_Type_vector(3, 1, 4, MPI_INT, &inner));
        OK(MPI_Type_create_resized(inner, -4, 60, &type));
        OK(MPI_Type_free(&inner));
        break;
    case 12:
        OK(MPI_Type_vector(2, 1, 2, MPI_INT, &inner));
        OK(MPI_Type_create_hvector(3, 2, 50, inner, &type));
        OK(MPI_Type_free(&inner));
        break;
    default:
        return MPI_DATATYPE_NULL;
    }
    OK(MPI_Type_commit(&type));
    return type;
}

/* Writes through a view on one rank after the other, and looks at each byte of the file. */
static void one_kind(int n)
{
    enum { INTS = 50, MOST = 1 << 20 };
    MPI_Datatype filetype = kind(n);
    Map map = map_of(filetype);
    MPI_Offset displacement = 7 + n, at = -1;
    const char *name = file_name();
    MPI_File fh = file_create(name);
    int out[INTS], in[INTS];
    unsigned char *expected = malloc(MOST), *found = malloc(MOST);
    for (int i = 0; i < INTS; i++)
        out[i] = world_rank << 16 | n << 8 | i;
    OK(MPI_File_set_view(fh, displacement, MPI_INT, filetype, "native", MPI_INFO_NULL));
    view_is(fh, displacement, MPI_INT, "native");
    for (int i = 0; i < INTS; i += 7) {
        OK(MPI_File_get_byte_offset(fh, i, &at));
        SAME(at, displacement + map_place(&map, 4ll * i));
    }
    for (int turn = 0; turn < world_size; turn++) {
        if (turn == world_rank) {
            memset(expected, 0, MOST);
            size_t before = file_contents(name, expected, MOST, 0), least = before;
            for (int b = 0; b < 4 * INTS; b++) {
                size_t place = (size_t)(displacement + map_place(&map, b));
                expected[place] = ((unsigned char *)out)[b];
                least = place >= least ? place + 1 : least;
            }
            OK(MPI_File_write(fh, out, 20, MPI_INT, MPI_STATUS_IGNORE));
            OK(MPI_File_write_at(fh, 30, out + 30, INTS - 30, MPI_INT, MPI_STATUS_IGNORE));
            OK(MPI_File_write(fh, out + 20, 10, MPI_INT, MPI_STATUS_IGNORE));
            SAME(file_contents(name, found, MOST, 0), least);
            size_t wrong = 0;
            while (wrong < least && found[wrong] == expected[wrong])
                wrong++;
            CHECK(wrong == least, "filetype %d: byte %zu of the file is %d, should be %d", n, wrong,
                  found[wrong], expected[wrong]);
            memset(in, 0, sizeof in);
            OK(MPI_File_read_at(fh, 0, in, INTS, MPI_INT, MPI_STATUS_IGNORE));
            CHECK(memcmp(in, out, sizeof in) == 0, "filetype %d does not come back", n);
        }
        file_publish(fh);
    }
    MPI_Offset position = -1, size = 0;
    OK(MPI_File_get_position(fh, &position));
    SAME(position, 30);
    /* Behind the last etype that begins before the end of the file. */
    OK(MPI_File_seek(fh, 0, MPI_SEEK_END));
    OK(MPI_File_get_position(fh, &position));
    OK(MPI_File_get_size(fh, &size));
    CHECK(displacement + map_place(&map, 4 * position) >= size,
          "filetype %d: the end is at %lld, where %lld bytes follow", n, (long long)position,
          (long long)size);
    if (position > 0)
        CHECK(displacement + map_place(&map, 4 * (position - 1)) < size,
              "filetype %d: the end is at %lld, which is too far", n, (long long)position);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_close(&fh));
    OK(MPI_Type_free(&filetype));
    map_free(&map);
    free(expected);
    free(found);
    file_remove(name);
}

/* A view lasts when its types are freed, and another one begins anew. */
static void lives_on(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Datatype etype, filetype;
    OK(MPI_Type_contiguous(2, MPI_SHORT, &etype));
    OK(MPI_Type_commit(&etype));
    OK(MPI_Type_create_resized(etype, 0, 4 * world_size, &filetype));
    OK(MPI_Type_commit(&filetype));
    OK(MPI_File_set_view(fh, 4 * world_rank, etype, filetype, "internal", MPI_INFO_NULL));
    OK(MPI_Type_free(&etype));
    OK(MPI_Type_free(&filetype));
    view_is(fh, 4 * world_rank, MPI_DATATYPE_NULL, "internal");
    short pair[6] = {1, 2, 3, 4, 5, (short)world_rank};
    OK(MPI_File_write_all(fh, pair, 6, MPI_SHORT, MPI_STATUS_IGNORE));
    MPI_Offset position = -1;
    OK(MPI_File_get_position(fh, &position));
    SAME(position, 3);
    OK(MPI_File_set_view(fh, 0, MPI_SHORT, MPI_SHORT, "native", MPI_INFO_NULL));
    OK(MPI_File_get_position(fh, &position));
    SAME(position, 0);
    OK(MPI_File_get_position_shared(fh, &position));
    SAME(position, 0);
    file_publish(fh);
    /* The last short of each rank, in its third tile. */
    short last = -1;
    OK(MPI_File_read_at_all(fh, 2 * (2 * world_size + ring(1)) + 1, &last, 1, MPI_SHORT,
                            MPI_STATUS_IGNORE));
    SAME(last, ring(1));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

static void mistakes(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Datatype twice, itself, odd, none, backwards, uncommitted;
    OK(MPI_Type_create_resized(MPI_INT, 0, 2, &twice));
    OK(MPI_Type_commit(&twice));
    OK(MPI_Type_create_hindexed(2, (int[]){1, 1}, (MPI_Aint[]){0, 2}, MPI_INT, &itself));
    OK(MPI_Type_commit(&itself));
    OK(MPI_Type_contiguous(3, MPI_CHAR, &odd));
    OK(MPI_Type_commit(&odd));
    OK(MPI_Type_contiguous(0, MPI_CHAR, &none));
    OK(MPI_Type_commit(&none));
    OK(MPI_Type_indexed(2, (int[]){1, 1}, (int[]){3, 0}, MPI_INT, &backwards));
    OK(MPI_Type_commit(&backwards));
    OK(MPI_Type_contiguous(3, MPI_INT, &uncommitted));
    MPI_Info null = MPI_INFO_NULL;
    CLASS(MPI_File_set_view(fh, -5, MPI_INT, MPI_INT, "native", null), MPI_ERR_ARG);
    CLASS(MPI_File_set_view(fh, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", null),
          MPI_ERR_ARG);
    CLASS(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "no such representation", null),
          MPI_ERR_UNSUPPORTED_DATAREP);
    CLASS(MPI_File_set_view(fh, 0, MPI_DATATYPE_NULL, MPI_INT, "native", null), MPI_ERR_TYPE);
    CLASS(MPI_File_set_view(fh, 0, MPI_INT, uncommitted, "native", null), MPI_ERR_TYPE);
    int code = MPI_File_set_view(fh, 0, MPI_INT, itself, "native", null);
    CHECK(code != MPI_SUCCESS, "a file for writing has a view with bytes twice");
    code = MPI_File_set_view(fh, 0, MPI_INT, odd, "native", null);
    CHECK(code != MPI_SUCCESS, "a filetype of 3 bytes is taken with an etype of 4");
    code = MPI_File_set_view(fh, 0, none, none, "native", null);
    CHECK(code != MPI_SUCCESS, "an etype without bytes is taken");
    if (world_size > 1)
        CLASS(MPI_File_set_view(fh, 0, world_rank ? MPI_INT : MPI_CHAR,
                                world_rank ? MPI_INT : MPI_CHAR, "native", null),
              MPI_ERR_NOT_SAME);
    /* A mistake of one rank is an error on all, and the old view stays. */
    if (world_size > 1) {
        code = MPI_File_set_view(fh, world_rank == 1 ? -1 : 0, MPI_INT, MPI_INT, "native", null);
        CHECK(code != MPI_SUCCESS, "a rank does not see another one's mistake");
    }
    view_is(fh, 0, MPI_BYTE, "native");
    /* Filetypes that lie over each other may be written one by one. */
    int two[2] = {1, 2};
    OK(MPI_File_set_view(fh, 0, MPI_INT, twice, "native", null));
    OK(MPI_File_write_at_all(fh, 0, two, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(MPI_File_write_at_all(fh, 0, two, 2, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS,
          "bytes are written twice");
    OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", null));
    char bytes[8] = {0};
    code = MPI_File_write(fh, bytes, 3, MPI_CHAR, MPI_STATUS_IGNORE);
    CHECK(code != MPI_SUCCESS, "3 bytes are written as a whole number of ints");
    MPI_Offset at;
    CLASS(MPI_File_get_byte_offset(fh, -1, &at), MPI_ERR_ARG);
    CLASS(MPI_File_seek(fh, -1, MPI_SEEK_SET), MPI_ERR_ARG);
    CLASS(MPI_File_seek(fh, 0, 99), MPI_ERR_ARG);
    CLASS(MPI_File_seek_shared(fh, -1, MPI_SEEK_SET), MPI_ERR_ARG);
    CLASS(MPI_File_read_at(fh, -1, bytes, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_ARG);
    OK(MPI_File_close(&fh));
    /* What is only read may be there twice. */
    int numbers[4] = {1, 2, 3, 4}, pair[2] = {0};
    file_make("twice", numbers, sizeof numbers);
    fh = file_open("twice", MPI_MODE_RDONLY, null);
    OK(MPI_File_set_view(fh, 0, MPI_INT, twice, "native", null));
    OK(MPI_File_read_all(fh, pair, 2, MPI_INT, MPI_STATUS_IGNORE));
    SAME(pair[0], 1);
    SAME(pair[1], 2 << 16);
    OK(MPI_File_close(&fh));
    OK(MPI_Type_free(&twice));
    OK(MPI_Type_free(&itself));
    OK(MPI_Type_free(&odd));
    OK(MPI_Type_free(&none));
    OK(MPI_Type_free(&backwards));
    OK(MPI_Type_free(&uncommitted));
    file_remove("twice");
    file_remove(name);
}

/* A filetype whose extent is less than it spans, for one access: ranks in turn, in two phases. */
static void one_filetype(void)
{
    enum { INTS = 30 };
    const char *name = file_name();
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "romio_cb_write", "enable"));
    OK(MPI_Info_set(info, "romio_cb_read", "enable"));
    OK(MPI_Info_set(info, "cb_buffer_size", "50"));
    MPI_File fh = file_open(name, MPI_MODE_CREATE | MPI_MODE_RDWR, info);
    OK(MPI_Info_free(&info));
    MPI_Datatype all, filetype;
    OK(MPI_Type_vector(INTS, 1, world_size, MPI_INT, &all));
    OK(MPI_Type_create_resized(all, 8, 20, &filetype));
    OK(MPI_Type_commit(&filetype));
    OK(MPI_File_set_view(fh, 4 * world_rank, MPI_INT, filetype, "native", MPI_INFO_NULL));
    int out[INTS], in[INTS] = {0}, found[INTS * 64];
    for (int i = 0; i < INTS; i++)
        out[i] = i * world_size + world_rank;
    for (int turn = 0; turn < 2; turn++) {
        OK(MPI_File_write_at_all(fh, 10 * turn, out + 10 * turn, INTS - 10 * turn, MPI_INT,
                                 MPI_STATUS_IGNORE));
        file_publish(fh);
        OK(MPI_File_read_at_all(fh, 0, in, INTS, MPI_INT, MPI_STATUS_IGNORE));
        CHECK(memcmp(in, out, sizeof in) == 0, "what was written does not come back");
    }
    SAME(file_contents(name, found, sizeof found, 0), 4 * INTS * world_size);
    for (int i = 0; i < INTS * world_size; i++)
        SAME(found[i], i);
    OK(MPI_Type_free(&all));
    OK(MPI_Type_free(&filetype));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* Big-endian numbers of the standard's sizes; a long has 4 bytes. */
static void external(void)
{
    typedef struct {
        char c;
        long l;
        double d;
    } Record;
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Datatype fields, record, filetype;
    MPI_Aint extent = -1;
    OK(MPI_Type_create_struct(
        3, (int[]){1, 1, 1},
        (MPI_Aint[]){offsetof(Record, c), offsetof(Record, l), offsetof(Record, d)},
        (MPI_Datatype[]){MPI_CHAR, MPI_LONG, MPI_DOUBLE}, &fields));
    OK(MPI_Type_create_resized(fields, 0, sizeof(Record), &record));
    OK(MPI_Type_commit(&record));
    OK(MPI_File_set_view(fh, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL));
    view_is(fh, 0, MPI_LONG, "external32");
    static const struct {
        MPI_Datatype type;
        int extent;
    } sizes[] = {{MPI_LONG, 4},   {MPI_INT, 4},
                 {MPI_CHAR, 1},   {MPI_DOUBLE, 8},
                 {MPI_FLOAT, 4},  {MPI_LONG_LONG, 8},
                 {MPI_SHORT, 2},  {MPI_WCHAR, 2},
                 {MPI_INT8_T, 1}, {MPI_C_BOOL, 1},
                 {MPI_OFFSET, 8}, {MPI_LONG_DOUBLE, 16},
                 {MPI_COUNT, 8},  {MPI_C_DOUBLE_COMPLEX, 16}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        OK(MPI_File_get_type_extent(fh, sizes[i].type, &extent));
        SAME(extent, sizes[i].extent);
    }
    MPI_Count large = -1;
    OK(MPI_File_get_type_extent_c(fh, MPI_LONG, &large));
    SAME(large, 4);
    OK(MPI_Type_vector(2, 1, world_size, MPI_LONG, &filetype));
    OK(MPI_Type_commit(&filetype));
    long out[2] = {-2 - world_rank, 0x01020304}, in[2] = {0}, beyond = 1l << 40;
    OK(MPI_File_set_view(fh, 4 * world_rank, MPI_LONG, filetype, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at_all(fh, 0, out, 2, MPI_LONG, MPI_STATUS_IGNORE));
    file_publish(fh);
    MPI_Status status;
    OK(MPI_File_read_at_all(fh, 0, in, 2, MPI_LONG, &status));
    SAME(in[0], out[0]);
    SAME(in[1], out[1]);
    int count = -1;
    OK(MPI_Get_count(&status, MPI_LONG, &count));
    SAME(count, 2);
    unsigned char bytes[4];
    SAME(file_contents(name, bytes, 4, 4 * world_rank), 4);
    SAME((int)((unsigned)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3]),
         -2 - world_rank);
    SAME(file_contents(name, bytes, 4, 4 * world_size + 4 * world_rank), 4);
    CHECK(memcmp(bytes, "\1\2\3\4", 4) == 0, "a number is not big-endian");
    SAME(file_length(name), 8 * world_size);
    CLASS(MPI_File_write_at(fh, 0, &beyond, 1, MPI_LONG, MPI_STATUS_IGNORE), MPI_ERR_CONVERSION);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    /* A structure loses its padding. What is short has whole numbers only. */
    OK(MPI_File_set_view(fh, 0, record, record, "external32", MPI_INFO_NULL));
    OK(MPI_File_get_type_extent(fh, record, &extent));
    MPI_Offset at = -1;
    OK(MPI_File_get_byte_offset(fh, 1, &at));
    SAME(at, extent);
    Record records[2] = {{'a', -1, 1.5}, {'b', world_rank, -0.25}}, back[3];
    memset(back, 0, sizeof back);
    OK(MPI_File_write_at_all(fh, 2 * world_rank, records, 2, record, MPI_STATUS_IGNORE));
    file_publish(fh);
    OK(MPI_File_read_at(fh, 2 * ring(1), back, 2, record, &status));
    SAME(back[1].l, ring(1));
    CHECK(back[0].d == 1.5 && back[1].d == -0.25 && back[1].c == 'b' && back[0].l == -1,
          "a record does not come back");
    OK(MPI_Get_count(&status, record, &count));
    SAME(count, 2);
    OK(MPI_File_set_view(fh, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL));
    OK(MPI_File_set_size(fh, 10));
    long three[3] = {7, 7, 7};
    OK(MPI_File_read_at_all(fh, 0, three, 3, MPI_LONG, &status));
    OK(MPI_Get_count(&status, MPI_LONG, &count));
    SAME(count, 2);
    SAME(bytes_of(&status), 2 * (long long)sizeof(long));
    OK(MPI_Type_free(&filetype));
    OK(MPI_Type_free(&fields));
    OK(MPI_Type_free(&record));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* A representation of the program: each int as 3 bytes, with a key. */
typedef struct {
    int key, reads, writes, extents;
} State;

static int extent_of(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    int size = 0;
    ((State *)state)->extents++;
    MPI_Type_size(type, &size);
    *extent = type == MPI_INT ? 3 : size;
    return MPI_SUCCESS;
}

static int to_file(void *memory, MPI_Datatype type, int count, void *file, MPI_Offset position,
                   void *state)
{
    State *s = state;
    s->writes++;
    if (type != MPI_INT)
        return MPI_ERR_CONVERSION;
    for (int i = 0; i < count; i++) {
        int value = ((int *)memory)[position + i] ^ s->key;
        memcpy((char *)file + 3 * i, &value, 3);
    }
    return MPI_SUCCESS;
}

static int from_file(void *memory, MPI_Datatype type, int count, void *file, MPI_Offset position,
                     void *state)
{
    State *s = state;
    s->reads++;
    if (type != MPI_INT)
        return MPI_ERR_CONVERSION;
    for (int i = 0; i < count; i++) {
        int value = 0;
        memcpy(&value, (char *)file + 3 * i, 3);
        ((int *)memory)[position + i] = value ^ s->key;
    }
    return MPI_SUCCESS;
}

static int to_file_c(void *memory, MPI_Datatype type, MPI_Count count, void *file,
                     MPI_Offset position, void *state)
{
    return to_file(memory, type, (int)count, file, position, state);
}

static int from_file_c(void *memory, MPI_Datatype type, MPI_Count count, void *file,
                       MPI_Offset position, void *state)
{
    return from_file(memory, type, (int)count, file, position, state);
}

/* On the last rank: the code that `state` holds. */
static int failing_extent(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    int size = 0;
    MPI_Type_size(type, &size);
    *extent = size;
    return world_rank == world_size - 1 ? *(int *)state : MPI_SUCCESS;
}

/* A function of one rank's representation fails: that rank gets its code, the others its class,
 * also one that the program has added. */
static void failing(void)
{
    static int codes[3];
    int classes[3] = {MPI_ERR_CONVERSION, MPI_ERR_QUOTA, 0};
    codes[0] = MPI_ERR_CONVERSION;
    OK(MPI_Add_error_code(MPI_ERR_QUOTA, &codes[1]));
    OK(MPI_Add_error_class(&classes[2]));
    OK(MPI_Add_error_code(classes[2], &codes[2]));
    const char *name = file_name();
    MPI_File fh = file_create(name);
    for (int i = 0; i < 3; i++) {
        char representation[32], text[MPI_MAX_ERROR_STRING] = "success";
        int class = -1, length;
        snprintf(representation, sizeof representation, "failing %d", i);
        OK(MPI_Register_datarep(representation, MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL,
                                failing_extent, &codes[i]));
        int code =
            MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, representation, MPI_INFO_NULL);
        OK(MPI_Error_class(code, &class));
        SAME(class, classes[i]);
        if (world_rank == world_size - 1)
            SAME(code, codes[i]);
        OK(MPI_Error_string(code, text, &length));
        if (world_rank < world_size - 1 && i < 2)
            CHECK(strstr(text, "representation"), "the text is [%s]", text);
    }
    OK(MPI_File_close(&fh));
    file_remove(name);
}

static void registered(void)
{
    static State state = {0x123456, 0, 0, 0}, other = {0x654321, 0, 0, 0};
    OK(MPI_Register_datarep("three bytes", from_file, to_file, extent_of, &state));
    CLASS(MPI_Register_datarep("three bytes", from_file, to_file, extent_of, &state),
          MPI_ERR_DUP_DATAREP);
    CLASS(MPI_Register_datarep("native", from_file, to_file, extent_of, &state),
          MPI_ERR_DUP_DATAREP);
    OK(MPI_Register_datarep_c("three bytes, counted", from_file_c, to_file_c, extent_of, &other));
    OK(MPI_Register_datarep("as it is", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_of,
                            &other));
    char name_of_any_length[2 * MPI_MAX_DATAREP_STRING];
    memset(name_of_any_length, 'x', sizeof name_of_any_length);
    name_of_any_length[sizeof name_of_any_length - 1] = 0;
    CLASS(MPI_Register_datarep(name_of_any_length, from_file, to_file, extent_of, &state),
          MPI_ERR_ARG);
    static const char *const names[] = {"three bytes", "three bytes, counted"};
    State *states[] = {&state, &other};
    for (int n = 0; n < 2; n++) {
        const char *name = file_name();
        MPI_File fh = file_create(name);
        enum { INTS = 6 };
        int out[INTS], in[INTS] = {0}, count = -1;
        for (int i = 0; i < INTS; i++)
            out[i] = world_rank * 100 + i;
        OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, names[n], MPI_INFO_NULL));
        view_is(fh, 0, MPI_INT, names[n]);
        MPI_Aint extent = -1;
        OK(MPI_File_get_type_extent(fh, MPI_INT, &extent));
        SAME(extent, 3);
        OK(MPI_File_write_at_all(fh, INTS * world_rank, out, INTS, MPI_INT, MPI_STATUS_IGNORE));
        file_publish(fh);
        SAME(file_length(name), 3 * INTS * world_size);
        unsigned char raw[3];
        SAME(file_contents(name, raw, 3, 3 * (INTS * world_rank + 1)), 3);
        SAME(raw[0] | raw[1] << 8 | raw[2] << 16, (world_rank * 100 + 1) ^ states[n]->key);
        MPI_Status status;
        MPI_Request request;
        OK(MPI_File_iread_at(fh, INTS * ring(1), in, INTS, MPI_INT, &request));
        OK(MPI_Wait(&request, &status));
        for (int i = 0; i < INTS; i++)
            SAME(in[i], ring(1) * 100 + i);
        OK(MPI_Get_count(&status, MPI_INT, &count));
        SAME(count, INTS);
        /* Short at the end: whole elements. */
        OK(MPI_File_read_at_all(fh, INTS * world_size - 2, in, INTS, MPI_INT, &status));
        OK(MPI_Get_count(&status, MPI_INT, &count));
        SAME(count, 2);
        SAME(in[1], (world_size - 1) * 100 + INTS - 1);
        CHECK(states[n]->reads && states[n]->writes && states[n]->extents,
              "the functions of [%s] are not all called", names[n]);
        /* The program's error comes back. */
        double d = 1;
        CLASS(MPI_File_set_view(fh, 0, MPI_DOUBLE, MPI_DOUBLE, names[n], MPI_INFO_NULL),
              MPI_SUCCESS);
        CLASS(MPI_File_write_at(fh, 0, &d, 1, MPI_DOUBLE, MPI_STATUS_IGNORE), MPI_ERR_CONVERSION);
        OK(MPI_File_close(&fh));
        file_remove(name);
    }
}

/* In a sequential file the view moves on to where the shared pointer is. */
static void sequential(void)
{
    const char *name = file_name();
    MPI_File fh =
        file_open(name, MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL);
    int value = world_rank;
    CLASS(MPI_File_write_at(fh, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE),
          MPI_ERR_UNSUPPORTED_OPERATION);
    CLASS(MPI_File_write(fh, &value, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_UNSUPPORTED_OPERATION);
    CLASS(MPI_File_seek(fh, 0, MPI_SEEK_SET), MPI_ERR_UNSUPPORTED_OPERATION);
    CLASS(MPI_File_set_size(fh, 0), MPI_ERR_UNSUPPORTED_OPERATION);
    OK(MPI_File_write_ordered(fh, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    CLASS(MPI_File_set_view(fh, 0, MPI_SHORT, MPI_SHORT, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    OK(MPI_File_set_view(fh, MPI_DISPLACEMENT_CURRENT, MPI_SHORT, MPI_SHORT, "native",
                         MPI_INFO_NULL));
    view_is(fh, 4 * world_size, MPI_SHORT, "native");
    short small = (short)(100 + world_rank);
    OK(MPI_File_write_ordered(fh, &small, 1, MPI_SHORT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&fh));
    SAME(file_length(name), 6 * world_size);
    SAME(file_contents(name, &value, 4, 4 * world_rank), 4);
    SAME(value, world_rank);
    SAME(file_contents(name, &small, 2, 4 * world_size + 2 * world_rank), 2);
    SAME(small, 100 + world_rank);
    file_remove(name);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    for (int n = 0; n < 13; n++)
        one_kind(n);
    lives_on();
    mistakes();
    one_filetype();
    external();
    registered();
    failing();
    sequential();
    return check_end();
}

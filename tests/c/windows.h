/* Windows of each flavor, made and addressed in the same way, and elements of each predefined type:
 * what the tests of one-sided communication (MPI 5.0 chapter 12) share. */
#ifndef FERRY_TESTS_WINDOWS_H
#define FERRY_TESTS_WINDOWS_H

#include "check.h"

#include <float.h>

enum { CREATED, ALLOCATED, SHARED, DYNAMIC, FLAVORS };

UNUSED static const char *const flavor_names[FLAVORS] = {"create", "allocate", "allocate_shared",
                                                         "create_dynamic"};

/* A window over a communicator, the part of this rank in it, and where each rank's part begins if
 * displacements are addresses. */
typedef struct {
    MPI_Win win;
    int flavor, ranks, unit;
    unsigned char *base;
    MPI_Aint bytes;
    MPI_Aint *addresses; /* of each rank's part, if the window is dynamic */
} Window;

/* Whether the ranks of the world can load from and store to each other's memory. */
UNUSED static int on_one_node(void)
{
    MPI_Comm node;
    int ranks = 0;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    OK(MPI_Comm_size(node, &ranks));
    OK(MPI_Comm_free(&node));
    int all = ranks == world_size, everywhere = 0;
    OK(MPI_Allreduce(&all, &everywhere, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD));
    return everywhere;
}

/* Whether operations between the ranks need no call of the target: on one node, over memory. */
UNUSED static int target_need_not_help(void)
{
    return on_one_node() && !getenv("FERRY_TRANSPORTS");
}

/* Flavors that a window over the world can have. */
UNUSED static int has_flavor(int flavor)
{
    static int shares = -1;
    if (shares < 0)
        shares = on_one_node();
    return flavor != SHARED || shares;
}

/* A window of this flavor with `bytes` of zeros at this rank. Collective. */
UNUSED static Window window_make(int flavor, MPI_Comm comm, MPI_Aint bytes, int unit, MPI_Info info)
{
    Window w = {.win = MPI_WIN_NULL, .flavor = flavor, .unit = unit, .bytes = bytes};
    OK(MPI_Comm_size(comm, &w.ranks));
    if (flavor == CREATED) {
        w.base = calloc(1, (size_t)bytes + 1);
        OK(MPI_Win_create(w.base, bytes, unit, info, comm, &w.win));
    } else if (flavor == ALLOCATED) {
        OK(MPI_Win_allocate(bytes, unit, info, comm, &w.base, &w.win));
        memset(w.base, 0, (size_t)bytes);
    } else if (flavor == SHARED) {
        OK(MPI_Win_allocate_shared(bytes, unit, info, comm, &w.base, &w.win));
        memset(w.base, 0, (size_t)bytes);
    } else {
        MPI_Aint mine = 0;
        w.base = calloc(1, (size_t)bytes + 1);
        w.addresses = malloc((size_t)w.ranks * sizeof mine);
        OK(MPI_Win_create_dynamic(info, comm, &w.win));
        OK(MPI_Win_attach(w.win, w.base, bytes));
        OK(MPI_Get_address(w.base, &mine));
        OK(MPI_Allgather(&mine, 1, MPI_AINT, w.addresses, 1, MPI_AINT, comm));
    }
    OK(MPI_Barrier(comm));
    return w;
}

/* Collective over the window's group. */
UNUSED static void window_free(Window *w)
{
    if (w->flavor == DYNAMIC) {
        MPI_Group group;
        OK(MPI_Win_get_group(w->win, &group));
        MPI_Comm comm;
        OK(MPI_Comm_create_group(MPI_COMM_WORLD, group, 77, &comm));
        OK(MPI_Barrier(comm)); /* nobody detaches what another still reaches */
        OK(MPI_Comm_free(&comm));
        OK(MPI_Group_free(&group));
        OK(MPI_Win_detach(w->win, w->base));
    }
    OK(MPI_Win_free(&w->win));
    CHECK(w->win == MPI_WIN_NULL, "a freed window's handle is not MPI_WIN_NULL");
    if (w->flavor == CREATED || w->flavor == DYNAMIC)
        free(w->base);
    free(w->addresses);
}

/* The displacement of byte `offset` in the part of a rank; a multiple of the window's unit. */
UNUSED static MPI_Aint place(const Window *w, int rank, MPI_Aint offset)
{
    return w->flavor == DYNAMIC ? MPI_Aint_add(w->addresses[rank], offset) : offset / w->unit;
}

/* How a predefined type may be used in accumulates (MPI 5.0 section 6.9.2). */
enum {
    INTEGER = 1, /* sums, extremes, logical and bitwise */
    FLOATING,    /* sums and extremes */
    COMPLEX,     /* sums */
    LOGICAL,     /* logical */
    BITWISE,     /* bitwise */
    COUNTS,      /* Fortran integers, multi-language types: as INTEGER without logical ones */
    PAIR,        /* MPI_MINLOC, MPI_MAXLOC */
    CHARACTER    /* none: only MPI_REPLACE and MPI_NO_OP */
};

/* The parts of an element that hold its value. What lies between them is padding. */
typedef struct {
    const char *name;
    MPI_Datatype type;
    int use, size;
    char number, second; /* i(nteger), f(loat) or none, of each part */
    int first_bytes, second_at, second_bytes;
} Element;

enum { LONG_DOUBLE_BYTES = LDBL_MANT_DIG == 64 ? 10 : sizeof(long double) };

UNUSED static void number_store(void *at, char number, int bytes, int value)
{
    if (number == 'f') {
        float f = (float)value;
        double d = value;
        long double l = value;
        memcpy(at, bytes == 4 ? (void *)&f : bytes == 8 ? (void *)&d : (void *)&l, (size_t)bytes);
    } else {
        int8_t i1 = (int8_t)value;
        int16_t i2 = (int16_t)value;
        int32_t i4 = value;
        int64_t i8 = value;
        memcpy(at,
               bytes == 1   ? (void *)&i1
               : bytes == 2 ? (void *)&i2
               : bytes == 4 ? (void *)&i4
                            : (void *)&i8,
               (size_t)bytes);
    }
}

/* Stores a small value, exact in every type; a second part (imaginary, index) gets `second`. */
UNUSED static void element_store(const Element *e, void *at, int value, int second)
{
    memset(at, 0, (size_t)e->size);
    if (e->use == LOGICAL)
        value = value != 0;
    number_store(at, e->number, e->first_bytes, value);
    if (e->second)
        number_store((char *)at + e->second_at, e->second, e->second_bytes, second);
}

/* Whether two elements hold the same, whatever is in their padding. */
UNUSED static int element_same(const Element *e, const void *a, const void *b)
{
    if (memcmp(a, b, (size_t)e->first_bytes) != 0)
        return 0;
    return !e->second || memcmp((const char *)a + e->second_at, (const char *)b + e->second_at,
                                (size_t)e->second_bytes) == 0;
}

UNUSED static int elements_same(const Element *e, const void *a, const void *b, int count)
{
    for (int i = 0; i < count; i++)
        if (!element_same(e, (const char *)a + i * e->size, (const char *)b + i * e->size))
            return 0;
    return 1;
}

#define ONE(type, use, ctype)                                                                      \
    (Element){#type, type, use, sizeof(ctype), 'i', 0, sizeof(ctype), 0, 0}
#define REAL(type, ctype, bytes)                                                                   \
    (Element){#type, type, FLOATING, sizeof(ctype), 'f', 0, bytes, 0, 0}
#define BOTH(type, ctype, bytes)                                                                   \
    (Element)                                                                                      \
    {                                                                                              \
        #type, type, COMPLEX, 2 * sizeof(ctype), 'f', 'f', bytes, sizeof(ctype), bytes             \
    }
#define TWO(type, n1, c1, b1, n2, c2)                                                              \
    (Element)                                                                                      \
    {                                                                                              \
        #type, type, PAIR, sizeof(struct {                                                         \
            c1 a;                                                                                  \
            c2 b;                                                                                  \
        }),                                                                                        \
            n1, n2, b1,                                                                            \
            offsetof(                                                                              \
                struct {                                                                           \
                    c1 a;                                                                          \
                    c2 b;                                                                          \
                },                                                                                 \
                b),                                                                                \
            sizeof(c2)                                                                             \
    }

enum { ELEMENTS_MAX = 64 };
static Element elements[ELEMENTS_MAX];
static int element_count;

UNUSED static void elements_make(void)
{
    const Element all[] = {
        ONE(MPI_INT, INTEGER, int),
        ONE(MPI_LONG, INTEGER, long),
        ONE(MPI_SHORT, INTEGER, short),
        ONE(MPI_UNSIGNED_SHORT, INTEGER, unsigned short),
        ONE(MPI_UNSIGNED, INTEGER, unsigned),
        ONE(MPI_UNSIGNED_LONG, INTEGER, unsigned long),
        ONE(MPI_LONG_LONG, INTEGER, long long),
        ONE(MPI_UNSIGNED_LONG_LONG, INTEGER, unsigned long long),
        ONE(MPI_SIGNED_CHAR, INTEGER, signed char),
        ONE(MPI_UNSIGNED_CHAR, INTEGER, unsigned char),
        ONE(MPI_INT8_T, INTEGER, int8_t),
        ONE(MPI_INT16_T, INTEGER, int16_t),
        ONE(MPI_INT32_T, INTEGER, int32_t),
        ONE(MPI_INT64_T, INTEGER, int64_t),
        ONE(MPI_UINT8_T, INTEGER, uint8_t),
        ONE(MPI_UINT16_T, INTEGER, uint16_t),
        ONE(MPI_UINT32_T, INTEGER, uint32_t),
        ONE(MPI_UINT64_T, INTEGER, uint64_t),
        ONE(MPI_INTEGER, COUNTS, int),
        ONE(MPI_AINT, COUNTS, MPI_Aint),
        ONE(MPI_COUNT, COUNTS, MPI_Count),
        ONE(MPI_OFFSET, COUNTS, MPI_Offset),
        ONE(MPI_BYTE, BITWISE, unsigned char),
        ONE(MPI_C_BOOL, LOGICAL, _Bool),
        ONE(MPI_CXX_BOOL, LOGICAL, _Bool),
        ONE(MPI_LOGICAL, LOGICAL, int),
        ONE(MPI_CHAR, CHARACTER, char),
        ONE(MPI_WCHAR, CHARACTER, int),
        ONE(MPI_CHARACTER, CHARACTER, char),
        REAL(MPI_FLOAT, float, 4),
        REAL(MPI_DOUBLE, double, 8),
        REAL(MPI_LONG_DOUBLE, long double, LONG_DOUBLE_BYTES),
        REAL(MPI_REAL, float, 4),
        REAL(MPI_DOUBLE_PRECISION, double, 8),
        BOTH(MPI_C_FLOAT_COMPLEX, float, 4),
        BOTH(MPI_C_DOUBLE_COMPLEX, double, 8),
        BOTH(MPI_C_LONG_DOUBLE_COMPLEX, long double, LONG_DOUBLE_BYTES),
        BOTH(MPI_CXX_DOUBLE_COMPLEX, double, 8),
        TWO(MPI_FLOAT_INT, 'f', float, 4, 'i', int),
        TWO(MPI_DOUBLE_INT, 'f', double, 8, 'i', int),
        TWO(MPI_LONG_INT, 'i', long, sizeof(long), 'i', int),
        TWO(MPI_2INT, 'i', int, 4, 'i', int),
        TWO(MPI_SHORT_INT, 'i', short, 2, 'i', int),
        TWO(MPI_LONG_DOUBLE_INT, 'f', long double, LONG_DOUBLE_BYTES, 'i', int),
        TWO(MPI_2REAL, 'f', float, 4, 'f', float),
        TWO(MPI_2DOUBLE_PRECISION, 'f', double, 8, 'f', double),
        TWO(MPI_2INTEGER, 'i', int, 4, 'i', int),
    };
    element_count = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        elements[element_count++] = all[i];
}

/* An operation, and on which of the uses above it is defined, as bits. */
typedef struct {
    const char *name;
    MPI_Op op;
    unsigned uses;
} Operation;

#define USES(...) uses_of((const int[]){__VA_ARGS__, 0})

UNUSED static unsigned uses_of(const int *uses)
{
    unsigned bits = 0;
    for (; *uses; uses++)
        bits |= 1u << *uses;
    return bits;
}

enum { OPERATIONS = 14 };
static Operation operations[OPERATIONS];

UNUSED static void operations_make(void)
{
    unsigned extremes = USES(INTEGER, FLOATING, COUNTS), logical = USES(INTEGER, LOGICAL),
             bits = USES(INTEGER, BITWISE, COUNTS), sums = USES(INTEGER, FLOATING, COMPLEX, COUNTS);
    operations[0] = (Operation){"MPI_SUM", MPI_SUM, sums};
    operations[1] = (Operation){"MPI_PROD", MPI_PROD, sums};
    operations[2] = (Operation){"MPI_MAX", MPI_MAX, extremes};
    operations[3] = (Operation){"MPI_MIN", MPI_MIN, extremes};
    operations[4] = (Operation){"MPI_LAND", MPI_LAND, logical};
    operations[5] = (Operation){"MPI_LOR", MPI_LOR, logical};
    operations[6] = (Operation){"MPI_LXOR", MPI_LXOR, logical};
    operations[7] = (Operation){"MPI_BAND", MPI_BAND, bits};
    operations[8] = (Operation){"MPI_BOR", MPI_BOR, bits};
    operations[9] = (Operation){"MPI_BXOR", MPI_BXOR, bits};
    operations[10] = (Operation){"MPI_MINLOC", MPI_MINLOC, USES(PAIR)};
    operations[11] = (Operation){"MPI_MAXLOC", MPI_MAXLOC, USES(PAIR)};
    operations[12] = (Operation){"MPI_REPLACE", MPI_REPLACE, ~0u};
    operations[13] = (Operation){"MPI_NO_OP", MPI_NO_OP, ~0u};
}

/* What an accumulate makes of the target's elements, done here. */
UNUSED static void accumulate_here(const void *origin, void *target, int count, const Element *e,
                                   MPI_Op op)
{
    if (op == MPI_REPLACE)
        memcpy(target, origin, (size_t)count * (size_t)e->size);
    else if (op != MPI_NO_OP)
        OK(MPI_Reduce_local(origin, target, count, e->type, op));
}

#endif

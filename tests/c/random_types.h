/* Datatypes and operations from which the random collectives choose. */
#ifndef FERRY_TESTS_RANDOM_TYPES_H
#define FERRY_TESTS_RANDOM_TYPES_H

#include "naive.h"

/* A type to send with and a type to receive with; `b_per_a` of b have the signature of one a. */
typedef struct {
    const char *name;
    MPI_Datatype a, b;
    int b_per_a;
} Pairing;

enum { PAIRINGS = 6 };
static Pairing pairings[PAIRINGS];

enum { BITS, SMALL_DOUBLES, PAIRS };
typedef struct {
    const char *name;
    MPI_Datatype type;
    MPI_Op op;
    int values;
} Reduction;

enum { REDUCTIONS = 8 };
static Reduction reductions[REDUCTIONS];

typedef struct {
    char c;
    double d;
} Gapped;

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

/* The same through the form with large counts. */
static void compose_c(void *in, void *inout, MPI_Count *count, MPI_Datatype *type)
{
    int n = (int)*count;
    compose(in, inout, &n, type);
}

static void random_types_make(void)
{
    MPI_Datatype vector, resized, gapped, triple, affine;
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

    MPI_Op composition, composition_c;
    OK(MPI_Type_contiguous(2, MPI_UNSIGNED, &affine));
    OK(MPI_Type_commit(&affine));
    OK(MPI_Op_create(compose, 0, &composition));
    OK(MPI_Op_create_c(compose_c, 0, &composition_c));
    reductions[0] = (Reduction){"unsigned sum", MPI_UNSIGNED, MPI_SUM, BITS};
    reductions[1] = (Reduction){"int max", MPI_INT, MPI_MAX, BITS};
    reductions[2] = (Reduction){"byte xor", MPI_BYTE, MPI_BXOR, BITS};
    reductions[3] = (Reduction){"double sum", MPI_DOUBLE, MPI_SUM, SMALL_DOUBLES};
    reductions[4] = (Reduction){"long min", MPI_LONG, MPI_MIN, BITS};
    reductions[5] = (Reduction){"double-int maxloc", MPI_DOUBLE_INT, MPI_MAXLOC, PAIRS};
    reductions[6] = (Reduction){"affine maps, not commutative", affine, composition, BITS};
    reductions[7] = (Reduction){"affine maps by large counts", affine, composition_c, BITS};
}

static void random_types_free(void)
{
    for (int i = 3; i < PAIRINGS; i++)
        OK(MPI_Type_free(&pairings[i].a));
    OK(MPI_Op_free(&reductions[6].op));
    OK(MPI_Op_free(&reductions[7].op));
    OK(MPI_Type_free(&reductions[6].type));
}

static void make_values(void *buffer, size_t bytes, int values, uint64_t key)
{
    if (values == BITS) {
        fill(buffer, bytes, key);
    } else if (values == SMALL_DOUBLES) {
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

#endif

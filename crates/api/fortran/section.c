/* Array sections in choice buffers of mpi_f08 (MPI 5.0 §19.1.12). */
#include "mpifort.h"

/* A datatype laid on the elements of an array: `per` of them are in one element, or one is `parts`
 * elements long. */
struct fit {
    MPI_Count per;
    MPI_Count parts;
};

/* How the datatype lies on the elements. False if it lies across their borders and has gaps. */
static int fits(const struct descriptor *d, MPI_Datatype type, struct fit *fit)
{
    MPI_Count lb, extent, true_lb, true_extent, size, element = (MPI_Count) d->elem_len;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_get_extent_c(type, &lb, &extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent_c(type, &true_lb, &true_extent) != MPI_SUCCESS ||
        PMPI_Type_size_c(type, &size) != MPI_SUCCESS)
        return 0;
    int inside = lb == 0 && true_lb >= 0 && true_lb + true_extent <= extent;
    *fit = (struct fit){0, 0};
    if (!inside || extent <= 0 || element <= 0)
        return 0;
    if (element % extent == 0)
        fit->per = element / extent;
    else if (extent % element == 0 && size == extent)
        fit->parts = extent / element;
    return fit->per + fit->parts > 0;
}

/* One element as a datatype, which the caller frees. Where a datatype is longer than an element,
 * its parts are bytes. */
static int element_type(const struct descriptor *d, MPI_Datatype type, struct fit fit,
                        MPI_Datatype *element)
{
    if (fit.per == 1)
        return PMPI_Type_dup(type, element);
    if (fit.per > 1)
        return PMPI_Type_contiguous_c(fit.per, type, element);
    return PMPI_Type_contiguous_c((MPI_Count) d->elem_len, MPI_BYTE, element);
}

/* Pieces of a section, each a datatype at a place. */
struct pieces {
    int count;
    MPI_Datatype types[MAX_RANK + 2];
    MPI_Count places[MAX_RANK + 2];
    MPI_Count lengths[MAX_RANK + 2];
};

static void add_piece(struct pieces *pieces, MPI_Datatype type, MPI_Count place, MPI_Count length)
{
    pieces->types[pieces->count] = type;
    pieces->places[pieces->count] = place;
    pieces->lengths[pieces->count++] = length;
}

/* The first `n` elements of the array in Fortran's order: whole planes of the last dimension, whole
 * planes of the one before, and so on, then `rest` datatypes of the next element. */
static int first_elements(const struct descriptor *d, MPI_Datatype element, MPI_Count n,
                          MPI_Datatype type, MPI_Count rest, MPI_Datatype *made)
{
    MPI_Datatype planes[MAX_RANK + 1] = {element};
    struct pieces pieces = {0};
    MPI_Count place = 0, sizes[MAX_RANK + 1] = {1};
    int err = MPI_SUCCESS, built = 0, used = 0;
    for (int at = 0; at + 1 < d->rank && sizes[at] * d->dimensions[at].extent <= n; at++) {
        const struct dimension *dim = &d->dimensions[at];
        err = PMPI_Type_create_hvector_c(dim->extent, 1, dim->stride, planes[at], &planes[at + 1]);
        if (err != MPI_SUCCESS)
            break;
        sizes[at + 1] = sizes[at] * dim->extent;
        built = at + 1;
    }
    for (int at = built; err == MPI_SUCCESS && at >= 0; at--) {
        MPI_Count whole = n / sizes[at], stride = d->dimensions[at].stride;
        if (whole == 0)
            continue;
        MPI_Datatype run;
        err = PMPI_Type_create_hvector_c(whole, 1, stride, planes[at], &run);
        if (err == MPI_SUCCESS) {
            add_piece(&pieces, run, place, 1);
            used = pieces.count;
        }
        place += whole * stride;
        n -= whole * sizes[at];
    }
    if (rest > 0)
        add_piece(&pieces, type, place, rest);
    if (err == MPI_SUCCESS)
        err = PMPI_Type_create_struct_c(pieces.count, pieces.lengths, pieces.places, pieces.types,
                                        made);
    for (int at = 0; at < used; at++)
        PMPI_Type_free(&pieces.types[at]);
    for (int at = 1; at <= built; at++)
        PMPI_Type_free(&planes[at]);
    return err;
}

int section(const struct descriptor *d, struct buffer *b)
{
    struct fit fit;
    MPI_Datatype element, made;
    /* The call itself complains about counts and datatypes that are wrong. */
    if (b->n <= 0 || b->type == MPI_DATATYPE_NULL)
        return MPI_SUCCESS;
    if (!fits(d, b->type, &fit))
        return copied(d, b);
    int err = element_type(d, b->type, fit, &element);
    if (err != MPI_SUCCESS)
        return err;
    MPI_Count n = fit.per > 0 ? b->n / fit.per : b->n * fit.parts;
    err = first_elements(d, element, n, b->type, fit.per > 0 ? b->n % fit.per : 0, &made);
    PMPI_Type_free(&element);
    if (err == MPI_SUCCESS)
        err = PMPI_Type_commit(&made);
    if (err != MPI_SUCCESS)
        return err;
    b->n = 1;
    b->type = made;
    b->made |= MADE_TYPE;
    return MPI_SUCCESS;
}

/* The distance from each element to the next in bytes; 0 if they differ. */
static ptrdiff_t stride_of(const struct descriptor *d)
{
    ptrdiff_t stride = 0, run = 0;
    for (int at = 0; at < d->rank; at++) {
        const struct dimension *dim = &d->dimensions[at];
        if (dim->extent == 1)
            continue;
        if (stride == 0)
            stride = dim->stride;
        else if (dim->stride != run)
            return 0;
        run = dim->stride * dim->extent;
    }
    return stride;
}

int strided(const struct descriptor *d, struct buffer *b)
{
    struct fit fit;
    MPI_Datatype element, made;
    ptrdiff_t stride = stride_of(d);
    if (b->type == MPI_DATATYPE_NULL)
        return MPI_SUCCESS;
    if (stride == 0 || !fits(d, b->type, &fit) || fit.per > 1)
        return copied(d, b);
    int err = element_type(d, b->type, fit, &element);
    if (err == MPI_SUCCESS && fit.parts > 1) {
        MPI_Datatype part = element;
        err = PMPI_Type_create_hvector_c(fit.parts, 1, stride, part, &element);
        PMPI_Type_free(&part);
    }
    if (err != MPI_SUCCESS)
        return err;
    MPI_Count extent = stride * (fit.parts > 1 ? fit.parts : 1);
    err = PMPI_Type_create_resized_c(element, 0, extent, &made);
    PMPI_Type_free(&element);
    if (err == MPI_SUCCESS)
        err = PMPI_Type_commit(&made);
    if (err != MPI_SUCCESS)
        return err;
    b->type = made;
    b->made |= MADE_TYPE;
    return MPI_SUCCESS;
}

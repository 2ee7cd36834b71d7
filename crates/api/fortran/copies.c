/* Copies of array sections that no datatype describes, for choice buffers of mpi_f08. */
#include "mpifort.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Elements. */

static size_t bytes_of(const struct descriptor *d)
{
    size_t bytes = d->elem_len;
    for (int at = 0; at < d->rank; at++)
        bytes *= (size_t) d->dimensions[at].extent;
    return bytes;
}

/* Copies the bytes `from` to `to` of the elements in Fortran's order, between the array and dense
 * memory. */
static void copy_bytes(const struct descriptor *d, char *dense, size_t from, size_t to,
                       int to_dense)
{
    ptrdiff_t index[MAX_RANK];
    char *element = d->base;
    size_t length = d->elem_len;
    if (from >= to)
        return;
    ptrdiff_t number = (ptrdiff_t) (from / length);
    for (int at = 0; at < d->rank; at++) {
        const struct dimension *dim = &d->dimensions[at];
        index[at] = number % dim->extent;
        number /= dim->extent;
        element += index[at] * dim->stride;
    }
    for (size_t begin = from - from % length; begin < to; begin += length) {
        size_t skip = from > begin ? from - begin : 0;
        size_t end = to - begin < length ? to - begin : length;
        char *there = dense + begin + skip, *here = element + skip;
        memcpy(to_dense ? there : here, to_dense ? here : there, end - skip);
        for (int at = 0; at < d->rank; at++) {
            const struct dimension *dim = &d->dimensions[at];
            element += dim->stride;
            if (++index[at] < dim->extent)
                break;
            element -= index[at] * dim->stride;
            index[at] = 0;
        }
    }
}

int copied(const struct descriptor *d, struct buffer *b)
{
    char *memory = malloc(bytes_of(d) + 1);
    if (memory == NULL) {
        PMPI_Comm_call_errhandler(MPI_COMM_SELF, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
    copy_bytes(d, memory, 0, bytes_of(d), 1);
    b->at = memory;
    b->made |= MADE_COPY;
    return MPI_SUCCESS;
}

/* Copies that are kept. */

/* Where the partitions of a message are in the dense memory: number `p` begins at byte
 * `first + p * step` and has `span` bytes. Without partitions `step` is 0. */
struct partitions {
    size_t first, span, step;
    size_t count;           /* how many are in the memory, or more */
    unsigned char *arrived; /* which of them are in the array again */
};

/* A copy that an operation uses after the call that made its request. */
struct copy {
    struct copy *next;
    char *memory;
    fint request;
    int how;
    int started; /* and not known to be complete */
    struct partitions partitions;
    struct descriptor array; /* with room for all dimensions */
    struct dimension dimensions[MAX_RANK];
};

int copies_kept;
static struct copy *first_copy;
/* No function of MPI is called with this, except those that convert handles. */
static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;

static struct copy *copy_of(fint request, struct copy *from)
{
    while (from != NULL && from->request != request)
        from = from->next;
    return from;
}

static void copy_partitions(struct copy *copy, size_t low, size_t high, int to_dense)
{
    const struct partitions *p = &copy->partitions;
    size_t bytes = bytes_of(&copy->array);
    for (size_t at = low; at <= high && at < p->count; at++) {
        size_t from = p->first + at * p->step, to = from + p->span;
        if (!to_dense && p->arrived[at])
            continue;
        p->arrived[at] = 1;
        copy_bytes(&copy->array, copy->memory, from, to < bytes ? to : bytes, to_dense);
    }
}

/* Puts what was received into the array, except partitions that are there. */
static void bring_back(struct copy *copy)
{
    if (copy->started && copy->how & RECEIVES) {
        if (copy->partitions.step > 0)
            copy_partitions(copy, 0, copy->partitions.count, 0);
        else
            copy_bytes(&copy->array, copy->memory, 0, bytes_of(&copy->array), 0);
    }
    copy->started = 0;
}

static void discard(struct copy *copy)
{
    free(copy->memory);
    free(copy->partitions.arrived);
    free(copy);
}

static struct partitions partitions_of(const struct descriptor *d, const struct buffer *b)
{
    struct partitions p = {0};
    MPI_Count lb, extent, true_lb, true_extent;
    if (b->n <= 0 || PMPI_Type_get_extent_c(b->type, &lb, &extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent_c(b->type, &true_lb, &true_extent) != MPI_SUCCESS || extent <= 0)
        return p;
    p.step = (size_t) (b->n * extent);
    p.first = true_lb > 0 ? (size_t) true_lb : 0;
    p.span = (size_t) ((b->n - 1) * extent + true_extent);
    p.count = bytes_of(d) / p.step + 1;
    p.arrived = calloc(p.count, 1);
    if (p.arrived == NULL)
        abort();
    return p;
}

void section_done(const struct descriptor *d, struct buffer *b, int err, const fint *request,
                  int how)
{
    if (b->made & MADE_TYPE)
        PMPI_Type_free(&b->type);
    if (!(b->made & MADE_COPY))
        return;
    struct copy *copy = calloc(1, sizeof *copy);
    if (copy == NULL)
        abort();
    memcpy(&copy->array, d, sizeof *d + (size_t) d->rank * sizeof d->dimensions[0]);
    copy->memory = b->at;
    copy->how = how;
    copy->started = !(how & PERSISTENT) && err == MPI_SUCCESS;
    if (err != MPI_SUCCESS || request == NULL || request_in(*request) == MPI_REQUEST_NULL) {
        bring_back(copy);
        discard(copy);
        return;
    }
    copy->request = *request;
    if (how & PARTITIONS)
        copy->partitions = partitions_of(d, b);
    pthread_mutex_lock(&copies_lock);
    copy->next = first_copy;
    first_copy = copy;
    __atomic_add_fetch(&copies_kept, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&copies_lock);
}

void copies_start(fint request)
{
    pthread_mutex_lock(&copies_lock);
    for (struct copy *at = first_copy; (at = copy_of(request, at)) != NULL; at = at->next) {
        if (!(at->how & PERSISTENT))
            continue;
        copy_bytes(&at->array, at->memory, 0, bytes_of(&at->array), 1);
        if (at->partitions.step > 0)
            memset(at->partitions.arrived, 0, at->partitions.count);
        at->started = 1;
    }
    pthread_mutex_unlock(&copies_lock);
}

void copies_back(fint request)
{
    pthread_mutex_lock(&copies_lock);
    for (struct copy *at = first_copy; (at = copy_of(request, at)) != NULL; at = at->next)
        bring_back(at);
    pthread_mutex_unlock(&copies_lock);
}

/* Has the request copies of an operation that is not known to be complete? */
static int is_started(fint request)
{
    int started = 0;
    pthread_mutex_lock(&copies_lock);
    for (struct copy *at = first_copy; (at = copy_of(request, at)) != NULL; at = at->next)
        started |= at->started;
    pthread_mutex_unlock(&copies_lock);
    return started;
}

void copies_ask(fint request)
{
    int complete = 0;
    if (is_started(request) &&
        PMPI_Request_get_status(request_in(request), &complete, MPI_STATUS_IGNORE) ==
            MPI_SUCCESS &&
        complete)
        copies_back(request);
}

void copies_partitions(fint request, fint low, fint high, int arrived)
{
    pthread_mutex_lock(&copies_lock);
    for (struct copy *at = first_copy; (at = copy_of(request, at)) != NULL; at = at->next)
        if (at->started && low >= 0 && high >= low && at->partitions.step > 0)
            copy_partitions(at, (size_t) low, (size_t) high, !arrived);
    pthread_mutex_unlock(&copies_lock);
}

void copies_free(fint request, int complete)
{
    struct copy *gone = NULL;
    pthread_mutex_lock(&copies_lock);
    for (struct copy **at = &first_copy; *at != NULL;) {
        struct copy *copy = *at;
        if (copy->request != request) {
            at = &copy->next;
            continue;
        }
        *at = copy->next;
        copy->next = gone;
        gone = copy;
        __atomic_sub_fetch(&copies_kept, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&copies_lock);
    while (gone != NULL) {
        struct copy *copy = gone;
        gone = copy->next;
        if (complete)
            bring_back(copy);
        if (!copy->started)
            discard(copy);
    }
}

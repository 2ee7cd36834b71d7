/* What the procedures of Fortran share.
 *
 * This library calls the functions of the MPI 5.0 standard ABI alone, so it runs over any library
 * of that ABI. Its sources are compiled twice: with MPIFORT_PROFILE for the names that begin with
 * PMPI_, which call the C functions PMPI_. So a tool that replaces MPI_Send in C sees the calls of
 * Fortran, too. */
#ifndef MPIFORT_H
#define MPIFORT_H

#if defined MPIFORT_MPICH || defined MPIFORT_OPENMPI
/* The library of another ABI, on the C functions of that ABI, which mpi.h declares. */
#define MPIFORT_OTHER_ABI
#include "mpi.h"
#else
/* MPI_COMM_DUP_FN and its like. */
#define DUP_FUNCTION(WORD) 1
/* mpi.h declares these for programs, which see their addresses alone. */
#define mpifstatus_ declared_status
#define mpifstatuses_ declared_statuses
#define mpif08status_ declared_f08_status
#define mpif08statuses_ declared_f08_statuses
#include <mpi.h>
#undef mpifstatus_
#undef mpifstatuses_
#undef mpif08status_
#undef mpif08statuses_
#endif
#include <stddef.h>
#include <stdint.h>

/* INTEGER and LOGICAL of default kind. */
typedef int fint;

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Apart from what is called often. */
#define COLD __attribute__((noinline, cold))
/* For functions that several sources of this library call, and no program. */
#define INTERNAL __attribute__((visibility("hidden")))

/* Names. */

/* N: the procedure's name for the linker. M: the C function that it calls. ALIASES: the names that
 * other compilers or options give to the procedure: with two underscores, none, or in capitals.
 * ALIAS_F08: the procedure of mpi_f08, where it is the same function. */
#define ALIAS(new, old) extern __typeof__(old) new __attribute__((alias(#old)));
#ifdef MPIFORT_PROFILE
#define M(name) PMPI_##name
#define N(name) p##name
#define ALIASES(lower, upper)                                                                      \
    ALIAS(pmpi_##lower##__, pmpi_##lower##_)                                                       \
    ALIAS(pmpi_##lower, pmpi_##lower##_)                                                           \
    ALIAS(PMPI_##upper, pmpi_##lower##_)
#ifdef MPIFORT_MPICH
#define ALIAS_F08(lower)                                                                           \
    ALIAS(pmpi_##lower##_f08_, pmpi_##lower##_)                                                    \
    ALIAS(pmpir_##lower##_f08_, pmpi_##lower##_)
#else
#define ALIAS_F08(lower) ALIAS(pmpi_##lower##_f08_, pmpi_##lower##_)
#endif
#define ALIAS_FORM(new, lower) ALIAS(pmpi_##new##_, pmpi_##lower##_)
#else
#define M(name) MPI_##name
#define N(name) name
#define ALIASES(lower, upper)                                                                      \
    ALIAS(mpi_##lower##__, mpi_##lower##_)                                                         \
    ALIAS(mpi_##lower, mpi_##lower##_)                                                             \
    ALIAS(MPI_##upper, mpi_##lower##_)
#define ALIAS_F08(lower) ALIAS(mpi_##lower##_f08_, mpi_##lower##_)
#define ALIAS_FORM(new, lower) ALIAS(mpi_##new##_, mpi_##lower##_)
#endif

/* Handles. */

#ifdef MPIFORT_MPICH
/* Handles are ints, the same in C and in Fortran. Those of files are not. */
#define HANDLE(c, word, name)                                                                      \
    static inline c word##_in(fint number)                                                         \
    {                                                                                              \
        return sizeof(c) == sizeof number ? (c) (intptr_t) number : PMPI_##name##_f2c(number);     \
    }                                                                                              \
    static inline fint word##_out(c handle)                                                        \
    {                                                                                              \
        return sizeof(c) == sizeof(fint) ? (fint) (intptr_t) handle : PMPI_##name##_c2f(handle);   \
    }
#elif defined MPIFORT_OPENMPI
#define HANDLE(c, word, name)                                                                      \
    static inline c word##_in(fint number)                                                         \
    {                                                                                              \
        return PMPI_##name##_f2c(number);                                                          \
    }                                                                                              \
    static inline fint word##_out(c handle)                                                        \
    {                                                                                              \
        return PMPI_##name##_c2f(handle);                                                          \
    }
#else
/* Predefined handles are numbers below this, the same in C and in Fortran (MPI 5.0 §21.3). */
#define PREDEFINED 4096u

#define HANDLE(c, word, name)                                                                      \
    static inline c word##_in(fint number)                                                         \
    {                                                                                              \
        return LIKELY((unsigned) number < PREDEFINED) ? (c) (intptr_t) number                      \
                                                      : PMPI_##name##_fromint(number);             \
    }                                                                                              \
    static inline fint word##_out(c handle)                                                        \
    {                                                                                              \
        return LIKELY((uintptr_t) handle < PREDEFINED) ? (fint) (intptr_t) handle                  \
                                                       : PMPI_##name##_toint(handle);              \
    }
#endif
/* A variable whose address has a meaning. A program that is not position independent has it in its
 * own data, at any alignment that the compiler likes. */
#define SENTINEL(symbol, bytes) extern char symbol[bytes];
#include "generated.h"
#undef HANDLE
#undef SENTINEL

/* Arrays of handles. FEW of them need no memory from the heap. */
#define FEW 32
INTERNAL MPI_Request *requests_in(int count, const fint *from, MPI_Request *few);
INTERNAL void requests_changed(int count, fint *to, MPI_Request *from, MPI_Request *few);
INTERNAL MPI_Datatype *types_in(MPI_Count count, const fint *from, MPI_Datatype *few);
INTERNAL MPI_Datatype *types_room(MPI_Count count, MPI_Datatype *few);
INTERNAL void types_out(MPI_Count count, fint *to, MPI_Datatype *from, MPI_Datatype *few);
INTERNAL void memory_free(void *memory);
#define few_free(memory, few) ((void *) (memory) == (void *) (few) ? (void) 0 : memory_free(memory))
/* The number of processes on the other side of a collective; neighbours that one sends to or
 * receives from. Zero if the communicator has none of that kind. */
INTERNAL int peers(const fint *comm);
INTERNAL int neighbours(const fint *comm, int sends);

/* Results. */

static inline void error_out(fint *ierror, int err)
{
    if (LIKELY(ierror != NULL))
        *ierror = err;
}

/* Fortran counts from one. */
static inline fint index_out(int index)
{
    return index == MPI_UNDEFINED ? MPI_UNDEFINED : index + 1;
}

static inline void indices_out(int count, fint *indices)
{
    for (int at = 0; count != MPI_UNDEFINED && at < count; at++)
        indices[at] = index_out(indices[at]);
}

/* Variables whose address has a meaning. */

static inline void *address_in(void *at)
{
    return UNLIKELY((char *) at == mpifbottom_) ? MPI_BOTTOM : at;
}

static inline int is_in_place(void *at)
{
    return (char *) at == mpifinplace_;
}

static inline void *address_or_in_place(void *at)
{
    return UNLIKELY(is_in_place(at)) ? MPI_IN_PLACE : address_in(at);
}

static inline void *address_or_automatic(void *at)
{
    return UNLIKELY((char *) at == mpifautomatic_) ? MPI_BUFFER_AUTOMATIC : address_in(at);
}

static inline MPI_Status *status_in(MPI_Status *status)
{
    int ignored = (char *) status == mpifstatus_ || (char *) status == mpif08status_;
    return ignored ? MPI_STATUS_IGNORE : status;
}

static inline MPI_Status *statuses_in(MPI_Status *statuses)
{
    int ignored = (char *) statuses == mpifstatuses_ || (char *) statuses == mpif08statuses_;
    return ignored ? MPI_STATUSES_IGNORE : statuses;
}

static inline int *weights_in(fint *weights)
{
    char *at = (char *) weights;
    if (at == mpifunweighted_ || at == mpif08unweighted_)
        return MPI_UNWEIGHTED;
    return at == mpifweightsempty_ || at == mpif08weightsempty_ ? MPI_WEIGHTS_EMPTY : weights;
}

/* Strings. */

/* Strings of C, without the blanks at the end. Shorter ones than FEW_CHARS are in `few`. */
#define FEW_CHARS 264
INTERNAL char *text_in(const char *from, size_t length, char *few);
INTERNAL char *text_in_stripped(const char *from, size_t length, char *few);
/* Cut or filled with blanks. */
INTERNAL void text_out(char *to, size_t length, const char *from);

/* Descriptors of choice buffers. */

/* CFI_cdesc_t of ISO_Fortran_binding.h (Fortran 2018 §18.5.3), as far as this library reads it. In
 * GCC's and LLVM's form alike, the rank is at byte 20 and the dimensions begin at byte 24. */
struct dimension {
    ptrdiff_t lower_bound;
    ptrdiff_t extent; /* -1: the last one of an array of assumed size */
    ptrdiff_t stride; /* in bytes */
};
struct descriptor {
    void *base;
    size_t elem_len; /* in bytes */
    int version;
    signed char rank;
    char compiler_specific[3];
    struct dimension dimensions[];
};
#define MAX_RANK 15

#ifdef MPIFORT_MPICH
/* gfortran's own descriptor of an array, from GCC 8 on, which procedures without BIND(C) get. */
struct gfortran_dimension {
    ptrdiff_t stride; /* in spans */
    ptrdiff_t lower_bound;
    ptrdiff_t upper_bound;
};
struct gfortran_descriptor {
    void *base;
    size_t offset;
    size_t elem_len;
    int version;
    signed char rank;
    signed char type;
    short attribute;
    ptrdiff_t span; /* in bytes; 0 if it is the length of an element */
    struct gfortran_dimension dimensions[];
};

/* A descriptor with room for all dimensions. */
struct any_rank {
    struct descriptor d;
    struct dimension room[MAX_RANK];
};

static inline struct descriptor *from_gfortran(const struct gfortran_descriptor *from,
                                               struct any_rank *to)
{
    struct descriptor *d = &to->d;
    ptrdiff_t span = from->span != 0 ? from->span : (ptrdiff_t) from->elem_len;
    d->base = from->base;
    d->elem_len = from->elem_len;
    d->version = from->version;
    d->rank = from->rank;
    for (int at = 0; at < from->rank && at < MAX_RANK; at++) {
        const struct gfortran_dimension *dim = &from->dimensions[at];
        ptrdiff_t extent = dim->upper_bound - dim->lower_bound + 1;
        /* The last dimension of an array of assumed size ends at -1. */
        int unknown = at == from->rank - 1 && dim->upper_bound == -1 && dim->lower_bound == 1;
        d->dimensions[at].lower_bound = dim->lower_bound;
        d->dimensions[at].extent = unknown ? -1 : extent < 0 ? 0 : extent;
        d->dimensions[at].stride = dim->stride * span;
    }
    return d;
}
#endif

/* What C gets for a buffer. */
struct buffer {
    void *at;
    MPI_Count n;
    MPI_Datatype type;
    int made; /* bits: what section_done must free */
};
#define MADE_TYPE 1
#define MADE_COPY 2

/* Are the elements one behind the other? */
static inline int is_dense(const struct descriptor *d)
{
    ptrdiff_t run = (ptrdiff_t) d->elem_len;
    for (int at = 0; at < d->rank; at++) {
        const struct dimension *dim = &d->dimensions[at];
        if (dim->stride != run && dim->extent != 1)
            return dim->extent == 0;
        run *= dim->extent;
    }
    return 1;
}

/* For an array section that is not dense: changes `b` so that it describes the section's elements.
 *
 * section: `n` and `type` become one datatype for the section, in place. strided: `type` becomes
 * one with the extent of the section's stride. copied: `at` becomes a copy of all elements. The
 * first two copy, too, where no datatype can do it. Returns an error code. */
INTERNAL int section(const struct descriptor *d, struct buffer *b);
INTERNAL int strided(const struct descriptor *d, struct buffer *b);
INTERNAL int copied(const struct descriptor *d, struct buffer *b);

/* After the call: frees what was made for the section, or keeps a copy for the operation of
 * `request`, if there is one. Bits of `how`: */
#define RECEIVES 1   /* the operation writes the buffer */
#define PERSISTENT 2 /* it has been made and not started */
#define PARTITIONS 4 /* its partitions of `b->n` elements are sent and received one by one */
INTERNAL void section_done(const struct descriptor *d, struct buffer *b, int err,
                           const fint *request, int how);

/* How many copies operations have that are under way or persistent. If there are none, the
 * functions below need not be called. */
extern INTERNAL int copies_kept;
/* The operation of a persistent request is about to start. */
INTERNAL void copies_start(fint request);
/* It is complete: what was received is in the array after this. */
INTERNAL void copies_back(fint request);
/* It may be complete: asks, and does the same if it is. In MPICH that question ends the operation
 * of a persistent request, so that MPI_Waitany does not see it: only where nothing else tells. */
INTERNAL void copies_ask(fint request);
/* The request is no more. If its operation is not known to be complete, it uses the copies for
 * ever. */
INTERNAL void copies_free(fint request, int complete);
/* Partitions `low` to `high` are ready to be sent, or have arrived. */
INTERNAL void copies_partitions(fint request, fint low, fint high, int arrived);

static inline int any_copies(void)
{
    return UNLIKELY(__atomic_load_n(&copies_kept, __ATOMIC_RELAXED) > 0);
}

static inline void requests_start(int count, const fint *numbers)
{
    for (int at = 0; any_copies() && at < count; at++)
        copies_start(numbers[at]);
}

/* All operations are complete, or, after an error, maybe some. */
static inline void requests_complete(int count, const fint *numbers, int err)
{
    for (int at = 0; any_copies() && at < count; at++) {
        if (err)
            copies_ask(numbers[at]);
        else
            copies_back(numbers[at]);
    }
}

/* Those with the indices of C are complete. A count or an index may be MPI_UNDEFINED. */
static inline void requests_some(int count, const fint *indices, const fint *numbers)
{
    for (int at = 0; any_copies() && at < count; at++)
        if (indices[at] >= 0)
            copies_back(numbers[indices[at]]);
}

/* A call may have completed the operation of a request. One that is not persistent is no more
 * then. */
static inline void request_changed(fint *number, MPI_Request request, int complete)
{
    fint now = request_out(request);
    if (any_copies()) {
        if (now != *number)
            copies_free(*number, 1);
        else if (complete)
            copies_back(now);
    }
    *number = now;
}

/* MPI_Request_free has freed a request, if it has changed it. */
static inline void request_freed(fint *number, MPI_Request request)
{
    fint now = request_out(request);
    if (any_copies() && now != *number)
        copies_free(*number, 0);
    *number = now;
}

static inline void partitions_ready(fint request, fint low, fint high)
{
    if (any_copies())
        copies_partitions(request, low, high, 0);
}

static inline void partitions_listed(fint request, int count, const fint *partitions)
{
    for (int at = 0; at < count; at++)
        partitions_ready(request, partitions[at], partitions[at]);
}

static inline void partition_arrived(fint request, fint partition)
{
    if (any_copies())
        copies_partitions(request, partition, partition, 1);
}

static inline void *address_in_f08(struct descriptor *d)
{
    return UNLIKELY((char *) d->base == mpif08bottom_) ? MPI_BOTTOM : d->base;
}

static inline int is_in_place_f08(struct descriptor *d)
{
    return (char *) d->base == mpif08inplace_;
}

static inline void *address_or_in_place_f08(struct descriptor *d)
{
    return UNLIKELY(is_in_place_f08(d)) ? MPI_IN_PLACE : address_in_f08(d);
}

static inline void *address_or_automatic_f08(struct descriptor *d)
{
    int automatic = (char *) d->base == mpif08automatic_;
    return UNLIKELY(automatic) ? MPI_BUFFER_AUTOMATIC : address_in_f08(d);
}

/* Operators == and /= of a handle type. */
#define OPERATORS(handle)                                                                          \
    OPERATOR(handle##_eq_f08_, ==)                                                                 \
    OPERATOR(handle##_ne_f08_, !=)
#ifdef MPIFORT_PROFILE
#define OPERATOR(name, sign)
#else
#define OPERATOR(name, sign)                                                                       \
    fint name(const fint *a, const fint *b)                                                        \
    {                                                                                              \
        return *a sign *b;                                                                         \
    }
#endif

/* Callbacks and attributes. */

/* A procedure that the program passes. */
typedef void procedure(void);

INTERNAL MPI_User_function *op_function(procedure *user);
INTERNAL MPI_User_function_c *op_function_c(procedure *user);
INTERNAL MPI_Comm_errhandler_function *comm_error_function(procedure *user);
INTERNAL MPI_Win_errhandler_function *win_error_function(procedure *user);
INTERNAL MPI_File_errhandler_function *file_error_function(procedure *user);
INTERNAL MPI_Session_errhandler_function *session_error_function(procedure *user);

/* An attribute's value in C is the address of a Fortran integer with it (MPI 5.0 §19.3.7). */
INTERNAL void *attribute_in(MPI_Aint value);
INTERNAL MPI_Aint attribute_out(int keyval, void *attribute);
/* Is it the key of a predefined attribute in C? */
INTERNAL int is_predefined_key(int keyval);

/* The key in C. MPICH's predefined keys are one more in Fortran, where values are no pointers. */
static inline int key_in(fint key)
{
#ifdef MPIFORT_MPICH
    return is_predefined_key(key - 1) ? key - 1 : key;
#else
    return key;
#endif
}

/* Tells the C library about Fortran, once. MPI is initialized. */
INTERNAL void register_fortran(void);

#endif

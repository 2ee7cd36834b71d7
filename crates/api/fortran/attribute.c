/* Attributes: the same value in C and in Fortran (MPI 5.0 §19.3.7). */
#include "mpifort.h"

#include <pthread.h>
#include <stdlib.h>

/* Values that Fortran has set. Each value is stored once and stays, so an attribute may be copied
 * in C, and deleted, without a word to this library. */
#define CHUNK 256
#define BUCKETS 4096

struct chunk {
    struct chunk *next;
    int used;
    MPI_Aint values[CHUNK];
    int following[CHUNK]; /* the next one in the same bucket: index + 1, counted over all chunks */
};

static struct chunk *chunks; /* the newest first */
static int chunk_count;
static int buckets[BUCKETS]; /* index + 1, or 0 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct chunk *chunk_of(int index)
{
    struct chunk *chunk = chunks;
    for (int at = chunk_count - 1; at > index / CHUNK; at--)
        chunk = chunk->next;
    return chunk;
}

static unsigned bucket_of(MPI_Aint value)
{
    return (unsigned) (((uint64_t) value * UINT64_C(0x9e3779b97f4a7c15)) >> 52) % BUCKETS;
}

void *attribute_in(MPI_Aint value)
{
    unsigned bucket = bucket_of(value);
    MPI_Aint *place = NULL;
    pthread_mutex_lock(&lock);
    for (int at = buckets[bucket]; at != 0 && place == NULL;) {
        struct chunk *chunk = chunk_of(at - 1);
        if (chunk->values[(at - 1) % CHUNK] == value)
            place = &chunk->values[(at - 1) % CHUNK];
        at = chunk->following[(at - 1) % CHUNK];
    }
    if (place == NULL && (chunks == NULL || chunks->used == CHUNK)) {
        struct chunk *made = calloc(1, sizeof *made);
        if (made == NULL)
            abort();
        made->next = chunks;
        chunks = made;
        chunk_count++;
    }
    if (place == NULL) {
        int at = chunks->used++;
        chunks->values[at] = value;
        chunks->following[at] = buckets[bucket];
        buckets[bucket] = (chunk_count - 1) * CHUNK + at + 1;
        place = &chunks->values[at];
    }
    pthread_mutex_unlock(&lock);
    return place;
}

static int is_from_fortran(const void *attribute)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (struct chunk *chunk = chunks; chunk != NULL && !found; chunk = chunk->next)
        found = (uintptr_t) attribute >= (uintptr_t) chunk->values &&
                (uintptr_t) attribute < (uintptr_t) (chunk->values + CHUNK);
    pthread_mutex_unlock(&lock);
    return found;
}

int is_predefined_key(int keyval)
{
    switch (keyval) {
    case MPI_TAG_UB:
    case MPI_HOST:
    case MPI_IO:
    case MPI_WTIME_IS_GLOBAL:
    case MPI_APPNUM:
    case MPI_LASTUSEDCODE:
    case MPI_UNIVERSE_SIZE:
    case MPI_WIN_BASE:
    case MPI_WIN_SIZE:
    case MPI_WIN_DISP_UNIT:
    case MPI_WIN_CREATE_FLAVOR:
    case MPI_WIN_MODEL:
        return 1;
    default:
        return 0;
    }
}

MPI_Aint attribute_out(int keyval, void *attribute)
{
    if (keyval == MPI_WIN_BASE)
        return (MPI_Aint) attribute;
    if (keyval == MPI_WIN_SIZE)
        return *(MPI_Aint *) attribute;
    if (is_predefined_key(keyval))
        return *(int *) attribute;
    return is_from_fortran(attribute) ? *(MPI_Aint *) attribute : (MPI_Aint) attribute;
}

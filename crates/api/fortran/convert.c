/* Strings and arrays of handles. */
#include "mpifort.h"

#include <stdlib.h>
#include <string.h>

/* Variables whose address has a meaning. */
#define HANDLE(c, word, name)
#define SENTINEL(symbol, bytes) __attribute__((aligned(64))) char symbol[bytes];
#include "generated.h"

/* Memory for a call. A program that has no memory left for some handles cannot go on. */
static void *room(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL)
        abort();
    return memory;
}

void memory_free(void *memory)
{
    free(memory);
}

MPI_Request *requests_in(int count, const fint *from, MPI_Request *few)
{
    MPI_Request *to = count <= FEW ? few : room((size_t) count * sizeof *to);
    for (int at = 0; at < count; at++)
        to[at] = request_in(from[at]);
    return to;
}

void requests_changed(int count, fint *to, MPI_Request *from, MPI_Request *few)
{
    for (int at = 0; at < count; at++)
        request_changed(&to[at], from[at], 0);
    few_free(from, few);
}

MPI_Datatype *types_room(MPI_Count count, MPI_Datatype *few)
{
    MPI_Datatype *types = count <= FEW ? few : room((size_t) count * sizeof *types);
    for (MPI_Count at = 0; at < count; at++)
        types[at] = MPI_DATATYPE_NULL;
    return types;
}

MPI_Datatype *types_in(MPI_Count count, const fint *from, MPI_Datatype *few)
{
    MPI_Datatype *to = types_room(count, few);
    for (MPI_Count at = 0; at < count; at++)
        to[at] = type_in(from[at]);
    return to;
}

/* Those that the call has set. */
void types_out(MPI_Count count, fint *to, MPI_Datatype *from, MPI_Datatype *few)
{
    for (MPI_Count at = 0; at < count; at++)
        if (from[at] != MPI_DATATYPE_NULL)
            to[at] = type_out(from[at]);
    few_free(from, few);
}

int peers(const fint *comm)
{
    int inter = 0, size = 0;
    MPI_Comm of = comm_in(*comm);
    if (of == MPI_COMM_NULL || PMPI_Comm_test_inter(of, &inter) != MPI_SUCCESS)
        return 0;
    if (inter)
        PMPI_Comm_remote_size(of, &size);
    else
        PMPI_Comm_size(of, &size);
    return size;
}

int neighbours(const fint *comm, int sends)
{
    MPI_Comm of = comm_in(*comm);
    int kind = MPI_UNDEFINED, rank = 0, in = 0, out = 0, other = 0;
    if (of == MPI_COMM_NULL || PMPI_Topo_test(of, &kind) != MPI_SUCCESS)
        return 0;
    if (kind == MPI_CART && PMPI_Cartdim_get(of, &in) == MPI_SUCCESS)
        return 2 * in;
    if (kind == MPI_GRAPH && PMPI_Comm_rank(of, &rank) == MPI_SUCCESS &&
        PMPI_Graph_neighbors_count(of, rank, &in) == MPI_SUCCESS)
        return in;
    if (kind == MPI_DIST_GRAPH)
        PMPI_Dist_graph_neighbors_count(of, &in, &out, &other);
    return sends ? out : in;
}

char *text_in(const char *from, size_t length, char *few)
{
    while (length > 0 && from[length - 1] == ' ')
        length--;
    char *to = length < FEW_CHARS ? few : room(length + 1);
    memcpy(to, from, length);
    to[length] = '\0';
    return to;
}

char *text_in_stripped(const char *from, size_t length, char *few)
{
    while (length > 0 && *from == ' ') {
        from++;
        length--;
    }
    return text_in(from, length, few);
}

void text_out(char *to, size_t length, const char *from)
{
    size_t used = strnlen(from, length);
    memmove(to, from, used);
    memset(to + used, ' ', length - used);
}

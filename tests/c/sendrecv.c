/* MPI_Sendrecv, MPI_Sendrecv_replace and their nonblocking forms, to others, to oneself and to
 * nobody. */
#include "check.h"

static void shift(int distance, int bytes)
{
    unsigned char *out = malloc((size_t)bytes + 1), *in = malloc((size_t)bytes + 1);
    int to = ring(distance), from = ring(-distance), count = -1;
    MPI_Status status;
    uint64_t key = (uint64_t)(distance * 50 + bytes);
    fill(out, (size_t)bytes, key + (uint64_t)world_rank * 997);
    OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, 1, in, bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD,
                    &status));
    FILLED(in, (size_t)bytes, key + (uint64_t)from * 997);
    SAME(status.MPI_SOURCE, from);
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    SAME(count, bytes);
    OK(MPI_Sendrecv_replace(out, bytes, MPI_BYTE, to, 2, from, 2, MPI_COMM_WORLD, &status));
    FILLED(out, (size_t)bytes, key + (uint64_t)from * 997);
    SAME(status.MPI_TAG, 2);
    MPI_Request request;
    OK(MPI_Isendrecv(out, bytes, MPI_BYTE, from, 3, in, bytes, MPI_BYTE, to, 3, MPI_COMM_WORLD,
                     &request));
    OK(MPI_Wait(&request, &status));
    FILLED(in, (size_t)bytes, key + (uint64_t)world_rank * 997);
    SAME(status.MPI_SOURCE, to);
    OK(MPI_Isendrecv_replace(out, bytes, MPI_BYTE, from, 4, to, 4, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, &status));
    FILLED(out, (size_t)bytes, key + (uint64_t)world_rank * 997);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    static const int sizes[] = {0, 1, 100, 4096, 50000, 1000000};
    for (int d = 0; d < 3; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            shift(d, sizes[i]);

    /* A column of a matrix is replaced in place. */
    int matrix[6][5];
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 5; j++)
            matrix[i][j] = world_rank * 100 + i * 10 + j;
    MPI_Datatype column;
    OK(MPI_Type_vector(6, 1, 5, MPI_INT, &column));
    OK(MPI_Type_commit(&column));
    MPI_Status status;
    OK(MPI_Sendrecv_replace(&matrix[0][3], 1, column, ring(1), 5, ring(-1), 5, MPI_COMM_WORLD,
                            &status));
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 5; j++)
            SAME(matrix[i][j], (j == 3 ? ring(-1) : world_rank) * 100 + i * 10 + j);
    int count = -1;
    OK(MPI_Get_count(&status, column, &count));
    SAME(count, 1);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    SAME(count, 6);
    /* Different types and lengths in the two directions. */
    int out[4] = {world_rank, 1, 2, 3}, in[6] = {-1, -1, -1, -1, -1, -1};
    OK(MPI_Sendrecv(out, 4, MPI_INT, ring(1), 6, in, 24, MPI_BYTE, ring(-1), 6, MPI_COMM_WORLD,
                    &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    SAME(count, 16);
    SAME(in[0], ring(-1));
    SAME(in[3], 3);
    SAME(in[4], -1);
    OK(MPI_Type_free(&column));
    /* A chain with nobody at its ends. */
    int left = world_rank == 0 ? MPI_PROC_NULL : world_rank - 1;
    int right = world_rank == world_size - 1 ? MPI_PROC_NULL : world_rank + 1;
    int value = -5;
    OK(MPI_Sendrecv(&world_rank, 1, MPI_INT, right, 7, &value, 1, MPI_INT, left, 7, MPI_COMM_WORLD,
                    &status));
    SAME(value, left == MPI_PROC_NULL ? -5 : left);
    if (left == MPI_PROC_NULL) {
        SAME(status.MPI_SOURCE, MPI_PROC_NULL);
        SAME(status.MPI_TAG, MPI_ANY_TAG);
        OK(MPI_Get_count(&status, MPI_INT, &count));
        SAME(count, 0);
    }
    value = world_rank;
    OK(MPI_Sendrecv_replace(&value, 1, MPI_INT, left, 8, right, 8, MPI_COMM_WORLD, &status));
    SAME(value, right == MPI_PROC_NULL ? world_rank : right);
    return check_end();
}

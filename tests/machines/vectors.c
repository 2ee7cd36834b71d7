/* Strided messages from and to memory of MPI_Alloc_mem: every byte is checked, and rank 0 prints
 * how long they took, in picoseconds of virtual time. vectors SHAPE MEMORY ROWS SHAPE: what the
 * sender's and the receiver's buffers are made of, two of: p (one run), v (a column), l (a list of
 * single elements), b (pairs at uneven distances and a row). MEMORY: whose buffers lie on the card:
 * none, sender, receiver, both.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 8, ROUNDS = 10 };

static int me;

static void fail(const char *what, int at)
{
    fprintf(stderr, "rank %d: %s at %d\n", me, what, at);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* A type of `rows` doubles in a matrix of `rows` rows; `place`: which doubles, in order. */
static MPI_Datatype type_of(char shape, int rows, int *place)
{
    MPI_Datatype type;
    int n = 0;
    if (shape == 'p') {
        MPI_Type_contiguous(rows, MPI_DOUBLE, &type);
        for (int i = 0; i < rows; i++)
            place[n++] = i;
    } else if (shape == 'v') {
        MPI_Type_vector(rows, 1, COLUMNS, MPI_DOUBLE, &type);
        for (int i = 0; i < rows; i++)
            place[n++] = i * COLUMNS;
    } else if (shape == 'l') {
        for (int i = 0; i < rows; i++)
            place[n++] = i * COLUMNS + i * i % 7;
        MPI_Type_create_indexed_block(rows, 1, place, MPI_DOUBLE, &type);
    } else {
        int lengths[3] = {2, 2, rows - 4}, at[3] = {0, 5, 2 * COLUMNS};
        MPI_Type_indexed(3, lengths, at, MPI_DOUBLE, &type);
        for (int b = 0; b < 3; b++)
            for (int i = 0; i < lengths[b]; i++)
                place[n++] = at[b] + i;
    }
    MPI_Type_commit(&type);
    return type;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (argc < 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    const char *memory = argv[2];
    int rows = atoi(argv[3]), all = rows * COLUMNS;
    int card = strcmp(memory, "both") == 0 || strcmp(memory, me == 0 ? "sender" : "receiver") == 0;
    int *place = malloc(sizeof *place * (size_t)rows);
    MPI_Datatype type = type_of(argv[1][me == 0 ? 0 : 1], rows, place);
    char *taken = calloc(1, (size_t)all);
    for (int i = 0; i < rows; i++)
        taken[place[i]] = 1;
    double *matrix;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "ferry_memory", card ? "card" : "system");
    if (MPI_Alloc_mem((MPI_Aint)sizeof(double) * all, info, &matrix))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < all; i++)
            matrix[i] = -1 - i;
        if (me == 0) {
            for (int i = 0; i < rows; i++)
                matrix[place[i]] = round * 1000 + i;
            MPI_Send(matrix, 1, type, 1, round, MPI_COMM_WORLD);
            MPI_Recv(NULL, 0, MPI_INT, 1, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (me == 1) {
            MPI_Status status;
            int count;
            MPI_Recv(matrix, 1, type, 0, round, MPI_COMM_WORLD, &status);
            MPI_Get_elements(&status, MPI_DOUBLE, &count);
            if (count != rows)
                fail("another number of elements", count);
            for (int i = 0; i < rows; i++)
                if (matrix[place[i]] != round * 1000 + i)
                    fail("another element", i);
            for (int i = 0; i < all; i++)
                if (!taken[i] && matrix[i] != -1 - i)
                    fail("what was not to be touched is changed", i);
            MPI_Send(NULL, 0, MPI_INT, 0, round, MPI_COMM_WORLD);
        }
    }
    if (me == 0)
        printf("%lld\n", llround((MPI_Wtime() - began) * 1e12));
    MPI_Free_mem(matrix);
    MPI_Info_free(&info);
    MPI_Type_free(&type);
    free(taken);
    free(place);
    MPI_Finalize();
    return 0;
}

/* Many strided messages at once, each way between all ranks, from and to memory on the card where
 * the machine has any; every element is checked. Prints the virtual time at the end.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
enum { N = 300, C = 5, M = 6 };
int main(int argc, char **argv)
{
    int me, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    MPI_Datatype column, t;
    MPI_Type_vector(N, 1, C, MPI_INT, &t);
    MPI_Type_create_resized(t, 0, sizeof(int), &column);
    MPI_Type_commit(&column);
    int *out, *in;
    MPI_Alloc_mem((MPI_Aint)sizeof(int) * N * C * all * M, MPI_INFO_NULL, &out);
    MPI_Alloc_mem((MPI_Aint)sizeof(int) * N * C * all * M, MPI_INFO_NULL, &in);
    int *plain = calloc(N, sizeof *plain);
    MPI_Request *r = malloc(sizeof *r * 2 * (size_t)(all * M));
    for (int round = 0; round < 5; round++) {
        int n = 0;
        for (int i = 0; i < N * C * all * M; i++) {
            out[i] = me * 1000000 + i + round;
            in[i] = -1;
        }
        for (int m = 0; m < M; m++)
            for (int p = 0; p < all; p++)
                MPI_Irecv(in + (m * all + p) * N * C + m % C, 1, column, p, m, MPI_COMM_WORLD,
                          &r[n++]);
        for (int m = 0; m < M; m++)
            for (int p = 0; p < all; p++)
                MPI_Isend(out + (m * all + p) * N * C + m % C, 1, column, p, m, MPI_COMM_WORLD,
                          &r[n++]);
        MPI_Waitall(n, r, MPI_STATUSES_IGNORE);
        for (int m = 0; m < M; m++)
            for (int p = 0; p < all; p++)
                for (int i = 0; i < N * C; i++) {
                    int got = in[(m * all + p) * N * C + i];
                    int want =
                        i % C == m % C ? p * 1000000 + (m * all + me) * N * C + i + round : -1;
                    if (got != want) {
                        printf("rank %d: %d from %d at %d: %d, not %d\n", me, m, p, i, got, want);
                        MPI_Abort(MPI_COMM_WORLD, 1);
                    }
                }
        /* Into ordinary memory, and in collectives. */
        int right = (me + 1) % all, left = (me + all - 1) % all;
        MPI_Sendrecv(out, 1, column, right, 99, plain, N, MPI_INT, left, 99, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < N; i++)
            if (plain[i] != left * 1000000 + i * C + round) {
                printf("plain %d %d\n", i, plain[i]);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        MPI_Bcast(out, 1, column, 0, MPI_COMM_WORLD);
        MPI_Alltoall(out, N, MPI_INT, in, N, MPI_INT, MPI_COMM_WORLD);
    }
    if (me == 0)
        printf("%.12f\n", MPI_Wtime());
    MPI_Free_mem(in);
    MPI_Free_mem(out);
    MPI_Finalize();
    return 0;
}

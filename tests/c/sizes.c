/* One message of every size class from nothing to 64 MiB, round the ring and to oneself, contiguous
 * and strided. */
#include "check.h"

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    size_t most = (size_t)64 << 20;
    if (world_size > 4)
        most = (size_t)4 << 20; /* keeps the memory of many ranks on one machine in bounds */
    unsigned char *out = malloc(most + 1), *in = malloc(most + 1);
    for (size_t size = 0; size <= most; size = size < 4 ? size + 1 : size * 2) {
        for (int odd = -1; odd <= 1; odd++) {
            size_t bytes = size + (size_t)odd;
            if ((size < 4 && odd) || bytes > most)
                continue;
            if (size > (size_t)1 << 20 && odd)
                continue;
            uint64_t key = bytes;
            fill(out, bytes, key + (uint64_t)world_rank);
            memset(in, 0, bytes + 1);
            MPI_Status status;
            OK(MPI_Sendrecv(out, (int)bytes, MPI_BYTE, ring(1), 1, in, (int)most, MPI_BYTE,
                            ring(-1), 1, MPI_COMM_WORLD, &status));
            FILLED(in, bytes, key + (uint64_t)ring(-1));
            SAME(in[bytes], 0);
            int count = -1;
            OK(MPI_Get_count(&status, MPI_BYTE, &count));
            SAME(count, bytes);
            if (size >= 8 && odd == 0) {
                /* Every second 4-byte word travels; it lands densely. */
                MPI_Datatype strided;
                OK(MPI_Type_vector((int)(bytes / 8), 1, 2, MPI_INT, &strided));
                OK(MPI_Type_commit(&strided));
                OK(MPI_Sendrecv(out, 1, strided, ring(1), 2, in, (int)(bytes / 8), MPI_INT,
                                ring(-1), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                for (size_t i = 0; i < bytes / 8; i += 1 + bytes / 80000)
                    for (size_t k = 0; k < 4; k++)
                        if (in[4 * i + k] != pattern(key + (uint64_t)ring(-1), 8 * i + k)) {
                            FAIL("%zu strided bytes: byte %zu is wrong", bytes, 4 * i + k);
                            i = bytes;
                            break;
                        }
                OK(MPI_Type_free(&strided));
            }
        }
    }
    free(out);
    free(in);
    return check_end();
}

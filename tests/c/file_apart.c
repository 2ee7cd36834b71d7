/* Ranks open the same file by themselves. One writes every second integer in one call, the others
 * write what is between, and nothing is lost: accesses that do not overlap do not conflict (MPI 5.0
 * section 14.6.1). */
// ranks: 2 3 4
// machines: no
#include "files.h"

enum { INTS = 1000, ROUNDS = 50 };

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    const char *name = file_name();
    int data[INTS], all[2 * INTS];
    MPI_Datatype every;
    OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every));
    OK(MPI_Type_commit(&every));
    for (int round = 1; round <= ROUNDS; round++) {
        MPI_File fh;
        OK(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &fh));
        if (world_rank == 0)
            OK(MPI_File_set_view(fh, 0, MPI_INT, every, "native", MPI_INFO_NULL));
        else
            OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
        for (int i = 0; i < INTS; i++)
            data[i] = round;
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (world_rank == 0)
            for (int i = 0; i < 20; i++)
                OK(MPI_File_write_at(fh, 0, data, INTS, MPI_INT, MPI_STATUS_IGNORE));
        else
            for (int i = world_rank - 1; i < INTS; i += world_size - 1)
                OK(MPI_File_write_at(fh, 2 * i + 1, data, 1, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_sync(fh));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_File_sync(fh));
        OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
        OK(MPI_File_read_at(fh, 0, all, 2 * INTS, MPI_INT, MPI_STATUS_IGNORE));
        for (int i = 0; i < 2 * INTS; i++)
            SAME(all[i], round);
        OK(MPI_File_close(&fh));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Type_free(&every));
    return check_end();
}

/* Opens of one file that do not know of each other: by single ranks, by halves of the world, by all
 * and by single ranks at once, and by a process and its child. One rank writes every second integer
 * in one call, the others write what is between, and nothing is lost: accesses that do not overlap
 * do not conflict (MPI 5.0 section 14.6.1). */
// ranks: 1 2 3 4
// machines: no
#include "files.h"

enum { INTS = 1000, ROUNDS = 6 };

static MPI_File open_file(MPI_Comm comm, const char *name)
{
    MPI_File fh;
    OK(MPI_File_open(comm, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &fh));
    return fh;
}

/* Rank 0's view: the even integers. The other ranks': all. */
static void set_view(MPI_File fh, int even)
{
    MPI_Datatype every;
    OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every));
    OK(MPI_Type_commit(&every));
    OK(MPI_File_set_view(fh, 0, MPI_INT, even ? every : MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&every));
}

static void write_even(MPI_File fh, int value)
{
    int data[INTS];
    for (int i = 0; i < INTS; i++)
        data[i] = value;
    OK(MPI_File_write_at(fh, 0, data, INTS, MPI_INT, MPI_STATUS_IGNORE));
}

static void sync_all(const MPI_File *files, int count)
{
    for (int i = 0; i < count; i++)
        OK(MPI_File_sync(files[i]));
}

/* All ranks of `comm` write `round`, each by the first of its files, and read it back. Rank 0 goes
 * on with its one write until the others have done theirs. */
static void write_all(const MPI_File *files, int count, MPI_Comm comm, int round)
{
    int rank, size, done = 0, all[2 * INTS];
    MPI_Request others;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    for (int i = 0; i < count; i++)
        set_view(files[i], rank == 0);
    OK(MPI_Barrier(comm));
    if (rank > 0)
        for (int i = rank - 1; i < INTS; i += size - 1)
            OK(MPI_File_write_at(files[0], 2 * i + 1, &round, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_Ibarrier(comm, &others));
    while (rank == 0 && !done) {
        write_even(files[0], round);
        OK(MPI_Test(&others, &done, MPI_STATUS_IGNORE));
    }
    OK(MPI_Wait(&others, MPI_STATUS_IGNORE));
    sync_all(files, count);
    OK(MPI_Barrier(comm));
    sync_all(files, count);
    for (int i = 0; i < count; i++)
        set_view(files[i], 0);
    OK(MPI_File_read_at(files[0], 0, all, 2 * INTS, MPI_INT, MPI_STATUS_IGNORE));
    for (int i = 0; i < 2 * INTS; i++)
        SAME(all[i], round);
    OK(MPI_Barrier(comm));
}

/* The ranks of `by` open it together. */
static void together(MPI_Comm by, MPI_Comm comm)
{
    const char *name = file_name();
    for (int round = 1; round <= ROUNDS; round++) {
        MPI_File fh = open_file(by, name);
        write_all(&fh, 1, comm, round);
        OK(MPI_File_close(&fh));
        OK(MPI_Barrier(comm));
    }
}

/* Rank 0 has written alone before the others open it. */
static void rank_0_first(void)
{
    const char *name = file_name();
    for (int round = 1; round <= ROUNDS; round++) {
        MPI_File fh = MPI_FILE_NULL;
        if (world_rank == 0) {
            fh = open_file(MPI_COMM_SELF, name);
            set_view(fh, 1);
            write_even(fh, -round);
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (world_rank != 0)
            fh = open_file(MPI_COMM_SELF, name);
        write_all(&fh, 1, MPI_COMM_WORLD, round);
        OK(MPI_File_close(&fh));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
}

/* Rank 0 writes by a file that all have opened, the others each by one of its own. */
static void all_and_alone(void)
{
    const char *name = file_name();
    for (int round = 1; round <= ROUNDS; round++) {
        MPI_File whole = open_file(MPI_COMM_WORLD, name), own = open_file(MPI_COMM_SELF, name);
        MPI_File files[2] = {world_rank == 0 ? whole : own, world_rank == 0 ? own : whole};
        write_all(files, 2, MPI_COMM_WORLD, round);
        OK(MPI_File_close(&own));
        OK(MPI_File_close(&whole));
    }
}

int main(int argc, char **argv)
{
    MPI_Comm parent, inter, both, half;
    check_begin(&argc, &argv);
    OK(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL || world_size == 1) {
        inter = parent;
        if (parent == MPI_COMM_NULL)
            OK(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter,
                              MPI_ERRCODES_IGNORE));
        OK(MPI_Intercomm_merge(inter, parent != MPI_COMM_NULL, &both));
        together(MPI_COMM_SELF, both);
        OK(MPI_Comm_free(&both));
        OK(MPI_Comm_disconnect(&inter));
        return check_end();
    }
    together(MPI_COMM_SELF, MPI_COMM_WORLD);
    rank_0_first();
    all_and_alone();
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank * 2 / world_size, 0, &half));
    together(half, MPI_COMM_WORLD);
    OK(MPI_Comm_free(&half));
    return check_end();
}

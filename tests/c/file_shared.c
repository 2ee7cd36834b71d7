/* The shared file pointer (MPI 5.0 section 14.4.4), accesses in the order of the ranks, and split
 * collectives (section 14.4.5). */
#include "files.h"

/* Records of all ranks by the shared pointer: each is whole, and none is missing. */
static void records(int etype_bytes)
{
    enum { RECORDS = 40, INTS = 6, BYTES = 4 * INTS };
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Datatype etype, tile;
    OK(MPI_Type_contiguous(etype_bytes, MPI_BYTE, &etype));
    OK(MPI_Type_create_resized(etype, 0, etype_bytes + 2, &tile));
    OK(MPI_Type_commit(&etype));
    OK(MPI_Type_commit(&tile));
    OK(MPI_File_set_view(fh, 5, etype, tile, "native", MPI_INFO_NULL));
    int record[INTS];
    for (int n = 0; n < RECORDS; n++) {
        for (int i = 0; i < INTS; i++)
            record[i] = world_rank * RECORDS + n;
        MPI_Request request;
        if (n % 2) {
            OK(MPI_File_write_shared(fh, record, BYTES / etype_bytes, etype, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_File_iwrite_shared(fh, record, BYTES / etype_bytes, etype, &request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
    }
    file_publish(fh);
    MPI_Offset position = -1;
    OK(MPI_File_get_position_shared(fh, &position));
    SAME(position, (long long)RECORDS * world_size * BYTES / etype_bytes);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
    int *seen = calloc((size_t)(RECORDS * world_size), sizeof(int)),
        *all = calloc((size_t)(RECORDS * world_size), sizeof(int));
    int last[64];
    memset(last, -1, sizeof last);
    for (int n = 0; n < RECORDS; n++) {
        MPI_Status status;
        OK(MPI_File_read_shared(fh, record, BYTES / etype_bytes, etype, &status));
        SAME(bytes_of(&status), BYTES);
        int is = record[0];
        for (int i = 1; i < INTS; i++)
            SAME(record[i], is);
        CHECK(is >= 0 && is < RECORDS * world_size, "record %d is none", is);
        if (is < 0 || is >= RECORDS * world_size)
            break;
        seen[is]++;
        /* A rank's records come in its order. */
        CHECK(is % RECORDS > last[is / RECORDS], "record %d comes after %d", is % RECORDS,
              last[is / RECORDS]);
        last[is / RECORDS] = is % RECORDS;
    }
    OK(MPI_Allreduce(seen, all, RECORDS * world_size, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int n = 0; n < RECORDS * world_size; n++)
        CHECK(all[n] == 1, "record %d was read %d times", n, all[n]);
    free(seen);
    free(all);
    OK(MPI_Type_free(&etype));
    OK(MPI_Type_free(&tile));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

static void seeks(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name);
    MPI_Offset at = -1;
    OK(MPI_File_set_size(fh, 103));
    OK(MPI_File_set_view(fh, 3, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_seek_shared(fh, 7, MPI_SEEK_SET));
    OK(MPI_File_get_position_shared(fh, &at));
    SAME(at, 7);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_seek_shared(fh, -2, MPI_SEEK_CUR));
    OK(MPI_File_get_position_shared(fh, &at));
    SAME(at, 5);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    CLASS(MPI_File_seek_shared(fh, -6, MPI_SEEK_CUR), MPI_ERR_ARG);
    OK(MPI_File_seek_shared(fh, -1, MPI_SEEK_END));
    OK(MPI_File_get_position_shared(fh, &at));
    SAME(at, 24);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_get_position(fh, &at));
    SAME(at, 0);
    /* The individual pointer is every rank's own. */
    OK(MPI_File_seek(fh, 3 + world_rank, MPI_SEEK_SET));
    OK(MPI_File_seek(fh, -1, MPI_SEEK_CUR));
    OK(MPI_File_get_position(fh, &at));
    SAME(at, 2 + world_rank);
    CLASS(MPI_File_seek(fh, -100, MPI_SEEK_CUR), MPI_ERR_ARG);
    OK(MPI_File_get_position(fh, &at));
    SAME(at, 2 + world_rank);
    OK(MPI_File_seek(fh, 2, MPI_SEEK_END));
    OK(MPI_File_get_position(fh, &at));
    SAME(at, 27);
    OK(MPI_File_get_position_shared(fh, &at));
    SAME(at, 24);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* Ranks write different amounts, in their order, several times; the pointer goes on. */
static void ordered(int split)
{
    enum { TURNS = 5, MOST = 16 * 64 };
    const char *name = file_name();
    MPI_File fh = file_create(name);
    static int out[MOST], in[MOST];
    MPI_Status status;
    MPI_Offset at = -1, total = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        int mine = (world_rank * 7 + turn * 3) % 11, before = 0;
        for (int i = 0; i < mine; i++)
            out[i] = turn * 1000000 + world_rank * 1000 + i;
        for (int r = 0; r < world_size; r++)
            before += (r * 7 + turn * 3) % 11;
        if (split) {
            OK(MPI_File_write_ordered_begin(fh, out, mine, MPI_INT));
            OK(MPI_File_write_ordered_end(fh, out, &status));
        } else {
            OK(MPI_File_write_ordered(fh, out, mine, MPI_INT, &status));
        }
        SAME(bytes_of(&status), 4 * mine);
        total += 4 * before;
        OK(MPI_File_get_position_shared(fh, &at));
        SAME(at, total);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    file_publish(fh);
    SAME(file_length(name), total);
    OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
    for (int turn = 0; turn < TURNS; turn++) {
        int mine = (world_rank * 7 + turn * 3) % 11;
        if (split) {
            OK(MPI_File_read_ordered_begin(fh, in, mine, MPI_INT));
            OK(MPI_File_read_ordered_end(fh, in, &status));
        } else {
            OK(MPI_File_read_ordered(fh, in, mine, MPI_INT, &status));
        }
        SAME(bytes_of(&status), 4 * mine);
        for (int i = 0; i < mine; i++)
            SAME(in[i], turn * 1000000 + world_rank * 1000 + i);
    }
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* One split collective at a time; other accesses go on between begin and end. */
static void splits(void)
{
    const char *name = file_name();
    MPI_File fh = file_create(name);
    int out = world_rank, in = -1, other = -1;
    MPI_Status status;
    OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_at_all_begin(fh, world_rank, &out, 1, MPI_INT));
    CLASS(MPI_File_write_all_begin(fh, &out, 1, MPI_INT), MPI_ERR_OTHER);
    CLASS(MPI_File_write_all_end(fh, &out, &status), MPI_ERR_OTHER);
    CHECK(MPI_File_write_at_all_end(fh, &in, &status) != MPI_SUCCESS,
          "an end is taken with another buffer than the begin's");
    CHECK(MPI_File_sync(fh) != MPI_SUCCESS, "a sync is taken between begin and end");
    CHECK(MPI_File_close(&fh) != MPI_SUCCESS, "a file is closed between begin and end");
    CHECK(fh != MPI_FILE_NULL, "a file that was not closed has no handle");
    OK(MPI_File_write_at(fh, world_size + world_rank, &out, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_write_at_all_end(fh, &out, &status));
    SAME(bytes_of(&status), 4);
    CLASS(MPI_File_write_at_all_end(fh, &out, &status), MPI_ERR_OTHER);
    file_publish(fh);
    OK(MPI_File_seek(fh, ring(1), MPI_SEEK_SET));
    OK(MPI_File_read_all_begin(fh, &in, 1, MPI_INT));
    OK(MPI_File_read_at(fh, world_size + ring(-1), &other, 1, MPI_INT, MPI_STATUS_IGNORE));
    SAME(other, ring(-1));
    OK(MPI_File_read_all_end(fh, &in, &status));
    SAME(in, ring(1));
    OK(MPI_File_close(&fh));
    file_remove(name);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    records(1);
    records(4);
    records(24);
    seeks();
    ordered(0);
    ordered(1);
    splits();
    return check_end();
}

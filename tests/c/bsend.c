/* Buffered sends: the process's buffer, a communicator's buffer, the automatic one, and a buffer
 * that is full. */
#include "check.h"

/* Sends on `comm` that nobody receives until all are buffered; then checks them. */
static void batch(MPI_Comm comm, int messages, int bytes)
{
    unsigned char *data = malloc((size_t)bytes);
    for (int i = 0; i < messages; i++) {
        fill(data, (size_t)bytes, (uint64_t)(world_rank * 100 + i));
        OK(MPI_Bsend(data, bytes, MPI_BYTE, ring(1), i, comm));
    }
    memset(data, 0, (size_t)bytes);
    for (int i = messages - 1; i >= 0; i--) {
        OK(MPI_Recv(data, bytes, MPI_BYTE, ring(-1), i, comm, MPI_STATUS_IGNORE));
        FILLED(data, (size_t)bytes, (uint64_t)(ring(-1) * 100 + i));
    }
    free(data);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    enum { MESSAGES = 10, BYTES = 30000 };
    int packed = 0;
    OK(MPI_Pack_size(BYTES, MPI_BYTE, MPI_COMM_WORLD, &packed));
    int size = MESSAGES * (packed + MPI_BSEND_OVERHEAD), back = -1;
    char *buffer = malloc((size_t)size);
    void *where = NULL;

    /* The process's buffer; the room comes back as messages leave. */
    OK(MPI_Buffer_attach(buffer, size));
    for (int i = 0; i < 4; i++) {
        batch(MPI_COMM_WORLD, MESSAGES, BYTES);
        OK(MPI_Buffer_flush());
    }
    OK(MPI_Buffer_detach(&where, &back));
    SAME(where == buffer, 1);
    SAME(back, size);

    /* Detaching waits until the messages are away, so what is in the buffer afterwards does not
     * matter. */
    OK(MPI_Buffer_attach(buffer, size));
    unsigned char *data = malloc(BYTES);
    fill(data, BYTES, (uint64_t)world_rank);
    MPI_Request request;
    unsigned char *in = malloc(BYTES);
    OK(MPI_Irecv(in, BYTES, MPI_BYTE, ring(-1), 3, MPI_COMM_WORLD, &request));
    OK(MPI_Bsend(data, BYTES, MPI_BYTE, ring(1), 3, MPI_COMM_WORLD));
    OK(MPI_Buffer_detach(&where, &back));
    memset(buffer, 0x77, (size_t)size);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    FILLED(in, BYTES, (uint64_t)ring(-1));

    /* A communicator's own buffer comes before the process's. */
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_attach_buffer(comm, buffer, size));
    batch(comm, MESSAGES, BYTES);
    OK(MPI_Comm_flush_buffer(comm));
    OK(MPI_Comm_iflush_buffer(comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_detach_buffer(comm, &where, &back));
    SAME(where == buffer, 1);
    SAME(back, size);

    /* The automatic buffer: as much as it takes, and its address comes back as the constant. */
    OK(MPI_Comm_attach_buffer(comm, MPI_BUFFER_AUTOMATIC, 0));
    batch(comm, 3 * MESSAGES, BYTES);
    OK(MPI_Comm_detach_buffer(comm, &where, &back));
    SAME(where == MPI_BUFFER_AUTOMATIC, 1);
    SAME(back, 0);
    OK(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
    batch(MPI_COMM_WORLD, 3 * MESSAGES, BYTES);
    /* Derived types are packed into it; the source may change at once. */
    MPI_Datatype every_second;
    OK(MPI_Type_vector(100, 1, 2, MPI_INT, &every_second));
    OK(MPI_Type_commit(&every_second));
    int numbers[200], got[100];
    for (int i = 0; i < 200; i++)
        numbers[i] = world_rank * 1000 + i;
    OK(MPI_Bsend(numbers, 1, every_second, ring(1), 4, MPI_COMM_WORLD));
    memset(numbers, 0, sizeof numbers);
    OK(MPI_Recv(got, 100, MPI_INT, ring(-1), 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 100; i++)
        SAME(got[i], ring(-1) * 1000 + 2 * i);
    OK(MPI_Type_free(&every_second));
    OK(MPI_Buffer_detach(&where, &back));
    SAME(where == MPI_BUFFER_AUTOMATIC, 1);

    /* What is nested in others may take away what is attached and put it back, also if that is
     * nothing. */
    for (int attached = 0; attached < 2; attached++) {
        void *outer = &where;
        int outer_size = -1;
        if (attached)
            OK(MPI_Buffer_attach(buffer, size / 2));
        OK(MPI_Buffer_detach(&outer, &outer_size));
        SAME(outer == (attached ? buffer : NULL), 1);
        SAME(outer_size, attached ? size / 2 : 0);
        OK(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
        batch(MPI_COMM_WORLD, MESSAGES, BYTES);
        OK(MPI_Buffer_detach(&where, &back));
        OK(MPI_Buffer_attach(outer, outer_size));
        if (attached)
            OK(MPI_Buffer_detach(&where, &back));
    }
    OK(MPI_Comm_detach_buffer(comm, &where, &back));
    SAME(where == NULL && back == 0, 1);

    /* Too little room is an error, and so is no buffer at all. */
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    CLASS(MPI_Bsend(data, BYTES, MPI_BYTE, ring(1), 5, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    OK(MPI_Buffer_attach(buffer, MPI_BSEND_OVERHEAD + 100));
    CLASS(MPI_Bsend(data, BYTES, MPI_BYTE, ring(1), 5, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    CHECK(MPI_Buffer_attach(buffer, 1000) != MPI_SUCCESS, "a second buffer could be attached");
    OK(MPI_Buffer_detach(&where, &back));
    SAME(back, MPI_BSEND_OVERHEAD + 100);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    free(data);
    free(in);
    free(buffer);
    return check_end();
}

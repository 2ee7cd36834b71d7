// ranks: 2 3 4
// machines: no
// run: readable
// run: unreadable
/* Standard sends of 48 to 64 KiB complete without their receive. Within a node they are announced,
 * and withdrawn if the receiver is late: here it is in time, late, or waits for its own sends.
 * `unreadable`: the system refuses to read another process's memory. */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { LENGTHS = 4, FEW = 3, MANY = 100, TAG = 5 };
static const int lengths[LENGTHS] = {48 << 10, 49153, 60000, 64 << 10};
static unsigned char *out[MANY], *in;

static int next_rank(int by)
{
    return (world_rank + by + world_size) % world_size;
}

static uint64_t seed(int from, int which, int round)
{
    return (uint64_t)from * 1000003 + (uint64_t)which * 101 + (uint64_t)round;
}

static int length(int which, int round)
{
    return which % 4 == 3 ? 8 : lengths[(which + round) % LENGTHS];
}

/* This rank computes, and makes no progress. */
static void compute(double seconds)
{
    double until = MPI_Wtime() + seconds;
    while (MPI_Wtime() < until)
        ;
}

static void receive(int which, int round)
{
    int from = next_rank(-1), count = -1;
    MPI_Status status;
    OK(MPI_Recv(in, 64 << 10, MPI_BYTE, from, TAG + which, MPI_COMM_WORLD, &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    SAME(count, length(which, round));
    FILLED(in, (size_t)length(which, round), seed(from, which, round));
}

/* All ranks send before any receives. The buffers are written to as soon as the sends are over. */
static void all_send_first(int how, int round)
{
    MPI_Request requests[FEW];
    for (int i = 0; i < FEW; i++) {
        int bytes = length(i, round), done = 0;
        fill(out[i], (size_t)bytes, seed(world_rank, i, round));
        if (how == 0) {
            OK(MPI_Send(out[i], bytes, MPI_BYTE, next_rank(1), TAG + i, MPI_COMM_WORLD));
            memset(out[i], 0xee, (size_t)bytes);
            continue;
        }
        OK(MPI_Isend(out[i], bytes, MPI_BYTE, next_rank(1), TAG + i, MPI_COMM_WORLD,
                     &requests[i]));
        while (how == 1 && !done)
            OK(MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE));
    }
    if (how == 2)
        OK(MPI_Waitall(FEW, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < FEW; i++)
        memset(out[i], 0xee, (size_t)length(i, round));
    for (int i = 0; i < FEW; i++)
        receive(round % 2 ? i : FEW - 1 - i, round);
}

/* Many are sent to a rank that is late, or in time for some. */
static void many(double late, int round)
{
    MPI_Request requests[MANY];
    for (int i = 0; i < MANY; i++) {
        fill(out[i], (size_t)length(i, round), seed(world_rank, i, round));
        OK(MPI_Isend(out[i], length(i, round), MPI_BYTE, next_rank(1), TAG + i, MPI_COMM_WORLD,
                     &requests[i]));
        if (late > 0 && i % 16 == 15)
            compute(late);
    }
    for (int i = 0; i < MANY; i++)
        receive(i, round);
    OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
}

/* A message that was probed before it was withdrawn, and one whose request was freed. */
static void probed_and_freed(int round)
{
    MPI_Request requests[2];
    MPI_Message message;
    MPI_Status status;
    int from = next_rank(-1), bytes = length(0, round), count = -1;
    for (int i = 0; i < 2; i++) {
        fill(out[i], (size_t)length(i, round), seed(world_rank, i, round));
        OK(MPI_Isend(out[i], length(i, round), MPI_BYTE, next_rank(1), TAG + i, MPI_COMM_WORLD,
                     &requests[i]));
    }
    OK(MPI_Request_free(&requests[1]));
    OK(MPI_Mprobe(from, TAG, MPI_COMM_WORLD, &message, &status));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Mrecv(in, 64 << 10, MPI_BYTE, &message, &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    SAME(count, bytes);
    FILLED(in, (size_t)bytes, seed(from, 0, round));
    receive(1, round);
    OK(MPI_Barrier(MPI_COMM_WORLD)); /* the buffer of the freed request is in use until here */
}

/* A receive with too little room for a message that was withdrawn. */
static void truncated(int round)
{
    int from = next_rank(-1), bytes = length(0, round), class = MPI_SUCCESS;
    fill(out[0], (size_t)bytes, seed(world_rank, 0, round));
    OK(MPI_Send(out[0], bytes, MPI_BYTE, next_rank(1), TAG, MPI_COMM_WORLD));
    memset(in, 0xee, 64 << 10);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    int code = MPI_Recv(in, 1000, MPI_BYTE, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    OK(MPI_Error_class(code, &class));
    SAME(class, MPI_ERR_TRUNCATE);
    SAME(in[1000], 0xee);
}

/* Bytes that wait for their receive here are counted, whether their message was announced or not:
 * they have come before the message that was sent after them. */
static void counted(MPI_T_pvar_session session, MPI_T_pvar_handle bytes)
{
    unsigned long long count = 0, bytes_sent = (unsigned long long)length(0, 0);
    fill(out[0], bytes_sent, seed(world_rank, 0, 0));
    OK(MPI_Send(out[0], (int)bytes_sent, MPI_BYTE, next_rank(1), TAG, MPI_COMM_WORLD));
    OK(MPI_Send(out[1], 1, MPI_BYTE, next_rank(1), TAG + 1, MPI_COMM_WORLD));
    OK(MPI_Probe(next_rank(-1), TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_T_pvar_read(session, bytes, &count));
    CHECK(count >= bytes_sent, "%llu bytes wait", count);
    receive(0, 0);
    OK(MPI_T_pvar_read(session, bytes, &count));
    CHECK(count < bytes_sent, "%llu bytes wait after their receive", count);
    OK(MPI_Recv(in, 1, MPI_BYTE, next_rank(-1), TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD)); /* nobody sends the next ones before */
}

static void count(void)
{
    MPI_T_pvar_session session;
    MPI_T_pvar_handle bytes;
    int provided, index, elements;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_pvar_get_index("unexpected_queue_bytes", MPI_T_PVAR_CLASS_LEVEL, &index));
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, &bytes, &elements));
    for (int i = 0; i < 20; i++)
        counted(session, bytes);
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_finalize());
}

/* From now on process_vm_readv and process_vm_writev fail in this process, as in a container that
 * forbids them. */
static void refuse_reading(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
              !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program),
          "no filter for system calls");
}

/* Rank 1 has found out, by a large message, that it cannot read rank 0's memory. Rank 0 does not
 * know that, and announces its messages. */
static void one_way(void)
{
    enum { LARGE = 1 << 20, MESSAGES = 300 };
    unsigned char *large = malloc(LARGE);
    if (world_rank == 0) {
        fill(large, LARGE, 1);
        OK(MPI_Send(large, LARGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
    } else if (world_rank == 1) {
        OK(MPI_Recv(large, LARGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        FILLED(large, LARGE, 1);
    }
    for (int i = 0; i < MESSAGES; i++)
        if (world_rank == 0) {
            fill(out[0], 64 << 10, (uint64_t)i);
            OK(MPI_Send(out[0], 64 << 10, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
        } else if (world_rank == 1) {
            compute(i % 40 * 1e-6);
            OK(MPI_Recv(in, 64 << 10, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            FILLED(in, 64 << 10, (uint64_t)i);
        }
    free(large);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "unreadable") == 0)
        refuse_reading();
    check_begin(&argc, &argv);
    in = malloc(64 << 10);
    for (int i = 0; i < MANY; i++)
        out[i] = malloc(64 << 10);
    one_way();
    count();
    for (int round = 0; round < 40; round++) {
        for (int how = 0; how < 3; how++)
            all_send_first(how, round);
        many(0, round);
        if (round % 8 == 0)
            many(1e-4, round);
        if (world_rank == 0)
            compute(1e-4);
        probed_and_freed(round);
        truncated(round);
    }
    for (int i = 0; i < MANY; i++)
        free(out[i]);
    free(in);
    return check_end();
}

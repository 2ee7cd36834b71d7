// ranks: 2 3 4
// machines: no
/* Zero copy: large messages whose bytes a transport may take from the user's buffer. As soon as a
 * send is complete, its buffer is overwritten or freed. The receiver must get the earlier bytes.
 * Some receives are late, some are too short, some sends block. */
#include "check.h"

#include <sys/mman.h>

enum { ROUNDS = 12, EACH = 3, MOST = 3 << 20 };

static size_t size_of(Random *r)
{
    static const size_t around[] = {200000, 262144, 262145, 1 << 20, (1 << 20) + 1, 2500000};
    return around[random_below(r, 6)] + (size_t)random_below(r, 5000);
}

static unsigned char *map(void)
{
    unsigned char *at =
        mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return at;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    unsigned char *ins[EACH], *outs[EACH];
    for (int k = 0; k < EACH; k++)
        ins[k] = malloc(MOST);
    for (int round = 0; round < ROUNDS; round++) {
        /* All ranks draw alike, so each knows what comes to it. */
        Random shared = random_from((uint64_t)(4000 + round));
        int hop = random_below(&shared, world_size), late = random_below(&shared, 2),
            cut = random_below(&shared, 3) == 0;
        int to = (world_rank + hop) % world_size,
            from = (world_rank + world_size - hop) % world_size;
        size_t bytes[EACH], skip[EACH];
        MPI_Request sends[EACH], receives[EACH];
        for (int k = 0; k < EACH; k++)
            bytes[k] = size_of(&shared), skip[k] = (size_t)random_below(&shared, 4096);
        for (int k = 0; k < EACH; k++) {
            int room = (int)bytes[k] - (cut && k == 1 ? 1000 : 0);
            memset(ins[k], 0, MOST);
            if (!late)
                OK(MPI_Irecv(ins[k], room, MPI_BYTE, from, k, MPI_COMM_WORLD, &receives[k]));
        }
        for (int k = 0; k < EACH; k++) {
            outs[k] = map();
            fill(outs[k] + skip[k], bytes[k], (uint64_t)(round * 100 + world_rank * 10 + k));
            OK(MPI_Isend(outs[k] + skip[k], (int)bytes[k], MPI_BYTE, to, k, MPI_COMM_WORLD,
                         &sends[k]));
        }
        for (int k = 0; k < EACH && late; k++) {
            int room = (int)bytes[k] - (cut && k == 1 ? 1000 : 0);
            OK(MPI_Irecv(ins[k], room, MPI_BYTE, from, k, MPI_COMM_WORLD, &receives[k]));
        }
        int sent = 0, came = 0;
        while (sent < EACH || came < EACH) {
            int index, flag;
            OK(MPI_Testany(EACH, sends, &index, &flag, MPI_STATUS_IGNORE));
            if (flag && index != MPI_UNDEFINED) {
                sent++;
                memset(outs[index], 0xee, MOST);
                if (index != 1)
                    munmap(outs[index], MOST);
            }
            MPI_Status status;
            int code = MPI_Testany(EACH, receives, &index, &flag, &status);
            if (code != MPI_SUCCESS) {
                CLASS(code, MPI_ERR_TRUNCATE);
                CHECK(cut, "a message was cut that has room");
            }
            if (flag && index != MPI_UNDEFINED) {
                came++;
                size_t room = bytes[index] - (cut && index == 1 ? 1000 : 0);
                CHECK(code != MPI_SUCCESS || room == bytes[index], "message %d should be cut",
                      index);
                unsigned char *want = malloc(bytes[index]);
                fill(want, bytes[index], (uint64_t)(round * 100 + from * 10 + index));
                CHECK(memcmp(ins[index], want, room) == 0,
                      "round %d: message %d from %d is not what was sent", round, index, from);
                free(want);
            }
        }
        munmap(outs[1], MOST);
    }
    /* Blocking ones in a ring, the buffer used again at once. */
    if (world_size > 1) {
        int next = (world_rank + 1) % world_size,
            before = (world_rank + world_size - 1) % world_size;
        unsigned char *out = map(), *want = malloc(MOST);
        for (int i = 0; i < 20; i++) {
            size_t n = (size_t)300000 + (size_t)i * 77777;
            fill(want, n, (uint64_t)(i * 100 + before));
            fill(out, n, (uint64_t)(i * 100 + world_rank));
            MPI_Request receive;
            OK(MPI_Irecv(ins[0], MOST, MPI_BYTE, before, 9, MPI_COMM_WORLD, &receive));
            OK(MPI_Send(out, (int)n, MPI_BYTE, next, 9, MPI_COMM_WORLD));
            memset(out, 0xdd, n);
            OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
            CHECK(memcmp(ins[0], want, n) == 0, "message %d of the ring is not what was sent", i);
        }
        free(want);
        munmap(out, MOST);
    }
    for (int k = 0; k < EACH; k++)
        free(ins[k]);
    return check_end();
}

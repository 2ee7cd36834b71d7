/* Send slots: several pairs send large messages at once, with more ranks than cores. First all
 * pairs send, and the messages must arrive whole. Then the first pair's receiver starts its
 * receives and stays away from MPI until all other pairs have finished. Its sender cannot continue,
 * and must not keep the others from sending. */
// ranks: 4 8
// machines: no
#include "check.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BYTES = 3 << 20, MESSAGES = 4, ROUNDS = 2 };

static unsigned char *memory;
static MPI_Request requests[MESSAGES];
static int partner, sends;

/* What a byte of a message is. */
static unsigned char value(int from, int message, int round, size_t at)
{
    return (unsigned char)(at * 31 + (at >> 12) + (size_t)(from * 7 + message * 3 + round));
}

static void start(int round)
{
    for (int m = 0; m < MESSAGES; m++) {
        unsigned char *place = memory + (size_t)m * BYTES;
        if (sends) {
            for (size_t at = 0; at < BYTES; at++)
                place[at] = value(world_rank, m, round, at);
            OK(MPI_Isend(place, BYTES, MPI_BYTE, partner, m, MPI_COMM_WORLD, &requests[m]));
        } else {
            memset(place, 0, BYTES);
            OK(MPI_Irecv(place, BYTES, MPI_BYTE, partner, m, MPI_COMM_WORLD, &requests[m]));
        }
    }
}

static void end(int round)
{
    OK(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
    for (int m = 0; m < MESSAGES && !sends; m++)
        for (size_t at = 0; at < BYTES; at++)
            if (memory[(size_t)m * BYTES + at] != value(partner, m, round, at)) {
                FAIL("round %d, message %d: byte %zu is wrong", round, m, at);
                break;
            }
}

/* A socket without a name in any file system at which bytes can be waited for outside of MPI;
 * `name` is where it is. */
static int listen_beside(struct sockaddr_un *name, socklen_t *len)
{
    int at = socket(AF_UNIX, SOCK_DGRAM, 0);
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    *len = sizeof *name;
    CHECK(at >= 0 && bind(at, (struct sockaddr *)name, sizeof(sa_family_t)) == 0, "no socket");
    CHECK(getsockname(at, (struct sockaddr *)name, len) == 0, "no name");
    return at;
}

static void one_stays_away(void)
{
    struct sockaddr_un name;
    socklen_t len = 0;
    int away = world_size / 2, at = -1, flag;
    char byte = 0;
    if (world_rank == away)
        at = listen_beside(&name, &len);
    OK(MPI_Bcast(&len, sizeof len, MPI_BYTE, away, MPI_COMM_WORLD));
    OK(MPI_Bcast(&name, sizeof name, MPI_BYTE, away, MPI_COMM_WORLD));
    start(ROUNDS);
    if (world_rank == away) {
        OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, MESSAGES, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Testall(MESSAGES, requests, &flag, MPI_STATUSES_IGNORE));
        for (int left = world_size / 2 - 1; left > 0; left--)
            CHECK(recv(at, &byte, 1, 0) == 1, "nothing comes");
        close(at);
    } else if (world_rank == 0)
        OK(MPI_Send(NULL, 0, MPI_BYTE, away, MESSAGES, MPI_COMM_WORLD));
    end(ROUNDS);
    if (world_rank > away) {
        at = socket(AF_UNIX, SOCK_DGRAM, 0);
        CHECK(sendto(at, &byte, 1, 0, (struct sockaddr *)&name, len) == 1, "nobody is told");
        close(at);
    }
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    partner = (world_rank + world_size / 2) % world_size;
    sends = world_rank < world_size / 2;
    memory = malloc((size_t)MESSAGES * BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        start(round);
        end(round);
    }
    MPI_Comm here;
    int together;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here));
    OK(MPI_Comm_size(here, &together));
    OK(MPI_Comm_free(&here));
    if (together == world_size)
        one_stays_away();
    free(memory);
    return check_end();
}

/* Messages between random pairs, of random sizes, tags and modes, on two communicators. They are
 * received in ways chosen at random. Every rank computes the same plan, so each rank knows what it
 * must get. The contents are checked. */
#include "check.h"

enum { TAGS = 5, MOST = 60000 };

typedef struct {
    int from, to, tag, comm, bytes, mode;
} Message;

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm comms[2] = {MPI_COMM_WORLD, MPI_COMM_NULL};
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]));
    int messages = 150 + 60 * world_size, storms = world_size > 8 ? 2 : 4;
    Message *plan = malloc((size_t)messages * sizeof *plan);
    MPI_Request *sends = malloc((size_t)messages * sizeof *sends);
    MPI_Request *receives = malloc((size_t)messages * sizeof *receives);
    unsigned char **outs = calloc((size_t)messages, sizeof *outs),
                  **ins = calloc((size_t)messages, sizeof *ins);
    int *which = malloc((size_t)messages * sizeof *which);
    for (int storm = 0; storm < storms; storm++) {
        Random shared = random_from((uint64_t)(1000 + storm)),
               own = random_from((uint64_t)(storm * 512 + world_rank));
        for (int i = 0; i < messages; i++) {
            Message *m = &plan[i];
            *m = (Message){random_below(&shared, world_size), random_below(&shared, world_size),
                           random_below(&shared, TAGS),       random_below(&shared, 2),
                           random_size(&shared, MOST),        random_below(&shared, 2)};
        }
        int sent = 0, received = 0, waiting = 0;
        /* Sends start at random moments among the receives, so that some are expected and some are
         * not. */
        int next_send = 0, next_receive = 0;
        while (next_send < messages || next_receive < messages) {
            int do_send =
                next_receive >= messages || (next_send < messages && random_below(&own, 2));
            if (do_send) {
                const Message *m = &plan[next_send];
                if (m->from == world_rank) {
                    outs[sent] = malloc((size_t)m->bytes + 1);
                    fill(outs[sent], (size_t)m->bytes, (uint64_t)(storm * 100000 + next_send));
                    OK((m->mode ? MPI_Issend : MPI_Isend)(outs[sent], m->bytes, MPI_BYTE, m->to,
                                                          m->tag, comms[m->comm], &sends[sent]));
                    sent++;
                }
                next_send++;
            } else {
                const Message *m = &plan[next_receive];
                if (m->to == world_rank) {
                    ins[received] = malloc(MOST + 1);
                    which[received] = next_receive;
                    OK(MPI_Irecv(ins[received], MOST, MPI_BYTE, m->from, m->tag, comms[m->comm],
                                 &receives[received]));
                    received++;
                    waiting++;
                }
                next_receive++;
            }
            if (waiting && random_below(&own, 8) == 0) {
                int flag, index;
                OK(MPI_Testany(received, receives, &index, &flag, MPI_STATUS_IGNORE));
                waiting -= flag && index != MPI_UNDEFINED;
            }
        }
        OK(MPI_Waitall(received, receives, MPI_STATUSES_IGNORE));
        OK(MPI_Waitall(sent, sends, MPI_STATUSES_IGNORE));
        for (int i = 0; i < received; i++) {
            const Message *m = &plan[which[i]];
            size_t at = differs(ins[i], (size_t)m->bytes, (uint64_t)(storm * 100000 + which[i]));
            CHECK(at == (size_t)m->bytes,
                  "storm %d, message %d (%d -> %d, tag %d, %d bytes): byte %zu is wrong", storm,
                  which[i], m->from, m->to, m->tag, m->bytes, at);
            free(ins[i]);
            ins[i] = NULL;
        }
        for (int i = 0; i < sent; i++)
            free(outs[i]);

        /* The same traffic, taken by wildcard probes: what comes is counted by a checksum of its
         * envelope. */
        OK(MPI_Barrier(MPI_COMM_WORLD));
        sent = 0;
        uint64_t wanted = 0, got = 0;
        int expected = 0;
        for (int i = 0; i < messages; i++) {
            const Message *m = &plan[i];
            if (m->comm != 0)
                continue;
            if (m->to == world_rank) {
                expected++;
                wanted += (uint64_t)(m->from + 1) * 1000003 + (uint64_t)m->tag * 7919 +
                          (uint64_t)m->bytes;
            }
            if (m->from == world_rank) {
                outs[sent] = malloc((size_t)m->bytes + 1);
                fill(outs[sent], (size_t)m->bytes, (uint64_t)(m->from * 31 + m->tag));
                OK(MPI_Isend(outs[sent], m->bytes, MPI_BYTE, m->to, m->tag, MPI_COMM_WORLD,
                             &sends[sent]));
                sent++;
            }
        }
        unsigned char *buffer = malloc(MOST);
        for (int i = 0; i < expected; i++) {
            MPI_Status status;
            MPI_Message message;
            int bytes = -1;
            OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
            OK(MPI_Get_count(&status, MPI_BYTE, &bytes));
            OK(MPI_Mrecv(buffer, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE));
            FILLED(buffer, (size_t)bytes, (uint64_t)(status.MPI_SOURCE * 31 + status.MPI_TAG));
            got += (uint64_t)(status.MPI_SOURCE + 1) * 1000003 + (uint64_t)status.MPI_TAG * 7919 +
                   (uint64_t)bytes;
        }
        CHECK(wanted == got, "storm %d: the wildcard receives got other messages than were sent",
              storm);
        free(buffer);
        OK(MPI_Waitall(sent, sends, MPI_STATUSES_IGNORE));
        for (int i = 0; i < sent; i++)
            free(outs[i]);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Comm_free(&comms[1]));
    free(plan);
    free(sends);
    free(receives);
    free(outs);
    free(ins);
    free(which);
    return check_end();
}

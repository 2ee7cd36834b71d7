/* Messages of all sizes from and to buffers that begin and end anywhere, posted before and after
 * they come, many at once; nothing is written beside them. */
#include "check.h"

#define LONGEST (1 << 20)
#define EDGE 512
#define AT_ONCE 12

static unsigned char *room(void)
{
    unsigned char *memory = malloc(LONGEST + 4096 + 2 * EDGE);
    CHECK(memory != NULL);
    memset(memory, 0xee, LONGEST + 4096 + 2 * EDGE);
    return memory;
}

static void is_clean(const unsigned char *from, const unsigned char *to)
{
    for (; from < to; from++)
        CHECK(*from == 0xee);
}

static void one(uint32_t other, uint32_t length, uint32_t offset, int unexpected)
{
    unsigned char *out = room(), *in = room();
    unsigned char *at = in + EDGE + offset;
    mx_request_t sent, received = NULL;
    fill(out + offset, length, me + length);
    if (!unexpected)
        received = receives(at, length, 1000, MX_MATCH_MASK_NONE);
    barrier();
    sent = sends(other, out + offset, length, 1000);
    if (unexpected) {
        mx_status_t status;
        uint32_t found;
        OK(mx_probe(mine, MX_INFINITE, 1000, MX_MATCH_MASK_NONE, &status, &found));
        CHECK(found && status.msg_length == length && source(status) == other);
        received = receives(at, length, 1000, MX_MATCH_MASK_NONE);
    }
    mx_status_t status = waits(received);
    CHECK(status.xfer_length == length && status.code == MX_STATUS_SUCCESS);
    CHECK(is_filled(at, length, other + length));
    is_clean(in, at);
    is_clean(at + length, in + LONGEST + 4096 + 2 * EDGE);
    waits(sent);
    free(out);
    free(in);
}

static void many(uint32_t other)
{
    static unsigned char out[AT_ONCE][40001], in[AT_ONCE][40001];
    mx_request_t sent[AT_ONCE], received[AT_ONCE];
    for (uint32_t n = 0; n < AT_ONCE; n++) {
        fill(out[n], sizeof out[n], me * 100 + n);
        received[n] = receives(in[n], 40001, 2000 + n, MX_MATCH_MASK_NONE);
        sent[n] = sends(other, out[n], 40001 - n, 2000 + n);
    }
    for (uint32_t n = AT_ONCE; n-- > 0;) {
        CHECK(waits(received[n]).xfer_length == 40001 - n);
        CHECK(is_filled(in[n], 40001 - n, other * 100 + n));
        waits(sent[n]);
    }
}

int main(void)
{
    start();
    uint32_t other = (me ^ 1) < size ? me ^ 1 : me;
    const uint32_t lengths[] = {0, 1, 255, 256, 257, 4079, 4080, 4081, 4096, 5000, 65537};
    const uint32_t offsets[] = {0, 1, 8, 4095};
    for (unsigned l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (unsigned o = 0; o < sizeof offsets / sizeof *offsets; o++)
            one(other, lengths[l], offsets[o], (l + o) % 2);
    one(other, LONGEST, 0, 0);
    one(other, LONGEST - 3, 13, 1);
    many(other);
    end();
    return 0;
}

/* Matching: by key and mask, wildcards, in any order, expected and unexpected; what a status says;
 * lists of segments; mx_wait_any and mx_test_any. */
#include "check.h"

#define MESSAGES 40

/* The lower half of the bits is the message, the upper half the sender. */
static uint64_t bits(uint32_t from, uint32_t number)
{
    return (uint64_t)from << 32 | number;
}

static void in_reverse_order(uint32_t other)
{
    unsigned char out[MESSAGES][100], in[MESSAGES][100];
    mx_request_t sent[MESSAGES];
    for (uint32_t n = 0; n < MESSAGES; n++) {
        fill(out[n], sizeof out[n], me * 1000 + n);
        sent[n] = sends(other, out[n], n, bits(me, n));
    }
    /* The barrier's messages come after them, so all are unexpected. */
    barrier();
    for (uint32_t n = MESSAGES; n-- > 0;) {
        mx_status_t status = waits(receives(in[n], 100, bits(other, n), MX_MATCH_MASK_NONE));
        CHECK(status.code == MX_STATUS_SUCCESS && status.msg_length == n);
        CHECK(status.xfer_length == n && status.match_info == bits(other, n));
        CHECK(status.context == in[n] && source(status) == other);
        CHECK(is_filled(in[n], n, other * 1000 + n));
    }
    for (uint32_t n = 0; n < MESSAGES; n++)
        CHECK(waits(sent[n]).context == out[n]);
}

static void with_wildcards(uint32_t other)
{
    unsigned char in[3], out[3] = {10, 11, 12};
    const uint64_t upper = UINT64_C(0xffffffff) << 32;
    /* Any message of the other; any sender with number 7; this one. */
    mx_request_t any_number = receives(&in[0], 1, bits(other, 0), upper);
    mx_request_t any_sender = receives(&in[1], 1, 7, KIND_MASK | 0xffffffff);
    barrier();
    waits(sends(other, &out[0], 1, bits(me, 7)));
    waits(sends(other, &out[1], 1, bits(me, 7)));
    mx_status_t first = waits(any_number), second = waits(any_sender);
    /* Receives match in the order of their posting, messages in that of their sending. */
    CHECK(in[0] == 10 && in[1] == 11);
    CHECK(first.match_info == bits(other, 7) && second.match_info == bits(other, 7));
    waits(sends(other, &out[2], 1, bits(me, 9)));
    CHECK(waits(receives(&in[2], 1, 0, KIND_MASK)).match_info == bits(other, 9));
    CHECK(in[2] == 12);
    barrier();
}

static void in_segments(uint32_t other)
{
    unsigned char out[20000], in[20000];
    fill(out, sizeof out, me);
    memset(in, 0, sizeof in);
    for (uint32_t length = 300; length <= 20000; length += 19700) {
        mx_segment_t from[3] = {{out, 1}, {out + 1, 99}, {out + 100, length - 100}};
        mx_segment_t to[4] = {{in, length / 2}, {NULL, 0}, {in + length / 2, 7},
                              {in + length / 2 + 7, length - length / 2 - 7}};
        mx_request_t sent, received;
        OK(mx_irecv(mine, to, 4, bits(other, length), MX_MATCH_MASK_NONE, NULL, &received));
        OK(mx_isend(mine, from, 3, peer[other], bits(me, length), NULL, &sent));
        CHECK(waits(received).xfer_length == length);
        waits(sent);
        CHECK(is_filled(in, length, other));
    }
}

static void whichever_comes_first(uint32_t other)
{
    unsigned char in[8], out[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int seen[8] = {0};
    mx_status_t status;
    uint32_t done;
    const uint64_t ours = UINT64_C(0x77) << 56;
    for (uint32_t n = 0; n < 8; n++)
        receives(&in[n], 1, ours | n, MX_MATCH_MASK_NONE);
    OK(mx_test_any(mine, ours, KIND_MASK, &status, &done));
    CHECK(done == 0);
    barrier();
    for (uint32_t n = 0; n < 8; n++) {
        mx_request_t sent = sends(other, &out[7 - n], 1, ours | (7 - n));
        waits(sent);
    }
    for (uint32_t n = 0; n < 8; n++) {
        OK(mx_wait_any(mine, MX_INFINITE, ours, KIND_MASK, &status, &done));
        CHECK(done == 1);
        uint32_t which = (uint32_t)(status.match_info & 0xff);
        CHECK(which < 8 && !seen[which]++);
        CHECK(in[which] == which && status.context == &in[which]);
    }
    /* None is left: the time passes. */
    double before = ferry_mx_wtime();
    OK(mx_wait_any(mine, 3, ours, KIND_MASK, &status, &done));
    CHECK(done == 0 && ferry_mx_wtime() - before >= 0.003);
}

int main(void)
{
    start();
    CHECK(size >= 2);
    /* Nodes in pairs; one that is left over is its own. */
    uint32_t other = (me ^ 1) < size ? me ^ 1 : me;
    in_reverse_order(other);
    with_wildcards(other);
    in_segments(other);
    whichever_comes_first(other);
    end();
    return 0;
}

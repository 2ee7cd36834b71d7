/* How requests end: issend at its match, test before and after, cancel, iprobe, truncation,
 * contexts, mx_forget; endpoints that open late, and filters. */
#include "check.h"

static void synchronous(uint32_t length)
{
    unsigned char *bytes = calloc(1, length);
    mx_segment_t segment = {bytes, length};
    mx_request_t request;
    mx_status_t status;
    uint32_t done;
    CHECK(bytes != NULL);
    if (me == 0) {
        OK(mx_issend(mine, &segment, 1, peer[1], 1, NULL, &request));
        /* The message has come (the barrier's come after it), and nothing has matched it. */
        barrier();
        OK(mx_test(mine, &request, &status, &done));
        CHECK(done == 0);
        waits(sends(1, bytes, 0, 2));
        status = waits(request);
        CHECK(status.xfer_length == length && source(status) == 1);
    } else if (me == 1) {
        barrier();
        waits(receives(bytes, 0, 2, MX_MATCH_MASK_NONE));
        waits(receives(bytes, length, 1, MX_MATCH_MASK_NONE));
    } else {
        barrier();
    }
    barrier();
    free(bytes);
}

static void cancelled(void)
{
    unsigned char byte = 0;
    uint32_t result;
    mx_status_t status;
    mx_request_t never = receives(&byte, 1, 10, MX_MATCH_MASK_NONE);
    OK(mx_test(mine, &never, &status, &result));
    CHECK(result == 0);
    OK(mx_cancel(mine, &never, &result));
    CHECK(result == 1);
    CHECK(mx_test(mine, &never, &status, &result) == MX_BAD_REQUEST);
    /* One that has been matched is not cancelled. */
    mx_request_t own = receives(&byte, 1, 11, MX_MATCH_MASK_NONE);
    mx_request_t sent = sends(me, &byte, 1, 11);
    OK(mx_cancel(mine, &own, &result));
    CHECK(result == 0);
    waits(own);
    waits(sent);
}

static void probed(void)
{
    unsigned char bytes[300] = {0};
    mx_status_t status;
    uint32_t found;
    OK(mx_iprobe(mine, 20, MX_MATCH_MASK_NONE, &status, &found));
    CHECK(found == 0);
    mx_request_t sent = sends(me, bytes, 300, 20);
    OK(mx_iprobe(mine, 0, KIND_MASK, &status, &found));
    CHECK(found == 1 && status.msg_length == 300 && status.match_info == 20);
    CHECK(source(status) == me);
    OK(mx_iprobe(mine, 21, MX_MATCH_MASK_NONE, &status, &found));
    CHECK(found == 0);
    /* It is still there. */
    CHECK(waits(receives(bytes, 300, 20, MX_MATCH_MASK_NONE)).xfer_length == 300);
    OK(mx_iprobe(mine, 20, MX_MATCH_MASK_NONE, &status, &found));
    CHECK(found == 0);
    waits(sent);
}

static void truncated(uint32_t other, uint32_t length)
{
    unsigned char *out = malloc(length), in[200];
    CHECK(out != NULL);
    fill(out, length, me + 5);
    memset(in, 0xee, sizeof in);
    mx_request_t received = receives(in, 100, 30, MX_MATCH_MASK_NONE);
    barrier();
    mx_request_t sent = sends(other, out, length, 30);
    mx_status_t status = waits(received);
    CHECK(status.code == MX_STATUS_TRUNCATED);
    CHECK(status.msg_length == length && status.xfer_length == 100);
    CHECK(is_filled(in, 100, other + 5));
    for (int at = 100; at < 200; at++)
        CHECK(in[at] == 0xee);
    waits(sent);
    free(out);
    barrier();
}

static void forgotten(uint32_t other)
{
    unsigned char out = 3, in = 0;
    mx_request_t sent = sends(other, &out, 1, 40);
    OK(mx_forget(mine, &sent));
    void *context;
    mx_request_t received = receives(&in, 1, 40, MX_MATCH_MASK_NONE);
    OK(mx_context(&received, &context));
    CHECK(context == &in);
    waits(received);
    CHECK(in == 3);
}

static void connected(uint32_t other)
{
    uint64_t nic;
    char name[MX_MAX_HOSTNAME_LEN];
    mx_endpoint_t second;
    mx_endpoint_addr_t address;
    snprintf(name, sizeof name, "node%u", other);
    OK(mx_hostname_to_nic_id(name, &nic));
    CHECK(mx_connect(mine, nic, 1, FILTER + 1, MX_INFINITE, &address) == MX_BAD_CONNECTION_KEY);
    if (me == 0) {
        /* Nobody has opened it. */
        CHECK(mx_connect(mine, nic, 77, FILTER, 2, &address) == MX_TIMEOUT);
        CHECK(strstr(ferry_mx_last_error(), "endpoint 77") != NULL);
    }
    barrier();
    /* The others wait until it opens. */
    if (me == 0)
        waits(sends(other, name, 0, 50));
    if (me == 1) {
        waits(receives(name, 0, 50, MX_MATCH_MASK_NONE));
        OK(mx_open_endpoint(0, 5, FILTER, NULL, 0, &second));
    }
    if (me == 0) {
        OK(mx_connect(mine, nic, 5, FILTER, MX_INFINITE, &address));
        mx_request_t sent;
        OK(mx_isend(mine, NULL, 0, address, 60, NULL, &sent));
        waits(sent);
    }
    if (me == 1) {
        mx_status_t status;
        uint32_t done;
        mx_request_t received;
        OK(mx_irecv(second, NULL, 0, 60, MX_MATCH_MASK_NONE, NULL, &received));
        OK(mx_wait(second, &received, MX_INFINITE, &status, &done));
        CHECK(done && source(status) == 0);
        OK(mx_close_endpoint(second));
    }
    barrier();
}

int main(void)
{
    start();
    OK(mx_set_error_handler(MX_ERRORS_RETURN));
    uint32_t other = (me ^ 1) < size ? me ^ 1 : me;
    synchronous(100);
    synchronous(100000);
    cancelled();
    probed();
    truncated(other, 101);
    truncated(other, 70000);
    forgotten(other);
    if (size == 2)
        connected(other);
    end();
    return 0;
}

/* Mistakes: each call says which, and the node goes on. */
#include "check.h"

static mx_return_t told;
static char text[400];

static mx_return_t tell(char *description, mx_return_t code)
{
    told = code;
    snprintf(text, sizeof text, "%s", description);
    return code;
}

#define FAILS(call, code, words)                                                                   \
    do {                                                                                           \
        told = MX_SUCCESS;                                                                         \
        CHECK((call) == code);                                                                     \
        CHECK(told == code);                                                                       \
        CHECK(strstr(text, words) != NULL);                                                        \
        CHECK(strcmp(text, ferry_mx_last_error()) == 0);                                           \
    } while (0)

int main(void)
{
    mx_endpoint_t endpoint = NULL, closed;
    mx_endpoint_addr_t nowhere = {{1, 2}};
    mx_segment_t segment = {text, 1}, bad = {NULL, 1};
    mx_request_t request = NULL;
    mx_status_t status;
    uint32_t result, board;
    uint64_t nic;
    OK(mx_set_error_handler(tell));
    FAILS(mx_finalize(), MX_NOT_INITIALIZED, "mx_init was not called");
    start();
    FAILS(mx_init(), MX_ALREADY_INITIALIZED, "mx_init: ");
    FAILS(mx_open_endpoint(1, 2, 0, NULL, 0, &endpoint), MX_BOARD_UNKNOWN, "board 1");
    FAILS(mx_open_endpoint(0, 1, 0, NULL, 0, &endpoint), MX_BUSY, "endpoint 1");
    FAILS(mx_open_endpoint(0, 255, 0, NULL, 0, &endpoint), MX_BAD_ARGUMENT, "0 to 254");
    FAILS(mx_open_endpoint(0, 2, 0, NULL, 0, NULL), MX_BAD_ARGUMENT, "endpoint is NULL");
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, 0, NULL, 0, &endpoint));
    OK(mx_close_endpoint(endpoint));
    closed = endpoint;
    FAILS(mx_close_endpoint(closed), MX_BAD_ENDPOINT, "not open");
    FAILS(mx_close_endpoint(NULL), MX_BAD_ENDPOINT, "not open");
    FAILS(mx_irecv(closed, &segment, 1, 0, 0, NULL, &request), MX_BAD_ENDPOINT, "mx_irecv: ");
    FAILS(mx_irecv(mine, &bad, 1, 0, 0, NULL, &request), MX_BAD_SEGMENT_LIST, "NULL");
    FAILS(mx_irecv(mine, NULL, 1, 0, 0, NULL, &request), MX_BAD_SEGMENT_LIST, "NULL");
    FAILS(mx_irecv(mine, &segment, 1, 3, 1, NULL, &request), MX_BAD_MATCH_MASK, "match_mask");
    FAILS(mx_irecv(mine, &segment, 1, 0, 0, NULL, NULL), MX_BAD_ARGUMENT, "request is NULL");
    FAILS(mx_isend(mine, &segment, 1, nowhere, 0, NULL, &request), MX_BAD_ADDR, "address");
    FAILS(mx_test(mine, &request, &status, &result), MX_BAD_REQUEST, "request");
    FAILS(mx_wait(mine, NULL, 0, &status, &result), MX_BAD_ARGUMENT, "request is NULL");
    FAILS(mx_connect(mine, 99, 1, FILTER, 0, &nowhere), MX_NIC_NOT_FOUND, "node0");
    FAILS(mx_hostname_to_nic_id((char *)"elsewhere", &nic), MX_NIC_NOT_FOUND, "elsewhere");
    FAILS(mx_get_info(NULL, (mx_get_info_key_t)99, NULL, 0, &board, 4), MX_BAD_INFO_KEY, "99");
    FAILS(mx_get_info(NULL, MX_NIC_IDS, NULL, 0, &board, 4), MX_BAD_INFO_VAL, "16 bytes");
    OK(mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &board, 4));
    CHECK(board == 1);
    OK(mx_board_number_to_nic_id(0, &nic));
    OK(mx_nic_id_to_board_number(nic, &board));
    CHECK(board == 0);
    CHECK(strcmp(mx_strerror(MX_BAD_REQUEST), "the request is none, or is over already") == 0);
    CHECK(strcmp(mx_strerror((mx_return_t)77), "no code of MX") == 0);
    CHECK(strstr(mx_strstatus(MX_STATUS_TRUNCATED), "longer") != NULL);
    /* A request is over once. */
    mx_request_t sent = sends(me, text, 1, 5);
    mx_request_t received = receives(text, 1, 5, MX_MATCH_MASK_NONE);
    waits(received);
    waits(sent);
    FAILS(mx_test(mine, &received, &status, &result), MX_BAD_REQUEST, "over already");
    /* Once more from the beginning. */
    end();
    FAILS(mx_close_endpoint(mine), MX_NOT_INITIALIZED, "mx_init was not called");
    start();
    end();
    return 0;
}

/* What the programs share: the endpoint and its peers, and checks that end the job. */
#ifndef CHECK_H
#define CHECK_H

#include <ferry_mx.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER 0x1890

static mx_endpoint_t mine;
static mx_endpoint_addr_t peer[64];
static uint32_t me, size;
/* Of the endpoint: another one at each start, since peers may still have the last one open. */
static uint32_t number;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %u: %s\n", __FILE__, __LINE__, me, #condition);           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK((call) == MX_SUCCESS)

/* Opens an endpoint and connects it with those of all nodes. */
static void start(void)
{
    OK(mx_init());
    me = ferry_mx_rank();
    size = ferry_mx_size();
    number++;
    OK(mx_open_endpoint(0, number, FILTER, NULL, 0, &mine));
    for (uint32_t rank = 0; rank < size; rank++) {
        char name[MX_MAX_HOSTNAME_LEN];
        uint64_t nic;
        snprintf(name, sizeof name, "node%u", rank);
        OK(mx_hostname_to_nic_id(name, &nic));
        OK(mx_connect(mine, nic, number, FILTER, MX_INFINITE, &peer[rank]));
    }
}

static mx_request_t sends(uint32_t to, void *bytes, uint32_t length, uint64_t bits)
{
    mx_segment_t segment = {bytes, length};
    mx_request_t request;
    OK(mx_isend(mine, &segment, 1, peer[to], bits, bytes, &request));
    return request;
}

static mx_request_t receives(void *bytes, uint32_t length, uint64_t bits, uint64_t mask)
{
    mx_segment_t segment = {bytes, length};
    mx_request_t request;
    OK(mx_irecv(mine, &segment, 1, bits, mask, bytes, &request));
    return request;
}

static mx_status_t waits(mx_request_t request)
{
    mx_status_t status;
    uint32_t done;
    memset(&status, 0xff, sizeof status);
    OK(mx_wait(mine, &request, MX_INFINITE, &status, &done));
    CHECK(done == 1);
    return status;
}

/* The rank of a status's source. */
static uint32_t source(mx_status_t status)
{
    uint64_t nic;
    uint32_t endpoint;
    OK(mx_decompose_endpoint_addr(status.source, &nic, &endpoint));
    CHECK(endpoint == number);
    char name[MX_MAX_HOSTNAME_LEN];
    OK(mx_nic_id_to_hostname(nic, name));
    return (uint32_t)atoi(name + 4);
}

/* Bytes that only this sender and this message have. */
static void fill(unsigned char *bytes, size_t length, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (size_t at = 0; at < length; at++) {
        state = state * 1664525u + 1013904223u;
        bytes[at] = (unsigned char)(state >> 24);
    }
}

static int is_filled(const unsigned char *bytes, size_t length, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (size_t at = 0; at < length; at++) {
        state = state * 1664525u + 1013904223u;
        if (bytes[at] != (unsigned char)(state >> 24))
            return 0;
    }
    return 1;
}

/* The top byte of match bits: messages of the barrier have one of their own. */
#define KIND_MASK (UINT64_C(0xff) << 56)

/* Returns when all nodes have called it. */
static void barrier(void)
{
    unsigned char byte = 0;
    const uint64_t bits = UINT64_C(0xba) << 56;
    if (me == 0) {
        for (uint32_t rank = 1; rank < size; rank++)
            waits(receives(&byte, 1, bits | rank, MX_MATCH_MASK_NONE));
        for (uint32_t rank = 1; rank < size; rank++)
            waits(sends(rank, &byte, 1, bits));
    } else {
        waits(sends(0, &byte, 1, bits | me));
        waits(receives(&byte, 1, bits, MX_MATCH_MASK_NONE));
    }
}

static void end(void)
{
    barrier();
    OK(mx_close_endpoint(mine));
    OK(mx_finalize());
}

#endif

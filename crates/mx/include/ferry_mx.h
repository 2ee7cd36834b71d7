/* Ferry's MX: message passing by match bits, with the calls of Myrinet Express.
 *
 * The program runs on a modelled machine whose card has an MX level:
 *
 *     cc program.c $(pkg-config --cflags --libs ferry_mx)
 *     mpiexec --machine rapidio-1890vm6 -n 2 ./a.out
 *
 * Each rank is a node with one board. Time is the machine's virtual time, and timeouts are in it.
 * Sources written for Myrinet Express compile. Compiled programs do not run: numbers and layouts
 * are Ferry's own. docs/machines/ferry-mx.md tells more.
 */
#ifndef FERRY_MX_H
#define FERRY_MX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MX_API 0x400

/* What a call returns. */
typedef enum mx_return {
    MX_SUCCESS = 0,
    MX_FAILURE = 1,
    MX_ALREADY_INITIALIZED = 2,
    MX_NOT_INITIALIZED = 3,
    MX_NO_DEV = 4,             /* the machine's card has no MX level */
    MX_NO_DRIVER = 5,          /* not started by mpiexec --machine */
    MX_BOARD_UNKNOWN = 6,
    MX_BAD_ENDPOINT = 7,
    MX_BAD_SEGMENT_LIST = 8,
    MX_BAD_REQUEST = 9,
    MX_BAD_MATCH_MASK = 10,
    MX_NO_RESOURCES = 11,
    MX_BUSY = 12,              /* the endpoint's number is in use */
    MX_BAD_INFO_KEY = 13,
    MX_BAD_INFO_VAL = 14,
    MX_NIC_NOT_FOUND = 15,
    MX_BAD_CONNECTION_KEY = 16,
    MX_TIMEOUT = 17,
    MX_BAD_ADDR = 18,
    MX_BAD_ARGUMENT = 19
} mx_return_t;

/* How a message went. */
typedef enum mx_status_code {
    MX_STATUS_SUCCESS = 0,
    MX_STATUS_PENDING = 1,
    MX_STATUS_TRUNCATED = 2,
    MX_STATUS_CANCELLED = 3
} mx_status_code_t;

typedef struct mx_endpoint *mx_endpoint_t;
typedef struct mx_request *mx_request_t;

typedef struct mx_endpoint_addr {
    uint64_t stuff[2];
} mx_endpoint_addr_t;

/* A run of the program's memory. */
typedef struct mx_segment {
    void *segment_ptr;
    uint32_t segment_length;
} mx_segment_t;

typedef struct mx_status {
    mx_status_code_t code;
    mx_endpoint_addr_t source; /* of a send: the receiver */
    uint64_t match_info;
    uint32_t msg_length;       /* bytes of the message */
    uint32_t xfer_length;      /* bytes that were transferred; of a probe 0 */
    void *context;             /* as given to the send or receive */
} mx_status_t;

typedef struct mx_param {
    uint32_t key;
    uint32_t value;
} mx_param_t;

#define MX_ANY_NIC 0xffffffffu
#define MX_ANY_ENDPOINT 0xffffffffu
#define MX_INFINITE 0xffffffffu /* timeouts are in milliseconds */
#define MX_MATCH_MASK_NONE UINT64_C(0xffffffffffffffff)
#define MX_MAX_HOSTNAME_LEN 80

/* Begins and ends. mx_finalize returns when all that was sent has been accepted. */
mx_return_t mx_init(void);
mx_return_t mx_finalize(void);

/* What is done with an error: by default the job ends with a message. The handler may return, and
 * the call that failed then returns what it does. */
typedef mx_return_t (*mx_error_handler_t)(char *description, mx_return_t code);
extern const mx_error_handler_t MX_ERRORS_ARE_FATAL;
extern const mx_error_handler_t MX_ERRORS_RETURN;
mx_return_t mx_set_error_handler(mx_error_handler_t handler);
const char *mx_strerror(mx_return_t code);
const char *mx_strstatus(mx_status_code_t code);

/* Endpoints. Only who has the same filter connects. */
mx_return_t mx_open_endpoint(uint32_t board_number, uint32_t endpoint_id, uint32_t filter,
                             mx_param_t *params, uint32_t params_count, mx_endpoint_t *endpoint);
mx_return_t mx_close_endpoint(mx_endpoint_t endpoint);
mx_return_t mx_get_endpoint_addr(mx_endpoint_t endpoint, mx_endpoint_addr_t *address);
mx_return_t mx_decompose_endpoint_addr(mx_endpoint_addr_t address, uint64_t *nic_id,
                                       uint32_t *endpoint_id);
/* Waits until the other node has opened the endpoint. */
mx_return_t mx_connect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id,
                       uint32_t filter, uint32_t timeout, mx_endpoint_addr_t *address);

/* Messages. A receive takes a message if match_info agrees with the message's where match_mask has
 * ones. Memory belongs to the call until its request is done. */
mx_return_t mx_isend(mx_endpoint_t endpoint, mx_segment_t *segments, uint32_t segments_count,
                     mx_endpoint_addr_t destination, uint64_t match_info, void *context,
                     mx_request_t *request);
/* Is done only when the receiver has matched the message. */
mx_return_t mx_issend(mx_endpoint_t endpoint, mx_segment_t *segments, uint32_t segments_count,
                      mx_endpoint_addr_t destination, uint64_t match_info, void *context,
                      mx_request_t *request);
mx_return_t mx_irecv(mx_endpoint_t endpoint, mx_segment_t *segments, uint32_t segments_count,
                     uint64_t match_info, uint64_t match_mask, void *context,
                     mx_request_t *request);
/* result: 1 if the receive will take nothing. Its request is over then. */
mx_return_t mx_cancel(mx_endpoint_t endpoint, mx_request_t *request, uint32_t *result);

/* The end of the request will not be told. Its memory still belongs to it until then. */
mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t *request);

/* result: 1 if the request is done. It is over then, and its status is filled. */
mx_return_t mx_test(mx_endpoint_t endpoint, mx_request_t *request, mx_status_t *status,
                    uint32_t *result);
mx_return_t mx_wait(mx_endpoint_t endpoint, mx_request_t *request, uint32_t timeout,
                    mx_status_t *status, uint32_t *result);
/* The first request that is done and whose message matches. */
mx_return_t mx_test_any(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask,
                        mx_status_t *status, uint32_t *result);
mx_return_t mx_wait_any(mx_endpoint_t endpoint, uint32_t timeout, uint64_t match_info,
                        uint64_t match_mask, mx_status_t *status, uint32_t *result);
/* The first message that matches and that no receive has taken. It stays. */
mx_return_t mx_iprobe(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask,
                      mx_status_t *status, uint32_t *result);
mx_return_t mx_probe(mx_endpoint_t endpoint, uint32_t timeout, uint64_t match_info,
                     uint64_t match_mask, mx_status_t *status, uint32_t *result);
/* What was given to the send or receive. */
mx_return_t mx_context(mx_request_t *request, void **context);

/* Nodes. Hosts are called node0, node1, ... by their ranks. */
mx_return_t mx_board_number_to_nic_id(uint32_t board_number, uint64_t *nic_id);
mx_return_t mx_nic_id_to_board_number(uint64_t nic_id, uint32_t *board_number);
mx_return_t mx_hostname_to_nic_id(char *hostname, uint64_t *nic_id);
mx_return_t mx_nic_id_to_hostname(uint64_t nic_id, char *hostname);

/* Figures. */
typedef enum mx_get_info_key {
    MX_NIC_COUNT = 1,           /* uint32_t: boards of this node */
    MX_NIC_IDS = 2,             /* uint64_t each, and a 0 at the end */
    MX_MAX_NATIVE_ENDPOINTS = 3 /* uint32_t */
} mx_get_info_key_t;
mx_return_t mx_get_info(mx_endpoint_t endpoint, mx_get_info_key_t key, void *in_value,
                        uint32_t in_length, void *out_value, uint32_t out_length);

/* Ferry's own. */
uint32_t ferry_mx_rank(void);         /* this node among those of the job */
uint32_t ferry_mx_size(void);         /* nodes of the job */
double ferry_mx_wtime(void);          /* seconds of virtual time */
const char *ferry_mx_last_error(void); /* what was wrong when this thread's last call failed */

#ifdef __cplusplus
}
#endif
#endif

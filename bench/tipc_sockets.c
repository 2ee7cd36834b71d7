/* Sockets alone, without MPI: what TIPC and TCP cost between two nodes.
 *
 *     tipc_sockets serve
 *         Answers at the TIPC names {18999, kind} and at TCP port 5141.
 *     tipc_sockets ask ADDRESS tipc|tcp NAMESPACE
 *         Measures. ADDRESS is the server's IPv4 address, NAMESPACE the file of its network
 *         namespace.
 *
 * Prints lines of `figure,socket,bytes,microseconds`:
 *   pingpong    Half of a round trip between two processes that sleep until a message comes.
 *   flood       One message of many that are sent one after the other.
 *   connection  A connection is built, carries one message each way, and is closed. This is the
 *               paper's T_build_and_teardown + k * L.
 *   path        A message from send() to the end of recv() where one process holds both ends. No
 *               process is woken, so this is the protocol's own cost. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tipc.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STREAM, SEQPACKET, TCP, KINDS, TYPE = 18999, PORT = 5141, MAX_BYTES = 65536 };
/* Round trips before `path` is timed. TCP's window has opened by then. */
enum { WARM_UP = 20 };
/* Longest message of `path`. One process holds both ends, so a message must fit into the socket's
 * first window, or send() blocks for ever. */
enum { PATH_MAX_BYTES = 16384 };
static const char *const names[KINDS] = {"tipc stream", "tipc seqpacket", "tcp"};
/* What a connection is for: `count` messages of `bytes` bytes. The server answers each of them, or
 * only the first and the last. */
typedef struct {
    uint32_t count, bytes, each;
} Request;
static unsigned char buffer[sizeof(Request) + MAX_BYTES];
static struct in_addr server;
/* Added to TYPE and PORT, so that a second listener is another address. */
static uint32_t offset;

static void check(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void turn_off_delay(int kind, int s)
{
    int one = 1, done = kind == TCP ? setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)
                                    : setsockopt(s, SOL_TIPC, TIPC_NODELAY, &one, sizeof one);
    check(done == 0 || kind == SEQPACKET, "no delay"); /* TIPC delays on streams only */
}

static int new_socket(int kind)
{
    int s = kind == TCP ? socket(AF_INET, SOCK_STREAM, 0)
                        : socket(AF_TIPC, kind == STREAM ? SOCK_STREAM : SOCK_SEQPACKET, 0);
    check(s >= 0, "socket");
    turn_off_delay(kind, s);
    return s;
}

static socklen_t address(int kind, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (kind == TCP) {
        *(struct sockaddr_in *)out =
            (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)(PORT + offset)),
                                 .sin_addr = server};
        return sizeof(struct sockaddr_in);
    }
    *(struct sockaddr_tipc *)out =
        (struct sockaddr_tipc){.family = AF_TIPC,
                               .addrtype = TIPC_SERVICE_ADDR,
                               .scope = TIPC_CLUSTER_SCOPE,
                               .addr.name.name = {TYPE + offset, (uint32_t)kind}};
    return sizeof(struct sockaddr_tipc);
}

static int send_all(int s, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(s, (const char *)from + done, bytes - done, MSG_NOSIGNAL);
        if (n <= 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

static int receive_all(int s, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = recv(s, (char *)to + done, bytes - done, 0);
        if (n <= 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

static int read_all(int pipe, int bytes)
{
    char byte;
    while (bytes > 0 && read(pipe, &byte, 1) == 1)
        bytes--;
    return bytes == 0;
}

/* A connection whose first message is a request with its first message's bytes. TIPC needs no call
 * before it. */
static int open_connection_at(int kind, const struct sockaddr *at, socklen_t len, Request request)
{
    int s = new_socket(kind);
    memcpy(buffer, &request, sizeof request);
    size_t bytes = sizeof request + (kind == SEQPACKET ? 0 : request.bytes);
    if (kind == TCP) {
        check(connect(s, at, len) == 0, "connect");
        check(send_all(s, buffer, bytes), "send");
    } else {
        ssize_t n = sendto(s, buffer, bytes, MSG_DONTWAIT, at, len);
        check(n == (ssize_t)bytes, "sendto");
    }
    if (kind == SEQPACKET) {
        /* One packet is one message: the server's byte says that the connection stands. */
        check(receive_all(s, buffer, 1), "first byte");
        check(send_all(s, buffer, request.bytes), "send");
    }
    return s;
}

static int open_connection(int kind, Request request)
{
    struct sockaddr_storage at;
    socklen_t len = address(kind, &at);
    return open_connection_at(kind, (struct sockaddr *)&at, len, request);
}

static int listener_of(int kind)
{
    struct sockaddr_storage at;
    socklen_t len = address(kind, &at);
    int one = 1, listener = new_socket(kind);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (kind == TCP)
        check(bind(listener, (struct sockaddr *)&at, len) == 0, "bind");
    check(listen(listener, 100) == 0, "listen");
    if (kind != TCP) /* bind publishes the name: whoever sees it finds a listener */
        check(bind(listener, (struct sockaddr *)&at, len) == 0, "bind");
    return listener;
}

static int accept_next(int kind, int listener)
{
    int s = accept(listener, NULL, NULL);
    check(s >= 0, "accept");
    turn_off_delay(kind, s);
    return s;
}

static void serve(int kind, int ready)
{
    int listener = listener_of(kind);
    check(write(ready, "!", 1) == 1, "ready");
    for (;;) {
        int s = accept_next(kind, listener);
        Request request;
        if (receive_all(s, &request, sizeof request) && (kind != SEQPACKET || send_all(s, "!", 1)))
            for (uint32_t i = 0; i < request.count && receive_all(s, buffer, request.bytes); i++) {
                int last = i + 1 == request.count;
                if (request.each ? !send_all(s, buffer, request.bytes)
                                 : (i == 0 || last) && !send_all(s, "!", 1))
                    break;
            }
        close(s);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double pingpong(int kind, uint32_t bytes, uint32_t count)
{
    int s = open_connection(kind, (Request){count, bytes, 1});
    check(receive_all(s, buffer, bytes), "answer");
    double begin = now();
    for (uint32_t i = 1; i < count; i++) {
        check(send_all(s, buffer, bytes), "send");
        check(receive_all(s, buffer, bytes), "answer");
    }
    double end = now();
    close(s);
    return (end - begin) / (count - 1) / 2;
}

static double flood(int kind, uint32_t bytes, uint32_t count)
{
    int s = open_connection(kind, (Request){count, bytes, 0});
    check(receive_all(s, buffer, 1), "answer");
    double begin = now();
    for (uint32_t i = 1; i < count; i++)
        check(send_all(s, buffer, bytes), "send");
    check(receive_all(s, buffer, 1), "answer");
    double end = now();
    close(s);
    return (end - begin) / (count - 1);
}

static double connections(int kind, uint32_t bytes, uint32_t count)
{
    double begin = now();
    for (uint32_t i = 0; i < count; i++) {
        int s = open_connection(kind, (Request){1, bytes, 1});
        check(receive_all(s, buffer, bytes), "answer");
        close(s);
    }
    return (now() - begin) / count;
}

/* From now on this process's new sockets belong to that network namespace. */
static void enter(int namespace)
{
    check(setns(namespace, CLONE_NEWNET) == 0, "setns");
}

static double path(int kind, uint32_t bytes, uint32_t count, int namespace, int own)
{
    static uint32_t calls;
    offset = ++calls;
    enter(namespace);
    int listener = listener_of(kind);
    enter(own);
    struct sockaddr_storage at;
    socklen_t len = address(kind, &at);
    if (kind != TCP) /* the socket's own address: a name takes a moment to reach the other node */
        check(getsockname(listener, (struct sockaddr *)&at, &len) == 0, "getsockname");
    int s = open_connection_at(kind, (struct sockaddr *)&at, len, (Request){count, bytes, 1});
    offset = 0;
    int peer = accept_next(kind, listener);
    Request request;
    check(receive_all(peer, &request, sizeof request), "request");
    check(receive_all(peer, buffer, bytes), "first message");
    double begin = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i == WARM_UP)
            begin = now();
        check(send_all(peer, buffer, bytes) && receive_all(s, buffer, bytes), "one way");
        check(send_all(s, buffer, bytes) && receive_all(peer, buffer, bytes), "the other way");
    }
    double end = now();
    close(s);
    close(peer);
    close(listener);
    return (end - begin) / (count - WARM_UP) / 2;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "serve") == 0) {
        int ready[2];
        check(pipe(ready) == 0, "pipe");
        for (int kind = 0; kind < KINDS; kind++)
            if (fork() == 0)
                serve(kind, ready[1]);
        check(read_all(ready[0], KINDS), "ready");
        puts("ready");
        fflush(stdout);
        while (wait(NULL) > 0) {
        }
        return 1;
    }
    if (argc != 5 || strcmp(argv[1], "ask") != 0 || inet_aton(argv[2], &server) == 0)
        return 2;
    int namespace = open(argv[4], O_RDONLY), own = open("/proc/self/ns/net", O_RDONLY);
    check(namespace >= 0 && own >= 0, argv[4]);
    int tcp = strcmp(argv[3], "tcp") == 0;
    for (int kind = tcp ? TCP : STREAM; kind < (tcp ? KINDS : TCP); kind++)
        for (uint32_t bytes = 1; bytes <= MAX_BYTES; bytes *= 4) {
            uint32_t count = bytes < 4096 ? 200 : 60;
            const char *name = names[kind];
            printf("pingpong,%s,%u,%.3f\n", name, bytes, pingpong(kind, bytes, count));
            printf("flood,%s,%u,%.3f\n", name, bytes, flood(kind, bytes, 2 * count));
            if (kind != SEQPACKET) { /* request and first message are one packet only on streams */
                printf("connection,%s,%u,%.3f\n", name, bytes, connections(kind, bytes, 40));
                if (bytes <= PATH_MAX_BYTES)
                    printf("path,%s,%u,%.3f\n", name, bytes,
                           path(kind, bytes, count, namespace, own));
            }
            fflush(stdout);
        }
    return 0;
}

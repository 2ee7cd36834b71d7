/* Sockets alone, without MPI: what TIPC and TCP cost between two nodes, in turns.
 *
 *     tipc_sockets serve                  answers at the TIPC names {18999, kind} and at TCP port
 * 5141 tipc_sockets ask ADDRESS ROUNDS     measures; ADDRESS is the server's IPv4 address
 *
 * Lines: what, socket, bytes, microseconds. `trip`: half of a round trip. `pour`: a message of many
 * that are sent one after the other. `visit`: a connection is built, carries one message there and
 * one back, and is torn down (the paper's T_build_and_teardown, and k * L). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tipc.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STREAM, SEQPACKET, TCP, KINDS, TYPE = 18999, PORT = 5141, MOST = 65536 };
static const char *const names[KINDS] = {"tipc stream", "tipc seqpacket", "tcp"};
/* What a connection is for: how many messages of how many bytes, each answered or only the first
 * and the last. */
typedef struct {
    uint32_t count, bytes, each;
} Wish;
static unsigned char buffer[sizeof(Wish) + MOST];
static struct in_addr server;

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static int fresh(int kind)
{
    int one = 1, s = kind == TCP
                         ? socket(AF_INET, SOCK_STREAM, 0)
                         : socket(AF_TIPC, kind == STREAM ? SOCK_STREAM : SOCK_SEQPACKET, 0);
    must(s >= 0, "socket");
    must(setsockopt(s, kind == TCP ? IPPROTO_TCP : SOL_TIPC,
                    kind == TCP ? TCP_NODELAY : TIPC_NODELAY, &one, sizeof one) == 0 ||
             kind == SEQPACKET,
         "no delay");
    return s;
}

static socklen_t address(int kind, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (kind == TCP) {
        *(struct sockaddr_in *)out = (struct sockaddr_in){
            .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = server};
        return sizeof(struct sockaddr_in);
    }
    *(struct sockaddr_tipc *)out = (struct sockaddr_tipc){.family = AF_TIPC,
                                                          .addrtype = TIPC_SERVICE_ADDR,
                                                          .scope = TIPC_CLUSTER_SCOPE,
                                                          .addr.name.name = {TYPE, (uint32_t)kind}};
    return sizeof(struct sockaddr_tipc);
}

static int put(int s, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(s, (const char *)from + done, bytes - done, MSG_NOSIGNAL);
        if (n <= 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

static int take(int s, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = recv(s, (char *)to + done, bytes - done, 0);
        if (n <= 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

static int take_from(int pipe, int bytes)
{
    char byte;
    while (bytes > 0 && read(pipe, &byte, 1) == 1)
        bytes--;
    return bytes == 0;
}

/* A connection whose first message is a wish with its first message's bytes. TIPC needs no call
 * before it. */
static int visit(int kind, Wish wish)
{
    struct sockaddr_storage at;
    socklen_t len = address(kind, &at);
    int s = fresh(kind);
    memcpy(buffer, &wish, sizeof wish);
    size_t bytes = sizeof wish + (kind == SEQPACKET ? 0 : wish.bytes);
    if (kind == TCP) {
        must(connect(s, (struct sockaddr *)&at, len) == 0, "connect");
        must(put(s, buffer, bytes), "send");
    } else {
        ssize_t n = sendto(s, buffer, bytes, MSG_DONTWAIT, (struct sockaddr *)&at, len);
        must(n == (ssize_t)bytes, "sendto");
    }
    if (kind == SEQPACKET) {
        /* One packet is one message: the server's word says that the connection stands. */
        must(take(s, buffer, 1), "first word");
        must(put(s, buffer, wish.bytes), "send");
    }
    return s;
}

static void serve(int kind, int ready)
{
    struct sockaddr_storage at;
    socklen_t len = address(kind, &at);
    int one = 1, door = fresh(kind);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (kind == TCP)
        must(bind(door, (struct sockaddr *)&at, len) == 0, "bind");
    must(listen(door, 100) == 0, "listen");
    if (kind != TCP)
        must(bind(door, (struct sockaddr *)&at, len) == 0, "bind");
    must(write(ready, "!", 1) == 1, "ready");
    for (;;) {
        int s = accept(door, NULL, NULL);
        must(s >= 0, "accept");
        setsockopt(s, kind == TCP ? IPPROTO_TCP : SOL_TIPC,
                   kind == TCP ? TCP_NODELAY : TIPC_NODELAY, &one, sizeof one);
        Wish wish;
        if (take(s, &wish, sizeof wish) && (kind != SEQPACKET || put(s, "!", 1)))
            for (uint32_t i = 0; i < wish.count && take(s, buffer, wish.bytes); i++)
                if (wish.each ? !put(s, buffer, wish.bytes)
                              : (i == 0 || i + 1 == wish.count) && !put(s, "!", 1))
                    break;
        close(s);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double trips(int kind, uint32_t bytes, uint32_t count)
{
    int s = visit(kind, (Wish){count, bytes, 1});
    must(take(s, buffer, bytes), "answer");
    double begin = now();
    for (uint32_t i = 1; i < count; i++) {
        must(put(s, buffer, bytes), "send");
        must(take(s, buffer, bytes), "answer");
    }
    double end = now();
    close(s);
    return (end - begin) / (count - 1) / 2;
}

static double pour(int kind, uint32_t bytes, uint32_t count)
{
    int s = visit(kind, (Wish){count, bytes, 0});
    must(take(s, buffer, 1), "answer");
    double begin = now();
    for (uint32_t i = 1; i < count; i++)
        must(put(s, buffer, bytes), "send");
    must(take(s, buffer, 1), "answer");
    double end = now();
    close(s);
    return (end - begin) / (count - 1);
}

static double visits(int kind, uint32_t bytes, uint32_t count)
{
    double begin = now();
    for (uint32_t i = 0; i < count; i++) {
        int s = visit(kind, (Wish){1, bytes, 1});
        must(take(s, buffer, bytes), "answer");
        close(s);
    }
    return (now() - begin) / count;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "serve") == 0) {
        int ready[2];
        must(pipe(ready) == 0, "pipe");
        for (int kind = 0; kind < KINDS; kind++)
            if (fork() == 0)
                serve(kind, ready[1]);
        must(take_from(ready[0], KINDS), "ready");
        puts("ready");
        fflush(stdout);
        while (wait(NULL) > 0) {
        }
        return 1;
    }
    if (argc < 4 || inet_aton(argv[2], &server) == 0)
        return 2;
    for (int round = 0; round < atoi(argv[3]); round++)
        for (uint32_t bytes = 1; bytes <= MOST; bytes *= 4) {
            uint32_t count = bytes < 4096 ? 200 : 60;
            for (int kind = 0; kind < KINDS; kind++)
                printf("trip,%s,%u,%.2f\n", names[kind], bytes, trips(kind, bytes, count));
            for (int kind = 0; kind < KINDS; kind++)
                printf("pour,%s,%u,%.2f\n", names[kind], bytes, pour(kind, bytes, 2 * count));
            for (int kind = 0; kind < KINDS;
                 kind += 2) /* a packet that carries wish and message is one of streams only */
                printf("visit,%s,%u,%.2f\n", names[kind], bytes, visits(kind, bytes, 40));
            fflush(stdout);
        }
    return 0;
}

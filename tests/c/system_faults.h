/* System calls on files that fail, are short or are interrupted, one of them at a time and by its
 * number. No call of the library knows of it: a filter of the kernel (seccomp) hands the calls of
 * this process to a thread of it that the filter does not bind, and which answers in their place or
 * lets them go on.
 *
 * Only calls on files with FAULTY in their path count, and calls of io_uring; and only between
 * faults_arm and faults_disarm. */
#ifndef FERRY_TESTS_SYSTEM_FAULTS_H
#define FERRY_TESTS_SYSTEM_FAULTS_H

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FAULTY "faulty"

/* Sorts of calls. CACHED_READ is one that does not wait for the device. */
enum fault_call {
    NO_CALL, OPEN, UNLINK, FSTAT, READ, CACHED_READ, WRITE, FSYNC, FTRUNCATE, FALLOCATE, LOCK,
    RING_SETUP, RING_SUBMIT, RING_WAIT, FAULT_CALLS
};

/* What happens to calls number `first` to `first + count - 1` of a sort, from 0: they fail with
 * `error`; transfer at most `bytes`; or, if neither is set, open the file only for writing. */
struct fault {
    enum fault_call call;
    long first, count;
    int error;
    size_t bytes;
};

static struct {
    int listener;
    pthread_mutex_t lock;
    int armed;
    struct fault faults[2];
    long calls[FAULT_CALLS], hits;
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int is_faulty(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return strstr(path, FAULTY) != NULL;
}

static enum fault_call fault_call_of(const struct seccomp_data *data)
{
    int fd = (int)data->args[0];
    const char *path = (const char *)data->args[data->nr == SYS_openat || data->nr == SYS_unlinkat];
    switch (data->nr) {
    case SYS_open:
    case SYS_openat: return strstr(path, FAULTY) ? OPEN : NO_CALL;
    case SYS_unlink:
    case SYS_unlinkat: return strstr(path, FAULTY) ? UNLINK : NO_CALL;
    case SYS_io_uring_setup: return RING_SETUP;
    case SYS_io_uring_enter: return data->args[1] ? RING_SUBMIT : RING_WAIT;
    case SYS_fcntl:
        if (data->args[1] != F_OFD_SETLKW && data->args[1] != F_SETLKW)
            return NO_CALL;
        /* Giving a lock back does not fail. */
        return ((struct flock *)data->args[2])->l_type != F_UNLCK && is_faulty(fd) ? LOCK : NO_CALL;
    }
    if (!is_faulty(fd))
        return NO_CALL;
    switch (data->nr) {
    case SYS_fstat: return FSTAT;
    /* glibc's fstat: with an empty path. */
    case SYS_newfstatat: return *(const char *)data->args[1] ? NO_CALL : FSTAT;
    case SYS_pread64:
    case SYS_preadv: return READ;
    case SYS_preadv2: return CACHED_READ;
    case SYS_pwrite64:
    case SYS_pwritev:
    case SYS_pwritev2: return WRITE;
    case SYS_fsync: return FSYNC;
    case SYS_ftruncate: return FTRUNCATE;
    case SYS_fallocate: return FALLOCATE;
    }
    return NO_CALL;
}

/* A call in place of the one that is asked for: shorter, or of a file for writing only. */
static long fault_instead(const struct seccomp_data *data, enum fault_call call, size_t bytes)
{
    const __u64 *a = data->args;
    int fd = (int)a[0];
    void *buf = (void *)a[1];
    off_t offset = (off_t)a[3];
    size_t length = (size_t)a[2];
    long done;
    if (call == OPEN) {
        const char *path = (const char *)a[data->nr == SYS_openat];
        done = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        return done < 0 ? -errno : done;
    }
    if (data->nr != SYS_pread64 && data->nr != SYS_pwrite64) {
        const struct iovec *first = buf;
        buf = first->iov_base, length = first->iov_len;
    }
    length = length < bytes ? length : bytes;
    done = call == WRITE ? pwrite(fd, buf, length, offset) : pread(fd, buf, length, offset);
    return done < 0 ? -errno : done;
}

static void *fault_thread(void *pipe_end)
{
    static struct seccomp_notif asked;
    char byte;
    /* Until the filter is there. */
    if (read(*(int *)pipe_end, &byte, 1) != 1)
        return NULL;
    for (;;) {
        memset(&asked, 0, sizeof asked);
        if (ioctl(faults.listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0)
            continue;
        struct seccomp_notif_resp answer = {asked.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        enum fault_call call = fault_call_of(&asked.data);
        pthread_mutex_lock(&faults.lock);
        if (faults.armed && call != NO_CALL) {
            long n = faults.calls[call]++;
            for (int i = 0; i < 2; i++) {
                const struct fault *f = &faults.faults[i];
                if (f->call != call || n < f->first || n - f->first >= f->count)
                    continue;
                long result = f->error ? -f->error : fault_instead(&asked.data, call, f->bytes);
                answer.flags = 0;
                answer.val = result < 0 ? 0 : result;
                answer.error = result < 0 ? (int)result : 0;
                faults.hits += i == 0;
                break;
            }
        }
        pthread_mutex_unlock(&faults.lock);
        ioctl(faults.listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
    return NULL;
}

/* Before MPI_Init: binds this thread, and all that it starts, to the filter. */
UNUSED static void faults_begin(void)
{
    static const int calls[] = {
        SYS_open, SYS_openat, SYS_unlink, SYS_unlinkat, SYS_fstat, SYS_newfstatat, SYS_pread64,
        SYS_preadv, SYS_preadv2, SYS_pwrite64, SYS_pwritev, SYS_pwritev2, SYS_fsync, SYS_ftruncate,
        SYS_fallocate, SYS_fcntl, SYS_io_uring_setup, SYS_io_uring_enter,
    };
    enum { CALLS = sizeof calls / sizeof calls[0] };
    struct sock_filter filter[CALLS + 3];
    pthread_t thread;
    sigset_t all, before;
    filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    for (int i = 0; i < CALLS; i++)
        filter[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (__u32)calls[i],
                                                     (__u8)(CALLS - i), 0);
    filter[CALLS + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[CALLS + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog program = {CALLS + 3, filter};
    /* The thread comes first, so that it is free; it waits until the filter is there. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    static int pipes[2];
    int made = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    made = made ? made : pipe(pipes);
    made = made ? made : pthread_create(&thread, NULL, fault_thread, &pipes[0]);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    faults.listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                   SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (made || faults.listener < 0 || write(pipes[1], "x", 1) != 1) {
        fprintf(stderr, "no filter of system calls: %s\n", strerror(errno));
        exit(1);
    }
}

/* From here on calls are counted. The first fault is the one of the test; the other one may bring
 * the library where it meets the first. */
UNUSED static void faults_arm(struct fault first, struct fault second)
{
    pthread_mutex_lock(&faults.lock);
    memset(faults.calls, 0, sizeof faults.calls);
    faults.hits = 0;
    faults.faults[0] = first;
    faults.faults[1] = second;
    faults.armed = 1;
    pthread_mutex_unlock(&faults.lock);
}

/* Returns how many calls had the first fault. */
UNUSED static long faults_disarm(void)
{
    pthread_mutex_lock(&faults.lock);
    long hits = faults.hits;
    faults.armed = 0;
    pthread_mutex_unlock(&faults.lock);
    return hits;
}

#endif

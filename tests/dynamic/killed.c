/* Worlds that meet, of which one process is killed at a system call of its own: `killed spawn`,
 * `killed accept FILE`, `killed connect FILE`. KILL_WHO is "spawn", "child", "accept" or "connect",
 * KILL_RANK the rank in that world. KILL_AT is the number of the call from the beginning of the
 * meeting on, or of MPI_Init in a child; without it nobody dies, and the victim prints how many
 * calls there are.
 *
 * A filter of the kernel hands the victim's calls to a thread of it that the filter does not bind,
 * which counts them. */
#include "../c/check.h"
#include "port_file.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static int listener;
static volatile int armed;
static long calls, last = -1;

static sem_t filtered;

static void *counts(void *unused)
{
    static struct seccomp_notif asked;
    (void)unused;
    sem_wait(&filtered);
    for (;;) {
        memset(&asked, 0, sizeof asked);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0)
            continue;
        if (armed && calls++ == last)
            kill(getpid(), SIGKILL);
        struct seccomp_notif_resp answer = {asked.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
    return NULL;
}

static void become_victim(void)
{
    /* Not those that wait or read: how many there are is a matter of the machine's load. */
    static const int counted[] = {
        SYS_socket, SYS_connect, SYS_accept4, SYS_sendmsg, SYS_sendto, SYS_sendmmsg, SYS_write,
        SYS_writev, SYS_openat, SYS_mmap, SYS_munmap, SYS_memfd_create, SYS_ftruncate, SYS_close,
        SYS_epoll_ctl, SYS_getrandom,
    };
    enum { COUNTED = sizeof counted / sizeof counted[0] };
    struct sock_filter filter[COUNTED + 3];
    pthread_t thread;
    sigset_t all, before;
    if (getenv("KILL_AT"))
        last = atol(getenv("KILL_AT"));
    filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    for (int i = 0; i < COUNTED; i++)
        filter[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (__u32)counted[i],
                                                     (__u8)(COUNTED - i), 0);
    filter[COUNTED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[COUNTED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog program = {COUNTED + 3, filter};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int made = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || sem_init(&filtered, 0, 0) ||
               pthread_create(&thread, NULL, counts, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                            &program);
    if (made || listener < 0) {
        fprintf(stderr, "no filter of system calls: %s\n", strerror(errno));
        exit(1);
    }
    sem_post(&filtered);
}

/* All that two worlds do until they are apart again. */
static void meet_and_part(MPI_Comm inter, int high)
{
    MPI_Comm merged;
    int sum = 0, one = 1, size;
    OK(MPI_Barrier(inter));
    OK(MPI_Intercomm_merge(inter, high, &merged));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged));
    OK(MPI_Comm_size(merged, &size));
    SAME(sum, size);
    OK(MPI_Comm_free(&merged));
    OK(MPI_Comm_disconnect(&inter));
}

int main(int argc, char **argv)
{
    const char *me = argv[1], *who = getenv("KILL_WHO"), *rank = getenv("KILL_RANK");
    char *arguments[] = {"child", NULL}, port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    int is_victim = who && !strcmp(who, me) && !strcmp(rank, getenv("FERRY_RANK"));
    if (is_victim)
        become_victim();
    armed = !strcmp(me, "child");
    check_begin(&argc, &argv);
    if (world_rank == 0 && !strcmp(me, "accept"))
        write_port(argv[2], port);
    else if (world_rank == 0 && !strcmp(me, "connect"))
        read_port(argv[2], port);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    armed = 1;
    if (!strcmp(me, "child"))
        OK(MPI_Comm_get_parent(&inter));
    else if (!strcmp(me, "spawn"))
        OK(MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                          MPI_ERRCODES_IGNORE));
    else if (!strcmp(me, "accept"))
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    else
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter));
    meet_and_part(inter, !strcmp(me, "child") || !strcmp(me, "connect"));
    armed = 0;
    if (is_victim && last < 0)
        printf("calls %ld\n", calls);
    return check_end();
}

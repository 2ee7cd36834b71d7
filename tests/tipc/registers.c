/* For LD_PRELOAD into linux.uml: user-mode-linux keeps a guest process's extended registers in 832
 * bytes (x87, SSE, AVX). A processor with AVX-512 or AMX has more of them, the host's kernel takes
 * all or nothing, and the guest panics ("ptrace set fp regs failed, errno = 14"). This completes
 * what user-mode-linux writes back with what the process has. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static unsigned char all[1 << 16];

static long call(long request, pid_t pid, void *address, void *data)
{
    return syscall(SYS_ptrace, request, pid, address, data);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *), *data = va_arg(arguments, void *);
    va_end(arguments);
    if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
        struct iovec *given = data, whole = {all, sizeof all};
        if (call(PTRACE_GETREGSET, pid, address, &whole) == 0 && whole.iov_len > given->iov_len) {
            memcpy(all, given->iov_base, given->iov_len);
            return call(request, pid, address, &whole);
        }
    }
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        long word; /* the system call writes the word; the C library's function returns it */
        long failed = call(request, pid, address, &word);
        return failed ? failed : word;
    }
    return call(request, pid, address, data);
}

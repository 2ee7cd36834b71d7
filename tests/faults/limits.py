"""Machines with too little of something: open files, address space, descriptors, a reader."""

import os
import resource
import signal
import subprocess
import time


def limits(cases):
    def files(n):
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))

    def memory(megabytes):
        return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    cases.job(
        "32 ranks with 64 open files",
        32,
        "fine",
        prepare=files(64),
        status="bad",
        words=["open files|RLIMIT_NOFILE|nofile|descriptor"],
        within=5,
    )
    cases.job("4 ranks with 64 open files", 4, "fine", prepare=files(64), status=0, within=5)
    result = cases.mpiexec("-n", 2, cases.die, "fine", prepare=memory(24))
    cases.case(
        "24 MB of address space",
        result,
        without=["SIGBUS", "SIGSEGV", "panicked"],
        words=[] if result[0] == 0 else ["memory|RLIMIT_AS|address space"],
        within=5,
    )
    result = cases.mpiexec("-n", 2, "sh", "-c", f"ulimit -v 20000; exec {cases.die} fine")
    cases.case(
        "20 MB of address space for each rank",
        result,
        without=["SIGBUS", "SIGSEGV", "panicked"],
        words=[] if result[0] == 0 else ["memory|RLIMIT_AS|address space|failed to map"],
        within=5,
    )
    result = cases.mpiexec("-n", 2, "sh", "-c", f"exec {cases.die} fine >&-")
    cases.case("standard output closed in the ranks", result, status=0, within=5)
    for how in ("closes", "reopens"):
        cases.job(
            f"a program that {how} descriptors of MPI's",
            3,
            how,
            status="bad",
            words=["MPI_Allreduce", "the program has closed a descriptor"],
            without=["hangs", "SIGBUS"],
            within=5,
        )
    nobody_reads(cases)


def nobody_reads(cases):
    """The pipe to which ranks print has no reader."""
    read, write = os.pipe()
    os.close(read)
    start = time.monotonic()
    job = subprocess.Popen(
        [str(cases.mpi.mpiexec), "-n", "2", str(cases.die), "pids"],
        stdout=write,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(write)
    try:
        _, said = job.communicate(timeout=10)
        result = (job.returncode, said.decode(errors="replace"), time.monotonic() - start)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        result = (None, "", 10.0)
    cases.case("nobody reads standard output", result, without=["panicked"], within=8)

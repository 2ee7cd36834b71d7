"""Ranks and launchers that die: the exit status, what is said of it, the backtrace."""

import os
import re
import signal
import time

from faults.harness import processes

THREAD = {"FERRY_PROGRESS": "thread"}


def deaths(cases):
    ends(cases)
    aborts(cases)
    alone(cases)
    killed_launcher(cases)
    killed_by_hand(cases)
    interrupted(cases)


def named(rank):
    """What a report says of the rank that has died."""
    return [rf"rank {rank}\b", re.escape(os.uname().nodename), r"\bpid \d+|\bprocess \d+"]


def ends(cases):
    """The last rank ends in every way."""
    for ranks in (3, 16):
        last = named(ranks - 1)
        for how, status, cause in (
            ("kill", 137, r"SIGKILL|signal 9|killed"),
            ("segv", 139, r"SIGSEGV|signal 11|segmentation"),
            ("assert", 134, r"SIGABRT|signal 6|aborted"),
            ("exit7", 7, r"exit|finali[sz]"),
            ("exit", "bad", r"finali[sz]"),
            ("abort", 42, r"MPI_Abort"),
        ):
            cases.job(
                f"{how} on {ranks}", ranks, how, status=status, words=[*last, cause], within=2.5
            )
    for how, status, cause in (
        ("abort", 42, "MPI_Abort"),
        ("exit", "bad", r"finali[sz]"),
        ("kill", 137, r"SIGKILL|signal 9|killed"),
    ):
        cases.job(
            f"{how} with a progress thread",
            3,
            how,
            environment=THREAD,
            status=status,
            words=[*named(2), cause],
            within=2.5,
        )
    cases.job("killed with a child of its own", 2, "children", status=137, within=2.5)
    cases.job("an exit status after finalizing", 3, "return", status=9, within=5)
    for thread, beside in (({}, ""), (THREAD, " with a progress thread")):
        name = f"all is well{beside}"
        cases.job(name, 3, "fine", environment=thread, status=0, quiet=True, within=5)


def aborts(cases):
    cases.job(
        "what was printed before an abort is not lost",
        2,
        "abort-said",
        status=42,
        words=["last words", "MPI_Abort"],
        within=2.5,
    )
    cases.job("abort with code 0", 2, "abort0", status=0, within=2.5, words=["MPI_Abort"])
    cases.job(
        "abort of one's own communicator",
        2,
        "abort-self",
        status=5,
        words=["MPI_Abort"],
        within=2.5,
    )


def alone(cases):
    """A rank that was started without mpiexec."""
    cases.case("killed without mpiexec", cases.alone("kill"), status=-9)
    cases.case(
        "printed and aborted without mpiexec",
        cases.alone("abort-said"),
        status=42,
        words=["last words"],
    )
    cases.case("aborted without mpiexec", cases.alone("abort"), status=42)


def killed_launcher(cases):
    job = cases.waiting_job()
    start = time.monotonic()
    job.send_signal(signal.SIGKILL)
    cases.case("mpiexec killed", cases.end_of(job, start), status=-9, within=2)


def killed_by_hand(cases):
    job = cases.waiting_job()
    victims = processes(cases.die.name)
    start = time.monotonic()
    if victims:
        os.kill(victims[0], signal.SIGKILL)
    cases.case(
        "a rank killed from outside",
        cases.end_of(job, start),
        status=137,
        words=[str(victims[0]) if victims else "pid"],
        within=1.2,
    )


def interrupted(cases):
    for sent in (signal.SIGINT, signal.SIGTERM):
        job = cases.waiting_job()
        start = time.monotonic()
        job.send_signal(sent)
        cases.case(
            f"mpiexec gets {sent.name}",
            cases.end_of(job, start),
            status={128 + sent, -sent},
            within=3,
        )


def backtraces(cases):
    for how, status, cause in (
        ("segv", 139, r"SIGSEGV, invalid memory access at 0x8"),
        ("bus", 135, r"SIGBUS, memory that cannot be reached"),
        ("ill", 132, r"SIGILL, invalid instruction"),
        ("fpe", 136, r"SIGFPE, arithmetic error"),
        ("assert", 134, r"SIGABRT, abort"),
        ("overflow", 139, r"SIGSEGV, invalid memory access"),
    ):
        cases.job(
            f"backtrace of {how}",
            3,
            how,
            status=status,
            words=[rf"rank 2 of 3 \(pid \d+\): {cause}", r"die-\d+\(.*\[0x"],
            within=2.5,
        )
        cases.job(
            f"no backtrace of {how} with FERRY_BACKTRACE=0",
            3,
            how,
            environment={"FERRY_BACKTRACE": "0"},
            status=status,
            without=["backtrace"],
            within=2.5,
        )
    for how in ("own-handler", "own-handler-later"):
        cases.job(
            f"no backtrace with the program's {how}",
            3,
            how,
            status=3,
            words=["own handler"],
            without=["backtrace"],
            within=2.5,
        )
    cases.job(
        "backtrace of a thread",
        3,
        "segv-thread",
        status=139,
        words=[r"rank 2 of 3 \(pid \d+\): SIGSEGV", r"die-\d+\(.*\[0x"],
        within=2.5,
    )
    cases.job(
        "backtrace beside guards by mprotect",
        3,
        "segv",
        environment={"FERRY_OVERLAP": "always", "FERRY_OVERLAP_GUARD": "mprotect"},
        status=139,
        words=[r"rank 2 of 3 \(pid \d+\): SIGSEGV"],
        within=5,
    )
    cases.case(
        "backtrace without mpiexec",
        cases.alone("segv"),
        status=-11,
        words=[r"rank 0 of 1 \(pid \d+\): SIGSEGV"],
    )

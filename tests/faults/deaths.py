"""Ranks and launchers that die: the exit status, what is said of it, the backtrace."""

import os
import re
import signal
import time

from faults.harness import processes


def deaths(cases):
    die, host = cases.die, re.escape(os.uname().nodename)
    named = [r"rank 2\b", host, r"\bpid \d+|\bprocess \d+"]
    for ranks in (3, 16):
        last = [rf"rank {ranks - 1}\b", *named[1:]]
        for how, status, cause in (
            ("kill", 137, r"SIGKILL|signal 9|killed"),
            ("segv", 139, r"SIGSEGV|signal 11|segmentation"),
            ("assert", 134, r"SIGABRT|signal 6|aborted"),
            ("exit7", 7, r"exit|finali[sz]"),
            ("exit", "bad", r"finali[sz]"),
            ("abort", 42, r"MPI_Abort"),
        ):
            cases.case(
                f"{how} on {ranks}",
                cases.mpiexec("-n", ranks, die, how),
                status=status,
                words=[*last, cause],
                within=2.5,
            )
    cases.case(
        "what was printed before an abort is not lost",
        cases.mpiexec("-n", 2, die, "abort-said"),
        status=42,
        words=["last words", "MPI_Abort"],
        within=2.5,
    )
    cases.case(
        "abort with code 0",
        cases.mpiexec("-n", 2, die, "abort0"),
        status=0,
        within=2.5,
        words=["MPI_Abort"],
    )
    cases.case(
        "abort of one's own communicator",
        cases.mpiexec("-n", 2, die, "abort-self"),
        status=5,
        words=["MPI_Abort"],
        within=2.5,
    )
    cases.case(
        "killed with a child of its own",
        cases.mpiexec("-n", 2, die, "children"),
        status=137,
        within=2.5,
    )
    thread = {"FERRY_PROGRESS": "thread"}
    for how, status, cause in (
        ("abort", 42, "MPI_Abort"),
        ("exit", "bad", r"finali[sz]"),
        ("kill", 137, r"SIGKILL|signal 9|killed"),
    ):
        result = cases.mpiexec("-n", 3, die, how, environment=thread)
        cases.case(
            f"{how} with a progress thread",
            result,
            status=status,
            words=[*named, cause],
            within=2.5,
        )
    cases.case(
        "all is well with a progress thread",
        cases.mpiexec("-n", 3, die, "fine", environment=thread),
        status=0,
        quiet=True,
        within=5,
    )
    cases.case(
        "an exit status after finalizing",
        cases.mpiexec("-n", 3, die, "return"),
        status=9,
        within=5,
    )
    cases.case("all is well", cases.mpiexec("-n", 3, die, "fine"), status=0, quiet=True, within=5)
    cases.case("killed without mpiexec", cases.alone("kill"), status=-9)
    cases.case(
        "printed and aborted without mpiexec",
        cases.alone("abort-said"),
        status=42,
        words=["last words"],
    )
    cases.case("aborted without mpiexec", cases.alone("abort"), status=42)
    killed_launcher(cases)
    killed_by_hand(cases)
    interrupted(cases)


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
    die = cases.die
    for how, status, cause in (
        ("segv", 139, r"SIGSEGV, invalid memory access at 0x8"),
        ("bus", 135, r"SIGBUS, memory that cannot be reached"),
        ("ill", 132, r"SIGILL, invalid instruction"),
        ("fpe", 136, r"SIGFPE, arithmetic error"),
        ("assert", 134, r"SIGABRT, abort"),
        ("overflow", 139, r"SIGSEGV, invalid memory access"),
    ):
        cases.case(
            f"backtrace of {how}",
            cases.mpiexec("-n", 3, die, how),
            status=status,
            words=[rf"rank 2 of 3 \(pid \d+\): {cause}", r"die-\d+\(.*\[0x"],
            within=2.5,
        )
        cases.case(
            f"no backtrace of {how} with FERRY_BACKTRACE=0",
            cases.mpiexec("-n", 3, die, how, environment={"FERRY_BACKTRACE": "0"}),
            status=status,
            without=["backtrace"],
            within=2.5,
        )
    for how in ("own-handler", "own-handler-later"):
        cases.case(
            f"no backtrace with the program's {how}",
            cases.mpiexec("-n", 3, die, how),
            status=3,
            words=["own handler"],
            without=["backtrace"],
            within=2.5,
        )
    cases.case(
        "backtrace of a thread",
        cases.mpiexec("-n", 3, die, "segv-thread"),
        status=139,
        words=[r"rank 2 of 3 \(pid \d+\): SIGSEGV", r"die-\d+\(.*\[0x"],
        within=2.5,
    )
    cases.case(
        "backtrace beside guards by mprotect",
        cases.mpiexec(
            "-n",
            3,
            die,
            "segv",
            environment={"FERRY_OVERLAP": "always", "FERRY_OVERLAP_GUARD": "mprotect"},
        ),
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

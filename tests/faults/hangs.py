"""Jobs that hang, and what the hang report says of them."""

import signal
import time

# Collectives that do not match: of die.c, and what the message names.
MISMATCHES = (
    ("bcast-reduce", "MPI_Bcast with root 0", "MPI_Reduce with root 0"),
    ("bcast-roots", "MPI_Bcast with root 0", "MPI_Bcast with root [13]"),
    ("gather-roots", "MPI_Gather with root 0", "MPI_Gather with root 1"),
    ("allreduce-barrier", "MPI_Allreduce", "MPI_Barrier"),
    ("window", "MPI_Allreduce", "a call that makes a window"),
    ("dup", "my own.*MPI_(Bcast|Reduce) with root 0", "MPI_(Bcast|Reduce) with root 0"),
)


def hangs(cases):
    messages(cases)
    windows(cases)
    collectives(cases)
    mismatches(cases)
    lengths(cases)
    threads(cases)
    no_hangs(cases)


def messages(cases):
    """Receives and requests that nothing will complete."""
    die = cases.die
    cases.case(
        "two receives facing each other",
        cases.mpiexec("-n", 2, die, "face"),
        status="bad",
        within=6,
        words=["MPI_Recv", "rank", r"\b17\b", "receiv"],
    )
    cases.case(
        "everybody receives first",
        cases.mpiexec("-n", 4, die, "ring"),
        status="bad",
        within=6,
        words=["MPI_Recv"],
    )
    cases.case(
        "receives that are waited for",
        cases.mpiexec("-n", 2, die, "awaited"),
        status="bad",
        within=6,
        words=[
            r"MPI_Wait +MPI_COMM_WORLD +rank 1 +23",
            "ranks 0 and 1 wait for each other, all receiving",
        ],
    )
    cases.case(
        "a peer that has finished",
        cases.mpiexec("-n", 3, die, "gone"),
        status="bad",
        within=6,
        words=["MPI_Recv", "finish|finali[sz]"],
    )
    cases.case(
        "generalised requests that nobody completes",
        cases.mpiexec("-n", 2, die, "general"),
        status="bad",
        within=6,
        words=[
            "rank 1 waits in MPI_Waitall for generalised requests",
            "its own program",
            "MPI_THREAD_MULTIPLE",
        ],
        without=["no rank will send"],
    )
    cases.case(
        "requests of which some are waited for in vain",
        cases.mpiexec("-n", 2, die, "several"),
        status="bad",
        within=6,
        words=[
            "MPI_Waitall +MPI_COMM_WORLD +rank 1, 1 more +31",
            "rank 0, MPI_Waitall: a receive from rank 1, tag 31, on MPI_COMM_WORLD; "
            "a receive from rank 1, tag 32, on MPI_COMM_WORLD",
            "ranks 0 and 1 wait for each other, all receiving",
        ],
    )
    cases.case(
        "a partition that is not released",
        cases.mpiexec("-n", 2, die, "not-ready"),
        status="bad",
        within=6,
        words=["rank 0 waits in MPI_Wait for MPI_Psend_init, 1 of 4 not ready", "MPI_Pready"],
    )
    cases.case(
        "a message with another tag",
        cases.mpiexec("-n", 2, die, "tag"),
        status="bad",
        within=6,
        words=["MPI_Recv", r"\b9\b"],
    )
    for wires in ("shm", "tcp"):
        forced = {"FERRY_TRANSPORTS": wires}
        cases.case(
            f"messages that are never received, {wires}",
            cases.mpiexec("-n", 2, die, "unreceived", environment=forced),
            status=0,
            within=6,
            words=["rank 0.*MPI_Finalize.*2 messages.*4 bytes from rank 1 with tag 8"],
        )


def windows(cases):
    """One-sided communication."""
    die = cases.die
    for how, words in (
        ("lock", ["MPI_Win_lock +window grid +the lock of rank 0, which rank 2 holds"]),
        (
            "lock-finished",
            [
                "MPI_Win_lock +window grid +the lock of rank 0, which rank 2 holds",
                "who locks a window has to unlock it. Rank 2 (has|is in MPI_Finalize)",
            ],
        ),
        ("start", ["MPI_Win_start +window grid +MPI_Win_post of rank 2"]),
        ("wait", ["MPI_Win_wait +window grid +MPI_Win_complete of its origins"]),
        ("wait-one", ["MPI_Win_wait +window grid +MPI_Win_complete of rank 2"]),
    ):
        cases.case(
            f"one-sided communication: {how}",
            cases.mpiexec("-n", 3, die, f"window-{how}", 2),
            status="bad",
            within=6,
            words=words,
        )
    cases.case(
        "a rank that dies with a lock",
        cases.mpiexec("-n", 3, die, "window-death", 2),
        status="bad",
        within=6,
        words=["rank 2.*(SIGKILL|signal 9)"],
    )


def collectives(cases):
    """Collectives that not all ranks enter, or in another order."""
    die = cases.die
    cases.case(
        "a collective that one rank did not enter",
        cases.mpiexec("-n", 3, die, "missing"),
        status="bad",
        within=6,
        words=["MPI_Allreduce", "MPI_Recv", "enter|collective"],
    )
    cases.case(
        "a non-blocking collective that one rank did not start",
        cases.mpiexec("-n", 3, die, "missing-request"),
        status="bad",
        within=8,
        words=[
            "0, 1  MPI_Wait +MPI_COMM_WORLD +MPI_Ibarrier, collective #2",
            r"ranks 0, 1 wait in MPI_Wait for MPI_Ibarrier \(collective #2\) on MPI_COMM_WORLD",
        ],
    )
    cases.case(
        "another collective",
        cases.mpiexec("-n", 3, die, "other"),
        status="bad",
        within=8,
        words=["collective"],
    )
    cases.case(
        "groups that are merged in two orders",
        cases.mpiexec("-n", 4, die, "merge"),
        status="bad",
        within=6,
        words=[
            "rank 3 of 4: MPI_Intercomm_merge",
            "MPI_ERR_ARG",
            "high is true, but the leader",
        ],
    )


def mismatches(cases):
    """Ranks that are in different collectives, or have different roots."""
    die = cases.die
    for wires in ("shm", "tcp"):
        forced = {"FERRY_TRANSPORTS": wires}
        cases.case(
            f"another collective of as many bytes, {wires}",
            cases.mpiexec("-n", 2, die, "mixed", environment=forced),
            status="bad",
            within=6,
            words=["is in MPI_Iall(gather|reduce) where this rank is in MPI_Iall(gather|reduce)"],
        )
        cases.case(
            f"a collective that blocks with one that does not, {wires}",
            cases.mpiexec("-n", 2, die, "forms", environment=forced),
            status="bad",
            within=6,
            words=["MPI_Barrier", "MPI_Ibarrier"],
        )
        for calls, first, second in MISMATCHES:
            for ranks in (2, 4):
                for before in (0, 4):  # with 4, small collectives have a board in shared memory
                    how = ["-n", ranks, die, f"mismatch-{calls}", ranks - 1, before]
                    cases.case(
                        f"{calls} on {ranks} after {before}, {wires}",
                        cases.mpiexec(*how, environment=forced),
                        status="bad",
                        within=6,
                        words=[first, second, "same collectives in the same order"],
                    )
    # The data of one may lie where the other's signature is: then it is not named.
    cases.case(
        "a barrier where others are in an alltoall that fills several slots of their board",
        cases.mpiexec("-n", 16, die, "mismatch-alltoall-barrier", 15, 4),
        status="bad",
        within=6,
        words=["MPI_(Alltoall|Barrier)", "same collectives in the same order"],
    )


def lengths(cases):
    """Ranks whose lengths differ."""
    die = cases.die
    for wires in ("shm", "tcp"):
        forced = {"FERRY_TRANSPORTS": wires}
        for call in ("allreduce", "alltoall", "bcast", "iallreduce"):
            for ranks in (2, 4):
                cases.case(
                    f"{call} with lengths that differ on {ranks}, {wires}",
                    cases.mpiexec(
                        "-n", ranks, die, f"lengths-{call}", ranks - 1, environment=forced
                    ),
                    status="bad",
                    within=6,
                    words=[
                        f"MPI_ERR_TRUNCATE: rank [0-9] (sent [0-9]+ bytes in MPI_{call}"
                        f"|takes part in MPI_{call} with [0-9]+ bytes)"
                    ],
                )
    # Some of these wait at a board, one by messages.
    for call in ("allreduce", "alltoall", "iallreduce"):
        for ranks in (2, 4):
            cases.case(
                f"{call} with lengths that differ on {ranks}, returned to each",
                cases.mpiexec("-n", ranks, die, f"lengths-{call}", ranks - 1, "return"),
                status=0,
                within=6,
                words=[f"rank {rank}: truncated" for rank in range(ranks)],
            )


def threads(cases):
    """With a progress thread, or several threads that call MPI."""
    die = cases.die
    for how, words in (
        ("face", ["MPI_Recv", r"\b17\b"]),
        ("missing", ["MPI_Allreduce", "MPI_Recv"]),
    ):
        result = cases.mpiexec("-n", 2, die, how, environment={"FERRY_PROGRESS": "thread"})
        cases.case(f"{how} with a progress thread", result, status="bad", within=6, words=words)
    for how in ("face", "join", "both", "last"):
        for wires in ("shm", "tcp"):
            result = cases.mpiexec(
                "-n", 2, die, f"threads-{how}", environment={"FERRY_TRANSPORTS": wires}
            )
            cases.case(
                f"threads that all wait ({how}, {wires})",
                result,
                status=125,
                within=6,
                words=["MPI_Recv", r"\b17\b"],
            )
        result = cases.mpiexec(
            "-n", 2, die, f"threads-{how}", environment={"FERRY_PROGRESS": "thread"}
        )
        cases.case(
            f"threads that all wait ({how}) and a progress thread",
            result,
            status=125,
            within=6,
            words=["MPI_Recv", r"\b17\b"],
        )
    cases.case(
        "a thread outside of MPI that will send",
        cases.mpiexec("-n", 2, die, "threads-late"),
        status=0,
        quiet=True,
        within=8,
    )


def no_hangs(cases):
    """A wait that ends by itself, or that the user ends."""
    die = cases.die
    cases.case(
        "a long wait is no hang",
        cases.mpiexec("-n", 3, die, "wait-long"),
        status=0,
        quiet=True,
        within=8,
    )
    cases.case(
        "the time limit",
        cases.mpiexec("--timeout", 1, "-n", 2, die, "busy"),
        status="bad",
        within=4,
        words=["time"],
    )
    job = cases.waiting_job()
    start = time.monotonic()
    job.send_signal(signal.SIGQUIT)
    cases.case("Ctrl-\\", cases.end_of(job, start), status="bad", words=["rank"], within=4)

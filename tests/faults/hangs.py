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


def hang(cases, name, ranks, *how, within=6, **expected):
    """A job of die.c that mpiexec ends because it hangs, or that ends because it would."""
    cases.job(name, ranks, *how, status="bad", within=within, **expected)


def messages(cases):
    """Receives and requests that nothing will complete."""
    hang(
        cases,
        "two receives facing each other",
        2,
        "face",
        words=["MPI_Recv", "rank", r"\b17\b", "receiv"],
    )
    hang(cases, "everybody receives first", 4, "ring", words=["MPI_Recv"])
    hang(
        cases,
        "receives that are waited for",
        2,
        "awaited",
        words=[
            r"MPI_Wait +MPI_COMM_WORLD +rank 1 +23",
            "ranks 0 and 1 wait for each other, all receiving",
        ],
    )
    hang(cases, "a peer that has finished", 3, "gone", words=["MPI_Recv", "finish|finali[sz]"])
    hang(
        cases,
        "generalised requests that nobody completes",
        2,
        "general",
        words=[
            "rank 1 waits in MPI_Waitall for generalised requests",
            "its own program",
            "MPI_THREAD_MULTIPLE",
        ],
        without=["no rank will send"],
    )
    hang(
        cases,
        "requests of which some are waited for in vain",
        2,
        "several",
        words=[
            "MPI_Waitall +MPI_COMM_WORLD +rank 1, 1 more +31",
            (
                "rank 0, MPI_Waitall: a receive from rank 1, tag 31, on MPI_COMM_WORLD; "
                "a receive from rank 1, tag 32, on MPI_COMM_WORLD"
            ),
            "ranks 0 and 1 wait for each other, all receiving",
        ],
    )
    hang(
        cases,
        "a partition that is not released",
        2,
        "not-ready",
        words=["rank 0 waits in MPI_Wait for MPI_Psend_init, 1 of 4 not ready", "MPI_Pready"],
    )
    hang(cases, "a message with another tag", 2, "tag", words=["MPI_Recv", r"\b9\b"])
    for wires in ("shm", "tcp"):
        forced = {"FERRY_TRANSPORTS": wires}
        cases.job(
            f"messages that are never received, {wires}",
            2,
            "unreceived",
            environment=forced,
            status=0,
            within=6,
            words=["rank 0.*MPI_Finalize.*2 messages.*4 bytes from rank 1 with tag 8"],
        )


def windows(cases):
    """One-sided communication."""
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
        hang(cases, f"one-sided communication: {how}", 3, f"window-{how}", 2, words=words)
    hang(
        cases,
        "a rank that dies with a lock",
        3,
        "window-death",
        2,
        words=["rank 2.*(SIGKILL|signal 9)"],
    )


def collectives(cases):
    """Collectives that not all ranks enter, or in another order."""
    hang(
        cases,
        "a collective that one rank did not enter",
        3,
        "missing",
        words=["MPI_Allreduce", "MPI_Recv", "enter|collective"],
    )
    hang(
        cases,
        "a non-blocking collective that one rank did not start",
        3,
        "missing-request",
        within=8,
        words=[
            "0, 1  MPI_Wait +MPI_COMM_WORLD +MPI_Ibarrier, collective #2",
            r"ranks 0, 1 wait in MPI_Wait for MPI_Ibarrier \(collective #2\) on MPI_COMM_WORLD",
        ],
    )
    hang(cases, "another collective", 3, "other", within=8, words=["collective"])
    hang(
        cases,
        "groups that are merged in two orders",
        4,
        "merge",
        words=[
            "rank 3 of 4: MPI_Intercomm_merge",
            "MPI_ERR_ARG",
            "high is true, but the leader",
        ],
    )


def mismatches(cases):
    """Ranks that are in different collectives, or have different roots."""
    for wires in ("shm", "tcp"):
        forced = {"FERRY_TRANSPORTS": wires}
        hang(
            cases,
            f"another collective of as many bytes, {wires}",
            2,
            "mixed",
            environment=forced,
            words=["is in MPI_Iall(gather|reduce) where this rank is in MPI_Iall(gather|reduce)"],
        )
        hang(
            cases,
            f"a collective that blocks with one that does not, {wires}",
            2,
            "forms",
            environment=forced,
            words=["MPI_Barrier", "MPI_Ibarrier"],
        )
        for calls, first, second in MISMATCHES:
            for ranks in (2, 4):
                for before in (0, 4):  # with 4, small collectives have a board in shared memory
                    how = [f"mismatch-{calls}", ranks - 1, before]
                    name = f"{calls} on {ranks} after {before}, {wires}"
                    words = [first, second, "same collectives in the same order"]
                    hang(cases, name, ranks, *how, environment=forced, words=words)
    # The data of one may lie where the other's signature is: then it is not named.
    hang(
        cases,
        "a barrier where others are in an alltoall that fills several slots of their board",
        16,
        "mismatch-alltoall-barrier",
        15,
        4,
        words=["MPI_(Alltoall|Barrier)", "same collectives in the same order"],
    )


def lengths(cases):
    """Ranks whose lengths differ."""
    for wires in ("shm", "tcp"):
        forced = {"FERRY_TRANSPORTS": wires}
        for call in ("allreduce", "alltoall", "bcast", "iallreduce"):
            for ranks in (2, 4):
                hang(
                    cases,
                    f"{call} with lengths that differ on {ranks}, {wires}",
                    ranks,
                    f"lengths-{call}",
                    ranks - 1,
                    environment=forced,
                    words=[
                        f"MPI_ERR_TRUNCATE: rank [0-9] (sent [0-9]+ bytes in MPI_{call}"
                        f"|takes part in MPI_{call} with [0-9]+ bytes)"
                    ],
                )
    # Some of these wait at a board, one by messages.
    for call in ("allreduce", "alltoall", "iallreduce"):
        for ranks in (2, 4):
            cases.job(
                f"{call} with lengths that differ on {ranks}, returned to each",
                ranks,
                f"lengths-{call}",
                ranks - 1,
                "return",
                status=0,
                within=6,
                words=[f"rank {rank}: truncated" for rank in range(ranks)],
            )


def threads(cases):
    """With a progress thread, or several threads that call MPI."""
    thread = {"FERRY_PROGRESS": "thread"}
    received = ["MPI_Recv", r"\b17\b"]
    for how, words in (("face", received), ("missing", ["MPI_Allreduce", "MPI_Recv"])):
        hang(cases, f"{how} with a progress thread", 2, how, environment=thread, words=words)
    for how in ("face", "join", "both", "last"):
        for beside, environment in (
            ("shm", {"FERRY_TRANSPORTS": "shm"}),
            ("tcp", {"FERRY_TRANSPORTS": "tcp"}),
            ("a progress thread", thread),
        ):
            cases.job(
                f"threads that all wait ({how}), {beside}",
                2,
                f"threads-{how}",
                environment=environment,
                status=125,
                within=6,
                words=received,
            )
    cases.job(
        "a thread outside of MPI that will send", 2, "threads-late", status=0, quiet=True, within=8
    )


def no_hangs(cases):
    """A wait that ends by itself, or that the user ends."""
    cases.job("a long wait is no hang", 3, "wait-long", status=0, quiet=True, within=8)
    cases.case(
        "the time limit",
        cases.mpiexec("--timeout", 1, "-n", 2, cases.die, "busy"),
        status="bad",
        within=4,
        words=["time"],
    )
    job = cases.waiting_job()
    start = time.monotonic()
    job.send_signal(signal.SIGQUIT)
    cases.case("Ctrl-\\", cases.end_of(job, start), status="bad", words=["rank"], within=4)

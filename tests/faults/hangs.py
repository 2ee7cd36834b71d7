"""Jobs that hang, and what the hang report says of them."""

import concurrent.futures
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
    objects(cases)
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
    for ask, words, without in (
        (
            "1",
            [
                "rank 1 .*MPI_Finalize: this rank has left 1 window .MPI_Win_free.: a window of 1 "
                "rank; 2 communicators .MPI_Comm_free.: (my own, a communicator of 1 rank"
                "|a communicator of 1 rank, my own); 1 request "
            ],
            ["rank 0 .*has left"],
        ),
        ("0", [], ["has left"]),
    ):
        cases.case(
            f"objects that are left over, FERRY_SHOW_HANDLE_LEAKS={ask}",
            cases.mpiexec(
                "-n", 2, cases.die, "leaks", 1, environment={"FERRY_SHOW_HANDLE_LEAKS": ask}
            ),
            status=0,
            within=6,
            words=words,
            without=without,
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
    # By messages alone, these take different algorithms, and get no message that is too long.
    cases.case(
        "allreduce with lengths that differ on 4 so much that nobody sends",
        cases.mpiexec(
            "-n", 4, cases.objects, "counts", "8192", environment={"FERRY_TRANSPORTS": "tcp"}
        ),
        status="bad",
        within=6,
        words=[
            "collective #[0-9]+, 8 bytes",
            "lengths that differ: ranks 0-2 with 8 bytes; rank 3 with 65536 bytes",
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


# Calls of objects.c, what one of four ranks does instead and which one, and what is said.
OBJECTS = (
    ("dup", "recv", 0, "1-3 wait in MPI_Comm_dup, a collective call on MPI_COMM_WORLD that not"),
    ("dup", "barrier", 0, "MPI_Comm_dup but rank 0 in MPI_Barrier: all ranks of MPI_COMM_WORLD"),
    ("half", "recv", 2, "rank 3 waits in MPI_Comm_dup, a collective call on half .*: rank 2 is in"),
    ("group", "recv", 2, "MPI_Comm_create_group, a collective call on a group of 2.*: rank 2 is"),
    ("split", "recv", 3, "in MPI_Comm_split, .*: rank 3 is in MPI_Recv with rank 1, tag 5"),
    ("create", "recv", 0, "in MPI_Comm_create, .*: rank 0 is in MPI_Recv"),
    ("cart", "recv", 0, "in MPI_Cart_create, .*: rank 0 is in MPI_Recv"),
    ("window", "recv", 3, "in MPI_Win_create on .*, which not all have entered: rank 3 is in"),
    ("allocate", "recv", 3, "in MPI_Win_allocate on .*, which not all have entered: rank 3 is in"),
    ("free", "recv", 3, "0-2 wait in MPI_Win_free on .*all ranks .*, but rank 3 is in MPI_Recv"),
    ("open", "recv", 3, "in MPI_File_open, .*: rank 3 is in MPI_Recv"),
    ("close", "recv", 3, "in MPI_File_close, .*: rank 3 is in MPI_Recv"),
    ("spawn", "recv", 3, "in MPI_Comm_spawn, .*: rank 3 is in MPI_Recv"),
    ("inter", "recv", 2, "in MPI_Intercomm_create, .*: rank 2 is in MPI_Recv"),
    ("tags", "recv", 3, "0 and 2 wait for each other in MPI_Intercomm_create, one on half.*tags"),
    ("overlap", "end", 3, "MPI_Intercomm_create.*MPI_ERR_COMM: .* is in both the local and"),
    ("finalize", "recv", 1, "MPI_Finalize +rank 3 to receive a send"),
)


def objects(cases):
    """Collective calls that make or free objects, which one rank does not make."""

    def run(row):
        return cases.mpiexec("-n", 4, cases.objects, *row[:3])

    # The jobs sleep until mpiexec takes them for hanging.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, OBJECTS))
    for (call, instead, _, told), result in zip(OBJECTS, results):
        cases.case(
            f"{call} where a rank is elsewhere ({instead})",
            result,
            status="bad",
            within=8,
            words=[told],
            without=[r"\bseveral\b", "tag any"],
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
        "two threads in MPI of a program that has asked for one",
        2,
        "threads-serialized",
        status="bad",
        within=6,
        words=["two threads of this rank wait in MPI .* MPI_THREAD_SERIALIZED.* MPI_Init_thread"],
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

"""What happens when things go wrong: mistakes in calls, ranks that die, jobs that hang, mpiexec
asked for nonsense, machines with too little of something. Run by tests/run; each case asserts
the exit status, the words of the message, the time it takes, and that no process is left."""

import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import time

from faults.files import Files

HERE = pathlib.Path(__file__).resolve().parent


def processes(name):
    """Process ids of everything that runs a program with this name."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "exe").resolve().name == name and (entry / "stat").read_text().rsplit(
                    ")", 1
                )[1].split()[0] != "Z":
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


class Cases:
    def __init__(self, mpi, run_job, tally, only):
        self.mpi, self.run_job, self.tally, self.only = mpi, run_job, tally, only
        self.die, self.misuse = mpi.build / f"die-{os.getpid()}", mpi.build / "misuse"
        plain = mpi.build / "die"
        for source, out in ((HERE / "die.c", plain), (HERE / "misuse.c", self.misuse)):
            error = mpi.compile([source], out)
            if error:
                tally.add(f"faults/{source.stem} (build)", "does not compile", error)
        if (
            plain.exists()
        ):  # a name of its own, so that what is left of it can be told from other runs' processes
            self.die.unlink(missing_ok=True)
            os.link(plain, self.die)

    def mpiexec(self, *arguments, limit=20.0, environment=None, prepare=None):
        command = [str(self.mpi.mpiexec), *map(str, arguments)]
        env = dict(os.environ, **(environment or {}))
        with tempfile.TemporaryDirectory(prefix="ferry-fault-") as scratch:
            if prepare:
                start = time.monotonic()
                try:
                    done = subprocess.run(
                        command,
                        cwd=scratch,
                        env=env,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        timeout=limit,
                        preexec_fn=prepare,
                    )
                    return (
                        done.returncode,
                        done.stdout.decode(errors="replace"),
                        time.monotonic() - start,
                    )
                except subprocess.TimeoutExpired as late:
                    return None, (late.stdout or b"").decode(errors="replace"), limit
            return self.run_job(command, limit, scratch, env)

    def case(
        self,
        name,
        result,
        status=None,
        words=(),
        without=(),
        within=None,
        nothing_left=True,
        quiet=False,
    ):
        """Judges one result; `status` is a number, a set of numbers or "bad" for anything but 0."""
        code, output, seconds = result
        problem = None
        if code is None:
            problem = "did not end"
        elif status == "bad" and code == 0:
            problem = "exit status 0"
        elif isinstance(status, (int, set)) and code not in (
            status if isinstance(status, set) else {status}
        ):
            problem = f"exit status {code}, should be {status}"
        for word in words:
            if problem is None and not re.search(word, output, re.I):
                problem = f"the message does not say /{word}/"
        for word in without:
            if problem is None and re.search(word, output, re.I):
                problem = f"the message says /{word}/"
        if problem is None and quiet and output.strip():
            problem = "printed something"
        if problem is None and within is not None and seconds > within:
            problem = f"took {seconds:.1f} s, should take at most {within}"
        if problem is None and nothing_left:
            end = time.monotonic() + 0.5
            while processes(self.die.name) and time.monotonic() < end:
                time.sleep(0.02)
            left = processes(self.die.name)
            if left:
                problem = f"processes are left: {left}"
        for pid in processes(self.die.name):
            os.kill(pid, signal.SIGKILL)
        self.tally.add(f"faults/{name}", problem, output, seconds)

    def files(self):
        Files(self).run()

    def wanted(self, group):
        return not self.only or group in self.only

    # Mistakes in calls.

    FATAL = {
        "bad_rank": ("MPI_Send", "dest", "5"),
        "negative_rank": ("MPI_Send", "dest", "-77"),
        "bad_tag": ("MPI_Send", "tag", "-9"),
        "bad_count": ("MPI_Send", "count", "-4"),
        "null_type": ("MPI_Send", "datatype", "MPI_DATATYPE_NULL"),
        "not_committed": ("MPI_Send", "datatype", "commit"),
        "null_comm": ("MPI_Send", "comm", "MPI_COMM_NULL"),
        "null_buffer": ("MPI_Send", "buf"),
        "bad_root": ("MPI_Bcast", "root", "3"),
        "null_op": ("MPI_Allreduce", "op", "MPI_OP_NULL"),
        "op_for_type": ("MPI_Allreduce", "MPI_BXOR", "MPI_FLOAT"),
        "null_request": ("MPI_Start", "request"),
        "truncated": ("MPI_Recv", "40", "16"),
        "truncated_large": ("MPI_Recv", "400000", "1000"),
        "null_displs": ("MPI_Allgatherv", "displs is null"),
        "null_rdispls": ("MPI_Alltoallw", "rdispls is null"),
        "null_in_startall": ("MPI_Startall", "array_of_requests[1]", "MPI_REQUEST_NULL"),
        "active_in_startall": ("MPI_Startall", "array_of_requests[1]", "active already"),
        "predefined_keyval": ("MPI_Comm_set_attr", "keyval 501 is predefined"),
        "own_block": ("MPI_Waitall", "array_of_requests[1]", "MPI_Ialltoall", "16 bytes", "8 by"),
        "freed_comm": ("MPI_Barrier", "comm"),
        "bad_color": ("MPI_Comm_split", "color", "-6"),
    }

    def mistakes(self):
        for ranks in (1, 2, 3):
            self.case(
                f"misuse returns its classes on {ranks}",
                self.mpiexec("-n", ranks, self.misuse),
                status=0,
                quiet=True,
            )
        for name, words in self.FATAL.items():
            result = self.mpiexec("-n", 2, self.misuse, name)
            self.case(
                f"misuse {name} is fatal",
                result,
                status="bad",
                words=[r"rank 1\b", *map(re.escape, words)],
                without=["still alive"],
                within=3,
            )
        self.case(
            "misuse under MPI_ERRORS_ABORT ends the job",
            self.mpiexec("-n", 3, self.misuse, "bad_rank", "abort"),
            status="bad",
            words=[r"rank 2\b", "MPI_Send", "dest"],
            without=["still alive"],
            within=3,
        )

    # Backtraces of ranks that end by a signal.

    def backtraces(self):
        die = self.die
        for how, status, cause in (
            ("segv", 139, r"SIGSEGV, invalid memory access at 0x8"),
            ("bus", 135, r"SIGBUS, memory that cannot be reached"),
            ("ill", 132, r"SIGILL, invalid instruction"),
            ("fpe", 136, r"SIGFPE, arithmetic error"),
            ("assert", 134, r"SIGABRT, abort"),
            ("overflow", 139, r"SIGSEGV, invalid memory access"),
        ):
            self.case(
                f"backtrace of {how}",
                self.mpiexec("-n", 3, die, how),
                status=status,
                words=[rf"rank 2 of 3 \(pid \d+\): {cause}", r"die-\d+\(.*\[0x"],
                within=2.5,
            )
            self.case(
                f"no backtrace of {how} with FERRY_BACKTRACE=0",
                self.mpiexec("-n", 3, die, how, environment={"FERRY_BACKTRACE": "0"}),
                status=status,
                without=["backtrace"],
                within=2.5,
            )
        for how in ("own-handler", "own-handler-later"):
            self.case(
                f"no backtrace with the program's {how}",
                self.mpiexec("-n", 3, die, how),
                status=3,
                words=["own handler"],
                without=["backtrace"],
                within=2.5,
            )
        self.case(
            "backtrace of a thread",
            self.mpiexec("-n", 3, die, "segv-thread"),
            status=139,
            words=[r"rank 2 of 3 \(pid \d+\): SIGSEGV", r"die-\d+\(.*\[0x"],
            within=2.5,
        )
        self.case(
            "backtrace beside guards by mprotect",
            self.mpiexec(
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
        self.case(
            "backtrace without mpiexec",
            self.alone("segv"),
            status=-11,
            words=[r"rank 0 of 1 \(pid \d+\): SIGSEGV"],
        )

    # Ranks that die.

    def deaths(self):
        die, host = self.die, re.escape(os.uname().nodename)
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
                self.case(
                    f"{how} on {ranks}",
                    self.mpiexec("-n", ranks, die, how),
                    status=status,
                    words=[*last, cause],
                    within=2.5,
                )
        self.case(
            "what was printed before an abort is not lost",
            self.mpiexec("-n", 2, die, "abort-said"),
            status=42,
            words=["last words", "MPI_Abort"],
            within=2.5,
        )
        self.case(
            "abort with code 0",
            self.mpiexec("-n", 2, die, "abort0"),
            status=0,
            within=2.5,
            words=["MPI_Abort"],
        )
        self.case(
            "abort of one's own communicator",
            self.mpiexec("-n", 2, die, "abort-self"),
            status=5,
            words=["MPI_Abort"],
            within=2.5,
        )
        self.case(
            "killed with a child of its own",
            self.mpiexec("-n", 2, die, "children"),
            status=137,
            within=2.5,
        )
        thread = {"FERRY_PROGRESS": "thread"}
        for how, status, cause in (
            ("abort", 42, "MPI_Abort"),
            ("exit", "bad", r"finali[sz]"),
            ("kill", 137, r"SIGKILL|signal 9|killed"),
        ):
            result = self.mpiexec("-n", 3, die, how, environment=thread)
            self.case(
                f"{how} with a progress thread",
                result,
                status=status,
                words=[*named, cause],
                within=2.5,
            )
        self.case(
            "all is well with a progress thread",
            self.mpiexec("-n", 3, die, "fine", environment=thread),
            status=0,
            quiet=True,
            within=5,
        )
        self.case(
            "an exit status after finalizing",
            self.mpiexec("-n", 3, die, "return"),
            status=9,
            within=5,
        )
        self.case("all is well", self.mpiexec("-n", 3, die, "fine"), status=0, quiet=True, within=5)
        self.case("killed without mpiexec", self.alone("kill"), status=-9)
        self.case(
            "printed and aborted without mpiexec",
            self.alone("abort-said"),
            status=42,
            words=["last words"],
        )
        self.case("aborted without mpiexec", self.alone("abort"), status=42)
        self.killed_launcher()
        self.killed_by_hand()
        self.interrupted()

    def alone(self, how):
        with tempfile.TemporaryDirectory() as scratch:
            return self.run_job([str(self.die), how], 10, scratch)

    def waiting_job(self, *more):
        """A job of three whose ranks print their process ids and then wait for each other for
        ever."""
        job = subprocess.Popen(
            [str(self.mpi.mpiexec), *more, "-n", "3", str(self.die), "busy"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        end = time.monotonic() + 10
        while len(processes(self.die.name)) < 3 and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.3)
        return job

    def end_of(self, job, start):
        try:
            output, _ = job.communicate(timeout=10)
            return job.returncode, output.decode(errors="replace"), time.monotonic() - start
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            return None, job.communicate()[0].decode(errors="replace"), time.monotonic() - start

    def killed_launcher(self):
        job = self.waiting_job()
        start = time.monotonic()
        job.send_signal(signal.SIGKILL)
        self.case("mpiexec killed", self.end_of(job, start), status=-9, within=2)

    def killed_by_hand(self):
        job = self.waiting_job()
        victims = processes(self.die.name)
        start = time.monotonic()
        if victims:
            os.kill(victims[0], signal.SIGKILL)
        self.case(
            "a rank killed from outside",
            self.end_of(job, start),
            status=137,
            words=[str(victims[0]) if victims else "pid"],
            within=1.2,
        )

    def interrupted(self):
        for sent in (signal.SIGINT, signal.SIGTERM):
            job = self.waiting_job()
            start = time.monotonic()
            job.send_signal(sent)
            self.case(
                f"mpiexec gets {sent.name}",
                self.end_of(job, start),
                status={128 + sent, -sent},
                within=3,
            )

    # Jobs that hang.

    # Calls that do not match: of die.c, and what the message names.
    MISMATCHES = (
        ("bcast-reduce", "MPI_Bcast with root 0", "MPI_Reduce with root 0"),
        ("bcast-roots", "MPI_Bcast with root 0", "MPI_Bcast with root [13]"),
        ("gather-roots", "MPI_Gather with root 0", "MPI_Gather with root 1"),
        ("allreduce-barrier", "MPI_Allreduce", "MPI_Barrier"),
        ("window", "MPI_Allreduce", "a call that makes a window"),
        ("dup", "my own.*MPI_(Bcast|Reduce) with root 0", "MPI_(Bcast|Reduce) with root 0"),
    )

    def hangs(self):
        die = self.die
        self.case(
            "two receives facing each other",
            self.mpiexec("-n", 2, die, "face"),
            status="bad",
            within=6,
            words=["MPI_Recv", "rank", r"\b17\b", "receiv"],
        )
        self.case(
            "everybody receives first",
            self.mpiexec("-n", 4, die, "ring"),
            status="bad",
            within=6,
            words=["MPI_Recv"],
        )
        self.case(
            "receives that are waited for",
            self.mpiexec("-n", 2, die, "awaited"),
            status="bad",
            within=6,
            words=[
                r"MPI_Wait +MPI_COMM_WORLD +rank 1 +23",
                "ranks 0 and 1 wait for each other, all receiving",
            ],
        )
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
            self.case(
                f"one-sided communication: {how}",
                self.mpiexec("-n", 3, die, f"window-{how}", 2),
                status="bad",
                within=6,
                words=words,
            )
        self.case(
            "a rank that dies with a lock",
            self.mpiexec("-n", 3, die, "window-death", 2),
            status="bad",
            within=6,
            words=["rank 2.*(SIGKILL|signal 9)"],
        )
        self.case(
            "a collective that one rank did not enter",
            self.mpiexec("-n", 3, die, "missing"),
            status="bad",
            within=6,
            words=["MPI_Allreduce", "MPI_Recv", "enter|collective"],
        )
        self.case(
            "a non-blocking collective that one rank did not start",
            self.mpiexec("-n", 3, die, "missing-request"),
            status="bad",
            within=8,
            words=[
                "0, 1  MPI_Wait +MPI_COMM_WORLD +collective #2",
                "ranks 0, 1 wait in MPI_Wait for collective #2 on MPI_COMM_WORLD, which not all",
            ],
        )
        self.case(
            "another collective",
            self.mpiexec("-n", 3, die, "other"),
            status="bad",
            within=8,
            words=["collective"],
        )
        for wires in ("shm", "tcp"):
            forced = {"FERRY_TRANSPORTS": wires}
            self.case(
                f"another collective of as many bytes, {wires}",
                self.mpiexec("-n", 2, die, "mixed", environment=forced),
                status="bad",
                within=6,
                words=[
                    "is in MPI_Iall(gather|reduce) where this rank is in MPI_Iall(gather|reduce)"
                ],
            )
            self.case(
                f"a collective that blocks with one that does not, {wires}",
                self.mpiexec("-n", 2, die, "forms", environment=forced),
                status="bad",
                within=6,
                words=["MPI_Barrier", "MPI_Ibarrier"],
            )
            for calls, first, second in self.MISMATCHES:
                for ranks in (2, 4):
                    for before in (0, 4):  # with 4, small collectives have a board in shared memory
                        how = ["-n", ranks, die, f"mismatch-{calls}", ranks - 1, before]
                        self.case(
                            f"{calls} on {ranks} after {before}, {wires}",
                            self.mpiexec(*how, environment=forced),
                            status="bad",
                            within=6,
                            words=[first, second, "same collectives in the same order"],
                        )
            for call in ("allreduce", "alltoall", "bcast", "iallreduce"):
                for ranks in (2, 4):
                    self.case(
                        f"{call} with lengths that differ on {ranks}, {wires}",
                        self.mpiexec(
                            "-n", ranks, die, f"lengths-{call}", ranks - 1, environment=forced
                        ),
                        status="bad",
                        within=6,
                        words=[f"MPI_ERR_TRUNCATE: rank [0-9] sent [0-9]+ bytes in MPI_{call}"],
                    )
            self.case(
                f"messages that are never received, {wires}",
                self.mpiexec("-n", 2, die, "unreceived", environment=forced),
                status=0,
                within=6,
                words=["rank 0.*MPI_Finalize.*2 messages.*4 bytes from rank 1 with tag 8"],
            )
        # The data of one may lie where the other's signature is: then it is not named.
        self.case(
            "a barrier where others are in an alltoall that fills several slots of their board",
            self.mpiexec("-n", 16, die, "mismatch-alltoall-barrier", 15, 4),
            status="bad",
            within=6,
            words=["MPI_(Alltoall|Barrier)", "same collectives in the same order"],
        )
        self.case(
            "a peer that has finished",
            self.mpiexec("-n", 3, die, "gone"),
            status="bad",
            within=6,
            words=["MPI_Recv", "finish|finali[sz]"],
        )
        self.case(
            "generalised requests that nobody completes",
            self.mpiexec("-n", 2, die, "general"),
            status="bad",
            within=6,
            words=[
                "rank 1 waits in MPI_Waitall for generalised requests",
                "its own program",
                "MPI_THREAD_MULTIPLE",
            ],
            without=["no rank will send"],
        )
        self.case(
            "groups that are merged in two orders",
            self.mpiexec("-n", 4, die, "merge"),
            status="bad",
            within=6,
            words=[
                "rank 3 of 4: MPI_Intercomm_merge",
                "MPI_ERR_ARG",
                "high is true, but the leader",
            ],
        )
        self.case(
            "a message with another tag",
            self.mpiexec("-n", 2, die, "tag"),
            status="bad",
            within=6,
            words=["MPI_Recv", r"\b9\b"],
        )
        for how, words in (
            ("face", ["MPI_Recv", r"\b17\b"]),
            ("missing", ["MPI_Allreduce", "MPI_Recv"]),
        ):
            result = self.mpiexec("-n", 2, die, how, environment={"FERRY_PROGRESS": "thread"})
            self.case(f"{how} with a progress thread", result, status="bad", within=6, words=words)
        for how in ("face", "join", "both", "last"):
            for wires in ("shm", "tcp"):
                result = self.mpiexec(
                    "-n", 2, die, f"threads-{how}", environment={"FERRY_TRANSPORTS": wires}
                )
                self.case(
                    f"threads that all wait ({how}, {wires})",
                    result,
                    status=125,
                    within=6,
                    words=["MPI_Recv", r"\b17\b"],
                )
            result = self.mpiexec(
                "-n", 2, die, f"threads-{how}", environment={"FERRY_PROGRESS": "thread"}
            )
            self.case(
                f"threads that all wait ({how}) and a progress thread",
                result,
                status=125,
                within=6,
                words=["MPI_Recv", r"\b17\b"],
            )
        self.case(
            "a thread outside of MPI that will send",
            self.mpiexec("-n", 2, die, "threads-late"),
            status=0,
            quiet=True,
            within=8,
        )
        self.case(
            "a long wait is no hang",
            self.mpiexec("-n", 3, die, "wait-long"),
            status=0,
            quiet=True,
            within=8,
        )
        self.case(
            "the time limit",
            self.mpiexec("--timeout", 1, "-n", 2, die, "busy"),
            status="bad",
            within=4,
            words=["time"],
        )
        job = self.waiting_job()
        start = time.monotonic()
        job.send_signal(signal.SIGQUIT)
        self.case("Ctrl-\\", self.end_of(job, start), status="bad", words=["rank"], within=4)

    # mpiexec asked for what it cannot do.

    def commands(self):
        one_line = r"\A[^\n]+\n?\Z"
        self.case(
            "a missing program",
            self.mpiexec("-n", 2, "no-such-program-here"),
            status="bad",
            words=["no-such-program-here", one_line],
            within=2,
        )
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "not-executable"
            text.write_text("hello\n")
            self.case(
                "a program that is none",
                self.mpiexec("-n", 2, text),
                status="bad",
                words=["not-executable", one_line],
                within=2,
            )
        self.case(
            "no ranks",
            self.mpiexec("-n", 0, self.die, "fine"),
            status="bad",
            words=[r"\b0\b", one_line],
            within=2,
        )
        self.case(
            "negative ranks",
            self.mpiexec("-n", "-3", self.die, "fine"),
            status="bad",
            words=["-3"],
            within=2,
        )
        self.case(
            "ranks that are no number",
            self.mpiexec("-n", "two", self.die, "fine"),
            status="bad",
            words=["two"],
            within=2,
        )
        self.case(
            "an unknown option",
            self.mpiexec("--sail-fast", "-n", 2, self.die, "fine"),
            status="bad",
            words=["--sail-fast"],
            within=2,
        )
        self.case(
            "no program at all", self.mpiexec("-n", 2), status="bad", words=["program"], within=2
        )
        self.case(
            "two programs",
            self.mpiexec("-n", 1, self.die, "fine", ":", "-n", 2, self.die, "fine"),
            status=0,
            quiet=True,
            within=5,
        )

    # Too little of something.

    def limits(self):
        def files(n):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))

        def memory(megabytes):
            return lambda: resource.setrlimit(
                resource.RLIMIT_AS, (megabytes << 20, megabytes << 20)
            )

        self.case(
            "32 ranks with 64 open files",
            self.mpiexec("-n", 32, self.die, "fine", prepare=files(64)),
            status="bad",
            words=["open files|RLIMIT_NOFILE|nofile|descriptor"],
            within=5,
        )
        self.case(
            "4 ranks with 64 open files",
            self.mpiexec("-n", 4, self.die, "fine", prepare=files(64)),
            status=0,
            within=5,
        )
        result = self.mpiexec("-n", 2, self.die, "fine", prepare=memory(24))
        self.case(
            "24 MB of address space",
            result,
            without=["SIGBUS", "SIGSEGV", "panicked"],
            words=[] if result[0] == 0 else ["memory|RLIMIT_AS|address space"],
            within=5,
        )
        result = self.mpiexec("-n", 2, "sh", "-c", f"ulimit -v 20000; exec {self.die} fine")
        self.case(
            "20 MB of address space for each rank",
            result,
            without=["SIGBUS", "SIGSEGV", "panicked"],
            words=[] if result[0] == 0 else ["memory|RLIMIT_AS|address space|failed to map"],
            within=5,
        )
        result = self.mpiexec("-n", 2, "sh", "-c", f"exec {self.die} fine >&-")
        self.case("standard output closed in the ranks", result, status=0, within=5)
        for how in ("closes", "reopens"):
            self.case(
                f"a program that {how} descriptors of MPI's",
                self.mpiexec("-n", 3, self.die, how),
                status="bad",
                words=["MPI_Allreduce", "the program has closed a descriptor"],
                without=["hangs", "SIGBUS"],
                within=5,
            )
        read, write = os.pipe()
        os.close(read)
        start = time.monotonic()
        job = subprocess.Popen(
            [str(self.mpi.mpiexec), "-n", "2", str(self.die), "pids"],
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
        self.case("nobody reads standard output", result, without=["panicked"], within=8)

    # Programs of other MPIs.

    def other_mpi(self):
        with tempfile.TemporaryDirectory(prefix="ferry-other-mpi-") as scratch:
            self.other_mpi_in(pathlib.Path(scratch))

    def other_mpi_in(self, folder):
        """With a library and a program that look like another MPI's."""
        (folder / "lib.c").write_text(
            "int MPI_Init(int *c, char ***v) { return c == 0 && v == 0; }"
        )
        (folder / "main.c").write_text(
            "#include <unistd.h>\nint MPI_Init(int *, char ***);\nint main(int argc, char **argv) {"
            " MPI_Init(&argc, &argv); return argc > 1 && sleep(1); }"
        )
        shared = ["-shared", "-fPIC", "-Wl,-soname,libmpi.so.20", "lib.c", "-o", "libmpi.so.20"]
        linked = ["main.c", "libmpi.so.20", "-Wl,-rpath,$ORIGIN", "-o", "foreign"]
        for arguments in (shared, linked):
            subprocess.run(["cc", *arguments], cwd=folder, check=True)
        program = folder / "foreign"
        refused = [r"foreign is linked with libmpi\.so\.20", "mpicc", "--allow-other-mpi"]
        noted = ["none of the 2 ranks called MPI_Init", r"libmpi\.so\.20"]
        start = self.mpiexec
        self.case("another MPI's program", start("-n", 2, program), status=126, words=refused)
        # The first program must not have started, either.
        blocks = start("-n", 1, "echo", "here", ":", "-n", 1, program)
        self.case(
            "another MPI's program in a block", blocks, status=126, words=refused, without=["^here"]
        )
        allowed = start("--allow-other-mpi", "-n", 2, program)
        self.case("another MPI's program, allowed", allowed, status=0, words=noted)
        alone = start("--allow-other-mpi", "-n", 1, program)
        self.case("another MPI's program, one rank", alone, status=0, without=["MPI_Init"])
        behind_env = start("-n", 2, "env", program)
        self.case("another MPI's program behind env", behind_env, status=0, words=noted)
        behind_shell = start("-n", 2, "sh", "-c", f"{program} 1; true")
        self.case("another MPI's program behind a shell", behind_shell, status=0, words=noted)
        for command in (["hostname"], ["sh", "-c", "sleep 0.6"]):
            quiet = start("-n", 2, *command)
            self.case(f"{command[0]} is no MPI program", quiet, status=0, without=["MPI_Init"])


def run(mpi, run_job, tally, options):
    cases = Cases(mpi, run_job, tally, set(filter(None, options.only.split(","))))
    groups = (
        "mistakes",
        "deaths",
        "backtraces",
        "hangs",
        "commands",
        "other_mpi",
        "limits",
        "files",
    )
    for group in groups:
        if cases.wanted(group):
            getattr(cases, group)()
    cases.die.unlink(missing_ok=True)

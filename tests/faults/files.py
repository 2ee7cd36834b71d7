"""Faults of files: a missing one, no permission, a full or read-only file system, a limit of the
shell, a file that somebody shortens, signals all the time, and ranks that die while they write.

File systems are mounted in a mount namespace of the job."""

import os
import pathlib
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 3
# As in files.c.
PIECE, PIECES, BEGIN = 64, 16 * 1024, 1000

SMALL = 'mkdir small && mount -t tmpfs -o size=300k tmpfs small && exec "$@"'
READ_ONLY = (
    "mkdir small && mount -t tmpfs -o size=300k tmpfs small && echo text >small/here && "
    'mount -o remount,ro small && exec "$@"'
)


def mounted(script):
    """The start of a command in a mount namespace, after this script."""
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own, "--mount", "--", "sh", "-c", script, "sh"]


class Files:
    def __init__(self, cases):
        self.cases, self.program = cases, cases.mpi.build / "files"
        error = cases.mpi.compile([HERE / "files.c"], self.program)
        if error:
            cases.tally.add("faults/files (build)", "does not compile", error)

    def start(self, folder, *how, before=(), limit=30.0):
        command = [str(self.cases.mpi.mpiexec), "-n", str(RANKS), str(self.program), *how]
        return self.cases.run_job([*before, *command], limit, folder)

    def case(self, name, *how, words, before=(), prepare=None, each=True):
        """All ranks say these words, if `each`; otherwise one does."""
        with tempfile.TemporaryDirectory(prefix="ferry-fault-") as folder:
            os.chmod(folder, 0o755)
            if prepare:
                prepare(pathlib.Path(folder))
            result = self.start(folder, *how, before=before)
        said = [line for line in result[1].splitlines() if line.startswith("rank ")]
        ranks = {line.split(":")[0] for line in said if words[0] in line}
        self.cases.case(f"files: {name}", result, status=0, words=words[1:], within=20)
        if each and len(ranks) != RANKS:
            self.cases.tally.add(
                f"faults/files: {name}", f"only {sorted(ranks)} say {words[0]}", result[1]
            )

    def killed(self, progress, *more):
        """What does not belong to the ranks stays as it was."""
        tile = PIECE * (RANKS + 1)
        length = BEGIN + PIECES * tile + 5000
        with tempfile.TemporaryDirectory(prefix="ferry-fault-") as folder:
            path = pathlib.Path(folder) / "killed"
            path.write_bytes(b"." * length)
            result = self.start(folder, "killed", str(progress), *more)
            after = path.read_bytes()
        wrong = None
        if len(after) != length:
            wrong = f"the file has {len(after)} bytes, had {length}"
        elif set(after[:BEGIN] + after[BEGIN + PIECES * tile :]) != {ord(".")}:
            wrong = "bytes before or after the write have changed"
        else:
            for owner in range(RANKS + 1):
                allowed = {ord("."), ord("A") + owner} if owner < RANKS else {ord(".")}
                for n in range(PIECES):
                    at = BEGIN + n * tile + owner * PIECE
                    if not set(after[at : at + PIECE]) <= allowed:
                        wrong = wrong or f"byte {at} and following are those of another"
        how = "by data sieving" if more else "in two phases"
        name = f"files: killed {how} after {progress} calls"
        self.cases.case(name, result, status=137, words=["SIGKILL|signal 9"], within=20)
        self.cases.tally.add(f"faults/{name}: the rest of the file", wrong)

    def run(self):
        def closed(folder):
            (folder / "closed").write_text("nobody reads this")
            (folder / "closed").chmod(0o600 if os.geteuid() == 0 else 0)

        none, small = "No such file", mounted(SMALL)
        self.case("missing", "missing", words=["open:", none, "of missing"])
        denied = "Permission denied"
        self.case("no permission", "permission", prepare=closed, words=[denied, "open of closed"])
        if os.geteuid() == 0:
            words = [denied, "on rank 2: open of closed"]
            self.case("no permission on one rank", "permission-of-one", prepare=closed, words=words)
        words = ["Read-only", "open of small/file", "unlink of small/here"]
        self.case("read-only", "read-only", before=mounted(READ_ONLY), words=words)
        place = r"pwrite of \d+ bytes at offset \d+ of small/file: No space left.*free some space"
        for how in ("two-phases", "pending", "split", "independent", "ordered"):
            words = ["MPI_ERR_NO_SPACE", place, "small/file"]
            self.case(f"full, {how}", "full", how, before=small, words=words)
        words = ["MPI_ERR_NO_SPACE", "fallocate of 104857600 bytes .* of small/file"]
        self.case("full, preallocated", "full", "preallocate", before=small, words=words)
        words = ["MPI_ERR_IO", r"pwrite of \d+ bytes at offset \d+ of long: .*ulimit -f"]
        self.case("too long", "too-long", words=words)
        words = ["MPI_ERR_IO", r"pread of \d+ bytes at offset \d+ of shortened: .*shorter"]
        self.case("shortened", "shortened", words=words)
        self.case("signals", "interrupted", words=[""], each=False)
        for progress in (0, 1, 20, 400):
            self.killed(progress)
        for progress in (0, 20):
            self.killed(progress, "sieve")


def files(cases):
    Files(cases).run()

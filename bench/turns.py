"""Jobs that take turns: all are started, and then each measures one figure after the other,
while the ranks of all others wait in read(2) and need no core (take_turn in measure.h). What is
compared is measured within seconds of each other, however long the programs run: the speed of a
machine that others use as well changes from one minute to the next."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time

WAITING = b"waiting\n"


class Job:
    """One MPI's run of a program. `name`: whose; `output`: what it said; `wrong`: what became of
    it, "" if all is well."""

    def __init__(self, name, command, environment, ranks):
        self.name, self.command, self.environment, self.ranks = name, command, environment, ranks
        self.said, self.wrong, self.process = b"", "", None

    @property
    def output(self):
        return self.said.decode(errors="replace")

    def start(self, folder, limit):
        """Returns when all ranks wait for their first turn."""
        self.pipe = folder / self.name
        os.mkfifo(self.pipe)
        self.turns = os.open(self.pipe, os.O_RDWR)
        self.process = subprocess.Popen(
            self.command,
            cwd=folder,
            env={**self.environment, "BENCH_TURNS": str(self.pipe)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.until_it_waits(limit)

    def turn(self, limit):
        """Lets it measure one figure. Returns whether it is still there."""
        os.write(self.turns, b"x" * self.ranks)
        return self.until_it_waits(limit)

    def until_it_waits(self, limit):
        end, seen = time.monotonic() + limit, len(self.said)
        source = self.process.stdout.fileno()
        while WAITING not in self.said[seen:]:
            left = end - time.monotonic()
            if left <= 0 or not select.select([source], [], [], left)[0]:
                self.wrong = f"did not end in {limit:.0f} s"
                self.end()
                return False
            piece = os.read(source, 1 << 16)
            if not piece:
                return False
            self.said += piece
        return True

    def end(self):
        """Takes what is left of it away: on both hosts every process that was told of its turns."""
        if self.process is None:
            return
        mark = f"BENCH_TURNS={self.pipe}".encode()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)

    def close(self):
        if self.process is None:
            return
        try:
            code = self.process.wait(0 if self.wrong else 10)
            if code != 0:
                self.wrong = self.wrong or "failed"
        except subprocess.TimeoutExpired:
            self.wrong = self.wrong or "did not end"
            self.end()
            self.process.wait()
        self.process.stdout.close()
        os.close(self.turns)


def take(jobs, limit):
    """Runs all of them, and returns them. `limit`: seconds for one turn. A job that fails or
    takes longer leaves out what it had not said by then."""
    with tempfile.TemporaryDirectory(prefix="ferry-turns-") as folder:
        try:
            for job in jobs:
                job.start(pathlib.Path(folder), limit)
            there = [job for job in jobs if not job.wrong]
            while there:
                there = [job for job in there if job.turn(limit)]
        except BaseException:
            for job in jobs:
                job.end()
            raise
        finally:
            for job in jobs:
                job.close()
    return jobs

"""Runs several MPIs in turn, so that what is compared is measured within seconds of each other.

All jobs are started first. Then each job measures one figure, while the ranks of all others wait in
read(2) and need no core (take_turn in measure.h). A machine that others use, too, changes its speed
from one minute to the next; this affects all jobs alike."""

import os
import pathlib
import select
import subprocess
import tempfile
import time

from ending import end_all

WAITING = b"waiting\n"


class Job:
    """One MPI's run of a program. `name` is the MPI, `output` what the run has printed, and `error`
    why it failed, or "". `endless`: it takes part as long as others do."""

    def __init__(self, name, command, environment, ranks, endless=False):
        self.name, self.command, self.environment, self.ranks = name, command, environment, ranks
        self.endless = endless
        self.printed, self.error, self.process = b"", "", None

    @property
    def output(self):
        return self.printed.decode(errors="replace")

    @property
    def by_turn(self):
        """What it has printed in each of its turns."""
        return self.output.split(WAITING.decode())[1:]

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
        end, seen = time.monotonic() + limit, len(self.printed)
        source = self.process.stdout.fileno()
        while WAITING not in self.printed[seen:]:
            left = end - time.monotonic()
            if left <= 0 or not select.select([source], [], [], left)[0]:
                self.error = f"did not end in {limit:.0f} s"
                self.end()
                return False
            piece = os.read(source, 1 << 16)
            if not piece:
                return False
            self.printed += piece
        return True

    def end(self):
        """Takes what is left of it away: on both hosts every process that was told of its turns."""
        if self.process is None:
            return
        end_all(self.process, f"BENCH_TURNS={self.pipe}")

    def close(self):
        if self.process is None:
            return
        try:
            code = self.process.wait(0 if self.error else 10)
            if code != 0 and not self.endless:
                self.error = self.error or "failed"
        except subprocess.TimeoutExpired:
            self.error = self.error or "did not end"
            self.end()
            self.process.wait()
        self.process.stdout.close()
        os.close(self.turns)


def take(jobs, limit):
    """Runs all of them, and returns them. `limit`: seconds for one turn. A job that fails or
    takes longer leaves out the rest."""
    with tempfile.TemporaryDirectory(prefix="ferry-turns-") as folder:
        try:
            for job in jobs:
                job.start(pathlib.Path(folder), limit)
            there = [job for job in jobs if not job.error]
            while not all(job.endless for job in there):
                there = [job for job in there if job.turn(limit)]
            for job in there:
                job.end()
        except BaseException:
            for job in jobs:
                job.end()
            raise
        finally:
            for job in jobs:
                job.close()
    return jobs

"""A job across hosts: mpiexec running beside the test, which reads what it says as it says it."""

import os
import re
import signal
import subprocess
import tempfile
import threading
import time


class Job:
    """`arguments` are mpiexec's behind --hosts and --launcher; `hosts` is like "h1:2,h2:2"."""

    def __init__(
        self,
        mpi,
        network,
        hosts,
        *arguments,
        environment=None,
        within=None,
        number=None,
        launcher=None
    ):
        number = number or sum(int(h.partition(":")[2] or 1) for h in hosts.split(","))
        command = [
            str(mpi.mpiexec),
            "--hosts",
            hosts,
            "--launcher",
            launcher or network.launcher(),
            "-n",
            str(number),
            *map(str, arguments),
        ]
        if within is not None:  # mpiexec itself runs in this host's network and under its name
            command = ["nsenter", "--target", str(within.pid), "--net", "--uts", "--", *command]
        self.directory = tempfile.TemporaryDirectory(prefix="ferry-net-job-")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=self.directory.name,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.lines, self.news = [], threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line)
                self.news.notify_all()
        with self.news:
            self.lines.append(None)
            self.news.notify_all()

    @property
    def output(self):
        return "".join(line for line in self.lines if line is not None)

    def says(self, pattern, limit=20.0):
        """Waits until a line matches; returns whether one did before the job's end and the
        limit."""
        end = time.monotonic() + limit
        with self.news:
            while True:
                if any(line is not None and re.search(pattern, line) for line in self.lines):
                    return True
                left = end - time.monotonic()
                if left <= 0 or (self.lines and self.lines[-1] is None):
                    return False
                self.news.wait(left)

    def end(self, limit=60.0):
        """Waits for the end; (status or None if it had to be killed, output, seconds since
        `since` or the start)."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
            for number, patience in (
                (signal.SIGQUIT, 3),
                (signal.SIGTERM, 2),
                (signal.SIGKILL, None),
            ):
                try:
                    os.killpg(self.process.pid, number)
                    self.process.wait(patience)
                    break
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue
        seconds = time.monotonic() - self.started
        self.reader.join(5)
        self.directory.cleanup()
        return status, self.output, seconds

"""How a case is run and judged: each asserts the exit status, the words of the message, the time it
takes, and that no process is left."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

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
    def __init__(self, mpi, run_job, tally):
        self.mpi, self.run_job, self.tally = mpi, run_job, tally
        self.die, self.misuse = mpi.build / f"die-{os.getpid()}", mpi.build / "misuse"
        self.objects = mpi.build / "objects"
        plain = mpi.build / "die"
        sources = (("die.c", plain), ("misuse.c", self.misuse), ("objects.c", self.objects))
        for source, out in ((HERE / name, out) for name, out in sources):
            error = mpi.compile([source], out)
            if error:
                tally.add(f"faults/{source.stem} (build)", "does not compile", error)
        # A name of its own tells what is left of it from other runs' processes.
        if plain.exists():
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

    def job(self, name, ranks, *how, environment=None, prepare=None, **expected):
        """Runs die.c on so many ranks and judges what came of it."""
        result = self.mpiexec("-n", ranks, self.die, *how, environment=environment, prepare=prepare)
        self.case(name, result, **expected)

    def alone(self, how):
        """die.c without mpiexec."""
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
        """Waits for a job of `waiting_job`: exit status, output, seconds since `start`."""
        try:
            output, _ = job.communicate(timeout=10)
            return job.returncode, output.decode(errors="replace"), time.monotonic() - start
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            return None, job.communicate()[0].decode(errors="replace"), time.monotonic() - start

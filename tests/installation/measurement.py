"""A measurement that is told to end (SIGTERM) ends what it has started (bench/ending.py), also a
process that has left the job's process group."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
JOB = "setsid sleep 60 & echo $! $$ >$1; wait"
MEASUREMENT = f"""
import os, sys
sys.path.insert(0, {str(BENCH)!r})
import ending
ending.on_signals()
ending.run(["sh", "-c", {JOB!r}, "sh", sys.argv[1]], 50, "/", dict(os.environ))
"""


def lives(pid):
    """Whether the process is there and not only waits to be collected."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


with tempfile.TemporaryDirectory() as folder:
    started = pathlib.Path(folder) / "started"
    os.mkfifo(started)
    measurement = subprocess.Popen([sys.executable, "-c", MEASUREMENT, started])
    jobs = started.read_text().split()
    assert len(jobs) == 2 and all(map(lives, jobs)), jobs
    measurement.terminate()
    code = measurement.wait(20)
    assert code == 128 + signal.SIGTERM, code
    left = [pid for pid in jobs if lives(pid)]
    assert not left, f"processes are left: {left}"

"""Counts the instructions of a message by callgrind."""

import re
import subprocess
import sys

SHORT, LONG = 1600, 11600


def counted(prefix, program, what, messages, folder):
    """Instructions of a run of `messages` messages."""
    grind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    run = [str(program), what, str(messages)]
    command = [str(prefix / "bin" / "mpiexec"), "-n", "1", *grind, *run]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    found = re.search(r"Collected : (\d+)", done.stdout + done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return int(found[1])


def per_message(prefix, program, what, folder):
    """Instructions of one message: the difference of a long and a short run, so that starting and
    ending cancel out."""
    long, short = (counted(prefix, program, what, n, folder) for n in (LONG, SHORT))
    return (long - short) / (LONG - SHORT)

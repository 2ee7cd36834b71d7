"""Counts the instructions of a message by callgrind."""

import re
import subprocess
import sys

SHORT, LONG = 1600, 12800
# Of two ranks, which wait for each other, the instructions within one call are counted: of the
# function (`crates/abi/src/entry.rs`) that its symbols lead to.
CALLS = {"isend": "*body_isend*", "irecv": "*body_irecv*"}


def counted(prefix, program, what, messages, folder):
    """Instructions of a run of `messages` messages."""
    grind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    ranks = 1
    if what in CALLS:
        ranks = 2
        grind += ["--collect-atstart=no", f"--toggle-collect={CALLS[what]}"]
    run = [str(program), what, str(messages)]
    command = [str(prefix / "bin" / "mpiexec"), "-n", str(ranks), *grind, *run]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    found = re.findall(r"Collected : (\d+)", done.stdout + done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return sum(map(int, found))


def per_message(prefix, program, what, folder):
    """Instructions of one message: the difference of a long and a short run, so that starting and
    ending cancel out."""
    long, short = (counted(prefix, program, what, n, folder) for n in (LONG, SHORT))
    return (long - short) / (LONG - SHORT)

"""Loads on a small message's way that wait for stores that have just been made.

A processor gives a load the bytes of a store that is still in its store buffer only if this one
store has all of them. A wide load of what narrow stores have just written, as when a struct is
moved that was filled field by field, waits until they have left the buffer: 5 ns each, which no
count of instructions shows. Each call is stepped through by gdb in one of two ranks. Loads whose
bytes come from several stores, or from a store and older memory, are stalls if the youngest of
these stores is at most WINDOW instructions before the load.
"""

import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CALLS = ["receive", "send", "bcast", "allreduce", "barrier"]
# A choice: beyond that the stores have left the buffer.
WINDOW = 96


def stalls(lines):
    """Descriptions of the loads that wait."""
    writers, found = {}, []
    for number, line in enumerate(lines):
        text, function, kind, address, size = line.split("\t")
        touched = range(int(address, 16), int(address, 16) + int(size))
        if "L" in kind:
            stores = {writers.get(byte, -1) for byte in touched}
            youngest = max(stores)
            if len(stores) > 1 and number - youngest <= WINDOW:
                written = " and ".join(lines[s].split("\t")[0] for s in sorted(stores) if s >= 0)
                found.append(f"{text} in {function} reads what was written by {written}")
        if "S" in kind:
            writers.update(dict.fromkeys(touched, number))
    return found


def traced(prefix, program, call, folder):
    """The lines of stalls_trace.py for rank 1's call."""
    fifo, trace = folder / f"fifo-{call}", folder / f"trace-{call}"
    os.mkfifo(fifo)
    run = [str(program), call, str(fifo)]
    debugger = ["gdb", "-q", "-batch", "-x", str(HERE / "stalls_trace.py"), "--args"]
    command = [str(prefix / "bin" / "mpiexec"), "-n", "1", *run, ":", "-n", "1", *debugger, *run]
    environment = os.environ | {"STALLS_TRACE": str(trace)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    lines = trace.read_text().splitlines() if trace.exists() else []
    if len(lines) < 100 or lines[-1] == "TOO LONG":
        sys.exit(
            f"{' '.join(command)} gave {len(lines)} lines: {(done.stdout + done.stderr)[-800:]}"
        )
    return lines


def results(prefix, folder):
    """Whether each call has no stall, with a line that says so."""
    if platform.machine() != "x86_64":
        return
    program = folder / "stalls"
    compiler = prefix / "bin" / "mpicc"
    subprocess.run([compiler, "-O2", "-o", program, HERE / "stalls.c"], check=True)
    for call in CALLS:
        lines = traced(prefix, program, call, folder)
        waiting = stalls(lines)
        found = "\n  ".join([f"{len(waiting)} loads wait for stores", *waiting])
        yield not waiting, f"{call} of 8 bytes on 2 ranks, {len(lines)} instructions: {found}"

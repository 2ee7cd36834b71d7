"""What bench/tipc runs in the first guest: each round, each program over TIPC and over TCP in
turns. Lines: `result:` round, transport, figure, bytes, value."""

import os
import subprocess
import sys

from guest import await_node
from inside import LAUNCHER

WAYS = {
    "tipc": {"FERRY_TRANSPORTS": "shm,tipc"},
    "tcp": {"FERRY_TRANSPORTS": "shm,tcp", "FERRY_TCP_IF": "10.78.0.0/24"},
}


def lines(command, environment=None):
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        raise OSError(f"{command}: {done.stdout}")
    return [line.split(",") for line in done.stdout.splitlines() if "," in line]


def drive(plan):
    await_node(2)
    programs = plan["programs"]
    start = [plan["mpiexec"], "--hosts", "h1:1,h2:1", "--launcher", LAUNCHER, "-n", "2"]
    server = subprocess.Popen(
        [*LAUNCHER.split(), "h2", f"{programs}/tipc_sockets serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    server.stdout.readline()
    lines(
        [f"{programs}/tipc_sockets", "ask", "10.78.0.2", "1"]
    )  # the guests' first seconds are slower
    for turn in range(plan["rounds"]):
        ways = list(WAYS) if turn % 2 == 0 else list(reversed(WAYS))
        for program in ("latency", "bandwidth"):
            for way in ways:
                settings = {**WAYS[way], "BENCH_BUDGET": str(plan["budget"]), "BENCH_MOST": "65536"}
                for figure, _, size, value in lines([*start, f"{programs}/{program}"], settings):
                    print(f"result: {turn},{way},{figure},{size},{value}", flush=True)
        for figure, kind, size, value in lines(
            [f"{programs}/tipc_sockets", "ask", "10.78.0.2", "1"]
        ):
            print(f"result: {turn},{kind},{figure},{size},{value}", flush=True)
    sys.stdout.flush()

"""What must hold in one guest: the transport's own conformance tests, and C programs whose ranks
have nothing but TIPC between them. Runs inside."""

import os
import subprocess
import sys
import tempfile
import time

from inside import tests_run


def drive(plan):
    run = tests_run()
    tally = run.Tally(True)
    start = time.monotonic()
    done = subprocess.run(
        [plan["conformance"], "--test-threads=1"],
        env={**os.environ, "FERRY_TEST_TIPC": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    passed = [
        line
        for line in done.stdout.splitlines()
        if line.startswith("test ") and line.endswith(" ok")
    ]
    problem = (
        None
        if done.returncode == 0 and passed
        else f"exit status {done.returncode}, {len(passed)} passed"
    )
    said = [line for line in done.stdout.splitlines() if line and not line.endswith(" ok")]
    tally.add(
        f"conformance of the transport ({len(passed)} tests)",
        problem,
        "\n".join(said),
        time.monotonic() - start,
    )
    os.environ["FERRY_TRANSPORTS"] = "tipc"
    with tempfile.TemporaryDirectory() as scratch:
        for name, command, limit in plan["runs"]:
            status, output, seconds = run.run_job(command, 2 * limit, scratch)
            problem = (
                "not done in time"
                if status is None
                else (
                    f"exit status {status}"
                    if status
                    else "printed something" if output.strip() else None
                )
            )
            tally.add(name, problem, output, seconds)
    sys.stdout.flush()

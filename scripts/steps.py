#!/usr/bin/env python3
"""The steps of `make test`: runs each, keeps its output under target/test-logs, prints one line for
it, shows the end of what failed, and closes with `N passed, N failed` over all of them.

    scripts/test [STEP...]     only these steps (names as printed)
"""

import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PREFIX = TARGET / "prefix"
LOGS = TARGET / "test-logs"
LOOM = {
    "RUSTFLAGS": "--cfg loom",
    "CARGO_TARGET_DIR": str(TARGET / "loom"),
    "LOOM_MAX_PREEMPTIONS": "3",
}


def loom_packages():
    """Crates that have models: those with a tests/loom.rs."""
    found = []
    for model in sorted(ROOT.glob("crates/*/tests/loom.rs")):
        manifest = (model.parent.parent / "Cargo.toml").read_text()
        found.append(re.search(r'^name = "([^"]+)"', manifest, re.M).group(1))
    return found


def steps():
    """(name, command, extra environment, limit in seconds)"""
    yield "format", ["cargo", "fmt", "--all", "--check"], {}, 60
    yield "lints", [
        "cargo",
        "clippy",
        "-q",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ], {}, 900
    yield "release build", [
        "cargo",
        "build",
        "-q",
        "--release",
        "-p",
        "ferry-abi",
        "-p",
        "ferry-cli",
    ], {}, 1200
    yield "install", [str(TARGET / "release" / "ferry"), "install", "--prefix", str(PREFIX)], {}, 60
    yield "build", [
        "cargo",
        "build",
        "-q",
        "--workspace",
    ], {}, 900  # some tests look at the library, which `cargo test` does not make
    yield "unit and property tests", [
        "cargo",
        "test",
        "-q",
        "--workspace",
        "--no-fail-fast",
    ], {}, 1500
    for package in loom_packages():
        yield f"models of {package}", [
            "cargo",
            "test",
            "-q",
            "--release",
            "-p",
            package,
            "--test",
            "loom",
        ], LOOM, 900
    yield "races", ["scripts/races", str(PREFIX)], {}, 1500
    yield "C programs", ["tests/run", "--mpi", str(PREFIX), "--suite", "c,scale"], {}, 1500
    yield "C programs over TCP", ["tests/run", "--mpi", str(PREFIX), "--suite", "tcp"], {}, 1500
    yield "C programs with a progress thread", [
        "tests/run",
        "--mpi",
        str(PREFIX),
        "--suite",
        "progress",
    ], {}, 1500
    yield "C programs with overlap", [
        "tests/run",
        "--mpi",
        str(PREFIX),
        "--suite",
        "overlap",
    ], {}, 1500
    yield "C programs on machines", [
        "tests/run",
        "--mpi",
        str(PREFIX),
        "--suite",
        "machines",
    ], {}, 900
    yield "faults", ["tests/run", "--mpi", str(PREFIX), "--suite", "faults"], {}, 600
    for check in sorted(ROOT.glob("tests/*/check")):
        yield f"{check.parent.name}", [str(check), str(PREFIX)], {}, 900
    yield "mpi4py", ["scripts/mpi4py", "test", "1", "2", "3", "5"], {
        "FERRY_PREFIX": str(PREFIX)
    }, 1800
    yield "mpi4py with overlap", ["scripts/mpi4py", "test", "3"], {
        "FERRY_PREFIX": str(PREFIX),
        "FERRY_OVERLAP": "always",
    }, 900


def counts(text):
    """(passed, failed) from the closing lines of cargo test, of tests/run or of unittest; None
    if there are none."""
    passed = failed = 0
    found = False
    for match in re.finditer(r"^test result: \w+\. (\d+) passed; (\d+) failed", text, re.M):
        found, passed, failed = True, passed + int(match[1]), failed + int(match[2])
    for match in re.finditer(r"^(\d+) passed, (\d+) failed$", text, re.M):
        found, passed, failed = True, passed + int(match[1]), failed + int(match[2])
    return (passed, failed) if found else None


MARK = {"TEST_STEP_OF": str(os.getpid())}


def started():
    """Numbers of the processes that a step has started, in whatever session: all have its
    environment."""
    found, mark = [], "=".join(*MARK.items()).encode()
    for environ in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return found


def run(command, environment, limit, out):
    """The exit status of a step, or what kept it from having one. A step that is not done in
    time ends with all that it has started."""
    try:
        step = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment, **MARK},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        return str(error)
    try:
        return step.wait(limit)
    except subprocess.TimeoutExpired:
        step.kill()
        step.wait()
        while left := started():
            for pid in left:
                try:
                    process = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
                try:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    select.select([process], [], [])
                except ProcessLookupError:
                    pass
                finally:
                    os.close(process)
        return f"not done after {limit} s"


def main():
    wanted = sys.argv[1:]
    LOGS.mkdir(parents=True, exist_ok=True)
    passed = failed = 0
    started = time.monotonic()
    for name, command, extra, limit in steps():
        if wanted and name not in wanted:
            continue
        begin = time.monotonic()
        log = LOGS / (re.sub(r"\W+", "-", name) + ".log")
        with log.open("wb") as out:
            status = run(command, extra, limit, out)
        text = log.read_text(errors="replace")
        good, bad = counts(text) or (0, 0)
        if status != 0 and bad == 0:
            bad = 1
        if status == 0 and good == 0:
            good = 1
        passed, failed = passed + good, failed + bad
        seconds = time.monotonic() - begin
        print(
            f"{'ok' if bad == 0 else 'FAILED':6} {name:28} {good:5} passed {bad:4} failed"
            f" {seconds:6.0f} s",
            flush=True,
        )
        if bad:
            print(
                f"       {' '.join(command)}: {status}; all of it is in"
                f" {log.relative_to(ROOT) if log.is_relative_to(ROOT) else log}"
            )
            interesting = re.findall(
                r"^(?:not ok.*(?:\n   "
                r" .*)*|.*(?:FAILED|panicked).*|(?:error|FAIL:|ERROR:|failed:).*)$",
                text,
                re.M,
            )
            interesting = [line for found in interesting for line in found.splitlines()]
            for line in (interesting or text.splitlines())[-30:]:
                print(f"       {line[:220]}", flush=True)
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The steps of `make test`.

Runs each step, keeps its output under target/test-logs, prints one line for it with its time and
that of its processes, and the end of what failed. The last line is `N passed, N failed` over all
steps.

    scripts/test                     all steps
    scripts/test STEP...             the steps with these names, as printed
    scripts/test --only NAME,...     steps or C programs by name (make test ONLY=NAME,...)

A NAME of --only is a step's whole name, or a part of one or several; case does not count. One
that no step has is a C program of tests/c (`errors`; * and ? allowed), on all its numbers of ranks.
Steps that test an installation are preceded by `release build` and `install`.
"""

import concurrent.futures
import fnmatch
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PREFIX = TARGET / "prefix"
LOGS = TARGET / "test-logs"
# Optimised, but soon built.
QUICK_BUILD = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
}
LOOM = {
    **QUICK_BUILD,
    "RUSTFLAGS": "--cfg loom",
    "CARGO_TARGET_DIR": str(TARGET / "loom"),
    "LOOM_MAX_PREEMPTIONS": "3",
}
# What makes the installation that later steps test.
INSTALLING = ("release build", "install")
# What of mpi4py's suite the wheel's builds run here; scripts/mpi4py wheel runs all of it.
WHEEL_MODULES = "|".join(
    f"test_{name}"
    for name in (
        "attributes",
        "comm",
        "datatype",
        "errhandler",
        "errorcode",
        "exceptions",
        "grequest",
        "info",
        "op",
        "p2p_buf",
        "pickle",
        "request",
        "session",
        "status",
        "win",
    )
)
# What of it runs with overlapped collectives.
OVERLAP_MODULES = "test_cco_.*|test_p2p_.*|test_comm.*"
# Steps that run at once, each with a core or less: time on the clock does not decide what they say.
# Linking the release keeps one core busy; those that mostly wait leave both to each other.
TOGETHER = (
    ("release build", "unit and property tests"),
    ("models of ferry-device", "models of ferry-transport"),
    ("C programs on machines", "tipc"),
    ("faults", "launchers"),
    ("dynamic", "net"),
    ("ethernet", "mx"),
    ("overlap", "papers"),
)
# How many lines of a failed step's output are shown, and how many characters of each.
LINES_SHOWN = 30
LINE_CHARACTERS_SHOWN = 220
# Held while a step's lines are printed.
PRINTING = threading.Lock()


def loom_packages():
    """Crates that have models: those with a tests/loom.rs."""
    found = []
    for model in sorted(ROOT.glob("crates/*/tests/loom.rs")):
        manifest = (model.parent.parent / "Cargo.toml").read_text()
        found.append(re.search(r'^name = "([^"]+)"', manifest, re.M).group(1))
    return found


def programs(*suites, only=None):
    """The command that runs suites of tests/run."""
    narrowed = ["--only", only] if only else []
    return ["tests/run", "--mpi", str(PREFIX), "--suite", ",".join(suites), *narrowed]


def steps():
    """(name, command, extra environment, limit in seconds)"""
    clippy = ["cargo", "clippy", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"]
    packages = ["ferry-abi", "ferry-abi-mpich", "ferry-abi-openmpi", "ferry-cli", "ferry-mx"]
    release = ["cargo", "build", "-q", "--release", *(f"-p{name}" for name in packages)]
    install = [str(TARGET / "release" / "ferry"), "install", "--prefix", str(PREFIX)]
    docs = ["cargo", "doc", "-q", "--no-deps", "--workspace", "--document-private-items"]
    units = ["cargo", "test", "-q", "--workspace", "--no-fail-fast"]
    loom = ["cargo", "test", "-q", "--release", "--test", "loom", "-p"]
    prefix = {"FERRY_PREFIX": str(PREFIX)}
    yield "format", ["cargo", "fmt", "--all", "--check"], {}, 60
    yield "lints", clippy, {}, 900
    yield "documentation of the code", docs, {"RUSTDOCFLAGS": "-D warnings"}, 900
    # Some tests look at the library, which `cargo test` does not make.
    yield "build", ["cargo", "build", "-q", "--workspace"], {}, 900
    yield "release build", release, {}, 1200
    yield "unit and property tests", units, {}, 1500
    yield "install", install, {}, 60
    for package in loom_packages():
        yield f"models of {package}", [*loom, package], LOOM, 900
    yield "races", ["scripts/races", str(PREFIX)], QUICK_BUILD, 1500
    yield "C programs", programs("c", "scale"), {}, 1500
    yield "C programs over TCP", programs("tcp"), {}, 1500
    yield "C programs with a progress thread", programs("progress"), {}, 1500
    yield "C programs with overlap", programs("overlap"), {}, 1500
    yield "C programs on machines", programs("machines"), {}, 900
    yield "faults", programs("faults"), {}, 600
    for check in sorted(ROOT.glob("tests/*/check")):
        yield f"{check.parent.name}", [str(check), str(PREFIX)], {}, 900
    suite = ["scripts/mpi4py", "test"]
    # On 5 ranks and more by hand (docs/testing.md).
    yield "mpi4py", [*suite, "1", "2", "3"], prefix, 1800
    overlapped = {**prefix, "FERRY_OVERLAP": "always", "MPI4PY_ONLY": OVERLAP_MODULES}
    yield "mpi4py with overlap", [*suite, "3"], overlapped, 900
    for abi in ("mpich", "openmpi"):
        wheel = ["scripts/mpi4py", "wheel", abi, "2"]
        yield f"mpi4py's wheel for {abi}", wheel, {**prefix, "MPI4PY_ONLY": WHEEL_MODULES}, 300


def c_programs(pattern):
    """Names of the programs of tests/c that a name with * and ? stands for."""
    stems = [source.stem for source in sorted((ROOT / "tests" / "c").glob("*.c"))]
    stems = [stem for stem in stems if not stem.startswith("lib_")]
    return fnmatch.filter(stems, pattern)


def chosen(all_steps, only):
    """The steps that --only names, in their order, with those before that make what they test.

    Ends the program with a message if a name stands for nothing."""
    names, single = set(), []
    for name in filter(None, (name.strip() for name in only.split(","))):
        exact = [step[0] for step in all_steps if step[0].lower() == name.lower()]
        parts = [step[0] for step in all_steps if name.lower() in step[0].lower()]
        if exact or parts:
            names.update(exact or parts)
        elif c_programs(name):
            single += c_programs(name)
        else:
            known = "\n    ".join(step[0] for step in all_steps)
            sys.exit(f"no step and no program of tests/c is called {name}; the steps:\n    {known}")
    found = [step for step in all_steps if step[0] in names]
    if single:
        command = programs("c", only=",".join(single))
        found.append((f"C programs: {', '.join(single)}", command, {}, 900))
    uses_installation = any(
        str(PREFIX) in step[1] or step[2] and str(PREFIX) in step[2].values()
        for step in found
        if step[0] not in INSTALLING
    )
    if uses_installation:
        making = [step for step in all_steps if step[0] in INSTALLING]
        found = making + [step for step in found if step not in making]
    return found


def counts(text):
    """(passed, failed) from the closing lines of cargo test, of tests/run or of unittest.

    None if there are none."""
    passed = failed = 0
    found = False
    cargo = re.finditer(r"^test result: \w+\. (\d+) passed; (\d+) failed", text, re.M)
    ours = re.finditer(r"^(\d+) passed, (\d+) failed$", text, re.M)
    for match in [*cargo, *ours]:
        found, passed, failed = True, passed + int(match[1]), failed + int(match[2])
    return (passed, failed) if found else None


def started(mark):
    """Process ids of all that a step has started, in any session: their environment has this."""
    found, mark = [], mark.encode()
    for environ in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
        except OSError:
            pass
    return [pid for pid in found if pid != os.getpid()]


def end(pid):
    """Kills a process and waits until it has gone."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [])
    except ProcessLookupError:
        pass
    finally:
        os.close(process)


def run(number, command, environment, limit, out):
    """(exit status of a step, or the reason that it has none, seconds of processor time). After
    `limit` seconds the step ends with all that it has started. `number` tells it from steps that
    run at the same time."""
    variable, value = "TEST_STEP_OF", f"{os.getpid()}-{number}"
    try:
        step = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment, variable: value},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        return str(error), 0
    ended = os.pidfd_open(step.pid)
    in_time = bool(select.select([ended], [], [], limit)[0])
    os.close(ended)
    if not in_time:
        step.kill()
    # With what its own children used.
    _, status, usage = os.wait4(step.pid, 0)
    step.returncode = os.waitstatus_to_exitcode(status)
    if not in_time:
        while left := started(f"{variable}={value}"):
            for pid in left:
                end(pid)
    verdict = step.returncode if in_time else f"not done after {limit} s"
    return verdict, usage.ru_utime + usage.ru_stime


def show_failure(command, status, log, text):
    """Prints what a failed step said: the lines that look like errors, or else its last ones."""
    where = log.relative_to(ROOT) if log.is_relative_to(ROOT) else log
    print(f"       {' '.join(command)}: {status}; all of it is in {where}")
    errors = r"^(?:not ok.*(?:\n    .*)*|.*(?:FAILED|panicked).*|(?:error|FAIL:|ERROR:|failed:).*)$"
    lines = [line for found in re.findall(errors, text, re.M) for line in found.splitlines()]
    for line in (lines or text.splitlines())[-LINES_SHOWN:]:
        print(f"       {line[:LINE_CHARACTERS_SHOWN]}", flush=True)


def do(number, step):
    """Runs a step and prints its line: (passed, failed)."""
    name, command, extra, limit = step
    begin = time.monotonic()
    log = LOGS / (re.sub(r"\W+", "-", name) + ".log")
    with log.open("wb") as out:
        status, processor = run(number, command, extra, limit, out)
    text = log.read_text(errors="replace")
    good, bad = counts(text) or (0, 0)
    if status != 0 and bad == 0:
        bad = 1
    if status == 0 and good == 0:
        good = 1
    seconds = time.monotonic() - begin
    verdict = "ok" if bad == 0 else "FAILED"
    with PRINTING:
        counted = f"{good:5} passed {bad:4} failed"
        time_taken = f"{seconds:6.0f} s {processor:6.0f} s of a core"
        print(f"{verdict:6} {name:34} {counted} {time_taken}", flush=True)
        if bad:
            show_failure(command, status, log, text)
    return good, bad


def main():
    arguments = sys.argv[1:]
    todo = list(steps())
    if arguments and arguments[0].startswith("--only"):
        _, equals, glued = arguments[0].partition("=")
        todo = chosen(todo, glued if equals else ",".join(arguments[1:]))
    elif arguments:
        todo = [step for step in todo if step[0] in arguments]
    LOGS.mkdir(parents=True, exist_ok=True)
    passed = failed = 0
    begin = time.monotonic()
    while todo:
        now = [todo.pop(0)]
        for names in TOGETHER:
            if now[0][0] in names:
                now += [step for step in todo if step[0] in names]
        todo = [step for step in todo if step not in now]
        with concurrent.futures.ThreadPoolExecutor(len(now)) as pool:
            running = [pool.submit(do, number, step) for number, step in enumerate(now)]
            for done in concurrent.futures.as_completed(running):
                good, bad = done.result()
                passed, failed = passed + good, failed + bad
    print(f"{(time.monotonic() - begin) / 60:.1f} minutes")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

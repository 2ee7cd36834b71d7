"""Runs mpi4py's own test suite and sums up; called by scripts/mpi4py, which has built it.

    mpi4py_suite.py HOME PREFIX NOT_YET RANKS...

HOME holds mpi4py's `source` and `venv`; NOT_YET lists what is left out, and why. MPI4PY_MPIABI
chooses one of the wheel's builds, MPI4PY_ONLY modules. Prints each failure once with the last line
of its traceback, and closes with `N passed, N failed`."""

import os
import pathlib
import re
import subprocess
import sys

LIMIT = 420  # seconds for one run of the suite


def left_out(path):
    abi = os.environ.get("MPI4PY_MPIABI")
    modules, cases = [], []
    for line in path.read_text().splitlines():
        words = line.split()
        if words[:1] == ["module"]:
            modules.append(words[1])
        elif words and words[0] in ("case", f"case-{abi}", abi and "case-wheel"):
            cases.append(f"*{words[1]}*")
    return modules, cases


def run(home, prefix, modules, cases, ranks):
    """(passed, failed) of one run."""
    command = [
        prefix / "bin" / "mpiexec",
        "--timeout",
        str(LIMIT),
        "-n",
        str(ranks),
        home / "venv" / "bin" / "python",
        "main.py",
        "--no-builddir",
        "-q",
    ]
    only = os.environ.get("MPI4PY_ONLY")
    if only:
        command += ["-i", rf"^({only})\.py$"]
    if modules:
        command += ["-e", rf"^({'|'.join(modules)})\.py$"]
    for case in cases:
        command += ["-x", case]
    abi = os.environ.get("MPI4PY_MPIABI", "test")
    log = home / f"{abi}-{ranks}.log"
    with log.open("wb") as out:
        status = subprocess.run(
            command,
            cwd=home / "source" / "test",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        ).returncode
    text = log.read_text(errors="replace")
    ran = re.search(r"^Ran (\d+) tests?\b", text, re.M)
    if not ran:
        print(f"not ok mpi4py {abi} on {ranks}: it did not come to its end (exit status {status})")
        print("\n".join("    " + line for line in text.splitlines()[-25:]))
        return 0, 1
    # Every rank reports what it saw; a case failed if it failed anywhere.
    failures = {}
    for match in re.finditer(r"^(?:FAIL|ERROR): (.*?)$(.*?)(?=^={20}|^Ran |\Z)", text, re.M | re.S):
        lines = [
            line
            for line in match[2].splitlines()
            if line.strip() and not line.startswith(("-----", "====="))
        ]
        failures.setdefault(match[1], lines[-1] if lines else "")
    skipped = re.search(r"skipped=(\d+)", text)
    for name, why in sorted(failures.items()):
        print(f"not ok mpi4py {abi} on {ranks}: {name}: {why[:200]}")
    failed = len(failures) or (1 if status != 0 else 0)
    return int(ran[1]) - failed - int(skipped[1] if skipped else 0), failed


def main():
    home, prefix, not_yet = map(pathlib.Path, sys.argv[1:4])
    modules, cases = left_out(not_yet)
    results = [run(home, prefix, modules, cases, int(ranks)) for ranks in sys.argv[4:]]
    print(f"{sum(r[0] for r in results)} passed, {sum(r[1] for r in results)} failed")
    return 1 if any(r[1] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())

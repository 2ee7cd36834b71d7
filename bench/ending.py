"""What a measurement has started ends with it, also when it is told to end (SIGTERM, SIGHUP)."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys


def on_signals():
    """From now on SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt: who has
    started something ends it on the way out. A second one while this lasts changes nothing."""

    def leave(number, _):
        for other in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def end_all(process, setting):
    """Ends a job and, as some launchers leave their ranks behind, every process that has this
    setting (NAME=VALUE) in its environment."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if setting.encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def run(command, limit, folder, environment):
    """Runs a job in `folder`. Returns its exit status, what it has printed, and whether it ended
    within `limit` seconds. All of it is gone then, however this is left."""
    mark = f"{os.getpid()}"
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=folder,
        env={**environment, "BENCH_JOB": mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    ended = False
    try:
        output = process.communicate(timeout=limit)[0]
        ended = True
    except subprocess.TimeoutExpired:
        end_all(process, f"BENCH_JOB={mark}")
        output = process.communicate()[0]
    except BaseException:
        end_all(process, f"BENCH_JOB={mark}")
        raise
    return process.returncode, output.decode(errors="replace"), ended

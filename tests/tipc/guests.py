"""Guests: user-mode-linux kernels, which have TIPC, on this machine's own files. They need neither
root nor KVM.

A guest sees this machine's root folder, read only, and runs guest.py as its first process. Two
guests are joined by two cables, each a pair of sockets that both kernels have inherited: `vec0`
is the one that is tested, `vec1` leads to guest.py's own services. What the first guest says on
its console is what the test has to say. When the test ends, in whatever way, the guests end."""

import contextlib
import ctypes
import json
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
MEMORY = 1024  # MB a guest; a file of its own, of which only what is touched exists
BOOT = 60.0


class NoGuest(Exception):
    """A guest cannot be had, and why."""


def kernel():
    found = shutil.which("linux.uml") or shutil.which("linux")
    if not found:
        raise NoGuest(
            "there is no user-mode-linux here; as root type: apt-get install user-mode-linux"
        )
    return found


def wrapper(folder):
    """registers.c as a library."""
    out = pathlib.Path(folder) / "registers.so"
    made = subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", str(out), str(HERE / "registers.c")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if made.returncode != 0:
        raise NoGuest(f"registers.c does not compile: {made.stdout}")
    return out


def memory_folder(guests):
    """Where the guests' memory can lie: in memory, if there is enough room for it."""
    room = shutil.disk_usage("/dev/shm").free if os.access("/dev/shm", os.W_OK) else 0
    return "/dev/shm" if room > guests * MEMORY << 20 else None


def die_with_parent():
    """For the child before it runs the kernel: when the test is gone, so is the guest."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Guest:
    """One kernel. `cables`: a socket for each of its network devices."""

    def __init__(self, number, guests, state, memory, cables, plan):
        self.name = f"h{number}"
        self.lines = queue.Queue()
        self.said = []
        script = pathlib.Path(state) / f"plan-{number}.json"
        script.write_text(json.dumps({**plan, "number": number, "guests": guests}))
        nets = [
            f"vec{i}:transport=fd,fd={cable.fileno()},mac=02:f0:00:00:{i:02x}:{number:02x}"
            for i, cable in enumerate(cables)
        ]
        command = [
            kernel(),
            f"mem={MEMORY}M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "quiet",
            "loglevel=1",
            "panic=-1",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            f"uml_dir={state}",
            f"umid=h{number}",
            f"init={HERE / 'guest.py'}",
            f"plan={script}",
            *nets,
        ]
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "TMPDIR": str(memory),
            "LD_PRELOAD": str(pathlib.Path(state) / "registers.so"),
        }
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=[c.fileno() for c in cables],
            preexec_fn=die_with_parent,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            line = line.rstrip("\r\n")
            self.said.append(line)
            self.lines.put(line)
        self.lines.put(None)

    def line(self, limit):
        """The next line of its console; None: it has ended."""
        try:
            return self.lines.get(timeout=limit)
        except queue.Empty:
            raise NoGuest(
                f"guest {self.name} has said nothing for {limit:.0f} s; its last words:"
                f" {self.said[-15:]}"
            ) from None

    def stand_still(self, seconds):
        """As when the machine under it has no time for it."""
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)  # what is tested
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self):
        """As when the power fails."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join(5)


class Guests:
    """So many guests, joined if there are two. `plan` goes to guest.py, which in the first guest
    runs `plan["driver"]`."""

    def __init__(self, number, plan):
        self.stack = contextlib.ExitStack()
        self.all = {}
        try:
            self.state = self.stack.enter_context(
                tempfile.TemporaryDirectory(prefix=f"ferry-tipc-{os.getpid()}-")
            )
            memory = self.stack.enter_context(
                tempfile.TemporaryDirectory(
                    prefix=f"ferry-tipc-{os.getpid()}-", dir=memory_folder(number)
                )
            )
            wrapper(self.state)
            cables = [[], []]
            for _ in range(2 if number > 1 else 0):
                ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                for end, mine in zip(ends, cables):
                    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                        end.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
                    mine.append(self.stack.enter_context(end))
            for guest in range(number, 0, -1):  # the first, which waits for the others, last
                self.all[f"h{guest}"] = Guest(
                    guest, number, self.state, memory, cables[guest - 1], plan
                )
                self.stack.callback(self.all[f"h{guest}"].kill)
            self._await_boot()
        except BaseException:
            self.close()
            raise

    def _await_boot(self):
        for guest in self.all.values():
            end = time.monotonic() + BOOT
            while (line := guest.line(max(0.1, end - time.monotonic()))) != "guest: up":
                if line is None:
                    raise NoGuest(f"guest {guest.name} did not boot; it said: {guest.said[-25:]}")

    def run(self, limit, heard):
        """Hears what the first guest says until it is done; `heard` gets each line. Seconds."""
        begin = time.monotonic()
        first = self.all["h1"]
        while True:
            line = first.line(max(0.1, begin + limit - time.monotonic()))
            if line is None:
                raise NoGuest(f"guest h1 ended too early; its last words: {first.said[-15:]}")
            word, _, rest = line.partition(" ")
            if line == "guest: done":
                return time.monotonic() - begin
            if word == "kill:":
                self.all[rest].kill()
            elif word == "stop:":
                name, seconds = rest.split()
                self.all[name].stand_still(float(seconds))
            else:
                heard(line)

    def close(self):
        self.stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def end_well():
    """Ends by SystemExit when told to by a signal, so that guests and files are cleared away."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

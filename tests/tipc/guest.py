#!/usr/bin/env python3
"""The first process of a guest: makes what a booted machine has, then runs the plan's driver in
the first guest, and in the others waits for commands. The plan is a file whose name stands in
the environment."""

import ctypes
import importlib
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
LIBC = ctypes.CDLL(None, use_errno=True)
MODULES = ("tipc", "diag", "sch_netem", "sch_ingress", "cls_matchall", "act_gact")


def mount(kind, where):
    os.makedirs(where, exist_ok=True)
    if (
        LIBC.mount(kind.encode(), where.encode(), kind.encode(), 0, None) != 0
        and ctypes.get_errno() != 16
    ):
        raise OSError(f"{kind} cannot be mounted at {where}: {os.strerror(ctypes.get_errno())}")


def load(name):
    """Loads a module and those that it needs, as modprobe would."""
    folder = pathlib.Path("/usr/lib/uml/modules") / os.uname().release
    needs = dict(line.split(":", 1) for line in (folder / "modules.dep").read_text().splitlines())
    path = next((p for p in needs if pathlib.Path(p).name == f"{name}.ko"), None)
    if path is None:
        raise OSError(f"there is no module {name} under {folder}")
    for one in [*reversed(needs[path].split()), path]:
        with open(folder / one, "rb") as file:
            if LIBC.syscall(313, file.fileno(), b"", 0) != 0 and ctypes.get_errno() != 17:
                raise OSError(f"module {one} does not load: {os.strerror(ctypes.get_errno())}")


def run(command):
    done = subprocess.run(
        command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise OSError(f"{command}: {done.stdout.strip()}")
    return done.stdout


def node(number):
    """A guest's address: 1.1.number."""
    return 1 << 24 | 1 << 12 | number


def await_node(number, limit=20.0):
    """Blocks until this guest's TIPC node is joined to this one."""
    with socket.socket(socket.AF_TIPC, socket.SOCK_SEQPACKET) as server:
        server.settimeout(limit)
        server.connect((socket.TIPC_ADDR_NAME, 1, 1, 0))
        server.send(struct.pack("=5I8s", 0, node(number), node(number), 0xFFFFFFFF, 1, b"node"))
        while struct.unpack("=I44x", server.recv(48))[0] != 1:
            pass


def enabling(bearer, number):
    """The command that enables one of a guest's bearers: "eth vec0", "udp u". Its links may be
    silent for ten seconds, for a guest may stand still while the machine does something else, and
    how soon TIPC gives it up then is not what is tested.
    """
    media, name = bearer.split()
    if media == "eth":
        named = own = f"media eth device {name}"
    else:
        named = f"media udp name {name}"
        own = f"{named} localip 10.78.0.{number} remoteip 10.78.0.{3 - number}"
    return [f"tipc bearer enable {own}", f"tipc bearer set tolerance 10000 {named}"]


def main():
    mount("proc", "/proc")
    mount("sysfs", "/sys")
    mount("devtmpfs", "/dev")
    for where in ("/dev/shm", "/run"):
        mount("tmpfs", where)
    plan = json.loads(pathlib.Path(os.environ["plan"]).read_text())
    number = plan["number"]
    os.environ.clear()
    # user-mode-linux keeps no AVX-512 registers for its processes, though the processor says that
    # it has them.
    os.environ.update(
        PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        HOME="/run",
        TMPDIR="/dev/shm",
        PYTHONDONTWRITEBYTECODE="1",
        GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD",
    )
    socket.sethostname(f"h{number}")
    for module in MODULES:
        load(module)
    run("ip link set lo up")
    if plan["guests"] > 1:
        for device in (0, 1):
            run(f"ip link set vec{device} up")
        run(f"ip addr add 10.78.0.{number}/24 dev vec0")
        run(f"ip addr add 10.77.0.{number}/24 dev vec1")
        os.chdir("/run")
        server = subprocess.Popen(
            ["python3", str(HERE.parent / "net" / "rsh.py"), "serve"],
            stdout=subprocess.PIPE,
            text=True,
        )
        server.stdout.readline()
        run(f"tipc node set addr 1.1.{number}")
        for bearer in plan.get("bearers", []):
            for command in enabling(bearer, number):
                run(command)
    print("guest: up", flush=True)
    if number == 1:
        sys.path[:0] = [str(HERE), str(HERE.parent)]
        importlib.import_module(plan["driver"]).drive(plan)
        print("guest: done", flush=True)
    while plan["guests"] > 1:
        os.wait()  # children that nobody else waits for; the one that serves never ends


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
    finally:
        pathlib.Path("/proc/sysrq-trigger").write_text("o")  # off
        while True:
            LIBC.pause()

"""The guest of bench/tipc: a Linux kernel under QEMU whose clock is its instruction count. One
instruction is one nanosecond, so what the guest measures as time is a number of instructions."""

import lzma
import os
import pathlib
import shutil
import stat
import struct
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# In the order in which they are loaded.
MODULES = (
    "udp_tunnel",
    "ip6_udp_tunnel",
    "tipc",
    "veth",
    "sch_ingress",
    "cls_u32",
    "act_pedit",
)
TOOLS = ("ip", "tc", "tipc", "ethtool")
MEMORY = 1024  # MB
# Without these the kernel's work against attacks by speculation would be counted, and addresses
# would differ from run to run.
KERNEL_OPTIONS = "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr tsc=reliable"
# A processor without the features by which memory is copied byte by byte (ERMS): QEMU counts each
# step of such a copy as an instruction.
PROCESSOR = "Westmere"
RANK = """#!/bin/sh
# A rank: rank 0 on node h1, rank 1 on node h2.
exec /tools/ip netns exec "h$((FERRY_RANK + 1))" "$@"
"""


class NoGuest(Exception):
    """The guest cannot be had, and why."""


def found(name):
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        raise NoGuest(f"{name} is not here: start this by scripts/bench-tipc, which installs it")
    return pathlib.Path(path)


def unpacked_kernel(package):
    """The kernel of an unpacked package as an ELF file, which QEMU starts at once. The packed one
    would unpack itself, instruction by instruction."""
    image = next(iter(sorted((package / "boot").glob("vmlinuz-*"))), None)
    if image is None:
        raise NoGuest(f"there is no kernel under {package}")
    data = image.read_bytes()
    offset, length = struct.unpack_from("<II", data, 0x248)  # payload, Documentation/x86/boot
    start = ((data[0x1F1] or 4) + 1) * 512 + offset
    try:
        return lzma.LZMADecompressor().decompress(data[start : start + length])
    except lzma.LZMAError as why:
        raise NoGuest(f"the kernel {image.name} is not packed by xz: {why}") from None


def libraries(program):
    """The shared libraries of a program, and the loader, as absolute paths."""
    said = subprocess.run(
        ["ldd", str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout
    words = [word for line in said.splitlines() for word in line.split()]
    return [pathlib.Path(word) for word in words if word.startswith("/")]


class FileSystem:
    """The guest's files, as an archive that the kernel unpacks into memory (cpio, newc)."""

    def __init__(self):
        self.entries, self.folders = [], set()

    def _entry(self, name, mode, data=b""):
        for folder in reversed(pathlib.PurePath(name).parents[:-1]):
            if str(folder) not in self.folders:
                self.folders.add(str(folder))
                self.entries.append((str(folder), stat.S_IFDIR | 0o755, b""))
        self.entries.append((name, mode, data))

    def folder(self, name):
        self._entry(f"{name}/", stat.S_IFDIR | 0o755)
        self.entries.pop()
        if name not in self.folders:
            self.folders.add(name)
            self.entries.append((name, stat.S_IFDIR | 0o755, b""))

    def file(self, name, data):
        if not any(entry[0] == name for entry in self.entries):
            self._entry(name, stat.S_IFREG | 0o755, data)

    def program(self, name, path):
        """A program and the libraries that it needs."""
        self.file(name, path.read_bytes())
        for library in libraries(path):
            self.file(str(library).lstrip("/"), library.read_bytes())

    def archive(self):
        out = bytearray()
        end = ("TRAILER!!!", 0, b"")
        console = ("dev/console", stat.S_IFCHR | 0o600, b"")
        for number, (name, mode, data) in enumerate([*self.entries, console, end], 1):
            device = (5, 1) if name == "dev/console" else (0, 0)
            encoded = name.encode() + b"\0"
            fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
            out += b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
            out += b"\0" * (-len(out) % 4) + data
            out += b"\0" * (-len(out) % 4)
        return bytes(out)


def file_system(package, prefix, programs):
    """All that the guest needs: busybox, tools, modules, Ferry, and what is measured."""
    files = FileSystem()
    for name in ("dev", "proc", "sys", "run", "tmp"):
        files.folder(name)
    files.file("init", (HERE / "tipc_guest.sh").read_bytes())
    files.file("rank", RANK.encode())
    files.program("bin/busybox", found("busybox"))
    files.entries.append(("bin/sh", stat.S_IFLNK | 0o777, b"busybox"))
    for tool in TOOLS:
        files.program(f"tools/{tool}", found(tool))
    for module in MODULES:
        path = next(iter(package.rglob(f"{module}.ko")), None)
        if path is None:
            raise NoGuest(f"the kernel package has no module {module}")
        files.file(f"modules/{module}.ko", path.read_bytes())
    files.file("modules/order", " ".join(f"{module}.ko" for module in MODULES).encode())
    files.program("prefix/bin/mpiexec", prefix / "bin" / "mpiexec")
    for program in programs:
        files.program(f"programs/{program.name}", program)
    return files.archive()


def versions(package):
    qemu = subprocess.run(
        [str(found("qemu-system-x86_64")), "--version"], stdout=subprocess.PIPE, text=True
    ).stdout.split()[3]
    return {"kernel": next((package / "lib" / "modules").iterdir()).name, "qemu": qemu}


def run(folder, options, number, heard):
    """Boots the kernel `folder`/vmlinux with the files `folder`/files. `heard` gets each line that
    the guest prints. `number` is all that a run's random numbers depend on, by way of the clock at
    boot: two runs of one number execute the same instructions."""
    command = [str(found("qemu-system-x86_64")), "-machine", "pc", "-cpu", PROCESSOR]
    command += ["-accel", "tcg", "-icount", "shift=0,sleep=off", "-m", str(MEMORY), "-smp", "1"]
    command += ["-rtc", f"base=2026-01-01T00:00:{number:02},clock=vm", "-seed", str(number)]
    command += ["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]
    command += ["-kernel", str(folder / "vmlinux"), "-initrd", str(folder / "files")]
    command += ["-append", f"{KERNEL_OPTIONS} {options}"]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as guest:
        try:
            for line in guest.stdout:
                heard(line.strip())
        finally:
            guest.kill()

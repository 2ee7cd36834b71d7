"""Hosts made of namespaces: each has its own network, name, processes and IPC, and a wire to a
switch.

A host is a process that holds its namespaces and reads its standard input. When the test closes
that, or dies in whatever way, the process ends; being the first in its process namespace, it takes
all others of the host with it, and with the last of them go interfaces and addresses. Nothing has a
name outside, so nothing can be left behind and two runs do not meet.
"""

import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Holds the namespaces; ignored children leave no zombies.
HOLDER = (
    "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); print('ready', flush=True);"
    " sys.stdin.read()"
)
# Interfaces that lead to no other host, with their addresses.
PRIVATE = {
    "docker0": ["172.17.0.1/16"],
    "virbr0": ["192.168.122.1/24"],
    "cable": ["169.254.7.{0}/16", "fe80::7:{0}/64"],
}
NAMESPACES = ["--net", "--uts", "--ipc", "--mount", "--pid"]


def checked(name, command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise OSError(f"{name}: {shlex.join(command)}: {done.stdout.strip()}")
    return done.stdout


class Box:
    """Namespaces of their own, held by one process."""

    def __init__(self, name):
        self.name = name
        self.holder = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--mount-proc", "python3", "-S", "-c", HOLDER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.holder.stdout.readline() != "ready\n":
            raise OSError(
                f"no namespaces for {name}: unshare ended with {self.holder.wait()}; this needs"
                " root"
            )
        children = (
            pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
            .read_text()
            .split()
        )
        self.pid = int(children[0])
        self.run("hostname", name)
        self.ip("link set lo up")

    def command(self, *command):
        """`command` as it has to be called from outside to run in here."""
        return ["nsenter", "--target", str(self.pid), *NAMESPACES, "--", *map(str, command)]

    def run(self, *command):
        return checked(self.name, self.command(*command))

    def ip(self, arguments):
        """ip with these arguments in this network; process numbers among them are those outside."""
        return checked(
            self.name,
            ["nsenter", "--target", str(self.pid), "--net", "--", "ip", *arguments.split()],
        )

    def processes(self, name=None):
        """(pid outside, pid inside, program) of all that runs in here but the holder."""
        mine = os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.pid:
                continue
            try:
                if (
                    os.stat(entry / "ns/pid").st_ino != mine
                    or (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
                ):
                    continue
                program = os.path.basename(os.readlink(entry / "exe"))
                inside = [
                    line
                    for line in (entry / "status").read_text().splitlines()
                    if line.startswith("NSpid:")
                ]
            except OSError:
                continue
            if name is None or program == name:
                found.append((int(entry.name), int(inside[0].split()[-1]), program))
        return sorted(found)

    def signal(self, number, name=None):
        """Sends a signal to everything that runs in here, or to the processes of one program."""
        pids = [pid for pid, _, _ in self.processes(name)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(pids)

    def close(self):
        self.holder.stdin.close()
        try:
            self.holder.wait(10)
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            self.holder.wait()
        self.holder.stdout.close()


class Host(Box):
    """A host; `number` makes its addresses."""

    def __init__(self, name, number):
        super().__init__(name)
        self.number = number
        self.addresses = []

    def listening(self):
        """(address, port) of every TCP socket that listens in here."""
        found = []
        for family, file in ((4, "tcp"), (6, "tcp6")):
            with contextlib.suppress(OSError):
                for line in (
                    pathlib.Path(f"/proc/{self.pid}/net/{file}").read_text().splitlines()[1:]
                ):
                    fields = line.split()
                    if fields[3] == "0A":
                        found.append(address(fields[1], family))
        return found

    def bytes_sent(self, interface):
        text = pathlib.Path(f"/proc/{self.pid}/net/dev").read_text()
        line = next(line for line in text.splitlines() if line.strip().startswith(interface + ":"))
        return int(line.split(":")[1].split()[8])


def address(text, family):
    """An address and port as /proc/net/tcp writes them."""
    import socket

    raw, port = text.split(":")
    words = [int(raw[i : i + 8], 16).to_bytes(4, "little") for i in range(0, len(raw), 8)]
    return socket.inet_ntop(
        socket.AF_INET if family == 4 else socket.AF_INET6, b"".join(words)
    ), int(port, 16)


class Network:
    """Hosts h1, h2, … on one switch, and a stranger beside them. `families` says which addresses
    they have; `second` gives each host another interface, eth1, on a switch of its own; `private`
    gives each what a host with containers and virtual machines has: interfaces whose addresses are
    the same on all hosts, and one with a link-local address, all of them up. `buffer` is the size
    of all sockets' buffers in bytes, if it is not the system's own choice.
    """

    def __init__(self, hosts, families=(4, 6), second=False, private=False, buffer=None):
        self.families, self.boxes, self.hosts = families, [], {}
        self.stack = contextlib.ExitStack()
        self.state = pathlib.Path(
            self.stack.enter_context(tempfile.TemporaryDirectory(prefix="ferry-net-"))
        )
        try:
            self.switch = self._box(Box("switch"))
            for name in ["br0", "br1"] if second else ["br0"]:
                self.switch.ip(f"link add {name} type bridge")
                self.switch.ip(f"link set {name} up")
            self._addresses(self.switch, "br0", 0, 254)
            for number in range(1, hosts + 1):
                self._host(f"h{number}", number, private)
                if second:
                    self._wire(self.hosts[f"h{number}"], 1)
            for host in self.hosts.values() if buffer else ():
                for which in ("rmem", "wmem"):
                    sizes = f"/proc/sys/net/ipv4/tcp_{which}"
                    host.run("sh", "-c", f"echo {buffer} {buffer} {buffer} > {sizes}")
            self.stranger = self._host("stranger", 66)
            del self.hosts["stranger"]
        except BaseException:
            self.close()
            raise

    def _box(self, box):
        self.boxes.append(box)
        return box

    def _host(self, name, number, private=False):
        host = self._box(Host(name, number))
        self.hosts[name] = host
        (self.state / name).write_text(str(host.pid))
        if 6 not in self.families:
            host.run(
                "sh",
                "-c",
                "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >"
                " /proc/sys/net/ipv6/conf/default/disable_ipv6",
            )
        if private:
            for interface, addresses in PRIVATE.items():
                host.ip(f"link add {interface} type bridge")
                host.ip(
                    f"link add {interface}a type veth peer name {interface}b"
                )  # a bridge with nothing in it would be down
                host.ip(f"link set {interface}a master {interface} up")
                host.ip(f"link set {interface}b up")
                host.ip(f"link set {interface} up")
                for one in addresses:
                    host.ip(
                        f"addr add {one.format(number)} dev {interface}"
                        + (" nodad" if ":" in one else "")
                    )
        self._wire(host, 0)
        if 4 in self.families:
            host.ip("route add default via 10.77.0.254")
        if 6 in self.families:
            host.ip("route add default via fd77::fe")
        return host

    def _wire(self, host, network):
        end = f"{host.name}-{network}"
        self.switch.ip(f"link add {end} type veth peer name eth{network} netns {host.pid}")
        self.switch.ip(f"link set {end} master br{network} up")
        host.ip(f"link set eth{network} up")
        self._addresses(host, f"eth{network}", network, host.number)

    def _addresses(self, box, interface, network, number):
        if 4 in self.families:
            box.ip(f"addr add 10.{77 + network}.0.{number}/24 dev {interface}")
        if 6 in self.families:
            box.ip(f"addr add fd{77 + network}::{number:x}/64 dev {interface} nodad")

    def pull(self, host, network=0):
        """Takes the host's cable out of the switch; the host itself sees no loss of carrier, as
        behind a second switch."""
        self.switch.ip(f"link set {host}-{network} nomaster")

    def plug(self, host, network=0):
        self.switch.ip(f"link set {host}-{network} master br{network}")

    def launcher(self):
        """What --launcher has to be for mpiexec to start things in these hosts."""
        return f"{HERE / 'enter'} {self.state}"

    def rsh(self):
        """The same through the wire: what is pulled or frozen is so for mpiexec, too."""
        for host in self.hosts.values():
            server = self.stack.enter_context(
                subprocess.Popen(
                    host.command("python3", HERE / "rsh.py", "serve"),
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            self.stack.callback(server.kill)
            server.stdout.readline()
        return f"nsenter --target {self.switch.pid} --net -- {HERE / 'rsh.py'} call"

    def close(self):
        for box in reversed(self.boxes):
            box.close()
        self.boxes = []
        self.stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

"""Two hosts for bench/run --net, and how each MPI is started on them.

A host is a network namespace with half of the cores. A veth pair joins the two. No MPI binds its
ranks: taskset gives each host its cores, for all MPIs alike.

mpiexec of every MPI runs on a third host, the head, which has a network of its own to the two. On
one of them it would start that host's ranks itself, outside of the host's cores and file systems.

The hosts are made by tests/net/hosts.py. They end with the process that holds them."""

import contextlib
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "net"))

MESSAGES, JOBS = "10.77.9", "10.77.8"  # eth0, for what is measured; eth1, for launchers
ADDRESSES = (f"{JOBS}.1", f"{JOBS}.2")
CONGESTION = "reno"  # in every kernel


def wait_for_links(boxes):
    """Waits until every interface and address can be used, which takes about a second.

    MPIs that start earlier fail (UCX: no such device; libfabric: a socket that cannot be bound;
    prterun: a daemon that does not answer).
    """
    end = time.monotonic() + 30
    while any(
        word in box.ip("addr show up")
        for box in boxes
        for word in ("state DOWN", "state LOWERLAYERDOWN", " tentative")
    ):
        if time.monotonic() > end:
            raise OSError("the links between the hosts do not come up")
        time.sleep(0.05)


def counted(each):
    """The hosts with so many ranks on each, as launchers take them."""
    return ",".join(f"{address}:{each}" for address in ADDRESSES)


class Pair:
    """The two hosts. What a launcher would do by ssh is done by a script that enters the
    namespaces."""

    def __init__(self, wrap=""):
        cores = sorted(os.sched_getaffinity(0))
        half = self.half = max(1, len(cores) // 2)
        shares = [",".join(map(str, cores[:half])), ",".join(map(str, cores[half:] or cores))]
        self.stack = contextlib.ExitStack()
        self.folder = pathlib.Path(
            self.stack.enter_context(tempfile.TemporaryDirectory(prefix="ferry-bench-"))
        )
        try:
            self.make_hosts()
            self.link_hosts()
            wait_for_links(self.boxes)
            self.enter = self.folder / "enter"
            self.write_enter(shares, wrap)
        except BaseException:
            self.close()
            raise

    def make_hosts(self):
        from hosts import Box

        self.boxes = []
        for name in ("bench1", "bench2", "head"):
            box = Box(name)
            self.stack.callback(box.close)
            self.boxes.append(box)
        self.head = self.boxes.pop()

    def link_hosts(self):
        """By eth0 for messages, and on all three by eth1 for launchers."""
        first, second = self.boxes
        first.ip(f"link add eth0 type veth peer name eth0 netns {second.pid}")
        self.head.ip("link add eth1 type bridge")
        self.head.ip("link set eth1 up")
        self.head.ip(f"addr add {JOBS}.254/24 dev eth1")
        for number, box in enumerate(self.boxes, 1):
            self.head.ip(f"link add port{number} type veth peer name eth1 netns {box.pid}")
            self.head.ip(f"link set port{number} master eth1 up")
            for interface, network in (("eth0", MESSAGES), ("eth1", JOBS)):
                box.ip(f"addr add {network}.{number}/24 dev {interface}")
                box.ip(f"link set {interface} up")
            # The same for all: Ferry alone would choose by the distance, and a system may have
            # one that paces (BBR).
            box.run("sh", "-c", f"echo {CONGESTION} > /proc/sys/net/ipv4/tcp_congestion_control")
            # UCX and libfabric look for interfaces there.
            box.run("mount", "-t", "sysfs", "none", "/sys")

    def write_enter(self, shares, wrap):
        """The script that launchers call as they would call ssh: options, host, command. ssh would
        not pass the environment on, so this does not matter."""
        lines = []
        for box, address, share in zip(self.boxes, ADDRESSES, shares):
            # Hosts have a /tmp each: the processes on both have the same numbers, and two of
            # prterun's daemons that share one meet there.
            own = self.folder / f"tmp-{box.name}"
            own.mkdir()
            lines.append(f"{address}|{box.name}) pid={box.pid} cores={share} own={own};;")
        lines = "\n".join(lines)
        self.enter.write_text(f"""#!/bin/sh
while :; do case "$1" in -p|-l|-o|-F|-i) shift 2;; -*) shift;; *) break;; esac; done
host=${{1##*@}}; shift
case "$host" in
{lines}
*) echo "no such host: $host" >&2; exit 255;;
esac
export TMPDIR=$own
spaces="--net --uts --ipc --mount --pid"
cd / && exec {wrap} taskset -c $cores nsenter --target $pid $spaces -- sh -c "$*"
""")
        self.enter.chmod(0o755)

    def command(self, key, prefix, ranks, programs, program):
        """How `key` runs a program, half of the ranks on each host; and what the environment
        must say."""
        each = ranks // 2
        start = {
            "ferry": self.ferry,
            "mpich": self.mpich_by_ucx,
            "mpich-ofi": self.mpich_by_ofi,
            "ompi": self.open_mpi,
        }.get(key, self.intel_mpi)
        # Where ranks share cores each MPI is told so in its own way.
        options, environment = start(prefix, each, crowded=each > self.half)
        inside = ["nsenter", "--target", str(self.head.pid), "--net", "--uts", "--ipc", "--"]
        launcher, binary = f"{prefix}/bin/mpiexec", str(programs / program)
        return [*inside, launcher, *options, "-n", str(ranks), binary], environment

    def ferry(self, _prefix, each, crowded):
        options = ["--hosts", counted(each), "--launcher", str(self.enter)]
        return options, {"FERRY_TCP_CONGESTION": "system", "FERRY_TCP_IF": "eth0"}

    def mpich_by_ucx(self, _prefix, each, crowded):
        ucx = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "eth0"}
        return self.mpich(each, crowded, ucx)

    def mpich_by_ofi(self, _prefix, each, crowded):
        ofi = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
        return self.mpich(each, crowded, ofi)

    def mpich(self, each, crowded, module):
        if crowded:
            module["MPIR_CVAR_POLLS_BEFORE_YIELD"] = "1"
        options = ["-launcher", "ssh", "-launcher-exec", str(self.enter), "-iface", "eth1"]
        return [*options, "-bind-to", "none", "-hosts", counted(each)], module

    def open_mpi(self, prefix, each, crowded):
        mca = [
            ("plm", "ssh"),
            ("plm_ssh_agent", str(self.enter)),
            ("pml", "ob1"),
            ("btl", "self,sm,tcp"),
            ("btl_tcp_if_include", f"{MESSAGES}.0/24"),
            ("prte_if_include", f"{JOBS}.0/24"),
        ]
        if crowded:
            mca.append(("mpi_yield_when_idle", "1"))
        options = ["--allow-run-as-root", "--prefix", str(prefix)]
        options += [word for name, value in mca for word in ("--mca", name, value)]
        return [*options, "--bind-to", "none", "--host", counted(each)], {}

    def intel_mpi(self, _prefix, each, crowded):
        options = ["-bootstrap", "ssh", "-bootstrap-exec", str(self.enter), "-iface", "eth1"]
        options += ["-hosts", ",".join(ADDRESSES), "-ppn", str(each)]
        return options, {
            **({"I_MPI_THREAD_YIELD": "3"} if crowded else {}),
            "I_MPI_FABRICS": "shm:ofi",
            "I_MPI_OFI_PROVIDER": "tcp",
            "FI_PROVIDER": "tcp",
            "FI_TCP_IFACE": "eth0",
            "I_MPI_PIN": "0",
            "I_MPI_HYDRA_IFACE": "eth1",
        }

    def close(self):
        self.stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

"""Two hosts for bench/run --net: namespaces with a network of their own and half of the cores each, joined by one veth pair, and how each MPI is
started on both. No MPI binds its ranks: the hosts' cores are given by taskset to all alike.

The hosts are those of tests/net/hosts.py: with the process that holds them they and everything in them are gone."""

import contextlib
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "net"))

ADDRESSES = ("10.77.9.1", "10.77.9.2")
SUBNET = "10.77.9.0/24"
CONGESTION = "reno"  # in every kernel


class Pair:
    """The two hosts. What a launcher would do by ssh is done by a script that enters the namespaces."""

    def __init__(self, wrap=""):
        from hosts import Box

        cores = sorted(os.sched_getaffinity(0))
        half = max(1, len(cores) // 2)
        shares = [",".join(map(str, cores[:half])), ",".join(map(str, cores[half:] or cores))]
        self.stack = contextlib.ExitStack()
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="ferry-bench-")))
        try:
            self.boxes = []
            for number in (1, 2):
                box = Box(f"bench{number}")
                self.stack.callback(box.close)
                self.boxes.append(box)
            first, second = self.boxes
            first.ip(f"link add eth0 type veth peer name eth0 netns {second.pid}")
            for box, address in zip(self.boxes, ADDRESSES):
                box.ip(f"addr add {address}/24 dev eth0")
                box.ip("link set eth0 up")
                # The same for all: Ferry alone would choose by the distance, and a system may have one that paces (BBR).
                box.run("sh", "-c", f"echo {CONGESTION} > /proc/sys/net/ipv4/tcp_congestion_control")
                box.run("mount", "-t", "sysfs", "none", "/sys")  # UCX looks for interfaces there
            self.enter = self.folder / "enter"
            lines = "\n".join(f"{address}|{box.name}) pid={box.pid} cores={share};;"
                              for box, address, share in zip(self.boxes, ADDRESSES, shares))
            # Launchers call it as they would call ssh: options, host, command. ssh would not pass the environment on, so this does not matter.
            self.enter.write_text(f"""#!/bin/sh
while :; do case "$1" in -p|-l|-o|-F|-i) shift 2;; -*) shift;; *) break;; esac; done
host=${{1##*@}}; shift
case "$host" in
{lines}
*) echo "no such host: $host" >&2; exit 255;;
esac
cd / && exec {wrap} taskset -c $cores nsenter --target $pid --net --uts --ipc --mount --pid -- sh -c "$*"
""")
            self.enter.chmod(0o755)
        except BaseException:
            self.close()
            raise

    def command(self, key, prefix, ranks, programs, program):
        """How `key` runs a program, half of the ranks on each host; and what the environment must say."""
        mpiexec, binary = f"{prefix}/bin/mpiexec", str(programs / program)
        each, hosts = ranks // 2, ",".join(ADDRESSES)
        counted = ",".join(f"{a}:{each}" for a in ADDRESSES)
        inside = ["nsenter", "--target", str(self.boxes[0].pid), "--net", "--uts", "--ipc", "--"]
        if key == "ferry":
            return [*inside, mpiexec, "--hosts", counted, "--launcher", str(self.enter), "-n", str(ranks), binary], {"FERRY_TCP_CONGESTION": "system"}
        if key in ("mpich", "mpich-ofi"):
            module = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "eth0"} if key == "mpich" else \
                {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
            return [*inside, mpiexec, "-launcher", "ssh", "-launcher-exec", str(self.enter), "-iface", "eth0", "-bind-to", "none",
                    "-hosts", counted, "-n", str(ranks), binary], module
        if key == "ompi":
            mca = [("plm", "ssh"), ("plm_ssh_agent", str(self.enter)), ("pml", "ob1"), ("btl", "self,sm,tcp"), ("btl_tcp_if_include", SUBNET),
                   ("prte_if_include", SUBNET)]
            options = [word for name, value in mca for word in ("--mca", name, value)]
            return [*inside, mpiexec, "--allow-run-as-root", "--prefix", str(prefix), *options, "--bind-to", "none",
                    "--host", counted, "-n", str(ranks), binary], {}
        return [*inside, mpiexec, "-bootstrap", "ssh", "-bootstrap-exec", str(self.enter), "-iface", "eth0", "-hosts", hosts, "-ppn", str(each),
                "-n", str(ranks), binary], {"I_MPI_FABRICS": "shm:ofi", "I_MPI_OFI_PROVIDER": "tcp", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0", "I_MPI_PIN": "0",
                                            "I_MPI_HYDRA_IFACE": "eth0"}

    def close(self):
        self.stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

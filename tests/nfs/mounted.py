"""C programs whose files lie on NFS. Runs inside the first guest, which is the server."""

import ctypes
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import guest
from inside import LAUNCHER, tests_run

HERE = pathlib.Path(__file__).resolve().parent
STATE = "/var/lib"  # what lies there on this machine is not needed in a guest
EXPORT, FOLDER = "/srv", "/mnt"
OPTIONS = (
    "rw,sync,wdelay,hide,nocrossmnt,insecure,no_root_squash,no_all_squash,no_subtree_check,"
    "secure_locks,acl,no_pnfs,fsid=0,anonuid=65534,anongid=65534,sec=sys"
)
ADDRESS = "10.78.0.1"
# The tests ask the system, too, for lengths and for files that another host has deleted.
TWO_GUESTS_OPTIONS = "noac,lookupcache=none"
ONE_NODE = ("file_mapped",)  # its second file is in memory


def mount(source, where, kind, data=""):
    os.makedirs(where, exist_ok=True)
    if guest.LIBC.mount(source.encode(), where.encode(), kind.encode(), 0, data.encode()) != 0:
        raise OSError(f"{source} cannot be mounted at {where}: {os.strerror(ctypes.get_errno())}")


def serve(plan):
    """Starts the server. Its files lie in memory; anybody may write there, as root too."""
    os.environ["PATH"] = ":".join([*plan["tools"], os.environ["PATH"]])
    libraries = ":".join(plan["libraries"])
    version = plan["version"]
    guest.load("nfsd")
    mount("state", STATE, "tmpfs")
    for folder in ("nfs/sm", "nfs/sm.bak", "nfs/rpc_pipefs", "nfs/v4recovery"):
        os.makedirs(f"{STATE}/{folder}")
    # What exportfs would write: it wants /etc/exports, and this machine's /etc cannot be changed.
    pathlib.Path(f"{STATE}/nfs/etab").write_text(f"{EXPORT}\t*({OPTIONS})\n")
    pathlib.Path(f"{STATE}/nfs/rmtab").touch()
    mount("export", EXPORT, "tmpfs")
    os.chmod(EXPORT, 0o777)
    mount("nfsd", "/proc/fs/nfsd", "nfsd")
    # A client's locks may be had again after a server's start, for as long as this, in seconds.
    for name in ("nfsv4gracetime", "nfsv4leasetime"):
        pathlib.Path(f"/proc/fs/nfsd/{name}").write_text("10")

    def tool(command):
        done = subprocess.run(
            ["env", f"LD_LIBRARY_PATH={libraries}", *command.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise OSError(f"{command}: {done.stdout.strip()}")

    if version == "3":
        tool("rpcbind -w")
        tool("rpc.statd --no-notify")
    others = "-N 4" if version == "3" else "-N 3"
    tool(f"rpc.mountd --port 20048 {'' if version == '3' else '-N 3'}")
    tool(f"rpc.nfsd -V {version if version != '4.0' else '4'} {others} 4")
    if version != "3":
        pathlib.Path("/proc/fs/nfsd/v4_end_grace").write_text("Y")


def attach(version, server, own, also):
    """Mounts the server's files in this guest."""
    guest.load("nfsv3" if version == "3" else "nfsv4")
    source, data = f"{server}:/", f"vers={version},addr={server},clientaddr={own}"
    if version == "3":
        source = f"{server}:{EXPORT}"
        data = f"vers=3,addr={server},mountaddr={server},mountport=20048,proto=tcp,mountproto=tcp"
    if also:
        data += f",{also}"
    mount(source, FOLDER, "nfs", data)


# Operations of NFS 4 that are counted, by their number in the protocol (RFC 8881, section 16.2).
COUNTED = {9: "GETATTR", 12: "LOCK", 14: "LOCKU", 18: "OPEN", 25: "READ", 38: "WRITE", 53: "calls"}


def served():
    """How often the server has done each operation, for all clients."""
    lines = pathlib.Path("/proc/net/rpc/nfsd").read_text().splitlines()
    counts = next((line.split()[2:] for line in lines if line.startswith("proc4ops")), [])
    return {name: int(counts[n]) for n, name in COUNTED.items() if n < len(counts)}


def drive(plan):
    run = tests_run()
    two = plan["guests"] > 1
    options = plan["options"]
    if options is None:
        options = TWO_GUESTS_OPTIONS if two else ""
    serve(plan)
    server = ADDRESS if two else "127.0.0.1"
    attach(plan["version"], server, server, options)
    if two:
        arguments = (plan["version"], ADDRESS, "10.78.0.2", options)
        words = f"import nfs.mounted as m; m.attach{arguments}"
        path = f"{HERE.parent}:{HERE.parent / 'tipc'}"
        command = f"PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={path} python3 -c {shlex.quote(words)}"
        done = subprocess.run(
            [*LAUNCHER.split(), "h2", f"{{ {command} ; }} 2>&1 && echo mounted"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        if not done.stdout.endswith("mounted\n"):
            raise OSError(f"h2: {done.stdout}")
    mounted = next(
        line for line in pathlib.Path("/proc/mounts").read_text().splitlines() if FOLDER in line
    )
    print(f"mounted: {mounted}", flush=True)
    tally = run.Tally(True)
    for name, command, limit in plan["runs"]:
        if two and name.split()[0] in ONE_NODE:
            continue
        ranks = int(command[command.index("-n") + 1])
        if two and ranks > 1:
            at = command.index(plan["mpiexec"]) + 1
            hosts = f"h1:{(ranks + 1) // 2},h2:{ranks // 2}"
            command[at:at] = ["--hosts", hosts, "--launcher", LAUNCHER]
        with tempfile.TemporaryDirectory(dir=FOLDER, ignore_cleanup_errors=True) as scratch:
            before = served()
            status, output, seconds = run.run_job(command, 4 * limit, scratch)
            done = ", ".join(f"{n - before[name]} {name}" for name, n in served().items())
            if done:
                print(f"# {name}: {done}", flush=True)
        problem = "not done in time" if status is None else f"exit status {status}"
        if status == 0:
            problem = "printed something" if output.strip() else None
        tally.add(f"{name}, {plan['guests']} guests", problem, output, seconds)
    sys.stdout.flush()

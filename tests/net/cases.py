"""What must hold across hosts. Each case builds its hosts, runs jobs on them and leaves nothing."""

import concurrent.futures
import contextlib
import fnmatch
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from .hosts import HERE, Network
from .job import Job

STRANGER = str(HERE / "stranger.py")
# Seconds after which a silent host is given up in the tests of silence; the default is longer.
SILENCE = 3
QUICK = {"FERRY_TCP_TIMEOUT": str(SILENCE), "FERRY_HOST_TIMEOUT": str(SILENCE)}
# C programs that say what is so on one host only: that all ranks share memory, or one wire.
ONE_HOST = ("comms", "tools_counts")
# Cases that wait for a time-out most of their time: several run at once, on hosts of their own.
SILENT = (
    "case_a_cable_pulled_for_good",
    "case_a_cable_pulled_for_good_that_mpiexec_needs_too",
    "case_a_host_that_cannot_be_reached",
    "case_a_host_that_freezes",
    "case_only_one_side_encrypts",
    "case_what_a_lost_rank_was_to_send",
)
WORD = "the-ferry-carries-this"


class Failed(Exception):
    """A case does not hold: what, and what the job said."""

    def __init__(self, what, output=""):
        super().__init__(what)
        self.output = output


def need(condition, what, output=""):
    if not condition:
        raise Failed(what, output)


class Cases:
    def __init__(self, run, mpi, tally, only):
        self.tests_run, self.mpi, self.tally, self.only = run, mpi, tally, only

    def all(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="ferry-net-programs-")
        # A name of its own, so that its processes can be told from everybody else's.
        self.storm = f"{self.scratch.name}/storm"
        with self.scratch:
            self.lost = f"{self.scratch.name}/lost"
            for program, where in (("storm", self.storm), ("lost", self.lost)):
                error = self.mpi.compile(
                    [HERE / f"{program}.c"], self.mpi.build / f"net-{program}", ["-O2"]
                )
                if error is not None:
                    self.tally.add(f"net/{program} (build)", "does not compile", error)
                    return
                shutil.copy(self.mpi.build / f"net-{program}", where)
            names = [name for name in dir(self) if name.startswith("case_") and self.wanted(name)]
            for name in names:
                if name not in SILENT:
                    self.one(name)
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                list(pool.map(self.one, [name for name in names if name in SILENT]))

    def title(self, name):
        return name[5:].replace("_", " ")

    def wanted(self, name):
        return not self.only or any(fnmatch.fnmatch(self.title(name), p) for p in self.only)

    def one(self, name):
        start = time.monotonic()
        try:
            getattr(self, name)()
            problem, output = None, ""
        except Failed as failure:
            problem, output = str(failure), failure.output
        self.tally.add(f"net/{self.title(name)}", problem, output, time.monotonic() - start)

    # What cases are made of.

    def job(self, network, hosts, *arguments, **options):
        return Job(self.mpi, network, hosts, *arguments, **options)

    def good(self, job, limit=60.0):
        """The job ends well; returns its output and how long it took."""
        status, output, seconds = job.end(limit)
        need(status == 0, "not done in time" if status is None else f"exit status {status}", output)
        return output, seconds

    def storms(self, network, hosts, *arguments, limit=60.0, **options):
        output, seconds = self.good(
            self.job(network, hosts, self.storm, *arguments, **options), limit
        )
        need(re.fullmatch(r"begun\n\d+ rounds\n", output), "said something else", output)
        return int(output.split()[1]), seconds

    def begun(self, job):
        if not job.says("^begun"):
            _, output, _ = job.end(5)
            raise Failed("the job did not begin", output)

    def ends(self, job, within, *words, status=None):
        """The job ends badly, at most `within` seconds from now, and what it says has these
        words."""
        start = time.monotonic()
        got, output, _ = job.end(within + 20)
        seconds = time.monotonic() - start
        need(got is not None, "did not end", output)
        need(got != 0 if status is None else got == status, f"exit status {got}", output)
        for word in words:
            need(re.search(word, output), f"the message does not say /{word}/", output)
        need(seconds <= within, f"took {seconds:.1f} s, should take at most {within}", output)
        return output

    def empty(self, network, within=3.0, but=""):
        """Nothing `but` this runs in the hosts any more, at the latest so many seconds from now."""
        end = time.monotonic() + within
        while True:
            left = {
                host.name: [p for p in host.processes() if not (but and p[2].startswith(but))]
                for host in network.hosts.values()
            }
            left = {name: some for name, some in left.items() if some}
            if not left:
                return
            need(time.monotonic() < end, f"processes are left: {left}")
            time.sleep(0.05)

    def listening(self, network, name="storm"):
        """(host, address, port) of everything that listens in the hosts."""
        return [
            (host.name, *where) for host in network.hosts.values() for where in host.listening()
        ]

    @contextlib.contextmanager
    def stranger(self, network, *arguments, box=None, feed=None):
        """Runs stranger.py; its findings are in the dictionary that this gives, once the block
        is left."""
        told = {}
        process = subprocess.Popen(
            (box or network.stranger).command("python3", STRANGER, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            if arguments[0] == "listen":
                process.stdout.readline()
            yield told
            out, _ = process.communicate(feed, timeout=60)
            need(process.returncode == 0, f"stranger.py {arguments[0]} failed")
            told.update(json.loads(out))
        finally:
            process.kill()
            process.wait()

    # All is well.

    def case_a_storm_over_2_hosts(self):
        with Network(2) as network:
            for hosts in ("h1:1,h2:1", "h1:2,h2:2", "h1:3,h2:1"):
                self.storms(network, hosts, "1.5")
            self.empty(network)

    def case_a_storm_over_4_hosts(self):
        with Network(4) as network:
            self.storms(network, "h1:1,h2:1,h3:1", "1.5")
            self.storms(network, "h1:2,h2:1,h3:3", "1.5")
            self.storms(network, "h1:2,h2:2,h3:2,h4:2", "2.5")
            self.empty(network)

    def case_a_storm_through_small_sockets(self):
        # Every large message fills its socket many times, and so does every burst. A rank that is
        # not woken by room goes on a second later at best.
        with Network(2, buffer=8192) as network:
            for hosts, settings in (
                ("h1:1,h2:1", {}),
                ("h1:2,h2:2", {}),
                ("h1:3,h2:2", {"FERRY_ENCRYPT": "1"}),
            ):
                self.storms(network, hosts, "100x", limit=10, environment=settings)
            self.empty(network)

    def case_b_the_C_programs(self):
        self.c_programs("")

    def case_b_the_windows_encrypted(self):
        self.c_programs("win_*", "FERRY_ENCRYPT=1")

    def case_b_a_progress_thread_and_small_sockets(self):
        # What a rank leaves in a full socket goes on while it computes.
        names = "coalesced,storm,win_pscw,win_random"
        self.c_programs(names, "FERRY_PROGRESS=thread", buffer=6000)

    def c_programs(self, names, *settings, buffer=None):
        """The C programs of these names, on 4 ranks of 2 hosts whose sockets have these buffers."""

        class Options:
            only, jobs, ranks, suite = names, 2, [4], ["c"]

        # What tests one process alone, or hundreds, gains nothing here; these are run on 4 ranks of
        # 2 hosts or not at all.
        scratch = tempfile.TemporaryDirectory(prefix="ferry-net-c-")
        with Network(2, buffer=buffer) as network, scratch as directory:
            prefix = ["--hosts", "h1:2,h2:2", "--launcher", network.launcher()]

            def one(run):
                name, command, limit = run
                at = command.index(str(self.mpi.mpiexec)) + 1  # before it env may stand
                command = [*command[:at], *prefix, *command[at:]]
                if settings:
                    command = ["env", *settings, *command]
                own = tempfile.mkdtemp(dir=directory)
                status, output, seconds = self.tests_run.run_job(command, limit, own)
                problem = (
                    "not done in time"
                    if status is None
                    else (
                        f"exit status {status}"
                        if status
                        else "printed something" if output.strip() else None
                    )
                )
                title = " ".join(["net/2 hosts:", name, *settings])
                self.tally.add(title, problem, output, seconds)

            runs = self.tests_run.c_runs(self.mpi, Options, self.tally)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                list(
                    pool.map(
                        one,
                        [
                            run
                            for run in runs
                            if run[0].endswith(" on 4") and run[0].split()[0] not in ONE_HOST
                        ],
                    )
                )
            self.empty(network)

    def case_mpiexec_on_a_host_of_the_job(self):
        with Network(2) as network:
            self.storms(network, "h1:2,h2:2", "1", within=network.hosts["h1"])

    def case_IPv4_only(self):
        with Network(2, families=(4,)) as network:
            self.storms(network, "h1:2,h2:2", "1")

    def case_IPv6_only(self):
        with Network(2, families=(6,)) as network:
            self.storms(network, "h1:2,h2:2", "1")

    def case_interfaces_that_lead_nowhere(self):
        with Network(2, private=True) as network:
            _, plain = self.storms(network, "h1:2,h2:2", "1")
            need(plain < 8, f"took {plain:.1f} s: addresses were tried that lead nowhere")
            job = self.job(network, "h1:2,h2:2", self.storm, "30")
            self.begun(job)
            listening = self.listening(network)
            job.process.send_signal(signal.SIGINT)
            job.end(10)
            need(listening, "nobody listens")
            mine = re.compile(r"10\.77\.0\.\d+|fd77::[0-9a-f]+")
            for host, address, port in listening:
                need(mine.fullmatch(address), f"{host} listens at {address}, port {port}")

    def case_the_interface_that_was_asked_for(self):
        with Network(2, second=True) as network:
            for asked in ("eth1", "10.78.0.0/24", "fd78::/64"):
                before = {i: network.hosts["h1"].bytes_sent(i) for i in ("eth0", "eth1")}
                self.storms(network, "h1:1,h2:1", "1", environment={"FERRY_TCP_IF": asked})
                sent = {i: network.hosts["h1"].bytes_sent(i) - before[i] for i in before}
                need(
                    sent["eth1"] > 1e6 and sent["eth0"] < 1e4, f"FERRY_TCP_IF={asked}: sent {sent}"
                )
            status, output, seconds = self.job(
                network, "h1:1,h2:1", self.storm, "1", environment={"FERRY_TCP_IF": "ib0"}
            ).end(20)
            need(status not in (0, None), f"FERRY_TCP_IF=ib0: exit status {status}", output)
            for word in ("FERRY_TCP_IF", "eth0"):
                need(word in output, f"FERRY_TCP_IF=ib0: the message does not say {word}", output)

    # Something breaks.

    def case_a_cable_pulled_for_a_second(self):
        with Network(2) as network:
            job = self.job(network, "h1:2,h2:2", self.storm, "4", environment=QUICK)
            self.begun(job)
            network.pull("h2")
            time.sleep(1.0)  # the second is what is tested
            network.plug("h2")
            self.good(job)

    def case_a_cable_pulled_for_good(self):
        with Network(3) as network:
            job = self.job(network, "h1:2,h2:1,h3:1", self.storm, "60", environment=QUICK)
            self.begun(job)
            network.pull("h2")
            output = self.ends(job, 3 * SILENCE + 3, r"rank \d", r"h[123]\b")
            need(
                "h2" in output or "rank 2" in output, "neither host h2 nor rank 2 is named", output
            )
            self.empty(network)

    def case_what_a_lost_rank_was_to_send(self):
        with Network(2) as network:
            job = self.job(
                network, "h1:1,h2:1", self.lost, environment={**QUICK, "FERRY_ON_HANG": "ignore"}
            )
            self.begun(job)
            network.pull("h2")
            told = all(
                [
                    job.says(f"^rank {rank}: {calls} calls failed", 10 * SILENCE)
                    for rank, calls in ((0, 7), (1, 9))
                ]
            )
            os.kill(job.process.pid, signal.SIGTERM)
            _, output, _ = job.end(20)
            need(told, "not all calls failed as they should", output)
            self.empty(network)

    def case_a_cable_pulled_for_good_that_mpiexec_needs_too(self):
        with Network(2) as network:
            launcher = network.rsh()
            job = self.job(
                network, "h1:2,h2:2", self.storm, "60", environment=QUICK, launcher=launcher
            )
            self.begun(job)
            network.pull("h2")
            self.ends(job, 3 * SILENCE + 3, r"\bh2\b")
            # Nobody tells the agent there: it has to notice by itself.
            self.empty(network, 3 * SILENCE, but="python3")

    # Jobs of several hosts that meet.

    def dynamic(self, name):
        """A program of tests/dynamic, under a name of its own."""
        built = self.mpi.build / f"net-{name}"
        source = HERE.parent / "dynamic" / f"{name}.c"
        error = self.mpi.compile([source], built, ["-O1", "-pthread"])
        need(error is None, f"{name}.c does not compile", error or "")
        return built

    def quiet_end(self, job):
        output, _ = self.good(job)
        need(not output.strip(), "printed something", output)

    def case_processes_started_on_other_hosts(self):
        spawn = self.dynamic("spawn")
        with Network(3) as network:
            # From the first host on the second, from both on the third, and on all.
            for hosts, elsewhere, settings in (
                ("h1:2", "h2:2", {}),
                ("h1:1,h2:1", "h3:3", {}),
                ("h1:2,h2:1", "h1:1,h2:1,h3:1", {}),
                ("h1:2", "h2:2", {"FERRY_ENCRYPT": "1"}),
            ):
                settings = {"SPAWN_HOSTS": elsewhere, **settings}
                self.quiet_end(self.job(network, hosts, spawn, 3, 2, environment=settings))
            self.empty(network)

    def case_jobs_that_meet_between_hosts(self):
        meet = self.dynamic("meet")
        with Network(4) as network, tempfile.TemporaryDirectory(prefix="ferry-net-meet-") as folder:
            for number, (accept, connect, settings) in enumerate(
                (
                    ("h1:2", "h2:3", {}),
                    ("h1:1,h2:2", "h3:2,h4:1", {}),
                    ("h1:2,h2:1", "h1:1,h3:2", {}),
                    ("h1:2", "h2:2", {"FERRY_ENCRYPT": "1"}),
                )
            ):
                port = f"{folder}/{number}"
                jobs = [
                    self.job(network, hosts, meet, how, port, 3, environment=settings)
                    for hosts, how in ((accept, "accept"), (connect, "connect"))
                ]
                for job in jobs:
                    self.quiet_end(job)
            self.empty(network)

    def case_a_job_on_another_host_that_dies(self):
        told = self.dynamic("told")
        with Network(2) as network, tempfile.TemporaryDirectory(prefix="ferry-net-told-") as folder:
            port, fifo = f"{folder}/port", f"{folder}/fifo"
            os.mkfifo(fifo)
            waits = self.job(network, "h1:3", told, "accept", fifo, port)
            end = time.monotonic() + 20
            while not os.path.exists(port):
                need(time.monotonic() < end, "no port is opened", waits.output)
                time.sleep(0.01)
            dies = self.job(network, "h2:2", told, "connect", fifo, port)
            output, _ = self.good(waits)
            need("all are told" in output, "not all are told", output)
            self.ends(dies, 5, "killed by signal 9", status=137)
            self.empty(network)

    def case_jobs_on_two_hosts_that_hang(self):
        # Each mpiexec runs on the host of its job, and they find each other by the network.
        hang = self.dynamic("hang")
        with Network(2) as network, tempfile.TemporaryDirectory(prefix="ferry-net-hang-") as folder:
            jobs = [
                self.job(
                    network,
                    f"{host}:2",
                    *(hang, "all", how, f"{folder}/port"),
                    within=network.hosts[host],
                )
                for host, how in (("h1", "accept"), ("h2", "connect"))
            ]
            for job in jobs:
                words = ("those that it has met hang", "rank 1 of job")
                output = self.ends(job, 10, *words, status=125)
                need(output.count("2 ranks") == 2, "not both jobs are shown", output)
            self.empty(network)

    def case_a_host_that_cannot_be_reached(self):
        with Network(2) as network:
            network.pull("h2")
            job = self.job(network, "h1:1,h2:1", self.storm, "5", environment=QUICK)
            self.ends(job, 3 * SILENCE + 5, r"10\.77\.0\.\d", "fd77::", r"rank \d", r"h[12]\b")
            self.empty(network)

    def case_a_rank_killed_on_another_host(self):
        with Network(2) as network:
            job = self.job(network, "h1:2,h2:2", self.storm, "60")
            self.begun(job)
            outside, inside, _ = network.hosts["h2"].processes("storm")[0]
            os.kill(outside, signal.SIGKILL)
            output = self.ends(
                job, 3, r"rank [23]\b", r"\bh2\b", "signal 9|SIGKILL|[Kk]illed", status=137
            )
            need(str(inside) in output, f"the process number {inside} is not named", output)
            self.empty(network, 2)

    def case_an_agent_killed(self):
        with Network(2) as network:
            job = self.job(network, "h1:2,h2:2", self.storm, "60")
            self.begun(job)
            need(network.hosts["h2"].signal(signal.SIGKILL, "mpiexec") > 0, "there is no agent")
            self.ends(job, 3, r"\bh2\b")
            self.empty(network)

    def case_a_host_that_dies(self):
        with Network(2) as network:
            job = self.job(network, "h1:2,h2:2", self.storm, "60", environment=QUICK)
            self.begun(job)
            network.hosts["h2"].signal(signal.SIGKILL)
            self.ends(job, 3, r"\bh2\b")
            self.empty(network)

    def case_a_host_that_freezes(self):
        with Network(2) as network:
            job = self.job(network, "h1:2,h2:2", self.storm, "60", environment=QUICK)
            self.begun(job)
            network.hosts["h2"].signal(signal.SIGSTOP)
            self.ends(job, 2 * SILENCE + 3, r"\bh2\b")
            network.hosts["h2"].signal(signal.SIGCONT)
            self.empty(network, 2 * SILENCE + 3)

    def case_mpiexec_killed(self):
        with Network(2) as network:
            job = self.job(network, "h1:2,h2:2", self.storm, "60")
            self.begun(job)
            job.process.kill()
            job.end()
            self.empty(network)

    def case_no_such_host(self):
        with Network(1) as network:
            job = self.job(network, "h1:1,h9:1", self.storm, "1")
            self.ends(job, 5, r"\bh9\b")
            self.empty(network)

    # Strangers.

    def case_strangers_at_the_door(self):
        with Network(3) as network:
            hosts, rounds = "h1:2,h2:1,h3:1", 60
            _, alone = self.storms(network, hosts, f"{rounds}x")
            # Long enough that the strangers come while it works, however quick that is.
            more = max(1, math.ceil(5 / alone))
            alone *= more
            job = self.job(network, hosts, self.storm, f"{rounds * more}x")
            self.begun(job)
            targets = [
                str(x) for _, address, port in self.listening(network) for x in (address, port)
            ]
            need(targets, "nobody listens")
            with self.stranger(network, "bother", *targets) as bother, self.stranger(
                network, "flood", *targets
            ) as flood:
                output, disturbed = self.good(job, 120)
            self.told(bother, flood)
            need(
                disturbed < 4 * alone + 5,
                f"took {disturbed:.1f} s, and {alone:.1f} s undisturbed",
                output,
            )
            # The counters, and what is said of them.
            need(
                re.search(
                    r"a connection from (10\.77\.0\.66|\[fd77::42\]):\d+ was refused: it does not"
                    r" speak",
                    output,
                ),
                "nothing is said of those sent away",
                output,
            )
            need(output.count("was refused") < 200, "too much is said of those sent away", output)

    def told(self, *findings):
        for found in findings:
            need(found["connections"] > 20, f"too few connections to prove anything: {found}")
            for bad in ("answered", "still open"):
                need(not found.get(bad), f"a stranger was answered or kept: {found}")

    def case_a_recorded_handshake_repeated(self):
        """While the job still runs, so that the key is right."""
        with Network(2) as network, tempfile.TemporaryDirectory(prefix="ferry-net-end-") as folder:
            end = pathlib.Path(folder) / "end"
            with self.stranger(network, "listen", box=network.switch) as recorded:
                job = self.job(network, "h1:2,h2:2", self.storm, end)
                self.begun(job)
            hello = b"\x89FERRY"
            callers = [
                f
                for f in recorded["flows"]
                # More than hello and finished.
                if bytes.fromhex(f["first"]).startswith(hello) and len(f["first"]) > 2 * 96
            ]
            callers = [
                f
                for f in callers
                if any(f["to"] == a and f["dport"] == p for _, a, p in self.listening(network))
            ]
            need(callers, f"no handshake among {len(recorded['flows'])} recorded connections")
            lines = "".join(
                json.dumps({"address": f["to"], "port": f["dport"], "said": f["first"]}) + "\n"
                for f in callers
            )
            with self.stranger(network, "replay", feed=lines) as told:
                pass
            need(job.process.poll() is None, "the job has ended before", job.output)
            end.touch()
            output, _ = self.good(job)
            need(told["played"] == 2 * len(callers), f"{told}")
            need(told["answers"] == 0, f"a recorded hello was answered: {told}")
            need(
                told["bytes after finish"] == 0 and told["still open"] == 0,
                f"a recorded handshake was believed: {told}",
            )
            need(
                re.search(r"a connection from .* was refused: it could not prove", output),
                "nothing is said of the recorded handshakes",
                output,
            )

    def case_encryption(self):
        with Network(2) as network:
            for encrypt, seen in (("1", False), ("0", True)):
                with self.stranger(network, "listen", WORD, box=network.switch) as heard:
                    rounds, _ = self.storms(
                        network,
                        "h1:1,h2:1",
                        "30x",
                        "20000",
                        WORD,
                        environment={"FERRY_ENCRYPT": encrypt},
                    )
                need(
                    rounds == 30 and heard["packets"] > 100,
                    f"too little traffic: {heard['packets']} packets",
                )
                need(heard["lost"] == 0, f"{heard['lost']} packets were not looked at")
                need(
                    bool(heard["found"]) == seen,
                    f"FERRY_ENCRYPT={encrypt}: the word was in {heard['found']} of"
                    f" {heard['packets']} packets",
                )
            self.storms(network, "h1:2,h2:2", "1.5", environment={"FERRY_ENCRYPT": "1"})

    def case_only_one_side_encrypts(self):
        with Network(2) as network:
            job = self.job(
                network,
                "h1:1,h2:1",
                "env",
                "FERRY_ENCRYPT=1",
                self.storm,
                "1",
                ":",
                "-n",
                "1",
                self.storm,
                "1",
                number=1,
                environment=QUICK,
            )
            self.ends(job, 3 * SILENCE + 5, "FERRY_ENCRYPT")

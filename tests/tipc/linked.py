"""What must hold in two guests that are joined by a link of TIPC. Runs inside the first; the
other is entered by tests/net/rsh.py over another cable than the one that is tested."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types

from guest import await_node, enabling, node, run as do
from inside import LAUNCHER, Names, Tap, tests_run
from net.cases import Cases, Failed, need
from net.job import Job

WORD = "the-ferry-carries-this"
TIPC = {"FERRY_TRANSPORTS": "shm,tipc"}
QUICK = {**TIPC, "FERRY_HOST_TIMEOUT": "3"}
KIND = 18888


def there(command):
    """Runs a command in the other guest."""
    done = subprocess.run(
        [*LAUNCHER.split(), "h2", f"{{ {command}; }} && echo well"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    if not done.stdout.endswith("well\n"):
        raise OSError(f"h2: {command}: {done.stdout.strip()}")
    return done.stdout.removesuffix("well\n")


def both(command):
    do(command)
    there(command)


def links():
    """The links' statistics: of packets and of fragments sent by this node."""
    text = do("tipc link statistics show")
    sent = [
        m
        for part in text.split("Link <")
        if not part.startswith("broadcast")
        for m in re.findall(r"TX packets:(\d+) fragments:(\d+)/(\d+)", part)
    ]
    return sum(int(s[0]) for s in sent), sum(int(s[2]) for s in sent)


class Linked(Cases):
    def __init__(self, plan, tally):
        super().__init__(None, types.SimpleNamespace(mpiexec=plan["mpiexec"]), tally, plan["only"])
        self.plan, self.storm, self.slow = plan, plan["storm"], plan["slow"]

    def all(self):
        import fnmatch

        nodes = Names(0)
        for name in [name for name in dir(self) if re.match(r"case_\d\d_", name)]:
            title = name[8:].replace("_", " ")
            if self.only and not any(fnmatch.fnmatch(title, pattern) for pattern in self.only):
                continue
            start = time.monotonic()
            try:
                getattr(self, name)()
                problem, output = None, ""
            except Failed as failure:
                problem, output = str(failure), failure.output
            except OSError as failure:
                problem, output = str(failure), ""
            if problem:
                output += "".join(
                    f"node {n:x} {'came' if event == 1 else 'was lost'} after {at - start:.1f} s\n"
                    for at, event, n in nodes.history
                    if at > start
                )
            self.tally.add(f"2 guests: {title}", problem, output, time.monotonic() - start)

    def job(self, _network, hosts, *arguments, environment=TIPC, **options):
        return Job(
            self.mpi, None, hosts, *arguments, launcher=LAUNCHER, environment=environment, **options
        )

    # All is well.

    def case_01_a_storm_over_Ethernet(self):
        before = links()
        for hosts in ("h1:1,h2:1", "h1:2,h2:2"):
            self.storms(None, hosts, "1.5")
        after = links()
        need(
            after[0] - before[0] > 1000 and after[1] - before[1] > 100,
            f"packets and fragments sent: {before} before, {after} after",
        )

    def case_02_TIPC_alone_within_nodes_too(self):
        self.storms(None, "h1:2,h2:2", "1.5", environment={"FERRY_TRANSPORTS": "tipc"})

    def case_03_chosen_by_itself_and_TCP_where_it_is_asked_for(self):
        names = Names(KIND)
        for environment, wanted in (({}, 4), ({"FERRY_TRANSPORTS": "shm,tcp"}, 0)):
            before = links()
            job = self.job(None, "h1:2,h2:2", self.storm, "2", environment=environment)
            self.begun(job)
            known = names.wait(lambda k: len(k) == wanted, 5)
            need(known is not None, f"{environment}: names published: {names.known}")
            need(
                {where for _, where, _ in known} == ({node(1), node(2)} if wanted else set()),
                f"{environment}: {known}",
            )
            output, _ = self.good(job)
            sent = links()[0] - before[0]
            need(
                sent > 500 if wanted else sent < 200,
                f"{environment}: {sent} packets of TIPC",
                output,
            )
        need(names.wait(lambda k: not k, 5) is not None, f"names are left: {names.known}")

    def case_04_C_programs(self):
        with tempfile.TemporaryDirectory() as scratch:
            for name, command, limit in self.plan["runs"]:
                at = command.index(str(self.mpi.mpiexec)) + 1
                full = [
                    *command[:at],
                    "--hosts",
                    "h1:2,h2:2",
                    "--launcher",
                    LAUNCHER,
                    *command[at:],
                ]
                status, output, seconds = tests_run().run_job(
                    full, 2 * limit, scratch, {**os.environ, **TIPC}
                )
                problem = (
                    "not done in time"
                    if status is None
                    else (
                        f"exit status {status}"
                        if status
                        else "printed something" if output.strip() else None
                    )
                )
                self.tally.add(f"2 guests: {name}", problem, output, seconds)

    def case_05_a_slow_receiver_loses_nothing(self):
        for environment in (TIPC, {**TIPC, "FERRY_ENCRYPT": "1"}):
            output, _ = self.good(
                self.job(None, "h1:1,h2:1", self.slow, "1", environment=environment)
            )
            need(not output, "it said something", output)

    def case_06_two_jobs_at_once(self):
        names = Names(KIND)
        jobs = [self.job(None, "h1:1,h2:1", self.storm, "2") for _ in range(2)]
        for job in jobs:
            self.begun(job)
        known = names.wait(lambda k: len(k) == 4, 5)
        need(
            known is not None and len({name for name, _, _ in known}) == 4, f"names: {names.known}"
        )
        for job in jobs:
            self.good(job)

    def case_07_another_service_type(self):
        names = Names(20000)
        job = self.job(
            None, "h1:1,h2:1", self.storm, "1", environment={**TIPC, "FERRY_TIPC_TYPE": "20000"}
        )
        need(names.wait(lambda k: len(k) == 2, 10) is not None, f"names: {names.known}")
        self.good(job)
        job = self.job(
            None, "h1:1,h2:1", self.storm, "1", environment={**TIPC, "FERRY_TIPC_TYPE": "63"}
        )
        self.ends(job, 10, "FERRY_TIPC_TYPE", "64")

    def case_08_encryption(self):
        for encrypt, seen in (("1", False), ("0", True)):
            with Tap("vec0", WORD) as tap:
                self.storms(
                    None,
                    "h1:1,h2:1",
                    "15x",
                    "20000",
                    WORD,
                    environment={**TIPC, "FERRY_ENCRYPT": encrypt},
                )
            need(tap.bytes > 200_000, f"too little traffic: {tap.bytes} bytes")
            need(
                (tap.found > 10) == seen and (tap.found == 0 or seen),
                f"FERRY_ENCRYPT={encrypt}: the word was in {tap.found} of {tap.frames} frames",
            )

    def case_09_strangers_at_the_door(self):
        names = Names(KIND)
        job = self.job(None, "h1:2,h2:2", self.storm, "4")
        self.begun(job)
        known = names.wait(lambda k: len(k) == 4, 5)
        need(known is not None, f"names: {names.known}")
        answered = []

        def bother(instance, said):
            with socket.socket(socket.AF_TIPC, socket.SOCK_STREAM) as caller:
                caller.settimeout(20)
                try:
                    caller.connect((socket.TIPC_ADDR_NAME, KIND, instance, 0))
                    caller.sendall(said)
                    answer = caller.recv(1000)
                except OSError:
                    answer = b""  # sent away
                if answer:
                    answered.append((instance, answer))

        sayings = [
            b"GET / HTTP/1.0\r\n\r\n",
            b"\x89FERRY\x02\x00" + b"\x55" * 68,
            b"\xff" * 4000,
            b"\x89FERRY\x09\x00",
        ]
        threads = [
            threading.Thread(target=bother, args=(name, said))
            for name, _, _ in known
            for said in sayings
        ]
        # These say nothing, as many as the handshake backlog holds, and more.
        silent = []
        for name, _, _ in known:
            for _ in range(70):
                one = socket.socket(socket.AF_TIPC, socket.SOCK_STREAM)
                one.setblocking(False)
                silent.append(one)
                try:
                    one.connect((socket.TIPC_ADDR_NAME, KIND, name, 0))
                except BlockingIOError:
                    pass
        for thread in threads:
            thread.start()
        output, _ = self.good(job)
        for thread in threads:
            thread.join()
        for one in silent:
            one.close()
        need(not answered, f"strangers were answered: {answered}")
        need(
            re.search(
                r"a connection from TIPC node \w+ port \d+ was refused: it does not speak", output
            ),
            "nothing is said of those sent away",
            output,
        )

    # Something breaks.

    def case_20_a_cable_that_carries_nothing_for_a_second(self):
        """TIPC bears that as long as it is less than the link's tolerance."""
        job = self.job(None, "h1:2,h2:2", self.storm, "4")
        self.begun(job)
        do("tc qdisc add dev vec0 clsact")
        for direction in ("ingress", "egress"):
            do(f"tc filter add dev vec0 {direction} matchall action drop")
        time.sleep(1.0)  # the second is what is tested
        text = do("tc -s filter show dev vec0 egress")
        do("tc qdisc del dev vec0 clsact")
        self.good(job)
        need(
            any(int(n) > 0 for n in re.findall(r"dropped (\d+)", text)), "nothing was dropped", text
        )

    def case_21_a_cable_that_loses_and_delays(self):
        both("tc qdisc add dev vec0 root netem loss 1% delay 1ms 1ms")
        try:
            self.storms(None, "h1:2,h2:2", "2")
        finally:
            both("tc qdisc del dev vec0 root")

    def case_22_a_link_taken_down_for_a_second(self):
        """Of the only one: TIPC gives the node up at once, and so does Ferry, well before any
        time limit."""
        job = self.job(None, "h1:1,h2:1", self.storm, "60", environment=QUICK)
        self.begun(job)
        do("tipc bearer disable media eth device vec0")
        try:
            self.ends(job, 5, r"rank [01]\b", r"\bh[12]\b", "no TIPC link leads to its node")
        finally:
            self.enable("eth vec0", 1)
            await_node(2)
        self.storms(None, "h1:1,h2:1", "1")

    def case_23_one_of_two_links_taken_down_for_a_second(self):
        """The other one takes over, and the job notices nothing."""
        self.enable("eth vec1", 1, 2)
        try:
            self.two_links()
            job = self.job(None, "h1:2,h2:2", self.storm, "4")
            self.begun(job)
            do("tipc bearer disable media eth device vec0")
            time.sleep(1.0)  # the second is what is tested
            self.enable("eth vec0", 1)
            self.good(job)
            self.two_links()
        finally:
            both("tipc bearer disable media eth device vec1")

    def two_links(self):
        end = time.monotonic() + 20
        while do("tipc link list").count(": up") < 3:  # the two, and the one for broadcasts
            need(
                time.monotonic() < end, "the second link does not come up: " + do("tipc link list")
            )
            time.sleep(0.1)

    def case_24_a_rank_killed_in_the_other_guest(self):
        job = self.job(None, "h1:2,h2:2", self.storm, "60", environment=QUICK)
        self.begun(job)
        names = Names(KIND)
        need(names.wait(lambda k: len(k) == 4, 5) is not None, f"names: {names.known}")
        pid = there(f"pidof {os.path.basename(self.storm)}").split()[0]
        there(f"kill -9 {pid}")
        self.ends(job, 4, r"rank [23]\b", r"\bh2\b", "signal 9|SIGKILL|[Kk]illed", status=137)
        need(names.wait(lambda k: not k, 5) is not None, f"names are left: {names.known}")

    def case_25_a_guest_that_stands_still(self):
        """For less than the link's tolerance, which nobody notices; then for longer, and it is
        up again before anybody asks."""
        job = self.job(None, "h1:2,h2:2", self.storm, "4")
        self.begun(job)
        print("stop: h2 2.5", flush=True)
        self.good(job)
        both("tipc bearer set tolerance 1500 media eth device vec0")
        try:
            job = self.job(None, "h1:2,h2:2", self.storm, "60")
            self.begun(job)
            print("stop: h2 2.5", flush=True)
            self.ends(job, 12, r"rank \d\b", r"\bh[12]\b", "TIPC link", "tipc bearer set tolerance")
        finally:
            both("tipc bearer set tolerance 10000 media eth device vec0")
            await_node(2)
        self.storms(None, "h1:1,h2:1", "1")

    def case_30_a_bearer_over_UDP(self):
        both("tipc bearer disable media eth device vec0")
        self.enable("udp u", 1, 2)
        await_node(2)
        before = links()
        self.storms(None, "h1:2,h2:2", "1.5")
        self.good(self.job(None, "h1:1,h2:1", self.slow, "0.5"))
        after = links()
        need(
            after[1] - before[1] > 100,
            f"packets and fragments sent: {before} before, {after} after",
        )

    def case_31_no_bearer(self):
        both("tipc bearer disable media udp name u")
        job = self.job(None, "h1:1,h2:1", self.storm, "1")
        self.ends(job, 20, "no TIPC link leads to its node", "tipc bearer enable", r"rank [01]\b")
        # By itself Ferry takes TCP then.
        names = Names(KIND)
        self.storms(None, "h1:1,h2:1", "1", environment={"FERRY_TCP_IF": "vec0"})
        self.enable("eth vec0", 1, 2)
        await_node(2)

    def enable(self, bearer, *guests):
        """A bearer, in these guests."""
        for number in guests:
            for command in enabling(bearer, number):
                (do if number == 1 else there)(command)

    def case_40_a_guest_killed(self):
        """The last: the other guest is gone then. It goes the way of a power failure."""
        both("tipc bearer set tolerance 1500 media eth device vec0")
        job = self.job(None, "h1:2,h2:2", self.storm, "60", environment=QUICK)
        self.begun(job)
        print("kill: h2", flush=True)
        output = self.ends(job, 8, r"\bh2\b")
        print("    it said: " + " | ".join(output.splitlines()[:6]), flush=True)


def drive(plan):
    await_node(2)
    tally = tests_run().Tally(True)
    Linked(plan, tally).all()
    sys.stdout.flush()

"""What the benchmarks of one chapter share: they run one C program over Ferry and its peers in
turns, and print a table of ratios with aims."""

import argparse
import csv
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import ending
import turns
from figures import FIGURES, rounded, size_name, values_in
from peers import NAMES, ROOT, implementations

# For ranks that share cores: each gives its core away while it waits.
CROWDED = {
    "ferry": {},
    "mpich": {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"},
    "ompi": {"OMPI_MCA_mpi_yield_when_idle": "1"},
    "intel": {"I_MPI_WAIT_MODE": "1"},
}


class Benchmark:
    """A benchmark: a program with parts, where and on how many ranks they run, and what Ferry must
    reach. A key is (place, figure, ranks, bytes)."""

    name = ""  # of the command, and of the program's source
    description = ""
    figures = {}  # figure: (title, unit, larger is better)
    runs = []  # (parts, ranks, seconds for one turn, in the first round only)
    needed = {}  # MPI: environment
    places = ("node",)

    def aim(self, key):
        """What Ferry must reach: (bound, whether more is better, whether it is a ratio to the best
        peer), or None."""
        raise NotImplementedError

    def place(self, parts):
        """Where a run takes place, if its parts say so; otherwise it does in each place."""
        return None

    def environment(self, place):
        """What the program needs to know of a place."""
        return {}

    def counts(self, results, peer, key):
        """Does this peer's figure count?"""
        return True

    def title_of(self, place, ranks):
        return f"{ranks} ranks"

    def columns(self, impls, place):
        """The MPIs with a column in the tables of a place, with their names."""
        return [(impl, NAMES[impl]) for impl in impls]

    def jobs(self, order, place, parts, ranks, cores, budget):
        """The jobs that take turns."""
        return [self.job(impl, place, parts, ranks, cores, budget) for impl in order]

    def job(self, impl, place, parts, ranks, cores, budget):
        environment = {**self.needed.get(impl.key, {}), **self.environment(place)}
        impl.environment = {**impl.environment, **environment}
        job = impl.job(self.name, ranks, cores, budget)
        job.command = [*job.command, *parts]
        if ranks > cores:
            job.environment.update(CROWDED[impl.key])
        return job

    def part_name(self, part):
        """The name of a part, as --only has it."""
        return part

    def size_counts(self, figure):
        """Is a figure's size shown?"""
        return True

    def label(self, key):
        _, figure, _, size = key
        title, unit, _ = self.figures[figure]
        if size and self.size_counts(figure):
            title += f", {size_name(size)}"
        return f"{title}, {unit}" if unit else title

    def ratios(self, results, key, peers):
        """Ferry's value divided by the peer's, round by round, for the peer Ferry is least ahead
        of."""
        mine = results.get("ferry", {}).get(key, {})
        of_all = []
        for peer in peers:
            if not self.counts(results, peer, key):
                continue
            theirs = results[peer].get(key, {})
            found = [value / theirs[n] for n, value in mine.items() if theirs.get(n, 0) > 0]
            if found:
                of_all.append(found)
        worst = min if self.figures[key[1]][2] else max
        return worst(of_all, key=statistics.median) if of_all else []

    def reaches(self, key, mine, ratio):
        """Whether the aim is reached; None where there is none, or nothing to compare."""
        wanted = self.aim(key)
        if not wanted:
            return None
        bound, larger, relative = wanted
        value = ratio if relative else mine
        if value is None:
            return None
        return value >= bound if larger else value <= bound

    def aim_text(self, key):
        wanted = self.aim(key)
        if not wanted:
            return "–"
        bound, larger, relative = wanted
        unit = self.figures[key[1]][1]
        unit = "" if relative or not unit else f" {unit}"
        return f"{'≥' if larger else '≤'} {bound:g}{unit}"

    def table(self, results, failures):
        """Markdown lines, and how many rows miss their aim."""
        peers = [impl for impl in results if impl != "ferry"]
        figures, places = list(self.figures), list(self.places)
        keys = sorted(
            {key for of in results.values() for key in of},
            key=lambda k: (places.index(k[0]), k[2], figures.index(k[1]), k[3]),
        )
        lines, missed, group = [], 0, None
        for key in keys:
            columns = self.columns(list(results), key[0])
            if (key[0], key[2]) != group:
                group = key[0], key[2]
                if lines:
                    lines.append("")
                names = " | ".join(name for _, name in columns)
                lines += [
                    f"### {self.title_of(key[0], key[2])}",
                    "",
                    f"| figure | {names} | Ferry / best peer | quartiles | aim |",
                    "|---|" + "---|" * (len(columns) + 3),
                ]
            cells = []
            for impl, _ in columns:
                values = list(results[impl].get(key, {}).values())
                cells.append(
                    rounded(statistics.median(values))
                    if values
                    else failures.get((impl, key[0], key[2]), "–")
                )
            mine = list(results.get("ferry", {}).get(key, {}).values())
            found = self.ratios(results, key, peers)
            ratio = statistics.median(found) if found else None
            low, _, high = statistics.quantiles(found, n=4) if len(found) > 1 else (ratio,) * 3
            reached = self.reaches(key, statistics.median(mine) if mine else None, ratio)
            missed += reached is False
            lines.append(
                f"| {self.label(key)} | {' | '.join(cells)} "
                + (f"| {ratio:.2f} | {low:.2f}–{high:.2f} " if found else "| – | – ")
                + f"| {self.aim_text(key)}{' **missed**' if reached is False else ''} |"
            )
        return lines, missed

    def measure(self, impls, runs, rounds, budget, cores):
        """{MPI: {key: {round: value}}}, and why jobs failed."""
        results, failures = {impl.key: {} for impl in impls}, {}
        for number in range(1, rounds + 1):
            order = impls[number % len(impls) :] + impls[: number % len(impls)]
            for parts, ranks, limit, once in runs:
                if once and number > 1:
                    continue
                own = self.place(parts)
                for place in [own] if own else [p for p in self.places if not self.only_own(p)]:
                    begun = time.monotonic()
                    jobs = self.jobs(order, place, parts, ranks, cores, budget)
                    for job in turns.take(jobs, limit):
                        if job.error:
                            failures[job.name, place, ranks] = job.error
                            print(
                                f"{NAMES[job.name]}: {' '.join(parts)} on {ranks} ranks"
                                f" {job.error}: {job.output.strip()[-300:]}",
                                file=sys.stderr,
                            )
                        for key, value in values_in(job.output).items():
                            of = results.setdefault(job.name, {})
                            of.setdefault((place, *key), {})[number] = value
                    print(
                        f"round {number} of {rounds}: {' '.join(parts)} on {ranks}, {place},"
                        f" {time.monotonic() - begun:.0f} s",
                        file=sys.stderr,
                        flush=True,
                    )
        return results, failures

    def only_own(self, place):
        """Do only runs take place here whose parts say so?"""
        return False

    def open(self, runs):
        """Prepares the places of these runs."""

    def close(self):
        """Takes them away again."""

    def selected(self, only, ranks):
        """The runs with the parts asked for."""
        known = {self.part_name(part) for parts, *_ in self.runs for part in parts}
        if unknown := only - known:
            sys.exit(
                f"bench/{self.name}: there is no part {', '.join(sorted(unknown))}; see --help"
            )
        found = []
        for parts, count, limit, once in self.runs:
            kept = tuple(part for part in parts if not only or self.part_name(part) in only)
            if kept and (not ranks or count in ranks):
                found.append((kept, count, limit, once))
        return found

    def main(self):
        ending.on_signals()
        parser = argparse.ArgumentParser(
            description=self.description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--quick", action="store_true", help="one short round")
        parser.add_argument("--only", default="", help="parts")
        parser.add_argument("--ranks", default="", help="only these numbers of ranks")
        parser.add_argument("--impl", default="ferry,mpich,ompi,intel")
        parser.add_argument("--rounds", type=int)
        parser.add_argument("--budget", type=float, help="seconds for one figure")
        parser.add_argument("--markdown", type=pathlib.Path)
        parser.add_argument("--csv", type=pathlib.Path)
        parser.add_argument("--from", type=pathlib.Path, dest="source")
        options = parser.parse_args()
        FIGURES.update(self.figures)
        if options.source:
            results, failures = kept(options.source), {}
        else:
            rounds = options.rounds or (1 if options.quick else 5)
            budget = options.budget or (0.02 if options.quick else 0.04)
            runs = self.selected(
                set(filter(None, options.only.split(","))),
                {int(n) for n in filter(None, options.ranks.split(","))},
            )
            impls = implementations(options.impl.split(","))
            target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
            for impl in impls:
                impl.build(target / f"bench-{self.name}", f"{self.name}.c")
            cores = len(os.sched_getaffinity(0))
            self.open(runs)
            try:
                results, failures = self.measure(impls, runs, rounds, budget, cores)
            finally:
                self.close()
            if options.csv:
                keep(results, options.csv)
        lines, missed = self.table(results, failures)
        print("\n".join(lines))
        if options.markdown:
            options.markdown.write_text("\n".join(lines) + "\n")
        if "ferry" in results:
            print(f"{missed} rows miss their aim", file=sys.stderr)
        return 1 if missed else 0


def keep(results, path):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["where", "figure", "ranks", "bytes", "implementation", "round", "value"])
        for impl, of in results.items():
            for key, values in of.items():
                for number, value in values.items():
                    writer.writerow([*key, impl, number, value])


def kept(path):
    """What `keep` wrote."""
    results = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = row["where"], row["figure"], int(row["ranks"]), int(row["bytes"])
            of = results.setdefault(row["implementation"], {}).setdefault(key, {})
            of[int(row["round"])] = float(row["value"])
    return results

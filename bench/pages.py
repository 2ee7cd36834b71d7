"""The pages of bench/run, docs/performance.md and docs/performance-net.md, and the values behind
them."""

import csv
import json
import pathlib
import statistics

import aims
import plots
import prose
from figures import FIGURES, label, program_of, rounded
from peers import BARE, NAMES, TRIP, peer_packages

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "performance"

# What the tables' last columns say.
HOW_COMPARED = """
Cells are medians, with the least and the greatest of the rounds. Above 1 Ferry is ahead. What a run
takes is from when its first rank begins until its last has ended.

*Ahead by* compares round by round: for each peer the median of the ratios between its value and
Ferry's in the same round, and of the peers the one that Ferry is least ahead of; in bold where it
misses the project's aim ([aims](../bench/aims.py)). *Medians* compares Ferry's median with the best
peer's, *best rounds* the best round of each. On a machine that others
use as well, whose speed changes from one minute to the next, the first says most about the
programs.
"""


def marked(key, ratio):
    """A ratio, and the aim if it is missed."""
    aim = aims.of(*key)
    return f"{ratio:.2f} ×" if ratio >= aim else f"**{ratio:.2f} ×**, aim {aim}"


def compared(key, mine, theirs):
    """Ferry's lead over somebody in each round that both have: {round: ratio}."""
    larger = FIGURES[key[0]][2]
    return {
        number: value / theirs[number] if larger else theirs[number] / value
        for number, value in mine.items()
        if value > 0 and theirs.get(number, 0) > 0
    }


def lead(results, key, is_counted=lambda _: True):
    """How far Ferry is ahead of the nearest peer, by the medians of the rounds that count, or
    None."""
    mine = results.get("ferry", {}).get(key, {})
    mine = {number: value for number, value in mine.items() if is_counted(number)}
    peers = [of for impl, of in results.items() if impl != "ferry" and impl not in BARE]
    ratios = [compared(key, mine, of.get(key, {})).values() for of in peers]
    return min((statistics.median(of) for of in ratios if of), default=None)


def slow_trip(trips):
    """From which trip of a line on a phase is slow, ns: between the shortest and the longest of
    `trips`, {figure: {round: ns}}, without the least and the greatest twentieth. `None`: the
    machine had one phase."""
    sorted_trips = sorted(took for of in trips.values() for took in of.values())
    if not sorted_trips:
        return None
    least, greatest = (sorted_trips[int(len(sorted_trips) * part)] for part in (0.05, 0.95))
    return (least * greatest) ** 0.5 if greatest > 2 * least else None


def table(results, keys, impls, failures, trips=None):
    """Markdown: medians, and Ferry's ratio to the best peer, round by round, of medians and of each
    one's best round; above 1 Ferry is ahead, whatever the figure. `failures`: why an MPI's
    program failed, by MPI, program and ranks. `trips`: what a line's trip between the cores took,
    {figure: {round: ns}}; if that tells two phases apart, each has a column, too.
    """
    slow = slow_trip(trips or {})
    impls = [key for key in impls if key not in BARE]
    peers = [key for key in impls if key != "ferry"]
    lines = [
        "| figure | "
        + " | ".join(NAMES[key] for key in impls)
        + " | ahead by | medians | best rounds |"
        + (" fast | slow |" if slow else ""),
        "|---|" + "---|" * (len(impls) + (5 if slow else 3)),
    ]
    for key in keys:
        rounds = {impl: results[impl].get(key, {}) for impl in impls}
        values = {impl: list(of.values()) for impl, of in rounds.items()}
        cells = []
        for impl in impls:
            got = values[impl]
            if not got:
                cells.append(failures.get(f"{impl} {program_of(key[0])} {key[1]}", "failed"))
                continue
            spread = f" ({rounded(min(got))}–{rounded(max(got))})" if len(got) > 1 else ""
            cells.append(rounded(statistics.median(got)) + spread)
        better = max if FIGURES[key[0]][2] else min
        ahead = lead(results, key)
        ratios = ["–" if ahead is None else marked(key, ahead)]
        for of in (statistics.median, better):
            theirs = [of(values[peer]) for peer in peers if values[peer]]
            if theirs and values.get("ferry"):
                mine, best = of(values["ferry"]), better(theirs)
                first, second = (mine, best) if FIGURES[key[0]][2] else (best, mine)
                ratios.append(f"{first / second:.2f} ×" if second > 0 else "–")
            else:
                ratios.append("–")
        for is_slow in (False, True) if slow else ():
            of = trips.get(key, {})
            ahead = lead(results, key, lambda n: n in of and (of[n] >= slow) == is_slow)
            ratios.append("–" if ahead is None else f"{ahead:.2f} ×")
        lines.append(f"| {label(key)} | " + " | ".join(cells + ratios) + " |")
    return lines


def beside_bare(results, keys):
    """Markdown: the rows that miss their aim beside the same work without MPI, or nothing. *Ferry
    beside it* compares, round by round, with the better way."""
    rows = []
    for key in keys:
        ahead = lead(results, key)
        ways = [results.get(way, {}).get(key, {}) for way in BARE]
        mine = results.get("ferry", {}).get(key, {})
        if ahead is None or ahead >= aims.of(*key) or not mine or not all(ways):
            continue
        better = max if FIGURES[key[0]][2] else min
        best = {n: better(of[n] for of in ways) for n in mine if all(n in of for of in ways)}
        ratios = compared(key, mine, best).values()
        if not ratios:
            continue
        cells = [rounded(statistics.median(of.values())) for of in (mine, *ways)]
        rows.append(f"| {label(key)} | {' | '.join(cells)} | {statistics.median(ratios):.2f} × |")
    if not rows:
        return []
    head = f"| figure | Ferry | {' | '.join(BARE.values())} | Ferry beside the better |"
    return [head, "|---|---|" + "---|" * (len(BARE) + 1), *rows]


BESIDE_BARE = """
Of these, those that miss their aim, beside the same program on bare shared memory, without MPI, in
its two ways ([bare.c](../bench/bare/bare.c)). Above 1 Ferry is faster than the better of both.
"""


def net_report(results, about):
    """docs/performance-net.md."""
    keys, order = ordered(results), list(results)
    cores = about["cores"]
    about_it = f"""
What messages and collectives between two hosts take over TCP, with Ferry and with three other MPIs.

Measured on {about["date"]} at commit {about["commit"]} by `bench/run --net`, in interleaved rounds,
between two hosts that are namespaces of one machine joined by a veth pair, with half of its {cores}
cores each ({about["processor"]}, {about["system"]}).

MPICH by UCX and by libfabric's tcp provider, Open MPI by its tcp BTL, Intel MPI by libfabric's tcp
provider. All are told the interface, none binds its ranks, the congestion control is Reno for all,
and every mpiexec runs on a third host, so that each starts its ranks in the same way. With more
ranks than cores each MPI is told to give its core away while it waits, in its own way (Ferry does
so by itself).

In each round all are started, and then take turns figure by figure while the ranks of the others
wait in read(2): what is compared was measured within seconds. Every round has new jobs. All repeat
as often as fits the same time. A run that fails or takes too long leaves out what it had not said
by then.

{HOW_COMPARED}

Every value: [net.csv](performance/net.csv). How these figures came about:
[measured](measured/tcp.md).
"""
    text = ["# Performance between hosts, over TCP", "", prose.filled(about_it), ""]
    for ranks in sorted({k[1] for k in keys}):
        title = "One rank on each host" if ranks == 2 else f"{ranks // 2} ranks on each host"
        rounds = max(len(of.get(k, {})) for of in results.values() for k in keys if k[1] == ranks)
        text += [
            f"## {title}",
            "",
            f"{rounds} rounds.",
            "",
            *table(results, [k for k in keys if k[1] == ranks], order, about.get("wrong", {})),
            "",
        ]
    (ROOT / "docs" / "performance-net.md").write_text("\n".join(text))


def ordered(results):
    return sorted(
        {key for of in results.values() for key in of},
        key=lambda k: (list(FIGURES).index(k[0]), k[1], k[2]),
    )


def keep(results, about, name="results.csv", run="run.json"):
    """Writes every value, and what was measured when and where."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / name).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["figure", "unit", "ranks", "bytes", "implementation", "round", "value"])
        for key in ordered(results):
            for impl, of in results.items():
                for number, value in of.get(key, {}).items():
                    unit = "ns" if impl == TRIP else FIGURES[key[0]][1]
                    writer.writerow([key[0], unit, key[1], key[2], impl, number, value])
    (FOLDER / run).write_text(json.dumps(about, indent=1) + "\n")


def kept(name="results.csv", run="run.json"):
    """What `keep` wrote: every value, what a line's trip took meanwhile, and the rest."""
    results = {}
    with (FOLDER / name).open(newline="") as file:
        for row in csv.DictReader(file):
            key = row["figure"], int(row["ranks"]), int(row["bytes"])
            results.setdefault(row["implementation"], {}).setdefault(key, {})[int(row["round"])] = (
                float(row["value"])
            )
    return results, results.pop(TRIP, {}), json.loads((FOLDER / run).read_text())


# Figures of whole jobs, which are measured one MPI after the other.
WHOLE_JOBS = ("start", "memory")


def report(results, trips, about):
    """docs/performance.md and its plots."""
    draw(results, about["cores"])
    keys, failures = ordered(results), about.get("wrong", {})

    def rows(ranks, whole_jobs):
        """The table of the figures on so many ranks: of jobs as a whole, or of messages."""
        own = [k for k in keys if k[1] == ranks and (k[0] in WHOLE_JOBS) == whole_jobs]
        return [*table(results, own, list(results), failures, trips), ""]

    def without_mpi(ranks):
        lines = beside_bare(results, [k for k in keys if k[1] == ranks])
        return [prose.filled(BESIDE_BARE), "", *lines, ""] if lines else []

    text = [
        "# Performance on one node",
        "",
        prose.filled(introduction(trips, about)),
        "",
        "## Two ranks, pinned",
        "",
        *rows(2, False),
        *without_mpi(2),
        "![Latency](performance/latency.svg)",
        "",
        "![Bandwidth](performance/bandwidth.svg)",
        "",
        f"## More ranks than the {about['cores']} cores",
        "",
        "Latency is that of all pairs at once, the slowest pair counted.",
        "",
    ]
    for ranks in sorted({k[1] for k in keys if k[1] > 2 and k[0] not in WHOLE_JOBS}):
        text += [f"### {ranks} ranks", "", *rows(ranks, False), *without_mpi(ranks)]
    text += [
        "![Barrier](performance/barrier.svg)",
        "",
        "![Allreduce](performance/allreduce.svg)",
        "",
        "## Start-up and memory",
        "",
    ]
    for ranks in sorted({k[1] for k in keys if k[0] in WHOLE_JOBS}):
        text += [f"### {ranks} ranks", "", *rows(ranks, True)]
    (ROOT / "docs" / "performance.md").write_text("\n".join(text))


def introduction(trips, about):
    """What was measured, when, where and how."""
    peers, slow = ", ".join(peer_packages()), slow_trip(trips)
    phases = (
        f"""
*Fast* and *slow* compare as *ahead by* does, among the rounds in which a cache line took less than
{slow:.0f} ns from one core to the other, or more, just before the figure was measured
([trip.c](../bench/bare/trip.c)).
"""
        if slow
        else ""
    )
    return f"""
What messages, collectives, start-up and memory take within one node, with Ferry and with three
other MPIs.

Measured on {about["date"]} at commit {about["commit"]} by `make bench`: {about["rounds"]} rounds,
interleaved, on {about["cores"]} cores of {about["processor"]}, {about["system"]}.
Peers: {peers}, from PyPI, with their own settings.

In each round all MPIs' programs are started, and then take turns figure by figure while the ranks
of the others wait in read(2): what is compared was measured within seconds. Start-up and memory are
measured one MPI after the other. Every round has new jobs.

{HOW_COMPARED}
{phases}
Every value: [results.csv](performance/results.csv). How it is measured: the sources in `bench/`;
{about["budget"]} s a figure.
"""


def draw(results, cores):
    """The plots: of two ranks over sizes, and of one size over numbers of ranks."""
    curves(
        results,
        "latency",
        lambda key: key[2] if key[1] == 2 else None,
        ("Latency between two ranks", "message size, bytes", "half a round trip; lower is better"),
    )
    curves(
        results,
        "bandwidth",
        lambda key: key[2] if key[1] == 2 else None,
        (
            "Bandwidth between two ranks",
            "message size, bytes",
            "64 messages in flight; higher is better",
        ),
    )
    for figure, title, size in (
        ("barrier", "Barrier where ranks outnumber cores", 0),
        ("allreduce", "Allreduce of 8 bytes where ranks outnumber cores", 8),
    ):
        curves(
            results,
            figure,
            lambda key: key[1] if key[1] > 2 and key[2] == size else None,
            (title, "ranks", f"on {cores} cores"),
        )


def curves(results, figure, x_of, labels):
    """A plot of one figure's medians. `x_of` says where a (figure, ranks, bytes) stands, or None;
    the labels are title, x axis and note."""
    series = {
        NAMES[impl]: sorted(
            (x_of(key), statistics.median(values.values()))
            for key, values in of.items()
            if key[0] == figure and x_of(key) is not None
        )
        for impl, of in results.items()
        if impl not in BARE
    }
    if any(series.values()):
        title, axis, note = labels
        plot = plots.curves(title, axis, FIGURES[figure][1], series, note)
        (FOLDER / f"{figure}.svg").write_text(plot)

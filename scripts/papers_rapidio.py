"""The paper on RapidIO, measured on its modelled machine (part of scripts/papers.py).

OSU-like latency and bandwidth between two nodes, beside the published table and on the machine's
what-ifs; by `nas`, IS and FT on 1, 2 and 4 nodes.
"""

import csv
import json
import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
MACHINE = "rapidio-1890vm6"
SIZES = [1, 64, 512, 2048, 4096, 16384, 65536, 131072, 524288, 4194304]
# What-ifs are told by a short message, one of a page and a long one.
WHAT_IF_SIZES = [1, 4096, 524288]
# Bytes behind a page's beginning at which buffers that are sent begin, where that is measured.
UNALIGNED = 8
UNALIGNED_SIZE = 524288
# NAS kernels: computation counts as the time that it takes on the host, times this. Keys and range
# of IS, and edges of FT, as logarithms: those of class A, which the paper has.
NAS_FACTOR = 150
NAS_IS, NAS_FT = (23, 19), (8, 8, 7)
NAS_NODES = (1, 2, 4)
# Repetitions of messages up to 8 KiB, and of longer ones. Virtual time needs few.
REPETITIONS = (4, 1)
# The channel's peak, MB/s: the machine file has it, too (1-rapidio.md, Machine).
PEAK_MB_S = 192
# The bounds that the project has set itself, per cent: each predicted row from 64 bytes on, half of
# them, and the share of the peak at the largest size, in points.
ROW_BOUND, HALF_BOUND, PEAK_BOUND = 25, 10, 3
# Rows that miss the bound, as docs/machines/rapidio.md tells. The page shows them; only a row that
# is not named here, or that does not miss any more, is a failure.
KNOWN_MISSES = {("latency_us", 65536)}
# Conditions on all rows that do not hold, by what they are about; told in the same place.
KNOWN_SHORTFALLS: set[str] = set()
FIGURES = {
    "latency_us": ("osu_latency_us", "latency", "µs", "fitted"),
    "bw_MB_s": ("osu_bw_MB_s", "bandwidth", "MB/s", "prediction"),
    "bibw_MB_s": ("osu_bibw_MB_s", "bandwidth both ways", "MB/s", "prediction"),
}


def what_ifs(ferry):
    """The machines that differ from the paper's in one thing, by name."""
    listed = ferry.call([ferry.bin / "ferry", "machines"])
    return re.findall(rf"(?m)^\s*({MACHINE}-\S+)", listed)


def osu(ferry, machine, sizes):
    """(figure, bytes) -> value."""
    command = [ferry.bin / "mpiexec", "--machine", machine, "-n", "2", ferry.scratch / "osu"]
    rows = csv.reader(ferry.call([*command, *REPETITIONS, *sizes]).splitlines())
    return {(figure, int(size)): float(value) for figure, size, value in rows}


def run(ferry):
    """Everything that is measured: nothing published is known here."""
    ferry.build("osu", "bench/papers/osu.c")
    found = {MACHINE: osu(ferry, MACHINE, SIZES)}
    found.update((name, osu(ferry, name, WHAT_IF_SIZES)) for name in what_ifs(ferry))
    for name in (MACHINE, f"{MACHINE}-unaligned"):
        values = osu(ferry, name, [f"+{UNALIGNED}", UNALIGNED_SIZE])
        off = {(f"{UNALIGNED} B off a page: {f}", s): value for (f, s), value in values.items()}
        found[name].update(off)
    return found


def compare(found, table, published):
    """Adds the published rows to the table."""
    predicted = []
    for row in published("rapidio_osu"):
        size = int(row["bytes"])
        for figure, (column, what, unit, kind) in FIGURES.items():
            given, value = float(row[column]), found[MACHINE][figure, size]
            if not given:
                continue
            bound = ROW_BOUND if size >= 64 else None
            off = abs(100 * (value / given - 1))
            if bound and (figure, size) in KNOWN_MISSES and off > bound:
                table.add("rapidio", f"{what}, {size} B", unit, given, value, kind)
                table.rows[-1][-1] = f"NO, more than {bound} %: known"
            else:
                table.add("rapidio", f"{what}, {size} B", unit, given, value, kind, bound)
            if size >= 64 and kind == "prediction":
                predicted.append(off)
    near = sum(off <= HALF_BOUND for off in predicted)
    require(
        table,
        "rows",
        f"predicted rows within {HALF_BOUND} %",
        ("rows", f"half of {len(predicted)}", near),
        2 * near >= len(predicted),
    )
    largest = max(size for _, size in found[MACHINE])
    share = 100 * found[MACHINE]["bw_MB_s", largest] / PEAK_MB_S
    given = max(float(row["osu_bw_MB_s"]) for row in published("rapidio_osu")) / PEAK_MB_S * 100
    require(
        table,
        "peak",
        f"share of the peak, {largest} B",
        ("%", f"{given:.1f}", share),
        abs(share - given) <= PEAK_BOUND,
    )


def require(table, about, what, values, good):
    """A row with a condition of its own, which may be known not to hold."""
    known = about in KNOWN_SHORTFALLS and not good
    table.require("rapidio", what, *values, good or known)
    if known:
        table.rows[-1][-1] = "NO: known"


def digits(found):
    """The rows of results.csv."""
    return [
        [machine, figure, str(size), f"{value:.6f}"]
        for machine, values in found.items()
        for (figure, size), value in values.items()
    ]


def series(found, figure):
    """The curve of a figure, for the plots."""
    return [(size, found[MACHINE][figure, size]) for size in SIZES]


def what_if_table(found):
    """What each what-if gains over the paper's machine, as Markdown."""
    heads = [f"{FIGURES[f][1]}, {s} B" for f in FIGURES for s in WHAT_IF_SIZES if f != "bibw_MB_s"]
    lines = ["| machine | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name, values in found.items():
        cells = [name]
        for figure in ("latency_us", "bw_MB_s"):
            for size in WHAT_IF_SIZES:
                value, base = values[figure, size], found[MACHINE][figure, size]
                unit = FIGURES[figure][2]
                gain = "" if name == MACHINE else f" ({value / base:.2f})"
                cells.append(f"{value:.4g} {unit}{gain}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def unaligned_text(found):
    """What buffers that do not begin at a page cost, with and without rules of alignment."""
    rows = []
    for name in (MACHINE, f"{MACHINE}-unaligned"):
        figures = ("latency_us", "bw_MB_s")
        off = [found[name][f"{UNALIGNED} B off a page: {f}", UNALIGNED_SIZE] for f in figures]
        on = [found[name][f, UNALIGNED_SIZE] for f in figures]
        rows.append(
            f"| {name} | {on[0]:.4g} µs, {on[1]:.4g} MB/s | {off[0]:.4g} µs, {off[1]:.4g} MB/s |"
        )
    return "\n".join(
        [
            f"Sent from {UNALIGNED} bytes behind a page's beginning, {UNALIGNED_SIZE} B:",
            "",
            "| machine | both buffers begin at a page | the sender's begins behind |",
            "|---|---|---|",
            *rows,
        ]
    )


def nas(ferry, factor=NAS_FACTOR, is_log2=NAS_IS, ft_log2=NAS_FT, iterations=2):
    """(kernel, nodes) -> seconds of virtual time, with the program's computation counted as the
    time that it takes here, times `factor`. Not the same on each run."""
    ferry.build("is", "bench/overlap/is.c")
    ferry.build("ft", "bench/overlap/ft.c")
    machine = ferry.machine(MACHINE, compute=f'"measured"\nfactor = {factor}')
    found = {}
    for kernel, arguments in (("is", (*is_log2, 1)), ("ft", (*ft_log2, iterations, 1))):
        for nodes in NAS_NODES:
            command = [ferry.bin / "mpiexec", "--machine", machine, "-n", nodes]
            said = json.loads(ferry.call([*command, ferry.scratch / kernel, *arguments]))
            found[kernel, nodes] = said["blocking"]
    return found


def nas_text(found):
    """Seconds and scaling efficiency of the NAS kernels, as Markdown."""
    heads = " | ".join(f"{nodes} node{'s' * (nodes > 1)}" for nodes in NAS_NODES)
    about = (
        f"IS (2^{NAS_IS[0]} keys) and FT ({' x '.join(str(2**n) for n in NAS_FT)}, two iterations)"
        " of `bench/overlap`, the sizes of class A, once each, seconds of virtual time. Computation"
        " counts as the processor time that it takes on the host, times"
        f" {NAS_FACTOR}: these rows differ from run to run."
        " Efficiency: the time on one node by the number of nodes and their time. The paper has"
        " 80 % for the NAS benchmarks of class A, on 1, 2 and 4 nodes."
    )
    lines = [
        textwrap.fill(about, 100),
        "",
        f"| | {heads} | efficiency on {NAS_NODES[1]} | on {NAS_NODES[2]} |",
        "|---" * (len(NAS_NODES) + 3) + "|",
    ]
    for kernel in ("is", "ft"):
        times = [found[kernel, nodes] for nodes in NAS_NODES]
        shares = [100 * times[0] / (n * t) for n, t in zip(NAS_NODES, times)][1:]
        cells = [f"{t:.3g}" for t in times] + [f"{share:.0f} %" for share in shares]
        lines.append(f"| {kernel.upper()} | {' | '.join(cells)} |")
    return "\n".join(lines)

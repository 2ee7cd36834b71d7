"""The programs of bench/run and their figures: on how many ranks they run, titles and units, and
the values in what a program printed."""

import re

import aims

NET_RUNS = [("latency", 2, 60), ("bandwidth", 2, 120), ("pairs", 8, 120), ("collectives", 8, 180)]

# Overlap with computation, with each MPI's own progress thread, on request only (--only overlap).
OVERLAP = ("overlap", 2, 60)
# (program, ranks, limit in seconds); the program names are what --only takes.
RUNS = [
    ("latency", 2, 60),
    ("bandwidth", 2, 90),
    ("queues", 2, 90),
    ("collectives", 2, 90),
    ("requests", 2, 90),
    *[
        (program, n, 180)
        for n in (4, 8, 16, 32)
        for program in ("latency", "collectives", "requests")
    ],
    *[(program, n, 120) for n in (2, 32, 128) for program in ("start", "memory")],
]
# Those whose figures the MPIs measure in turns; of the others each runs the whole program.
TURNS = ("latency", "bandwidth", "queues", "collectives", "requests", "pairs")

# Programs that say a figure of their own name.
PROGRAMS = ("latency", "bandwidth", "start", "memory", "pairs")
# Those whose overlap with computation is measured.
COLLECTIVES = ("bcast", "allreduce", "alltoall", "allgather", "gather", "scatter", "reduce")

# figure: (title, unit, larger is better)
FIGURES = {
    "latency": ("Latency", "µs", False),
    "asked": ("Latency by MPI_Test in a loop", "µs", False),
    "rate": ("Message rate", "M/s", True),
    "bandwidth": ("Bandwidth", "GB/s", True),
    "turns": ("Latency of all pairs at once", "µs", False),
    "pairs": ("Bandwidth of all pairs", "GB/s", True),
    "bidirectional": ("Bandwidth, both ways", "GB/s", True),
    "onebyone": ("Bandwidth, received one by one", "GB/s", True),
    **{
        f"{queue}{order}": (f"Queues, a message, {what}{how}", "µs", False)
        for queue, what in (("posted", "receives wait"), ("waiting", "messages wait"))
        for order, how in (("", ""), ("back", ", opposite order"), ("mixed", ", no order"))
    },
    "anyback": ("Queues, a message, messages wait, opposite order, any source", "µs", False),
    "barrier": ("Barrier", "µs", False),
    "bcast": ("Bcast", "µs", False),
    "allreduce": ("Allreduce", "µs", False),
    "allgather": ("Allgather", "µs", False),
    "alltoall": ("Alltoall", "µs", False),
    "ibarrier": ("Ibarrier and its Wait", "µs", False),
    **{
        f"i{name}": (f"I{name} and its Wait", "µs", False)
        for name in ("bcast", "allreduce", "allgather", "alltoall")
    },
    "neighbor_allgather": ("Neighbor_allgather on a ring", "µs", False),
    "neighbor_alltoall": ("Neighbor_alltoall on a ring", "µs", False),
    "persistent": ("Persistent send and receive on a ring", "µs", False),
    "allreduce_init": ("Persistent Allreduce", "µs", False),
    "partitioned": ("Partitioned send and receive on a ring, 16 partitions", "µs", False),
    **{f"overlap_i{name}": (f"Overlap, I{name}", "%", True) for name in COLLECTIVES},
    **{f"pure_i{name}": (f"I{name} alone", "µs", False) for name in COLLECTIVES},
    **{
        f"beyond_i{name}": (f"Time beyond the computation, I{name}", "µs", False)
        for name in COLLECTIVES
    },
    "start": ("Start-up, whole job", "s", False),
    "memory": ("Memory a rank (PSS)", "MB", False),
}


def values_in(output):
    """{(figure, ranks, bytes): value} in what a program printed."""
    values = {}
    for line in output.splitlines():
        match = re.match(r"(\w+),(\d+),(\d+),([-+.e0-9]+)$", line)
        if match and match[1] in FIGURES:
            values[match[1], int(match[2]), int(match[3])] = float(match[4])
    return values


def trips_in(parts):
    """What a line's trip took in each turn of bench/bare/trip.c, in ns, by what it printed."""
    found = (re.search(r"^trip,2,0,([.0-9]+)$", part, re.MULTILINE) for part in parts)
    return [match and float(match[1]) for match in found]


def size_name(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def rounded(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def label(key):
    figure, ranks, size = key
    title, unit, _ = FIGURES[figure]
    where = (
        f", {size} entries"
        if program_of(figure) == "queues"
        else f", {size_name(size)}" if size else ""
    )
    return f"{title}{where}, {unit}"


def program_of(figure):
    """The program that says it."""
    whose = {
        "asked": "latency",
        "rate": "bandwidth",
        "bidirectional": "bandwidth",
        "onebyone": "bandwidth",
        "turns": "pairs",
    }
    if figure in aims.REQUESTS:
        return "requests"
    if figure == "anyback" or figure.startswith(("posted", "waiting")):
        return "queues"
    return whose.get(figure) or (
        figure if figure in PROGRAMS else "overlap" if "_" in figure else "collectives"
    )

"""How far ahead of its nearest peer Ferry is to be in each figure of bench/run, so that the tables
mark the rows that fall short."""

# Aims for two ranks with a core each: (figures, least and greatest size, aim).
PAIR = [
    (("latency", "bandwidth", "bidirectional"), 64 << 10, 1 << 20, 1.05),
    (("rate",), 1, 8, 1.3),
    (("bcast", "allreduce", "allgather", "alltoall"), 1 << 10, 64 << 10, 1.2),
]
# Those of operations behind a request, at every size and number of ranks.
REQUESTS = (
    "ibarrier",
    "ibcast",
    "iallreduce",
    "iallgather",
    "ialltoall",
    "neighbor_allgather",
    "neighbor_alltoall",
    "persistent",
    "allreduce_init",
    "partitioned",
)
# Those where ranks outnumber cores: (figures, ranks, aim).
CROWD = [
    (("latency", "barrier", "alltoall", "bcast"), (4,), 1.2),
    (("bcast",), (16, 32), 1.2),
]


def of(figure, ranks, size):
    """The least ratio that is wanted."""
    if figure in REQUESTS:
        return 1.2
    if ranks == 2:
        for figures, least, most, aim in PAIR:
            if figure in figures and least <= size <= most:
                return aim
    for figures, counts, aim in CROWD:
        if figure in figures and ranks in counts:
            return aim
    return 1.0

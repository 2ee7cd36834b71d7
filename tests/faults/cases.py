"""What happens when things go wrong: mistakes in calls, ranks that die, jobs that hang, mpiexec
asked for nonsense, machines with too little of something, faults of files. Run by tests/run, which
picks groups by --only; harness.py judges each case."""

from faults.commands import commands, other_mpi
from faults.deaths import backtraces, deaths
from faults.files import files
from faults.hangs import hangs
from faults.harness import Cases
from faults.limits import limits
from faults.mistakes import mistakes

GROUPS = (mistakes, deaths, backtraces, hangs, commands, other_mpi, limits, files)


def run(mpi, run_job, tally, options):
    only = set(filter(None, options.only.split(",")))
    cases = Cases(mpi, run_job, tally)
    for group in GROUPS:
        if not only or group.__name__ in only:
            group(cases)
    cases.die.unlink(missing_ok=True)

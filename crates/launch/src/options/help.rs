//! The text that `mpiexec -h` prints.

/// What `mpiexec -h` prints.
pub const HELP: &str = "\
usage: mpiexec [options] [-n N] PROGRAM [ARGUMENT…] [: [options] [-n N] PROGRAM [ARGUMENT…]]…
Starts the ranks of an MPI job here or on other hosts, watches them and ends the job when one fails.

Ranks and programs (for the block up to the next ':')
  -n N, -np N              N ranks of PROGRAM (default 1)
  -wdir DIR, -wd DIR       start them in DIR
  -env NAME VALUE          set a variable          -x NAME[=VALUE]   the same, Open MPI's form
  -envall | -envnone | -envlist A,B                pass all (default), none or these variables on
  -genv, -genvall, -genvnone, -genvlist            the same for all blocks

Input and output
  -l, -prepend-rank        put \"[rank] \" before each line
  -s, -stdin 0|N|all|none  which rank reads mpiexec's standard input (default 0)

Overlap of blocking collectives with what follows them (docs/overlap.md)
  --overlap[=MODE]         on (default), trace, always, comm or off (also FERRY_OVERLAP)
  --overlap-report         at the end, for each call site: calls, bytes, time hidden, faults, \
    order, verdict

Watching
  --timeout SECONDS        after that long print who waits for whom, end the job, exit with 124 \
    (also MPIEXEC_TIMEOUT)
  --on-hang end|report|ignore
                           when all ranks wait for each other: end the job (default), only say so, \
    or do not look
                           (also FERRY_ON_HANG). Ctrl-\\ looks at once
  -v, --verbose            say what is started where

Hosts (without them all ranks run here; inside a Slurm allocation they are taken from it)
  --hosts A:4,B:4          hosts and their slots           -host, -H   the same, for this block \
    alone
  --hostfile FILE, -f      a host a line: A:4 or A slots=4 max_slots=8 (also FERRY_HOSTFILE)
  -ppn N, --map-by slot|node|ppr:N:node, --rank-by slot|node
                           N ranks a host in turn; fill slots (default); one rank a host in turn. \
    Ranks are numbered
                           as they are placed; --rank-by numbers them host by host, or one of each \
    host in turn
  --launcher COMMAND       starts mpiexec there as COMMAND HOST MPIEXEC…, or with {host} in it; \
    ssh without it (also FERRY_LAUNCHER)
  --launcher-path FILE     mpiexec on the other hosts, if it is not where this one is (also \
    FERRY_PREFIX/bin/mpiexec)
  --host-timeout SECONDS   a host silent for so long is gone: 10; 0 never (also FERRY_HOST_TIMEOUT)

Modelled machines: the job runs as on hardware that is not there, in virtual time \
    (docs/machines.md; ferry machines lists them)
  --machine NAME|FILE      the machine: one that comes with Ferry, or a file of your own (with a / \
    in its name, or ending in .toml)
  --machine-report         at the end a table of what the ranks, the cards and the links did
  --machine-trace FILE     a timeline for ui.perfetto.dev or chrome://tracing
  --machine-compute zero|measured|FACTOR
                           the program's own computation takes no time, or as long as here, or so \
    many times as long

Placement on cores
  --bind-to core|none      each rank to one core of its own, or none to any. Without it each rank \
    gets an equal share of the
                           cores if there is one for each, and is free to move otherwise
  --report-bindings        say which rank got which cores

  -h, --help               this text
  -V, --version            the version

Ctrl-C is passed to all ranks; a second one kills them. Exit status: the highest of the ranks'; \
    128 + signal if a rank was killed
by one; the code given to MPI_Abort; 124 after a timeout, 125 after a hang; 127 if the program is \
    missing, 126 if it cannot be
executed, 2 for a wrong command line.
";

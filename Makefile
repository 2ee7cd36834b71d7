# Thin targets; each does its own set-up (see scripts/setup.sh) on a bare Debian 12 with apt, cargo and pip.

PREFIX ?= /usr/local

.PHONY: build demo test bench bench-overlap bench-tipc papers docs install fuzz clean

build:
	@cargo build --release

# Builds, then runs a heat solver, a sort and an mpi4py script on 4 ranks each, and measures.
demo:
	@scripts/demo

# Everything that proves it: formats, lints, unit, property and model tests, C programs, faults, CMake, mpi4py.
test:
	@scripts/test

# Measures Ferry and three other MPIs, interleaved; writes docs/performance.md.
bench:
	@bench/run

# Measures the overlap of blocking collectives on shaped links (root, iproute2); adds to bench/results/overlap.json, draws docs/overlap-*.svg.
bench-overlap:
	@bench/overlap/run micro
	@bench/overlap/run kernels
	@bench/overlap/run plots

# TIPC beside TCP, between two guests that have it; writes docs/performance-tipc.md.
bench-tipc:
	@scripts/bench-tipc

# The papers' measurements on the modelled machines, beside what was published; writes docs/papers.md.
papers:
	@scripts/papers

# All pages as a book with search, in target/book.
docs:
	@scripts/docs

# The library, mpi.h, mpiexec, mpicc and ferry under PREFIX.
install:
	@scripts/install $(PREFIX)

# Feeds mutated bytes to every parser of foreign bytes, FERRY_FUZZ_SECONDS each (60 if not said).
fuzz:
	@scripts/fuzz

clean:
	@cargo clean

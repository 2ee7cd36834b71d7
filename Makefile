# Each target does its own set-up (scripts/setup.sh) on a bare Debian 12 with apt, cargo and pip.
# `make help` prints each target with the text behind its "##".

PREFIX ?= /usr/local
ONLY ?=
.DEFAULT_GOAL := build

.PHONY: help build demo test bench bench-overlap bench-tipc scale papers docs install uninstall fuzz
.PHONY: abis-debian nfs rapidio-soak hdf5 petsc clean

help: ## print this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | \
	    awk -F '\t' '{ printf "make %-14s %s\n", $$1, $$2 }'

build: ## build the library and the commands (release)
	@cargo build --release

demo: ## build, run a heat solver, a sort and mpi4py on 4 ranks, measure
	@scripts/demo

test: ## run every test; ONLY="faults,errors" runs steps or C programs by name
	@scripts/test $(if $(ONLY),--only "$(ONLY)")

bench: ## measure Ferry beside three other MPIs; writes docs/performance.md
	@bench/run

# Needs root and iproute2. Adds to bench/results/overlap.json and draws docs/overlap-*.svg.
bench-overlap: ## measure the overlap of blocking collectives on shaped links
	@bench/overlap/run micro
	@bench/overlap/run kernels
	@bench/overlap/run plots

bench-tipc: ## count TIPC beside TCP in a guest; writes docs/performance-tipc.md
	@scripts/bench-tipc

scale: ## simulate every collective on 1,024 to 65,536 ranks; prints tables; half an hour
	@cargo run -q --release -p ferry-simulate --example scale -- $(RANKS)

papers: ## repeat the papers' measurements on modelled machines; writes docs/papers.md
	@scripts/papers

docs: ## write all pages as a book with search, to target/book
	@scripts/docs

install: ## install library, mpi.h, commands, man pages and completions; PREFIX=/usr/local
	@scripts/install "$(PREFIX)"

uninstall: ## remove what install wrote under PREFIX, and nothing else
	@scripts/uninstall "$(PREFIX)"

abis-debian: ## run Fortran programs of Debian's Open MPI and MPICH over Ferry
	@scripts/install target/prefix >/dev/null && tests/abis/debian target/prefix

nfs: ## run the C programs of files on NFS, in guest kernels; needs nfs-kernel-server
	@scripts/install target/prefix >/dev/null && tests/nfs/run target/prefix

rapidio-soak: ## send 100 million segments through RapidIO cards that refuse some; minutes
	@FERRY_RAPIDIO_SEGMENTS=100000000 cargo test -q --release -p ferry-fabric --lib long_traffic

fuzz: ## feed mutated bytes to every parser, FERRY_FUZZ_SECONDS=60 each
	@scripts/fuzz

hdf5: ## run parallel HDF5's own tests over Ferry; builds it first, ten minutes
	@scripts/hdf5

petsc: ## run PETSc's tests of star forests over Ferry; builds it first, half an hour
	@scripts/petsc

clean: ## remove all that cargo has built
	@cargo clean

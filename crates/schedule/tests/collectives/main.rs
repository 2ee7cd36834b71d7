//! Every algorithm, on 1 to 33 ranks, against the definitions of MPI 5.0 chapter 6. Nothing is
//! sent: the simulator runs all ranks' schedules in this process.

mod allgather;
mod alltoall;
mod barrier;
mod bcast;
mod choice;
mod gather;
mod harness;
mod hierarchical;
mod inter;
mod lanes;
mod neighbour;
mod reduce;
mod reduce_scatter;
mod scan;
mod simulator;

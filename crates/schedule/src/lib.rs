//! Collective algorithms, each written once, as schedules (MPICH: `sched`; Open MPI: libnbc).
//!
//! ```text
//! Collective ── plan ──┬── cost: which algorithm is cheapest
//!   (a call)           └── bcast, reduce, allreduce, … : its steps
//!                                │
//!                            Schedule: Send, Recv, Await, Reduce, Copy
//!                                │
//!                            an executor (ferry-mpi), or the tests here
//! ```
//!
//! A [`Schedule`] is one rank's part of a collective: a straight-line program of sends, receives,
//! reductions, copies and waits over symbolic buffers ([`Piece`]s of a [`Region`]). It knows no
//! datatype, no address and no transport. An executor maps it to those, at once (blocking) or in
//! the background (non-blocking, persistent). In this crate's tests all ranks' schedules run in one
//! process, without a byte being sent.
//!
//! [`plan()`] makes the schedule of a [`Collective`] call, by the algorithm that the [`Cost`] model
//! finds cheapest:
//!
//! ```
//! use ferry_schedule::{Algorithm, Collective, Cost, CommView, Root, Step, Team, plan};
//!
//! let rank_1_of_4 = CommView {
//!     team: Team { rank: 1, size: 4 },
//!     remote: None,
//!     nodes: None,
//! };
//! let call = Collective::Bcast {
//!     root: Root::Rank(0),
//!     bytes: 1000,
//! };
//! let forced = Some(Algorithm::Flat);
//! let schedule = plan(rank_1_of_4, &call, &Cost::shared_memory(4, 4), forced);
//! assert_eq!(schedule.algorithm, forced);
//! assert!(matches!(schedule.steps[..], [Step::Recv { .. }, ..]));
//! ```

#![forbid(unsafe_code)]

mod algorithm;
mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod bcast;
mod cost;
mod gather;
mod hierarchical;
mod inter;
mod intra;
mod neighbour;
mod node_map;
mod plan;
mod reduce;
mod reduce_scatter;
mod scan;
mod step;
mod tree;

pub use algorithm::{Algorithm, Kind};
pub use cost::{Cost, Problem, choices};
pub use neighbour::{NeighbourExchange, exchange};
pub use node_map::{NodeMap, NodeShape};
pub use plan::{Block, Collective, CommView, Reduction, Root, Varying, plan};
pub use step::{Peer, Piece, Region, Schedule, Step, Team};

//! Collective algorithms, each written once, as schedules.
//!
//! A [`Schedule`] is one rank's part of a collective: a straight-line program of sends, receives,
//! reductions, copies and waits over symbolic buffers ([`Piece`]s of a [`Region`]). It knows no
//! datatype, no address and no transport; an executor maps it to those, at once (blocking), in the
//! background (non-blocking, persistent) or, in the tests here, not at all: there all ranks'
//! schedules run in one process without a byte being sent.
//!
//! [`plan`] makes the schedule of a [`Collective`] call, by the algorithm that the [`Cost`] model
//! finds cheapest.

#![forbid(unsafe_code)]

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod bcast;
mod cost;
mod gather;
mod inter;
mod neighbour;
mod plan;
mod reduce;
mod reduce_scatter;
mod scan;
mod step;

pub use cost::{Algorithm, Cost, Kind, Problem, choices};
pub use neighbour::exchange;
pub use plan::{Block, Collective, Place, Reduction, Root, Varying, plan};
pub use step::{Peer, Piece, Region, Schedule, Step, Team};

//! Virtual time: a discrete-event kernel, and the ranks that run and stop under it.
//!
//! It knows no card and no network. A [`Model`] is the hardware, a [`Server`] runs it, a
//! [`Client`] is a rank's side, and a [`ModelSegment`] is the memory between the two.

mod client;
mod encoding;
mod event_horizon;
mod handover;
mod model;
mod segment;
mod server;
mod trace;

pub use client::{Client, Cost, Event, sleep};
pub use encoding::RECORD_MAX_BYTES;
pub use model::{InvalidCommand, Model, Observers};
pub use segment::{ModelSegment, ModelSegmentError};
pub use server::{Completed, Kernel, RankUsage, Server};
pub use trace::{Trace, Track};

/// A rank of the job, by its number in MPI_COMM_WORLD.
pub type Rank = u32;

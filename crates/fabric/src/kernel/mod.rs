//! Virtual time: one queue of what happens next, and the ranks that stop and go.

mod arena;
mod client;
mod manner;
mod record;
mod server;
mod sight;
mod trace;

pub use arena::{Arena, ArenaError};
pub use client::{Client, Cost, Event, sleep};
pub use record::RECORD_MAX;
pub use server::{Ended, Kernel, Model, Nonsense, RankUse, Server, Sight};
pub use trace::{Trace, Track};

/// A rank of the job, by its number in MPI_COMM_WORLD.
pub type Rank = u32;

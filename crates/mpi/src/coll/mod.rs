//! Collective communication (MPI 5.0 chapter 6): a call becomes a schedule, the schedule runs on
//! the device.
//!
//! ```text
//! call ─┬─ node ──────────┐      small collectives in the node's memory
//!       ├─ (overlap) ─────┤      collectives that return early (crate::overlap)
//!       ├─ select ────────┤      which algorithm; the schedules of the last calls
//!       └─ neighbour      │      schedules of neighbourhood collectives
//!                      executor  runs a schedule
//! ```
//!
//! One [`Call`] serves all forms: blocking ([`Call::run`]), non-blocking ([`Call::start`]) and
//! persistent ([`Call::init`]).

mod call;
pub(crate) mod executor;
mod neighbour;
mod node;
mod plans;
mod select;

pub use call::{Call, What};
pub(crate) use executor::called;
pub use executor::{Block, TALLY, Tally, View};
/// Uniform blocks of a call.
pub use ferry_schedule::Block as Uniform;
pub use ferry_schedule::{Algorithm, Kind};
pub use ferry_schedule::{Collective, Piece, Reduction, Region, Root, Schedule, Varying};
pub use neighbour::{exchange_with, neighbours};
pub use plans::Plans;
pub use select::{Wish, Wishes, ask, of_process, setting};

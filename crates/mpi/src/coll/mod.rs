//! Collective communication (MPI 5.0 chapter 6): a call becomes a schedule, and the schedule runs
//! on the device.
//!
//! ```text
//! call ─┬─ node ──────┐      small collectives in the node's memory
//!       ├─ overlap ───┤      collectives that return early (crate::overlap)
//!       ├─ select ────┤      which algorithm; the schedules of the last calls
//!       ├─ neighbour  │      schedules of neighbourhood collectives
//!       └──────────── executor    runs a schedule
//! ```
//!
//! One [`Call`] serves all forms: blocking ([`Call::run`]), non-blocking ([`Call::start`]) and
//! persistent ([`Call::init`]).

mod call;
mod comm_state;
pub(crate) mod executor;
mod neighbour;
mod node;
mod select;

pub(crate) use call::or_bits;
pub use call::{Call, CollectiveOperation};
pub use comm_state::CommState;
pub use executor::{Block, COUNTERS, Counters, View};
/// Uniform blocks of a call.
pub use ferry_schedule::Block as Uniform;
pub use ferry_schedule::{Algorithm, Kind};
pub use ferry_schedule::{
    Collective, NeighbourExchange, Piece, Reduction, Region, Root, Schedule, Varying,
};
pub use neighbour::{exchange_with, neighbours};
pub use select::{
    AlgorithmSetting, AlgorithmSettings, check_variables, process_setting, set_process_setting,
    variable_name,
};

use crate::device::Device;
use crate::{Comm, Error};
use std::sync::Arc;

/// The error of ranks that made different collective calls on `comm`, as far as this rank can tell
/// when no call is under way on it: by messages that nobody will receive, and by its board.
pub(crate) fn pending_mismatch(comm: &Arc<Comm>, device: &mut Device) -> Option<Error> {
    executor::unreceived_error(comm, device).or_else(|| node::pending_mismatch(comm))
}

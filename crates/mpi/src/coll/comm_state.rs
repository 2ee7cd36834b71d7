//! What a communicator keeps for its collectives.

use super::executor::{History, RequestCache};
use super::neighbour::NeighbourhoodState;
use super::node::{BackgroundBoards, CommBoard};
use super::select::{AlgorithmSettings, ScheduleCache};
use ferry_schedule::NodeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock};

/// What a communicator keeps for its collectives.
#[derive(Default)]
pub struct CommState {
    pub(super) schedule_cache: Mutex<ScheduleCache>,
    /// The nodes of its ranks; `None`: they do not make two levels.
    pub(super) nodes: OnceLock<Option<NodeMap>>,
    /// Non-blocking collectives that have ended, to be restarted.
    pub(crate) request_cache: RequestCache,
    /// Its neighbours, and schedules of exchanges with them.
    pub(super) neighbourhood: NeighbourhoodState,
    /// Its board in the node's memory.
    pub(super) board: Mutex<CommBoard>,
    /// Those of its non-blocking and persistent collectives.
    pub(super) background_boards: BackgroundBoards,
    /// The signatures of its last calls.
    pub(crate) history: History,
    /// What its info asks for.
    pub(crate) settings: AlgorithmSettings,
    /// Whether its info wants blocking collectives to overlap: 0 says nothing, 1 yes, 2 no.
    pub(crate) overlap: AtomicU8,
    /// Whether messages can go on while its ranks compute.
    pub(crate) overlap_can_help: OnceLock<bool>,
}

impl CommState {
    /// Whether its info wants blocking collectives to overlap; `None`: it says nothing.
    pub(crate) fn overlap(&self) -> Option<bool> {
        match self.overlap.load(Ordering::Relaxed) {
            0 => None,
            n => Some(n == 1),
        }
    }
}

//! What a communicator keeps for its collectives.

use super::executor::KeptCollectives;
use super::node::Place;
use super::select::{KeptSchedules, Wishes};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock};

/// What a communicator keeps for its collectives.
#[derive(Default)]
pub struct Plans {
    /// Schedules that its last calls had, and what was asked for then; newest last.
    pub(super) kept: Mutex<KeptSchedules>,
    /// Non-blocking collectives that have ended, to be started again.
    pub(crate) ended: KeptCollectives,
    /// Its board in the node's memory.
    pub(super) place: Mutex<Place>,
    /// What its info asks for.
    pub(crate) wishes: Wishes,
    /// Whether its info wants blocking collectives to overlap: 0 says nothing, 1 yes, 2 no.
    pub(crate) overlap: AtomicU8,
    /// Something goes on by itself while its ranks compute.
    pub(crate) has_room: OnceLock<bool>,
}

impl Plans {
    /// Does its info want blocking collectives to overlap with what follows?
    pub(crate) fn overlap(&self) -> Option<bool> {
        match self.overlap.load(Ordering::Relaxed) {
            0 => None,
            n => Some(n == 1),
        }
    }
}

//! Which cores the node's programs wait on, and whose progress thread polls.

use super::{Shm, wakeup_word};
use crate::ProcId;
use std::sync::atomic::Ordering;

impl Shm {
    /// A thread of this process's program waits on this core. Returns whether another process's
    /// program waits there too, or last did.
    pub fn shares_core(&self, core: u32) -> bool {
        let mine = &self.controls[self.me].core;
        if mine.load(Ordering::Relaxed) != core + 1 {
            mine.store(core + 1, Ordering::Relaxed);
        }
        let others = self.controls.iter().enumerate();
        others
            .filter(|(i, _)| *i != self.me)
            .any(|(_, c)| c.core.load(Ordering::Relaxed) == core + 1)
    }

    /// Returns whether `peer`'s progress thread polls its wakeup word just now. What is sent to it
    /// is then handled at once, and takes no time from its program.
    pub fn progress_polls(&self, peer: ProcId) -> bool {
        let word = self.index(peer).map(|i| &self.controls[i].wakeup_word);
        word.is_some_and(wakeup_word::is_polled)
    }

    /// Names the cores on which programs of the node's processes wait, or last did, this process's
    /// among them.
    pub fn for_each_waiting_core(&self, each: &mut dyn FnMut(u32)) {
        let cores = self.controls.iter().map(|c| c.core.load(Ordering::Relaxed));
        cores
            .filter(|&core| core != 0)
            .for_each(|core| each(core - 1));
    }
}

//! Core sharing: on which cores the node's programs wait, and whose progress thread polls.

use super::{Shm, wakeup_word};
use crate::ProcId;
use std::sync::atomic::Ordering;

impl Shm {
    /// Publishes that a thread of this process's program waits on `core`. Returns whether another
    /// process's program waits there too, or last did.
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

    /// Publishes whether this process's program has yielded its core, or sleeps.
    #[inline]
    pub fn set_off_core(&self, off: bool) {
        let mine = &self.controls[self.me];
        mine.off_core.store(u32::from(off), Ordering::Relaxed);
    }

    /// Returns whether the program of `peer`, a process of this node, is likely to run now, on
    /// another core than this process. It may have lost its core.
    #[inline]
    pub fn runs_elsewhere(&self, peer: ProcId) -> bool {
        let Some(index) = self.index(peer) else {
            return false;
        };
        let (mine, its) = (&self.controls[self.me], &self.controls[index]);
        let core = its.core.load(Ordering::Relaxed);
        its.off_core.load(Ordering::Relaxed) == 0
            && (core == 0 || core != mine.core.load(Ordering::Relaxed))
    }

    /// The core on which the program of `peer` last waited for long, if it is of this node.
    pub fn waiting_core(&self, peer: ProcId) -> Option<u32> {
        let its = &self.controls[self.index(peer)?];
        its.core.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Returns whether `peer`'s progress thread polls its wakeup word now. It then handles at once
    /// what is sent to it, and takes no time from its program.
    pub fn progress_polls(&self, peer: ProcId) -> bool {
        let word = self.index(peer).map(|i| &self.controls[i].wakeup_word);
        word.is_some_and(wakeup_word::is_polled)
    }

    /// Calls `each` with the cores on which programs of the node's processes wait or last did,
    /// including this process's.
    pub fn for_each_waiting_core(&self, each: &mut dyn FnMut(u32)) {
        let cores = self.controls.iter().map(|c| c.core.load(Ordering::Relaxed));
        cores
            .filter(|&core| core != 0)
            .for_each(|core| each(core - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_job::{NodeJob, Segment};

    #[test]
    fn a_peer_runs_elsewhere_unless_it_gave_up_its_core_or_shares_it() {
        let node = NodeJob::new(5, 2, 2).unwrap();
        let open = |me: usize| {
            let fd = node.segment.fd.try_clone().unwrap();
            let segment = Segment::open(fd, 2, Some(node.segment.layout.total_bytes())).unwrap();
            Shm::open(segment, vec![0, 1], me, 5, 1).unwrap()
        };
        let (mine, its) = (open(0), open(1));
        assert!(mine.runs_elsewhere(1), "where it waits is not known");
        assert_eq!(mine.waiting_core(1), None);
        its.set_off_core(true);
        assert!(!mine.runs_elsewhere(1));
        its.set_off_core(false);
        mine.shares_core(0);
        its.shares_core(1);
        assert!(mine.runs_elsewhere(1));
        assert_eq!(mine.waiting_core(1), Some(1));
        its.shares_core(0);
        assert!(!mine.runs_elsewhere(1), "one core runs one of them");
        assert!(!mine.runs_elsewhere(7), "it is not of this node");
        assert_eq!(mine.waiting_core(7), None);
    }
}

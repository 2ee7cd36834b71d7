//! Sieving writes beside others: who may write without a lock.
//!
//! A sieving write reads a range of the file, changes its own pieces of it, and writes the range
//! back. What others write between the pieces in the meantime would be lost, so that all of them
//! have to lock what they write. They do, from the first sieving write of any rank on: before it,
//! its rank raises a flag in the node's memory and waits until the writes that are under way have
//! ended. Files that nobody sieves are written without locks.

use super::shared::NodeState;
use ferry_io::store::StoredFile;
use ferry_io::transfer;
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How the ranks of a file keep sieving writes apart from others.
#[derive(Clone)]
pub(super) enum SieveExclusion {
    /// There is one rank, which is alone in its job.
    OneRank,
    /// By the node's memory. The number is this rank's.
    OnNode(Arc<NodeState>, u32),
    /// Not at all: the ranks share no memory, or one rank has opened the file by itself, as others
    /// may have. They sieve only if a hint says so on all of them.
    Apart,
}

/// A rank's writes that are under way, in a cache line of their own. Zeros: none are.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct WritesInFlight(AtomicU32);

/// A write that is under way without a lock.
pub(super) struct UnlockedWrite(Option<(Arc<NodeState>, u32)>);

impl SieveExclusion {
    /// May this rank sieve without being asked to?
    pub fn may_sieve(&self) -> bool {
        !matches!(self, SieveExclusion::Apart)
    }

    /// Begins a write, which `sieves` or not. `None`: it has to be made under a lock. Blocks while
    /// the first sieving write waits for others.
    pub fn begin(&self, sieves: bool) -> Option<UnlockedWrite> {
        let SieveExclusion::OnNode(state, rank) = self else {
            return Some(UnlockedWrite(None));
        };
        if sieves {
            state.begin_sieving();
            return None;
        }
        let begun = state.begin_write(*rank);
        begun.then(|| UnlockedWrite(Some((state.clone(), *rank))))
    }

    /// Writes one run, under a lock if somebody sieves. Blocks.
    #[inline(always)]
    pub fn write(&self, file: &dyn StoredFile, data: &[u8], offset: u64) -> ferry_io::Result<()> {
        let SieveExclusion::OnNode(state, rank) = self else {
            return transfer::write_all(file, data, offset);
        };
        if !state.begin_write(*rank) {
            return write_locked(file, data, offset);
        }
        let written = transfer::write_all(file, data, offset);
        state.end_write(*rank);
        written
    }
}

#[cold]
fn write_locked(file: &dyn StoredFile, data: &[u8], offset: u64) -> ferry_io::Result<()> {
    let end = offset + data.len() as u64;
    let _lock = transfer::lock(file, offset..end, true)?;
    transfer::write_all(file, data, offset)
}

impl NodeState {
    #[inline]
    fn is_sieved(&self) -> bool {
        self.sieved().load(Ordering::SeqCst) != 0
    }

    /// Begins a write of a rank. Returns whether it may go without a lock; [`NodeState::end_write`]
    /// says that it has ended then.
    #[inline]
    fn begin_write(&self, rank: u32) -> bool {
        if self.is_sieved() {
            return false;
        }
        let own = &self.writes_in_flight()[rank as usize].0;
        own.fetch_add(1, Ordering::SeqCst);
        // The flag may have been raised since: who raised it waits for this write, or not.
        if self.is_sieved() {
            self.end_write(rank);
            return false;
        }
        true
    }

    #[inline]
    fn end_write(&self, rank: u32) {
        let own = &self.writes_in_flight()[rank as usize].0;
        own.fetch_sub(1, Ordering::SeqCst);
        if self.is_sieved() {
            wake(own);
        }
    }

    /// Raises the flag, and waits for the writes without locks.
    fn begin_sieving(&self) {
        self.sieved().store(1, Ordering::SeqCst);
        for WritesInFlight(count) in self.writes_in_flight() {
            loop {
                let now = count.load(Ordering::SeqCst);
                if now == 0 {
                    break;
                }
                let _ = futex::wait(count, futex::Flags::empty(), now, None);
            }
        }
    }
}

impl Drop for UnlockedWrite {
    fn drop(&mut self) {
        let Some((state, rank)) = &self.0 else { return };
        state.end_write(*rank);
    }
}

/// Wakes who waits for a rank's writes.
#[cold]
fn wake(count: &AtomicU32) {
    let _ = futex::wake(count, futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn exclusions(ranks: u32) -> Vec<SieveExclusion> {
        let state = Arc::new(NodeState::of_threads(ranks));
        let exclusion = |rank| SieveExclusion::OnNode(state.clone(), rank);
        (0..ranks).map(exclusion).collect()
    }

    #[test]
    fn nobody_writes_without_a_lock_once_one_sieves() {
        let exclusions = exclusions(2);
        assert!(exclusions[0].begin(false).is_some());
        let before = exclusions[0].begin(false);
        let sieves = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(exclusions[1].begin(true).is_none());
                sieves.store(true, Ordering::SeqCst);
            });
            while !matches!(&exclusions[0], SieveExclusion::OnNode(state, _) if state.is_sieved()) {
                std::thread::yield_now();
            }
            assert!(
                !sieves.load(Ordering::SeqCst),
                "it waits for the write under way"
            );
            assert!(exclusions[0].begin(false).is_none());
            drop(before);
        });
        assert!(sieves.load(Ordering::SeqCst));
        assert!(exclusions[1].begin(false).is_none());
    }

    #[test]
    fn alone_nothing_is_locked() {
        assert!(
            SieveExclusion::OneRank.begin(true).is_some() && SieveExclusion::OneRank.may_sieve()
        );
        assert!(!SieveExclusion::Apart.may_sieve());
    }
}

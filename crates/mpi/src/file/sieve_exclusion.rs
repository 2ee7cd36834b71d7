//! Sieving writes beside others: who may write without a lock.
//!
//! A sieving write reads a range of the file, changes its own pieces of it, and writes the range
//! back. What others write between the pieces in the meantime would be lost, so that all of them
//! have to lock what they write. They do, from the first sieving write of any rank on: before it,
//! its rank claims the file for the ranks that have opened it together ([`Entry`]), raises a flag
//! in the node's memory and waits until the writes that are under way have ended. Where the claim
//! fails, nobody sieves. Files that nobody sieves are written without locks.

use super::shared::NodeState;
use crate::comm::agree::{Reader, put_u64};
use ferry_io::store::{Entry, StoredFile};
use ferry_io::transfer::{self, Access, Choice};
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How a file keeps sieving writes apart from others.
pub(super) struct SieveExclusion {
    ranks: Ranks,
    opens: OtherOpens,
    /// Others may sieve who do not know of these ranks: they are late, or the program asks for
    /// sieving writes wherever it has opened the file.
    exposed: AtomicBool,
}

/// The ranks that have opened the file together.
pub(super) enum Ranks {
    /// There is one.
    One,
    /// They know of each other by the node's memory. The number is this rank's.
    OnNode(Arc<NodeState>, u32),
    /// They share no memory. They sieve only if a hint says so on all of them.
    Apart,
}

/// What is known of other opens of the same file: by other communicators and in other jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OtherOpens {
    /// Rank 0 has entered the file.
    Entered(Entry),
    /// There are no locks, or no writes.
    Unknown,
}

impl OtherOpens {
    /// Enters a file that will be written. For rank 0.
    pub fn enter(stored: &dyn StoredFile) -> OtherOpens {
        match stored.enter() {
            Ok(entry) => OtherOpens::Entered(entry),
            Err(_) => OtherOpens::Unknown,
        }
    }

    pub fn put(self, out: &mut Vec<u8>) {
        let (kind, place) = match self {
            OtherOpens::Unknown => (0, 0),
            OtherOpens::Entered(Entry::Late) => (1, 0),
            OtherOpens::Entered(Entry::At(place)) => (2, place),
        };
        put_u64(out, kind);
        put_u64(out, place);
    }

    pub fn read(reader: &mut Reader<'_>) -> crate::Result<OtherOpens> {
        let (kind, place) = (reader.u64()?, reader.u64()?);
        Ok(match kind {
            0 => OtherOpens::Unknown,
            1 => OtherOpens::Entered(Entry::Late),
            _ => OtherOpens::Entered(Entry::At(place)),
        })
    }
}

/// A rank's writes that are under way, in a cache line of their own. Zeros: none are.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct WritesInFlight(AtomicU32);

/// A write that is under way without a lock.
pub(super) struct UnlockedWrite(Option<(Arc<NodeState>, u32)>);

impl SieveExclusion {
    pub fn new(ranks: Ranks, opens: OtherOpens) -> SieveExclusion {
        SieveExclusion {
            exposed: AtomicBool::new(opens == OtherOpens::Entered(Entry::Late)),
            ranks,
            opens,
        }
    }

    /// Sets whether the program asks for sieving writes, wherever it has opened the file. All
    /// writes are locked then, unless the file is claimed.
    pub fn set_asked(&self, asked: bool) {
        let late = self.opens == OtherOpens::Entered(Entry::Late);
        self.exposed.store(asked || late, Ordering::Relaxed);
    }

    /// Is each write made under a lock?
    #[inline]
    fn locks_all(&self, stored: &dyn StoredFile) -> bool {
        self.exposed.load(Ordering::Relaxed) && !self.claim(stored)
    }

    /// Takes the file for the ranks that have opened it together, if nobody else has it open. On
    /// one node; between nodes, ranks would shut each other out.
    fn claim(&self, stored: &dyn StoredFile) -> bool {
        let OtherOpens::Entered(Entry::At(place)) = self.opens else {
            return false;
        };
        match &self.ranks {
            Ranks::One => stored.claim(place).unwrap_or(false),
            Ranks::OnNode(state, _) => {
                let claimed = state.claimed();
                if claimed.load(Ordering::Acquire) != 0 {
                    return true;
                }
                let got = stored.claim(place).unwrap_or(false);
                if got {
                    claimed.store(1, Ordering::Release);
                }
                got
            }
            Ranks::Apart => false,
        }
    }

    /// How a write is made that would sieve by `access`: without sieving where it cannot be kept
    /// apart from others' writes, unless the program asks for it.
    pub fn permitted(&self, stored: &dyn StoredFile, access: Access) -> Access {
        let claimed = access.sieve_writes != Choice::Never && self.claim(stored);
        match access.sieve_writes {
            Choice::Automatic if !claimed => Access {
                sieve_writes: Choice::Never,
                ..access
            },
            _ => access,
        }
    }

    /// Begins a write, which `sieves` or not. `None`: it has to be made under a lock. Blocks while
    /// the first sieving write waits for others.
    pub fn begin(&self, stored: &dyn StoredFile, sieves: bool) -> Option<UnlockedWrite> {
        if let (true, Ranks::OnNode(state, _)) = (sieves, &self.ranks) {
            state.begin_sieving();
            return None;
        }
        if self.locks_all(stored) {
            return None;
        }
        let Ranks::OnNode(state, rank) = &self.ranks else {
            return Some(UnlockedWrite(None));
        };
        let begun = state.begin_write(*rank);
        begun.then(|| UnlockedWrite(Some((state.clone(), *rank))))
    }

    /// Writes one run, under a lock if somebody sieves. Blocks.
    #[inline(always)]
    pub fn write(&self, file: &dyn StoredFile, data: &[u8], offset: u64) -> ferry_io::Result<()> {
        if self.locks_all(file) {
            return write_locked(file, data, offset);
        }
        let Ranks::OnNode(state, rank) = &self.ranks else {
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
    let end = offset.saturating_add(data.len() as u64);
    let _lock = transfer::lock_write(file, offset..end)?;
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
    use ferry_io::store::{MemoryStore, OpenMode, Store};
    use std::path::Path;

    fn file() -> Arc<dyn StoredFile> {
        let store = MemoryStore::default();
        store.open(Path::new("x"), &OpenMode::CREATE).unwrap()
    }

    const PLACE: OtherOpens = OtherOpens::Entered(Entry::At(7));

    fn exclusions(ranks: u32) -> (Arc<NodeState>, Vec<SieveExclusion>) {
        let state = Arc::new(NodeState::of_threads(ranks));
        let exclusion = |rank| SieveExclusion::new(Ranks::OnNode(state.clone(), rank), PLACE);
        (state.clone(), (0..ranks).map(exclusion).collect())
    }

    #[test]
    fn nobody_writes_without_a_lock_once_one_sieves() {
        let (file, (state, exclusions)) = (file(), exclusions(2));
        assert!(exclusions[0].begin(&*file, false).is_some());
        let before = exclusions[0].begin(&*file, false);
        let sieves = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(exclusions[1].begin(&*file, true).is_none());
                sieves.store(true, Ordering::SeqCst);
            });
            while !state.is_sieved() {
                std::thread::yield_now();
            }
            assert!(
                !sieves.load(Ordering::SeqCst),
                "it waits for the write under way"
            );
            assert!(exclusions[0].begin(&*file, false).is_none());
            drop(before);
        });
        assert!(sieves.load(Ordering::SeqCst));
        assert!(exclusions[1].begin(&*file, false).is_none());
    }

    #[test]
    fn who_is_late_locks_all() {
        let file = file();
        let of = |opens| SieveExclusion::new(Ranks::One, opens);
        let late = of(OtherOpens::Entered(Entry::Late));
        assert!(of(PLACE).begin(&*file, true).is_some() && late.begin(&*file, false).is_none());
        late.set_asked(false);
        assert!(late.begin(&*file, false).is_none());
        let asked = of(OtherOpens::Unknown);
        assert!(asked.begin(&*file, false).is_some());
        asked.set_asked(true);
        assert!(asked.begin(&*file, false).is_none());
    }

    #[test]
    fn what_rank_0_knows_of_others_is_read() {
        let late = OtherOpens::Entered(Entry::Late);
        for opens in [OtherOpens::Unknown, late, PLACE] {
            let mut bytes = Vec::new();
            opens.put(&mut bytes);
            assert_eq!(OtherOpens::read(&mut Reader(&bytes)).unwrap(), opens);
        }
    }
}

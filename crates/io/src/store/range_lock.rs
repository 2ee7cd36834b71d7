//! Locks of ranges of a file. Between the threads of a process a table keeps them apart; between
//! processes the system does (fcntl(2)).

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

/// A locked range of a file, until it is dropped.
pub struct RangeLock<'a> {
    owner: &'a dyn Unlock,
    range: Range<u64>,
}

/// What gives a locked range back.
pub(super) trait Unlock {
    fn unlock(&self, range: &Range<u64>);
}

impl<'a> RangeLock<'a> {
    /// A lock that `owner` ends. An empty range is not locked.
    pub(super) fn new(owner: &'a dyn Unlock, range: Range<u64>) -> RangeLock<'a> {
        RangeLock { owner, range }
    }
}

impl Drop for RangeLock<'_> {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            self.owner.unlock(&self.range);
        }
    }
}

/// The ranges that threads of this process have locked. They do not overlap.
///
/// The system's locks belong to the open file or to the process, not to a thread: two threads would
/// both get them, and the first to unlock would unlock for both.
#[derive(Default)]
pub(super) struct RangeTable {
    taken: Mutex<Vec<Range<u64>>>,
    released: Condvar,
}

impl RangeTable {
    /// Takes a range; blocks while a part of it is taken.
    pub fn take(&self, range: &Range<u64>) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while taken
            .iter()
            .any(|t| t.start < range.end && range.start < t.end)
        {
            taken = self
                .released
                .wait(taken)
                .unwrap_or_else(PoisonError::into_inner);
        }
        taken.push(range.clone());
    }

    /// Gives a range back that was taken.
    pub fn release(&self, range: &Range<u64>) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(i) = taken.iter().position(|t| t == range) {
            taken.swap_remove(i);
        }
        drop(taken);
        self.released.notify_all();
    }
}

impl Unlock for RangeTable {
    fn unlock(&self, range: &Range<u64>) {
        self.release(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn overlapping_ranges_exclude_each_other() {
        const ROUNDS: u32 = 2_000;
        let table = RangeTable::default();
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for range in [0..60, 50..100, 59..60, 40..70] {
                let (table, count) = (&table, &count);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        table.take(&range);
                        // No atomic addition: the table must keep the others away.
                        let next = count.load(Ordering::Relaxed) + 1;
                        std::thread::yield_now();
                        count.store(next, Ordering::Relaxed);
                        table.release(&range);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 4 * ROUNDS);
    }

    #[test]
    fn neighbours_do_not_wait() {
        let table = RangeTable::default();
        for range in [10..20, 20..30, 0..10] {
            table.take(&range);
        }
        table.release(&(20..30));
        table.take(&(20..25));
        assert_eq!(table.taken.into_inner().unwrap().len(), 3);
    }
}

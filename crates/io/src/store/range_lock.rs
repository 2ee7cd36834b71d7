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
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn an_overlapping_range_waits_and_others_do_not() {
        let table = RangeTable::default();
        let released = AtomicBool::new(false);
        table.take(&(10..20));
        table.take(&(20..30));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                table.take(&(15..25));
                assert!(released.load(Ordering::Acquire));
                table.release(&(15..25));
            });
            table.release(&(20..30));
            released.store(true, Ordering::Release);
            table.release(&(10..20));
        });
    }
}

//! Short ranges of the arena that one process has released and keeps for its next ones, and
//! mappings that it has dropped and keeps for when it maps the same place again.
//!
//! Giving a range back to the system, taking and mapping a new one, and its first page faults take
//! tens of microseconds (docs/measured/onesided.md). A program that makes and frees windows in a
//! loop has none of them.

use super::{ALIGN_BYTES, Pages, SharedRange};

/// Longest range that is kept, bytes: what any range takes of the arena.
pub(super) const KEPT_RANGE_MAX_BYTES: u64 = ALIGN_BYTES;
/// Ranges that a process keeps, and mappings. A choice: at most 512 KiB of memory, and few programs
/// make more windows at a time.
pub(super) const KEPT_MAX: usize = 8;
/// Bytes of a page, on x86-64 and most arm64 systems.
pub(super) const PAGE_BYTES: u64 = 4096;

/// What a process keeps. The one that was kept last is the first to be used again.
#[derive(Default)]
pub(super) struct RangeCache {
    ranges: Vec<SharedRange>,
    /// Each with the offset in the arena where it begins.
    mappings: Vec<(u64, Pages)>,
}

impl RangeCache {
    /// A kept range that is as long as `len` asks for, to the page: others would cost memory that
    /// the caller does not ask for. What it was used for is still in it.
    pub fn take_range(&mut self, len: u64) -> Option<SharedRange> {
        let pages = |len: u64| len.div_ceil(PAGE_BYTES);
        let fits = |range: &SharedRange| pages(range.len) == pages(len);
        let found = self.ranges.iter().rposition(fits)?;
        Some(self.ranges.remove(found))
    }

    /// Keeps a range that was released. Returns one that is not kept any more: this one if it is
    /// too long, or the oldest.
    pub fn keep_range(&mut self, range: SharedRange) -> Option<SharedRange> {
        if range.len > KEPT_RANGE_MAX_BYTES {
            return Some(range);
        }
        let oldest = (self.ranges.len() == KEPT_MAX).then(|| self.ranges.remove(0));
        self.ranges.push(range);
        oldest
    }

    /// The kept mapping of what begins at `offset` of the arena.
    pub fn take_mapping(&mut self, offset: u64) -> Option<Pages> {
        let found = self.mappings.iter().rposition(|kept| kept.0 == offset)?;
        Some(self.mappings.remove(found).1)
    }

    /// Keeps the mapping of what begins at `offset` of the arena. Returns the oldest one if there
    /// are too many.
    pub fn keep_mapping(&mut self, offset: u64, pages: Pages) -> Option<Pages> {
        let oldest = (self.mappings.len() == KEPT_MAX).then(|| self.mappings.remove(0).1);
        self.mappings.push((offset, pages));
        oldest
    }
}

//! Whether a collective transfer goes in two phases, and who aggregates what.

use super::super::File;
use super::super::access::Direction;
use super::extent::{Extent, Terms};
use crate::Comm;
use crate::process::process;
use ferry_io::transfer::Choice;
use ferry_io::two_phase::Domains;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::PoisonError;

/// Runs of this length or more are read and written by their own ranks. A choice: a system call for
/// each then costs less than sending the data to an aggregator first.
const INDEPENDENT_RUN_BYTES: u64 = 8 << 10;
/// Aggregators' domains begin at multiples of this, bytes, unless a hint says otherwise: a page.
const ALIGN_BYTES: u64 = 4096;

/// The plan of a transfer in two phases.
pub(super) struct Plan {
    pub extents: Vec<Extent>,
    /// The ranks that aggregate.
    pub aggregators: Vec<u32>,
    pub domains: Domains,
    pub direction: Direction,
    /// The views have to travel first.
    pub sends_views: bool,
    /// They are kept for transfers to come.
    pub caches_views: bool,
}

impl Plan {
    /// The plan for ranks with these extents, the same on all ranks. `None`: each rank makes its
    /// transfer by itself.
    ///
    /// `caches_views`: the transfer is blocking, so that all ranks know of the same transfers
    /// before it, and whether views have travelled with one of them.
    pub fn new(
        file: &File,
        direction: Direction,
        words: &[u64],
        caches_views: bool,
    ) -> Option<Plan> {
        let extents = Extent::all(words);
        let terms = extents.first()?.terms;
        if file.is_atomic() || !worth_it(terms.choice, &extents) {
            return None;
        }
        let with_data = || extents.iter().filter(|e| e.len > 0);
        let start = with_data().map(|e| e.start).min()?;
        let end = with_data().map(|e| e.end).max()?;
        let size = extents.len() as u64;
        let count = terms.aggregators.clamp(1, size);
        let aggregators: Vec<u32> = (0..count).map(|i| (i * size / count) as u32).collect();
        let domains = Domains::new(
            start..end,
            aggregators.len(),
            terms.alignment.max(1),
            terms.buffer_bytes.max(1),
        );
        let known = file.exchanged.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        Some(Plan {
            extents,
            aggregators,
            domains,
            direction,
            sends_views: !caches_views || !known.is_complete(),
            caches_views,
        })
    }

    /// Which aggregator a rank is.
    pub fn aggregator(&self, rank: u32) -> Option<usize> {
        self.aggregators.binary_search(&rank).ok()
    }

    /// May `rank` have data in this range of the file?
    pub fn reaches(&self, rank: usize, range: &Range<u64>) -> bool {
        let extent = &self.extents[rank];
        extent.len > 0 && extent.start < range.end && range.start < extent.end
    }
}

/// Are two phases worth their messages?
fn worth_it(choice: Choice, extents: &[Extent]) -> bool {
    if choice == Choice::Never
        || extents.iter().any(|e| e.failed)
        || extents.iter().all(|e| e.len == 0)
    {
        return false;
    }
    choice == Choice::Always || interleave(extents) && mean_run(extents) < INDEPENDENT_RUN_BYTES
}

/// Does the range of one rank begin before that of another has ended?
fn interleave(extents: &[Extent]) -> bool {
    let mut ranges: Vec<_> = extents.iter().filter(|e| e.len > 0).collect();
    ranges.sort_unstable_by_key(|e| e.start);
    ranges.windows(2).any(|pair| pair[1].start < pair[0].end)
}

/// Mean length of the ranks' runs, each weighed by its data.
fn mean_run(extents: &[Extent]) -> u64 {
    let bytes: u128 = extents.iter().map(|e| u128::from(e.len)).sum();
    let each = |e: &Extent| u128::from(e.len) / u128::from(e.run_bytes.max(1));
    let runs: u128 = extents.iter().map(each).sum();
    (bytes / runs.max(1)) as u64
}

impl File {
    /// How many ranks aggregate by this rank's hints.
    pub(in super::super) fn aggregator_count(&self) -> u64 {
        self.terms(Direction::Write).aggregators
    }

    /// This rank's terms.
    pub(super) fn terms(&self, direction: Direction) -> Terms {
        let hints = self.hints();
        Terms {
            aggregators: match hints.cb_nodes {
                0 => u64::from(aggregator_count(&self.comm)),
                asked => asked,
            },
            buffer_bytes: hints.cb_buffer_bytes,
            alignment: match hints.striping_bytes {
                0 => ALIGN_BYTES,
                bytes => bytes,
            },
            choice: match direction {
                Direction::Read => hints.cb_read,
                Direction::Write => hints.cb_write,
            },
        }
    }
}

/// How many ranks aggregate, unless a hint says so: as many on each node as have a core.
pub(super) fn aggregator_count(comm: &Comm) -> u32 {
    let info = &process().rank_info;
    let nodes = (0..comm.size()).filter_map(|rank| info.nodes.node_of(comm.peer(rank)));
    let nodes: BTreeSet<_> = nodes.collect();
    let nodes = nodes.len().max(1) as u32;
    nodes.saturating_mul(info.cores.max(1)).min(comm.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64, len: u64, run_bytes: u64) -> Extent {
        Extent {
            failed: false,
            position: 0,
            len,
            start,
            end,
            run_bytes,
            view_bytes: 0,
            terms: Extent::FAILED.terms,
        }
    }

    #[test]
    fn two_phases_are_for_small_pieces_that_interleave() {
        let small = [extent(0, 1000, 500, 64), extent(64, 1064, 500, 64)];
        assert!(worth_it(Choice::Automatic, &small));
        assert!(!worth_it(Choice::Never, &small));
        let apart = [extent(0, 1000, 500, 64), extent(1000, 2000, 500, 64)];
        assert!(!worth_it(Choice::Automatic, &apart));
        assert!(worth_it(Choice::Always, &apart));
        let long = [extent(0, 1 << 20, 1 << 19, 1 << 16), extent(1 << 16, 1 << 20, 1 << 19, 1 << 16)];
        assert!(!worth_it(Choice::Automatic, &long));
        assert!(!worth_it(Choice::Always, &[small[0], Extent::FAILED]));
        assert!(!worth_it(Choice::Always, &[extent(0, 0, 0, 1)]));
    }
}

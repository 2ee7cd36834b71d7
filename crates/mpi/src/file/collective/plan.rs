//! Whether a collective transfer goes in two phases, and who aggregates what.

use super::super::File;
use super::super::access::Direction;
use super::extent::{Extent, PlanParameters};
use crate::Comm;
use crate::process::process;
use ferry_io::transfer::Choice;
use ferry_io::two_phase::{self, CostInputs, Domains, RankRange};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::PoisonError;

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
        let parameters = extents.first()?.parameters;
        if file.is_atomic() || !pays_off(&parameters, direction, &extents) {
            return None;
        }
        let with_data = || extents.iter().filter(|e| e.len > 0);
        let start = with_data().map(|e| e.start).min()?;
        let end = with_data().map(|e| e.end).max()?;
        let size = extents.len() as u64;
        let count = parameters.aggregators.clamp(1, size);
        let aggregators: Vec<u32> = (0..count).map(|i| (i * size / count) as u32).collect();
        let domains = Domains::new(
            start..end,
            aggregators.len(),
            parameters.alignment.max(1),
            parameters.buffer_bytes.max(1),
        );
        let known = file.rank_views.lock();
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
fn pays_off(parameters: &PlanParameters, direction: Direction, extents: &[Extent]) -> bool {
    if parameters.choice == Choice::Never
        || extents.iter().any(|e| e.failed)
        || extents.iter().all(|e| e.len == 0)
    {
        return false;
    }
    if parameters.choice == Choice::Always {
        return true;
    }
    let range = |e: &Extent| RankRange {
        start: e.start,
        end: e.end,
        bytes: e.len,
        runs: e.runs,
    };
    let ranges: Vec<RankRange> = extents.iter().map(range).collect();
    let inputs = CostInputs {
        file_system: parameters.file_system,
        writes: direction == Direction::Write,
        aggregators: parameters.aggregators as usize,
        own_cores: parameters.own_cores,
    };
    two_phase::pays_off(&ranges, inputs)
}

impl File {
    /// How many ranks aggregate by this rank's hints.
    pub(in super::super) fn aggregator_count(&self) -> u64 {
        self.parameters(Direction::Write).aggregators
    }

    /// This rank's parameters.
    pub(super) fn parameters(&self, direction: Direction) -> PlanParameters {
        let (hints, info) = (self.hints(), &process().rank_info);
        PlanParameters {
            aggregators: match hints.cb_nodes {
                0 => u64::from(aggregator_count(&self.comm)),
                asked => asked,
            },
            buffer_bytes: hints.cb_buffer_bytes(self.stored.file_system()),
            alignment: match hints.striping_bytes {
                0 => ALIGN_BYTES,
                bytes => bytes,
            },
            choice: match direction {
                Direction::Read => hints.cb_read,
                Direction::Write => hints.cb_write,
            },
            file_system: self.stored.file_system(),
            own_cores: self.shared.is_on_node() && info.cores as usize >= info.local_ranks.len(),
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

    fn extent(start: u64, end: u64, len: u64, runs: u64) -> Extent {
        Extent {
            failed: false,
            position: 0,
            len,
            start,
            end,
            runs,
            view_bytes: 0,
            parameters: Extent::FAILED.parameters,
        }
    }

    #[test]
    fn two_phases_are_for_small_pieces_that_interleave() {
        let worth = |choice, extents: &[Extent]| {
            let parameters = PlanParameters {
                choice,
                aggregators: 2,
                ..Extent::FAILED.parameters
            };
            pays_off(&parameters, Direction::Write, extents)
        };
        let small = [
            extent(0, 128_000, 64_000, 1000),
            extent(64, 128_064, 64_000, 1000),
        ];
        assert!(worth(Choice::Automatic, &small));
        assert!(!worth(Choice::Never, &small));
        let apart = [extent(0, 1000, 500, 8), extent(1000, 2000, 500, 8)];
        assert!(!worth(Choice::Automatic, &apart));
        assert!(worth(Choice::Always, &apart));
        let long = [
            extent(0, 1 << 28, 1 << 27, 8),
            extent(1 << 24, 1 << 28, 1 << 27, 8),
        ];
        assert!(!worth(Choice::Automatic, &long));
        assert!(!worth(Choice::Always, &[small[0], Extent::FAILED]));
        assert!(!worth(Choice::Always, &[extent(0, 0, 0, 0)]));
    }
}

//! Plans of collective transfers in two phases: who transfers which part of the file, and what each
//! rank has in it. No file is touched and no message is sent here.
//!
//! The range of the file that the ranks access together is split into domains, one for each
//! aggregator. An aggregator works through its domain in windows, a window a round. In a collective
//! write the ranks send what they have in the window, and the aggregator writes it with one call;
//! in a collective read it goes the other way.
//!
//! Source: Thakur, Gropp and Lusk, "Data sieving and collective I/O in ROMIO", 1999, §5.

mod domains;
mod portion;
mod union;

pub use domains::Domains;
pub use portion::{Piece, Pieces, Portion};
pub use union::{Coverage, Union, coverage, union};

use crate::cost::{Cost, Strided};
use crate::store::FileSystem;

/// What a rank tells the others of its part in a collective transfer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RankRange {
    /// Offset of its first data byte in the file.
    pub start: u64,
    /// Offset behind its last data byte. No data if not behind `start`.
    pub end: u64,
    /// Data bytes.
    pub bytes: u64,
    /// Runs that hold them.
    pub runs: u64,
}

/// What the cost of a collective transfer depends on, beside the ranks' ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostInputs {
    /// Where the file is.
    pub file_system: FileSystem,
    /// Ranks write.
    pub writes: bool,
    /// Ranks that aggregate, as in [`Domains`].
    pub aggregators: usize,
    /// All ranks are on one node, and each has a core.
    pub own_cores: bool,
}

/// Returns whether a collective transfer in two phases is cheaper than each rank's own access. All
/// ranks get the same answer from the same ranges.
///
/// It is not worth it if the ranks' ranges do not interleave: then each rank's own access transfers
/// no byte of another. If they do, its exchange must be cheaper than the calls that it saves.
pub fn pays_off(ranges: &[RankRange], inputs: CostInputs) -> bool {
    let CostInputs {
        file_system,
        writes,
        aggregators,
        own_cores,
    } = inputs;
    let mut ranges: Vec<RankRange> = ranges
        .iter()
        .filter(|range| range.start < range.end && range.bytes > 0)
        .copied()
        .collect();
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    if !ranges.windows(2).any(|w| w[1].start < w[0].end) {
        return false;
    }
    let cost = Cost::of(file_system);
    let (mut alone, mut together) = (0.0, 0.0);
    for range in &ranges {
        let access = Strided {
            len: range.bytes as f64,
            runs: range.runs as f64,
            span: (range.end - range.start) as f64,
        };
        // Sieving writes of interleaved ranges would wait for each other's locks.
        alone += match writes {
            true => cost.write_runs(access, 0.0),
            false => cost.read_runs(access).min(cost.sieve_read(access, 1.0)),
        };
        together += cost.two_phase(access, aggregators as f64, own_cores);
    }
    together < alone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranks: u64, rows: u64, row_bytes: u64) -> Vec<RankRange> {
        let of_rank = |rank| RankRange {
            start: rank * row_bytes,
            end: ((rows - 1) * ranks + rank + 1) * row_bytes,
            bytes: rows * row_bytes,
            runs: rows,
        };
        (0..ranks).map(of_rank).collect()
    }

    const TWO_WRITERS: CostInputs = CostInputs {
        file_system: FileSystem::Tmpfs,
        writes: true,
        aggregators: 2,
        own_cores: true,
    };

    #[test]
    fn small_interleaved_runs_are_worth_it() {
        for (writes, own_cores) in [(false, false), (false, true), (true, false), (true, true)] {
            let inputs = CostInputs {
                writes,
                own_cores,
                ..TWO_WRITERS
            };
            let worth = |list: &[RankRange]| pays_off(list, inputs);
            assert!(worth(&ranges(8, 1000, 64)));
            assert!(!worth(&ranges(8, 100, 1 << 20)));
            assert!(!worth(&ranges(1, 1000, 64)));
            assert!(!worth(&[]));
        }
    }

    #[test]
    fn pages_are_exchanged_for_writes_where_each_rank_has_a_core() {
        let worth = |inputs| pays_off(&ranges(2, 1000, 4096), inputs);
        let local = CostInputs {
            file_system: FileSystem::Local,
            ..TWO_WRITERS
        };
        assert!(worth(TWO_WRITERS) && worth(local));
        let reads = |inputs| CostInputs {
            writes: false,
            ..inputs
        };
        assert!(!worth(reads(TWO_WRITERS)) && worth(reads(local)));
        assert!(!worth(CostInputs {
            own_cores: false,
            ..TWO_WRITERS
        }));
    }

    #[test]
    fn ranges_side_by_side_are_not_worth_it() {
        let list: Vec<RankRange> = (0..8)
            .map(|rank| RankRange {
                start: rank * 1000,
                end: rank * 1000 + 900,
                bytes: 100,
                runs: 50,
            })
            .collect();
        assert!(!pays_off(&list, TWO_WRITERS));
    }
}

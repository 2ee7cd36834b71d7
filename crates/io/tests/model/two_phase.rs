//! Collective transfers of several ranks, each with a view of its own, as the plans say.

use crate::filetypes::{Filetype, any, rising};
use ferry_io::two_phase::{Domains, Portion, coverage, union};
use ferry_io::{MemoryStore, OpenMode, Run, Store, StoredFile, View, transfer};
use proptest::prelude::*;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A rank: its filetype, displacement, position and number of bytes.
type Rank = (Filetype, u64, u64, u64);

fn ranks(filetype: impl Strategy<Value = Filetype>) -> impl Strategy<Value = Vec<Rank>> {
    prop::collection::vec((filetype, 0u64..60, 0u64..80, 0u64..400), 1..5)
}

/// Ranks whose views are the same, side by side: no holes, or one rank is missing.
fn side_by_side() -> impl Strategy<Value = (Vec<Rank>, bool)> {
    use ferry_datatype::{Basic, Datatype};
    (2u64..5, 1u64..9, 1u64..60, proptest::bool::ANY).prop_map(|(n, block, rows, missing)| {
        let one = Datatype::contiguous(block as i64, Datatype::basic(Basic::Byte)).unwrap();
        let extent = n * block;
        let filetype = Filetype {
            datatype: Datatype::resized(0, extent as i64, &one).unwrap(),
            bytes: (0..block).collect(),
            extent,
        };
        let present = if missing { n - 1 } else { n };
        let ranks = (0..present).map(|i| (filetype.clone(), i * block, 0, rows * block));
        (ranks.collect(), missing && rows > 1)
    })
}

fn views(ranks: &[Rank]) -> Vec<View> {
    let view = |r: &Rank| View::new(r.1, 1, &r.0.datatype).unwrap();
    ranks.iter().map(view).collect()
}

fn portions<'a>(ranks: &[Rank], views: &'a [View]) -> Vec<Portion<'a>> {
    let portion = |(rank, view): (&Rank, &'a View)| Portion {
        view,
        position: rank.2,
        len: rank.3,
    };
    ranks.iter().zip(views).map(portion).collect()
}

/// The offsets of a rank's data, in the order of positions.
fn offsets(rank: &Rank) -> Vec<u64> {
    let (filetype, displacement, position, len) = rank;
    let positions = *position..position + len;
    positions
        .map(|p| filetype.offset_of(*displacement, p))
        .collect()
}

fn file(bytes: &[u8]) -> (MemoryStore, Arc<dyn StoredFile>) {
    let store = MemoryStore::default();
    let file = store.open(Path::new("f"), &OpenMode::CREATE).unwrap();
    transfer::write_all(&*file, bytes, 0).unwrap();
    (store, file)
}

fn data(rank: usize, len: u64) -> Vec<u8> {
    (0..len).map(|i| (i % 50) as u8 + 51 * rank as u8).collect()
}

fn whole(portions: &[Portion<'_>]) -> Range<u64> {
    let ranges: Vec<_> = portions.iter().map(Portion::range).collect();
    let present = ranges.iter().filter(|r| r.start < r.end);
    let start = present.clone().map(|r| r.start).min().unwrap_or(0);
    start..present.map(|r| r.end).max().unwrap_or(0)
}

/// A collective write: each aggregator in turn, window by window. Later ranks win.
fn write(file: &dyn StoredFile, portions: &[Portion<'_>], domains: &Domains, aggregators: usize) {
    for aggregator in 0..aggregators {
        for round in 0..domains.rounds() {
            let window = domains.window(aggregator, round);
            let Some(filled) = coverage(portions, &window) else {
                continue;
            };
            let range = filled.range;
            let mut buffer = vec![0xee; (range.end - range.start) as usize];
            if filled.has_holes {
                let n = transfer::read_exact_or_end(file, &mut buffer, range.start).unwrap();
                buffer[n..].fill(0);
            }
            for (rank, portion) in portions.iter().enumerate() {
                let data = data(rank, portion.len);
                if let Some(positions) = portion.positions(&window) {
                    let (start, end) = (positions.start, positions.end);
                    let at = (start - portion.position) as usize;
                    let part = &data[at..at + (end - start) as usize];
                    portion.view.scatter(start, part, &mut buffer, range.start);
                }
            }
            transfer::write_all(file, &buffer, range.start).unwrap();
        }
    }
}

proptest! {
    #[test]
    fn pieces_of_all_windows_are_the_data(
        ranks in ranks(any()), aggregators in 1usize..4, alignment in 1u64..70, window in 1u64..200,
    ) {
        let views = views(&ranks);
        let portions = portions(&ranks, &views);
        let domains = Domains::new(whole(&portions), aggregators, alignment, window);
        for (rank, portion) in ranks.iter().zip(&portions) {
            let mut found = vec![None; rank.3 as usize];
            for aggregator in 0..aggregators {
                for round in 0..domains.rounds() {
                    let window = domains.window(aggregator, round);
                    for piece in portion.pieces(window.clone()) {
                        prop_assert!(piece.run.offset >= window.start);
                        prop_assert!(piece.run.end() <= window.end);
                        for i in 0..piece.run.len {
                            let place = &mut found[(piece.position - rank.2 + i) as usize];
                            prop_assert_eq!(place.replace(piece.run.offset + i), None);
                        }
                    }
                }
            }
            let want: Vec<_> = offsets(rank).into_iter().map(Some).collect();
            prop_assert_eq!(found, want);
        }
    }

    #[test]
    fn a_collective_write_is_that_of_the_ranks_in_turn(
        ranks in ranks(rising()), aggregators in 1usize..4, alignment in 1u64..70,
        window in 1u64..200, old in 0usize..700,
    ) {
        let mut bytes: Vec<u8> = (0..old).map(|i| (i % 20) as u8 + 230).collect();
        let (store, file) = file(&bytes);
        let views = views(&ranks);
        let portions = portions(&ranks, &views);
        let domains = Domains::new(whole(&portions), aggregators, alignment, window);
        write(&*file, &portions, &domains, aggregators);
        for (i, rank) in ranks.iter().enumerate() {
            for (offset, byte) in offsets(rank).into_iter().zip(data(i, rank.3)) {
                let offset = offset as usize;
                bytes.resize(bytes.len().max(offset + 1), 0);
                bytes[offset] = byte;
            }
        }
        prop_assert_eq!(store.bytes(Path::new("f")).unwrap(), bytes);
    }

    #[test]
    fn coverage_knows_holes(ranks in ranks(any()), start in 0u64..300, len in 1u64..300) {
        let views = views(&ranks);
        check_coverage(&ranks, &portions(&ranks, &views), start..start + len);
    }

    #[test]
    fn coverage_knows_holes_of_repeated_views(
        (ranks, holes) in side_by_side(), start in 0u64..300, len in 1u64..900,
    ) {
        let views = views(&ranks);
        let portions = portions(&ranks, &views);
        check_coverage(&ranks, &portions, start..start + len);
        let filled = coverage(&portions, &(0..u64::MAX)).unwrap();
        prop_assert_eq!(filled.has_holes, holes);
    }

    #[test]
    fn a_union_is_sorted_and_joined(ranks in ranks(rising())) {
        let views = views(&ranks);
        let portions = portions(&ranks, &views);
        let runs = portions.iter().map(|p| p.view.runs(p.position, p.len));
        let found: Vec<Run> = union(runs).collect();
        prop_assert!(found.windows(2).all(|w| w[0].end() < w[1].offset));
        let bytes: Vec<u64> = found.iter().flat_map(|run| run.offset..run.end()).collect();
        let mut want: Vec<u64> = ranks.iter().flat_map(offsets).collect();
        want.sort_unstable();
        want.dedup();
        prop_assert_eq!(bytes, want);
    }
}

fn check_coverage(ranks: &[Rank], portions: &[Portion<'_>], window: Range<u64>) {
    let all = ranks.iter().flat_map(offsets);
    let mut bytes: Vec<u64> = all.filter(|at| window.contains(at)).collect();
    bytes.sort_unstable();
    bytes.dedup();
    let found = coverage(portions, &window);
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        assert_eq!(found, None);
        return;
    };
    let found = found.unwrap();
    assert_eq!(found.range, *first..*last + 1);
    assert_eq!(found.has_holes, bytes.len() as u64 != last + 1 - first);
}

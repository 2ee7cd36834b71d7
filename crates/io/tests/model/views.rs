//! Positions, offsets and runs of views.

use crate::filetypes::{Filetype, any, rising};
use ferry_datatype::{Basic, Datatype};
use ferry_io::{View, ViewError};
use proptest::prelude::*;

/// The offsets of the data bytes, one by one.
fn offsets(view: &View, position: u64, len: u64) -> Vec<u64> {
    let runs: Vec<_> = view.runs(position, len).collect();
    assert!(
        runs.windows(2).all(|w| w[0].end() != w[1].offset),
        "neighbours that are not joined: {runs:?}"
    );
    runs.iter().flat_map(|run| run.offset..run.end()).collect()
}

fn expected(filetype: &Filetype, displacement: u64, position: u64, len: u64) -> Vec<u64> {
    let positions = position..position + len;
    positions
        .map(|p| filetype.offset_of(displacement, p))
        .collect()
}

proptest! {
    #[test]
    fn runs_are_those_of_the_type_map(
        filetype in any(), displacement in 0u64..50, position in 0u64..900, len in 0u64..900,
    ) {
        let view = View::new(displacement, 1, &filetype.datatype).unwrap();
        let want = expected(&filetype, displacement, position, len);
        prop_assert_eq!(offsets(&view, position, len), want.clone());
        prop_assert_eq!(view.offset_of(position), filetype.offset_of(displacement, position));
        if let (Some(low), Some(high)) = (want.iter().min(), want.iter().max()) {
            prop_assert_eq!(view.span(position, len), *low..*high + 1);
            prop_assert_eq!(view.end_of(position, len), *high + 1);
        }
        let all = expected(&filetype, displacement, 0, 2000);
        let rising = all.windows(2).all(|w| w[0] < w[1]);
        prop_assert_eq!(view.is_rising(), rising);
        let mut sorted = all;
        sorted.sort_unstable();
        prop_assert_eq!(view.overlaps(), sorted.windows(2).any(|w| w[0] == w[1]));
        let size = filetype.bytes.len() as u64;
        let mut one = expected(&filetype, displacement, 0, size);
        let rises = one.windows(2).all(|w| w[0] < w[1]);
        let first = view.first_filetype();
        prop_assert_eq!(first.is_some(), rises && !rising);
        if let Some(first) = first {
            prop_assert!(first.is_rising());
            prop_assert_eq!(offsets(&first, 0, size), one.clone());
            for (position, offset) in one.iter().enumerate() {
                prop_assert_eq!(first.position_at(*offset), position as u64);
            }
        }
        one.sort_unstable();
        prop_assert_eq!(
            view.overlaps_within_filetype(),
            one.windows(2).any(|w| w[0] == w[1])
        );
    }

    #[test]
    fn positions_are_found_by_offset(filetype in rising(), at in 0u64..50, offset in 0u64..900) {
        let view = View::new(at, 1, &filetype.datatype).unwrap();
        let position = view.position_at(offset);
        prop_assert!(view.offset_of(position) >= offset);
        prop_assert!(position == 0 || view.offset_of(position - 1) < offset);
    }

    #[test]
    fn the_end_is_the_first_etype_behind_the_file(
        filetype in any(), at in 0u64..50, file_len in 0u64..900, parts in 1u64..5,
    ) {
        let size = filetype.bytes.len() as u64;
        let etype = (1..=size).rev().find(|e| size.is_multiple_of(*e) && size / e >= parts);
        let etype = etype.unwrap_or(1);
        let view = View::new(at, etype, &filetype.datatype).unwrap();
        let starts = (0..).map(|k| k * etype);
        let end = starts.into_iter().find(|p| filetype.offset_of(at, *p) >= file_len);
        prop_assert_eq!(Some(view.position_of_end(file_len)), end);
    }
}

#[test]
fn a_view_of_bytes_is_the_file() {
    let view = View::bytes();
    assert!(view.is_contiguous());
    assert_eq!(view.position_of_end(77), 77);
    assert_eq!(offsets(&view, 5, 3), [5, 6, 7]);
}

#[test]
fn types_that_the_standard_refuses() {
    let int = Datatype::basic(Basic::Int);
    let error = |t| View::new(0, 4, &t).unwrap_err();
    let down = Datatype::indexed(&[1, 1], &[3, 0], int).unwrap();
    assert_eq!(error(down), ViewError::Falling);
    let negative = Datatype::indexed(&[1, 1], &[-1, 0], int).unwrap();
    assert_eq!(error(negative), ViewError::Negative(-4));
    let back = Datatype::resized(0, -8, int).unwrap();
    assert_eq!(error(back), ViewError::Extent(-8));
    let (filetype, etype) = (6, 4);
    let half = Datatype::contiguous(3, Datatype::basic(Basic::Short)).unwrap();
    assert_eq!(error(half), ViewError::NotEtypes { filetype, etype });
}

#[test]
fn a_type_without_data_sees_nothing() {
    let nothing = Datatype::contiguous(0, Datatype::basic(Basic::Int)).unwrap();
    let view = View::new(30, 4, &nothing).unwrap();
    assert!(view.is_empty() && view.runs(0, 10).next().is_none());
    assert_eq!(view.offset_of(0), 30);
}

#[test]
fn a_huge_vector_costs_no_memory_and_no_time() {
    let byte = Datatype::basic(Basic::Byte);
    let vector = Datatype::hvector(1 << 40, 1, 1000, byte).unwrap();
    let filetype = Datatype::resized(0, (1 << 40) * 1000 + 7, &vector).unwrap();
    let view = View::new(5, 1, &filetype).unwrap();
    let position = (1 << 40) + 17;
    let offset = 5 + (1 << 40) * 1000 + 7 + 17_000;
    assert_eq!(view.offset_of(position), offset);
    assert_eq!(view.position_at(offset), position);
    assert_eq!(view.runs(position, 2).nth(1).unwrap().offset, offset + 1000);
}

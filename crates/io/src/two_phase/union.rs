//! The union of several ranks' data in a window, and whether it has holes.

use super::Portion;
use crate::view::{Run, View};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::iter::Peekable;
use std::ops::Range;

/// The union of runs from several sources. The runs of each source rise.
#[derive(Debug)]
pub struct Union<I: Iterator<Item = Run>> {
    sources: Vec<Peekable<I>>,
    /// Offset of each source's next run, and the source. The least one is on top.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

/// The union of the runs of several sources, joined and in the order of the file. The runs of each
/// source must rise. It is computed run by run as it is asked for.
pub fn union<I: Iterator<Item = Run>>(sources: impl IntoIterator<Item = I>) -> Union<I> {
    let mut sources: Vec<Peekable<I>> = sources.into_iter().map(Iterator::peekable).collect();
    let next = sources
        .iter_mut()
        .enumerate()
        .filter_map(|(i, source)| Some(Reverse((source.peek()?.offset, i))))
        .collect();
    Union { sources, next }
}

impl<I: Iterator<Item = Run>> Union<I> {
    /// The run with the least offset.
    fn pull(&mut self) -> Option<Run> {
        let mut top = self.next.peek_mut()?;
        let source = &mut self.sources[top.0.1];
        let run = source.next()?;
        match source.peek() {
            Some(next) => top.0.0 = next.offset,
            None => drop(PeekMut::pop(top)),
        }
        Some(run)
    }
}

impl<I: Iterator<Item = Run>> Iterator for Union<I> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let Run { offset, len } = self.pull()?;
        let mut end = offset + len;
        while self.next.peek().is_some_and(|Reverse((at, _))| *at <= end) {
            end = self.pull().map_or(end, |run| end.max(run.end()));
        }
        Some(Run {
            offset,
            len: end - offset,
        })
    }
}

/// How the ranks' data fill a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// From the first data byte to behind the last.
    pub range: Range<u64>,
    /// There are bytes in the range that no rank has. A collective write must read them first, and
    /// lock the range from before it reads until it has written.
    pub has_holes: bool,
}

/// How the ranks' data fill a window. `None` if there are none in it. Usually it is seen from the
/// numbers of bytes. If they leave it open, the union is walked through: a period of the views if
/// they all have the same, else up to its first hole.
pub fn coverage(portions: &[Portion<'_>], window: &Range<u64>) -> Option<Coverage> {
    let (mut first, mut last, mut bytes) = (u64::MAX, 0, 0u64);
    // Where all ranks have data.
    let mut inner = window.clone();
    let mut add = |start: u64, end: u64, len: u64| {
        (first, last) = (first.min(start), last.max(end));
        inner = inner.start.max(start)..inner.end.min(end);
        bytes = bytes.saturating_add(len);
    };
    let mut present = Vec::with_capacity(portions.len());
    for portion in portions {
        match portion.positions(window) {
            Some(positions) if positions.is_empty() => continue,
            Some(positions) => {
                let len = positions.end - positions.start;
                let span = portion.view.span(positions.start, len);
                add(span.start, span.end, len);
            }
            None => {
                let pieces = portion.pieces(window.clone());
                pieces.for_each(|piece| add(piece.run.offset, piece.run.end(), piece.run.len));
            }
        }
        present.push(*portion);
    }
    if first >= last {
        return None;
    }
    let range = first..last;
    let has_holes = bytes < range.end - range.start
        || match period(&present) {
            Some(period) if inner.end.saturating_sub(inner.start) > 2 * period => {
                // Between, everything is as in the period behind `inner.start`.
                !is_full(&present, range.start..inner.start + period)
                    || !is_full(&present, inner.end - period..range.end)
            }
            _ => !is_full(&present, range.clone()),
        };
    Some(Coverage { range, has_holes })
}

/// Bytes after which all views repeat. `None` if they differ, or offsets do not rise.
fn period(portions: &[Portion<'_>]) -> Option<u64> {
    let mut all = portions.iter().map(|portion| portion.view);
    if !all.clone().all(View::is_rising) {
        return None;
    }
    let mut periods = all.by_ref().filter_map(View::period);
    let first = periods.next().unwrap_or(1);
    periods.all(|period| period == first).then_some(first)
}

/// Returns whether each byte of the range is some rank's.
fn is_full(portions: &[Portion<'_>], range: Range<u64>) -> bool {
    let lists = portions.iter().map(|portion| {
        // Runs of views whose offsets rise come in order, and need no list.
        let (in_order, unordered) = match portion.view.is_rising() {
            true => (Some(portion.pieces(range.clone())), None),
            false => (None, Some(portion.pieces(range.clone()))),
        };
        let mut sorted: Vec<Run> = unordered
            .into_iter()
            .flatten()
            .map(|piece| piece.run)
            .collect();
        sorted.sort_unstable_by_key(|run| run.offset);
        let in_order = in_order.into_iter().flatten().map(|piece| piece.run);
        in_order.chain(sorted)
    });
    let first = union(lists).next();
    first.is_some_and(|first| first.offset == range.start && first.end() == range.end)
}

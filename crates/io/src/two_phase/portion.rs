//! Portions: what one rank has in a collective transfer, and in a window of it as pieces.

use super::RankRange;
use crate::view::{Run, Runs, View};
use std::ops::Range;

/// What one rank reads or writes in a collective transfer.
#[derive(Clone, Copy, Debug)]
pub struct Portion<'a> {
    /// The rank's view.
    pub view: &'a View,
    /// Position of the first data byte.
    pub position: u64,
    /// Data bytes.
    pub len: u64,
}

/// Data bytes that are neighbours in the file and in the order of positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Position of the first byte.
    pub position: u64,
    /// Where they are in the file.
    pub run: Run,
}

impl<'a> Portion<'a> {
    /// What the rank tells the others. The number of runs is an estimate.
    pub fn range(&self) -> RankRange {
        if self.len == 0 || self.view.is_empty() {
            return RankRange::default();
        }
        let span = self.view.span(self.position, self.len);
        RankRange {
            start: span.start,
            end: span.end,
            bytes: self.len,
            runs: self.view.run_count(self.len),
        }
    }

    /// The data in a window of the file, as positions: neighbours in the rank's memory. `None` if
    /// the view's offsets do not rise, so that they need not be neighbours.
    ///
    /// Whoever has the rank's view can then copy them by [`View::gather`] and [`View::scatter`],
    /// and no list of runs is sent.
    pub fn positions(&self, window: &Range<u64>) -> Option<Range<u64>> {
        (self.view.is_rising() && !self.view.is_empty())
            .then(|| self.view.positions_in(self.position, self.len, window))
    }

    /// The pieces of the data in a window of the file, in the order of positions. Their start is
    /// found at once if the view's offsets rise; otherwise all runs are looked at.
    pub fn pieces(&self, window: Range<u64>) -> Pieces<'a> {
        let end = self.position.saturating_add(self.len);
        let all = self.positions(&window).unwrap_or(self.position..end);
        Pieces {
            runs: self.view.runs(all.start, all.end - all.start),
            position: all.start,
            window,
        }
    }
}

/// The pieces of a rank's data in a window.
#[derive(Debug)]
pub struct Pieces<'a> {
    runs: Runs<'a>,
    /// Position of the next run.
    position: u64,
    window: Range<u64>,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        loop {
            let run = self.runs.next()?;
            let position = self.position;
            self.position += run.len;
            let start = run.offset.max(self.window.start);
            let end = run.end().min(self.window.end);
            if start < end {
                return Some(Piece {
                    position: position + (start - run.offset),
                    run: Run {
                        offset: start,
                        len: end - start,
                    },
                });
            }
        }
    }
}

//! Guarded pages: those of a receive buffer, until their bytes have arrived.

use super::buffer_access::{Access, merged, span};
use crate::device::EDGE_MAX_BYTES;
use ferry_pageguard::{Guard, GuardError, Kind, Owner, PAGE_BYTES, whole_pages};
use std::ops::Range;
use std::sync::Arc;

/// Minimum number of bytes that are opened at a time before their message is complete, while no
/// thread waits for them. A choice: each opening costs a system call.
const OPEN_STRIDE_BYTES: usize = 64 * 1024;

/// Guarded pages and the parts of pages beside them.
pub(super) struct GuardedPages {
    guard: Arc<Guard>,
    /// Address of the first page.
    first: usize,
    /// For each page, the number of steps that still use it.
    users: Vec<u32>,
    /// Bytes of the buffer in pages that it does not fill. These pages are not guarded. Their bytes
    /// are in place before the call returns.
    edges: Vec<Range<usize>>,
    /// Number of pages with edge bytes that a step still uses.
    edge_pages_in_use: usize,
    /// Guarded bytes that have been opened.
    opened: usize,
}

/// The pages to guard for the accesses of a collective.
#[derive(Clone)]
pub(super) struct GuardPlan {
    pub span: Range<usize>,
    pub runs: Vec<Range<usize>>,
    pub edges: Vec<Range<usize>>,
    /// Addresses of guarded pages that two or more pieces share, in order.
    shared_pages: Vec<usize>,
}

impl GuardPlan {
    /// The plan for these accesses. `None`: they cover no whole page, or lie too far apart.
    pub fn of(touches: &[Access]) -> Option<GuardPlan> {
        let regions = merged(touches.iter().map(|t| t.bytes.clone()).collect());
        let bytes: usize = regions.iter().map(ExactSizeIterator::len).sum();
        let span = span(regions.iter());
        if regions.is_empty() || span.len() / 4 > bytes + (4 << 20) {
            return None;
        }
        let mut runs = Vec::new();
        let mut edges = Vec::new();
        for region in regions {
            let run = whole_pages(region.clone());
            if run.is_empty() {
                edges.push(region);
                continue;
            }
            let partial = [region.start..run.start, run.end..region.end];
            edges.extend(partial.into_iter().filter(|e| !e.is_empty()));
            runs.push(run);
        }
        let mut pieces: Vec<&Range<usize>> = touches.iter().map(|t| &t.bytes).collect();
        pieces.sort_by_key(|p| p.start);
        let guarded = |page: &usize| runs.iter().any(|r| r.contains(page));
        let shares = |pair: &[&Range<usize>]| {
            let page = pair[1].start / PAGE_BYTES * PAGE_BYTES;
            (page < pair[0].end).then_some(page)
        };
        let mut shared_pages: Vec<usize> = pieces.windows(2).filter_map(shares).collect();
        shared_pages.retain(guarded);
        shared_pages.dedup();
        (!runs.is_empty()).then_some(GuardPlan {
            span,
            runs,
            edges,
            shared_pages,
        })
    }

    /// The lengths of a piece's beginning and end that lie outside guarded pages, and that can
    /// arrive before the rest. [0, 0] if that is the whole piece, or more than a message edge.
    pub fn edge_lengths(&self, piece: &Range<usize>) -> [usize; 2] {
        edge_lengths(&self.edges, piece).unwrap_or_default()
    }

    /// As [`GuardPlan::edge_lengths`], plus the bytes in guarded pages that two pieces share. Such
    /// a page can be opened before either message is complete. Only for pieces that no other step
    /// reads.
    pub fn edge_and_shared_lengths(&self, piece: &Range<usize>) -> [usize; 2] {
        let [mut first, mut last] = self.edge_lengths(piece);
        let shared = |at: usize| {
            let page = at / PAGE_BYTES * PAGE_BYTES;
            self.shared_pages
                .binary_search(&page)
                .is_ok()
                .then_some(page)
        };
        if first == 0 {
            first = shared(piece.start).map_or(0, |page| page + PAGE_BYTES - piece.start);
        }
        if last == 0 {
            last = shared(piece.end - 1).map_or(0, |page| piece.end - page.max(piece.start));
        }
        if first + last < piece.len() {
            [first, last]
        } else {
            self.edge_lengths(piece)
        }
    }

    /// Returns whether the whole of a piece is needed before the call returns.
    pub fn needs(&self, piece: &Range<usize>) -> bool {
        edge_lengths(&self.edges, piece).is_none()
    }
}

fn edge_lengths(edges: &[Range<usize>], piece: &Range<usize>) -> Option<[usize; 2]> {
    let outside = |at: usize| edges.iter().find(|e| e.contains(&at));
    let first = outside(piece.start).map_or(0, |e| e.end.min(piece.end) - piece.start);
    let last =
        outside(piece.end.checked_sub(1)?).map_or(0, |e| piece.end - e.start.max(piece.start));
    (first.max(last) <= EDGE_MAX_BYTES && first + last < piece.len()).then_some([first, last])
}

impl GuardedPages {
    /// Guards the bytes that the accesses write.
    ///
    /// # Errors
    /// The memory cannot be guarded. Nothing has changed.
    pub fn begin(
        kind: Kind,
        plan: GuardPlan,
        touches: &[Access],
        owner: Arc<dyn Owner>,
    ) -> Result<GuardedPages, GuardError> {
        let first = plan.span.start / PAGE_BYTES * PAGE_BYTES;
        let mut users = vec![0u32; (plan.span.end - first).div_ceil(PAGE_BYTES)];
        // Bytes outside guarded pages are copied out, so later reads of them do not count.
        let guarded = |page: usize| {
            plan.runs
                .iter()
                .any(|r| r.contains(&(first + page * PAGE_BYTES)))
        };
        for t in touches {
            for page in pages(first, &t.bytes) {
                users[page] += u32::from(t.writes || guarded(page));
            }
        }
        let mut edge_pages: Vec<usize> = plan.edges.iter().flat_map(|e| pages(first, e)).collect();
        edge_pages.sort_unstable();
        edge_pages.dedup();
        let guard = Guard::begin(kind, &plan.span, plan.runs, owner)?;
        Ok(GuardedPages {
            guard,
            first,
            users,
            edges: plan.edges,
            edge_pages_in_use: edge_pages.len(),
            opened: 0,
        })
    }

    /// The distance from an address of the buffer to where its data arrive, in bytes (wrapping).
    pub fn delta(&self) -> usize {
        self.guard.delta()
    }

    /// Returns whether all bytes outside guarded pages are in their places.
    pub fn has_edges(&self) -> bool {
        self.edge_pages_in_use == 0
    }

    /// Number of guarded bytes that have been opened.
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// As [`GuardPlan::edge_lengths`].
    pub fn edge_lengths(&self, piece: &Range<usize>) -> [usize; 2] {
        edge_lengths(&self.edges, piece).unwrap_or_default()
    }

    /// Counts one step less that reads these bytes.
    pub fn read(&mut self, bytes: &Range<usize>) {
        let runs: Vec<Range<usize>> = self.guard.runs().to_vec();
        for run in runs {
            // Pages that the bytes touch, without those beside the run.
            let from = (bytes.start.max(run.start)) / PAGE_BYTES * PAGE_BYTES;
            let to = bytes.end.min(run.end);
            if from < to {
                self.done(&(from..to));
            }
        }
    }

    /// Counts one step less that writes these bytes. Opens the pages that no step uses any more.
    pub fn done(&mut self, bytes: &Range<usize>) {
        let mut ready: Option<Range<usize>> = None;
        for page in pages(self.first, bytes) {
            let users = &mut self.users[page];
            if *users == 0 {
                continue;
            }
            *users -= 1;
            if *users > 0 {
                continue;
            }
            let at = self.first + page * PAGE_BYTES;
            if self.is_edge(at) {
                self.copy_edge_page(at);
                continue;
            }
            self.opened += PAGE_BYTES;
            match &mut ready {
                Some(run) if run.end == at => run.end += PAGE_BYTES,
                _ => {
                    if let Some(run) = ready.replace(at..at + PAGE_BYTES) {
                        self.guard.open(run);
                    }
                }
            }
        }
        if let Some(run) = ready {
            self.guard.open(run);
        }
    }

    /// Opens the first pages of a piece that only one step uses. `received` of its bytes have
    /// arrived, and `opened` of them were opened before. Returns how many bytes are open then.
    /// `is_waited_for`: a thread of the program waits for them.
    pub fn open_received(
        &mut self,
        piece: &Range<usize>,
        received: usize,
        opened: usize,
        is_waited_for: bool,
    ) -> usize {
        let end = (piece.start + received.min(piece.len())) / PAGE_BYTES * PAGE_BYTES;
        let start = (piece.start + opened).next_multiple_of(PAGE_BYTES);
        if end < start + PAGE_BYTES || (!is_waited_for && end - start < OPEN_STRIDE_BYTES) {
            return opened;
        }
        // Only pages that no other step uses.
        let alone = (start..end)
            .step_by(PAGE_BYTES)
            .all(|at| self.users[(at - self.first) / PAGE_BYTES] == 1 && !self.is_edge(at));
        if !alone {
            return opened;
        }
        self.done(&(start..end));
        end - piece.start
    }

    /// Skips the bytes outside guarded pages, which are already in place.
    pub fn skip_edges(&mut self) {
        for page in 0..self.users.len() {
            if self.is_edge(self.first + page * PAGE_BYTES) {
                self.users[page] = 0;
            }
        }
        self.edge_pages_in_use = 0;
    }

    /// Returns whether the page of this address is open.
    pub fn is_open(&self, address: usize) -> bool {
        address < self.first
            || self
                .users
                .get((address - self.first) / PAGE_BYTES)
                .is_none_or(|&users| users == 0)
    }

    /// Opens a piece, whatever other steps use it.
    pub fn open(&mut self, bytes: &Range<usize>) {
        for page in pages(self.first, bytes) {
            self.users[page] = self.users[page].min(1);
        }
        self.done(bytes);
    }

    /// Puts all remaining bytes in place, and ends the guard.
    pub fn end(&mut self) {
        for page in 0..self.users.len() {
            let at = self.first + page * PAGE_BYTES;
            if std::mem::take(&mut self.users[page]) > 0 && self.is_edge(at) {
                self.copy_edge_page(at);
            }
        }
        self.guard.end();
    }

    fn is_edge(&self, page: usize) -> bool {
        !self.guard.runs().iter().any(|r| r.contains(&page))
    }

    /// Copies the edge bytes of a page that is not guarded from the shadow to the buffer.
    fn copy_edge_page(&mut self, page: usize) {
        for edge in &self.edges {
            let (from, to) = (edge.start.max(page), edge.end.min(page + PAGE_BYTES));
            if from < to {
                let shadow = from.wrapping_add(self.guard.delta()) as *const u8;
                // SAFETY: the bytes belong to the program's receive buffer, which is this call's
                // until it has ended. They are not guarded. The shadow is as long.
                unsafe { shadow.copy_to_nonoverlapping(from as *mut u8, to - from) };
            }
        }
        self.edge_pages_in_use = self.edge_pages_in_use.saturating_sub(1);
    }
}

/// The numbers of the pages that some bytes touch.
fn pages(first: usize, bytes: &Range<usize>) -> Range<usize> {
    if bytes.is_empty() {
        return 0..0;
    }
    (bytes.start - first) / PAGE_BYTES..(bytes.end - 1 - first) / PAGE_BYTES + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(cuts: &[usize]) -> Option<(GuardPlan, Vec<Range<usize>>)> {
        let pieces: Vec<Range<usize>> = cuts.windows(2).map(|c| c[0]..c[1]).collect();
        let touches: Vec<Access> = pieces
            .iter()
            .enumerate()
            .map(|(step, bytes)| Access {
                step,
                bytes: bytes.clone(),
                writes: true,
            })
            .collect();
        GuardPlan::of(&touches).map(|plan| (plan, pieces))
    }

    #[test]
    fn a_page_of_two_pieces_can_arrive_before_either() {
        let (plan, pieces) = plan(&[
            16 * PAGE_BYTES + 16,
            32 * PAGE_BYTES + 16,
            48 * PAGE_BYTES + 16,
        ])
        .unwrap();
        assert_eq!(plan.edge_lengths(&pieces[0]), [PAGE_BYTES - 16, 0]);
        assert_eq!(
            plan.edge_and_shared_lengths(&pieces[0]),
            [PAGE_BYTES - 16, 16]
        );
        assert_eq!(
            plan.edge_and_shared_lengths(&pieces[1]),
            [PAGE_BYTES - 16, 16]
        );
        let (aligned, pieces) =
            super::tests::plan(&[PAGE_BYTES, 9 * PAGE_BYTES, 17 * PAGE_BYTES]).unwrap();
        assert_eq!(aligned.edge_and_shared_lengths(&pieces[0]), [0, 0]);
    }

    proptest! {
        /// The early parts of the pieces fill whole pages or lie beside guarded ones. They are
        /// never the whole of a piece.
        #[test]
        fn edges_stay_within_their_pages(lengths in prop::collection::vec(1usize..40_000, 1..9),
            start in 0usize..PAGE_BYTES) {
            let mut cuts = vec![64 * PAGE_BYTES + start];
            for len in lengths {
                cuts.push(cuts[cuts.len() - 1] + len);
            }
            if let Some((plan, pieces)) = plan(&cuts) {
                for piece in pieces.iter().filter(|p| !plan.needs(p)) {
                    let [first, last] = plan.edge_and_shared_lengths(piece);
                    prop_assert!(first.max(last) <= EDGE_MAX_BYTES && first + last < piece.len());
                    prop_assert!(first == 0 || (piece.start + first).is_multiple_of(PAGE_BYTES));
                    prop_assert!(last == 0 || (piece.end - last).is_multiple_of(PAGE_BYTES));
                    let [edge_first, edge_last] = plan.edge_lengths(piece);
                    prop_assert!((edge_first == 0 || first == edge_first) && (edge_last == 0 ||
                        last == edge_last));
                }
            }
        }
    }
}

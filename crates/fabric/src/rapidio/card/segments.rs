//! The segments of a node's window that NREAD and NWRITE of other nodes reach.

use crate::rapidio::command::{Physical, WINDOW_AT};

/// Segments that are open. They may overlap.
#[derive(Default)]
pub struct OpenSegments {
    /// Offset in the window, and bytes.
    open: Vec<(u64, u64)>,
}

impl OpenSegments {
    /// Opens a segment of a window of `window` bytes. Returns false if it is not within.
    pub fn open(&mut self, offset: u64, bytes: u64, window: u64) -> bool {
        let within = offset.checked_add(bytes).is_some_and(|end| end <= window);
        if within {
            self.open.push((offset, bytes));
        }
        within
    }

    /// Closes a segment. Returns false if there is no such one.
    pub fn close(&mut self, offset: u64, bytes: u64) -> bool {
        let known = self.open.iter().position(|s| *s == (offset, bytes));
        known.map(|at| self.open.swap_remove(at)).is_some()
    }

    /// Offset in the window of `bytes` bytes at this address. `None`: they are in no open segment.
    pub fn find(&self, at: Physical, bytes: usize) -> Option<usize> {
        let offset = at.0.checked_sub(WINDOW_AT.0)?;
        let end = offset.checked_add(bytes as u64)?;
        let holds = |s: &(u64, u64)| s.0 <= offset && end <= s.0 + s.1;
        self.open.iter().any(holds).then_some(offset as usize)
    }
}

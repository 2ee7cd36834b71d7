//! Copies of send buffers. The program may change its own as soon as the call has returned.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

type Unit = MaybeUninit<u128>;

/// Most bytes of memory kept for the next copies. An estimate.
const SPARE_MAX_BYTES: usize = 256 << 20;

static SPARE: Mutex<Vec<Vec<Unit>>> = Mutex::new(Vec::new());

/// Memory for a copy of what lies in a range of addresses.
pub(super) struct SendCopy {
    room: Vec<Unit>,
    first: usize,
}

impl SendCopy {
    /// For these addresses.
    pub fn of(span: &Range<usize>) -> SendCopy {
        let units = span.len().div_ceil(size_of::<Unit>()) + 4;
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let fit = spare
            .iter()
            .position(|s| s.capacity() >= units && s.capacity() / 4 < units);
        let room = match fit {
            Some(at) => spare.swap_remove(at),
            None => Vec::with_capacity(units),
        };
        SendCopy {
            room,
            first: span.start,
        }
    }

    /// What to add (wrapping) to an address of the range to get that of its copy.
    pub fn delta(&self) -> usize {
        // The copy begins at the same place of a cache line as the buffer.
        let base = self.room.as_ptr() as usize;
        let shift = self.first.wrapping_sub(base) % 64;
        (base + shift).wrapping_sub(self.first)
    }

    /// Copies these bytes.
    ///
    /// # Safety
    /// They must lie in the range, and be readable.
    pub unsafe fn copy(&mut self, bytes: &Range<usize>) {
        let to = bytes.start.wrapping_add(self.delta()) as *mut u8;
        // SAFETY: the caller's promise; the room has a cache line more than the range.
        unsafe { (bytes.start as *const u8).copy_to_nonoverlapping(to, bytes.len()) };
    }
}

impl Drop for SendCopy {
    fn drop(&mut self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = |v: &Vec<Unit>| v.capacity() * size_of::<Unit>();
        let kept: usize = spare.iter().map(bytes).sum();
        if self.room.capacity() > 0 && kept + bytes(&self.room) <= SPARE_MAX_BYTES {
            spare.push(std::mem::take(&mut self.room));
        }
    }
}

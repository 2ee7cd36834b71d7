//! Memory for a schedule's own use.

use crate::Datatype;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Room for a schedule's own use: a little within itself, more on the heap.
pub(crate) struct Room {
    small: [MaybeUninit<u128>; SMALL / 16],
    pub(super) large: Vec<MaybeUninit<u128>>,
    /// Bytes before element 0 (types may begin below their address).
    pub(super) before: usize,
}

/// Bytes of room that need no allocation.
pub(super) const SMALL: usize = 64;
/// Bytes of room with which a collective that has ended may be kept.
const KEPT: usize = 16 * 1024;

impl Room {
    /// Room for `units` bytes, or elements of `element`.
    pub(crate) fn new(units: i64, element: Option<&Arc<Datatype>>) -> Room {
        let (before, bytes) = Room::extent(units, element);
        let large = if bytes > SMALL {
            Vec::with_capacity(bytes.div_ceil(16))
        } else {
            Vec::new()
        };
        Room {
            small: [MaybeUninit::uninit(); SMALL / 16],
            large,
            before,
        }
    }

    /// Does so much room take little memory?
    pub(crate) fn is_small(units: i64, element: Option<&Arc<Datatype>>) -> bool {
        Room::extent(units, element).1 <= KEPT
    }

    /// Bytes of it before element 0, and in all.
    fn extent(units: i64, element: Option<&Arc<Datatype>>) -> (usize, usize) {
        if units == 0 {
            return (0, 0);
        }
        let (low, high) = match element {
            None => (0, units),
            Some(t) => {
                let last = (units - 1) * t.extent();
                let low = t.true_lb() + last.min(0);
                (low.min(0), t.true_lb() + t.true_extent() + last.max(0))
            }
        };
        // Element 0 stays aligned for any type.
        let before = (low.unsigned_abs() as usize).next_multiple_of(16);
        (before, before + high.max(0) as usize)
    }

    /// Address of element 0. Stays the same while this value stays where it is.
    pub(super) fn address(&mut self) -> *mut u8 {
        let base: *mut u8 = if self.large.capacity() > 0 {
            self.large.as_mut_ptr().cast()
        } else {
            self.small.as_mut_ptr().cast()
        };
        base.wrapping_add(self.before)
    }
}

//! A schedule's temporary buffer.

use crate::Datatype;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The temporary buffer: inline if it is small, otherwise on the heap.
pub(crate) struct TmpBuffer {
    small: [MaybeUninit<u128>; INLINE_BYTES / 16],
    pub(super) large: Vec<MaybeUninit<u128>>,
    /// Bytes before element 0 (types may have a negative lower bound).
    pub(super) before: usize,
}

/// Largest buffer without an allocation: eight doubles.
pub(super) const INLINE_BYTES: usize = 64;
/// Largest buffer that the request cache keeps with a collective that has ended. Eight of them are
/// 128 KiB for a communicator.
const CACHED_MAX_BYTES: usize = 16 * 1024;

impl TmpBuffer {
    /// A buffer of `units` bytes, or elements of `element`.
    pub(crate) fn new(units: i64, element: Option<&Arc<Datatype>>) -> TmpBuffer {
        let (before, bytes) = TmpBuffer::extent(units, element);
        let large = if bytes > INLINE_BYTES {
            Vec::with_capacity(bytes.div_ceil(16))
        } else {
            Vec::new()
        };
        TmpBuffer {
            small: [MaybeUninit::uninit(); INLINE_BYTES / 16],
            large,
            before,
        }
    }

    /// Returns whether a buffer of that size may be cached.
    pub(crate) fn is_cacheable(units: i64, element: Option<&Arc<Datatype>>) -> bool {
        TmpBuffer::extent(units, element).1 <= CACHED_MAX_BYTES
    }

    /// Bytes before element 0, and in all.
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

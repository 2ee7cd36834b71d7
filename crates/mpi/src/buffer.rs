//! A user's buffer: an address, a count and a datatype (MPI 5.0 §3.2.2), in the device's form.

use crate::Datatype;
use crate::device::{Layout, Sink, Source};
use std::sync::Arc;

/// A non-contiguous user buffer.
struct Scattered {
    address: *mut u8,
    count: i64,
    datatype: Arc<Datatype>,
}

// SAFETY: the address is the user's, lent to MPI until the operation completes. Only the device
// uses it, under its lock.
unsafe impl Send for Scattered {}

impl Layout for Scattered {
    unsafe fn pack(&self, offset: u64, out: &mut [u8]) {
        // SAFETY: the caller's promise.
        unsafe { self.datatype.pack(self.address, self.count, offset, out) };
    }
    unsafe fn unpack(&self, offset: u64, data: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe { self.datatype.unpack(self.address, self.count, offset, data) };
    }
    fn runs(&self, offset: u64, runs: &mut Vec<(*mut u8, usize)>) -> u64 {
        self.datatype.runs(self.address, self.count, offset, runs)
    }
}

/// Bytes in a message of `count` elements.
#[inline]
pub fn message_len(count: i64, datatype: &Datatype) -> usize {
    (count.max(0) as usize).saturating_mul(datatype.size().max(0) as usize)
}

/// The start of `count` elements at `address` if they are contiguous. That is true of dense types.
/// It is also true of some others, such as a face of an array or an element of a resized type.
#[inline]
pub(crate) fn run(address: *mut u8, count: i64, datatype: &Datatype) -> Option<*mut u8> {
    if datatype.is_dense() {
        return Some(address);
    }
    let (at, _) = datatype.run(count)?;
    Some(address.wrapping_offset(at as isize))
}

/// Send source for `count` elements at `address`.
#[inline]
pub fn source(address: *const u8, count: i64, datatype: &Arc<Datatype>) -> Source {
    let len = message_len(count, datatype);
    if len == 0 {
        return Source::Bytes { ptr: address, len };
    }
    if let Some(ptr) = run(address.cast_mut(), count, datatype) {
        return Source::Bytes { ptr, len };
    }
    Source::Layout {
        view: Box::new(Scattered {
            address: address.cast_mut(),
            count,
            datatype: datatype.clone(),
        }),
        len,
    }
}

/// Receive sink for `count` elements at `address`.
#[inline]
pub fn sink(address: *mut u8, count: i64, datatype: &Arc<Datatype>) -> Sink {
    let cap = message_len(count, datatype);
    if cap == 0 {
        return Sink::Bytes { ptr: address, cap };
    }
    if let Some(ptr) = run(address, count, datatype) {
        return Sink::Bytes { ptr, cap };
    }
    Sink::Layout {
        view: Box::new(Scattered {
            address,
            count,
            datatype: datatype.clone(),
        }),
        cap,
    }
}

/// A range of a non-contiguous buffer's packed bytes.
struct PackedRange {
    whole: Scattered,
    offset: u64,
    len: u64,
}

impl Layout for PackedRange {
    unsafe fn pack(&self, offset: u64, out: &mut [u8]) {
        // SAFETY: the caller's promise.
        unsafe { self.whole.pack(self.offset + offset, out) };
    }
    unsafe fn unpack(&self, offset: u64, data: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe { self.whole.unpack(self.offset + offset, data) };
    }
    fn runs(&self, offset: u64, runs: &mut Vec<(*mut u8, usize)>) -> u64 {
        self.whole
            .runs(self.offset + offset, runs)
            .min(self.len - offset.min(self.len))
    }
}

/// Receive sink for the packed bytes `offset..offset + len` of `count` elements at `address`.
pub fn stretch(
    address: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    offset: u64,
    len: u64,
) -> Sink {
    let one = if len == 0 {
        Some(address)
    } else {
        run(address, count, datatype)
    };
    if let Some(address) = one {
        return Sink::Bytes {
            ptr: address.wrapping_add(offset as usize),
            cap: len as usize,
        };
    }
    let whole = Scattered {
        address,
        count,
        datatype: datatype.clone(),
    };
    Sink::Layout {
        view: Box::new(PackedRange { whole, offset, len }),
        cap: len as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_datatype::{Basic, Order};

    /// The offset at which a send of `count` elements starts, if they are contiguous.
    fn begins(count: i64, datatype: &Arc<Datatype>) -> Option<usize> {
        let memory = [0u8; 4096];
        match source(memory.as_ptr(), count, datatype) {
            Source::Bytes { ptr, len } => {
                assert_eq!(len, message_len(count, datatype));
                Some(ptr.addr() - memory.as_ptr().addr())
            }
            _ => None,
        }
    }

    #[test]
    fn what_is_one_run_is_sent_as_one() {
        let double = Datatype::basic(Basic::Double);
        assert_eq!(begins(3, double), Some(0));
        // The planes of a cube. One plane may be contiguous; several in a row are not.
        let plane = |direction: usize| {
            let (mut sizes, mut starts) = ([4, 4, 4], [0, 0, 0]);
            sizes[direction] = 1;
            starts[direction] = 2;
            Datatype::subarray(&[4, 4, 4], &sizes, &starts, Order::C, double).unwrap()
        };
        assert_eq!(begins(1, &plane(0)), Some(2 * 16 * 8));
        assert_eq!(begins(2, &plane(0)), None);
        assert_eq!(begins(1, &plane(1)), None);
        assert_eq!(begins(0, &plane(1)), Some(0));
    }
}

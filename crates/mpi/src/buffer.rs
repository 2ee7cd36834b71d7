//! A user's buffer: an address, a count and a datatype (MPI 5.0 §3.2.2), as the device wants it.

use crate::Datatype;
use crate::device::{Layout, Sink, Source};
use std::sync::Arc;

/// A scattered user buffer.
struct Scattered {
    address: *mut u8,
    count: i64,
    datatype: Arc<Datatype>,
}

// SAFETY: the address is the user's, lent to MPI until the operation completes; only the device uses it, under its lock.
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

/// `count` elements at `address`, to be sent.
#[inline]
pub fn source(address: *const u8, count: i64, datatype: &Arc<Datatype>) -> Source {
    let len = message_len(count, datatype);
    if len == 0 || datatype.is_dense() {
        return Source::Bytes { ptr: address, len };
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

/// Room for `count` elements at `address`.
#[inline]
pub fn sink(address: *mut u8, count: i64, datatype: &Arc<Datatype>) -> Sink {
    let cap = message_len(count, datatype);
    if cap == 0 || datatype.is_dense() {
        return Sink::Bytes { ptr: address, cap };
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

/// A stretch of a scattered buffer's packed bytes.
struct Stretch {
    whole: Scattered,
    offset: u64,
    len: u64,
}

impl Layout for Stretch {
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

/// Room for the packed bytes `offset..offset + len` of `count` elements at `address`.
pub fn stretch(
    address: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    offset: u64,
    len: u64,
) -> Sink {
    if len == 0 || datatype.is_dense() {
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
        view: Box::new(Stretch { whole, offset, len }),
        cap: len as usize,
    }
}

//! The memory of a schedule's pieces: where they lie, and copies between them.

use super::tmp_buffer::TmpBuffer;
use super::view::View;
use crate::device::{Layout, Sink, Source};
use crate::{Datatype, buffer};
use ferry_schedule::{Piece, Region};
use std::sync::Arc;

/// The memory of a piece.
pub(crate) enum Memory<'a> {
    /// A run of bytes.
    Run { address: *mut u8, len: usize },
    /// `len` packed bytes of elements that are not dense, from packed offset `skip` on.
    Scattered {
        address: *mut u8,
        count: i64,
        datatype: &'a Arc<Datatype>,
        skip: u64,
        len: usize,
    },
}

/// The buffers of a call, which hold the pieces of its schedule.
pub(crate) struct Buffers<'a> {
    pub(crate) send: View<'a>,
    pub(crate) recv: View<'a>,
    /// The datatype of the temporary buffer's elements. `None`: bytes.
    pub(crate) element: Option<&'a Arc<Datatype>>,
}

/// The address `by` elements after `address`.
#[inline]
fn offset(address: *mut u8, by: i64, datatype: &Datatype) -> *mut u8 {
    address.wrapping_offset((by * datatype.extent()) as isize)
}

#[inline]
fn elements<'a>(address: *mut u8, at: i64, count: i64, datatype: &'a Arc<Datatype>) -> Memory<'a> {
    let len = buffer::message_len(count, datatype);
    let address = offset(address, at, datatype);
    match buffer::run(address, count, datatype) {
        Some(address) => Memory::Run { address, len },
        None => Memory::Scattered {
            address,
            count,
            datatype,
            skip: 0,
            len,
        },
    }
}

impl<'a> Buffers<'a> {
    /// Finds the memory of a piece.
    #[inline]
    pub(crate) fn locate(&self, p: Piece, tmp: &mut TmpBuffer) -> Memory<'a> {
        let none = Memory::Run {
            address: std::ptr::null_mut(),
            len: 0,
        };
        let view = match p.region {
            _ if p.count == 0 => return none,
            Region::Send | Region::SendBlock => self.send,
            Region::Recv | Region::RecvBlock | Region::Packed => self.recv,
            Region::Tmp => {
                return match self.element {
                    None => Memory::Run {
                        address: tmp.address().wrapping_offset(p.at as isize),
                        len: p.count as usize,
                    },
                    Some(t) => elements(tmp.address(), p.at, p.count, t),
                };
            }
        };
        match view {
            View::Nothing => none,
            View::Blocks(blocks) => {
                let b = &blocks[p.at as usize];
                elements(b.address, 0, b.count, &b.datatype)
            }
            View::Uniform {
                address,
                count,
                datatype,
            } => {
                if p.region != Region::Packed {
                    return elements(address, p.at, p.count, datatype);
                }
                match elements(address, 0, count, datatype) {
                    Memory::Run { address, .. } => Memory::Run {
                        address: address.wrapping_offset(p.at as isize),
                        len: p.count as usize,
                    },
                    Memory::Scattered {
                        address,
                        count,
                        datatype,
                        ..
                    } => Memory::Scattered {
                        address,
                        count,
                        datatype,
                        skip: p.at as u64,
                        len: p.count as usize,
                    },
                }
            }
        }
    }

    /// The address of a reduction's operand, and its number of elements.
    #[inline]
    pub(crate) fn operand(&self, p: Piece, tmp: &mut TmpBuffer) -> (*mut u8, i64) {
        let address = match (p.region, self.element) {
            (Region::Tmp, Some(t)) => offset(tmp.address(), p.at, t),
            _ => match if p.region == Region::Send {
                self.send
            } else {
                self.recv
            } {
                View::Uniform {
                    address, datatype, ..
                } => offset(address, p.at, datatype),
                _ => std::ptr::null_mut(),
            },
        };
        (address, p.count)
    }
}

/// Part of a buffer that is not dense.
struct ScatteredPart {
    address: *mut u8,
    count: i64,
    datatype: Arc<Datatype>,
    skip: u64,
}

// SAFETY: the address is in the program's or the temporary buffer. Both live until the operation
// completes.
unsafe impl Send for ScatteredPart {}

impl Layout for ScatteredPart {
    unsafe fn pack(&self, offset: u64, out: &mut [u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            self.datatype
                .pack(self.address, self.count, self.skip + offset, out)
        };
    }
    unsafe fn unpack(&self, offset: u64, data: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            self.datatype
                .unpack(self.address, self.count, self.skip + offset, data)
        };
    }
    fn runs(&self, offset: u64, runs: &mut Vec<(*mut u8, usize)>) -> u64 {
        self.datatype
            .runs(self.address, self.count, self.skip + offset, runs)
    }
}

/// Bytes copied at a time between two scattered buffers. They fit the first-level data cache.
const BOUNCE_BYTES: usize = 32 * 1024;

impl Memory<'_> {
    /// Number of packed bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Memory::Run { len, .. } | Memory::Scattered { len, .. } => *len,
        }
    }

    #[inline]
    pub(crate) fn source(self) -> Source {
        match self {
            Memory::Run { address, len } => Source::Bytes { ptr: address, len },
            Memory::Scattered {
                address,
                count,
                datatype,
                skip,
                len,
            } => Source::Layout {
                view: Box::new(ScatteredPart {
                    address,
                    count,
                    datatype: datatype.clone(),
                    skip,
                }),
                len,
            },
        }
    }

    #[inline]
    pub(crate) fn sink(self) -> Sink {
        match self {
            Memory::Run { address, len } => Sink::Bytes {
                ptr: address,
                cap: len,
            },
            Memory::Scattered {
                address,
                count,
                datatype,
                skip,
                len,
            } => Sink::Layout {
                view: Box::new(ScatteredPart {
                    address,
                    count,
                    datatype: datatype.clone(),
                    skip,
                }),
                cap: len,
            },
        }
    }

    /// Packs the bytes from `offset` on into `out`.
    ///
    /// # Safety
    /// The memory must be readable, and hold `out.len()` packed bytes from `offset` on.
    unsafe fn read(&self, offset: usize, out: &mut [u8]) {
        match *self {
            // SAFETY: the caller's promise.
            Memory::Run { address, .. } => unsafe {
                std::ptr::copy(address.add(offset), out.as_mut_ptr(), out.len());
            },
            Memory::Scattered {
                address,
                count,
                datatype,
                skip,
                ..
            } => {
                // SAFETY: the caller's promise.
                unsafe { datatype.pack(address, count, skip + offset as u64, out) };
            }
        }
    }

    /// Continues a copy to `into` after `done` bytes. The copy has as many bytes as the shorter of
    /// the two. Copies up to `most` bytes between runs that do not overlap, otherwise all. Returns
    /// the number of bytes copied so far.
    ///
    /// # Safety
    /// This memory must be readable, and `into` writable.
    pub(crate) unsafe fn copy_part(&self, into: &Memory<'_>, done: usize, most: usize) -> usize {
        let len = self.len().min(into.len());
        if let (Memory::Run { address: from, .. }, Memory::Run { address: to, .. }) = (self, into)
            && len > 0
            && (*from as usize).abs_diff(*to as usize) >= len
        {
            let part = most.min(len - done);
            // SAFETY: the caller's promise. Both have `len` bytes, which do not overlap. The part
            // ends within them.
            unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), part) };
            return done + part;
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_to(into) };
        len
    }

    /// Copies as many bytes to `into` as the shorter of the two has. Returns whether both have the
    /// same length.
    ///
    /// # Safety
    /// This memory must be readable, and `into` writable.
    pub(crate) unsafe fn copy_to(&self, into: &Memory<'_>) -> bool {
        let len = self.len().min(into.len());
        match (self, into) {
            (Memory::Run { address: from, .. }, Memory::Run { address: to, .. }) => {
                // The runs overlap if the program's buffers do.
                // SAFETY: the caller's promise.
                unsafe { std::ptr::copy(*from, *to, len) };
            }
            (
                Memory::Run { address, .. },
                Memory::Scattered {
                    address: to,
                    count,
                    datatype,
                    skip,
                    ..
                },
            ) => {
                if len > 0 {
                    // SAFETY: the caller's promise.
                    unsafe {
                        datatype.unpack(
                            *to,
                            *count,
                            *skip,
                            std::slice::from_raw_parts(*address, len),
                        )
                    };
                }
            }
            (Memory::Scattered { .. }, Memory::Run { address, .. }) => {
                if len > 0 {
                    // SAFETY: the caller's promise. The memory is only written, and only through
                    // this slice.
                    unsafe { self.read(0, std::slice::from_raw_parts_mut(*address, len)) };
                }
            }
            (
                Memory::Scattered { .. },
                Memory::Scattered {
                    address,
                    count,
                    datatype,
                    skip,
                    ..
                },
            ) => {
                let mut bounce = vec![0u8; len.min(BOUNCE_BYTES)];
                let mut done = 0;
                while done < len {
                    let piece = &mut bounce[..(len - done).min(BOUNCE_BYTES)];
                    // SAFETY: the caller's promise.
                    unsafe {
                        self.read(done, piece);
                        datatype.unpack(*address, *count, skip + done as u64, piece);
                    }
                    done += piece.len();
                }
            }
        }
        self.len() == into.len()
    }
}

#[cfg(test)]
mod tests;

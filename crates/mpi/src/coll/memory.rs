//! From a schedule's symbolic pieces to memory.

use crate::device::{Layout, Sink, Source};
use crate::{Datatype, buffer};
use ferry_schedule::{Piece, Region};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A buffer of a collective call.
#[derive(Clone, Copy)]
pub enum View<'a> {
    /// There is none here, or it is not significant.
    Nothing,
    /// Elements of one type, anywhere around `address`.
    Uniform {
        /// Address of element 0.
        address: *mut u8,
        /// Elements of the whole buffer; significant only where it is one message (broadcast).
        count: i64,
        /// Their type.
        datatype: &'a Arc<Datatype>,
    },
    /// A w-form's blocks.
    Blocks(&'a [Block]),
}

/// One block of a w-form.
#[derive(Clone)]
pub struct Block {
    /// Address of its element 0.
    pub address: *mut u8,
    /// Elements.
    pub count: i64,
    /// Their type.
    pub datatype: Arc<Datatype>,
}

// SAFETY: the addresses are the user's, lent to MPI until the operation completes; touched only by
// the operation.
unsafe impl Send for Block {}
// SAFETY: shared references do not reach through the address; only the operation does.
unsafe impl Sync for Block {}

/// A [`View`] that outlives the call which it came with.
#[derive(Clone)]
pub(super) enum LastingView {
    Nothing,
    Uniform {
        address: *mut u8,
        count: i64,
        datatype: Arc<Datatype>,
    },
    Blocks(Arc<[Block]>),
}

// SAFETY: as for `Block`.
unsafe impl Send for LastingView {}
// SAFETY: as for `Block`.
unsafe impl Sync for LastingView {}

impl View<'_> {
    pub(super) fn keep(&self) -> LastingView {
        match *self {
            View::Nothing => LastingView::Nothing,
            View::Uniform {
                address,
                count,
                datatype,
            } => LastingView::Uniform {
                address,
                count,
                datatype: datatype.clone(),
            },
            View::Blocks(blocks) => LastingView::Blocks(blocks.into()),
        }
    }
}

impl LastingView {
    /// The buffer is that of `view`, which is alike but for its address.
    #[inline]
    pub(super) fn renew(&mut self, view: &View<'_>) {
        if let (
            LastingView::Uniform { address, count, .. },
            View::Uniform {
                address: now,
                count: new,
                ..
            },
        ) = (self, view)
        {
            (*address, *count) = (*now, *new);
        }
    }

    /// The buffer is elsewhere: so many bytes (wrapping) from where it was.
    pub(super) fn shift(&mut self, by: usize) {
        match self {
            LastingView::Nothing => {}
            LastingView::Uniform { address, .. } => *address = address.wrapping_add(by),
            LastingView::Blocks(blocks) => {
                let moved = |b: &Block| Block {
                    address: b.address.wrapping_add(by),
                    ..b.clone()
                };
                *blocks = blocks.iter().map(moved).collect();
            }
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        match self {
            LastingView::Nothing => View::Nothing,
            LastingView::Uniform {
                address,
                count,
                datatype,
            } => View::Uniform {
                address: *address,
                count: *count,
                datatype,
            },
            LastingView::Blocks(blocks) => View::Blocks(blocks),
        }
    }
}

/// Room for a schedule's own use: a little within itself, more on the heap.
pub(super) struct Room {
    small: [MaybeUninit<u128>; SMALL / 16],
    large: Vec<MaybeUninit<u128>>,
    /// Bytes before element 0 (types may begin below their address).
    before: usize,
}

/// Bytes of room that need no allocation.
const SMALL: usize = 64;
/// Bytes of room with which a collective that has ended may be kept.
const KEPT: usize = 16 * 1024;

impl Room {
    /// Room for `units` bytes, or elements of `element`.
    pub(super) fn new(units: i64, element: Option<&Arc<Datatype>>) -> Room {
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
    pub(super) fn is_small(units: i64, element: Option<&Arc<Datatype>>) -> bool {
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
    fn address(&mut self) -> *mut u8 {
        let base: *mut u8 = if self.large.capacity() > 0 {
            self.large.as_mut_ptr().cast()
        } else {
            self.small.as_mut_ptr().cast()
        };
        base.wrapping_add(self.before)
    }
}

/// A piece, found.
pub(super) enum Memory<'a> {
    /// One run of bytes.
    Run { address: *mut u8, len: usize },
    /// Elements that do not lie densely; of their packed form, `len` bytes from `skip` on.
    Scattered {
        address: *mut u8,
        count: i64,
        datatype: &'a Arc<Datatype>,
        skip: u64,
        len: usize,
    },
}

/// The buffers of a call with the schedule's room.
pub(super) struct Places<'a> {
    pub(super) send: View<'a>,
    pub(super) recv: View<'a>,
    /// The type of the room's elements; `None`: bytes.
    pub(super) element: Option<&'a Arc<Datatype>>,
}

/// `by` elements on from `address`.
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

impl<'a> Places<'a> {
    /// Where a piece is.
    #[inline]
    pub(super) fn find(&self, p: Piece, room: &mut Room) -> Memory<'a> {
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
                        address: room.address().wrapping_offset(p.at as isize),
                        len: p.count as usize,
                    },
                    Some(t) => elements(room.address(), p.at, p.count, t),
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

    /// Where the elements of a reduction's operand begin, and their number.
    #[inline]
    pub(super) fn operand(&self, p: Piece, room: &mut Room) -> (*mut u8, i64) {
        let address = match (p.region, self.element) {
            (Region::Tmp, Some(t)) => offset(room.address(), p.at, t),
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

/// Part of a scattered buffer.
struct Part {
    address: *mut u8,
    count: i64,
    datatype: Arc<Datatype>,
    skip: u64,
}

// SAFETY: the address is the user's or the schedule's room, in use until the operation completes.
unsafe impl Send for Part {}

impl Layout for Part {
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

/// Bytes moved at a time between two scattered buffers.
const BOUNCE: usize = 32 * 1024;

impl Memory<'_> {
    /// Packed bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Memory::Run { len, .. } | Memory::Scattered { len, .. } => *len,
        }
    }

    #[inline]
    pub(super) fn source(self) -> Source {
        match self {
            Memory::Run { address, len } => Source::Bytes { ptr: address, len },
            Memory::Scattered {
                address,
                count,
                datatype,
                skip,
                len,
            } => Source::Layout {
                view: Box::new(Part {
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
    pub(super) fn sink(self) -> Sink {
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
                view: Box::new(Part {
                    address,
                    count,
                    datatype: datatype.clone(),
                    skip,
                }),
                cap: len,
            },
        }
    }

    /// Packed bytes from `offset` on into `out`.
    ///
    /// # Safety
    /// The memory must be readable, and `out` within its length.
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

    /// Copies this piece to `into`, as many bytes as both have, of which `done` have been copied
    /// before: `most` of them if both are runs that lie apart, otherwise all. Returns how many
    /// have been copied by then.
    ///
    /// # Safety
    /// The one must be readable, the other writable.
    pub(super) unsafe fn copy_part(&self, into: &Memory<'_>, done: usize, most: usize) -> usize {
        let len = self.len().min(into.len());
        if let (Memory::Run { address: from, .. }, Memory::Run { address: to, .. }) = (self, into)
            && len > 0
            && (*from as usize).abs_diff(*to as usize) >= len
        {
            let part = most.min(len - done);
            // SAFETY: the caller's promise: both have `len` bytes, which do not overlap, and the
            // part ends within them.
            unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), part) };
            return done + part;
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_to(into) };
        len
    }

    /// Copies this piece to `into`, as many bytes as both have. Returns whether they have as many.
    ///
    /// # Safety
    /// The one must be readable, the other writable.
    pub(super) unsafe fn copy_to(&self, into: &Memory<'_>) -> bool {
        let len = self.len().min(into.len());
        match (self, into) {
            (Memory::Run { address: from, .. }, Memory::Run { address: to, .. }) => {
                // The two may overlap where the program lets its buffers overlap.
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
                    // SAFETY: the caller's promise; the memory is written only, through this slice
                    // alone.
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
                let mut bounce = vec![0u8; len.min(BOUNCE)];
                let mut done = 0;
                while done < len {
                    let piece = &mut bounce[..(len - done).min(BOUNCE)];
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
mod tests {
    use super::*;
    use ferry_datatype::Basic;
    use proptest::prelude::*;

    fn bytes() -> &'static Arc<Datatype> {
        Datatype::basic(Basic::Byte)
    }

    fn strided(blocks: i64, length: i64, stride: i64) -> Arc<Datatype> {
        let t = Datatype::vector(blocks, length, stride, bytes()).unwrap();
        t.commit();
        t
    }

    fn scattered(buffer: &mut [u8], datatype: &Arc<Datatype>) -> Vec<u8> {
        let mut out = vec![0; datatype.size() as usize];
        // SAFETY: the buffer holds one element.
        unsafe { datatype.pack(buffer.as_ptr(), 1, 0, &mut out) };
        out
    }

    proptest! {
        /// From any form to any form, whatever the pieces' sizes.
        #[test]
        fn copies_between_layouts(
            (blocks, length) in (1i64..40, 1i64..3000),
            gap in 1i64..5,
            from_run: bool,
            into_run: bool,
        ) {
            let len = (blocks * length) as usize;
            let (a, b) = (strided(blocks, length, length + gap), strided(length, blocks, blocks + gap));
            let mut from: Vec<u8> = (0..(blocks * (length + gap)) as usize).map(|i| (i * 7 % 251) as u8).collect();
            let mut into = vec![0u8; (length * (blocks + gap)) as usize];
            let wanted = if from_run { from[..len].to_vec() } else { scattered(&mut from, &a) };
            let run = |p: *mut u8| Memory::Run { address: p, len };
            let laid = |p: *mut u8, t| Memory::Scattered { address: p, count: 1, datatype: t, skip: 0, len };
            let source = if from_run { run(from.as_mut_ptr()) } else { laid(from.as_mut_ptr(), &a) };
            let target = if into_run { run(into.as_mut_ptr()) } else { laid(into.as_mut_ptr(), &b) };
            // SAFETY: both buffers hold one element of their type.
            let same = unsafe { source.copy_to(&target) };
            prop_assert!(same);
            let got = if into_run { into[..len].to_vec() } else { scattered(&mut into, &b) };
            prop_assert_eq!(got, wanted);
        }

        /// Every element of the room lies within it, wherever the type begins and however far apart its elements are.
        #[test]
        fn room_holds_all_its_elements(units in 1i64..20, lb in -50i64..50, extent in -40i64..40) {
            let t = Datatype::resized(lb, extent, &strided(3, 5, 11)).unwrap();
            t.commit();
            let mut room = Room::new(units, Some(&t));
            let base = room.address();
            prop_assert_eq!(base.align_offset(16), 0);
            let data: Vec<u8> = (0..15).collect();
            for i in 0..units {
                // SAFETY: an element of the room, as this test is to show (under a memory checker, too).
                unsafe { t.unpack(offset(base, i, &t), 1, 0, &data) };
            }
            let capacity = if room.large.capacity() > 0 { room.large.capacity() * 16 } else { SMALL };
            let last = (units - 1) * extent;
            prop_assert!(t.true_lb() + last.min(0) + room.before as i64 >= 0);
            prop_assert!(room.before as i64 + t.true_lb() + t.true_extent() + last.max(0) <= capacity as i64);
        }
    }

    #[test]
    fn pieces_are_found() {
        let t = strided(2, 1, 3);
        let dense = bytes();
        let base = 0x10000 as *mut u8;
        let places = Places {
            send: View::Uniform {
                address: base,
                count: 1,
                datatype: &t,
            },
            recv: View::Uniform {
                address: base,
                count: 1,
                datatype: dense,
            },
            element: None,
        };
        let mut room = Room::new(8, None);
        let extent = t.extent() as usize;
        match places.find(Piece::send(2, 3), &mut room) {
            Memory::Scattered {
                address,
                count,
                len,
                ..
            } => {
                assert_eq!((address as usize, count, len), (0x10000 + 2 * extent, 3, 6));
            }
            Memory::Run { .. } => panic!("a vector is not one run"),
        }
        match places.find(Piece::recv(-4, 5), &mut room) {
            Memory::Run { address, len } => assert_eq!((address as usize, len), (0x10000 - 4, 5)),
            Memory::Scattered { .. } => panic!("bytes are one run"),
        }
        assert_eq!(places.find(Piece::EMPTY, &mut room).len(), 0);
    }
}

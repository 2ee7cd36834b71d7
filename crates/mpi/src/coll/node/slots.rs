//! The slots of a counter board in one phase, as one collective uses them.

use super::board_call::{BoardCall, BoardOp, Posted, SIGNATURE_BYTES};
use crate::Error;
use crate::coll::executor::{CollArgs, Memory, TmpBuffer};
use crate::device::{ContextId, CounterBoardGroup, SLOT_MAX_BYTES};
use ferry_schedule::Piece;
use std::sync::atomic::{AtomicU64, Ordering};

const ROOT_BITS: u32 = 16;
const LEN_BITS: u32 = 12;
const _: () = assert!(SLOT_MAX_BYTES < 1 << LEN_BITS);

/// Marks the words of one phase of one communicator. Odd. Whatever else lies in a word's place
/// (data, or a word of an earlier communicator that had the same board) has this mark only by a
/// chance of 1 in 2^31.
#[inline]
pub(super) fn phase_mark(context: ContextId, phase: u64) -> u32 {
    // The odd constants of the generator SplitMix64, whose bits are well mixed.
    let mixed =
        (context.0 ^ phase.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 32) as u32 | 1
}

/// The word at the end of a posted slot: its phase's mark, operation, root and length.
#[inline]
fn signature_word(posted: Posted, mark: u32) -> u64 {
    let root = u64::from(posted.root) & ((1 << ROOT_BITS) - 1);
    u64::from(mark) << 32 | u64::from(posted.code) << 28 | root << LEN_BITS | u64::from(posted.len)
}

/// A bit of the mark that is set in every word, except in one that says that some member's
/// signature differs.
const AGREED: u64 = 1 << 32;

/// Reads a slot's signature word, also of one without [`AGREED`]. `None`: the word does not have
/// this mark.
pub(super) fn read_word(word: u64, mark: u32) -> Option<Posted> {
    (((word | AGREED) >> 32) as u32 == mark).then_some(Posted {
        code: word as u32 >> 28,
        root: word as u32 >> LEN_BITS & ((1 << ROOT_BITS) - 1),
        len: word as u32 & ((1 << LEN_BITS) - 1),
    })
}

/// Bytes from one member's slot to the next one's, for data of `len` bytes.
#[inline]
pub(super) fn stride_of(len: usize) -> usize {
    (len + SIGNATURE_BYTES).next_multiple_of(64)
}

/// The board's slots in one phase.
pub(super) struct Slots {
    /// The slot of the first member.
    first: *mut u8,
    size: u32,
    mark: u32,
    stride: usize,
    posted: Posted,
    word: u64,
    len: usize,
}

impl Slots {
    /// The slots for a call with this signature.
    #[inline]
    pub(super) fn new(
        group: &CounterBoardGroup,
        context: ContextId,
        phase: u64,
        posted: Posted,
    ) -> Slots {
        let (len, mark) = (posted.slot_len(), phase_mark(context, phase));
        let stride = stride_of(len);
        Slots {
            first: group.slot_in(phase, 0, stride),
            size: group.size(),
            mark,
            stride,
            posted,
            word: signature_word(posted, mark),
            len,
        }
    }

    fn at(&self, i: u32) -> *mut u8 {
        self.first.wrapping_add(i as usize * self.stride)
    }

    fn signature_at(&self, i: u32) -> *mut u64 {
        self.at(i)
            .wrapping_add(self.stride - SIGNATURE_BYTES)
            .cast()
    }

    /// `len` bytes of the data in slot `i`, from `skip` on.
    pub(super) fn data(&self, i: u32, skip: usize, len: usize) -> Memory<'static> {
        Memory::Run {
            address: self.at(i).wrapping_add(skip),
            len,
        }
    }

    /// Writes slot `i`. Returns whether the input had the right length.
    ///
    /// # Safety
    /// No other rank may use the slot now, and the input must be readable.
    pub(super) unsafe fn post(&self, i: u32, input: &Memory<'_>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.post_len(i, input, self.len) }
    }

    /// As [`Slots::post`], of `len` bytes of input.
    ///
    /// # Safety
    /// As for [`Slots::post`].
    pub(super) unsafe fn post_len(&self, i: u32, input: &Memory<'_>, len: usize) -> bool {
        debug_assert!(len <= self.len);
        // SAFETY: the caller's promise. The signature lies within the slot, and is aligned.
        unsafe {
            self.signature_at(i).write(self.word);
            len == 0 || input.copy_to(&self.data(i, 0, len))
        }
    }

    /// As [`Slots::post`], for the root of a broadcast, which always writes slot 0. If the program
    /// calls two ranks the root, the second one to write gets the error.
    ///
    /// # Safety
    /// As for [`Slots::post`].
    pub(super) unsafe fn post_first(&self, input: &Memory<'_>, error: &mut Option<Error>) -> bool {
        // SAFETY: the word is aligned. All ranks that may write it now do so atomically.
        let word = unsafe { AtomicU64::from_ptr(self.signature_at(0)) };
        let before = word.swap(self.word, Ordering::Relaxed);
        if let Some(theirs) = read_word(before, self.mark) {
            error.get_or_insert_with(|| {
                let peer = if theirs.is_bcast() { theirs.root } else { 0 };
                self.posted.disagreement(peer, Some(theirs), self.size)
            });
        }
        // SAFETY: the caller's promise.
        unsafe { input.copy_to(&self.data(0, 0, self.len)) }
    }

    /// Checks that slot `i` has this rank's signature.
    #[inline]
    pub(super) fn check(&self, i: u32, error: &mut Option<Error>) {
        // SAFETY: the word is within the board, aligned, and written before its rank posted.
        let found = unsafe { self.signature_at(i).read() };
        if found != self.word {
            error.get_or_insert_with(|| self.disagreement(i, found));
        }
    }

    /// The error of signature `found` in slot `i`. It names the first rank whose signature differs,
    /// if a readable one does.
    #[cold]
    fn disagreement(&self, i: u32, found: u64) -> Error {
        let theirs = read_word(found, self.mark).filter(|p| *p != self.posted);
        let error = || self.posted.disagreement(i, theirs, self.size);
        match theirs {
            None => self.first_disagreement().unwrap_or_else(error),
            Some(_) => error(),
        }
    }

    /// The error of the first rank whose signature can be read and differs.
    #[cold]
    pub(super) fn first_disagreement(&self) -> Option<Error> {
        // That of other slots than this call's lies at another place.
        let mut strides = (64..=SLOT_MAX_BYTES).step_by(64);
        let (r, theirs) = strides.find_map(|stride| {
            (0..self.size).find_map(|r| {
                let end = (r as usize + 1) * stride;
                let word: *const u64 = self.first.wrapping_add(end - SIGNATURE_BYTES).cast();
                // SAFETY: within the board, aligned. A rank that has not posted has the word of
                // another phase, or data.
                let posted = read_word(unsafe { word.read_volatile() }, self.mark)?;
                let differs = posted != self.posted && posted.stride() == stride;
                differs.then_some((r, posted))
            })
        })?;
        Some(self.posted.disagreement(r, Some(theirs), self.size))
    }

    /// Reduces the data of ranks `from` to below `to` into `result`. The order of operands is that
    /// of a reduction by messages: from the highest rank down.
    ///
    /// # Safety
    /// All members have posted, and `result` has room for the data. No other rank writes there.
    unsafe fn fold(
        &self,
        b: &CollArgs<'_>,
        (from, to): (u32, u32),
        result: *mut u8,
        error: &mut Option<Error>,
    ) {
        let Some((op, t)) = b.reduction else { return };
        let count = self.len as i64 / t.size().max(1);
        for i in (from..to).rev() {
            self.check(i, error);
            // SAFETY: slots and result hold `count` elements. No other rank writes them now.
            unsafe { op.apply(self.at(i), result, count, t) };
        }
    }

    /// What the last member to post does before it opens the phase: it leaves the result of a
    /// reduction in the last slot.
    ///
    /// # Safety
    /// All members have posted, and the phase is not open.
    pub(super) unsafe fn combine(
        &self,
        call: &BoardCall,
        b: &CollArgs<'_>,
        error: &mut Option<Error>,
    ) {
        if !matches!(call.op, BoardOp::Allreduce | BoardOp::ReduceScatter { .. }) {
            return;
        }
        let last = self.size - 1;
        self.check(last, error);
        // SAFETY: the caller's promise.
        unsafe { self.fold(b, (0, last), self.at(last), error) };
        if error.is_some() {
            // All members are to see it, also those whose signature is this slot's.
            let word = self.signature_at(last);
            // SAFETY: only the last member to post writes here, before the phase is open.
            unsafe { word.write(word.read() & !AGREED) };
        }
    }

    /// Takes what this rank gets from the slots. Returns whether its buffers have the right
    /// lengths.
    ///
    /// # Safety
    /// The phase is open, and the buffers are as the call says.
    pub(super) unsafe fn read(
        &self,
        call: &BoardCall,
        b: &CollArgs<'_>,
        error: &mut Option<Error>,
    ) -> bool {
        let (me, n) = (b.comm.rank(), self.size);
        let mut tmp = TmpBuffer::new(0, None);
        let buffers = b.buffers();
        let mut locate = |p: Piece| buffers.locate(p, &mut tmp);
        let mut fits = true;
        match call.op {
            BoardOp::Bcast { .. } => {
                self.check(0, error);
                // SAFETY: the root has posted, and the buffer is writable.
                fits &= unsafe { self.data(0, 0, call.len).copy_to(&locate(call.input)) };
            }
            BoardOp::Allgather { unit } => {
                for i in (0..n).filter(|&i| !(call.in_place && i == me)) {
                    self.check(i, error);
                    let into = locate(Piece::recv(i64::from(i) * unit, unit));
                    // SAFETY: all members have posted, and the buffer is writable.
                    fits &= unsafe { self.data(i, 0, call.len).copy_to(&into) };
                }
            }
            BoardOp::Alltoall { recv } => {
                let block = call.len / n as usize;
                for i in 0..n {
                    self.check(i, error);
                    let into = locate(Piece::recv(i64::from(i) * recv, recv));
                    // SAFETY: all members have posted. The block lies within the member's data, and
                    // the buffer is writable.
                    fits &= unsafe { self.data(i, me as usize * block, block).copy_to(&into) };
                }
            }
            BoardOp::Allreduce | BoardOp::ReduceScatter { .. } => {
                let last = n - 1;
                self.check(last, error);
                let own = if let BoardOp::ReduceScatter { own } = call.op {
                    own
                } else {
                    call.input.count
                };
                let len = if own == call.input.count {
                    call.len
                } else {
                    call.len / n as usize
                };
                let skip = if own == call.input.count {
                    0
                } else {
                    me as usize * len
                };
                let into = locate(Piece::recv(0, own));
                // SAFETY: the last member has posted the result, and the buffer is writable.
                fits &= unsafe { self.data(last, skip, len).copy_to(&into) };
            }
            BoardOp::Scan { inclusive } if inclusive || me > 0 => {
                let first = if inclusive { me } else { me - 1 };
                let output = locate(Piece::recv(0, call.input.count));
                self.check(first, error);
                // SAFETY: that member has posted its partial result, and the buffer is writable.
                fits &= unsafe { self.data(first, 0, call.len).copy_to(&output) };
                if let Memory::Run { address, .. } = output {
                    // SAFETY: all have posted, and the output holds as many elements.
                    unsafe { self.fold(b, (0, first), address, error) };
                }
            }
            _ => {}
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_word_is_read_in_its_phase_and_communicator_only() {
        let posted = Posted {
            code: 11,
            root: 300,
            len: 2104,
        };
        let (one, other) = (ContextId::new(3, 7), ContextId::new(3, 8));
        let mark = phase_mark(one, 70_000);
        let word = signature_word(posted, mark);
        assert_eq!(read_word(word, mark), Some(posted));
        assert_ne!(word & !AGREED, word);
        assert_eq!(read_word(word & !AGREED, mark), Some(posted));
        for other in [
            phase_mark(one, 70_008),
            phase_mark(one, 70_000 + (1 << 16)),
            phase_mark(other, 70_000),
        ] {
            assert_eq!(read_word(word, other), None);
        }
        assert_eq!(read_word(0, mark), None);
    }
}

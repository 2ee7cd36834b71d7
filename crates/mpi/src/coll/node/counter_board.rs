//! Collectives through a counter board. All members post. The last one to post opens the phase.
//! Then all members read.

use super::board_call::{BoardCall, BoardOp, Posted, SIGNATURE_BYTES, own_length_error};
use crate::coll::executor::{COUNTERS, CollArgs, Memory, TmpBuffer};
use crate::device::{self, ContextId, CounterBoardGroup, PHASES, SLOT_MAX_BYTES, WaitingFor};
use crate::{Error, Result};
use ferry_schedule::Piece;
use std::sync::atomic::{AtomicU64, Ordering};

/// This rank's part in a counter board.
pub(in crate::coll) struct CounterBoard {
    group: CounterBoardGroup,
    /// The communicator's context.
    context: ContextId,
    /// The number of the last phase, which is the number of collectives so far.
    phase: u64,
    /// The signatures that this rank posted in the last phases, by phase.
    recent: [Option<Recent>; PHASES],
}

/// The signature that this rank posted in a phase.
#[derive(Clone, Copy)]
struct Recent {
    phase: u64,
    stride: usize,
    posted: Posted,
}

const ROOT_BITS: u32 = 16;
const LEN_BITS: u32 = 12;
const _: () = assert!(SLOT_MAX_BYTES < 1 << LEN_BITS);

/// Marks the words of one phase of one communicator. Odd. Whatever else lies in a word's place
/// (data, or a word of an earlier communicator that had the same board) has this mark only by a
/// chance of 1 in 2^31.
#[inline]
fn phase_mark(context: ContextId, phase: u64) -> u32 {
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
fn read_word(word: u64, mark: u32) -> Option<Posted> {
    (((word | AGREED) >> 32) as u32 == mark).then_some(Posted {
        code: word as u32 >> 28,
        root: word as u32 >> LEN_BITS & ((1 << ROOT_BITS) - 1),
        len: word as u32 & ((1 << LEN_BITS) - 1),
    })
}

/// The board's slots in one phase, as one collective uses them.
struct Slots<'a> {
    group: &'a CounterBoardGroup,
    mark: u32,
    stride: usize,
    posted: Posted,
    word: u64,
    len: usize,
}

impl Slots<'_> {
    fn at(&self, i: u32) -> *mut u8 {
        self.group.slot(i, self.stride)
    }

    fn signature_at(&self, i: u32) -> *mut u64 {
        self.at(i)
            .wrapping_add(self.stride - SIGNATURE_BYTES)
            .cast()
    }

    /// `len` bytes of the data in slot `i`, from `skip` on.
    fn data(&self, i: u32, skip: usize, len: usize) -> Memory<'static> {
        Memory::Run {
            address: self.at(i).wrapping_add(skip),
            len,
        }
    }

    /// Writes slot `i`. Returns whether the input had the right length.
    ///
    /// # Safety
    /// No other rank may use the slot now, and the input must be readable.
    unsafe fn post(&self, i: u32, input: &Memory<'_>) -> bool {
        // SAFETY: the caller's promise. The signature lies within the slot, and is aligned.
        unsafe {
            self.signature_at(i).write(self.word);
            self.len == 0 || input.copy_to(&self.data(i, 0, self.len))
        }
    }

    /// As [`Slots::post`], for the root of a broadcast, which always writes slot 0. If the program
    /// calls two ranks the root, the second one to write gets the error.
    ///
    /// # Safety
    /// As for [`Slots::post`].
    unsafe fn post_first(&self, input: &Memory<'_>, error: &mut Option<Error>) -> bool {
        // SAFETY: the word is aligned. All ranks that may write it now do so atomically.
        let word = unsafe { AtomicU64::from_ptr(self.signature_at(0)) };
        let before = word.swap(self.word, Ordering::Relaxed);
        if let Some(theirs) = read_word(before, self.mark) {
            error.get_or_insert_with(|| {
                let peer = if theirs.is_bcast() { theirs.root } else { 0 };
                self.posted
                    .disagreement(peer, Some(theirs), self.group.size())
            });
        }
        // SAFETY: the caller's promise.
        unsafe { input.copy_to(&self.data(0, 0, self.len)) }
    }

    /// Checks that slot `i` has this rank's signature.
    #[inline]
    fn check(&self, i: u32, error: &mut Option<Error>) {
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
        let size = self.group.size();
        let mut all = (0..size).filter_map(|r| {
            // SAFETY: as in `check`. A rank that has not posted has the word of another phase.
            let word = unsafe { self.signature_at(r).read() };
            Some((r, read_word(word, self.mark).filter(|p| *p != self.posted)?))
        });
        let theirs = read_word(found, self.mark).filter(|p| *p != self.posted);
        match (theirs, all.next()) {
            (None, Some((r, theirs))) => self.posted.disagreement(r, Some(theirs), size),
            (theirs, _) => self.posted.disagreement(i, theirs, size),
        }
    }
}

impl CounterBoard {
    pub(super) fn new(group: CounterBoardGroup, context: ContextId) -> CounterBoard {
        CounterBoard {
            group,
            context,
            phase: 0,
            recent: [None; PHASES],
        }
    }

    /// The error of a member whose signature differs from this one's in one of the last phases.
    pub(super) fn recent_mismatch(&self) -> Option<Error> {
        let size = self.group.size();
        let look = |recent: &Recent| {
            (0..size).find_map(|i| {
                let slot = self.group.slot_in(recent.phase, i, recent.stride);
                let word: *const u64 = slot.wrapping_add(recent.stride - SIGNATURE_BYTES).cast();
                let mark = phase_mark(self.context, recent.phase);
                // SAFETY: within the board, aligned. Others may write there in a later phase, with
                // another mark.
                let theirs = read_word(unsafe { word.read_volatile() }, mark)?;
                // The root of a broadcast always posts in slot 0.
                let peer = match theirs.is_bcast() {
                    true => theirs.root,
                    false => i,
                };
                let differs = theirs != recent.posted;
                differs.then(|| recent.posted.disagreement(peer, Some(theirs), size))
            })
        };
        self.recent.iter().flatten().find_map(look)
    }

    /// A member that has posted in the phase that this one has not reached, and its signature. The
    /// slots of that phase are not used again before this member has passed it.
    pub(super) fn posted_ahead(&self) -> Option<(u32, Posted)> {
        let (phase, size) = (self.phase + 1, self.group.size());
        let mark = phase_mark(self.context, phase);
        // The stride of the slots depends on the length, which is unknown here.
        let strides = (64..=SLOT_MAX_BYTES).step_by(64);
        strides.into_iter().find_map(|stride| {
            (0..size).find_map(|i| {
                let slot = self.group.slot_in(phase, i, stride);
                let word: *const u64 = slot.wrapping_add(stride - SIGNATURE_BYTES).cast();
                // SAFETY: the word is within the board, and aligned.
                let posted = read_word(unsafe { word.read_volatile() }, mark)?;
                let peer = if posted.is_bcast() { posted.root } else { i };
                Some((peer, posted))
            })
        })
    }

    /// Runs a collective through the board.
    ///
    /// # Safety
    /// The buffers must be as the call says.
    pub(super) unsafe fn execute(
        &mut self,
        call: &BoardCall,
        b: &CollArgs<'_>,
        waiting_for: &WaitingFor<'_>,
    ) -> Result<()> {
        self.phase += 1;
        let (phase, posted) = (self.phase, call.posted(b.root));
        let stride = (call.len + SIGNATURE_BYTES).next_multiple_of(64);
        let posts = !posted.is_bcast() || posted.root == b.comm.rank();
        self.recent[phase as usize % PHASES] = posts.then_some(Recent {
            phase,
            stride,
            posted,
        });
        // SAFETY: the caller's promise.
        unsafe {
            let mark = phase_mark(self.context, phase);
            execute(&mut self.group, mark, stride, call, b, waiting_for)
        }
    }
}

/// # Safety
/// The buffers must be as the call says.
unsafe fn execute(
    group: &mut CounterBoardGroup,
    mark: u32,
    stride: usize,
    call: &BoardCall,
    b: &CollArgs<'_>,
    waiting_for: &WaitingFor<'_>,
) -> Result<()> {
    let (me, n) = (b.comm.rank(), b.comm.size());
    let mut tmp = TmpBuffer::new(0, None);
    let buffers = b.buffers();
    let mut locate = |p: Piece| buffers.locate(p, &mut tmp);
    let mut error = None;
    group.begin(waiting_for);
    let group = &*group;
    let posted = call.posted(b.root);
    let slots = Slots {
        group,
        mark,
        stride,
        posted,
        word: signature_word(posted, mark),
        len: call.len,
    };
    // The result of a reduction is in the last slot. The order of operands is that of a reduction
    // by messages: from the highest rank down.
    let last = n - 1;
    let fold = |from: u32, to: u32, result: *mut u8, error: &mut Option<Error>| {
        let Some((op, t)) = b.reduction else { return };
        let count = call.len as i64 / t.size().max(1);
        for i in (from..to).rev() {
            slots.check(i, error);
            // SAFETY: slots and result hold `count` elements. No other rank writes them now.
            unsafe { op.apply(slots.at(i), result, count, t) };
        }
    };
    let fits = match call.op {
        BoardOp::Bcast { root } if me == root => {
            // SAFETY: in this phase only the root writes slot 0.
            let fits = unsafe { slots.post_first(&locate(call.input), &mut error) };
            let d = device::device();
            COUNTERS.board.increment(&d);
            group.open(&d);
            group.done(&d);
            fits
        }
        BoardOp::Bcast { .. } => {
            group.wait_open(waiting_for);
            slots.check(0, &mut error);
            // SAFETY: the root has posted, and the buffer is writable.
            let fits = unsafe { slots.data(0, 0, call.len).copy_to(&locate(call.input)) };
            let d = device::device();
            COUNTERS.board.increment(&d);
            group.done(&d);
            fits
        }
        _ => {
            // SAFETY: no other rank uses the slot until this rank has posted.
            let mut fits = unsafe { slots.post(me, &locate(call.input)) };
            let is_last = group.post();
            if is_last {
                if matches!(call.op, BoardOp::Allreduce | BoardOp::ReduceScatter { .. }) {
                    slots.check(last, &mut error);
                    fold(0, last, slots.at(last), &mut error);
                    if error.is_some() {
                        // All members are to see it, also those whose signature is this slot's.
                        let word = slots.signature_at(last);
                        // SAFETY: only the last member to post writes here, before the phase is
                        // open.
                        unsafe { word.write(word.read() & !AGREED) };
                    }
                }
                group.open(&device::device());
            } else {
                group.wait_open(waiting_for);
            }
            match call.op {
                BoardOp::Allgather { unit } => {
                    for i in (0..n).filter(|&i| !(call.in_place && i == me)) {
                        slots.check(i, &mut error);
                        let into = locate(Piece::recv(i64::from(i) * unit, unit));
                        // SAFETY: all members have posted, and the buffer is writable.
                        fits &= unsafe { slots.data(i, 0, call.len).copy_to(&into) };
                    }
                }
                BoardOp::Alltoall { recv } => {
                    let block = call.len / n as usize;
                    for i in 0..n {
                        slots.check(i, &mut error);
                        let into = locate(Piece::recv(i64::from(i) * recv, recv));
                        // SAFETY: all members have posted. The block lies within the member's data,
                        // and the buffer is writable.
                        fits &= unsafe { slots.data(i, me as usize * block, block).copy_to(&into) };
                    }
                }
                BoardOp::Allreduce | BoardOp::ReduceScatter { .. } => {
                    slots.check(last, &mut error);
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
                    // SAFETY: the last member has posted the result, and the buffer is writable.
                    fits &= unsafe {
                        slots
                            .data(last, skip, len)
                            .copy_to(&locate(Piece::recv(0, own)))
                    };
                }
                BoardOp::Scan { inclusive } if inclusive || me > 0 => {
                    let first = if inclusive { me } else { me - 1 };
                    let output = locate(Piece::recv(0, call.input.count));
                    slots.check(first, &mut error);
                    // SAFETY: that member has posted its partial result, and the buffer is
                    // writable.
                    fits &= unsafe { slots.data(first, 0, call.len).copy_to(&output) };
                    if let Memory::Run { address, .. } = output {
                        fold(0, first, address, &mut error);
                    }
                }
                _ => {}
            }
            let d = device::device();
            COUNTERS.board.increment(&d);
            group.read(&d);
            drop(d);
            if is_last && call.op == BoardOp::Barrier {
                device::yield_after_barrier();
            }
            fits
        }
    };
    if !fits {
        error.get_or_insert_with(own_length_error);
    }
    error.map_or(Ok(()), |e| Err(e.on(b.comm)))
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

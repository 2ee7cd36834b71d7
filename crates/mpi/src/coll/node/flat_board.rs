//! Collectives through a flat board. Each member polls the other members' slots. There is no shared
//! counter.

use super::super::neighbour;
use super::board_call::{BoardCall, BoardOp, Posted, SIGNATURE_BYTES, own_length_error};
use crate::coll::executor::{COUNTERS, CollArgs, Memory, TmpBuffer};
use crate::device::{
    self, FlatBoardGroup, MARK_BITS, PHASES, POST_MAX_BYTES, SLOT_MAX_BYTES, WaitingFor,
};
use crate::{Error, Result};
use ferry_schedule::{NeighbourExchange, Piece};

// Data that fit a counter board's slot also fit a flat board's slot. Their length fits `LEN_BITS`.
const _: () =
    assert!(POST_MAX_BYTES == SLOT_MAX_BYTES - SIGNATURE_BYTES && POST_MAX_BYTES < 1 << LEN_BITS);
/// Bits of a signature for the length of the data.
const LEN_BITS: u32 = 12;
/// Bits of a signature for the root. A flat board has at most 8 members.
const ROOT_BITS: u32 = 4;
/// Bits of a signature for the operation's code.
const CODE_BITS: u32 = 4;
const _: () = assert!(LEN_BITS + ROOT_BITS + CODE_BITS <= MARK_BITS);

/// The signature of a call, as a member posts it with its data.
#[inline]
fn signature_bits(posted: Posted) -> u32 {
    posted.code << (LEN_BITS + ROOT_BITS) | (posted.root & 0xf) << LEN_BITS | posted.len
}

fn read_bits(bits: u32) -> Posted {
    Posted {
        code: bits >> (LEN_BITS + ROOT_BITS),
        root: bits >> LEN_BITS & ((1 << ROOT_BITS) - 1),
        len: bits & ((1 << LEN_BITS) - 1),
    }
}

/// The error of a member whose signature differs from that of this one (`me`) in one of the last
/// phases.
pub(super) fn recent_mismatch(board: &FlatBoardGroup, me: u32, size: u32) -> Option<Error> {
    (0..PHASES as u64).find_map(|back| {
        let own = read_bits(board.posted_before(me, back)?);
        let posted = |i| Some((i, read_bits(board.posted_before(i, back)?)));
        let mut others = (0..size).filter_map(posted);
        let (peer, theirs) = others.find(|(_, theirs)| !theirs.agrees_with(own))?;
        Some(own.disagreement(peer, Some(theirs), size))
    })
}

/// A member that has posted in a phase that this one has not reached, and its signature.
pub(super) fn posted_ahead(board: &FlatBoardGroup, size: u32) -> Option<(u32, Posted)> {
    (0..size).find_map(|i| Some((i, read_bits(board.posted_next(i)?))))
}

/// The phase of a collective.
struct Phase<'a, 'w> {
    board: &'a mut FlatBoardGroup,
    waiting_for: &'a WaitingFor<'w>,
    /// The signature that this member posts.
    signature: u32,
    /// The signature that it expects from the others.
    expected: u32,
    size: u32,
    len: usize,
    error: Option<Error>,
    /// This member came last: each member that it waited for had already posted.
    is_last: bool,
}

impl Phase<'_, '_> {
    /// `len` bytes of the data in slot `i`, from `skip` on.
    #[inline]
    fn data(&self, i: u32, skip: usize, len: usize) -> Memory<'static> {
        Memory::Run {
            address: self.board.data(i).wrapping_add(skip),
            len,
        }
    }

    /// Writes this rank's slot. Returns whether the input had the right length.
    ///
    /// # Safety
    /// The input must be readable, and `me` this rank.
    #[inline]
    unsafe fn write(&mut self, me: u32, input: &Memory<'_>) -> bool {
        self.board.wait_free(self.waiting_for);
        if self.len == 0 {
            return true;
        }
        // SAFETY: no other rank reads the slot until this rank posts.
        unsafe { input.copy_to(&self.data(me, 0, self.len)) }
    }

    /// Waits until rank `i` has posted. Checks that its signature is this rank's.
    #[inline]
    fn wait(&mut self, i: u32) {
        let (found, before) = self.board.wait_posted(i, self.waiting_for);
        self.is_last &= before;
        if found != self.expected {
            let (own, size) = (read_bits(self.expected), self.size);
            self.error
                .get_or_insert_with(|| own.disagreement(i, Some(read_bits(found)), size));
        }
    }
}

/// Runs a collective through the board.
///
/// # Safety
/// The buffers must be as the call says.
pub(super) unsafe fn execute(
    board: &mut FlatBoardGroup,
    call: &BoardCall,
    b: &CollArgs<'_>,
    waiting_for: &WaitingFor<'_>,
) -> Result<()> {
    let (me, n) = (b.comm.rank(), b.comm.size());
    let mut tmp = TmpBuffer::new(0, None);
    let buffers = b.buffers();
    let mut locate = |p: Piece| buffers.locate(p, &mut tmp);
    {
        let d = device::device();
        COUNTERS.board.increment(&d);
        board.begin(&d);
    }
    let mut phase = Phase {
        board,
        waiting_for,
        signature: signature_bits(call.posted(b.root)),
        expected: signature_bits(call.expected(b.root)),
        size: n,
        len: call.len,
        error: None,
        is_last: true,
    };
    let mut fits = true;
    match call.op {
        BoardOp::Bcast { root } if me == root => {
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &locate(call.input)) };
            phase.board.post_alone(phase.signature);
        }
        BoardOp::Bcast { root } => {
            phase.wait(root);
            // SAFETY: the root has posted, and the buffer is writable.
            fits &= unsafe { phase.data(root, 0, call.len).copy_to(&locate(call.input)) };
            phase.board.end_phase();
        }
        BoardOp::Scatter { root, recv } if me == root => {
            let all = locate(call.input);
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &all) };
            phase.board.post_alone(phase.signature);
            if !call.in_place {
                let each = call.input.count / i64::from(n);
                let own = locate(Piece::send(i64::from(me) * each, each));
                // SAFETY: the program's buffers are readable and writable.
                fits &= unsafe { own.copy_to(&locate(Piece::recv(0, recv))) };
            }
        }
        BoardOp::Scatter { root, recv } => {
            phase.wait(root);
            let len = call.len / n as usize;
            let part = phase.data(root, me as usize * len, len);
            // SAFETY: the root has posted, and the buffer is writable.
            fits &= unsafe { part.copy_to(&locate(Piece::recv(0, recv))) };
            phase.board.end_phase();
        }
        BoardOp::Gather { root, .. } | BoardOp::Reduce { root } if me != root => {
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &locate(call.input)) };
            phase.board.post_alone(phase.signature);
        }
        BoardOp::Gather { recv, .. } => {
            for i in from(me, n) {
                let into = locate(Piece::recv(i64::from(i) * recv, recv));
                if i != me {
                    phase.wait(i);
                    // SAFETY: rank i has posted, and the buffer is writable.
                    fits &= unsafe { phase.data(i, 0, call.len).copy_to(&into) };
                } else if !call.in_place {
                    // SAFETY: the program's buffers are readable and writable.
                    fits &= unsafe { locate(call.input).copy_to(&into) };
                }
            }
            phase.board.end_phase();
        }
        BoardOp::Exchange { exchange, .. } => {
            // SAFETY: the caller's promise.
            fits &= unsafe { exchange_blocks(&mut phase, b, &exchange) };
            // Of two members each waits for the other one. Of more, some may wait for few.
            match n {
                2 => phase.board.end_full_phase(),
                _ => phase.board.end_phase(),
            }
        }
        BoardOp::Reduce { .. } => {
            // SAFETY: the program's buffer is readable. No other rank reads the slot in this
            // phase.
            fits &= unsafe { phase.write(me, &locate(call.input)) };
            let output = locate(Piece::recv(0, call.input.count));
            // SAFETY: the buffer is writable, and no other rank reads this rank's slot.
            fits &= unsafe { fold(&mut phase, b, me, (0, n - 1), &output, 0) };
            phase.board.end_phase();
        }
        BoardOp::Scan { inclusive } => {
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &locate(call.input)) };
            phase.board.post(phase.signature);
            if inclusive || me > 0 {
                let first = if inclusive { me } else { me - 1 };
                // SAFETY: the buffer is writable.
                fits &= unsafe {
                    fold(
                        &mut phase,
                        b,
                        me,
                        (0, first),
                        &locate(Piece::recv(0, call.input.count)),
                        0,
                    )
                };
            }
            phase.board.end_phase();
        }
        _ => {
            // SAFETY: the program's buffer is readable.
            fits &= unsafe { phase.write(me, &locate(call.input)) };
            phase.board.post(phase.signature);
            match call.op {
                BoardOp::Allgather { unit } => {
                    for i in from(me, n) {
                        if i != me {
                            phase.wait(i);
                        } else if call.in_place {
                            continue;
                        }
                        let into = locate(Piece::recv(i64::from(i) * unit, unit));
                        // SAFETY: rank i has posted, and the buffer is writable.
                        fits &= unsafe { phase.data(i, 0, call.len).copy_to(&into) };
                    }
                }
                BoardOp::Alltoall { recv } => {
                    let block = call.len / n as usize;
                    for i in from(me, n) {
                        if i != me {
                            phase.wait(i);
                        }
                        let into = locate(Piece::recv(i64::from(i) * recv, recv));
                        // SAFETY: rank i has posted. The block lies within its data, and the buffer
                        // is writable.
                        fits &= unsafe { phase.data(i, me as usize * block, block).copy_to(&into) };
                    }
                }
                BoardOp::Allreduce => {
                    let output = locate(Piece::recv(0, call.input.count));
                    // SAFETY: the buffer is writable.
                    fits &= unsafe { fold(&mut phase, b, me, (0, n - 1), &output, 0) };
                }
                BoardOp::ReduceScatter { own } => {
                    let (output, len) = (locate(Piece::recv(0, own)), call.len / n as usize);
                    // SAFETY: the buffer is writable.
                    fits &=
                        unsafe { fold(&mut phase, b, me, (0, n - 1), &output, me as usize * len) };
                }
                _ => (1..n).for_each(|by| phase.wait((me + by) % n)),
            }
            phase.board.end_full_phase();
            if phase.is_last && call.op == BoardOp::Barrier {
                device::yield_after_barrier();
            }
        }
    }
    if !fits {
        phase.error.get_or_insert_with(own_length_error);
    }
    phase.error.map_or(Ok(()), |e| Err(e.on(b.comm)))
}

/// Posts this rank's blocks for its neighbours in a grid, waits for those that it receives from,
/// and takes its blocks from their slots. Returns whether the buffers have the right lengths.
///
/// # Safety
/// The buffers must be as the call says.
unsafe fn exchange_blocks(
    phase: &mut Phase<'_, '_>,
    b: &CollArgs<'_>,
    exchange: &NeighbourExchange,
) -> bool {
    let Ok(n) = neighbour::neighbours(b.comm) else {
        return false;
    };
    let mut tmp = TmpBuffer::new(0, None);
    let buffers = b.buffers();
    let (is_alltoall, blocks) = match exchange {
        NeighbourExchange::Allgather(_) => (false, 1),
        NeighbourExchange::Alltoall(_) => (true, n.destinations.len()),
    };
    let (sent, received) = (phase.len / blocks, exchange.block().bytes as usize);
    let nth = |i: usize| if is_alltoall { i } else { 0 };
    let me = b.comm.rank();
    let mut fits = true;
    phase.board.wait_free(phase.waiting_for);
    // The block of a neighbour that does not exist is not read.
    let mut existing = (0..n.destinations.len()).filter(|&i| n.destinations[i].is_some());
    let written = if is_alltoall { usize::MAX } else { 1 };
    for i in existing.by_ref().take(written) {
        let block = buffers.locate(exchange.send_piece(i), &mut tmp);
        // SAFETY: the program's buffer is readable. No other rank reads the slot until this rank
        // posts.
        fits &= unsafe { block.copy_to(&phase.data(me, nth(i) * sent, sent)) };
    }
    phase.board.post(phase.signature);
    for (i, source) in n.sources.iter().enumerate() {
        let &Some(source) = source else { continue };
        if source != me {
            phase.wait(source);
        }
        let into = buffers.locate(exchange.receive_piece(i), &mut tmp);
        // In each dimension of a grid the neighbour below sends up, and the other one down.
        let from = phase.data(source, nth(i ^ 1) * received, received);
        // SAFETY: the source has posted. The block lies within its data, and the buffer is
        // writable.
        fits &= unsafe { from.copy_to(&into) };
    }
    fits
}

/// All ranks in ring order, from this one on.
fn from(me: u32, n: u32) -> impl Iterator<Item = u32> {
    (me..n).chain(0..me)
}

/// Waits for ranks `first` to `last`, and reduces their data into the output. Takes the bytes from
/// `skip` on, as many as the output has. The order of operands is that of a reduction by messages:
/// from the highest rank down. Returns whether the slots have as many bytes as the output.
///
/// # Safety
/// This rank must have written its slot, and the output must be writable.
unsafe fn fold(
    phase: &mut Phase<'_, '_>,
    b: &CollArgs<'_>,
    me: u32,
    (first, last): (u32, u32),
    output: &Memory<'_>,
    skip: usize,
) -> bool {
    let (Some((op, t)), Memory::Run { address, len }) = (b.reduction, output) else {
        return false;
    };
    let count = *len as i64 / t.size().max(1);
    let mut fits = *len <= phase.len.saturating_sub(skip);
    for i in (first..=last).rev() {
        if i != me {
            phase.wait(i);
        }
        if i == last {
            // SAFETY: rank i has posted, and the output is writable.
            fits &= unsafe { phase.data(i, skip, *len).copy_to(output) };
        } else {
            // SAFETY: rank i has posted, and the output holds `count` elements.
            unsafe { op.apply(phase.board.data(i).wrapping_add(skip), *address, count, t) };
        }
    }
    fits
}

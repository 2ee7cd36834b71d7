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

/// The phase of a collective, as one member goes through it.
struct Phase<'a, 'w> {
    board: &'a mut FlatBoardGroup,
    waiting_for: &'a WaitingFor<'w>,
    args: &'a CollArgs<'a>,
    /// Empty: collectives through a board need no memory of their own.
    tmp: TmpBuffer,
    /// This member's rank.
    me: u32,
    size: u32,
    /// Bytes that a member posts.
    len: usize,
    /// The signature that this member posts.
    signature: u32,
    /// The signature that it expects from the others.
    expected: u32,
    error: Option<Error>,
    /// This member came last: each member that it waited for had already posted.
    is_last: bool,
}

impl<'a> Phase<'a, '_> {
    /// The memory of a piece of the program's buffers.
    #[inline]
    fn locate(&mut self, piece: Piece) -> Memory<'a> {
        self.args.buffers().locate(piece, &mut self.tmp)
    }

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
    /// The input must be readable.
    #[inline]
    unsafe fn write(&mut self, input: Piece) -> bool {
        let input = self.locate(input);
        self.board.wait_free(self.waiting_for);
        if self.len == 0 {
            return true;
        }
        // SAFETY: no other rank reads the slot until this rank posts.
        unsafe { input.copy_to(&self.data(self.me, 0, self.len)) }
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

    /// Waits until rank `i` has posted, unless it is this rank. Copies `len` bytes of its data,
    /// from `skip` on, to a piece of the program's buffers. Returns whether the piece has this
    /// length.
    ///
    /// # Safety
    /// The bytes must lie in the data of the slot, the piece must be writable, and this rank must
    /// have written its slot if it is rank `i`.
    #[inline]
    unsafe fn read(&mut self, i: u32, (skip, len): (usize, usize), into: Piece) -> bool {
        if i != self.me {
            self.wait(i);
        }
        let into = self.locate(into);
        // SAFETY: rank i has posted. The rest is the caller's promise.
        unsafe { self.data(i, skip, len).copy_to(&into) }
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
    {
        let d = device::device();
        COUNTERS.board.increment(&d);
        board.begin(&d);
    }
    let mut phase = Phase {
        board,
        waiting_for,
        args: b,
        tmp: TmpBuffer::new(0, None),
        me: b.comm.rank(),
        size: b.comm.size(),
        len: call.len,
        signature: signature_bits(call.posted(b.root)),
        expected: signature_bits(call.expected(b.root)),
        error: None,
        is_last: true,
    };
    // SAFETY: the caller's promise.
    let fits = unsafe {
        match call.op {
            BoardOp::Bcast { root } => bcast(&mut phase, call.input, root),
            BoardOp::Scatter { root, recv } => scatter(&mut phase, call, root, recv),
            BoardOp::Gather { root, .. } | BoardOp::Reduce { root } if phase.me != root => {
                post_to_root(&mut phase, call.input)
            }
            BoardOp::Gather { recv, .. } => gather_at_root(&mut phase, call, recv),
            BoardOp::Reduce { .. } => reduce_at_root(&mut phase, call.input),
            BoardOp::Exchange { exchange, .. } => exchange_blocks(&mut phase, &exchange),
            BoardOp::Scan { inclusive } => scan(&mut phase, call.input, inclusive),
            BoardOp::Barrier
            | BoardOp::Allgather { .. }
            | BoardOp::Alltoall { .. }
            | BoardOp::Allreduce
            | BoardOp::ReduceScatter { .. } => all_to_all(&mut phase, call),
        }
    };
    if !fits {
        phase.error.get_or_insert_with(own_length_error);
    }
    phase.error.map_or(Ok(()), |e| Err(e.on(b.comm)))
}

// Each of these runs one collective's phase, from posting to its end. They return whether the
// program's buffers have the lengths that the call says.

/// MPI_Bcast: the root posts, the others read.
///
/// # Safety
/// The buffers must be as the call says.
#[inline]
unsafe fn bcast(phase: &mut Phase<'_, '_>, data: Piece, root: u32) -> bool {
    if phase.me == root {
        // SAFETY: the program's buffer is readable.
        let fits = unsafe { phase.write(data) };
        phase.board.post_alone(phase.signature);
        return fits;
    }
    // SAFETY: the buffer is writable.
    let fits = unsafe { phase.read(root, (0, phase.len), data) };
    phase.board.end_phase();
    fits
}

/// MPI_Scatter: the root posts all blocks, and each of the others reads its own.
///
/// # Safety
/// The buffers must be as the call says.
#[inline]
unsafe fn scatter(phase: &mut Phase<'_, '_>, call: &BoardCall, root: u32, recv: i64) -> bool {
    let (me, n) = (phase.me, phase.size);
    let output = Piece::recv(0, recv);
    if me != root {
        let len = call.len / n as usize;
        // SAFETY: the block lies within the root's data, and the buffer is writable.
        let fits = unsafe { phase.read(root, (me as usize * len, len), output) };
        phase.board.end_phase();
        return fits;
    }
    // SAFETY: the program's buffer is readable.
    let mut fits = unsafe { phase.write(call.input) };
    phase.board.post_alone(phase.signature);
    if !call.in_place {
        let each = call.input.count / i64::from(n);
        let own = phase.locate(Piece::send(i64::from(me) * each, each));
        // SAFETY: the program's buffers are readable and writable.
        fits &= unsafe { own.copy_to(&phase.locate(output)) };
    }
    fits
}

/// MPI_Gather and MPI_Reduce on the ranks that are not the root.
///
/// # Safety
/// The buffers must be as the call says.
#[inline]
unsafe fn post_to_root(phase: &mut Phase<'_, '_>, input: Piece) -> bool {
    // SAFETY: the program's buffer is readable.
    let fits = unsafe { phase.write(input) };
    phase.board.post_alone(phase.signature);
    fits
}

/// MPI_Gather on the root: it reads the others' blocks.
///
/// # Safety
/// The buffers must be as the call says.
#[inline]
unsafe fn gather_at_root(phase: &mut Phase<'_, '_>, call: &BoardCall, recv: i64) -> bool {
    let mut fits = true;
    for i in from(phase.me, phase.size) {
        let into = Piece::recv(i64::from(i) * recv, recv);
        if i != phase.me {
            // SAFETY: the buffer is writable.
            fits &= unsafe { phase.read(i, (0, call.len), into) };
        } else if !call.in_place {
            let own = phase.locate(call.input);
            // SAFETY: the program's buffers are readable and writable.
            fits &= unsafe { own.copy_to(&phase.locate(into)) };
        }
    }
    phase.board.end_phase();
    fits
}

/// MPI_Reduce on the root: it reduces the others' data with its own.
///
/// # Safety
/// The buffers must be as the call says.
#[inline]
unsafe fn reduce_at_root(phase: &mut Phase<'_, '_>, input: Piece) -> bool {
    // SAFETY: the program's buffer is readable. No other rank reads the slot in this phase.
    let mut fits = unsafe { phase.write(input) };
    let output = phase.locate(Piece::recv(0, input.count));
    // SAFETY: the buffer is writable, and no other rank reads this rank's slot.
    fits &= unsafe { fold(phase, (0, phase.size - 1), &output, 0) };
    phase.board.end_phase();
    fits
}

/// MPI_Scan and MPI_Exscan: all ranks post, and each reads from those before it.
///
/// # Safety
/// The buffers must be as the call says.
#[inline]
unsafe fn scan(phase: &mut Phase<'_, '_>, input: Piece, inclusive: bool) -> bool {
    // SAFETY: the program's buffer is readable.
    let mut fits = unsafe { phase.write(input) };
    phase.board.post(phase.signature);
    if inclusive || phase.me > 0 {
        let last = if inclusive { phase.me } else { phase.me - 1 };
        let output = phase.locate(Piece::recv(0, input.count));
        // SAFETY: the buffer is writable.
        fits &= unsafe { fold(phase, (0, last), &output, 0) };
    }
    phase.board.end_phase();
    fits
}

/// Collectives in which all ranks post, and each reads from all others.
///
/// # Safety
/// The buffers must be as the call says.
#[inline]
unsafe fn all_to_all(phase: &mut Phase<'_, '_>, call: &BoardCall) -> bool {
    let (me, n) = (phase.me, phase.size);
    // SAFETY: the program's buffer is readable.
    let mut fits = unsafe { phase.write(call.input) };
    phase.board.post(phase.signature);
    match call.op {
        BoardOp::Allgather { unit } => {
            for i in from(me, n) {
                if i != me || !call.in_place {
                    let into = Piece::recv(i64::from(i) * unit, unit);
                    // SAFETY: the buffer is writable.
                    fits &= unsafe { phase.read(i, (0, call.len), into) };
                }
            }
        }
        BoardOp::Alltoall { recv } => {
            let block = call.len / n as usize;
            for i in from(me, n) {
                let into = Piece::recv(i64::from(i) * recv, recv);
                // SAFETY: the block lies within the data, and the buffer is writable.
                fits &= unsafe { phase.read(i, (me as usize * block, block), into) };
            }
        }
        BoardOp::Allreduce => {
            let output = phase.locate(Piece::recv(0, call.input.count));
            // SAFETY: the buffer is writable.
            fits &= unsafe { fold(phase, (0, n - 1), &output, 0) };
        }
        BoardOp::ReduceScatter { own } => {
            let output = phase.locate(Piece::recv(0, own));
            let skip = me as usize * (call.len / n as usize);
            // SAFETY: the buffer is writable.
            fits &= unsafe { fold(phase, (0, n - 1), &output, skip) };
        }
        _ => (1..n).for_each(|by| phase.wait((me + by) % n)),
    }
    phase.board.end_full_phase();
    if phase.is_last && call.op == BoardOp::Barrier {
        device::yield_after_barrier();
    }
    fits
}

/// Neighbourhood collectives on a grid: posts this rank's blocks for its neighbours, waits for
/// those that it receives from, and takes its blocks from their slots.
///
/// # Safety
/// The buffers must be as the call says.
unsafe fn exchange_blocks(phase: &mut Phase<'_, '_>, exchange: &NeighbourExchange) -> bool {
    // SAFETY: the caller's promise.
    let fits = unsafe { post_and_take_blocks(phase, exchange) };
    // Of two members each waits for the other one. Of more, some may wait for few.
    match phase.size {
        2 => phase.board.end_full_phase(),
        _ => phase.board.end_phase(),
    }
    fits
}

/// [`exchange_blocks`] up to the end of the phase.
///
/// # Safety
/// The buffers must be as the call says.
unsafe fn post_and_take_blocks(phase: &mut Phase<'_, '_>, exchange: &NeighbourExchange) -> bool {
    let Ok(n) = neighbour::neighbours(phase.args.comm) else {
        return false;
    };
    let (is_alltoall, blocks) = match exchange {
        NeighbourExchange::Allgather(_) => (false, 1),
        NeighbourExchange::Alltoall(_) => (true, n.destinations.len()),
    };
    let (sent, received) = (phase.len / blocks, exchange.block().bytes as usize);
    let nth = |i: usize| if is_alltoall { i } else { 0 };
    let mut fits = true;
    phase.board.wait_free(phase.waiting_for);
    // The block of a neighbour that does not exist is not read.
    let mut existing = (0..n.destinations.len()).filter(|&i| n.destinations[i].is_some());
    let written = if is_alltoall { usize::MAX } else { 1 };
    for i in existing.by_ref().take(written) {
        let block = phase.locate(exchange.send_piece(i));
        // SAFETY: the program's buffer is readable. No other rank reads the slot until this rank
        // posts.
        fits &= unsafe { block.copy_to(&phase.data(phase.me, nth(i) * sent, sent)) };
    }
    phase.board.post(phase.signature);
    for (i, source) in n.sources.iter().enumerate() {
        let &Some(source) = source else { continue };
        // In each dimension of a grid the neighbour below sends up, and the other one down.
        let block = (nth(i ^ 1) * received, received);
        // SAFETY: the block lies within the source's data, and the buffer is writable.
        fits &= unsafe { phase.read(source, block, exchange.receive_piece(i)) };
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
    (first, last): (u32, u32),
    output: &Memory<'_>,
    skip: usize,
) -> bool {
    let (Some((op, t)), Memory::Run { address, len }) = (phase.args.reduction, output) else {
        return false;
    };
    let me = phase.me;
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

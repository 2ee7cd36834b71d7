//! What a member of a flat board does in one phase: it posts what it has for others, and takes what
//! they have posted. Blocking collectives and those in the background do the same.

use super::super::neighbour;
use super::board_call::{BoardCall, BoardOp, Posted};
use crate::Error;
use crate::coll::executor::{CollArgs, Memory, TmpBuffer};
use crate::device::{MARK_BITS, POST_MAX_BYTES, Post};
use ferry_schedule::{NeighbourExchange, Piece};

// The length of the data fits.
const _: () = assert!(POST_MAX_BYTES < 1 << LEN_BITS);
/// Bits of a signature for the length of the data.
const LEN_BITS: u32 = 12;
/// Bits of a signature for the root. A flat board has at most 8 members.
const ROOT_BITS: u32 = 4;
/// Bits of a signature for the operation's code.
const CODE_BITS: u32 = 4;
const _: () = assert!(LEN_BITS + ROOT_BITS + CODE_BITS <= MARK_BITS);

/// The signature of a call, as a member posts it with its data.
#[inline]
pub(super) fn signature_bits(posted: Posted) -> u32 {
    posted.code << (LEN_BITS + ROOT_BITS) | (posted.root & 0xf) << LEN_BITS | posted.len
}

pub(super) fn read_bits(bits: u32) -> Posted {
    Posted {
        code: bits >> (LEN_BITS + ROOT_BITS),
        root: bits >> LEN_BITS & ((1 << ROOT_BITS) - 1),
        len: bits & ((1 << LEN_BITS) - 1),
    }
}

/// A flat board in one phase.
pub(super) trait PhaseBoard {
    /// This member's slot may be written to. Blocks until then, unless the caller knows it.
    fn wait_free(&mut self);
    /// What member `i` posts.
    fn data(&self, i: u32, post: Post) -> *mut u8;
    /// This member has posted. `mark` is its signature.
    fn post(&mut self, mark: u32);
    /// This member posts, and is done with the phase: it reads nothing.
    fn post_alone(&mut self, mark: u32);
    /// Member `i` has posted: its signature, and whether it had before the call. Blocks until then,
    /// unless the caller knows it.
    fn wait_posted(&mut self, i: u32) -> (u32, bool);
    /// This member is done with the phase, in which not every member waits for all others.
    fn end_phase(&mut self);
    /// This member is done with the phase, in which it has waited for all others to post.
    fn end_full_phase(&mut self);
}

/// The phase of a collective.
pub(super) struct Phase<B> {
    pub(super) board: B,
    /// The signature that this member posts.
    signature: u32,
    /// The signature that it expects from the others.
    expected: u32,
    size: u32,
    me: u32,
    /// Bytes that this member posts, and that each of the others posts.
    len: usize,
    received: usize,
    /// All members post.
    by_all: bool,
    pub(super) error: Option<Error>,
    /// The buffers have the right lengths so far.
    pub(super) fits: bool,
    /// This member came last: each member that it waited for had already posted.
    pub(super) is_last: bool,
}

impl<B: PhaseBoard> Phase<B> {
    /// The phase of this call on this board.
    #[inline(always)]
    pub(super) fn new(board: B, call: &BoardCall, b: &CollArgs<'_>) -> Phase<B> {
        let expected = call.expected(b.root);
        Phase {
            board,
            signature: signature_bits(call.posted(b.root)),
            expected: signature_bits(expected),
            size: b.comm.size(),
            me: b.comm.rank(),
            len: call.len,
            received: expected.len as usize,
            by_all: call.op.all_post(),
            error: None,
            fits: true,
            is_last: true,
        }
    }

    /// `len` bytes of the data in slot `i`, from `skip` on.
    #[inline]
    fn data(&self, i: u32, skip: usize, len: usize) -> Memory<'static> {
        Memory::Run {
            address: self.address(i, skip),
            len,
        }
    }

    /// The address of byte `skip` of the data in slot `i`.
    #[inline]
    fn address(&self, i: u32, skip: usize) -> *mut u8 {
        let len = if i == self.me {
            self.len
        } else {
            self.received
        };
        let by_all = self.by_all;
        self.board.data(i, Post { len, by_all }).wrapping_add(skip)
    }

    /// Writes this rank's slot.
    ///
    /// # Safety
    /// The input must be readable, and `me` this rank.
    #[inline]
    unsafe fn write(&mut self, me: u32, input: &Memory<'_>) {
        self.board.wait_free();
        if self.len > 0 {
            // SAFETY: no other rank reads the slot until this rank posts.
            self.fits &= unsafe { input.copy_to(&self.data(me, 0, self.len)) };
        }
    }

    /// Waits until rank `i` has posted. Checks that its signature is this rank's.
    #[inline]
    fn wait(&mut self, i: u32) {
        let (found, before) = self.board.wait_posted(i);
        self.is_last &= before;
        if found != self.expected {
            let (own, size) = (read_bits(self.expected), self.size);
            self.error
                .get_or_insert_with(|| own.disagreement(i, Some(read_bits(found)), size));
        }
    }

    /// Posts what this rank has for others.
    ///
    /// # Safety
    /// The buffers must be as the call says.
    #[inline(always)]
    pub(super) unsafe fn post_own(&mut self, call: &BoardCall, b: &CollArgs<'_>) {
        let me = b.comm.rank();
        let mut tmp = TmpBuffer::new(0, None);
        let buffers = b.buffers();
        match call.op {
            BoardOp::Bcast { root } | BoardOp::Scatter { root, .. } if me != root => {}
            BoardOp::Gather { root, .. } if me == root => {}
            BoardOp::Exchange { exchange, .. } => {
                // SAFETY: the caller's promise.
                unsafe { self.post_blocks(b, &exchange) };
            }
            _ => {
                // SAFETY: the program's buffer is readable.
                unsafe { self.write(me, &buffers.locate(call.input, &mut tmp)) };
                match call.op {
                    BoardOp::Bcast { .. } | BoardOp::Scatter { .. } | BoardOp::Gather { .. } => {
                        self.board.post_alone(self.signature);
                    }
                    BoardOp::Reduce { root } if me != root => {
                        self.board.post_alone(self.signature);
                    }
                    // No other rank reads the root's slot.
                    BoardOp::Reduce { .. } => {}
                    _ => self.board.post(self.signature),
                }
            }
        }
    }

    /// Takes what this rank gets from others, and waits for those until they have posted.
    ///
    /// # Safety
    /// As for [`Phase::post_own`], which comes before.
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, call: &BoardCall, b: &CollArgs<'_>) {
        let (me, n) = (b.comm.rank(), b.comm.size());
        let mut tmp = TmpBuffer::new(0, None);
        let buffers = b.buffers();
        let mut locate = |p: Piece| buffers.locate(p, &mut tmp);
        match call.op {
            BoardOp::Bcast { root } if me == root => {}
            BoardOp::Gather { root, .. } | BoardOp::Reduce { root } if me != root => {}
            BoardOp::Bcast { root } => {
                self.wait(root);
                let all = self.data(root, 0, call.len);
                // SAFETY: the root has posted, and the buffer is writable.
                self.fits &= unsafe { all.copy_to(&locate(call.input)) };
                self.board.end_phase();
            }
            BoardOp::Scatter { root, .. } if me == root && call.in_place => {}
            BoardOp::Scatter { root, recv } if me == root => {
                let each = call.input.count / i64::from(n);
                let own = locate(Piece::send(i64::from(me) * each, each));
                // SAFETY: the program's buffers are readable and writable.
                self.fits &= unsafe { own.copy_to(&locate(Piece::recv(0, recv))) };
            }
            BoardOp::Scatter { root, recv } => {
                self.wait(root);
                let len = call.len / n as usize;
                let part = self.data(root, me as usize * len, len);
                // SAFETY: the root has posted, and the buffer is writable.
                self.fits &= unsafe { part.copy_to(&locate(Piece::recv(0, recv))) };
                self.board.end_phase();
            }
            BoardOp::Gather { recv, .. } => {
                for i in from(me, n) {
                    let into = locate(Piece::recv(i64::from(i) * recv, recv));
                    if i != me {
                        self.wait(i);
                        // SAFETY: rank i has posted, and the buffer is writable.
                        self.fits &= unsafe { self.data(i, 0, call.len).copy_to(&into) };
                    } else if !call.in_place {
                        // SAFETY: the program's buffers are readable and writable.
                        self.fits &= unsafe { locate(call.input).copy_to(&into) };
                    }
                }
                self.board.end_phase();
            }
            BoardOp::Exchange { exchange, .. } => {
                // SAFETY: the caller's promise.
                unsafe { self.take_blocks(b, &exchange) };
                // Of two members each waits for the other one. Of more, some may wait for few.
                match n {
                    2 => self.board.end_full_phase(),
                    _ => self.board.end_phase(),
                }
            }
            BoardOp::Reduce { .. } => {
                let output = locate(Piece::recv(0, call.input.count));
                // SAFETY: the buffer is writable, and no other rank reads this rank's slot.
                unsafe { self.fold(b, me, (0, n - 1), &output, 0) };
                self.board.end_phase();
            }
            BoardOp::Scan { inclusive } => {
                if inclusive || me > 0 {
                    let first = if inclusive { me } else { me - 1 };
                    let output = locate(Piece::recv(0, call.input.count));
                    // SAFETY: the buffer is writable.
                    unsafe { self.fold(b, me, (0, first), &output, 0) };
                }
                self.board.end_phase();
            }
            BoardOp::Allgather { unit } => {
                for i in from(me, n) {
                    if i != me {
                        self.wait(i);
                    } else if call.in_place {
                        continue;
                    }
                    let into = locate(Piece::recv(i64::from(i) * unit, unit));
                    // SAFETY: rank i has posted, and the buffer is writable.
                    self.fits &= unsafe { self.data(i, 0, call.len).copy_to(&into) };
                }
                self.board.end_full_phase();
            }
            BoardOp::Alltoall { recv } => {
                let block = call.len / n as usize;
                for i in from(me, n) {
                    if i != me {
                        self.wait(i);
                    }
                    let into = locate(Piece::recv(i64::from(i) * recv, recv));
                    let part = self.data(i, me as usize * block, block);
                    // SAFETY: rank i has posted. The block lies within its data, and the buffer is
                    // writable.
                    self.fits &= unsafe { part.copy_to(&into) };
                }
                self.board.end_full_phase();
            }
            BoardOp::Allreduce => {
                let output = locate(Piece::recv(0, call.input.count));
                // SAFETY: the buffer is writable.
                unsafe { self.fold(b, me, (0, n - 1), &output, 0) };
                self.board.end_full_phase();
            }
            BoardOp::ReduceScatter { own } => {
                let (output, len) = (locate(Piece::recv(0, own)), call.len / n as usize);
                // SAFETY: the buffer is writable.
                unsafe { self.fold(b, me, (0, n - 1), &output, me as usize * len) };
                self.board.end_full_phase();
            }
            BoardOp::Barrier => {
                (1..n).for_each(|by| self.wait((me + by) % n));
                self.board.end_full_phase();
            }
        }
    }

    /// Posts this rank's blocks for its neighbours in a grid.
    ///
    /// # Safety
    /// The buffers must be as the call says.
    unsafe fn post_blocks(&mut self, b: &CollArgs<'_>, exchange: &NeighbourExchange) {
        let Ok(n) = neighbour::neighbours(b.comm) else {
            self.fits = false;
            return;
        };
        let mut tmp = TmpBuffer::new(0, None);
        let buffers = b.buffers();
        let blocks = Blocks::of(exchange, n.destinations.len());
        let sent = self.len / blocks.count;
        self.board.wait_free();
        // The block of a neighbour that does not exist is not read.
        let mut existing = (0..n.destinations.len()).filter(|&i| n.destinations[i].is_some());
        let written = if blocks.is_alltoall { usize::MAX } else { 1 };
        for i in existing.by_ref().take(written) {
            let block = buffers.locate(exchange.send_piece(i), &mut tmp);
            let into = self.data(b.comm.rank(), blocks.nth(i) * sent, sent);
            // SAFETY: the program's buffer is readable. No other rank reads the slot until this
            // rank posts.
            self.fits &= unsafe { block.copy_to(&into) };
        }
        self.board.post(self.signature);
    }

    /// Waits for the neighbours in a grid from which this rank receives, and takes its blocks from
    /// their slots.
    ///
    /// # Safety
    /// As for [`Phase::post_blocks`].
    unsafe fn take_blocks(&mut self, b: &CollArgs<'_>, exchange: &NeighbourExchange) {
        let Ok(n) = neighbour::neighbours(b.comm) else {
            return;
        };
        let mut tmp = TmpBuffer::new(0, None);
        let buffers = b.buffers();
        let blocks = Blocks::of(exchange, n.destinations.len());
        let received = exchange.block().bytes as usize;
        let me = b.comm.rank();
        for (i, source) in n.sources.iter().enumerate() {
            let &Some(source) = source else { continue };
            if source != me {
                self.wait(source);
            }
            let into = buffers.locate(exchange.receive_piece(i), &mut tmp);
            // In each dimension of a grid the neighbour below sends up, and the other one down.
            let from = self.data(source, blocks.nth(i ^ 1) * received, received);
            // SAFETY: the source has posted. The block lies within its data, and the buffer is
            // writable.
            self.fits &= unsafe { from.copy_to(&into) };
        }
    }

    /// Waits for ranks `first` to `last`, and reduces their data into the output. Takes the bytes
    /// from `skip` on, as many as the output has. The order of operands is that of a reduction by
    /// messages: from the highest rank down.
    ///
    /// # Safety
    /// This rank must have written its slot, and the output must be writable.
    unsafe fn fold(
        &mut self,
        b: &CollArgs<'_>,
        me: u32,
        (first, last): (u32, u32),
        output: &Memory<'_>,
        skip: usize,
    ) {
        let (Some((op, t)), Memory::Run { address, len }) = (b.reduction, output) else {
            self.fits = false;
            return;
        };
        let count = *len as i64 / t.size().max(1);
        self.fits &= *len <= self.len.saturating_sub(skip);
        for i in (first..=last).rev() {
            if i != me {
                self.wait(i);
            }
            if i == last {
                // SAFETY: rank i has posted, and the output is writable.
                self.fits &= unsafe { self.data(i, skip, *len).copy_to(output) };
            } else {
                // SAFETY: rank i has posted, and the output holds `count` elements.
                unsafe { op.apply(self.address(i, skip), *address, count, t) };
            }
        }
    }
}

/// How the blocks of a neighbourhood exchange lie in a slot.
struct Blocks {
    /// Each neighbour gets a block of its own.
    is_alltoall: bool,
    count: usize,
}

impl Blocks {
    fn of(exchange: &NeighbourExchange, neighbours: usize) -> Blocks {
        let (is_alltoall, count) = match exchange {
            NeighbourExchange::Allgather(_) => (false, 1),
            NeighbourExchange::Alltoall(_) => (true, neighbours),
        };
        Blocks { is_alltoall, count }
    }

    /// The place of the block for neighbour `i`.
    fn nth(&self, i: usize) -> usize {
        if self.is_alltoall { i } else { 0 }
    }
}

/// All ranks in ring order, from this one on.
fn from(me: u32, n: u32) -> impl Iterator<Item = u32> {
    (me..n).chain(0..me)
}

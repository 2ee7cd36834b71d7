//! What a member of a flat board does in one phase: it posts what it has for others, and takes what
//! they have posted. Blocking collectives and those in the background do the same.

use super::super::neighbour;
use super::board_call::{BoardCall, BoardOp, Posted, not_posted_error};
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
    /// unless the caller knows it. `None`: it is in another call.
    fn wait_posted(&mut self, i: u32) -> Option<(u32, bool)>;
    /// This member is done with the phase, in which not every member waits for all others.
    fn end_phase(&mut self);
    /// This member is done with the phase, in which it has waited for all others to post.
    fn end_full_phase(&mut self);
}

/// The phase of a collective, as one member goes through it.
pub(super) struct Phase<'a, B> {
    pub(super) board: B,
    args: &'a CollArgs<'a>,
    /// Empty: collectives through a board need no memory of their own.
    tmp: TmpBuffer,
    /// This member's rank.
    me: u32,
    size: u32,
    /// Bytes that this member posts, and that each of the others posts.
    len: usize,
    received: usize,
    /// All members post.
    by_all: bool,
    /// The signature that this member posts.
    signature: u32,
    /// The signature that it expects from the others.
    expected: u32,
    pub(super) error: Option<Error>,
    /// The program's buffers have the lengths that the call says, so far.
    pub(super) fits: bool,
    /// This member came last: each member that it waited for had already posted.
    pub(super) is_last: bool,
}

impl<'a, B: PhaseBoard> Phase<'a, B> {
    /// The phase of this call on this board.
    #[inline(always)]
    pub(super) fn new(board: B, call: &BoardCall, args: &'a CollArgs<'a>) -> Phase<'a, B> {
        let expected = call.expected(args.root);
        Phase {
            board,
            args,
            tmp: TmpBuffer::new(0, None),
            me: args.comm.rank(),
            size: args.comm.size(),
            len: call.len,
            received: expected.len as usize,
            by_all: call.op.all_post(),
            signature: signature_bits(call.posted(args.root)),
            expected: signature_bits(expected),
            error: None,
            fits: true,
            is_last: true,
        }
    }

    /// Posts what this rank has for others.
    ///
    /// # Safety
    /// The buffers must be as the call says.
    #[inline(always)]
    pub(super) unsafe fn post_own(&mut self, call: &BoardCall) {
        match call.op {
            BoardOp::Bcast { root } | BoardOp::Scatter { root, .. } if self.me != root => {}
            BoardOp::Gather { root, .. } if self.me == root => {}
            // SAFETY: the caller's promise. No other rank reads the root's slot in this phase.
            BoardOp::Reduce { root } if self.me == root => unsafe { self.write(call.input) },
            // SAFETY: the caller's promise.
            BoardOp::Exchange { exchange, .. } => unsafe { self.post_blocks(&exchange) },
            op => {
                // SAFETY: the caller's promise.
                unsafe { self.write(call.input) };
                match op.all_post() {
                    true => self.board.post(self.signature),
                    false => self.board.post_alone(self.signature),
                }
            }
        }
    }

    /// Takes what this rank gets from others, and waits for those until they have posted.
    ///
    /// # Safety
    /// As for [`Phase::post_own`], which comes before.
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, call: &BoardCall) {
        // SAFETY: the caller's promise.
        unsafe {
            match call.op {
                BoardOp::Bcast { root } if self.me == root => {}
                BoardOp::Gather { root, .. } | BoardOp::Reduce { root } if self.me != root => {}
                BoardOp::Bcast { root } => {
                    self.read(root, (0, call.len), call.input);
                    self.board.end_phase();
                }
                BoardOp::Scatter { root, recv } => self.take_scattered(call, root, recv),
                BoardOp::Gather { recv, .. } => self.take_gathered(call, recv),
                BoardOp::Reduce { .. } => {
                    self.fold((0, self.size - 1), Piece::recv(0, call.input.count), 0);
                    self.board.end_phase();
                }
                BoardOp::Scan { inclusive } => self.take_scanned(call.input.count, inclusive),
                BoardOp::Exchange { exchange, .. } => self.take_blocks(&exchange),
                BoardOp::Barrier
                | BoardOp::Allgather { .. }
                | BoardOp::Alltoall { .. }
                | BoardOp::AlltoallInParts { .. }
                | BoardOp::Allreduce
                | BoardOp::ReduceScatter { .. } => self.take_from_all(call),
            }
        }
    }

    /// The memory of a piece of the program's buffers.
    #[inline]
    fn locate(&mut self, piece: Piece) -> Memory<'a> {
        self.args.buffers().locate(piece, &mut self.tmp)
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

    /// `len` bytes of the data in slot `i`, from `skip` on.
    #[inline]
    fn data(&self, i: u32, skip: usize, len: usize) -> Memory<'static> {
        Memory::Run {
            address: self.address(i, skip),
            len,
        }
    }

    /// Writes this rank's slot.
    ///
    /// # Safety
    /// The input must be readable.
    #[inline]
    unsafe fn write(&mut self, input: Piece) {
        let input = self.locate(input);
        self.board.wait_free();
        if self.len > 0 {
            // SAFETY: no other rank reads the slot until this rank posts.
            self.fits &= unsafe { input.copy_to(&self.data(self.me, 0, self.len)) };
        }
    }

    /// Waits until rank `i` has posted. Checks that its signature is this rank's. Returns false if
    /// it is in another call.
    #[inline]
    fn wait(&mut self, i: u32) -> bool {
        let Some((found, before)) = self.board.wait_posted(i) else {
            self.error.get_or_insert_with(not_posted_error);
            return false;
        };
        self.is_last &= before;
        if found != self.expected {
            let (own, size) = (read_bits(self.expected), self.size);
            self.error
                .get_or_insert_with(|| own.disagreement(i, Some(read_bits(found)), size));
        }
        true
    }

    /// Waits until rank `i` has posted, unless it is this rank. Copies `len` bytes of its data,
    /// from `skip` on, to a piece of the program's buffers.
    ///
    /// # Safety
    /// The bytes must lie in the data of the slot, the piece must be writable, and this rank must
    /// have written its slot if it is rank `i`.
    #[inline]
    unsafe fn read(&mut self, i: u32, (skip, len): (usize, usize), into: Piece) {
        if i != self.me && !self.wait(i) {
            return;
        }
        let into = self.locate(into);
        // SAFETY: rank i has posted. The rest is the caller's promise.
        self.fits &= unsafe { self.data(i, skip, len).copy_to(&into) };
    }

    /// Copies from one piece of the program's buffers to another.
    ///
    /// # Safety
    /// The pieces must be readable and writable.
    #[inline]
    unsafe fn copy(&mut self, from: Piece, to: Piece) {
        let (from, to) = (self.locate(from), self.locate(to));
        // SAFETY: the caller's promise.
        self.fits &= unsafe { from.copy_to(&to) };
    }

    /// MPI_Scatter: the root takes its own block, the others theirs from the root's data.
    ///
    /// # Safety
    /// As for [`Phase::take`].
    #[inline]
    unsafe fn take_scattered(&mut self, call: &BoardCall, root: u32, recv: i64) {
        let output = Piece::recv(0, recv);
        if self.me != root {
            let len = call.len / self.size as usize;
            // SAFETY: the block lies within the root's data, and the buffer is writable.
            unsafe { self.read(root, (self.me as usize * len, len), output) };
            self.board.end_phase();
        } else if !call.in_place {
            let each = call.input.count / i64::from(self.size);
            let own = Piece::send(i64::from(self.me) * each, each);
            // SAFETY: the program's buffers are readable and writable.
            unsafe { self.copy(own, output) };
        }
    }

    /// MPI_Gather on the root: it reads the others' blocks.
    ///
    /// # Safety
    /// As for [`Phase::take`].
    #[inline]
    unsafe fn take_gathered(&mut self, call: &BoardCall, recv: i64) {
        for i in from(self.me, self.size) {
            let into = Piece::recv(i64::from(i) * recv, recv);
            if i != self.me {
                // SAFETY: the buffer is writable.
                unsafe { self.read(i, (0, call.len), into) };
            } else if !call.in_place {
                // SAFETY: the program's buffers are readable and writable.
                unsafe { self.copy(call.input, into) };
            }
        }
        self.board.end_phase();
    }

    /// MPI_Scan and MPI_Exscan: each reads from those before it.
    ///
    /// # Safety
    /// As for [`Phase::take`].
    #[inline]
    unsafe fn take_scanned(&mut self, count: i64, inclusive: bool) {
        if inclusive || self.me > 0 {
            let last = if inclusive { self.me } else { self.me - 1 };
            // SAFETY: the buffer is writable.
            unsafe { self.fold((0, last), Piece::recv(0, count), 0) };
        }
        self.board.end_phase();
    }

    /// Collectives in which each reads from all others.
    ///
    /// # Safety
    /// As for [`Phase::take`].
    #[inline]
    unsafe fn take_from_all(&mut self, call: &BoardCall) {
        let (me, n) = (self.me, self.size);
        match call.op {
            BoardOp::Allgather { unit } => {
                for i in from(me, n).filter(|&i| i != me || !call.in_place) {
                    let into = Piece::recv(i64::from(i) * unit, unit);
                    // SAFETY: the buffer is writable.
                    unsafe { self.read(i, (0, call.len), into) };
                }
            }
            BoardOp::Alltoall { recv } => {
                let block = call.len / n as usize;
                for i in from(me, n) {
                    let into = Piece::recv(i64::from(i) * recv, recv);
                    // SAFETY: the block lies within the data, and the buffer is writable.
                    unsafe { self.read(i, (me as usize * block, block), into) };
                }
            }
            // SAFETY: the buffer is writable.
            BoardOp::Allreduce => unsafe {
                self.fold((0, n - 1), Piece::recv(0, call.input.count), 0);
            },
            BoardOp::ReduceScatter { own } => {
                let skip = me as usize * (call.len / n as usize);
                // SAFETY: the buffer is writable.
                unsafe { self.fold((0, n - 1), Piece::recv(0, own), skip) };
            }
            _ => {
                for by in 1..n {
                    self.wait((me + by) % n);
                }
            }
        }
        self.board.end_full_phase();
    }

    /// Neighbourhood collectives on a grid: posts this rank's blocks for its neighbours.
    ///
    /// # Safety
    /// The buffers must be as the call says.
    unsafe fn post_blocks(&mut self, exchange: &NeighbourExchange) {
        let Ok(n) = neighbour::neighbours(self.args.comm) else {
            self.fits = false;
            return;
        };
        let blocks = Blocks::of(exchange, n.destinations.len());
        let sent = self.len / blocks.count;
        self.board.wait_free();
        // The block of a neighbour that does not exist is not read.
        let mut existing = (0..n.destinations.len()).filter(|&i| n.destinations[i].is_some());
        let written = if blocks.is_alltoall { usize::MAX } else { 1 };
        for i in existing.by_ref().take(written) {
            let block = self.locate(exchange.send_piece(i));
            let into = self.data(self.me, blocks.nth(i) * sent, sent);
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
    /// As for [`Phase::take`].
    unsafe fn take_blocks(&mut self, exchange: &NeighbourExchange) {
        if let Ok(n) = neighbour::neighbours(self.args.comm) {
            let blocks = Blocks::of(exchange, n.destinations.len());
            let received = exchange.block().bytes as usize;
            for (i, source) in n.sources.iter().enumerate() {
                let &Some(source) = source else { continue };
                // In each dimension of a grid the neighbour below sends up, and the other one down.
                let block = (blocks.nth(i ^ 1) * received, received);
                // SAFETY: the block lies within the source's data, and the buffer is writable.
                unsafe { self.read(source, block, exchange.receive_piece(i)) };
            }
        }
        // Of two members each waits for the other one. Of more, some may wait for few.
        match self.size {
            2 => self.board.end_full_phase(),
            _ => self.board.end_phase(),
        }
    }

    /// Waits for ranks `first` to `last`, and reduces their data into the output. Takes the bytes
    /// from `skip` on, as many as the output has. The order of operands is that of a reduction by
    /// messages: from the highest rank down.
    ///
    /// # Safety
    /// This rank must have written its slot, and the output must be writable.
    #[inline]
    unsafe fn fold(&mut self, (first, last): (u32, u32), output: Piece, skip: usize) {
        let output = self.locate(output);
        let (Some((op, t)), &Memory::Run { address, len }) = (self.args.reduction, &output) else {
            self.fits = false;
            return;
        };
        let count = len as i64 / t.size().max(1);
        self.fits &= len <= self.len.saturating_sub(skip);
        for i in (first..=last).rev() {
            if i != self.me && !self.wait(i) {
                return;
            }
            if i == last {
                // SAFETY: rank i has posted, and the output is writable.
                self.fits &= unsafe { self.data(i, skip, len).copy_to(&output) };
            } else {
                // SAFETY: rank i has posted, and the output holds `count` elements.
                unsafe { op.apply(self.address(i, skip), address, count, t) };
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

//! The call of a collective through a board: its operation, its data and its signature.

use super::slots::stride_of;
use crate::coll::executor::{Form, Function, Name, Signature, View, mismatch, root_bits};
use crate::device::{FLAT_MAX_RANKS, PHASES, POST_MAX_BYTES, SLOT_MAX_BYTES};
use crate::{Datatype, Error, Op, err};
use ferry_schedule::{Collective, NeighbourExchange, Piece, Region, Root};
use std::sync::Arc;

/// Bytes at a slot's end for the signature of its member's call.
pub(super) const SIGNATURE_BYTES: usize = 8;

// Data that fit a flat board's slot also fit a counter board's, with their signature.
const _: () = assert!(POST_MAX_BYTES <= SLOT_MAX_BYTES - SIGNATURE_BYTES);

/// The operation of a collective through a board.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BoardOp {
    /// All ranks post and read.
    Barrier,
    Allgather {
        unit: i64,
    },
    Alltoall {
        recv: i64,
    },
    /// An alltoall whose blocks do not fit a slot, in a run of phases of a counter board. Each
    /// block has `block` bytes.
    AlltoallInParts {
        recv: i64,
        block: usize,
    },
    Allreduce,
    ReduceScatter {
        own: i64,
    },
    Scan {
        inclusive: bool,
    },
    /// All ranks post, and read from their neighbours. Each neighbour posts `received` bytes.
    Exchange {
        exchange: NeighbourExchange,
        received: u32,
    },
    /// The root posts, the others read.
    Bcast {
        root: u32,
    },
    /// The root posts. Each of the others reads its part.
    Scatter {
        root: u32,
        recv: i64,
    },
    /// All ranks but the root post, and the root reads.
    Gather {
        root: u32,
        recv: i64,
    },
    Reduce {
        root: u32,
    },
}

impl BoardOp {
    /// Returns whether only flat boards serve this operation. By messages its ranks need not wait
    /// for all others. A counter board would make them wait.
    pub(super) fn flat_only(self) -> bool {
        use BoardOp::{Exchange, Gather, Reduce, Scatter};
        matches!(
            self,
            Scatter { .. } | Gather { .. } | Reduce { .. } | Exchange { .. }
        )
    }

    /// Returns whether all ranks post.
    #[inline]
    pub(super) fn all_post(self) -> bool {
        use BoardOp::{Bcast, Gather, Reduce, Scatter};
        !matches!(
            self,
            Bcast { .. } | Scatter { .. } | Gather { .. } | Reduce { .. }
        )
    }

    /// Returns whether a communicator sets up its board for this operation. Ranks that do not wait
    /// for all others while there is no board should not do so for its sake. On a grid there is
    /// often no other operation.
    pub(super) fn sets_up(self) -> bool {
        !self.flat_only() || matches!(self, BoardOp::Exchange { .. })
    }
}

/// A collective through a board: its operation, the bytes that a rank posts, and their piece.
#[derive(Clone, Copy)]
pub(super) struct BoardCall {
    pub(super) op: BoardOp,
    pub(super) len: usize,
    pub(super) input: Piece,
    pub(super) in_place: bool,
}

/// The board call of a collective. `None`: a board does not serve it, because its data are large or
/// its operation is not predefined. All ranks must decide alike, so this depends only on arguments
/// that all ranks have in common.
pub(super) fn plan_call(
    collective: &Collective<'_>,
    me: u32,
    n: u32,
    reduction: Option<(&Arc<Op>, &Arc<Datatype>)>,
) -> Option<BoardCall> {
    match *collective {
        Collective::Barrier => BoardCall::new(BoardOp::Barrier, 0, Piece::EMPTY, false),
        Collective::Bcast {
            root: Root::Rank(root),
            bytes,
        } => {
            let data = Piece::new(Region::Packed, 0, bytes);
            BoardCall::new(BoardOp::Bcast { root }, bytes, data, false)
        }
        Collective::Allgather { block, .. }
        | Collective::Alltoall { block, .. }
        | Collective::Scatter { block, .. }
        | Collective::Gather { block, .. }
            if block.bytes <= POST_MAX_BYTES as i64 =>
        {
            plan_blocks(collective, me, i64::from(n))
        }
        Collective::Allreduce { .. }
        | Collective::ReduceScatterBlock { .. }
        | Collective::Scan { .. }
        | Collective::Exscan { .. }
        | Collective::Reduce { .. } => plan_reduction(collective, i64::from(n), reduction?),
        _ => None,
    }
}

/// [`plan_call`] of a collective that moves a block for each rank.
#[inline]
fn plan_blocks(collective: &Collective<'_>, me: u32, n: i64) -> Option<BoardCall> {
    match *collective {
        Collective::Allgather { block, in_place } => {
            let own = if in_place {
                Piece::recv(i64::from(me) * block.recv, block.recv)
            } else {
                Piece::send(0, block.send)
            };
            let op = BoardOp::Allgather { unit: block.recv };
            BoardCall::new(op, block.bytes, own, in_place)
        }
        Collective::Alltoall { block, in_place } => {
            let each = if in_place { block.recv } else { block.send };
            let all = input(each.saturating_mul(n), in_place);
            let op = BoardOp::Alltoall { recv: block.recv };
            BoardCall::new(op, block.bytes.checked_mul(n)?, all, in_place)
        }
        Collective::Scatter {
            root: Root::Rank(root),
            block,
            in_place,
        } => {
            let all = Piece::send(0, block.send.saturating_mul(n));
            let recv = block.recv;
            let op = BoardOp::Scatter { root, recv };
            BoardCall::new(op, block.bytes.checked_mul(n)?, all, in_place)
        }
        Collective::Gather {
            root: Root::Rank(root),
            block,
            in_place,
        } => {
            let own = Piece::send(0, block.send);
            let recv = block.recv;
            BoardCall::new(BoardOp::Gather { root, recv }, block.bytes, own, in_place)
        }
        _ => None,
    }
}

/// Most phases of a run. Two runs can be under way, so that a rank need not wait until all have
/// read in the one before. Longer ones were not always faster than messages
/// (docs/measured/scale.md).
const RUN_MAX_PHASES: usize = PHASES / 2;

/// The board call of an alltoall among so many ranks that no flat board serves them, whose blocks
/// do not fit one slot but those of a run of phases. `None`: it is none. All ranks decide alike.
/// Its length is that of the blocks in one slot.
#[cold]
pub(super) fn plan_in_parts(collective: &Collective<'_>, n: u32) -> Option<BoardCall> {
    let Collective::Alltoall { block, in_place } = *collective else {
        return None;
    };
    let bytes = usize::try_from(block.bytes).ok()?;
    let blocks = POST_MAX_BYTES.checked_div(bytes)?;
    let fits = n > FLAT_MAX_RANKS && n as usize <= blocks.saturating_mul(RUN_MAX_PHASES);
    let (recv, each) = (block.recv, if in_place { block.recv } else { block.send });
    fits.then_some(BoardCall {
        op: BoardOp::AlltoallInParts { recv, block: bytes },
        len: blocks * bytes,
        input: input(each.checked_mul(i64::from(n))?, in_place),
        in_place,
    })
}

/// [`plan_call`] of a reduction.
#[inline]
fn plan_reduction(
    collective: &Collective<'_>,
    n: i64,
    (operation, datatype): (&Arc<Op>, &Arc<Datatype>),
) -> Option<BoardCall> {
    let (op, of, blocks, in_place) = match *collective {
        Collective::Allreduce { of, in_place } => (BoardOp::Allreduce, of, 1, in_place),
        Collective::ReduceScatterBlock { of, in_place } => {
            (BoardOp::ReduceScatter { own: of.count }, of, n, in_place)
        }
        Collective::Scan { of, in_place } => (BoardOp::Scan { inclusive: true }, of, 1, in_place),
        Collective::Exscan { of, in_place } => {
            (BoardOp::Scan { inclusive: false }, of, 1, in_place)
        }
        Collective::Reduce {
            root: Root::Rank(root),
            of,
            in_place,
        } => (BoardOp::Reduce { root }, of, 1, in_place),
        _ => return None,
    };
    let is_predefined = operation.predefined_kind().is_some()
        && datatype.basic_kind().is_some()
        && datatype.is_dense();
    let len = of.count.checked_mul(of.element)?.checked_mul(blocks)?;
    let call = BoardCall::new(op, len, input(of.count * blocks, in_place), in_place)?;
    is_predefined.then_some(call)
}

/// `count` elements of the send buffer, or of the receive buffer in place.
fn input(count: i64, in_place: bool) -> Piece {
    if in_place {
        Piece::recv(0, count)
    } else {
        Piece::send(0, count)
    }
}

impl BoardCall {
    /// A rank posts `len` bytes. `None`: they do not fit a slot, or there are none to move.
    #[inline]
    fn new(op: BoardOp, len: i64, input: Piece, in_place: bool) -> Option<BoardCall> {
        let fits =
            (0..=POST_MAX_BYTES as i64).contains(&len) && (len > 0 || op == BoardOp::Barrier);
        fits.then_some(BoardCall {
            op,
            len: len as usize,
            input,
            in_place,
        })
    }
}

/// The board call of an exchange with `neighbours` neighbours, counted with those that do not
/// exist. `None`: a board does not serve it.
///
/// All members of a grid decide alike. By MPI 5.0 §8.6 what one sends is as long as what its
/// neighbour receives. So any two neighbours have the same two lengths, and thus all members.
pub(super) fn plan_exchange(
    exchange: &NeighbourExchange,
    neighbours: usize,
    send: &View<'_>,
) -> Option<BoardCall> {
    let View::Uniform { datatype, .. } = send else {
        return None;
    };
    let block = exchange.block();
    let blocks = match exchange {
        NeighbourExchange::Allgather(_) => 1,
        NeighbourExchange::Alltoall(_) => neighbours as i64,
    };
    let received = block.bytes.checked_mul(blocks)?;
    let sent = block
        .send
        .checked_mul(datatype.size())?
        .checked_mul(blocks)?;
    let fits = (1..=POST_MAX_BYTES as i64).contains(&sent.max(received));
    fits.then_some(BoardCall {
        op: BoardOp::Exchange {
            exchange: *exchange,
            received: received as u32,
        },
        len: sent as usize,
        input: Piece::EMPTY,
        in_place: false,
    })
}

/// The names of the operations, in the order of their codes on a board, from 1 on.
const NAMES: [Name; 14] = [
    Name::Barrier,
    Name::Allgather,
    Name::Alltoall,
    Name::Allreduce,
    Name::ReduceScatterBlock,
    Name::Scan,
    Name::Exscan,
    Name::Bcast,
    Name::Scatter,
    Name::Gather,
    Name::Reduce,
    Name::NeighborAllgather,
    Name::NeighborAlltoall,
    // In parts.
    Name::Alltoall,
];

const BCAST_CODE: u32 = 8;
const NEIGHBOR_ALLGATHER_CODE: u32 = 12;
const NEIGHBOR_ALLTOALL_CODE: u32 = 13;
const ALLTOALL_IN_PARTS_CODE: u32 = 14;

/// The signature of a rank's call on a board. All ranks must post the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Posted {
    /// Index in [`NAMES`], plus 1.
    pub(super) code: u32,
    pub(super) root: u32,
    /// Bytes of each slot; of an alltoall in parts, those of a block.
    pub(super) len: u32,
}

impl Posted {
    #[inline]
    pub(super) fn is_bcast(self) -> bool {
        self.code == BCAST_CODE
    }

    /// Bytes of data in a slot.
    #[inline]
    pub(super) fn slot_len(self) -> usize {
        let len = self.len as usize;
        match self.code {
            ALLTOALL_IN_PARTS_CODE => POST_MAX_BYTES.checked_div(len).unwrap_or(0) * len,
            _ => len,
        }
    }

    /// Bytes from one member's slot of a counter board to the next one's.
    pub(super) fn stride(self) -> usize {
        stride_of(self.slot_len())
    }

    /// Bytes that a rank of `size` ranks gives in the call.
    fn given(self, size: u32) -> usize {
        let slots = match self.code {
            ALLTOALL_IN_PARTS_CODE => size,
            _ => 1,
        };
        self.len as usize * slots as usize
    }

    /// Can a rank that posts this and one that posts `other` be in the same call? Two neighbours
    /// may send different lengths.
    pub(super) fn agrees_with(self, other: Posted) -> bool {
        let is_exchange = matches!(self.code, NEIGHBOR_ALLGATHER_CODE | NEIGHBOR_ALLTOALL_CODE);
        self == other || is_exchange && self.code == other.code
    }

    /// The signature of the call. `None`: the code is invalid.
    pub(super) fn signature(self) -> Option<Signature> {
        let name = NAMES.get((self.code as usize).checked_sub(1)?)?;
        let function = Function::new(*name, Form::Blocking);
        Some(Signature::new(function, self.root as i32))
    }

    /// The error of rank `peer` of `size`, which posted `theirs` instead of this. `None`: its
    /// signature is invalid.
    #[cold]
    pub(super) fn disagreement(self, peer: u32, theirs: Option<Posted>, size: u32) -> Error {
        let signatures = theirs.map(|t| (t.given(size), t.signature(), self.signature()));
        let len = self.given(size);
        match signatures {
            Some((_, Some(theirs), Some(own))) if theirs != own => {
                mismatch(peer, theirs, own, size)
            }
            Some((theirs, Some(_), Some(_))) => err!(
                Truncate,
                "rank {peer} takes part in this collective with {theirs} bytes, this rank with \
                 {len}: do all ranks give counts and datatypes that agree?"
            ),
            _ => err!(
                Other,
                "rank {peer} is in another collective, or has another number of bytes: do all \
                 ranks call the same collectives in the same order?"
            ),
        }
    }
}

impl BoardCall {
    /// The signature that this rank posts. `root`: the call's, which says that of an operation
    /// without root, too, where there is anything to say.
    #[inline]
    pub(super) fn posted(&self, root: i32) -> Posted {
        let (code, root) = match self.op {
            BoardOp::Barrier => (1, 0),
            BoardOp::Allgather { .. } => (2, 0),
            BoardOp::Alltoall { .. } => (3, 0),
            BoardOp::AlltoallInParts { .. } => (ALLTOALL_IN_PARTS_CODE, 0),
            BoardOp::Allreduce => (4, root_bits(root)),
            BoardOp::ReduceScatter { .. } => (5, 0),
            BoardOp::Scan { inclusive: true } => (6, 0),
            BoardOp::Scan { inclusive: false } => (7, 0),
            BoardOp::Bcast { root } => (BCAST_CODE, root),
            BoardOp::Scatter { root, .. } => (9, root),
            BoardOp::Gather { root, .. } => (10, root),
            BoardOp::Reduce { root } => (11, root),
            BoardOp::Exchange { exchange, .. } => match exchange {
                NeighbourExchange::Allgather(_) => (NEIGHBOR_ALLGATHER_CODE, 0),
                NeighbourExchange::Alltoall(_) => (NEIGHBOR_ALLTOALL_CODE, 0),
            },
        };
        let len = match self.op {
            BoardOp::AlltoallInParts { block, .. } => block,
            _ => self.len,
        };
        Posted {
            code,
            root,
            len: len as u32,
        }
    }

    /// Bytes that a rank of `size` ranks posts, in all its slots.
    pub(super) fn given(&self, size: u32) -> usize {
        self.posted(-1).given(size)
    }

    /// The signature that the ranks post whose data this rank reads.
    #[inline]
    pub(super) fn expected(&self, root: i32) -> Posted {
        let own = self.posted(root);
        match self.op {
            BoardOp::Exchange { received, .. } => Posted {
                len: received,
                ..own
            },
            _ => own,
        }
    }
}

/// The error of a rank whose own arguments contradict each other.
#[cold]
pub(super) fn own_length_error() -> Error {
    err!(
        Truncate,
        "this rank's send and receive arguments do not agree about the length of a block"
    )
}

/// The error of a rank that waits in vain: a peer is in another call.
#[cold]
pub(super) fn not_posted_error() -> Error {
    err!(
        Other,
        "a rank is not in this collective: do all ranks call the same collectives in the same \
         order?"
    )
}

#[cfg(test)]
mod tests;

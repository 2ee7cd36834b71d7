//! The call of a collective through a board: its operation, its data and its signature.

use crate::coll::executor::{Form, Function, Name, Signature, mismatch, root_bits};
use crate::device::SLOT_MAX_BYTES;
use crate::{Datatype, Error, Op, err};
use ferry_schedule::{Collective, Piece, Reduction, Region, Root};
use std::sync::Arc;

/// Bytes at a slot's end for the signature of its member's call.
pub(super) const SIGNATURE_BYTES: usize = 8;

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
    Allreduce,
    ReduceScatter {
        own: i64,
    },
    Scan {
        inclusive: bool,
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
    /// Returns whether only flat boards serve this operation. Most of its ranks only send. By
    /// messages they need not wait for each other. A counter board would make them wait.
    pub(super) fn flat_only(self) -> bool {
        use BoardOp::{Gather, Reduce, Scatter};
        matches!(self, Scatter { .. } | Gather { .. } | Reduce { .. })
    }
}

/// A collective through a board: its operation, the bytes that a rank posts, and their piece.
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
    let n = i64::from(n);
    let buffer = |count: i64, in_place: bool| {
        if in_place {
            Piece::recv(0, count)
        } else {
            Piece::send(0, count)
        }
    };
    let reduced = |of: Reduction, factor: i64, in_place: bool, op: BoardOp| {
        let (operation, t) = reduction?;
        let plain =
            operation.predefined_kind().is_some() && t.basic_kind().is_some() && t.is_dense();
        let len = of.count.checked_mul(of.element)?.checked_mul(factor)?;
        plain.then_some((op, len, buffer(of.count * factor, in_place), in_place))
    };
    let (op, len, input, in_place) = match *collective {
        Collective::Barrier => (BoardOp::Barrier, 0, Piece::EMPTY, false),
        Collective::Bcast {
            root: Root::Rank(root),
            bytes,
        } => (
            BoardOp::Bcast { root },
            bytes,
            Piece::new(Region::Packed, 0, bytes),
            false,
        ),
        Collective::Allgather { block, in_place } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let own = if in_place {
                Piece::recv(i64::from(me) * block.recv, block.recv)
            } else {
                Piece::send(0, block.send)
            };
            (
                BoardOp::Allgather { unit: block.recv },
                block.bytes,
                own,
                in_place,
            )
        }
        Collective::Alltoall { block, in_place } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let each = if in_place { block.recv } else { block.send };
            let all = buffer(each.saturating_mul(n), in_place);
            (
                BoardOp::Alltoall { recv: block.recv },
                block.bytes.checked_mul(n)?,
                all,
                in_place,
            )
        }
        Collective::Allreduce { of, in_place } => reduced(of, 1, in_place, BoardOp::Allreduce)?,
        Collective::ReduceScatterBlock { of, in_place } => {
            reduced(of, n, in_place, BoardOp::ReduceScatter { own: of.count })?
        }
        Collective::Scan { of, in_place } => {
            reduced(of, 1, in_place, BoardOp::Scan { inclusive: true })?
        }
        Collective::Exscan { of, in_place } => {
            reduced(of, 1, in_place, BoardOp::Scan { inclusive: false })?
        }
        Collective::Scatter {
            root: Root::Rank(root),
            block,
            in_place,
        } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let all = Piece::send(0, block.send.saturating_mul(n));
            let len = block.bytes.checked_mul(n)?;
            let recv = block.recv;
            (BoardOp::Scatter { root, recv }, len, all, in_place)
        }
        Collective::Gather {
            root: Root::Rank(root),
            block,
            in_place,
        } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let recv = block.recv;
            let own = Piece::send(0, block.send);
            (BoardOp::Gather { root, recv }, block.bytes, own, in_place)
        }
        Collective::Reduce {
            root: Root::Rank(root),
            of,
            in_place,
        } => reduced(of, 1, in_place, BoardOp::Reduce { root })?,
        _ => return None,
    };
    let fits = (0..=(SLOT_MAX_BYTES - SIGNATURE_BYTES) as i64).contains(&len)
        && (len > 0 || op == BoardOp::Barrier);
    fits.then_some(BoardCall {
        op,
        len: len as usize,
        input,
        in_place,
    })
}

/// The names of the operations, in the order of their codes on a board, from 1 on.
const NAMES: [Name; 11] = [
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
];

const BCAST_CODE: u32 = 8;

/// The signature of a rank's call on a board. All ranks must post the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Posted {
    /// Index in [`NAMES`], plus 1.
    pub(super) code: u32,
    pub(super) root: u32,
    /// Bytes of each slot.
    pub(super) len: u32,
}

impl Posted {
    #[inline]
    pub(super) fn is_bcast(self) -> bool {
        self.code == BCAST_CODE
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
        let signatures = theirs.map(|t| (t.len, t.signature(), self.signature()));
        let len = self.len;
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
            BoardOp::Allreduce => (4, root_bits(root)),
            BoardOp::ReduceScatter { .. } => (5, 0),
            BoardOp::Scan { inclusive: true } => (6, 0),
            BoardOp::Scan { inclusive: false } => (7, 0),
            BoardOp::Bcast { root } => (BCAST_CODE, root),
            BoardOp::Scatter { root, .. } => (9, root),
            BoardOp::Gather { root, .. } => (10, root),
            BoardOp::Reduce { root } => (11, root),
        };
        Posted {
            code,
            root,
            len: self.len as u32,
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

#[cfg(test)]
mod tests;

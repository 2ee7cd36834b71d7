//! What a rank does in a collective by board, and what it posts to say so.

use crate::device::SLOT_MAX_BYTES;
use crate::{Datatype, Error, Op, err};
use ferry_schedule::{Collective, Piece, Reduction, Region, Root};
use std::sync::Arc;

/// Bytes at a slot's end that say what was posted in it.
pub(super) const MARK: usize = 8;

/// What a rank does in a collective by board.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    /// All post and read.
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
    /// One posts, the others read.
    Bcast {
        root: u32,
    },
    /// One posts, each of the others reads its part.
    Scatter {
        root: u32,
        recv: i64,
    },
    /// All but one post, and that one reads.
    Gather {
        root: u32,
        recv: i64,
    },
    Reduce {
        root: u32,
    },
}

impl Job {
    /// Is it one for few members only?
    pub(super) fn for_few(self) -> bool {
        use Job::{Gather, Reduce, Scatter};
        matches!(self, Scatter { .. } | Gather { .. } | Reduce { .. })
    }
}

/// A collective by board: what, how many bytes a rank posts, and from where.
pub(super) struct Plan {
    pub(super) job: Job,
    pub(super) len: usize,
    pub(super) input: Piece,
    pub(super) in_place: bool,
}

/// What to do for a collective, if its data are few and its operation is nobody else's code. All
/// ranks must decide alike, so the decision is by what all ranks know.
pub(super) fn plan(
    what: &Collective<'_>,
    me: u32,
    n: u32,
    reduction: Option<(&Arc<Op>, &Arc<Datatype>)>,
) -> Option<Plan> {
    let n = i64::from(n);
    let buffer = |count: i64, in_place: bool| {
        if in_place {
            Piece::recv(0, count)
        } else {
            Piece::send(0, count)
        }
    };
    let reduced = |of: Reduction, factor: i64, in_place: bool, job: Job| {
        let (op, t) = reduction?;
        let plain = op.predefined_kind().is_some() && t.basic_kind().is_some() && t.is_dense();
        let len = of.count.checked_mul(of.element)?.checked_mul(factor)?;
        plain.then_some((job, len, buffer(of.count * factor, in_place), in_place))
    };
    let (job, len, input, in_place) = match *what {
        Collective::Barrier => (Job::Barrier, 0, Piece::EMPTY, false),
        Collective::Bcast {
            root: Root::Rank(root),
            bytes,
        } => (
            Job::Bcast { root },
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
                Job::Allgather { unit: block.recv },
                block.bytes,
                own,
                in_place,
            )
        }
        Collective::Alltoall { block, in_place } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let each = if in_place { block.recv } else { block.send };
            let all = buffer(each.saturating_mul(n), in_place);
            (
                Job::Alltoall { recv: block.recv },
                block.bytes.checked_mul(n)?,
                all,
                in_place,
            )
        }
        Collective::Allreduce { of, in_place } => reduced(of, 1, in_place, Job::Allreduce)?,
        Collective::ReduceScatterBlock { of, in_place } => {
            reduced(of, n, in_place, Job::ReduceScatter { own: of.count })?
        }
        Collective::Scan { of, in_place } => {
            reduced(of, 1, in_place, Job::Scan { inclusive: true })?
        }
        Collective::Exscan { of, in_place } => {
            reduced(of, 1, in_place, Job::Scan { inclusive: false })?
        }
        Collective::Scatter {
            root: Root::Rank(root),
            block,
            in_place,
        } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let all = Piece::send(0, block.send.saturating_mul(n));
            let len = block.bytes.checked_mul(n)?;
            let recv = block.recv;
            (Job::Scatter { root, recv }, len, all, in_place)
        }
        Collective::Gather {
            root: Root::Rank(root),
            block,
            in_place,
        } if block.bytes <= SLOT_MAX_BYTES as i64 => {
            let recv = block.recv;
            let own = Piece::send(0, block.send);
            (Job::Gather { root, recv }, block.bytes, own, in_place)
        }
        Collective::Reduce {
            root: Root::Rank(root),
            of,
            in_place,
        } => reduced(of, 1, in_place, Job::Reduce { root })?,
        _ => return None,
    };
    let fits =
        (0..=(SLOT_MAX_BYTES - MARK) as i64).contains(&len) && (len > 0 || job == Job::Barrier);
    fits.then_some(Plan {
        job,
        len: len as usize,
        input,
        in_place,
    })
}

/// A number for each collective, below 16 and not 0, and its root.
pub(super) fn kind_and_root(plan: &Plan) -> (u32, u32) {
    match plan.job {
        Job::Barrier => (1, 0),
        Job::Allgather { .. } => (2, 0),
        Job::Alltoall { .. } => (3, 0),
        Job::Allreduce => (4, 0),
        Job::ReduceScatter { .. } => (5, 0),
        Job::Scan { inclusive } => (6 + u32::from(inclusive), 0),
        Job::Bcast { root } => (8, root),
        Job::Scatter { root, .. } => (9, root),
        Job::Gather { root, .. } => (10, root),
        Job::Reduce { root } => (11, root),
    }
}

/// What stands at the end of a posted slot: which collective, its root, its length.
pub(super) fn mark(plan: &Plan) -> u64 {
    let (kind, root) = kind_and_root(plan);
    u64::from(kind) << 56 | u64::from(root & 0xff_ffff) << 32 | plan.len as u64
}

/// Rank `i` posted something else than this rank, which has `len` bytes: so many bytes, or (`None`)
/// in another collective.
#[cold]
pub(super) fn disagreement(i: u32, theirs: Option<u64>, len: usize) -> Error {
    match theirs {
        Some(theirs) => err!(
            Truncate,
            "rank {i} takes part in this collective with {theirs} bytes, this rank with {len}: do all ranks give counts and datatypes that agree?"
        ),
        None => err!(
            Other,
            "rank {i} is in another collective, or gave another root: do all ranks call the same collectives in the same order?"
        ),
    }
}

/// This rank's own arguments contradict each other.
#[cold]
pub(super) fn own_disagreement() -> Error {
    err!(
        Truncate,
        "this rank's send and receive arguments do not agree about the length of a block"
    )
}

#[cfg(test)]
mod tests;

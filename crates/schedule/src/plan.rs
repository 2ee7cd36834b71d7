//! From a collective call to one rank's schedule.

use crate::algorithm::{Algorithm, Kind};
use crate::cost::Cost;
use crate::node_map::NodeMap;
use crate::step::{Builder, Piece, Region, Schedule, Team};
use crate::{inter, intra};

/// A communicator as one rank sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommView<'a> {
    /// This rank in its (local) group.
    pub team: Team,
    /// Size of an intercommunicator's remote group; `None` for an intracommunicator.
    pub remote: Option<u32>,
    /// The nodes of an intracommunicator's ranks, if it has two levels.
    pub nodes: Option<&'a NodeMap>,
}

/// The root of a rooted collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// This rank of the group, or of the remote group of an intercommunicator.
    Rank(u32),
    /// Intercommunicator: this process (MPI_ROOT).
    This,
    /// Intercommunicator: another process of this group (MPI_PROC_NULL).
    Elsewhere,
}

/// What is reduced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reduction {
    /// Elements.
    pub count: i64,
    /// Packed bytes of an element.
    pub element: i64,
    /// Is the operation commutative?
    pub commutes: bool,
}

/// Blocks of a v-form: elements and displacements, by rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Varying<'a> {
    /// Elements.
    pub counts: &'a [i64],
    /// Displacements in elements.
    pub displs: &'a [i64],
}

/// Uniform blocks: elements of the send and the receive type that a block has, and its packed
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Elements in the send buffer, where that is significant.
    pub send: i64,
    /// Elements in the receive buffer, where that is significant.
    pub recv: i64,
    /// Packed bytes.
    pub bytes: i64,
}

/// A collective call, as one rank makes it. Counts must be given as 0 where the type has no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the arguments of the standard's functions
pub enum Collective<'a> {
    Barrier,
    /// The buffer is the receive buffer. It has `bytes` packed bytes.
    Bcast {
        root: Root,
        bytes: i64,
    },
    Reduce {
        root: Root,
        of: Reduction,
        in_place: bool,
    },
    Allreduce {
        of: Reduction,
        in_place: bool,
    },
    Gather {
        root: Root,
        block: Block,
        in_place: bool,
    },
    Gatherv {
        root: Root,
        send: i64,
        recv: Varying<'a>,
        in_place: bool,
    },
    Scatter {
        root: Root,
        block: Block,
        in_place: bool,
    },
    Scatterv {
        root: Root,
        send: Varying<'a>,
        recv: i64,
        in_place: bool,
    },
    Allgather {
        block: Block,
        in_place: bool,
    },
    /// `size`: packed bytes of an element of the receive type.
    Allgatherv {
        send: i64,
        recv: Varying<'a>,
        size: i64,
        in_place: bool,
    },
    Alltoall {
        block: Block,
        in_place: bool,
    },
    /// `size`: packed bytes of an element of the receive type.
    Alltoallv {
        send: Varying<'a>,
        recv: Varying<'a>,
        size: i64,
        in_place: bool,
    },
    /// Packed bytes of each block.
    Alltoallw {
        send: &'a [i64],
        recv: &'a [i64],
        in_place: bool,
    },
    /// `of.count` elements for each rank.
    ReduceScatterBlock {
        of: Reduction,
        in_place: bool,
    },
    /// `counts[r]` elements for rank r; `of.count` is their sum.
    ReduceScatter {
        counts: &'a [i64],
        of: Reduction,
        in_place: bool,
    },
    Scan {
        of: Reduction,
        in_place: bool,
    },
    Exscan {
        of: Reduction,
        in_place: bool,
    },
}

impl Collective<'_> {
    /// The call without borrowed counts, if it has none: a key for calls like it.
    pub fn owned(&self) -> Option<Collective<'static>> {
        Some(match *self {
            Collective::Barrier => Collective::Barrier,
            Collective::Bcast { root, bytes } => Collective::Bcast { root, bytes },
            Collective::Reduce { root, of, in_place } => Collective::Reduce { root, of, in_place },
            Collective::Allreduce { of, in_place } => Collective::Allreduce { of, in_place },
            Collective::Gather {
                root,
                block,
                in_place,
            } => Collective::Gather {
                root,
                block,
                in_place,
            },
            Collective::Scatter {
                root,
                block,
                in_place,
            } => Collective::Scatter {
                root,
                block,
                in_place,
            },
            Collective::Allgather { block, in_place } => Collective::Allgather { block, in_place },
            Collective::Alltoall { block, in_place } => Collective::Alltoall { block, in_place },
            Collective::ReduceScatterBlock { of, in_place } => {
                Collective::ReduceScatterBlock { of, in_place }
            }
            Collective::Scan { of, in_place } => Collective::Scan { of, in_place },
            Collective::Exscan { of, in_place } => Collective::Exscan { of, in_place },
            _ => return None,
        })
    }

    /// The kind by which algorithms are chosen.
    pub fn kind(&self) -> Kind {
        match self {
            Collective::Barrier => Kind::Barrier,
            Collective::Bcast { .. } => Kind::Bcast,
            Collective::Reduce { .. } => Kind::Reduce,
            Collective::Allreduce { .. } => Kind::Allreduce,
            Collective::Gather { .. } | Collective::Gatherv { .. } => Kind::Gather,
            Collective::Scatter { .. } | Collective::Scatterv { .. } => Kind::Scatter,
            Collective::Allgather { .. } => Kind::Allgather,
            Collective::Allgatherv { .. } => Kind::Allgatherv,
            Collective::Alltoall { .. }
            | Collective::Alltoallv { .. }
            | Collective::Alltoallw { .. } => Kind::Alltoall,
            Collective::ReduceScatterBlock { .. } | Collective::ReduceScatter { .. } => {
                Kind::ReduceScatter
            }
            Collective::Scan { .. } | Collective::Exscan { .. } => Kind::Scan,
        }
    }
}

/// One rank's schedule for a collective call. `forced` is the algorithm to use if it can serve the
/// call.
pub fn plan(
    view: CommView<'_>,
    call: &Collective,
    cost: &Cost,
    forced: Option<Algorithm>,
) -> Schedule {
    let mut b = Builder::default();
    match view.remote {
        None => intra::plan(&mut b, view, call, cost, forced),
        Some(remote) => inter::plan(&mut b, view.team, remote, call, cost),
    }
    b.finish()
}

/// The input of a reduction. In place means: in the receive buffer.
pub(crate) fn input(count: i64, in_place: bool) -> Piece {
    Piece::new(if in_place { Region::Recv } else { Region::Send }, 0, count)
}

/// Block r of a v-form.
pub(crate) fn at(region: Region, v: Varying, r: u32) -> Piece {
    Piece::new(region, v.displs[r as usize], v.counts[r as usize])
}

/// Where each rank's share begins, and the total.
pub(crate) fn prefix_sums(counts: &[i64]) -> Vec<i64> {
    let mut starts = Vec::with_capacity(counts.len() + 1);
    let mut sum = 0;
    for &c in counts {
        starts.push(sum);
        sum += c;
    }
    starts.push(sum);
    starts
}

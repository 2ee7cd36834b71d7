//! From a collective call to one rank's schedule.

use crate::allgather::{self, Blocks};
use crate::cost::{Algorithm, Cost, Kind, Problem};
use crate::gather::{self, Uniform};
use crate::reduce::{self, Operand};
use crate::reduce_scatter::{self, Shares};
use crate::step::{Builder, Piece, Region, Schedule, Team};
use crate::{allreduce, alltoall, barrier, bcast, inter, scan};
use std::cell::Cell;

/// A communicator as one rank sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommView {
    /// This rank in its (local) group.
    pub team: Team,
    /// Size of an intercommunicator's remote group; `None` for an intracommunicator.
    pub remote: Option<u32>,
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
pub fn plan(view: CommView, call: &Collective, cost: &Cost, forced: Option<Algorithm>) -> Schedule {
    let mut b = Builder::default();
    match view.remote {
        None => intra(&mut b, view.team, call, cost, forced),
        Some(remote) => inter::plan(&mut b, view.team, remote, call, cost),
    }
    b.finish()
}

/// The input of a reduction. In place means: in the receive buffer.
pub(crate) fn input(count: i64, in_place: bool) -> Piece {
    Piece::new(if in_place { Region::Recv } else { Region::Send }, 0, count)
}

fn intra(b: &mut Builder, t: Team, call: &Collective, cost: &Cost, forced: Option<Algorithm>) {
    let chosen = Cell::new(None);
    let choose = |bytes: i64, commutes: bool| {
        let problem = Problem {
            kind: call.kind(),
            ranks: t.size,
            bytes,
            commutes,
        };
        let algorithm = problem.choose(cost, forced);
        chosen.set(Some(algorithm));
        algorithm
    };
    let choose_reduction = |of: Reduction| choose(of.count * of.element, of.commutes);
    let operand = |of: Reduction, in_place: bool| Operand {
        input: input(of.count, in_place),
        commutes: of.commutes,
    };
    match *call {
        Collective::Barrier => match choose(0, true) {
            Algorithm::Dissemination => barrier::dissemination(b, t),
            _ => barrier::tree(b, t),
        },
        Collective::Bcast { root, bytes } => {
            let Root::Rank(root) = root else { return };
            let data = Piece::new(Region::Packed, 0, bytes);
            let segment = i64::from(cost.segment_bytes);
            match choose(bytes, true) {
                Algorithm::Flat => bcast::flat(b, t, root, data),
                Algorithm::ScatterRing => bcast::scatter_ring(b, t, root, data),
                Algorithm::ScatterDoubling => bcast::scatter_doubling(b, t, root, data),
                Algorithm::Chain => bcast::chain(b, t, root, data, segment),
                Algorithm::BinaryTree => bcast::binary_tree(b, t, root, data, segment),
                _ => bcast::binomial(b, t, root, data),
            }
        }
        Collective::Reduce { root, of, in_place } => {
            let Root::Rank(root) = root else { return };
            if of.count == 0 {
                return;
            }
            // Only the root's input can be in place.
            let x = operand(of, in_place && t.rank == root);
            let output = Piece::recv(0, of.count);
            match choose_reduction(of) {
                Algorithm::Flat => reduce::flat(b, t, root, x, output),
                Algorithm::Halving => reduce::halving(b, t, root, x, output),
                _ => reduce::binomial(b, t, root, x, output),
            }
        }
        Collective::Allreduce { of, in_place } => {
            if of.count == 0 {
                return;
            }
            let (x, output) = (operand(of, in_place), Piece::recv(0, of.count));
            match choose_reduction(of) {
                Algorithm::Halving => allreduce::halving(b, t, x, output),
                Algorithm::Ring => allreduce::ring(b, t, x, output),
                Algorithm::ReduceBcast => allreduce::reduce_bcast(b, t, x, output),
                _ => allreduce::doubling(b, t, x, output),
            }
        }
        Collective::Gather {
            root,
            block,
            in_place,
        } => {
            let Root::Rank(root) = root else { return };
            if block.bytes == 0 {
                return;
            }
            let own = (!in_place || t.rank != root).then(|| Piece::send(0, block.send));
            let whole = Piece::recv(
                0,
                if t.rank == root {
                    block.recv * i64::from(t.size)
                } else {
                    0
                },
            );
            match choose(block.bytes, true) {
                Algorithm::Flat => {
                    let at = |r: u32| Piece::recv(i64::from(r) * block.recv, block.recv);
                    gather::gather_flat(b, t, root, own, &at);
                }
                _ => {
                    let x = Uniform {
                        bytes: block.bytes,
                        whole,
                        units: block.recv,
                        own,
                    };
                    gather::gather_binomial(b, t, root, x);
                }
            }
        }
        Collective::Gatherv {
            root,
            send,
            recv,
            in_place,
        } => {
            let Root::Rank(root) = root else { return };
            let own = (!in_place || t.rank != root).then(|| Piece::send(0, send));
            gather::gather_flat(b, t, root, own, &|r| at(Region::Recv, recv, r));
        }
        Collective::Scatter {
            root,
            block,
            in_place,
        } => {
            let Root::Rank(root) = root else { return };
            if block.bytes == 0 {
                return;
            }
            let own = (!in_place || t.rank != root).then(|| Piece::recv(0, block.recv));
            let whole = Piece::send(
                0,
                if t.rank == root {
                    block.send * i64::from(t.size)
                } else {
                    0
                },
            );
            match choose(block.bytes, true) {
                Algorithm::Flat => {
                    let at = |r: u32| Piece::send(i64::from(r) * block.send, block.send);
                    gather::scatter_flat(b, t, root, own, &at);
                }
                _ => {
                    let x = Uniform {
                        bytes: block.bytes,
                        whole,
                        units: block.send,
                        own,
                    };
                    gather::scatter_binomial(b, t, root, x);
                }
            }
        }
        Collective::Scatterv {
            root,
            send,
            recv,
            in_place,
        } => {
            let Root::Rank(root) = root else { return };
            let own = (!in_place || t.rank != root).then(|| Piece::recv(0, recv));
            gather::scatter_flat(b, t, root, own, &|r| at(Region::Send, send, r));
        }
        Collective::Allgather { block, in_place } => {
            if block.bytes == 0 {
                return;
            }
            let total = block.bytes * i64::from(t.size);
            let x = Blocks {
                own: (!in_place).then(|| Piece::send(0, block.send)),
                block: &|r| Piece::recv(i64::from(r) * block.recv, block.recv),
                bytes: &|_| block.bytes,
                whole: Some(Piece::recv(0, block.recv * i64::from(t.size))),
            };
            match choose(total, true) {
                Algorithm::Doubling => allgather::doubling(b, t, x),
                Algorithm::Bruck => allgather::bruck(b, t, x),
                Algorithm::GatherBcast => allgather::gather_bcast(b, t, x, block.bytes),
                _ => allgather::ring(b, t, x),
            }
        }
        Collective::Allgatherv {
            send,
            recv,
            size,
            in_place,
        } => {
            let total = recv.counts.iter().sum::<i64>() * size;
            let x = Blocks {
                own: (!in_place).then(|| Piece::send(0, send)),
                block: &|r| at(Region::Recv, recv, r),
                bytes: &|r| recv.counts[r as usize] * size,
                whole: None,
            };
            match choose(total, true) {
                Algorithm::Bruck => allgather::bruck(b, t, x),
                _ => allgather::ring(b, t, x),
            }
        }
        Collective::Alltoall { block, in_place } => {
            if block.bytes == 0 {
                return;
            }
            let inn = |r: u32| Piece::recv(i64::from(r) * block.recv, block.recv);
            let out = |r: u32| Piece::send(i64::from(r) * block.send, block.send);
            let out: alltoall::BlockOf = if in_place { &inn } else { &out };
            match choose(block.bytes, true) {
                // Bruck's first step copies all blocks out of the buffer, so it also works in
                // place.
                Algorithm::Bruck => alltoall::bruck(b, t, out, &inn, block.bytes),
                _ if in_place => {
                    chosen.set(None);
                    alltoall::in_place(b, t, &inn, &|_| block.bytes);
                }
                Algorithm::Pairwise => alltoall::pairwise(b, t, out, &inn),
                _ => alltoall::spread(b, t, out, &inn, cost.window_peers),
            }
        }
        Collective::Alltoallv {
            send,
            recv,
            size,
            in_place,
        } => {
            let inn = |r: u32| at(Region::Recv, recv, r);
            if in_place {
                alltoall::in_place(b, t, &inn, &|r| recv.counts[r as usize] * size);
            } else {
                varying_alltoall(b, t, &|r| at(Region::Send, send, r), &inn, cost, forced);
            }
        }
        Collective::Alltoallw {
            send,
            recv,
            in_place,
        } => {
            let inn = |r: u32| Piece::new(Region::RecvBlock, i64::from(r), recv[r as usize]);
            if in_place {
                alltoall::in_place(b, t, &inn, &|r| recv[r as usize]);
            } else {
                let out = |r: u32| Piece::new(Region::SendBlock, i64::from(r), send[r as usize]);
                varying_alltoall(b, t, &out, &inn, cost, forced);
            }
        }
        Collective::ReduceScatterBlock { of, in_place } => {
            let total = Reduction {
                count: of.count * i64::from(t.size),
                ..of
            };
            let shares = Shares {
                start: &|r| i64::from(r) * of.count,
                output: Piece::recv(0, of.count),
                in_place,
            };
            let x = operand(total, in_place);
            reduce_scatter(b, t, x, shares, total, choose_reduction(total));
        }
        Collective::ReduceScatter {
            counts,
            of,
            in_place,
        } => {
            let starts = prefix_sums(counts);
            let output = Piece::recv(0, counts[t.rank as usize]);
            let shares = Shares {
                start: &|r| starts[r as usize],
                output,
                in_place,
            };
            reduce_scatter(
                b,
                t,
                operand(of, in_place),
                shares,
                of,
                choose_reduction(of),
            );
        }
        Collective::Scan { of, in_place } | Collective::Exscan { of, in_place } => {
            if of.count == 0 {
                return;
            }
            let inclusive = matches!(call, Collective::Scan { .. });
            let (x, output) = (operand(of, in_place), Piece::recv(0, of.count));
            match choose_reduction(of) {
                Algorithm::Chain => scan::chain(b, t, x, output, inclusive),
                _ => scan::doubling(b, t, x, output, inclusive),
            }
        }
    }
    b.name(chosen.get());
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

/// All-to-all, v- and w-forms. All ranks must choose alike, and each knows only its own counts. So
/// the choice depends on the number of ranks alone.
fn varying_alltoall(
    b: &mut Builder,
    t: Team,
    out: alltoall::BlockOf,
    inn: alltoall::BlockOf,
    cost: &Cost,
    forced: Option<Algorithm>,
) {
    match forced {
        Some(Algorithm::Pairwise) => alltoall::pairwise(b, t, out, inn),
        _ => alltoall::spread(b, t, out, inn, cost.window_peers),
    }
}

fn reduce_scatter(
    b: &mut Builder,
    t: Team,
    x: Operand,
    shares: Shares,
    of: Reduction,
    algorithm: Algorithm,
) {
    if of.count == 0 {
        return;
    }
    match algorithm {
        Algorithm::Halving => reduce_scatter::halving(b, t, x, shares),
        Algorithm::Pairwise => reduce_scatter::pairwise(b, t, x, shares),
        _ => reduce_scatter::reduce_scatter(b, t, x, shares),
    }
}

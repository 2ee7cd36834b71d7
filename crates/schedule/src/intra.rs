//! Collectives of an intracommunicator (MPI 5.0 §6.2.2): which algorithm makes a call's schedule,
//! and where its data lie. The algorithms are in files of their own (`bcast`, `allreduce` and so
//! on); `cost` finds the cheapest one.

use crate::algorithm::{Algorithm, Kind};
use crate::allgather::{self, Blocks};
use crate::cost::{Cost, Problem};
use crate::gather::{self, Uniform};
use crate::hierarchical::{Data, Levels};
use crate::node_map::NodeMap;
use crate::plan::{Block, Collective, CommView, Reduction, Root, Varying, at, input, prefix_sums};
use crate::reduce::{self, Operand};
use crate::reduce_scatter::{self, Shares};
use crate::step::{Builder, Piece, Region, Team, cut};
use crate::{allreduce, alltoall, barrier, bcast, scan};
use std::ops::Range;

/// Appends the steps of rank `view.team.rank` to `b`, and names the algorithm there if there was a
/// choice.
pub(crate) fn plan(
    b: &mut Builder,
    view: CommView<'_>,
    call: &Collective,
    cost: &Cost,
    forced: Option<Algorithm>,
) {
    let mut planner = Planner {
        b,
        t: view.team,
        nodes: view.nodes,
        kind: call.kind(),
        cost,
        forced,
        chosen: None,
    };
    match *call {
        Collective::Barrier => planner.barrier(),
        Collective::Bcast { root, bytes } => planner.bcast(root, bytes),
        Collective::Reduce { root, of, in_place } => planner.reduce(root, of, in_place),
        Collective::Allreduce { of, in_place } => planner.allreduce(of, in_place),
        Collective::Gather {
            root,
            block,
            in_place,
        } => planner.gather(root, block, in_place),
        Collective::Gatherv {
            root,
            send,
            recv,
            in_place,
        } => planner.gatherv(root, send, recv, in_place),
        Collective::Scatter {
            root,
            block,
            in_place,
        } => planner.scatter(root, block, in_place),
        Collective::Scatterv {
            root,
            send,
            recv,
            in_place,
        } => planner.scatterv(root, send, recv, in_place),
        Collective::Allgather { block, in_place } => planner.allgather(block, in_place),
        Collective::Allgatherv {
            send,
            recv,
            size,
            in_place,
        } => planner.allgatherv(send, recv, size, in_place),
        Collective::Alltoall { block, in_place } => planner.alltoall(block, in_place),
        Collective::Alltoallv {
            send,
            recv,
            size,
            in_place,
        } => planner.alltoallv(send, recv, size, in_place),
        Collective::Alltoallw {
            send,
            recv,
            in_place,
        } => planner.alltoallw(send, recv, in_place),
        Collective::ReduceScatterBlock { of, in_place } => {
            planner.reduce_scatter_block(of, in_place)
        }
        Collective::ReduceScatter {
            counts,
            of,
            in_place,
        } => planner.reduce_scatter(counts, of, in_place),
        Collective::Scan { of, in_place } => planner.scan(of, in_place, true),
        Collective::Exscan { of, in_place } => planner.scan(of, in_place, false),
    }
    let chosen = planner.chosen;
    b.name(chosen);
}

/// Plans one call.
struct Planner<'a> {
    b: &'a mut Builder,
    t: Team,
    /// Which ranks share a node, if that makes two levels.
    nodes: Option<&'a NodeMap>,
    kind: Kind,
    cost: &'a Cost,
    /// The algorithm that is wanted, if it can do this.
    forced: Option<Algorithm>,
    /// The algorithm of the schedule, if there was a choice.
    chosen: Option<Algorithm>,
}

/// What is reduced, from the send buffer, or from the receive buffer if it is in place.
fn operand(of: Reduction, in_place: bool) -> Operand {
    Operand {
        input: input(of.count, in_place),
        commutes: of.commutes,
    }
}

/// The same with its result and the bytes of its elements.
fn data(x: Operand, output: Piece, of: Reduction) -> Data {
    Data {
        x,
        output,
        element: of.element,
    }
}

impl<'a> Planner<'a> {
    /// The call as the choice of an algorithm sees it.
    fn problem(&self, bytes: i64, commutes: bool) -> Problem {
        Problem {
            kind: self.kind,
            ranks: self.t.size,
            bytes,
            commutes,
            nodes: self.nodes.map(NodeMap::shape),
        }
    }

    /// Chooses the algorithm for so many bytes.
    fn choose(&mut self, bytes: i64, commutes: bool) -> Algorithm {
        let problem = self.problem(bytes, commutes);
        let algorithm = problem.choose(self.cost, self.forced);
        self.chosen = Some(algorithm);
        algorithm
    }

    /// Chooses the algorithm of a reduction.
    fn choose_reduction(&mut self, of: Reduction) -> Algorithm {
        self.choose(of.count * of.element, of.commutes)
    }

    /// Elements of a segment of a reduction, if `algorithm` works in segments.
    fn segment(&self, of: Reduction, algorithm: Algorithm) -> i64 {
        let problem = self.problem(of.count * of.element, of.commutes);
        problem.segment(algorithm, self.cost, of.count)
    }

    /// The levels of the communicator, if the algorithm is the one that uses them.
    fn levels(&self, algorithm: Algorithm) -> Option<Levels<'a>> {
        let map = self
            .nodes
            .filter(|_| algorithm == Algorithm::Hierarchical)?;
        Some(Levels::new(map, self.t.rank, self.cost))
    }

    /// MPI_Barrier.
    fn barrier(&mut self) {
        let algorithm = self.choose(0, true);
        match self.levels(algorithm) {
            Some(levels) => levels.barrier(self.b),
            None => barrier::run(self.b, algorithm, self.t),
        }
    }

    /// MPI_Bcast.
    fn bcast(&mut self, root: Root, bytes: i64) {
        let t = self.t;
        let Root::Rank(root) = root else { return };
        let data = Piece::new(Region::Packed, 0, bytes);
        let algorithm = self.choose(bytes, true);
        let segment = self
            .problem(bytes, true)
            .segment(algorithm, self.cost, bytes);
        match self.levels(algorithm) {
            Some(levels) => levels.bcast(self.b, root, data, bytes),
            None => bcast::run(self.b, algorithm, t, root, data, segment),
        }
    }

    /// MPI_Reduce.
    fn reduce(&mut self, root: Root, of: Reduction, in_place: bool) {
        let t = self.t;
        let Root::Rank(root) = root else { return };
        if of.count == 0 {
            return;
        }
        // Only the root's input can be in place.
        let x = operand(of, in_place && t.rank == root);
        let output = Piece::recv(0, of.count);
        let algorithm = self.choose_reduction(of);
        match self.levels(algorithm) {
            Some(levels) => levels.reduce(self.b, root, data(x, output, of)),
            None => {
                let segment = self.segment(of, algorithm);
                reduce::run(self.b, algorithm, t, root, x, output, segment);
            }
        }
    }

    /// MPI_Allreduce.
    fn allreduce(&mut self, of: Reduction, in_place: bool) {
        let t = self.t;
        if of.count == 0 {
            return;
        }
        let (x, output) = (operand(of, in_place), Piece::recv(0, of.count));
        let algorithm = self.choose_reduction(of);
        match self.levels(algorithm) {
            Some(levels) => levels.allreduce(self.b, data(x, output, of)),
            None => allreduce::run(self.b, algorithm, t, x, output),
        }
    }

    /// MPI_Gather.
    fn gather(&mut self, root: Root, block: Block, in_place: bool) {
        let t = self.t;
        let Root::Rank(root) = root else { return };
        if block.bytes == 0 {
            return;
        }
        let x = Uniform {
            bytes: block.bytes,
            first: Piece::recv(0, block.recv),
            own: (!in_place || t.rank != root).then(|| Piece::send(0, block.send)),
        };
        match self.choose(block.bytes, true) {
            Algorithm::Flat => gather::gather_flat(self.b, t, root, x.own, &|r| x.blocks(r, 1)),
            _ => gather::gather_binomial(self.b, t, root, x),
        }
    }

    /// MPI_Gatherv.
    fn gatherv(&mut self, root: Root, send: i64, recv: Varying, in_place: bool) {
        let t = self.t;
        let Root::Rank(root) = root else { return };
        let own = (!in_place || t.rank != root).then(|| Piece::send(0, send));
        gather::gather_flat(self.b, t, root, own, &|r| at(Region::Recv, recv, r));
    }

    /// MPI_Scatter.
    fn scatter(&mut self, root: Root, block: Block, in_place: bool) {
        let t = self.t;
        let Root::Rank(root) = root else { return };
        if block.bytes == 0 {
            return;
        }
        let x = Uniform {
            bytes: block.bytes,
            first: Piece::send(0, block.send),
            own: (!in_place || t.rank != root).then(|| Piece::recv(0, block.recv)),
        };
        match self.choose(block.bytes, true) {
            Algorithm::Flat => gather::scatter_flat(self.b, t, root, x.own, &|r| x.blocks(r, 1)),
            _ => gather::scatter_binomial(self.b, t, root, x),
        }
    }

    /// MPI_Scatterv.
    fn scatterv(&mut self, root: Root, send: Varying, recv: i64, in_place: bool) {
        let t = self.t;
        let Root::Rank(root) = root else { return };
        let own = (!in_place || t.rank != root).then(|| Piece::recv(0, recv));
        gather::scatter_flat(self.b, t, root, own, &|r| at(Region::Send, send, r));
    }

    /// MPI_Allgather.
    fn allgather(&mut self, block: Block, in_place: bool) {
        let t = self.t;
        if block.bytes == 0 {
            return;
        }
        let total = block.bytes * i64::from(t.size);
        let own = (!in_place).then(|| Piece::send(0, block.send));
        let whole = Piece::recv(0, block.recv * i64::from(t.size));
        let algorithm = self.choose(total, true);
        if let Some(levels) = self.levels(algorithm) {
            return levels.allgather(self.b, own, whole, block.bytes);
        }
        let x = Blocks {
            own,
            block: &|r| Piece::recv(i64::from(r) * block.recv, block.recv),
            bytes: &|_| block.bytes,
            whole: Some(whole),
        };
        allgather::run(self.b, algorithm, t, x, block.bytes);
    }

    /// MPI_Allgatherv.
    fn allgatherv(&mut self, send: i64, recv: Varying, size: i64, in_place: bool) {
        let t = self.t;
        let total = recv.counts.iter().sum::<i64>() * size;
        let x = Blocks {
            own: (!in_place).then(|| Piece::send(0, send)),
            block: &|r| at(Region::Recv, recv, r),
            bytes: &|r| recv.counts[r as usize] * size,
            whole: None,
        };
        let algorithm = self.choose(total, true);
        allgather::run(self.b, algorithm, t, x, 0);
    }

    /// MPI_Alltoall.
    fn alltoall(&mut self, block: Block, in_place: bool) {
        let t = self.t;
        if block.bytes == 0 {
            return;
        }
        let blocks = |region, units: i64| {
            move |ranks: Range<u32>| {
                let (start, count) = (i64::from(ranks.start), ranks.len() as i64);
                Piece::new(region, start * units, count * units)
            }
        };
        let all_in = blocks(Region::Recv, block.recv);
        let all_out = match in_place {
            true => blocks(Region::Recv, block.recv),
            false => blocks(Region::Send, block.send),
        };
        let inn = |r: u32| all_in(r..r + 1);
        let out = |r: u32| all_out(r..r + 1);
        let window = self.cost.window_peers;
        let algorithm = self.choose(block.bytes, true);
        if let Some(levels) = self.levels(algorithm) {
            return levels.alltoall(self.b, &all_out, &all_in, block.bytes, window);
        }
        match algorithm {
            // Bruck's first step copies all blocks out of the buffer, so it also works in
            // place.
            Algorithm::Bruck => {
                let problem = self.problem(block.bytes, true);
                let radix = problem.bruck_radix(self.cost);
                alltoall::bruck(self.b, t, &all_out, &inn, block.bytes, radix, window);
            }
            _ if in_place => {
                self.chosen = None;
                alltoall::in_place(self.b, t, &inn, &|_| block.bytes);
            }
            Algorithm::Pairwise => alltoall::pairwise(self.b, t, &out, &inn),
            _ => alltoall::spread(self.b, t, &out, &inn, window),
        }
    }

    /// MPI_Alltoallv.
    fn alltoallv(&mut self, send: Varying, recv: Varying, size: i64, in_place: bool) {
        let t = self.t;
        let inn = |r: u32| at(Region::Recv, recv, r);
        if in_place {
            alltoall::in_place(self.b, t, &inn, &|r| recv.counts[r as usize] * size);
        } else {
            self.varying_alltoall(&|r| at(Region::Send, send, r), &inn);
        }
    }

    /// MPI_Alltoallw.
    fn alltoallw(&mut self, send: &[i64], recv: &[i64], in_place: bool) {
        let t = self.t;
        let inn = |r: u32| Piece::new(Region::RecvBlock, i64::from(r), recv[r as usize]);
        if in_place {
            alltoall::in_place(self.b, t, &inn, &|r| recv[r as usize]);
        } else {
            let out = |r: u32| Piece::new(Region::SendBlock, i64::from(r), send[r as usize]);
            self.varying_alltoall(&out, &inn);
        }
    }

    /// MPI_Reduce_scatter_block.
    fn reduce_scatter_block(&mut self, of: Reduction, in_place: bool) {
        let t = self.t;
        let total = Reduction {
            count: of.count * i64::from(t.size),
            ..of
        };
        let shares = Shares {
            start: &|r| i64::from(r) * of.count,
            is_equal: true,
            output: Piece::recv(0, of.count),
            in_place,
        };
        let x = operand(total, in_place);
        self.reduce_shares(x, shares, total);
    }

    /// MPI_Reduce_scatter.
    fn reduce_scatter(&mut self, counts: &[i64], of: Reduction, in_place: bool) {
        let t = self.t;
        let starts = prefix_sums(counts);
        let output = Piece::recv(0, counts[t.rank as usize]);
        let shares = Shares {
            start: &|r| starts[r as usize],
            is_equal: (0..t.size).all(|r| starts[r as usize] == cut(of.count, t.size, r)),
            output,
            in_place,
        };
        self.reduce_shares(operand(of, in_place), shares, of);
    }

    /// MPI_Scan and MPI_Exscan.
    fn scan(&mut self, of: Reduction, in_place: bool, inclusive: bool) {
        let t = self.t;
        if of.count == 0 {
            return;
        }
        let (x, output) = (operand(of, in_place), Piece::recv(0, of.count));
        let algorithm = self.choose_reduction(of);
        match self.levels(algorithm) {
            Some(levels) => levels.scan(self.b, data(x, output, of), inclusive),
            None => {
                let segment = self.segment(of, algorithm);
                scan::run(self.b, algorithm, t, x, output, inclusive, segment);
            }
        }
    }

    /// All-to-all, v- and w-forms. All ranks must choose alike, and each knows only its own counts.
    /// So the choice depends on the number of ranks alone.
    fn varying_alltoall(&mut self, out: alltoall::BlockOf, inn: alltoall::BlockOf) {
        match self.forced {
            Some(Algorithm::Pairwise) => alltoall::pairwise(self.b, self.t, out, inn),
            _ => alltoall::spread(self.b, self.t, out, inn, self.cost.window_peers),
        }
    }

    /// Both forms of MPI_Reduce_scatter: reduces `of`, of which each rank gets a share.
    fn reduce_shares(&mut self, x: Operand, shares: Shares, of: Reduction) {
        let algorithm = self.choose_reduction(of);
        if of.count == 0 {
            return;
        }
        match self.levels(algorithm) {
            Some(levels) => levels.reduce_scatter(self.b, x, shares, of.element),
            None => reduce_scatter::run(self.b, algorithm, self.t, x, shares),
        }
    }
}

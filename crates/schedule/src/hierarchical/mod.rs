//! Collectives in two levels: within each node, and between one rank of each, its leader (MPICH:
//! SMP-aware collectives; Open MPI: coll/han). So a node's link carries the data once, and not once
//! for each of the node's ranks. Each level uses the algorithm that is cheapest there. Large
//! reductions have no leaders, but go in stripes, one for each rank of a node. Small data of many
//! nodes go in lanes: all ranks of a node send.

mod alltoall;
mod lanes;

use crate::algorithm::{Algorithm, Kind};
use crate::allgather::{self, Blocks};
use crate::cost::{Cost, Lanes, Problem};
use crate::gather::{self, Uniform};
use crate::node_map::NodeMap;
use crate::reduce::{self, Operand};
use crate::reduce_scatter::{self, Shares};
use crate::step::{Builder, Piece, Team, cut};
use crate::{allreduce, barrier, bcast, scan};

/// Both levels as one rank sees them.
pub(crate) struct Levels<'a> {
    map: &'a NodeMap,
    /// This rank in the communicator.
    rank: u32,
    /// This rank's node.
    node: u32,
    /// The ranks of its node, ascending.
    members: Vec<u32>,
    /// This rank among them.
    node_team: Team,
    /// What messages within the node cost. Only its ranks see these figures.
    intranode: Cost,
    /// What messages between nodes cost.
    internode: &'a Cost,
}

/// A reduction's data: elements of so many bytes.
#[derive(Clone, Copy)]
pub(crate) struct Data {
    /// This rank's contribution.
    pub(crate) x: Operand,
    /// Where the result goes.
    pub(crate) output: Piece,
    /// Bytes of an element.
    pub(crate) element: i64,
}

impl Data {
    fn bytes(&self) -> i64 {
        self.x.input.count * self.element
    }
}

impl<'a> Levels<'a> {
    /// The levels of rank `rank`.
    pub(crate) fn new(map: &'a NodeMap, rank: u32, internode: &'a Cost) -> Levels<'a> {
        let node = map.node_of(rank);
        let members = map.ranks_of(node);
        let node_team = Team {
            rank: place(&members, rank),
            size: members.len() as u32,
        };
        Levels {
            map,
            rank,
            node,
            intranode: Cost::shared_memory(node_team.size, map.cores()),
            members,
            node_team,
            internode,
        }
    }

    /// This rank's node in the team of leaders.
    fn leader_team(&self) -> Team {
        Team {
            rank: self.node,
            size: self.map.shape().nodes,
        }
    }

    /// The leaders if `root` is its node's: the others are the lowest ranks of their nodes.
    fn leaders_with(&self, root: u32) -> Vec<u32> {
        let mut leaders = self.map.first_ranks().to_vec();
        leaders[self.map.node_of(root) as usize] = root;
        leaders
    }

    /// Where the ranks of a node begin, if those of each follow each other; of one beyond the last:
    /// where these end.
    fn begin(&self, node: u32) -> u32 {
        let first = self.map.first_ranks().get(node as usize);
        first.copied().unwrap_or(self.map.size())
    }

    /// The cheapest algorithm within the node.
    fn choose_intranode(&self, kind: Kind, bytes: i64, commutes: bool) -> Algorithm {
        level(kind, self.node_team.size, bytes, commutes).choose(&self.intranode, None)
    }

    /// The cheapest algorithm between nodes.
    fn choose_internode(&self, kind: Kind, bytes: i64, commutes: bool) -> Algorithm {
        let nodes = self.map.shape().nodes;
        level(kind, nodes, bytes, commutes).choose(self.internode, None)
    }

    /// Units of a segment of `count` units within the node, if `algorithm` works in segments.
    fn segment_intranode(&self, kind: Kind, algorithm: Algorithm, bytes: i64, count: i64) -> i64 {
        let level = level(kind, self.node_team.size, bytes, true);
        level.segment(algorithm, &self.intranode, count)
    }

    /// The same between nodes.
    fn segment_internode(&self, kind: Kind, algorithm: Algorithm, bytes: i64, count: i64) -> i64 {
        let level = level(kind, self.map.shape().nodes, bytes, true);
        level.segment(algorithm, self.internode, count)
    }

    /// The cheapest algorithm between nodes while all ranks of a node use its link.
    fn choose_stripe(&self, kind: Kind, bytes: i64) -> Algorithm {
        let cost = self.internode.of_shared_link(self.node_team.size);
        level(kind, self.map.shape().nodes, bytes, true).choose(&cost, None)
    }

    /// Broadcast within the node, from its member `root`.
    fn bcast_intranode(&self, b: &mut Builder, root: u32, data: Piece, bytes: i64) {
        if self.node_team.size > 1 {
            let algorithm = self.choose_intranode(Kind::Bcast, bytes, true);
            let segment = self.segment_intranode(Kind::Bcast, algorithm, bytes, data.count);
            b.sync();
            b.among(&self.members, |b| {
                bcast::run(b, algorithm, self.node_team, root, data, segment);
            });
        }
    }

    /// Reduction within the node, to its member `root`.
    fn reduce_intranode(&self, b: &mut Builder, root: u32, d: Data) {
        let algorithm = self.choose_intranode(Kind::Reduce, d.bytes(), d.x.commutes);
        let count = d.x.input.count;
        let segment = self.segment_intranode(Kind::Reduce, algorithm, d.bytes(), count);
        b.among(&self.members, |b| {
            reduce::run(b, algorithm, self.node_team, root, d.x, d.output, segment);
        });
    }

    /// MPI_Barrier.
    pub(crate) fn barrier(&self, b: &mut Builder) {
        if let Some(lanes) = self.lanes(Kind::Barrier, 0, true) {
            return self.barrier_in_lanes(b, lanes.widths[0]);
        }
        let leads = self.node_team.rank == 0;
        b.among(&self.members, |b| barrier::gather_signal(b, self.node_team));
        if leads {
            let algorithm = self.choose_internode(Kind::Barrier, 0, true);
            b.among(self.map.first_ranks(), |b| {
                barrier::run(b, algorithm, self.leader_team());
            });
            b.sync();
        }
        b.among(&self.members, |b| barrier::spread_signal(b, self.node_team));
    }

    /// MPI_Bcast of `data`, so many packed bytes, from rank `root`.
    pub(crate) fn bcast(&self, b: &mut Builder, root: u32, data: Piece, bytes: i64) {
        if let Some(lanes) = self.lanes(Kind::Bcast, bytes, true) {
            return self.bcast_in_lanes(b, root, data, bytes, lanes.widths[0]);
        }
        let leaders = self.leaders_with(root);
        let leader = leaders[self.node as usize];
        if self.rank == leader {
            let algorithm = self.choose_internode(Kind::Bcast, bytes, true);
            let segment = self.segment_internode(Kind::Bcast, algorithm, bytes, data.count);
            let root = self.map.node_of(root);
            b.among(&leaders, |b| {
                bcast::run(b, algorithm, self.leader_team(), root, data, segment);
            });
        }
        self.bcast_intranode(b, place(&self.members, leader), data, bytes);
    }

    /// MPI_Reduce to rank `root`, where alone the output is significant.
    pub(crate) fn reduce(&self, b: &mut Builder, root: u32, d: Data) {
        if let Some(lanes) = self.lanes(Kind::Reduce, d.bytes(), d.x.commutes) {
            return self.reduce_in_lanes(b, root, d, lanes.widths[0]);
        }
        let leaders = self.leaders_with(root);
        let leader = leaders[self.node as usize];
        let mut sum = d.output;
        if self.rank == leader && self.rank != root {
            sum = b.scratch(d.output.count);
        }
        let of_node = Data { output: sum, ..d };
        self.reduce_intranode(b, place(&self.members, leader), of_node);
        if self.rank == leader {
            let algorithm = self.choose_internode(Kind::Reduce, d.bytes(), d.x.commutes);
            let x = Operand { input: sum, ..d.x };
            let segment = self.segment_internode(Kind::Reduce, algorithm, d.bytes(), x.input.count);
            let root = self.map.node_of(root);
            b.sync();
            b.among(&leaders, |b| {
                let team = self.leader_team();
                reduce::run(b, algorithm, team, root, x, d.output, segment);
            });
        }
    }

    /// The problem of a call on all ranks.
    fn problem(&self, kind: Kind, bytes: i64, commutes: bool) -> Problem {
        Problem {
            kind,
            ranks: self.map.size(),
            bytes,
            commutes,
            nodes: Some(self.map.shape()),
        }
    }

    /// How a call goes in lanes, if it does.
    fn lanes(&self, kind: Kind, bytes: i64, commutes: bool) -> Option<Lanes> {
        self.problem(kind, bytes, commutes)
            .quickest_lanes(self.internode)
    }

    /// The ranks that have the same place in their nodes, which are of one size.
    fn ranks_of_place(&self) -> Vec<u32> {
        let nodes = 0..self.map.shape().nodes;
        let place = self.node_team.rank as usize;
        nodes.map(|node| self.map.ranks_of(node)[place]).collect()
    }

    /// MPI_Allreduce.
    pub(crate) fn allreduce(&self, b: &mut Builder, d: Data) {
        if let Some(lanes) = self.lanes(Kind::Allreduce, d.bytes(), d.x.commutes) {
            return self.allreduce_in_lanes(b, d, &lanes.widths);
        }
        let problem = self.problem(Kind::Allreduce, d.bytes(), d.x.commutes);
        if problem.is_striped(self.internode) {
            return self.allreduce_in_stripes(b, d);
        }
        self.reduce_intranode(b, 0, d);
        b.sync();
        if self.node_team.rank == 0 {
            let algorithm = self.choose_internode(Kind::Allreduce, d.bytes(), d.x.commutes);
            let x = Operand {
                input: d.output,
                ..d.x
            };
            b.among(self.map.first_ranks(), |b| {
                allreduce::run(b, algorithm, self.leader_team(), x, d.output);
            });
        }
        self.bcast_intranode(b, 0, d.output, d.bytes());
    }

    /// The same without leaders, for large data: each rank of a node has the sum of one part of it,
    /// which it reduces with those of the same place in other nodes. For commutative operations and
    /// nodes of one size.
    fn allreduce_in_stripes(&self, b: &mut Builder, d: Data) {
        let team = self.node_team;
        let start = |place: u32| cut(d.output.count, team.size, place);
        let part = |place: u32| d.output.part(start(place), start(place + 1) - start(place));
        let own = part(team.rank);
        let shares = Shares {
            start: &start,
            is_equal: true,
            output: own,
            in_place: d.x.input == d.output,
        };
        let algorithm = self.choose_intranode(Kind::ReduceScatter, d.bytes(), true);
        b.among(&self.members, |b| {
            reduce_scatter::run(b, algorithm, team, d.x, shares)
        });
        b.sync();
        let algorithm = self.choose_stripe(Kind::Allreduce, own.count * d.element);
        b.among(&self.ranks_of_place(), |b| {
            let x = Operand { input: own, ..d.x };
            allreduce::run(b, algorithm, self.leader_team(), x, own);
        });
        b.sync();
        let blocks = Blocks {
            own: None,
            block: &part,
            bytes: &|place| part(place).count * d.element,
            whole: None,
        };
        b.among(&self.members, |b| {
            allgather::run(b, Algorithm::Ring, team, blocks, own.count * d.element);
        });
    }

    /// MPI_Allgather into `whole`, of blocks of `bytes` packed bytes. `own`: this rank's block;
    /// `None`: it is in its place. For nodes whose ranks follow each other.
    pub(crate) fn allgather(&self, b: &mut Builder, own: Option<Piece>, whole: Piece, bytes: i64) {
        let shape = self.map.shape();
        let size = self.map.size();
        let block = whole.count / i64::from(size);
        let ranks =
            |from: u32, to: u32| whole.part(i64::from(from) * block, i64::from(to - from) * block);
        let (begin, end) = (|node| self.begin(node), |node| self.begin(node + 1));
        let leads = self.node_team.rank == 0;
        let run = ranks(begin(self.node), end(self.node));
        let in_place = || ranks(self.rank, self.rank + 1);
        let uniform = Uniform {
            bytes,
            first: run.part(0, block),
            own: own.or_else(|| (!leads).then(in_place)),
        };
        let algorithm = self.choose_intranode(Kind::Gather, bytes, true);
        b.among(&self.members, |b| match algorithm {
            Algorithm::Flat => {
                let at = |r: u32| uniform.blocks(r, 1);
                gather::gather_flat(b, self.node_team, 0, uniform.own, &at);
            }
            _ => gather::gather_binomial(b, self.node_team, 0, uniform),
        });
        b.sync();
        let total = bytes * i64::from(size);
        if leads {
            let kind = if shape.is_equal() {
                Kind::Allgather
            } else {
                Kind::Allgatherv
            };
            let algorithm = self.choose_internode(kind, total, true);
            let of_node = bytes * i64::from(shape.largest);
            let blocks = Blocks {
                own: None,
                block: &|node| ranks(begin(node), end(node)),
                bytes: &|node| bytes * i64::from(end(node) - begin(node)),
                whole: shape.is_equal().then_some(whole),
            };
            b.among(self.map.first_ranks(), |b| {
                allgather::run(b, algorithm, self.leader_team(), blocks, of_node);
            });
        }
        self.bcast_intranode(b, 0, whole, total);
    }

    /// Both forms of MPI_Reduce_scatter, of elements of so many bytes. For nodes whose ranks follow
    /// each other.
    pub(crate) fn reduce_scatter(&self, b: &mut Builder, x: Operand, shares: Shares, element: i64) {
        let problem = self.problem(Kind::ReduceScatter, x.input.count * element, x.commutes);
        if problem.is_striped(self.internode) {
            return self.reduce_scatter_in_stripes(b, x, shares, element);
        }
        let leads = self.node_team.rank == 0;
        // Only the leader has sums of others.
        let room = |b: &mut Builder, count| match leads {
            true => b.scratch(count),
            false => Piece::EMPTY,
        };
        let sum = room(b, x.input.count);
        let whole = Data {
            x,
            output: sum,
            element,
        };
        self.reduce_intranode(b, 0, whole);
        b.sync();
        let start = |node: u32| (shares.start)(self.begin(node));
        let own = room(b, start(self.node + 1) - start(self.node));
        if leads {
            let algorithm = self.choose_internode(Kind::ReduceScatter, whole.bytes(), x.commutes);
            let x = Operand { input: sum, ..x };
            let of_nodes = Shares {
                start: &start,
                is_equal: shares.is_equal && self.map.shape().is_equal(),
                output: own,
                in_place: false,
            };
            b.among(self.map.first_ranks(), |b| {
                reduce_scatter::run(b, algorithm, self.leader_team(), x, of_nodes);
            });
            b.sync();
        }
        let share = |member: u32| {
            let rank = self.begin(self.node) + member;
            let begin = (shares.start)(rank);
            own.part(begin - start(self.node), (shares.start)(rank + 1) - begin)
        };
        b.among(&self.members, |b| {
            gather::scatter_flat(b, self.node_team, 0, Some(shares.output), &share);
        });
    }

    /// The same without leaders, for large data: a stripe is what the ranks with the same place in
    /// their nodes get. The ranks of each node reduce and scatter the stripes, then those with the
    /// same place their stripe. For commutative operations and nodes of one size.
    fn reduce_scatter_in_stripes(&self, b: &mut Builder, x: Operand, shares: Shares, element: i64) {
        let nodes = self.map.shape().nodes;
        let rank = |node, place| self.begin(node) + place;
        // Stripe after stripe.
        let sorted = b.scratch(x.input.count);
        let mut starts = Vec::with_capacity(self.map.size() as usize + 1);
        let mut at = 0;
        for place in 0..self.node_team.size {
            for node in 0..nodes {
                let begin = (shares.start)(rank(node, place));
                let count = (shares.start)(rank(node, place) + 1) - begin;
                b.copy(x.input.part(begin, count), sorted.part(at, count));
                starts.push(at);
                at += count;
            }
        }
        starts.push(at);
        let stripe = |place: u32| starts[(place * nodes) as usize];
        let is_equal = shares.is_equal && at % i64::from(self.map.size()) == 0;
        let own = self.node_team.rank;
        let sum = b.scratch(stripe(own + 1) - stripe(own));
        let of_node = Shares {
            start: &stripe,
            is_equal,
            output: sum,
            in_place: false,
        };
        let algorithm = self.choose_intranode(Kind::ReduceScatter, at * element, true);
        b.among(&self.members, |b| {
            let x = Operand { input: sorted, ..x };
            reduce_scatter::run(b, algorithm, self.node_team, x, of_node);
        });
        b.sync();
        let start = |node: u32| starts[(own * nodes + node) as usize] - stripe(own);
        let of_stripe = Shares {
            start: &start,
            is_equal,
            output: shares.output,
            in_place: false,
        };
        let algorithm = self.choose_stripe(Kind::ReduceScatter, sum.count * element);
        b.among(&self.ranks_of_place(), |b| {
            let x = Operand { input: sum, ..x };
            reduce_scatter::run(b, algorithm, self.leader_team(), x, of_stripe);
        });
    }

    /// MPI_Scan (`inclusive`) and MPI_Exscan: each node for itself; then each node's last rank,
    /// which has the sum of all, gets that of the nodes before. For nodes whose ranks follow each
    /// other.
    pub(crate) fn scan(&self, b: &mut Builder, d: Data, inclusive: bool) {
        let Data { x, output, .. } = d;
        let last = self.node_team.size - 1;
        let is_last = self.node_team.rank == last;
        let sum = match (is_last, inclusive) {
            (true, false) => {
                let sum = b.scratch(output.count);
                b.copy(x.input, sum);
                sum
            }
            _ => output,
        };
        let algorithm = self.choose_intranode(Kind::Scan, d.bytes(), x.commutes);
        let segment = self.segment_intranode(Kind::Scan, algorithm, d.bytes(), output.count);
        b.among(&self.members, |b| {
            scan::run(b, algorithm, self.node_team, x, output, inclusive, segment);
        });
        b.sync();
        let before = b.scratch(output.count);
        if is_last {
            if !inclusive && last > 0 {
                b.reduce(output, sum);
            }
            let x = Operand { input: sum, ..x };
            let algorithm = self.choose_internode(Kind::Scan, d.bytes(), x.commutes);
            let segment = self.segment_internode(Kind::Scan, algorithm, d.bytes(), output.count);
            let next = self.map.first_ranks()[1..].iter().copied();
            let lasts: Vec<u32> = next.chain([self.map.size()]).map(|r| r - 1).collect();
            b.among(&lasts, |b| {
                scan::run(b, algorithm, self.leader_team(), x, before, false, segment);
            });
        }
        if self.node == 0 {
            return;
        }
        self.bcast_intranode(b, last, before, d.bytes());
        b.sync();
        if inclusive || self.node_team.rank > 0 {
            b.reduce(before, output);
        } else {
            b.copy(before, output);
        }
    }
}

/// The place of a rank among the ranks of its node, which are in ascending order.
fn place(members: &[u32], rank: u32) -> u32 {
    members.partition_point(|&r| r < rank) as u32
}

/// A call of one level.
fn level(kind: Kind, ranks: u32, bytes: i64, commutes: bool) -> Problem {
    Problem {
        kind,
        ranks,
        bytes,
        commutes,
        nodes: None,
    }
}

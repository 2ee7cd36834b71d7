//! The cost model where ranks share nodes: what crosses a node's one link, which messages stay
//! within a node, and what an algorithm in two levels takes.

use crate::algorithm::{Algorithm, Kind};
use crate::allgather::REVERSED_MIN_BYTES;
use crate::cost::load::Load;
use crate::cost::{Cost, Problem};
use crate::node_map::NodeShape;

/// What crosses the link of a node, from all its ranks, one after the other. Nothing where only one
/// rank of a node sends at a time: then the chain of messages counts it.
#[derive(Clone, Copy, Default)]
pub(crate) struct LinkLoad {
    /// Messages.
    pub(crate) messages: f64,
    /// Bytes.
    pub(crate) bytes: f64,
    /// Ranks do not wait for each other between their messages: while one has overhead, the link
    /// carries what others have sent.
    pub(crate) overlaps: bool,
}

impl Problem {
    /// What an algorithm in one level sends over a node's link.
    pub(crate) fn link_load(&self, algorithm: Algorithm, between: &Cost) -> LinkLoad {
        use Algorithm::*;
        let Some(shape) = self.nodes else {
            return LinkLoad::default();
        };
        let (n, per_node) = (f64::from(self.ranks), f64::from(shape.largest));
        let m = self.bytes as f64;
        // Rounds of recursive doubling in which partners are on two nodes, and all rounds.
        let (node_rounds, rounds) = (f64::from(shape.nodes).log2().ceil(), n.log2().ceil());
        let others = n - per_node;
        let each = |messages: f64, bytes: f64| LinkLoad {
            messages: per_node * messages,
            bytes: per_node * bytes,
            overlaps: self.kind == Kind::Alltoall && algorithm != Bruck,
        };
        match (self.kind, algorithm) {
            (Kind::Barrier, Dissemination) => each(rounds, 0.),
            (Kind::Bcast, ScatterDoubling) => each(2. * node_rounds, 2. * m / per_node),
            (Kind::Allreduce | Kind::Scan, Doubling) => each(node_rounds, node_rounds * m),
            (Kind::Allreduce | Kind::Reduce, Halving) => each(2. * node_rounds, 2. * m / per_node),
            (Kind::Allgather, Doubling) if self.bytes < REVERSED_MIN_BYTES => each(node_rounds, m),
            // The first round, too, is between nodes.
            (Kind::Allgather, Doubling) => each(node_rounds + 1., 2. * m / per_node),
            (Kind::Allgather | Kind::Allgatherv, Bruck) => each(rounds, m),
            (Kind::Alltoall, Bruck) => {
                let moved = self.bruck_moved(self.bruck_radix(between));
                each(moved.messages, moved.blocks * m)
            }
            (Kind::Alltoall, _) => each(others, others * m),
            // Otherwise ranks do not exchange the large halves with their neighbours.
            (Kind::ReduceScatter, Halving) if !self.ranks.is_power_of_two() => each(node_rounds, m),
            (Kind::ReduceScatter, Halving) => each(node_rounds + 1., 2. * m / per_node),
            (Kind::ReduceScatter, Pairwise) => each(others, others / n * m),
            // Where the ranks of a node do not follow each other, each has its children elsewhere.
            (_, TwoTrees | BinaryTree) if !shape.consecutive => each(1., m),
            _ => LinkLoad::default(),
        }
    }

    /// How many messages of the longest chain are saved, in latencies between nodes, because some
    /// stay within a node, where they are quicker.
    pub(crate) fn local_messages(&self, algorithm: Algorithm, between: &Cost) -> f64 {
        use Algorithm::*;
        let Some(shape) = self.nodes.filter(|nodes| nodes.consecutive) else {
            return 0.;
        };
        let within = Cost::shared_memory(shape.largest, u32::MAX);
        let saved = 1. - within.latency_s / between.latency_s;
        let (n, nodes) = (f64::from(self.ranks), f64::from(shape.nodes));
        // Rounds between ranks 1, 2, 4, … apart stay within nodes of such sizes.
        let local_rounds = match shape.is_equal() && shape.largest.is_power_of_two() {
            true => f64::from(shape.largest).log2(),
            false => 0.,
        };
        let local = match (self.kind, algorithm) {
            (_, Chain) | (Kind::Allgather | Kind::Allgatherv, Ring) => n - 1. - nodes,
            (Kind::Bcast, ScatterRing) => local_rounds + n - 1. - nodes,
            (Kind::Allreduce, Ring) => 2. * (n - 1. - nodes),
            (Kind::Barrier, Binomial)
            | (Kind::Bcast, ScatterDoubling)
            | (Kind::Reduce | Kind::Allreduce, Halving)
            | (Kind::Scan, BinaryTree)
            | (_, ReduceBcast | GatherBcast) => 2. * local_rounds,
            (Kind::Alltoall, _) | (_, Bruck | Dissemination | Flat) => 0.,
            (Kind::Bcast, BinaryTree) => 0.,
            (_, Binomial | Doubling | Halving | BinaryTree | TwoTrees) => local_rounds,
            _ => 0.,
        };
        (local * saved).max(0.)
    }

    /// Seconds of an algorithm in two levels, with the quickest algorithms of each.
    pub(crate) fn hierarchical_seconds(&self, between: &Cost) -> f64 {
        let lanes_s = self.lanes(between).map_or(f64::INFINITY, |l| l.seconds);
        self.leaders_seconds(between)
            .min(self.striped_seconds(between))
            .min(lanes_s)
    }

    /// Seconds of an algorithm in two levels, with leaders.
    pub(super) fn leaders_seconds(&self, between: &Cost) -> f64 {
        let Some(shape) = self.nodes else {
            return f64::INFINITY;
        };
        let within = Cost::shared_memory(shape.largest, u32::MAX);
        if self.kind == Kind::Alltoall {
            return self.hierarchical_alltoall_seconds(shape, &within, between);
        }
        let intranode = |kind, bytes| self.level_seconds(kind, shape.largest, bytes, &within);
        let block = self.bytes / i64::from(self.ranks.max(1));
        let bcast = || intranode(Kind::Bcast, self.bytes);
        let intranode_s = match self.kind {
            Kind::Bcast | Kind::Reduce => intranode(self.kind, self.bytes),
            Kind::Allgather => intranode(Kind::Gather, block) + bcast(),
            Kind::Scan => intranode(Kind::Scan, self.bytes) + bcast(),
            Kind::ReduceScatter => {
                intranode(Kind::Reduce, self.bytes) + intranode(Kind::Scatter, block)
            }
            _ => intranode(Kind::Reduce, self.bytes) + bcast(),
        };
        intranode_s + self.level_seconds(self.kind, shape.nodes, self.bytes, between)
    }

    /// Seconds of an all-to-all in two levels: a leader gathers, exchanges with its range of nodes,
    /// and spreads.
    fn hierarchical_alltoall_seconds(
        &self,
        shape: NodeShape,
        within: &Cost,
        between: &Cost,
    ) -> f64 {
        let leaders = f64::from(shape.alltoall_leaders());
        let (members, nodes) = (f64::from(shape.largest), f64::from(shape.nodes));
        let m = self.bytes as f64;
        let blocks = members * f64::from(self.ranks) / leaders;
        // Messages that do not wait for each other.
        let phase = |cost: &Cost, messages: f64, copies: f64, crossing| {
            let path = Load {
                messages: 1. + (messages - 1.).max(0.) * cost.overhead_s / cost.latency_s,
                count: messages,
                bytes: blocks * m,
                copied: blocks * m,
                ..Load::default()
            };
            cost.seconds(1., path, Load::default(), crossing) + copies * between.copy_s
        };
        let all = LinkLoad {
            messages: nodes,
            bytes: members * f64::from(self.ranks) * m,
            overlaps: false,
        };
        let on_node = (members - 1.).max(leaders);
        phase(within, on_node, leaders, LinkLoad::default())
            + phase(between, nodes / leaders, blocks / members, all)
            + phase(within, on_node, blocks, LinkLoad::default())
    }

    /// Seconds of one level, with its quickest algorithm.
    pub(super) fn level_seconds(&self, kind: Kind, ranks: u32, bytes: i64, cost: &Cost) -> f64 {
        let level = Problem {
            kind,
            ranks,
            bytes,
            nodes: None,
            ..*self
        };
        level.seconds(level.choose(cost, None), cost)
    }

    /// Does a reduce-scatter or an allreduce in two levels go in stripes, and not by leaders?
    pub(crate) fn is_striped(&self, between: &Cost) -> bool {
        self.striped_seconds(between) < self.leaders_seconds(between)
    }

    /// Seconds of a reduce-scatter or an allreduce in stripes: each node reduces and scatters all
    /// of the data, and then each stripe goes between nodes. All stripes of a node share its link.
    /// What is scattered is sorted before; what all ranks want is gathered behind. Infinite for
    /// what cannot go in stripes.
    pub(super) fn striped_seconds(&self, between: &Cost) -> f64 {
        let Some(shape) = self.nodes.filter(|s| s.is_equal() && self.commutes) else {
            return f64::INFINITY;
        };
        let within = Cost::shared_memory(shape.largest, u32::MAX);
        let m = self.bytes as f64;
        let sort_or_gather_s = match self.kind {
            Kind::ReduceScatter => f64::from(self.ranks) * between.copy_s + m * within.copy_byte_s,
            Kind::Allreduce => {
                let gather = Problem {
                    kind: Kind::Allgatherv,
                    ranks: shape.largest,
                    nodes: None,
                    ..*self
                };
                gather.seconds(Algorithm::Ring, &within)
            }
            _ => return f64::INFINITY,
        };
        let stripe = self.bytes / i64::from(shape.largest.max(1));
        let shared = between.of_shared_link(shape.largest);
        self.level_seconds(Kind::ReduceScatter, shape.largest, self.bytes, &within)
            + sort_or_gather_s
            + self.level_seconds(self.kind, shape.nodes, stripe, &shared)
    }
}

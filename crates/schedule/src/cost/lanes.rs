//! The cost model of small data in lanes ([`crate::hierarchical`]): how wide rounds are, and what
//! they take.

use crate::algorithm::{Algorithm, Kind};
use crate::cost::{Cost, Problem};
use crate::node_map::NodeShape;

/// Fewer ranks, or nodes, do not go in lanes. Choices: leaders need few rounds there, and ranks
/// that share cores lose (docs/measured/scale.md), which are rare in large jobs of many nodes.
const LANES_MIN_RANKS: u32 = 128;
const LANES_MIN_NODES: u32 = 16;

/// More rounds are no gain over leaders.
const ROUNDS_MAX: u32 = 4;

/// The lanes of a call.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lanes {
    /// With how many nodes each exchanges in a round; of a tree or a barrier: the same in each.
    pub(crate) widths: Vec<u32>,
    /// Seconds.
    pub(crate) seconds: f64,
}

impl Problem {
    /// The quickest lanes, if the call can go in lanes.
    pub(crate) fn lanes(&self, between: &Cost) -> Option<Lanes> {
        let shape = self.nodes.filter(|shape| {
            let is_large = self.ranks >= LANES_MIN_RANKS && shape.nodes >= LANES_MIN_NODES;
            is_large && shape.consecutive && shape.smallest > 1 && self.commutes
        })?;
        match self.kind {
            Kind::Barrier | Kind::Bcast | Kind::Reduce => (1..=ROUNDS_MAX)
                .map(|rounds| self.equal_lanes(shape, rounds, between))
                .min_by(|a, b| a.seconds.total_cmp(&b.seconds)),
            Kind::Allreduce => {
                let mut lanes = self.factors(shape, shape.nodes, 2, ROUNDS_MAX, between)?;
                lanes.seconds += self.add_up_seconds(shape, shape.largest);
                Some(lanes)
            }
            _ => None,
        }
    }

    /// The lanes, if they are quicker than leaders and stripes.
    pub(crate) fn quickest_lanes(&self, between: &Cost) -> Option<Lanes> {
        let others = self.leaders_seconds(between);
        let others = others.min(self.striped_seconds(between));
        self.lanes(between).filter(|l| l.seconds < others)
    }

    /// So many rounds of one width, the least that reaches all nodes.
    fn equal_lanes(&self, shape: NodeShape, rounds: u32, between: &Cost) -> Lanes {
        let nodes = u64::from(shape.nodes);
        let reached = |width: u64| match self.kind {
            Kind::Barrier => width.saturating_pow(rounds),
            _ => (0..=rounds).fold(0, |sum: u64, level| {
                sum.saturating_add(width.saturating_pow(level))
            }),
        };
        // The width is sought by halving.
        let (mut low, mut width) = (1, nodes);
        while low + 1 < width {
            let middle = low.midpoint(width);
            match reached(middle) >= nodes {
                true => width = middle,
                false => low = middle,
            }
        }
        let width = width as u32;
        let sent = if self.kind == Kind::Barrier {
            width - 1
        } else {
            width
        };
        let within = Cost::shared_memory(shape.largest, u32::MAX);
        let local_s = self.level_seconds(self.kind, shape.largest, self.bytes, &within);
        let round_s = self.round_seconds(shape, sent, between) + local_s;
        Lanes {
            widths: vec![width],
            seconds: local_s + f64::from(rounds) * round_s,
        }
    }

    /// The quickest rounds whose widths have the product `nodes`, ascending from `least` on.
    fn factors(
        &self,
        shape: NodeShape,
        nodes: u32,
        least: u32,
        rounds: u32,
        between: &Cost,
    ) -> Option<Lanes> {
        if rounds == 0 || nodes < least {
            return None;
        }
        let round_s = |width: u32| {
            let adders = width.min(shape.smallest);
            self.round_seconds(shape, width - 1, between) + self.add_up_seconds(shape, adders)
        };
        let mut best = Lanes {
            widths: vec![nodes],
            seconds: round_s(nodes),
        };
        for width in (least..).take_while(|width| width * width <= nodes) {
            if !nodes.is_multiple_of(width) {
                continue;
            }
            let rest = self.factors(shape, nodes / width, width, rounds - 1, between);
            if let Some(mut rest) = rest {
                rest.seconds += round_s(width);
                if rest.seconds < best.seconds {
                    rest.widths.push(width);
                    best = rest;
                }
            }
        }
        Some(best)
    }

    /// A round in which a node sends to so many nodes, from all its ranks.
    fn round_seconds(&self, shape: NodeShape, sent: u32, between: &Cost) -> f64 {
        let (m, sent) = (self.bytes as f64, f64::from(sent));
        let each = (sent / f64::from(shape.smallest)).ceil();
        let reduced = match self.kind {
            Kind::Reduce | Kind::Allreduce => each * m * between.reduce_byte_s,
            _ => 0.,
        };
        let crossing_s = sent * between.link_message_s.max(m * between.byte_s);
        let rendezvous_s = match self.bytes > i64::from(between.eager_max_bytes) {
            true => between.rendezvous_s,
            false => 0.,
        };
        between.latency_s
            + rendezvous_s
            + (each - 1.) * between.overhead_s
            + crossing_s.max(m * between.byte_s)
            + reduced
    }

    /// The sum of so many ranks of a node, on all of its ranks.
    fn add_up_seconds(&self, shape: NodeShape, adders: u32) -> f64 {
        let within = Cost::shared_memory(shape.largest, u32::MAX);
        let level = |kind, ranks| Problem {
            kind,
            ranks,
            nodes: None,
            ..*self
        };
        let told = shape.largest.div_ceil(adders);
        level(Kind::Allreduce, adders).seconds(Algorithm::Doubling, &within)
            + level(Kind::Bcast, told).seconds(Algorithm::Binomial, &within)
    }
}

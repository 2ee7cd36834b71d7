//! The choice among the algorithms that can serve a collective call: the quickest, by the model.

use crate::algorithm::{Algorithm, Kind};
use crate::cost::Cost;
use crate::cost::load::{Load, Loads};
use crate::node_map::NodeShape;

/// What the choice of an algorithm depends on.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Which collective.
    pub kind: Kind,
    /// Ranks.
    pub ranks: u32,
    /// Bytes: of the buffer (broadcast, reductions), of one rank's block (gather, scatter,
    /// all-to-all), or of all blocks together (allgather, reduce-scatter).
    pub bytes: i64,
    /// The reduction is commutative. True where nothing is reduced.
    pub commutes: bool,
    /// How the ranks are spread over nodes; `None`: nothing is known, or there is one level only.
    pub nodes: Option<NodeShape>,
}

impl Problem {
    /// Returns whether `algorithm` can serve the call.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        use Algorithm::*;
        self.kind.algorithms().contains(&algorithm)
            && match (self.kind, algorithm) {
                (Kind::Bcast, ScatterDoubling) | (Kind::Allgather, Doubling) => {
                    self.ranks.is_power_of_two()
                }
                (Kind::Reduce, TwoTrees) => self.commutes,
                (_, Halving | Ring)
                    if matches!(
                        self.kind,
                        Kind::Reduce | Kind::Allreduce | Kind::ReduceScatter
                    ) =>
                {
                    self.commutes
                }
                (Kind::ReduceScatter, Pairwise) => self.commutes,
                (
                    Kind::Scan | Kind::Allgather | Kind::Alltoall | Kind::ReduceScatter,
                    Hierarchical,
                ) => self.nodes.is_some_and(|nodes| nodes.consecutive),
                (_, Hierarchical) => {
                    let has_order = |nodes: NodeShape| self.commutes || nodes.consecutive;
                    self.nodes.is_some_and(has_order)
                }
                _ => true,
            }
    }

    /// Seconds that `algorithm` takes, by the model.
    pub fn seconds(&self, algorithm: Algorithm, cost: &Cost) -> f64 {
        if algorithm == Algorithm::Hierarchical {
            return self.hierarchical_seconds(cost);
        }
        let Loads { path, work } = self.loads(algorithm, cost);
        let path = Load {
            messages: path.messages - self.local_messages(algorithm, cost),
            ..path
        };
        let link = self.link_load(algorithm, cost);
        cost.seconds(f64::from(self.ranks), path, work, link)
    }

    /// Messages that all ranks together send, by the model. `None`: it has no figure.
    pub fn messages(&self, algorithm: Algorithm, cost: &Cost) -> Option<f64> {
        let in_one_level = algorithm != Algorithm::Hierarchical;
        in_one_level.then(|| self.loads(algorithm, cost).work.messages)
    }

    /// The algorithm to use: `forced` if it can serve the call, otherwise the cheapest.
    pub fn choose(&self, cost: &Cost, forced: Option<Algorithm>) -> Algorithm {
        if let Some(a) = forced.filter(|&a| self.allows(a)) {
            return a;
        }
        let mut best = (f64::INFINITY, self.kind.algorithms()[0]);
        for &a in self.kind.algorithms() {
            let is_open = self.pipeline(a).is_none() || self.may_pipeline(cost);
            if is_open && self.allows(a) {
                let s = self.seconds(a, cost);
                if s < best.0 {
                    best = (s, a);
                }
            }
        }
        best.1
    }
}

/// What the model chooses for a kind of collective on `ranks` ranks: pairs of the smallest size in
/// bytes (as in [`Problem`]) and the algorithm from there on. Sizes are 0 and powers of two up to
/// 64 MiB.
pub fn choices(kind: Kind, ranks: u32, cost: &Cost) -> Vec<(i64, Algorithm)> {
    let mut found: Vec<(i64, Algorithm)> = Vec::new();
    for bytes in std::iter::once(0).chain((0..=26).map(|i| 1 << i)) {
        let problem = Problem {
            kind,
            ranks,
            bytes,
            commutes: true,
            nodes: None,
        };
        let algorithm = problem.choose(cost, None);
        if found.last().is_none_or(|l| l.1 != algorithm) {
            found.push((bytes, algorithm));
        }
    }
    found
}

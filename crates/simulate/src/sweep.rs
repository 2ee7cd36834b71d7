//! All algorithms of a collective, each simulated, beside the one that the cost model chooses and
//! beside what no algorithm can do better than.

use crate::bound::bound;
use crate::run::{Job, Outcome, simulate};
use crate::{Error, Network};
use ferry_schedule::{
    Algorithm, Block, Collective, CommView, Cost, Kind, Problem, Reduction, Root, Team, plan,
};

/// The collectives that [`Sweep`] knows. The v-forms have the algorithms of the others.
pub const KINDS: [Kind; 10] = [
    Kind::Barrier,
    Kind::Bcast,
    Kind::Reduce,
    Kind::Allreduce,
    Kind::Gather,
    Kind::Scatter,
    Kind::Allgather,
    Kind::Alltoall,
    Kind::ReduceScatter,
    Kind::Scan,
];

/// A call of `kind`, the root being rank 0. `bytes` are those of the buffer
/// (bcast, reduce, allreduce, scan) or of the block of one rank (the others).
pub fn call_of(kind: Kind, bytes: u64) -> Collective<'static> {
    let root = Root::Rank(0);
    let in_place = false;
    let element = if bytes.is_multiple_of(8) { 8 } else { 1 };
    let of = Reduction {
        count: bytes as i64 / element,
        element,
        commutes: true,
    };
    let bytes = bytes as i64;
    let block = Block {
        send: bytes,
        recv: bytes,
        bytes,
    };
    match kind {
        Kind::Barrier => Collective::Barrier,
        Kind::Bcast => Collective::Bcast { root, bytes },
        Kind::Reduce => Collective::Reduce { root, of, in_place },
        Kind::Allreduce => Collective::Allreduce { of, in_place },
        Kind::Gather => Collective::Gather {
            root,
            block,
            in_place,
        },
        Kind::Scatter => Collective::Scatter {
            root,
            block,
            in_place,
        },
        Kind::Allgather | Kind::Allgatherv => Collective::Allgather { block, in_place },
        Kind::Alltoall => Collective::Alltoall { block, in_place },
        Kind::ReduceScatter => Collective::ReduceScatterBlock { of, in_place },
        Kind::Scan => Collective::Scan { of, in_place },
    }
}

/// One size of one collective on one number of ranks.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Which collective.
    pub kind: Kind,
    /// As in [`call_of`].
    pub bytes: u64,
    /// Ranks.
    pub ranks: u32,
    /// What the cost model chooses. `None` where there is nothing to choose.
    pub chosen: Option<Algorithm>,
    /// What each algorithm takes, or why that is not known.
    pub outcomes: Vec<(Algorithm, Result<Outcome, Error>)>,
    /// Seconds that no algorithm can do without ([`bound()`]).
    pub bound: f64,
    /// Seconds that the chosen algorithm takes by the cost model.
    pub modelled: Option<f64>,
}

impl Row {
    /// The quickest algorithm and its seconds.
    pub fn quickest(&self) -> Option<(Algorithm, f64)> {
        let known = self.outcomes.iter();
        let known = known.filter_map(|(a, o)| o.as_ref().ok().map(|o| (*a, o.seconds)));
        known.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Seconds of the chosen algorithm.
    pub fn chosen_seconds(&self) -> Option<f64> {
        let chosen = self.chosen?;
        let found = self.outcomes.iter().find(|o| o.0 == chosen)?;
        found.1.as_ref().ok().map(|o| o.seconds)
    }

    /// By how much the chosen algorithm takes longer than the quickest: 1 if it is the quickest.
    pub fn loss(&self) -> Option<f64> {
        Some(self.chosen_seconds()? / self.quickest()?.1)
    }
}

/// What is simulated.
pub struct Sweep<'a> {
    /// The network for so many nodes.
    pub network: Box<dyn Fn(u32) -> Result<Network, Error> + 'a>,
    /// Ranks on a node.
    pub per_node: u32,
    /// What messages between nodes cost.
    pub cost: Cost,
    /// The most messages of a collective that are simulated.
    pub messages_max: u64,
    /// Simulate what the cost model chooses and nothing else.
    pub only_chosen: bool,
}

impl Sweep<'_> {
    /// Simulates all algorithms of a collective, or the chosen one.
    ///
    /// Errors: Zero.
    pub fn row(&self, kind: Kind, bytes: u64, ranks: u32) -> Result<Row, Error> {
        if self.per_node == 0 {
            return Err(Error::Zero("ranks a node"));
        }
        let network = (self.network)(ranks.div_ceil(self.per_node))?;
        let job = Job {
            ranks,
            per_node: self.per_node,
            network: &network,
            cost: self.cost,
        };
        let call = call_of(kind, bytes);
        let chosen = chosen(&call, &job);
        let wanted = |a: &&Algorithm| !self.only_chosen || Some(**a) == chosen;
        let outcomes = kind.algorithms().iter().filter(wanted);
        let outcomes = outcomes.filter_map(|&algorithm| {
            let outcome = match self.is_hopeless(kind, bytes, ranks, algorithm) {
                true => Err(Error::TooManyMessages(self.messages_max)),
                false => simulate(&job, &call, Some(algorithm), self.messages_max),
            };
            let is_possible = !matches!(outcome, Err(Error::NotAllowed(_)));
            is_possible.then_some((algorithm, outcome))
        });
        Ok(Row {
            kind,
            bytes,
            ranks,
            chosen,
            outcomes: outcomes.collect(),
            bound: bound(kind, bytes, &job),
            modelled: chosen.map(|a| {
                let problem = Problem {
                    nodes: job.nodes().map(|nodes| nodes.shape()),
                    ..problem(kind, bytes, ranks)
                };
                problem.seconds(a, &self.cost)
            }),
        })
    }
}

impl Sweep<'_> {
    /// Does the cost model count more messages than may be simulated? Where data have fewer bytes
    /// than there are ranks, a ring's rounds are mostly empty, and planning them takes long.
    fn is_hopeless(&self, kind: Kind, bytes: u64, ranks: u32, algorithm: Algorithm) -> bool {
        let problem = problem(kind, bytes, ranks);
        let messages = problem.messages(algorithm, &self.cost);
        problem.allows(algorithm) && messages.is_some_and(|n| n > self.messages_max as f64)
    }
}

/// The call of [`call_of`] as the cost model sees it, in one level.
fn problem(kind: Kind, bytes: u64, ranks: u32) -> Problem {
    let of_all = match kind {
        Kind::Allgather | Kind::Allgatherv | Kind::ReduceScatter => u64::from(ranks),
        _ => 1,
    };
    Problem {
        kind,
        ranks,
        bytes: bytes.saturating_mul(of_all).min(i64::MAX as u64) as i64,
        commutes: true,
        nodes: None,
    }
}

/// The algorithm that the cost model chooses, as rank 0's schedule says it.
fn chosen(call: &Collective<'_>, job: &Job<'_>) -> Option<Algorithm> {
    let nodes = job.nodes();
    let view = CommView {
        team: Team {
            rank: 0,
            size: job.ranks,
        },
        remote: None,
        nodes: nodes.as_ref(),
    };
    plan(view, call, &job.cost, None).algorithm
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(per_node: u32) -> Sweep<'static> {
        Sweep {
            network: Box::new(|nodes| Network::fat_tree(nodes, 1)),
            per_node,
            cost: Cost::network(),
            messages_max: 200_000,
            only_chosen: false,
        }
    }

    #[test]
    fn nothing_is_quicker_than_the_bound() {
        for per_node in [1, 4] {
            for kind in KINDS {
                for bytes in [8, 4096, 1 << 20] {
                    for ranks in [2, 48, 128] {
                        let row = sweep(per_node).row(kind, bytes, ranks).unwrap();
                        let (algorithm, seconds) = row.quickest().unwrap();
                        assert!(
                            seconds >= row.bound * (1. - 1e-9),
                            "{kind:?} {bytes} B, {ranks} ranks, {per_node} a node: \
                             {algorithm:?} {seconds} s, bound {} s",
                            row.bound
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_chosen_one_alone_is_what_it_is_among_all() {
        let all = sweep(4).row(Kind::Allreduce, 4096, 128).unwrap();
        let alone = Sweep {
            only_chosen: true,
            ..sweep(4)
        };
        let alone = alone.row(Kind::Allreduce, 4096, 128).unwrap();
        assert_eq!(alone.outcomes.len(), 1);
        assert_eq!(alone.chosen_seconds(), all.chosen_seconds());
        assert!(alone.modelled.is_some_and(|s| s > alone.bound / 2.));
    }

    /// `make scale` in short: where a known algorithm comes near the bound, the chosen one does.
    #[test]
    fn what_is_chosen_stays_near_the_bound() {
        for (per_node, kind, bytes, most) in [
            (1, Kind::Bcast, 1 << 20, 2.),
            (1, Kind::Alltoall, 1024, 3.),
            (16, Kind::Barrier, 0, 2.5),
            (16, Kind::Bcast, 8, 2.5),
            (16, Kind::Reduce, 1024, 2.5),
            (16, Kind::Allreduce, 8, 3.),
        ] {
            let sweep = Sweep {
                only_chosen: true,
                ..sweep(per_node)
            };
            let row = sweep.row(kind, bytes, 512).unwrap();
            let ratio = row.chosen_seconds().unwrap() / row.bound;
            assert!(
                ratio < most,
                "{kind:?}, {bytes} B, {per_node} a node: {ratio}"
            );
        }
    }

    #[test]
    fn what_sends_too_many_messages_is_not_simulated() {
        let row = sweep(1).row(Kind::Allreduce, 1 << 20, 1024).unwrap();
        let of = |algorithm| row.outcomes.iter().find(|o| o.0 == algorithm);
        let ring = of(Algorithm::Ring).map(|o| &o.1);
        assert_eq!(ring, Some(&Err(Error::TooManyMessages(200_000))));
        assert!(of(Algorithm::Halving).is_some_and(|o| o.1.is_ok()));
    }

    #[test]
    fn algorithms_that_cannot_serve_are_left_out() {
        let row = sweep(1).row(Kind::Bcast, 4096, 6).unwrap();
        assert!(
            !row.outcomes
                .iter()
                .any(|o| o.0 == Algorithm::ScatterDoubling)
        );
    }
}

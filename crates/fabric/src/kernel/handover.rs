//! The hand-over policy: whether ranks yield or sleep while they wait for the turn, in real time.
//!
//! Where most ranks go on in each round, a waiting rank yields its core a few times before it
//! sleeps. The others run meanwhile, and mostly its turn has come when the core comes back. This
//! costs a third of sleeping and being woken. Ranks may then also be spread over several cores,
//! because nobody need be woken on another one.
//!
//! Where few ranks go on in each round, waiting ranks are in the way of those that run. They sleep,
//! on one core.
//!
//! The policy is chosen by measuring. It does not change virtual time. Figures:
//! docs/measured/machines.md.

use std::time::Duration;

/// How often a waiting rank yields before it sleeps, where most ranks go on. Chosen by
/// measurement (docs/measured/machines.md).
const RANK_YIELDS: u32 = 8;
/// How often the model yields before it sleeps, where few ranks go on. It goes on after each turn.
const MODEL_YIELDS: u32 = 2;
/// Ranks that go on in a round, for each core that they are spread over.
const RANKS_PER_CORE: u64 = 2;
/// Least number of rounds in an interval by which the policy is measured.
const INTERVAL_ROUNDS_MIN: u64 = 32;
/// Least number of turns in such an interval.
const INTERVAL_TURNS_MIN: u64 = 512;
/// After this many intervals the other policy is tried. Other jobs may have come to the cores, or
/// gone.
const RETRY_INTERVALS: u32 = 64;

/// What ranks and model do until the end of the next interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HandoverPolicy {
    /// How often a rank yields before it sleeps.
    pub yields: u32,
    /// How often the model yields before it sleeps.
    pub model_yields: u32,
    /// Cores that the ranks are spread over.
    pub cores: u32,
}

impl HandoverPolicy {
    const SLEEPING: HandoverPolicy = HandoverPolicy {
        yields: 0,
        model_yields: MODEL_YIELDS,
        cores: 1,
    };
}

/// Chooses the policy, interval by interval.
pub(super) struct PolicySelector {
    ranks: u64,
    /// Cores that ranks may be spread over. Zero: their placement is not the model's business, and
    /// they sleep.
    cores: u32,
    policy: HandoverPolicy,
    /// Turns and rounds of the current interval.
    turns: u64,
    rounds: u64,
    /// Real time of a turn in the last interval in which ranks slept.
    sleeping: Option<Duration>,
    /// Real time of a turn in the last interval in which ranks yielded.
    yielding: Option<Duration>,
    intervals: u32,
}

impl PolicySelector {
    /// For `ranks` ranks, which may be spread over `cores` cores.
    pub fn new(ranks: u32, cores: u32) -> PolicySelector {
        PolicySelector {
            ranks: ranks.into(),
            cores,
            policy: HandoverPolicy {
                model_yields: if cores == 0 { 0 } else { MODEL_YIELDS },
                ..HandoverPolicy::SLEEPING
            },
            turns: 0,
            rounds: 0,
            sleeping: None,
            yielding: None,
            intervals: 0,
        }
    }

    /// The current policy.
    pub fn current(&self) -> HandoverPolicy {
        self.policy
    }

    /// Counts a round in which this many ranks have the turn. Returns whether the interval is
    /// complete; then [`PolicySelector::select`] is to be called.
    pub fn count_round(&mut self, turns: u64) -> bool {
        self.turns += turns;
        self.rounds += 1;
        self.cores > 0 && self.rounds >= INTERVAL_ROUNDS_MIN && self.turns >= INTERVAL_TURNS_MIN
    }

    /// Ends an interval that took this long. Returns the policy of the next one.
    pub fn select(&mut self, took: Duration) -> HandoverPolicy {
        let turn = Some(took / self.turns.min(u32::MAX.into()) as u32);
        let turns_per_round = self.turns / self.rounds;
        let most_go_on = 2 * self.turns >= self.ranks * self.rounds;
        (self.turns, self.rounds) = (0, 0);
        if self.policy.yields > 0 {
            self.yielding = turn;
        } else {
            self.sleeping = turn;
        }
        if !most_go_on {
            (self.yielding, self.intervals) = (None, 0);
            self.policy = HandoverPolicy::SLEEPING;
            return self.policy;
        }
        self.intervals += 1;
        let mut yields = match (self.sleeping, self.yielding) {
            (Some(sleeping), Some(yielding)) => yielding <= sleeping,
            (_, yielding) => yielding.is_none(),
        };
        if self.intervals.is_multiple_of(RETRY_INTERVALS) {
            yields = !yields;
        }
        self.policy = match yields {
            true => HandoverPolicy {
                yields: RANK_YIELDS,
                model_yields: RANK_YIELDS,
                cores: (turns_per_round / RANKS_PER_CORE).clamp(1, self.cores.into()) as u32,
            },
            false => HandoverPolicy::SLEEPING,
        };
        self.policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(c: &mut PolicySelector, each: u64, turn: u64) -> HandoverPolicy {
        let mut turns = 0;
        loop {
            turns += each;
            if c.count_round(each) {
                return c.select(Duration::from_nanos(turn * turns));
            }
        }
    }

    #[test]
    fn ranks_that_all_go_on_yield_and_are_spread() {
        let mut c = PolicySelector::new(64, 2);
        assert_eq!(c.current(), HandoverPolicy::SLEEPING);
        let together = interval(&mut c, 64, 9000);
        assert_eq!((together.yields, together.cores), (RANK_YIELDS, 2));
        assert_eq!(interval(&mut c, 64, 4000), together);
        // Few go on: at once.
        assert_eq!(interval(&mut c, 3, 4000), HandoverPolicy::SLEEPING);
        assert_eq!(interval(&mut c, 3, 4000), HandoverPolicy::SLEEPING);
        assert_eq!(interval(&mut c, 40, 9000), together);
        // Two take turns on one core.
        let mut c = PolicySelector::new(2, 2);
        assert_eq!(interval(&mut c, 1, 5000).cores, 1);
        assert_eq!(c.current().yields, RANK_YIELDS);
    }

    #[test]
    fn the_quicker_policy_is_kept_and_the_other_retried() {
        let mut c = PolicySelector::new(16, 2);
        let turn = |m: HandoverPolicy, crowded: bool| match (m.yields > 0, crowded) {
            (true, false) => 3000,
            (true, true) => 90_000,
            (false, _) => 9000,
        };
        for crowded in [false, true, false] {
            // Until the change has been noticed.
            for _ in 0..2 * RETRY_INTERVALS {
                let now = turn(c.current(), crowded);
                interval(&mut c, 16, now);
            }
            let mut yielded = 0;
            for _ in 0..RETRY_INTERVALS {
                let now = turn(c.current(), crowded);
                yielded += u32::from(interval(&mut c, 16, now).yields > 0);
            }
            let most = RETRY_INTERVALS - 2;
            let fits = if crowded {
                yielded <= 2
            } else {
                yielded >= most
            };
            assert!(fits, "crowded {crowded}: {yielded} of {RETRY_INTERVALS}");
        }
    }

    #[test]
    fn ranks_bound_by_others_sleep() {
        let mut c = PolicySelector::new(4, 0);
        assert!(!(0..10_000).any(|_| c.count_round(4)));
        assert_eq!((c.current().yields, c.current().model_yields), (0, 0));
    }
}

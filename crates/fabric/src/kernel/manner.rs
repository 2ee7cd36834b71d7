//! How the turn is handed over, as real time goes: chosen by what has been quicker.
//!
//! Where most ranks go on in each round, whoever waits hands its core over a few times before it
//! sleeps: the others run meanwhile, and mostly its turn has come when the core comes back. That
//! costs a third of sleeping and being woken, and then ranks may also be spread over several cores,
//! since nobody need be woken on another one. Where few go on, those who wait are in the way of
//! those who do not: they sleep, on one core. What it means for virtual time: nothing.

use std::time::Duration;

/// How often whoever waits hands its core over before it sleeps, where most ranks go on.
const YIELDS: u32 = 8;
/// How often the model does where few do: it goes on after each turn.
const MODEL_YIELDS: u32 = 2;
/// Ranks that go on in a round, for each core that they are spread over.
const RANKS_PER_CORE: u64 = 2;
/// A stretch is so many rounds, and so many turns, at least.
const ROUNDS: u64 = 32;
const TURNS: u64 = 512;
/// Every so many stretches the other manner is tried: other jobs may have come to the cores, or
/// gone.
const RETRIED: u32 = 64;

/// What all keep to until the next stretch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Manner {
    /// How often a rank hands its core over before it sleeps.
    pub yields: u32,
    /// Likewise the model.
    pub model_yields: u32,
    /// Cores that the ranks are spread over.
    pub cores: u32,
}

impl Manner {
    const SLEEPING: Manner = Manner {
        yields: 0,
        model_yields: MODEL_YIELDS,
        cores: 1,
    };
}

/// Chooses it, stretch by stretch.
pub(super) struct Chooser {
    ranks: u64,
    /// Cores that there are; none: how ranks are placed is another's business, and they sleep.
    cores: u32,
    manner: Manner,
    turns: u64,
    rounds: u64,
    /// What a turn took when it was last handed over by sleeping, and by yielding.
    sleeping: Option<Duration>,
    yielding: Option<Duration>,
    stretches: u32,
}

impl Chooser {
    /// For so many ranks, which may be spread over so many cores.
    pub fn new(ranks: u32, cores: u32) -> Chooser {
        Chooser {
            ranks: ranks.into(),
            cores,
            manner: Manner {
                model_yields: if cores == 0 { 0 } else { MODEL_YIELDS },
                ..Manner::SLEEPING
            },
            turns: 0,
            rounds: 0,
            sleeping: None,
            yielding: None,
            stretches: 0,
        }
    }

    /// What is kept to now.
    pub fn manner(&self) -> Manner {
        self.manner
    }

    /// A round begins in which so many ranks have the turn. Is a stretch complete
    /// ([`Chooser::ends`])?
    pub fn round(&mut self, turns: u64) -> bool {
        self.turns += turns;
        self.rounds += 1;
        self.cores > 0 && self.rounds >= ROUNDS && self.turns >= TURNS
    }

    /// A stretch has taken so long. What is kept to from now on.
    pub fn ends(&mut self, took: Duration) -> Manner {
        let turn = Some(took / self.turns.min(u32::MAX.into()) as u32);
        let each = self.turns / self.rounds;
        let together = 2 * self.turns >= self.ranks * self.rounds;
        (self.turns, self.rounds) = (0, 0);
        if self.manner.yields > 0 {
            self.yielding = turn;
        } else {
            self.sleeping = turn;
        }
        if !together {
            (self.yielding, self.stretches) = (None, 0);
            self.manner = Manner::SLEEPING;
            return self.manner;
        }
        self.stretches += 1;
        let mut yields = match (self.sleeping, self.yielding) {
            (Some(sleeping), Some(yielding)) => yielding <= sleeping,
            (_, yielding) => yielding.is_none(),
        };
        if self.stretches.is_multiple_of(RETRIED) {
            yields = !yields;
        }
        self.manner = match yields {
            true => Manner {
                yields: YIELDS,
                model_yields: YIELDS,
                cores: (each / RANKS_PER_CORE).clamp(1, self.cores.into()) as u32,
            },
            false => Manner::SLEEPING,
        };
        self.manner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(c: &mut Chooser, each: u64, turn: u64) -> Manner {
        let mut turns = 0;
        loop {
            turns += each;
            if c.round(each) {
                return c.ends(Duration::from_nanos(turn * turns));
            }
        }
    }

    #[test]
    fn those_who_all_go_on_yield_and_are_spread() {
        let mut c = Chooser::new(64, 2);
        assert_eq!(c.manner(), Manner::SLEEPING);
        let together = stretch(&mut c, 64, 9000);
        assert_eq!((together.yields, together.cores), (YIELDS, 2));
        assert_eq!(stretch(&mut c, 64, 4000), together);
        // Few go on: at once.
        assert_eq!(stretch(&mut c, 3, 4000), Manner::SLEEPING);
        assert_eq!(stretch(&mut c, 3, 4000), Manner::SLEEPING);
        assert_eq!(stretch(&mut c, 40, 9000), together);
        // Two take turns on one core.
        let mut c = Chooser::new(2, 2);
        assert_eq!(stretch(&mut c, 1, 5000).cores, 1);
        assert_eq!(c.manner().yields, YIELDS);
    }

    #[test]
    fn what_is_quicker_is_kept_and_the_other_tried_again() {
        let mut c = Chooser::new(16, 2);
        let turn = |m: Manner, crowded: bool| match (m.yields > 0, crowded) {
            (true, false) => 3000,
            (true, true) => 90_000,
            (false, _) => 9000,
        };
        for crowded in [false, true, false] {
            // So long until it has been noticed.
            for _ in 0..2 * RETRIED {
                let now = turn(c.manner(), crowded);
                stretch(&mut c, 16, now);
            }
            let mut yielded = 0;
            for _ in 0..RETRIED {
                let now = turn(c.manner(), crowded);
                yielded += u32::from(stretch(&mut c, 16, now).yields > 0);
            }
            let most = RETRIED - 2;
            let fits = if crowded {
                yielded <= 2
            } else {
                yielded >= most
            };
            assert!(fits, "crowded {crowded}: {yielded} of {RETRIED}");
        }
    }

    #[test]
    fn ranks_placed_by_others_sleep() {
        let mut c = Chooser::new(4, 0);
        assert!(!(0..10_000).any(|_| c.round(4)));
        assert_eq!((c.manner().yields, c.manner().model_yields), (0, 0));
    }
}

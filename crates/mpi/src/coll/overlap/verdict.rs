//! Ranks decide together whether the calls of a site overlap.
//!
//! A job is as fast as its slowest rank, and a rank that gains nothing itself may hold up the others by blocking. So after the calls that compare the two ways each rank tells the
//! communicator's first one what they took; when that one has heard of the same call from all, it adds up, and says what all shall do. Nobody
//! waits for any of this: until it has come each rank goes by its own times, and where ranks do not share their sites (one counts a call to another size class) they keep to
//! that. What ranks agree by is the call's number in the communicator, which is the same for all.

use crate::device::{Note, ProcId};
use std::collections::VecDeque;

/// A collective call: the communicator's context, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub context: u64,
    pub number: u64,
}

/// Who takes part in a site's calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Members {
    pub me: ProcId,
    /// The first one; `None`: they do not decide together.
    pub first: Option<ProcId>,
    pub count: usize,
}

/// Seconds from call to call at one rank, the least of the last ones.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Times {
    pub overlapping: f64,
    pub blocking: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Word {
    Took(Times),
    Pays(bool),
}

/// What is said of a site's call.
pub(super) type Saying = (At, Word);

/// The second word of a note that says whether it pays: no time, which is a number.
const PAYS: u64 = u64::MAX;

pub(super) fn note(&(at, word): &Saying) -> Note {
    let (a, b) = match word {
        Word::Took(t) => (t.overlapping.to_bits(), t.blocking.to_bits()),
        Word::Pays(pays) => (u64::from(pays), PAYS),
    };
    [at.context, at.number, a, b]
}

/// `None`: it makes no sense.
pub(super) fn saying(note: Note) -> Option<Saying> {
    let [context, number, a, b] = note;
    let at = At { context, number };
    if b == PAYS {
        return (a < 2).then_some((at, Word::Pays(a == 1)));
    }
    let [overlapping, blocking] = [a, b].map(f64::from_bits);
    let times = Times {
        overlapping,
        blocking,
    };
    let is_time = |t: f64| t.is_finite() && t >= 0.0;
    (is_time(overlapping) && is_time(blocking)).then_some((at, Word::Took(times)))
}

/// The site's last calls by which others may name it.
const CALLS: usize = 32;

/// A site, as the ranks together see it.
#[derive(Default)]
pub(super) struct Verdict {
    calls: VecDeque<At>,
    members: Option<Members>,
    /// At the first rank: what each has said last.
    heard: Vec<(ProcId, At, Times)>,
    /// What all do; `None`: each goes by its own times.
    pub pays: Option<bool>,
}

impl Verdict {
    /// The site's next call.
    pub fn called(&mut self, at: At, members: Members) {
        if self.calls.len() == CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(at);
        if self.members != Some(members) {
            self.heard.clear();
            self.members = Some(members);
        }
    }

    /// Is the call one of the site's?
    pub fn knows(&self, at: At) -> bool {
        self.calls.contains(&at)
    }

    /// The last call has ended, with which both ways can be compared. Returns what there is to say, and to whom.
    pub fn measured(&mut self, times: Times, gain: f64) -> Vec<(ProcId, Saying)> {
        let (Some(&at), Some(members)) = (self.calls.back(), self.members) else {
            return Vec::new();
        };
        match members.first {
            Some(first) if first == members.me => self.took(first, at, times, gain),
            Some(first) => vec![(first, (at, Word::Took(times)))],
            None => Vec::new(),
        }
    }

    /// Somebody has said something of one of the site's calls. Returns what there is to say, and to whom.
    pub fn told(&mut self, from: ProcId, (at, word): Saying, gain: f64) -> Vec<(ProcId, Saying)> {
        let Some(members) = self.members else {
            return Vec::new();
        };
        match word {
            Word::Took(times) if members.first == Some(members.me) => {
                self.took(from, at, times, gain)
            }
            Word::Pays(pays) if members.first == Some(from) => {
                self.pays = Some(pays);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// At the first rank.
    fn took(&mut self, from: ProcId, at: At, times: Times, gain: f64) -> Vec<(ProcId, Saying)> {
        self.heard.retain(|(who, ..)| *who != from);
        self.heard.push((from, at, times));
        let Some(members) = self.members else {
            return Vec::new();
        };
        if self.heard.len() != members.count || !self.heard.iter().all(|h| h.1 == at) {
            return Vec::new();
        }
        let sum = |of: fn(&Times) -> f64| self.heard.iter().map(|(.., t)| of(t)).sum::<f64>();
        let pays = sum(|t| t.overlapping) < (1.0 - gain) * sum(|t| t.blocking);
        if self.pays.replace(pays) == Some(pays) {
            return Vec::new();
        }
        let others = self.heard.iter().filter(|h| h.0 != members.me);
        others.map(|h| (h.0, (at, Word::Pays(pays)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GAIN: f64 = 0.02;

    fn at(number: u64) -> At {
        At { context: 4, number }
    }

    fn rank(me: ProcId) -> Verdict {
        let mut v = Verdict::default();
        let members = Members {
            me,
            first: Some(10),
            count: 3,
        };
        v.called(at(8), members);
        v
    }

    fn times(overlapping: f64, blocking: f64) -> Times {
        Times {
            overlapping,
            blocking,
        }
    }

    #[test]
    fn all_do_what_is_best_for_all() {
        // The second rank loses a little, and all together gain.
        let mut ranks = [10, 11, 12].map(rank);
        let took = [times(8.0, 10.0), times(10.1, 10.0), times(9.0, 10.0)];
        let mut said = Vec::new();
        for n in [1, 0, 2] {
            for (to, saying) in ranks[n].measured(took[n], GAIN) {
                assert_eq!(to, 10);
                said.extend(ranks[0].told(10 + n as ProcId, saying, GAIN));
            }
            assert_eq!(said.is_empty(), n != 2, "not before all have spoken");
        }
        assert_eq!(said.len(), 2, "each but the first is told");
        for (to, saying) in said {
            assert!(ranks[0].told(to, saying, GAIN).is_empty());
            ranks[to as usize - 10].told(10, saying, GAIN);
        }
        assert!(ranks.iter().all(|r| r.pays == Some(true)));
        // The same again: nothing new to say.
        assert!(ranks[0].measured(took[0], GAIN).is_empty());
    }

    #[test]
    fn nothing_is_decided_by_different_calls_or_by_others() {
        let mut first = rank(10);
        assert!(first.measured(times(1.0, 2.0), GAIN).is_empty());
        first.told(11, (at(8), Word::Took(times(1.0, 2.0))), GAIN);
        first.told(12, (at(7), Word::Took(times(1.0, 2.0))), GAIN);
        assert_eq!(first.pays, None);
        let mut other = rank(11);
        other.told(12, (at(8), Word::Pays(true)), GAIN);
        assert_eq!(other.pays, None, "only the first one decides");
    }

    proptest! {
        #[test]
        fn fuzz_a_note_says_what_was_said_or_nothing(note in any::<[u64; 4]>(), a in 0.0f64..1e9, b in 0.0f64..1e9, pays: bool) {
            if let Some(s) = saying(note) {
                prop_assert_eq!(super::note(&s)[..2].to_vec(), note[..2].to_vec());
            }
            for word in [Word::Took(times(a, b)), Word::Pays(pays)] {
                prop_assert_eq!(saying(super::note(&(at(3), word))), Some((at(3), word)));
            }
        }
    }
}

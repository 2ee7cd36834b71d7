//! Ranks decide together whether the calls of a site overlap.
//!
//! A job is as fast as its slowest rank, and a rank that gains nothing itself may hold up the
//! others by blocking. So of the calls that compare the two ways each rank tells the communicator's
//! first one what they took; when that one has heard of the same call from all, the longest time is
//! what the call took, and the calls of the two ways are compared by that. (Not by each rank's own
//! least time: where several share a link each is the first one served now and then, and all look
//! fast that way.) The first rank says what all shall do. Nobody waits for any of this: until it
//! has come each rank goes by its own times, and where ranks do not share their sites (one counts a
//! call to another size class) they keep to that. What ranks agree by is the call's number in the
//! communicator, which is the same for all.

use super::site::{Series, TRIAL, Times};
use crate::device::{ControlMessage, ProcId};
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

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Word {
    /// From this call, and the one before it, to the next one and to a later one.
    Took {
        overlapped: bool,
        times: Times,
    },
    Pays(bool),
}

/// What is said of a site's call.
pub(super) type Saying = (At, Word);

/// The second word of a note: what the first one is.
const BLOCKING: u64 = 0;
const OVERLAPPED: u64 = 1;
const PAYS: u64 = u64::MAX;

pub(super) fn note(&(at, word): &Saying) -> ControlMessage {
    let (a, b) = match word {
        Word::Took { overlapped, times } => (
            u64::from(times[0].to_bits()) | u64::from(times[1].to_bits()) << 32,
            if overlapped { OVERLAPPED } else { BLOCKING },
        ),
        Word::Pays(pays) => (u64::from(pays), PAYS),
    };
    [at.context, at.number, a, b]
}

/// `None`: it makes no sense.
pub(super) fn saying(note: ControlMessage) -> Option<Saying> {
    let [context, number, a, b] = note;
    let times = [a, a >> 32].map(|bits| f32::from_bits(bits as u32));
    let is_time = |s: &f32| s.is_finite() && *s >= 0.0;
    let word = match b {
        PAYS if a < 2 => Word::Pays(a == 1),
        BLOCKING | OVERLAPPED if times.iter().all(is_time) => Word::Took {
            overlapped: b == OVERLAPPED,
            times,
        },
        _ => return None,
    };
    Some((At { context, number }, word))
}

/// The site's last calls by which others may name it.
const CALLS: usize = 32;

/// Calls that some ranks have told of and others not yet, at most.
const OPEN: usize = 8;

/// What ranks have said of a call: who, did it overlap there, and how long.
type Heard = Vec<(ProcId, bool, Times)>;

/// A site, as the ranks together see it.
#[derive(Default)]
pub(super) struct Verdict {
    /// The last calls, and how many there have been.
    calls: VecDeque<At>,
    count: u64,
    members: Option<Members>,
    /// At the first rank: what has been said of calls of which not all have spoken.
    heard: VecDeque<(At, Heard)>,
    /// At the first rank: what calls took, each by its slowest rank.
    blocking: Series,
    overlapped: Series,
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
        self.count += 1;
        if self.members != Some(members) {
            self.heard.clear();
            self.members = Some(members);
        }
    }

    /// Is the call one of the site's?
    pub fn knows(&self, at: At) -> bool {
        self.calls.contains(&at)
    }

    /// The last call has ended, by which the two ways are compared. Returns what there is to say,
    /// and to whom.
    pub fn measured(&mut self, overlapped: bool, times: Times) -> Vec<(ProcId, Saying)> {
        let (Some(&at), Some(members)) = (self.calls.back(), self.members) else {
            return Vec::new();
        };
        let word = Word::Took { overlapped, times };
        match members.first {
            Some(first) if first == members.me => self.took(first, at, overlapped, times),
            Some(first) => vec![(first, (at, word))],
            None => Vec::new(),
        }
    }

    /// Somebody has said something of one of the site's calls. Returns what there is to say, and to
    /// whom.
    pub fn told(&mut self, from: ProcId, (at, word): Saying) -> Vec<(ProcId, Saying)> {
        let Some(members) = self.members else {
            return Vec::new();
        };
        match word {
            Word::Took { overlapped, times } if members.first == Some(members.me) => {
                self.took(from, at, overlapped, times)
            }
            Word::Pays(pays) if members.first == Some(from) => {
                self.pays = Some(pays);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// At the first rank.
    fn took(
        &mut self,
        from: ProcId,
        at: At,
        overlapped: bool,
        times: Times,
    ) -> Vec<(ProcId, Saying)> {
        let (Some(members), Some(place)) = (self.members, self.calls.iter().position(|c| *c == at))
        else {
            return Vec::new();
        };
        if !self.heard.iter().any(|h| h.0 == at) {
            if self.heard.len() == OPEN {
                self.heard.pop_front();
            }
            self.heard.push_back((at, Vec::new()));
        }
        let Some(of) = self.heard.iter().position(|h| h.0 == at) else {
            return Vec::new();
        };
        let all = &mut self.heard[of].1;
        all.retain(|(who, ..)| *who != from);
        all.push((from, overlapped, times));
        if all.len() != members.count {
            return Vec::new();
        }
        let all = std::mem::take(all);
        self.heard.remove(of);
        if all.iter().any(|one| one.1 != overlapped) {
            return Vec::new();
        }
        let slowest = [0, 1].map(|of| all.iter().map(|one| one.2[of]).fold(0.0, f32::max));
        let recent = if overlapped {
            &mut self.overlapped
        } else {
            &mut self.blocking
        };
        recent.add(slowest);
        let number = self.count - (self.calls.len() - 1 - place) as u64;
        let Some(pays) = self.overlapped.is_faster_than(&self.blocking) else {
            return Vec::new();
        };
        if number < TRIAL || self.pays.replace(pays) == Some(pays) {
            return Vec::new();
        }
        let others = all.iter().filter(|one| one.0 != members.me);
        others.map(|one| (one.0, (at, Word::Pays(pays)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COUNT: usize = 3;

    fn at(number: u64) -> At {
        At { context: 4, number }
    }

    fn rank(me: ProcId) -> Verdict {
        let mut v = Verdict::default();
        let members = Members {
            me,
            first: Some(10),
            count: COUNT,
        };
        for number in 1..=TRIAL {
            v.called(at(number), members);
        }
        v
    }

    fn took(overlapped: bool, seconds: f32) -> Word {
        let times = [seconds, 2.0 * seconds];
        Word::Took { overlapped, times }
    }

    /// All ranks tell of two calls, the second one of which is the trial's last. What the first one
    /// says then.
    fn after(overlapped: [f32; COUNT], blocking: [f32; COUNT]) -> (Verdict, Vec<(ProcId, Saying)>) {
        let mut first = rank(10);
        let mut said = Vec::new();
        for (number, is_overlapped, times) in [(7, true, overlapped), (TRIAL, false, blocking)] {
            for n in [1, 2, 0] {
                assert_eq!(said, [], "not before all have spoken");
                said = first.told(
                    10 + n as ProcId,
                    (at(number), took(is_overlapped, times[n])),
                );
            }
        }
        (first, said)
    }

    #[test]
    fn all_do_what_is_best_for_the_slowest() {
        // The second rank loses a little, and the slowest one gains.
        let (first, said) = after([8.0, 9.1, 9.0], [10.0, 9.0, 10.0]);
        assert_eq!(first.pays, Some(true));
        assert_eq!(said.len(), 2, "each but the first is told");
        for (to, saying) in said {
            let mut other = rank(to);
            other.told(10, saying);
            assert_eq!(other.pays, Some(true));
        }
        // Two gain much, and wait for the third one.
        let (first, said) = after([5.0, 5.0, 10.1], [10.0, 10.0, 10.0]);
        assert_eq!((first.pays, said.len()), (Some(false), 2));
        // The same again: nothing new to say.
        let mut first = first;
        for n in 0..COUNT {
            let said = first.told(10 + n as ProcId, (at(TRIAL), took(false, 10.0)));
            assert_eq!(said, []);
        }
    }

    #[test]
    fn the_least_of_a_rank_that_is_served_first_now_and_then_counts_for_nothing() {
        let mut first = rank(10);
        for (number, lucky) in [(2, 0), (3, 1), (6, 2), (TRIAL, 0)] {
            let overlapped = number != TRIAL;
            for n in 0..COUNT {
                let seconds = if overlapped && n == lucky { 5.0 } else { 10.0 };
                first.told(10 + n as ProcId, (at(number), took(overlapped, seconds)));
            }
        }
        assert_eq!(first.pays, Some(false));
    }

    #[test]
    fn what_is_saved_until_the_next_call_and_paid_for_by_later_ones_is_no_gain() {
        let mut first = rank(10);
        for (number, overlapped, times) in [(7, true, [8.0, 20.1]), (TRIAL, false, [10.0, 20.0])] {
            for n in 0..COUNT {
                let word = Word::Took { overlapped, times };
                first.told(10 + n as ProcId, (at(number), word));
            }
        }
        assert_eq!(first.pays, Some(false));
    }

    #[test]
    fn nothing_is_decided_by_different_calls_or_ways_or_by_others() {
        let mut first = rank(10);
        first.told(10, (at(8), took(true, 1.0)));
        first.told(11, (at(8), took(true, 1.0)));
        first.told(12, (at(7), took(true, 1.0)));
        first.told(12, (at(99), took(true, 1.0)));
        assert_eq!(first.pays, None);
        let (mut mixed, _) = after([1.0; 3], [1.0; 3]);
        mixed.pays = None;
        mixed.told(10, (at(6), took(true, 0.1)));
        mixed.told(11, (at(6), took(false, 0.1)));
        mixed.told(12, (at(6), took(true, 0.1)));
        assert_eq!(mixed.pays, None);
        let mut other = rank(11);
        other.told(12, (at(8), Word::Pays(true)));
        assert_eq!(other.pays, None, "only the first one decides");
    }

    proptest! {
        #[test]
        fn fuzz_a_note_says_what_was_said_or_nothing(note in any::<[u64; 4]>(), kind in 0u64..3, overlapped: bool, seconds in 0.0f32..1e9, pays: bool) {
            let kinds = [note, [note[0], note[1], note[2], kind], [note[0], note[1], kind, PAYS]];
            for note in kinds {
                if let Some(s) = saying(note) {
                    prop_assert_eq!(super::note(&s), note);
                }
            }
            for word in [took(overlapped, seconds), Word::Pays(pays)] {
                prop_assert_eq!(saying(super::note(&(at(3), word))), Some((at(3), word)));
            }
        }
    }
}

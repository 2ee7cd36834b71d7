//! The verdict: ranks decide together whether the calls of a site overlap.
//!
//! A job is as fast as its slowest rank. A rank that gains nothing itself may delay the others by
//! blocking. So each rank reports the times of its calls to the communicator's first rank. When
//! that rank has all reports of a call, the longest time is the call's time. It compares the two
//! ways by these times, and tells all ranks what to do. The least times of the single ranks would
//! mislead: where several ranks share a link, each is served first now and then, and looks fast.
//!
//! No rank waits for reports. Until the verdict arrives, each rank decides by its own times. That
//! is also how ranks decide that see different sites for one call, because it falls into different
//! size classes there. Ranks name a call by its number in the communicator, which is the same for
//! all.

use super::site::{Series, TRIAL_CALLS, Times};
use crate::device::{ControlMessage, ProcId};
use std::collections::VecDeque;

/// A collective call: the communicator's context, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CallId {
    pub context: u64,
    pub number: u64,
}

/// Who takes part in a site's calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Members {
    pub me: ProcId,
    /// The first member; `None`: they do not decide together.
    pub first: Option<ProcId>,
    pub count: usize,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum ReportBody {
    /// The times of a pair of calls.
    Times { overlapped: bool, times: Times },
    /// The verdict: does overlap pay?
    Pays(bool),
}

/// A report of a site's call.
pub(super) type Report = (CallId, ReportBody);

/// What a control message holds, by its last word.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(u64)]
enum ReportKind {
    /// The times of blocking calls.
    Blocking = 0,
    /// The times of calls that overlapped.
    Overlapped = 1,
    /// The verdict.
    Pays = u64::MAX,
}

impl ReportKind {
    /// `None`: the word of no report.
    fn of_word(word: u64) -> Option<ReportKind> {
        [Self::Blocking, Self::Overlapped, Self::Pays]
            .into_iter()
            .find(|&kind| kind as u64 == word)
    }
}

pub(super) fn encode(&(at, body): &Report) -> ControlMessage {
    let (a, kind) = match body {
        ReportBody::Times { overlapped, times } => (
            u64::from(times[0].to_bits()) | u64::from(times[1].to_bits()) << 32,
            if overlapped {
                ReportKind::Overlapped
            } else {
                ReportKind::Blocking
            },
        ),
        ReportBody::Pays(pays) => (u64::from(pays), ReportKind::Pays),
    };
    [at.context, at.number, a, kind as u64]
}

/// `None`: no report.
pub(super) fn decode(message: ControlMessage) -> Option<Report> {
    let [context, number, a, kind] = message;
    let kind = ReportKind::of_word(kind)?;
    let times = [a, a >> 32].map(|bits| f32::from_bits(bits as u32));
    let is_time = |s: &f32| s.is_finite() && *s >= 0.0;
    let body = match kind {
        ReportKind::Pays if a < 2 => ReportBody::Pays(a == 1),
        ReportKind::Blocking | ReportKind::Overlapped if times.iter().all(is_time) => {
            let overlapped = kind == ReportKind::Overlapped;
            ReportBody::Times { overlapped, times }
        }
        _ => return None,
    };
    Some((CallId { context, number }, body))
}

/// Number of a site's last calls that other ranks' reports may name. A choice.
const KNOWN_CALLS_MAX: usize = 32;

/// Maximum number of calls whose reports are collected at a time. A choice.
const OPEN_CALLS_MAX: usize = 8;

/// The reports of one call: the reporting rank, whether the call overlapped there, and its times.
type CallReports = Vec<(ProcId, bool, Times)>;

/// A site, as the ranks together see it.
#[derive(Default)]
pub(super) struct Verdict {
    /// The last calls, and how many there have been.
    calls: VecDeque<CallId>,
    count: u64,
    members: Option<Members>,
    /// At the first rank: reports of calls for which some are missing.
    incomplete: VecDeque<(CallId, CallReports)>,
    /// At the first rank: times of calls, each by its slowest rank.
    blocking: Series,
    overlapped: Series,
    /// What all do; `None`: each goes by its own times.
    pub pays: Option<bool>,
}

impl Verdict {
    /// The site's next call.
    pub fn begin_call(&mut self, at: CallId, members: Members) {
        if self.calls.len() == KNOWN_CALLS_MAX {
            self.calls.pop_front();
        }
        self.calls.push_back(at);
        self.count += 1;
        if self.members != Some(members) {
            self.incomplete.clear();
            self.members = Some(members);
        }
    }

    /// Returns whether the call is one of the site's.
    pub fn knows(&self, at: CallId) -> bool {
        self.calls.contains(&at)
    }

    /// The times of the last call, by which the two ways are compared. Returns the reports to send.
    pub fn measured(&mut self, overlapped: bool, times: Times) -> Vec<(ProcId, Report)> {
        let (Some(&at), Some(members)) = (self.calls.back(), self.members) else {
            return Vec::new();
        };
        let body = ReportBody::Times { overlapped, times };
        match members.first {
            Some(first) if first == members.me => self.add_times(first, at, overlapped, times),
            Some(first) => vec![(first, (at, body))],
            None => Vec::new(),
        }
    }

    /// Takes a report of one of the site's calls. Returns the reports to send.
    pub fn on_report(&mut self, from: ProcId, (at, body): Report) -> Vec<(ProcId, Report)> {
        let Some(members) = self.members else {
            return Vec::new();
        };
        match body {
            ReportBody::Times { overlapped, times } if members.first == Some(members.me) => {
                self.add_times(from, at, overlapped, times)
            }
            ReportBody::Pays(pays) if members.first == Some(from) => {
                self.pays = Some(pays);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Adds the times of one rank, at the first rank. Returns the reports to send.
    fn add_times(
        &mut self,
        from: ProcId,
        at: CallId,
        overlapped: bool,
        times: Times,
    ) -> Vec<(ProcId, Report)> {
        let (Some(members), Some(index)) = (self.members, self.calls.iter().position(|c| *c == at))
        else {
            return Vec::new();
        };
        if !self.incomplete.iter().any(|h| h.0 == at) {
            if self.incomplete.len() == OPEN_CALLS_MAX {
                self.incomplete.pop_front();
            }
            self.incomplete.push_back((at, Vec::new()));
        }
        let Some(of) = self.incomplete.iter().position(|h| h.0 == at) else {
            return Vec::new();
        };
        let all = &mut self.incomplete[of].1;
        all.retain(|(who, ..)| *who != from);
        all.push((from, overlapped, times));
        if all.len() != members.count {
            return Vec::new();
        }
        let all = std::mem::take(all);
        self.incomplete.remove(of);
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
        let number = self.count - (self.calls.len() - 1 - index) as u64;
        let Some(pays) = self.overlapped.is_faster_than(&self.blocking) else {
            return Vec::new();
        };
        if number < TRIAL_CALLS || self.pays.replace(pays) == Some(pays) {
            return Vec::new();
        }
        let others = all.iter().filter(|one| one.0 != members.me);
        others
            .map(|one| (one.0, (at, ReportBody::Pays(pays))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COUNT: usize = 3;

    fn at(number: u64) -> CallId {
        CallId { context: 4, number }
    }

    fn rank(me: ProcId) -> Verdict {
        let mut v = Verdict::default();
        let members = Members {
            me,
            first: Some(10),
            count: COUNT,
        };
        for number in 1..=TRIAL_CALLS {
            v.begin_call(at(number), members);
        }
        v
    }

    fn times_of(overlapped: bool, seconds: f32) -> ReportBody {
        let times = [seconds, 2.0 * seconds];
        ReportBody::Times { overlapped, times }
    }

    /// All ranks report two calls. The second call is the last one of the trial. Returns the first
    /// rank's verdict, and the reports that it sends then.
    fn after(overlapped: [f32; COUNT], blocking: [f32; COUNT]) -> (Verdict, Vec<(ProcId, Report)>) {
        let mut first = rank(10);
        let mut reports = Vec::new();
        for (number, is_overlapped, times) in
            [(7, true, overlapped), (TRIAL_CALLS, false, blocking)]
        {
            for n in [1, 2, 0] {
                assert_eq!(reports, [], "not before all have reported");
                reports = first.on_report(
                    10 + n as ProcId,
                    (at(number), times_of(is_overlapped, times[n])),
                );
            }
        }
        (first, reports)
    }

    #[test]
    fn all_do_what_is_best_for_the_slowest() {
        // The second rank loses a little, and the slowest one gains.
        let (first, reports) = after([8.0, 9.1, 9.0], [10.0, 9.0, 10.0]);
        assert_eq!(first.pays, Some(true));
        assert_eq!(reports.len(), 2, "each but the first is told");
        for (to, report) in reports {
            let mut other = rank(to);
            other.on_report(10, report);
            assert_eq!(other.pays, Some(true));
        }
        // Two gain much, and wait for the third one.
        let (first, reports) = after([5.0, 5.0, 10.1], [10.0, 10.0, 10.0]);
        assert_eq!((first.pays, reports.len()), (Some(false), 2));
        // The same times again change nothing, so nothing is sent.
        let mut first = first;
        for n in 0..COUNT {
            let call = (at(TRIAL_CALLS), times_of(false, 10.0));
            assert_eq!(first.on_report(10 + n as ProcId, call), []);
        }
    }

    #[test]
    fn the_least_of_a_rank_that_is_served_first_now_and_then_counts_for_nothing() {
        let mut first = rank(10);
        for (number, lucky) in [(2, 0), (3, 1), (6, 2), (TRIAL_CALLS, 0)] {
            let overlapped = number != TRIAL_CALLS;
            for n in 0..COUNT {
                let seconds = if overlapped && n == lucky { 5.0 } else { 10.0 };
                first.on_report(
                    10 + n as ProcId,
                    (at(number), times_of(overlapped, seconds)),
                );
            }
        }
        assert_eq!(first.pays, Some(false));
    }

    #[test]
    fn what_is_saved_until_the_next_call_and_paid_for_by_later_ones_is_no_gain() {
        let mut first = rank(10);
        for (number, overlapped, times) in
            [(7, true, [8.0, 20.1]), (TRIAL_CALLS, false, [10.0, 20.0])]
        {
            for n in 0..COUNT {
                let body = ReportBody::Times { overlapped, times };
                first.on_report(10 + n as ProcId, (at(number), body));
            }
        }
        assert_eq!(first.pays, Some(false));
    }

    #[test]
    fn nothing_is_decided_by_different_calls_or_ways_or_by_others() {
        let mut first = rank(10);
        first.on_report(10, (at(8), times_of(true, 1.0)));
        first.on_report(11, (at(8), times_of(true, 1.0)));
        first.on_report(12, (at(7), times_of(true, 1.0)));
        first.on_report(12, (at(99), times_of(true, 1.0)));
        assert_eq!(first.pays, None);
        let (mut mixed, _) = after([1.0; 3], [1.0; 3]);
        mixed.pays = None;
        mixed.on_report(10, (at(6), times_of(true, 0.1)));
        mixed.on_report(11, (at(6), times_of(false, 0.1)));
        mixed.on_report(12, (at(6), times_of(true, 0.1)));
        assert_eq!(mixed.pays, None);
        let mut other = rank(11);
        other.on_report(12, (at(8), ReportBody::Pays(true)));
        assert_eq!(other.pays, None, "only the first one decides");
    }

    proptest! {
        #[test]
        fn fuzz_a_message_is_a_report_or_nothing(words in any::<[u64; 4]>(), kind in 0u64..3,
            overlapped: bool, seconds in 0.0f32..1e9, pays: bool) {
            let [a, b, c, _] = words;
            for message in [words, [a, b, c, kind], [a, b, kind, ReportKind::Pays as u64]] {
                if let Some(report) = decode(message) {
                    prop_assert_eq!(super::encode(&report), message);
                }
            }
            for body in [times_of(overlapped, seconds), ReportBody::Pays(pays)] {
                prop_assert_eq!(decode(super::encode(&(at(3), body))), Some((at(3), body)));
            }
        }
    }
}

//! Call sites: what is known of each, and whether its calls overlap.
//!
//! A site is a place in the program, a kind of collective and a size class. Its first call blocks,
//! and shows in which order its data are touched. Then calls that overlap are compared with calls
//! that block.
//!
//! The times are those from a call to the next one, and to the third one or the next that could
//! overlap. They include what overlap costs elsewhere, such as a core that two threads share. Two
//! calls in a row go the same way, and their times are added: a program may do something else after
//! every second call.
//!
//! A site that does not pay is left blocking, and tried again more and more rarely. At which calls
//! the other way is tried depends on the calls' number alone, so that all ranks do the same.
//! Whether it pays they decide together ([`verdict`](super::verdict)).

mod frames;
mod record;
mod series;

use super::lock::lock;
use super::setting::Mode;
use super::verdict::{CallId, Members, Report, Verdict};
use crate::device::ProcId;
use ferry_schedule::Kind;
use record::CallMode;
use series::RecentTimes;
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub(in crate::overlap) use record::Record;
pub(in crate::overlap) use series::{Series, Times};

/// A site's index in the table.
pub(in crate::overlap) type SiteId = usize;

/// What to do at a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::overlap) enum Choice {
    Block,
    /// Block, then record in which order the data are touched.
    Trace,
    Overlap,
}

/// Samples that are compared.
/// Number of the last call of the trial. In it three pairs of calls go each way, in turn, so that
/// both ways are measured on the same machine and network.
pub(in crate::overlap) const TRIAL_CALLS: u64 = 13;
/// How many times a blocking call's time ends the trial early. One call may be 10 % longer by
/// chance. If that ended the trial, no gain would be found.
const TRIAL_SLOWDOWN_MAX: f64 = 1.5;
/// Calls that overlap between two pairs that block, for comparison.
const CHECK_INTERVAL_CALLS: u64 = 32;
/// After how many calls a site left blocking is tried again: the first pause, and the longest one.
/// Each pause is twice the last.
const AGAIN: (u64, u64) = (16, 512);
/// MPI calls after a site's call until its later time ends. It shows what overlap costs these
/// calls.
const LATER_CALLS: u32 = 3;
/// Buffers in the calling code that tell sites independent, innermost first.
pub(in crate::overlap) const FRAMES_PER_SITE: usize = 3;

/// What distinguishes sites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::overlap) struct Key {
    /// Buffers in the program: file and offset, innermost first.
    pub frames: Vec<String>,
    /// The collective.
    pub kind: Kind,
    /// Size class: the power of two of the bytes.
    pub class: u32,
}

pub(in crate::overlap) struct Site {
    frames: [usize; FRAMES_PER_SITE],
    pub key: Key,
    pub calls: u64,
    pub overlapped: u64,
    pub bytes: u64,
    pub faults: u64,
    /// Seconds of blocking calls that overlap has hidden.
    pub hidden: f64,
    /// Peers in the order in which the program reads their data.
    pub order: Vec<u32>,
    /// Why its buffers cannot be guarded.
    pub guard_error: Option<String>,
    /// Seconds in blocking calls.
    blocked: RecentTimes,
    /// Times of pairs of calls at this rank.
    blocking: Series,
    overlapping: Series,
    pays: Option<bool>,
    /// The current pair of calls, if its way has been chosen.
    pair: Option<Pair>,
    verdict: Verdict,
}

/// Two calls in a row.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// Its first call's number.
    first: u64,
    overlaps: bool,
    /// Its times are reported to the first rank.
    compares: bool,
    /// Times of the first call.
    began: Option<Times>,
}

static SITES: Mutex<Vec<Site>> = Mutex::new(Vec::new());
/// Blocking calls whose time until the next call is measured.
static OPEN_SPANS: Mutex<Vec<Record>> = Mutex::new(Vec::new());
/// Calls whose time to the next call is known, and whose later time is not.
static AWAITING_LATER: Mutex<Vec<Later>> = Mutex::new(Vec::new());

struct Later {
    site: SiteId,
    call: u64,
    begun: Instant,
    /// Seconds to the next call.
    next: f32,
    /// Calls until it has ended.
    left: u32,
}

/// Reports of calls to which this rank has not come, and how often each was looked at.
static EARLY_REPORTS: Mutex<Vec<(ProcId, Report, u32)>> = Mutex::new(Vec::new());
/// Looks after which such a report is dropped.
const EARLY_REPORT_LOOKS_MAX: u32 = 64;
/// Access orders that were read from a file.
static RECORDED_ORDERS: Mutex<Vec<(Key, Vec<u32>)>> = Mutex::new(Vec::new());
/// The site of the current call.
pub(in crate::overlap) fn current(kind: Kind, bytes: usize) -> SiteId {
    let frames = frames::of_program();
    let class = bytes.max(1).ilog2();
    let mut sites = lock(&SITES);
    let like = |s: &Site| s.frames == frames && s.key.kind == kind && s.key.class == class;
    if let Some(at) = sites.iter().position(like) {
        return at;
    }
    let names: Vec<String> = frames
        .iter()
        .filter(|&&f| f != 0)
        .map(|&f| frames::name(f))
        .collect();
    let key = Key {
        frames: names,
        kind,
        class,
    };
    let known = lock(&RECORDED_ORDERS);
    let order = known
        .iter()
        .find(|(k, _)| *k == key)
        .map(|(_, o)| o.clone());
    sites.push(Site::new(frames, key, order.unwrap_or_default()));
    sites.len() - 1
}

/// What to do at this call of the site. `independent`: the order of its data can be seen and
/// chosen.
pub(in crate::overlap) fn choose(
    site: SiteId,
    mode: Mode,
    independent: bool,
    at: CallId,
    members: Members,
) -> Choice {
    let mut sites = lock(&SITES);
    let s = &mut sites[site];
    s.calls += 1;
    s.verdict.begin_call(at, members);
    match mode {
        Mode::Always => Choice::Overlap,
        Mode::Trace => Choice::Trace,
        _ => s.choose(independent),
    }
}

impl Site {
    /// A site without a call.
    fn new(frames: [usize; FRAMES_PER_SITE], key: Key, order: Vec<u32>) -> Site {
        Site {
            frames,
            key,
            calls: 0,
            overlapped: 0,
            bytes: 0,
            faults: 0,
            hidden: 0.0,
            order,
            guard_error: None,
            blocked: RecentTimes::default(),
            blocking: Series::default(),
            overlapping: Series::default(),
            pays: None,
            pair: None,
            verdict: Verdict::default(),
        }
    }

    fn choose(&mut self, independent: bool) -> Choice {
        if self.calls == 1 {
            let traces = independent && self.order.is_empty() && self.guard_error.is_none();
            return if traces { Choice::Trace } else { Choice::Block };
        }
        let overlaps = self.overlaps();
        // A rank that cannot overlap still has its part in the times of the others.
        if overlaps && self.guard_error.is_none() {
            Choice::Overlap
        } else {
            Choice::Block
        }
    }

    /// What all ranks do at this call, which is not the site's first.
    fn overlaps(&mut self) -> bool {
        let first = self.calls / 2 * 2;
        if let Some(pair) = self.pair.filter(|p| p.first == first) {
            return pair.overlaps;
        }
        let mut pair = Pair {
            first,
            overlaps: false,
            compares: true,
            began: None,
        };
        let trial = first <= TRIAL_CALLS && self.ratios().is_none_or(|r| r[0] < TRIAL_SLOWDOWN_MAX);
        if trial {
            pair.overlaps = first % 4 == 2;
        } else {
            let own = self.overlapping.is_faster_than(&self.blocking);
            let pays = self.verdict.pays.unwrap_or(own == Some(true));
            self.pays = Some(pays);
            let checks = |call: u64| {
                let later = call.saturating_sub(TRIAL_CALLS + 1);
                if pays {
                    later > 0 && later.is_multiple_of(CHECK_INTERVAL_CALLS)
                } else {
                    is_retried(later)
                }
            };
            pair.overlaps = pays != checks(first);
            // The pair before a check is one of the other way.
            pair.compares = checks(first) || checks(first + 2);
        }
        self.pair = Some(pair);
        pair.overlaps
    }

    /// Records the times of a call. The call counts as overlapped if that was chosen, even if this
    /// rank could not. Returns the reports to send.
    fn record_times(&mut self, call: u64, times: Times) -> Vec<(ProcId, Report)> {
        let Some(pair) = self.pair.as_mut().filter(|p| p.first == call / 2 * 2) else {
            return Vec::new();
        };
        if call == pair.first {
            pair.began = Some(times);
            return Vec::new();
        }
        let Some(before) = pair.began.take() else {
            return Vec::new();
        };
        let Pair {
            overlaps: overlapped,
            compares,
            ..
        } = *pair;
        let both = [before[0] + times[0], before[1] + times[1]];
        match overlapped {
            true => self.overlapping.add(both),
            false => self.blocking.add(both),
        }
        match compares {
            true => self.verdict.measured(overlapped, both),
            false => Vec::new(),
        }
    }

    /// Times when overlapping divided by those when blocking.
    fn ratios(&self) -> Option<[f64; 2]> {
        self.overlapping.ratios(&self.blocking)
    }

    /// The decision in words, for the report.
    pub fn verdict(&self) -> String {
        let together = if self.verdict.pays.is_some() {
            ", as all ranks decided"
        } else {
            ""
        };
        let ratio = self.ratios().map_or(String::new(), |r| {
            let [next, later] = r.map(|r| 100.0 * (r - 1.0));
            format!(" ({next:+.1} % from call to call, {later:+.1} % to a later one)")
        });
        match (&self.guard_error, self.pays) {
            (Some(why), _) => format!("blocks: {why}"),
            (_, Some(true)) => format!("overlaps{together}{ratio}"),
            (_, Some(false)) => format!("blocks, as overlap does not pay{together}{ratio}"),
            (_, None) => format!("not decided{ratio}"),
        }
    }

    /// Median seconds of its blocking calls.
    pub fn blocked(&self) -> Option<f64> {
        self.blocked.median()
    }
}

/// Peers in the order in which the program reads the site's data.
pub(in crate::overlap) fn order(site: SiteId) -> Vec<u32> {
    lock(&SITES)[site].order.clone()
}

/// Records that the site's buffers cannot be guarded.
pub(in crate::overlap) fn set_guard_error(site: SiteId, why: Option<ferry_pageguard::GuardError>) {
    let why = why.map_or(
        "no whole page of the receive buffer can be guarded".into(),
        |e| e.to_string(),
    );
    lock(&SITES)[site].guard_error = Some(why);
}

/// Returns whether a site that was left blocking is tried again so many calls later.
fn is_retried(later: u64) -> bool {
    let (first, most) = AGAIN;
    // 16, then 32 later, 64 later, … until the pauses are as long as they become.
    let grown = 2 * most - first;
    if later > grown {
        return (later - grown).is_multiple_of(most);
    }
    later > 0 && later.is_multiple_of(first) && (later / first + 1).is_power_of_two()
}

/// Takes other ranks' reports. Returns the reports to send.
pub(in crate::overlap) fn add_reports(said: Vec<(ProcId, Report)>) -> Vec<(ProcId, Report)> {
    let mut early = lock(&EARLY_REPORTS);
    if said.is_empty() && early.is_empty() {
        return Vec::new();
    }
    early.extend(said.into_iter().map(|(from, report)| (from, report, 0)));
    let mut sites = lock(&SITES);
    let mut answers = Vec::new();
    early.retain_mut(|(from, report, looks)| {
        if let Some(s) = sites.iter_mut().find(|s| s.verdict.knows(report.0)) {
            answers.extend(s.verdict.on_report(*from, *report));
            return false;
        }
        *looks += 1;
        *looks < EARLY_REPORT_LOOKS_MAX
    });
    answers
}

/// A call is over: its data are there, and the next call has come. Returns whether its later time
/// is to be measured ([`close_later`]).
pub(in crate::overlap) fn call_ended(record: Record, settling: Duration) -> bool {
    let Some(begun) = record.begun else {
        return false;
    };
    let span = begun.elapsed().as_secs_f64();
    let mut sites = lock(&SITES);
    let Some(s) = sites.get_mut(record.site) else {
        return false;
    };
    s.bytes += record.bytes as u64;
    s.faults += record.faults;
    match record.mode {
        CallMode::Overlapped => {
            s.overlapped += 1;
            let seen = (record.in_call + record.waited + settling).as_secs_f64();
            if let Some(blocked) = s.blocked.median() {
                s.hidden += (blocked - seen).max(0.0);
            }
        }
        CallMode::Blocking | CallMode::Traced => {
            s.blocked.add(record.in_call.as_secs_f64());
        }
        CallMode::Unknown => {}
    }
    if record.mode == CallMode::Traced && !record.order.is_empty() {
        s.order = record.order;
    }
    // A traced call's times include page faults.
    if !matches!(record.mode, CallMode::Overlapped | CallMode::Blocking) {
        return false;
    }
    let later = Later {
        site: record.site,
        call: s.calls,
        begun,
        next: span as f32,
        left: LATER_CALLS - 1,
    };
    drop(sites);
    lock(&AWAITING_LATER).push(later);
    true
}

/// An MPI call has come (`all`: one that could overlap). Ends the later times that it ends. Returns
/// the reports to send, and how many times were ended.
pub(in crate::overlap) fn close_later(all: bool) -> (Vec<(ProcId, Report)>, u32) {
    let mut late = lock(&AWAITING_LATER);
    let mut ended = Vec::new();
    late.retain_mut(|l| {
        l.left = l.left.saturating_sub(1);
        let ends = all || l.left == 0;
        if ends {
            let seconds = l.begun.elapsed().as_secs_f32();
            ended.push((l.site, l.call, [l.next, seconds]));
        }
        !ends
    });
    drop(late);
    let count = ended.len() as u32;
    let mut sites = lock(&SITES);
    let mut say = Vec::new();
    for (site, call, times) in ended {
        if let Some(s) = sites.get_mut(site) {
            say.extend(s.record_times(call, times));
        }
    }
    (say, count)
}

/// Begins to measure the time from this blocking call to the next one. Returns whether nothing was
/// measured before.
pub(in crate::overlap) fn open_span(record: Record) -> bool {
    let mut spans = lock(&OPEN_SPANS);
    spans.push(record);
    spans.len() == 1
}

/// The next call has come. Returns whether anything was measured, and of how many calls the later
/// time is to be measured.
pub(in crate::overlap) fn close_spans() -> (bool, u32) {
    let all = std::mem::take(&mut *lock(&OPEN_SPANS));
    let any = !all.is_empty();
    let count = |record| u32::from(call_ended(record, Duration::ZERO));
    (any, all.into_iter().map(count).sum())
}

/// Sets the access orders of sites that will be found.
pub(in crate::overlap) fn set_recorded_orders(orders: Vec<(Key, Vec<u32>)>) {
    *lock(&RECORDED_ORDERS) = orders;
}

/// Calls `look` with all sites.
pub(in crate::overlap) fn with_all<T>(look: impl FnOnce(&[Site]) -> T) -> T {
    look(&lock(&SITES))
}

/// Removes all sites.
pub(in crate::overlap) fn clear() {
    lock(&SITES).clear();
    lock(&OPEN_SPANS).clear();
    lock(&AWAITING_LATER).clear();
    lock(&EARLY_REPORTS).clear();
    lock(&RECORDED_ORDERS).clear();
}

#[cfg(test)]
mod tests;

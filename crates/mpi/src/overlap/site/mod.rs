//! Call sites: what is known of each, and whether its calls overlap.
//!
//! A site is a place in the program, a kind of collective and a size class. Its first call blocks,
//! and shows in which order its data are touched. Then calls that overlap are compared with calls
//! that block.
//!
//! Two times of each call are measured. The first ends at the next MPI call. The second ends at
//! the third MPI call, or at an earlier one that could overlap. They include what overlap costs
//! elsewhere, such as a core that two threads share. Calls are measured in pairs that go the same
//! way, and the two times of a pair are added: a program may do something else after every second
//! call.
//!
//! A site where overlap does not pay is left blocking. It is tried again, more and more rarely. The
//! number of a call alone says whether it tries the other way, so all ranks do the same. They
//! decide together whether overlap pays ([`verdict`](super::verdict)).

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

/// Number of the last call of the trial. Three pairs of calls go each way, in turn. Both ways then
/// meet the same state of machine and network. A choice.
pub(in crate::overlap) const TRIAL_CALLS: u64 = 13;
/// The trial ends early if calls that overlap take this many times as long as blocking ones. A
/// choice: one call may be 10 % longer by chance, and that must not end the trial.
const TRIAL_SLOWDOWN_MAX: f64 = 1.5;
/// Calls that overlap between two pairs that block, for comparison. A choice.
const CHECK_INTERVAL_CALLS: u64 = 32;
/// Calls until a site that was left blocking is tried again for the first time. Each further pause
/// is twice the one before. A choice.
const RETRY_PAUSE_MIN_CALLS: u64 = 16;
/// Longest pause before a site that was left blocking is tried again. A choice.
const RETRY_PAUSE_MAX_CALLS: u64 = 512;
/// The second time of a call ends at this MPI call after it. It shows what overlap costs later
/// calls. A choice.
const LATER_CALLS: u32 = 3;
/// Stack frames of the calling code that distinguish sites, innermost first. A choice.
pub(in crate::overlap) const FRAMES_PER_SITE: usize = 3;

/// What distinguishes sites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::overlap) struct Key {
    /// Stack frames of the program: file and offset, innermost first.
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
    pub hidden_s: f64,
    /// Peers in the order in which the program reads their data.
    pub order: Vec<u32>,
    /// Why its buffers cannot be guarded.
    pub guard_error: Option<String>,
    /// Seconds that blocking calls took themselves.
    blocking_calls: RecentTimes,
    /// Times of pairs of blocking calls at this rank.
    blocking: Series,
    /// Times of pairs of calls that overlap at this rank.
    overlapping: Series,
    /// Does overlap pay, by the latest decision?
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
    is_reported: bool,
    /// Times of the first call.
    first_times: Option<Times>,
}

static SITES: Mutex<Vec<Site>> = Mutex::new(Vec::new());
/// Blocking calls whose time until the next call is measured.
static OPEN_SPANS: Mutex<Vec<Record>> = Mutex::new(Vec::new());
/// Calls whose first time is known and whose second time is still measured.
static LATER_SPANS: Mutex<Vec<LaterSpan>> = Mutex::new(Vec::new());

/// The measurement of a call's second time.
struct LaterSpan {
    site: SiteId,
    call: u64,
    begun: Instant,
    /// Seconds to the next call.
    next_s: f32,
    /// MPI calls until it ends.
    remaining_calls: u32,
}

/// Reports of calls that this rank has not begun yet, and how often each was looked at.
static EARLY_REPORTS: Mutex<Vec<(ProcId, Report, u32)>> = Mutex::new(Vec::new());
/// Looks after which such a report is dropped. A choice.
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

/// What to do at this call of the site. `independent`: its messages do not depend on each other, so
/// the order of its data can be seen and chosen.
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
            hidden_s: 0.0,
            order,
            guard_error: None,
            blocking_calls: RecentTimes::default(),
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
            is_reported: true,
            first_times: None,
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
            // The pair before a check goes the other way. The two are compared.
            pair.is_reported = checks(first) || checks(first + 2);
        }
        self.pair = Some(pair);
        pair.overlaps
    }

    /// Records the times of a call. It counts as overlapped if overlap was chosen, even if this
    /// rank could not. Returns the reports to send.
    fn record_times(&mut self, call: u64, times: Times) -> Vec<(ProcId, Report)> {
        let Some(pair) = self.pair.as_mut().filter(|p| p.first == call / 2 * 2) else {
            return Vec::new();
        };
        if call == pair.first {
            pair.first_times = Some(times);
            return Vec::new();
        }
        let Some(first) = pair.first_times.take() else {
            return Vec::new();
        };
        let Pair {
            overlaps,
            is_reported,
            ..
        } = *pair;
        let both = [first[0] + times[0], first[1] + times[1]];
        match overlaps {
            true => self.overlapping.add(both),
            false => self.blocking.add(both),
        }
        match is_reported {
            true => self.verdict.measured(overlaps, both),
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
        self.blocking_calls.median()
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

/// Returns whether a site that was left blocking is tried again, `calls` calls after the trial.
fn is_retried(calls: u64) -> bool {
    let (min, max) = (RETRY_PAUSE_MIN_CALLS, RETRY_PAUSE_MAX_CALLS);
    // The pauses are 16, 32, 64, …, 512 calls. This is their sum.
    let growth = 2 * max - min;
    if calls > growth {
        return (calls - growth).is_multiple_of(max);
    }
    calls > 0 && calls.is_multiple_of(min) && (calls / min + 1).is_power_of_two()
}

/// Takes other ranks' reports. Returns the reports to send.
pub(in crate::overlap) fn add_reports(reports: Vec<(ProcId, Report)>) -> Vec<(ProcId, Report)> {
    let mut early = lock(&EARLY_REPORTS);
    if reports.is_empty() && early.is_empty() {
        return Vec::new();
    }
    early.extend(reports.into_iter().map(|(from, report)| (from, report, 0)));
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

/// Records a call whose data have arrived, at the next MPI call. Returns whether its second time is
/// measured from now on ([`close_later`]).
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
            let seen = (record.in_call + record.fault_wait + settling).as_secs_f64();
            if let Some(blocked) = s.blocking_calls.median() {
                s.hidden_s += (blocked - seen).max(0.0);
            }
        }
        CallMode::Blocking | CallMode::Traced => {
            s.blocking_calls.add(record.in_call.as_secs_f64());
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
    let later = LaterSpan {
        site: record.site,
        call: s.calls,
        begun,
        next_s: span as f32,
        remaining_calls: LATER_CALLS - 1,
    };
    drop(sites);
    lock(&LATER_SPANS).push(later);
    true
}

/// Ends the second times that end at the present MPI call. `all`: the call could overlap, so all of
/// them end. Returns the reports to send, and how many times have ended.
pub(in crate::overlap) fn close_later(all: bool) -> (Vec<(ProcId, Report)>, u32) {
    let mut spans = lock(&LATER_SPANS);
    let mut samples = Vec::new();
    spans.retain_mut(|span| {
        span.remaining_calls = span.remaining_calls.saturating_sub(1);
        let ends = all || span.remaining_calls == 0;
        if ends {
            let later_s = span.begun.elapsed().as_secs_f32();
            samples.push((span.site, span.call, [span.next_s, later_s]));
        }
        !ends
    });
    drop(spans);
    let count = samples.len() as u32;
    let mut sites = lock(&SITES);
    let mut reports = Vec::new();
    for (site, call, times) in samples {
        if let Some(s) = sites.get_mut(site) {
            reports.extend(s.record_times(call, times));
        }
    }
    (reports, count)
}

/// Begins to measure the time from this blocking call to the next one. Returns whether nothing was
/// measured before.
pub(in crate::overlap) fn open_span(record: Record) -> bool {
    let mut spans = lock(&OPEN_SPANS);
    spans.push(record);
    spans.len() == 1
}

/// Ends the measurement of blocking calls at the next MPI call. Returns whether there was one, and
/// for how many calls the second time is measured from now on.
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
    lock(&LATER_SPANS).clear();
    lock(&EARLY_REPORTS).clear();
    lock(&RECORDED_ORDERS).clear();
}

#[cfg(test)]
mod tests;

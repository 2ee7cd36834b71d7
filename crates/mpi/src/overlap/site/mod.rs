//! Call sites: what is known of each, and whether its calls overlap.
//!
//! A site is a place in the program with a kind of collective and a size class. Its first call
//! blocks, and shows in which order its data are touched. Then calls that overlap and calls that
//! block are compared, by the time from the call to the next one and by that to the third one, or
//! to the next that could overlap: whatever overlap costs elsewhere, such as a core that two
//! threads share, is in that. Two calls in a row do the same, and are compared as one: a program
//! may do something else after every second call. A site that does not pay is left blocking, and
//! tried again ever more rarely. At which calls the other way is tried depends on the calls' number
//! alone, so that all ranks do the same; whether it pays they decide together
//! ([`verdict`](super::verdict)).

mod frames;
mod record;
mod series;

use super::lock::lock;
use super::setting::Mode;
use super::verdict::{At, Members, Saying, Verdict};
use crate::device::ProcId;
use ferry_schedule::Kind;
use record::Way;
use series::Recent;
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub(in crate::overlap) use record::Record;
pub(in crate::overlap) use series::{Series, Times};

/// A site's place in the list.
pub(in crate::overlap) type Number = usize;

/// What to do at a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::overlap) enum Choice {
    Block,
    /// Block, then see in which order the data are touched.
    Trace,
    Overlap,
}

/// Samples that are compared.
/// Of the calls up to this one a half overlaps: all ranks do the same then, and the two ways meet
/// the same machine and network. Three pairs each way, in turn.
pub(in crate::overlap) const TRIAL: u64 = 13;
/// So many times as long as a blocking call, and the trial is over. One call may be 10 % longer by
/// chance, and if that ended it no gain would be found.
const MUCH: f64 = 1.5;
/// Among so many calls that overlap two block, to compare.
const CHECK: u64 = 32;
/// A site left blocking is tried after so many calls, then after twice as many each time, up to the
/// second number.
const AGAIN: (u64, u64) = (16, 512);
/// Calls of MPI's after a site's until the time is taken that shows what overlap costs those.
const LATER: u32 = 3;
/// Places in the calling code that tell sites apart, innermost first.
pub(in crate::overlap) const FRAMES: usize = 3;

/// What tells sites apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::overlap) struct Key {
    /// Places in the program: file and offset, innermost first.
    pub places: Vec<String>,
    /// The collective.
    pub kind: Kind,
    /// Size class: the power of two of the bytes.
    pub class: u32,
}

pub(in crate::overlap) struct Site {
    frames: [usize; FRAMES],
    pub key: Key,
    pub calls: u64,
    pub overlapped: u64,
    pub bytes: u64,
    pub faults: u64,
    /// Seconds of blocking calls that were hidden.
    pub hidden: f64,
    /// From whom the data are read first.
    pub order: Vec<u32>,
    /// Why it cannot be guarded.
    pub refusal: Option<String>,
    /// Seconds in blocking calls.
    blocked: Recent,
    /// What pairs of calls took here.
    blocking: Series,
    overlapping: Series,
    pays: Option<bool>,
    /// What the pair of calls that is under way does, if that has been chosen.
    pair: Option<Pair>,
    verdict: Verdict,
}

/// Two calls in a row.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// Its first call's number.
    first: u64,
    overlaps: bool,
    /// The ranks compare the two ways by it.
    compares: bool,
    /// What the first call took.
    began: Option<Times>,
}

static SITES: Mutex<Vec<Site>> = Mutex::new(Vec::new());
/// Blocking calls whose time until the next call is measured.
static SPANS: Mutex<Vec<Record>> = Mutex::new(Vec::new());
/// Calls of which the time until the next one is known, and not yet that until a later one.
static FOLLOWED: Mutex<Vec<Later>> = Mutex::new(Vec::new());

struct Later {
    site: Number,
    call: u64,
    begun: Instant,
    /// Seconds to the next call.
    next: f32,
    /// Calls until it has ended.
    left: u32,
}

/// What others have said of calls that this rank has not come to yet, and how often it was looked
/// at.
static EARLY: Mutex<Vec<(ProcId, Saying, u32)>> = Mutex::new(Vec::new());
/// Looks after which it is dropped.
const LOOKS: u32 = 64;
/// Orders that were read from a file.
static ORDERS: Mutex<Vec<(Key, Vec<u32>)>> = Mutex::new(Vec::new());
/// The site of the call that is being executed.
pub(in crate::overlap) fn here(kind: Kind, bytes: usize) -> Number {
    let frames = frames::of_program();
    let class = bytes.max(1).ilog2();
    let mut sites = lock(&SITES);
    let like = |s: &Site| s.frames == frames && s.key.kind == kind && s.key.class == class;
    if let Some(at) = sites.iter().position(like) {
        return at;
    }
    let places: Vec<String> = frames
        .iter()
        .filter(|&&f| f != 0)
        .map(|&f| frames::name(f))
        .collect();
    let key = Key {
        places,
        kind,
        class,
    };
    let known = lock(&ORDERS);
    let order = known
        .iter()
        .find(|(k, _)| *k == key)
        .map(|(_, o)| o.clone());
    sites.push(Site::new(frames, key, order.unwrap_or_default()));
    sites.len() - 1
}

/// What to do at this call of the site. `apart`: the order of its data can be seen and chosen.
pub(in crate::overlap) fn choose(
    site: Number,
    mode: Mode,
    apart: bool,
    at: At,
    members: Members,
) -> Choice {
    let mut sites = lock(&SITES);
    let s = &mut sites[site];
    s.calls += 1;
    s.verdict.called(at, members);
    match mode {
        Mode::Always => Choice::Overlap,
        Mode::Trace => Choice::Trace,
        _ => s.choose(apart),
    }
}

impl Site {
    /// One of which no call has been seen.
    fn new(frames: [usize; FRAMES], key: Key, order: Vec<u32>) -> Site {
        Site {
            frames,
            key,
            calls: 0,
            overlapped: 0,
            bytes: 0,
            faults: 0,
            hidden: 0.0,
            order,
            refusal: None,
            blocked: Recent::default(),
            blocking: Series::default(),
            overlapping: Series::default(),
            pays: None,
            pair: None,
            verdict: Verdict::default(),
        }
    }

    fn choose(&mut self, apart: bool) -> Choice {
        if self.calls == 1 {
            let traces = apart && self.order.is_empty() && self.refusal.is_none();
            return if traces { Choice::Trace } else { Choice::Block };
        }
        let overlaps = self.overlaps();
        // A rank that cannot has its part in what the others' ways take.
        if overlaps && self.refusal.is_none() {
            Choice::Overlap
        } else {
            Choice::Block
        }
    }

    /// What all ranks do at this call, which is not the first.
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
        let trial = first <= TRIAL && self.ratios().is_none_or(|r| r[0] < MUCH);
        if trial {
            pair.overlaps = first % 4 == 2;
        } else {
            let own = self.overlapping.is_faster_than(&self.blocking);
            let pays = self.verdict.pays.unwrap_or(own == Some(true));
            self.pays = Some(pays);
            let checks = |call: u64| {
                let later = call.saturating_sub(TRIAL + 1);
                if pays {
                    later > 0 && later.is_multiple_of(CHECK)
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

    /// What one of its calls took. It counts as one that overlapped where that was chosen, though
    /// this rank may not be able to. Returns what there is to say, and to whom.
    fn took(&mut self, call: u64, times: Times) -> Vec<(ProcId, Saying)> {
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

    /// Times when overlapping, as a part of those when blocking.
    fn ratios(&self) -> Option<[f64; 2]> {
        self.overlapping.ratios(&self.blocking)
    }

    /// In words.
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
        match (&self.refusal, self.pays) {
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

/// From whom the site's data are read first.
pub(in crate::overlap) fn order(site: Number) -> Vec<u32> {
    lock(&SITES)[site].order.clone()
}

/// The site's buffers cannot be guarded.
pub(in crate::overlap) fn refused(site: Number, why: Option<ferry_pageguard::Refusal>) {
    let why = why.map_or(
        "no whole page of the receive buffer can be guarded".into(),
        |e| e.to_string(),
    );
    lock(&SITES)[site].refusal = Some(why);
}

/// Is a site that was left blocking tried again, so many calls later?
fn is_retried(later: u64) -> bool {
    let (first, most) = AGAIN;
    // 16, then 32 later, 64 later, … until the pauses are as long as they become.
    let grown = 2 * most - first;
    if later > grown {
        return (later - grown).is_multiple_of(most);
    }
    later > 0 && later.is_multiple_of(first) && (later / first + 1).is_power_of_two()
}

/// Reads what other ranks have said of calls. Returns what there is to say, and to whom.
pub(in crate::overlap) fn hear(said: Vec<(ProcId, Saying)>) -> Vec<(ProcId, Saying)> {
    let mut early = lock(&EARLY);
    if said.is_empty() && early.is_empty() {
        return Vec::new();
    }
    early.extend(said.into_iter().map(|(from, saying)| (from, saying, 0)));
    let mut sites = lock(&SITES);
    let mut answers = Vec::new();
    early.retain_mut(|(from, saying, looks)| {
        if let Some(s) = sites.iter_mut().find(|s| s.verdict.knows(saying.0)) {
            answers.extend(s.verdict.told(*from, *saying));
            return false;
        }
        *looks += 1;
        *looks < LOOKS
    });
    answers
}

/// A call that overlapped, or was traced, is over: all is there, and the next call has come. True:
/// the time until a later one is to be taken ([`later`]).
pub(in crate::overlap) fn ended(record: Record, settling: Duration) -> bool {
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
    match record.way {
        Way::Overlapped => {
            s.overlapped += 1;
            let seen = (record.in_call + record.waited + settling).as_secs_f64();
            if let Some(blocked) = s.blocked.median() {
                s.hidden += (blocked - seen).max(0.0);
            }
        }
        Way::Blocking | Way::Traced => {
            s.blocked.add(record.in_call.as_secs_f64());
        }
        Way::Unknown => {}
    }
    if record.way == Way::Traced && !record.order.is_empty() {
        s.order = record.order;
    }
    // A traced one has its buffer guarded while it is read.
    if !matches!(record.way, Way::Overlapped | Way::Blocking) {
        return false;
    }
    let later = Later {
        site: record.site,
        call: s.calls,
        begun,
        next: span as f32,
        left: LATER - 1,
    };
    drop(sites);
    lock(&FOLLOWED).push(later);
    true
}

/// A call of MPI's has come (`all`: one that could overlap): what calls have taken until it. What
/// there is to say, and to whom, and how many of them are done with.
pub(in crate::overlap) fn later(all: bool) -> (Vec<(ProcId, Saying)>, u32) {
    let mut late = lock(&FOLLOWED);
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
            say.extend(s.took(call, times));
        }
    }
    (say, count)
}

/// The time from this blocking call to the next one is measured. True if nothing was measured
/// before.
pub(in crate::overlap) fn open_span(record: Record) -> bool {
    let mut spans = lock(&SPANS);
    spans.push(record);
    spans.len() == 1
}

/// The next call has come. Was anything measured, and of how many calls is the time until a later
/// one to be taken?
pub(in crate::overlap) fn close_spans() -> (bool, u32) {
    let all = std::mem::take(&mut *lock(&SPANS));
    let any = !all.is_empty();
    let ended = |record| u32::from(ended(record, Duration::ZERO));
    (any, all.into_iter().map(ended).sum())
}

/// Orders for sites that are still to be met.
pub(in crate::overlap) fn know(orders: Vec<(Key, Vec<u32>)>) {
    *lock(&ORDERS) = orders;
}

/// Looks at all sites.
pub(in crate::overlap) fn with_all<T>(look: impl FnOnce(&[Site]) -> T) -> T {
    look(&lock(&SITES))
}

/// Forgets all sites.
pub(in crate::overlap) fn forget() {
    lock(&SITES).clear();
    lock(&SPANS).clear();
    lock(&FOLLOWED).clear();
    lock(&EARLY).clear();
    lock(&ORDERS).clear();
}

#[cfg(test)]
mod tests;

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

use super::setting::Mode;
use super::verdict::{At, Members, Saying, Verdict};
use crate::coll::Kind;
use crate::device::ProcId;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A site's place in the list.
pub(super) type Number = usize;

/// What to do at a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    Block,
    /// Block, then see in which order the data are touched.
    Trace,
    Overlap,
}

/// Samples that are compared.
const SAMPLES: usize = 5;
/// Overlap must be faster by this part to be kept.
const GAIN: f64 = 0.02;
/// Of the calls up to this one a half overlaps: all ranks do the same then, and the two ways meet
/// the same machine and network. Three pairs each way, in turn.
pub(super) const TRIAL: u64 = 13;
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
pub(super) const FRAMES: usize = 3;

/// The last few of a series of times, seconds.
#[derive(Clone, Default)]
pub(super) struct Recent(Vec<f64>);

impl Recent {
    pub fn add(&mut self, seconds: f64) {
        if self.0.len() == SAMPLES {
            self.0.remove(0);
        }
        self.0.push(seconds);
    }
    /// What is above it may be somebody else's doing.
    fn least(&self) -> Option<f64> {
        self.0.iter().copied().min_by(f64::total_cmp)
    }
    fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// By enough, the least of them, and the middle one of the last three: one may be short by
    /// chance. Not the middle one beside the least of the others, which may be of a time when the
    /// whole machine was faster. `None`: nothing to compare.
    pub fn is_faster_than(&self, others: &Recent) -> Option<bool> {
        let faster = |one: f64, other: f64| one < (1.0 - GAIN) * other;
        let last = Recent(self.0[self.0.len().saturating_sub(3)..].to_vec());
        let least = faster(self.least()?, others.least()?);
        Some(least && faster(last.median()?, others.median()?))
    }
}

/// What some calls of one way took, from the call to the next one of MPI's and to a later one.
#[derive(Clone, Default)]
pub(super) struct Series([Recent; 2]);

impl Series {
    pub fn add(&mut self, times: Times) {
        for (recent, seconds) in self.0.iter_mut().zip(times) {
            recent.add(f64::from(seconds));
        }
    }

    /// By both times. What calls save may be paid for by those that follow: the one time is shorter
    /// then, and the other is not. `None`: nothing to compare.
    pub fn is_faster_than(&self, others: &Series) -> Option<bool> {
        let [next, later] = [0, 1].map(|of| self.0[of].is_faster_than(&others.0[of]));
        Some(next? && later?)
    }

    /// The least time beside the others' least, for each of the two.
    fn ratios(&self, others: &Series) -> Option<[f64; 2]> {
        let ratio = |of: usize| {
            let (one, other) = (self.0[of].least()?, others.0[of].least()?);
            (other > 0.0).then(|| one / other)
        };
        Some([ratio(0)?, ratio(1)?])
    }
}

/// Seconds from a call, or from each of two, to the next one of MPI's and to a later one.
pub(super) type Times = [f32; 2];

/// What tells sites apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    /// Places in the program: file and offset, innermost first.
    pub places: Vec<String>,
    /// The collective.
    pub kind: Kind,
    /// Size class: the power of two of the bytes.
    pub class: u32,
}

pub(super) struct Site {
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

/// How a call went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Way {
    #[default]
    Unknown,
    Blocking,
    Traced,
    Overlapped,
}

/// What is noted of one call.
#[derive(Default)]
pub(super) struct Record {
    site: Number,
    way: Way,
    begun: Option<Instant>,
    /// In the call.
    in_call: Duration,
    /// Threads of the program waited so long at guarded pages.
    pub waited: Duration,
    pub faults: u64,
    order: Vec<u32>,
    /// All was there.
    pub ended: Option<Instant>,
    bytes: usize,
}

impl Record {
    fn new(site: Number, way: Way, begun: Instant, bytes: usize) -> Record {
        Record {
            site,
            way,
            begun: Some(begun),
            in_call: begun.elapsed(),
            bytes,
            ..Record::default()
        }
    }
    /// A blocking call that has just ended.
    pub fn blocking(site: Number, begun: Instant, bytes: usize) -> Record {
        Record::new(site, Way::Blocking, begun, bytes)
    }
    /// The same, whose buffers will be watched.
    pub fn traced(site: Number, begun: Instant, bytes: usize) -> Record {
        Record::new(site, Way::Traced, begun, bytes)
    }
    /// A call that is to overlap.
    pub fn overlapped(site: Number, begun: Instant, bytes: usize) -> Record {
        Record::new(site, Way::Overlapped, begun, bytes)
    }
    /// The call returns.
    pub fn returned(&mut self) {
        self.in_call = self.begun.map_or(Duration::ZERO, |b| b.elapsed());
    }
    /// What `peer` sends has been touched.
    pub fn touched(&mut self, peer: u32, _at: Instant) {
        if !self.order.contains(&peer) {
            self.order.push(peer);
        }
    }
}

/// The site of the call that is being executed.
pub(super) fn here(kind: Kind, bytes: usize) -> Number {
    let frames = frames::of_program();
    let class = bytes.max(1).ilog2();
    let mut sites = super::lock(&SITES);
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
    let known = super::lock(&ORDERS);
    let order = known
        .iter()
        .find(|(k, _)| *k == key)
        .map(|(_, o)| o.clone());
    sites.push(Site::new(frames, key, order.unwrap_or_default()));
    sites.len() - 1
}

/// What to do at this call of the site. `apart`: the order of its data can be seen and chosen.
pub(super) fn choose(site: Number, mode: Mode, apart: bool, at: At, members: Members) -> Choice {
    let mut sites = super::lock(&SITES);
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
pub(super) fn order(site: Number) -> Vec<u32> {
    super::lock(&SITES)[site].order.clone()
}

/// The site's buffers cannot be guarded.
pub(super) fn refused(site: Number, why: Option<ferry_pageguard::Refusal>) {
    let why = why.map_or(
        "no whole page of the receive buffer can be guarded".into(),
        |e| e.to_string(),
    );
    super::lock(&SITES)[site].refusal = Some(why);
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
pub(super) fn hear(said: Vec<(ProcId, Saying)>) -> Vec<(ProcId, Saying)> {
    let mut early = super::lock(&EARLY);
    if said.is_empty() && early.is_empty() {
        return Vec::new();
    }
    early.extend(said.into_iter().map(|(from, saying)| (from, saying, 0)));
    let mut sites = super::lock(&SITES);
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
pub(super) fn ended(record: Record, settling: Duration) -> bool {
    let Some(begun) = record.begun else {
        return false;
    };
    let span = begun.elapsed().as_secs_f64();
    let mut sites = super::lock(&SITES);
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
    super::lock(&FOLLOWED).push(later);
    true
}

/// A call of MPI's has come (`all`: one that could overlap): what calls have taken until it. What
/// there is to say, and to whom, and how many of them are done with.
pub(super) fn later(all: bool) -> (Vec<(ProcId, Saying)>, u32) {
    let mut late = super::lock(&FOLLOWED);
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
    let mut sites = super::lock(&SITES);
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
pub(super) fn open_span(record: Record) -> bool {
    let mut spans = super::lock(&SPANS);
    spans.push(record);
    spans.len() == 1
}

/// The next call has come. Was anything measured, and of how many calls is the time until a later
/// one to be taken?
pub(super) fn close_spans() -> (bool, u32) {
    let all = std::mem::take(&mut *super::lock(&SPANS));
    let any = !all.is_empty();
    let ended = |record| u32::from(ended(record, Duration::ZERO));
    (any, all.into_iter().map(ended).sum())
}

/// Orders for sites that are still to be met.
pub(super) fn know(orders: Vec<(Key, Vec<u32>)>) {
    *super::lock(&ORDERS) = orders;
}

/// Looks at all sites.
pub(super) fn with_all<T>(look: impl FnOnce(&[Site]) -> T) -> T {
    look(&super::lock(&SITES))
}

/// Forgets all sites.
pub(super) fn forget() {
    super::lock(&SITES).clear();
    super::lock(&SPANS).clear();
    super::lock(&FOLLOWED).clear();
    super::lock(&EARLY).clear();
    super::lock(&ORDERS).clear();
}

mod frames {
    use super::FRAMES;
    use std::collections::HashMap;
    use std::ffi::{CStr, c_int, c_void};
    use std::sync::{Mutex, PoisonError};

    unsafe extern "C" {
        fn _Unwind_Backtrace(
            each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            argument: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut c_void) -> usize;
    }

    struct Walk {
        found: [usize; FRAMES],
        count: usize,
    }

    fn module(address: usize) -> Option<libc::Dl_info> {
        // SAFETY: zeros are valid for the structure, and it is filled or left.
        unsafe {
            let mut info = std::mem::zeroed::<libc::Dl_info>();
            (libc::dladdr(address as *const c_void, &raw mut info) != 0).then_some(info)
        }
    }

    /// Is the address in the library? To ask the linker takes microseconds; the library's own calls
    /// are few, and it does not move.
    fn is_own(address: usize) -> bool {
        static KNOWN: Mutex<Option<HashMap<usize, bool>>> = Mutex::new(None);
        let base = |address| module(address).map(|m| m.dli_fbase as usize);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        *known.entry(address).or_insert_with(|| {
            base(address).is_some_and(|b| Some(b) == base(each as *const () as usize))
        })
    }

    extern "C" fn each(context: *mut c_void, argument: *mut c_void) -> c_int {
        // SAFETY: the argument is the walk below, the context the unwinder's.
        unsafe {
            let walk = &mut *argument.cast::<Walk>();
            let at = _Unwind_GetIP(context);
            let own = walk.count == 0 && is_own(at);
            if at == 0 || own {
                return 0;
            }
            walk.found[walk.count] = at;
            walk.count += 1;
            if walk.count == FRAMES { 4 } else { 0 }
        }
    }

    /// Where in the program the call stands: return addresses outside the library, innermost first;
    /// 0: none.
    pub fn of_program() -> [usize; FRAMES] {
        let mut walk = Walk {
            found: [0; FRAMES],
            count: 0,
        };
        // SAFETY: the walk outlives the call.
        unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
        walk.found
    }

    /// An address as the file that it is in and its place there, with the function's name if that
    /// is known.
    pub fn name(address: usize) -> String {
        let Some(info) = module(address) else {
            return "?".into();
        };
        let text = |p: *const libc::c_char| {
            // SAFETY: null, or a string of the dynamic linker's.
            (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
        };
        let file = text(info.dli_fname).unwrap_or_default();
        let file = file.rsplit('/').next().unwrap_or_default();
        let offset = address - info.dli_fbase as usize;
        match text(info.dli_sname) {
            Some(function) => format!("{file}:{function}+{offset:#x}"),
            None => format!("{file}+{offset:#x}"),
        }
        .replace(char::is_whitespace, "_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        let key = Key {
            places: Vec::new(),
            kind: Kind::Alltoall,
            class: 20,
        };
        Site::new([0; FRAMES], key, Vec::new())
    }

    /// Calls of a site, each as long as `times` says for (overlapped, blocking) at that call; how
    /// many overlapped.
    fn calls(s: &mut Site, count: u64, times: impl Fn(u64) -> (f32, f32)) -> u64 {
        calls_and_later(s, count, times, |_| 0.1)
    }

    /// The same, and so long until a later call.
    fn calls_and_later(
        s: &mut Site,
        count: u64,
        times: impl Fn(u64) -> (f32, f32),
        later: impl Fn(u64) -> f32,
    ) -> u64 {
        let mut overlapped = 0;
        for _ in 0..count {
            s.calls += 1;
            let (with, without) = times(s.calls);
            let seconds = match s.choose(true) {
                Choice::Overlap => {
                    overlapped += 1;
                    with
                }
                _ => without,
            };
            s.took(s.calls, [seconds, seconds + later(s.calls)]);
        }
        overlapped
    }

    #[test]
    fn a_site_that_pays_overlaps_and_one_that_does_not_is_left() {
        let mut s = site();
        assert!(calls(&mut s, 1000, |_| (0.9, 1.0)) > 900);
        let mut s = site();
        assert!(calls(&mut s, 1000, |_| (1.1, 1.0)) < 20);
        let mut s = site();
        assert!(calls(&mut s, 1000, |_| (1.0, 1.0)) < 20, "no gain is none");
    }

    #[test]
    fn the_first_calls_take_turns_unless_overlap_is_much_slower() {
        let mut s = site();
        assert_eq!(calls(&mut s, TRIAL, |_| (1.05, 1.0)), 6);
        let mut s = site();
        assert_eq!(calls(&mut s, 2 * TRIAL, |_| (1.6, 1.0)), 2);
    }

    #[test]
    fn noise_in_one_call_does_not_end_the_trial_nor_decide() {
        for call in [2, 3, 6, 7, 10, 11] {
            let mut s = site();
            let slow = |n| (if n == call { 1.4 } else { 0.9 }, 1.0);
            assert_eq!(calls(&mut s, TRIAL, slow), 6);
            assert_eq!(calls(&mut s, 8, slow), 8);
            let mut s = site();
            let fast = |n| (if n == call { 0.5 } else { 1.0 }, 1.0);
            assert_eq!(calls(&mut s, TRIAL, fast), 6);
            assert_eq!(calls(&mut s, 8, fast), 0);
        }
    }

    #[test]
    fn what_follows_every_second_call_decides_nothing() {
        // Something long, which is there with and without overlap.
        for odd in [0, 1] {
            let long = |n: u64| if n % 2 == odd { 1.0 } else { 0.0 };
            let mut s = site();
            let more = calls(&mut s, 1000, |n| (0.9 + long(n), 1.0 + long(n)));
            assert!(more > 900);
            let mut s = site();
            let more = calls(&mut s, 1000, |n| (1.05 + long(n), 1.0 + long(n)));
            assert!(more < 25);
        }
    }

    #[test]
    fn a_site_whose_gain_is_lost_in_the_calls_that_follow_is_left() {
        let mut s = site();
        for _ in 0..1000 {
            s.calls += 1;
            let times = match s.choose(true) {
                Choice::Overlap => [0.8, 2.1],
                _ => [1.0, 2.0],
            };
            s.took(s.calls, times);
        }
        assert_eq!(s.pays, Some(false));
    }

    #[test]
    fn a_site_left_blocking_is_tried_ever_more_rarely() {
        let tried: Vec<u64> = (0..2600).filter(|&n| is_retried(n)).collect();
        assert_eq!(tried, [16, 48, 112, 240, 496, 1008, 1520, 2032, 2544]);
    }

    #[test]
    fn a_site_goes_by_what_all_have_decided() {
        let mut s = site();
        calls(&mut s, TRIAL, |_| (1.1, 1.0));
        s.verdict.pays = Some(true);
        assert!(calls(&mut s, 100, |_| (1.1, 1.0)) > 90);
        s.verdict.pays = Some(false);
        assert!(calls(&mut s, 100, |_| (0.5, 1.0)) < 7);
    }

    #[test]
    fn a_site_that_stops_paying_is_left_and_found_again() {
        let mut s = site();
        assert!(calls(&mut s, 200, |_| (0.9, 1.0)) > 180);
        // It takes a few calls to notice, no more.
        assert!(calls(&mut s, 200, |_| (1.3, 1.0)) < 64);
        assert!(calls(&mut s, 3000, |_| (0.8, 1.0)) > 1000);
    }
}

//! Call sites: what is known of each, and whether its calls overlap.
//!
//! A site is a place in the program with a kind of collective and a size class. Its first call blocks, and shows in which order its data are touched. Then calls that
//! overlap and calls that block are compared by the time from the call to the next one: whatever overlap costs elsewhere, such as a core that two
//! threads share, is in that. A site that does not pay is left blocking, and tried again ever more rarely. At which calls the other way is tried depends on the
//! calls' number alone, so that all ranks do the same; whether it pays they decide together ([`verdict`](super::verdict)).

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
/// Of the first calls a half overlaps: all ranks do the same then, and the two ways meet the same machine and network. Two and two in turn: where a
/// program does something else after every second call, both ways meet that, too.
pub(super) const TRIAL: u64 = 8;
/// So many times as long as a blocking call, and the trial is over. One call may be 10 % longer by chance, and if that ended it no gain would be found.
const MUCH: f64 = 1.5;
/// Among so many calls that overlap one blocks, to compare.
const CHECK: u64 = 24;
/// A site left blocking is tried after so many calls, then after twice as many each time, up to the second number.
const AGAIN: (u64, u64) = (16, 512);
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

    /// By enough, the least of them, and the middle one of the last three: one may be short by chance. Not the middle one beside the least of the others, which may be of a time when the
    /// whole machine was faster. `None`: nothing to compare.
    pub fn is_faster_than(&self, others: &Recent) -> Option<bool> {
        let faster = |one: f64, other: f64| one < (1.0 - GAIN) * other;
        let last = Recent(self.0[self.0.len().saturating_sub(3)..].to_vec());
        let least = faster(self.least()?, others.least()?);
        Some(least && faster(last.median()?, others.median()?))
    }
}

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
    /// Seconds from a call to the next one.
    spans_blocking: Recent,
    spans_overlapped: Recent,
    pays: Option<bool>,
    /// By the call that is under way the two ways are compared; does it overlap?
    compares: Option<bool>,
    verdict: Verdict,
}

static SITES: Mutex<Vec<Site>> = Mutex::new(Vec::new());
/// Blocking calls whose time until the next call is measured.
static SPANS: Mutex<Vec<Record>> = Mutex::new(Vec::new());
/// What others have said of calls that this rank has not come to yet, and how often it was looked at.
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
            spans_blocking: Recent::default(),
            spans_overlapped: Recent::default(),
            pays: None,
            compares: None,
            verdict: Verdict::default(),
        }
    }

    fn choose(&mut self, apart: bool) -> Choice {
        self.compares = None;
        if self.calls == 1 && apart && self.order.is_empty() && self.refusal.is_none() {
            return Choice::Trace;
        }
        let overlaps = self.overlaps();
        // A rank that cannot has its part in what the others' ways take.
        if overlaps && self.refusal.is_none() {
            Choice::Overlap
        } else {
            Choice::Block
        }
    }

    /// What all ranks do at this call.
    fn overlaps(&mut self) -> bool {
        let trial = self.calls <= TRIAL && self.ratio().is_none_or(|r| r < MUCH);
        if trial {
            let overlaps = self.calls % 4 >= 2;
            // The first ones have memory to fetch.
            self.compares = (self.calls > 2).then_some(overlaps);
            return overlaps;
        }
        let own = self.spans_overlapped.is_faster_than(&self.spans_blocking);
        let pays = self.verdict.pays.unwrap_or(own == Some(true));
        self.pays = Some(pays);
        let checks = |call: u64| {
            if pays {
                call % CHECK == TRIAL % CHECK
            } else {
                is_retried(call.saturating_sub(TRIAL))
            }
        };
        let overlaps = pays != checks(self.calls);
        // The call before a check is one of the other way.
        let compares = checks(self.calls) || checks(self.calls + 1) || self.calls == TRIAL;
        self.compares = compares.then_some(overlaps);
        overlaps
    }

    /// Time from call to call when overlapping, as a part of that when blocking.
    fn ratio(&self) -> Option<f64> {
        let (with, without) = (self.spans_overlapped.least()?, self.spans_blocking.least()?);
        (without > 0.0).then(|| with / without)
    }

    /// In words.
    pub fn verdict(&self) -> String {
        let together = if self.verdict.pays.is_some() {
            ", as all ranks decided"
        } else {
            ""
        };
        let ratio = self.ratio().map_or(String::new(), |r| {
            format!(" ({:+.1} % from call to call)", 100.0 * (r - 1.0))
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
pub(super) fn refused(site: Number, why: Option<ferry_overlap::Refusal>) {
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

/// A call that overlapped, or was traced, is over: all is there, and the next call has come. Returns what there is to say, and to whom.
pub(super) fn ended(record: Record, settling: Duration) -> Vec<(ProcId, Saying)> {
    let Some(begun) = record.begun else {
        return Vec::new();
    };
    let span = begun.elapsed().as_secs_f64();
    let mut sites = super::lock(&SITES);
    let Some(s) = sites.get_mut(record.site) else {
        return Vec::new();
    };
    s.bytes += record.bytes as u64;
    s.faults += record.faults;
    match record.way {
        Way::Overlapped => {
            s.overlapped += 1;
            // The first one has memory to fetch.
            if s.overlapped > 1 {
                s.spans_overlapped.add(span);
            }
            let seen = (record.in_call + record.waited + settling).as_secs_f64();
            if let Some(blocked) = s.blocked.median() {
                s.hidden += (blocked - seen).max(0.0);
            }
        }
        Way::Blocking | Way::Traced => {
            s.blocked.add(record.in_call.as_secs_f64());
            // A traced one has its buffer guarded while it is read.
            if record.way == Way::Blocking {
                s.spans_blocking.add(span);
            }
        }
        Way::Unknown => {}
    }
    if record.way == Way::Traced && !record.order.is_empty() {
        s.order = record.order;
    }
    match s.compares.take() {
        Some(overlapped) => s.verdict.measured(overlapped, span),
        None => Vec::new(),
    }
}

/// The time from this blocking call to the next one is measured. True if nothing was measured before.
pub(super) fn open_span(record: Record) -> bool {
    let mut spans = super::lock(&SPANS);
    spans.push(record);
    spans.len() == 1
}

/// The next call has come. What there is to say, and to whom; `None` if nothing was measured.
pub(super) fn close_spans() -> Option<Vec<(ProcId, Saying)>> {
    let all = std::mem::take(&mut *super::lock(&SPANS));
    let any = !all.is_empty();
    let ended = |record| ended(record, Duration::ZERO);
    any.then(|| all.into_iter().flat_map(ended).collect())
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
    super::lock(&EARLY).clear();
    super::lock(&ORDERS).clear();
}

mod frames {
    use super::FRAMES;
    use std::ffi::{CStr, c_int, c_void};

    unsafe extern "C" {
        fn _Unwind_Backtrace(
            each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            argument: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut c_void) -> usize;
    }

    struct Walk {
        own: usize,
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

    extern "C" fn each(context: *mut c_void, argument: *mut c_void) -> c_int {
        // SAFETY: the argument is the walk below, the context the unwinder's.
        unsafe {
            let walk = &mut *argument.cast::<Walk>();
            let at = _Unwind_GetIP(context);
            let own = module(at).is_some_and(|m| m.dli_fbase as usize == walk.own);
            if at == 0 || (own && walk.count == 0) {
                return 0;
            }
            walk.found[walk.count] = at;
            walk.count += 1;
            if walk.count == FRAMES { 4 } else { 0 }
        }
    }

    /// Where in the program the call stands: return addresses outside the library, innermost first; 0: none.
    pub fn of_program() -> [usize; FRAMES] {
        let own = module(each as *const () as usize).map_or(0, |m| m.dli_fbase as usize);
        let mut walk = Walk {
            own,
            found: [0; FRAMES],
            count: 0,
        };
        // SAFETY: the walk outlives the call.
        unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
        walk.found
    }

    /// An address as the file that it is in and its place there, with the function's name if that is known.
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

    /// Calls of a site, each as long as `times` says for (overlapped, blocking) at that call; how many overlapped.
    fn calls(s: &mut Site, count: u64, times: impl Fn(u64) -> (f64, f64)) -> u64 {
        let mut overlapped = 0;
        for _ in 0..count {
            s.calls += 1;
            let (with, without) = times(s.calls);
            match s.choose(true) {
                Choice::Overlap => {
                    overlapped += 1;
                    s.spans_overlapped.add(with);
                }
                _ => s.spans_blocking.add(without),
            }
        }
        overlapped
    }

    #[test]
    fn a_site_that_pays_overlaps_and_one_that_does_not_is_left() {
        let mut s = site();
        assert!(calls(&mut s, 1000, |_| (0.9, 1.0)) > 900);
        let mut s = site();
        assert!(calls(&mut s, 1000, |_| (1.1, 1.0)) < 15);
        let mut s = site();
        assert!(calls(&mut s, 1000, |_| (1.0, 1.0)) < 15, "no gain is none");
    }

    #[test]
    fn the_first_calls_take_turns_unless_overlap_is_much_slower() {
        let mut s = site();
        assert_eq!(calls(&mut s, 8, |_| (1.05, 1.0)), 4);
        let mut s = site();
        assert_eq!(calls(&mut s, 16, |_| (1.6, 1.0)), 1);
    }

    #[test]
    fn noise_in_one_call_does_not_end_the_trial_nor_decide() {
        for call in [2, 3, 6, 7] {
            let mut s = site();
            let slow = |n| (if n == call { 1.4 } else { 0.9 }, 1.0);
            assert_eq!(calls(&mut s, 8, slow), 4);
            assert_eq!(calls(&mut s, 8, slow), 8);
            let mut s = site();
            let fast = |n| (if n == call { 0.5 } else { 1.0 }, 1.0);
            assert_eq!(calls(&mut s, 8, fast), 4);
            assert_eq!(calls(&mut s, 8, fast), 0);
        }
    }

    #[test]
    fn a_site_left_blocking_is_tried_ever_more_rarely() {
        let tried: Vec<u64> = (0..2600).filter(|&n| is_retried(n)).collect();
        assert_eq!(tried, [16, 48, 112, 240, 496, 1008, 1520, 2032, 2544]);
    }

    #[test]
    fn a_site_goes_by_what_all_have_decided() {
        let mut s = site();
        calls(&mut s, 8, |_| (1.1, 1.0));
        s.verdict.pays = Some(true);
        assert!(calls(&mut s, 100, |_| (1.1, 1.0)) > 90);
        s.verdict.pays = Some(false);
        assert!(calls(&mut s, 100, |_| (0.5, 1.0)) < 5);
    }

    #[test]
    fn a_site_that_stops_paying_is_left_and_found_again() {
        let mut s = site();
        assert!(calls(&mut s, 200, |_| (0.9, 1.0)) > 180);
        // It takes a few calls to notice, no more.
        assert!(calls(&mut s, 200, |_| (1.3, 1.0)) < 20);
        assert!(calls(&mut s, 3000, |_| (0.8, 1.0)) > 1000);
    }
}

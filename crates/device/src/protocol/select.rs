//! Which way of moving a large message is the faster one here.
//!
//! Reading the sender's memory copies once, but through the kernel; pieces through the ring are
//! copied twice, but by two cores at the same time and without a system call. Which wins depends on
//! processor and kernel, by factors: so each size class tries both ways on its first messages and
//! keeps to the better, trying the other one again now and then.

use crate::base::key::ProcId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A way of moving an announced message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// The receiver asks, the sender writes pieces.
    Pieces,
    /// The receiver reads the sender's memory.
    Read,
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::Read => Way::Pieces,
            Way::Pieces => Way::Read,
        }
    }
}

/// Who sees to an announced message at the receiver: which cores copy, and what else they have to
/// do, is not the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copier {
    /// A thread of the program that waits in MPI.
    Program,
    /// The same while this process has large messages to send itself. Those count as well: where
    /// one rank reads after the other each message takes half of the time that both do.
    Sender,
    /// Who shares its core: the progress thread, with the sender's or with programs, and a program
    /// where ranks outnumber cores. What counts is the work, wherever it is done, and not when
    /// it has ended: it waits for pieces while others on its core do what has to be done, too.
    Sharing,
}

/// Messages of a trial that go each way, one after the other, at least. Those that come behind them
/// before their part of the trial has ended go the same way: what this process and its peer have to
/// do for messages that go the other way would be counted as well.
const TRIAL: u32 = 6;
/// The first of them are not counted: others are still under way.
const UNCOUNTED: u32 = 2;
/// The rest are, the slowest apart: it may have waited for something else.
const COUNTED: u32 = TRIAL - UNCOUNTED;
/// So many more are not counted at most because they come through memory that has not been used
/// before, or while others go the other way; a program that has only such messages is judged by
/// them.
const SPOILED_MAX: u32 = 64;
/// So many messages in a row go the way that their sender has gone with one of this process's.
const FOLLOWS_MAX: u8 = 64;
/// Messages between the first trial of a class and the second; each verdict that is the same again
/// doubles them.
const REST_MIN: u32 = 32;
/// Where a trial costs more it is made more rarely: what its slower messages cost is at most such a
/// part of what all take until the next.
const COST_MAX: f64 = 0.01;
/// Messages between trials at most.
const REST_MAX: u32 = 4096;
/// One trial counts at most so much worse than those before it: the process may have lost its core
/// meanwhile. One that is so much better counts alone: nothing makes a copy faster than it is.
const WORSE_MAX: f64 = 2.0;
/// Size classes: up to 32 KiB, and four times as much each; the last has no end.
pub(crate) const CLASSES: usize = 6;

/// What has been measured of one way in one class.
#[derive(Clone, Copy, Default)]
struct Figure {
    /// Seconds and bytes of the latest trial's counted messages so far.
    sum: (f64, f64),
    /// The same of the one that took longest for its bytes.
    worst: (f64, f64),
    /// How many messages those are.
    messages: u32,
    /// Seconds a byte.
    known: Option<f64>,
}

impl Figure {
    fn begin(&mut self) {
        *self = Figure {
            known: self.known,
            ..Figure::default()
        };
    }

    /// A message of `len` bytes took so many seconds. Returns whether `enough` are counted now.
    fn note(&mut self, len: u64, took: f64, enough: u32) -> bool {
        let len = len as f64;
        self.sum = (self.sum.0 + took, self.sum.1 + len);
        if took * self.worst.1 >= self.worst.0 * len {
            self.worst = (took, len);
        }
        self.messages += 1;
        let whole = self.messages >= enough;
        if whole {
            let new = self.latest();
            self.known = Some(match self.known {
                Some(old) if new * WORSE_MAX < old => new,
                Some(old) => (old + new.min(WORSE_MAX * old)) / 2.0,
                None => new,
            });
        }
        whole
    }

    /// By the latest trial alone.
    fn latest(&self) -> f64 {
        (self.sum.0 - self.worst.0) / (self.sum.1 - self.worst.1).max(1.0)
    }
}

/// What the next message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// A trial of that way.
    Trial(Way),
    /// The latest trial has ended.
    Rest,
}

#[derive(Clone, Copy)]
struct Class {
    /// By way.
    figures: [Figure; 2],
    stage: Stage,
    /// Messages that have been given their way in the present stage.
    since: u32,
    /// Those that have ended and were not counted: the first ones, and those that say nothing.
    first: u32,
    spoiled: u32,
    /// Messages that end for each that is given its way: two if this process's own count.
    each: u32,
    /// How many of those have yet to end.
    own: u32,
    /// How many trials there have been.
    trials: u32,
    /// Messages that the latest one has read.
    read: u32,
    /// Messages from the end of one trial to the beginning of the next.
    rest: u32,
    verdict: Way,
}

/// A large message under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    way: Way,
    copier: Copier,
    class: usize,
    /// The trial to which it belongs.
    trial: Option<u32>,
    /// [`PathSelector::cold`] had been said so often when it was given its way.
    cold: u64,
    /// When it met its receive.
    met: Instant,
    /// When it was given its way.
    began: Instant,
    /// What taking pieces out has taken so far.
    worked: Duration,
}

/// What has been measured.
pub(crate) struct PathSelector {
    /// For each [`Copier`] apart.
    classes: [[Class; CLASSES]; 3],
    /// When the last message ended, and which way it went: what queued behind it began only then.
    ended: Option<(Instant, Way)>,
    /// When the first of those under way, or of the last that were, met its receive, and how often
    /// [`PathSelector::cold`] had been said.
    begun: Option<(Instant, u64)>,
    /// Pieces that came or went through memory that had not been used before.
    cold: u64,
    /// Messages under way, by way.
    under_way: [u32; 2],
    /// By peer and class: the way that the peer has gone with a message of this process's, and how
    /// many of the peer's have followed it.
    ways: HashMap<ProcId, [Option<(Way, u8)>; CLASSES]>,
}

impl Default for PathSelector {
    fn default() -> PathSelector {
        let class = Class {
            figures: [Figure::default(); 2],
            stage: Stage::Trial(Way::Read),
            since: 0,
            first: 0,
            spoiled: 0,
            each: 1,
            own: 0,
            trials: 0,
            read: 0,
            rest: REST_MIN,
            verdict: Way::Read,
        };
        let mut classes = [[class; CLASSES]; 3];
        for class in &mut classes[Copier::Sender as usize] {
            class.each = 2;
        }
        PathSelector {
            classes,
            ended: None,
            begun: None,
            cold: 0,
            under_way: [0; 2],
            ways: HashMap::new(),
        }
    }
}

pub(crate) fn class_of(len: u64) -> usize {
    let over = (len >> 15).checked_ilog2().map_or(0, |l| l / 2 + 1);
    (over as usize).min(CLASSES - 1)
}

impl Class {
    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        (self.since, self.first, self.spoiled, self.own) = (0, 0, 0, 0);
    }

    /// The next message's way, and the trial to which it belongs.
    fn choose(&mut self) -> (Way, Option<u32>) {
        if self.stage == Stage::Rest && self.since >= self.rest {
            self.trials = self.trials.saturating_add(1);
            self.figures.iter_mut().for_each(Figure::begin);
            self.enter(Stage::Trial(Way::Read));
        }
        self.since += 1;
        match self.stage {
            Stage::Trial(way) => {
                let trial = self.trials;
                self.own += self.each - 1;
                // What was to be counted can have ended otherwise: its sender is dead, say.
                if self.since >= REST_MAX {
                    self.enter(Stage::Rest);
                }
                (way, Some(trial))
            }
            Stage::Rest => (self.verdict, None),
        }
    }

    /// A message of the present trial took so many seconds. `sound`: that says what others will.
    fn note(&mut self, way: Way, len: u64, took: f64, sound: bool) {
        if self.stage != Stage::Trial(way) {
            return;
        }
        if !sound && self.spoiled < SPOILED_MAX {
            self.spoiled += 1;
            return;
        }
        if self.first < UNCOUNTED * self.each {
            self.first += 1;
            return;
        }
        if self.figures[way as usize].note(len, took, COUNTED * self.each) {
            match way {
                Way::Read => {
                    // As many have been read for nothing if pieces are faster.
                    self.read = self.since;
                    self.enter(Stage::Trial(Way::Pieces));
                }
                Way::Pieces => self.judge(),
            }
        }
    }

    /// The trial has ended.
    fn judge(&mut self) {
        let faster = |pieces: f64, read: f64| {
            if pieces < read {
                Way::Pieces
            } else {
                Way::Read
            }
        };
        let [latest_pieces, latest_read] = self.figures.map(|f| f.latest());
        let [pieces, read] = self.figures.map(|f| f.known.unwrap_or_else(|| f.latest()));
        let verdict = faster(pieces, read);
        let same = self.trials == 0 || verdict == self.verdict;
        if !same || faster(latest_pieces, latest_read) != verdict {
            self.rest = REST_MIN;
        } else if self.trials > 0 {
            let slower = pieces.max(read) / pieces.min(read).max(f64::MIN_POSITIVE) - 1.0;
            let went = match verdict {
                Way::Read => self.since,
                Way::Pieces => self.read,
            };
            // A first trial may have been an accident.
            let afford = f64::from(went) * slower / COST_MAX;
            self.rest = (2 * self.rest).max(afford as u32).min(REST_MAX);
        }
        self.verdict = verdict;
        self.enter(Stage::Rest);
    }
}

impl PathSelector {
    /// The way for a message of `len` bytes that goes now, and what [`PathSelector::note`] wants at its
    /// end. `met`: when it met its receive; this process may have seen to what its peer reads
    /// since then.
    pub fn choose(&mut self, copier: Copier, from: ProcId, len: u64, met: Instant) -> Measured {
        let class = class_of(len);
        let (way, trial) = match copier {
            Copier::Sender => self.follow(from, class),
            _ => None,
        }
        .map(|way| (way, None))
        .unwrap_or_else(|| self.classes[copier as usize][class].choose());
        if self.under_way == [0; 2] {
            self.begun = Some((met, self.cold));
        }
        self.under_way[way as usize] += 1;
        Measured {
            way,
            copier,
            class,
            trial,
            cold: self.cold,
            met,
            began: Instant::now(),
            worked: Duration::ZERO,
        }
    }

    /// Pieces come, or have gone, through memory that had not been used before: messages under way
    /// say nothing of what later ones will take.
    pub fn cold(&mut self) {
        self.cold += 1;
    }

    /// So many messages of about `len` bytes have come unannounced.
    pub fn passed(&mut self, len: u64, messages: u32) {
        for class in self.classes.iter_mut().map(|of| &mut of[class_of(len)]) {
            if class.stage == Stage::Rest {
                class.since = class.since.saturating_add(messages);
            }
        }
    }

    /// A peer that this process follows has gone this way with a message of `len` bytes.
    pub fn went(&mut self, peer: ProcId, len: u64, way: Way) {
        self.ways.entry(peer).or_default()[class_of(len)] = Some((way, 0));
    }

    /// The way of a peer that is followed. Of two that exchange messages one decides for both: what
    /// one reads keeps it from writing what the other one wants in pieces, so that neither
    /// would ever find those faster while the other one reads.
    fn follow(&mut self, peer: ProcId, class: usize) -> Option<Way> {
        let known = &mut self.ways.get_mut(&peer)?[class];
        let (way, followed) = known.as_mut()?;
        *followed += 1;
        let way = *way;
        if *followed >= FOLLOWS_MAX {
            *known = None;
        }
        Some(way)
    }

    /// A message that could go its `way` since then has just ended: how long it took once those
    /// before it had, and whether none went the other way meanwhile.
    fn end(&mut self, way: Way, since: Instant) -> (Duration, bool) {
        let now = Instant::now();
        let before = self.ended.replace((now, way)).filter(|b| b.0 > since);
        let since = before.map_or(since, |(ended, _)| ended);
        let others = self.under_way[way.other() as usize];
        let apart = others == 0 && before.is_none_or(|(_, w)| w == way);
        (now.saturating_duration_since(since), apart)
    }

    /// A message of `len` bytes has just ended.
    pub fn note(&mut self, len: u64, measured: Measured) {
        let way = measured.way;
        self.drop(measured);
        let (took, apart) = self.end(way, measured.met);
        let cold = self.cold;
        let class = &mut self.classes[measured.copier as usize][measured.class];
        if measured.trial != Some(class.trials) {
            return;
        }
        let took = match (measured.copier, way) {
            // The sender's part is as much again.
            (Copier::Sharing, Way::Pieces) => 2 * measured.worked,
            (Copier::Sharing, Way::Read) => measured.began.elapsed(),
            _ => took,
        };
        let warm = measured.cold == cold || way == Way::Read;
        class.note(way, len, took.as_secs_f64(), apart && warm);
    }

    /// A message of `len` bytes of this process's own has just ended, whose receiver goes the way
    /// of this process.
    pub fn sent(&mut self, len: u64, way: Way) {
        let class = class_of(len);
        let of = &mut self.classes[Copier::Sender as usize][class];
        if of.stage != Stage::Trial(way) || of.own == 0 {
            return;
        }
        of.own -= 1;
        let Some((begun, cold)) = self.begun else {
            return;
        };
        let (took, apart) = self.end(way, begun);
        let warm = cold == self.cold || way == Way::Read;
        let of = &mut self.classes[Copier::Sender as usize][class];
        of.note(way, len, took.as_secs_f64(), apart && warm);
    }

    /// A message is not under way any more, nor is it to be counted.
    pub fn drop(&mut self, measured: Measured) {
        let under_way = &mut self.under_way[measured.way as usize];
        *under_way = under_way.saturating_sub(1);
    }
}

impl Measured {
    /// Does `work` on a piece that has come.
    #[inline]
    pub fn work(&mut self, work: impl FnOnce()) {
        let counts = self.copier == Copier::Sharing && self.trial.is_some();
        let since = counts.then(Instant::now);
        work();
        if let Some(since) = since {
            self.worked += since.elapsed();
        }
    }

    /// Is it part of a trial?
    pub fn is_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// The way that was chosen.
    pub fn way(&self) -> Way {
        self.way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_by_four() {
        let kib = |n: u64| class_of(n << 10);
        assert_eq!(
            [
                kib(16),
                kib(31),
                kib(32),
                kib(127),
                kib(128),
                kib(511),
                kib(512)
            ],
            [0, 0, 1, 1, 2, 2, 3]
        );
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    /// Sends `messages` of which those that go the `fast` way take 1 ms and others 3; returns how
    /// many went the other way.
    fn send(copying: &mut PathSelector, messages: u32, fast: Way, copier: Copier) -> u32 {
        let mut slow_ones = 0;
        for _ in 0..messages {
            let mut measured = copying.choose(copier, 0, 100_000, Instant::now());
            let took = Duration::from_millis(if measured.way == fast { 1 } else { 3 });
            slow_ones += u32::from(measured.way != fast);
            copying.ended = None;
            measured.met = Instant::now() - took;
            measured.began = measured.met;
            measured.worked = took / 2;
            copying.note(100_000, measured);
        }
        slow_ones
    }

    /// Messages that came in pieces without having been given their way bring the next trial
    /// nearer, as others do.
    #[test]
    fn messages_that_came_unannounced_count_towards_the_next_trial() {
        let mut copying = PathSelector::default();
        send(&mut copying, 2 * TRIAL, Way::Pieces, Copier::Program);
        for passed in [REST_MIN, 0] {
            copying.passed(10_000_000, REST_MAX);
            copying.passed(100_000, passed);
            let next = copying.choose(Copier::Program, 0, 100_000, Instant::now());
            assert_eq!(next.is_trial(), passed >= REST_MIN);
            assert_eq!(next.way() == Way::Read, next.is_trial());
            copying.classes[0][1].enter(Stage::Rest);
        }
    }

    /// Both ways are tried, then the faster one is kept to, and the other one tried again now and
    /// then; apart for each class and for each copier.
    #[test]
    fn the_faster_way_wins() {
        for (fast, slow) in [(Way::Read, Way::Pieces), (Way::Pieces, Way::Read)] {
            let mut copying = PathSelector::default();
            let first = send(&mut copying, 2 * TRIAL, fast, Copier::Program);
            assert_eq!(first, TRIAL);
            let later = send(&mut copying, 10_000, fast, Copier::Program);
            // One that takes three times as long is asked for again so rarely that it costs a
            // hundredth.
            assert!((TRIAL..=5 * TRIAL).contains(&later), "{later}");
            let busy = send(&mut copying, 100, slow, Copier::Sharing);
            assert!((TRIAL..=3 * TRIAL).contains(&busy), "{busy}");
            for round in [Way::Read, Way::Pieces] {
                for _ in 0..TRIAL {
                    let measured = copying.choose(Copier::Program, 0, 10_000_000, Instant::now());
                    assert_eq!(measured.way, round);
                    copying.note(10_000_000, measured);
                }
            }
        }
    }

    /// What was true once may change, and one bad trial does not turn a clear verdict.
    #[test]
    fn a_verdict_can_change_but_not_by_one_accident() {
        let mut copying = PathSelector::default();
        send(&mut copying, 2 * TRIAL, Way::Pieces, Copier::Program);
        let class = copying.classes[0][class_of(100_000)];
        assert_eq!(class.verdict, Way::Pieces);
        let mut unlucky = class;
        unlucky.figures.iter_mut().for_each(Figure::begin);
        for (way, took) in [(Way::Read, 0.003), (Way::Pieces, 1.0)] {
            unlucky.enter(Stage::Trial(way));
            for _ in 0..TRIAL {
                unlucky.note(way, 100_000, took, true);
            }
        }
        assert_eq!(unlucky.verdict, Way::Pieces);
        let late = send(&mut copying, 20_000, Way::Read, Copier::Program);
        assert!(late < 2000, "{late} of 20000 went the way that is slow now");
    }

    /// Messages of which many were chosen before the first had ended go one way until its part of
    /// the trial has ended.
    #[test]
    fn many_at_once() {
        let mut copying = PathSelector::default();
        for round in [Way::Read, Way::Pieces] {
            let all: Vec<_> = (0..64)
                .map(|_| copying.choose(Copier::Program, 0, 100_000, Instant::now()))
                .collect();
            for mut m in all {
                assert_eq!(m.way, round);
                copying.ended = None;
                let took = if m.way == Way::Pieces { 1 } else { 5 };
                m.met = Instant::now() - Duration::from_millis(took);
                copying.note(100_000, m);
            }
        }
        let class = copying.classes[0][class_of(100_000)];
        assert_eq!((class.stage, class.verdict), (Stage::Rest, Way::Pieces));
    }

    /// What comes through new memory, or while messages go the other way, says nothing; but a
    /// program that has nothing else is judged by it.
    #[test]
    fn spoiled_messages_do_not_count() {
        let mut copying = PathSelector::default();
        let class = class_of(100_000);
        let mut one = |warm: bool, other: bool| {
            let measured = copying.choose(Copier::Program, 0, 100_000, Instant::now());
            if !warm {
                copying.cold();
            }
            copying.under_way[1 - measured.way as usize] = u32::from(other);
            copying.note(100_000, measured);
            copying.under_way = [0; 2];
            (measured.way, copying.classes[0][class].stage)
        };
        for _ in 0..SPOILED_MAX {
            assert_eq!(one(true, true).0, Way::Read);
        }
        for _ in 0..TRIAL {
            assert_eq!(one(true, true).0, Way::Read);
        }
        for _ in 0..10 {
            assert_eq!(one(false, false).0, Way::Pieces);
        }
        for _ in 1..TRIAL {
            assert_eq!(one(true, false), (Way::Pieces, Stage::Trial(Way::Pieces)));
        }
        assert_eq!(one(true, false), (Way::Pieces, Stage::Rest));
    }

    /// A message that waited for something else does not decide.
    #[test]
    fn the_slowest_is_left_out() {
        let mut figure = Figure::default();
        for took in [1.0, 50.0, 2.0, 3.0] {
            let whole = figure.note(10, took, 4);
            assert_eq!(whole, figure.messages == 4);
        }
        assert!((figure.latest() - 0.2).abs() < 1e-9);
    }

    /// An accident of an earlier trial does not outlive the next one; one of the latest counts
    /// little.
    #[test]
    fn a_trial_that_is_much_better_counts_alone() {
        let mut figure = Figure::default();
        let mut trial = |took: f64| {
            figure.begin();
            for _ in 0..COUNTED {
                figure.note(10, took, COUNTED);
            }
            figure.known.unwrap()
        };
        for (took, known) in [(100.0, 10.0), (5.0, 0.5), (6.0, 0.55), (1000.0, 0.825)] {
            let now = trial(took);
            assert!((now - known).abs() < 1e-9, "{took}: {now}, not {known}");
        }
    }

    /// A process that sends to a peer as well goes the peer's way, for as long as it hears of it.
    #[test]
    fn followers_follow() {
        let mut copying = PathSelector::default();
        copying.went(3, 100_000, Way::Pieces);
        let mut way = |copier, from, len| copying.choose(copier, from, len, Instant::now()).way;
        for _ in 0..FOLLOWS_MAX {
            assert_eq!(way(Copier::Sender, 3, 90_000), Way::Pieces);
            assert_eq!(way(Copier::Sender, 4, 90_000), Way::Read);
            assert_eq!(way(Copier::Program, 3, 90_000), Way::Read);
            assert_eq!(way(Copier::Sender, 3, 900_000), Way::Read);
        }
        assert_eq!(way(Copier::Sender, 3, 90_000), Way::Read);
    }

    /// Two ranks exchange messages: one reads, then the other one does, 2 ms each; pieces of both
    /// take 3 ms.
    #[test]
    fn what_is_exchanged_takes_the_time_of_both() {
        let mut copying = PathSelector::default();
        for _ in 0..100 {
            let mut measured = copying.choose(Copier::Sender, 3, 100_000, Instant::now());
            let way = measured.way();
            let (one, both) = match way {
                Way::Read => (2, 4),
                Way::Pieces => (3, 3),
            };
            let now = Instant::now();
            measured.met = now - Duration::from_millis(one);
            copying.ended = None;
            copying.note(100_000, measured);
            copying.begun = Some((now - Duration::from_millis(both), copying.cold));
            copying.ended = Some((now - Duration::from_millis(both - one), way));
            copying.sent(100_000, way);
        }
        let class = copying.classes[Copier::Sender as usize][class_of(100_000)];
        assert!(class.trials > 0 && class.verdict == Way::Pieces);
        let [pieces, read] = class.figures.map(|f| f.known.unwrap_or(0.0) * 1e8);
        // One of 3 ms is left out.
        assert!(
            (1.2..1.6).contains(&pieces) && (1.9..2.4).contains(&read),
            "{pieces} {read}"
        );
    }

    /// Of what is done on a shared core only the work counts: pieces for which it has waited for
    /// long are none.
    #[test]
    fn on_a_shared_core_the_work_counts() {
        let mut copying = PathSelector::default();
        for _ in 0..2 * TRIAL {
            let mut measured = copying.choose(Copier::Sharing, 0, 100_000, Instant::now());
            let waited = match measured.way() {
                Way::Read => 3,
                Way::Pieces => 9,
            };
            copying.ended = None;
            measured.began = Instant::now() - Duration::from_millis(waited);
            if measured.way() == Way::Pieces {
                measured.work(|| ());
                measured.worked += Duration::from_millis(1);
            }
            copying.note(100_000, measured);
        }
        let class = copying.classes[Copier::Sharing as usize][class_of(100_000)];
        assert_eq!(class.verdict, Way::Pieces);
        let [pieces, read] = class.figures.map(|f| f.known.unwrap_or(0.0) * 1e8);
        assert!(
            (1.9..2.9).contains(&pieces) && read >= 2.9,
            "{pieces} {read}"
        );
    }
}

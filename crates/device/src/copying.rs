//! Which way of moving a large message is the faster one here.
//!
//! Reading the sender's memory copies once, but through the kernel; pieces through the ring are copied twice, but by two cores at the same
//! time and without a system call. Which wins depends on processor and kernel, by factors: so each size class tries both ways on
//! its first messages and keeps to the better, trying the other one again now and then.

use std::time::{Duration, Instant};

/// A way of moving an announced message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// The receiver asks, the sender writes pieces.
    Pieces,
    /// The receiver reads the sender's memory.
    Read,
}

/// Who sees to an announced message at the receiver: which cores copy, and what else they have to do, is not the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copier {
    /// A thread of the program that waits in MPI.
    Program,
    /// The same while this process has large messages to send itself.
    Sender,
    /// The progress thread. It may share its core with the sender's, or with programs, so that what counts is the work, wherever it is done, and not when it has
    /// ended: it waits for pieces while the sender's thread does something else that has to be done, too.
    Thread,
}

/// Messages of the first trial that go each way, one after the other.
const TRIAL: u32 = 6;
/// The first of them are not counted: others are still under way, and memory is used for the first time.
const UNCOUNTED: u32 = 2;
/// The same of a later trial, which asks whether what is known still holds: it costs whatever waits for the messages that go the slower way.
const AGAIN: u32 = 3;
const AGAIN_UNCOUNTED: u32 = 1;
/// Messages between the first trial of a class and the second; each verdict that is the same again doubles them.
const REST_MIN: u32 = 32;
/// Where a trial costs more it is made more rarely: what its slower messages cost is at most such a part of what all take until the next.
const COST_MAX: f64 = 0.01;
/// Messages between trials at most.
const REST_MAX: u32 = 4096;
/// One trial counts at most so much worse than those before it: the process may have lost its core meanwhile.
const WORSE_MAX: f64 = 2.0;
/// Size classes: up to 32 KiB, and four times as much each; the last has no end.
const CLASSES: usize = 6;

/// What has been measured of one way in one class.
#[derive(Clone, Copy, Default)]
struct Figure {
    /// Seconds and bytes of the latest trial's counted messages so far, and how many those are.
    sum: (f64, f64, u32),
    /// Seconds a byte.
    known: Option<f64>,
}

impl Figure {
    /// A counted message of `len` bytes took so many seconds. True: it was the last of its trial's `counted`.
    fn note(&mut self, len: u64, took: f64, counted: u32) -> bool {
        let (seconds, bytes, messages) = self.sum;
        self.sum = (seconds + took, bytes + len as f64, messages + 1);
        if self.sum.2 < counted {
            return false;
        }
        let new = self.latest();
        self.known = Some(match self.known {
            Some(old) => (old + new.min(WORSE_MAX * old)) / 2.0,
            None => new,
        });
        true
    }

    /// By the latest trial alone.
    fn latest(&self) -> f64 {
        self.sum.0 / self.sum.1.max(1.0)
    }
}

#[derive(Clone, Copy)]
struct Class {
    /// By way.
    figures: [Figure; 2],
    /// Messages since the latest trial began.
    since: u32,
    /// How many trials there have been.
    trials: u32,
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
    /// The trial in which it counts.
    trial: Option<u32>,
    began: Instant,
    /// What taking pieces out has taken so far.
    worked: Duration,
}

/// What has been measured.
pub(crate) struct Copying {
    /// For each [`Copier`] apart.
    classes: [[Class; CLASSES]; 3],
    /// When the last measured message ended: what queued behind it began only then.
    ended: Option<Instant>,
}

impl Default for Copying {
    fn default() -> Copying {
        let class = Class {
            figures: [Figure::default(); 2],
            since: 0,
            trials: 0,
            rest: REST_MIN,
            verdict: Way::Read,
        };
        Copying {
            classes: [[class; CLASSES]; 3],
            ended: None,
        }
    }
}

fn class_of(len: u64) -> usize {
    let over = (len >> 15).checked_ilog2().map_or(0, |l| l / 2 + 1);
    (over as usize).min(CLASSES - 1)
}

impl Class {
    /// How many messages of the present trial go each way, and how many of those are not counted.
    fn trial(&self) -> (u32, u32) {
        if self.trials == 0 {
            (TRIAL, UNCOUNTED)
        } else {
            (AGAIN, AGAIN_UNCOUNTED)
        }
    }

    /// The next message's way, and the trial in which it counts.
    fn choose(&mut self) -> (Way, Option<u32>) {
        if self.since >= 2 * self.trial().0 + self.rest {
            self.since = 0;
            self.trials = self.trials.saturating_add(1);
            self.figures.iter_mut().for_each(|f| f.sum = (0.0, 0.0, 0));
        }
        let (each, uncounted) = self.trial();
        let (round, nth) = (self.since / each, self.since % each);
        self.since += 1;
        let counts = (nth >= uncounted).then_some(self.trials);
        match round {
            0 => (Way::Read, counts),
            1 => (Way::Pieces, counts),
            _ => (self.verdict, None),
        }
    }

    /// A message of the present trial took so many seconds.
    fn note(&mut self, way: Way, len: u64, took: f64) {
        let (each, uncounted) = self.trial();
        if !self.figures[way as usize].note(len, took, each - uncounted) {
            return;
        }
        let [pieces, read] = self.figures.map(|f| f.known);
        let (Some(pieces), Some(read)) = (pieces, read) else {
            return;
        };
        let faster = |pieces: f64, read: f64| {
            if pieces < read {
                Way::Pieces
            } else {
                Way::Read
            }
        };
        let verdict = faster(pieces, read);
        let ended = way == Way::Pieces;
        let [latest_pieces, latest_read] = self.figures.map(|f| f.latest());
        if verdict != self.verdict || ended && faster(latest_pieces, latest_read) != verdict {
            self.rest = REST_MIN;
        } else if ended {
            let slower = pieces.max(read) / pieces.min(read).max(f64::MIN_POSITIVE) - 1.0;
            let afford = f64::from(AGAIN) * slower / COST_MAX;
            // A first trial may have been an accident.
            let afford = if self.trials > 0 { afford as u32 } else { 0 };
            self.rest = (2 * self.rest).max(afford).min(REST_MAX);
        }
        self.verdict = verdict;
    }
}

impl Copying {
    /// The way for a message of `len` bytes that goes now, and what [`Copying::note`] wants at its end.
    pub fn choose(&mut self, copier: Copier, len: u64) -> Measured {
        let class = class_of(len);
        let (way, trial) = self.classes[copier as usize][class].choose();
        Measured {
            way,
            copier,
            class,
            trial,
            began: Instant::now(),
            worked: Duration::ZERO,
        }
    }

    /// A message of `len` bytes has just ended.
    pub fn note(&mut self, len: u64, measured: Measured) {
        let now = Instant::now();
        let began = measured.began;
        let since = self.ended.map_or(began, |ended| ended.max(began));
        self.ended = Some(now);
        let class = &mut self.classes[measured.copier as usize][measured.class];
        if measured.trial == Some(class.trials) {
            let took = match (measured.copier, measured.way) {
                // The sender's part is as much again.
                (Copier::Thread, Way::Pieces) => 2 * measured.worked,
                (Copier::Thread, Way::Read) => now - began,
                _ => now.saturating_duration_since(since),
            };
            class.note(measured.way, len, took.as_secs_f64());
        }
    }
}

impl Measured {
    /// Does `work` on a piece that has come.
    #[inline]
    pub fn work(&mut self, work: impl FnOnce()) {
        let counts = self.copier == Copier::Thread && self.trial.is_some();
        let since = counts.then(Instant::now);
        work();
        if let Some(since) = since {
            self.worked += since.elapsed();
        }
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

    /// Sends `messages` of which those that go the `fast` way take 1 ms and others 3; returns how many went the other way.
    fn send(copying: &mut Copying, messages: u32, fast: Way, copier: Copier) -> u32 {
        let mut slow_ones = 0;
        for _ in 0..messages {
            let mut measured = copying.choose(copier, 100_000);
            let took = Duration::from_millis(if measured.way == fast { 1 } else { 3 });
            slow_ones += u32::from(measured.way != fast);
            copying.ended = None;
            measured.began = Instant::now() - took;
            measured.worked = took / 2;
            copying.note(100_000, measured);
        }
        slow_ones
    }

    /// Both ways are tried, then the faster one is kept to, and the other one tried again now and then; apart for each class and for each copier.
    #[test]
    fn the_faster_way_wins() {
        for (fast, slow) in [(Way::Read, Way::Pieces), (Way::Pieces, Way::Read)] {
            let mut copying = Copying::default();
            let first = send(&mut copying, 2 * TRIAL, fast, Copier::Program);
            assert_eq!(first, TRIAL);
            let later = send(&mut copying, 10_000, fast, Copier::Program);
            // One that takes three times as long is asked for again so rarely that it costs a hundredth.
            assert!((2 * AGAIN..=10 * AGAIN).contains(&later), "{later}");
            let busy = send(&mut copying, 100, slow, Copier::Thread);
            assert!((TRIAL..=TRIAL + 2 * AGAIN).contains(&busy), "{busy}");
            for round in [Way::Read, Way::Pieces] {
                for _ in 0..TRIAL {
                    assert_eq!(copying.choose(Copier::Program, 10_000_000).way, round);
                }
            }
        }
    }

    /// What was true once may change, and one bad trial does not turn a clear verdict.
    #[test]
    fn a_verdict_can_change_but_not_by_one_accident() {
        let mut copying = Copying::default();
        send(&mut copying, 2 * TRIAL, Way::Pieces, Copier::Program);
        let class = copying.classes[0][class_of(100_000)];
        assert_eq!(class.verdict, Way::Pieces);
        let mut unlucky = class;
        unlucky.figures[0].sum = (0.0, 0.0, 0);
        for _ in UNCOUNTED..TRIAL {
            unlucky.note(Way::Pieces, 100_000, 1.0);
        }
        assert_eq!(unlucky.verdict, Way::Pieces);
        let late = send(&mut copying, 20_000, Way::Read, Copier::Program);
        assert!(late < 2000, "{late} of 20000 went the way that is slow now");
    }

    /// Messages of which many were chosen before the first had ended count by the trial to which they belong.
    #[test]
    fn many_at_once() {
        let mut copying = Copying::default();
        let all: Vec<_> = (0..64)
            .map(|_| copying.choose(Copier::Program, 100_000))
            .collect();
        let mut now = Instant::now();
        for mut m in all {
            copying.ended = None;
            m.began = now - Duration::from_millis(if m.way == Way::Pieces { 1 } else { 5 });
            copying.note(100_000, m);
            now = Instant::now();
        }
        assert_eq!(copying.classes[0][class_of(100_000)].verdict, Way::Pieces);
    }

    /// Of what the progress thread does only the work counts: pieces for which it has waited for long are none.
    #[test]
    fn the_threads_work_counts() {
        let mut copying = Copying::default();
        for _ in 0..2 * TRIAL {
            let mut measured = copying.choose(Copier::Thread, 100_000);
            let waited = match measured.way() {
                Way::Read => 3,
                Way::Pieces => 9,
            };
            measured.began = Instant::now() - Duration::from_millis(waited);
            if measured.way() == Way::Pieces {
                measured.work(|| ());
                measured.worked += Duration::from_millis(1);
            }
            copying.note(100_000, measured);
        }
        let class = copying.classes[Copier::Thread as usize][class_of(100_000)];
        assert_eq!(class.verdict, Way::Pieces);
        let [pieces, read] = class.figures.map(|f| f.known.unwrap_or(0.0) * 1e8);
        assert!(
            (1.9..2.9).contains(&pieces) && read >= 2.9,
            "{pieces} {read}"
        );
    }
}

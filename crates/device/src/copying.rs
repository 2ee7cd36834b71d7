//! Which way of moving a large message is the faster one here.
//!
//! Reading the sender's memory copies once, but through the kernel; pieces through the ring are copied twice, but by two cores at the same
//! time and without a system call. Which wins depends on processor and kernel, by factors: so each size class tries both ways on
//! its first messages and keeps to the better, trying the other one again now and then.

use std::time::Instant;

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
    /// A thread of the program that waits in MPI, or the progress thread for one.
    Program,
    /// The same while this process has large messages to send itself.
    Sender,
    /// The progress thread, while the program computes.
    Thread,
}

/// Messages of a trial that go each way, one after the other.
const TRIAL: u32 = 6;
/// The first of them are not counted: others are still under way, and memory is used for the first time.
const UNCOUNTED: u32 = 2;
/// Messages between the first trial of a class and the second; each verdict that is the same again doubles them.
const REST_MIN: u32 = 32;
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
    /// A counted message of `len` bytes took so many seconds. True: it was the last of its trial.
    fn note(&mut self, len: u64, took: f64) -> bool {
        let (seconds, bytes, messages) = self.sum;
        self.sum = (seconds + took, bytes + len as f64, messages + 1);
        if self.sum.2 < TRIAL - UNCOUNTED {
            return false;
        }
        let new = self.sum.0 / self.sum.1.max(1.0);
        self.known = Some(match self.known {
            Some(old) => (old + new.min(WORSE_MAX * old)) / 2.0,
            None => new,
        });
        true
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
    /// The next message's way, and the trial in which it counts.
    fn choose(&mut self) -> (Way, Option<u32>) {
        if self.since >= 2 * TRIAL + self.rest {
            self.since = 0;
            self.trials = self.trials.wrapping_add(1);
            self.figures.iter_mut().for_each(|f| f.sum = (0.0, 0.0, 0));
        }
        let (round, nth) = (self.since / TRIAL, self.since % TRIAL);
        self.since += 1;
        let counts = (nth >= UNCOUNTED).then_some(self.trials);
        match round {
            0 => (Way::Read, counts),
            1 => (Way::Pieces, counts),
            _ => (self.verdict, None),
        }
    }

    /// A message of the present trial took so many seconds.
    fn note(&mut self, way: Way, len: u64, took: f64) {
        if !self.figures[way as usize].note(len, took) {
            return;
        }
        let [pieces, read] = self.figures.map(|f| f.known);
        let (Some(pieces), Some(read)) = (pieces, read) else {
            return;
        };
        let verdict = if pieces < read {
            Way::Pieces
        } else {
            Way::Read
        };
        if verdict != self.verdict {
            self.rest = REST_MIN;
        } else if way == Way::Pieces {
            self.rest = (2 * self.rest).min(REST_MAX);
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
        }
    }

    /// A message of `len` bytes has just ended.
    pub fn note(&mut self, len: u64, measured: Measured) {
        let Measured {
            way,
            copier,
            class,
            trial,
            began,
        } = measured;
        let now = Instant::now();
        let began = self.ended.map_or(began, |ended| ended.max(began));
        self.ended = Some(now);
        let class = &mut self.classes[copier as usize][class];
        if trial == Some(class.trials) {
            let took = now.saturating_duration_since(began).as_secs_f64();
            class.note(way, len, took);
        }
    }
}

impl Measured {
    /// The way that was chosen.
    pub fn way(&self) -> Way {
        self.way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
            assert!((TRIAL..=9 * TRIAL).contains(&later), "{later}");
            let busy = send(&mut copying, 100, slow, Copier::Thread);
            assert!((2 * TRIAL..=3 * TRIAL).contains(&busy), "{busy}");
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
}

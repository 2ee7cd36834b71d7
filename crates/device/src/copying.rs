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

/// Who sees to an announced message at the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copier {
    /// A thread of the program that waits in MPI, or the progress thread for one.
    Program,
    /// The progress thread, while the program computes.
    Thread,
}

/// Messages of each class with which each way is tried.
const TRIES: u32 = 4;
/// Among so many messages one goes the way that seemed the slower.
const AGAIN: u32 = 1024;
/// Size classes: up to 32 KiB, and four times as much each; the last has no end.
const CLASSES: usize = 6;

#[derive(Clone, Copy)]
struct Class {
    tried: [u32; 2],
    /// Least time a byte took, seconds.
    best: [f64; 2],
}

/// What has been measured, for each [`Copier`] apart: which cores copy is not the same.
pub(crate) struct Copying {
    classes: [[Class; CLASSES]; 2],
    /// When the last measured message ended: what queued behind it began only then.
    ended: Option<Instant>,
}

impl Default for Copying {
    fn default() -> Copying {
        let class = Class {
            tried: [0; 2],
            best: [f64::INFINITY; 2],
        };
        Copying {
            classes: [[class; CLASSES]; 2],
            ended: None,
        }
    }
}

fn class_of(len: u64) -> usize {
    let over = (len >> 15).checked_ilog2().map_or(0, |l| l / 2 + 1);
    (over as usize).min(CLASSES - 1)
}

impl Copying {
    /// The way for a message of `len` bytes.
    pub fn choose(&mut self, copier: Copier, len: u64) -> Way {
        let class = &mut self.classes[copier as usize][class_of(len)];
        let [pieces, read] = class.tried;
        let faster = if class.best[Way::Pieces as usize] < class.best[Way::Read as usize] {
            Way::Pieces
        } else {
            Way::Read
        };
        let way = if pieces.min(read) < TRIES {
            if read <= pieces {
                Way::Read
            } else {
                Way::Pieces
            }
        } else if (pieces.wrapping_add(read)).is_multiple_of(AGAIN) {
            match faster {
                Way::Read => Way::Pieces,
                Way::Pieces => Way::Read,
            }
        } else {
            faster
        };
        let tried = &mut class.tried[way as usize];
        *tried = tried.wrapping_add(1).max(TRIES.min(*tried));
        way
    }

    /// A message of `len` bytes that went this way from `began` on has just ended.
    pub fn note(&mut self, copier: Copier, way: Way, len: u64, began: Instant) {
        let now = Instant::now();
        let began = self.ended.map_or(began, |ended| ended.max(began));
        self.ended = Some(now);
        let took = now.saturating_duration_since(began).as_secs_f64() / len.max(1) as f64;
        let class = &mut self.classes[copier as usize][class_of(len)];
        let best = &mut class.best[way as usize];
        *best = best.min(took);
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

    /// Both ways are tried, then the faster one is kept to, and the other one tried again now and then.
    #[test]
    fn the_faster_way_wins() {
        for (fast, slow) in [(Way::Read, Way::Pieces), (Way::Pieces, Way::Read)] {
            let mut copying = Copying::default();
            let mut slow_ones = 0;
            for n in 0..5000 {
                let way = copying.choose(Copier::Program, 100_000);
                let took = Duration::from_millis(if way == fast { 1 } else { 3 });
                copying.ended = None;
                copying.note(Copier::Program, way, 100_000, Instant::now() - took);
                if n >= 2 * TRIES && way == slow {
                    slow_ones += 1;
                }
            }
            assert!((1..=5).contains(&slow_ones), "{slow_ones}");
            let mut other = copying.choose(Copier::Program, 10_000_000);
            assert_eq!(other, Way::Read, "another class has its own tries");
            other = copying.choose(Copier::Program, 10_000_000);
            assert_eq!(other, Way::Pieces);
            other = copying.choose(Copier::Thread, 100_000);
            assert_eq!(other, Way::Read, "the progress thread has its own tries");
        }
    }
}

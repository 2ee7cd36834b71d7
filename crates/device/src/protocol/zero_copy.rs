//! Whether large messages to a peer are lent to its wire or copied into it: whichever was found to
//! be faster with messages of about that size, since what no longer fits a core's cache costs more
//! to copy.
//!
//! Which is depends on the machine (on whether the sender's or the receiver's core is the one that
//! has more to do, and on what a page that is lent costs the system beside one that is copied), and
//! may change while a program runs. So both are tried, now and then, on messages that go anyway: in
//! turns, one way after the other, so that a machine that others use as well is as slow for both.
//! Only long runs of messages count, in which what the system's buffers swallow at first is left
//! out: what is measured then is how fast the receiver gets them, whatever each side's part is.
//! What comes meanwhile counts as well: of two ranks that send each other much, each could gain by
//! a way that costs the other one more. Messages that come alone are copied, as all are at first.

use std::time::{Duration, Instant};

/// Bytes at the beginning of a run that do not count: what a connection's buffers may hold
/// (tcp_wmem's usual limit).
const SKIPPED: usize = 4 << 20;
/// Bytes whose time is measured in one turn, …
const MEASURED: usize = 8 << 20;
/// … and where ranks share cores, so that each has its core several times.
const CROWDED: usize = 32 << 20;
/// Slots of a trial; the even ones go the way in use, the odd ones the other.
const TURNS: usize = 10;
/// After so many the other way is given up if each of its turns took an eighth longer than the one
/// before it.
const LOST: usize = 4;
/// A run is over when all has been taken and nothing offered for so long, …
const PAUSE: Duration = Duration::from_micros(200);
/// … or when something waited and nothing was taken for so long: the receiver does something else.
/// Ranks that share a core take turns of a few milliseconds.
const STALL: Duration = Duration::from_millis(50);
/// A turn that has not come to an end after so many times its bytes is no part of a long run: the
/// trial is given up.
const GIVEN_UP: usize = 8;
/// What has been taken of large messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub lent: bool,
    pub bytes: usize,
    /// Not all that was offered has been.
    pub waits: bool,
    /// Ranks share cores here.
    pub crowded: bool,
    /// Bytes of large messages that have ever come here.
    pub came: u64,
}

/// Bytes before the first trial, …
const FIRST: u64 = 32 << 20;
/// … where ranks share cores (a trial takes 360 MiB there), and after one that was undecided or
/// changed something, …
const AGAIN: u64 = 1 << 30;
/// … and at most; twice as many after each that found all as it was.
const SELDOM: u64 = 64 << 30;

/// Messages of 256 KiB and more, of 1 MiB, and of 4 MiB.
pub(crate) const CLASSES: usize = 3;

/// Which of the [`CLASSES`] a message of `len` bytes belongs to.
pub(crate) fn class(len: usize) -> usize {
    match len >> 20 {
        0 => 0,
        1..4 => 1,
        _ => 2,
    }
}

/// How large messages of one class go to one peer.
#[derive(Debug)]
pub(crate) struct Choice {
    lends: bool,
    /// Bytes until the next trial, …
    until: u64,
    /// … and between that one and the one after it.
    period: u64,
    trial: Option<Trial>,
}

#[derive(Debug)]
struct Trial {
    turn: usize,
    /// Bytes to measure in a turn.
    measured: usize,
    /// Bytes of this turn, of whatever kind.
    bytes: usize,
    /// Bytes of this run still to be left out.
    skip: usize,
    counted: usize,
    /// When the first that counts went, what had come here until then, and when bytes were last
    /// taken.
    since: Instant,
    came: u64,
    last: Instant,
    /// More had been offered than was taken then.
    waits: bool,
    took: [Duration; TURNS],
}

impl Choice {
    /// Where nothing is known yet: all is copied. Where ranks share cores (`crowded`) the first
    /// trial comes later.
    pub fn new(crowded: bool) -> Choice {
        Choice {
            lends: false,
            until: if crowded { AGAIN } else { FIRST },
            period: AGAIN,
            trial: None,
        }
    }

    /// One for each class.
    pub fn of_classes(crowded: bool) -> [Choice; CLASSES] {
        std::array::from_fn(|_| Choice::new(crowded))
    }

    /// Is the next message to be lent?
    pub fn lends(&self) -> bool {
        let other = self.trial.as_ref().is_some_and(|t| t.turn % 2 == 1);
        self.lends != other
    }

    /// A message is offered, of whose kind nothing may have been for a while; `now` says what time
    /// it is.
    pub fn offered(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(trial) = &mut self.trial {
            trial.offered(now());
        }
    }

    /// So much has been taken from here; `now` says what time it is.
    pub fn went(&mut self, taken: Taken, now: impl FnOnce() -> Instant) {
        let expected = self.lends();
        let Some(trial) = &mut self.trial else {
            self.until = self.until.saturating_sub(taken.bytes as u64);
            if self.until == 0 {
                self.trial = Some(Trial::new(taken.crowded, now()));
            }
            return;
        };
        let over = trial.went(taken.lent == expected, taken, now());
        if trial.turn == TURNS {
            let took = trial.took;
            self.decide(&took);
        } else if trial.is_lost() {
            self.wait((self.period * 2).min(SELDOM));
        } else if over {
            self.wait(self.period);
        }
    }

    fn wait(&mut self, period: u64) {
        (self.trial, self.until, self.period) = (None, period, period);
    }

    /// A change must be a tenth faster in the best of its turns, and faster in the middle one: some
    /// of either way's turns are slow because the machine has other work, and those are not to
    /// decide.
    fn decide(&mut self, took: &[Duration; TURNS]) {
        let sorted = |from: usize| {
            let mut of: Vec<Duration> = took.iter().skip(from).step_by(2).copied().collect();
            of.sort_unstable();
            of
        };
        let (used, other) = (sorted(0), sorted(1));
        let (best, middle) = (0, TURNS / 4);
        if other[best] * 11 < used[best] * 10 && other[middle] < used[middle] {
            self.lends = !self.lends;
            self.wait(AGAIN);
        } else if other[best] >= used[best] && other[middle] >= used[middle] {
            self.wait((self.period * 2).min(SELDOM));
        } else {
            self.wait(self.period);
        }
    }
}

impl Trial {
    fn new(crowded: bool, now: Instant) -> Trial {
        Trial {
            turn: 0,
            measured: if crowded { CROWDED } else { MEASURED },
            bytes: 0,
            skip: SKIPPED,
            counted: 0,
            since: now,
            came: 0,
            last: now,
            waits: false,
            took: [Duration::ZERO; TURNS],
        }
    }

    /// Another run begins.
    fn again(&mut self) {
        (self.skip, self.counted) = (SKIPPED, 0);
    }

    /// Has the other way been so slow that the rest of its turns would only cost time?
    fn is_lost(&self) -> bool {
        self.turn == LOST
            && self.took[..LOST]
                .chunks_exact(2)
                .all(|t| t[1] * 8 > t[0] * 9)
    }

    fn offered(&mut self, now: Instant) {
        if !self.waits && now.duration_since(self.last) > PAUSE {
            self.again();
        }
    }

    /// As [`Choice::went`]. Returns whether this turn will not come to an end.
    fn went(&mut self, as_expected: bool, taken: Taken, now: Instant) -> bool {
        self.bytes += taken.bytes;
        if !as_expected || now.duration_since(self.last) > STALL {
            self.again();
        }
        (self.last, self.waits) = (now, taken.waits);
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(taken.bytes);
            (self.since, self.came) = (now, taken.came);
        } else {
            self.counted += taken.bytes;
        }
        if self.counted < self.measured {
            return self.bytes > GIVEN_UP * (SKIPPED + self.measured);
        }
        // For as many bytes in every turn, whatever the last piece was, and of both directions.
        let took = now.duration_since(self.since).as_secs_f64();
        let moved = self.counted as f64 + taken.came.saturating_sub(self.came) as f64;
        let took = took * self.measured as f64 / moved;
        self.took[self.turn] = Duration::from_secs_f64(took);
        self.turn += 1;
        self.bytes = 0;
        self.again();
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::stream::LEND_MIN;

    /// Sends `total` bytes in runs of `run` pieces of 1 MiB, which take so many µs copied and lent.
    /// Returns how many were lent.
    fn send(choice: &mut Choice, total: u64, run: u64, micros: [u64; 2], at: &mut Instant) -> u64 {
        exchange(choice, total, run, micros, [0, 0], at)
    }

    /// The same while so many bytes come with each piece copied and lent.
    fn exchange(
        choice: &mut Choice,
        total: u64,
        run: u64,
        micros: [u64; 2],
        comes: [u64; 2],
        at: &mut Instant,
    ) -> u64 {
        let (mut lent, mut came) = (0, 0);
        for i in 0..total >> 20 {
            let way = choice.lends();
            lent += u64::from(way);
            choice.offered(|| *at);
            *at += Duration::from_micros(micros[usize::from(way)]);
            came += comes[usize::from(way)];
            let taken = Taken {
                lent: way,
                bytes: 1 << 20,
                waits: false,
                crowded: false,
                came,
            };
            choice.went(taken, || *at);
            if i % run == run - 1 {
                *at += Duration::from_millis(1);
            }
        }
        lent
    }

    #[test]
    fn the_faster_way_is_found_and_left_when_it_is_slow() {
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        assert!(!choice.lends(), "at first all is copied");
        send(&mut choice, 512 << 20, 64, [100, 80], &mut now);
        assert!(choice.lends());
        send(&mut choice, 3 << 30, 64, [100, 130], &mut now);
        assert!(!choice.lends());
    }

    #[test]
    fn what_gains_at_the_cost_of_the_other_direction_is_not_taken() {
        let both_gain = [1 << 20, 1 << 20];
        let other_loses = [1 << 20, 1 << 19];
        for (comes, lends) in [(both_gain, true), (other_loses, false)] {
            let (mut choice, mut now) = (Choice::new(false), Instant::now());
            exchange(&mut choice, 512 << 20, 64, [100, 80], comes, &mut now);
            assert_eq!(choice.lends(), lends, "{comes:?}");
        }
    }

    #[test]
    fn it_is_found_with_messages_that_take_long_themselves() {
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        send(&mut choice, 512 << 20, 64, [1000, 800], &mut now);
        assert!(choice.lends());
    }

    #[test]
    fn what_is_as_fast_or_a_little_faster_changes_nothing() {
        for micros in [[100, 100], [100, 95], [100, 130]] {
            let (mut choice, mut now) = (Choice::new(false), Instant::now());
            let lent = send(&mut choice, 64 << 30, 64, micros, &mut now);
            assert!(!choice.lends(), "{micros:?}");
            let most = if micros[1] < 100 { 64 * 64 } else { 9 * 64 };
            assert!(
                (1..most).contains(&lent),
                "{micros:?}: {lent} MiB were tried"
            );
        }
    }

    #[test]
    fn what_is_much_slower_is_soon_given_up() {
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        let lent = send(&mut choice, 1 << 30, 64, [100, 150], &mut now);
        let turn = (SKIPPED + MEASURED) as u64 >> 20;
        assert!(!choice.lends() && choice.trial.is_none());
        assert!(lent <= 2 * turn + 2, "{lent} MiB were tried");
        // That may have been by chance: it is tried again.
        send(&mut choice, 3 << 30, 64, [100, 80], &mut now);
        assert!(choice.lends());
    }

    #[test]
    fn slow_turns_do_not_decide() {
        let (mut choice, mut at) = (Choice::new(false), Instant::now());
        // Each way is disturbed for a while in its turn, and lending is slower by itself.
        for i in 0..400u64 {
            let way = choice.lends();
            choice.offered(|| at);
            let other_work = if i % 40 < 12 { 500 } else { 0 };
            at += Duration::from_micros(if way { 120 } else { 100 + other_work });
            let taken = Taken {
                lent: way,
                bytes: 1 << 20,
                waits: true,
                crowded: false,
                came: 0,
            };
            choice.went(taken, || at);
        }
        assert!(!choice.lends() && choice.trial.is_none());
    }

    #[test]
    fn all_is_copied_at_first() {
        let lends = |crowded| Choice::of_classes(crowded).map(|c| c.lends());
        assert_eq!(lends(false), [false; CLASSES]);
        assert_eq!(lends(true), [false; CLASSES]);
        assert_eq!(
            [LEND_MIN, (1 << 20) - 1, 1 << 20, 4 << 20].map(class),
            [0, 0, 1, 2]
        );
    }

    #[test]
    fn short_runs_are_copied() {
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        assert_eq!(send(&mut choice, 8 << 30, 8, [100, 50], &mut now), 0);
        // A trial that long runs have begun is given up when only short ones follow.
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        send(&mut choice, FIRST + (16 << 20), 64, [100, 80], &mut now);
        assert!(choice.lends(), "the other way's turn");
        let lent = send(&mut choice, 900 << 20, 8, [100, 80], &mut now);
        assert!(!choice.lends() && lent <= (2 * GIVEN_UP * (SKIPPED + MEASURED)) as u64 >> 20);
    }
}

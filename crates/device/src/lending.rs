//! Whether large messages to a peer are lent to its wire or copied into it: whichever was found to be faster.
//!
//! Which is depends on the machine (on whether the sender's or the receiver's core is the one that has more to do, and on what a page that is lent costs the system
//! beside one that is copied), and may change while a program runs. So both are tried, now and then, on messages that go anyway: in turns, one way after the other,
//! so that a machine that others use as well is as slow for both. Only long runs of messages count, in which what the system's buffers swallow at first is left
//! out: what is measured then is how fast the receiver gets them, whatever each side's part is. Messages that come alone are copied, as all are at first.

use std::time::{Duration, Instant};

/// Bytes at the beginning of a run that do not count: what a connection's buffers may hold (tcp_wmem's usual limit).
const SKIPPED: usize = 4 << 20;
/// Bytes whose time is measured in one turn.
const MEASURED: usize = 8 << 20;
/// Turns of a trial; the even ones go the way in use, the odd ones the other.
const TURNS: usize = 6;
/// A run is over when nothing has been offered for so long.
const PAUSE: Duration = Duration::from_micros(200);
/// A turn that has not come to an end after so many bytes is no part of a long run: the trial is given up.
const GIVEN_UP: usize = 8 * (SKIPPED + MEASURED);
/// Bytes before the first trial, …
const FIRST: u64 = 32 << 20;
/// … after one that was undecided or changed something, …
const AGAIN: u64 = 1 << 30;
/// … and at most; twice as many after each that found all as it was.
const SELDOM: u64 = 64 << 30;

/// How large messages go to one peer.
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
    /// Bytes of this turn, of whatever kind.
    bytes: usize,
    /// Bytes of this run still to be left out.
    skip: usize,
    counted: usize,
    /// When the first that counts went, and when bytes were last offered.
    since: Instant,
    last: Instant,
    took: [Duration; TURNS],
}

impl Default for Choice {
    fn default() -> Choice {
        Choice {
            lends: false,
            until: FIRST,
            period: AGAIN,
            trial: None,
        }
    }
}

impl Choice {
    /// Is the next message to be lent?
    pub fn lends(&self) -> bool {
        let other = self.trial.as_ref().is_some_and(|t| t.turn % 2 == 1);
        self.lends != other
    }

    /// `bytes` of large messages have been taken from here, lent or copied; `now` says what time it is.
    pub fn went(&mut self, lent: bool, bytes: usize, now: impl FnOnce() -> Instant) {
        let expected = self.lends();
        let Some(trial) = &mut self.trial else {
            self.until = self.until.saturating_sub(bytes as u64);
            if self.until == 0 {
                self.trial = Some(Trial::new(now()));
            }
            return;
        };
        if !trial.went(lent == expected, bytes, now()) {
            return;
        }
        if trial.turn == TURNS {
            let took = trial.took;
            self.decide(&took);
        } else if trial.bytes > GIVEN_UP {
            self.wait(self.period);
        }
    }

    fn wait(&mut self, period: u64) {
        (self.trial, self.until, self.period) = (None, period, period);
    }

    /// A change must have won every turn, and a tenth of the time: one that the machine's other work has made slow is not to decide.
    fn decide(&mut self, took: &[Duration; TURNS]) {
        let won = took.chunks_exact(2).filter(|t| t[1] < t[0]).count();
        let sum = |from: usize| -> Duration { took.iter().skip(from).step_by(2).sum() };
        if won == TURNS / 2 && sum(1) * 11 < sum(0) * 10 {
            self.lends = !self.lends;
            self.wait(AGAIN);
        } else if won == 0 {
            self.wait((self.period * 2).min(SELDOM));
        } else {
            self.wait(self.period);
        }
    }
}

impl Trial {
    fn new(now: Instant) -> Trial {
        Trial {
            turn: 0,
            bytes: 0,
            skip: SKIPPED,
            counted: 0,
            since: now,
            last: now,
            took: [Duration::ZERO; TURNS],
        }
    }

    /// As [`Choice::went`]. Returns whether there is something to decide.
    fn went(&mut self, as_expected: bool, bytes: usize, now: Instant) -> bool {
        self.bytes += bytes;
        if !as_expected || now.duration_since(self.last) > PAUSE {
            (self.skip, self.counted) = (SKIPPED, 0);
        }
        self.last = now;
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(bytes);
            self.since = now;
            return self.bytes > GIVEN_UP;
        }
        self.counted += bytes;
        if self.counted < MEASURED {
            return self.bytes > GIVEN_UP;
        }
        // For as many bytes in every turn, whatever the last piece was.
        let measured = now.duration_since(self.since).as_secs_f64();
        let took = measured * MEASURED as f64 / self.counted as f64;
        self.took[self.turn] = Duration::from_secs_f64(took);
        self.turn += 1;
        (self.bytes, self.skip, self.counted) = (0, SKIPPED, 0);
        self.turn == TURNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `total` bytes in runs of `run` pieces of 1 MiB, which take so many µs copied and lent. Returns how many were lent.
    fn send(choice: &mut Choice, total: u64, run: u64, micros: [u64; 2], at: &mut Instant) -> u64 {
        let mut lent = 0;
        for i in 0..total >> 20 {
            let way = choice.lends();
            lent += u64::from(way);
            *at += Duration::from_micros(micros[usize::from(way)]);
            if i % run == run - 1 {
                *at += Duration::from_millis(1);
            }
            choice.went(way, 1 << 20, || *at);
        }
        lent
    }

    #[test]
    fn the_faster_way_is_found_and_left_when_it_is_slow() {
        let (mut choice, mut now) = (Choice::default(), Instant::now());
        assert!(!choice.lends(), "at first all is copied");
        send(&mut choice, 512 << 20, 64, [100, 80], &mut now);
        assert!(choice.lends());
        send(&mut choice, 4 << 30, 64, [100, 130], &mut now);
        assert!(!choice.lends());
    }

    #[test]
    fn what_is_as_fast_or_a_little_faster_changes_nothing() {
        for micros in [[100, 100], [100, 95], [100, 130]] {
            let (mut choice, mut now) = (Choice::default(), Instant::now());
            let lent = send(&mut choice, 64 << 30, 64, micros, &mut now);
            assert!(!choice.lends(), "{micros:?}");
            let most = if micros[1] < 100 { 64 * 64 } else { 7 * 64 };
            assert!(
                (1..most).contains(&lent),
                "{micros:?}: {lent} MiB were tried"
            );
        }
    }

    #[test]
    fn short_runs_are_copied() {
        let (mut choice, mut now) = (Choice::default(), Instant::now());
        assert_eq!(send(&mut choice, 8 << 30, 8, [100, 50], &mut now), 0);
        // A trial that long runs have begun is given up when only short ones follow.
        let (mut choice, mut now) = (Choice::default(), Instant::now());
        send(&mut choice, FIRST + (16 << 20), 64, [100, 80], &mut now);
        assert!(choice.lends(), "the other way's turn");
        let lent = send(&mut choice, 900 << 20, 8, [100, 80], &mut now);
        assert!(!choice.lends() && lent <= (2 * GIVEN_UP as u64) >> 20);
    }
}

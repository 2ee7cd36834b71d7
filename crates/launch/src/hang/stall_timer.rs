//! How long nothing has moved, by the checks that came in time.

use std::time::{Duration, Instant};

use super::{HANG_DURATION, HANG_DURATION_UNCOUNTED, StalledState, Traffic};

/// Measures how long a job is stalled. A check that comes late says nothing of the time before it:
/// what held it up, as a machine that stood still, may have held up the ranks, too.
pub struct StallTimer {
    /// Time between two checks.
    interval: Duration,
    last_check: Instant,
    /// Time since the check before, 0 if that came late.
    step: Duration,
    state: Option<StalledState>,
    stalled: Duration,
    /// Messages that were sent and taken when all ranks slept, and how long they slept with these.
    traffic: (Traffic, Duration),
}

impl StallTimer {
    /// For checks at this interval.
    pub fn new(now: Instant, interval: Duration) -> StallTimer {
        StallTimer {
            interval,
            last_check: now,
            step: Duration::ZERO,
            state: None,
            stalled: Duration::ZERO,
            traffic: (Traffic::default(), Duration::ZERO),
        }
    }

    /// Takes what a check has seen. Returns whether this is new.
    pub fn check(&mut self, now: Instant, seen: Option<&StalledState>) -> bool {
        let passed = now.duration_since(self.last_check);
        self.last_check = now;
        self.step = passed;
        if passed > self.interval * 2 {
            self.step = Duration::ZERO;
        }
        let is_new = seen.is_none() || self.state.as_ref() != seen;
        if is_new {
            self.state = seen.cloned();
            self.stalled = Duration::ZERO;
        } else {
            self.stalled += self.step;
        }
        is_new
    }

    /// Forgets what was seen.
    pub fn reset(&mut self) {
        self.state = None;
    }

    /// Is the job stalled for so long that it may hang?
    pub fn is_long(&self) -> bool {
        self.state.is_some() && self.stalled >= HANG_DURATION
    }

    /// Is no message under way, by these counts? Called once after a check, when all ranks sleep.
    /// Where some may be for processes that have finished, only time tells.
    pub fn none_is_under_way(&mut self, traffic: Traffic) -> bool {
        if self.traffic.0 != traffic {
            // So long at least have all slept, of whatever job.
            self.traffic = (traffic, HANG_DURATION);
        } else {
            self.traffic.1 += self.step;
        }
        traffic.all_taken() || self.traffic.1 >= HANG_DURATION_UNCOUNTED
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RankPhase, stalled_state, view_of};
    use super::*;
    use crate::protocol::StatusPage;

    const INTERVAL: Duration = Duration::from_millis(250);

    /// Two ranks that sleep, or one that has finished, and how many messages were taken.
    fn state(received: u64, finished: bool) -> StalledState {
        let page = StatusPage {
            state: 1,
            asleep: true,
            sent: 5,
            received,
            ..StatusPage::default()
        };
        let mut ranks = [view_of(&page, 7), view_of(&page, 8)];
        for rank in &mut ranks {
            rank.phase = RankPhase::Running;
        }
        if finished {
            ranks[1].phase = RankPhase::Exited;
        }
        stalled_state(&ranks).unwrap()
    }

    #[test]
    fn a_second_of_checks_in_time() {
        let start = Instant::now();
        let mut timer = StallTimer::new(start, INTERVAL);
        let sleep = state(5, false);
        assert!(timer.check(start + INTERVAL, Some(&sleep)));
        for check in 2..5 {
            assert!(!timer.check(start + INTERVAL * check, Some(&sleep)));
            assert!(!timer.is_long(), "{check}");
        }
        timer.check(start + INTERVAL * 5, Some(&sleep));
        assert!(timer.is_long() && timer.none_is_under_way(sleep.traffic));
        // It moves.
        assert!(timer.check(start + INTERVAL * 6, None));
        assert!(!timer.is_long());
    }

    #[test]
    fn a_machine_that_stands_still() {
        let start = Instant::now();
        let mut timer = StallTimer::new(start, INTERVAL);
        let sleep = state(5, false);
        timer.check(start + INTERVAL, Some(&sleep));
        for pause in 1..9 {
            timer.check(start + INTERVAL * (1 + 3 * pause), Some(&sleep));
            assert!(!timer.is_long());
        }
    }

    #[test]
    fn messages_that_may_be_for_who_has_finished() {
        let mut now = Instant::now();
        let mut timer = StallTimer::new(now, INTERVAL);
        let sleep = state(3, true);
        let mut checks = 0;
        loop {
            now += INTERVAL;
            timer.check(now, Some(&sleep));
            if timer.is_long() && timer.none_is_under_way(sleep.traffic) {
                break;
            }
            checks += 1;
        }
        assert_eq!(INTERVAL * checks, HANG_DURATION_UNCOUNTED);
        // It has taken one: it moves, and sleeps again.
        let sleep = state(4, true);
        timer.check(now + INTERVAL, Some(&sleep));
        assert!(!timer.none_is_under_way(sleep.traffic));
    }
}

//! Test backoff: a program that calls MPI_Test, MPI_Iprobe or the like in a loop yields its core.
//!
//! Such a loop would keep another rank that needs the core from what the loop waits for, until the
//! system takes the core away, milliseconds later. So the loop yields, as a waiting call does
//! ([`crate::wait_until`]). A program that computes between two tests does not yield.

use crate::progress::device::Device;
use crate::progress::lock;
use crate::progress::thread_usage::ThreadUsage;
use crate::progress::wait::running_peer::POLLS_FOR_RUNNING_PEER;
use crate::progress::wait::yield_once;
use ferry_transport::ProcId;
use std::time::{Duration, Instant};

/// A program that tests again within this time has not computed meanwhile. A choice.
const LOOP_INTERVAL: Duration = Duration::from_micros(5);
/// How long a program works between two yields. A choice: a small part of the system's time slice,
/// and many times what a yield costs.
const WORK_INTERVAL: Duration = Duration::from_micros(300);
/// The same for a program that adds to others' memory. A choice: fifty times what a yield costs. It
/// may also wait by additions that it takes back.
const UPDATE_INTERVAL: Duration = Duration::from_micros(50);
/// Tests between two readings of the clock, if the core is not known to be shared. A choice.
const TESTS_PER_CLOCK: u32 = 64;

impl Device {
    /// A test has found nothing. Does the program yield? `peer`: whose message it is about.
    #[inline]
    fn yields_after_test(&mut self, peer: impl FnOnce(&mut Device) -> Option<ProcId>) -> bool {
        if self.wait_policy.oversubscribed {
            if self.in_loop(1).is_none() {
                return self.slept();
            }
            return !self.spins_for(peer);
        }
        self.test_backoff.count = (self.test_backoff.count + 1) % TESTS_PER_CLOCK;
        self.test_backoff.count == 0 && self.yields_if_shared()
    }

    /// Does the program go on with its loop of tests, as the peer runs on another core?
    fn spins_for(&mut self, peer: impl FnOnce(&mut Device) -> Option<ProcId>) -> bool {
        let spins = self.test_backoff.spins < POLLS_FOR_RUNNING_PEER && {
            let peer = peer(self);
            self.awaits_running(peer)
        };
        self.test_backoff.spins = if spins {
            self.test_backoff.spins + 1
        } else {
            0
        };
        spins
    }

    /// On a modelled machine, where waiting does not poll, tests do not yield.
    #[cold]
    fn yields_if_shared(&mut self) -> bool {
        !self.wait_policy.spin.is_zero()
            && self
                .in_loop(TESTS_PER_CLOCK)
                .is_some_and(|now| self.shares_core(now))
    }

    /// The program has worked. Has it had its core for `interval`, where ranks outnumber cores?
    fn yields_after(&mut self, interval: Duration, now: impl FnOnce() -> Instant) -> bool {
        if !self.wait_policy.oversubscribed {
            return false;
        }
        let now = now();
        now - *self.test_backoff.yielded.get_or_insert(now) >= interval
    }

    /// The last test was longer ago than a loop takes. Has the thread slept since, and for longer
    /// than it has worked? A program that sleeps for microseconds between tests wakes up thousands
    /// of times, each time at the expense of a rank that works. Not told where several threads call
    /// MPI: they test in turn.
    #[cold]
    fn slept(&mut self) -> bool {
        if lock::is_multiple() {
            return false;
        }
        let (now, used) = (Instant::now(), ThreadUsage::now());
        let last = self.test_backoff.outside_loop.replace((now, used));
        last.is_some_and(|(then, before)| {
            let worked = used.processor_time.saturating_sub(before.processor_time);
            used.sleeps != before.sleeps && worked < (now - then) / 2
        })
    }

    /// The core has come back from a yield after a test. The yield itself does not count.
    fn end_yield(&mut self) {
        let now = Instant::now();
        self.test_backoff.last = Some(now);
        if let Some((then, _)) = &mut self.test_backoff.outside_loop {
            *then = now;
        }
    }

    /// The present time, if the last `tests` tests followed one another in a loop.
    fn in_loop(&mut self, tests: u32) -> Option<Instant> {
        let now = Instant::now();
        let last = self.test_backoff.last.replace(now);
        last.filter(|&last| now - last < LOOP_INTERVAL * tests)
            .map(|_| now)
    }
}

/// Calls `answer`; if it finds nothing, makes progress and calls it again, and once more after the
/// core was yielded. For calls that do not wait. Called without the device's lock; `answer` runs
/// under it, and must not block or call user code that calls MPI.
pub fn poll_once<T>(answer: impl FnMut(&mut Device) -> Option<T>) -> Option<T> {
    poll_once_for(|_| None, answer)
}

/// As [`poll_once`], for a message of the process that `peer` tells: the core is not yielded at
/// first while that process runs on another one.
pub fn poll_once_for<T>(
    peer: impl FnOnce(&mut Device) -> Option<ProcId>,
    mut answer: impl FnMut(&mut Device) -> Option<T>,
) -> Option<T> {
    let mut guard = lock::device();
    if let Some(found) = answer(&mut guard) {
        guard.test_backoff.spins = 0;
        return Some(found);
    }
    guard.progress();
    let found = answer(&mut guard);
    if found.is_some() {
        guard.test_backoff.spins = 0;
        return found;
    }
    if !guard.yields_after_test(peer) {
        return None;
    }
    let mut guard = yield_once(guard);
    guard.end_yield();
    guard.progress();
    answer(&mut guard)
}

/// Makes progress. Where ranks outnumber cores, yields the core once the program has had it for
/// [`WORK_INTERVAL`]. For calls that have done something, at a time when nobody waits for this
/// rank: it would lose its core later, and perhaps with a lock that others want.
pub fn poll_after_work() {
    poll_after(WORK_INTERVAL);
}

/// As [`poll_after_work`], for a program that adds to others' memory, again and again: it yields
/// its core more often.
pub fn poll_after_update() {
    poll_after(UPDATE_INTERVAL);
}

fn poll_after(interval: Duration) {
    let mut guard = lock::device();
    guard.progress();
    if !guard.yields_after(interval, Instant::now) {
        return;
    }
    let mut guard = yield_once(guard);
    guard.test_backoff.yielded = Some(Instant::now());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::state::WaitPolicy;
    use ferry_job::{RankInfo, RankStatus};

    const TESTS: usize = TESTS_PER_CLOCK as usize * 100;

    fn alone(policy: WaitPolicy) -> Device {
        let status: &RankStatus = Box::leak(Box::default());
        let alone = RankInfo::on_one_host(0, 1, "here");
        Device::new(&alone, None, None, status, policy, false).unwrap()
    }

    /// How many of `TESTS` tests yield, with `work` before each.
    fn yields(policy: WaitPolicy, work: Duration) -> usize {
        let mut d = alone(policy);
        let mut one = || {
            let begin = Instant::now();
            while begin.elapsed() < work {
                std::hint::spin_loop();
            }
            d.yields_after_test(|_| None)
        };
        (0..TESTS).filter(|_| one()).count()
    }

    #[test]
    fn where_ranks_outnumber_cores_a_loop_of_tests_yields() {
        let oversubscribed = WaitPolicy::new(2, 1);
        // This thread may lose its core between two of them, but not between most.
        assert!(yields(oversubscribed, Duration::ZERO) > TESTS / 2);
        assert_eq!(yields(oversubscribed, LOOP_INTERVAL), 0);
    }

    /// A program that sleeps between tests yields at each but the first. One that works does not,
    /// even if it loses its core meanwhile.
    #[test]
    fn who_sleeps_between_tests_yields() {
        let yields_with = |policy, between: fn()| {
            let mut d = alone(policy);
            let mut one = || {
                let yields = d.yields_after_test(|_| None);
                between();
                yields
            };
            (0..10).filter(|_| one()).count()
        };
        let sleep = || std::thread::sleep(Duration::from_micros(200));
        let work = || {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
        };
        assert_eq!(yields_with(WaitPolicy::new(2, 1), sleep), 9);
        assert_eq!(yields_with(WaitPolicy::new(2, 1), work), 0);
        assert_eq!(yields_with(WaitPolicy::new(1, 1), sleep), 0);
    }

    #[test]
    fn who_adds_yields_sooner_than_who_works() {
        let (mut d, start) = (alone(WaitPolicy::new(2, 1)), Instant::now());
        let mut yields =
            |interval, us| d.yields_after(interval, || start + Duration::from_micros(us));
        assert!(
            !yields(UPDATE_INTERVAL, 0),
            "the time begins with the first call"
        );
        assert!(!yields(UPDATE_INTERVAL, 49));
        assert!(yields(UPDATE_INTERVAL, 50));
        assert!(!yields(WORK_INTERVAL, 50));
        assert!(!yields(WORK_INTERVAL, 299));
        assert!(yields(WORK_INTERVAL, 300));
        let mut unshared = alone(WaitPolicy::new(1, 1));
        for after in [Duration::ZERO, WORK_INTERVAL] {
            assert!(!unshared.yields_after(UPDATE_INTERVAL, || start + after));
        }
    }

    #[test]
    fn an_unshared_core_and_a_modelled_one_are_not_yielded() {
        assert_eq!(yields(WaitPolicy::new(1, 1), Duration::ZERO), 0);
        assert_eq!(yields(WaitPolicy::NONE, Duration::ZERO), 0);
    }
}

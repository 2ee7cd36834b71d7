//! Programs that ask again and again: MPI_Test, MPI_Iprobe and their kin, which return whether or
//! not anything has come.
//!
//! Where another rank wants the core, one that asks in a loop keeps it from what it asks for until
//! the system takes it away, milliseconds later. So it hands the core over, as a waiting one does
//! ([`crate::wait_until`]); one that computes between two questions does not.

use crate::counters::COUNTERS;
use crate::device::Device;
use crate::progress::lock;
use std::time::{Duration, Instant};

/// Who asks again within so long has done nothing of its own meanwhile.
const AT_ONCE: Duration = Duration::from_micros(5);
/// Where a core is not known to be shared, as many questions in vain are counted before the clock,
/// and who else is there, is looked at.
const STRIDE: u32 = 64;

/// Questions in vain.
pub(crate) struct Polling {
    /// So many since the clock was looked at.
    vain: u32,
    /// When the last one, or the last of as many as are counted, was.
    last: Option<Instant>,
}

impl Polling {
    pub const NONE: Polling = Polling {
        vain: 0,
        last: None,
    };
}

impl Device {
    /// A question was in vain. Is the core to be handed over?
    #[inline]
    fn yields_to_others(&mut self) -> bool {
        if self.wait_policy.crowded {
            return self.asks_at_once(1).is_some();
        }
        self.test_backoff.vain = (self.test_backoff.vain + 1) % STRIDE;
        self.test_backoff.vain == 0 && self.asks_where_shared()
    }

    /// Who does not poll while it waits, as on a modelled machine, need not hand over either.
    #[cold]
    fn asks_where_shared(&mut self) -> bool {
        !self.wait_policy.spin.is_zero()
            && self
                .asks_at_once(STRIDE)
                .is_some_and(|now| self.shares_core(now))
    }

    /// Now, if the last `questions` followed one another at once.
    fn asks_at_once(&mut self, questions: u32) -> Option<Instant> {
        let now = Instant::now();
        let last = self.test_backoff.last.replace(now);
        last.filter(|&last| now - last < AT_ONCE * questions)
            .map(|_| now)
    }
}

/// Makes progress once unless `answer` has one at once, and once more if the core was handed over;
/// returns what `answer` said last. For calls that do not wait. Called without the device's lock;
/// `answer` runs under it, and must not block or call user code that calls MPI.
pub fn poll_once<T>(mut answer: impl FnMut(&mut Device) -> Option<T>) -> Option<T> {
    let mut guard = lock::device();
    if let Some(found) = answer(&mut guard) {
        return Some(found);
    }
    guard.progress();
    let found = answer(&mut guard);
    if found.is_some() || !guard.yields_to_others() {
        return found;
    }
    COUNTERS.yields.add(1);
    drop(guard);
    rustix::thread::sched_yield();
    let mut guard = lock::device();
    // However long the others had it.
    guard.test_backoff.last = Some(Instant::now());
    guard.progress();
    answer(&mut guard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::wait::WaitPolicy;
    use ferry_job::{RankInfo, RankStatus};

    const QUESTIONS: usize = STRIDE as usize * 100;

    fn alone(patience: WaitPolicy) -> Device {
        let status: &RankStatus = Box::leak(Box::default());
        let alone = RankInfo::on_one_host(0, 1, "here");
        Device::new(&alone, None, None, status, patience, false).unwrap()
    }

    /// How many of so many questions in vain end with the core handed over, with so much work
    /// before each.
    fn handed_over(patience: WaitPolicy, work: Duration) -> usize {
        let mut d = alone(patience);
        let mut one = || {
            let begin = Instant::now();
            while begin.elapsed() < work {
                std::hint::spin_loop();
            }
            d.yields_to_others()
        };
        (0..QUESTIONS).filter(|_| one()).count()
    }

    #[test]
    fn where_ranks_outnumber_cores_a_loop_of_questions_hands_the_core_over() {
        let crowded = WaitPolicy::new(2, 1);
        // This thread may lose its core between two of them, but not between most.
        assert!(handed_over(crowded, Duration::ZERO) > QUESTIONS / 2);
        assert_eq!(handed_over(crowded, AT_ONCE), 0);
    }

    #[test]
    fn a_core_of_ones_own_is_kept_and_so_it_is_on_a_modelled_machine() {
        assert_eq!(handed_over(WaitPolicy::new(1, 1), Duration::ZERO), 0);
        assert_eq!(handed_over(WaitPolicy::NONE, Duration::ZERO), 0);
    }
}

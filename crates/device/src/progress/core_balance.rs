//! Core balance: where ranks outnumber cores, they spread over them.
//!
//! Ranks that yield to each other never sleep, so the system seldom moves them: it finds no core
//! idle, and takes all for busy. All of a job may stay on one core for many milliseconds. So a rank
//! that yields looks now and then whether another of its cores has fewer ranks, and moves there.
//! So does one whose peer waits on the same core, if another core has no more ranks: apart, both
//! run at the same time, and each polls a little for the other's message
//! ([`running_peer`](super::wait::running_peer)).
//! A rank is not bound: the system may move it on.

use crate::base::counters::COUNTERS;
use crate::progress::device::Device;
use ferry_job::clock::current_core;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use std::time::{Duration, Instant};

/// Yields between two looks. A choice: a look takes a tenth of a microsecond and a cache line for
/// each rank of the node, a yield a microsecond.
const YIELDS_PER_LOOK: u32 = 128;
/// Minimum time between two moves of a rank. A choice: a move takes some ten microseconds, and does
/// nothing where the system moves the rank back to keep its core for another program.
const MOVE_INTERVAL: Duration = Duration::from_millis(5);
/// Minimum time between two moves of a rank away from its peer, at first and at most; it doubles.
/// Choices: in a ring no place is the right one for all.
const LEAVE_INTERVAL_MIN: Duration = Duration::from_millis(20);
const LEAVE_INTERVAL_MAX: Duration = Duration::from_secs(2);

impl Device {
    /// The core that this thread is to move to instead of yielding, if it is time to look and there
    /// is one. With a progress thread there is none: that chooses its core by where programs wait.
    #[inline]
    pub(crate) fn core_to_move_to(&mut self) -> Option<u32> {
        self.core_balance.yields += 1;
        if self.core_balance.yields < YIELDS_PER_LOOK {
            return None;
        }
        self.core_balance.yields = 0;
        self.look_for_core()
    }

    #[cold]
    fn look_for_core(&mut self) -> Option<u32> {
        let core = current_core();
        let transports = &self.worker.transports;
        if self.progress_thread.is_some() || !transports.shares_core(core) {
            return None;
        }
        let now = Instant::now();
        let moved_at = self.core_balance.moved_at;
        if moved_at.is_some_and(|at| now - at < MOVE_INTERVAL) {
            return None;
        }
        let mut ranks = [0; CpuSet::MAX_CPU];
        transports.for_each_waiting_core(&mut |core| {
            if let Some(n) = ranks.get_mut(core as usize) {
                *n += 1;
            }
        });
        let allowed = sched_getaffinity(None).ok()?;
        let is_allowed = |core| allowed.is_set(core);
        let found = match emptier_core(core, &ranks, 2, is_allowed) {
            Some(found) => found,
            None if self.leaves_peer(core, now) => emptier_core(core, &ranks, 0, is_allowed)?,
            None => return None,
        };
        // Others on this core see at once that this rank leaves it.
        self.worker.transports.shares_core(found);
        self.core_balance.moved_at = Some(now);
        Some(found)
    }

    /// Does the rank that this one waits for use the same core, `core`, and is it time to move away
    /// from it? Of two that wait for each other the higher one moves.
    fn leaves_peer(&mut self, core: u32, now: Instant) -> bool {
        let Some(peer) = self.core_balance.awaited else {
            return false;
        };
        let is_together = self.worker.transports.waiting_core(peer) == Some(core);
        if !is_together || peer > self.worker.me {
            return false;
        }
        let balance = &mut self.core_balance;
        if balance.stays_until.is_some_and(|until| now < until) {
            return false;
        }
        let interval = balance.stay_interval * 2;
        balance.stay_interval = interval.clamp(LEAVE_INTERVAL_MIN, LEAVE_INTERVAL_MAX);
        balance.stays_until = Some(now + balance.stay_interval);
        true
    }
}

/// The core with the fewest ranks among the allowed ones but `own`, if it has at least `fewer`
/// ranks fewer than that. `ranks`: how many ranks each core has.
fn emptier_core(
    own: u32,
    ranks: &[u32],
    fewer: u32,
    allowed: impl Fn(usize) -> bool,
) -> Option<u32> {
    let here = *ranks.get(own as usize)?;
    let others = ranks.iter().enumerate();
    let others = others.filter(|&(core, _)| core != own as usize && allowed(core));
    let (core, &least) = others.min_by_key(|&(_, n)| n)?;
    (least + fewer <= here).then_some(core as u32)
}

/// Yields the core, or moves to another one.
#[inline]
pub(crate) fn yield_core(move_to: Option<u32>) {
    COUNTERS.yields.add(1);
    match move_to {
        Some(core) => move_to_core(core),
        None => sched_yield(),
    }
}

/// Moves this thread to a core, and leaves it free to be moved on.
#[cold]
fn move_to_core(core: u32) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let mut one = CpuSet::new();
    one.set(core as usize);
    // If the system refuses, the rank stays where it is.
    if sched_setaffinity(None, &one).is_ok() {
        let _ = sched_setaffinity(None, &allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_moves_where_two_fewer_are() {
        let any = |_| true;
        assert_eq!(emptier_core(0, &[4, 0], 2, any), Some(1));
        assert_eq!(emptier_core(0, &[3, 1], 2, any), Some(1));
        assert_eq!(emptier_core(0, &[2, 1], 2, any), None);
        assert_eq!(emptier_core(1, &[2, 2], 2, any), None);
        assert_eq!(emptier_core(2, &[2, 1, 3, 1], 2, any), Some(1));
        // Not where the program may not run.
        assert_eq!(emptier_core(2, &[2, 0, 4, 0], 2, |core| core != 1), Some(3));
        assert_eq!(emptier_core(2, &[0, 0, 4], 2, |core| core == 2), None);
        assert_eq!(emptier_core(7, &[1, 2], 2, any), None);
        // Where no more are, for one that leaves its peer.
        assert_eq!(emptier_core(0, &[2, 2], 0, any), Some(1));
        assert_eq!(emptier_core(0, &[2, 3], 0, any), None);
        assert_eq!(emptier_core(0, &[2], 0, any), None);
    }

    #[test]
    fn who_has_moved_may_be_moved_on() {
        let before = sched_getaffinity(None).unwrap();
        for core in (0..CpuSet::MAX_CPU).filter(|&core| before.is_set(core)) {
            move_to_core(core as u32);
            assert!(sched_getaffinity(None).unwrap() == before);
        }
    }
}

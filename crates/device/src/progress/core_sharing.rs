//! Core sharing: a rank that waits does not poll on a core that another rank needs.

use crate::progress::device::Device;
use crate::progress::lock;
use crate::progress::thread::has_progress_thread;
use crate::progress::thread_state::message_offers;
use ferry_job::clock::current_core;
use std::time::{Duration, Instant};

/// How long the answer whether a core is shared stays valid. A choice.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// If a yielded core returns later than this, another thread computes on it. A choice.
const YIELD_MAX: Duration = Duration::from_micros(100);
/// After such a yield the rank does not yield for this many times as long. A choice: at most 1 % of
/// its time is lost.
const NO_YIELD_FACTOR: u32 = 100;

impl Device {
    /// May this thread poll where it is: is no other rank known to need its core?
    #[inline]
    pub(crate) fn polls_alone(&self) -> bool {
        !self.core_sharing.shared && !self.wait_policy.spin.is_zero()
    }

    /// Does another rank of the node wait on the core of this thread, or did it at its last wait?
    /// Polling would then keep the core from a rank that this one waits for. This happens where a
    /// program or its launcher has bound several ranks to one core.
    pub(crate) fn shares_core(&mut self, now: Instant) -> bool {
        let core = current_core();
        let sharing = &mut self.core_sharing;
        let known = sharing.core == core
            && sharing
                .checked_at
                .is_some_and(|at| now - at < CHECK_INTERVAL);
        if !known {
            sharing.shared = self.worker.transports.shares_core(core);
            (sharing.core, sharing.checked_at) = (core, Some(now));
        }
        sharing.shared
    }
}

/// Yields the core after a barrier that this rank entered last, if others wait for it on the same
/// core. It yields every other time. Without the yield, the last rank would leave first, wait for
/// the others afterwards, and be last again: one rank would do all the waiting. It yields only if
/// large messages were left to the progress thread since the last barrier: between small messages
/// the yield costs more than it gains.
pub fn yield_after_barrier() {
    if !has_progress_thread() {
        return;
    }
    let offers = message_offers();
    let yields = {
        let mut device = lock::device();
        let sharing = &mut device.core_sharing;
        let large_messages = std::mem::replace(&mut sharing.message_offers, offers) != offers;
        sharing.yielded_at_barrier =
            large_messages && sharing.shared && !sharing.yielded_at_barrier;
        sharing.yielded_at_barrier
            && sharing
                .no_yield_until
                .is_none_or(|until| Instant::now() >= until)
    };
    if !yields {
        return;
    }
    let since = Instant::now();
    rustix::thread::sched_yield();
    let took = since.elapsed();
    if took > YIELD_MAX {
        let until = Instant::now() + took * NO_YIELD_FACTOR;
        lock::device().core_sharing.no_yield_until = Some(until);
    }
}

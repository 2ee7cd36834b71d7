//! Idle time: how long waiting calls have nothing to do. For the counters, and to tell whether
//! others use the core to which they yield.

use crate::base::counters::COUNTERS;
use crate::progress::device::Device;
use crate::progress::lock::DeviceGuard;
use std::time::{Duration, Instant};

/// How long a call has had nothing to do. Short waits are not timed: reading the clock would cost
/// more than they do.
pub(crate) struct Idle {
    since: Option<Instant>,
    /// Yields before the first sleep.
    yields: u32,
    slept: bool,
}

impl Idle {
    pub const NONE: Idle = Idle {
        since: None,
        yields: 0,
        slept: false,
    };

    /// The call has nothing to do from now on, if it had before. Returns since when.
    #[inline]
    pub fn begin(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }

    /// As [`Idle::begin`], where the clock was just read. Returns that time.
    pub fn began(&mut self, now: Instant) -> Instant {
        self.since.get_or_insert(now);
        now
    }

    /// The thread is about to yield.
    #[inline(always)]
    pub fn note_yield(&mut self) {
        self.yields += u32::from(!self.slept);
    }

    /// The call is about to sleep.
    pub fn begin_sleep(&mut self, device: &mut Device) {
        if !std::mem::replace(&mut self.slept, true) && self.yields > 0 {
            self.note_yields(device, Instant::now());
        }
    }

    /// Notes how long the yields took.
    #[inline]
    fn note_yields(&self, device: &mut Device, now: Instant) {
        let ranks = device.wait_policy.ranks_on_core;
        let time = self.since.map_or(Duration::ZERO, |since| now - since);
        device.core_contention.note(self.yields, time, ranks, now);
    }

    /// The call returns.
    #[inline]
    pub fn end(&self, device: &mut DeviceGuard) {
        device.stop_serving();
        device.end_wait();
        // Virtual time is counted elsewhere.
        if let Some(since) = self.since
            && !device.is_virtual()
        {
            let now = Instant::now();
            if self.yields > 0 && !self.slept {
                self.note_yields(device, now);
            }
            COUNTERS.idle_ns.add((now - since).as_nanos() as u64);
        }
    }
}

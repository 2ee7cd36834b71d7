//! Pending collectives: they continue after their calls have returned, and the next call waits for
//! them.

use super::lock::lock;
use super::report_exchange::send_reports;
use super::site::{self, Record};
use crate::coll::executor::{self, BoundSchedule, CollTag, HangDescription};
use crate::device::{self, Completion};
use crate::{Comm, Error, Result};
use ferry_pageguard::{Guard, Owner};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of things that the next call must look at: pending collectives, errors, measurements.
pub(super) static PENDING: AtomicU32 = AtomicU32::new(0);
/// The pending collectives.
pub(super) static COLLECTIVES: Mutex<Vec<Arc<PendingCollective>>> = Mutex::new(Vec::new());

/// An error that no call has raised yet.
static LATE_ERROR: Mutex<Option<Error>> = Mutex::new(None);

/// Returns whether the next call must first call [`complete_pending`].
#[inline]
pub fn is_pending() -> bool {
    PENDING.load(Ordering::Relaxed) != 0
}

/// A pending collective: what the program's threads, the page fault thread and the progress engine
/// share of it.
pub(super) struct PendingCollective {
    pub(super) comm: Arc<Comm>,
    pub(super) tag: CollTag,
    pub(super) root: i32,
    /// The call may return.
    pub(super) may_return: AtomicBool,
    /// A traced call's guards are to end.
    pub(super) trace_ends: AtomicBool,
    pub(super) done: AtomicBool,
    pub(super) has_faults: AtomicBool,
    pub(super) new_faults: Mutex<Vec<PageFault>>,
    /// Page faults whose threads still wait.
    pub(super) waiting_faults: Mutex<Vec<PageFault>>,
    pub(super) error: Mutex<Option<Error>>,
    pub(super) record: Mutex<Record>,
}

impl PendingCollective {
    pub(super) fn take_faults(&self) -> Vec<PageFault> {
        std::mem::take(&mut *lock(&self.new_faults))
    }

    /// Records that the program has touched what `peer` sends.
    pub(super) fn record_order(&self, peer: u32) {
        lock(&self.record).record_touch(peer);
    }

    /// Pages have been opened. Ends the page faults of threads that waited for them.
    pub(super) fn end_faults(&self, is_open: impl Fn(usize) -> bool) {
        let mut waiting = lock(&self.waiting_faults);
        if waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut fault_wait = Duration::ZERO;
        waiting.retain(|(address, since)| {
            let open = is_open(*address);
            if open {
                fault_wait += now.saturating_duration_since(*since);
            }
            !open
        });
        lock(&self.record).fault_wait += fault_wait;
    }

    /// Returns whether a thread of the program waits for a page.
    pub(super) fn is_waited_for(&self) -> bool {
        !lock(&self.waiting_faults).is_empty()
    }

    pub(super) fn fail(&self, error: Option<Error>) {
        if let Some(error) = error {
            lock(&self.error).get_or_insert(error);
        }
    }

    /// Records the error of a message that is not as it should be.
    pub(super) fn check(&self, bound: &BoundSchedule, expected: Option<usize>, ended: &Completion) {
        let signature = bound.tag().signature();
        self.fail(executor::check_message(
            bound.comm(),
            signature,
            expected,
            ended,
        ));
    }
}

impl Owner for PendingCollective {
    fn on_touch(&self, _guard: &Guard, address: usize) {
        let now = Instant::now();
        lock(&self.record).faults += 1;
        lock(&self.waiting_faults).push((address, now));
        lock(&self.new_faults).push((address, now));
        self.has_faults.store(true, Ordering::Release);
        device::wake_progress_thread();
    }
}

/// Records that a collective has ended in the background. Called with the device.
pub(super) fn set_done(shared: &Arc<PendingCollective>) {
    lock(&shared.record).data_complete = Some(Instant::now());
    shared.done.store(true, Ordering::Release);
}

/// Waits for all pending collectives. Each call that may touch a buffer or wait begins with it.
///
/// Errors: that of a collective whose call has returned. It belongs to that collective's
/// communicator.
#[cold]
pub fn complete_pending() -> Result<()> {
    let all: Vec<Arc<PendingCollective>> = lock(&COLLECTIVES).clone();
    let mut settling = vec![Duration::ZERO; all.len()];
    for (one, settling) in all.iter().zip(&mut settling) {
        let since = Instant::now();
        one.trace_ends.store(true, Ordering::Release);
        if !one.done.load(Ordering::Acquire) {
            let description = HangDescription {
                comm: &one.comm,
                tag: one.tag,
                root: one.root,
            };
            let waiting_for = description.waiting_for();
            device::wait_until(&waiting_for, |_| one.done.load(Ordering::Acquire));
        }
        *settling = since.elapsed();
    }
    // Before `call_ended`: this call does not end the second times of the collectives that it has
    // just waited for.
    close_late(false);
    let mut new_spans = 0;
    let mut result = Ok(());
    if let Some(error) = lock(&LATE_ERROR).take() {
        PENDING.fetch_sub(1, Ordering::Relaxed);
        result = Err(error);
    }
    for (one, settling) in all.iter().zip(settling) {
        let mut in_flight = lock(&COLLECTIVES);
        let Some(at) = in_flight.iter().position(|o| Arc::ptr_eq(o, one)) else {
            continue;
        };
        in_flight.swap_remove(at);
        PENDING.fetch_sub(1, Ordering::Relaxed);
        drop(in_flight);
        let record = std::mem::take(&mut *lock(&one.record));
        new_spans += u32::from(site::call_ended(record, settling));
        if let Some(error) = lock(&one.error).take()
            && result.is_ok()
        {
            result = Err(error);
        }
    }
    let (any, measured) = site::close_spans();
    PENDING.fetch_add(new_spans + measured, Ordering::Relaxed);
    PENDING.fetch_sub(u32::from(any), Ordering::Relaxed);
    result
}

/// Ends the second times of earlier calls that end at this call, and sends the reports. `all`: this
/// call could overlap, so all of them end.
pub(super) fn close_late(all: bool) {
    let (reports, ended) = site::close_later(all);
    PENDING.fetch_sub(ended, Ordering::Relaxed);
    send_reports(&reports);
}

/// Completes pending collectives before a fork: the child could not wait for their data.
pub(super) fn complete_before_fork() {
    if is_pending()
        && let Err(error) = complete_pending()
    {
        // The next call raises it.
        if lock(&LATE_ERROR).replace(error).is_none() {
            PENDING.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A touched address, and when it was touched.
pub(super) type PageFault = (usize, Instant);

//! Collectives that go on behind their calls.

use super::lock::lock;
use super::said::say;
use super::site::{self, Record};
use crate::coll::executor::{self, Lasting, Number, Story};
use crate::device::{self, Completion, WaitingFor};
use crate::{Comm, Error, Result};
use ferry_pageguard::{Guard, Owner};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Collectives that go on behind their calls, and measurements that end with the next call.
pub(super) static PENDING: AtomicU32 = AtomicU32::new(0);
/// Those collectives.
pub(super) static UNDER_WAY: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// An error that no call has raised yet.
static LATE: Mutex<Option<Error>> = Mutex::new(None);

/// Must the next call come to [`settle`] first?
#[inline]
pub fn is_pending() -> bool {
    PENDING.load(Ordering::Relaxed) != 0
}

/// What the program's threads, the watching thread and the progress know of a collective in the
/// background.
pub(super) struct Shared {
    pub(super) comm: Arc<Comm>,
    pub(super) number: Number,
    pub(super) root: i32,
    /// The call may return.
    pub(super) returns: AtomicBool,
    /// A trace is to end.
    pub(super) ends: AtomicBool,
    pub(super) done: AtomicBool,
    pub(super) has_touched: AtomicBool,
    pub(super) touched: Mutex<Vec<Touched>>,
    /// Touches that wait.
    pub(super) waiting: Mutex<Vec<Touched>>,
    pub(super) error: Mutex<Option<Error>>,
    pub(super) record: Mutex<Record>,
}

impl Shared {
    pub(super) fn take_touched(&self) -> Vec<Touched> {
        std::mem::take(&mut *lock(&self.touched))
    }

    /// Somebody has touched what `peer` sends.
    pub(super) fn note_order(&self, peer: u32, at: Instant) {
        lock(&self.record).touched(peer, at);
    }

    /// Pages have been opened: who waited for one of those that are open goes on.
    pub(super) fn opened(&self, is_open: impl Fn(usize) -> bool) {
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut waited = Duration::ZERO;
        waiting.retain(|(address, since)| {
            let open = is_open(*address);
            if open {
                waited += now.saturating_duration_since(*since);
            }
            !open
        });
        lock(&self.record).waited += waited;
    }

    /// Does a thread of the program wait for some page?
    pub(super) fn is_waited_for(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    pub(super) fn fail(&self, error: Option<Error>) {
        if let Some(error) = error {
            lock(&self.error).get_or_insert(error);
        }
    }

    /// Was a message as it should be?
    pub(super) fn check(&self, lasting: &Lasting, expected: Option<usize>, ended: &Completion) {
        let function = lasting.number().function();
        self.fail(executor::check(lasting.comm(), function, expected, ended));
    }
}

impl Owner for Shared {
    fn touched(&self, _guard: &Guard, address: usize) {
        let now = Instant::now();
        lock(&self.record).faults += 1;
        lock(&self.waiting).push((address, now));
        lock(&self.touched).push((address, now));
        self.has_touched.store(true, Ordering::Release);
        device::wake_progress_thread();
    }
}

/// A collective has ended in the background. Called with the device.
pub(super) fn finished(shared: &Arc<Shared>) {
    lock(&shared.record).ended = Some(Instant::now());
    shared.done.store(true, Ordering::Release);
}

/// Waits for all collectives that go on behind their calls. To be called at the beginning of each
/// call that may touch a buffer or wait.
///
/// Errors: that of a collective whose call has returned; it belongs to that collective's
/// communicator.
#[cold]
pub fn settle() -> Result<()> {
    let all: Vec<Arc<Shared>> = lock(&UNDER_WAY).clone();
    let mut settling = vec![Duration::ZERO; all.len()];
    for (one, settling) in all.iter().zip(&mut settling) {
        let since = Instant::now();
        one.ends.store(true, Ordering::Release);
        if !one.done.load(Ordering::Acquire) {
            let story = Story(&one.comm, one.number, one.root);
            let what = WaitingFor {
                context: one.comm.context,
                peer: -2,
                tag: -1,
                details: Some(&story),
            };
            device::wait_until(&what, |_| one.done.load(Ordering::Acquire));
        }
        *settling = since.elapsed();
    }
    // Before the time until this call is taken of those that went on.
    close_late(false);
    let mut fresh = 0;
    let mut result = Ok(());
    if let Some(error) = lock(&LATE).take() {
        PENDING.fetch_sub(1, Ordering::Relaxed);
        result = Err(error);
    }
    for (one, settling) in all.iter().zip(settling) {
        let mut under_way = lock(&UNDER_WAY);
        let Some(at) = under_way.iter().position(|o| Arc::ptr_eq(o, one)) else {
            continue;
        };
        under_way.swap_remove(at);
        PENDING.fetch_sub(1, Ordering::Relaxed);
        drop(under_way);
        let record = std::mem::take(&mut *lock(&one.record));
        fresh += u32::from(site::ended(record, settling));
        if let Some(error) = lock(&one.error).take()
            && result.is_ok()
        {
            result = Err(error);
        }
    }
    let (any, measured) = site::close_spans();
    PENDING.fetch_add(fresh + measured, Ordering::Relaxed);
    PENDING.fetch_sub(u32::from(any), Ordering::Relaxed);
    result
}

/// Calls whose time until this one is the last that is taken of them. `all`: this one could
/// overlap, too, and what comes after it is its own.
pub(super) fn close_late(all: bool) {
    let (sayings, ended) = site::later(all);
    PENDING.fetch_sub(ended, Ordering::Relaxed);
    say(&sayings);
}

/// Before a fork whose child could not wait for its data.
pub(super) fn settle_for_fork() {
    if is_pending()
        && let Err(error) = settle()
    {
        // The next call raises it.
        if lock(&LATE).replace(error).is_none() {
            PENDING.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// When an operation was touched first.
pub(super) type Touched = (usize, Instant);

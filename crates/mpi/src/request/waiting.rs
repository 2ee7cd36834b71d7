//! Waiting for requests: blocking until one or all are complete, testing them, and what hang
//! reports tell of them.

use super::{Active, Class, Request, State};
use crate::device::{self, Describe, Device, WaitingFor};
use ferry_job::AWAITED_MAX;
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::Ordering;

impl Request {
    fn waiting_for(&self) -> WaitingFor<'_> {
        WaitingFor {
            context: self.comm().map_or(device::ContextId::WORLD, |c| c.context),
            peer: match self.operation().class {
                Class::Generalized => ferry_job::PEER_OWN_PROGRAM,
                _ => ferry_job::PEER_SEVERAL,
            },
            tag: -1,
            details: Some(self),
        }
    }

    /// The process from which a receive waits for its message, if it names one.
    pub fn awaited_peer(&self, d: &mut Device) -> Option<device::ProcId> {
        let req = match self.state(d) {
            &mut State::Active(Active::Device(req)) => req,
            _ => return None,
        };
        let source = d.awaited_source(req)?;
        self.comm().map(|comm| comm.peer(source))
    }
}

impl Describe for Request {
    fn awaited_peer(&self, d: &mut Device) -> Option<device::ProcId> {
        Request::awaited_peer(self, d)
    }

    /// For a receive that has not matched, also stores its source and tag; for a collective, its
    /// number and root.
    fn describe(&self, d: &mut Device, status: &ferry_job::RankStatus) {
        let Some(comm) = self.comm() else { return };
        comm.describe(d, status);
        let req = match self.state(d) {
            &mut State::Active(Active::Device(req)) => req,
            State::Active(Active::Work(work)) => {
                let work = work.clone();
                return work.describe(d, status);
            }
            _ => return,
        };
        let is_send = self.operation().class == Class::Send;
        let what: &[u8] = if is_send { b"a send" } else { b"a receive" };
        status.operation.store(what);
        if is_send {
            if let Some(to) = d.send_target(req) {
                status.peer.store(to as i32, Ordering::Relaxed);
            }
        } else if let Some(asked) = d.posted_pattern(req) {
            let peer = asked.source.map_or(-1, |rank| comm.peer(rank) as i32);
            let tag = asked.tag.only().map_or(-1, |tag| tag as i32);
            status.peer.store(peer, Ordering::Relaxed);
            status.tag.store(tag, Ordering::Relaxed);
        }
    }
}

/// Several requests that a call waits for.
struct Several<'a, R> {
    requests: &'a [R],
    /// So many of the first ones have been completed, and are perhaps no more.
    completed: &'a Cell<usize>,
    /// All of them have to be complete before the call returns.
    all: bool,
}

impl<R: Deref<Target = Request>> Several<'_, R> {
    /// Those that have not been completed.
    fn open(&self) -> &[R] {
        self.requests.get(self.completed.get()..).unwrap_or(&[])
    }

    /// What mpiexec's hang report shows for a wait for them. `one` is the first of them.
    #[inline]
    fn waiting_for<'a>(&'a self, one: &'a Request) -> WaitingFor<'a> {
        let is_general = |r: &Request| r.operation().class == Class::Generalized;
        if self.requests.len() == 1
            || is_general(one) && self.requests.iter().all(|r| is_general(r))
        {
            one.waiting_for()
        } else {
            WaitingFor {
                details: Some(self),
                ..WaitingFor::SEVERAL
            }
        }
    }
}

impl<R: Deref<Target = Request>> Describe for Several<'_, R> {
    /// That of the first request that is not complete.
    fn awaited_peer(&self, d: &mut Device) -> Option<device::ProcId> {
        let mut open = self.open().iter();
        open.find(|request| !request.is_complete(d))?
            .awaited_peer(d)
    }

    /// Tells of the first ones that are not complete.
    fn describe(&self, d: &mut Device, status: &ferry_job::RankStatus) {
        let mut first: [Option<&Request>; AWAITED_MAX] = [None; AWAITED_MAX];
        let mut count = 0;
        for request in self.open() {
            if !request.is_complete(d) {
                if let Some(place) = first.get_mut(count) {
                    *place = Some(request);
                }
                count += 1;
            }
        }
        status.awaited_count.store(count as u32, Ordering::Relaxed);
        // The first one last: the fields tell of it in the end.
        for (at, request) in first.iter().enumerate().rev() {
            if let Some(request) = request {
                let WaitingFor { context, peer, .. } = request.waiting_for();
                status.context.store(context.0, Ordering::Relaxed);
                status.peer.store(peer, Ordering::Relaxed);
                status.tag.store(-1, Ordering::Relaxed);
                status.collective.store(0, Ordering::Relaxed);
                status.operation.clear();
                request.describe(d, status);
                status.keep_awaited(at);
            }
        }
        if !self.all && count > 1 {
            status
                .peer
                .store(ferry_job::PEER_SEVERAL, Ordering::Relaxed);
            status.collective.store(0, Ordering::Relaxed);
            status.operation.clear();
        }
    }
}

/// As [`wait_until`], for all of the requests. `done` counts in `completed` those that it
/// completes, in their order: they may be no more, and are not looked at.
#[inline]
pub fn wait_until_all(
    requests: &[impl Deref<Target = Request>],
    completed: &Cell<usize>,
    done: impl FnMut(&mut Device) -> bool,
) {
    wait_for_several(requests, completed, true, done);
}

#[inline]
fn wait_for_several(
    requests: &[impl Deref<Target = Request>],
    completed: &Cell<usize>,
    all: bool,
    done: impl FnMut(&mut Device) -> bool,
) {
    if let Some(one) = requests.first() {
        let several = Several {
            requests,
            completed,
            all,
        };
        device::wait_until(&several.waiting_for(one), done);
    }
}

/// Blocks until `done` answers true, which runs under the device's lock. `requests` are what is
/// waited for, as hang reports tell it. If `done` completes one of them, it answers true at once.
/// Returns at once if there are none.
#[inline]
pub fn wait_until(
    requests: &[impl Deref<Target = Request>],
    done: impl FnMut(&mut Device) -> bool,
) {
    wait_for_several(requests, &Cell::new(0), false, done);
}

/// Blocks until all of `requests` are complete.
#[inline]
pub fn wait_all(requests: &[impl Deref<Target = Request>]) {
    let first = Cell::new(0);
    wait_until_all(requests, &first, |d| {
        while let Some(request) = requests.get(first.get())
            && request.is_complete(d)
        {
            first.set(first.get() + 1);
        }
        first.get() == requests.len()
    });
}

/// Blocks until one of `requests` is complete. At least one is active. Returns its index.
pub fn wait_any(requests: &[impl Deref<Target = Request>]) -> usize {
    let mut found = 0;
    wait_until(requests, |d| {
        match requests.iter().position(|r| r.is_complete(d)) {
            Some(at) => {
                found = at;
                true
            }
            None => false,
        }
    });
    found
}

/// As [`test()`], for one request.
pub fn test_one(request: &Request) -> bool {
    device::poll_once_for(
        |d| request.awaited_peer(d),
        |d| request.is_complete(d).then_some(()),
    )
    .is_some()
}

/// Makes progress once, unless `done` is true at once. Returns the last result of `done`.
pub fn test(mut done: impl FnMut(&mut Device) -> bool) -> bool {
    device::poll_once(|d| done(d).then_some(())).is_some()
}

//! The start of an overlapped collective, which continues after its call.

use super::background_work::{BackgroundWork, Incoming, Remaining, may_request, pieces};
use super::buffer_access::{self, Access, BufferAccess, peer_number, span};
use super::guarded_pages::{GuardPlan, GuardedPages};
use super::lock::lock;
use super::pending::{COLLECTIVES, PENDING, PendingCollective};
use super::report_exchange::open_span;
use super::send_copy::SendCopy;
use super::site::{self, Record};
use crate::Result;
use crate::coll::executor::{self, BoundSchedule, CollArgs, HangDescription, Run};
use crate::device::{self, Device, ReqId};
use ferry_pageguard::GuardError;
use ferry_schedule::{Peer, Step};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A collective that is about to start.
pub(super) struct OverlapStart {
    pub(super) bound: BoundSchedule,
    pub(super) accesses: BufferAccess,
    pub(super) kind: ferry_pageguard::Kind,
    pub(super) site: site::SiteId,
    pub(super) begun: Instant,
    pub(super) bytes: usize,
    pub(super) root: i32,
}

impl OverlapStart {
    fn shared(&self, record: Record) -> Arc<PendingCollective> {
        Arc::new(PendingCollective {
            comm: self.bound.comm().clone(),
            tag: self.bound.tag(),
            root: self.root,
            may_return: AtomicBool::new(false),
            trace_ends: AtomicBool::new(false),
            done: AtomicBool::new(false),
            has_faults: AtomicBool::new(false),
            new_faults: Mutex::default(),
            waiting_faults: Mutex::default(),
            error: Mutex::default(),
            record: Mutex::new(record),
        })
    }

    /// Runs the collective to its end. Then guards the receive buffer, to record the order in which
    /// the program touches its pieces.
    ///
    /// # Safety
    /// As for [`executor::run`].
    pub(super) unsafe fn run_traced(self, b: &CollArgs<'_>) -> Result<()> {
        let tag = self.bound.tag();
        // SAFETY: the caller's promise.
        unsafe { executor::run(&self.bound.schedule, b, tag)? };
        let record = Record::traced(self.site, self.begun, self.bytes);
        let pieces = pieces(&self.bound, &self.accesses);
        let touches = message_writes(&self.bound, &self.accesses);
        let shared = self.shared(record);
        let guarded = GuardPlan::of(&touches)
            .and_then(|plan| GuardedPages::begin(self.kind, plan, &touches, shared.clone()).ok());
        let Some(mut guarded) = guarded else {
            open_span(std::mem::take(&mut *lock(&shared.record)));
            return Ok(());
        };
        // The edges are in place already. The shadow has no bytes for them.
        guarded.skip_edges();
        run_in_background(BackgroundWork {
            shared,
            bound: Arc::new(self.bound),
            guarded: Some(guarded),
            remaining: Remaining::Trace(pieces),
            send_copy: None,
            opened_at_touch: 0,
        });
        Ok(())
    }

    /// Starts the collective. Waits until the edges of the receive buffer are in place.
    ///
    /// # Safety
    /// As for [`executor::run`].
    pub(super) unsafe fn run_overlapped(mut self, b: &CollArgs<'_>) -> Result<()> {
        let tag = self.bound.tag();
        let shared = self.shared(Record::overlapped(self.site, self.begun, self.bytes));
        let (plan, guarded) = match self.guard(&shared) {
            Ok(guard) => guard,
            Err(cause) => {
                site::set_guard_error(self.site, cause);
                // SAFETY: the caller's promise.
                let result = unsafe { executor::run(&self.bound.schedule, b, tag) };
                open_span(Record::blocking(self.site, self.begun, self.bytes));
                return result;
            }
        };
        let send_span = span(self.accesses.send.iter().map(|t| &t.bytes));
        let mut send_copy = (send_span.start < send_span.end).then(|| SendCopy::of(&send_span));
        let recv_delta = guarded.as_ref().map_or(0, GuardedPages::delta);
        let send_delta = send_copy.as_ref().map_or(0, SendCopy::delta);
        let one_buffer = self.accesses.recv.is_empty();
        self.bound
            .shift(send_delta, if one_buffer { send_delta } else { recv_delta });
        let send_copy_mut = send_copy.as_mut();
        // SAFETY: the caller's promise.
        let remaining = unsafe {
            if self.accesses.independent {
                self.start_independent(plan.as_ref(), recv_delta, send_delta, send_copy_mut)
            } else {
                self.start_sequential(plan, recv_delta, send_copy_mut)
            }
        };
        run_in_background(BackgroundWork {
            shared: shared.clone(),
            bound: Arc::new(self.bound),
            guarded,
            remaining,
            send_copy,
            opened_at_touch: 0,
        });
        wait_for_edges(&shared);
        lock(&shared.record).record_return();
        Ok(())
    }

    /// Guards the pages of the receive buffer that the collective writes. Both are `None` if it
    /// writes none.
    ///
    /// Errors: the system refuses. `None`: no whole page lies in what is written.
    fn guard(&self, shared: &Arc<PendingCollective>) -> GuardResult {
        let writes: Vec<Access> = if self.accesses.independent {
            message_writes(&self.bound, &self.accesses)
        } else {
            self.accesses.recv.clone()
        };
        if writes.is_empty() {
            return Ok((None, None));
        }
        let plan = GuardPlan::of(&writes).ok_or(None)?;
        let pages = GuardedPages::begin(self.kind, plan.clone(), &writes, shared.clone())?;
        Ok((Some(plan), Some(pages)))
    }

    /// Starts a collective whose messages depend on each other: its steps run in the schedule's
    /// order. Copies the send buffer before.
    ///
    /// # Safety
    /// As for [`executor::run`].
    unsafe fn start_sequential(
        &mut self,
        plan: Option<GuardPlan>,
        recv_delta: usize,
        send_copy: Option<&mut SendCopy>,
    ) -> Remaining {
        if let Some(send_copy) = send_copy {
            let sends = self.accesses.send.iter().map(|t| t.bytes.clone());
            for bytes in buffer_access::merged(sends.collect()) {
                // SAFETY: the caller's promise.
                unsafe { send_copy.copy(&bytes) };
            }
        }
        let edges: executor::EdgeLengths = match plan {
            Some(plan) => Box::new(move |landing| {
                let bytes =
                    landing.start.wrapping_sub(recv_delta)..landing.end.wrapping_sub(recv_delta);
                // The schedule's temporary buffer lies outside the plan's span.
                if plan.span.start <= bytes.start && bytes.end <= plan.span.end {
                    plan.edge_lengths(&bytes)
                } else {
                    [0, 0]
                }
            }),
            None => Box::new(|_| [0, 0]),
        };
        let args = self.bound.args();
        let run = Run::observed(&self.bound.schedule, &args, self.bound.tag(), edges);
        Remaining::Sequential {
            run: Box::new(run),
            touches: std::mem::take(&mut self.accesses.recv),
            receives: HashMap::new(),
        }
    }

    /// Starts a collective whose messages are independent. Posts all receives, requests the first
    /// ones, and starts all sends. Copies the send buffer meanwhile.
    ///
    /// # Safety
    /// As for [`executor::run`].
    unsafe fn start_independent(
        &self,
        plan: Option<&GuardPlan>,
        recv_delta: usize,
        send_delta: usize,
        mut send_copy: Option<&mut SendCopy>,
    ) -> Remaining {
        let (mut incoming, mut queue) = self.receive_independent(plan, recv_delta);
        let bound = &self.bound;
        // Messages by streams are sent from the program's own buffer until the call returns.
        let (streams, others) = self.sends_by_transport();
        let mut sends = Vec::new();
        let mut own = Vec::new();
        {
            let mut d = device::device();
            for (t, peer) in streams {
                let from = t.bytes.start as *const u8;
                // SAFETY: the caller's promise. Before the call returns, `copy_unsent` makes the
                // send read its remaining bytes from the copy.
                let req = unsafe { bound.send(&mut d, peer, (from, t.bytes.len()), true) };
                own.extend(req.map(|req| (req, t)));
            }
            self.request_first(&mut d, &mut incoming, &mut queue);
            d.progress();
            d.drop_within_call();
        }
        for (t, peer) in others {
            let Some(peer) = peer else {
                self.copy_own_block(t);
                continue;
            };
            if let Some(send_copy) = send_copy.as_deref_mut() {
                // SAFETY: the caller's promise.
                unsafe { send_copy.copy(&t.bytes) };
            }
            let from = t.bytes.start.wrapping_add(send_delta) as *const u8;
            let mut d = device::device();
            // SAFETY: the copy lives until the send is complete.
            sends.extend(unsafe { bound.send(&mut d, peer, (from, t.bytes.len()), false) });
            d.progress();
            d.drop_within_call();
        }
        for (req, t) in own {
            if let Some(send_copy) = send_copy.as_deref_mut() {
                // SAFETY: the caller's promise.
                unsafe { copy_unsent(send_copy, req, &t.bytes) };
            }
            sends.push(req);
        }
        self.start_empty(&mut sends);
        Remaining::Independent {
            sends,
            incoming,
            queue,
        }
    }

    /// Starts the empty messages, which are part of the schedule, too.
    fn start_empty(&self, requests: &mut Vec<ReqId>) {
        let bound = &self.bound;
        let mut d = device::device();
        for step in &bound.schedule.steps {
            match *step {
                Step::Send { peer, from } if from.count == 0 => {
                    // SAFETY: nothing is read.
                    let req = unsafe { bound.send(&mut d, peer, (std::ptr::null(), 0), false) };
                    requests.extend(req);
                }
                Step::Recv { peer, into } if into.count == 0 => {
                    // SAFETY: nothing is written.
                    let req = unsafe {
                        bound.receive_deferred(&mut d, peer, std::ptr::null_mut(), 0, [0; 2])
                    };
                    requests.push(req);
                }
                _ => {}
            }
        }
        d.drop_within_call();
    }

    /// Posts all receives. Also returns the order in which to request them.
    fn receive_independent(
        &self,
        plan: Option<&GuardPlan>,
        recv_delta: usize,
    ) -> (Vec<Incoming>, VecDeque<usize>) {
        let bound = &self.bound;
        let mut incoming = Vec::new();
        let mut d = device::device();
        for t in &self.accesses.recv {
            let Step::Recv { peer, .. } = bound.schedule.steps[t.step] else {
                continue;
            };
            let edge_lengths = plan.map_or([0, 0], |p| p.edge_and_shared_lengths(&t.bytes));
            let whole = plan.is_some_and(|p| p.needs(&t.bytes));
            let landing = t.bytes.start.wrapping_add(recv_delta) as *mut u8;
            // SAFETY: the landing is the guard's shadow, which lives until the receive is complete.
            let req = unsafe {
                bound.receive_deferred(&mut d, peer, landing, t.bytes.len(), edge_lengths)
            };
            incoming.push(Incoming {
                req,
                step: t.step,
                bytes: t.bytes.clone(),
                peer: peer_number(peer),
                edge_lengths,
                whole,
                has_edges: false,
                is_requested: whole,
                opened: 0,
                is_waited_for: false,
            });
        }
        let order = site::order(self.site);
        let rank_of = |peer: u32| order.iter().position(|&p| p == peer).unwrap_or(order.len());
        let mut queue: Vec<usize> = (0..incoming.len())
            .filter(|&n| !incoming[n].is_requested)
            .collect();
        queue.sort_by_key(|&n| rank_of(incoming[n].peer));
        d.drop_within_call();
        (incoming, VecDeque::from(queue))
    }

    /// Requests the messages that the program reads first.
    ///
    /// This happens after this rank's own messages have been announced. A peer that is asked before
    /// that would send its own bytes first, and request this rank's message behind them. It also
    /// happens before this rank's bytes are sent, because the requests would queue behind them.
    fn request_first(
        &self,
        d: &mut device::Device,
        incoming: &mut [Incoming],
        queue: &mut VecDeque<usize>,
    ) {
        for i in incoming.iter().filter(|i| i.whole) {
            d.release_deferred(i.req);
        }
        let (mut is_first, mut in_flight) = (true, 0);
        queue.retain(|&n| {
            let i = &mut incoming[n];
            let streams = match self.bound.schedule.steps[i.step] {
                Step::Recv { peer, .. } => {
                    d.capabilities(executor::process_of(self.bound.comm(), peer))
                        .streams
                }
                _ => false,
            };
            let asks = is_first || (streams && may_request(i.bytes.len(), in_flight));
            is_first = false;
            if asks {
                i.is_requested = true;
                d.release_deferred(i.req);
                in_flight += if streams { i.bytes.len() } else { 0 };
            }
            !asks
        });
    }

    /// The accesses to the send buffer: those of messages by streams, then those of other messages
    /// and of this rank's own block.
    fn sends_by_transport(&self) -> (PeerAccesses<'_, Peer>, PeerAccesses<'_, Option<Peer>>) {
        let (mut streams, mut others) = (Vec::new(), Vec::new());
        let comm = self.bound.comm();
        let mut d = device::device();
        for t in &self.accesses.send {
            match self.bound.schedule.steps[t.step] {
                Step::Send { peer, .. }
                    if d.capabilities(executor::process_of(comm, peer)).streams =>
                {
                    streams.push((t, peer));
                }
                Step::Send { peer, .. } => others.push((t, Some(peer))),
                _ => others.push((t, None)),
            }
        }
        d.drop_within_call();
        (streams, others)
    }

    /// Copies this rank's own block from buffer to buffer.
    fn copy_own_block(&self, from: &Access) {
        let Some(into) = self.accesses.recv.iter().find(|r| r.step == from.step) else {
            return;
        };
        let len = from.bytes.len().min(into.bytes.len());
        for at in (0..len).step_by(COPY_SLICE_BYTES) {
            let slice = COPY_SLICE_BYTES.min(len - at);
            // SAFETY: the program's buffers belong to the call. The own block is not guarded.
            unsafe {
                ((from.bytes.start + at) as *const u8)
                    .copy_to((into.bytes.start + at) as *mut u8, slice);
            }
            progress_once();
        }
    }
}

/// The plan of what is guarded, and the guarded pages.
type GuardResult =
    std::result::Result<(Option<GuardPlan>, Option<GuardedPages>), Option<GuardError>>;

/// Accesses to a buffer, each with the peer of its message.
type PeerAccesses<'a, P> = Vec<(&'a Access, P)>;

/// Bytes copied between two progress calls. A choice.
const COPY_SLICE_BYTES: usize = 256 * 1024;

fn progress_once() {
    let mut d = device::device();
    d.progress();
    d.drop_within_call();
}

/// Copies the bytes of a message that are not sent yet, from its end on. Then the send reads its
/// remaining bytes from the copy.
///
/// # Safety
/// The bytes must lie in the copy's range and be those of the send `req`, to a peer with streams.
unsafe fn copy_unsent(send_copy: &mut SendCopy, req: ReqId, bytes: &Range<usize>) {
    let mut end = bytes.len();
    loop {
        let mut d = device::device();
        d.progress();
        let sent = d.bytes_sent(req);
        if sent >= end {
            let copied = bytes.start.wrapping_add(send_copy.delta()) as *const u8;
            // SAFETY: the copy has all bytes that are not sent.
            unsafe { d.relocate(req, copied) };
            return d.drop_within_call();
        }
        d.drop_within_call();
        let start = end.saturating_sub(COPY_SLICE_BYTES).max(sent);
        // SAFETY: the caller's promise.
        unsafe { send_copy.copy(&(bytes.start + start..bytes.start + end)) };
        end = start;
    }
}

/// The bytes that messages write: the receive buffer without the rank's own block.
fn message_writes(bound: &BoundSchedule, accesses: &BufferAccess) -> Vec<Access> {
    let is_message = |t: &&Access| matches!(bound.schedule.steps[t.step], Step::Recv { .. });
    accesses.recv.iter().filter(is_message).cloned().collect()
}

/// Waits until the edges of the receive buffer are in place, so that the call may return.
fn wait_for_edges(shared: &PendingCollective) {
    let description = HangDescription {
        comm: &shared.comm,
        tag: shared.tag,
        root: shared.root,
    };
    let waiting_for = description.waiting_for();
    device::wait_until(&waiting_for, |_| shared.may_return.load(Ordering::Acquire));
}

/// Adds the collective to the device's background work, which advances it from now on.
fn run_in_background(mut work: BackgroundWork) {
    lock(&COLLECTIVES).push(work.shared.clone());
    PENDING.fetch_add(1, Ordering::Relaxed);
    let advance = move |d: &mut Device| work.advance(d);
    device::device().add_background(Arc::new(Mutex::new(advance)));
}

//! A collective is started behind its call.

use super::cover::{Cover, Plan};
use super::extent::{self, Extent, Touch, number, span};
use super::lock::lock;
use super::pending::{PENDING, Shared, UNDER_WAY};
use super::said::open_span;
use super::site::{self, Record};
use super::store::Store;
use super::work::{Incoming, Rest, Work, may_ask, pieces};
use crate::Result;
use crate::coll::executor::{self, Binding, Lasting, Run, Story};
use crate::device::{self, Device, ReqId, WaitingFor};
use ferry_schedule::{Peer, Step};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A collective about to be started.
pub(super) struct Start {
    pub(super) lasting: Lasting,
    pub(super) extent: Extent,
    pub(super) kind: ferry_pageguard::Kind,
    pub(super) site: site::Number,
    pub(super) begun: Instant,
    pub(super) bytes: usize,
    pub(super) root: i32,
}

impl Start {
    fn shared(&self, record: Record) -> Arc<Shared> {
        Arc::new(Shared {
            comm: self.lasting.comm().clone(),
            number: self.lasting.number(),
            root: self.root,
            returns: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            done: AtomicBool::new(false),
            has_touched: AtomicBool::new(false),
            touched: Mutex::default(),
            waiting: Mutex::default(),
            error: Mutex::default(),
            record: Mutex::new(record),
        })
    }

    /// Blocks, then guards the buffer to see in which order it is touched.
    pub(super) unsafe fn traced(self, b: &Binding<'_>) -> Result<()> {
        let number = self.lasting.number();
        // SAFETY: the caller's promise.
        unsafe { executor::run(&self.lasting.schedule, b, number)? };
        let record = Record::traced(self.site, self.begun, self.bytes);
        let pieces = pieces(&self.lasting, &self.extent);
        let touches = incoming_touches(&self.lasting, &self.extent);
        let shared = self.shared(record);
        let cover = Plan::of(&touches)
            .and_then(|plan| Cover::begin(self.kind, plan, &touches, shared.clone()).ok());
        let Some(mut cover) = cover else {
            open_span(std::mem::take(&mut *lock(&shared.record)));
            return Ok(());
        };
        // The parts of pages at the ends are where they were; their copies in the shadow mean
        // nothing.
        cover.forget_edges();
        begin(Work {
            shared,
            lasting: Arc::new(self.lasting),
            cover: Some(cover),
            rest: Rest::Trace(pieces),
            store: None,
            opened_at_touch: 0,
        });
        Ok(())
    }

    /// Starts it, and waits for the parts of pages at the receive buffer's ends.
    pub(super) unsafe fn overlapped(mut self, b: &Binding<'_>) -> Result<()> {
        let number = self.lasting.number();
        let shared = self.shared(Record::overlapped(self.site, self.begun, self.bytes));
        let writes: Vec<Touch> = if self.extent.apart {
            incoming_touches(&self.lasting, &self.extent)
        } else {
            self.extent.recv.clone()
        };
        let mut plan = None;
        let mut cover = None;
        if !writes.is_empty() {
            let ends = Plan::of(&writes).map(|p| {
                plan = Some(p.clone());
                Cover::begin(self.kind, p, &writes, shared.clone())
            });
            match ends {
                Some(Ok(begun)) => cover = Some(begun),
                refused => {
                    site::refused(self.site, refused.and_then(std::result::Result::err));
                    // SAFETY: the caller's promise.
                    let result = unsafe { executor::run(&self.lasting.schedule, b, number) };
                    open_span(Record::blocking(self.site, self.begun, self.bytes));
                    return result;
                }
            }
        }
        let send_span = span(self.extent.send.iter().map(|t| &t.bytes));
        let mut store = (send_span.start < send_span.end).then(|| Store::of(&send_span));
        let inward = cover.as_ref().map_or(0, Cover::delta);
        let outward = store.as_ref().map_or(0, Store::delta);
        let one_buffer = self.extent.recv.is_empty();
        self.lasting
            .shift(outward, if one_buffer { outward } else { inward });
        let rest = if self.extent.apart {
            // SAFETY: the caller's promise.
            unsafe { self.start_apart(plan.as_ref(), inward, outward, store.as_mut()) }
        } else {
            if let Some(store) = &mut store {
                for bytes in
                    extent::joined(self.extent.send.iter().map(|t| t.bytes.clone()).collect())
                {
                    // SAFETY: the caller's promise.
                    unsafe { store.copy(&bytes) };
                }
            }
            let ends: executor::Ends = match plan.clone() {
                Some(plan) => Box::new(move |landing| {
                    let bytes =
                        landing.start.wrapping_sub(inward)..landing.end.wrapping_sub(inward);
                    // Room of the schedule's own is somewhere else.
                    if plan.span.start <= bytes.start && bytes.end <= plan.span.end {
                        plan.ends(&bytes)
                    } else {
                        [0, 0]
                    }
                }),
                None => Box::new(|_| [0, 0]),
            };
            let binding = self.lasting.binding();
            let run = Run::watched(&self.lasting.schedule, &binding, number, ends);
            Rest::Whole {
                run: Box::new(run),
                touches: std::mem::take(&mut self.extent.recv),
                known: HashMap::new(),
            }
        };
        let story = Story(&shared.comm, number, self.root);
        let what = WaitingFor {
            context: shared.comm.context,
            peer: -2,
            tag: -1,
            details: Some(&story),
        };
        begin(Work {
            shared: shared.clone(),
            lasting: Arc::new(self.lasting),
            cover,
            rest,
            store,
            opened_at_touch: 0,
        });
        device::wait_until(&what, |_| shared.returns.load(Ordering::Acquire));
        lock(&shared.record).returned();
        Ok(())
    }

    /// Posts all receives and asks for the first ones, starts all sends, and copies what is sent
    /// while they go.
    unsafe fn start_apart(
        &self,
        plan: Option<&Plan>,
        inward: usize,
        outward: usize,
        mut store: Option<&mut Store>,
    ) -> Rest {
        let (mut incoming, mut queue) = self.receive_apart(plan, inward);
        let lasting = &self.lasting;
        // To those whose messages go as streams the program's own buffer will do until the call
        // returns.
        let (streams, others) = self.sends_by_way();
        let mut sends = Vec::new();
        let mut own = Vec::new();
        {
            let mut d = device::device();
            for (t, peer) in streams {
                let from = t.bytes.start as *const u8;
                // SAFETY: the caller's promise; before the call returns, what is left is looked for
                // in the copy.
                let req = unsafe { lasting.send(&mut d, peer, (from, t.bytes.len()), true) };
                own.extend(req.map(|req| (req, t)));
            }
            self.ask_first(&mut d, &mut incoming, &mut queue);
            d.progress();
            d.drop_within_call();
        }
        for (t, peer) in others {
            let Some(peer) = peer else {
                self.copy_own_block(t);
                continue;
            };
            if let Some(store) = store.as_deref_mut() {
                // SAFETY: the caller's promise.
                unsafe { store.copy(&t.bytes) };
            }
            let from = t.bytes.start.wrapping_add(outward) as *const u8;
            let mut d = device::device();
            // SAFETY: the copy is kept until the message has gone.
            sends.extend(unsafe { lasting.send(&mut d, peer, (from, t.bytes.len()), false) });
            d.progress();
            d.drop_within_call();
        }
        for (req, t) in own {
            if let Some(store) = store.as_deref_mut() {
                // SAFETY: the caller's promise.
                unsafe { copy_rest(store, req, &t.bytes) };
            }
            sends.push(req);
        }
        // Empty messages, too, are part of the schedule.
        {
            let mut d = device::device();
            for step in &lasting.schedule.steps {
                match *step {
                    Step::Send { peer, from } if from.count == 0 => {
                        // SAFETY: nothing is read.
                        sends.extend(unsafe {
                            lasting.send(&mut d, peer, (std::ptr::null(), 0), false)
                        });
                    }
                    Step::Recv { peer, into } if into.count == 0 => {
                        // SAFETY: nothing is written.
                        let req = unsafe {
                            lasting.receive_deferred(&mut d, peer, std::ptr::null_mut(), 0, [0; 2])
                        };
                        sends.push(req);
                    }
                    _ => {}
                }
            }
            d.drop_within_call();
        }
        Rest::Apart {
            sends,
            incoming,
            queue,
        }
    }

    /// Posts all receives; in which order they are to be asked for.
    fn receive_apart(
        &self,
        plan: Option<&Plan>,
        inward: usize,
    ) -> (Vec<Incoming>, VecDeque<usize>) {
        let lasting = &self.lasting;
        let mut incoming = Vec::new();
        let mut d = device::device();
        for t in &self.extent.recv {
            let Step::Recv { peer, .. } = lasting.schedule.steps[t.step] else {
                continue;
            };
            let ends = plan.map_or([0, 0], |p| p.ends_and_seams(&t.bytes));
            let whole = plan.is_some_and(|p| p.needs(&t.bytes));
            let landing = t.bytes.start.wrapping_add(inward) as *mut u8;
            // SAFETY: the landing is the guard's shadow, kept until the message has come.
            let req =
                unsafe { lasting.receive_deferred(&mut d, peer, landing, t.bytes.len(), ends) };
            incoming.push(Incoming {
                req,
                step: t.step,
                bytes: t.bytes.clone(),
                peer: number(peer),
                ends,
                whole,
                has_edges: false,
                asked: whole,
                opened: 0,
                wanted: false,
            });
        }
        let order = site::order(self.site);
        let rank_of = |peer: u32| order.iter().position(|&p| p == peer).unwrap_or(order.len());
        let mut queue: Vec<usize> = (0..incoming.len())
            .filter(|&n| !incoming[n].asked)
            .collect();
        queue.sort_by_key(|&n| rank_of(incoming[n].peer));
        d.drop_within_call();
        (incoming, VecDeque::from(queue))
    }

    /// Asks for those that are read first. After this rank's own messages have been announced: who
    /// was asked before it has heard of them would answer what this rank wants first
    /// of it behind its message's bytes; and before bytes go, behind which the questions would
    /// stand.
    fn ask_first(
        &self,
        d: &mut device::Device,
        incoming: &mut [Incoming],
        queue: &mut VecDeque<usize>,
    ) {
        for i in incoming.iter().filter(|i| i.whole) {
            d.release_deferred(i.req);
        }
        let (mut is_first, mut under_way) = (true, 0);
        queue.retain(|&n| {
            let i = &mut incoming[n];
            let streams = match self.lasting.schedule.steps[i.step] {
                Step::Recv { peer, .. } => {
                    d.capabilities(executor::process(self.lasting.comm(), peer))
                        .streams
                }
                _ => false,
            };
            let asks = is_first || (streams && may_ask(i.bytes.len(), under_way));
            is_first = false;
            if asks {
                i.asked = true;
                d.release_deferred(i.req);
                under_way += if streams { i.bytes.len() } else { 0 };
            }
            !asks
        });
    }

    /// Uses of the send buffer: by messages that go as streams, and the others and this rank's own
    /// block.
    fn sends_by_way(&self) -> (Uses<'_, Peer>, Uses<'_, Option<Peer>>) {
        let (mut streams, mut others) = (Vec::new(), Vec::new());
        let comm = self.lasting.comm();
        let mut d = device::device();
        for t in &self.extent.send {
            match self.lasting.schedule.steps[t.step] {
                Step::Send { peer, .. }
                    if d.capabilities(executor::process(comm, peer)).streams =>
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

    /// This rank's own block goes from buffer to buffer before the call returns.
    fn copy_own_block(&self, from: &Touch) {
        let Some(into) = self.extent.recv.iter().find(|r| r.step == from.step) else {
            return;
        };
        let len = from.bytes.len().min(into.bytes.len());
        for at in (0..len).step_by(SLICE) {
            let some = SLICE.min(len - at);
            // SAFETY: the program's buffers, lent to the call; the own block is not guarded.
            unsafe {
                ((from.bytes.start + at) as *const u8)
                    .copy_to((into.bytes.start + at) as *mut u8, some);
            }
            go_on();
        }
    }
}

/// Uses of a buffer, and with whom.
type Uses<'a, P> = Vec<(&'a Touch, P)>;

/// Bytes copied between two looks at what has come and gone.
const SLICE: usize = 256 * 1024;

fn go_on() {
    let mut d = device::device();
    d.progress();
    d.drop_within_call();
}

/// Copies what has not gone yet of a message, its end first, and has the rest be looked for there.
///
/// # Safety
/// The bytes must lie in the store's range and be those of the send `req`, to a peer with streams.
unsafe fn copy_rest(store: &mut Store, req: ReqId, bytes: &Range<usize>) {
    let mut end = bytes.len();
    loop {
        let mut d = device::device();
        d.progress();
        let gone = d.bytes_sent(req);
        if gone >= end {
            let place = bytes.start.wrapping_add(store.delta()) as *const u8;
            // SAFETY: all that has not gone is there.
            unsafe { d.relocate(req, place) };
            return d.drop_within_call();
        }
        d.drop_within_call();
        let start = end.saturating_sub(SLICE).max(gone);
        // SAFETY: the caller's promise.
        unsafe { store.copy(&(bytes.start + start..bytes.start + end)) };
        end = start;
    }
}

/// What messages write, without the rank's own block.
fn incoming_touches(lasting: &Lasting, extent: &Extent) -> Vec<Touch> {
    let is_message = |t: &&Touch| matches!(lasting.schedule.steps[t.step], Step::Recv { .. });
    extent.recv.iter().filter(is_message).cloned().collect()
}

/// From here on it goes on by itself.
fn begin(mut work: Work) {
    lock(&UNDER_WAY).push(work.shared.clone());
    PENDING.fetch_add(1, Ordering::Relaxed);
    let advance = move |d: &mut Device| work.advance(d);
    device::device().add_background(Arc::new(Mutex::new(advance)));
}

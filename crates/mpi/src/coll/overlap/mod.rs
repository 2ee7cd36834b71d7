//! Blocking collectives that return early, behind guards ("T-NBC", Chinese Journal of Computers,
//! 2011).
//!
//! The schedule that the blocking form runs goes on in the background. What it sends is a copy of
//! the program's send buffer; what it receives lands in the shadow of a guard over the receive
//! buffer, and is put in its place when no step needs it any more. Parts of pages at the buffer's
//! ends are finished before the call returns. Any further call of MPI's first waits for all that
//! goes on ([`settle`]): the device never touches a guarded page.
//!
//! The messages are those of the blocking form, so a rank may overlap a call that another one
//! blocks in. That they do the same is better, but nobody's waiting depends on it.

mod cover;
mod extent;
mod report;
mod setting;
mod site;
mod store;
mod verdict;
mod work;

pub use setting::{Mode, own_memory, start, stop};

use super::number::{Form, Number};
use super::run::{self, Lasting, Run, Story};
use super::{Call, What};
use crate::device::{self, Completion, Device, ProcId, ReqId, WaitingFor};
use crate::{Comm, Error, Result, process};
use cover::{Cover, Plan};
use extent::{Extent, Touch, number, span};
use ferry_pageguard::{Guard, Owner};
use ferry_schedule::{Peer, Step};
use site::{Choice, Record};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::Store;
use verdict::{At, Members, Saying};
use work::{Incoming, Rest, Touched, Work, may_ask, pieces};

/// Collectives that go on behind their calls, and measurements that end with the next call.
static PENDING: AtomicU32 = AtomicU32::new(0);
/// Those collectives.
static UNDER_WAY: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// An error that no call has raised yet.
static LATE: Mutex<Option<Error>> = Mutex::new(None);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Must the next call come to [`settle`] first?
#[inline]
pub fn is_pending() -> bool {
    PENDING.load(Ordering::Relaxed) != 0
}

/// What the program's threads, the watching thread and the progress know of a collective in the
/// background.
struct Shared {
    comm: Arc<Comm>,
    number: Number,
    root: i32,
    /// The call may return.
    returns: AtomicBool,
    /// A trace is to end.
    ends: AtomicBool,
    done: AtomicBool,
    has_touched: AtomicBool,
    touched: Mutex<Vec<Touched>>,
    /// Touches that wait.
    waiting: Mutex<Vec<Touched>>,
    error: Mutex<Option<Error>>,
    record: Mutex<Record>,
}

impl Shared {
    fn take_touched(&self) -> Vec<Touched> {
        std::mem::take(&mut *lock(&self.touched))
    }

    /// Somebody has touched what `peer` sends.
    fn note_order(&self, peer: u32, at: Instant) {
        lock(&self.record).touched(peer, at);
    }

    /// Pages have been opened: who waited for one of those that are open goes on.
    fn opened(&self, is_open: impl Fn(usize) -> bool) {
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
    fn is_waited_for(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    fn fail(&self, error: Option<Error>) {
        if let Some(error) = error {
            lock(&self.error).get_or_insert(error);
        }
    }

    /// Was a message as it should be?
    fn check(&self, lasting: &Lasting, expected: Option<usize>, ended: &Completion) {
        let function = lasting.number().function();
        self.fail(run::check(lasting.comm(), function, expected, ended));
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
fn finished(shared: &Arc<Shared>) {
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
fn close_late(all: bool) {
    let (sayings, ended) = site::later(all);
    PENDING.fetch_sub(ended, Ordering::Relaxed);
    say(&sayings);
}

/// Before a fork whose child could not wait for its data.
fn settle_for_fork() {
    if is_pending()
        && let Err(error) = settle()
    {
        // The next call raises it.
        if lock(&LATE).replace(error).is_none() {
            PENDING.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs a blocking collective so that its call returns early, if that is wanted and may pay.
/// `None`: run it as ever.
///
/// # Safety
/// As for [`Call::run`].
pub(super) unsafe fn run(call: &Call<'_>) -> Option<Result<()>> {
    let mut mode = setting::mode();
    if mode == Mode::Off {
        if call.comm.plans.overlap() != Some(true) {
            return None;
        }
        mode = setting::begin_late();
        if mode == Mode::Off {
            return None;
        }
    }
    let What::Collective(what) = &call.what else {
        return None;
    };
    let comm = call.comm;
    if comm.size() < 2 && !comm.is_inter() {
        return None;
    }
    let least = setting::least(mode);
    if extent::volume(what, comm.peers().size().max(comm.size()))? < least
        || !setting::wanted(comm, mode)
        || call
            .reduction
            .is_some_and(|(op, _)| op.predefined_kind().is_none())
    {
        return None;
    }
    let schedule = call.schedule();
    let b = call.binding();
    let places = b.places();
    let extent = Extent::of(&schedule, &places)?;
    let bytes: usize = extent
        .send
        .iter()
        .chain(&extent.recv)
        .map(|t| t.bytes.len())
        .sum();
    if (bytes as i64) < least {
        return None;
    }
    let kind = setting::guard()?;
    let begun = Instant::now();
    let site = site::here(what.kind(), bytes);
    let number = call.number(Form::Blocking);
    close_late(true);
    say(&site::hear(said()));
    let choice = site::choose(site, mode, extent.apart, at(comm, number), members(comm));
    if choice == Choice::Block || (choice == Choice::Trace && !extent.apart) {
        // SAFETY: the caller's promise.
        let result = unsafe { run::run(&schedule, &b, number) };
        open_span(Record::blocking(site, begun, bytes));
        return Some(result);
    }
    let start = Start {
        lasting: Lasting::new(schedule, &b, number),
        extent,
        kind,
        site,
        begun,
        bytes,
        root: b.root,
    };
    Some(if choice == Choice::Trace {
        // SAFETY: the caller's promise.
        unsafe { start.traced(&b) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { start.overlapped(&b) }
    })
}

/// By what others name this call.
fn at(comm: &Comm, number: Number) -> At {
    At {
        context: comm.context.0,
        number: number.in_comm(),
    }
}

/// The two sides of an intercommunicator do not decide together.
fn members(comm: &Comm) -> Members {
    Members {
        me: process::process().me,
        first: (!comm.is_inter()).then(|| comm.peer(0)),
        count: comm.size() as usize,
    }
}

/// What others have said of calls since the last time.
fn said() -> Vec<(ProcId, Saying)> {
    let mut d = device::device();
    let said = std::iter::from_fn(|| d.next_control())
        .filter_map(|(from, note)| Some((from, verdict::saying(note)?)))
        .collect();
    d.drop_within_call();
    said
}

fn say(sayings: &[(ProcId, Saying)]) {
    if sayings.is_empty() {
        return;
    }
    let mut d = device::device();
    for (to, saying) in sayings {
        d.send_control(*to, verdict::note(saying));
    }
}

fn open_span(record: Record) {
    if site::open_span(record) {
        PENDING.fetch_add(1, Ordering::Relaxed);
    }
}

/// A collective about to be started.
struct Start {
    lasting: Lasting,
    extent: Extent,
    kind: ferry_pageguard::Kind,
    site: site::Number,
    begun: Instant,
    bytes: usize,
    root: i32,
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
    unsafe fn traced(self, b: &run::Binding<'_>) -> Result<()> {
        let number = self.lasting.number();
        // SAFETY: the caller's promise.
        unsafe { run::run(&self.lasting.schedule, b, number)? };
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
    unsafe fn overlapped(mut self, b: &run::Binding<'_>) -> Result<()> {
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
                    let result = unsafe { run::run(&self.lasting.schedule, b, number) };
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
            let ends: run::Ends = match plan.clone() {
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
                    d.capabilities(run::process(self.lasting.comm(), peer))
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
                Step::Send { peer, .. } if d.capabilities(run::process(comm, peer)).streams => {
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

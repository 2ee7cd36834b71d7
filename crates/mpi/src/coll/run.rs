//! Runs a schedule on the device: at once, or in the background.

mod kept;
mod started;
mod under_way;

use super::TALLY;
use super::memory::{LastingView, Places, Room, View};
use super::number::{self, Function, Number};
use crate::device::{self, Describe, Device, Key, Pattern, ReqId, SendMode, WaitingFor};
use crate::request::{Active, Request};
use crate::{Comm, Datatype, Error, Op, Result, err};
use ferry_schedule::{Peer, Piece, Region, Schedule, Step};
use started::{Started, What};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use under_way::UnderWay;

pub(crate) use kept::KeptCollectives;
pub(super) use kept::Like;

/// What a schedule runs on: a communicator, buffers, an operation.
#[derive(Clone, Copy)]
pub(super) struct Binding<'a> {
    pub(super) comm: &'a Arc<Comm>,
    pub(super) send: View<'a>,
    pub(super) recv: View<'a>,
    /// A reduction's operation and type.
    pub(super) reduction: Option<(&'a Arc<Op>, &'a Arc<Datatype>)>,
    /// The root's rank, for who looks at a hang; -1: none.
    pub(super) root: i32,
}

impl<'a> Binding<'a> {
    /// Where the call's buffers are.
    pub(super) fn places(&self) -> Places<'a> {
        Places {
            send: self.send,
            recv: self.recv,
            element: self.reduction.map(|r| r.1),
        }
    }
}

/// Reductions of more bytes are done without the device's lock, so that other threads get on.
const LONG: i64 = 16 * 1024;

/// So many bytes of a copy the progress thread does before it lets others have the device.
const PORTION: usize = 128 * 1024;

/// Who does own work (reductions, copies) that takes long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Labour {
    /// Whoever advances the run, at once.
    AtOnce,
    /// The caller, without the device's lock.
    Caller,
    /// The progress thread while the program only passes through MPI, a portion at a time;
    /// otherwise whoever advances the run. Where that thread polls, large messages are its own,
    /// too.
    Thread,
}

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    /// Messages must come first.
    Waiting,
    /// The next step is to be done without the device's lock.
    OwnWork,
    Done,
}

/// A message under way.
#[derive(Clone, Copy)]
struct Message {
    step: u32,
    req: ReqId,
    /// Bytes that a receive must get; `None` for a send.
    expected: Option<usize>,
}

/// What somebody wants to know of a run.
struct Watch {
    /// Steps that have ended.
    ended: Vec<usize>,
    /// How many bytes of a piece of memory's beginning and end are wanted before the rest.
    ends: Ends,
}

/// For a piece of memory: the bytes of its beginning and end that are wanted before the rest.
pub(super) type Ends = Box<dyn Fn(std::ops::Range<usize>) -> [usize; 2] + Send>;

/// The state of a schedule's run.
pub(super) struct Run {
    at: usize,
    /// Who wants to know what happens.
    watch: Option<Watch>,
    under_way: UnderWay<Message>,
    /// Bytes that the next step, a copy, has copied already.
    copied: usize,
    /// It has been counted.
    counted: bool,
    room: Room,
    number: Number,
    error: Option<Error>,
}

impl Run {
    fn new(schedule: &Schedule, b: &Binding<'_>, number: Number) -> Run {
        Run {
            at: 0,
            watch: None,
            under_way: UnderWay::default(),
            copied: 0,
            counted: false,
            room: Room::new(schedule.tmp, b.reduction.map(|r| r.1)),
            number,
            error: None,
        }
    }

    /// Is to be done once more; it has ended well, and nobody watched.
    fn renew(&mut self, number: Number) {
        (self.at, self.copied, self.counted, self.number) = (0, 0, false, number);
    }

    /// The same, for who wants to know which steps have [`ended`](Run::ended), and has messages'
    /// ends come first.
    pub(super) fn watched(schedule: &Schedule, b: &Binding<'_>, number: Number, ends: Ends) -> Run {
        Run {
            watch: Some(Watch {
                ended: Vec::new(),
                ends,
            }),
            ..Run::new(schedule, b, number)
        }
    }

    /// The steps that have ended since the last question: their messages are complete, their work
    /// is done.
    pub(super) fn ended(&mut self) -> Vec<usize> {
        let watch = self.watch.as_mut();
        watch
            .map(|w| std::mem::take(&mut w.ended))
            .unwrap_or_default()
    }

    /// The receives that are under way, with their steps.
    pub(super) fn receives(&self) -> impl Iterator<Item = (usize, ReqId)> + '_ {
        let all = self.under_way.iter().filter(|m| m.expected.is_some());
        all.map(|m| (m.step as usize, m.req))
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// As for [`Device::receive`].
    #[inline]
    unsafe fn receive(
        &self,
        d: &mut Device,
        from: u32,
        pattern: Pattern,
        sink: device::Sink,
    ) -> ReqId {
        if let (Some(watch), device::Sink::Bytes { ptr, cap }) = (&self.watch, &sink) {
            let start = *ptr as usize;
            let ends = (watch.ends)(start..start + cap);
            // SAFETY: the caller's promise.
            let req = unsafe { d.receive_deferred(from, pattern, sink, ends) };
            d.release_deferred(req);
            return req;
        }
        // SAFETY: the caller's promise.
        unsafe { d.receive_from(from, pattern, sink) }
    }

    /// What went wrong.
    pub(super) fn error(&mut self) -> Option<Error> {
        self.error.take()
    }

    #[inline]
    fn note(&mut self, step: usize) {
        if let Some(watch) = &mut self.watch {
            watch.ended.push(step);
        }
    }

    /// Goes as far as it can without waiting.
    ///
    /// # Safety
    /// The binding's buffers must be what the schedule takes them for; this value must not move
    /// until the run is done.
    pub(super) unsafe fn advance(
        &mut self,
        s: &Schedule,
        b: &Binding<'_>,
        d: &mut Device,
        labour: Labour,
    ) -> Stand {
        let places = b.places();
        if !std::mem::replace(&mut self.counted, true) {
            TALLY.count(s.algorithm, d);
        }
        while let Some(step) = s.steps.get(self.at) {
            if let Step::Send { from: piece, .. } | Step::Recv { into: piece, .. } = *step
                && labour == Labour::Thread
                && d.offloads_message(bytes(b, piece))
            {
                return Stand::Waiting;
            }
            match *step {
                Step::Send { peer, from } => {
                    let (to, key) = address(b.comm, self.number, peer, true);
                    let source = places.find(from, &mut self.room).source();
                    // SAFETY: the schedule leaves the piece alone until the send is awaited, and
                    // the caller the buffers.
                    if let Some(req) = unsafe { d.send(to, key, source, SendMode::Standard) } {
                        self.under_way.push_back(Message {
                            step: self.at as u32,
                            req,
                            expected: None,
                        });
                    } else {
                        self.note(self.at);
                    }
                }
                Step::Recv { peer, into } => {
                    let (process, pattern) = incoming(b.comm, self.number, peer);
                    let sink = places.find(into, &mut self.room).sink();
                    let expected = Some(sink.capacity());
                    // SAFETY: nobody touches the piece until the receive is awaited.
                    let req = unsafe { self.receive(d, process, pattern, sink) };
                    self.under_way.push_back(Message {
                        step: self.at as u32,
                        req,
                        expected,
                    });
                }
                Step::Await { before } => {
                    if !self.collect(b.comm, d, before) {
                        return Stand::Waiting;
                    }
                }
                Step::Reduce { into, .. } | Step::Copy { into, .. } => {
                    if labour == Labour::Caller && takes_long(b, step, into) {
                        return Stand::OwnWork;
                    }
                    let by_thread = d.is_progress_thread();
                    if calls_program(b, step) {
                        if by_thread {
                            d.needs_program_thread();
                            return Stand::Waiting;
                        }
                    } else if labour == Labour::Thread
                        && d.offloads_work(bytes(b, into).saturating_sub(self.copied))
                    {
                        return Stand::Waiting;
                    }
                    let most = if by_thread && labour == Labour::Thread {
                        PORTION
                    } else {
                        usize::MAX
                    };
                    // SAFETY: the caller's promise.
                    if !unsafe { self.work(b, &places, step, most) } {
                        d.note_background_work();
                        return Stand::Waiting;
                    }
                    self.note(self.at);
                }
            }
            self.at += 1;
        }
        if self.collect(b.comm, d, u32::MAX) {
            Stand::Done
        } else {
            Stand::Waiting
        }
    }

    /// Collects what has completed; true if all that steps before `before` started has.
    #[inline]
    fn collect(&mut self, comm: &Arc<Comm>, d: &mut Device, before: u32) -> bool {
        while let Some(m) = self.under_way.front() {
            if m.step >= before {
                return true;
            }
            if !d.is_complete(m.req) {
                return false;
            }
            let ended = d.take_deferred(m.req);
            if let Some(e) = check(comm, self.number.function(), m.expected, &ended) {
                self.error.get_or_insert(e);
            }
            let step = m.step as usize;
            self.under_way.pop_front();
            self.note(step);
        }
        true
    }

    /// Does a reduction, or what is left of a copy: of a large one about `most` bytes. Returns
    /// whether it is done.
    ///
    /// # Safety
    /// As for [`Run::advance`].
    unsafe fn work(
        &mut self,
        b: &Binding<'_>,
        places: &Places<'_>,
        step: &Step,
        most: usize,
    ) -> bool {
        match (*step, b.reduction) {
            (Step::Reduce { from, into }, Some((op, datatype))) => {
                let (left, _) = places.operand(from, &mut self.room);
                let (right, count) = places.operand(into, &mut self.room);
                // SAFETY: both hold `count` elements, by the schedule.
                unsafe { op.apply(left, right, count, datatype) };
            }
            (Step::Copy { from, into }, _) => {
                let (from, into) = (
                    places.find(from, &mut self.room),
                    places.find(into, &mut self.room),
                );
                // SAFETY: the caller's promise.
                self.copied = unsafe { from.copy_part(&into, self.copied, most) };
                if self.copied < from.len().min(into.len()) {
                    return false;
                }
                self.copied = 0;
                if from.len() != into.len() {
                    let (sent, room) = (from.len(), into.len());
                    let e = err!(
                        Truncate,
                        "this rank's own block has {sent} bytes by the send arguments and {room} by the receive arguments"
                    );
                    self.error.get_or_insert(e.on(b.comm));
                }
            }
            _ => {}
        }
        true
    }
}

/// The peer's process, and the key of a message to it (or from it).
#[inline]
fn address(comm: &Comm, number: Number, peer: Peer, sending: bool) -> (u32, Key) {
    match (peer, &comm.local) {
        (Peer::Local(r), Some(local)) => {
            let source = if sending { local.rank() } else { r };
            (
                local.peer(r),
                Key {
                    context: local.context.collective(),
                    source,
                    tag: number.local_tag(),
                },
            )
        }
        (Peer::Local(r) | Peer::Remote(r), _) => {
            let source = if sending { comm.rank() } else { r };
            (
                comm.peer(r),
                Key {
                    context: comm.context.collective(),
                    source,
                    tag: number.tag(),
                },
            )
        }
    }
}

/// The peer's process, and what a receive of a message from it asks for.
#[inline]
fn incoming(comm: &Comm, number: Number, peer: Peer) -> (u32, Pattern) {
    let (process, key) = address(comm, number, peer, false);
    let pattern = Pattern {
        context: key.context,
        source: Some(key.source),
        tag: number::of_any_function(key.tag),
    };
    (process, pattern)
}

/// The peer's process.
pub(super) fn process(comm: &Comm, peer: Peer) -> u32 {
    match (peer, &comm.local) {
        (Peer::Local(r), Some(local)) => local.peer(r),
        (Peer::Local(r) | Peer::Remote(r), _) => comm.peer(r),
    }
}

/// Does this step call a function of the program's? Its own threads do that.
#[inline]
fn calls_program(b: &Binding<'_>, step: &Step) -> bool {
    matches!((step, b.reduction), (Step::Reduce { .. }, Some((op, _))) if op.predefined_kind().is_none())
}

/// Bytes of a piece's data.
fn bytes(b: &Binding<'_>, piece: Piece) -> usize {
    let of = |view: &View<'_>| match view {
        View::Uniform { datatype, .. } => datatype.size(),
        View::Nothing | View::Blocks(_) => 0,
    };
    let unit = match piece.region {
        Region::Send => of(&b.send),
        Region::Recv => of(&b.recv),
        Region::Tmp => b.reduction.map_or(1, |(_, t)| t.size()),
        Region::Packed | Region::SendBlock | Region::RecvBlock => 1,
    };
    usize::try_from(piece.count.saturating_mul(unit)).unwrap_or(0)
}

/// May this step call user code, or take long?
#[inline]
fn takes_long(b: &Binding<'_>, step: &Step, into: Piece) -> bool {
    match (step, b.reduction) {
        (Step::Reduce { .. }, Some((op, t))) => {
            op.predefined_kind().is_none() || into.count.saturating_mul(t.size()) > LONG
        }
        (Step::Copy { .. }, None)
            if into.region == Region::Tmp || into.region == Region::Packed =>
        {
            into.count > LONG
        }
        _ => false,
    }
}

/// Was a message as it should be, of so many bytes if it was received?
#[inline]
pub(super) fn check(
    comm: &Arc<Comm>,
    function: Function,
    expected: Option<usize>,
    ended: &device::Completion,
) -> Option<Error> {
    let amiss = ended.fault.is_some()
        || expected.is_some_and(|e| {
            e as u64 != ended.received || Function::of_tag(ended.envelope.tag) != function
        });
    amiss.then(|| fault(comm, function, expected.unwrap_or(0), ended))
}

#[cold]
fn fault(
    comm: &Arc<Comm>,
    function: Function,
    expected: usize,
    ended: &device::Completion,
) -> Error {
    let (source, sent) = (ended.envelope.source, ended.envelope.len);
    let e = match ended.fault {
        Some(device::Fault::Transport) => Error::new(
            crate::Kind::Other,
            device::last_failure().unwrap_or_else(|| device::Fault::Transport.to_string()),
        ),
        _ if Function::of_tag(ended.envelope.tag) != function => err!(
            Other,
            "rank {source} is in {} where this rank is in {function}: all ranks must call the same collectives in the same order",
            Function::of_tag(ended.envelope.tag)
        ),
        _ => err!(
            Truncate,
            "rank {source} sent {sent} bytes in this collective, but {expected} were expected of it: do all ranks give the same root, and counts and datatypes that agree?"
        ),
    };
    e.on(comm)
}

/// Tells who looks at a hang which collective is waited in.
pub(super) struct Story<'a>(pub(super) &'a Comm, pub(super) Number, pub(super) i32);

impl Describe for Story<'_> {
    fn describe(&self, device: &mut Device, status: &ferry_job::RankStatus) {
        self.0.describe(device, status);
        let number = self.1.in_program(self.0);
        status.collective.store(number, Ordering::Relaxed);
        status.root.store(self.2, Ordering::Relaxed);
    }
}

/// Runs a schedule to its end.
///
/// # Safety
/// The binding's buffers must be what the schedule takes them for.
pub(super) unsafe fn run(schedule: &Schedule, b: &Binding<'_>, number: Number) -> Result<()> {
    if schedule.steps.is_empty() {
        return Ok(());
    }
    let mut run = Run::new(schedule, b, number);
    let story = Story(b.comm, number, b.root);
    let what = WaitingFor {
        context: b.comm.context,
        peer: -2,
        tag: -1,
        details: Some(&story),
    };
    loop {
        let mut stand = Stand::Waiting;
        device::wait_until(&what, |d| {
            // SAFETY: the caller's promise; the run stays where it is until the end of this
            // function.
            stand = unsafe { run.advance(schedule, b, d, Labour::Caller) };
            stand != Stand::Waiting
        });
        match stand {
            Stand::OwnWork => {
                let places = b.places();
                // SAFETY: the caller's promise: the buffers are valid until the operation has
                // ended.
                unsafe { run.work(b, &places, &schedule.steps[run.at], usize::MAX) };
                run.at += 1;
            }
            _ => return run.error.map_or(Ok(()), Err),
        }
    }
}

/// A collective that outlives its call.
#[derive(Clone)]
pub(super) struct Lasting {
    comm: Arc<Comm>,
    send: LastingView,
    recv: LastingView,
    reduction: Option<(Arc<Op>, Arc<Datatype>)>,
    pub(super) schedule: Arc<Schedule>,
    number: Number,
}

impl Lasting {
    pub(super) fn new(schedule: Arc<Schedule>, b: &Binding<'_>, number: Number) -> Lasting {
        Lasting {
            comm: b.comm.clone(),
            send: b.send.keep(),
            recv: b.recv.keep(),
            reduction: b.reduction.map(|(op, t)| (op.clone(), t.clone())),
            schedule,
            number,
        }
    }

    /// The communicator.
    pub(super) fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// The numbers of its messages.
    pub(super) fn number(&self) -> Number {
        self.number
    }

    /// The buffers are elsewhere: so many bytes (wrapping) from where they were.
    pub(super) fn shift(&mut self, send: usize, recv: usize) {
        self.send.shift(send);
        self.recv.shift(recv);
    }

    /// Starts sending `len` bytes as a message of this collective; `ends`: to a peer who will want
    /// its ends first. `None`: they have gone.
    ///
    /// # Safety
    /// As for [`Device::send`] and [`Device::send_with_edges`].
    pub(super) unsafe fn send(
        &self,
        d: &mut Device,
        peer: Peer,
        (from, len): (*const u8, usize),
        ends: bool,
    ) -> Option<ReqId> {
        let (to, key) = address(&self.comm, self.number, peer, true);
        let source = device::Source::Bytes { ptr: from, len };
        // SAFETY: the caller's promise.
        unsafe {
            match ends {
                true => d.send_with_edges(to, key, source),
                false => d.send(to, key, source, SendMode::Standard),
            }
        }
    }

    /// Starts receiving a message of this collective, held back.
    ///
    /// # Safety
    /// As for [`Device::receive_deferred`].
    pub(super) unsafe fn receive_deferred(
        &self,
        d: &mut Device,
        peer: Peer,
        into: *mut u8,
        len: usize,
        ends: [usize; 2],
    ) -> ReqId {
        let (from, pattern) = incoming(&self.comm, self.number, peer);
        let sink = device::Sink::Bytes {
            ptr: into,
            cap: len,
        };
        // SAFETY: the caller's promise.
        unsafe { d.receive_deferred(from, pattern, sink, ends) }
    }

    pub(super) fn binding(&self) -> Binding<'_> {
        Binding {
            comm: &self.comm,
            send: self.send.view(),
            recv: self.recv.view(),
            reduction: self.reduction.as_ref().map(|(op, t)| (op, t)),
            root: -1,
        }
    }

    /// Starts it once (MPI_I…).
    ///
    /// # Safety
    /// The buffers must be what the schedule takes them for, until the request completes.
    pub(super) unsafe fn start(self) -> Arc<Request> {
        let comm = self.comm.clone();
        let nothing = self.schedule.steps.is_empty();
        // The caller's promise holds for the run.
        let started = Started::new(What::Once(self));
        if nothing {
            started.end_at_once();
        } else {
            device::device().add_background(started.clone());
        }
        Request::flagged(Some(comm), started)
    }

    /// Does a run of it take little memory?
    fn is_small(&self) -> bool {
        let element = self.reduction.as_ref().map(|(_, t)| t);
        Room::is_small(self.schedule.tmp, element)
    }

    /// Is to be done again, with these buffers and this number; nothing else is different.
    fn renew(&mut self, b: &Binding<'_>, number: Number) {
        self.send.renew(&b.send);
        self.recv.renew(&b.recv);
        self.number = number;
    }

    /// Makes it a persistent request (MPI_…_init), whose starts are matched in their order: each
    /// run's messages follow those of the run before between any two ranks, so that all runs
    /// can have one number.
    ///
    /// # Safety
    /// The buffers must be what the schedule takes them for, whenever it is active.
    pub(super) unsafe fn init(self) -> Arc<Request> {
        let comm = self.comm.clone();
        let lasting = Arc::new(self);
        // The caller's promise holds for each start.
        Request::persistent_work(
            Some(comm),
            Box::new(move |d| {
                let started = Started::new(What::Again(lasting.clone()));
                d.add_background(started.clone());
                Active::Work(started)
            }),
        )
    }
}

#[cfg(test)]
mod tests;
